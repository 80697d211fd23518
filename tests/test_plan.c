/* test_plan.c - lifetimes to offsets: by hand, against exhaustive search, and against instances whose optimum is known. */
#include "test.h"
#include "plan_csv.h"

static memopt_plan_item plan_item(size_t first, size_t last, size_t size) {
    memopt_plan_item t;
    memset(&t, 0, sizeof t);
    t.first = first; t.last = last; t.size = size;
    return t;
}
static memopt_plan_options plan_work(uint64_t work) { /* the same on every machine, and when it is slow */
    memopt_plan_options o;
    memset(&o, 0, sizeof o);
    o.work = work;
    return o;
}
/* The validator of this test: written from the rules, byte by byte where the instance is small enough. */
static int plan_clash(const memopt_plan_item *t, size_t i, size_t k) {
    const int together = t[i].first < t[k].last && t[k].first < t[i].last;
    const int apart = t[i].offset >= t[k].offset + t[k].size || t[k].offset >= t[i].offset + t[i].size;
    const int pair = t[i].in_place_of == k + 1 || t[k].in_place_of == i + 1;
    return together && !apart && !(pair && t[i].offset == t[k].offset);
}
static int plan_valid(const memopt_plan_item *t, const memopt_plan_item *before, size_t count, size_t peak) {
    size_t i, k, highest = 0;
    for (i = 0; i < count; ++i) {
        if (t[i].alignment && t[i].offset % t[i].alignment) return 0;
        if (before[i].fixed && t[i].offset != before[i].offset) return 0;
        if (t[i].offset + t[i].size > highest) highest = t[i].offset + t[i].size;
        for (k = 0; k < i; ++k) if (plan_clash(t, i, k)) return 0;
    }
    return highest == peak;
}
/* Solve a copy and check all that holds for every plan. */
static memopt_plan_result plan_solved(const memopt_plan_item *items, size_t count, const memopt_plan_options *o, uint64_t at) {
    static memopt_plan_item copy[4096]; memopt_plan_result r; size_t i;
    memset(&r, 0, sizeof r);
    memcpy(copy, items, count * sizeof *items);
    CHECK_AT(memopt_plan_solve(copy, count, o, NULL, &r) == MEMOPT_OK, at);
    CHECK_AT(plan_valid(copy, items, count, r.peak), at);
    CHECK_AT(memopt_plan_check(copy, count, r.peak) == MEMOPT_OK, at);
    CHECK_AT(r.lower_bound <= r.peak, at);
    for (i = 0; i < count; ++i) { /* nothing but offsets was written */
        copy[i].offset = items[i].offset;
        CHECK_AT(!memcmp(&copy[i], &items[i], sizeof copy[i]), at);
    }
    return r;
}

