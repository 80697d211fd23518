/* finetune.c - the weights of a GPT-2 from a safetensors file, trained on a text, out again under the same names.

   What to see: the model is made of parts/, as in transformer.c; what is new is the file. Names and shapes are those of
   Hugging Face (wte.weight, h.0.attn.c_attn.weight; with or without "transformer."), in F32, F16 or BF16, and every
   tensor leaves in the type it came in. Each must be there, in its shape, and none that is not known: a weight that
   nobody trains would be lost in silence. Matrices of the file lie inputs x outputs, ours outputs x inputs: they are
   turned as they are read and written, piece by piece, so nothing is held twice. Memory is told before any is taken.
   The result is written beside OUT, synced, and renamed: OUT is whole at any moment, also after a power cut.
   Use:   finetune MODEL TEXT OUT [--steps 100] ...                  (finetune alone lists the switches)
   TEXT   name.u16: tokens, 16 bits each, the lower 8 first. Any other name: each byte is a token.
   Build: cc -O2 -DMEMOPT_PTHREADS -pthread finetune.c -o finetune -lm    (memopt.h and parts/ beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "parts/block.h"
#include "parts/embedding.h"
#include "parts/feed.h"
#include "parts/head.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct options {
    const char *model, *text, *out;
    size_t steps, batch, context, heads, memory, threads; /* context, heads, memory: 0 = default */
    double rate;
} options;

typedef struct tuner {
    memopt_host host;         /* every function of it can be called */
    memopt_tensors *header;   /* of the model's file */
    void *input;              /* the same file */
    memopt_feed *feed;        /* of the text */
    transformer shape;
    size_t layers;
    transformer_part embedding;
    transformer_block *blocks;
    transformer_head head;
    size_t tensor_count;      /* parameters: tokens, positions, 12 of each layer, the final norm's */
    memopt_optim_tensor *tensors;
    memopt_tape_layer *steps; /* of a pass */
    memopt_segment *segments;
    memopt_source source;
    memopt_arena *arena;      /* of all that follows */
    memopt_optim *optim;
    memopt_tape *tape;
    int32_t *ids, *targets;
    size_t ahead;             /* bytes: of the text, read ahead; then of the arena */
    size_t weights, states, peak;
    memopt_error error;
    char message[512];
} tuner;

static int refuse(tuner *t, const char *format, ...) { /* the first reason counts; returns 1 */
    va_list list;
    char *c;

    va_start(list, format);
    if (!t->message[0]) vsnprintf(t->message, sizeof t->message, format, list);
    va_end(list);
    for (c = t->message; *c; ++c) /* a name in a file may hold anything, also what a terminal obeys */
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    return 1;
}

static int failed(tuner *t, const char *what, memopt_status s) { /* a status as a sentence; returns whether it is one */
    char why[256];

    if (!s) return 0;
    if (t->error.status != s || memopt_error_text(&t->error, why, sizeof why, NULL))
        snprintf(why, sizeof why, "%s", memopt_status_text(s));
    return refuse(t, "%s: %s", what, why);
}

/* ---- names ---- */
enum { LAYER_TENSORS = 12, BEFORE_LAYERS = 2 /* tokens, positions */ };
enum { IS_HEAD = -1, IS_MASK = -2, IS_UNKNOWN = -3 }; /* what is no parameter of its own */
static const char *const layer_names[LAYER_TENSORS] = { /* in the order of block.h */
    "ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
    "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias"
};

static const char *bare(const char *name) { /* without its prefix */
    return strncmp(name, "transformer.", 12) ? name : name + 12;
}

/* h.12.ln_1.weight: *layer becomes 12. Returns what follows, or NULL: it is not of a layer. */
static const char *rest_of(const char *name, size_t *layer) {
    size_t n = 0, digits = 0;

    if (strncmp(name, "h.", 2)) return NULL;
    for (name += 2; *name >= '0' && *name <= '9' && digits < 5; ++name, ++digits) n = n * 10 + (size_t)(*name - '0');
    if (!digits || *name != '.' || (digits > 1 && name[-(ptrdiff_t)digits] == '0')) return NULL;
    *layer = n;
    return name + 1;
}

