/* bench_optim.c - nanoseconds an element and step, 64 Mi elements, 1 and 2 threads.
   The limit of each row is a loop over the same bytes, read or read and written in place, in the same chunks, with the
   same prefetching, in the same round: what the memory of this machine allows. Rows and limits take turns, seven rounds. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

#define BENCH_COUNT  ((size_t)64 << 20)
#define BENCH_ROUNDS 7
enum { BENCH_STREAMS = 6 };
typedef struct bench_stream { unsigned char *bytes; size_t size; int writes; } bench_stream; /* size: bytes an element */
typedef struct bench_row_of {
    const char            *name;
    memopt_optim_kind      kind;
    memopt_state_format    state;
    memopt_i_weights       weights;
    memopt_type            gradients;
} bench_row_of;
static const bench_row_of bench_rows[] = {
    { "adamw_f32",    MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_F32, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32 },
    { "adamw8_f32",   MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, MEMOPT_I_WEIGHTS_F32,   MEMOPT_TYPE_F32 },
    { "adamw8_bf16",  MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, MEMOPT_I_WEIGHTS_BF16,  MEMOPT_TYPE_BF16 },
    { "adamw8_split", MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_8BIT, MEMOPT_I_WEIGHTS_SPLIT, MEMOPT_TYPE_BF16 },
    { "adamw_bf16",   MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_BF16, MEMOPT_I_WEIGHTS_BF16, MEMOPT_TYPE_BF16 },
    { "adamw_bnb",    MEMOPT_OPTIM_ADAMW, MEMOPT_STATE_BNB, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32 },
    { "sgd_f32",      MEMOPT_OPTIM_SGD,   MEMOPT_STATE_F32, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32 },
    { "sgd8_f32",     MEMOPT_OPTIM_SGD,   MEMOPT_STATE_8BIT, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32 },
    { "lion_f32",     MEMOPT_OPTIM_LION,  MEMOPT_STATE_F32, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32 },
    { "lion8_f32",    MEMOPT_OPTIM_LION,  MEMOPT_STATE_8BIT, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32 },
    { "lamb_f32",     MEMOPT_OPTIM_LAMB,  MEMOPT_STATE_F32, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32 },
    { "lamb8_f32",    MEMOPT_OPTIM_LAMB,  MEMOPT_STATE_8BIT, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32 },
    { "lars_f32",     MEMOPT_OPTIM_LARS,  MEMOPT_STATE_F32, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32 },
    { "lars8_f32",    MEMOPT_OPTIM_LARS,  MEMOPT_STATE_8BIT, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32 },
    { "rmsprop_f32",  MEMOPT_OPTIM_RMSPROP, MEMOPT_STATE_F32, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32 },
    { "rmsprop8_f32", MEMOPT_OPTIM_RMSPROP, MEMOPT_STATE_8BIT, MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32 }
};
enum { BENCH_ROWS = sizeof bench_rows / sizeof bench_rows[0] };
static unsigned char *bench_weights, *bench_gradients, *bench_state, *bench_extra; /* shared by all rows */
static unsigned char *bench_weights16, *bench_gradients16;
static unsigned char *bench_weights_of(const bench_row_of *r) {
    return r->weights == MEMOPT_I_WEIGHTS_F32 ? bench_weights : bench_weights16;
}
static unsigned char *bench_gradients_of(const bench_row_of *r) {
    return r->gradients == MEMOPT_TYPE_F32 ? bench_gradients : bench_gradients16;
}

static void bench_must(memopt_status s, const memopt_optim *o) {
    if (!s) return;
    fprintf(stderr, "bench_optim: %s\n", o ? memopt_optim_error(o).reason : memopt_status_text(s));
    exit(1);
}
static unsigned char *bench_pages(size_t bytes) { /* zeros, in huge pages where there are */
    memopt_source pages; void *base = NULL; size_t rounded;
    bench_must(memopt_source_pages(NULL, &pages), NULL);
    if (memopt_i_align_up(bytes, pages.granularity, &rounded)) exit(1);
    bench_must(pages.reserve_fn(&pages, rounded, &base), NULL);
    bench_must(pages.commit_fn(&pages, base, rounded), NULL);
    return (unsigned char *)base;
}

