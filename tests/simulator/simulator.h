/* simulator.h - a CUDA device that is the CPU: what a test can ask of it, and what the headers in include/ call.

   A .cu file is compiled by g++ or clang++ with `-x c++ -Itests/simulator/include -Itests/simulator` and linked with
   simulator.cpp. simulator.cpp says how it works and what it finds. One OS thread at a time. */
#ifndef SIMULATOR_H
#define SIMULATOR_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Threads of a block take turns: 0 first comes first, 1 last comes first, 2 and up random priorities from that seed. */
void simulator_schedule(int schedule);

/* Operations of streams run at once; as late as events and synchronisations allow; or at random from the seed. */
enum { MODE_EAGER, MODE_LAZY, MODE_RANDOM };
void simulator_streams(int mode, uint64_t seed);

/* Faults to come. `k` counts from now on, 1 = the next one; 0 = none. A call that fails has done nothing. What frees,
   destroys, unmaps or only asks for the last error does not fail and is not counted. */
void   simulator_fail_malloc(size_t k);   /* memory of any kind: cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY */
void   simulator_fail_launch(size_t k);   /* a launch: cudaErrorLaunchOutOfResources, as cudaGetLastError() tells */
void   simulator_fail_call(size_t k);     /* any call that can fail, launches included: an error of its own kind */
void   simulator_pending_error(int code); /* a cudaError_t that cudaGetLastError() has not told yet; 0 takes it back */
size_t simulator_calls(void);             /* calls that can fail, so far: what simulator_fail_call() counts */
size_t simulator_launches(void);          /* kernels launched, so far; those that failed as well */
int    simulator_only_lists(void);
size_t simulator_synchronisations(void);  /* of blocks and warps, so far: what kernels with barriers do */

/* Huge tensors: of the following launches only the first and the last so many blocks run (SIZE_MAX, 0 for all), and
   device blocks of at least so many bytes (0 = the usual 64 MiB) are zero pages that take memory when written. */
void simulator_run_blocks(size_t first, size_t last);
void simulator_sparse(size_t bytes);

/* The machine: 2 devices of capability 9.0 with 141 GiB each, unless a test says otherwise; or, for a program that has
   no test around it, SIMULATOR_DEVICES, SIMULATOR_MEMORY (bytes) and SIMULATOR_STREAMS (a mode of simulator_streams(), by
   its number) in its environment. With SIMULATOR_LAUNCHES there it tells at its end how many kernels and products it
   launched; with SIMULATOR_LISTS it tells of each, and runs none. */
void simulator_devices(int count); /* 0 to 8 */
void simulator_memory(size_t bytes);
void simulator_capability(int major, int minor);
void simulator_attribute(int attribute, int value); /* a cudaDeviceAttr */
void simulator_compiled(int version); /* kernels are from PTX of 80, say; 0 = of the device's own capability */

/* fn(argument) as an operation of the stream, in its order, with device memory in reach: for mocks of libraries that
   launch. In a graph it is called at each launch. destroy(argument) is called when it no longer is; NULL: nothing is.
   A cudaError_t; unless it is 0, neither is ever called. */
int simulator_host_function(void *stream, void (*fn)(void *), void (*destroy)(void *), void *argument);
/* The same, where the stream stands before fn until is_ready(argument) is not 0, which is asked often. */
int simulator_awaiting_function(void *stream, int (*is_ready)(void *), void (*fn)(void *), void (*destroy)(void *),
                                void *argument);
int simulator_is_pinned(const void *p); /* memory of the host that the device reaches */
/* Of ranks. kernel_waits: whether a kernel runs until another device's has come, as NCCL's do, which is not begun. Memory
   that is asked for or given back meanwhile is a finding: CUDA may wait for all devices then, and the thread that waits
   launches nothing. hand_on: other threads have their turn. NULL: there are none. */
void simulator_ranks(int (*kernel_waits)(void), int (*hand_on)(void));

/* What exists now. */
enum {
    LIVE_DEVICE_BYTES, LIVE_PINNED_BYTES, LIVE_MANAGED_BYTES, LIVE_STREAMS, LIVE_EVENTS,
    LIVE_RESERVATIONS, LIVE_HANDLES, LIVE_MAPPINGS, LIVE_KINDS
};
size_t simulator_live(int what);

/* Each finding prints `simulator: file:line: what, thread, block, kernel` once per place, 20 at most. */
size_t      simulator_findings(void); /* so far, every occurrence */
const char *simulator_log(void);      /* what was printed, or would have been; since simulator_forget() */
void        simulator_forget(void);   /* they were expected: for tests of the simulator itself */
void        simulator_quiet(int on);  /* find, but do not print */
/* The end of a test: what is queued runs, what is still allocated is a finding and freed, and faults, schedule, streams
   and machine are as at the start. Returns the findings since the last end. */
size_t simulator_end_test(void);
void   simulator_totals(void); /* prints a line */

