/* The tape, held against its description alone. Two engines: one fills every byte it is given with a pattern and
   looks at every byte that it should find; the other is a small network, whose training without a tape, everything
   kept in blocks of malloc, is the reference to the last bit. */
#include "test.h"
#include "test_device.h"
#include "jump.h"
#include <float.h>

/* -- A callback that does not succeed -- */

enum { TAPE_FAILS, TAPE_JUMPS, TAPE_CANCELS }; /* what it does */
static int tape_leaves;
static memopt_tape *tape_leaves_tape; /* that it cancels, and then returns MEMOPT_OK */
static memopt_arena *tape_leaves_arena; /* not NULL: and takes 64 bytes of it then, which are the engine's */
static jump tape_landing;
static memopt_status tape_leave(memopt_status status) {
    if (tape_leaves == TAPE_JUMPS) jump_out(&tape_landing);
    if (tape_leaves != TAPE_CANCELS) return status;
    CHECK(memopt_tape_cancel(tape_leaves_tape) == MEMOPT_OK);
    if (tape_leaves_arena) CHECK(memopt_arena_push(tape_leaves_arena, 64, 0) != NULL);
    return MEMOPT_OK;
}

enum { TAPE_MOST = 24, TAPE_SKIPS = 4, TAPE_BASE = 128, TAPE_SLOTS = 300 };
#if defined(TEST_LONG)
enum { TAPE_TIMES = 20, TAPE_MANY = 100, TAPE_FEW = 100 };
#elif defined(MEMOPT_PTHREADS) || defined(TEST_COMBINED) /* slow sanitizers, slow machines: not as many steps */
enum { TAPE_TIMES = 1, TAPE_MANY = 10, TAPE_FEW = 10 };
#else
enum { TAPE_TIMES = 1, TAPE_MANY = 100, TAPE_FEW = 30 };
#endif

/* -- An arena with a neighbour, and a ledger that sees everything -- */

typedef struct tape_rig {
    memopt_source source; memopt_ledger *ledger; memopt_arena *arena; memopt_mark mark; /* behind the neighbour */
    unsigned char *memory, *neighbour; size_t capacity; int counting;
} tape_rig;
static void tape_rig_open(tape_rig *r, size_t capacity, int counting) {
    memopt_arena_desc d;
    memset(r, 0, sizeof *r);
    memset(&d, 0, sizeof d);
    r->counting = counting;
    r->capacity = capacity - capacity % 64 + 64;
    if (counting) CHECK(memopt_source_counting(&r->source) == MEMOPT_OK);
    else {
        r->memory = (unsigned char *)malloc(r->capacity + 64);
        if (!r->memory) { printf("no memory for the test\n"); exit(1); }
        memset(r->memory, 0x5A, r->capacity + 64);
        CHECK(memopt_source_block(r->memory, r->capacity + 63, &r->source) == MEMOPT_OK);
    }
    CHECK(memopt_ledger_create(NULL, &r->ledger) == MEMOPT_OK);
    d.source = &r->source; d.ledger = r->ledger; d.capacity = r->capacity;
    CHECK(memopt_arena_create(&d, &r->arena) == MEMOPT_OK);
    r->neighbour = (unsigned char *)memopt_arena_push(r->arena, TAPE_BASE, MEMOPT_TAG_PARAMETERS);
    if (!counting) memset(r->neighbour, 0x77, TAPE_BASE);
    r->mark = memopt_arena_mark(r->arena);
}
/* Nothing of a pass is left, and the neighbour has not been touched. */
static int tape_rig_is_clean(const tape_rig *r) {
    const memopt_usage total = memopt_ledger_total(r->ledger); int i;
    for (i = 0; i < TAPE_BASE && !r->counting; ++i) if (r->neighbour[i] != 0x77) return 0;
    return memopt_arena_get_stats(r->arena).used_low == TAPE_BASE && memopt_arena_get_stats(r->arena).used_top == 0
        && total.now == TAPE_BASE && total.blocks == 1 && memopt_arena_check(r->arena) == MEMOPT_OK;
}
static size_t tape_rig_peak(const tape_rig *r) { return memopt_arena_get_stats(r->arena).peak - TAPE_BASE; }
static void tape_rig_close(tape_rig *r) {
    CHECK(tape_rig_is_clean(r));
    memopt_arena_destroy(r->arena);
    memopt_ledger_destroy(r->ledger);
    free(r->memory);
}

/* -- The engine that watches -- */

enum { TAPE_VALUE, TAPE_SAVED, TAPE_GRADIENT, TAPE_SKIP, TAPE_SKIP_GRADIENT, TAPE_RUBBISH }; /* what bytes are */
static uint64_t tape_key(uint64_t pass, int what, size_t index) {
    uint64_t state = pass * 1000003 + (uint64_t)what * 1009 + index;
    return test_random(&state);
}
static uint64_t tape_word(uint64_t key, size_t i) {
    const uint64_t z = (key + i) * UINT64_C(0x9e3779b97f4a7c15);
    return z ^ z >> 29;
}
static void tape_fill(void *start, size_t bytes, uint64_t key) {
    unsigned char *p = (unsigned char *)start; size_t i; uint64_t word;
    for (i = 0; i < bytes; i += 8) { word = tape_word(key, i); memcpy(p + i, &word, bytes - i < 8 ? bytes - i : 8); }
}
static int tape_holds(const void *start, size_t bytes, uint64_t key) {
    const unsigned char *p = (const unsigned char *)start; size_t i; uint64_t word;
    if (bytes && !p) return 0;
    for (i = 0; i < bytes; i += 8) {
        word = tape_word(key, i);
        if (memcmp(p + i, &word, bytes - i < 8 ? bytes - i : 8)) return 0;
    }
    return 1;
}

typedef struct tape_watch tape_watch;
typedef struct tape_watched { tape_watch *watch; size_t segment; } tape_watched;
enum { TAPE_STREAMS = 4096 };
struct tape_watch {
    memopt_segment segment[TAPE_MOST]; memopt_skip skip[TAPE_SKIPS]; memopt_chain chain;
    memopt_tape_layer layer[TAPE_MOST]; tape_watched watched[TAPE_MOST];
    memopt_tape *tape; tape_rig *rig;
    unsigned char *input, *grad_output, *grad_input; size_t grad_output_bytes;
    unsigned char *shared; size_t shared_bytes; /* memory that others use between forward and backward */
    uint64_t pass;                      /* what the patterns are made of */
    uint64_t seed;                      /* that step->seed must be */
    size_t action;                      /* of the tape's actions, the next */
    size_t calls, fail_on, enter_on;    /* callbacks so far; the one that fails, the one that enters the tape again */
    size_t firsts[TAPE_MOST], forwards[TAPE_MOST], backwards[TAPE_MOST], failed; /* `failed`: the segment that did */
    int    whole[TAPE_MOST];            /* its output was written */
    int    ran[TAPE_MOST];              /* its forward has run and its backward has not: of one pass, also of a calibration's */
    uint64_t stream[TAPE_MOST];
    uint64_t streams[TAPE_STREAMS]; size_t stream_count; /* of all passes */
    int    dry, evaluating, measuring, on_loan; /* on_loan: the memory is not the rig's */
    int    verified;                    /* desc.verify: then no output goes unused */
    int    unsteady;                    /* 1 + a segment that gives other bits when it runs again */
    size_t aligned;                     /* what addresses must be multiples of; 0 = 64, any on loan */
    size_t unused;                      /* callbacks that were told output_unused */
    /* what callbacks take on that clock */
    test_faults *clock; uint64_t forward_time[TAPE_MOST], backward_time[TAPE_MOST];
};
static size_t tape_input_bytes(const memopt_chain *c, size_t s) {
    return s ? c->segments[s - 1].output_bytes : c->input_bytes; }
static size_t tape_grad_bytes(const memopt_chain *c, size_t v) {
    return v ? c->segments[v - 1].grad_bytes : c->input_grad_bytes; }
static size_t tape_extra_bytes(const memopt_chain *c, size_t s) {
    return c->segments[s].saved_bytes - c->segments[s].output_bytes; }
static size_t tape_plain_scratch(const memopt_chain *c, size_t s) {
    return c->segments[s].plain_scratch ? c->segments[s].plain_scratch : c->segments[s].forward_scratch;
}

static memopt_action tape_next(tape_watch *w) { /* the action that a callback belongs to */
    size_t count = 0; memopt_action none; const memopt_action *a = memopt_tape_actions(w->tape, &count);
    none.op = 99; none.index = 0;
    while (w->action < count && a[w->action].op > MEMOPT_ACTION_BACKWARD) ++w->action;
    return w->action < count ? a[w->action++] : none;
}
/* Does anybody but its own backward read the output of the segment whose forward was just taken from the actions? */
static int tape_output_is_read(const tape_watch *w, size_t s) {
    size_t count = 0, i; const memopt_action *a = memopt_tape_actions(w->tape, &count);
    if (s + 1 == w->chain.count) return 1;
    for (i = w->action; i < count; ++i) {
        if (a[i].op <= MEMOPT_ACTION_BACKWARD && a[i].index == s + 1) return 1;
        if (a[i].op == MEMOPT_ACTION_WRITE && a[i].index == s + 1) return 1;
        if (a[i].op == MEMOPT_ACTION_DROP && a[i].index == s + 1) return 0;
        if (a[i].op == MEMOPT_ACTION_BACKWARD && a[i].index == s) return 0;
    }
    return 0;
}
static int tape_is_inside(const tape_watch *w, const void *p, size_t bytes) { /* in the arena, behind the neighbour */
    size_t used, at;
    if (!bytes) return 1;
    if (!p || (uintptr_t)p % (w->aligned ? w->aligned : (size_t)(w->on_loan ? 1 : 64))) return 0;
    if (w->on_loan) return 1;
    used = memopt_arena_get_stats(w->rig->arena).used_low;
    at = (size_t)((uintptr_t)p - (uintptr_t)w->rig->arena->base);
    return at >= TAPE_BASE && at <= used && bytes <= used - at;
}
#define TAPE_CALLED_INSIDE "called from a callback of this tape, or after a jump out of one: memopt_tape_cancel() ends that pass"
/* Every function of the tape that would disturb a pass, called from a callback of it. */
static void tape_enter(tape_watch *w) {
    memopt_segment segment; memopt_tape_layer layer; char text[4096]; size_t length, count;
    const memopt_tape_stats before = memopt_tape_get_stats(w->tape);
    CHECK(memopt_tape_forward(w->tape, w->input) == MEMOPT_ERR_STATE);
    CHECK(memopt_tape_backward(w->tape, w->grad_output, w->grad_input) == MEMOPT_ERR_STATE);
    CHECK(memopt_tape_evaluate(w->tape, w->input, NULL) == MEMOPT_ERR_STATE);
    CHECK(memopt_tape_seek(w->tape, 7) == MEMOPT_ERR_STATE);
    CHECK(memopt_tape_reshape(w->tape, &w->chain) == MEMOPT_ERR_STATE);
    CHECK(memopt_tape_calibrate(w->tape, w->input, w->grad_output, w->grad_input, 1) == MEMOPT_ERR_STATE);
    CHECK(memopt_tape_set_memory(w->tape, w->input, (size_t)1 << 20) != MEMOPT_OK);
    CHECK(memopt_tape_nest(w->tape, &segment, &layer) != MEMOPT_OK);
    CHECK(test_error_says(memopt_tape_error(w->tape), MEMOPT_ERR_STATE, TAPE_CALLED_INSIDE));
    CHECK(memopt_tape_actions(w->tape, &count) != NULL && count == before.actions);
    (void)memopt_tape_output(w->tape); /* looking is allowed */
    (void)memopt_tape_report(w->tape, text, sizeof text, &length);
    CHECK(memopt_tape_get_stats(w->tape).passes == before.passes);
}
static int tape_watch_begin(tape_watch *w, const memopt_tape_call *step) { /* whether to fail */
    const size_t s = ((const tape_watched *)step->user)->segment;
    ++w->calls;
    if (w->calls == w->fail_on) { w->failed = s; return 1; }
    if (w->calls == w->enter_on) tape_enter(w);
    CHECK_AT(step->segment == s, s);
    CHECK_AT(step->evaluating == w->evaluating, s);
    CHECK_AT(step->calibrating == w->measuring, s);
    CHECK_AT(step->seed == w->seed, s);
    return 0;
}
static void tape_watch_streams(tape_watch *w, const memopt_tape_call *step, int first) {
    const size_t s = step->segment; size_t i;
    if (w->evaluating || w->measuring) return;
    if (!first) { CHECK_AT(w->stream[s] == step->stream, s); return; }
    w->stream[s] = step->stream;
    for (i = 0; i < w->stream_count; ++i) CHECK_AT(w->streams[i] != step->stream, s);
    if (w->stream_count < TAPE_STREAMS) w->streams[w->stream_count++] = step->stream;
}
/* slow at first, and once too good to be true */
static uint64_t tape_takes(const tape_watch *w, uint64_t time, size_t repeat) {
    return !w->measuring || repeat % 3 == 1 ? time : repeat % 3 ? time / 5 : 5 * time;
}
static int tape_skip_is_right(tape_watch *w, const memopt_tape_call *step, size_t s) { /* what its `to` reads */
    size_t k; int right = 1;
    for (k = 0; k < w->chain.skip_count; ++k) /* and of those that neither begin nor end here, nothing */
        if (w->skip[k].to != s && w->skip[k].from != s) right &= !step->skips[k] && !step->skip_grads[k];
    for (k = 0; k < w->chain.skip_count; ++k)
        if (w->skip[k].to == s) right &= tape_is_inside(w, step->skips[k], w->skip[k].bytes)
                                      && tape_holds(step->skips[k], w->skip[k].bytes, tape_key(w->pass, TAPE_SKIP, k));
    return right;
}
static memopt_status tape_watch_forward(const memopt_tape_call *step) {
    tape_watch *w = ((const tape_watched *)step->user)->watch;
    const size_t s = ((const tape_watched *)step->user)->segment;
    const memopt_segment *g = &w->segment[s]; const size_t extra = tape_extra_bytes(&w->chain, s);
    size_t scratch = tape_plain_scratch(&w->chain, s), k; memopt_action a; const int first = w->forwards[s] == 0;
    uint64_t key;
    if (tape_watch_begin(w, step)) return tape_leave(MEMOPT_ERR_DEVICE);
    if (w->clock) w->clock->now += tape_takes(w, w->forward_time[s], w->backwards[s]);
    if (!w->evaluating && !w->measuring) {
        a = tape_next(w);
        CHECK_AT(a.index == s && a.op <= MEMOPT_ACTION_FORWARD_SAVE, w->action);
        if (a.op == MEMOPT_ACTION_FORWARD_SAVE) scratch = g->forward_scratch;
        CHECK_AT((step->saved != NULL) == (a.op == MEMOPT_ACTION_FORWARD_SAVE && extra > 0), s);
        CHECK_AT(step->is_recompute == !first, s);
        if (g->output_bytes) CHECK_AT(step->output_unused == (!w->verified && !tape_output_is_read(w, s)), w->action);
        tape_watch_streams(w, step, first);
    } else if (w->measuring) {
        CHECK_AT(step->is_recompute == w->ran[s], s);
        if (g->forward_scratch < scratch || extra) scratch = step->saved || !extra ? g->forward_scratch : scratch;
        if (tape_plain_scratch(&w->chain, s) < scratch) scratch = tape_plain_scratch(&w->chain, s);
    } else CHECK_AT(!step->saved && !step->is_recompute && !step->output_unused, s);
    if (!step->is_recompute) ++w->firsts[s];
    w->ran[s] = 1;
    ++w->forwards[s];
    w->unused += step->output_unused != 0;
    CHECK_AT((step->scratch != NULL) == (scratch > 0), s);
    CHECK_AT(w->measuring ? step->scratch_bytes >= scratch : step->scratch_bytes == scratch, s);
    CHECK_AT(s || step->input == w->input, s);
    CHECK_AT(!step->grad_output && !step->grad_input, s);
    if (w->dry) return MEMOPT_OK;
    CHECK_AT(!g->output_bytes || step->output, s);
    CHECK_AT(tape_is_inside(w, step->scratch, scratch), s);
    CHECK_AT(w->evaluating || tape_is_inside(w, step->output, g->output_bytes), s);
    CHECK_AT(!step->saved || tape_is_inside(w, step->saved, extra), s);
    key = tape_key(w->pass, TAPE_VALUE, s);
    if (s) CHECK_AT(w->whole[s - 1], s);
    CHECK_AT(tape_holds(step->input, tape_input_bytes(&w->chain, s), key), s);
    CHECK_AT(tape_skip_is_right(w, step, s), s);
    tape_fill(step->scratch, scratch, tape_key(w->pass, TAPE_RUBBISH, s));
    tape_fill(step->output, g->output_bytes, tape_key(w->pass, step->output_unused ? TAPE_RUBBISH : TAPE_VALUE, s + 1));
    w->whole[s] = !step->output_unused;
    if (w->unsteady == (int)s + 1 && step->is_recompute && !step->output_unused
        && g->output_bytes) ((unsigned char *)step->output)[g->output_bytes - 1] ^= 1;
    if (step->saved) tape_fill(step->saved, extra, tape_key(w->pass, TAPE_SAVED, s));
    for (k = 0; k < w->chain.skip_count; ++k)
        if (w->skip[k].from == s && step->skips[k]) {
            CHECK_AT(tape_is_inside(w, step->skips[k], w->skip[k].bytes), s);
            tape_fill(step->skips[k], w->skip[k].bytes, tape_key(w->pass, TAPE_SKIP, k));
        }
    /* nothing that was written lies upon another */
    CHECK_AT(tape_holds(step->input, tape_input_bytes(&w->chain, s), key), s);
    CHECK_AT(tape_skip_is_right(w, step, s), s);
    CHECK_AT(tape_holds(step->scratch, scratch, tape_key(w->pass, TAPE_RUBBISH, s)), s);
    CHECK_AT(w->unsteady || tape_holds(step->output, g->output_bytes,
        tape_key(w->pass, step->output_unused ? TAPE_RUBBISH : TAPE_VALUE, s + 1)), s);
    CHECK_AT(!step->saved || tape_holds(step->saved, extra, tape_key(w->pass, TAPE_SAVED, s)), s);
    return MEMOPT_OK;
}
/* All that a backward reads; written: its gradient may be in the place of what it read. */
static int tape_backward_finds(tape_watch *w, const memopt_tape_call *step, size_t s, int written) {
    const size_t extra = tape_extra_bytes(&w->chain, s); size_t k; int right = tape_skip_is_right(w, step, s);
    right &= tape_holds(step->input, tape_input_bytes(&w->chain, s), tape_key(w->pass, TAPE_VALUE, s))
        && (!s || w->whole[s - 1]);
    right &= !w->whole[s] || w->unsteady
          || tape_holds(step->output, w->segment[s].output_bytes, tape_key(w->pass, TAPE_VALUE, s + 1));
    right &= tape_holds(step->saved, extra, tape_key(w->pass, TAPE_SAVED, s));
    if (!written || step->grad_input != step->grad_output)
        right &= tape_holds(step->grad_output, tape_grad_bytes(&w->chain, s + 1), tape_key(w->pass, TAPE_GRADIENT, s + 1));
    for (k = 0; k < w->chain.skip_count; ++k)
        if (w->skip[k].from == s) right &= tape_is_inside(w, step->skip_grads[k], w->skip[k].grad_bytes)
            && tape_holds(step->skip_grads[k], w->skip[k].grad_bytes, tape_key(w->pass, TAPE_SKIP_GRADIENT, k));
    return right;
}
static memopt_status tape_watch_backward(const memopt_tape_call *step) {
    tape_watch *w = ((const tape_watched *)step->user)->watch;
    const size_t s = ((const tape_watched *)step->user)->segment;
    const size_t scratch = w->segment[s].backward_scratch, grad = tape_grad_bytes(&w->chain, s); size_t k;
    memopt_action a;
    if (tape_watch_begin(w, step)) return tape_leave(MEMOPT_ERR_DEVICE);
    if (w->clock) w->clock->now += tape_takes(w, w->backward_time[s], w->backwards[s]);
    ++w->backwards[s];
    w->ran[s] = 0;
    if (!w->measuring) {
        a = tape_next(w);
        CHECK_AT(a.index == s && a.op == MEMOPT_ACTION_BACKWARD, w->action);
        CHECK_AT(w->forwards[s] > 0, s);
        tape_watch_streams(w, step, 0);
    }
    CHECK_AT(!w->evaluating, s);
    CHECK_AT(step->scratch_bytes == scratch, s);
    CHECK_AT((step->scratch != NULL) == (scratch > 0) && (step->saved != NULL) == (tape_extra_bytes(&w->chain, s) > 0),
        s);
    CHECK_AT((step->grad_output != NULL) == (tape_grad_bytes(&w->chain, s + 1) > 0)
        && (step->grad_input != NULL) == (grad > 0), s);
    CHECK_AT(s || step->input == w->input, s);
    CHECK_AT(s || step->grad_input == (w->chain.input_grad_bytes ? w->grad_input : NULL), s);
    CHECK_AT(s + 1 < w->chain.count || step->grad_output == (w->grad_output_bytes ? w->grad_output : NULL), s);
    CHECK_AT((step->grad_input && step->grad_input == step->grad_output) == (s > 0 && s + 1 < w->chain.count && grad
        && w->segment[s].grad_in_place && grad == tape_grad_bytes(&w->chain, s + 1)), s);
    if (w->dry) return MEMOPT_OK;
    CHECK_AT(tape_is_inside(w, step->scratch, scratch) && (!s || tape_is_inside(w, step->grad_input, grad)), s);
    CHECK_AT(tape_is_inside(w, step->saved, tape_extra_bytes(&w->chain, s)), s);
    CHECK_AT(tape_backward_finds(w, step, s, 0), s);
    tape_fill(step->scratch, scratch, tape_key(w->pass, TAPE_RUBBISH, s));
    tape_fill(step->grad_input, grad, tape_key(w->pass, TAPE_GRADIENT, s));
    for (k = 0; k < w->chain.skip_count; ++k)
        if (w->skip[k].to == s && w->skip[k].grad_bytes) {
            CHECK_AT(tape_is_inside(w, step->skip_grads[k], w->skip[k].grad_bytes), s);
            if (step->skip_grads[k]) tape_fill(step->skip_grads[k], w->skip[k].grad_bytes,
                tape_key(w->pass, TAPE_SKIP_GRADIENT, k));
        }
    CHECK_AT(tape_backward_finds(w, step, s, 1), s);
    CHECK_AT(tape_holds(step->scratch, scratch, tape_key(w->pass, TAPE_RUBBISH, s)), s);
    CHECK_AT(tape_holds(step->grad_input, grad, tape_key(w->pass, TAPE_GRADIENT, s)), s);
    tape_fill(step->output, w->segment[s].output_bytes, tape_key(w->pass, TAPE_RUBBISH, s)); /* used up, both: nobody reads them after this */
    if (s + 1 < w->chain.count && step->grad_input != step->grad_output)
        tape_fill(step->grad_output, tape_grad_bytes(&w->chain, s + 1), tape_key(w->pass, TAPE_RUBBISH, s));
    if (s + 1 < w->chain.count) /* and so is this */
        tape_fill(step->output, w->segment[s].output_bytes, tape_key(w->pass, TAPE_RUBBISH, s));
    return MEMOPT_OK;
}
static void tape_watch_layers(tape_watch *w) {
    size_t s;
    for (s = 0; s < w->chain.count; ++s) {
        w->watched[s].watch = w; w->watched[s].segment = s;
        w->layer[s].forward_fn = tape_watch_forward; w->layer[s].backward_fn = tape_watch_backward;
        w->layer[s].user = &w->watched[s];
    }
    w->chain.segments = w->segment;
    w->chain.skips = w->chain.skip_count ? w->skip : NULL;
}
static size_t tape_size(uint64_t *seed, size_t most) { /* nothing now and then, multiples of 64, and anything */
    const size_t kind = test_below(seed, 12);
    return kind == 0 ? 0 : kind < 3 ? 64 * (1 + test_below(seed, most / 64)) : 1 + test_below(seed, most);
}
/* A chain of a seed. wide: some segments are many times larger than others. */
static void tape_watch_make(tape_watch *w, uint64_t seed, size_t count, size_t skips) {
    size_t s, most;
    memset(w, 0, sizeof *w);
    w->seed = 40 + seed;
    w->chain.count = count; w->chain.skip_count = skips;
    for (s = 0; s < count; ++s) {
        memopt_segment *g = &w->segment[s];
        most = test_below(&seed, 4) ? 400 : 3000;
        g->output_bytes = tape_size(&seed, most);
        g->saved_bytes = g->output_bytes + tape_size(&seed, 2 * most);
        g->grad_bytes = tape_size(&seed, most);
        g->forward_scratch = tape_size(&seed, most);
        g->backward_scratch = tape_size(&seed, most);
        g->plain_scratch = test_below(&seed, 2) ? 0 : tape_size(&seed, most / 2);
        g->forward_cost = (double)test_below(&seed, 8); g->backward_cost = (double)test_below(&seed, 8);
        g->grad_in_place = g->saved_bytes % 2 == 1;
        if (s && g->saved_bytes % 3 == 1) g->grad_bytes = w->segment[s - 1].grad_bytes;
    }
    for (s = 0; s < skips; ++s) {
        w->skip[s].from = test_below(&seed, count - 1);
        w->skip[s].to = w->skip[s].from + 1 + test_below(&seed, count - 1 - w->skip[s].from);
        w->skip[s].bytes = 1 + test_below(&seed, 1000); w->skip[s].grad_bytes = tape_size(&seed, 1000);
    }
    w->chain.input_bytes = 1 + test_below(&seed, 1000);
    w->chain.input_grad_bytes = test_below(&seed, 2) ? w->chain.input_bytes : 0;
    if (test_below(&seed, 2)) w->segment[count - 1].grad_bytes = 0;
    tape_watch_layers(w);
}
static void tape_watch_buffers(tape_watch *w) {
    w->grad_output_bytes = w->segment[w->chain.count - 1].grad_bytes;
    w->input = (unsigned char *)malloc(w->chain.input_bytes + 1);
    w->grad_output = w->grad_output_bytes ? (unsigned char *)malloc(w->grad_output_bytes) : NULL;
    w->grad_input = w->chain.input_grad_bytes ? (unsigned char *)malloc(w->chain.input_grad_bytes) : NULL;
    if (!w->input || !w->grad_output != !w->grad_output_bytes || !w->grad_input != !w->chain.input_grad_bytes) {
        printf("no memory for the test\n");
        exit(1);
    }
}
static void tape_watch_close(tape_watch *w) { free(w->input); free(w->grad_output); free(w->grad_input); }
static size_t tape_watch_room(const tape_watch *w) { /* more than any schedule can need */
    size_t s, bytes = 4096;
    for (s = 0; s < w->chain.count; ++s) {
        const memopt_segment *g = &w->segment[s];
        bytes += g->output_bytes + g->saved_bytes + g->grad_bytes + g->forward_scratch + g->backward_scratch + g->plain_scratch + 512;
    }
    for (s = 0; s < w->chain.skip_count; ++s) bytes += w->skip[s].bytes + w->skip[s].grad_bytes + 256;
    return 2 * bytes;
}
static memopt_tape_desc tape_watch_desc(tape_watch *w, const tape_rig *r) {
    memopt_tape_desc d;
    w->tape = NULL;
    memset(&d, 0, sizeof d);
    d.chain = w->chain; d.layers = w->layer; d.slots = TAPE_SLOTS; d.seed = w->seed; d.arena = r ? r->arena : NULL;
    return d;
}
static void tape_watch_feed(tape_watch *w) {
    memset(w->firsts, 0, sizeof w->firsts); memset(w->forwards, 0, sizeof w->forwards);
    memset(w->backwards, 0, sizeof w->backwards);
    memset(w->whole, 0, sizeof w->whole); memset(w->ran, 0, sizeof w->ran);
    w->action = 0;
    tape_fill(w->input, w->chain.input_bytes, tape_key(w->pass, TAPE_VALUE, 0));
    tape_fill(w->grad_output, w->grad_output_bytes, tape_key(w->pass, TAPE_GRADIENT, w->chain.count));
    tape_fill(w->grad_input, w->chain.input_grad_bytes, 0);
}
/* One pass with all that can be seen of it. `pass` is the next then, also after a failure. */
static memopt_status tape_watch_pass(tape_watch *w) {
    const size_t n = w->chain.count; size_t s, count; memopt_status status;
    const memopt_tape_stats before = memopt_tape_get_stats(w->tape);
    tape_watch_feed(w);
    CHECK(!memopt_tape_output(w->tape));
    status = memopt_tape_forward(w->tape, w->input);
    if (!status) {
        CHECK_AT(w->on_loan || memopt_arena_get_stats(w->rig->arena).used_low == TAPE_BASE + before.peak
            || !before.peak, w->pass);
        CHECK_AT(w->dry || tape_holds(memopt_tape_output(w->tape), w->segment[n - 1].output_bytes,
            tape_key(w->pass, TAPE_VALUE, n)), w->pass);
        if (w->shared) memset(w->shared, 0x5B, w->shared_bytes); /* another tape's pass */
        status = memopt_tape_backward(w->tape, w->grad_output_bytes ? w->grad_output : NULL,
            w->chain.input_grad_bytes ? w->grad_input : NULL);
    }
    CHECK(!memopt_tape_output(w->tape));
    CHECK_AT(w->on_loan || tape_rig_is_clean(w->rig), w->pass);
    CHECK_AT(memopt_tape_get_stats(w->tape).passes == before.passes + (status == MEMOPT_OK), w->pass);
    CHECK_AT(tape_holds(w->input, w->chain.input_bytes, tape_key(w->pass, TAPE_VALUE, 0)), w->pass);
    if (!status) {
        for (s = 0; s < n; ++s) CHECK_AT(w->firsts[s] == 1 && w->backwards[s] == 1 && w->forwards[s] >= 1, s);
        (void)memopt_tape_actions(w->tape, &count);
        while (w->action < count && memopt_tape_actions(w->tape, NULL)[w->action].op > MEMOPT_ACTION_BACKWARD) ++w->action;
        CHECK_AT(w->action == count, w->action);
        CHECK_AT(w->dry || tape_holds(w->grad_input, w->chain.input_grad_bytes, tape_key(w->pass, TAPE_GRADIENT, 0)),
            w->pass);
        CHECK_AT(w->on_loan || tape_rig_peak(w->rig) == before.peak, w->pass);
        CHECK_AT(w->on_loan || memopt_ledger_usage(w->rig->ledger, MEMOPT_TAG_ACTIVATIONS).peak == before.peak,
            w->pass);
    }
    ++w->pass;
    return status;
}
/* All schedules of a chain, by number: the textbook's, budgets from the least to all under each rule, and overheads. */
enum { TAPE_POINTS = 6, TAPE_VARIANTS = 6 + 3 * TAPE_POINTS + 3 };
static void tape_variant(memopt_tape_desc *d, size_t number) {
    static const memopt_schedule_rule textbook[6] = { MEMOPT_SCHEDULE_ALL, MEMOPT_SCHEDULE_NONE, MEMOPT_SCHEDULE_EVERY, MEMOPT_SCHEDULE_EVERY,
        MEMOPT_SCHEDULE_EVERY, MEMOPT_SCHEDULE_SQRT };
    static const double overhead[3] = { 0, 0.33, 10 }; size_t least = 0, all; memopt_tape *tape = NULL;
    memopt_tape_desc whole = *d;
    d->budget = 0; d->overhead = 0;
    if (number < 6) { d->rule = textbook[number]; d->every = number < 5 ? number - 1 : 0; return; }
    number -= 6;
    if (number >= 3 * TAPE_POINTS) { d->rule = MEMOPT_SCHEDULE_EXTENDED; d->overhead = overhead[number - 3 * TAPE_POINTS];
    return; }
    whole.rule = MEMOPT_SCHEDULE_ALL; whole.arena = NULL;
    CHECK(memopt_tape_create(&whole, &tape) == MEMOPT_OK);
    all = memopt_tape_get_stats(tape).peak;
    memopt_tape_destroy(tape);
    d->rule = (memopt_schedule_rule)(MEMOPT_SCHEDULE_EXTENDED + number / TAPE_POINTS);
    CHECK(memopt_tape_min_budget(d, &least) == MEMOPT_OK);
    if (all < least) all = least;
    d->budget = least + (all - least) / (TAPE_POINTS - 1) * (number % TAPE_POINTS);
    if (!d->budget) d->budget = 1;
}

/* -- Every byte of every schedule -- */

/* Bytes held when the forward has ended: values, saved parts, and skips that have been made and are still needed. */
static size_t tape_kept(const tape_watch *w) {
    size_t count = 0, i, v, k, bytes = 0; const memopt_action *a = memopt_tape_actions(w->tape, &count);
    int value[TAPE_MOST + 1], saved[TAPE_MOST]; const memopt_chain *c = &w->chain;
    memset(value, 0, sizeof value); memset(saved, 0, sizeof saved);
    value[0] = 1;
    for (i = 0; i < count; ++i) {
        if (a[i].op <= MEMOPT_ACTION_FORWARD_SAVE) value[a[i].index + 1] = 1;
        if (a[i].op == MEMOPT_ACTION_FORWARD_SAVE) saved[a[i].index] = 1;
        if (a[i].op == MEMOPT_ACTION_DROP) value[a[i].index] = 0;
        if (a[i].op <= MEMOPT_ACTION_FORWARD_SAVE && a[i].index + (size_t)1 == c->count) break;
    }
    for (v = 1; v <= c->count; ++v) bytes += value[v] ? c->segments[v - 1].output_bytes : 0;
    for (v = 0; v < c->count; ++v) bytes += saved[v] ? tape_extra_bytes(c, v) : 0;
    for (k = 0; k < c->skip_count; ++k) {
        int needed = 0;
        for (v = c->skips[k].from + 1; v <= c->skips[k].to; ++v) needed |= value[v];
        bytes += needed ? c->skips[k].bytes : 0;
    }
    return bytes;
}
static memopt_schedule_result tape_simulated(const tape_watch *w) { /* of a chain whose ends take nothing */
    memopt_chain c = w->chain; memopt_segment segment[TAPE_MOST]; memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 }; size_t count = 0;
    const memopt_action *a = memopt_tape_actions(w->tape, &count);
    memcpy(segment, w->segment, sizeof segment);
    c.segments = segment; c.input_bytes = 0; c.input_grad_bytes = 0; segment[c.count - 1].grad_bytes = 0;
    memset(&r, 0, sizeof r);
    CHECK(memopt_schedule_simulate(&c, NULL, a, count, NULL, &r) == MEMOPT_OK && r.actions == count);
    return r;
}
/* What the tape says of its schedule is what simulate says; rounding each buffer up to 64 bytes is all that may differ. */
static void tape_agrees(const tape_watch *w, uint64_t at) {
    const memopt_schedule_result r = tape_simulated(w); const memopt_tape_stats s = memopt_tape_get_stats(w->tape);
    const memopt_chain c = w->chain;
    CHECK_AT(s.actions == r.actions && s.forwards == r.forwards && r.forwards >= c.count, at);
    CHECK_AT(fabs(s.cost - r.cost) <= 1e-9 * r.cost && fabs(s.extra - r.extra) <= 1e-9 * r.cost, at);
    CHECK_AT(s.live_peak >= r.peak && s.live_peak <= r.peak + 63 * 8 * c.count && s.peak >= s.live_peak, at);
    CHECK_AT(s.kept <= s.peak && s.kept >= tape_kept(w), at);
}
static void tape_evaluated(tape_watch *w, const memopt_tape_desc *like, uint64_t at) { /* on an arena of its own */
    tape_rig r; tape_rig *const before = w->rig; memopt_tape_desc d = *like;
    const size_t n = w->chain.count, bytes = w->segment[n - 1].output_bytes;
    unsigned char *out = (unsigned char *)malloc(bytes + 1); memopt_tape_stats s, t; size_t i, k;
    memopt_tape *const tape = w->tape;
    tape_rig_open(&r, tape_watch_room(w), 0);
    w->rig = &r; w->evaluating = 1;
    d.arena = r.arena;
    CHECK(memopt_tape_create(&d, &w->tape) == MEMOPT_OK);
    s = memopt_tape_get_stats(w->tape);
    for (i = 0; i < 2; ++i) {
        tape_watch_feed(w);
        CHECK_AT(memopt_tape_evaluate(w->tape, w->input, i ? NULL : out) == MEMOPT_OK, at);
        if (!i) CHECK_AT(tape_holds(out, bytes, tape_key(w->pass, TAPE_VALUE, n)), at);
        for (k = 0; k < n; ++k) CHECK_AT(w->forwards[k] == 1, at);
        CHECK_AT(tape_rig_is_clean(&r) && tape_rig_peak(&r) == s.evaluate_peak, at);
        ++w->pass;
    }
    t = memopt_tape_get_stats(w->tape);
    CHECK_AT(t.passes == 0 && t.peak == s.peak && t.evaluate_peak == s.evaluate_peak && !memopt_tape_output(w->tape),
        at);
    memopt_tape_destroy(w->tape);
    tape_rig_close(&r);
    free(out);
    w->rig = before; w->evaluating = 0; w->tape = tape;
}
static void tape_patterns(void) {
    uint64_t seed; size_t i, unused = 0, recomputed = 0;
    for (seed = 1; seed <= 24 * TAPE_TIMES; ++seed) {
        tape_watch w; const size_t count = seed < 4 ? (size_t)seed : 2 + (size_t)(seed * 7 % 11);
        tape_watch_make(&w, seed, count, count > 1 ? (size_t)seed % 3 : 0);
        tape_watch_buffers(&w);
        for (i = 0; i < TAPE_VARIANTS; ++i) {
            tape_rig r; memopt_tape_desc d; memopt_tape_stats s;
            tape_rig_open(&r, tape_watch_room(&w), 0);
            w.rig = &r;
            d = tape_watch_desc(&w, &r);
            tape_variant(&d, i);
            w.tape = NULL; w.stream_count = 0;
            CHECK_AT(memopt_tape_create(&d, &w.tape) == MEMOPT_OK, seed * 100 + i);
            if (w.tape) {
                s = memopt_tape_get_stats(w.tape);
                CHECK_AT(s.solves == 1 && s.passes == 0 && (!d.budget || s.peak <= d.budget), seed * 100 + i);
                tape_agrees(&w, seed * 100 + i);
                CHECK_AT(tape_watch_pass(&w) == MEMOPT_OK && tape_watch_pass(&w) == MEMOPT_OK, seed * 100 + i);
                recomputed += s.forwards > count;
                if (i % 3 == 0) tape_evaluated(&w, &d, seed * 100 + i);
            }
            memopt_tape_destroy(w.tape);
            tape_rig_close(&r);
        }
        unused += w.unused;
        tape_watch_close(&w);
    }
    CHECK(recomputed > 300 && unused > 1000); /* the schedules were worth looking at */
}
static void tape_dry(void) { /* on addresses that nobody may touch */
    uint64_t seed; size_t i;
    for (seed = 1; seed <= 4 * TAPE_TIMES; ++seed) {
        tape_watch w;
        tape_watch_make(&w, seed, 8, 2);
        tape_watch_buffers(&w);
        for (i = 0; i < TAPE_VARIANTS; ++i) {
            tape_rig r; memopt_tape_desc d; memopt_tape_stats s;
            tape_rig_open(&r, tape_watch_room(&w), 1);
            w.rig = &r; w.dry = 1; w.stream_count = 0;
            d = tape_watch_desc(&w, &r);
            tape_variant(&d, i);
            CHECK(memopt_tape_create(&d, &w.tape) == MEMOPT_OK);
            s = memopt_tape_get_stats(w.tape);
            CHECK_AT(tape_watch_pass(&w) == MEMOPT_OK && tape_rig_peak(&r) == s.peak, seed * 100 + i);
            memopt_tape_destroy(w.tape);
            tape_rig_close(&r);
        }
        tape_watch_close(&w);
    }
}
/* Budgets: none below the least, every one above it, never exceeded, and more never costs more. */
static void tape_budgets(void) {
    static const memopt_schedule_rule rules[3] = { MEMOPT_SCHEDULE_EXTENDED, MEMOPT_SCHEDULE_ROTOR, MEMOPT_SCHEDULE_REVOLVE };
    uint64_t seed; size_t i, k;
    for (seed = 1; seed <= 4 * TAPE_TIMES; ++seed)
        for (k = 0; k < 3; ++k) {
            tape_watch w; memopt_tape_desc d; memopt_tape *tape = NULL, *const none = (memopt_tape *)&w;
            size_t least = 0, most; double cost = DBL_MAX;
            tape_watch_make(&w, 70 + seed, 9, (size_t)seed % 3);
            d = tape_watch_desc(&w, NULL);
            d.rule = MEMOPT_SCHEDULE_ALL;
            CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
            most = memopt_tape_get_stats(tape).peak;
            memopt_tape_destroy(tape);
            d.rule = rules[k];
            d.budget = 12345; /* ignored there */
            CHECK(memopt_tape_min_budget(&d, &least) == MEMOPT_OK && least > 0 && least <= most);
            for (i = 1; i <= 64; i *= 4) {
                d.budget = least - i;
                tape = none;
                CHECK_AT(least <= i || (memopt_tape_create(&d, &tape) == MEMOPT_ERR_MEMORY && tape == none), seed);
            }
            for (i = 0; i <= 48; ++i) {
                memopt_tape_stats s;
                d.budget = least + (most - least) * i / 40;
                tape = NULL;
                CHECK_AT(memopt_tape_create(&d, &tape) == MEMOPT_OK, d.budget);
                s = memopt_tape_get_stats(tape);
                CHECK_AT(s.peak <= d.budget && s.peak >= s.live_peak, d.budget);
                CHECK_AT(s.cost <= cost * (1 + 1e-12), d.budget);
                cost = s.cost;
                CHECK_AT(i || s.peak == least, d.budget);
                memopt_tape_destroy(tape);
            }
            CHECK_AT(cost > 0 && memopt_tape_get_stats(NULL).cost == 0, seed);
        }
}
static void tape_frontier(void) { /* each point of the frontier, where placing allows it, is what a tape gets */
    uint64_t seed; size_t i, met = 0, all = 0;
    for (seed = 1; seed <= 2 * TAPE_TIMES; ++seed) {
        tape_watch w; memopt_schedule_desc sd; const memopt_schedule *schedule = NULL; void *memory;
        size_t bytes = 0, count = 0; memopt_schedule_point *point;
        memopt_source source; memopt_segment segment[TAPE_MOST]; unsigned char *block; memopt_tape_desc d; size_t least;
        tape_watch_make(&w, 30 + seed, 10, 1);
        for (i = 0; i < 10; ++i) { /* multiples of 64, so that no rounding stands between the two */
            memopt_segment *g = &w.segment[i];
            g->output_bytes = (g->output_bytes + 63) / 64 * 64;
            g->saved_bytes = (g->saved_bytes + 64) / 64 * 64 + g->output_bytes;
            g->grad_bytes = (g->grad_bytes + 63) / 64 * 64; g->forward_scratch = (g->forward_scratch + 63) / 64 * 64;
            g->backward_scratch = (g->backward_scratch + 63) / 64 * 64; g->plain_scratch = 0;
        }
        w.skip[0].bytes = 640; w.skip[0].grad_bytes = 320;
        memset(&sd, 0, sizeof sd);
        memcpy(segment, w.segment, sizeof segment);
        segment[9].grad_bytes = 0;
        sd.chain = w.chain; sd.chain.segments = segment; sd.chain.input_bytes = 0; sd.chain.input_grad_bytes = 0;
        sd.slots = TAPE_SLOTS;
        CHECK(memopt_schedule_bytes(&sd, &bytes) == MEMOPT_OK);
        block = (unsigned char *)malloc(bytes + 64);
        memory = block + (64 - (uintptr_t)block % 64);
        CHECK(memopt_schedule_solve(&sd, memory, bytes, &schedule) == MEMOPT_OK);
        CHECK(memopt_schedule_frontier(schedule, NULL, 0, &count) == MEMOPT_ERR_BUFFER && count > 1);
        point = (memopt_schedule_point *)malloc(count * sizeof *point);
        CHECK(memopt_schedule_frontier(schedule, point, count, &count) == MEMOPT_OK);
        CHECK(memopt_source_counting(&source) == MEMOPT_OK);
        tape_watch_buffers(&w);
        d = tape_watch_desc(&w, NULL);
        CHECK(memopt_tape_min_budget(&d, &least) == MEMOPT_OK && least >= point[0].peak);
        for (i = 0; i < count; ++i) {
            tape_rig r; memopt_tape_stats s;
            if (point[i].peak < least) continue;
            tape_rig_open(&r, tape_watch_room(&w), 0);
            w.rig = &r; w.tape = NULL; w.stream_count = 0;
            d = tape_watch_desc(&w, &r);
            d.budget = point[i].peak;
            CHECK_AT(memopt_tape_create(&d, &w.tape) == MEMOPT_OK, i);
            s = memopt_tape_get_stats(w.tape);
            CHECK_AT(s.peak <= d.budget && s.cost >= point[i].cost * (1 - 1e-12), i);
            tape_agrees(&w, i);
            CHECK_AT(s.kept == tape_kept(&w) && s.live_peak == tape_simulated(&w).peak, i);
            ++all; met += s.cost <= point[i].cost * (1 + 1e-12);
            CHECK_AT(w.tape && tape_watch_pass(&w) == MEMOPT_OK, i);
            memopt_tape_destroy(w.tape);
            tape_rig_close(&r);
        }
        free(point);
        free(block);
        tape_watch_close(&w);
    }
    CHECK(met * 10 >= all * 9 && all >= 8); /* placing rarely costs anything */
}

/* -- Time steps whose states lie outside -- */

enum { TAPE_TIME = 24, TAPE_UNITS = 16 };
typedef struct tape_time { float state[TAPE_TIME + 1][TAPE_UNITS], x[TAPE_TIME][TAPE_UNITS], grad[TAPE_UNITS]; size_t forwards; } tape_time;
static memopt_status tape_time_step(const memopt_tape_call *call) {
    tape_time *const n = (tape_time *)call->user; const size_t t = call->segment; size_t i;
    float *const gate = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, TAPE_UNITS * sizeof(float));
    if (call->describing) return MEMOPT_OK;
    for (i = 0; i < TAPE_UNITS && call->is_backward; ++i) n->grad[i] = memopt_i_times(n->grad[i], gate[i]) + 0.125f;
    if (call->is_backward) return MEMOPT_OK;
    ++n->forwards;
    for (i = 0; i < TAPE_UNITS; ++i) {
        gate[i] = 1 / (1 + memopt_i_times(n->state[t][i], n->state[t][i]));
        n->state[t + 1][i] = memopt_i_times(gate[i], n->state[t][i]) + n->x[t][i];
    }
    return MEMOPT_OK;
}
static void tape_states_outside(void) {
    static tape_time all, least; memopt_tape_desc d; memopt_segment segment[TAPE_TIME]; memopt_tape *tape = NULL; size_t i, k, bytes = 0;
    memset(&d, 0, sizeof d); memset(segment, 0, sizeof segment); memset(&all, 0, sizeof all);
    for (k = 0; k < TAPE_TIME; ++k) for (i = 0; i < TAPE_UNITS; ++i) all.x[k][i] = (float)((k * 7 + i * 3) % 11) / 11;
    least = all;
    d.chain.segments = segment; d.chain.count = TAPE_TIME;
    d.layer.forward_fn = d.layer.backward_fn = tape_time_step; d.layer.user = &all;
    CHECK(memopt_tape_open(&d, &tape) == MEMOPT_OK && memopt_tape_forward(tape, all.x) == MEMOPT_OK && memopt_tape_backward(tape, NULL, NULL) == MEMOPT_OK);
    CHECK(all.forwards == TAPE_TIME && memopt_tape_get_stats(tape).peak == TAPE_TIME * TAPE_UNITS * sizeof(float));
    memopt_tape_destroy(tape);
    d.layer.user = &least; d.overhead = 1;
    CHECK(memopt_tape_open(&d, &tape) == MEMOPT_OK);
    bytes = memopt_tape_get_stats(tape).peak;
    CHECK(memopt_tape_forward(tape, least.x) == MEMOPT_OK && memopt_tape_backward(tape, NULL, NULL) == MEMOPT_OK);
    CHECK(bytes == TAPE_UNITS * sizeof(float) && least.forwards <= 2 * TAPE_TIME);
    memopt_tape_destroy(tape);
    CHECK(!memcmp(all.state, least.state, sizeof all.state) && !memcmp(all.grad, least.grad, sizeof all.grad) && all.grad[3] > 0);
}

/* -- What fails, and what is left then -- */

static void tape_failing_callbacks(void) { /* each callback of each schedule */
    uint64_t seed; size_t i, n;
    for (seed = 1; seed <= 2 * TAPE_TIMES; ++seed) {
        tape_watch w;
        tape_watch_make(&w, 100 + seed, 6, 1);
        tape_watch_buffers(&w);
        for (i = 0; i < TAPE_VARIANTS; ++i) {
            tape_rig r; memopt_tape_desc d; memopt_error e; size_t calls, count = 0;
            tape_rig_open(&r, tape_watch_room(&w), 0);
            w.rig = &r; w.stream_count = 0;
            d = tape_watch_desc(&w, &r);
            tape_variant(&d, i);
            CHECK(memopt_tape_create(&d, &w.tape) == MEMOPT_OK);
            e = memopt_tape_error(w.tape);
            CHECK(e.status == MEMOPT_OK && e.reason);
            w.calls = 0;
            CHECK(tape_watch_pass(&w) == MEMOPT_OK);
            calls = w.calls;
            for (n = 1; n <= calls; ++n) {
                const memopt_action *a = memopt_tape_actions(w.tape, &count);
                w.calls = 0; w.fail_on = n;
                w.stream_count = 0; /* whether the pass that failed is done again with its numbers is seen elsewhere */
                CHECK_AT(tape_watch_pass(&w) == MEMOPT_ERR_DEVICE, n);
                CHECK_AT(w.calls == n, n); /* and nothing was called after it */
                e = memopt_tape_error(w.tape);
                CHECK_AT(e.status == MEMOPT_ERR_DEVICE && e.reason && e.index == w.failed && e.action < count, n);
                if (e.action < count) CHECK_AT(a[e.action].op <= MEMOPT_ACTION_BACKWARD && a[e.action].index == w.failed,
                    n);
                w.fail_on = 0; w.stream_count = 0;
                CHECK_AT(memopt_tape_backward(w.tape, w.grad_output, w.grad_input) == MEMOPT_ERR_STATE, n);
                CHECK_AT(tape_watch_pass(&w) == MEMOPT_OK, n);
            }
            w.evaluating = 1;
            for (n = 1; n <= w.chain.count; ++n) { /* in an evaluation too */
                tape_watch_feed(&w);
                w.calls = 0; w.fail_on = n;
                CHECK_AT(memopt_tape_evaluate(w.tape, w.input, NULL) == MEMOPT_ERR_DEVICE && w.calls == n
                    && tape_rig_is_clean(&r), n);
                CHECK_AT(memopt_tape_error(w.tape).index == n - 1, n);
            }
            w.fail_on = 0; w.evaluating = 0; w.stream_count = 0;
            CHECK(tape_rig_peak(&r) == (memopt_tape_get_stats(w.tape).peak > memopt_tape_get_stats(w.tape).evaluate_peak
                  ? memopt_tape_get_stats(w.tape).peak : memopt_tape_get_stats(w.tape).evaluate_peak));
            memopt_tape_destroy(w.tape);
            tape_rig_close(&r);
        }
        tape_watch_close(&w);
    }
}
static int tape_says_full(memopt_error e, const char *text) { /* in bytes of this machine */
    char line[128];
    return memopt_error_text(&e, line, sizeof line, NULL) == MEMOPT_OK && e.status == MEMOPT_ERR_MEMORY
        && strncmp(line, text, strlen(text)) == 0;
}
static void tape_full_arena(void) { /* one byte too few, and just enough */
    tape_watch w; size_t i;
    tape_watch_make(&w, 9, 7, 2);
    tape_watch_buffers(&w);
    for (i = 0; i < TAPE_VARIANTS; ++i) {
        tape_rig r; memopt_tape_desc d; memopt_tape_stats s; memopt_mark top; size_t room;
        tape_rig_open(&r, tape_watch_room(&w), 0);
        w.rig = &r; w.stream_count = 0;
        d = tape_watch_desc(&w, &r);
        tape_variant(&d, i);
        CHECK(memopt_tape_create(&d, &w.tape) == MEMOPT_OK);
        s = memopt_tape_get_stats(w.tape);
        room = memopt_arena_get_stats(r.arena).free_bytes;
        top = memopt_arena_mark_top(r.arena);
        CHECK(memopt_arena_push_top(r.arena, (room - s.peak) / 64 * 64 + 64, 0) != NULL);
        w.calls = 0;
        tape_watch_feed(&w);
        CHECK_AT(memopt_tape_forward(w.tape, w.input) == MEMOPT_ERR_MEMORY && w.calls == 0, i);
        CHECK_AT(memopt_tape_error(w.tape).got.count == s.peak && memopt_tape_error(w.tape).limit.count < s.peak, i);
        CHECK_AT(tape_says_full(memopt_tape_error(w.tape), "the arena is full: asked "), i);
        CHECK_AT(memopt_tape_error(w.tape).index == SIZE_MAX && memopt_tape_error(w.tape).action == SIZE_MAX,
            i);
        CHECK_AT(memopt_tape_backward(w.tape, w.grad_output, w.grad_input) == MEMOPT_ERR_STATE, i);
        CHECK(memopt_arena_rewind(r.arena, top) == MEMOPT_OK && tape_rig_is_clean(&r));
        CHECK(memopt_arena_push_top(r.arena, (room - s.peak) / 64 * 64, 0) != NULL);
        tape_watch_feed(&w);
        CHECK_AT(memopt_tape_forward(w.tape, w.input) == MEMOPT_OK, i);
        CHECK_AT(memopt_tape_cancel(w.tape) == MEMOPT_OK && memopt_tape_cancel(w.tape) == MEMOPT_OK
            && !memopt_tape_output(w.tape), i);
        CHECK(memopt_arena_rewind(r.arena, top) == MEMOPT_OK && tape_rig_is_clean(&r));
        memopt_tape_destroy(w.tape);
        tape_rig_close(&r);
    }
    tape_watch_close(&w);
}
static void tape_rewound(void) { /* by somebody else, between forward and backward */
    tape_watch w; tape_rig r; memopt_tape_desc d; int round; size_t used;
    tape_watch_make(&w, 26, 6, 1);
    tape_watch_buffers(&w);
    tape_rig_open(&r, tape_watch_room(&w), 0);
    w.rig = &r;
    d = tape_watch_desc(&w, &r);
    CHECK(memopt_tape_create(&d, &w.tape) == MEMOPT_OK);
    for (round = 0; round < 4; ++round) {
        tape_watch_feed(&w);
        w.stream_count = 0;
        CHECK(memopt_tape_forward(w.tape, w.input) == MEMOPT_OK && memopt_arena_rewind(r.arena, r.mark) == MEMOPT_OK);
        w.calls = 0;
        /* its bytes are another's now */
        if (round % 2) CHECK(memopt_arena_push(r.arena, memopt_tape_get_stats(w.tape).peak + 64, 0) != NULL);
        used = memopt_arena_get_stats(r.arena).used_low;
        if (round < 2) {
            CHECK(memopt_tape_backward(w.tape, w.grad_output, w.grad_input) == MEMOPT_ERR_STATE && w.calls == 0);
            CHECK(test_error_says(memopt_tape_error(w.tape), MEMOPT_ERR_STATE, "the arena was rewound below the pass"));
            CHECK(memopt_tape_backward(w.tape, w.grad_output, w.grad_input) == MEMOPT_ERR_STATE);
        } else CHECK(memopt_tape_cancel(w.tape) == MEMOPT_OK);
        CHECK(memopt_arena_get_stats(r.arena).used_low == used);
        CHECK(memopt_arena_rewind(r.arena, r.mark) == MEMOPT_OK && tape_rig_is_clean(&r));
    }
    { unsigned char *grad; /* a buffer where the pass was: it is the pass that is gone, not the buffer that is wrong */
      tape_watch_feed(&w);
      w.stream_count = 0;
      CHECK(memopt_tape_forward(w.tape, w.input) == MEMOPT_OK && memopt_arena_rewind(r.arena, r.mark) == MEMOPT_OK);
      grad = (unsigned char *)memopt_arena_push(r.arena, memopt_tape_get_stats(w.tape).peak, 0);
      CHECK(memopt_tape_backward(w.tape, w.grad_output ? grad : NULL, w.grad_input ? grad + 64 : NULL) == MEMOPT_ERR_STATE);
      CHECK((w.grad_output || w.grad_input) && memopt_arena_rewind(r.arena, r.mark) == MEMOPT_OK && tape_rig_is_clean(&r)); }
    w.stream_count = 0;
    w.on_loan = 1; /* the peak is not the tape's alone */
    CHECK(tape_watch_pass(&w) == MEMOPT_OK && tape_rig_is_clean(&r));
    memopt_tape_destroy(w.tape);
    tape_rig_close(&r);
    tape_watch_close(&w);
}
static void tape_refusing_source(void) { /* a source that refuses at the push of a pass */
    test_device dev; memopt_source source; memopt_arena_desc ad; tape_watch w; tape_rig r; memopt_tape_desc d; size_t n;
    tape_watch_make(&w, 12, 6, 1);
    tape_watch_buffers(&w);
    test_device_open(&dev, &source, 1 << 20, 4096, 1);
    memset(&ad, 0, sizeof ad);
    tape_rig_open(&r, 4096, 0);
    memopt_arena_destroy(r.arena);
    ad.source = &source; ad.ledger = r.ledger; ad.capacity = 1 << 20;
    CHECK(memopt_arena_create(&ad, &r.arena) == MEMOPT_OK);
    r.neighbour = (unsigned char *)memopt_arena_push(r.arena, TAPE_BASE, MEMOPT_TAG_PARAMETERS);
    memset(r.neighbour, 0x77, TAPE_BASE);
    w.rig = &r;
    d = tape_watch_desc(&w, &r);
    d.budget = SIZE_MAX;
    CHECK(memopt_tape_create(&d, &w.tape) == MEMOPT_OK);
    for (n = 0; n < 3; ++n) {
        w.stream_count = 0; w.calls = 0;
        dev.fail_from = dev.calls + 1;
        CHECK(tape_watch_pass(&w) == MEMOPT_ERR_DEVICE && w.calls == 0);
        CHECK(!strcmp(memopt_tape_error(w.tape).reason, "the source could not commit memory"));
        dev.fail_from = 0;
        w.stream_count = 0;
        CHECK(tape_watch_pass(&w) == MEMOPT_OK);
        CHECK(memopt_arena_trim(r.arena) == MEMOPT_OK);
    }
    memopt_tape_destroy(w.tape);
    CHECK(dev.mistakes == 0);
    memopt_arena_destroy(r.arena);
    memopt_ledger_destroy(r.ledger);
    free(r.memory);
    test_device_close(&dev);
    tape_watch_close(&w);
}
/* Which of these an error is, when its bytes are 1,536; 0: none. */
static int tape_no_memory(memopt_error e) {
    static const char *const texts[] = {
        "no memory for the times", "no memory for the chain with its new costs", "no memory for the tape",
        "no memory for copies of the chain", "no memory to solve the chain", "no memory for the actions",
        "no memory for the shape", "no memory to place the buffers", "no memory to go through the schedule",
        "no memory for the planner"
    };
    char text[96];
    int i;
    for (i = 0; i < 10 && strcmp(e.reason, texts[i]) != 0;) ++i;
    if (i == 10 || !e.got.count) { printf("got '%s'\n", e.reason); return 0; }
    e.got.count = 1536;
    (void)snprintf(text, sizeof text, "%s: asked 1.5 KiB", texts[i]);
    return test_error_says(e, MEMOPT_ERR_MEMORY, text) ? i + 1 : 0;
}
/* The nth call of the host's allocator fails, in whatever asks for memory. */
static void tape_failing_host(void) {
    tape_watch w; tape_rig r; memopt_tape_desc d; size_t n, variant, tries = 0; test_faults f; memopt_host h;
    memopt_chain larger; memopt_segment segment[TAPE_MOST];
    tape_watch_make(&w, 15, 6, 1);
    tape_watch_buffers(&w);
    memcpy(segment, w.segment, sizeof segment);
    larger = w.chain; larger.segments = segment;
    segment[2].forward_cost += 1; /* costs are part of a shape */
    for (variant = 0; variant < TAPE_VARIANTS; variant += 4) {
        memset(&f, 0, sizeof f);
        h = test_host(&f);
        h.clock.now_fn = NULL; h.clock.user = NULL;
        tape_rig_open(&r, tape_watch_room(&w) + 4096, 0);
        w.rig = &r;
        for (n = 1; n < 300; ++n) {
            memopt_status status; memopt_tape *const none = (memopt_tape *)&w; size_t least = 99; memopt_tape_stats s;
            size_t passes;
            int said;
            w.stream_count = 0;
            d = tape_watch_desc(&w, &r);
            tape_variant(&d, variant);
            d.host = &h;
            f.calls = 0; f.fail_on = n;
            w.tape = none;
            status = memopt_tape_create(&d, &w.tape);
            if (status) {
                CHECK_AT(status == MEMOPT_ERR_MEMORY && w.tape == none && !f.live_blocks && !f.live_bytes, n);
                CHECK_AT(f.calls >= n, n);
                f.calls = 0;
                if (variant >= 6) CHECK_AT(memopt_tape_min_budget(&d, &least) == MEMOPT_OK
                    || (least == 99 && !f.live_blocks), n);
                CHECK(tape_rig_is_clean(&r));
                ++tries;
                continue;
            }
            f.fail_on = 0;
            passes = f.calls;
            CHECK_AT(tape_watch_pass(&w) == MEMOPT_OK, n);
            CHECK_AT(f.calls == passes, n); /* a pass asks for nothing */
            s = memopt_tape_get_stats(w.tape);
            for (n = 1; n < 300; ++n) { /* reshaping: the tape is as before */
                f.calls = 0; f.fail_on = n;
                status = memopt_tape_reshape(w.tape, &larger);
                f.fail_on = 0;
                if (!status) break;
                CHECK_AT(status == MEMOPT_ERR_MEMORY && memopt_tape_get_stats(w.tape).peak == s.peak
                         && memopt_tape_get_stats(w.tape).solves == s.solves, n);
                ++tries;
                w.stream_count = 0;
                CHECK_AT(tape_watch_pass(&w) == MEMOPT_OK, n);
            }
            f.calls = 0;
            CHECK(memopt_tape_reshape(w.tape, &w.chain) == MEMOPT_OK && f.calls == 0); /* seen before */
            CHECK(memopt_tape_get_stats(w.tape).peak == s.peak && memopt_tape_get_stats(w.tape).solves == s.solves + 1);
            for (n = 1; n < 300; ++n) { /* calibrating: too */
                f.calls = 0; f.fail_on = n;
                w.measuring = 1;
                tape_watch_feed(&w);
                status = memopt_tape_calibrate(w.tape, w.input, w.grad_output_bytes ? w.grad_output : NULL,
                    w.grad_input, 1);
                w.measuring = 0;
                f.fail_on = 0;
                CHECK(tape_rig_is_clean(&r));
                if (!status) break;
                CHECK_AT(status == MEMOPT_ERR_MEMORY && memopt_tape_get_stats(w.tape).peak == s.peak, n);
                said = tape_no_memory(memopt_tape_error(w.tape));
                CHECK_AT(said == (int)n || (n > 2 && said > 2), n);
                ++tries;
            }
            CHECK(tape_rig_is_clean(&r));
            memopt_tape_destroy(w.tape);
            CHECK(!f.live_blocks && !f.live_bytes && !f.bad_frees);
            n = 1000;
        }
        CHECK_AT(n > 1000, variant); /* in the end it succeeded */
        tape_rig_close(&r);
    }
    CHECK(tries > 10);
    tape_watch_close(&w);
}
static void tape_entered_again(void) { /* by any of its callbacks: refused, and the pass goes on */
    tape_watch w; size_t i, n, calls;
    tape_watch_make(&w, 17, 5, 1);
    tape_watch_buffers(&w);
    for (i = 0; i < TAPE_VARIANTS; i += 3) {
        tape_rig r; memopt_tape_desc d;
        tape_rig_open(&r, tape_watch_room(&w), 0);
        w.rig = &r; w.stream_count = 0; w.calls = 0; w.enter_on = 0;
        d = tape_watch_desc(&w, &r);
        tape_variant(&d, i);
        CHECK(memopt_tape_create(&d, &w.tape) == MEMOPT_OK && tape_watch_pass(&w) == MEMOPT_OK);
        calls = w.calls;
        for (n = 1; n <= calls; ++n) {
            w.calls = 0; w.enter_on = n;
            CHECK_AT(tape_watch_pass(&w) == MEMOPT_OK && w.calls == calls, n);
        }
        w.evaluating = 1;
        for (n = 1; n <= w.chain.count; ++n) {
            w.calls = 0; w.enter_on = n;
            tape_watch_feed(&w);
            CHECK_AT(memopt_tape_evaluate(w.tape, w.input, NULL) == MEMOPT_OK, n);
        }
        w.evaluating = 0; w.measuring = 1; w.calls = 0; w.enter_on = 3;
        tape_watch_feed(&w);
        CHECK(memopt_tape_calibrate(w.tape, w.input, w.grad_output_bytes ? w.grad_output : NULL, w.grad_input, 1)
            == MEMOPT_OK && w.calls > 3);
        /* measured costs: the arena has seen higher peaks than the new one */
        w.measuring = 0; w.enter_on = 0; w.on_loan = 1;
        CHECK(tape_watch_pass(&w) == MEMOPT_OK);
        w.on_loan = 0;
        memopt_tape_destroy(w.tape);
        tape_rig_close(&r);
    }
    tape_watch_close(&w);
}
static memopt_status tape_watch_again(tape_watch *w) { /* a forward of a pass that has been begun before */
    tape_watch_feed(w);
    w->stream_count = 0;
    return memopt_tape_forward(w->tape, w->input);
}
static void tape_order(void) { /* the right calls at the wrong time, and NULL */
    tape_watch w; tape_rig r; memopt_tape_desc d; memopt_tape_stats s; size_t count = 5, length;
    memopt_segment segment; memopt_tape_layer layer; char text[8];
    const void *in; int round;
    tape_watch_make(&w, 20, 6, 1);
    w.chain.input_grad_bytes = w.chain.input_bytes;
    w.segment[5].grad_bytes = 100;
    tape_watch_buffers(&w);
    tape_rig_open(&r, tape_watch_room(&w), 0);
    w.rig = &r;
    d = tape_watch_desc(&w, &r);
    d.overhead = 0.5;
    CHECK(memopt_tape_create(&d, &w.tape) == MEMOPT_OK);
    in = w.input;
    for (round = 0; round < 2; ++round) {
        tape_watch_feed(&w);
        CHECK(memopt_tape_backward(w.tape, w.grad_output, w.grad_input) == MEMOPT_ERR_STATE);
        CHECK(test_error_says(memopt_tape_error(w.tape), MEMOPT_ERR_STATE, "a backward without its forward"));
        CHECK(memopt_tape_cancel(w.tape) == MEMOPT_OK);
        CHECK(memopt_tape_forward(w.tape, NULL) == MEMOPT_ERR_ARGUMENT);
        CHECK(test_error_says(memopt_tape_error(w.tape), MEMOPT_ERR_ARGUMENT, "the input is NULL"));
        CHECK(memopt_tape_backward(w.tape, w.grad_output, w.grad_input) == MEMOPT_ERR_STATE); /* another error */
        CHECK(memopt_tape_evaluate(w.tape, NULL, NULL) == MEMOPT_ERR_ARGUMENT && w.calls == 0);
        CHECK(test_error_says(memopt_tape_error(w.tape), MEMOPT_ERR_ARGUMENT, "the input is NULL"));
        CHECK(tape_watch_again(&w) == MEMOPT_OK);
        s = memopt_tape_get_stats(w.tape);
        w.calls = 0;
        CHECK(memopt_tape_forward(w.tape, in) == MEMOPT_ERR_STATE);
        CHECK(memopt_tape_evaluate(w.tape, in, NULL) == MEMOPT_ERR_STATE);
        CHECK(memopt_tape_seek(w.tape, 3) == MEMOPT_ERR_STATE);
        CHECK(memopt_tape_reshape(w.tape, &w.chain) == MEMOPT_ERR_STATE);
        CHECK(memopt_tape_calibrate(w.tape, in, w.grad_output, w.grad_input, 1) == MEMOPT_ERR_STATE);
        CHECK(memopt_tape_output(w.tape) != NULL && w.calls == 0);
        /* NULL where something is needed: told, and the pass can still be ended the right way or abandoned */
        if (round) {
            const memopt_status status = memopt_tape_backward(w.tape, NULL, w.grad_input);
            CHECK(status == MEMOPT_ERR_ARGUMENT && w.calls == 0);
            CHECK(memopt_tape_cancel(w.tape) == MEMOPT_OK && tape_rig_is_clean(&r));
            CHECK(tape_watch_again(&w) == MEMOPT_OK);
            CHECK(memopt_tape_backward(w.tape, w.grad_output, NULL) == MEMOPT_ERR_ARGUMENT);
            CHECK(memopt_tape_cancel(w.tape) == MEMOPT_OK && tape_rig_is_clean(&r));
        } else {
            CHECK(memopt_tape_backward(w.tape, w.grad_output, w.grad_input) == MEMOPT_OK);
            CHECK(memopt_tape_backward(w.tape, w.grad_output, w.grad_input) == MEMOPT_ERR_STATE);
        }
        CHECK(tape_rig_is_clean(&r) && s.passes == (uint64_t)round);
        w.stream_count = 0;
        w.calls = 0;
    }
    CHECK(memopt_tape_get_stats(w.tape).passes == 1);
    tape_watch_feed(&w);
    CHECK(tape_watch_again(&w) == MEMOPT_OK && memopt_arena_get_stats(r.arena).used_low > TAPE_BASE);
    memopt_tape_destroy(w.tape); /* gives the pass back */
    CHECK(tape_rig_is_clean(&r));
    tape_rig_close(&r);
    tape_watch_close(&w);

    memopt_tape_destroy(NULL);
    CHECK(memopt_tape_create(NULL, &w.tape) == MEMOPT_ERR_ARGUMENT
        && memopt_tape_create(&d, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_tape_min_budget(NULL, &count) == MEMOPT_ERR_ARGUMENT
          && memopt_tape_min_budget(&d, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_tape_forward(NULL, in) == MEMOPT_ERR_ARGUMENT
        && memopt_tape_backward(NULL, in, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_tape_evaluate(NULL, in, NULL) == MEMOPT_ERR_ARGUMENT
        && memopt_tape_cancel(NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_tape_seek(NULL, 0) == MEMOPT_ERR_ARGUMENT
        && memopt_tape_reshape(NULL, &w.chain) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_tape_calibrate(NULL, in, in, NULL, 1) == MEMOPT_ERR_ARGUMENT && !memopt_tape_output(NULL));
    CHECK(memopt_tape_nest(NULL, &segment, &layer) == MEMOPT_ERR_ARGUMENT
        && memopt_tape_set_memory(NULL, &w, 64) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_tape_report(NULL, text, 8, &length) == MEMOPT_ERR_ARGUMENT);
    CHECK(!memopt_tape_actions(NULL, &count) && count == 0);
    count = 5;
    CHECK(!memopt_tape_segments(NULL, &count) && count == 0 && !memopt_tape_segments(NULL, NULL));
    s = memopt_tape_get_stats(NULL);
    CHECK(!s.peak && !s.live_peak && !s.evaluate_peak && !s.kept && !s.actions && !s.forwards && !s.passes
        && !s.solves);
    CHECK(memopt_tape_error(NULL).reason && memopt_tape_error(NULL).status == MEMOPT_ERR_ARGUMENT);
}
static memopt_status tape_no_write(void *user, size_t value, const void *bytes, size_t count) {
    (void)user; (void)value; (void)bytes; (void)count; return MEMOPT_OK; }
static memopt_status tape_no_read(void *user, size_t value, void *bytes, size_t count) {
    (void)user; (void)value; (void)bytes; (void)count; return MEMOPT_OK; }
static memopt_status tape_no_wait(void *user, size_t value) { (void)user; (void)value; return MEMOPT_OK; }
static void tape_no_forget(void *user, size_t value) { (void)user; (void)value; }
static void tape_no_save(void *user, size_t segment, void *state) { (void)user; (void)segment; (void)state; }
static void tape_no_load(void *user, size_t segment, const void *state) { (void)user; (void)segment; (void)state; }
static memopt_tape_store tape_no_store(void) {
    memopt_tape_store s;
    s.write_fn = tape_no_write; s.read_fn = tape_no_read; s.wait_fn = tape_no_wait; s.forget_fn = tape_no_forget;
    s.user = NULL;
    return s;
}
static void tape_bad_descs(void) {
    tape_watch w; memopt_tape_desc good, d; memopt_tape *const none = (memopt_tape *)&w; memopt_tape *tape = none;
    int i; size_t least; memopt_host half;
    volatile double zero = 0; memopt_segment *g; memopt_skip *k; memopt_segment keep; memopt_skip keep_skip;
    tape_watch_make(&w, 20, 6, 1);
    good = tape_watch_desc(&w, NULL);
    good.overhead = 1;
    g = &w.segment[2]; k = &w.skip[0];
    keep = *g; keep_skip = *k;
    memset(&half, 0, sizeof half);
    half.allocator.alloc_fn = test_alloc;
    for (i = 0; i < 38; ++i) {
        memopt_status want = MEMOPT_ERR_ARGUMENT;
        d = good;
        switch (i) {
        case 0: d.chain.count = 0; break;
        case 1: d.chain.segments = NULL; break;
        case 2: d.layers = NULL; break;
        case 3: w.layer[3].forward_fn = NULL; break;
        case 4: w.layer[5].backward_fn = NULL; break;
        case 5: g->forward_cost = zero / zero; break;
        case 6: g->backward_cost = 1 / zero; break;
        case 7: g->forward_cost = -1; break;
        case 8: g->saved_bytes = g->output_bytes - 1; g->output_bytes += !g->output_bytes; break;
        case 9: k->to = k->from; break;
        case 10: k->to = 6; break;
        case 11: d.chain.skips = NULL; break;
        case 12: d.overhead = zero / zero; break;
        case 13: d.overhead = -0.1; break;
        case 14: d.rule = (memopt_schedule_rule)7; break;
        case 15: d.rule = MEMOPT_SCHEDULE_EVERY; d.every = 0; break;
        case 16: d.codec = (memopt_codec)3; break;
        case 17: d.store.write_fn = tape_no_write; break;
        case 18: d.store.write_fn = tape_no_write; d.store.read_fn = tape_no_read; d.store.wait_fn = tape_no_wait;
        d.offload.slots = 2; break;
        case 19: d.store = tape_no_store(); break; /* a store without slow */
        case 20: d.offload.slots = 2; break;       /* slow without a store */
        case 21: d.store = tape_no_store(); d.offload.slots = 2; d.codec = MEMOPT_CODEC_BF16; break;
        case 22: d.random_bytes = 8; break;
        case 23: d.random_bytes = 8; d.random_save_fn = tape_no_save; break;
        case 24: d.random_save_fn = tape_no_save; d.random_load_fn = tape_no_load; break;
        case 25: d.random_bytes = 8; d.random_load_fn = tape_no_load; break;
        case 26: d.slots = 15; break;
        case 27: d.slots = 65537; break;
        case 28: d.host = &half; break;
        case 29: d.chain.count = MEMOPT_CHAIN_MAX + 1; break;
        case 30: g->saved_bytes = SIZE_MAX; want = MEMOPT_ERR_OVERFLOW; break;
        case 31: g->forward_scratch = SIZE_MAX - 3; want = MEMOPT_ERR_OVERFLOW; break;
        case 32: k->bytes = SIZE_MAX; want = MEMOPT_ERR_OVERFLOW; break;
        case 33: g->grad_bytes = SIZE_MAX / 2 + 1; g[1].grad_bytes = SIZE_MAX / 2 + 1; want = MEMOPT_ERR_OVERFLOW;
        break;
        case 34: d.random_bytes = SIZE_MAX / 4; d.random_save_fn = tape_no_save; d.random_load_fn = tape_no_load;
        want = MEMOPT_ERR_OVERFLOW; break;
        case 36: d.store = tape_no_store(); d.offload.slots = 2; d.offload.read_cost = zero / zero; break;
        case 37: d.store = tape_no_store(); d.offload.slots = 2; d.offload.write_byte_cost = -1; break;
        case 35: d.shapes = SIZE_MAX; want = MEMOPT_ERR_OVERFLOW; break;
        }
        { const memopt_status s = memopt_tape_create(&d, &tape);
          CHECK_AT(s == want || ((i == 34 || i == 35) && s == MEMOPT_ERR_MEMORY), i);
          CHECK_AT(tape == none, i);
          if (tape != none) { memopt_tape_destroy(tape); tape = none; }
          if (i != 12 && i != 13 && i != 34 && i != 35) CHECK_AT(memopt_tape_min_budget(&d, &least) != MEMOPT_OK, i); }
        *g = keep; *k = keep_skip; g[1].grad_bytes = keep.grad_bytes;
        tape_watch_layers(&w);
    }
    CHECK(memopt_tape_create(&good, &tape) == MEMOPT_OK);
    memopt_tape_destroy(tape);
}
/* What a pass holds between forward and backward in memory of its own; the rest is anybody's meanwhile. No byte outside. */
static void tape_held_apart(void) {
    tape_watch w; memopt_tape_desc d; memopt_tape_stats s; unsigned char *block[2], *at[2]; size_t bytes[2], i, k, n; uint64_t seed, held = 0, shared = 0;
    for (seed = 1; seed <= 12; ++seed)
        for (n = 0; n < TAPE_VARIANTS; ++n) {
            tape_watch_make(&w, seed, (size_t)(2 + seed % 6), (size_t)(seed % 3));
            tape_watch_buffers(&w);
            w.on_loan = 1;
            d = tape_watch_desc(&w, NULL);
            d.held_apart = 1;
            tape_variant(&d, n);
            CHECK_AT(memopt_tape_create(&d, &w.tape) == MEMOPT_OK, seed * 100 + n);
            s = memopt_tape_get_stats(w.tape);
            CHECK_AT(s.held >= s.kept && s.held <= s.peak && s.held < s.kept + 64 * (3 * w.chain.count + w.chain.skip_count), seed * 100 + n);
            CHECK_AT(!d.budget || s.peak <= d.budget, seed * 100 + n);
            bytes[0] = s.peak - s.held; bytes[1] = s.held;
            held += bytes[1]; shared += bytes[0];
            for (k = 0; k < 2; ++k) {
                block[k] = (unsigned char *)malloc(bytes[k] + 192);
                at[k] = block[k] + (64 - (uintptr_t)block[k] % 64);
                memset(block[k], 0x77, bytes[k] + 192);
            }
            CHECK(memopt_tape_set_memory(w.tape, at[0], bytes[0]) == MEMOPT_OK && memopt_tape_set_held(w.tape, at[1], bytes[1]) == MEMOPT_OK);
            w.shared = at[0]; w.shared_bytes = bytes[0];
            CHECK_AT(tape_watch_pass(&w) == MEMOPT_OK && tape_watch_pass(&w) == MEMOPT_OK, seed * 100 + n);
            for (k = 0; k < 2; ++k) {
                for (i = 0; i < bytes[k] + 192; ++i)
                    if (block[k] + i < at[k] || block[k] + i >= at[k] + bytes[k]) CHECK_AT(block[k][i] == 0x77, i);
                free(block[k]);
            }
            memopt_tape_destroy(w.tape);
            tape_watch_close(&w);
        }
    CHECK(held && shared);
}
static void tape_held_apart_refusals(void) {
    tape_watch w; memopt_tape_desc d; memopt_tape_stats s; memopt_segment segment; memopt_tape_layer layer; tape_rig r; memopt_error why; unsigned char *block, *at;
    tape_watch_make(&w, 23, 6, 2);
    tape_watch_buffers(&w);
    w.on_loan = 1;
    d = tape_watch_desc(&w, NULL);
    d.rule = MEMOPT_SCHEDULE_ALL; d.held_apart = 2; d.error = &why;
    CHECK(memopt_tape_create(&d, &w.tape) == MEMOPT_ERR_ARGUMENT);
    d.held_apart = 1;
    CHECK(memopt_tape_open(&d, &w.tape) == MEMOPT_ERR_ARGUMENT && test_error_says(why, MEMOPT_ERR_ARGUMENT, "held_apart is for memory that is set, as for a tape created"));
    tape_rig_open(&r, tape_watch_room(&w), 0);
    d.arena = r.arena;
    CHECK(memopt_tape_create(&d, &w.tape) == MEMOPT_ERR_ARGUMENT && test_error_says(why, MEMOPT_ERR_ARGUMENT, "held_apart is for memory that is set, without an arena"));
    tape_rig_close(&r);
    d.arena = NULL;
    CHECK(memopt_tape_create(&d, &w.tape) == MEMOPT_OK);
    s = memopt_tape_get_stats(w.tape);
    block = (unsigned char *)malloc(s.peak + 192); at = block + (64 - (uintptr_t)block % 64);
    CHECK(memopt_tape_set_memory(w.tape, at, s.peak - s.held) == MEMOPT_OK);
    tape_watch_feed(&w);
    CHECK(memopt_tape_forward(w.tape, w.input) == MEMOPT_ERR_MEMORY && w.calls == 0);
    CHECK(memopt_tape_set_held(w.tape, at + (s.peak - s.held) + 1, s.held) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_tape_set_held(w.tape, at + (s.peak - s.held), s.held - 1) == MEMOPT_OK && memopt_tape_forward(w.tape, w.input) == MEMOPT_ERR_MEMORY && w.calls == 0);
    CHECK(memopt_tape_set_held(w.tape, at + (s.peak - s.held), s.held) == MEMOPT_OK);
    CHECK(memopt_tape_forward(w.tape, at + (s.peak - s.held)) == MEMOPT_ERR_ARGUMENT && w.calls == 0); /* within what it holds */
    CHECK(memopt_tape_nest(w.tape, &segment, &layer) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_tape_forward(w.tape, w.input) == MEMOPT_OK && memopt_tape_set_held(w.tape, at, s.held) == MEMOPT_ERR_STATE && memopt_tape_cancel(w.tape) == MEMOPT_OK);
    CHECK(memopt_tape_set_held(w.tape, NULL, 0) == MEMOPT_OK && memopt_tape_set_held(NULL, at, 64) == MEMOPT_ERR_ARGUMENT);
    tape_watch_feed(&w);
    w.calls = 0;
    CHECK(memopt_tape_forward(w.tape, w.input) == MEMOPT_ERR_MEMORY && w.calls == 0);
    memopt_tape_destroy(w.tape);
    d.held_apart = 0;
    CHECK(memopt_tape_create(&d, &w.tape) == MEMOPT_OK && memopt_tape_get_stats(w.tape).held == 0 && memopt_tape_set_held(w.tape, at, s.held) == MEMOPT_ERR_ARGUMENT);
    memopt_tape_destroy(w.tape);
    free(block);
    tape_watch_close(&w);
}
static void tape_placed(void) { /* a tape without an arena, in memory of ours */
    tape_watch w; memopt_tape_desc d; memopt_tape_stats s; unsigned char *block, *at; size_t most, i;
    tape_watch_make(&w, 23, 6, 2);
    tape_watch_buffers(&w);
    w.on_loan = 1;
    d = tape_watch_desc(&w, NULL);
    d.overhead = 0.4;
    CHECK(memopt_tape_create(&d, &w.tape) == MEMOPT_OK);
    s = memopt_tape_get_stats(w.tape);
    most = s.peak > s.evaluate_peak ? s.peak : s.evaluate_peak;
    block = (unsigned char *)malloc(most + 192);
    at = block + (64 - (uintptr_t)block % 64);
    memset(block, 0x77, most + 192);
    tape_watch_feed(&w);
    CHECK(memopt_tape_forward(w.tape, w.input) == MEMOPT_ERR_STATE
        || memopt_tape_error(w.tape).status == MEMOPT_ERR_MEMORY);
    CHECK(memopt_tape_set_memory(w.tape, at + 1, most) == MEMOPT_ERR_ARGUMENT
        && memopt_tape_set_memory(w.tape, at + 32, most) == MEMOPT_ERR_ARGUMENT);
    for (i = 0; i < 2; ++i) {
        CHECK(memopt_tape_set_memory(w.tape, at, s.peak) == MEMOPT_OK && tape_watch_pass(&w) == MEMOPT_OK
            && tape_watch_pass(&w) == MEMOPT_OK);
        CHECK(memopt_tape_set_memory(w.tape, NULL, 0) == MEMOPT_OK);
        CHECK(memopt_tape_forward(w.tape, w.input) != MEMOPT_OK);
    }
    for (i = 0; i < most + 192; ++i) /* not a byte outside */
        if (block + i < at || block + i >= at + s.peak) CHECK_AT(block[i] == 0x77, i);
    memset(block, 0x77, most + 192);
    w.evaluating = 1;
    CHECK(memopt_tape_set_memory(w.tape, at, s.evaluate_peak) == MEMOPT_OK);
    tape_watch_feed(&w);
    CHECK(memopt_tape_evaluate(w.tape, w.input, NULL) == MEMOPT_OK);
    for (i = 0; i < most + 192; ++i)
        if (block + i < at || block + i >= at + s.evaluate_peak) CHECK_AT(block[i] == 0x77, i);
    w.evaluating = 0;
    tape_watch_feed(&w);
    w.calls = 0;
    CHECK(memopt_tape_set_memory(w.tape, at, s.peak - 1) != MEMOPT_OK
          || memopt_tape_forward(w.tape, w.input) != MEMOPT_OK);
    CHECK(w.calls == 0);
    CHECK(memopt_tape_set_memory(w.tape, at, most) == MEMOPT_OK && memopt_tape_forward(w.tape, w.input) == MEMOPT_OK);
    CHECK(memopt_tape_set_memory(w.tape, NULL, 0) == MEMOPT_ERR_STATE
        && memopt_tape_set_memory(w.tape, at, most) == MEMOPT_ERR_STATE);
    CHECK(memopt_tape_cancel(w.tape) == MEMOPT_OK);
    memopt_tape_destroy(w.tape);
    { tape_rig r; /* a tape with an arena has a place already */
      tape_rig_open(&r, tape_watch_room(&w), 0);
      d.arena = r.arena;
      CHECK(memopt_tape_create(&d, &w.tape) == MEMOPT_OK && memopt_tape_set_memory(w.tape, at, most) != MEMOPT_OK);
      memopt_tape_destroy(w.tape);
      tape_rig_close(&r); }
    free(block);
    tape_watch_close(&w);
}
static void tape_tags(void) { /* the tag of the push */
    tape_watch w; tape_rig r; memopt_tape_desc d; memopt_tag own = 0;
    tape_watch_make(&w, 24, 5, 0);
    tape_watch_buffers(&w);
    tape_rig_open(&r, tape_watch_room(&w), 0);
    CHECK(memopt_ledger_tag_add(r.ledger, "block", &own) == MEMOPT_OK);
    w.rig = &r;
    d = tape_watch_desc(&w, &r);
    d.tag = own;
    CHECK(memopt_tape_create(&d, &w.tape) == MEMOPT_OK);
    tape_watch_feed(&w);
    CHECK(memopt_tape_forward(w.tape, w.input) == MEMOPT_OK);
    CHECK(memopt_ledger_usage(r.ledger, own).now == memopt_tape_get_stats(w.tape).peak
        && memopt_ledger_usage(r.ledger, own).blocks == 1);
    CHECK(memopt_ledger_usage(r.ledger, MEMOPT_TAG_ACTIVATIONS).peak == 0);
    CHECK(memopt_tape_cancel(w.tape) == MEMOPT_OK && memopt_ledger_usage(r.ledger, own).now == 0);
    memopt_tape_destroy(w.tape);
    tape_rig_close(&r);
    tape_watch_close(&w);
}

/* -- A store that takes its time -- */

typedef struct tape_copy { unsigned char *bytes; size_t count; int used, doing; const unsigned char *from;
unsigned char *to; } tape_copy;
typedef struct tape_shelf { /* doing: 1 a write, 2 a read, that end at the wait or whenever it pleases */
    tape_copy copy[TAPE_MOST + 1]; size_t calls, fail_on, used, most, mistakes, transfers; uint64_t seed;
    tape_watch *enter; /* not NULL: each call enters its tape again */
    const char *called; /* the last one that may fail */
} tape_shelf;
static void tape_shelf_end(tape_shelf *s, tape_copy *c) { /* of a transfer */
    /* overwritten before it was written away */
    if (c->doing == 1 && c->count && memcmp(c->bytes, c->from, c->count)) ++s->mistakes;
    if (c->doing == 2 && c->count) memcpy(c->to, c->bytes, c->count);
    c->doing = 0;
}
/* whether to fail; some other transfer may have ended meanwhile */
static int tape_shelf_begin(tape_shelf *s, size_t value) {
    const size_t other = test_below(&s->seed, 4 * TAPE_MOST);
    if (value > TAPE_MOST) { ++s->mistakes; return 1; }
    if (other <= TAPE_MOST && s->copy[other].doing) tape_shelf_end(s, &s->copy[other]);
    if (s->enter) tape_enter(s->enter);
    return ++s->calls == s->fail_on;
}
static memopt_status tape_shelf_write(void *user, size_t value, const void *bytes, size_t count) {
    tape_shelf *s = (tape_shelf *)user; tape_copy *c = &s->copy[value];
    s->called = "the store's write_fn failed";
    if (tape_shelf_begin(s, value)) return tape_leave(MEMOPT_ERR_IO);
    if (c->used) { ++s->mistakes; return MEMOPT_ERR_STATE; }
    c->bytes = (unsigned char *)malloc(count + 1);
    if (!c->bytes) return MEMOPT_ERR_MEMORY;
    if (count) memcpy(c->bytes, bytes, count);
    c->used = 1; c->count = count; c->doing = 1; c->from = (const unsigned char *)bytes;
    ++s->transfers;
    if (++s->used > s->most) s->most = s->used;
    return MEMOPT_OK;
}
static memopt_status tape_shelf_read(void *user, size_t value, void *bytes, size_t count) {
    tape_shelf *s = (tape_shelf *)user; tape_copy *c = &s->copy[value];
    s->called = "the store's read_fn failed";
    if (tape_shelf_begin(s, value)) return tape_leave(MEMOPT_ERR_IO);
    if (!c->used || c->doing || c->count != count) { ++s->mistakes; return MEMOPT_ERR_STATE; }
    if (count) memset(bytes, 0xDB, count); /* not there yet */
    c->to = (unsigned char *)bytes; c->doing = 2;
    ++s->transfers;
    return MEMOPT_OK;
}
static memopt_status tape_shelf_wait(void *user, size_t value) {
    tape_shelf *s = (tape_shelf *)user;
    s->called = "the store's wait_fn failed";
    if (tape_shelf_begin(s, value)) return tape_leave(MEMOPT_ERR_IO);
    if (!s->copy[value].used) { ++s->mistakes; return MEMOPT_ERR_STATE; }
    tape_shelf_end(s, &s->copy[value]);
    return MEMOPT_OK;
}
static void tape_shelf_forget(void *user, size_t value) {
    tape_shelf *s = (tape_shelf *)user; tape_copy *c = &s->copy[value <= TAPE_MOST ? value : 0];
    if (value > TAPE_MOST) ++s->mistakes;
    if (s->enter) tape_enter(s->enter);
    if (!c->used) return; /* a write that failed may be forgotten */
    tape_shelf_end(s, c);
    free(c->bytes);
    memset(c, 0, sizeof *c);
    --s->used;
    if (tape_leaves && s->fail_on && ++s->calls == s->fail_on) (void)tape_leave(MEMOPT_OK);
}
static memopt_tape_store tape_shelf_store(tape_shelf *s) {
    memopt_tape_store t;
    t.write_fn = tape_shelf_write; t.read_fn = tape_shelf_read; t.wait_fn = tape_shelf_wait;
    t.forget_fn = tape_shelf_forget; t.user = s;
    return t;
}
static int tape_says_of(memopt_error e, const char *reason) { /* "segment 3: REASON, action 7" */
    char text[120];
    (void)snprintf(text, sizeof text, "segment %u: %s, action %u", (unsigned)e.segment, reason, (unsigned)e.action);
    return e.segment == e.index && test_error_says(e, e.status, text);
}
static void tape_stored(void) {
    static const memopt_schedule_rule rules[3] = { MEMOPT_SCHEDULE_EXTENDED, MEMOPT_SCHEDULE_ROTOR, MEMOPT_SCHEDULE_REVOLVE };
    uint64_t seed; size_t i, used = 0, smaller = 0;
    for (seed = 1; seed <= 6 * TAPE_TIMES; ++seed) {
        tape_watch w; tape_shelf shelf; const size_t count = 4 + (size_t)seed % 7;
        tape_watch_make(&w, 200 + seed, count, (size_t)seed % 3);
        tape_watch_buffers(&w);
        for (i = 0; i < 12; ++i) {
            tape_rig r; memopt_tape_desc d; size_t without = 0, least = 0, n, calls; memopt_tape_stats s;
            memset(&shelf, 0, sizeof shelf);
            shelf.seed = seed * 100 + i;
            tape_rig_open(&r, tape_watch_room(&w), 0);
            w.rig = &r; w.stream_count = 0; w.tape = NULL;
            d = tape_watch_desc(&w, &r);
            d.rule = rules[i % 3];
            CHECK(memopt_tape_min_budget(&d, &without) == MEMOPT_OK);
            d.offload.slots = i % 4 == 0 ? MEMOPT_OFFLOAD_UNLIMITED : i % 4;
            d.offload.write_cost = 1; d.offload.read_cost = 0.5; d.offload.write_byte_cost = 0.001;
            d.offload.read_byte_cost = 0.002;
            d.offload.overlap = i / 6 == 1;
            d.store = tape_shelf_store(&shelf);
            CHECK_AT(memopt_tape_min_budget(&d, &least) == MEMOPT_OK && least > 0, seed * 100 + i);
            smaller += least < without;
            d.budget = least + (i % 2 ? least / 3 : 0);
            CHECK_AT(memopt_tape_create(&d, &w.tape) == MEMOPT_OK, seed * 100 + i);
            s = memopt_tape_get_stats(w.tape);
            CHECK_AT(s.peak <= d.budget, seed * 100 + i);
            w.calls = 0;
            CHECK_AT(tape_watch_pass(&w) == MEMOPT_OK && shelf.used == 0 && shelf.mistakes == 0, seed * 100 + i);
            CHECK_AT(shelf.most <= d.offload.slots, seed * 100 + i);
            used += shelf.transfers > 0;
            calls = shelf.calls;
            for (n = 1; n <= calls; ++n) { /* each call of the store fails once */
                shelf.calls = 0; shelf.fail_on = n; w.stream_count = 0;
                CHECK_AT(tape_watch_pass(&w) == MEMOPT_ERR_IO, seed * 100 + i);
                CHECK_AT(shelf.used == 0 && shelf.mistakes == 0
                    && memopt_tape_error(w.tape).status == MEMOPT_ERR_IO, seed * 100 + i);
                CHECK_AT(memopt_tape_error(w.tape).action < s.actions && shelf.calls == n, seed * 100 + i);
                CHECK_AT(tape_says_of(memopt_tape_error(w.tape), shelf.called), seed * 100 + i);
                shelf.fail_on = 0; w.stream_count = 0;
                CHECK_AT(tape_watch_pass(&w) == MEMOPT_OK && shelf.used == 0 && shelf.mistakes == 0, seed * 100 + i);
            }
            w.calls = 0;
            w.stream_count = 0;
            CHECK(tape_watch_pass(&w) == MEMOPT_OK);
            calls = w.calls;
            for (n = 1; n <= calls; ++n) { /* and each callback, with transfers under way */
                w.calls = 0; w.fail_on = n; w.stream_count = 0;
                CHECK_AT(tape_watch_pass(&w) == MEMOPT_ERR_DEVICE && shelf.used == 0 && shelf.mistakes == 0,
                    seed * 100 + i);
            }
            w.fail_on = 0; w.stream_count = 0;
            shelf.enter = &w;
            CHECK(tape_watch_pass(&w) == MEMOPT_OK && shelf.used == 0 && shelf.mistakes == 0);
            shelf.enter = NULL; w.stream_count = 0;
            tape_watch_feed(&w);
            CHECK(memopt_tape_forward(w.tape, w.input) == MEMOPT_OK && memopt_tape_cancel(w.tape) == MEMOPT_OK
                && shelf.used == 0);
            tape_watch_feed(&w);
            w.stream_count = 0;
            CHECK(memopt_tape_forward(w.tape, w.input) == MEMOPT_OK);
            memopt_tape_destroy(w.tape);
            CHECK(shelf.used == 0 && shelf.mistakes == 0);
            tape_rig_close(&r);
        }
        tape_watch_close(&w);
    }
    CHECK(used > 20 && smaller > 5);
}

/* -- A pass that is left, or cancelled, in the middle of a callback -- */

enum { TAPE_PASS, TAPE_EVALUATION, TAPE_CALIBRATION };
typedef struct tape_left { tape_watch w; tape_rig r; memopt_tape_desc d; tape_shelf shelf; test_faults clock; memopt_host host; int what; } tape_left;
static memopt_status tape_left_run(void *x) {
    tape_left *const l = (tape_left *)x; tape_watch *const w = &l->w;
    if (l->what == TAPE_PASS) return tape_watch_pass(w);
    tape_watch_feed(w);
    if (l->what == TAPE_EVALUATION) return memopt_tape_evaluate(w->tape, w->input, NULL);
    return memopt_tape_calibrate(w->tape, w->input, w->grad_output_bytes ? w->grad_output : NULL, w->grad_input, 2);
}
static void tape_left_begin(tape_left *l, int what) {
    l->what = what;
    l->w.calls = l->w.stream_count = l->shelf.calls = 0;
    l->w.evaluating = what == TAPE_EVALUATION; l->w.measuring = what == TAPE_CALIBRATION;
}
/* Whether the call of that number was reached, was left, and has left nothing. */
static int tape_left_at(tape_left *l, int what, size_t n, int of_shelf) {
    tape_watch *const w = &l->w; const memopt_tape_stats before = memopt_tape_get_stats(w->tape); memopt_status status = MEMOPT_OK;
    const uint64_t pass = w->pass; size_t live = l->clock.live_blocks; int left;
    tape_left_begin(l, what);
    *(of_shelf ? &l->shelf.fail_on : &w->fail_on) = n;
    tape_leaves = n % 3 == 2 ? TAPE_CANCELS : TAPE_JUMPS; tape_leaves_tape = w->tape;
    tape_leaves_arena = n % 2 ? l->r.arena : NULL;
    left = jump_caught(&tape_landing, tape_left_run, l, &status);
    if (left) {
        CHECK_AT(tape_leaves == TAPE_JUMPS && memopt_tape_get_stats(w->tape).passes == before.passes, n);
        CHECK_AT(memopt_tape_forward(w->tape, w->input) == MEMOPT_ERR_STATE && !memopt_tape_output(w->tape), n);
        CHECK_AT(test_error_says(memopt_tape_error(w->tape), MEMOPT_ERR_STATE, TAPE_CALLED_INSIDE), n);
        l->shelf.fail_on = 0;
        if (n % 3 == 0) { /* destroyed as it is */
            memopt_tape_destroy(w->tape);
            CHECK_AT(!l->clock.live_blocks && tape_rig_is_clean(&l->r), n);
            CHECK(memopt_tape_create(&l->d, &w->tape) == MEMOPT_OK);
            live = l->clock.live_blocks;
        } else CHECK_AT(memopt_tape_cancel(w->tape) == MEMOPT_OK && memopt_tape_cancel(w->tape) == MEMOPT_OK, n);
    } else if (status) {
        if (tape_leaves_arena) CHECK_AT(memopt_arena_get_stats(l->r.arena).used_low == TAPE_BASE + 64 && memopt_arena_rewind(l->r.arena, l->r.mark) == MEMOPT_OK, n);
        CHECK_AT(status == MEMOPT_ERR_STATE && tape_leaves == TAPE_CANCELS && memopt_tape_error(w->tape).action < before.actions, n);
        CHECK_AT(tape_says_of(memopt_tape_error(w->tape), "a callback has cancelled the pass"), n);
    } else CHECK_AT(*(of_shelf ? &l->shelf.calls : &w->calls) < n || (of_shelf && tape_leaves == TAPE_CANCELS), n); /* or it was the last to be forgotten */
    CHECK_AT((tape_leaves_arena && tape_leaves == TAPE_CANCELS) || tape_rig_is_clean(&l->r), n);
    CHECK_AT(!l->shelf.used && !l->shelf.mistakes, n);
    if (left || status) CHECK_AT(l->clock.live_blocks == live, n); /* the times too were given back */
    left = left || status || *(of_shelf ? &l->shelf.calls : &w->calls) >= n;
    tape_leaves = TAPE_FAILS; tape_leaves_arena = NULL; w->fail_on = l->shelf.fail_on = 0;
    (void)memopt_arena_rewind(l->r.arena, l->r.mark); /* what was taken in a forget that ended the pass anyway */
    w->pass = pass + 1;
    tape_left_begin(l, TAPE_PASS); /* as if nothing had been */
    CHECK_AT(tape_left_run(l) == MEMOPT_OK && !l->shelf.mistakes, n);
    return left;
}
static void tape_jumped_out(void) {
    static tape_left l; size_t i, n, jumps = 0, stored = 0; int what, of_shelf;
    for (i = 0; i < 10; ++i) {
        memset(&l, 0, sizeof l);
        tape_watch_make(&l.w, 120 + i, i < 6 ? 6 : 9, i % 3);
        tape_watch_buffers(&l.w);
        tape_rig_open(&l.r, 2 * tape_watch_room(&l.w), 0);
        l.w.rig = &l.r; l.w.on_loan = 1; /* after a calibration the peak is another */
        l.host = test_host(&l.clock);
        l.d = tape_watch_desc(&l.w, &l.r);
        l.d.host = &l.host;
        if (i < 6) tape_variant(&l.d, i * 5 % TAPE_VARIANTS);
        else {
            l.shelf.seed = i;
            l.d.offload.slots = i % 2 ? MEMOPT_OFFLOAD_UNLIMITED : 2;
            l.d.offload.write_cost = l.d.offload.read_cost = 1e-9; l.d.offload.overlap = i > 7; /* also after a calibration */
            l.d.store = tape_shelf_store(&l.shelf);
            CHECK(memopt_tape_min_budget(&l.d, &l.d.budget) == MEMOPT_OK);
        }
        CHECK(memopt_tape_create(&l.d, &l.w.tape) == MEMOPT_OK && tape_watch_pass(&l.w) == MEMOPT_OK);
        for (of_shelf = i >= 6; of_shelf >= 0; --of_shelf)
            for (what = TAPE_PASS; what <= TAPE_CALIBRATION; ++what) {
                for (n = 1; n < 1000 && tape_left_at(&l, what, n, of_shelf); ++n) { ++jumps; stored += of_shelf != 0; }
                CHECK_AT(n < 1000, i);
            }
        memopt_tape_destroy(l.w.tape);
        CHECK(!l.clock.live_blocks);
        tape_rig_close(&l.r);
        tape_watch_close(&l.w);
    }
    CHECK(jumps > 300 && stored > 60);
}

/* -- A hook of the generator that jumps, or cancels the pass -- */

enum { TAPE_HOOK_SEGMENTS = 5, TAPE_HOOK_NUMBERS = 16 };
typedef struct tape_hooks { memopt_tape *tape; uint64_t own; size_t calls, leave_on; float gradient[TAPE_HOOK_NUMBERS]; int what; } tape_hooks;
static void tape_hook(tape_hooks *h) { if (++h->calls == h->leave_on) (void)tape_leave(MEMOPT_OK); }
static void tape_hook_save(void *user, size_t segment, void *state) {
    tape_hooks *const h = (tape_hooks *)user;
    (void)segment;
    memcpy(state, &h->own, sizeof h->own);
    tape_hook(h);
}
static void tape_hook_load(void *user, size_t segment, const void *state) { /* left before it has moved anything */
    tape_hooks *const h = (tape_hooks *)user;
    (void)segment;
    tape_hook(h);
    memcpy(&h->own, state, sizeof h->own);
}
static memopt_status tape_hook_layer(const memopt_tape_call *c) {
    tape_hooks *const h = (tape_hooks *)c->user;
    const float *const in = (const float *)c->input; size_t i;
    float *const saved = (float *)memopt_tape_take(c, MEMOPT_TAPE_SAVED, TAPE_HOOK_NUMBERS * sizeof(float));
    if (c->describing) return MEMOPT_OK;
    if (!c->is_backward) h->own = h->own * UINT64_C(6364136223846793005) + 1;
    for (i = 0; i < TAPE_HOOK_NUMBERS; ++i) {
        if (c->is_backward) ((float *)c->grad_input)[i] = ((const float *)c->grad_output)[i] * saved[i] + in[i];
        else ((float *)c->output)[i] = in[i] * (saved[i] = (float)(h->own >> 40) / 16777216.0f);
    }
    return MEMOPT_OK;
}
static memopt_status tape_hooks_run(void *x) {
    tape_hooks *const h = (tape_hooks *)x; float in[TAPE_HOOK_NUMBERS], last[TAPE_HOOK_NUMBERS]; size_t i; memopt_status s;
    for (i = 0; i < TAPE_HOOK_NUMBERS; ++i) { in[i] = 1 + (float)i; last[i] = 1; }
    h->calls = 0; h->own = 1;
    if (h->what) return memopt_tape_calibrate(h->tape, in, last, h->gradient, 1);
    s = memopt_tape_forward(h->tape, in);
    return s ? s : memopt_tape_backward(h->tape, last, h->gradient);
}
static void tape_left_by_hooks(void) {
    static tape_hooks h; tape_rig r; memopt_tape_desc d; float good[TAPE_HOOK_NUMBERS]; size_t n, put_back = 0, cancelled = 0; uint64_t after = 1; int i;
    memset(&d, 0, sizeof d); memset(&h, 0, sizeof h);
    tape_rig_open(&r, 1 << 16, 0);
    for (i = 0; i < TAPE_HOOK_SEGMENTS; ++i) after = after * UINT64_C(6364136223846793005) + 1;
    d.chain.count = TAPE_HOOK_SEGMENTS;
    d.segment.output_bytes = d.segment.grad_bytes = d.chain.input_bytes = d.chain.input_grad_bytes = sizeof good;
    d.segment.forward_cost = d.segment.backward_cost = 1;
    d.layer.forward_fn = d.layer.backward_fn = tape_hook_layer; d.layer.user = &h;
    d.random_bytes = sizeof h.own; d.random_save_fn = tape_hook_save; d.random_load_fn = tape_hook_load; d.random_user = &h;
    d.arena = r.arena; d.overhead = 1; d.verify = 1;
    CHECK(memopt_tape_open(&d, &h.tape) == MEMOPT_OK && tape_hooks_run(&h) == MEMOPT_OK && h.own == after);
    memcpy(good, h.gradient, sizeof good);
    for (i = 0; i < 4; ++i)
        for (n = 1; n < 1000; ++n) {
            memopt_status status = MEMOPT_OK; int left;
            h.what = i / 2; h.leave_on = n;
            tape_leaves = i % 2 ? TAPE_CANCELS : TAPE_JUMPS; tape_leaves_tape = h.tape;
            left = jump_caught(&tape_landing, tape_hooks_run, &h, &status);
            h.leave_on = 0;
            if (!left && h.calls < n) break;
            CHECK_AT(left == (tape_leaves == TAPE_JUMPS) && (left || status == MEMOPT_ERR_STATE), n);
            if (!left) CHECK_AT(tape_says_of(memopt_tape_error(h.tape), "a callback has cancelled the pass") && ++cancelled, n);
            CHECK_AT(memopt_tape_cancel(h.tape) == MEMOPT_OK && tape_rig_is_clean(&r), n);
            if (h.what) CHECK_AT(h.own == 1, n);
            else if (n > TAPE_HOOK_SEGMENTS) CHECK_AT(h.own == after && ++put_back, n); /* behind the forward */
            h.what = 0;
            CHECK_AT(tape_hooks_run(&h) == MEMOPT_OK && !memcmp(good, h.gradient, sizeof good), n);
        }
    tape_leaves = TAPE_FAILS;
    memopt_tape_destroy(h.tape);
    tape_rig_close(&r);
    CHECK(put_back > 5 && cancelled > 20);
}

/* -- A layer that gives other bits when it runs again -- */

static void tape_unsteady(void) {
    uint64_t seed; size_t i, s, found = 0;
    for (seed = 1; seed <= 3 * TAPE_TIMES; ++seed) {
        tape_watch w;
        tape_watch_make(&w, 300 + seed, 8, 0);
        for (s = 0; s < 8; ++s) if (!w.segment[s].output_bytes) {
            w.segment[s].output_bytes = 5; w.segment[s].saved_bytes += 5; }
        tape_watch_buffers(&w);
        for (i = 0; i < TAPE_VARIANTS; i += 2)
            for (s = 0; s < 8; ++s) {
                tape_rig r; memopt_tape_desc d; memopt_status status; size_t k, times = 0, count;
                const memopt_action *a;
                tape_rig_open(&r, tape_watch_room(&w), 0);
                w.rig = &r; w.stream_count = 0; w.tape = NULL;
                d = tape_watch_desc(&w, &r);
                tape_variant(&d, i);
                d.verify = w.verified = MEMOPT_DEBUG < 2 || i % 4 != 0; /* at 2 it is on by itself */
                CHECK(memopt_tape_create(&d, &w.tape) == MEMOPT_OK);
                a = memopt_tape_actions(w.tape, &count);
                for (k = 0; k < count; ++k) { /* how often somebody reads what it gives when it runs again */
                    w.action = k + 1;
                    if (a[k].op <= MEMOPT_ACTION_FORWARD_SAVE && a[k].index == s) times += w.verified
                        || tape_output_is_read(&w, s);
                }
                if (times > 1) {
                    const int before = test_failures;
                    w.unsteady = (int)s + 1;
                    tape_watch_feed(&w);
                    status = memopt_tape_forward(w.tape, w.input);
                    if (!status) status = memopt_tape_backward(w.tape, w.grad_output, w.grad_input);
                    w.unsteady = 0;
                    CHECK_AT(status == MEMOPT_ERR_CORRUPT && memopt_tape_error(w.tape).index == s,
                        seed * 100 + i);
                    CHECK_AT(tape_says_of(memopt_tape_error(w.tape), s ? "its forward gave other bits when it ran again"
                                                   : "its forward gave other bits when it ran again, or the input was changed")
                        && tape_rig_is_clean(&r), seed * 100 + i);
                    CHECK_AT(before == test_failures, s); /* nobody saw the wrong bits */
                    ++found;
                }
                w.stream_count = 0;
                ++w.pass;
                CHECK_AT(tape_watch_pass(&w) == MEMOPT_OK, seed * 100 + i); /* and a steady one is fine */
                memopt_tape_destroy(w.tape);
                tape_rig_close(&r);
            }
        tape_watch_close(&w);
    }
    CHECK(found >= 20);
}

/* -- What it tells -- */

/* A row for each segment, aligned under the first line: its forwards, its share of a pass by the costs it was given, and
   what was measured (NULL: nothing), in nanoseconds. */
static void tape_rows(const tape_watch *w, const uint64_t *forward_time, const uint64_t *backward_time) {
    char text[16384], value[6][32]; const char *line = text; size_t i, k, count, width;
    const memopt_action *a = memopt_tape_actions(w->tape, &count);
    double forwards[TAPE_MOST], given = 0, taken = 0;
    CHECK(memopt_tape_report(w->tape, text, sizeof text, NULL) == MEMOPT_OK);
    for (i = 0; i < w->chain.count; ++i) {
        for (k = 0, forwards[i] = 0; k < count; ++k) forwards[i] += a[k].op <= MEMOPT_ACTION_FORWARD_SAVE
            && a[k].index == i;
        given += w->segment[i].forward_cost * forwards[i] + w->segment[i].backward_cost;
        if (forward_time) taken += (double)forward_time[i] * forwards[i] + (double)backward_time[i];
    }
    width = strcspn(text, "\n");
    for (i = 0; i < w->chain.count; ++i) {
        unsigned long segment = 99, times = 0; double share = -1;
        line += strcspn(line, "\n") + 1;
        CHECK_AT(strcspn(line, "\n") == width, i);
        for (k = 0; k < 6; ++k) value[k][0] = 0;
        CHECK_AT(sscanf(line, "%lu %31s %*s %31s %*s %*s %*s %lu %lf%% %31s %31s %31s", &segment, value[0], value[1],
            &times,
                        &share, value[3], value[4], value[5]) == 8, i);
        CHECK_AT(segment == i && (double)times == forwards[i], i);
        CHECK_AT(fabs(share - 100 * (w->segment[i].forward_cost * forwards[i] + w->segment[i].backward_cost) / given) < 0.0501, i);
        /* below 1 KiB to the byte */
        (void)snprintf(value[2], sizeof value[2], "%lu", (unsigned long)w->segment[i].saved_bytes);
        CHECK_AT(w->segment[i].saved_bytes >= 1000 || !strcmp(value[1], value[2]), i);
        if (!forward_time) { CHECK_AT(!strcmp(value[3], "-") && !strcmp(value[4], "-") && !strcmp(value[5], "-"), i);
        continue; }
        CHECK_AT(fabs(atof(value[3]) - 100 * ((double)forward_time[i] * forwards[i] + (double)backward_time[i]) / taken) < 0.0501, i);
        CHECK_AT(atof(value[4]) == floor((double)forward_time[i] / 1000 + 0.5)
            && atof(value[5]) == floor((double)backward_time[i] / 1000 + 0.5), i);
    }
}

/* -- Measured costs -- */

static memopt_status tape_now(void *user, uint64_t *nanoseconds) { /* stands still between callbacks */
    test_faults *f = (test_faults *)user;
    if (test_fails(f)) return MEMOPT_ERR_IO;
    *nanoseconds = f->now;
    return MEMOPT_OK;
}
static void tape_calibrated(void) {
    tape_watch w; tape_rig r; memopt_tape_desc d; memopt_host h; test_faults f; memopt_tape_stats s;
    const memopt_action *a; const memopt_segment *told; size_t i, count, n, calls; double want = 0, unit;
    tape_watch_make(&w, 50, 7, 1);
    tape_watch_buffers(&w);
    tape_rig_open(&r, 4 * tape_watch_room(&w), 0);
    memset(&f, 0, sizeof f);
    memset(&h, 0, sizeof h);
    h.clock.now_fn = tape_now; h.clock.user = &f;
    w.rig = &r; w.clock = &f;
    for (i = 0; i < 7; ++i) { w.forward_time[i] = 1000000 * (1 + i * i); w.backward_time[i] = 3000000 + 500000 * i; }
    d = tape_watch_desc(&w, &r);
    d.host = &h; d.overhead = 0.5;
    CHECK(memopt_tape_create(&d, &w.tape) == MEMOPT_OK && tape_watch_pass(&w) == MEMOPT_OK);
    s = memopt_tape_get_stats(w.tape);
    w.measuring = 1; w.calls = 0; f.calls = 0;
    tape_watch_feed(&w);
    CHECK(memopt_tape_calibrate(w.tape, w.input, w.grad_output_bytes ? w.grad_output : NULL, w.grad_input, 3)
        == MEMOPT_OK);
    calls = f.calls;
    CHECK(w.calls >= 3 * 14 && tape_rig_is_clean(&r) && calls >= 14);
    for (i = 0; i < 7; ++i) CHECK_AT(w.forwards[i] >= 3 && w.backwards[i] == 3 && w.firsts[i] == 3, i);
    a = memopt_tape_actions(w.tape, &count);
    for (i = 0; i < count; ++i) {
        if (a[i].op <= MEMOPT_ACTION_FORWARD_SAVE) want += (double)w.forward_time[a[i].index];
        if (a[i].op == MEMOPT_ACTION_BACKWARD) want += (double)w.backward_time[a[i].index];
    }
    unit = memopt_tape_get_stats(w.tape).cost / want;
    CHECK(fabs(unit - 1e-9) < 1e-15); /* seconds */
    told = memopt_tape_segments(w.tape, &count);
    CHECK(told && count == 7);
    for (i = 0; i < 7 && told; ++i) /* and those of each; its sizes are as they were */
        CHECK_AT(fabs(told[i].forward_cost * 1e9 / (double)w.forward_time[i] - 1) < 1e-9
            && fabs(told[i].backward_cost * 1e9 / (double)w.backward_time[i] - 1) < 1e-9 && told[i].saved_bytes == w.segment[i].saved_bytes, i);
    tape_rows(&w, w.forward_time, w.backward_time);
    CHECK(memopt_tape_get_stats(w.tape).passes == s.passes);
    w.measuring = 0;
    w.stream_count = 0;
    CHECK(tape_watch_pass(&w) == MEMOPT_OK);
    { char text[16384], number[32]; /* and the peak, after a pass measured too */
      CHECK(memopt_tape_report(w.tape, text, sizeof text, NULL) == MEMOPT_OK);
      (void)snprintf(number, sizeof number, "(%llu bytes)", (unsigned long long)memopt_tape_get_stats(w.tape).peak);
      CHECK(strstr(text, number) && strstr(strstr(text, number) + 1, number)); }
    s = memopt_tape_get_stats(w.tape);
    for (n = 1; n <= calls; n += n < 40 ? 1 : 7) { /* the clock fails: nothing has changed */
        memopt_tape_stats t;
        w.measuring = 1; f.calls = 0; f.fail_on = n;
        tape_watch_feed(&w);
        CHECK_AT(memopt_tape_calibrate(w.tape, w.input, w.grad_output_bytes ? w.grad_output : NULL, w.grad_input, 3)
            == MEMOPT_ERR_IO, n);
        f.fail_on = 0; w.measuring = 0;
        t = memopt_tape_get_stats(w.tape);
        CHECK_AT(t.cost == s.cost && t.peak == s.peak && t.actions == s.actions && t.passes == s.passes
            && tape_rig_is_clean(&r), n);
        CHECK_AT(memopt_tape_error(w.tape).status == MEMOPT_ERR_IO, n);
        w.stream_count = 0;
        CHECK_AT(tape_watch_pass(&w) == MEMOPT_OK, n);
        s.passes = memopt_tape_get_stats(w.tape).passes;
    }
    w.measuring = 1;
    for (n = 1; n <= 40; ++n) { /* a callback fails */
        w.calls = 0; w.fail_on = n;
        tape_watch_feed(&w);
        CHECK_AT(memopt_tape_calibrate(w.tape, w.input, w.grad_output_bytes ? w.grad_output : NULL, w.grad_input, 3)
            == MEMOPT_ERR_DEVICE, n);
        CHECK_AT(memopt_tape_get_stats(w.tape).cost == s.cost && tape_rig_is_clean(&r), n);
    }
    w.fail_on = 0;
    CHECK(memopt_tape_calibrate(w.tape, w.input, w.grad_output, w.grad_input, 0) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_tape_calibrate(w.tape, NULL, w.grad_output, w.grad_input, 1) == MEMOPT_ERR_ARGUMENT);
    memopt_tape_destroy(w.tape);
    tape_rig_close(&r);
    tape_watch_close(&w);
}
static void tape_reported(void) {
    tape_watch w; tape_rig r; memopt_tape_desc d; char text[16384], small[100], number[32];
    size_t length = 0, again = 0, i; memopt_status status;
    tape_watch_make(&w, 60, 9, 1);
    tape_watch_buffers(&w);
    tape_rig_open(&r, tape_watch_room(&w), 0);
    w.rig = &r;
    d = tape_watch_desc(&w, &r);
    d.overhead = 0.5;
    CHECK(memopt_tape_create(&d, &w.tape) == MEMOPT_OK);
    for (i = 0; i < 2; ++i) {
        status = memopt_tape_report(w.tape, NULL, 0, &length);
        CHECK(status == MEMOPT_ERR_BUFFER && length > 9 * 10);
        CHECK(memopt_tape_report(w.tape, text, sizeof text, &again) == MEMOPT_OK && again == length
            && strlen(text) == length);
        CHECK(memopt_tape_report(w.tape, small, sizeof small, &again) == MEMOPT_ERR_BUFFER && again == length);
        CHECK(strlen(small) == sizeof small - 1 && !memcmp(small, text, sizeof small - 1));
        CHECK(memopt_tape_report(w.tape, text, length, &again) == MEMOPT_ERR_BUFFER
            && memopt_tape_report(w.tape, text, length + 1, NULL) == MEMOPT_OK);
        (void)snprintf(number, sizeof number, "%llu", (unsigned long long)memopt_tape_get_stats(w.tape).peak);
        CHECK(strstr(text, number) != NULL);
        tape_rows(&w, NULL, NULL);
        w.stream_count = 0;
        CHECK(tape_watch_pass(&w) == MEMOPT_OK);
    }
    CHECK(memopt_tape_report(w.tape, NULL, 5, &length) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_tape_report(w.tape, text, sizeof text, NULL) == MEMOPT_OK && !strstr(text, "bytes), measured -;"));
    w.segment[0].forward_cost += 1;
    CHECK(memopt_tape_reshape(w.tape, &d.chain) == MEMOPT_OK); /* nothing of the new shape is measured */
    CHECK(memopt_tape_report(w.tape, text, sizeof text, NULL) == MEMOPT_OK && strstr(text, "bytes), measured -;"));
    memopt_tape_destroy(w.tape);
    tape_rig_close(&r);
    tape_watch_close(&w);
}

/* -- What a tape makes its own, and how long it can be -- */

static void tape_aligned(void) { /* to 64 whatever the arena's own alignment, and more where it has more */
    static const size_t alignments[3] = { 16, 64, 1024 }; size_t i, k; tape_watch w;
    tape_watch_make(&w, 21, 6, 1);
    tape_watch_buffers(&w);
    for (k = 0; k < 3; ++k)
        for (i = 0; i < TAPE_VARIANTS; i += 4) {
            tape_rig r; memopt_tape_desc d; memopt_arena_desc ad; memopt_mark m;
            unsigned char *block = (unsigned char *)memopt_i_system_alloc(NULL, 1 << 17, 4096);
            tape_rig_open(&r, 4096, 0);
            memopt_arena_destroy(r.arena);
            memset(&ad, 0, sizeof ad);
            CHECK(memopt_source_block(block, 1 << 17, &r.source) == MEMOPT_OK);
            r.source.base_alignment = 4096;
            ad.source = &r.source; ad.alignment = alignments[k]; ad.ledger = r.ledger;
            CHECK(memopt_arena_create(&ad, &r.arena) == MEMOPT_OK);
            r.neighbour = (unsigned char *)memopt_arena_push(r.arena, TAPE_BASE, 0);
            memset(r.neighbour, 0x77, TAPE_BASE);
            w.rig = &r; w.stream_count = 0; w.on_loan = 1; /* offsets are not those of the others */
            d = tape_watch_desc(&w, &r);
            tape_variant(&d, i);
            CHECK(memopt_tape_create(&d, &w.tape) == MEMOPT_OK && tape_watch_pass(&w) == MEMOPT_OK
                && tape_rig_is_clean(&r));
            m = memopt_arena_mark(r.arena);
            CHECK(memopt_arena_push(r.arena, 16, 0) != NULL); /* so that the next push does not begin at 64 by itself */
            tape_watch_feed(&w);
            w.aligned = alignments[k] < 64 ? 64 : alignments[k]; w.stream_count = 0;
            CHECK(memopt_tape_forward(w.tape, w.input) == MEMOPT_OK && (uintptr_t)memopt_tape_output(w.tape) % 64 == 0);
            CHECK(memopt_tape_backward(w.tape, w.grad_output_bytes ? w.grad_output : NULL,
                w.chain.input_grad_bytes ? w.grad_input : NULL) == MEMOPT_OK);
            w.aligned = 0;
            CHECK(memopt_arena_rewind(r.arena, m) == MEMOPT_OK);
            memopt_tape_destroy(w.tape);
            tape_rig_close(&r);
            memopt_i_system_free(NULL, block, 1 << 17, 4096);
        }
    tape_watch_close(&w);
}
static void tape_copied(void) { /* chain and layers are the caller's again after create; all costs 0 */
    tape_watch w, like; tape_rig r; memopt_tape_desc d; memopt_segment segment[TAPE_MOST];
    memopt_skip skip[TAPE_SKIPS]; memopt_tape_layer layer[TAPE_MOST]; size_t i;
    tape_watch_make(&w, 33, 7, 2);
    for (i = 0; i < 7; ++i) w.segment[i].forward_cost = w.segment[i].backward_cost = 0;
    like = w;
    for (i = 0; i < TAPE_VARIANTS; ++i) {
        w = like;
        tape_watch_layers(&w);
        tape_watch_buffers(&w);
        tape_rig_open(&r, tape_watch_room(&w), 0);
        w.rig = &r;
        memcpy(segment, w.segment, sizeof segment); memcpy(skip, w.skip, sizeof skip);
        memcpy(layer, w.layer, sizeof layer);
        d = tape_watch_desc(&w, &r);
        d.chain.segments = segment; d.chain.skips = skip; d.layers = layer;
        tape_variant(&d, i);
        CHECK_AT(memopt_tape_create(&d, &w.tape) == MEMOPT_OK, i);
        memset(segment, 0x5A, sizeof segment); memset(skip, 0x5A, sizeof skip); memset(layer, 0x5A, sizeof layer);
        memset(&d, 0x5A, sizeof d);
        CHECK_AT(tape_watch_pass(&w) == MEMOPT_OK, i);
        memcpy(segment, w.segment, sizeof segment); memcpy(skip, w.skip, sizeof skip);
        segment[3].saved_bytes += 64;
        { memopt_chain c = w.chain; c.segments = segment; c.skips = skip;
          CHECK_AT(memopt_tape_reshape(w.tape, &c) == MEMOPT_OK
              || memopt_tape_error(w.tape).status == MEMOPT_ERR_MEMORY, i); }
        memset(segment, 0x5A, sizeof segment); memset(skip, 0x5A, sizeof skip);
        CHECK_AT(memopt_tape_reshape(w.tape, &w.chain) == MEMOPT_OK && memopt_tape_get_stats(w.tape).solves <= 2, i);
        w.stream_count = 0;
        w.rig = &r;
        CHECK_AT(tape_watch_pass(&w) == MEMOPT_OK, i);
        memopt_tape_destroy(w.tape);
        tape_rig_close(&r);
        tape_watch_close(&w);
    }
}
static memopt_status tape_count_forward(const memopt_tape_call *s) {
    uint32_t x;
    memcpy(&x, s->input, 4);
    x += (uint32_t)s->segment;
    memcpy(s->output, &x, 4);
    return MEMOPT_OK;
}
static memopt_status tape_count_backward(const memopt_tape_call *s) { /* the gradient counts all inputs */
    uint32_t x, g;
    memcpy(&x, s->input, 4); memcpy(&g, s->grad_output, 4);
    g += 3 * x;
    memcpy(s->grad_input, &g, 4);
    return MEMOPT_OK;
}
static void tape_long(void) { /* as many segments as there can be */
    static memopt_segment segment[MEMOPT_CHAIN_MAX]; static memopt_tape_layer layer[MEMOPT_CHAIN_MAX];
    static const memopt_schedule_rule rules[3] = { MEMOPT_SCHEDULE_SQRT, MEMOPT_SCHEDULE_ALL, MEMOPT_SCHEDULE_EVERY };
    size_t i, k, n; memopt_tape_desc d; tape_rig r; memopt_tape *tape; uint32_t x, g, want, sum, got;
    memset(segment, 0, sizeof segment);
    for (i = 0; i < MEMOPT_CHAIN_MAX; ++i) {
        segment[i].output_bytes = segment[i].saved_bytes = segment[i].grad_bytes = 4;
        segment[i].forward_cost = segment[i].backward_cost = 1;
        layer[i].forward_fn = tape_count_forward; layer[i].backward_fn = tape_count_backward; layer[i].user = NULL;
    }
    for (k = 0; k < 3; ++k) {
        n = k ? 600 : MEMOPT_CHAIN_MAX;
        tape_rig_open(&r, 1 << 20, 0);
        memset(&d, 0, sizeof d);
        d.chain.segments = segment; d.chain.count = n; d.chain.input_bytes = d.chain.input_grad_bytes = 4;
        d.layers = layer; d.rule = rules[k]; d.every = 50; d.arena = r.arena;
        tape = NULL;
        CHECK_AT(memopt_tape_create(&d, &tape) == MEMOPT_OK, k);
        x = 5; g = 7; got = 0;
        for (i = 0, want = x, sum = g; i < n; ++i) { sum += 3 * want; want += (uint32_t)i; }
        CHECK_AT(memopt_tape_forward(tape, &x) == MEMOPT_OK, k);
        if (memopt_tape_output(tape)) memcpy(&got, memopt_tape_output(tape), 4);
        CHECK_AT(got == want, k);
        CHECK_AT(memopt_tape_backward(tape, &g, &got) == MEMOPT_OK && got == sum, k);
        CHECK_AT(tape_rig_peak(&r) == memopt_tape_get_stats(tape).peak && memopt_tape_get_stats(tape).peak > 0, k);
        memopt_tape_destroy(tape);
        tape_rig_close(&r);
    }
}

/* -- A network, trained with and without a tape -- */

enum { TAPE_LINEAR, TAPE_NORM, TAPE_BEND, TAPE_DROP, TAPE_OWN, TAPE_ADD, TAPE_HEAD };
enum { TAPE_PASSES = 512, TAPE_ROWS = 12, TAPE_WIDE = 48, TAPE_WEIGHTS = 10000, TAPE_STATS = 512, TAPE_IN = 20 };
typedef struct tape_net tape_net;
typedef struct tape_op { /* a layer: what it is, and where its weights and statistics lie */
    tape_net *net; int kind; size_t in, out, weights, stats, skip; /* skip: 1 + its index; 0 = none */
    /* what the first tape gave it in each pass */
    uint64_t seed[TAPE_PASSES], stream[TAPE_PASSES]; int known[TAPE_PASSES];
    uint64_t glued; int is_glued;               /* of that glue: the generator at the first run in this pass */
} tape_op;
struct tape_net {
    tape_op op[TAPE_MOST]; size_t count;
    memopt_segment segment[TAPE_MOST]; memopt_tape_layer layer[TAPE_MOST]; memopt_skip skip[TAPE_SKIPS]; memopt_chain chain;
    float weights[TAPE_WEIGHTS], grads[TAPE_WEIGHTS], stats[TAPE_STATS]; size_t weight_count, stat_count;
    uint64_t own, seed;                     /* the engine's own generator; step->seed */
    float x[TAPE_ROWS * TAPE_IN], target[TAPE_ROWS]; size_t rows;
    float gradient[TAPE_ROWS * TAPE_IN];    /* of x */
    uint64_t pass; size_t stopped, calls, fail_on, hooks, saves[TAPE_MOST], loads[TAPE_MOST];
    size_t   fail_drawn;                    /* the callback that fails when it has drawn */
    float    momentum[TAPE_WEIGHTS]; int fused; /* an optimizer within the backward of linear layers */
    int      glue;                          /* the engine itself puts its generator back: no hooks */
    uint64_t drawn;                         /* its generator after the last first run */
    memopt_threads threads;
    size_t   absent;                        /* skips at the end of the list that a part of the network has not */
};
typedef struct tape_work { const tape_op *op; const memopt_tape_call *step; } tape_work; /* what workers share */
static void tape_parallel(const tape_net *n, size_t chunks, memopt_task_fn *fn, tape_work *work) {
    size_t i;
    if (n->threads.run_fn) { n->threads.run_fn(n->threads.user, chunks, fn, work); return; }
    for (i = 0; i < chunks; ++i) fn(work, i, 0);
}
static void tape_linear_rows(void *task, size_t r, int worker) {
    const tape_op *op = ((const tape_work *)task)->op; const memopt_tape_call *s = ((const tape_work *)task)->step;
    size_t i, o;
    const float *x = (const float *)s->input + r * op->in, *w = op->net->weights + op->weights;
    float *y = (float *)s->output + r * op->out;
    (void)worker;
    for (o = 0; o < op->out; ++o) y[o] = w[op->in * op->out + o];
    for (i = 0; i < op->in; ++i) for (o = 0; o < op->out; ++o) y[o] += x[i] * w[i * op->out + o];
}
static void tape_linear_back(void *task, size_t r, int worker) {
    const tape_op *op = ((const tape_work *)task)->op; const memopt_tape_call *s = ((const tape_work *)task)->step;
    size_t i, o;
    const float *gy = (const float *)s->grad_output + r * op->out, *w = op->net->weights + op->weights;
    float *gx = (float *)s->grad_input + r * op->in;
    (void)worker;
    for (i = 0; i < op->in; ++i) { float sum = 0; for (o = 0; o < op->out; ++o) sum += gy[o] * w[i * op->out + o];
    gx[i] = sum; }
}
static void tape_linear_weights(void *task, size_t i, int worker) { /* a row of them; the last chunk is the bias */
    const tape_op *op = ((const tape_work *)task)->op; const memopt_tape_call *s = ((const tape_work *)task)->step;
    size_t r, o;
    float *g = op->net->grads + op->weights + i * op->out;
    (void)worker;
    for (r = 0; r < op->net->rows; ++r) {
        const float x = i < op->in ? ((const float *)s->input)[r * op->in + i] : 1,
            *gy = (const float *)s->grad_output + r * op->out;
        for (o = 0; o < op->out; ++o) g[o] += x * gy[o];
    }
}
static void tape_norm_column(void *task, size_t c, int worker) {
    const tape_op *op = ((const tape_work *)task)->op; const memopt_tape_call *s = ((const tape_work *)task)->step;
    size_t r; const size_t rows = op->net->rows;
    const float *x = (const float *)s->input, *w = op->net->weights + op->weights; float *y = (float *)s->output;
    float mean = 0, variance = 0, inverse, *running = op->net->stats + op->stats;
    (void)worker;
    for (r = 0; r < rows; ++r) mean += x[r * op->out + c] / (float)rows;
    for (r = 0; r < rows; ++r) variance += (x[r * op->out + c] - mean) * (x[r * op->out + c] - mean) / (float)rows;
    if (s->evaluating) { mean = running[c]; variance = running[op->out + c]; }
    else if (!s->is_recompute && !s->calibrating) { running[c] = 0.9f * running[c] + 0.1f * mean;
    running[op->out + c] = 0.9f * running[op->out + c] + 0.1f * variance; }
    inverse = 1 / sqrtf(variance + 1e-3f);
    if (s->saved) { ((float *)s->saved)[c] = mean; ((float *)s->saved)[op->out + c] = inverse; }
    if (!s->output_unused) for (r = 0; r < rows; ++r) y[r * op->out + c] = w[c] * (x[r * op->out + c] - mean) * inverse + w[op->out + c];
}
static void tape_norm_back(void *task, size_t c, int worker) {
    const tape_op *op = ((const tape_work *)task)->op; const memopt_tape_call *s = ((const tape_work *)task)->step;
    size_t r; const size_t rows = op->net->rows;
    const float *x = (const float *)s->input, *gy = (const float *)s->grad_output, *w = op->net->weights + op->weights;
    float *gx = (float *)s->grad_input;
    const float mean = ((const float *)s->saved)[c], inverse = ((const float *)s->saved)[op->out + c];
    float sum = 0, dot = 0, *g = op->net->grads + op->weights;
    (void)worker;
    for (r = 0; r < rows; ++r) { sum += gy[r * op->out + c];
    dot += gy[r * op->out + c] * (x[r * op->out + c] - mean) * inverse; }
    g[c] += dot; g[op->out + c] += sum;
    for (r = 0; r < rows; ++r)
        gx[r * op->out + c] = w[c] * inverse * (gy[r * op->out + c] - sum / (float)rows - (x[r * op->out + c] - mean) * inverse * dot / (float)rows);
}
static memopt_status tape_op_forward(const memopt_tape_call *s);
static memopt_status tape_op_backward(const memopt_tape_call *s);
static int tape_op_begin(const memopt_tape_call *s) { /* whether to fail */
    tape_op *op = (tape_op *)s->user; tape_net *n = op->net;
    if (++n->calls == n->fail_on) return tape_leave(MEMOPT_ERR_DEVICE) != MEMOPT_OK;
    if (s->evaluating || s->calibrating) return 0; /* a calibration's seeds are those of no pass */
    if (!op->known[n->pass]) { op->known[n->pass] = 1; op->stream[n->pass] = s->stream; op->seed[n->pass] = s->seed; }
    CHECK_AT(op->stream[n->pass] == s->stream && op->seed[n->pass] == s->seed, n->pass);
    return 0;
}
static int tape_heads(uint64_t *state) { /* the engine's own generator */
    *state ^= *state << 13; *state ^= *state >> 7; *state ^= *state << 17;
    return (*state >> 40 & 3) != 0;
}
static const float tape_dropped = 0.25f, tape_scaled = 1.25f; /* of dropout; a literal is a double where floats are */
static int tape_has_skip(const tape_op *op) {
    return op->skip && op->skip <= op->net->chain.skip_count - op->net->absent;
}
static memopt_status tape_op_forward(const memopt_tape_call *s) {
    tape_op *op = (tape_op *)s->user; tape_net *n = op->net; const size_t all = n->rows * op->out; size_t i;
    tape_work work;
    const float *x = (const float *)s->input; float *y = (float *)s->output;
    const float *other = tape_has_skip(op) ? (const float *)s->skips[op->skip - 1] : NULL; uint64_t present;
    if (tape_op_begin(s)) return MEMOPT_ERR_DEVICE;
    work.op = op; work.step = s;
    n->stopped += s->output_unused != 0;
    switch (op->kind) {
    case TAPE_LINEAR: if (!s->output_unused) tape_parallel(n, n->rows, tape_linear_rows, &work); break;
    case TAPE_NORM: tape_parallel(n, op->out, tape_norm_column, &work); break;
    case TAPE_BEND:
        if (!s->output_unused) for (i = 0; i < all; ++i) y[i] = x[i] / (1 + fabsf(x[i]));
        if (other) for (i = 0; i < all; ++i) ((float *)s->skips[op->skip - 1])[i] = x[i] / (1 + fabsf(x[i]));
        break;
    case TAPE_DROP:
        if (s->evaluating) { memcpy(y, x, all * 4); break; }
        if (s->output_unused) break;
        CHECK(memopt_random_uniform((float *)s->scratch, all, s->seed, s->stream, 0, &n->threads) == MEMOPT_OK);
        for (i = 0; i < all; ++i) y[i] = ((const float *)s->scratch)[i] < tape_dropped ? 0 : x[i] * tape_scaled;
        break;
    case TAPE_OWN:
        if (s->evaluating) { memcpy(y, x, all * 4); break; }
        present = n->own;
        if (n->glue && s->is_recompute) CHECK_AT(op->is_glued, s->segment);
        if (n->glue && s->is_recompute) n->own = op->glued;
        else { op->glued = present; op->is_glued = 1; }
        for (i = 0; i < all; ++i) {
            const int heads = tape_heads(&n->own);
            if (s->saved) ((unsigned char *)s->saved)[i] = (unsigned char)heads;
            if (!s->output_unused) y[i] = heads ? x[i] : 0;
        }
        if (n->calls == n->fail_drawn) return tape_leave(MEMOPT_ERR_IO);
        if (n->glue && (s->is_recompute || s->calibrating)) n->own = present;
        if (!s->is_recompute && !s->calibrating) n->drawn = n->own;
        break;
    case TAPE_ADD: if (!s->output_unused) for (i = 0; i < all; ++i) y[i] = x[i] + other[i]; break;
    default: { /* the loss, of the mean of each row */
        float loss = 0; size_t r;
        for (r = 0; r < n->rows; ++r) {
            float d = -n->target[r];
            for (i = 0; i < op->in; ++i) d += x[r * op->in + i];
            if (s->saved) ((float *)s->saved)[r] = d;
            loss += d * d / (float)n->rows;
        }
        y[0] = loss; } }
    return MEMOPT_OK;
}
static memopt_status tape_op_backward(const memopt_tape_call *s) {
    tape_op *op = (tape_op *)s->user; tape_net *n = op->net; const size_t all = n->rows * op->out; size_t i, r;
    tape_work work; uint64_t present;
    const float *x = (const float *)s->input, *gy = (const float *)s->grad_output; float *gx = (float *)s->grad_input;
    if (tape_op_begin(s)) return MEMOPT_ERR_DEVICE;
    work.op = op; work.step = s;
    switch (op->kind) {
    case TAPE_LINEAR:
        tape_parallel(n, op->in + 1, tape_linear_weights, &work);
        for (i = 0; n->fused && !s->calibrating && i < (op->in + 1) * op->out; ++i)
            n->momentum[op->weights + i] = 0.9f * n->momentum[op->weights + i] + n->grads[op->weights + i];
        if (gx) tape_parallel(n, n->rows, tape_linear_back, &work);
        break;
    case TAPE_NORM: tape_parallel(n, op->out, tape_norm_back, &work); break;
    case TAPE_BEND:
        for (i = 0; i < all; ++i) {
            const float d = 1 / (1 + fabsf(x[i])), more = tape_has_skip(op) && s->skip_grads[op->skip - 1]
                ? ((const float *)s->skip_grads[op->skip - 1])[i] : 0;
            gx[i] = (gy[i] + more) * d * d;
        }
        break;
    case TAPE_DROP:
        CHECK(memopt_random_uniform((float *)s->scratch, all, s->seed, s->stream, 0, &n->threads) == MEMOPT_OK);
        for (i = 0; i < all; ++i) gx[i] = ((const float *)s->scratch)[i] < tape_dropped ? 0 : gy[i] * tape_scaled;
        break;
    case TAPE_OWN:
        op->is_glued = 0;
        present = n->own;
        if (n->fused) (void)tape_heads(&n->own); /* of an optimizer that rounds at random */
        if (n->glue && s->calibrating) n->own = present;
        for (i = 0; i < all; ++i) gx[i] = ((const unsigned char *)s->saved)[i] ? gy[i] : 0;
        break;
    case TAPE_ADD: memcpy(gx, gy, all * 4); memcpy(s->skip_grads[op->skip - 1], gy, all * 4); break;
    default:
        for (r = 0; r < n->rows; ++r)
            for (i = 0; i < op->in; ++i) gx[r * op->in + i] = 2 * ((const float *)s->saved)[r] / (float)n->rows;
    }
    return MEMOPT_OK;
}
/* -- How it is put together -- */

static void tape_net_sizes(tape_net *n, size_t rows) {
    size_t i;
    n->rows = rows;
    for (i = 0; i < n->count; ++i) {
        const tape_op *op = &n->op[i]; memopt_segment *g = &n->segment[i];
        memset(g, 0, sizeof *g);
        g->output_bytes = g->saved_bytes = g->grad_bytes = rows * op->out * 4;
        g->forward_cost = (double)(rows * op->out * (op->kind == TAPE_LINEAR ? op->in : 1));
        g->backward_cost = 2 * g->forward_cost;
        if (op->kind == TAPE_NORM) g->saved_bytes += op->out * 8;
        if (op->kind == TAPE_DROP) g->forward_scratch = g->backward_scratch = rows * op->out * 4;
        if (op->kind == TAPE_OWN) g->saved_bytes += rows * op->out;
        if (op->kind == TAPE_HEAD) { g->output_bytes = 4; g->saved_bytes = 4 + rows * 4; g->grad_bytes = 0; }
        if (op->kind == TAPE_ADD) n->skip[op->skip - 1].bytes = n->skip[op->skip - 1].grad_bytes = rows * op->out * 4;
        n->layer[i].forward_fn = tape_op_forward; n->layer[i].backward_fn = tape_op_backward;
        n->layer[i].user = &n->op[i];
    }
    n->chain.segments = n->segment; n->chain.count = n->count; n->chain.skips = n->skip;
    n->chain.input_bytes = n->chain.input_grad_bytes = rows * TAPE_IN * 4;
}
/* Layers by a letter: L with its width, N, B, D, O, + and H; lower case l uses the weights of the last L of its shape, b
   also gives its output to the + that closes the last open one. */
static void tape_net_make(tape_net *n, const char *layers) {
    size_t width = TAPE_IN, open[TAPE_SKIPS], depth = 0, i; const char *p = layers;
    memset(n, 0, sizeof *n);
    n->seed = 11;
    while (*p) {
        tape_op *op = &n->op[n->count]; const char letter = *p++;
        op->net = n; op->in = op->out = width;
        if (letter == 'L' || letter == 'l') {
            op->kind = TAPE_LINEAR;
            for (width = 0; *p >= '0' && *p <= '9'; ++p) width = 10 * width + (size_t)(*p - '0');
            op->out = width;
            op->weights = n->weight_count;
            for (i = 0; letter == 'l' && i < n->count; ++i)
                if (n->op[i].kind == TAPE_LINEAR && n->op[i].in == op->in
                    && n->op[i].out == op->out) op->weights = n->op[i].weights;
            if (op->weights == n->weight_count) n->weight_count += (op->in + 1) * op->out;
        }
        if (letter == 'N') {
            op->kind = TAPE_NORM; op->weights = n->weight_count; op->stats = n->stat_count;
            n->weight_count += 2 * width; n->stat_count += 2 * width;
        }
        if (letter == 'B' || letter == 'b') op->kind = TAPE_BEND;
        if (letter == 'b') { op->skip = ++n->chain.skip_count; n->skip[op->skip - 1].from = n->count;
        open[depth++] = op->skip; }
        if (letter == 'D') op->kind = TAPE_DROP;
        if (letter == 'O') op->kind = TAPE_OWN;
        if (letter == '+') { op->kind = TAPE_ADD; op->skip = open[--depth]; n->skip[op->skip - 1].to = n->count; }
        if (letter == 'H') { op->kind = TAPE_HEAD; op->out = width = 1; }
        ++n->count;
    }
    CHECK(n->count <= TAPE_MOST && n->weight_count <= TAPE_WEIGHTS && n->stat_count <= TAPE_STATS && !depth);
    tape_net_sizes(n, TAPE_ROWS);
}
static const char *const tape_nets[2] = { "L32NBDL17Bl17NOl17BL48NBDL5BH", "L40bL16NbL8DL16+BL40N+BL3H" };
static void tape_net_start(tape_net *n) { /* the same weights every time */
    uint64_t seed = 5; size_t i;
    for (i = 0; i < n->weight_count; ++i) n->weights[i] = ((float)(test_random(&seed) >> 40) / 8388608.0f - 1) * 0.3f;
    memset(n->grads, 0, sizeof n->grads); memset(n->stats, 0, sizeof n->stats);
    for (i = 0; i < n->count; ++i) {
        size_t k;
        if (n->op[i].kind == TAPE_NORM) for (k = 0; k < n->op[i].out; ++k) n->weights[n->op[i].weights + k] = 1;
    }
    memset(n->momentum, 0, sizeof n->momentum);
    n->own = 1; n->pass = 0; n->drawn = 1;
}
static void tape_net_feed(tape_net *n) {
    uint64_t seed = n->pass + 77; size_t i, r;
    for (i = 0; i < n->rows * TAPE_IN; ++i) n->x[i] = (float)(test_random(&seed) >> 40) / 8388608.0f - 1;
    for (r = 0; r < n->rows; ++r) n->target[r] = n->x[r * TAPE_IN] + n->x[r * TAPE_IN + 3] * n->x[r * TAPE_IN + 7];
}
static float *tape_block(size_t bytes) {
    float *p = (float *)malloc(bytes + 8);
    if (!p) { printf("no memory for the test\n"); exit(1); }
    memset(p, 0xA5, bytes + 8);
    return p;
}
/* What a lossy codec makes of floats. 8 bits: the signed map, a block's largest element at its level 1, so that
   rounding again changes nothing: as it has no level -1, a block that has only -1 is kept with the other sign. */
static void tape_round_block(float *x, size_t n) { /* at most 256 */
    uint8_t codes[256]; float scale = 0; int turn; size_t i;
    for (turn = 0; turn < 2; ++turn) {
        CHECK(memopt_quantize_f32(codes, &scale, x, n, MEMOPT_QUANT_SIGNED, 256, NULL) == MEMOPT_OK);
        if (memchr(codes, 255, n) || scale == 0) break;
        for (i = 0; i < n; ++i) x[i] = -x[i];
    }
    CHECK(memopt_dequantize_f32(x, codes, &scale, n, MEMOPT_QUANT_SIGNED, 256, NULL) == MEMOPT_OK);
    for (i = 0; i < n && turn; ++i) x[i] = -x[i];
}
static void tape_round(float *x, size_t n, memopt_codec keep) {
    size_t i; uint16_t half[256];
    for (i = 0; i < n; i += 256) {
        const size_t some = n - i < 256 ? n - i : 256;
        if (keep == MEMOPT_CODEC_BF16) CHECK(!memopt_bf16_from_f32(half, x + i, some, NULL)
            && !memopt_f32_from_bf16(x + i, half, some, NULL));
        if (keep == MEMOPT_CODEC_8BIT) tape_round_block(x + i, some);
    }
}
/* A pass without a tape. Returns the loss; evaluating: the forward only. */
static float tape_plain_pass(tape_net *n, memopt_codec keep, int evaluating) {
    float *value[TAPE_MOST + 1], *saved[TAPE_MOST], *grad[TAPE_MOST + 1], *scratch, loss;
    void *skips[TAPE_SKIPS], *skip_grads[TAPE_SKIPS]; size_t i;
    memopt_tape_call s;
    memset(&s, 0, sizeof s);
    scratch = tape_block(TAPE_ROWS * TAPE_WIDE * 4);
    value[0] = n->x; grad[0] = n->gradient;
    for (i = 0; i < n->chain.skip_count; ++i) { skips[i] = tape_block(n->skip[i].bytes);
    skip_grads[i] = tape_block(n->skip[i].grad_bytes); }
    for (i = 0; i < n->count; ++i) {
        value[i + 1] = tape_block(n->segment[i].output_bytes); saved[i] = tape_block(n->segment[i].saved_bytes);
        grad[i + 1] = tape_block(n->segment[i].grad_bytes);
        s.user = &n->op[i]; s.segment = i; s.evaluating = evaluating; s.input = value[i]; s.output = value[i + 1];
        s.saved = evaluating ? NULL : saved[i];
        s.scratch = scratch; s.skips = skips; s.skip_grads = skip_grads; s.seed = n->op[i].seed[n->pass];
        s.stream = n->op[i].stream[n->pass];
        CHECK(tape_op_forward(&s) == MEMOPT_OK);
        if (i + 1 < n->count) tape_round(value[i + 1], n->segment[i].output_bytes / 4, keep);
    }
    loss = value[n->count][0];
    for (i = n->count; i-- > 0 && !evaluating;) {
        s.user = &n->op[i]; s.segment = i; s.input = value[i]; s.output = value[i + 1]; s.saved = saved[i];
        s.seed = n->op[i].seed[n->pass]; s.stream = n->op[i].stream[n->pass];
        s.grad_output = n->segment[i].grad_bytes ? grad[i + 1] : NULL; s.grad_input = grad[i];
        CHECK(tape_op_backward(&s) == MEMOPT_OK);
    }
    for (i = 0; i < n->count; ++i) { free(value[i + 1]); free(saved[i]); free(grad[i + 1]); }
    for (i = 0; i < n->chain.skip_count; ++i) { free(skips[i]); free(skip_grads[i]); }
    free(scratch);
    return loss;
}
static float tape_tape_pass(tape_net *n, memopt_tape *tape) {
    float loss = 0;
    CHECK_AT(memopt_tape_forward(tape, n->x) == MEMOPT_OK, n->pass);
    if (memopt_tape_output(tape)) memcpy(&loss, memopt_tape_output(tape), 4);
    else CHECK_AT(memopt_tape_output(tape) != NULL, n->pass);
    CHECK_AT(memopt_tape_backward(tape, NULL, n->gradient) == MEMOPT_OK, n->pass);
    return loss;
}
typedef struct tape_training { /* how, and what came of it */
    size_t steps, micro;         /* passes into each step, at least 1 */
    int evaluates, reshapes;     /* between steps; rows change from pass to pass */
    memopt_codec codec;
    uint64_t hash;               /* of all losses, gradients and statistics */
    float first, last;
} tape_training;
static void tape_hash(uint64_t *hash, const void *bytes, size_t count) {
    const unsigned char *p = (const unsigned char *)bytes; size_t i; uint32_t word;
    for (i = 0; i + 4 <= count; i += 4) { memcpy(&word, p + i, 4);
    *hash = (*hash ^ word) * UINT64_C(0x100000001b3) + (*hash >> 47); }
}
static void tape_update(tape_net *n) {
    size_t i;
    for (i = 0; i < n->weight_count; ++i) n->weights[i] -= 0.01f * n->grads[i];
    memset(n->grads, 0, sizeof n->grads);
}
/* Train a network as it stands: with a tape, or without one. */
static void tape_train(tape_net *n, memopt_tape *tape, tape_training *t) {
    static const size_t rows[8] = { 12, 5, 12, 1, 7, 5, 12, 7 }; size_t step, m; float loss = 0, seen = 0;
    for (step = 0; step < t->steps; ++step) {
        for (m = 0; m < t->micro; ++m, ++n->pass) {
            if (t->reshapes) {
                tape_net_sizes(n, rows[n->pass % 8]);
                if (tape) CHECK_AT(memopt_tape_reshape(tape, &n->chain) == MEMOPT_OK, n->pass);
            }
            tape_net_feed(n);
            loss = tape ? tape_tape_pass(n, tape) : tape_plain_pass(n, t->codec, 0);
            if (!step && !m) t->first = loss;
            tape_hash(&t->hash, &loss, 4);
            tape_hash(&t->hash, n->gradient, n->rows * TAPE_IN * 4);
            if (!t->evaluates) continue;
            if (tape) CHECK(memopt_tape_evaluate(tape, n->x, &seen) == MEMOPT_OK);
            else seen = tape_plain_pass(n, t->codec, 1);
            tape_hash(&t->hash, &seen, 4);
        }
        tape_hash(&t->hash, n->grads, n->weight_count * 4);
        tape_hash(&t->hash, n->stats, n->stat_count * 4);
        tape_hash(&t->hash, &n->own, 8);
        tape_update(n);
    }
    t->last = loss;
}
static void tape_own_save(void *user, size_t segment, void *state) {
    tape_net *n = (tape_net *)user;
    CHECK(segment < n->count);
    ++n->hooks; ++n->saves[segment];
    memcpy(state, &n->own, 8);
}
static void tape_own_load(void *user, size_t segment, const void *state) {
    tape_net *n = (tape_net *)user;
    CHECK(segment < n->count);
    ++n->hooks; ++n->loads[segment];
    memcpy(&n->own, state, 8);
}
static memopt_tape_desc tape_net_desc(tape_net *n, memopt_arena *arena) {
    memopt_tape_desc d;
    memset(&d, 0, sizeof d);
    d.chain = n->chain; d.layers = n->layer; d.slots = TAPE_SLOTS; d.seed = n->seed; d.arena = arena;
    d.random_bytes = 8; d.random_save_fn = tape_own_save; d.random_load_fn = tape_own_load; d.random_user = n;
    return d;
}
/* from the beginning, with a tape of its own */
static tape_training tape_trained_with(tape_net *n, const memopt_tape_desc *like, tape_training t) {
    tape_rig r; memopt_tape_desc d = *like; memopt_tape *tape = NULL; memopt_tape_stats s;
    tape_rig_open(&r, 400000, 0);
    d.arena = r.arena;
    tape_net_start(n);
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
    t.hash = 1;
    if (tape) {
        s = memopt_tape_get_stats(tape);
        CHECK(!d.budget || s.peak <= d.budget);
        tape_train(n, tape, &t);
        CHECK(t.evaluates || t.reshapes || tape_rig_peak(&r) == s.peak);
        CHECK(memopt_tape_get_stats(tape).passes == t.steps * t.micro);
    }
    memopt_tape_destroy(tape);
    tape_rig_close(&r);
    return t;
}
static tape_training tape_trained_plainly(tape_net *n, tape_training t) {
    tape_net_start(n);
    t.hash = 1;
    tape_train(n, NULL, &t);
    return t;
}
static tape_training tape_steps(size_t steps, size_t micro) {
    tape_training t;
    memset(&t, 0, sizeof t);
    t.steps = steps; t.micro = micro;
    return t;
}
static void tape_trained(void) { /* every schedule, 100 steps */
    static tape_net n; size_t i, k;
    for (k = 0; k < 4; ++k) {
        tape_training plain, t = tape_steps(k == 0 ? TAPE_MANY : k == 1 ? TAPE_FEW : 8, k < 2 ? 1 : 3);
        memopt_tape_desc d;
        tape_net_make(&n, tape_nets[k % 2]);
        t.evaluates = k == 3;
        for (i = 0; i < TAPE_VARIANTS; ++i) {
            tape_training with;
            if (test_is_passed_over() && i && i != 6) continue; /* as is, and with the smallest budget */
            tape_net_sizes(&n, TAPE_ROWS);
            d = tape_net_desc(&n, NULL);
            tape_variant(&d, i);
            with = tape_trained_with(&n, &d, t);
            if (!i) plain = tape_trained_plainly(&n, t); /* with the streams that the first tape gave */
            CHECK_AT(with.hash == plain.hash, 100 * k + i);
        }
        CHECK((t.steps < 20 || (double)plain.last < 0.7 * (double)plain.first) && n.stopped > 0 && n.hooks > 0); /* it learned */
    }
}
/* A recompute that fails leaves the engine's generator where the forward of the pass left it. */
static void tape_generator_put_back(void) {
    static tape_net n; size_t i, at, forwards, calls, failed = 0;
    tape_net_make(&n, tape_nets[0]);
    for (i = 0; i < TAPE_VARIANTS; ++i) {
        tape_rig r; memopt_tape_desc d; memopt_tape *tape = NULL; uint64_t own;
        tape_rig_open(&r, 400000, 0);
        d = tape_net_desc(&n, r.arena);
        tape_variant(&d, i);
        memset(n.op[0].known, 0, sizeof n.op[0].known);
        tape_net_start(&n); tape_net_feed(&n);
        CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
        n.calls = n.fail_on = 0;
        CHECK(memopt_tape_forward(tape, n.x) == MEMOPT_OK);
        forwards = n.calls;
        CHECK(memopt_tape_backward(tape, NULL, n.gradient) == MEMOPT_OK);
        calls = n.calls;
        for (at = forwards + 1; at <= calls; ++at) {
            n.pass = at;
            n.calls = 0; n.fail_on = at;
            CHECK_AT(memopt_tape_forward(tape, n.x) == MEMOPT_OK, at);
            own = n.own;
            CHECK_AT(memopt_tape_backward(tape, NULL, n.gradient) == MEMOPT_ERR_DEVICE, at);
            CHECK_AT(n.own == own, at);
            ++failed;
        }
        n.fail_on = 0;
        memopt_tape_destroy(tape);
        tape_rig_close(&r);
    }
    CHECK(failed > 100);
}
/* nothing is saved when nobody asks; without a dropout of its own nothing is missing */
static void tape_without_hooks(void) {
    static tape_net n; size_t i; tape_training plain = tape_steps(10, 1);
    tape_net_make(&n, "L32NBDL17BL17NBDL20BL5BH");
    for (i = 0; i < TAPE_VARIANTS; i += 5) {
        memopt_tape_desc d = tape_net_desc(&n, NULL); tape_training with;
        d.random_bytes = 0; d.random_save_fn = NULL; d.random_load_fn = NULL;
        tape_variant(&d, i);
        with = tape_trained_with(&n, &d, tape_steps(10, 1));
        if (!i) plain = tape_trained_plainly(&n, tape_steps(10, 1));
        CHECK_AT(with.hash == plain.hash, i);
    }
    CHECK(n.hooks == 0);
}
/* from the last to the first, workers in turn */
static void tape_shuffled(void *user, size_t chunks, memopt_task_fn *fn, void *task) {
    size_t i;
    for (i = chunks; i-- > 0;) fn(task, i, (int)(i % *(const size_t *)user));
}
static void tape_workers(void) { /* 1 to 8, in another order, and threads that are real */
    static tape_net n; size_t workers, i; tape_training plain = tape_steps(12, 1); memopt_host h;
    tape_net_make(&n, tape_nets[0]);
    for (workers = 1; workers <= 8; ++workers)
        for (i = 0; i < TAPE_VARIANTS; i += 5) {
            memopt_tape_desc d; memopt_thread_pool *pool = NULL; tape_training with;
            memset(&n.threads, 0, sizeof n.threads);
            memset(&h, 0, sizeof h);
            n.threads.run_fn = tape_shuffled; n.threads.user = &workers; n.threads.worker_count = (int)workers;
#ifdef MEMOPT_PTHREADS
            CHECK(memopt_thread_pool_create(NULL, (int)workers, &pool) == MEMOPT_OK);
            n.threads = memopt_thread_pool_threads(pool);
#endif
            h.threads = n.threads;
            d = tape_net_desc(&n, NULL);
            d.host = &h;
            tape_variant(&d, i);
            d.host = &h;
            with = tape_trained_with(&n, &d, tape_steps(12, 1));
            if (workers == 1 && !i) { memset(&n.threads, 0, sizeof n.threads);
            plain = tape_trained_plainly(&n, tape_steps(12, 1)); }
            CHECK_AT(with.hash == plain.hash, workers * 100 + i);
            memopt_thread_pool_destroy(pool);
        }
}
static void tape_reshaped(void) { /* other numbers of rows, and back */
    static tape_net n; size_t i, k; tape_rig r;
    for (k = 0; k < 2; ++k) {
        tape_training plain = tape_steps(40, 1), t = tape_steps(40, 1);
        tape_net_make(&n, tape_nets[k]);
        plain.reshapes = t.reshapes = 1;
        /* a budget of many rows is another thing with few */
        for (i = 0; i < TAPE_VARIANTS; i = i < 6 ? i + 1 : i == 6 ? 6 + 3 * TAPE_POINTS : i + 1) {
            memopt_tape_desc d; memopt_tape *tape = NULL; memopt_tape_stats s; size_t most;
            tape_net_sizes(&n, TAPE_ROWS);
            d = tape_net_desc(&n, NULL);
            tape_variant(&d, i);
            d.shapes = i % 3 == 0 ? 0 : i % 3 == 1 ? 4 : 2;
            tape_rig_open(&r, 400000, 0);
            d.arena = r.arena;
            tape_net_start(&n);
            CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
            s = memopt_tape_get_stats(tape);
            most = s.peak;
            t.hash = 1;
            tape_train(&n, tape, &t);
            if (!i) { tape_net_sizes(&n, TAPE_ROWS); plain = tape_trained_plainly(&n, plain); }
            CHECK_AT(t.hash == plain.hash, i);
            if (d.shapes != 2) CHECK_AT(memopt_tape_get_stats(tape).solves == 4, i); /* 12, 5, 1 and 7 rows */
            else CHECK_AT(memopt_tape_get_stats(tape).solves > 4, i);
            tape_net_sizes(&n, TAPE_ROWS);
            CHECK_AT(memopt_tape_reshape(tape, &n.chain) == MEMOPT_OK && memopt_tape_get_stats(tape).peak == most, i);
            CHECK_AT(memopt_tape_get_stats(tape).cost == s.cost && memopt_tape_get_stats(tape).actions == s.actions, i);
            /* of the textbook's schedules most rows take most */
            CHECK_AT(tape_rig_peak(&r) == most || d.budget || i >= 6, i);
            memopt_tape_destroy(tape);
            tape_rig_close(&r);
        }
    }
}
static void tape_bad_shapes(void) { /* refused, and the tape is as before */
    static tape_net n; tape_rig r; memopt_tape_desc d; memopt_tape *tape = NULL; memopt_tape_stats s, t;
    memopt_chain c; memopt_segment g[TAPE_MOST]; size_t least = 0, i; float loss;
    tape_net_make(&n, tape_nets[0]);
    tape_rig_open(&r, 400000, 0);
    d = tape_net_desc(&n, r.arena);
    CHECK(memopt_tape_min_budget(&d, &least) == MEMOPT_OK);
    d.budget = least;
    tape_net_start(&n);
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
    tape_net_feed(&n);
    loss = tape_tape_pass(&n, tape);
    s = memopt_tape_get_stats(tape);
    for (i = 0; i < 8; ++i) {
        memopt_status want = MEMOPT_ERR_ARGUMENT; memopt_skip skip = { 1, 3, 64, 64 };
        memcpy(g, n.segment, sizeof g);
        c = n.chain; c.segments = g;
        switch (i) {
        case 0: c.count += 1; break;
        case 1: g[3].saved_bytes = g[3].output_bytes - 4; break;
        case 2: g[1].forward_cost = -1; break;
        case 3: g[2].saved_bytes += 1000000; want = MEMOPT_ERR_MEMORY; break;
        case 4: g[2].saved_bytes = SIZE_MAX; want = MEMOPT_ERR_OVERFLOW; break;
        case 5: c.segments = NULL; break;
        case 6: c.skips = &skip; c.skip_count = 1; break;
        default: c.count = 0; break;
        }
        CHECK_AT(memopt_tape_reshape(tape, &c) == want, i);
        CHECK_AT(memopt_tape_error(tape).status == want, i);
        t = memopt_tape_get_stats(tape);
        CHECK_AT(t.peak == s.peak && t.cost == s.cost && t.solves == s.solves && t.actions == s.actions, i);
        ++n.pass;
        tape_net_feed(&n);
        loss = tape_tape_pass(&n, tape);
        CHECK(loss == loss && tape_rig_is_clean(&r));
    }
    CHECK(memopt_tape_reshape(tape, NULL) == MEMOPT_ERR_ARGUMENT);
    memopt_tape_destroy(tape);
    tape_rig_close(&r);
}
/* A run that is interrupted, by failures and by its end, gets the same bits as one that is not. */
static void tape_resumed(void) {
    static tape_net n, kept; size_t i, pass, calls; tape_training plain = tape_steps(12, 1);
    tape_net_make(&n, tape_nets[0]);
    for (i = 0; i < TAPE_VARIANTS; i += 4) {
        tape_rig r; memopt_tape_desc d; memopt_tape *tape = NULL; uint64_t hash = 1; float loss = 0; tape_training with;
        tape_net_sizes(&n, TAPE_ROWS);
        d = tape_net_desc(&n, NULL);
        tape_variant(&d, i);
        if (!i) { with = tape_trained_with(&n, &d, tape_steps(12, 1));
        plain = tape_trained_plainly(&n, tape_steps(12, 1)); CHECK(with.hash == plain.hash); }
        tape_rig_open(&r, 400000, 0);
        d.arena = r.arena;
        tape_net_start(&n);
        CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
        for (pass = 0; pass < 12; ++pass, ++n.pass) {
            memopt_status status;
            tape_net_feed(&n);
            kept = n;
            if (pass % 3 == 1) { /* a callback fails; the engine takes its own things back */
                n.calls = 0; n.fail_on = 1 + pass * 5 % 28;
                status = memopt_tape_forward(tape, n.x);
                if (!status) status = memopt_tape_backward(tape, NULL, n.gradient);
                CHECK_AT(status == MEMOPT_ERR_DEVICE && tape_rig_is_clean(&r), pass);
                calls = n.calls;
                CHECK(calls == n.fail_on);
                n = kept;
            }
            if (pass % 3 == 2) { /* a forward that is given up */
                CHECK(memopt_tape_forward(tape, n.x) == MEMOPT_OK && memopt_tape_cancel(tape) == MEMOPT_OK);
                n = kept;
            }
            if (pass == 6) { /* another process */
                memopt_tape_destroy(tape);
                CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
            }
            CHECK(pass < 6 || memopt_tape_seek(tape, pass) == MEMOPT_OK);
            loss = tape_tape_pass(&n, tape);
            tape_hash(&hash, &loss, 4);
            tape_hash(&hash, n.gradient, n.rows * TAPE_IN * 4);
            tape_hash(&hash, n.grads, n.weight_count * 4);
            tape_hash(&hash, n.stats, n.stat_count * 4);
            tape_hash(&hash, &n.own, 8);
            tape_update(&n);
        }
        CHECK_AT(hash == plain.hash, i);
        CHECK(memopt_tape_get_stats(tape).passes >= 6);
        memopt_tape_destroy(tape);
        tape_rig_close(&r);
    }
}
static void tape_seed(void) { /* streams: none twice, the same for the same pass; the seed is the engine's */
    static tape_net n; tape_rig r; memopt_tape_desc d; memopt_tape *tape = NULL; size_t p, i, q, k;
    tape_net_make(&n, "L8DBH");
    tape_rig_open(&r, 400000, 0);
    d = tape_net_desc(&n, r.arena);
    tape_net_start(&n);
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
    for (p = 0; p < 40; ++p, ++n.pass) { tape_net_feed(&n); (void)tape_tape_pass(&n, tape); }
    for (p = 0; p < 40; ++p) for (i = 0; i < 4; ++i)
        for (q = p; q < 40; ++q) for (k = q == p ? i + 1 : 0; k < 4;
        ++k) CHECK_AT(n.op[i].stream[p] != n.op[k].stream[q], p * 100 + q);
    for (p = 40; p-- > 0;) { n.pass = p; tape_net_feed(&n); CHECK(memopt_tape_seek(tape, p) == MEMOPT_OK);
    (void)tape_tape_pass(&n, tape); }
    CHECK(memopt_tape_seek(tape, UINT64_MAX) == MEMOPT_OK);
    n.pass = 50;
    (void)tape_tape_pass(&n, tape);
    memopt_tape_destroy(tape);
    tape_rig_close(&r);
}

/* -- A tape as a segment of another -- */

/* Segments from..to - 1 become one, a tape of their own. */
static memopt_tape *tape_fold(tape_net *n, memopt_segment *segment, memopt_tape_layer *layer, size_t *count, size_t from,
    size_t to, size_t variant) {
    memopt_tape_desc d = tape_net_desc(n, NULL); memopt_tape *tape = NULL; memopt_segment g; memopt_tape_layer l;
    const size_t out = segment[to - 1].output_bytes, grad = segment[to - 1].grad_bytes;
    d.random_bytes = 0; d.random_save_fn = NULL; d.random_load_fn = NULL;
    d.chain.segments = segment + from; d.chain.count = to - from; d.layers = layer + from; d.chain.skip_count = 0;
    d.chain.input_bytes = d.chain.input_grad_bytes = from ? segment[from - 1].output_bytes : n->chain.input_bytes;
    tape_variant(&d, variant);
    CHECK_AT(memopt_tape_create(&d, &tape) == MEMOPT_OK, variant);
    memset(&g, 0x5A, sizeof g);
    CHECK_AT(memopt_tape_nest(tape, &g, &l) == MEMOPT_OK, variant);
    CHECK_AT(g.output_bytes == out && g.grad_bytes == grad && g.saved_bytes >= out && g.copy_bytes == 0, variant);
    CHECK_AT(g.forward_cost > 0 && g.backward_cost > 0 && l.forward_fn && l.backward_fn, variant);
    CHECK_AT(g.backward_scratch >= memopt_tape_get_stats(tape).peak, variant);
    segment[from] = g; layer[from] = l;
    memmove(segment + from + 1, segment + to, (*count - to) * sizeof *segment);
    memmove(layer + from + 1, layer + to, (*count - to) * sizeof *layer);
    *count -= to - from - 1;
    return tape;
}
/* nobody wants the input's gradient: the same weights' gradients */
static void tape_ungraded(tape_net *n, memopt_tape_desc d) {
    tape_rig r; memopt_tape *tape = NULL; float loss; uint64_t hash[2] = { 1, 1 }; size_t i;
    for (i = 0; i < 2; ++i) {
        tape_rig_open(&r, 400000, 0);
        d.arena = r.arena; d.chain.input_grad_bytes = i ? 0 : n->chain.input_bytes;
        tape_net_start(n);
        tape_net_feed(n);
        CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK && memopt_tape_forward(tape, n->x) == MEMOPT_OK);
        if (memopt_tape_output(tape)) { memcpy(&loss, memopt_tape_output(tape), 4); tape_hash(&hash[i], &loss, 4); }
        CHECK(memopt_tape_backward(tape, NULL, i ? NULL : n->gradient) == MEMOPT_OK);
        tape_hash(&hash[i], n->grads, n->weight_count * 4);
        memopt_tape_destroy(tape);
        tape_rig_close(&r);
    }
    CHECK(hash[0] == hash[1] && hash[0] != 1);
}
static void tape_nested(void) {
    static tape_net n; size_t inner, outer, shape; tape_training plain = tape_steps(15, 2);
    for (shape = 0; shape < 5; ++shape)
        for (inner = 0; inner < TAPE_VARIANTS; inner += 3)
            for (outer = 0; outer < TAPE_VARIANTS; outer += inner % 2 || shape ? 8 : 4) {
                memopt_tape_desc d; memopt_tape *tape[2] = { NULL, NULL }; memopt_segment segment[TAPE_MOST];
                memopt_tape_layer layer[TAPE_MOST]; size_t count; tape_training with, t = tape_steps(15, 2);
                if (test_is_passed_over() && (inner || outer)) continue; /* the first of a shape makes what the others are compared with */
                t.evaluates = 1;
                if (!inner && !outer) tape_net_make(&n, "L32NBDL17BL17NDBL20NBDL5BH");
                count = n.count;
                memcpy(segment, n.segment, sizeof segment); memcpy(layer, n.layer, sizeof layer);
                if (shape == 0) tape[0] = tape_fold(&n, segment, layer, &count, 4, 13, inner);
                if (shape == 1) tape[0] = tape_fold(&n, segment, layer, &count, 9, count, inner); /* with the loss */
                if (shape == 4) tape[0] = tape_fold(&n, segment, layer, &count, 0, 5, inner);     /* the first */
                if (shape == 2 || shape == 3) tape[0] = tape_fold(&n, segment, layer, &count, 6, 9, inner);
                if (shape == 2) tape[1] = tape_fold(&n, segment, layer, &count, 9, 12, inner);    /* two of them */
                if (shape == 3) tape[1] = tape_fold(&n, segment, layer, &count, 2, 10, inner);    /* one in the other */
                d = tape_net_desc(&n, NULL);
                d.random_bytes = 0; d.random_save_fn = NULL; d.random_load_fn = NULL;
                d.chain.segments = segment; d.chain.count = count; d.layers = layer;
                tape_variant(&d, outer);
                with = tape_trained_with(&n, &d, t);
                if (!inner && !outer) plain = tape_trained_plainly(&n, t);
                CHECK_AT(with.hash == plain.hash, shape * 10000 + inner * 100 + outer);
                CHECK_AT(memopt_tape_get_stats(tape[0]).passes == 30, shape * 10000 + inner * 100 + outer);
                if (shape == 4 && !outer) tape_ungraded(&n, d);
                memopt_tape_destroy(tape[1]);
                memopt_tape_destroy(tape[0]);
            }
    CHECK(plain.last < plain.first);
}
static void tape_nested_failures(void) { /* each callback, inside and outside */
    static tape_net n, before; memopt_tape_desc id, d; memopt_tape *inner = NULL, *tape = NULL;
    memopt_segment segment[6]; memopt_tape_layer layer[6]; tape_rig r; size_t i, calls; float loss, again;
    tape_net_make(&n, "L20BNDBL8BH");
    tape_rig_open(&r, 400000, 0);
    id = tape_net_desc(&n, NULL);
    id.chain.segments = n.segment + 1; id.chain.count = 4; id.layers = n.layer + 1; id.random_bytes = 0;
    id.random_save_fn = NULL; id.random_load_fn = NULL;
    id.chain.input_bytes = id.chain.input_grad_bytes = n.segment[0].output_bytes;
    id.rule = MEMOPT_SCHEDULE_NONE;
    CHECK(memopt_tape_create(&id, &inner) == MEMOPT_OK);
    segment[0] = n.segment[0]; layer[0] = n.layer[0];
    CHECK(memopt_tape_nest(inner, &segment[1], &layer[1]) == MEMOPT_OK);
    for (i = 5; i < 8; ++i) { segment[i - 3] = n.segment[i]; layer[i - 3] = n.layer[i]; }
    d = tape_net_desc(&n, r.arena);
    d.chain.segments = segment; d.chain.count = 5; d.layers = layer; d.rule = MEMOPT_SCHEDULE_NONE;
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
    tape_net_start(&n);
    tape_net_feed(&n);
    before = n;
    loss = tape_tape_pass(&n, tape);
    calls = n.calls;
    CHECK(calls > 16);
    for (i = 1; i <= calls; ++i) {
        memopt_status status; uint64_t bits[2] = { 1, 1 }; static tape_net good;
        if (i == 1) good = n;
        n = before;
        CHECK(memopt_tape_seek(tape, 0) == MEMOPT_OK);
        memcpy(n.op, good.op, sizeof n.op);
        n.fail_on = i;
        status = memopt_tape_forward(tape, n.x);
        if (!status) status = memopt_tape_backward(tape, NULL, n.gradient);
        CHECK_AT(status == MEMOPT_ERR_DEVICE && n.calls == i && tape_rig_is_clean(&r), i);
        n = before;
        memcpy(n.op, good.op, sizeof n.op);
        again = tape_tape_pass(&n, tape);
        tape_hash(&bits[0], n.grads, n.weight_count * 4); tape_hash(&bits[1], good.grads, n.weight_count * 4);
        CHECK_AT(loss == again && bits[0] == bits[1] && !memcmp(n.stats, good.stats, sizeof n.stats), i);
    }
    memopt_tape_destroy(tape);
    memopt_tape_destroy(inner);
    tape_rig_close(&r);
}

/* -- Outputs kept in fewer bytes -- */

static void tape_kept_smaller(void) {
    static tape_net n; size_t i, k; int keep;
    for (k = 0; k < 2; ++k) {
        tape_training exact = tape_steps(30, 1); size_t least[3] = { 0, 0, 0 }, held[3] = { 0, 0, 0 }, peak[3] = {
            0, 0, 0 };
        tape_net_make(&n, k ? tape_nets[1] : "L32NBDL17BL48NBBDL48BL48BL5BH");
        for (keep = MEMOPT_CODEC_EXACT; keep <= MEMOPT_CODEC_8BIT; ++keep) {
            tape_training plain = tape_steps(30, 1), t = tape_steps(30, 1); memopt_tape_desc d;
            plain.codec = t.codec = (memopt_codec)keep;
            for (i = 0; i < TAPE_VARIANTS; i += 2) {
                tape_training with;
                if (test_is_passed_over() && i && i != 6) continue; /* of these two more is asked below */
                d = tape_net_desc(&n, NULL);
                d.codec = (memopt_codec)keep;
                tape_variant(&d, i);
                if (i == 6) { CHECK(memopt_tape_min_budget(&d, &least[keep]) == MEMOPT_OK); d.budget = least[keep]; }
                with = tape_trained_with(&n, &d, t);
                if (!i) { plain = tape_trained_plainly(&n, t); if (!keep) exact = plain; }
                CHECK_AT(with.hash == plain.hash, 1000 * (size_t)keep + 100 * k + i);
            }
            d = tape_net_desc(&n, NULL); /* as fast as keeping everything */
            d.codec = (memopt_codec)keep;
            { memopt_tape *tape = NULL;
              CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
              held[keep] = memopt_tape_get_stats(tape).kept; peak[keep] = memopt_tape_get_stats(tape).peak;
              CHECK(memopt_tape_get_stats(tape).extra == 0);
              memopt_tape_destroy(tape); }
            if (keep) {
                CHECK_AT(plain.hash != exact.hash, keep);
                CHECK_AT(fabs((double)plain.last - (double)exact.last)
                    <= (keep == MEMOPT_CODEC_BF16 ? 0.05 : 0.15) * (double)exact.first, keep);
            }
        }
        for (keep = 1; keep < 3; ++keep) { /* what is kept is smaller, and with it all of the pass */
            CHECK_AT(held[keep] * 10 < held[keep - 1] * 9 && peak[keep] * 10 < peak[keep - 1] * 9, keep);
            CHECK_AT(least[keep] <= least[0] + least[0] / 32, keep);
        }
    }
}

/* -- The stash -- */

static void tape_stash_kept(void) {
    static const size_t sizes[7] = { 1, 15, 16, 255, 256, 1000, 3000 }; static float x[3000], want[8][3000];
    tape_rig r; memopt_stash *s = NULL; size_t i, k, bytes = 0; int keep;
    uint64_t seed = 3;
    for (keep = MEMOPT_CODEC_EXACT; keep <= MEMOPT_CODEC_8BIT; ++keep) {
        tape_rig_open(&r, 100000, 0);
        CHECK(memopt_stash_create(r.arena, 7, NULL, &s) == MEMOPT_OK && s->count == 0);
        CHECK(memopt_stash_pop(s, x, 1) == MEMOPT_ERR_STATE);
        for (i = bytes = 0; i < 7; ++i) {
            const size_t n = sizes[i], each = memopt_stash_bytes(n, (memopt_codec)keep),
                least = keep == 0 ? 4 * n : keep == 1 ? 2 * n : n + 4 * ((n + 255) / 256);
            for (k = 0; k < n; ++k) want[i][k] = x[k] = ((float)(test_random(&seed) >> 40) / 8388608.0f - 1) * (float)(i + 1);
            tape_round(want[i], n, (memopt_codec)keep);
            CHECK_AT(each >= least && each < least + 128, n);
            CHECK_AT(memopt_stash_push(s, x, n, (memopt_codec)keep) == MEMOPT_OK && s->count == i + 1, n);
            CHECK_AT(!memcmp(x, want[i], n * 4), n); /* it goes on with what it gets back */
            bytes = (bytes + 63) / 64 * 64 + each;
            CHECK_AT((memopt_arena_get_stats(r.arena).used_low + 63) / 64 * 64 == TAPE_BASE + (bytes + 63) / 64 * 64,
                n);
        }
        /* depth */
        CHECK(memopt_stash_push(s, x, 5, (memopt_codec)keep) == MEMOPT_ERR_STATE && s->count == 7);
        for (i = 7; i-- > 0;) {
            memopt_mark m; const size_t n = sizes[i];
            memset(x, 0x5A, sizeof x);
            CHECK_AT(memopt_stash_pop(s, x, n + 1) == MEMOPT_ERR_STATE && memopt_stash_pop(s, x, n - 1) != MEMOPT_OK
                && s->count == i + 1, n);
            m = memopt_arena_mark(r.arena);
            CHECK(memopt_arena_push(r.arena, 64, 0) != NULL); /* somebody else lies upon it */
            CHECK_AT(memopt_stash_pop(s, x, n) == MEMOPT_ERR_STATE && s->count == i + 1, n);
            CHECK(memopt_arena_rewind(r.arena, m) == MEMOPT_OK);
            CHECK_AT(((const unsigned char *)x)[0] == 0x5A && memopt_stash_pop(s, x, n) == MEMOPT_OK
                && s->count == i, n);
            CHECK_AT(!memcmp(x, want[i], n * 4), n);
            CHECK_AT(n == 3000 || ((const unsigned char *)(x + n))[0] == 0x5A, n);
        }
        CHECK(tape_rig_is_clean(&r) && memopt_stash_pop(s, x, 1) == MEMOPT_ERR_STATE);
        CHECK(memopt_stash_push(s, x, 100, (memopt_codec)keep) == MEMOPT_OK
            && memopt_stash_push(s, x, 10, MEMOPT_CODEC_BF16) == MEMOPT_OK);
        memopt_stash_destroy(s); /* pops what is left */
        tape_rig_close(&r);
    }
}
/* blocks of 256 that are not finite, tiny or zero; and rounding twice is rounding once */
static void tape_stash_unusual(void) {
    static float x[5 * 256], once[5 * 256]; tape_rig r; memopt_stash *s = NULL; size_t i; uint64_t seed = 9;
    uint32_t bits; int keep, round;
    tape_rig_open(&r, 100000, 0);
    CHECK(memopt_stash_create(r.arena, 2, NULL, &s) == MEMOPT_OK);
    for (keep = MEMOPT_CODEC_EXACT; keep <= MEMOPT_CODEC_8BIT; ++keep) {
        for (i = 0; i < 5 * 256; ++i) x[i] = ((float)(test_random(&seed) >> 40) / 8388608.0f - 1) * (i < 1024
            ? 1 : 1e-38f);
        bits = 0x7fc00000; memcpy(&x[300], &bits, 4); /* NaN */
        bits = 0xff800000; memcpy(&x[600], &bits, 4); /* -infinity */
        for (i = 768; i < 1024; ++i) x[i] = 0;
        for (round = 0; round < 2; ++round) {
            CHECK(memopt_stash_push(s, x, 5 * 256, (memopt_codec)keep) == MEMOPT_OK);
            if (round) CHECK(!memcmp(x, once, sizeof x));
            memcpy(once, x, sizeof x);
            memset(x, 0, sizeof x);
            CHECK(memopt_stash_pop(s, x, 5 * 256) == MEMOPT_OK && !memcmp(x, once, sizeof x));
        }
        CHECK(x[300] != x[300] && x[0] == x[0] && x[255] == x[255] && x[768] == 0 && x[1023] == 0
            && fabs((double)x[1100]) <= 1e-38);
        for (i = 256; i < 768; ++i) /* an overflow is seen, not kept as a number */
            CHECK_AT(keep == MEMOPT_CODEC_8BIT || i == 300 ? x[i] != x[i]
                : i == 600 ? (double)x[i] < -(double)FLT_MAX : fabs((double)x[i]) <= 1, i);
    }
    memopt_stash_destroy(s);
    tape_rig_close(&r);
}
static void tape_stash_in_place(void) { /* a residual stream in one buffer */
    enum { DEPTH = 9, N = 333 }; static float x[N], g[N], all[DEPTH][N], y[N], h[N]; tape_rig r;
    memopt_stash *s = NULL; size_t i, l;
    uint64_t seed = 8;
    for (i = 0; i < N; ++i) x[i] = y[i] = (float)(test_random(&seed) >> 40) / 4194304.0f - 2;
    for (i = 0; i < N; ++i) g[i] = h[i] = 1 + x[i];
    tape_rig_open(&r, 100000, 0);
    CHECK(memopt_stash_create(r.arena, DEPTH, NULL, &s) == MEMOPT_OK);
    for (l = 0; l < DEPTH; ++l) {
        CHECK(memopt_stash_push(s, x, N, MEMOPT_CODEC_EXACT) == MEMOPT_OK);
        for (i = 0; i < N; ++i) { const float d = 0.25f * (float)(l + 1); x[i] += d * x[i] / (1 + fabsf(x[i]));
        all[l][i] = y[i]; }
        memcpy(y, x, sizeof y);
    }
    for (l = DEPTH; l-- > 0;) {
        CHECK(memopt_stash_pop(s, x, N) == MEMOPT_OK && !memcmp(x, all[l], sizeof x));
        for (i = 0; i < N; ++i) {
            const float d = 0.25f * (float)(l + 1), q = 1 + fabsf(x[i]), p = 1 + fabsf(all[l][i]);
            g[i] += g[i] * d / (q * q); h[i] += h[i] * d / (p * p);
        }
    }
    CHECK(!memcmp(g, h, sizeof g) && s->count == 0);
    memopt_stash_destroy(s);
    tape_rig_close(&r);
}
/* Behind any number of bytes that the arena was given to somebody else. */
static void tape_stash_after_any(void) {
    float x[20], y[20];
    tape_rig r;
    memopt_stash *s = NULL;
    size_t bytes, i;

    tape_rig_open(&r, 100000, 0);
    CHECK(memopt_stash_create(r.arena, 1, NULL, &s) == MEMOPT_OK);
    for (i = 0; i < 20; ++i) x[i] = (float)i;
    for (bytes = 1; bytes <= 130; ++bytes) {
        const memopt_mark mark = memopt_arena_mark(r.arena);

        CHECK(memopt_arena_push(r.arena, bytes, MEMOPT_TAG_OTHER) != NULL);
        CHECK_AT(memopt_stash_push(s, x, 20, MEMOPT_CODEC_EXACT) == MEMOPT_OK, bytes);
        memset(y, 0, sizeof y);
        CHECK_AT(memopt_stash_pop(s, y, 20) == MEMOPT_OK && !memcmp(x, y, sizeof x), bytes);
        CHECK(memopt_arena_rewind(r.arena, mark) == MEMOPT_OK);
    }
    memopt_stash_destroy(s);
    tape_rig_close(&r);
}
/* The arena is rewound to the mark before a push, and as many bytes are pushed for something else: they are not the
   stash's, neither to pop nor to free. */
static void tape_stash_rewound(void) {
    float x[64], y[64];
    size_t i, under;

    for (under = 0; under < 3; ++under) { /* intact copies below the stale one */
        tape_rig r;
        memopt_stash *s = NULL;
        memopt_mark begin, before;
        unsigned char *foreign;
        size_t used;

        tape_rig_open(&r, (size_t)1 << 20, 0);
        begin = memopt_arena_mark(r.arena);
        CHECK(memopt_stash_create(r.arena, 4, NULL, &s) == MEMOPT_OK);
        for (i = 0; i < 64; ++i) x[i] = (float)i;
        for (i = 0; i < under; ++i) CHECK(memopt_stash_push(s, x, 64, MEMOPT_CODEC_EXACT) == MEMOPT_OK);
        before = memopt_arena_mark(r.arena);
        CHECK(memopt_stash_push(s, x, 64, MEMOPT_CODEC_EXACT) == MEMOPT_OK);
        CHECK(memopt_arena_rewind(r.arena, before) == MEMOPT_OK);
        foreign = (unsigned char *)memopt_arena_push(r.arena, sizeof x, MEMOPT_TAG_OTHER);
        CHECK(foreign != NULL);
        if (!foreign) return;
        memset(foreign, 0x77, sizeof x);
        used = memopt_arena_get_stats(r.arena).used_low;
        memcpy(y, x, sizeof y);
        CHECK_AT(memopt_stash_pop(s, y, 64) == MEMOPT_ERR_STATE && s->count == under + 1, under);
        CHECK_AT(!memcmp(x, y, sizeof x) && memopt_arena_get_stats(r.arena).used_low == used, under);
        if (under) { /* a good copy on top of the foreign bytes comes out again, and what is below stays refused */
            CHECK_AT(memopt_stash_push(s, x, 64, MEMOPT_CODEC_EXACT) == MEMOPT_OK, under);
            if (under == 2) CHECK_AT(memopt_stash_pop(s, y, 64) == MEMOPT_OK && memopt_stash_pop(s, y, 64) == MEMOPT_ERR_STATE, under);
        }
        memopt_stash_destroy(s); /* frees its own copies on top, never what is foreign */
        CHECK_AT(memopt_arena_get_stats(r.arena).used_low == used && foreign[0] == 0x77 && foreign[sizeof x - 1] == 0x77, under);
        CHECK(memopt_arena_rewind(r.arena, begin) == MEMOPT_OK);
        tape_rig_close(&r);
    }
}

/* A forward of many layers, and the end of its step: outputs stay until then, scratch goes. */
static void tape_levels(memopt_arena *arena, size_t levels) {
    const memopt_mark step = memopt_arena_mark(arena);
    size_t i;

    for (i = 0; i < levels; ++i) {
        memopt_mark layer;

        CHECK_AT(memopt_arena_push(arena, 64, MEMOPT_TAG_OTHER) != NULL, i);
        layer = memopt_arena_mark(arena);
        CHECK_AT(memopt_arena_push(arena, 128, MEMOPT_TAG_OTHER) != NULL, i);
        CHECK_AT(memopt_arena_rewind(arena, layer) == MEMOPT_OK, i);
    }
    CHECK_AT(memopt_arena_rewind(arena, step) == MEMOPT_OK, levels);
}

/* After a rewind below a copy the arena may be pushed and rewound on any number of levels: what lies where the copy lay
   stays somebody else's. */
static void tape_stash_many_levels(void) {
    const size_t levels[] = { 1, 15, 16, 17, 127, 128, 129, 1000 };
    size_t k;

    for (k = 0; k < sizeof levels / sizeof *levels; ++k) {
        float x[16], y[16];
        tape_rig r;
        memopt_stash *s = NULL;
        memopt_mark below;
        unsigned char *foreign;

        tape_rig_open(&r, (size_t)1 << 20, 0);
        CHECK(memopt_stash_create(r.arena, 4, NULL, &s) == MEMOPT_OK);
        memset(x, 0, sizeof x);
        below = memopt_arena_mark(r.arena);
        CHECK(memopt_stash_push(s, x, 16, MEMOPT_CODEC_EXACT) == MEMOPT_OK);
        CHECK(memopt_arena_rewind(r.arena, below) == MEMOPT_OK);
        foreign = (unsigned char *)memopt_arena_push(r.arena, 64, MEMOPT_TAG_OTHER);
        tape_levels(r.arena, levels[k]);
        CHECK_AT(memopt_stash_pop(s, y, 16) == MEMOPT_ERR_STATE && s->count == 1, levels[k]);
        CHECK_AT(memopt_stash_push(s, x, 16, MEMOPT_CODEC_EXACT) == MEMOPT_OK, levels[k]);
        CHECK_AT(memopt_stash_pop(s, y, 16) == MEMOPT_OK && memopt_stash_pop(s, y, 16) == MEMOPT_ERR_STATE, levels[k]);
        memopt_stash_destroy(s);
        CHECK_AT((unsigned char *)memopt_arena_push(r.arena, 64, MEMOPT_TAG_OTHER) == foreign + 64, levels[k]);
        CHECK_AT(memopt_arena_rewind(r.arena, below) == MEMOPT_OK, levels[k]);
        tape_rig_close(&r);
    }
}

/* The same between a forward and its backward. */
static void tape_rewound_many_levels(void) {
    const size_t levels[] = { 1, 16, 17, 128, 129, 1000 };
    size_t k;

    for (k = 0; k < sizeof levels / sizeof *levels; ++k) {
        static tape_net n;
        tape_rig r;
        memopt_tape_desc d;
        memopt_tape *tape = NULL;
        memopt_mark below, step;
        size_t used;

        tape_net_make(&n, "L20BNDBL8BH");
        tape_rig_open(&r, (size_t)1 << 20, 0);
        d = tape_net_desc(&n, r.arena);
        CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
        tape_net_start(&n);
        tape_net_feed(&n);
        below = memopt_arena_mark(r.arena);
        CHECK(memopt_tape_forward(tape, n.x) == MEMOPT_OK);
        used = memopt_arena_get_stats(r.arena).used_low - below.used;
        CHECK(memopt_arena_rewind(r.arena, below) == MEMOPT_OK);
        CHECK(memopt_arena_push(r.arena, used, MEMOPT_TAG_OTHER) != NULL);
        step = memopt_arena_mark(r.arena);
        tape_levels(r.arena, levels[k]);
        CHECK_AT(memopt_tape_backward(tape, NULL, n.gradient) == MEMOPT_ERR_STATE, levels[k]);
        CHECK_AT(memopt_arena_mark(r.arena).used == step.used, levels[k]);
        memopt_tape_destroy(tape);
        CHECK_AT(memopt_arena_mark(r.arena).used == step.used, levels[k]);
        CHECK(memopt_arena_rewind(r.arena, below) == MEMOPT_OK);
        tape_rig_close(&r);
    }
}

/* One rewind takes the copies of two stashes away; the top end's scratch takes none. */
static void tape_stash_two(void) {
    float x[16], y[16];
    tape_rig r;
    memopt_stash *s[2] = { NULL, NULL };
    memopt_mark below, top;
    int i;

    memset(x, 0, sizeof x);
    tape_rig_open(&r, 10000, 0);
    below = memopt_arena_mark(r.arena);
    for (i = 0; i < 2; ++i) {
        CHECK(memopt_stash_create(r.arena, 2, NULL, &s[i]) == MEMOPT_OK);
        CHECK(memopt_stash_push(s[i], x, 16, MEMOPT_CODEC_EXACT) == MEMOPT_OK);
    }
    top = memopt_arena_mark_top(r.arena);
    CHECK(memopt_arena_push_top(r.arena, 64, MEMOPT_TAG_OTHER) && memopt_arena_rewind(r.arena, top) == MEMOPT_OK);
    CHECK(memopt_stash_pop(s[1], y, 16) == MEMOPT_OK
          && memopt_stash_push(s[1], x, 16, MEMOPT_CODEC_EXACT) == MEMOPT_OK);
    CHECK(memopt_arena_rewind(r.arena, below) == MEMOPT_OK);
    for (i = 0; i < 2; ++i) {
        CHECK(memopt_arena_push(r.arena, 64, MEMOPT_TAG_OTHER) != NULL);
        CHECK_AT(memopt_stash_pop(s[i], y, 16) == MEMOPT_ERR_STATE, i);
    }
    for (i = 0; i < 2; ++i) memopt_stash_destroy(s[i]);
    CHECK(memopt_arena_mark(r.arena).used == below.used + 128 && memopt_arena_rewind(r.arena, below) == MEMOPT_OK);
    tape_rig_close(&r);
}

/* Where the CPU cannot copy: all of it goes to the codec; where that fails, nothing was pushed or popped. */
static int tape_stash_calls, tape_stash_fail;
static memopt_status tape_stash_run(void *user, memopt_codec_op op, memopt_codec codec, void *value, size_t bytes, void *copy) {
    CHECK(user == &tape_stash_calls && value && copy && bytes == 64 * sizeof(float) && (op == MEMOPT_CODEC_OP_ENCODE || op == MEMOPT_CODEC_OP_DECODE) && codec != MEMOPT_CODEC_BF16);
    return ++tape_stash_calls == tape_stash_fail ? MEMOPT_ERR_DEVICE : MEMOPT_OK;
}
static void tape_stash_elsewhere(void) {
    static unsigned char block[4096]; memopt_source source; memopt_arena_desc d; memopt_arena *a = NULL; memopt_stash *s = NULL; memopt_device_codec codec; float x[64]; int keep;
    memset(&d, 0, sizeof d); memset(&codec, 0, sizeof codec); memset(x, 0, sizeof x);
    CHECK(memopt_source_block(block + (0 - (uintptr_t)block) % 64, 2048, &source) == MEMOPT_OK);
    source.host_visible = 0; d.source = &source;
    CHECK(memopt_arena_create(&d, &a) == MEMOPT_OK && memopt_stash_create(a, 3, NULL, &s) == MEMOPT_OK);
    CHECK(memopt_stash_push(s, x, 64, MEMOPT_CODEC_EXACT) == MEMOPT_ERR_UNSUPPORTED && memopt_stash_set_codec(s, &codec) == MEMOPT_ERR_ARGUMENT);
    codec.run_fn = tape_stash_run; codec.user = &tape_stash_calls;
    CHECK(memopt_stash_set_codec(s, &codec) == MEMOPT_OK && memopt_stash_set_codec(NULL, &codec) == MEMOPT_ERR_ARGUMENT && memopt_stash_set_codec(s, NULL) == MEMOPT_ERR_ARGUMENT);
    for (keep = 0; keep < 3; keep += 2) {
        tape_stash_calls = tape_stash_fail = 0;
        CHECK(memopt_stash_push(s, x, 64, (memopt_codec)keep) == MEMOPT_OK && tape_stash_calls == (keep ? 2 : 1));
        for (tape_stash_fail = tape_stash_calls + 1; tape_stash_fail <= tape_stash_calls + (keep ? 2 : 1);) {
            const int now = tape_stash_calls, next = tape_stash_fail + 1;
            CHECK(memopt_stash_push(s, x, 64, (memopt_codec)keep) == MEMOPT_ERR_DEVICE && s->count == 1);
            if (tape_stash_calls - now == (keep ? 2 : 1)) break;
            tape_stash_fail = next + tape_stash_calls - now;
        }
        tape_stash_fail = tape_stash_calls + 1;
        CHECK(memopt_stash_pop(s, x, 64) == MEMOPT_ERR_DEVICE && s->count == 1);
        CHECK(memopt_stash_pop(s, x, 64) == MEMOPT_OK && s->count == 0 && memopt_arena_get_stats(a).used_low == 0);
    }
    memopt_stash_destroy(s); memopt_arena_destroy(a);
}
static void tape_stash_bad(void) {
    tape_rig r; memopt_stash *s = NULL, *const none = (memopt_stash *)&r; float x[64]; test_faults f; memopt_host h;
    size_t n; int keep;
    memset(x, 0, sizeof x);
    tape_rig_open(&r, 1024, 0);
    CHECK(memopt_stash_create(NULL, 3, NULL, &s) == MEMOPT_ERR_ARGUMENT
        && memopt_stash_create(r.arena, 3, NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_stash_create(r.arena, 0, NULL, &s) == MEMOPT_ERR_ARGUMENT && !s);
    CHECK(memopt_stash_create(r.arena, SIZE_MAX, NULL, &s) != MEMOPT_OK
        && memopt_stash_create(r.arena, SIZE_MAX / 16, NULL, &s) != MEMOPT_OK && !s);
    for (n = 1; ; ++n) {
        memset(&f, 0, sizeof f);
        h = test_host(&f);
        f.fail_on = n;
        s = none;
        if (!memopt_stash_create(r.arena, 3, &h, &s)) break;
        CHECK(s == none && !f.live_blocks && n < 5);
    }
    CHECK(n > 1);
    for (keep = MEMOPT_CODEC_EXACT; keep <= MEMOPT_CODEC_8BIT; ++keep) {
        CHECK(memopt_stash_bytes(SIZE_MAX, (memopt_codec)keep) == 0 && memopt_stash_bytes(1, (memopt_codec)keep) > 0);
        CHECK(memopt_stash_push(s, x, SIZE_MAX, (memopt_codec)keep) == MEMOPT_ERR_OVERFLOW);
    }
    CHECK(memopt_stash_bytes(SIZE_MAX / 4, MEMOPT_CODEC_EXACT) == 0
        || memopt_stash_bytes(SIZE_MAX / 4, MEMOPT_CODEC_EXACT) >= SIZE_MAX / 4 * 4);
    CHECK(memopt_stash_bytes(SIZE_MAX / 4 + 1, MEMOPT_CODEC_EXACT) == 0
        && memopt_stash_bytes(SIZE_MAX / 2 + 1, MEMOPT_CODEC_BF16) == 0);
    CHECK(memopt_stash_bytes(4, (memopt_codec)3) == 0 && memopt_stash_push(s, x, 4, (memopt_codec)3)
        == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_stash_push(s, NULL, 4, MEMOPT_CODEC_EXACT) == MEMOPT_ERR_ARGUMENT
        && memopt_stash_push(NULL, x, 4, MEMOPT_CODEC_EXACT) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_stash_pop(NULL, x, 4) == MEMOPT_ERR_ARGUMENT && s->count == 0);
    memopt_stash_destroy(NULL);
    CHECK(memopt_stash_push(s, x, 64, MEMOPT_CODEC_EXACT) == MEMOPT_OK
        && memopt_stash_pop(s, NULL, 64) == MEMOPT_ERR_ARGUMENT);
    { const memopt_mark top = memopt_arena_mark_top(r.arena); /* full */
      CHECK(memopt_arena_push_top(r.arena, memopt_arena_get_stats(r.arena).free_bytes / 64 * 64, 0) != NULL);
      x[0] = 1.0009765625f;
      CHECK(memopt_stash_push(s, x, 64, MEMOPT_CODEC_BF16) == MEMOPT_ERR_MEMORY && (double)x[0] == 1.0009765625
          && s->count == 1);
      CHECK(memopt_arena_rewind(r.arena, top) == MEMOPT_OK
          && memopt_stash_push(s, x, 64, MEMOPT_CODEC_BF16) == MEMOPT_OK && s->count == 2); }
    CHECK(memopt_stash_pop(s, x, 64) == MEMOPT_OK && memopt_stash_pop(s, x, 64) == MEMOPT_OK);
    memopt_stash_destroy(s);
    CHECK(!f.live_blocks && !f.bad_frees);
    tape_rig_close(&r);
}
static void tape_stash_workers(void) { /* long enough to be cut */
    enum { N = 200000 }; float *x = tape_block(N * 4), *y = tape_block(N * 4); size_t workers = 3, i; int keep;
    memopt_host h; tape_rig r; memopt_stash *s = NULL;
    uint64_t seed = 4;
    memset(&h, 0, sizeof h);
    h.threads.run_fn = tape_shuffled; h.threads.user = &workers; h.threads.worker_count = 3;
    for (keep = MEMOPT_CODEC_EXACT; keep <= MEMOPT_CODEC_8BIT; ++keep) {
        tape_rig_open(&r, 1000000, 0);
        CHECK(memopt_stash_create(r.arena, 1, &h, &s) == MEMOPT_OK);
        for (i = 0; i < N; ++i) x[i] = y[i] = (float)(test_random(&seed) >> 40) / 8388608.0f - 1;
        tape_round(y, N, (memopt_codec)keep);
        CHECK(memopt_stash_push(s, x, N, (memopt_codec)keep) == MEMOPT_OK && !memcmp(x, y, N * 4));
        memset(x, 0, N * 4);
        CHECK(memopt_stash_pop(s, x, N) == MEMOPT_OK && !memcmp(x, y, N * 4));
        memopt_stash_destroy(s);
        tape_rig_close(&r);
    }
    free(x);
    free(y);
}
/* An inner tape in a dry run of the outer one: its copies and hashes stay away from memory that is not there. */
static memopt_status tape_idle(const memopt_tape_call *step) {
    const size_t *bytes = (const size_t *)step->user;
    if (!step->not_host_visible) {
        memset(step->output, 0, 4096);
        if (step->grad_input) memset(step->grad_input, 0, 4096);
        if (step->scratch) memset(step->scratch, 1, step->scratch_bytes);
    }
    return bytes && step->scratch_bytes != *bytes ? MEMOPT_ERR_ARGUMENT : MEMOPT_OK;
}
static void tape_idle_desc(memopt_tape_desc *d, memopt_segment *segment, memopt_tape_layer *layer, size_t *scratch) {
    size_t i;
    memset(d, 0, sizeof *d); memset(segment, 0, 4 * sizeof *segment);
    for (i = 0; i < 4; ++i) {
        segment[i].output_bytes = segment[i].grad_bytes = 4096; segment[i].saved_bytes = 8192;
        segment[i].forward_scratch = segment[i].backward_scratch = scratch ? *scratch : 0;
        segment[i].forward_cost = 1; segment[i].backward_cost = 2;
        layer[i].forward_fn = layer[i].backward_fn = tape_idle; layer[i].user = scratch;
    }
    d->chain.segments = segment; d->chain.count = 4; d->layers = layer; d->overhead = 1; d->slots = TAPE_SLOTS;
    d->chain.input_bytes = d->chain.input_grad_bytes = 4096;
}
static void tape_nested_dry(void) {
    static const memopt_codec keeps[] = { MEMOPT_CODEC_EXACT, MEMOPT_CODEC_BF16, MEMOPT_CODEC_8BIT };
    float *in = tape_block(4096), *out = tape_block(4096); size_t i;
    for (i = 0; i < 3; ++i) {
        memopt_source counting; memopt_arena *arena = NULL; memopt_arena_desc a; memopt_tape *inner = NULL, *outer = NULL;
        memopt_tape_desc d; memopt_segment segment[4], whole; memopt_tape_layer layer[4], nested;
        CHECK(memopt_source_counting(&counting) == MEMOPT_OK);
        memset(&a, 0, sizeof a);
        a.source = &counting; a.capacity = (size_t)1 << 24;
        CHECK(memopt_arena_create(&a, &arena) == MEMOPT_OK);
        tape_idle_desc(&d, segment, layer, NULL);
        d.codec = keeps[i]; d.verify = 1;
        CHECK(memopt_tape_create(&d, &inner) == MEMOPT_OK && memopt_tape_nest(inner, &whole, &nested) == MEMOPT_OK);
        d.codec = MEMOPT_CODEC_EXACT; d.chain.segments = &whole; d.chain.count = 1; d.layers = &nested; d.arena = arena;
        CHECK(memopt_tape_create(&d, &outer) == MEMOPT_OK);
        CHECK(memopt_tape_forward(outer, in) == MEMOPT_OK && memopt_tape_backward(outer, in, out) == MEMOPT_OK);
        CHECK(memopt_arena_get_stats(arena).peak == memopt_tape_get_stats(outer).peak);
        memopt_tape_destroy(outer); memopt_tape_destroy(inner); memopt_arena_destroy(arena);
    }
    free(in);
    free(out);
}
/* The inner tape grows, is nested again, and the outer one goes back to the shape that knows the small one. */
static void tape_nested_reshaped(void) {
    float *in = tape_block(4096), *out = tape_block(4096); size_t scratch = 64; tape_rig r;
    memopt_tape *inner = NULL, *outer = NULL; memopt_tape_desc d, o; memopt_chain small, large;
    memopt_segment segment[4], whole[2]; memopt_tape_layer layer[4], nested; char text[64];
    tape_rig_open(&r, (size_t)4 << 20, 0);
    tape_idle_desc(&d, segment, layer, &scratch);
    CHECK(memopt_tape_create(&d, &inner) == MEMOPT_OK && memopt_tape_nest(inner, &whole[0], &nested) == MEMOPT_OK);
    o = d;
    o.chain.segments = &whole[0]; o.chain.count = 1; o.layers = &nested; o.arena = r.arena;
    CHECK(memopt_tape_create(&o, &outer) == MEMOPT_OK);
    CHECK(memopt_tape_forward(outer, in) == MEMOPT_OK && memopt_tape_backward(outer, in, out) == MEMOPT_OK);
    small = o.chain; large = o.chain;
    scratch = 1 << 20;
    tape_idle_desc(&d, segment, layer, &scratch);
    CHECK(memopt_tape_reshape(inner, &d.chain) == MEMOPT_OK);
    CHECK(memopt_tape_forward(outer, in) == MEMOPT_ERR_STATE && tape_rig_is_clean(&r));
    (void)snprintf(text, sizeof text, "scratch_bytes %u, at least %u", (unsigned)whole[0].forward_scratch,
                   (unsigned)memopt_tape_get_stats(inner).evaluate_peak);
    CHECK(test_error_says(memopt_tape_error(inner), MEMOPT_ERR_STATE, text));
    CHECK(memopt_tape_nest(inner, &whole[1], &nested) == MEMOPT_OK);
    large.segments = &whole[1];
    CHECK(memopt_tape_reshape(outer, &large) == MEMOPT_OK && memopt_tape_forward(outer, in) == MEMOPT_OK
        && memopt_tape_backward(outer, in, out) == MEMOPT_OK);
    CHECK(memopt_tape_reshape(outer, &small) == MEMOPT_OK);
    CHECK(memopt_tape_forward(outer, in) == MEMOPT_ERR_STATE && tape_rig_is_clean(&r));
    memopt_tape_destroy(outer); memopt_tape_destroy(inner);
    tape_rig_close(&r);
    free(in);
    free(out);
}
static void tape_nested_without_gradient(void) { /* the outer tape wants one that the inner tape does not make */
    float *in = tape_block(4096), *out = tape_block(4096); tape_rig r; memopt_tape *inner = NULL, *outer = NULL;
    memopt_tape_desc d, o; memopt_segment segment[4], whole; memopt_tape_layer layer[4], nested; size_t scratch = 64;
    tape_rig_open(&r, (size_t)4 << 20, 0);
    tape_idle_desc(&d, segment, layer, &scratch);
    d.chain.input_grad_bytes = 0;
    CHECK(memopt_tape_create(&d, &inner) == MEMOPT_OK && memopt_tape_nest(inner, &whole, &nested) == MEMOPT_OK);
    o = d;
    o.chain.segments = &whole; o.chain.count = 1; o.layers = &nested; o.arena = r.arena; o.chain.input_grad_bytes = 4096;
    CHECK(memopt_tape_create(&o, &outer) == MEMOPT_OK && memopt_tape_forward(outer, in) == MEMOPT_OK);
    CHECK(memopt_tape_backward(outer, in, out) == MEMOPT_ERR_ARGUMENT && tape_rig_is_clean(&r));
    CHECK(test_error_says(memopt_tape_error(inner), MEMOPT_ERR_ARGUMENT, "an input gradient is wanted: input_grad_bytes is 0"));
    memopt_tape_destroy(outer); memopt_tape_destroy(inner);
    tape_rig_close(&r);
    free(in);
    free(out);
}
/* Memory that fails is no reason for another schedule: either what the budget allows, or an error. */
static void tape_same_or_nothing(void) {
    memopt_segment segment[24]; memopt_tape_layer layer[24]; memopt_tape_desc d; memopt_tape *t = NULL; test_faults f;
    memopt_host h; size_t n, i, peak; double cost;
    memset(&d, 0, sizeof d); memset(segment, 0, sizeof segment); memset(&f, 0, sizeof f);
    h = test_host(&f);
    for (i = 0; i < 24; ++i) {
        segment[i].output_bytes = segment[i].grad_bytes = 4096; segment[i].saved_bytes = 16384;
        segment[i].forward_cost = 1; segment[i].backward_cost = 2;
        layer[i].forward_fn = layer[i].backward_fn = tape_idle; layer[i].user = NULL;
    }
    d.chain.segments = segment; d.chain.count = 24; d.layers = layer; d.budget = 150000; d.host = &h; d.slots = TAPE_SLOTS;
    CHECK(memopt_tape_create(&d, &t) == MEMOPT_OK);
    cost = memopt_tape_get_stats(t).cost; peak = memopt_tape_get_stats(t).peak;
    memopt_tape_destroy(t);
    for (n = 1; n < 100; ++n) {
        f.calls = 0; f.fail_on = n; t = NULL;
        if (memopt_tape_create(&d, &t) == MEMOPT_OK) {
            const memopt_tape_stats s = memopt_tape_get_stats(t);
            CHECK_AT(s.cost == cost && s.peak == peak && f.calls < n, n);
            memopt_tape_destroy(t);
            CHECK_AT(!f.live_blocks && !f.bad_frees, n);
            break;
        }
        CHECK_AT(!t && !f.live_blocks, n);
    }
    CHECK(n > 5 && n < 100);
}

/* -- The memory of solving -- */

enum { TABLE_MOST = 140 };
typedef struct table_chain { memopt_segment segment[TABLE_MOST]; memopt_tape_layer layer[TABLE_MOST]; } table_chain;

/* Touches all that it is given. */
static memopt_status table_step(const memopt_tape_call *step) {
    const size_t *saved = (const size_t *)step->user; const int backward = step->grad_output || step->grad_input;
    if (step->not_host_visible) return MEMOPT_OK;
    if (!backward) memset(step->output, 1, 32768);
    else if (step->grad_input) memset(step->grad_input, 1, 32768);
    if (step->saved) memset(step->saved, 2, *saved);
    if (step->scratch) memset(step->scratch, 3, step->scratch_bytes);
    return MEMOPT_OK;
}

/* Equal steps of a recurrent network, or steps each of another size. */
static memopt_tape_desc table_desc(table_chain *c, size_t count, int unequal, size_t *saved) {
    memopt_tape_desc d; size_t i;
    memset(&d, 0, sizeof d); memset(c, 0, sizeof *c);
    for (i = 0; i < count; ++i) {
        memopt_segment *s = &c->segment[i];
        saved[i] = 262144 + (unequal ? 64 * ((i * 37) % count) : 0);
        s->output_bytes = s->grad_bytes = 32768; s->saved_bytes = 32768 + saved[i];
        s->forward_scratch = 32768; s->backward_scratch = 65536;
        s->forward_cost = 1; s->backward_cost = 2;
        c->layer[i].forward_fn = c->layer[i].backward_fn = table_step; c->layer[i].user = &saved[i];
    }
    d.chain.segments = c->segment; d.chain.count = count; d.chain.input_bytes = 32768; d.layers = c->layer;
    d.overhead = 0.15;
    return d;
}
static size_t table_saved[TABLE_MOST];

static memopt_tape *table_open(const memopt_tape_desc *desc, memopt_arena *arena, memopt_tape_stats *stats) {
    memopt_tape_desc d = *desc; memopt_tape *tape = NULL;
    d.arena = arena;
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
    *stats = memopt_tape_get_stats(tape);
    return tape;
}
static int table_same(const memopt_tape *a, const memopt_tape *b) {
    size_t n, m; const memopt_action *p = memopt_tape_actions(a, &n), *q = memopt_tape_actions(b, &m);
    return n == m && n && !memcmp(p, q, n * sizeof *p);
}

/* What a dry run says of the table is what an arena of the CPU's memory then gives; afterwards it is as it was. The
   schedule is the same wherever the table lies. */
static void tape_table_is_a_guest(void) {
    int form;
    for (form = 0; form < 4; ++form) { /* equal or unequal steps, by overhead or within a budget */
        static table_chain c; memopt_tape_desc d = table_desc(&c, 40, form & 1, table_saved); test_faults f, g;
        memopt_host host; tape_rig r, counting, full; memopt_tape *plain, *dry, *guest, *small; size_t in, room;
        memopt_tape_stats none, s, t, u; memopt_mark mark; unsigned char before[TAPE_BASE];
        if (test_is_passed_over()) continue;
        d.budget = form & 2 ? 4000000 : 0;
        memset(&f, 0, sizeof f); memset(&g, 0, sizeof g);
        d.host = &host; host = test_host(&f);
        plain = table_open(&d, NULL, &none);
        CHECK_AT(none.solve_bytes && !none.solve_arena && f.peak_bytes > none.solve_bytes, form);
        tape_rig_open(&counting, (size_t)1 << 29, 1);
        dry = table_open(&d, counting.arena, &s);
        CHECK_AT(s.solve_bytes == none.solve_bytes && s.solve_arena && s.solve_arena <= s.solve_bytes, form);
        CHECK_AT(s.solve_arena < s.peak && tape_rig_peak(&counting) == 0 && table_same(plain, dry), form);
        if (!(form & 1)) CHECK_AT(s.solve_arena <= (s.peak + s.peak / 4) / 10, form); /* a tenth of a pass */

        tape_rig_open(&r, TAPE_BASE + s.peak, 0); /* as the dry run says */
        memcpy(before, r.memory + (size_t)(r.neighbour - r.memory), sizeof before);
        mark = memopt_arena_mark(r.arena);
        host = test_host(&g);
        guest = table_open(&d, r.arena, &t);
        CHECK_AT(t.peak == s.peak && t.solve_bytes == s.solve_bytes && t.solve_arena == s.solve_arena, form);
        CHECK_AT(tape_rig_peak(&r) == s.solve_arena && tape_rig_is_clean(&r) && table_same(plain, guest), form);
        CHECK_AT(memopt_arena_error(r.arena).status == MEMOPT_OK && memopt_arena_rewind(r.arena, mark) == MEMOPT_OK, form);
        CHECK_AT(!memcmp(before, r.neighbour, sizeof before), form);
        if (form & 2) CHECK_AT(s.solve_arena == s.solve_bytes, form); /* one table */
        if (form & 2) CHECK_AT(g.peak_bytes + s.solve_bytes / 2 < f.peak_bytes, form);
        in = (size_t)memopt_ledger_usage(r.ledger, MEMOPT_TAG_ACTIVATIONS).peak;
        CHECK_AT(in == s.solve_arena && memopt_ledger_usage(r.ledger, MEMOPT_TAG_ACTIVATIONS).now == 0, form);
        CHECK_AT(memopt_tape_forward(guest, c.segment) == MEMOPT_OK
                 && memopt_tape_backward(guest, c.segment, NULL) == MEMOPT_OK, form);
        CHECK_AT(tape_rig_peak(&r) == s.peak && tape_rig_is_clean(&r), form);
        for (in = 0; in < d.chain.count; ++in) c.segment[in].backward_cost = 2.5; /* solved again, between passes */
        g.peak_bytes = in = g.live_bytes;
        CHECK_AT(memopt_tape_reshape(guest, &d.chain) == MEMOPT_OK && tape_rig_is_clean(&r), form);
        CHECK_AT(g.peak_bytes - in < s.solve_bytes / 2, form); /* all tables: a pass has been there */
        CHECK_AT(memopt_tape_get_stats(guest).solves == 2 && memopt_tape_get_stats(guest).solve_arena
                 && tape_rig_peak(&r) == s.peak, form);
        for (in = 0; in < d.chain.count; ++in) c.segment[in].backward_cost = 2;

        room = s.solve_arena / 2; /* less free than the table takes: it is not coarser, but elsewhere */
        tape_rig_open(&full, TAPE_BASE + room, 0);
        small = table_open(&d, full.arena, &u);
        CHECK_AT(!u.solve_arena && u.solve_bytes == s.solve_bytes && u.peak == s.peak && table_same(plain, small), form);
        CHECK_AT(tape_rig_peak(&full) == 0 && memopt_arena_error(full.arena).status == MEMOPT_OK, form);
        memopt_tape_destroy(small); memopt_tape_destroy(guest); memopt_tape_destroy(dry);
        host = test_host(&f);
        memopt_tape_destroy(plain);
        tape_rig_close(&full); tape_rig_close(&r); tape_rig_close(&counting);
    }
}

/* A table may be as large as all that the arena has held, whatever the pass takes, and no larger. */
static void tape_table_up_to_the_mark(void) {
    static table_chain c; memopt_tape_desc d = table_desc(&c, 40, 1, table_saved); memopt_tape_stats s; size_t less;

    d.budget = 1400000;
    memopt_tape_destroy(table_open(&d, NULL, &s));
    CHECK(s.solve_bytes > s.peak / 4 * 3);
    for (less = 0; less < 2; ++less) {
        tape_rig r; memopt_mark mark; memopt_tape_stats t;

        tape_rig_open(&r, TAPE_BASE + 2 * s.solve_bytes, 0);
        mark = memopt_arena_mark(r.arena);
        CHECK(memopt_arena_push(r.arena, s.solve_bytes - 64 * less, MEMOPT_TAG_OTHER));
        CHECK(memopt_arena_rewind(r.arena, mark) == MEMOPT_OK);
        memopt_tape_destroy(table_open(&d, r.arena, &t));
        CHECK_AT(t.solve_arena == (less ? 0 : s.solve_bytes), less);
        tape_rig_close(&r);
    }
}

/* Each allocation fails in turn while the table lies in the arena, and so does the arena's source: nothing stays. */
static void tape_table_and_failures(void) {
    static table_chain c; memopt_tape_desc d = table_desc(&c, 30, 0, table_saved); test_faults f; memopt_host host;
    memopt_tape *tape = NULL; tape_rig r; size_t n, most;
    tape_rig_open(&r, (size_t)16 << 20, 0);
    memset(&f, 0, sizeof f);
    host = test_host(&f);
    d.host = &host; d.arena = r.arena;
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK && memopt_tape_get_stats(tape).solve_arena);
    memopt_tape_destroy(tape);
    most = f.calls;
    for (n = 1; n <= most; ++n) {
        memset(&f, 0, sizeof f);
        f.fail_on = n; tape = NULL;
        CHECK_AT(memopt_tape_create(&d, &tape) == MEMOPT_ERR_MEMORY && !tape, n);
        CHECK_AT(tape_rig_is_clean(&r) && !f.live_blocks && !f.bad_frees, n);
    }
    CHECK(most > 10);
    tape_rig_close(&r);
}

/* An arena whose log is full would book the table together with what was pushed before, and that for good. */
static void tape_table_and_a_full_log(void) {
    static table_chain c; memopt_tape_desc d = table_desc(&c, 30, 0, table_saved); memopt_ledger *ledger = NULL; size_t n;
    for (n = 2; n < 6; ++n) {
        memopt_source source; memopt_arena_desc ad; memopt_arena *arena = NULL; memopt_tape *tape; memopt_tape_stats s;
        unsigned char *block = (unsigned char *)malloc((size_t)16 << 20);
        memset(&ad, 0, sizeof ad);
        CHECK(memopt_ledger_create(NULL, &ledger) == MEMOPT_OK);
        CHECK(block && memopt_source_block(block, (size_t)16 << 20, &source) == MEMOPT_OK);
        ad.source = &source; ad.ledger = ledger; ad.log_entries = n;
        CHECK(memopt_arena_create(&ad, &arena) == MEMOPT_OK);
        CHECK(memopt_arena_push(arena, 1000, MEMOPT_TAG_PARAMETERS) && memopt_arena_push(arena, 100, MEMOPT_TAG_OPTIMIZER));
        tape = table_open(&d, arena, &s);
        CHECK_AT((memopt_ledger_usage(ledger, MEMOPT_TAG_OTHER).now > 0) == (n < 3), n);
        CHECK_AT((memopt_ledger_usage(ledger, MEMOPT_TAG_OPTIMIZER).now >= 100) == (n >= 3), n);
        CHECK_AT(!s.solve_arena == (n < 4), n);
        memopt_tape_destroy(tape);
        memopt_arena_destroy(arena);
        memopt_ledger_destroy(ledger);
        free(block);
    }
}

/* A device's memory is not for the solver, and the textbook has no table. */
static void tape_table_elsewhere(void) {
    static table_chain c; memopt_tape_desc d = table_desc(&c, 30, 0, table_saved); memopt_tape *tape; memopt_tape_stats s;
    test_device dev; memopt_source source; memopt_arena_desc ad; memopt_arena *arena = NULL;
    test_device_open(&dev, &source, (size_t)16 << 20, 4096, 0);
    memset(&ad, 0, sizeof ad);
    ad.source = &source; ad.capacity = (size_t)16 << 20;
    CHECK(memopt_arena_create(&ad, &arena) == MEMOPT_OK);
    tape = table_open(&d, arena, &s);
    CHECK(s.solve_bytes && !s.solve_arena && !memopt_arena_get_stats(arena).peak && !dev.mistakes);
    memopt_tape_destroy(tape);
    d.rule = MEMOPT_SCHEDULE_SQRT;
    tape = table_open(&d, arena, &s);
    CHECK(!s.solve_bytes && !s.solve_arena);
    memopt_tape_destroy(tape);
    memopt_arena_destroy(arena);
    test_device_close(&dev);

    d.rule = MEMOPT_SCHEDULE_EXTENDED; /* pages that cannot be committed: the host has memory for the table */
    test_device_open(&dev, &source, (size_t)16 << 20, 4096, 1);
    CHECK(memopt_arena_create(&ad, &arena) == MEMOPT_OK);
    dev.fail_from = dev.calls + 1;
    tape = table_open(&d, arena, &s);
    CHECK(s.solve_bytes && !s.solve_arena && !memopt_arena_get_stats(arena).peak && !dev.mistakes);
    dev.fail_from = 0;
    memopt_tape_destroy(tape);
    memopt_arena_destroy(arena);
    test_device_close(&dev);
}

/* Random chains: never more memory at an overhead than the first, coarse table knows; and the least budget is one. */
static void tape_table_never_coarser(void) {
    uint64_t seed; size_t i;
    for (seed = 1; seed <= 20; ++seed) {
        static table_chain c; memopt_tape_desc d = table_desc(&c, 24, 1, table_saved); uint64_t random = seed;
        memopt_tape *tape; memopt_tape_stats s, t; size_t least = 0;
        if (test_is_passed_over()) continue;
        for (i = 0; i < d.chain.count; ++i) {
            memopt_segment *g = &c.segment[i];
            g->output_bytes = g->grad_bytes = 1000 + test_below(&random, 100000);
            g->saved_bytes = g->output_bytes + test_below(&random, 1000000);
            g->backward_scratch = test_below(&random, 200000);
            g->forward_cost = 1 + (double)test_below(&random, 100);
        }
        d.overhead = 0.05 * (double)(1 + seed % 9);
        tape = table_open(&d, NULL, &s);
        memopt_tape_destroy(tape);
        d.slots = 128;
        tape = table_open(&d, NULL, &t);
        memopt_tape_destroy(tape);
        CHECK_AT(s.live_peak <= t.live_peak, seed);
        d.slots = 0;
        CHECK_AT(memopt_tape_min_budget(&d, &least) == MEMOPT_OK, seed);
        d.budget = least;
        tape = table_open(&d, NULL, &s);
        CHECK_AT(s.peak <= least, seed);
        memopt_tape_destroy(tape);
    }
}

/* The default table costs less than 2 % of a pass, held against one of ten times as many slots. What is the least
   budget for one tape is a budget for the other. */
static void tape_table_is_fine_enough(void) {
    static const double overheads[] = { 0.05, 0.2, 0.4 }; size_t i, form;
    for (form = 0; form < 2; ++form)
        for (i = 0; i < 3; ++i) {
            static table_chain c; memopt_tape_desc d = table_desc(&c, 30, (int)form, table_saved), fine;
            memopt_tape *a, *b; memopt_tape_stats s, t; size_t least = 0, best = 0;
            if (test_is_passed_over()) continue;
            d.overhead = overheads[i];
            fine = d;
            fine.slots = 1280;
            b = table_open(&fine, NULL, &t);
            a = table_open(&d, NULL, &s);
            CHECK_AT(s.extra <= d.overhead * 90 * (1 + 1e-9) && s.live_peak <= t.live_peak + t.live_peak / 50, i);
            memopt_tape_destroy(a);
            d.budget = t.peak; /* the time that the default takes in the memory of the fine one */
            a = table_open(&d, NULL, &s);
            CHECK_AT(s.peak <= t.peak && s.cost <= t.cost + 0.02 * 90, i);
            CHECK_AT(s.solve_bytes < t.solve_bytes, i);
            memopt_tape_destroy(a); memopt_tape_destroy(b);
            CHECK_AT(memopt_tape_min_budget(&d, &least) == MEMOPT_OK
                     && memopt_tape_min_budget(&fine, &best) == MEMOPT_OK, i);
            CHECK_AT(least <= best + best / 100, i);
            d.budget = least;
            a = table_open(&d, NULL, &s);
            CHECK_AT(s.peak <= least, i);
            memopt_tape_destroy(a);
        }
}

/* -- The memory of the process: a process of its own, as what this one has freed would hide what it takes -- */

#if defined(__linux__) && defined(__x86_64__) && !defined(TEST_COMBINED) && !defined(MEMOPT_I_ASAN) \
    && !defined(__SANITIZE_THREAD__)
#define TAPE_MEASURED
static const char *tape_program;

static double tape_process(const char *what) { /* MB of a line of /proc/self/status */
    char line[256]; double kilobytes = 0; FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, what, strlen(what))) kilobytes = atof(line + strlen(what) + 1);
    if (f) fclose(f);
    return kilobytes * 1024e-6;
}
/* 0: the process stays within the figure when the tape is created, in training, and when it is solved again */
static int tape_measure(const char *form) {
    static table_chain c; memopt_tape_desc d = table_desc(&c, TABLE_MOST, !strcmp(form, "unequal"), table_saved);
    const double base = tape_process("VmHWM:"); const size_t weights = 4000000; double create, training, again, most;
    memopt_source source; memopt_arena_desc ad; memopt_arena *arena = NULL; memopt_tape *tape; memopt_tape_stats s; size_t i;
    unsigned char *w = (unsigned char *)malloc(weights);
    if (!w) return 1;
    memset(w, 1, weights);
    memset(&ad, 0, sizeof ad);
    ad.source = &source; ad.capacity = (size_t)1 << 40;
    CHECK(memopt_source_counting(&source) == MEMOPT_OK && memopt_arena_create(&ad, &arena) == MEMOPT_OK);
    tape = table_open(&d, arena, &s);
    memopt_tape_destroy(tape);
    memopt_arena_destroy(arena);
    ad.capacity = s.peak;
    CHECK(memopt_source_pages(NULL, &source) == MEMOPT_OK && memopt_arena_create(&ad, &arena) == MEMOPT_OK);
    tape = table_open(&d, arena, &s);
    create = tape_process("VmHWM:") - base;
    for (i = 0; i < 2; ++i)
        CHECK(memopt_tape_forward(tape, w) == MEMOPT_OK && memopt_tape_backward(tape, w, NULL) == MEMOPT_OK);
    training = tape_process("VmHWM:") - base;
    for (i = 0; i < TABLE_MOST; ++i) c.segment[i].backward_cost = 2.5;
    CHECK(memopt_tape_reshape(tape, &d.chain) == MEMOPT_OK);
    again = tape_process("VmHWM:") - base;
    CHECK(memopt_arena_get_stats(arena).peak == s.peak);
    most = 1.1 * 1e-6 * (double)(s.peak + weights) + 2;
    if (strcmp(form, "equal")) most += 1.1e-6 * (double)s.solve_bytes; /* of the dry run, which the host gave */
    printf("%s steps: pass %.1f MB, weights %.1f, table %.1f; process at create %.1f, in training %.1f, solved again %.1f, "
           "limit %.1f\n", form, 1e-6 * (double)s.peak, 1e-6 * (double)weights, 1e-6 * (double)s.solve_bytes, create,
           training, again, most);
    memopt_tape_destroy(tape);
    memopt_arena_destroy(arena);
    free(w);
    return test_failures || s.peak < 20000000 || s.peak > 30000000 || create > most || training > most || again > most;
}
#endif
static void tape_process_memory(void) {
#ifdef TAPE_MEASURED
    static const char *const forms[] = { "equal", "unequal" }; char command[1000]; size_t i;
    for (i = 0; i < 2; ++i) {
        CHECK(strlen(tape_program) < 900);
        sprintf(command, "\"%s\" measure %s", tape_program, forms[i]);
        fflush(stdout);
        CHECK_AT(system(command) == 0, i);
    }
#else
    SKIP("the process is measured on Linux, x86-64, without sanitizers");
#endif
}

/* -- A calibration that leaves no trace -- */

/* All of an engine that outlasts a pass, but for the gradients of weights, which are its own to clear. */
static uint64_t tape_lasting(const tape_net *n) {
    uint64_t hash = 1;
    tape_hash(&hash, n->weights, n->weight_count * 4);
    tape_hash(&hash, n->momentum, n->weight_count * 4);
    tape_hash(&hash, n->stats, n->stat_count * 4);
    tape_hash(&hash, &n->own, 8);
    return hash;
}
static memopt_status tape_net_calibrate(tape_net *n, memopt_tape *tape, size_t repeats) {
    const memopt_status status = memopt_tape_calibrate(tape, n->x, NULL, n->gradient, repeats);
    size_t i;
    memset(n->grads, 0, sizeof n->grads);
    for (i = 0; i < n->count; ++i) n->op[i].is_glued = 0;
    return status;
}
/* Train; before step 3 calibrate, whole and failing at each of its callbacks. Nothing of it is left. */
static uint64_t tape_trained_calibrated(tape_net *n, const memopt_tape_desc *like, uint64_t at) {
    tape_rig r; memopt_tape_desc d = *like; memopt_tape *tape = NULL; tape_training t = tape_steps(3, 1);
    uint64_t lasting; size_t calls, k;
    tape_rig_open(&r, 800000, 0);
    d.arena = r.arena;
    tape_net_start(n);
    CHECK_AT(memopt_tape_create(&d, &tape) == MEMOPT_OK, at);
    t.hash = 1;
    tape_train(n, tape, &t);
    lasting = tape_lasting(n);
    tape_net_feed(n);
    n->calls = 0;
    CHECK_AT(tape_net_calibrate(n, tape, 2) == MEMOPT_OK && tape_lasting(n) == lasting && tape_rig_is_clean(&r), at);
    calls = n->calls;
    CHECK_AT(calls >= 4 * n->count && memopt_tape_get_stats(tape).passes == 3, at);
    for (k = 1; k <= calls; ++k) {
        memopt_status status;
        n->calls = 0; n->fail_on = k; n->fail_drawn = 0;
        status = tape_net_calibrate(n, tape, 2);
        CHECK_AT(status == MEMOPT_ERR_DEVICE || (!status && n->calls < k), k); /* the schedule follows the clock */
        CHECK_AT(tape_lasting(n) == lasting && tape_rig_is_clean(&r), k);
        n->calls = n->fail_on = 0; n->fail_drawn = k;
        status = n->glue || k % 4 ? MEMOPT_OK : tape_net_calibrate(n, tape, 2);
        CHECK_AT((status == MEMOPT_OK || status == MEMOPT_ERR_IO) && tape_lasting(n) == lasting, k);
        n->fail_drawn = SIZE_MAX;
    }
    n->fail_on = 0; n->calls = 0;
    tape_train(n, tape, &t);
    CHECK_AT(memopt_tape_get_stats(tape).passes == 6, at);
    memopt_tape_destroy(tape);
    tape_rig_close(&r);
    tape_hash(&t.hash, n->momentum, n->weight_count * 4);
    return t.hash;
}
static void tape_calibrated_quietly(void) {
    static tape_net n; size_t i, glue;
    for (glue = 0; glue < 2; ++glue)
        for (i = 0; i < TAPE_VARIANTS; i += glue ? 5 : 3) {
            memopt_tape_desc d; tape_training plain = tape_steps(6, 1); uint64_t hash;
            if (test_is_passed_over() && i) continue;
            tape_net_make(&n, tape_nets[0]);
            n.fused = 1; n.glue = (int)glue; n.fail_drawn = SIZE_MAX;
            d = tape_net_desc(&n, NULL);
            if (glue) { d.random_bytes = 0; d.random_save_fn = NULL; d.random_load_fn = NULL; }
            tape_variant(&d, i);
            hash = tape_trained_calibrated(&n, &d, i);
            CHECK_AT(glue || n.hooks > 0, i);
            tape_net_start(&n);
            plain = tape_trained_plainly(&n, plain);
            tape_hash(&plain.hash, n.momentum, n.weight_count * 4);
            CHECK_AT(hash == plain.hash, glue * 100 + i);
        }
}
/* The generator is of an inner tape, and the outer one, which is calibrated, has no hooks. */
static void tape_calibrated_nested(void) {
    static tape_net n; size_t i;
    for (i = 0; i < TAPE_VARIANTS; i += 7) {
        memopt_tape_desc id, d; memopt_tape *inner = NULL; memopt_segment segment[6]; memopt_tape_layer layer[6]; size_t k;
        tape_training plain = tape_steps(6, 1); uint64_t hash;
        tape_net_make(&n, "L20BNOBL8BH");
        n.fused = 1; n.fail_drawn = SIZE_MAX;
        id = tape_net_desc(&n, NULL);
        id.chain.segments = n.segment + 1; id.chain.count = 4; id.layers = n.layer + 1;
        id.chain.input_bytes = id.chain.input_grad_bytes = n.segment[0].output_bytes;
        tape_variant(&id, i);
        CHECK(memopt_tape_create(&id, &inner) == MEMOPT_OK);
        segment[0] = n.segment[0]; layer[0] = n.layer[0];
        CHECK(memopt_tape_nest(inner, &segment[1], &layer[1]) == MEMOPT_OK);
        for (k = 5; k < 8; ++k) { segment[k - 3] = n.segment[k]; layer[k - 3] = n.layer[k]; }
        d = tape_net_desc(&n, NULL);
        d.random_bytes = 0; d.random_save_fn = NULL; d.random_load_fn = NULL;
        d.chain.segments = segment; d.chain.count = 5; d.layers = layer;
        d.rule = i % 2 ? MEMOPT_SCHEDULE_NONE : MEMOPT_SCHEDULE_SQRT;
        hash = tape_trained_calibrated(&n, &d, i);
        plain = tape_trained_plainly(&n, plain);
        tape_hash(&plain.hash, n.momentum, n.weight_count * 4);
        CHECK_AT(hash == plain.hash, i);
        memopt_tape_destroy(inner);
    }
}
/* A recompute that has drawn and fails: the generator stays where the first runs have left it. */
static void tape_generator_after_failure(void) {
    static tape_net n, before; tape_rig r; memopt_tape_desc d; memopt_tape *tape = NULL; size_t calls, k, failed = 0;
    tape_net_make(&n, "L16OBOL16BOH");
    tape_rig_open(&r, 400000, 0);
    d = tape_net_desc(&n, r.arena);
    d.rule = MEMOPT_SCHEDULE_NONE;
    tape_net_start(&n);
    n.fail_drawn = SIZE_MAX;
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
    tape_net_feed(&n);
    before = n;
    (void)tape_tape_pass(&n, tape);
    calls = n.calls;
    for (k = 1; k < TAPE_MOST; ++k) /* first runs save, recomputes load, each of its own segment */
        CHECK_AT(n.saves[k] == (k < n.count ? n.count - k : 0) && n.loads[k] == (k < n.count
            ? 2 * (n.count - 1 - k) : 0), k);
    CHECK(n.own == n.drawn && n.own != 1);
    for (k = 1; k <= calls; ++k) {
        memopt_status status; tape_op op[TAPE_MOST];
        memcpy(op, n.op, sizeof op);
        n = before;
        memcpy(n.op, op, sizeof op);
        CHECK(memopt_tape_seek(tape, 0) == MEMOPT_OK);
        n.fail_drawn = k;
        status = memopt_tape_forward(tape, n.x);
        if (!status) status = memopt_tape_backward(tape, NULL, n.gradient);
        if (status != MEMOPT_ERR_IO) continue;
        ++failed;
        if (memopt_tape_error(tape).action >= n.count * 2) CHECK_AT(n.own == n.drawn, k);
        CHECK_AT(tape_rig_is_clean(&r), k);
    }
    CHECK(failed > 10);
    memopt_tape_destroy(tape);
    tape_rig_close(&r);
}

/* -- Jumps out of inner tapes and out of recomputes -- */

typedef struct tape_left_net { tape_net *n; memopt_tape *tape; float loss; } tape_left_net;
static memopt_status tape_left_net_run(void *x) {
    const tape_left_net *const l = (const tape_left_net *)x;
    const memopt_status status = memopt_tape_forward(l->tape, l->n->x);
    return status ? status : memopt_tape_backward(l->tape, NULL, l->n->gradient);
}
/* Where the generator is after the jump is where it is after a failure at the same place. */
static void tape_jumped_with_generator(void) {
    static tape_net n, before; tape_rig r; memopt_tape_desc d; tape_left_net l; size_t calls, k, put_back = 0; uint64_t failed = 0;
    tape_net_make(&n, "L16OBOL16BOH");
    tape_rig_open(&r, 400000, 0);
    d = tape_net_desc(&n, r.arena);
    d.rule = MEMOPT_SCHEDULE_NONE;
    tape_net_start(&n);
    n.fail_drawn = SIZE_MAX;
    memset(&l, 0, sizeof l);
    CHECK(memopt_tape_create(&d, &l.tape) == MEMOPT_OK);
    tape_net_feed(&n);
    before = n;
    l.n = &n;
    (void)tape_tape_pass(&n, l.tape);
    calls = n.calls;
    for (k = 1; k <= calls; ++k)
        for (tape_leaves = TAPE_FAILS; tape_leaves <= TAPE_CANCELS; ++tape_leaves) {
            tape_op op[TAPE_MOST]; memopt_status status = MEMOPT_OK; int left;
            memcpy(op, n.op, sizeof op);
            n = before;
            memcpy(n.op, op, sizeof op);
            CHECK(memopt_tape_seek(l.tape, 0) == MEMOPT_OK);
            n.fail_drawn = k;
            tape_leaves_tape = l.tape;
            left = jump_caught(&tape_landing, tape_left_net_run, &l, &status);
            if (!left && !status) continue;
            if (tape_leaves == TAPE_JUMPS) put_back += n.drawn == failed && n.own != failed;
            CHECK_AT(left == (tape_leaves == TAPE_JUMPS) && memopt_tape_cancel(l.tape) == MEMOPT_OK && tape_rig_is_clean(&r), k);
            if (tape_leaves == TAPE_FAILS) failed = n.own;
            CHECK_AT(n.own == failed, k);
        }
    tape_leaves = TAPE_FAILS;
    CHECK(put_back > 5);
    memopt_tape_destroy(l.tape);
    tape_rig_close(&r);
}
/* Each callback, inside and outside: the next pass has the same number and the same bits. */
static void tape_jumped_nested(void) {
    static tape_net n, before, good; memopt_tape_desc id, d; memopt_tape *inner = NULL; tape_left_net l;
    memopt_segment segment[6]; memopt_tape_layer layer[6]; tape_rig r; size_t i, calls; float loss;
    tape_net_make(&n, "L20BNDBL8BH");
    tape_rig_open(&r, 400000, 0);
    memset(&l, 0, sizeof l);
    l.n = &n;
    id = tape_net_desc(&n, NULL);
    id.chain.segments = n.segment + 1; id.chain.count = 4; id.layers = n.layer + 1; id.random_bytes = 0;
    id.random_save_fn = NULL; id.random_load_fn = NULL;
    id.chain.input_bytes = id.chain.input_grad_bytes = n.segment[0].output_bytes;
    id.rule = MEMOPT_SCHEDULE_NONE;
    CHECK(memopt_tape_create(&id, &inner) == MEMOPT_OK);
    segment[0] = n.segment[0]; layer[0] = n.layer[0];
    CHECK(memopt_tape_nest(inner, &segment[1], &layer[1]) == MEMOPT_OK);
    for (i = 5; i < 8; ++i) { segment[i - 3] = n.segment[i]; layer[i - 3] = n.layer[i]; }
    d = tape_net_desc(&n, r.arena);
    d.chain.segments = segment; d.chain.count = 5; d.layers = layer; d.rule = MEMOPT_SCHEDULE_NONE;
    CHECK(memopt_tape_create(&d, &l.tape) == MEMOPT_OK);
    tape_net_start(&n);
    tape_net_feed(&n);
    before = n;
    loss = tape_tape_pass(&n, l.tape);
    calls = n.calls;
    good = n;
    for (i = 1; i <= calls; ++i) {
        memopt_status status = MEMOPT_OK; uint64_t bits[2] = { 1, 1 }; float again;
        n = before;
        CHECK(memopt_tape_seek(l.tape, 0) == MEMOPT_OK);
        memcpy(n.op, good.op, sizeof n.op);
        n.fail_on = i;
        tape_leaves = TAPE_JUMPS;
        CHECK_AT(jump_caught(&tape_landing, tape_left_net_run, &l, &status) && n.calls == i, i);
        tape_leaves = TAPE_FAILS;
        CHECK_AT(memopt_tape_cancel(l.tape) == MEMOPT_OK && tape_rig_is_clean(&r), i);
        CHECK_AT(memopt_tape_seek(inner, 0) == MEMOPT_OK, i); /* it is free, too */
        n = before;
        memcpy(n.op, good.op, sizeof n.op);
        again = tape_tape_pass(&n, l.tape);
        tape_hash(&bits[0], n.grads, n.weight_count * 4); tape_hash(&bits[1], good.grads, n.weight_count * 4);
        CHECK_AT(!(loss < again) && !(loss > again) && bits[0] == bits[1] && !memcmp(n.stats, good.stats, sizeof n.stats), i);
    }
    CHECK(memopt_tape_get_stats(l.tape).passes == calls + 1);
    memopt_tape_destroy(l.tape);
    memopt_tape_destroy(inner);
    tape_rig_close(&r);
}

/* -- Memory that overlaps -- */

static memopt_status tape_double_forward(const memopt_tape_call *s) { /* y = 2 x, element by element: right also in
                                                                         place */
    size_t i;
    for (i = 0; i < 32; ++i) ((float *)s->output)[i] = 2 * ((const float *)s->input)[i];
    return MEMOPT_OK;
}
static memopt_status tape_double_backward(const memopt_tape_call *s) {
    size_t i;
    for (i = 0; i < 32 && s->grad_input; ++i) ((float *)s->grad_input)[i] = 2 * ((const float *)s->grad_output)[i];
    return MEMOPT_OK;
}
/* ---- sizes in one place: callbacks that take, and are described by running dry ---- */
typedef struct taking { size_t n, calls, more; float weight; int part, fails; memopt_status status; } taking; /* more: than it was described with */
static float product(float a, float b) { /* rounded by itself: a compiler that fuses it with a sum does so here and not there */
    volatile float p = a * b;
    return p;
}
static memopt_status taking_forward(const memopt_tape_call *call) {
    taking *l = (taking *)call->user;
    const float *x = (const float *)call->input;
    float *y = (float *)call->output;
    float *hidden = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, l->n * 4 + (l->part == 0 ? l->more : 0));
    float *sums = (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, 100 + (l->part == 1 ? l->more : 0));
    float *twice = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, l->n * 8);
    size_t i;
    if (l->fails == 1) {
        call->error->subject = "norm"; call->error->argument = "output"; call->error->reason = "overlaps"; call->error->other = "input";
        call->error->status = MEMOPT_ERR_ARGUMENT;
    }
    if (l->fails & 1) return l->status;
    if (call->describing) {
        CHECK(hidden && sums && twice && hidden != twice && (uintptr_t)twice % 64 == 0 && !call->input && !call->output && call->segment < 9);
        CHECK(!memopt_tape_take(call, MEMOPT_TAPE_SAVED, 0));
        return MEMOPT_OK;
    }
    if (!hidden || !sums || !twice) return MEMOPT_OK; /* it says nothing: the tape finds it */
    CHECK((uintptr_t)hidden % 64 == 0 && (uintptr_t)sums % 64 == 0 && (uintptr_t)twice % 64 == 0);
    if (call->saves) CHECK((void *)hidden == call->saved && (void *)sums == call->scratch && (char *)twice == (char *)hidden + (l->n * 4 + 63) / 64 * 64);
    else CHECK((void *)hidden == call->scratch && (char *)sums == (char *)hidden + (l->n * 4 + 63) / 64 * 64 && (char *)twice == (char *)sums + 128);
    ++l->calls;
    memset(sums, 0, 100);
    for (i = 0; i < l->n; ++i) { hidden[i] = product(x[i], l->weight); twice[2 * i] = hidden[i] + 1; twice[2 * i + 1] = hidden[i] - 1; sums[i % 25] += hidden[i]; }
    for (i = 0; i < l->n; ++i) y[i] = hidden[i] + product(twice[2 * i], twice[2 * i + 1]) + sums[i % 25];
    return MEMOPT_OK;
}
static memopt_status taking_nothing(const memopt_tape_call *call) {
    (void)memopt_tape_take(call, MEMOPT_TAPE_SAVED, 1);
    return MEMOPT_OK;
}
static memopt_status taking_none(const memopt_tape_call *call) {
    return call ? MEMOPT_OK : MEMOPT_ERR_ARGUMENT;
}
static memopt_status taking_turned(const memopt_tape_call *call) { /* a backward that takes the same bytes in another order */
    const taking *l = (const taking *)call->user;
    (void)memopt_tape_take(call, MEMOPT_TAPE_SAVED, l->n * 8);
    (void)memopt_tape_take(call, MEMOPT_TAPE_SAVED, l->n * 4);
    return MEMOPT_OK;
}
static memopt_status taking_many(const memopt_tape_call *call) { /* 40 parts; n: which one the backward takes otherwise */
    const taking *l = (const taking *)call->user; size_t i;
    for (i = 0; i < 40; ++i) (void)memopt_tape_take(call, MEMOPT_TAPE_SAVED, 65 + i % 2 - (call->is_backward && i == l->n ? 1 + i % 2 : 0));
    return MEMOPT_OK;
}
static memopt_status taking_backward(const memopt_tape_call *call) {
    taking *l = (taking *)call->user;
    const float *g = (const float *)call->grad_output;
    float *out = (float *)call->grad_input, *hidden = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, l->n * 4);
    float *sums = (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, 300 + (l->part == 2 ? l->more : 0));
    float *twice = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, l->n * 8);
    size_t i;
    if (l->fails == 2) {
        call->error->status = MEMOPT_ERR_FORMAT; call->error->reason = "is cursed"; /* where it lies is the tape's to tell */
        return l->status;
    }
    if (call->describing) { CHECK(call->saves && hidden && sums && twice); return MEMOPT_OK; }
    if (!hidden || !sums || !twice) return MEMOPT_ERR_MEMORY; /* also then the tape knows better */
    memset(sums, 0, 100);
    for (i = 0; i < l->n; ++i) sums[i % 25] += g[i];
    for (i = 0; i < l->n; ++i) out[i] = (g[i] + sums[i % 25] + product(g[i], twice[2 * i] + twice[2 * i + 1])) * l->weight;
    CHECK(call->saved == (void *)hidden);
    return MEMOPT_OK;
}
#define TAKING 6
#define TAKING_N 333
static void taking_plain(float *g, const float *x0) { /* the same without a tape */
    static float hidden[TAKING][TAKING_N], x[TAKING_N]; float sums[25]; size_t l, i;
    memcpy(x, x0, sizeof x);
    for (l = 0; l < TAKING; ++l) {
        const float w = 0.5f + 0.125f * (float)l;
        memset(sums, 0, sizeof sums);
        for (i = 0; i < TAKING_N; ++i) { hidden[l][i] = product(x[i], w); sums[i % 25] += hidden[l][i]; }
        for (i = 0; i < TAKING_N; ++i) x[i] = hidden[l][i] + product(hidden[l][i] + 1, hidden[l][i] - 1) + sums[i % 25];
    }
    for (l = TAKING; l-- > 0;) {
        const float w = 0.5f + 0.125f * (float)l;
        memset(sums, 0, sizeof sums);
        for (i = 0; i < TAKING_N; ++i) sums[i % 25] += g[i];
        for (i = 0; i < TAKING_N; ++i) {
            const float above = hidden[l][i] + 1, below = hidden[l][i] - 1; /* as floats: the x87 computes wider */
            g[i] = (g[i] + sums[i % 25] + product(g[i], above + below)) * w;
        }
    }
}
static void tape_taken(void) {
    static float x[TAKING_N], g[TAKING_N], want[TAKING_N], got[TAKING_N];
    memopt_segment segment[TAKING], before[TAKING]; memopt_tape_layer layer[TAKING]; taking l[TAKING]; memopt_tape_desc d; memopt_tape *tape = NULL;
    memopt_error e; tape_rig r; size_t i, least = 0; const size_t row = (TAKING_N * 4 + 63) / 64 * 64, rows = (TAKING_N * 8 + 63) / 64 * 64; int part;
    memset(segment, 0, sizeof segment); memset(l, 0, sizeof l); memset(&d, 0, sizeof d); memset(&e, 0, sizeof e);
    for (i = 0; i < TAKING; ++i) {
        l[i].n = TAKING_N; l[i].weight = 0.5f + 0.125f * (float)i;
        layer[i].forward_fn = taking_forward; layer[i].backward_fn = taking_backward; layer[i].user = &l[i];
        segment[i].output_bytes = segment[i].grad_bytes = TAKING_N * 4; segment[i].forward_cost = 1; segment[i].backward_cost = 2;
    }
    memcpy(before, segment, sizeof before);
    /* what fails leaves everything as it was */
    CHECK(memopt_tape_describe(NULL, segment, TAKING, &e) == MEMOPT_ERR_ARGUMENT && test_error_says(e, MEMOPT_ERR_ARGUMENT, "layers is NULL"));
    CHECK(memopt_tape_describe(layer, NULL, TAKING, &e) == MEMOPT_ERR_ARGUMENT && test_error_says(e, MEMOPT_ERR_ARGUMENT, "segments is NULL"));
    CHECK(memopt_tape_describe(layer, NULL, TAKING, NULL) == MEMOPT_ERR_ARGUMENT);
    layer[3].backward_fn = NULL;
    CHECK(memopt_tape_describe(layer, segment, TAKING, &e) == MEMOPT_ERR_ARGUMENT && test_error_says(e, MEMOPT_ERR_ARGUMENT, "segment 3: no backward callback"));
    layer[3].backward_fn = taking_backward;
    l[5].fails = 1; l[5].status = MEMOPT_ERR_UNSUPPORTED;
    CHECK(memopt_tape_describe(layer, segment, TAKING, &e) == MEMOPT_ERR_UNSUPPORTED);
    CHECK(test_error_says(e, MEMOPT_ERR_UNSUPPORTED, "segment 5: forward: norm: output overlaps input") && e.segment == 5);
    CHECK(memopt_tape_describe(layer, segment, TAKING, NULL) == MEMOPT_ERR_UNSUPPORTED);
    l[5].fails = 3; l[5].status = MEMOPT_ERR_IO;
    CHECK(memopt_tape_describe(layer, segment, TAKING, &e) == MEMOPT_ERR_IO && test_error_says(e, MEMOPT_ERR_IO, "segment 5: a forward callback failed while describing"));
    l[5].fails = 0; l[4].part = 0; l[4].more = SIZE_MAX - 5000;
    CHECK(memopt_tape_describe(layer, segment, TAKING, &e) == MEMOPT_ERR_OVERFLOW && test_error_says(e, MEMOPT_ERR_OVERFLOW, "segment 4: what the tape needs does not fit size_t"));
    l[4].more = SIZE_MAX - 10 - l[4].n * 4;
    CHECK(memopt_tape_describe(layer, segment, TAKING, &e) == MEMOPT_ERR_OVERFLOW && test_error_says(e, MEMOPT_ERR_OVERFLOW, "segment 4: what the tape needs does not fit size_t"));
    l[4].more = 0; segment[4].output_bytes = SIZE_MAX - 100;
    CHECK(memopt_tape_describe(layer, segment, TAKING, &e) == MEMOPT_ERR_OVERFLOW && test_error_says(e, MEMOPT_ERR_OVERFLOW, "segment 4: what the tape needs does not fit size_t"));
    segment[4].output_bytes = TAKING_N * 4;
    layer[2].forward_fn = taking_nothing;
    CHECK(memopt_tape_describe(layer, segment, TAKING, &e) == MEMOPT_ERR_ARGUMENT && e.segment == 2);
    CHECK(test_error_says(e, MEMOPT_ERR_ARGUMENT, "segment 2: saved 4032, at most what the forward takes 64") && memopt_tape_describe(layer, segment, TAKING, NULL) == MEMOPT_ERR_ARGUMENT);
    layer[2].forward_fn = taking_forward;
    layer[2].backward_fn = taking_turned; /* as many bytes in all: only the parts tell */
    CHECK(memopt_tape_describe(layer, segment, TAKING, &e) == MEMOPT_ERR_ARGUMENT && e.segment == 2);
    CHECK(test_error_says(e, MEMOPT_ERR_ARGUMENT, "segment 2: its backward takes saved bytes 2664, where its forward takes 1332"));
    CHECK(memopt_tape_describe(layer, segment, TAKING, NULL) == MEMOPT_ERR_ARGUMENT);
    layer[2].forward_fn = layer[2].backward_fn = taking_many;
    for (l[2].n = 0; l[2].n < 32; ++l[2].n) {
        CHECK_AT(memopt_tape_describe(layer, segment, TAKING, &e) == MEMOPT_ERR_ARGUMENT, (int)l[2].n);
        CHECK_AT(test_error_says(e, MEMOPT_ERR_ARGUMENT, l[2].n % 2 ? "segment 2: its backward takes saved bytes 64, where its forward takes 66"
                                                                    : "segment 2: its backward takes saved bytes 64, where its forward takes 65"), (int)l[2].n);
    }
    l[2].n = TAKING_N;
    layer[2].forward_fn = taking_forward; layer[2].backward_fn = taking_backward;
    CHECK(!memcmp(before, segment, sizeof before));
    layer[2].forward_fn = layer[2].backward_fn = taking_many; /* 65 and 66 bytes take the same place; the last parts may be left out */
    CHECK(memopt_tape_describe(layer, segment, TAKING, &e) == MEMOPT_OK && segment[2].saved_bytes == TAKING_N * 4 + 40 * 128);
    layer[2].backward_fn = taking_none;
    CHECK(memopt_tape_describe(layer, segment, TAKING, &e) == MEMOPT_OK);
    layer[2].forward_fn = taking_forward; layer[2].backward_fn = taking_backward;
    memcpy(segment, before, sizeof before);
    CHECK(memopt_tape_describe(layer, segment, TAKING, &e) == MEMOPT_OK && memopt_tape_describe(layer, segment, 0, NULL) == MEMOPT_OK);
    for (i = 0; i < TAKING; ++i) {
        CHECK_AT(segment[i].saved_bytes == TAKING_N * 4 + row + rows && segment[i].forward_scratch == 128 && segment[i].plain_scratch == row + rows + 128, i);
        CHECK_AT(segment[i].backward_scratch == 320 && segment[i].output_bytes == TAKING_N * 4 && segment[i].forward_cost > 0 && !l[i].calls, i);
    }
    CHECK(!memopt_tape_take(NULL, MEMOPT_TAPE_SAVED, 64));
    /* and the pass: from keeping all to the least */
    for (i = 0; i < TAKING_N; ++i) { x[i] = 0.01f * (float)(i % 37) - 0.2f; g[i] = 0.001f * (float)(i % 13) - 0.005f; }
    memcpy(want, g, sizeof want); taking_plain(want, x);
    tape_rig_open(&r, 1 << 20, 0);
    d.arena = r.arena; d.layers = layer; d.chain.segments = segment; d.chain.count = TAKING; d.chain.input_bytes = d.chain.input_grad_bytes = TAKING_N * 4;
    CHECK(memopt_tape_min_budget(&d, &least) == MEMOPT_OK);
    for (i = 0; i < 4; ++i) {
        d.budget = i ? least + (i - 1) * 5000 : (size_t)1 << 20; d.verify = i == 2; tape = NULL;
        CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
        memset(got, 0, sizeof got);
        CHECK_AT(memopt_tape_forward(tape, x) == MEMOPT_OK && memopt_tape_backward(tape, g, got) == MEMOPT_OK && !memcmp(got, want, sizeof got), i);
        CHECK_AT(memopt_tape_evaluate(tape, x, got) == MEMOPT_OK, i);
        if (i == 2) { /* each segment's forwards, as the actions count them */
            char text[4000], want_text[400]; size_t count, k, s, forwards[TAKING] = { 0 }, again = 0; const memopt_action *a = memopt_tape_actions(tape, &count); int any = 0;
            for (k = 0; k < count; ++k) if (a[k].op <= MEMOPT_ACTION_FORWARD_SAVE) ++forwards[a[k].index];
            for (s = 0; s < TAKING; ++s) again += forwards[s] - 1;
            k = (size_t)snprintf(want_text, sizeof want_text, "verify: outputs compared %u; saved parts and gradients are not looked at", (unsigned)again);
            for (s = 0; s < TAKING; ++s) if (forwards[s] == 1 && (!s || forwards[s - 1] > 1)) {
                size_t e2 = s;
                while (e2 + 1 < TAKING && forwards[e2 + 1] == 1) ++e2;
                k += (size_t)snprintf(want_text + k, sizeof want_text - k, e2 > s ? "%s%u to %u" : "%s%u", any++ ? ", " : ", nor outputs that are made once, of segments ", (unsigned)s, (unsigned)e2);
            }
            CHECK(memopt_tape_report(tape, text, sizeof text, NULL) == MEMOPT_OK && again > 0 && any);
            CHECK(strstr(text, want_text) && strstr(text, want_text)[k] == '\n');
        }
        for (part = 0; part < 3; ++part) { /* 64 bytes more than described, in the last segment that is run or the first */
            static const char *const says[3] = { "segment 4: saved 4096, described 4032", "segment 4: scratch 192, described 128", "segment 4: scratch 384, described 320" };
            char text[200]; size_t length;
            l[4].part = part; l[4].more = 64;
            if (memopt_tape_forward(tape, x) == MEMOPT_OK) CHECK_AT(memopt_tape_backward(tape, g, got) == MEMOPT_ERR_STATE, part);
            e = memopt_tape_error(tape);
            CHECK_AT(e.status == MEMOPT_ERR_STATE && e.segment == 4, part);
            CHECK(memopt_error_text(&e, text, sizeof text, &length) == MEMOPT_OK);
            if (i == 0 || part == 2) CHECK_AT(!strncmp(text, says[part], strlen(says[part])), (int)i);
            l[4].more = 0;
            memopt_tape_cancel(tape);
            CHECK_AT(tape_rig_is_clean(&r), part);
        }
        for (part = 1; part < 4; ++part) { /* a callback says why it failed, or does not */
            static const char *const says[3] = { "segment 1: forward: norm: output overlaps input, action ", "segment 1: backward: is cursed, action ", "segment 1: a forward callback failed, action " };
            char text[200];
            l[1].fails = part; l[1].status = MEMOPT_ERR_UNSUPPORTED;
            if (memopt_tape_forward(tape, x) == MEMOPT_OK) CHECK_AT(memopt_tape_backward(tape, g, got) == MEMOPT_ERR_UNSUPPORTED, part);
            e = memopt_tape_error(tape);
            CHECK_AT(e.status == MEMOPT_ERR_UNSUPPORTED && e.segment == 1 && e.action != SIZE_MAX, part);
            CHECK(memopt_error_text(&e, text, sizeof text, NULL) == MEMOPT_OK);
            CHECK_AT(!strncmp(text, says[part - 1], strlen(says[part - 1])), part);
            l[1].fails = 0;
            memopt_tape_cancel(tape);
        }
        memset(got, 0, sizeof got); /* and then it runs as before */
        CHECK_AT(memopt_tape_forward(tape, x) == MEMOPT_OK && memopt_tape_backward(tape, g, got) == MEMOPT_OK && !memcmp(got, want, sizeof got), i);
        memopt_tape_destroy(tape);
    }
    { /* a tape in a tape, described like any layer */
        memopt_segment outer, told; memopt_tape_layer outer_layer; memopt_tape_desc id = d;
        memset(&outer, 0, sizeof outer); id.arena = NULL; id.budget = 0; id.overhead = 0.3; id.verify = 0;
        CHECK(memopt_tape_create(&id, &tape) == MEMOPT_OK && memopt_tape_nest(tape, &outer, &outer_layer) == MEMOPT_OK);
        told = outer; told.saved_bytes = told.forward_scratch = told.plain_scratch = told.backward_scratch = 0;
        CHECK(memopt_tape_describe(&outer_layer, &told, 1, &e) == MEMOPT_OK && told.saved_bytes == outer.saved_bytes);
        CHECK(told.forward_scratch == outer.forward_scratch && told.plain_scratch == outer.plain_scratch && told.backward_scratch == outer.backward_scratch);
        memopt_tape_destroy(tape);
    }
    tape_rig_close(&r);
}

/* ---- a step in the backward, and a head without a forward ---- */
typedef struct stepping { memopt_optim *optim; float *weights; size_t tensor, steps; int quiet; float add; } stepping;
static memopt_status stepping_forward(const memopt_tape_call *call) {
    stepping *s = (stepping *)call->user; size_t i;
    if (call->describing) return MEMOPT_OK;
    for (i = 0; i < 64; ++i) ((float *)call->output)[i] = ((const float *)call->input)[i] * s->weights[i];
    return MEMOPT_OK;
}
static memopt_status stepping_backward(const memopt_tape_call *call) {
    stepping *s = (stepping *)call->user; size_t i; memopt_status status; const float *g = (const float *)call->grad_output;
    float *gradients = (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, 64 * sizeof(float)), *to = (float *)call->grad_input;
    if (!call->describing) {
        for (i = 0; i < 64; ++i) { /* the head has no output: its gradient is its loss's, 1 */
            const float up = g ? g[i] : 1;
            gradients[i] = up * ((const float *)call->input)[i] + s->add;
            if (to) to[i] = up * s->weights[i];
        }
        if (!call->calibrating) ++s->steps;
    }
    status = memopt_tape_step(call, s->optim, s->tensor, gradients);
    CHECK(!status || s->quiet);
    return status;
}
static void tape_steps_in_backward(void) {
    enum { N = 3 };
    static float weights[N][64], want[N][64], x[64], gx[64]; memopt_segment segment[N]; memopt_tape_layer layer[N]; memopt_tape_desc d; memopt_tape *tape = NULL;
    memopt_optim_tensor tensor[N]; memopt_optim_desc od; memopt_optim *optim = NULL; memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_SGD);
    memopt_optim_run run; stepping s[N]; tape_rig r; size_t i, k; memopt_error e; memopt_host host; test_faults f;
    memset(segment, 0, sizeof segment); memset(tensor, 0, sizeof tensor); memset(&od, 0, sizeof od); memset(&run, 0, sizeof run); memset(&d, 0, sizeof d); memset(s, 0, sizeof s);
    memset(&f, 0, sizeof f); host = test_host(&f);
    for (i = 0; i < N; ++i) {
        for (k = 0; k < 64; ++k) weights[i][k] = want[i][k] = 0.5f + 0.01f * (float)(i + k);
        tensor[i].count = 64; tensor[i].weights = weights[i]; /* gradients stay NULL */
        s[i].weights = weights[i]; s[i].tensor = i;
        layer[i].forward_fn = i + 1 < N ? stepping_forward : NULL; layer[i].backward_fn = stepping_backward; layer[i].user = &s[i];
        segment[i].output_bytes = segment[i].grad_bytes = i + 1 < N ? 256 : 0;
    }
    for (k = 0; k < 64; ++k) x[k] = 0.125f * (float)(k % 9) - 0.5f;
    od.kind = MEMOPT_OPTIM_SGD; od.tensors = tensor; od.tensor_count = N;
    CHECK(memopt_optim_open(&od, NULL, &optim) == MEMOPT_OK);
    for (i = 0; i < N; ++i) s[i].optim = optim;
    segment[1].forward_cost = 5;
    CHECK(memopt_tape_describe(layer, segment, N, &e) == MEMOPT_OK && segment[2].backward_scratch == 256 && segment[2].forward_scratch == 0 && segment[2].saved_bytes == 0);
    CHECK(memopt_i_double_bits(segment[0].forward_cost) == memopt_i_double_bits(1) && memopt_i_double_bits(segment[0].backward_cost) == memopt_i_double_bits(2));
    CHECK(memopt_i_double_bits(segment[1].forward_cost) == memopt_i_double_bits(5) && !(segment[1].backward_cost > 0)); /* told: it stays */
    tape_rig_open(&r, 1 << 16, 0);
    d.arena = r.arena; d.layers = layer; d.chain.segments = segment; d.chain.count = N; d.chain.input_bytes = d.chain.input_grad_bytes = 256; d.overhead = 1; d.host = &host;
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
    CHECK(memopt_tape_calibrate(tape, x, NULL, gx, 3) == MEMOPT_OK && !memcmp(weights, want, sizeof want)); /* nothing is stepped */
    run.groups = &group; run.group_count = 1; run.step = 1; run.fused = 1;
    CHECK(memopt_optim_begin(optim, &run) == MEMOPT_OK && memopt_tape_forward(tape, x) == MEMOPT_OK);
    CHECK(memopt_tape_output(tape) == NULL && memopt_tape_backward(tape, NULL, gx) == MEMOPT_OK && memopt_optim_end(optim) == MEMOPT_OK);
    for (k = 0; k < 64; ++k) { /* y = x a b c: each weight's gradient is the product of the others; SGD takes 0.001 of it */
        const float ab = x[k] * want[0][k], abc = ab * want[1][k], up = want[2][k];
        CHECK_AT(fabsf(weights[2][k] - (want[2][k] - 1e-3f * abc)) < 1e-6f && fabsf(weights[1][k] - (want[1][k] - 1e-3f * up * ab)) < 1e-6f, (int)k);
        CHECK_AT(fabsf(weights[0][k] - (want[0][k] - 1e-3f * up * want[1][k] * x[k])) < 1e-6f && fabsf(gx[k] - up * want[1][k] * want[0][k]) < 1e-6f, (int)k);
    }
    s[1].add = (float)HUGE_VAL; s[1].quiet = 1; run.step = 2; /* what the optimizer says is what the tape says */
    CHECK(memopt_optim_begin(optim, &run) == MEMOPT_OK && memopt_tape_forward(tape, x) == MEMOPT_OK && memopt_tape_backward(tape, NULL, gx) == MEMOPT_ERR_STATE);
    e = memopt_tape_error(tape);
    CHECK(e.segment == 1 && e.callback && !strcmp(e.callback, "backward") && e.reason == memopt_optim_error(optim).reason && e.action != SIZE_MAX);
    CHECK(memopt_optim_end(optim) == MEMOPT_ERR_STATE && memopt_tape_step(NULL, optim, 0, x) == MEMOPT_ERR_ARGUMENT);
    memopt_tape_destroy(tape);
    segment[2].output_bytes = segment[2].saved_bytes = 64; d.error = &e;
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_ERR_ARGUMENT && test_error_says(e, MEMOPT_ERR_ARGUMENT, "segment 2: no forward callback, but an output"));
    memopt_optim_close(optim);
    CHECK(f.live_blocks == 0);
    tape_rig_close(&r);
}

/* ---- the usual way ---- */
static memopt_status opened_both(const memopt_tape_call *call) { /* one layer for all segments, one function for both callbacks */
    memopt_tape_call c = *call;
    c.user = (taking *)call->user + call->segment;
    return call->is_backward ? taking_backward(&c) : taking_forward(&c);
}
static void tape_opened(void) {
    static float x[TAKING_N], g[TAKING_N], want[TAKING_N], got[TAKING_N];
    memopt_segment segment[TAKING], before[TAKING]; memopt_tape_layer layer[TAKING]; taking l[TAKING]; memopt_tape_desc d, bad; memopt_tape *tape = NULL;
    memopt_error e; tape_rig r; test_faults f; memopt_host h; memopt_host half; memopt_tape_stats s; size_t i, n, variant, peak; memopt_status status;
    memset(segment, 0, sizeof segment); memset(l, 0, sizeof l); memset(&d, 0, sizeof d); memset(&e, 0, sizeof e); memset(&f, 0, sizeof f);
    for (i = 0; i < TAKING; ++i) {
        l[i].n = TAKING_N; l[i].weight = 0.5f + 0.125f * (float)i;
        layer[i].forward_fn = taking_forward; layer[i].backward_fn = taking_backward; layer[i].user = &l[i];
        segment[i].output_bytes = segment[i].grad_bytes = TAKING_N * 4;
        segment[i].saved_bytes = segment[i].backward_scratch = i; /* not read */
    }
    memcpy(before, segment, sizeof before);
    for (i = 0; i < TAKING_N; ++i) { x[i] = 0.01f * (float)(i % 37) - 0.2f; g[i] = 0.001f * (float)(i % 13) - 0.005f; }
    memcpy(want, g, sizeof want); taking_plain(want, x);
    h = test_host(&f);
    d.chain.segments = segment; d.chain.count = TAKING; d.chain.input_bytes = d.chain.input_grad_bytes = TAKING_N * 4;
    d.host = &h; d.error = &e; d.overhead = 0.33;
    /* with layers, or one for all; whatever fails, it is a value, and works the next time */
    for (variant = 0; variant < 2; ++variant) {
        d.layers = variant ? NULL : layer;
        d.layer.forward_fn = d.layer.backward_fn = variant ? opened_both : NULL; d.layer.user = l;
        for (n = 1; n < 100; ++n) {
            f.calls = 0; f.fail_on = n; tape = NULL;
            status = memopt_tape_open(&d, &tape);
            CHECK_AT(status == MEMOPT_OK || (status == MEMOPT_ERR_MEMORY && !tape && !f.live_blocks && e.status == MEMOPT_ERR_MEMORY), n);
            if (status) continue;
            CHECK_AT(!memcmp(before, segment, sizeof before), n);
            peak = f.live_bytes;
            status = memopt_tape_evaluate(tape, x, got);
            CHECK_AT(status == MEMOPT_OK || (status == MEMOPT_ERR_MEMORY && memopt_tape_error(tape).status == MEMOPT_ERR_MEMORY && f.live_bytes == peak), n);
            if (!status) CHECK_AT(f.live_bytes == peak + memopt_tape_get_stats(tape).evaluate_peak, n);
            status = memopt_tape_forward(tape, x);
            CHECK_AT(status == MEMOPT_OK || status == MEMOPT_ERR_MEMORY, n);
            if (status) CHECK_AT(test_error_says(memopt_tape_error(tape), MEMOPT_ERR_MEMORY, "no memory for a pass: asked 13.4 KiB"), n);
            if (status) status = memopt_tape_forward(tape, x);
            memset(got, 0, sizeof got);
            CHECK_AT(!status && memopt_tape_backward(tape, g, got) == MEMOPT_OK && !memcmp(got, want, sizeof got), n);
            CHECK_AT(f.live_bytes == peak + memopt_tape_get_stats(tape).peak, n);
            f.fail_on = 0; i = f.calls;
            CHECK_AT(memopt_tape_forward(tape, x) == MEMOPT_OK && memopt_tape_backward(tape, g, got) == MEMOPT_OK && memopt_tape_evaluate(tape, x, got) == MEMOPT_OK && f.calls == i, n);
            CHECK(memopt_tape_set_memory(tape, NULL, 0) == MEMOPT_ERR_ARGUMENT);
            CHECK(test_error_says(memopt_tape_error(tape), MEMOPT_ERR_ARGUMENT, "the tape was opened, and has memory of its own"));
            memopt_tape_destroy(tape);
            CHECK_AT(!f.live_blocks && !f.live_bytes && !f.bad_frees, n);
            if (i < n) break;
        }
        CHECK(n < 100);
    }
    f.fail_on = 0;
    /* costs: 1 and 2 where a segment has none; else as given */
    d.rule = MEMOPT_SCHEDULE_ALL;
    for (i = 0; i < 3; ++i) {
        segment[3].forward_cost = i == 1 ? 5 : 0; segment[3].backward_cost = i == 2 ? 7 : 0;
        CHECK(memopt_tape_open(&d, &tape) == MEMOPT_OK);
        s = memopt_tape_get_stats(tape);
        CHECK_AT(s.cost <= (i == 0 ? 18 : i == 1 ? 20 : 22) && s.cost >= (i == 0 ? 18 : i == 1 ? 20 : 22), i);
        memopt_tape_destroy(tape);
    }
    /* an arena stays an arena */
    tape_rig_open(&r, 1 << 20, 0);
    bad = d; bad.arena = r.arena; n = f.live_bytes; peak = memopt_arena_get_stats(r.arena).used_low;
    CHECK(memopt_tape_open(&bad, &tape) == MEMOPT_OK);
    i = f.live_bytes; memset(got, 0, sizeof got);
    CHECK(memopt_tape_forward(tape, x) == MEMOPT_OK && memopt_arena_get_stats(r.arena).used_low == peak + memopt_tape_get_stats(tape).peak && f.live_bytes == i);
    CHECK(memopt_tape_backward(tape, g, got) == MEMOPT_OK && !memcmp(got, want, sizeof got) && memopt_arena_get_stats(r.arena).used_low == peak);
    memopt_tape_destroy(tape);
    tape_rig_close(&r);
    CHECK(f.live_bytes == n);
    /* refusals */
    tape = NULL;
    CHECK(memopt_tape_open(NULL, &tape) == MEMOPT_ERR_ARGUMENT && memopt_tape_open(&d, NULL) == MEMOPT_ERR_ARGUMENT && test_error_says(e, MEMOPT_ERR_ARGUMENT, "out is NULL"));
    bad = d; bad.chain.segments = NULL; bad.chain.count = 0;
    CHECK(memopt_tape_open(&bad, &tape) == MEMOPT_ERR_ARGUMENT && test_error_says(e, MEMOPT_ERR_ARGUMENT, "count 0, at least 1"));
    bad.chain.count = MEMOPT_CHAIN_MAX + 1;
    CHECK(memopt_tape_open(&bad, &tape) == MEMOPT_ERR_ARGUMENT && test_error_says(e, MEMOPT_ERR_ARGUMENT, "count 4097, at most 4096"));
    bad = d; bad.layer.backward_fn = NULL;
    CHECK(memopt_tape_open(&bad, &tape) == MEMOPT_ERR_ARGUMENT && test_error_says(e, MEMOPT_ERR_ARGUMENT, "segment 0: no backward callback"));
    bad = d; bad.not_host_visible = 2;
    CHECK(memopt_tape_open(&bad, &tape) == MEMOPT_ERR_ARGUMENT && test_error_says(e, MEMOPT_ERR_ARGUMENT, "memory that is not for the CPU needs an arena"));
    memset(&half, 0, sizeof half); half.allocator.alloc_fn = test_alloc; bad = d; bad.host = &half;
    CHECK(memopt_tape_open(&bad, &tape) == MEMOPT_ERR_ARGUMENT && test_error_says(e, MEMOPT_ERR_ARGUMENT, MEMOPT_I_HALF_HOST));
    l[2].fails = 1; l[2].status = MEMOPT_ERR_UNSUPPORTED;
    CHECK(memopt_tape_open(&d, &tape) == MEMOPT_ERR_UNSUPPORTED && test_error_says(e, MEMOPT_ERR_UNSUPPORTED, "segment 2: forward: norm: output overlaps input"));
    CHECK(!tape && f.live_bytes == n && !f.bad_frees);
}

/* ---- equal blocks and a head ---- */
/* y = w x, each block with its own w; the head is sum(x^2) / 2. What goes in and out has other sizes than what lies between. */
enum { EQUAL = 6, EQUAL_N = 33, EQUAL_IN = EQUAL_N * 4 + 4, EQUAL_GRAD_IN = EQUAL_N * 4 + 8, EQUAL_OUT = EQUAL_N * 4, EQUAL_GRAD_OUT = EQUAL_N * 4 + 12 };
typedef struct equal_net { float weight[EQUAL]; int with_head, wrong, described, calls; size_t taken; } equal_net;
static int equal_sizes_are_wrong(const memopt_tape_call *c, const equal_net *net) {
    const int last = c->segment + 1 == EQUAL && net->with_head, first = c->segment == 0;
    if (c->describing) return c->input_bytes || c->output_bytes || c->grad_input_bytes || c->grad_output_bytes;
    return c->input_bytes != (size_t)(first ? EQUAL_IN : EQUAL_OUT) || c->output_bytes != (size_t)(last ? 0 : EQUAL_OUT)
        || c->grad_input_bytes != (size_t)(first ? EQUAL_GRAD_IN : EQUAL_GRAD_OUT) || c->grad_output_bytes != (size_t)(last ? 0 : EQUAL_GRAD_OUT);
}
static memopt_status equal_block(const memopt_tape_call *call) {
    equal_net *net = (equal_net *)call->user; const float w = net->weight[call->segment]; const float *x = (const float *)call->input; size_t i;
    unsigned char *sums = (unsigned char *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, 64), *zeroed = (unsigned char *)memopt_tape_take(call, MEMOPT_TAPE_ZEROED, net->taken);
    float *kept = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, EQUAL_N * 4);
    ++net->calls;
    if (!zeroed) return MEMOPT_OK; /* the tape tells it */
    net->wrong += equal_sizes_are_wrong(call, net) || zeroed != sums + 64;
    net->described += call->describing;
    if (call->describing || call->not_host_visible) return MEMOPT_OK;
    for (i = 0; i < net->taken; ++i) { net->wrong += zeroed[i] != 0; zeroed[i] = 0x5A; }
    for (i = 0; i < 64; ++i) sums[i] = 0x5A; /* and stay as they are: only what was asked for is zeroed */
    net->wrong += memopt_tape_take(call, (memopt_tape_part)3, 1) != NULL || memopt_tape_take(call, MEMOPT_TAPE_ZEROED, 0) != NULL;
    if (!call->is_backward)
        for (i = 0; i < EQUAL_N; ++i) { if (call->saves) kept[i] = x[i]; ((float *)call->output)[i] = w * x[i]; }
    else {
        memset(call->grad_input, 0, call->grad_input_bytes);
        for (i = 0; i < EQUAL_N; ++i) { net->wrong += kept[i] < x[i] || kept[i] > x[i]; ((float *)call->grad_input)[i] += w * ((float *)call->grad_output)[i]; }
    }
    for (i = 0; i < 64; ++i) net->wrong += sums[i] != 0x5A;
    return MEMOPT_OK;
}
static memopt_status equal_head(const memopt_tape_call *call) {
    equal_net *net = (equal_net *)call->user;
    net->wrong += !call->is_backward || equal_sizes_are_wrong(call, net);
    if (call->describing || call->not_host_visible) return MEMOPT_OK;
    memset(call->grad_input, 0, call->grad_input_bytes);
    memcpy(call->grad_input, call->input, EQUAL_N * 4);
    return MEMOPT_OK;
}
static memopt_tape_desc equal_desc(equal_net *net, memopt_error *e) {
    memopt_tape_desc d; size_t i;
    memset(&d, 0, sizeof d); memset(net, 0, sizeof *net);
    for (i = 0; i < EQUAL; ++i) net->weight[i] = 0.75f + 0.1f * (float)i;
    net->taken = 20;
    d.chain.count = EQUAL; d.chain.input_bytes = EQUAL_IN; d.chain.input_grad_bytes = EQUAL_GRAD_IN;
    d.segment.output_bytes = EQUAL_OUT; d.segment.grad_bytes = EQUAL_GRAD_OUT;
    d.layer.forward_fn = d.layer.backward_fn = equal_block; d.layer.user = net; d.overhead = 0.5; d.error = e;
    return d;
}
static void tape_equal_blocks(void) {
    static float x[EQUAL_N + 1], g[EQUAL_N + 3], want[EQUAL_N], got[EQUAL_N + 2];
    memopt_segment segment[EQUAL]; memopt_tape_layer layer[EQUAL]; equal_net net; memopt_tape_desc d, bad; memopt_tape *tape = NULL, *other = NULL; memopt_error e;
    memopt_tape_stats s, t; const memopt_action *a, *b; tape_rig r; size_t i, k, n, m; int head, variant;
    memset(&e, 0, sizeof e); memset(&s, 0, sizeof s);
    for (i = 0; i <= EQUAL_N; ++i) x[i] = 0.03f * (float)(i % 11) - 0.1f;
    for (i = 0; i < EQUAL_N + 3; ++i) g[i] = 0.5f - 0.01f * (float)i;
    for (head = 0; head < 2; ++head) {
        d = equal_desc(&net, &e);
        net.with_head = head;
        if (head) { d.head.backward_fn = equal_head; d.head.user = &net; }
        memset(segment, 0, sizeof segment);
        for (i = 0; i < EQUAL; ++i) {
            segment[i].output_bytes = head && i + 1 == EQUAL ? 0 : EQUAL_OUT; segment[i].grad_bytes = head && i + 1 == EQUAL ? 0 : EQUAL_GRAD_OUT;
            layer[i] = head && i + 1 == EQUAL ? d.head : d.layer;
        }
        memcpy(want, head ? x : g, sizeof want); /* from the definition */
        for (k = 0; k + 1 < EQUAL && head; ++k) for (i = 0; i < EQUAL_N; ++i) want[i] = net.weight[k] * want[i];
        for (k = EQUAL - (size_t)head; k-- > 0;) for (i = 0; i < EQUAL_N; ++i) want[i] = net.weight[k] * want[i];
        for (variant = 0; variant < 4; ++variant) { /* with a template or a list of either: the same tape */
            bad = d;
            if (variant & 1) bad.chain.segments = segment;
            if (variant & 1) REFUSES(bad.error, (void)0, memopt_tape_open(&bad, &tape), MEMOPT_ERR_ARGUMENT, "chain.segments is given, and segment as well");
            if (variant & 1) memset(&bad.segment, 0, sizeof bad.segment);
            if (variant & 2) bad.layers = layer;
            if (variant & 2) REFUSES(bad.error, (void)0, memopt_tape_open(&bad, &tape), MEMOPT_ERR_ARGUMENT, "layers is given, and layer or head as well");
            if (variant & 2) { memset(&bad.layer, 0, sizeof bad.layer); bad.head = bad.layer; }
            if (variant == 2 && head) continue; /* a list of layers has no head: its last segment is as the others */
            CHECK_AT(memopt_tape_open(&bad, &tape) == MEMOPT_OK, variant);
            if (!variant) { other = tape; s = memopt_tape_get_stats(tape); }
            t = memopt_tape_get_stats(tape);
            CHECK_AT(t.peak == s.peak && t.actions == s.actions && t.kept == s.kept && memopt_i_double_bits(t.cost) == memopt_i_double_bits(s.cost), variant);
            a = memopt_tape_actions(tape, &n); b = memopt_tape_actions(other, &m);
            CHECK_AT(n == m && !memcmp(a, b, n * sizeof *a), variant);
            CHECK_AT(s.extra > 0 && fabs(s.overhead - s.extra / (3.0 * (double)EQUAL)) < 1e-12 && s.overhead <= 0.5, variant); /* 1 + 2 a segment */
            memset(got, 0, sizeof got);
            CHECK_AT(memopt_tape_forward(tape, x) == MEMOPT_OK && memopt_tape_backward(tape, head ? NULL : g, got) == MEMOPT_OK, variant);
            CHECK_AT(!memcmp(got, want, sizeof want) && !net.wrong && net.described, variant);
            if (variant) memopt_tape_destroy(tape);
        }
        memopt_tape_destroy(other);
    }
    d.rule = MEMOPT_SCHEDULE_ALL;
    CHECK(memopt_tape_open(&d, &tape) == MEMOPT_OK);
    s = memopt_tape_get_stats(tape);
    CHECK(s.overhead >= 0 && s.overhead <= 0 && memopt_tape_get_stats(NULL).overhead <= 0);
    net.taken = 65; /* more than was described */
    CHECK(memopt_tape_forward(tape, x) == MEMOPT_ERR_STATE && test_error_says(memopt_tape_error(tape), MEMOPT_ERR_STATE, "segment 0: scratch 192, described 128, action 0"));
    memopt_tape_destroy(tape);
    tape = NULL; bad = d; bad.head.backward_fn = NULL; bad.head.forward_fn = equal_block;
    CHECK(memopt_tape_open(&bad, &tape) == MEMOPT_ERR_ARGUMENT && !tape && test_error_says(e, MEMOPT_ERR_ARGUMENT, "segment 5: no backward callback"));
    bad = d; bad.head.user = NULL; bad.layers = layer; memset(&bad.layer, 0, sizeof bad.layer); bad.head = bad.layer; layer[EQUAL - 1].forward_fn = NULL; /* sizes of a block, and no forward */
    CHECK(memopt_tape_open(&bad, &tape) == MEMOPT_ERR_ARGUMENT && !tape && test_error_says(e, MEMOPT_ERR_ARGUMENT, "segment 5: no forward callback, but an output"));
    CHECK(memopt_tape_create(&bad, &tape) == MEMOPT_ERR_ARGUMENT && !tape && test_error_says(e, MEMOPT_ERR_ARGUMENT, "segments is NULL")); /* create reads no template */
    tape_rig_open(&r, 1 << 20, 1); /* memory that is only counted is not zeroed */
    net.taken = 20; d.arena = r.arena;
    CHECK(memopt_tape_open(&d, &tape) == MEMOPT_OK);
    CHECK(!net.wrong);
    net.calls = 0;
    CHECK(memopt_tape_forward(tape, x) == MEMOPT_OK && memopt_tape_backward(tape, NULL, got) == MEMOPT_OK && net.calls == 2 * (EQUAL - 1) && !net.wrong);
    memopt_tape_destroy(tape);
    tape_rig_close(&r);
}
/* ---- gradients in place ---- */
static memopt_status placing_forward(const memopt_tape_call *call) {
    size_t i;
    for (i = 0; i < 256; ++i) ((float *)call->output)[i] = ((const float *)call->input)[i] + 1;
    return MEMOPT_OK;
}
static size_t placing_floats[3] = { 1024, 1024, 1024 }; /* that each gives its input */
static memopt_status placing_backward(const memopt_tape_call *call) { /* where it may, it works in what it was given */
    float *g = (float *)call->grad_output, *to = (float *)call->grad_input; size_t i;
    int *same = (int *)call->user;
    *same = g == to;
    for (i = 0; i < placing_floats[call->segment]; ++i) to[i] = 2 * g[i < 1024 ? i : 0];
    return MEMOPT_OK;
}
/* ---- memory from pass to pass ---- */
static memopt_source paging_pages; static size_t paging_commits, paging_decommits;
static memopt_status paging_commit(memopt_source *s, void *start, size_t bytes) { ++paging_commits; return paging_pages.commit_fn(s, start, bytes); }
static memopt_status paging_decommit(memopt_source *s, void *start, size_t bytes) { ++paging_decommits; return paging_pages.decommit_fn(s, start, bytes); }
static void tape_commits_once(void) { /* a page given back and taken again costs a fault each pass */
    static float x[256], g[1024], got[1024]; memopt_tape_desc d; memopt_arena_desc ad; memopt_source source; memopt_tape *tape = NULL;
    memopt_segment segment[3]; memopt_tape_layer layer[3]; int same = 9, pass; size_t i, first = 0;
    memset(&d, 0, sizeof d); memset(&ad, 0, sizeof ad); memset(segment, 0, sizeof segment);
    CHECK(memopt_source_pages(NULL, &paging_pages) == MEMOPT_OK);
    source = paging_pages;
    if (!source.commit_fn) return;
    source.commit_fn = paging_commit; source.decommit_fn = paging_decommit;
    paging_commits = paging_decommits = 0;
    ad.source = &source; ad.capacity = (size_t)64 << 20;
    CHECK(memopt_arena_create(&ad, &d.arena) == MEMOPT_OK);
    for (i = 0; i < 3; ++i) {
        segment[i].output_bytes = segment[i].saved_bytes = 1024; segment[i].grad_bytes = 4096;
        layer[i].forward_fn = placing_forward; layer[i].backward_fn = placing_backward; layer[i].user = &same;
    }
    d.layers = layer; d.rule = MEMOPT_SCHEDULE_ALL; d.budget = 1 << 20;
    d.chain.segments = segment; d.chain.count = 3; d.chain.input_bytes = 1024; d.chain.input_grad_bytes = 4096;
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
    for (pass = 0; pass < 3; ++pass) {
        CHECK(memopt_tape_forward(tape, x) == MEMOPT_OK && memopt_tape_backward(tape, g, got) == MEMOPT_OK);
        if (!pass) first = paging_commits;
    }
    CHECK(first && paging_commits == first && !paging_decommits);
    memopt_tape_destroy(tape); memopt_arena_destroy(d.arena);
}
static void tape_grad_in_place(void) {
    static float x[256], g[1024], got[1024]; memopt_segment segment[3]; memopt_tape_layer layer[3]; memopt_tape_desc d; memopt_tape *tape = NULL;
    int same[3] = { 9, 9, 9 }; tape_rig r; size_t i; memopt_error e; int on;
    memset(segment, 0, sizeof segment); memset(&d, 0, sizeof d); memset(&e, 0, sizeof e);
    for (i = 0; i < 3; ++i) {
        segment[i].output_bytes = segment[i].saved_bytes = 1024; segment[i].grad_bytes = 4096;
        layer[i].forward_fn = placing_forward; layer[i].backward_fn = placing_backward; layer[i].user = &same[i];
    }
    for (i = 0; i < 1024; ++i) g[i] = (float)i;
    tape_rig_open(&r, 1 << 16, 0);
    d.arena = r.arena; d.layers = layer; d.rule = MEMOPT_SCHEDULE_ALL; d.budget = 1 << 15; d.error = &e;
    d.chain.segments = segment; d.chain.count = 3; d.chain.input_bytes = 1024; d.chain.input_grad_bytes = 4096;
    for (on = 0; on < 2; ++on) {
        for (i = 0; i < 3; ++i) segment[i].grad_in_place = on;
        CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
        /* outputs of 1 KiB, gradients of 4: in the backward of segment 1 two of each, or two and one; in that of the last three and one */
        CHECK(memopt_tape_get_stats(tape).peak == (on ? 7168u : 10240u) && memopt_tape_get_stats(tape).live_peak == (on ? 7168u : 10240u));
        CHECK(memopt_tape_forward(tape, x) == MEMOPT_OK);
        if (on) /* it would write over the output that it reads */
            CHECK(memopt_tape_backward(tape, memopt_tape_output(tape), got) == MEMOPT_ERR_ARGUMENT);
        CHECK(memopt_tape_backward(tape, g, got) == MEMOPT_OK && same[0] == 0 && same[1] == on && same[2] == 0);
        for (i = 0; i < 1024; ++i) CHECK_AT((double)got[i] == 8 * (double)i, (int)i);
        memopt_tape_destroy(tape);
    }
    segment[1].grad_bytes = 4160; segment[1].grad_in_place = 1; placing_floats[2] = 1040; /* not as large as that of its input: two buffers */
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK && memopt_tape_get_stats(tape).peak == 2048 + 4096 + 4160);
    CHECK(memopt_tape_forward(tape, x) == MEMOPT_OK && memopt_tape_backward(tape, g, got) == MEMOPT_OK && same[1] == 0);
    memopt_tape_destroy(tape);
    placing_floats[2] = 1024;
    for (i = 0; i < 2; ++i) {
        segment[1].grad_in_place = i ? -1 : 2;
        CHECK(memopt_tape_create(&d, &tape) == MEMOPT_ERR_ARGUMENT);
        CHECK(test_error_says(e, MEMOPT_ERR_ARGUMENT, i ? "segment 1: grad_in_place -1, must be 0 or 1" : "segment 1: grad_in_place 2, must be 0 or 1"));
    }
    d.chain.count = 1; /* a single segment: the engine's own two may be one, but only just one */
    for (on = 0; on < 2; ++on) {
        segment[0].grad_in_place = on;
        CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK && memopt_tape_forward(tape, x) == MEMOPT_OK);
        CHECK(memopt_tape_backward(tape, g, (char *)g + 64) == MEMOPT_ERR_ARGUMENT);
        CHECK(memopt_tape_backward(tape, g, g) == (on ? MEMOPT_OK : MEMOPT_ERR_ARGUMENT) && (!on || same[0] == 1));
        memopt_tape_destroy(tape);
    }
    tape_rig_close(&r);
}

/* ---- what MEMOPT_DEBUG 2 finds ---- */
#if MEMOPT_DEBUG >= 2
typedef struct careless { size_t segment, from, to; int backward, what; } careless; /* what: 1 leaves [from, to) unwritten; 2 writes its input there;
    3 adds to what is there; 4, 5 give what scratch and saved hold there, unwritten; 6 computes with it */
static careless careless_now;
static memopt_status careless_call(const memopt_tape_call *call, int backward) {
    const careless *c = &careless_now; unsigned char *to = (unsigned char *)(backward ? call->grad_input : call->output); size_t i;
    const int here = c->segment == call->segment && c->backward == backward;
    if (call->output_unused && !backward) return MEMOPT_OK; /* as it may */
    for (i = 0; i < 1001; ++i) if (!(here && (c->what == 1 || c->what == 3) && i >= c->from && i < c->to)) to[i] = (unsigned char)(i + call->segment);
    if (here && c->what == 2) ((unsigned char *)(uintptr_t)call->input)[c->from] ^= 1;
    if (here && c->what == 3) for (i = c->from; i < c->to; i += 4) *(float *)(void *)(to + i) += 1;
    if (here && c->what == 4) memcpy(to + c->from, (unsigned char *)call->scratch + c->from, c->to - c->from);
    if (here && c->what == 5 && call->saves) memcpy(to + c->from, (unsigned char *)call->saved + c->from, c->to - c->from);
    if (here && c->what == 6) for (i = c->from; i < c->to; i += 4) *(float *)(void *)(to + i) = 2 - *(float *)(void *)((char *)call->scratch + i) / 3;
    return MEMOPT_OK;
}
static memopt_status careless_forward(const memopt_tape_call *call) { return careless_call(call, 0); }
static memopt_status careless_backward(const memopt_tape_call *call) { return careless_call(call, 1); }
#endif
static void tape_watches(void) {
#if MEMOPT_DEBUG >= 2
    enum { N = 5 };
    memopt_segment segment[N]; memopt_tape_layer layer[N]; memopt_tape_desc d; memopt_tape *tape = NULL; tape_rig r; size_t i, least; int verify;
    unsigned char *x = (unsigned char *)malloc(1001), *g = (unsigned char *)malloc(1001), *got = (unsigned char *)malloc(1001);
    static const careless tried[] = { { 2, 0, 8, 0, 1 }, { 0, 992, 1000, 0, 1 }, { 4, 400, 416, 0, 1 }, { 3, 8, 900, 1, 1 }, { 0, 0, 1001, 1, 1 },
        { 2, 1000, 0, 0, 2 }, { 3, 0, 0, 1, 2 }, { 0, 5, 0, 0, 2 }, { 2, 1000, 1001, 0, 1 }, { 2, 9, 15, 1, 1 },
        { 3, 8, 40, 1, 3 }, { 1, 16, 64, 0, 3 }, { 3, 12, 16, 1, 4 }, { 1, 996, 1000, 0, 4 }, { 4, 4, 32, 1, 5 }, { 4, 0, 8, 0, 5 }, { 0, 100, 104, 1, 6 },
        { 2, 504, 508, 0, 6 }, { 2, 9, 16, 1, 1 }, { 1, 996, 1001, 0, 1 } };
    static const char *const says[] = { "segment 2: output is not written at byte 0, of 1001", "segment 0: output is not written at byte 992, of 1001",
        "segment 4: output is not written at byte 400, of 1001", "segment 3: grad_input is not written at byte 8, of 1001",
        "segment 0: grad_input is not written at byte 0, of 1001", "segment 2: its forward wrote to its input, or beyond its output", "segment 3: its backward wrote to its input, or beyond grad_input",
        "segment 0: its forward wrote to its input", "", "" /* less than a word */,
        "segment 3: grad_input is not written at byte 8, of 1001", "segment 1: output is not written at byte 16, of 1001",
        "segment 3: grad_input comes from unwritten scratch or saved at byte 12, of 1001", "segment 1: output comes from unwritten scratch or saved at byte 996, of 1001",
        "segment 4: grad_input comes from unwritten scratch or saved at byte 4, of 1001", "segment 4: output comes from unwritten scratch or saved at byte 0, of 1001",
        "segment 0: grad_input comes from unwritten scratch or saved at byte 100, of 1001", "segment 2: output comes from unwritten scratch or saved at byte 504, of 1001",
        "segment 2: grad_input is not written at byte 12, of 1001", "segment 1: output is not written at byte 996, of 1001" };
    memset(segment, 0, sizeof segment); memset(&d, 0, sizeof d); memset(x, 1, 1001); memset(g, 2, 1001);
    for (i = 0; i < N; ++i) {
        segment[i].output_bytes = segment[i].saved_bytes = segment[i].grad_bytes = 1001; segment[i].forward_cost = segment[i].backward_cost = 1;
        layer[i].forward_fn = careless_forward; layer[i].backward_fn = careless_backward; layer[i].user = NULL;
    }
    tape_rig_open(&r, 1 << 16, 0);
    d.arena = r.arena; d.layers = layer; d.chain.segments = segment; d.chain.count = N; d.chain.input_bytes = d.chain.input_grad_bytes = 1001;
    for (verify = 0; verify < 4; ++verify) for (d.budget = 0; d.budget < 12000; d.budget += 2000) {
        const int sized = verify / 2; /* the first ten need neither saved nor scratch */
        for (i = 0; i < N; ++i) {
            segment[i].saved_bytes = sized ? 2002 : 1001;
            segment[i].forward_scratch = segment[i].backward_scratch = sized ? 1001 : 0;
        }
        CHECK(memopt_tape_min_budget(&d, &least) == MEMOPT_OK);
        d.budget += least;
        d.verify = verify % 2;
        CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
        for (i = sized ? 10 : 0; i < (sized ? sizeof tried / sizeof *tried : 10); ++i) {
            const int found = *says[i] != 0 && (i != 7 || d.verify); /* the engine's own input: only where it is asked for */
            memopt_status s; memopt_error e; char text[200];
            careless_now = tried[i];
            memset(got, 9, 1001);
            s = memopt_tape_forward(tape, x);
            if (!s) s = memopt_tape_backward(tape, g, got);
            CHECK_AT(s == (found ? MEMOPT_ERR_CORRUPT : MEMOPT_OK), (int)i);
            e = memopt_tape_error(tape);
            if (found) CHECK_AT(memopt_error_text(&e, text, sizeof text, NULL) == MEMOPT_OK && !strncmp(text, says[i], strlen(says[i])), (int)i);
            x[5] = 1;
        }
        memopt_tape_destroy(tape);
        d.budget -= least;
    }
    tape_rig_close(&r); free(x); free(g); free(got);
#else
    SKIP("compiled with MEMOPT_DEBUG below 2");
#endif
}

typedef struct tape_doubles { memopt_segment segment[3]; memopt_tape_layer layer[3]; memopt_tape_desc desc; } tape_doubles;
static void tape_doubles_make(tape_doubles *d, size_t count, memopt_arena *arena) {
    size_t i;
    memset(d, 0, sizeof *d);
    for (i = 0; i < count; ++i) {
        d->segment[i].output_bytes = d->segment[i].saved_bytes = d->segment[i].grad_bytes = 128;
        d->layer[i].forward_fn = tape_double_forward; d->layer[i].backward_fn = tape_double_backward;
    }
    d->desc.chain.segments = d->segment; d->desc.chain.count = count; d->desc.layers = d->layer;
    d->desc.chain.input_bytes = d->desc.chain.input_grad_bytes = 128; d->desc.arena = arena;
}
static void tape_overlaps(void) {
    size_t count, placed, i;
    for (count = 1; count <= 3; ++count)
        for (placed = 0; placed < 2; ++placed) {
            tape_rig r; tape_doubles n; memopt_tape *tape = NULL; float *x = tape_block(1024), *g = tape_block(1024);
            unsigned char *block = (unsigned char *)tape_block(8192), *at = block + (64 - (uintptr_t)block % 64), *base;
            const char *const input = "the input overlaps the memory of the pass",
                *const grad_input = "grad_input overlaps the memory of the pass",
                *const grad_output = "grad_output overlaps the memory of the pass";
            unsigned char *out; size_t peak, evaluate; memopt_error e; memopt_status s; const int one = count == 1;
            tape_rig_open(&r, 16384, 0);
            tape_doubles_make(&n, count, placed ? NULL : r.arena);
            CHECK(memopt_tape_create(&n.desc, &tape) == MEMOPT_OK);
            CHECK(!placed || memopt_tape_set_memory(tape, at, 8000) == MEMOPT_OK);
            peak = memopt_tape_get_stats(tape).peak; evaluate = memopt_tape_get_stats(tape).evaluate_peak;
            base = placed ? at : r.neighbour + TAPE_BASE;
            memset(x, 0, 1024); memset(g, 0, 1024);
            for (i = 0; i < 3; ++i) { /* an input that ends or begins in the pass's memory, or lies in it */
                unsigned char *in = i == 0 ? base - 64 : i == 1 ? base + peak - 4 : base + 64;
                s = memopt_tape_forward(tape, in);
                CHECK_AT(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(tape), s, input), i);
                CHECK(memopt_tape_cancel(tape) == MEMOPT_OK && !memopt_tape_output(tape) && tape_rig_is_clean(&r));
                s = memopt_tape_calibrate(tape, in, g, g + 64, 1);
                CHECK_AT(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(tape), s, input), i);
                if (!evaluate) continue;
                s = memopt_tape_evaluate(tape, i == 1 ? base + evaluate - 4 : in, g);
                CHECK_AT(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(tape), s, input), i);
                s = memopt_tape_evaluate(tape, x, i == 1 ? base + evaluate - 4 : in);
                CHECK_AT(s == MEMOPT_ERR_ARGUMENT
                    && test_error_says(memopt_tape_error(tape), s, "output overlaps the memory of the pass"), i);
                CHECK(tape_rig_is_clean(&r));
            }
            s = memopt_tape_evaluate(tape, x, x + 31); /* one float of it */
            if (one) CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(tape), s,
                "output overlaps the input, and one segment reads and writes them"));
            else CHECK(s == MEMOPT_OK);
            CHECK(memopt_tape_evaluate(tape, x, x + 32) == MEMOPT_OK);
            for (i = 0; i < 32; ++i) x[i] = 1;
            CHECK(memopt_tape_forward(tape, x) == MEMOPT_OK);
            out = (unsigned char *)(uintptr_t)memopt_tape_output(tape);
            for (i = 0; i < 12; ++i) { /* refused, again and again, and the pass goes on */
                const void *go = g; void *gi = g + 64; const char *why = NULL;
                switch (i) {
                case 0: gi = x; why = "grad_input overlaps the input"; break;
                case 1: gi = x + 31; why = "grad_input overlaps the input"; break;
                case 2: gi = (unsigned char *)x - 127; why = "grad_input overlaps the input"; break;
                case 3: gi = out; why = grad_input; break;
                case 4: gi = base + peak - 1; why = grad_input; break;
                case 5: gi = base - 127; why = grad_input; break;
                case 6: go = out + 1; why = grad_output; break;
                case 7: go = out - 1; why = grad_output; break;
                case 8: go = base + peak - 1; why = grad_output; break;
                case 9: go = NULL; why = "the last output's gradient is missing"; break;
                case 10: gi = NULL; why = "there is no place for the input's gradient"; break;
                default:
                    if (one) { gi = g + 31; why = "grad_input overlaps grad_output, and one segment reads and writes them"; }
                }
                if (!why) continue;
                s = memopt_tape_backward(tape, go, gi);
                e = memopt_tape_error(tape);
                CHECK_AT(s == MEMOPT_ERR_ARGUMENT && test_error_says(e, s, why), i);
                CHECK_AT(memopt_tape_output(tape) == out, i);
            }
            /* the gradient may be the output itself; and where two segments or more lie between, it may end in its place */
            if (one) { CHECK(memopt_tape_backward(tape, out, g) == MEMOPT_OK && g[0] == 4 && g[31] == 4); }
            else {
                CHECK(memopt_tape_backward(tape, out, g) == MEMOPT_OK && g[0] == (count == 2 ? 16 : 64));
                for (i = 0; i < 32; ++i) g[i] = 1;
                CHECK(memopt_tape_forward(tape, x) == MEMOPT_OK && memopt_tape_backward(tape, g, g) == MEMOPT_OK);
                for (i = 0; i < 32; ++i) CHECK_AT(g[i] == (count == 2 ? 4 : 8), i);
            }
            CHECK(tape_rig_is_clean(&r) && memopt_tape_get_stats(tape).passes == 2 - (uint64_t)one);
            s = memopt_tape_calibrate(tape, x, g, x, 1);
            CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(tape), s, "grad_input overlaps the input"));
            s = memopt_tape_calibrate(tape, x, g, g, 2);
            CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(tape), s, one
                ? "grad_input overlaps grad_output, and one segment reads and writes them"
                : "grad_input overlaps grad_output, which the next repeat reads"));
            CHECK(memopt_tape_calibrate(tape, x, g, g + 32, 2) == MEMOPT_OK && tape_rig_is_clean(&r));
            n.desc.chain.input_grad_bytes = 0; n.segment[count - 1].grad_bytes = 0; /* then there is none */
            CHECK(memopt_tape_reshape(tape, &n.desc.chain) == MEMOPT_OK && memopt_tape_forward(tape, x) == MEMOPT_OK);
            s = memopt_tape_backward(tape, g, NULL);
            CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(tape), s,
                "a grad_output is given, but grad_bytes of the last segment is 0"));
            s = memopt_tape_backward(tape, NULL, g);
            CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(tape), s,
                "a grad_input is given, but input_grad_bytes is 0"));
            CHECK(memopt_tape_cancel(tape) == MEMOPT_OK);
            n.desc.chain.input_grad_bytes = n.segment[count - 1].grad_bytes = 1; /* a size that was not told: its first byte */
            n.desc.chain.input_bytes = 0;
            CHECK(memopt_tape_reshape(tape, &n.desc.chain) == MEMOPT_OK && memopt_tape_forward(tape, x) == MEMOPT_OK);
            s = memopt_tape_backward(tape, g, x);
            CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(tape), s, "grad_input overlaps the input"));
            CHECK(memopt_tape_backward(tape, x, g) == MEMOPT_OK); /* both are only read */
            memopt_tape_destroy(tape);
            tape_rig_close(&r);
            free(x); free(g); free(block);
        }
}
static memopt_status tape_nothing(const memopt_tape_call *s) { (void)s; return MEMOPT_OK; }
static void tape_overlaps_counted(void) { /* addresses of memory that is only counted mean nothing */
    tape_rig r; tape_doubles n; memopt_tape *tape = NULL; float *x = tape_block(256);
    size_t i;
    tape_rig_open(&r, 16384, 1);
    tape_doubles_make(&n, 2, r.arena);
    for (i = 0; i < 2; ++i) { n.layer[i].forward_fn = n.layer[i].backward_fn = tape_nothing; }
    CHECK(memopt_tape_create(&n.desc, &tape) == MEMOPT_OK);
    CHECK(memopt_tape_forward(tape, x) == MEMOPT_OK && memopt_tape_backward(tape, x, x) == MEMOPT_OK);
    CHECK(memopt_tape_evaluate(tape, r.neighbour + TAPE_BASE, x) == MEMOPT_OK);
    memopt_tape_destroy(tape);
    tape_rig_close(&r);
    free(x);
}
static float *tape_scribbled; static int tape_scribble_on;
static memopt_status tape_scribble_backward(const memopt_tape_call *s) {
    if (tape_scribble_on && !s->segment) *tape_scribbled += 1;
    return tape_double_backward(s);
}
static void tape_changed(void) { /* verify: the input and the last output stay as they are */
    tape_rig r; tape_doubles n; memopt_tape *tape = NULL; float *x = tape_block(128), *g = tape_block(128); size_t i, verify;
    for (verify = 0; verify < 2; ++verify) {
        tape_rig_open(&r, 16384, 0);
        tape_doubles_make(&n, 3, r.arena);
        n.desc.verify = (int)verify; n.layer[0].backward_fn = tape_scribble_backward;
        CHECK(memopt_tape_create(&n.desc, &tape) == MEMOPT_OK);
        memset(x, 0, 128);
        for (i = 0; i < 5; ++i) {
            memopt_status s; float *out; const char *why;
            CHECK(memopt_tape_forward(tape, x) == MEMOPT_OK);
            out = (float *)(uintptr_t)memopt_tape_output(tape);
            tape_scribbled = &x[i * 7]; tape_scribble_on = i == 2;
            if (i == 0 || i == 4) x[i == 4 ? 31 : 0] += 1;
            if (i == 1) out[31] += 1;
            s = memopt_tape_backward(tape, g, g);
            why = i == 1 ? "segment 2: the last output was changed before the backward"
                : i == 2 && MEMOPT_DEBUG >= 2 ? "segment 0: its backward wrote to its input, or beyond grad_input, action 9" /* seen where it happens */
                         : "the input was changed before the backward had returned";
            CHECK_AT(s == (verify && i != 3 ? MEMOPT_ERR_CORRUPT : MEMOPT_OK), i);
            if (s) CHECK_AT(test_error_says(memopt_tape_error(tape), s, why), i);
            CHECK(tape_rig_is_clean(&r));
        }
        CHECK(memopt_tape_get_stats(tape).passes == (verify ? 1 : 5));
        { char text[2000];
          CHECK(memopt_tape_report(tape, text, sizeof text, NULL) == MEMOPT_OK && !strstr(text, "verify: outputs compared ") == !verify); }
        memopt_tape_destroy(tape);
        tape_rig_close(&r);
    }
    free(x);
    free(g);
}

/* -- Fewer segments -- */

static memopt_chain tape_net_first(const tape_net *n, size_t count) { /* its first segments, and the skips within them */
    memopt_chain c = n->chain;
    c.count = count;
    while (c.skip_count && n->skip[c.skip_count - 1].to >= count) --c.skip_count;
    return c;
}
/* A pass of a part of the network: everything it gives, hashed. */
static uint64_t tape_part_pass(tape_net *n, memopt_tape *tape, const tape_rig *r, const memopt_chain *c) {
    const memopt_segment *last = &c->segments[c->count - 1]; uint64_t hash = 1; float *grad = NULL; size_t i;
    n->absent = n->chain.skip_count - c->skip_count;
    tape_net_feed(n);
    if (last->grad_bytes) {
        grad = tape_block(last->grad_bytes);
        for (i = 0; i < last->grad_bytes / 4; ++i) grad[i] = (float)(i % 13) - 6;
    }
    CHECK(memopt_tape_forward(tape, n->x) == MEMOPT_OK);
    CHECK(memopt_arena_get_stats(r->arena).used_low == TAPE_BASE + memopt_tape_get_stats(tape).peak);
    if (memopt_tape_output(tape)) tape_hash(&hash, memopt_tape_output(tape), last->output_bytes);
    CHECK(memopt_tape_backward(tape, grad, n->gradient) == MEMOPT_OK && tape_rig_is_clean(r));
    tape_hash(&hash, n->gradient, n->rows * TAPE_IN * 4);
    tape_hash(&hash, n->grads, n->weight_count * 4);
    tape_hash(&hash, n->stats, n->stat_count * 4);
    tape_hash(&hash, &n->own, 8);
    free(grad);
    return hash;
}
static size_t tape_lines(const char *text) {
    size_t n = 0;
    for (; *text; ++text) n += *text == '\n';
    return n;
}
static void tape_fewer(void) {
    static const char *const nets[2] = { "L32NBDL17Bl17NOl17BH", "L16bL16NL16+BNOL8bDL8NL8+L3BH" };
    static const size_t order[6] = { 12, 5, 1, 7, 12, 2 };
    static tape_net n, alone; size_t k, i, turn; const memopt_codec keeps[3] = { MEMOPT_CODEC_EXACT, MEMOPT_CODEC_BF16, MEMOPT_CODEC_8BIT };
    for (k = 0; k < 2; ++k)
        for (i = 0; i < TAPE_VARIANTS; i += i < 6 ? 1 : 4) {
            tape_rig r, other; memopt_tape_desc d; memopt_tape *tape = NULL; memopt_tape_stats s, t; char text[16384];
            size_t skips = 99;
            tape_net_make(&n, nets[k]);
            d = tape_net_desc(&n, NULL);
            tape_variant(&d, i);
            d.codec = keeps[i % 3];
            if (d.budget) { d.overhead = d.rule == MEMOPT_SCHEDULE_REVOLVE ? 10 : 0.2; d.budget = 0; } /* lengths differ in that */
            d.shapes = i % 2 ? 2 : 0;
            tape_rig_open(&r, 400000, 0);
            d.arena = r.arena;
            CHECK(n.count >= 12 && memopt_tape_create(&d, &tape) == MEMOPT_OK);
            for (turn = 0; turn < 12; ++turn) {
                const memopt_chain c = tape_net_first(&n, turn == 9 ? n.count : order[turn % 6]); memopt_tape *fresh = NULL;
                memopt_tape_desc f = d; uint64_t a, b;
                if (c.skip_count < skips) skips = c.skip_count;
                CHECK_AT(memopt_tape_reshape(tape, &c) == MEMOPT_OK, turn);
                tape_rig_open(&other, 400000, 0);
                f.chain = c; f.arena = other.arena;
                CHECK_AT(memopt_tape_create(&f, &fresh) == MEMOPT_OK, turn);
                s = memopt_tape_get_stats(tape); t = memopt_tape_get_stats(fresh);
                CHECK_AT(s.peak == t.peak && s.cost == t.cost && s.actions == t.actions && s.kept == t.kept
                    && s.evaluate_peak == t.evaluate_peak && s.forwards == t.forwards, turn);
                tape_net_start(&n);
                n.pass = turn; /* the number of the pass is part of what is drawn */
                memset(n.saves, 0, sizeof n.saves);
                CHECK(memopt_tape_seek(tape, turn) == MEMOPT_OK && memopt_tape_seek(fresh, turn) == MEMOPT_OK);
                alone = n;
                a = tape_part_pass(&n, tape, &r, &c);
                memcpy(n.op, alone.op, sizeof n.op);
                { const tape_net first = n; n = alone; b = tape_part_pass(&n, fresh, &other, &c); n = first; }
                CHECK_AT(a == b, turn * 100 + i);
                if (turn % 3 == 1) { /* measured, reported, and the same bits */
                    float *grad = tape_block(TAPE_ROWS * TAPE_WIDE * 4);
                    memset(grad, 0, TAPE_ROWS * TAPE_WIDE * 4);
                    CHECK_AT(memopt_tape_calibrate(tape, n.x, c.segments[c.count - 1].grad_bytes ? grad : NULL, n.gradient, 2)
                        == MEMOPT_OK, turn);
                    CHECK(memopt_tape_report(tape, text, sizeof text, NULL) == MEMOPT_OK
                        && tape_lines(text) == c.count + 4 && !strstr(text, "not measured"));
                    n = alone;
                    CHECK(memopt_tape_seek(tape, turn) == MEMOPT_OK);
                    CHECK_AT(tape_part_pass(&n, tape, &r, &c) == b, turn);
                    free(grad);
                }
                memopt_tape_destroy(fresh);
                tape_rig_close(&other);
            }
            CHECK(skips == 0 && n.saves[n.count - 1] == 0);
            memopt_tape_destroy(tape);
            tape_rig_close(&r);
        }
}
static void tape_fewer_refused(void) { /* more than at creation */
    tape_rig r; tape_doubles n, more; memopt_tape *tape = NULL; memopt_skip skips[2] = { { 0, 1, 8, 8 }, { 1, 2, 8, 8 } };
    memopt_tape_desc d; memopt_error e, before; memopt_status s;
    tape_rig_open(&r, 16384, 0);
    tape_doubles_make(&n, 2, r.arena);
    tape_doubles_make(&more, 3, NULL);
    d = n.desc; d.chain.skips = skips; d.chain.skip_count = 1;
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
    s = memopt_tape_reshape(tape, &more.desc.chain);
    CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(tape), s, "count 3, at creation 2"));
    d.chain.skip_count = 2;
    s = memopt_tape_reshape(tape, &d.chain);
    CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(tape), s, "skip_count 2, at creation 1"));
    d.chain.skip_count = 1; d.chain.count = 1;
    memset(&e, 0x5A, sizeof e); before = e;
    d.chain.error = &e; /* the tape keeps the error; the chain's is filled in too */
    s = memopt_tape_reshape(tape, &d.chain);
    CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(tape), s, "skip 0: to 1, below count 1"));
    CHECK(test_error_says(e, s, "skip 0: to 1, below count 1"));
    d.chain.skip_count = 0; e = before;
    CHECK(memopt_tape_reshape(tape, &d.chain) == MEMOPT_OK && !memcmp(&e, &before, sizeof e));
    memopt_tape_destroy(tape);
    tape_rig_close(&r);
}
/* The inner tape becomes shorter, is nested again, and the outer one trains on. */
static void tape_fewer_nested(void) {
    static tape_net n; size_t i;
    for (i = 0; i < TAPE_VARIANTS; i += 5) {
        memopt_tape_desc id, d; memopt_tape *inner = NULL, *tape = NULL; memopt_segment segment[5]; memopt_tape_layer layer[5];
        tape_rig r; memopt_chain c; size_t k, turn; uint64_t hash[2] = { 1, 1 };
        tape_net_make(&n, "L20BNBBL20BH"); /* segments 1 to 3, or 1 and 2, then the last three */
        tape_rig_open(&r, 400000, 0);
        id = tape_net_desc(&n, NULL);
        id.random_bytes = 0; id.random_save_fn = NULL; id.random_load_fn = NULL;
        id.chain.segments = n.segment + 1; id.chain.count = 3; id.layers = n.layer + 1;
        id.chain.input_bytes = id.chain.input_grad_bytes = n.segment[0].output_bytes;
        tape_variant(&id, i);
        if (id.budget) { id.budget = 0; id.overhead = 0.5; }
        CHECK(memopt_tape_create(&id, &inner) == MEMOPT_OK);
        segment[0] = n.segment[0]; layer[0] = n.layer[0];
        CHECK(memopt_tape_nest(inner, &segment[1], &layer[1]) == MEMOPT_OK);
        for (k = 5; k < 8; ++k) { segment[k - 3] = n.segment[k]; layer[k - 3] = n.layer[k]; }
        d = tape_net_desc(&n, r.arena);
        d.random_bytes = 0; d.random_save_fn = NULL; d.random_load_fn = NULL;
        d.chain.segments = segment; d.chain.count = 5; d.layers = layer; d.rule = i % 2 ? MEMOPT_SCHEDULE_NONE : MEMOPT_SCHEDULE_ALL;
        CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
        for (turn = 0; turn < 2; ++turn) { /* 3 segments, then 2 */
            memopt_tape *flat = NULL; memopt_segment whole[8]; memopt_tape_layer layers[8]; memopt_tape_desc f = d; size_t all = 0;
            c = id.chain; c.count = 3 - turn;
            CHECK(memopt_tape_reshape(inner, &c) == MEMOPT_OK && memopt_tape_nest(inner, &segment[1], &layer[1]) == MEMOPT_OK);
            c = d.chain;
            CHECK(memopt_tape_reshape(tape, &c) == MEMOPT_OK);
            for (k = 0; k < 8; ++k) if (k < 4 - turn || k > 4) { whole[all] = n.segment[k]; layers[all++] = n.layer[k]; }
            f.chain.segments = whole; f.chain.count = all; f.layers = layers;
            CHECK(memopt_tape_create(&f, &flat) == MEMOPT_OK);
            for (k = 0; k < 2; ++k) {
                size_t p; memopt_tape *which = k ? flat : tape;
                tape_net_start(&n);
                hash[k] = 1;
                for (p = 0; p < 4; ++p) {
                    float loss = 0;
                    n.pass = p;
                    tape_net_feed(&n);
                    for (all = 0; all < n.count; ++all) n.op[all].known[p] = 0; /* seeds differ inside a nested tape */
                    CHECK(memopt_tape_forward(which, n.x) == MEMOPT_OK);
                    if (memopt_tape_output(which)) memcpy(&loss, memopt_tape_output(which), 4);
                    CHECK(memopt_tape_backward(which, NULL, n.gradient) == MEMOPT_OK && tape_rig_is_clean(&r));
                    tape_hash(&hash[k], &loss, 4);
                    tape_hash(&hash[k], n.grads, n.weight_count * 4);
                    tape_hash(&hash[k], n.stats, n.stat_count * 4);
                }
            }
            CHECK_AT(hash[0] == hash[1], i * 10 + turn);
            memopt_tape_destroy(flat);
        }
        memopt_tape_destroy(tape);
        memopt_tape_destroy(inner);
        tape_rig_close(&r);
    }
}
/* -- What a refusal says -- */

/* A desc of six segments of 128 bytes each way, 256 saved; each case breaks one thing of it. */
typedef struct tape_plain { memopt_segment segment[6]; memopt_tape_layer layer[6]; memopt_skip skip[2]; memopt_tape_desc desc; } tape_plain;
static memopt_status tape_fills_128(const memopt_tape_call *s) {
    memset(s->grad_input ? s->grad_input : s->output, 1, 128);
    return MEMOPT_OK;
}
static void tape_plain_make(tape_plain *p) {
    size_t i;
    memset(p, 0, sizeof *p);
    for (i = 0; i < 6; ++i) {
        p->segment[i].output_bytes = p->segment[i].grad_bytes = 128; p->segment[i].saved_bytes = 256;
        p->segment[i].forward_cost = 1; p->segment[i].backward_cost = 2;
        p->layer[i].forward_fn = p->layer[i].backward_fn = tape_fills_128;
    }
    p->skip[0].to = 2; p->skip[1].from = 1; p->skip[1].to = 3;
    p->desc.chain.segments = p->segment; p->desc.chain.count = 6; p->desc.chain.skips = p->skip;
    p->desc.chain.skip_count = 2; p->desc.chain.input_bytes = p->desc.chain.input_grad_bytes = 128;
    p->desc.layers = p->layer; p->desc.overhead = 1; p->desc.slots = TAPE_SLOTS;
}
static const char *tape_break(tape_plain *p, int i, const memopt_host *half, memopt_status *want) { /* returns the text */
    volatile double zero = 0; memopt_tape_desc *d = &p->desc; const memopt_tape_store store = tape_no_store();
    *want = MEMOPT_ERR_ARGUMENT;
    switch (i) {
    case 0: d->chain.count = 0; return "count 0, at least 1";
    case 1: d->chain.count = MEMOPT_CHAIN_MAX + 1; return "count 4097, at most 4096";
    case 2: d->chain.segments = NULL; return "segments is NULL";
    case 3: d->chain.skips = NULL; return "skips is NULL, and skip_count is not 0";
    case 4: p->segment[5].saved_bytes = 100; return "segment 5: saved_bytes 100, at least output_bytes 128";
    case 5: p->segment[3].forward_cost = zero / zero; return "segment 3: forward_cost NaN, finite and at least 0";
    case 6: p->segment[3].forward_cost = -1.5; return "segment 3: forward_cost -1.5, finite and at least 0";
    case 7: p->segment[0].backward_cost = 1 / zero; return "segment 0: backward_cost infinity, finite and at least 0";
    case 8: p->skip[1].to = 6; return "skip 1: to 6, below count 6";
    case 9: p->skip[1].from = 3; return "skip 1: from 3, below to 3";
    case 10: *want = MEMOPT_ERR_OVERFLOW; p->segment[2].forward_scratch = SIZE_MAX - 3;
        return "the sizes do not fit size_t when summed";
    case 11: *want = MEMOPT_ERR_OVERFLOW; p->segment[2].forward_cost = DBL_MAX / 2;
        return "the costs do not fit a double when summed";
    case 12: d->layers = NULL; return "layers is NULL";
    case 13: p->layer[3].forward_fn = NULL; return "segment 3: no forward callback, but an output";
    case 14: p->layer[4].backward_fn = NULL; return "segment 4: no backward callback";
    case 15: d->host = half; return "the host is half set: a table has some of its functions";
    case 16: d->store.write_fn = tape_no_write; d->offload.slots = 2;
        return "half a store: write_fn, read_fn, wait_fn and forget_fn belong together";
    case 17: d->random_bytes = 8; d->random_save_fn = tape_no_save;
        return "half a generator: random_bytes, random_save_fn and random_load_fn belong together";
    case 18: d->store = store; return "a store without offload.slots";
    case 19: d->offload.slots = 2; return "offload.slots without a store";
    case 20: d->codec = (memopt_codec)3; return "invalid memopt_codec";
    case 21: d->store = store; d->offload.slots = 2; d->codec = MEMOPT_CODEC_BF16;
        return "a lossy codec and a store exclude each other";
    case 22: d->not_host_visible = -1; return "not_host_visible -1, 0 to 2";
    case 23: d->not_host_visible = 3; return "not_host_visible 3, 0 to 2";
    case 24: *want = MEMOPT_ERR_UNSUPPORTED; d->not_host_visible = 2; d->codec = MEMOPT_CODEC_BF16;
        return "a lossy codec on a device needs a device codec";
    case 25: *want = MEMOPT_ERR_UNSUPPORTED; d->not_host_visible = 2; d->verify = 1; return "verify reads memory of a device";
    case 26: d->store = store; d->offload.slots = 2; d->offload.read_cost = zero / zero; return "read_cost NaN, finite and at least 0";
    case 27: d->store = store; d->offload.slots = 2; d->offload.write_byte_cost = -2;
        return "write_byte_cost -2, finite and at least 0";
    case 28: d->rule = (memopt_schedule_rule)7; return "rule 7, at most 6";
    case 29: d->rule = MEMOPT_SCHEDULE_EVERY; return "every 0, at least 1";
    case 30: d->slots = 15; return "slots 15, at least 16";
    case 31: d->slots = 65536; return "slots 65536, at most 65535";
    case 32: d->overhead = -0.25; return "overhead -0.25, finite and at least 0";
    case 33: d->overhead = 0; d->rule = MEMOPT_SCHEDULE_REVOLVE; return "overhead 0, least 0.277778"; /* 5 forwards of 18 again */
    case 35: *want = MEMOPT_ERR_OVERFLOW; d->chain.count = 1; d->chain.skip_count = 0; /* one size alone */
        d->chain.input_bytes = d->chain.input_grad_bytes = 0; memset(p->segment, 0, sizeof p->segment);
        p->segment[0].forward_scratch = SIZE_MAX - 40;
        return "the sizes do not fit size_t when rounded up";
    case 36: *want = MEMOPT_ERR_OVERFLOW; d->random_bytes = SIZE_MAX - 3; d->random_save_fn = tape_no_save;
        d->random_load_fn = tape_no_load; return "what the tape needs does not fit size_t";
    case 34: *want = MEMOPT_ERR_MEMORY; d->rule = MEMOPT_SCHEDULE_ALL; d->budget = 1000; return "budget 1000, least 1664"; /* 6 * 256, and a gradient */
    case 37: d->verify = 2; return "verify 2, must be 0 or 1";
    default: return NULL;
    }
}
static void tape_refusals(void) {
    tape_plain p; memopt_tape *const none = (memopt_tape *)&p; memopt_tape *tape; memopt_host half; int i, where; size_t least;
    memopt_error e, before; memopt_status want, s; char line[64];
    memset(&half, 0, sizeof half); half.allocator.alloc_fn = test_alloc;
    memset(&before, 0x5A, sizeof before);
    for (i = 0; ; ++i) {
        const char *text = NULL;
        for (where = 0; where < 3; ++where) { /* the desc's error, the chain's, none */
            tape_plain_make(&p);
            text = tape_break(&p, i, &half, &want);
            if (!text) break;
            e = before; tape = none;
            if (where == 0) p.desc.error = &e;
            if (where == 1) p.desc.chain.error = &e;
            s = memopt_tape_create(&p.desc, &tape);
            CHECK_AT(s == want && tape == none, i);
            CHECK_AT(where == 2 ? !memcmp(&e, &before, sizeof e) : test_error_says(e, s, text), i);
            if (i == 36 || (i >= 32 && i <= 34)) continue; /* memopt_tape_min_budget() takes no generator, budget or overhead */
            e = before; least = 7;
            s = memopt_tape_min_budget(&p.desc, &least);
            CHECK_AT(s == want && least == 7, i);
            CHECK_AT(where == 2 ? !memcmp(&e, &before, sizeof e) : test_error_says(e, s, text), i);
        }
        if (!text) break;
    }
    CHECK(i == 38);
    tape_plain_make(&p);
    p.desc.error = &e; e = before;
    s = memopt_tape_create(&p.desc, NULL);
    CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(e, s, "out is NULL"));
    s = memopt_tape_min_budget(&p.desc, NULL);
    CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(e, s, "bytes is NULL"));
    e = before; /* success does not write it */
    CHECK(memopt_tape_min_budget(&p.desc, &least) == MEMOPT_OK && least > 64 && !memcmp(&e, &before, sizeof e));
    p.desc.budget = least - 64;
    s = memopt_tape_create(&p.desc, &tape);
    (void)snprintf(line, sizeof line, "budget %u, least %u", (unsigned)least - 64, (unsigned)least);
    CHECK(s == MEMOPT_ERR_MEMORY && test_error_says(e, s, line));
    e = before; p.desc.budget = least;
    CHECK(memopt_tape_create(&p.desc, &tape) == MEMOPT_OK && !memcmp(&e, &before, sizeof e));
    s = memopt_tape_reshape(tape, NULL);
    CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(tape), s, "the chain is NULL"));
    for (i = 0; i < 12; ++i) { /* the same of a chain, for reshape; and the tape stays as it is */
        const memopt_tape_stats was = memopt_tape_get_stats(tape); memopt_tape_stats is; const char *text;
        tape_plain_make(&p);
        text = tape_break(&p, i, &half, &want);
        if (i == 1) text = "count 4097, at creation 6";
        s = memopt_tape_reshape(tape, &p.desc.chain);
        is = memopt_tape_get_stats(tape);
        CHECK_AT(s == want && test_error_says(memopt_tape_error(tape), s, text), i);
        CHECK_AT(is.peak == was.peak && is.actions == was.actions && is.solves == was.solves, i);
    }
    tape_plain_make(&p);
    for (i = 0; i < 6; ++i) { p.segment[i].output_bytes = 4096; p.segment[i].saved_bytes = 8192; }
    s = memopt_tape_reshape(tape, &p.desc.chain);
    CHECK(s == MEMOPT_ERR_MEMORY && memopt_tape_error(tape).got.count == least
        && memopt_tape_error(tape).limit.count > 4 * least && !strcmp(memopt_tape_error(tape).argument, "budget"));
    memopt_tape_destroy(tape);
}
static void tape_refusals_later(void) { /* calibrate, nest, place, a pass */
    tape_plain p; tape_rig r; memopt_tape *tape = NULL, *bare = NULL; memopt_segment segment; memopt_tape_layer layer;
    float *x = tape_block(256), *g = tape_block(256); memopt_status s; char line[64]; unsigned char *block;
    tape_rig_open(&r, 65536, 0);
    tape_plain_make(&p);
    CHECK(memopt_tape_create(&p.desc, &bare) == MEMOPT_OK);
    p.desc.arena = r.arena;
    CHECK(memopt_tape_create(&p.desc, &tape) == MEMOPT_OK);
    s = memopt_tape_calibrate(tape, x, g, g + 32, 0);
    CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(tape), s, "repeats 0, at least 1"));
    s = memopt_tape_calibrate(tape, NULL, g, g + 32, 1);
    CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(tape), s, "the input is NULL"));
    s = memopt_tape_calibrate(tape, x, NULL, g + 32, 1);
    CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(tape), s, "the last output's gradient is missing"));
    s = memopt_tape_calibrate(tape, x, g, NULL, 1);
    CHECK(s == MEMOPT_ERR_ARGUMENT
        && test_error_says(memopt_tape_error(tape), s, "there is no place for the input's gradient"));
    s = memopt_tape_calibrate(tape, x, g, g + 32, SIZE_MAX / 8);
    CHECK(s == MEMOPT_ERR_OVERFLOW && test_error_says(memopt_tape_error(tape), s, "too many repeats"));
    s = memopt_tape_nest(tape, &segment, &layer);
    CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(tape), s, "an inner tape takes no arena of its own"));
    s = memopt_tape_nest(bare, NULL, &layer);
    CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(bare), s, "segment is NULL"));
    s = memopt_tape_nest(bare, &segment, NULL);
    CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(bare), s, "layer is NULL"));
    block = (unsigned char *)x + (64 - (uintptr_t)x % 64);
    s = memopt_tape_set_memory(tape, block, 64);
    CHECK(s == MEMOPT_ERR_ARGUMENT
        && test_error_says(memopt_tape_error(tape), s, "the tape has an arena, and takes its memory from there"));
    s = memopt_tape_set_memory(bare, block + 8, 64);
    CHECK(s == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_tape_error(bare), s, "memory is not aligned to 64"));
    CHECK(memopt_tape_set_memory(bare, block, 64) == MEMOPT_OK);
    s = memopt_tape_forward(bare, g);
    (void)snprintf(line, sizeof line, "placed bytes 64, at least %u", (unsigned)memopt_tape_get_stats(bare).peak);
    CHECK(s == MEMOPT_ERR_MEMORY && test_error_says(memopt_tape_error(bare), s, line));
    CHECK(memopt_tape_forward(tape, x) == MEMOPT_OK);
    s = memopt_tape_reshape(tape, &p.desc.chain);
    CHECK(s == MEMOPT_ERR_STATE && test_error_says(memopt_tape_error(tape), s, "between a forward and its backward"));
    memopt_tape_destroy(tape);
    memopt_tape_destroy(bare);
    tape_rig_close(&r);
    free(x); free(g);
}
/* Each allocation fails in turn: the error says that it was memory, and how much was asked for. */
static void tape_refusals_memory(void) {
    tape_plain p; test_faults f; memopt_host h; memopt_tape *tape = NULL; size_t n, kind; memopt_error e, before; int said, seen = 0;
    memset(&f, 0, sizeof f);
    memset(&before, 0x5A, sizeof before);
    h = test_host(&f);
    for (kind = 0; kind < 3; ++kind) /* solved, the textbook's with copies, the least */
        for (n = 1; n < 200; ++n) {
            memopt_status s; size_t least;
            tape_plain_make(&p);
            p.desc.host = &h; p.desc.error = &e; e = before; tape = NULL;
            if (kind == 1) { p.desc.rule = MEMOPT_SCHEDULE_ALL; p.desc.codec = MEMOPT_CODEC_BF16; }
            f.calls = 0; f.fail_on = n;
            s = kind == 2 ? memopt_tape_min_budget(&p.desc, &least) : memopt_tape_create(&p.desc, &tape);
            memopt_tape_destroy(tape);
            CHECK_AT(!f.live_blocks, n);
            if (!s) {
                CHECK_AT(!memcmp(&e, &before, sizeof e) || f.calls >= n, n);
                if (f.calls < n) break;
                continue;
            }
            said = tape_no_memory(e);
            CHECK_AT(s == MEMOPT_ERR_MEMORY && said > 2, n);
            seen |= 1 << said;
        }
    CHECK(n > 3 && n < 200 && seen == (1 << 11) - (1 << 3)); /* all but those of a calibration */
}
static void test_tape(void) {
    RUN(tape_workers);
    RUN(tape_stash_workers);
#ifdef TEST_THREADS /* a race is looked for, slowly: what runs on one thread has been seen elsewhere */
    if (test_passed) return;
#endif
    RUN(tape_patterns);
    RUN(tape_dry);
    RUN(tape_budgets);
    RUN(tape_frontier);
    RUN(tape_states_outside);
    RUN(tape_failing_callbacks);
    RUN(tape_full_arena);
    RUN(tape_rewound);
    RUN(tape_refusing_source);
    RUN(tape_failing_host);
    RUN(tape_entered_again);
    RUN(tape_order);
    RUN(tape_bad_descs);
    RUN(tape_placed);
    RUN(tape_held_apart);
    RUN(tape_held_apart_refusals);
    RUN(tape_tags);
    RUN(tape_stored);
    RUN(tape_jumped_out); RUN(tape_left_by_hooks); RUN(tape_jumped_with_generator); RUN(tape_jumped_nested);
    RUN(tape_unsteady);
    RUN(tape_calibrated);
    RUN(tape_calibrated_quietly);
    RUN(tape_calibrated_nested);
    RUN(tape_generator_after_failure);
    RUN(tape_overlaps);
    RUN(tape_overlaps_counted);
    RUN(tape_changed);
    RUN(tape_fewer);
    RUN(tape_fewer_refused);
    RUN(tape_fewer_nested);
    RUN(tape_refusals);
    RUN(tape_refusals_later);
    RUN(tape_refusals_memory);
    RUN(tape_reported);
    RUN(tape_aligned);
    RUN(tape_copied);
    RUN(tape_long);
    RUN(tape_trained);
    RUN(tape_generator_put_back);
    RUN(tape_without_hooks);
    RUN(tape_reshaped);
    RUN(tape_bad_shapes);
    RUN(tape_resumed);
    RUN(tape_seed);
    RUN(tape_nested);
    RUN(tape_nested_failures);
    RUN(tape_nested_dry);
    RUN(tape_nested_reshaped);
    RUN(tape_nested_without_gradient);
    RUN(tape_same_or_nothing);
    RUN(tape_kept_smaller);
    RUN(tape_stash_kept);
    RUN(tape_stash_unusual);
    RUN(tape_stash_in_place);
    RUN(tape_stash_after_any);
    RUN(tape_stash_rewound);
    RUN(tape_stash_many_levels);
    RUN(tape_stash_two);
    RUN(tape_rewound_many_levels);
    RUN(tape_stash_elsewhere); RUN(tape_stash_bad);
    RUN(tape_table_is_a_guest);
    RUN(tape_table_up_to_the_mark);
    RUN(tape_table_and_failures);
    RUN(tape_table_and_a_full_log);
    RUN(tape_table_elsewhere);
    RUN(tape_table_is_fine_enough);
    RUN(tape_table_never_coarser);
    RUN(tape_taken);
    RUN(tape_steps_in_backward);
    RUN(tape_opened);
    RUN(tape_equal_blocks);
    RUN(tape_watches);
    RUN(tape_commits_once);
    RUN(tape_grad_in_place);
    RUN(tape_process_memory);
}
#ifndef TEST_COMBINED
int main(int argc, char **argv) {
#ifdef TAPE_MEASURED
    tape_program = argv[0];
    if (argc == 3 && !strcmp(argv[1], "measure")) return tape_measure(argv[2]);
#endif
    (void)argc; (void)argv;
    test_tape();
    return test_totals();
}
#endif
