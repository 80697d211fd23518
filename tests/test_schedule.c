/* test_schedule.c - schedules judged by code that shares nothing with theirs: a simulator that keeps a plain list of
   what is held, the recurrences of REVOLVE, Disk-Revolve, H-Revolve and Rotor as published, an exhaustive search over
   all states of small chains, and tables. */
#include "test.h"
#include "revolve.h"
#include "../examples/parts/schedule_plot.h"
#include <math.h>

/* A cost: it cannot be. No infinity, for the sake of -ffast-math; 2^100 is the same in every precision. */
#define SCHEDULE_NEVER 1267650600228229401496703205376.0
enum { SCHEDULE_MOST = 512, SCHEDULE_SKIPS = 8, SCHEDULE_ACTIONS = 1 << 17 };
typedef struct schedule_case {
    memopt_segment segment[SCHEDULE_MOST];
    memopt_skip    skip[SCHEDULE_SKIPS];
    size_t count, skip_count, input_bytes, input_grad_bytes;
} schedule_case;
static schedule_case  schedule_now; /* the chain that most tests work on */
static memopt_action  schedule_action[SCHEDULE_ACTIONS];
static const memopt_offload schedule_no_slow = { 0, 0, 0, 0, 0, 0 };

static memopt_chain schedule_chain(const schedule_case *c) {
    memopt_chain chain;
    memset(&chain, 0, sizeof chain);
    chain.segments = c->segment; chain.count = c->count;
    chain.skips = c->skip_count ? c->skip : NULL; chain.skip_count = c->skip_count;
    chain.input_bytes = c->input_bytes; chain.input_grad_bytes = c->input_grad_bytes;
    return chain;
}
static memopt_segment schedule_segment(size_t output, size_t saved, size_t grad, double forward, double backward) {
    memopt_segment s;
    memset(&s, 0, sizeof s);
    s.output_bytes = output; s.saved_bytes = saved; s.grad_bytes = grad;
    s.forward_cost = forward; s.backward_cost = backward;
    return s;
}
static void schedule_equal(schedule_case *c, size_t count, memopt_segment segment, size_t input) {
    size_t i;
    memset(c, 0, sizeof *c);
    for (i = 0; i < count; ++i) c->segment[i] = segment;
    c->count = count; c->input_bytes = input;
}
static memopt_skip schedule_skip(size_t from, size_t to, size_t bytes, size_t grad_bytes) {
    memopt_skip s;
    s.from = from; s.to = to; s.bytes = bytes; s.grad_bytes = grad_bytes;
    return s;
}
static memopt_action schedule_do(memopt_action_kind op, size_t index) {
    memopt_action a;
    a.op = (uint16_t)op; a.index = (uint16_t)index;
    return a;
}
static double schedule_keep_all_cost(const schedule_case *c) {
    double sum = 0; size_t i;
    for (i = 0; i < c->count; ++i) sum += c->segment[i].forward_cost + c->segment[i].backward_cost;
    return sum;
}
static int schedule_same(double a, double b) { return fabs(a - b) <= 1e-9 * (1.0 + fabs(a) + fabs(b)); }

/* -- a simulator: a list of all that is held, summed up anew at every action -- */

enum { SIM_VALUE, SIM_SAVED, SIM_GRAD, SIM_COPY, SIM_SKIP, SIM_SKIP_GRAD };
typedef struct schedule_item { int kind; size_t index, bytes; } schedule_item;
typedef struct schedule_sim {
    const schedule_case *c;
    const memopt_offload *offload;
    schedule_item item[4 * SCHEDULE_MOST];
    size_t items, peak, at, forwards, left; /* left: segments whose backward is to come */
    int    transfer[SCHEDULE_MOST + 1];     /* of each value: 0 none, else the op that began it */
    double ready[SCHEDULE_MOST + 1], clock, queue;
} schedule_sim;

static size_t schedule_sim_find(const schedule_sim *s, int kind, size_t index) { /* items: not held */
    size_t i;
    for (i = 0; i < s->items && (s->item[i].kind != kind || s->item[i].index != index); ++i) {}
    return i;
}
static int schedule_sim_has(const schedule_sim *s, int kind, size_t index) {
    return schedule_sim_find(s, kind, index) < s->items;
}
static int schedule_sim_usable(const schedule_sim *s, size_t value) {
    return schedule_sim_has(s, SIM_VALUE, value) && s->transfer[value] != MEMOPT_ACTION_READ;
}
static void schedule_sim_add(schedule_sim *s, int kind, size_t index, size_t bytes) {
    s->item[s->items].kind = kind; s->item[s->items].index = index; s->item[s->items++].bytes = bytes;
}
static void schedule_sim_remove(schedule_sim *s, int kind, size_t index) {
    const size_t i = schedule_sim_find(s, kind, index);
    if (i < s->items) s->item[i] = s->item[--s->items];
}
static size_t schedule_sim_value_bytes(const schedule_case *c, size_t value) {
    return value ? c->segment[value - 1].output_bytes : c->input_bytes;
}
static size_t schedule_sim_grad_bytes(const schedule_case *c, size_t value) {
    return value ? c->segment[value - 1].grad_bytes : c->input_grad_bytes;
}
/* The gradient of i's input, where it is not that of its output in the same bytes. */
static size_t schedule_sim_second_grad(const schedule_case *c, size_t i) {
    const size_t bytes = schedule_sim_grad_bytes(c, i);
    return c->segment[i].grad_in_place && i > 0 && i < c->count - 1 && schedule_sim_grad_bytes(c, i + 1) == bytes ? 0 : bytes;
}
static void schedule_sim_peak(schedule_sim *s, size_t scratch, size_t at) {
    size_t sum = scratch, i;
    for (i = 0; i < s->items; ++i) sum += s->item[i].bytes;
    if (sum > s->peak) { s->peak = sum; s->at = at; }
}
/* those with no value between their ends, and those read for the last time */
static void schedule_sim_skips_end(schedule_sim *s) {
    size_t k, i;
    for (k = 0; k < s->c->skip_count; ++k) {
        const memopt_skip *skip = &s->c->skip[k]; int held = 0;
        for (i = 0; i < s->items; ++i)
            if ((s->item[i].kind == SIM_VALUE || s->item[i].kind == SIM_COPY) && s->item[i].index > skip->from
                && s->item[i].index <= skip->to) held = 1;
        if (!held || s->left <= skip->to) schedule_sim_remove(s, SIM_SKIP, k);
    }
}
static int schedule_sim_forward(schedule_sim *s, size_t i, int save, size_t at) { /* 0: it cannot be */
    const memopt_segment *g = &s->c->segment[i]; size_t k;
    if (i >= s->left || schedule_sim_has(s, SIM_SAVED, i) || !schedule_sim_usable(s, i)
        || schedule_sim_has(s, SIM_VALUE, i + 1)) return 0;
    for (k = 0; k < s->c->skip_count; ++k) {
        if (s->c->skip[k].to == i && !schedule_sim_has(s, SIM_SKIP, k)) return 0;
        if (s->c->skip[k].from == i && s->left > s->c->skip[k].to && !schedule_sim_has(s, SIM_SKIP, k))
            schedule_sim_add(s, SIM_SKIP, k, s->c->skip[k].bytes);
    }
    schedule_sim_add(s, SIM_VALUE, i + 1, g->output_bytes);
    if (save) schedule_sim_add(s, SIM_SAVED, i, g->saved_bytes - g->output_bytes);
    schedule_sim_peak(s, save || !g->plain_scratch ? g->forward_scratch : g->plain_scratch, at);
    s->clock += g->forward_cost;
    ++s->forwards;
    return 1;
}
static int schedule_sim_backward(schedule_sim *s, size_t i, size_t at) {
    const memopt_segment *g = &s->c->segment[i]; size_t k;
    if (i + 1 != s->left || !schedule_sim_usable(s, i) || !schedule_sim_usable(s, i + 1)
        || !schedule_sim_has(s, SIM_SAVED, i)) return 0;
    if (s->transfer[i + 1] || schedule_sim_has(s, SIM_COPY, i + 1)) return 0;
    for (k = 0; k < s->c->skip_count; ++k)
        if (s->c->skip[k].to == i) schedule_sim_add(s, SIM_SKIP_GRAD, k, s->c->skip[k].grad_bytes);
    schedule_sim_peak(s, g->backward_scratch + schedule_sim_second_grad(s->c, i), at);
    schedule_sim_add(s, SIM_GRAD, i, schedule_sim_grad_bytes(s->c, i));
    schedule_sim_remove(s, SIM_SAVED, i);
    schedule_sim_remove(s, SIM_VALUE, i + 1);
    if (i + 1 < s->c->count) schedule_sim_remove(s, SIM_GRAD, i + 1);
    for (k = 0; k < s->c->skip_count; ++k) if (s->c->skip[k].from == i) schedule_sim_remove(s, SIM_SKIP_GRAD, k);
    s->left = i;
    s->clock += g->backward_cost;
    return 1;
}
static void schedule_sim_transfer(schedule_sim *s, size_t v, double cost, double byte_cost, int op) {
    const double begins = s->queue > s->clock ? s->queue : s->clock;
    s->queue = s->ready[v] = begins + cost + byte_cost * (double)schedule_sim_value_bytes(s->c, v);
    s->transfer[v] = op;
    if (!s->offload->overlap) s->clock = s->queue;
}
static int schedule_sim_write(schedule_sim *s, size_t v, size_t at) {
    size_t i, used = 0;
    for (i = 0; i < s->items; ++i) used += s->item[i].kind == SIM_COPY;
    if (!schedule_sim_usable(s, v) || s->transfer[v] || schedule_sim_has(s, SIM_COPY, v) || used >= s->offload->slots)
        return 0;
    schedule_sim_add(s, SIM_COPY, v, v ? s->c->segment[v - 1].copy_bytes : 0);
    schedule_sim_peak(s, 0, at);
    schedule_sim_transfer(s, v, s->offload->write_cost, s->offload->write_byte_cost, MEMOPT_ACTION_WRITE);
    return 1;
}
static int schedule_sim_read(schedule_sim *s, size_t v, size_t at) {
    if (!schedule_sim_has(s, SIM_COPY, v) || s->transfer[v] || schedule_sim_has(s, SIM_VALUE, v)) return 0;
    schedule_sim_add(s, SIM_VALUE, v, schedule_sim_value_bytes(s->c, v));
    schedule_sim_peak(s, 0, at);
    schedule_sim_transfer(s, v, s->offload->read_cost, s->offload->read_byte_cost, MEMOPT_ACTION_READ);
    return 1;
}
static int schedule_sim_step(schedule_sim *s, memopt_action a, size_t at) {
    const size_t v = a.index;
    if (a.op == MEMOPT_ACTION_FORWARD || a.op == MEMOPT_ACTION_FORWARD_SAVE)
        return schedule_sim_forward(s, v, a.op == MEMOPT_ACTION_FORWARD_SAVE, at);
    if (a.op == MEMOPT_ACTION_BACKWARD) return v < s->c->count && schedule_sim_backward(s, v, at);
    if (v > s->c->count) return 0;
    switch (a.op) {
    case MEMOPT_ACTION_DROP:
        if (!schedule_sim_usable(s, v) || s->transfer[v]) return 0;
        if ((!v || schedule_sim_has(s, SIM_SAVED, v - 1)) && !schedule_sim_has(s, SIM_COPY, v)) return 0;
        schedule_sim_remove(s, SIM_VALUE, v);
        return 1;
    case MEMOPT_ACTION_WRITE: return schedule_sim_write(s, v, at);
    case MEMOPT_ACTION_READ:  return schedule_sim_read(s, v, at);
    case MEMOPT_ACTION_WAIT:
        if (!s->transfer[v]) return 0;
        s->transfer[v] = 0;
        if (s->ready[v] > s->clock) s->clock = s->ready[v];
        return 1;
    case MEMOPT_ACTION_FORGET:
        if (!schedule_sim_has(s, SIM_COPY, v) || s->transfer[v] || (!v && !schedule_sim_has(s, SIM_VALUE, 0))) return 0;
        schedule_sim_remove(s, SIM_COPY, v);
        return 1;
    default: return 0;
    }
}
static memopt_status schedule_simulate(const schedule_case *c, const memopt_offload *offload,
                                       const memopt_action *actions, size_t count, memopt_schedule_result *r) {
    static schedule_sim s; size_t i;
    memset(&s, 0, sizeof s);
    s.c = c; s.offload = offload; s.left = c->count;
    schedule_sim_add(&s, SIM_VALUE, 0, c->input_bytes);
    schedule_sim_add(&s, SIM_GRAD, c->count, schedule_sim_grad_bytes(c, c->count));
    memset(r, 0, sizeof *r);
    for (i = 0; i < count; ++i) {
        if (!schedule_sim_step(&s, actions[i], i)) { r->at = i; return MEMOPT_ERR_STATE; }
        schedule_sim_skips_end(&s);
    }
    r->at = count;
    for (i = 1; i <= c->count; ++i)
        if (schedule_sim_has(&s, SIM_VALUE, i) || schedule_sim_has(&s, SIM_COPY, i) || s.transfer[i])
            return MEMOPT_ERR_STATE;
    if (s.left || schedule_sim_has(&s, SIM_COPY, 0) || s.transfer[0] || !schedule_sim_has(&s, SIM_VALUE, 0))
        return MEMOPT_ERR_STATE;
    r->peak = s.peak; r->cost = s.clock; r->extra = s.clock - schedule_keep_all_cost(c);
    r->actions = count; r->forwards = s.forwards; r->at = s.at;
    return MEMOPT_OK;
}
/* Both simulators say the same, in every field. */
static memopt_status schedule_agreed(const schedule_case *c, const memopt_offload *offload,
                                     const memopt_action *actions,
                                     size_t count, memopt_schedule_result *r, uint64_t seed) {
    const memopt_chain chain = schedule_chain(c); memopt_schedule_result got; memopt_status want, s;
    memset(&got, 0xA5, sizeof got);
    want = schedule_simulate(c, offload, actions, count, r);
    s = memopt_schedule_simulate(&chain, offload->slots ? offload : NULL, actions, count, NULL, &got);
    CHECK_AT(s == want, seed);
    if (s == want) CHECK_AT(got.at == r->at, seed);
    if (s || want) return want;
    CHECK_AT(got.peak == r->peak && got.actions == count && got.forwards == r->forwards, seed);
    CHECK_AT(schedule_same(got.cost, r->cost) && schedule_same(got.extra, r->extra), seed);
    return want;
}

/* -- random chains -- */

static void schedule_random_chain(schedule_case *c, size_t count, uint64_t *seed) { /* small whole numbers */
    size_t i;
    memset(c, 0, sizeof *c);
    c->count = count;
    for (i = 0; i < count; ++i) {
        memopt_segment *s = &c->segment[i];
        s->output_bytes = 1 + test_below(seed, 4);
        s->saved_bytes = s->output_bytes + test_below(seed, 6);
        s->grad_bytes = i + 1 < count ? s->output_bytes : 0;
        s->forward_scratch = test_below(seed, 2); s->backward_scratch = test_below(seed, 2);
        s->forward_cost = (double)(1 + test_below(seed, 5)); s->backward_cost = (double)(1 + test_below(seed, 5));
        s->grad_in_place = (s->saved_bytes + (size_t)s->forward_cost) % 3 == 0;
    }
    c->input_bytes = 1 + test_below(seed, 3);
    c->input_grad_bytes = c->input_bytes;
}
/* Bytes and costs as they come: odd, some zero, some huge beside the others. */
static void schedule_ugly_chain(schedule_case *c, size_t count, uint64_t *seed) {
    size_t i;
    memset(c, 0, sizeof *c);
    c->count = count;
    for (i = 0; i < count; ++i) {
        const size_t scale = (size_t)1 << test_below(seed, sizeof(size_t) < 8 ? 10 : 20);
        memopt_segment *s = &c->segment[i];
        s->output_bytes = test_below(seed, 8) ? test_below(seed, 1000 * scale) : 0;
        s->saved_bytes = s->output_bytes + (test_below(seed, 4) ? test_below(seed, 5000 * scale) : 0);
        s->grad_bytes = test_below(seed, 4) ? s->output_bytes : test_below(seed, 3000);
        s->forward_scratch = test_below(seed, 3) ? 0 : test_below(seed, 1000 * scale);
        s->backward_scratch = test_below(seed, 3) ? 0 : test_below(seed, 1000 * scale);
        s->plain_scratch = test_below(seed, 3) ? 0 : test_below(seed, 1000);
        s->forward_cost = test_below(seed, 9) ? (double)test_below(seed, 1000000) * 0.37e-3 : 0.0;
        s->backward_cost = test_below(seed, 9) ? (double)test_below(seed, 1000000) * 0.71e-3 : 0.0;
        s->grad_in_place = s->saved_bytes % 2 == 1;
        if (i && s->saved_bytes % 3 == 1) s->grad_bytes = c->segment[i - 1].grad_bytes;
    }
    c->input_bytes = test_below(seed, 100000);
    c->input_grad_bytes = test_below(seed, 2) ? 0 : c->input_bytes;
}
static void schedule_random_skips(schedule_case *c, size_t most, uint64_t *seed) {
    for (c->skip_count = 0; c->count > 1 && c->skip_count < most; ++c->skip_count) {
        const size_t from = test_below(seed, c->count - 1), to = from + 1 + test_below(seed, c->count - 1 - from);
        c->skip[c->skip_count] = schedule_skip(from, to, test_below(seed, 5), test_below(seed, 4));
    }
}
/* The bytes of keeping all: as good as any bound above, found by going through it. */
static size_t schedule_full_peak(const schedule_case *c) {
    static memopt_action all[2 * SCHEDULE_MOST]; memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 }; size_t i;
    for (i = 0; i < c->count; ++i) {
        all[i] = schedule_do(MEMOPT_ACTION_FORWARD_SAVE, i);
        all[2 * c->count - 1 - i] = schedule_do(MEMOPT_ACTION_BACKWARD, i);
    }
    CHECK(schedule_simulate(c, &schedule_no_slow, all, 2 * c->count, &r) == MEMOPT_OK);
    return r.peak;
}

/* -- REVOLVE -- */

