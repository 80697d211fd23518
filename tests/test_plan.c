/* test_plan.c - plans checked by an independent validator and, where they are small, against the exhaustive optimum;
   larger ones are cut out of a full rectangle, so that the optimum is known. Hand-computed ones, hostile ones, failing
   allocators and clocks; the reader of the tables in plan_csv.h. */
#include "test.h"
#include "plan_csv.h"
#include "plan_graphs.h"

enum { PLAN_MOST = 1024 };
static memopt_plan_item plan_item[PLAN_MOST], plan_before[PLAN_MOST];

static memopt_plan_item plan_make(size_t first, size_t last, size_t size) {
    memopt_plan_item t;
    memset(&t, 0, sizeof t);
    t.first = first; t.last = last; t.size = size;
    return t;
}
static int plan_may_share(const memopt_plan_item *items, size_t i, size_t k) {
    return items[i].in_place_of == k + 1 || items[k].in_place_of == i + 1;
}
/* Two items alive at some common moment: the later birth is before the earlier death. */
static int plan_together(const memopt_plan_item *a, const memopt_plan_item *b) {
    const size_t birth = a->first > b->first ? a->first : b->first, death = a->last < b->last ? a->last : b->last;
    return birth < death;
}
static int plan_apart(const memopt_plan_item *a, const memopt_plan_item *b) { /* in memory */
    return a->offset < b->offset ? b->offset - a->offset >= a->size : a->offset - b->offset >= b->size;
}
/* Valid by the definition; nothing but offsets changed; fixed ones stayed; the peak is the highest end. */
static int plan_valid(const memopt_plan_item *items, const memopt_plan_item *before, size_t count, size_t peak) {
    size_t i, k, top = 0;
    for (i = 0; i < count; ++i) {
        memopt_plan_item same = items[i];
        if (items[i].offset > SIZE_MAX - items[i].size) return 0;
        if (items[i].offset + items[i].size > top) top = items[i].offset + items[i].size;
        if (items[i].alignment && items[i].offset % items[i].alignment) return 0;
        if (!items[i].fixed) same.offset = before[i].offset;
        if (memcmp(&same, &before[i], sizeof same)) return 0;
        for (k = 0; k < i; ++k)
            if (plan_together(&items[i], &items[k]) && !plan_apart(&items[i], &items[k])
                && !(items[i].offset == items[k].offset && plan_may_share(items, i, k))) return 0;
    }
    return top == peak;
}
static size_t plan_bound(const memopt_plan_item *items, size_t count) { /* largest sum at a birth; nothing shared */
    size_t i, k, best = 0;
    for (i = 0; i < count; ++i) {
        size_t sum = 0;
        for (k = 0; k < count; ++k)
            if (items[k].first <= items[i].first && items[i].first < items[k].last) sum += items[k].size;
        if (sum > best) best = sum;
    }
    return best;
}
static memopt_plan_options plan_steps(uint64_t work) {
    memopt_plan_options o;
    memset(&o, 0, sizeof o);
    o.work = work;
    return o;
}
static memopt_plan_result plan_run(size_t count, uint64_t work) { /* plan_item[0..count), checked */
    const memopt_plan_options o = plan_steps(work); memopt_plan_result r;
    memset(&r, 0, sizeof r);
    memcpy(plan_before, plan_item, count * sizeof *plan_item);
    CHECK(memopt_plan_solve(plan_item, count, &o, NULL, &r) == MEMOPT_OK);
    CHECK(plan_valid(plan_item, plan_before, count, r.peak));
    CHECK(r.peak >= r.lower_bound && r.orders != 0 && r.work <= work);
    return r;
}

/* -- small ones, by hand -- */

static void plan_nothing(void) {
    memopt_plan_result r;
    memset(&r, 0xA5, sizeof r);
    CHECK(memopt_plan_solve(NULL, 0, NULL, NULL, &r) == MEMOPT_OK);
    CHECK(r.peak == 0 && r.lower_bound == 0 && r.optimal == 1 && r.work == 0 && r.orders == 0);
    CHECK(memopt_plan_solve(NULL, 0, NULL, NULL, NULL) == MEMOPT_OK);
}
static void plan_by_hand(void) {
    memopt_plan_result r;
    plan_item[0] = plan_make(0, 3, 4); plan_item[1] = plan_make(3, 9, 4); plan_item[2] = plan_make(0, 9, 4);
    plan_item[3] = plan_make(9, 21, 4); plan_item[4] = plan_make(0, 21, 4);
    r = plan_run(5, 1000);
    CHECK(r.peak == 12 && r.lower_bound == 12 && r.optimal == 1);
    /* half-open: one that dies when the next is born gives it its place */
    plan_item[0] = plan_make(5, 6, 10); plan_item[1] = plan_make(6, 7, 10); plan_item[2] = plan_make(SIZE_MAX - 1, SIZE_MAX, 10);
    r = plan_run(3, 1000);
    CHECK(r.peak == 10 && plan_item[0].offset == 0 && plan_item[1].offset == 0 && plan_item[2].offset == 0);
    /* 2 and 1 alive together, then 1 and 2, then the two long ones: no plan of 3, although 3 bytes live at most */
    plan_item[0] = plan_make(0, 1, 8); /* alone */
    r = plan_run(1, 1000);
    CHECK(r.peak == 8 && r.lower_bound == 8 && r.optimal == 1 && r.orders == 1);
}
static void plan_aligned(void) {
    memopt_plan_result r;
    plan_item[0] = plan_make(0, 9, 1); plan_item[1] = plan_make(0, 9, 1); plan_item[1].alignment = 256;
    plan_item[2] = plan_make(0, 9, 5); plan_item[2].alignment = 3;
    r = plan_run(3, 10000); /* 1: at 0 (its only place below 256), 2: at 3, 0: at 1 */
    CHECK(r.peak == 8 && plan_item[1].offset == 0 && plan_item[2].offset == 3 && r.optimal == 1 && r.lower_bound == 7);
    plan_item[0] = plan_make(0, 1, 1); plan_item[0].alignment = SIZE_MAX;
    plan_item[1] = plan_make(0, 1, 1); plan_item[1].alignment = SIZE_MAX - 1;
    r.peak = 7;
    CHECK(memopt_plan_solve(plan_item, 2, NULL, NULL, &r) == MEMOPT_OK && r.peak == SIZE_MAX); /* the second at SIZE_MAX - 1 */
    plan_item[0] = plan_make(31, 99, SIZE_MAX); plan_item[1] = plan_make(8, 30, 8192000); plan_item[2] = plan_make(0, 9, 9);
    plan_item[3] = plan_make(9, 12, 10); plan_item[3].alignment = 27;
    plan_item[4] = plan_make(10, 99, 19); plan_item[4].alignment = 512000; plan_item[4].in_place_of = 1;
    r = plan_run(5, 1); /* the largest has one place only: at 0, which an order that comes to it last would wrap around */
    CHECK(r.peak == SIZE_MAX && plan_item[0].offset == 0 && plan_item[4].offset == 0 && r.lower_bound == SIZE_MAX);
}
static void plan_fixed(void) {
    memopt_plan_result r;
    plan_item[0] = plan_make(0, 4, 10); plan_item[0].fixed = 1; plan_item[0].offset = 20;
    plan_item[1] = plan_make(2, 6, 20); plan_item[2] = plan_make(3, 7, 10);
    r = plan_run(3, 10000); /* 20 below the obstacle, 10 above it */
    CHECK(r.peak == 40 && plan_item[0].offset == 20 && r.lower_bound == 40 && r.optimal == 1);
    plan_item[0] = plan_make(0, 9, 10); plan_item[0].fixed = 1; plan_item[0].offset = 1000; /* it alone sets the peak */
    plan_item[1] = plan_make(0, 9, 999);
    r = plan_run(2, 10000);
    CHECK(r.peak == 1010 && r.lower_bound == 1009 && r.optimal == 1 && plan_item[1].offset == 0);
    plan_item[0] = plan_make(0, 4, 8); plan_item[1] = plan_make(3, 6, 6); /* a pair, both fixed at one offset */
    plan_item[0].fixed = plan_item[1].fixed = 1; plan_item[0].offset = plan_item[1].offset = 4; plan_item[1].in_place_of = 1;
    plan_item[2] = plan_make(0, 6, 4);
    r = plan_run(3, 10000);
    CHECK(r.peak == 12 && plan_item[2].offset == 0);
}
static void plan_in_place(void) {
    memopt_plan_result r; size_t i;
    plan_item[0] = plan_make(0, 5, 10); plan_item[1] = plan_make(4, 9, 10); plan_item[1].in_place_of = 1;
    r = plan_run(2, 1000);
    CHECK(r.peak == 10 && r.lower_bound == 10 && r.optimal == 1);
    for (i = 0; i < 500; ++i) { plan_item[i] = plan_make(i, i + 2, 64); plan_item[i].in_place_of = i; } /* a long chain */
    r = plan_run(500, 1000);
    CHECK(r.peak == 64 && r.optimal == 1);
    plan_item[0] = plan_make(0, 9, 10); plan_item[1] = plan_make(3, 5, 10); plan_item[2] = plan_make(4, 6, 10);
    plan_item[1].in_place_of = plan_item[2].in_place_of = 1; /* two takers of one: they are no pair, one must go elsewhere */
    r = plan_run(3, 1000);
    CHECK(r.peak == 20);
    plan_item[0] = plan_make(0, 2, 100); plan_item[0].fixed = 1; plan_item[0].offset = 50;
    plan_item[1] = plan_make(1, 3, 100); plan_item[1].in_place_of = 1; /* takes over a fixed one */
    r = plan_run(2, 1000);
    CHECK(r.peak == 150 && plan_item[1].offset == 50);
    plan_item[0] = plan_make(0, 5, 10); plan_item[1] = plan_make(4, 9, 10); /* each names the other */
    plan_item[0].in_place_of = 2; plan_item[1].in_place_of = 1;
    r = plan_run(2, 1000);
    CHECK(r.peak == 10 && r.lower_bound == 10);
    for (i = 0; i < 3; ++i) { plan_item[i] = plan_make(0, 5, 10); plan_item[i].in_place_of = 1 + (i + 1) % 3; } /* a ring */
    r = plan_run(3, 1000);
    CHECK(r.peak >= 10 && r.lower_bound <= 10);
    plan_item[0] = plan_make(0, 2, SIZE_MAX); plan_item[1] = plan_make(1, 3, SIZE_MAX); plan_item[1].in_place_of = 1;
    r = plan_run(2, 1000);
    CHECK(r.peak == SIZE_MAX && r.lower_bound == SIZE_MAX && r.optimal == 1);
}

