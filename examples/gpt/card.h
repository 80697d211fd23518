/* card.h - what an engine on a CUDA device has beside engine.h: its memory, cuBLASLt, the optimizer's states and
   scratch, and the ways between host and device. */
#ifndef GPT_CARD_H
#define GPT_CARD_H

enum {
    CARD_ALIGNMENT = 256, /* of all pushes: what kernels and cuBLASLt want */
    CARD_STAGE = 1 << 20  /* bytes that cross the bus at a time */
};

/* What is saved of the device: see card_list(). */
typedef struct card_bytes {
    struct card   *card;
    unsigned char *d_bytes;
} card_bytes;

typedef struct card {
    engine e;
    card_bytes *saved;              /* one for each item of a save */
    cudaStream_t stream;            /* in which all is launched */
    cudaGraphExec_t graph;          /* --graph: a step, once it has been captured */
    size_t graph_nodes;
    memopt_cuda_memory    memory;   /* of the device, behind e.source */
    memopt_cuda_transfer *transfer; /* between host and device, through pinned memory */
    memopt_cuda_gemm     *gemm;
    memopt_cuda_muon      muon;     /* --optimizer muon: its products, by that gemm */
    /* of the host */
    void *gemm_table, *optim_table;
    void *stage;                    /* CARD_STAGE bytes of weights, and as many of their extra bits */
    int32_t *tokens;                /* a batch's ids, then its targets */
    /* of the device */
    void *d_workspace;              /* cuBLASLt's */
    void *d_scratch;                /* the optimizer's, of so many bytes */
    size_t scratch_bytes;
    memopt_cuda_optim_progress *d_progress; /* what changes from step to step lies there: so one captured is all, */
    memopt_noise *d_noise, *noise;          /* and what --dropout draws, of each pass and segment; a copy on the host */
    memopt_gradient_total *d_total;         /* of all gradients, where their norm is asked for */
    float *d_output;                /* of an evaluation */
    memopt_loss *d_losses, *losses; /* one for each batch of a step; a copy on the host */
} card;

static int card_said(card *c, const char *what, memopt_cuda_status s) {
    if (s && !c->e.message[0]) snprintf(c->e.message, sizeof c->e.message, "%s: %s.", what, memopt_cuda_status_text(s));
    return s != 0;
}

static size_t card_aligned(size_t bytes) {
    return (bytes + CARD_ALIGNMENT - 1) & ~(size_t)(CARD_ALIGNMENT - 1);
}

static memopt_type card_type(const options *o) { /* that it computes with */
    return o->weights == WEIGHTS_F32 ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16;
}

static void held_now(const engine *e, size_t *now, size_t *peak) {
    const memopt_arena_stats stats = memopt_arena_get_stats(e->arena);

    *now = stats.used_low;
    *peak = stats.capacity;
}

/* ---- what lies on the device ---- */
static int card_table(void **table, size_t bytes) { /* of the host, zeroed; 0: no memory */
    *table = aligned_alloc(CARD_ALIGNMENT, card_aligned(bytes));
    if (*table) memset(*table, 0, bytes);
    return *table != NULL;
}

/* For a desc; of objects that have it already, with the gemm that is there by now. */
static const memopt_muon *card_muon(card *c, memopt_optim_kind kind) {
    return kind == MEMOPT_OPTIM_MUON ? memopt_cuda_muon_products(&c->muon, c->gemm, MEMOPT_TYPE_BF16) : NULL;
}

/* The object is the host's, where bytes are only counted, too: it tells what its states take. */
static int push_optimizer(card *c, const options *o) {
    engine *e = &c->e;
    memopt_optim_desc *d = &e->optim_desc;
    memopt_status s;
    size_t bytes, i;

    *d = describe_optimizer(e, o, NULL);
    d->tensors = e->m.tensors;
    d->tensor_count = e->m.tensor_count;
    d->muon = card_muon(c, o->optimizer);
    d->error = &e->error;
    s = memopt_optim_bytes(d, &bytes);
    if (!s && !card_table(&c->optim_table, bytes)) s = MEMOPT_ERR_MEMORY;
    if (!s) s = memopt_optim_create(d, c->optim_table, bytes, &e->optim);
    for (i = 0; !s && i < e->m.tensor_count; ++i) {
        s = memopt_optim_state_bytes(d, i, &bytes);
        if (!s && bytes && !(e->m.tensors[i].state = push(e, bytes, TAG_OPTIMIZER))) return 1;
    }
    if (said(e, "The optimizer", s)) return 1;
    if (card_said(c, "The optimizer", memopt_cuda_optim_scratch(e->optim, &c->scratch_bytes))) return 1;
    return !(c->d_scratch = push(e, c->scratch_bytes, TAG_WORKING));
}

static int push_norm(card *c, const options *o) {
    engine *e = &c->e;
    size_t bytes = 0;

    list_gradients(e);
    if (!measures_norm(o)) return 0;
    if (card_said(c, "The gradients", memopt_cuda_gradients_scratch(&e->list, &bytes))) return 1;
    e->list.scratch_bytes = bytes;
    return !(e->list.scratch = push(e, bytes, TAG_WORKING))
        || !(c->d_total = (memopt_gradient_total *)push(e, sizeof *c->d_total, TAG_WORKING));
}

