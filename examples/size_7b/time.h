/* time.h - how long a step will take: the rates of this machine, measured once, and a walk through the step's uses.

   Rates    Of the disk by memopt_store_measure(). Of computing by one segment of each kind, forward and backward, on
            weights of its size; of stepping by one tensor; of a checksum by memory.
   Walk     Two clocks. The disk serves what is begun in its order: the next group's weights while this one computes,
            then the states of this group's step both ways, then its weights. Computing waits for weights that are not
            there yet, and a step for its last tile of states; weights leave while the next group computes. Checksums
            are computing's. */
#ifndef SEVEN_TIME_H
#define SEVEN_TIME_H
#include "model.h"

enum { EMBEDDING, ATTENTION, MLP, HEAD, KINDS };
enum { PASSES = 3 /* that are timed, in a second: of a slow machine the first alone */ };

typedef struct rates {
    memopt_store_rates disk;
    double first_write;       /* bytes a second, where nothing was written before: the system notes where it has been */
    double segment[KINDS][2]; /* seconds of a forward, of a backward */
    double step, fresh, crc;  /* seconds of an element that is stepped, is made at first; of a byte that is checked */
} rates;

static double now(void) { /* seconds */
    memopt_host host;
    uint64_t t = 0;

    if (!memopt_host_resolve(NULL, &host)) (void)host.clock.now_fn(host.clock.user, &t);
    return (double)t * 1e-9;
}

/* ---- the disk ---- */
static int measure_disk(model *m, const char *path, rates *r) {
    const uint64_t largest = (uint64_t)1 << 30;
    const int is_large = m->room.disk > largest;
    memopt_store_rates first;
    memopt_store_desc d;

    memset(&d, 0, sizeof d);
    d.tile_bytes = is_large ? (size_t)4 << 20 : (size_t)64 << 10;
    d.tiles = is_large ? (size_t)(largest / d.tile_bytes) : 16; /* beyond a disk's own cache; no more than is needed */
    d.path = path;
    d.aligned = 1;
    d.no_atomic = 1;
    d.error = &m->error;
    if (failed(m, path, memopt_store_measure(&d, 1, &first))) return 1; /* each tile once */
    r->first_write = first.write;
    return failed(m, path, memopt_store_measure(&d, is_large ? 1000000000u : 10000000u, &r->disk));
}

/* ---- computing ---- */
typedef struct workplace { /* of one segment */
    void *weights, *gradients;
    unsigned char *input, *grad;
    size_t largest; /* elements of a group */
} workplace;

static transformer_part *part_of(model *m, size_t segment) {
    return (transformer_part *)m->layers[segment].user;
}

/* Passes of one segment alone: the shortest, after the first, which takes memory, where there are others. */
static int measure_segment(model *m, const workplace *w, size_t segment, double *seconds) {
    transformer_part *part = part_of(m, segment);
    const int is_first = !segment, is_last = segment + 1 == m->count;
    memopt_tape_desc d;
    memopt_tape *tape = NULL;
    memopt_status s;
    double start;
    int i;

    memset(&d, 0, sizeof d);
    part->weights = w->weights;
    part->gradients = w->gradients;
    d.chain.segments = &m->segments[segment];
    d.chain.count = 1;
    d.chain.input_bytes = is_first ? transformer_rows(&m->shape) * sizeof(int32_t)
                                   : transformer_bytes(&m->shape, m->shape.width);
    d.chain.input_grad_bytes = is_first ? 0 : d.chain.input_bytes;
    d.layers = &m->layers[segment];
    d.arena = m->arena;
    d.rule = MEMOPT_SCHEDULE_ALL;
    d.error = &m->error;
    s = memopt_tape_create(&d, &tape);
    start = now();
    for (i = 0; !s && i <= PASSES && (!i || now() - start < 1); ++i) {
        const double begin = now();
        double middle, end;

        s = memopt_tape_forward(tape, is_first ? (const void *)m->ids : w->input);
        middle = now();
        if (!s) s = memopt_tape_backward(tape, is_last ? NULL : w->grad, is_first ? NULL : w->grad);
        end = now();
        if (i <= 1 || middle - begin < seconds[0]) seconds[0] = middle - begin;
        if (i <= 1 || end - middle < seconds[1]) seconds[1] = end - middle;
        if (s) m->error = memopt_tape_error(tape);
    }
    memopt_tape_destroy(tape);
    return failed(m, "The rate of a layer", s);
}

