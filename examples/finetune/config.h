/* config.h - config.json of a model's folder, as the hub has it, to the shape of parts/transformer.h.

   What it reads  gpt2, llama, mistral, qwen2, qwen3. A value that these parts do not compute (another activation,
                  windows in some layers alone, quantised weights) is refused with its field. Fields that the reference
                  does not look at for such a model are not looked at here. Dropout is left out: tuning has none. */
#ifndef FINETUNE_CONFIG_H
#define FINETUNE_CONFIG_H
#include "../parts/rotary_scaling.h"
#include "json.h"
#include "reason.h"

enum { CONFIG_LARGEST = 1 << 24 /* width, vocabulary, positions */, CONFIG_HEAD_MAX = 1024, CONFIG_LAYERS_MAX = 4096 };

typedef struct config {
    json_document json;
    reason *why;         /* of the caller */
    int     is_gpt2;     /* names and places of tensors are GPT-2's, else Llama's */
    size_t  layers, positions;
    int32_t bos, eos;    /* -1: none */
    double  frequencies[CONFIG_HEAD_MAX / 2];
} config;

static int config_refuse(config *c, const char *field, const char *what) { /* returns 1 */
    return refuse(c->why, "config.json: %s %s", field, what);
}

/* ---- fields ---- */
static uint32_t config_field(const config *c, uint32_t object, const char *field) { /* JSON_NONE: missing, or null */
    const uint32_t value = json_member(&c->json, object, field);

    return json_kind_of(&c->json, value) == JSON_NULL ? JSON_NONE : value;
}

/* 1 to `most`. fallback 0: the field has to be there. */
static int config_size(config *c, const char *field, size_t fallback, size_t most, size_t *out) {
    const uint32_t value = config_field(c, 0, field);
    int64_t n = (int64_t)fallback;

    if (value == JSON_NONE && !fallback) return config_refuse(c, field, "is missing");
    if (value != JSON_NONE && json_integer(&c->json, value, &n)) return config_refuse(c, field, "is no whole number");
    if (n < 1 || (uint64_t)n > most) return config_refuse(c, field, "is 0 or less, or too large");
    *out = (size_t)n;
    return 0;
}

static int config_number_in(config *c, uint32_t object, const char *field, double fallback, double *out) {
    const uint32_t value = config_field(c, object, field);

    *out = fallback;
    if (value != JSON_NONE && json_double(&c->json, value, out)) return config_refuse(c, field, "is no number");
    return *out > 0 ? 0 : config_refuse(c, field, "is missing, 0 or less");
}

static int config_flag(config *c, const char *field, int fallback, int *out) {
    const json_kind kind = json_kind_of(&c->json, config_field(c, 0, field));

    *out = kind == JSON_MISSING ? fallback : kind == JSON_TRUE;
    return kind == JSON_MISSING || kind == JSON_TRUE || kind == JSON_FALSE ? 0
         : config_refuse(c, field, "is neither true nor false");
}

static int config_must_be(config *c, const char *field, int wanted, const char *what) { /* wanted: the default, too */
    int is = 0;

    return config_flag(c, field, wanted, &is) || (is != wanted && config_refuse(c, field, what));
}

/* A token, or the first of a list of them. */
static int config_token(config *c, const char *field, int32_t *out) {
    uint32_t value = config_field(c, 0, field);
    int64_t id = -1;

    if (json_kind_of(&c->json, value) == JSON_ARRAY) value = json_first(&c->json, value);
    if (value != JSON_NONE && (json_integer(&c->json, value, &id) || id < 0 || id > CONFIG_LARGEST))
        return config_refuse(c, field, "is no token");
    *out = (int32_t)id;
    return 0;
}

/* ---- rotary positions ---- */
static int config_yarn(config *c, uint32_t scaling, size_t rotated, double base, double factor, double original,
                       float *magnitude) {
    static const char *const others[] = { "mscale", "mscale_all_dim", "attention_factor" };
    double fast, slow;
    size_t i;

    for (i = 0; i < sizeof others / sizeof *others; ++i)
        if (config_field(c, scaling, others[i]) != JSON_NONE)
            return config_refuse(c, others[i], "of YaRN is not known");
    if (config_number_in(c, scaling, "beta_fast", 32, &fast) || config_number_in(c, scaling, "beta_slow", 1, &slow))
        return 1;
    *magnitude = rotary_yarn(c->frequencies, rotated, base, factor, original, fast, slow);
    return 0;
}