static void plan_by_hand(void) {
    memopt_plan_item t[6]; memopt_plan_result r; const memopt_plan_options o = plan_work(10000);
    memset(&r, 0xA5, sizeof r);
    CHECK(memopt_plan_solve(NULL, 0, NULL, NULL, &r) == MEMOPT_OK && r.peak == 0 && r.lower_bound == 0);
    t[0] = plan_item(0, 1, 100);
    r = plan_solved(t, 1, &o, 0); CHECK(r.peak == 100 && r.lower_bound == 100 && r.optimal);
    t[1] = plan_item(1, 2, 70); /* the one begins when the other ends: they share */
    r = plan_solved(t, 2, &o, 1); CHECK(r.peak == 100 && r.optimal);
    t[1] = plan_item(0, 2, 70);
    r = plan_solved(t, 2, &o, 2); CHECK(r.peak == 170 && r.lower_bound == 170);
    /* a staircase: placed in order of time it needs 5, at best 4 */
    t[0] = plan_item(0, 2, 1); t[1] = plan_item(0, 4, 1); t[2] = plan_item(2, 6, 2); t[3] = plan_item(4, 8, 2); t[4] = plan_item(6, 9, 2);
    r = plan_solved(t, 5, &o, 3); CHECK(r.peak == 4 && r.lower_bound == 4 && r.optimal);
    /* alignment: 8 bytes below an item that begins at a multiple of 64 */
    t[0] = plan_item(0, 2, 8); t[0].alignment = 8;
    t[1] = plan_item(0, 2, 64); t[1].alignment = 64;
    r = plan_solved(t, 2, &o, 4); CHECK(r.peak == 72 && r.lower_bound == 72);
    t[0].alignment = 12; t[1].alignment = 7; /* no powers of two: 0 and 14 with 8 bytes first, 0 and 72 the other way */
    r = plan_solved(t, 2, &o, 5); CHECK(r.peak == 78);
    /* fixed: the hole below it is used, and what does not fit goes above */
    t[0] = plan_item(0, 9, 10); t[0].fixed = 1; t[0].offset = 20; t[0].alignment = 0;
    t[1] = plan_item(1, 3, 20); t[2] = plan_item(3, 5, 21);
    r = plan_solved(t, 3, &o, 6); CHECK(r.peak == 51);
    /* in place: a chain of three of which no two lie side by side */
    t[0] = plan_item(0, 3, 10); t[1] = plan_item(2, 5, 10); t[2] = plan_item(4, 7, 10);
    t[1].in_place_of = 1; t[2].in_place_of = 2;
    r = plan_solved(t, 3, &o, 7); CHECK(r.peak == 10 && r.lower_bound == 10 && r.optimal);
    t[1].in_place_of = t[2].in_place_of = 0;
    r = plan_solved(t, 3, &o, 8); CHECK(r.peak == 20 && r.lower_bound == 20);
}
static void plan_order_names(void) {
    unsigned i, count = 0, k;
    while (memopt_plan_order_name(count)) ++count;
    CHECK(count >= 3 && count < 32);
    for (i = 0; i < count; ++i)
        for (k = 0; k < i; ++k) CHECK(strcmp(memopt_plan_order_name(i), memopt_plan_order_name(k)) != 0);
    CHECK(memopt_plan_order_name(count) == NULL && memopt_plan_order_name(UINT_MAX) == NULL);
}

