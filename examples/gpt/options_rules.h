/* options_rules.h - which switches of train_gpt contradict each other, and what to do then. Part of options.h. */
#ifndef GPT_OPTIONS_RULES_H
#define GPT_OPTIONS_RULES_H

static const char *options_lean(const options *o) { /* the first switch that a conventional engine does not have */
    return o->fuse_step                    ? "--fuse-step"
         : o->lean_attention               ? "--attention lean"
         : o->head_chunk                   ? "--head chunk"
         : o->mlp_chunk                    ? "--mlp chunk"
         : o->weights != WEIGHTS_F32       ? "16-bit --weights"
         : o->gradients != MEMOPT_TYPE_F32 ? "16-bit --gradients"
         : o->states != MEMOPT_STATE_F32   ? "an --optimizer in 16 or 8 bits"
                                           : NULL;
}

/* Bytes of the largest run that these sizes can mean, roughly: looked at before anything is multiplied in size_t. */
static double options_extent(const options *o) {
    const double w = (double)o->width, vocab = (double)o->vocab + 128, layers = (double)o->layers;
    const double rows = (double)o->batch * (double)o->context;
    const double weights = (2 * vocab + (double)o->context) * w + layers * (24 * w * w + 13 * w) + 4 * w;
    const double row = 2 * vocab + 2 * layers * (40 * w + 2 * (double)o->heads * (double)o->context);

    return 32 * weights + 8 * rows * row;
}

#define GIVEN(id) (given >> (id)&1)
#define REFUSE(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (condition) {                                                                                               \
            snprintf(message, capacity, __VA_ARGS__);                                                                  \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

/* Switches that this program does not have: bits of them. */
static inline uint64_t options_bits(const int *ids, size_t count) {
    uint64_t bits = 0;

    while (count) bits |= (uint64_t)1 << ids[--count];
    return bits;
}

static inline int options_elsewhere(uint64_t given, const int *ids, size_t count, const char *whose,
                                    const char *program, char *message, size_t capacity) {
    size_t i;

    for (i = 0; i < count; ++i)
        REFUSE(GIVEN(ids[i]), "--%s is %s: take %s, or leave it out.", switch_rows[ids[i]].name, whose, program);
    return 0;
}

static int options_vit_wrong(const options *o, uint64_t given, char *message, size_t capacity) {
    size_t side = 1;

    while (side * side < o->context) ++side;
    REFUSE(GIVEN(ON_SAMPLE), "--sample writes text, and --model vit looks at images: leave one of them out.");
    REFUSE(GIVEN(ON_DATA), "--data is text, and --model vit draws its own images: leave --data out.");
    REFUSE(GIVEN(ON_VOCAB), "--vocab: the images of --model vit have 10 classes; leave --vocab out.");
    REFUSE(o->window || o->documents, "--%s is of text, and --model vit looks at images: leave it out.",
           o->window ? "window" : "documents");
    REFUSE(side * side != o->context, "--context %zu: the patches of an image make a square; take %zu or %zu.",
           o->context, (side - 1) * (side - 1), side * side);
    return 0;
}

/* What other networks than GPT-2's have, and what they do without. */
static int options_model_wrong(const options *o, char *message, size_t capacity) {
    const char *const name = model_row_of(o)->name;
    const size_t length = o->data ? strlen(o->data) : 0;
    const char *const end = o->data && length > 4 ? o->data + length - 4 : "";
    char what[32];

    if (model_row_of(o)->is_llama) snprintf(what, sizeof what, "--model %s", name);
    else snprintf(what, sizeof what, o->window ? "--window" : "--documents");
    REFUSE(model_row_of(o)->is_llama && model_head_width(o) % 2,
           "--width %zu in --heads %zu: rotary positions of --model %s turn pairs of numbers, and a head has %zu; take "
           "another number of heads.",
           o->width, o->heads, name, model_head_width(o));
    REFUSE(o->documents && o->model == MODEL_GPT,
           "--documents: learned positions of --model gpt count from the sequence's first token, not from a document's: "
           "take --model llama or another with rotary ones.");
    REFUSE(o->documents && o->vocab <= END_OF_TEXT && (!strcmp(end, ".u16") || !strcmp(end, ".bin")),
           "--documents of tokens begin at %d, GPT-2's end of text, which --vocab %zu does not have: leave one of them "
           "out.",
           END_OF_TEXT, o->vocab);
    if (!needs_lean_attention(o)) return 0;
    REFUSE(o->keep == KEEP_CONVENTIONAL, "--keep conventional is an engine for GPT-2, without %s: leave one of them out.",
           what);
    REFUSE(o->ladder || o->batch_table, "%s begins with an engine for GPT-2, without %s: leave one of them out.",
           o->ladder ? "--ladder" : "--batch-table", what);
    REFUSE(!o->lean_attention,
           "--attention full holds a matrix for each head and all tokens, which is not for %s: take lean, or leave it "
           "out.",
           what);
    return 0;
}

