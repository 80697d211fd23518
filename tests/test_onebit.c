/* test_onebit.c - one bit an element: published vectors, a plain model of all ranks, failures, saves, a small training. */
#include "test.h"
#include <float.h>
#if FLT_EVAL_METHOD == 2 /* x87 rounds sums in double twice: it is outside the promise of equal bits */
#  define ONEBIT_X87 1
#else
#  define ONEBIT_X87 0
#endif

/* ---- ranks as threads, each with its own comm; or one alone, where there are no threads ---- */
enum { ONEBIT_RANKS = 8, ONEBIT_TENSORS = 4 };
typedef struct onebit_world {
    size_t ranks;
    void (*fn)(struct onebit_world *w, size_t rank, memopt_comm *comm);
    void *data;
    memopt_ranks *threads;
    size_t fail_rank, fail_begin, fail_wait; /* the transport of one rank fails in its nth begin or wait; 0: never */
    memopt_status status[ONEBIT_RANKS];
} onebit_world;
typedef struct onebit_faulty { memopt_transport inner; size_t fail_begin, fail_wait, begins, waits; uint64_t delay; } onebit_faulty;
static memopt_status onebit_faulty_begin(void *user, const memopt_comm_call *call, size_t slot, memopt_error *error) {
    onebit_faulty *f = (onebit_faulty *)user; const size_t delay = test_below(&f->delay, 500); volatile size_t i;
    for (i = 0; i < delay; i = i + 1) {}
    if (++f->begins == f->fail_begin) { error->reason = "is on fire"; error->index = f->inner.rank; return MEMOPT_ERR_IO; }
    return f->inner.begin_fn(f->inner.user, call, slot, error);
}
static memopt_status onebit_faulty_wait(void *user, size_t slot, memopt_error *error) {
    onebit_faulty *f = (onebit_faulty *)user; const memopt_status s = f->inner.wait_fn(f->inner.user, slot, error);
    if (++f->waits == f->fail_wait) { error->reason = "is on fire"; error->index = f->inner.rank; return MEMOPT_ERR_IO; }
    return s;
}
static void onebit_faulty_abort(void *user) { onebit_faulty *f = (onebit_faulty *)user; f->inner.abort_fn(f->inner.user); }
static void onebit_rank(void *task, size_t rank, int worker) {
    onebit_world *w = (onebit_world *)task; memopt_comm_desc d; memopt_comm *comm = NULL; onebit_faulty f;
    (void)worker;
    memset(&d, 0, sizeof d); memset(&f, 0, sizeof f);
    f.inner = d.transport = memopt_ranks_transport(w->threads, rank);
    f.delay = rank * 77 + 1;
    if (w->fail_begin || w->fail_wait) d.unchecked = 1; /* the calls counted are those of the optimizer */
    if (w->fail_rank == rank) { f.fail_begin = w->fail_begin; f.fail_wait = w->fail_wait; }
    d.transport.begin_fn = onebit_faulty_begin; d.transport.wait_fn = onebit_faulty_wait; d.transport.abort_fn = onebit_faulty_abort;
    d.transport.user = &f;
    CHECK(memopt_comm_create(&d, &comm) == MEMOPT_OK);
    if (!comm) { f.inner.abort_fn(f.inner.user); return; }
    w->fn(w, rank, comm);
    memopt_comm_abort(comm); /* who is done first, and has failed, is not waited for */
    memopt_comm_destroy(comm);
}
static int onebit_play(onebit_world *w) { /* 0: no threads here, so no ranks */
#if defined(MEMOPT_I_POOL)
    memopt_thread_pool *pool = NULL; memopt_threads t; memopt_ranks_desc d;
    memset(&d, 0, sizeof d);
    d.rank_count = w->ranks;
    CHECK(memopt_ranks_create(&d, &w->threads) == MEMOPT_OK && memopt_thread_pool_create(NULL, (int)w->ranks, &pool) == MEMOPT_OK);
    if (!pool || !w->threads) return 0;
    t = memopt_thread_pool_threads(pool);
    if (w->ranks == 1) onebit_rank(w, 0, 0); else t.run_fn(t.user, w->ranks, onebit_rank, w);
    memopt_thread_pool_destroy(pool); memopt_ranks_destroy(w->threads);
    return 1;
#else
    (void)onebit_rank;
    if (w->ranks > 1) return 0;
    w->fn(w, 0, NULL);
    return 1;
#endif
}

/* ---- a model to train: some tensors with gradients made up by seed, rank, step and place ---- */
typedef struct onebit_net {
    memopt_onebit_kind kind; size_t ranks, tensors, counts[ONEBIT_TENSORS]; uint64_t seed, freeze, local_double, local_limit; size_t bucket;
    int level, workers; double decay, factor; size_t steps, save_at, bad_at, bad_rank;
    float bad;                                 /* what the bad rank's gradient is in step bad_at, which is then made again */
    float *weights[ONEBIT_RANKS], *error[ONEBIT_RANKS]; unsigned char *saved[ONEBIT_RANKS];
    memopt_onebit_stats stats[ONEBIT_RANKS]; memopt_onebit_sizes sizes; memopt_status status[ONEBIT_RANKS]; memopt_error why[ONEBIT_RANKS];
    const void *const *resume; size_t resume_ranks; /* go on from there */
    float *const *resume_weights; size_t *met;      /* met: at how many steps weights were to be the same */
    uint64_t comm_sent[ONEBIT_RANKS], save_hash[ONEBIT_RANKS]; const uint64_t *resume_hash; /* of weights, when they are saved */
    uint64_t trail[ONEBIT_RANKS][600];          /* a hash of the weights where they are to be the same; else 0 */
} onebit_net;
static size_t onebit_elements(const onebit_net *net) {
    size_t n = 0, i;
    for (i = 0; i < net->tensors; ++i) n += net->counts[i];
    return n;
}
static float onebit_gradient(const onebit_net *net, size_t rank, uint64_t step, size_t tensor, size_t i) {
    uint64_t s = net->seed * 1000003 + rank * 8191 + step * 131071 + tensor * 524287 + i; const uint64_t r = test_random(&s);
    if (i % 13 == 5) return 0;                                             /* never anything else */
    if (i % 31 == 11 && step < 18) return 0;                               /* late: masked by then, or, in 0/1 Adam's warm-up, counted from then on */
    if (i % 17 == 3) return (float)((int)(r & 15) - 7) * 1.4e-45f;          /* denormal: its square is 0 */
    if (i % 29 == 7) return (float)((int)(r & 1023) - 512) * 1e-12f;
    return (float)((int)(r % 2001) - 1000 + (int)(i % 7) * 100) * (tensor == 1 ? 0.125f : 0.001f);
}
static float onebit_weight(size_t tensor, size_t i) { return tensor == 1 ? 0.0f : (float)((int)((i * 37 + tensor * 11) % 41) - 20) / 16; }
static memopt_optim_group onebit_group_of(const onebit_net *net, uint64_t step) {
    memopt_optim_group g = memopt_optim_group_default(MEMOPT_OPTIM_ADAM);
    g.rate = 0.01 / (double)(1 + step / 20); g.beta2 = 0.97; g.eps = 1e-8; g.weight_decay = net->decay;
    return g;
}
static memopt_onebit_desc onebit_desc_of(const onebit_net *net, memopt_onebit_tensor *tensors, memopt_comm *comm, const memopt_threads *threads) {
    memopt_onebit_desc d;
    memset(&d, 0, sizeof d);
    d.kind = net->kind; d.comm = comm; d.freeze_step = net->freeze; d.local_double = net->local_double; d.local_limit = net->local_limit;
    d.bucket = net->bucket; d.threads = threads; d.tensors = tensors; d.tensor_count = net->tensors;
    return d;
}
static uint64_t onebit_hash(const void *bytes, size_t n) {
    const unsigned char *b = (const unsigned char *)bytes; uint64_t h = UINT64_C(0xcbf29ce484222325);
    while (n--) h = (h ^ *b++) * UINT64_C(0x100000001b3);
    return h;
}
static void onebit_fill(const onebit_net *net, size_t rank, uint64_t step, memopt_onebit_tensor *t) {
    size_t k, i;
    for (k = 0; k < net->tensors; ++k) for (i = 0; i < net->counts[k]; ++i) t[k].gradients[i] = onebit_gradient(net, rank, step, k, i);
}
static void onebit_train(onebit_world *w, size_t rank, memopt_comm *comm) {
    onebit_net *net = (onebit_net *)w->data; memopt_onebit_tensor t[ONEBIT_TENSORS]; test_worker_set set; memopt_onebit *o = NULL;
    const size_t n = onebit_elements(net); memopt_threads threads = test_workers(&set, net->workers, net->level); memopt_onebit_desc d = onebit_desc_of(net, t, comm, &threads); size_t k, i, at = 0; uint64_t step;
    float *gradients = (float *)malloc((n + ONEBIT_TENSORS * 4) * sizeof *gradients); memopt_status s = MEMOPT_OK; memopt_onebit_run run; memopt_optim_group g; memopt_onebit_sizes sizes;
    if (!gradients) return;
    memset(t, 0, sizeof t); memset(&run, 0, sizeof run);
    for (k = 0; k < net->tensors; ++k) {
        t[k].count = net->counts[k]; t[k].weights = net->weights[rank] + at; t[k].gradients = gradients + at + 4 * k;
        for (i = 0; i < 4 && k + 1 < net->tensors; ++i) t[k].gradients[t[k].count + i] = 99; /* nobody's */
        for (i = 0; i < t[k].count; ++i) t[k].weights[i] = net->resume_weights ? net->resume_weights[0][at + i] : onebit_weight(k, i);
        at += t[k].count;
    }
    CHECK(memopt_onebit_bytes(&d, &sizes) == MEMOPT_OK && memopt_onebit_open(&d, NULL, &o) == MEMOPT_OK);
    if (!rank) net->sizes = sizes;
    if (o && net->resume) {
        memopt_onebit_desc old = d; memopt_onebit_sizes z;
        old.comm = NULL; old.rank_count = net->resume_ranks;
        CHECK(memopt_onebit_bytes(&old, &z) == MEMOPT_OK && memopt_onebit_load(o, net->resume, z.state_bytes, net->resume_ranks) == MEMOPT_OK);
        if (net->resume_hash && !memopt_onebit_get_stats(o).is_met) CHECK(net->resume_hash[rank] == onebit_hash(net->weights[rank], n * sizeof(float)));
    }
    memset(&threads, 0xA5, sizeof threads); /* nobody reads it any more */
    run.groups = &g; run.group_count = 1; run.gradient_factor = net->factor;
    while (o && !s && memopt_onebit_get_stats(o).step < net->steps) {
        step = memopt_onebit_get_stats(o).step + 1;
        g = onebit_group_of(net, step);
        onebit_fill(net, rank, step, t);
        if (step == net->bad_at) { /* on one rank: nothing changes anywhere */
            const uint64_t weights = onebit_hash(net->weights[rank], n * sizeof(float)), state = onebit_hash(memopt_onebit_state(o), sizes.state_bytes);
            if (rank == net->bad_rank) t[0].gradients[t[0].count - 1] = net->bad;
            net->status[rank] = memopt_onebit_step(o, &run); net->why[rank] = memopt_onebit_error(o);
            CHECK(weights == onebit_hash(net->weights[rank], n * sizeof(float)) && state == onebit_hash(memopt_onebit_state(o), sizes.state_bytes));
            onebit_fill(net, rank, step, t);
        }
        if (step == net->save_at) net->save_hash[rank] = onebit_hash(net->weights[rank], n * sizeof(float));
        if (step == net->save_at && net->saved[rank]) memcpy(net->saved[rank], memopt_onebit_state(o), sizes.state_bytes);
        s = memopt_onebit_step(o, &run);
        for (k = 0; k + 1 < net->tensors; ++k) for (i = 0; i < 4; ++i) CHECK(t[k].gradients[t[k].count + i] >= 99 && t[k].gradients[t[k].count + i] <= 99);
        if (!s && step < 600 && memopt_onebit_get_stats(o).is_met) net->trail[rank][step] = onebit_hash(net->weights[rank], n * sizeof(float));
    }
    w->status[rank] = s;
    if (o) {
        net->stats[rank] = memopt_onebit_get_stats(o);
        if (s) net->why[rank] = memopt_onebit_error(o);
        if (net->error[rank]) memcpy(net->error[rank], o->state.error, sizes.elements * sizeof(float));
    }
    for (k = 0; k < 3; ++k) net->comm_sent[rank] += memopt_comm_get_stats(comm).sent[k];
    memopt_onebit_close(o);
    free(gradients);
}
static void onebit_net_open(onebit_net *net) {
    const size_t n = onebit_elements(net); size_t r;
    for (r = 0; r < net->ranks; ++r) {
        net->weights[r] = (float *)calloc(n, sizeof(float));
        net->error[r] = (float *)calloc(n + 8 * ONEBIT_TENSORS, sizeof(float));
        net->saved[r] = (unsigned char *)calloc(1, 28 * n + 65536);
    }
}
static void onebit_net_close(onebit_net *net) {
    size_t r;
    for (r = 0; r < net->ranks; ++r) { free(net->weights[r]); free(net->error[r]); free(net->saved[r]); }
}
static int onebit_run_net(onebit_net *net, onebit_world *w) {
    memset(w, 0, sizeof *w);
    w->ranks = net->ranks; w->fn = onebit_train; w->data = net;
    return onebit_play(w);
}
static onebit_net onebit_net_of(memopt_onebit_kind kind, size_t ranks, uint64_t seed) {
    onebit_net net;
    memset(&net, 0, sizeof net);
    net.kind = kind; net.ranks = ranks; net.seed = seed; net.tensors = 3; net.counts[0] = 37; net.counts[1] = 8; net.counts[2] = 601;
    net.freeze = 6; net.steps = 30; net.local_double = 5; net.local_limit = 4; net.bad_at = net.save_at = 0;
    return net;
}