static int measure_segments(model *m, const workplace *w, rates *r) {
    const size_t at[KINDS] = { 0, 1, 2, m->count - 1 };
    int kind;

    for (kind = 0; kind < KINDS; ++kind) {
        const memopt_mark begin = memopt_arena_mark(m->arena);

        if (measure_segment(m, w, at[kind], r->segment[kind])) return 1;
        if (failed(m, "The memory", memopt_arena_rewind(m->arena, begin))) return 1;
    }
    return 0;
}

/* Of steps on a tensor as large as the largest group, as no cache holds one. */
static int measure_step(model *m, const workplace *w, rates *r) {
    memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    memopt_optim_tensor tensor;
    memopt_optim_desc d = model_shard(m).optim;
    memopt_optim_run run;
    memopt_optim *optim = NULL;
    memopt_status s;

    memset(&tensor, 0, sizeof tensor);
    memset(&run, 0, sizeof run);
    tensor.weights = w->weights;
    tensor.gradients = w->gradients;
    tensor.count = w->largest;
    d.tensors = &tensor;
    d.tensor_count = 1;
    run.groups = &group;
    run.group_count = 1;
    s = memopt_optim_open(&d, NULL, &optim);
    for (run.step = 1; !s && run.step <= 1 + PASSES; ++run.step) {
        const double begin = now();
        double each;

        s = memopt_optim_step(optim, &run);
        each = (now() - begin) / (double)w->largest;
        if (run.step <= 2 || each < r->step) r->step = each;
    }
    memopt_optim_close(optim);
    return failed(m, "The rate of a step", s);
}

/* From pages, as in the run: their size is a part of how fast a product is. */
static int open_workplace(model *m, workplace *w) {
    const size_t rows = transformer_bytes(&m->shape, m->shape.width);
    const size_t weights = w->largest * memopt_type_bytes(m->shape.weight_type);
    const size_t ids = 2 * transformer_rows(&m->shape);
    memopt_arena_desc a;

    memset(&a, 0, sizeof a);
    if (failed(m, "The memory", memopt_source_pages(NULL, &m->source))) return 1;
    a.source = &m->source;
    a.capacity = round_up(2 * (weights + m->arena_bytes), m->source.granularity); /* more than enough: only addresses */
    if (failed(m, "The memory", memopt_arena_create(&a, &m->arena))) return 1;
    w->weights = memopt_arena_push_zero(m->arena, weights, MEMOPT_TAG_OTHER); /* touched, as a tile's buffer is */
    w->gradients = memopt_arena_push_zero(m->arena, weights, MEMOPT_TAG_OTHER);
    w->input = (unsigned char *)memopt_arena_push(m->arena, rows, MEMOPT_TAG_OTHER);
    w->grad = (unsigned char *)memopt_arena_push_zero(m->arena, rows, MEMOPT_TAG_OTHER);
    m->ids = MEMOPT_PUSH(m->arena, int32_t, ids, MEMOPT_TAG_OTHER);
    if (!w->weights || !w->gradients || !w->input || !w->grad || !m->ids)
        return refuse(m, "There is no memory to measure with.");
    m->head.targets = m->targets = m->ids + ids / 2;
    model_batch(m, 0);
    return 0;
}

/* Weights that are made, and their checksum. */
static int measure_making(model *m, const workplace *w, rates *r) {
    const size_t type = memopt_type_bytes(m->shape.weight_type), piece = (size_t)1 << 20;
    size_t i, t, elements;
    double begin = now();

    for (t = 0; t < m->tensor_count && !m->sizes[t].columns; ++t) {}
    for (i = 0; i < w->largest; i += elements) {
        elements = w->largest - i < piece ? w->largest - i : piece;
        if (failed(m, "The weights", initial_weights(m, t, 0, elements, (unsigned char *)w->weights + i * type)))
            return 1;
    }
    r->fresh = (now() - begin) / (double)w->largest;
    elements = transformer_bytes(&m->shape, m->shape.width) / type;
    if (failed(m, "The input", initial_weights(m, t, 0, elements, w->input))) return 1;
    begin = now();
    (void)memopt_crc32c(0, w->weights, w->largest * type);
    r->crc = (now() - begin) / (double)(w->largest * type);
    return 0;
}

