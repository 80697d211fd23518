/* test_config.c - version, linkage, and what the header leaves behind. */
#include "test.h"
#include "memopt.h" /* a second time, with the implementation asked for no more: nothing happens */

static void config_version(void) {
    char line[256] = "", want[64];
    FILE *file = fopen("memopt.h", "r");
    CHECK(MEMOPT_VERSION > 0 && MEMOPT_VERSION < 1000000);
    if (!file) { SKIP("memopt.h is not in the current folder: the version of its first line is not compared"); return; }
    CHECK(fgets(line, sizeof line, file) != NULL);
    (void)fclose(file);
    snprintf(want, sizeof want, "/* memopt.h - v%d.%d.%d - ", MEMOPT_VERSION / 10000, MEMOPT_VERSION / 100 % 100, MEMOPT_VERSION % 100);
    CHECK(strncmp(line, want, strlen(want)) == 0);
}
static void config_macros(void) {
#if defined(MEMOPT_IMPLEMENTATION) || !defined(MEMOPT_I_IMPLEMENTED) || !defined(MEMOPT_H) || !defined(MEMOPT_API)
    CHECK(MEMOPT_VERSION < 0); /* the guards of the header are not what they should be */
#endif
#if defined(MEMOPT_STATIC)
    CHECK(MEMOPT_I_STATIC == 1);
#else
    CHECK(MEMOPT_I_STATIC == 0);
#endif
    CHECK(MEMOPT_DEBUG >= 0 && MEMOPT_DEBUG <= 2);
    MEMOPT_ASSERT(MEMOPT_VERSION > 0); /* an expression statement at every level */
    CHECK(MEMOPT_I_LIKELY(2) && !MEMOPT_I_UNLIKELY(0));
}
/* What callers store or pass in other languages' bindings: a status is an int, tables are nothing but pointers and ints. */
static void config_types(void) {
    memopt_host zero;
    memset(&zero, 0, sizeof zero);
    CHECK((int)MEMOPT_ERR_CORRUPT == -10 && (int)MEMOPT_OK == 0);
    CHECK(sizeof(memopt_files) == 21 * sizeof(void *) && sizeof(memopt_allocator) == 3 * sizeof(void *));
    CHECK(sizeof(memopt_clock) == 2 * sizeof(void *) && sizeof(memopt_threads) == 2 * sizeof(void *) + 2 * sizeof(int));
    CHECK(sizeof(memopt_tag) == sizeof(unsigned) && MEMOPT_TAG_OTHER == 0 && MEMOPT_TAG_USER == 8);
    CHECK(!zero.allocator.alloc_fn && !zero.threads.run_fn && !zero.files.open_fn && !zero.clock.now_fn);
}
static void test_config(void) {
    RUN(config_version);
    RUN(config_macros);
    RUN(config_types);
}
#ifndef TEST_COMBINED
int main(void) { test_config(); return test_totals(); }
#endif
