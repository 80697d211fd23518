/* fuzz_finetune_config.c - config.json, model.safetensors and its index, of a tiny GPT-2 or Llama, with bytes of them
   changed: they are refused with a reason, or each tensor that the shape has is read from within the file. */
#define MEMOPT_IMPLEMENTATION
#define MEMOPT_ONLY_OPERATORS
#define MEMOPT_ONLY_RANKS
#include "memopt.h"
#include <math.h>
#include <stdlib.h>
#include "examples/parts/block.h"
#include "examples/parts/embedding.h"
#include "examples/parts/head.h"
#include "examples/finetune/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int fuzz_load(json_document *j, const char *path);
#define json_load fuzz_load /* files are in memory */
#include "examples/finetune/folder.h"

enum { CONFIG, INDEX, WEIGHTS, FILES, CAPACITY = 1 << 13 };
typedef struct fuzz_file {
    unsigned char bytes[CAPACITY];
    size_t size; /* 0: there is none */
} fuzz_file;
static fuzz_file fuzz_files[FILES];

static void fuzz_must(int x) { if (!x) abort(); }

/* ---- files ---- */
static fuzz_file *fuzz_find(const char *path) {
    const char *const slash = strrchr(path, '/'), *const name = slash ? slash + 1 : path;
    fuzz_file *const file = &fuzz_files[!strcmp(name, "config.json")                    ? CONFIG
                                        : !strcmp(name, "model.safetensors.index.json") ? INDEX
                                                                                        : WEIGHTS];

    return file->size && (file != &fuzz_files[WEIGHTS] || !strcmp(name, "model.safetensors")) ? file : NULL;
}

static int fuzz_load(json_document *j, const char *path) {
    const fuzz_file *const file = fuzz_find(path);
    char *const copy = (char *)malloc(file ? file->size : 1); /* where a sanitizer sees the end */
    int wrong;

    fuzz_must(file && copy);
    memcpy(copy, file->bytes, file->size);
    wrong = json_parse(j, copy, file->size);
    if (wrong) fuzz_must(j->message[0] != 0);
    if (wrong) free(copy);
    else j->file = copy; /* freed with it */
    return wrong;
}

static memopt_status fuzz_open(void *user, const char *path, memopt_open_mode mode, void **file) {
    (void)user;
    fuzz_must(mode == MEMOPT_OPEN_READ);
    *file = fuzz_find(path);
    return *file ? MEMOPT_OK : MEMOPT_ERR_IO;
}

static memopt_status fuzz_close(void *user, void *file) {
    (void)user;
    (void)file;
    return MEMOPT_OK;
}

static memopt_status fuzz_size(void *user, void *file, uint64_t *bytes) {
    (void)user;
    *bytes = ((const fuzz_file *)file)->size;
    return MEMOPT_OK;
}

static memopt_status fuzz_read(void *user, void *file, uint64_t offset, void *bytes, size_t count, size_t *done) {
    const fuzz_file *const f = (const fuzz_file *)file;
    const size_t left = offset < f->size ? f->size - (size_t)offset : 0;

    (void)user;
    *done = count < left ? count : left;
    if (*done) memcpy(bytes, f->bytes + offset, *done);
    return MEMOPT_OK;
}

