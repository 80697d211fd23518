/* test_pipeline.c - examples/parts/pipeline.h: schedules against their definition and an executor of its own, cuts against all cuts,
   and ranks as threads against one process that runs the micro-batches in order: the same bits, the bytes of the plan. */
#include "test.h"
#include "examples/parts/block.h"
#include "examples/parts/embedding.h"
#include "examples/parts/head.h"
#include "examples/parts/pipeline.h"

enum { PIPE_RANKS = 6, PIPE_LIST = 256 };
typedef struct pipe_lists { pipeline_schedule s; pipeline_action actions[PIPE_RANKS * PIPE_LIST]; } pipe_lists;

static void pipe_make(pipe_lists *p, size_t ranks, size_t chunks, size_t micro_batches) {
    size_t r;
    memset(p, 0, sizeof *p);
    p->s.shape.ranks = ranks; p->s.shape.chunks = chunks; p->s.shape.micro_batches = micro_batches;
    p->s.sends = PIPELINE_SENDS; p->s.actions = p->actions;
    CHECK(pipeline_check_shape(&p->s.shape, NULL) == MEMOPT_OK && pipeline_count(&p->s.shape) <= PIPE_LIST);
    for (r = 0; r < ranks; ++r) pipeline_list(&p->s.shape, r, p->actions + r * pipeline_count(&p->s.shape));
}
/* A list as text: "F0.1" is the forward of micro-batch 0 in chunk 1. */
static int pipe_reads(const pipe_lists *p, size_t rank, const char *want) {
    char text[8 * PIPE_LIST] = "", one[32]; size_t i;
    for (i = 0; i < pipeline_count(&p->s.shape); ++i) {
        const pipeline_action *a = pipeline_actions_of(&p->s, rank) + i;
        CHECK(a->stage % p->s.shape.ranks == rank);
        if (p->s.shape.chunks > 1) snprintf(one, sizeof one, "%s%c%u.%u", i ? " " : "", a->is_backward ? 'B' : 'F', (unsigned)a->micro_batch, (unsigned)(a->stage / p->s.shape.ranks));
        else snprintf(one, sizeof one, "%s%c%u", i ? " " : "", a->is_backward ? 'B' : 'F', (unsigned)a->micro_batch);
        strcat(text, one);
    }
    if (strcmp(text, want)) printf("%s\n", text);
    return strcmp(text, want) == 0;
}
static void pipeline_lists(void) { /* as drawn in the papers */
    static pipe_lists p;
    pipe_make(&p, 3, 1, 4);
    CHECK(pipe_reads(&p, 0, "F0 F1 F2 B0 F3 B1 B2 B3"));
    CHECK(pipe_reads(&p, 1, "F0 F1 B0 F2 B1 F3 B2 B3"));
    CHECK(pipe_reads(&p, 2, "F0 B0 F1 B1 F2 B2 F3 B3"));
    pipe_make(&p, 4, 1, 2); /* fewer micro-batches than ranks */
    CHECK(pipe_reads(&p, 0, "F0 F1 B0 B1") && pipe_reads(&p, 2, "F0 F1 B0 B1") && pipe_reads(&p, 3, "F0 B0 F1 B1"));
    pipe_make(&p, 2, 2, 4);
    CHECK(pipe_reads(&p, 0, "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0"));
    CHECK(pipe_reads(&p, 1, "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0"));
    pipe_make(&p, 1, 1, 2);
    CHECK(pipe_reads(&p, 0, "F0 B0 F1 B1"));
}
static int pipe_near(double a, double b) { return a - b < 1e-12 && b - a < 1e-12; }
static void pipeline_bubbles(void) {
    static pipe_lists p; size_t ranks, chunks, m, s, under_way[PIPE_RANKS * 3]; memopt_error why; pipeline_course c;
    memset(&c, 0, sizeof c);
    c.under_way = under_way;
    for (ranks = 1; ranks <= PIPE_RANKS; ++ranks)
        for (m = 1; m <= 18; ++m) {
            double forward[PIPE_RANKS], backward[PIPE_RANKS];
            pipe_make(&p, ranks, 1, m);
            for (s = 0; s < ranks; ++s) { forward[s] = 3; backward[s] = 5; }
            CHECK_AT(pipeline_simulate(&p.s, NULL, &c, &why) == MEMOPT_OK, ranks * 100 + m);
            CHECK_AT(pipe_near(c.seconds, 2.0 * (double)(m + ranks - 1)) && pipe_near(c.waiting, (double)(ranks - 1) / (double)(m + ranks - 1)), ranks * 100 + m);
            for (s = 0; s < ranks; ++s) CHECK_AT(under_way[s] == (m < ranks - s ? m : ranks - s), ranks * 100 + m);
            p.s.forward_seconds = forward; p.s.backward_seconds = backward;
            CHECK_AT(pipeline_simulate(&p.s, NULL, &c, &why) == MEMOPT_OK && pipe_near(c.seconds, 8.0 * (double)(m + ranks - 1)), ranks * 100 + m);
            p.s.latency = 0.5; /* of the first micro-batch there and of the last one back, at least */
            CHECK_AT(pipeline_simulate(&p.s, NULL, &c, &why) == MEMOPT_OK && c.seconds >= 8.0 * (double)(m + ranks - 1) + (double)(ranks - 1) - 1e-9, ranks * 100 + m);
        }
    for (ranks = 2; ranks <= PIPE_RANKS; ++ranks)
        for (chunks = 2; chunks <= 3; ++chunks)
            for (m = ranks; m <= 3 * ranks; m += ranks) {
                size_t rank;
                pipe_make(&p, ranks, chunks, m);
                CHECK_AT(pipeline_simulate(&p.s, NULL, &c, &why) == MEMOPT_OK, ranks * 100 + m);
                CHECK_AT(pipe_near(c.waiting, (double)(ranks - 1) / (double)(m * chunks + ranks - 1)), ranks * 100 + m); /* a chunk-th of 1F1B's */
                for (rank = 0; rank < ranks; ++rank) {
                    const size_t warm = 2 * (ranks - 1 - rank) + (chunks - 1) * ranks + 1; size_t sum = 0, i;
                    for (s = rank; s < ranks * chunks; s += ranks) {
                        size_t now = 0, most = 0;
                        for (i = 0; i < pipeline_count(&p.s.shape); ++i) {
                            const pipeline_action *a = pipeline_actions_of(&p.s, rank) + i;
                            if (a->stage == s && !a->is_backward) most = memopt_i_max(most, ++now);
                            if (a->stage == s && a->is_backward) --now;
                        }
                        CHECK_AT(under_way[s] == most && !now, ranks * 100 + m);
                        sum += most;
                    }
                    CHECK_AT(sum >= memopt_i_min(warm, m * chunks), ranks * 100 + m); /* the peaks of chunks are not at once */
                }
            }
}

