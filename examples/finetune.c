/* finetune.c - a model's folder, as the hub has it, tuned on one's own text within so much memory; out comes a folder
   that the usual Python libraries open.

   What to see: GPT-2, Llama, Mistral, Qwen2 and Qwen3 are read from config.json, tokenizer.json and safetensors. All
   weights are trained, in bf16 with states of 8 bits, or adapters beside frozen ones. What does not fit into --memory
   is recomputed, or lies on a disk: what that takes is told before it starts. A run that is stopped goes on with the
   same bits. Its parts, in finetune/ and parts/, are files to copy.
   Use    finetune MODEL_DIR notes.jsonl --memory 3G --out tuned            (finetune --help lists the switches)
   Ranks  --ranks 2 in threads, or as processes: mpicc -DFINETUNE_MPI, mpirun --bind-to none -n 2 finetune ...
   Build: cc -O2 -DMEMOPT_PTHREADS -pthread finetune.c -o finetune -lm      (memopt.h, parts/, finetune/ beside it) */
#define _DEFAULT_SOURCE 1 /* nanosleep */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <math.h>
#include <stdlib.h>
#if defined(__unix__) || defined(__APPLE__)
#include <sys/stat.h>
#include <unistd.h>
#endif
#include "parts/block.h"
#include "parts/embedding.h"
#include "parts/head.h"
#include "finetune/options.h"
#include "finetune/tokeniser.h"
#include "finetune/data.h"
#include "finetune/generate.h"
#include "finetune/out.h"
#include "finetune/page.h"
#include "finetune/progress.h"
#include "finetune/random.h"
#include "finetune/rehearse.h"

enum { STOPPED = 3 /* exit status */, HELD_BACK_FROM = 128 /* documents: a share of fewer may be none */ };

typedef struct tuner { /* of a rank */
    team team;
    int  status;
    const options *o;
    memopt_host host;
    config config;
    transformer shape;
    folder folder;
    tokeniser tokens;
    int       has_tokens;
    data     *data;
    memopt_thread_pool *pool;
    model     m;
    tuning    s;
    way       way;
    progress  progress;
    int       goes_on;       /* there are settings of a run */
    int       begins;        /* there are no weights, and random ones are asked for */
    uint64_t  stepped;       /* steps of this process */
    memopt_store_stats moved; /* bytes at the store, by so many of these */
    uint64_t  counted;
    int       has_looked;    /* since the last step: some weights may be there already */
    page      page;
    char      told[1600];    /* of model, data and memory */
    uint64_t  steps;         /* of the run */
    tokeniser_ids prompt;    /* with room for what the model says */
    double    holds_back;    /* the share of documents */
} tuner;

/* ---- the tokeniser, as data.h wants it ---- */
static int coder_encode(void *user, const char *text, size_t bytes, int32_t **ids, size_t *count, size_t *capacity) {
    tokeniser_ids list;
    int wrong;

    list.ids = *ids;
    list.count = *count;
    list.capacity = *capacity;
    wrong = tokeniser_encode((tokeniser *)user, text, bytes, 0, &list);
    *ids = list.ids;
    *count = list.count;
    *capacity = list.capacity;
    return wrong;
}

/* An added token alone: a word of the vocabulary that looks like one is text. */
static int coder_token(void *user, const char *text, int32_t *id) {
    const tokeniser *t = (const tokeniser *)user;
    size_t i, k;

    *id = tokeniser_id(t, text, strlen(text));
    for (i = 0; i < 2; ++i)
        for (k = 0; k < t->sets[i].count; ++k)
            if (t->sets[i].list[k].id == *id) return 0;
    return 1;
}

static int open_tokens(tuner *t) {
    char path[2048];

    snprintf(path, sizeof path, "%.1900s/tokenizer.json", t->o->model);
    if (tokeniser_open(&t->tokens, path)) return refuse(&t->m.why, "%.300s: %s", path, t->tokens.message);
    t->has_tokens = 1;
    if (tokeniser_size(&t->tokens) > t->shape.vocabulary)
        return refuse(&t->m.why, "%.300s has tokens up to %lu, and config.json a vocab_size of %lu", path,
                      (unsigned long)tokeniser_size(&t->tokens) - 1, (unsigned long)t->shape.vocabulary);
    return 0;
}