/* ---- what they hold ---- */
static const char *const fuzz_configs[] = {
    "{'model_type':'gpt2','vocab_size':5,'n_embd':4,'n_head':2,'n_layer':1,'n_inner':6,'n_positions':3,"
        "'activation_function':'gelu_new','layer_norm_epsilon':1e-05,'eos_token_id':4,'tie_word_embeddings':true}",
    "{'model_type':'llama','vocab_size':5,'hidden_size':4,'num_attention_heads':2,'num_key_value_heads':1,"
        "'num_hidden_layers':1,'intermediate_size':6,'max_position_embeddings':3,'tie_word_embeddings':true,"
        "'rope_theta':1e4,'rope_scaling':{'rope_type':'llama3','factor':8.0,'low_freq_factor':1.0,"
        "'high_freq_factor':4.0}}",
    "{'model_type':'mistral','vocab_size':5,'hidden_size':4,'num_attention_heads':2,'num_key_value_heads':1,"
        "'num_hidden_layers':1,'intermediate_size':6,'max_position_embeddings':3,'tie_word_embeddings':true,"
        "'sliding_window':2,'head_dim':2,'rope_parameters':{'rope_type':'yarn','rope_theta':1e6,'factor':4.0}}"
};
typedef struct fuzz_tensor { const char *name; unsigned rows, columns; } fuzz_tensor;
static const fuzz_tensor fuzz_gpt2[] = {
    { "wte.weight", 5, 4 }, { "wpe.weight", 3, 4 }, { "h.0.ln_1.weight", 4, 0 }, { "h.0.ln_1.bias", 4, 0 },
    { "h.0.attn.c_attn.weight", 4, 12 }, { "h.0.attn.c_attn.bias", 12, 0 }, { "h.0.attn.c_proj.weight", 4, 4 },
    { "h.0.attn.c_proj.bias", 4, 0 }, { "h.0.ln_2.weight", 4, 0 }, { "h.0.ln_2.bias", 4, 0 },
    { "h.0.mlp.c_fc.weight", 4, 6 }, { "h.0.mlp.c_fc.bias", 6, 0 }, { "h.0.mlp.c_proj.weight", 6, 4 },
    { "h.0.mlp.c_proj.bias", 4, 0 }, { "ln_f.weight", 4, 0 }, { "ln_f.bias", 4, 0 }, { NULL, 0, 0 } };
static const fuzz_tensor fuzz_llama[] = {
    { "model.embed_tokens.weight", 5, 4 }, { "model.layers.0.input_layernorm.weight", 4, 0 },
    { "model.layers.0.self_attn.q_proj.weight", 4, 4 }, { "model.layers.0.self_attn.k_proj.weight", 2, 4 },
    { "model.layers.0.self_attn.v_proj.weight", 2, 4 }, { "model.layers.0.self_attn.o_proj.weight", 4, 4 },
    { "model.layers.0.post_attention_layernorm.weight", 4, 0 }, { "model.layers.0.mlp.gate_proj.weight", 6, 4 },
    { "model.layers.0.mlp.up_proj.weight", 6, 4 }, { "model.layers.0.mlp.down_proj.weight", 4, 6 },
    { "model.norm.weight", 4, 0 }, { "lm_head.weight", 5, 4 }, { NULL, 0, 0 } };

static void fuzz_write(fuzz_file *file, const char *text) { /* ' stands for the quotes of JSON */
    for (file->size = 0; text[file->size]; ++file->size)
        file->bytes[file->size] = text[file->size] == '\'' ? '"' : (unsigned char)text[file->size];
}

