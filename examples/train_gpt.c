/* train_gpt.c - GPT-2, Llama, Mistral, Qwen2, Qwen3, SmolLM (or a ViT) in as little memory as you like, every technique a
   switch.

   What to see: `train_gpt --ladder` (make demo) trains the same network eleven times, from what a usual C engine
   allocates to everything on and on a disk, each in a process of its own: predicted and measured peak, and whether the
   bits are the same; its page, build/ladder.html, shows where the bytes are. `--help` lists the switches; `--dry-run`
   plans any size at once.
   How it works: the twelve lines that matter are marked, from memopt 1 to memopt 12. The network is made of parts/, in
   gpt/model.h; what a usual engine would hold instead, in gpt/conventional.h; who gets which bytes, in gpt/engine.h. On a card:
   train_gpt.cu.
   Build: cc -O2 -DMEMOPT_PTHREADS -pthread train_gpt.c -o train_gpt -lm      (memopt.h beside it or with -I)
   With a BLAS: add -DTRAIN_GPT_CBLAS and what pkg-config says of openblas, blis or mkl.
   Many ranks: --ranks 4 (gpt/ranks.h, ranks_cpu.h); as processes: mpicc -DTRAIN_GPT_MPI. */
#define _DEFAULT_SOURCE 1 /* fork, pipe, mkdir */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "gpt/options.h"
#include "gpt/data.h"
#include "gpt/outcome.h"
#include "gpt/json.h"
#include "gpt/page.h"
#include "gpt/page_frontier.h"
#include "parts/block.h"
#include "parts/embedding.h"
#include "parts/head.h"
#include "parts/ring.h"
#include "parts/pipeline.h"
#include "gpt/attention.h"
#include "gpt/model.h"
#include "gpt/patches.h"
#include "gpt/conventional.h"
#include "gpt/engine.h"
#include "gpt/process.h"
#include "gpt/report.h"
#include "gpt/plan.h"
#include "gpt/steps.h"
#ifdef TRAIN_GPT_CBLAS
#  include <cblas.h>
#  include "adapters/cblas.h"
#endif
#ifdef TRAIN_GPT_MPI
#  include <mpi.h>
#  include "adapters/mpi.h"
#endif

/* ---- to open: the same code twice, over a source that only counts and over pages ---- */
/* What is left of the budget for the tape; `need` is there. */
static size_t budget_left(const engine *e, const options *o, size_t held, size_t need) {
    const size_t other = e->beside.process + PROCESS_SLACK, arena = o->budget > other ? o->budget - other : 0;

    return most(need, in_pages(arena, 0) > held ? in_pages(arena, 0) - held : 0);
}
static int open_tape(engine *e, const options *o) {
    const size_t held = memopt_arena_get_stats(e->arena).used_low; size_t need = 0; memopt_tape_desc d;
    memopt_status s = memopt_tape_describe(e->layers, e->segments, e->segment_count, &e->error);
    if (said(e, "The layers", s)) return 1;
    d = describe_tape(e, o);
    if (o->keep == KEEP_BUDGET || o->keep == KEEP_LEAST) {
        s = memopt_tape_min_budget(&d, &need);                           /* memopt 1: the least that is possible */
        if (said(e, "The plan of the activations", s)) return 1;
        if (o->keep == KEEP_BUDGET && budget_is_below(e, o, predicted_peak(&e->beside, in_pages(held + need, 1)), PROCESS_SLACK))
            return 1;
        d.budget = o->keep == KEEP_BUDGET ? budget_left(e, o, held, need) : need;
    }
    s = memopt_tape_create(&d, &e->tape);                                /* memopt 2: what to keep, what to make again */
    return said(e, "The plan of the activations", s);
}
static int open_arena(engine *e, size_t capacity) {
    memopt_arena_desc desc = { 0 }; uint64_t available; memopt_status s;
    if (!capacity) s = memopt_source_counting(&e->source);               /* memopt 3: bytes that are only counted... */
    else s = arena_pages(capacity, &e->source);                          /* memopt 4: ...or had */
    if (!memopt_memory_available(NULL, &available) && capacity > available) s = MEMOPT_ERR_MEMORY; /* not in an hour: now */
    desc.source = &e->source; desc.capacity = capacity; desc.ledger = e->ledger; desc.error = &e->error;
    desc.alignment = e->alignment;
    if (!s) s = memopt_arena_create(&desc, &e->arena);                   /* memopt 5: everything lies in here */
    if (!s) e->empty = memopt_arena_mark(e->arena);
    if (s == MEMOPT_ERR_MEMORY)
        snprintf(e->message, sizeof e->message, "This takes %.1f MB, and the system has less; --fit BYTES finds the "
                 "largest batch that fits, --advise BYTES the switches.", (double)capacity / 1e6);
    return said(e, "Memory", s);
}
/* capacity 0: a dry run. Else the arena has that many bytes, exactly. */
static int engine_open(engine *e, const options *o, const memopt_ops *ops, size_t capacity, const beside *b) {
    size_t bytes;
    memset(e, 0, sizeof *e);
    e->beside = *b; e->host = process_host();
    describe_cpu_model(e, o, ops);
    if (take_tables(e)) return 1;
    if (open_arena(e, capacity)) return 1;
    if (push_parameters(e) || push_optimizer(e, o) || push_list(e, o) || push_batch(e) || push_ahead(e)) return 1;
    if (o->keep == KEEP_CONVENTIONAL ? push_conventional(e) : open_tape(e, o)) return 1;
    bytes = memopt_tape_get_stats(e->tape).peak;                         /* memopt 6: known before anything has run */
    e->peak = in_pages(memopt_arena_get_stats(e->arena).used_low + ((bytes + 63) & ~(size_t)63), 1);
    return capacity && touch_arena(e);
}
/* Bytes of the arena by dry run; 0, and a message, when there is no such plan. */
static size_t planned_arena(const options *o, const memopt_ops *ops, const beside *b, char *message, size_t capacity) {
    engine e; size_t peak = 0;
    if (!engine_open(&e, o, ops, 0, b)) peak = e.peak;
    else snprintf(message, capacity, "%s", e.message);
    engine_close(&e);
    return peak;
}