/* ---- the limit: the same bytes, and nothing else ---- */
typedef struct bench_traffic { bench_stream streams[2][BENCH_STREAMS]; int passes; size_t chunk; uint64_t sums[64]; } bench_traffic;
#if defined(MEMOPT_I_X86)
MEMOPT_I_AVX2 static uint64_t bench_touch_line(unsigned char *p, int writes) {
    const __m256i one = _mm256_set1_epi8(1);
    const __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)p);
    const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(p + 32));
    if (!writes) return (uint64_t)_mm256_testz_si256(_mm256_xor_si256(a, b), one);
    _mm256_storeu_si256((__m256i *)(void *)p, _mm256_xor_si256(a, one));
    _mm256_storeu_si256((__m256i *)(void *)(p + 32), _mm256_xor_si256(b, one));
    return 0;
}
#  define BENCH_WIDE MEMOPT_I_AVX2 MEMOPT_I_FLATTEN
#else
static uint64_t bench_touch_line(unsigned char *p, int writes) {
    uint64_t x[8], sum = 0; int i;
    memcpy(x, p, 64);
    for (i = 0; i < 8; ++i) { x[i] ^= 1; sum ^= x[i]; }
    if (writes) memcpy(p, x, 64);
    return sum;
}
#  define BENCH_WIDE
#endif
BENCH_WIDE static void bench_move(void *task, size_t chunk, int worker) {
    bench_traffic *t = (bench_traffic *)task; const size_t at = chunk * t->chunk; size_t i, k; uint64_t sum = 0; int pass;
    for (pass = 0; pass < t->passes; ++pass)
        for (i = at; i < at + t->chunk; i += 64) {
            const bench_stream *s = t->streams[pass];
            for (; s->size; ++s)
                for (k = 0; k < s->size; ++k) {
                    unsigned char *line = s->bytes + i * s->size + 64 * k;
                    MEMOPT_I_FETCH(line, 4096);
                    sum += bench_touch_line(line, s->writes);
                }
        }
    t->sums[worker] += sum;
}
static void bench_add(bench_traffic *t, int pass, unsigned char *bytes, size_t size, int writes) {
    bench_stream *s = t->streams[pass];
    while (s->size) ++s;
    s->bytes = bytes; s->size = size; s->writes = writes;
}
/* What a step of this row moves. Kinds that measure read once more: LARS the weights and gradients, LAMB all. */
static bench_traffic bench_traffic_of(const bench_row_of *r, int moments) {
    const size_t w = r->weights == MEMOPT_I_WEIGHTS_F32 ? 4 : 2, g = r->gradients == MEMOPT_TYPE_F32 ? 4 : 2;
    const size_t m = r->state == MEMOPT_STATE_F32 ? 4 : r->state == MEMOPT_STATE_BF16 ? 2 : 1;
    bench_traffic t; int pass, i;
    memset(&t, 0, sizeof t);
    t.chunk = 65536; t.passes = memopt_i_kind_measures(r->kind) ? 2 : 1;
    for (pass = 0; pass < t.passes; ++pass) {
        const int last = pass + 1 == t.passes;
        bench_add(&t, pass, bench_weights_of(r), w, last);
        bench_add(&t, pass, bench_gradients_of(r), g, 0);
        if (r->weights == MEMOPT_I_WEIGHTS_SPLIT) bench_add(&t, pass, bench_extra, 2, last);
        for (i = 0; i < moments && (last || r->kind == MEMOPT_OPTIM_LAMB); ++i)
            bench_add(&t, pass, bench_state + (size_t)i * BENCH_COUNT * m, m, last);
    }
    return t;
}

