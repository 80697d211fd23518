/* test_status.c - every code has a text of its own. */
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
    { volatile int distant = -2147483647;
      CHECK(strcmp(memopt_status_text((memopt_status)distant), none) == 0);
      distant = 2147483647;
      CHECK(strcmp(memopt_status_text((memopt_status)distant), none) == 0); }
#endif
}
static void status_fail(void) {
    static const char why[] = "because";
    memopt_error e;
    memset(&e, 0xA5, sizeof e);
    CHECK(memopt_i_fail(&e, MEMOPT_ERR_STATE, why, 77) == MEMOPT_ERR_STATE);
    CHECK(e.status == MEMOPT_ERR_STATE && e.reason == why && e.asked == 77 && e.free_bytes == 0 && e.largest == 0);
}
static void test_status(void) {
    RUN(status_numbers);
    RUN(status_texts);
    RUN(status_no_codes);
    RUN(status_fail);
}
#ifndef TEST_COMBINED
int main(void) { test_status(); return test_totals(); }
#endif