/* ---- one step ---- */
#define HELD_IMAGES ((uint64_t)1 << 40) /* no training gets that far */

static void mark_documents(engine *e, const data *d, const int32_t *ids) { /* of a batch */
    transformer *t = &e->m.shape;
    t->starts = e->starts; /* before there is a batch it is planned as whole sequences, the longest documents */
    t->documents = data_documents(d, ids, t->batch, t->length, e->starts, e->positions);
}
/* number: of a batch, of those that are trained on, or of those that are not. */
static int load_batch(engine *e, const options *o, data *d, uint64_t number, int held_back) {
    const model *m = &e->m; const transformer *t = &m->shape; size_t side = 1; memopt_status s = MEMOPT_OK;
    int32_t *const ids = (int32_t *)e->input; char *const message = e->message; const size_t n = sizeof e->message;
    const uint64_t first = number * t->batch;
    if (!m->vit && load_tokens(o, d, number, held_back, t->batch, ids, e->targets, message, n)) return 1;
    if (m->documents) mark_documents(e, d, ids);
    if (!m->vit) return 0;
    while (side * side < o->context) ++side;
    data_images(o->seed, first + (held_back ? HELD_IMAGES : 0), t->batch, side, PATCH_SIDE, e->pixels, e->targets);
    if (t->type == MEMOPT_TYPE_BF16)
        s = memopt_bf16_from_f32((uint16_t *)e->input, e->pixels, pixel_count(m), t->ops.threads);
    return said(e, "The images", s);
}
/* A tape knows why it failed, but of its store only that: the store knows more. */
static int tape_said(engine *e, const char *what, memopt_status s) {
    if (s) e->error = memopt_tape_error(e->tape);
    if (s && e->kept && memopt_store_error(e->kept).status == s) e->error = memopt_store_error(e->kept);
    return said(e, what, s);
}
static int pass(engine *e) { /* forward and backward of one micro-batch */
    memopt_status s = e->tape ? MEMOPT_OK : conventional_pass(&e->m, e->plain, e->input, 0);
    if (e->tape) s = memopt_tape_forward(e->tape, e->input);             /* memopt 7: what fits is kept */
    if (e->tape && !s) s = memopt_tape_backward(e->tape, NULL, NULL);    /* memopt 8: the rest is made again */
    e->m.loss += e->m.head.loss;
    return e->tape ? tape_said(e, "A pass", s) : said(e, "A pass", s);
}
/* All gradients are there: look at them where that is asked for, then step. */
static int apply(engine *e, const options *o, memopt_optim_run *run) {
    const int scaling = o->gradients == MEMOPT_TYPE_F16; const memopt_threads *threads = e->m.shape.ops.threads;
    memopt_gradient_total total = { 0 }; memopt_status s = MEMOPT_OK; double clip = 1, norm;
    int leaves_out;
    total.factor = 1;
    if (scaling) s = memopt_scaler_measure(&e->scaler, &e->list, &total, threads); /* memopt 9: fp16 may overflow */
    else if (measures_norm(o)) s = memopt_gradients_measure(&e->list, &total, threads);
    if (!s && total.overflow && !scaling) {
        snprintf(e->message, sizeof e->message, "The gradients are not finite: a smaller --lr, or --warmup, may help.");
        return 1;
    }
    norm = sqrt(total.squares) * total.factor;
    leaves_out = !s && (total.overflow || is_outlier(e, o, run->step + e->windows.skipped, norm, 1));
    if (!s && o->clip > 0 && !total.overflow)
        s = memopt_clip_norm(norm, o->clip, &clip);
    run->gradient_factor = total.factor * clip;
    if (!s && !leaves_out) s = memopt_optim_step(e->optim, run);         /* memopt 10: states of 32, 16 or 8 bits */
    if (!s && scaling) s = memopt_scaler_update(&e->scaler, total.overflow);
    return said(e, "The step", s);
}
static int step(engine *e, const options *o, data *d, size_t number) {
    memopt_optim_group groups[2]; memopt_optim_run run = { 0 };
    memopt_status s = MEMOPT_OK; size_t i;
    describe_groups(o->optimizer, rate_at(o, number), groups, &run);
    run.step = number + 1 - e->windows.skipped; run.fused = o->fuse_step;
    run.clips_norm = o->clip > 0; run.accumulates = o->accumulate > 1;
    run.scales_loss = o->gradients == MEMOPT_TYPE_F16;
    e->m.loss = 0; e->m.head.rule.scale = run.scales_loss ? (double)e->scaler.scale : 1;
    e->m.head.targets = e->targets; e->m.optim = e->optim;
    if (o->fuse_step) s = memopt_optim_begin(e->optim, &run);            /* memopt 11: each layer's backward steps it, */
    if (said(e, "The step", s)) return 1;                                /* and its gradients are gone: step_tensor() */
    for (i = 0; i < o->accumulate; ++i) {
        e->m.shape.accumulate = i > 0;
        if (load_batch(e, o, d, (uint64_t)number * o->accumulate + i, 0) || pass(e)) return 1;
    }
    if (!o->fuse_step) return apply(e, o, &run);
    return said(e, "The step", memopt_optim_end(e->optim));              /* memopt 12 */
}
static int evaluate(engine *e) { /* a forward alone; in a conventional engine a pass whose gradients nobody looks at */
    memopt_status s; float loss;
    if (!e->tape) return pass(e);
    s = memopt_tape_evaluate(e->tape, e->input, &loss);
    return tape_said(e, "An evaluation", s);
}
/* The mean loss of what is held back, which is the same in every run. */
static int validate(engine *e, const options *o, data *d, outcome *out) {
    const size_t batches = data_held_batches(d, o->batch, o->context); double sum = 0; size_t i;
    for (i = 0; i < batches; ++i) {
        if (load_batch(e, o, d, i, 1) || evaluate(e)) return 1;
        sum += e->m.head.loss * (double)o->accumulate; /* a batch counts as a part of its step */
    }
    out->held_steps = (uint32_t)o->validate;
    out->held[out->held_count++] = (float)(sum / (double)batches);
    return 0;
}
static int init_scale(engine *e) { return said(e, "The loss scale", memopt_scaler_default(&e->scaler)); }
#include "gpt/sample.h"
#include "gpt/rehearse.h"
#include "gpt/saves.h"

