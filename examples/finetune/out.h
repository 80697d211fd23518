/* out.h - what has been tuned as a folder that the usual libraries open.

   Model     The files of the model's folder again: weights under their names, in their types and files; config,
             tokeniser and index copied. Or, of adapters, PEFT's adapter_model.safetensors with its config, or the model
             with scale B A added to its weights, rounded once.
   Whole     It is written beside OUT, synced, and renamed: OUT is whole or not there, also after a power cut. */
#ifndef FINETUNE_OUT_H
#define FINETUNE_OUT_H
#include "model.h"

enum { OUT_PATH = 2048, OUT_NAMES = 256 };

typedef struct out_folder {
    model *m;
    folder *from;
    const memopt_files *files;
    int   is_first;        /* rank 0: it makes what the others write into */
    char  path[OUT_PATH], beside[OUT_PATH];
    struct out_peft *peft; /* that adapters are listed in */
} out_folder;

static int out_join(out_folder *o, const char *name, char *path) {
    if ((size_t)snprintf(path, OUT_PATH, "%s/%s", o->beside, name) < OUT_PATH) return 0;
    return refuse(&o->m->why, "%.200s: its path is too long", name);
}

/* ---- other files ---- */
typedef struct out_names { /* found in the model's folder */
    char names[OUT_NAMES][FOLDER_NAME];
    size_t count;
} out_names;

/* What belongs to a model and its tokeniser, whatever its name; an adapter's config would say that it is one. */
static memopt_status out_find(void *context, const char *name) {
    static const char *const ends[] = { ".json", ".txt", ".model", ".jinja" };
    out_names *n = (out_names *)context;
    const size_t length = strlen(name);
    size_t i;

    for (i = 0; i < sizeof ends / sizeof *ends; ++i)
        if (length > strlen(ends[i]) && !strcmp(name + length - strlen(ends[i]), ends[i])) break;
    if (i == sizeof ends / sizeof *ends || name[0] == '.' || !strcmp(name, "adapter_config.json")) return MEMOPT_OK;
    if (n->count == OUT_NAMES || length >= FOLDER_NAME) return MEMOPT_ERR_OVERFLOW;
    strcpy(n->names[n->count++], name);
    return MEMOPT_OK;
}

static int out_copy(out_folder *o, const char *name) {
    static unsigned char bytes[1 << 16];
    char from[OUT_PATH], to[OUT_PATH];
    void *in = NULL, *file = NULL;
    const memopt_files *f = o->files;
    uint64_t at = 0;
    size_t got = sizeof bytes;
    memopt_status s;

    if ((size_t)snprintf(from, sizeof from, "%s/%s", o->from->path, name) >= sizeof from || out_join(o, name, to))
        return 1;
    s = f->open_fn(f->user, from, MEMOPT_OPEN_READ, &in);
    if (!s) s = f->open_fn(f->user, to, MEMOPT_OPEN_WRITE, &file);
    while (!s && got == sizeof bytes) {
        s = f->read_fn(f->user, in, at, bytes, sizeof bytes, &got);
        if (!s) s = f->write_fn(f->user, file, at, bytes, got);
        at += got;
    }
    if (!s) s = f->sync_fn(f->user, file);
    if (file) (void)f->close_fn(f->user, file);
    if (in) (void)f->close_fn(f->user, in);
    return failed(&o->m->why, name, s);
}

static int out_copy_others(out_folder *o) {
    static out_names n;
    size_t i;

    n.count = 0;
    if (failed(&o->m->why, o->from->path, o->files->list_dir_fn(o->files->user, o->from->path, out_find, &n))) return 1;
    for (i = 0; i < n.count; ++i)
        if (out_copy(o, n.names[i])) return 1;
    return 0;
}

static int out_text(out_folder *o, const char *name, const char *text) {
    char path[OUT_PATH];
    void *file = NULL;
    const memopt_files *f = o->files;
    memopt_status s;

    if (out_join(o, name, path)) return 1;
    s = f->open_fn(f->user, path, MEMOPT_OPEN_WRITE, &file);
    if (!s) s = f->write_fn(f->user, file, 0, text, strlen(text));
    if (!s) s = f->sync_fn(f->user, file);
    if (file) (void)f->close_fn(f->user, file);
    return failed(&o->m->why, name, s);
}