/* ---- the same, plainly: all ranks in one loop. Products that a compiler could fuse are stored ---- */
typedef struct onebit_model {
    const onebit_net *net; size_t n, chunk, tensor_of[ONEBIT_TENSORS + 1];
    float *p, *v, *m, *fresh, *es, *anchor, *out, *u0, *u1, *e[ONEBIT_RANKS], *x[ONEBIT_RANKS], *g[ONEBIT_RANKS], *um[ONEBIT_RANKS], *uu[ONEBIT_RANKS], *pw[ONEBIT_RANKS];
    float scaling[ONEBIT_TENSORS], coefficient[ONEBIT_TENSORS], factor[ONEBIT_TENSORS]; double rates, decays;
    uint64_t every, exact, h, hs, since;
} onebit_model;
static float *onebit_floats(size_t n) { float *x = (float *)calloc(n + 64, sizeof *x); if (!x) exit(1); return x; }
static void onebit_model_open(onebit_model *a, const onebit_net *net) {
    size_t k, i, r;
    memset(a, 0, sizeof *a);
    a->net = net;
    for (k = 0; k < net->tensors; ++k) { a->tensor_of[k] = a->n; a->n += (net->counts[k] + 7) / 8 * 8; a->scaling[k] = a->factor[k] = 1; }
    a->tensor_of[k] = a->n;
    a->chunk = 8 * ((a->n / 8 + net->ranks - 1) / net->ranks);
    a->every = a->h = 1;
    a->p = onebit_floats(a->n); a->v = onebit_floats(a->n); a->m = onebit_floats(a->n); a->fresh = onebit_floats(a->n); a->es = onebit_floats(a->n);
    a->anchor = onebit_floats(a->n); a->out = onebit_floats(a->n); a->u0 = onebit_floats(a->n); a->u1 = onebit_floats(a->n);
    for (r = 0; r < net->ranks; ++r) {
        a->e[r] = onebit_floats(a->n); a->x[r] = onebit_floats(a->n); a->g[r] = onebit_floats(a->n); a->um[r] = onebit_floats(a->n);
        a->uu[r] = onebit_floats(a->n); a->pw[r] = onebit_floats(a->n);
    }
    for (k = 0; k < net->tensors; ++k) for (i = 0; i < net->counts[k]; ++i) a->p[a->tensor_of[k] + i] = onebit_weight(k, i);
}
static void onebit_model_close(onebit_model *a) {
    size_t r;
    free(a->p); free(a->v); free(a->m); free(a->fresh); free(a->es); free(a->anchor); free(a->out); free(a->u0); free(a->u1);
    for (r = 0; r < a->net->ranks; ++r) { free(a->e[r]); free(a->x[r]); free(a->g[r]); free(a->um[r]); free(a->uu[r]); free(a->pw[r]); }
}
/* Sum of squares of [from, to): pieces of a tensor, of 65,536 elements and of a chunk; 16 sums in each. */
static double onebit_model_squares(const onebit_model *a, const float *x, size_t from, size_t to, size_t *live) {
    double all = 0; size_t k, i, j;
    *live = 0;
    for (k = 0; k < a->net->tensors; ++k) {
        const size_t first = a->tensor_of[k], end = first + a->net->counts[k]; double sums[16] = { 0 }; size_t start = first; int open = 0;
        for (i = first; i <= end; ++i) {
            if (i == end || (i - first) % 65536 == 0 || i % a->chunk == 0) {
                double piece = 0;
                for (j = 0; j < 16; ++j) { piece += sums[j]; sums[j] = 0; }
                if (open) all += piece;
                start = i; open = 0;
                if (i == end) break;
            }
            if (i < from || i >= to) continue;
            open = 1;
            sums[(i - start) % 16] += (double)x[i] * (double)x[i];
            *live += a->v[i] > 0;
        }
    }
    return all;
}
static float onebit_model_scale(const onebit_model *a, const float *x, size_t from, size_t to) {
    size_t live; const double squares = onebit_model_squares(a, x, from, to, &live);
    return live ? (float)sqrt(squares / (double)live) : 0;
}
static void onebit_model_c(onebit_model *a) { /* x to out */
    const size_t ranks = a->net->ranks; float s[ONEBIT_RANKS]; size_t r, i, j;
    for (r = 0; r < ranks; ++r) {
        for (i = 0; i < a->n; ++i) a->x[r][i] = a->v[i] > 0 ? a->x[r][i] + a->e[r][i] : 0;
        s[r] = onebit_model_scale(a, a->x[r], 0, a->n);
        for (i = 0; i < a->n; ++i) a->e[r][i] = a->v[i] > 0 ? a->x[r][i] - (a->x[r][i] >= 0 ? s[r] : -s[r]) : 0;
    }
    for (i = 0; i < a->n; ++i) {
        float sum = 0;
        for (r = 0; r < ranks; ++r) { const float part = s[r] / (float)ranks; sum += a->x[r][i] >= 0 ? part : -part; }
        a->out[i] = a->v[i] > 0 ? sum + a->es[i] : 0;
    }
    for (j = 0; j < ranks; ++j) {
        const size_t end = (j + 1) * a->chunk < a->n ? (j + 1) * a->chunk : a->n; const float t = j * a->chunk < a->n ? onebit_model_scale(a, a->out, j * a->chunk, end) : 0;
        for (i = j * a->chunk; i < end; ++i) {
            const float size = a->out[i] >= 0 ? t : -t;
            a->es[i] = a->v[i] > 0 ? a->out[i] - size : 0;
            a->out[i] = a->v[i] > 0 ? size : 0;
        }
    }
}
static double onebit_model_norm(const onebit_model *a, const float *x, size_t k) {
    size_t live; return onebit_model_squares(a, x, a->tensor_of[k], a->tensor_of[k + 1], &live);
}
static float onebit_clamped(float x, float least, float max) { return x < least ? least : x > max ? max : x; }
static void onebit_model_step(onebit_model *a, uint64_t step) {
    const onebit_net *net = a->net; const memopt_optim_group group = onebit_group_of(net, step); const size_t ranks = net->ranks; size_t k, i, r;
    const float b1 = (float)group.beta1, b2 = (float)group.beta2, lr = (float)group.rate, eps = (float)group.eps, wd = (float)group.weight_decay;
    const double f = net->factor > 0 ? net->factor : 1; const float rest = (float)(1 - group.beta1), g1 = (float)((1 - group.beta1) * f);
    const int zero_one = net->kind == MEMOPT_ONEBIT_ZERO_ONE, lamb = net->kind == MEMOPT_ONEBIT_LAMB, warm = step <= net->freeze, first = step == net->freeze + 1;
    for (r = 0; r < ranks; ++r) for (k = 0; k < net->tensors; ++k) for (i = 0; i < net->counts[k]; ++i)
        a->g[r][a->tensor_of[k] + i] = onebit_gradient(net, r, step, k, i);
    if (warm && (!zero_one || step % a->every == 0)) { /* exact */
        const float g2 = (float)((1 - group.beta2) * (f * f));
        for (i = 0; i < a->n; ++i) {
            volatile float mean = a->g[0][i], part;
            for (r = 1; r < ranks; ++r) mean = mean + a->g[r][i];
            if (ranks > 1) { const float by = 1 / (float)ranks; mean = mean * by; }
            part = g1 * mean; a->m[i] = fmaf(b1, a->m[i], part);
            part = g2 * mean; part = part * mean; a->v[i] = fmaf(b2, a->v[i], part);
        }
        if (zero_one && ++a->exact == 16) { a->exact = 0; a->every *= 2; }
    } else if (warm) {
        for (r = 0; r < ranks; ++r) for (i = 0; i < a->n; ++i) a->x[r][i] = (float)f * a->g[r][i];
        onebit_model_c(a);
        for (i = 0; i < a->n; ++i) { volatile float part = rest * a->out[i]; a->m[i] = fmaf(b1, a->m[i], part); }
    } else if (!zero_one) {
        if (first && lamb) {
            double mean = 0; size_t with = 0;
            for (k = 0; k < net->tensors; ++k) { const double rms = sqrt(onebit_model_norm(a, a->m, k) / (double)net->counts[k]); mean += rms; with += rms > 0; }
            for (k = 0; k < net->tensors; ++k) { const double rms = sqrt(onebit_model_norm(a, a->m, k) / (double)net->counts[k]); a->scaling[k] = (float)(mean / (double)with / rms); }
            memcpy(a->fresh, a->v, a->n * sizeof *a->v);
        }
        for (r = 0; r < ranks; ++r) for (k = 0; k < net->tensors; ++k) for (i = a->tensor_of[k]; i < a->tensor_of[k + 1]; ++i) {
            volatile float part = g1 * a->g[r][i];
            part = fmaf(b1, a->m[i], part); part = part * a->scaling[k]; a->x[r][i] = part;
        }
        onebit_model_c(a);
        for (k = 0; k < net->tensors; ++k) for (i = a->tensor_of[k]; i < a->tensor_of[k + 1]; ++i) {
            volatile float part = b1 * a->m[i], g; const float g2 = (float)(1 - group.beta2);
            a->m[i] = a->out[i] / a->scaling[k];
            g = a->m[i] - part; g = g / rest;
            part = g2 * g; part = part * g; a->fresh[i] = fmaf(b2, a->fresh[i], part);
        }
    } else {
        const int meets = a->since + 1 >= a->h; const float decay = (float)fma(group.rate, group.weight_decay, a->decays);
        if (first) memcpy(a->anchor, a->p, a->n * sizeof *a->p);
        for (r = 0; r < ranks; ++r) for (i = 0; i < a->n; ++i) {
            volatile float part = g1 * a->g[r][i];
            if (first) { a->um[r][i] = a->m[i]; a->e[r][i] = a->es[i] = 0; }
            a->um[r][i] = fmaf(b1, a->um[r][i], part);
            a->uu[r][i] = a->v[i] > 0 ? fmaf(lr, a->um[r][i], a->uu[r][i]) : 0;
            a->x[r][i] = a->uu[r][i];
        }
        a->rates += group.rate; a->decays = fma(group.rate, group.weight_decay, a->decays);
        if (meets) onebit_model_c(a);
        for (r = ranks; r-- > 0;) for (i = 0; i < a->n; ++i) {
            const float by = sqrtf(a->v[i]) + eps, part = (meets ? a->out[i] : a->uu[r][i]) / by, at = a->anchor[i] - part;
            a->pw[r][i] = fmaf(-decay, a->anchor[i], at);
            if (!meets) continue;
            a->uu[r][i] = 0; a->um[r][i] = a->out[i] / (float)a->rates;
        }
        if (meets) { memcpy(a->anchor, a->pw[0], a->n * sizeof *a->p); a->rates = a->decays = 0; }
        a->since = meets ? 0 : a->since + 1;
        if (++a->hs == net->local_double) { a->hs = 0; if (a->h * 2 <= net->local_limit) a->h *= 2; }
        return;
    }
    for (k = 0; k < net->tensors; ++k) {
        volatile float by = lr; float largest = 0;
        for (i = a->tensor_of[k]; i < a->tensor_of[k + 1]; ++i) {
            const float root = sqrtf(a->v[i]) + eps, other = sqrtf(a->fresh[i]) + eps;
            a->u0[i] = a->m[i] / root; a->u1[i] = fmaf(wd, a->p[i], a->u0[i]);
            if (a->v[i] > 0 && root / other > largest) largest = root / other;
        }
        if (lamb && warm) {
            const double pp = onebit_model_norm(a, a->p, k), uu = onebit_model_norm(a, a->u1, k);
            const float ratio = pp > 0 && uu > 0 ? onebit_clamped((float)(sqrt(pp) / sqrt(uu)), 0.01f, 10) : 1;
            if (ratio < 1 || ratio > 1) a->coefficient[k] = (float)fma(0.9, (double)a->coefficient[k], 0.1 * (double)ratio);
            by = by * ratio;
        } else if (lamb) {
            volatile float t = largest;
            if (wd > 0) {
                const double plain = onebit_model_norm(a, a->u0, k), uu = onebit_model_norm(a, a->u1, k); const float rho = onebit_clamped((float)(sqrt(plain) / sqrt(uu)), 0, 1);
                t = t * rho; t = t + (1 - rho);
            }
            t = onebit_clamped(t, 0.5f, 4); t = onebit_clamped(t, a->factor[k] * 0.9f, a->factor[k] * 1.1f);
            a->factor[k] = t; t = a->coefficient[k] * t; by = by * t;
        }
        for (i = a->tensor_of[k]; i < a->tensor_of[k + 1]; ++i) a->p[i] = fmaf(-by, a->u1[i], a->p[i]);
    }
}
/* All ranks' weights and errors against the model's, after all steps. */
static void onebit_against_model(onebit_net *net) {
    onebit_world w; onebit_model a; size_t r, k, i; uint64_t step;
    onebit_net_open(net);
    if (onebit_run_net(net, &w)) {
        onebit_model_open(&a, net);
        for (step = 1; step <= net->steps; ++step) onebit_model_step(&a, step);
        for (r = 0; r < net->ranks; ++r) {
            const int local = net->kind == MEMOPT_ONEBIT_ZERO_ONE && net->steps > net->freeze; size_t at = 0;
            CHECK_AT(w.status[r] == MEMOPT_OK && net->stats[r].step == net->steps, net->seed * 100 + r);
            for (k = 0; k < net->tensors; at += net->counts[k++]) {
                CHECK_AT(!memcmp(net->weights[r] + at, (local ? a.pw[r] : a.p) + a.tensor_of[k], net->counts[k] * sizeof(float)), net->seed * 100 + r * 10 + k);
                for (i = 0; i < net->counts[k]; ++i) if (net->steps > net->freeze || net->kind == MEMOPT_ONEBIT_ZERO_ONE) /* -0 is 0 */
                    CHECK_AT(net->error[r][a.tensor_of[k] + i] - a.e[r][a.tensor_of[k] + i] >= 0 && net->error[r][a.tensor_of[k] + i] - a.e[r][a.tensor_of[k] + i] <= 0, net->seed * 100 + i);
            }
        }
        onebit_model_close(&a);
    }
    onebit_net_close(net);
}
static void onebit_model_all(void) { /* all kinds, ranks, levels, workers, odd sizes */
    static const size_t sizes[6][3] = { { 37, 8, 601 }, { 1, 1, 1 }, { 7, 9, 4099 }, { 16, 513, 3 }, { 1030, 1, 129 }, { 8, 8, 8 } };
    int level = MEMOPT_SIMD_SCALAR; size_t ranks; int kind; uint64_t seed = 1;
    if (ONEBIT_X87) { SKIP("x87 rounds twice"); return; }
    for (ranks = 1; ranks <= ONEBIT_RANKS; ++ranks) for (kind = 0; kind < 3; ++kind, ++seed) {
        onebit_net net = onebit_net_of((memopt_onebit_kind)kind, ranks, seed);
        memcpy(net.counts, sizes[seed % 6], sizeof sizes[0]);
        net.level = level; net.workers = (int)(seed % 4); net.decay = seed % 2 ? 0.0078125 : 0; net.factor = seed % 5 ? 0 : 0.25;
        net.bucket = seed % 3 ? 40 * (size_t)seed : 0; net.freeze = kind == MEMOPT_ONEBIT_ZERO_ONE ? 36 : 6; net.steps = kind == MEMOPT_ONEBIT_ZERO_ONE ? 61 : 26;
        onebit_against_model(&net);
        level = level >= memopt_simd_best() ? MEMOPT_SIMD_SCALAR : test_wider(level);
    }
}
static void onebit_model_large(void) { /* tensors of several pieces, chunks that cut them */
    int kind;
    for (kind = 0; kind < 3; ++kind) {
        onebit_net net = onebit_net_of((memopt_onebit_kind)kind, 3, 900 + (uint64_t)kind);
        net.counts[2] = 140003; net.freeze = 2; net.steps = 6; net.decay = 0.01; net.workers = 3; net.bucket = 30001;
        onebit_against_model(&net);
    }
}
static void onebit_levels(void) { /* the same bits at every level, for any workers and any bucket */
    int kind, level; uint64_t want = 0;
    for (kind = 0; kind < 3; ++kind) for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
        onebit_net net = onebit_net_of((memopt_onebit_kind)kind, 2, 5); onebit_world w; uint64_t got;
        net.level = level; net.workers = level; net.decay = 0.01; net.bucket = (size_t)level * 24;
        onebit_net_open(&net);
        if (onebit_run_net(&net, &w)) {
            got = onebit_hash(net.weights[1], onebit_elements(&net) * sizeof(float));
            if (level == MEMOPT_SIMD_SCALAR) want = got;
            CHECK_AT(got == want && w.status[0] == MEMOPT_OK, (uint64_t)(kind * 10 + level));
        }
        onebit_net_close(&net);
    }
}

