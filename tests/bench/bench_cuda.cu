/* bench_cuda.cu - every kernel on a card: the rate at which it moves the bytes that it has to move, against a copy from
   device to device of as many bytes, taken in turn with it in the same run. Medians over rounds; --json for scripts,
   --quick for few rounds, --tiny for sizes that only show that all of it runs (the simulator's), or words one of which
   a name must begin with. Without a card it says SKIP and why.

   The limit of a product is cuBLASLt called bare: the same descriptors, algorithm and operands, nothing else. */
#define MEMOPT_CUDA_STATIC
#include "memopt_cuda.cu"
#include "bench.h"

enum { BENCH_ROUNDS = 15 };
static int bench_tiny;
static size_t bench_size(size_t usual, size_t tiny) { return bench_tiny ? tiny : usual; }
#define BENCH_ELEMENTS bench_size((size_t)64 << 20, (size_t)32 << 10)
#define BENCH_SIDE bench_size(8192, 64) /* of a square matrix */
typedef struct bench_card {
    bench       table;
    char      **only;          /* what names begin with; none: all are wanted */
    int         only_count, rounds;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    char       *d_from, *d_to; /* of the copy */
    size_t      copy_bytes;    /* of each of them */
} bench_card;

static void bench_check(memopt_cuda_status status, const char *what) {
    if (!status) return;
    fprintf(stderr, "bench_cuda: %s: %s\n", what, memopt_cuda_status_text(status));
    exit(1);
}
static void bench_runtime(cudaError_t error, const char *what) { bench_check(memopt_i_cuda::runtime(error), what); }
static void *bench_device(size_t bytes) { /* about 1 in every float, whatever the type */
    void *d = NULL;
    bench_runtime(cudaMalloc(&d, bytes), "cudaMalloc");
    bench_runtime(cudaMemset(d, 0x3c, bytes), "cudaMemset");
    return d;
}
static int bench_wanted(const bench_card *b, const char *name) {
    int i;

    for (i = 0; i < b->only_count; ++i)
        if (!strncmp(name, b->only[i], strlen(b->only[i]))) return 1;
    return !b->only_count;
}
static void bench_free(void *d) { bench_runtime(cudaFree(d), "cudaFree"); }

/* Milliseconds of `repeats` calls of a thing. */
template <typename F> static double bench_time(const bench_card *b, int repeats, F thing) {
    float ms = 0; int i;
    bench_runtime(cudaEventRecord(b->begin, b->stream), "event");
    for (i = 0; i < repeats; ++i) thing();
    bench_runtime(cudaEventRecord(b->end, b->stream), "event");
    bench_runtime(cudaEventSynchronize(b->end), "wait");
    bench_runtime(cudaEventElapsedTime(&ms, b->begin, b->end), "event");
    return (double)ms / repeats;
}
/* thing against limit, by turns: a row of the table. is_rate: bytes a second, else milliseconds. */
template <typename F, typename G>
static void bench_pair(bench_card *b, const char *name, size_t n, double bytes, F thing, G limit) {
    double own[BENCH_ROUNDS], other[BENCH_ROUNDS]; int i;
    if (!bench_wanted(b, name)) return;
    thing(); limit(); thing(); limit();
    for (i = 0; i < b->rounds; ++i) { own[i] = bench_time(b, 4, thing); other[i] = bench_time(b, 4, limit); }
    if (bytes > 0)
        bench_row(&b->table, name, 0, n, bytes / bench_median(own, (size_t)b->rounds) * 1e-6, "GB/s",
                  bytes / bench_median(other, (size_t)b->rounds) * 1e-6, 1);
    else bench_row(&b->table, name, 0, n, bench_median(own, (size_t)b->rounds), "ms",
                   bench_median(other, (size_t)b->rounds), 0);
}
/* A kernel that reads and writes `bytes` in all, against a copy of half of them: it reads and writes as many. */
template <typename F> static void bench_kernel(bench_card *b, const char *name, size_t n, double bytes, F call) {
    const size_t half = (size_t)(bytes / 2);
    if (half > b->copy_bytes) { fprintf(stderr, "bench_cuda: %s: the copy's buffers are too small\n", name); exit(1); }
    bench_pair(b, name, n, bytes, [&] { bench_check(call(), name); }, [&] {
        bench_runtime(cudaMemcpyAsync(b->d_to, b->d_from, half, cudaMemcpyDeviceToDevice, b->stream), "copy");
    });
}

