/* model_tool.c - model_tool FOLDER: one pass of a transformer of examples/parts, for tests/check_models.py to compare.

   Reads FOLDER/shape, lines of a name and numbers; FOLDER/weights, the parameters as floats in the order of the parts;
   and FOLDER/ids and FOLDER/targets, int32. With `bf16 1` weights and activations are bf16. Writes FOLDER/gradients and
   FOLDER/logits, floats, and says the loss. With adapter_rank there is FOLDER/adapters as well, whose gradients these
   are: of the blocks behind the first `front`, which are evaluated by a tape of their own. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "../examples/parts/block.h"
#include "../examples/parts/embedding.h"
#include "../examples/parts/head.h"
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS_MAX = 8, SEGMENTS_MAX = 2 * BLOCKS_MAX + 2, NUMBERS_MAX = 4096 };

typedef struct model {
    transformer       shape;
    size_t            blocks, front;
    int               bf16;
    transformer_part  embedding;
    transformer_block block[BLOCKS_MAX];
    transformer_head  head;
    memopt_tape_layer layers[SEGMENTS_MAX], front_layers[SEGMENTS_MAX];
    memopt_segment    segments[SEGMENTS_MAX], front_segments[SEGMENTS_MAX];
    size_t            starts[NUMBERS_MAX];
    int32_t           positions[NUMBERS_MAX];
    double            frequencies[NUMBERS_MAX];
} model;

static void stop(const char *what, const char *why) {
    fprintf(stderr, "model_tool: %s: %s\n", what, why);
    exit(1);
}

static FILE *open_in(const char *folder, const char *name, const char *how) {
    char path[1024];
    FILE *f;

    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) stop(folder, "too long");
    f = fopen(path, how);
    if (!f) stop(path, "cannot be opened");
    return f;
}

static void read_all(const char *folder, const char *name, void *to, size_t bytes) {
    FILE *f = open_in(folder, name, "rb");

    if (fread(to, 1, bytes, f) != bytes || fgetc(f) != EOF) stop(name, "is not as long as the shape says");
    fclose(f);
}

static void write_all(const char *folder, const char *name, const float *from, size_t n) {
    FILE *f = open_in(folder, name, "wb");

    if (fwrite(from, sizeof *from, n, f) != n || fclose(f)) stop(name, "cannot be written");
}

static void *room(size_t bytes) {
    void *p = calloc(1, bytes + 1);

    if (!p) stop("memory", "there is none");
    return p;
}

/* ---- the shape ---- */
static void set_number(model *m, const char *name, double x, size_t at) {
    transformer *t = &m->shape;
    const struct { const char *name; size_t *to; } sizes[] = {
        { "batch", &t->batch }, { "length", &t->length }, { "width", &t->width }, { "heads", &t->heads },
        { "head_width", &t->head_width }, { "kv_heads", &t->kv_heads }, { "hidden", &t->hidden },
        { "vocabulary", &t->vocabulary }, { "positions", &t->positions }, { "window", &t->window },
        { "adapter_rank", &t->adapter_rank }, { "front", &m->front }, { "blocks", &m->blocks } };
    const struct { const char *name; int *to; } flags[] = {
        { "rms", &t->rms }, { "swiglu", &t->swiglu }, { "geglu", &t->geglu }, { "rotary", &t->rotary },
        { "no_bias", &t->no_bias }, { "qkv_bias", &t->qkv_bias }, { "qk_norm", &t->qk_norm },
        { "untied", &t->untied }, { "adapters_apart", &t->adapters_apart }, { "bf16", &m->bf16 } };
    size_t i;

    if (at >= NUMBERS_MAX) stop(name, "has too many numbers");
    for (i = 0; i < sizeof sizes / sizeof *sizes; ++i)
        if (!strcmp(name, sizes[i].name)) { *sizes[i].to = (size_t)x; return; }
    for (i = 0; i < sizeof flags / sizeof *flags; ++i)
        if (!strcmp(name, flags[i].name)) { *flags[i].to = (int)x; return; }
    if (!strcmp(name, "eps")) t->eps = (float)x;
    else if (!strcmp(name, "adapter_scale")) t->adapter_scale = (float)x;
    else if (!strcmp(name, "rotary_base")) t->rotary_base = x;
    else if (!strcmp(name, "magnitude")) t->rotary_magnitude = (float)x;
    else if (!strcmp(name, "frequencies")) { m->frequencies[at] = x; t->rotary_frequencies = m->frequencies; }
    else if (!strcmp(name, "row_positions")) { m->positions[at] = (int32_t)x; t->row_positions = m->positions; }
    else if (!strcmp(name, "starts")) { m->starts[at] = (size_t)x; t->starts = m->starts; t->documents = at; }
    else stop(name, "is no part of a shape");
}

static void read_shape(const char *folder, model *m) {
    static char line[1 << 17];
    FILE *f = open_in(folder, "shape", "r");

    while (fgets(line, sizeof line, f)) {
        const char *name = strtok(line, " \n");
        const char *number;
        size_t at = 0;

        while (name && (number = strtok(NULL, " \n")) != NULL) set_number(m, name, strtod(number, NULL), at++);
    }
    fclose(f);
    if (!m->blocks || m->blocks > BLOCKS_MAX) stop("blocks", "must be 1 to 8");
    if (m->bf16) m->shape.type = m->shape.weight_type = MEMOPT_TYPE_BF16;
}