/* Who waits for whom, by an executor that knows nothing of the part but what is sent from where to where: ranks take turns at random. */
typedef struct pipe_op { int is_send; size_t link; size_t stage, micro_batch; int is_backward; } pipe_op; /* link: where its counters are */
typedef struct pipe_mail { size_t sent, received; size_t stage[PIPE_LIST], micro_batch[PIPE_LIST]; } pipe_mail;
static int pipe_executes(const pipe_lists *p, uint64_t seed) { /* 0: deadlock or a message of another one */
    static pipe_mail mail[3][PIPE_RANKS]; static int ran[2][PIPE_RANKS * 3][64]; size_t at[PIPE_RANKS], phase[PIPE_RANKS], idle = 0, done = 0;
    const size_t ranks = p->s.shape.ranks, stages = pipeline_stages(&p->s.shape), count = pipeline_count(&p->s.shape);
    memset(mail, 0, sizeof mail); memset(ran, 0, sizeof ran); memset(at, 0, sizeof at); memset(phase, 0, sizeof phase);
    while (idle < 4000 && done < ranks) {
        const size_t r = test_below(&seed, ranks); const pipeline_action *a; pipe_mail *in = NULL, *out = NULL; size_t from = 0;
        ++idle;
        if (at[r] == count) continue;
        a = p->actions + r * count + at[r];
        if (a->is_backward && a->stage + 1 < stages) { in = &mail[1][(r + 1) % ranks]; from = a->stage + 1; }
        if (!a->is_backward && a->stage) { in = &mail[0][(r + ranks - 1) % ranks]; from = a->stage - 1; }
        if (a->is_backward && a->stage) out = &mail[1][r];
        if (!a->is_backward && a->stage + 1 < stages) out = &mail[0][r];
        if (phase[r] == 0) {
            if (in && in->sent == in->received) continue;
            if (in && (in->stage[in->received] != from || in->micro_batch[in->received] != a->micro_batch)) return 0;
            if (in) ++in->received;
            ++phase[r]; idle = 0;
        } else if (phase[r] == 1) {
            if (out && p->s.sends && out->sent - out->received >= p->s.sends) continue;
            if (a->is_backward && (!ran[0][a->stage][a->micro_batch] || (a->micro_batch && !ran[1][a->stage][a->micro_batch - 1]))) return 0;
            if (ran[a->is_backward][a->stage][a->micro_batch]++) return 0;
            if (out) { out->stage[out->sent] = a->stage; out->micro_batch[out->sent++] = a->micro_batch; }
            ++phase[r]; idle = 0;
        } else {
            if (out && !p->s.sends && out->received < out->sent) continue;
            phase[r] = 0; idle = 0;
            if (++at[r] == count) ++done;
        }
    }
    return done == ranks;
}
static void pipeline_swaps(void) { /* any two entries of a list swapped, with and without buffers */
    static pipe_lists p, wrong; size_t sends, shape, i, j, r, caught = 0, fine = 0; memopt_error why; pipeline_course c;
    static const size_t shapes[6][3] = { { 2, 1, 3 }, { 3, 1, 4 }, { 4, 1, 5 }, { 4, 1, 2 }, { 2, 2, 4 }, { 3, 2, 3 } };
    memset(&c, 0, sizeof c);
    for (shape = 0; shape < 6; ++shape)
        for (sends = 0; sends <= 3; ++sends) {
            pipe_make(&p, shapes[shape][0], shapes[shape][1], shapes[shape][2]);
            p.s.sends = sends;
            CHECK_AT((pipeline_simulate(&p.s, NULL, &c, &why) == MEMOPT_OK) == pipe_executes(&p, shape + 1), shape * 10 + sends);
            CHECK_AT(sends || pipeline_simulate(&p.s, NULL, &c, &why) == MEMOPT_ERR_STATE, shape); /* 1F1B and sends that block */
            for (r = 0; r < p.s.shape.ranks; ++r)
                for (i = 0; i < pipeline_count(&p.s.shape); ++i)
                    for (j = i + 1; j < pipeline_count(&p.s.shape); ++j) {
                        pipeline_action *list; pipeline_action a; int ok;
                        if (test_is_passed_over()) continue;
                        wrong = p;
                        wrong.s.actions = wrong.actions;
                        list = wrong.actions + r * pipeline_count(&p.s.shape);
                        a = list[i]; list[i] = list[j]; list[j] = a;
                        ok = pipe_executes(&wrong, i * 100 + j + 1);
                        CHECK_AT((pipeline_simulate(&wrong.s, NULL, &c, &why) == MEMOPT_OK) == ok, ((shape * 10 + sends) * 100 + i) * 100 + j);
                        if (a.stage == list[i].stage && a.is_backward == list[i].is_backward) CHECK_AT(!ok, i * 100 + j);
                        caught += !ok; fine += (size_t)ok;
                    }
        }
    CHECK(caught > fine && fine > 0);
}
static void pipeline_wrong_lists(void) {
    static pipe_lists p; memopt_error why; pipeline_course c; pipeline_action *a; pipeline_action keep;
    memset(&c, 0, sizeof c);
    pipe_make(&p, 2, 1, 3);
    p.s.sends = 0;
    CHECK(pipeline_simulate(&p.s, NULL, &c, &why) == MEMOPT_ERR_STATE && test_error_says(why, MEMOPT_ERR_STATE, "pipeline: forward of micro-batch 1 at rank 0, waits for ever, with sends that block, action 1"));
    pipe_make(&p, 2, 1, 3); /* F0 F1 B0 F2 B1 B2 and F0 B0 F1 B1 F2 B2 */
    a = p.actions;
    keep = a[1]; a[1] = a[2]; a[2] = keep; /* the first rank wants a gradient before it sends what the second needs: still one at a time */
    CHECK(pipeline_simulate(&p.s, NULL, &c, &why) == MEMOPT_OK && c.seconds > 8);
    keep = a[0]; a[0] = a[1]; a[1] = keep;
    CHECK(pipeline_simulate(&p.s, NULL, &c, &why) == MEMOPT_ERR_STATE && test_error_says(why, MEMOPT_ERR_STATE, "pipeline: backward of micro-batch 0 at rank 0, comes before its forward, action 0"));
    pipe_make(&p, 2, 1, 3);
    a[3] = a[1];
    CHECK(pipeline_simulate(&p.s, NULL, &c, &why) == MEMOPT_ERR_STATE && test_error_says(why, MEMOPT_ERR_STATE, "pipeline: forward of micro-batch 1 at rank 0, is there twice, action 3"));
    CHECK(why.action == 3 && why.segment == 0 && why.index == 0);
    pipe_make(&p, 2, 1, 3);
    a[3].micro_batch = 3;
    CHECK(pipeline_simulate(&p.s, NULL, &c, &why) == MEMOPT_ERR_STATE && test_error_says(why, MEMOPT_ERR_STATE, "pipeline: forward of micro-batch 3 at rank 0, does not exist, action 3"));
    pipe_make(&p, 2, 1, 3);
    a[8].stage = 0;
    CHECK(pipeline_simulate(&p.s, NULL, &c, &why) == MEMOPT_ERR_STATE && test_error_says(why, MEMOPT_ERR_STATE, "pipeline: forward of micro-batch 1 at rank 1, is of a stage of another rank, action 2"));
    pipe_make(&p, 2, 1, 3);
    keep = a[4]; a[4] = a[5]; a[5] = keep;
    CHECK(pipeline_simulate(&p.s, NULL, &c, &why) == MEMOPT_ERR_STATE && test_error_says(why, MEMOPT_ERR_STATE, "pipeline: backward of micro-batch 2 at rank 0, comes before that of the micro-batch before it, action 4"));
    pipe_make(&p, 2, 1, 3);
    keep = a[0]; a[0] = a[1]; a[1] = keep;
    CHECK(pipeline_simulate(&p.s, NULL, &c, &why) == MEMOPT_ERR_STATE && test_error_says(why, MEMOPT_ERR_STATE, "pipeline: forward of micro-batch 1 at rank 0, is sent in another order than it is received, action 0"));
    pipe_make(&p, 4, 1, 8); /* gradients of tokens wait for the first rank, which is the last to come to a backward */
    p.s.tied_slots = 8;
    CHECK(pipeline_simulate(&p.s, NULL, &c, &why) == MEMOPT_OK && pipe_near(c.seconds, 22) && c.tied_slots == 2);
    p.s.tied_slots = c.tied_slots;
    CHECK(pipeline_simulate(&p.s, NULL, &c, &why) == MEMOPT_OK && pipe_near(c.seconds, 22));
    p.s.tied_slots = 1; /* the last rank begins a backward when the first has begun the one before: every 3 seconds, not 2 */
    CHECK(pipeline_simulate(&p.s, NULL, &c, &why) == MEMOPT_OK && pipe_near(c.seconds, 22 + 7) && c.tied_slots == 1);
}
static void pipeline_wrong_shapes(void) {
    pipeline_shape s; memopt_error why; pipeline_schedule none; pipeline_course c; pipeline_action a; test_faults f; memopt_host host = test_host(&f); static pipe_lists p;
    memset(&s, 0, sizeof s); memset(&none, 0, sizeof none); memset(&c, 0, sizeof c); memset(&f, 0, sizeof f); memset(&a, 0, sizeof a);
    CHECK(pipeline_check_shape(NULL, &why) == MEMOPT_ERR_ARGUMENT && test_error_says(why, MEMOPT_ERR_ARGUMENT, "pipeline: shape is NULL"));
    CHECK(pipeline_check_shape(&s, &why) == MEMOPT_ERR_ARGUMENT && test_error_says(why, MEMOPT_ERR_ARGUMENT, "pipeline: ranks is 0"));
    s.ranks = 2;
    CHECK(pipeline_check_shape(&s, &why) == MEMOPT_ERR_ARGUMENT && test_error_says(why, MEMOPT_ERR_ARGUMENT, "pipeline: micro_batches is 0"));
    s.micro_batches = 3; s.chunks = 2;
    CHECK(pipeline_check_shape(&s, &why) == MEMOPT_ERR_ARGUMENT && test_error_says(why, MEMOPT_ERR_ARGUMENT, "pipeline: micro_batches 3, with chunks a multiple of ranks 2"));
    CHECK(pipeline_check_shape(&s, NULL) == MEMOPT_ERR_ARGUMENT);
    s.ranks = 1;
    CHECK(pipeline_check_shape(&s, &why) == MEMOPT_ERR_ARGUMENT && test_error_says(why, MEMOPT_ERR_ARGUMENT, "pipeline: ranks 1, with chunks at least 2"));
    s.ranks = SIZE_MAX / 2;
    CHECK(pipeline_check_shape(&s, &why) == MEMOPT_ERR_ARGUMENT && why.limit.count == MEMOPT_CHAIN_MAX);
    s.ranks = 2; s.micro_batches = SIZE_MAX;
    CHECK(pipeline_check_shape(&s, &why) == MEMOPT_ERR_ARGUMENT && why.limit.count == MEMOPT_CHAIN_MAX);
    CHECK(pipeline_simulate(NULL, NULL, &c, &why) == MEMOPT_ERR_ARGUMENT && pipeline_simulate(&none, NULL, &c, &why) == MEMOPT_ERR_ARGUMENT);
    none.actions = &a;
    CHECK(pipeline_simulate(&none, NULL, &c, &why) == MEMOPT_ERR_ARGUMENT && pipeline_simulate(&none, NULL, NULL, &why) == MEMOPT_ERR_ARGUMENT);
    pipe_make(&p, 2, 1, 3);
    f.fail_on = 1;
    CHECK(pipeline_simulate(&p.s, &host, &c, &why) == MEMOPT_ERR_MEMORY && why.status == MEMOPT_ERR_MEMORY);
    CHECK(pipeline_simulate(&p.s, &host, &c, &why) == MEMOPT_OK && !f.live_blocks && !f.bad_frees && f.calls == 2);
}

static void test_pipeline(void) {
    RUN(pipeline_lists);
    RUN(pipeline_bubbles);
    RUN(pipeline_swaps);
    RUN(pipeline_wrong_lists);
    RUN(pipeline_wrong_shapes);
}

#ifndef TEST_COMBINED
int main(void) { test_pipeline(); return test_totals(); }
#endif