static int options_table_wrong(const options *o, uint64_t given, char *message, size_t capacity) {
    static const int own[] = { ON_KEEP,       ON_WEIGHTS,   ON_GRADIENTS,    ON_HEAD,   ON_MLP,
                               ON_ATTENTION,  ON_FUSE_STEP, ON_OPTIMIZER,    ON_SAMPLE, ON_CLIP,
                               ON_ACCUMULATE, ON_DROPOUT,   ON_SKIP_OUTLIERS };
    const char *const table = o->ladder ? "--ladder" : "--batch-table";
    size_t i;

    for (i = 0; i < sizeof own / sizeof *own; ++i)
        REFUSE(GIVEN(own[i]), "%s chooses --%s for every rung itself: leave --%s out.", table, switch_rows[own[i]].name,
               switch_rows[own[i]].name);
    REFUSE(o->ladder && o->batch_table, "--ladder and --batch-table are two tables: ask for one after the other.");
    REFUSE(o->batch_table && !o->fit, "--batch-table needs a limit: give --fit BYTES, such as --fit 300M.");
    REFUSE(o->batch_table
               && (GIVEN(ON_MODEL) || GIVEN(ON_BATCH) || GIVEN(ON_DRY_RUN) || GIVEN(ON_JSON) || GIVEN(ON_VALIDATE)),
           "--batch-table trains a gpt and a vit at batches of its own, and prints: leave --model, --batch, --dry-run, "
           "--validate and --json out.");
    REFUSE(o->ladder && o->fit,
           "--ladder shows every rung, whether it fits or not: leave --fit out, or take --batch-table.");
    return 0;
}

enum { RANK_GRAIN = 256, RANK_SECTOR = 4096 }; /* where memopt_shard begins a tensor: elements; bytes of slow weights */

static size_t options_grain(const options *o) { /* of ranks */
    const size_t bytes = o->weights == WEIGHTS_F32 ? 4 : 2;

    return o->offload & OFFLOAD_WEIGHTS ? RANK_SECTOR / bytes : (size_t)RANK_GRAIN;
}

/* What parts/tensor.h refuses as well, in the words of the command line. */
static int options_parts_wrong(const options *o, char *message, size_t capacity) {
    const size_t s = o->parts, padded = (o->vocab + 127) / 128 * 128, keys = o->heads / model_group(o);
    const size_t sharers = o->sequence ? o->sequence : o->tensor;
    const char *const by = o->sequence ? "sequence" : "tensor";

    REFUSE(sharers & (sharers - 1), "--%s %zu: take a power of two.", by, sharers);
    REFUSE(s & (s - 1) || s % sharers, "--parts %zu: take a power of two that --%s %zu divides.", s, by, sharers);
    REFUSE(o->sequence && (o->tensor > 1 || o->pipeline > 1), "--sequence is not there with --%s: leave one of them out.",
           o->tensor > 1 ? "tensor" : "pipeline");
    REFUSE(o->sequence && keys % o->sequence, "--sequence %zu does not divide the %zu heads that have keys of their own: take "
           "fewer ranks, or other --heads.", o->sequence, keys);
    REFUSE(!o->sequence && o->heads % s, "--parts %zu do not divide --heads %zu: take fewer, or other --heads.", s,
           o->heads);
    REFUSE(!o->sequence && keys % s, "--parts %zu do not divide the %zu heads of keys and values that --model %s has with --heads %zu: take "
           "fewer, or more --heads.", s, keys, model_row_of(o)->name, o->heads);
    REFUSE(!o->sequence && padded / s * o->width % options_grain(o),
           "--vocab %zu is padded to %zu, and of --parts %zu one has %zu numbers, no multiple of %zu: take fewer, or "
           "another --width.", o->vocab, padded, s, padded / s * o->width, options_grain(o));
    REFUSE(o->fit && o->context % s,
           "--fit tries every --batch, and --parts %zu do not divide --context %zu: take another --context.", s,
           o->context);
    REFUSE(o->batch * o->context % s, "--parts %zu do not divide the tokens of a batch: take another --batch.", s);
    REFUSE(is_vit(o) || o->sample || o->mlp_chunk || !o->lean_attention,
           "--%s is not there where a model is cut by width or length: leave it out, or --parts.",
           is_vit(o) ? "model vit" : o->sample ? "sample" : o->mlp_chunk ? "mlp chunk" : "attention full");
    REFUSE(padded % s || o->vocab + padded / s <= padded, "--vocab %zu is padded to %zu, and of --parts %zu one would have "
           "nothing else: take fewer, or another --vocab.", o->vocab, padded, s);
    REFUSE(o->gradients != MEMOPT_TYPE_F32, "--gradients of a model that is cut by width or length are floats: leave it out.");
    return 0;
}

