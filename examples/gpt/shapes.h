/* shapes.h - what --model names: the fields of transformer.h that differ from one network to the next, as a published
   model has them. Layers, width, heads, context and vocabulary are switches of their own. Part of options.h. */
#ifndef GPT_SHAPES_H
#define GPT_SHAPES_H

enum { END_OF_TEXT = 50256 }; /* GPT-2's token, with which llm.c begins each document */

typedef struct model_row {
    const char *name;
    int    is_llama;        /* 1: RMS norm, SwiGLU, rotary positions, no biases */
    int    untied, qkv_bias, qk_norm;
    size_t hidden, divisor; /* the MLP has width * hidden / divisor, rounded up to a multiple of 32 */
    size_t group;           /* heads that share keys and values, as far as that divides --heads */
    size_t wide;            /* a head has so many times width / heads */
    size_t window;          /* the default of --window; 0: there is none */
    double eps, base;       /* of norms; of rotary positions */
} model_row;

/* From the configurations of GPT-2, Llama 3 8B, Mistral 7B v0.1, Qwen2 0.5B, Qwen3 0.6B and SmolLM 135M. */
static const model_row model_rows[] = {
    { "gpt",     0, 0, 0, 0,  4, 1, 1, 1,    0, 1e-5, 0 },
    { "vit",     0, 1, 0, 0,  4, 1, 1, 1,    0, 1e-5, 0 },
    { "llama",   1, 1, 0, 0,  7, 2, 4, 1,    0, 1e-5, 500000 },
    { "mistral", 1, 1, 0, 0,  7, 2, 4, 1, 4096, 1e-5, 10000 },
    { "qwen2",   1, 0, 1, 0, 38, 7, 7, 1,    0, 1e-6, 1000000 },
    { "qwen3",   1, 0, 0, 1,  3, 1, 2, 2,    0, 1e-6, 1000000 },
    { "smollm",  1, 0, 0, 0,  8, 3, 3, 1,    0, 1e-5, 10000 } };
static const char model_names[] = "gpt|vit|llama|mistral|qwen2|qwen3|smollm"; /* as the rows */

static const model_row *model_row_of(const options *o) { return &model_rows[o->model]; }

static int is_vit(const options *o) { return o->model == MODEL_VIT; }

static size_t model_head_width(const options *o) { return model_row_of(o)->wide * (o->width / o->heads); }

/* The greatest common divisor of the heads and the model's group: so many share keys and values. */
static size_t model_group(const options *o) {
    size_t a = o->heads, b = model_row_of(o)->group;

    while (b) {
        const size_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* The usual attention holds the matrices of heads that all have keys of their own, and see all that was before. */
static int needs_lean_attention(const options *o) { return model_row_of(o)->is_llama || o->window || o->documents; }
#endif
