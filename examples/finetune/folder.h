/* folder.h - the weights of a model's folder: model.safetensors, or several files with their index, in F32, F16, BF16.

   Places   A tensor of ours is one of the files', or several below each other: queries, keys and values; gate and up.
            GPT-2's matrices lie transposed there, inputs by outputs, and are turned as they are moved. So elements
            first to first + count - 1 of one of ours are runs in files: folder_move() decodes them, or puts them into
            new files of the same names, types and places.
   All      What is missing, twice there, of another shape, or unknown, is named. Of what is no weight (masks, inverse
            frequencies, a head that is the embedding) the bytes stay as they are, or become the embedding's. */
#ifndef FINETUNE_FOLDER_H
#define FINETUNE_FOLDER_H
#include "config.h"

enum { FOLDER_FILES_MAX = 1024, FOLDER_NAME = 256, FOLDER_PIECE = 1 << 14 /* elements that are moved at a time */,
       FOLDER_STRIP = 1 << 16 /* that become codes at a time */,
       FOLDER_SAMPLE = 4096 /* bytes */ };
enum { EMBEDDING, ATTENTION, MLP, HEAD, KINDS };

typedef struct folder_file {
    char name[FOLDER_NAME];
    memopt_tensors *header;
    memopt_tensor *list;    /* of a new header: the same tensors, each at its new place */
    void    *in, *out;      /* out: NULL, or the new one */
    uint64_t out_begin;     /* of its data */
} folder_file;

typedef struct folder_piece { /* a tensor of a file, and which rows of one of ours it is */
    folder_file *file;
    size_t       index;     /* in the file's header */
    size_t       number;    /* of ours */
    size_t       row, rows, columns;
    int          is_turned;
} folder_piece;

typedef struct folder_list { /* tensors of a file that is to be written */
    memopt_tensor_type type;
    memopt_tensor *tensors;
    uint64_t     (*shapes)[2];
    char         (*names)[2 * FOLDER_NAME];
    size_t         count;
} folder_list;

typedef struct folder {
    const char   *path;
    const memopt_host *host; /* every function of it can be called */
    folder_file  *files;
    size_t        file_count;
    folder_piece *pieces;
    size_t        piece_count;
    folder_piece *tied_head; /* NULL, or a head in the files that is the embedding: the last piece, of number 0 */
    folder_list  *listed;    /* NULL, or tensors are listed there, not looked for */
    reason      *why;
    union { unsigned char bytes[4 * FOLDER_PIECE]; float align; } in_file, in_memory;
    float         room[FOLDER_PIECE], strip[FOLDER_STRIP];
} folder;

/* ---- names ---- */
typedef struct folder_names { /* of one of ours: part and place in its list; pieces, below each other */
    int         kind, tensor;
    const char *names[3];     /* NULL: no further one. %lu: the layer */
    int         is_turned;
} folder_names;

static const folder_names folder_gpt2[] = {
    { EMBEDDING, TRANSFORMER_TOKENS, { "wte.weight", NULL, NULL }, 0 },
    { EMBEDDING, TRANSFORMER_POSITIONS, { "wpe.weight", NULL, NULL }, 0 },
    { ATTENTION, TRANSFORMER_NORM_SCALE, { "h.%lu.ln_1.weight", NULL, NULL }, 0 },
    { ATTENTION, TRANSFORMER_NORM_SHIFT, { "h.%lu.ln_1.bias", NULL, NULL }, 0 },
    { ATTENTION, TRANSFORMER_QKV, { "h.%lu.attn.c_attn.weight", NULL, NULL }, 1 },
    { ATTENTION, TRANSFORMER_QKV_BIAS, { "h.%lu.attn.c_attn.bias", NULL, NULL }, 0 },
    { ATTENTION, TRANSFORMER_PROJECT, { "h.%lu.attn.c_proj.weight", NULL, NULL }, 1 },
    { ATTENTION, TRANSFORMER_PROJECT_BIAS, { "h.%lu.attn.c_proj.bias", NULL, NULL }, 0 },
    { MLP, TRANSFORMER_NORM_SCALE, { "h.%lu.ln_2.weight", NULL, NULL }, 0 },
    { MLP, TRANSFORMER_NORM_SHIFT, { "h.%lu.ln_2.bias", NULL, NULL }, 0 },
    { MLP, TRANSFORMER_UP, { "h.%lu.mlp.c_fc.weight", NULL, NULL }, 1 },
    { MLP, TRANSFORMER_UP + 1, { "h.%lu.mlp.c_fc.bias", NULL, NULL }, 0 },
    { MLP, TRANSFORMER_DOWN, { "h.%lu.mlp.c_proj.weight", NULL, NULL }, 1 },
    { MLP, TRANSFORMER_DOWN + 1, { "h.%lu.mlp.c_proj.bias", NULL, NULL }, 0 },
    { HEAD, TRANSFORMER_FINAL_SCALE, { "ln_f.weight", NULL, NULL }, 0 },
    { HEAD, TRANSFORMER_FINAL_SHIFT, { "ln_f.bias", NULL, NULL }, 0 },
    { HEAD, TRANSFORMER_HEAD, { "lm_head.weight", NULL, NULL }, 0 },
    { KINDS, 0, { NULL, NULL, NULL }, 0 }
};