/* ---- files of weights ---- */
/* The texts of a file's header (NULL: a new one), with the format that the usual libraries ask for. NULL: no memory. */
static memopt_tensor_metadata *out_metadata(const memopt_tensors *from, size_t *count) {
    const memopt_tensor_metadata format = { "format", "pt" };
    const size_t own = from ? from->metadata_count : 0;
    memopt_tensor_metadata *list = (memopt_tensor_metadata *)malloc((own + 1) * sizeof *list);

    *count = 0;
    if (!list) return NULL;
    if (!from || !memopt_tensors_value(from, "format")) list[(*count)++] = format;
    if (own) memcpy(list + *count, from->metadata, own * sizeof *list);
    *count += own;
    return list;
}

/* A file with these tensors and the metadata of another, its header written, and room for all of it taken; of other
   ranks than the first the file that is there. *file: NULL, or it is open. 1: there is a reason. */
static int out_begin_file(out_folder *o, const char *name, const memopt_tensors *from, memopt_tensor *list,
                          size_t count, void **file, uint64_t *begin) {
    const memopt_files *f = o->files;
    memopt_tensors_desc d;
    memopt_tensor_metadata *texts;
    char path[OUT_PATH];
    void *text = NULL;
    uint64_t end = 0;
    size_t bytes = 0, i;
    memopt_status s;

    memset(&d, 0, sizeof d);
    d.tensors = list;
    d.count = count;
    d.error = &o->m->why.error;
    if (out_join(o, name, path)) return 1;
    d.metadata = texts = out_metadata(from, &d.metadata_count);
    s = texts ? memopt_tensors_write(&d, NULL, 0, &bytes) : MEMOPT_ERR_MEMORY;
    if (s == MEMOPT_ERR_BUFFER) {
        text = malloc(bytes);
        s = text ? memopt_tensors_write(&d, text, bytes, NULL) : MEMOPT_ERR_MEMORY;
    }
    for (i = 0; !s && i < count; ++i) end = list[i].end > end ? list[i].end : end;
    if (!s && !*file) s = f->open_fn(f->user, path, MEMOPT_OPEN_WRITE, file);
    if (!s && o->is_first) s = f->reserve_fn(f->user, *file, bytes + end);
    if (!s && o->is_first) s = f->write_fn(f->user, *file, 0, text, bytes);
    free(text);
    free(texts);
    *begin = bytes;
    return failed(&o->m->why, path, s);
}

static int out_begin_weights(out_folder *o) {
    size_t i;

    for (i = 0; i < o->from->file_count; ++i) {
        folder_file *file = &o->from->files[i];
        const size_t bytes = file->header->count * sizeof *file->list;

        file->list = (memopt_tensor *)malloc(bytes ? bytes : 1);
        if (!file->list) return refuse(&o->m->why, "no memory for a header");
        memcpy(file->list, file->header->tensors, bytes);
        if (out_begin_file(o, file->name, file->header, file->list, file->header->count, &file->out,
                           &file->out_begin)) return 1;
    }
    return 0;
}

/* Of what is no weight the bytes. */
static int out_copy_tensor(out_folder *o, folder_file *file, size_t index) {
    const memopt_tensor *x = &file->header->tensors[index];
    const memopt_files *f = o->files;
    uint64_t at;
    size_t n, got = 0;
    memopt_status s = MEMOPT_OK;

    for (at = 0; !s && at < x->end - x->begin; at += n) {
        unsigned char *bytes = o->from->in_file.bytes;

        n = x->end - x->begin - at < sizeof o->from->in_file ? (size_t)(x->end - x->begin - at)
                                                             : sizeof o->from->in_file;
        s = f->read_fn(f->user, file->in, file->header->data_begin + x->begin + at, bytes, n, &got);
        if (!s && got < n) return refuse(&o->m->why, "%s is shorter than it was", file->name);
        if (!s) s = f->write_fn(f->user, file->out, file->out_begin + file->list[index].begin + at, bytes, n);
    }
    return failed(&o->m->why, file->name, s);
}

static int out_end_weights(out_folder *o) {
    size_t i, k;

    for (i = 0; i < o->from->file_count; ++i) {
        folder_file *file = &o->from->files[i];
        memopt_status s;

        for (k = 0; o->is_first && k < file->header->count; ++k)
            if (folder_is_no_weight(file->header->tensors[k].name) && out_copy_tensor(o, file, k)) return 1;
        s = o->files->sync_fn(o->files->user, file->out);
        if (!s) s = o->files->close_fn(o->files->user, file->out);
        file->out = NULL;
        if (failed(&o->m->why, file->name, s)) return 1;
    }
    return 0;
}

static int out_write_slice(model *m, size_t tensor, const memopt_optim_tensor *slice) {
    return folder_move(m->folder, tensor, slice->first, slice->held, slice->weights, m->shape.weight_type, 1);
}

