/* test_cuda_scale.cu - gradients on the device: values, sums, counts, scaler and accumulated sums have the CPU's bits. */
#include "test_cuda.h"

static size_t cuda_scale_size(memopt_type type) { return type == MEMOPT_TYPE_F32 ? 4 : 2; }
static void *cuda_scale_alloc(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    if (!p) { printf("test_cuda_scale: out of memory\n"); exit(1); }
    memset(p, 0x5A, bytes);
    return p;
}
static void cuda_scale_put(memopt_type type, void *values, size_t i, float x) {
    const uint16_t code = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
    if (type == MEMOPT_TYPE_F32) memcpy((unsigned char *)values + 4 * i, &x, 4);
    else memcpy((unsigned char *)values + 2 * i, &code, 2);
}
/* Mostly moderate, some tiny, zero, denormal, large. */
static float cuda_scale_random(uint64_t *seed) {
    const uint64_t r = test_random(seed); const uint32_t mantissa = (uint32_t)r & 0x807FFFFFu;
    const unsigned kind = (unsigned)(r >> 40) % 64;
    if (kind == 0) return memopt_i_bits_float((uint32_t)r & 0x80000000u);
    if (kind == 1) return memopt_i_bits_float(mantissa);
    if (kind == 2) return memopt_i_bits_float(mantissa | 0x38000000u);
    if (kind == 3) return memopt_i_bits_float(mantissa | 0x47000000u);
    return memopt_i_bits_float(mantissa | (uint32_t)(0x3A + (r >> 32 & 7)) << 24);
}
static memopt_gradient cuda_scale_tensor(memopt_type type, void *values, size_t count) {
    memopt_gradient g;
    memset(&g, 0, sizeof g);
    g.values = values; g.count = count; g.type = type;
    return g;
}
static memopt_gradients cuda_scale_list(memopt_gradient *tensors, size_t count) { /* just the scratch that is asked for */
    memopt_gradients list;
    memset(&list, 0, sizeof list); list.tensors = tensors; list.count = count;
    CHECK(memopt_cuda_gradients_scratch(&list, &list.scratch_bytes) == 0);
    if (list.scratch_bytes) list.scratch = test_device(list.scratch_bytes);
    return list;
}
static memopt_gradients cuda_scale_host(memopt_gradient *tensors, size_t count) {
    memopt_gradients list;
    memset(&list, 0, sizeof list); list.tensors = tensors; list.count = count;
    CHECK(memopt_gradients_scratch(&list, &list.scratch_bytes) == MEMOPT_OK);
    list.scratch = cuda_scale_alloc(list.scratch_bytes);
    return list;
}
static int cuda_scale_same(double a, double b) { return !memcmp(&a, &b, 8); }
static void cuda_scale_equal(const memopt_gradient_total *a, const memopt_gradient_total *b, size_t at) {
    CHECK_AT(cuda_scale_same(a->squares, b->squares) && cuda_scale_same(a->factor, b->factor), at);
    CHECK_AT(a->nonfinite == b->nonfinite && a->overflow == b->overflow, at);
}