/* -- against the exhaustive optimum -- */

static int plan_fits(const memopt_plan_item *items, size_t *offset, size_t i, size_t count, size_t peak) {
    const size_t align = i < count && items[i].alignment ? items[i].alignment : 1; size_t at, k;
    if (i == count) return 1;
    for (at = 0; at + items[i].size <= peak; at += align) {
        if (items[i].fixed && at != items[i].offset) continue;
        for (k = 0; k < i; ++k) {
            if (!plan_together(&items[i], &items[k])) continue;
            if (at >= offset[k] + items[k].size || offset[k] >= at + items[i].size) continue;
            if (at != offset[k] || !plan_may_share(items, i, k)) break;
        }
        offset[i] = at;
        if (k == i && plan_fits(items, offset, i + 1, count, peak)) return 1;
    }
    return 0;
}
static size_t plan_optimum(const memopt_plan_item *items, size_t count, size_t most) { /* `most` + 1: there is none */
    size_t offset[8], peak;
    for (peak = 1; peak <= most && !plan_fits(items, offset, 0, count, peak); ++peak) {}
    return peak;
}
static int plan_fixed_clash(const memopt_plan_item *items, size_t count) {
    size_t i, k;
    for (i = 0; i < count; ++i)
        for (k = 0; k < i; ++k)
            if (items[i].fixed && items[k].fixed && plan_together(&items[i], &items[k]) && !plan_apart(&items[i], &items[k])
                && !(items[i].offset == items[k].offset && plan_may_share(items, i, k))) return 1;
    return 0;
}
static size_t plan_random(uint64_t *seed, int kinds) { /* 1 to 6 items; kinds: 1 alignments, 2 fixed ones, 4 pairs */
    const size_t count = 1 + test_below(seed, 6); size_t i;
    for (i = 0; i < count; ++i) {
        memopt_plan_item *t = &plan_item[i];
        *t = plan_make(test_below(seed, 6), 0, 1 + test_below(seed, 5));
        t->last = t->first + 1 + test_below(seed, 4);
        if ((kinds & 1) && test_below(seed, 2)) t->alignment = 1 + test_below(seed, 4);
        if ((kinds & 4) && test_below(seed, 2) && count > 1) t->in_place_of = 1 + (i + 1 + test_below(seed, count - 1)) % count;
        if (!(kinds & 2) || test_below(seed, 4)) continue;
        t->fixed = 1;
        t->offset = test_below(seed, 8) * (t->alignment ? t->alignment : 1);
    }
    return count;
}
static void plan_exhaustive(int kinds, int rounds, int *reached) {
    const memopt_plan_options o = plan_steps(100000); uint64_t seed = (uint64_t)kinds; int round;
    for (round = 0; round < rounds; ++round) {
        const size_t count = plan_random(&seed, kinds); size_t best; memopt_plan_result r; memopt_status s;
        memcpy(plan_before, plan_item, count * sizeof *plan_item);
        s = memopt_plan_solve(plan_item, count, &o, NULL, &r);
        CHECK_AT((s == MEMOPT_ERR_ARGUMENT) == plan_fixed_clash(plan_before, count), round);
        if (s) continue;
        best = plan_optimum(plan_before, count, 64);
        CHECK_AT(plan_valid(plan_item, plan_before, count, r.peak), round);
        CHECK_AT(r.lower_bound <= best && r.peak >= best && (!r.optimal || r.peak == best), round);
        if (!(kinds & 4)) CHECK_AT(r.optimal && r.lower_bound == plan_bound(plan_item, count), round);
        *reached += r.peak == best;
    }
}
#ifdef TEST_LONG
#  define PLAN_ROUNDS 100000
#else
#  define PLAN_ROUNDS (3000 / TEST_STRIDE)
#endif
static void plan_is_optimal(void) {
    int kinds;
    for (kinds = 0; kinds < 4; ++kinds) { /* without pairs every small plan is optimal, and says so */
        int reached = 0;
        plan_exhaustive(kinds, PLAN_ROUNDS, &reached);
    }
}
static void plan_pairs_are_nearly_optimal(void) { /* only some ways to share are looked at */
    int kinds;
    for (kinds = 4; kinds < 8; ++kinds) {
        int reached = 0;
        plan_exhaustive(kinds, PLAN_ROUNDS, &reached);
        CHECK(reached > PLAN_ROUNDS / 100 * (kinds & 2 ? 50 : 90));
    }
}

/* -- known optimum: cut a full rectangle of time and memory into boxes -- */