/* ---- vectors of ../shared/facts, made by two other programs: n = 16, two ranks ---- */
typedef struct onebit_trace { /* after a step, of one rank */
    float scales[2], owners[2]; uint8_t sent[2], result[2]; float m[16], error[16], owned[8], weights[16], fresh[16], factor[2], anchor[16];
} onebit_trace;
typedef struct onebit_vectors { memopt_onebit_kind kind; onebit_trace at[5][2]; int level; float start[16]; } onebit_vectors;
static uint32_t onebit_crc(const float *x, size_t n) { /* CRC-32C of n bytes, lowest first */
    uint32_t crc = 0xffffffffu; size_t i; int k;
    for (i = 0; i < n; ++i) for (crc ^= memopt_i_float_bits(x[i / 4]) >> 8 * (i % 4) & 255u, k = 0; k < 8; ++k) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    return ~crc;
}
static void onebit_vectors_rank(onebit_world *w, size_t rank, memopt_comm *comm) {
    onebit_vectors *x = (onebit_vectors *)w->data; float p[16], g[16]; memopt_onebit_tensor t[2]; memopt_onebit_desc d; memopt_onebit *o = NULL; size_t i, k;
    const size_t lamb = x->kind == MEMOPT_ONEBIT_LAMB; memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAM); memopt_onebit_run run; const memopt_threads level = test_level(x->level);
    memset(&d, 0, sizeof d); memset(t, 0, sizeof t); memset(&run, 0, sizeof run);
    d.kind = x->kind; d.comm = comm; d.freeze_step = 1; d.tensors = t; d.tensor_count = lamb ? 2 : 1; d.threads = &level;
    t[0].weights = p; t[0].gradients = g; t[0].count = lamb ? 8 : 16; t[1].weights = p + 8; t[1].gradients = g + 8; t[1].count = 8;
    group.rate = 0.015625; group.beta1 = 0.875; group.beta2 = 0.96875; group.eps = 9.5367431640625e-7; group.weight_decay = lamb ? 0.0078125 : 0;
    run.groups = &group; run.group_count = 1;
    if (memopt_onebit_open(&d, NULL, &o)) { CHECK(0); return; }
    o->state.head->step = 1;
    o->state.head->local_every = 2;
    o->state.head->is_frozen = x->kind == MEMOPT_ONEBIT_ZERO_ONE; /* H begins with 1: this is a later step */
    for (i = 0; i < 16; ++i) {
        p[i] = (float)((int)i - 8) / 16;
        o->state.second[i] = (float)(1 + i % 3) / 64;
        if (o->state.anchor) o->state.anchor[i] = p[i];
        if (lamb) o->state.error[i] = i < 8 ? (float)(2 * (int)i - 7) / 32 : (float)(7 - 2 * ((int)i - 8)) / 256;
    }
    o->state.records[0].coefficient = 0.5f;
    if (lamb) o->state.records[1].coefficient = 0.25f;
    for (k = 1; k <= 4; ++k) {
        onebit_trace *a = &x->at[k][rank];
        for (i = 0; i < 16; ++i) g[i] = (float)((int)((7 * i + 5 * rank + 3 * k) % 11) - 5) / 8;
        CHECK(memopt_onebit_step(o, &run) == MEMOPT_OK);
        memcpy(a->scales, o->scales, sizeof a->scales); memcpy(a->owners, o->scales + 2, sizeof a->owners);
        memcpy(a->sent, o->send, 2); memcpy(a->result, o->result, 2);
        memcpy(a->error, o->state.error, sizeof a->error); memcpy(a->owned, o->state.owned, sizeof a->owned); memcpy(a->weights, p, sizeof p);
        if (lamb) { memcpy(a->fresh, o->state.fresh, sizeof a->fresh); a->factor[0] = o->state.records[0].factor; a->factor[1] = o->state.records[1].factor; }
        if (x->kind == MEMOPT_ONEBIT_ZERO_ONE) { memcpy(a->m, o->state.momentum, sizeof a->m); memcpy(a->anchor, o->state.anchor, sizeof a->anchor); }
        else for (i = 0; i < 16; ++i) {
            const float size = o->state.sizes[i / 8] / (lamb ? o->state.records[i / 8].scaling : 1);
            a->m[i] = o->state.signs[i / 8] >> i % 8 & 1 ? size : -size;
        }
        if (lamb && k == 1) CHECK(memopt_i_float_bits(o->state.records[0].scaling) == 0x3f100000u && memopt_i_float_bits(o->state.records[1].scaling) == 0x40900000u);
    }
    memopt_onebit_close(o);
}
static int onebit_vectors_run(onebit_vectors *x, memopt_onebit_kind kind, int level) {
    onebit_world w;
    memset(&w, 0, sizeof w); memset(x, 0, sizeof *x);
    x->kind = kind; x->level = level; w.ranks = 2; w.fn = onebit_vectors_rank; w.data = x;
    return onebit_play(&w);
}
static float onebit_hex(double mantissa, int exponent) { return (float)ldexp(mantissa, exponent); } /* 0x1.9b0c26p-5: (0x19b0c26, -24 - 5) */
static int onebit_is(float x, long digits, int exponent) { return memopt_i_float_bits(x) == memopt_i_float_bits(onebit_hex((double)digits, exponent)); }
static void onebit_vectors_adam(void) {
    static const uint32_t crc[3][5] = { { 0xda755c79, 0x88acf9cb, 0x3e4ed78c, 0x4d604bce, 0x7f7bef52 }, { 0x729b670d, 0x8ed37b86, 0x46dd065a, 0xae1d8682, 0xc7423c91 },
                                        { 0xe0ba8f3e, 0xda292f69, 0xf94ef932, 0x51b7dcef, 0xc8edc503 } };
    static const uint8_t signs[3][6] = { { 0xb6, 0xb4, 0x69, 0x4b, 0xb6, 0xb4 }, { 0x25, 0x6d, 0xda, 0xd0, 0x69, 0xd0 }, { 0x4b, 0x59, 0x36, 0x94, 0x7a, 0x5d } };
    static const long sizes[3][4] = { { 0x19b0c26, 0x18bd172, 0x11da024, 0x1e75680 }, { 0x14b47e4, 0x1b04168, 0x128e5da, 0x187a7be }, { 0x1e73064, 0x1dbf508, 0x1eda3a4, 0x13b7cd4 } };
    static const int exponents[3][4] = { { -5, -5, -6, -11 }, { -5, -5, -6, -6 }, { -5, -5, -6, -5 } };
    static const long last[16] = { -0x1fc3b46, -0x1c2aa2a, -0x17db8fc, -0x143f1d0, -0x102aa2a, -0x189b548, -0x107e3a2, -0x1e9af9c, -0x102c1aa, 0x1206ed2, 0x1fa6010, 0x17dfa7c, 0x1efc898,
                                   0x14590ac, 0x17b74c2, 0x1c1c02c };
    static const int last_exponent[16] = { -2, -2, -2, -2, -2, -3, -3, -5, -10, -4, -4, -3, -3, -2, -2, -2 };
    onebit_vectors x; int level; size_t t, i, r;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
        double most = 0, in[16] = { 0 }, out[16] = { 0 };
        if (!onebit_vectors_run(&x, MEMOPT_ONEBIT_ADAM, level)) { SKIP("no threads"); return; }
        for (t = 1; t <= 3; ++t) {
            const onebit_trace *a = x.at[t]; float owned[16];
            memcpy(owned, a[0].owned, 32); memcpy(owned + 8, a[1].owned, 32);
            for (r = 0; r < 2; ++r) {
                CHECK_AT(onebit_crc(a[r].m, 64) == crc[t - 1][0] && onebit_crc(a[r].error, 64) == crc[t - 1][1 + r] && onebit_crc(a[r].weights, 64) == crc[t - 1][4], t);
                CHECK_AT(!memcmp(a[r].sent, signs[t - 1] + 2 * r, 2) && !memcmp(a[r].result, signs[t - 1] + 4, 2), t);
                for (i = 0; i < 2; ++i) CHECK_AT(onebit_is(a[r].scales[i], sizes[t - 1][i], exponents[t - 1][i] - 24) && onebit_is(a[r].owners[i], sizes[t - 1][2 + i], exponents[t - 1][2 + i] - 24), t);
            }
            CHECK_AT(onebit_crc(owned, 64) == crc[t - 1][3], t);
            for (i = 0; i < 16; ++i) { /* what went in, what came out, what is left */
                const double before = t > 1 ? (double)x.at[t - 1][0].m[i] : 0; double left;
                for (r = 0; r < 2; ++r) in[i] += (double)fmaf(0.875f, (float)before, (float)((int)((7 * i + 5 * r + 3 * t) % 11) - 5) / 64) / 2;
                out[i] += (double)a[0].m[i];
                left = fabs(in[i] - out[i] - ((double)a[0].error[i] + (double)a[1].error[i]) / 2 - (double)owned[i]);
                if (left > most) most = left;
            }
        }
        CHECK(most < 3e-9);
        if (getenv("ONEBIT_PRINT")) printf("residue %.3g\n", most);
        for (i = 0; i < 16; ++i) CHECK_AT(onebit_is(x.at[3][1].weights[i], last[i], last_exponent[i] - 24), i);
    }
}
static void onebit_vectors_lamb(void) {
    static const long factors[3][2] = { { 0x1cccccc, 0x103fef0 }, { 0x1a48592, 0x1078e8c }, { 0x1aa5fc2, 0x1095c74 } };
    onebit_vectors x; int level; size_t t, r;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
        if (!onebit_vectors_run(&x, MEMOPT_ONEBIT_LAMB, level)) { SKIP("no threads"); return; }
        for (t = 1; t <= 3; ++t) for (r = 0; r < 2; ++r)
            CHECK_AT(onebit_is(x.at[t][r].factor[0], factors[t - 1][0], -25) && onebit_is(x.at[t][r].factor[1], factors[t - 1][1], -24), t);
        for (r = 0; r < 2; ++r) CHECK(onebit_crc(x.at[3][r].m, 64) == 0x9f391772 && onebit_crc(x.at[3][r].fresh, 64) == 0xde002f4a && onebit_crc(x.at[3][r].weights, 64) == 0xa429c5c8);
    }
}
static void onebit_vectors_zero_one(void) {
    onebit_vectors x; int level; size_t r;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) {
        if (!onebit_vectors_run(&x, MEMOPT_ONEBIT_ZERO_ONE, level)) { SKIP("no threads"); return; }
        for (r = 0; r < 2; ++r) {
            const onebit_trace *a = &x.at[2][r], *b = &x.at[4][r];
            CHECK(onebit_is(a->scales[0], 0x1741766, -34) && onebit_is(a->scales[1], 0x19100f6, -34) && onebit_is(a->owners[0], 0x1835b90, -35) && onebit_is(a->owners[1], 0x1835b90, -35));
            CHECK(onebit_crc(a->m, 64) == 0x8330bec4 && onebit_crc(a->anchor, 64) == 0x98c7ba42 && !memcmp(a->anchor, a->weights, 64));
            CHECK(onebit_is(b->owners[0], 0x1eb943a, -35) && onebit_is(b->owners[1], 0x1fa20c2, -35) && onebit_crc(b->m, 64) == 0xcd07c4ed && onebit_crc(b->anchor, 64) == 0x62645c9a);
        }
        CHECK(memcmp(x.at[1][0].weights, x.at[1][1].weights, 64) && memcmp(x.at[3][0].weights, x.at[3][1].weights, 64)); /* between two meetings */
    }
}

