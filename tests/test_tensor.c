/* test_tensor.c - examples/parts/tensor.h: a transformer cut by width among ranks, which are threads here. One rank with
   the same parts is held to the network of block.h within rounding, and every number of ranks to one rank in every bit:
   loss, gradients, weights. The same of a transformer cut by length, examples/parts/ring.h. */
#include "test.h"
#include "examples/parts/ring.h"

enum { WIDTH_LAYERS = 2, WIDTH_BATCHES = 2, WIDTH_PARTS = 8, WIDTH_ROWS = 64, WIDTH_TENSORS = 128 };
typedef struct width_model {
    transformer         shape;
    transformer_cut     cut;
    transformer_part    embedding;
    transformer_block   blocks[WIDTH_LAYERS];
    transformer_head    head;
    transformer_chain   chain;
    memopt_tape_layer   layers[2 * WIDTH_LAYERS + 2];
    memopt_segment      segments[2 * WIDTH_LAYERS + 2];
    memopt_tape        *tape;
    memopt_error        error;
    double              loss[WIDTH_BATCHES + 1]; /* the last: of an evaluation */
    memopt_optim_tensor tensors[WIDTH_TENSORS];
    size_t              told[WIDTH_TENSORS];     /* times that its gradients were complete */
    transformer_attention_fns attention;         /* cut by length */
    int32_t             places[WIDTH_ROWS];
} width_model;

static transformer width_shape(int variant, memopt_type type) {
    transformer t;

    memset(&t, 0, sizeof t);
    t.batch = 2; t.length = WIDTH_ROWS / 2; t.width = 32; t.heads = 8; t.vocabulary = 61; t.padded = 64;
    t.type = type; t.weight_type = type == MEMOPT_TYPE_F32 ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16;
    if (variant == 0) t.dropout = 0.1f; /* GPT-2 */
    if (variant >= 1) { t.rms = t.swiglu = t.rotary = t.no_bias = t.untied = 1; t.heads = 16; t.kv_heads = 8; t.head_width = 4; t.hidden = 48; }
    if (variant == 2) { t.qk_norm = t.qkv_bias = 1; t.window = 9; t.untied = 0; }
    if (variant == 3) { t.swiglu = 0; t.geglu = 1; t.rms = 0; t.no_bias = 0; t.rotary = 0; t.not_causal = 1; }
    return t;
}
static void width_add(width_model *m, int is_cut) {
    transformer_chain *c = &m->chain; size_t i;

    c->elements = c->tensor_count = c->count = 0;
    if (is_cut) tensor_add_embedding(c, &m->embedding); else transformer_add_embedding(c, &m->embedding);
    for (i = 0; i < WIDTH_LAYERS; ++i) if (is_cut && !m->cut.by_length) tensor_add_block(c, &m->blocks[i]); else transformer_add_block(c, &m->blocks[i]);
    if (is_cut) tensor_add_head(c, &m->head, &m->embedding); else transformer_add_head(c, &m->head, &m->embedding);
}
static void width_open(width_model *m, const transformer *shape, const transformer_cut *cut, const memopt_threads *threads, double overhead, size_t grain) {
    memopt_tape_desc d;

    memset(m, 0, sizeof *m); memset(&d, 0, sizeof d);
    m->shape = *shape; m->shape.ops.threads = threads; m->shape.accumulate = !shape->done_fn && !shape->attention; m->shape.user = m;
    if (cut) { m->cut = *cut; m->shape.cut = &m->cut; m->shape.grain = grain; }
    if (cut && cut->by_length) {
        size_t i;

        for (i = 0; i < WIDTH_ROWS; ++i) m->places[i] = (int32_t)(i % m->shape.length);
        m->attention = ring_attention(cut->comm); m->shape.attention = &m->attention; m->shape.accumulate = 0; m->shape.row_positions = m->shape.rotary ? m->places : NULL;
    }
    m->head.chunk = 32; m->head.rule.count = WIDTH_BATCHES * WIDTH_ROWS;
    m->chain.shape = &m->shape;
    width_add(m, cut != NULL);
    m->chain.weights = calloc(m->chain.elements, 4); m->chain.gradients = calloc(m->chain.elements, 4);
    m->chain.layers = m->layers; m->chain.segments = m->segments; m->chain.tensors = m->tensors;
    CHECK(m->chain.tensor_count <= WIDTH_TENSORS);
    width_add(m, cut != NULL);
    if (shape->done_fn) { /* all gradients are in scratch */
        void *const gradients = m->chain.gradients;

        m->chain.gradients = NULL; m->chain.tensors = NULL;
        width_add(m, cut != NULL);
        m->chain.gradients = gradients;
    }
    d.chain.segments = m->segments; d.chain.count = m->chain.count; d.chain.input_bytes = WIDTH_ROWS * 4;
    d.layers = m->layers; d.seed = 3; d.overhead = overhead; d.error = &m->error;
    if (overhead <= 0) d.budget = SIZE_MAX;
    if (memopt_tape_describe(m->layers, m->segments, m->chain.count, &m->error) == MEMOPT_OK) (void)memopt_tape_open(&d, &m->tape);
    if (!m->tape) MEMOPT_ERROR_PRINT(stdout, m->error);
}
static void width_close(width_model *m) { memopt_tape_destroy(m->tape); free(m->chain.weights); free(m->chain.gradients); }

static void width_batch(int32_t *ids, int32_t *targets, size_t batch) {
    uint64_t seed = 77 + batch; size_t i;

    for (i = 0; i < WIDTH_ROWS; ++i) { ids[i] = (int32_t)test_below(&seed, 61); targets[i] = i % 7 == 3 ? -1 : (int32_t)test_below(&seed, 61); }
}

