/* test_parts_cut.c - tensors that ranks share, cut at any multiple of the block: sections state, optim_pass, adafactor and
   optim. The ranks are objects of one process; sums under way go from one to the next as memopt_i_optim_measure_cut()
   says it. What one object does with the whole tensor is the expected value, of every bit: sums, weights, states. Its
   own numbers are held by test_optim.c and test_adafactor.c. */
#include "test.h"

enum { CUT_TENSORS = 8, CUT_RANKS = 13, CUT_LARGE = 5, CUT_STEPS = 3 };
static const struct { size_t count, columns; } cut_shapes[CUT_TENSORS] = { /* from CUT_LARGE on: not in every case */
    { 1, 0 }, { 257, 0 }, { 31 * 33, 33 }, { 32 * 33, 33 }, { 96 * 515, 515 },
    { 300 * 256, 256 }, { 70001, 0 }, { 5 * 65536 + 17, 0 }
};
typedef struct cut_case {
    memopt_optim_kind   kind;
    memopt_state_format state;
    memopt_i_weights    weights;
    memopt_type         gradients;
    size_t              block, min_quantized;
    int                 moment, ranks, ragged, tensors; /* ragged: borders drawn at random, empty parts between others */
} cut_case;
typedef struct cut_rank {
    memopt_optim_tensor tensor[CUT_TENSORS];
    size_t              held[CUT_TENSORS];
    memopt_optim       *optim;
    test_worker_set     workers;
} cut_rank;
/* All of one process's memory; ranks have their parts of it. */
typedef struct cut_model {
    unsigned char *weights[CUT_TENSORS], *extra[CUT_TENSORS], *gradients[CUT_TENSORS];
} cut_model;
static size_t cut_weight(const cut_case *c) { return c->weights == MEMOPT_I_WEIGHTS_BF16 || c->weights == MEMOPT_I_WEIGHTS_SPLIT ? 2 : 4; }
static size_t cut_gradient(const cut_case *c) { return c->gradients == MEMOPT_TYPE_F32 ? 4 : 2; }
static int cut_is_matrix(int k) { return cut_shapes[k].columns >= 32 && cut_shapes[k].count / cut_shapes[k].columns >= 32; }
static unsigned char *cut_block(size_t bytes) {
    unsigned char *p = (unsigned char *)calloc(bytes + 64, 1);
    CHECK(p != NULL);
    if (!p) exit(1);
    return p;
}
static void cut_put(unsigned char *p, size_t i, size_t bytes, float x) { /* F32; or bfloat16, cut */
    const uint32_t bits = memopt_i_float_bits(x); const uint16_t high = (uint16_t)(bits >> 16);
    if (bytes == 4) memcpy(p + 4 * i, &bits, 4); else memcpy(p + 2 * i, &high, 2);
}
static void cut_model_open(cut_model *m, const cut_case *c) {
    int k; size_t i; uint64_t seed = 9;
    memset(m, 0, sizeof *m);
    for (k = 0; k < c->tensors; ++k) {
        const size_t n = cut_shapes[k].count;
        m->weights[k] = cut_block(n * 4); m->extra[k] = cut_block(n * 2); m->gradients[k] = cut_block(n * 4);
        for (i = 0; i < n; ++i) cut_put(m->weights[k], i, cut_weight(c), ((float)test_below(&seed, 4001) - 2000) * 0.001f);
    }
}
static void cut_model_close(cut_model *m) {
    int k;
    for (k = 0; k < CUT_TENSORS; ++k) { free(m->weights[k]); free(m->extra[k]); free(m->gradients[k]); }
}
/* Made once, because drawing them takes longer than a step. */
static unsigned char *cut_made[3][CUT_STEPS][CUT_TENSORS];
static void cut_forget(void) {
    int i, j, k;
    for (i = 0; i < 3; ++i) for (j = 0; j < CUT_STEPS; ++j) for (k = 0; k < CUT_TENSORS; ++k) { free(cut_made[i][j][k]); cut_made[i][j][k] = NULL; }
}
/* Gradients of many sizes. Some beside borders are not finite, or too large to be stepped; in the second step one is
   as large as can be, so that what is next to it is lost in the sums. */
static void cut_make(unsigned char *to, memopt_type type, uint64_t step, int k) {
    static const uint32_t bad[] = { 0x7fc00000u, 0x7f800000u, 0xff800000u, 0x5f800000u, 0x7f7fffffu, 0xffffffffu };
    uint64_t seed = step * 77 + (uint64_t)k; size_t i;
    for (i = 0; i < cut_shapes[k].count; ++i) {
        const uint64_t x = test_random(&seed);
        float g = (float)((int)(x & 0xffff) - 32768) * (1.0f / 32768) * (float)(1 + (x >> 20) % 7 * (x >> 24) % 5);
        if ((i % 32 == 31 || i % 32 == 0 || i % 256 == 5) && (x >> 40) % 100 == 0) g = memopt_i_bits_float(bad[(x >> 50) % 6]);
        if (step == 2 && k == 4 && i == 7000) g = 1e18f;
        if (type == MEMOPT_TYPE_F16) {
            const uint16_t code = (uint16_t)((x >> 32 & 0x3fff) | (x >> 33 & 0x8000) | ((x >> 40) % 512 ? 0 : 0x7c00));
            memcpy(to + 2 * i, &code, 2);
        } else cut_put(to, i, type == MEMOPT_TYPE_F32 ? 4 : 2, g);
    }
}
static void cut_feed(cut_model *m, const cut_case *c, uint64_t step) {
    int k;
    for (k = 0; k < c->tensors; ++k) {
        unsigned char **made = &cut_made[(int)c->gradients][step - 1][k];
        if (!*made) {
            *made = cut_block(cut_shapes[k].count * 4);
            cut_make(*made, c->gradients, step, k);
        }
        memcpy(m->gradients[k], *made, cut_shapes[k].count * cut_gradient(c));
    }
}
/* Borders of a tensor: what rank r holds begins at border r. */
static void cut_borders(const cut_case *c, int k, size_t *border) {
    const size_t n = cut_shapes[k].count, block = c->block ? c->block : 256, blocks = memopt_i_ceil_div(n, block);
    uint64_t seed = (uint64_t)(k + 100 * c->ranks); int r, j;
    border[0] = 0; border[c->ranks] = n;
    for (r = 1; r < c->ranks; ++r) {
        size_t at = c->ragged ? test_below(&seed, blocks + 1) : memopt_i_ceil_div(blocks, (size_t)c->ranks) * (size_t)r;
        at = memopt_i_min(at * block, n);
        for (j = r; j > 1 && border[j - 1] > at; --j) border[j] = border[j - 1];
        border[j] = at;
    }
}
static void cut_describe(memopt_optim_desc *d, const cut_case *c, memopt_optim_tensor *tensors) {
    memset(d, 0, sizeof *d);
    d->kind = c->kind; d->state = c->state; test_set_weights(d, c->weights); d->gradients = c->gradients;
    d->first_moment = c->moment; d->block = c->block; d->min_quantized = c->min_quantized; d->seed = 5;
    d->tensors = tensors; d->tensor_count = (size_t)c->tensors;
}
static void cut_rank_open(cut_rank *rank, const cut_case *c, const cut_model *m, int r, int whole) {
    memopt_optim_desc d; memopt_threads threads; int k; size_t border[CUT_RANKS + 1];
    memset(rank, 0, sizeof *rank);
    cut_describe(&d, c, rank->tensor);
    for (k = 0; k < c->tensors; ++k) {
        memopt_optim_tensor *t = &rank->tensor[k];
        border[0] = 0; border[1] = cut_shapes[k].count;
        if (!whole) cut_borders(c, k, border);
        t->count = cut_shapes[k].count; t->columns = cut_shapes[k].columns;
        t->first = border[r]; t->held = rank->held[k] = border[r + 1] - border[r];
        if (!t->held) { t->first = t->count; continue; } /* no pointers */
        t->weights = m->weights[k] + t->first * cut_weight(c);
        if (d.extra) t->extra = m->extra[k] + t->first * 2;
        t->gradients = m->gradients[k] + t->first * cut_gradient(c);
    }
    if (whole) threads = test_level(c->ranks % 4 ? memopt_simd_best() : MEMOPT_SIMD_SCALAR);
    else threads = test_workers(&rank->workers, r % 4, 1 + (memopt_simd_best() - 1 + 2 * r) % memopt_simd_best());
    d.threads = &threads;
    CHECK(memopt_optim_open(&d, NULL, &rank->optim) == MEMOPT_OK); d.threads = NULL; memset(&threads, 0xA5, sizeof threads);
    for (k = 0; k < c->tensors; ++k) {
        size_t bytes = 77;
        CHECK_AT(memopt_optim_state_bytes(&d, (size_t)k, &bytes) == MEMOPT_OK, k);
        CHECK_AT(memopt_optim_state_check(rank->optim, (size_t)k, bytes) == MEMOPT_OK, k);
        if (!rank->held[k]) CHECK_AT(bytes == 0 && !rank->tensor[k].state && memopt_optim_state_init(rank->optim, (size_t)k) == MEMOPT_OK, k);
    }
}
/* The sums of tensor k by all ranks, added up. ahead: before, the last rank first, ranks measure what needs no carry;
   where borders are drawn at random, every other rank does. */