/* ---- scale and measure ---- */
enum { CUDA_SCALE_GUARD = 16 };
static void cuda_scale_one(memopt_type type, size_t n, double factor, int poison, size_t shift, int schedules, uint64_t *seed) {
    const size_t width = cuda_scale_size(type), lead = CUDA_SCALE_GUARD + shift * width, bytes = lead + n * width + CUDA_SCALE_GUARD; size_t i;
    unsigned char *in = (unsigned char *)cuda_scale_alloc(bytes), *want = (unsigned char *)cuda_scale_alloc(bytes), *got = (unsigned char *)cuda_scale_alloc(bytes);
    unsigned char *d = (unsigned char *)test_device(bytes);
    memopt_gradient_total *d_total = (memopt_gradient_total *)test_device(sizeof *d_total), total, expect;
    memopt_cuda_gradient_sum *d_sum = (memopt_cuda_gradient_sum *)test_device(sizeof *d_sum), sum;
    memopt_gradient g, h; memopt_gradients list, host;
    for (i = 0; i < n; ++i) cuda_scale_put(type, in + lead, i, cuda_scale_random(seed));
    if (poison && n) {
        static const uint32_t bad[] = { 0x7FC00000u, 0xFF800000u, 0x7F800001u, 0xFFC12345u };
        const uint32_t u = bad[test_below(seed, 4)]; const uint16_t code = (uint16_t)(type == MEMOPT_TYPE_BF16 ? u >> 16 | (u & 1) : (u & 0x80000000u) >> 16 | 0x7C00 | (u >> 13 & 0x3FF) | (u & 1));
        i = poison == 1 ? n - 1 : test_below(seed, n);
        memcpy(in + lead + i * width, width == 4 ? (const void *)&u : (const void *)&code, width);
    }
    memcpy(want, in, bytes);
    h = cuda_scale_tensor(type, want + lead, n); host = cuda_scale_host(&h, 1);
    CHECK(memopt_gradients_scale(&host, factor, &expect, NULL) == MEMOPT_OK);
    g = cuda_scale_tensor(type, d + lead, n); list = cuda_scale_list(&g, 1);
    TEST_SCHEDULES(schedules) {
        test_put(d, in, bytes);
        CHECK(memopt_cuda_gradients_scale(&list, factor, d_total, d_sum, NULL) == 0);
        test_get(got, d, bytes); test_get(&total, d_total, sizeof total); test_get(&sum, d_sum, sizeof sum);
        CHECK_AT(!memcmp(got, want, bytes), n);
        cuda_scale_equal(&total, &expect, n);
        CHECK_AT(cuda_scale_same(sum.squares, h.squares) && sum.nonfinite == h.nonfinite, n);
        CHECK(memopt_cuda_gradients_measure(&list, d_total, NULL, NULL) == 0);
        test_get(got, d, bytes); test_get(&total, d_total, sizeof total);
        CHECK_AT(!memcmp(got, want, bytes), n);
        cuda_scale_equal(&total, &expect, n);
    }
    free(in); free(want); free(got); free(host.scratch);
    test_device_free(0);
}
static void cuda_scale_definition(void) {
    static const size_t sizes[] = { 0, 1, 15, 16, 17, 31, 33, 255, 257, 1023, 1025, 2047, 2049, 4099 };
    static const double factors[] = { 1, 1.0 / 65536, 0.3, -2, 0, 1e30 }; uint64_t seed = 5; size_t i, k; int type;
    for (type = 0; type < 3; ++type)
        for (i = 0; i < sizeof sizes / sizeof *sizes; ++i)
            for (k = 0; k < 6; ++k)
                cuda_scale_one((memopt_type)type, sizes[i], factors[k], k < 4 ? (int)((i + k) % 3) : 0, (i + k) % 3 ? test_below(&seed, 8) : 0, k == i % 6 ? 8 : 1, &seed);
}
static void cuda_scale_pieces(void) { /* around a piece's end, and several pieces */
    uint64_t seed = 8; int type;
    for (type = 0; type < 3; ++type) {
        const memopt_type t = (memopt_type)type;
        cuda_scale_one(t, 65535, 1.0 / 1024, 0, 0, 1, &seed); cuda_scale_one(t, 65536, 0.3, 1, 1, 2, &seed);
        cuda_scale_one(t, 4095, 1, 0, 1, 1, &seed); cuda_scale_one(t, 4097, 0.3, 0, 0, 1, &seed); cuda_scale_one(t, 16385, 1, 0, 2, 1, &seed);
        cuda_scale_one(t, 65537, 1, 1, 0, 1, &seed); cuda_scale_one(t, 3 * 65536 + 4321, 0.7, 0, 0, type ? 2 : 8, &seed);
        cuda_scale_one(t, 2 * 65536 + 1, 1.0 / 3, 2, 3, 1, &seed);
    }
}
static void cuda_scale_every_code(void) { /* all 16-bit values, NaN and infinities too */
    static uint16_t codes[65536], want[65536], got[65536]; int type, factor; size_t i;
    for (i = 0; i < 65536; ++i) codes[i] = (uint16_t)i;
    for (type = 1; type < 3; ++type) for (factor = 0; factor < 2; ++factor) {
        uint16_t *d = (uint16_t *)test_device(sizeof codes); memopt_gradient_total *d_total = (memopt_gradient_total *)test_device(sizeof *d_total), total, expect;
        memopt_gradient g = cuda_scale_tensor((memopt_type)type, d, 65536), h = cuda_scale_tensor((memopt_type)type, want, 65536);
        memopt_gradients list = cuda_scale_list(&g, 1), host = cuda_scale_host(&h, 1);
        memcpy(want, codes, sizeof codes); test_put(d, codes, sizeof codes);
        CHECK(memopt_gradients_scale(&host, factor ? 1 : 0.7, &expect, NULL) == MEMOPT_OK && memopt_cuda_gradients_scale(&list, factor ? 1 : 0.7, d_total, NULL, NULL) == 0);
        test_get(got, d, sizeof got); test_get(&total, d_total, sizeof total);
        for (i = 0; i < 65536; ++i) CHECK_AT(got[i] == want[i], i);
        cuda_scale_equal(&total, &expect, (size_t)type);
        free(host.scratch);
        /* one at a time: each code by itself is found, or not, and squared */
        for (i = 0; i < 65536; i += i % 0x400 == 0 || i % 0x400 == 0x3FF ? 1 : 0x3FF - i % 0x400) {
            memopt_gradient one = cuda_scale_tensor((memopt_type)type, d, 3); memopt_gradients few = list; uint16_t three[3]; memopt_gradients host3;
            few.tensors = &one; three[0] = 0; three[1] = codes[i]; three[2] = 0x3C00;
            test_put(d, three, sizeof three);
            h = cuda_scale_tensor((memopt_type)type, three, 3); host3 = cuda_scale_host(&h, 1);
            CHECK(memopt_gradients_measure(&host3, &expect, NULL) == MEMOPT_OK && memopt_cuda_gradients_measure(&few, d_total, NULL, NULL) == 0);
            test_get(&total, d_total, sizeof total);
            cuda_scale_equal(&total, &expect, i);
            free(host3.scratch);
        }
        test_device_free(0);
    }
}
/* Many tensors of all types, more than one launch has; with NaN in some; empty ones; d_sums or not. */
enum { CUDA_SCALE_MANY = 333 };
static void cuda_scale_many(void) {
    static memopt_gradient g[CUDA_SCALE_MANY], h[CUDA_SCALE_MANY]; static void *first[CUDA_SCALE_MANY]; uint64_t seed = 3; size_t i, k; int round;
    memopt_cuda_gradient_sum *d_sums = (memopt_cuda_gradient_sum *)test_device(CUDA_SCALE_MANY * sizeof *d_sums), sums[CUDA_SCALE_MANY];
    memopt_gradient_total *d_total = (memopt_gradient_total *)test_device(sizeof *d_total), total, expect; memopt_gradients list, host;
    for (i = 0; i < CUDA_SCALE_MANY; ++i) {
        const memopt_type type = (memopt_type)(i % 3); const size_t n = i == 77 ? 2 * 65536 + 5 : i % 7 == 3 ? 0 : test_below(&seed, 600), bytes = n * cuda_scale_size(type);
        first[i] = cuda_scale_alloc(bytes);
        for (k = 0; k < n; ++k) cuda_scale_put(type, first[i], k, cuda_scale_random(&seed));
        if (n && i % 50 == 49) cuda_scale_put(type, first[i], n / 2, memopt_i_bits_float(0x7F800000u));
        h[i] = cuda_scale_tensor(type, n ? cuda_scale_alloc(bytes) : NULL, n); g[i] = cuda_scale_tensor(type, n ? test_device(bytes) : NULL, n);
    }
    list = cuda_scale_list(g, CUDA_SCALE_MANY); host = cuda_scale_host(h, CUDA_SCALE_MANY);
    for (round = 0; round < 3; ++round) { /* all; none that is not finite; the total only */
        const size_t count = round == 1 ? 49 : CUDA_SCALE_MANY;
        list.count = host.count = count;
        for (i = 0; i < count; ++i) {
            const size_t bytes = g[i].count * cuda_scale_size(g[i].type);
            if (bytes) { memcpy(h[i].values, first[i], bytes); test_put(g[i].values, first[i], bytes); }
        }
        CHECK(memopt_gradients_scale(&host, 0.3, &expect, NULL) == MEMOPT_OK && expect.overflow == (round != 1));
        CHECK(memopt_cuda_gradients_scale(&list, 0.3, d_total, round == 2 ? NULL : d_sums, NULL) == 0);
        test_get(&total, d_total, sizeof total); test_get(sums, d_sums, count * sizeof *sums);
        cuda_scale_equal(&total, &expect, (size_t)round);
        for (i = 0; i < count; ++i) {
            const size_t bytes = g[i].count * cuda_scale_size(g[i].type); void *got = cuda_scale_alloc(bytes);
            test_get(got, g[i].values, bytes);
            CHECK_AT(!bytes || !memcmp(got, h[i].values, bytes), i);
            CHECK_AT(cuda_scale_same(sums[i].squares, h[i].squares) && sums[i].nonfinite == h[i].nonfinite, i);
            free(got);
        }
    }
    for (i = 0; i < CUDA_SCALE_MANY; ++i) { free(first[i]); free(h[i].values); }
    free(host.scratch);
}
/* More sums than a warp takes at once: of pieces, in pairs, and of tensors, in order. Nobody has to have the values. */
static double cuda_scale_in_pairs(double *x, size_t n) {
    size_t i;
    for (; n > 1; n = (n + 1) / 2) {
        for (i = 0; i < n / 2; ++i) x[i] = x[2 * i] + x[2 * i + 1];
        if (n % 2) x[n / 2] = x[n - 1];
    }
    return n ? x[0] : 0;
}
static void cuda_scale_joins(void) {
    enum { N = 3500 }; static memopt_cuda_gradient_sum parts[N]; static double sums[N]; uint64_t seed = 4; size_t i, n; double want = 0;
    memopt_cuda_gradient_sum *d = (memopt_cuda_gradient_sum *)test_device(sizeof parts), *d_sums = (memopt_cuda_gradient_sum *)test_device(2 * sizeof *d_sums), got[2];
    memopt_gradient_total *d_total = (memopt_gradient_total *)test_device(sizeof *d_total), total; memopt_gradient g[2]; memopt_gradients list;
    for (i = 0; i < N; ++i) { parts[i].squares = ldexp((double)(test_random(&seed) >> 11), (int)test_below(&seed, 40)); parts[i].nonfinite = 0; }
    g[1] = cuda_scale_tensor(MEMOPT_TYPE_BF16, d, 1);
    memset(&list, 0, sizeof list); list.tensors = g; list.count = 2;
    test_put(d, parts, sizeof parts);
    for (n = 0; n < N; n += n < 36 ? 1 : n < 1000 ? 241 : 493) { /* 3464 at the end: an odd number of 1,024 */
        g[0] = cuda_scale_tensor(MEMOPT_TYPE_BF16, d, n * 65536);
        for (i = 0; i < n; ++i) sums[i] = parts[i].squares;
        TEST_SCHEDULES(n > 1000 ? 4 : 1) {
            CHECK(memopt_i_cuda::scale_joins_run(&list, d, d_sums, NULL) == 0);
            test_get(got, d_sums, sizeof got);
        }
        CHECK_AT(cuda_scale_same(got[0].squares, cuda_scale_in_pairs(sums, n)) && got[0].nonfinite == 0 && cuda_scale_same(got[1].squares, parts[n].squares), n);
    }
    for (i = 0; i < N; ++i) want += parts[i].squares;
    TEST_SCHEDULES(4) {
        MEMOPT_I_CUDA_LAUNCH(memopt_i_cuda::scale_total_kernel<>, 1, 32, 0, 0, d, (size_t)N, (memopt_scaler *)NULL, 0, d_total);
        test_get(&total, d_total, sizeof total);
        CHECK(cuda_scale_same(total.squares, want) && !total.overflow);
    }
    parts[1500].nonfinite = ((size_t)1 << 33) + 1; parts[2000].nonfinite = 7;
    test_put(d, parts, sizeof parts);
    g[0].count = (size_t)2499 * 65536;
    CHECK(memopt_i_cuda::scale_joins_run(&list, d, d_sums, NULL) == 0);
    test_get(got, d_sums, sizeof got);
    CHECK(got[0].nonfinite == ((size_t)1 << 33) + 8 && got[0].squares == HUGE_VAL);
}
static void cuda_scale_empty(void) {
    memopt_gradient_total *d_total = (memopt_gradient_total *)test_device(sizeof *d_total), total; memopt_gradients none; size_t bytes = 1;
    memset(&none, 0, sizeof none);
    CHECK(memopt_cuda_gradients_scratch(&none, &bytes) == 0 && bytes == 0);
    CHECK(memopt_cuda_gradients_measure(&none, d_total, NULL, NULL) == 0);
    test_get(&total, d_total, sizeof total);
    CHECK(cuda_scale_same(total.squares, 0) && total.factor == 1 && !total.overflow && !total.nonfinite);
    CHECK(memopt_cuda_gradients_scale(&none, 2, NULL, NULL, NULL) == 0 && memopt_cuda_gradients_clip_value(&none, 1, NULL) == 0);
}
/* Beyond 2^32 elements: only the last blocks run, and find the last elements. */
static void cuda_scale_huge(void) {
#ifndef __CUDACC__
    const size_t n = ((size_t)1 << 32) + 4321; uint16_t tail[4], *d, *d_from; memopt_gradient g, from; memopt_gradients list, gradients; memopt_cuda_gradient_sum got[2];
    memopt_micro_batch b; memopt_accumulation a = { 0, 0 }; const memopt_noise noise = memopt_noise_make(1, 2); int i;
    simulator_sparse((size_t)1 << 30);
    if (cudaMalloc((void **)&d, n * 2) != cudaSuccess) { (void)cudaGetLastError(); simulator_sparse(0); SKIP("no room for 8 GB of addresses"); return; }
    g = cuda_scale_tensor(MEMOPT_TYPE_BF16, d, n);
    for (i = 0; i < 4; ++i) tail[i] = memopt_to_bf16((float)(i + 2));
    test_put(d + n - 4, tail, 8);
    simulator_run_blocks(0, 2);
    CHECK(memopt_cuda_gradients_clip_value(cuda_scale_list(&g, 1).count ? &(list = cuda_scale_list(&g, 1)) : NULL, 3, NULL) == 0);
    test_get(tail, d + n - 4, 8);
    CHECK(memopt_from_bf16(tail[0]) == 2 && memopt_from_bf16(tail[1]) == 3 && memopt_from_bf16(tail[2]) == 3 && memopt_from_bf16(tail[3]) == 3);
    CHECK(memopt_cuda_gradients_scale(&list, 2, NULL, NULL, NULL) == 0);
    test_get(got, (char *)list.scratch + list.scratch_bytes - 32, 32); /* the last two pieces */
    CHECK(got[0].squares == 0 && got[1].squares == 16 + 3 * 36 && !got[1].nonfinite);
    if (cudaMalloc((void **)&d_from, n * 2) == cudaSuccess) {
        from = cuda_scale_tensor(MEMOPT_TYPE_BF16, d_from, n); gradients = list; gradients.tensors = &from;
        tail[3] = memopt_to_bf16(40);
        test_put(d_from + n - 1, tail + 3, 2);
        memset(&b, 0, sizeof b); b.tokens = 1; b.noise = &noise; a.micro_batches = 1;
        CHECK(memopt_cuda_gradients_accumulate(&list, &gradients, &b, &a, NULL) == 0);
        test_get(tail, d + n - 4, 8);
        CHECK(memopt_from_bf16(tail[3]) == 46 && memopt_from_bf16(tail[2]) == 6);
        CHECK(cudaFree(d_from) == cudaSuccess);
    }
    simulator_run_blocks(SIZE_MAX, SIZE_MAX);
    CHECK(cudaFree(d) == cudaSuccess);
    simulator_sparse(0);
#else
    SKIP("16 GB for two blocks");
#endif
}