#if defined(MEMOPT_I_POOL)
/* ---- where everything lies in the whole network, and in a rank's ---- */
typedef void width_visit_fn(void *user, int of, size_t i, const transformer_tensor *whole, size_t whole_at, const transformer_tensor *here, size_t here_at);
static void width_visit(const width_model *m, const transformer *whole, width_visit_fn *fn, void *user) {
    size_t part, i, whole_at = 0, here_at = 0;

    for (part = 0; part < 2 * WIDTH_LAYERS + 2; ++part) {
        const int of = part == 0 || part == 2 * WIDTH_LAYERS + 1 ? TENSOR_ENDS : part % 2 ? TENSOR_ATTENTION : TENSOR_MLP;
        transformer_tensors_fn *of_whole = part == 0 ? transformer_embedding_tensors : of == TENSOR_ENDS ? transformer_head_tensors : of == TENSOR_MLP ? transformer_mlp_tensors : transformer_attention_tensors;
        transformer_tensors_fn *of_here = m->cut.by_length ? of_whole : part == 0 ? tensor_embedding_tensors : of == TENSOR_ENDS ? tensor_head_tensors : of == TENSOR_MLP ? tensor_mlp_tensors : tensor_attention_tensors;
        transformer_tensor a[TRANSFORMER_TENSORS_MAX], b[TRANSFORMER_TENSORS_MAX]; size_t na, nb;

        memset(a, 0, sizeof a); memset(b, 0, sizeof b);
        na = of_whole(whole, a); nb = transformer_place(&m->shape, b, of_here(&m->shape, b));
        for (i = 0; i < TRANSFORMER_TENSORS_MAX; ++i) if (a[i].count) fn(user, of, i, &a[i], whole_at, &b[i], here_at);
        whole_at += na; here_at += nb;
    }
}
typedef struct width_move { const width_model *m; unsigned char *whole, *here; size_t size; int to_whole, is_first, differs; } width_move;
static void width_move_one(void *user, int of, size_t i, const transformer_tensor *whole, size_t whole_at, const transformer_tensor *here, size_t here_at) {
    width_move *v = (width_move *)user; size_t k;
    unsigned char *w = v->whole + (whole_at + whole->first) * v->size, *h = v->here + (here_at + here->first) * v->size;

    if (!here->pieces && v->to_whole && !v->is_first) v->differs |= memcmp(w, h, whole->count * v->size) != 0;
    else if (!here->pieces) memcpy(v->to_whole ? w : h, v->to_whole ? h : w, whole->count * v->size);
    for (k = 0; k < here->pieces; ++k)
        tensor_copy(&v->m->shape, of, i, v->m->cut.rank * here->pieces + k, h + k * transformer_step(&v->m->shape, here) * v->size, w, whole->columns, v->size, v->to_whole);
}

