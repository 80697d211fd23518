/* quant_tool.c - quantise raw floats from standard input to standard output, or back, for comparing with other programs. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdio.h>
#if defined(_WIN32)
#  include <io.h>
#endif

static const char usage[] =
    "usage: quant_tool --map signed|unsigned|linear [--block N] [--decode] <in >out\n"
    "  --map NAME  the levels: bitsandbytes' dynamic maps, or linear\n"
    "  --block N   elements of a block: a multiple of 32 from 32 to 4096 (default 256)\n"
    "  --decode    the other way\n"
    "reads float32, little-endian, without a header; writes a code (one byte) for each, then the absmax of every block\n"
    "(float32). With --decode it reads codes and absmax and writes the floats; how many follows from the length, which is\n"
    "count + 4 * blocks.\n"
    "exit status 0: done; 1: the input is wrong or cannot be read, or the output cannot be written; 2: usage\n";

typedef struct quant_tool { memopt_quant_map map; size_t block; int decode; } quant_tool;

static int quant_tool_number(const char *text, size_t *out) { /* 1: not a number */
    size_t value = 0;
    if (!*text) return 1;
    for (; *text; ++text) {
        if (*text < '0' || *text > '9' || value > 1000000) return 1;
        value = value * 10 + (size_t)(*text - '0');
    }
    *out = value;
    return 0;
}
static const char *quant_tool_arguments(int argc, char **argv, quant_tool *t) { /* NULL, or what is wrong */
    int i, has_map = 0;
    memset(t, 0, sizeof *t);
    t->block = 256;
    for (i = 1; i < argc; ++i) {
        const char *name = argv[i], *value;
        if (!strcmp(name, "--decode")) { t->decode = 1; continue; }
        if (strcmp(name, "--map") && strcmp(name, "--block")) return "unknown argument";
        if (++i == argc) return "a value is missing";
        value = argv[i];
        if (!strcmp(name, "--block")) {
            if (quant_tool_number(value, &t->block) || !t->block || !memopt_quantize_blocks(1, t->block))
                return "--block wants a multiple of 32 from 32 to 4096";
            continue;
        }
        has_map = 1;
        if (!strcmp(value, "signed")) t->map = MEMOPT_QUANT_SIGNED;
        else if (!strcmp(value, "unsigned")) t->map = MEMOPT_QUANT_UNSIGNED;
        else if (!strcmp(value, "linear")) t->map = MEMOPT_QUANT_LINEAR;
        else return "--map wants signed, unsigned or linear";
    }
    return has_map ? NULL : "--map is missing";
}
static int quant_tool_failed(const char *why) { fprintf(stderr, "quant_tool: %s\n", why); return 1; }
static unsigned char *quant_tool_read(size_t *length, const char **why) { /* all of standard input; NULL: *why */
    size_t room = 1 << 16, got; unsigned char *bytes = (unsigned char *)malloc(room), *more;
    *length = 0;
    while (bytes && (got = fread(bytes + *length, 1, room - *length, stdin)) > 0) {
        *length += got;
        if (*length < room) continue;
        more = room > SIZE_MAX / 2 ? NULL : (unsigned char *)realloc(bytes, room *= 2);
        if (!more) free(bytes);
        bytes = more;
    }
    *why = "out of memory";
    if (bytes && ferror(stdin)) { free(bytes); bytes = NULL; *why = "standard input cannot be read"; }
    return bytes;
}
/* Floats in a stream are little-endian, whatever the machine. */
static void quant_tool_get(float *to, const unsigned char *from, size_t count) {
    size_t i;
    for (i = 0; i < count; ++i, from += 4)
        to[i] = memopt_i_bits_float((uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24);
}
static int quant_tool_put(const float *from, size_t count) { /* 1: could not write */
    unsigned char bytes[4096]; size_t i, k;
    while (count) {
        const size_t n = memopt_i_min(count, sizeof bytes / 4);
        for (i = 0; i < n; ++i)
            for (k = 0; k < 4; ++k) bytes[4 * i + k] = (unsigned char)(memopt_i_float_bits(from[i]) >> (8 * k) & 0xff);
        if (fwrite(bytes, 4, n, stdout) != n) return 1;
        from += n; count -= n;
    }
    return 0;
}
static int quant_tool_encode(const quant_tool *t, const unsigned char *bytes, size_t length) {
    const size_t count = length / 4, blocks = memopt_quantize_blocks(count, t->block); int failed = 1;
    float *x, *absmax; unsigned char *codes;
    if (length % 4) return quant_tool_failed("the input is cut off: its length is no multiple of 4");
    x = (float *)malloc(count * sizeof *x + 1); absmax = (float *)malloc(blocks * sizeof *absmax + 1); codes = (unsigned char *)malloc(count + 1);
    if (!x || !absmax || !codes) failed = quant_tool_failed("out of memory");
    else {
        memopt_status s;
        quant_tool_get(x, bytes, count);
        s = memopt_quantize_f32(codes, absmax, x, count, t->map, t->block, NULL);
        if (s) quant_tool_failed(memopt_status_text(s));
        else if (fwrite(codes, 1, count, stdout) != count || quant_tool_put(absmax, blocks)) quant_tool_failed("cannot write");
        else failed = 0;
    }
    free(x); free(absmax); free(codes);
    return failed;
}
/* count + 4 * blocks(count) grows with every element, so at most one count has the length of the input. */
static int quant_tool_count(size_t length, size_t block, size_t *count) { /* 1: there is none */
    const size_t whole = length / (block + 4), rest = length % (block + 4);
    *count = whole * block + (rest > 4 ? rest - 4 : 0);
    return rest > 0 && rest <= 4;
}
static int quant_tool_decode(const quant_tool *t, const unsigned char *bytes, size_t length) {
    size_t count, blocks; int failed = 1; float *x, *absmax;
    if (quant_tool_count(length, t->block, &count))
        return quant_tool_failed("no count of elements has this length with this block: cut off, or another --block");
    blocks = memopt_quantize_blocks(count, t->block);
    x = (float *)malloc(count * sizeof *x + 1); absmax = (float *)malloc(blocks * sizeof *absmax + 1);
    if (!x || !absmax) failed = quant_tool_failed("out of memory");
    else {
        memopt_status s;
        quant_tool_get(absmax, bytes + count, blocks);
        s = memopt_dequantize_f32(x, bytes, absmax, count, t->map, t->block, NULL);
        if (s) quant_tool_failed(memopt_status_text(s));
        else if (quant_tool_put(x, count)) quant_tool_failed("cannot write");
        else failed = 0;
    }
    free(x); free(absmax);
    return failed;
}
int main(int argc, char **argv) {
    quant_tool t; unsigned char *bytes; size_t length; int failed; const char *why;
    if (argc == 2 && !strcmp(argv[1], "--help")) { fputs(usage, stdout); return 0; }
    why = quant_tool_arguments(argc, argv, &t);
    if (why) { fprintf(stderr, "quant_tool: %s\n%s", why, usage); return 2; }
#if defined(_WIN32)
    _setmode(_fileno(stdin), 0x8000); _setmode(_fileno(stdout), 0x8000); /* bytes as they are */
#endif
    bytes = quant_tool_read(&length, &why);
    if (!bytes) return quant_tool_failed(why);
    failed = t.decode ? quant_tool_decode(&t, bytes, length) : quant_tool_encode(&t, bytes, length);
    free(bytes);
    if (!failed && fflush(stdout)) failed = quant_tool_failed("cannot write");
    return failed;
}