/* P(l, c) = min over k of k + P(l - k, c - 1) + P(k, c); P(1, c) = 0, P(l, 1) = l (l - 1) / 2 */
enum { REVOLVE_MOST = 200, REVOLVE_SLOTS = 17 };
static uint64_t schedule_revolve[REVOLVE_SLOTS][REVOLVE_MOST]; /* [slots][segments] */
static void schedule_revolve_table(void) {
    size_t l, c, k;
    for (c = 1; c < REVOLVE_SLOTS; ++c)
        for (l = 1; l < REVOLVE_MOST; ++l) {
            uint64_t best = (uint64_t)l * (l - 1) / 2;
            for (k = 1; c > 1 && k < l; ++k) {
                const uint64_t cost = k + schedule_revolve[c - 1][l - k] + schedule_revolve[c][k];
                if (cost < best) best = cost;
            }
            schedule_revolve[c][l] = best;
        }
}
static void schedule_revolve_is_exact(void) {
    static const uint64_t known[][3] = {
        { 10, 3, 15 }, { 24, 4, 51 }, { 100, 5, 316 }, { 128, 16, 238 }, { 16, 16, 15 }, { 128, 1, 8128 }
    };
    size_t l, c;
    schedule_revolve_table();
    for (c = 1; c < REVOLVE_SLOTS; ++c)
        for (l = 1; l < REVOLVE_MOST; ++l)
            CHECK_AT(revolve_forwards(l, c) == schedule_revolve[c][l], l * 100 + c);
    for (l = 0; l < sizeof known / sizeof known[0]; ++l)
        CHECK_AT(revolve_forwards(known[l][0], known[l][1]) == known[l][2], l);
}
static void schedule_revolve_extremes(void) {
    const uint64_t most = UINT64_MAX, root = UINT64_C(4294967296); uint64_t l;
    CHECK(revolve_forwards(0, 0) == 0 && revolve_forwards(0, 5) == 0
          && revolve_forwards(0, most) == 0);
    CHECK(revolve_forwards(1, 0) == most && revolve_forwards(most, 0) == most);
    CHECK(revolve_forwards(1, 1) == 0 && revolve_forwards(1, most) == 0);
    /* as many slots as segments: once more each, but the last */
    CHECK(revolve_forwards(most, most) == most - 1);
    CHECK(revolve_forwards(most, most - 1) == most - 1
          && revolve_forwards(most - 1, most - 3) == most - 1);
    CHECK(revolve_forwards(root, 1) == root / 2 * (root - 1)); /* l (l - 1) / 2 */
    CHECK(revolve_forwards(root + root / 4, 1) == (root + root / 4) / 2 * (root + root / 4 - 1));
    CHECK(revolve_forwards(root * 2, 1) == most && revolve_forwards(most, 1) == most);
    for (l = 1; l < UINT64_C(1) << 63; l *= 3) {
        CHECK_AT(revolve_forwards(l, l) == l - 1 && revolve_forwards(l, most) == l - 1, l);
        CHECK_AT(revolve_forwards(l, 3) >= revolve_forwards(l, 4), l);
        CHECK_AT(l < 1000 || revolve_forwards(l, 40) >= l, l);
    }
}

/* -- the textbook -- */

static size_t schedule_book(const schedule_case *c, memopt_schedule_rule rule, size_t every, memopt_schedule_result *r) {
    const memopt_chain chain = schedule_chain(c); size_t count = 0, asked = 0; memopt_status s;
    s = memopt_schedule_textbook(&chain, rule, every, NULL, 0, &asked);
    CHECK(s == MEMOPT_ERR_BUFFER && asked > 0);
    CHECK(memopt_schedule_textbook(&chain, rule, every, schedule_action, asked - 1, &count) == MEMOPT_ERR_BUFFER
          && count == asked);
    CHECK(memopt_schedule_textbook(&chain, rule, every, schedule_action, asked, &count) == MEMOPT_OK && count == asked);
    CHECK(schedule_agreed(c, &schedule_no_slow, schedule_action, count, r, (uint64_t)rule * 1000 + every) == MEMOPT_OK);
    return count;
}
/* n equal segments: values of a bytes, saved b, gradients d, of which the last has none; forward 1, backward 2. */
static void schedule_book_by_formula(void) {
    size_t n, k; const size_t a = 3, b = 11, d = 2; memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 };
    for (n = 1; n <= 30; ++n) {
        schedule_equal(&schedule_now, n, schedule_segment(a, b, d, 1, 2), a);
        schedule_now.segment[n - 1].grad_bytes = 0;
        schedule_book(&schedule_now, MEMOPT_SCHEDULE_ALL, 0, &r);
        CHECK_AT(r.peak == a + n * b + (n > 1 ? d : 0) && r.cost == 3.0 * (double)n && r.extra == 0 && r.forwards == n,
                 n);
        /* segment i is run n - i times; the first backward finds all but the input gone */
        schedule_book(&schedule_now, MEMOPT_SCHEDULE_NONE, 0, &r);
        CHECK_AT(r.forwards == n * (n + 1) / 2 && r.extra == (double)(n * (n - 1) / 2), n);
        CHECK_AT(r.peak == a + (n > 1 ? a : 0) + b + (n > 1 ? d : 0) + (n > 2 ? d : 0), n);
        for (k = 1; k <= n + 1; ++k) {
            const size_t head = n - 1, groups = (head + k - 1) / k;
            size_t g, peak = a + groups * a + b + (n > 1 ? d : 0);
            schedule_book(&schedule_now, MEMOPT_SCHEDULE_EVERY, k, &r);
            /* g values are kept, the group's segments saved; gradients of its last output and input */
            for (g = 0; g < groups; ++g) {
                const size_t size = (head < g * k + k ? head : g * k + k) - g * k;
                const size_t first = a + g * a + size * b + d + (g || size > 1 ? d : 0);
                if (first > peak) peak = first;
            }
            CHECK_AT(r.peak == peak && r.cost == 3.0 * (double)n + (double)head && r.extra == (double)head,
                     n * 100 + k);
        }
    }
}
static void schedule_book_sqrt(void) {
    size_t n; memopt_schedule_result r, same;
    for (n = 1; n <= 150; ++n) { /* k = sqrt(n), rounded up */
        const size_t k = (size_t)ceil(sqrt((double)n) - 1e-9);
        schedule_equal(&schedule_now, n, schedule_segment(1, 7, 1, 1, 2), 1);
        schedule_book(&schedule_now, MEMOPT_SCHEDULE_SQRT, 0, &r);
        schedule_book(&schedule_now, MEMOPT_SCHEDULE_EVERY, k, &same);
        CHECK_AT(r.peak == same.peak && r.cost == same.cost && r.actions == same.actions, n);
    }
}
/* 24 blocks and a head of 5 times their bytes and time, after an embedding that costs no time, whose input (token
   numbers) costs no memory. The table counts no gradient of the head's output, which is the loss. Its policies take the
   embedding into the first block's group, so here both are one segment. */
static void schedule_gpt(schedule_case *c, size_t blocks, size_t head_saved, double head_cost, int embedding_apart) {
    const size_t first = embedding_apart ? 1 : 0;
    schedule_equal(c, first + blocks + 1, schedule_segment(1, 17, 1, 1, 2), 0);
    if (embedding_apart) c->segment[0] = schedule_segment(1, 1, 1, 0, 0);
    else c->segment[0].saved_bytes = 18;
    c->segment[first + blocks] = schedule_segment(1, head_saved, 0, head_cost, 2 * head_cost);
}
static void schedule_book_of_the_table(void) {
    /* 24 blocks: head 85, 11, none; 96 blocks without a head */
    static const struct { size_t every, peak[4]; } known[] = {
        { 1, { 110, 42, 42, 114 } }, { 2, { 98, 47, 47, 83 } }, { 3, { 94, 60, 60, 84 } }, { 4, { 92, 75, 75, 93 } },
        { 5, { 91, 90, 90, 105 } }, { 6, { 107, 107, 107, 119 } }, { 8, { 140, 140, 140, 149 } },
        { 12, { 207, 207, 207, 213 } }, { 24, { 411, 411, 411, 413 } }
    };
    static const struct { size_t blocks, head; double head_cost, once; size_t full; } chain[4] = {
        { 24, 85, 5, 111, 495 }, { 24, 11, 5, 111, 421 }, { 24, 1, 0, 96, 411 }, { 96, 1, 0, 384, 1635 }
    };
    size_t i, k; memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 };
    for (k = 0; k < 4; ++k) {
        schedule_gpt(&schedule_now, chain[k].blocks, chain[k].head, chain[k].head_cost, 0);
        for (i = 0; i < sizeof known / sizeof known[0]; ++i) {
            schedule_book(&schedule_now, MEMOPT_SCHEDULE_EVERY, known[i].every, &r);
            CHECK_AT(r.peak == known[i].peak[k] && r.cost == chain[k].once, k * 100 + known[i].every);
        }
        schedule_book(&schedule_now, MEMOPT_SCHEDULE_ALL, 0, &r);
        CHECK_AT(r.peak == chain[k].full && r.cost == chain[k].once - (double)chain[k].blocks, k);
    }
}

/* -- the walk, compared with the list above on what may be a schedule or not -- */

static memopt_action schedule_list[1 << 14];

static size_t schedule_insert(memopt_action *list, size_t count, size_t at, unsigned op, size_t index) {
    memmove(list + at + 1, list + at, (count - at) * sizeof *list);
    list[at].op = (uint16_t)op; list[at].index = (uint16_t)index;
    return count + 1;
}
/* one change, anywhere */
static size_t schedule_break(memopt_action *list, size_t count, size_t values, uint64_t *seed) {
    const size_t i = test_below(seed, count), k = test_below(seed, count); memopt_action t;
    switch (test_below(seed, 6)) {
    case 0: memmove(list + i, list + i + 1, (count - i - 1) * sizeof *list); return count - 1;
    case 1: t = list[i]; list[i] = list[k]; list[k] = t; return count;
    case 2: return schedule_insert(list, count, i, list[i].op, list[i].index);
    case 3: list[i].index = (uint16_t)test_below(seed, values + 1); return count;
    case 4: list[i].op = (uint16_t)test_below(seed, 9); return count; /* 8 is none */
    default: return schedule_insert(list, count, i, (unsigned)test_below(seed, 8), test_below(seed, values + 2));
    }
}
/* A value goes to the offload store and comes back, with what was there anyway between the steps of it. */
static size_t schedule_send(memopt_action *list, size_t count, size_t values, uint64_t *seed) {
    static const memopt_action_kind trip[] = {
        MEMOPT_ACTION_WRITE, MEMOPT_ACTION_WAIT, MEMOPT_ACTION_DROP, MEMOPT_ACTION_READ, MEMOPT_ACTION_WAIT, MEMOPT_ACTION_FORGET
    };
    const size_t value = test_below(seed, values); size_t at = test_below(seed, count), i;
    for (i = 0; i < sizeof trip / sizeof trip[0] && at <= count; ++i) {
        count = schedule_insert(list, count, at, trip[i], value);
        at += 1 + (test_below(seed, 3) ? 0 : test_below(seed, 4));
    }
    return count;
}
static void schedule_walk_agrees(void) {
    static const memopt_schedule_rule rules[] = { MEMOPT_SCHEDULE_ALL, MEMOPT_SCHEDULE_NONE, MEMOPT_SCHEDULE_EVERY, MEMOPT_SCHEDULE_SQRT };
    uint64_t seed; size_t fine = 0, travelled = 0;
#ifdef TEST_LONG
    const uint64_t rounds = 2000000;
#else
    const uint64_t rounds = 50000;
#endif
    for (seed = 1; seed <= rounds; ++seed) {
        uint64_t random = seed;
        memopt_chain chain; memopt_offload offload; memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 };
        size_t count = 0, i, n = 1 + test_below(&random, 9), trips, breaks;
        if (seed % 2) schedule_random_chain(&schedule_now, n, &random);
        else schedule_ugly_chain(&schedule_now, n, &random);
        schedule_random_skips(&schedule_now, test_below(&random, 5), &random);
        for (i = 0; i < n; ++i) if (test_below(&random, 2)) schedule_now.segment[i].copy_bytes = test_below(&random, 4);
        chain = schedule_chain(&schedule_now);
        memset(&offload, 0, sizeof offload);
        offload.slots = test_below(&random, 4) ? 1 + test_below(&random, 3) : MEMOPT_OFFLOAD_UNLIMITED;
        offload.write_cost = (double)test_below(&random, 4); offload.read_cost = (double)test_below(&random, 5) / 3;
        offload.write_byte_cost = (double)test_below(&random, 3) / 7;
        offload.read_byte_cost = (double)test_below(&random, 3);
        offload.overlap = (int)test_below(&random, 2);
        CHECK(memopt_schedule_textbook(&chain, rules[seed % 4], 1 + test_below(&random, 4), schedule_list, 400, &count)
              == MEMOPT_OK);
        trips = test_below(&random, 3); breaks = test_below(&random, 3) ? 0 : 1 + test_below(&random, 2);
        for (i = 0; i < trips; ++i) count = schedule_send(schedule_list, count, n, &random);
        for (i = 0; i < breaks; ++i) count = schedule_break(schedule_list, count, n, &random);
        if (schedule_agreed(&schedule_now, &offload, schedule_list, count, &r, seed)) continue;
        ++fine;
        travelled += trips != 0;
    }
    CHECK(fine > rounds / 5 && fine < rounds && travelled > rounds / 40); /* the test itself saw enough of each kind */
}
static void schedule_walk_by_hand(void) { /* three segments; numbers that tell every buffer from every other */
    static const size_t want[] = { 1000 + 7 + 10 + 100, 1000 + 7 + 10 + 20 + 100, 0 };
    memopt_action list[12]; memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 }; memopt_chain chain; size_t n = 0;
    schedule_equal(&schedule_now, 2, schedule_segment(10, 15, 3, 1, 2), 1000);
    schedule_now.segment[1] = schedule_segment(20, 50, 7, 4, 8);
    schedule_now.segment[0].forward_scratch = 200; schedule_now.segment[0].plain_scratch = 100;
    schedule_now.segment[1].backward_scratch = 400; schedule_now.input_grad_bytes = 5;
    chain = schedule_chain(&schedule_now);
    list[n++] = schedule_do(MEMOPT_ACTION_FORWARD, 0);
    CHECK(memopt_schedule_simulate(&chain, NULL, list, n, NULL, &r) == MEMOPT_ERR_STATE && r.at == 1);
    list[n++] = schedule_do(MEMOPT_ACTION_FORWARD_SAVE, 1);
    list[n++] = schedule_do(MEMOPT_ACTION_BACKWARD, 1); /* 1000 + 7, value 1, all of segment 1, gradient 1, scratch */
    list[n++] = schedule_do(MEMOPT_ACTION_DROP, 1);
    list[n++] = schedule_do(MEMOPT_ACTION_FORWARD_SAVE, 0);
    list[n++] = schedule_do(MEMOPT_ACTION_BACKWARD, 0);
    CHECK(memopt_schedule_simulate(&chain, NULL, list, n, NULL, &r) == MEMOPT_OK);
    CHECK(r.peak == 1000 + 7 + 10 + 50 + 3 + 400 && r.at == 2 && r.forwards == 3 && r.actions == 6);
    CHECK(r.cost == 1 + 4 + 8 + 1 + 2 && r.extra == 1);
    /* now it is the saving forward of segment 0, with gradient 1 waiting */
    schedule_now.segment[1].backward_scratch = 0;
    CHECK(memopt_schedule_simulate(&chain, NULL, list, n, NULL, &r) == MEMOPT_OK && r.peak == 1000 + 7 + 3 + 15 + 200
          && r.at == 4);
    schedule_now.segment[0].forward_scratch = 0;
    CHECK(memopt_schedule_simulate(&chain, NULL, list, n, NULL, &r) == MEMOPT_OK && r.peak == want[0] && r.at == 0);
    CHECK(memopt_schedule_simulate(&chain, NULL, list, n, NULL, NULL) == MEMOPT_OK);
}
static void schedule_skips_by_hand(void) { /* 0 -> 2: made by 0, read by 2, live as long as value 1 or 2 is */
    memopt_action list[16]; memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 }; memopt_chain chain; size_t n = 0;
    schedule_equal(&schedule_now, 4, schedule_segment(1, 2, 0, 1, 1), 0);
    schedule_now.skip[0] = schedule_skip(0, 2, 100, 1000); schedule_now.skip_count = 1;
    chain = schedule_chain(&schedule_now);
    list[n++] = schedule_do(MEMOPT_ACTION_FORWARD, 0);
    list[n++] = schedule_do(MEMOPT_ACTION_FORWARD, 1);
    list[n++] = schedule_do(MEMOPT_ACTION_DROP, 1);
    list[n++] = schedule_do(MEMOPT_ACTION_FORWARD, 2); /* value 3 is beyond the skip: with value 2 it goes */
    list[n++] = schedule_do(MEMOPT_ACTION_DROP, 2);
    list[n++] = schedule_do(MEMOPT_ACTION_FORWARD_SAVE, 3);
    list[n++] = schedule_do(MEMOPT_ACTION_BACKWARD, 3);
    list[n++] = schedule_do(MEMOPT_ACTION_DROP, 3);
    list[n++] = schedule_do(MEMOPT_ACTION_FORWARD_SAVE, 0); /* made again */
    list[n++] = schedule_do(MEMOPT_ACTION_FORWARD_SAVE, 1);
    list[n++] = schedule_do(MEMOPT_ACTION_FORWARD_SAVE, 2); /* 6 of three segments, 100 of the skip */
    list[n++] = schedule_do(MEMOPT_ACTION_BACKWARD, 2); /* and 1000 of its gradient */
    list[n++] = schedule_do(MEMOPT_ACTION_BACKWARD, 1);
    list[n++] = schedule_do(MEMOPT_ACTION_BACKWARD, 0);
    CHECK(schedule_agreed(&schedule_now, &schedule_no_slow, list, n, &r, 1) == MEMOPT_OK);
    CHECK(r.peak == 1106 && r.at == 11 && r.forwards == 7 && r.extra == 3);
    schedule_now.skip[0].grad_bytes = 0;
    CHECK(memopt_schedule_simulate(&chain, NULL, list, n, NULL, &r) == MEMOPT_OK && r.peak == 106 && r.at == 10);
    list[2] = schedule_do(MEMOPT_ACTION_DROP, 2); /* what segment 2 reads */
    CHECK(memopt_schedule_simulate(&chain, NULL, list, n, NULL, &r) == MEMOPT_ERR_STATE && r.at == 3);
}
static void schedule_transfers_by_hand(void) {
    static const memopt_action_kind ops[] = { MEMOPT_ACTION_FORWARD, MEMOPT_ACTION_WRITE, MEMOPT_ACTION_FORWARD, MEMOPT_ACTION_WAIT,
        MEMOPT_ACTION_DROP, MEMOPT_ACTION_FORWARD_SAVE, MEMOPT_ACTION_READ, MEMOPT_ACTION_BACKWARD, MEMOPT_ACTION_WAIT,
        MEMOPT_ACTION_FORGET, MEMOPT_ACTION_DROP,
        MEMOPT_ACTION_FORWARD_SAVE, MEMOPT_ACTION_BACKWARD, MEMOPT_ACTION_DROP, MEMOPT_ACTION_FORWARD_SAVE, MEMOPT_ACTION_BACKWARD };
    static const size_t at[] = { 0, 1, 1, 1, 1, 2, 1, 2, 1, 1, 2, 1, 1, 1, 0, 0 };
    memopt_action list[16]; memopt_offload offload = { 1, 3, 2, 0.5, 0.25, 1 }; memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 }; size_t i;
    schedule_equal(&schedule_now, 3, schedule_segment(4, 8, 0, 1, 2), 1);
    schedule_now.segment[0].copy_bytes = 1;
    for (i = 0; i < 16; ++i) list[i] = schedule_do(ops[i], at[i]);
    /* beside the computing: forward ends at 1, the write lasts 3 + 4 / 2 from there: 6. Two forwards have ended at 2,
       WAIT: 6. Forward: 7. The read lasts 2 + 4 / 4: 10; the backward ends at 9, WAIT: 10. Then twice 1 + 2: 16 */
    CHECK(schedule_agreed(&schedule_now, &offload, list, 16, &r, 1) == MEMOPT_OK);
    CHECK(r.cost == 16 && r.extra == 7 && r.forwards == 5);
    /* input, value 2, all of segment 2, value 1 coming back, its copy */
    CHECK(r.peak == 1 + 4 + 8 + 4 + 1 && r.at == 6);
    offload.overlap = 0; /* each transfer is waited for: 5 computing forwards, 3 backwards, 5 and 3 transferring */
    CHECK(schedule_agreed(&schedule_now, &offload, list, 16, &r, 2) == MEMOPT_OK && r.cost == 5 + 6 + 5 + 3);
    offload.slots = 0;
    CHECK(schedule_agreed(&schedule_now, &offload, list, 16, &r, 3) == MEMOPT_ERR_STATE && r.at == 1);
}

