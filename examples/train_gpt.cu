/* train_gpt.cu - train_gpt.c on a CUDA device: the same network, switches, data and first weights.

   What to see: `train_gpt_cuda --dry-run` tells the bytes of the device, without a device; a training takes exactly
   those, and `--ladder` shows them rung by rung, as a table and a page. Losses are the CPU's but for rounding: products
   are cuBLASLt's, and in 16 bits attention runs on tensor cores. What is kept and what is made again changes no bit here
   either.
   How it works: the network is examples/parts, as on the CPU; parts/device.h makes their operators the device's. The
   arena has another source, and what is not kept is made again by the same tape. Lines that differ from train_gpt.c are
   marked from cuda 1 to cuda 11. A step waits for the device once, for its loss; with --graph it is one launch, too.
   Build: nvcc -O2 -arch=native train_gpt.cu -o train_gpt_cuda -lcublasLt
   (memopt.h and memopt_cuda.cu beside it or with -I); for a profiler add -DTRAIN_GPT_NVTX (gpt/ranges.h)
   Many cards: add -DTRAIN_GPT_NCCL and -lnccl, then --ranks 4 --stage 3 (gpt/ranks.h, ranks_card.h): the model is cut
   among them, and weights have the same bits for any number of them. With --pipeline, --tensor or --sequence cards share
   a pass. As processes, on several machines, too: each with --rank R --ranks 4 --id-file FILE, or torchrun --no-python or
   mpirun in front of --id-file FILE. */
#define MEMOPT_CUDA_STATIC /* one file: what it does not call is not compiled */
#include "memopt_cuda.cu"                                                /* cuda 1: memopt.h is in it */
#include <errno.h>
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
#include "parts/device.h"                                                /* cuda 2: the parts' operators */
#include "parts/block.h"
#include "parts/embedding.h"
#include "parts/head.h"
#include "gpt/model.h"
#include "gpt/engine.h"
#include "gpt/report.h"
#include "gpt/steps.h"
#include "gpt/card.h"
#include "gpt/ranges.h"
#include "gpt/saves.h"

/* ---- to open: the same code twice, over a source that only counts and over the device ---- */
/* The arena does not know how much is free where it asks for more than a card has. */
static void tell_room(card *c, const options *o, size_t capacity) {
    size_t free_bytes = 0;

    (void)memopt_cuda_memory_available(MEMOPT_CUDA_CURRENT_DEVICE, &free_bytes, NULL);
    snprintf(c->e.message, sizeof c->e.message, "This takes %.1f MB, and the card has %.1f MB free; %s.",
             (double)capacity / 1e6, (double)free_bytes / 1e6,
             o->ranks ? "more --ranks, a smaller --batch and --keep overhead:33 need less"
                      : "--fit BYTES finds the largest batch that fits");
}

static int open_arena(card *c, const options *o, size_t capacity) {
    engine *e = &c->e;
    memopt_arena_desc desc;
    memopt_cuda_status s;
    memopt_status created;

    if (!capacity) s = memopt_source_counting(&e->source);
    else s = memopt_cuda_source_malloc(MEMOPT_CUDA_CURRENT_DEVICE, &c->memory, &e->source); /* cuda 3 */
    c->memory.stream = c->stream;
    if (card_said(c, "The card", s)) return 1;
    memset(&desc, 0, sizeof desc);
    desc.source = &e->source;
    desc.capacity = capacity;
    desc.ledger = e->ledger;
    desc.alignment = e->alignment;
    desc.error = &e->error;
    created = memopt_arena_create(&desc, &e->arena);
    if (created == MEMOPT_ERR_MEMORY) tell_room(c, o, capacity);
    return said(e, "Memory", created);
}