#define FOLDER_ATTENTION "layers.%lu.self_attn."
static const folder_names folder_llama[] = {
    { EMBEDDING, TRANSFORMER_TOKENS, { "embed_tokens.weight", NULL, NULL }, 0 },
    { ATTENTION, TRANSFORMER_NORM_SCALE, { "layers.%lu.input_layernorm.weight", NULL, NULL }, 0 },
    { ATTENTION, TRANSFORMER_QKV, { FOLDER_ATTENTION "q_proj.weight", FOLDER_ATTENTION "k_proj.weight",
                                    FOLDER_ATTENTION "v_proj.weight" }, 0 },
    { ATTENTION, TRANSFORMER_QKV_BIAS, { FOLDER_ATTENTION "q_proj.bias", FOLDER_ATTENTION "k_proj.bias",
                                         FOLDER_ATTENTION "v_proj.bias" }, 0 },
    { ATTENTION, TRANSFORMER_PROJECT, { FOLDER_ATTENTION "o_proj.weight", NULL, NULL }, 0 },
    { ATTENTION, TRANSFORMER_PROJECT_BIAS, { FOLDER_ATTENTION "o_proj.bias", NULL, NULL }, 0 },
    { ATTENTION, TRANSFORMER_QUERY_NORM, { FOLDER_ATTENTION "q_norm.weight", NULL, NULL }, 0 },
    { ATTENTION, TRANSFORMER_KEY_NORM, { FOLDER_ATTENTION "k_norm.weight", NULL, NULL }, 0 },
    { MLP, TRANSFORMER_NORM_SCALE, { "layers.%lu.post_attention_layernorm.weight", NULL, NULL }, 0 },
    { MLP, TRANSFORMER_UP, { "layers.%lu.mlp.gate_proj.weight", "layers.%lu.mlp.up_proj.weight", NULL }, 0 },
    { MLP, TRANSFORMER_UP + 1, { "layers.%lu.mlp.gate_proj.bias", "layers.%lu.mlp.up_proj.bias", NULL }, 0 },
    { MLP, TRANSFORMER_DOWN, { "layers.%lu.mlp.down_proj.weight", NULL, NULL }, 0 },
    { MLP, TRANSFORMER_DOWN + 1, { "layers.%lu.mlp.down_proj.bias", NULL, NULL }, 0 },
    { HEAD, TRANSFORMER_FINAL_SCALE, { "norm.weight", NULL, NULL }, 0 },
    { HEAD, TRANSFORMER_HEAD, { "lm_head.weight", NULL, NULL }, 0 },
    { KINDS, 0, { NULL, NULL, NULL }, 0 }
};

/* Names are what the reference writes, or the same without the prefix, as a model without a head is saved. */
static const char *folder_bare(const char *name) {
    if (!strncmp(name, "transformer.", 12)) return name + 12;
    return strncmp(name, "model.", 6) ? name : name + 6;
}

/* What files may have beside the weights: its bytes stay. */
static int folder_is_no_weight(const char *name) {
    static const char *const ends[] = { ".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq" };
    const size_t length = strlen(name);
    size_t i;

    for (i = 0; i < sizeof ends / sizeof *ends; ++i)
        if (length > strlen(ends[i]) && !strcmp(name + length - strlen(ends[i]), ends[i])) return 1;
    return 0;
}