static int measure_computing(model *m, rates *r) {
    size_t i, t, elements;
    workplace w;
    int wrong;

    memset(&w, 0, sizeof w);
    for (i = 0; i < m->count; ++i) {
        for (elements = 0, t = part_of(m, i)->first_tensor; t < m->tensor_count && m->tensors[t].group == i; ++t)
            elements += round_up(m->tensors[t].count, m->shape.grain);
        w.largest = elements > w.largest ? elements : w.largest;
    }
    wrong = open_workplace(m, &w) || measure_making(m, &w, r) || measure_segments(m, &w, r) || measure_step(m, &w, r);
    memopt_arena_destroy(m->arena);
    m->arena = NULL;
    m->ids = m->targets = NULL;
    return wrong;
}

/* ---- the walk ---- */
typedef struct walk {
    double computing, disk;   /* now, on each clock */
    double busy, moving;      /* seconds of work on each */
    double elements, bytes;   /* of the group in use; of its weights */
} walk;

static int kind_of(const model *m, size_t group) {
    return !group ? EMBEDDING : group + 1 == m->count ? HEAD : group % 2 ? ATTENTION : MLP;
}

static double group_elements(const model *m, size_t group) {
    const transformer_part *part = (const transformer_part *)m->layers[group].user;
    double sum = 0;
    size_t t;

    for (t = part->first_tensor; t < part->first_tensor + part->tensor_count; ++t) sum += (double)m->tensors[t].count;
    return sum;
}

static void walk_compute(walk *w, double seconds) {
    w->computing += seconds;
    w->busy += seconds;
}

static void walk_move(walk *w, double seconds) { /* begun now */
    if (w->disk < w->computing) w->disk = w->computing;
    w->disk += seconds;
    w->moving += seconds;
}

/* The time of a step; is_first: its region of the file was never written. done_at: NULL, or of each use, when it is
   over. In memory nothing moves. */
static walk walk_step(const model *m, const rates *r, int is_first, double *done_at) {
    const double type = (double)memopt_type_bytes(m->shape.weight_type);
    const double states = (double)m->bytes.slow_states / model_parameters(m); /* bytes of an element, about */
    const double slower = is_first && r->first_write < r->disk.write ? 1 / r->first_write - 1 / r->disk.write : 0;
    const int moves = !m->o->in_memory;
    size_t u, here = SIZE_MAX, next;
    double ready = 0; /* when the weights that are under way are there */
    walk w;

    memset(&w, 0, sizeof w);
    for (u = 0; u < m->use_count; ++u) {
        const memopt_shard_use use = m->uses[u];
        const double elements = group_elements(m, use.group);

        if (moves && use.group != here) {
            if (!u) walk_move(&w, elements * type / r->disk.read);
            if (!u) ready = w.disk;
            if (w.computing < ready) w.computing = ready;
            walk_compute(&w, elements * type * r->crc);
            here = use.group;
            for (next = u; next < m->use_count && m->uses[next].group == here; ++next) {}
            if (next < m->use_count) walk_move(&w, group_elements(m, m->uses[next].group) * type / r->disk.read);
            ready = w.disk;
        }
        walk_compute(&w, r->segment[kind_of(m, use.group)][use.is_backward]);
        if (use.is_backward) {
            if (moves) walk_move(&w, elements * states * (2 / r->disk.both + slower));
            walk_compute(&w, elements * (r->step + (moves ? (2 * states + type) * r->crc : 0)));
            if (w.computing < w.disk) w.computing = w.disk;
            if (moves) walk_move(&w, elements * type * (1 / r->disk.write + slower));
        }
        if (done_at) done_at[u] = w.computing;
    }
    return w;
}

/* To write weights and begun states before the first step: a piece is made while others are written. */
static double seconds_to_begin(const model *m, const rates *r) {
    const double bytes = (double)(m->bytes.slow_weights + m->bytes.slow_states);
    const double making = model_parameters(m) * r->fresh + (m->o->in_memory ? 0 : bytes * r->crc);
    const double moving = m->o->in_memory ? 0 : bytes / r->first_write;

    return making > moving ? making : moving;
}

/* A schedule is chosen by these: a forward that is run again reads its weights again, while the one before computes. */
static void costs_in_seconds(model *m, const rates *r) {
    const double type = (double)memopt_type_bytes(m->shape.weight_type);
    size_t i;

    for (i = 0; i < m->count; ++i) {
        const double arrives = m->o->in_memory ? 0 : group_elements(m, i) * type / r->disk.read;
        const double *seconds = r->segment[kind_of(m, i)];

        m->segments[i].forward_cost = seconds[0] > arrives ? seconds[0] : arrives;
        m->segments[i].backward_cost = seconds[1];
    }
}
#endif
