/* The carver: offsets worked out by hand, sizes that do not fit, and the same lines counting and handing out. */
#include "test.h"

typedef struct carve_parts { double *a; unsigned char *b; float *c; void *none; } carve_parts;

static void carve_lay_out(memopt_carver *c, carve_parts *p) {
    p->a = (double *)memopt_carve(c, 3, sizeof *p->a, 8);
    p->b = (unsigned char *)memopt_carve(c, 5, 1, 1);
    p->c = (float *)memopt_carve(c, 2, sizeof *p->c, 0);
    p->none = memopt_carve(c, 0, 8, 16);
}

static void carve_counts_and_hands_out(void) {
    static double memory[32];
    unsigned char *base = (unsigned char *)memory;
    memopt_carver c = memopt_carver_begin(NULL);
    carve_parts p;

    carve_lay_out(&c, &p);
    CHECK(!p.a && !p.b && !p.c && !p.none);
    CHECK(c.bytes == 80 && !c.overflow); /* 24 + 5, 64 + 8 = 72, and up to 80 for nothing at a multiple of 16 */
    c = memopt_carver_begin(base);
    carve_lay_out(&c, &p);
    CHECK((unsigned char *)p.a == base && p.b == base + 24 && (unsigned char *)p.c == base + 64);
    CHECK((unsigned char *)p.none == base + 80 && c.bytes == 80 && c.base == base && !c.overflow);
}

static void carve_alignments(void) {
    static unsigned char memory[8];
    size_t alignment, before;

    for (alignment = 1; alignment <= 4096; alignment *= 2)
        for (before = 0; before < 3 * alignment; before += 1 + alignment / 5) {
            const size_t wanted = (before + alignment - 1) / alignment * alignment;
            memopt_carver c = memopt_carver_begin(NULL);

            (void)memopt_carve(&c, before, 1, 1);
            (void)memopt_carve(&c, 7, 3, alignment);
            CHECK_AT(c.bytes == wanted + 21 && !c.overflow, alignment * 4096 + before);
        }
    {
        memopt_carver c = memopt_carver_begin(memory);

        CHECK(memopt_carve(&c, 1, 1, 0) == memory && memopt_carve(&c, 1, 1, 1) == memory + 1);
    }
}

/* What does not fit stays told, and nothing is handed out any more. */
static void carve_overflows(void) {
    static const struct { size_t before, count, size, alignment; } cases[] = {
        { 0, SIZE_MAX, 2, 1 }, { 0, SIZE_MAX / 2 + 1, 2, 1 }, { 1, SIZE_MAX, 1, 1 }, { SIZE_MAX - 8, 1, 1, 16 },
        { SIZE_MAX - 62, 0, 1, 0 }
    };
    static unsigned char memory[64];
    size_t i;

    for (i = 0; i < sizeof cases / sizeof *cases; ++i) {
        memopt_carver c = memopt_carver_begin(memory);

        (void)memopt_carve(&c, cases[i].before, 1, 1);
        CHECK_AT(!c.overflow, i);
        CHECK_AT(!memopt_carve(&c, cases[i].count, cases[i].size, cases[i].alignment) && c.overflow, i);
        CHECK_AT(!memopt_carve(&c, 0, 0, 1) && c.overflow, i);
    }
    {
        memopt_carver c = memopt_carver_begin(NULL);

        (void)memopt_carve(&c, SIZE_MAX, 1, 1); /* just fits */
        CHECK(c.bytes == SIZE_MAX && !c.overflow);
        (void)memopt_carve(&c, SIZE_MAX, 0, 1);
        CHECK(c.bytes == SIZE_MAX && !c.overflow);
    }
}

static void test_carve(void) {
    RUN(carve_counts_and_hands_out);
    RUN(carve_alignments);
    RUN(carve_overflows);
}
#ifndef TEST_COMBINED
int main(void) { test_carve(); return test_totals(); }
#endif