/* ---- files ---- */
static int folder_add_file(folder *f, const char *name) {
    folder_file *file;
    char path[2048];
    size_t i;

    for (i = 0; i < f->file_count; ++i)
        if (!strcmp(f->files[i].name, name)) return 0;
    if (f->file_count == FOLDER_FILES_MAX || strlen(name) >= FOLDER_NAME || strchr(name, '/') || strchr(name, '\\'))
        return refuse(f->why, "the index names %.200s, which is no file of this folder, or more than %d", name,
                      (int)FOLDER_FILES_MAX);
    file = &f->files[f->file_count++];
    strcpy(file->name, name);
    if ((size_t)snprintf(path, sizeof path, "%s/%s", f->path, name) >= sizeof path)
        return refuse(f->why, "%.200s: its path is too long", name);
    return failed(f->why, path, memopt_tensors_open(f->host, path, &file->header, &f->why->error))
        || failed(f->why, path, f->host->files.open_fn(f->host->files.user, path, MEMOPT_OPEN_READ, &file->in));
}

/* Were the files saved from torch, or by nobody who said? Others have tensors in other orders. */
static int folder_check_format(const folder *f) {
    size_t i;

    for (i = 0; i < f->file_count; ++i) {
        const char *format = memopt_tensors_value(f->files[i].header, "format");

        if (format && strcmp(format, "pt"))
            return refuse(f->why,
                          "%.200s: its format is \"%.40s\", whose tensors lie in another way: save it as \"pt\"",
                          f->files[i].name, format);
    }
    return 0;
}

/* model.safetensors, or the files that an index names. */
static int folder_open_files(folder *f) {
    json_document index;
    char path[2048];
    uint32_t map, i;
    void *file = NULL;
    int wrong;

    snprintf(path, sizeof path, "%.1900s/model.safetensors.index.json", f->path);
    if (f->host->files.open_fn(f->host->files.user, path, MEMOPT_OPEN_READ, &file))
        return folder_add_file(f, "model.safetensors");
    (void)f->host->files.close_fn(f->host->files.user, file);
    memset(&index, 0, sizeof index);
    wrong = json_load(&index, path);
    if (wrong) (void)refuse(f->why, "%.300s: %s", path, index.message);
    map = json_member(&index, 0, "weight_map");
    if (!wrong && json_first(&index, map) == JSON_NONE) wrong = refuse(f->why, "%.300s: no weight_map", path);
    for (i = json_first(&index, map); !wrong && i != JSON_NONE; i = json_next(&index, map, i)) {
        const char *name = json_string(&index, i, NULL);

        wrong = name ? folder_add_file(f, name) : refuse(f->why, "%.300s: weight_map has what is no file", path);
    }
    json_free(&index);
    return wrong;
}

/* ---- tensors of a new file ---- */
static int folder_list_open(folder_list *l, memopt_tensor_type type, size_t capacity, reason *why) {
    memset(l, 0, sizeof *l);
    l->type = type;
    l->tensors = (memopt_tensor *)calloc(capacity, sizeof *l->tensors);
    l->shapes = (uint64_t (*)[2])calloc(capacity, sizeof *l->shapes);
    l->names = (char (*)[2 * FOLDER_NAME])calloc(capacity, sizeof *l->names);
    return (!l->tensors || !l->shapes || !l->names) && refuse(why, "no memory for the names of tensors");
}

static void folder_list_close(folder_list *l) {
    free(l->tensors);
    free(l->shapes);
    free(l->names);
}

/* columns 0: rank 1. The caller writes the name, where it returns. */
static char *folder_list_add(folder_list *l, size_t rows, size_t columns) {
    memopt_tensor *t = &l->tensors[l->count];

    l->shapes[l->count][0] = rows;
    l->shapes[l->count][1] = columns;
    t->name = l->names[l->count];
    t->type = l->type;
    t->rank = columns ? 2 : 1;
    t->shape = l->shapes[l->count];
    return l->names[l->count++];
}