typedef struct plan_rect { size_t t0, t1, m0, m1; } plan_rect;
static size_t plan_count; /* of the last rectangle */
static size_t plan_cut(plan_rect *rect, size_t most, uint64_t *seed, int spirals) {
    size_t count = 1, i, tries;
    rect[0].t0 = 0; rect[0].t1 = 997; rect[0].m0 = 0; rect[0].m1 = 1000;
    while (count + 4 < most) {
        plan_rect r; size_t best = test_below(seed, count), x1, x2, y1, y2;
        for (tries = 0; tries < 3; ++tries) { /* larger ones first */
            i = test_below(seed, count);
            if ((rect[i].t1 - rect[i].t0) * (rect[i].m1 - rect[i].m0) > (rect[best].t1 - rect[best].t0) * (rect[best].m1 - rect[best].m0)) best = i;
        }
        r = rect[best];
        if (spirals && r.t1 - r.t0 > 6 && r.m1 - r.m0 > 6 && test_below(seed, 4) == 0) { /* five that no straight cut makes */
            x1 = r.t0 + 1 + test_below(seed, r.t1 - r.t0 - 3); x2 = x1 + 1 + test_below(seed, r.t1 - x1 - 2);
            y1 = r.m0 + 1 + test_below(seed, r.m1 - r.m0 - 3); y2 = y1 + 1 + test_below(seed, r.m1 - y1 - 2);
            rect[best].t1 = x2; rect[best].m1 = y1;
            rect[count] = r; rect[count].t0 = x2; rect[count++].m1 = y2;
            rect[count] = r; rect[count].t0 = x1; rect[count++].m0 = y2;
            rect[count] = r; rect[count].t1 = x1; rect[count++].m0 = y1;
            rect[count].t0 = x1; rect[count].t1 = x2; rect[count].m0 = y1; rect[count++].m1 = y2;
        } else if (test_below(seed, 2)) {
            if (r.t1 - r.t0 < 2) continue;
            rect[best].t1 = r.t0 + 1 + test_below(seed, r.t1 - r.t0 - 1);
            rect[count] = r; rect[count++].t0 = rect[best].t1;
        } else {
            if (r.m1 - r.m0 < 2) continue;
            rect[best].m1 = r.m0 + 1 + test_below(seed, r.m1 - r.m0 - 1);
            rect[count] = r; rect[count++].m0 = rect[best].m1;
        }
    }
    return count;
}
static memopt_plan_result plan_rectangle(size_t most, uint64_t seed, int spirals, uint64_t work) {
    static plan_rect rect[PLAN_MOST]; const size_t count = plan_count = plan_cut(rect, most, &seed, spirals); size_t i, k;
    for (i = 0; i < count; ++i) {
        plan_rect r; k = i + test_below(&seed, count - i);
        r = rect[k]; rect[k] = rect[i]; /* in any order */
        plan_item[i] = plan_make(r.t0, r.t1, (r.m1 - r.m0) * 1024);
    }
    return plan_run(count, work);
}
static void plan_known_optimum(void) {
    uint64_t seed;
    for (seed = 1; seed <= 12; ++seed) {
        memopt_plan_result r;
        if (test_is_passed_over()) continue;
        r = plan_rectangle(30 + 3 * (size_t)seed, seed, (int)(seed & 1), 60000);
        CHECK_AT(r.lower_bound == 1000 * 1024 && r.peak == r.lower_bound && r.optimal, seed);
        r = plan_rectangle(100 * (size_t)(1 + seed % 6), seed, (int)(seed & 1), 1500);
        CHECK_AT(r.lower_bound == 1000 * 1024 && r.peak < 1450 * 1024, seed);
    }
}
static void plan_more_work_is_never_worse(void) {
    uint64_t work, seed; size_t last;
    for (seed = 100; seed < 103; ++seed)
        for (work = 1, last = SIZE_MAX; work <= 4096; work *= 4) {
            const memopt_plan_result r = plan_rectangle(160, seed, 1, work);
            CHECK_AT(r.peak <= last, seed);
            last = r.peak;
        }
}
static void plan_same_work_same_plan(void) {
    static memopt_plan_item first[PLAN_MOST]; memopt_plan_result a, b;
    a = plan_rectangle(200, 7, 1, 3000);
    memcpy(first, plan_item, sizeof first);
    b = plan_rectangle(200, 7, 1, 3000);
    CHECK(!memcmp(&a, &b, sizeof a) && !memcmp(first, plan_item, sizeof first));
}
static void plan_options_hold(void) {
    memopt_plan_options o; memopt_plan_result r, full;
    full = plan_rectangle(120, 5, 1, 20000);
    memset(&o, 0, sizeof o);
    o.no_search = 1;
    CHECK(memopt_plan_solve(plan_item, plan_count, &o, NULL, &r) == MEMOPT_OK && r.work == 0 && r.peak >= full.peak);
    o = plan_steps(20000);
    o.capacity = 1150 * 1024; /* good enough: stops there */
    CHECK(memopt_plan_solve(plan_item, plan_count, &o, NULL, &r) == MEMOPT_OK && r.peak <= o.capacity && r.work < 20000);
    CHECK(r.optimal == (r.peak == r.lower_bound));
    o.capacity = 1; /* cannot be: as small as possible instead */
    CHECK(memopt_plan_solve(plan_item, plan_count, &o, NULL, &r) == MEMOPT_OK && r.peak == full.peak);
    memset(&o, 0, sizeof o);
    o.time_ns = 1; /* over at once: a plan all the same */
    memcpy(plan_before, plan_item, plan_count * sizeof *plan_item);
    CHECK(memopt_plan_solve(plan_item, plan_count, &o, NULL, &r) == MEMOPT_OK && plan_valid(plan_item, plan_before, plan_count, r.peak));
    CHECK(r.work == 0);
}
static void plan_orders_told(void) { /* eight orders, a bit each; the first is always tried */
    memset(plan_item, 0, sizeof plan_item);
    CHECK((plan_rectangle(100, 1, 1, 1).orders & ~0xFEu) == 1);
}

/* -- shaped like training -- */

/* Layers forward, their outputs kept until the backward pass comes by; with `every` > 1 only each such output is kept and
   the ones between are made again. Lifetimes nest, as they do in training, so the lower bound can be reached. */
static size_t plan_training(size_t layers, size_t every, uint64_t seed) {
    size_t count = 0, time = 0, layer, kept[256], k, sizes[256];
    for (layer = 0; layer < layers; ++layer) {
        sizes[layer] = 512 * (1 + test_below(&seed, 64));
        kept[layer] = time;
        plan_item[count++] = plan_make(time, time + 2, 512 * (1 + test_below(&seed, 200))); /* scratch */
        time += 2;
    }
    for (layer = layers; layer-- > 0;) {
        if (layer % every == every - 1) /* a segment is run again: its outputs live from now on */
            for (k = layer + 1 - every; k < layer; ++k) { kept[k + 1] = time; time += 1; }
        plan_item[count++] = plan_make(time, time + 2, 512 * (1 + test_below(&seed, 100)));
        plan_item[count++] = plan_make(kept[layer], time + 2, sizes[layer]);
        time += 2;
    }
    return count;
}
static void plan_training_reaches_the_bound(void) {
    size_t every; uint64_t seed;
    for (every = 1; every <= 4; ++every)
        for (seed = 1; seed <= 4; ++seed) {
            const size_t count = plan_training(48 * (size_t)seed, every, seed); memopt_plan_result r = plan_run(count, 2000);
            CHECK_AT(r.peak == r.lower_bound && r.lower_bound == plan_bound(plan_item, count) && r.optimal, every * 10 + seed);
        }
}
static void plan_many(void) { /* more than the search takes; every order is cheap */
    enum { COUNT = 20000 };
    memopt_plan_item *items = (memopt_plan_item *)malloc(2 * COUNT * sizeof *items); uint64_t seed = 3; size_t i;
    const memopt_plan_options o = plan_steps(1000); memopt_plan_result r; memopt_status s;
    CHECK(items != NULL);
    if (!items) return;
    for (i = 0; i < COUNT; ++i) {
        const size_t first = test_below(&seed, 4 * COUNT);
        items[i] = plan_make(first, first + 1 + test_below(&seed, 200), 64 * (1 + test_below(&seed, 100)));
    }
    memcpy(items + COUNT, items, COUNT * sizeof *items);
    s = memopt_plan_solve(items, COUNT, &o, NULL, &r);
    CHECK(s == MEMOPT_OK && r.work == 0 && r.peak < r.lower_bound * 2);
#ifdef TEST_LONG
    CHECK(plan_valid(items, items + COUNT, COUNT, r.peak));
#endif
    free(items);
}

