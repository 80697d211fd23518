/* ranks_groups.h - which of all ranks have something in common, and a communicator for it: those of a set, of a pass,
   of the same part of the model, or two places of a pipeline. All of it goes by the switches and a rank's number. */
#ifndef GPT_RANKS_GROUPS_H
#define GPT_RANKS_GROUPS_H

/* But for the first only where there are several sets, or ranks share a pass. Links of a pipeline: from even places to
   the next, from odd ones, and around, between the last and the first. Of the first three the earlier rank sends. */
enum { ALL_RANKS, OWN_SET, BETWEEN_SETS, OWN_PASS, OWN_CUT, LINK_ON, LINK_BACK_AROUND = LINK_ON + 2, LINK_BACK,
       LINK_ON_AROUND = LINK_BACK + 2, LINK_TIED, COMMS };

/* Ranks side by side share a pass: those of a stage by width, one stage behind the other; or all of them by length. */
static size_t length_ranks(const options *o) { return o->sequence ? o->sequence : 1; }
static size_t model_ranks(const options *o) { return o->tensor * o->pipeline; } /* which have the model together */
static size_t pass_ranks(const options *o) { return model_ranks(o) * length_ranks(o); }
static size_t pass_count(const options *o) { return o->ranks / pass_ranks(o); }
static size_t pass_of(const options *o, size_t number) { return number / pass_ranks(o); }

/* Ranks that have the same of the model cut it among themselves: those of a set. */
static size_t holder_of(const options *o, size_t number) { return number / model_ranks(o); }
static size_t set_ranks(const options *o) { return o->ranks / model_ranks(o) / o->replicas; }
static size_t cut_ranks(const options *o) { return o->tensor * length_ranks(o); } /* one of them is 1 */
static size_t place_in_pipeline(const options *o, size_t number) { return number % pass_ranks(o) / o->tensor; }

/* ---- communicators ---- */
enum { NO_GROUP = -1 };

/* Of two places that follow each other, the first even (0) or odd (1); around (2): the last and the first. */
static int group_of_link(const options *o, size_t number, size_t which) {
    const size_t place = place_in_pipeline(o, number), last = o->pipeline - 1;
    const size_t first = which == 2 ? last : (place - which) / 2 * 2 + which;

    if (which == 2 ? o->chunks == 1 || (place && place < last) : place < which || first == last) return NO_GROUP;
    return (int)((pass_of(o, number) * o->pipeline + first) * o->tensor + number % o->tensor);
}

/* The group of a rank, in which ranks are in their order, or the other way round; NO_GROUP: one of all ranks stands for
   it, or it would be of one rank. */
static int group_of(const options *o, int kind, size_t number) {
    const size_t pass = pass_of(o, number), size = set_ranks(o), within = number % model_ranks(o);
    const size_t holder = holder_of(o, number), place = place_in_pipeline(o, number);

    switch (kind) {
    case ALL_RANKS: return 0;
    case OWN_SET:
        if (o->replicas == 1 && model_ranks(o) == 1) return NO_GROUP;
        return (int)(holder / size * model_ranks(o) + within);
    case BETWEEN_SETS: return o->replicas == 1 ? NO_GROUP : (int)(holder % size * model_ranks(o) + within);
    case OWN_PASS: return model_ranks(o) == 1 ? NO_GROUP : (int)pass;
    case OWN_CUT: return cut_ranks(o) == 1 ? NO_GROUP : (int)(number / cut_ranks(o));
    case LINK_TIED:
        if (o->pipeline == 1 || (place && place + 1 < o->pipeline)) return NO_GROUP;
        return (int)(pass * o->tensor + number % o->tensor);
    default: return o->pipeline == 1 ? NO_GROUP : group_of_link(o, number, (size_t)(kind - LINK_ON) % 3);
    }
}

static int group_is_reversed(int kind) { return kind >= LINK_BACK; } /* the later rank sends */

static size_t rank_of_group(const options *o, int kind, size_t number, size_t index) {
    size_t i = group_is_reversed(kind) ? o->ranks - 1 : 0;

    for (;; i += group_is_reversed(kind) ? (size_t)-1 : 1)
        if (group_of(o, kind, i) == group_of(o, kind, number) && !index--) return i;
}
#endif