static int open_tape(card *c, const options *o) {
    engine *e = &c->e;
    const size_t held = memopt_arena_get_stats(e->arena).used_low;
    size_t need = 0;
    memopt_tape_desc d;
    memopt_status s = memopt_tape_describe(e->layers, e->segments, e->segment_count, &e->error);

    if (said(e, "The layers", s)) return 1;
    d = describe_tape(e, o);
    if (o->keep == KEEP_BUDGET || o->keep == KEEP_LEAST) {
        s = memopt_tape_min_budget(&d, &need);
        if (said(e, "The plan of the activations", s)) return 1;
        if (o->keep == KEEP_BUDGET && budget_is_below(e, o, held + need, 0)) return 1;
        d.budget = o->keep == KEEP_BUDGET ? o->budget - held : need;
    }
    s = memopt_tape_create(&d, &e->tape);                                /* as on the CPU */
    return said(e, "The plan of the activations", s);
}

/* Within a backward: a tensor's gradients are complete, and in scratch. */
static memopt_status step_tensor(void *user, size_t tensor, const void *gradients) {
    card *c = (card *)user;
    memopt_optim *optim = c->e.optim;
    memopt_optim_tensor *t = &c->e.m.tensors[tensor];
    const void *own = t->gradients;
    int again = c->e.optim_desc.kind == MEMOPT_OPTIM_MUON && !t->adamw;
    memopt_cuda_status s = 0;

    t->gradients = gradients;
    while (again && !s) {
        s = memopt_cuda_optim_measure(optim, tensor, 0, t->count, c->d_scratch, c->scratch_bytes, c->stream);
        if (!s) s = memopt_cuda_optim_join(optim, tensor, &again, c->d_scratch, c->scratch_bytes, c->stream);
    }
    if (!s) /* cuda 4 */
        s = memopt_cuda_optim_apply(optim, tensor, 0, t->count, c->d_scratch, c->scratch_bytes, c->stream);
    t->gradients = own;
    return memopt_cuda_to_status(s);
}

/* capacity 0: a dry run, for which no device is needed. Else the arena has that many bytes, exactly. */
static int card_open(card *c, const options *o, size_t capacity) {
    engine *e = &c->e;
    transformer_ops ops;
    size_t bytes;

    memset(c, 0, sizeof *c);
    memset(&ops, 0, sizeof ops);
    e->alignment = CARD_ALIGNMENT;
    if (capacity && open_stream(c)) return 1;
    ops.stream = c->stream;
    describe_model(e, o, &ops, transformer_add_embedding, NULL, card_type(o));
    e->m.shape.done_fn = o->fuse_step ? step_tensor : NULL;
    e->m.shape.user = c;
    if (take_tables(e) || open_arena(c, o, capacity)) return 1;
    if (push_parameters(e) || push_optimizer(c, o) || push_norm(c, o) || push_step(c, o)) return 1;
    if (push_results(c, o) || open_tape(c, o)) return 1;
    bytes = memopt_tape_get_stats(e->tape).peak;                         /* known before anything has run */
    e->peak = memopt_arena_get_stats(e->arena).used_low + card_aligned(bytes);
    return capacity && (open_gemm(c, o) || open_host(c, o));
}

/* Bytes by dry run; 0, and a message: there is no such plan. */
static size_t planned_arena(const options *o, char *message, size_t capacity) {
    card c;
    size_t peak = 0;

    if (!card_open(&c, o, 0)) peak = c.e.peak;
    else snprintf(message, capacity, "%s", c.e.message);
    card_close(&c);
    return peak;
}

static size_t planned_bytes(const options *o, void *user) {
    char ignored[sizeof((engine *)0)->message];

    (void)user;
    return planned_arena(o, ignored, sizeof ignored);
}

static int batch_fits(const options *o, void *user) {
    char *const message = (char *)user;
    const size_t peak = planned_arena(o, message, sizeof((engine *)0)->message);

    return peak && peak <= o->fit;
}

/* ---- one step ---- */
static int load_to(card *c, const options *o, data *d, uint64_t number, int held_back, int32_t *d_ids,
                   int32_t *d_targets) {
    engine *e = &c->e;
    const size_t rows = transformer_rows(&e->m.shape), bytes = rows * sizeof(int32_t);
    int32_t *const targets = c->tokens + rows;
    memopt_cuda_status s;

    if (load_tokens(o, d, number, held_back, o->batch, c->tokens, targets, e->message, sizeof e->message)) return 1;
    range_begin("batch");
    s = memopt_cuda_transfer_in(c->transfer, d_ids, c->tokens, bytes, c->stream); /* cuda 5 */
    if (!s) s = memopt_cuda_transfer_in(c->transfer, d_targets, targets, bytes, c->stream);
    range_end();
    return card_said(c, "The batch", s);
}

