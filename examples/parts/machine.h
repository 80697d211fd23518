/* machine.h - the rates of a machine for memopt_advise_machine: measured, in place of a data sheet, and as text.

   What it does   machine_calibrate() measures products, copies, an engine's own segments, a link between ranks, a disk.
                  machine_write() and machine_read() are a file that people can edit: a line for each field that is not
                  0, as "bf16_rate 9.89e+14".
   How to use     See advise_tool.c: `advise_tool --measure FILE` writes such a file, and takes it as a machine's name.
   What it costs  About trial.nanoseconds for each rate; 70 MB of memory for products.
   Trap           Numbers are read and written by the C library, which asks the locale for the decimal point: these
                  files want "C", as programs begin. */
#ifndef PARTS_MACHINE_H
#define PARTS_MACHINE_H
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "refuse.h"
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

typedef struct machine_trial { /* zero it, then set at least one of products, tape, comm, store */
    int          products;      /* 1: measure f32_rate, bf16_rate and bandwidth by the library's products and copies */
    const memopt_threads *threads; /* for both; NULL = the calling thread */
    memopt_tape *tape;          /* or an engine's segments: the rate is what they reach */
    const void  *input, *grad_output; /* of its pass, as for memopt_tape_calibrate(), which solves it anew */
    void        *grad_input;
    double       operations;    /* of its pass, forward and backward */
    int          is_16;         /* 1: they count for bf16_rate; else for f32_rate */
    memopt_comm *comm;          /* NULL, or measures a link between two or more ranks, which all call. A rank that fails
                                   before the link aborts comm, so that no other waits */
    int          between_hosts; /* 1: the link is machine->network; else machine->local */
    const memopt_store_desc *store; /* NULL, or a disk (without a path: the host's memory), as for
                                       memopt_store_measure() */
    uint64_t     nanoseconds;   /* for each rate, about; 0 = default: 2 seconds */
    const memopt_host *host;    /* memory to measure with, clock; NULL = the C library's */
    memopt_error *error;        /* NULL, or filled in on failure; not kept */
} machine_trial;

enum {
    MACHINE_SIDE = 512,       /* of products */
    MACHINE_COPY = 64 << 20,  /* bytes of memory, read and written */
    MACHINE_PIECE = 1 << 20,  /* of it, and that a rank sends to each other one */
    MACHINE_TRIES = 31,
    MACHINE_ALIGN = 64
};

typedef struct machine_watch {
    const machine_trial *trial;
    memopt_host host;
    uint64_t nanoseconds;
    unsigned char *room; /* to copy within, or to multiply in */
    memopt_product product;
    size_t scratch;      /* bytes of a product, behind its operands */
    memopt_comm_call call;
} machine_watch;

typedef memopt_status machine_run_fn(machine_watch *w);

/* ---- measured ---- */

static inline memopt_status machine_room(machine_watch *w, size_t bytes) {
    w->room = (unsigned char *)w->host.allocator.alloc_fn(w->host.allocator.user, bytes, MACHINE_ALIGN);
    if (!w->room) return part_refuse(w->trial->error, "machine", MEMOPT_ERR_MEMORY, NULL, "no memory to measure with");
    memset(w->room, 0, bytes);
    return MEMOPT_OK;
}

static inline void machine_room_back(machine_watch *w, size_t bytes) {
    w->host.allocator.free_fn(w->host.allocator.user, w->room, bytes, MACHINE_ALIGN);
}

static inline memopt_status machine_now(machine_watch *w, uint64_t *now) {
    if (!w->host.clock.now_fn(w->host.clock.user, now)) return MEMOPT_OK;
    return part_refuse(w->trial->error, "machine", MEMOPT_ERR_IO, "clock", "failed");
}

/* The median time of up to `tries` runs, fewer if the time is over, but at least three. */
static inline memopt_status machine_time(machine_watch *w, machine_run_fn *work, int tries, double *seconds) {
    double took[MACHINE_TRIES];
    uint64_t begun = 0, from, now = 0;
    memopt_status s = machine_now(w, &begun);
    int n = 0;

    for (from = begun; !s && n < tries && (n < 3 || tries < MACHINE_TRIES || from - begun < w->nanoseconds); ++n) {
        double spent;
        int at;

        s = work(w);
        if (!s) s = machine_now(w, &now);
        spent = 1e-9 * (double)(now > from ? now - from : 1);
        for (at = n; at && took[at - 1] > spent; --at) took[at] = took[at - 1];
        took[at] = spent;
        from = now;
    }
    if (!s) *seconds = took[n / 2];
    return s;
}

static inline memopt_status machine_multiply(machine_watch *w) {
    const size_t operands = 3 * sizeof(float) * MACHINE_SIDE * MACHINE_SIDE;

    return memopt_gemm_multiply(&w->product, w->trial->threads, w->room + operands, w->scratch);
}

