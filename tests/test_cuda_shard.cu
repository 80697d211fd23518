/* test_cuda_shard.cu - a shard whose weights and gradients lie on a device: the bits of a shard of one rank on the CPU, under
   streams that run as late as they may, at once, or at random. Ranks are threads that take turns, over the NCCL adapter. */
#include "test_cuda.h"
#ifndef __CUDACC__
#  include <nccl.h> /* and threads that take turns */
#  include "examples/adapters/nccl.h"
#endif

/* Ranks at most: a card has one, and the thread sanitizer takes the simulator's fibers for those of one thread. */
#if defined(__CUDACC__) || defined(SIMULATOR_TSAN)
enum { CUDA_SHARD_MOST = 1 };
#else
enum { CUDA_SHARD_MOST = 4 };
#endif
enum { CUDA_SHARD_TENSORS = 6, CUDA_SHARD_GROUPS = 4, CUDA_SHARD_ALL = 8192 };
static const memopt_shard_tensor cuda_shard_model[CUDA_SHARD_TENSORS] = { /* count, columns, rates, group, adamw */
    { 700, 70, 0, 0, 0, 0 }, { 96, 0, 1, 0, 1, 0 }, { 1500, 50, 0, 1, 0, 0 }, { 1, 0, 1, 1, 1, 0 }, { 1024, 256, 0, 2, 0, 0 }, { 300, 0, 1, 3, 1, 0 } };

typedef struct cuda_shard_case {
    int stage; size_t ranks, units, steps; int clips, inside; memopt_i_weights form; memopt_type gradients; memopt_state_format state; memopt_optim_kind kind;
    size_t bucket; int stops, there; /* the device adds and steps */
    int counted; /* number and factor of a step are on the device; 2: a step is captured once, and every step is its graph */
    size_t shares; /* 0; or so many times `ranks`, each with other tensors of the model: `others` */
    size_t together; /* ranks that compute a unit; 0: one */
    int interleaved; /* groups 3 and 2 are a round before 1 and 0 */
    int large; /* one tensor of several pieces of a norm, which is only measured; 2: with what is not finite */
} cuda_shard_case;
/* Tensor 0 is of the first share alone, and 2 of the last one. */
static int cuda_shard_absent(const cuda_shard_case *c, size_t share, size_t t) { return c->shares > 1 && (t == 0 ? share > 0 : t == 2 && share + 1 < c->shares); }
/* What is left of a run: weights and extra whole, and the norm. */
typedef struct cuda_shard_end { unsigned char weights[CUDA_SHARD_TENSORS][CUDA_SHARD_ALL], extra[CUDA_SHARD_TENSORS][CUDA_SHARD_ALL], used[CUDA_SHARD_TENSORS][CUDA_SHARD_ALL]; float moments[CUDA_SHARD_TENSORS][2][2048], probe[256]; double norm; } cuda_shard_end;