static int is_there(const char *path) {
    FILE *f = fopen(path, "rb");

    return f && !fclose(f);
}

static int file_crc(tuner *t, const char *path, uint32_t *crc) {
    size_t bytes = 0;
    char *text = NULL;
    const char *const wrong = json_file_bytes(path, &text, &bytes);

    if (wrong) return refuse(&t->m.why, "%.300s: %s", path, wrong);
    *crc = memopt_crc32c(0, text, bytes);
    free(text);
    return 0;
}

/* ---- a prompt ---- */
static int open_prompt(tuner *t) {
    const options *o = t->o;
    size_t room;

    if (!o->prompt) return 0;
    if (!t->has_tokens && open_tokens(t)) return 1;
    if (tokeniser_encode(&t->tokens, o->prompt, strlen(o->prompt), TOKENISER_ADD_SPECIAL, &t->prompt))
        return refuse(&t->m.why, "--prompt: %s", t->tokens.message);
    room = t->prompt.count + o->tokens;
    if (!t->prompt.count || t->prompt.count > t->s.batch * t->s.context || room > t->config.positions)
        return refuse(&t->m.why, "--prompt: %lu tokens and %lu more are not within the model's %lu, or --context",
                      (unsigned long)t->prompt.count, (unsigned long)o->tokens, (unsigned long)t->config.positions);
    t->m.aside_bytes = generate_bytes(&t->m, room) + room * sizeof(int32_t);
    return 0;
}

/* ---- what is told ---- */
static void tell(const tuner *t, const char *format, ...) { /* by the first rank */
    va_list list;

    va_start(list, format);
    if (!t->team.rank) vprintf(format, list);
    va_end(list);
    fflush(stdout);
}

static void print_text(const char *text, size_t bytes) { /* but what a terminal obeys */
    size_t i;

    for (i = 0; i < bytes; ++i)
        putchar(((unsigned char)text[i] < ' ' && text[i] != '\n' && text[i] != '\t') || text[i] == 127 ? '?' : text[i]);
}

static int say(tuner *t) {
    const size_t room = t->prompt.count + t->o->tokens;
    int32_t *tokens = (int32_t *)(void *)(t->m.aside + generate_bytes(&t->m, room));
    generator g = generate_begin(&t->m, t->m.aside, room, t->o->temperature);
    size_t count = t->prompt.count;
    tokeniser_bytes text;
    int wrong;

    memset(&text, 0, sizeof text);
    memcpy(tokens, t->prompt.ids, count * sizeof *tokens);
    wrong = generate(&g, tokens, &count, room, t->config.eos, t->progress.step);
    if (!wrong && tokeniser_decode(&t->tokens, tokens, count, TOKENISER_SKIP_SPECIAL, &text)) {
        tell(t, "says     what its tokeniser cannot tell: %s\n", t->tokens.message); /* no reason to end a run */
    } else if (!wrong && !t->team.rank) {
        printf("says     ");
        print_text(text.bytes, text.count);
        putchar('\n');
    }
    free(text.bytes);
    return wrong;
}

/* ---- the data ---- */
static int is_tokens(const char *path) {
    const size_t n = strlen(path);

    return n > 4 && (!strcmp(path + n - 4, ".u16") || !strcmp(path + n - 4, ".bin"));
}

static int open_data(tuner *t) {
    const options *o = t->o;
    data_desc d;
    char path[2048];
    const int32_t *begins;
    size_t count;

    memset(&d, 0, sizeof d);
    d.text.path = o->data;
    d.text.chat = o->chat;
    d.text.learn_all = o->learn_all;
    d.text.vocabulary = t->shape.vocabulary;
    d.text.host = &t->host;
    d.text.coder.bos = -1;
    d.text.coder.eos = t->config.eos;
    d.context = t->s.context;
    d.seed = t->s.seed;
    if (!is_tokens(o->data)) {
        snprintf(path, sizeof path, "%.1900s/tokenizer.json", o->model);
        if (open_tokens(t) || file_crc(t, path, &d.text.coder.crc)) return 1;
        begins = tokeniser_around(&t->tokens, 0, &count);
        if (count) d.text.coder.bos = begins[0];
        d.text.coder.encode_fn = coder_encode;
        d.text.coder.token_fn = coder_token;
        d.text.coder.user = &t->tokens;
    }
    if (data_open(&d, &t->data, &t->m.why)) return 1;
    t->holds_back = o->validation;
    if (t->holds_back < 0) t->holds_back = data_get_counts(t->data).documents < HELD_BACK_FROM ? 0 : 0.05;
    if (!(t->holds_back > 0)) return 0;
    data_close(t->data);
    t->data = NULL;
    d.validation = t->holds_back;
    return data_open(&d, &t->data, &t->m.why);
}