/* ---- what is there before a plan ---- */
/* Workers and the product. 0: fine; else a message. */
static int open_ops(const options *o, memopt_thread_pool **pool, memopt_threads *threads, memopt_ops *ops,
                    char *message, size_t capacity) {
    memset(ops, 0, sizeof *ops);
    if (o->threads > 1) {
        const memopt_status s = memopt_thread_pool_create(NULL, (int)o->threads, pool);
        if (s) {
            snprintf(message, capacity, "No pool of %zu threads (%s): give fewer --threads%s.", o->threads,
                     memopt_status_text(s), s == MEMOPT_ERR_UNSUPPORTED ? ", or compile with -DMEMOPT_PTHREADS -pthread" : "");
            return 1;
        }
        *threads = memopt_thread_pool_threads(*pool);
        ops->threads = threads;
    }
#ifdef TRAIN_GPT_CBLAS
    if (o->blas) ops->gemm = memopt_cblas();
#else
    if (o->blas) {
        snprintf(message, capacity, "This program was built without a BLAS: install one that pkg-config "
                 "knows (libopenblas-dev) and make again, or leave --gemm out.");
        return 1;
    }
#endif
    return 0;
}
/* What the process has beside an arena: a plan to throw away leaves what the C library keeps of it. */
static int look_beside(const options *o, const memopt_ops *ops, beside *b, char *message, size_t capacity) {
    options x = *o; engine e; int wrong; size_t save = 0;
    if (x.keep == KEEP_BUDGET) { x.keep = KEEP_OVERHEAD; x.overhead = 0.33; } /* what a budget leaves is not known yet */
    wrong = engine_open(&e, &x, ops, 0, b) || (x.save && saves_memory(&e, &x, &save));
    if (wrong) snprintf(message, capacity, "%s", e.message);
    b->process = process_now() + save; b->highest = process_highest();
    engine_close(&e);
    return wrong;
}
#include "gpt/ranks_cpu.h"
#include "gpt/advise.h"