static inline memopt_status machine_rate_of(machine_watch *w, memopt_type type, double *rate) {
    const size_t bytes = sizeof(float) * MACHINE_SIDE * MACHINE_SIDE;
    memopt_product *p = &w->product;
    double seconds = 1;
    memopt_status s;

    memset(p, 0, sizeof *p);
    p->rows = p->columns = p->depth = p->left_stride = p->right_stride = p->result_stride = MACHINE_SIDE;
    p->right_transposed = 1;
    p->left_type = p->right_type = type;
    p->left = w->room;
    p->right = w->room + bytes;
    p->result = (float *)(void *)(w->room + 2 * bytes);
    p->error = w->trial->error;
    s = machine_time(w, machine_multiply, MACHINE_TRIES, &seconds);
    *rate = 2 * (double)p->rows * (double)p->columns * (double)p->depth / seconds;
    return s;
}

static inline void machine_copy_piece(void *task, size_t chunk, int worker) {
    unsigned char *room = (unsigned char *)task + chunk * MACHINE_PIECE;

    (void)worker;
    memcpy(room + MACHINE_PIECE / 2, room, MACHINE_PIECE / 2);
}

static inline memopt_status machine_copy(machine_watch *w) {
    const memopt_threads *t = w->trial->threads;
    const size_t pieces = MACHINE_COPY / MACHINE_PIECE;
    size_t i;

    if (t && t->run_fn) t->run_fn(t->user, pieces, machine_copy_piece, w->room);
    else for (i = 0; i < pieces; ++i) machine_copy_piece(w->room, i, 0);
    return MEMOPT_OK;
}

static inline memopt_status machine_products(machine_watch *w, memopt_advise_machine *m) {
    size_t bytes;
    double seconds = 1;
    memopt_status s;

    w->scratch = memopt_gemm_scratch(w->trial->threads);
    bytes = MACHINE_COPY + w->scratch;
    s = machine_room(w, bytes);
    if (s) return s;
    s = machine_rate_of(w, MEMOPT_TYPE_F32, &m->f32_rate);
    if (!s) s = machine_rate_of(w, MEMOPT_TYPE_BF16, &m->bf16_rate);
    if (!s) s = machine_time(w, machine_copy, MACHINE_TRIES, &seconds);
    m->bandwidth = (double)MACHINE_COPY / seconds;
    m->efficiency = 1;
    machine_room_back(w, bytes);
    return s;
}

static inline memopt_status machine_segments(machine_watch *w, memopt_advise_machine *m) {
    const machine_trial *t = w->trial;
    double seconds = 0;
    size_t i, count, repeats = 1;
    int round;

    for (round = 0; round < 2; ++round) {
        const memopt_status s = memopt_tape_calibrate(t->tape, t->input, t->grad_output, t->grad_input, repeats);
        const memopt_segment *segments = memopt_tape_segments(t->tape, &count);

        if (s && t->error) *t->error = memopt_tape_error(t->tape);
        if (s) return s;
        for (i = 0, seconds = 0; i < count; ++i) seconds += segments[i].forward_cost + segments[i].backward_cost;
        repeats = (size_t)(1e-9 * (double)w->nanoseconds / (seconds > 1e-6 ? seconds : 1e-6)) + 3;
    }
    *(t->is_16 ? &m->bf16_rate : &m->f32_rate) = t->operations / (seconds > 0 ? seconds : 1e-9);
    m->efficiency = 1;
    return MEMOPT_OK;
}

static inline memopt_status machine_gather(machine_watch *w) {
    const memopt_status s = memopt_comm_run(w->trial->comm, &w->call);

    if (s && w->trial->error) *w->trial->error = memopt_comm_error(w->trial->comm);
    return s;
}

/* All-gathers of 64 bytes, and of a megabyte. Every rank runs as many, whatever its clock says. */
static inline memopt_status machine_link(machine_watch *w, memopt_shard_link *link) {
    const size_t ranks = memopt_comm_get_stats(w->trial->comm).rank_count;
    const size_t bytes = (ranks + 1) * MACHINE_PIECE;
    double small = 0, large = 0;
    memopt_status s = machine_room(w, bytes);

    if (s) return s;
    w->call.kind = MEMOPT_COMM_ALL_GATHER;
    w->call.bytes = 64;
    w->call.send = w->room;
    w->call.receive = w->room + MACHINE_PIECE;
    s = machine_time(w, machine_gather, MACHINE_TRIES - 1, &small);
    w->call.bytes = MACHINE_PIECE;
    if (!s) s = machine_time(w, machine_gather, MACHINE_TRIES - 1, &large);
    machine_room_back(w, bytes);
    link->latency = small;
    link->bandwidth = (double)((ranks - 1) * MACHINE_PIECE) / (large - small > 1e-9 ? large - small : 1e-9);
    return s;
}