/* ---- the tensors of the files, one by one ---- */
static const memopt_tensor *piece_tensor(const folder_piece *p) { return &p->file->header->tensors[p->index]; }

/* The file's tensor by its bare name. NULL: there is none, or there are two, which leaves a reason. */
static const memopt_tensor *folder_find(folder *f, const char *bare, folder_piece *p) {
    static const char *const prefixes[] = { "", "transformer.", "model." };
    const memopt_tensor *found = NULL;
    char name[FOLDER_NAME];
    size_t i, k;

    for (i = 0; i < f->file_count; ++i)
        for (k = 0; k < 3; ++k) {
            const memopt_tensor *x;

            snprintf(name, sizeof name, "%s%s", prefixes[k], bare);
            x = memopt_tensors_find(f->files[i].header, name);
            if (x && found) return refuse(f->why, "%s is there twice", bare), NULL;
            if (!x) continue;
            found = x;
            p->file = &f->files[i];
            p->index = (size_t)(x - f->files[i].header->tensors);
        }
    return found;
}

/* A piece of tensor `number`, which is a matrix if columns > 0; rows 0: as many as the file has. */
static int folder_add_piece(folder *f, const char *name, size_t layer, size_t number, size_t row, size_t rows,
                            size_t columns, int is_turned) {
    folder_piece *p = &f->pieces[f->piece_count];
    const memopt_tensor *x;
    char bare[FOLDER_NAME];
    uint64_t first, second;

    memset(p, 0, sizeof *p);
    snprintf(bare, sizeof bare, name, (unsigned long)layer);
    first = is_turned ? columns : rows;
    second = is_turned ? rows : columns;
    if (f->listed) return strcpy(folder_list_add(f->listed, first, second), bare), 0;
    x = folder_find(f, bare, p);
    if (!x) return refuse(f->why, "%s is missing", bare);
    p->number = number;
    p->row = row;
    p->rows = rows;
    p->columns = columns ? columns : 1;
    p->is_turned = is_turned;
    if (x->rank != (columns ? 2u : 1u) || x->shape[0] != first || (columns && x->shape[1] != second))
        return columns
                 ? refuse(f->why, "%s has the wrong shape: [%lu, %lu] is what config.json says", bare,
                          (unsigned long)first, (unsigned long)second)
                 : refuse(f->why, "%s has the wrong shape: [%lu] is what config.json says", bare, (unsigned long)first);
    if (x->type != MEMOPT_TENSOR_F32 && x->type != MEMOPT_TENSOR_F16 && x->type != MEMOPT_TENSOR_BF16)
        return refuse(f->why, "%s is of type %s, and F32, F16 and BF16 are read", bare,
                      memopt_tensor_type_name(x->type));
    ++f->piece_count;
    return 0;
}

/* The rows of a tensor of ours that a piece has. */
static size_t folder_rows(const transformer *t, const folder_names *n, int piece, size_t rows) {
    const int is_qkv = n->kind == ATTENTION && (n->tensor == TRANSFORMER_QKV || n->tensor == TRANSFORMER_QKV_BIAS);

    if (!n->names[1]) return rows;
    if (!is_qkv) return rows / 2;
    return piece ? transformer_kv_width(t) : transformer_attended_width(t);
}

/* The tensors of a part, in the order of its list; *number counts them on. */
static int folder_add_part(folder *f, const transformer *t, const folder_names *names, int kind, size_t layer,
                           transformer_tensors_fn *tensors_fn, size_t *number) {
    transformer_tensor list[TRANSFORMER_TENSORS_MAX];
    const folder_names *n;
    int i, k;

    memset(list, 0, sizeof list);
    (void)tensors_fn(t, list);
    for (i = 0; i < TRANSFORMER_TENSORS_MAX; ++i) {
        size_t row = 0;

        if (!list[i].count) continue;
        for (n = names; n->kind != KINDS && (n->kind != kind || n->tensor != i); ++n) {}
        for (k = 0; k < 3 && n->names[k]; ++k) {
            const size_t all = list[i].columns ? list[i].count / list[i].columns : list[i].count;
            const size_t rows = folder_rows(t, n, k, all);

            if (folder_add_piece(f, n->names[k], layer, *number, row, rows, list[i].columns, n->is_turned)) return 1;
            row += rows;
        }
        ++*number;
    }
    return 0;
}