/* All batches of a step, side by side, and what it goes by. */
static int push_step(card *c, const options *o) {
    engine *e = &c->e;
    const size_t bytes = o->accumulate * transformer_rows(&e->m.shape) * sizeof(int32_t);
    const size_t noise = o->accumulate * e->segment_count * sizeof *c->d_noise;

    if (o->dropout > 0 && !(c->d_noise = (memopt_noise *)push(e, noise, TAG_DATA))) return 1;
    return !(e->input = push(e, bytes, TAG_DATA)) || !(e->targets = (int32_t *)push(e, bytes, TAG_DATA))
        || !(c->d_progress = (memopt_cuda_optim_progress *)push(e, sizeof *c->d_progress, TAG_DATA));
}

static int push_results(card *c, const options *o) {
    return !(c->d_workspace = push(&c->e, MEMOPT_CUDA_GEMM_WORKSPACE, TAG_WORKING))
        || !(c->d_losses = (memopt_loss *)push(&c->e, o->accumulate * sizeof *c->d_losses, TAG_DATA))
        || !(c->d_output = (float *)push(&c->e, sizeof *c->d_output, TAG_DATA));
}

/* ---- what it takes to work there ---- */
/* One of its own: the default stream cannot be captured. */
static int open_stream(card *c) {
    return card_said(c, "The card", device_status(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking)));
}

static int open_gemm(card *c, const options *o) {
    memopt_cuda_gemm_desc d;
    memopt_cuda_status s;
    size_t bytes;

    memset(&d, 0, sizeof d);
    d.d_workspace = c->d_workspace;
    d.workspace_bytes = MEMOPT_CUDA_GEMM_WORKSPACE;
    s = memopt_cuda_gemm_bytes(&d, &bytes);
    if (!s && !card_table(&c->gemm_table, bytes)) s = MEMOPT_ERR_MEMORY;
    if (!s) s = memopt_cuda_gemm_create(&d, c->gemm_table, bytes, &c->gemm);
    c->e.m.shape.ops.gemm = c->gemm;
    (void)card_muon(c, o->optimizer);
    return card_said(c, "cuBLASLt", s);
}

static int open_host(card *c, const options *o) {
    const size_t rows = transformer_rows(&c->e.m.shape);
    memopt_cuda_transfer_desc d;
    const size_t noise = c->d_noise ? o->accumulate * c->e.segment_count * sizeof *c->noise : 1;
    void *losses = NULL, *tokens = NULL, *noises = NULL;
    memopt_cuda_status s;

    if (!card_table(&c->stage, 2 * CARD_STAGE) || !card_table(&losses, o->accumulate * sizeof *c->losses)
        || !card_table(&tokens, 2 * rows * sizeof *c->tokens) || !card_table(&noises, noise))
        s = MEMOPT_ERR_MEMORY;
    else {
        memset(&d, 0, sizeof d);
        d.bucket_bytes = CARD_STAGE;
        s = memopt_cuda_transfer_create(MEMOPT_CUDA_CURRENT_DEVICE, &d, &c->transfer);
    }
    c->losses = (memopt_loss *)losses;
    c->tokens = (int32_t *)tokens;
    c->noise = (memopt_noise *)noises;
    return card_said(c, "Buffers of the host", s);
}

static void card_close(card *c) {
    if (c->graph) (void)cudaGraphExecDestroy(c->graph);
    (void)memopt_cuda_transfer_destroy(c->transfer);
    if (c->stream) (void)cudaStreamDestroy(c->stream);
    memopt_cuda_gemm_destroy(c->gemm);
    engine_close(&c->e);
    free(c->saved);
    free(c->gemm_table);
    free(c->optim_table);
    free(c->stage);
    free(c->losses);
    free(c->tokens);
    free(c->noise);
}

/* ---- weights on their way ---- */
/* Part by part of all tensors, weights and then their 16 bits more: fn gets it in the host's memory. */
typedef int part_fn(card *c, size_t tensor, memopt_optim_tensor *part, void *d_bytes, void *d_extra, void *user);

static int each_piece(card *c, size_t tensor, const memopt_optim_tensor *t, part_fn *fn, void *user) {
    const size_t size = memopt_type_bytes(c->e.m.shape.weight_type), held = t->held ? t->held : t->count;
    memopt_optim_tensor part = *t;
    size_t at;
    int wrong = 0;

    part.weights = c->stage;
    part.extra = t->extra ? (unsigned char *)c->stage + CARD_STAGE : NULL;
    for (at = 0; at < held && !wrong; at += CARD_STAGE / size) {
        part.first = t->first + at;
        part.held = least(held - at, CARD_STAGE / size);
        wrong = fn(c, tensor, &part, (unsigned char *)t->weights + at * size,
                   t->extra ? (unsigned char *)t->extra + at * size : NULL, user);
    }
    return wrong;
}

