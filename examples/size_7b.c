/* size_7b.c - training steps of a 7-billion-parameter decoder on a small machine: its weights and states lie on a disk.

   What to see: a Llama-shaped decoder (RMS norm, SwiGLU, rotary positions, no biases, untied head), in bf16 with states
   in 8 bits, is a shard of one rank with a slow tier: a layer's weights arrive while the one before computes, and each
   is stepped inside backward, so gradients of one layer exist at a time. Before it starts, it tells memory, disk, bytes
   a step moves, and how long that takes, by steps of a few layers just before; and it refuses where the machine has not
   as much. When a tenth of the first step is done, that tells its time again.
   At the end it compares what was told with what was: bytes must be equal, or the exit status is 1.
   Step     A step is written beside what the file holds, and counts as a whole or not at all. --no-atomic writes over
            it: half the disk, and a step that is cut off has destroyed the file, which is then not opened again.
   Use      size_7b --dir DIR, with 55 GB of disk there; size_7b --help lists the switches.
   Build: cc -O2 -DMEMOPT_PTHREADS -pthread size_7b.c -o size_7b -lm    (memopt.h, parts/ and size_7b/ beside it) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "parts/shard_choice.h"
#include "size_7b/rehearsal.h"
#if defined(__unix__) || defined(__APPLE__)
#include <sys/statvfs.h>
#endif

typedef struct told { /* before the run */
    rates  r;
    walk   first, step; /* the first step writes to a part of the file that was never written */
    double begin;    /* seconds before the first step */
    double *done_at; /* seconds into a step, of each use */
    rehearsal few;   /* steps of few layers */
    told_time first_time, step_time;
} told;

/* ---- what the machine has; 0 where the system does not say ---- */
static double disk_free(const char *dir) {
#if defined(__unix__) || defined(__APPLE__)
    struct statvfs x;

    return statvfs(dir, &x) ? 0 : (double)x.f_bavail * (double)x.f_frsize;
#else
    (void)dir;
    return 0;
#endif
}

static int is_file(const char *path) {
    FILE *f = fopen(path, "rb");

    return f && !fclose(f);
}

static double line_of(const char *path, const char *field) { /* bytes */
    char line[256];
    double kib = 0;
    FILE *f = fopen(path, "r");

    if (!f) return 0;
    while (!(kib > 0) && fgets(line, sizeof line, f))
        if (!strncmp(line, field, strlen(field))) kib = strtod(line + strlen(field), NULL);
    fclose(f);
    return kib * 1024;
}

static size_t processors(void) {
#if defined(_SC_NPROCESSORS_ONLN)
    const long n = sysconf(_SC_NPROCESSORS_ONLN);

    return n < 1 ? 1 : (size_t)n;
#else
    return 1;
#endif
}

/* ---- what is told beforehand ---- */
static double predicted_memory(const model *m) {
    return (double)m->arena_bytes + (double)model_beside(m);
}

static void tell_needs(const model *m) {
    const options *o = m->o;

    printf("%.3f billion parameters: %lu layers of %lu, MLP %lu, vocabulary %lu, %lu x %lu tokens; %s, AdamW\n",
           model_parameters(m) / 1e9, (unsigned long)o->layers, (unsigned long)o->width, (unsigned long)o->hidden,
           (unsigned long)o->vocabulary, (unsigned long)o->batch, (unsigned long)o->context,
           o->fp32 ? "fp32" : "bf16, states in 8 bits");
    printf("memory   %.0f bytes: %.0f of weights, %.0f of gradients, %.0f of tiles, %.0f for a pass\n",
           predicted_memory(m), (double)(m->bytes.weights + m->bytes.window), (double)m->bytes.gradients,
           (double)m->bytes.tiles, (double)(m->arena_bytes - model_held(m)));
    if (o->in_memory) return;
    printf("disk     %.0f bytes: %.0f of weights, %.0f of states, %s\n", (double)m->room.disk,
           (double)m->bytes.slow_weights, (double)m->bytes.slow_states,
           o->no_atomic ? "once: a step is not atomic" : "twice: a step counts as a whole or not at all");
    printf("a step   reads %.0f bytes, writes %.0f\n", (double)m->bytes.slow_read, (double)m->bytes.slow_written);
}