/* ---- numbers and codes ---- */
static void bench_numbers(bench_card *b) {
    const size_t n = BENCH_ELEMENTS; const cudaStream_t s = b->stream; const double N = (double)n;
    float *x = (float *)bench_device(n * 4); uint16_t *h = (uint16_t *)bench_device(n * 2);
    uint16_t *low = (uint16_t *)bench_device(n * 2); uint8_t *c = (uint8_t *)bench_device(n);
    float *absmax = (float *)bench_device(n / 32 * 4); const memopt_noise noise = memopt_noise_make(1, 2);
    bench_kernel(b, "bf16_from_f32", n, 6 * N, [&] { return memopt_cuda_bf16_from_f32(h, x, n, s); });
    bench_kernel(b, "bf16_stochastic", n, 6 * N, [&] {
        return memopt_cuda_bf16_from_f32_stochastic(h, x, n, noise, 0, s); });
    bench_kernel(b, "f16_from_f32", n, 6 * N, [&] { return memopt_cuda_f16_from_f32(h, x, n, s); });
    bench_kernel(b, "e4m3_from_f32", n, 5 * N, [&] { return memopt_cuda_e4m3_from_f32(c, x, n, 1, s); });
    bench_kernel(b, "e5m2_from_f32", n, 5 * N, [&] { return memopt_cuda_e5m2_from_f32(c, x, n, 1, s); });
    bench_kernel(b, "f32_from_bf16", n, 6 * N, [&] { return memopt_cuda_f32_from_bf16(x, h, n, s); });
    bench_kernel(b, "f32_from_f16", n, 6 * N, [&] { return memopt_cuda_f32_from_f16(x, h, n, s); });
    bench_kernel(b, "f32_from_e4m3", n, 5 * N, [&] { return memopt_cuda_f32_from_e4m3(x, c, n, s); });
    bench_kernel(b, "f32_split", n, 8 * N, [&] { return memopt_cuda_f32_split(h, low, x, n, s); });
    bench_kernel(b, "f32_join", n, 8 * N, [&] { return memopt_cuda_f32_join(x, h, low, n, s); });
    bench_check(memopt_cuda_random_normal(x, n, 1, 2, 0, s), "random_normal");
    bench_kernel(b, "quantize_f32_signed", n, 5.016 * N, [&] {
        return memopt_cuda_quantize_f32(c, absmax, x, n, MEMOPT_QUANT_SIGNED, 256, s); });
    bench_kernel(b, "quantize_f32_linear", n, 5.016 * N, [&] {
        return memopt_cuda_quantize_f32(c, absmax, x, n, MEMOPT_QUANT_LINEAR, 256, s); });
    bench_kernel(b, "dequantize_f32_signed", n, 5.016 * N, [&] {
        return memopt_cuda_dequantize_f32(x, c, absmax, n, MEMOPT_QUANT_SIGNED, 256, s); });
    bench_kernel(b, "dequantize_bf16_signed", n, 3.016 * N, [&] {
        return memopt_cuda_dequantize_bf16(h, c, absmax, n, MEMOPT_QUANT_SIGNED, 256, s); });
    bench_free(x); bench_free(h); bench_free(low); bench_free(c); bench_free(absmax);
}

/* ---- optimizers: one tensor of 64 Mi elements ---- */
typedef struct bench_optim_kind {
    const char *name;
    memopt_optim_kind kind; memopt_state_format state; memopt_i_weights weights; memopt_type gradients;
    double bytes; /* an element, read and written */
} bench_optim_kind;
static const bench_optim_kind bench_optim_kinds[] = {
    { "adamw_f32", MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_F32, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32, 28 },
    { "adamw_8bit", MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32, 16.0625 },
    { "adamw_8bit_bf16", MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, MEMOPT_I_WEIGHTS_BF16, MEMOPT_TYPE_BF16, 10.0625 },
    { "adamw_8bit_split", MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, MEMOPT_I_WEIGHTS_SPLIT, MEMOPT_TYPE_BF16, 14.0625 },
    { "adamw_bf16_state", MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_BF16, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32, 20 },
    { "lion_8bit", MEMOPT_OPTIM_LION, MEMOPT_STATE_8BIT, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32, 14.03125 },
    { "sgd", MEMOPT_OPTIM_SGD, MEMOPT_STATE_F32, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32, 12 },
    { "lamb_f32", MEMOPT_OPTIM_LAMB, MEMOPT_STATE_F32, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32, 44 },
    { "adafactor", MEMOPT_OPTIM_ADAFACTOR, MEMOPT_STATE_F32, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32, 24 },
    { "rmsprop", MEMOPT_OPTIM_RMSPROP, MEMOPT_STATE_F32, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32, 20 } };
