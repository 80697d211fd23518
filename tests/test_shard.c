/* test_shard.c - one network over many ranks: the bits of one process, the bytes of the plan, and what goes wrong.
   The reference is one process that has everything whole and adds up its units with memopt_gradients_accumulate(). */
#include "test.h"
#include "jump.h"

/* A disk that moves bytes as late as it may: what is used before it is waited for is seen. Its n-th call fails. */
enum { SHARD_SLOTS = 64 };
typedef struct shard_disk {
    unsigned char *bytes; size_t size; struct { int is_open; memopt_transfer kind; uint64_t offset; void *bytes; size_t count; } slots[SHARD_SLOTS];
    uint64_t calls, fail; memopt_host host; memopt_store *store; size_t *tiles;
} shard_disk;
static int shard_disk_fails(void *user) { shard_disk *x = (shard_disk *)user; return ++x->calls == x->fail; }
static memopt_status shard_disk_open(void *user, const char *path, memopt_open_mode mode, void **file) { (void)path; if (shard_disk_fails(user) || mode == MEMOPT_OPEN_READ) return MEMOPT_ERR_IO; *file = user; return MEMOPT_OK; }
static memopt_status shard_disk_close(void *user, void *file) { (void)file; return shard_disk_fails(user) ? MEMOPT_ERR_IO : MEMOPT_OK; }
static memopt_status shard_disk_resize(void *user, void *file, uint64_t bytes) {
    shard_disk *x = (shard_disk *)user; unsigned char *p;
    (void)file;
    if (shard_disk_fails(user)) return MEMOPT_ERR_IO;
    if (bytes <= x->size) return MEMOPT_OK;
    p = (unsigned char *)realloc(x->bytes, (size_t)bytes);
    if (!p) return MEMOPT_ERR_MEMORY;
    memset(p + x->size, 0, (size_t)bytes - x->size);
    x->bytes = p; x->size = (size_t)bytes;
    return MEMOPT_OK;
}
static memopt_status shard_disk_move(shard_disk *x, memopt_transfer kind, uint64_t offset, void *bytes, size_t count) {
    CHECK(offset <= x->size && count <= x->size - offset);
    if (kind == MEMOPT_TRANSFER_READ) memcpy(bytes, x->bytes + offset, count);
    else memcpy(x->bytes + offset, bytes, count);
    return MEMOPT_OK;
}
static memopt_status shard_disk_read(void *user, void *file, uint64_t offset, void *bytes, size_t count, size_t *done) {
    (void)file;
    if (shard_disk_fails(user)) return MEMOPT_ERR_IO;
    *done = count;
    return shard_disk_move((shard_disk *)user, MEMOPT_TRANSFER_READ, offset, bytes, count);
}
static memopt_status shard_disk_write(void *user, void *file, uint64_t offset, const void *bytes, size_t count) {
    (void)file;
    return shard_disk_fails(user) ? MEMOPT_ERR_IO : shard_disk_move((shard_disk *)user, MEMOPT_TRANSFER_WRITE, offset, (void *)(uintptr_t)bytes, count);
}
static memopt_status shard_disk_size(void *user, void *file, uint64_t *bytes) { (void)file; *bytes = ((shard_disk *)user)->size; return shard_disk_fails(user) ? MEMOPT_ERR_IO : MEMOPT_OK; }
static memopt_status shard_disk_sync(void *user, void *file) { (void)file; return shard_disk_fails(user) ? MEMOPT_ERR_IO : MEMOPT_OK; }
static memopt_status shard_disk_rename(void *user, const char *from, const char *to) { (void)from; (void)to; return shard_disk_fails(user) ? MEMOPT_ERR_IO : MEMOPT_OK; }
static memopt_status shard_disk_remove(void *user, const char *path) { (void)path; return shard_disk_fails(user) ? MEMOPT_ERR_IO : MEMOPT_OK; }
static memopt_status shard_disk_queue(void *user, int depth, void **queue) { CHECK(depth <= SHARD_SLOTS); *queue = user; return shard_disk_fails(user) ? MEMOPT_ERR_IO : MEMOPT_OK; }
static void shard_disk_queue_close(void *user, void *queue) { (void)user; (void)queue; }
static memopt_status shard_disk_begin(void *user, void *queue, int slot, void *file, memopt_transfer kind, uint64_t offset, void *bytes, size_t count) {
    shard_disk *x = (shard_disk *)user;
    (void)queue; (void)file;
    if (shard_disk_fails(user)) return MEMOPT_ERR_IO;
    CHECK(!x->slots[slot].is_open && (uintptr_t)bytes % 4096 == 0);
    x->slots[slot].is_open = 1; x->slots[slot].kind = kind; x->slots[slot].offset = offset; x->slots[slot].bytes = bytes; x->slots[slot].count = count;
    if (kind == MEMOPT_TRANSFER_READ) memset(bytes, 0xA5, count);
    return MEMOPT_OK;
}
static memopt_status shard_disk_wait(void *user, void *queue, int slot, size_t *done) {
    shard_disk *x = (shard_disk *)user;
    (void)queue;
    CHECK(x->slots[slot].is_open);
    x->slots[slot].is_open = 0; *done = x->slots[slot].count;
    return shard_disk_fails(user) ? MEMOPT_ERR_IO : shard_disk_move(x, x->slots[slot].kind, x->slots[slot].offset, x->slots[slot].bytes, x->slots[slot].count);
}
/* A store for this desc, on such a disk; or in memory. */
static void shard_disk_make(shard_disk *x, const memopt_shard_desc *d, int no_atomic, int in_memory) {
    memopt_shard_bytes b; memopt_store_desc s; memopt_files *f = &x->host.files;
    memset(x, 0, sizeof *x); memset(&s, 0, sizeof s);
    if (!d->slow) return;
    CHECK(memopt_shard_plan(d, &b) == MEMOPT_OK);
    x->tiles = (size_t *)calloc(b.slow_tiles, sizeof *x->tiles);
    CHECK(x->tiles && memopt_shard_tiles(d, x->tiles) == MEMOPT_OK);
    f->open_fn = shard_disk_open; f->close_fn = shard_disk_close; f->read_fn = shard_disk_read; f->write_fn = shard_disk_write; f->size_fn = shard_disk_size; f->resize_fn = shard_disk_resize;
    f->sync_fn = shard_disk_sync; f->rename_fn = shard_disk_rename; f->remove_fn = shard_disk_remove; f->queue_open_fn = shard_disk_queue; f->queue_close_fn = shard_disk_queue_close;
    f->begin_fn = shard_disk_begin; f->wait_fn = shard_disk_wait; f->user = x;
    s.tiles = b.slow_tiles; s.each_bytes = x->tiles; s.transfers = b.slow_transfers; s.aligned = 1; s.no_atomic = no_atomic; s.host = &x->host; s.path = in_memory ? NULL : "disk";
    CHECK(memopt_store_create(&s, &x->store) == MEMOPT_OK);
}
static void shard_disk_end(shard_disk *x) {
    size_t i;
    for (i = 0; i < SHARD_SLOTS; ++i) CHECK(!x->slots[i].is_open);
    memopt_store_destroy(x->store);
    free(x->bytes); free(x->tiles);
}
/* A device whose copies are done as late as they may, or at once: what is read, or written again, before it is waited for
   is seen. Its n-th call fails. */
typedef struct shard_device { int is_late, stops; uint64_t calls, fail, zeroed, rounded; struct { void *to; const void *from; size_t bytes; int is_in; } slots[MEMOPT_SHARD_SLOTS]; } shard_device;
static int shard_device_fails(void *user) { shard_device *x = (shard_device *)user; return ++x->calls == x->fail; }
static void shard_device_do(shard_device *x, size_t slot) {
    if (x->slots[slot].bytes) memcpy(x->slots[slot].to, x->slots[slot].from, x->slots[slot].bytes);
    x->slots[slot].bytes = 0;
}
static memopt_status shard_device_zero(void *user, void *d_to, size_t bytes) {
    CHECK(bytes > 0);
    ((shard_device *)user)->zeroed += bytes;
    if (shard_device_fails(user)) return MEMOPT_ERR_DEVICE;
    memset(d_to, 0, bytes);
    return MEMOPT_OK;
}
static memopt_status shard_device_copy(shard_device *x, void *to, const void *from, size_t bytes, size_t slot, int is_in) {
    CHECK(slot < MEMOPT_SHARD_SLOTS && !x->slots[slot].bytes && bytes > 0);
    if (shard_device_fails(x)) return MEMOPT_ERR_DEVICE;
    x->slots[slot].to = to; x->slots[slot].from = from; x->slots[slot].bytes = bytes; x->slots[slot].is_in = is_in;
    if (!is_in) memset(to, 0xA5, bytes);
    if (!x->is_late) shard_device_do(x, slot);
    return MEMOPT_OK;
}
static memopt_status shard_device_out(void *user, void *to, const void *d_from, size_t bytes, int is_there, size_t slot) { CHECK(is_there == 0 || is_there == 1); return shard_device_copy((shard_device *)user, to, d_from, bytes, slot, 0); }
static memopt_status shard_device_in(void *user, void *d_to, const void *from, size_t bytes, size_t slot) { return shard_device_copy((shard_device *)user, d_to, from, bytes, slot, 1); }
static memopt_status shard_device_wait(void *user, size_t slot) {
    shard_device_do((shard_device *)user, slot);
    return shard_device_fails(user) ? MEMOPT_ERR_DEVICE : MEMOPT_OK;
}
static memopt_status shard_device_join(void *user) {
    shard_device *x = (shard_device *)user; size_t i;
    for (i = 0; i < MEMOPT_SHARD_SLOTS; ++i) if (x->slots[i].is_in && x->slots[i].bytes) { memcpy(x->slots[i].to, x->slots[i].from, x->slots[i].bytes); x->slots[i].bytes = 0; }
    return shard_device_fails(user) ? MEMOPT_ERR_DEVICE : MEMOPT_OK;
}
/* Its kernels: by the CPU's functions, each call of which can fail. */
static memopt_status shard_device_scratch(void *user, const memopt_optim_desc *optim, size_t *bytes) { (void)user; *bytes = 256 + 64 * optim->tensor_count; return MEMOPT_OK; }
/* A piece, or the tree of those of a unit: of its halves. */
static float shard_device_summand(const unsigned char *from, memopt_type type, size_t stride, size_t unit_ranks) {
    float x;
    if (unit_ranks > 1) return memopt_i_sum(shard_device_summand(from, type, stride, unit_ranks / 2), shard_device_summand(from + unit_ranks / 2 * stride, type, stride, unit_ranks / 2));
    if (type == MEMOPT_TYPE_F32) memcpy(&x, from, 4); else memopt_i_to_f32(MEMOPT_SIMD_SCALAR, &x, (const uint16_t *)(const void *)from, type, 1);
    return x;
}
static memopt_status shard_device_add(void *user, float *d_sums, const void *d_pieces, memopt_type type, size_t stride, size_t count, size_t pieces, size_t unit_ranks, int start) {
    size_t i, p;
    if (shard_device_fails(user)) return MEMOPT_ERR_DEVICE;
    for (p = 0; p < pieces; p += unit_ranks) for (i = 0; i < count; ++i) {
        const float x = shard_device_summand((const unsigned char *)d_pieces + p * stride + i * memopt_type_bytes(type), type, stride, unit_ranks);
        memopt_i_v1_add_weighted(d_sums + i, &x, 1, 1, start && !p);
    }
    return MEMOPT_OK;
}
static memopt_status shard_device_square(void *user, const float *d_values, size_t count, memopt_shard_square *d_squares) {
    size_t i;
    if (shard_device_fails(user)) return MEMOPT_ERR_DEVICE;
    for (i = 0; i * 65536 < count; ++i) {
        memopt_gradient g; memopt_gradients list; memopt_gradient_total total; double scratch[8];
        memset(&g, 0, sizeof g); memset(&list, 0, sizeof list); memset(&total, 0, sizeof total);
        g.values = (void *)(uintptr_t)(d_values + i * 65536); g.count = count - i * 65536 < 65536 ? count - i * 65536 : 65536; g.type = MEMOPT_TYPE_F32; list.tensors = &g; list.count = 1; list.scratch = scratch; list.scratch_bytes = sizeof scratch;
        CHECK(memopt_gradients_measure(&list, &total, NULL) == MEMOPT_OK);
        d_squares[i].squares = total.nonfinite ? 12345 : total.squares; d_squares[i].nonfinite = total.nonfinite; /* any number */
    }
    return MEMOPT_OK;
}
static memopt_status shard_device_round(void *user, uint16_t *d_to, const float *d_from, size_t count) {
    if (shard_device_fails(user)) return MEMOPT_ERR_DEVICE;
    ((shard_device *)user)->rounded += count;
    memopt_i_from_f32(MEMOPT_SIMD_SCALAR, d_to, d_from, MEMOPT_TYPE_BF16, count);
    return MEMOPT_OK;
}
static memopt_status shard_device_state(void *user, memopt_optim *optim, size_t tensor) { return shard_device_fails(user) ? MEMOPT_ERR_DEVICE : memopt_optim_state_init(optim, tensor); }
static memopt_status shard_device_begin(void *user, memopt_optim *optim, const memopt_optim_run *run, void *d_scratch, size_t bytes) {
    CHECK((uintptr_t)d_scratch % 256 == 0 && bytes == memopt_i_round64(256 + 64 * optim->desc.tensor_count));
    memset(d_scratch, 0x5A, bytes);
    return shard_device_fails(user) ? MEMOPT_ERR_DEVICE : memopt_optim_begin(optim, run);
}
static memopt_status shard_device_apply(void *user, memopt_optim *optim, size_t tensor, size_t first, size_t count, void *d_scratch, size_t bytes) {
    CHECK(d_scratch && ((unsigned char *)d_scratch)[bytes - 1] == 0x5A);
    return shard_device_fails(user) ? MEMOPT_ERR_DEVICE : memopt_i_optim_apply(optim, tensor, first, count);
}
static memopt_status shard_device_end(void *user, memopt_optim *optim, void *d_scratch, size_t bytes) {
    const memopt_status s = ((shard_device *)user)->stops ? (memopt_optim_end(optim), MEMOPT_ERR_STATE) : memopt_optim_end(optim);
    CHECK(d_scratch && ((unsigned char *)d_scratch)[bytes - 1] == 0x5A);
    return shard_device_fails(user) ? MEMOPT_ERR_DEVICE : s;
}
static memopt_status shard_device_step(void *user, memopt_optim *optim, const memopt_optim_run *run, void *d_scratch, size_t bytes) {
    CHECK((uintptr_t)d_scratch % 256 == 0 && bytes == memopt_i_round64(256 + 64 * optim->desc.tensor_count));
    return shard_device_fails(user) ? MEMOPT_ERR_DEVICE : memopt_optim_step(optim, run);
}
static memopt_shard_kernels shard_device_kernels(void) {
    memopt_shard_kernels k;
    k.scratch_fn = shard_device_scratch; k.add_fn = shard_device_add; k.square_fn = shard_device_square; k.round_fn = shard_device_round; k.state_fn = shard_device_state; k.begin_fn = shard_device_begin; k.apply_fn = shard_device_apply; k.end_fn = shard_device_end; k.step_fn = shard_device_step;
    return k;
}
static memopt_shard_device shard_device_table(shard_device *x) {
    memopt_shard_device t;
    memset(&t, 0, sizeof t);
    t.zero_fn = shard_device_zero; t.copy_out_fn = shard_device_out; t.copy_in_fn = shard_device_in; t.wait_fn = shard_device_wait; t.join_fn = shard_device_join; t.user = x;
    return t;
}
#if defined(MEMOPT_I_POOL)
enum { SHARD_TENSORS = 9, SHARD_GROUPS = 4, SHARD_MOST = 16 };
static const memopt_shard_tensor shard_model[SHARD_TENSORS] = { /* count, columns, rates, group, adamw */
    { 700 * 101, 101, 0, 0, 0, 0 }, { 96, 0, 1, 0, 1, 0 }, { 96 * 515, 515, 0, 1, 0, 0 }, { 1, 0, 1, 1, 1, 0 }, { 257, 0, 1, 1, 1, 0 }, { 300 * 256, 256, 0, 2, 0, 0 },
    { 33 * 32, 32, 1, 2, 0, 0 }, { 5, 0, 0, 3, 1, 0 }, { 1000, 0, 1, 3, 1, 0 } };
/* Group 0 is used at both ends, group 2 and 1 are computed again. */
static const memopt_shard_use shard_walk[13] = { { 0, 0 }, { 1, 0 }, { 2, 0 }, { 3, 0 }, { 0, 0 }, { 0, 1 }, { 3, 1 }, { 1, 0 }, { 2, 0 }, { 2, 1 },
    { 1, 1 }, { 0, 0 }, { 0, 1 } };
/* Large groups go first, and are still being sent when the last one's weights are on their way. */
static const memopt_shard_use shard_large_first[8] = { { 0, 0 }, { 1, 0 }, { 2, 0 }, { 3, 0 }, { 2, 1 }, { 1, 1 }, { 3, 1 }, { 0, 1 } };

typedef struct shard_case {
    int stage; size_t ranks, sets, units, steps; int walks, clips, inside, cancels; /* cancels: a first step, given up while its gradients travel */
    memopt_optim_kind kind; memopt_state_format state; memopt_i_weights form; memopt_type gradients, sums;
    size_t bucket, block;
    uint64_t disk_fail, device_fail; /* call number of that rank's disk that fails; of its device */
    int device; /* 1: one that copies late; 2: at once; 3, 4: the same, and it steps */
    int slow, in_place, promises; size_t buffers; /* what lies on the slow tier; promises: steps_inside */
    size_t together; /* ranks that compute a unit; 0: one */
    int interleaved; size_t lag; /* groups 3 and 2 are so many rounds before 1 and 0 */
    size_t shares; /* 0; or ranks of so many, each with other tensors of the model: `others` */
    uint64_t fail; size_t fail_rank; /* call number of that rank that fails; 0: none */
} shard_case;
/* Tensors 0, 2, 4, 6 are of one share each; all have the rest, of which there is something in every group. */
static int shard_absent(const shard_case *c, size_t share, size_t t) { return c->shares > 1 && t % 2 == 0 && t <= 6 && t / 2 % c->shares != share; }
typedef struct shard_whole { /* the reference */
    void *weights[SHARD_TENSORS], *extra[SHARD_TENSORS]; float *sums[SHARD_TENSORS]; void *stepped[SHARD_TENSORS];
    memopt_optim_tensor tensors[SHARD_TENSORS]; memopt_optim *optim; double norm; size_t nonfinite;
} shard_whole;

static float shard_weight(size_t t, size_t i) { return (float)((double)((i * 2654435761u + t * 40503u) % 4093) / 2048 - 1); }
static float shard_noise(size_t t, size_t i, size_t unit, size_t step) {
    uint32_t x = (uint32_t)(t * 131 + unit * 17 + step * 7919 + 1) * 0x9e3779b9u + (uint32_t)i * 0x85ebca6bu;
    x ^= x >> 15; x *= 0x2c1b3c6du; x ^= x >> 13;
    return (float)((int)(x >> 20) - 2048) / 1024;
}
static memopt_optim_desc shard_optim(const shard_case *c) {
    memopt_optim_desc d;
    memset(&d, 0, sizeof d);
    d.kind = c->kind; d.state = c->state; d.seed = 77; d.block = c->block; d.min_quantized = 1000; d.gradients = c->sums;
    d.first_moment = c->kind == MEMOPT_OPTIM_SGD || c->kind == MEMOPT_OPTIM_ADAFACTOR;
    test_set_weights(&d, c->form);
    if (c->kind == MEMOPT_OPTIM_MUON) d.muon = memopt_muon_products(MEMOPT_TYPE_BF16);
    return d;
}
static void shard_rates(memopt_optim_kind kind, memopt_optim_group *g) {
    g[0] = g[1] = memopt_optim_group_default(kind);
    g[1].rate *= 0.5; g[1].weight_decay = 0;
    if (kind == MEMOPT_OPTIM_SGD || kind == MEMOPT_OPTIM_ADAFACTOR) g[0].beta1 = g[1].beta1 = 0.875;
}
static size_t shard_weight_bytes(const shard_case *c) { return c->form == MEMOPT_I_WEIGHTS_F32 ? 4 : 2; } /* computed with */
enum { SHARD_PIECE = 256 }; /* elements that are made at a time */
/* The gradients of a tensor, from weights as they are computed with; in two halves where it has two backwards. */
static void shard_gradient(const shard_case *c, size_t t, size_t unit, size_t step, const void *weights, void *out, int half) {
    const size_t n = shard_model[t].count, bytes = shard_weight_bytes(c); const int level = MEMOPT_SIMD_SCALAR; float w[SHARD_PIECE], g[SHARD_PIECE]; size_t at, i;
    for (at = 0; at < n; at += SHARD_PIECE) {
        const size_t m = memopt_i_min(n - at, SHARD_PIECE); unsigned char *to = (unsigned char *)out + at * memopt_type_bytes(c->gradients);
        memopt_i_to_f32(level, w, (const unsigned char *)weights + at * bytes, bytes == 4 ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16, m);
        if (half == 2) memopt_i_to_f32(level, g, to, c->gradients, m); /* the second backward adds */
        else for (i = 0; i < m; ++i) g[i] = shard_noise(t, at + i, unit, step);
        for (i = 0; i < m && half != 1; ++i) g[i] = memopt_i_sum(g[i], memopt_i_times(0.25f, w[i]));
        memopt_i_from_f32(level, to, g, c->gradients, m);
    }
}
/* Weights as they begin, in the form of the optimizer: floats and a copy, or bf16 with or without the rest. */
static void shard_begin_weights(const shard_case *c, size_t t, size_t first, size_t n, void *weights, void *extra) {
    const int floats = c->form == MEMOPT_I_WEIGHTS_F32 || c->form == MEMOPT_I_WEIGHTS_F32_BF16; float w[SHARD_PIECE]; size_t at, i;
    for (at = 0; at < n; at += SHARD_PIECE) {
        const size_t m = memopt_i_min(n - at, SHARD_PIECE); unsigned char *to = (unsigned char *)weights + at * (floats ? 4 : 2);
        for (i = 0; i < m; ++i) w[i] = shard_weight(t, first + at + i);
        memopt_i_from_f32(MEMOPT_SIMD_SCALAR, to, w, floats ? MEMOPT_TYPE_F32 : MEMOPT_TYPE_BF16, m);
        if (c->form == MEMOPT_I_WEIGHTS_SPLIT) CHECK(memopt_f32_split((uint16_t *)weights + at, (uint16_t *)extra + at, w, m, NULL) == MEMOPT_OK);
    }
}
/* Of a unit that several ranks compute: of two, four summands the tree. `more`: room for three others. */
static void shard_unit_gradient(const shard_case *c, size_t t, size_t unit, size_t step, const void *weights, float *out, float *more) {
    const size_t n = shard_model[t].count, k = c->together; size_t i;
    if (k < 2) { shard_gradient(c, t, unit, step, weights, out, 0); return; }
    for (i = 0; i < k; ++i) shard_gradient(c, t, unit * k + i, step, weights, i ? more + (i - 1) * n : out, 0);
    for (i = 0; i < n; ++i) out[i] = k == 2 ? memopt_i_sum(out[i], more[i]) : memopt_i_sum(memopt_i_sum(out[i], more[i]), memopt_i_sum(more[n + i], more[2 * n + i]));
}
static void shard_free_whole(shard_whole *w) {
    size_t t;
    for (t = 0; t < SHARD_TENSORS; ++t) { free(w->weights[t]); free(w->extra[t]); free(w->sums[t]); free(w->stepped[t]); }
    memopt_optim_close(w->optim);
    memset(w, 0, sizeof *w);
}
static double shard_factor(const shard_case *c, double squares) {
    double clip = 1;
    if (c->clips) CHECK(memopt_clip_norm(sqrt(squares) / (double)c->units, 3, &clip) == MEMOPT_OK);
    return clip / (double)c->units;
}
static void shard_reference(const shard_case *c, shard_whole *w) {
    memopt_optim_desc d = shard_optim(c); memopt_gradient sums[SHARD_TENSORS], own[SHARD_TENSORS], seen[SHARD_TENSORS]; size_t t, u, step, bytes = 0;
    memopt_gradients a, b, m; memopt_gradient_total total; memopt_optim_group rates[2]; void *scratch;
    memset(&total, 0, sizeof total); memset(w, 0, sizeof *w); memset(sums, 0, sizeof sums); memset(own, 0, sizeof own); memset(&a, 0, sizeof a); memset(&b, 0, sizeof b);
    shard_rates(c->kind, rates);
    for (t = 0; t < SHARD_TENSORS; ++t) {
        const size_t n = shard_model[t].count;
        w->weights[t] = calloc(n, 4); w->extra[t] = calloc(n, 4); w->sums[t] = (float *)calloc(n, 4); w->stepped[t] = calloc(n, 4);
        own[t].values = malloc(n * 16);
        if (!w->weights[t] || !w->extra[t] || !w->sums[t] || !w->stepped[t] || !own[t].values) return;
        shard_begin_weights(c, t, 0, n, w->weights[t], w->extra[t]);
        if (c->form == MEMOPT_I_WEIGHTS_F32_BF16) memopt_i_from_f32(MEMOPT_SIMD_SCALAR, w->extra[t], (float *)w->weights[t], MEMOPT_TYPE_BF16, n);
        own[t].count = sums[t].count = n; own[t].type = c->gradients; sums[t].values = w->sums[t];
        seen[t] = sums[t]; seen[t].values = w->stepped[t]; seen[t].type = c->sums;
        w->tensors[t].weights = w->weights[t]; w->tensors[t].count = n; w->tensors[t].columns = shard_model[t].columns; w->tensors[t].adamw = shard_model[t].adamw; w->tensors[t].group = shard_model[t].rates;
        if (d.extra) w->tensors[t].extra = w->extra[t];
        w->tensors[t].gradients = c->sums == MEMOPT_TYPE_F32 ? (void *)w->sums[t] : w->stepped[t];
    }
    d.tensors = w->tensors; d.tensor_count = SHARD_TENSORS;
    CHECK(memopt_optim_open(&d, NULL, &w->optim) == MEMOPT_OK);
    a.tensors = sums; b.tensors = own; a.count = b.count = SHARD_TENSORS; m = a;
    CHECK(memopt_gradients_scratch(&a, &bytes) == MEMOPT_OK);
    scratch = malloc(bytes);
    a.scratch = b.scratch = m.scratch = scratch; a.scratch_bytes = b.scratch_bytes = m.scratch_bytes = bytes;
    for (step = 1; w->optim && scratch && step <= c->steps; ++step) {
        memopt_accumulation so_far; memopt_micro_batch batch; memopt_optim_run run;
        memset(&so_far, 0, sizeof so_far); memset(&batch, 0, sizeof batch); memset(&run, 0, sizeof run);
        batch.tokens = 1;
        for (u = 0; u < c->units; ++u) {
            for (t = 0; t < SHARD_TENSORS; ++t) {
                const void *weights = c->form == MEMOPT_I_WEIGHTS_F32_BF16 ? w->extra[t] : w->weights[t];
                if (c->walks == 1 && !shard_model[t].group) {
                    shard_gradient(c, t, u, step, weights, own[t].values, 1); shard_gradient(c, t, u, step, weights, own[t].values, 2);
                } else shard_unit_gradient(c, t, u, step, weights, (float *)own[t].values, (float *)own[t].values + shard_model[t].count);
            }
            CHECK(memopt_gradients_accumulate(&a, &b, &batch, &so_far, NULL) == MEMOPT_OK);
        }
        if (c->sums != MEMOPT_TYPE_F32) {
            for (t = 0; t < SHARD_TENSORS; ++t) memopt_i_from_f32(MEMOPT_SIMD_SCALAR, w->stepped[t], w->sums[t], c->sums, shard_model[t].count);
            m.tensors = seen;
        }
        CHECK(memopt_gradients_measure(&m, &total, NULL) == MEMOPT_OK);
        w->norm = total.squares; w->nonfinite = total.nonfinite;
        run.step = step; run.groups = rates; run.group_count = 2; run.gradient_factor = shard_factor(c, total.squares);
        CHECK(memopt_optim_step(w->optim, &run) == MEMOPT_OK);
    }
    for (t = 0; t < SHARD_TENSORS; ++t) free(own[t].values);
    free(scratch);
}

