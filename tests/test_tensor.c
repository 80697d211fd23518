/* test_tensor.c - examples/parts/tensor.h: a transformer cut by width among ranks, which are threads here. One rank with
   the same parts is held to the network of block.h within rounding, and every number of ranks to one rank in every bit:
   loss, gradients, weights. */
#include "test.h"
#include "../examples/parts/tensor.h"
#include <pthread.h>

enum { CUT_LAYERS = 2, CUT_BATCHES = 2, CUT_PARTS = 8, CUT_ROWS = 64 };
typedef struct cut_model {
    transformer         shape;
    transformer_cut     cut;
    transformer_part    embedding;
    transformer_block   blocks[CUT_LAYERS];
    transformer_head    head;
    transformer_chain   chain;
    memopt_tape_layer   layers[2 * CUT_LAYERS + 2];
    memopt_segment      segments[2 * CUT_LAYERS + 2];
    memopt_tape        *tape;
    memopt_error        error;
    double              loss[CUT_BATCHES + 1]; /* the last: of an evaluation */
} cut_model;

static transformer cut_shape(int variant, memopt_type type) {
    transformer t;

    memset(&t, 0, sizeof t);
    t.batch = 2; t.length = CUT_ROWS / 2; t.width = 32; t.heads = 8; t.vocabulary = 61; t.padded = 64;
    t.type = type; t.weight_type = type == MEMOPT_TYPE_F32 ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16;
    if (variant == 0) t.dropout = 0.1f; /* GPT-2 */
    if (variant >= 1) { t.rms = t.swiglu = t.rotary = t.no_bias = t.untied = 1; t.heads = 16; t.kv_heads = 8; t.head_width = 4; t.hidden = 48; }
    if (variant == 2) { t.qk_norm = t.qkv_bias = 1; t.window = 9; t.untied = 0; }
    if (variant == 3) { t.swiglu = 0; t.geglu = 1; t.rms = 0; t.no_bias = 0; t.rotary = 0; t.not_causal = 1; }
    return t;
}
static void cut_add(cut_model *m, int is_cut) {
    transformer_chain *c = &m->chain; size_t i;

    c->elements = c->tensor_count = c->count = 0;
    if (is_cut) tensor_add_embedding(c, &m->embedding); else transformer_add_embedding(c, &m->embedding);
    for (i = 0; i < CUT_LAYERS; ++i) if (is_cut) tensor_add_block(c, &m->blocks[i]); else transformer_add_block(c, &m->blocks[i]);
    if (is_cut) tensor_add_head(c, &m->head, &m->embedding); else transformer_add_head(c, &m->head, &m->embedding);
}
static void cut_open(cut_model *m, const transformer *shape, const transformer_cut *cut, const memopt_threads *threads, double overhead, size_t grain) {
    memopt_tape_desc d;

    memset(m, 0, sizeof *m); memset(&d, 0, sizeof d);
    m->shape = *shape; m->shape.ops.threads = threads; m->shape.accumulate = 1;
    if (cut) { m->cut = *cut; m->shape.cut = &m->cut; m->shape.grain = grain; }
    m->head.chunk = 32; m->head.rule.count = CUT_BATCHES * CUT_ROWS;
    m->chain.shape = &m->shape;
    cut_add(m, cut != NULL);
    m->chain.weights = calloc(m->chain.elements, 4); m->chain.gradients = calloc(m->chain.elements, 4);
    m->chain.layers = m->layers; m->chain.segments = m->segments;
    cut_add(m, cut != NULL);
    d.chain.segments = m->segments; d.chain.count = m->chain.count; d.chain.input_bytes = CUT_ROWS * 4;
    d.layers = m->layers; d.seed = 3; d.overhead = overhead; d.error = &m->error;
    if (overhead <= 0) d.budget = SIZE_MAX;
    if (memopt_tape_describe(m->layers, m->segments, m->chain.count, &m->error) == MEMOPT_OK) (void)memopt_tape_open(&d, &m->tape);
    if (!m->tape) MEMOPT_ERROR_PRINT(stdout, m->error);
}
static void cut_close(cut_model *m) { memopt_tape_destroy(m->tape); free(m->chain.weights); free(m->chain.gradients); }