/* Windows first, ... into the batch; of what is held back those beyond the last have no targets. */
static int load_windows(tuner *t, int held_back, uint64_t first) {
    const uint64_t windows = data_get_counts(t->data).part[1].windows;
    model *m = &t->m;
    data_rows rows;
    size_t i, k;

    rows.ids = m->ids;
    rows.targets = m->targets;
    rows.positions = m->positions;
    rows.starts = m->starts;
    rows.rows = rows.documents = 0;
    for (i = 0; i < t->s.batch; ++i) {
        const int is_beyond = held_back && first + i >= windows;

        if (data_window(t->data, held_back, is_beyond ? 0 : first + i, &rows, &m->why)) return 1;
        for (k = rows.rows - t->s.context; is_beyond && k < rows.rows; ++k) m->targets[k] = -1;
    }
    m->shape.documents = rows.documents;
    m->shape.starts = m->starts;
    m->shape.row_positions = m->positions;
    return 0;
}

static int load_unit(model *m, void *user, uint64_t step, size_t unit) {
    tuner *t = (tuner *)user;

    (void)m;
    return load_windows(t, 0, ((step - 1) * t->s.units + unit) * t->s.batch);
}

static size_t count_targets(const model *m) {
    size_t i, n = 0;

    for (i = 0; i < transformer_rows(&m->shape); ++i) n += m->targets[i] >= 0;
    return n;
}

/* Targets of all units of a step: the sum of losses is divided by them. */
static int step_targets(tuner *t, uint64_t step, size_t *targets) {
    size_t unit;

    for (*targets = 0, unit = 0; unit < t->s.units; ++unit) {
        if (load_unit(&t->m, t, step, unit)) return 1;
        *targets += count_targets(&t->m);
    }
    return 0;
}

typedef struct batch_loss { double sum, targets; } batch_loss;

/* A round of batches, one of each rank. Those beyond the last look at that, as all use the weights together. */
static int validate_round(tuner *t, size_t first, size_t batches, batch_loss *all) {
    const size_t own = first + t->team.rank, batch = own < batches ? own : batches - 1;
    batch_loss *x = &all[t->team.rank];

    if (load_windows(t, 1, (uint64_t)batch * t->s.batch)) return 1;
    x->targets = own < batches ? (double)count_targets(&t->m) : 0;
    if (model_evaluate(&t->m)) return 1;
    x->sum = t->m.head.loss * x->targets;
    return team_gather(&t->team, &t->m.why, all, sizeof *all);
}

/* The mean over what is held back, of at most so many batches. */
static int validate(tuner *t, double *loss) {
    const uint64_t windows = data_get_counts(t->data).part[1].windows, all = (windows + t->s.batch - 1) / t->s.batch;
    const size_t batches = all < 64 ? (size_t)all : 64;
    batch_loss round[RANKS_MAX];
    double sum = 0, targets = 0;
    size_t i, k;

    for (i = 0; i < batches; i += t->team.count) {
        if (validate_round(t, i, batches, round)) return 1;
        for (k = 0; k < t->team.count; ++k) {
            sum += round[k].sum;
            targets += round[k].targets;
        }
    }
    *loss = targets > 0 ? sum / targets : 0;
    return 0;
}

/* ---- the run ---- */
static double rate_at(const tuner *t, uint64_t step) {
    const options *o = t->o;
    const double warm = (double)o->warmup, at = (double)step, end = (double)t->steps;
    const double share = end > warm ? (at - warm) / (end - warm) : 1;

    if (at < warm) return o->rate * at / warm;
    return o->schedule == RATE_CONSTANT ? o->rate
         : o->rate * (o->schedule == RATE_LINEAR ? 1 - share : 0.5 + 0.5 * cos(3.141592653589793 * share));
}