/* -- judges: Rotor's recurrence, the extended one, and the search through all states -- */

/* C_f(s, t, m) of the chain's part [s, t], with m bytes besides the input of s; the gradient of t's output counts, the
   chain's last one is always there and left out. f: what t saves is held already, with its output, and counts.
     tape s           F_s + C_f(s + 1, t, m - saved_s) + B_s
     checkpoint at k  F_s + .. + F_(k-1) + C_f(k, t, m - value_k) + C_0(s, k - 1, m)
     sweep, tape j    F_s + .. + F_j + C_f(j + 1, t, m - saved_j) + C_1(s, j, m), s < j < t: extended only, as it drops
                      the input of j
   Each where m is enough for the peak on the way. Small whole bytes; one slot a byte. */
typedef struct schedule_dp { const schedule_case *c; size_t most; int extended; double *cost; } schedule_dp;

static size_t schedule_dp_at(const schedule_dp *d, int f, size_t s, size_t t, size_t m) {
    return (((size_t)f * d->c->count + s) * d->c->count + t) * (d->most + 1) + m;
}
static size_t schedule_dp_grad(const schedule_dp *d, size_t value) {
    return value == d->c->count ? 0 : schedule_sim_grad_bytes(d->c, value);
}
static void schedule_dp_offer(double *best, double cost) { if (cost < *best) *best = cost; }
static double schedule_dp_solve(const schedule_dp *d, int f, size_t s, size_t t, size_t m) {
    const memopt_segment *g = d->c->segment;
    const size_t held = schedule_dp_grad(d, t + 1) + (f ? g[t].saved_bytes : 0);
    const size_t grads = schedule_dp_grad(d, s + 1) + schedule_sim_second_grad(d->c, s);
    const size_t reverse = grads + g[s].saved_bytes + g[s].backward_scratch;
    double best = SCHEDULE_NEVER, sweep = 0; size_t j, peak = 0;
    if (s == t) {
        if (m < reverse || (!f && m < held + g[s].saved_bytes + g[s].forward_scratch)) return best;
        return g[s].backward_cost + (f ? 0 : g[s].forward_cost);
    }
    if (m >= reverse && m >= held + g[s].saved_bytes + g[s].forward_scratch)
        schedule_dp_offer(&best, g[s].forward_cost + g[s].backward_cost
                                 + d->cost[schedule_dp_at(d, f, s + 1, t, m - g[s].saved_bytes)]);
    for (j = s; j < t; ++j) { /* segments s to j - 1 have run */
        const size_t before = held + (j > s ? g[j - 1].output_bytes : 0) + g[j].forward_scratch,
            save = before + g[j].saved_bytes;
        if (m < peak) break;
        if (d->extended && j > s && m >= save)
            schedule_dp_offer(&best, sweep + g[j].forward_cost
                                     + d->cost[schedule_dp_at(d, f, j + 1, t, m - g[j].saved_bytes)]
                                     + d->cost[schedule_dp_at(d, 1, s, j, m)]);
        if (before + g[j].output_bytes > peak) peak = before + g[j].output_bytes;
        sweep += g[j].forward_cost;
        if (m >= peak)
            schedule_dp_offer(&best, sweep + d->cost[schedule_dp_at(d, f, j + 1, t, m - g[j].output_bytes)]
                                     + d->cost[schedule_dp_at(d, 0, s, j, m)]);
    }
    return best;
}
static void schedule_dp_open(schedule_dp *d, const schedule_case *c, size_t most, int extended) {
    const size_t n = c->count; size_t length, s, m; int f;
    d->c = c; d->most = most; d->extended = extended;
    d->cost = (double *)malloc(2 * n * n * (most + 1) * sizeof *d->cost);
    CHECK(d->cost != NULL);
    if (!d->cost) return;
    for (length = 0; length < n; ++length)
        for (s = 0; s + length < n; ++s)
            for (f = 0; f <= extended; ++f)
                for (m = 0; m <= most; ++m)
                    d->cost[schedule_dp_at(d, f, s, s + length, m)] = schedule_dp_solve(d, f, s, s + length, m);
}
static double schedule_dp_cost(const schedule_dp *d, size_t budget) { /* SCHEDULE_NEVER: it cannot be */
    const size_t fixed = d->c->input_bytes + schedule_sim_grad_bytes(d->c, d->c->count);
    if (!d->cost || budget < fixed) return SCHEDULE_NEVER;
    return d->cost[schedule_dp_at(d, 0, 0, d->c->count - 1, budget - fixed < d->most ? budget - fixed : d->most)];
}
static void schedule_dp_close(schedule_dp *d) { free(d->cost); d->cost = NULL; }

/* The search: Dijkstra over which values and saved parts are held, and which gradient is there. A saved part holds its
   output too; `pinned`: and its input. Memory is a function of the state, so nothing depends on the way there. */
enum { SEARCH_MOST = 8, SEARCH_STATES = (SEARCH_MOST + 1) << (2 * SEARCH_MOST), SEARCH_HEAP = 1 << 18 };
/* bit v - 1: value v; bit i: saved i */
typedef struct schedule_state { double cost; unsigned grad, values, saved; } schedule_state;
typedef struct schedule_search {
    const schedule_case *c;
    size_t budget;
    double best[SEARCH_STATES];
    schedule_state heap[SEARCH_HEAP]; /* 1.5 * 3^8 states of at most 17 ways on */
    size_t heaped;
} schedule_search;
static schedule_search schedule_finder;

static int schedule_search_live(const schedule_search *f, const schedule_state *s, size_t skip) {
    const memopt_skip *k = &f->c->skip[skip];
    return s->grad > k->to && s->values >> k->from & ((1u << (k->to - k->from)) - 1);
}
static size_t schedule_search_bytes(const schedule_search *f, const schedule_state *s) {
    const schedule_case *c = f->c; size_t sum = c->input_bytes + schedule_sim_grad_bytes(c, c->count), i;
    for (i = 0; i < c->count; ++i) {
        if (s->values >> i & 1) sum += c->segment[i].output_bytes;
        if (s->saved >> i & 1) sum += c->segment[i].saved_bytes - c->segment[i].output_bytes;
    }
    if (s->grad < c->count) sum += schedule_sim_grad_bytes(c, s->grad);
    for (i = 0; i < c->skip_count; ++i) {
        if (schedule_search_live(f, s, i)) sum += c->skip[i].bytes;
        if (s->grad <= c->skip[i].to && s->grad > c->skip[i].from) sum += c->skip[i].grad_bytes;
    }
    return sum;
}
static double *schedule_search_best(schedule_search *f, const schedule_state *s) {
    return &f->best[(s->grad << f->c->count | s->values) << f->c->count | s->saved];
}
static void schedule_search_reach(schedule_search *f, schedule_state s, double cost) {
    double *best = schedule_search_best(f, &s); size_t i;
    s.cost += cost;
    if (s.cost >= *best) return;
    *best = s.cost;
    for (i = ++f->heaped; i > 1 && f->heap[i / 2 - 1].cost > s.cost; i /= 2) f->heap[i - 1] = f->heap[i / 2 - 1];
    f->heap[i - 1] = s;
}
static schedule_state schedule_search_take(schedule_search *f) {
    const schedule_state top = f->heap[0], last = f->heap[--f->heaped]; size_t i = 1, child;
    for (; (child = 2 * i) <= f->heaped; i = child) {
        if (child < f->heaped && f->heap[child].cost < f->heap[child - 1].cost) ++child;
        if (f->heap[child - 1].cost >= last.cost) break;
        f->heap[i - 1] = f->heap[child - 1];
    }
    f->heap[i - 1] = last;
    return top;
}
static void schedule_search_forward(schedule_search *f, const schedule_state *s, size_t i, int save) {
    const memopt_segment *g = &f->c->segment[i]; schedule_state next = *s;
    const size_t scratch = save || !g->plain_scratch ? g->forward_scratch : g->plain_scratch;
    next.values |= 1u << i;
    if (save) next.saved |= 1u << i;
    if (schedule_search_bytes(f, &next) + scratch <= f->budget) schedule_search_reach(f, next, g->forward_cost);
}
static void schedule_search_backward(schedule_search *f, const schedule_state *s) {
    const size_t i = s->grad - 1; schedule_state next = *s;
    size_t peak = schedule_search_bytes(f, s) + schedule_sim_second_grad(f->c, i) + f->c->segment[i].backward_scratch, k;
    for (k = 0; k < f->c->skip_count; ++k) if (f->c->skip[k].to == i) peak += f->c->skip[k].grad_bytes;
    if (peak > f->budget) return;
    next.grad = (unsigned)i; next.values &= ~(1u << i); next.saved &= ~(1u << i);
    schedule_search_reach(f, next, f->c->segment[i].backward_cost);
}
static double schedule_optimum(const schedule_case *c, size_t budget, int pinned) { /* SCHEDULE_NEVER: it cannot be */
    schedule_search *f = &schedule_finder; schedule_state s; size_t i;
    f->c = c; f->budget = budget; f->heaped = 0;
    for (i = 0; i < (c->count + 1) << (2 * c->count); ++i) f->best[i] = SCHEDULE_NEVER;
    s.cost = 0; s.grad = (unsigned)c->count; s.values = s.saved = 0;
    if (schedule_search_bytes(f, &s) <= budget) schedule_search_reach(f, s, 0);
    while (f->heaped) {
        s = schedule_search_take(f);
        if (!s.grad) return s.cost;
        if (s.cost > *schedule_search_best(f, &s)) continue; /* reached better since */
        for (i = 0; i < s.grad; ++i) {
            const int input = !i || (s.values >> (i - 1) & 1);
            if (input && !(s.values >> i & 1)) {
                schedule_search_forward(f, &s, i, 0);
                schedule_search_forward(f, &s, i, 1);
            }
            if (s.values >> i & 1 && !(s.saved >> i & 1) && !(pinned && s.saved >> (i + 1) & 1)) {
                schedule_state next = s;
                next.values &= ~(1u << i);
                schedule_search_reach(f, next, 0);
            }
        }
        i = s.grad - 1;
        if (s.saved >> i & 1 && (!i || (s.values >> (i - 1) & 1))) schedule_search_backward(f, &s);
    }
    return SCHEDULE_NEVER;
}

/* -- the published vectors -- */

typedef struct schedule_vector {
    size_t  count, input, first;       /* first: budget of the first row below */
    /* output, saved, gradient, forward and backward scratch, forward and backward cost */
    uint8_t segment[SEARCH_MOST][7];
    /* at each budget: Rotor; extended; the optimum with a saved part pinning its input; and without */
    uint8_t cost[29][4];
} schedule_vector;
static const schedule_vector schedule_vectors[] = {
    { 8, 1, 7,
      { { 1, 3, 1, 0, 0, 1, 2 }, { 1, 3, 1, 0, 0, 1, 2 }, { 1, 3, 1, 0, 0, 1, 2 }, { 1, 3, 1, 0, 0, 1, 2 },
        { 1, 3, 1, 0, 0, 1, 2 }, { 1, 3, 1, 0, 0, 1, 2 }, { 1, 3, 1, 0, 0, 1, 2 }, { 1, 3, 0, 0, 0, 1, 2 } },
      {
        { 46, 46, 46, 46 }, { 36, 36, 36, 36 }, { 33, 33, 33, 33 }, { 31, 31, 31, 31 }, { 30, 30, 30, 30 },
        { 30, 30, 30, 30 }, { 29, 29, 29, 29 }, { 29, 29, 29, 29 }, { 28, 28, 28, 28 }, { 28, 28, 28, 28 },
        { 28, 27, 28, 27 }, { 27, 27, 27, 27 }, { 27, 27, 27, 27 }, { 27, 26, 27, 26 }, { 26, 26, 26, 26 },
        { 26, 26, 26, 26 }, { 26, 25, 26, 25 }, { 25, 25, 25, 25 }, { 25, 25, 25, 25 }, { 24, 24, 24, 24 },
        { 24, 24, 24, 24 } } },
    { 6, 1, 22,
      { { 4, 5, 4, 0, 0, 5, 5 }, { 4, 8, 4, 0, 1, 5, 4 }, { 3, 4, 3, 1, 0, 4, 4 }, { 3, 8, 3, 1, 1, 2, 3 },
        { 4, 4, 4, 1, 0, 3, 2 }, { 4, 8, 0, 1, 0, 2, 2 } },
      {
        { 72, 65, 72, 65 }, { 62, 60, 62, 60 }, { 57, 57, 57, 57 }, { 57, 53, 57, 53 }, { 57, 50, 57, 50 },
        { 57, 50, 57, 50 }, { 52, 50, 52, 50 }, { 52, 48, 52, 48 }, { 52, 48, 52, 48 }, { 52, 48, 52, 48 },
        { 52, 48, 52, 48 }, { 47, 47, 47, 47 }, { 47, 45, 47, 45 }, { 47, 45, 47, 45 }, { 47, 45, 47, 45 },
        { 43, 43, 43, 43 }, { 43, 43, 43, 43 }, { 43, 43, 43, 43 }, { 43, 43, 43, 43 }, { 43, 43, 43, 43 },
        { 41, 41, 41, 41 }, { 41, 41, 41, 41 }, { 41, 41, 41, 41 }, { 41, 41, 41, 41 }, { 41, 41, 41, 41 },
        { 41, 41, 41, 41 }, { 41, 41, 41, 41 } } },
    { 6, 3, 19,
      { { 2, 7, 2, 0, 1, 3, 1 }, { 4, 4, 4, 0, 1, 1, 3 }, { 3, 4, 3, 1, 1, 3, 2 }, { 2, 3, 2, 1, 1, 5, 2 },
        { 3, 5, 3, 0, 1, 1, 1 }, { 3, 6, 0, 1, 1, 5, 2 } },
      {
        { 52, 46, 52, 44 }, { 48, 43, 46, 43 }, { 45, 38, 43, 37 }, { 40, 37, 40, 37 }, { 40, 36, 40, 36 },
        { 37, 36, 37, 36 }, { 37, 34, 37, 34 }, { 36, 33, 36, 33 }, { 34, 33, 34, 33 }, { 34, 33, 34, 33 },
        { 33, 32, 33, 32 }, { 33, 31, 33, 31 }, { 32, 31, 32, 31 }, { 32, 30, 32, 30 }, { 32, 30, 32, 30 },
        { 30, 30, 30, 30 }, { 30, 30, 30, 30 }, { 29, 29, 29, 29 }, { 29, 29, 29, 29 }, { 29, 29, 29, 29 },
        { 29, 29, 29, 29 }, { 29, 29, 29, 29 }, { 29, 29, 29, 29 }, { 29, 29, 29, 29 } } },
    { 6, 1, 17,
      { { 3, 7, 3, 0, 1, 5, 1 }, { 4, 6, 4, 0, 0, 1, 2 }, { 3, 4, 3, 0, 0, 5, 2 }, { 1, 6, 1, 0, 1, 3, 1 },
        { 2, 7, 2, 0, 0, 5, 5 }, { 2, 4, 0, 1, 0, 4, 2 } },
      {
        { 66, 61, 66, 61 }, { 61, 58, 61, 58 }, { 56, 51, 56, 51 }, { 55, 51, 55, 51 }, { 50, 48, 50, 48 },
        { 50, 45, 50, 45 }, { 45, 45, 45, 45 }, { 45, 43, 45, 43 }, { 45, 42, 45, 42 }, { 45, 40, 45, 40 },
        { 45, 40, 45, 40 }, { 42, 40, 42, 40 }, { 42, 40, 42, 40 }, { 40, 40, 40, 40 }, { 40, 37, 40, 37 },
        { 39, 37, 39, 37 }, { 39, 37, 39, 37 }, { 39, 37, 39, 37 }, { 37, 37, 37, 37 }, { 37, 37, 37, 37 },
        { 36, 36, 36, 36 }, { 36, 36, 36, 36 }, { 36, 36, 36, 36 }, { 36, 36, 36, 36 }, { 36, 36, 36, 36 },
        { 36, 36, 36, 36 }, { 36, 36, 36, 36 }, { 36, 36, 36, 36 }, { 36, 36, 36, 36 } } }
};
static void schedule_of_vector(schedule_case *c, const schedule_vector *v) {
    size_t i;
    memset(c, 0, sizeof *c);
    c->count = v->count; c->input_bytes = c->input_grad_bytes = v->input;
    for (i = 0; i < v->count; ++i) {
        const uint8_t *n = v->segment[i];
        c->segment[i] = schedule_segment(n[0], n[1], n[2], n[5], n[6]);
        c->segment[i].forward_scratch = n[3]; c->segment[i].backward_scratch = n[4];
    }
}
static void schedule_judges_are_right(void) {
    size_t i, k;
    for (i = 0; i < sizeof schedule_vectors / sizeof schedule_vectors[0]; ++i) {
        const schedule_vector *v = &schedule_vectors[i]; schedule_dp rotor, extended;
        schedule_of_vector(&schedule_now, v);
        schedule_dp_open(&rotor, &schedule_now, 60, 0);
        schedule_dp_open(&extended, &schedule_now, 60, 1);
        for (k = 0; k < 29 && v->cost[k][0]; ++k) {
            CHECK_AT(schedule_dp_cost(&rotor, v->first + k) == v->cost[k][0], i * 100 + k);
            CHECK_AT(schedule_dp_cost(&extended, v->first + k) == v->cost[k][1], i * 100 + k);
            if (v->count > 6 && k % 4) continue; /* the search takes longer there */
            CHECK_AT(schedule_optimum(&schedule_now, v->first + k, 1) == v->cost[k][2], i * 100 + k);
            CHECK_AT(schedule_optimum(&schedule_now, v->first + k, 0) == v->cost[k][3], i * 100 + k);
        }
        CHECK_AT(schedule_dp_cost(&extended, v->first - 1) == SCHEDULE_NEVER
                 && schedule_optimum(&schedule_now, v->first - 1, 0) == SCHEDULE_NEVER, i);
        schedule_dp_close(&rotor);
        schedule_dp_close(&extended);
    }
}

/* -- solved chains: whatever comes out goes through the list, too -- */

typedef struct schedule_solved {
    const memopt_schedule *schedule;
    const schedule_case   *c;
    memopt_offload offload;
    int    values_only; /* REVOLVE: keeping everything is none of its schedules */
    void  *memory;
    size_t bytes;
} schedule_solved;

