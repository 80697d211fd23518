/* options.h - the switches of finetune. */
#ifndef FINETUNE_OPTIONS_H
#define FINETUNE_OPTIONS_H
#include "model.h"

typedef enum rate_schedule { RATE_COSINE, RATE_LINEAR, RATE_CONSTANT } rate_schedule;

typedef struct options {
    const char *model, *data, *out, *disk, *chat;
    const char *prompt;
    size_t memory, threads, ranks, steps, pause, warmup, save, validate, tokens;
    double epochs, rate, validation, temperature; /* steps 0: by epochs; rate below 0: by what is trained; validation
                                                      below 0: by the documents */
    rate_schedule schedule;
    int    learn_all, merges, plan, random;
} options;

static const char *const options_text =
    "usage: finetune MODEL_DIR DATA --out DIR [switches]\n"
    "  MODEL_DIR       config.json, tokenizer.json and model.safetensors of a GPT-2, Llama, Mistral, Qwen2 or Qwen3\n"
    "  DATA            .jsonl: a document a line, with messages, prompt and completion, or text; .u16, .bin: tokens;\n"
    "                  anything else: text, <|endoftext|> between documents. DATA.tokens keeps the tokens\n"
    "  --out DIR       where the result goes; DIR.run has what a run needs that goes on after it was stopped,\n"
    "                  DIR.html its curves\n"
    "memory\n"
    "  --memory 3G     that the process may take, of mpirun each; default: three quarters of what the system has left\n"
    "  --disk DIR      weights and states may lie there\n"
    "  --plan          tell the ways there are, with memory, disk and what is computed twice, and end\n"
    "what is trained\n"
    "  --random        if MODEL_DIR has no weights, write it some that are random: a model from the beginning\n"
    "  --adapter R     low-rank adapters of this rank, beside frozen weights; without it all weights\n"
    "  --alpha A       their scale is A / R; default: 2 R\n"
    "  --frozen 8      bits of frozen weights: 8, 16 or 32; default: 16\n"
    "  --merge         write the model with its adapters added, not the adapters\n"
    "  --weights bf16  of all weights: bf16 (rounded stochastically), split (16 more bits each), fp32\n"
    "  --optimizer adamw    or muon, adafactor, lion, lamb, sgd\n"
    "  --states 8      bits of the optimizer's states: 8, 16 or 32; default: 8, of adapters 32\n"
    "steps\n"
    "  --batch 1 --accumulate 1    windows of a pass, passes of a step\n"
    "  --context N     tokens of a window; default: 1024, or what the model has\n"
    "  --epochs 1, --steps N       how long\n"
    "  --pause N       stop after N steps, as Ctrl-C does: the same command takes the next ones\n"
    "  --rate X        default: 2e-5; of adapters 2e-4\n"
    "  --schedule cosine    or linear, constant; --warmup N steps before; default: 0\n"
    "  --decay X       of weights; --clip X: the largest norm of all gradients; default: none\n"
    "  --seed 1 --threads N\n"
    "  --ranks R       threads that each pass some of the batches of a step, and have a part of weights and states:\n"
    "                  give --accumulate a multiple of R; the bits are those of one. --memory is for all of them\n"
    "data\n"
    "  --chat NAME     chatml, llama2, llama3, mistral, plain, or a template: {role}, {content}, {end}\n"
    "  --learn-all     loss on prompts, too\n"
    "  --hold-back X   a share of the documents that is not trained on; default: 0.05, of fewer than 128 documents 0\n"
    "  --validate 100  steps from one loss of these to the next\n"
    "while it runs\n"
    "  --save 100      steps between saves; with weights on the disk each step is one\n"
    "  --prompt TEXT   what the model says to it, where --validate tells a loss; --tokens 64 --temperature 0\n"
    "Status 0: OUT is written; 3: stopped and saved; 1: a reason; 2: switches.\n";