/* What a wrong call leaves behind: nothing. */
static void plan_refused(memopt_plan_item *t, size_t count, memopt_status want, int line) {
    memopt_plan_item before[4]; memopt_plan_result r, r_before; memopt_status s;
    memset(&r, 0x5A, sizeof r);
    r_before = r;
    memcpy(before, t, count * sizeof *t);
    s = memopt_plan_solve(t, count, NULL, NULL, &r);
    CHECK_AT(s == want, line);
    CHECK_AT(!memcmp(before, t, count * sizeof *t) && !memcmp(&r, &r_before, sizeof r), line);
}
static void plan_bad_input(void) {
    memopt_plan_item t[4]; memopt_host half; memopt_plan_result r;
    CHECK(memopt_plan_solve(NULL, 1, NULL, NULL, &r) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_plan_check(NULL, 1, 0) == MEMOPT_ERR_ARGUMENT && memopt_plan_check(NULL, 0, 0) == MEMOPT_OK);
    t[0] = plan_item(5, 5, 1); plan_refused(t, 1, MEMOPT_ERR_ARGUMENT, __LINE__);
    t[0] = plan_item(6, 5, 1); plan_refused(t, 1, MEMOPT_ERR_ARGUMENT, __LINE__);
    t[0] = plan_item(0, 5, 0); plan_refused(t, 1, MEMOPT_ERR_ARGUMENT, __LINE__);
    t[0] = plan_item(0, 5, 8); t[0].in_place_of = 1; plan_refused(t, 1, MEMOPT_ERR_ARGUMENT, __LINE__);
    t[0].in_place_of = 2; plan_refused(t, 1, MEMOPT_ERR_ARGUMENT, __LINE__);
    t[0].in_place_of = SIZE_MAX; plan_refused(t, 1, MEMOPT_ERR_ARGUMENT, __LINE__);
    t[0] = plan_item(0, 5, 8); t[0].fixed = 1; t[0].offset = 12; t[0].alignment = 8; plan_refused(t, 1, MEMOPT_ERR_ARGUMENT, __LINE__);
    t[0].alignment = 4; t[1] = t[0]; t[1].offset = 16; plan_refused(t, 2, MEMOPT_ERR_ARGUMENT, __LINE__);
    t[1].offset = 20; CHECK(memopt_plan_solve(t, 2, NULL, NULL, &r) == MEMOPT_OK && r.peak == 28);
    t[0] = plan_item(0, 5, SIZE_MAX); t[1] = plan_item(4, 6, 1); plan_refused(t, 2, MEMOPT_ERR_OVERFLOW, __LINE__);
    t[1] = plan_item(5, 6, 1); CHECK(memopt_plan_solve(t, 2, NULL, NULL, &r) == MEMOPT_OK && r.peak == SIZE_MAX);
    t[0] = plan_item(0, 5, 8); t[0].fixed = 1; t[0].offset = SIZE_MAX - 7; plan_refused(t, 1, MEMOPT_ERR_OVERFLOW, __LINE__);
    t[0] = plan_item(0, 5, SIZE_MAX / 2); t[1] = plan_item(1, 3, SIZE_MAX / 2); t[0].alignment = t[1].alignment = SIZE_MAX / 2 + 1;
    CHECK(memopt_plan_solve(t, 2, NULL, NULL, &r) == MEMOPT_OK && r.peak == SIZE_MAX);
    t[2] = plan_item(2, 4, 1); /* there is one byte between the two, at an odd place */
    CHECK(memopt_plan_solve(t, 3, NULL, NULL, &r) == MEMOPT_OK && r.peak == SIZE_MAX);
    t[2].alignment = 2; plan_refused(t, 3, MEMOPT_ERR_OVERFLOW, __LINE__);
    memset(&half, 0, sizeof half);
    half.allocator.free_fn = test_free;
    t[0] = plan_item(0, 5, 8);
    CHECK(memopt_plan_solve(t, 1, NULL, &half, &r) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_plan_solve(t, 1, NULL, NULL, NULL) == MEMOPT_OK && t[0].offset == 0);
}
static void plan_check_finds(void) {
    memopt_plan_item t[2];
    t[0] = plan_item(0, 4, 10); t[1] = plan_item(3, 6, 5); t[1].offset = 10;
    CHECK(memopt_plan_check(t, 2, 15) == MEMOPT_OK);
    CHECK(memopt_plan_check(t, 2, 14) == MEMOPT_ERR_STATE);
    t[1].offset = 9; CHECK(memopt_plan_check(t, 2, 15) == MEMOPT_ERR_STATE);
    t[1].offset = 0; CHECK(memopt_plan_check(t, 2, 15) == MEMOPT_ERR_STATE);
    t[1].in_place_of = 1; CHECK(memopt_plan_check(t, 2, 15) == MEMOPT_OK);
    t[1].offset = 1; CHECK(memopt_plan_check(t, 2, 15) == MEMOPT_ERR_STATE);
    t[1].first = 4; CHECK(memopt_plan_check(t, 2, 15) == MEMOPT_OK);
    t[1].alignment = 2; CHECK(memopt_plan_check(t, 2, 15) == MEMOPT_ERR_STATE);
    t[1].offset = SIZE_MAX - 1; CHECK(memopt_plan_check(t, 2, 15) == MEMOPT_ERR_STATE);
    t[1].size = 0; CHECK(memopt_plan_check(t, 2, 15) == MEMOPT_ERR_ARGUMENT);
}

/* Every offset for every item, in order: does anything fit below `capacity`? */
static int plan_exists(memopt_plan_item *t, size_t count, size_t capacity, size_t i) {
    size_t k, at;
    if (i == count) return 1;
    if (t[i].size > capacity) return 0;
    for (at = t[i].fixed ? t[i].offset : 0; at + t[i].size <= capacity; ++at) {
        const size_t was = t[i].offset; int ok = !t[i].alignment || at % t[i].alignment == 0;
        t[i].offset = at;
        for (k = 0; ok && k < i; ++k) ok = !plan_clash(t, i, k);
        if (ok && plan_exists(t, count, capacity, i + 1)) return 1;
        t[i].offset = was;
        if (t[i].fixed) break;
    }
    return 0;
}
static void plan_random_small(memopt_plan_item *t, size_t count, uint64_t *random, int kind) {
    size_t i;
    for (i = 0; i < count; ++i) {
        const size_t first = test_below(random, 6);
        t[i] = plan_item(first, first + 1 + test_below(random, 4), 1 + test_below(random, 4));
        if (kind & 1) t[i].alignment = test_below(random, 4);
        if (kind & 2 && i && test_below(random, 2)) t[i].in_place_of = 1 + test_below(random, i);
        if (kind & 4 && !test_below(random, 3)) {
            t[i].fixed = 1;
            t[i].offset = test_below(random, 4) * (t[i].alignment ? t[i].alignment : 1);
        }
    }
}
/* The optimum, found without any cleverness. Plain instances must reach it; with in-place pairs the chains that the
   planner forms are a restriction, so there it must be valid, not below the optimum, and right when it says "optimal". */