static void cut_measure(const cut_case *c, cut_rank *ranks, int k, int ahead, double *total, size_t want_count) {
    const size_t n = memopt_i_optim_carry_count(ranks[0].optim, (size_t)k); int r;
    double *carry = (double *)(void *)cut_block((n + 1) * sizeof *carry), *sums;
    size_t i, count;
    memset(carry, 0xff, (n + 1) * sizeof *carry); /* NaN: the first rank does not read it */
    memset(total, 0, want_count * sizeof *total);
    for (r = c->ranks; r-- > 0; ) {
        CHECK_AT(memopt_i_optim_sums(ranks[r].optim, (size_t)k, &sums, &count) == MEMOPT_OK && count == want_count, r);
        if (count) memset(sums, 0, count * sizeof *sums); /* as begin leaves them */
        if (ahead && (!c->ragged || (r + k) % 2)) CHECK_AT(memopt_i_optim_measure_cut(ranks[r].optim, (size_t)k, NULL) == MEMOPT_OK, r);
    }
    for (r = 0; r < c->ranks; ++r) {
        CHECK_AT(memopt_i_optim_carry_count(ranks[r].optim, (size_t)k) == n, r);
        CHECK_AT(memopt_i_optim_measure_cut(ranks[r].optim, (size_t)k, ranks[r].held[k] && n ? carry : NULL) == MEMOPT_OK, r);
        CHECK_AT(memopt_i_optim_sums(ranks[r].optim, (size_t)k, &sums, &count) == MEMOPT_OK && count == want_count, r);
        for (i = 0; i < count; ++i) {
            CHECK_AT(!(total[i] > 0) || !(sums[i] > 0), i); /* each is one rank's */
            total[i] += sums[i];
        }
    }
    for (i = 0; i < n; ++i) CHECK_AT(memopt_i_double_bits(carry[i]) == 0, i);
    CHECK_AT(memopt_i_double_bits(carry[n]) == UINT64_MAX, k);
    free(carry);
}
/* Joins a pass over tensor k with what all ranks have summed: does another one follow? */
static int cut_join(cut_rank *ranks, int rank_count, int k, const double *total) {
    double *sums = NULL; size_t count = 0; int r, again = 0, first = 0;
    for (r = 0; r < rank_count; ++r) {
        CHECK_AT(memopt_i_optim_sums(ranks[r].optim, (size_t)k, &sums, &count) == MEMOPT_OK, r);
        if (count) memcpy(sums, total, count * sizeof *sums);
        CHECK_AT(memopt_i_optim_join(ranks[r].optim, (size_t)k, &again) == MEMOPT_OK, r);
        if (!r) first = again;
        CHECK_AT(again == first, r);
    }
    return first;
}
/* A pass of the ranks over tensor k, whose sums of one process are `want`: in both ways. */
static int cut_pass(const cut_case *c, cut_rank *ranks, int k, const double *want, size_t want_count) {
    double *total = (double *)(void *)cut_block(want_count * sizeof *total); int ahead, again;
    for (ahead = 0; ahead < 2; ++ahead) {
        cut_measure(c, ranks, k, ahead, total, want_count);
        CHECK_AT(!memcmp(total, want, want_count * sizeof *total), k);
    }
    again = cut_join(ranks, c->ranks, k, total);
    free(total);
    return again;
}
/* Applied in one slice, or in two that meet at the slice alignment. */
static void cut_apply(cut_rank *rank, int k, uint64_t *seed) {
    const size_t first = rank->tensor[k].first, held = rank->held[k], alignment = memopt_i_optim_slice_alignment(&rank->optim->desc, &rank->optim->desc.tensors[(size_t)k]);
    const size_t low = memopt_i_ceil_div(first + 1, alignment), high = (first + held - 1) / alignment; /* cuts inside */
    size_t cut = 0;
    if (!held) return;
    if (low <= high) cut = (low + test_below(seed, high - low + 1)) * alignment - first;
    if (cut) CHECK_AT(memopt_i_optim_apply(rank->optim, (size_t)k, first + cut, held - cut) == MEMOPT_OK, k);
    CHECK_AT(memopt_i_optim_apply(rank->optim, (size_t)k, first, cut ? cut : held) == MEMOPT_OK, k);
    CHECK_AT(memopt_optim_applied(rank->optim, (size_t)k) == held, k);
}
/* One step of one process, whose tensors are measured before the ranks', and then applied. */
static void cut_step(const cut_case *c, cut_rank *whole, cut_rank *ranks, const memopt_optim_run *run, uint64_t *seed) {
    double *sums = NULL, *kept; size_t count = 0; int k, r, again, measures = memopt_i_kind_measures(whole->optim->desc.kind); uint64_t skipped = 0;
    CHECK(memopt_optim_begin(whole->optim, run) == MEMOPT_OK);
    for (r = 0; r < c->ranks; ++r) CHECK_AT(memopt_optim_begin(ranks[r].optim, run) == MEMOPT_OK, r);
    for (k = 0; k < c->tensors; ++k) {
        for (again = measures; again; ) {
            CHECK_AT(memopt_i_optim_measure(whole->optim, (size_t)k, 0, cut_shapes[k].count) == MEMOPT_OK, k);
            CHECK_AT(memopt_i_optim_sums(whole->optim, (size_t)k, &sums, &count) == MEMOPT_OK, k);
            kept = (double *)(void *)cut_block(count * sizeof *kept);
            memcpy(kept, sums, count * sizeof *kept);
            CHECK_AT(memopt_i_optim_join(whole->optim, (size_t)k, &again) == MEMOPT_OK, k);
            CHECK_AT(cut_pass(c, ranks, k, kept, count) == again, k);
            free(kept);
        }
        CHECK_AT(memopt_i_optim_carry_count(ranks[0].optim, (size_t)k) == 0, k);
        CHECK_AT(memopt_i_optim_apply(whole->optim, (size_t)k, 0, cut_shapes[k].count) == MEMOPT_OK, k);
        for (r = c->ranks; r-- > 0; ) cut_apply(&ranks[r], k, seed);
    }
    CHECK(memopt_optim_end(whole->optim) == MEMOPT_OK);
    for (r = 0; r < c->ranks; ++r) {
        CHECK_AT(memopt_optim_end(ranks[r].optim) == MEMOPT_OK, r);
        skipped += memopt_optim_skipped(ranks[r].optim);
    }
    CHECK(skipped == memopt_optim_skipped(whole->optim) && skipped > 0);
}
static int cut_differs(const void *a, const void *b, size_t bytes) { return bytes && memcmp(a, b, bytes) != 0; }
/* What a rank's state holds against the same of the whole: 0, or what is different. */
static int cut_state_differs(const cut_case *c, cut_rank *whole, cut_rank *rank, int k) {
    const size_t first = rank->tensor[k].first, columns = cut_shapes[k].columns, block = c->block ? c->block : 256;
    memopt_optim_view a, b; int j;
    CHECK(memopt_optim_state_view(whole->optim, (size_t)k, &a) == MEMOPT_OK && memopt_optim_state_view(rank->optim, (size_t)k, &b) == MEMOPT_OK);
    if (!rank->held[k]) return b.held || b.blocks || b.moments || b.rows || b.columns || b.moment[0] || b.moment[1];
    for (j = 0; j < 2; ++j) {
        const size_t size = (size_t)b.bits / 8;
        if (!a.moment[j] != !b.moment[j] || !a.scale[j] != !b.scale[j]) return 1;
        if (a.moment[j] && cut_differs((unsigned char *)a.moment[j] + first * size, b.moment[j], rank->held[k] * size)) return 2 + j;
        if (a.scale[j] && cut_differs(a.scale[j] + first / block, b.scale[j], b.blocks * 4)) return 4 + j;
    }
    if (!a.rows) return b.rows != NULL;
    if (!cut_is_matrix(k)) return cut_differs(a.rows + first, b.rows, rank->held[k] * 4) ? 6 : 0;
    if (cut_differs(a.rows + first / columns, b.rows, ((first + rank->held[k] - 1) / columns - first / columns + 1) * 4)) return 7;
    return cut_differs(a.columns, b.columns, columns * 4) ? 8 : 0;
}
static memopt_optim_group cut_group(const cut_case *c) {
    memopt_optim_group g = memopt_optim_group_default(c->kind);
    g.weight_decay = 0.05;
    if (c->kind == MEMOPT_OPTIM_SGD || c->kind == MEMOPT_OPTIM_RMSPROP || c->kind == MEMOPT_OPTIM_ADAFACTOR) g.beta1 = c->moment ? 0.9 : 0;
    if (c->kind == MEMOPT_OPTIM_ADAFACTOR) { g.clip = 0.5; g.rate = 0.5; }
    return g;
}
static void cut_run(const cut_case *c) {
    cut_model a, b; cut_rank whole, ranks[CUT_RANKS]; int k, r, step, bad = 0; uint64_t seed = 3;
    const memopt_optim_group g = cut_group(c); memopt_optim_run run;
    cut_model_open(&a, c); cut_model_open(&b, c);
    cut_rank_open(&whole, c, &a, 0, 1);
    for (r = 0; r < c->ranks; ++r) cut_rank_open(&ranks[r], c, &b, r, 0);
    memset(&run, 0, sizeof run);
    run.groups = &g; run.group_count = 1; run.gradient_factor = 0.75;
    for (step = 1; step <= CUT_STEPS && !bad; ++step) {
        run.step = (uint64_t)step;
        cut_feed(&a, c, run.step); cut_feed(&b, c, run.step);
        cut_step(c, &whole, ranks, &run, &seed);
        for (k = 0; k < c->tensors && !bad; ++k) {
            const size_t n = cut_shapes[k].count;
            if (memcmp(a.weights[k], b.weights[k], n * 4)) bad = 20;
            if (memcmp(a.extra[k], b.extra[k], n * 2)) bad = 21;
            for (r = 0; r < c->ranks && !bad; ++r) bad = cut_state_differs(c, &whole, &ranks[r], k);
            if (bad) printf("kind %d, state %d, weights %d, gradients %d, block %d, ranks %d, ragged %d, step %d, tensor %d:\n", (int)c->kind,
                            (int)c->state, (int)c->weights, (int)c->gradients, (int)c->block, c->ranks, c->ragged, step, k);
        }
        CHECK_AT(!bad, bad);
    }
    memopt_optim_close(whole.optim);
    for (r = 0; r < c->ranks; ++r) memopt_optim_close(ranks[r].optim);
    cut_model_close(&a); cut_model_close(&b);
}
static cut_case cut_of(memopt_optim_kind kind, memopt_state_format state, int ranks) {
    cut_case c;
    memset(&c, 0, sizeof c);
    c.kind = kind; c.state = state; c.ranks = ranks; c.tensors = CUT_LARGE;
    c.moment = kind == MEMOPT_OPTIM_SGD || kind == MEMOPT_OPTIM_RMSPROP || (kind == MEMOPT_OPTIM_ADAFACTOR && state != MEMOPT_STATE_F32);
    return c;
}
static int cut_measures(memopt_optim_kind kind) { return kind == MEMOPT_OPTIM_LARS || kind == MEMOPT_OPTIM_LAMB || kind == MEMOPT_OPTIM_ADAFACTOR; }
/* Every kind, format of states and of weights, and number of ranks; gradients and blocks by turns. */
static void cut_all(void) {
    static const int counts[] = { 1, 2, 3, 4, 5, 6, 7, 8, 13 }; static const size_t blocks[] = { 0, 0, 512 };
    int kind, state, weights, i, turn = 0;
    for (kind = MEMOPT_OPTIM_ADAMW; kind <= MEMOPT_OPTIM_RMSPROP; ++kind)
        for (state = MEMOPT_STATE_F32; state <= MEMOPT_STATE_BNB; ++state)
            for (weights = 0; weights < 4; ++weights)
                for (i = 0; i < 9; ++i, ++turn) {
                    cut_case c = cut_of((memopt_optim_kind)kind, (memopt_state_format)state, counts[i]);
                    if (state == MEMOPT_STATE_BNB && kind > MEMOPT_OPTIM_ADAM) continue;
                    if (!cut_measures(c.kind) && (i + weights + state) % 3) continue; /* nothing travels: a third will do */
                    if (test_is_passed_over()) continue;
                    c.weights = (memopt_i_weights)weights; c.gradients = (memopt_type)(turn % 3); c.block = blocks[turn / 2 % 3];
                    c.ragged = turn / 3 % 2; c.min_quantized = turn / 5 % 2 ? 1 : 0;
                    if (TEST_STRIDE == 1 && i == 2 * weights + 1 + state % 2 && cut_measures(c.kind) && (state + kind) % 2 == weights % 2) c.tensors = CUT_TENSORS;
                    cut_run(&c);
                }
}
/* Blocks that cut tiles of 256, for kinds that measure. */
static void cut_blocks(void) {
    static const size_t blocks[] = { 32, 96, 160, 384, 4096 }; int kind, state, i;
    for (kind = MEMOPT_OPTIM_LARS; kind <= MEMOPT_OPTIM_ADAFACTOR; ++kind)
        for (state = MEMOPT_STATE_F32; state <= MEMOPT_STATE_8BIT; ++state)
            for (i = 0; i < 5; ++i) {
                cut_case c = cut_of((memopt_optim_kind)kind, (memopt_state_format)state, 3 + 2 * i);
                if (test_is_passed_over()) continue;
                c.block = blocks[i]; c.ragged = i != 2; c.weights = (memopt_i_weights)((i + kind) % 4); c.min_quantized = 1;
                if ((i + kind) % 3 == state) c.tensors = CUT_TENSORS;
                cut_run(&c);
            }
}
/* memopt_optim_step() of parts: kinds that do not measure take any; those that do, none that is cut. */
static void cut_stepped(void) {
    int kind, r, k;
    for (kind = MEMOPT_OPTIM_ADAMW; kind <= MEMOPT_OPTIM_RMSPROP; ++kind) {
        cut_case c = cut_of((memopt_optim_kind)kind, MEMOPT_STATE_8BIT, 5); const memopt_optim_group g = cut_group(&c);
        cut_model a, b; cut_rank whole, rank; memopt_optim_run run;
        cut_model_open(&a, &c); cut_model_open(&b, &c);
        cut_rank_open(&whole, &c, &a, 0, 1);
        memset(&run, 0, sizeof run);
        run.step = 1; run.groups = &g; run.group_count = 1;
        cut_feed(&a, &c, 1); cut_feed(&b, &c, 1);
        CHECK(memopt_optim_step(whole.optim, &run) == MEMOPT_OK);
        for (r = 0; r < c.ranks; ++r) {
            cut_rank_open(&rank, &c, &b, r, 0);
            if (cut_measures(c.kind)) {
                CHECK_AT(memopt_optim_step(rank.optim, &run) == MEMOPT_ERR_ARGUMENT, r);
                CHECK_AT(strstr(memopt_optim_error(rank.optim).reason, "step it by a shard") != NULL, r);
            } else {
                CHECK_AT(memopt_optim_step(rank.optim, &run) == MEMOPT_OK, r);
                for (k = 0; k < c.tensors; ++k) {
                    CHECK_AT(memopt_optim_applied(rank.optim, (size_t)k) == rank.held[k], k);
                    CHECK_AT(!cut_state_differs(&c, &whole, &rank, k), k);
                }
            }
            memopt_optim_close(rank.optim);
        }
        for (k = 0; k < c.tensors && !cut_measures(c.kind); ++k) CHECK_AT(!memcmp(a.weights[k], b.weights[k], cut_shapes[k].count * 4), k);
        memopt_optim_close(whole.optim);
        cut_model_close(&a); cut_model_close(&b);
    }
}
/* Nothing is held of some tensors, or of all: the others are stepped as ever, and noise knows no difference. */
static void cut_empty(void) {
    int kind, state, all, k;
    for (kind = MEMOPT_OPTIM_ADAMW; kind <= MEMOPT_OPTIM_RMSPROP; ++kind)
        for (state = MEMOPT_STATE_F32; state <= MEMOPT_STATE_8BIT; ++state)
            for (all = 0; all < 2; ++all) {
                cut_case c = cut_of((memopt_optim_kind)kind, (memopt_state_format)state, 1); const memopt_optim_group g = cut_group(&c);
                cut_model a, b; cut_rank whole, some; memopt_optim_run run; memopt_optim_desc d; size_t bytes = 0; int again = 1;
                if (test_is_passed_over()) continue;
                c.weights = MEMOPT_I_WEIGHTS_BF16;
                cut_model_open(&a, &c); cut_model_open(&b, &c);
                cut_rank_open(&whole, &c, &a, 0, 1); cut_rank_open(&some, &c, &b, 0, 1);
                memopt_optim_close(some.optim);
                for (k = 0; k < c.tensors; ++k)
                    if (all || k % 2 == 0) { /* the first and the last */
                        memopt_optim_tensor *t = &some.tensor[k];
                        const size_t count = t->count, columns = t->columns;
                        memset(t, 0, sizeof *t);
                        t->count = t->first = count; t->columns = columns;
                        some.held[k] = 0;
                    }
                cut_describe(&d, &c, some.tensor);
                CHECK(memopt_optim_open(&d, NULL, &some.optim) == MEMOPT_OK);
                memset(&run, 0, sizeof run);
                run.groups = &g; run.group_count = 1;
                for (run.step = 1; run.step < 3; ++run.step) {
                    cut_feed(&a, &c, run.step); cut_feed(&b, &c, run.step);
                    CHECK(memopt_optim_step(whole.optim, &run) == MEMOPT_OK && memopt_optim_step(some.optim, &run) == MEMOPT_OK);
                }
                for (k = 0; k < c.tensors; ++k) {
                    CHECK_AT(!cut_state_differs(&c, &whole, &some, k), k);
                    CHECK_AT(!some.held[k] || !memcmp(a.weights[k], b.weights[k], cut_shapes[k].count * 2), k);
                    CHECK_AT(memopt_optim_state_bytes(&d, (size_t)k, &bytes) == MEMOPT_OK && !bytes == (!some.held[k] || !some.tensor[k].state), k);
                }
                run.fused = 1;
                CHECK(memopt_optim_begin(some.optim, &run) == MEMOPT_OK);
                CHECK(memopt_optim_apply_with(some.optim, 4, NULL) == MEMOPT_OK && memopt_optim_applied(some.optim, 4) == 0);
                for (again = memopt_i_kind_measures(some.optim->desc.kind); again; ) {
                    CHECK(memopt_i_optim_measure_cut(some.optim, 4, NULL) == MEMOPT_OK);
                    CHECK(memopt_i_optim_join(some.optim, 4, &again) == MEMOPT_OK);
                }
                CHECK(memopt_i_optim_apply(some.optim, 4, 0, 1) == MEMOPT_ERR_ARGUMENT && memopt_i_optim_apply(some.optim, 4, some.tensor[4].first, 0) == MEMOPT_ERR_ARGUMENT);
                CHECK(memopt_optim_end(some.optim) == MEMOPT_OK && memopt_optim_apply_with(some.optim, 4, NULL) == MEMOPT_ERR_STATE);
                memopt_optim_close(whole.optim); memopt_optim_close(some.optim);
                cut_model_close(&a); cut_model_close(&b);
            }
}
/* What travels, by the rules of the header. */
static void cut_counts(void) {
    static const struct { memopt_optim_kind kind; memopt_state_format state; size_t block, first, second; } want[] = { /* of 96 x 515 */
        { MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_F32, 0, 0, 0 }, { MEMOPT_OPTIM_SGD, MEMOPT_STATE_8BIT, 0, 0, 0 },
        { MEMOPT_OPTIM_LAMB, MEMOPT_STATE_F32, 0, 2, 0 }, { MEMOPT_OPTIM_LARS, MEMOPT_STATE_BF16, 512, 2, 0 },
        { MEMOPT_OPTIM_LAMB, MEMOPT_STATE_F32, 384, 34, 0 }, { MEMOPT_OPTIM_LAMB, MEMOPT_STATE_8BIT, 384, 2, 0 },
        { MEMOPT_OPTIM_ADAFACTOR, MEMOPT_STATE_F32, 0, 16 + 515, 35 }
    };
    size_t i;
    for (i = 0; i < sizeof want / sizeof *want; ++i) {
        cut_case c = cut_of(want[i].kind, want[i].state, 2); const memopt_optim_group g = cut_group(&c); cut_model m; cut_rank rank;
        memopt_optim_run run; int again;
        c.block = want[i].block;
        cut_model_open(&m, &c);
        cut_rank_open(&rank, &c, &m, 0, 1);
        memset(&run, 0, sizeof run);
        run.step = 1; run.groups = &g; run.group_count = 1;
        CHECK(memopt_optim_begin(rank.optim, &run) == MEMOPT_OK);
        CHECK_AT(memopt_i_optim_carry_count(rank.optim, 4) == want[i].first, i);
        CHECK_AT(memopt_i_optim_carry_count(rank.optim, 5) == 0 && memopt_i_optim_carry_count(rank.optim, SIZE_MAX) == 0 && memopt_i_optim_carry_count(NULL, 0) == 0, i);
        if (c.kind == MEMOPT_OPTIM_ADAFACTOR) {
            CHECK(memopt_i_optim_carry_count(rank.optim, 1) == 0); /* a vector has no first pass */
            CHECK(memopt_i_optim_measure_cut(rank.optim, 1, NULL) == MEMOPT_OK);
        }
        if (want[i].second) CHECK_AT(memopt_i_optim_join(rank.optim, 4, &again) == MEMOPT_OK && memopt_i_optim_carry_count(rank.optim, 4) == want[i].second, i);
        CHECK(memopt_optim_end(rank.optim) == MEMOPT_OK);
        memopt_optim_close(rank.optim);
        cut_model_close(&m);
    }
}
/* A rank's part of a tensor: begin, end, and the end of the chunk or panel that its begin cuts. */
typedef struct cut_part { size_t first, end, cut; } cut_part;
static cut_part cut_part_of(const cut_rank *rank, int k) {
    const size_t alignment = memopt_i_optim_slice_alignment(&rank->optim->desc, &rank->optim->desc.tensors[(size_t)k]);
    cut_part p;
    p.first = rank->tensor[k].first;
    p.end = p.first + rank->held[k];
    p.cut = memopt_i_min(memopt_i_ceil_div(p.first, alignment) * alignment, p.end);
    return p;
}
enum { CUT_OTHER, CUT_AHEAD, CUT_COLUMN };
/* Whose is sum i: is it of whole rows, chunks or panels behind what the begin cuts; or of a column, in a panel that the end cuts? */
static int cut_owner(const cut_rank *rank, int k, int phase, size_t i) {
    const cut_part p = cut_part_of(rank, k); const size_t n = cut_shapes[k].count;
    size_t size = memopt_i_optim_slice_alignment(&rank->optim->desc, &rank->optim->desc.tensors[(size_t)k]), index = i / 2, columns = 0;
    if (rank->optim->desc.kind == MEMOPT_OPTIM_ADAFACTOR && !phase) {
        columns = cut_shapes[k].columns;
        index = i;
        if (i >= n / columns) index = (i - n / columns) / columns; else { size = columns; columns = 0; }
    }
    if (index * size < p.cut || index * size >= p.end) return CUT_OTHER;
    if (memopt_i_min((index + 1) * size, n) <= p.end) return CUT_AHEAD;
    return columns ? CUT_COLUMN : CUT_OTHER;
}
/* Elements that are not to be read. */
static void cut_spoil(const cut_model *m, cut_model *kept, int k, size_t from, size_t to) {
    memcpy(kept->weights[k], m->weights[k], cut_shapes[k].count * 4);
    memcpy(kept->gradients[k], m->gradients[k], cut_shapes[k].count * 4);
    memset(m->weights[k] + from * 4, 0x40, (to - from) * 4);
    memset(m->gradients[k] + from * 4, 0x40, (to - from) * 4);
}
static void cut_restore(const cut_model *m, const cut_model *kept, int k) {
    memcpy(m->weights[k], kept->weights[k], cut_shapes[k].count * 4);
    memcpy(m->gradients[k], kept->gradients[k], cut_shapes[k].count * 4);
}
/* One rank's part of tensor k: `plain` measures it at once, `other` without the carry and then with it. The first call
   reads nothing that the begin cuts, the second nothing else, and does not write what the first one has written. */