static int options_size(const char *text, size_t *out) { /* 16, 600M, 3G */
    char *end;
    const double x = strtod(text, &end);
    const double unit = *end == 'K' ? 1e3 : *end == 'M' ? 1e6 : *end == 'G' ? 1e9 : 1;

    if (end == text || !(x >= 0) || !(x * unit < 1e15 && x * unit < (double)SIZE_MAX)) return 1;
    if (unit < 2 && x > floor(x)) return 1; /* half a batch */
    if (unit > 1 ? end[1] : *end) return 1;
    *out = (size_t)(x * unit);
    return 0;
}

static int options_number(const char *text, double *out) {
    char *end;

    *out = strtod(text, &end);
    return end == text || *end || !(*out >= 0 && *out <= 1e9);
}

/* Which of the names, which end with NULL; -1: none. */
static int options_which(const char *text, const char *const *names) {
    int i;

    for (i = 0; names[i]; ++i)
        if (!strcmp(text, names[i])) return i;
    return -1;
}

static int options_named(options *o, tuning *s, const char *name, const char *value) { /* -1: there is no such switch */
    static const char *const weights[] = { "bf16", "split", "fp32", NULL };
    static const char *const kinds[] = { "adamw", "muon", "adafactor", "lion", "lamb", "sgd", NULL };
    static const memopt_optim_kind kind_of_name[] = { MEMOPT_OPTIM_ADAMW, MEMOPT_OPTIM_MUON, MEMOPT_OPTIM_ADAFACTOR,
                                                      MEMOPT_OPTIM_LION, MEMOPT_OPTIM_LAMB, MEMOPT_OPTIM_SGD };
    static const char *const states[] = { "32", "16", "8", NULL };
    static const char *const schedules[] = { "cosine", "linear", "constant", NULL };
    int i = -1;

    if (!strcmp(name, "--weights")) {
        if ((i = options_which(value, weights)) >= 0) s->split = i == 1;
        s->fp32 = i == 2;
    } else if (!strcmp(name, "--optimizer")) {
        if ((i = options_which(value, kinds)) >= 0) s->kind = kind_of_name[i];
    } else if (!strcmp(name, "--states")) {
        if ((i = options_which(value, states)) >= 0) s->state = (memopt_state_format)i;
    } else if (!strcmp(name, "--schedule")) {
        if ((i = options_which(value, schedules)) >= 0) o->schedule = (rate_schedule)i;
    } else return -1;
    return i < 0;
}

static int options_valued(options *o, tuning *s, const char *name, const char *value) { /* likewise */
    const struct { const char *name; size_t *to; size_t least, most;
    } sizes[] = { { "--memory", &o->memory, 1, SIZE_MAX },   { "--threads", &o->threads, 1, 1024 },
                  { "--ranks", &o->ranks, 1, RANKS_MAX },
                  { "--steps", &o->steps, 1, SIZE_MAX / 2 }, { "--warmup", &o->warmup, 0, SIZE_MAX / 2 },
                  { "--save", &o->save, 0, SIZE_MAX },       { "--validate", &o->validate, 0, SIZE_MAX },
                  { "--batch", &s->batch, 1, 1 << 20 },      { "--accumulate", &s->units, 1, 1 << 20 },
                  { "--context", &s->context, 2, 1 << 24 },  { "--tokens", &o->tokens, 1, 1 << 20 },
                  { "--adapter", &s->adapter, 1, 1 << 16 },  { "--frozen", &s->frozen_bits, 8, 32 },
                  { "--pause", &o->pause, 1, SIZE_MAX } };
    const struct { const char *name; double *to; double most;
    } numbers[] = { { "--epochs", &o->epochs, 1e9 },
                    { "--rate", &o->rate, 1 },
                    { "--hold-back", &o->validation, 0.99 },
                    { "--temperature", &o->temperature, 1e3 },
                    { "--alpha", &s->adapter_alpha, 1e6 },
                    { "--decay", &s->decay, 1e3 },
                    { "--clip", &s->clip, 1e9 } };
    const struct { const char *name; const char **to; } texts[] = {
        { "--out", &o->out }, { "--disk", &o->disk }, { "--chat", &o->chat },
        { "--prompt", &o->prompt } };
    size_t i, seed;

    for (i = 0; i < sizeof sizes / sizeof *sizes; ++i)
        if (!strcmp(name, sizes[i].name))
            return options_size(value, sizes[i].to) || *sizes[i].to < sizes[i].least || *sizes[i].to > sizes[i].most;
    for (i = 0; i < sizeof numbers / sizeof *numbers; ++i)
        if (!strcmp(name, numbers[i].name))
            return options_number(value, numbers[i].to) || *numbers[i].to > numbers[i].most;
    for (i = 0; i < sizeof texts / sizeof *texts; ++i)
        if (!strcmp(name, texts[i].name)) return *texts[i].to = value, !*value;
    if (strcmp(name, "--seed")) return options_named(o, s, name, value);
    if (options_size(value, &seed)) return 1;
    s->seed = seed;
    return 0;
}

