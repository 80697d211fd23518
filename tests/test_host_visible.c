/* Memory that the CPU cannot touch, under heap, tape and stash: reservations of a device stay apart in a heap; a tape
   knows that placed memory is a device's; a lossy codec works on a device through a device codec, and is refused where there is
   none, nested tapes included; a stash does not pretend. */
#include "test.h"
#include "heap_check.h"

/* A device that hands out neighbours: one range, front to back. The bytes are the CPU's in truth. */
typedef struct host_visible_device { unsigned char *memory; size_t bytes, used, live, wrong; size_t start[64], size[64], count; } host_visible_device;
static memopt_status host_visible_reserve(memopt_source *s, size_t bytes, void **base) {
    host_visible_device *d = (host_visible_device *)s->user;
    if (bytes > d->bytes - d->used || d->count == 64) return MEMOPT_ERR_MEMORY;
    *base = d->memory + d->used;
    d->start[d->count] = d->used; d->size[d->count++] = bytes;
    d->used += bytes; d->live += bytes;
    return MEMOPT_OK;
}
static void host_visible_release(memopt_source *s, void *base, size_t bytes) {
    host_visible_device *d = (host_visible_device *)s->user; size_t i = 0;
    while (i < d->count && d->memory + d->start[i] != (unsigned char *)base) ++i;
    if (i == d->count || d->size[i] != bytes) ++d->wrong;
    d->live -= bytes;
}
static memopt_status host_visible_zero(memopt_source *s, void *p, size_t bytes) { (void)s; memset(p, 0, bytes); return MEMOPT_OK; }
static void host_visible_open(host_visible_device *d, memopt_source *s, size_t bytes, int visible) {
    memset(d, 0, sizeof *d);
    memset(s, 0, sizeof *s);
    d->bytes = bytes;
    d->memory = (unsigned char *)memopt_i_system_alloc(NULL, bytes, 4096);
    if (!d->memory) { printf("no memory for the test\n"); exit(1); }
    memset(d->memory, 0xFF, bytes);
    s->reserve_fn = host_visible_reserve; s->release_fn = host_visible_release; s->zero_fn = host_visible_zero;
    s->granularity = 1; s->base_alignment = 4096; s->alignment = 256; s->capacity = bytes; s->host_visible = visible;
    s->kind = MEMOPT_SOURCE_DEVICE; s->user = d;
}
static void host_visible_close(host_visible_device *d) {
    CHECK(d->live == 0 && d->wrong == 0);
    memopt_i_system_free(NULL, d->memory, d->bytes, 4096);
}

static void host_visible_heap_seams(void) {
    host_visible_device d; memopt_source s; memopt_heap_desc hd; memopt_heap *h = NULL; memopt_block b[200]; uint64_t seed = 3;
    size_t i, k, bytes, released = 0, at, before; int alive[200];
    host_visible_open(&d, &s, (size_t)4 << 20, 0);
    s.base_alignment = 256;
    memset(&hd, 0, sizeof hd);
    memset(alive, 0, sizeof alive);
    hd.source = &s; hd.extent = 40 * 256;
    CHECK(memopt_heap_create(&hd, &h) == MEMOPT_OK);
    for (k = 0; k < 3000; ++k) {
        i = test_below(&seed, 200);
        if (alive[i]) { CHECK(memopt_heap_free(h, b[i]) == MEMOPT_OK); alive[i] = 0; continue; }
        bytes = 1 + test_below(&seed, 20000);
        if (memopt_heap_alloc(h, bytes, 0, MEMOPT_TAG_OTHER, &b[i])) continue;
        alive[i] = 1;
        at = (size_t)((unsigned char *)memopt_heap_pointer(h, b[i]) - d.memory);
        for (before = 0; before < d.count && !(at >= d.start[before] && at - d.start[before] < d.size[before]); ++before) {}
        CHECK_AT(before < d.count && at + bytes <= d.start[before] + d.size[before], k); /* not over a seam */
    }
    CHECK(d.count > 10 && heap_check(h) == MEMOPT_OK);
    for (i = 0; i < 200; ++i) if (alive[i]) CHECK(memopt_heap_free(h, b[i]) == MEMOPT_OK);
    before = d.live;
    CHECK(memopt_heap_trim(h, &released) == MEMOPT_OK && released == before && d.live == 0);
    d.count = 0; d.used = 0;
    at = s.capacity - 256; /* in one reservation, but for the last unit, which stays empty */
    CHECK(memopt_heap_alloc(h, at + 1, 0, MEMOPT_TAG_OTHER, &b[0]) == MEMOPT_ERR_MEMORY);
    CHECK(memopt_heap_alloc(h, at, 0, MEMOPT_TAG_OTHER, &b[0]) == MEMOPT_OK);
    memopt_heap_destroy(h);
    host_visible_close(&d);
}

/* A chain of segments that add up: outputs are floats that bf16 cannot hold. */
enum { UNTOUCHABLE_SEGMENTS = 5, UNTOUCHABLE_FLOATS = 700 };
typedef struct host_visible_engine { memopt_segment segments[UNTOUCHABLE_SEGMENTS]; memopt_tape_layer layers[UNTOUCHABLE_SEGMENTS]; int not_host_visible,
    dry; size_t keeps; float weights; } host_visible_engine;