static memopt_schedule_desc schedule_desc(const schedule_case *c, memopt_schedule_rule rule, size_t slots) {
    memopt_schedule_desc d;
    memset(&d, 0, sizeof d);
    d.chain = schedule_chain(c); d.rule = rule; d.slots = slots;
    return d;
}
/* 0: it failed */
static int schedule_open(schedule_solved *s, const schedule_case *c, const memopt_schedule_desc *desc) {
    memset(s, 0, sizeof *s);
    s->c = c; s->offload = desc->offload; s->values_only = desc->rule == MEMOPT_SCHEDULE_REVOLVE;
    CHECK(memopt_schedule_bytes(desc, &s->bytes) == MEMOPT_OK);
    s->memory = s->bytes ? memopt_i_system_alloc(NULL, s->bytes, 64) : NULL;
    CHECK(s->memory != NULL);
    if (!s->memory) return 0;
    memset(s->memory, 0xA5, s->bytes);
    CHECK(memopt_schedule_solve(desc, s->memory, s->bytes, &s->schedule) == MEMOPT_OK);
    return s->schedule != NULL;
}
static void schedule_close(schedule_solved *s) {
    if (s->memory) memopt_i_system_free(NULL, s->memory, s->bytes, 64);
    memset(s, 0, sizeof *s);
}
static void schedule_is_honest(const schedule_solved *s, const memopt_schedule_result *r) {
    memopt_schedule_result want;
    CHECK(schedule_simulate(s->c, &s->offload, schedule_action, r->actions, &want) == MEMOPT_OK);
    CHECK(r->peak == want.peak && r->forwards == want.forwards && r->at == want.at);
    CHECK(schedule_same(r->cost, want.cost) && schedule_same(r->extra, want.extra));
}
/* SCHEDULE_NEVER: it cannot be */
static double schedule_spend(const schedule_solved *s, size_t budget, memopt_schedule_result *r) {
    const memopt_status status = memopt_schedule_for_budget(s->schedule, budget, schedule_action, SCHEDULE_ACTIONS,
                                                            NULL, r);
    if (status == MEMOPT_ERR_MEMORY) { CHECK_AT(r->peak > budget, budget); return SCHEDULE_NEVER; }
    CHECK(status == MEMOPT_OK);
    if (status) return SCHEDULE_NEVER;
    CHECK_AT(r->peak <= budget, budget);
    schedule_is_honest(s, r);
    return r->cost;
}
/* the caller frees it; NULL: it failed */
static memopt_schedule_point *schedule_frontier(const schedule_solved *s, size_t *count) {
    memopt_schedule_point *points; size_t got = 0, i;
    *count = 0;
    CHECK(memopt_schedule_frontier(s->schedule, NULL, 0, count) == MEMOPT_ERR_BUFFER && *count > 0);
    points = (memopt_schedule_point *)malloc((*count + 1) * sizeof *points);
    CHECK(points != NULL);
    if (!points) return NULL;
    CHECK(memopt_schedule_frontier(s->schedule, points, *count - 1, &got) == MEMOPT_ERR_BUFFER && got == *count);
    CHECK(memopt_schedule_frontier(s->schedule, points, *count, &got) == MEMOPT_OK && got == *count);
    for (i = 1; i < *count; ++i)
        CHECK_AT(points[i].peak > points[i - 1].peak && points[i].cost < points[i - 1].cost, i);
    return points;
}
/* Transfers beside the computing: the frontier tells what is sure, and copies that find room to overlap save more. */
static int schedule_reached(const schedule_solved *s, double cost, double promised) {
#if defined(__FAST_MATH__) /* a compiler may add in another order */
    return cost <= promised * (1 + 1e-12) && (s->offload.overlap || cost >= promised * (1 - 1e-12));
#else
    return s->offload.overlap ? cost <= promised * (1 + 1e-12) : cost == promised;
#endif
}
/* The frontier is what the budgets give: each point exactly, one byte below it the point before, and by its time. */
static void schedule_frontier_holds(const schedule_solved *s, size_t looks, uint64_t seed) {
    size_t count, i, step; const double all = schedule_keep_all_cost(s->c); memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 };
    memopt_schedule_point *p = schedule_frontier(s, &count);
    if (!p) return;
    step = count / looks + 1;
    if (p[0].peak) CHECK_AT(schedule_spend(s, p[0].peak - 1, &r) == SCHEDULE_NEVER && r.peak == p[0].peak, seed);
    CHECK_AT(p[count - 1].cost >= all * (1 - 1e-12), seed);
    CHECK_AT(schedule_reached(s, schedule_spend(s, SIZE_MAX, &r), p[count - 1].cost), seed);
    CHECK_AT(s->offload.slots || s->values_only || schedule_same(p[count - 1].cost, all), seed);
    for (i = 0; i < count; i += i + 1 < count && i + step >= count ? count - 1 - i : step) {
        const double later = i ? p[i - 1].cost : p[0].cost * 2 + 1;
        CHECK_AT(schedule_reached(s, schedule_spend(s, p[i].peak, &r), p[i].cost), seed);
        CHECK_AT(r.peak == p[i].peak || s->offload.overlap, seed);
        if (i) CHECK_AT(schedule_reached(s, schedule_spend(s, p[i].peak - 1, &r), p[i - 1].cost), seed);
        if (i) CHECK_AT(r.peak == p[i - 1].peak || s->offload.overlap, seed);
        if (all <= 0 || later - p[i].cost < 1e-6 * all) continue;
        CHECK_AT(memopt_schedule_for_overhead(s->schedule, (p[i].cost / 2 + later / 2) / all - 1, schedule_action,
                                              SCHEDULE_ACTIONS, NULL, &r) == MEMOPT_OK, seed);
        CHECK_AT((r.peak == p[i].peak || s->offload.overlap) && schedule_reached(s, r.cost, p[i].cost), seed);
        schedule_is_honest(s, &r);
    }
    free(p);
}
static void schedule_solves_the_vectors(void) {
    size_t i, k; memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 };
    for (i = 0; i < sizeof schedule_vectors / sizeof schedule_vectors[0]; ++i) {
        const schedule_vector *v = &schedule_vectors[i]; schedule_solved rotor, extended; memopt_schedule_desc d;
        schedule_of_vector(&schedule_now, v);
        d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_ROTOR, 512);
        if (!schedule_open(&rotor, &schedule_now, &d)) return;
        d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_EXTENDED, 512);
        if (!schedule_open(&extended, &schedule_now, &d)) return;
        for (k = 0; k < 29 && v->cost[k][0]; ++k) {
            const double a = schedule_spend(&rotor, v->first + k, &r), b = schedule_spend(&extended, v->first + k, &r);
            CHECK_AT(a <= v->cost[k][0] && a >= v->cost[k][2], i * 100 + k);
            CHECK_AT(b <= v->cost[k][1] && b >= v->cost[k][3], i * 100 + k);
        }
        CHECK_AT(schedule_spend(&rotor, v->first - 1, &r) == SCHEDULE_NEVER
                 && schedule_spend(&extended, v->first - 1, &r) == SCHEDULE_NEVER, i);
        schedule_frontier_holds(&rotor, 100, i);
        schedule_frontier_holds(&extended, 100, i);
        schedule_close(&rotor);
        schedule_close(&extended);
    }
}
static void schedule_solves_gpt(void) { /* the published frontier: budget and time */
    static const struct { size_t blocks, head; double head_cost; size_t point[22][2]; } chain[] = {
        { 24, 85, 5, {
            { 495, 87 }, { 470, 89 }, { 445, 90 }, { 420, 92 }, { 396, 93 }, { 371, 95 }, { 346, 96 },
            { 321, 98 }, { 297, 99 }, { 272, 101 }, { 247, 102 }, { 222, 104 }, { 198, 105 }, { 173, 106 },
            { 148, 108 }, { 123, 110 }, { 99, 111 }, { 91, 111 }, { 90, 116 }, { 87, 131 } } },
        { 24, 11, 5, {
            { 421, 87 }, { 399, 89 }, { 378, 90 }, { 357, 91 }, { 336, 92 }, { 315, 94 }, { 294, 95 },
            { 273, 96 }, { 252, 97 }, { 231, 99 }, { 210, 100 }, { 189, 101 }, { 168, 102 }, { 147, 104 },
            { 126, 105 }, { 105, 106 }, { 84, 108 }, { 63, 109 }, { 42, 111 }, { 39, 111 }, { 20, 364 } } },
        { 24, 1, 0, {
            { 411, 72 }, { 390, 74 }, { 369, 75 }, { 349, 76 }, { 328, 77 }, { 308, 79 }, { 287, 80 },
            { 267, 81 }, { 246, 82 }, { 226, 83 }, { 205, 85 }, { 184, 86 }, { 164, 87 }, { 143, 88 },
            { 123, 90 }, { 102, 91 }, { 82, 92 }, { 61, 93 }, { 41, 95 }, { 38, 96 }, { 20, 348 } } },
        { 96, 1, 0, {
            { 1635, 288 }, { 1553, 293 }, { 1471, 298 }, { 1389, 303 }, { 1308, 308 }, { 1226, 313 }, { 1144, 317 },
            { 1062, 322 }, { 981, 327 }, { 899, 332 }, { 817, 337 }, { 735, 341 }, { 654, 346 }, { 572, 351 },
            { 490, 356 }, { 408, 361 }, { 327, 366 }, { 245, 371 }, { 163, 376 }, { 67, 384 }, { 20, 4848 } } }
    };
    size_t i, k; memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 };
    for (i = 0; i < 4; ++i) {
        schedule_solved s; memopt_schedule_desc d;
        schedule_gpt(&schedule_now, chain[i].blocks, chain[i].head, chain[i].head_cost, 1);
        d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_EXTENDED, i < 3 ? 512 : 0);
        if (!schedule_open(&s, &schedule_now, &d)) return;
        for (k = 0; k < 22 && chain[i].point[k][0]; ++k)
            CHECK_AT(schedule_spend(&s, chain[i].point[k][0], &r) <= (double)chain[i].point[k][1], i * 100 + k);
        schedule_frontier_holds(&s, 10, i);
        CHECK_AT(memopt_schedule_for_overhead(s.schedule,
                                              (double)chain[i].blocks / schedule_keep_all_cost(&schedule_now) + 1e-9,
                                              schedule_action, SCHEDULE_ACTIONS, NULL, &r) == MEMOPT_OK, i);
        CHECK_AT(r.peak <= (i == 0 ? 91u : i == 1 ? 39u : i == 2 ? 38u : 67u), i); /* one forward of every block more */
        schedule_close(&s);
    }
}
/* Against the search: never below it, nearly always equal, never far above; never worse than either recurrence. */
static void schedule_solves_random_chains(void) {
    uint64_t seed; size_t pairs = 0, above = 0; double worst = 1, excess = 0;
#ifdef TEST_LONG
    const uint64_t chains = 4000;
#else
    const uint64_t chains = 150;
#endif
    for (seed = 1; seed <= chains; ++seed) {
        uint64_t random = seed; schedule_solved rotor, extended; schedule_dp plain, more; memopt_schedule_desc d;
        size_t m, full;
        memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 };
        schedule_random_chain(&schedule_now, 1 + test_below(&random, 6), &random);
        full = schedule_full_peak(&schedule_now);
        d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_ROTOR, 256);
        if (!schedule_open(&rotor, &schedule_now, &d)) return;
        d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_EXTENDED, 256);
        if (!schedule_open(&extended, &schedule_now, &d)) return;
        schedule_dp_open(&plain, &schedule_now, full, 0);
        schedule_dp_open(&more, &schedule_now, full, 1);
        for (m = schedule_now.input_bytes; m <= full; ++m) {
            const double b = schedule_spend(&extended, m, &r), a = schedule_spend(&rotor, m, &r);
            CHECK_AT(b <= schedule_dp_cost(&more, m) && a <= schedule_dp_cost(&plain, m), seed * 1000 + m);
            CHECK_AT(b <= a, seed * 1000 + m);
            if (b < SCHEDULE_NEVER && test_below(&random, 3) == 0) {
                const double best = schedule_optimum(&schedule_now, m, 0);
                CHECK_AT(b >= best && b <= best * 1.25, seed * 1000 + m);
                CHECK_AT(a >= schedule_optimum(&schedule_now, m, 1), seed * 1000 + m);
                ++pairs; above += (size_t)(b > best); excess += b / best - 1;
                if (b / best > worst) worst = b / best;
            }
        }
        if (seed % 8 == 0) schedule_frontier_holds(&extended, 100, seed);
        schedule_close(&rotor); schedule_close(&extended); schedule_dp_close(&plain); schedule_dp_close(&more);
    }
    CHECK_AT(above * 50 <= pairs && pairs > chains, above);
#ifdef SCHEDULE_FIGURES
    printf("%d chains, %d pairs: %d above the optimum, worst %.3f, mean excess %.4f%%\n", (int)chains, (int)pairs,
           (int)above, worst, 100 * excess / (double)pairs);
#endif
    CHECK(worst <= 1.25 && excess >= 0);
}
static void schedule_is_monotone(void) { /* bytes and costs of any size, rounded up inside; budgets swept finely */
    static const memopt_schedule_rule rules[] = { MEMOPT_SCHEDULE_EXTENDED, MEMOPT_SCHEDULE_ROTOR, MEMOPT_SCHEDULE_REVOLVE };
    uint64_t seed;
#ifdef TEST_LONG
    const uint64_t chains = 20000;
#else
    const uint64_t chains = 600 / TEST_STRIDE;
#endif
    for (seed = 1; seed <= chains; ++seed) {
        uint64_t random = seed * 77; schedule_solved s; memopt_schedule_desc d; size_t full, least, i;
        double last = SCHEDULE_NEVER;
        memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 };
        schedule_ugly_chain(&schedule_now, 1 + test_below(&random, seed % 16 ? 12 : 40), &random);
        if (seed % 4 == 1) schedule_random_skips(&schedule_now, 3, &random);
        for (i = 0; i < schedule_now.count; ++i) /* smaller copies that stay in memory */
            if (seed % 10 == 0) schedule_now.segment[i].copy_bytes = schedule_now.segment[i].output_bytes / 3;
        d = schedule_desc(&schedule_now, rules[seed % 3], 16 + test_below(&random, 64));
        if (seed % 5 == 0) {
            d.offload.slots = seed % 2 ? 1 + test_below(&random, 4) : MEMOPT_OFFLOAD_UNLIMITED;
            d.offload.overlap = seed % 3 == 0;
            d.offload.write_cost = (double)test_below(&random, 100);
            d.offload.read_byte_cost = (double)test_below(&random, 100) * 1e-4;
        }
        if (!schedule_open(&s, &schedule_now, &d)) return;
        schedule_frontier_holds(&s, 4, seed);
        CHECK_AT(schedule_spend(&s, 0, &r) == SCHEDULE_NEVER || r.peak == 0, seed);
        least = r.peak;
        full = schedule_full_peak(&schedule_now);
        if (full < least) full = least + least / 8; /* REVOLVE may need more than keeping everything does */
        for (i = 0; i <= 40; ++i) {
            const size_t budget = least + (size_t)((double)(full - least) * (double)i / 40.0);
            const double cost = schedule_spend(&s, budget, &r);
            CHECK_AT(cost <= last && cost < SCHEDULE_NEVER, seed);
            last = cost;
        }
        schedule_close(&s);
    }
}
static void schedule_skips_are_solved(void) {
    uint64_t seed; size_t pairs = 0, above = 0; double worst = 1;
    for (seed = 1; seed <= 150; ++seed) {
        uint64_t random = seed * 31; schedule_solved s; memopt_schedule_desc d; size_t m, full;
        memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 }; double last = SCHEDULE_NEVER;
        schedule_random_chain(&schedule_now, 2 + test_below(&random, 5), &random);
        schedule_random_skips(&schedule_now, 1 + test_below(&random, 3), &random);
        full = schedule_full_peak(&schedule_now);
        d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_EXTENDED, 256);
        if (!schedule_open(&s, &schedule_now, &d)) return;
        CHECK_AT(schedule_same(schedule_spend(&s, full, &r), schedule_keep_all_cost(&schedule_now)) && r.peak == full,
                 seed);
        for (m = schedule_now.input_bytes; m <= full; ++m) {
            const double cost = schedule_spend(&s, m, &r), best = schedule_optimum(&schedule_now, m, 0);
            CHECK_AT(cost >= best && cost <= last, seed * 1000 + m);
            last = cost;
            if (cost == SCHEDULE_NEVER) continue;
            ++pairs; above += (size_t)(cost > best);
            if (cost / best > worst) worst = cost / best;
        }
        schedule_frontier_holds(&s, 10, seed);
        schedule_close(&s);
    }
#ifdef SCHEDULE_FIGURES
    printf("skips: %d pairs, %d above the optimum, worst %.3f\n", (int)pairs, (int)above, worst);
#endif
    CHECK(pairs > 1000 && above * 10 <= pairs && worst <= 1.5); /* skips are counted with care, not searched */
}
static void schedule_u_shape(void) { /* down and up again, each level joined to its other side */
    size_t depth, i; memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 };
    for (depth = 1; depth <= 8; depth += depth > 3 ? 2 : 1) {
        const size_t n = 2 * depth + 1; size_t full, least, k; schedule_solved s; memopt_schedule_desc d;
        double last = SCHEDULE_NEVER;
        memset(&schedule_now, 0, sizeof schedule_now);
        schedule_now.count = n; schedule_now.input_bytes = 4096;
        for (i = 0; i < n; ++i) {
            const size_t level = i < depth ? i : n - 1 - i, bytes = (size_t)65536 >> level;
            schedule_now.segment[i] = schedule_segment(bytes, 3 * bytes, bytes, 4, 8);
        }
        for (i = 0; i < depth && i < SCHEDULE_SKIPS; ++i)
            schedule_now.skip[i] = schedule_skip(i, n - 1 - i, (size_t)65536 >> i, (size_t)65536 >> i);
        schedule_now.skip_count = i;
        full = schedule_full_peak(&schedule_now);
        d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_EXTENDED, 1024);
        if (!schedule_open(&s, &schedule_now, &d)) return;
        CHECK_AT(schedule_same(schedule_spend(&s, full, &r), schedule_keep_all_cost(&schedule_now)) && r.peak == full
                 && r.extra == 0, depth);
        CHECK_AT(schedule_spend(&s, 0, &r) == SCHEDULE_NEVER && r.peak < full, depth);
        least = r.peak;
        for (k = 0; k <= 60; ++k) {
            const double cost = schedule_spend(&s, least + (full - least) * k / 60, &r);
            CHECK_AT(cost <= last && cost < SCHEDULE_NEVER, depth * 100 + k);
            last = cost;
        }
        schedule_frontier_holds(&s, 20, depth);
        schedule_close(&s);
    }
}

/* -- an offload store: Disk-Revolve and H-Revolve -- */

enum { LEVEL_MOST = 100, LEVEL_DISK = 5 };
typedef struct schedule_levels {
    double ram[LEVEL_MOST], disk[LEVEL_DISK][LEVEL_MOST], on_disk[LEVEL_DISK][LEVEL_MOST];
} schedule_levels;

/* Makespans with forward 1, backward 2, by number of segments less one; w and r: a write, a read.
     Disk-Revolve: 1D(l) = min(ram(l), j + ram(l - j) + r + 1D(j - 1));
                   inf(l) = min(ram(l), w + j + inf(l - j) + r + 1D(j - 1))
     H-Revolve:    on_disk(l, m) = min(ram(l), j + disk(l - j, m - 1) + r + on_disk(j - 1, m));
                   disk(l, m) = min(ram(l), w + on_disk(l, m)) */
static double schedule_makespan(schedule_levels *t, size_t segments, size_t slots, size_t disk_slots, double w,
                              double r) {
    size_t l, j, m; const int unlimited = disk_slots == MEMOPT_OFFLOAD_UNLIMITED;
    for (l = 0; l < segments; ++l) t->ram[l] = (double)revolve_forwards(l + 1, slots) + 2.0 * (double)(l + 1);
    for (m = 0; m <= (unlimited ? 1 : disk_slots); ++m)
        for (l = 0; l < segments; ++l) {
            double best = t->ram[l], best_there = t->ram[l];
            for (j = 1; m && j <= l; ++j) {
                const double right = unlimited ? t->ram[l - j] : t->disk[m - 1][l - j];
                schedule_dp_offer(&best_there, (double)j + right + r + t->on_disk[m][j - 1]);
                if (unlimited && j < l)
                    schedule_dp_offer(&best, w + (double)j + t->disk[m][l - j] + r + t->on_disk[m][j - 1]);
            }
            t->on_disk[m][l] = best_there;
            if (!unlimited && m) schedule_dp_offer(&best, w + best_there);
            t->disk[m][l] = best;
        }
    return t->disk[unlimited ? 1 : disk_slots][segments - 1];
}
static const double  schedule_transfer[] = { 0.25, 0.5, 1, 2, 5 };
static const size_t  schedule_disk[] = { MEMOPT_OFFLOAD_UNLIMITED, 1, 2, 4 };
static schedule_levels schedule_two_levels;