/* ---- one rank of many ---- */
typedef struct shard_world {
    const shard_case *c; const shard_whole *whole, *start; memopt_ranks *rows[SHARD_MOST], *columns[SHARD_MOST], *shares[SHARD_MOST]; /* of a set; of those with the same part; of those with other tensors */
    memopt_status status[SHARD_MOST]; int wrong[SHARD_MOST]; int intact[SHARD_MOST]; uint64_t calls[SHARD_MOST]; memopt_shard_bytes bytes;
    memopt_error error[SHARD_MOST];
} shard_world;
typedef struct shard_failing { memopt_transport inner; uint64_t begins, fail; const memopt_shard *shard; uint64_t looks; } shard_failing; /* a transport whose n-th begin fails */
/* Sums go on to the next rank: those behind it have measured already what does not depend on them. */
static void shard_is_ahead(shard_failing *f, const memopt_comm_call *call) {
    const memopt_shard *x = f->shard; size_t t;
    if (!x || x->desc.slow || x->desc.optim.kind == MEMOPT_OPTIM_MUON || call->kind != MEMOPT_COMM_BROADCAST || x->optim->active != MEMOPT_I_OPTIM_BEGUN) return;
    for (t = 0; t < SHARD_TENSORS; ++t) if (x->parts[t].held && memopt_i_optim_carry_count(x->optim, t)) {
        CHECK_AT(x->optim->parts[t].is_ahead == (x->rank > call->root), t);
        ++f->looks;
    }
}
static memopt_status shard_failing_begin(void *user, const memopt_comm_call *call, size_t slot, memopt_error *error) {
    shard_failing *f = (shard_failing *)user;
    shard_is_ahead(f, call);
    if (++f->begins == f->fail) { error->reason = "is on fire"; return MEMOPT_ERR_IO; }
    return f->inner.begin_fn(f->inner.user, call, slot, error);
}
static memopt_status shard_failing_wait(void *user, size_t slot, memopt_error *error) {
    shard_failing *f = (shard_failing *)user;
    return f->inner.wait_fn(f->inner.user, slot, error);
}
static void shard_failing_abort(void *user) { shard_failing *f = (shard_failing *)user; f->inner.abort_fn(f->inner.user); }
static memopt_comm *shard_comm(memopt_transport inner, shard_failing *f, uint64_t fail) {
    memopt_comm_desc d; memopt_comm *x = NULL;
    memset(&d, 0, sizeof d);
    f->inner = inner; f->begins = 0; f->fail = fail; f->shard = NULL; f->looks = 0;
    d.transport = inner; d.unchecked = 1;
    d.transport.begin_fn = shard_failing_begin; d.transport.wait_fn = shard_failing_wait; d.transport.abort_fn = shard_failing_abort; d.transport.user = f;
    CHECK(memopt_comm_create(&d, &x) == MEMOPT_OK);
    return x;
}
static memopt_shard_desc shard_desc(const shard_case *c) {
    memopt_shard_desc d;
    memset(&d, 0, sizeof d);
    d.slow = c->slow; d.tile = 16384; d.tile_buffers = c->buffers; d.steps_inside = c->promises;
    d.stage = c->stage; d.tensors = shard_model; d.tensor_count = SHARD_TENSORS; d.units = c->units; d.unit_ranks = c->together; d.interleaved = c->interleaved; d.gradients = c->gradients;
    d.optim = shard_optim(c); d.bucket_bytes = c->bucket;
    if (c->walks == 1) { d.uses = shard_walk; d.use_count = 13; }
    if (c->walks == 2) { d.uses = shard_large_first; d.use_count = 8; }
    return d;
}
/* Forward and backward of a unit; its gradients are as the reference's if all weights are there when they should be. */
static memopt_status shard_unit(const shard_case *c, memopt_shard *x, size_t unit, size_t step) { /* a tensor that is absent has no gradients here */
    const size_t uses = c->walks == 1 ? 13 : 2 * SHARD_GROUPS; const memopt_shard_use *walk = c->walks == 1 ? shard_walk : shard_large_first; size_t i, t; memopt_status s = MEMOPT_OK; int backwards[SHARD_GROUPS] = { 0 };
    if (unit < MEMOPT_SHARD_NO_UNIT && c->together) unit = unit * c->together + x->rank % c->together; /* its summand */
    if (unit == MEMOPT_SHARD_NO_UNIT && step % 2) return memopt_shard_skip_unit(x); /* the same calls */
    for (i = 0; !s && i < uses; ++i) {
        const size_t g = c->walks ? walk[i].group : i < SHARD_GROUPS ? i : 2 * SHARD_GROUPS - 1 - i;
        const int back = c->walks ? walk[i].is_backward : i >= SHARD_GROUPS, twice = c->walks == 1 && !g;
        s = back ? memopt_shard_backward(x, g) : memopt_shard_forward(x, g);
        for (t = 0; !s && unit != MEMOPT_SHARD_NO_UNIT && t < SHARD_TENSORS; ++t) if (shard_model[t].group == g && !x->tensors[t].absent) {
            const void *w = memopt_shard_weights(x, t); void *out = memopt_shard_gradients(x, t);
            CHECK(w != NULL && (!back || out != NULL));
            if (w && back && out) shard_gradient(c, t, unit, step, w, out, twice ? 1 + backwards[g] : 0);
        }
        if (back && !s && ++backwards[g] == 1 + twice) s = memopt_shard_reduce(x, g);
    }
    return s;
}
/* Backwards of two groups, from the first: as of a stage among several. */
static memopt_status shard_stage(const shard_case *c, memopt_shard *x, size_t unit, size_t step, size_t first) {
    memopt_status s = MEMOPT_OK; size_t g, t;
    for (g = first; !s && g + 2 > first; --g) {
        s = memopt_shard_backward(x, g);
        for (t = 0; !s && t < SHARD_TENSORS; ++t)
            if (shard_model[t].group == g) shard_gradient(c, t, unit, step, memopt_shard_weights(x, t), memopt_shard_gradients(x, t), 0);
        if (!s) s = memopt_shard_reduce(x, g);
        if (!g) break;
    }
    return s;
}
static memopt_status shard_rounds_of_groups(const shard_case *c, memopt_shard *x, size_t step) {
    const size_t all = c->ranks * c->sets, rounds = c->units / all; memopt_status s; size_t unit, first, turn;
    s = memopt_shard_next_unit(x, &first);
    for (turn = 0; !s && turn < rounds + c->lag; ++turn) {
        if (turn < rounds) s = shard_stage(c, x, first + turn * all, step, 3);
        if (!s && turn + 1 == rounds + c->lag) CHECK(memopt_shard_next_unit(x, &unit) == MEMOPT_ERR_STATE); /* of some the last round is missing */
        if (!s && turn >= c->lag) s = shard_stage(c, x, first + (turn - c->lag) * all, step, 1);
    }
    if (!s) s = memopt_shard_next_unit(x, &unit);
    if (!s) CHECK(unit == MEMOPT_SHARD_DONE && memopt_shard_backward(x, 0) == MEMOPT_ERR_STATE);
    return s;
}
static memopt_status shard_train(const shard_world *w, memopt_shard *x) {
    const shard_case *c = w->c; size_t t, step, unit; memopt_status s; memopt_optim_tensor part; memopt_gradient_total total; memopt_optim_group rates[2]; memopt_optim_run run;
    shard_rates(c->kind, rates);
    memset(&part, 0, sizeof part); memset(&total, 0, sizeof total);
    s = MEMOPT_OK;
    for (t = 0; !s && t < SHARD_TENSORS; ++t) {
        size_t at; memopt_optim_tensor slice;
        CHECK(memopt_shard_part(x, t, &part) == MEMOPT_OK);
        memset(&slice, 0, sizeof slice);
        for (at = part.first; !s && at < part.first + part.held; at = slice.first + slice.held) {
            s = memopt_shard_bring(x, t, at, &slice);
            if (s) break;
            CHECK(slice.first == at && slice.held > 0 && slice.weights);
            shard_begin_weights(c, t, slice.first, slice.held, slice.weights, slice.extra);
            s = memopt_shard_put(x);
        }
    }
    if (!s) s = memopt_shard_share(x);
    if (!s && c->cancels) {
        s = memopt_shard_next_unit(x, &unit);
        if (!s) s = shard_unit(c, x, unit, 99);
        if (!s) s = memopt_shard_cancel(x);
    }
    for (step = 1; !s && step <= c->steps; ++step) {
        size_t round = 0; const size_t rounds = memopt_i_ceil_div(c->units * (c->together ? c->together : 1), c->ranks * c->sets);
        const memopt_store_stats was = memopt_store_get_stats(x->desc.store);
        memset(&run, 0, sizeof run);
        run.step = step; run.groups = rates; run.group_count = 2; run.fused = c->inside; run.gradient_factor = shard_factor(c, 0);
        if (c->interleaved) { s = shard_rounds_of_groups(c, x, step); round = rounds; }
        for (; !c->interleaved; ++round) {
            if (c->inside && round + 1 == rounds) s = memopt_shard_step_inside(x, &run);
            if (!s) s = memopt_shard_next_unit(x, &unit);
            if (s || unit == MEMOPT_SHARD_DONE) break;
            s = shard_unit(c, x, unit, step);
            if (s) break;
        }
        if (!s) CHECK(round == rounds);
        if (!s && c->clips) {
            s = memopt_shard_measure(x, NULL, &total);
            if (!s && step == c->steps && !c->fail) CHECK(total.squares == w->whole->norm && total.nonfinite == w->whole->nonfinite);
            if (!s) run.gradient_factor = shard_factor(c, total.squares);
        }
        if (!s) s = memopt_shard_step(x, &run);
        if (!s && c->slow) {
            const memopt_store_stats is = memopt_store_get_stats(x->desc.store);
            CHECK(is.written_bytes - was.written_bytes == x->bytes.slow_written && is.read_bytes - was.read_bytes == x->bytes.slow_read && is.step == step);
        }
    }
    return s;
}
/* The same of a slice that is brought. */
static int shard_same_slice(const shard_case *c, const shard_whole *r, memopt_shard *x, size_t t, size_t at, size_t *held) {
    const size_t stored = c->form == MEMOPT_I_WEIGHTS_F32 || c->form == MEMOPT_I_WEIGHTS_F32_BF16 ? 4 : 2, block = c->block ? c->block : 256, columns = shard_model[t].columns; size_t m, first, of;
    memopt_optim_tensor slice; memopt_optim_view a, b; int same = 1;
    if (memopt_shard_bring(x, t, at, &slice) || slice.first != at || !slice.held) { *held = SIZE_MAX / 2; return 0; }
    *held = slice.held;
    same &= !memcmp(slice.weights, (unsigned char *)r->weights[t] + at * stored, slice.held * stored);
    if (slice.extra) same &= !memcmp(slice.extra, (unsigned char *)r->extra[t] + at * 2, slice.held * 2);
    if (c->kind == MEMOPT_OPTIM_SGD && !shard_optim(c).first_moment) return same;
    if (memopt_optim_state_view(memopt_shard_optim(x), t, &a) || memopt_optim_state_view(r->optim, t, &b)) return 0;
    of = x->slices[t].first; /* that of the state */
    for (m = 0; m < 2; ++m) {
        const size_t bytes = (size_t)a.bits / 8;
        first = of;
        if (a.moment[m]) same &= !memcmp(a.moment[m], (unsigned char *)b.moment[m] + first * bytes, a.held * bytes);
        if (a.scale[m]) same &= !memcmp(a.scale[m], b.scale[m] + first / block, a.blocks * sizeof *a.scale[m]);
    }
    if (a.columns) same &= !memcmp(a.columns, b.columns, columns * sizeof *a.columns);
    if (a.rows && a.columns) same &= !memcmp(a.rows, b.rows + of / columns, (memopt_i_ceil_div(of + a.held, columns) - of / columns) * sizeof *a.rows);
    return same;
}
/* Is what this rank holds what the reference has there? */
static int shard_same(const shard_world *w, const shard_whole *r, memopt_shard *x) {
    const shard_case *c = w->c; size_t t, m; int same = 1;
    const size_t stored = c->form == MEMOPT_I_WEIGHTS_F32 || c->form == MEMOPT_I_WEIGHTS_F32_BF16 ? 4 : 2;
    for (t = 0; t < SHARD_TENSORS; ++t) {
        memopt_optim_tensor part; memopt_optim_view a, b; size_t at;
        if (memopt_shard_part(x, t, &part)) return 0;
        if (!part.held) continue;
        for (at = part.first; c->slow && at < part.first + part.held; at += part.held) same &= shard_same_slice(c, r, x, t, at, &part.held);
        if (c->slow) continue;
        same &= !memcmp(part.weights, (unsigned char *)r->weights[t] + part.first * stored, part.held * stored);
        if (part.extra) same &= !memcmp(part.extra, (unsigned char *)r->extra[t] + part.first * 2, part.held * 2);
        if (c->kind == MEMOPT_OPTIM_SGD && !shard_optim(c).first_moment) continue;
        if (memopt_optim_state_view(memopt_shard_optim(x), t, &a) || memopt_optim_state_view(r->optim, t, &b)) return 0;
        for (m = 0; m < 2; ++m) {
            const size_t bytes = (size_t)a.bits / 8, block = c->block ? c->block : 256;
            if (a.moment[m]) same &= !memcmp(a.moment[m], (unsigned char *)b.moment[m] + part.first * bytes, part.held * bytes);
            if (a.scale[m]) same &= !memcmp(a.scale[m], b.scale[m] + part.first / block, a.blocks * sizeof *a.scale[m]);
        }
        if (a.columns) same &= !memcmp(a.columns, b.columns, shard_model[t].columns * sizeof *a.columns);
        if (a.rows && a.columns) same &= !memcmp(a.rows, b.rows + part.first / shard_model[t].columns,
            (memopt_i_ceil_div(part.first + part.held, shard_model[t].columns) - part.first / shard_model[t].columns) * sizeof *a.rows);
    }
    return same;
}
static int shard_tags_right(const memopt_ledger *l, const memopt_shard_bytes *b) {
    return memopt_ledger_usage(l, MEMOPT_TAG_PARAMETERS).now == b->weights + b->window + b->landings + b->extra + b->masters
        && memopt_ledger_usage(l, MEMOPT_TAG_GRADIENTS).now == b->gradients + b->sums && memopt_ledger_usage(l, MEMOPT_TAG_OPTIMIZER).now == b->states + b->tiles + b->scratch + b->object
        && memopt_ledger_usage(l, MEMOPT_TAG_COMMUNICATION).now == b->buckets + b->staging;
}
enum { SHARD_TOLD = 16, SHARD_FIRST = 152 }; /* bytes that each rank tells all others when weights are shared; rank 0 before that */
static int shard_holds(const memopt_shard *x) {
    size_t t, held = 0;
    for (t = 0; t < SHARD_TENSORS; ++t) held += x->parts[t].held;
    return held > 0;
}
/* After a failure: a shard that is opened again has what the last commit had. */
static int shard_goes_back(const shard_world *w, memopt_shard_desc d, shard_disk *disk, size_t rank) {
    uint64_t step; memopt_shard *x = NULL; memopt_ranks *ranks = NULL; memopt_ranks_desc rd; memopt_comm_desc cd; int same = 1;
    memset(&rd, 0, sizeof rd); memset(&cd, 0, sizeof cd);
    rd.rank_count = w->c->ranks;
    CHECK(memopt_ranks_create(&rd, &ranks) == MEMOPT_OK);
    cd.transport = memopt_ranks_transport(ranks, rank); d.comm = NULL;
    CHECK(memopt_comm_create(&cd, &d.comm) == MEMOPT_OK);
    disk->fail = 0;
    CHECK(memopt_store_abandon(disk->store) == MEMOPT_OK);
    step = memopt_store_get_stats(disk->store).step;
    CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK);
    if (x && step != MEMOPT_STORE_NO_STEP) same = shard_same(w, step ? w->whole : w->start, x);
    memopt_shard_close(x); memopt_comm_destroy(d.comm); memopt_ranks_destroy(ranks);
    return same;
}
static void shard_rank(void *task, size_t index, int worker) {
    memopt_threads level = test_level(0);
    shard_world *w = (shard_world *)task; const shard_case *c = w->c; const size_t share = index / (c->ranks * c->sets), set = index / c->ranks % c->sets, rank = index % c->ranks; shard_failing f[3]; memopt_shard_tensor tensors[SHARD_TENSORS];
    memopt_shard_desc d = shard_desc(c); memopt_shard *x = NULL; memopt_ledger *ledger = NULL; memopt_arena *arena = NULL; memopt_arena_desc ad; memopt_shard_bytes plan;
    shard_disk disk; shard_device device; memopt_shard_device table; memopt_shard_kernels kernels; memopt_arena *apart[3] = { NULL, NULL, NULL }; size_t wanted[3] = { 0, 0, 0 }; memopt_comm_stats before, after; int k; const uint64_t fail = c->fail && c->fail_rank == index ? c->fail : 0; memopt_status s;
    (void)worker;
    memset(&ad, 0, sizeof ad); memset(&plan, 0, sizeof plan);
    d.optim.threads = &level;
    d.comm = shard_comm(memopt_ranks_transport(w->rows[index / c->ranks], rank), &f[0], fail);
    if (c->sets > 1) d.replicas = shard_comm(memopt_ranks_transport(w->columns[share * c->ranks + rank], set), &f[1], fail);
    memcpy(tensors, shard_model, sizeof tensors);
    for (k = 0; k < SHARD_TENSORS; ++k) tensors[k].absent = shard_absent(c, share, (size_t)k);
    if (c->shares) { d.tensors = tensors; d.others = shard_comm(memopt_ranks_transport(w->shares[index % (c->ranks * c->sets)], share), &f[2], fail); }
    memset(&device, 0, sizeof device); device.is_late = c->device % 2 == 1; table = shard_device_table(&device); kernels = shard_device_kernels();
    if (c->device > 2) table.kernels = &kernels;
    if (c->device) d.device = &table;
    CHECK(memopt_shard_plan(&d, &plan) == MEMOPT_OK);
    if (c->shares > 1) { /* before there are communicators: the same */
        memopt_shard_desc before_any = d; memopt_shard_bytes same;
        before_any.comm = before_any.replicas = before_any.others = NULL; before_any.rank_count = c->ranks; before_any.replica_count = c->sets; before_any.rank = rank;
        CHECK(memopt_shard_plan(&before_any, &same) == MEMOPT_OK && same.total == plan.total && same.buckets == plan.buckets && same.staging == plan.staging && same.host == plan.host);
    }
    shard_disk_make(&disk, &d, c->in_place, index % 3 == 2);
    d.store = disk.store; disk.fail = c->disk_fail && c->fail_rank == index ? disk.calls + c->disk_fail : 0;
    if (index % 2) { /* in an arena with a ledger; else by malloc */
        CHECK(memopt_ledger_create(NULL, &ledger) == MEMOPT_OK);
        ad.capacity = plan.total; ad.ledger = ledger;
        CHECK(memopt_arena_create(&ad, &arena) == MEMOPT_OK);
    }
    if (c->device) { /* the device's arena has not a byte too many; beside it malloc, or two of the host's that know the same ledger */
        memopt_arena_desc of = ad;
        wanted[0] = plan.total - plan.host; wanted[1] = memopt_i_round64(plan.staging); wanted[2] = plan.host - wanted[1] - memopt_i_round64(plan.tables);
        for (k = 0; k < (ledger ? 3 : 1); ++k) { of.capacity = wanted[k]; CHECK(memopt_arena_create(&of, &apart[k]) == MEMOPT_OK); }
        d.pinned = apart[1]; d.host_arena = apart[2];
    } else CHECK(plan.host == 0 && plan.masters == 0 && plan.staging == 0);
    CHECK(memopt_shard_open(&d, c->device ? apart[0] : arena, &x) == MEMOPT_OK && memopt_shard_is_intact(x));
    memset(&level, 0xA5, sizeof level); d.optim.threads = NULL; /* nobody reads it any more */
    for (k = 0; k < 3; ++k) if (apart[k]) CHECK(wanted[k] - memopt_arena_get_stats(apart[k]).used_low < 64);
    device.fail = c->device_fail && c->fail_rank == index ? c->device_fail : 0;
    device.calls = 0;
    if (ledger) CHECK(shard_tags_right(ledger, &plan));
    f[0].shard = x;
    before = memopt_comm_get_stats(d.comm);
    s = w->status[index] = x ? shard_train(w, x) : MEMOPT_ERR_MEMORY;
    w->calls[index] = c->device ? device.calls : disk.calls;
    w->error[index] = memopt_shard_error(x);
    device.fail = 0;
    if (!s) disk.fail = 0;
    after = memopt_comm_get_stats(d.comm);
    f[0].shard = NULL;
    if (!s) CHECK(!f[0].looks == !(memopt_i_kind_measures(c->kind) && c->kind != MEMOPT_OPTIM_MUON && !c->slow && c->stage && c->ranks > 1 && shard_holds(x)));
    if (!s && c->device > 2) { /* floats on a device are rounded there when they are shared, not by the CPU */
        uint64_t held = 0; memopt_optim_tensor part;
        for (k = 0; k < SHARD_TENSORS; ++k) { CHECK(memopt_shard_part(x, (size_t)k, &part) == MEMOPT_OK); held += part.held; }
        CHECK(device.rounded == (c->form == MEMOPT_I_WEIGHTS_F32_BF16 ? held : 0));
    }
    w->intact[index] = memopt_shard_is_intact(x);
    if (!s || (w->intact[index] && !c->slow)) w->wrong[index] = !shard_same(w, s ? w->start : w->whole, x);
    if (s) { /* and so it stays */
        size_t unit = 0; const memopt_error e = memopt_shard_error(x);
        CHECK(e.status == s && e.reason && memopt_shard_next_unit(x, &unit) == MEMOPT_ERR_STATE && memopt_shard_forward(x, 0) == MEMOPT_ERR_STATE);
        CHECK(memopt_shard_reduce(x, 0) == MEMOPT_ERR_STATE && memopt_shard_cancel(x) == MEMOPT_ERR_STATE && memopt_shard_share(x) == MEMOPT_ERR_STATE);
    }
    if (!s && !c->clips && !c->cancels && (c->kind == MEMOPT_OPTIM_MUON || !memopt_i_kind_measures(c->kind))) { /* the first sharing of weights, and steps */
        memopt_shard_desc lion = d; memopt_shard_bytes shared = plan; /* and what a step of any kind sends of weights */
        uint64_t sent = 0, expected = c->steps * (plan.sent_gradients + plan.sent_weights), calls = 0;
        lion.optim.kind = MEMOPT_OPTIM_LION;
        CHECK(memopt_shard_plan(&lion, &shared) == MEMOPT_OK && (c->kind == MEMOPT_OPTIM_MUON ? shared.sent_weights <= plan.sent_weights : shared.sent_weights == plan.sent_weights));
        for (k = 0; k < 3; ++k) { sent += after.sent[k] - before.sent[k]; calls += after.calls[k] - before.calls[k]; }
        if (c->ranks > 1) { expected += (c->ranks - 1) * (rank ? SHARD_TOLD : SHARD_TOLD + SHARD_FIRST); calls -= c->ranks + 1; }
        if (c->sets > 1) { const memopt_comm_stats r = memopt_comm_get_stats(d.replicas); calls += r.calls[2] - c->sets - 1; CHECK(r.sent[2] == c->steps * plan.sent_replicas + (c->sets - 1) * (set ? SHARD_TOLD : SHARD_TOLD + SHARD_FIRST)); }
        if ((c->stage == 1 || c->stage == 2) && c->ranks > 1) { expected += shared.sent_weights - (c->slow ? c->ranks - 1 : 0); calls -= SHARD_GROUPS; }
        CHECK_AT(sent == expected, index); CHECK_AT(calls == c->steps * plan.calls, index);
    }
    for (k = 0; !s && !c->fail && !c->device_fail && k < SHARD_GROUPS; ++k) { /* an evaluation: all weights, whole, in an order of its own */
        const size_t g = (size_t)(k * 3 + 1) % SHARD_GROUPS; size_t t;
        CHECK(memopt_shard_forward(x, g) == MEMOPT_OK);
        for (t = 0; t < SHARD_TENSORS; ++t) if (shard_model[t].group == g && !tensors[t].absent) {
            const void *all = c->form == MEMOPT_I_WEIGHTS_F32_BF16 ? w->whole->extra[t] : w->whole->weights[t];
            w->wrong[index] |= !memopt_shard_weights(x, t) || memcmp(memopt_shard_weights(x, t), all, shard_model[t].count * shard_weight_bytes(c)) != 0;
        }
    }
    if (index == 0) w->bytes = plan;
    if (!x) { memopt_comm_abort(d.comm); memopt_comm_abort(d.replicas); memopt_comm_abort(d.others); } /* else the shard has told all, of other sets too */
    memopt_shard_close(x);
    if (s && c->slow == 7 && !c->in_place) w->wrong[index] |= !shard_goes_back(w, d, &disk, rank);
    for (k = 0; k < MEMOPT_SHARD_SLOTS; ++k) CHECK(!device.slots[k].bytes);
    for (k = 0; k < 3; ++k) memopt_arena_destroy(apart[k]);
    memopt_arena_destroy(arena); memopt_ledger_destroy(ledger);
    memopt_comm_destroy(d.replicas); memopt_comm_destroy(d.comm); memopt_comm_destroy(d.others);
    shard_disk_end(&disk);
}
/* All ranks; 0: no threads here. */
static int shard_play(const shard_case *c, const shard_whole *whole, const shard_whole *start, shard_world *w) {
    memopt_ranks_desc d; memopt_thread_pool *pool = NULL; memopt_threads t; size_t i; const size_t shares = c->shares ? c->shares : 1, n = c->ranks * c->sets * shares;
    memset(w, 0, sizeof *w); memset(&d, 0, sizeof d);
    w->c = c; w->whole = whole; w->start = start;
    d.rank_count = c->ranks;
    for (i = 0; i < c->sets * shares; ++i) CHECK(memopt_ranks_create(&d, &w->rows[i]) == MEMOPT_OK);
    d.rank_count = c->sets;
    for (i = 0; i < c->ranks * shares; ++i) CHECK(memopt_ranks_create(&d, &w->columns[i]) == MEMOPT_OK);
    d.rank_count = shares;
    for (i = 0; i < c->ranks * c->sets; ++i) CHECK(memopt_ranks_create(&d, &w->shares[i]) == MEMOPT_OK);
    CHECK(memopt_thread_pool_create(NULL, (int)n, &pool) == MEMOPT_OK);
    if (!pool) return 0;
    t = memopt_thread_pool_threads(pool);
    t.run_fn(t.user, n, shard_rank, w);
    memopt_thread_pool_destroy(pool);
    for (i = 0; i < SHARD_MOST; ++i) { memopt_ranks_destroy(w->rows[i]); memopt_ranks_destroy(w->columns[i]); memopt_ranks_destroy(w->shares[i]); }
    return 1;
}
static shard_case shard_usual(void) {
    shard_case c;
    memset(&c, 0, sizeof c);
    c.sets = 1; c.units = 8; c.steps = 2; c.kind = MEMOPT_OPTIM_ADAMW; c.state = MEMOPT_STATE_8BIT; c.form = MEMOPT_I_WEIGHTS_F32; c.bucket = 300000;
    return c;
}
static uint64_t shard_id(const shard_case *c) { return c->ranks + 10 * c->sets + 100 * (uint64_t)c->stage + 1000 * (uint64_t)c->kind + 10000 * (uint64_t)c->form + 100000 * (uint64_t)c->state; }
static void shard_check(const shard_case *c, const shard_whole *whole) {
    shard_world w; size_t i;
    if (test_is_passed_over() || !shard_play(c, whole, NULL, &w)) return;
    for (i = 0; i < c->ranks * c->sets * (c->shares ? c->shares : 1); ++i) CHECK_AT(w.status[i] == MEMOPT_OK && !w.wrong[i] && w.intact[i], shard_id(c));
}
/* Ranks with other tensors: noise, norms, states and weights are those of one process that has all of them. */
static void shard_shares(void) {
    static const memopt_state_format states[3] = { MEMOPT_STATE_F32, MEMOPT_STATE_BF16, MEMOPT_STATE_8BIT }; int kind; shard_case c = shard_usual(); shard_whole whole;
    for (kind = 0; kind <= (int)MEMOPT_OPTIM_MUON; ++kind) {
        c.kind = (memopt_optim_kind)kind; c.state = states[kind % 3]; c.form = (memopt_i_weights)(kind % 4); c.gradients = kind % 2 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
        c.ranks = 1; c.sets = 1; c.clips = 1; c.units = 4; c.steps = 2; c.walks = 0; c.shares = 0; c.slow = 0;
        shard_reference(&c, &whole);
        for (c.shares = 2; c.shares <= 3; ++c.shares) for (c.stage = 0; c.stage < 4; ++c.stage) for (c.ranks = 1; c.ranks <= 2; ++c.ranks) {
            c.sets = 1 + (size_t)c.stage % 2; c.slow = kind % 2 && c.stage == 3 ? 7 : 0;
            shard_check(&c, &whole);
        }
        shard_free_whole(&whole);
    }
}
static void shard_together(void) { /* ranks that share units: 4 of them, so that some have none (a power of two, by which every mean is exact); with sets, slow, inside */
    shard_case c = shard_usual(); shard_whole whole;
    for (c.together = 2; c.together <= 4; c.together *= 2) {
        c.ranks = c.sets = 1; c.units = 4; c.clips = 1; c.steps = 2; c.walks = 0;
        shard_reference(&c, &whole);
        for (c.stage = 0; c.stage < 4; ++c.stage) for (c.ranks = c.together; c.ranks <= 8; c.ranks += c.together) {
            c.sets = c.ranks < 8 ? 2 : 1; c.slow = c.stage == 3 && c.ranks == 4 ? 7 : 0;
            shard_check(&c, &whole);
        }
        shard_free_whole(&whole);
        c.ranks = c.sets = 1; c.units = 2; c.clips = c.slow = 0; c.inside = 1;
        shard_reference(&c, &whole);
        for (c.stage = 0; c.stage < 4; ++c.stage) { c.ranks = 2 * c.together; shard_check(&c, &whole); }
        shard_free_whole(&whole);
        c.inside = 0;
    }
}
static void shard_same_for_any_ranks(void) { /* 3 does not divide 8; 9 are more than units */
    static const size_t ranks[5] = { 1, 2, 3, 8, 9 }; shard_case c = shard_usual(); shard_whole whole; size_t r; int walks;
    for (walks = 0; walks < 2; ++walks) {
        c.walks = c.clips = walks; c.ranks = 1; c.stage = 0;
        shard_reference(&c, &whole);
        for (r = 0; r < 5; ++r) for (c.stage = 0; c.stage < 4; ++c.stage) { c.ranks = ranks[r]; shard_check(&c, &whole); }
        shard_free_whole(&whole);
    }
}
static void shard_interleaved(void) { /* stages of a rank, each with a round of its own */
    static const size_t shapes[5][2] = { { 1, 1 }, { 2, 1 }, { 4, 1 }, { 2, 2 }, { 1, 3 } }; shard_case c = shard_usual(); shard_whole whole; size_t i;
    c.ranks = 1; c.units = 12; c.clips = 1;
    shard_reference(&c, &whole);
    c.interleaved = 1;
    for (i = 0; i < 5; ++i) for (c.stage = 0; c.stage < 2; ++c.stage) for (c.lag = 0; c.lag < 13; c.lag = c.lag < 2 ? c.lag + 1 : c.lag + 10) {
        c.ranks = shapes[i][0]; c.sets = shapes[i][1]; c.bucket = i % 2 ? 300000 : 2 * c.ranks * 256 * 4 * 50;
        shard_check(&c, &whole);
    }
    shard_free_whole(&whole);
}
static void shard_small_buckets(void) { /* many calls between a gather's begin and its end; bytes with a tied group */
    shard_case c = shard_usual(); shard_whole whole; memopt_shard_desc d; memopt_shard_bytes b; size_t size[SHARD_GROUPS], g, t;
    c.ranks = 1; c.units = 2; c.steps = 1; c.walks = 1;
    shard_reference(&c, &whole);
    c.ranks = 2; c.bucket = 2 * 2 * 256 * 4;
    for (c.stage = 1; c.stage < 4; ++c.stage) shard_check(&c, &whole);
    shard_free_whole(&whole);
    c.ranks = 1; c.walks = 2;
    shard_reference(&c, &whole);
    c.ranks = 2;
    for (c.stage = 1; c.stage < 4; ++c.stage) { c.cancels = 0; shard_check(&c, &whole); c.cancels = 1; shard_check(&c, &whole); }
    shard_free_whole(&whole);
    c.walks = 1; c.cancels = 0;
    d = shard_desc(&c); d.stage = 3; d.rank_count = 2;
    CHECK(memopt_shard_plan(&d, &b) == MEMOPT_OK);
    for (g = 0; g < SHARD_GROUPS; ++g) {
        for (size[g] = t = 0; t < SHARD_TENSORS; ++t) if (shard_model[t].group == g) size[g] += (shard_model[t].count + 255) / 256;
        size[g] = (size[g] + 1) / 2 * 512;
    }
    CHECK(b.window == (size[0] + size[1] > size[1] + size[2] ? size[0] + size[1] : size[1] + size[2]) * 4);
    CHECK(b.gradients == (size[0] + (size[2] + size[3] > size[1] + size[2] ? size[2] + size[3] : size[1] + size[2])) * 4); /* 3, 2, 1 follow each other */
}
static void shard_hybrid(void) {
    static const size_t shapes[4][2] = { { 2, 2 }, { 1, 3 }, { 3, 2 }, { 2, 5 } }; shard_case c = shard_usual(); shard_whole whole; size_t i;
    c.ranks = 1; c.clips = 0;
    shard_reference(&c, &whole);
    for (i = 0; i < 4; ++i) for (c.stage = 0; c.stage < 4; ++c.stage) { c.ranks = shapes[i][0]; c.sets = shapes[i][1]; c.slow = i % 2 ? 0 : c.stage == 3 ? 7 : 3; shard_check(&c, &whole); }
    shard_free_whole(&whole);
}
static void shard_kinds_and_formats(void) {
    static const memopt_state_format states[3] = { MEMOPT_STATE_F32, MEMOPT_STATE_BF16, MEMOPT_STATE_8BIT }; int kind, state; shard_case c = shard_usual(); shard_whole whole;
    for (kind = 0; kind <= (int)MEMOPT_OPTIM_MUON; ++kind) for (state = 0; state < 3; ++state) {
        const int form = (kind + state) % 4;
        c.kind = (memopt_optim_kind)kind; c.state = states[state]; c.form = (memopt_i_weights)form; c.gradients = (kind + state) % 2 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
        c.ranks = 1; c.clips = state == 1; c.units = 5; c.steps = 3;
        shard_reference(&c, &whole);
        c.ranks = 3; c.stage = 1 + state; c.walks = 0; shard_check(&c, &whole);
        c.ranks = 7; c.stage = 3 - state; shard_check(&c, &whole);
        shard_free_whole(&whole);
    }
}
static void shard_sixteen_bit_sums(void) { /* one round; and sums where the gradients were */
    shard_case c = shard_usual(); shard_whole whole; int type;
    for (type = 0; type < 2; ++type) {
        c.gradients = type ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32; c.sums = MEMOPT_TYPE_BF16; c.units = 3; c.ranks = 1; c.clips = 1; c.form = MEMOPT_I_WEIGHTS_SPLIT;
        shard_reference(&c, &whole);
        for (c.stage = 0; c.stage < 4; ++c.stage) { c.ranks = 3; shard_check(&c, &whole); c.ranks = 5; shard_check(&c, &whole); }
        shard_free_whole(&whole);
    }
}
static void shard_blocks(void) { /* the grain is theirs, too */
    static const size_t blocks[4] = { 32, 96, 512, 2048 }; shard_case c = shard_usual(); shard_whole whole; size_t i;
    for (i = 0; i < 4; ++i) {
        c.block = blocks[i]; c.ranks = 1;
        shard_reference(&c, &whole);
        c.ranks = 4; c.stage = 1 + (int)i % 3; shard_check(&c, &whole);
        c.bucket = 0; c.stage = 3; shard_check(&c, &whole); c.bucket = 300000;
        shard_free_whole(&whole);
    }
}
static void shard_inside_backward(void) {
    shard_case c = shard_usual(); shard_whole whole; int walks;
    for (walks = 0; walks < 2; ++walks) {
        c.walks = walks; c.ranks = 1; c.stage = 0; c.inside = 0;
        shard_reference(&c, &whole);
        c.inside = 1;
        for (c.stage = 0; c.stage < 4; ++c.stage) { c.ranks = 1; shard_check(&c, &whole); c.ranks = 3; shard_check(&c, &whole); c.ranks = 8; shard_check(&c, &whole); }
        shard_free_whole(&whole);
    }
}
/* Any choice of what is slow, any stage, any ranks. */
static void shard_slow(void) {
    static const memopt_i_weights forms[4] = { MEMOPT_I_WEIGHTS_F32, MEMOPT_I_WEIGHTS_BF16, MEMOPT_I_WEIGHTS_SPLIT, MEMOPT_I_WEIGHTS_F32_BF16 };
    shard_case c = shard_usual(); shard_whole whole; int form, inside; size_t turn = 0;
    for (form = 0; form < 4; ++form) {
        inside = form % 2;
        c.form = forms[form]; c.units = 4; c.steps = 2; c.ranks = 1; c.stage = 0; c.slow = 0; c.inside = 0; c.clips = !inside; c.walks = form % 3; c.sets = 1;
        shard_reference(&c, &whole);
        c.inside = inside;
        for (c.stage = 0; c.stage < 4; ++c.stage) for (c.slow = 1; c.slow < 8; ++c.slow) {
            if ((c.slow & MEMOPT_SHARD_SLOW_WEIGHTS) && c.stage < 3) continue;
            c.ranks = 1 + turn % 4; c.buffers = 1 + turn / 2 % 4; c.in_place = (int)(turn / 3 % 2); c.cancels = turn % 8 == 1;
            shard_check(&c, &whole);
            turn = turn * 5 + 3;
        }
        shard_free_whole(&whole);
    }
}
static void shard_slow_kinds(void) {
    static const memopt_state_format states[3] = { MEMOPT_STATE_F32, MEMOPT_STATE_BF16, MEMOPT_STATE_8BIT }; int kind, state; shard_case c = shard_usual(); shard_whole whole;
    for (kind = 0; kind <= (int)MEMOPT_OPTIM_MUON; ++kind) for (state = 0; state < 3; ++state) {
        c.kind = (memopt_optim_kind)kind; c.state = states[state]; c.form = (memopt_i_weights)((kind + state) % 4); c.gradients = (kind + state) % 2 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
        c.ranks = 1; c.clips = state == 1; c.units = 3; c.steps = 3; c.slow = 0;
        shard_reference(&c, &whole);
        c.slow = 7; c.stage = 3; shard_check(&c, &whole);
        c.ranks = 3; shard_check(&c, &whole);
        c.slow = 3; c.stage = state;
        if (memopt_i_kind_measures(c.kind)) shard_check(&c, &whole);
        shard_free_whole(&whole);
    }
}
/* Sums of one group at a time, or where its gradients are. */
static void shard_slow_promises(void) {
    shard_case c = shard_usual(); shard_whole whole; int type;
    for (type = 0; type < 2; ++type) for (c.walks = type; c.walks < 3; c.walks += 1 + type) {
        c.gradients = type ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32; c.units = 1; c.ranks = 1; c.stage = 0; c.slow = 0; c.inside = c.promises = 0;
        shard_reference(&c, &whole);
        c.inside = c.promises = 1;
        for (c.stage = 0; c.stage < 4; ++c.stage) for (c.slow = 0; c.slow < 8; ++c.slow) {
            if ((c.slow & MEMOPT_SHARD_SLOW_WEIGHTS) && c.stage < 3) continue;
            for (c.ranks = 1; c.ranks < 4; c.ranks += 2) { c.buffers = 1 + (size_t)c.slow % 3; shard_check(&c, &whole); }
        }
        shard_free_whole(&whole);
    }
}
/* Weights and gradients on a device, all else on the host: any stage, ranks, form; states and extra may be on a disk. */
static void shard_device_same(void) {
    shard_case c = shard_usual(); shard_whole whole; int form; size_t turn = 1;
    for (form = 0; form < 4; ++form) {
        c.form = (memopt_i_weights)form; c.units = 4; c.ranks = 1; c.stage = 0; c.device = c.slow = 0; c.inside = c.promises = 0; c.clips = form % 2; c.walks = form % 3;
        c.gradients = form % 2 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
        shard_reference(&c, &whole);
        for (c.ranks = 1; c.ranks < 5; ++c.ranks) for (c.stage = c.ranks > 1; c.stage < 4; ++c.stage) {
            c.device = 1 + (int)(turn % 2); c.slow = (int)(turn / 2 % 4); c.inside = !c.clips; c.promises = c.inside && c.ranks == 4; c.cancels = !c.inside && turn % 5 == 1;
            c.bucket = turn % 3 ? 300000 : c.ranks * 2 * 256 * 4; /* a grain at a time */
            shard_check(&c, &whole);
            turn = turn * 5 + 3;
        }
        shard_free_whole(&whole);
    }
}
/* The same where the device steps. */
static void shard_device_steps(void) {
    shard_case c = shard_usual(); shard_whole whole; int form; size_t turn = 1;
    static const memopt_optim_kind kinds[4] = { MEMOPT_OPTIM_ADAMW, MEMOPT_OPTIM_SGD, MEMOPT_OPTIM_LION, MEMOPT_OPTIM_RMSPROP };
    for (form = 0; form < 4; ++form) {
        c.form = (memopt_i_weights)form; c.kind = kinds[form]; c.units = 4; c.ranks = 1; c.stage = 0; c.device = 0; c.inside = c.promises = 0; c.clips = form % 2; c.walks = form % 3;
        c.gradients = form % 2 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
        shard_reference(&c, &whole);
        for (c.ranks = 1; c.ranks < 5; ++c.ranks) for (c.stage = c.ranks > 1; c.stage < 4; ++c.stage) {
            c.device = 3 + (int)(turn % 2); c.inside = !c.clips; c.promises = c.inside && c.ranks == 4; c.cancels = !c.inside && turn % 5 == 1;
            c.bucket = turn % 3 ? 300000 : c.ranks * 2 * 256 * 4;
            shard_check(&c, &whole);
            turn = turn * 5 + 3;
        }
        shard_free_whole(&whole);
    }
}
static void shard_device_kinds(void) {
    shard_case c = shard_usual(); shard_whole whole; int kind;
    for (kind = 0; kind <= (int)MEMOPT_OPTIM_MUON; ++kind) {
        c.kind = (memopt_optim_kind)kind; c.state = (memopt_state_format)(kind % 2 ? MEMOPT_STATE_8BIT : MEMOPT_STATE_F32); c.form = (memopt_i_weights)(kind % 4); c.ranks = 1; c.clips = kind % 2; c.units = 3; c.device = c.slow = 0;
        shard_reference(&c, &whole);
        c.device = 1 + kind % 2; c.stage = 1 + kind % 3; c.slow = kind % 2; shard_check(&c, &whole);
        c.ranks = 3; shard_check(&c, &whole);
        c.ranks = 1; c.slow = 0; c.device = 3 + kind % 2;
        for (c.stage = 0; c.stage < 4 && memopt_i_kind_measures(c.kind); c.stage += 3) shard_check(&c, &whole);
        shard_free_whole(&whole);
    }
}
/* What several ranks make of one model, with a device: other tensors on others, a round for each group, a unit of several
   ranks. The host steps, or the device: of one rank any kind. */