/* Which parameter a tensor of the file is: its number, or IS_. */
static long number_of(const tuner *t, const char *full) {
    const char *name = bare(full), *rest;
    const long end = BEFORE_LAYERS + LAYER_TENSORS * (long)t->layers;
    size_t layer;
    int i;

    if (!strcmp(full, "lm_head.weight")) return IS_HEAD;
    if (!strcmp(name, "wte.weight")) return 0;
    if (!strcmp(name, "wpe.weight")) return 1;
    if (!strcmp(name, "ln_f.weight")) return end;
    if (!strcmp(name, "ln_f.bias")) return end + 1;
    rest = rest_of(name, &layer);
    if (!rest || layer >= t->layers) return IS_UNKNOWN;
    if (!strcmp(rest, "attn.bias") || !strcmp(rest, "attn.masked_bias")) return IS_MASK;
    for (i = 0; i < LAYER_TENSORS; ++i)
        if (!strcmp(rest, layer_names[i])) return BEFORE_LAYERS + LAYER_TENSORS * (long)layer + i;
    return IS_UNKNOWN;
}

/* The tensor of the file by its bare name; NULL leaves a message. */
static const memopt_tensor *find(tuner *t, const char *name) {
    const memopt_tensor *with, *without = memopt_tensors_find(t->header, name);
    char full[96];

    snprintf(full, sizeof full, "transformer.%s", name);
    with = memopt_tensors_find(t->header, full);
    if (!with && !without) (void)refuse(t, "%s is missing", name);
    if (with && without) (void)refuse(t, "%s is there twice, once with the prefix \"transformer.\"", name);
    return with && without ? NULL : with ? with : without;
}

static const memopt_tensor *find_number(tuner *t, size_t i) {
    const size_t end = BEFORE_LAYERS + LAYER_TENSORS * t->layers;
    char name[64];

    if (i < BEFORE_LAYERS) return find(t, i ? "wpe.weight" : "wte.weight");
    if (i >= end) return find(t, i > end ? "ln_f.bias" : "ln_f.weight");
    i -= BEFORE_LAYERS;
    snprintf(name, sizeof name, "h.%lu.%s", (unsigned long)(i / LAYER_TENSORS), layer_names[i % LAYER_TENSORS]);
    return find(t, name);
}

/* Whether it lies in the file as inputs x outputs. */
static int is_turned(const tuner *t, size_t i) {
    return i >= BEFORE_LAYERS && t->tensors[i].columns > 0;
}

/* ---- the shape of the model ---- */
static int read_matrix(tuner *t, const char *name, size_t *rows, size_t *columns) {
    const memopt_tensor *x = find(t, name);

    if (!x) return 1;
    if (x->rank != 2 || x->begin == x->end || x->shape[0] > INT32_MAX || x->shape[1] > INT32_MAX)
        return refuse(t, "%s has no two dimensions, or such of 0 or above 2^31", x->name);
    *rows = (size_t)x->shape[0];
    *columns = (size_t)x->shape[1];
    return 0;
}

#define MOST_TOKENS ((size_t)1 << 28) /* of a step, so that no size of an activation is beyond 64 bits */

static int read_shape(tuner *t, const options *o) {
    transformer *s = &t->shape;
    size_t i, layer = 0, width;

    for (i = 0; i < t->header->count; ++i)
        if (rest_of(bare(t->header->tensors[i].name), &layer) && layer >= t->layers) t->layers = layer + 1;
    if (t->layers > t->header->count)
        return refuse(t, "%lu tensors are too few for %lu layers", (unsigned long)t->header->count,
                      (unsigned long)t->layers);
    if (read_matrix(t, "wte.weight", &s->vocabulary, &s->width) || read_matrix(t, "wpe.weight", &s->positions, &width)
        || read_matrix(t, "h.0.mlp.c_fc.weight", &width, &s->hidden)) return 1;
    s->batch = o->batch;
    s->length = o->context ? o->context : s->positions;
    s->heads = o->heads ? o->heads : s->width / 64;
    if (s->length > s->positions)
        return refuse(t, "the model has %lu positions, too few for --context %lu", (unsigned long)s->positions,
                      (unsigned long)s->length);
    if (!s->length || s->batch > MOST_TOKENS / s->length)
        return refuse(t, "--batch %lu: more than 2^28 tokens in a step", (unsigned long)s->batch);
    if (!s->heads || s->width % s->heads)
        return refuse(t, "a width of %lu is not divided by %lu heads: give --heads", (unsigned long)s->width,
                      (unsigned long)s->heads);
    return 0;
}