/* ---- a whole run ---- */
static int train_from(engine *e, const options *o, data *d, outcome *out, saves *s) {
    const size_t first = (size_t)s->first; size_t i; int stops = 0;
    for (i = first; i < o->steps && !stops; ++i) {
        const double begin = now(), begun = seconds_worked();
        if (step(e, o, d, i)) return 1;
        outcome_step(out, e->m.loss, now() - begin, seconds_worked() - begun);
        progress(e, o, i + 1 - first, i + 1, out->all_steps[0]);
        if (o->validate && ((i + 1) % o->validate == 0 || i + 1 == o->steps) && validate(e, o, d, out)) return 1;
        stops = saves_stop; /* once: one that comes while this is saved ends the run after the next step, saved, too */
        if (saves_after(s, e, o, i + 1, stops)) return 1;
    }
    outcome_speed(out, 0);
    out->skipped = e->windows.skipped;
    out->flops_per_step = step_flops(e, o);
    out->weights_hash = weights_hash(&e->m);
    return 0;
}
static int train(engine *e, const options *o, data *d, outcome *out) {
    size_t i; saves s; int wrong;
    memset(&s, 0, sizeof s);
    s.tokens = d->tokens;
    for (i = 0; i < e->m.tensor_count; ++i)
        if (said(e, "The weights", init_tensor(&e->m, i, &e->m.tensors[i], o->seed))) return 1;
    if (init_scale(e) || open_feed(e, o, d, o->accumulate, 0, 1)) return 1;
    wrong = saves_open(&s, e, o) || train_from(e, o, d, out, &s);
    saves_close(&s);
    return wrong;
}
/* The plan, and, unless it is a dry run, the training. Everything is given back at the end. known: what was beside the
   arena when this was advised, or NULL. strip may be NULL. */
