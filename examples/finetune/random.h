/* random.h - the first weights of a model whose folder has none: so one trains from the beginning.

   Values   Matrices are normal, with config.json's initializer_range (0.02) as deviation; scales of norms are 1, biases
            0. Each element is a function of the seed, its tensor and its place.
   File     model.safetensors, of the type that config.json names (torch_dtype or dtype; else bf16), through a small
            buffer. It is written beside, synced and renamed; room for all of it is taken first. */
#ifndef FINETUNE_RANDOM_H
#define FINETUNE_RANDOM_H
#include "corpus.h"
#include "out.h"

/* Weights, an index of them, or some of several files. */
static memopt_status random_find(void *context, const char *name) {
    static const char end[] = ".safetensors", index[] = "model.safetensors.index.json";
    const size_t n = strlen(name), length = sizeof end - 1;

    *(int *)context |= !strcmp(name, index) || (!strncmp(name, "model", 5) && n > length
                                                && !strcmp(name + n - length, end));
    return MEMOPT_OK;
}

static int random_is_needed(const char *path, const memopt_host *host) {
    int found = 0;

    return !host->files.list_dir_fn(host->files.user, path, random_find, &found) && !found;
}

static int random_settings(config *c, memopt_tensor_type *type, double *deviation) {
    uint32_t x = config_field(c, 0, "torch_dtype");

    if (x == JSON_NONE) x = config_field(c, 0, "dtype");
    *type = json_is(&c->json, x, "float32") ? MEMOPT_TENSOR_F32
          : json_is(&c->json, x, "float16") ? MEMOPT_TENSOR_F16 : MEMOPT_TENSOR_BF16;
    if (*type == MEMOPT_TENSOR_BF16 && x != JSON_NONE && !json_is(&c->json, x, "bfloat16"))
        return config_refuse(c, "torch_dtype", "is not known: float32, float16 and bfloat16 are");
    if (config_number_in(c, 0, "initializer_range", 0.02, deviation)) return 1;
    return *deviation > 1000 && config_refuse(c, "initializer_range", "is above 1000"); /* some are not finite then */
}

/* Elements of a tensor from `first` on. */
static memopt_status random_elements(const model *m, size_t tensor, const memopt_tensor *x, double deviation,
                                     uint64_t first, float *to, size_t n) {
    const uint64_t stream = UINT64_C(0x696e6974) << 32 | tensor; /* adapters have others */
    const char *const end = strrchr(x->name, '.');
    memopt_status s = MEMOPT_OK;
    size_t i;

    if (x->rank == 2) s = memopt_random_normal(to, n, m->o->seed, stream, first, &m->threads);
    for (i = 0; i < n; ++i) to[i] = x->rank == 2 ? to[i] * (float)deviation : !strcmp(end, ".weight");
    return s;
}

static memopt_status random_fill(const model *m, const memopt_host *host, void *file, uint64_t begin,
                                 const folder_list *l, double deviation) {
    const memopt_files *f = &host->files;
    float *const elements = (float *)(void *)m->folder->in_memory.bytes; /* it is not open yet */
    uint64_t told = 0, done = 0, all = 0;
    size_t i, n;
    memopt_status s = MEMOPT_OK;

    for (i = 0; i < l->count; ++i) all += l->tensors[i].end - l->tensors[i].begin;
    for (i = 0; !s && i < l->count; ++i) {
        const memopt_tensor *x = &l->tensors[i];
        const memopt_type type = folder_type(x);
        const size_t unit = memopt_type_bytes(type);
        const uint64_t count = (x->end - x->begin) / unit;
        void *const raw = type == MEMOPT_TYPE_F32 ? (void *)elements : m->folder->in_file.bytes;
        uint64_t at;

        for (at = 0; !s && at < count; at += n) {
            n = count - at < FOLDER_PIECE ? (size_t)(count - at) : (size_t)FOLDER_PIECE;
            s = random_elements(m, i, x, deviation, at, elements, n);
            if (!s) s = convert(raw, type, elements, MEMOPT_TYPE_F32, n, m->folder->room);
            if (!s) s = f->write_fn(f->user, file, begin + x->begin + at * unit, raw, n * unit);
            if (corpus_is_due(host, &told))
                fprintf(stderr, "random weights: %llu of %llu MB\n", (unsigned long long)done / 1000000,
                        (unsigned long long)all / 1000000);
            done += n * unit;
        }
    }
    return s;
}

/* The file of these tensors, whole or not at all. */
static int random_write_list(model *m, const memopt_host *host, const char *path, folder_list *l, double deviation) {
    const memopt_files *f = &host->files;
    static const char *const name = "model.safetensors.new";
    out_folder o;
    char beside[OUT_PATH];
    void *file = NULL;
    uint64_t begin;
    memopt_status s;
    int wrong;

    memset(&o, 0, sizeof o);
    o.m = m;
    o.files = f;
    o.is_first = 1;
    snprintf(o.beside, sizeof o.beside, "%.1900s", path);
    snprintf(o.path, sizeof o.path, "%.1900s/model.safetensors", path);
    if (out_join(&o, name, beside)) return 1;
    s = corpus_new(f, beside, &file);
    if (s == MEMOPT_ERR_STATE) return refuse(&m->why, "%.300s: another process writes it, or it is a link", beside);
    wrong = failed(&m->why, beside, s) || out_begin_file(&o, name, NULL, l->tensors, l->count, &file, &begin)
         || failed(&m->why, beside, random_fill(m, host, file, begin, l, deviation))
         || failed(&m->why, beside, f->sync_fn(f->user, file));
    if (file) wrong = failed(&m->why, beside, f->close_fn(f->user, file)) || wrong;
    wrong = wrong || failed(&m->why, o.path, f->rename_fn(f->user, beside, o.path)) || out_sync_parent(&o);
    if (wrong) (void)f->remove_fn(f->user, beside);
    return wrong;
}

/* Write model.safetensors in the folder `path`, which m->folder is opened for afterwards. 1: there is a reason, and
   nothing is left. */
static int random_write(model *m, config *c, const transformer *shape, const char *path, const memopt_host *host) {
    const char *const prefix = c->is_gpt2 ? "transformer." : "model.";
    memopt_tensor_type type;
    folder_list l;
    double deviation;
    size_t i;
    int wrong;

    if (random_settings(c, &type, &deviation)) return 1;
    wrong = folder_list_model(m->folder, &l, type, c, shape, &m->why);
    for (i = 0; !wrong && i < l.count; ++i) {
        char *const name = l.names[i];
        const size_t n = strcmp(name, "lm_head.weight") ? strlen(prefix) : 0;

        memmove(name + n, name, strlen(name) + 1);
        memcpy(name, prefix, n);
    }
    wrong = wrong || random_write_list(m, host, path, &l, deviation);
    folder_list_close(&l);
    return wrong;
}
#endif