static void options_default(options *o, tuning *s) {
    uint64_t available = 0;

    memset(o, 0, sizeof *o);
    memset(s, 0, sizeof *s);
    s->batch = s->units = 1;
    s->frozen_bits = 16;
    s->adapter_alpha = -1;
    s->decay = -1;
    s->kind = MEMOPT_OPTIM_ADAMW;
    s->state = (memopt_state_format)-1;
    s->seed = 1;
    o->epochs = 1;
    o->save = o->validate = 100;
    o->tokens = 64;
    o->rate = o->validation = -1;
    o->threads = o->ranks = 1;
#if defined(_SC_NPROCESSORS_ONLN)
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1) o->threads = (size_t)sysconf(_SC_NPROCESSORS_ONLN);
#endif
    (void)memopt_memory_available(NULL, &available);
    o->memory = (size_t)(available / 4 * 3);
}

static int options_check(options *o, tuning *s, reason *why) {
    if (!o->out) return refuse(why, "--out is missing");
    if (s->frozen_bits != 8 && s->frozen_bits != 16 && s->frozen_bits != 32)
        return refuse(why, "--frozen is 8, 16 or 32");
    if (o->merges && !s->adapter) return refuse(why, "--merge is for adapters");
    if (s->adapter && (s->fp32 || s->split)) return refuse(why, "--weights is for all weights; adapters are fp32");
    if (s->adapter_alpha < 0) s->adapter_alpha = 2 * (double)s->adapter;
    if ((int)s->state < 0) s->state = s->adapter ? MEMOPT_STATE_F32 : MEMOPT_STATE_8BIT;
    if (o->rate < 0) o->rate = s->adapter ? 2e-4 : 2e-5;
    if (strlen(o->out) > 900 || o->out[strlen(o->out) - 1] == '/')
        return refuse(why, "--out is too long, or ends with /");
    return 0;
}

/* 1: there is a reason. */
static int options_parse(options *o, tuning *s, int argc, char **argv, reason *why) {
    int i, places = 0;

    options_default(o, s);
    for (i = 1; i < argc; ++i) {
        int wrong;

        if (argv[i][0] != '-') {
            if (places == 2) return refuse(why, "%s: there is a model and a text already", argv[i]);
            *(places++ ? &o->data : &o->model) = argv[i];
            continue;
        }
        if (!strcmp(argv[i], "--plan")) o->plan = 1;
        else if (!strcmp(argv[i], "--merge")) o->merges = 1;
        else if (!strcmp(argv[i], "--random")) o->random = 1;
        else if (!strcmp(argv[i], "--learn-all")) o->learn_all = 1;
        else {
            if (i + 1 == argc) return refuse(why, "%s: its value is missing, or there is no such switch", argv[i]);
            wrong = options_valued(o, s, argv[i], argv[i + 1]);
            if (wrong < 0) return refuse(why, "%s: there is no such switch", argv[i]);
            if (wrong) return refuse(why, "%s %s: the value is not understood, or out of range", argv[i], argv[i + 1]);
            ++i;
        }
    }
    if (places < 2) return refuse(why, "a model's folder and a text are missing");
    return options_check(o, s, why);
}
#endif