/* ---- the engine: a gradient from the weights as they are computed with ---- */
MEMOPT_I_HOST_DEVICE static float cuda_shard_gradient(const void *weights, int is_16, size_t i, uint32_t key) {
    const float w = is_16 ? memopt_i_bits_float((uint32_t)((const uint16_t *)weights)[i] << 16) : ((const float *)weights)[i];
    uint32_t x = ((uint32_t)i + 1) * 2654435761u ^ key * 0x9e3779b9u;
    x ^= x >> 15; x *= 0x85ebca6bu; x ^= x >> 13;
    return memopt_i_sum((float)((int)(x % 4001u) - 2000) / 1024, memopt_i_times(0.25f, w));
}
static __global__ void cuda_shard_kernel(const void *weights, int is_16, void *out, int out_16, size_t n, uint32_t key) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (out_16) ((uint16_t *)out)[i] = memopt_to_bf16(cuda_shard_gradient(weights, is_16, i, key));
    else ((float *)out)[i] = cuda_shard_gradient(weights, is_16, i, key);
}
/* That of a unit of several ranks, of which each key is one's. */
static float cuda_shard_tree(const void *weights, int is_16, size_t i, uint32_t key, size_t together) {
    const size_t half = together / 2;
    if (together < 2) return cuda_shard_gradient(weights, is_16, i, key);
    return memopt_i_sum(cuda_shard_tree(weights, is_16, i, key, half), cuda_shard_tree(weights, is_16, i, key + 16 * (uint32_t)half, half));
}
static uint32_t cuda_shard_key(size_t tensor, size_t unit, size_t step) { return (uint32_t)(tensor + 16 * unit + 256 * step + 1); }
static int cuda_shard_is_16(const cuda_shard_case *c) { return c->form != MEMOPT_I_WEIGHTS_F32; }
static memopt_status cuda_shard_compute(const cuda_shard_case *c, memopt_shard *x, size_t t, size_t unit, size_t step, cudaStream_t stream, int on_device) {
    const void *w = memopt_shard_weights(x, t); void *out = memopt_shard_gradients(x, t); const size_t n = cuda_shard_model[t].count, k = c->together ? c->together : 1; const uint32_t key = cuda_shard_key(t, unit * k + (on_device ? x->rank % k : 0), step);
    const int from_16 = cuda_shard_is_16(c), to_16 = c->gradients == MEMOPT_TYPE_BF16; size_t i;
    if (x->tensors[t].absent) return MEMOPT_OK;
    if (!w || !out) return MEMOPT_ERR_CORRUPT;
    if (on_device) {
        MEMOPT_I_CUDA_LAUNCH(cuda_shard_kernel, (unsigned)((n + 63) / 64), 64, 0, stream, w, from_16, out, to_16, n, key);
        return cudaGetLastError() == cudaSuccess ? MEMOPT_OK : MEMOPT_ERR_DEVICE;
    }
    for (i = 0; i < n; ++i) {
        if (to_16) ((uint16_t *)out)[i] = memopt_to_bf16(cuda_shard_gradient(w, from_16, i, key));
        else ((float *)out)[i] = cuda_shard_tree(w, from_16, i, key, k);
    }
    return MEMOPT_OK;
}
static memopt_status cuda_shard_two(const cuda_shard_case *c, memopt_shard *x, size_t unit, size_t step, cudaStream_t stream, size_t first) { /* backwards of two groups, as of a stage among several */
    memopt_status s = MEMOPT_OK; size_t g, t;
    for (g = first + 1; !s && g + 1 > first; --g) {
        s = memopt_shard_backward(x, g);
        for (t = 0; !s && t < CUDA_SHARD_TENSORS; ++t) if (cuda_shard_model[t].group == g) s = cuda_shard_compute(c, x, t, unit, step, stream, 1);
        if (!s) s = memopt_shard_reduce(x, g);
        if (!g) break;
    }
    return s;
}
static memopt_status cuda_shard_rounds(const cuda_shard_case *c, memopt_shard *x, size_t step, cudaStream_t stream) {
    const size_t rounds = c->units / c->ranks; size_t first, turn; memopt_status s = memopt_shard_next_unit(x, &first);
    for (turn = 0; !s && turn <= rounds; ++turn) {
        if (turn < rounds) s = cuda_shard_two(c, x, first + turn * c->ranks, step, stream, 2);
        if (!s && turn) s = cuda_shard_two(c, x, first + (turn - 1) * c->ranks, step, stream, 0);
    }
    return s ? s : memopt_shard_next_unit(x, &first);
}
static memopt_status cuda_shard_unit(const cuda_shard_case *c, memopt_shard *x, size_t unit, size_t step, cudaStream_t stream, int on_device) {
    memopt_status s = MEMOPT_OK; size_t g, t;
    if (unit == MEMOPT_SHARD_NO_UNIT) return memopt_shard_skip_unit(x);
    for (g = 0; !s && g < CUDA_SHARD_GROUPS; ++g) s = memopt_shard_forward(x, g);
    while (!s && g-- > 0) {
        s = memopt_shard_backward(x, g);
        for (t = 0; !s && t < CUDA_SHARD_TENSORS; ++t) if (cuda_shard_model[t].group == g) s = cuda_shard_compute(c, x, t, unit, step, stream, on_device);
        if (!s && c->stops && g == 2 && on_device && cudaMemsetAsync(memopt_shard_gradients(x, 4), 0xFF, 64, stream)) s = MEMOPT_ERR_DEVICE;
        if (!s) s = memopt_shard_reduce(x, g);
    }
    return s;
}
/* Weights are read once more before the step: what it brings back must not come too early. */
static memopt_status cuda_shard_probe(const cuda_shard_case *c, memopt_shard *x, cudaStream_t stream, int on_device, void *to) {
    const memopt_status s = memopt_shard_forward(x, 0); const void *w = memopt_shard_weights(x, 0); size_t i;
    if (s || !w || x->tensors[0].absent) return s;
    for (i = 0; !on_device && i < 256; ++i) ((float *)to)[i] = cuda_shard_gradient(w, cuda_shard_is_16(c), i, 5);
    if (!on_device) return MEMOPT_OK;
    MEMOPT_I_CUDA_LAUNCH(cuda_shard_kernel, 4, 64, 0, stream, w, cuda_shard_is_16(c), to, 0, (size_t)256, 5u);
    return cudaGetLastError() == cudaSuccess ? MEMOPT_OK : MEMOPT_ERR_DEVICE;
}
typedef struct cuda_shard_graph { cudaGraph_t graph; cudaGraphExec_t exec; } cuda_shard_graph;
static void cuda_shard_begin_graph(cudaStream_t stream) {
    test_cuda_must(cudaStreamSynchronize(stream), "synchronize");
    test_cuda_must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin");
}
static void cuda_shard_end_graph(cuda_shard_graph *g, cudaStream_t stream) {
    test_cuda_must(cudaStreamEndCapture(stream, &g->graph), "end");
    test_cuda_must(cudaGraphInstantiate(&g->exec, g->graph, 0), "instantiate");
}
static void cuda_shard_drop_graph(const cuda_shard_graph *g, cudaStream_t stream) {
    test_cuda_must(cudaStreamSynchronize(stream), "synchronize");
    test_cuda_must(cudaGraphExecDestroy(g->exec), "exec");
    test_cuda_must(cudaGraphDestroy(g->graph), "graph");
}
static memopt_status cuda_shard_train(const cuda_shard_case *c, memopt_shard *x, cudaStream_t stream, int on_device, double *norm, void *probe) {
    memopt_optim_group rates[2]; memopt_optim_run run; memopt_gradient_total total; memopt_status s; size_t t, i, step, unit = 0; double clip = 1; cuda_shard_graph graph;
    rates[0] = rates[1] = memopt_optim_group_default(c->kind);
    rates[1].rate *= 0.5; rates[1].weight_decay = 0;
    for (t = 0; t < CUDA_SHARD_TENSORS; ++t) {
        static unsigned char room[2][CUDA_SHARD_ALL]; memopt_optim_tensor part; const int there = on_device && c->there; void *weights, *extra; const size_t wide = c->form == MEMOPT_I_WEIGHTS_F32 || c->form == MEMOPT_I_WEIGHTS_F32_BF16 ? 4 : 2;
        memset(&part, 0, sizeof part);
        CHECK(memopt_shard_part(x, t, &part) == MEMOPT_OK);
        weights = there ? room[0] : part.weights; extra = there ? room[1] : part.extra;
        for (i = 0; i < part.held; ++i) {
            const float w = (float)((double)(((part.first + i) * 40503u + t * 977u) % 4093) / 2048 - 1);
            if (wide == 4) ((float *)weights)[i] = w;
            else if (c->form == MEMOPT_I_WEIGHTS_SPLIT) CHECK(memopt_f32_split((uint16_t *)weights + i, (uint16_t *)extra + i, &w, 1, NULL) == MEMOPT_OK);
            else ((uint16_t *)weights)[i] = memopt_to_bf16(w);
        }
        if (!there || !part.held) continue;
        if (cudaMemcpyAsync(part.weights, weights, part.held * wide, cudaMemcpyHostToDevice, stream) || (c->form == MEMOPT_I_WEIGHTS_SPLIT && cudaMemcpyAsync(part.extra, extra, part.held * 2, cudaMemcpyHostToDevice, stream))) { (void)cudaGetLastError(); return MEMOPT_ERR_DEVICE; }
    }
    s = memopt_shard_share(x);
    for (step = 1; !s && step <= c->steps; ++step) {
        const int is_graph = on_device && c->counted == 2, alone = c->ranks == 1; /* of several ranks only the step itself is captured */
        const size_t rounds = memopt_i_ceil_div(c->units * (c->together && on_device ? c->together : 1), c->ranks); size_t round = 0; const int apart = c->interleaved && on_device;
        memset(&run, 0, sizeof run);
        run.step = step; run.groups = rates; run.group_count = 2; run.fused = c->inside; run.gradient_factor = on_device && c->counted ? 0 : 1 / (double)c->units;
        if (is_graph && alone && step == 1) cuda_shard_begin_graph(stream);
        if (apart) s = cuda_shard_rounds(c, x, step, stream);
        for (; !apart && (!is_graph || !alone || step == 1); ++round) {
            if (c->inside && round + 1 == rounds) s = memopt_shard_step_inside(x, &run);
            if (!s) s = memopt_shard_next_unit(x, &unit);
            if (s || unit == MEMOPT_SHARD_DONE) break;
            s = cuda_shard_unit(c, x, unit, c->counted ? 1 : step, stream, on_device); /* what a graph computes does not know the step */
            if (s) break;
        }
        if (!s && c->clips) {
            s = memopt_shard_measure(x, NULL, &total);
            if (s) break;
            *norm = total.squares;
            CHECK(memopt_clip_norm(sqrt(total.squares) / (double)c->units, 3, &clip) == MEMOPT_OK);
            run.gradient_factor = clip / (double)c->units;
        }
        if (!s && !c->inside && (!is_graph || !alone || step == 1)) s = cuda_shard_probe(c, x, stream, on_device, probe);
        if (is_graph && !alone && step == 1) cuda_shard_begin_graph(stream);
        if (!s && (!is_graph || step == 1)) s = memopt_shard_step(x, &run);
        if (is_graph && step == 1) cuda_shard_end_graph(&graph, stream);
        if (is_graph && !s) test_cuda_must(cudaGraphLaunch(graph.exec, stream), "launch");
        if (is_graph && !s && !alone && step > 1) s = memopt_shard_cancel(x);
    }
    if (on_device && c->counted == 2 && step > 1) cuda_shard_drop_graph(&graph, stream);
    return s;
}
static void cuda_shard_get(void *to, const void *from, size_t bytes, int there, cudaStream_t stream, memopt_status *s) {
    if (!there) memcpy(to, from, bytes);
    else if (cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream) || cudaStreamSynchronize(stream)) { (void)cudaGetLastError(); *s = MEMOPT_ERR_DEVICE; }
}
/* This rank's part of what is left; and of all what a forward would compute with. */
static memopt_status cuda_shard_look(const cuda_shard_case *c, memopt_shard *x, cudaStream_t stream, int on_device, cuda_shard_end *end) {
    const size_t stored = c->form == MEMOPT_I_WEIGHTS_F32 || c->form == MEMOPT_I_WEIGHTS_F32_BF16 ? 4 : 2, used = cuda_shard_is_16(c) ? 2 : 4; size_t t, m; memopt_status s = MEMOPT_OK; const int there = on_device && c->there;
    for (t = 0; t < CUDA_SHARD_TENSORS; ++t) {
        memopt_optim_tensor part; memopt_optim_view view;
        CHECK(memopt_shard_part(x, t, &part) == MEMOPT_OK);
        if (!part.held) continue;
        cuda_shard_get(end->weights[t] + part.first * stored, part.weights, part.held * stored, there, stream, &s);
        if (part.extra) cuda_shard_get(end->extra[t] + part.first * 2, part.extra, part.held * 2, there, stream, &s);
        memset(&view, 0, sizeof view);
        (void)memopt_i_state_layout(&memopt_shard_optim(x)->parts[t], &memopt_shard_optim(x)->desc, &part, &view);
        for (m = 0; m < 2; ++m) if (view.moment[m]) cuda_shard_get((unsigned char *)end->moments[t][m] + part.first * (size_t)view.bits / 8, view.moment[m], part.held * (size_t)view.bits / 8, there, stream, &s);
    }
    for (t = 0; !s && t < CUDA_SHARD_TENSORS; ++t) {
        s = memopt_shard_forward(x, cuda_shard_model[t].group);
        if (s) break;
        if (x->tensors[t].absent) continue;
        if (!on_device) { memcpy(end->used[t], memopt_shard_weights(x, t), cuda_shard_model[t].count * used); continue; }
        if (cudaMemcpyAsync(end->used[t], memopt_shard_weights(x, t), cuda_shard_model[t].count * used, cudaMemcpyDeviceToHost, stream) || cudaStreamSynchronize(stream)) { (void)cudaGetLastError(); s = MEMOPT_ERR_DEVICE; }
    }
    return s;
}
/* The norm of a tensor of four pieces, which borders of ranks cut. */
static const memopt_shard_tensor cuda_shard_one[1] = { { 3 * 65536 + 999, 0, 0, 0, 0, 0 } };
static memopt_status cuda_shard_measure(const cuda_shard_case *c, memopt_shard *x, cudaStream_t stream, int on_device, cuda_shard_end *end) {
    memopt_status s = memopt_shard_share(x); memopt_gradient_total total; size_t unit, i; const size_t n = cuda_shard_one[0].count; static float host[3 * 65536 + 999];
    while (!s && !(s = memopt_shard_next_unit(x, &unit)) && unit != MEMOPT_SHARD_DONE) {
        float *out;
        if ((s = memopt_shard_forward(x, 0)) || (s = memopt_shard_backward(x, 0))) break;
        out = (float *)memopt_shard_gradients(x, 0);
        for (i = 0; i < n; ++i) host[i] = (float)((int)((i * 2654435761u + unit * 40503u) % 4001) - 2000) / 1024;
        if (c->large == 2) host[70000] = host[196700] = INFINITY;
        if (!on_device) memcpy(out, host, n * sizeof *host);
        else if (cudaMemcpyAsync(out, host, n * sizeof *host, cudaMemcpyHostToDevice, stream)) { (void)cudaGetLastError(); s = MEMOPT_ERR_DEVICE; }
        if (!s) s = memopt_shard_reduce(x, 0);
    }
    if (!s) s = memopt_shard_measure(x, NULL, &total);
    if (s) return s;
    end->norm = c->large == 2 ? (double)total.nonfinite : total.squares;
    return memopt_shard_cancel(x);
}
static memopt_shard_desc cuda_shard_desc(const cuda_shard_case *c) {
    memopt_shard_desc d;
    memset(&d, 0, sizeof d);
    d.interleaved = c->interleaved; d.unit_ranks = c->ranks > 1 ? c->together : 0;
    d.stage = c->stage; d.tensors = cuda_shard_model; d.tensor_count = CUDA_SHARD_TENSORS; d.units = c->units; d.gradients = c->gradients; d.bucket_bytes = c->bucket; d.tile = 512;
    d.optim.kind = c->kind; d.optim.state = c->state; d.optim.seed = 77; d.optim.min_quantized = 1000;
    test_set_weights(&d.optim, c->form);
    if (c->large) { d.tensors = cuda_shard_one; d.tensor_count = 1; }
    return d;
}
static void cuda_shard_reference(const cuda_shard_case *c, cuda_shard_end *end) {
    cuda_shard_case one = *c; memopt_shard_desc d; memopt_shard *x = NULL;
    one.ranks = 1; one.stage = 0; one.interleaved = 0;
    memset(end, 0, sizeof *end);
    d = cuda_shard_desc(&one);
    CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK);
    if (c->large) CHECK(x && cuda_shard_measure(&one, x, NULL, 0, end) == MEMOPT_OK);
    else CHECK(x && cuda_shard_train(&one, x, NULL, 0, &end->norm, end->probe) == MEMOPT_OK && cuda_shard_look(&one, x, NULL, 0, end) == MEMOPT_OK);
    memopt_shard_close(x);
}