/* As a network has them: no two alike, so that codes differ from lane to lane, and what looks them up is no broadcast. */
static void bench_optim_gradients(const bench_card *b, const memopt_optim_tensor *t, memopt_type type) {
    float *const d = (float *)(type == MEMOPT_TYPE_F32 ? (void *)(uintptr_t)t->gradients : bench_device(t->count * 4));
    bench_check(memopt_cuda_random_normal(d, t->count, 1, 0, 0, b->stream), "gradients");
    if (type == MEMOPT_TYPE_F32) return;
    bench_check(memopt_cuda_bf16_from_f32((uint16_t *)(uintptr_t)t->gradients, d, t->count, b->stream), "gradients");
    bench_runtime(cudaStreamSynchronize(b->stream), "gradients");
    bench_free(d);
}
static void bench_optim(bench_card *b, const bench_optim_kind *k) {
    memopt_optim_tensor t; memopt_optim_desc d; memopt_optim_run run; memopt_optim *o; void *memory, *d_scratch;
    const memopt_optim_group group = memopt_optim_group_default(k->kind); size_t bytes, state, scratch;
    memset(&t, 0, sizeof t); memset(&d, 0, sizeof d); memset(&run, 0, sizeof run);
    if (!bench_wanted(b, k->name)) return;
    t.count = BENCH_ELEMENTS; t.columns = 8192;
    t.weights = bench_device(t.count * 4); t.extra = bench_device(t.count * 2); t.gradients = bench_device(t.count * 4);
    if (k->weights == MEMOPT_I_WEIGHTS_F32 || k->weights == MEMOPT_I_WEIGHTS_BF16) { bench_free(t.extra); t.extra = NULL; }
    d.kind = k->kind; d.state = k->state; d.weights = k->weights == MEMOPT_I_WEIGHTS_F32 ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16; /* no copies here */
    d.extra = k->weights == MEMOPT_I_WEIGHTS_SPLIT ? MEMOPT_OPTIM_EXTRA_SPLIT : MEMOPT_OPTIM_EXTRA_NONE; d.gradients = k->gradients;
    d.tensors = &t; d.tensor_count = 1;
    bench_check(memopt_optim_bytes(&d, &bytes), k->name);
    bench_check(memopt_optim_state_bytes(&d, 0, &state), k->name);
    if (state) t.state = bench_device(state);
    memory = memopt_i_system_alloc(NULL, bytes, 64);
    bench_check(memopt_optim_create(&d, memory, bytes, &o), k->name);
    bench_check(memopt_cuda_optim_state_init(o, 0, b->stream), k->name);
    bench_check(memopt_cuda_optim_scratch(o, &scratch), k->name);
    bench_optim_gradients(b, &t, k->gradients);
    d_scratch = bench_device(scratch);
    run.step = 1; run.groups = &group; run.group_count = 1;
    bench_kernel(b, k->name, t.count, k->bytes * (double)t.count, [&] {
        const memopt_cuda_status s = memopt_cuda_optim_step(o, &run, d_scratch, scratch, b->stream);
        ++run.step;
        return s; });
    bench_free(t.weights); bench_free(t.extra); bench_free((void *)(uintptr_t)t.gradients); bench_free(t.state);
    bench_free(d_scratch); memopt_i_system_free(NULL, memory, bytes, 64);
}

/* States in pinned memory, against the bus: as many bytes up and down at once, and nothing else. */
static void bench_offload(bench_card *b, const char *name, memopt_state_format format, double bytes) {
    memopt_optim_tensor t; memopt_optim_desc d; memopt_optim_run run; memopt_optim *o; memopt_cuda_optim_offload away;
    const memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW); size_t object, state, scratch;
    void *memory, *d_scratch, *d_all, *d_back, *down; cudaStream_t other; cudaEvent_t both;
    memset(&t, 0, sizeof t); memset(&d, 0, sizeof d); memset(&run, 0, sizeof run); memset(&away, 0, sizeof away);
    if (!bench_wanted(b, name)) return;
    t.count = BENCH_ELEMENTS; t.weights = bench_device(t.count * 4); t.gradients = bench_device(t.count * 4);
    d.state = format; d.tensors = &t; d.tensor_count = 1;
    bench_check(memopt_optim_bytes(&d, &object), name);
    bench_check(memopt_optim_state_bytes(&d, 0, &state), name);
    bench_runtime(cudaHostAlloc(&t.state, state, cudaHostAllocPortable), "cudaHostAlloc");
    bench_runtime(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "stream");
    memory = memopt_i_system_alloc(NULL, object, 64);
    d_all = bench_device(state); d_back = bench_device(state);
    bench_runtime(cudaHostAlloc(&down, state, cudaHostAllocPortable), "cudaHostAlloc");
    bench_runtime(cudaEventCreateWithFlags(&both, cudaEventDisableTiming), "event");
    bench_check(memopt_optim_create(&d, memory, object, &o), name);
    bench_check(memopt_optim_state_init(o, 0), name);
    bench_check(memopt_cuda_optim_scratch(o, &scratch), name);
    d_scratch = bench_device(scratch);
    bench_check(memopt_cuda_transfer_create(MEMOPT_CUDA_CURRENT_DEVICE, NULL, &away.transfer), name);
    bench_check(memopt_cuda_optim_offload_bytes(o, &away, &away.bytes), name);
    away.d_tiles = bench_device(away.bytes);
    run.groups = &group; run.group_count = 1;
    bench_pair(b, name, t.count, bytes * (double)t.count, [&] {
        ++run.step;
        bench_check(memopt_cuda_optim_begin(o, &run, d_scratch, scratch, b->stream), name);
        bench_check(memopt_cuda_optim_apply_offloaded(o, &away, d_scratch, scratch, b->stream), name);
        bench_check(memopt_cuda_optim_end(o), name);
    }, [&] { /* all of it up, and as much down to another place; the clock's stream waits for both */
        bench_runtime(cudaMemcpyAsync(d_all, t.state, state, cudaMemcpyHostToDevice, b->stream), "copy");
        bench_runtime(cudaMemcpyAsync(down, d_back, state, cudaMemcpyDeviceToHost, other), "copy");
        bench_runtime(cudaEventRecord(both, other), "event");
        bench_runtime(cudaStreamWaitEvent(b->stream, both, 0), "event");
    });
    bench_free(d_back); bench_runtime(cudaFreeHost(down), "cudaFreeHost"); bench_runtime(cudaEventDestroy(both), "event");
    bench_free(t.weights); bench_free((void *)(uintptr_t)t.gradients); bench_free(d_scratch); bench_free(d_all); bench_free(away.d_tiles);
    bench_check(memopt_cuda_transfer_destroy(away.transfer), name);
    bench_runtime(cudaStreamDestroy(other), "stream"); bench_runtime(cudaFreeHost(t.state), "cudaFreeHost");
    memopt_i_system_free(NULL, memory, object, 64);
}