static const char *time_text(double seconds, char *text, size_t capacity) {
    if (seconds >= 5400) (void)snprintf(text, capacity, "%.1f h", seconds / 3600);
    else if (seconds >= 90) (void)snprintf(text, capacity, "%.0f min", seconds / 60);
    else (void)snprintf(text, capacity, "%.0f s", seconds);
    return text;
}

/* Of what is held back, and what the model says. *held: NaN where it is not the time. */
static int look(tuner *t, double *held) {
    const options *o = t->o;
    const uint64_t step = t->progress.step;

    *held = (double)NAN;
    if (!o->validate || (step % o->validate && step < t->steps)) return 0;
    t->has_looked = 1;
    return (t->holds_back > 0 && validate(t, held)) || (o->prompt && say(t));
}

/* A step, and what it moves. After a loss of what is held back it may read less than was told, and is not counted. */
static int take_step(tuner *t, uint64_t step, size_t targets, double *loss) {
    memopt_store_stats before, after;

    memset(&before, 0, sizeof before);
    memset(&after, 0, sizeof after);
    if (t->m.slow) before = memopt_store_get_stats(t->m.store);
    if (model_step(&t->m, step, targets, load_unit, t, loss)) return 1;
    if (t->m.slow) after = memopt_store_get_stats(t->m.store);
    if (!t->has_looked) {
        t->moved.read_bytes += after.read_bytes - before.read_bytes;
        t->moved.written_bytes += after.written_bytes - before.written_bytes;
        ++t->counted;
    }
    t->has_looked = 0;
    if (++t->stepped == t->o->pause) progress_stop = 1;
    return 0;
}

/* 1: it is not what was told. */
static int tell_moved(tuner *t) {
    const uint64_t read = t->counted * t->m.bytes.slow_read, written = t->counted * t->m.bytes.slow_written;

    if (!t->m.slow || !t->counted) return 0;
    tell(t, "moved    in %llu steps read %llu bytes, written %llu; told %llu and %llu\n",
         (unsigned long long)t->counted, (unsigned long long)t->moved.read_bytes,
         (unsigned long long)t->moved.written_bytes, (unsigned long long)read, (unsigned long long)written);
    return (t->moved.read_bytes != read || t->moved.written_bytes != written)
        && refuse(&t->m.why, "the steps moved other bytes than were told");
}

static int run_step(tuner *t) {
    progress *p = &t->progress;
    const double begin = seconds_now();
    double loss, held, seconds;
    char left[32];
    size_t targets;

    t->s.rate = rate_at(t, p->step + 1);
    if (step_targets(t, p->step + 1, &targets)) return 1;
    if (take_step(t, p->step + 1, targets, &loss)) return 1;
    ++p->step;
    seconds = seconds_now() - begin;
    if (loss - loss != 0) return refuse(&t->m.why, "the loss is not finite: a smaller --rate may help");
    tell(t, "step %llu of %llu  loss %.6f  %.1f tokens/s, %s left\n", (unsigned long long)p->step,
         (unsigned long long)t->steps, loss, (double)(t->s.units * transformer_rows(&t->m.shape)) / seconds,
         time_text(seconds * (double)(t->steps - p->step), left, sizeof left));
    if (look(t, &held)) return 1;
    if (held - held == 0) tell(t, "held back  loss %.6f\n", held);
    if (t->team.rank) return 0;
    page_step(&t->page, p->step, loss, held, seconds);
    if (held - held == 0 || p->step == t->steps) page_write(&t->page, t->o->out, t->told, t->steps);
    return 0;
}

/* Has any rank been asked to stop? */
static int is_asked(tuner *t, int *stops) {
    double asked = progress_stop;
    const int wrong = team_most(&t->team, &t->m.why, &asked);

    *stops = asked > 0;
    return wrong;
}