static void plan_exhaustive(void) {
    uint64_t random = 1; size_t at, loose = 0, refused = 0;
#ifdef TEST_LONG
    const size_t instances = 20000;
#else
    const size_t instances = 2000;
#endif
    for (at = 0; at < instances; ++at) {
        memopt_plan_item t[6], copy[6]; memopt_plan_result r; const int kind = (int)(at % 8); size_t count, best = 1, i;
        const memopt_plan_options o = plan_work(200000);
        count = 2 + test_below(&random, kind & 2 ? 4 : 5);
        plan_random_small(t, count, &random, kind);
        memcpy(copy, t, sizeof t);
        if (memopt_plan_solve(copy, count, &o, NULL, &r) == MEMOPT_ERR_ARGUMENT) { /* fixed items that overlap */
            int clash = 0; size_t k;
            for (i = 0; i < count; ++i) for (k = 0; k < i; ++k) clash |= t[i].fixed && t[k].fixed && plan_clash(t, i, k);
            CHECK_AT(clash, at);
            ++refused;
            continue;
        }
        r = plan_solved(t, count, &o, at);
        memcpy(copy, t, sizeof t);
        while (!plan_exists(copy, count, best, 0)) { memcpy(copy, t, sizeof t); ++best; }
        CHECK_AT(r.lower_bound <= best && best <= r.peak, at);
        CHECK_AT(!r.optimal || r.peak == best, at);
        if (kind & 2) loose += r.peak > best; else CHECK_AT(r.peak == best, at);
    }
    CHECK(refused < instances / 4 && loose < instances / 20);
}

/* A rectangle of time and memory cut in two again and again, so that a perfect plan exists. */
static size_t plan_cut(memopt_plan_item *t, size_t count, size_t time, size_t memory, uint64_t *random) {
    size_t n = 1;
    t[0] = plan_item(0, time, memory);
    while (n < count) {
        const size_t i = test_below(random, n); memopt_plan_item *a = &t[i], *b = &t[n];
        *b = *a;
        if (test_below(random, 2)) {
            if (a->last - a->first < 2) continue;
            a->last = b->first = a->first + 1 + test_below(random, a->last - a->first - 1);
        } else {
            if (a->size < 2) continue;
            a->size = 1 + test_below(random, a->size - 1);
            b->size -= a->size;
        }
        ++n;
    }
    return n;
}
static void plan_known_optimum(void) {
    static memopt_plan_item t[200]; uint64_t random = 7; size_t round, solved = 0;
    for (round = 0; round < 20; ++round) {
        const memopt_plan_options o = plan_work(60000); memopt_plan_result r;
        const size_t count = plan_cut(t, 30 + round * 4, 1000, 4096, &random);
        r = plan_solved(t, count, &o, round);
        CHECK_AT(r.lower_bound == 4096, round);
        CHECK_AT(r.peak < 4096 + 4096 / 5, round);
        solved += r.peak == 4096;
    }
    CHECK(solved >= 16);
}
/* Forward and backward of a deep network: outputs live until their backward, temporaries only for a moment. */
static size_t plan_training(memopt_plan_item *t, size_t layers, uint64_t *random) {
    const size_t end = 2 * layers * 4; size_t layer, k, n = 0;
    for (layer = 0; layer < layers; ++layer) {
        const size_t forward = layer * 4, backward = end - layer * 4;
        for (k = 0; k < 4; ++k) t[n++] = plan_item(forward + k, backward - k, 512 * (1 + test_below(random, 64)));
        for (k = 0; k < 2; ++k) {
            t[n++] = plan_item(forward + k, forward + k + 2, 512 * (1 + test_below(random, 16)));
            t[n++] = plan_item(backward - 4 + k, backward - 2 + k, 512 * (1 + test_below(random, 16)));
        }
    }
    return n;
}
static void plan_training_graphs(void) {
    static memopt_plan_item t[1024]; uint64_t random = 3; size_t layers;
    for (layers = 1; layers <= 128; layers += 9) {
        memopt_plan_options o = plan_work(0); memopt_plan_result r; size_t count = plan_training(t, layers, &random);
        o.no_search = 1;
        r = plan_solved(t, count, &o, layers);
        CHECK_AT(r.work == 0 && r.orders, layers);
        CHECK_AT(r.peak == r.lower_bound, layers);
    }
}