/* ---- clipping ---- */
static void cuda_scale_clip(void) {
    static const float limits[] = { 0, 1, 0.3f, 1e-40f, 65504, 65519.996f, 65520, 3e38f, -0.0f, HUGE_VALF }; uint64_t seed = 6; size_t k, i; int type;
    enum { N = 9000 }; static uint32_t x[N], want[N], got[N];
    for (type = 0; type < 3; ++type) for (k = 0; k < 10; ++k) {
        const memopt_type t = (memopt_type)type; const size_t width = cuda_scale_size(t), shift = k % 3, n = k == 9 ? 1 : k == 8 ? 4096 : N - 20 - k, lead = k % 2 ? 16 : 4;
        unsigned char *d = (unsigned char *)test_device(sizeof x); memopt_gradient g[2], h[2]; memopt_gradients list, host;
        for (i = 0; i < N; ++i) {
            const uint64_t r = test_random(&seed); const uint32_t close = memopt_i_float_bits(limits[k]) + (uint32_t)(r >> 40 & 3) - 1;
            x[i] = (r & 3) == 0 ? (uint32_t)(r >> 32) : (r & 3) == 1 ? close ^ (uint32_t)(r >> 8 & 1) << 31 : memopt_i_float_bits(cuda_scale_random(&seed));
        }
        memcpy(want, x, sizeof x);
        h[0] = cuda_scale_tensor(t, (unsigned char *)want + lead + shift * width, n); g[0] = cuda_scale_tensor(t, d + lead + shift * width, n);
        h[1] = cuda_scale_tensor(MEMOPT_TYPE_F32, want + N - 3, 2); g[1] = cuda_scale_tensor(MEMOPT_TYPE_F32, d + (N - 3) * 4, 2);
        host = cuda_scale_host(h, 2); list = cuda_scale_list(g, 2);
        CHECK(memopt_gradients_clip_value(&host, limits[k], NULL) == MEMOPT_OK);
        TEST_SCHEDULES(2) {
            test_put(d, x, sizeof x);
            CHECK(memopt_cuda_gradients_clip_value(&list, limits[k], NULL) == 0);
            test_get(got, d, sizeof got);
            for (i = 0; i < N; ++i) CHECK_AT(got[i] == want[i], i);
        }
        free(host.scratch);
    }
}
static void cuda_scale_clip_norm(void) {
    static const double squares[] = { 0, 1e-20, 4, 1e30, 1e300 }, norms[] = { 0, 1, 3, 1e-8, HUGE_VAL }; size_t i, k, m; double got, want = 0;
    memopt_gradient_total *d_total = (memopt_gradient_total *)test_device(sizeof *d_total), total; double *d_factor = (double *)test_device(8);
    memset(&total, 0, sizeof total);
    for (i = 0; i < 5; ++i) for (k = 0; k < 5; ++k) for (m = 0; m < 2; ++m) {
        const double mean = m ? 1.0 / 77 : 1;
        total.squares = squares[i]; total.factor = m ? 1.0 / 65536 : 1; total.overflow = 0;
        test_put(d_total, &total, sizeof total);
        CHECK(memopt_cuda_clip_norm(d_total, mean, norms[k], d_factor, NULL) == 0);
        test_get(&got, d_factor, 8);
        CHECK(memopt_clip_norm(sqrt(squares[i]) * (total.factor * mean), norms[k], &want) == MEMOPT_OK);
        CHECK_AT(cuda_scale_same(got, total.factor * mean * want), i * 10 + k);
    }
    total.overflow = 1; test_put(d_total, &total, sizeof total);
    CHECK(memopt_cuda_clip_norm(d_total, 1, 1, d_factor, NULL) == 0);
    test_get(&got, d_factor, 8); CHECK(cuda_scale_same(got, 0));
    total.overflow = 0; total.squares = HUGE_VAL; test_put(d_total, &total, sizeof total);
    CHECK(memopt_cuda_clip_norm(d_total, 1, HUGE_VAL, d_factor, NULL) == 0);
    test_get(&got, d_factor, 8); CHECK(cuda_scale_same(got, 0));
    got = 5; test_put(d_factor, &got, 8);
    CHECK(memopt_cuda_clip_norm(NULL, 1, 1, d_factor, NULL) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_clip_norm(d_total, 1, 1, NULL, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_clip_norm(d_total, 0, 1, d_factor, NULL) == MEMOPT_ERR_ARGUMENT && memopt_cuda_clip_norm(d_total, -1, 1, d_factor, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_clip_norm(d_total, HUGE_VAL, 1, d_factor, NULL) == MEMOPT_ERR_ARGUMENT && memopt_cuda_clip_norm(d_total, 1, -1, d_factor, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_clip_norm(d_total, 1, (double)memopt_i_bits_float(0x7FC00000u), d_factor, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_clip_norm((memopt_gradient_total *)((char *)d_total + 4), 1, 1, d_factor, NULL) == MEMOPT_CUDA_ERR_ALIGNMENT);
    test_get(&got, d_factor, 8); CHECK(got == 5);
}

/* ---- loss scaling ---- */
static void cuda_scale_scaler(void) { /* a few hundred steps, on both sides */
    float x[40], y[40], got[40]; uint64_t seed = 12; int step, status; size_t i; memopt_scaler s, r;
    memopt_scaler *d_scaler = (memopt_scaler *)test_device(sizeof s); float *d = (float *)test_device(sizeof x); int *d_status = (int *)test_device(4);
    memopt_gradient_total *d_total = (memopt_gradient_total *)test_device(sizeof *d_total), total, expect;
    memopt_gradient g = cuda_scale_tensor(MEMOPT_TYPE_F32, d, 40), h = cuda_scale_tensor(MEMOPT_TYPE_F32, y, 40); memopt_gradients list = cuda_scale_list(&g, 1), host = cuda_scale_host(&h, 1);
    CHECK(memopt_scaler_default(&s) == MEMOPT_OK);
    s.scale = 1000; s.growth_factor = 1.3; s.backoff_factor = 0.7; s.growth_interval = 3; s.floor = 0.3f;
    test_put(d_scaler, &s, sizeof s);
    for (step = 0; step < 300; ++step) {
        const int in_place = (int)test_below(&seed, 2), twice = test_below(&seed, 20) == 0, never = test_below(&seed, 20) == 0; memopt_status want;
        for (i = 0; i < 40; ++i) x[i] = cuda_scale_random(&seed);
        if (test_below(&seed, step < 150 ? 2 : 6) == 0) x[test_below(&seed, 40)] = memopt_i_bits_float(0x7F800000u);
        memcpy(y, x, sizeof x); test_put(d, x, sizeof x);
        memset(&expect, 0, sizeof expect);
        if (!never) {
            CHECK((in_place ? memopt_scaler_unscale : memopt_scaler_measure)(&s, &host, &expect, NULL) == MEMOPT_OK);
            CHECK((in_place ? memopt_cuda_scaler_unscale<> : memopt_cuda_scaler_measure<>)(d_scaler, &list, d_total, NULL, NULL) == 0);
            test_get(got, d, sizeof got); test_get(&total, d_total, sizeof total); test_get(&r, d_scaler, sizeof r);
            CHECK_AT(!memcmp(got, y, sizeof got) && !memcmp(&r, &s, sizeof s), step);
            cuda_scale_equal(&total, &expect, (size_t)step);
        }
        if (twice && !never) { /* refused: nothing changes, the step is skipped */
            CHECK((in_place ? memopt_cuda_scaler_measure<> : memopt_cuda_scaler_unscale<>)(d_scaler, &list, d_total, NULL, NULL) == 0);
            test_get(got, d, sizeof got); test_get(&total, d_total, sizeof total); test_get(&r, d_scaler, sizeof r);
            CHECK_AT(!memcmp(got, y, sizeof got) && !memcmp(&r, &s, sizeof s) && total.overflow == 1 && total.factor == 0, step);
            expect.overflow = 1;
        } else if (never) { total.overflow = 0; test_put(&d_total->overflow, &total.overflow, 4); }
        want = memopt_scaler_update(&s, expect.overflow);
        if (want == MEMOPT_ERR_OVERFLOW) CHECK(memopt_scaler_cancel(&s) == MEMOPT_OK);
        CHECK(memopt_cuda_scaler_update(d_scaler, &d_total->overflow, step % 3 ? d_status : NULL, NULL) == 0);
        test_get(&status, d_status, 4); test_get(&r, d_scaler, sizeof r);
        CHECK_AT((step % 3 == 0 || status == (int)want) && !memcmp(&r, &s, sizeof s), step);
    }
    s.scale = -1; test_put(d_scaler, &s, sizeof s); memcpy(x, y, sizeof x); test_put(d, x, sizeof x); /* a scaler that is none */
    CHECK(memopt_cuda_scaler_unscale(d_scaler, &list, d_total, NULL, NULL) == 0 && memopt_cuda_scaler_update(d_scaler, &d_total->overflow, d_status, NULL) == 0);
    test_get(got, d, sizeof got); test_get(&total, d_total, sizeof total); test_get(&r, d_scaler, sizeof r); test_get(&status, d_status, 4);
    CHECK(!memcmp(got, x, sizeof got) && !memcmp(&r, &s, sizeof s) && total.overflow == 1 && total.factor == 0 && status == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_cuda_scaler_update(NULL, &d_total->overflow, d_status, NULL) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_scaler_update(d_scaler, NULL, d_status, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_scaler_update(d_scaler, &d_total->overflow, (int *)((char *)d_status + 1), NULL) == MEMOPT_CUDA_ERR_ALIGNMENT);
    CHECK(memopt_cuda_scaler_measure(NULL, &list, d_total, NULL, NULL) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_scaler_unscale(d_scaler, &list, NULL, NULL, NULL) == MEMOPT_CUDA_ERR_NULL);
    free(host.scratch);
}

/* ---- accumulation ---- */
/* how: 0 fp32 sums, 1 bf16 with noise, 2 bf16 pairs. Four micro-batches, of which one is empty; or only the first, whose -0 stays. */
static void cuda_scale_accumulate_one(int how, memopt_type from, size_t n, size_t shift, uint64_t first, int schedules, uint64_t *seed) {
    static const uint64_t tokens[4] = { 7, 0, 1000, 16777217 }; static const int is_mean[4] = { 0, 1, 1, 1 };
    const memopt_type to = how ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32; const size_t width = cuda_scale_size(to), wide = cuda_scale_size(from);
    const size_t bytes = (n + 16) * width, rests = (n + 16) * 2, in = (n + 16) * wide, batches = n % 3 ? 4 : 1; size_t i, k;
    unsigned char *want = (unsigned char *)cuda_scale_alloc(bytes), *rest = (unsigned char *)cuda_scale_alloc(rests), *g = (unsigned char *)cuda_scale_alloc(4 * in), *got = (unsigned char *)cuda_scale_alloc(bytes), *got_rest = (unsigned char *)cuda_scale_alloc(rests);
    unsigned char *d = (unsigned char *)test_device(bytes), *d_rest = (unsigned char *)test_device(rests), *d_g = (unsigned char *)test_device(4 * in), *fill = (unsigned char *)cuda_scale_alloc(bytes);
    memopt_gradient s = cuda_scale_tensor(to, d + shift * width, n), f = cuda_scale_tensor(from, NULL, n), hs = cuda_scale_tensor(to, want + shift * width, n), hf = f;
    memopt_gradients sums, gradients, host_sums, host_gradients; memopt_accumulation a, ha = { 0, 0 };
    for (i = 0; i < 4 * (n + 16); ++i) cuda_scale_put(from, g, i, cuda_scale_random(seed));
    if (n > 5) { cuda_scale_put(from, g, n / 2 + 2, memopt_i_bits_float(0x7FC12345u)); cuda_scale_put(from, g, n + 16 + n / 3 + 2, memopt_i_bits_float(0x7F800000u)); }
    memset(fill, 0x3C, bytes); memset(want, 0x3C, bytes); memset(rest, 0x3C, rests);
    s.first = hs.first = first; if (how == 2) { s.compensation = (uint16_t *)(void *)d_rest + n % 2; hs.compensation = (uint16_t *)(void *)rest + n % 2; }
    host_sums = cuda_scale_host(&hs, 1); host_gradients = host_sums; host_gradients.tensors = &hf;
    memset(&sums, 0, sizeof sums); sums.tensors = &s; sums.count = 1; gradients = sums; gradients.tensors = &f;
    for (k = 0; k < batches; ++k) {
        const memopt_noise noise = memopt_noise_make(4, k); memopt_micro_batch b;
        b.tokens = tokens[k]; b.is_mean = is_mean[k]; b.noise = how == 1 ? &noise : NULL;
        hf.values = g + k * in + (shift + 1) % 3 * wide;
        CHECK(memopt_gradients_accumulate(&host_sums, &host_gradients, &b, &ha, NULL) == MEMOPT_OK);
    }
    TEST_SCHEDULES(schedules) {
        memset(&a, 0, sizeof a);
        test_put(d, fill, bytes); test_put(d_rest, fill, rests < bytes ? rests : bytes); test_put(d_g, g, 4 * in);
        for (k = 0; k < batches; ++k) {
            const memopt_noise noise = memopt_noise_make(4, k); memopt_micro_batch b;
            b.tokens = tokens[k]; b.is_mean = is_mean[k]; b.noise = how == 1 ? &noise : NULL;
            f.values = d_g + k * in + (shift + 1) % 3 * wide;
            CHECK(memopt_cuda_gradients_accumulate(&sums, &gradients, &b, &a, NULL) == 0);
        }
        CHECK(a.tokens == ha.tokens && a.micro_batches == ha.micro_batches);
        test_get(got, d, bytes); test_get(got_rest, d_rest, rests);
        CHECK_AT(!memcmp(got, want, bytes), n * 100 + (size_t)(10 * how) + (size_t)from);
        CHECK_AT(how != 2 || !memcmp(got_rest, rest, rests), n * 100 + (size_t)(10 * how) + (size_t)from);
    }
    free(want); free(rest); free(g); free(got); free(got_rest); free(fill); free(host_sums.scratch);
    test_device_free(0);
}
static void cuda_scale_accumulate(void) {
    static const size_t sizes[] = { 0, 1, 3, 4, 5, 31, 33, 255, 257, 1023, 4095, 4096, 4099, 9001 }; uint64_t seed = 31; size_t i; int how, from;
    for (how = 0; how < 3; ++how) for (from = 0; from < 3; ++from) for (i = 0; i < sizeof sizes / sizeof *sizes; ++i)
        cuda_scale_accumulate_one(how, (memopt_type)from, sizes[i], i % 4 == 3 ? 2 : i % 2, i % 3 ? (uint64_t)i << 31 | 13 : 0, 2, &seed);
    for (how = 0; how < 3; ++how) cuda_scale_accumulate_one(how, (memopt_type)how, 4096, 2, 5, 2, &seed); /* (shift + 1) % 3 is 0 */
    for (how = 0; how < 3; ++how) cuda_scale_accumulate_one(how, (memopt_type)((how + 1) % 3), 70000, 0, 5, 1, &seed);
}
static void cuda_scale_accumulate_many(void) { /* more than a launch has, all kinds mixed, aligned ones as well */
    enum { N = 190 }; static memopt_gradient s[N], f[N], hs[N], hf[N]; memopt_gradients sums, gradients, host_sums, host_gradients; uint64_t seed = 9; size_t i, k; int batch;
    memopt_accumulation a = { 0, 0 }, ha = { 0, 0 };
    for (i = 0; i < N; ++i) {
        const memopt_type to = i % 3 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32, from = (memopt_type)(i / 3 % 3); const size_t n = i == 100 ? 13000 : i % 11 == 5 ? 0 : test_below(&seed, 300);
        hs[i] = cuda_scale_tensor(to, cuda_scale_alloc(n * 4), n); s[i] = cuda_scale_tensor(to, test_device(n * 4), n);
        hf[i] = cuda_scale_tensor(from, cuda_scale_alloc(n * 4), n); f[i] = cuda_scale_tensor(from, test_device(n * 4), n);
        if (i % 3 == 1) { hs[i].compensation = (uint16_t *)cuda_scale_alloc(n * 2); s[i].compensation = (uint16_t *)test_device(n * 2); }
        hs[i].first = s[i].first = 1000 * i;
    }
    host_sums = cuda_scale_host(hs, N); host_gradients = host_sums; host_gradients.tensors = hf;
    sums = cuda_scale_list(s, N); gradients = sums; gradients.tensors = f;
    for (batch = 0; batch < 3; ++batch) {
        const memopt_noise noise = memopt_noise_make(1, (uint64_t)batch); memopt_micro_batch b;
        b.tokens = 3; b.is_mean = batch == 1; b.noise = &noise;
        for (i = 0; i < N; ++i) {
            for (k = 0; k < f[i].count; ++k) cuda_scale_put(hf[i].type, hf[i].values, k, cuda_scale_random(&seed));
            test_put(f[i].values, hf[i].values, f[i].count * cuda_scale_size(f[i].type));
        }
        CHECK(memopt_gradients_accumulate(&host_sums, &host_gradients, &b, &ha, NULL) == MEMOPT_OK && memopt_cuda_gradients_accumulate(&sums, &gradients, &b, &a, NULL) == 0);
    }
    CHECK(a.tokens == 9 && a.micro_batches == 3);
    for (i = 0; i < N; ++i) {
        const size_t bytes = s[i].count * cuda_scale_size(s[i].type); void *got = cuda_scale_alloc(bytes);
        test_get(got, s[i].values, bytes);
        CHECK_AT(!memcmp(got, hs[i].values, bytes), i);
        if (s[i].compensation) {
            test_get(got, s[i].compensation, bytes); CHECK_AT(!memcmp(got, hs[i].compensation, bytes), i);
        }
        free(got); free(hs[i].values); free(hs[i].compensation); free(hf[i].values);
    }
    free(host_sums.scratch);
}

/* ---- what is refused ---- */
static void cuda_scale_bad(void) {
    float x[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, got[8]; int i; size_t k; float *d = (float *)test_device(32); uint16_t *d_rest = (uint16_t *)test_device(16);
    memopt_gradient_total *d_total = (memopt_gradient_total *)test_device(sizeof *d_total), total, before; unsigned char *d_scratch = (unsigned char *)test_device(256);
    test_put(d, x, 32); test_get(&before, d_total, sizeof before);
    for (i = 0; i < 18; ++i) {
        memopt_gradient g[2]; memopt_gradients list; memopt_cuda_status want = MEMOPT_ERR_ARGUMENT; size_t bytes = 77; int scratch_too = i < 11; void *to = d_total, *sums = NULL;
        g[0] = cuda_scale_tensor(MEMOPT_TYPE_F32, d, 4); g[1] = cuda_scale_tensor(MEMOPT_TYPE_F32, d + 4, 4);
        memset(&list, 0, sizeof list); list.tensors = g; list.count = 2; list.scratch = d_scratch; list.scratch_bytes = 64;
        switch (i) {
        case 0: list.tensors = NULL; want = MEMOPT_CUDA_ERR_NULL; break;     case 1: g[1].values = NULL; want = MEMOPT_CUDA_ERR_NULL; break;
        case 2: g[1].type = (memopt_type)3; break;                           case 3: g[1].type = (memopt_type)3; g[1].count = 0; break;
        case 4: g[1].values = (char *)d + 2; want = MEMOPT_CUDA_ERR_ALIGNMENT; break;
        case 5: g[1].type = MEMOPT_TYPE_BF16; g[1].values = (char *)d + 1; want = MEMOPT_CUDA_ERR_ALIGNMENT; break;
        case 6: g[1].count = SIZE_MAX; want = MEMOPT_ERR_OVERFLOW; break;    case 7: g[1].count = SIZE_MAX / 4 + 1; want = MEMOPT_ERR_OVERFLOW; break;
        case 8: g[1].count = ((size_t)1 << 43) + 1; want = MEMOPT_ERR_OVERFLOW; break; /* more blocks than a grid has */
        case 9: g[1].compensation = (uint16_t *)(void *)((char *)d_rest + 1); want = MEMOPT_CUDA_ERR_ALIGNMENT; break;
        case 10: g[1].type = MEMOPT_TYPE_F16; g[1].count = SIZE_MAX / 2 + 1; want = MEMOPT_ERR_OVERFLOW; break;
        case 11: list.scratch = NULL; want = MEMOPT_CUDA_ERR_NULL; break;    case 12: list.scratch = d_scratch + 8; want = MEMOPT_CUDA_ERR_ALIGNMENT; break;
        case 13: list.scratch_bytes = 63; want = MEMOPT_ERR_BUFFER; break;   case 14: to = (char *)d_total + 4; want = MEMOPT_CUDA_ERR_ALIGNMENT; break;
        case 15: sums = (char *)d_scratch + 4; want = MEMOPT_CUDA_ERR_ALIGNMENT; break;
        case 16: to = NULL; want = MEMOPT_CUDA_ERR_NULL; break;              default: break;
        }
        if (i < 17) CHECK_AT(memopt_cuda_gradients_measure(&list, (memopt_gradient_total *)to, (memopt_cuda_gradient_sum *)sums, NULL) == want, i);
        if (i < 16) CHECK_AT(memopt_cuda_gradients_scale(&list, 2, (memopt_gradient_total *)to, (memopt_cuda_gradient_sum *)sums, NULL) == want, i);
        if (scratch_too) CHECK_AT(memopt_cuda_gradients_clip_value(&list, 1, NULL) == want, i);
        CHECK_AT(memopt_cuda_gradients_scratch(&list, &bytes) == (scratch_too ? want : 0) && bytes == (scratch_too ? 77u : 64u), i);
        if (i == 17) {
            CHECK(memopt_cuda_gradients_scale(&list, HUGE_VAL, d_total, NULL, NULL) == MEMOPT_ERR_ARGUMENT && memopt_cuda_gradients_scale(&list, -1e39, d_total, NULL, NULL) == MEMOPT_ERR_ARGUMENT);
            CHECK(memopt_cuda_gradients_clip_value(&list, -1, NULL) == MEMOPT_ERR_ARGUMENT && memopt_cuda_gradients_clip_value(&list, memopt_i_bits_float(0x7FC00000u), NULL) == MEMOPT_ERR_ARGUMENT);
            CHECK(memopt_cuda_gradients_measure(NULL, d_total, NULL, NULL) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_gradients_clip_value(NULL, 1, NULL) == MEMOPT_CUDA_ERR_NULL);
            CHECK(memopt_cuda_gradients_scratch(&list, NULL) == MEMOPT_CUDA_ERR_NULL);
        }
    }
    test_get(got, d, 32); test_get(&total, d_total, sizeof total);
    for (k = 0; k < 8; ++k) CHECK_AT(got[k] == x[k], k);
    CHECK(!memcmp(&total, &before, sizeof total));
}
static void cuda_scale_accumulate_bad(void) {
    float x[4] = { 1, 2, 3, 4 }, got[8]; float *d = (float *)test_device(32), *d_g = (float *)test_device(16); uint16_t *d_rest = (uint16_t *)test_device(16); int i; const memopt_noise noise = memopt_noise_make(1, 1);
    for (i = 0; i < 15; ++i) {
        memopt_gradient s = cuda_scale_tensor(i >= 9 && i <= 11 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32, d, 4), f = cuda_scale_tensor(MEMOPT_TYPE_F32, d_g, 4);
        memopt_gradients sums, gradients; memopt_micro_batch b; memopt_accumulation a = { 2, 0 }, before; memopt_cuda_status want = MEMOPT_ERR_ARGUMENT;
        const memopt_gradients *p = &sums, *q = &gradients; const memopt_micro_batch *r = &b; memopt_accumulation *o = &a;
        b.tokens = 5; b.is_mean = 1; b.noise = NULL; test_put(d, x, 16); test_put(d_g, x, 16);
        memset(&sums, 0, sizeof sums); sums.tensors = &s; sums.count = 1; gradients = sums; gradients.tensors = &f;
        switch (i) {
        case 0: p = NULL; want = MEMOPT_CUDA_ERR_NULL; break;          case 1: q = NULL; want = MEMOPT_CUDA_ERR_NULL; break;
        case 2: r = NULL; want = MEMOPT_CUDA_ERR_NULL; break;          case 3: o = NULL; want = MEMOPT_CUDA_ERR_NULL; break;
        case 4: f.count = 3; break;                                    case 5: gradients.count = 0; break;
        case 6: f.values = NULL; want = MEMOPT_CUDA_ERR_NULL; break;   case 7: s.values = NULL; want = MEMOPT_CUDA_ERR_NULL; break;
        case 8: s.compensation = d_rest; b.noise = &noise; break;      case 9: break; /* bf16 without rest and noise */
        case 10: s.type = MEMOPT_TYPE_F16; b.noise = &noise; break;
        case 11: s.compensation = (uint16_t *)(void *)((char *)d_rest + 1); want = MEMOPT_CUDA_ERR_ALIGNMENT; break;
        case 12: a.tokens = UINT64_MAX - 4; want = MEMOPT_ERR_OVERFLOW; break;
        case 13: f.type = (memopt_type)3; break;                       default: b.tokens = 0; want = 0;
        }
        before = a;
        CHECK_AT(memopt_cuda_gradients_accumulate(p, q, r, o, NULL) == want && !memcmp(&a, &before, sizeof a), i);
        test_get(got, d, 16); CHECK_AT(!memcmp(got, x, 16), i);
    }
}
/* An error of somebody else's before; a launch that fails. */
static void cuda_scale_errors(void) {
#ifndef __CUDACC__
    float x[4] = { 1, 2, 3, 4 }, got[4]; float *d = (float *)test_device(16), *d_g = (float *)test_device(16); int k, call;
    memopt_gradient_total *d_total = (memopt_gradient_total *)test_device(sizeof *d_total); double *d_factor = (double *)test_device(8); memopt_scaler *d_scaler = (memopt_scaler *)test_device(sizeof *d_scaler), scaler;
    memopt_gradient g = cuda_scale_tensor(MEMOPT_TYPE_F32, d, 4), f = cuda_scale_tensor(MEMOPT_TYPE_F32, d_g, 4); memopt_gradients list = cuda_scale_list(&g, 1), gradients = list; memopt_micro_batch b; memopt_accumulation a = { 0, 0 };
    gradients.tensors = &f; b.tokens = 1; b.is_mean = 0; b.noise = NULL;
    CHECK(memopt_scaler_default(&scaler) == MEMOPT_OK);
    test_put(d, x, 16); test_put(d_g, x, 16); test_put(d_scaler, &scaler, sizeof scaler);
    for (call = 0; call < 7; ++call) for (k = 0; k < 2; ++k) {
        memopt_cuda_status s = 1; const memopt_cuda_status want = k ? MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources : MEMOPT_CUDA_BASE_PENDING + (int)cudaErrorIllegalAddress;
        if (k) simulator_fail_launch(1); else simulator_pending_error(cudaErrorIllegalAddress);
        switch (call) {
        case 0: s = memopt_cuda_gradients_scale(&list, 2, d_total, NULL, NULL); break;
        case 1: s = memopt_cuda_gradients_measure(&list, d_total, NULL, NULL); break;
        case 2: s = memopt_cuda_gradients_clip_value(&list, 2, NULL); break;
        case 3: s = memopt_cuda_gradients_accumulate(&list, &gradients, &b, &a, NULL); break;
        case 4: s = memopt_cuda_clip_norm(d_total, 1, 1, d_factor, NULL); break;
        case 5: s = memopt_cuda_scaler_unscale(d_scaler, &list, d_total, NULL, NULL); break;
        default: s = memopt_cuda_scaler_update(d_scaler, &d_total->overflow, NULL, NULL);
        }
        CHECK_AT(s == want, call * 10 + k);
        if (!k) { CHECK_AT(cudaPeekAtLastError() == cudaErrorIllegalAddress, call); simulator_pending_error(0); }
        CHECK_AT(cudaGetLastError() == cudaSuccess && !a.tokens, call);
        test_get(got, d, 16); CHECK_AT(!memcmp(got, x, 16), call);
    }
    simulator_fail_launch(2); CHECK(memopt_cuda_gradients_measure(&list, d_total, NULL, NULL) == MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources);
    simulator_fail_launch(3); CHECK(memopt_cuda_gradients_measure(&list, d_total, NULL, NULL) == MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorLaunchOutOfResources);
#else
    SKIP("errors on demand are the simulator's");
#endif
}

static void test_cuda_scale(void) {
    RUN(cuda_scale_definition);
    RUN(cuda_scale_pieces);
    RUN(cuda_scale_every_code);
    RUN(cuda_scale_many);
    RUN(cuda_scale_joins);
    RUN(cuda_scale_empty);
    RUN(cuda_scale_huge);
    RUN(cuda_scale_clip);
    RUN(cuda_scale_clip_norm);
    RUN(cuda_scale_scaler);
    RUN(cuda_scale_accumulate);
    RUN(cuda_scale_accumulate_many);
    RUN(cuda_scale_bad);
    RUN(cuda_scale_accumulate_bad);
    RUN(cuda_scale_errors);
}
#ifndef TEST_COMBINED
int main(void) { test_cuda_scale(); return test_totals(); }
#endif