static int options_pipeline_wrong(const options *o, char *message, size_t capacity) {
    const size_t passes = o->ranks / (o->tensor * o->pipeline);

    REFUSE(o->pipeline * o->chunks > 2 * o->layers + 2, "--pipeline %zu with --chunks %zu: --layers %zu make at most %zu "
           "stages; take fewer.", o->pipeline, o->chunks, o->layers, 2 * o->layers + 2);
    REFUSE(o->units % passes, "--units %zu: each of the %zu passes takes as many; take a multiple.", o->units, passes);
    REFUSE(o->chunks > 1 && o->units / passes % o->pipeline, "--chunks take units in turns of --pipeline %zu: give --units "
           "as a multiple of %zu.", o->pipeline, passes * o->pipeline);
    REFUSE(o->stage > 1, "--stage %zu brings and cuts layers for one unit after the other, and a --pipeline has several "
           "under way: take --stage 1 or 0.", o->stage);
    REFUSE(is_vit(o), "--pipeline is for networks of text: leave it out, and --model vit is trained by --ranks.");
    REFUSE(o->sample, "--sample needs all layers on a rank: --save this run, and take one more step with --resume, "
           "--ranks 1 and --sample.");
    REFUSE(o->fuse_step, "--fuse-step steps weights that other units of a --pipeline still need: leave it out.");
    REFUSE(o->offload, "--offload brings layers for one unit after the other, and a --pipeline has several under way: "
           "take more --pipeline ranks, or --keep overhead:33.");
    REFUSE(o->keep == KEEP_BUDGET, "--keep budget is not dealt to the stages of a --pipeline: take --keep overhead:33 or "
           "every:1.");
    return 0;
}

static int options_ranks_wrong(const options *o, uint64_t given, char *message, size_t capacity) {
    const int whole = o->optimizer == MEMOPT_OPTIM_LAMB || o->optimizer == MEMOPT_OPTIM_LARS
                   || o->optimizer == MEMOPT_OPTIM_ADAFACTOR || o->optimizer == MEMOPT_OPTIM_MUON;
    const char *const table = o->ladder ? "--ladder" : o->batch_table ? "--batch-table" : NULL;
    const size_t sharers = o->tensor * o->pipeline * (o->sequence ? o->sequence : 1), passes = o->ranks / sharers;

    REFUSE(table, "%s looks at one process: leave %s out, or %s.", table, o->offload ? "--offload" : "--ranks", table);
    REFUSE(
        GIVEN(ON_ACCUMULATE),
        "--accumulate: with --ranks and --offload the batches of a step are its --units; give --units %zu, and leave "
        "--accumulate out.",
        o->accumulate);
    REFUSE(o->keep == KEEP_CONVENTIONAL,
           "--keep conventional has no tape, which tells --ranks and --offload what is used when: leave one of "
           "them out.");
    REFUSE(o->fuse_step && whole,
           "--fuse-step cannot measure whole tensors, as lamb, lars, adafactor and muon do with --ranks: leave "
           "it out, or take adamw.");
    REFUSE(o->sequence && o->ranks % o->sequence, "--sequence %zu ranks share a pass, and --ranks %zu are not so many "
           "passes: take numbers that divide.", o->sequence, o->ranks);
    REFUSE(o->ranks % (o->tensor * o->pipeline), "--tensor %zu times --pipeline %zu ranks share a pass, and --ranks %zu "
           "are not so many passes: take numbers that divide.", o->tensor, o->pipeline, o->ranks);
    REFUSE(passes % o->replicas, "--replicas %zu do not divide the %zu passes of --ranks %zu, so many ranks each: %zu; take "
           "numbers that divide.", o->replicas, passes, o->ranks, sharers);
    REFUSE(o->chunks > 1 && o->pipeline == 1 && (!o->grids || GIVEN(ON_PIPELINE)),
           "--chunks are of a --pipeline: give that as well, or leave it out.");
    if (o->pipeline > 1 && options_pipeline_wrong(o, message, capacity)) return 1;
    if (o->parts && options_parts_wrong(o, message, capacity)) return 1;
    REFUSE((o->offload & OFFLOAD_ACTIVATIONS) && (o->keep == KEEP_ARENA || o->keep == KEEP_EVERY),
           "--offload activations: --keep "
           "arena and every:K hold outputs in memory; take --keep overhead:33 or budget:BYTES.");
    REFUSE((o->offload & OFFLOAD_WEIGHTS) && o->stage < 3,
           "--offload weights are cut first, which is --stage 3: leave --stage %zu "
           "out, or offload states alone.",
           o->stage);
    REFUSE((uint64_t)o->batch * o->units > INT32_MAX, "--units %zu batches of --batch %zu: lower one of them.",
           o->units, o->batch);
    return 0;
}