/* Count parameters, or place them in the memory there is. */
static void describe(tuner *t, transformer_chain *c) {
    size_t i;

    c->elements = c->tensor_count = c->count = 0;
    transformer_add_embedding(c, &t->embedding);
    for (i = 0; i < t->layers; ++i) transformer_add_block(c, &t->blocks[i]);
    transformer_add_head(c, &t->head, &t->embedding);
    t->tensor_count = c->tensor_count;
}

static int check_tensor(tuner *t, size_t i) {
    const memopt_optim_tensor *own = &t->tensors[i];
    const memopt_tensor *x = find_number(t, i);
    const size_t columns = own->columns ? own->columns : own->count, rows = own->count / columns;
    const uint64_t first = own->columns ? (is_turned(t, i) ? columns : rows) : columns;
    const uint64_t second = is_turned(t, i) ? rows : columns;

    if (!x) return 1;
    if (x->rank != (own->columns ? 2u : 1u) || x->shape[0] != first || (own->columns && x->shape[1] != second))
        return own->columns ? refuse(t, "%s has the wrong shape: [%lu, %lu] is what fits the others", x->name,
                                     (unsigned long)first, (unsigned long)second)
            : refuse(t, "%s has the wrong shape: [%lu] is what fits the others", x->name, (unsigned long)first);
    if (x->type != MEMOPT_TENSOR_F32 && x->type != MEMOPT_TENSOR_F16 && x->type != MEMOPT_TENSOR_BF16)
        return refuse(t, "%s is of type %s, and F32, F16 and BF16 are read", x->name, memopt_tensor_type_name(x->type));
    return 0;
}

static int check_tensors(tuner *t) {
    size_t i;

    for (i = 0; i < t->tensor_count; ++i)
        if (check_tensor(t, i)) return 1;
    for (i = 0; i < t->header->count; ++i)
        if (number_of(t, t->header->tensors[i].name) == IS_UNKNOWN)
            return refuse(t, "%s is not a tensor of GPT-2", t->header->tensors[i].name);
    return 0;
}

/* ---- weights from the file and into one ---- */
enum { PIECE = 1 << 14 /* elements */ };

static size_t bytes_of(const memopt_tensor *x) { return memopt_tensor_type_bits(x->type) / 8; }