/* -- large graphs -- */

typedef struct plan_moment { size_t time, item; int birth; } plan_moment; /* deaths first, then by item */
static int plan_moment_order(const void *a, const void *b) {
    const plan_moment *x = (const plan_moment *)a, *y = (const plan_moment *)b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    if (x->birth != y->birth) return x->birth - y->birth;
    return x->item < y->item ? -1 : x->item > y->item;
}
static plan_moment *plan_moments(const memopt_plan_item *items, size_t count) {
    plan_moment *m = (plan_moment *)malloc(2 * count * sizeof *m); size_t i;
    for (i = 0; i < count && m; ++i) {
        m[2 * i].time = items[i].first; m[2 * i].birth = 1; m[2 * i].item = i;
        m[2 * i + 1].time = items[i].last; m[2 * i + 1].birth = 0; m[2 * i + 1].item = i;
    }
    if (m) qsort(m, 2 * count, sizeof *m, plan_moment_order);
    return m;
}
/* Walk through time with those alive in order of offsets: neighbours must not meet. The bound: the most bytes alive. */
static int plan_sweep(const memopt_plan_item *items, size_t count, size_t peak, size_t *bound) {
    plan_moment *m = plan_moments(items, count); size_t *alive = (size_t *)malloc(count * sizeof *alive);
    size_t n = 0, at, live = 0, top = 0, i; int good = m && alive;
    *bound = 0;
    for (i = 0; i < 2 * count && good; ++i) {
        const memopt_plan_item *t = &items[m[i].item]; size_t low = 0, high = n;
        while (low < high) { /* the first one alive that lies at its offset or above */
            const size_t middle = (low + high) / 2;
            if (items[alive[middle]].offset < t->offset) low = middle + 1; else high = middle;
        }
        at = low;
        if (m[i].birth) {
            if (at && items[alive[at - 1]].offset + items[alive[at - 1]].size > t->offset) good = 0;
            if (at < n && t->offset + t->size > items[alive[at]].offset) good = 0;
            memmove(alive + at + 1, alive + at, (n++ - at) * sizeof *alive);
            alive[at] = m[i].item;
            if ((live += t->size) > *bound) *bound = live;
            if (t->offset + t->size > top) top = t->offset + t->size;
        } else {
            if (at == n || alive[at] != m[i].item) { good = 0; break; }
            memmove(alive + at, alive + at + 1, (--n - at) * sizeof *alive);
            live -= t->size;
        }
    }
    free(m); free(alive);
    return good && top == peak;
}
static size_t plan_heap_peak(const memopt_plan_item *items, size_t count, int grows) { /* the same calls to a heap; 0: it failed */
    plan_moment *m = plan_moments(items, count); memopt_block *blocks = (memopt_block *)malloc(count * sizeof *blocks);
    memopt_heap_desc d; memopt_heap *h = NULL; size_t i, peak = 0; int good = m && blocks;
    memset(&d, 0, sizeof d);
    d.capacity = SIZE_MAX / 2 + 1;
    d.extent = grows ? 0 : d.capacity; /* a MiB at a time, or all the room at once */
    if (good) good = memopt_heap_create(&d, &h) == MEMOPT_OK;
    for (i = 0; i < 2 * count && good; ++i) {
        const memopt_plan_item *t = &items[m[i].item]; memopt_block *b = &blocks[m[i].item];
        if (!m[i].birth) { good = memopt_heap_free(h, *b) == MEMOPT_OK; continue; }
        good = memopt_heap_alloc(h, t->size, t->alignment, 0, b) == MEMOPT_OK;
        if (b->offset + t->size > peak) peak = b->offset + t->size;
    }
    memopt_heap_destroy(h);
    free(m); free(blocks);
    return good ? peak : 0;
}
static plan_graph plan_unrolled(size_t count, size_t buffers, int mix, uint64_t seed, int shuffled) {
    plan_graph g;
    memset(&g, 0, sizeof g);
    g.buffers = buffers; g.steps = count / 2 / buffers; g.kept_every = 100; g.mix = mix; g.seed = seed; g.shuffled = shuffled;
    return g;
}
/* Not by the clock: the looks at placed items are counted, which two orders and tries with one of them may take. The peak
   is at most 1.01 of the bound. */