/* place: of those that lie side by side on the device. */
static int load_batch(card *c, const options *o, data *d, uint64_t number, size_t place, int held_back) {
    const size_t first = place * transformer_rows(&c->e.m.shape);

    return load_to(c, o, d, number, held_back, (int32_t *)c->e.input + first, c->e.targets + first);
}

static int pass(card *c, size_t place) { /* forward and backward of one micro-batch */
    engine *e = &c->e;
    const size_t first = place * transformer_rows(&e->m.shape);
    memopt_status s;

    e->m.head.targets = e->targets + first;
    range_begin("forward");
    s = memopt_tape_forward(e->tape, (const int32_t *)e->input + first);
    range_end();
    range_begin("backward");
    if (!s) s = memopt_tape_backward(e->tape, NULL, NULL);               /* queued: nothing has waited */
    range_end();
    if (s) e->error = memopt_tape_error(e->tape);
    return said(e, "A pass", s);
}

/* All gradients are there: clip where that is asked for, on the device, then step. */
static memopt_cuda_status apply_clipped(card *c, const options *o, const memopt_optim_run *run) {
    memopt_cuda_optim_progress *const progress = c->d_progress;
    memopt_cuda_status s = 0;

    if (o->clip > 0) /* cuda 6: the host never sees the norm */
        s = memopt_cuda_clip_norm(c->d_total, 1, o->clip, &progress->factor, c->stream);
    if (!s) /* cuda 7 */
        s = memopt_cuda_optim_step_with_progress(c->e.optim, run, progress, c->d_scratch, c->scratch_bytes, c->stream);
    return s;
}

/* The losses of so many batches. The host waits for the device here, and for what --clip and --skip-outliers ask. */
static int read_losses(card *c, size_t count, double *sum) {
    const size_t bytes = count * sizeof *c->losses;
    memopt_cuda_status s;
    size_t i;

    range_begin("wait for the losses");
    s = memopt_cuda_transfer_out(c->transfer, c->losses, c->d_losses, bytes, c->stream);
    if (!s) s = memopt_cuda_transfer_wait(c->transfer);                  /* cuda 8 */
    range_end();
    for (*sum = 0, i = 0; i < count; ++i) *sum += c->losses[i].loss;
    return card_said(c, "The loss", s);
}

static int not_finite(card *c) {
    snprintf(c->e.message, sizeof c->e.message, "The gradients are not finite: a smaller --lr, or --warmup, may help.");
    return 1;
}

static int step_is_whole(card *c, const options *o) { /* with gradients that are not finite it is not */
    memopt_cuda_optim_outcome result = {};
    memopt_cuda_status s;

    if (!o->fuse_step && !(o->clip > 0)) return 1;
    s = memopt_cuda_optim_result(c->e.optim, c->d_scratch, c->scratch_bytes, &result, c->stream);
    if (card_said(c, "The step", s)) return 0;
    return (!result.stopped && !result.left_out) || !not_finite(c);
}

/* As memopt_tape_call has seed and stream. */
static memopt_cuda_status load_noise(card *c, const options *o, uint64_t first) {
    const size_t segments = c->e.segment_count, count = o->accumulate * segments;
    size_t i;

    if (!c->d_noise) return 0;
    for (i = 0; i < count; ++i)
        c->noise[i] = memopt_noise_make(o->seed, (first + i / segments) * MEMOPT_CHAIN_MAX + i % segments);
    return memopt_cuda_transfer_in(c->transfer, c->d_noise, c->noise, count * sizeof *c->noise, c->stream);
}