/* A head in the file of a model whose head is the embedding: it has to be that. */
static int folder_add_tied_head(folder *f, const transformer *t) {
    folder_piece p;

    memset(&p, 0, sizeof p);
    if (t->untied || !folder_find(f, "lm_head.weight", &p)) return f->why->text[0] != 0;
    f->tied_head = &f->pieces[f->piece_count];
    return folder_add_piece(f, "lm_head.weight", 0, 0, 0, t->vocabulary, t->width, 0);
}

/* Is each tensor of the files a piece, or no weight? */
static int folder_check_unknown(folder *f) {
    size_t i, k, p;

    for (i = 0; i < f->file_count; ++i)
        for (k = 0; k < f->files[i].header->count; ++k) {
            for (p = 0; p < f->piece_count; ++p)
                if (f->pieces[p].file == &f->files[i] && f->pieces[p].index == k) break;
            if (p == f->piece_count && !folder_is_no_weight(f->files[i].header->tensors[k].name))
                return refuse(f->why, "%s is not known, or not in config.json", f->files[i].header->tensors[k].name);
        }
    return 0;
}

/* All tensors of the model: embedding, head, then the blocks. */
static int folder_add_parts(folder *f, const config *c, const transformer *t) {
    const folder_names *names = c->is_gpt2 ? folder_gpt2 : folder_llama;
    size_t number = 0, layer;
    int wrong = folder_add_part(f, t, names, EMBEDDING, 0, transformer_embedding_tensors, &number)
             || folder_add_part(f, t, names, HEAD, 0, transformer_head_tensors, &number);

    for (layer = 0; !wrong && layer < c->layers; ++layer)
        wrong = folder_add_part(f, t, names, ATTENTION, layer, transformer_attention_tensors, &number)
             || folder_add_part(f, t, names, MLP, layer, transformer_mlp_tensors, &number);
    return wrong;
}

static size_t folder_pieces_max(const config *c) { return c->layers * 16 + 8; }

/* All tensors of a model, by their names without a prefix. The list is closed also after a failure; f is not open. */
static int folder_list_model(folder *f, folder_list *l, memopt_tensor_type type, const config *c, const transformer *t,
                             reason *why) {
    folder_piece piece;
    int wrong;

    memset(f, 0, sizeof *f);
    f->listed = l;
    f->pieces = &piece;
    f->why = why;
    wrong = folder_list_open(l, type, folder_pieces_max(c), why) || folder_add_parts(f, c, t);
    f->pieces = NULL;
    return wrong;
}

/* The files of `path`, and where each tensor of such a shape lies in them. Closed with folder_close(), also after a
   failure. */
static int folder_open(folder *f, const char *path, const config *c, const transformer *t, const memopt_host *host,
                       reason *why) {
    memset(f, 0, sizeof *f);
    f->path = path;
    f->host = host;
    f->why = why;
    f->files = (folder_file *)calloc(FOLDER_FILES_MAX, sizeof *f->files);
    f->pieces = (folder_piece *)calloc(folder_pieces_max(c), sizeof *f->pieces);
    if (!f->files || !f->pieces) return refuse(why, "%.300s: no memory", path);
    return folder_open_files(f) || folder_check_format(f) || folder_add_parts(f, c, t) || folder_add_tied_head(f, t)
        || folder_check_unknown(f);
}

static void folder_close(folder *f) {
    size_t i;

    for (i = 0; i < f->file_count; ++i) {
        if (f->files[i].in) (void)f->host->files.close_fn(f->host->files.user, f->files[i].in);
        if (f->files[i].out) (void)f->host->files.close_fn(f->host->files.user, f->files[i].out);
        memopt_tensors_close(f->files[i].header);
        free(f->files[i].list);
    }
    free(f->files);
    free(f->pieces);
}

/* ---- elements between memory and files ---- */
static memopt_type folder_type(const memopt_tensor *x) {
    return x->type == MEMOPT_TENSOR_F32 ? MEMOPT_TYPE_F32
         : x->type == MEMOPT_TENSOR_F16 ? MEMOPT_TYPE_F16
                                        : MEMOPT_TYPE_BF16;
}

