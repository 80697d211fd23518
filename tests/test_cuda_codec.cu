/* Lossy keeps of tapes on the device: rounding, copies and their way back held to the CPU's bytes; and tapes over a
   device, nested ones too, held to the same tape on the CPU, bit for bit. */
#include "test_cuda.h"

/* ---- values ---- */
enum { CUDA_CODEC_WAYS = 9 };
static float cuda_codec_float(uint32_t bits) { return memopt_i_bits_float(bits); }
/* A block of one kind: any floats, one largest of either sign, around 2^-100, odd ones, halves of levels... */
static void cuda_codec_block(float *x, size_t n, int way, uint64_t *seed) {
    static const uint32_t odd[] = { 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345, 0x7f800001, 0xff812345 };
    const float scale = way == 3 ? 1e-30f : way == 4 ? 3e38f : 1.0f; float levels[256]; size_t i;
    (void)memopt_quant_levels(MEMOPT_QUANT_SIGNED, levels);
    for (i = 0; i < n; ++i) {
        const uint64_t r = test_random(seed);
        x[i] = ((float)(r >> 40) / 8388608.0f - 1.0f) * scale; /* -1 to 1 */
        if (way == 1) x[i] = cuda_codec_float((uint32_t)(r & 0x807fffff) | (uint32_t)(100 + (r >> 40) % 28) << 23);
        if (way == 5) x[i] = cuda_codec_float((uint32_t)r & 0x8fffffff);           /* up to 2^-96, denormals, zeros */
        if (way == 6) x[i] = cuda_codec_float(((uint32_t)r & 0x807fffff) | 0x0d000000); /* just below 2^-100 */
        if (way == 7) { /* a middle between two levels, or what is beside it; of both signs, where one decides */
            const unsigned code = (unsigned)(r >> 40) % 255;
            const float middle = (float)(((double)levels[code] + (double)levels[code + 1]) / 2);
            x[i] = cuda_codec_float((memopt_i_float_bits(middle) + (uint32_t)(r % 5) - 2) ^ ((uint32_t)r & 0x80000000));
        }
        if (way == 8) x[i] = r & 1 ? -0.0f : 0.0f;
    }
    i = test_below(seed, n);
    if (way == 2) x[i] = cuda_codec_float(odd[test_below(seed, 6)]);
    if (way == 3) x[i] = cuda_codec_float(0x0d800000 | (uint32_t)(test_random(seed) & 0x80000000)); /* may be the largest */
    if (way == 4) x[i] = cuda_codec_float(0x7f7fffff);
    if (way == 6 && test_below(seed, 2)) x[i] = cuda_codec_float(0x8d800000);
    if (way == 7) x[i] = test_below(seed, 2) ? 1.0f : -1.0f;
    if (way == 7 && n > 1) { /* the largest of the other sign near the last middle of all */
        const double last = ((double)levels[254] + 1.0) / 2; const size_t k = (i + 1) % n; size_t j;
        for (j = 0; j < n; ++j) if (j != i && fabsf(x[j]) > 0.99f) x[j] = 0;
        x[k] = -x[i] * cuda_codec_float(memopt_i_float_bits((float)last) + (uint32_t)test_below(seed, 5) - 2);
    }
}
static float *cuda_codec_values(size_t n, uint64_t seed) {
    float *x = (float *)malloc(n * sizeof *x + 4); size_t i;
    for (i = 0; i < n; i += 256) {
        const int way = (int)test_below(&seed, CUDA_CODEC_WAYS);
        cuda_codec_block(x + i, n - i < 256 ? n - i : 256, way, &seed);
    }
    return x;
}
static void cuda_codec_cpu(memopt_codec_op op, memopt_codec codec, void *x, size_t bytes, void *copy) {
    const memopt_threads none = test_level(MEMOPT_SIMD_SCALAR);
    memopt_i_codec_run(op, codec, x, bytes, copy, &none);
}
static void cuda_codec_same(const char *what, const void *want, const void *d, size_t bytes, size_t at) {
    unsigned char *got = (unsigned char *)malloc(bytes + 1); const unsigned char *w = (const unsigned char *)want; size_t i = 0;
    test_get(got, d, bytes);
    while (i < bytes && got[i] == w[i]) ++i;
    if (i < bytes) printf("%s: byte %zu of %zu is %02x, not %02x\n", what, i, bytes, got[i], w[i]);
    CHECK_AT(i == bytes, at);
    free(got);
}
/* rounds 0: through the device codec; else the kernel itself, with so many */
static memopt_cuda_status cuda_codec_do(memopt_device_codec *k, memopt_codec_op op, memopt_codec codec, void *x, size_t bytes,
                                        void *copy, uint32_t rounds) {
    if (rounds && op != MEMOPT_CODEC_OP_DECODE)
        return memopt_i_cuda::codec_encode((float *)x, bytes / 4, copy, rounds, NULL);
    return k->run_fn(k->user, op, codec, x, bytes, copy);
}
/* All three operations on `bytes` bytes; x lies `offset` bytes into an aligned block, the copy as many. */
static void cuda_codec_try(memopt_codec codec, size_t bytes, size_t offset, uint32_t rounds, int schedules, uint64_t seed) {
    const size_t small = memopt_i_codec_bytes(codec, bytes); const int mark = test_device_mark();
    memopt_cuda_codec state; memopt_device_codec device_codec;
    float *x = cuda_codec_values(bytes / 4 + 1, seed), *rounded = (float *)malloc(bytes + 1), *back = (float *)malloc(bytes + 1);
    unsigned char *copy = (unsigned char *)malloc(small + 1);
    memcpy(rounded, x, bytes);
    cuda_codec_cpu(MEMOPT_CODEC_OP_ROUND, codec, rounded, bytes, NULL);
    cuda_codec_cpu(MEMOPT_CODEC_OP_ENCODE, codec, x, bytes, copy);
    cuda_codec_cpu(MEMOPT_CODEC_OP_DECODE, codec, back, bytes, copy);
    CHECK(memcmp(back, rounded, bytes) == 0);
    CHECK(memopt_cuda_codec_make(&state, &device_codec, NULL) == 0 && device_codec.user == &state && state.status == 0);
    TEST_SCHEDULES(schedules) {
        void *d = test_device_at(bytes, offset), *d_back = test_device_at(bytes, offset), *d_copy = test_device_at(small, offset);
        test_put(d, x, bytes);
        CHECK_AT(cuda_codec_do(&device_codec, MEMOPT_CODEC_OP_ENCODE, codec, d, bytes, d_copy, rounds) == 0, seed);
        cuda_codec_same("copy", copy, d_copy, small, seed);
        cuda_codec_same("value", x, d, bytes, seed); /* encoding leaves it alone */
        CHECK_AT(cuda_codec_do(&device_codec, MEMOPT_CODEC_OP_DECODE, codec, d_back, bytes, d_copy, rounds) == 0, seed);
        cuda_codec_same("back", back, d_back, bytes, seed);
        CHECK_AT(cuda_codec_do(&device_codec, MEMOPT_CODEC_OP_ROUND, codec, d, bytes, NULL, rounds) == 0, seed);
        cuda_codec_same("rounded", rounded, d, bytes, seed);
        CHECK_AT(cuda_codec_do(&device_codec, MEMOPT_CODEC_OP_ENCODE, codec, d, bytes, d_copy, rounds) == 0, seed); /* once more */
        cuda_codec_same("copy of rounded", copy, d_copy, small, seed);
        test_device_free(mark);
    }
    CHECK(state.status == 0);
    free(x); free(rounded); free(back); free(copy);
}
static void cuda_codec_shapes(void) {
    static const size_t sizes[] = { 1, 2, 3, 4, 31, 33, 255, 256, 257, 511, 1024, 4096, 4099, 8191, 8192, 8193, 20000 };
    for (int codec = MEMOPT_CODEC_EXACT; codec <= MEMOPT_CODEC_8BIT; ++codec)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i)
            for (size_t offset = 0; offset < 16; offset += 4)
                for (uint64_t seed = 0; seed < 2; ++seed)
                    cuda_codec_try((memopt_codec)codec, 4 * sizes[i], offset, 0, 1, 1000 * i + offset + 100 * seed + 1);
}
static void cuda_codec_bytes(void) { /* what is no array of floats stays as it is */
    for (int codec = MEMOPT_CODEC_EXACT; codec <= MEMOPT_CODEC_8BIT; ++codec)
        for (size_t bytes = 1; bytes < 4000; bytes = bytes * 3 + 2) cuda_codec_try((memopt_codec)codec, bytes, bytes % 3, 0, 1, bytes);
}
static void cuda_codec_schedules(void) {
    cuda_codec_try(MEMOPT_CODEC_8BIT, 4 * 8192, 0, 0, 8, 5);
    cuda_codec_try(MEMOPT_CODEC_8BIT, 4 * 12345, 4, 0, 8, 6);
    cuda_codec_try(MEMOPT_CODEC_BF16, 4 * 9001, 0, 0, 2, 7);
}
static void cuda_codec_rounds(void) { /* several passes of a CUDA block, whole ones and cut off ones */
    for (uint32_t rounds = 1; rounds <= 8; rounds *= 2)
        for (size_t k = 0; k < 4; ++k)
            cuda_codec_try(MEMOPT_CODEC_8BIT, 4 * (k == 0 ? rounds * 8192 : rounds * 8192 + 777 * k), k == 2 ? 8 : 0, rounds, 2, rounds + k);
}
/* So long that a CUDA block makes several passes: which is the device codec's own choice. */
static void cuda_codec_long(void) {
    enum { TAIL = 2 * 8192 + 300 };
    const size_t n = (size_t)3 * memopt_i_cuda::QUANT_PASSES * 8192 + TAIL, blocks = memopt_quantize_blocks(n, 256);
    const size_t tail = TAIL % 256, first = n - (TAIL - tail) - tail; float *x = cuda_codec_values(TAIL, 4), *want = (float *)malloc(TAIL * 4);
    memopt_cuda_codec state; memopt_device_codec device_codec; float *d = NULL; unsigned char *copy = NULL, *host = (unsigned char *)malloc(2 * TAIL);
    CHECK(first % 256 == 0 && cudaMalloc((void **)&d, n * 4) == cudaSuccess && cudaMalloc((void **)&copy, n + 4 * blocks) == cudaSuccess);
    CHECK(memopt_cuda_codec_make(&state, &device_codec, NULL) == 0);
    memcpy(want, x, TAIL * 4);
    cuda_codec_cpu(MEMOPT_CODEC_OP_ENCODE, MEMOPT_CODEC_8BIT, x, TAIL * 4, host);
    cuda_codec_cpu(MEMOPT_CODEC_OP_ROUND, MEMOPT_CODEC_8BIT, want, TAIL * 4, NULL);
    test_put(d, x, TAIL * 4);
    test_put(d + first, x, TAIL * 4);
    simulator_run_blocks(1, 1);
    CHECK(device_codec.run_fn(device_codec.user, MEMOPT_CODEC_OP_ENCODE, MEMOPT_CODEC_8BIT, d, n * 4, copy)
          == MEMOPT_OK);
    CHECK(device_codec.run_fn(device_codec.user, MEMOPT_CODEC_OP_ROUND, MEMOPT_CODEC_8BIT, d, n * 4, NULL)
          == MEMOPT_OK);
    test_synchronize();
    simulator_run_blocks(SIZE_MAX, SIZE_MAX);
    cuda_codec_same("first codes", host + memopt_quantize_blocks(TAIL, 256) * 4, copy + blocks * 4, 2 * 8192, 0);
    cuda_codec_same("last codes", host + memopt_quantize_blocks(TAIL, 256) * 4, copy + blocks * 4 + first, TAIL, 0);
    cuda_codec_same("last scales", host, copy + first / 256 * 4, memopt_quantize_blocks(TAIL, 256) * 4, 0);
    cuda_codec_same("last rounded", want, d + first, TAIL * 4, 0);
    CHECK(state.status == 0);
    cudaFree(d); cudaFree(copy);
    free(x); free(want); free(host);
}
/* ---- what is refused ---- */
static memopt_status cuda_codec_call(memopt_cuda_codec *state, int op, int codec, void *x, size_t bytes, void *copy) {
    memopt_device_codec k;
    memset(&k, 0, sizeof k);
    CHECK(memopt_cuda_codec_make(state, &k, NULL) == 0);
    return k.run_fn(k.user, (memopt_codec_op)op, (memopt_codec)codec, x, bytes, copy);
}
static void cuda_codec_refused(void) {
    unsigned char *d = (unsigned char *)test_device(8192), got[8192]; memopt_cuda_codec s; memopt_device_codec k; const size_t launches = simulator_launches();
    memset(&k, 0, sizeof k);
    CHECK(memopt_cuda_codec_make(NULL, &k, NULL) == MEMOPT_CUDA_ERR_NULL && !k.run_fn);
    CHECK(memopt_cuda_codec_make(&s, NULL, NULL) == MEMOPT_CUDA_ERR_NULL);
    for (int codec = MEMOPT_CODEC_BF16; codec <= MEMOPT_CODEC_8BIT; ++codec) for (int op = MEMOPT_CODEC_OP_ROUND; op <= MEMOPT_CODEC_OP_DECODE; ++op) {
        void *copy = op ? d + 4096 : NULL;
        CHECK_AT(cuda_codec_call(&s, op, codec, NULL, 400, copy) == MEMOPT_ERR_ARGUMENT && s.status == MEMOPT_CUDA_ERR_NULL, op);
        CHECK_AT(cuda_codec_call(&s, op, codec, d + 2, 400, copy) == MEMOPT_ERR_ARGUMENT && s.status == MEMOPT_CUDA_ERR_ALIGNMENT, op);
        CHECK_AT(cuda_codec_call(&s, op, codec, d, 0, copy) == MEMOPT_OK && s.status == 0, op);
        CHECK_AT(cuda_codec_call(&s, op, 3, d, 400, copy) == MEMOPT_ERR_ARGUMENT && s.status == MEMOPT_ERR_ARGUMENT, op);
        CHECK_AT(cuda_codec_call(&s, 3, codec, d, 400, copy) == MEMOPT_ERR_ARGUMENT && s.status == MEMOPT_ERR_ARGUMENT, op);
        if (!op) continue;
        CHECK_AT(cuda_codec_call(&s, op, codec, d, 400, NULL) == MEMOPT_ERR_ARGUMENT && s.status == MEMOPT_CUDA_ERR_NULL, op);
        CHECK_AT(cuda_codec_call(&s, op, codec, d, 400, d + 396) == MEMOPT_ERR_ARGUMENT && s.status == MEMOPT_CUDA_ERR_OVERLAP, op);
        CHECK_AT(cuda_codec_call(&s, op, codec, d + 100, 400, d) == MEMOPT_ERR_ARGUMENT && s.status == MEMOPT_CUDA_ERR_OVERLAP, op);
        CHECK_AT(cuda_codec_call(&s, op, codec, d, 400, d + 4097) == MEMOPT_ERR_ARGUMENT && s.status == MEMOPT_CUDA_ERR_ALIGNMENT, op);
        CHECK_AT(cuda_codec_call(&s, op, MEMOPT_CODEC_EXACT, d, 400, NULL) == MEMOPT_ERR_ARGUMENT && s.status == MEMOPT_CUDA_ERR_NULL, op);
        CHECK_AT(cuda_codec_call(&s, op, MEMOPT_CODEC_EXACT, d, 401, d + 400) == MEMOPT_ERR_ARGUMENT && s.status == MEMOPT_CUDA_ERR_OVERLAP, op);
    }
    CHECK(cuda_codec_call(&s, MEMOPT_CODEC_OP_ENCODE, MEMOPT_CODEC_8BIT, d, 400, d + 4098) == MEMOPT_ERR_ARGUMENT);
    CHECK(simulator_launches() == launches);
    test_get(got, d, sizeof got);
    for (size_t i = 0; i < sizeof got; ++i) CHECK_AT(got[i] == 0xFF, i);
}
static void cuda_codec_errors(void) {
    unsigned char *d = (unsigned char *)test_device(8192), got[8192]; memopt_cuda_codec s;
    if (test_on_card()) { SKIP("errors are made by the simulator"); return; }
    for (int codec = MEMOPT_CODEC_EXACT; codec <= MEMOPT_CODEC_8BIT; ++codec) for (int op = MEMOPT_CODEC_OP_ROUND; op <= MEMOPT_CODEC_OP_DECODE; ++op) {
        void *copy = op ? d + 4096 : NULL;
        simulator_pending_error(cudaErrorIllegalAddress);
        CHECK_AT(cuda_codec_call(&s, op, codec, d, 400, copy) == MEMOPT_ERR_DEVICE, op);
        CHECK_AT(s.status == MEMOPT_CUDA_BASE_PENDING + (int)cudaErrorIllegalAddress && cudaGetLastError() == cudaErrorIllegalAddress, op);
        simulator_pending_error(0);
        if (codec) simulator_fail_launch(1); else simulator_fail_call(1);
        CHECK_AT(cuda_codec_call(&s, op, codec, d, 400, copy) == (codec || op ? MEMOPT_ERR_DEVICE : MEMOPT_OK), op);
        CHECK_AT(codec || op ? s.status > MEMOPT_CUDA_BASE_RUNTIME && s.status < MEMOPT_CUDA_BASE_PENDING
                 : !s.status, op);
        CHECK_AT(cudaGetLastError() == cudaSuccess, op);
        simulator_fail_launch(0);
        simulator_fail_call(0);
    }
    test_synchronize();
    test_get(got, d, sizeof got);
    for (size_t i = 0; i < sizeof got; ++i) CHECK_AT(got[i] == 0xFF, i);
}
/* ---- tapes: a chain of scalings and bends, each number made by one function on both sides ---- */
enum { CUDA_CODEC_SEGMENTS = 6, CUDA_CODEC_FLOATS = 700, CUDA_CODEC_PASSES = 2 };
typedef struct cuda_codec_job { float *to, *sums; const float *a, *b; float weight; int what; } cuda_codec_job;
static __host__ __device__ __forceinline__ float cuda_codec_bend(float z) { return fmaf(-0.25f, memopt_i_times(z, memopt_i_times(z, z)), z); }
static __host__ __device__ __forceinline__ void cuda_codec_one(const cuda_codec_job *j, size_t i) {
    const size_t left = i ? i - 1 : CUDA_CODEC_FLOATS - 1, right = i + 1 < CUDA_CODEC_FLOATS ? i + 1 : 0;
    if (j->what == 0) j->to[i] = cuda_codec_bend(fmaf(j->weight, j->a[i], memopt_i_times(0.3f, j->a[left])));
    else if (j->what == 1) { /* gradients: of the input, and each element's of the weight, added to what is there */
        const float z = fmaf(j->weight, j->a[i], memopt_i_times(0.3f, j->a[left]));
        const float next = fmaf(j->weight, j->a[right], memopt_i_times(0.3f, j->a[i]));
        const float g = memopt_i_times(j->b[i], fmaf(-0.75f, memopt_i_times(z, z), 1.0f));
        const float h = memopt_i_times(j->b[right], fmaf(-0.75f, memopt_i_times(next, next), 1.0f));
        if (j->to) j->to[i] = fmaf(j->weight, g, memopt_i_times(0.3f, h));
        j->sums[i] = fmaf(g, j->a[i], j->sums[i]);
    } else j->sums[i] = memopt_i_sum(j->sums[i], memopt_i_times(j->a[i], j->a[i])); /* losses */
}
static __global__ void cuda_codec_kernel(cuda_codec_job j) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < CUDA_CODEC_FLOATS) cuda_codec_one(&j, i);
}
typedef struct cuda_codec_net {
    int on_device; cudaStream_t stream; float *sums; /* of each segment, the losses at the end */
    memopt_tape_layer layers[CUDA_CODEC_SEGMENTS]; memopt_segment segments[CUDA_CODEC_SEGMENTS]; size_t forwards; size_t first;
} cuda_codec_net;
static memopt_status cuda_codec_work(cuda_codec_net *net, float *to, size_t sums, const float *a, const float *b, int what) {
    cuda_codec_job j; size_t i;
    j.to = to; j.sums = net->sums + sums * CUDA_CODEC_FLOATS; j.a = a; j.b = b; j.weight = 0.8f - 0.05f * (float)sums; j.what = what;
    if (!net->on_device) { for (i = 0; i < CUDA_CODEC_FLOATS; ++i) cuda_codec_one(&j, i); return MEMOPT_OK; }
    MEMOPT_I_CUDA_LAUNCH(cuda_codec_kernel, (CUDA_CODEC_FLOATS + 63) / 64, 64, 0, net->stream, j);
    return memopt_cuda_to_status(memopt_i_cuda::launched());
}
static memopt_status cuda_codec_forward(const memopt_tape_call *s) {
    cuda_codec_net *net = (cuda_codec_net *)s->user;
    if (s->not_host_visible != (net->on_device ? 2 : 0)) return MEMOPT_ERR_STATE;
    ++net->forwards;
    return cuda_codec_work(net, (float *)s->output, net->first + s->segment, (const float *)s->input, NULL, 0);
}
static memopt_status cuda_codec_backward(const memopt_tape_call *s) {
    cuda_codec_net *net = (cuda_codec_net *)s->user;
    return cuda_codec_work(net, (float *)s->grad_input, net->first + s->segment, (const float *)s->input, (const float *)s->grad_output, 1);
}
static void cuda_codec_net_begin(cuda_codec_net *net, float *sums, int on_device, cudaStream_t stream, size_t first) {
    memset(net, 0, sizeof *net);
    net->on_device = on_device; net->stream = stream; net->sums = sums; net->first = first;
    for (size_t i = 0; i < CUDA_CODEC_SEGMENTS; ++i) {
        memopt_segment *s = &net->segments[i];
        s->output_bytes = s->saved_bytes = s->grad_bytes = CUDA_CODEC_FLOATS * sizeof(float); /* saved: the output alone */
        s->forward_cost = 1; s->backward_cost = 2;
        net->layers[i].forward_fn = cuda_codec_forward; net->layers[i].backward_fn = cuda_codec_backward; net->layers[i].user = net;
    }
}
/* What lives through all passes: input, the gradient of the output, that of the input, sums of the weights, losses. */
enum { CUDA_CODEC_ALL = (3 + 2 * CUDA_CODEC_SEGMENTS + 1) * CUDA_CODEC_FLOATS };
static void cuda_codec_begin(float *block) {
    uint64_t seed = 3; size_t i;
    memset(block, 0, CUDA_CODEC_ALL * sizeof(float));
    for (i = 0; i < 2 * CUDA_CODEC_FLOATS; ++i) block[i] = (float)((double)(test_random(&seed) >> 40) / 8388608.0 - 1.0);
}
static memopt_status cuda_codec_passes(memopt_tape *tape, cuda_codec_net *net, float *block) {
    memopt_status s = MEMOPT_OK;
    for (int pass = 0; pass < CUDA_CODEC_PASSES && !s; ++pass) {
        s = memopt_tape_forward(tape, block);
        if (!s) s = cuda_codec_work(net, NULL, 2 * CUDA_CODEC_SEGMENTS - net->first, (const float *)memopt_tape_output(tape), NULL, 2);
        if (!s) s = memopt_tape_backward(tape, block + CUDA_CODEC_FLOATS, block + 2 * CUDA_CODEC_FLOATS);
    }
    return s;
}
typedef struct cuda_codec_case { memopt_codec codec; size_t budget; int nested, on_device; } cuda_codec_case;
/* A tape; or one that has a second as its last segment. Returns the actions that were transfers: copies and readings. */
static size_t cuda_codec_run(const cuda_codec_case *c, float *block, size_t *least) {
    const size_t bytes = CUDA_CODEC_ALL * sizeof(float); memopt_cuda_memory memory; memopt_source source; memopt_arena_desc ad;
    memopt_arena *arena = NULL; memopt_tape *tape = NULL, *inner = NULL; memopt_tape_desc d, id; cuda_codec_net net, deep; memopt_cuda_codec state;
    cudaStream_t stream = NULL; memopt_segment segments[CUDA_CODEC_SEGMENTS]; memopt_tape_layer layers[CUDA_CODEC_SEGMENTS];
    float *where; size_t copies = 0, count = 0, i; const memopt_action *actions; memopt_status status;
    memset(&d, 0, sizeof d);
    memset(&ad, 0, sizeof ad);
    if (c->on_device) {
        test_cuda_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        CHECK(memopt_cuda_source_malloc(MEMOPT_CUDA_CURRENT_DEVICE, &memory, &source) == 0);
        memory.stream = stream;
        CHECK(memopt_cuda_codec_make(&state, &d.device_codec, stream) == 0);
    } else CHECK(memopt_source_allocator(NULL, &source) == MEMOPT_OK);
    ad.source = &source; ad.capacity = (size_t)1 << 20; ad.alignment = 256;
    CHECK(memopt_arena_create(&ad, &arena) == MEMOPT_OK);
    where = (float *)memopt_arena_push(arena, (bytes + 255) / 256 * 256, MEMOPT_TAG_PARAMETERS);
    cuda_codec_net_begin(&net, where + 3 * CUDA_CODEC_FLOATS, c->on_device, stream, 0);
    cuda_codec_net_begin(&deep, where + 3 * CUDA_CODEC_FLOATS, c->on_device, stream, CUDA_CODEC_SEGMENTS);
    memcpy(segments, net.segments, sizeof segments);
    memcpy(layers, net.layers, sizeof layers);
    d.chain.segments = segments; d.chain.count = CUDA_CODEC_SEGMENTS; d.layers = layers; d.arena = arena;
    d.chain.input_bytes = d.chain.input_grad_bytes = CUDA_CODEC_FLOATS * sizeof(float);
    d.codec = c->codec;
    if (c->nested) { /* the same chain once more, as segment 2 */
        id = d;
        id.chain.segments = deep.segments; id.layers = deep.layers; id.arena = NULL; id.budget = 0; id.overhead = 0.3;
        CHECK(memopt_tape_create(&id, &inner) == MEMOPT_OK);
        CHECK(memopt_tape_nest(inner, &segments[2], &layers[2]) == MEMOPT_OK);
        for (actions = memopt_tape_actions(inner, &count), i = 0; i < count; ++i) copies += actions[i].op == MEMOPT_ACTION_WRITE || actions[i].op == MEMOPT_ACTION_READ;
    }
    d.budget = 1;
    if (least) CHECK(memopt_tape_min_budget(&d, least) == MEMOPT_OK);
    d.budget = c->budget ? c->budget : (size_t)1 << 19;
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
    for (actions = memopt_tape_actions(tape, &count), i = 0; i < count; ++i) copies += actions[i].op == MEMOPT_ACTION_WRITE || actions[i].op == MEMOPT_ACTION_READ;
    if (c->on_device) CHECK(source.copy_in_fn(&source, where, block, bytes) == MEMOPT_OK); else memcpy(where, block, bytes);
    status = cuda_codec_passes(tape, &net, where);
    CHECK(status == MEMOPT_OK && net.forwards && !c->nested == !deep.forwards);
    if (c->on_device) CHECK(source.copy_out_fn(&source, block, where, bytes) == MEMOPT_OK); else memcpy(block, where, bytes);
    if (c->on_device) CHECK(state.status == 0);
    memopt_tape_destroy(tape);
    memopt_tape_destroy(inner);
    memopt_arena_destroy(arena);
    if (stream) test_cuda_must(cudaStreamDestroy(stream), "cudaStreamDestroy");
    return copies;
}
static void cuda_codec_tapes(void) {
    const size_t bytes = CUDA_CODEC_ALL * sizeof(float); float *want = (float *)malloc(bytes), *got = (float *)malloc(bytes), *exact = (float *)malloc(bytes);
    for (int nested = 0; nested < 2; ++nested)
        for (int codec = MEMOPT_CODEC_EXACT; codec <= MEMOPT_CODEC_8BIT; ++codec) {
        size_t least = 0, copies = 0; cuda_codec_case c = { (memopt_codec)codec, 0, nested, 0 };
        cuda_codec_begin(want);
        (void)cuda_codec_run(&c, want, &least);
        CHECK_AT(want[CUDA_CODEC_ALL - 1] > 0, codec);
        if (!codec) memcpy(exact, want, bytes); else CHECK_AT(memcmp(want, exact, bytes) != 0, codec); /* it is lossy */
        c.on_device = 1;
        for (size_t i = 0; i < 5; ++i) { /* from the least memory to all */
            c.budget = least + i * CUDA_CODEC_FLOATS * 3;
            if (i == 4) c.budget = 0;
            TEST_SCHEDULES(2) {
#ifndef __CUDACC__
                simulator_streams(test_schedule_i ? MODE_RANDOM : MODE_LAZY, i + 1);
#endif
                cuda_codec_begin(got);
                copies += cuda_codec_run(&c, got, NULL);
                CHECK_AT(memcmp(got, want, bytes) == 0, 100 * (size_t)nested + 10 * (size_t)codec + i);
            }
        }
        CHECK_AT(!codec == !copies, codec); /* copies have been made, and read */
    }
    free(want); free(got); free(exact);
}
/* Nothing is waited for or allocated: all is queued when the device codec returns. */
static void cuda_codec_queued(void) {
    cudaStream_t stream = NULL; memopt_cuda_codec state; memopt_device_codec k; float x[300], *d = (float *)test_device(1200); size_t calls;
    if (test_on_card()) { SKIP("calls are counted by the simulator"); return; }
    for (size_t i = 0; i < 300; ++i) x[i] = (float)i * 0.37f;
    test_put(d, x, sizeof x);
    test_cuda_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    CHECK(memopt_cuda_codec_make(&state, &k, NULL) == 0 && state.stream == NULL);
    state.stream = stream;
#ifndef __CUDACC__
    simulator_streams(MODE_LAZY, 1);
#endif
    calls = simulator_live(LIVE_DEVICE_BYTES);
    for (int codec = MEMOPT_CODEC_BF16; codec <= MEMOPT_CODEC_8BIT; ++codec) {
        unsigned char copy[1208], *d_copy = (unsigned char *)test_device(1208);
        CHECK(k.run_fn(k.user, MEMOPT_CODEC_OP_ROUND, (memopt_codec)codec, d, sizeof x, NULL) == MEMOPT_OK);
        CHECK(k.run_fn(k.user, MEMOPT_CODEC_OP_ENCODE, (memopt_codec)codec, d, sizeof x, d_copy) == MEMOPT_OK);
        CHECK(cudaStreamQuery(stream) == cudaErrorNotReady); /* a lazy stream has not begun */
        (void)cudaGetLastError();
        cuda_codec_cpu(MEMOPT_CODEC_OP_ENCODE, (memopt_codec)codec, x, sizeof x, copy);
        cuda_codec_cpu(MEMOPT_CODEC_OP_ROUND, (memopt_codec)codec, x, sizeof x, NULL);
        test_cuda_must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        cuda_codec_same("queued copy", copy, d_copy, memopt_i_codec_bytes((memopt_codec)codec, sizeof x),
                        (size_t)codec);
        cuda_codec_same("queued", x, d, sizeof x, (size_t)codec);
    }
    CHECK(simulator_live(LIVE_DEVICE_BYTES) == calls + 2 * 1208);
    test_cuda_must(cudaStreamDestroy(stream), "cudaStreamDestroy");
}
/* ---- a stash on the device: one buffer that is updated in place, as on the CPU ---- */
static void cuda_codec_stash(void) {
    enum { N = 700, DEPTH = 4 };
    float *const x = cuda_codec_values(N, 11), *const at = (float *)malloc(N * sizeof *x); float want[DEPTH][N]; int codec, i; size_t k;
    for (codec = MEMOPT_CODEC_EXACT; codec <= MEMOPT_CODEC_8BIT; ++codec) TEST_SCHEDULES(3) {
        memopt_cuda_memory memory; memopt_source source; memopt_arena_desc ad; memopt_arena *arena = NULL, *host = NULL; memopt_stash *s = NULL, *cpu = NULL; memopt_cuda_codec c; memopt_device_codec device; float *d; cudaStream_t stream = NULL;
        simulator_streams(MODE_RANDOM, 3 + (uint64_t)codec);
        test_cuda_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
        memset(&ad, 0, sizeof ad); ad.capacity = 1 << 20;
        CHECK(memopt_arena_create(&ad, &host) == MEMOPT_OK && memopt_cuda_source_malloc(0, &memory, &source) == 0);
        ad.source = &source;
        CHECK(memopt_arena_create(&ad, &arena) == MEMOPT_OK && memopt_stash_create(arena, DEPTH, NULL, &s) == MEMOPT_OK && memopt_stash_create(host, DEPTH, NULL, &cpu) == MEMOPT_OK);
        d = (float *)test_device(N * sizeof *d);
        CHECK(memopt_stash_push(s, d, N, (memopt_codec)codec) == MEMOPT_ERR_UNSUPPORTED && memopt_arena_get_stats(arena).used_low == 0);
        CHECK(memopt_cuda_codec_make(&c, &device, stream) == 0 && memopt_stash_set_codec(s, &device) == MEMOPT_OK);
        CHECK(memopt_stash_set_codec(NULL, &device) == MEMOPT_ERR_ARGUMENT && memopt_stash_set_codec(s, NULL) == MEMOPT_ERR_ARGUMENT);
        memcpy(at, x, N * sizeof *x);
        test_cuda_must(cudaMemcpyAsync(d, at, N * sizeof *x, cudaMemcpyHostToDevice, stream), "copy");
        for (i = 0; i < DEPTH; ++i) { /* the next value is half of what the push has left */
            CHECK(memopt_stash_push(cpu, at, N, (memopt_codec)codec) == MEMOPT_OK && memopt_stash_push(s, d, N, (memopt_codec)codec) == MEMOPT_OK);
            memcpy(want[i], at, sizeof want[i]);
            test_cuda_must(cudaStreamSynchronize(stream), "wait"); cuda_codec_same("pushed", want[i], d, sizeof want[i], (size_t)i);
            for (k = 0; k < N; ++k) at[k] *= 0.5f;
            test_cuda_must(cudaMemcpyAsync(d, at, N * sizeof *x, cudaMemcpyHostToDevice, stream), "copy");
        }
        CHECK(memopt_arena_get_stats(arena).used_low >= DEPTH * memopt_stash_bytes(N, (memopt_codec)codec) && memopt_stash_push(s, d, N, (memopt_codec)codec) == MEMOPT_ERR_STATE);
        if (!test_on_card()) { /* what failed has popped nothing, and pushed nothing */
            const size_t used = memopt_arena_get_stats(arena).used_low;
            simulator_fail_call(1); CHECK(memopt_stash_pop(s, d, N) == MEMOPT_ERR_DEVICE && c.status != 0 && memopt_arena_get_stats(arena).used_low == used); simulator_fail_call(0);
        }
        for (i = DEPTH; i-- > 0;) {
            CHECK(memopt_stash_pop(s, d, N) == MEMOPT_OK);
            test_cuda_must(cudaStreamSynchronize(stream), "wait"); cuda_codec_same("popped", want[i], d, sizeof want[i], (size_t)i);
        }
        CHECK(memopt_stash_pop(s, d, N) == MEMOPT_ERR_STATE && memopt_arena_get_stats(arena).used_low == 0);
        for (k = 1; !test_on_card() && k < 9; ++k) {
            memopt_status failed;
            simulator_fail_call(k); failed = memopt_stash_push(s, d, N, (memopt_codec)codec); simulator_fail_call(0);
            if (!failed) break;
            CHECK_AT(failed == MEMOPT_ERR_DEVICE && memopt_arena_get_stats(arena).used_low == 0, k);
        }
        CHECK(test_on_card() || (k > 1 && k < 9));
        memopt_stash_destroy(cpu); memopt_stash_destroy(s); memopt_arena_destroy(arena); memopt_arena_destroy(host);
        test_cuda_must(cudaStreamSynchronize(stream), "wait"); test_cuda_must(cudaStreamDestroy(stream), "stream");
    }
    simulator_streams(MODE_EAGER, 0);
    free(x); free(at);
}

static void test_cuda_codec(void) {
    RUN(cuda_codec_shapes); RUN(cuda_codec_bytes); RUN(cuda_codec_schedules); RUN(cuda_codec_rounds); RUN(cuda_codec_long);
    RUN(cuda_codec_stash); RUN(cuda_codec_refused); RUN(cuda_codec_errors); RUN(cuda_codec_tapes); RUN(cuda_codec_queued);
}
#ifndef TEST_COMBINED
int main(void) { test_cuda_codec(); return test_totals(); }
#endif