/* What a step has of its own: batches, number, rate and noise. */
static int load_step(card *c, const options *o, data *d, size_t number) {
    const uint64_t first = (uint64_t)number * o->accumulate;
    memopt_cuda_optim_progress progress;
    memopt_cuda_status s;
    size_t i;

    progress.steps = number - c->e.windows.skipped;
    progress.factor = 1;
    progress.rate = rate_at(o, number);
    for (i = 0; i < o->accumulate; ++i)
        if (load_batch(c, o, d, first + i, i, 0)) return 1;
    s = memopt_cuda_transfer_in(c->transfer, c->d_progress, &progress, sizeof progress, c->stream);
    if (!s) s = load_noise(c, o, first);
    return card_said(c, "The step", s);
}

static void describe_run(const options *o, memopt_optim_group *groups, memopt_optim_run *run) {
    memset(run, 0, sizeof *run);
    describe_groups(o->optimizer, 1, groups, run); /* times the rate that is there */
    run->step = 1;
    run->fused = o->fuse_step;
    run->clips_norm = o->clip > 0;
    run->accumulates = o->accumulate > 1;
}

/* What the device does in a step. The host waits for nothing, and no argument of a kernel differs from step to step. */
static int queue_passes(card *c, const options *o) {
    engine *e = &c->e;
    memopt_optim_group groups[2];
    memopt_optim_run run;
    memopt_cuda_status s = 0;
    size_t i;

    describe_run(o, groups, &run);
    if (o->fuse_step) /* cuda 9 */
        s = memopt_cuda_optim_begin_with_progress(e->optim, &run, c->d_progress, c->d_scratch, c->scratch_bytes,
                                                  c->stream);
    if (card_said(c, "The step", s)) return 1;
    for (i = 0; i < o->accumulate; ++i) {
        e->m.shape.accumulate = i > 0;
        e->m.shape.ops.d_loss = c->d_losses + i;
        e->m.shape.ops.d_noise = c->d_noise ? c->d_noise + i * e->segment_count : NULL;
        if (pass(c, i)) return 1;
    }
    if (measures_norm(o)) s = memopt_cuda_gradients_measure(&e->list, c->d_total, NULL, c->stream);
    return card_said(c, "The gradients", s);
}

static int queue_update(card *c, const options *o) {
    memopt_optim_group groups[2];
    memopt_optim_run run;
    memopt_cuda_status s;

    range_begin("optimizer");
    describe_run(o, groups, &run);
    s = o->fuse_step ? memopt_cuda_optim_end(c->e.optim) : apply_clipped(c, o, &run);
    range_end();
    return card_said(c, "The step", s);
}

/* With --skip-outliers the host looks at a step before it is applied. */
static int queue_step(card *c, const options *o) {
    return queue_passes(c, o) || (!(o->outliers > 0) && queue_update(c, o));
}

static int capture_step(card *c, const options *o) {
    cudaGraph_t graph = NULL;
    cudaError_t s = cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal);
    int wrong;

    if (card_said(c, "The graph", device_status(s))) return 1;
    wrong = queue_step(c, o);
    s = cudaStreamEndCapture(c->stream, &graph); /* in any case */
    if (!s) s = cudaGraphGetNodes(graph, NULL, &c->graph_nodes);
    if (!s) s = cudaGraphInstantiate(&c->graph, graph, 0);
    if (graph) (void)cudaGraphDestroy(graph);
    return wrong || card_said(c, "The graph", device_status(s));
}

/* The first step loads kernels and chooses products, which is nothing for a capture. */
static int launch_step(card *c, const options *o, int is_first) {
    int wrong;

    if (!o->graph || is_first) return queue_step(c, o);
    if (!c->graph && capture_step(c, o)) return 1;
    range_begin("graph");
    wrong = card_said(c, "The graph", device_status(cudaGraphLaunch(c->graph, c->stream)));
    range_end();
    return wrong;
}