static void plan_work_is_reproducible(void) {
    static memopt_plan_item a[120], b[120]; uint64_t random = 11; uint64_t work; memopt_plan_result ra, rb; size_t last = SIZE_MAX;
    const size_t count = plan_cut(a, 120, 400, 1 << 16, &random);
    memcpy(b, a, sizeof a);
    for (work = 1; work < 30000; work *= 9) {
        const memopt_plan_options o = plan_work(work);
        CHECK(memopt_plan_solve(a, count, &o, NULL, &ra) == MEMOPT_OK);
        CHECK(memopt_plan_solve(b, count, &o, NULL, &rb) == MEMOPT_OK);
        CHECK_AT(!memcmp(a, b, sizeof a) && ra.work <= work && ra.work == rb.work, work);
        CHECK_AT(ra.peak <= last, work); /* more work is never worse */
        last = ra.peak;
    }
}
static void plan_capacity_is_enough(void) {
    static memopt_plan_item t[120]; uint64_t random = 11; memopt_plan_options o = plan_work(100000); memopt_plan_result tight, loose;
    const size_t count = plan_cut(t, 120, 400, 1 << 16, &random);
    tight = plan_solved(t, count, &o, 0);
    o.capacity = (1 << 16) + (1 << 15);
    loose = plan_solved(t, count, &o, 1);
    CHECK(loose.peak <= o.capacity && loose.work <= tight.work);
    o.capacity = SIZE_MAX;
    loose = plan_solved(t, count, &o, 2);
    CHECK(loose.work == 0);
}

/* Every allocation and every clock reading fails once, and from then on. */
static void plan_faults(void) {
    static memopt_plan_item start[60], t[60]; uint64_t random = 5; size_t n; int from;
    const size_t count = plan_cut(start, 60, 400, 1 << 16, &random);
    for (from = 0; from < 2; ++from)
        for (n = 1; n < 3000; n += n < 30 ? 1 : 97) {
            test_faults f; memopt_host h; memopt_plan_options o = plan_work(5000); memopt_plan_result r; memopt_status s;
            memset(&f, 0, sizeof f);
            if (from) f.fail_from = n; else f.fail_on = n;
            h = test_host(&f);
            o.time_ns = UINT64_C(1000000000000);
            memcpy(t, start, sizeof t);
            memset(&r, 0, sizeof r);
            s = memopt_plan_solve(t, count, &o, &h, &r);
            CHECK_AT(f.live_blocks == 0 && f.bad_frees == 0, n);
            if (s) CHECK_AT(s == MEMOPT_ERR_MEMORY && !memcmp(t, start, sizeof t), n);
            else CHECK_AT(plan_valid(t, start, count, r.peak), n);
            f.fail_on = f.fail_from = 0;
            memcpy(t, start, sizeof t);
            CHECK_AT(memopt_plan_solve(t, count, &o, &h, &r) == MEMOPT_OK && plan_valid(t, start, count, r.peak), n); /* again */
        }
}
static void plan_stops_in_time(void) { /* the test's clock advances a microsecond a reading */
    static memopt_plan_item t[120]; uint64_t random = 13; test_faults f; memopt_host h; memopt_plan_options o = plan_work(0);
    memopt_plan_result r; const size_t count = plan_cut(t, 120, 500, 1 << 20, &random);
    memset(&f, 0, sizeof f);
    h = test_host(&f);
    o.time_ns = 50000;
    CHECK(memopt_plan_solve(t, count, &o, &h, &r) == MEMOPT_OK);
    CHECK(f.now <= 60000 && r.peak >= r.lower_bound);
}