/* ---- where everything lies in the whole network, and in a rank's ---- */
typedef void cut_visit_fn(void *user, int of, size_t i, const transformer_tensor *whole, size_t whole_at, const transformer_tensor *here, size_t here_at);
static void cut_visit(const cut_model *m, const transformer *whole, cut_visit_fn *fn, void *user) {
    size_t part, i, whole_at = 0, here_at = 0;

    for (part = 0; part < 2 * CUT_LAYERS + 2; ++part) {
        const int of = part == 0 || part == 2 * CUT_LAYERS + 1 ? TENSOR_ENDS : part % 2 ? TENSOR_ATTENTION : TENSOR_MLP;
        transformer_tensors_fn *of_whole = part == 0 ? transformer_embedding_tensors : of == TENSOR_ENDS ? transformer_head_tensors : of == TENSOR_MLP ? transformer_mlp_tensors : transformer_attention_tensors;
        transformer_tensors_fn *of_here = part == 0 ? tensor_embedding_tensors : of == TENSOR_ENDS ? tensor_head_tensors : of == TENSOR_MLP ? tensor_mlp_tensors : tensor_attention_tensors;
        transformer_tensor a[TRANSFORMER_TENSORS_MAX], b[TRANSFORMER_TENSORS_MAX]; size_t na, nb;

        memset(a, 0, sizeof a); memset(b, 0, sizeof b);
        na = of_whole(whole, a); nb = transformer_place(&m->shape, b, of_here(&m->shape, b));
        for (i = 0; i < TRANSFORMER_TENSORS_MAX; ++i) if (a[i].count) fn(user, of, i, &a[i], whole_at, &b[i], here_at);
        whole_at += na; here_at += nb;
    }
}
typedef struct cut_move { const cut_model *m; unsigned char *whole, *here; size_t size; int to_whole, is_first, differs; } cut_move;
static void cut_move_one(void *user, int of, size_t i, const transformer_tensor *whole, size_t whole_at, const transformer_tensor *here, size_t here_at) {
    cut_move *v = (cut_move *)user; size_t k;
    unsigned char *w = v->whole + (whole_at + whole->first) * v->size, *h = v->here + (here_at + here->first) * v->size;

    if (!here->pieces && v->to_whole && !v->is_first) v->differs |= memcmp(w, h, whole->count * v->size) != 0;
    else if (!here->pieces) memcpy(v->to_whole ? w : h, v->to_whole ? h : w, whole->count * v->size);
    for (k = 0; k < here->pieces; ++k)
        tensor_copy(&v->m->shape, of, i, v->m->cut.rank * here->pieces + k, h + k * transformer_step(&v->m->shape, here) * v->size, w, whole->columns, v->size, v->to_whole);
}