/* Between types, by float32; rounded to nearest. In place, where nothing is to change. */
static memopt_status convert(void *to, memopt_type to_type, const void *from, memopt_type from_type, size_t n,
                             float *room) {
    memopt_status s = MEMOPT_OK;
    const float *middle = room;

    if (to_type == from_type) return MEMOPT_OK;
    if (from_type == MEMOPT_TYPE_F32) middle = (const float *)from;
    else if (from_type == MEMOPT_TYPE_BF16) s = memopt_f32_from_bf16(room, (const uint16_t *)from, n, NULL);
    else s = memopt_f32_from_f16(room, (const uint16_t *)from, n, NULL);
    if (s) return s;
    if (to_type == MEMOPT_TYPE_BF16) return memopt_bf16_from_f32((uint16_t *)to, middle, n, NULL);
    if (to_type == MEMOPT_TYPE_F16) return memopt_f16_from_f32((uint16_t *)to, middle, n, NULL);
    return memcpy(to, middle, n * sizeof *middle), MEMOPT_OK;
}

enum { FINITE_BLOCK = 256 /* looked at together: compilers have vectors for that */ };

static int are_finite(const unsigned char *x, memopt_type type, size_t n) { /* BF16 or F32 */
    const size_t bytes = memopt_type_bytes(type);
    size_t at, i;

    for (at = 0; at < n; at += FINITE_BLOCK) {
        const size_t count = n - at < FINITE_BLOCK ? n - at : (size_t)FINITE_BLOCK;
        uint32_t whole[FINITE_BLOCK] = { 0 }, bad = 0;
        uint16_t half[FINITE_BLOCK] = { 0 };

        memcpy(type == MEMOPT_TYPE_F32 ? (void *)whole : (void *)half, x + at * bytes, count * bytes);
        for (i = 0; i < FINITE_BLOCK; ++i)
            bad |= (uint32_t)((whole[i] & 0x7f800000u) == 0x7f800000u) | (uint32_t)((half[i] & 0x7f80u) == 0x7f80u);
        if (bad) return 0;
    }
    return 1;
}

/* Elements side by side, from every stride-th one of an array, or to there. */
static void gather(unsigned char *array, size_t stride, size_t bytes, unsigned char *side, size_t n, int scatters) {
    size_t i;

    for (i = 0; i < n; ++i) {
        unsigned char *a = array + i * stride * bytes, *b = side + i * bytes;

        memcpy(scatters ? a : b, scatters ? b : a, bytes);
    }
}

/* At most FOLDER_PIECE elements of a piece's file from `at` on, and those of ours, `stride` apart. */
static memopt_status folder_move_some(folder *f, const folder_piece *p, uint64_t at, size_t n, unsigned char *ours,
                                      size_t stride, memopt_type type, int writes) {
    const memopt_files *files = &f->host->files;
    const memopt_tensor *x = piece_tensor(p);
    const memopt_type own = folder_type(x);
    const size_t bytes = memopt_type_bytes(own);
    const uint64_t offset = at * bytes + (writes ? p->file->out_begin + p->file->list[p->index].begin
                                                 : p->file->header->data_begin + x->begin);
    unsigned char *side = stride == 1 ? ours : f->in_memory.bytes, *raw = own == type ? side : f->in_file.bytes;
    size_t got = 0;
    memopt_status s;

    if (writes) {
        if (stride > 1) gather(ours, stride, memopt_type_bytes(type), side, n, 0);
        s = convert(raw, own, side, type, n, f->room);
        return s ? s : files->write_fn(files->user, p->file->out, offset, raw, n * bytes);
    }
    s = files->read_fn(files->user, p->file->in, offset, raw, n * bytes, &got);
    if (!s && got < n * bytes) return refuse(f->why, "%s is shorter than it was", p->file->name), MEMOPT_ERR_IO;
    if (!s) s = convert(side, type, raw, own, n, f->room);
    if (!s && !are_finite(side, type, n))
        return refuse(f->why, "%s has elements that are not finite", x->name), MEMOPT_ERR_IO;
    if (!s && stride > 1) gather(ours, stride, memopt_type_bytes(type), side, n, 1);
    return s;
}