/* ---- a rank on the device ---- */
enum { CUDA_SHARD_COMMS = 2 }; /* of a rank: its own, and `others` */
typedef struct cuda_shard_run { const cuda_shard_case *c; cuda_shard_end end; memopt_status status[4]; int is_opened[4]; size_t fail; } cuda_shard_run; /* fail: the call that fails, from when all are open */
static memopt_arena *cuda_shard_arena(memopt_source *source, size_t bytes) {
    memopt_arena_desc d; memopt_arena *a = NULL;
    memset(&d, 0, sizeof d);
    d.source = source; d.capacity = bytes;
    CHECK(memopt_arena_create(&d, &a) == MEMOPT_OK);
    return a;
}
#ifndef __CUDACC__
static ncclUniqueId cuda_shard_ids[CUDA_SHARD_COMMS][CUDA_SHARD_MOST];
static void cuda_shard_meet(cuda_shard_run *r, int rank, int place) { /* all ranks are there */
    const size_t all = r->c->ranks * (r->c->shares ? r->c->shares : 1); size_t i;
    r->is_opened[rank] = place;
    for (i = 0; i < all; ++i) while (r->is_opened[i] < place) (void)sched_yield();
}
#endif
static void cuda_shard_rank(cuda_shard_run *r, int rank) {
    const cuda_shard_case *c = r->c; memopt_shard_desc d = cuda_shard_desc(c); const size_t share = (size_t)rank / c->ranks, number = (size_t)rank % c->ranks; memopt_shard_tensor tensors[CUDA_SHARD_TENSORS]; memopt_shard_bytes b; memopt_shard *x = NULL; memopt_cuda_shard cuda; memopt_shard_device table; memopt_shard_kernels kernels;
    memopt_cuda_memory memory[2]; memopt_source sources[2]; memopt_arena *arenas[2]; cudaStream_t stream = NULL; double norm = 0; memopt_status s = MEMOPT_OK; void *probe = NULL; size_t t;
#ifndef __CUDACC__
    const size_t all = c->ranks * (c->shares ? c->shares : 1); memopt_nccl nccl[CUDA_SHARD_COMMS]; size_t i;
#endif
    memopt_comm_desc cd[CUDA_SHARD_COMMS];
    (void)number;
    memset(cd, 0, sizeof cd);
    memcpy(tensors, cuda_shard_model, sizeof tensors);
    test_cuda_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    test_cuda_must(cudaMalloc(&probe, sizeof r->end.probe), "probe"); test_cuda_must(cudaMemsetAsync(probe, 0, sizeof r->end.probe, stream), "probe");
    CHECK(memopt_cuda_shard_open(0, stream, &cuda, &table) == 0);
    if (c->counted) {
        const memopt_cuda_optim_progress begin = { 0, 1 / (double)c->units, 1 };
        test_cuda_must(cudaMalloc((void **)&cuda.d_progress, sizeof begin), "progress");
        test_cuda_must(cudaMemcpy(cuda.d_progress, &begin, sizeof begin, cudaMemcpyHostToDevice), "progress");
    }
    memopt_cuda_shard_kernels(&kernels);
    if (c->there) table.kernels = &kernels;
    d.device = &table;
#ifndef __CUDACC__
    for (i = 0; !rank && i < all; ++i) CHECK(ncclGetUniqueId(&cuda_shard_ids[0][i]) == ncclSuccess && ncclGetUniqueId(&cuda_shard_ids[1][i]) == ncclSuccess);
    while (rank && !r->is_opened[0]) (void)sched_yield();
    r->is_opened[rank] = 1;
    if (c->ranks > 1) CHECK(memopt_nccl_open(&nccl[0], &cuda_shard_ids[0][share], (int)number, (int)c->ranks, stream, 60, &cd[0].transport) == MEMOPT_OK && memopt_comm_create(&cd[0], &d.comm) == MEMOPT_OK);
    if (c->shares > 1) CHECK(memopt_nccl_open(&nccl[1], &cuda_shard_ids[1][number], (int)share, (int)c->shares, stream, 60, &cd[1].transport) == MEMOPT_OK);
#endif
    if (c->shares) {
        for (t = 0; t < CUDA_SHARD_TENSORS; ++t) tensors[t].absent = cuda_shard_absent(c, share, t);
        d.tensors = tensors;
        CHECK(memopt_comm_create(&cd[1], &d.others) == MEMOPT_OK); /* one alone has others, too, who are none */
    }
    CHECK(memopt_shard_plan(&d, &b) == MEMOPT_OK);
    CHECK(memopt_cuda_source_malloc(0, &memory[0], &sources[0]) == 0 && memopt_cuda_source_pinned(0, &memory[1], &sources[1]) == 0);
    arenas[0] = cuda_shard_arena(&sources[0], b.total - b.host);
    arenas[1] = cuda_shard_arena(&sources[1], b.staging);
    d.pinned = arenas[1];
    CHECK(memopt_shard_open(&d, arenas[0], &x) == MEMOPT_OK);
#ifndef __CUDACC__
    cuda_shard_meet(r, rank, 2);
#endif
#ifndef __CUDACC__
    if (!rank && r->fail) simulator_fail_call(r->fail);
#endif
    s = !x ? MEMOPT_ERR_MEMORY : c->large ? cuda_shard_measure(c, x, stream, 1, &r->end) : cuda_shard_train(c, x, stream, 1, &norm, probe);
    if (!s && !c->large) s = cuda_shard_look(c, x, stream, 1, &r->end);
    if (!s && !c->large && !share && (cudaMemcpyAsync(r->end.probe, probe, sizeof r->end.probe, cudaMemcpyDeviceToHost, stream) || cudaStreamSynchronize(stream))) { (void)cudaGetLastError(); s = MEMOPT_ERR_DEVICE; }
    if (norm > 0) r->end.norm = norm;
    r->status[rank] = s;
    if (s && !memopt_shard_error(x).status) { memopt_comm_abort(d.comm); memopt_comm_abort(d.others); } /* the engine's own failure */
#ifndef __CUDACC__
    if (s) simulator_fail_call(0);
    cuda_shard_meet(r, rank, 3); /* memory is given back when no kernel waits for another rank's */
#endif
    memopt_shard_close(x);
#ifndef __CUDACC__
    if (c->ranks > 1) { memopt_comm_destroy(d.comm); CHECK(memopt_nccl_close(&nccl[0]) == MEMOPT_OK); }
    if (c->shares > 1) { memopt_comm_destroy(d.others); d.others = NULL; CHECK(memopt_nccl_close(&nccl[1]) == MEMOPT_OK); }
#endif
    memopt_comm_destroy(d.others);
    memopt_arena_destroy(arenas[1]); memopt_arena_destroy(arenas[0]);
    test_cuda_must(cudaFree(probe), "probe"); test_cuda_must(cudaFree(cuda.d_progress), "progress");
    CHECK((memopt_cuda_shard_close(&cuda) == 0 || r->fail) && memopt_cuda_shard_close(&cuda) == 0);
    test_cuda_must(cudaStreamDestroy(stream), "stream");
    CHECK(cudaGetLastError() == cudaSuccess); /* of this thread */
}
#ifndef __CUDACC__
static cuda_shard_run *cuda_shard_running;
static void *cuda_shard_thread_of(void *user) {
    cuda_shard_rank(cuda_shard_running, (int)(uintptr_t)user);
    return NULL;
}
#endif
/* All ranks; returns 1 where all of them have trained. */
static int cuda_shard_play(const cuda_shard_case *c, cuda_shard_run *r, size_t fail) {
    const size_t all = c->ranks * (c->shares ? c->shares : 1); size_t i; int fine = 1;
    memset(r, 0, sizeof *r);
    r->c = c; r->fail = fail;
#ifndef __CUDACC__
    if (all > 1) {
        pthread_t threads[CUDA_SHARD_MOST];
        cuda_shard_running = r;
        for (i = 0; i < all; ++i) if (pthread_create(&threads[i], NULL, cuda_shard_thread_of, (void *)(uintptr_t)i)) exit(2);
        for (i = 0; i < all; ++i) (void)pthread_join(threads[i], NULL);
    } else
#endif
    cuda_shard_rank(r, 0);
    for (i = 0; i < all; ++i) fine &= !r->status[i];
    return fine;
}
static void cuda_shard_order(int i) { simulator_streams(i == 0 ? MODE_LAZY : i == 1 ? MODE_EAGER : MODE_RANDOM, (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) + 1); }
static cuda_shard_case cuda_shard_usual(void) {
    cuda_shard_case c;
    memset(&c, 0, sizeof c);
    c.ranks = 1; c.units = 3; c.steps = 2; c.form = MEMOPT_I_WEIGHTS_SPLIT; c.gradients = MEMOPT_TYPE_BF16; c.state = MEMOPT_STATE_8BIT; c.kind = MEMOPT_OPTIM_ADAMW; c.bucket = 4096 * 2;
    return c;
}
static uint64_t cuda_shard_id(const cuda_shard_case *c, int order) { return (uint64_t)order + 1000 * c->ranks + 10000 * (uint64_t)c->stage + 100000 * (uint64_t)c->form + 1000000 * (uint64_t)c->kind; }
static void cuda_shard_check(const cuda_shard_case *c, const cuda_shard_end *want, int orders) {
    static cuda_shard_run r; int i;
    for (i = 0; i < (test_on_card() ? 1 : orders); ++i) {
        cuda_shard_order(i);
        CHECK_AT(cuda_shard_play(c, &r, 0), cuda_shard_id(c, i));
        CHECK_AT(!memcmp(&r.end, want, sizeof *want), cuda_shard_id(c, i));
    }
    simulator_streams(MODE_EAGER, 0);
}