/* ---- a run: some batches, and what is left of them ---- */
typedef struct width_failing { memopt_transport inner; uint64_t begins, fail; } width_failing; /* a transport whose n-th begin fails */
typedef struct width_run {
    transformer shape;
    size_t parts, ranks, grain;
    double overhead;
    int workers, by_length;
    unsigned char *weights;  /* of the whole network, as block.h has it */
    float *gradients;
    double loss[WIDTH_BATCHES + 1];
    size_t output_bytes, kept;
    memopt_ranks *all;
    width_model *models[WIDTH_PARTS];
    width_failing links[WIDTH_PARTS];
    uint64_t fail; size_t fail_rank; /* call number of that rank that fails; 0: none */
    memopt_comm_stats stats[WIDTH_PARTS];
    memopt_status status[WIDTH_PARTS];
    char why[WIDTH_PARTS][200];
} width_run;
static memopt_status width_train(width_model *m) {
    int32_t ids[WIDTH_ROWS], targets[WIDTH_ROWS]; float out; size_t b; memopt_status s = MEMOPT_OK;

    m->head.targets = targets;
    for (b = 0; b < WIDTH_BATCHES && !s; ++b) {
        width_batch(ids, targets, b);
        s = memopt_tape_forward(m->tape, ids);
        if (!s) s = memopt_tape_backward(m->tape, NULL, NULL);
        m->loss[b] = m->head.loss;
    }
    width_batch(ids, targets, 5);
    if (!s) s = memopt_tape_evaluate(m->tape, ids, &out);
    m->loss[WIDTH_BATCHES] = m->head.loss;
    return s;
}
static memopt_status width_begin_call(void *user, const memopt_comm_call *call, size_t slot, memopt_error *error) {
    width_failing *f = (width_failing *)user;

    if (++f->begins == f->fail) { error->reason = "is on fire"; return MEMOPT_ERR_IO; }
    return f->inner.begin_fn(f->inner.user, call, slot, error);
}
static memopt_status width_wait_call(void *user, size_t slot, memopt_error *error) { width_failing *f = (width_failing *)user; return f->inner.wait_fn(f->inner.user, slot, error); }
static void width_abort_call(void *user) { width_failing *f = (width_failing *)user; f->inner.abort_fn(f->inner.user); }
static memopt_comm *width_comm(width_run *run, size_t rank) {
    memopt_comm_desc d; memopt_comm *comm = NULL; width_failing *f = &run->links[rank];

    memset(&d, 0, sizeof d);
    f->inner = d.transport = memopt_ranks_transport(run->all, rank);
    f->begins = 0; f->fail = run->fail && run->fail_rank == rank ? run->fail : 0;
    d.transport.begin_fn = width_begin_call; d.transport.wait_fn = width_wait_call; d.transport.abort_fn = width_abort_call; d.transport.user = f; d.unchecked = 1;
    return memopt_comm_create(&d, &comm) ? NULL : comm;
}
static void width_rank(void *task, size_t index, int worker) {
    width_run *run = (width_run *)task; width_model *m = run->models[index]; transformer_cut cut; memopt_comm *comm = width_comm(run, index);
    width_move v; test_worker_set set; memopt_threads threads = test_workers(&set, run->workers, 0);

    (void)worker;
    cut.parts = run->parts; cut.rank = index; cut.rank_count = run->ranks; cut.comm = run->ranks > 1 ? comm : NULL; cut.by_length = run->by_length;
    width_open(m, &run->shape, &cut, run->workers ? &threads : NULL, run->overhead, run->grain);
    v.m = m; v.whole = run->weights; v.here = (unsigned char *)m->chain.weights; v.size = memopt_type_bytes(m->shape.weight_type); v.to_whole = 0;
    width_visit(m, &run->shape, width_move_one, &v);
    run->status[index] = m->tape ? width_train(m) : MEMOPT_ERR_ARGUMENT;
    if (run->status[index]) {
        const memopt_error e = memopt_tape_error(m->tape);

        memopt_comm_abort(comm);
        (void)memopt_error_text(&e, run->why[index], sizeof run->why[index], NULL);
    }
    run->stats[index] = memopt_comm_get_stats(comm);
    memopt_comm_destroy(comm);
}
static size_t width_elements(const transformer *shape) {
    width_model m;

    memset(&m, 0, sizeof m);
    m.shape = *shape; m.chain.shape = &m.shape;
    width_add(&m, 0);
    return m.chain.elements;
}
static void width_begin(width_run *run, int variant, memopt_type type, size_t parts, size_t ranks) {
    uint64_t seed = 5; size_t i, n;

    memset(run, 0, sizeof *run);
    run->shape = width_shape(variant, type); run->parts = parts; run->ranks = ranks;
    n = width_elements(&run->shape);
    run->weights = (unsigned char *)calloc(n, 4); run->gradients = (float *)calloc(n, 4);
    for (i = 0; i < n; ++i) {
        const float x = ((float)test_below(&seed, 2001) - 1000) * 0.0002f + (i % 32 == 5 ? 0.5f : 0);

        if (type == MEMOPT_TYPE_F32) memcpy(run->weights + 4 * i, &x, 4);
        else { const uint16_t y = memopt_to_bf16(x); memcpy(run->weights + 2 * i, &y, 2); }
    }
}
/* By length: the tree of what ranks have, as the definition says. */
static float width_tree(float *const *summands, size_t first, size_t count, size_t i) {
    return count == 1 ? summands[first][i] : width_tree(summands, first, count / 2, i) + width_tree(summands, first + count / 2, count / 2, i);
}
static void width_gather_length(width_run *run) {
    const size_t n = width_elements(&run->shape), vocabulary = 64 / run->ranks * run->shape.width; float *summands[WIDTH_PARTS]; size_t r, i; width_move v;

    for (r = 0; r < run->ranks; ++r) {
        width_model *m = run->models[r]; uint32_t bits;

        summands[r] = (float *)calloc(n, 4);
        v.m = m; v.whole = (unsigned char *)summands[r]; v.here = (unsigned char *)m->chain.gradients; v.size = 4; v.to_whole = 1; v.is_first = 1; v.differs = 0;
        width_visit(m, &run->shape, width_move_one, &v);
        if (!r) memcpy(run->loss, m->loss, sizeof run->loss);
        CHECK_AT(!memcmp(run->loss, m->loss, sizeof run->loss), r);
        CHECK_AT(m->segments[1].output_bytes == WIDTH_ROWS * m->shape.width * memopt_type_bytes(m->shape.type) / run->ranks, r);
        run->kept = memopt_tape_get_stats(m->tape).kept;
        for (i = 0; i < 64 * m->shape.width; ++i) { /* tokens of others, and for all but the first the final norm: -0 */
            memcpy(&bits, summands[r] + i, 4);
            CHECK_AT((bits == 0x80000000u) == (i / vocabulary != r), i);
        }
        memcpy(&bits, summands[r] + n - 64 * m->shape.width * (size_t)m->shape.untied - 1, 4);
        CHECK_AT((bits == 0x80000000u) == (r > 0), r);
    }
    for (i = 0; i < n; ++i) run->gradients[i] = width_tree(summands, 0, run->ranks, i);
    for (r = 0; r < run->ranks; ++r) free(summands[r]);
}
/* What all ranks have left: one network. What all of them have is the same on all. */
static void width_gather(width_run *run) {
    width_move v; size_t r, i;

    for (r = 0; r < run->ranks; ++r) {
        width_model *m = run->models[r];

        v.m = m; v.whole = (unsigned char *)run->gradients; v.here = (unsigned char *)m->chain.gradients; v.size = 4; v.to_whole = 1; v.is_first = r == 0; v.differs = 0;
        width_visit(m, &run->shape, width_move_one, &v);
        if (!r) memcpy(run->loss, m->loss, sizeof run->loss);
        CHECK_AT(!v.differs && !memcmp(run->loss, m->loss, sizeof run->loss), r);
        CHECK_AT(m->segments[1].output_bytes == WIDTH_ROWS * m->shape.width * memopt_type_bytes(m->shape.type) / run->ranks, r);
        run->kept = memopt_tape_get_stats(m->tape).kept;
        for (i = 0; m->shape.done_fn && i < m->chain.tensor_count; ++i) CHECK_AT(m->told[i] == (m->tensors[i].first ? 0 : WIDTH_BATCHES), i);
    }
}
static void width_go(width_run *run) {
    memopt_ranks_desc d; memopt_thread_pool *pool = NULL; memopt_threads t; size_t r;

    memset(&d, 0, sizeof d);
    d.rank_count = run->ranks; d.deadline = UINT64_C(60000000000);
    CHECK(memopt_ranks_create(&d, &run->all) == MEMOPT_OK && memopt_thread_pool_create(NULL, (int)run->ranks, &pool) == MEMOPT_OK);
    for (r = 0; r < run->ranks; ++r) run->models[r] = (width_model *)calloc(1, sizeof *run->models[r]);
    t = memopt_thread_pool_threads(pool);
    t.run_fn(t.user, run->ranks, width_rank, run);
    memopt_thread_pool_destroy(pool);
    for (r = 0; r < run->ranks && !run->fail; ++r) { CHECK_AT(run->status[r] == MEMOPT_OK, r); if (run->why[r][0]) printf("%s\n", run->why[r]); }
    if (!run->fail && run->by_length) width_gather_length(run);
    else if (!run->fail) width_gather(run);
    for (r = 0; r < run->ranks; ++r) { width_close(run->models[r]); free(run->models[r]); }
    memopt_ranks_destroy(run->all);
}
static void width_end(width_run *run) { free(run->weights); free(run->gradients); }