static void fuzz_write_weights(const fuzz_tensor *t) {
    fuzz_file *const file = &fuzz_files[WEIGHTS];
    char *const text = (char *)file->bytes + 8;
    unsigned long end = 0;
    size_t n = 0;

    for (; t->name; ++t) {
        const unsigned long bytes = 2 * t->rows * (t->columns ? t->columns : 1);

        n += (size_t)snprintf(text + n, CAPACITY - 8 - n, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%u", n ? "," : "{",
                              t->name, t->rows);
        if (t->columns) n += (size_t)snprintf(text + n, CAPACITY - 8 - n, ",%u", t->columns);
        n += (size_t)snprintf(text + n, CAPACITY - 8 - n, "],\"data_offsets\":[%lu,%lu]}", end, end + bytes);
        end += bytes;
    }
    n += (size_t)snprintf(text + n, CAPACITY - 8 - n, "}");
    for (; n % 8; ++n) text[n] = ' ';
    memset(file->bytes, 0, 8);
    file->bytes[0] = (unsigned char)n;
    file->bytes[1] = (unsigned char)(n >> 8);
    file->size = 8 + n + end;
    fuzz_must(file->size <= CAPACITY);
    memset(file->bytes + 8 + n, 1, end);
}

/* ---- what is made of them ---- */
static size_t fuzz_elements(const transformer *t, transformer_tensors_fn *tensors_fn) {
    transformer_tensor list[TRANSFORMER_TENSORS_MAX];
    size_t i, n = 0;

    memset(list, 0, sizeof list);
    (void)tensors_fn(t, list);
    for (i = 0; i < TRANSFORMER_TENSORS_MAX; ++i) n += list[i].count;
    return n;
}

/* Each element of the model is a piece's, and each weight of the file is a piece. */
static void fuzz_count(const folder *f, const config *c, const transformer *t) {
    const size_t layer = fuzz_elements(t, transformer_attention_tensors) + fuzz_elements(t, transformer_mlp_tensors);
    const size_t all = fuzz_elements(t, transformer_embedding_tensors) + fuzz_elements(t, transformer_head_tensors);
    size_t i, k, elements = 0, weights = 0;

    for (i = 0; i < f->piece_count; ++i)
        if (&f->pieces[i] != f->tied_head) elements += f->pieces[i].rows * f->pieces[i].columns;
    for (i = 0; i < f->file_count; ++i)
        for (k = 0; k < f->files[i].header->count; ++k)
            weights += !folder_is_no_weight(f->files[i].header->tensors[k].name);
    fuzz_must(elements == all + c->layers * layer && weights == f->piece_count);
}

static void fuzz_read_all(folder *f, const config *c, const transformer *t) {
    static float ours[CAPACITY];
    size_t i;

    fuzz_count(f, c, t);
    for (i = 0; i < f->piece_count; ++i) {
        const folder_piece *const p = &f->pieces[i];
        const memopt_tensor *const x = piece_tensor(p);

        fuzz_must(p->rows * p->columns * memopt_type_bytes(folder_type(x)) == x->end - x->begin);
        fuzz_must(p->rows * p->columns <= CAPACITY);
        fuzz_must(!folder_move(f, p->number, p->row * p->columns, p->rows * p->columns, ours, MEMOPT_TYPE_F32, 0));
    }
    fuzz_must(!folder_check_tied_head(f) || f->why->text[0]);
}

static int fuzz_folder(void) { /* 1: refused */
    static folder f;
    memopt_host host;
    config c;
    transformer t;
    reason why;
    int wrong;

    memset(&why, 0, sizeof why);
    memset(&f, 0, sizeof f);
    fuzz_must(!memopt_host_resolve(NULL, &host));
    host.files.open_fn = fuzz_open;
    host.files.close_fn = fuzz_close;
    host.files.size_fn = fuzz_size;
    host.files.read_fn = fuzz_read;
    wrong = config_open(&c, "in/config.json", &t, &why) || folder_open(&f, "in", &c, &t, &host, &why);
    fuzz_must(wrong == (why.text[0] != 0));
    if (!wrong) fuzz_read_all(&f, &c, &t);
    folder_close(&f);
    config_close(&c);
    return wrong;
}

/* By the input: which model, whether there is an index, and up to eight bytes to change: file, place, byte; from 250 on
   the byte is left out. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const size_t kind = size ? data[0] % 3 : 0;
    size_t i;
    int wrong;

    fuzz_write(&fuzz_files[CONFIG], fuzz_configs[kind]);
    fuzz_write(&fuzz_files[INDEX],
               size && data[0] & 128 ? "{'weight_map':{'x':'model.safetensors','y':'model.safetensors'}}" : "");
    fuzz_write_weights(kind ? fuzz_llama : fuzz_gpt2);
    for (i = 1; i + 4 <= size && i < 33; i += 4) {
        fuzz_file *const file = &fuzz_files[data[i] % FILES];
        const size_t place = file->size ? ((size_t)data[i + 1] << 8 | data[i + 2]) % file->size : 0;

        if (!file->size) continue;
        if (data[i + 3] < 250) file->bytes[place] = data[i + 3];
        else memmove(file->bytes + place, file->bytes + place + 1, --file->size - place);
    }
    wrong = fuzz_folder();
    fuzz_must(i > 1 || !wrong);
    return 0;
}