/* Each rank writes its slices into files that the first has made. */
static int out_model(out_folder *o) {
    int wrong = o->is_first && out_begin_weights(o);

    if (team_wrong(o->m->team, &o->m->why, wrong)) return 1;
    wrong = (!o->is_first && out_begin_weights(o)) || model_each_slice(o->m, out_write_slice, 0) || out_end_weights(o);
    return wrong || (o->is_first && out_copy_others(o));
}

/* ---- adapters ---- */
/* The adapter of tensor `i` of a part, whose weights are where the shard has them; NULL arrays: it has none. */
static adapter out_adapter(const model *m, const transformer_part *part, const transformer_lists *x, size_t i) {
    const float *array = (const float *)memopt_shard_weights(m->shard, part->first_tensor);
    const size_t k = i - TRANSFORMER_QKV;
    adapter a;

    memset(&a, 0, sizeof a);
    if (!part->rank || !x->list[i].columns) return a;
    a.rank = part->rank;
    a.scale = m->shape.adapter_scale;
    a.pieces = k ? 1 : transformer_pieces(part);
    a.piece_outputs = part->piece_outputs;
    a.a = array + x->adapters[k].first;
    a.b = array + x->adapters[k + 1].first;
    return a;
}

enum { OUT_BAND = 1 << 20 /* elements of a matrix that are merged at a time, or a row */ };

/* Room for a band, for scale B of it, and for a product. */
static size_t out_band_bytes(const model *m, const transformer_tensor *tensor) {
    const size_t rows = tensor->columns < OUT_BAND ? OUT_BAND / tensor->columns : 1;

    return rows * (tensor->columns + m->o->adapter) * sizeof(float) + 64 + memopt_gemm_scratch(NULL);
}

/* A band of rows of a matrix, with what its adapter adds. */
static int out_merge_rows(out_folder *o, size_t number, const transformer_tensor *tensor, const adapter *a,
                          size_t piece, size_t row, size_t rows, float *band) {
    const size_t columns = tensor->columns;
    float *b_times = band + rows * columns;
    unsigned char *end = (unsigned char *)(b_times + rows * a->rank);
    memopt_linear l;
    memopt_ops ops;
    adapter one = *a;

    memset(&l, 0, sizeof l);
    memset(&ops, 0, sizeof ops);
    l.inputs = columns;
    l.outputs = rows;
    one.pieces = 1;
    one.a = (const float *)a->a + piece * a->rank * columns;
    one.b = (const float *)a->b + row * a->rank;
    ops.scratch = end + (0 - (uintptr_t)end) % 64;
    ops.scratch_bytes = memopt_gemm_scratch(NULL);
    return folder_move(o->from, number, row * columns, rows * columns, band, MEMOPT_TYPE_F32, 0)
        || failed(&o->m->why, "merging", adapter_merge(&ops, &l, &one, band, b_times))
        || folder_move(o->from, number, row * columns, rows * columns, band, MEMOPT_TYPE_F32, 1);
}

/* A tensor of the model; of one without an adapter the elements as they are. */
static int out_merge_tensor(out_folder *o, size_t number, const transformer_tensor *tensor, const adapter *a) {
    const transformer_tensor row_of_all = { "", 0, tensor->count,
                                            tensor->columns ? tensor->columns : tensor->count, 0 };
    const size_t columns = row_of_all.columns, step = columns < OUT_BAND ? OUT_BAND / columns : 1;
    float *band = (float *)malloc(out_band_bytes(o->m, &row_of_all));
    size_t piece, row = 0, end = 0, rows;
    int wrong = !band && refuse(&o->m->why, "no memory to merge with");

    for (piece = 0; !wrong && piece < (a->rank ? adapter_pieces(a) : 1); ++piece)
        for (end += a->pieces > 1 ? a->piece_outputs[piece] : tensor->count / columns; !wrong && row < end;
             row += rows) {
            rows = end - row < step ? end - row : step;
            if (a->rank) wrong = out_merge_rows(o, number, tensor, a, piece, row, rows, band);
            else wrong = folder_move(o->from, number, row * columns, rows * columns, band, MEMOPT_TYPE_F32, 0)
                      || folder_move(o->from, number, row * columns, rows * columns, band, MEMOPT_TYPE_F32, 1);
        }
    free(band);
    return wrong;
}

typedef int out_tensor_fn(out_folder *o, size_t number, const transformer_tensor *tensor, const adapter *a);

