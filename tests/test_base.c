/* test_base.c - sums and products that may not fit, rounding, bits. Expected values from their definitions:
   a + b fits when b <= SIZE_MAX - a, a * b when b <= SIZE_MAX / a, and a number is rounded by division. */
#include "test.h"

#define BASE_BITS ((unsigned)sizeof(size_t) * 8)
enum { BASE_MOST = 1024 };
static size_t base_planted[BASE_MOST];
static size_t base_plant(void) { /* around every power of two, around the root of SIZE_MAX, and at both ends */
    size_t n = 0, d; unsigned k;
    for (k = 0; k < BASE_BITS; ++k)
        for (d = 0; d < 5; ++d) base_planted[n++] = ((size_t)1 << k) + d - 2;
    for (d = 0; d < 9; ++d) {
        base_planted[n++] = SIZE_MAX - d;
        base_planted[n++] = SIZE_MAX / 3 + d - 4;
        base_planted[n++] = SIZE_MAX / 10 + d - 4;
    }
    return n;
}
static void base_add_and_mul(void) {
    const size_t n = base_plant(); size_t i, k;
    for (i = 0; i < n; ++i)
        for (k = 0; k < n; ++k) {
            const size_t a = base_planted[i], b = base_planted[k]; size_t sum = 1, product = 1;
            const int sum_fits = b <= SIZE_MAX - a, product_fits = a == 0 || b <= SIZE_MAX / a;
            CHECK_AT(memopt_i_add(a, b, &sum) == !sum_fits, i * n + k);
            if (sum_fits) CHECK_AT(sum >= a && sum - a == b, i * n + k);
            CHECK_AT(memopt_i_mul(a, b, &product) == !product_fits, i * n + k);
            if (product_fits) CHECK_AT(a == 0 ? product == 0 : product / a == b && product % a == 0, i * n + k);
        }
}
static void base_random_products(void) { /* factors whose product lies near SIZE_MAX, where a wrong test for overflow is wrong */
    uint64_t seed = 1; int i;
    for (i = 0; i < 200000; ++i) {
        const size_t a = (size_t)(test_random(&seed) >> test_below(&seed, 64)) | 1;
        const size_t b = SIZE_MAX / a + test_below(&seed, 3) - 1; size_t product = 1;
        const int fits = b <= SIZE_MAX / a;
        CHECK_AT(memopt_i_mul(a, b, &product) == !fits && memopt_i_mul(b, a, &product) == !fits, i);
        if (fits) CHECK_AT(product / a == b && product % a == 0, i);
    }
}
static void base_align(void) {
    const size_t n = base_plant(); size_t i, x; unsigned k;
    for (k = 0; k < BASE_BITS; ++k) {
        const size_t align = (size_t)1 << k, most = SIZE_MAX / align * align; /* the largest multiple there is */
        for (i = 0; i < n + 300; ++i) {
            size_t up = 1;
            x = i < n ? base_planted[i] : i - n;
            CHECK_AT(memopt_i_align_down(x, align) == x / align * align, i);
            if (x > most) { CHECK_AT(memopt_i_align_up(x, align, &up) == 1, i); continue; }
            CHECK_AT(memopt_i_align_up(x, align, &up) == 0, i);
            CHECK_AT(up == (x / align + (x % align != 0)) * align, i);
        }
    }
}
static void base_power_of_two(void) {
    size_t x, i; unsigned k; const size_t n = base_plant();
    for (x = 0; x < 70000; ++x) { /* by counting divisions */
        size_t y = x;
        while (y && y % 2 == 0) y /= 2;
        CHECK_AT(memopt_i_power_of_two(x) == (y == 1), x);
    }
    for (i = 0; i < n; ++i) {
        int is = 0;
        for (k = 0; k < BASE_BITS; ++k) is |= base_planted[i] == (size_t)1 << k;
        CHECK_AT(memopt_i_power_of_two(base_planted[i]) == is, i);
    }
}
static void base_min_max(void) {
    CHECK(memopt_i_min(2, 3) == 2 && memopt_i_min(3, 2) == 2 && memopt_i_min(5, 5) == 5);
    CHECK(memopt_i_max(2, 3) == 3 && memopt_i_max(3, 2) == 3 && memopt_i_max(5, 5) == 5);
    CHECK(memopt_i_min(SIZE_MAX, 0) == 0 && memopt_i_max(0, SIZE_MAX) == SIZE_MAX);
    CHECK(memopt_i_min(SIZE_MAX, SIZE_MAX / 2) == SIZE_MAX / 2 && memopt_i_max(SIZE_MAX, 1) == SIZE_MAX);
}
static void base_bits(void) {
    uint64_t seed = 2; unsigned high, low; int i;
    for (high = 0; high < 64; ++high)
        for (low = 0; low <= high; ++low)
            for (i = 0; i < 8; ++i) { /* both ends set, what lies between random, all clear or all set */
                const uint64_t between = high - low < 2 ? 0 : (UINT64_C(1) << high) - (UINT64_C(2) << low);
                const uint64_t fill = i == 0 ? 0 : i == 1 ? between : test_random(&seed) & between;
                const uint64_t x = fill | UINT64_C(1) << high | UINT64_C(1) << low;
                CHECK_AT(memopt_i_high_bit(x) == high, high);
                CHECK_AT(memopt_i_low_bit(x) == low, low);
            }
}
static void base_ceil_div(void) {
    const size_t n = base_plant(); size_t i, b;
    for (i = 0; i < n; ++i)
        for (b = 1; b < 70; ++b) { /* the smallest quotient whose multiple reaches a */
            const size_t a = base_planted[i], q = memopt_i_ceil_div(a, b);
            CHECK_AT(a == 0 ? q == 0 : q > 0 && q - 1 <= a / b && (q - 1) * b < a && a - (q - 1) * b <= b, i);
        }
}
static void base_floats(void) { /* bits from IEEE 754's table; sums, products and quotients by double, rounded once */
    static const struct { float x; uint32_t bits; } known[] = {
        { 0.0f, 0 }, { 1.0f, 0x3f800000u }, { -2.0f, 0xc0000000u }, { 0.15625f, 0x3e200000u }, { 16777215.0f, 0x4b7fffffu }
    };
    uint64_t seed = 3; int i;
    for (i = 0; i < (int)(sizeof known / sizeof *known); ++i) {
        CHECK_AT(memopt_i_float_bits(known[i].x) == known[i].bits, i);
        CHECK_AT(memopt_i_float_bits(memopt_i_bits_float(known[i].bits)) == known[i].bits, i);
    }
    for (i = 0; i < 20000; ++i) { /* 24 bits each: double holds the product, and rounds the others harmlessly */
        const float a = (float)(test_below(&seed, 1 << 24) + 1) - 8388608.5f, b = (float)(test_below(&seed, 1 << 24) + 1) / 4096;
        const volatile float sum = (float)((double)a + (double)b), product = (float)((double)a * (double)b);
        const volatile float quotient = (float)((double)a / (double)b);
        CHECK_AT(memopt_i_sum(a, b) == sum && memopt_i_times(a, b) == product && memopt_i_quotient(a, b) == quotient, i);
        CHECK_AT(memopt_i_round(product) == product, i);
    }
}
static void base_doubles(void) { /* bits from IEEE 754's table; sums of what a double holds, and what rounds to even */
    static const struct { double x; uint64_t bits; int finite; } known[] = {
        { 0.0, 0, 1 }, { 1.0, UINT64_C(0x3ff0000000000000), 1 }, { -2.0, UINT64_C(0xc000000000000000), 1 },
        { 1.7976931348623157e308, UINT64_C(0x7fefffffffffffff), 1 }, { HUGE_VAL, UINT64_C(0x7ff0000000000000), 0 },
        { -HUGE_VAL, UINT64_C(0xfff0000000000000), 0 }
    };
    static const uint32_t floats[][2] = { { 0, 1 }, { 0x007fffffu, 1 }, { 0x7f7fffffu, 1 }, { 0x7f800000u, 0 },
                                          { 0xff800000u, 0 }, { 0x7fc00000u, 0 }, { 0xff7fffffu, 1 } };
    const double big = 9007199254740992.0; /* 2^53: what is behind it has no odd numbers */
    int i;

    for (i = 0; i < (int)(sizeof known / sizeof *known); ++i) {
        CHECK_AT(memopt_i_double_bits(known[i].x) == known[i].bits, i);
        CHECK_AT(memopt_i_finite_double(known[i].x) == known[i].finite, i);
    }
    for (i = 0; i < (int)(sizeof floats / sizeof *floats); ++i)
        CHECK_AT(memopt_i_finite(memopt_i_bits_float(floats[i][0])) == (int)floats[i][1], i);
    CHECK(memopt_i_sum_double(big, 1) == big && memopt_i_sum_double(big, 3) == big + 4 && memopt_i_sum_double(-3, 2) == -1);
    CHECK(memopt_i_add_square(big, 1) == big && memopt_i_add_square(2, 3) == 11);
    CHECK(memopt_i_add_square(big, (double)memopt_i_bits_float(0x3fddb3d7u)) == big + 2); /* a square just below 3 */
    CHECK(memopt_i_add_square(big, (double)memopt_i_bits_float(0x3fddb3d8u)) == big + 4); /* and just above */
}
static void base_inverse(void) {
    const float least = memopt_i_bits_float(0x00200000u); /* 2^-128 */

    CHECK(memopt_i_float_bits(memopt_i_inverse(0)) == 0 && memopt_i_inverse(4) == 0.25f && memopt_i_float_bits(memopt_i_inverse(3)) == 0x3eaaaaabu);
    CHECK(memopt_i_float_bits(memopt_i_inverse(least)) == 0x7f7fffffu); /* 2^128 is no float */
    CHECK(memopt_i_float_bits(memopt_i_inverse(least * 2)) == 0x7f000000u);
    CHECK(memopt_i_float_bits(memopt_i_inverse(memopt_i_bits_float(1))) == 0x7f7fffffu);
}
static void base_overlaps(void) { /* against byte by byte */
    static const unsigned char memory[24] = { 0 };
    size_t a, b, n, m;

    for (a = 0; a < 8; ++a)
        for (b = 0; b < 8; ++b)
            for (n = 0; n < 8; ++n)
                for (m = 0; m < 8; ++m) {
                    const int wanted = n && m && a < b + m && b < a + n;
                    CHECK_AT(memopt_i_overlaps(memory + a, n, memory + b, m) == wanted, a * 512 + b * 64 + n * 8 + m);
                }
    CHECK(!memopt_i_overlaps(NULL, 8, memory, 8) && !memopt_i_overlaps(memory, 8, NULL, 8));
}
static uint64_t base_key(const void *of, uint32_t i) { return ((const uint64_t *)of)[i]; }