/* ---- what the headers in include/ call --------------------------------------------------------------------------- */
typedef struct simulator_i_index { unsigned x, y, z; } simulator_i_index;
typedef struct simulator_i_view { simulator_i_index thread; int lane; } simulator_i_view;
extern simulator_i_view *simulator_i_now; /* the thread that runs; NULL on the host */
extern simulator_i_index simulator_i_block, simulator_i_block_size, simulator_i_grid_size;

enum { SIMULATOR_I_POINTERS = 16 };
typedef struct simulator_i_launch { /* everything a launch says */
    simulator_i_index grid, block;
    size_t            shared_bytes, argument_bytes;
    void             *stream;
    void            (*run)(void *arguments);     /* one thread */
    void            (*destroy)(void *arguments); /* they were made with malloc() */
    void             *arguments;
    void             *kernel;                    /* its address */
    int               bound;                     /* its __launch_bounds__; 0 where that is not known */
    size_t            pointer_count;             /* parameters that are pointers to data */
    const void       *pointers[SIMULATOR_I_POINTERS];
    const char       *name, *file;
    int               line;
} simulator_i_launch;
void simulator_i_start(const simulator_i_launch *launch);

enum { SIMULATOR_I_PLAIN, SIMULATOR_I_OR, SIMULATOR_I_AND, SIMULATOR_I_COUNT };
int simulator_i_barrier(int kind, int predicate, const char *file, int line);
enum {
    SIMULATOR_I_SHUFFLE = 1, SIMULATOR_I_VOTE, SIMULATOR_I_SYNC, SIMULATOR_I_MULTIPLY, SIMULATOR_I_LOAD,
    SIMULATOR_I_GROUP, SIMULATOR_I_GROUP_WAIT,
    SIMULATOR_I_EIGHT = 256 /* of 8 bytes */
};
uint64_t simulator_i_warp(int operation, unsigned mask, uint64_t value, int source, const char *file, int line);
void     simulator_i_bad_width(int width, const char *file, int line);
void    *simulator_i_shared(const void *key, size_t bytes, const char *name, const char *file, int line);
void    *simulator_i_shared_bytes(const char *file, int line);
void     simulator_i_global(const void *p, size_t bytes, const char *file, int line); /* an instruction of global memory has this address */
void     simulator_i_fetch(const void *p, const char *file, int line); /* a prefetch asks for this address */
void     simulator_i_fence(void);
void     simulator_i_trap(const char *file, int line);

/* Tensor cores: each lane of a warp brings its part, and the last one to come does the work of all. */
typedef struct simulator_i_product { /* mma.m16n8k16: sums (16 x 8) += left (16 x 16) * right (16 x 8) */
    float    sums[4];
    uint32_t left[4], right[2];
    int      is_bf16; /* else fp16 */
} simulator_i_product;
void simulator_i_multiply(simulator_i_product *lane, const char *file, int line);

typedef struct simulator_i_matrices { /* ldmatrix.x4: lane i brings row i % 8 of matrix i / 8 */
    uint32_t row[4];  /* its 16 bytes */
    uint32_t part[4]; /* what it gets of each matrix */
    const void *from;
    int      transposed;
} simulator_i_matrices;
void simulator_i_load(simulator_i_matrices *lane, const char *file, int line);
/* Of all rows that ldmatrix has read since the last test ended: the most that wanted one bank at a time; 1 is best. */
unsigned simulator_bank_conflicts(void);

/* Asynchronous copies: to shared memory, in groups of the thread that issues them. */
typedef struct simulator_i_copy {
    void       *to;
    const void *from;
    unsigned    bytes; /* of 16; the rest is 0 */
    unsigned    group;
    int         is_there;
} simulator_i_copy;
simulator_i_copy *simulator_i_copy_begin(void *to, const void *from, unsigned bytes, const char *file, int line);
void              simulator_i_copy_commit(void);
const simulator_i_copy *simulator_i_copy_end(unsigned groups); /* of one that is no longer among the last `groups` */

/* Products of a group of four warps, begun in order and waited for: wgmma.m64n64k16. Tiles are its descriptors. */
typedef struct simulator_i_group_product {
    float   *sums;     /* 32: eight fragments of 16 x 8 */
    uint32_t left[4];  /* a fragment, unless ... */
    uint64_t left_tile, right; /* ... left_tile is not 0 */
    int      across, onto, is_bf16;
} simulator_i_group_product;
void simulator_i_group_begin(void);
void simulator_i_group_multiply(const simulator_i_group_product *product, const char *file, int line);
void simulator_i_group_commit(void);
void simulator_i_group_wait(unsigned groups, const char *file, int line);
const simulator_i_group_product *simulator_i_group_due(unsigned groups, unsigned i); /* the i-th that a wait ends */
const void *simulator_i_group_word(uint64_t tile, int across, int i); /* the i-th of 16 that this lane may be said to read */
uint32_t simulator_i_shared_at(const void *p, const char *file, int line);
void simulator_i_show(void);
#ifdef __cplusplus
}
#endif
#endif