static void shard_device_shares(void) {
    static const memopt_state_format states[3] = { MEMOPT_STATE_F32, MEMOPT_STATE_BF16, MEMOPT_STATE_8BIT }; shard_case c = shard_usual(); shard_whole whole; int kind;
    for (kind = 0; kind <= (int)MEMOPT_OPTIM_MUON; ++kind) {
        c.kind = (memopt_optim_kind)kind; c.state = states[kind % 3]; c.form = (memopt_i_weights)(kind % 4); c.gradients = kind % 2 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
        c.ranks = 1; c.clips = 1; c.units = 4; c.device = 0; c.shares = 0;
        shard_reference(&c, &whole);
        c.shares = 2 + (size_t)(kind % 2);
        for (c.ranks = 1; c.ranks <= 2; ++c.ranks) for (c.stage = c.ranks > 1; c.stage < 4; ++c.stage) {
            c.device = 1 + kind % 2; c.slow = kind % 3 == 1 ? 3 : 0; shard_check(&c, &whole);
            c.device += 2; c.slow = 0;
            if (c.ranks == 1 || !memopt_i_kind_measures(c.kind)) shard_check(&c, &whole);
        }
        shard_free_whole(&whole);
    }
}
static void shard_device_interleaved(void) {
    shard_case c = shard_usual(); shard_whole whole; int type;
    for (type = 0; type < 2; ++type) {
        c.gradients = type ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32; c.ranks = 1; c.units = 12; c.clips = 1; c.device = c.interleaved = 0;
        shard_reference(&c, &whole);
        c.interleaved = 1;
        for (c.device = 1 + type; c.device < 5; c.device += 2) for (c.ranks = 1; c.ranks < 5; c.ranks *= 2) for (c.stage = c.ranks > 1; c.stage < 2; ++c.stage) for (c.lag = 0; c.lag < 13; c.lag = c.lag < 2 ? c.lag + 1 : c.lag + 10) {
            c.bucket = c.lag % 2 ? 300000 : 2 * c.ranks * 256 * 4 * 50;
            shard_check(&c, &whole);
        }
        shard_free_whole(&whole);
    }
}
static void shard_device_together(void) { /* of one unit most ranks have none */
    shard_case c = shard_usual(); shard_whole whole;
    for (c.together = 2; c.together <= 4; c.together *= 2) for (c.units = 1; c.units < 5; c.units += 3) {
        c.ranks = 1; c.clips = c.units > 1; c.device = c.inside = 0;
        shard_reference(&c, &whole);
        c.inside = !c.clips;
        for (c.device = 1 + c.clips; c.device < 5; c.device += 2) for (c.stage = 1; c.stage < 4; ++c.stage) for (c.ranks = c.together; c.ranks <= 8; c.ranks *= 2) shard_check(&c, &whole);
        shard_free_whole(&whole);
    }
}
/* Every call of the device fails once: all ranks get a status, and the host's weights are whole where it says so. */
static void shard_device_fails_once(void) {
    shard_case c = shard_usual(); shard_whole whole, start; shard_world w; size_t i; uint64_t n; int mode, told[2] = { 0, 0 };
    c.ranks = 1; c.steps = 1; c.units = 2; c.form = MEMOPT_I_WEIGHTS_SPLIT; c.clips = 1; c.gradients = MEMOPT_TYPE_BF16;
    shard_reference(&c, &whole);
    c.steps = 0; shard_reference(&c, &start); c.steps = 1;
    for (mode = 0; mode < 6; ++mode) for (n = 1; n < 1000; n += n < 16 ? 1 : 6 * TEST_STRIDE) {
        int over = 1; size_t all;
        c.shares = mode == 5 ? 2 : 0;
        c.ranks = 1 + (size_t)(mode > 0 && mode < 4); c.stage = mode < 3 ? 1 + mode : 6 - mode; c.device = 1 + (int)(n % 2) + (mode < 3 ? 0 : 2); c.device_fail = n; all = c.ranks * (c.shares ? c.shares : 1); c.fail_rank = all - 1; c.slow = mode == 2;
        if (!shard_play(&c, &whole, &start, &w)) return;
        for (i = 0; i < all; ++i) over &= w.status[i] == MEMOPT_OK && !w.wrong[i];
        if (over && n > w.calls[c.fail_rank]) break; /* there is no n-th call */
        CHECK_AT(w.status[c.fail_rank] == MEMOPT_ERR_DEVICE && test_error_says(w.error[c.fail_rank], MEMOPT_ERR_DEVICE, "a copy or a launch on the device failed"), 1000 * (uint64_t)mode + n);
        for (i = 0; i < all; ++i) CHECK_AT(!w.wrong[i], 1000 * (uint64_t)mode + n);
        if (w.status[c.fail_rank]) ++told[w.intact[c.fail_rank]];
    }
    CHECK(mode == 6 && (TEST_STRIDE > 7 || (told[0] > 10 / TEST_STRIDE && told[1] > 10 / TEST_STRIDE)));
    shard_free_whole(&whole); shard_free_whole(&start);
}
/* In every call, on each rank: all get a status; weights are as they were where it says so. */
static void shard_fails(void) {
    shard_case c = shard_usual(); shard_whole whole, start; shard_world w; size_t i; int stage; uint64_t n;
    c.ranks = 1; c.steps = 1; c.units = 4; c.clips = 1; c.bucket = 3 * 2 * 256 * 4 * 40;
    shard_reference(&c, &whole);
    c.steps = 0; shard_reference(&c, &start); c.steps = 1;
    for (c.sets = 1; c.sets < 3; ++c.sets) for (stage = 1; stage < 4; ++stage) for (n = 1; n < 400; n += n < 12 ? 1 : 7 * TEST_STRIDE) {
        const size_t all = c.sets == 1 ? 3 : 4; int over = 1;
        c.ranks = all / c.sets; c.stage = stage; c.fail = n; c.fail_rank = (size_t)(n % all);
        if (!shard_play(&c, &whole, &start, &w)) return;
        for (i = 0; i < all; ++i) over &= w.status[i] == MEMOPT_OK && !w.wrong[i];
        if (over) break; /* there is no n-th call */
        for (i = 0; i < all; ++i) CHECK_AT(!w.wrong[i] && (w.status[i] != MEMOPT_OK || i / c.ranks != c.fail_rank / c.ranks), 1000 * (uint64_t)stage + n); /* another set may be done */
        CHECK_AT(w.status[n % all] == MEMOPT_ERR_IO, n);
    }
    shard_free_whole(&whole); shard_free_whole(&start);
}
/* In every call of a disk. Where all is slow and atomic, it is as it was; else as memopt_shard_is_intact() says. */
static void shard_slow_disk_is_lost(void) {
    shard_case c = shard_usual(); shard_whole whole, start; shard_world w; size_t i; uint64_t n; int mode, told[2] = { 0, 0 };
    c.ranks = 1; c.steps = 1; c.units = 1; c.form = MEMOPT_I_WEIGHTS_SPLIT;
    shard_reference(&c, &whole);
    c.steps = 0; shard_reference(&c, &start); c.steps = 1;
    for (mode = 0; mode < 6; ++mode) for (n = 1; n < 3000; n += n < 20 ? 1 : 7 * TEST_STRIDE) {
        int over = 1;
        c.ranks = mode == 2 ? 2 : 1; c.stage = mode == 4 ? 2 : 3; c.slow = mode < 4 ? 7 : mode == 4 ? 3 : 1; c.in_place = mode == 3; c.disk_fail = n; c.fail_rank = c.ranks - 1; c.inside = c.promises = mode == 1 || mode == 5;
        if (!shard_play(&c, &whole, &start, &w)) return;
        for (i = 0; i < c.ranks; ++i) over &= w.status[i] == MEMOPT_OK && !w.wrong[i];
        if (over && n > w.calls[c.fail_rank]) break; /* there is no n-th call */
        for (i = 0; i < c.ranks; ++i) {
            CHECK_AT(!w.wrong[i], 10000 * (uint64_t)mode + n);
            if (mode < 3 && w.status[i]) CHECK_AT(w.intact[i], 10000 * (uint64_t)mode + n);
            if (mode > 3 && w.status[i]) ++told[w.intact[i]];
        }
    }
    CHECK(mode == 6 && (TEST_STRIDE > 7 || (told[0] > 10 / TEST_STRIDE && told[1] > 10 / TEST_STRIDE)));
    shard_free_whole(&whole); shard_free_whole(&start);
}
/* A tile that is torn, or of the step before, is found when it is read, and told with its group. */
static void shard_slow_torn_tile(void) {
    shard_case c = shard_usual(); shard_whole whole; shard_world w; shard_disk disk; memopt_shard_desc d; memopt_shard *x = NULL; memopt_optim_tensor slice; memopt_error e; int stale;
    c.ranks = 1; c.units = 1; c.stage = 3; c.steps = 1;
    shard_reference(&c, &whole);
    for (stale = 0; stale < 2; ++stale) {
        unsigned char *old;
        c.slow = 7; d = shard_desc(&c);
        shard_disk_make(&disk, &d, 1, 0);
        d.store = disk.store; memset(&w, 0, sizeof w); w.c = &c; w.whole = &whole;
        CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK && shard_train(&w, x) == MEMOPT_OK);
        old = (unsigned char *)malloc(disk.size);
        CHECK(old != NULL && disk.size > 4096);
        if (!old) return;
        memcpy(old, disk.bytes, disk.size);
        c.steps = 1; CHECK(shard_train(&w, x) == MEMOPT_OK); /* writes all tiles again */
        if (stale) memcpy(disk.bytes, old, disk.size);
        else disk.bytes[disk.size - 4096] ^= 1; /* of the last tile */
        CHECK(memopt_shard_bring(x, 8, 0, &slice) == MEMOPT_ERR_FORMAT);
        e = memopt_shard_error(x);
        CHECK(test_error_says(e, MEMOPT_ERR_FORMAT, "store: is not what was written: its CRC-32C differs at group 3"));
        CHECK(memopt_shard_bring(x, 8, 0, &slice) == MEMOPT_ERR_STATE && memopt_shard_put(x) == MEMOPT_ERR_STATE);
        memopt_shard_close(x); shard_disk_end(&disk); free(old);
    }
    shard_free_whole(&whole);
}
/* ---- a tape whose weights come and whose gradients leave by themselves ---- */
enum { SHARD_CHAIN = 7, SHARD_WIDTH = 700 }; /* segment 3 has no weights, 5 those of 1 */
typedef struct shard_left { jump landing; int at; memopt_tape *tape; const float *in; float *last, *back; } shard_left; /* at: the callback that jumps; 0: none */
typedef struct shard_segment_user { memopt_shard_segment *segment; size_t tensor; int adds, *seen; shard_left *left; } shard_segment_user;
static memopt_status shard_scale(const memopt_tape_call *call) { /* out = in * w, both ways */
    const shard_segment_user *u = (const shard_segment_user *)call->user; const float *in = (const float *)call->input, *w; float *out = (float *)call->output, *d; size_t i;
    if (call->describing) return MEMOPT_OK;
    w = u->segment->group == MEMOPT_SHARD_NO_GROUP ? NULL : (const float *)memopt_shard_weights(u->segment->shard, u->tensor);
    if (++*u->seen == u->left->at) jump_out(&u->left->landing);
    if (!call->is_backward) { for (i = 0; i < SHARD_WIDTH; ++i) out[i] = memopt_i_times(in[i], w ? w[i] : 0.5f); return MEMOPT_OK; }
    d = w ? (float *)memopt_shard_gradients(u->segment->shard, u->tensor) : NULL;
    for (i = 0; i < SHARD_WIDTH; ++i) {
        const float g = ((const float *)call->grad_output)[i];
        if (d) d[i] = u->adds ? memopt_i_sum(d[i], memopt_i_times(g, in[i])) : memopt_i_times(g, in[i]);
        if (call->grad_input) ((float *)call->grad_input)[i] = memopt_i_times(g, w ? w[i] : 0.5f);
    }
    return MEMOPT_OK;
}
typedef struct shard_taped { memopt_ranks *ranks; int stage, slow, inside, jumps, all_jump; memopt_schedule_rule rule; size_t rank_count, uses; float weights[5][SHARD_WIDTH]; memopt_status status[4]; int seen[4]; } shard_taped;
static memopt_status shard_tape_pass(void *task) {
    shard_left *const l = (shard_left *)task;
    memopt_status s = memopt_tape_forward(l->tape, l->in);
    if (s) return s;
    memcpy(l->last, memopt_tape_output(l->tape), SHARD_WIDTH * 4);
    return memopt_tape_backward(l->tape, l->last, l->back);
}
static memopt_status shard_tape_train(float (*weights)[SHARD_WIDTH], memopt_shard *x, memopt_tape *tape, shard_left *left, int alone, memopt_error *why) {
    static const size_t steps = 3; size_t step, unit, t, i; memopt_status s; memopt_optim_tensor part; memopt_optim_group rates = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    float in[SHARD_WIDTH], last[SHARD_WIDTH], back[SHARD_WIDTH];
    memset(&part, 0, sizeof part);
    for (t = 0; t < 5; ++t) {
        CHECK(memopt_shard_part(x, t, &part) == MEMOPT_OK);
        if (!part.held) continue;
        CHECK(memopt_shard_bring(x, t, part.first, &part) == MEMOPT_OK);
        for (i = 0; i < part.held; ++i) ((float *)part.weights)[i] = 1 + 0.25f * shard_weight(t, part.first + i);
        CHECK(memopt_shard_put(x) == MEMOPT_OK);
    }
    s = memopt_shard_share(x);
    for (step = 1; !s && step <= steps; ++step) {
        memopt_optim_run run;
        memset(&run, 0, sizeof run);
        run.step = step; run.groups = &rates; run.group_count = 1;
        run.fused = x->desc.steps_inside;
        if (run.fused) CHECK(memopt_shard_step_inside(x, &run) == MEMOPT_OK);
        while ((s = memopt_shard_next_unit(x, &unit)) == MEMOPT_OK && unit != MEMOPT_SHARD_DONE) { /* as many units as a multiple of ranks */
            for (i = 0; i < SHARD_WIDTH; ++i) in[i] = shard_noise(7, i, unit, step);
            left->tape = tape; left->in = in; left->last = last; left->back = back;
            if (jump_caught(&left->landing, shard_tape_pass, left, &s)) {
                left->at = 0;
                CHECK(memopt_tape_cancel(tape) == MEMOPT_OK);
                if (alone) return MEMOPT_ERR_DEVICE;
                CHECK(memopt_shard_cancel(x) == MEMOPT_OK);
                continue;
            }
            if (s) { *why = memopt_tape_error(tape); return s; }
        }
        if (!s) s = memopt_shard_step(x, &run);
    }
    if (!s) s = memopt_tape_evaluate(tape, in, last);
    for (t = 0; !s && t < 5; ++t) {
        s = memopt_shard_forward(x, t);
        if (!s && memopt_shard_weights(x, t)) memcpy(weights[t], memopt_shard_weights(x, t), sizeof weights[t]); /* the same on all */
    }
    return s;
}
static void shard_tape_rank(void *task, size_t rank, int worker) {
    static const size_t groups[SHARD_CHAIN] = { 0, 1, 2, MEMOPT_SHARD_NO_GROUP, 3, 1, 4 };
    static float ends[4][5][SHARD_WIDTH]; /* of each rank */
    shard_taped *w = (shard_taped *)task; memopt_shard_segment segments[SHARD_CHAIN]; shard_segment_user users[SHARD_CHAIN]; memopt_tape_layer layers[SHARD_CHAIN]; memopt_segment chain[SHARD_CHAIN];
    memopt_shard_tensor tensors[5]; memopt_shard_use uses[64]; memopt_tape_desc td; memopt_tape *tape = NULL; memopt_shard_desc d; memopt_shard *x = NULL; memopt_comm_desc cd; size_t i; memopt_error why; float in[SHARD_WIDTH], back[SHARD_WIDTH]; shard_disk disk; shard_left left;
    (void)worker;
    memset(&left, 0, sizeof left);
    memset(&cd, 0, sizeof cd); memset(&d, 0, sizeof d); memset(&td, 0, sizeof td); memset(chain, 0, sizeof chain); memset(tensors, 0, sizeof tensors); memset(&why, 0, sizeof why);
    for (i = 0; i < SHARD_CHAIN; ++i) {
        users[i].segment = &segments[i]; users[i].tensor = groups[i]; users[i].adds = i == 1; users[i].seen = &w->seen[rank]; users[i].left = &left;
        segments[i].layer.forward_fn = segments[i].layer.backward_fn = shard_scale; segments[i].layer.user = &users[i]; segments[i].group = groups[i]; segments[i].shard = NULL;
        chain[i].output_bytes = chain[i].grad_bytes = SHARD_WIDTH * 4;
    }
    segments[SHARD_CHAIN - 1].layer.forward_fn = shard_scale;
    CHECK(memopt_shard_layers(segments, SHARD_CHAIN, layers) == MEMOPT_OK);
    td.chain.segments = chain; td.chain.count = SHARD_CHAIN; td.chain.input_bytes = td.chain.input_grad_bytes = SHARD_WIDTH * 4; td.layers = layers; td.rule = w->rule; td.every = 2;
    td.overhead = w->rule == MEMOPT_SCHEDULE_EXTENDED ? 1.5 : 0;
    CHECK(memopt_tape_open(&td, &tape) == MEMOPT_OK);
    cd.transport = memopt_ranks_transport(w->ranks, rank);
    CHECK(memopt_comm_create(&cd, &d.comm) == MEMOPT_OK);
    for (i = 0; i < 5; ++i) { tensors[i].count = SHARD_WIDTH; tensors[i].group = i; }
    CHECK(memopt_shard_tape_uses(tape, segments, NULL, &d.use_count) == MEMOPT_OK && d.use_count <= 64);
    CHECK(memopt_shard_tape_uses(tape, segments, uses, &d.use_count) == MEMOPT_OK && d.use_count >= 12 && uses[0].group == 0 && !uses[0].is_backward);
    d.stage = w->stage; d.tensors = tensors; d.tensor_count = 5; d.uses = uses; d.units = w->inside ? 1 : 4;
    d.slow = w->slow; d.steps_inside = w->inside;
    shard_disk_make(&disk, &d, 0, 0);
    d.store = disk.store;
    CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK);
    for (i = 0; i < SHARD_CHAIN; ++i) segments[i].shard = x;
    if (rank == 0) w->uses = d.use_count;
    for (i = 0; i < SHARD_WIDTH; ++i) in[i] = 1; /* what measures times has weights where nothing is cut, and else says so */
    CHECK(memopt_tape_calibrate(tape, in, in, back, 1) == (w->stage < 2 ? MEMOPT_OK : MEMOPT_ERR_STATE));
    if (w->jumps && (w->all_jump || rank == 1)) left.at = w->seen[rank] + w->jumps;
    w->status[rank] = x && tape ? shard_tape_train(ends[rank], x, tape, &left, !w->all_jump, &why) : MEMOPT_ERR_MEMORY;
    if (w->status[rank]) memopt_comm_abort(d.comm);
    else if (rank == w->rank_count - 1) memcpy(w->weights, ends[rank], sizeof w->weights);
    memopt_shard_close(x); memopt_tape_destroy(tape); memopt_comm_destroy(d.comm);
    shard_disk_end(&disk);
}
static void shard_tape(void) {
    static shard_taped first, alone, w; size_t r, i; int stage, rule, slow; static const memopt_schedule_rule rules[3] = { MEMOPT_SCHEDULE_ALL, MEMOPT_SCHEDULE_EVERY, MEMOPT_SCHEDULE_NONE };
    memopt_tape_layer layer; memopt_shard_segment segment; size_t n = 0;
    memset(&first, 0, sizeof first); memset(&segment, 0, sizeof segment);
    memset(&alone, 0, sizeof alone);
    for (rule = 0; rule < 3; ++rule) for (slow = 0; slow < 3; ++slow) for (stage = 0; stage < 4; ++stage) for (r = 1; r <= 4; r *= 2) {
        memopt_ranks_desc d; memopt_thread_pool *pool = NULL; memopt_threads t;
        memset(&w, 0, sizeof w); memset(&d, 0, sizeof d);
        w.stage = stage; w.slow = !slow ? 0 : stage == 3 ? 7 : 3; w.inside = slow == 2; /* inside: of one unit */
 w.rule = rules[rule]; w.rank_count = d.rank_count = r;
        CHECK(memopt_ranks_create(&d, &w.ranks) == MEMOPT_OK && memopt_thread_pool_create(NULL, (int)r, &pool) == MEMOPT_OK);
        if (!pool) return;
        t = memopt_thread_pool_threads(pool);
        t.run_fn(t.user, r, shard_tape_rank, &w);
        memopt_thread_pool_destroy(pool); memopt_ranks_destroy(w.ranks);
        if (!rule && !stage && r == 1 && !slow) first = w;
        if (!rule && !stage && r == 1 && slow == 2) alone = w;
        for (i = 0; i < r; ++i) CHECK_AT(w.status[i] == MEMOPT_OK && (w.seen[i] > 0 || (w.inside && i)), 100 * r + 10 * (size_t)stage + (size_t)rule);
        CHECK_AT(w.rule == MEMOPT_SCHEDULE_ALL ? w.uses == 12 : w.uses > 12, r);
        CHECK_AT(!memcmp(w.weights, slow == 2 ? alone.weights : first.weights, sizeof w.weights) && w.weights[4][3] != 0, 100 * r + 10 * (size_t)stage + (size_t)rule);
    }
    CHECK(memopt_shard_layers(NULL, 1, &layer) == MEMOPT_ERR_ARGUMENT && memopt_shard_layers(&segment, 1, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_shard_layers(&segment, 1, &layer) == MEMOPT_OK && !layer.forward_fn && !layer.backward_fn);
    CHECK(memopt_shard_tape_uses(NULL, &segment, NULL, &n) == MEMOPT_ERR_ARGUMENT);
}
/* A callback jumps on all ranks, and they go on as if nothing had been; or on one, which gives up, and the other learns it. */
static void shard_tape_jumps(void) {
    static shard_taped good, w; int k;
    memset(&good, 0, sizeof good);
    for (k = 0; k < 48; ++k) {
        static const memopt_schedule_rule rules[3] = { MEMOPT_SCHEDULE_ALL, MEMOPT_SCHEDULE_EVERY, MEMOPT_SCHEDULE_NONE };
        memopt_ranks_desc d; memopt_thread_pool *pool = NULL; memopt_threads t;
        memset(&w, 0, sizeof w); memset(&d, 0, sizeof d);
        w.stage = k % 4; w.slow = k % 3 ? 0 : w.stage == 3 ? 7 : 3; w.rule = rules[k / 4 % 3]; w.all_jump = k < 32; w.jumps = k * 5 % 27;
        w.rank_count = d.rank_count = k < 32 ? 1 + (size_t)(k / 2 % 2) : 2;
        CHECK(memopt_ranks_create(&d, &w.ranks) == MEMOPT_OK && memopt_thread_pool_create(NULL, (int)w.rank_count, &pool) == MEMOPT_OK);
        if (!pool) return;
        t = memopt_thread_pool_threads(pool);
        t.run_fn(t.user, w.rank_count, shard_tape_rank, &w);
        memopt_thread_pool_destroy(pool); memopt_ranks_destroy(w.ranks);
        if (!k) { CHECK(!w.jumps); good = w; }
        if (w.all_jump) CHECK_AT(!w.status[0] && !w.status[1] && !memcmp(w.weights, good.weights, sizeof w.weights), k);
        else CHECK_AT(!w.jumps || (w.status[0] == MEMOPT_ERR_STATE && w.status[1] == MEMOPT_ERR_DEVICE), k);
    }
}
/* ---- a simulation against a shard that runs: threads, and a clock of the test's own that calls and uses move on ---- */
typedef struct shard_clock { double now, exposed, computed, calls; } shard_clock;
typedef struct shard_timed { memopt_transport inner; shard_clock *clock; memopt_shard_link link; double is_free, over[MEMOPT_COMM_CALLS]; } shard_timed;
static memopt_status shard_timed_begin(void *user, const memopt_comm_call *call, size_t slot, memopt_error *error) {
    shard_timed *t = (shard_timed *)user; const double takes = t->link.latency + (double)(call->bytes * (t->inner.rank_count - 1)) / t->link.bandwidth;
    t->is_free = (t->is_free > t->clock->now ? t->is_free : t->clock->now) + takes;
    t->over[slot] = t->link.waits ? takes : t->is_free;
    t->clock->calls += takes;
    return t->inner.begin_fn(t->inner.user, call, slot, error);
}
static memopt_status shard_timed_wait(void *user, size_t slot, memopt_error *error) {
    shard_timed *t = (shard_timed *)user; const double until = t->over[slot] + (t->link.waits ? t->clock->now : 0);
    if (until > t->clock->now) { t->clock->exposed += until - t->clock->now; t->clock->now = until; }
    return t->inner.wait_fn(t->inner.user, slot, error);
}
static void shard_timed_abort(void *user) { shard_timed *t = (shard_timed *)user; t->inner.abort_fn(t->inner.user); }
static memopt_comm *shard_timed_comm(memopt_transport inner, shard_timed *t, shard_clock *clock, memopt_shard_link link) {
    memopt_comm_desc d; memopt_comm *x = NULL;
    memset(&d, 0, sizeof d); memset(t, 0, sizeof *t);
    t->inner = inner; t->clock = clock; t->link = link;
    d.transport = inner; d.unchecked = 1;
    d.transport.begin_fn = shard_timed_begin; d.transport.wait_fn = shard_timed_wait; d.transport.abort_fn = shard_timed_abort; d.transport.user = t;
    CHECK(memopt_comm_create(&d, &x) == MEMOPT_OK);
    return x;
}
typedef struct shard_timing { const shard_case *c; const memopt_shard_machine *machine; memopt_ranks *rows[SHARD_MOST], *columns[SHARD_MOST]; shard_clock clocks[SHARD_MOST]; } shard_timing;
static void shard_timing_rank(void *task, size_t index, int worker) { /* one step; gradients are what memory has: zero */
    shard_timing *w = (shard_timing *)task; const shard_case *c = w->c; const size_t set = index / c->ranks, rank = index % c->ranks; shard_timed lines[2]; shard_clock *clock = &w->clocks[index];
    memopt_shard_desc d = shard_desc(c); memopt_shard *x = NULL; memopt_optim_group rates[2]; memopt_optim_run run; size_t unit, i, uses = c->walks == 1 ? 13 : 2 * SHARD_GROUPS; memopt_status s = MEMOPT_OK;
    const memopt_shard_use *walk = c->walks == 1 ? shard_walk : shard_large_first;
    (void)worker;
    memset(&run, 0, sizeof run);
    shard_rates(c->kind, rates);
    run.step = 1; run.groups = rates; run.group_count = 2;
    d.comm = shard_timed_comm(memopt_ranks_transport(w->rows[set], rank), &lines[0], clock, w->machine->comm);
    if (c->sets > 1) d.replicas = shard_timed_comm(memopt_ranks_transport(w->columns[rank], set), &lines[1], clock, w->machine->replicas);
    CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK && memopt_shard_share(x) == MEMOPT_OK);
    memset(clock, 0, sizeof *clock); lines[0].is_free = 0;
    while (x && !s && (s = memopt_shard_next_unit(x, &unit)) == MEMOPT_OK && unit != MEMOPT_SHARD_DONE) {
        int left[SHARD_GROUPS];
        for (i = 0; i < SHARD_GROUPS; ++i) left[i] = c->walks == 1 && !i ? 2 : 1;
        for (i = 0; !s && i < uses; ++i) {
            const size_t g = c->walks ? walk[i].group : i < SHARD_GROUPS ? i : 2 * SHARD_GROUPS - 1 - i; const int back = c->walks ? walk[i].is_backward : i >= SHARD_GROUPS;
            s = back ? memopt_shard_backward(x, g) : memopt_shard_forward(x, g);
            if (unit != MEMOPT_SHARD_NO_UNIT) { clock->now += w->machine->uses[i]; clock->computed += w->machine->uses[i]; }
            if (!s && back && !--left[g]) s = memopt_shard_reduce(x, g);
        }
    }
    clock->now += w->machine->step; clock->computed += w->machine->step;
    if (!s && x) s = memopt_shard_step(x, &run);
    CHECK_AT(s == MEMOPT_OK, index);
    memopt_shard_close(x); memopt_comm_destroy(d.replicas); memopt_comm_destroy(d.comm);
}
static int shard_near(double a, double b) { return fabs(a - b) <= 1e-9 * (fabs(b) + 1e-6); }
static void shard_simulated(void) {
    static const size_t shapes[5][2] = { { 1, 1 }, { 2, 1 }, { 3, 1 }, { 2, 2 }, { 1, 3 } }; static const double uses[13] = { 2e-3, 1e-3, 3e-3, 5e-4, 0, 4e-3, 1e-3, 2e-3, 7e-3, 1e-4, 3e-3, 2e-3, 1e-3 };
    shard_case c = shard_usual(); size_t i, k, hidden = 0; int waits, walks;
    c.units = 5;
    for (waits = 0; waits < 2; ++waits) for (walks = 0; walks < 3; ++walks) for (i = 0; i < 5; ++i) for (c.stage = 0; c.stage < 4; ++c.stage) {
        static shard_timing w; memopt_shard_machine m; memopt_shard_seconds s; memopt_shard_desc d; memopt_ranks_desc r; memopt_thread_pool *pool = NULL; memopt_threads t; const uint64_t id = 1000 * (uint64_t)waits + 100 * (uint64_t)walks + 10 * i + (uint64_t)c.stage;
        if (test_is_passed_over()) continue;
        memset(&w, 0, sizeof w); memset(&m, 0, sizeof m); memset(&r, 0, sizeof r);
        c.ranks = shapes[i][0]; c.sets = shapes[i][1]; c.walks = walks; c.bucket = walks == 2 ? c.ranks * 2048 : 300000;
        m.comm.latency = 1e-4; m.comm.bandwidth = 1e8; m.comm.waits = waits; m.replicas.latency = 2e-4; m.replicas.bandwidth = 3e7; m.uses = uses; m.step = 5e-3;
        w.c = &c; w.machine = &m;
        r.rank_count = c.ranks;
        for (k = 0; k < c.sets; ++k) CHECK(memopt_ranks_create(&r, &w.rows[k]) == MEMOPT_OK);
        r.rank_count = c.sets;
        for (k = 0; k < c.ranks; ++k) CHECK(memopt_ranks_create(&r, &w.columns[k]) == MEMOPT_OK);
        CHECK(memopt_thread_pool_create(NULL, (int)(c.ranks * c.sets), &pool) == MEMOPT_OK);
        if (!pool) return;
        t = memopt_thread_pool_threads(pool);
        t.run_fn(t.user, c.ranks * c.sets, shard_timing_rank, &w);
        memopt_thread_pool_destroy(pool);
        for (k = 0; k < c.sets; ++k) memopt_ranks_destroy(w.rows[k]);
        for (k = 0; k < c.ranks; ++k) memopt_ranks_destroy(w.columns[k]);
        d = shard_desc(&c); d.rank_count = c.ranks; d.rank = c.ranks - 1; d.replica_count = c.sets;
        CHECK_AT(memopt_shard_simulate(&d, &m, &s) == MEMOPT_OK, id);
        CHECK_AT(shard_near(s.total, w.clocks[0].now) && shard_near(s.exposed, w.clocks[0].exposed) && shard_near(s.computing, w.clocks[0].computed), id);
        CHECK_AT(shard_near(s.communication, w.clocks[0].calls) && shard_near(s.total, s.computing + s.exposed), id);
        CHECK_AT(waits && c.sets == 1 ? shard_near(s.exposed, s.communication) : s.exposed <= s.communication * (1 + 1e-9), id);
        hidden += s.exposed < 0.7 * s.communication;
    }
    CHECK(TEST_STRIDE > 7 || hidden > 5 / TEST_STRIDE);
}
/* A second step gives up after some of its calls; the next one is as if it had not been. */
/* One rank was made otherwise: every rank is told so, and by which field. */
static const char *const shard_odd_names[] = { "stage", "units", "gradients", "steps_inside", "bucket_bytes", "tensors", "tensors", "uses", "kind", "state", "weights", "extra",
    "type of the sums", "first_moment", "block", "min_quantized", "seed",
    "muon", "tensors", "tensors", "unit_ranks", "interleaved" };
