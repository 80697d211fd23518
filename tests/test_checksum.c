/* test_checksum.c - CRC-32C: published values, every length and alignment against the definition bit by bit, every level
   and any workers, pieces and joins, joins of lengths beyond memory against polynomial arithmetic, damaged bytes. */
#include "test.h"

/* The definition: a register of 32 bits, the lowest bit of each byte first. */
static uint32_t checksum_bit_by_bit(uint32_t r, unsigned byte) {
    int bit;
    for (bit = 0; bit < 8; ++bit) {
        const uint32_t out = (r ^ byte >> bit) & 1;
        r >>= 1;
        if (out) r ^= 0x82f63b78u;
    }
    return r;
}
static uint32_t checksum_defined(uint32_t so_far, const unsigned char *p, size_t n) {
    uint32_t r = ~so_far; size_t i;
    for (i = 0; i < n; ++i) r = checksum_bit_by_bit(r, p[i]);
    return ~r;
}
/* The same for long memory, by a table that the definition fills. */
static uint32_t checksum_defined_long(uint32_t so_far, const unsigned char *p, size_t n) {
    uint32_t of_byte[256], r = ~so_far; size_t i;
    for (i = 0; i < 256; ++i) of_byte[i] = checksum_bit_by_bit(0, (unsigned)i);
    for (i = 0; i < n; ++i) r = of_byte[(r ^ p[i]) & 0xff] ^ r >> 8;
    return ~r;
}
static uint32_t checksum_at(int level, uint32_t so_far, const void *bytes, size_t n) { /* through the public function */
    const memopt_threads t = test_level(level); uint32_t crc = ~so_far;
    CHECK(memopt_crc32c_parallel(so_far, bytes, n, &t, &crc) == MEMOPT_OK);
    return crc;
}
static unsigned char *checksum_bytes(size_t n, uint64_t seed) {
    unsigned char *p = (unsigned char *)malloc(n ? n : 1); size_t i;
    if (!p) { printf("test_checksum: out of memory\n"); exit(1); }
    for (i = 0; i < n; ++i) p[i] = (unsigned char)(test_random(&seed) >> 56);
    return p;
}