static int run_steps(tuner *t) {
    progress *p = &t->progress;
    int stops = 0;

    signal(SIGINT, progress_ask);
    signal(SIGTERM, progress_ask);
    if (is_asked(t, &stops)) return 1;
    while (p->step < t->steps && !stops) {
        if (run_step(t) || is_asked(t, &stops)) return 1;
        if (t->o->save && p->step % t->o->save == 0 && p->step < t->steps && !stops && progress_write(p)) return 1;
    }
    return p->step < t->steps && progress_write(p);
}

static int open_run(tuner *t, int *resumes) {
    progress *p = &t->progress;
    const int is_in_store = model_is_in_store(&t->m) && t->goes_on;
    const int reopen = is_in_store && is_there(p->store); /* one that is there else is another run's */

    if (is_in_store && !reopen && is_there(t->page.losses)) /* which are written once there is a store */
        return refuse(&t->m.why, "%s is missing: give --disk as before, or remove %s to begin anew", p->store,
                      p->folder);
    return team_wrong(&t->team, &t->m.why, model_open(&t->m, p->store, reopen)) || progress_resume(p, resumes)
        || (t->s.adapter && t->m.frozen_stays && frozen_bring_all(&t->m)) || (!*resumes && model_read_weights(&t->m));
}

static void end_run(tuner *t) {
    progress_remove(&t->progress, &t->host);
    tell(t, "%s is written\n", t->o->out);
}

static int train(tuner *t) {
    int resumes = 0, wrong;

    if (open_run(t, &resumes)) return 1;
    if (resumes) tell(t, "goes on after step %llu\n", (unsigned long long)t->progress.step);
    if (!t->team.rank) page_begin(&t->page, t->progress.step);
    if (run_steps(t)) return 1;
    tell(t, "memory   the process took %.1f MB at most, told %.1f\n", (double)process_highest() / 1e6,
         t->m.process_bytes / 1e6);
    wrong = tell_moved(t);
    if (t->progress.step < t->steps) {
        if (!t->team.rank) page_write(&t->page, t->o->out, t->told, t->steps);
        tell(t, "stopped after step %llu; the same command goes on\n", (unsigned long long)t->progress.step);
        return wrong ? wrong : STOPPED;
    }
    if (out_write(&t->m, &t->folder, t->o->out, t->o->merges)) {
        if (!progress_write(&t->progress)) tell(t, "all steps are saved; the same command writes the result\n");
        return 1;
    }
    if (!t->team.rank) end_run(t);
    return wrong;
}

/* ---- before it ---- */
static void tell_plan(tuner *t) {
    const model *m = &t->m;
    const data_counts c = data_get_counts(t->data);
    char ranks[40] = "";
    size_t n;

    if (t->team.count > 1)
        (void)snprintf(ranks, sizeof ranks, t->team.in_process > 1 ? " of %lu ranks, of each" : " of each of %lu ranks",
                       (unsigned long)t->team.count);
    n = (size_t)snprintf(
        t->told, sizeof t->told,
        "model    %lu layers of %lu, vocabulary %lu; %.4g million parameters are trained%s\n"
        "data     %llu documents in %llu windows of %lu tokens, %llu targets; %llu windows are held back\n"
        "memory   %.1f MB%s: weights %.1f, frozen %.1f, gradients %.1f, states %.1f, a pass %.1f (%.0f %% is computed "
        "twice),\n"
        "         program and data %.1f\n         %s; %lu rows of the head at a time\n",
        (unsigned long)m->layers, (unsigned long)m->shape.width, (unsigned long)m->shape.vocabulary,
        model_parameters(m) / 1e6, m->o->adapter ? ", beside frozen ones" : "", (unsigned long long)c.part[0].documents,
        (unsigned long long)c.part[0].windows, (unsigned long)t->s.context, (unsigned long long)c.part[0].targets,
        (unsigned long long)c.part[1].windows, t->m.process_bytes / 1e6, ranks,
        (double)(m->bytes.weights + m->bytes.window + m->bytes.extra) / 1e6, (double)m->frozen_bytes / 1e6,
        (double)(m->bytes.gradients + m->bytes.sums) / 1e6, (double)(m->bytes.states + m->bytes.tiles) / 1e6,
        (double)(m->arena_bytes - model_held(m)) / 1e6, 100 * m->overhead,
        (t->m.process_bytes - (double)(m->arena_bytes * t->team.in_process)) / 1e6, t->way.text,
        (unsigned long)t->way.head_chunk);
    if (m->slow)
        (void)snprintf(t->told + n, sizeof t->told - n,
                       "disk     %.3f GB in %.900s%s; a step reads %.3f GB and writes %.3f\n",
                       (double)m->room.disk / 1e9, t->progress.store, t->team.count > 1 ? ", one of the ranks'" : "",
                       (double)m->bytes.slow_read / 1e9, (double)m->bytes.slow_written / 1e9);
    tell(t, "%s", t->told);
}

