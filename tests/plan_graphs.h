/* plan_graphs.h - instances for the planner, made from a seed: large graphs, and small ones that are hard.

   plan_graph_make    an unrolled recurrent network: steps of short buffers forward, the same mirrored backward, and one
                      buffer in so many kept to the end. The lower bound can nearly be reached, by those who see that
                      the few long lives belong below the many short ones.
   plan_puzzle_make   a full rectangle of time and memory, cut into boxes: no byte to spare, and few ways to lay it. */
#ifndef PLAN_GRAPHS_H
#define PLAN_GRAPHS_H
#include <string.h>

typedef struct plan_graph {
    size_t steps, buffers; /* so many buffers each step; twice as many items as forward has buffers */
    size_t kept_every;     /* of so many forward buffers one lives to the end; 0: none */
    int mix;               /* of sizes: 0 even, 1 powers of two, 2 three sizes, 3 any number of bytes, mostly few */
    int saved;             /* 1: the first buffer of a step lives until its mirror image dies */
    int tied;              /* 1: all buffers of a step are born together */
    int shuffled;
    uint64_t seed;
} plan_graph;

static inline uint64_t plan_graph_bits(uint64_t *state) { /* splitmix64 */
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline size_t plan_graph_below(uint64_t *state, size_t n) { return (size_t)(plan_graph_bits(state) % n); }

static inline size_t plan_graph_size(uint64_t *state, int mix) {
    static const size_t three[3] = { 512, 4096, 16384 };

    switch (mix) {
    case 0:  return 64 * (1 + plan_graph_below(state, 200));
    case 1:  return (size_t)64 << plan_graph_below(state, 10);
    case 2:  return three[plan_graph_below(state, 3)];
    default: return 1 + plan_graph_below(state, (size_t)64 << plan_graph_below(state, 9));
    }
}

static inline void plan_graph_shuffle(memopt_plan_item *items, size_t count, uint64_t *state) {
    size_t i;

    for (i = count; i > 1; --i) {
        const size_t k = plan_graph_below(state, i);
        const memopt_plan_item t = items[i - 1];

        items[i - 1] = items[k];
        items[k] = t;
    }
}

static inline size_t plan_graph_count(const plan_graph *g) { return 2 * g->steps * g->buffers; }

/* `items` has room for plan_graph_count(g), and as many are made. */
static inline void plan_graph_make(const plan_graph *g, memopt_plan_item *items) {
    const size_t forward = g->steps * g->buffers, end = 2 * forward + 2 * g->buffers;
    size_t i, until;
    uint64_t state = g->seed;

    memset(items, 0, 2 * forward * sizeof *items);
    for (i = 0; i < forward; ++i) {
        memopt_plan_item *t = &items[i], *back = &items[2 * forward - 1 - i];

        t->first = g->tied ? i / g->buffers * g->buffers : i;
        until = i + 1 + plan_graph_below(&state, g->buffers);
        t->last = until;
        t->size = plan_graph_size(&state, g->mix);
        back->first = end - until;
        back->last = end - t->first;
        back->size = plan_graph_size(&state, g->mix);
        if (g->saved && i % g->buffers == 0) t->last = back->last;
        if (g->kept_every && plan_graph_below(&state, g->kept_every) == 0) t->last = end;
    }
    if (g->shuffled) plan_graph_shuffle(items, 2 * forward, &state);
}

/* Boxes that fill a rectangle 1 MiB high without a gap: it is cut again and again, straight or into a pinwheel of five
   that no straight cut makes. Births and deaths fall on few moments. Then `dropped` of them go. */
typedef struct plan_puzzle {
    size_t count;   /* about so many, at most PLAN_PUZZLE_MOST */
    size_t moments; /* of birth and death */
    size_t dropped;
    uint64_t seed;
} plan_puzzle;

enum { PLAN_PUZZLE_MOST = 1024, PLAN_PUZZLE_ROWS = 1024 };
typedef struct plan_piece { size_t t0, t1, m0, m1; } plan_piece;

static inline size_t plan_puzzle_pinwheel(plan_piece *piece, size_t count, size_t i, uint64_t *state) {
    const plan_piece r = piece[i];
    const size_t x1 = r.t0 + 1 + plan_graph_below(state, r.t1 - r.t0 - 2);
    const size_t x2 = x1 + 1 + plan_graph_below(state, r.t1 - x1 - 1);
    const size_t y1 = r.m0 + 1 + plan_graph_below(state, r.m1 - r.m0 - 2);
    const size_t y2 = y1 + 1 + plan_graph_below(state, r.m1 - y1 - 1);
    size_t k;

    for (k = 0; k < 4; ++k) piece[count + k] = r;
    piece[i].t1 = x2;         piece[i].m1 = y1;
    piece[count].t0 = x2;     piece[count].m1 = y2;
    piece[count + 1].t0 = x1; piece[count + 1].m0 = y2;
    piece[count + 2].t1 = x1; piece[count + 2].m0 = y1;
    piece[count + 3].t0 = x1; piece[count + 3].t1 = x2; piece[count + 3].m0 = y1; piece[count + 3].m1 = y2;
    return count + 4;
}

/* `items` has room for p->count + 4. How many were made. */
static inline size_t plan_puzzle_make(const plan_puzzle *p, memopt_plan_item *items) {
    static plan_piece piece[PLAN_PUZZLE_MOST + 8];
    uint64_t state = p->seed;
    size_t count = 1, i, k, tries, rounds;

    piece[0].t0 = 0; piece[0].t1 = p->moments;
    piece[0].m0 = 0; piece[0].m1 = PLAN_PUZZLE_ROWS;
    for (rounds = 0; count < p->count && rounds < 100 * p->count; ++rounds) {
        plan_piece r;

        for (i = plan_graph_below(&state, count), tries = 0; tries < 2; ++tries) { /* the larger ones sooner */
            k = plan_graph_below(&state, count);
            if ((piece[k].t1 - piece[k].t0) * (piece[k].m1 - piece[k].m0)
                > (piece[i].t1 - piece[i].t0) * (piece[i].m1 - piece[i].m0)) i = k;
        }
        r = piece[i];
        if (r.t1 - r.t0 > 3 && r.m1 - r.m0 > 3 && plan_graph_below(&state, 4) == 0) {
            count = plan_puzzle_pinwheel(piece, count, i, &state);
        } else if (plan_graph_bits(&state) & 1) {
            if (r.t1 - r.t0 < 2) continue;
            piece[count] = r;
            piece[i].t1 = piece[count].t0 = r.t0 + 1 + plan_graph_below(&state, r.t1 - r.t0 - 1);
            ++count;
        } else {
            if (r.m1 - r.m0 < 2) continue;
            piece[count] = r;
            piece[i].m1 = piece[count].m0 = r.m0 + 1 + plan_graph_below(&state, r.m1 - r.m0 - 1);
            ++count;
        }
    }
    memset(items, 0, count * sizeof *items);
    for (i = 0; i < count; ++i) {
        items[i].first = piece[i].t0;
        items[i].last = piece[i].t1;
        items[i].size = 1024 * (piece[i].m1 - piece[i].m0);
    }
    plan_graph_shuffle(items, count, &state);
    return count - (p->dropped < count ? p->dropped : 0);
}

#endif