static void cut_ahead_part(const cut_model *m, cut_model *kept, cut_rank *plain, cut_rank *other, int k, int phase, double *carry) {
    const size_t n = memopt_i_optim_carry_count(plain->optim, (size_t)k), alignment = memopt_i_optim_slice_alignment(&plain->optim->desc, &plain->optim->desc.tensors[(size_t)k]);
    const cut_part p = cut_part_of(plain, k); size_t i, count; double *want, *sums; int again, twice;
    const int is_cut = p.first % alignment || (p.end % alignment && p.end != cut_shapes[k].count);
    double *in = (double *)(void *)cut_block(n * sizeof *in);
    memcpy(in, carry, n * sizeof *in);
    CHECK_AT(memopt_i_optim_measure_cut(plain->optim, (size_t)k, carry) == MEMOPT_OK, k);
    CHECK_AT(memopt_i_optim_sums(plain->optim, (size_t)k, &want, &count) == MEMOPT_OK && memopt_i_optim_sums(other->optim, (size_t)k, &sums, &count) == MEMOPT_OK, k);
    if (!n) { free(in); return; }
    for (twice = 0; twice < 2; ++twice) { /* it may be done again */
        memset(sums, 0, count * sizeof *sums);
        cut_spoil(m, kept, k, p.first, p.cut);
        CHECK_AT(memopt_i_optim_measure_cut(other->optim, (size_t)k, NULL) == MEMOPT_OK, k);
        cut_restore(m, kept, k);
        for (i = 0; i < count; ++i) {
            const int owner = cut_owner(other, k, phase, i);
            if (owner != CUT_COLUMN) CHECK_AT(memopt_i_double_bits(sums[i]) == (owner == CUT_AHEAD ? memopt_i_double_bits(want[i]) : 0), i);
        }
    }
    if (is_cut) {
        CHECK_AT(memopt_i_optim_join(other->optim, (size_t)k, &again) == MEMOPT_ERR_STATE, k);
        CHECK_AT(strstr(memopt_optim_error(other->optim).reason, "measure it with its carry as well") != NULL, k);
    }
    for (i = 0; i < count; ++i) if (cut_owner(other, k, phase, i) == CUT_AHEAD) sums[i] = 77;
    cut_spoil(m, kept, k, p.cut, p.end);
    CHECK_AT(memopt_i_optim_measure_cut(other->optim, (size_t)k, in) == MEMOPT_OK, k);
    cut_restore(m, kept, k);
    CHECK_AT(!memcmp(in, carry, n * sizeof *in), k);
    for (i = 0; i < count; ++i)
        CHECK_AT(memopt_i_double_bits(sums[i]) == memopt_i_double_bits(cut_owner(other, k, phase, i) == CUT_AHEAD ? 77 : want[i]), i);
    CHECK_AT(memopt_i_optim_measure_cut(other->optim, (size_t)k, in) == MEMOPT_OK, k); /* all again, and from other sums */
    for (i = 0; i < count; ++i) CHECK_AT(cut_owner(other, k, phase, i) != CUT_AHEAD || memopt_i_double_bits(sums[i]) == memopt_i_double_bits(want[i]), i);
    memcpy(sums, want, count * sizeof *sums);
    free(in);
}
/* What needs no carry is measured without one, and only once. */
static void cut_ahead(void) {
    static const size_t blocks[] = { 0, 96 }; int kind, b, k, r, again, phase;
    for (kind = MEMOPT_OPTIM_LARS; kind <= MEMOPT_OPTIM_ADAFACTOR; ++kind) for (b = 0; b < 2; ++b) {
        cut_case c = cut_of((memopt_optim_kind)kind, MEMOPT_STATE_F32, 3); const memopt_optim_group g = cut_group(&c);
        cut_model m, kept; cut_rank plain[3], other[3]; memopt_optim_run run; double carry[600], *sums, *total; size_t i, count;
        if (test_is_passed_over()) continue;
        c.tensors = CUT_TENSORS; c.block = blocks[b];
        cut_model_open(&m, &c); cut_model_open(&kept, &c);
        cut_feed(&m, &c, 1);
        memset(&run, 0, sizeof run);
        run.step = 1; run.groups = &g; run.group_count = 1;
        for (r = 0; r < 3; ++r) {
            cut_rank_open(&plain[r], &c, &m, r, 0); cut_rank_open(&other[r], &c, &m, r, 0);
            CHECK(memopt_optim_begin(plain[r].optim, &run) == MEMOPT_OK && memopt_optim_begin(other[r].optim, &run) == MEMOPT_OK);
        }
        for (k = 0; k < c.tensors; ++k) for (again = 1, phase = 0; again; ++phase) {
            CHECK(memopt_i_optim_sums(plain[0].optim, (size_t)k, &sums, &count) == MEMOPT_OK && memopt_i_optim_carry_count(plain[0].optim, (size_t)k) <= 600);
            total = (double *)(void *)cut_block(count * sizeof *total);
            memset(carry, 0xff, sizeof carry); /* NaN: the first rank does not read it */
            for (r = 0; r < 3; ++r) {
                if (plain[r].held[k]) cut_ahead_part(&m, &kept, &plain[r], &other[r], k, phase, carry);
                CHECK(memopt_i_optim_sums(plain[r].optim, (size_t)k, &sums, &count) == MEMOPT_OK);
                for (i = 0; i < count; ++i) total[i] += sums[i];
            }
            again = cut_join(plain, 3, k, total);
            CHECK_AT(cut_join(other, 3, k, total) == again, k);
            free(total);
        }
        for (r = 0; r < 3; ++r) { memopt_optim_close(plain[r].optim); memopt_optim_close(other[r].optim); }
        cut_model_close(&m); cut_model_close(&kept);
    }
}
/* What waits at the ends of two tensors. A pass that is joined leaves nothing measured for the next one. */
static void cut_ahead_twice(void) {
    static float weights[65536 + 512], gradients[65536 + 512];
    memopt_optim_tensor t[2]; memopt_optim_desc d; memopt_optim *o = NULL; memopt_optim_run run; memopt_optim_group g = memopt_optim_group_default(MEMOPT_OPTIM_LARS);
    double carry[16 + 40], *sums, kept; size_t i, count; int again = 0;
    for (i = 0; i < 65536 + 512; ++i) { weights[i] = 0.25f; gradients[i] = 0.5f; }
    memset(&d, 0, sizeof d); memset(t, 0, sizeof t); memset(&run, 0, sizeof run); memset(carry, 0, sizeof carry);
    d.kind = MEMOPT_OPTIM_LARS; d.tensors = t; d.tensor_count = 2;
    for (i = 0; i < 2; ++i) { t[i].count = 3 * 65536; t[i].held = 65536 + 256 + i * 256; t[i].weights = weights; t[i].gradients = gradients; }
    run.step = 1; run.groups = &g; run.group_count = 1;
    CHECK(memopt_optim_open(&d, NULL, &o) == MEMOPT_OK && memopt_optim_begin(o, &run) == MEMOPT_OK);
    CHECK(memopt_i_optim_measure_cut(o, 0, NULL) == MEMOPT_OK && memopt_i_optim_measure_cut(o, 1, NULL) == MEMOPT_OK && memopt_i_optim_measure_cut(o, 0, NULL) == MEMOPT_OK);
    for (i = 0; i < 2; ++i) {
        CHECK_AT(memopt_i_optim_sums(o, i, &sums, &count) == MEMOPT_OK && count == 6 && sums[0] == 65536 * 0.0625 && sums[1] == 65536 * 0.25, i);
        CHECK_AT(memopt_i_optim_measure_cut(o, i, carry) == MEMOPT_OK && carry[1] == (double)(256 + i * 256) * 0.25, i);
    }
    CHECK(memopt_optim_end(o) == MEMOPT_OK);
    memopt_optim_close(o);
    d.kind = MEMOPT_OPTIM_ADAFACTOR; d.tensor_count = 1;
    t[0].count = 65536; t[0].columns = 32; t[0].held = 0; /* all of it */
    g = memopt_optim_group_default(MEMOPT_OPTIM_ADAFACTOR);
    CHECK(memopt_optim_open(&d, NULL, &o) == MEMOPT_OK && memopt_optim_begin(o, &run) == MEMOPT_OK);
    CHECK(memopt_i_optim_measure_cut(o, 0, NULL) == MEMOPT_OK && memopt_i_optim_join(o, 0, &again) == MEMOPT_OK && again);
    CHECK(memopt_i_optim_measure_cut(o, 0, carry) == MEMOPT_OK && memopt_i_optim_sums(o, 0, &sums, &count) == MEMOPT_OK);
    for (kept = 0, i = 1; i < count; i += 2) kept += sums[i];
    CHECK(kept == 65536 * 0.0625); /* the squares of the weights */
    CHECK(memopt_optim_end(o) == MEMOPT_OK);
    memopt_optim_close(o);
}
/* A step that ended, or a call that failed, leaves nothing measured; the memory is asked for. */
static void cut_ahead_refused(void) {
    static float weights[3 * 65536], gradients[3 * 65536];
    memopt_optim_tensor t; memopt_optim_desc d; memopt_optim *o = NULL; memopt_optim_run run; const memopt_optim_group g = memopt_optim_group_default(MEMOPT_OPTIM_LARS);
    double carry[2] = { 0, 0 }, *sums; size_t i, count, bytes = 0, whole = 0; int again = 7;
    for (i = 0; i < 3 * 65536; ++i) { weights[i] = 0.25f; gradients[i] = 0.5f; }
    memset(&d, 0, sizeof d); memset(&t, 0, sizeof t); memset(&run, 0, sizeof run);
    d.kind = MEMOPT_OPTIM_LARS; d.tensors = &t; d.tensor_count = 1;
    t.count = 3 * 65536; t.first = 256; t.weights = weights; t.gradients = gradients;
    CHECK(memopt_optim_bytes(&d, &whole) == MEMOPT_OK);
    t.held = 65536;
    CHECK(memopt_optim_bytes(&d, &bytes) == MEMOPT_OK && bytes == whole + 320); /* 2 * 3 and 35 doubles: 384 bytes, not 64 */
    d.kind = MEMOPT_OPTIM_LION;
    CHECK(memopt_optim_bytes(&d, &bytes) == MEMOPT_OK && bytes == whole - 64); /* no sums */
    d.kind = MEMOPT_OPTIM_LARS;
    CHECK(memopt_optim_open(&d, NULL, &o) == MEMOPT_OK);
    run.step = 1; run.groups = &g; run.group_count = 1;
    CHECK(memopt_i_optim_measure_cut(o, 0, NULL) == MEMOPT_ERR_STATE);
    CHECK(memopt_optim_begin(o, &run) == MEMOPT_OK && memopt_i_optim_sums(o, 0, &sums, &count) == MEMOPT_OK);
    t.gradients = NULL;
    o->desc.tensors[0].gradients = NULL;
    CHECK(memopt_i_optim_measure_cut(o, 0, NULL) == MEMOPT_ERR_ARGUMENT);
    o->desc.tensors[0].gradients = gradients;
    CHECK(memopt_i_optim_measure_cut(o, 0, carry) == MEMOPT_OK); /* of all: none went before */
    CHECK(carry[0] == 256 * 0.0625 && carry[1] == 256 * 0.25 && sums[0] == 65280 * 0.0625 && sums[1] == 65280 * 0.25);
    CHECK(memopt_i_optim_measure_cut(o, 0, NULL) == MEMOPT_OK && memopt_optim_end(o) == MEMOPT_OK);
    CHECK(memopt_optim_begin(o, &run) == MEMOPT_OK);
    for (i = 65280; i < 65536; ++i) gradients[i] = 1; /* the end of the part, measured anew */
    carry[0] = carry[1] = 0;
    CHECK(memopt_i_optim_measure_cut(o, 0, carry) == MEMOPT_OK && carry[1] == 256);
    CHECK(memopt_i_optim_join(o, 0, &again) == MEMOPT_OK && !again);
    CHECK(memopt_i_optim_measure_cut(o, 0, NULL) == MEMOPT_ERR_STATE && memopt_optim_end(o) == MEMOPT_OK);
    memopt_optim_close(o);
}
/* The sums of LARS, by the order that the header promises: chunks of whole blocks, at most 65,536 elements; in them tiles
   of 256, which end with a block where states have 8 bits; in a tile 16 sums by place, added up by halves. */