static int each_part(card *c, part_fn *fn, void *user) {
    const model *m = &c->e.m;
    size_t i;
    int wrong = 0;

    for (i = 0; i < m->tensor_count && !wrong; ++i) wrong = each_piece(c, i, &m->tensors[i], fn, user);
    return wrong;
}

static int put_part(card *c, size_t tensor, memopt_optim_tensor *part, void *d_bytes, void *d_extra, void *user) {
    const model *m = &c->e.m;
    const size_t bytes = part->held * memopt_type_bytes(m->shape.weight_type);
    memopt_cuda_status s;

    if (said(&c->e, "The weights", init_tensor(m, tensor, part, *(const uint64_t *)user))) return 1;
    s = memopt_cuda_transfer_in(c->transfer, d_bytes, part->weights, bytes, c->stream);
    if (!s && d_extra) s = memopt_cuda_transfer_in(c->transfer, d_extra, part->extra, bytes, c->stream);
    return card_said(c, "The weights", s);
}

/* Weights as the CPU's train_gpt begins with, and states of zeros. */
static int put_weights(card *c, uint64_t seed) {
    size_t i;

    if (each_part(c, put_part, &seed)) return 1;
    for (i = 0; i < c->e.m.tensor_count; ++i)
        if (card_said(c, "The optimizer", memopt_cuda_optim_state_init(c->e.optim, i, c->stream))) return 1;
    return 0;
}

static int hash_part(card *c, size_t tensor, memopt_optim_tensor *part, void *d_bytes, void *d_extra, void *user) {
    const size_t bytes = part->held * memopt_type_bytes(c->e.m.shape.weight_type);
    uint64_t *hash = (uint64_t *)user;
    memopt_cuda_status s = memopt_cuda_transfer_out(c->transfer, part->weights, d_bytes, bytes, c->stream);

    (void)tensor;
    if (!s && d_extra) s = memopt_cuda_transfer_out(c->transfer, part->extra, d_extra, bytes, c->stream);
    if (!s) s = memopt_cuda_transfer_wait(c->transfer);
    if (card_said(c, "The weights", s)) return 1;
    *hash = hash_bytes(*hash, (const unsigned char *)part->weights, bytes);
    if (d_extra) *hash = hash_bytes(*hash, (const unsigned char *)part->extra, bytes);
    return 0;
}

/* ---- saves: elements on their way ---- */
static memopt_status card_move(const memopt_save_item *item, uint64_t first, size_t count, void *bytes, int loads) {
    const card_bytes *x = (const card_bytes *)item->data;
    const size_t size = memopt_tensor_type_bits(item->type) / 8;
    memopt_cuda_transfer *transfer = x->card->transfer;
    const cudaStream_t stream = x->card->stream;
    unsigned char *const d_at = x->d_bytes + (size_t)(first - item->first) * size; /* of a rank's part */
    memopt_cuda_status s;

    if (loads) s = memopt_cuda_transfer_in(transfer, d_at, bytes, count * size, stream);
    else s = memopt_cuda_transfer_out(transfer, bytes, d_at, count * size, stream);
    if (!s && !loads) s = memopt_cuda_transfer_wait(transfer);
    return memopt_cuda_to_status(s);
}

/* The items of a tensor, whose elements are moved. A list is made by the header of a state, which the host has to read:
   so it is made of a copy, and then points to the device. The tensor is of that number in d, and d that of optim. */
static memopt_status card_list_of(card *c, const memopt_optim_desc *d, memopt_optim *optim, size_t tensor,
                                  const char *name, memopt_save_item *items, size_t *count) {
    const size_t most = c->e.m.tensor_count * MEMOPT_SAVE_OPTIM_ITEMS;
    memopt_optim_tensor *t = &d->tensors[tensor];
    unsigned char *const d_state = (unsigned char *)t->state;
    void *state = NULL;
    size_t bytes, i = *count;
    memopt_status s = memopt_optim_state_bytes(d, tensor, &bytes);

    if (!c->saved) c->saved = (card_bytes *)calloc(most, sizeof *c->saved);
    if (s || !c->saved || (bytes && !card_table(&state, bytes))) return s ? s : MEMOPT_ERR_MEMORY;
    if (bytes) s = memopt_cuda_to_status(memopt_cuda_transfer_out(c->transfer, state, d_state, bytes, c->stream));
    if (!s) s = memopt_cuda_to_status(memopt_cuda_transfer_wait(c->transfer));
    t->state = state;
    if (!s) s = memopt_save_optim_items(optim, tensor, name, items, count);
    t->state = d_state;
    for (; i < *count; ++i) {
        unsigned char *const at = (unsigned char *)items[i].data;
        const uintptr_t offset = (uintptr_t)at - (uintptr_t)state;

        c->saved[i].card = c;
        c->saved[i].d_bytes = offset < bytes ? d_state + offset : at;
        items[i].data = &c->saved[i];
        items[i].move_fn = card_move;
    }
    free(state);
    return s;
}

static memopt_status card_list(void *user, size_t tensor, const char *name, memopt_save_item *items, size_t *count) {
    card *c = (card *)user;

    return card_list_of(c, &c->e.optim_desc, c->e.optim, tensor, name, items, count);
}
#endif