static void base_sort(void) { /* ascending, and each number once; also where keys are equal, or all of 64 bits */
    uint64_t keys[64] = { 0 }, state = 1;
    uint32_t order[64];
    size_t n, i;

    for (n = 0; n <= 64; ++n) {
        uint64_t seen = 0;

        for (i = 0; i < n; ++i) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            keys[i] = n % 2 ? state >> 61 : state;
            order[i] = (uint32_t)i;
        }
        memopt_i_sort(order, n, base_key, keys);
        for (i = 0; i < n; ++i) {
            CHECK_AT(order[i] < n && !(seen >> order[i] & 1), n * 64 + i);
            CHECK_AT(!i || keys[order[i - 1]] <= keys[order[i]], n * 64 + i);
            seen |= (uint64_t)1 << (order[i] & 63);
        }
    }
}

static void test_base(void) {
    RUN(base_doubles);
    RUN(base_inverse);
    RUN(base_overlaps);
    RUN(base_sort);
    RUN(base_add_and_mul);
    RUN(base_random_products);
    RUN(base_align);
    RUN(base_power_of_two);
    RUN(base_min_max);
    RUN(base_bits);
    RUN(base_ceil_div);
    RUN(base_floats);
}
#ifndef TEST_COMBINED
int main(void) { test_base(); return test_totals(); }
#endif
