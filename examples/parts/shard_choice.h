/* shard_choice.h - which of what a rank holds goes to slow tiers, so that it fits its memory.

   What it does   Plans every way (states, extra, weights; each tier; what a tape keeps as well) and takes the one whose
                  transfers take the fewest seconds; of equal ones the one that moves less, then the one with less
                  memory.
   How to use     Fill in a memopt_shard_desc and a shard_target, call shard_choose(), and set `slow` of the desc as the
                  choice says. See size_7b.c.
   What it costs  A plan for each of up to eight ways, as memopt_shard_plan() takes. */
#ifndef PARTS_SHARD_CHOICE_H
#define PARTS_SHARD_CHOICE_H
#include <stdlib.h>
#include <string.h>
#include "refuse.h"
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

typedef struct shard_tier { /* where a rank may put what does not fit into its memory */
    uint64_t           room;      /* bytes */
    memopt_store_rates rates;     /* memopt_store_measure(); each at least 1 */
    int                in_memory; /* 1: other memory of the host; 0: a file */
    int                no_atomic; /* as of its store: 1: every byte once, 0: twice */
} shard_tier;

enum { SHARD_TIERS_MAX = 8 };

typedef struct shard_target { /* zero it, then set what you need */
    size_t            memory;     /* bytes that the rank may take, with those of a pass */
    const shard_tier *tiers;      /* such as the host's memory, a disk; a store takes one of them */
    size_t            tier_count; /* 0 to SHARD_TIERS_MAX */
    size_t            pass;       /* what a pass takes: memopt_tape_stats.peak */
    /* The same with a store for what the tape keeps; kept 0: there is none */
    size_t            pass_slow;
    uint64_t          kept;       /* bytes of that store */
    uint64_t          kept_read, kept_written; /* bytes a step */
} shard_target;

typedef struct shard_way {
    int      slow;      /* for memopt_shard_desc */
    size_t   tier;      /* of it: an index of the target's; SIZE_MAX: nothing is slow */
    size_t   kept_tier; /* of what a tape keeps; SIZE_MAX: it stays in memory */
    size_t   memory;    /* bytes that the rank takes */
    uint64_t read, written; /* bytes a step, from and to tiers */
    double   seconds;   /* of transfers; a step takes these or its computing, whichever is more. Tiers move at once */
} shard_way;

typedef struct shard_search {
    memopt_shard_desc   desc;
    const shard_target *target;
    memopt_shard_bytes  bytes; /* of the way that is looked at */
    uint64_t            room;  /* of its store, on its tier */
    shard_way           best;
    size_t              least; /* bytes of all ways whose tiers have the room; SIZE_MAX: there is none */
    int                 is_there;
} shard_search;

static inline memopt_status shard_check_target(memopt_error *error, const shard_target *target) {
    size_t i;

    if (target->tier_count > SHARD_TIERS_MAX || (target->tier_count && !target->tiers))
        return part_refuse(error, "shard", MEMOPT_ERR_ARGUMENT, "tiers", "are NULL, or more than 8");
    for (i = 0; i < target->tier_count; ++i) {
        const memopt_store_rates *r = &target->tiers[i].rates;

        if (r->read >= 1 && r->read <= 1e30 && r->write >= 1 && r->write <= 1e30 && r->both >= 1 && r->both <= 1e30)
            continue;
        return part_refuse(error, "shard", MEMOPT_ERR_ARGUMENT, "rates",
                           "of a tier are not all from 1 to 1e30 bytes a second");
    }
    return MEMOPT_OK;
}

/* Bytes of a store on this tier with the tiles of the planned way. */
static inline memopt_status shard_store_bytes(shard_search *s, const shard_tier *tier) {
    size_t *tiles = (size_t *)malloc(s->bytes.slow_tiles * sizeof *tiles);
    memopt_store_sizes sizes;
    memopt_store_desc d;
    memopt_status status;

    if (!tiles) return part_refuse(s->desc.error, "shard", MEMOPT_ERR_MEMORY, NULL, "no memory for the tiles of a way");
    memset(&d, 0, sizeof d);
    memset(&sizes, 0, sizeof sizes);
    d.tiles = s->bytes.slow_tiles;
    d.each_bytes = tiles;
    d.transfers = s->bytes.slow_transfers;
    d.aligned = 1;
    d.path = tier->in_memory ? NULL : "file";
    d.no_atomic = tier->no_atomic;
    d.error = s->desc.error;
    status = memopt_shard_tiles(&s->desc, tiles);
    if (!status) status = memopt_store_bytes(&d, &sizes);
    s->room = tier->in_memory ? sizes.memory : sizes.disk;
    free(tiles);
    return status;
}

static inline double shard_seconds(const shard_tier *tier, uint64_t read, uint64_t written) {
    const double in = (double)read / tier->rates.read, out = (double)written / tier->rates.write;
    const double sum = (double)(read + written) / tier->rates.both, one_way = in > out ? in : out;

    return one_way > sum ? one_way : sum;
}