/* ---- the pass ---- */
static void add_parts(transformer_chain *front, transformer_chain *chain, model *m) { /* front may be chain */
    size_t i;

    transformer_add_embedding(front, &m->embedding);
    for (i = 0; i < m->blocks; ++i) transformer_add_block(i < m->front ? front : chain, &m->block[i]);
    transformer_add_head(chain, &m->head, &m->embedding);
}

static void must(memopt_status s, memopt_error why) {
    char line[256];

    if (!s) return;
    memopt_error_text(&why, line, sizeof line, NULL);
    stop("pass", line);
}

/* Both chains: counted where there are no weights. Returns the parameters. */
static size_t make_chains(model *m, transformer_chain *front, transformer_chain *chain, const char *weights) {
    const size_t ahead = front->elements * memopt_type_bytes(m->shape.weight_type);
    transformer_chain *first = m->shape.adapter_rank ? front : chain;

    memset(front, 0, sizeof *front);
    front->shape = chain->shape = &m->shape;
    front->front = 1;
    front->layers = m->front_layers;
    front->segments = m->front_segments;
    front->weights = (void *)(uintptr_t)weights;
    chain->weights = (void *)(uintptr_t)(weights ? weights + ahead : NULL);
    chain->layers = m->layers;
    chain->segments = m->segments;
    chain->elements = chain->adapter_elements = chain->tensor_count = chain->count = 0;
    add_parts(first, chain, m);
    return front->elements + chain->elements;
}

static memopt_tape *open_tape(memopt_tape_layer *layers, memopt_segment *segments, size_t count, size_t input_bytes) {
    memopt_tape_desc desc;
    memopt_tape *tape = NULL;
    memopt_error why;

    memset(&why, 0, sizeof why);
    must(memopt_tape_describe(layers, segments, count, &why), why);
    memset(&desc, 0, sizeof desc);
    desc.chain.segments = segments;
    desc.chain.count = count;
    desc.chain.input_bytes = input_bytes;
    desc.layers = layers;
    desc.error = &why;
    must(memopt_tape_open(&desc, &tape), why);
    return tape;
}

static void pass(model *m, memopt_tape *front, memopt_tape *tape, const void *ids, float *logits) {
    void *hidden = room(transformer_bytes(&m->shape, m->shape.width));
    const void *input = front ? hidden : ids;
    float out;

    if (front && memopt_tape_evaluate(front, ids, hidden)) must(MEMOPT_ERR_ARGUMENT, memopt_tape_error(front));
    if (memopt_tape_forward(tape, input) || memopt_tape_backward(tape, NULL, NULL))
        must(MEMOPT_ERR_ARGUMENT, memopt_tape_error(tape));
    printf("%.9g\n", m->head.loss);
    m->head.logits = logits;
    m->head.row_count = transformer_rows(&m->shape);
    if (memopt_tape_evaluate(tape, input, &out)) must(MEMOPT_ERR_ARGUMENT, memopt_tape_error(tape));
    free(hidden);
}

int main(int argc, char **argv) {
    static model m;
    const char *folder = argc == 2 ? argv[1] : NULL;
    transformer_chain front, chain;
    memopt_tape *front_tape = NULL, *tape;
    float *weights, *gradients, *logits;
    int32_t *ids, *targets;
    size_t rows, all, trained;
    void *places;

    if (!folder) stop("usage", "model_tool FOLDER");
    read_shape(folder, &m);
    memset(&front, 0, sizeof front);
    memset(&chain, 0, sizeof chain);
    all = make_chains(&m, &front, &chain, NULL);
    trained = m.shape.adapter_rank ? chain.adapter_elements : all;
    rows = transformer_rows(&m.shape);
    weights = (float *)room(all * sizeof *weights);
    gradients = (float *)room(trained * sizeof *gradients);
    logits = (float *)room(rows * m.shape.vocabulary * sizeof *logits);
    ids = (int32_t *)room(rows * sizeof *ids);
    targets = (int32_t *)room(rows * sizeof *targets);
    read_all(folder, "weights", weights, all * sizeof *weights);
    read_all(folder, "ids", ids, rows * sizeof *ids);
    read_all(folder, "targets", targets, rows * sizeof *targets);
    places = weights;
    if (m.bf16) {
        places = room(all * sizeof(uint16_t));
        (void)memopt_bf16_from_f32((uint16_t *)places, weights, all, NULL);
    }
    if (m.shape.adapter_rank) {
        chain.adapters = (float *)room(trained * sizeof *chain.adapters);
        read_all(folder, "adapters", chain.adapters, trained * sizeof *chain.adapters);
        chain.adapter_gradients = gradients;
    } else chain.gradients = gradients;
    (void)make_chains(&m, &front, &chain, (const char *)places);
    m.head.targets = targets;
    if (front.count) front_tape = open_tape(m.front_layers, m.front_segments, front.count, rows * sizeof *ids);
    tape = open_tape(m.layers, m.segments, chain.count,
                     front_tape ? transformer_bytes(&m.shape, m.shape.width) : rows * sizeof *ids);
    pass(&m, front_tape, tape, ids, logits);
    memopt_tape_destroy(front_tape);
    memopt_tape_destroy(tape);
    write_all(folder, "gradients", gradients, trained);
    write_all(folder, "logits", logits, rows * m.shape.vocabulary);
    return 0;
}