static const memopt_shard_use shard_odd_walk[8] = { { 0, 0 }, { 1, 0 }, { 2, 0 }, { 3, 1 }, { 3, 1 }, { 2, 1 }, { 1, 1 }, { 0, 1 } }; /* the fourth: backward */
typedef struct shard_odd { const shard_case *c; memopt_ranks *rows[SHARD_MOST], *columns[SHARD_MOST]; size_t field, rank; } shard_odd;
static void shard_odd_desc(memopt_shard_desc *d, memopt_shard_tensor *listed, size_t field) {
    memcpy(listed, shard_model, sizeof shard_model);
    switch (field) {
    case 0: d->stage = 1; break;
    case 1: d->units = 3; break;
    case 2: d->gradients = MEMOPT_TYPE_BF16; break;
    case 3: d->steps_inside = 1; break;
    case 4: d->bucket_bytes = 200000; break;
    case 5: --listed[0].count; listed[0].columns = 0; d->tensors = listed; break;
    case 6: listed[4].rates = 0; d->tensors = listed; break;
    case 7: d->uses = shard_odd_walk; d->use_count = 8; break;
    case 8: d->optim.kind = MEMOPT_OPTIM_LION; break;
    case 9: d->optim.state = MEMOPT_STATE_F32; break;
    case 10: d->optim.weights = MEMOPT_TYPE_BF16; break;
    case 11: d->optim.extra = MEMOPT_OPTIM_EXTRA_COPY; break;
    case 12: d->optim.gradients = MEMOPT_TYPE_BF16; break;
    case 13: d->optim.kind = MEMOPT_OPTIM_RMSPROP; d->optim.first_moment = 1; break;
    case 14: d->optim.block = 128; break;
    case 15: d->optim.min_quantized = 5000; break;
    case 16: d->optim.seed = UINT64_C(1) << 40; break;
    case 17: d->optim.muon = memopt_muon_products(MEMOPT_TYPE_F32); break;
    case 18: listed[5].adamw = 1; d->tensors = listed; break;
    case 19: listed[5].absent = 1; d->tensors = listed; break;
    case 20: d->unit_ranks = 2; break;
    default: d->interleaved = 1;
    }
}
static void shard_odd_rank(void *task, size_t index, int worker) {
    shard_odd *w = (shard_odd *)task; const shard_case *c = w->c; const size_t set = index / c->ranks, rank = index % c->ranks; char text[99]; int turn;
    memopt_shard_desc d = shard_desc(c); memopt_shard_tensor listed[SHARD_TENSORS]; memopt_shard *x = NULL; memopt_comm_desc cd;
    (void)worker;
    memset(&cd, 0, sizeof cd);
    if (w->field == 13) d.optim.kind = MEMOPT_OPTIM_RMSPROP;
    if (w->field > 16) { d.optim.kind = MEMOPT_OPTIM_MUON; d.optim.muon = memopt_muon_products(MEMOPT_TYPE_BF16); }
    if (w->field == 21) d.stage = 1;
    if (index == w->rank) shard_odd_desc(&d, listed, w->field);
    cd.transport = memopt_ranks_transport(w->rows[set], rank);
    CHECK(memopt_comm_create(&cd, &d.comm) == MEMOPT_OK);
    cd.transport = memopt_ranks_transport(w->columns[rank], set);
    if (c->sets > 1) CHECK(memopt_comm_create(&cd, &d.replicas) == MEMOPT_OK);
    CHECK_AT(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK, w->field);
    if (!x) { memopt_comm_abort(d.comm); memopt_comm_abort(d.replicas); memopt_comm_abort(d.others); }
    sprintf(text, "shard: %s is not that of rank 0 at rank %u", shard_odd_names[w->field], (unsigned)w->rank);
    for (turn = 0; x && turn < 2; ++turn)
        CHECK_AT(memopt_shard_share(x) == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_shard_error(x), MEMOPT_ERR_ARGUMENT, text) && memopt_shard_is_intact(x), w->field);
    memopt_shard_close(x); memopt_comm_destroy(d.comm); memopt_comm_destroy(d.replicas);
}
static void shard_odd_one(void) {
    shard_case c = shard_usual(); shard_odd w; memopt_thread_pool *pool = NULL; memopt_threads t; memopt_ranks_desc d; size_t i;
    memset(&w, 0, sizeof w); memset(&d, 0, sizeof d);
    w.c = &c; c.stage = 2;
    CHECK(memopt_thread_pool_create(NULL, 4, &pool) == MEMOPT_OK);
    if (!pool) return;
    t = memopt_thread_pool_threads(pool);
    for (c.sets = 1; c.sets < 3; ++c.sets) {
        c.ranks = 4 / c.sets; c.units = 4;
        d.rank_count = c.ranks;
        for (i = 0; i < c.sets; ++i) CHECK(memopt_ranks_create(&d, &w.rows[i]) == MEMOPT_OK);
        d.rank_count = c.sets;
        for (i = 0; i < c.ranks; ++i) CHECK(memopt_ranks_create(&d, &w.columns[i]) == MEMOPT_OK);
        for (w.field = 0; w.field < sizeof shard_odd_names / sizeof *shard_odd_names; ++w.field) {
            if (w.field == 12 && c.sets > 1) continue; /* 16-bit sums are for one set */
            w.rank = 1 + w.field % 3;
            t.run_fn(t.user, c.ranks * c.sets, shard_odd_rank, &w);
        }
        for (i = 0; i < c.sets; ++i) memopt_ranks_destroy(w.rows[i]);
        for (i = 0; i < c.ranks; ++i) memopt_ranks_destroy(w.columns[i]);
    }
    memopt_thread_pool_destroy(pool);
}
static void shard_cancelled(void) {
    shard_case c = shard_usual(); shard_whole whole; int stage; size_t unit, g;
    c.ranks = 1; c.units = 2; c.steps = 1; c.walks = 1;
    shard_reference(&c, &whole);
    for (stage = 0; stage < 4; ++stage) {
        shard_world w; memopt_shard_desc d; memopt_shard *x = NULL; const size_t upto = 3;
        memset(&w, 0, sizeof w);
        c.stage = stage; w.c = &c; w.whole = &whole;
        d = shard_desc(&c);
        CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK && memopt_shard_cancel(x) == MEMOPT_ERR_STATE);
        CHECK(memopt_shard_next_unit(x, &unit) == MEMOPT_OK && unit == 0);
        for (g = 0; g < upto; ++g) CHECK(memopt_shard_forward(x, g) == MEMOPT_OK);
        CHECK(memopt_shard_share(x) == MEMOPT_ERR_STATE && memopt_shard_cancel(x) == MEMOPT_OK && memopt_shard_cancel(x) == MEMOPT_ERR_STATE);
        CHECK(shard_train(&w, x) == MEMOPT_OK && shard_same(&w, &whole, x));
        memopt_shard_close(x);
    }
    shard_free_whole(&whole);
}
/* Not finite: 2 values of a tensor that rank 0 alone has, 3 of one of rank 1's, 1 of one that both have: 6 everywhere. */
typedef struct shard_counting { memopt_ranks *rows, *others; } shard_counting;
static void shard_counts_rank(void *task, size_t index, int worker) { /* two sets of two, which cut what they have */
    static const memopt_shard_tensor tensors[3] = { { 1000, 0, 0, 0, 0, 0 }, { 300, 0, 0, 0, 0, 0 }, { 512, 0, 0, 1, 0, 0 } };
    shard_counting *w = (shard_counting *)task; const size_t share = index / 2, rank = index % 2; memopt_shard_tensor own[3]; memopt_shard_desc d; memopt_comm_desc cd; memopt_shard *x = NULL; memopt_gradient_total total; size_t unit, t, i;
    (void)worker;
    memset(&d, 0, sizeof d); memset(&cd, 0, sizeof cd); memset(&total, 0, sizeof total); memcpy(own, tensors, sizeof own);
    own[share ? 0 : 1].absent = 1;
    d.stage = 1; d.tensors = own; d.tensor_count = 3;
    cd.transport = memopt_ranks_transport(w[share].rows, rank);
    CHECK(memopt_comm_create(&cd, &d.comm) == MEMOPT_OK);
    cd.transport = memopt_ranks_transport(w[rank].others, share);
    CHECK(memopt_comm_create(&cd, &d.others) == MEMOPT_OK);
    CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK && memopt_shard_share(x) == MEMOPT_OK && memopt_shard_next_unit(x, &unit) == MEMOPT_OK);
    for (t = 3; t-- > 0; ) {
        float *out = own[t].absent ? NULL : (float *)memopt_shard_gradients(x, t);
        for (i = 0; out && i < own[t].count; ++i) out[i] = 1;
        if (out && !rank) out[7] = memopt_i_bits_float(0x7f800000u);
        if (out && !rank && t < 2) out[t ? 299 : 999] = memopt_i_bits_float(0xff800000u); /* of the other rank's part */
        if (out && !rank && t == 1) out[9] = memopt_i_bits_float(0x7fc00000u);
    }
    CHECK(memopt_shard_reduce(x, 1) == MEMOPT_OK && memopt_shard_reduce(x, 0) == MEMOPT_OK);
    CHECK(memopt_shard_next_unit(x, &unit) == MEMOPT_OK && memopt_shard_measure(x, NULL, &total) == MEMOPT_OK);
    CHECK_AT(total.overflow == 1 && total.nonfinite == 6 && !memopt_i_finite_double(total.squares), index);
    memopt_shard_close(x); memopt_comm_destroy(d.comm); memopt_comm_destroy(d.others);
}
static void shard_counts_others(void) {
    shard_counting w[2]; memopt_thread_pool *pool = NULL; memopt_threads t; memopt_ranks_desc d; size_t i;
    memset(&d, 0, sizeof d);
    d.rank_count = 2;
    CHECK(memopt_thread_pool_create(NULL, 4, &pool) == MEMOPT_OK);
    if (!pool) return;
    for (i = 0; i < 2; ++i) CHECK(memopt_ranks_create(&d, &w[i].rows) == MEMOPT_OK && memopt_ranks_create(&d, &w[i].others) == MEMOPT_OK);
    t = memopt_thread_pool_threads(pool);
    t.run_fn(t.user, 4, shard_counts_rank, w);
    for (i = 0; i < 2; ++i) { memopt_ranks_destroy(w[i].rows); memopt_ranks_destroy(w[i].others); }
    memopt_thread_pool_destroy(pool);
}
#else
static void shard_no_threads(void) { SKIP("compiled without MEMOPT_PTHREADS"); }
#endif