/* The tensors of a segment, each with its adapter (of rank 0: none). */
static int out_segment(out_folder *o, size_t segment, out_tensor_fn *fn) {
    const model *m = o->m;
    const transformer_part *part = model_part(m, segment);
    size_t number = m->own[segment].number;
    transformer_lists x;
    int i;

    transformer_list_part(part, model_tensors_fn(m->own[segment].kind), &x);
    for (i = 0; i < TRANSFORMER_TENSORS_MAX; ++i) {
        const adapter a = out_adapter(m, part, &x, (size_t)i);

        if (x.list[i].count && fn(o, number++, &x.list[i], &a)) return 1;
    }
    return 0;
}

/* All tensors of the model. Ranks bring adapters together, whether or not the first, which writes, has failed. */
static int out_each_tensor(out_folder *o, out_tensor_fn *fn) {
    const model *m = o->m;
    size_t i;
    int wrong = 0;

    for (i = 0; i < m->count; ++i) {
        const size_t group = m->sharded[i].group;

        if (group != MEMOPT_SHARD_NO_GROUP
            && model_failed(o->m, "the adapters", memopt_shard_forward(m->shard, group))) return 1;
        wrong = wrong || (o->is_first && out_segment(o, i, fn));
    }
    return wrong;
}

static int out_merged(out_folder *o) {
    const int wrong = o->is_first && out_begin_weights(o);

    return team_wrong(o->m->team, &o->m->why, wrong) || out_each_tensor(o, out_merge_tensor)
        || (o->is_first && (out_end_weights(o) || out_copy_others(o)));
}

/* ---- PEFT ---- */
typedef struct out_peft {
    folder_list    list;    /* A and B of each matrix that the files have */
    size_t         written; /* of them */
    void          *file;    /* NULL: they are listed, not written */
    uint64_t       begin;   /* of its data */
    char           modules[16][64];
    size_t         module_count;
} out_peft;

/* Lists a tensor of the file, or writes the next that is listed. */
static int out_peft_tensor(out_folder *o, const char *module, const char *which, size_t rows, size_t columns,
                           const float *elements) {
    out_peft *x = o->peft;
    const memopt_tensor *t = &x->list.tensors[x->written];

    if (!x->file) {
        (void)snprintf(folder_list_add(&x->list, rows, columns), sizeof *x->list.names,
                       "base_model.model.%s.lora_%s.weight", module, which);
        return 0;
    }
    ++x->written;
    return failed(&o->m->why, "adapter_model.safetensors",
                  o->files->write_fn(o->files->user, x->file, x->begin + t->begin, elements,
                                     (size_t)(t->end - t->begin)));
}

static void out_add_module(out_peft *x, const char *module) { /* by the last part of its name, once */
    const char *name = strrchr(module, '.') + 1;
    size_t i;

    for (i = 0; i < x->module_count; ++i)
        if (!strcmp(x->modules[i], name)) return;
    if (x->module_count < 16) snprintf(x->modules[x->module_count++], sizeof x->modules[0], "%s", name);
}

static int out_peft_adapter(out_folder *o, size_t number, const transformer_tensor *tensor, const adapter *a) {
    const char *prefix = o->m->config->is_gpt2 ? "transformer." : "model.";
    size_t i, piece = 0;

    for (i = 0; a->rank && i < o->from->piece_count; ++i) {
        const folder_piece *p = &o->from->pieces[i];
        char module[FOLDER_NAME + 16];

        if (p->number != number) continue;
        snprintf(module, sizeof module, "%s%s", prefix, folder_bare(piece_tensor(p)->name));
        module[strlen(module) - strlen(".weight")] = 0;
        out_add_module(o->peft, module);
        if (out_peft_tensor(o, module, "A", a->rank, tensor->columns,
                            (const float *)a->a + (adapter_pieces(a) > 1 ? piece++ : 0) * a->rank * tensor->columns)
            || out_peft_tensor(o, module, "B", p->rows, a->rank, (const float *)a->b + p->row * a->rank)) return 1;
    }
    return 0;
}

static void out_escape(char *to, size_t capacity, const char *text) { /* as the inside of a JSON string */
    size_t n = 0;

    for (; *text && n + 8 < capacity; ++text) {
        if (*text == '"' || *text == '\\') to[n++] = '\\';
        if ((unsigned char)*text < ' ') n += (size_t)snprintf(to + n, 8, "\\u%04x", (unsigned)(unsigned char)*text);
        else to[n++] = *text;
    }
    to[n] = 0;
}