/* The card waits for the host meanwhile, which has waited for it. */
static int update_unless_outlier(card *c, const options *o, size_t number) {
    memopt_gradient_total total;
    memopt_cuda_status s = memopt_cuda_transfer_out(c->transfer, &total, c->d_total, sizeof total, c->stream);

    if (!s) s = memopt_cuda_transfer_wait(c->transfer);
    if (card_said(c, "The norm", s)) return 1;
    if (total.overflow) return not_finite(c);
    if (is_outlier(&c->e, o, number + 1, sqrt(total.squares) * total.factor, 1)) return 0;
    return queue_update(c, o) || !step_is_whole(c, o);
}

static int step(card *c, const options *o, data *d, size_t number, int is_first) {
    if (load_step(c, o, d, number) || launch_step(c, o, is_first)) return 1;
    if (read_losses(c, o->accumulate, &c->e.m.loss)) return 1;
    return o->outliers > 0 ? update_unless_outlier(c, o, number) : !step_is_whole(c, o);
}

static int named_step(card *c, const options *o, data *d, size_t number, int is_first) {
    char name[40];
    int wrong;

    snprintf(name, sizeof name, "step %zu", number + 1);
    range_begin(name);
    wrong = step(c, o, d, number, is_first);
    range_end();
    return wrong;
}

static int evaluate(card *c, const options *o, data *d, size_t number, double *loss) { /* of a batch that is held back */
    engine *e = &c->e;

    e->m.shape.ops.d_loss = c->d_losses;
    e->m.head.targets = e->targets;
    if (load_batch(c, o, d, number, 0, 1)) return 1;
    if (said(e, "An evaluation", memopt_tape_evaluate(e->tape, e->input, c->d_output))) return 1; /* cuda 10 */
    return read_losses(c, 1, loss);
}

/* The mean loss of what is held back, which is the same in every run. */
static int validate(card *c, const options *o, data *d, outcome *out) {
    const size_t batches = data_held_batches(d, o->batch, o->context);
    double sum = 0, loss;
    size_t i;

    for (i = 0; i < batches; ++i) {
        if (evaluate(c, o, d, i, &loss)) return 1;
        sum += loss * (double)o->accumulate; /* a batch counts as a part of its step */
    }
    out->held_steps = (uint32_t)o->validate;
    out->held[out->held_count++] = (float)(sum / (double)batches);
    return 0;
}

/* ---- a whole run ---- */
static int train_from(card *c, const options *o, data *d, outcome *out, saves *s) {
    const size_t first = (size_t)s->first;
    int stops = 0;
    size_t i;

    for (i = first; i < o->steps && !stops; ++i) {
        const double begin = now(), begun = seconds_worked();

        if (named_step(c, o, d, i, i == first)) return 1;
        outcome_step(out, c->e.m.loss, now() - begin, seconds_worked() - begun);
        progress(&c->e, o, i + 1 - first, i + 1, out->all_steps[0]);
        if (o->validate && ((i + 1) % o->validate == 0 || i + 1 == o->steps) && validate(c, o, d, out)) return 1;
        stops = saves_stop;
        if (saves_after(s, &c->e, o, i + 1, stops)) return 1;
    }
    outcome_speed(out, 1);
    out->graph_nodes = c->graph_nodes;
    out->skipped = c->e.windows.skipped;
    out->flops_per_step = step_flops(&c->e, o);
    out->weights_hash = HASH_BEGIN;
    return each_part(c, hash_part, &out->weights_hash);
}

static int train(card *c, const options *o, data *d, outcome *out) {
    saves s;
    int wrong;

    memset(&s, 0, sizeof s);
    s.list_fn = card_list;                                               /* cuda 11 */
    s.user = c;
    s.tokens = d->tokens;
    if (put_weights(c, o->seed) || open_feed(&c->e, o, d, o->accumulate, 0, 1)
        || said(&c->e, "The loss scale", memopt_scaler_default(&c->e.scaler))) return 1;
    wrong = saves_open(&s, &c->e, o) || train_from(c, o, d, out, &s);
    saves_close(&s);
    return wrong;
}

/* Bytes of the card that are taken. */
static size_t card_taken(card *c) {
    size_t free_bytes = 0, total = 0;

    (void)card_said(c, "The card", memopt_cuda_memory_available(MEMOPT_CUDA_CURRENT_DEVICE, &free_bytes, &total));
    return total - free_bytes;
}

