/* test_status.c - every code has a text of its own; errors, and how they are told. */
#include "test.h"

static const memopt_status status_codes[] = {
    MEMOPT_OK, MEMOPT_ERR_ARGUMENT, MEMOPT_ERR_OVERFLOW, MEMOPT_ERR_MEMORY, MEMOPT_ERR_BUFFER, MEMOPT_ERR_FORMAT,
    MEMOPT_ERR_STATE, MEMOPT_ERR_IO, MEMOPT_ERR_UNSUPPORTED, MEMOPT_ERR_DEVICE, MEMOPT_ERR_CORRUPT
};
enum { STATUS_COUNT = (int)(sizeof status_codes / sizeof *status_codes) };

static void status_numbers(void) { /* the numbers are a contract: 0, -1, -2, ... */
    int i;
    for (i = 0; i < STATUS_COUNT; ++i) CHECK_AT((int)status_codes[i] == -i, i);
}
static void status_texts(void) {
    const char *none = memopt_status_text((memopt_status)1);
    int i, k; size_t at;
    CHECK(none && *none);
    for (i = 0; i < STATUS_COUNT; ++i) {
        const char *text = memopt_status_text(status_codes[i]);
        CHECK_AT(text && strlen(text) > 4 && text == memopt_status_text(status_codes[i]), i);
        CHECK_AT(text[0] >= 'a' && text[0] <= 'z', i);
        for (at = 0; text[at]; ++at) CHECK_AT(text[at] >= ' ' && text[at] <= '~', i); /* one line */
        CHECK_AT(strcmp(text, none) != 0, i);
        for (k = 0; k < i; ++k) CHECK_AT(strcmp(text, memopt_status_text(status_codes[k])) != 0, i);
    }
    CHECK(strcmp(memopt_status_text(MEMOPT_ERR_MEMORY), "out of memory") == 0);
    CHECK(strcmp(memopt_status_text(MEMOPT_OK), "no error") == 0);
}
static void status_no_codes(void) {
    static const int numbers[] = { 1, 2, 7, 15, -11, -12, -16 }; /* what fits the enum also as C++ sees it */
    const char *none = memopt_status_text((memopt_status)1);
    size_t i;
    for (i = 0; i < sizeof numbers / sizeof *numbers; ++i)
        CHECK_AT(strcmp(memopt_status_text((memopt_status)numbers[i]), none) == 0, i);
#ifndef __cplusplus
    if (sizeof(memopt_status) == sizeof(int)) { /* not with -fshort-enums */
        volatile int distant = -2147483647;

        CHECK(strcmp(memopt_status_text((memopt_status)distant), none) == 0);
        distant = 2147483647;
        CHECK(strcmp(memopt_status_text((memopt_status)distant), none) == 0);
    }
#endif
}
static void status_fail(void) {
    static const char why[] = "because";
    memopt_error e;

    memset(&e, 0xA5, sizeof e);
    CHECK(memopt_i_fail(&e, MEMOPT_ERR_STATE, why) == MEMOPT_ERR_STATE);
    CHECK(e.status == MEMOPT_ERR_STATE && e.reason == why && !e.got.kind && !e.limit.kind && e.free_bytes == 0);
    CHECK(!e.subject && !e.place && !e.argument && !e.bound && e.index == SIZE_MAX && e.action == SIZE_MAX);
    memset(&e, 0xA5, sizeof e);
    CHECK(memopt_i_fail_at(&e, MEMOPT_ERR_IO, why, "segment", 9) == MEMOPT_ERR_IO);
    CHECK(e.status == MEMOPT_ERR_IO && e.reason == why && strcmp(e.place, "segment") == 0 && e.index == 9 && !e.got.kind);
    memset(&e, 0xA5, sizeof e);
    CHECK(memopt_i_fail_limit(&e, MEMOPT_ERR_BUFFER, why, "bytes", memopt_i_count(3), "at least", memopt_i_real(0.5))
          == MEMOPT_ERR_BUFFER);
    CHECK(e.status == MEMOPT_ERR_BUFFER && e.got.kind == MEMOPT_QUANTITY_COUNT && e.got.count == 3
          && e.limit.kind == MEMOPT_QUANTITY_REAL && e.limit.real == 0.5 && strcmp(e.argument, "bytes") == 0
          && strcmp(e.bound, "at least") == 0 && e.index == SIZE_MAX);
    CHECK(memopt_i_fail(NULL, MEMOPT_ERR_STATE, why) == MEMOPT_ERR_STATE);
    CHECK(memopt_i_fail_at(NULL, MEMOPT_ERR_STATE, why, "row", 1) == MEMOPT_ERR_STATE);
    CHECK(memopt_i_fail_limit(NULL, MEMOPT_ERR_STATE, why, "bytes", memopt_i_count(3), "at least", memopt_i_count(4))
          == MEMOPT_ERR_STATE);
}