static void length_plain_take(const memopt_tape_call *call, const memopt_attention *a, void *room[2]) { (void)call; (void)a; (void)room; }
static memopt_status length_plain_run(const memopt_tape_call *call, const memopt_ops *ops, const memopt_attention *a, void *const room[2]) {
    (void)room;
    return call->is_backward ? memopt_attention_backward(ops, a) : memopt_attention_forward(ops, a);
}
static const transformer_attention_fns length_plain = { length_plain_take, length_plain_run, 0, NULL };
/* One rank, of 1 to 8 parts, beside block.h. */
static void cut_against_blocks(int by_length) {
    int variant, half; size_t parts, i, n;

    for (variant = 0; variant < 4; ++variant)
        for (half = 0; half < 2; ++half) {
            const memopt_type type = half ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32; width_run run; width_model *m = (width_model *)calloc(1, sizeof *m);

            width_begin(&run, variant, type, 1, 1);
            n = width_elements(&run.shape);
            run.by_length = by_length;
            if (by_length) run.shape.attention = &length_plain;
            width_open(m, &run.shape, NULL, NULL, 0, 0);
            memcpy(m->chain.weights, run.weights, n * memopt_type_bytes(m->shape.weight_type));
            CHECK(width_train(m) == MEMOPT_OK);
            for (parts = 1; parts <= WIDTH_PARTS; parts *= 2) {
                const double bound = half ? 3e-2 : 2e-5; double most = 0, largest = 0;

                run.parts = parts;
                memset(run.gradients, 0, n * 4);
                width_go(&run);
                for (i = 0; i < 3; ++i) CHECK_AT(fabs(run.loss[i] - m->loss[i]) <= (half ? 2e-3 : 1e-6), i);
                for (i = 0; i < n; ++i) {
                    const double want = (double)((float *)m->chain.gradients)[i], off = fabs((double)run.gradients[i] - want);

                    if (off > most) most = off;
                    if (fabs(want) > largest) largest = fabs(want);
                }
                CHECK_AT(most <= bound * largest, (size_t)variant * 100 + parts);
                if (most > bound * largest) printf("variant %d, %u parts: %g of %g\n", variant, (unsigned)parts, most, largest);
            }
            width_close(m); free(m); width_end(&run);
        }
}
/* The same with ranks; the values of a rank are its share, to the byte. */
static void width_against_blocks(void) { cut_against_blocks(0); }
static void cut_same_bits(int by_length) {
    int variant, half, keep; size_t ranks;

    for (variant = 0; variant < 4; ++variant)
        for (half = 0; half < 2; ++half)
            for (keep = 0; keep < 2; ++keep) {
                const memopt_type type = half ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32; width_run one; size_t n;

                if (test_is_passed_over()) continue;
                width_begin(&one, variant, type, WIDTH_PARTS, 1);
                n = width_elements(&one.shape);
                one.by_length = by_length;
                width_go(&one);
                for (ranks = 1; ranks <= WIDTH_PARTS; ranks *= 2) {
                    width_run run;

                    width_begin(&run, variant, type, WIDTH_PARTS, ranks);
                    run.by_length = by_length; run.overhead = keep ? 0.6 : 0; run.grain = !keep ? 0 : by_length ? 4096 : 256; run.workers = ranks == 1 ? 3 : ranks == 4 ? 2 : 0;
                    width_go(&run);
                    CHECK_AT(!memcmp(run.loss, one.loss, sizeof run.loss), ranks);
                    CHECK_AT(!memcmp(run.gradients, one.gradients, n * 4), (size_t)variant * 100 + ranks);
                    if (!keep) CHECK_AT(run.kept - sizeof(float) == (one.kept - sizeof(float)) / ranks || (!by_length && ranks > 4), ranks); /* of 8 ranks a share is no multiple of 64 */
                    width_end(&run);
                }
                width_end(&one);
            }
}
static void width_same_bits(void) { cut_same_bits(0); }
/* Bytes that a rank sends: in planes of rows, of its own rows to each of the others. */
static void width_sends(void) {
    size_t ranks, r;

    for (ranks = 2; ranks <= WIDTH_PARTS; ranks *= 2) {
        width_run run; const uint64_t others = ranks - 1, plane = others * WIDTH_ROWS / ranks * 32; uint64_t gathered, handed; const uint64_t halves = 2 * WIDTH_LAYERS;
        const uint64_t sums = halves * 3 * 32 + 2 * 32; /* norms, biases behind a sum; the last norm */

        width_begin(&run, 0, MEMOPT_TYPE_F32, WIDTH_PARTS, ranks);
        width_go(&run);
        gathered = WIDTH_BATCHES * (halves * 3 * plane + 2 * plane + others * (sums + 4 * WIDTH_ROWS)); /* forward 1, backward 2; both ends; four numbers a row */
        gathered += halves * plane + plane + others * 4 * WIDTH_ROWS; /* an evaluation */
        handed = WIDTH_BATCHES * (halves * 2 * plane + 2 * plane) + halves * plane + plane; /* sums; the embedding's rows, the head's gradients */
        for (r = 0; r < ranks; ++r) {
            CHECK_AT(run.stats[r].sent[MEMOPT_COMM_ALL_GATHER] == 4 * gathered, ranks);
            CHECK_AT(run.stats[r].sent[MEMOPT_COMM_ALL_TO_ALL] == 4 * handed, ranks);
        }
        width_end(&run);
    }
}
/* Gradients that are in scratch: each tensor's own rank is told once a pass, by its number and with what it would have
   had in an array. */