/* ---- gradients ---- */
static void bench_scale(bench_card *b) {
    const size_t n = BENCH_ELEMENTS; memopt_gradient g; memopt_gradients list; size_t bytes;
    memopt_gradient_total *d_total = (memopt_gradient_total *)bench_device(sizeof *d_total);
    memset(&g, 0, sizeof g); memset(&list, 0, sizeof list);
    g.count = n; g.values = bench_device(n * 4); memset(&list, 0, sizeof list); list.tensors = &g; list.count = 1;
    bench_check(memopt_cuda_gradients_scratch(&list, &bytes), "scratch");
    list.scratch = bench_device(bytes); list.scratch_bytes = bytes;
    bench_kernel(b, "gradients_measure", n, 4.0 * (double)n, [&] {
        return memopt_cuda_gradients_measure(&list, d_total, NULL, b->stream); });
    g.type = MEMOPT_TYPE_BF16;
    bench_kernel(b, "gradients_measure_bf16", n, 2.0 * (double)n, [&] {
        return memopt_cuda_gradients_measure(&list, d_total, NULL, b->stream); });
    g.type = MEMOPT_TYPE_F32;
    bench_kernel(b, "gradients_scale", n, 8.0 * (double)n, [&] {
        return memopt_cuda_gradients_scale(&list, 0.999999, d_total, NULL, b->stream); });
    bench_free(g.values); bench_free(list.scratch); bench_free(d_total);
}

/* ---- rows ---- */
static void bench_norms(bench_card *b, size_t width, memopt_type type, const char *forward, const char *backward) {
    const size_t rows = BENCH_ELEMENTS / width, n = rows * width, size = memopt_type_bytes(type); memopt_norm x;
    memopt_cuda_ops ops; size_t bytes;
    memset(&x, 0, sizeof x); memset(&ops, 0, sizeof ops);
    x.rows = rows; x.width = width; x.type = type;
    x.input = bench_device(n * size); x.output = bench_device(n * size); x.grad_output = bench_device(n * size);
    x.grad_input = bench_device(n * size); x.statistics = (float *)bench_device(rows * 8);
    x.scale = bench_device(width * 4); x.shift = bench_device(width * 4);
    x.grad_scale = bench_device(width * 4); x.grad_shift = bench_device(width * 4);
    bench_kernel(b, forward, n, 2.0 * (double)(n * size), [&] { return memopt_cuda_norm_forward(&ops, &x, b->stream); });
    bench_check(memopt_cuda_norm_scratch(&ops, &x, &bytes), backward);
    ops.d_scratch = bench_device(bytes); ops.scratch_bytes = bytes;
    bench_kernel(b, backward, n, 3.0 * (double)(n * size), [&] {
        return memopt_cuda_norm_backward(&ops, &x, b->stream); });
    bench_free((void *)(uintptr_t)x.input); bench_free(x.output); bench_free((void *)(uintptr_t)x.grad_output);
    bench_free(x.grad_input); bench_free(x.statistics); bench_free((void *)(uintptr_t)x.scale);
    bench_free((void *)(uintptr_t)x.shift); bench_free(x.grad_scale); bench_free(x.grad_shift); bench_free(ops.d_scratch);
}
static void bench_entropy(bench_card *b, const char *name, size_t vocabulary, size_t rows, memopt_type type) {
    memopt_cross_entropy x; memopt_cuda_ops ops; size_t bytes, i; const size_t size = memopt_type_bytes(type);
    memopt_loss *d_loss = (memopt_loss *)bench_device(sizeof *d_loss); int32_t *targets;
    memset(&x, 0, sizeof x); memset(&ops, 0, sizeof ops);
    x.rows = rows; x.vocabulary = vocabulary; x.type = type; x.logits = bench_device(rows * vocabulary * size);
    targets = (int32_t *)malloc(rows * 4); x.targets = (int32_t *)bench_device(rows * 4);
    for (i = 0; i < rows; ++i) targets[i] = (int32_t)(i * 31 % vocabulary);
    bench_runtime(cudaMemcpy((void *)(uintptr_t)x.targets, targets, rows * 4, cudaMemcpyHostToDevice), "copy");
    bench_check(memopt_cuda_cross_entropy_scratch(&ops, &x, &bytes), name);
    ops.d_scratch = bench_device(bytes); ops.scratch_bytes = bytes;
    bench_kernel(b, name, rows * vocabulary, 2.0 * (double)(rows * vocabulary * size), [&] {
        return memopt_cuda_cross_entropy_loss(&ops, &x, d_loss, b->stream); });
    free(targets); bench_free(x.logits); bench_free((void *)(uintptr_t)x.targets); bench_free(ops.d_scratch);
    bench_free(d_loss);
}
static void bench_layers(bench_card *b) {
    const size_t n = BENCH_ELEMENTS; memopt_dropout drop; memopt_activation_args gelu; memopt_swiglu swiglu;
    void *x = bench_device(n * 2), *y = bench_device(n * 2), *z = bench_device(n * 2);
    memset(&drop, 0, sizeof drop); memset(&gelu, 0, sizeof gelu); memset(&swiglu, 0, sizeof swiglu);
    drop.n = n; drop.type = MEMOPT_TYPE_BF16; drop.rate = 0.1f; drop.noise = memopt_noise_make(1, 2);
    drop.input = x; drop.residual = y; drop.output = z;
    bench_kernel(b, "residual_dropout_bf16", n, 6.0 * (double)n, [&] {
        return memopt_cuda_dropout_forward(NULL, &drop, b->stream); });
    gelu.n = n; gelu.activation = MEMOPT_ACTIVATION_GELU; gelu.type = MEMOPT_TYPE_BF16;
    gelu.input = x; gelu.output = y; gelu.grad_output = z; gelu.grad_input = z;
    bench_kernel(b, "gelu_bf16", n, 4.0 * (double)n, [&] {
        return memopt_cuda_activation_forward(NULL, &gelu, b->stream); });
    gelu.output = NULL;
    bench_kernel(b, "gelu_backward_bf16", n, 6.0 * (double)n, [&] {
        return memopt_cuda_activation_backward(NULL, &gelu, b->stream); });
    swiglu.rows = n / 2 / 8192; swiglu.width = 8192; swiglu.type = MEMOPT_TYPE_BF16; swiglu.input = x; swiglu.output = y;
    bench_kernel(b, "swiglu_bf16", n / 2, 3.0 * (double)n, [&] {
        return memopt_cuda_swiglu_forward(NULL, &swiglu, b->stream); });
    bench_free(x); bench_free(y); bench_free(z);
}