static void plan_large(const plan_graph *g, int greedy_only) {
    const size_t count = plan_graph_count(g); memopt_plan_item *items = (memopt_plan_item *)malloc(count * sizeof *items);
    memopt_plan_options o = plan_steps(1); memopt_plan_result r; size_t bound, log2 = 0; const uint64_t seed = g->seed;
    while (count >> log2) ++log2;
    o.no_search = greedy_only;
    CHECK(items != NULL);
    if (!items) return;
    plan_graph_make(g, items);
    CHECK_AT(memopt_plan_solve(items, count, &o, NULL, &r) == MEMOPT_OK, seed);
    CHECK_AT(plan_sweep(items, count, r.peak, &bound) && bound == r.lower_bound, seed);
    CHECK_AT((double)r.peak <= 1.01 * (double)bound, seed);
    CHECK_AT(r.visits <= (count < 50000 ? 48 : 12) * log2 * count, seed);
    CHECK_AT(r.optimal == (r.peak == bound), seed);
    if (greedy_only) CHECK_AT(!(r.cut & ~(unsigned)MEMOPT_PLAN_CUT_VISITS), seed);
    else CHECK_AT(r.peak == bound ? !r.cut : r.cut & MEMOPT_PLAN_CUT_COUNT, seed);
    free(items);
}
static void plan_unrolled_network(void) {
#ifdef TEST_LONG
    const uint64_t seeds = 3;
#else
    const uint64_t seeds = 1;
#endif
    uint64_t seed; int mix, shuffled;

    for (mix = 0; mix < 3; ++mix)
        for (seed = 1; seed <= seeds; ++seed)
            for (shuffled = 0; shuffled < 2; ++shuffled) {
                plan_graph g;
                if (test_is_passed_over()) continue;
                g = plan_unrolled(16000, 8, mix, seed + (uint64_t)mix, shuffled);
                plan_large(&g, shuffled);
                g.saved = 1; /* one buffer a step waits for its mirror image */
                plan_large(&g, !shuffled);
#ifdef TEST_LONG
                g = plan_unrolled(1000000, 16, mix, seed, shuffled);
                g.saved = (int)(seed & 1);
                plan_large(&g, 1);
#endif
            }
}
static void plan_unrolled_network_large(void) { /* where looking for the lowest place would never end */
    plan_graph g = plan_unrolled(100000, 16, 1, 1, 1);
    g.saved = 1;
    plan_large(&g, 1);
}
static void plan_unrolled_others(void) { /* more and fewer long lives, births at one moment, any sizes */
    static const size_t kept[4] = { 1000, 300, 50, 20 }, buffers[4] = { 3, 5, 8, 12 }; size_t i;
    for (i = 0; i < 4; ++i) {
        plan_graph g = plan_unrolled(12000, buffers[i], (int)i, 40 + i, 1);
        if (test_is_passed_over()) continue;
        g.kept_every = kept[i]; g.saved = 1;
        plan_large(&g, 1);
        g.tied = 1;
        plan_large(&g, 1);
    }
}
/* Many short lives on top of a few long ones: those by life, these by size. By life alone 1.04 and 1.06 of the bound. */
static void plan_unrolled_wide(void) {
    static const size_t kept[2] = { 100, 300 };
    static const uint64_t seeds[2] = { 14, 15 };
    size_t i;

    for (i = 0; i < 2; ++i) {
        plan_graph g = plan_unrolled(60000, 40, 0, seeds[i], (int)i);
        const size_t count = plan_graph_count(&g);
        memopt_plan_item *items = (memopt_plan_item *)malloc(count * sizeof *items);
        memopt_plan_options o = plan_steps(1);
        memopt_plan_result r;
        size_t bound;

        if (test_is_passed_over()) { free(items); continue; }
        g.kept_every = kept[i];
        CHECK(items != NULL);
        if (!items) return;
        plan_graph_make(&g, items);
        CHECK_AT(memopt_plan_solve(items, count, &o, NULL, &r) == MEMOPT_OK, i);
        CHECK_AT(plan_sweep(items, count, r.peak, &bound) && bound == r.lower_bound, i);
        CHECK_AT((double)r.peak <= 1.015 * (double)bound, i);
        free(items);
    }
}
static void plan_never_worse_than_the_heap(void) {
    uint64_t seed = 1; size_t round, i, count, life, heap;
    for (round = 0; round < 300; ++round) {
        memopt_plan_options o; memopt_plan_result r;
        count = 2 + test_below(&seed, round % 10 ? 60 : PLAN_MOST - 2); life = 2 + test_below(&seed, 60);
        for (i = 0; i < count; ++i) {
            const size_t first = test_below(&seed, round % 3 ? 2 * count : 2 + count / 4); /* also many at one moment */
            plan_item[i] = plan_make(first, first + 1 + test_below(&seed, test_below(&seed, 30) ? life : 2 * count), 0);
            plan_item[i].size = plan_graph_size(&seed, (int)(round % 4)) + (round % 5 == 4);
            if (round % 7 == 6) plan_item[i].alignment = (size_t)1 << test_below(&seed, 10);
        }
        memset(&o, 0, sizeof o);
        o.time_ns = 1; /* over at once, and kept all the same */
        o.no_search = (int)(round & 1);
        memcpy(plan_before, plan_item, count * sizeof *plan_item);
        CHECK_AT(memopt_plan_solve(plan_item, count, &o, NULL, &r) == MEMOPT_OK, round);
        CHECK_AT(plan_valid(plan_item, plan_before, count, r.peak), round);
        heap = plan_heap_peak(plan_before, count, 0);
        CHECK_AT(heap && r.peak <= heap, round);
        heap = round % 7 == 6 ? r.peak : plan_heap_peak(plan_before, count, 1);
        CHECK_AT(heap && r.peak <= heap, round);
        CHECK_AT(r.peak == r.lower_bound || r.cut == MEMOPT_PLAN_CUT_TIME, round);
    }
}
static void plan_says_why(void) { /* each reason, and none where there is none */
    static memopt_plan_item many[5000]; memopt_plan_options o = plan_steps(64); memopt_plan_result r; uint64_t seed = 9;
    test_faults f; memopt_host h; size_t i;
    CHECK(plan_rectangle(160, 3, 1, 64).cut == MEMOPT_PLAN_CUT_WORK);
    CHECK(plan_rectangle(20, 3, 1, 60000).cut == 0);
    r = plan_rectangle(160, 3, 1, 64);
    o.capacity = r.peak;
    CHECK(memopt_plan_solve(plan_item, plan_count, &o, NULL, &r) == MEMOPT_OK && r.cut == 0 && !r.optimal);
    o.capacity = 0; o.no_search = 1;
    CHECK(memopt_plan_solve(plan_item, plan_count, &o, NULL, &r) == MEMOPT_OK && r.cut == 0 && !r.optimal && r.visits > 0);
    o.no_search = 0; o.work = 0; o.time_ns = 1;
    CHECK(memopt_plan_solve(plan_item, plan_count, &o, NULL, &r) == MEMOPT_OK && r.cut == MEMOPT_PLAN_CUT_TIME);
    memset(&f, 0, sizeof f);
    f.fail_on = 2; /* the search's memory; the clock is not asked when there is work */
    h = test_host(&f);
    o = plan_steps(64);
    CHECK(memopt_plan_solve(plan_item, plan_count, &o, &h, &r) == MEMOPT_OK && r.cut == MEMOPT_PLAN_CUT_MEMORY);
    for (i = 0; i < 5000; ++i) { /* long lives without an order: holes everywhere */
        const size_t first = test_below(&seed, 5000);
        many[i] = plan_make(first, first + 1 + test_below(&seed, 5000), 1 + test_below(&seed, 100000));
    }
    CHECK(memopt_plan_solve(many, 5000, &o, NULL, &r) == MEMOPT_OK);
    CHECK(r.cut == (MEMOPT_PLAN_CUT_COUNT | MEMOPT_PLAN_CUT_VISITS));
}
/* A part that failed is known by its boxes, their floors and the capacity; were one of these left out, a part that can
   be solved would be taken for one that failed. It is not known by what does not matter, or it would be tried again. */
static void plan_failed_parts_are_told_apart(void) {
    memopt_i_search_box boxes[4]; uint32_t line[3] = { 0, 1, 2 }; memopt_i_search s; memopt_i_search_level l; memopt_i_part_key all, k; size_t i;
    memset(&s, 0, sizeof s); memset(&l, 0, sizeof l); memset(boxes, 0, sizeof boxes);
    for (i = 0; i < 4; ++i) { boxes[i].floor = boxes[i].low = 64 * (i + 1); boxes[i].size = 8; }
    s.boxes = boxes; s.queue = line; s.capacity = 1000; l.end = 3;
    all = memopt_i_search_key(&s, &l);
#define PLAN_SAME ((k = memopt_i_search_key(&s, &l)), k.a == all.a && k.b == all.b)
#define PLAN_OTHER ((k = memopt_i_search_key(&s, &l)), k.a != all.a && k.b != all.b)
    CHECK(PLAN_SAME);
    for (i = 0; i < 3; ++i) { /* every floor counts, */
        boxes[i].floor = boxes[i].low += 32;
        CHECK_AT(PLAN_OTHER, i);
        boxes[i].floor = boxes[i].low -= 32;
    }
    boxes[1].floor = boxes[1].low = 192; boxes[2].floor = boxes[2].low = 128;
    CHECK(PLAN_OTHER); /* and whose it is; */
    boxes[1].floor = boxes[1].low = 128; boxes[2].floor = boxes[2].low = 192;
    line[2] = 3; boxes[3].floor = boxes[3].low = 192;
    CHECK(PLAN_OTHER); /* every box, */
    line[2] = 2; l.end = 2;
    CHECK(PLAN_OTHER);
    l.end = 3; s.capacity = 1001;
    CHECK(PLAN_OTHER); /* and the capacity; */
    s.capacity = 1000; line[0] = 2; line[2] = 0;
    CHECK(PLAN_SAME); /* but not the order, */
    boxes[1].low = 500;
    CHECK(PLAN_SAME); /* nor that a box floats, */
    boxes[0].floor = 3;
    CHECK(PLAN_SAME); /* nor a floor below the lowest place of all */
    boxes[0].low = 3;
    CHECK(PLAN_OTHER);
#undef PLAN_SAME
#undef PLAN_OTHER
}
/* Some large ones are a matter of a few steps: attempts must not end before they can get through. */
static void plan_puzzles_solved_soon(void) {
    static const plan_puzzle puzzles[2] = { { 150, 75, 0, 1 }, { 210, 105, 17, 8 } };
    size_t i;
    for (i = 0; i < 2; ++i) {
        const memopt_plan_result r = plan_run(plan_puzzle_make(&puzzles[i], plan_item), i ? 5000 : 25000);
        CHECK_AT(r.peak == 1048576, i);
    }
}
static void plan_small_puzzles(void) {
    uint64_t seed;
    for (seed = 1; seed <= 100; ++seed) {
        plan_puzzle p; memopt_plan_result r;
        memset(&p, 0, sizeof p);
        p.count = 12 + (size_t)(seed % 10); p.moments = 8 + (size_t)(seed % 5); p.seed = seed;
        r = plan_run(plan_puzzle_make(&p, plan_item), 20000);
        CHECK_AT(r.lower_bound == 1048576 && r.peak == r.lower_bound && r.optimal && !r.cut, seed);
    }
}

