/* fuzz_plan.c - whatever the items, a plan is valid or there is a status and nothing has changed. */
#define MEMOPT_DEBUG 2
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t take(const uint8_t **data, size_t *left) { /* small numbers mostly, sometimes huge ones */
    size_t value;
    if (!*left) return 0;
    --*left;
    value = *(*data)++;
    return value < 224 ? value % 32 : value < 240 ? SIZE_MAX >> (value - 224) : ((size_t)1 << (value - 240)) * 1000;
}
static int is_valid(const memopt_plan_item *items, size_t count, size_t peak) { /* every two items, by the definition */
    size_t i, k;

    for (i = 0; i < count; ++i) {
        const memopt_plan_item *a = &items[i];

        if (a->size > peak || a->offset > peak - a->size || (a->alignment && a->offset % a->alignment)) return 0;
        for (k = 0; k < i; ++k) {
            const memopt_plan_item *b = &items[k];
            const int pair = a->in_place_of == k + 1 || b->in_place_of == i + 1;

            if (a->last <= b->first || b->last <= a->first) continue;
            if (a->offset >= b->offset + b->size || b->offset >= a->offset + a->size) continue;
            if (!pair || a->offset != b->offset) return 0;
        }
    }
    return 1;
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    memopt_plan_item items[48], before[48]; memopt_plan_options options; memopt_plan_result r; size_t count = 0; memopt_status s;
    memset(items, 0, sizeof items); memset(&options, 0, sizeof options); memset(&r, 0, sizeof r);
    options.work = 1 + take(&data, &size) % 256 * 16;
    options.capacity = take(&data, &size);
    for (; size && count < 48; ++count) {
        memopt_plan_item *t = &items[count]; const size_t kind = take(&data, &size);
        t->first = take(&data, &size);
        t->last = t->first + take(&data, &size);
        t->size = take(&data, &size);
        if (kind & 1) t->alignment = take(&data, &size);
        if (kind & 2) t->in_place_of = take(&data, &size);
        if (kind & 4) { t->fixed = 1; t->offset = take(&data, &size); }
    }
    memcpy(before, items, sizeof items);
    s = memopt_plan_solve(items, count, &options, NULL, &r);
    if (s) {
        if (memcmp(before, items, sizeof items)) abort();
    } else if (!is_valid(items, count, r.peak) || r.peak < r.lower_bound || (r.optimal && r.cut)) abort();
    return 0;
}