static size_t schedule_slots(double slots) { return slots < 0 ? MEMOPT_OFFLOAD_UNLIMITED : (size_t)slots; }
static void schedule_levels_are_right(void) { /* the recurrences give the published table */
    static const char *const paths[] = {
        "../shared/data/tables/two_level.csv", "../../shared/data/tables/two_level.csv"
    };
    static const double known[][5] = {
        { 24, 2, -1, 0.5, 92 }, { 24, 3, 4, 2, 102 }, { 48, 2, 4, 0.5, 216 }, { 48, 5, 4, 0.5, 186.5 },
        { 48, 5, -1, 5, 212 }, { 100, 3, -1, 1, 418 }, { 100, 3, 4, 5, 545 }, { 100, 5, 4, 1, 452 },
        { 100, 5, -1, 5, 480 }
    };
    FILE *file = NULL; char line[128]; size_t i; double n, c, slots, w, want;
    for (i = 0; i < sizeof known / sizeof known[0]; ++i)
        CHECK_AT(schedule_makespan(&schedule_two_levels, (size_t)known[i][0], (size_t)known[i][1],
                                 schedule_slots(known[i][2]), known[i][3], known[i][3]) == known[i][4], i);
    for (i = 0; i < 2 && !file; ++i) file = fopen(paths[i], "r");
    if (!file) { SKIP("the table of two-level schedules is not at hand"); return; }
    for (i = 0; fgets(line, sizeof line, file);) {
        if (sscanf(line, "%lf,%lf,%lf,%lf,%lf", &n, &c, &slots, &w, &want) != 5) continue;
        CHECK_AT(schedule_makespan(&schedule_two_levels, (size_t)n, (size_t)c, schedule_slots(slots),
                                 w, w) == want, i);
        ++i;
    }
    CHECK_AT(i == 3400, i);
    fclose(file);
}
/* Values of one byte, with nothing saved but them: c values held, the input among them, and two on the way. */
static void schedule_solves_levels_of(size_t n, size_t disk, size_t cost) {
    schedule_solved s; memopt_schedule_desc d; size_t c; memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 };
    const double w = schedule_transfer[cost];
    schedule_equal(&schedule_now, n, schedule_segment(1, 1, 0, 1, 2), 1);
    d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_REVOLVE, 128);
    d.offload.slots = schedule_disk[disk]; d.offload.write_cost = d.offload.read_cost = w;
    if (!schedule_open(&s, &schedule_now, &d)) return;
    for (c = 1; c <= 5; ++c) /* each backward has a forward of its own, which the table does not count */
        CHECK_AT(schedule_spend(&s, c + 2, &r) - (double)n == schedule_makespan(&schedule_two_levels, n, c,
                schedule_disk[disk], w, w),
                 n * 1000 + c * 100 + disk * 10 + cost);
    schedule_close(&s);
}
static void schedule_solves_two_levels(void) {
    size_t n, disk, cost;
    for (n = 2; n <= 100; ++n) {
#ifndef TEST_LONG
        if (n > 24) continue;
#endif
        if (n > 32 && n != 48 && n != 64 && n != 100) continue;
        for (disk = 0; disk < 4; ++disk) for (cost = 0; cost < 5; ++cost) schedule_solves_levels_of(n, disk, cost);
    }
    schedule_solves_levels_of(48, 3, 1);
}
static void schedule_solves_revolve(void) { /* the same without an offload store */
    size_t n, c; memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 };
    schedule_revolve_table();
    for (n = 1; n <= 100; n += n < 33 ? 1 : 33) {
        schedule_solved s; memopt_schedule_desc d;
        schedule_equal(&schedule_now, n, schedule_segment(1, 1, 0, 1, 2), 1);
        d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_REVOLVE, 128);
        if (!schedule_open(&s, &schedule_now, &d)) return;
        for (c = 1; c <= 16; ++c)
            CHECK_AT(schedule_spend(&s, c + 2, &r) == (double)schedule_revolve[c][n] + 3.0 * (double)n, n * 100 + c);
        schedule_close(&s);
    }
}
/* An offload store never costs time; copies beside the computing never more than copies that are waited for. */
/* Of transfers beside the computing a table has three kinds of rows, of those that are waited for two, without any one. */
static void schedule_rows_of_transfers(void) {
    memopt_schedule_desc d; size_t bytes[3], i; uint64_t random = 7;

    schedule_random_chain(&schedule_now, 12, &random);
    for (i = 0; i < 3; ++i) {
        d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_REVOLVE, 4096);
        d.offload.slots = i ? MEMOPT_OFFLOAD_UNLIMITED : 0;
        d.offload.overlap = i == 2;
        CHECK(memopt_schedule_bytes(&d, &bytes[i]) == MEMOPT_OK);
    }
    CHECK(bytes[1] > bytes[0] * 3 / 2 && bytes[2] > bytes[1] * 4 / 3);
}
static void schedule_transfers_overlap(void) {
    uint64_t seed; size_t better = 0;
#ifdef TEST_LONG
    const uint64_t chains = 1000;
#else
    const uint64_t chains = 60 / TEST_STRIDE;
#endif
    for (seed = 1; seed <= chains; ++seed) {
        uint64_t random = seed * 13; schedule_solved s[3]; memopt_schedule_desc d; size_t m, full, i;
        memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 };
        schedule_random_chain(&schedule_now, 2 + test_below(&random, 9), &random);
        full = schedule_full_peak(&schedule_now);
        for (i = 0; i < schedule_now.count; ++i)
            schedule_now.segment[i].copy_bytes = seed % 2 ? 0 : schedule_now.segment[i].output_bytes / 2;
        for (i = 0; i < 3; ++i) {
            static const memopt_schedule_rule rules[] = { MEMOPT_SCHEDULE_EXTENDED, MEMOPT_SCHEDULE_ROTOR, MEMOPT_SCHEDULE_REVOLVE };
            uint64_t same = seed;
            d = schedule_desc(&schedule_now, rules[seed % 3], 256);
            d.offload.slots = i ? test_below(&same, 2) ? MEMOPT_OFFLOAD_UNLIMITED : 1 + test_below(&same, 3) : 0;
            d.offload.write_cost = (double)test_below(&same, 5) / 2;
            d.offload.read_cost = (double)test_below(&same, 5) / 2;
            d.offload.write_byte_cost = (double)test_below(&same, 3) / 2;
            d.offload.read_byte_cost = (double)test_below(&same, 3) / 2;
            d.offload.overlap = i == 2;
            if (!schedule_open(&s[i], &schedule_now, &d)) return;
        }
        for (m = schedule_now.input_bytes; m <= full; ++m) {
            const double none = schedule_spend(&s[0], m, &r), waited = schedule_spend(&s[1], m, &r);
            const double beside = schedule_spend(&s[2], m, &r);
            CHECK_AT(waited <= none && beside >= schedule_keep_all_cost(&schedule_now), seed * 1000 + m);
            CHECK_AT(beside <= waited, seed * 1000 + m);
            better += (size_t)(beside < waited);
        }
        for (i = 0; i < 3; ++i) schedule_close(&s[i]);
    }
    CHECK(better > chains / 2);
}

/* -- parts that repeat, which share a row -- */

/* Chains of few kinds: periodic, in runs, shuffled, or all of one kind but the ends. Returns the pattern. */
static size_t schedule_repeating(schedule_case *c, size_t *kind, size_t count, uint64_t *random) {
    const size_t kinds = 1 + test_below(random, 4), pattern = test_below(random, 4); size_t i, k;
    const int alike = test_below(random, 3) == 0; /* but for their copies */
    memopt_segment of[4];
    memset(c, 0, sizeof *c);
    for (k = 0; k < kinds; ++k) {
        memopt_segment *s = &of[k];
        *s = schedule_segment(1 + test_below(random, 5), 0, test_below(random, 4), (double)test_below(random, 6),
                              (double)(4 * test_below(random, 4) + k));
        s->saved_bytes = s->output_bytes + test_below(random, 12);
        s->forward_scratch = test_below(random, 3); s->backward_scratch = test_below(random, 5);
        s->copy_bytes = test_below(random, 3) ? 0 : s->output_bytes / 2;
        s->grad_in_place = (k + s->output_bytes) % 2 == 1;
        if (!alike) continue;
        s->backward_cost = 4; s->saved_bytes = 12; s->output_bytes = 4; s->grad_bytes = 1; s->forward_cost = 2;
        s->copy_bytes = k;
    }
    for (i = 0; i < count; ++i) {
        kind[i] = pattern == 0 ? i % kinds : pattern == 1 ? i * kinds / count : pattern == 2 ? test_below(random, kinds)
                : i && i + 1 < count ? 0 : kinds - 1;
        c->segment[i] = of[kind[i]];
    }
    c->count = count; c->input_bytes = test_below(random, 3); c->input_grad_bytes = test_below(random, 4);
    return pattern;
}

/* The same chain, of which no two segments are equal: each backward takes less than a unit longer than it did. */
static void schedule_told_apart(schedule_case *c) {
    size_t i;
    for (i = 0; i < c->count; ++i) c->segment[i].backward_cost += 1e-13 * (double)(i + 1);
}

/* Adds the points of the frontier to seen[0], and to seen[1] those at which the two choose differently among schedules
   that cost the same: the hair decides there. */
static void schedule_same_schedules(const schedule_solved *a, const schedule_solved *b, uint64_t at, size_t *seen) {
    size_t n, m, i; memopt_schedule_point *p = schedule_frontier(a, &n), *q = schedule_frontier(b, &m);
    static memopt_action other[SCHEDULE_ACTIONS]; memopt_schedule_result r, o;
    CHECK_AT(p && q && n == m, at);
    for (i = 0; p && q && n == m && i < n; ++i) {
        CHECK_AT(p[i].peak == q[i].peak && schedule_same(p[i].cost, q[i].cost), at);
        CHECK_AT(memopt_schedule_for_budget(a->schedule, p[i].peak, schedule_action, SCHEDULE_ACTIONS, NULL, &r)
                 == MEMOPT_OK, at);
        CHECK_AT(memopt_schedule_for_budget(b->schedule, p[i].peak, other, SCHEDULE_ACTIONS, NULL, &o) == MEMOPT_OK, at);
        CHECK_AT(r.actions == o.actions && r.peak == o.peak && schedule_same(r.cost, o.cost), at);
        seen[0] += 1;
        seen[1] += memcmp(schedule_action, other, memopt_i_min(r.actions, o.actions) * sizeof *other) != 0;
    }
    free(p);
    free(q);
}

/* Sharing changes nothing: a table whose segments are told apart by a hair has a row for every part, and gives the same
   schedules, action by action; but for one point in 5000, where the hair chooses among schedules that cost the same. */
static void schedule_repeats_change_nothing(void) {
    static schedule_case apart; size_t kind[40], shared = 0, seen[2] = { 0, 0 }; uint64_t seed;
#ifdef TEST_LONG
    const uint64_t chains = 3000;
#else
    const uint64_t chains = TEST_STRIDE > 7 ? 21 : 150 / TEST_STRIDE;
#endif
    for (seed = 1; seed <= chains; ++seed) {
        uint64_t random = seed; memopt_schedule_desc d, e; schedule_solved a, b; size_t k;
        const size_t count = 2 + test_below(&random, 30);
        schedule_repeating(&schedule_now, kind, count, &random);
        schedule_now.segment[0].backward_cost += 0.25; /* so that the sum of costs is no power of two, where units change */
        if (seed % 3 == 0 && count > 4) /* a skip in every block, of few sizes and lengths; or anything */
            for (k = 0; k < (seed % 2 ? 8u : 4u); ++k) {
                const size_t from = seed % 2 ? k * (count - 3) / 8 : test_below(&random, count - 2);
                schedule_now.skip[schedule_now.skip_count++] = seed % 2
                    ? schedule_skip(from, from + 1 + (seed % 4 == 1 ? test_below(&random, 2) : 0), 2 + 3 * test_below(&random,
                                    seed % 4 == 3 ? 2 : 1), 0)
                    : schedule_skip(from, from + 1 + test_below(&random, count - from - 1), test_below(&random, 4),
                                    test_below(&random, 2));
            }
        d = schedule_desc(&schedule_now, (memopt_schedule_rule)(seed % 3 + seed % 5 == 2 ? 2 : seed % 2), 16 + test_below(&random, 200));
        if (seed % 4 == 1) {
            d.offload.slots = seed % 8 == 1 ? MEMOPT_OFFLOAD_UNLIMITED : 1 + test_below(&random, 3);
            d.offload.write_cost = (double)test_below(&random, 3); d.offload.read_cost = (double)test_below(&random, 3);
            d.offload.overlap = seed % 16 == 5 && count < 10;
        }
        apart = schedule_now;
        schedule_told_apart(&apart);
        e = d;
        e.chain = schedule_chain(&apart);
        if (!schedule_open(&a, &schedule_now, &d) || !schedule_open(&b, &apart, &e)) return;
        CHECK_AT(b.schedule->cells == count * (count + 1) / 2 && a.schedule->cells <= b.schedule->cells, seed);
        shared += a.bytes < b.bytes;
        schedule_same_schedules(&a, &b, seed, seen);
        schedule_close(&a); schedule_close(&b);
    }
    CHECK(shared > chains * 3 / 4);
    CHECK_AT(seen[0] > chains && seen[1] * 5000 <= seen[0], seen[1]);
}

/* Rows are counted: as many as there are different parts, by comparing each with all before it. */
static int schedule_parts_same(const size_t *name, size_t s, size_t t, size_t length) {
    return !memcmp(name + s, name + t, length * sizeof *name);
}
static void schedule_repeats_counted(void) {
    size_t kind[40], name[40], parts, saved, s, t, i, length; uint64_t seed;
    for (seed = 1; seed <= 200; ++seed) {
        uint64_t random = seed; memopt_schedule_desc d; schedule_solved a;
        const size_t count = 2 + test_below(&random, 20);
        schedule_repeating(&schedule_now, kind, count, &random);
        for (i = 0; i < count; ++i) { /* a segment also sees the gradients on both sides */
            const size_t before = schedule_sim_second_grad(&schedule_now, i);
            name[i] = kind[i] * 100 + before * 10 + (i + 1 < count ? schedule_now.segment[i].grad_bytes : 0);
        }
        for (parts = saved = 0, s = 0; s < count; ++s)
            for (length = 1; s + length <= count; ++length) {
                for (t = 0; t < s && !schedule_parts_same(name, s, t, length);) ++t;
                parts += t == s;
                saved += t == s && s + length < count; /* saved at its end: never the last one */
            }
        d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_EXTENDED, 64);
        if (!schedule_open(&a, &schedule_now, &d)) return;
        CHECK_AT(a.schedule->cells == parts && a.schedule->saved == saved, seed);
        schedule_close(&a);
    }
}

/* Only budgets up to `most`: up to there the schedules are the same where the table is exact, and with few slots better. */
static void schedule_up_to(void) {
    double coarse = 0, fine = 0; uint64_t seed; size_t i; memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 };
    for (seed = 1; seed <= 40; ++seed) {
        uint64_t random = seed * 5; memopt_schedule_desc d; schedule_solved all, some; size_t full, most, m;
        if (test_is_passed_over()) continue;
        schedule_random_chain(&schedule_now, 2 + test_below(&random, 9), &random);
        full = schedule_full_peak(&schedule_now);
        d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_ROTOR, 1024);
        if (!schedule_open(&all, &schedule_now, &d)) return;
        d.max_budget = most = 1 + test_below(&random, full + 20);
        if (!schedule_open(&some, &schedule_now, &d)) return;
        for (m = 1; m <= most && m <= full + 2; ++m)
            CHECK_AT(schedule_spend(&all, m, &r) == schedule_spend(&some, m, &r), seed * 1000 + m);
        CHECK_AT(schedule_spend(&some, SIZE_MAX, &r) == schedule_keep_all_cost(&schedule_now), seed);
        CHECK_AT(some.bytes <= all.bytes, seed);
        schedule_close(&all); schedule_close(&some);
    }
    for (i = 0; i < 60; ++i) schedule_now.segment[i] = schedule_segment(1370000, 17 * 1370000 + 1000 * i, 1370000, 1, 2);
    schedule_now.count = 60; schedule_now.skip_count = 0;
    for (i = 1; i <= 8; ++i) {
        memopt_schedule_desc d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_EXTENDED, 64); schedule_solved s;
        const size_t budget = 40000000 * i;
        if (test_is_passed_over() && i != 2) continue;
        if (!schedule_open(&s, &schedule_now, &d)) return;
        coarse += schedule_spend(&s, budget, &r);
        schedule_close(&s);
        d.max_budget = budget + budget / 8;
        if (!schedule_open(&s, &schedule_now, &d)) return;
        fine += schedule_spend(&s, budget, &r);
        schedule_close(&s);
    }
    CHECK(fine < coarse && fine < SCHEDULE_NEVER);
}

/* -- wrong, hostile and failing -- */

enum { REFUSED_BYTES = 1 << 20 };
static void *schedule_memory; /* aligned to 64, filled with a pattern that must stay */