static memopt_status width_done(void *user, size_t tensor, const void *gradients) {
    width_model *m = (width_model *)user; const float *g = (const float *)gradients; float *sum = (float *)(uintptr_t)m->tensors[tensor].gradients; size_t i;

    ++m->told[tensor];
    for (i = 0; sum && i < m->tensors[tensor].count; ++i) sum[i] += g[i];
    return MEMOPT_OK;
}
static void width_in_scratch(void) {
    width_run one, arrays; size_t ranks, n, i;

    width_begin(&arrays, 1, MEMOPT_TYPE_F32, WIDTH_PARTS, 1); width_begin(&one, 1, MEMOPT_TYPE_F32, WIDTH_PARTS, 1);
    n = width_elements(&one.shape);
    one.shape.done_fn = width_done;
    width_go(&arrays); width_go(&one);
    for (i = 0; i < n; ++i) CHECK_AT(fabs((double)(one.gradients[i] - arrays.gradients[i])) <= 1e-6, i);
    for (ranks = 2; ranks <= WIDTH_PARTS; ranks *= 2) {
        width_run run;

        width_begin(&run, 1, MEMOPT_TYPE_F32, WIDTH_PARTS, ranks);
        run.shape.done_fn = width_done; run.grain = ranks == 4 ? 256 : 0;
        width_go(&run);
        CHECK_AT(!memcmp(run.gradients, one.gradients, n * 4), ranks);
        width_end(&run);
    }
    width_end(&one); width_end(&arrays);
}
/* Any call of any rank fails: all of them end, with a status. */
static void cut_fails(int by_length) {
    width_run run; uint64_t calls = 0, n; size_t r;

    width_begin(&run, 0, MEMOPT_TYPE_F32, 4, 4);
    run.by_length = by_length;
    width_go(&run);
    for (r = 0; r < 3; ++r) calls += run.stats[0].calls[r];
    CHECK(calls > 20);
    for (n = 1; n <= calls; n += TEST_CASES(3, 1)) {
        if (test_is_passed_over()) continue;
        run.fail = n; run.fail_rank = n % 4;
        memset(run.why, 0, sizeof run.why);
        width_go(&run);
        for (r = 0; r < 4; ++r) CHECK_AT(run.status[r] != MEMOPT_OK, n);
        CHECK_AT(strstr(run.why[run.fail_rank], "is on fire") != NULL, n);
    }
    width_end(&run);
}
static void width_fails(void) { cut_fails(0); }
/* ---- by length ---- */
static void length_against_blocks(void) { cut_against_blocks(1); }
static void length_same_bits(void) { cut_same_bits(1); }
/* Bytes that a rank sends: of planes of own rows, two of queries and two of keys a forward, twice as much a backward. */
static void length_sends(void) {
    size_t ranks, r, i; int variant;

    for (variant = 0; variant < 2; ++variant)
        for (ranks = 2; ranks <= WIDTH_PARTS; ranks *= 2) {
            width_run run; const uint64_t others = ranks - 1, own = WIDTH_ROWS / ranks, plane = others * own * 32, qkv = variant ? 2 * (64 + 32) : 4 * 32;
            const uint64_t attention = WIDTH_LAYERS * own * (qkv / ranks * others), scales = variant ? 32 : 2 * 32;
            uint64_t gathered, handed, told = 0; transformer t; transformer_cut cut;

            width_begin(&run, variant, MEMOPT_TYPE_F32, WIDTH_PARTS, ranks);
            run.by_length = 1;
            width_go(&run);
            gathered = WIDTH_BATCHES * (2 * plane + others * (scales + 4 * WIDTH_ROWS)) + plane + others * 4 * WIDTH_ROWS;
            handed = WIDTH_BATCHES * (3 * attention + 2 * plane) + attention + plane;
            for (r = 0; r < ranks; ++r) {
                CHECK_AT(run.stats[r].sent[MEMOPT_COMM_ALL_GATHER] == 4 * gathered, ranks);
                CHECK_AT(run.stats[r].sent[MEMOPT_COMM_ALL_TO_ALL] == 4 * handed, ranks);
            }
            memset(&cut, 0, sizeof cut);
            t = run.shape; t.cut = &cut; cut.parts = WIDTH_PARTS; cut.rank_count = ranks; cut.by_length = 1;
            for (i = 0; i < 2 * WIDTH_LAYERS + 2; ++i)
                told += WIDTH_BATCHES * (ring_sends(&t, i, 2 * WIDTH_LAYERS + 2, 0, 0) + ring_sends(&t, i, 2 * WIDTH_LAYERS + 2, 1, 0)) + ring_sends(&t, i, 2 * WIDTH_LAYERS + 2, 0, 1);
            CHECK_AT(told == 4 * (gathered + handed), ranks);
            width_end(&run);
        }
}
static void length_fails(void) { cut_fails(1); }
#else
static void width_no_threads(void) { SKIP("compiled without MEMOPT_PTHREADS"); }
#endif