/* What a step takes, by a rehearsal. */
static int tell_seconds(tuner *t) {
    char store[1200], all[32];
    double seconds;

    snprintf(store, sizeof store, "%s.rehearsed", t->progress.store);
    if (rehearse(&t->m, &t->way, store, &seconds)) return 1;
    if (!(seconds > 0)) return 0;
    tell(t, "time     %.1f s a step, %s for all of them\n", seconds,
         time_text(seconds * (double)t->steps, all, sizeof all));
    return 0;
}

static int describe_settings(tuner *t, char *text, size_t capacity) {
    const options *o = t->o;
    const tuning *s = &t->s;
    const data_counts c = data_get_counts(t->data);
    char path[2048];
    uint32_t crc, weights;

    snprintf(path, sizeof path, "%.1900s/config.json", o->model);
    if (file_crc(t, path, &crc) || folder_crc(&t->folder, &weights)) return 1;
    snprintf(text, capacity,
             "model %08lx, weights %08lx\ndata %08lx, %llu tokens, %llu documents in %llu windows of %lu\n"
             "batch %lu\naccumulate %lu\n"
             "adapter %lu\nalpha %.9g\nfrozen %lu\nweights %s\noptimizer %d\nstates %d\n"
             "rate %.9g\ndecay %.9g\nclip %.9g\nwarmup %lu\nschedule %d\nsteps %llu\nseed %llu\n"
             "way %d %lu %lu\ndisk of %s\n",
             (unsigned long)crc, (unsigned long)weights, (unsigned long)c.crc, (unsigned long long)c.tokens,
             (unsigned long long)c.part[0].documents, (unsigned long long)c.part[0].windows, (unsigned long)s->context,
             (unsigned long)s->batch, (unsigned long)s->units, (unsigned long)s->adapter, s->adapter_alpha,
             (unsigned long)s->frozen_bits, s->fp32 ? "fp32" : s->split ? "split" : "bf16",
             (int)s->kind, (int)s->state, o->rate, s->decay, s->clip, (unsigned long)o->warmup, (int)o->schedule,
             (unsigned long long)t->steps, (unsigned long long)s->seed, t->way.slow, (unsigned long)t->way.head_chunk,
             (unsigned long)t->way.mlp_chunk, !t->way.slow ? "none" : t->team.count > 1 ? "several ranks" : "one rank");
    return 0;
}

/* Runs of one name in several folders may share a --disk: the store's name is a function of the whole path, too. */
static void name_store(tuner *t) {
    progress *p = &t->progress;
    const char *slash = strrchr(t->o->out, '/');
    uint32_t crc = memopt_crc32c(0, p->folder, strlen(p->folder));
#if defined(__unix__) || defined(__APPLE__)
    char *whole = realpath(p->folder, NULL); /* it is there, as it is locked */

    if (whole) crc = memopt_crc32c(0, whole, strlen(whole));
    free(whole);
#endif
    snprintf(p->store, sizeof p->store, "%.1000s/%.64s-%08lx", t->o->disk ? t->o->disk : p->folder,
             slash ? slash + 1 : t->o->out, (unsigned long)crc);
    if (t->team.count > 1) snprintf(p->store + strlen(p->store), 24, "-%lu", (unsigned long)t->team.rank);
    strcat(p->store, ".tiles");
}

static int open_folder(tuner *t) {
    return folder_open(&t->folder, t->o->model, &t->config, &t->shape, &t->host, &t->m.why)
        || folder_check_tied_head(&t->folder);
}

/* Random weights, of which all ranks know that there are none. */
static int begin_weights(tuner *t) {
    const int wrong = !t->team.rank && random_write(&t->m, &t->config, &t->shape, t->o->model, &t->host);

    return team_wrong(&t->team, &t->m.why, wrong) || open_folder(t);
}