/* rope_scaling, or rope_parameters of later files, which has the base as well. */
static int config_scaling(config *c, uint32_t scaling, size_t rotated, double base, transformer *t) {
    uint32_t kind = config_field(c, scaling, "rope_type");
    double factor, low, high, original;

    if (kind == JSON_NONE) kind = config_field(c, scaling, "type");
    if (kind == JSON_NONE || json_is(&c->json, kind, "default")) return 0;
    if (config_number_in(c, scaling, "factor", 0, &factor)
        || config_number_in(c, scaling, "original_max_position_embeddings", (double)c->positions, &original)) return 1;
    rotary_powers(c->frequencies, rotated, base);
    if (json_is(&c->json, kind, "linear")) rotary_linear(c->frequencies, rotated, factor);
    else if (json_is(&c->json, kind, "llama3")) {
        if (config_number_in(c, scaling, "low_freq_factor", 0, &low)
            || config_number_in(c, scaling, "high_freq_factor", 0, &high)) return 1;
        rotary_llama3(c->frequencies, rotated, factor, low, high, original);
    } else if (json_is(&c->json, kind, "yarn")) {
        if (config_yarn(c, scaling, rotated, base, factor, original, &t->rotary_magnitude)) return 1;
    } else return config_refuse(c, "rope_scaling", "is of a kind that is not known: linear, llama3 and yarn are");
    t->rotary_frequencies = c->frequencies;
    t->rotary_base = 0;
    return 0;
}

static int config_rotary(config *c, transformer *t) {
    uint32_t scaling = config_field(c, 0, "rope_parameters");
    double base = 10000, partial;

    if (t->head_width > CONFIG_HEAD_MAX || t->head_width % 2)
        return config_refuse(c, "head_dim", "is odd, or too large");
    if (config_field(c, scaling, "rope_theta") != JSON_NONE) {
        if (config_number_in(c, scaling, "rope_theta", base, &base)) return 1;
    } else if (config_number_in(c, 0, "rope_theta", base, &base)) return 1;
    if (config_number_in(c, 0, "partial_rotary_factor", 1, &partial)) return 1;
    if (partial < 1) return config_refuse(c, "partial_rotary_factor", "is below 1: heads are rotated whole");
    t->rotary = 1;
    t->rotary_base = base;
    if (scaling == JSON_NONE) scaling = config_field(c, 0, "rope_scaling");
    return scaling == JSON_NONE ? 0 : config_scaling(c, scaling, t->head_width, base, t);
}

/* ---- models ---- */
static int config_gpt2(config *c, transformer *t) {
    const uint32_t activation = config_field(c, 0, "activation_function");
    double eps = 0;
    int tied = 1;

    c->is_gpt2 = 1;
    if (activation != JSON_NONE && !json_is(&c->json, activation, "gelu_new")
        && !json_is(&c->json, activation, "gelu_pytorch_tanh"))
        return config_refuse(c, "activation_function", "is not known: gelu_new and gelu_pytorch_tanh are");
    if (config_size(c, "n_embd", 768, CONFIG_LARGEST, &t->width) || config_size(c, "n_head", 12, 4096, &t->heads)
        || config_size(c, "n_layer", 12, CONFIG_LAYERS_MAX, &c->layers)
        || config_size(c, "n_positions", 1024, CONFIG_LARGEST, &c->positions)
        || config_size(c, "n_inner", 4 * t->width, CONFIG_LARGEST, &t->hidden)
        || config_number_in(c, 0, "layer_norm_epsilon", 1e-5, &eps)
        || config_flag(c, "tie_word_embeddings", 1, &tied)
        || config_must_be(c, "scale_attn_weights", 1, "is false")
        || config_must_be(c, "scale_attn_by_inverse_layer_idx", 0, "is true")
        || config_must_be(c, "add_cross_attention", 0, "is true")) return 1;
    if (t->width % t->heads) return config_refuse(c, "n_head", "does not divide n_embd");
    t->positions = c->positions;
    t->untied = !tied;
    t->eps = (float)eps;
    return 0;
}