static float decode(const unsigned char *b, memopt_tensor_type type) {
    const uint16_t low = (uint16_t)(b[0] | b[1] << 8);
    uint32_t bits;
    float x;

    if (type == MEMOPT_TENSOR_F16) return memopt_from_f16(low);
    if (type == MEMOPT_TENSOR_BF16) return memopt_from_bf16(low);
    bits = (uint32_t)low | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void encode(unsigned char *b, memopt_tensor_type type, float x) {
    uint32_t bits;
    size_t i;

    memcpy(&bits, &x, sizeof bits);
    if (type == MEMOPT_TENSOR_F16) bits = memopt_to_f16(x);
    if (type == MEMOPT_TENSOR_BF16) bits = memopt_to_bf16(x);
    for (i = 0; i < memopt_tensor_type_bits(type) / 8; ++i) b[i] = (unsigned char)(bits >> 8 * i);
}

/* Where element k of the file's tensor lies in ours. */
static float *weight_at(const tuner *t, size_t i, size_t k) {
    const memopt_optim_tensor *x = &t->tensors[i];
    const size_t inputs = x->columns;
    const size_t outputs = inputs ? x->count / inputs : 1;

    return (float *)x->weights + (is_turned(t, i) ? k % outputs * inputs + k / outputs : k);
}

static int read_at(tuner *t, void *file, const char *path, uint64_t offset, void *bytes, size_t count) {
    size_t done = 0;

    if (failed(t, path, t->host.files.read_fn(t->host.files.user, file, offset, bytes, count, &done))) return 1;
    return done < count ? refuse(t, "%s is shorter than it was", path) : 0;
}

/* A tensor of the file into ours; a head must be what is there already. */
static int load_tensor(tuner *t, const options *o, const memopt_tensor *x, size_t i, int is_head) {
    static unsigned char bytes[4 * PIECE];
    const size_t size = bytes_of(x);
    size_t at, n, k;

    for (at = 0; at < t->tensors[i].count; at += n) {
        n = t->tensors[i].count - at < PIECE ? t->tensors[i].count - at : PIECE;
        if (read_at(t, t->input, o->model, t->header->data_begin + x->begin + at * size, bytes, n * size)) return 1;
        for (k = 0; k < n; ++k) {
            const float value = decode(bytes + k * size, x->type);

            if (!is_head) *weight_at(t, i, at + k) = value;
            else if (memcmp(weight_at(t, i, at + k), &value, sizeof value))
                return refuse(t, "lm_head.weight is not wte.weight: a head of its own is not GPT-2's");
        }
    }
    return 0;
}

static int load(tuner *t, const options *o) {
    const memopt_tensor *head = memopt_tensors_find(t->header, "lm_head.weight");
    size_t i;

    for (i = 0; i < t->tensor_count; ++i)
        if (load_tensor(t, o, find_number(t, i), i, 0)) return 1;
    if (!head) return 0;
    if (head->end - head->begin != t->tensors[0].count * bytes_of(head) || bytes_of(head) < 2)
        return refuse(t, "lm_head.weight has not the shape of wte.weight");
    return load_tensor(t, o, head, 0, 1);
}

/* What a tensor has become: number as of number_of(). */
static int save_tensor(tuner *t, const options *o, void *file, const char *path, uint64_t offset,
                       const memopt_tensor *x, long number) {
    const memopt_files *files = &t->host.files;
    static unsigned char bytes[4 * PIECE];
    const size_t size = number == IS_MASK ? 1 : bytes_of(x), i = number > 0 ? (size_t)number : 0; /* a head: tokens */
    const uint64_t count = (x->end - x->begin) / size;
    uint64_t at;
    size_t n, k;

    for (at = 0; at < count; at += n) {
        n = count - at < PIECE ? (size_t)(count - at) : PIECE;
        if (number != IS_MASK) {
            for (k = 0; k < n; ++k)
                encode(bytes + k * size, x->type, *weight_at(t, i, (size_t)at + k));
        } else if (read_at(t, t->input, o->model, t->header->data_begin + x->begin + at, bytes, n)) {
            return 1;
        }
        if (failed(t, path, files->write_fn(files->user, file, offset + at * size, bytes, n * size))) return 1;
    }
    return 0;
}

/* The header of a file with the same tensors, and "format": "pt" among its metadata. Frees nothing that it returns. */
static void *make_header(tuner *t, memopt_tensor *list, size_t *bytes) {
    const size_t old = t->header->metadata_count;
    memopt_tensor_metadata *metadata = (memopt_tensor_metadata *)calloc(old + 1, sizeof *metadata);
    memopt_tensors_desc d = { 0 };
    void *text = NULL;
    size_t i;

    memcpy(list, t->header->tensors, t->header->count * sizeof *list);
    d.tensors = list;
    d.count = t->header->count;
    d.metadata = metadata;
    d.error = &t->error;
    for (i = 0; metadata && i < old; ++i)
        if (strcmp(t->header->metadata[i].key, "format")) metadata[d.metadata_count++] = t->header->metadata[i];
    if (metadata) metadata[d.metadata_count].key = "format";
    if (metadata) metadata[d.metadata_count++].value = "pt";
    if (metadata && memopt_tensors_write(&d, NULL, 0, bytes) == MEMOPT_ERR_BUFFER) text = malloc(*bytes);
    if (!text || failed(t, "The header", memopt_tensors_write(&d, text, *bytes, NULL))) {
        (void)refuse(t, "The header: no memory");
        free(text);
        text = NULL;
    }
    free(metadata);
    return text;
}

static int save_all(tuner *t, const options *o, void *file, const char *path, const memopt_tensor *list,
                    const void *header, size_t bytes) {
    const memopt_files *files = &t->host.files;
    size_t i;

    if (failed(t, path, files->resize_fn(files->user, file, bytes + t->header->data_bytes))
        || failed(t, path, files->write_fn(files->user, file, 0, header, bytes))) return 1;
    for (i = 0; i < t->header->count; ++i) { /* begin of the old place, offset of the new one */
        const memopt_tensor *x = &t->header->tensors[i];

        if (save_tensor(t, o, file, path, bytes + list[i].begin, x, number_of(t, x->name))) return 1;
    }
    return failed(t, path, files->sync_fn(files->user, file));
}

/* The names in OUT's folder outlive a power cut, where the system can promise that. */
static int sync_folder(tuner *t, const char *path) {
    const char *slash = strrchr(path, '/');
    const int length = slash ? (int)(slash - path) : 0;
    char folder[1024];
    memopt_status s;

    snprintf(folder, sizeof folder, "%.*s", length ? length : 1, slash ? path : ".");
    s = t->host.files.sync_dir_fn(t->host.files.user, folder);
    return s != MEMOPT_ERR_UNSUPPORTED && failed(t, folder, s);
}

static int beside_out(tuner *t, const options *o, char *path, size_t capacity) {
    if (snprintf(path, capacity, "%s.tmp", o->out) < (int)capacity) return 0;
    return refuse(t, "the name OUT is too long");
}

/* Before the hours of training: can OUT be made, and is there room for as much as MODEL takes? Nothing is left. */
static int try_out(tuner *t, const options *o) {
    const memopt_files *files = &t->host.files;
    const memopt_status made = files->make_dir_fn(files->user, o->out);
    char path[1024];
    void *file = NULL;
    uint64_t bytes = 0;
    memopt_status s;

    if (made == MEMOPT_OK) (void)files->remove_fn(files->user, o->out);
    if (made == MEMOPT_ERR_STATE) return refuse(t, "%s is a directory: give OUT the name of a file", o->out);
    if (beside_out(t, o, path, sizeof path) || failed(t, o->model, files->size_fn(files->user, t->input, &bytes))) return 1;
    s = files->open_fn(files->user, path, MEMOPT_OPEN_WRITE, &file);
    if (s) return refuse(t, "%s: cannot be made: look for its folder, and whether you may write there", path);
    s = files->reserve_fn(files->user, file, bytes);
    if (s == MEMOPT_ERR_MEMORY) (void)refuse(t, "%s: the disk has no room for %.1f MB", path, (double)bytes / 1e6);
    (void)failed(t, path, s);
    (void)failed(t, path, files->close_fn(files->user, file));
    (void)failed(t, path, files->remove_fn(files->user, path));
    return t->message[0] != 0;
}

/* To a name of its own first: what OUT was before stays until the new one is whole. */
static int save(tuner *t, const options *o) {
    const memopt_files *files = &t->host.files;
    memopt_tensor *list = (memopt_tensor *)malloc(t->header->count * sizeof *list);
    char path[1024];
    size_t bytes = 0;
    void *header = list ? make_header(t, list, &bytes) : NULL, *file = NULL;
    int wrong = !header;

    if (wrong) (void)refuse(t, "no memory");
    if (!wrong) wrong = beside_out(t, o, path, sizeof path);
    if (!wrong) wrong = failed(t, path, files->open_fn(files->user, path, MEMOPT_OPEN_WRITE, &file));
    if (file) {
        wrong = save_all(t, o, file, path, list, header, bytes);
        wrong |= failed(t, path, files->close_fn(files->user, file));
        if (t->input) (void)files->close_fn(files->user, t->input); /* it may be OUT itself */
        t->input = NULL;
        if (!wrong) wrong = failed(t, o->out, files->rename_fn(files->user, path, o->out));
        if (wrong) (void)files->remove_fn(files->user, path);
        else wrong = sync_folder(t, o->out);
    }
    free(header);
    free(list);
    return wrong;
}

/* ---- the text: sequences read ahead, each epoch in an order of its own ---- */
static int open_text(tuner *t, const options *o) {
    const size_t name = strlen(o->text);
    memopt_feed_desc d = { 0 };

    d.path = o->text;
    d.token_bytes = name > 4 && !strcmp(o->text + name - 4, ".u16") ? 2 : 1;
    d.vocabulary = t->shape.vocabulary;
    d.length = t->shape.length;
    d.samples = t->shape.batch;
    d.shuffle = 1;
    d.error = &t->error;
    return failed(t, o->text, memopt_feed_bytes(&d, &t->ahead)) || failed(t, o->text, memopt_feed_create(&d, &t->feed));
}

/* ---- memory: the same twice, over a source that only counts and over pages ---- */
static memopt_status step_tensor(void *user, size_t tensor, const void *gradients) { /* inside backward */
    return memopt_optim_apply_with(((const tuner *)user)->optim, tensor, gradients);
}

static int push_model(tuner *t) {
    transformer_chain c = { 0 };
    memopt_optim_desc d = { 0 };
    size_t before;

    t->shape.done_fn = step_tensor;
    t->shape.user = t;
    c.shape = &t->shape;
    describe(t, &c); /* counts */
    t->weights = c.elements * sizeof(float);
    c.weights = MEMOPT_PUSH(t->arena, float, c.elements, MEMOPT_TAG_PARAMETERS);
    c.tensors = t->tensors;
    c.layers = t->steps;
    c.segments = t->segments;
    describe(t, &c); /* places */
    /* The head's and the embedding's gradients meet in an array; all others are scratch of a backward. */
    t->embedding.gradients = MEMOPT_PUSH(t->arena, float, t->tensors[0].count, MEMOPT_TAG_GRADIENTS);
    t->tensors[0].gradients = t->embedding.gradients;
    t->ids = MEMOPT_PUSH(t->arena, int32_t, transformer_rows(&t->shape), MEMOPT_TAG_OTHER);
    t->targets = MEMOPT_PUSH(t->arena, int32_t, transformer_rows(&t->shape), MEMOPT_TAG_OTHER);
    if (!t->targets) return failed(t, "Memory", memopt_arena_error(t->arena).status);
    d.kind = MEMOPT_OPTIM_ADAMW;
    d.state = MEMOPT_STATE_8BIT;
    d.tensors = t->tensors;
    d.tensor_count = t->tensor_count;
    d.error = &t->error;
    d.threads = t->shape.ops.threads;
    before = memopt_arena_get_stats(t->arena).used_low;
    if (failed(t, "The optimizer", memopt_optim_open(&d, t->arena, &t->optim))) return 1;
    t->states = memopt_arena_get_stats(t->arena).used_low - before;
    return 0;
}

static int open_tape(tuner *t, const options *o) {
    const size_t held = memopt_arena_get_stats(t->arena).used_low;
    memopt_tape_desc d = { 0 };
    size_t need = 0;

    if (failed(t, "The model", memopt_tape_describe(t->steps, t->segments, 2 * t->layers + 2, &t->error))) return 1;
    d.layers = t->steps;
    d.chain.segments = t->segments;
    d.chain.count = 2 * t->layers + 2;
    d.chain.input_bytes = transformer_rows(&t->shape) * sizeof(int32_t);
    d.arena = t->arena;
    d.overhead = 0.33;
    d.error = &t->error;
    if (o->memory) {
        if (failed(t, "The plan", memopt_tape_min_budget(&d, &need))) return 1;
        if (o->memory < held || o->memory - held < need)
            return refuse(t, "--memory %lu is too little: %lu is the least", (unsigned long)o->memory,
                          (unsigned long)(held + need));
        d.budget = o->memory - held;
    }
    if (failed(t, "The plan", memopt_tape_create(&d, &t->tape))) return 1;
    t->peak = held + memopt_tape_get_stats(t->tape).peak;
    return 0;
}

static void close_memory(tuner *t) {
    memopt_tape_destroy(t->tape);
    memopt_arena_destroy(t->arena);
    t->tape = NULL;
    t->arena = NULL;
    t->optim = NULL;
}

/* capacity 0: a dry run, which tells t->peak. */
static int open_memory(tuner *t, const options *o, size_t capacity) {
    memopt_arena_desc d = { 0 };
    uint64_t available;
    memopt_status s;

    if (capacity && !memopt_memory_available(NULL, &available) && capacity > available)
        return refuse(t, "the system has %.1f MB left; a smaller --context, --batch or --memory needs less",
                      (double)available / 1e6);
    s = capacity ? memopt_source_pages(NULL, &t->source) : memopt_source_counting(&t->source);
    if (failed(t, "Memory", s)) return 1;
    d.source = &t->source;
    d.capacity = capacity;
    d.error = &t->error;
    return failed(t, "Memory", memopt_arena_create(&d, &t->arena)) || push_model(t) || open_tape(t, o);
}

static int open_tables(tuner *t) {
    const size_t count = 2 * t->layers + 2;

    t->tensor_count = BEFORE_LAYERS + LAYER_TENSORS * t->layers + 2;
    t->blocks = (transformer_block *)calloc(t->layers, sizeof *t->blocks);
    t->tensors = (memopt_optim_tensor *)calloc(t->tensor_count, sizeof *t->tensors);
    t->steps = (memopt_tape_layer *)calloc(count, sizeof *t->steps);
    t->segments = (memopt_segment *)calloc(count, sizeof *t->segments);
    if (t->blocks && t->tensors && t->steps && t->segments) return 0;
    return refuse(t, "no memory for the tables of the model");
}

/* Before memory is planned, so that no hostile number gets there. */
static int check_model(tuner *t) {
    const char *format = memopt_tensors_value(t->header, "format"); /* what it was saved from; NULL: not said */
    transformer_chain c = { 0 };

    if (format && (!strcmp(format, "tf") || !strcmp(format, "flax")))
        return refuse(t, "the model's format is \"%s\", with tensors of other names: save it as \"pt\"", format);
    c.shape = &t->shape;
    c.tensors = t->tensors;
    describe(t, &c);
    return check_tensors(t);
}

/* ---- training ---- */
static int train(tuner *t, const options *o) {
    memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    memopt_optim_run run = { 0 };
    memopt_status s;

    group.rate = o->rate;
    run.groups = &group;
    run.group_count = 1;
    run.fused = 1;
    t->head.targets = t->targets;
    for (run.step = 1; run.step <= o->steps; ++run.step) {
        s = memopt_feed_next(t->feed, t->ids, t->targets);
        if (s) t->error = memopt_feed_error(t->feed);
        if (failed(t, o->text, s)) return 1;
        s = memopt_optim_begin(t->optim, &run);
        if (!s && ((s = memopt_tape_forward(t->tape, t->ids)) || (s = memopt_tape_backward(t->tape, NULL, NULL))))
            if (t->error.status != s) t->error = memopt_tape_error(t->tape);
        if (!s) s = memopt_optim_end(t->optim);
        if (s && memopt_optim_error(t->optim).status == s) t->error = memopt_optim_error(t->optim); /* nearer */
        if (failed(t, "The step", s)) return 1;
        printf("step %lu  loss %.6f\n", (unsigned long)run.step, t->head.loss);
        fflush(stdout);
    }
    return 0;
}

static int work(tuner *t, const options *o) {
    const memopt_files *files = &t->host.files;

    if (failed(t, "The host", memopt_host_resolve(NULL, &t->host))) return 1;
    if (failed(t, o->model, memopt_tensors_open(NULL, o->model, &t->header, &t->error))
        || failed(t, o->model, files->open_fn(files->user, o->model, MEMOPT_OPEN_READ, &t->input))) return 1;
    if (read_shape(t, o) || open_tables(t) || check_model(t) || open_text(t, o) || try_out(t, o) || open_memory(t, o, 0)) return 1;
    printf("%lu layers, width %lu, %lu heads, vocabulary %lu: %.1f million parameters\n", (unsigned long)t->layers,
           (unsigned long)t->shape.width, (unsigned long)t->shape.heads, (unsigned long)t->shape.vocabulary,
           (double)t->weights / 4e6);
    printf("memory: %.1f MB: weights %.1f, states of the optimizer %.1f, a step %.1f, text read ahead %.1f\n",
           (double)(t->peak + t->ahead) / 1e6, (double)t->weights / 1e6, (double)t->states / 1e6,
           (double)(t->peak - t->weights - t->states) / 1e6, (double)t->ahead / 1e6);
    fflush(stdout);
    close_memory(t);
    return open_memory(t, o, t->peak) || load(t, o) || train(t, o) || save(t, o);
}

static void close_all(tuner *t) {
    const memopt_files *files = &t->host.files;

    close_memory(t);
    if (t->input) (void)files->close_fn(files->user, t->input);
    memopt_feed_destroy(t->feed);
    memopt_tensors_close(t->header);
    free(t->blocks);
    free(t->tensors);
    free(t->steps);
    free(t->segments);
}

/* ---- switches ---- */
static int number(const char *text, size_t *out) { /* 16, 600M, 2G */
    char *end;
    const double x = strtod(text, &end);
    const double unit = *end == 'K' ? 1e3 : *end == 'M' ? 1e6 : *end == 'G' ? 1e9 : 1;

    if (end == text || !(x >= 0) || !(x * unit < 1e15) || (unit > 1 ? end[1] : *end)) return 1;
    *out = (size_t)(x * unit);
    return 0;
}

static int parse(int argc, char **argv, options *o) { /* 1: not understood */
    static const char *const names[] = { "--steps", "--batch", "--context", "--heads", "--memory", "--threads" };
    size_t *const values[] = { &o->steps, &o->batch, &o->context, &o->heads, &o->memory, &o->threads };
    char *end;
    int i;
    size_t k;

    if (argc < 4 || argc % 2) return 1;
    o->model = argv[1];
    o->text = argv[2];
    o->out = argv[3];
    for (i = 4; i < argc; i += 2) {
        for (k = 0; k < 6 && strcmp(argv[i], names[k]); ++k) {}
        if (k < 6) {
            if (number(argv[i + 1], values[k])) return 1;
        } else if (!strcmp(argv[i], "--rate")) {
            o->rate = strtod(argv[i + 1], &end);
            if (end == argv[i + 1] || *end || !(o->rate >= 0 && o->rate <= 1)) return 1;
        } else {
            return 1;
        }
    }
    return !o->batch || !o->threads || o->threads > 1024;
}

static int open_threads(tuner *t, const options *o, memopt_thread_pool **pool, memopt_threads *threads) {
    t->shape.ops.error = &t->error;
    if (o->threads < 2) return 0;
    if (failed(t, "--threads", memopt_thread_pool_create(NULL, (int)o->threads, pool))) return 1;
    *threads = memopt_thread_pool_threads(*pool);
    t->shape.ops.threads = threads;
    return 0;
}

int main(int argc, char **argv) {
    static tuner t;
    options o = { 0 };
    memopt_thread_pool *pool = NULL;
    memopt_threads threads;
    int wrong;

    o.steps = 100;
    o.batch = 1;
    o.threads = 1;
    o.rate = 5e-5;
    if (parse(argc, argv, &o)) {
        fputs("usage: finetune MODEL TEXT OUT [--steps 100] [--batch 1] [--context: all positions]\n"
              "    [--heads: width / 64] [--rate 5e-5] [--threads 1] [--memory BYTES: for a third more time]\n"
              "MODEL and OUT are safetensors files with the names of GPT-2; TEXT: each byte a token, or name.u16\n",
              stderr);
        return 2;
    }
    wrong = open_threads(&t, &o, &pool, &threads) || work(&t, &o);
    if (wrong) fprintf(stderr, "finetune: %s\n", t.message);
    else printf("%s is written\n", o.out);
    close_all(&t);
    memopt_thread_pool_destroy(pool);
    return wrong;
}