/* The way, its lines of the settings, and whether this run goes on. Random weights come once the model is known to fit
   and nothing is in the way of OUT. */
static int begin_run(tuner *t) {
    const options *o = t->o;
    progress *p = &t->progress;
    char text[4096], before[4096], beside[1024];
    const char *line;
    way same;

    if (is_there(o->out)) return refuse(&t->m.why, "%s is there already: give --out another name", o->out);
    if (t->begins && plan_find(&t->m, o->disk != NULL, o->memory, NULL, &t->way)) return 1;
    if (progress_lock(p)
        || team_wrong(&t->team, &t->m.why, progress_read_settings(p, &t->host, before, sizeof before))) return 1;
    name_store(t);
    t->goes_on = before[0] != 0;
    snprintf(beside, sizeof beside, "%.1000s.tmp", o->out);
    if (!t->goes_on && is_there(beside)) /* else it is what that run could not end, and is written anew */
        return refuse(&t->m.why, "%s is there already: remove it, or give --out another name", beside);
    if (t->begins && begin_weights(t)) return 1;
    line = strstr(before, "\nway ");
    memset(&same, 0, sizeof same);
    if (line && sscanf(line, " way %d %zu %zu", &same.slow, &same.head_chunk, &same.mlp_chunk) != 3) line = NULL;
    if (plan_find(&t->m, o->disk != NULL, o->memory, line ? &same : NULL, &t->way)) return 1;
    tell_plan(t);
    return describe_settings(t, text, sizeof text)
        || team_wrong(&t->team, &t->m.why, (*before || !t->team.rank) && progress_settle(p, &t->host, text, before))
        || tell_seconds(t);
}

static int open_model(tuner *t) {
    model *m = &t->m;

    m->threads = memopt_thread_pool_threads(t->pool);
    m->folder = &t->folder;
    model_shape(m, &t->s, &t->config, &t->shape);
    return model_open_tables(m);
}

static int check_rank(tuner *t) { /* keys' outputs are the fewest, but in tiny models the MLP's */
    const size_t kv = transformer_kv_width(&t->shape), hidden = t->shape.hidden;
    const size_t width = t->shape.width, less = kv < hidden ? kv : hidden, most = less < width ? less : width;

    return t->s.adapter > most && refuse(&t->m.why, "--adapter %lu: matrices have only %lu rows or columns",
                                         (unsigned long)t->s.adapter, (unsigned long)most);
}

/* Model, text and what a pass takes; nothing large. */
static int open_inputs(tuner *t) {
    const options *o = t->o;
    char path[2048];
    reason *why = &t->m.why;
    const size_t threads = o->threads / t->team.in_process;

    snprintf(path, sizeof path, "%.1900s/config.json", o->model);
    snprintf(t->progress.folder, sizeof t->progress.folder, "%.1000s.run", o->out);
    snprintf(t->page.losses, sizeof t->page.losses, "%s/losses", t->progress.folder);
    snprintf(t->page.path, sizeof t->page.path, "%.1000s.html", o->out);
    t->progress.m = &t->m;
    if (failed(why, "the host", memopt_host_resolve(NULL, &t->host)) || config_open(&t->config, path, &t->shape, why))
        return 1;
    t->begins = o->random && random_is_needed(o->model, &t->host); /* they are written last: all else may be refused */
    if (!t->begins && open_folder(t)) return 1;
    if (!t->s.context) t->s.context = t->config.positions < 1024 ? t->config.positions : 1024;
    if (t->s.context > t->config.positions)
        return refuse(why, "--context %lu: the model has %lu positions", (unsigned long)t->s.context,
                      (unsigned long)t->config.positions);
    if (check_rank(t) || open_data(t)) return 1;
    t->steps = o->steps;
    if (!t->steps) {
        const uint64_t each = (uint64_t)t->s.batch * t->s.units, windows = data_get_counts(t->data).part[0].windows;

        t->steps = (uint64_t)ceil(o->epochs * (double)windows / (double)each);
        if (!t->steps) return refuse(why, "--epochs 0: that is no step");
    }
    if (threads > 1 && failed(why, "--threads", memopt_thread_pool_create(NULL, (int)threads, &t->pool))) return 1;
    return open_model(t) || open_prompt(t);
}