/* ---- signs, at every level ---- */
static void onebit_signs(void) { /* c >= 0 is a plus, -0 too; 0 where v is 0, but NaN stays; nothing is touched behind the last byte */
    static const float hard[8] = { 0.0f, -0.0f, 1, -1, 1.4e-45f, -1.4e-45f, 3e38f, -3e38f }; uint64_t seed = 9; int level; size_t n, i;
    for (level = MEMOPT_SIMD_SCALAR; level <= memopt_simd_best(); level = test_wider(level)) for (n = 1; n < 70; ++n) {
        float c[70], v[70], to[71]; uint8_t bits[12];
        memset(bits, 0xA5, sizeof bits);
        for (i = 0; i < n; ++i) { c[i] = hard[test_below(&seed, 8)]; v[i] = test_below(&seed, 3) ? 1.4e-45f : 0; to[i] = 0.5f; }
        to[n] = 77;
        MEMOPT_I_DISPATCH(level, onebit_pack, (bits, c, 0, n));
        for (i = 0; i < n; ++i) CHECK_AT((bits[i / 8] >> i % 8 & 1) == (c[i] >= 0), n);
        for (i = (n + 7) / 8; i < 12; ++i) CHECK_AT(bits[i] == 0xA5, n);
        MEMOPT_I_DISPATCH(level, onebit_add_signs, (to, bits, 0.25f, 0, n));
        for (i = 0; i < n; ++i) CHECK_AT(memopt_i_float_bits(to[i]) == memopt_i_float_bits(c[i] >= 0 ? 0.75f : 0.25f), n);
        MEMOPT_I_DISPATCH(level, onebit_decode, (to, bits, 2.5f, v, 0, n));
        for (i = 0; i < n; ++i) CHECK_AT(v[i] > 0 ? to[i] <= (c[i] >= 0 ? 2.5f : -2.5f) && to[i] >= (c[i] >= 0 ? 2.5f : -2.5f) : to[i] <= 0 && to[i] >= 0, n);
        memset(to, 0, n * sizeof *to);
        c[n - 1] = memopt_i_bits_float(0x7f800000u); v[n - 1] = 0;
        MEMOPT_I_DISPATCH(level, onebit_add_error, (to, c, v, n));
        for (i = 0; i + 1 < n; ++i) CHECK_AT(to[i] <= (v[i] > 0 ? c[i] : 0) && to[i] >= (v[i] > 0 ? c[i] : 0), n);
        CHECK_AT(!memopt_i_finite(to[n - 1]) && to[n] >= 77 && to[n] <= 77, n);
    }
}