static int schedule_untouched(void) {
    const unsigned char *p = (const unsigned char *)schedule_memory; size_t i;
    for (i = 0; i < REFUSED_BYTES; ++i) if (p[i] != 0xA5) return 0;
    return 1;
}
/* Nobody takes this chain, whether to be solved, simulated or drawn; and nothing changes. */
static void schedule_chain_refused(const memopt_schedule_desc *d, memopt_status want, uint64_t at) {
    const memopt_schedule *out = NULL; const memopt_action action = { 0, 0 }; size_t bytes = 99, count = 77;
    memopt_schedule_result r, same; size_t live = 5;
    memset(&r, 0x5A, sizeof r); same = r;
    CHECK_AT(memopt_schedule_bytes(d, &bytes) == want && bytes == 99, at);
    CHECK_AT(memopt_schedule_solve(d, schedule_memory, REFUSED_BYTES, &out) == want && !out && schedule_untouched(),
             at);
    CHECK_AT(memopt_schedule_simulate(&d->chain, NULL, &action, 1, NULL, &r) == want && !memcmp(&r, &same, sizeof r),
             at);
    CHECK_AT(memopt_schedule_textbook(&d->chain, MEMOPT_SCHEDULE_ALL, 0, NULL, 0, &count) == want && count == 77, at);
    CHECK_AT(memopt_schedule_live(&d->chain, NULL, &action, 1, NULL, &live) == want && live == 5, at);
}
/* -ffast-math makes no NaN */
static double schedule_number(uint64_t bits) { double x; memcpy(&x, &bits, 8); return x; }
static memopt_schedule_desc schedule_good(void) { /* three segments, a skip */
    schedule_equal(&schedule_now, 3, schedule_segment(8, 16, 8, 1, 2), 8);
    schedule_now.skip[0] = schedule_skip(0, 2, 4, 4); schedule_now.skip_count = 1;
    return schedule_desc(&schedule_now, MEMOPT_SCHEDULE_EXTENDED, 64);
}
static void schedule_bad_chains(void) {
    static const uint64_t nan_bits = UINT64_C(0x7FF8000000000000), infinite = UINT64_C(0x7FF0000000000000);
    /* the least one below 0 */
    static const uint64_t signalling = UINT64_C(0xFFF0000000000001), below = UINT64_C(0x8000000000000001);
    const double wrong[] = {
        -1, schedule_number(nan_bits), schedule_number(infinite), schedule_number(signalling), schedule_number(below)
    };
    static const size_t skips[][2] = {
        { 0, 0 }, { 2, 1 }, { 1, 3 }, { 0, SIZE_MAX }, { SIZE_MAX, 2 }, { SIZE_MAX - 1, SIZE_MAX }
    };
    memopt_schedule_desc d = schedule_good(); const memopt_segment segment = schedule_now.segment[1]; size_t i;
    d.chain.count = 0;                   schedule_chain_refused(&d, MEMOPT_ERR_ARGUMENT, 1);
    d.chain.count = MEMOPT_CHAIN_MAX + 1; schedule_chain_refused(&d, MEMOPT_ERR_ARGUMENT, 2);
    d.chain.count = SIZE_MAX;            schedule_chain_refused(&d, MEMOPT_ERR_ARGUMENT, 3);
    d = schedule_good(); d.chain.segments = NULL; schedule_chain_refused(&d, MEMOPT_ERR_ARGUMENT, 4);
    d = schedule_good(); d.chain.skips = NULL; schedule_chain_refused(&d, MEMOPT_ERR_ARGUMENT, 5);
    d = schedule_good();
    for (i = 0; i < 3 * sizeof wrong / sizeof wrong[0]; ++i) { /* in each segment */
        schedule_now.segment[i % 3].forward_cost = wrong[i / 3];
        schedule_chain_refused(&d, MEMOPT_ERR_ARGUMENT, 100 + i);
        schedule_now.segment[i % 3] = segment;
        schedule_now.segment[i % 3].backward_cost = wrong[i / 3];
        schedule_chain_refused(&d, MEMOPT_ERR_ARGUMENT, 200 + i);
        schedule_now.segment[i % 3] = segment;
    }
    for (i = 0; i < sizeof skips / sizeof skips[0]; ++i) {
        schedule_now.skip[0] = schedule_skip(skips[i][0], skips[i][1], 1, 1);
        schedule_chain_refused(&d, MEMOPT_ERR_ARGUMENT, 30 + i);
    }
    d = schedule_good();
    for (i = 0; i < 3; ++i) {
        schedule_now.segment[i].saved_bytes = 7; /* its output has 8 */
        schedule_chain_refused(&d, MEMOPT_ERR_ARGUMENT, 40 + i);
        schedule_now.segment[i] = segment;
    }
    schedule_now.segment[1].forward_cost = 1e308; schedule_now.segment[2].backward_cost = 1e308;
    schedule_chain_refused(&d, MEMOPT_ERR_OVERFLOW, 50); /* the sum is infinite */
}
static void schedule_bytes_that_wrap(void) {
    memopt_schedule_desc d; size_t i;
    for (i = 0; i < 10; ++i) {
        memopt_segment *s;
        d = schedule_good();
        s = &schedule_now.segment[1];
        switch (i) {
        case 0: s->saved_bytes = SIZE_MAX; break;
        case 1: s->output_bytes = s->saved_bytes = SIZE_MAX; break;
        case 2: s->grad_bytes = SIZE_MAX; break;
        case 3: s->forward_scratch = SIZE_MAX; break;
        case 4: s->backward_scratch = SIZE_MAX; break;
        case 5: s->plain_scratch = SIZE_MAX; break;
        case 6: d.chain.input_bytes = SIZE_MAX; break;
        case 7: d.chain.input_grad_bytes = SIZE_MAX; break;
        case 8: schedule_now.skip[0].bytes = SIZE_MAX; break;
        default: schedule_now.skip[0].grad_bytes = SIZE_MAX; break;
        }
        schedule_chain_refused(&d, MEMOPT_ERR_OVERFLOW, i);
    }
    d = schedule_good(); /* the second of two skips */
    schedule_now.skip[1] = schedule_skip(1, 2, SIZE_MAX, 0); d.chain.skip_count = 2;
    schedule_chain_refused(&d, MEMOPT_ERR_OVERFLOW, 21);
    d = schedule_good(); /* two halves, never alive together: refused all the same */
    schedule_now.segment[0].forward_scratch = schedule_now.segment[2].forward_scratch = SIZE_MAX / 2 + 1;
    schedule_chain_refused(&d, MEMOPT_ERR_OVERFLOW, 20);
}
static void schedule_bad_solve(void) {
    memopt_schedule_desc d = schedule_good(); const memopt_schedule *out = NULL; size_t bytes = 99, i;
    static const memopt_schedule_rule books[] = { MEMOPT_SCHEDULE_ALL, MEMOPT_SCHEDULE_NONE, MEMOPT_SCHEDULE_EVERY, MEMOPT_SCHEDULE_SQRT };
    static const size_t slots[] = { 1, 15, 65537, SIZE_MAX };
    const double wrong[] = {
        -1, schedule_number(UINT64_C(0x7FF8000000000000)), schedule_number(UINT64_C(0x7FF0000000000000))
    };
    CHECK(memopt_schedule_bytes(NULL, &bytes) == MEMOPT_ERR_ARGUMENT
          && memopt_schedule_bytes(&d, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_schedule_solve(NULL, schedule_memory, REFUSED_BYTES, &out) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_schedule_solve(&d, NULL, REFUSED_BYTES, &out) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_schedule_solve(&d, schedule_memory, REFUSED_BYTES, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_schedule_solve(&d, (unsigned char *)schedule_memory + 8, REFUSED_BYTES - 64, &out)
          == MEMOPT_ERR_ARGUMENT);
    for (i = 0; i < 4; ++i) {
        d.rule = books[i];
        CHECK_AT(memopt_schedule_bytes(&d, &bytes) == MEMOPT_ERR_ARGUMENT && bytes == 99, i);
        CHECK_AT(memopt_schedule_solve(&d, schedule_memory, REFUSED_BYTES, &out) == MEMOPT_ERR_ARGUMENT, i);
        d = schedule_good();
        d.slots = slots[i];
        CHECK_AT(memopt_schedule_bytes(&d, &bytes) == MEMOPT_ERR_ARGUMENT && bytes == 99, i);
        CHECK_AT(memopt_schedule_solve(&d, schedule_memory, REFUSED_BYTES, &out) == MEMOPT_ERR_ARGUMENT, i);
        d = schedule_good();
    }
    for (i = 0; i < 3; ++i) {
        const memopt_action action = { 0, 0 };
        d = schedule_good(); d.offload.slots = 1; d.offload.write_cost = wrong[i];
        CHECK_AT(memopt_schedule_solve(&d, schedule_memory, REFUSED_BYTES, &out) == MEMOPT_ERR_ARGUMENT, i);
        CHECK_AT(memopt_schedule_simulate(&d.chain, &d.offload, &action, 1, NULL, NULL) == MEMOPT_ERR_ARGUMENT, i);
        d = schedule_good(); d.offload.slots = 1; d.offload.read_byte_cost = wrong[i];
        CHECK_AT(memopt_schedule_solve(&d, schedule_memory, REFUSED_BYTES, &out) == MEMOPT_ERR_ARGUMENT, i);
    }
    CHECK(schedule_untouched() && !out);
    d = schedule_good();
    CHECK(memopt_schedule_bytes(&d, &bytes) == MEMOPT_OK && bytes > 0 && bytes < REFUSED_BYTES);
    CHECK(memopt_schedule_solve(&d, schedule_memory, bytes - 1, &out) == MEMOPT_ERR_BUFFER && !out
          && schedule_untouched());
    CHECK(memopt_schedule_solve(&d, schedule_memory, 0, &out) == MEMOPT_ERR_BUFFER && !out && schedule_untouched());
    CHECK(memopt_schedule_solve(&d, schedule_memory, bytes, &out) == MEMOPT_OK && out);
    for (i = bytes; i < REFUSED_BYTES; ++i) /* not a byte more than it said */
        CHECK_AT(((const unsigned char *)schedule_memory)[i] == 0xA5, i);
    memset(schedule_memory, 0xA5, REFUSED_BYTES);
}
static void schedule_bad_asking(void) {
    memopt_schedule_desc d = schedule_good(); schedule_solved s; memopt_schedule_result r, same; size_t n, full;
    if (!schedule_open(&s, &schedule_now, &d)) return;
    full = schedule_full_peak(&schedule_now);
    memset(&r, 0x5A, sizeof r); same = r;
    CHECK(memopt_schedule_for_budget(NULL, full, schedule_list, 100, NULL, &r) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_schedule_for_budget(s.schedule, full, NULL, 100, NULL, &r) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_schedule_for_overhead(NULL, 0.5, schedule_list, 100, NULL, &r) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_schedule_for_overhead(s.schedule, -0.1, schedule_list, 100, NULL, &r) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_schedule_for_overhead(s.schedule, schedule_number(UINT64_C(0x7FF8000000000000)), schedule_list, 100,
                                       NULL, &r)
          == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_schedule_frontier(NULL, NULL, 0, &n) == MEMOPT_ERR_ARGUMENT
          && memopt_schedule_frontier(s.schedule, NULL, 0, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_schedule_frontier(s.schedule, NULL, 1, &n) == MEMOPT_ERR_ARGUMENT);
    CHECK(!memcmp(&r, &same, sizeof r));
    CHECK(memopt_schedule_for_budget(s.schedule, full, NULL, 0, NULL, &r) == MEMOPT_ERR_BUFFER && r.actions == 6
          && r.peak == same.peak);
    for (n = 0; n < 6; ++n)
        CHECK_AT(memopt_schedule_for_budget(s.schedule, full, schedule_list, n, NULL, &r) == MEMOPT_ERR_BUFFER
                 && r.actions == 6, n);
    CHECK(memopt_schedule_for_budget(s.schedule, full, schedule_list, 5, NULL, NULL) == MEMOPT_ERR_BUFFER);
    CHECK(memopt_schedule_for_budget(s.schedule, full, schedule_list, 6, NULL, NULL) == MEMOPT_OK);
    CHECK(memopt_schedule_for_budget(s.schedule, full, schedule_list, 6, NULL, &r) == MEMOPT_OK && r.peak == full
          && r.extra == 0);
    memset(&r, 0x5A, sizeof r);
    CHECK(memopt_schedule_for_budget(s.schedule, 0, schedule_list, 100, NULL, &r) == MEMOPT_ERR_MEMORY && r.peak > 0
          && r.peak < full);
    CHECK(r.actions == same.actions && !memcmp(&r.cost, &same.cost, sizeof r.cost)); /* only the peak is set */
    CHECK(memopt_schedule_for_budget(s.schedule, 0, schedule_list, 100, NULL, NULL) == MEMOPT_ERR_MEMORY);
    CHECK(memopt_schedule_for_overhead(s.schedule, 0, schedule_list, 100, NULL, &r) == MEMOPT_OK && r.peak == full);
    CHECK(memopt_schedule_for_overhead(s.schedule, 0, NULL, 0, NULL, &r) == MEMOPT_ERR_BUFFER && r.actions == 6);
    CHECK(memopt_schedule_for_overhead(s.schedule, 1e9, schedule_list, 100, NULL, &r) == MEMOPT_OK && r.peak < full);
    schedule_close(&s);
}
static void schedule_bad_lists(void) {
    memopt_schedule_desc d = schedule_good(); memopt_schedule_result r, same; memopt_action list[8];
    size_t count = 0, i;
    memset(&r, 0x5A, sizeof r); same = r;
    CHECK(memopt_schedule_simulate(NULL, NULL, list, 0, NULL, &r) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_schedule_simulate(&d.chain, NULL, NULL, 1, NULL, &r) == MEMOPT_ERR_ARGUMENT
          && !memcmp(&r, &same, sizeof r));
    /* nothing was done */
    CHECK(memopt_schedule_simulate(&d.chain, NULL, NULL, 0, NULL, NULL) == MEMOPT_ERR_STATE);
    CHECK(memopt_schedule_simulate(&d.chain, NULL, NULL, 0, NULL, &r) == MEMOPT_ERR_STATE && r.at == 0);
    CHECK(memopt_schedule_textbook(&d.chain, MEMOPT_SCHEDULE_EVERY, 0, list, 8, &count) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_schedule_textbook(&d.chain, MEMOPT_SCHEDULE_ALL, 0, NULL, 8, &count) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_schedule_textbook(&d.chain, MEMOPT_SCHEDULE_ALL, 0, list, 8, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_schedule_textbook(NULL, MEMOPT_SCHEDULE_ALL, 0, list, 8, &count) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_schedule_textbook(&d.chain, MEMOPT_SCHEDULE_EXTENDED, 0, list, 8, &count) == MEMOPT_ERR_ARGUMENT
          && !count);
    CHECK(memopt_schedule_textbook(&d.chain, MEMOPT_SCHEDULE_ALL, 0, list, 8, &count) == MEMOPT_OK && count == 6);
    for (i = 0; i < 6; ++i)
        CHECK_AT(memopt_schedule_simulate(&d.chain, NULL, list, i, NULL, &r) == MEMOPT_ERR_STATE && r.at == i, i);
    list[6] = schedule_do(MEMOPT_ACTION_BACKWARD, 0); /* once too often */
    CHECK(memopt_schedule_simulate(&d.chain, NULL, list, 7, NULL, &r) == MEMOPT_ERR_STATE && r.at == 6);
    list[3] = schedule_do(MEMOPT_ACTION_DROP, 65535);
    CHECK(memopt_schedule_simulate(&d.chain, NULL, list, 6, NULL, &r) == MEMOPT_ERR_STATE && r.at == 3);
    list[3].op = 65535;
    CHECK(memopt_schedule_simulate(&d.chain, NULL, list, 6, NULL, &r) == MEMOPT_ERR_STATE && r.at == 3);
}
static void schedule_host_fails(void) { /* each allocation in turn; the same call works afterwards */
    memopt_schedule_desc d = schedule_good(); schedule_solved s; const size_t full = schedule_full_peak(&schedule_now);
    size_t n, which;
    if (!schedule_open(&s, &schedule_now, &d)) return;
    for (which = 0; which < 4; ++which) {
        for (n = 1; n < 50; ++n) {
            test_faults f; memopt_host h; memopt_status status; memopt_schedule_result r, same; size_t live[100];
            size_t count = 0;
            memset(&f, 0, sizeof f);
            f.fail_on = n;
            h = test_host(&f);
            memset(&r, 0x5A, sizeof r); same = r;
            CHECK(memopt_schedule_textbook(&d.chain, MEMOPT_SCHEDULE_EVERY, 2, schedule_list, 100, &count) == MEMOPT_OK);
            if (which == 0) status = memopt_schedule_simulate(&d.chain, NULL, schedule_list, count, &h, &r);
            else if (which == 1) status = memopt_schedule_for_budget(s.schedule, full - 1, schedule_list, 100, &h, &r);
            else if (which == 2) status = memopt_schedule_for_overhead(s.schedule, 1, schedule_list, 100, &h, &r);
            else status = memopt_schedule_live(&d.chain, NULL, schedule_list, count, &h, live);
            CHECK_AT(!f.live_blocks && !f.bad_frees, which * 100 + n);
            if (f.calls < n) { CHECK_AT(n > 1 && status == MEMOPT_OK, which * 100 + n); break; }
            CHECK_AT(status == MEMOPT_ERR_MEMORY && !memcmp(&r.cost, &same.cost, sizeof r.cost), which * 100 + n);
            CHECK_AT(which || !memcmp(&r, &same, sizeof r), n);
        }
        CHECK_AT(n < 50, which);
    }
    schedule_close(&s);
}
static void schedule_odd_chains(void) { /* no bytes, no costs, one segment, huge bytes */
    memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 }; size_t n, kind;
    for (n = 1; n <= 9; n += 4)
        for (kind = 0; kind < 4; ++kind) {
            schedule_solved s; memopt_schedule_desc d; size_t full; const size_t huge = SIZE_MAX / 64;
            const memopt_segment of_kind[] = {
                schedule_segment(3, 9, 2, 0.5, 0.25), schedule_segment(0, 0, 0, 0.5, 0.25),
                schedule_segment(3, 9, 2, 0, 0), schedule_segment(huge, huge + 5, 2, 0.5, 0.25)
            };
            schedule_equal(&schedule_now, n, of_kind[kind], 0);
            full = schedule_full_peak(&schedule_now);
            d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_EXTENDED, 0);
            if (!schedule_open(&s, &schedule_now, &d)) return;
            CHECK_AT(schedule_same(schedule_spend(&s, full, &r), schedule_keep_all_cost(&schedule_now))
                     && r.peak <= full, n * 10 + kind);
            schedule_frontier_holds(&s, 10, n * 10 + kind);
            schedule_close(&s);
        }
}
/* Transfers that nobody would pay for: what they cost is no matter, and the schedules are those without them. */
static void schedule_dear_transfers(void) {
    static const double cost[] = { 10, 1e4, 1e6, 1e30 }; size_t budget, k;
    schedule_solved plain, dear; memopt_schedule_desc d; memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 };
    schedule_equal(&schedule_now, 40, schedule_segment(100, 1700, 100, 1, 2), 100);
    d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_EXTENDED, 2000);
    if (!schedule_open(&plain, &schedule_now, &d)) return;
    for (k = 0; k < sizeof cost / sizeof *cost; ++k) {
        if (test_is_passed_over()) continue;
        d.offload.slots = MEMOPT_OFFLOAD_UNLIMITED; d.offload.write_cost = d.offload.read_cost = cost[k];
        if (!schedule_open(&dear, &schedule_now, &d)) return;
        CHECK_AT(dear.schedule->stages[5].write[0] > 0 && dear.schedule->stages[5].write[0] <= MEMOPT_I_COST_NONE, k);
        for (budget = 3000; budget < 80000; budget += 3000)
            CHECK_AT(schedule_spend(&dear, budget, &r) <= schedule_spend(&plain, budget, &r), budget);
        schedule_close(&dear);
    }
    schedule_close(&plain);
}
/* A tiny segment beside a huge skip, and few slots: the thresholds are far apart, and still reach from end to end. */
static void schedule_coarse(void) {
    static const memopt_schedule_rule rules[] = { MEMOPT_SCHEDULE_EXTENDED, MEMOPT_SCHEDULE_ROTOR, MEMOPT_SCHEDULE_REVOLVE }; size_t rule, slots;
    schedule_equal(&schedule_now, 8, schedule_segment(16, 32, 16, 1, 2), 16);
    schedule_now.skip_count = 1;
    schedule_now.skip[0].from = 1; schedule_now.skip[0].to = 6; schedule_now.skip[0].bytes = (size_t)1 << 30;
    for (rule = 0; rule < 3; ++rule)
        for (slots = 16; slots <= 1024; slots = slots * 3 / 2 + 1) {
            memopt_schedule_desc d = schedule_desc(&schedule_now, rules[rule], slots); schedule_solved s;
            memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 };
            if (!schedule_open(&s, &schedule_now, &d)) return;
            CHECK_AT(schedule_spend(&s, SIZE_MAX, &r) < SCHEDULE_NEVER && r.peak >= (size_t)1 << 30, slots);
            CHECK_AT(schedule_spend(&s, 100, &r) >= SCHEDULE_NEVER && r.peak >= (size_t)1 << 30, slots);
            schedule_close(&s);
        }
}
/* Tables that no address space holds are refused, not wrapped around. */
static void schedule_huge(void) {
    static memopt_segment segment[MEMOPT_CHAIN_MAX]; memopt_schedule_desc d; size_t i, bytes = 77; memopt_status s;
    for (i = 0; i < MEMOPT_CHAIN_MAX; ++i) segment[i] = schedule_segment(64, 128 + i, 64, 1, 2); /* no two the same */
    memset(&d, 0, sizeof d);
    d.chain.segments = segment; d.offload.overlap = 1; d.slots = 16;
    for (d.chain.count = 3900; d.chain.count <= MEMOPT_CHAIN_MAX; d.chain.count += 49)
        for (d.offload.slots = 60; d.offload.slots < 80; ++d.offload.slots) {
            if (test_is_passed_over()) continue;
            s = memopt_schedule_bytes(&d, &bytes);
            CHECK_AT(s == (sizeof(size_t) > 4 ? MEMOPT_OK : MEMOPT_ERR_OVERFLOW), d.chain.count);
            if (!s) CHECK_AT(bytes / d.chain.count / d.chain.count > 4 * 16 * d.offload.slots, d.chain.count);
        }
}
static void schedule_sizes(void) { /* what the memory of the default amounts to; a long chain in few slots */
    static const struct { size_t count, mebibytes; } most[] = {
        { 2, 1 }, { 32, 3 }, { 128, 6 }, { 140, 7 }, { 170, 8 }, { 512, 20 }
    };
    size_t i, bytes = 0; memopt_schedule_desc d; schedule_solved s; memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 }; double last = SCHEDULE_NEVER;
    uint64_t random = 1;
    for (i = 0; i < sizeof most / sizeof most[0]; ++i) {
        schedule_equal(&schedule_now, most[i].count, schedule_segment(1000, 17000, 1000, 1, 2), 1000);
        d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_EXTENDED, 0);
        CHECK_AT(memopt_schedule_bytes(&d, &bytes) == MEMOPT_OK && bytes <= most[i].mebibytes << 20, i);
    }
    for (i = 0; i < sizeof most / sizeof most[0]; ++i) { /* and of chains that do not repeat */
        size_t k;
        for (k = 0; k < most[i].count; ++k) schedule_now.segment[k] = schedule_segment(1000, 17000 + k, 1000, 1, 2);
        schedule_now.count = most[i].count;
        d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_EXTENDED, 0);
        CHECK_AT(memopt_schedule_bytes(&d, &bytes) == MEMOPT_OK && bytes <= (most[i].count < 500 ? 64u : 340u) << 20, i);
    }
    schedule_ugly_chain(&schedule_now, 128, &random);
    for (i = 0; i < 128; ++i) schedule_now.segment[i].saved_bytes += 100000; /* so that there is something to gain */
    d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_EXTENDED, 64);
    if (!schedule_open(&s, &schedule_now, &d)) return;
    CHECK(schedule_spend(&s, 0, &r) == SCHEDULE_NEVER);
    bytes = r.peak;
    for (i = 0; i <= 20; ++i) {
        const double cost = schedule_spend(&s, bytes + (schedule_full_peak(&schedule_now) - bytes) / 20 * i, &r);
        CHECK_AT(cost <= last && cost < SCHEDULE_NEVER, i);
        last = cost;
    }
    schedule_close(&s);
}