static memopt_status host_visible_forward(const memopt_tape_call *s) {
    host_visible_engine *e = (host_visible_engine *)s->user; const float *x = (const float *)s->input; float *y = (float *)s->output; size_t i;
    if (s->not_host_visible != e->not_host_visible) return MEMOPT_ERR_STATE;
    for (i = 0; i < UNTOUCHABLE_FLOATS && !e->dry; ++i) y[i] = x[i] * 0.77f + (float)i * 0.001f + (float)s->segment;
    return MEMOPT_OK;
}
static memopt_status host_visible_backward(const memopt_tape_call *s) {
    host_visible_engine *e = (host_visible_engine *)s->user; const float *x = (const float *)s->input, *y = (const float *)s->output;
    const float *gy = (const float *)s->grad_output; float *gx = (float *)s->grad_input; size_t i;
    for (i = 0; i < UNTOUCHABLE_FLOATS && !e->dry; ++i) {
        e->weights += gy[i] * x[i] + y[i];
        if (gx) gx[i] = gy[i] * 0.77f;
    }
    return MEMOPT_OK;
}
static memopt_status host_visible_keep(void *user, memopt_codec_op op, memopt_codec codec, void *value, size_t bytes, void *copy) {
    host_visible_engine *e = (host_visible_engine *)user; const memopt_threads none = test_level(MEMOPT_SIMD_SCALAR);
    ++e->keeps;
    if (copy && codec == MEMOPT_CODEC_EXACT) {
        memcpy(op == MEMOPT_CODEC_OP_DECODE ? value : copy, op == MEMOPT_CODEC_OP_DECODE ? copy : value, bytes);
        return MEMOPT_OK;
    }
    memopt_i_codec_run(op, codec, value, bytes, copy, &none);
    return MEMOPT_OK;
}
static memopt_tape_desc host_visible_desc(host_visible_engine *e, memopt_arena *a) {
    memopt_tape_desc d; size_t i; const size_t bytes = UNTOUCHABLE_FLOATS * sizeof(float);
    memset(e, 0, sizeof *e);
    memset(&d, 0, sizeof d);
    for (i = 0; i < UNTOUCHABLE_SEGMENTS; ++i) {
        e->segments[i].output_bytes = e->segments[i].saved_bytes = e->segments[i].grad_bytes = bytes;
        e->segments[i].forward_cost = e->segments[i].backward_cost = 1;
        e->layers[i].forward_fn = host_visible_forward; e->layers[i].backward_fn = host_visible_backward; e->layers[i].user = e;
    }
    d.chain.segments = e->segments; d.chain.count = UNTOUCHABLE_SEGMENTS; d.chain.input_bytes = bytes; d.chain.input_grad_bytes = bytes;
    d.layers = e->layers; d.arena = a; d.overhead = 0.2;
    return d;
}
static float host_visible_pass(memopt_tape *tape, host_visible_engine *e, memopt_status expect) {
    static float input[UNTOUCHABLE_FLOATS], grad[UNTOUCHABLE_FLOATS], grad_input[UNTOUCHABLE_FLOATS]; size_t i; memopt_status s;
    for (i = 0; i < UNTOUCHABLE_FLOATS; ++i) { input[i] = (float)i * 0.0101f; grad[i] = 1 - (float)i * 0.003f; }
    e->weights = 0;
    s = memopt_tape_forward(tape, input);
    if (!s) s = memopt_tape_backward(tape, grad, grad_input);
    CHECK(s == expect);
    return e->weights;
}
static void host_visible_keeper(void) {
    int codec, nested;
    for (codec = MEMOPT_CODEC_EXACT; codec <= MEMOPT_CODEC_8BIT; ++codec) for (nested = 0; nested < 2; ++nested) {
        float want = 0, got; int visible; size_t at;
        for (visible = 1; visible >= 0; --visible) {
            host_visible_device dev; memopt_source s; memopt_arena_desc ad; memopt_arena *a = NULL; memopt_tape *tape = NULL, *outer = NULL;
            host_visible_engine e; memopt_tape_desc d, od; memopt_segment segment; memopt_tape_layer layer;
            host_visible_open(&dev, &s, (size_t)1 << 20, visible);
            memset(&ad, 0, sizeof ad);
            ad.source = &s;
            CHECK(memopt_arena_create(&ad, &a) == MEMOPT_OK);
            d = host_visible_desc(&e, nested ? NULL : a);
            e.not_host_visible = visible ? 0 : 2;
            d.codec = (memopt_codec)codec;
            if (!visible && codec && !nested) { /* nobody to do it */
                CHECK(memopt_tape_create(&d, &tape) == MEMOPT_ERR_UNSUPPORTED && !tape);
            }
            for (at = 0; at < 2; ++at) { /* without a device codec, with one */
                if (!visible && codec && !nested && !at) continue;
                if (at) { d.device_codec.run_fn = host_visible_keep; d.device_codec.user = &e; }
                tape = outer = NULL;
                CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
                if (nested) {
                    CHECK(memopt_tape_nest(tape, &segment, &layer) == MEMOPT_OK);
                    memset(&od, 0, sizeof od);
                    od.chain.segments = &segment; od.chain.count = 1; od.layers = &layer; od.arena = a; od.overhead = 1;
                    od.chain.input_bytes = od.chain.input_grad_bytes = UNTOUCHABLE_FLOATS * sizeof(float);
                    CHECK(memopt_tape_create(&od, &outer) == MEMOPT_OK);
                }
                got = host_visible_pass(nested ? outer : tape, &e, !visible && codec && !at ? MEMOPT_ERR_UNSUPPORTED : MEMOPT_OK);
                if (!visible && codec && !at) CHECK(test_error_says(memopt_tape_error(tape), MEMOPT_ERR_UNSUPPORTED,
                    "segment 0: an output could not be rounded where it lies, action 0"));
                if (visible && !at) want = got;
                if (visible || !codec || at) CHECK_AT(got == want, (size_t)codec * 100 + (size_t)nested * 10 + at);
                CHECK(!!e.keeps == (!visible && codec && at));
                memopt_tape_destroy(outer);
                memopt_tape_destroy(tape);
            }
            memopt_arena_destroy(a);
            host_visible_close(&dev);
        }
    }
}
static memopt_status host_visible_keep_fails(void *user, memopt_codec_op op, memopt_codec codec, void *value, size_t bytes, void *copy) {
    (void)codec; (void)value; (void)bytes; (void)copy;
    return (int)op == *(const int *)user ? MEMOPT_ERR_DEVICE : MEMOPT_OK;
}
static void host_visible_codec_fails(void) { /* everything is kept, and values wait as copies */
    static const char *const says[3] = {
        "segment 0: an output could not be rounded where it lies, action 0", "segment 0: a smaller copy could not be made, action 2",
        "segment 2: a smaller copy could not be read, action 15"
    };
    int op;
    for (op = 0; op < 3; ++op) {
        host_visible_engine e; memopt_tape_desc d = host_visible_desc(&e, NULL); memopt_tape *tape = NULL;
        e.not_host_visible = 2; e.dry = 1;
        d.not_host_visible = 2; d.codec = MEMOPT_CODEC_BF16; d.rule = MEMOPT_SCHEDULE_ALL;
        d.device_codec.run_fn = host_visible_keep_fails; d.device_codec.user = &op;
        CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
        CHECK(memopt_tape_set_memory(tape, (void *)(uintptr_t)4096, (size_t)1 << 20) == MEMOPT_OK);
        (void)host_visible_pass(tape, &e, MEMOPT_ERR_DEVICE);
        CHECK_AT(test_error_says(memopt_tape_error(tape), MEMOPT_ERR_DEVICE, says[op]), op);
        memopt_tape_destroy(tape);
    }
}
static void host_visible_placed(void) { /* a device's memory without an arena: at MEMOPT_DEBUG 2 it used to be hashed */
    host_visible_engine e; memopt_tape_desc d = host_visible_desc(&e, NULL); memopt_tape *tape = NULL;
    e.not_host_visible = 2; e.dry = 1;
    d.not_host_visible = 3;
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_ERR_ARGUMENT);
    d.not_host_visible = 2; d.codec = MEMOPT_CODEC_BF16;
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_ERR_UNSUPPORTED);
    d.codec = MEMOPT_CODEC_EXACT; d.verify = 1;
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_ERR_UNSUPPORTED);
    d.verify = 0;
    CHECK(memopt_tape_create(&d, &tape) == MEMOPT_OK);
    /* nobody may touch it */
    CHECK(memopt_tape_set_memory(tape, (void *)(uintptr_t)4096, (size_t)1 << 20) == MEMOPT_OK);
    (void)host_visible_pass(tape, &e, MEMOPT_OK);
    memopt_tape_destroy(tape);
}
static void host_visible_stash(void) {
    host_visible_device dev; memopt_source s; memopt_arena_desc ad; memopt_arena *a = NULL; memopt_stash *stash = NULL; float x[8];
    host_visible_open(&dev, &s, (size_t)1 << 16, 0);
    memset(&ad, 0, sizeof ad);
    ad.source = &s;
    CHECK(memopt_arena_create(&ad, &a) == MEMOPT_OK && memopt_stash_create(a, 2, NULL, &stash) == MEMOPT_OK);
    CHECK(memopt_stash_push(stash, x, 8, MEMOPT_CODEC_EXACT) == MEMOPT_ERR_UNSUPPORTED && stash->count == 0);
    CHECK(memopt_arena_get_stats(a).used_low == 0);
    memopt_stash_destroy(stash);
    memopt_arena_destroy(a);
    host_visible_close(&dev);
}
void test_host_visible(void);
void test_host_visible(void) {
    RUN(host_visible_heap_seams);
    RUN(host_visible_keeper);
    RUN(host_visible_codec_fails);
    RUN(host_visible_placed);
    RUN(host_visible_stash);
}
#ifndef TEST_COMBINED
int main(void) { test_host_visible(); return test_totals(); }
#endif