/* ---- ranks do not drift; bytes on the wire ---- */
static void onebit_drift(void) { /* 250 steps: weights are the same bits on all ranks wherever they are to be */
    int kind; size_t r; uint64_t step;
    for (kind = 0; kind < 3; ++kind) {
        onebit_net net = onebit_net_of((memopt_onebit_kind)kind, 4, 70 + (uint64_t)kind); onebit_world w; size_t met = 0;
        net.counts[2] = 301; net.freeze = 40; net.steps = 250; net.local_double = 60; net.decay = 0.01;
        onebit_net_open(&net);
        if (onebit_run_net(&net, &w)) {
            for (step = 1; step <= net.steps; ++step) for (met += net.trail[0][step] != 0, r = 1; r < net.ranks; ++r) CHECK_AT(net.trail[r][step] == net.trail[0][step], step);
            CHECK(kind == MEMOPT_ONEBIT_ZERO_ONE ? met == 40 + 60 + 30 + 22 : met == 250); /* H is 1, 2, 4, 4, at steps 101, 161 */
            CHECK(w.status[0] == MEMOPT_OK && net.stats[3].local_now == (kind == MEMOPT_ONEBIT_ZERO_ONE ? 4u : 1u));
        }
        onebit_net_close(&net);
    }
}
static void onebit_wire(void) { /* counted here, told before, and counted by comm */
    size_t ranks, r; int kind;
    for (ranks = 1; ranks <= ONEBIT_RANKS; ranks += ranks < 4 ? 1 : 2) for (kind = 0; kind < 3; ++kind) {
        onebit_net net = onebit_net_of((memopt_onebit_kind)kind, ranks, 30); onebit_world w;
        const uint64_t n = 40 + 8 + 608, bytes = (n / 8 + ranks - 1) / ranks, all = ranks - 1; uint64_t bucket, exact = 4 * all, first;
        net.bucket = 100; net.factor = 0.5;
        bucket = (100 + all) / ranks * ranks; /* of which each rank has as much */
        for (first = 0; first < n; first += bucket) exact += 8 * all * (((first + bucket < n ? bucket : n - first) + all) / ranks);
        onebit_net_open(&net);
        if (onebit_run_net(&net, &w)) for (r = 0; r < ranks; ++r) {
            const memopt_onebit_stats *s = &net.stats[r]; const memopt_onebit_sizes *z = &net.sizes;
            CHECK_AT(z->exact_sent == exact && z->compressed_sent == all * (2 * bytes + 8) && z->local_sent == 4 * all && z->elements == n && z->chunk == 8 * bytes, ranks);
            CHECK_AT(s->sent == 64 * all + s->exact * exact + s->compressed * z->compressed_sent + s->local * 4 * all && s->sent == net.comm_sent[r], ranks);
            CHECK_AT(s->exact == 6 && s->exact + s->compressed + s->local == 30 && (s->local > 0) == (kind == MEMOPT_ONEBIT_ZERO_ONE) && s->is_frozen, ranks);
        }
        onebit_net_close(&net);
    }
}
#if SIZE_MAX > 0xffffffffu
static void onebit_plans(void) { /* the figures of a large model, without it */
    memopt_onebit_desc d; memopt_onebit_tensor t; memopt_onebit_sizes z;
    memset(&d, 0, sizeof d); memset(&t, 0, sizeof t);
    d.rank_count = 8; d.freeze_step = 1; d.tensors = &t; d.tensor_count = 1; t.count = (size_t)124475904;
    CHECK(memopt_onebit_bytes(&d, &z) == MEMOPT_OK);
    CHECK(z.chunk * 8 == t.count && z.compressed_sent == 2 * (t.count / 8) * 7 / 8 + 56 && z.exact_sent == 8 * (uint64_t)t.count * 7 / 8 + 28);
    CHECK(z.state_bytes == 128 + 64 + 8 * t.count + t.count / 2 + t.count / 8 + 64); /* head, record; v, e; the owner's e; signs; their sizes */
    CHECK(z.bytes - z.state_bytes < 2 * (t.count / 8) + t.count / 8 + 1000000);
    d.kind = MEMOPT_ONEBIT_LAMB; CHECK(memopt_onebit_bytes(&d, &z) == MEMOPT_OK && z.state_bytes == 256 + 12 * t.count + t.count / 2 + t.count / 8);
    d.kind = MEMOPT_ONEBIT_ZERO_ONE; CHECK(memopt_onebit_bytes(&d, &z) == MEMOPT_OK && z.state_bytes == 256 + 20 * t.count + t.count / 2 + t.count / 8);
}
#endif

/* ---- what goes wrong ---- */
typedef struct onebit_accident { memopt_onebit_kind kind; size_t steps, at, nth; int begins; memopt_status status[4]; uint64_t step[4]; int same[4]; memopt_error why[4]; } onebit_accident;
static void onebit_accident_rank(onebit_world *w, size_t rank, memopt_comm *comm) { /* the last of `steps` steps has the accident */
    onebit_accident *a = (onebit_accident *)w->data; onebit_net net = onebit_net_of(a->kind, w->ranks, 3); float p[100], g[100]; memopt_onebit_tensor t[2]; test_worker_set set;
    memopt_threads threads; memopt_onebit_desc d; memopt_onebit *o = NULL; memopt_onebit_run run; memopt_optim_group group; size_t i; uint64_t step, weights = 0, state = 0; memopt_onebit_sizes z;
    memopt_status s = MEMOPT_OK;
    net.tensors = 2; net.counts[0] = 61; net.counts[1] = 39; net.freeze = 2; net.bucket = 50;
    memset(t, 0, sizeof t); memset(&run, 0, sizeof run);
    t[0].weights = p; t[0].gradients = g; t[0].count = 61; t[1].weights = p + 61; t[1].gradients = g + 61; t[1].count = 39;
    for (i = 0; i < 100; ++i) p[i] = onebit_weight(0, i);
    threads = test_workers(&set, net.workers, net.level); d = onebit_desc_of(&net, t, comm, &threads); d.local_double = 1;
    run.groups = &group; run.group_count = 1;
    if (memopt_onebit_open(&d, NULL, &o)) { CHECK(0); return; }
    CHECK(memopt_onebit_bytes(&d, &z) == MEMOPT_OK);
    for (step = 1; step <= a->steps && !s; ++step) {
        group = onebit_group_of(&net, step);
        onebit_fill(&net, rank, step, t);
        weights = onebit_hash(p, sizeof p); state = onebit_hash(memopt_onebit_state(o), z.state_bytes);
        s = memopt_onebit_step(o, &run);
    }
    a->status[rank] = s; a->step[rank] = memopt_onebit_get_stats(o).step; a->why[rank] = memopt_onebit_error(o);
    a->same[rank] = weights == onebit_hash(p, sizeof p) && state == onebit_hash(memopt_onebit_state(o), z.state_bytes);
    if (s) CHECK(memopt_onebit_step(o, &run) != MEMOPT_OK && a->same[rank] == (weights == onebit_hash(p, sizeof p)));
    memopt_onebit_close(o);
}
static void onebit_comm_fails(void) { /* in every call, on every rank, in its begin or its wait */
    int kind, begins; size_t nth, who, r;
    for (kind = 0; kind < 3; ++kind) for (begins = 0; begins < 2; ++begins) for (who = 0; who < 3; ++who) for (nth = 1; nth < 60; ++nth) {
        onebit_accident a; onebit_world w; size_t behind = 0; const uint64_t id = (uint64_t)kind * 10000 + (uint64_t)begins * 1000 + who * 100 + nth;
        memset(&a, 0, sizeof a); memset(&w, 0, sizeof w);
        a.kind = (memopt_onebit_kind)kind; a.steps = 6; w.ranks = 3; w.fn = onebit_accident_rank; w.data = &a; w.fail_rank = who;
        if (begins) w.fail_begin = nth; else w.fail_wait = nth;
        if (!onebit_play(&w)) { SKIP("no threads"); return; }
        if (!a.status[who]) { CHECK_AT(nth > 12 && !a.status[0] && !a.status[1] && !a.status[2], id); break; } /* it has made all its calls */
        CHECK_AT(a.status[who] == MEMOPT_ERR_IO && a.same[who] && !strcmp(a.why[who].reason, "is on fire"), id);
        for (r = 0; r < 3; ++r) { /* others fail in this step, or have finished it and fail in the next; all but the last step tell */
            behind += a.step[r] > a.step[who];
            CHECK_AT(a.step[r] == a.step[who] || (!begins && a.step[r] == a.step[who] + 1), id);
            CHECK_AT(a.status[r] ? a.same[r] : a.step[r] == a.steps, id);
        }
        CHECK_AT(!begins || !behind, id);
    }
    CHECK(kind == 3);
}
static void onebit_bad_gradients(void) { /* NaN or infinite on one rank: all are told which, nothing has changed, and it goes on as if nothing had been */
    static const uint32_t bad[3] = { 0x7fc00000u, 0x7f800000u, 0xff800000u }; int kind; size_t at, r;
    for (kind = 0; kind < 3; ++kind) {
        uint64_t want = 0;
        for (at = 0; at < 14; at += at ? 1 : 1) {
            onebit_net net = onebit_net_of((memopt_onebit_kind)kind, 3, 8); onebit_world w;
            net.freeze = kind == 2 ? 4 : 3; net.steps = 16; net.local_double = 3; net.counts[0] = 19; net.bad_at = at; net.bad_rank = at % 3; net.bad = memopt_i_bits_float(bad[at / 2 % 3]);
            onebit_net_open(&net);
            if (!onebit_run_net(&net, &w)) { onebit_net_close(&net); SKIP("no threads"); return; }
            if (!at) want = onebit_hash(net.weights[0], onebit_elements(&net) * sizeof(float));
            for (r = 0; r < 3; ++r) {
                CHECK_AT(w.status[r] == MEMOPT_OK && (r || want == onebit_hash(net.weights[r], onebit_elements(&net) * sizeof(float))), at);
                if (at) {
                    char line[100];
                    snprintf(line, sizeof line, "onebit: a gradient, or a sum of them, is not finite at rank %d", (int)net.bad_rank);
                    CHECK_AT(net.status[r] == MEMOPT_ERR_FORMAT && test_error_says(net.why[r], MEMOPT_ERR_FORMAT, line), at);
                }
            }
            onebit_net_close(&net);
        }
    }
}
static void onebit_one_step(onebit_world *w, size_t rank, memopt_comm *comm) { /* huge gradients, of which each is finite */
    float p[24] = { 1, 2, 3 }, g[24]; memopt_onebit_tensor t; memopt_onebit_desc d; memopt_onebit *o = NULL; memopt_onebit_run run; size_t i; memopt_status s;
    memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAM); float **values = (float **)w->data; float before[24]; memopt_onebit_sizes z; uint64_t state;
    memset(&d, 0, sizeof d); memset(&t, 0, sizeof t); memset(&run, 0, sizeof run);
    t.weights = p; t.gradients = g; t.count = 23; d.comm = comm; d.tensors = &t; d.tensor_count = 1; d.freeze_step = 1;
    run.groups = &group; run.group_count = 1;
    if (memopt_onebit_open(&d, NULL, &o)) { CHECK(0); return; }
    for (i = 0; i < 23; ++i) g[i] = i == 22 && *values[0] > 0 ? (float)rank : *values[0];
    memcpy(before, p, sizeof p); CHECK(memopt_onebit_bytes(&d, &z) == MEMOPT_OK); state = onebit_hash(memopt_onebit_state(o), z.state_bytes);
    s = memopt_onebit_step(o, &run);
    w->status[rank] = s;
    if (s) { /* weights and state have not changed, gradients are means */
        CHECK(test_error_says(memopt_onebit_error(o), MEMOPT_ERR_FORMAT, "onebit: the sum of the gradients is not finite") && memopt_onebit_get_stats(o).step == 0);
        CHECK(!memcmp(before, p, sizeof p) && state == onebit_hash(memopt_onebit_state(o), z.state_bytes));
        for (i = 0; i < 22; ++i) CHECK(memopt_i_float_bits(g[i]) == 0x7f800000u);
        CHECK(g[22] <= 0.5f && g[22] >= 0.5f && memopt_onebit_step(o, &run) == MEMOPT_ERR_FORMAT && !memcmp(before, p, sizeof p));
    }
    for (i = 0; i < 23; ++i) g[i] = *values[1];
    s = memopt_onebit_step(o, &run);
    if (!s) s = memopt_onebit_step(o, &run);
    CHECK(!s && memopt_i_finite(p[0]) && p[22] <= 0 && p[22] == (*values[1] > 0 ? p[21] : 0));
    memopt_onebit_close(o);
}
/* The numbers that LAMB's ratios are kept within, as the header tells them. */
static void onebit_lamb_limits(void) {
    size_t k;
    if (ONEBIT_X87) { SKIP("x87 rounds twice"); return; }
    for (k = 0; k < 3; ++k) { /* tiny weights, such as are as long as the direction, huge ones */
        float p[16], g[16], was[16], factor; memopt_onebit_tensor t; memopt_onebit_desc d; memopt_onebit *o = NULL; memopt_onebit_run run; size_t i, up, down; double step;
        memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAM);
        memset(&d, 0, sizeof d); memset(&t, 0, sizeof t); memset(&run, 0, sizeof run);
        t.weights = p; t.gradients = g; t.count = 16; d.kind = MEMOPT_ONEBIT_LAMB; d.tensors = &t; d.tensor_count = 1; d.freeze_step = 2;
        group.rate = 0.0078125; group.beta1 = 0.5; group.beta2 = 0.75; group.weight_decay = 0; run.groups = &group; run.group_count = 1;
        if (memopt_onebit_open(&d, NULL, &o)) { CHECK(0); return; }
        for (i = 0; i < 16; ++i) { g[i] = i % 2 ? -1.0f : 1.0f; p[i] = k ? k > 1 ? 1000.0f : 0.75f : 1e-6f; }
        memcpy(was, p, sizeof p);
        CHECK(memopt_onebit_step(o, &run) == MEMOPT_OK); /* a direction of 0.5 / sqrt(0.25) = 1 in every element */
        step = ((double)was[0] - (double)p[0]) / group.rate;
        CHECK_AT(fabs(step / (k ? k > 1 ? 10 : 0.75 : 0.01) - 1) < (k > 1 ? 2e-3 : 1e-4), k);
        CHECK_AT(fabs((double)o->state.records[0].coefficient / (k ? k > 1 ? 1.0 : 0.075 : 0.001) - 1) < 1e-5, k);
        CHECK(memopt_onebit_step(o, &run) == MEMOPT_OK);
        if (k > 1) CHECK(fabs((double)o->state.records[0].coefficient / 1.9 - 1) < 1e-5);
        for (i = 0; i < 16; ++i) g[i] *= 1e-3f;
        for (up = 0, factor = 1; factor < 4 && up < 40; ++up) { /* gradients that have become smaller: steps may become longer, a tenth at a time */
            const volatile float longer = factor * 1.1f, shorter = factor * 0.9f; /* rounded to float, with x87 too */
            memcpy(was, p, sizeof p);
            CHECK(memopt_onebit_step(o, &run) == MEMOPT_OK);
            factor = o->state.records[0].factor;
            CHECK_AT(factor <= longer && factor >= shorter && factor <= 4, up);
        }
        CHECK_AT(factor >= 4 && up >= 15 && up < 30, up); /* 1.1^15 is 4.2 */
        CHECK(memopt_onebit_step(o, &run) == MEMOPT_OK && o->state.records[0].factor <= 4);
        for (i = 0; i < 16; ++i) g[i] *= 1e6f;
        for (down = 0; factor > 0.5f && down < 40; ++down) {
            const volatile float shorter = factor * 0.9f;
            CHECK(memopt_onebit_step(o, &run) == MEMOPT_OK);
            factor = o->state.records[0].factor;
            CHECK_AT(factor >= shorter && factor >= 0.5f, down);
        }
        CHECK_AT(factor <= 0.5f && down >= 20 && down < 35, down); /* 0.9^20 is 0.12 */
        CHECK(memopt_onebit_step(o, &run) == MEMOPT_OK && o->state.records[0].factor >= 0.5f);
        memopt_onebit_close(o);
    }
}
static void onebit_extremes(void) { /* sums that overflow; gradients that are all 0 */
    float huge = 3e38f, one = 1, zero = 0; float *values[2]; onebit_world w;
    values[0] = &huge; values[1] = &one;
    memset(&w, 0, sizeof w); w.ranks = 2; w.fn = onebit_one_step; w.data = values;
    if (!onebit_play(&w)) { SKIP("no threads"); return; }
    CHECK(w.status[0] == MEMOPT_ERR_FORMAT && w.status[1] == MEMOPT_ERR_FORMAT);
    values[0] = values[1] = &zero;
    memset(&w, 0, sizeof w); w.ranks = 3; w.fn = onebit_one_step; w.data = values;
    CHECK(onebit_play(&w) && w.status[0] == MEMOPT_OK);
}
static void onebit_disagree_rank(onebit_world *w, size_t rank, memopt_comm *comm) {
    float p[8] = { 0 }, g[8] = { 0 }; memopt_onebit_tensor t; memopt_onebit_desc d; memopt_onebit *o = NULL; memopt_onebit_run run;
    memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAM);
    memset(&d, 0, sizeof d); memset(&t, 0, sizeof t); memset(&run, 0, sizeof run);
    t.weights = p; t.gradients = g; t.count = 8; d.comm = comm; d.tensors = &t; d.tensor_count = 1; d.freeze_step = rank == 1 ? 7 : 8;
    run.groups = &group; run.group_count = 1;
    if (memopt_onebit_open(&d, NULL, &o)) { CHECK(0); return; }
    CHECK(memopt_onebit_step(o, &run) == MEMOPT_ERR_STATE);
    CHECK(test_error_says(memopt_onebit_error(o), MEMOPT_ERR_STATE, "onebit: its desc or its state is another than that of rank 0 at rank 1"));
    memopt_onebit_close(o);
    (void)w;
}
static void onebit_disagree(void) {
    onebit_world w;
    memset(&w, 0, sizeof w); w.ranks = 3; w.fn = onebit_disagree_rank;
    if (!onebit_play(&w)) SKIP("no threads");
}