static inline memopt_status machine_disk(machine_watch *w, memopt_advise_machine *m) {
    memopt_store_desc d = *w->trial->store;
    memopt_store_rates rates = { 0, 0, 0 };
    memopt_status s;

    d.error = w->trial->error;
    s = memopt_store_measure(&d, w->nanoseconds, &rates);
    if (d.path) m->disk_bandwidth = rates.both;
    else m->host_bandwidth = rates.both / 2;
    return s;
}

static inline memopt_status machine_check(const machine_trial *t) {
    if (!t->products && !t->tape && !t->comm && !t->store)
        return part_refuse(t->error, "machine", MEMOPT_ERR_ARGUMENT, "trial", "has nothing to measure");
    if (t->tape && !(t->operations >= 1 && t->operations <= 1e300))
        return part_refuse(t->error, "machine", MEMOPT_ERR_ARGUMENT, "operations", "are required with a tape");
    if (t->comm && memopt_comm_get_stats(t->comm).rank_count < 2)
        return part_refuse(t->error, "machine", MEMOPT_ERR_ARGUMENT, "comm", "is of a single rank");
    return MEMOPT_OK;
}

/* Measures, and writes the measured fields, with efficiency 1 beside rates; the other fields stay. Measure again for
   another number of threads. The machine is untouched on failure. OK; ERR_ARGUMENT (NULL, nothing to measure, a tape
   without operations, a single rank, half a host), ERR_MEMORY, ERR_IO (the clock), or what the tape, the comm or the
   store returns. */
static inline memopt_status machine_calibrate(const machine_trial *trial, memopt_advise_machine *machine) {
    memopt_advise_machine m;
    machine_watch w;
    memopt_status s;

    if (!trial) return MEMOPT_ERR_ARGUMENT;
    if (!machine) return part_refuse(trial->error, "machine", MEMOPT_ERR_ARGUMENT, "machine", "is NULL");
    s = machine_check(trial);
    if (s) return s;
    memset(&w, 0, sizeof w);
    s = memopt_host_resolve(trial->host, &w.host);
    if (s) return part_refuse(trial->error, "machine", s, "host", "is half set");
    w.trial = trial;
    w.nanoseconds = trial->nanoseconds ? trial->nanoseconds : UINT64_C(2000000000);
    m = *machine;
    if (trial->products) s = machine_products(&w, &m);
    if (trial->tape && !s) s = machine_segments(&w, &m);
    if (trial->comm && !s) s = machine_link(&w, trial->between_hosts ? &m.network : &m.local);
    if (trial->comm && s) memopt_comm_abort(trial->comm); /* the other ranks would wait in the link */
    if (trial->store && !s) s = machine_disk(&w, &m);
    if (!s) *machine = m;
    return s;
}

/* ---- as text ---- */

typedef enum machine_type { MACHINE_SIZE, MACHINE_COUNT, MACHINE_FLAG, MACHINE_REAL } machine_type;

typedef struct machine_field {
    const char *name;
    machine_type type;
    size_t at;
} machine_field;

enum { MACHINE_FIELDS = 20 };

static inline const machine_field *machine_fields(void) {
#define MACHINE_AT(name, type) { #name, type, offsetof(memopt_advise_machine, name) }
    static const machine_field fields[MACHINE_FIELDS] = {
        MACHINE_AT(processors, MACHINE_SIZE), MACHINE_AT(of_host, MACHINE_SIZE), MACHINE_AT(most_threads, MACHINE_SIZE),
        MACHINE_AT(memory, MACHINE_COUNT), MACHINE_AT(reserve, MACHINE_COUNT), MACHINE_AT(host_memory, MACHINE_COUNT),
        MACHINE_AT(disk, MACHINE_COUNT), MACHINE_AT(f32_rate, MACHINE_REAL), MACHINE_AT(bf16_rate, MACHINE_REAL),
        MACHINE_AT(efficiency, MACHINE_REAL), MACHINE_AT(multiprocessors, MACHINE_SIZE),
        MACHINE_AT(bandwidth, MACHINE_REAL), MACHINE_AT(host_bandwidth, MACHINE_REAL),
        MACHINE_AT(disk_bandwidth, MACHINE_REAL), MACHINE_AT(local.latency, MACHINE_REAL),
        MACHINE_AT(local.bandwidth, MACHINE_REAL), MACHINE_AT(local.waits, MACHINE_FLAG),
        MACHINE_AT(network.latency, MACHINE_REAL), MACHINE_AT(network.bandwidth, MACHINE_REAL),
        MACHINE_AT(network.waits, MACHINE_FLAG)
    };
#undef MACHINE_AT
    return fields;
}