/* The plan, and, unless it is a dry run, the training. Everything is given back at the end. strip may be NULL. */
static int run_with(card *c, options *o, data *d, outcome *out, char **strip) {
    char *const message = c->e.message;
    const size_t n = sizeof c->e.message;
    options shown = *o;
    size_t peak, before = 0;

    if (!o->dry_run && data_open(o->data, o->vocab, o->context, d, message, n)) return 1;
    if (o->validate && d->file && data_hold_back(d, o->context, message, n)) return 1;
    if (o->fit && fit_batch(o, batch_fits, planned_bytes, message, message, n)) return 1;
    shown.batch = o->batch;
    shown.quiet = shown.ladder = shown.ends = 0; /* what anybody would give to run just this */
    tell_switches(&shown, out);
    if (!(peak = planned_arena(o, message, n))) {
        shown = *o;
        shown.keep = KEEP_LEAST;
        if (o->keep == KEEP_BUDGET) tell_leaner(&shown, planned_bytes, NULL, message, n);
        return 1;
    }
    if (!o->dry_run) before = card_taken(c);
    if (card_open(c, o, o->dry_run ? 0 : peak)) return 1;
    describe_outcome(&c->e, o, out);
    if (strip) *strip = strip_of(&c->e);
    if (o->dry_run) return 0;
    if (train(c, o, d, out)) return 1;
    outcome_feed(out, data_end_feed(d));
    out->measured_peak = card_taken(c) - before;
    return 0;
}

static int run(const options *asked, outcome *out, char **strip) {
    options o = *asked;
    card c;
    data d;
    int wrong;

    memset(&c, 0, sizeof c);
    memset(&d, 0, sizeof d);
    wrong = run_with(&c, &o, &d, out, strip);
    if (wrong) snprintf(out->message, sizeof out->message, "%s", c.e.message);
    out->ok = !wrong;
    data_close(&d);
    card_close(&c);
    return wrong;
}

#include "gpt/card_tables.h"
#ifdef TRAIN_GPT_NCCL
#  include <nccl.h>
#  include "adapters/nccl.h"
#  include "parts/ring.h"                                              /* and tensor.h */
#  include "parts/pipeline.h"
#  include "gpt/ranks_card.h"
#else
static int ranks_main(const options *o, outcome *out) { (void)o; (void)out; return 1; } /* never called: it is refused */
#endif

/* ---- what a card does not do, or not so ---- */
static const int not_here[] = { ON_REPLICAS,    ON_OFFLOAD, ON_ADVISE,  ON_PROCESSORS, ON_SPEEDS, ON_FRONTIER, ON_GRIDS,
                                ON_BATCH_TABLE, ON_SAMPLE, ON_THREADS, ON_GEMM,       ON_WINDOW, ON_DOCUMENTS };

enum { NOT_HERE = sizeof not_here / sizeof *not_here };

static int ranks_of_cards_wrong(const options *o, int whole, char *message, size_t capacity) {
    const int many = o->ranks > o->pipeline * o->tensor; /* have the same of the model */
    const size_t rows = o->batch * o->context, aligned = 64 / memopt_type_bytes(card_type(o)); /* see tensor_device.h */

#ifndef TRAIN_GPT_NCCL
    REFUSE(o->ranks, "--ranks: this program was built without NCCL; make build/train_gpt_nccl, or add -DTRAIN_GPT_NCCL "
           "and -lnccl to the line that builds it; or leave --ranks out.");
#endif
    REFUSE(many && !o->stage, "--stage 0 cuts nothing, which the cards of several ranks do not do: take 1%s.",
           o->pipeline > 1 ? "" : ", 2 or 3");
    REFUSE(many && (whole || o->optimizer == MEMOPT_OPTIM_MUON),
           "--optimizer: lamb, lars, adafactor and muon measure whole tensors, which a card does where no other has a "
           "part of them: take adamw, --ranks 1 or --pipeline %zu.", o->ranks);
    REFUSE(o->ranks && o->graph,
           "--graph is one card's alone: ranks compare their calls of NCCL, and watch a deadline, "
           "on the host within a step; leave --graph or --ranks out.");
    REFUSE(o->ranks && o->fit, "--fit looks at one card alone: leave it or --ranks out.");
    REFUSE(o->parts && rows % aligned,
           "--parts: where a model is cut by width or length, a card takes batches of a multiple of %zu tokens, and "
           "--batch %zu of --context %zu has %zu: take another --batch.", aligned, o->batch, o->context, rows);
    REFUSE(o->parts && rows / o->parts * o->width % aligned,
           "--parts %zu: on a card one of them takes a multiple of %zu numbers of --width %zu, and has %zu: take fewer, "
           "or a larger --batch.", o->parts, aligned, o->width, rows / o->parts * o->width);
    return 0;
}