/* ---- saves ---- */
static void onebit_resume(void) { /* as many ranks: the bits of a run without a break, from every step */
    int kind; size_t at, r;
    for (kind = 0; kind < 3; ++kind) for (at = 2; at < 18; ++at) {
        onebit_net whole = onebit_net_of((memopt_onebit_kind)kind, 3, 40), rest; onebit_world w; const void *states[3]; float *weights[1]; size_t n;
        whole.steps = 20; whole.save_at = at; whole.local_double = 3; whole.decay = 0.01;
        rest = whole; n = onebit_elements(&whole);
        onebit_net_open(&whole); onebit_net_open(&rest);
        if (!onebit_run_net(&whole, &w)) { onebit_net_close(&whole); onebit_net_close(&rest); SKIP("no threads"); return; }
        for (r = 0; r < 3; ++r) states[r] = whole.saved[r];
        { /* the weights of that step, which the engine saves: once more up to there */
            onebit_net part = whole; size_t k;
            part.steps = at - 1; part.save_at = 0;
            for (k = 0; k < 3; ++k) { part.weights[k] = onebit_floats(n); part.error[k] = NULL; }
            CHECK(onebit_run_net(&part, &w));
            weights[0] = part.weights[2]; rest.resume_weights = weights; rest.resume = states; rest.resume_ranks = 3; rest.save_at = 0; rest.resume_hash = whole.save_hash;
            CHECK(onebit_run_net(&rest, &w));
            for (k = 0; k < 3; ++k) free(part.weights[k]);
        }
        for (r = 0; r < 3; ++r) CHECK_AT(!memcmp(rest.weights[r], whole.weights[r], n * sizeof(float)) && rest.stats[r].step == 20, at);
        onebit_net_close(&whole); onebit_net_close(&rest);
    }
}
static memopt_i_onebit_state onebit_saved_state(const onebit_net *net, size_t ranks, const void *saved) {
    memopt_onebit_tensor t[ONEBIT_TENSORS]; memopt_onebit_desc d = onebit_desc_of(net, t, NULL, NULL); memopt_onebit o; memopt_i_checks c; size_t k;
    memset(t, 0, sizeof t);
    for (k = 0; k < net->tensors; ++k) t[k].count = net->counts[k];
    d.rank_count = ranks;
    CHECK(memopt_i_onebit_resolve(&c, &d, &o) == MEMOPT_OK);
    return memopt_i_onebit_state_at(&o.shape, saved);
}
/* beta1 times the momentum, the mean error, the owner's: of each element, from states of so many ranks */
static void onebit_balance(const onebit_net *net, size_t ranks, unsigned char *const *saved, double *sum) {
    const memopt_i_onebit_state s = onebit_saved_state(net, ranks, saved[0]); const size_t n = (size_t)s.head->elements, chunk = 8 * ((n / 8 + ranks - 1) / ranks);
    const int zero_one = net->kind == MEMOPT_ONEBIT_ZERO_ONE; size_t i, r;
    for (i = 0; i < n; ++i) {
        const memopt_i_onebit_state owner = onebit_saved_state(net, ranks, saved[i / chunk]); const double size = zero_one ? 0 : (double)s.sizes[i / chunk];
        const double b1 = (double)s.records[0].beta1; double mean = 0;
        for (r = 0; r < ranks; ++r) { const memopt_i_onebit_state one = onebit_saved_state(net, ranks, saved[r]); mean += (double)one.error[i] + (zero_one ? (double)one.sum[i] : 0); }
        sum[i] = mean / (double)ranks;
        if (!s.head->is_frozen) continue;
        sum[i] += s.second[i] > 0 ? (double)owner.owned[i % chunk] + (s.signs[i / 8] >> i % 8 & 1 ? b1 * size : -b1 * size) : 0;
    }
}
static void onebit_recut(void) { /* another number of ranks: what is left over is kept; the ranks go on alike */
    static const size_t to[5] = { 1, 2, 4, 5, 8 }; int kind; size_t k, at, i, r;
    for (kind = 0; kind < 3; ++kind) for (k = 0; k < 5; ++k) for (at = 5; at < 14; at += 4) {
        onebit_net old = onebit_net_of((memopt_onebit_kind)kind, 3, 50), net; onebit_world w; const void *states[3]; double before[700], after[700]; size_t n;
        old.steps = at; old.save_at = at; old.local_double = 3; old.counts[2] = 333;
        net = old; net.ranks = to[k]; net.steps = at + 8; n = onebit_elements(&old) + 21;
        onebit_net_open(&old); onebit_net_open(&net);
        if (!onebit_run_net(&old, &w)) { onebit_net_close(&old); onebit_net_close(&net); SKIP("no threads"); return; }
        for (r = 0; r < 3; ++r) states[r] = old.saved[r];
        net.resume = states; net.resume_ranks = 3; net.resume_weights = old.weights; net.save_at = at; /* saved as soon as it is loaded */
        CHECK(onebit_run_net(&net, &w));
        memset(before, 0, sizeof before); memset(after, 0, sizeof after);
        onebit_balance(&old, 3, old.saved, before); onebit_balance(&net, net.ranks, net.saved, after);
        for (i = 0; i < n; ++i) CHECK_AT(fabs(before[i] - after[i]) <= 1e-6 * (fabs(before[i]) + 4), i);
        for (r = 0; r < net.ranks; ++r) {
            const memopt_i_onebit_state s = onebit_saved_state(&net, net.ranks, net.saved[r]), o = onebit_saved_state(&old, 3, old.saved[0]);
            CHECK_AT(w.status[r] == MEMOPT_OK && s.head->step == at - 1 && !memcmp(s.second, o.second, (size_t)o.head->elements * sizeof(float)), r);
            if (s.fresh) CHECK_AT(!memcmp(s.fresh, o.fresh, (size_t)o.head->elements * sizeof(float)), r);
            if (s.anchor) CHECK_AT(!memcmp(s.anchor, o.anchor, (size_t)o.head->elements * sizeof(float)), r);
            for (i = at; i <= net.steps; ++i) CHECK_AT(net.trail[r][i] == net.trail[0][i], i);
        }
        onebit_net_close(&old); onebit_net_close(&net);
    }
}
static void onebit_golden(void) { /* the bytes of a state stay */
    static const uint64_t want[3] = { UINT64_C(0xf63859f188386fe9), UINT64_C(0xf8ca050b522bca4f), UINT64_C(0x6fa3fdb5661a1906) }; int kind; const uint16_t byte_order = 1;
    if (ONEBIT_X87) { SKIP("x87 rounds twice"); return; }
    for (kind = 0; kind < 3; ++kind) {
        onebit_net net = onebit_net_of((memopt_onebit_kind)kind, 1, 77); onebit_world w; uint64_t got;
        net.freeze = 4; net.steps = net.save_at = 10; net.local_double = 2; net.decay = 0.0078125;
        onebit_net_open(&net);
        CHECK(onebit_run_net(&net, &w));
        if (*(const unsigned char *)&byte_order != 1) { onebit_net_close(&net); SKIP("big-endian"); return; }
        got = onebit_hash(net.saved[0], net.sizes.state_bytes);
        CHECK_AT(got == want[kind] || printf("got 0x%lx%08lx\n", (unsigned long)(got >> 32), (unsigned long)(got & 0xffffffffu)) < 0, (uint64_t)kind);
        onebit_net_close(&net);
    }
}
static void onebit_load_refusals(void) {
    float p[20] = { 0 }, g[20] = { 0 }; memopt_onebit_tensor t[2]; memopt_onebit_desc d; memopt_onebit *o = NULL, *two = NULL; memopt_onebit_sizes z; unsigned char *copy; const void *states[2];
    memopt_i_onebit_state s; memopt_onebit_run run; memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAM);
    memset(&d, 0, sizeof d); memset(t, 0, sizeof t); memset(&run, 0, sizeof run);
    t[0].count = t[1].count = 10; t[0].weights = p; t[1].weights = p + 10; t[0].gradients = g; t[1].gradients = g + 10;
    d.kind = MEMOPT_ONEBIT_ZERO_ONE; d.tensors = t; d.tensor_count = 2; d.freeze_step = 3;
    run.groups = &group; run.group_count = 1;
    CHECK(memopt_onebit_open(&d, NULL, &o) == MEMOPT_OK && memopt_onebit_open(&d, NULL, &two) == MEMOPT_OK && memopt_onebit_bytes(&d, &z) == MEMOPT_OK);
    copy = (unsigned char *)calloc(1, z.state_bytes + 64);
    if (!o || !two || !copy) return;
    CHECK(memopt_onebit_step(o, &run) == MEMOPT_OK);
    states[0] = copy; states[1] = memopt_onebit_state(o);
    memcpy(copy, memopt_onebit_state(o), z.state_bytes);
    s.head = (memopt_i_onebit_head *)(void *)copy;
