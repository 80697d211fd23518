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

/* ---- cuts ---- */
static memopt_status pipe_zero(const memopt_tape_call *call) { /* what it has to write */
    void *to = call->is_backward ? call->grad_input : call->output;
    if (to && !call->not_host_visible) memset(to, 0, call->is_backward ? call->grad_input_bytes : call->output_bytes);
    return MEMOPT_OK;
}
typedef struct pipe_chain { memopt_segment segments[16]; memopt_tape_layer layers[16]; size_t resident[16]; pipeline_desc d; memopt_error why; } pipe_chain;
static size_t pipe_resident(void *user, size_t first, size_t count) {
    const pipe_chain *c = (const pipe_chain *)user; size_t sum = 0, i;
    for (i = 0; i < count; ++i) sum += c->resident[first + i];
    return sum;
}
static void pipe_chain_make(pipe_chain *c, uint64_t seed, size_t count) {
    const int alike = seed % 4 == 1; /* but for the ends, as blocks are */ size_t i;
    memset(c, 0, sizeof *c);
    for (i = 0; i < count; ++i) {
        memopt_segment *s = &c->segments[i];
        if (i && (test_below(&seed, 2) || (alike && i > 1 && i + 1 < count))) { *s = c->segments[i - 1]; c->resident[i] = c->resident[i - 1]; }
        else {
            s->output_bytes = 1 + test_below(&seed, 2000); s->grad_bytes = 1 + test_below(&seed, 2000);
            s->saved_bytes = s->output_bytes + test_below(&seed, 9000); s->forward_scratch = test_below(&seed, 5000); s->backward_scratch = test_below(&seed, 9000);
            s->forward_cost = 1 + (double)test_below(&seed, 4); s->backward_cost = 2; s->grad_in_place = (int)test_below(&seed, 2);
            c->resident[i] = 64 * test_below(&seed, 300);
        }
        c->layers[i].forward_fn = c->layers[i].backward_fn = pipe_zero;
    }
    c->segments[count - 1].grad_bytes = 0;
    c->d.layers = c->layers; c->d.segments = c->segments; c->d.count = count; c->d.input_bytes = 100;
    c->d.resident_fn = pipe_resident; c->d.user = c; c->d.error = &c->why; c->d.tape.rule = MEMOPT_SCHEDULE_ALL;
}
static size_t pipe_up(size_t bytes) { return (bytes + 63) / 64 * 64; }
static size_t pipe_tables(const pipe_chain *c, const pipeline_stage *stages, size_t rank) { /* each at 64 */
    const pipeline_shape *s = &c->d.shape; size_t k, count = 0, sum = pipe_up(sizeof(pipeline)) + pipe_up(pipeline_chunks(s) * sizeof(pipeline_chunk)) + pipe_up(pipeline_count(s) * sizeof(pipeline_action)) + pipe_up(s->ranks * 8);
    for (k = rank; k < pipeline_stages(s); k += s->ranks) { sum += pipe_up(stages[k].under_way * sizeof(pipeline_slot)); count += stages[k].count; }
    return sum + pipe_up(count * sizeof(pipeline_layer)) + count * sizeof(memopt_tape_layer);
}
/* What a rank takes, from the definition: its stages' memory, each piece rounded up. */
static size_t pipe_rank_bytes(const pipe_chain *c, const pipeline_stage *stages, size_t rank) {
    const pipeline_shape *s = &c->d.shape; size_t k, sum = 0, work = 0, in = 0, out = 0;
    for (k = rank; k < pipeline_stages(s); k += s->ranks) {
        const pipeline_stage *x = &stages[k]; memopt_tape_desc t; memopt_tape *tape = NULL; memopt_tape_stats stats; const size_t end = x->first + x->count;
        memset(&t, 0, sizeof t);
        t.chain.segments = c->segments + x->first; t.chain.count = x->count; t.layers = c->layers + x->first; t.rule = c->d.tape.rule; t.overhead = c->d.tape.overhead; t.held_apart = 1;
        CHECK(memopt_tape_create(&t, &tape) == MEMOPT_OK);
        stats = memopt_tape_get_stats(tape);
        memopt_tape_destroy(tape);
        CHECK(x->held == pipe_up(stats.held) && x->work == pipe_up(stats.peak - stats.held));
        sum += x->under_way * (x->held + (x->first ? pipe_up(c->segments[x->first - 1].output_bytes) : 0));
        work = memopt_i_max(work, x->work);
        if (x->first) out = memopt_i_max(out, c->segments[x->first - 1].grad_bytes);
        if (end < c->d.count) in = memopt_i_max(in, c->segments[end - 1].grad_bytes);
        sum += pipe_resident((void *)(uintptr_t)c, x->first, x->count);
    }
    return sum + work + pipe_up(in) + 2 * pipe_up(out);
}
static size_t pipe_largest(const pipe_chain *c, const pipeline_stage *stages) {
    size_t most = 0, r;
    for (r = 0; r < c->d.shape.ranks; ++r) most = memopt_i_max(most, pipe_rank_bytes(c, stages, r));
    return most;
}
typedef struct pipe_worth { size_t largest; double slowest; } pipe_worth; /* the most bytes of a rank; the most work of a stage, or with chunks the seconds of a step */
static pipe_worth pipe_worth_of(const pipe_chain *c, const pipeline_stage *stages) {
    const pipeline_shape *shape = &c->d.shape; pipe_worth x = { 0, 0 }; double seconds[2][16]; static pipe_lists p; pipeline_course course; size_t s, i;
    x.largest = pipe_largest(c, stages);
    for (s = 0; s < pipeline_stages(shape); ++s)
        for (seconds[0][s] = seconds[1][s] = 0, i = stages[s].first; i < stages[s].first + stages[s].count; ++i) { /* nothing is made again */
            seconds[0][s] += c->segments[i].forward_cost; seconds[1][s] += c->segments[i].backward_cost;
            if (shape->chunks < 2 && seconds[0][s] + seconds[1][s] > x.slowest) x.slowest = seconds[0][s] + seconds[1][s];
        }
    if (shape->chunks < 2) return x;
    pipe_make(&p, shape->ranks, shape->chunks, shape->micro_batches);
    p.s.forward_seconds = seconds[0]; p.s.backward_seconds = seconds[1];
    memset(&course, 0, sizeof course);
    CHECK(pipeline_simulate(&p.s, NULL, &course, NULL) == MEMOPT_OK);
    x.slowest = course.seconds;
    return x;
}
static int pipe_is_better(const pipe_chain *c, pipe_worth x, pipe_worth than) {
    if (!c->d.limit || x.largest > c->d.limit || than.largest > c->d.limit) return x.largest < than.largest;
    return x.slowest < than.slowest || (!(x.slowest > than.slowest) && x.largest < than.largest);
}
static pipe_worth pipe_best(const pipe_chain *c, pipeline_stage *stages, size_t s, size_t first) { /* of all cuts */
    const size_t left = pipeline_stages(&c->d.shape) - s - 1; pipe_worth best = { SIZE_MAX, 0 }; size_t count;
    stages[s].first = first;
    if (!left) {
        memopt_tape_desc t; memopt_tape *tape = NULL; memopt_tape_stats stats; size_t k;
        stages[s].count = c->d.count - first;
        for (k = 0; k <= s; ++k) { /* sizes of these stages */
            memset(&t, 0, sizeof t);
            t.chain.segments = c->segments + stages[k].first; t.chain.count = stages[k].count; t.layers = c->layers + stages[k].first; t.rule = c->d.tape.rule; t.held_apart = 1;
            CHECK(memopt_tape_create(&t, &tape) == MEMOPT_OK);
            stats = memopt_tape_get_stats(tape); memopt_tape_destroy(tape);
            stages[k].held = pipe_up(stats.held); stages[k].work = pipe_up(stats.peak - stats.held);
        }
        return pipe_worth_of(c, stages);
    }
    for (count = 1; first + count + left <= c->d.count; ++count) {
        pipe_worth x;
        stages[s].count = count; stages[s].first = first;
        x = pipe_best(c, stages, s + 1, first + count);
        if (pipe_is_better(c, x, best)) best = x;
    }
    return best;
}
static void pipeline_cuts(void) {
    static pipe_chain c; pipeline_stage stages[16], tried[16]; pipeline_bytes bytes[PIPE_RANKS]; uint64_t seed; size_t r, k, smallest, equal = 0, fast = 0, all = 0; pipe_worth own, best;
    for (seed = 1; seed <= 90; ++seed) {
        uint64_t random = seed; const size_t count = 3 + test_below(&random, seed % 3 ? 5 : 7), ranks = 1 + test_below(&random, 4); const size_t chunks = ranks > 1 && 2 * ranks <= count && seed % 3 == 0 ? 2 : 1;
        if (ranks > count || test_is_passed_over()) continue;
        pipe_chain_make(&c, seed, count);
        c.d.shape.ranks = ranks; c.d.shape.chunks = chunks; c.d.shape.micro_batches = chunks > 1 ? 2 * ranks : 1 + test_below(&random, 6);
        CHECK_AT(pipeline_plan(&c.d, stages, bytes) == MEMOPT_OK, seed);
        for (r = k = 0; r < ranks * chunks; ++r) {
            CHECK_AT(stages[r].first == k && stages[r].count > 0, seed);
            k += stages[r].count;
        }
        CHECK_AT(k == count, seed);
        for (r = 0; r < ranks; ++r) CHECK_AT(bytes[r].total == pipe_rank_bytes(&c, stages, r) && bytes[r].total == bytes[r].resident + bytes[r].pipeline && bytes[r].tables == pipe_tables(&c, stages, r), seed);
        memcpy(tried, stages, sizeof stages);
        best = pipe_best(&c, tried, 0, 0);
        own = pipe_worth_of(&c, stages);
        smallest = own.largest;
        if (chunks == 1) CHECK_AT(own.largest == best.largest, seed);
        else { CHECK_AT(own.largest >= best.largest, seed); equal += own.largest == best.largest; ++all; }
        c.d.limit = own.largest - (chunks == 1) + test_below(&random, 3) * test_below(&random, own.largest / 3); /* which some keep within, or none */
        CHECK_AT(pipeline_plan(&c.d, stages, bytes) == MEMOPT_OK, seed);
        memcpy(tried, stages, sizeof stages);
        best = pipe_best(&c, tried, 0, 0);
        own = pipe_worth_of(&c, stages);
        if (chunks == 1) CHECK_AT(!pipe_is_better(&c, best, own) && !pipe_is_better(&c, own, best), seed);
        else { CHECK_AT(own.largest <= c.d.limit || smallest > c.d.limit, seed); fast += !pipe_is_better(&c, best, own); }
        for (r = 0; r < ranks; ++r) CHECK_AT(bytes[r].total == pipe_rank_bytes(&c, stages, r), seed);
    }
    for (k = 0; k < 2; ++k) { /* of segments that take no time the smallest */
        pipe_chain_make(&c, 5, 8);
        c.d.shape.ranks = 3; c.d.shape.micro_batches = 4; c.d.limit = k ? SIZE_MAX / 2 : 0;
        for (r = 0; r < 8; ++r) c.segments[r].forward_cost = c.segments[r].backward_cost = 0;
        CHECK(pipeline_plan(&c.d, stages, bytes) == MEMOPT_OK && (!k || pipe_largest(&c, stages) == smallest));
        smallest = pipe_largest(&c, stages);
    }
    if (TEST_STRIDE == 1) CHECK(all > 10 && equal * 10 >= all * 9 && fast * 10 >= all * 8);
}
static void pipeline_bad_plans(void) {
    static pipe_chain c; pipeline_stage stages[16]; pipeline_bytes bytes[PIPE_RANKS]; test_faults f; memopt_host host = test_host(&f); size_t n; transformer t; memopt_arena *arena = (memopt_arena *)(uintptr_t)64;
    pipe_chain_make(&c, 5, 6);
    c.d.shape.ranks = 7; c.d.shape.micro_batches = 4;
    CHECK(pipeline_plan(NULL, stages, bytes) == MEMOPT_ERR_ARGUMENT);
    CHECK(pipeline_plan(&c.d, stages, bytes) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: stages 7, at most as many as segments 6"));
    c.d.shape.ranks = 4; c.d.shape.chunks = 2;
    CHECK(pipeline_plan(&c.d, stages, bytes) == MEMOPT_ERR_ARGUMENT && c.why.got.count == 8);
    c.d.shape.chunks = 0; c.d.shape.micro_batches = 0;
    CHECK(pipeline_plan(&c.d, stages, bytes) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: micro_batches is 0"));
    c.d.shape.micro_batches = 3;
    CHECK(pipeline_plan(&c.d, NULL, bytes) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: stages is NULL"));
    c.d.layers = NULL;
    CHECK(pipeline_plan(&c.d, stages, bytes) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: layers is NULL"));
    c.d.layers = c.layers; c.d.tape.budget = 1;
    CHECK(pipeline_plan(&c.d, stages, bytes) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: tape has an arena, a budget, a store or a generator"));
    c.d.tape.budget = 0; c.d.tape.arena = arena;
    CHECK(pipeline_plan(&c.d, stages, bytes) == MEMOPT_ERR_ARGUMENT);
    c.d.tape.arena = NULL; c.d.tied_slots = 9;
    CHECK(pipeline_plan(&c.d, stages, bytes) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: tied_slots 9, at most 8"));
    c.d.tied_slots = 0; memset(&t, 0, sizeof t); t.untied = 1; c.d.tied = &t;
    CHECK(pipeline_plan(&c.d, stages, bytes) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: tied has a head of its own, or frozen tokens"));
    c.d.tied = NULL; c.segments[5].grad_bytes = 8;
    CHECK(pipeline_plan(&c.d, stages, bytes) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: grad_bytes of the last segment is not 0: a head begins the backward"));
    c.segments[5].grad_bytes = 0;
    for (n = 0; n < 5; ++n) c.segments[n].grad_bytes = n == 2 ? 8 : 0; /* one place to cut, for four stages */
    CHECK(pipeline_plan(&c.d, stages, bytes) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: segments cannot be cut into so many stages, between values that have gradients"));
    c.d.shape.ranks = 2;
    CHECK(pipeline_plan(&c.d, stages, bytes) == MEMOPT_OK && stages[1].first == 3);
    pipe_chain_make(&c, 5, 6);
    c.d.shape.ranks = 2; c.d.shape.chunks = 2; c.d.shape.micro_batches = 4; memset(&f, 0, sizeof f); c.d.tape.host = &host;
    for (n = 1; n < 2000; ++n) {
        f.fail_on = f.calls + n;
        if (pipeline_plan(&c.d, stages, bytes) == MEMOPT_OK) break;
        CHECK_AT(c.why.status == MEMOPT_ERR_MEMORY && !f.live_blocks && !f.bad_frees, n);
    }
    CHECK(n > 20 && n < 2000 && !f.live_blocks && !f.bad_frees);
}

/* ---- ranks as threads, and one process ---- */
#if defined(MEMOPT_I_POOL)
enum { PIPE_BLOCKS = 3, PIPE_SEGMENTS = 2 * PIPE_BLOCKS + 2, PIPE_TENSORS = 14 * PIPE_BLOCKS + 5, PIPE_ELEMENTS = 16384, PIPE_MICRO = 8, PIPE_STEPS = 3, PIPE_ROWS = 16 };
typedef struct pipe_case { int llama, bf16, dropout, tied, adds; /* adds: by done_fn, else with `accumulate` */ size_t micro_batches; } pipe_case;
typedef struct pipe_model { /* of one rank */
    pipe_case of; transformer t; transformer_part embedding, copy; transformer_block block[PIPE_BLOCKS]; transformer_head head; transformer_chain chain;
    memopt_optim_tensor tensors[PIPE_TENSORS]; memopt_tape_layer layers[PIPE_SEGMENTS]; memopt_segment segments[PIPE_SEGMENTS];
    size_t micro_batch, calls; const struct pipe_world *world; double losses[PIPE_MICRO]; size_t last; /* the last stage */
} pipe_model;
typedef struct pipe_result { double losses[PIPE_STEPS][PIPE_MICRO], held[PIPE_STEPS][PIPE_MICRO]; /* held: of evaluations after the step */ float gradients[PIPE_STEPS][PIPE_ELEMENTS], weights[PIPE_ELEMENTS]; size_t elements; } pipe_result;
typedef struct pipe_world {
    pipe_case of; pipeline_shape shape; memopt_schedule_rule rule; size_t tied_slots;
    memopt_ranks *links[PIPELINE_LINK_KINDS][4], *all; /* by sender */
    pipe_result result; memopt_status status[4]; memopt_error why[4]; pipeline_course course;
    size_t fails, fails_at; int stuck, other_plan, evaluates; /* rank `fails`, at its fails_at-th action: an error, or it sleeps */
} pipe_world;
static float pipe_noise(uint64_t seed) { return (float)(test_random(&seed) >> 40) / 16777216.0f - 0.5f; }
static int32_t pipe_id(size_t step, size_t micro_batch, size_t row) { uint64_t seed = (step * 100 + micro_batch) * 100 + row; return (int32_t)test_below(&seed, 37); }
static memopt_status pipe_add(void *user, size_t tensor, const void *gradients) { /* micro-batch by micro-batch */
    pipe_model *m = (pipe_model *)user; const memopt_optim_tensor *o = &m->tensors[tensor]; float *to = (float *)(uintptr_t)o->gradients; size_t i;
    for (i = 0; i < o->count; ++i) to[i] = m->micro_batch ? memopt_i_sum(to[i], ((const float *)gradients)[i]) : ((const float *)gradients)[i];
    return MEMOPT_OK;
}
static void pipe_parts(pipe_model *m, void *gradients, int ranks) {
    size_t i;
    m->chain.shape = &m->t; m->chain.weights = PIPELINE_NOWHERE; m->chain.gradients = gradients;
    m->chain.tensors = m->tensors; m->chain.layers = m->layers; m->chain.segments = m->segments;
    transformer_add_embedding(&m->chain, &m->embedding);
    for (i = 0; i < PIPE_BLOCKS; ++i) transformer_add_block(&m->chain, &m->block[i]);
    transformer_add_head(&m->chain, &m->head, &m->embedding);
    if (m->of.tied) m->embedding.gradients = PIPELINE_NOWHERE;
    m->copy = m->embedding;
    if (m->of.tied && ranks) m->head.tied = &m->copy;
}
static void pipe_describe(pipe_model *m, const pipe_case *of, int ranks) {
    memopt_error why; transformer *t = &m->t;
    memset(m, 0, sizeof *m);
    m->of = *of;
    t->batch = 2; t->length = PIPE_ROWS / 2; t->width = 16; t->heads = 2; t->hidden = 24; t->vocabulary = 37; t->padded = of->tied ? 40 : 0;
    if (of->llama) { t->rms = t->swiglu = t->rotary = t->no_bias = 1; t->kv_heads = 1; }
    t->untied = !of->tied; t->dropout = of->dropout ? 0.1f : 0; t->type = of->bf16 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
    if (of->adds) { t->done_fn = pipe_add; t->user = m; }
    m->head.chunk = 8; m->head.rule.count = PIPE_ROWS * of->micro_batches;
    pipe_parts(m, of->adds ? NULL : PIPELINE_NOWHERE, ranks);
    CHECK(m->chain.elements <= PIPE_ELEMENTS && m->chain.tensor_count <= PIPE_TENSORS && m->chain.count == PIPE_SEGMENTS);
    if (of->adds == 0) t->accumulate = 1; /* which may need more scratch */
    CHECK(memopt_tape_describe(m->layers, m->segments, m->chain.count, &why) == MEMOPT_OK);
    t->accumulate = 0;
}
/* Arrays of a stage and its optimizer, in an arena that may only count. The optimizer is NULL then. */
static memopt_optim *pipe_push(pipe_model *m, memopt_arena *arena, size_t first, size_t count, const pipeline_parameters *x) {
    float *weights = (float *)memopt_arena_push(arena, x->count * sizeof(float), MEMOPT_TAG_PARAMETERS);
    float *gradients = (float *)memopt_arena_push(arena, x->count * sizeof(float), MEMOPT_TAG_GRADIENTS), *tokens = NULL;
    memopt_optim_desc d; memopt_optim *optim = NULL; memopt_optim_tensor tensors[PIPE_TENSORS]; memopt_error why; const int counts = !memopt_i_source_not_host_visible(arena->source) ? 0 : 1; size_t i;
    if (!first && m->of.adds && m->of.tied) tokens = (float *)memopt_arena_push(arena, m->tensors[0].count * sizeof(float), MEMOPT_TAG_GRADIENTS);
    if (!counts) {
        pipeline_place(&m->chain, first, count, weights, m->of.adds ? NULL : gradients);
        for (i = 0; i < x->tensor_count; ++i) m->tensors[x->first_tensor + i].gradients = gradients + ((float *)m->tensors[x->first_tensor + i].weights - weights);
        if (tokens) m->embedding.gradients = tokens;
        for (i = 0; i < x->count; ++i) weights[i] = 0.4f * pipe_noise(x->first + i + 1);
    }
    memset(&d, 0, sizeof d);
    memcpy(tensors, m->tensors + x->first_tensor, x->tensor_count * sizeof *tensors);
    d.kind = MEMOPT_OPTIM_ADAMW; d.tensors = counts ? tensors : m->tensors + x->first_tensor; d.tensor_count = x->tensor_count; d.error = &why;
    CHECK(memopt_optim_open(&d, arena, &optim) == MEMOPT_OK);
    return optim;
}
static memopt_status pipe_optimize(memopt_optim *optim, size_t step) {
    memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW); memopt_optim_run run;
    memset(&run, 0, sizeof run);
    group.rate = 0.01; run.groups = &group; run.group_count = 1; run.step = step + 1;
    return memopt_optim_step(optim, &run);
}
static void pipe_targets(const pipe_model *m, int32_t *ids, int32_t *targets, size_t step, size_t micro_batch) {
    size_t i;
    (void)m;
    for (i = 0; i < PIPE_ROWS; ++i) { ids[i] = pipe_id(step, micro_batch, i); targets[i] = pipe_id(step, micro_batch, i + 1); }
}
/* One process, one tape, no pipeline. */
static void pipe_alone(const pipe_case *of, pipe_result *r) {
    static pipe_model m; memopt_source source; memopt_arena_desc ad; memopt_arena *arena = NULL; memopt_tape_desc d; memopt_tape *tape = NULL; memopt_optim *optim; pipeline_parameters x; memopt_error why; size_t step, i; int32_t ids[PIPE_ROWS], targets[PIPE_ROWS];
    memset(&ad, 0, sizeof ad); memset(&d, 0, sizeof d); memset(r, 0, sizeof *r);
    pipe_describe(&m, of, 0);
    x = pipeline_parameters_of(&m.chain, 0, m.chain.count);
    CHECK(x.first == 0 && x.count == m.chain.elements && x.tensor_count == m.chain.tensor_count && memopt_source_pages(NULL, &source) == MEMOPT_OK);
    ad.source = &source; ad.capacity = 4 << 20;
    CHECK(memopt_arena_create(&ad, &arena) == MEMOPT_OK);
    optim = pipe_push(&m, arena, 0, m.chain.count, &x);
    d.chain.segments = m.segments; d.chain.count = m.chain.count; d.chain.input_bytes = sizeof ids; d.layers = m.layers; d.rule = MEMOPT_SCHEDULE_ALL; d.arena = arena; d.error = &why; d.seed = 9;
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
    m.head.targets = targets;
    for (step = 0; step < PIPE_STEPS; ++step) {
        for (m.micro_batch = 0; m.micro_batch < of->micro_batches; ++m.micro_batch) {
            pipe_targets(&m, ids, targets, step, m.micro_batch);
            m.t.accumulate = !of->adds && m.micro_batch;
            CHECK(memopt_tape_forward(tape, ids) == MEMOPT_OK && memopt_tape_backward(tape, NULL, NULL) == MEMOPT_OK);
            r->losses[step][m.micro_batch] = m.head.loss;
        }
        for (i = 0; i < x.tensor_count; ++i)
            memcpy(r->gradients[step] + ((float *)m.tensors[i].weights - (const float *)m.embedding.weights), m.tensors[i].gradients, m.tensors[i].count * sizeof(float));
        CHECK(pipe_optimize(optim, step) == MEMOPT_OK);
        for (i = 0; i < of->micro_batches; ++i) {
            pipe_targets(&m, ids, targets, step, i);
            CHECK(memopt_tape_evaluate(tape, ids, NULL) == MEMOPT_OK);
            r->held[step][i] = m.head.loss;
        }
    }
    memcpy(r->weights, m.embedding.weights, x.count * sizeof(float));
    r->elements = x.count;
    CHECK(r->losses[PIPE_STEPS - 1][0] > 0);
    memopt_tape_destroy(tape); memopt_arena_destroy(arena);
}
static size_t pipe_resident_of(void *user, size_t first, size_t count) {
    pipe_model *m = (pipe_model *)user; const pipeline_parameters x = pipeline_parameters_of(&m->chain, first, count);
    memopt_source source; memopt_arena_desc d; memopt_arena *arena = NULL; size_t bytes;
    memset(&d, 0, sizeof d);
    CHECK(memopt_source_counting(&source) == MEMOPT_OK);
    d.source = &source; d.capacity = 64 << 20;
    CHECK(memopt_arena_create(&d, &arena) == MEMOPT_OK);
    (void)pipe_push(m, arena, first, count, &x);
    bytes = memopt_arena_get_stats(arena).peak;
    memopt_arena_destroy(arena);
    return bytes;
}
static int32_t pipe_ids[4][PIPE_MICRO][PIPE_ROWS], pipe_goals[4][PIPE_MICRO][PIPE_ROWS]; /* of each rank */
static void pipe_sleep(void) {
#if defined(_WIN32)
    Sleep(700);
#else
    struct timespec t; t.tv_sec = 0; t.tv_nsec = 700000000; nanosleep(&t, NULL);
#endif
}
static memopt_status pipe_before(void *user, const pipeline_action *a) {
    pipe_model *m = (pipe_model *)user; const size_t rank = a->stage % m->world->shape.ranks;
    m->micro_batch = a->micro_batch; m->head.targets = pipe_goals[rank][a->micro_batch];
    if (a->is_backward) m->t.accumulate = !m->of.adds && a->micro_batch;
    if (rank != m->world->fails || ++m->calls != m->world->fails_at) return MEMOPT_OK;
    if (!m->world->stuck) return MEMOPT_ERR_DEVICE;
    pipe_sleep();
    return MEMOPT_OK;
}
static memopt_status pipe_after(void *user, const pipeline_action *a) {
    pipe_model *m = (pipe_model *)user;
    if (a->stage == m->last) m->losses[a->micro_batch] = m->head.loss;
    return MEMOPT_OK;
}
typedef struct pipe_rank { /* what a rank opens */
    pipe_model m; memopt_comm *comms[2 * PIPELINE_LINK_KINDS + 1]; pipeline_links links; pipeline_stage stages[PIPE_SEGMENTS]; pipeline_bytes bytes[4]; pipeline_parameters x[2]; memopt_optim *optim[2];
    memopt_ledger *ledger; memopt_arena *arena; memopt_source source; unsigned char *block; pipeline *p; void *memory;
} pipe_rank;
static memopt_comm *pipe_comm(memopt_ranks *ranks, size_t rank, int unchecked) {
    memopt_comm_desc d; memopt_comm *comm = NULL;
    memset(&d, 0, sizeof d);
    d.transport = memopt_ranks_transport(ranks, rank); d.unchecked = unchecked;
    CHECK(memopt_comm_create(&d, &comm) == MEMOPT_OK);
    return comm;
}
static memopt_status pipe_open(pipe_world *w, pipe_rank *r, size_t rank, pipeline_desc *d) {
    const size_t ranks = w->shape.ranks, chunks = pipeline_chunks(&w->shape); size_t k; memopt_arena_desc ad; memopt_status s; int kind; transformer_part *tokens;
    pipe_describe(&r->m, &w->of, ranks > 1);
    r->m.world = w; r->m.last = pipeline_stages(&w->shape) - 1;
    memset(d, 0, sizeof *d); memset(&ad, 0, sizeof ad);
    d->shape = w->shape; d->layers = r->m.layers; d->segments = r->m.segments; d->count = r->m.chain.count; d->input_bytes = PIPE_ROWS * sizeof(int32_t);
    d->tape.rule = w->rule; d->tape.overhead = 0.3; d->tape.seed = 9; d->tied = w->of.tied ? &r->m.t : NULL; d->tied_slots = w->tied_slots; d->evaluates = w->evaluates; d->error = &w->why[rank];
    d->resident_fn = pipe_resident_of; d->before_fn = pipe_before; d->after_fn = pipe_after; d->user = &r->m;
    if (w->other_plan && rank == 1) d->tape.rule = MEMOPT_SCHEDULE_NONE;
    for (kind = 0; kind < PIPELINE_LINK_KINDS && ranks > 1; ++kind) {
        r->links.out[kind] = r->comms[2 * kind] = kind == PIPELINE_TIED && rank + 1 != ranks ? NULL : pipe_comm(w->links[kind][rank], 0, 1);
        r->links.in[kind] = r->comms[2 * kind + 1] = kind == PIPELINE_TIED && rank ? NULL : pipe_comm(w->links[kind][pipeline_sender(&w->shape, rank, kind)], 1, 1);
    }
    r->links.all = r->comms[2 * PIPELINE_LINK_KINDS] = pipe_comm(w->all, rank, 0);
    CHECK(pipeline_plan(d, r->stages, r->bytes) == MEMOPT_OK && memopt_ledger_create(NULL, &r->ledger) == MEMOPT_OK);
    r->block = (unsigned char *)malloc(r->bytes[rank].total + 64);
    CHECK(memopt_source_block(r->block, r->bytes[rank].total + 63, &r->source) == MEMOPT_OK);
    ad.source = &r->source; ad.capacity = r->bytes[rank].total; ad.ledger = r->ledger;
    CHECK(memopt_arena_create(&ad, &r->arena) == MEMOPT_OK);
    for (k = 0; k < chunks; ++k) r->x[k] = pipeline_parameters_of(&r->m.chain, r->stages[k * ranks + rank].first, r->stages[k * ranks + rank].count);
    for (k = 0; k < chunks; ++k) r->optim[k] = pipe_push(&r->m, r->arena, r->stages[k * ranks + rank].first, r->stages[k * ranks + rank].count, &r->x[k]);
    tokens = rank ? &r->m.copy : &r->m.embedding;
    if (r->bytes[rank].tokens) {
        float *copy = (float *)memopt_arena_push(r->arena, r->bytes[rank].tokens, MEMOPT_TAG_PARAMETERS);
        CHECK(r->bytes[rank].tokens == r->m.tensors[0].count * sizeof(float) && rank + 1 == ranks);
        for (k = 0; k < r->m.tensors[0].count; ++k) copy[k] = 0.4f * pipe_noise(k + 1);
        tokens->weights = copy;
    }
    r->memory = memopt_arena_push(r->arena, r->bytes[rank].pipeline, MEMOPT_TAG_ACTIVATIONS);
    CHECK(r->memory && memopt_arena_get_stats(r->arena).used_low == r->bytes[rank].total && memopt_ledger_total(r->ledger).now == r->bytes[rank].total);
    s = pipeline_open(d, r->stages, rank, &r->links, w->of.tied ? tokens : NULL, r->memory, r->bytes[rank].pipeline, &r->p);
    return s;
}
static void pipe_run(void *task, size_t rank, int worker) {
    static pipe_rank all[4]; pipe_world *w = (pipe_world *)task; pipe_rank *r = &all[rank]; pipeline_desc d; size_t step, i, k, ranks = w->shape.ranks; const void *inputs[PIPE_MICRO]; memopt_status s;
    (void)worker;
    memset(r, 0, sizeof *r);
    s = pipe_open(w, r, rank, &d);
    for (step = 0; step < PIPE_STEPS && !s; ++step) {
        for (i = 0; i < w->of.micro_batches; ++i) { pipe_targets(&r->m, pipe_ids[rank][i], pipe_goals[rank][i], step, i); inputs[i] = pipe_ids[rank][i]; }
        s = pipeline_step(r->p, rank ? NULL : inputs, step * w->of.micro_batches);
        if (!s && rank + 1 == ranks) memcpy(w->result.losses[step], r->m.losses, sizeof r->m.losses);
        for (k = 0; k < pipeline_chunks(&w->shape) && !s; ++k) {
            const float *weights = (const float *)r->m.tensors[r->x[k].first_tensor].weights;
            for (i = r->x[k].first_tensor; i < r->x[k].first_tensor + r->x[k].tensor_count; ++i)
                memcpy(w->result.gradients[step] + r->x[k].first + ((const float *)r->m.tensors[i].weights - weights), r->m.tensors[i].gradients, r->m.tensors[i].count * sizeof(float));
            CHECK(pipe_optimize(r->optim[k], step) == MEMOPT_OK);
        }
        if (!s) s = pipeline_share_tokens(r->p);
        if (!s && !w->evaluates) CHECK(pipeline_evaluate(r->p, inputs) == MEMOPT_ERR_STATE && test_error_says(pipeline_error(r->p), MEMOPT_ERR_STATE, "pipeline: evaluates is 0: there is no memory for it"));
        if (!s && w->evaluates) s = pipeline_evaluate(r->p, rank ? NULL : inputs);
        if (!s && w->evaluates && rank + 1 == ranks) memcpy(w->result.held[step], r->m.losses, sizeof r->m.losses);
    }
    for (k = 0; k < pipeline_chunks(&w->shape) && !s; ++k) memcpy(w->result.weights + r->x[k].first, r->m.tensors[r->x[k].first_tensor].weights, r->x[k].count * sizeof(float));
    if (s && r->p) { w->why[rank] = pipeline_error(r->p); CHECK(pipeline_step(r->p, inputs, 0) == MEMOPT_ERR_STATE && pipeline_evaluate(r->p, inputs) == MEMOPT_ERR_STATE && pipeline_share_tokens(r->p) == MEMOPT_ERR_STATE); }
    w->status[rank] = s;
    CHECK(memopt_arena_get_stats(r->arena).peak == r->bytes[rank].total && memopt_ledger_total(r->ledger).peak == r->bytes[rank].total);
    pipeline_close(r->p);
    memopt_arena_destroy(r->arena); memopt_ledger_destroy(r->ledger); free(r->block);
    for (i = 0; i <= 2 * PIPELINE_LINK_KINDS; ++i) memopt_comm_destroy(r->comms[i]);
}
static void pipe_threads(pipe_world *w) {
    memopt_ranks_desc d; memopt_thread_pool *pool = NULL; memopt_threads t; size_t r; int kind;
    memset(&d, 0, sizeof d);
    d.deadline = w->stuck ? 100000000u : UINT64_C(4000000000);
    d.rank_count = 2;
    for (kind = 0; kind < PIPELINE_LINK_KINDS; ++kind)
        for (r = 0; r < w->shape.ranks; ++r) CHECK(memopt_ranks_create(&d, &w->links[kind][r]) == MEMOPT_OK);
    d.rank_count = w->shape.ranks;
    CHECK(memopt_ranks_create(&d, &w->all) == MEMOPT_OK && memopt_thread_pool_create(NULL, (int)w->shape.ranks, &pool) == MEMOPT_OK);
    t = memopt_thread_pool_threads(pool);
    t.run_fn(t.user, w->shape.ranks, pipe_run, w);
    memopt_thread_pool_destroy(pool);
    for (kind = 0; kind < PIPELINE_LINK_KINDS; ++kind)
        for (r = 0; r < w->shape.ranks; ++r) memopt_ranks_destroy(w->links[kind][r]);
    memopt_ranks_destroy(w->all);
}
static void pipeline_has_the_bits_of_one(void) {
    static const size_t shapes[9][3] = { { 1, 1, 4 }, { 2, 1, 4 }, { 3, 1, 4 }, { 4, 1, 4 }, { 4, 1, 8 }, { 2, 2, 8 }, { 4, 2, 4 }, { 3, 1, 8 }, { 3, 2, 6 } };
    static const memopt_schedule_rule rules[3] = { MEMOPT_SCHEDULE_ALL, MEMOPT_SCHEDULE_NONE, MEMOPT_SCHEDULE_EXTENDED };
    static pipe_result alone[9]; static pipe_world w; int n; size_t k, r, at = 0;
    for (n = 0; n < 32; ++n) {
        pipe_case of; const int mode = n >> 3; /* tied, untied by done_fn, untied with accumulate, tied with 1 slot */
        memset(&of, 0, sizeof of);
        of.llama = n & 1; of.bf16 = n >> 1 & 1; of.dropout = n >> 2 & 1; of.tied = mode == 0 || mode == 3; of.adds = mode != 2;
        for (k = 0; k < 9; ++k) {
            if (((size_t)n + k) % 3 || test_is_passed_over()) continue; /* every bit of n with every shape */
            of.micro_batches = shapes[k][2];
            pipe_alone(&of, &alone[k]);
            memset(&w, 0, sizeof w);
            w.of = of; w.shape.ranks = shapes[k][0]; w.shape.chunks = shapes[k][1]; w.shape.micro_batches = shapes[k][2]; w.rule = rules[at++ % 3]; w.tied_slots = mode != 3 ? 0 : shapes[k][1] > 1 ? 8 : 1 + (size_t)(n & 1); w.fails = SIZE_MAX; w.evaluates = at & 1;
            pipe_threads(&w);
            for (r = 0; r < w.shape.ranks; ++r) CHECK_AT(w.status[r] == MEMOPT_OK, (size_t)n * 10 + k);
            w.result.elements = alone[k].elements;
            CHECK_AT(!memcmp(w.result.losses, alone[k].losses, sizeof alone[k].losses), (size_t)n * 10 + k);
            CHECK_AT(!w.evaluates || !memcmp(w.result.held, alone[k].held, sizeof alone[k].held), (size_t)n * 10 + k);
            CHECK_AT(!memcmp(w.result.gradients, alone[k].gradients, sizeof alone[k].gradients), (size_t)n * 10 + k);
            CHECK_AT(!memcmp(w.result.weights, alone[k].weights, sizeof alone[k].weights), (size_t)n * 10 + k);
        }
    }
}
/* A rank that fails, or sleeps past the deadline: everybody ends, and is told who. */
static void pipeline_failures(void) {
    static pipe_world w; size_t ranks, at, r;
    for (ranks = 2; ranks <= 4; ranks += 2)
        for (at = 1; at <= 2 * 2 * ranks + 3; at += 3)
            for (r = 0; r < ranks; ++r) {
                size_t i;
                if (test_is_passed_over()) continue;
                memset(&w, 0, sizeof w);
                w.of.tied = 1; w.of.adds = 1; w.of.micro_batches = w.shape.micro_batches = ranks; w.shape.ranks = ranks; w.rule = MEMOPT_SCHEDULE_ALL; w.fails = r; w.fails_at = at; w.evaluates = 1;
                if (r % 2) w.shape.chunks = 2;
                pipe_threads(&w);
                for (i = 0; i < ranks; ++i) {
                    CHECK_AT(w.status[i] == (i == r ? MEMOPT_ERR_DEVICE : MEMOPT_ERR_STATE), (at * 10 + r) * 10 + i);
                    if (i == r) CHECK_AT(w.why[i].status == MEMOPT_ERR_DEVICE && w.why[i].place && !strcmp(w.why[i].place, "micro-batch"), at * 10 + i);
                    else CHECK_AT(w.why[i].status == MEMOPT_ERR_STATE && w.why[i].place && !strcmp(w.why[i].place, "rank") && w.why[i].index == r && !strcmp(w.why[i].reason, "has given up"), (at * 10 + r) * 10 + i);
                }
            }
    memset(&w, 0, sizeof w);
    w.of.adds = 1; w.of.micro_batches = w.shape.micro_batches = 4; w.shape.ranks = 4; w.fails = 2; w.fails_at = 4; w.stuck = 1;
    pipe_threads(&w);
    for (r = 0; r < 4; ++r) CHECK_AT(w.status[r] != MEMOPT_OK && w.why[r].reason, r);
    for (r = 0; r < 4; ++r) if (r != 2) CHECK_AT(w.why[r].place && w.why[r].index == 2, r);
    memset(&w, 0, sizeof w);
    w.of.adds = 1; w.of.micro_batches = w.shape.micro_batches = 4; w.shape.ranks = 3; w.fails = SIZE_MAX; w.other_plan = 1;
    pipe_threads(&w);
    for (r = 0; r < 3; ++r) CHECK_AT(w.status[r] == MEMOPT_ERR_STATE && test_error_says(w.why[r], MEMOPT_ERR_STATE, "pipeline: has another plan than rank 0 at rank 1"), r);
    memset(&w, 0, sizeof w); /* `accumulate` cannot go with tied tokens */
    w.of.tied = 1; w.of.micro_batches = w.shape.micro_batches = 2; w.shape.ranks = 2; w.fails = SIZE_MAX;
    pipe_threads(&w);
    CHECK(w.status[0] && w.status[1]);
    CHECK(test_error_says(w.why[1], MEMOPT_ERR_ARGUMENT, "pipeline: accumulate is set, and tokens are tied: add up micro-batches by done_fn"));
}
/* Bad input to pipeline_open() and pipeline_step(): a reason, nothing begun. */
static void pipeline_bad_openings(void) {
    static pipe_world w; static pipe_chain c; pipeline_stage stages[16]; pipeline_bytes bytes[4]; pipeline_links links; pipeline *p = NULL; unsigned char *block, *memory; memopt_ranks *ranks = NULL; memopt_ranks_desc rd; memopt_comm *one, *other; const void *inputs[3] = { &w, &w, NULL }; transformer t; transformer_part part; test_faults f; memopt_host host = test_host(&f); size_t n;
    pipe_chain_make(&c, 5, 6);
    c.d.shape.ranks = 1; c.d.shape.micro_batches = 3; memset(&links, 0, sizeof links); memset(&rd, 0, sizeof rd);
    CHECK(pipeline_plan(&c.d, stages, bytes) == MEMOPT_OK);
    block = (unsigned char *)malloc(bytes[0].pipeline + 128); memory = block + (64 - (uintptr_t)block % 64);
    CHECK(pipeline_open(NULL, stages, 0, &links, NULL, memory, bytes[0].pipeline, &p) == MEMOPT_ERR_ARGUMENT);
    CHECK(pipeline_open(&c.d, NULL, 0, &links, NULL, memory, bytes[0].pipeline, &p) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: stages is NULL"));
    CHECK(pipeline_open(&c.d, stages, 0, NULL, NULL, memory, bytes[0].pipeline, &p) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: links is NULL"));
    CHECK(pipeline_open(&c.d, stages, 0, &links, NULL, NULL, bytes[0].pipeline, &p) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: memory is NULL"));
    CHECK(pipeline_open(&c.d, stages, 0, &links, NULL, memory, bytes[0].pipeline, NULL) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: out is NULL"));
    CHECK(pipeline_open(&c.d, stages, 1, &links, NULL, memory, bytes[0].pipeline, &p) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: rank 1, below ranks 1"));
    CHECK(pipeline_open(&c.d, stages, 0, &links, NULL, memory + 8, bytes[0].pipeline, &p) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: memory is not aligned to 64"));
    CHECK(pipeline_open(&c.d, stages, 0, &links, NULL, memory, bytes[0].pipeline - 1, &p) == MEMOPT_ERR_BUFFER && test_error_says(c.why, MEMOPT_ERR_BUFFER, "pipeline: bytes are fewer than the plan tells"));
    memset(&f, 0, sizeof f); c.d.tape.host = &host;
    for (n = 1; n < 200; ++n) {
        f.fail_on = f.calls + n;
        if (pipeline_open(&c.d, stages, 0, &links, NULL, memory, bytes[0].pipeline, &p) == MEMOPT_OK) break;
        CHECK_AT(c.why.status == MEMOPT_ERR_MEMORY && !p && !f.live_blocks && !f.bad_frees, n);
    }
    CHECK(n > 2 && n < 200 && p && p->table_bytes == bytes[0].tables);
    CHECK(pipeline_step(p, NULL, 0) == MEMOPT_ERR_ARGUMENT && test_error_says(pipeline_error(p), MEMOPT_ERR_ARGUMENT, "pipeline: inputs is NULL"));
    CHECK(pipeline_step(p, inputs, 0) == MEMOPT_ERR_ARGUMENT && pipeline_step(NULL, inputs, 0) == MEMOPT_ERR_ARGUMENT && pipeline_share_tokens(NULL) == MEMOPT_ERR_ARGUMENT && pipeline_error(NULL).status == MEMOPT_ERR_ARGUMENT);
    inputs[2] = &w;
    CHECK(pipeline_step(p, inputs, 0) == MEMOPT_OK && pipeline_share_tokens(p) == MEMOPT_OK && pipeline_evaluate(NULL, inputs) == MEMOPT_ERR_ARGUMENT); /* it can be tried again */
    pipeline_close(p); pipeline_close(NULL); pipeline_abort(NULL);
    CHECK(!f.live_blocks && !f.bad_frees);
    free(block);
    c.d.tape.not_host_visible = 2; c.d.evaluates = 1; p = NULL; f.fail_on = 0; /* a device's memory: nobody touches it but layers */
    CHECK(pipeline_plan(&c.d, stages, bytes) == MEMOPT_OK);
    CHECK(pipeline_open(&c.d, stages, 0, &links, NULL, (void *)(uintptr_t)4096, bytes[0].pipeline, &p) == MEMOPT_OK);
    CHECK(pipeline_step(p, inputs, 0) == MEMOPT_OK && pipeline_evaluate(p, inputs) == MEMOPT_OK && pipeline_step(p, inputs, 3) == MEMOPT_OK);
    pipeline_close(p);
    CHECK(!f.live_blocks && !f.bad_frees);
    pipe_chain_make(&c, 5, 6);
    c.d.shape.ranks = 2; c.d.shape.micro_batches = 3; p = NULL;
    CHECK(pipeline_plan(&c.d, stages, bytes) == MEMOPT_OK);
    block = (unsigned char *)malloc(bytes[0].pipeline + 128); memory = block + (64 - (uintptr_t)block % 64);
    CHECK(pipeline_open(&c.d, stages, 0, &links, NULL, memory, bytes[0].pipeline, &p) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: links.out lacks a communicator of two ranks, of which the sender is rank 0"));
    rd.rank_count = 2;
    CHECK(memopt_ranks_create(&rd, &ranks) == MEMOPT_OK);
    one = pipe_comm(ranks, 0, 1); other = pipe_comm(ranks, 1, 1);
    links.out[PIPELINE_ACTIVATIONS] = one; links.in[PIPELINE_GRADIENTS] = one;
    CHECK(pipeline_open(&c.d, stages, 0, &links, NULL, memory, bytes[0].pipeline, &p) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: links.in lacks a communicator of two ranks, of which the sender is rank 0"));
    links.in[PIPELINE_GRADIENTS] = other; links.all = other;
    CHECK(pipeline_open(&c.d, stages, 0, &links, NULL, memory, bytes[0].pipeline, &p) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: links.all has other ranks than the pipeline"));
    links.all = NULL;
    memset(&t, 0, sizeof t); memset(&part, 0, sizeof part); t.width = 8; t.vocabulary = 9; c.d.tied = &t;
    CHECK(pipeline_plan(&c.d, stages, bytes) == MEMOPT_OK && bytes[1].tokens == 9 * 8 * 4 && bytes[0].tokens == 0 && stages[1].tied_slots == 1);
    links.in[PIPELINE_TIED] = other;
    CHECK(pipeline_open(&c.d, stages, 0, &links, &part, memory, bytes[0].pipeline, &p) == MEMOPT_ERR_ARGUMENT && test_error_says(c.why, MEMOPT_ERR_ARGUMENT, "pipeline: tokens is NULL, or has no array, where they are tied"));
    CHECK(!p);
    memopt_comm_destroy(one); memopt_comm_destroy(other); memopt_ranks_destroy(ranks); free(block);
}
#endif

static void test_pipeline(void) {
    RUN(pipeline_lists);
    RUN(pipeline_bubbles);
    RUN(pipeline_swaps);
    RUN(pipeline_wrong_lists);
    RUN(pipeline_wrong_shapes);
    RUN(pipeline_cuts);
    RUN(pipeline_bad_plans);
#if defined(MEMOPT_I_POOL)
    RUN(pipeline_has_the_bits_of_one);
    RUN(pipeline_failures);
    RUN(pipeline_bad_openings);
#endif
}

#ifndef TEST_COMBINED
int main(void) { test_pipeline(); return test_totals(); }
#endif