/* Is there as much? The disk's bytes are taken when the store is made, too, which tells it where nothing else does. */
static int is_there(model *m, int reopen) {
    const double disk = disk_free(m->o->dir), memory = line_of("/proc/meminfo", "MemAvailable:");

    if (!reopen && disk > 0 && disk < (double)m->room.disk)
        return refuse(m, "%s has %.4f GB free, and %.4f GB are needed%s.", m->o->dir, disk / 1e9,
                      (double)m->room.disk / 1e9, m->o->no_atomic ? "" : "; --no-atomic halves that");
    if (memory > 0 && memory < predicted_memory(m))
        return refuse(m, "The machine has %.4f GB of memory left, and %.4f GB are needed.", memory / 1e9,
                      predicted_memory(m) / 1e9);
    return 0;
}

/* What must lie on the disk so that the rest fits into less and less memory, and what that costs. */
static int tell_choices(model *m, const rates *r) {
    const memopt_shard_desc d = model_shard(m);
    shard_tier disk;
    shard_target target;
    shard_way x;
    memopt_status s;

    memset(&disk, 0, sizeof disk);
    memset(&target, 0, sizeof target);
    disk.room = UINT64_MAX;
    disk.rates = r->disk;
    disk.no_atomic = m->o->no_atomic;
    target.memory = SIZE_MAX;
    target.tiers = &disk;
    target.tier_count = 1;
    target.pass = m->arena_bytes - model_held(m);
    while ((s = shard_choose(&d, &target, &x)) == MEMOPT_OK) {
        printf("%s %.3f GB of memory: %s on the disk; %.3f GB moved a step, %.1f s\n",
               target.memory == SIZE_MAX ? "choices " : "        ", (double)x.memory / 1e9,
               !x.slow ? "nothing" : x.slow == MEMOPT_SHARD_SLOW_STATES ? "states"
               : x.slow == MEMOPT_SHARD_SLOW_WEIGHTS ? "weights" : "weights and states",
               (double)(x.read + x.written) / 1e9, x.seconds);
        target.memory = x.memory - 1;
    }
    return s == MEMOPT_ERR_MEMORY ? 0 : failed(m, "The choices", s);
}

/* The plan by the times of this machine, not by operations. */
static int plan_by_time(model *m, const char *path, rates *r) {
    if (!m->o->in_memory && measure_disk(m, path, r)) return 1;
    if (measure_computing(m, r)) return 1;
    costs_in_seconds(m, r);
    return model_plan(m, m->o->memory);
}

/* By the rehearsal; of a model that is not larger than one by the walk. */
static void know_times(const model *m, int reopen, told *t) {
    const int is_first = !reopen && !m->o->no_atomic;

    t->step_time.seconds = t->step.computing;
    t->first_time.seconds = t->first.computing;
    t->begin = seconds_to_begin(m, &t->r);
    if (!t->few.steps) return;
    t->step_time = rehearsed_time(&t->few, m, 0);
    t->first_time = rehearsed_time(&t->few, m, is_first);
    t->begin = t->few.begin * model_parameters(m);
}

static int tell_time(model *m, int reopen, told *t) {
    t->done_at = (double *)calloc(m->use_count, sizeof *t->done_at);
    if (!t->done_at) return refuse(m, "There is no memory for the times.");
    t->first = walk_step(m, &t->r, !reopen && !m->o->no_atomic, NULL);
    t->step = walk_step(m, &t->r, 0, t->done_at);
    know_times(m, reopen, t);
    if (!m->o->in_memory)
        printf("rates    the disk reads %.2f GB/s, writes %.2f, new places %.2f, both %.2f in sum; checksums %.1f\n",
               t->r.disk.read / 1e9, t->r.disk.write / 1e9, t->r.first_write / 1e9, t->r.disk.both / 1e9,
               1e-9 / t->r.crc);
    printf("         a layer's forward takes %.4f s, its backward %.4f; %.1f million parameters are stepped a second\n",
           t->r.segment[ATTENTION][0] + t->r.segment[MLP][0], t->r.segment[ATTENTION][1] + t->r.segment[MLP][1],
           1e-6 / t->r.step);
    if (!m->o->in_memory && tell_choices(m, &t->r)) return 1;
    printf("time     %.1f s until the first step, which takes %.1f s, others %.1f: %.1f computing, %.1f on the disk\n",
           t->begin, t->first_time.seconds, t->step_time.seconds, t->step.busy, t->step.moving);
    if (t->few.steps)
        printf("         from %.1f to %.1f s the first, from %.1f to %.1f others, by %d steps of %d layers\n", t->first_time.low,
               t->first_time.high, t->step_time.low, t->step_time.high, t->few.steps, REHEARSED_LAYERS);
    return 0;
}