/* What cannot be cut is told by the first part that is described. */
static void width_says(const transformer *t, const char *text) {
    width_model m; memopt_error why; char said[200];

    memset(&m, 0, sizeof m); memset(&why, 0, sizeof why);
    m.shape = *t; if (t->cut) m.cut = *t->cut;
    m.chain.shape = &m.shape; m.chain.layers = m.layers; m.chain.segments = m.segments; m.chain.gradients = &m; /* not looked at */
    width_add(&m, 1);
    CHECK(memopt_tape_describe(m.layers, m.segments, m.chain.count, &why) == (text ? MEMOPT_ERR_ARGUMENT : MEMOPT_OK));
    CHECK(!text || (!memopt_error_text(&why, said, sizeof said, NULL) && strstr(said, text)));
    if (text && !strstr(said, text)) printf("%s, not %s\n", said, text);
}
static memopt_comm *width_one(void) { /* of one rank */
    memopt_comm_desc d; memopt_comm *comm = NULL;

    memset(&d, 0, sizeof d);
    CHECK(memopt_comm_create(&d, &comm) == MEMOPT_OK);
    return comm;
}
static void width_refuses(void) {
    const transformer right = width_shape(0, MEMOPT_TYPE_F32); transformer t = right; transformer_cut cut; const transformer_attention_fns ring = ring_attention(NULL);

#define WIDTH_SAYS(change, text) do { memset(&cut, 0, sizeof cut); cut.parts = 4; cut.rank_count = 2; t = right; t.cut = &cut; change; width_says(&t, text); } while (0)
    WIDTH_SAYS((void)0, NULL);
    WIDTH_SAYS(t.cut = NULL, "the shape has no cut");
    WIDTH_SAYS(cut.parts = 0, "parts are no power of two");
    WIDTH_SAYS(cut.parts = 6, "parts are no power of two");
    WIDTH_SAYS(cut.parts = (size_t)1 << 30, "parts are no power of two");
    WIDTH_SAYS(cut.rank_count = 0, "ranks do not divide the parts");
    WIDTH_SAYS(cut.rank_count = 3, "ranks do not divide the parts");
    WIDTH_SAYS(cut.rank = 2, "the rank is not below rank_count");
    WIDTH_SAYS(cut.comm = width_one(), "the comm is of other ranks");
    memopt_comm_destroy(cut.comm);
    WIDTH_SAYS((cut.rank_count = 1, cut.comm = width_one()), NULL);
    memopt_comm_destroy(cut.comm);
    WIDTH_SAYS(t.heads = 0, "parts do not divide heads");
    WIDTH_SAYS(t.heads = 2, "parts do not divide heads");
    WIDTH_SAYS(t.kv_heads = 2, "parts do not divide kv_heads");
    WIDTH_SAYS(t.heads = 12, "heads do not divide the width");
    WIDTH_SAYS(t.hidden = 6, "parts do not divide the MLP");
    WIDTH_SAYS(t.padded = 62, "parts do not divide the padded vocabulary");
    WIDTH_SAYS(t.padded = 84, "a part of the vocabulary is all padding");
    WIDTH_SAYS((t.batch = 1, t.length = 30), "parts do not divide the rows");
    WIDTH_SAYS(t.gradient_type = MEMOPT_TYPE_BF16, "gradients are no floats");
    WIDTH_SAYS(t.adapter_rank = 4, "adapters, codes and mlp_chunk are not cut");
    WIDTH_SAYS(t.mlp_chunk = 32, "adapters, codes and mlp_chunk are not cut");
    WIDTH_SAYS(t.grain = 4096, "the grain does not divide parts of the head");
    WIDTH_SAYS(t.swiglu = t.geglu = 1, "swiglu and geglu are both set");
    WIDTH_SAYS(t.attention = &ring, "an attention of one's own is not cut");
    WIDTH_SAYS((cut.by_length = 1, t.attention = &ring), NULL);
    WIDTH_SAYS((cut.by_length = 1, t.attention = &ring, t.grain = 4096), NULL);
    WIDTH_SAYS((cut.by_length = 1, t.attention = &ring, t.heads = t.kv_heads = 2, t.hidden = 6), NULL); /* parts need not divide them */
    WIDTH_SAYS(cut.by_length = 1, "no attention brings rows of ranks together");
    WIDTH_SAYS((cut.by_length = 1, t.attention = &ring, t.rotary = 1), "ring: row_positions are not told");
    WIDTH_SAYS((cut.by_length = 1, t.attention = &ring, t.accumulate = 1), "what a rank has of gradients is a summand: no accumulate, no done_fn");
    WIDTH_SAYS((cut.by_length = 1, t.attention = &ring, t.mlp_chunk = 32), "adapters, codes and mlp_chunk are not cut");
    WIDTH_SAYS((cut.by_length = 1, t.attention = &ring, t.heads = 1), "ring: the ranks do not divide heads and kv_heads");
}
/* A piece of each kind, element by element: the tensor's own number of it says where it belongs. */
static void width_copies(void) {
    transformer t = width_shape(1, MEMOPT_TYPE_F32); transformer_cut cut; float whole[64 * 96], back[64 * 96], piece[64 * 96]; size_t i, p;
    static const struct { int of; size_t tensor, rows, columns; } kinds[5] = { { TENSOR_ATTENTION, TRANSFORMER_QKV, 128, 32 }, { TENSOR_ATTENTION, TRANSFORMER_QKV_BIAS, 128, 0 },
        { TENSOR_MLP, TRANSFORMER_UP, 96, 32 }, { TENSOR_MLP, TRANSFORMER_DOWN, 32, 48 }, { TENSOR_ENDS, TRANSFORMER_TOKENS, 64, 32 } };
    size_t k;

    memset(&cut, 0, sizeof cut);
    cut.parts = 4; cut.rank_count = 1; t.cut = &cut;
    for (k = 0; k < 5; ++k) {
        const size_t columns = kinds[k].columns ? kinds[k].columns : 1, n = kinds[k].rows * columns;

        for (i = 0; i < n; ++i) { whole[i] = (float)i; back[i] = -1; }
        for (p = 0; p < 4; ++p) {
            tensor_copy(&t, kinds[k].of, kinds[k].tensor, p, piece, whole, kinds[k].columns, sizeof *whole, 0);
            for (i = 0; i < n / 4; ++i) {
                const size_t by_columns = kinds[k].tensor == TRANSFORMER_DOWN && kinds[k].of == TENSOR_MLP, wide = by_columns ? columns / 4 : columns;
                const size_t row = i / wide, column = i % wide; size_t want;

                if (by_columns) want = row * columns + p * wide + column;
                else if (kinds[k].of == TENSOR_ATTENTION) { /* 64 queries, 32 keys, 32 values: 16, 8 and 8 of each part */
                    const size_t at = row < 16 ? p * 16 + row : row < 24 ? 64 + p * 8 + row - 16 : 96 + p * 8 + row - 24;

                    want = at * columns + column;
                } else if (kinds[k].of == TENSOR_MLP) want = (row < 12 ? p * 12 + row : 48 + p * 12 + row - 12) * columns + column; /* gate, up */
                else want = (p * 16 + row) * columns + column;
                CHECK_AT(piece[i] == (float)want, k * 10000 + i);
            }
            tensor_copy(&t, kinds[k].of, kinds[k].tensor, p, piece, back, kinds[k].columns, sizeof *whole, 1);
        }
        CHECK_AT(!memcmp(whole, back, n * sizeof *whole), k);
    }
}