/* ---- the rows ---- */
static double bench_step(const bench_row_of *r, const memopt_threads *threads, double *limit) {
    static unsigned char memory[1 << 18]; /* for the object */
    unsigned char *object = memory + (64 - (uintptr_t)memory % 64) % 64;
    memopt_optim_desc d; memopt_optim_tensor t; memopt_optim *o = NULL; memopt_optim_group group; memopt_optim_run run;
    bench_traffic traffic; uint64_t start; double time = 0;
    memset(&d, 0, sizeof d); memset(&t, 0, sizeof t); memset(&run, 0, sizeof run);
    d.kind = r->kind; d.state = r->state; d.weights = r->weights == MEMOPT_I_WEIGHTS_F32 ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16; /* no copies here */
    d.extra = r->weights == MEMOPT_I_WEIGHTS_SPLIT ? MEMOPT_OPTIM_EXTRA_SPLIT : MEMOPT_OPTIM_EXTRA_NONE; d.gradients = r->gradients;
    d.first_moment = r->kind != MEMOPT_OPTIM_RMSPROP; /* as it is mostly used: without momentum */
    d.threads = threads; d.tensors = &t; d.tensor_count = 1;
    t.weights = bench_weights_of(r); t.gradients = bench_gradients_of(r); t.extra = bench_extra; t.state = bench_state; t.count = BENCH_COUNT;
    bench_must(memopt_optim_create(&d, object, sizeof memory - 64, &o), NULL);
    bench_must(memopt_optim_state_init(o, 0), o);
    group = memopt_optim_group_default(r->kind);
    if (r->kind == MEMOPT_OPTIM_SGD) group.beta1 = 0.9;
    run.groups = &group; run.group_count = 1;
    for (run.step = 1; run.step <= 2; ++run.step) { /* the second is timed */
        start = bench_now();
        bench_must(memopt_optim_step(o, &run), o);
        time = (double)(bench_now() - start) / (double)BENCH_COUNT;
    }
    traffic = bench_traffic_of(r, o->parts[0].moments);
    start = bench_now();
    memopt_i_parallel_for(threads, BENCH_COUNT / traffic.chunk, bench_move, &traffic);
    *limit = (double)(bench_now() - start) / (double)BENCH_COUNT;
    return time;
}
static void bench_fill(void) { /* not all alike, in both formats */
    size_t i;
    for (i = 0; i < BENCH_COUNT; ++i) {
        ((float *)(void *)bench_weights)[i] = 0.02f * (float)(i % 101);
        ((float *)(void *)bench_gradients)[i] = 1e-3f * (float)((i * 7919) % 203) - 0.1f;
    }
    bench_must(memopt_bf16_from_f32((uint16_t *)(void *)bench_weights16, (float *)(void *)bench_weights, BENCH_COUNT, NULL), NULL);
    bench_must(memopt_bf16_from_f32((uint16_t *)(void *)bench_gradients16, (float *)(void *)bench_gradients, BENCH_COUNT, NULL), NULL);
}
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "optim"); memopt_thread_pool *pool = NULL; memopt_threads threads;
    static double times[BENCH_ROWS][BENCH_ROUNDS], limits[BENCH_ROWS][BENCH_ROUNDS]; int workers, round, row;
    bench_weights = bench_pages(BENCH_COUNT * 4); bench_gradients = bench_pages(BENCH_COUNT * 4);
    bench_state = bench_pages(BENCH_COUNT * 8 + 4096); bench_extra = bench_pages(BENCH_COUNT * 2);
    bench_weights16 = bench_pages(BENCH_COUNT * 2); bench_gradients16 = bench_pages(BENCH_COUNT * 2);
    bench_fill();
    for (workers = 1; workers <= 2; ++workers) {
        memset(&threads, 0, sizeof threads);
        if (workers > 1) {
            bench_must(memopt_thread_pool_create(NULL, workers, &pool), NULL);
            threads = memopt_thread_pool_threads(pool);
        }
        for (round = 0; round < BENCH_ROUNDS; ++round)
            for (row = 0; row < BENCH_ROWS; ++row) times[row][round] = bench_step(&bench_rows[row], &threads, &limits[row][round]);
        for (row = 0; row < BENCH_ROWS; ++row) {
            const double limit = bench_median(limits[row], BENCH_ROUNDS);
            if (!row) bench_row(&b, "adamw_roof", workers, BENCH_COUNT, limit, "ns", limit, 0);
            bench_row(&b, bench_rows[row].name, workers, BENCH_COUNT, bench_median(times[row], BENCH_ROUNDS), "ns", limit, 0);
        }
    }
    memopt_thread_pool_destroy(pool);
    return 0;
}