/* ---- the tests ---- */
static void cuda_shard_offload(void) { /* every form, stage and number of ranks */
    cuda_shard_case c = cuda_shard_usual(); static cuda_shard_end want; int form;
    for (form = 0; form < 4; ++form) {
        c.form = (memopt_i_weights)form; c.clips = form % 2; c.inside = 0; c.gradients = form % 2 ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16;
        cuda_shard_reference(&c, &want);
        c.inside = !c.clips; /* weights of the device are not looked at before its end */
        if (c.inside) memset(want.probe, 0, sizeof want.probe);
        for (c.ranks = 1; c.ranks <= CUDA_SHARD_MOST; ++c.ranks) for (c.stage = c.ranks > 1; c.stage < 4; ++c.stage) { c.bucket = c.ranks * 2 * 256 * (c.stage == 1 ? 4 : 8); cuda_shard_check(&c, &want, form ? 3 : 8); }
        c.ranks = 1;
    }
}
/* The same where the device adds and steps. */
static void cuda_shard_there(void) {
    static const memopt_optim_kind kinds[4] = { MEMOPT_OPTIM_ADAMW, MEMOPT_OPTIM_LION, MEMOPT_OPTIM_SGD, MEMOPT_OPTIM_RMSPROP }; cuda_shard_case c = cuda_shard_usual(); static cuda_shard_end want; int form;
    for (form = 0; form < 4; ++form) {
        c.form = (memopt_i_weights)form; c.clips = form % 2; c.inside = 0; c.gradients = form % 2 ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16; c.kind = kinds[(form + 1) % 4]; c.state = form == 2 ? MEMOPT_STATE_F32 : MEMOPT_STATE_8BIT;
        c.there = 0; cuda_shard_reference(&c, &want);
        c.there = 1; c.inside = form == 2;
        if (c.inside) memset(want.probe, 0, sizeof want.probe);
        for (c.ranks = 1; c.ranks <= CUDA_SHARD_MOST; ++c.ranks) for (c.stage = c.ranks > 1; c.stage < 4; ++c.stage) { c.bucket = c.ranks * 2 * 256 * (c.stage == 1 ? 4 : 8); cuda_shard_check(&c, &want, form ? 2 : 4); }
        c.ranks = 1;
    }
}
/* Number and factor of a step on the device; and such a step captured, which goes on from step to step. */
static void cuda_shard_counted(void) {
    static const memopt_optim_kind kinds[4] = { MEMOPT_OPTIM_ADAMW, MEMOPT_OPTIM_SGD, MEMOPT_OPTIM_ADAM, MEMOPT_OPTIM_LION }; cuda_shard_case c = cuda_shard_usual(); static cuda_shard_end want; int form;
    c.there = 1; c.steps = 4;
    for (form = 0; form < 4; ++form) {
        c.form = (memopt_i_weights)form; c.kind = kinds[form]; c.gradients = form % 2 ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16; c.state = form % 2 ? MEMOPT_STATE_BF16 : MEMOPT_STATE_8BIT; c.counted = 1;
        cuda_shard_reference(&c, &want);
        for (c.ranks = 1; c.ranks < 3 && c.ranks <= CUDA_SHARD_MOST; ++c.ranks) for (c.stage = c.ranks > 1; c.stage < 4; ++c.stage) {
            c.bucket = c.ranks * 2 * 256 * 4; c.counted = c.ranks == 1 || c.stage == 3 ? 2 : 1;
            cuda_shard_check(&c, &want, 2);
        }
        c.ranks = 1;
    }
}
/* The host has a factor, and the device another: refused, and the step can be made again. */
static void cuda_shard_two_factors(void) {
    memopt_shard_desc d; memopt_cuda_shard cuda; memopt_shard_device table; memopt_shard_kernels kernels; memopt_optim_group rates[2]; memopt_optim_run run; memopt_cuda_memory memory; memopt_source source; memopt_arena *arena; memopt_shard_bytes b; memopt_shard *x = NULL;
    cuda_shard_case c = cuda_shard_usual(); memopt_cuda_optim_progress progress = { 0, 1, 1 }; size_t unit = 0; cudaStream_t stream;
    c.units = c.there = 1; c.form = MEMOPT_I_WEIGHTS_F32; c.gradients = MEMOPT_TYPE_F32;
    d = cuda_shard_desc(&c);
    test_cuda_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    CHECK(memopt_cuda_shard_open(0, stream, &cuda, &table) == 0);
    memopt_cuda_shard_kernels(&kernels);
    table.kernels = &kernels; d.device = &table;
    CHECK(memopt_shard_plan(&d, &b) == MEMOPT_OK && memopt_cuda_source_malloc(0, &memory, &source) == 0);
    arena = cuda_shard_arena(&source, b.total - b.host);
    CHECK(memopt_shard_open(&d, arena, &x) == MEMOPT_OK);
    test_cuda_must(cudaMalloc((void **)&cuda.d_progress, sizeof progress), "progress");
    test_cuda_must(cudaMemcpy(cuda.d_progress, &progress, sizeof progress, cudaMemcpyHostToDevice), "progress");
    rates[0] = rates[1] = memopt_optim_group_default(c.kind);
    memset(&run, 0, sizeof run);
    run.step = 1; run.groups = rates; run.group_count = 2; run.gradient_factor = 0.5;
    CHECK(memopt_shard_share(x) == MEMOPT_OK);
    CHECK(memopt_shard_next_unit(x, &unit) == MEMOPT_OK && cuda_shard_unit(&c, x, unit, 1, stream, 1) == MEMOPT_OK && memopt_shard_next_unit(x, &unit) == MEMOPT_OK && unit == MEMOPT_SHARD_DONE);
    CHECK(memopt_shard_step(x, &run) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_error_says(memopt_shard_error(x), MEMOPT_ERR_ARGUMENT, "the run has a gradient factor, and the device another"));
    test_cuda_must(cudaStreamSynchronize(stream), "synchronize");
    test_cuda_must(cudaMemcpy(&progress, cuda.d_progress, sizeof progress, cudaMemcpyDeviceToHost), "progress");
    CHECK(progress.steps == 0);
    run.gradient_factor = 0;
    CHECK(memopt_shard_step(x, &run) == MEMOPT_OK);
    test_cuda_must(cudaStreamSynchronize(stream), "synchronize");
    test_cuda_must(cudaMemcpy(&progress, cuda.d_progress, sizeof progress, cudaMemcpyDeviceToHost), "progress");
    CHECK(progress.steps == 1);
    memopt_shard_close(x); memopt_arena_destroy(arena);
    test_cuda_must(cudaFree(cuda.d_progress), "progress");
    CHECK(memopt_cuda_shard_close(&cuda) == 0);
    test_cuda_must(cudaStreamDestroy(stream), "stream");
}
static void cuda_shard_norm(void) {
    cuda_shard_case c = cuda_shard_usual(); static cuda_shard_end want;
    c.form = MEMOPT_I_WEIGHTS_F32; c.gradients = MEMOPT_TYPE_F32; c.state = MEMOPT_STATE_F32; c.units = 2; c.bucket = 1 << 20;
    for (c.large = 1; c.large < 3; ++c.large) {
        c.ranks = 1; cuda_shard_reference(&c, &want);
        CHECK(c.large == 1 ? want.norm > 1000 : want.norm > 1 && want.norm < 3);
        for (c.ranks = 1; c.ranks <= CUDA_SHARD_MOST; ++c.ranks) { c.stage = 1 + (int)c.ranks % 3; c.there = c.ranks != 3; cuda_shard_check(&c, &want, 2); }
    }
}
/* A gradient that is not finite, in a step inside backward: the device tells at its end. */
static void cuda_shard_stopped(void) {
    cuda_shard_case c = cuda_shard_usual(); static cuda_shard_run r;
    c.form = MEMOPT_I_WEIGHTS_F32; c.gradients = MEMOPT_TYPE_F32; c.units = 1; c.stage = 2; c.inside = c.there = 1; c.stops = 1;
    CHECK(!cuda_shard_play(&c, &r, 0) && r.status[0] == MEMOPT_ERR_STATE);
}
static void cuda_shard_kinds(void) {
    static const memopt_optim_kind kinds[3] = { MEMOPT_OPTIM_LAMB, MEMOPT_OPTIM_ADAFACTOR, MEMOPT_OPTIM_LION }; cuda_shard_case c = cuda_shard_usual(); static cuda_shard_end want; int i;
    for (i = 0; i < 3; ++i) {
        c.kind = kinds[i]; c.ranks = 1; c.stage = 2;
        cuda_shard_reference(&c, &want);
        cuda_shard_check(&c, &want, 3);
        c.ranks = 2; c.stage = 1 + i;
        if (CUDA_SHARD_MOST > 1) cuda_shard_check(&c, &want, 4);
    }
}
/* LAMB, LARS and Adafactor, stepped by the device of one rank; the second time number and factor are the device's, in a graph. */
static void cuda_shard_measures(void) {
    static const memopt_optim_kind kinds[3] = { MEMOPT_OPTIM_LAMB, MEMOPT_OPTIM_LARS, MEMOPT_OPTIM_ADAFACTOR }; cuda_shard_case c = cuda_shard_usual(); static cuda_shard_end want; int i;
    c.there = 1; c.steps = 3;
    for (i = 0; i < 6; ++i) {
        c.kind = kinds[i % 3]; c.counted = i / 3; c.clips = !c.counted && i == 1; c.form = (memopt_i_weights)((i + i / 3) % 4); c.state = i % 2 ? MEMOPT_STATE_F32 : MEMOPT_STATE_8BIT; c.gradients = i % 2 ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16;
        cuda_shard_reference(&c, &want);
        c.counted *= 2;
        for (c.stage = 0; c.stage < 4; c.stage += 1 + c.counted) cuda_shard_check(&c, &want, 2);
    }
}
/* Ranks with other tensors, whose norm is that of all. By the device also kinds that measure, of which a rank has not all. */
static void cuda_shard_shares(void) {
    static const memopt_optim_kind kinds[5] = { MEMOPT_OPTIM_ADAMW, MEMOPT_OPTIM_LAMB, MEMOPT_OPTIM_ADAFACTOR, MEMOPT_OPTIM_LARS, MEMOPT_OPTIM_LION }; static const size_t shapes[4][2] = { { 1, 1 }, { 1, 2 }, { 1, 3 }, { 2, 2 } };
    cuda_shard_case c = cuda_shard_usual(); static cuda_shard_end want; size_t i; int k;
    c.clips = 1;
    for (k = 0; k < 5; ++k) {
        c.kind = kinds[k]; c.form = (memopt_i_weights)(k % 4); c.gradients = k % 2 ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16; c.state = k % 2 ? MEMOPT_STATE_F32 : MEMOPT_STATE_8BIT; c.ranks = 1; c.shares = 0;
        cuda_shard_reference(&c, &want);
        for (i = 0; i < 4; ++i) for (c.there = 0; c.there < 2; ++c.there) {
            c.ranks = shapes[i][0]; c.shares = shapes[i][1]; c.stage = 1 + (k + (int)i) % 3; c.bucket = c.ranks * 2 * 256 * 4;
            if (c.ranks * c.shares <= CUDA_SHARD_MOST && (c.ranks == 1 || !c.there || !memopt_i_kind_measures(c.kind))) cuda_shard_check(&c, &want, 3);
        }
    }
}
/* Each group counts its rounds: what it has sent of one has left before the next backward writes. */
static void cuda_shard_interleaved(void) {
    cuda_shard_case c = cuda_shard_usual(); static cuda_shard_end want; int type;
    c.units = 4; c.clips = 1;
    for (type = 0; type < 2; ++type) {
        c.gradients = type ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16; c.ranks = 1; c.shares = 0; c.interleaved = 0;
        cuda_shard_reference(&c, &want);
        c.interleaved = 1;
        for (c.there = 0; c.there < 2; ++c.there) for (c.ranks = 1; c.ranks <= 2; ++c.ranks) for (c.stage = c.ranks > 1; c.stage < 2; ++c.stage) for (c.shares = 0; c.shares < 3; c.shares += 2) {
            c.bucket = c.ranks * 2 * 256 * (type ? 4 : 8);
            if (c.ranks * (c.shares ? c.shares : 1) <= CUDA_SHARD_MOST) cuda_shard_check(&c, &want, 6);
        }
    }
}
static void cuda_shard_together(void) { /* a rank alone of a unit's is none */
    cuda_shard_case c = cuda_shard_usual(); static cuda_shard_end want;
    c.gradients = MEMOPT_TYPE_F32; c.units = 3; c.clips = 1;
    for (c.together = 2; c.together <= CUDA_SHARD_MOST; c.together *= 2) {
        c.ranks = 1;
        cuda_shard_reference(&c, &want);
        for (c.there = 0; c.there < 2; ++c.there) for (c.ranks = c.together; c.ranks <= CUDA_SHARD_MOST; c.ranks *= 2) for (c.stage = 1; c.stage < 4; ++c.stage) { c.bucket = c.ranks * 2 * 256 * 4; cuda_shard_check(&c, &want, 3); }
    }
    if (CUDA_SHARD_MOST == 1) SKIP("one rank");
}
/* Their kernel alone: trees of pieces that lie apart, also of what is not finite. */
static void cuda_shard_trees(void) {
    enum { COUNT = 700, APART = 712, PIECES = 16 };
    static const uint32_t odd[4] = { 0x7f800000u, 0xff800000u, 0x7fc00001u, 0x80000000u };
    static float pieces[PIECES * APART], tree[PIECES], want[COUNT], got[COUNT]; memopt_cuda_shard x; memopt_shard_device table; memopt_shard_kernels k; float *d_sums, *d_pieces; size_t i, p, half, together; int start;
    CHECK(memopt_cuda_shard_open(0, NULL, &x, &table) == 0);
    memopt_cuda_shard_kernels(&k);
    for (i = 0; i < PIECES * APART; ++i) pieces[i] = i % 97 == 5 ? memopt_i_bits_float(odd[i / 97 % 4]) : (float)((int)(i * 2654435761u % 60001u) - 30000) / 7;
    d_sums = (float *)test_device(sizeof got); d_pieces = (float *)test_device(sizeof pieces);
    test_put(d_pieces, pieces, sizeof pieces);
    for (together = 1; together <= PIECES; together *= 2) for (start = 0; start < 2; ++start) {
        for (i = 0; i < COUNT; ++i) {
            want[i] = (float)i;
            for (p = 0; p < PIECES; p += together) {
                for (half = 0; half < together; ++half) tree[half] = pieces[(p + half) * APART + i];
                for (half = together; half > 1; half /= 2) { size_t n; for (n = 0; n < half / 2; ++n) tree[n] = memopt_i_sum(tree[2 * n], tree[2 * n + 1]); }
                memopt_i_v1_add_weighted(want + i, tree, 1, 1, start && !p);
            }
            got[i] = (float)i;
        }
        test_put(d_sums, got, sizeof got);
        CHECK_AT(k.add_fn(table.user, d_sums, d_pieces, MEMOPT_TYPE_F32, APART * sizeof(float), COUNT, PIECES, together, start) == MEMOPT_OK, together);
        test_get(got, d_sums, sizeof got);
        CHECK_AT(!memcmp(got, want, sizeof want), together * 2 + (size_t)start);
    }
    CHECK(memopt_cuda_shard_close(&x) == 0);
}
/* Every call of the runtime fails once, from the first sharing of weights on, of all ranks: who is told of it has a status, nothing hangs, nothing is left. */
static void cuda_shard_fails(void) {
    cuda_shard_case c = cuda_shard_usual(); static cuda_shard_end want; static cuda_shard_run r; size_t n, failed = 0;
    if (test_on_card()) { SKIP("a card does not fail on demand"); return; }
    c.steps = 1; c.clips = 1;
    cuda_shard_reference(&c, &want);
    for (c.ranks = 1; c.ranks < 3 && c.ranks <= CUDA_SHARD_MOST; ++c.ranks) {
        c.stage = c.ranks == 1 ? 2 : 3;
        for (n = 1; n < 5000; n += c.ranks == 1 || n < 20 ? 1 : 11) {
            const size_t before = simulator_calls(); int fine;
            cuda_shard_order((int)(n % 12));
            fine = cuda_shard_play(&c, &r, n);
            simulator_fail_call(0);
            CHECK_AT(cudaGetLastError() == cudaSuccess, n);
            if (!fine) { ++failed; continue; }
            CHECK_AT(!memcmp(&r.end, &want, sizeof want), n); /* a query that failed was asked again, or there was no n-th call */
            if (simulator_calls() - before < n) break;
        }
        CHECK(n < 5000 && failed > 40);
    }
    simulator_streams(MODE_EAGER, 0);
}
/* What failed on the device is told there, whichever call it was. */
static void cuda_shard_tells(memopt_cuda_shard *x, memopt_shard_device *table) {
    memopt_status s = MEMOPT_ERR_DEVICE; void *d_floats = NULL; size_t n;
    CHECK(cudaMalloc(&d_floats, 64) == cudaSuccess);
    for (n = 1; s && n < 20; ++n) {
        x->status = 0;
        simulator_fail_call(n);
        s = table->zero_fn(table->user, d_floats, 64);
        simulator_fail_call(0);
        CHECK_AT(s ? s == MEMOPT_ERR_DEVICE && x->status >= MEMOPT_CUDA_BASE_RUNTIME : !x->status, n);
    }
    CHECK(n > 2 && n < 20 && cudaFree(d_floats) == cudaSuccess);
    x->status = 0;
}
/* A copy that has failed does not arrive any more, also where the device that was current cannot be put back. */
static void cuda_shard_late(void) {
    unsigned char *d = (unsigned char *)test_device(64), got[64]; void *pinned = NULL; size_t n; int up;
    if (test_on_card()) { SKIP("a card does not fail on demand"); return; }
    CHECK(cudaHostAlloc(&pinned, 64, cudaHostAllocPortable) == cudaSuccess);
    for (up = 0; up < 2; ++up) for (n = 1; n < 50; ++n) {
        memopt_cuda_shard x; memopt_shard_device table; memopt_status s;
        CHECK(memopt_cuda_shard_open(0, NULL, &x, &table) == 0);
        simulator_streams(MODE_LAZY, n);
        memset(pinned, 1, 64);
        test_poison(d, 64);
        CHECK(cudaSetDevice(1) == cudaSuccess);
        simulator_fail_call(n);
        s = up ? table.copy_in_fn(table.user, d, pinned, 64, 0) : table.copy_out_fn(table.user, pinned, d, 64, 0, 0);
        simulator_fail_call(0);
        CHECK(cudaSetDevice(0) == cudaSuccess);
        if (s) memset(pinned, 2, 64); /* the caller's again */
        test_synchronize();
        test_get(got, d, 64);
        if (s) CHECK_AT(memchr(got, 2, 64) == NULL && *(unsigned char *)pinned == 2 && x.status >= MEMOPT_CUDA_BASE_RUNTIME, n);
        else CHECK_AT(*(unsigned char *)pinned == (up ? 1 : 0xFF) && got[0] == (up ? 1 : 0xFF), n);
        CHECK_AT(memopt_cuda_shard_close(&x) == 0 && cudaGetLastError() == cudaSuccess, n);
        if (!s) break;
    }
    CHECK(n > 4 && n < 50 && cudaFreeHost(pinned) == cudaSuccess);
    simulator_streams(MODE_EAGER, 0);
}
static void cuda_shard_refuses(void) {
    memopt_cuda_shard x; memopt_shard_device table; size_t n;
    CHECK(memopt_cuda_shard_open(0, NULL, NULL, &table) == MEMOPT_CUDA_ERR_NULL && memopt_cuda_shard_open(0, NULL, &x, NULL) == MEMOPT_CUDA_ERR_NULL);
    CHECK(memopt_cuda_shard_open(99, NULL, &x, &table) == MEMOPT_ERR_ARGUMENT && memopt_cuda_shard_close(NULL) == 0);
    for (n = 1; !test_on_card() && n < 100; ++n) {
        memopt_cuda_status s;
        simulator_fail_call(n);
        s = memopt_cuda_shard_open(0, NULL, &x, &table);
        simulator_fail_call(0);
        if (!s) break;
        CHECK_AT(s >= MEMOPT_CUDA_BASE_RUNTIME && !simulator_live(LIVE_STREAMS) && !simulator_live(LIVE_EVENTS), n);
    }
    if (!test_on_card()) { cuda_shard_tells(&x, &table); CHECK(n > 9 && n < 100 && memopt_cuda_shard_close(&x) == 0); }
    CHECK(!simulator_live(LIVE_STREAMS) && !simulator_live(LIVE_EVENTS));
}
static void test_cuda_shard(void) {
    RUN(cuda_shard_refuses); RUN(cuda_shard_late); RUN(cuda_shard_offload); RUN(cuda_shard_there); RUN(cuda_shard_counted); RUN(cuda_shard_two_factors); RUN(cuda_shard_norm); RUN(cuda_shard_stopped); RUN(cuda_shard_kinds); RUN(cuda_shard_measures); RUN(cuda_shard_shares); RUN(cuda_shard_interleaved); RUN(cuda_shard_together); RUN(cuda_shard_trees); RUN(cuda_shard_fails);
}
#ifndef TEST_COMBINED
int main(void) { test_cuda_shard(); return test_totals(); }
#endif