/* ---- the plan ---- */
static memopt_shard_desc shard_plain(void) { /* two groups, one rank, stage 3 */
    static const memopt_shard_tensor tensors[3] = { { 1000, 0, 0, 0, 0, 0 }, { 300, 0, 0, 0, 0, 0 }, { 512, 0, 0, 1, 0, 0 } };
    memopt_shard_desc d;
    memset(&d, 0, sizeof d);
    d.stage = 3; d.tensors = tensors; d.tensor_count = 3;
    return d;
}
static void shard_plan_refuses(void) {
    static const memopt_shard_tensor empty[1] = { { 0, 0, 0, 0, 0, 0 } }, second[1] = { { 5, 0, 0, 1, 0, 0 } }, first[2] = { { 5, 0, 0, 1, 0, 0 }, { 5, 0, 0, 1, 0, 0 } },
        back[3] = { { 5, 0, 0, 0, 0, 0 }, { 5, 0, 0, 1, 0, 0 }, { 5, 0, 0, 0, 0, 0 } }, hole[3] = { { 5, 0, 0, 0, 0, 0 }, { 5, 0, 0, 2, 0, 0 }, { 5, 0, 0, 2, 0, 0 } },
        large[2] = { { SIZE_MAX / 2, 0, 0, 0, 0, 0 }, { SIZE_MAX / 2 + 9, 0, 0, 1, 0, 0 } }, huge[1] = { { SIZE_MAX - 100, 0, 0, 0, 0, 0 } };
    static const memopt_shard_tensor odd[2] = { { 5, 0, 0, 0, 0, 0 }, { 5, 0, 0, 0, 0, 2 } };
    static const memopt_shard_tensor wide[1] = { { SIZE_MAX / 40, 0, 0, 0, 0, 0 } }, apart[3] = { { 5, 0, 0, 0, 0, 0 }, { 5, 0, 0, 1, 0, 1 }, { 5, 0, 0, 2, 0, 0 } };
    static const memopt_shard_use trailing[3] = { { 1, 1 }, { 0, 1 }, { 1, 0 } }, other[1] = { { 2, 1 } }, flag[1] = { { 0, 2 } }, forward[3] = { { 0, 0 }, { 1, 0 }, { 1, 1 } };
    const memopt_shard_desc right = shard_plain(); memopt_shard_desc x = right; memopt_shard_bytes b; memopt_shard *out = NULL; memopt_shard_device device; memopt_shard_kernels kernels = shard_device_kernels();
    CHECK(memopt_shard_plan(NULL, &b) == MEMOPT_ERR_ARGUMENT && memopt_shard_open(NULL, NULL, &out) == MEMOPT_ERR_ARGUMENT);
    ACCEPTS(x.error, (void)0, memopt_shard_plan(&x, &b));
    memset(&b, 7, sizeof b);
    CHECK(memopt_shard_plan(&right, NULL) == MEMOPT_ERR_ARGUMENT);
#define SHARD_REFUSES(change, status, text) do { x = right; REFUSES(x.error, change, memopt_shard_plan(&x, &b), status, text); } while (0)
    x = right; REFUSES(x.error, (void)0, memopt_shard_plan(&x, NULL), MEMOPT_ERR_ARGUMENT, "shard: bytes is NULL");
    x = right; REFUSES(x.error, (void)0, memopt_shard_open(&x, NULL, NULL), MEMOPT_ERR_ARGUMENT, "shard: out is NULL");
    SHARD_REFUSES(x.stage = 4, MEMOPT_ERR_ARGUMENT, "shard: stage 4, is none: 0 to 3");
    SHARD_REFUSES(x.stage = -1, MEMOPT_ERR_ARGUMENT, "shard: stage -1, is none: 0 to 3");
    SHARD_REFUSES(x.tensors = NULL, MEMOPT_ERR_ARGUMENT, "shard: tensors is NULL");
    SHARD_REFUSES(x.tensor_count = 0, MEMOPT_ERR_ARGUMENT, "shard: tensor_count 0, at least 1");
    SHARD_REFUSES(x.rank = 1, MEMOPT_ERR_ARGUMENT, "shard: rank 1, below 1");
    SHARD_REFUSES(x.rank_count = 65537, MEMOPT_ERR_ARGUMENT, "shard: rank_count 65537, at most 65536");
    SHARD_REFUSES(x.replica_count = 65537, MEMOPT_ERR_ARGUMENT, "shard: replica_count 65537, at most 65536");
    SHARD_REFUSES((x.rank_count = 6, x.unit_ranks = 4), MEMOPT_ERR_ARGUMENT, "shard: unit_ranks 4, must be a power of two that divides the ranks, of which there are 6");
    SHARD_REFUSES((x.rank_count = 6, x.unit_ranks = 3), MEMOPT_ERR_ARGUMENT, "shard: unit_ranks 3, must be a power of two that divides the ranks, of which there are 6");
#if SIZE_MAX > 0xffffffffu
    SHARD_REFUSES(x.unit_ranks = SIZE_MAX, MEMOPT_ERR_ARGUMENT, "shard: unit_ranks 18446744073709551615, must be a power of two that divides the ranks, of which there are 1");
#endif
    SHARD_REFUSES((x.tensors = apart, x.tensor_count = 3), MEMOPT_ERR_ARGUMENT, "shard: group 1, has absent tensors alone: list them in another one's group");
    SHARD_REFUSES((x.stage = 1, x.interleaved = 2), MEMOPT_ERR_ARGUMENT, "shard: interleaved 2, must be 0 or 1");
    SHARD_REFUSES((x.stage = 2, x.interleaved = 1), MEMOPT_ERR_ARGUMENT, "shard: stage 2, interleaved, at most 1");
    SHARD_REFUSES((x.stage = 1, x.interleaved = x.steps_inside = 1), MEMOPT_ERR_ARGUMENT, "shard: interleaved is 1, beside steps_inside");
    SHARD_REFUSES((x.stage = 1, x.interleaved = 1, x.units = 3, x.rank_count = 2), MEMOPT_ERR_ARGUMENT, "shard: units 3, interleaved, a multiple of those at a time, 2");
    SHARD_REFUSES((x.stage = 1, x.interleaved = 1, x.units = 3, x.rank_count = 8, x.unit_ranks = 4), MEMOPT_ERR_ARGUMENT, "shard: units 3, interleaved, a multiple of those at a time, 2");
    SHARD_REFUSES((x.stage = 1, x.interleaved = 1, x.units = 8, x.rank_count = 2, x.replica_count = 3), MEMOPT_ERR_ARGUMENT, "shard: units 8, interleaved, a multiple of those at a time, 6");
    SHARD_REFUSES((x.rank_count = 2, x.unit_ranks = 2, x.gradients = MEMOPT_TYPE_BF16), MEMOPT_ERR_ARGUMENT, "shard: gradients must be F32 where several ranks compute a unit together");
    SHARD_REFUSES((x.rank_count = 2, x.unit_ranks = 2, x.units = SIZE_MAX / 2 + 1), MEMOPT_ERR_OVERFLOW, "shard: units are so many that those of all ranks do not fit size_t");
    SHARD_REFUSES(x.use_count = 1, MEMOPT_ERR_ARGUMENT, "shard: uses is NULL");
    SHARD_REFUSES((x.uses = trailing, x.use_count = 3), MEMOPT_ERR_ARGUMENT, "shard: uses end with a forward: nobody needs it");
#if SIZE_MAX > 0xffffffffu /* else they always fit */
    SHARD_REFUSES((x.rank_count = 2, x.units = SIZE_MAX / 2), MEMOPT_ERR_OVERFLOW, "shard: units are so many that the bytes a step sends do not fit 64 bits");
    SHARD_REFUSES((x.rank_count = 2, x.units = SIZE_MAX / 50000), MEMOPT_ERR_OVERFLOW, "shard: units are so many that the bytes a step sends do not fit 64 bits");
#endif
    SHARD_REFUSES((x.tensors = wide, x.tensor_count = 1), MEMOPT_ERR_OVERFLOW, "shard: tensors are too large together: a rank's memory does not fit size_t");
    x = right; x.rank_count = 2; REFUSES(x.error, (void)0, memopt_shard_open(&x, NULL, &out), MEMOPT_ERR_ARGUMENT, "shard: rank_count 2, without a comm, but in a plan, 1");
    x = right; x.replica_count = 3; REFUSES(x.error, (void)0, memopt_shard_open(&x, NULL, &out), MEMOPT_ERR_ARGUMENT, "shard: replica_count 3, without replicas, but in a plan, 1");
    SHARD_REFUSES(x.gradients = (memopt_type)test_number_of(9), MEMOPT_ERR_ARGUMENT, "shard: gradients 9, at most 2");
    SHARD_REFUSES(x.optim.gradients = MEMOPT_TYPE_F16, MEMOPT_ERR_ARGUMENT, "shard: optim.gradients is the type of sums: F32 or BF16");
    SHARD_REFUSES((x.optim.gradients = MEMOPT_TYPE_BF16, x.units = 2), MEMOPT_ERR_ARGUMENT, "shard: optim.gradients is BF16: sums of several rounds or sets are F32");
    SHARD_REFUSES((x.optim.gradients = MEMOPT_TYPE_BF16, x.replica_count = 2), MEMOPT_ERR_ARGUMENT, "shard: optim.gradients is BF16: sums of several rounds or sets are F32");
    SHARD_REFUSES(x.optim.block = 48, MEMOPT_ERR_ARGUMENT, "shard: optim.block 48, must be a multiple of 32, at most 4096");
    SHARD_REFUSES(x.optim.block = 8192, MEMOPT_ERR_ARGUMENT, "shard: optim.block 8192, must be a multiple of 32, at most 4096");
    SHARD_REFUSES(x.optim.kind = (memopt_optim_kind)test_number_of(99), MEMOPT_ERR_ARGUMENT, "optim: kind 99, at most 8");
    SHARD_REFUSES((x.tensors = odd, x.tensor_count = 2), MEMOPT_ERR_ARGUMENT, "shard: absent 2 at tensor 1, must be 0 or 1");
    SHARD_REFUSES((x.tensors = empty, x.tensor_count = 1), MEMOPT_ERR_ARGUMENT, "shard: count 0 at tensor 0, at least 1");
    SHARD_REFUSES((x.tensors = second, x.tensor_count = 1), MEMOPT_ERR_ARGUMENT, "shard: groups of tensors 1, the last must be below tensor_count 1");
    SHARD_REFUSES((x.tensors = first, x.tensor_count = 2), MEMOPT_ERR_ARGUMENT, "shard: group 1 at tensor 0, must be that of the tensor before, or the next, after 0");
    SHARD_REFUSES((x.tensors = back, x.tensor_count = 3), MEMOPT_ERR_ARGUMENT, "shard: group 1 at tensor 1, must be that of the tensor before, or the next, after 0");
    SHARD_REFUSES((x.tensors = hole, x.tensor_count = 3), MEMOPT_ERR_ARGUMENT, "shard: group 2 at tensor 1, must be that of the tensor before, or the next, after 0");
    SHARD_REFUSES((x.tensors = large, x.tensor_count = 2), MEMOPT_ERR_OVERFLOW, "shard: tensors are too large together: a rank's memory does not fit size_t");
    SHARD_REFUSES((x.tensors = huge, x.tensor_count = 1), MEMOPT_ERR_OVERFLOW, "shard: tensors are too large together: a rank's memory does not fit size_t");
    SHARD_REFUSES((x.uses = other, x.use_count = 1), MEMOPT_ERR_ARGUMENT, "shard: group 2 at use 0, below 2");
    SHARD_REFUSES((x.uses = flag, x.use_count = 1), MEMOPT_ERR_ARGUMENT, "shard: is_backward 2 at use 0, must be 0 or 1");
    SHARD_REFUSES((x.uses = forward, x.use_count = 3), MEMOPT_ERR_ARGUMENT, "shard: group 0, has no backward among the uses");
    SHARD_REFUSES((x.rank_count = 3, x.bucket_bytes = 6143), MEMOPT_ERR_ARGUMENT, "shard: bucket_bytes 6143, at least two grains for each rank, 6144");
    device = shard_device_table(NULL); device.join_fn = NULL;
    SHARD_REFUSES(x.device = &device, MEMOPT_ERR_ARGUMENT, "shard: device lacks a function");
    device = shard_device_table(NULL);
    SHARD_REFUSES((x.device = &device, x.replica_count = 2), MEMOPT_ERR_ARGUMENT, "shard: replica_count 2, beside a device, at most 1");
    SHARD_REFUSES((x.device = &device, x.stage = 0, x.rank_count = 2), MEMOPT_ERR_ARGUMENT, "shard: stage 0, of several ranks, beside a device, must be 1");
    SHARD_REFUSES((x.device = &device, x.stage = 3, x.slow = 5), MEMOPT_ERR_ARGUMENT, "shard: slow has weights: those of a device do not come from a store");
    x = right; x.device = &device; REFUSES(x.error, (void)0, memopt_shard_open(&x, NULL, &out), MEMOPT_ERR_ARGUMENT, "shard: arena is NULL, and desc.device is set");
    device.kernels = &kernels; kernels.square_fn = NULL;
    SHARD_REFUSES(x.device = &device, MEMOPT_ERR_ARGUMENT, "shard: device.kernels lack a function");
    kernels = shard_device_kernels();
    SHARD_REFUSES((x.device = &device, x.slow = 1), MEMOPT_ERR_ARGUMENT, "shard: slow is not 0: the device steps, and has no tier");
    SHARD_REFUSES((x.device = &device, x.optim.gradients = MEMOPT_TYPE_BF16), MEMOPT_ERR_ARGUMENT, "shard: optim.gradients is BF16: sums of a device are F32");
    SHARD_REFUSES((x.device = &device, x.stage = 1, x.rank_count = 2, x.optim.kind = MEMOPT_OPTIM_LAMB), MEMOPT_ERR_ARGUMENT, "shard: optim.kind measures whole tensors: of several ranks that is stepped by the host");
}
static void shard_tied_bytes(void) { /* the largest group is tied: its gradients are not in the window */
    static const memopt_shard_use uses[5] = { { 0, 0 }, { 1, 0 }, { 0, 1 }, { 1, 1 }, { 0, 1 } };
    memopt_shard_desc d = shard_plain(); memopt_shard_bytes b;
    d.uses = uses; d.use_count = 5;
    CHECK(memopt_shard_plan(&d, &b) == MEMOPT_OK && b.gradients == (1024 + 512 + 512) * 4 && b.grain == 256);
}
/* What a rank holds, field by field, from the definition. */
static void shard_bytes_by_formula(void) {
    uint64_t random = 5; size_t round;
    for (round = 0; round < 300; ++round) {
        memopt_shard_tensor tensors[20]; memopt_shard_desc d; memopt_shard_bytes b; size_t t, g, n = 0, end = 0, whole = 0, part = 0, count = 0, before = 0, pair = 0;
        const size_t ranks = 1 + test_below(&random, test_below(&random, 2) ? 9 : 1500), units = 1 + test_below(&random, 40), stage = test_below(&random, 4);
        memset(&d, 0, sizeof d);
        for (t = 0, g = 0; t < 1 + round % 20; ++t) {
            if (t && test_below(&random, 2)) ++g;
            memset(&tensors[t], 0, sizeof tensors[t]); tensors[t].count = 1 + test_below(&random, 90000); tensors[t].group = g;
        }
        d.tensors = tensors; d.tensor_count = t; d.stage = (int)stage; d.units = units; d.rank_count = ranks; d.rank = test_below(&random, ranks); d.gradients = MEMOPT_TYPE_BF16;
        d.optim.extra = MEMOPT_OPTIM_EXTRA_COPY;
        CHECK_AT(memopt_shard_plan(&d, &b) == MEMOPT_OK, round);
        for (t = 0; t < d.tensor_count; ++t) {
            end = (end + tensors[t].count + 255) / 256 * 256; count += tensors[t].count;
            if (t + 1 < d.tensor_count && tensors[t + 1].group == tensors[t].group) continue;
            n = (end / 256 + ranks - 1) / ranks * 256; end = 0;
            whole += n * ranks; part += n;
            pair = n * ranks + before > pair ? n * ranks + before : pair; before = n * ranks;
        }
        CHECK_AT(b.weights == (stage < 3 ? whole : part) * 2 && b.window == (stage == 3 && ranks > 1 ? pair * 2 : 0) && b.extra == (stage ? part : whole) * 4, round);
        CHECK_AT(b.gradients == (stage < 2 ? whole : pair) * 2 && b.sums == (stage ? part : whole) * 4 && b.pads == whole - count, round);
        CHECK_AT(b.rounds == (units + ranks - 1) / ranks, round);
        CHECK_AT(b.sent_gradients == (uint64_t)b.rounds * (ranks - 1) * part * 2, round);
        if (stage == 1 || stage == 2) CHECK_AT(b.sent_weights == (uint64_t)(ranks - 1) * part * 2, round);
    }
}
/* A step of many rounds: the first and the last, and all between them alike; told at once. */
/* A tensor of three tiles and a half: each tile has the states of a tensor of its size. */
static void shard_slow_tile_bytes(void) {
    enum { TILE = 4096, COUNT = 3 * TILE + TILE / 2 };
    memopt_shard_tensor tensor; memopt_optim_tensor part; memopt_shard_desc desc; memopt_optim_desc optim; memopt_shard_bytes bytes;
    size_t whole = 0, half = 0;
    memset(&tensor, 0, sizeof tensor); memset(&part, 0, sizeof part); memset(&desc, 0, sizeof desc); memset(&optim, 0, sizeof optim);
    optim.tensors = &part; optim.tensor_count = 1;
    part.count = TILE; CHECK(memopt_optim_state_bytes(&optim, 0, &whole) == MEMOPT_OK);
    part.count = TILE / 2; CHECK(memopt_optim_state_bytes(&optim, 0, &half) == MEMOPT_OK);
    CHECK(whole > 8 * TILE && half > 4 * TILE);
    tensor.count = COUNT;
    desc.tensors = &tensor; desc.tensor_count = 1; desc.tile = TILE;
    desc.stage = 3; desc.slow = MEMOPT_SHARD_SLOW_STATES | MEMOPT_SHARD_SLOW_WEIGHTS;
    CHECK(memopt_shard_plan(&desc, &bytes) == MEMOPT_OK);
    CHECK(bytes.slow_states == 3 * whole + half);
    CHECK(bytes.slow_weights == COUNT * sizeof(float));
    CHECK(bytes.slow_tiles == 2 * 4);
    CHECK(bytes.slow_written == bytes.slow_states + bytes.slow_weights);
}
static void shard_many_rounds(void) {
#if SIZE_MAX > 0xffffffffu
    memopt_shard_desc d = shard_plain(); memopt_shard_bytes few, more, all; const size_t rounds = (size_t)1 << 30;
    d.rank_count = 4; d.replica_count = 2;
    d.units = 8 * 3; CHECK(memopt_shard_plan(&d, &few) == MEMOPT_OK && few.rounds == 3);
    d.units = 8 * 4; CHECK(memopt_shard_plan(&d, &more) == MEMOPT_OK && more.rounds == 4 && more.sent_weights > few.sent_weights);
    d.units = 8 * rounds; CHECK(memopt_shard_plan(&d, &all) == MEMOPT_OK && all.rounds == rounds);
    CHECK(all.sent_weights == few.sent_weights + (rounds - 3) * (more.sent_weights - few.sent_weights));
    CHECK(all.sent_gradients == rounds * (few.sent_gradients / 3) && all.sent_replicas == rounds * (few.sent_replicas / 3));
    CHECK(all.calls == few.calls + (rounds - 3) * (more.calls - few.calls));
    d.unit_ranks = 4; /* 2 units at a time, and by default so many */
    d.units = 0; CHECK(memopt_shard_plan(&d, &few) == MEMOPT_OK && few.rounds == 1);
    d.units = 5; CHECK(memopt_shard_plan(&d, &few) == MEMOPT_OK && few.rounds == 3);
#else
    SKIP("size_t has 32 bits");
#endif
}
/* By hand: two groups of 1024 and 512 elements, two ranks, in fp32: 2048 and 1024 bytes to the other. */
static void shard_seconds_by_hand(void) {
    static const double uses[4] = { 1, 2, 3, 4 }; memopt_shard_desc d = shard_plain(); memopt_shard_machine m; memopt_shard_seconds s, before; memopt_shard_tensor tensors[2]; double bad[4];
    memset(&m, 0, sizeof m); memset(tensors, 0, sizeof tensors);
    tensors[0].count = 1024; tensors[1].count = 512; tensors[1].group = 1;
    d.tensors = tensors; d.tensor_count = 2; d.rank_count = 2;
    m.uses = uses; m.comm.bandwidth = 1024; m.comm.latency = 0.5; m.step = 7; m.add = 1.0 / 1024;
    CHECK(memopt_shard_simulate(&d, &m, &s) == MEMOPT_OK);
    /* 2.5 s of the first gather; to 3.5 the forward behind which the second (1.5) comes to 4; to 6, to 9: backward of 1, behind which the first group comes again, to 6.5;
       its gradients to 10.5, while the backward of 0 goes on to 13; 256 elements of 2 units: 0.5 s; those of 0 to 16 (begun at 13, 2.5 s, but the bucket before was added to 13.5): 1 s to add, 7 to step. */
    CHECK(s.computing == 1 + 2 + 3 + 4 + 0.5 + 1 + 7 && s.communication == 2.5 + 1.5 + 2.5 + 1.5 + 2.5);
    CHECK(s.exposed == 2.5 + 0.5 + 2 && s.total == s.computing + s.exposed);
    d.stage = 0; /* sums are whole where all step: at the end; of one round: added where they are */
    CHECK(memopt_shard_simulate(&d, &m, &s) == MEMOPT_OK && s.communication == 2 * (1.5 + 2.5) && s.computing == 10 + 1.5 + 7);
    d.stage = 2; d.rank_count = 1; m.comm.bandwidth = 1; /* nobody else: units are added, of two rounds */
    d.units = 2;
    CHECK(memopt_shard_simulate(&d, &m, &s) == MEMOPT_OK && s.exposed == 0 && s.communication == 0 && s.computing == 2 * (10 + 1.5) + 7);
    d.stage = 1; d.units = 1; /* alone, once: gradients are the sums */
    CHECK(memopt_shard_simulate(&d, &m, &s) == MEMOPT_OK && s.total == 10 + 7 && s.computing == s.total);
    d.stage = 1; d.units = 3; d.replica_count = 3; d.rank_count = 1; m.add = 1; m.replicas.latency = 10; m.replicas.bandwidth = 2; /* sets hand on: other sets' adding is waited for, and 2 * 4 bytes an element */
    CHECK(memopt_shard_simulate(&d, &m, &s) == MEMOPT_OK && s.computing == 10 + 1536 + 7 && s.communication == 3 * (20 + 1536 * 4) && s.exposed == 2 * 1536 + s.communication);
    before = s;
    d = shard_plain();
    CHECK(memopt_shard_simulate(NULL, &m, &s) == MEMOPT_ERR_ARGUMENT);
    REFUSES(d.error, (void)0, memopt_shard_simulate(&d, NULL, &s), MEMOPT_ERR_ARGUMENT, "shard: machine is NULL");
    REFUSES(d.error, (void)0, memopt_shard_simulate(&d, &m, NULL), MEMOPT_ERR_ARGUMENT, "shard: seconds is NULL");
#define SHARD_NO_MACHINE(change, text) do { memopt_shard_machine right = m; REFUSES(d.error, change, memopt_shard_simulate(&d, &m, &s), MEMOPT_ERR_ARGUMENT, text); m = right; } while (0)
    SHARD_NO_MACHINE(m.comm.latency = -1, "shard: latency -1, at least 0 and at most 1e+30");
    SHARD_NO_MACHINE(m.comm.bandwidth = 0.5, "shard: bandwidth 0.5, at least 1 and at most 1e+30");
    SHARD_NO_MACHINE(m.comm.bandwidth = 1e31, "shard: bandwidth 1e+31, at least 1 and at most 1e+30");
    SHARD_NO_MACHINE(m.comm.waits = 2, "shard: waits 2, must be 0 or 1");
    SHARD_NO_MACHINE(m.add = -1, "shard: add -1, at least 0 and at most 1e+30");
    SHARD_NO_MACHINE(m.step = 2e30, "shard: step 2e+30, at least 0 and at most 1e+30");
    SHARD_NO_MACHINE(m.uses = NULL, "shard: uses is NULL");
    memcpy(bad, uses, sizeof bad); bad[3] = -0.5;
    SHARD_NO_MACHINE(m.uses = bad, "shard: seconds -0.5 at use 3, at least 0 and at most 1e+30");
    { const uint64_t nan = UINT64_C(0x7ff8000000000000); memcpy(&bad[3], &nan, sizeof nan); }
    m.uses = bad; CHECK(memopt_shard_simulate(&d, &m, &s) == MEMOPT_ERR_ARGUMENT);
    m.uses = uses; m.step = bad[3]; CHECK(memopt_shard_simulate(&d, &m, &s) == MEMOPT_ERR_ARGUMENT);
    m.step = 1; m.replicas.bandwidth = 0; CHECK(memopt_shard_simulate(&d, &m, &s) == MEMOPT_OK); /* one set: nobody looks at it */
    s = before; d.replica_count = 2; d.units = 0; REFUSES(d.error, (void)0, memopt_shard_simulate(&d, &m, &s), MEMOPT_ERR_ARGUMENT, "shard: bandwidth 0, at least 1 and at most 1e+30");
    d.stage = 4; REFUSES(d.error, (void)0, memopt_shard_simulate(&d, &m, &s), MEMOPT_ERR_ARGUMENT, "shard: stage 4, is none: 0 to 3");
    d = shard_plain(); d.optim.block = 48; REFUSES(d.error, (void)0, memopt_shard_simulate(&d, &m, &s), MEMOPT_ERR_ARGUMENT, "shard: optim.block 48, must be a multiple of 32, at most 4096");
    CHECK(!memcmp(&s, &before, sizeof s));
}
/* Rajbhandari et al. 2020, and the same for other formats: p bytes of weights, g of gradients, k of what only the optimizer has; GB a rank. */
static void shard_table(void) {
#if SIZE_MAX > 0xffffffffu
    static const struct { memopt_i_weights form; memopt_type gradients; memopt_state_format state; size_t parameters, groups, ranks; double gb[4]; } rows[9] = {
        { MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32, MEMOPT_STATE_F32, 75, 100, 64, { 120.00, 60.94, 31.41, 1.88 } },
        { MEMOPT_I_WEIGHTS_F32_BF16, MEMOPT_TYPE_BF16, MEMOPT_STATE_F32, 75, 100, 64, { 120.00, 31.41, 16.64, 1.88 } },
        { MEMOPT_I_WEIGHTS_F32_BF16, MEMOPT_TYPE_F32, MEMOPT_STATE_F32, 75, 100, 64, { 135.00, 46.41, 16.88, 2.11 } },
        { MEMOPT_I_WEIGHTS_SPLIT, MEMOPT_TYPE_BF16, MEMOPT_STATE_8BIT, 75, 100, 64, { 60.23, 30.47, 15.71, 0.94 } },
        { MEMOPT_I_WEIGHTS_BF16, MEMOPT_TYPE_BF16, MEMOPT_STATE_8BIT, 75, 100, 64, { 45.23, 30.24, 15.47, 0.71 } },
        { MEMOPT_I_WEIGHTS_F32, MEMOPT_TYPE_F32, MEMOPT_STATE_F32, 70, 100, 8, { 112.00, 63.00, 38.50, 14.00 } },
        { MEMOPT_I_WEIGHTS_SPLIT, MEMOPT_TYPE_BF16, MEMOPT_STATE_8BIT, 70, 100, 8, { 56.22, 31.53, 19.28, 7.03 } },
        { MEMOPT_I_WEIGHTS_F32_BF16, MEMOPT_TYPE_BF16, MEMOPT_STATE_F32, 10000, 500, 1024, { 16000, 4011.7, 2013.7, 15.62 } },
        { MEMOPT_I_WEIGHTS_BF16, MEMOPT_TYPE_BF16, MEMOPT_STATE_8BIT, 10000, 500, 1024, { 6031, 4002.0, 2003.9, 5.89 } } };
    static memopt_shard_tensor tensors[500]; size_t i, t, stage;
    for (i = 0; i < 9; ++i) for (stage = 0; stage < 4; ++stage) {
        memopt_shard_desc d; memopt_shard_bytes b; double gb;
        memset(&d, 0, sizeof d);
        for (t = 0; t < rows[i].groups; ++t) { tensors[t].count = rows[i].parameters * 100000000 / rows[i].groups; tensors[t].group = t; }
        d.tensors = tensors; d.tensor_count = rows[i].groups; d.stage = (int)stage; d.rank_count = rows[i].ranks; d.gradients = rows[i].gradients;
        test_set_weights(&d.optim, rows[i].form);
        d.optim.state = rows[i].state; d.optim.gradients = rows[i].gradients;
        CHECK_AT(memopt_shard_plan(&d, &b) == MEMOPT_OK, 10 * i + stage);
        gb = (double)(b.weights + b.extra + b.states + b.sums + (stage < 2 ? b.gradients : 0)) / 1e9;
        CHECK_AT(fabs(gb / rows[i].gb[stage] - 1) < 0.006, 10 * i + stage); /* two decimals of 0.71 */
    }
#else
    SKIP("size_t has 32 bits");
#endif
}
/* ---- calls out of order ---- */
static void shard_refuses(void) {
    static const memopt_shard_use uses[5] = { { 0, 0 }, { 1, 0 }, { 0, 1 }, { 1, 1 }, { 0, 1 } }, three[6] = { { 0, 0 }, { 1, 0 }, { 2, 0 }, { 2, 1 }, { 1, 1 }, { 0, 1 } };
    static const memopt_shard_tensor threes[3] = { { 300, 0, 0, 0, 0, 0 }, { 300, 0, 0, 1, 0, 0 }, { 300, 0, 0, 2, 0, 0 } };
    memopt_shard_desc d = shard_plain(); memopt_shard *x = NULL; memopt_gradient_total total; memopt_optim_run run; memopt_scaler scaler, wrong; size_t unit = 0, g, first; memopt_optim_group rates;
    memopt_optim_tensor part;
    rates = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    memset(&run, 0, sizeof run); memset(&total, 0, sizeof total);
    run.step = 1; run.groups = &rates; run.group_count = 1;
    d.uses = uses; d.use_count = 5; d.units = 2;
    CHECK(memopt_scaler_default(&scaler) == MEMOPT_OK);
    wrong = scaler; wrong.scale = 0;
    CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK);