static int out_peft_config(out_folder *o, const out_peft *x) {
    char text[8192], base[4096], modules[1200] = "";
    size_t i, n = 0;

    out_escape(base, sizeof base, o->from->path);
    for (i = 0; i < x->module_count; ++i)
        n += (size_t)snprintf(modules + n, sizeof modules - n, "%s\"%s\"", i ? ", " : "", x->modules[i]);
    snprintf(text, sizeof text,
             "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n  \"base_model_name_or_path\": \"%s\",\n"
             "  \"r\": %lu,\n  \"lora_alpha\": %.17g,\n  \"lora_dropout\": 0.0,\n  \"bias\": \"none\",\n"
             "  \"fan_in_fan_out\": %s,\n  \"inference_mode\": true,\n  \"target_modules\": [%s]\n}\n",
             base, (unsigned long)o->m->o->adapter, o->m->o->adapter_alpha, o->m->config->is_gpt2 ? "true" : "false",
             modules);
    return out_text(o, "adapter_config.json", text);
}

static int out_end_peft(out_folder *o, out_peft *x) {
    const memopt_files *f = o->files;
    const memopt_status s = f->sync_fn(f->user, x->file);

    return failed(&o->m->why, "adapter_model.safetensors", s) || out_peft_config(o, x);
}

static int out_adapters(out_folder *o) {
    out_peft x;
    int wrong;

    memset(&x, 0, sizeof x);
    wrong = folder_list_open(&x.list, MEMOPT_TENSOR_F32, 2 * o->from->piece_count + 1, &o->m->why);
    o->peft = &x;
    wrong = team_wrong(o->m->team, &o->m->why, wrong) || out_each_tensor(o, out_peft_adapter);
    if (!wrong && o->is_first)
        wrong = out_begin_file(o, "adapter_model.safetensors", NULL, x.list.tensors, x.list.count, &x.file, &x.begin);
    wrong = team_wrong(o->m->team, &o->m->why, wrong) || out_each_tensor(o, out_peft_adapter)
         || (o->is_first && out_end_peft(o, &x));
    if (x.file) (void)o->files->close_fn(o->files->user, x.file);
    folder_list_close(&x.list);
    return wrong;
}

/* ---- the folder ---- */
static memopt_status out_remove_name(void *context, const char *name) {
    const out_folder *o = (const out_folder *)context;
    char path[OUT_PATH];

    if ((size_t)snprintf(path, sizeof path, "%s/%s", o->beside, name) >= sizeof path) return MEMOPT_OK;
    return o->files->remove_fn(o->files->user, path);
}

/* What an earlier attempt has left there: files alone, as it makes no folders. */
static void out_remove_beside(out_folder *o) {
    (void)o->files->list_dir_fn(o->files->user, o->beside, out_remove_name, o);
    (void)o->files->remove_fn(o->files->user, o->beside);
}

static int out_sync_parent(out_folder *o) {
    const char *slash = strrchr(o->path, '/');
    char parent[OUT_PATH];
    memopt_status s;

    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - o->path) + (slash == o->path) : 1,
             slash ? o->path : ".");
    s = o->files->sync_dir_fn(o->files->user, parent);
    return s != MEMOPT_ERR_UNSUPPORTED && failed(&o->m->why, parent, s);
}

static int out_begin(out_folder *o) {
    out_remove_beside(o);
    return failed(&o->m->why, o->beside, o->files->make_dir_fn(o->files->user, o->beside));
}

static int out_end(out_folder *o) {
    const memopt_status s = o->files->sync_dir_fn(o->files->user, o->beside);

    return (s != MEMOPT_ERR_UNSUPPORTED && failed(&o->m->why, o->beside, s))
        || failed(&o->m->why, o->path, o->files->rename_fn(o->files->user, o->beside, o->path));
}

/* Write all that was tuned to the folder `path`. 1: with no rank it is there. */
static int out_write(model *m, folder *from, const char *path, int merges) {
    out_folder o;
    int wrong;

    memset(&o, 0, sizeof o);
    o.m = m;
    o.from = from;
    o.files = &from->host->files;
    o.is_first = m->team->rank == 0;
    snprintf(o.path, sizeof o.path, "%s", path);
    snprintf(o.beside, sizeof o.beside, "%s.tmp", path);
    if (team_wrong(m->team, &m->why, o.is_first && out_begin(&o))) return 1;
    wrong = !m->o->adapter ? out_model(&o) : merges ? out_merged(&o) : out_adapters(&o);
    wrong = team_wrong(m->team, &m->why, wrong);
    if (o.is_first && !wrong) wrong = out_end(&o);
    if (o.is_first && wrong) out_remove_beside(&o);
    if (o.is_first && !wrong) wrong = out_sync_parent(&o);
    return team_wrong(m->team, &m->why, wrong);
}
#endif