static void status_text_is(const memopt_error *e, const char *want, int line) {
    const size_t length = strlen(want);
    size_t capacity, n = 0;
    char text[256];

    CHECK_AT(memopt_error_text(e, text, sizeof text, &n) == MEMOPT_OK && n == length, line);
    if (strcmp(text, want)) printf("got '%s', want '%s'\n", text, want);
    CHECK_AT(strcmp(text, want) == 0, line);
    for (capacity = 0; capacity <= length + 1; ++capacity) { /* and at every size of the buffer */
        memset(text, 77, sizeof text);
        n = 0;
        CHECK_AT(memopt_error_text(e, capacity ? text : NULL, capacity, &n)
                 == (capacity > length ? MEMOPT_OK : MEMOPT_ERR_BUFFER), capacity);
        CHECK_AT(n == length && text[capacity] == 77, capacity);
        if (capacity) CHECK_AT(strlen(text) == capacity - 1 && strncmp(text, want, capacity - 1) == 0, capacity);
    }
}

static void status_error_texts(void) {
    memopt_error e;
    char byte = 77;

    memset(&e, 0, sizeof e); /* as a caller begins it */
    status_text_is(&e, "no error", __LINE__);
    e.action = SIZE_MAX;
    (void)memopt_i_fail_limit(&e, MEMOPT_ERR_ARGUMENT, "saved_bytes is below output_bytes", "saved_bytes",
                              memopt_i_count(100), "at least output_bytes", memopt_i_count(128));
    e.place = "segment"; e.index = 7;
    status_text_is(&e, "segment 7: saved_bytes 100, at least output_bytes 128", __LINE__);
    (void)memopt_i_fail_limit(&e, MEMOPT_ERR_ARGUMENT, "an id is outside the vocabulary", "id", memopt_i_signed(50300),
                              "limit", memopt_i_count(50257));
    e.subject = "embedding"; e.place = "row"; e.index = 7;
    status_text_is(&e, "embedding: id 50300 at row 7, limit 50257", __LINE__);
    e.got = memopt_i_signed(-3);
    status_text_is(&e, "embedding: id -3 at row 7, limit 50257", __LINE__);
    e.got = memopt_i_signed(INT64_MIN); e.limit = memopt_i_count(UINT64_MAX);
    status_text_is(&e, "embedding: id -9223372036854775808 at row 7, limit 18446744073709551615", __LINE__);
    (void)memopt_i_fail(&e, MEMOPT_ERR_ARGUMENT, "the output overlaps the input");
    e.subject = "norm";
    status_text_is(&e, "norm: the output overlaps the input", __LINE__);
    e.place = "tensor"; e.index = 0;
    status_text_is(&e, "norm: the output overlaps the input at tensor 0", __LINE__);
    (void)memopt_i_fail_at(&e, MEMOPT_ERR_CORRUPT, "a forward callback failed", "segment", 3);
    status_text_is(&e, "segment 3: a forward callback failed", __LINE__);
    e.action = 12;
    status_text_is(&e, "segment 3: a forward callback failed, action 12", __LINE__);
    (void)memopt_i_fail_limit(&e, MEMOPT_ERR_ARGUMENT, "no pointer", "rate", memopt_i_real(1.5), "below 1",
                              memopt_i_error(MEMOPT_OK, "").got);
    status_text_is(&e, "rate 1.5, below 1", __LINE__);
    (void)memopt_i_fail(&e, MEMOPT_ERR_OVERFLOW, NULL); /* no reason of its own: the status's text */
    status_text_is(&e, memopt_status_text(MEMOPT_ERR_OVERFLOW), __LINE__);
    (void)memopt_i_fail(&e, MEMOPT_ERR_MEMORY, "the arena is full");
    e.got = memopt_i_count(3145728); e.free_bytes = 4194304; e.limit = memopt_i_count(1048576);
    status_text_is(&e, "the arena is full: asked 3.0 MiB, free 4.0 MiB, largest piece 1.0 MiB, fragmentation 75%", __LINE__);
    CHECK(memopt_error_text(NULL, &byte, 1, NULL) == MEMOPT_ERR_ARGUMENT && byte == 77);
    CHECK(memopt_error_text(&e, NULL, 1, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_error_text(&e, &byte, 1, NULL) == MEMOPT_ERR_BUFFER && byte == 0);
}

/* An error in one line of the caller's, into a file; the longest, too, is cut and ends. */
static void status_printed(void) {
    char path[600], line[600], reason[600];
    memopt_error e = memopt_i_error(MEMOPT_ERR_STATE, "no step has begun");
    FILE *file;

    test_path(path, "printed");
    file = fopen(path, "w+b");
    if (!file) { SKIP("no file can be made here"); return; }
    if (e.status) MEMOPT_ERROR_PRINT(file, e);
    else CHECK(0);
    MEMOPT_ERROR_PRINT(file, memopt_i_error(MEMOPT_OK, ""));
    memset(reason, 'x', sizeof reason - 1);
    reason[sizeof reason - 1] = 0;
    e.reason = reason;
    MEMOPT_ERROR_PRINT(file, e);
    rewind(file);
    CHECK(fgets(line, sizeof line, file) && !strcmp(line, "no step has begun\n"));
    CHECK(fgets(line, sizeof line, file) && !strcmp(line, "no error\n"));
    CHECK(fgets(line, sizeof line, file) && strlen(line) == 512 && line[511] == '\n' && strspn(line, "x") == 511);
    CHECK(!fgets(line, sizeof line, file));
    fclose(file);
    remove(path);
}

/* Real numbers to six digits: the C library's %g is the independent program. */
static void status_reals(void) {
    static const struct { double x; const char *text; } known[] = {
        { 0, "0" }, { 1, "1" }, { -0.5, "-0.5" }, { 0.9, "0.9" }, { 1e-4, "0.0001" }, { 0.00123456, "0.00123456" },
        { 12.5, "12.5" }, { 100000, "100000" }, { 999999, "999999" }, { 1e6, "1e+6" }, { 9.999996, "10" },
        { 999999.7, "1e+6" }, { 1e-5, "1e-5" }, { 1.5e-9, "1.5e-9" }, { -2.5e300, "-2.5e+300" }, { 3e-320, "2.99997e-320" },
        { 0.0999999999, "0.1" }, { 120, "120" }, { 10.25, "10.25" }
    };
    memopt_i_writer o;
    char text[64], want[64], *e;
    uint64_t state = 1;
    size_t i;

    for (i = 0; i < sizeof known / sizeof *known; ++i) {
        memset(text, 0, sizeof text);
        o = memopt_i_writer_begin(text, sizeof text);
        memopt_i_put_real(&o, known[i].x);
        if (strcmp(text, known[i].text)) printf("got '%s', want '%s'\n", text, known[i].text);
        CHECK_AT(strcmp(text, known[i].text) == 0, i);
    }
    for (i = 0; i < 20000; ++i) {
        const uint64_t bits = (test_random(&state) & ~(UINT64_C(0x7FF) << 52)) | ((UINT64_C(940) + i % 166) << 52);
        double x, back;

        memcpy(&x, &bits, sizeof x);
        snprintf(want, sizeof want, "%.5e", x);
        memset(text, 0, sizeof text);
        o = memopt_i_writer_begin(text, sizeof text);
        memopt_i_put_real(&o, x);
        back = strtod(text, &e);
        CHECK_AT(!*e && fabs(back - strtod(want, NULL)) <= 1.0000001e-5 * fabs(x) * (fabs(back - x) > 5.1e-6 * fabs(x)), i);
    }
    for (i = 0; i < 3; ++i) {
        static const uint64_t odd[] = { UINT64_C(0x7FF8) << 48, UINT64_C(0x7FF) << 52, UINT64_C(0xFFF) << 52 };
        static const char *const texts[] = { "NaN", "infinity", "-infinity" };
        double x;

        memcpy(&x, &odd[i], sizeof x);
        memset(text, 0, sizeof text);
        o = memopt_i_writer_begin(text, sizeof text);
        memopt_i_put_real(&o, x);
        CHECK_AT(strcmp(text, texts[i]) == 0, i);
    }
}

static void test_status(void) {
    RUN(status_numbers);
    RUN(status_texts);
    RUN(status_no_codes);
    RUN(status_fail);
    RUN(status_error_texts);
    RUN(status_printed);
    RUN(status_reals);
}
#ifndef TEST_COMBINED
int main(void) { test_status(); return test_totals(); }
#endif
