/* driver.c - a main for a fuzzer's entry where there is no libFuzzer: the files named on the command line, or a fixed
   number of random inputs. It finds what random bytes find; the search for new paths needs clang and libFuzzer. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t bytes[1 << 16];
static uint64_t state = 1;

static uint64_t random_bits(void) { /* splitmix64 */
    uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int main(int argc, char **argv) {
    static const char text[] = "0123456789,,,\n\n-@: idlowerupsz";
    int i;
    for (i = 1; i < argc; ++i) {
        FILE *file = fopen(argv[i], "rb");
        if (!file) { perror(argv[i]); return 1; }
        (void)LLVMFuzzerTestOneInput(bytes, fread(bytes, 1, sizeof bytes, file));
        fclose(file);
    }
    for (i = 0; argc == 1 && i < 20000; ++i) { /* short ones are likelier; half of them are bytes, half look like text */
        const size_t size = (size_t)(random_bits() % (UINT64_C(1) << (random_bits() % 11)));
        size_t k;
        for (k = 0; k < size; ++k)
            bytes[k] = i % 2 ? (uint8_t)random_bits() : (uint8_t)text[random_bits() % (sizeof text - 1)];
        (void)LLVMFuzzerTestOneInput(bytes, size);
    }
    printf("%d inputs\n", argc > 1 ? argc - 1 : i);
    return 0;
}