/* The table that planners exchange. */
static int plan_parse(const char *text, plan_csv *csv) {
    memset(csv, 0, sizeof *csv);
    return plan_csv_parse(csv, text, strlen(text));
}
static void plan_csv_good(void) {
    plan_csv csv;
    CHECK(!plan_parse("\n\nsize,upper,id,lower\n7,3,a,1\n8,9,b,2\n\nnot,read,any,more\n", &csv) && csv.count == 2);
    CHECK(csv.items[0].first == 1 && csv.items[0].last == 3 && csv.items[0].size == 7 && !csv.items[0].fixed);
    plan_csv_free(&csv);
    CHECK(!plan_parse("buffer,start,end,size,alignment,offset,hint,gaps,mine\r\na,1,3,7,4,8,5,,x\r\nb,1,9,7,1,,,2-4 5-6@0:3,y\r\n", &csv) && csv.count == 2);
    CHECK(csv.items[0].last == 4 && csv.items[0].alignment == 4 && csv.items[0].fixed && csv.items[0].offset == 8); /* end is included */
    CHECK(csv.items[1].last == 10 && !csv.items[1].fixed);
    plan_csv_free(&csv);
}
static void plan_csv_bad(void) {
    static const char *const bad[] = {
        "", "\n\n", "id,lower,upper\na,1,2\n", "id,lower,upper,size,size\na,1,2,3,3\n", "id,lower,begin,upper,size\na,1,1,2,3\n",
        "id,lower,upper,end,size\na,1,2,2,3\n", "id,lower,upper,size\na,1,2\n", "id,lower,upper,size\na,1,2,3,4\n",
        "id,lower,upper,size\na,1,2,-3\n", "id,lower,upper,size\na,1,2,3x\n", "id,lower,upper,size\na,1,2,\n",
        "id,lower,upper,size\na,1,2, 3\n", "id,lower,upper,size\na,1,2,9223372036854775808\n",
        "id,lower,upper,size\na,1,2,99999999999999999999999\n", "id,lower,upper,size,gaps\na,1,9,3,4\n",
        "id,lower,upper,size,alignment\na,1,2,3,0\n", "lower,upper,size\n1,2,3\n"
    };
    size_t i; plan_csv csv;
    for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
        CHECK_AT(plan_parse(bad[i], &csv) && csv.error, i);
        plan_csv_free(&csv);
    }
}
/* Instances of real training, when they lie beside the project. */
static void plan_traces(void) {
    static const char *const names[] = { "gpt2-124M.ckpt-none", "gpt2-124M.ckpt-half", "gpt2-124M.ckpt-all", "unet-b4-512" };
    static const char *const roots[] = { "../shared/data/traces", "../../shared/data/traces" };
    size_t i, root, found = 0;
    for (root = 0; root < 2 && !found; ++root)
        for (i = 0; i < 4; ++i) {
            char path[256], *text; FILE *file; plan_csv csv; memopt_plan_result r; const memopt_plan_options o = plan_work(1);
            snprintf(path, sizeof path, "%s/%s.csv", roots[root], names[i]);
            file = fopen(path, "rb");
            if (!file) continue;
            text = (char *)calloc(1, 1 << 20);
            CHECK(text && fread(text, 1, (1 << 20) - 1, file) > 0);
            fclose(file);
            CHECK(text && !plan_parse(text, &csv));
            r = plan_solved(csv.items, csv.count, &o, i);
            CHECK_AT(r.peak == r.lower_bound && csv.count > 100, i);
            plan_csv_free(&csv);
            free(text);
            ++found;
        }
    if (!found) SKIP("no traces beside the project; the ones made here are tested");
}

static void test_plan(void) {
    RUN(plan_by_hand);
    RUN(plan_order_names);
    RUN(plan_bad_input);
    RUN(plan_check_finds);
    RUN(plan_exhaustive);
    RUN(plan_known_optimum);
    RUN(plan_training_graphs);
    RUN(plan_work_is_reproducible);
    RUN(plan_capacity_is_enough);
    RUN(plan_faults);
    RUN(plan_stops_in_time);
    RUN(plan_csv_good);
    RUN(plan_csv_bad);
    RUN(plan_traces);
}
#ifndef TEST_COMBINED
int main(void) { test_plan(); return test_totals(); }
#endif