/* The first rank opens model and text before the others: what is wrong is told once, a text becomes tokens once. */
static int open_in_turn(tuner *t) {
    double none = 0;

    if (t->team.rank && team_most(&t->team, &t->m.why, &none)) return 1;
    if (open_inputs(t)) return 1;
    return !t->team.rank && team_most(&t->team, &t->m.why, &none);
}

static int work(tuner *t) { /* the exit status */
    if (team_open(&t->team, &t->m.why) || open_in_turn(t)) return 1;
    if (t->o->plan) return plan_tell_frontier(&t->m, t->o->disk != NULL);
    return begin_run(t) ? 1 : train(t);
}

static void *work_of_rank(void *user) {
    tuner *t = (tuner *)user;

    t->status = work(t);
    if (t->status == 1) team_give_up(&t->team);
    return NULL;
}

static void tuner_close(tuner *t) {
    progress_close(&t->progress);
    page_close(&t->page);
    model_close(&t->m);
    data_close(t->data);
    if (t->has_tokens) tokeniser_close(&t->tokens);
    free(t->prompt.ids);
    folder_close(&t->folder);
    config_close(&t->config);
    memopt_thread_pool_destroy(t->pool);
    memopt_comm_destroy(t->team.comm);
}

/* Those of this process; first: the team of the first of them. */
static tuner *tuners_open(const options *o, const tuning *s, const team *first) {
    tuner *all = (tuner *)calloc(first->in_process, sizeof *all);
    size_t i;

    for (i = 0; all && i < first->in_process; ++i) {
        all[i].o = o;
        all[i].s = *s;
        all[i].team = *first;
        all[i].team.rank += i;
        all[i].m.team = &all[i].team;
    }
    return all;
}

/* The status of the run, and its reason. */
static int tuners_end(tuner *all, size_t count) {
    const tuner *t = all;
    size_t i;
    int status;

    for (i = 1; i < count; ++i)
        if (all[i].status == 1 && (t->status != 1 || team_hearsay(&all[i].team) < team_hearsay(&t->team))) t = &all[i];
    status = t->status;
    if (status == 1 && !t->team.was_told) fprintf(stderr, "finetune: %s\n", t->m.why.text);
    ranks_broken();
    for (i = 0; i < count; ++i) tuner_close(&all[i]);
    free(all);
    return status;
}

static int run(const options *o, const tuning *s, const team *first) {
    const size_t count = first->in_process;
    tuner *all = tuners_open(o, s, first);
    memopt_ranks_desc d;
    memopt_ranks *threads = NULL;
    memopt_status status = all ? MEMOPT_OK : MEMOPT_ERR_MEMORY;
    size_t i;
    int ended = 1;

    memset(&d, 0, sizeof d);
    d.rank_count = count;
    if (!status && count > 1) status = memopt_ranks_create(&d, &threads);
    for (i = 0; !status && count > 1 && i < count; ++i) all[i].team.transport = memopt_ranks_transport(threads, i);
    if (!status && ranks_run(work_of_rank, all, sizeof *all, count)) status = MEMOPT_ERR_UNSUPPORTED;
    if (status) fprintf(stderr, "finetune: --ranks %lu: %s\n", (unsigned long)count, memopt_status_text(status));
    if (all) ended = tuners_end(all, count);
    memopt_ranks_destroy(threads);
    return status ? 1 : ended;
}

int main(int argc, char **argv) {
    options o;
    tuning s;
    reason why;
    team first;
    int i, status;

#ifdef SIGXFSZ
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a reason, too */
#endif
    memset(&why, 0, sizeof why);
    for (i = 1; i < argc; ++i)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return fputs(options_text, stdout) < 0;
    if (ranks_begin(&argc, &argv, &first)) return fputs("finetune: MPI does not start\n", stderr), 1;
    status = options_parse(&o, &s, argc, argv, &why) || ranks_count(&first, o.ranks, &why) ? 2 : run(&o, &s, &first);
    if (status == 2 && !first.rank)
        fprintf(stderr, "finetune: %s\n%s", why.text, "finetune --help lists the switches\n");
    ranks_end();
    return status;
}