static void checksum_published(void) {
    static const unsigned char read_command[48] = { /* RFC 3720, B.4: an iSCSI SCSI read (10) command */
        0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 0x04, 0,
        0, 0, 0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0, 0 };
    unsigned char zeros[32], ones[32], up[32], down[32]; int i, level;
    memset(zeros, 0, sizeof zeros); memset(ones, 0xff, sizeof ones);
    for (i = 0; i < 32; ++i) { up[i] = (unsigned char)i; down[i] = (unsigned char)(31 - i); }
    for (level = 1; level <= memopt_simd_best(); level = test_wider(level)) {
        CHECK_AT(checksum_at(level, 0, "", 0) == 0, level);
        CHECK_AT(checksum_at(level, 0, "a", 1) == 0xc1d04330u, level);
        CHECK_AT(checksum_at(level, 0, "123456789", 9) == 0xe3069283u, level);
        CHECK_AT(checksum_at(level, 0, zeros, 32) == 0x8a9136aau, level);
        CHECK_AT(checksum_at(level, 0, ones, 32) == 0x62a8ab43u, level);
        CHECK_AT(checksum_at(level, 0, up, 32) == 0x46dd794eu, level);
        CHECK_AT(checksum_at(level, 0, down, 32) == 0x113fdb5cu, level);
        CHECK_AT(checksum_at(level, 0, read_command, 48) == 0xd9963a56u, level);
    }
    CHECK(memopt_crc32c(0, "123456789", 9) == 0xe3069283u);
    CHECK(memopt_crc32c(0, NULL, 0) == 0 && memopt_crc32c(0x12345678u, NULL, 0) == 0x12345678u);
    CHECK(checksum_defined(0, read_command, 48) == 0xd9963a56u && checksum_defined_long(0, read_command, 48) == 0xd9963a56u);
}
static void checksum_lengths(void) { /* every length to 1100 at every alignment; the register grows by a byte a length */
    unsigned char *bytes = checksum_bytes(64 + 1100 + 64, 1), *aligned = bytes + (64 - ((uintptr_t)bytes & 63)) % 64;
    uint64_t seed = 2; size_t shift, n; int level;
    for (shift = 0; shift <= 64; ++shift) {
        const uint32_t so_far = (uint32_t)test_random(&seed) * (shift % 2); uint32_t r = ~so_far;
        const unsigned char *p = shift < 64 ? aligned + shift : bytes; /* the last is malloc's own */
        for (n = 0; n <= 1100; r = checksum_bit_by_bit(r, p[n]), ++n) {
            for (level = 1; level <= memopt_simd_best(); level = test_wider(level))
                CHECK_AT(memopt_i_crc_at(level, so_far, p, n) == ~r, n * 1000 + shift * 10 + (size_t)level);
            CHECK_AT(memopt_crc32c(so_far, p, n) == ~r, n);
        }
    }
    free(bytes);
    for (n = 0; n <= 1100; ++n) { /* blocks of just so many bytes: a sanitizer sees what is read beyond */
        bytes = checksum_bytes(n, n);
        for (level = 1; level <= memopt_simd_best(); level = test_wider(level))
            CHECK_AT(memopt_i_crc_at(level, 0, bytes, n) == checksum_defined(0, bytes, n), n);
        free(bytes);
    }
}
static void checksum_longer(void) { /* around the places where scalar code goes over to its four streams, and again */
    const size_t all = 20000; unsigned char *bytes = checksum_bytes(all, 3); uint32_t r = ~7u; size_t n; int level;
    for (n = 0; n < all; r = checksum_bit_by_bit(r, bytes[n]), ++n) {
        if (n < 1000 || (n % 37 && (n + 4) % 1024 > 8)) continue;
        for (level = 1; level <= memopt_simd_best(); level = test_wider(level))
            CHECK_AT(memopt_i_crc_at(level, 7, bytes, n) == ~r, n);
    }
    free(bytes);
}
static void checksum_streams(void) { /* the instruction alone, as on processors that multiply no registers */
#if defined(MEMOPT_I_HAS_CRC)
    const size_t three = 3 * 4096; unsigned char *bytes = checksum_bytes(2 * three + 20, 8); size_t n;
    if (memopt_i_crc_level(memopt_simd_best()) == MEMOPT_SIMD_SCALAR) { SKIP("no instruction"); free(bytes); return; }
    for (n = three - 20; n <= 2 * three + 20; n += n == three + 20 ? three - 40 : 1)
        CHECK_AT(~memopt_i_crc_instruction(~9u, bytes, n) == checksum_defined_long(9, bytes, n), n);
    free(bytes);
#else
    SKIP("no instruction");
#endif
}
static void checksum_workers(void) { /* one value for any workers and level; what it is cut into depends on the bytes alone */
    static const int workers[] = { 0, 1, 3, 8 };
    const size_t k = (size_t)256 << 10, full = 64 * k;
    const size_t counts[] = { 0, 1, 1100, k - 1, k, k + 1, 2 * k, 5 * k + 77, full - 1, full, full + 1, full + 4097 };
    unsigned char *bytes = checksum_bytes(full + 4097, 4); size_t i, w; int level;
    for (i = 0; i < sizeof counts / sizeof *counts; ++i) {
        const size_t n = counts[i], piece = n <= full ? k : (n + 63) / 64; const uint32_t so_far = i % 2 ? 0xdeadbeefu : 0;
        uint32_t want;
        if (test_is_passed_over()) continue;
        want = checksum_defined_long(so_far, bytes, n);
        CHECK_AT(memopt_crc32c(so_far, bytes, n) == want, n);
        for (level = 1; level <= memopt_simd_best(); level = test_wider(level)) {
            for (w = n > 6 * k && level == 1 ? 3 : 0; w < 4; ++w) {
                test_worker_set set; const memopt_threads t = test_workers(&set, workers[w], level); uint32_t crc = ~want;
                CHECK_AT(memopt_crc32c_parallel(so_far, n ? bytes : NULL, n, &t, &crc) == MEMOPT_OK && crc == want, n);
                if (w && n > k) CHECK_AT(set.runs == 1 && set.chunks == (n + piece - 1) / piece, n);
            }
        }
    }
    free(bytes);
}
static void checksum_refused(void) {
    memopt_threads t = test_level(0); uint32_t crc = 5; char byte = 1;
    CHECK(memopt_crc32c_parallel(0, &byte, 1, &t, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_crc32c_parallel(0, NULL, 1, &t, &crc) == MEMOPT_ERR_ARGUMENT && crc == 5);
    t.worker_count = 2;
    CHECK(memopt_crc32c_parallel(0, &byte, 1, &t, &crc) == MEMOPT_ERR_ARGUMENT && crc == 5);
    t = test_level(-1);
    CHECK(memopt_crc32c_parallel(0, &byte, 1, &t, &crc) == MEMOPT_ERR_ARGUMENT && crc == 5);
    CHECK(memopt_crc32c_parallel(0, &byte, 1, NULL, &crc) == MEMOPT_OK && crc == checksum_defined(0, (unsigned char *)&byte, 1));
    CHECK(memopt_crc32c_parallel(9, NULL, 0, NULL, &crc) == MEMOPT_OK && crc == 9);
}
static void checksum_pieces(void) { /* cut at every place: gone on with, and joined; then into many */
    const size_t n = 1100; unsigned char *bytes = checksum_bytes(n, 5); const uint32_t all = checksum_defined(0, bytes, n);
    uint64_t seed = 6; size_t k, round; int level;
    for (level = 1; level <= memopt_simd_best(); level = test_wider(level)) {
        for (k = 0; k <= n; ++k) {
            const uint32_t first = memopt_i_crc_at(level, 0, bytes, k), second = memopt_i_crc_at(level, 0, bytes + k, n - k);
            CHECK_AT(memopt_i_crc_at(level, first, bytes + k, n - k) == all, k);
            CHECK_AT(memopt_crc32c_join(first, second, n - k) == all, k);
        }
    }
    for (round = 0; round < 200; ++round) {
        uint32_t on = 0, joined = 0; size_t at = 0;
        while (at < n) {
            const size_t piece = 1 + test_below(&seed, n - at);
            on = memopt_crc32c(on, bytes + at, piece);
            joined = memopt_crc32c_join(joined, memopt_crc32c(0, bytes + at, piece), piece);
            at += piece;
        }
        CHECK_AT(on == all && joined == all, round);
    }
    free(bytes);
}

/* Polynomials over GF(2) with the highest power in the highest bit, as books write them, modulo 0x11edc6f41. */
static uint32_t checksum_reflected(uint32_t x) {
    uint32_t y = 0; int i;
    for (i = 0; i < 32; ++i) y |= (x >> i & 1) << (31 - i);
    return y;
}
static uint32_t checksum_product(uint32_t a, uint32_t b) {
    uint64_t product = 0; int i;
    for (i = 0; i < 32; ++i) if (b >> i & 1) product ^= (uint64_t)a << i;
    for (i = 63; i >= 32; --i) if (product >> i & 1) product ^= UINT64_C(0x11edc6f41) << (i - 32);
    return (uint32_t)product;
}
static uint32_t checksum_joined(uint32_t first, uint32_t second, uint64_t bytes) { /* first * x^(8 bytes) + second */
    uint32_t power = 1; int i;
    for (i = 63; i >= 0; --i) { /* x^bytes, the highest bit of it first */
        power = checksum_product(power, power);
        if (bytes >> i & 1) power = checksum_product(power, 2);
    }
    for (i = 0; i < 3; ++i) power = checksum_product(power, power);
    return checksum_reflected(checksum_product(checksum_reflected(first), power)) ^ second;
}
static void checksum_far_joins(void) {
    static const uint64_t lengths[] = { 0, 1, 2, 3, 255, 256, 0xffffffffu, UINT64_C(0x100000000), UINT64_C(0x100000001),
        UINT64_C(0x10000000005), UINT64_C(0x7fffffffffffffff), UINT64_C(0x8000000000000000), UINT64_C(0xffffffffffffffff) };
    uint64_t seed = 7; size_t i; int bit; uint32_t zeros, block = 0; unsigned char nothing[4096];
    for (i = 0; i < 4000; ++i) {
        const uint32_t a = (uint32_t)test_random(&seed), b = (uint32_t)test_random(&seed);
        const uint64_t n = i < sizeof lengths / sizeof *lengths ? lengths[i] : test_random(&seed) >> test_below(&seed, 64);
        CHECK_AT(memopt_crc32c_join(a, b, n) == checksum_joined(a, b, n), n);
    }
    for (bit = 0; bit < 64; ++bit) /* single powers */
        CHECK_AT(memopt_crc32c_join(1, 0, UINT64_C(1) << bit) == checksum_joined(1, 0, UINT64_C(1) << bit), bit);
    /* 2^32 + 4096 zeros, in blocks of 4096 gone through one by one: a zero byte is a step of the register */
    memset(nothing, 0, sizeof nothing);
    block = checksum_defined(0, nothing, sizeof nothing);
    zeros = block;
    for (i = 0; i < 20; ++i) zeros = memopt_crc32c_join(zeros, zeros, (uint64_t)sizeof nothing << i);
    zeros = memopt_crc32c_join(zeros, block, sizeof nothing);
    {
        uint32_t r = ~0u, column[32]; size_t blocks; /* what a block does to each bit of a register */
        for (bit = 0; bit < 32; ++bit) column[bit] = ~checksum_defined(~(1u << bit), nothing, sizeof nothing);
        for (blocks = 0; blocks < ((size_t)1 << 20) + 1; ++blocks) {
            uint32_t next = 0, rest = r;
            for (bit = 0; rest; ++bit, rest >>= 1) next ^= column[bit] & (0u - (rest & 1));
            r = next;
        }
        CHECK(zeros == ~r);
    }
}
static void checksum_damage(void) { /* 1 and 2 wrong bits, bursts of up to 32, two bytes that have changed places */
    const size_t n = 1100, few = 64; unsigned char *bytes = checksum_bytes(n, 8); uint64_t seed = 9; size_t i, k; int level;
    for (level = 1; level <= memopt_simd_best(); level = test_wider(level)) {
        const uint32_t all = memopt_i_crc_at(level, 0, bytes, n);
        for (i = 0; i < n * 8; ++i) {
            bytes[i / 8] ^= (unsigned char)(1u << i % 8);
            CHECK_AT(memopt_i_crc_at(level, 0, bytes, n) != all, i);
            bytes[i / 8] ^= (unsigned char)(1u << i % 8);
        }
        for (i = 0; i < 4000; ++i) {
            const size_t at = test_below(&seed, n - 4); unsigned char was[5]; uint64_t burst = (test_random(&seed) >> 32 | 1) << test_below(&seed, 8);
            memcpy(was, bytes + at, 5);
            for (k = 0; k < 5; ++k) bytes[at + k] ^= (unsigned char)(burst >> 8 * k & 0xff);
            CHECK_AT(memopt_i_crc_at(level, 0, bytes, n) != all, i);
            memcpy(bytes + at, was, 5);
        }
        CHECK(memopt_i_crc_at(level, 0, bytes, n) == all);
    }
    for (i = 0; i < few * 8; ++i) { /* every pair of bits of 64 bytes */
        const uint32_t all = memopt_crc32c(0, bytes, few);
        bytes[i / 8] ^= (unsigned char)(1u << i % 8);
        for (k = i + 1; k < few * 8; ++k) {
            bytes[k / 8] ^= (unsigned char)(1u << k % 8);
            CHECK_AT(memopt_crc32c(0, bytes, few) != all, i);
            bytes[k / 8] ^= (unsigned char)(1u << k % 8);
        }
        bytes[i / 8] ^= (unsigned char)(1u << i % 8);
    }
    for (i = 0; i + 1 < n; ++i) {
        const unsigned char a = bytes[i], b = bytes[i + 1]; const uint32_t all = memopt_crc32c(0, bytes, n);
        bytes[i] = b; bytes[i + 1] = a;
        CHECK_AT((memopt_crc32c(0, bytes, n) == all) == (a == b), i);
        bytes[i] = a; bytes[i + 1] = b;
    }
    free(bytes);
}
static void checksum_levels(void) { /* only what the processor has; and the instruction alone, for one that does not fold */
    int level; const int best = memopt_simd_best();
    for (level = 1; level <= best; level = test_wider(level)) {
        const int is = memopt_i_crc_level(level);
#if defined(MEMOPT_I_X86)
        CHECK_AT(is == (__builtin_cpu_supports("sse4.2") ? level : MEMOPT_SIMD_SCALAR), level);
#else
        CHECK_AT(is == level || is == MEMOPT_SIMD_SCALAR, level);
#endif
        if (is > MEMOPT_SIMD_SCALAR) {
            unsigned char *bytes = checksum_bytes(1100, 10); size_t n;
            for (n = 0; n <= 1100; ++n) CHECK_AT(~memopt_i_crc_instruction(~0u, bytes, n) == checksum_defined(0, bytes, n), n);
            free(bytes);
        }
    }
    CHECK(memopt_i_crc_level(MEMOPT_SIMD_SCALAR) == MEMOPT_SIMD_SCALAR);
}
static void test_checksum(void) {
    RUN(checksum_published);
    RUN(checksum_lengths);
    RUN(checksum_longer); RUN(checksum_streams);
    RUN(checksum_workers);
    RUN(checksum_refused);
    RUN(checksum_pieces);
    RUN(checksum_far_joins);
    RUN(checksum_damage);
    RUN(checksum_levels);
}
#ifndef TEST_COMBINED
int main(void) { test_checksum(); return test_totals(); }
#endif