/* ---- the run ---- */
static told *shown;        /* by progress() */
static double step_began;
static size_t step_number;

static void progress(model *m) { /* after a callback: a second or more after the last time */
    static double last;
    static int again;
    const double t = now(), planned = shown->done_at[m->told - 1], share = planned / shown->step.computing;
    const double left = (t - step_began) * (1 / share - 1)
                      + (double)(m->o->steps - step_number) * (t - step_began) / share;

    if (!again && share >= 0.1 && step_number == 1) {
        printf("again    after %.0f %% of the step: %.1f s\n", 100 * share, (t - step_began) / share);
        again = 1;
    }
    if (t < last + 1 || !(share > 0)) return;
    last = t;
    fprintf(stderr, "\rstep %lu of %lu: %.0f %%, %.0f s left   ", (unsigned long)step_number,
            (unsigned long)m->o->steps, 100 * share, left);
    if (m->told == m->use_count) fputc('\n', stderr);
}

static int train(model *m, told *t) {
    const memopt_store_stats before = memopt_store_get_stats(m->store);
    const size_t begun = before.step == MEMOPT_STORE_NO_STEP ? 0 : (size_t)before.step;
    memopt_store_stats after;
    size_t i;
    int equal;

    shown = t;
    m->told_fn = progress;
    for (i = 1; i <= m->o->steps; ++i) {
        step_number = i;
        step_began = now();
        if (model_step(m, begun + i)) return 1;
        printf("step %lu  loss %.9g  %.2f s, told %.2f\n", (unsigned long)(begun + i), m->head.loss,
               now() - step_began, i > 1 ? t->step_time.seconds : t->first_time.seconds);
        fflush(stdout);
    }
    after = memopt_store_get_stats(m->store);
    after.read_bytes -= before.read_bytes;
    after.written_bytes -= before.written_bytes;
    equal = after.read_bytes == m->bytes.slow_read * m->o->steps
         && after.written_bytes == m->bytes.slow_written * m->o->steps
         && memopt_arena_get_stats(m->arena).peak == m->arena_bytes;
    printf("moved    read %.0f bytes, written %.0f; told %.0f and %.0f\n", (double)after.read_bytes,
           (double)after.written_bytes, (double)(m->bytes.slow_read * m->o->steps),
           (double)(m->bytes.slow_written * m->o->steps));
    printf("memory   %.0f bytes, told %.0f; the process %.0f\n",
           (double)memopt_arena_get_stats(m->arena).peak + (double)model_beside(m), predicted_memory(m),
           line_of("/proc/self/status", "VmHWM:"));
    return equal ? 0 : refuse(m, "What was told is not what was.");
}

static int run(model *m, const char *path, int reopen, told *t) {
    const double begin = now();
    uint32_t crc;

    if (model_open(m, path, reopen)) return 1;
    if (!reopen) {
        if (model_write_weights(m)) return 1;
        printf("weights  written in %.2f s, told %.2f\n", now() - begin, t->begin);
        fflush(stdout);
    }
    if (train(m, t)) return 1;
    if (!m->o->hash) return 0;
    if (model_hash(m, &crc)) return 1;
    printf("weights  CRC-32C %08lx\n", (unsigned long)crc);
    return 0;
}

static int work(model *m, const options *o) {
    char path[1024], scratch[1024];
    told t;
    int reopen, wrong;

    memset(&t, 0, sizeof t);
    snprintf(path, sizeof path, "%.1000s/size_7b.tiles", o->dir);
    snprintf(scratch, sizeof scratch, "%.1000s/size_7b.rates", o->dir);
    reopen = o->keep && is_file(path);
    model_shape(m, o);
    if (model_open_tables(m) || model_describe(m) || model_plan(m, o->memory)) return 1;
    wrong = is_there(m, reopen);
    if (!wrong) fputs("the disk and a layer of this size are measured; without matrix units that takes minutes\n", stderr);
    wrong = wrong || plan_by_time(m, scratch, &t.r);
    tell_needs(m);
    fflush(stdout);
    wrong = wrong || rehearse(m, scratch, &t.few) || tell_time(m, reopen, &t);
    fflush(stdout);
    wrong = wrong || (!o->dry_run && run(m, path, reopen, &t));
    free(t.done_at);
    return wrong;
}