static void cut_definition(void) {
    static const size_t blocks[] = { 256, 32, 96, 160, 384, 4096 }; static float x[140003]; uint64_t seed = 6; size_t i, j, n;
    int b, coded, half; const volatile double one = 1; /* x87 too rounds once */
    for (i = 0; i < 140003; ++i) x[i] = memopt_i_bits_float((uint32_t)test_random(&seed) % 0x10000000 + 0x38000000);
    for (b = 0; b < 6; ++b) for (coded = 0; coded < 2; ++coded) {
        const size_t block = blocks[b], chunk = 65536 / block * block; const memopt_optim_group g = memopt_optim_group_default(MEMOPT_OPTIM_LARS);
        memopt_optim_tensor t; memopt_optim_desc d; memopt_optim_run run; memopt_optim *o = NULL; double *sums = NULL, want = 0; size_t count = 0;
        memset(&t, 0, sizeof t); memset(&d, 0, sizeof d); memset(&run, 0, sizeof run);
        t.count = 140003; t.weights = x; t.gradients = x;
        d.kind = MEMOPT_OPTIM_LARS; d.state = coded ? MEMOPT_STATE_8BIT : MEMOPT_STATE_F32; d.block = block; d.tensors = &t; d.tensor_count = 1;
        run.step = 1; run.groups = &g; run.group_count = 1;
        CHECK(memopt_optim_open(&d, NULL, &o) == MEMOPT_OK && memopt_optim_begin(o, &run) == MEMOPT_OK);
        CHECK(memopt_i_optim_measure(o, 0, 0, t.count) == MEMOPT_OK && memopt_i_optim_sums(o, 0, &sums, &count) == MEMOPT_OK);
        CHECK(count == 2 * ((t.count + chunk - 1) / chunk));
        for (i = 0; i < t.count; i += n) {
            double tile[16] = { 0 }; const size_t left = chunk - i % chunk;
            n = 256;
            if (coded && block - i % chunk % block < n) n = block - i % chunk % block;
            if (left < n) n = left;
            if (t.count - i < n) n = t.count - i;
            for (j = 0; j < n; ++j) tile[j % 16] = fma((double)x[i + j], (double)x[i + j], tile[j % 16]);
            for (half = 8; half; half /= 2) for (j = 0; j < (size_t)half; ++j) tile[j] = fma(one, tile[j], tile[j + (size_t)half]);
            want = fma(one, i % chunk ? want : 0, tile[0]);
            if (n < left && i + n < t.count) continue;
            CHECK_AT(memopt_i_double_bits(sums[2 * (i / chunk)]) == memopt_i_double_bits(want), (size_t)b * 100 + i / chunk);
            CHECK_AT(memopt_i_double_bits(sums[2 * (i / chunk) + 1]) == memopt_i_double_bits(want), (size_t)b * 100 + i / chunk);
        }
        CHECK(memopt_optim_end(o) == MEMOPT_OK);
        memopt_optim_close(o);
    }
}
/* What is refused changes nothing, and a good call works afterwards. */
static void cut_refused(void) {
    static float weights[3 * 65536], gradients[3 * 65536];
    memopt_optim_tensor t[2]; memopt_optim_desc d; memopt_optim *o = NULL; memopt_optim_run run; memopt_optim_group g;
    double carry[2], *sums; size_t bytes = 7, count, i; int again; memopt_error why;
    for (i = 0; i < 3 * 65536; ++i) { weights[i] = 0.25f; gradients[i] = 0.5f; }
    memset(&d, 0, sizeof d); memset(t, 0, sizeof t); memset(&run, 0, sizeof run);
    d.kind = MEMOPT_OPTIM_LARS; d.tensors = t; d.tensor_count = 2;
    t[0].count = 7; t[1].count = 3 * 65536; t[1].first = 256; t[1].held = 2 * 65536;
    for (i = 0; i < 2; ++i) { t[i].weights = weights; t[i].gradients = gradients; }
    REFUSES(d.error, t[1].first = 100, memopt_optim_bytes(&d, &bytes), MEMOPT_ERR_ARGUMENT, "tensor 1: first 100, must be a multiple of the block 256");
    REFUSES(d.error, t[1].held = 100; t[1].first = 256, memopt_optim_bytes(&d, &bytes), MEMOPT_ERR_ARGUMENT, "tensor 1: held 100, must be a multiple of the block 256");
    REFUSES(d.error, t[1].first = 3 * 65536 + 1, memopt_optim_bytes(&d, &bytes), MEMOPT_ERR_ARGUMENT, "tensor 1: first 196609, at most count 196608");
    t[1].first = 256; t[1].held = 2 * 65536; d.error = &why;
    CHECK(memopt_optim_open(&d, NULL, &o) == MEMOPT_OK);
    g = memopt_optim_group_default(MEMOPT_OPTIM_LARS);
    run.step = 1; run.groups = &g; run.group_count = 1;
    CHECK(memopt_i_optim_measure_cut(NULL, 0, carry) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_optim_measure_cut(o, 1, carry) == MEMOPT_ERR_STATE && test_error_says(memopt_optim_error(o), MEMOPT_ERR_STATE, "no step has begun"));
    CHECK(memopt_optim_step(o, &run) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_error_says(memopt_optim_error(o), MEMOPT_ERR_ARGUMENT,
                          "tensor 1: the part begins or ends where a slice may not: step it by a shard"));
    CHECK(memopt_optim_begin(o, &run) == MEMOPT_OK);
    CHECK(memopt_i_optim_measure_cut(o, 2, carry) == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_optim_error(o), MEMOPT_ERR_ARGUMENT, "optim: tensor 2, below 2"));
    CHECK(memopt_i_optim_measure_cut(o, 2, NULL) == MEMOPT_ERR_ARGUMENT);
    /* slices to be measured: whole chunks only, of which one lies in the part */
    CHECK(memopt_i_optim_measure(o, 1, 256, 65536 - 256) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_error_says(memopt_optim_error(o), MEMOPT_ERR_ARGUMENT, "tensor 1: first 256, must be a multiple of the slice alignment 65536"));
    CHECK(memopt_i_optim_measure(o, 1, 65536, 65536 + 256) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_error_says(memopt_optim_error(o), MEMOPT_ERR_ARGUMENT, "tensor 1: first + count 131328, must be a multiple of the slice alignment 65536"));
    CHECK(memopt_optim_apply_with(o, 1, gradients) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_optim_measure(o, 1, 65536, 65536) == MEMOPT_OK);
    carry[0] = 0.5; carry[1] = 0.25;
    CHECK(memopt_i_optim_measure_cut(o, 1, carry) == MEMOPT_OK);
    CHECK(carry[0] == 256 * 0.0625 && carry[1] == 256 * 0.25); /* of the last 256 elements */
    CHECK(memopt_i_optim_sums(o, 1, &sums, &count) == MEMOPT_OK && count == 6);
    CHECK(sums[0] == 0.5 + (65536 - 256) * 0.0625 && sums[1] == 0.25 + (65536 - 256) * 0.25);
    CHECK(sums[2] == 65536 * 0.0625 && sums[3] == 65536 * 0.25 && !(sums[4] > 0) && !(sums[5] > 0));
    CHECK(memopt_i_optim_join(o, 1, &again) == MEMOPT_OK && !again);
    CHECK(memopt_i_optim_measure_cut(o, 1, carry) == MEMOPT_ERR_STATE && test_error_says(memopt_optim_error(o), MEMOPT_ERR_STATE, "tensor 1: the tensor is measured already"));
    CHECK(memopt_i_optim_apply(o, 1, 512, 65024) == MEMOPT_ERR_ARGUMENT && memopt_i_optim_apply(o, 1, 256, 256) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_optim_apply(o, 1, 0, 65536) == MEMOPT_ERR_ARGUMENT && memopt_i_optim_apply(o, 1, 256, 2 * 65536 + 256) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_i_optim_apply(o, 1, 131072, 256) == MEMOPT_OK && memopt_i_optim_apply(o, 1, 256, 130816) == MEMOPT_OK);
    CHECK(memopt_optim_end(o) == MEMOPT_OK);
    memopt_optim_close(o);
    d.kind = MEMOPT_OPTIM_ADAMW;
    CHECK(memopt_optim_open(&d, NULL, &o) == MEMOPT_OK);
    g = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    CHECK(memopt_optim_begin(o, &run) == MEMOPT_OK && memopt_i_optim_measure_cut(o, 1, carry) == MEMOPT_ERR_STATE);
    CHECK(test_error_says(memopt_optim_error(o), MEMOPT_ERR_STATE, "tensor 1: this kind does not measure"));
    CHECK(memopt_optim_end(o) == MEMOPT_OK);
    run.fused = 1; gradients[3] = memopt_i_bits_float(0x7fc00000u);
    CHECK(memopt_optim_begin(o, &run) == MEMOPT_OK && memopt_i_optim_apply(o, 1, 256, 2 * 65536) == MEMOPT_ERR_STATE);
    CHECK(memopt_i_optim_measure_cut(o, 1, carry) == MEMOPT_ERR_STATE && memopt_optim_end(o) == MEMOPT_ERR_STATE);
    memopt_optim_close(o);
}

void test_parts_cut(void);
void test_parts_cut(void) {
    RUN(cut_definition);
    RUN(cut_counts);
    RUN(cut_refused);
    RUN(cut_ahead);
    RUN(cut_ahead_twice);
    RUN(cut_ahead_refused);
    RUN(cut_empty);
    RUN(cut_stepped);
    RUN(cut_all);
    RUN(cut_blocks);
    cut_forget();
}
#ifndef TEST_COMBINED
int main(void) { test_parts_cut(); return test_totals(); }
#endif