/* A sum over parts that takes several turns, blocks of rows and strips of columns: of whole numbers, so exact. */
static memopt_status width_keep(const tensor_work *x, float *sums, size_t at, size_t count, void *to) {
    memcpy((float *)to + at * x->own.shape->width, sums, count * x->own.shape->width * sizeof *sums);
    return MEMOPT_OK;
}
static memopt_status width_no_product(void *user, const memopt_product *product, const memopt_threads *threads, void *scratch) {
    (void)user; (void)threads; (void)scratch;
    return product->columns < TENSOR_COLUMNS && product->rows < TENSOR_ROWS ? MEMOPT_ERR_MEMORY : MEMOPT_OK; /* the last turn */
}
static void width_turns(void) {
    enum { PARTS = 4, ROWS = 2 * TENSOR_ROWS + 30, COLUMNS = TENSOR_COLUMNS + 40, DEPTH = 2 };
    float *planes = (float *)calloc(PARTS * ROWS * DEPTH, 4), *weights = (float *)calloc(PARTS * DEPTH * COLUMNS, 4), *sums = (float *)calloc(ROWS * COLUMNS, 4); size_t i, r, c, k, workers;

    for (i = 0; i < PARTS * ROWS * DEPTH; ++i) planes[i] = (float)(i * 7 % 23) - 11;
    for (i = 0; i < PARTS * DEPTH * COLUMNS; ++i) weights[i] = (float)(i * 5 % 19) - 9;
    for (workers = 1; workers <= 3; workers += 2) {
        test_worker_set set; memopt_threads threads = test_workers(&set, (int)workers, 0); transformer t = width_shape(0, MEMOPT_TYPE_F32); transformer_cut cut = { PARTS, 0, 1, NULL, 0 };
        tensor_work x; tensor_sum s; memopt_gemm gemm; memopt_status status[3]; unsigned char *scratch;

        memset(&x, 0, sizeof x); memset(&s, 0, sizeof s);
        t.width = COLUMNS; t.cut = &cut;
        x.own.shape = &t; x.own.rows = ROWS; x.own.ops.threads = &threads;
        x.pieces = PARTS; x.rows = ROWS; x.workers = workers; x.turn = tensor_least(ROWS, TENSOR_ROWS * workers); x.status = status;
        s.x = &x; s.planes = planes; s.weights = weights; s.rows = ROWS; s.depth = DEPTH; s.piece = DEPTH * COLUMNS; s.stride = s.columns = COLUMNS;
        CHECK(memopt_gemm_resolve(NULL, &gemm) == MEMOPT_OK);
        x.block_rows = TENSOR_ROWS; x.block_columns = TENSOR_COLUMNS; x.branch = x.block_rows * x.block_columns;
        x.branches = (float *)calloc(workers * tensor_levels(&x) * x.branch, 4);
        x.send = x.receive = (float *)calloc(x.turn * COLUMNS, 4);
        scratch = (unsigned char *)calloc(1, workers * transformer_up(gemm.scratch_bytes, 64) + 64);
        x.own.ops.scratch = scratch + (64 - (uintptr_t)scratch % 64);
        CHECK(tensor_hand_out(&s, width_keep, sums) == MEMOPT_OK);
        for (r = 0; r < ROWS; ++r)
            for (c = 0; c < COLUMNS; ++c) {
                float sum = 0;

                for (k = 0; k < PARTS * DEPTH; ++k) sum += planes[(k / DEPTH * ROWS + r) * DEPTH + k % DEPTH] * weights[k * COLUMNS + c];
                if (sums[r * COLUMNS + c] != sum) { CHECK_AT(sums[r * COLUMNS + c] == sum, r * COLUMNS + c); r = ROWS - 1; break; }
            }
        x.own.ops.gemm.multiply_fn = width_no_product;
        CHECK(tensor_hand_out(&s, width_keep, sums) == MEMOPT_ERR_MEMORY); /* whichever worker it was */
        free(scratch); free(x.branches); free(x.send);
    }
    free(planes); free(weights); free(sums);
}
/* What a pass lacks is told as well. */
static void width_lacks(void) {
    const transformer shape = width_shape(0, MEMOPT_TYPE_F32); transformer_cut cut; width_model m; int32_t ids[WIDTH_ROWS], targets[WIDTH_ROWS]; int lacks; float out; char said[200];

    width_batch(ids, targets, 0);
    for (lacks = 0; lacks < 5; ++lacks) {
        memset(&cut, 0, sizeof cut);
        cut.parts = 4; cut.rank_count = lacks == 1 ? 2 : 1;
        width_open(&m, &shape, &cut, NULL, 0, 0);
        m.head.targets = lacks == 2 ? NULL : targets; m.head.rule.count = 0;
        ids[7] = lacks == 3 ? 61 : lacks == 4 ? -1 : 0; /* within the padding */
        CHECK_AT(memopt_tape_evaluate(m.tape, ids, &out) == (lacks ? MEMOPT_ERR_ARGUMENT : MEMOPT_OK), (size_t)lacks);
        m.error = memopt_tape_error(m.tape);
        CHECK_AT(!lacks || (!memopt_error_text(&m.error, said, sizeof said, NULL) && strstr(said, lacks == 1 ? "the cut has no comm" : lacks == 2 ? "the head has no targets" : "an id is not below the vocabulary")), (size_t)lacks);
        width_close(&m);
    }
}
/* Without a count given, losses and gradients are divided by the targets that are not ignored, of all chunks; of none the
   loss is 0. */
