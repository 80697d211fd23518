/* advise_text.h - a choice of memopt_advise_solve() as one line for people.

   What to see    "stage 2 among 2 ranks, weights bf16, states 8-bit, attention by rows, micro-batch 4 in 1 round,
                  3.0 GiB of activations".
   How to use     memopt_advise_text(&advice.choice, line, sizeof line, NULL); see advise_tool.c. */
#ifndef PARTS_ADVISE_TEXT_H
#define PARTS_ADVISE_TEXT_H
#include <stdarg.h>
#include <stdio.h>
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

typedef struct advise_line {
    char  *text;
    size_t capacity, length;
} advise_line;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static inline void advise_put(advise_line *o, const char *format, ...) {
    const size_t at = o->length < o->capacity ? o->length : o->capacity;
    va_list list;
    int n;

    va_start(list, format);
    n = vsnprintf(o->capacity ? o->text + at : NULL, o->capacity - at, format, list);
    va_end(list);
    if (n > 0) o->length += (size_t)n;
}

static inline void advise_put_bytes(advise_line *o, size_t bytes) { /* 12.3 MiB, rounded down */
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    unsigned long long whole = bytes;
    unsigned tenths = 0;
    int unit = 0;

    for (; whole >= 1024; whole /= 1024, ++unit) tenths = (unsigned)(whole % 1024 * 10 / 1024);
    if (unit) advise_put(o, "%llu.%u %s", whole, tenths, units[unit]);
    else advise_put(o, "%llu B", whole);
}

/* buffer, capacity, length as in memopt_error_text(). OK, ERR_ARGUMENT, ERR_BUFFER. */
static inline memopt_status memopt_advise_text(const memopt_advise_choice *x, char *buffer, size_t capacity,
                                               size_t *length) {
    static const char *const weights[3] = { "fp32", "bf16 split", "bf16" };
    static const char *const states[3] = { "fp32", "bf16", "8-bit" };
    advise_line o;

    if (!x || (!buffer && capacity) || (unsigned)x->weights > 2 || (unsigned)x->states > 2) return MEMOPT_ERR_ARGUMENT;
    o.text = buffer;
    o.capacity = capacity;
    o.length = 0;
    if (x->ranks > 1) advise_put(&o, "stage %d among %lu ranks, ", x->stage, (unsigned long)x->ranks);
    if (x->threads > 1) advise_put(&o, "%s%lu threads, ", x->ranks > 1 ? "each of " : "", (unsigned long)x->threads);
    advise_put(&o, "weights %s, states %s", weights[x->weights], states[x->states]);
    if (x->steps_inside) advise_put(&o, ", step inside backward");
    if (x->slow) advise_put(&o, ", states%s %s", x->slow & MEMOPT_SHARD_SLOW_WEIGHTS ? " and weights" : "",
                            x->on_disk ? "on disk" : "in the host's memory");
    advise_put(&o, x->whole_scores ? ", attention whole" : ", attention by rows");
    if (x->head_chunk) advise_put(&o, ", head by %lu rows", (unsigned long)x->head_chunk);
    if (x->mlp_chunk) advise_put(&o, ", MLP by %lu rows", (unsigned long)x->mlp_chunk);
    advise_put(&o, ", micro-batch %lu in %lu round%s, ", (unsigned long)x->micro_batch, (unsigned long)x->rounds,
               x->rounds == 1 ? "" : "s");
    advise_put_bytes(&o, x->keep_budget);
    advise_put(&o, " of activations");
    if (length) *length = o.length;
    return o.length < capacity ? MEMOPT_OK : MEMOPT_ERR_BUFFER;
}

#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