static int options_wrong(const options *o, uint64_t given, char *message, size_t capacity) {
    const char *const lean = options_lean(o);

    REFUSE(o->width % o->heads, "--width %zu does not divide into --heads %zu: take %zu, or another number of heads.",
           o->width, o->heads, o->width < o->heads ? o->heads : o->width / o->heads * o->heads);
    REFUSE(o->batch * o->context > INT32_MAX || options_extent(o) > (double)(SIZE_MAX / 4),
           "Sizes: so many weights and activations have no addresses; lower --batch, --context, --width or --layers.");
    if (options_model_wrong(o, message, capacity)) return 1;
    REFUSE((uint64_t)o->batch * o->accumulate > INT32_MAX,
           "--accumulate %zu batches of --batch %zu: lower one of them.", o->accumulate, o->batch);
    REFUSE(o->warmup > o->steps,
           "--warmup %zu is longer than the training of --steps %zu: lower one, or raise the other.", o->warmup,
           o->steps);
    REFUSE(o->validate && o->steps / o->validate >= MOST_LOSSES,
           "--validate %zu would be more than %d times in --steps %zu: take %zu or more.", o->validate, MOST_LOSSES - 1,
           o->steps, o->steps / MOST_LOSSES + 1);
    REFUSE(o->ends && !o->ladder, "--ends are those of --ladder: give that as well, or leave --ends out.");
    REFUSE(!is_vit(o) && !o->data && o->vocab < 256,
           "--vocab %zu: text has 256 different bytes; leave --vocab out, or give --data with tokens.", o->vocab);
    REFUSE(o->fuse_step && o->clip > 0,
           "--fuse-step has changed weights before the norm for --clip is known: leave out one.");
    REFUSE(o->fuse_step && o->outliers > 0,
           "--fuse-step has changed weights before the norm for --skip-outliers is known: leave out one.");
    REFUSE(o->fuse_step && o->accumulate > 1,
           "--fuse-step would step at every batch of --accumulate: leave out one, or raise --batch.");
    REFUSE(o->fuse_step && o->gradients == MEMOPT_TYPE_F16,
           "--fuse-step could not take a step back when fp16 overflows: leave it out, or take --gradients bf16.");
    REFUSE(o->weights != WEIGHTS_F32 && o->gradients == MEMOPT_TYPE_F16,
           "--gradients f16 has not the range of bf16 --weights: take --gradients bf16, or --weights f32.");
    REFUSE(o->states != MEMOPT_STATE_F32
               && (o->optimizer == MEMOPT_OPTIM_SGD || o->optimizer == MEMOPT_OPTIM_ADAFACTOR),
           "--optimizer: %s here has no moments to make smaller; write it without the %d.",
           o->optimizer == MEMOPT_OPTIM_SGD ? "sgd" : "adafactor", o->states == MEMOPT_STATE_BF16 ? 16 : 8);
    REFUSE(o->keep == KEEP_CONVENTIONAL && lean,
           "--keep conventional is how engines do it without memopt, so without %s: leave one of them out.", lean);
    REFUSE(o->keep == KEEP_EVERY && o->every > o->layers,
           "--keep every:%zu of --layers %zu would keep none: take %zu or less.", o->every, o->layers, o->layers);
    REFUSE(o->keep == KEEP_CONVENTIONAL && o->dropout > 0,
           "--keep conventional holds no masks for --dropout: leave one of them out.");
    REFUSE(o->keep == KEEP_CONVENTIONAL && o->sample,
           "--sample needs the shorter batches that --keep conventional does not know: leave one of them out.");
    REFUSE(o->advise && (o->fit || o->ladder || o->batch_table || o->save || o->resume || o->validate || o->sample),
           "--advise plans a training alone: leave %s out.",
           o->fit                        ? "--fit"
           : o->ladder || o->batch_table ? "tables"
           : o->save || o->resume        ? "--save and --resume"
                                         : "--validate and --sample");
    REFUSE((o->speeds || o->frontier || o->grids) && !o->advise,
           "--%s goes with --advise BYTES: give that as well, or leave it out.",
           o->speeds     ? "speeds"
           : o->frontier ? "frontier"
                         : "grids");
    REFUSE(o->grids && (!o->ranks || o->processors || o->frontier || o->offload),
           "--grids are ways to lay out --ranks: %s.",
           o->processors || o->frontier ? "leave --processors and --frontier out"
           : o->offload                 ? "leave --offload out"
                                        : "give that as well, or leave it out");
    REFUSE(o->processors && !o->advise,
           "--processors are for --advise BYTES to deal: give that as well, or leave it out.");
    REFUSE(o->processors && (GIVEN(ON_RANKS) || GIVEN(ON_THREADS) || GIVEN(ON_REPLICAS)),
           "--processors are dealt to ranks and "
           "threads by --advise: leave --%s out.",
           GIVEN(ON_RANKS)     ? "ranks"
           : GIVEN(ON_THREADS) ? "threads"
                               : "replicas");
    REFUSE(o->frontier && o->ranks, "--frontier measures the memory of one process: leave --%s out.",
           o->processors     ? "processors"
           : GIVEN(ON_RANKS) ? "ranks"
                             : "offload");
    REFUSE(o->fit && GIVEN(ON_BATCH), "--fit looks for the largest --batch itself: leave one of them out.");
    REFUSE(o->fit && o->keep == KEEP_BUDGET,
           "--fit is a budget for everything already: take --keep overhead:33 beside it.");
    REFUSE(o->dry_run && o->sample, "--sample needs weights that --dry-run does not train: leave one of them out.");
    REFUSE(GIVEN(ON_RANK) && !o->id_file, "--rank is of a process, and --id-file says where they meet: give that as well, "
           "or leave --rank out.");
    REFUSE(o->id_file && o->ranks <= o->rank,
           "--id-file: rank %zu of --ranks %zu; they count from 0, and --ranks says how many there are.", o->rank,
           o->ranks);
    REFUSE(!o->ranks && (GIVEN(ON_STAGE) || GIVEN(ON_UNITS) || GIVEN(ON_REPLICAS) || o->pipeline > 1 || o->chunks > 1
               || o->parts),
           "--%s is one of --ranks: give that as well, or leave it out.",
           GIVEN(ON_STAGE)      ? "stage"
           : GIVEN(ON_UNITS)    ? "units"
           : GIVEN(ON_REPLICAS) ? "replicas"
           : GIVEN(ON_PIPELINE) ? "pipeline"
           : GIVEN(ON_CHUNKS)   ? "chunks"
           : GIVEN(ON_TENSOR)   ? "tensor"
           : GIVEN(ON_SEQUENCE) ? "sequence"
                                : "parts");
    REFUSE(o->save_every && !o->save, "--save-every says when, and --save where: give --save DIR as well.");
    REFUSE((o->save || o->resume) && (o->ladder || o->batch_table || o->dry_run || o->fit),
           "--%s keeps one training: leave it out beside --%s.", o->save ? "save" : "resume",
           o->ladder        ? "ladder"
           : o->batch_table ? "batch-table"
           : o->dry_run     ? "dry-run"
                            : "fit");
    if (o->ranks && options_ranks_wrong(o, given, message, capacity)) return 1;
    if (is_vit(o) && options_vit_wrong(o, given, message, capacity)) return 1;
    return (o->ladder || o->batch_table) && options_table_wrong(o, given, message, capacity);
}
#endif