/* The window of all layers; 0: none. */
static int config_window(config *c, transformer *t) {
    const int is_mistral = json_is(&c->json, config_field(c, 0, "model_type"), "mistral");
    const uint32_t missing = json_member(&c->json, 0, "sliding_window"), types = config_field(c, 0, "layer_types");
    uint32_t i;
    int windows = is_mistral;

    if (!is_mistral && config_flag(c, "use_sliding_window", 0, &windows)) return 1;
    if (!is_mistral && windows) return config_refuse(c, "use_sliding_window", "is true: a window in some layers alone");
    for (i = json_first(&c->json, types); !is_mistral && i != JSON_NONE; i = json_next(&c->json, types, i))
        if (!json_is(&c->json, i, "full_attention"))
            return config_refuse(c, "layer_types", "has others than full_attention");
    if (!windows || json_kind_of(&c->json, missing) == JSON_NULL) return 0;
    return config_size(c, "sliding_window", 4096, CONFIG_LARGEST, &t->window);
}

static int config_biases(config *c, transformer *t) {
    const int is_qwen2 = json_is(&c->json, config_field(c, 0, "model_type"), "qwen2");
    int attention = 0, mlp = 0;

    if (config_flag(c, "attention_bias", 0, &attention) || config_flag(c, "mlp_bias", 0, &mlp)) return 1;
    if (!is_qwen2 && attention != mlp) return config_refuse(c, "attention_bias", "is not what mlp_bias is");
    t->no_bias = is_qwen2 || !mlp;
    t->qkv_bias = is_qwen2;
    return 0;
}

static int config_llama(config *c, transformer *t) {
    const uint32_t activation = config_field(c, 0, "hidden_act");
    const int is_qwen3 = json_is(&c->json, config_field(c, 0, "model_type"), "qwen3");
    size_t head;
    double eps = 0;
    int tied = 0;

    t->geglu = json_is(&c->json, activation, "gelu_pytorch_tanh");
    t->swiglu = !t->geglu;
    if (t->swiglu && activation != JSON_NONE && !json_is(&c->json, activation, "silu"))
        return config_refuse(c, "hidden_act", "is not known: silu and gelu_pytorch_tanh are");
    if (config_size(c, "hidden_size", 0, CONFIG_LARGEST, &t->width)
        || config_size(c, "num_attention_heads", 0, 4096, &t->heads)
        || config_size(c, "num_key_value_heads", t->heads, t->heads, &t->kv_heads)
        || config_size(c, "num_hidden_layers", 0, CONFIG_LAYERS_MAX, &c->layers)
        || config_size(c, "intermediate_size", 0, CONFIG_LARGEST, &t->hidden)
        || config_size(c, "max_position_embeddings", 2048, CONFIG_LARGEST, &c->positions)
        || config_number_in(c, 0, "rms_norm_eps", 1e-6, &eps) || config_flag(c, "tie_word_embeddings", 0, &tied))
        return 1;
    head = is_qwen3 ? 128 : t->width / t->heads;
    if (t->heads % t->kv_heads) return config_refuse(c, "num_key_value_heads", "does not divide num_attention_heads");
    if (config_size(c, "head_dim", head, CONFIG_HEAD_MAX, &t->head_width)) return 1;
    t->rms = 1;
    t->qk_norm = is_qwen3;
    t->untied = !tied;
    t->eps = (float)eps;
    return config_biases(c, t) || config_window(c, t) || config_rotary(c, t);
}

/* Fill in the shape, but what a run decides: batch, length, types. The config stays where it is, and is closed with
   config_close(), also after a failure. 1: there is a reason. */
static int config_open(config *c, const char *path, transformer *t, reason *why) {
    static const char *const like_llama[] = { "llama", "mistral", "qwen2", "qwen3" };
    uint32_t kind;
    size_t i;

    memset(c, 0, sizeof *c);
    memset(t, 0, sizeof *t);
    c->why = why;
    c->bos = c->eos = -1;
    if (json_load(&c->json, path)) return refuse(why, "%.300s: %s", path, c->json.message);
    kind = config_field(c, 0, "model_type");
    if (config_field(c, 0, "quantization_config") != JSON_NONE)
        return config_refuse(c, "quantization_config", "is there: weights are read in F32, F16 and BF16");
    if (config_size(c, "vocab_size", 0, CONFIG_LARGEST, &t->vocabulary) || config_token(c, "bos_token_id", &c->bos)
        || config_token(c, "eos_token_id", &c->eos)) return 1;
    if (json_is(&c->json, kind, "gpt2")) return config_gpt2(c, t);
    for (i = 0; i < sizeof like_llama / sizeof *like_llama; ++i)
        if (json_is(&c->json, kind, like_llama[i])) return config_llama(c, t);
    return config_refuse(c, "model_type", "is not known: gpt2, llama, mistral, qwen2 and qwen3 are");
}

static void config_close(config *c) {
    json_free(&c->json);
}
#endif