/* -- drawn -- */

static char schedule_text[1 << 20];
/* Draws into schedule_text, and returns its length; 0: it was refused. */
static size_t schedule_draw(const memopt_chain *chain, const memopt_action *actions, size_t count, plot_format format) {
    FILE *file = tmpfile(); size_t length = 0;
    if (!file) exit(1);
    if (schedule_plot(chain, actions, count, format, file) == MEMOPT_OK) {
        rewind(file);
        length = fread(schedule_text, 1, sizeof schedule_text - 1, file);
    } else CHECK(ftell(file) == 0);
    schedule_text[length] = 0;
    fclose(file);
    return length;
}

static size_t schedule_times(const char *text, const char *part) {
    size_t count = 0;
    while ((text = strstr(text, part)) != NULL) { ++count; ++text; }
    return count;
}
/* The input has 9 bytes, an output 4, a saved part 2 more: all others follow. Value 1 is sent away for a while. */
static void schedule_drawn_by_hand(void) {
    static const memopt_action_kind ops[] = { MEMOPT_ACTION_FORWARD, MEMOPT_ACTION_FORWARD, MEMOPT_ACTION_WRITE, MEMOPT_ACTION_WAIT,
        MEMOPT_ACTION_DROP, MEMOPT_ACTION_FORWARD_SAVE, MEMOPT_ACTION_BACKWARD, MEMOPT_ACTION_READ, MEMOPT_ACTION_WAIT,
        MEMOPT_ACTION_FORGET, MEMOPT_ACTION_DROP,
        MEMOPT_ACTION_FORWARD_SAVE, MEMOPT_ACTION_BACKWARD, MEMOPT_ACTION_DROP, MEMOPT_ACTION_FORWARD_SAVE, MEMOPT_ACTION_BACKWARD };
    static const size_t at[] = { 0, 1, 1, 1, 1, 2, 2, 1, 1, 1, 2, 1, 1, 1, 0, 0 };
    static const char want[] =
        "3 segments: peak 19 B, cost 11, 22.2222% above keeping all; 5 forwards, 2 of them again\n\n"
        "  > forward      S forward, saved     r R the same, again   < backward\n"
        "  | output held  # and saved part     ~ sent away only      . nothing\n"
        "  w being sent   b being brought back                       = waited for\n\n"
        "action in 0    bytes alive\n"
        "     0  | >..           13\n"
        "     1  | |>.           17\n"
        "     2  | w|.           17\n"
        "     3  | =|.           17\n"
        "     5  | ~|S           19  peak\n"
        "     6  | ~|<           19\n"
        "     7  | b|.           17\n"
        "     8  | =|.           17\n"
        "    11  | |R.           19\n"
        "    12  | |<.           19\n"
        "    14  | R..           15\n"
        "    15  | <..           15\n";
    static const struct { char layer; int value, first, last; } bars[] = { /* rows, which are lines of the text above */
        { 'c', 1, 2, 8 }, { 'v', 0, 0, 12 }, { 'v', 1, 0, 4 }, { 'v', 1, 6, 10 }, { 'v', 1, 10, 12 }, { 'v', 2, 1, 8 },
        { 'v', 2, 8, 10 }, { 'v', 3, 4, 6 }, { 'p', 3, 4, 6 }, { 'p', 2, 8, 10 }, { 'p', 1, 10, 12 }
    };
    memopt_action list[16]; memopt_chain chain; size_t i; const size_t n = sizeof ops / sizeof ops[0];
    schedule_equal(&schedule_now, 3, schedule_segment(4, 6, 0, 1, 2), 9);
    chain = schedule_chain(&schedule_now);
    for (i = 0; i < n; ++i) list[i] = schedule_do(ops[i], at[i]);
    CHECK(schedule_draw(&chain, list, n, PLOT_TEXT) == strlen(schedule_text) && !strcmp(schedule_text, want));
    CHECK(schedule_draw(&chain, list, n, PLOT_SVG) > 0);
    for (i = 0; i < sizeof bars / sizeof bars[0]; ++i) { /* columns and rows of 10, a bar is 8 wide */
        char bar[96];
        snprintf(bar, sizeof bar, "<rect class=\"%c\" x=\"%d\" y=\"%d\" width=\"8\" height=\"%d\"/>", bars[i].layer,
                 10 * bars[i].value + 1, 10 * bars[i].first, 10 * (bars[i].last - bars[i].first));
        CHECK_AT(strstr(schedule_text, bar) != NULL, i);
    }
    CHECK(schedule_times(schedule_text, " width=\"8\"") == sizeof bars / sizeof bars[0]);
}
static void schedule_costs_as_text(void) { /* real numbers in the header's texts, to six digits */
    static const struct { double cost; const char *text; } known[] = {
        { 0, "0" }, { 0.5, "0.5" }, { 2.25, "2.25" }, { 123.4567, "123.457" }, { 0.001, "0.001" }, { 999.9996, "1000" },
        { 0.000125, "0.000125" }, { 0.0000125, "1.25e-5" }, { 3e-9, "3e-9" }, { 1e20, "1e+20" }, { 123456789, "1.23457e+8" },
        { 2.5e15, "2.5e+15" }, { 0.01, "0.01" }, { -1.5, "-1.5" }
    };
    size_t i; char text[32]; memopt_i_writer o;
    for (i = 0; i < sizeof known / sizeof known[0]; ++i) {
        o = memopt_i_writer_begin(text, sizeof text);
        memopt_i_put_real(&o, known[i].cost);
        CHECK_AT(memopt_i_writer_end(&o, 1, NULL) == MEMOPT_OK && !strcmp(text, known[i].text), i);
    }
    o = memopt_i_writer_begin(text, sizeof text);
    memopt_i_put_real(&o, schedule_number(UINT64_C(0x7FF0000000000000)));
    CHECK(memopt_i_writer_end(&o, 1, NULL) == MEMOPT_OK && !strcmp(text, "infinity"));
}
/* Every tag that opens closes, in order, and nothing but the known ones is there. */
static int schedule_tags_match(const char *text) {
    char open[8][8]; size_t depth = 0, tags = 0;
    while ((text = strchr(text, '<')) != NULL) {
        const int closes = text[1] == '/'; const char *name = text + 1 + closes, *end = strchr(text, '>');
        const size_t length = strcspn(name, " >/");
        if (!end || length >= sizeof open[0]) return 0;
        ++tags;
        if (closes) {
            if (!depth || strlen(open[depth - 1]) != length || memcmp(open[depth - 1], name, length)) return 0;
            --depth;
        } else if (end[-1] != '/') {
            if (depth == 8) return 0;
            memcpy(open[depth], name, length);
            open[depth++][length] = 0;
        }
        text = end;
    }
    return depth == 0 && tags > 20;
}
/* Nothing lies outside of the picture, and the bytes alive reach their right edge where the peak is. */
static int schedule_inside(const char *text, size_t segments) {
    static const char head[] = "<svg xmlns=\"http://www.w3.org/2000/svg\"";
    unsigned long width = 0, height = 0, x, y, w, h, left; size_t places = 0; double scale;
    const char *at = text, *scaled = strstr(text, "<g ");
    if (strncmp(text, head, sizeof head - 1)) return 0;
    if (sscanf(text + sizeof head - 1, " width=\"%lu\" height=\"%lu\"", &width, &height) != 2) return 0;
    for (; (at = strstr(at, " x=\"")) != NULL && at < scaled; ++at, ++places) {
        const int numbers = sscanf(at, " x=\"%lu\" y=\"%lu\" width=\"%lu\" height=\"%lu\"", &x, &y, &w, &h);
        if (numbers < 2 || x > width || y > height || (numbers == 4 && (x + w > width || y + h > height))) return 0;
    }
    at = strstr(scaled + 1, "<g transform=\"translate(");
    if (!at || sscanf(at, "<g transform=\"translate(%lu %lu)", &x, &y) != 2 || x + 200 > width) return 0;
    if (sscanf(scaled, "<g transform=\"translate(%lu %lu) scale(%lf ", &left, &y, &scale) != 3) return 0;
    if ((double)left + scale * 10 * (double)(segments + 1) > (double)x) return 0; /* the bytes are beside the columns */
    return places > 20 && strstr(at, "H2000V") != NULL && !strstr(at, "H2001");
}
/* Numbers beside a picture: the least of 1, 2, 5, 10, 20, 50 ... that leaves twelve at most. */
static void schedule_drawn_numbers(void) {
    static const size_t steps[] = { 1, 2, 5, 10, 20, 50, 100, 200, 500 };
    size_t count, i;
    for (count = 1; count < 6000; ++count) {
        for (i = 0; count / steps[i] > 12; ++i) {}
        CHECK_AT(plot_stride(count) == steps[i], count);
    }
    CHECK(plot_stride(25) == 2 && plot_stride(26) == 5 && plot_stride(64) == 5);
    CHECK(plot_stride(65) == 10 && plot_stride(129) == 10 && plot_stride(130) == 20);
}
static void schedule_drawn(void) { /* both formats, of chains of any length */
    static const size_t counts[] = { 1, 2, 9, 24, 100 };
    size_t i, k, n; int format;
    for (i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
        memopt_chain chain; memopt_schedule_result r = { 0, 0, 0, 0, 0, 0 }; size_t marks = 0, lines; char head[64];
        static const char *const marks_of[] = {
            "rect class=\"f\"", "rect class=\"s\"", "rect class=\"g\"", "rect class=\"r\"", "rect class=\"b\""
        };
        schedule_equal(&schedule_now, counts[i], schedule_segment(1000, 3000, 1000, 0.5, 1), 1000);
        chain = schedule_chain(&schedule_now);
        n = schedule_book(&schedule_now, MEMOPT_SCHEDULE_EVERY, 3, &r);
        for (format = PLOT_TEXT; format <= PLOT_SVG; ++format) {
            const size_t length = schedule_draw(&chain, schedule_action, n, (plot_format)format);
            CHECK_AT(length > 100 && length + 1 < sizeof schedule_text && length == strlen(schedule_text), i);
            snprintf(head, sizeof head, "%d segment%s: peak ", (int)counts[i], counts[i] == 1 ? "" : "s");
            CHECK_AT(strstr(schedule_text, head) != NULL, i);
            if (format == PLOT_TEXT) { /* a line for each forward and backward, and 8 above */
                lines = schedule_times(schedule_text, "\n");
                if (counts[i] == 24) CHECK(strstr(schedule_text, "\naction in 0         10        20    bytes alive\n") != NULL);
                CHECK_AT(lines == 7 + r.forwards + counts[i] && schedule_times(schedule_text, "  peak\n") == 1, i);
                continue;
            }
            for (k = 0; k < 5; ++k) marks += schedule_times(schedule_text, marks_of[k]) - 1;
            /* one of each more in the legend */
            CHECK_AT(schedule_tags_match(schedule_text) && marks == r.forwards + counts[i], i);
            CHECK_AT(schedule_inside(schedule_text, counts[i]), i);
        }
    }
}
static void schedule_not_drawn(void) {
    memopt_schedule_desc d = schedule_good(); memopt_action list[8]; size_t count = 0; FILE *file = tmpfile();
    if (!file) exit(1);
    CHECK(memopt_schedule_textbook(&d.chain, MEMOPT_SCHEDULE_ALL, 0, list, 8, &count) == MEMOPT_OK);
    CHECK(schedule_plot(&d.chain, list, count - 1, PLOT_SVG, file) == MEMOPT_ERR_STATE);
    CHECK(schedule_plot(&d.chain, NULL, 0, PLOT_TEXT, file) == MEMOPT_ERR_STATE);
    CHECK(schedule_plot(&d.chain, NULL, 1, PLOT_TEXT, file) == MEMOPT_ERR_ARGUMENT);
    CHECK(schedule_plot(NULL, list, count, PLOT_TEXT, file) == MEMOPT_ERR_ARGUMENT);
    CHECK(schedule_plot(&d.chain, list, count, PLOT_TEXT, NULL) == MEMOPT_ERR_ARGUMENT);
#ifndef __cplusplus
    CHECK(schedule_plot(&d.chain, list, count, (plot_format)2, file) == MEMOPT_ERR_ARGUMENT);
#endif
    CHECK(ftell(file) == 0);
    fclose(file);
}
/* -- What a refusal says -- */