#define LOADS_NOT(list, bytes, ranks, want, text) CHECK(memopt_onebit_load(two, list, bytes, ranks) == (want) && test_error_says(memopt_onebit_error(two), want, text) && memopt_onebit_get_stats(two).step == 0)
    LOADS_NOT(NULL, z.state_bytes, 1, MEMOPT_ERR_ARGUMENT, "onebit: states is NULL");
    LOADS_NOT(states, z.state_bytes, 0, MEMOPT_ERR_ARGUMENT, "onebit: rank_count 0, at least 1");
    LOADS_NOT(states, z.state_bytes - 1, 1, MEMOPT_ERR_BUFFER, "onebit: bytes 1151, at least 1152");
    LOADS_NOT(states, z.state_bytes, SIZE_MAX, MEMOPT_ERR_OVERFLOW, "onebit: rank_count is too large for a size_t");
    ++s.head->magic; LOADS_NOT(states, z.state_bytes, 1, MEMOPT_ERR_FORMAT, "onebit: this is no state, or of another version or byte order at state 0"); --s.head->magic;
    ++s.head->kind; LOADS_NOT(states, z.state_bytes, 1, MEMOPT_ERR_FORMAT, "onebit: it is of another kind, or of other tensors at state 0"); --s.head->kind;
    ++*(uint64_t *)(void *)(copy + 128); LOADS_NOT(states, z.state_bytes, 1, MEMOPT_ERR_FORMAT, "onebit: it is of another kind, or of other tensors at state 0"); --*(uint64_t *)(void *)(copy + 128);
    ++s.head->rank; LOADS_NOT(states, z.state_bytes, 1, MEMOPT_ERR_FORMAT, "onebit: it is another rank's at state 0"); --s.head->rank;
    s.head->rank_count = 2; LOADS_NOT(states, z.state_bytes + 64, 2, MEMOPT_ERR_FORMAT, "onebit: it is another rank's at state 1"); s.head->rank_count = 1;
    s.head->step = 4; LOADS_NOT(states, z.state_bytes, 1, MEMOPT_ERR_FORMAT, "onebit: it is damaged, or of another step than state 0, or of another freeze_step at state 0"); s.head->step = 1;
    s.head->local_every = 0; LOADS_NOT(states, z.state_bytes, 1, MEMOPT_ERR_FORMAT, "onebit: it is damaged, or of another step than state 0, or of another freeze_step at state 0"); s.head->local_every = 1;
    s.head->since_meeting = 1; LOADS_NOT(states, z.state_bytes, 1, MEMOPT_ERR_FORMAT, "onebit: it is damaged, or of another step than state 0, or of another freeze_step at state 0"); s.head->since_meeting = 0;
    states[0] = copy + 4; LOADS_NOT(states, z.state_bytes, 1, MEMOPT_ERR_ARGUMENT, "onebit: memory is misaligned at state 0");
    states[0] = copy; t[1].weights = NULL; LOADS_NOT(states, z.state_bytes, 1, MEMOPT_ERR_ARGUMENT, "onebit: weights is NULL at tensor 1");
    t[1].weights = p + 10;
    CHECK(memopt_onebit_load(NULL, states, z.state_bytes, 1) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_onebit_load(two, states, z.state_bytes, 1) == MEMOPT_OK && memopt_onebit_get_stats(two).step == 1);
    memopt_onebit_close(o); memopt_onebit_close(two);
    d.kind = MEMOPT_ONEBIT_ADAM; two = NULL; /* its ranks meet at each step: there is no anchor to go on from */
    CHECK(memopt_onebit_open(&d, NULL, &two) == MEMOPT_OK && memopt_onebit_bytes(&d, &z) == MEMOPT_OK);
    if (two) memcpy(copy, memopt_onebit_state(two), z.state_bytes);
    s.head->local_every = 9; s.head->since_meeting = 1;
    LOADS_NOT(states, z.state_bytes, 1, MEMOPT_ERR_FORMAT, "onebit: it is damaged, or of another step than state 0, or of another freeze_step at state 0");
    memopt_onebit_close(two);
    free(copy);
}

/* ---- what is refused; memory ---- */
static void onebit_refusals(void) {
    memopt_threads few = test_level(0);
    float p[10] = { 0 }, g[10] = { 0 }; memopt_onebit_tensor t[2]; memopt_onebit_desc right, x; memopt_onebit_sizes z; memopt_onebit *o = NULL; memopt_comm *comm = NULL; memopt_comm_desc cd;
    memopt_onebit_run run; memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAM); union { double d; unsigned char b[64]; } room[2]; void *memory = room;
    memset(&right, 0, sizeof right); memset(t, 0, sizeof t); memset(&cd, 0, sizeof cd); memset(&run, 0, sizeof run);
    t[0].count = t[1].count = 10; t[0].weights = t[1].weights = p; t[0].gradients = t[1].gradients = g;
    right.tensors = t; right.tensor_count = 2; right.freeze_step = 3;
    CHECK(memopt_comm_create(&cd, &comm) == MEMOPT_OK);
    CHECK(memopt_onebit_bytes(NULL, &z) == MEMOPT_ERR_ARGUMENT && memopt_onebit_create(NULL, memory, 64, &o) == MEMOPT_ERR_ARGUMENT && memopt_onebit_open(NULL, NULL, &o) == MEMOPT_ERR_ARGUMENT);
    x = right; REFUSES(x.error, (void)0, memopt_onebit_bytes(&x, NULL), MEMOPT_ERR_ARGUMENT, "onebit: out is NULL");
    x = right; REFUSES(x.error, x.kind = (memopt_onebit_kind)test_number_of(3), memopt_onebit_bytes(&x, &z), MEMOPT_ERR_ARGUMENT, "onebit: kind 3, no such memopt_onebit_kind");
    x = right; REFUSES(x.error, x.kind = (memopt_onebit_kind)test_number_of(-1), memopt_onebit_bytes(&x, &z), MEMOPT_ERR_ARGUMENT, "onebit: kind -1, no such memopt_onebit_kind");
    x = right; REFUSES(x.error, (x.comm = comm, x.rank_count = 2), memopt_onebit_bytes(&x, &z), MEMOPT_ERR_ARGUMENT, "onebit: rank_count 2, must be comm's 1");
    x = right; REFUSES(x.error, x.freeze_step = 0, memopt_onebit_bytes(&x, &z), MEMOPT_ERR_ARGUMENT, "onebit: freeze_step 0, at least 1");
    x = right; REFUSES(x.error, x.tensors = NULL, memopt_onebit_bytes(&x, &z), MEMOPT_ERR_ARGUMENT, "onebit: tensors is NULL");
    x = right; REFUSES(x.error, x.tensor_count = 0, memopt_onebit_bytes(&x, &z), MEMOPT_ERR_ARGUMENT, "onebit: tensor_count 0, at least 1");
    x = right; REFUSES(x.error, (few.worker_count = -1, x.threads = &few), memopt_onebit_bytes(&x, &z), MEMOPT_ERR_ARGUMENT, "onebit: threads.worker_count -1, at least 0");
    x = right; t[1].count = 0; REFUSES(x.error, (void)0, memopt_onebit_bytes(&x, &z), MEMOPT_ERR_ARGUMENT, "onebit: count 0 at tensor 1, at least 1");
    t[1].count = 10; t[0].count = 0; REFUSES(x.error, x.tensor_count = 1, memopt_onebit_bytes(&x, &z), MEMOPT_ERR_ARGUMENT, "onebit: count 0 at tensor 0, at least 1");
    t[0].count = SIZE_MAX; REFUSES(x.error, (void)0, memopt_onebit_bytes(&x, &z), MEMOPT_ERR_OVERFLOW, "onebit: count makes the tensors larger than memory can be at tensor 0");
    t[0].count = 10;
    x = right; t[1].count = SIZE_MAX; REFUSES(x.error, (void)0, memopt_onebit_bytes(&x, &z), MEMOPT_ERR_OVERFLOW, "onebit: count makes the tensors larger than memory can be at tensor 1");
    t[1].count = SIZE_MAX / 64 - 7; REFUSES(x.error, (void)0, memopt_onebit_bytes(&x, &z), MEMOPT_ERR_OVERFLOW, "onebit: count makes the tensors larger than memory can be at tensor 1");
    t[1].count = 10;
    x = right; REFUSES(x.error, x.rank_count = SIZE_MAX, memopt_onebit_bytes(&x, &z), MEMOPT_ERR_OVERFLOW, "onebit: rank_count is too large for a size_t");
    x = right; REFUSES(x.error, (void)0, memopt_onebit_create(&x, memory, 64, NULL), MEMOPT_ERR_ARGUMENT, "onebit: out is NULL");
    x = right; REFUSES(x.error, (void)0, memopt_onebit_open(&x, NULL, NULL), MEMOPT_ERR_ARGUMENT, "onebit: out is NULL");
    x = right; REFUSES(x.error, x.rank_count = 2, memopt_onebit_create(&x, memory, 64, &o), MEMOPT_ERR_ARGUMENT, "onebit: comm is NULL, and rank_count is above 1");
    x = right; REFUSES(x.error, x.rank_count = 2, memopt_onebit_open(&x, NULL, &o), MEMOPT_ERR_ARGUMENT, "onebit: comm is NULL, and rank_count is above 1");
    x = right; REFUSES(x.error, (void)0, memopt_onebit_create(&x, NULL, 64, &o), MEMOPT_ERR_ARGUMENT, "onebit: memory is NULL");
    CHECK(o == NULL && memopt_onebit_step(NULL, &run) == MEMOPT_ERR_ARGUMENT && memopt_onebit_error(NULL).status == MEMOPT_ERR_ARGUMENT);
    CHECK(!memopt_onebit_state(NULL) && !memopt_onebit_get_stats(NULL).step);
    memopt_onebit_close(NULL);
    right.comm = comm;
    CHECK(memopt_onebit_open(&right, NULL, &o) == MEMOPT_OK && memopt_onebit_error(o).status == MEMOPT_OK);
    if (!o) return;