static int card_wrong(options *o, char *message, size_t capacity) {
    const int whole = o->optimizer == MEMOPT_OPTIM_LAMB || o->optimizer == MEMOPT_OPTIM_LARS
        || o->optimizer == MEMOPT_OPTIM_ADAFACTOR;
    const uint64_t given = o->given;

    if (options_elsewhere(given, not_here, NOT_HERE, "the CPU's", "train_gpt", message, capacity)) return 1;
    REFUSE(o->model != MODEL_GPT, "--model %s is the CPU's: take train_gpt, or leave it out.", model_row_of(o)->name);
    REFUSE(o->keep == KEEP_CONVENTIONAL, "--keep conventional is the CPU's: take train_gpt, or --keep arena.");
    REFUSE(GIVEN(ON_ATTENTION) && !o->lean_attention,
           "--attention full is the CPU's: a card never holds the matrix; leave it out, or take lean.");
    REFUSE(o->gradients != MEMOPT_TYPE_F32 && o->gradients != card_type(o),
           "--gradients: on a card they are f32, or as the --weights; leave it out.");
    REFUSE(o->fuse_step && whole, "--fuse-step cannot measure whole tensors on a card, as lamb, lars and adafactor do: "
           "leave it out, or take adamw.");
    o->lean_attention = 1;
    return ranks_of_cards_wrong(o, whole, message, capacity);
}

static int run_and_tell(const options *o) {
    static outcome out;

    if (o->ranks) return ranks_main(o, &out);
    if (run(o, &out, NULL)) {
        fprintf(stderr, "train_gpt: %s\n", out.message);
        return 1;
    }
    tell_plan(&out);
    if (out.loss_count)
        printf("measured %.3f MB, %.1f tokens/s, loss %.5f, weights %016llx\n", (double)out.measured_peak / 1e6,
               out.tokens_per_second, (double)out.losses[out.loss_count - 1], (unsigned long long)out.weights_hash);
    if (out.batches) tell_feed(&out);
    if (out.skipped) tell_skipped(&out);
    if (out.held_count) printf("held back: loss %.5f\n", (double)out.held[out.held_count - 1]);
    if (!o->json || !json_write(o->json, &out)) return 0;
    fprintf(stderr, "train_gpt: %s could not be written: is its folder there, and is there room?\n", o->json);
    return 1;
}

int main(int argc, char **argv) {
    options o;
    char message[400] = "";
    int status = 0;

    ignore_file_limit();
#ifdef TRAIN_GPT_NCCL
    if (ranks_take_launcher(&argc, &argv)) return 1;
#endif
    if (options_parse(argc, argv, &o, message, sizeof message)
        || (!o.help && card_wrong(&o, message, sizeof message))) {
        fprintf(stderr, "train_gpt: %s\n", message);
        return 2;
    }
    if (o.help) options_help(stdout, options_bits(not_here, NOT_HERE));
    else status = o.ladder ? ladder_main(&o) : run_and_tell(&o);
    if (fflush(stdout) || ferror(stdout)) {
        fputs("train_gpt: what was to be printed could not be written: is the disk full?\n", stderr);
        status = 1;
    }
#ifdef TRAIN_GPT_NCCL
    if (ranks_stuck) _exit(status);
#endif
    return status;
}