static int folder_move_run(folder *f, const folder_piece *p, uint64_t at, size_t n, unsigned char *ours, size_t stride,
                           memopt_type type, int writes) {
    size_t done, count;

    for (done = 0; done < n; done += count) {
        count = n - done < FOLDER_PIECE ? n - done : (size_t)FOLDER_PIECE;
        if (failed(f->why, p->file->name,
                   folder_move_some(f, p, at + done, count, ours + done * stride * memopt_type_bytes(type), stride,
                                    type, writes)))
            return 1;
    }
    return 0;
}

/* Elements first.. of a piece, in our order: runs of its file. */
static int folder_move_piece(folder *f, const folder_piece *p, size_t first, size_t count, unsigned char *ours,
                             memopt_type type, int writes) {
    const size_t unit = memopt_type_bytes(type);
    size_t i;

    if (!p->is_turned) return folder_move_run(f, p, first, count, ours, 1, type, writes);
    for (i = 0; i < p->columns; ++i) { /* column i of ours is row i of the file's */
        const size_t low = first > i ? (first - i + p->columns - 1) / p->columns : 0;
        const size_t high = first + count > i ? (first + count - i + p->columns - 1) / p->columns : 0;

        if (low < high
            && folder_move_run(f, p, i * p->rows + low, high - low, ours + (low * p->columns + i - first) * unit,
                               p->columns, type, writes))
            return 1;
    }
    return 0;
}

/* Elements first to first + count - 1 of tensor `number` of ours, of all pieces that have some: from the files, or into
   new ones. */
static int folder_move(folder *f, size_t number, size_t first, size_t count, void *ours, memopt_type type, int writes) {
    size_t i;

    for (i = 0; i < f->piece_count; ++i) {
        const folder_piece *p = &f->pieces[i];
        const size_t begin = p->row * p->columns, end = begin + p->rows * p->columns;
        const size_t low = first > begin ? first : begin, high = first + count < end ? first + count : end;

        if (p->number != number || low >= high || (p == f->tied_head && !writes)) continue;
        if (folder_move_piece(f, p, low - begin, high - low,
                              (unsigned char *)ours + (low - first) * memopt_type_bytes(type), type, writes)) return 1;
    }
    return 0;
}

/* Of how each tensor begins: little to read, and another model's is another. */
static int folder_crc(folder *f, uint32_t *crc) {
    const memopt_files *files = &f->host->files;
    size_t i, k, got = 0;

    for (*crc = 0, i = 0; i < f->file_count; ++i)
        for (k = 0; k < f->files[i].header->count; ++k) {
            const folder_file *file = &f->files[i];
            const memopt_tensor *x = &file->header->tensors[k];
            const size_t n = x->end - x->begin < FOLDER_SAMPLE ? (size_t)(x->end - x->begin) : (size_t)FOLDER_SAMPLE;

            if (failed(f->why, file->name, files->read_fn(files->user, file->in, file->header->data_begin + x->begin,
                                                          f->in_file.bytes, n, &got))) return 1;
            *crc = memopt_crc32c(*crc, f->in_file.bytes, got);
        }
    return 0;
}

/* Is the head of the files the embedding, as config.json says? Memory for two pieces is all that it takes. */
static int folder_check_tied_head(folder *f) {
    const folder_piece *tokens = &f->pieces[0], *head = f->tied_head;
    float *a = (float *)(void *)f->in_memory.bytes, *b = a + FOLDER_PIECE / 2; /* nothing else lies there meanwhile */
    const size_t all = head ? head->rows * head->columns : 0;
    size_t at, n;
    int wrong = 0;

    for (at = 0; at < all && !wrong; at += n) {
        n = all - at < FOLDER_PIECE / 2 ? all - at : FOLDER_PIECE / 2;
        wrong = folder_move_run(f, tokens, at, n, (unsigned char *)a, 1, MEMOPT_TYPE_F32, 0)
             || folder_move_run(f, head, at, n, (unsigned char *)b, 1, MEMOPT_TYPE_F32, 0);
        if (!wrong && memcmp(a, b, n * sizeof *a))
            wrong = refuse(f->why, "lm_head.weight is not the embedding, and config.json says tie_word_embeddings");
    }
    return wrong;
}
#endif