/* -- wrong, hostile and failing -- */

static void plan_refused(memopt_plan_item *items, size_t count, memopt_status expected) {
    memopt_plan_item before[4]; memopt_plan_result r, same;
    memset(&r, 0x5A, sizeof r); same = r;
    memcpy(before, items, count * sizeof *items);
    CHECK(memopt_plan_solve(items, count, NULL, NULL, &r) == expected);
    CHECK(!memcmp(before, items, count * sizeof *items) && !memcmp(&r, &same, sizeof r));
}
static void plan_bad_items(void) {
    memopt_plan_item t[3]; memopt_plan_result r; memopt_host half; size_t i;
    memset(&half, 0, sizeof half);
    half.allocator.alloc_fn = test_alloc;
    CHECK(memopt_plan_solve(NULL, 1, NULL, NULL, &r) == MEMOPT_ERR_ARGUMENT);
    for (i = 0; i < 3; ++i) t[i] = plan_make(i, i + 4, 8);
    CHECK(memopt_plan_solve(t, SIZE_MAX, NULL, NULL, &r) == MEMOPT_ERR_OVERFLOW); /* before an item is looked at */
    for (i = 0; i < 3; ++i) t[i] = plan_make(i, i + 4, 8);
    CHECK(memopt_plan_solve(t, 3, NULL, &half, &r) == MEMOPT_ERR_ARGUMENT);
    t[1].last = t[1].first;         plan_refused(t, 3, MEMOPT_ERR_ARGUMENT); t[1].last = 0; plan_refused(t, 3, MEMOPT_ERR_ARGUMENT);
    t[1] = plan_make(1, 5, 0);      plan_refused(t, 3, MEMOPT_ERR_ARGUMENT);
    t[1] = plan_make(1, 5, 8);
    t[1].in_place_of = 2;           plan_refused(t, 3, MEMOPT_ERR_ARGUMENT); /* itself */
    t[1].in_place_of = 4;           plan_refused(t, 3, MEMOPT_ERR_ARGUMENT); /* nobody */
    t[1].in_place_of = SIZE_MAX;    plan_refused(t, 3, MEMOPT_ERR_ARGUMENT);
    t[1].in_place_of = 0;
    t[1].fixed = 1; t[1].offset = 6; t[1].alignment = 4; plan_refused(t, 3, MEMOPT_ERR_ARGUMENT);
    t[1].alignment = 0; t[2].fixed = 1; t[2].offset = 13; plan_refused(t, 3, MEMOPT_ERR_ARGUMENT); /* they meet in one byte */
    t[2].in_place_of = 2;           plan_refused(t, 3, MEMOPT_ERR_ARGUMENT); /* a pair, at two offsets */
    t[2].in_place_of = 0; t[2].offset = 14;
    CHECK(memopt_plan_solve(t, 3, NULL, NULL, &r) == MEMOPT_OK && r.peak == 30 && t[0].offset == 22);
    t[2].offset = SIZE_MAX - 7;     plan_refused(t, 3, MEMOPT_ERR_OVERFLOW);
}
static void plan_huge_sizes(void) {
    memopt_plan_item t[3], before[3]; memopt_plan_result r; size_t i;
    for (i = 0; i < 3; ++i) t[i] = plan_make(i, i + 2, SIZE_MAX / 2);
    memcpy(before, t, sizeof t);
    CHECK(memopt_plan_solve(t, 3, NULL, NULL, &r) == MEMOPT_OK && r.peak == SIZE_MAX / 2 * 2 && r.optimal);
    CHECK(plan_valid(t, before, 3, r.peak));
    for (i = 0; i < 3; ++i) t[i] = plan_make(i, i + 3, SIZE_MAX / 2); /* three at once */
    plan_refused(t, 3, MEMOPT_ERR_OVERFLOW);
    for (i = 0; i < 3; ++i) t[i] = plan_make(i, i + 1, SIZE_MAX);
    CHECK(memopt_plan_solve(t, 3, NULL, NULL, &r) == MEMOPT_OK && r.peak == SIZE_MAX && r.optimal);
    t[0] = plan_make(0, 1, 1); t[1] = plan_make(0, 1, 2); t[1].alignment = SIZE_MAX; /* 1 must lie at 0, 0 at 2 */
    CHECK(memopt_plan_solve(t, 2, NULL, NULL, &r) == MEMOPT_OK && r.peak == 3);
    t[0].alignment = SIZE_MAX; /* both only at 0 */
    plan_refused(t, 2, MEMOPT_ERR_OVERFLOW);
    for (i = 0; i < 3; ++i) { t[i] = plan_make(0, 1, SIZE_MAX / 4 - 1); t[i].alignment = (size_t)1 << (sizeof(size_t) * 8 - 2); }
    memcpy(before, t, sizeof t);
    CHECK(memopt_plan_solve(t, 3, NULL, NULL, &r) == MEMOPT_OK && plan_valid(t, before, 3, r.peak));
    t[0] = plan_make(0, 1, 5); /* more items than can be counted; refused before any is looked at twice */
    CHECK(memopt_i_plan_items_check(t, 0, NULL) == MEMOPT_OK);
}
/* A plan of somebody else's is checked by solving it with every offset fixed. */
static void plan_all_fixed(void) {
    memopt_plan_item t[2]; memopt_plan_result r;
    t[0] = plan_make(0, 4, 8); t[1] = plan_make(3, 6, 8); t[1].offset = 8;
    t[0].fixed = t[1].fixed = 1;
    CHECK(memopt_plan_solve(t, 2, NULL, NULL, &r) == MEMOPT_OK && r.peak == 16 && t[0].offset == 0 && t[1].offset == 8);
    t[1].offset = 7; plan_refused(t, 2, MEMOPT_ERR_ARGUMENT);
    t[1].first = 4;
    CHECK(memopt_plan_solve(t, 2, NULL, NULL, &r) == MEMOPT_OK && r.peak == 15);
    t[1].first = 3; t[1].offset = 0; plan_refused(t, 2, MEMOPT_ERR_ARGUMENT);
    t[1].in_place_of = 1;
    CHECK(memopt_plan_solve(t, 2, NULL, NULL, &r) == MEMOPT_OK && r.peak == 8);
    t[1].in_place_of = 0; t[0].in_place_of = 2;
    CHECK(memopt_plan_solve(t, 2, NULL, NULL, &r) == MEMOPT_OK && r.peak == 8);
    t[1].offset = 4; plan_refused(t, 2, MEMOPT_ERR_ARGUMENT);
    t[1].offset = 9; t[1].alignment = 2; plan_refused(t, 2, MEMOPT_ERR_ARGUMENT);
    t[1].offset = SIZE_MAX - 1; plan_refused(t, 2, MEMOPT_ERR_OVERFLOW);
}
/* The nth call of the host fails, and with `from` all after it; the clock is one of them. */
static void plan_host_fails(int from) {
    size_t n, count, i; memopt_plan_options o; memopt_plan_result r; uint64_t seed = 1;
    for (n = 1; n < 400; ++n) {
        test_faults f; memopt_host h; memopt_status s;
        memset(&f, 0, sizeof f); memset(&o, 0, sizeof o);
        if (from) f.fail_from = n; else f.fail_on = n;
        h = test_host(&f);
        o.time_ns = 100000; o.work = 3000;
        for (count = 0; count < 40; ++count) {
            const size_t first = test_below(&seed, 20);
            plan_item[count] = plan_make(first, first + 1 + test_below(&seed, 9), 1 + test_below(&seed, 50));
        }
        memcpy(plan_before, plan_item, sizeof plan_item);
        s = memopt_plan_solve(plan_item, count, &o, &h, &r);
        CHECK_AT(s == MEMOPT_OK || s == MEMOPT_ERR_MEMORY, n);
        if (s == MEMOPT_OK) CHECK_AT(plan_valid(plan_item, plan_before, count, r.peak), n);
        else for (i = 0; i < count; ++i) CHECK_AT(!memcmp(&plan_item[i], &plan_before[i], sizeof *plan_item), n);
        CHECK_AT(f.live_blocks == 0 && f.bad_frees == 0, n);
        if (f.calls < n) { CHECK_AT(s == MEMOPT_OK && n > 3, n); return; }
    }
    CHECK(n < 400); /* it never got through */
}
static void plan_host_fails_once(void) { plan_host_fails(0); }
static void plan_host_fails_for_good(void) { plan_host_fails(1); }