#define SHARD_SAYS(call, status, text) CHECK((call) == (status) && test_error_says(memopt_shard_error(x), (status), (text)))
    SHARD_SAYS(memopt_shard_backward(x, 0), MEMOPT_ERR_STATE, "shard: no round has begun");
    SHARD_SAYS(memopt_shard_forward(x, 2), MEMOPT_ERR_ARGUMENT, "shard: group 2, below 2");
    CHECK(memopt_shard_forward(x, 1) == MEMOPT_OK && memopt_shard_forward(x, 0) == MEMOPT_OK); /* an evaluation */
    SHARD_SAYS(memopt_shard_reduce(x, 0), MEMOPT_ERR_STATE, "shard: no round has begun");
    SHARD_SAYS(memopt_shard_cancel(x), MEMOPT_ERR_STATE, "shard: no step has begun");
    SHARD_SAYS(memopt_shard_step(x, &run), MEMOPT_ERR_STATE, "shard: a round is missing");
    SHARD_SAYS(memopt_shard_measure(x, NULL, &total), MEMOPT_ERR_STATE, "shard: a round is missing");
    SHARD_SAYS(memopt_shard_next_unit(x, NULL), MEMOPT_ERR_ARGUMENT, "unit is NULL");
    run.fused = 1;
    SHARD_SAYS(memopt_shard_step_inside(x, &run), MEMOPT_ERR_STATE, "shard: the next round is not the last");
    run.fused = 0;
    SHARD_SAYS(memopt_shard_step_inside(x, &run), MEMOPT_ERR_ARGUMENT, "the run is not fused");
    SHARD_SAYS(memopt_shard_step_inside(x, NULL), MEMOPT_ERR_ARGUMENT, "the run is not fused");
    for (first = 0; first < 2; ++first) {
        CHECK(memopt_shard_next_unit(x, &unit) == MEMOPT_OK && unit == first && memopt_shard_gradients(x, 0) == NULL);
        SHARD_SAYS(memopt_shard_share(x), MEMOPT_ERR_STATE, "shard: a step has begun");
        SHARD_SAYS(memopt_shard_forward(x, 2), MEMOPT_ERR_ARGUMENT, "shard: group 2, below 2");
        SHARD_SAYS(memopt_shard_forward(x, 1), MEMOPT_ERR_STATE, "shard: forward of group 1 at use 0, is not what comes: a forward of 0");
        SHARD_SAYS(memopt_shard_backward(x, 0), MEMOPT_ERR_STATE, "shard: backward of group 0 at use 0, is not what comes: a forward of 0");
        CHECK(memopt_shard_forward(x, 0) == MEMOPT_OK && memopt_shard_forward(x, 1) == MEMOPT_OK && memopt_shard_backward(x, 0) == MEMOPT_OK);
        SHARD_SAYS(memopt_shard_reduce(x, 0), MEMOPT_ERR_STATE, "shard: group 0, is reduced before its last backward, number 2");
        SHARD_SAYS(memopt_shard_reduce(x, 2), MEMOPT_ERR_ARGUMENT, "shard: group 2, below 2");
        CHECK(memopt_shard_backward(x, 1) == MEMOPT_OK && memopt_shard_backward(x, 0) == MEMOPT_OK);
        SHARD_SAYS(memopt_shard_forward(x, 0), MEMOPT_ERR_STATE, "shard: the uses of this round are over");
        for (g = 0; g < 3; ++g) memset(memopt_shard_gradients(x, g), 0, (g == 0 ? 1000 : g == 1 ? 300 : 512) * 4);
        CHECK(memopt_shard_reduce(x, 0) == MEMOPT_OK);
        SHARD_SAYS(memopt_shard_reduce(x, 0), MEMOPT_ERR_STATE, "shard: group 0, has been reduced in this round already");
        SHARD_SAYS(memopt_shard_next_unit(x, &unit), MEMOPT_ERR_STATE, "shard: group 1, has not been reduced in this round");
        SHARD_SAYS(memopt_shard_step(x, &run), MEMOPT_ERR_STATE, "shard: a round is missing");
        CHECK(memopt_shard_reduce(x, 1) == MEMOPT_OK);
    }
    CHECK(memopt_shard_next_unit(x, &unit) == MEMOPT_OK && unit == MEMOPT_SHARD_DONE);
    CHECK(memopt_shard_next_unit(x, &unit) == MEMOPT_OK && unit == MEMOPT_SHARD_DONE);
    SHARD_SAYS(memopt_shard_backward(x, 0), MEMOPT_ERR_STATE, "shard: no round has begun");
    SHARD_SAYS(memopt_shard_measure(x, NULL, NULL), MEMOPT_ERR_ARGUMENT, "shard: total is NULL");
    SHARD_SAYS(memopt_shard_measure(x, &wrong, &total), MEMOPT_ERR_ARGUMENT, "shard: scaler has a scale below its floor");
    CHECK(memopt_shard_measure(x, &scaler, &total) == MEMOPT_OK && total.factor == 1.0 / 65536 && scaler.unscaled == 1 && total.squares == 0 && !total.overflow);
    SHARD_SAYS(memopt_shard_measure(x, &scaler, &total), MEMOPT_ERR_STATE, "shard: scaler has been measured already, and not yet updated");
    run.step = 0;
    SHARD_SAYS(memopt_shard_step(x, &run), MEMOPT_ERR_ARGUMENT, "optim: step 0, at least 1");
    CHECK(memopt_shard_is_intact(x));
    run.step = 1;
    CHECK(memopt_shard_step(x, &run) == MEMOPT_OK && memopt_shard_is_intact(x));
    CHECK(memopt_shard_part(NULL, 0, &part) == MEMOPT_ERR_ARGUMENT && memopt_shard_part(x, 3, &part) == MEMOPT_ERR_ARGUMENT && memopt_shard_part(x, 0, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(!memopt_shard_weights(NULL, 0) && !memopt_shard_weights(x, 3) && !memopt_shard_gradients(NULL, 0) && !memopt_shard_gradients(x, 3) && !memopt_shard_optim(NULL));
    CHECK(memopt_shard_forward(NULL, 0) == MEMOPT_ERR_ARGUMENT && memopt_shard_backward(NULL, 0) == MEMOPT_ERR_ARGUMENT && memopt_shard_reduce(NULL, 0) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_shard_next_unit(NULL, &unit) == MEMOPT_ERR_ARGUMENT && memopt_shard_measure(NULL, NULL, &total) == MEMOPT_ERR_ARGUMENT && memopt_shard_step(NULL, &run) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_shard_share(NULL) == MEMOPT_ERR_ARGUMENT && memopt_shard_cancel(NULL) == MEMOPT_ERR_ARGUMENT && memopt_shard_step_inside(NULL, &run) == MEMOPT_ERR_ARGUMENT);
    CHECK(!memopt_shard_is_intact(NULL) && memopt_shard_error(NULL).status == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_shard_skip_unit(NULL) == MEMOPT_ERR_ARGUMENT);
    SHARD_SAYS(memopt_shard_skip_unit(x), MEMOPT_ERR_STATE, "shard: no round has begun");
    memopt_shard_close(x); memopt_shard_close(NULL);
    d.stage = 1; d.uses = uses; d.use_count = 5; d.units = 1; /* in all stages a group is complete after its last backward */
    CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK && memopt_shard_next_unit(x, &unit) == MEMOPT_OK && memopt_shard_skip_unit(x) == MEMOPT_OK);
    SHARD_SAYS(memopt_shard_backward(x, 0), MEMOPT_ERR_STATE, "shard: group 0, has been reduced after its last backward, by the uses number 2");
    CHECK(memopt_shard_next_unit(x, &unit) == MEMOPT_OK && unit == MEMOPT_SHARD_DONE);
    memopt_shard_close(x);
    d.uses = NULL; d.use_count = 0; d.units = 2; d.interleaved = 1; run.fused = 1; /* a round of a group is over when its next one begins */
    CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK && memopt_shard_next_unit(x, &unit) == MEMOPT_OK && unit == 0);
    CHECK(memopt_shard_backward(x, 0) == MEMOPT_OK && memopt_shard_reduce(x, 0) == MEMOPT_OK);
    SHARD_SAYS(memopt_shard_reduce(x, 0), MEMOPT_ERR_STATE, "shard: group 0, has been reduced in this round already");
    CHECK(memopt_shard_backward(x, 0) == MEMOPT_OK && memopt_shard_reduce(x, 0) == MEMOPT_OK);
    SHARD_SAYS(memopt_shard_backward(x, 0), MEMOPT_ERR_STATE, "shard: group 0, has been reduced after its last backward, by the uses number 1");
    CHECK(memopt_shard_reduce(x, 1) == MEMOPT_OK);
    SHARD_SAYS(memopt_shard_next_unit(x, &unit), MEMOPT_ERR_STATE, "shard: group 1, has not been reduced in this round");
    SHARD_SAYS(memopt_shard_step_inside(x, &run), MEMOPT_ERR_STATE, "shard: the next round is not the last");
    CHECK(memopt_shard_backward(x, 1) == MEMOPT_OK && memopt_shard_reduce(x, 1) == MEMOPT_OK);
    SHARD_SAYS(memopt_shard_step_inside(x, &run), MEMOPT_ERR_STATE, "shard: the next round is not the last");
    CHECK(memopt_shard_cancel(x) == MEMOPT_OK && memopt_shard_next_unit(x, &unit) == MEMOPT_OK && unit == 0); /* from the first */
    for (g = 0; g < 4; ++g) CHECK(memopt_shard_backward(x, g % 2) == MEMOPT_OK && memopt_shard_reduce(x, g % 2) == MEMOPT_OK);
    CHECK(memopt_shard_next_unit(x, &unit) == MEMOPT_OK && unit == MEMOPT_SHARD_DONE);
    memopt_shard_close(x);
    d.interleaved = 0; /* else they have their rounds together */
    CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK && memopt_shard_next_unit(x, &unit) == MEMOPT_OK && memopt_shard_backward(x, 0) == MEMOPT_OK && memopt_shard_reduce(x, 0) == MEMOPT_OK);
    SHARD_SAYS(memopt_shard_backward(x, 0), MEMOPT_ERR_STATE, "shard: group 0, has been reduced after its last backward, by the uses number 1");
    memopt_shard_close(x);
    d.stage = 3;
    d.uses = three; d.use_count = 6; d.units = 1; d.tensors = threes; /* the window has room for two */
    CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK && memopt_shard_next_unit(x, &unit) == MEMOPT_OK);
    for (g = 0; g < 3; ++g) CHECK(memopt_shard_forward(x, g) == MEMOPT_OK);
    CHECK(memopt_shard_backward(x, 2) == MEMOPT_OK && memopt_shard_backward(x, 1) == MEMOPT_OK);
    SHARD_SAYS(memopt_shard_backward(x, 0), MEMOPT_ERR_STATE, "shard: the last group but one has not been reduced");
    CHECK(memopt_shard_reduce(x, 2) == MEMOPT_OK && memopt_shard_backward(x, 0) == MEMOPT_OK);
    memopt_shard_close(x);
}
/* What is not finite: one answer, and the sum tells it; a step inside backward stops. */
static void shard_absent_alone(void) { /* nobody knows the norm; cancelled, the next step begins */
    static const memopt_shard_tensor tensors[3] = { { 1000, 0, 0, 0, 0, 0 }, { 300, 0, 0, 0, 0, 1 }, { 512, 0, 0, 1, 0, 0 } };
    static const memopt_shard_tensor here[2] = { { 1000, 0, 0, 0, 0, 0 }, { 512, 0, 0, 1, 0, 0 } };
    memopt_shard_desc d = shard_plain(); memopt_shard *x = NULL; memopt_gradient_total total; memopt_shard_bytes with, without; size_t unit, g;
    d.tensors = here; d.tensor_count = 2; d.units = 2; d.stage = 1;
    CHECK(memopt_shard_plan(&d, &without) == MEMOPT_OK);
    d.tensors = tensors; d.tensor_count = 3;
    CHECK(memopt_shard_plan(&d, &with) == MEMOPT_OK && with.weights == without.weights && with.gradients == without.gradients && with.sums == without.sums && with.pads == without.pads && with.weights == (1024 + 512) * 4);
    d.units = 0; d.stage = 3;
    CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK && memopt_shard_next_unit(x, &unit) == MEMOPT_OK && memopt_shard_forward(x, 0) == MEMOPT_OK && memopt_shard_forward(x, 1) == MEMOPT_OK);
    for (g = 2; g-- > 0; ) {
        CHECK(memopt_shard_backward(x, g) == MEMOPT_OK);
        memset(memopt_shard_gradients(x, g ? 2 : 0), 0, g ? 512 * 4 : 1000 * 4);
        CHECK(memopt_shard_reduce(x, g) == MEMOPT_OK);
    }
    CHECK(memopt_shard_next_unit(x, &unit) == MEMOPT_OK && memopt_shard_measure(x, NULL, &total) == MEMOPT_ERR_STATE);
    CHECK(test_error_says(memopt_shard_error(x), MEMOPT_ERR_STATE, "shard: a tensor is absent, and there are no others who have its norm"));
    CHECK(memopt_shard_cancel(x) == MEMOPT_OK && memopt_shard_next_unit(x, &unit) == MEMOPT_OK && unit == 0);
    memopt_shard_close(x);
}
static void shard_not_finite(void) {
    memopt_shard_desc d = shard_plain(); memopt_shard *x = NULL; memopt_gradient_total total; memopt_scaler scaler; size_t unit, g; memopt_optim_run run; memopt_optim_group rates; int at, inside; memopt_arena_desc ad; memopt_arena *arena = NULL; shard_device device; memopt_shard_device table; const memopt_shard_kernels kernels = shard_device_kernels();
    rates = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    memset(&ad, 0, sizeof ad); memset(&device, 0, sizeof device);
    ad.capacity = 1 << 20; table = shard_device_table(&device); table.kernels = &kernels;
    CHECK(memopt_arena_create(&ad, &arena) == MEMOPT_OK);
    for (at = 0; at < 3; ++at) { /* the last: a device counts */
        inside = at == 1; d.device = at == 2 ? &table : NULL;
        memset(&run, 0, sizeof run);
        run.step = 1; run.groups = &rates; run.group_count = 1; run.fused = inside;
        CHECK(memopt_scaler_default(&scaler) == MEMOPT_OK && memopt_shard_open(&d, at == 2 ? arena : NULL, &x) == MEMOPT_OK);
        if (inside) CHECK(memopt_shard_step_inside(x, &run) == MEMOPT_OK && memopt_shard_step_inside(x, &run) == MEMOPT_ERR_STATE);
        CHECK(memopt_shard_next_unit(x, &unit) == MEMOPT_OK);
        if (inside) CHECK(memopt_shard_cancel(x) == MEMOPT_ERR_STATE && test_error_says(memopt_shard_error(x), MEMOPT_ERR_STATE, "shard: its weights are being stepped inside backward"));
        CHECK(memopt_shard_forward(x, 0) == MEMOPT_OK && memopt_shard_forward(x, 1) == MEMOPT_OK);
        for (g = 2; g-- > 0; ) {
            float *out; size_t i;
            CHECK(memopt_shard_backward(x, g) == MEMOPT_OK);
            out = (float *)memopt_shard_gradients(x, g ? 2 : 0);
            for (i = 0; i < (g ? 512u : 1000u); ++i) out[i] = 1;
            if (!g) { memset(memopt_shard_gradients(x, 1), 0, 300 * 4); out[7] = -memopt_i_bits_float(0x7f800000u); out[999] = memopt_i_bits_float(0x7fc00000u); }
            CHECK(memopt_shard_reduce(x, g) == MEMOPT_OK || (inside && !g));
        }
        if (inside) {
            CHECK(memopt_shard_next_unit(x, &unit) == MEMOPT_ERR_STATE && !memopt_shard_is_intact(x));
            CHECK(test_error_says(memopt_shard_error(x), MEMOPT_ERR_STATE, "tensor 0: a gradient is not finite; this slice and later ones are not stepped"));
        } else {
            CHECK(memopt_shard_next_unit(x, &unit) == MEMOPT_OK && memopt_shard_measure(x, &scaler, &total) == MEMOPT_OK);
            CHECK(total.overflow == 1 && total.nonfinite == 2 && !memopt_i_finite_double(total.squares) && scaler.found_nonfinite == 1);
            CHECK(memopt_shard_cancel(x) == MEMOPT_OK && !memopt_shard_gradients(x, 0) && memopt_shard_is_intact(x) && memopt_shard_next_unit(x, &unit) == MEMOPT_OK && unit == 0);
        }
        memopt_shard_close(x);
    }
    d.device = NULL; run.fused = 1;
    CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK && memopt_shard_next_unit(x, &unit) == MEMOPT_OK && memopt_shard_forward(x, 0) == MEMOPT_OK && memopt_shard_forward(x, 1) == MEMOPT_OK);
    CHECK(memopt_shard_backward(x, 1) == MEMOPT_OK && memopt_shard_gradients(x, 2) && memopt_shard_cancel(x) == MEMOPT_OK && !memopt_shard_gradients(x, 2));
    memopt_shard_close(x);
    memopt_arena_destroy(arena);
    d.optim.kind = MEMOPT_OPTIM_LAMB;
    CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK && memopt_shard_step_inside(x, &run) == MEMOPT_ERR_ARGUMENT);
    CHECK(test_error_says(memopt_shard_error(x), MEMOPT_ERR_ARGUMENT, "a step inside backward cannot measure whole tensors, as LAMB, LARS, Adafactor and MUON do"));
    memopt_shard_close(x);
    d.optim.kind = MEMOPT_OPTIM_ADAMW; run.clips_norm = 1;
    CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK && memopt_shard_step_inside(x, &run) == MEMOPT_ERR_ARGUMENT && memopt_shard_next_unit(x, &unit) == MEMOPT_OK);
    memopt_shard_close(x);
}
/* An arena too small by any push: nothing is left in it. One that only counts: the plan's bytes. */
static void shard_memory_of(int slow) {
    shard_disk disk; memopt_shard_desc d = shard_plain(); memopt_shard *x = NULL; memopt_shard_bytes b; memopt_arena_desc ad; memopt_arena *arena = NULL; size_t capacity; memopt_error why; memopt_source source; unsigned char *block;
    d.rank_count = 1; d.optim.extra = MEMOPT_OPTIM_EXTRA_COPY; d.error = &why; d.slow = slow;
    CHECK(memopt_shard_plan(&d, &b) == MEMOPT_OK && !b.window == !slow && b.sums && !b.extra == !!slow && b.states && !b.tiles == !slow);
    shard_disk_make(&disk, &d, 0, 1);
    d.store = disk.store;
    block = (unsigned char *)malloc(b.total + 64);
    for (capacity = 64; block && capacity < b.total; capacity += 64) {
        const size_t need = b.total - memopt_i_round64(b.tables);
        memset(&ad, 0, sizeof ad);
        CHECK(memopt_source_block(block + (0 - (uintptr_t)block) % 64, capacity, &source) == MEMOPT_OK);
        ad.source = &source;
        CHECK(memopt_arena_create(&ad, &arena) == MEMOPT_OK);
        if (capacity < need) CHECK_AT(memopt_shard_open(&d, arena, &x) == MEMOPT_ERR_MEMORY && !x && why.status == MEMOPT_ERR_MEMORY, capacity);
        CHECK_AT(memopt_arena_get_stats(arena).used_low == 0, capacity);
        if (capacity == need) CHECK(memopt_shard_open(&d, arena, &x) == MEMOPT_OK && x);
        memopt_shard_close(x); x = NULL;
        memopt_arena_destroy(arena);
    }
    free(block);
    d.store = NULL; /* nor is it needed to count */
    CHECK(memopt_source_counting(&source) == MEMOPT_OK);
    memset(&ad, 0, sizeof ad);
    ad.source = &source;
    CHECK(memopt_arena_create(&ad, &arena) == MEMOPT_OK && memopt_shard_open(&d, arena, &x) == MEMOPT_OK && !x);
    CHECK(memopt_arena_get_stats(arena).peak == b.total - memopt_i_round64(b.tables));
    memopt_arena_destroy(arena);
    block = (unsigned char *)malloc(4096 + 64);
    CHECK(block && memopt_source_block(block + (0 - (uintptr_t)block) % 64, 4096, &source) == MEMOPT_OK);
    source.host_visible = 0; /* a device's */
    memset(&ad, 0, sizeof ad);
    ad.source = &source;
    CHECK(memopt_arena_create(&ad, &arena) == MEMOPT_OK);
    d.error = NULL; REFUSES(d.error, (void)0, memopt_shard_open(&d, arena, &x), MEMOPT_ERR_UNSUPPORTED, "shard: arena is a device's");
    memopt_arena_destroy(arena); free(block);
    shard_disk_end(&disk);
}
static void shard_memory(void) { shard_memory_of(0); shard_memory_of(7); }
/* With a device: each of three arenas a step too small takes nothing of any; dry runs tell the byte; whose memory it is. */
static void shard_device_memory(void) {
    const memopt_shard_kernels kernels = shard_device_kernels(); memopt_shard_device device = shard_device_table(NULL); memopt_shard_desc d = shard_plain(); memopt_shard *x = NULL; memopt_shard_bytes b; memopt_arena_desc ad; memopt_arena *arenas[3], *counting[2]; memopt_source source[2]; size_t room[3]; int small, i; memopt_error why;
    shard_device fake;
    memset(&fake, 0, sizeof fake); memset(&ad, 0, sizeof ad);
    device.user = &fake;
    d.rank_count = 1; d.optim.extra = MEMOPT_OPTIM_EXTRA_COPY; d.device = &device; d.error = &why;
    CHECK(memopt_shard_plan(&d, &b) == MEMOPT_OK && b.buckets == 0 && b.masters && b.staging > 4 * 256 && b.host < b.total);
    CHECK(b.total - b.host == memopt_i_round64(b.weights) + memopt_i_round64(b.window) + memopt_i_round64(b.gradients));
    room[0] = b.total - b.host; room[1] = memopt_i_round64(b.staging); room[2] = b.host - room[1] - memopt_i_round64(b.tables);
    for (small = 0; small < 4; ++small) {
        for (i = 0; i < 3; ++i) { ad.capacity = room[i] - (small == i ? 64 : 0); CHECK(memopt_arena_create(&ad, &arenas[i]) == MEMOPT_OK); }
        d.pinned = arenas[1]; d.host_arena = arenas[2];
        for (i = 0; i < 3; ++i) if (small == i && memopt_arena_get_stats(arenas[i]).capacity >= room[i]) CHECK(memopt_arena_push(arenas[i], memopt_arena_get_stats(arenas[i]).capacity - room[i] + 64, MEMOPT_TAG_OTHER) != NULL);
        {
            const size_t used[3] = { memopt_arena_get_stats(arenas[0]).used_low, memopt_arena_get_stats(arenas[1]).used_low, memopt_arena_get_stats(arenas[2]).used_low };
            CHECK_AT(memopt_shard_open(&d, arenas[0], &x) == (small < 3 ? MEMOPT_ERR_MEMORY : MEMOPT_OK) && !x == (small < 3), small);
            for (i = 0; x == NULL && i < 3; ++i) CHECK_AT(memopt_arena_get_stats(arenas[i]).used_low == used[i], small);
        }
        memopt_shard_close(x); x = NULL;
        for (i = 0; i < 3; ++i) memopt_arena_destroy(arenas[i]);
    }
    ad.capacity = 0;
    for (i = 0; i < 2; ++i) { CHECK(memopt_source_counting(&source[i]) == MEMOPT_OK); ad.source = &source[i]; CHECK(memopt_arena_create(&ad, &counting[i]) == MEMOPT_OK); }
    d.pinned = NULL; d.host_arena = counting[1];
    CHECK(memopt_shard_open(&d, counting[0], &x) == MEMOPT_OK && !x);
    CHECK(memopt_arena_get_stats(counting[0]).peak == b.total - b.host && memopt_arena_get_stats(counting[1]).peak == b.host - memopt_i_round64(b.tables));
    d.host_arena = NULL; CHECK(memopt_shard_open(&d, counting[0], &x) == MEMOPT_OK && !x); /* what is not there is not counted */
    ad.source = NULL; ad.capacity = 4096;
    CHECK(memopt_arena_create(&ad, &arenas[0]) == MEMOPT_OK);
    d.error = NULL;
    d.host_arena = arenas[0]; REFUSES(d.error, (void)0, memopt_shard_open(&d, counting[0], &x), MEMOPT_ERR_ARGUMENT, "shard: host_arena does not only count, and the arena does");
    d.host_arena = NULL; d.pinned = arenas[0]; REFUSES(d.error, (void)0, memopt_shard_open(&d, counting[0], &x), MEMOPT_ERR_ARGUMENT, "shard: pinned does not only count, and the arena does");
    d.pinned = NULL; d.host_arena = counting[1]; REFUSES(d.error, (void)0, memopt_shard_open(&d, arenas[0], &x), MEMOPT_ERR_ARGUMENT, "shard: host_arena is not the host's");
    d.host_arena = NULL; d.pinned = counting[1]; REFUSES(d.error, (void)0, memopt_shard_open(&d, arenas[0], &x), MEMOPT_ERR_ARGUMENT, "shard: pinned is not the host's");
    d.pinned = NULL;
    memopt_arena_destroy(arenas[0]);
    device.kernels = &kernels; /* it steps: what lies where, a state that cannot be begun, a save, a gradient that is not finite */
    CHECK(memopt_shard_plan(&d, &b) == MEMOPT_OK && !b.masters && b.scratch > 256 && b.object && b.host == memopt_i_round64(b.staging) + memopt_i_round64(b.object) + memopt_i_round64(b.tables));
    CHECK(memopt_shard_open(&d, counting[0], &x) == MEMOPT_OK && !x);
    ad.capacity = b.total - b.host;
    CHECK(memopt_arena_create(&ad, &arenas[0]) == MEMOPT_OK);
    fake.calls = 0; fake.fail = 1; d.error = &why;
    CHECK(memopt_shard_open(&d, arenas[0], &x) == MEMOPT_ERR_DEVICE && test_error_says(why, MEMOPT_ERR_DEVICE, "shard: device failed to begin a state"));
    d.error = NULL;
    CHECK(memopt_arena_get_stats(arenas[0]).used_low == 0);
    fake.fail = 0;
    CHECK(memopt_shard_open(&d, arenas[0], &x) == MEMOPT_OK && x);
    if (x) {
        memopt_save_item items[8]; size_t n = 8, unit = 0; memopt_optim_run run; memopt_optim_group rates = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW); memopt_error e; memopt_status s;
        CHECK(memopt_save_shard_items(x, 0, "a", items, &n) == MEMOPT_ERR_UNSUPPORTED);
        e = memopt_shard_error(x); CHECK(test_error_says(e, MEMOPT_ERR_UNSUPPORTED, "what is stepped lies on a device"));
        memset(&run, 0, sizeof run); run.step = 1; run.groups = &rates; run.group_count = 1; run.fused = 1;
        CHECK(memopt_shard_share(x) == MEMOPT_OK && memopt_shard_next_unit(x, &unit) == MEMOPT_OK && memopt_shard_skip_unit(x) == MEMOPT_OK && memopt_shard_next_unit(x, &unit) == MEMOPT_OK);
        CHECK(memopt_shard_step(x, &run) == MEMOPT_ERR_ARGUMENT);
        e = memopt_shard_error(x); CHECK(test_error_says(e, MEMOPT_ERR_ARGUMENT, "the step is fused: memopt_shard_step_inside()"));
        CHECK(memopt_shard_cancel(x) == MEMOPT_OK && memopt_shard_step_inside(x, &run) == MEMOPT_OK && memopt_shard_next_unit(x, &unit) == MEMOPT_OK);
        fake.stops = 1;
        s = memopt_shard_skip_unit(x);
        if (!s) s = memopt_shard_next_unit(x, &unit);
        CHECK(s == MEMOPT_OK && memopt_shard_step(x, &run) == MEMOPT_ERR_STATE && !memopt_shard_is_intact(x));
        e = memopt_shard_error(x); CHECK(test_error_says(e, MEMOPT_ERR_STATE, "a gradient is not finite in a step inside backward"));
        memopt_shard_close(x);
    }
    memopt_arena_destroy(arenas[0]); memopt_arena_destroy(counting[0]); memopt_arena_destroy(counting[1]);
}
/* ---- what is slow ---- */
static void shard_slow_refuses(void) {
    const memopt_shard_device device = shard_device_table(NULL);
    memopt_shard_desc d = shard_plain(), right, x; memopt_shard_bytes b; memopt_shard *out = NULL; shard_disk disk, other; size_t tiles[64], unit, odd; memopt_store_desc sd; memopt_store *store = NULL;
    memopt_optim_tensor slice; memopt_optim_group rates = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW); memopt_optim_run run; memopt_gradient_total total; memopt_optim_view view; unsigned char zeros[64] = { 0 }; char text[80];
    memset(&run, 0, sizeof run); memset(&total, 0, sizeof total); memset(&slice, 0, sizeof slice); memset(&sd, 0, sizeof sd);
    run.step = 1; run.groups = &rates; run.group_count = 1;
    d.slow = 7; d.tile = 512; right = d;
    SHARD_REFUSES(x.slow = 8, MEMOPT_ERR_ARGUMENT, "shard: slow 8, is none: 0 to 7");
    SHARD_REFUSES(x.slow = -1, MEMOPT_ERR_ARGUMENT, "shard: slow -1, is none: 0 to 7");
    SHARD_REFUSES(x.stage = 2, MEMOPT_ERR_ARGUMENT, "shard: stage 2, weights are whole: slow ones take stage 3");
    SHARD_REFUSES(x.tile_buffers = 9, MEMOPT_ERR_ARGUMENT, "shard: tile_buffers 9, at most 8");
    SHARD_REFUSES(x.steps_inside = 2, MEMOPT_ERR_ARGUMENT, "shard: steps_inside 2, must be 0 or 1");
    SHARD_REFUSES((x.steps_inside = 1, x.units = 2), MEMOPT_ERR_ARGUMENT, "shard: steps_inside 1, is for steps of one round, and these have 2");
    SHARD_REFUSES((x.steps_inside = 1, x.optim.kind = MEMOPT_OPTIM_LAMB), MEMOPT_ERR_ARGUMENT, "shard: steps_inside is 1: a step inside backward cannot measure whole tensors");
    x = right; REFUSES(x.error, (void)0, memopt_shard_tiles(&x, NULL), MEMOPT_ERR_ARGUMENT, "shard: bytes is NULL");
    x = right; REFUSES(x.error, x.slow = 0, memopt_shard_tiles(&x, tiles), MEMOPT_ERR_ARGUMENT, "shard: slow is 0: there are no tiles");
    x = right; REFUSES(x.error, x.stage = 9, memopt_shard_tiles(&x, tiles), MEMOPT_ERR_ARGUMENT, "shard: stage 9, is none: 0 to 3");
    CHECK(memopt_shard_tiles(NULL, tiles) == MEMOPT_ERR_ARGUMENT);
    { static const double uses[4] = { 0, 0, 0, 0 }; memopt_shard_machine machine; memopt_shard_seconds seconds;
    memset(&machine, 0, sizeof machine); machine.comm.bandwidth = 1; machine.uses = uses;
    x = right; REFUSES(x.error, (void)0, memopt_shard_simulate(&x, &machine, &seconds), MEMOPT_ERR_ARGUMENT, "shard: slow is not 0: a simulation has no tier");
    x = right; x.slow = 0; REFUSES(x.error, x.device = &device, memopt_shard_simulate(&x, &machine, &seconds), MEMOPT_ERR_ARGUMENT, "shard: device is not NULL: a simulation has none");
    x = right; REFUSES(x.error, (x.slow = 0, x.steps_inside = 1), memopt_shard_simulate(&x, &machine, &seconds), MEMOPT_ERR_ARGUMENT, "shard: steps_inside is 1: a simulation steps at the end");
      x = right; REFUSES(x.error, (x.slow = 0, x.stage = 1, x.interleaved = 1), memopt_shard_simulate(&x, &machine, &seconds), MEMOPT_ERR_ARGUMENT, "shard: interleaved is 1: a simulation goes round by round"); }
    CHECK(memopt_shard_plan(&right, &b) == MEMOPT_OK && b.grain == 1024 && b.slow_tiles <= 64 && b.slow_tiles > 4 && memopt_shard_tiles(&right, tiles) == MEMOPT_OK);
    shard_disk_make(&disk, &right, 0, 0); shard_disk_make(&other, &right, 0, 1);
    x = right; REFUSES(x.error, (void)0, memopt_shard_open(&x, NULL, &out), MEMOPT_ERR_ARGUMENT, "shard: store is NULL");
    for (odd = 0; odd < 2; ++odd) { /* another number of tiles; another size of one */
        if (odd) tiles[3] += 64;
        sd.tiles = b.slow_tiles + 1 - odd; sd.tile_bytes = odd ? 0 : 1 << 16; sd.each_bytes = odd ? tiles : NULL;
        CHECK(memopt_store_create(&sd, &store) == MEMOPT_OK);
        x = right; x.store = store; test_why_reset(); x.error = &test_why;
        if (odd) snprintf(text, sizeof text, "shard: bytes %u at tile 3, must be %u", (unsigned)tiles[3], (unsigned)tiles[3] - 64);
        else snprintf(text, sizeof text, "shard: tiles of the store %u, must be %u", (unsigned)sd.tiles, (unsigned)b.slow_tiles);
        CHECK(memopt_shard_open(&x, NULL, &out) == MEMOPT_ERR_ARGUMENT && test_error_says(test_why, MEMOPT_ERR_ARGUMENT, text));
        memopt_store_destroy(store);
    }
    right.store = disk.store;
    CHECK(memopt_shard_open(&right, NULL, &out) == MEMOPT_OK && out);
    CHECK(memopt_shard_bring(NULL, 0, 0, &slice) == MEMOPT_ERR_ARGUMENT && memopt_shard_put(NULL) == MEMOPT_ERR_ARGUMENT);
    { memopt_shard *const shard = out;
#define SLOW_SAYS(call, status, text) CHECK((call) == (status) && test_error_says(memopt_shard_error(shard), (status), (text)))
    SLOW_SAYS(memopt_shard_bring(shard, 0, 0, NULL), MEMOPT_ERR_ARGUMENT, "shard: out is NULL");
    SLOW_SAYS(memopt_shard_bring(shard, 3, 0, &slice), MEMOPT_ERR_ARGUMENT, "shard: tensor 3, below 3");
    SLOW_SAYS(memopt_shard_bring(shard, 1, 300, &slice), MEMOPT_ERR_ARGUMENT, "shard: first 300 at tensor 1, below the end of the part 300");
    SLOW_SAYS(memopt_shard_put(shard), MEMOPT_ERR_STATE, "shard: nothing was brought, or it is gone");
    CHECK(memopt_optim_state_view(memopt_shard_optim(shard), 0, &view) == MEMOPT_ERR_ARGUMENT); /* not in memory */
    CHECK(memopt_shard_bring(shard, 0, 3, &slice) == MEMOPT_OK && slice.first == 3 && slice.held == 997 && slice.state && memopt_optim_state_view(memopt_shard_optim(shard), 0, &view) == MEMOPT_OK && view.held == 1000);
    ((float *)slice.weights)[0] = 5;
    memcpy(zeros, slice.state, 64); memset(slice.state, 7, 64);
    SLOW_SAYS(memopt_shard_put(shard), MEMOPT_ERR_FORMAT, "tensor 0: state is not of an optimizer");
    memcpy(slice.state, zeros, 64);
    CHECK(memopt_shard_put(shard) == MEMOPT_OK && memopt_shard_bring(shard, 2, 0, &slice) == MEMOPT_OK && memopt_shard_bring(shard, 0, 0, &slice) == MEMOPT_OK && ((float *)slice.weights)[3] == 5);
    memopt_shard_close(shard); }
    x = right; REFUSES(x.error, (void)0, memopt_shard_open(&x, NULL, &out), MEMOPT_ERR_FORMAT, "shard: store has other tiles, and not this one at tile 2");
    right.store = other.store; right.steps_inside = 1;
    CHECK(memopt_shard_open(&right, NULL, &out) == MEMOPT_OK && out);
    { memopt_shard *const shard = out;
    CHECK(memopt_shard_share(shard) == MEMOPT_OK);
    SLOW_SAYS(memopt_shard_next_unit(shard, &unit), MEMOPT_ERR_STATE, "shard: memopt_shard_step_inside() comes before the round");
    run.fused = 1;
    CHECK(memopt_shard_step_inside(shard, &run) == MEMOPT_OK);
    SLOW_SAYS(memopt_shard_bring(shard, 0, 0, &slice), MEMOPT_ERR_STATE, "shard: a step has begun");
    CHECK(memopt_shard_next_unit(shard, &unit) == MEMOPT_OK && memopt_shard_forward(shard, 0) == MEMOPT_OK && memopt_shard_forward(shard, 1) == MEMOPT_OK && memopt_shard_backward(shard, 1) == MEMOPT_OK);
    memset(memopt_shard_gradients(shard, 2), 0, 512 * 4);
    SLOW_SAYS(memopt_shard_backward(shard, 0), MEMOPT_ERR_STATE, "shard: group 1, is to be reduced before the next use, of 0");
    CHECK(memopt_shard_reduce(shard, 1) == MEMOPT_OK && memopt_shard_backward(shard, 0) == MEMOPT_OK);
    memset(memopt_shard_gradients(shard, 0), 0, 1000 * 4); memset(memopt_shard_gradients(shard, 1), 0, 300 * 4);
    CHECK(memopt_shard_reduce(shard, 0) == MEMOPT_OK && memopt_shard_next_unit(shard, &unit) == MEMOPT_OK && unit == MEMOPT_SHARD_DONE);
    SLOW_SAYS(memopt_shard_measure(shard, NULL, &total), MEMOPT_ERR_STATE, "shard: its sums are stepped inside backward, and then gone");
    CHECK(memopt_shard_is_intact(shard) && memopt_shard_step(shard, &run) == MEMOPT_OK);
    memopt_shard_close(shard); }
    right.steps_inside = 0;
    CHECK(memopt_shard_open(&right, NULL, &out) == MEMOPT_OK && out && memopt_shard_next_unit(out, &unit) == MEMOPT_OK);
    for (odd = 0; odd < 4; ++odd) CHECK((odd < 2 ? memopt_shard_forward(out, odd) : memopt_shard_backward(out, 3 - odd)) == MEMOPT_OK && (odd < 2 || memopt_shard_reduce(out, 3 - odd) == MEMOPT_OK));
    CHECK(memopt_shard_next_unit(out, &unit) == MEMOPT_OK && unit == MEMOPT_SHARD_DONE && memopt_shard_step(out, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_shard_step(out, &run) == MEMOPT_ERR_ARGUMENT && test_error_says(memopt_shard_error(out), MEMOPT_ERR_ARGUMENT, "the step is fused: memopt_shard_step_inside()"));
    memopt_shard_close(out); shard_disk_end(&disk); shard_disk_end(&other);
}
/* What nobody has put is in the store after the first sharing; sums of a group are where its gradients were, or are one. */
static void shard_slow_from_the_begin(void) {
    memopt_shard_desc d = shard_plain(); memopt_shard *x = NULL; shard_disk disk; memopt_shard_bytes b; memopt_optim_tensor slice; size_t i;
    memset(&slice, 0, sizeof slice);
    d.slow = 1; d.tile = 512;
    shard_disk_make(&disk, &d, 0, 1);
    d.store = disk.store;
    CHECK(memopt_shard_plan(&d, &b) == MEMOPT_OK && memopt_shard_open(&d, NULL, &x) == MEMOPT_OK && memopt_shard_share(x) == MEMOPT_OK);
    for (i = 0; i < b.slow_tiles; ++i) CHECK_AT(memopt_store_get_tile(disk.store, i).count == disk.tiles[i] && memopt_store_get_tile(disk.store, i).step == 0, i);
    memopt_shard_close(x); shard_disk_end(&disk);
    d = shard_plain(); d.slow = 7; d.steps_inside = 1;
    shard_disk_make(&disk, &d, 0, 1);
    d.store = disk.store;
    CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK && memopt_shard_bring(x, 2, 0, &slice) == MEMOPT_OK);
    for (i = 0; i < slice.held; ++i) ((float *)slice.weights)[i] = 5; /* never put */
    CHECK(memopt_shard_forward(x, 1) == MEMOPT_OK && ((const float *)memopt_shard_weights(x, 2))[0] == 0);
    CHECK(memopt_shard_forward(x, 0) == MEMOPT_OK && ((const float *)memopt_shard_weights(x, 0))[0] == 0);
    memopt_shard_close(x); shard_disk_end(&disk);
    d = shard_plain(); d.steps_inside = 1; d.rank_count = 2;
    CHECK(memopt_shard_plan(&d, &b) == MEMOPT_OK && b.sums == 0);
    d.gradients = MEMOPT_TYPE_BF16;
    CHECK(memopt_shard_plan(&d, &b) == MEMOPT_OK && b.sums == 768 * 4); /* half of the larger group: 1000 and 300 */
    d.stage = 1;
    CHECK(memopt_shard_plan(&d, &b) == MEMOPT_OK && b.sums == (768 + 256) * 4);
}
/* Groups are reduced in another order than that of their last backwards: what was read ahead is not what is stepped. */
static void shard_slow_in_another_order(void) {
    float weights[2][3][1000]; int slow; memopt_optim_group rates = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW); memopt_optim_run run;
    memset(&run, 0, sizeof run); memset(weights, 0, sizeof weights);
    run.groups = &rates; run.group_count = 1; run.fused = 1;
    for (slow = 0; slow < 2; ++slow) {
        memopt_shard_desc d = shard_plain(); memopt_shard *x = NULL; shard_disk disk; size_t t, i, unit;
        d.stage = 1; d.slow = slow; d.tile = 512;
        shard_disk_make(&disk, &d, 0, 0);
        d.store = disk.store;
        CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK && memopt_shard_share(x) == MEMOPT_OK);
        for (run.step = 1; run.step < 4; ++run.step) {
            CHECK(memopt_shard_step_inside(x, &run) == MEMOPT_OK && memopt_shard_next_unit(x, &unit) == MEMOPT_OK);
            for (t = 0; t < 3; ++t) for (i = 0; i < d.tensors[t].count; ++i) ((float *)memopt_shard_gradients(x, t))[i] = (float)((i * 7 + t + run.step) % 11) - 5;
            CHECK(memopt_shard_reduce(x, run.step == 2) == MEMOPT_OK && memopt_shard_reduce(x, run.step != 2) == MEMOPT_OK);
            CHECK(memopt_shard_next_unit(x, &unit) == MEMOPT_OK && unit == MEMOPT_SHARD_DONE && memopt_shard_step(x, &run) == MEMOPT_OK);
        }
        for (t = 0; t < 3; ++t) memcpy(weights[slow][t], memopt_shard_weights(x, t), d.tensors[t].count * 4);
        memopt_shard_close(x); shard_disk_end(&disk);
    }
    CHECK(!memcmp(weights[0], weights[1], sizeof weights[0]) && weights[0][0][0] != 0);
}
/* Without a slow tier the slice is the part. */
static void shard_slow_or_not(void) {
    memopt_shard_desc d = shard_plain(); memopt_shard *x = NULL; memopt_optim_tensor part, slice;
    memset(&part, 0, sizeof part); memset(&slice, 0, sizeof slice);
    d.optim.extra = MEMOPT_OPTIM_EXTRA_COPY;
    CHECK(memopt_shard_open(&d, NULL, &x) == MEMOPT_OK && memopt_shard_part(x, 1, &part) == MEMOPT_OK && memopt_shard_bring(x, 1, 10, &slice) == MEMOPT_OK && memopt_shard_put(x) == MEMOPT_OK);
    CHECK(slice.first == 10 && slice.held == 290 && (float *)slice.weights == (float *)part.weights + 10 && (uint16_t *)slice.extra == (uint16_t *)part.extra + 10 && (const float *)slice.gradients == (const float *)part.gradients + 10);
    memopt_shard_close(x);
}