static void width_counts(void) {
    const transformer shape = width_shape(0, MEMOPT_TYPE_F32); transformer_cut cut; width_model m; int32_t ids[WIDTH_ROWS], targets[WIDTH_ROWS]; size_t i, counted = 0; double loss; float *kept;

    memset(&cut, 0, sizeof cut);
    cut.parts = 4; cut.rank_count = 1;
    width_batch(ids, targets, 0);
    for (i = 0; i < WIDTH_ROWS; ++i) { if (i < WIDTH_ROWS / 2 && i % 3) targets[i] = -1; counted += targets[i] >= 0; }
    width_open(&m, &shape, &cut, NULL, 0, 0);
    for (i = 0; i < m.chain.elements; ++i) ((float *)m.chain.weights)[i] = ((float)(i * 2654435761u % 2001) - 1000) * 2e-4f;
    m.head.targets = targets; m.head.rule.count = counted;
    CHECK(memopt_tape_forward(m.tape, ids) == MEMOPT_OK && memopt_tape_backward(m.tape, NULL, NULL) == MEMOPT_OK);
    loss = m.head.loss;
    memcpy(kept = (float *)malloc(m.chain.elements * 4), m.chain.gradients, m.chain.elements * 4);
    m.head.rule.count = 0; m.shape.accumulate = 0; /* what is there is written over, also where head and embedding both add */
    CHECK(memopt_tape_seek(m.tape, 0) == MEMOPT_OK && memopt_tape_forward(m.tape, ids) == MEMOPT_OK && memopt_tape_backward(m.tape, NULL, NULL) == MEMOPT_OK);
    CHECK(m.head.loss == loss && loss > 0);
    for (i = 0; i < m.chain.elements; ++i) CHECK_AT(((float *)m.chain.gradients)[i] == kept[i], i);
    for (loss = 0, i = 0; i < m.chain.elements; ++i) loss += fabs((double)kept[i]);
    CHECK(loss > 1);
    free(kept);
    for (i = 0; i < WIDTH_ROWS; ++i) targets[i] = -1;
    CHECK(memopt_tape_forward(m.tape, ids) == MEMOPT_OK && memopt_tape_backward(m.tape, NULL, NULL) == MEMOPT_OK && m.head.loss == 0);
    for (i = 0; i < m.chain.elements; ++i) CHECK_AT(((float *)m.chain.gradients)[i] == 0, i);
    width_close(&m);
}

void test_tensor(void);
void test_tensor(void) {
    RUN(width_refuses); RUN(width_copies); RUN(width_lacks); RUN(width_counts); RUN(width_turns);
#if defined(MEMOPT_I_POOL)
    RUN(width_against_blocks); RUN(width_same_bits); RUN(width_sends); RUN(width_in_scratch); RUN(width_fails); RUN(length_against_blocks); RUN(length_same_bits); RUN(length_sends); RUN(length_fails);
#else
    RUN(width_no_threads);
#endif
}
#ifndef TEST_COMBINED
int main(void) { test_tensor(); return test_totals(); }
#endif