/* Writes a machine as text; real numbers to six digits. OK, ERR_ARGUMENT (NULL), ERR_IO. */
static inline memopt_status machine_write(const memopt_advise_machine *machine, FILE *file) {
    const machine_field *f = machine_fields();
    int i;

    if (!machine || !file) return MEMOPT_ERR_ARGUMENT;
    for (i = 0; i < MACHINE_FIELDS; ++i, ++f) {
        const void *at = (const unsigned char *)machine + f->at;
        const uint64_t count = f->type == MACHINE_SIZE ? *(const size_t *)at : f->type == MACHINE_COUNT
            ? *(const uint64_t *)at : f->type == MACHINE_FLAG ? (uint64_t)*(const int *)at : 0;

        if (f->type == MACHINE_REAL && *(const double *)at > 0)
            fprintf(file, "%s %.6g\n", f->name, *(const double *)at);
        if (count) fprintf(file, "%s %llu\n", f->name, (unsigned long long)count);
    }
    return ferror(file) ? MEMOPT_ERR_IO : MEMOPT_OK;
}

/* A decimal number that takes all of the text, and as a whole one, if it is: 24000000000, 24e9. 0: it is none. */
static inline int machine_number(const char *text, double *real, unsigned long long *count, int *is_whole) {
    char *end;

    if (text[strspn(text, "0123456789.eE+-")] || *text == '+' || *text == '-') return 0; /* strtod() takes more */
    *real = strtod(text, &end);
    if (end == text || *end || !(*real <= 1e300)) return 0;
    errno = 0;
    *count = strtoull(text, &end, 10);
    *is_whole = !*end && !errno;
    if (!*end || *real >= 18446744073709551616.0) return 1;
    *count = (unsigned long long)*real;
    *is_whole = !((double)*count < *real);
    return 1;
}

/* 0: the text is no number within the field's range. */
static inline int machine_set(const machine_field *f, const char *text, memopt_advise_machine *m) {
    const uint64_t most = f->type == MACHINE_SIZE ? SIZE_MAX : f->type == MACHINE_COUNT ? UINT64_MAX : 1;
    void *at = (unsigned char *)m + f->at;
    unsigned long long count;
    double real;
    int is_whole;

    if (!machine_number(text, &real, &count, &is_whole)) return 0;
    if (f->type != MACHINE_REAL && (!is_whole || count > most)) return 0;
    switch (f->type) {
    case MACHINE_SIZE:  *(size_t *)at = (size_t)count; break;
    case MACHINE_COUNT: *(uint64_t *)at = count; break;
    case MACHINE_FLAG:  *(int *)at = (int)count; break;
    default:            *(double *)at = real; break;
    }
    return 1;
}

static inline memopt_status machine_read_line(char *line, memopt_advise_machine *m, uint32_t *seen,
                                              memopt_error *error) {
    const size_t name = strcspn(line, " ");
    const machine_field *f = machine_fields();
    int i = 0;

    while (i < MACHINE_FIELDS && (strlen(f[i].name) != name || memcmp(f[i].name, line, name))) ++i;
    if (i == MACHINE_FIELDS)
        return part_refuse(error, "machine", MEMOPT_ERR_FORMAT, "name", "is no field of a machine");
    if (*seen >> i & 1) return part_refuse(error, "machine", MEMOPT_ERR_FORMAT, f[i].name, "comes twice");
    *seen |= (uint32_t)1 << i;
    line += name;
    if (machine_set(&f[i], line + strspn(line, " "), m)) return MEMOPT_OK;
    return part_refuse(error, "machine", MEMOPT_ERR_FORMAT, f[i].name,
                       "is not followed by one number within its range");
}

/* Reads such a text. Blank lines and lines that begin with # are skipped; fields without a line stay as they are. The
   machine is untouched on failure. OK; ERR_ARGUMENT (NULL); ERR_FORMAT (a line that is not a field and a number within
   its range, a field that occurs twice: the error has the field and the line); ERR_IO. */
static inline memopt_status machine_read(FILE *file, memopt_advise_machine *machine, memopt_error *error) {
    memopt_advise_machine m;
    char line[256];
    uint32_t seen = 0;
    size_t number, length;

    if (!file || !machine)
        return part_refuse(error, "machine", MEMOPT_ERR_ARGUMENT, file ? "machine" : "file", "is NULL");
    m = *machine;
    for (number = 1; fgets(line, sizeof line, file); ++number) {
        memopt_status s;

        for (length = strlen(line); length && strchr("\r\n ", line[length - 1]);) line[--length] = 0;
        if (!length || line[0] == '#') continue;
        s = machine_read_line(line, &m, &seen, error);
        if (s && error) {
            error->place = "line";
            error->index = number;
        }
        if (s) return s;
    }
    if (ferror(file)) return part_refuse(error, "machine", MEMOPT_ERR_IO, "file", "could not be read");
    *machine = m;
    return MEMOPT_OK;
}

#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