/* Fill in what a way takes; 0: its tiers have no room for it. */
static inline int shard_way_takes(const shard_search *s, shard_way *way) {
    const shard_target *t = s->target;
    const size_t pass = way->kept_tier == SIZE_MAX ? t->pass : t->pass_slow;
    size_t i;

    if (pass > SIZE_MAX - s->bytes.total) return 0;
    way->memory = s->bytes.total + pass;
    way->read = way->written = 0;
    way->seconds = 0;
    for (i = 0; i < t->tier_count; ++i) {
        const int is_shard = i == way->tier, is_kept = i == way->kept_tier;
        const uint64_t room = is_shard ? s->room : 0;
        const uint64_t read = (is_shard ? s->bytes.slow_read : 0) + (is_kept ? t->kept_read : 0);
        const uint64_t written = (is_shard ? s->bytes.slow_written : 0) + (is_kept ? t->kept_written : 0);
        const double seconds = shard_seconds(&t->tiers[i], read, written);

        if (room > t->tiers[i].room || (is_kept && t->kept > t->tiers[i].room - room)) return 0;
        way->read += read;
        way->written += written;
        if (way->seconds < seconds) way->seconds = seconds;
    }
    return 1;
}

static inline int shard_is_better(const shard_way *a, const shard_way *b) {
    if (a->seconds < b->seconds || a->seconds > b->seconds) return a->seconds < b->seconds;
    if (a->read + a->written != b->read + b->written) return a->read + a->written < b->read + b->written;
    return a->memory < b->memory;
}

/* Memory, and every tier, for what a tape keeps. */
static inline void shard_try_kept(shard_search *s, size_t tier) {
    const size_t ways = s->target->kept ? s->target->tier_count + 1 : 1;
    shard_way way;
    size_t i;

    memset(&way, 0, sizeof way);
    way.slow = s->desc.slow;
    way.tier = tier;
    for (i = 0; i < ways; ++i) {
        way.kept_tier = i ? i - 1 : SIZE_MAX;
        if (!shard_way_takes(s, &way)) continue;
        if (way.memory < s->least) s->least = way.memory;
        if (way.memory > s->target->memory) continue;
        if (!s->is_there || shard_is_better(&way, &s->best)) s->best = way;
        s->is_there = 1;
    }
}

/* Every tier for what is slow. */
static inline memopt_status shard_try_slow(shard_search *s, int slow) {
    memopt_status status;
    size_t i;

    s->desc.slow = slow;
    status = memopt_shard_plan(&s->desc, &s->bytes);
    if (!status && !slow) shard_try_kept(s, SIZE_MAX);
    for (i = 0; !status && slow && i < s->target->tier_count; ++i) {
        status = shard_store_bytes(s, &s->target->tiers[i]);
        if (!status) shard_try_kept(s, i);
    }
    return status;
}

/* Choose. The desc is as for a plan, without a device; its `slow` is not read. Weights are slow in stage 3 only.
   OK; what memopt_shard_plan() refuses; ERR_ARGUMENT (NULL, a device, too many tiers, rates below 1); ERR_MEMORY:
    nothing fits, and limit.count of desc->error is the least memory that would, on tiers with this room. */
static inline memopt_status shard_choose(const memopt_shard_desc *desc, const shard_target *target, shard_way *way) {
    memopt_status status;
    shard_search s;
    int slow;

    if (!desc) return MEMOPT_ERR_ARGUMENT;
    if (!target || !way)
        return part_refuse(desc->error, "shard", MEMOPT_ERR_ARGUMENT, target ? "way" : "target", "is NULL");
    if (desc->device)
        return part_refuse(desc->error, "shard", MEMOPT_ERR_ARGUMENT, "device",
                           "is not NULL: what must be slow there is not chosen");
    status = shard_check_target(desc->error, target);
    memset(&s, 0, sizeof s);
    s.desc = *desc;
    s.target = target;
    s.least = SIZE_MAX;
    for (slow = 0; !status && slow < (target->tier_count ? 8 : 1); ++slow) {
        if ((slow & MEMOPT_SHARD_SLOW_WEIGHTS) && desc->stage != 3) continue;
        if ((slow & MEMOPT_SHARD_SLOW_EXTRA) && desc->optim.extra == MEMOPT_OPTIM_EXTRA_NONE) continue;
        status = shard_try_slow(&s, slow);
    }
    if (status) return status;
    if (s.is_there) {
        *way = s.best;
        return MEMOPT_OK;
    }
    status = part_refuse(desc->error, "shard", MEMOPT_ERR_MEMORY, "memory", "is not enough for any way");
    if (!desc->error) return status;
    desc->error->got.kind = desc->error->limit.kind = MEMOPT_QUANTITY_COUNT;
    desc->error->got.count = target->memory;
    desc->error->bound = "at least";
    desc->error->limit.count = s.least;
    return status;
}

#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
