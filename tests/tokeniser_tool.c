/* tokeniser_tool.c - examples/finetune/tokeniser.h as a program, for tests/check_tokeniser.py.

   tokeniser_tool TOKENIZER.JSON             reads texts, 4 bytes of length (the lower first) before each, and writes
                                             a line for each: ids with special tokens, '|', the bytes that ids without
                                             them give, in hexadecimal; or ! and why not
   tokeniser_tool TOKENIZER.JSON --time FILE encodes FILE, and tells MB a second, bytes a token, and MB of memory */
#if !defined(_WIN32)
#  include <sys/resource.h>
#endif
#include "../examples/finetune/tokeniser.h"
#include <time.h>

static int fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    return 1;
}

static double megabytes(void) { /* at the most, of this process */
#if defined(_WIN32)
    return 0;
#else
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss * 1024e-6;
#endif
}

static int time_file(tokeniser *t, const char *path, double opened) {
    const double before = megabytes();
    tokeniser_ids ids;
    char *text;
    size_t bytes, count;
    const char *const why = json_file_bytes(path, &text, &bytes);
    clock_t begin;
    double seconds;
    int i;

    if (why) return fail(path, why);
    memset(&ids, 0, sizeof ids);
    for (i = 0; i < 3; ++i) { /* the last counts */
        ids.count = 0;
        begin = clock();
        if (tokeniser_encode(t, text, bytes, 0, &ids)) return fail(path, t->message);
        seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    }
    count = ids.count;
    printf("opened in %.2f s, %.1f MB; %.1f MB/s, %.2f bytes a token, %.1f MB at the most\n", opened, before,
           (double)bytes * 1e-6 / seconds, (double)bytes / (double)count, megabytes());
    free(ids.ids);
    free(text);
    return 0;
}

static int answer(tokeniser *t, const char *text, size_t bytes, tokeniser_ids *ids, tokeniser_bytes *out) {
    size_t i;

    ids->count = out->count = 0;
    if (tokeniser_encode(t, text, bytes, TOKENISER_ADD_SPECIAL, ids)) return printf("!%s\n", t->message) < 0;
    for (i = 0; i < ids->count; ++i) printf(i ? " %ld" : "%ld", (long)ids->ids[i]);
    putchar('|');
    ids->count = 0;
    if (tokeniser_encode(t, text, bytes, 0, ids) || tokeniser_decode(t, ids->ids, ids->count, 0, out)) return 1;
    for (i = 0; i < out->count; ++i) printf("%02x", (unsigned)(unsigned char)out->bytes[i]);
    return putchar('\n') == EOF;
}

static int answer_all(tokeniser *t) {
    tokeniser_ids ids;
    tokeniser_bytes out, text;
    unsigned char head[4];
    int failed = 0;

    memset(&ids, 0, sizeof ids);
    memset(&out, 0, sizeof out);
    memset(&text, 0, sizeof text);
    while (!failed && fread(head, 1, 4, stdin) == 4) {
        const size_t bytes = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
        char *const grown = (char *)tokeniser_grow(t, text.bytes, &text.capacity, bytes + 1, 1);

        failed = !grown;
        if (failed) break;
        text.bytes = grown;
        failed = fread(text.bytes, 1, bytes, stdin) != bytes || answer(t, text.bytes, bytes, &ids, &out);
    }
    free(ids.ids);
    free(out.bytes);
    free(text.bytes);
    return failed ? fail("a text", "could not be read, or answered") : 0;
}

int main(int argc, char **argv) {
    const clock_t begin = clock();
    tokeniser t;
    int failed;

    if (argc != 2 && !(argc == 4 && !strcmp(argv[2], "--time"))) {
        fprintf(stderr, "use: tokeniser_tool TOKENIZER.JSON [--time FILE]\n");
        return 2;
    }
    memset(&t, 0, sizeof t);
    if (tokeniser_open(&t, argv[1])) return fail(argv[1], t.message);
    failed = argc == 4 ? time_file(&t, argv[3], (double)(clock() - begin) / CLOCKS_PER_SEC) : answer_all(&t);
    tokeniser_close(&t);
    return failed;
}