/* ---- products: against cuBLASLt called bare, and against themselves without what is fused ---- */
typedef struct bench_bare {
    cublasLtHandle_t handle; cublasLtMatmulDesc_t what; cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulHeuristicResult_t found; void *d_workspace;
} bench_bare;
static void bench_blas(cublasStatus_t s) { bench_check(s ? MEMOPT_CUDA_BASE_BLAS + (int)s : 0, "cuBLASLt"); }
/* output = input * weights^T, all n x n bf16: column by column it is weights^T (turned) times input. */
static void bench_bare_open(bench_bare *p, size_t n) {
    const cublasOperation_t turned = CUBLAS_OP_T; cublasLtMatmulPreference_t wish; int count = 0;
    size_t bytes = MEMOPT_CUDA_GEMM_WORKSPACE;
    memset(p, 0, sizeof *p);
    p->d_workspace = bench_device(bytes);
    bench_blas(cublasLtCreate(&p->handle));
    bench_blas(cublasLtMatmulDescCreate(&p->what, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    bench_blas(cublasLtMatmulDescSetAttribute(p->what, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned));
    bench_blas(cublasLtMatrixLayoutCreate(&p->a, CUDA_R_16BF, n, n, (int64_t)n));
    bench_blas(cublasLtMatrixLayoutCreate(&p->b, CUDA_R_16BF, n, n, (int64_t)n));
    bench_blas(cublasLtMatrixLayoutCreate(&p->c, CUDA_R_16BF, n, n, (int64_t)n));
    bench_blas(cublasLtMatmulPreferenceCreate(&wish));
    bench_blas(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
    bench_blas(cublasLtMatmulAlgoGetHeuristic(p->handle, p->what, p->a, p->b, p->c, p->c, wish, 1, &p->found, &count));
    bench_blas(cublasLtMatmulPreferenceDestroy(wish));
    if (!count) { fprintf(stderr, "bench_cuda: cuBLASLt has no algorithm for the bare product\n"); exit(1); }
}
static void bench_bare_close(bench_bare *p) {
    cublasLtMatrixLayoutDestroy(p->a); cublasLtMatrixLayoutDestroy(p->b); cublasLtMatrixLayoutDestroy(p->c);
    cublasLtMatmulDescDestroy(p->what); cublasLtDestroy(p->handle); bench_free(p->d_workspace);
}
static memopt_cuda_gemm *bench_gemm(void **memory, void **d_workspace) {
    memopt_cuda_gemm_desc d; memopt_cuda_gemm *gemm; size_t bytes;
    memset(&d, 0, sizeof d);
    d.d_workspace = *d_workspace = bench_device(MEMOPT_CUDA_GEMM_WORKSPACE);
    d.workspace_bytes = MEMOPT_CUDA_GEMM_WORKSPACE;
    bench_check(memopt_cuda_gemm_bytes(&d, &bytes), "gemm");
    *memory = malloc(bytes);
    bench_check(memopt_cuda_gemm_create(&d, *memory, bytes, &gemm), "gemm");
    return gemm;
}
static void bench_linear(bench_card *b) {
    const size_t n = BENCH_SIDE; const float one = 1, zero = 0; void *memory, *d_workspace; memopt_linear plain, biased, lively;
    void *x = bench_device(n * n * 2), *w = bench_device(n * n * 2), *y = bench_device(n * n * 2);
    void *bias = bench_device(n * 2); memopt_cuda_ops ops; bench_bare bare; const cudaStream_t s = b->stream;
    memset(&ops, 0, sizeof ops); memset(&plain, 0, sizeof plain);
    ops.gemm = bench_gemm(&memory, &d_workspace);
    bench_bare_open(&bare, n);
    plain.rows = plain.inputs = plain.outputs = n;
    plain.type = plain.weight_type = plain.gradient_type = MEMOPT_TYPE_BF16;
    plain.input = x; plain.weights = w; plain.output = y;
    biased = plain; biased.bias = bias;
    lively = biased; lively.activation = MEMOPT_ACTIVATION_GELU;
    bench_pair(b, "linear_bf16_8192", n, 0, [&] { bench_check(memopt_cuda_linear_forward(&ops, &plain, s), "linear"); },
        [&] { bench_blas(cublasLtMatmul(bare.handle, bare.what, &one, w, bare.a, x, bare.b, &zero, y, bare.c, y, bare.c,
                                        &bare.found.algo, bare.d_workspace, MEMOPT_CUDA_GEMM_WORKSPACE, s)); });
    bench_pair(b, "linear_bias_gelu_fused", n, 0,
        [&] { bench_check(memopt_cuda_linear_forward(&ops, &lively, s), "linear"); },
        [&] { bench_check(memopt_cuda_linear_forward(&ops, &plain, s), "linear"); });
    if (ops.gemm->capability >= 89) { /* quantised and multiplied, against the product in bf16 */
        memopt_cuda_linear_fp8 kept; memopt_fp8_scale *scales = (memopt_fp8_scale *)bench_device(3 * sizeof *scales);
        bench_runtime(cudaMemset(scales, 0, 3 * sizeof *scales), "cudaMemset");
        memset(&kept, 0, sizeof kept);
        kept.d_input_scale = scales; kept.d_weight_scale = scales + 1; kept.d_gradient_scale = scales + 2; kept.delayed = 1;
        kept.d_input = (uint8_t *)bench_device(n * n); kept.d_weights = (uint8_t *)bench_device(n * n);
        bench_check(memopt_cuda_linear_fp8_scratch(&ops, &plain, &ops.scratch_bytes), "linear_fp8");
        ops.d_scratch = bench_device(ops.scratch_bytes);
        bench_pair(b, "linear_fp8_8192", n, 0,
            [&] { bench_check(memopt_cuda_linear_forward_fp8(&ops, &plain, &kept, s), "linear_fp8"); },
            [&] { bench_check(memopt_cuda_linear_forward(&ops, &plain, s), "linear"); });
        bench_free(scales); bench_free(kept.d_input); bench_free(kept.d_weights); bench_free(ops.d_scratch);
    }
    bench_bare_close(&bare); memopt_cuda_gemm_destroy(ops.gemm); free(memory); bench_free(d_workspace);
    bench_free(x); bench_free(w); bench_free(y); bench_free(bias);
}
/* ---- Muon: one matrix of 8192 x 8192 with an 8-bit momentum, against the 15 products of its step, bare ---- */
typedef struct bench_matrix {
    memopt_optim_tensor tensor;
    memopt_cuda_muon muon;
    memopt_cuda_gemm *gemm;
    memopt_optim *optim;
    void  *gemm_memory, *object, *d_workspace, *d_scratch;
    size_t scratch;
} bench_matrix;
static void bench_matrix_open(bench_matrix *m, const char *name, size_t n, cudaStream_t stream) {
    memopt_optim_tensor *t = &m->tensor;
    memopt_optim_desc d;
    size_t object, state;

    memset(m, 0, sizeof *m);
    memset(&d, 0, sizeof d);
    m->gemm = bench_gemm(&m->gemm_memory, &m->d_workspace);
    t->count = n * n;
    t->columns = n;
    t->weights = bench_device(t->count * 4);
    t->gradients = bench_device(t->count * 4);
    bench_check(memopt_cuda_random_normal((float *)(uintptr_t)t->gradients, t->count, 1, 2, 0, stream), name);
    d.kind = MEMOPT_OPTIM_MUON;
    d.state = MEMOPT_STATE_8BIT;
    d.muon = memopt_cuda_muon_products(&m->muon, m->gemm, MEMOPT_TYPE_BF16);
    d.tensors = t;
    d.tensor_count = 1;
    bench_check(memopt_optim_bytes(&d, &object), name);
    bench_check(memopt_optim_state_bytes(&d, 0, &state), name);
    t->state = bench_device(state);
    m->object = memopt_i_system_alloc(NULL, object, 64);
    bench_check(memopt_optim_create(&d, m->object, object, &m->optim), name);
    bench_check(memopt_cuda_optim_state_init(m->optim, 0, stream), name);
    bench_check(memopt_cuda_optim_scratch(m->optim, &m->scratch), name);
    m->d_scratch = bench_device(m->scratch);
}
static void bench_matrix_close(bench_matrix *m) {
    memopt_cuda_gemm_destroy(m->gemm);
    free(m->gemm_memory);
    memopt_i_system_free(NULL, m->object, 0, 64);
    bench_free(m->tensor.weights);
    bench_free((void *)(uintptr_t)m->tensor.gradients);
    bench_free(m->tensor.state);
    bench_free(m->d_workspace);
    bench_free(m->d_scratch);
}
static void bench_muon(bench_card *b, const char *name) {
    const memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_MUON);
    const size_t n = BENCH_SIDE;
    const float one = 1;
    const float zero = 0;
    memopt_optim_run run;
    bench_matrix m;
    bench_bare bare;
    void *product;

    if (!bench_wanted(b, name)) return;
    bench_matrix_open(&m, name, n, b->stream);
    bench_bare_open(&bare, n);
    product = bench_device(n * n * 2);
    memset(&run, 0, sizeof run);
    run.step = 1;
    run.groups = &group;
    run.group_count = 1;
    bench_pair(b, name, n, 0, [&] {
        bench_check(memopt_cuda_optim_step(m.optim, &run, m.d_scratch, m.scratch, b->stream), name);
        ++run.step;
    }, [&] {
        for (int i = 0; i < 15; ++i)
            bench_blas(cublasLtMatmul(bare.handle, bare.what, &one, m.tensor.gradients, bare.a, m.tensor.weights,
                                      bare.b, &zero, product, bare.c, product, bare.c, &bare.found.algo,
                                      bare.d_workspace, MEMOPT_CUDA_GEMM_WORKSPACE, b->stream));
    });
    bench_bare_close(&bare);
    bench_matrix_close(&m);
    bench_free(product);
}
/* Attention of 4,096 rows against bare products of as many operations, 2 of 8192^3 in forward, 5 in backward: making scores
   again, and the half of a diagonal tile that a mask throws away, are not counted. */
static void bench_attention(bench_card *b, const char *forward, const char *backward, size_t width, int causal) {
    const size_t n = BENCH_SIDE, length = bench_size(4096, 128), heads = bench_size(16, 1), batch = n * 4 * (causal ? 2 : 1) / width / heads, each = batch * length * heads * width;
    const float one = 1, zero = 0; const cudaStream_t s = b->stream; memopt_attention x; memopt_cuda_ops ops; bench_bare bare; void *all[8]; size_t i;
    float *random; void *product, *memory, *d_workspace;
    if (!bench_wanted(b, forward) && !bench_wanted(b, backward)) return;
    memset(&x, 0, sizeof x); memset(&ops, 0, sizeof ops);
    ops.gemm = bench_gemm(&memory, &d_workspace);
    random = (float *)bench_device(each * 4); product = bench_device(n * n * 2);
    for (i = 0; i < 8; ++i) {
        all[i] = bench_device(each * 2);
        bench_check(memopt_cuda_random_normal(random, each, 1, i, 0, s), "random_normal");
        bench_check(memopt_cuda_bf16_from_f32((uint16_t *)all[i], random, each, s), "bf16_from_f32");
    }
    x.batch = batch; x.length = length; x.heads = heads; x.width = width; x.causal = causal; x.online = 1; x.type = MEMOPT_TYPE_BF16;
    x.queries = all[0]; x.keys = all[1]; x.values = all[2]; x.output = all[3]; x.grad_output = all[4];
    x.grad_queries = all[5]; x.grad_keys = all[6]; x.grad_values = all[7];
    x.statistics = (float *)bench_device(batch * heads * length * sizeof(float));
    bench_check(memopt_cuda_attention_scratch(&ops, &x, &ops.scratch_bytes), "attention");
    ops.d_scratch = bench_device(ops.scratch_bytes);
    bench_bare_open(&bare, n);
    const auto products = [&](int count) {
        while (count--) bench_blas(cublasLtMatmul(bare.handle, bare.what, &one, all[0], bare.a, all[1], bare.b, &zero, product, bare.c, product, bare.c,
                                                  &bare.found.algo, bare.d_workspace, MEMOPT_CUDA_GEMM_WORKSPACE, s));
    };
    bench_pair(b, forward, length, 0, [&] { bench_check(memopt_cuda_attention_forward(&ops, &x, s), forward); }, [&] { products(2); });
    bench_pair(b, backward, length, 0, [&] { bench_check(memopt_cuda_attention_backward(&ops, &x, s), backward); }, [&] { products(5); });
    bench_bare_close(&bare); memopt_cuda_gemm_destroy(ops.gemm); free(memory); bench_free(d_workspace); bench_free(random); bench_free(product); bench_free(x.statistics); bench_free(ops.d_scratch);
    for (i = 0; i < 8; ++i) bench_free(all[i]);
}
/* By chunks against all rows at once. The limit has the memory for whole logits. */
static void bench_head(bench_card *b) {
    const size_t rows = bench_size(32768, 64), width = bench_size(4096, 64), vocabulary = bench_size(128256, 512); memopt_head chunked, whole; memopt_cuda_ops ops, wide;
    void *memory, *d_workspace; size_t bytes, i; memopt_loss *d_loss = (memopt_loss *)bench_device(sizeof *d_loss);
    int32_t *targets = (int32_t *)malloc(rows * 4); const cudaStream_t s = b->stream;
    if (!bench_wanted(b, "head_chunked")) { free(targets); bench_free(d_loss); return; }
    memset(&chunked, 0, sizeof chunked); memset(&ops, 0, sizeof ops);
    ops.gemm = bench_gemm(&memory, &d_workspace);
    chunked.rows = rows; chunked.width = width; chunked.vocabulary = vocabulary;
    chunked.type = chunked.weight_type = MEMOPT_TYPE_BF16; chunked.gradient_type = MEMOPT_TYPE_F32;
    chunked.input = bench_device(rows * width * 2); chunked.weights = bench_device(vocabulary * width * 2);
    chunked.targets = (int32_t *)bench_device(rows * 4); chunked.grad_input = bench_device(rows * width * 2);
    chunked.grad_weights = bench_device(vocabulary * width * 4);
    for (i = 0; i < rows; ++i) targets[i] = (int32_t)(i * 31 % vocabulary);
    bench_runtime(cudaMemcpy((void *)(uintptr_t)chunked.targets, targets, rows * 4, cudaMemcpyHostToDevice), "copy");
    whole = chunked; whole.chunk = rows; wide = ops;
    bench_check(memopt_cuda_head_scratch(&wide, &whole, &bytes), "head");
    wide.d_scratch = bench_device(bytes); wide.scratch_bytes = bytes;
    bench_check(memopt_cuda_head_scratch(&ops, &chunked, &bytes), "head");
    ops.d_scratch = bench_device(bytes); ops.scratch_bytes = bytes;
    if (!b->table.json) printf("head_chunked: %.2f GB of scratch, whole logits %.2f GB\n", (double)bytes / 1e9,
                               (double)wide.scratch_bytes / 1e9);
    bench_pair(b, "head_chunked", rows, 0, [&] { bench_check(memopt_cuda_head_loss(&ops, &chunked, d_loss, s), "head"); },
               [&] { bench_check(memopt_cuda_head_loss(&wide, &whole, d_loss, s), "head"); });
    memopt_cuda_gemm_destroy(ops.gemm); free(memory); free(targets); bench_free(d_workspace); bench_free(d_loss);
    bench_free((void *)(uintptr_t)chunked.input); bench_free((void *)(uintptr_t)chunked.weights);
    bench_free((void *)(uintptr_t)chunked.targets); bench_free(chunked.grad_input); bench_free(chunked.grad_weights);
    bench_free(ops.d_scratch); bench_free(wide.d_scratch);
}

int main(int argc, char **argv) {
    bench_card b; cudaDeviceProp card; int count = 0, driver = 0, i; size_t k;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || !count) {
        printf("SKIP: no CUDA device here (%s)\n", error == cudaSuccess ? "none" : cudaGetErrorString(error));
        return 0;
    }
    memset(&b, 0, sizeof b);
    b.rounds = BENCH_ROUNDS;
    b.only = (char **)calloc((size_t)argc, sizeof *b.only);
    if (!b.only) return 1;
    for (i = 1; i < argc; ++i) {
        if (!strcmp(argv[i], "--quick")) b.rounds = 3;
        else if (!strcmp(argv[i], "--tiny")) bench_tiny = b.rounds = 1;
        else if (!strcmp(argv[i], "--json")) b.table.json = 1;
        else b.only[b.only_count++] = argv[i];
    }
    bench_runtime(cudaGetDeviceProperties(&card, 0), "device");
    bench_runtime(cudaDriverGetVersion(&driver), "driver");
    if (!b.table.json) {
        (void)bench_begin(0, NULL, "cuda");
        printf("%s, sm_%d%d, driver for CUDA %d.%d, runtime %d.%d\n", card.name, card.major, card.minor,
               driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    }
    bench_runtime(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking), "stream");
    bench_runtime(cudaEventCreate(&b.begin), "event"); bench_runtime(cudaEventCreate(&b.end), "event");
    b.copy_bytes = BENCH_ELEMENTS * 24;
    b.d_from = (char *)bench_device(b.copy_bytes); b.d_to = (char *)bench_device(b.copy_bytes);
    bench_numbers(&b);
    for (k = 0; k < sizeof bench_optim_kinds / sizeof *bench_optim_kinds; ++k) bench_optim(&b, &bench_optim_kinds[k]);
    bench_offload(&b, "adamw_f32_offloaded", MEMOPT_STATE_F32, 16);
    bench_offload(&b, "adamw_8bit_offloaded", MEMOPT_STATE_8BIT, 4.0625);
    bench_scale(&b);
    bench_norms(&b, 768, MEMOPT_TYPE_BF16, "layer_norm_bf16_768", "layer_norm_back_bf16_768");
    bench_norms(&b, 4096, MEMOPT_TYPE_BF16, "layer_norm_bf16_4096", "layer_norm_back_bf16_4096");
    bench_norms(&b, 4096, MEMOPT_TYPE_F32, "layer_norm_f32_4096", "layer_norm_back_f32_4096");
    bench_entropy(&b, "cross_entropy_bf16_50304", 50304, bench_size(8192, 2), MEMOPT_TYPE_BF16);
    bench_entropy(&b, "cross_entropy_bf16_128256", 128256, bench_size(4096, 1), MEMOPT_TYPE_BF16);
    bench_entropy(&b, "cross_entropy_f32_50304", 50304, bench_size(4096, 1), MEMOPT_TYPE_F32);
    bench_layers(&b);
    bench_linear(&b);
    bench_muon(&b, "muon_8bit_8192");
    bench_attention(&b, "attention_64", "attention_64_back", 64, 0);
    bench_attention(&b, "attention_64_causal", "attention_64_causal_back", 64, 1);
    bench_attention(&b, "attention_128", "attention_128_back", 128, 0);
    bench_attention(&b, "attention_128_causal", "attention_128_causal_back", 128, 1);
    bench_head(&b);
    bench_free(b.d_from); bench_free(b.d_to);
    free(b.only);
    return 0;
}
