/* store.c - an array larger than the memory one wants to give it: tiles in a file, all of them changed by each step.

   What to see: three tiles are in memory at a time, one that arrives, one that is computed with, one that leaves; the
   store itself takes a few KB, since the tiles lie where the disk can reach them without a copy. A step that is given
   up changes nothing, and a program that is started again goes on after the last step that was committed. The exit
   status says whether the file holds what an array in memory holds.
   Build: cc -O2 store.c -o store -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TILES = 16, COUNT = 1 << 16 /* floats of a tile */, STEPS = 6, GIVEN_UP = 3 };

static const size_t bytes = COUNT * sizeof(float);
static float *buffers[3]; /* of a tile each */

/* What a step does to a tile. */
static void compute(float *x, size_t tile, size_t step) {
    for (size_t i = 0; i < COUNT; ++i) x[i] = 0.5f * x[i] + (float)(tile * 31 + i % 97 + step);
}

/* A step: tile k + 1 is read and tile k - 1 is written while tile k is computed. */
static memopt_status take_step(memopt_store *store, size_t step, size_t tiles) {
    memopt_status s = MEMOPT_OK;

    if (step) s = memopt_store_read(store, 0, buffers[0], bytes);
    for (size_t k = 0; !s && k < tiles; ++k) {
        float *now = buffers[k % 3];

        if (!step) memset(now, 0, bytes); /* there is nothing to read yet */
        else s = memopt_store_wait(store, k);
        if (!s && k > 1) s = memopt_store_wait(store, k - 2); /* its buffer is the next one's */
        if (!s && step && k + 1 < tiles) s = memopt_store_read(store, k + 1, buffers[(k + 1) % 3], bytes);
        if (s) break;
        compute(now, k, step);
        s = memopt_store_write(store, k, now, bytes);
    }
    return s;
}

/* Steps until the end, or until one is given up half way: as if the program had been killed. */
static memopt_status run(memopt_store_desc *desc, int give_up) {
    memopt_store *store;
    memopt_status s = memopt_store_create(desc, &store);
    size_t step;

    if (s) return s;
    step = (size_t)(memopt_store_get_stats(store).step + 1); /* NO_STEP + 1 is 0 */
    printf("%s at step %u\n", desc->reopen ? "opened again, goes on" : "made, begins", (unsigned)step);
    for (; !s && step < STEPS; ++step) {
        if (give_up && step == GIVEN_UP) {
            s = take_step(store, step, TILES / 2);
            if (!s) s = memopt_store_abandon(store); /* half of the tiles were written: none has changed */
            if (!s && memopt_store_get_tile(store, 0).step != GIVEN_UP - 1) s = MEMOPT_ERR_CORRUPT;
            break;
        }
        s = take_step(store, step, TILES);
        if (!s) s = memopt_store_commit(store, step); /* all tiles at once */
    }
    if (s) MEMOPT_ERROR_PRINT(stderr, memopt_store_error(store));
    memopt_store_destroy(store);
    return s;
}

/* Is the file's last step what an array in memory would be? */
static int compare(const memopt_store_desc *desc) {
    float *expected = buffers[0], *found = buffers[1];
    memopt_store *store;
    memopt_status s = memopt_store_create(desc, &store);
    int same = 1;

    if (s) return 0;
    for (size_t k = 0; same && k < TILES; ++k) {
        memset(expected, 0, bytes);
        for (size_t step = 0; step < STEPS; ++step) compute(expected, k, step);
        s = memopt_store_read(store, k, found, bytes);
        if (!s) s = memopt_store_wait(store, k);
        same = !s && !memcmp(found, expected, bytes);
    }
    if (s) MEMOPT_ERROR_PRINT(stderr, memopt_store_error(store));
    memopt_store_destroy(store);
    return same;
}

/* Three tiles, where the disk can reach them: at multiples of the alignment, with room up to the next one. */
static void *make_buffers(const memopt_store_sizes *sizes) {
    unsigned char *memory = (unsigned char *)malloc(3 * sizes->room + sizes->alignment);

    for (size_t i = 0; memory && i < 3; ++i)
        buffers[i] = (float *)(void *)(memory + sizes->alignment - (uintptr_t)memory % sizes->alignment
                                       + i * sizes->room);
    return memory;
}

int main(void) {
    memopt_store_desc desc = { 0 };
    memopt_store_sizes sizes;
    memopt_error why = { 0 };
    void *memory = NULL;
    int same = 0;

    desc.tiles = TILES;
    desc.tile_bytes = bytes;
    desc.aligned = 1;
    desc.path = "example.store"; /* NULL: other memory of the host */
    desc.keep = 1;
    desc.error = &why;
    if (memopt_store_bytes(&desc, &sizes)) {
        MEMOPT_ERROR_PRINT(stderr, why);
        return 1;
    }
    memory = make_buffers(&sizes);
    if (!memory) {
        fprintf(stderr, "no memory for three tiles\n");
        return 1;
    }
    printf("%.2f MB of tiles: %.2f MB of memory, %.2f MB of disk\n", (double)TILES * (double)bytes / 1e6,
           (double)(sizes.memory + 3 * sizes.room) / 1e6, (double)sizes.disk / 1e6);
    if (!run(&desc, 1)) {
        desc.reopen = 1;
        same = !run(&desc, 0) && compare(&desc);
    }
    if (why.status) MEMOPT_ERROR_PRINT(stderr, why);
    (void)remove(desc.path);
    free(memory);
    printf("the file: %s\n", same ? "what memory would hold" : "SOMETHING ELSE");
    return !same;
}