static int schedule_says(memopt_error e, memopt_status status, const char *text) {
    char line[200];
    if (memopt_error_text(&e, line, sizeof line, NULL) != MEMOPT_OK) return 0;
    if (e.status == status && !strcmp(line, text)) return 1;
    printf("%d: %s\n", (int)e.status, line);
    return 0;
}
/* "F0 S1 B1": Forward, Save, Backward, Drop, Write, Read, waiT, forGet, ? is none of them. */
static size_t schedule_spelled(const char *text, memopt_action *list) {
    static const char letters[] = "FSBDWRTG?"; size_t count = 0;
    for (; *text; ++text) {
        if (*text == ' ') continue;
        list[count].op = (uint16_t)(strchr(letters, text[0]) - letters); list[count].index = (uint16_t)(text[1] - '0');
        ++count; ++text;
    }
    return count;
}
static const char *const schedule_refused[][2] = { /* of three segments, with one place elsewhere */
    { "B0", "action 0: the backward of the segment behind it is not done" },
    { "F1", "action 0: its input is not held" },
    { "F0 F1 F2 D2 S2", "action 4: its input is not held" },
    { "F0 F0", "action 1: its output is held already" },
    { "S0 W1 T1 D1 F0", "action 4: it is saved already" },
    { "S0 S1 S2 B2 F2", "action 4: its backward is done" },
    { "S0 S1 S2 B2 B2", "action 4: its backward is done" },
    { "F0 F1 F2 B2", "action 3: it is not saved" },
    { "F0 W1 T1 D1 R1 F1", "action 5: its input is still being read" },
    { "F0 S1 S2 W2 T2 D2 B2", "action 6: its input is not held" },
    { "F0 F1 S2 W2 T2 D2 R2 B2", "action 7: its input is still being read" },
    { "F0 F1 S2 W3 B2", "action 4: its output is still being written" },
    { "F0 F1 S2 W3 T3 B2", "action 5: the copy of its output is not forgotten" },
    { "F0 F1 S2 W3 T3 D3 B2", "action 6: its output is not held" },
    { "F0 F1 S2 W3 T3 D3 R3 B2", "action 7: its output is still being read" },
    { "F0 D2", "action 1: it is not held" },
    { "D0", "action 0: nothing would be left of the input" },
    { "W0 T0 D0 G0", "action 3: nothing would be left of the input" },
    { "S0 D1", "action 1: its segment is saved, and nothing would be left of it" },
    { "F0 W1 D1", "action 2: its last transfer was not waited for" },
    { "F0 W1 G1", "action 2: its last transfer was not waited for" },
    { "F0 W1 W1", "action 2: its last transfer was not waited for" },
    { "F0 W1 T1 W1", "action 3: it has a copy in the offload store already" },
    { "F0 F1 W1 T1 W2", "action 4: the offload store is full" },
    { "W1", "action 0: it is not held" },
    { "R1", "action 0: it has no copy in the offload store" },
    { "F0 W1 T1 R1", "action 3: it is held already" },
    { "T0", "action 0: no transfer of it has begun" },
    { "F0 G1", "action 1: it has no copy in the offload store" },
    { "F0 F1 S2 B2 F3", "action 4: there is no such segment" },
    { "D4", "action 0: there is no such value" },
    { "F0 ?0", "action 1: there is no such operation" },
    { "", "segment 2: its backward is missing at the end" },
    { "F0 F1 S2 B2", "segment 1: its backward is missing at the end" },
    { "W0 T0 S0 S1 S2 B2 B1 B0", "value 0: its copy is not forgotten at the end" },
    { "W0 S0 S1 S2 B2 B1 B0", "value 0: its last transfer was not waited for" },
};
static void schedule_refusals_of_actions(void) {
    memopt_offload one = { 1, 0, 0, 0, 0, 0 }; memopt_schedule_result r; memopt_error e, before; size_t i, count;
    memopt_status s; memopt_chain c;
    schedule_equal(&schedule_now, 3, schedule_segment(8, 16, 8, 1, 2), 8);
    memset(&before, 0x5A, sizeof before);
    for (i = 0; i < sizeof schedule_refused / sizeof *schedule_refused; ++i) {
        c = schedule_chain(&schedule_now);
        c.error = &e; e = before;
        count = schedule_spelled(schedule_refused[i][0], schedule_list);
        s = memopt_schedule_simulate(&c, &one, schedule_list, count, NULL, &r);
        CHECK_AT(s == MEMOPT_ERR_STATE && schedule_says(e, s, schedule_refused[i][1]), i);
        CHECK_AT(e.place && (!strcmp(e.place, "action") ? r.at == e.index : r.at == count), i);
    }
    c = schedule_chain(&schedule_now); c.error = &e; e = before;
    count = schedule_spelled("W0", schedule_list);
    s = memopt_schedule_simulate(&c, NULL, schedule_list, count, NULL, NULL);
    CHECK(s == MEMOPT_ERR_STATE && schedule_says(e, s, "action 0: there is no offload store"));
    e = before; /* success does not write it, and nobody need want it */
    count = schedule_spelled("S0 S1 S2 B2 B1 B0", schedule_list);
    CHECK(memopt_schedule_simulate(&c, NULL, schedule_list, count, NULL, NULL) == MEMOPT_OK
        && !memcmp(&e, &before, sizeof e));
    c.error = NULL;
    CHECK(memopt_schedule_simulate(&c, NULL, schedule_list, 2, NULL, NULL) == MEMOPT_ERR_STATE);
}
static const char *schedule_break_desc(memopt_schedule_desc *d, int i) { /* returns the text */
    const double nan = schedule_number(UINT64_C(0x7FF8000000000000));
    schedule_equal(&schedule_now, 3, schedule_segment(8, 16, 8, 1, 2), 8);
    *d = schedule_desc(&schedule_now, MEMOPT_SCHEDULE_EXTENDED, 100);
    switch (i) {
    case 0: d->chain.count = 0; return "count 0, at least 1";
    case 1: d->chain.count = 5000; return "count 5000, at most 4096";
    case 2: d->chain.segments = NULL; return "segments is NULL";
    case 3: d->chain.skip_count = 1; d->chain.skips = NULL; return "skips is NULL, and skip_count is not 0";
    case 4: schedule_now.segment[2].saved_bytes = 7; return "segment 2: saved_bytes 7, at least output_bytes 8";
    case 5: schedule_now.segment[1].backward_cost = nan; return "segment 1: backward_cost NaN, finite and at least 0";
    case 6: schedule_now.segment[0].forward_cost = -3; return "segment 0: forward_cost -3, finite and at least 0";
    case 7: schedule_now.segment[0].forward_cost = 1e308; schedule_now.segment[1].forward_cost = 1e308;
        return "the costs do not fit a double when summed";
    case 8: schedule_now.segment[0].backward_scratch = SIZE_MAX; return "the sizes do not fit size_t when summed";
    case 9: schedule_now.skip[0] = schedule_skip(0, 3, 1, 1); d->chain.skips = schedule_now.skip; d->chain.skip_count = 1;
        return "skip 0: to 3, below count 3";
    case 10: schedule_now.skip[0] = schedule_skip(2, 1, 1, 1); d->chain.skips = schedule_now.skip; d->chain.skip_count = 1;
        return "skip 0: from 2, below to 1";
    case 11: d->rule = MEMOPT_SCHEDULE_ALL; return "not a rule that is solved for: EXTENDED, ROTOR, REVOLVE";
    case 12: d->offload.slots = 1; d->offload.write_cost = nan; return "write_cost NaN, finite and at least 0";
    case 13: d->offload.slots = 1; d->offload.read_cost = -1; return "read_cost -1, finite and at least 0";
    case 14: d->offload.write_byte_cost = -1; return "write_byte_cost -1, finite and at least 0";
    case 15: d->offload.read_byte_cost = -1; return "read_byte_cost -1, finite and at least 0";
    case 16: d->slots = 1; return "slots 1, at least 16";
    case 17: d->slots = 65536; return "slots 65536, at most 65535";
    default: return NULL;
    }
}
static void schedule_table_too_large(void) { /* the largest chain in the most slots: of 64 bits it fits */
    static memopt_segment many[MEMOPT_CHAIN_MAX];
    memopt_schedule_desc d; const memopt_schedule *out = NULL; memopt_error e; size_t bytes = 99, i;
    memset(&d, 0, sizeof d);
    for (i = 0; i < MEMOPT_CHAIN_MAX; ++i) { many[i].output_bytes = many[i].saved_bytes = 64; many[i].forward_cost = 1 + (double)i; }
    d.chain.segments = many; d.chain.count = MEMOPT_CHAIN_MAX; d.slots = 65535; d.error = &e;
    if (sizeof(size_t) > 4) { CHECK(memopt_schedule_bytes(&d, &bytes) == MEMOPT_OK && bytes > UINT32_MAX); return; }
    CHECK(memopt_schedule_bytes(&d, &bytes) == MEMOPT_ERR_OVERFLOW && bytes == 99);
    CHECK(schedule_says(e, MEMOPT_ERR_OVERFLOW, "the table does not fit size_t"));
    CHECK(memopt_schedule_solve(&d, schedule_memory, REFUSED_BYTES, &out) == MEMOPT_ERR_OVERFLOW && !out);
    CHECK(schedule_says(e, MEMOPT_ERR_OVERFLOW, "the table does not fit size_t"));
}
static void schedule_refusals(void) {
    memopt_schedule_desc d; const memopt_schedule *out = NULL; memopt_error e, before; memopt_status s; const char *text;
    size_t bytes = 99, count = 99; int i; char line[64]; size_t live[100]; memopt_host half; schedule_solved solved;
    memopt_schedule_result r; memopt_chain c; memopt_schedule_point points[8];
    memset(&half, 0, sizeof half); half.allocator.alloc_fn = test_alloc;
    memset(&before, 0x5A, sizeof before);
    for (i = 0; (text = schedule_break_desc(&d, i)) != NULL; ++i) {
        const int chains = i < 11, overflow = i == 7 || i == 8;
        const memopt_status want = overflow ? MEMOPT_ERR_OVERFLOW : MEMOPT_ERR_ARGUMENT;
        e = before; d.error = &e;
        s = memopt_schedule_bytes(&d, &bytes);
        CHECK_AT(s == want && bytes == 99 && schedule_says(e, s, text), i);
        e = before;
        s = memopt_schedule_solve(&d, schedule_memory, REFUSED_BYTES, &out);
        CHECK_AT(s == want && !out && schedule_says(e, s, text), i);
        e = before; d.error = NULL; d.chain.error = &e;
        s = memopt_schedule_bytes(&d, &bytes);
        CHECK_AT(s == want && schedule_says(e, s, text), i);
        if (!chains) continue;
        e = before;
        s = memopt_schedule_simulate(&d.chain, NULL, NULL, 0, NULL, NULL);
        CHECK_AT(s == want && schedule_says(e, s, text), i);
        e = before;
        s = memopt_schedule_textbook(&d.chain, MEMOPT_SCHEDULE_ALL, 0, schedule_list, 100, &count);
        CHECK_AT(s == want && count == 99 && schedule_says(e, s, text), i);
        e = before;
        s = memopt_schedule_live(&d.chain, NULL, schedule_list, 0, NULL, NULL);
        CHECK_AT(s == want && schedule_says(e, s, text), i);
    }
    CHECK(i == 18);
    e = before; d.error = &e;
    CHECK(memopt_schedule_bytes(&d, &bytes) == MEMOPT_OK && !memcmp(&e, &before, sizeof e));
    s = memopt_schedule_bytes(&d, NULL);
    CHECK(s == MEMOPT_ERR_ARGUMENT && schedule_says(e, s, "bytes is NULL"));
    s = memopt_schedule_solve(&d, NULL, bytes, &out);
    CHECK(s == MEMOPT_ERR_ARGUMENT && schedule_says(e, s, "memory is NULL"));
    s = memopt_schedule_solve(&d, schedule_memory, bytes, NULL);
    CHECK(s == MEMOPT_ERR_ARGUMENT && schedule_says(e, s, "out is NULL"));
    s = memopt_schedule_solve(&d, (unsigned char *)schedule_memory + 8, bytes, &out);
    CHECK(s == MEMOPT_ERR_ARGUMENT && schedule_says(e, s, "memory is not aligned to 64"));
    s = memopt_schedule_solve(&d, schedule_memory, bytes - 1, &out);
    (void)snprintf(line, sizeof line, "bytes %u, at least %u", (unsigned)bytes - 1, (unsigned)bytes);
    CHECK(s == MEMOPT_ERR_BUFFER && schedule_says(e, s, line) && !out);

    if (!schedule_open(&solved, &schedule_now, &d)) return; /* asking */
    s = memopt_schedule_frontier(solved.schedule, NULL, 1, &count);
    CHECK(s == MEMOPT_ERR_ARGUMENT && schedule_says(e, s, "points is NULL, and capacity is not 0"));
    s = memopt_schedule_frontier(solved.schedule, points, 8, NULL);
    CHECK(s == MEMOPT_ERR_ARGUMENT && schedule_says(e, s, "count is NULL"));
    CHECK(memopt_schedule_frontier(solved.schedule, points, 8, &count) == MEMOPT_OK && count > 1);
    s = memopt_schedule_frontier(solved.schedule, points, 1, &count);
    (void)snprintf(line, sizeof line, "capacity 1, at least %u", (unsigned)count);
    CHECK(s == MEMOPT_ERR_BUFFER && schedule_says(e, s, line));
    s = memopt_schedule_for_budget(solved.schedule, 1000, NULL, 5, NULL, NULL);
    CHECK(s == MEMOPT_ERR_ARGUMENT && schedule_says(e, s, "actions is NULL, and capacity is not 0"));
    s = memopt_schedule_for_budget(solved.schedule, 1000, schedule_list, 5, NULL, NULL);
    CHECK(s == MEMOPT_ERR_BUFFER && schedule_says(e, s, "capacity 5, at least 6"));
    s = memopt_schedule_for_budget(solved.schedule, 20, schedule_list, 100, NULL, &r);
    (void)snprintf(line, sizeof line, "budget 20, least %u", (unsigned)points[0].peak);
    CHECK(s == MEMOPT_ERR_MEMORY && r.peak == points[0].peak && schedule_says(e, s, line));
    s = memopt_schedule_for_budget(solved.schedule, 1000, schedule_list, 100, &half, NULL);
    CHECK(s == MEMOPT_ERR_ARGUMENT && schedule_says(e, s, "the host is half set: a table has some of its functions"));
    s = memopt_schedule_for_overhead(solved.schedule, 1, NULL, 5, NULL, NULL);
    CHECK(s == MEMOPT_ERR_ARGUMENT && schedule_says(e, s, "actions is NULL, and capacity is not 0"));
    s = memopt_schedule_for_overhead(solved.schedule, -0.1, schedule_list, 5, NULL, NULL);
    CHECK(s == MEMOPT_ERR_ARGUMENT && schedule_says(e, s, "overhead -0.1, finite and at least 0"));
    schedule_close(&solved);
    d.rule = MEMOPT_SCHEDULE_REVOLVE; /* each segment but the last is run again before its backward: 2 of 9 */
    if (!schedule_open(&solved, &schedule_now, &d)) return;
    s = memopt_schedule_for_overhead(solved.schedule, 0.1, schedule_list, 100, NULL, NULL);
    CHECK(s == MEMOPT_ERR_STATE && schedule_says(e, s, "overhead 0.1, least 0.222222"));
    schedule_close(&solved);
    d.max_budget = 1;
    if (!schedule_open(&solved, &schedule_now, &d)) return;
    s = memopt_schedule_for_overhead(solved.schedule, 0.1, schedule_list, 100, NULL, NULL);
    CHECK(s == MEMOPT_ERR_STATE && schedule_says(e, s, "no schedule of this rule is within max_budget"));
    s = memopt_schedule_for_budget(solved.schedule, 20, schedule_list, 100, NULL, &r);
    CHECK(s == MEMOPT_ERR_MEMORY && r.peak == SIZE_MAX && schedule_says(e, s, "no schedule of this rule is within max_budget"));
    schedule_close(&solved);
    d.max_budget = 0;

    c = schedule_chain(&schedule_now); c.error = &e;
    s = memopt_schedule_simulate(&c, NULL, NULL, 1, NULL, NULL);
    CHECK(s == MEMOPT_ERR_ARGUMENT && schedule_says(e, s, "actions is NULL, and count is not 0"));
    s = memopt_schedule_simulate(&c, NULL, NULL, 0, &half, NULL);
    CHECK(s == MEMOPT_ERR_ARGUMENT && schedule_says(e, s, "the host is half set: a table has some of its functions"));
    d.offload.slots = 1; d.offload.read_cost = -1;
    s = memopt_schedule_simulate(&c, &d.offload, NULL, 0, NULL, NULL);
    CHECK(s == MEMOPT_ERR_ARGUMENT && schedule_says(e, s, "read_cost -1, finite and at least 0"));
    s = memopt_schedule_textbook(&c, MEMOPT_SCHEDULE_ALL, 0, schedule_list, 100, NULL);
    CHECK(s == MEMOPT_ERR_ARGUMENT && schedule_says(e, s, "count is NULL"));
    s = memopt_schedule_textbook(&c, MEMOPT_SCHEDULE_ALL, 0, NULL, 100, &count);
    CHECK(s == MEMOPT_ERR_ARGUMENT && schedule_says(e, s, "actions is NULL, and capacity is not 0"));
    s = memopt_schedule_textbook(&c, MEMOPT_SCHEDULE_EVERY, 0, schedule_list, 100, &count);
    CHECK(s == MEMOPT_ERR_ARGUMENT && schedule_says(e, s, "every 0, at least 1"));
    s = memopt_schedule_textbook(&c, MEMOPT_SCHEDULE_ROTOR, 0, schedule_list, 100, &count);
    CHECK(s == MEMOPT_ERR_ARGUMENT && schedule_says(e, s, "not a rule of the textbook: ALL, NONE, EVERY, SQRT"));
    s = memopt_schedule_textbook(&c, MEMOPT_SCHEDULE_ALL, 0, schedule_list, 4, &count);
    CHECK(s == MEMOPT_ERR_BUFFER && count == 6 && schedule_says(e, s, "capacity 4, at least 6"));
    e = before;
    CHECK(memopt_schedule_textbook(&c, MEMOPT_SCHEDULE_ALL, 0, schedule_list, 6, &count) == MEMOPT_OK
        && !memcmp(&e, &before, sizeof e));
    s = memopt_schedule_live(&c, NULL, schedule_list, 6, NULL, NULL);
    CHECK(s == MEMOPT_ERR_ARGUMENT && schedule_says(e, s, "live is NULL"));
    s = memopt_schedule_live(&c, NULL, schedule_list, 3, NULL, live);
    CHECK(s == MEMOPT_ERR_STATE && schedule_says(e, s, "segment 2: its backward is missing at the end"));
}
/* Each allocation fails in turn: the error says that it was memory, and how much was asked for. */
static void schedule_refusals_of_memory(void) {
    static const char *const texts[2] = {
        "no memory to go through the schedule: asked 1.5 KiB", "no memory for two lists of actions: asked 1.5 KiB"
    };
    memopt_schedule_desc d; memopt_error e; test_faults f; memopt_host h; size_t n, kind, count, k, seen[2] = { 0, 0 }, live[100];
    schedule_solved solved;
    memset(&f, 0, sizeof f);
    h = test_host(&f);
    (void)schedule_break_desc(&d, 99);
    d.offload.slots = 1; d.offload.overlap = 1; d.error = &e;
    if (!schedule_open(&solved, &schedule_now, &d)) return;
    d.chain.error = &e;
    count = schedule_spelled("S0 S1 S2 B2 B1 B0", schedule_list);
    for (kind = 0; kind < 3; ++kind)
        for (n = 1; n < 200; ++n) {
            memopt_status s;
            memset(&e, 0, sizeof e);
            f.calls = 0; f.fail_on = n;
            s = kind == 0 ? memopt_schedule_simulate(&d.chain, NULL, schedule_list, count, &h, NULL)
              : kind == 1 ? memopt_schedule_live(&d.chain, NULL, schedule_list, count, &h, live)
              : memopt_schedule_for_budget(solved.schedule, 1000, schedule_list + 100, 100, &h, NULL);
            CHECK_AT(!f.live_blocks, n);
            if (f.calls < n) { CHECK_AT(s == MEMOPT_OK, n); break; }
            if (!s) continue; /* the schedule without what memory would have given */
            CHECK_AT(s == MEMOPT_ERR_MEMORY && e.got.count > 0, n);
            e.got.count = 1536;
            for (k = 0; k < 1 && strncmp(e.reason, texts[k], strlen(e.reason)) != 0;) ++k;
            CHECK_AT(schedule_says(e, s, texts[k]), n);
            ++seen[k];
        }
    CHECK(n > 1 && n < 200 && seen[0] >= 2 && seen[1] == 1);
    h.allocator.free_fn = NULL;
    CHECK(memopt_schedule_for_budget(solved.schedule, 1000, schedule_list, 100, &h, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(schedule_says(e, MEMOPT_ERR_ARGUMENT, "the host is half set: a table has some of its functions"));
    schedule_close(&solved);
}
static void test_schedule(void) {
    RUN(schedule_revolve_is_exact);
    RUN(schedule_revolve_extremes);
    RUN(schedule_book_by_formula);
    RUN(schedule_book_sqrt);
    RUN(schedule_book_of_the_table);
    RUN(schedule_walk_agrees);
    RUN(schedule_walk_by_hand);
    RUN(schedule_skips_by_hand);
    RUN(schedule_transfers_by_hand);
    RUN(schedule_judges_are_right);
    RUN(schedule_solves_the_vectors);
    RUN(schedule_solves_gpt);
    RUN(schedule_solves_random_chains);
    RUN(schedule_is_monotone);
    RUN(schedule_skips_are_solved);
    RUN(schedule_u_shape);
    RUN(schedule_levels_are_right);
    RUN(schedule_solves_two_levels);
    RUN(schedule_solves_revolve);
    RUN(schedule_rows_of_transfers);
    RUN(schedule_transfers_overlap);
    RUN(schedule_repeats_change_nothing);
    RUN(schedule_repeats_counted);
    RUN(schedule_up_to);
    schedule_memory = memopt_i_system_alloc(NULL, REFUSED_BYTES, 64);
    if (schedule_memory) {
        memset(schedule_memory, 0xA5, REFUSED_BYTES);
        RUN(schedule_bad_chains);
        RUN(schedule_bytes_that_wrap);
        RUN(schedule_bad_solve);
    RUN(schedule_refusals_of_actions);
    RUN(schedule_refusals);
    RUN(schedule_table_too_large);
    RUN(schedule_refusals_of_memory);
        memopt_i_system_free(NULL, schedule_memory, REFUSED_BYTES, 64);
    }
    RUN(schedule_drawn_by_hand);
    RUN(schedule_costs_as_text);
    RUN(schedule_drawn_numbers);
    RUN(schedule_drawn);
    RUN(schedule_not_drawn);
    RUN(schedule_bad_asking);
    RUN(schedule_bad_lists);
    RUN(schedule_host_fails);
    RUN(schedule_odd_chains);
    RUN(schedule_dear_transfers);
    RUN(schedule_coarse);
    RUN(schedule_huge);
    RUN(schedule_sizes);
}
#ifndef TEST_COMBINED
int main(void) { test_schedule(); return test_totals(); }
#endif