static int run_with(options *o, const memopt_ops *ops, const beside *known, data *d, engine *e, outcome *out, char **strip) {
    char *const message = e->message; const size_t n = sizeof e->message; options shown; size_t peak; beside b = { 0, 0 };
    if (!o->dry_run && !is_vit(o) && data_open(o->data, o->vocab, o->context, d, message, n)) return 1;
    if (o->validate && d->file && data_hold_back(d, o->context, message, n)) return 1;
    touch_stacks(ops->threads);
    if (known) b = *known;
    else if (look_beside(o, ops, &b, message, n)) return 1;
    if (o->fit && fit(o, ops, &b, message, n)) return 1;
    if (o->blas && !o->dry_run) { /* a batch that has to be smaller then takes no more of it */
        if (rehearse(o, ops, d, &b, message, n)) return 1;
        if (o->fit && fit(o, ops, &b, message, n)) return 1;
    }
    shown = *o;
    shown.quiet = shown.ladder = shown.ends = shown.batch_table = 0; /* what anybody would give to run just this */
    options_advised(&shown);
    tell_switches(&shown, out);
    if (!(peak = planned_arena(o, ops, &b, message, n))) return tell_small_budget(o, ops, &b, message, n);
    if (engine_open(e, o, ops, o->dry_run ? 0 : peak, &b)) return 1;
    describe_outcome(e, o, out);
    if (!o->dry_run) {
        if (train(e, o, d, out) || (o->sample && sample(e, o, d, 1))) return 1;
        outcome_feed(out, data_end_feed(d)); /* its place in the arena is used for something else now */
        out->gemm_flops = gemm_peak(e);
        out->mfu = out->gemm_flops > 0 ? out->flops_per_step / out->seconds_per_step / out->gemm_flops : 0;
        out->measured_peak = process_highest();
    }
    if (strip) *strip = strip_of(e);
    return 0;
}
static int run_beside(const options *asked, const beside *known, outcome *out, char **strip) {
    options o = *asked;
    engine e; memopt_thread_pool *pool = NULL; memopt_threads threads; memopt_ops ops; data d; int wrong;
    memset(&threads, 0, sizeof threads); memset(&d, 0, sizeof d); memset(&e, 0, sizeof e);
    wrong = open_ops(&o, &pool, &threads, &ops, out->message, sizeof out->message);
    if (!wrong && (wrong = run_with(&o, &ops, known, &d, &e, out, strip)) != 0)
        snprintf(out->message, sizeof out->message, "%s", e.message);
    out->ok = !wrong;
    data_close(&d);
    engine_close(&e);
    memopt_thread_pool_destroy(pool);
    return wrong;
}
static int run(const options *asked, outcome *out, char **strip) { return run_beside(asked, NULL, out, strip); }
#include "gpt/tables.h"
#include "gpt/frontier.h"
#include "gpt/advise_ranks.h"

static int run_and_tell(int argc, char **argv) {
    static const int of_cards[] = { ON_GRAPH, ON_RANK, ON_ID_FILE };
    static outcome out; options o; char message[400] = ""; beside known; const size_t n = sizeof of_cards / sizeof *of_cards;
    if (options_parse(argc, argv, &o, message, sizeof message)
        || (!o.help && options_elsewhere(o.given, of_cards, n, "a card's", "train_gpt_cuda", message, sizeof message))) {
        if (!own_rank()) fprintf(stderr, "train_gpt: %s\n", message);
        return 2;
    }
    if (o.help) { if (!own_rank()) options_help(stdout, options_bits(of_cards, n)); return 0; }
    if ((o.advise && (o.grids ? advise_grids(&o, &out) : advise_open(&o, &known, &out))) || (o.ranks && o.fit && fit(&o, NULL, NULL, out.message, sizeof out.message))) {
        if (!own_rank()) fprintf(stderr, "train_gpt: %s\n", out.message);
        return 1;
    }
    if (o.ranks) return ranks_main(&o, &out);
    if (o.ladder) return ladder_main(&o);
    if (o.batch_table) return batch_table_main(&o);
    if (run_beside(&o, o.advise ? &known : NULL, &out, NULL)) {
        fprintf(stderr, "train_gpt: %s\n", out.message);
        return 1;
    }
    tell_plan(&out);
    if (out.loss_count)
        printf("measured %.3f MB, %.1f tokens/s, %.0f %% of the product's speed, loss %.5f, weights %016llx\n",
               (double)out.measured_peak / 1e6, out.tokens_per_second, 100 * out.mfu,
               (double)out.losses[out.loss_count - 1], (unsigned long long)out.weights_hash);
    if (out.batches) tell_feed(&out);
    if (out.skipped) tell_skipped(&out);
    if (out.held_count) printf("held back: loss %.5f\n", (double)out.held[out.held_count - 1]);
    if (o.json && json_write(o.json, &out)) {
        fprintf(stderr, "train_gpt: %s could not be written: is its folder there, and is there room?\n", o.json);
        return 1;
    }
    return 0;
}
int main(int argc, char **argv) {
    int status;
    ignore_file_limit();
    status = ranks_begin(&argc, &argv) ? 1 : ranks_end(run_and_tell(argc, argv));
    if (!fflush(stdout) && !ferror(stdout)) return status;
    fputs("train_gpt: what was to be printed could not be written: is the disk full?\n", stderr);
    return 1;
}