/* ---- a run: some batches, and what is left of them ---- */
typedef struct cut_run {
    transformer shape;
    size_t parts, ranks, grain;
    double overhead;
    int workers;
    unsigned char *weights;  /* of the whole network, as block.h has it */
    float *gradients;
    double loss[CUT_BATCHES + 1];
    size_t output_bytes, kept, elements;
    memopt_ranks *all;
    memopt_comm_stats stats;
    memopt_status status[CUT_PARTS];
    int ended, differs;      /* ranks so far; in what all of them have */
    char why[200];
} cut_run;
static void cut_batch(int32_t *ids, int32_t *targets, size_t batch) {
    uint64_t seed = 77 + batch; size_t i;

    for (i = 0; i < CUT_ROWS; ++i) { ids[i] = (int32_t)test_below(&seed, 61); targets[i] = i % 7 == 3 ? -1 : (int32_t)test_below(&seed, 61); }
}
static memopt_status cut_train(cut_model *m) {
    int32_t ids[CUT_ROWS], targets[CUT_ROWS]; float out; size_t b; memopt_status s = MEMOPT_OK;

    m->head.targets = targets;
    for (b = 0; b < CUT_BATCHES && !s; ++b) {
        cut_batch(ids, targets, b);
        s = memopt_tape_forward(m->tape, ids);
        if (!s) s = memopt_tape_backward(m->tape, NULL, NULL);
        m->loss[b] = m->head.loss;
    }
    cut_batch(ids, targets, 5);
    if (!s) s = memopt_tape_evaluate(m->tape, ids, &out);
    m->loss[CUT_BATCHES] = m->head.loss;
    return s;
}
typedef struct cut_thread { cut_run *run; size_t rank; pthread_t thread; } cut_thread;
static pthread_mutex_t cut_lock = PTHREAD_MUTEX_INITIALIZER;
static void *cut_rank(void *user) {
    const cut_thread *me = (const cut_thread *)user; cut_run *run = me->run; cut_model *m = (cut_model *)calloc(1, sizeof *m);
    memopt_comm_desc link; transformer_cut cut; memopt_comm *comm = NULL; cut_move v; test_worker_set set = { 0, 0, 0, 0 }; memopt_threads threads;

    memset(&link, 0, sizeof link);
    link.transport = memopt_ranks_transport(run->all, me->rank);
    run->status[me->rank] = memopt_comm_create(&link, &comm);
    if (run->status[me->rank]) return NULL;
    cut.parts = run->parts; cut.rank = me->rank; cut.rank_count = run->ranks; cut.comm = run->ranks > 1 ? comm : NULL;
    threads = test_workers(&set, run->workers, 0);
    cut_open(m, &run->shape, &cut, run->workers ? &threads : NULL, run->overhead, run->grain);
    v.m = m; v.whole = run->weights; v.here = (unsigned char *)m->chain.weights; v.size = memopt_type_bytes(m->shape.weight_type); v.to_whole = 0;
    cut_visit(m, &run->shape, cut_move_one, &v);
    run->status[me->rank] = cut_train(m);
    if (run->status[me->rank]) memopt_comm_abort(comm);
    if (run->status[me->rank]) { memopt_error e = memopt_tape_error(m->tape); (void)memopt_error_text(&e, run->why, sizeof run->why, NULL); }
    v.whole = (unsigned char *)run->gradients; v.here = (unsigned char *)m->chain.gradients; v.size = 4; v.to_whole = 1;
    (void)pthread_mutex_lock(&cut_lock);
    v.is_first = !run->ended++; v.differs = 0;
    cut_visit(m, &run->shape, cut_move_one, &v);
    if (v.is_first) memcpy(run->loss, m->loss, sizeof run->loss);
    run->differs |= v.differs | (memcmp(run->loss, m->loss, sizeof run->loss) != 0);
    run->output_bytes = m->segments[1].output_bytes; run->kept = memopt_tape_get_stats(m->tape).kept;
    run->stats = memopt_comm_get_stats(comm); run->elements = m->chain.elements;
    (void)pthread_mutex_unlock(&cut_lock);
    cut_close(m); free(m); memopt_comm_destroy(comm);
    return NULL;
}
static size_t cut_elements(const transformer *shape) {
    cut_model m;

    memset(&m, 0, sizeof m);
    m.shape = *shape; m.chain.shape = &m.shape;
    cut_add(&m, 0);
    return m.chain.elements;
}
static void cut_begin(cut_run *run, int variant, memopt_type type, size_t parts, size_t ranks) {
    uint64_t seed = 5; size_t i, n;

    memset(run, 0, sizeof *run);
    run->shape = cut_shape(variant, type); run->parts = parts; run->ranks = ranks;
    n = cut_elements(&run->shape);
    run->weights = (unsigned char *)calloc(n, 4); run->gradients = (float *)calloc(n, 4);
    for (i = 0; i < n; ++i) {
        const float x = ((float)test_below(&seed, 2001) - 1000) * 0.0002f + (i % 32 == 5 ? 0.5f : 0);

        if (type == MEMOPT_TYPE_F32) memcpy(run->weights + 4 * i, &x, 4);
        else { const uint16_t y = memopt_to_bf16(x); memcpy(run->weights + 2 * i, &y, 2); }
    }
}
static void cut_go(cut_run *run) {
    cut_thread threads[CUT_PARTS]; memopt_ranks_desc d; size_t r;

    memset(&d, 0, sizeof d);
    run->ended = run->differs = 0;
    d.rank_count = run->ranks; d.deadline = UINT64_C(20000000000);
    CHECK(memopt_ranks_create(&d, &run->all) == MEMOPT_OK);
    for (r = 0; r < run->ranks; ++r) { threads[r].run = run; threads[r].rank = r; CHECK(!pthread_create(&threads[r].thread, NULL, cut_rank, &threads[r])); }
    for (r = 0; r < run->ranks; ++r) (void)pthread_join(threads[r].thread, NULL);
    for (r = 0; r < run->ranks; ++r) CHECK_AT(run->status[r] == MEMOPT_OK, r);
    CHECK(!run->differs);
    if (run->why[0]) printf("%s\n", run->why);
    memopt_ranks_destroy(run->all);
}
static void cut_end(cut_run *run) { free(run->weights); free(run->gradients); }