/* -- the tables -- */

static int plan_reads(plan_csv *csv, const char *text) { return !plan_csv_parse(csv, text, strlen(text)); }
static void plan_csv_is_read(void) {
    plan_csv csv;
    CHECK(plan_reads(&csv, "\r\n\nsize,gaps,end,offset,buffer_id,start,alignment,hint,note\r\n"
                           "8,1-2 3-3@4:8,7,,a b,1,4,0,x\r\n16,,2147483646,12,,0,1,3,\n\nnot,read\n"));
    if (csv.error) { printf("line %d: %s\n", (int)csv.line, csv.error); return; }
    CHECK(csv.count == 2 && csv.items[0].first == 1 && csv.items[0].last == 8 && csv.items[0].size == 8);
    CHECK(csv.items[0].alignment == 4 && !csv.items[0].fixed && csv.items[1].fixed && csv.items[1].offset == 12);
    CHECK(csv.items[1].last == 2147483647);
    plan_csv_free(&csv);
    CHECK(plan_reads(&csv, "id,lower,end,size\na,0,9223372036854775806,1\n") == (sizeof(size_t) >= 8)); /* or too large for size_t */
    if (csv.count) CHECK((uint64_t)csv.items[0].last == (uint64_t)INT64_MAX);
    plan_csv_free(&csv);
    CHECK(plan_reads(&csv, "id,lower,upper,size") && csv.count == 0);
    plan_csv_free(&csv);
}
static void plan_csv_refuses(void) {
    static const struct { size_t line; const char *text; } bad[] = {
        { 1, "" }, { 3, "\n\n" }, { 1, "id,lower,upper\n" }, { 1, "id,lower,upper,size,id\n" }, { 1, "id,lower,start,upper,size\n" },
        { 1, "id,lower,upper,end,size\n" }, { 1, "id, lower,upper,size\n" },
        { 2, "id,lower,upper,size\n1,2,3\n" }, { 2, "id,lower,upper,size\n1,2,3,4,5\n" }, { 3, "id,lower,upper,size\na,0,1,1\na,1,1,1\n" },
        { 2, "id,lower,upper,size\na,2,1,1\n" }, { 2, "id,lower,upper,size\na,0,1,0\n" }, { 2, "id,lower,upper,size\na,-1,1,1\n" },
        { 2, "id,lower,upper,size\na,0,1,9223372036854775808\n" }, { 2, "id,lower,upper,size\na,0,1,1e3\n" },
        { 2, "id,lower,upper,size\na,,1,1\n" }, { 2, "id,lower,upper,size\na,0, 1,1\n" }, { 2, "id,lower,end,size\na,0,9223372036854775807,1\n" },
        { 2, "id,lower,upper,size,alignment\na,0,1,1,0\n" }, { 2, "id,lower,upper,size,alignment\na,0,1,1,\n" },
        { 2, "id,lower,upper,size,hint\na,0,1,1,-1\n" }, { 2, "id,lower,upper,size,offset\na,0,1,1,x\n" },
        { 2, "id,lower,upper,size,offset,alignment\na,0,1,1,3,2\n" }, { 2, "id,lower,upper,size,gaps\na,0,9,1,1\n" },
        { 2, "id,lower,upper,size,gaps\na,0,9,1,3-3\n" }, { 2, "id,lower,upper,size,gaps\na,0,9,1,3-10\n" },
        { 2, "id,lower,upper,size,gaps\na,0,9,1,1-2  3-4\n" }, { 2, "id,lower,upper,size,gaps\na,0,9,1,1-2@\n" },
        { 2, "id,lower,upper,size,gaps\na,0,9,8,1-2@0:9\n" }, { 2, "id,lower,upper,size,gaps\na,0,9,8,1-2@4:4\n" }
    };
    size_t i; plan_csv csv;
    for (i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
        CHECK_AT(!plan_reads(&csv, bad[i].text) && csv.error && csv.line == bad[i].line, i);
        plan_csv_free(&csv);
    }
}
static void plan_csv_is_written(void) {
    static const char in[] = "id,offset,lower,upper,size\nx,,0,2,8\ny,8,0,2,4\n", out[] = "id,offset,lower,upper,size\nx,0,0,2,8\ny,8,0,2,4\n";
    static const char in2[] = "size,id,lower,upper\r\n5,z,3,4\r\n", out2[] = "size,id,lower,upper,offset\n5,z,3,4,0\n";
    char got[200]; plan_csv csv; size_t n; int i;
    for (i = 0; i < 2; ++i) {
        const char *expected = i ? out2 : out; FILE *file = tmpfile();
        if (!file) { SKIP("no temporary file"); return; }
        CHECK(plan_reads(&csv, i ? in2 : in));
        CHECK(memopt_plan_solve(csv.items, csv.count, NULL, NULL, NULL) == MEMOPT_OK);
        CHECK(!plan_csv_write(&csv, file));
        rewind(file);
        n = fread(got, 1, sizeof got, file);
        CHECK(n == strlen(expected) && !memcmp(got, expected, n));
        plan_csv_free(&csv);
        fclose(file);
    }
}

/* -- instances of others, where they are at hand -- */