/* ---- switches ---- */
static const char *const usage =
    "usage: size_7b [--dir .] [--steps 1] [--dry-run] ...\n"
    "  --dir DIR       where the file lies: size_7b.tiles with --keep; else one without a name\n"
    "  --steps N       training steps\n"
    "  --dry-run       tell memory, disk, bytes a step and time, and end\n"
    "  --memory 3G     bytes that may be taken; activations are recomputed where they do not fit\n"
    "  --no-atomic     half the disk: a step that is cut off destroys the file\n"
    "  --keep          the file stays, and a run that finds one goes on with it\n"
    "  --in-memory     weights and states in memory: the same bits\n"
    "  --fp32          weights, states, activations; else bf16, and states in 8 bits\n"
    "  --hash          the checksum of all weights at the end\n"
    "  --layers 32 --width 4096 --heads 32 --kv-heads 32 --hidden 11008 --vocabulary 32000\n"
    "  --context 512 --batch 1 --rate 1e-4 --threads (as many as processors) --tile 1048576 (elements)\n";

static int number(const char *text, size_t *out) { /* 16, 600M, 3G */
    char *end;
    const double x = strtod(text, &end);
    const double unit = *end == 'K' ? 1e3 : *end == 'M' ? 1e6 : *end == 'G' ? 1e9 : 1;

    if (end == text || !(x >= 1) || !(x * unit < 1e15 && x * unit < (double)SIZE_MAX)) return 1;
    if (unit > 1 ? end[1] : *end) return 1;
    *out = (size_t)(x * unit);
    return (double)*out > x * unit || (double)*out + 1 < x * unit;
}

static int parse(int argc, char **argv, options *o) { /* 1: not understood */
    static const char *const flag_names[] = { "--dry-run", "--no-atomic", "--keep", "--in-memory", "--fp32", "--hash" };
    static const char *const names[] = { "--steps", "--memory", "--layers", "--width", "--heads", "--kv-heads",
                                         "--hidden", "--vocabulary", "--context", "--batch", "--threads", "--tile" };
    int *const flags[] = { &o->dry_run, &o->no_atomic, &o->keep, &o->in_memory, &o->fp32, &o->hash };
    size_t *const values[] = { &o->steps, &o->memory, &o->layers, &o->width, &o->heads, &o->kv_heads,
                               &o->hidden, &o->vocabulary, &o->context, &o->batch, &o->threads, &o->tile };
    const size_t flag_count = sizeof flags / sizeof *flags, count = sizeof values / sizeof *values;
    char *end;
    int i;

    for (i = 1; i < argc; ++i) {
        size_t f, k;

        for (f = 0; f < flag_count && strcmp(argv[i], flag_names[f]); ++f) {}
        for (k = 0; k < count && strcmp(argv[i], names[k]); ++k) {}
        if (f < flag_count) {
            *flags[f] = 1;
            continue;
        }
        if (i + 1 == argc) return 1;
        if (k < count && number(argv[++i], values[k])) return 1;
        if (k < count) continue;
        if (!strcmp(argv[i], "--dir")) o->dir = argv[++i];
        else if (!strcmp(argv[i], "--rate")) {
            o->rate = strtod(argv[++i], &end);
            if (*end || !(o->rate > 0 && o->rate <= 1)) return 1;
        } else return 1;
    }
    return o->layers > (MEMOPT_CHAIN_MAX - 2) / 2 || o->threads > 1024 || (o->in_memory && o->keep);
}

int main(int argc, char **argv) {
    static model m;
    options o = { 32, 4096, 32, 0, 11008, 32000, 512, 1, 1, 1, 3000000000u, 0, 1e-4, ".", 0, 0, 0, 0, 0, 0 };
    memopt_thread_pool *pool = NULL;
    int wrong;

    o.threads = processors();
    if (argc == 2 && !strcmp(argv[1], "--help")) return fputs(usage, stdout) < 0;
    if (parse(argc, argv, &o)) {
        fputs(usage, stderr);
        return 2;
    }
    wrong = o.threads > 1 && failed(&m, "--threads", memopt_thread_pool_create(NULL, (int)o.threads, &pool));
    m.threads = memopt_thread_pool_threads(pool);
    wrong = wrong || work(&m, &o);
    if (wrong) fprintf(stderr, "size_7b: %s\n", m.message);
    model_close(&m);
    memopt_thread_pool_destroy(pool);
    return wrong;
}