/* One rank, of 1 to 8 parts, beside block.h. */
static void cut_against_blocks(void) {
    int variant, half; size_t parts, i, n;

    for (variant = 0; variant < 4; ++variant)
        for (half = 0; half < 2; ++half) {
            const memopt_type type = half ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32; cut_run run; cut_model *m = (cut_model *)calloc(1, sizeof *m);

            cut_begin(&run, variant, type, 1, 1);
            n = cut_elements(&run.shape);
            cut_open(m, &run.shape, NULL, NULL, 0, 0);
            memcpy(m->chain.weights, run.weights, n * memopt_type_bytes(m->shape.weight_type));
            CHECK(cut_train(m) == MEMOPT_OK);
            for (parts = 1; parts <= CUT_PARTS; parts *= 2) {
                const double bound = half ? 3e-2 : 2e-5; double most = 0, largest = 0;

                run.parts = parts;
                memset(run.gradients, 0, n * 4);
                cut_go(&run);
                for (i = 0; i < 3; ++i) CHECK_AT(fabs(run.loss[i] - m->loss[i]) <= (half ? 2e-3 : 1e-6), i);
                for (i = 0; i < n; ++i) {
                    const double want = (double)((float *)m->chain.gradients)[i], off = fabs((double)run.gradients[i] - want);

                    if (off > most) most = off;
                    if (fabs(want) > largest) largest = fabs(want);
                }
                CHECK_AT(most <= bound * largest, (size_t)variant * 100 + parts);
                if (most > bound * largest) printf("variant %d, %zu parts: %g of %g\n", variant, parts, most, largest);
            }
            cut_close(m); free(m); cut_end(&run);
        }
}
static void cut_same_bits(void) {
    int variant, half, keep; size_t ranks;

    for (variant = 0; variant < 4; ++variant)
        for (half = 0; half < 2; ++half)
            for (keep = 0; keep < 2; ++keep) {
                const memopt_type type = half ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32; cut_run one; size_t n;

                cut_begin(&one, variant, type, CUT_PARTS, 1);
                n = cut_elements(&one.shape);
                cut_go(&one);
                for (ranks = 1; ranks <= CUT_PARTS; ranks *= 2) {
                    cut_run run;

                    cut_begin(&run, variant, type, CUT_PARTS, ranks);
                    run.overhead = keep ? 0.6 : 0; run.grain = keep ? 256 : 0; run.workers = ranks == 1 ? 3 : ranks == 4 ? 2 : 0;
                    cut_go(&run);
                    CHECK_AT(!memcmp(run.loss, one.loss, sizeof run.loss), ranks);
                    CHECK_AT(!memcmp(run.gradients, one.gradients, n * 4), (size_t)variant * 100 + ranks);
                    CHECK_AT(run.output_bytes == CUT_ROWS * 32 * memopt_type_bytes(type) / ranks, ranks);
                    if (!keep) CHECK_AT(run.kept * ranks == one.kept || run.kept * ranks - one.kept < 64 * 64, ranks);
                    cut_end(&run);
                }
                cut_end(&one);
            }
}
static void test_tensor(void) {
    RUN(cut_against_blocks);
    RUN(cut_same_bits);
}
#ifndef TEST_COMBINED
int main(void) { test_tensor(); return test_totals(); }
#endif