void test_shard(void);
void test_shard(void) {
    RUN(shard_plan_refuses); RUN(shard_tied_bytes); RUN(shard_bytes_by_formula); RUN(shard_slow_tile_bytes); RUN(shard_many_rounds); RUN(shard_seconds_by_hand); RUN(shard_table); RUN(shard_refuses); RUN(shard_absent_alone); RUN(shard_not_finite); RUN(shard_memory); RUN(shard_device_memory); RUN(shard_slow_refuses); RUN(shard_slow_or_not); RUN(shard_slow_from_the_begin); RUN(shard_slow_in_another_order);
#if defined(MEMOPT_I_POOL)
    RUN(shard_same_for_any_ranks);
    RUN(shard_shares); RUN(shard_together); RUN(shard_interleaved); RUN(shard_small_buckets); RUN(shard_hybrid); RUN(shard_simulated); RUN(shard_kinds_and_formats); RUN(shard_sixteen_bit_sums); RUN(shard_blocks); RUN(shard_inside_backward); RUN(shard_slow); RUN(shard_slow_kinds); RUN(shard_slow_promises); RUN(shard_slow_disk_is_lost); RUN(shard_slow_torn_tile); RUN(shard_device_same); RUN(shard_device_steps); RUN(shard_device_kinds); RUN(shard_device_shares); RUN(shard_device_interleaved); RUN(shard_device_together); RUN(shard_device_fails_once); RUN(shard_fails); RUN(shard_tape); RUN(shard_tape_jumps); RUN(shard_odd_one); RUN(shard_counts_others); RUN(shard_cancelled);
#else
    RUN(shard_no_threads);
#endif
}
#ifndef TEST_COMBINED
int main(void) { test_shard(); return test_totals(); }
#endif
