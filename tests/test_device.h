/* test_device.h - a source of our own: a device whose bytes lie somewhere else than their addresses say, so that whoever
   touches an address directly is killed; or, visible, ordinary memory. It checks every call against the contract, knows
   which granules are committed, and fails on demand. Include after test.h. */
#ifndef MEMOPT_TEST_DEVICE_H
#define MEMOPT_TEST_DEVICE_H

typedef struct test_device {
    unsigned char *memory, *base;      /* the bytes, and the address they pretend to have */
    unsigned char *is_committed;       /* a byte for each granule */
    size_t bytes, granularity;
    size_t reserved, committed;        /* now, in bytes */
    size_t calls, fail_on, fail_from;  /* as in test_faults; release cannot fail */
    size_t mistakes;                   /* calls that break the contract */
    size_t zero_calls, commits, decommits;
} test_device;
static inline int test_device_fails(test_device *d) {
    ++d->calls;
    return d->calls == d->fail_on || (d->fail_from && d->calls >= d->fail_from);
}
/* Where the bytes of an address are; NULL, and a mistake, when one of them is not committed. */
static inline unsigned char *test_device_at(test_device *d, const void *address, size_t bytes) {
    const size_t offset = (size_t)((uintptr_t)address - (uintptr_t)d->base); size_t i;
    if (offset > d->bytes || bytes > d->bytes - offset || !d->reserved) { ++d->mistakes; return NULL; }
    for (i = offset / d->granularity; bytes && i <= (offset + bytes - 1) / d->granularity; ++i)
        if (!d->is_committed[i]) { ++d->mistakes; return NULL; }
    return d->memory + offset;
}
static inline memopt_status test_device_reserve(memopt_source *s, size_t bytes, void **base) {
    test_device *d = (test_device *)s->user;
    if (test_device_fails(d)) return MEMOPT_ERR_DEVICE;
    if (d->reserved || bytes > d->bytes) return MEMOPT_ERR_MEMORY;
    if (!bytes || bytes % d->granularity) ++d->mistakes;
    d->reserved = bytes;
    if (!s->commit_fn) { memset(d->is_committed, 1, d->bytes / d->granularity); d->committed = bytes; }
    *base = d->base;
    return MEMOPT_OK;
}
/* Commit gives zeros or rubbish; what is decommitted becomes other rubbish at once. */
static inline memopt_status test_device_set(memopt_source *s, void *start, size_t bytes, int committed) {
    test_device *d = (test_device *)s->user;
    const size_t offset = (size_t)((uintptr_t)start - (uintptr_t)d->base);
    size_t i;
    if (!bytes || offset % d->granularity || bytes % d->granularity || offset > d->reserved || bytes > d->reserved - offset) {
        ++d->mistakes;
        return MEMOPT_ERR_ARGUMENT;
    }
    if (test_device_fails(d)) return MEMOPT_ERR_DEVICE;
    for (i = offset / d->granularity; i < (offset + bytes) / d->granularity; ++i) {
        if (d->is_committed[i] == committed) ++d->mistakes; /* once at a time */
        d->is_committed[i] = (unsigned char)committed;
    }
    memset(d->memory + offset, committed && s->fresh_is_zero ? 0 : 0x5A, bytes);
    if (committed) { d->committed += bytes; ++d->commits; } else { d->committed -= bytes; ++d->decommits; }
    return MEMOPT_OK;
}
static inline memopt_status test_device_commit(memopt_source *s, void *start, size_t bytes) { return test_device_set(s, start, bytes, 1); }
static inline memopt_status test_device_decommit(memopt_source *s, void *start, size_t bytes) { return test_device_set(s, start, bytes, 0); }
static inline void test_device_release(memopt_source *s, void *base, size_t bytes) {
    test_device *d = (test_device *)s->user;
    if (base != d->base || bytes != d->reserved) ++d->mistakes;
    memset(d->is_committed, 0, d->bytes / d->granularity);
    memset(d->memory, 0x5A, d->bytes);
    d->reserved = d->committed = 0;
}
static inline memopt_status test_device_zero(memopt_source *s, void *start, size_t bytes) {
    test_device *d = (test_device *)s->user; unsigned char *p = test_device_at(d, start, bytes);
    ++d->zero_calls;
    if (test_device_fails(d)) return MEMOPT_ERR_DEVICE;
    if (p) memset(p, 0, bytes);
    return MEMOPT_OK;
}
static inline memopt_status test_device_copy_in(memopt_source *s, void *inside, const void *host, size_t bytes) {
    test_device *d = (test_device *)s->user; unsigned char *p = test_device_at(d, inside, bytes);
    if (test_device_fails(d)) return MEMOPT_ERR_DEVICE;
    if (p) memcpy(p, host, bytes);
    return MEMOPT_OK;
}
static inline memopt_status test_device_copy_out(memopt_source *s, void *host, const void *inside, size_t bytes) {
    test_device *d = (test_device *)s->user; unsigned char *p = test_device_at(d, inside, bytes);
    if (test_device_fails(d)) return MEMOPT_ERR_DEVICE;
    if (p) memcpy(host, p, bytes);
    return MEMOPT_OK;
}
static inline memopt_status test_device_copy(memopt_source *s, void *to, const void *from, size_t bytes) {
    test_device *d = (test_device *)s->user; unsigned char *p = test_device_at(d, to, bytes), *q = test_device_at(d, from, bytes);
    if (test_device_fails(d)) return MEMOPT_ERR_DEVICE;
    if (p && q) memmove(p, q, bytes);
    return MEMOPT_OK;
}
/* bytes and granularity: powers of two or their multiples; an invisible one has at most a MiB, below what programs use. */
static inline void test_device_open(test_device *d, memopt_source *s, size_t bytes, size_t granularity, int visible) {
    memset(d, 0, sizeof *d);
    memset(s, 0, sizeof *s);
    d->bytes = bytes; d->granularity = granularity;
    d->memory = (unsigned char *)memopt_i_system_alloc(NULL, bytes, 4096);
    d->is_committed = (unsigned char *)calloc(bytes / granularity, 1);
    if (!d->memory || !d->is_committed) { printf("no memory for the test\n"); exit(1); }
    memset(d->memory, 0x5A, bytes);
    d->base = visible ? d->memory : (unsigned char *)(uintptr_t)((size_t)1 << 20);
    s->reserve_fn = test_device_reserve; s->release_fn = test_device_release;
    s->commit_fn = test_device_commit; s->decommit_fn = test_device_decommit;
    s->zero_fn = test_device_zero;
    s->copy_in_fn = test_device_copy_in; s->copy_out_fn = test_device_copy_out; s->copy_fn = test_device_copy;
    s->granularity = granularity; s->base_alignment = 4096; s->alignment = visible ? 64 : 256;
    s->capacity = bytes; s->host_visible = visible; s->fresh_is_zero = 1;
    s->kind = MEMOPT_SOURCE_USER; s->user = d;
}
static inline void test_device_close(test_device *d) {
    memopt_i_system_free(NULL, d->memory, d->bytes, 4096);
    free(d->is_committed);
}
#endif