#define STEPS_NOT(change, back, text) do { change; CHECK(memopt_onebit_step(o, &run) == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_onebit_error(o), MEMOPT_ERR_ARGUMENT, text)); back; } while (0)
    CHECK(memopt_onebit_step(o, NULL) == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_onebit_error(o), MEMOPT_ERR_ARGUMENT, "onebit: run is NULL"));
    STEPS_NOT((void)0, run.groups = &group, "onebit: groups is NULL");
    STEPS_NOT((void)0, run.group_count = 1, "onebit: group_count 0, at least 1");
    STEPS_NOT(run.gradient_factor = -1, run.gradient_factor = 0, "onebit: gradient_factor -1, must be 0, or from 2^-48 to 2^48");
    STEPS_NOT(group.beta1 = 1, group.beta1 = 0.9, "onebit: beta1 1 at group 0, at least 0 and below 1");
    STEPS_NOT(t[1].group = 1, t[1].group = 0, "onebit: group 1 at tensor 1, below group_count 1");
    STEPS_NOT(t[0].weights = NULL, t[0].weights = p, "onebit: weights is NULL at tensor 0");
    STEPS_NOT(t[1].gradients = NULL, t[1].gradients = g, "onebit: gradients is NULL at tensor 1");
    CHECK(memopt_onebit_get_stats(o).step == 0 && memopt_onebit_step(o, &run) == MEMOPT_OK);
    memopt_onebit_close(o); memopt_comm_destroy(comm);
}
static memopt_arena *onebit_arena(memopt_source *source, int kind, size_t capacity) { /* kind 0: memory, 1: counting, 2: a device's */
    memopt_arena_desc d; memopt_arena *a = NULL;
    memset(&d, 0, sizeof d);
    CHECK((kind == 1 ? memopt_source_counting(source) : memopt_source_allocator(NULL, source)) == MEMOPT_OK);
    if (kind == 2) source->host_visible = 0;
    d.source = source; d.capacity = capacity;
    CHECK(memopt_arena_create(&d, &a) == MEMOPT_OK);
    return a;
}
static void onebit_memory(void) { /* the bytes that were told: from an arena, one that counts, one that is too small, and yours */
    float p[300] = { 0 }, g[300] = { 0 }; memopt_onebit_tensor t; memopt_onebit_desc d; memopt_onebit_sizes z; memopt_onebit *o = NULL, *untouched = NULL; memopt_arena *arena;
    memopt_source source; memopt_error why; char line[100]; unsigned char *memory; int kind;
    memset(&t, 0, sizeof t); memset(&d, 0, sizeof d);
    t.weights = p; t.gradients = g; t.count = 300; d.tensors = &t; d.tensor_count = 1; d.freeze_step = 2;
    for (kind = 0; kind < 3; ++kind) {
        d.kind = (memopt_onebit_kind)kind; d.error = &why;
        CHECK(memopt_onebit_bytes(&d, &z) == MEMOPT_OK && z.bytes % 64 == 0 && z.state_bytes % 64 == 0);
        arena = onebit_arena(&source, 0, z.bytes);
        CHECK(memopt_onebit_open(&d, arena, &o) == MEMOPT_OK && memopt_arena_get_stats(arena).used_low == z.bytes);
        memopt_onebit_close(o); /* the arena's: nothing happens */
        CHECK(memopt_onebit_open(&d, arena, &untouched) == MEMOPT_ERR_MEMORY && !untouched && why.status == MEMOPT_ERR_MEMORY && why.got.count == z.bytes);
        memopt_arena_destroy(arena);
        arena = onebit_arena(&source, 1, (size_t)1 << 24);
        o = (memopt_onebit *)(void *)p;
        CHECK(memopt_onebit_open(&d, arena, &o) == MEMOPT_OK && !o && memopt_arena_get_stats(arena).peak == z.bytes);
        memopt_arena_destroy(arena);
        arena = onebit_arena(&source, 2, (size_t)1 << 24);
        REFUSES(d.error, (void)0, memopt_onebit_open(&d, arena, &untouched), MEMOPT_ERR_UNSUPPORTED, "onebit: arena is a device's");
        memopt_arena_destroy(arena);
        memory = (unsigned char *)memopt_i_system_alloc(NULL, z.bytes + 64, 64);
        if (!memory) return;
        memset(memory, 0xA5, z.bytes + 64);
        snprintf(line, sizeof line, "onebit: bytes %lu, at least %lu", (unsigned long)z.bytes - 1, (unsigned long)z.bytes);
        REFUSES(d.error, (void)0, memopt_onebit_create(&d, memory, z.bytes - 1, &untouched), MEMOPT_ERR_BUFFER, line);
        REFUSES(d.error, (void)0, memopt_onebit_create(&d, memory + 8, z.bytes, &untouched), MEMOPT_ERR_ARGUMENT, "onebit: memory is misaligned");
        CHECK(memory[0] == 0xA5 && !untouched && memopt_onebit_create(&d, memory, z.bytes, &o) == MEMOPT_OK && memory[z.bytes] == 0xA5);
        memopt_onebit_close(o); /* yours: nothing happens */
        memopt_i_system_free(NULL, memory, z.bytes + 64, 64);
    }
}

/* ---- a small training: two layers, of rows with noise; each rank has rows of its own ---- */
enum { ONEBIT_IN = 12, ONEBIT_HIDDEN = 20, ONEBIT_ROWS = 16, ONEBIT_WEIGHTS = ONEBIT_IN * ONEBIT_HIDDEN + ONEBIT_HIDDEN };
typedef struct onebit_school { memopt_onebit_kind kind; uint64_t freeze, steps; double loss; uint64_t hash[4]; } onebit_school;
static double onebit_row(uint64_t row, double *in) { /* its target */
    uint64_t s = row * 7919 + 13; double sum = 0; size_t i;
    for (i = 0; i < ONEBIT_IN; ++i) { in[i] = (double)(test_random(&s) % 2001) / 1000 - 1; sum += in[i] * (i % 3 ? 0.7 : -1.1); }
    return tanh(sum) + ((double)(test_random(&s) % 2001) / 1000 - 1) * 0.5;
}
static double onebit_lesson(const float *w, uint64_t row, double scale, float *g) { /* the loss of a row; and into g, where there is one */
    double in[ONEBIT_IN], hidden[ONEBIT_HIDDEN], out = 0, miss; const double want = onebit_row(row, in); size_t i, k;
    for (k = 0; k < ONEBIT_HIDDEN; ++k) {
        double sum = 0;
        for (i = 0; i < ONEBIT_IN; ++i) sum += in[i] * (double)w[k * ONEBIT_IN + i];
        hidden[k] = tanh(sum);
        out += hidden[k] * (double)w[ONEBIT_IN * ONEBIT_HIDDEN + k];
    }
    miss = out - want;
    for (k = 0; g && k < ONEBIT_HIDDEN; ++k) {
        const double back = miss * scale * (double)w[ONEBIT_IN * ONEBIT_HIDDEN + k] * (1 - hidden[k] * hidden[k]);
        g[ONEBIT_IN * ONEBIT_HIDDEN + k] += (float)(miss * scale * hidden[k]);
        for (i = 0; i < ONEBIT_IN; ++i) g[k * ONEBIT_IN + i] += (float)(back * in[i]);
    }
    return miss * miss / 2;
}
static void onebit_pupil(onebit_world *w, size_t rank, memopt_comm *comm) {
    onebit_school *x = (onebit_school *)w->data; float p[ONEBIT_WEIGHTS], g[ONEBIT_WEIGHTS]; memopt_onebit_tensor t[2]; memopt_onebit_desc d; memopt_onebit *o = NULL; memopt_onebit_run run;
    memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAM); uint64_t step, r, seed = 5; size_t i;
    memset(t, 0, sizeof t); memset(&d, 0, sizeof d); memset(&run, 0, sizeof run);
    for (i = 0; i < ONEBIT_WEIGHTS; ++i) p[i] = (float)((double)(test_random(&seed) % 2001) / 4000 - 0.25);
    t[0].weights = p; t[0].gradients = g; t[0].count = ONEBIT_IN * ONEBIT_HIDDEN; t[1].weights = p + t[0].count; t[1].gradients = g + t[0].count; t[1].count = ONEBIT_HIDDEN;
    d.kind = x->kind; d.comm = comm; d.freeze_step = x->freeze; d.tensors = t; d.tensor_count = 2; d.local_double = 160;
    run.groups = &group; run.group_count = 1;
    if (memopt_onebit_open(&d, NULL, &o)) { CHECK(0); return; }
    for (step = 1; step <= x->steps; ++step) {
        group.rate = 0.01 * (1 - 0.95 * (double)step / (double)x->steps); group.beta2 = 0.98; group.eps = 1e-6;
        if (x->kind == MEMOPT_ONEBIT_LAMB) group.rate *= 2;
        memset(g, 0, sizeof g);
        for (r = 0; r < ONEBIT_ROWS; ++r) (void)onebit_lesson(p, (step * 4 + rank) * ONEBIT_ROWS + r, 1.0 / (int)ONEBIT_ROWS, g);
        CHECK(memopt_onebit_step(o, &run) == MEMOPT_OK);
    }
    x->hash[rank] = onebit_hash(p, sizeof p);
    for (r = 0; rank == 0 && r < 2000; ++r) x->loss += onebit_lesson(p, 1000000 + r, 0, NULL) / 2000;
    memopt_onebit_close(o);
}
static void onebit_training(void) {
    int kind;
    for (kind = 0; kind < 3; ++kind) {
        onebit_school exact, x; onebit_world w; const uint64_t freeze = 80;
        memset(&exact, 0, sizeof exact);
        exact.kind = kind == MEMOPT_ONEBIT_LAMB ? MEMOPT_ONEBIT_LAMB : MEMOPT_ONEBIT_ADAM; exact.steps = 400; exact.freeze = 100000;
        x = exact; x.kind = (memopt_onebit_kind)kind; x.freeze = freeze;
        memset(&w, 0, sizeof w); w.ranks = 4; w.fn = onebit_pupil; w.data = &exact;
        if (!onebit_play(&w)) { SKIP("no threads"); return; }
        w.data = &x;
        CHECK(onebit_play(&w) && x.loss < 1.02 * exact.loss && x.loss > 0 && exact.loss < 0.05); /* 0.042 of it is noise */
        CHECK(kind == MEMOPT_ONEBIT_ZERO_ONE || (x.hash[0] == x.hash[1] && x.hash[0] == x.hash[2] && x.hash[0] == x.hash[3]));
        if (getenv("ONEBIT_PRINT")) printf("kind %d: exact %.6f, one bit %.6f\n", kind, exact.loss, x.loss);
    }
}

static void test_onebit(void) {
    RUN(onebit_vectors_adam); RUN(onebit_vectors_lamb); RUN(onebit_vectors_zero_one); RUN(onebit_model_all); RUN(onebit_model_large); RUN(onebit_levels); RUN(onebit_signs);
    RUN(onebit_drift); RUN(onebit_wire);
#if SIZE_MAX > 0xffffffffu /* a large model */
    RUN(onebit_plans);
#endif
    RUN(onebit_comm_fails); RUN(onebit_bad_gradients); RUN(onebit_extremes); RUN(onebit_lamb_limits); RUN(onebit_disagree);
    RUN(onebit_resume); RUN(onebit_recut); RUN(onebit_golden); RUN(onebit_load_refusals); RUN(onebit_refusals); RUN(onebit_memory); RUN(onebit_training);
}
#ifndef TEST_COMBINED
int main(void) { test_onebit(); return test_totals(); }
#endif