static memopt_status plan_file(const char *name, uint64_t work, memopt_plan_result *r) { /* ERR_IO: not there */
    static const char *const folders[] = { "../shared/data/", "../../shared/data/" }; static char text[1 << 17];
    char path[256]; size_t i, length; FILE *file = NULL; plan_csv csv; memopt_status s;
    const memopt_plan_options o = plan_steps(work);
    memset(&csv, 0, sizeof csv);
    for (i = 0; i < 2 && !file; ++i) {
        snprintf(path, sizeof path, "%s%s", folders[i], name);
        file = fopen(path, "rb");
    }
    if (!file) return MEMOPT_ERR_IO;
    length = fread(text, 1, sizeof text, file);
    fclose(file);
    CHECK(length < sizeof text && !plan_csv_parse(&csv, text, length) && csv.count <= PLAN_MOST);
    memcpy(plan_before, csv.items, csv.count * sizeof *csv.items);
    s = memopt_plan_solve(csv.items, csv.count, &o, NULL, r);
    CHECK(s == MEMOPT_OK && plan_valid(csv.items, plan_before, csv.count, r->peak));
    plan_csv_free(&csv);
    return s;
}
static void plan_traces(void) {
    static const char *const names[] = { "gpt2-124M.ckpt-all", "gpt2-124M.ckpt-half", "gpt2-124M.ckpt-none", "unet-b4-512" };
    size_t i; memopt_plan_result r; char path[64];
    if (sizeof(size_t) < 8) { SKIP("traces of training steps need 64 bits"); return; }
    for (i = 0; i < 4; ++i) {
        snprintf(path, sizeof path, "traces/%s.csv", names[i]);
        if (plan_file(path, 1, &r) == MEMOPT_ERR_IO) { SKIP("traces of training steps are not at hand"); return; }
        CHECK_AT(r.peak == r.lower_bound && r.optimal, i);
    }
}
static void plan_hard_ones(void) {
    static const char names[] = "ACFIK"; size_t i; memopt_plan_result r; char path[64];
    for (i = 0; i < 5; ++i) {
        snprintf(path, sizeof path, "minimalloc/%c.1048576.csv", names[i]);
        if (plan_file(path, 6000, &r) == MEMOPT_ERR_IO) { SKIP("hard instances are not at hand"); return; }
        CHECK_AT((double)r.peak <= (i == 3 ? 1.25 : 1.1) * (double)r.lower_bound, i);
        if (i == 1 || i == 2 || i == 4) CHECK_AT(r.peak <= 1048576, i);
#ifdef TEST_LONG
        plan_file(path, 3000000, &r);
        CHECK_AT(r.peak <= 1048576, i);
#endif
    }
}

/* -- What a refusal says -- */

static int plan_says(memopt_error e, memopt_status status, const char *text) {
    char line[200];
    if (memopt_error_text(&e, line, sizeof line, NULL) != MEMOPT_OK) return 0;
    if (e.status == status && !strcmp(line, text)) return 1;
    printf("%d: %s\n", (int)e.status, line);
    return 0;
}
static const char *plan_break(memopt_plan_item *items, int i, memopt_status *want) { /* four items; returns the text */
    int k;
    memset(items, 0, 4 * sizeof *items);
    for (k = 0; k < 4; ++k) { items[k].last = 2; items[k].size = 64; }
    *want = MEMOPT_ERR_ARGUMENT;
    switch (i) {
    case 0: items[2].first = 2; return "item 2: it does not live: last is not above first";
    case 1: items[3].size = 0; return "item 3: size is 0";
    case 2: items[0].in_place_of = 5; return "item 0: in_place_of names no item";
    case 3: items[1].in_place_of = 2; return "item 1: in_place_of names the item itself";
    case 4: items[1].fixed = 1; items[1].alignment = 64; items[1].offset = 32;
        return "item 1: its fixed offset is not aligned";
    case 5: *want = MEMOPT_ERR_OVERFLOW; items[1].fixed = 1; items[1].offset = SIZE_MAX - 8;
        return "item 1: its end does not fit size_t";
    case 6: *want = MEMOPT_ERR_OVERFLOW; items[0].size = items[1].size = items[2].size = SIZE_MAX / 2;
        return "more than SIZE_MAX bytes are alive at one moment";
    case 7: items[0].fixed = items[1].fixed = 1; items[1].offset = 63;
        return "two fixed items share bytes while both live";
    case 8: *want = MEMOPT_ERR_OVERFLOW; items[0].fixed = 1; items[0].offset = SIZE_MAX / 2; items[1].size = SIZE_MAX / 2 + 64; /* neither below nor above */
        return "no plan was found that ends below SIZE_MAX";
    default: return NULL;
    }
}
static void plan_refusals(void) {
    memopt_plan_item items[4]; memopt_plan_options o; memopt_error e, before; memopt_status s, want; const char *text; int i;
    test_faults f; memopt_host h;
    memset(&before, 0x5A, sizeof before); memset(&o, 0, sizeof o); memset(&f, 0, sizeof f);
    for (i = 0; (text = plan_break(items, i, &want)) != NULL; ++i) {
        e = before; o.error = &e;
        s = memopt_plan_solve(items, 4, &o, NULL, NULL);
        CHECK_AT(s == want && plan_says(e, s, text), i);
        o.error = NULL;
        CHECK_AT(memopt_plan_solve(items, 4, &o, NULL, NULL) == want
            && memopt_plan_solve(items, 4, NULL, NULL, NULL) == want, i);
    }
    CHECK(i == 9);
    o.error = &e;
    s = memopt_plan_solve(items, UINT32_MAX / 4 + 1, &o, NULL, NULL); /* before an item is looked at */
    CHECK(s == MEMOPT_ERR_OVERFLOW && plan_says(e, s, "count 1073741824, at most 1073741823"));
    e = before;
    CHECK(memopt_plan_solve(items, 4, &o, NULL, NULL) == MEMOPT_OK && !memcmp(&e, &before, sizeof e));
    s = memopt_plan_solve(NULL, 4, &o, NULL, NULL);
    CHECK(s == MEMOPT_ERR_ARGUMENT && plan_says(e, s, "items is NULL, and count is not 0"));
    memset(&h, 0, sizeof h); h.allocator.alloc_fn = test_alloc;
    s = memopt_plan_solve(items, 4, &o, &h, NULL);
    CHECK(s == MEMOPT_ERR_ARGUMENT && plan_says(e, s, "the host is half set: a table has some of its functions"));
    h = test_host(&f); f.fail_on = 1; o.no_search = 1; o.work = 1; /* no clock */
    s = memopt_plan_solve(items, 4, &o, &h, NULL);
    CHECK(s == MEMOPT_ERR_MEMORY && e.got.count > 1000 && e.got.count < 10000);
    e.got.count = 1536;
    CHECK(plan_says(e, s, "no memory for the planner: asked 1.5 KiB"));
}
static void test_plan(void) {
    RUN(plan_refusals);
    RUN(plan_nothing);
    RUN(plan_by_hand);
    RUN(plan_aligned);
    RUN(plan_fixed);
    RUN(plan_in_place);
    RUN(plan_is_optimal);
    RUN(plan_pairs_are_nearly_optimal);
    RUN(plan_known_optimum);
    RUN(plan_more_work_is_never_worse);
    RUN(plan_same_work_same_plan);
    RUN(plan_options_hold);
    RUN(plan_orders_told);
    RUN(plan_training_reaches_the_bound);
    RUN(plan_many);
    RUN(plan_unrolled_network);
    RUN(plan_unrolled_network_large);
    RUN(plan_unrolled_others);
    RUN(plan_unrolled_wide);
    RUN(plan_never_worse_than_the_heap);
    RUN(plan_says_why);
    RUN(plan_failed_parts_are_told_apart);
    RUN(plan_small_puzzles);
    RUN(plan_puzzles_solved_soon);
    RUN(plan_bad_items);
    RUN(plan_huge_sizes);
    RUN(plan_all_fixed);
    RUN(plan_host_fails_once);
    RUN(plan_host_fails_for_good);
    RUN(plan_csv_is_read);
    RUN(plan_csv_refuses);
    RUN(plan_csv_is_written);
    RUN(plan_traces);
    RUN(plan_hard_ones);
}
#ifndef TEST_COMBINED
int main(void) { test_plan(); return test_totals(); }
#endif
