/* process.h - blocks as pages of the system, which go back to it; free() would keep them, and a plan of the whole process
   would not hold (parts/process.h). */
#ifndef GPT_PROCESS_H
#define GPT_PROCESS_H
#include "../parts/process.h"

#define LARGE_BLOCK   ((size_t)64 << 10)
#define HUGE_FROM     ((size_t)256 << 20) /* bytes of an arena: below, up to 2 MiB for the last huge page is too much */
#define SMALLEST_PAGE ((size_t)4 << 10)

/* ---- pages of the system: for the arena, and for large blocks of the tape's own ---- */
static memopt_status arena_pages(size_t capacity, memopt_source *out) {
    memopt_pages_desc desc = { 0 };

    desc.no_huge = capacity < HUGE_FROM;
    return memopt_source_pages(&desc, out);
}

/* So many bytes as pages; up: or more, else or fewer. */
static size_t in_pages(size_t bytes, int up) {
    memopt_source pages;

    if (arena_pages(bytes, &pages)) return bytes;
    return (up ? bytes + pages.granularity - 1 : bytes) & ~(pages.granularity - 1);
}

static int pages_for(size_t bytes, memopt_source *pages, size_t *whole) { /* 0: pages are not what to take here */
    if (bytes < LARGE_BLOCK || bytes > SIZE_MAX / 2 || arena_pages(0, pages)) return 0;
    *whole = (bytes + pages->granularity - 1) & ~(pages->granularity - 1);
    return 1;
}

static void *block_alloc(void *user, size_t bytes, size_t alignment) {
    memopt_source pages;
    memopt_host host;
    size_t whole;
    void *block;

    (void)user;
    if (!pages_for(bytes, &pages, &whole))
        return memopt_host_resolve(NULL, &host) ? NULL : host.allocator.alloc_fn(host.allocator.user, bytes, alignment);
    if (pages.reserve_fn(&pages, whole, &block)) return NULL;
    if (!pages.commit_fn(&pages, block, whole)) return block;
    pages.release_fn(&pages, block, whole);
    return NULL;
}

static void block_free(void *user, void *block, size_t bytes, size_t alignment) {
    memopt_source pages;
    memopt_host host;
    size_t whole;

    (void)user;
    if (pages_for(bytes, &pages, &whole)) pages.release_fn(&pages, block, whole);
    else if (!memopt_host_resolve(NULL, &host)) host.allocator.free_fn(host.allocator.user, block, bytes, alignment);
}

static memopt_host process_host(void) {
    memopt_host host = { 0 };

    host.allocator.alloc_fn = block_alloc;
    host.allocator.free_fn = block_free;
    return host;
}
#endif
