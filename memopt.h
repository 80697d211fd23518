/* memopt.h - v0.1.0 - train the same network in less memory - C99/C++11, no dependencies - MIT (see end)

   WHAT IT IS  Memory for people who write their own training engines. Three words pick the tool: lifetimes that NEST go
               into an arena, lifetimes in ANY ORDER into a heap, lifetimes KNOWN BEFOREHAND through the planner; a
               ledger knows at any moment who holds what. Numbers in 16 and 8 bits, and the optimizers that step them,
               give the same bits on every processor and for any number of workers, in a fraction of the bytes.
               Activations are kept or made again so that a step fits a budget of bytes: the peak is known before anything
               runs, and no bit of the result changes. Each can be used alone.

   DO THIS     in exactly one .c or .cpp file:      #define MEMOPT_IMPLEMENTATION
                                                    #include "memopt.h"
               and everywhere else, plainly:        #include "memopt.h"
               and link with -lm.

   QUICK START a training step whose buffers cost nothing to free (examples/quickstart.c is the whole program)

                 memopt_source pages; memopt_arena_desc desc = { 0 }; memopt_arena *arena;
                 memopt_source_pages(NULL, &pages);                     (where bytes come from: pages of the system)
                 desc.source = &pages; desc.capacity = (size_t)1 << 30;
                 if (memopt_arena_create(&desc, &arena)) return 1;
                 float *weights = MEMOPT_PUSH(arena, float, 1000000, MEMOPT_TAG_PARAMETERS);
                 for (;;) {
                     memopt_mark step = memopt_arena_mark(arena);
                     float *hidden = MEMOPT_PUSH(arena, float, 50000, MEMOPT_TAG_ACTIVATIONS);
                     if (!hidden) return 1;                             (why: memopt_arena_error(arena))
                     ...
                     memopt_arena_rewind(arena, step);                  (all of the step is free again)
                 }

   OPTIONS     [all] same value in every file that includes this; [impl] implementation file only
     MEMOPT_STATIC     [impl] private copy, so that two libraries in one program cannot clash
     MEMOPT_API        [all]  your own linkage, such as __declspec(dllexport)
     MEMOPT_PTHREADS   [impl] compile the thread pool (POSIX threads; link with -pthread)
     MEMOPT_NO_SIMD    [impl] scalar code only; the results are the same bits
     MEMOPT_ASSERT(x)  [impl] default: assert(x) when MEMOPT_DEBUG > 0, else nothing
     MEMOPT_DEBUG      [impl] 0 nothing; 1 guard pages; 2 own invariants, released memory is filled with 0xDD and looked
                       at when it is handed out again; 3 whole structures at every call, slow

   CONTENTS    Search for "@section NAME". First the declarations, then the implementation, bottom up; a section uses
               only what its marker names, and what that uses.
     config              version and linkage
     api_status   status    codes, their texts, and why a call failed
     api_host     host      the only doors outside: allocator, workers, files, clock
                  platform  what is taken from the system
                  base      checked sizes, alignment, bits
     api_ledger   ledger    who holds which bytes: now, at the peak; table, snapshot, trace
     api_source   source    where bytes come from: your block, an allocator, pages, counting only, your device
     api_arena    arena     lifetimes that nest: two ends, marks
     api_plan     plan      lifetimes known beforehand, to offsets
     api_heap     heap      lifetimes in any order; record a step, plan it, replay it
     api_simd     simd      levels found at run time; the scalar code is the definition, the wide ones give its bits
     api_random   random    random numbers by seed, stream and index; noise for rounding
     api_number   number    float32 to and from bf16, fp16, fp8; to nearest, stochastic, split into bf16 + 16 bits
     api_quant    quant     8-bit blocks: signed and unsigned dynamic maps, linear
                  taper     the 8-bit codes of optimizer states
                  lanes     the arithmetic of a step, written once for every width
                  state     a tensor's state, byte by byte
                  walk      a step over a tensor: decode, step, encode, a block behind
                  factor    Adafactor's rows and columns
     api_optim    optim     AdamW, Adam, SGD, Lion, LARS, LAMB, Adafactor; 32, 16, 8 bits; sliced or whole
     api_scale    scale     loss scaling, clipping, accumulation; which numbers have which type
                  course    what is alive while a schedule runs
                  solver    the table of the fastest schedules
     api_schedule schedule  which activations to keep, to make again, or to send away: the fastest within a budget
                  strip     a schedule as a picture
     api_tape     tape      runs a schedule over the engine's own forwards and backwards; copies on a stack

   CONVENTIONS
     Errors       Every call that can fail returns a memopt_status (0 is success), or NULL where a pointer comes back,
                  with the reason in memopt_arena_error(), memopt_heap_error(), memopt_optim_error() or
                  memopt_tape_get_error(). A failed call has changed nothing, leaks nothing and can be repeated; what it
                  would have written, `out`, is untouched. Nothing aborts or prints.
     Ownership    Who creates, destroys, once. What a desc points to (source, ledger) outlives what is built on it.
                  Names given as `const char *` are kept as pointers unless it says "copied".
     Threads      One thread at a time for each object; different objects at the same time. No global state.
     Alignment    64 bytes unless told otherwise, 256 on a device. Alignments are powers of two.
     Sizes        size_t, in bytes; "N elements" where it is not bytes. Sizes from outside may be anything: a sum that
                  does not fit is MEMOPT_ERR_OVERFLOW, never a small number.
     Defaults     Descs are zeroed, then what differs is set; zero means the default named at the field.
     Exact bytes  Whatever allocates can be run over memopt_source_counting() first, and tells the byte.
     Determinism  Same calls, same offsets, on every machine. The planner depends on the clock only when it is given
                  time to search; give it `work` instead, or `no_search`, and it does not.
                  Numbers, codes and optimizer steps are the same bits at every SIMD level, for any workers, however
                  tensors are cut into slices: work is cut by the data, sums are joined in a fixed order, and betas are
                  raised to integer powers by multiplication, not by pow(). Random bits are a function of seed, stream
                  and place. Outside the promise: flush-to-zero modes, -ffast-math, x87 arithmetic (32-bit x86 without
                  -msse2), and a C library whose fmaf() or fma() rounds twice, such as mingw-w64's.
     Rounding     Conversions round to nearest, ties to even, unless they are called stochastic. NaN stays NaN with its
                  sign, denormals are kept. Products go into sums through fmaf; the C library's math (-lm) is needed.
     Stability    Names and fields here stay within a major version; new fields are zero for the old behaviour. Names
                  with memopt_i_ are private. CHANGELOG.md tells what is new.

   NOT HERE    no training loop, no global state, no output, no abort(), no flag you must compile with. */
#ifndef MEMOPT_H
#define MEMOPT_H
#include <stddef.h>
#include <stdint.h>
/* @section config :
   Version and linkage. Nothing here depends on the machine: the declarations compile anywhere as C89 and C++98. */
#define MEMOPT_VERSION 100 /* major*10000 + minor*100 + patch; the Makefile reads it from here */
#ifdef MEMOPT_STATIC
#  define MEMOPT_I_STATIC 1
#else
#  define MEMOPT_I_STATIC 0
#endif
#ifndef MEMOPT_API
#  if defined(MEMOPT_STATIC) && (defined(__GNUC__) || defined(__clang__))
#    define MEMOPT_API static __attribute__((unused))
#  elif defined(MEMOPT_STATIC)
#    define MEMOPT_API static
#  else
#    define MEMOPT_API extern
#  endif
#endif
#ifdef __cplusplus
extern "C" {
#endif
/* @section api_status : config */
typedef enum memopt_status {
    MEMOPT_OK              =   0,
    MEMOPT_ERR_ARGUMENT    =  -1, /* the call is wrong whatever the data: NULL, zero bytes, bad alignment */
    MEMOPT_ERR_OVERFLOW    =  -2, /* a size does not fit size_t */
    MEMOPT_ERR_MEMORY      =  -3, /* the allocator said no, or the arena, heap or budget is full */
    MEMOPT_ERR_BUFFER      =  -4, /* your buffer is too small; the size it needs has been told */
    MEMOPT_ERR_FORMAT      =  -5, /* bytes from outside are damaged, or newer than this code */
    MEMOPT_ERR_STATE       =  -6, /* the right call at the wrong time: a stale mark, a block freed twice */
    MEMOPT_ERR_IO          =  -7, /* a file or the clock said no */
    MEMOPT_ERR_UNSUPPORTED =  -8, /* not compiled in, or this platform has no such thing */
    MEMOPT_ERR_DEVICE      =  -9, /* the device said no */
    MEMOPT_ERR_CORRUPT     = -10  /* bytes were written outside their lifetime (looked for at MEMOPT_DEBUG 2) */
} memopt_status;
/** One lower-case line for a status, for people; static text, never NULL, also for numbers that are no status. */
MEMOPT_API const char *memopt_status_text(memopt_status status);

/* Why the last failed call of an arena or a heap failed. memopt_ledger_explain() makes a text of it. */
typedef struct memopt_error {
    memopt_status status;     /* MEMOPT_OK: nothing has failed yet */
    const char   *reason;     /* what was wrong with this call; static text, never NULL */
    size_t        asked;      /* bytes the call asked for, 0 if it asked for none */
    size_t        free_bytes; /* bytes free at that moment, in one piece or not */
    size_t        largest;    /* the largest request that succeeds instead, without the heap growing */
} memopt_error;
/* @section api_host : api_status */
typedef struct memopt_allocator { /* all zero = malloc and free; else set both functions */
    /* NULL when there is none; alignment: a power of two */
    void *(*alloc_fn)(void *user, size_t bytes, size_t alignment);
    /* what alloc_fn was asked for; never NULL */
    void  (*free_fn)(void *user, void *block, size_t bytes, size_t alignment);
    void  *user;
} memopt_allocator;

typedef void memopt_task_fn(void *task, size_t chunk, int worker);
typedef struct memopt_threads { /* all zero = run on the calling thread, at the best SIMD level of the machine */
    void (*run_fn)(void *user, size_t chunk_count, memopt_task_fn *fn, void *task); /* returns when all are done */
    void  *user;
    int    worker_count; /* `worker` stays below this; one worker never runs two chunks at once */
    int    simd_level;   /* 0 = best found; else MEMOPT_SIMD_SCALAR and up, never above what the machine has */
} memopt_threads;
#define MEMOPT_SIMD_SCALAR      1 /* the definition of every result; wider levels give its bits */
#define MEMOPT_SIMD_NEON        2 /* aarch64 */
#define MEMOPT_SIMD_AVX2        3 /* with FMA and F16C */
#define MEMOPT_SIMD_AVX512      4 /* F, BW, DQ, VL, VBMI, VBMI2: Ice Lake, Zen 4 and later */
#define MEMOPT_SIMD_AVX512_BF16 5

typedef enum memopt_open { MEMOPT_OPEN_READ,
    MEMOPT_OPEN_WRITE /* read and write, made when missing, kept as it is */ } memopt_open;
typedef struct memopt_files { /* all zero = the system's files; else set every function */
    memopt_status (*open_fn)(void *user, const char *path, memopt_open mode, void **file);
    memopt_status (*close_fn)(void *user, void *file); /* the file is gone whatever it returns */
    /* done < count: the end */
    memopt_status (*read_fn)(void *user, void *file, uint64_t offset, void *bytes, size_t count, size_t *done);
    /* all of them, or an error */
    memopt_status (*write_fn)(void *user, void *file, uint64_t offset, const void *bytes, size_t count);
    memopt_status (*size_fn)(void *user, void *file, uint64_t *bytes);
    memopt_status (*resize_fn)(void *user, void *file, uint64_t bytes);
    memopt_status (*sync_fn)(void *user, void *file); /* returns when the bytes would outlive a power cut */
    memopt_status (*rename_fn)(void *user, const char *from, const char *to); /* replaces `to` in one step */
    memopt_status (*remove_fn)(void *user, const char *path);
    void *user;
} memopt_files;

typedef struct memopt_clock { /* all zero = the system's steady clock */
    memopt_status (*now_fn)(void *user, uint64_t *nanoseconds); /* since some moment; never goes backwards */
    void *user;
} memopt_clock;

/* the only doors outside; zero it (or pass NULL) for the C library and the calling thread */
typedef struct memopt_host {
    memopt_allocator allocator;
    memopt_threads   threads;
    memopt_files     files;
    memopt_clock     clock;
} memopt_host;
/**
 * Fill in what is zero in a host, so that every function in it can be called.
 *
 * host    NULL = all zero
 * out     receives the full tables; may be host itself; untouched on failure
 * returns OK, ERR_ARGUMENT (half a table, run_fn without workers, negative worker_count or simd_level)
 */
MEMOPT_API memopt_status memopt_host_resolve(const memopt_host *host, memopt_host *out);

/**
 * Workers from OpenMP. They live in OpenMP's own pool: nothing to close.
 *
 * worker_count  0 = as many as OpenMP offers
 * out           receives the table; untouched on failure
 * returns OK, ERR_ARGUMENT (negative count, out NULL), ERR_UNSUPPORTED (the implementation was compiled without OpenMP)
 */
MEMOPT_API memopt_status memopt_threads_openmp(int worker_count, memopt_threads *out);

/**
 * A pool of POSIX threads that sleep between runs; the caller of a run works along as worker 0.
 * A run inside a run is done by the worker that asked for it, alone; runs from several threads take turns.
 *
 * host          its allocator holds the pool; NULL = malloc
 * worker_count  1 to 1024, the caller included
 * out           receives the pool; untouched on failure
 * returns OK, ERR_ARGUMENT, ERR_MEMORY, ERR_UNSUPPORTED (compiled without MEMOPT_PTHREADS),
 *         ERR_STATE (the system refused a thread; the ones started have been joined)
 */
typedef struct memopt_pool memopt_pool;
MEMOPT_API memopt_status  memopt_pool_create(const memopt_host *host, int worker_count, memopt_pool **out);
MEMOPT_API memopt_threads memopt_pool_threads(memopt_pool *pool); /* all zero for NULL: the calling thread */
/* joins the threads; NULL is fine; never during a run */
MEMOPT_API void           memopt_pool_destroy(memopt_pool *pool);
/* @section api_ledger : api_host */
typedef unsigned memopt_tag; /* what bytes are for; below, and your own from memopt_ledger_tag_add() */
enum {
    MEMOPT_TAG_OTHER = 0, MEMOPT_TAG_PARAMETERS, MEMOPT_TAG_GRADIENTS, MEMOPT_TAG_OPTIMIZER, MEMOPT_TAG_ACTIVATIONS,
    MEMOPT_TAG_CHECKPOINTS, MEMOPT_TAG_SCRATCH, MEMOPT_TAG_COMMUNICATION, MEMOPT_TAG_USER /* the first of your own */
};
typedef struct memopt_usage { /* of one tag, or of all together */
    size_t   now, peak;      /* bytes; peak: the tag's own highest */
    size_t   at_peak;        /* bytes it held when all tags together were highest */
    size_t   blocks;         /* live now */
    uint64_t allocs, frees;  /* how often */
    uint64_t failed;         /* attempts that ended without memory */
    uint64_t retried;        /* attempts that went another way first: a fallback, a second try */
} memopt_usage;
typedef struct memopt_held { /* what the sources hold, used or not */
    size_t reserved, committed, committed_peak;
    size_t segments; /* reservations alive */
} memopt_held;

typedef struct memopt_ledger memopt_ledger;
typedef struct memopt_ledger_desc { /* zero it, then set what you need; NULL = all zero */
    size_t             tag_capacity;     /* 0 = default: 32, the eight above included; at most 4096 */
    size_t             block_capacity;   /* live blocks known one by one, for the snapshot; 0 = none */
    size_t             event_capacity;   /* the last so many events, for snapshot and trace; 0 = none */
    size_t             segment_capacity; /* reservations known one by one; 0 = default: 64 */
    const memopt_host *host;             /* memory and clock; NULL = the C library's */
} memopt_ledger_desc;
/**
 * Create a ledger: who holds which bytes. Arenas, heaps and sources that are given it write into it by themselves.
 *
 * out     receives the ledger; untouched on failure
 * returns OK, ERR_ARGUMENT (out NULL, half a host, tag_capacity below 8 or above 4096), ERR_OVERFLOW, ERR_MEMORY
 * memory  one allocation, sized by the four capacities; nothing is allocated later
 * threads one thread at a time per ledger
 */
MEMOPT_API memopt_status memopt_ledger_create(const memopt_ledger_desc *desc, memopt_ledger **out);
MEMOPT_API void          memopt_ledger_destroy(memopt_ledger *ledger); /* NULL is fine */

/** A tag of your own. At most 31 bytes of the name are copied. OK, ERR_ARGUMENT (NULL, empty), ERR_MEMORY (no tag left). */
MEMOPT_API memopt_status memopt_ledger_tag_add(memopt_ledger *ledger, const char *name, memopt_tag *out);
MEMOPT_API const char   *memopt_ledger_tag_name(const memopt_ledger *ledger, memopt_tag tag); /* "?" for no tag of it */
/** What the events from here on belong to: the training step and the layer. */
MEMOPT_API void          memopt_ledger_label(memopt_ledger *ledger, uint32_t step, uint32_t layer);

/**
 * Book a block that came or went. For memory of your own; arenas and heaps do it for theirs.
 *
 * ledger  NULL is fine: nothing is booked
 * address of the block, what tells it from others; a block is booked out with the tag and bytes it was booked in with
 * name    static text or NULL; kept as a pointer
 * returns OK, ERR_ARGUMENT (no such tag), ERR_OVERFLOW (the sum would not fit), ERR_STATE (more out than in; or all
 *         blocks are known one by one, and it is none of them)
 */
MEMOPT_API memopt_status memopt_ledger_add(memopt_ledger *ledger, memopt_tag tag, size_t bytes, const void *address,
                                           const char *name);
MEMOPT_API memopt_status memopt_ledger_remove(memopt_ledger *ledger, memopt_tag tag, size_t bytes, const void *address);
MEMOPT_API memopt_status memopt_ledger_failed(memopt_ledger *ledger, memopt_tag tag, size_t bytes);  /* asked in vain */
/* served another way */
MEMOPT_API memopt_status memopt_ledger_retried(memopt_ledger *ledger, memopt_tag tag, size_t bytes);

/* all zero for no tag of it */
MEMOPT_API memopt_usage memopt_ledger_usage(const memopt_ledger *ledger, memopt_tag tag);
MEMOPT_API memopt_usage memopt_ledger_total(const memopt_ledger *ledger);
MEMOPT_API memopt_held  memopt_ledger_held(const memopt_ledger *ledger);

typedef enum memopt_export {
    MEMOPT_EXPORT_REPORT,          /* a table for people */
    MEMOPT_EXPORT_SNAPSHOT_JSON,   /* the fields of PyTorch's memory snapshot */
    MEMOPT_EXPORT_SNAPSHOT_PICKLE, /* the same as its viewer opens it */
    MEMOPT_EXPORT_TRACE_JSON       /* Chrome and Perfetto: a counter for each tag over time */
} memopt_export;
/**
 * Write what the ledger knows into your buffer. Text ends with a 0 byte that is not counted; a pickle is just bytes.
 *
 * buffer   may be NULL with capacity 0, to ask for the size
 * length   receives the bytes it takes, without the 0, also when the buffer is too small; may be NULL
 * returns  OK, ERR_ARGUMENT (NULL, no such format), ERR_BUFFER (the buffer holds the beginning; bring length + 1 bytes)
 */
MEMOPT_API memopt_status memopt_ledger_export(const memopt_ledger *ledger, memopt_export format, char *buffer,
                                              size_t capacity, size_t *length);
/** The table for people: memopt_ledger_export(ledger, MEMOPT_EXPORT_REPORT, ...). */
MEMOPT_API memopt_status memopt_ledger_report(const memopt_ledger *ledger, char *buffer, size_t capacity,
                                              size_t *length);
/** One line of text for an error of an arena or heap: what was asked, is free, who holds most. ledger may be NULL. */
MEMOPT_API memopt_status memopt_ledger_explain(const memopt_ledger *ledger, const memopt_error *error, char *buffer,
                                               size_t capacity, size_t *length);
/* @section api_source : api_ledger */
typedef enum memopt_source_kind {
    MEMOPT_SOURCE_BLOCK, MEMOPT_SOURCE_ALLOCATOR, MEMOPT_SOURCE_PAGES, MEMOPT_SOURCE_COUNTING,
    MEMOPT_SOURCE_DEVICE, MEMOPT_SOURCE_PINNED, MEMOPT_SOURCE_FILE, MEMOPT_SOURCE_USER
} memopt_source_kind;
typedef struct memopt_source memopt_source;
struct memopt_source { /* where bytes come from; zero one and fill it in to add a device. Required: reserve, release, zero,
                          granularity, both alignments, capacity. It must outlive what is built on it */
    /* Address space of `bytes` bytes, a multiple of granularity; *base is a multiple of base_alignment. */
    memopt_status (*reserve_fn)(memopt_source *source, size_t bytes, void **base);
    /* Make a part usable, or give its memory back and keep the addresses. Both NULL: usable from reserve to release.
       start and bytes are multiples of granularity from the base on; a part is committed once at a time. */
    memopt_status (*commit_fn)(memopt_source *source, void *start, size_t bytes);
    memopt_status (*decommit_fn)(memopt_source *source, void *start, size_t bytes);
    void          (*release_fn)(memopt_source *source, void *base, size_t bytes); /* what reserve gave, whole */
    /* Bytes inside committed memory; `copy_fn` stays inside and its ranges may overlap. */
    memopt_status (*zero_fn)(memopt_source *source, void *start, size_t bytes);
    memopt_status (*copy_in_fn)(memopt_source *source, void *inside, const void *host, size_t bytes);
    memopt_status (*copy_out_fn)(memopt_source *source, void *host, const void *inside, size_t bytes);
    memopt_status (*copy_fn)(memopt_source *source, void *to, const void *from, size_t bytes);
    size_t granularity;    /* a power of two: what reserve and commit count in; 1 where it does not matter */
    size_t base_alignment; /* a power of two, at least `alignment`: every base is a multiple of it */
    size_t alignment;      /* what arenas and heaps align to unless told: 64, 256 for a device */
    size_t capacity;       /* the most bytes one reserve can get */
    int    host_visible;   /* 1: the CPU may read and write the bytes */
    int    fresh_is_zero;  /* 1: bytes read as zero after each commit; without commit, after reserve */
    memopt_source_kind kind;
    void          *user;
    memopt_ledger *ledger; /* NULL, or who is told of reservations and commits; set it before the first use */
    memopt_host    host;   /* of the ready sources */
    unsigned       flags;  /* of the ready sources */
};

/**
 * A block of yours, for one arena or heap at a time. Up to 63 bytes at its front are skipped to align it.
 *
 * out     receives the source; untouched on failure
 * returns OK, ERR_ARGUMENT (NULL, fewer than 64 bytes left after aligning, a block that wraps around)
 */
MEMOPT_API memopt_status memopt_source_block(void *block, size_t bytes, memopt_source *out);
/** Memory from the host's allocator, one call a reservation. OK, ERR_ARGUMENT (out NULL, half a host). */
MEMOPT_API memopt_status memopt_source_allocator(const memopt_host *host, memopt_source *out);
/**
 * Counting only: hands out addresses that nobody may touch and holds no memory, so that any code that allocates can be
 * run dry and tells its exact peak. Zeroing and copying do nothing. OK, ERR_ARGUMENT (out NULL).
 */
MEMOPT_API memopt_status memopt_source_counting(memopt_source *out);

typedef struct memopt_pages_desc { /* zero it, then set what you need; NULL = all zero */
    int no_huge; /* 1: do not ask for huge pages; else they are asked for from 4 MiB on, where the system has them */
    int check;   /* 1: refuse, with ERR_MEMORY, what is more than the memory really available, cgroup limits included */
    int touch;   /* 1: commit and touch every page at the reservation, so that no page fault and no kill comes later */
    const memopt_host *host; /* files, for `check`; NULL = the system's */
} memopt_pages_desc;
/**
 * Pages of the system: addresses are reserved at once, memory is committed as it is reached and never moves.
 * At MEMOPT_DEBUG 1 and above a page that cannot be touched lies behind the end.
 *
 * out     receives the source; untouched on failure
 * returns OK, ERR_ARGUMENT (out NULL, half a host), ERR_UNSUPPORTED (no virtual memory on this platform)
 */
MEMOPT_API memopt_status memopt_source_pages(const memopt_pages_desc *desc, memopt_source *out);
/**
 * Bytes that can still be had without swapping or being killed: the system's figure and that of every cgroup above us.
 *
 * host    its files are read; NULL = the system's
 * returns OK, ERR_ARGUMENT, ERR_IO (nothing could be read), ERR_FORMAT (what was read made no sense), ERR_UNSUPPORTED
 */
MEMOPT_API memopt_status memopt_memory_available(const memopt_host *host, uint64_t *bytes);
/* @section api_arena : api_source */
typedef struct memopt_arena memopt_arena;
typedef struct memopt_arena_desc { /* zero it, then set what you need */
    memopt_source     *source;      /* required; outlives the arena */
    /* bytes, rounded up to the source's granularity and to alignment; 0 = all that a block has, or counting. Pages and
       allocators have more addresses than anybody: say how much */
    size_t             capacity;
    size_t             alignment;   /* of pushes that name none; 0 = the source's: 64, 256 for a device */
    memopt_ledger     *ledger;      /* NULL, or who is told of every push and rewind; outlives the arena */
    size_t             log_entries; /* pushes kept apart for the ledger; 0 = default: 4096. More are booked together, as
                                       OTHER when their tags differ: bytes stay exact, counts of blocks do not */
    const memopt_host *host;        /* memory of the arena itself; NULL = malloc */
} memopt_arena_desc;
/**
 * Create an arena: lifetimes that nest. Bytes are pushed at the low or at the top end and go back, many at a time,
 * by rewinding that end to a mark. Nothing moves; memory is committed as it is reached.
 *
 * out     receives the arena; untouched on failure
 * returns OK, ERR_ARGUMENT (NULL, a source with holes in its table, alignment no power of two, below 16 or above the
 *         source's base_alignment, half a host), ERR_OVERFLOW, ERR_MEMORY (for the arena itself, or the source has less), and what the source returns
 * memory  the arena itself, and 32 bytes a log entry when there is a ledger or at MEMOPT_DEBUG 2
 * threads one thread at a time per arena
 */
MEMOPT_API memopt_status memopt_arena_create(const memopt_arena_desc *desc, memopt_arena **out);
MEMOPT_API void          memopt_arena_destroy(memopt_arena *arena); /* books everything out, releases; NULL is fine */

/**
 * Push bytes at the low end (long-lived) or at the top end (short-lived). A handful of instructions.
 *
 * returns the address, aligned as the arena is; for a device or a counting source it is not for the CPU to touch.
 *         NULL on failure, nothing changed, with the reason in memopt_arena_error(): ERR_ARGUMENT (bytes 0, or no such
 *         tag), ERR_OVERFLOW, ERR_MEMORY (the ends would cross, or the source refused), ERR_CORRUPT (MEMOPT_DEBUG 2: the
 *         bytes were written after they had been rewound; the next push goes through)
 */
MEMOPT_API void *memopt_arena_push(memopt_arena *arena, size_t bytes, memopt_tag tag);
MEMOPT_API void *memopt_arena_push_top(memopt_arena *arena, size_t bytes, memopt_tag tag);
/* low end, all bytes zero */
MEMOPT_API void *memopt_arena_push_zero(memopt_arena *arena, size_t bytes, memopt_tag tag);
/** count elements of `size` bytes at the low end; ERR_OVERFLOW when the product does not fit. */
MEMOPT_API void *memopt_arena_push_array(memopt_arena *arena, size_t count, size_t size, memopt_tag tag);
/* float *x = MEMOPT_PUSH(arena, float, n, MEMOPT_TAG_ACTIVATIONS); */
#define MEMOPT_PUSH(arena, type, count, tag) ((type *)memopt_arena_push_array((arena), (count), sizeof(type), (tag)))

typedef struct memopt_push_options { /* zero it, then set what you need */
    memopt_tag  tag;
    size_t      alignment; /* 0 = the arena's; a power of two up to the source's base_alignment */
    int         top;       /* 1: at the top end */
    int         zero;      /* 1: all bytes zero; bytes never used before are not written again */
    const char *name;      /* static text for the ledger and for memopt_arena_name_at(); NULL = none */
} memopt_push_options;
/** A push with everything that can be said. ERR_ARGUMENT also for a bad alignment; options NULL = all zero. */
MEMOPT_API void *memopt_arena_push_with(memopt_arena *arena, size_t bytes, const memopt_push_options *options);

typedef struct memopt_mark { /* where an end was; a value, nothing to close. It dies with its arena */
    const memopt_arena *arena;
    size_t   used;  /* bytes of that end */
    uint64_t epoch; /* the arena's count of rewinds when it was taken */
    int      top;
} memopt_mark;
MEMOPT_API memopt_mark memopt_arena_mark(const memopt_arena *arena);     /* of the low end; all zero for NULL */
MEMOPT_API memopt_mark memopt_arena_mark_top(const memopt_arena *arena); /* of the top end */
/**
 * Give back everything pushed at the mark's end since the mark. A mark can be rewound to many times.
 *
 * returns OK, ERR_ARGUMENT (NULL, a mark of another arena), ERR_STATE (a mark from the future, or one that an earlier
 *         rewind went below: its bytes belong to somebody else now; known for the last 16 levels of nesting)
 */
MEMOPT_API memopt_status memopt_arena_rewind(memopt_arena *arena, memopt_mark mark);

typedef struct memopt_arena_stats {
    size_t capacity;
    size_t used_low, used_top; /* bytes of each end, alignment included */
    size_t free_bytes;         /* between the ends */
    size_t peak;               /* the capacity with which the same pushes would just have fitted, in multiples of the
                                  largest alignment asked for at the top; exact when the capacity here is one too, as
                                  in a dry run */
    size_t committed;
} memopt_arena_stats;
MEMOPT_API memopt_arena_stats memopt_arena_get_stats(const memopt_arena *arena); /* all zero for NULL */
MEMOPT_API memopt_error       memopt_arena_error(const memopt_arena *arena); /* of the last call that failed */
/** Give committed memory between the ends back to the source, one end after the other. OK, also when the source has no
    commit; ERR_ARGUMENT; what the source returns, and then an end may have been given back. */
MEMOPT_API memopt_status      memopt_arena_trim(memopt_arena *arena);
/** At MEMOPT_DEBUG 2: ERR_CORRUPT when bytes between the ends were written after they had been rewound. Else OK. */
MEMOPT_API memopt_status      memopt_arena_check(memopt_arena *arena);
/** The name of the push that holds an address, as far as the log knows it (a ledger or MEMOPT_DEBUG 2); else NULL. */
MEMOPT_API const char        *memopt_arena_name_at(const memopt_arena *arena, const void *address);
/** How far an address is from the arena's beginning: the offset that a dry run tells. */
MEMOPT_API size_t             memopt_arena_offset(const memopt_arena *arena, const void *address);
/* @section api_plan : api_host */
typedef struct memopt_plan_item { /* zero it, then set what you need */
    size_t first, last; /* lives in [first, last); any unit, only the order counts; first < last */
    size_t size;        /* bytes; at least 1 */
    size_t alignment;   /* the offset is a multiple of it; 0 = 1; any positive number */
    size_t offset;      /* fixed: where it must lie; else receives where it lies */
    size_t in_place_of; /* 0 = none; else 1 + the index of the item whose bytes this one may take over: both then lie at
                           the same offset although their lifetimes overlap, or they do not overlap at all */
    int    fixed;       /* 1: offset is given */
} memopt_plan_item;
typedef struct memopt_plan_options { /* all zero = the greedy orders, then a search of a second at the most */
    uint64_t time_ns;   /* 0 = default: one second, or no limit when `work` is given; else stop soon after so long */
    /* 0 = no limit; else search steps at the most: the same plan on every machine, whatever its speed */
    uint64_t work;
    size_t   capacity;  /* 0 = as small as possible; else good enough: stop at the first plan that fits */
    int      no_search; /* 1: greedy orders only */
} memopt_plan_options;
typedef struct memopt_plan_result {
    size_t   peak;        /* bytes from offset 0 to the end of the highest item */
    /* largest sum of sizes alive at one moment, what pairs may share taken off: no plan can be smaller */
    size_t   lower_bound;
    uint64_t work;        /* search steps taken */
    unsigned orders;      /* bit i: greedy order i was tried; memopt_plan_order_name(i) */
    int      optimal;     /* 1: proven that no plan is smaller (the peak is the bound, or the search was exhausted) */
} memopt_plan_result;
/**
 * Give every item an offset so that no two items alive together share a byte, and the highest end is low.
 *
 * First greedy orders (first fit: long lives first, large first, ...), then, while the peak is above the lower bound
 * and time and work are left, a search. The best plan so far is kept, so stopping early costs quality, never validity.
 * A greedy order costs O(n log n) for lifetimes that nest, O(n^2) simple steps at worst; the search starts when it can
 * hold the instance (up to some thousand items).
 *
 * items    each with last > first and size > 0; the offsets are written, nothing else; untouched on failure
 * count    0 is fine: peak 0; items may then be NULL
 * options  NULL = all zero
 * host     its allocator and clock are used; NULL = malloc and the system's clock. A clock that fails counts as time
 *          being up: the best plan found so far is returned
 * result   may be NULL; untouched on failure
 * returns  OK; ERR_ARGUMENT (items NULL, last <= first, size 0, in_place_of out of range or the item itself, a fixed offset
 *          that its alignment forbids, two fixed items that overlap and are no pair at one offset, bad host);
 *          ERR_OVERFLOW (more than SIZE_MAX bytes alive at one moment, no plan found below SIZE_MAX, too many items);
 *          ERR_MEMORY (the search doing without its memory is no failure)
 * memory   about 150 bytes an item, and while searching about 200 more; all of it returned
 * threads  any number at once, on different items
 */
MEMOPT_API memopt_status memopt_plan_solve(memopt_plan_item *items, size_t count, const memopt_plan_options *options,
                                           const memopt_host *host, memopt_plan_result *result);
/**
 * Check a plan, whoever made it: every item ends at `peak` or below, is aligned, and shares no byte with another one
 * alive at the same moment, except a pair at one offset. Simple on purpose: it compares every two items, O(n^2).
 *
 * returns OK; ERR_STATE (the offsets are no valid plan); ERR_ARGUMENT, ERR_OVERFLOW (the items themselves are wrong)
 */
MEMOPT_API memopt_status memopt_plan_check(const memopt_plan_item *items, size_t count, size_t peak);
/** The name of a greedy order (see memopt_plan_result), static text; NULL when there is no such order. */
MEMOPT_API const char *memopt_plan_order_name(unsigned order);
/* @section api_heap : api_source api_plan */
typedef struct memopt_heap memopt_heap;
typedef struct memopt_heap_desc { /* zero it, then set what you need */
    memopt_source     *source;    /* NULL = offsets only, from 0 on: manages anything; else outlives the heap */
    size_t             capacity;  /* most bytes it may ever hold; 0 = all the source has; required without a source */
    size_t             extent;    /* bytes to grow by at the least; 0 = default: 1 MiB */
    /* of every block: sizes and offsets are multiples of it; 0 = the source's, 64 without */
    size_t             alignment;
    memopt_ledger     *ledger;    /* NULL, or who is told; outlives the heap */
    const memopt_host *host;      /* memory of the metadata; NULL = malloc */
} memopt_heap_desc;
typedef struct memopt_block { /* what an allocation is known by; a value, all zero = none */
    size_t   offset; /* with a source: the address as a number; without: from 0 on */
    uint32_t node;   /* private from here on */
    uint32_t serial;
} memopt_block;
/**
 * Create a heap: lifetimes in any order. It never touches the memory it manages, so that may be a device's, or a file.
 *
 * With a source that commits, addresses for `capacity` are reserved now and memory is committed as it is needed; with
 * another source every growth is a reservation of its own, and neighbours join. A source of one block is taken whole.
 *
 * out     receives the heap; untouched on failure
 * returns OK, ERR_ARGUMENT (NULL, no capacity without a source, alignment no power of two, above 1 MiB or above the
 *         source's base_alignment, half a host, a source with holes in its table), ERR_MEMORY, and what the source returns
 * memory  about 16 KiB, and 44 bytes a block, used or free; the table of blocks doubles when it is full
 * threads one thread at a time per heap
 */
MEMOPT_API memopt_status memopt_heap_create(const memopt_heap_desc *desc, memopt_heap **out);
MEMOPT_API void          memopt_heap_destroy(memopt_heap *heap); /* books everything out, releases; NULL is fine */

/**
 * Allocate. Constant time, apart from growth and from what `alignment` says.
 *
 * It fails only when no free piece can hold the request, the heap cannot grow, and a plan's region (see below) has no
 * room either.
 *
 * alignment  0 = the heap's; else a power of two. Above the heap's, when no free piece is sure to be large enough, every
 *            piece that might be is looked at
 * out        receives the block; untouched on failure
 * returns    OK, ERR_ARGUMENT (NULL, bytes 0, bad alignment, a tag above 4095 or not in the ledger), ERR_OVERFLOW,
 *            ERR_MEMORY, and what the source returns. No block has changed then; growth over several gaps that fails
 *            in a later one keeps what it has got as free bytes
 */
MEMOPT_API memopt_status memopt_heap_alloc(memopt_heap *heap, size_t bytes, size_t alignment, memopt_tag tag,
                                           memopt_block *out);
/**
 * Give a block back. Constant time.
 *
 * returns OK; ERR_STATE (freed before: the handle is stale); ERR_ARGUMENT (NULL, not a block of this heap)
 */
MEMOPT_API memopt_status memopt_heap_free(memopt_heap *heap, memopt_block block);
/** The address of a live block; NULL when it is none, or when the heap has no source. A device's is not for the CPU. */
MEMOPT_API void         *memopt_heap_pointer(const memopt_heap *heap, memopt_block block);
/**
 * Make sure that the next request of so many bytes, at the heap's alignment, needs no growth.
 *
 * returns OK (also when nothing was to be done), ERR_ARGUMENT, ERR_OVERFLOW, ERR_MEMORY, and what the source returns
 */
MEMOPT_API memopt_status memopt_heap_grow(memopt_heap *heap, size_t bytes);
/**
 * Give back to the source what it can take: free pages, or reservations that are free as a whole. O(blocks).
 *
 * released  receives how much, also when a later piece failed; may be NULL
 * returns   OK, ERR_ARGUMENT, ERR_MEMORY (for the heap's own tables), and what the source returns
 */
MEMOPT_API memopt_status memopt_heap_trim(memopt_heap *heap, size_t *released);

typedef struct memopt_heap_stats {
    size_t   capacity;
    size_t   reserved;       /* what it holds of the source's memory: used + free_bytes + idle */
    size_t   used;           /* in blocks, rounding included */
    size_t   requested;      /* what was asked for in them */
    size_t   free_bytes;     /* in pieces that any request may have */
    size_t   idle;           /* held for the plan and not in use at this moment */
    size_t   planned;        /* bytes of the plan's region, committed or not; 0 = there is no plan */
    size_t   largest;        /* memopt_heap_largest() */
    size_t   peak_used, peak_requested, peak_reserved;
    size_t   used_blocks, free_blocks;
    double   external;       /* 1 - largest / free_bytes: how much of what is free is of no use to a large request */
    double   internal;       /* 1 - requested / used: how much of what is used is rounding */
    uint64_t served;         /* requests served from the plan, since it was made */
    uint64_t fell_back;      /* requests within steps that were not */
} memopt_heap_stats;
MEMOPT_API memopt_heap_stats memopt_heap_get_stats(const memopt_heap *heap); /* all zero for NULL; constant time */
/** The largest request that succeeds now, at the heap's alignment, without growth. Exact; 0 = none. Constant time. */
MEMOPT_API size_t            memopt_heap_largest(const memopt_heap *heap);
/** The same with growth at the end, as far as the capacity goes: at least so much, gaps that a trim left may hold more;
    the source may still refuse. */
MEMOPT_API size_t            memopt_heap_largest_grown(const memopt_heap *heap);
MEMOPT_API memopt_error      memopt_heap_error(const memopt_heap *heap); /* of the last call that failed */
/** Look at every invariant: OK, or ERR_CORRUPT. O(blocks); done after every call at MEMOPT_DEBUG 3. */
MEMOPT_API memopt_status     memopt_heap_check(const memopt_heap *heap);

typedef enum memopt_heap_kind { MEMOPT_HEAP_FREE, MEMOPT_HEAP_USED,
    MEMOPT_HEAP_IDLE /* the plan's, not in use */ } memopt_heap_kind;
typedef struct memopt_heap_entry { /* zero it to begin a walk */
    memopt_heap_kind kind;
    size_t       offset, bytes;
    size_t       requested; /* of a used block */
    memopt_tag   tag;       /* of a used block */
    memopt_block block;     /* the handle of a used block; else zero */
    uint32_t     node, slot; /* private */
} memopt_heap_entry;
/** The next block in order of addresses. Returns 0 after the last. Nothing may be allocated or freed during a walk. */
MEMOPT_API int memopt_heap_walk(const memopt_heap *heap, memopt_heap_entry *entry);

/* Record, plan, replay: training repeats itself. Record one step, plan it, and later steps are served from the plan:
       memopt_heap_record(heap);  one step  memopt_heap_plan(heap, NULL, NULL, NULL);
       for (;;) { memopt_heap_step(heap);  one step }
   The step may be run dry: record it on a heap without a source, and name that as the recorder. Plan the largest step
   there is; smaller ones fit into its places. Whatever differs from the record is served by the heap as ever. */
/**
 * Begin to record. What was recorded before is forgotten. O(blocks).
 *
 * returns OK, ERR_ARGUMENT (NULL), ERR_STATE (a plan is being replayed: memopt_heap_unplan() first)
 */
MEMOPT_API memopt_status memopt_heap_record(memopt_heap *heap);
/**
 * End the recording and plan the blocks that were both allocated and freed in it; one region for all of them is set
 * aside. Where the source commits, the region's memory is committed as it is reached. Replay begins at the next
 * memopt_heap_step().
 *
 * recorder  who recorded; NULL = the heap itself. What it recorded stays, and can be planned again
 * options   of memopt_plan_solve(); NULL = all zero
 * result    may be NULL; untouched on failure
 * returns   OK (nothing to plan: peak 0 and no region), ERR_ARGUMENT, ERR_STATE (nothing was recorded, or there is a plan
 *           already), ERR_OVERFLOW, ERR_MEMORY (tables, the recording was cut short by a lack of memory, or no room for
 *           the region), and what the source returns
 * memory    about 170 bytes a planned block
 */
MEMOPT_API memopt_status memopt_heap_plan(memopt_heap *heap, memopt_heap *recorder, const memopt_plan_options *options,
                                          memopt_plan_result *result);
/** A step begins: the next request is taken for the first of the record. OK, also without a plan; ERR_ARGUMENT (NULL). */
MEMOPT_API memopt_status memopt_heap_step(memopt_heap *heap);
/**
 * Give the region back to the heap; blocks in it live on. The heap does it by itself when a request cannot be met in
 * any other way. OK, also without a plan; ERR_ARGUMENT (NULL).
 */
MEMOPT_API memopt_status memopt_heap_unplan(memopt_heap *heap);
/* @section api_simd : api_host */
/** The widest level this machine has: MEMOPT_SIMD_SCALAR and up. */
MEMOPT_API int memopt_simd_best(void);
/** The name of a level, for people; static text, never NULL, also for numbers that are no level. */
MEMOPT_API const char *memopt_simd_text(int level);
/* @section api_random : api_host
   Small functions of the declarations are `static`, so that they can be inlined, and run on a CUDA device as well. */
#if defined(__CUDACC__)
#  define MEMOPT_I_INLINE static __host__ __device__ __forceinline__
#elif defined(__GNUC__) || defined(__clang__)
#  define MEMOPT_I_INLINE static __attribute__((unused))
#elif defined(_MSC_VER)
#  define MEMOPT_I_INLINE static __inline
#else
#  define MEMOPT_I_INLINE static
#endif
/* Rounding bits, as cheap as they can be: 16 for each index. Not for initial weights or sampling: that is
   memopt_random_*. Make one for every tensor and step; it holds nothing else, so there is nothing to save. */
typedef struct memopt_noise { uint32_t key[2]; } memopt_noise;
/**
 * The noise of a seed and a stream. Any two streams are unrelated, also 0 and 1: number them as it suits you, such as
 * step * tensors + tensor. About 20 ns.
 */
MEMOPT_API memopt_noise memopt_noise_make(uint64_t seed, uint64_t stream);

/* 32 bits, of which 16 are good: see the essay at `random`. Lane index % 16 of group index / 32; the upper 16 of a
   group's 32 indices get the lane's two halves the other way round. */
MEMOPT_I_INLINE uint32_t memopt_i_noise32(memopt_noise noise, uint64_t index) {
    const uint32_t counter = (uint32_t)(index >> 5) << 4 | ((uint32_t)index & 15), high = (uint32_t)(index >> 33);
    uint32_t x = counter * 0x9e3779b9u + noise.key[0] + high * 0x85ebca6bu;
    x = (x ^ x >> 16) * 0x21f0aaadu;
    x = (x ^ x >> 15 ^ noise.key[1] ^ high * 0xc2b2ae35u) * 0xd35a2d97u;
    x ^= x >> 15;
    return index & 16 ? x : x << 16 | x >> 16;
}
MEMOPT_I_INLINE uint32_t memopt_i_noise16(memopt_noise noise, uint64_t index) {
    return memopt_i_noise32(noise, index) >> 16;
}

/**
 * Random numbers by place: dst[i] is value first + i of a stream of a seed. Nothing is kept between calls, any part of
 * a stream can be had alone, by any number of threads, and is the same bits on every machine. Philox 4x32-10, as
 * published: word k of block b is value 4 b + k, with the counter (b, stream) and the key (seed), low words first.
 *
 * _bits     32 random bits each
 * _uniform  floats in [0, 1): the upper 24 bits * 2^-24, each multiple equally likely
 * _normal   mean 0, deviation 1, by Box and Muller from values 2k and 2k + 1 of the stream; never beyond 6.8
 *
 * dst     n elements, aligned as their type; may be NULL when n is 0
 * first   any; a stream has 2^66 values, of which this reaches 2^64, and then starts again
 * threads NULL = the calling thread
 * returns OK, ERR_ARGUMENT (NULL, bad alignment, half a thread table), ERR_OVERFLOW (n elements do not fit size_t)
 */
MEMOPT_API memopt_status memopt_random_bits(uint32_t *dst, size_t n, uint64_t seed, uint64_t stream, uint64_t first,
                                            const memopt_threads *threads);
MEMOPT_API memopt_status memopt_random_uniform(float *dst, size_t n, uint64_t seed, uint64_t stream, uint64_t first,
                                               const memopt_threads *threads);
MEMOPT_API memopt_status memopt_random_normal(float *dst, size_t n, uint64_t seed, uint64_t stream, uint64_t first,
                                              const memopt_threads *threads);
/* @section api_number : api_random
   Formats: bf16 (8 bits of exponent, 7 of mantissa), f16 (IEEE half: 5, 10), e4m3 and e5m2 (OCP 8-bit; e4m3 has no
   infinity, its largest is 448). All as plain integers, in the machine's byte order.

   Rounding    Nearest, ties to even; or stochastic: up with the probability that lies between, so that the mean is
               the value; values that are exact stay. Denormals are kept everywhere.
   NaN         stays NaN with its sign and becomes quiet; the upper bits of its payload are kept where they fit (e4m3
               has one NaN of each sign). Only bf16 to float32 changes nothing at all (but the x87 makes NaN quiet
               where it returns one).
   Too large   What rounds beyond the largest finite number becomes infinity, in e4m3 NaN; with `saturate` the largest
               finite number, as infinities then do. Stochastic rounding treats what is beyond the largest finite
               number as nearest does: it makes no infinity where nearest makes none.

   Single values first; the arrays below give the same bits. */
MEMOPT_I_INLINE uint32_t memopt_i_bits_of(float x) {
    union { float f; uint32_t u; } both;
    both.f = x;
    return both.u;
}
MEMOPT_I_INLINE float memopt_i_float_of(uint32_t u) {
    union { float f; uint32_t u; } both;
    both.u = u;
    return both.f;
}
/* A magnitude (no sign, no NaN) as a code with `bits` of mantissa whose smallest normal number has the float32 exponent
   `lowest`. What is too large gives a code that is too large. */
MEMOPT_I_INLINE uint32_t memopt_i_narrow(uint32_t magnitude, unsigned bits, unsigned lowest, int stochastic,
                                         uint32_t random) {
    unsigned exponent = magnitude >> 23, drop = 23 - bits;
    uint32_t mantissa = magnitude & 0x7fffff, code = 0;
    if (exponent) mantissa |= 0x800000;
    else exponent = 1;
    if (exponent >= lowest) code = (exponent - lowest) << bits;
    else drop += lowest - exponent;
    if (stochastic) { /* 31 bits take part: where more are dropped, the lowest of them are cut off */
        if (drop > 31) {
            mantissa = drop > 31 + 24 ? 0 : mantissa >> (drop - 31);
            drop = 31;
        }
        return code + ((mantissa + (random >> (32 - drop))) >> drop);
    }
    if (drop > 25) drop = 25; /* less than half of the smallest, however much less */
    return code + ((mantissa + ((uint32_t)1 << (drop - 1)) - 1 + (mantissa >> drop & 1)) >> drop);
}
/* The other way, for codes that are finite; exact. */
MEMOPT_I_INLINE uint32_t memopt_i_widen(uint32_t code, unsigned bits, unsigned lowest) {
    unsigned exponent = code >> bits;
    uint32_t mantissa = code & (((uint32_t)1 << bits) - 1);
    if (exponent) return (exponent - 1 + lowest) << 23 | mantissa << (23 - bits);
    if (!mantissa) return 0;
    for (exponent = lowest; !(mantissa >> bits); --exponent) mantissa <<= 1;
    return exponent << 23 | (mantissa << (23 - bits) & 0x7fffff);
}
MEMOPT_I_INLINE uint32_t memopt_i_bf16_code(uint32_t u, int stochastic, uint32_t random) {
    const uint32_t magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000) return u >> 16 | 0x40;
    if (stochastic && magnitude <= 0x7f7f0000) return (u + (random >> 16)) >> 16;
    return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
MEMOPT_I_INLINE uint32_t memopt_i_f16_code(uint32_t u, int stochastic, uint32_t random) {
    const uint32_t magnitude = u & 0x7fffffff, sign = u >> 16 & 0x8000; uint32_t code;
    if (magnitude > 0x7f800000) return sign | 0x7e00 | (u >> 13 & 0x3ff);
    code = memopt_i_narrow(magnitude, 10, 113, stochastic && magnitude <= 0x477fe000, random);
    return sign | (code < 0x7c00 ? code : 0x7c00);
}
MEMOPT_I_INLINE uint32_t memopt_i_e4m3_code(uint32_t u, int saturate, int stochastic, uint32_t random) {
    const uint32_t magnitude = u & 0x7fffffff, sign = u >> 24 & 0x80; uint32_t code;
    if (magnitude > 0x7f800000) return sign | 0x7f;
    code = memopt_i_narrow(magnitude, 3, 121, stochastic && magnitude <= 0x43e00000, random);
    return sign | (code < 0x7f ? code : saturate ? 0x7eu : 0x7fu);
}
MEMOPT_I_INLINE uint32_t memopt_i_e5m2_code(uint32_t u, int saturate, int stochastic, uint32_t random) {
    const uint32_t magnitude = u & 0x7fffffff, sign = u >> 24 & 0x80; uint32_t code;
    if (magnitude > 0x7f800000) return sign | 0x7e | (u >> 21 & 1);
    code = memopt_i_narrow(magnitude, 2, 113, stochastic && magnitude <= 0x47600000, random);
    return sign | (code < 0x7c ? code : saturate ? 0x7bu : 0x7cu);
}
MEMOPT_I_INLINE uint32_t memopt_i_f16_bits(uint32_t code) { /* as float32 */
    const uint32_t sign = (code & 0x8000) << 16, magnitude = code & 0x7fff;
    if (magnitude > 0x7c00) return sign | 0x7fc00000 | (magnitude & 0x3ff) << 13;
    return sign | (magnitude == 0x7c00 ? 0x7f800000 : memopt_i_widen(magnitude, 10, 113));
}
MEMOPT_I_INLINE uint32_t memopt_i_e4m3_bits(uint32_t code) {
    const uint32_t sign = (code & 0x80) << 24, magnitude = code & 0x7f;
    return sign | (magnitude == 0x7f ? 0x7fc00000 : memopt_i_widen(magnitude, 3, 121));
}

/* A float to a code and back. random: 32 random bits; bf16 uses the upper 16. saturate: 0 or 1. */
MEMOPT_I_INLINE uint16_t memopt_to_bf16(float x) { return (uint16_t)memopt_i_bf16_code(memopt_i_bits_of(x), 0, 0); }
MEMOPT_I_INLINE uint16_t memopt_to_f16(float x) { return (uint16_t)memopt_i_f16_code(memopt_i_bits_of(x), 0, 0); }
MEMOPT_I_INLINE uint8_t memopt_to_e4m3(float x, int saturate) {
    return (uint8_t)memopt_i_e4m3_code(memopt_i_bits_of(x), saturate, 0, 0);
}
MEMOPT_I_INLINE uint8_t memopt_to_e5m2(float x, int saturate) {
    return (uint8_t)memopt_i_e5m2_code(memopt_i_bits_of(x), saturate, 0, 0);
}
MEMOPT_I_INLINE uint16_t memopt_to_bf16_stochastic(float x, uint32_t random) {
    return (uint16_t)memopt_i_bf16_code(memopt_i_bits_of(x), 1, random);
}
MEMOPT_I_INLINE uint16_t memopt_to_f16_stochastic(float x, uint32_t random) {
    return (uint16_t)memopt_i_f16_code(memopt_i_bits_of(x), 1, random);
}
MEMOPT_I_INLINE uint8_t memopt_to_e4m3_stochastic(float x, int saturate, uint32_t random) {
    return (uint8_t)memopt_i_e4m3_code(memopt_i_bits_of(x), saturate, 1, random);
}
MEMOPT_I_INLINE uint8_t memopt_to_e5m2_stochastic(float x, int saturate, uint32_t random) {
    return (uint8_t)memopt_i_e5m2_code(memopt_i_bits_of(x), saturate, 1, random);
}
MEMOPT_I_INLINE float memopt_from_bf16(uint16_t code) { return memopt_i_float_of((uint32_t)code << 16); }
MEMOPT_I_INLINE float memopt_from_f16(uint16_t code) { return memopt_i_float_of(memopt_i_f16_bits(code)); }
MEMOPT_I_INLINE float memopt_from_e4m3(uint8_t code) { return memopt_i_float_of(memopt_i_e4m3_bits(code)); }
MEMOPT_I_INLINE float memopt_from_e5m2(uint8_t code) { /* the upper half of an f16 */
    return memopt_i_float_of(memopt_i_f16_bits((uint32_t)code << 8));
}
/* A float as its nearest bf16 and 16 bits more, and back. Here ties go away from zero: ties to even would give some
   bf16 65,537 floats. */
MEMOPT_I_INLINE uint32_t memopt_i_split_high(uint32_t u) {
    const uint32_t magnitude = u & 0x7fffffff;
    if (magnitude <= 0x7f800000) return (u + 0x8000) >> 16 & 0xffff;
    if (magnitude >= 0x7f810000 || !(u & 0x8000)) return u >> 16;
    return ~u >> 16 & 0x8000; /* the one place that is free: what 0x7fff8000 and up would round to */
}
MEMOPT_I_INLINE uint32_t memopt_i_join(uint32_t high, uint32_t low) {
    if ((high & 0x7fff) <= 0x7f80) high = (high - (low >> 15)) & 0xffff;
    else return high << 16 | low;
    if ((high & 0x7fff) == 0x7fff) high ^= 0x7f;
    return high << 16 | low;
}

typedef enum memopt_type { MEMOPT_TYPE_F32, MEMOPT_TYPE_BF16, MEMOPT_TYPE_F16 } memopt_type;
/** Bytes of an element; 0 for numbers that are no type. */
MEMOPT_API size_t memopt_type_bytes(memopt_type type);
/** The name of a type, for people; static text, never NULL, also for numbers that are no type. */
MEMOPT_API const char *memopt_type_text(memopt_type type);
/**
 * Arrays of n elements. The longest take the memory's own time: results that no cache will hold are streamed past it.
 *
 * dst, src  aligned as their types, and without a byte in common; may be NULL when n is 0
 * saturate  0 or 1, see above
 * noise     from memopt_noise_make; element i uses its bits number first + i, so that parts give the bits of the whole
 * threads   NULL = the calling thread; the result does not depend on it
 * returns   OK, ERR_ARGUMENT (NULL, bad alignment, overlap, half a thread table, saturate not 0 or 1),
 *           ERR_OVERFLOW (n elements do not fit size_t)
 */
MEMOPT_API memopt_status memopt_bf16_from_f32(uint16_t *dst, const float *src, size_t n, const memopt_threads *threads);
MEMOPT_API memopt_status memopt_f16_from_f32(uint16_t *dst, const float *src, size_t n, const memopt_threads *threads);
MEMOPT_API memopt_status memopt_e4m3_from_f32(uint8_t *dst, const float *src, size_t n, int saturate,
                                              const memopt_threads *threads);
MEMOPT_API memopt_status memopt_e5m2_from_f32(uint8_t *dst, const float *src, size_t n, int saturate,
                                              const memopt_threads *threads);
MEMOPT_API memopt_status memopt_bf16_from_f32_stochastic(uint16_t *dst, const float *src, size_t n, memopt_noise noise,
                                                         uint64_t first, const memopt_threads *threads);
MEMOPT_API memopt_status memopt_f16_from_f32_stochastic(uint16_t *dst, const float *src, size_t n, memopt_noise noise,
                                                        uint64_t first, const memopt_threads *threads);
MEMOPT_API memopt_status memopt_e4m3_from_f32_stochastic(uint8_t *dst, const float *src, size_t n, int saturate,
                                                         memopt_noise noise, uint64_t first,
                                                         const memopt_threads *threads);
MEMOPT_API memopt_status memopt_e5m2_from_f32_stochastic(uint8_t *dst, const float *src, size_t n, int saturate,
                                                         memopt_noise noise, uint64_t first,
                                                         const memopt_threads *threads);
MEMOPT_API memopt_status memopt_f32_from_bf16(float *dst, const uint16_t *src, size_t n, const memopt_threads *threads);
MEMOPT_API memopt_status memopt_f32_from_f16(float *dst, const uint16_t *src, size_t n, const memopt_threads *threads);
MEMOPT_API memopt_status memopt_f32_from_e4m3(float *dst, const uint8_t *src, size_t n, const memopt_threads *threads);
MEMOPT_API memopt_status memopt_f32_from_e5m2(float *dst, const uint8_t *src, size_t n, const memopt_threads *threads);
/**
 * A float32 as a bf16 to compute with (the nearest; ties away from zero, so that 16 bits more suffice) and the 16 bits
 * that were lost; join gives back the same bits, for every float. A NaN is a NaN in `high`; but one with nothing in the
 * upper 7 bits of its mantissa (signalling; arithmetic makes none) looks like an infinity or a zero there.
 */
MEMOPT_API memopt_status memopt_f32_split(uint16_t *high, uint16_t *low, const float *src, size_t n,
                                          const memopt_threads *threads);
MEMOPT_API memopt_status memopt_f32_join(float *dst, const uint16_t *high, const uint16_t *low, size_t n,
                                         const memopt_threads *threads);
/* @section api_quant : api_number
   Arrays of floats as one byte an element and one float for each block: x = level[code] * absmax.

   Blocks      `block` elements each, the first at the first element of the tensor, the last may be short; quantise each
               tensor by itself. A multiple of 32 from 32 to 4096; 0 = default: 256. Bytes: 1 + 4 / block an element.
   Maps        256 levels from -1 or 0 to 1, in the order of their codes. Signed and unsigned are bitsandbytes' dynamic
               maps: seven decades, each cut evenly into twice as many levels as the one below, so that small values
               keep their relative precision down to 1e-6 (signed) of the largest. Linear is (code - 127) / 128.
   Code of x   the level nearest to fl(x * fl(1 / absmax)), exactly; of two that are equally near the lower. Zero has a
               level of its own (code 127; unsigned 0), and nothing takes a level of the other sign. A negative number
               takes code 0 in the unsigned map.
   Absmax      the largest magnitude of the block's finite elements. NaN takes the code of zero, an infinity the
               outermost level of its sign; neither changes what another element gets. (A block of infinities and zeros
               has absmax 0 and the codes of zero.) From 2^-128 down 1 / absmax does not fit a float and is FLT_MAX:
               such blocks lose precision. */
typedef enum memopt_map { MEMOPT_MAP_SIGNED, MEMOPT_MAP_UNSIGNED, MEMOPT_MAP_LINEAR } memopt_map;
/**
 * The levels of a map, smallest first: levels[code]; for export, and for decoding elsewhere.
 *
 * returns OK, ERR_ARGUMENT (levels NULL, no such map; nothing is written)
 */
MEMOPT_API memopt_status memopt_map_levels(memopt_map map, float levels[256]);
/** Number of blocks, hence of floats in absmax, for n elements; 0 for n = 0 and for a block that is not allowed. */
MEMOPT_API size_t memopt_quantize_blocks(size_t n, size_t block);
/**
 * Quantise: codes and absmax from float32 or bf16. One pass over memory; the same bytes for any workers and level.
 *
 * codes   receives n bytes
 * absmax  receives memopt_quantize_blocks(n, block) floats
 * src     n elements; any values, NaN and infinities as said above
 * n       any; 0: nothing is done, and the pointers may be NULL
 * block   a multiple of 32 from 32 to 4096; 0 = default: 256
 * returns OK, ERR_ARGUMENT (NULL, map, block, arrays that overlap, half a thread table), ERR_OVERFLOW (n elements do
 *         not fit the address space); on failure nothing is written
 * memory  no allocation; up to 25 KiB of stack a worker
 * threads NULL = the calling thread; chunks of whole blocks, about 64 Ki elements each
 */
MEMOPT_API memopt_status memopt_quantize_f32(uint8_t *codes, float *absmax, const float *src, size_t n, memopt_map map,
                                             size_t block, const memopt_threads *threads);
MEMOPT_API memopt_status memopt_quantize_bf16(uint8_t *codes, float *absmax, const uint16_t *src, size_t n,
                                              memopt_map map, size_t block, const memopt_threads *threads);
/**
 * Dequantise: dst[i] = fl(level[codes[i]] * absmax[i / block]), as float32, or that rounded to the nearest bf16.
 * Any codes and any absmax are fine. Arguments and statuses as for memopt_quantize_f32.
 */
MEMOPT_API memopt_status memopt_dequantize_f32(float *dst, const uint8_t *codes, const float *absmax, size_t n,
                                               memopt_map map, size_t block, const memopt_threads *threads);
MEMOPT_API memopt_status memopt_dequantize_bf16(uint16_t *dst, const uint8_t *codes, const float *absmax, size_t n,
                                                memopt_map map, size_t block, const memopt_threads *threads);
/* @section api_optim : api_host api_random
   One optimizer object steps all tensors of a model. Its memory and every tensor's state are asked for first, and
   brought by you: from an arena, a heap, a file. A step is begin, for kinds that need whole-tensor numbers measure,
   apply, end; memopt_optim_step() does all of it for all tensors in parallel passes. */
typedef enum memopt_optim_kind {
    MEMOPT_ADAMW,     /* decoupled weight decay; torch.optim.AdamW's rule */
    MEMOPT_ADAM,      /* the decay is added to the gradient; torch.optim.Adam's rule */
    MEMOPT_SGD,       /* with momentum, dampening, Nesterov; torch.optim.SGD's rule */
    MEMOPT_LION,      /* google/automl's rule */
    MEMOPT_LARS,      /* the paper's rule (1708.03888): the rate goes into the momentum; eta is `trust` */
    MEMOPT_LAMB,      /* apex's rule: FusedLAMB, mode 1, with bias correction; clip the global norm yourself */
    MEMOPT_ADAFACTOR  /* the author's rule (mesh-tensorflow's optimize.py), rows and columns of a matrix */
} memopt_optim_kind;
typedef enum memopt_state_format {
    MEMOPT_STATE_F32,  /* 4 bytes a moment */
    MEMOPT_STATE_BF16, /* 2 bytes, stochastically rounded */
    MEMOPT_STATE_8BIT, /* 1 byte and 4 / block; the second moment as its root, never zero */
    MEMOPT_STATE_BNB   /* 1 byte and 4 / block, as bitsandbytes holds them: for import and export; ADAMW and ADAM only */
} memopt_state_format;
typedef enum memopt_weight_format {
    MEMOPT_WEIGHTS_F32,      /* `weights` is float */
    MEMOPT_WEIGHTS_BF16,     /* `weights` is bfloat16, stochastically rounded */
    MEMOPT_WEIGHTS_SPLIT,    /* `weights` is bfloat16, `extra` the 16 bits that make it an exact float */
    MEMOPT_WEIGHTS_F32_BF16  /* `weights` is float, `extra` a bfloat16 copy of it, written only */
} memopt_weight_format;
typedef enum memopt_gradient_format { /* a step on 16 bits has the bits of one on the same values in float */
    MEMOPT_GRADIENTS_F32,
    MEMOPT_GRADIENTS_BF16,
    MEMOPT_GRADIENTS_F16   /* of a scaled loss: its scale is taken out by the run's gradient_factor */
} memopt_gradient_format;

/* A tensor of the model, or the part of it that this process holds. The pointers may change between steps. */
typedef struct memopt_optim_tensor {
    void       *weights;
    void       *extra;     /* see memopt_weight_format; NULL where it has none */
    const void *gradients;
    void       *state;     /* memopt_optim_state_bytes() of memory, aligned to 64; NULL where that is 0 */
    size_t      count;     /* elements of the whole tensor */
    size_t      first;     /* the part held here starts at this element (see memopt_optim_grain()) ... */
    size_t      held;      /* ... and has so many elements: 0 = all that follow */
    size_t      columns;   /* Adafactor: elements of a row; 0 = a vector, whose second moment is not factored */
    size_t      group;     /* index of its memopt_optim_group */
} memopt_optim_tensor;

/* What a group of tensors is stepped with. Start from memopt_optim_group_default(). */
typedef struct memopt_optim_group {
    double rate;         /* learning rate of this step, with its warm-up and schedule; Adafactor: the cap of 1/sqrt(t) */
    double beta1;        /* decay of the first moment; SGD and LARS: the momentum; Adafactor: 0 = no first moment */
    double beta2;        /* decay of the second; Adafactor: the power, b2 = 1 - t^-beta2 */
    double eps;
    double weight_decay;
    double dampening;    /* SGD */
    double trust;        /* LARS: eta. LAMB: 0 */
    double clip;         /* Adafactor: the RMS that an update is clipped to */
    double least_scale;  /* Adafactor: the RMS of the weights counts as at least this */
    int    nesterov;     /* SGD */
    int    always_adapt; /* LAMB: the trust ratio also where weight_decay is 0 */
} memopt_optim_group;
MEMOPT_API memopt_optim_group memopt_optim_group_default(memopt_optim_kind kind);

typedef struct memopt_optim_desc { /* zero it, then set what you need */
    memopt_optim_kind          kind;
    memopt_state_format        state;
    memopt_weight_format       weights;
    memopt_gradient_format     gradients;
    int                        first_moment; /* Adafactor: keep one (then beta1 may be above 0) */
    size_t                     block;        /* 8-bit states: 0 = 256; a multiple of 32 from 32 to 4096 */
    size_t                     min_quantized;/* whole tensors with fewer elements keep float states; 0 = 4096 */
    uint64_t                   seed;         /* of stochastic rounding */
    memopt_threads             threads;      /* all zero = the calling thread */
    const memopt_optim_tensor *tensors;      /* yours; stays where it is. Only pointers may change, between steps */
    size_t                     tensor_count;
} memopt_optim_desc;
typedef struct memopt_optim memopt_optim;

/* What a step is combined with; begin refuses what cannot work. */
typedef struct memopt_optim_run {
    uint64_t                  step;            /* t: 1 is the first */
    const memopt_optim_group *groups;          /* read at begin */
    size_t                    group_count;
    double                    gradient_factor; /* clipping, mean, unscaling in one; 0 = 1; from 2^-48 to 2^48 */
    int                       fused;           /* applied inside backward, tensor by tensor, each once its gradient is there */
    int                       clips_norm;      /* the loop clips by the global norm */
    int                       accumulates;     /* the loop accumulates gradients over micro-batches */
    int                       scales_loss;     /* the loop scales its loss dynamically */
} memopt_optim_run;
/**
 * How many bytes the optimizer object takes: tables, sums of measured kinds, and for blocks above 256 the scratch of
 * each worker, 16 * block bytes. Up to 256 the scratch is 4 KiB of the worker's stack (a step takes 8 KiB of it in all).
 *
 * desc    the tensors' pointers are not looked at; their counts are
 * bytes   receives the size; untouched on failure
 * returns OK, ERR_ARGUMENT (no tensors, a count of 0, a part outside its tensor or not on the grain, a block that is not
 *         allowed, a combination of kind and formats that does not exist, bad threads), ERR_OVERFLOW
 */
MEMOPT_API memopt_status memopt_optim_bytes(const memopt_optim_desc *desc, size_t *bytes);
/** How many bytes the state of one tensor takes, a 64-byte header included; 0 for kinds without any. The same errors. */
MEMOPT_API memopt_status memopt_optim_state_bytes(const memopt_optim_desc *desc, size_t tensor, size_t *bytes);
/**
 * Make an optimizer in memory that you bring. There is nothing to destroy.
 *
 * memory  bytes of it, aligned to 64; the object lives in it and moves nowhere
 * out     receives the object; untouched on failure
 * returns OK, the errors of memopt_optim_bytes(), ERR_BUFFER (bytes are fewer than it said)
 * threads one thread at a time for each object; the workers of desc->threads share a call
 */
MEMOPT_API memopt_status memopt_optim_create(const memopt_optim_desc *desc, void *memory, size_t bytes,
                                             memopt_optim **out);
/** Begin the state of a tensor: header, and zero moments. returns OK, ERR_ARGUMENT (no such tensor, misaligned state) */
MEMOPT_API memopt_status memopt_optim_state_init(memopt_optim *optim, size_t tensor);
/**
 * Is this a state of this tensor in this format? Ask it of bytes that come from outside, before the first step.
 *
 * bytes   how many there are
 * returns OK, ERR_ARGUMENT, ERR_BUFFER (truncated), ERR_FORMAT (of another kind, format, block, tensor, version, or
 *         byte order; or its scales are not finite); the reason in memopt_optim_error()
 */
MEMOPT_API memopt_status memopt_optim_state_check(memopt_optim *optim, size_t tensor, size_t bytes);
/* Where the parts of a state are: to import, export, or look at it. */
typedef struct memopt_optim_view {
    size_t held;      /* elements */
    size_t blocks;    /* scales of each moment; 0 where the moments are not in 8 bits */
    int    bits;      /* of an element of a moment: 32, 16, 8 */
    int    moments;   /* 0 to 2 */
    void  *moment[2]; /* float, bfloat16 bits, or codes */
    float *scale[2];  /* the largest magnitude of each block */
    float *rows, *columns; /* Adafactor's means of squares; NULL elsewhere. A vector has its second moment in rows */
} memopt_optim_view;
MEMOPT_API memopt_status memopt_optim_state_view(memopt_optim *optim, size_t tensor, memopt_optim_view *out);
/** Parts and slices of a tensor begin at multiples of this many elements, counted in all of it; 0: no such tensor. */
MEMOPT_API size_t memopt_optim_grain(const memopt_optim *optim, size_t tensor);

/**
 * Step all tensors: begin, measure where the kind needs it, apply, end. Elements whose gradient is NaN, infinite or at
 * least 2^62 after the factor keep their weight and moments (memopt_optim_skipped() counts them); every other element
 * is stepped as if they were not there. To leave the whole step out instead, look before: see memopt_scaler_measure().
 *
 * returns OK, ERR_ARGUMENT (step 0, a group that does not exist, a rate, beta, eps or factor outside its range, a
 *         pointer that is missing or misaligned), ERR_FORMAT (a state that was not begun, or is another's), ERR_STATE
 *         (a step has begun already); nothing has changed then
 */
MEMOPT_API memopt_status memopt_optim_step(memopt_optim *optim, const memopt_optim_run *run);
/**
 * The same in parts: for sharding, and for a step inside backward (run->fused), where gradients live only for a moment.
 * Begin; for kinds that measure: measure every slice of a tensor, join it, as often as join says `again`; then apply
 * every slice; end. How a tensor is cut into slices, and their order, changes no bit.
 *
 * begin   refuses what cannot work, with a reason: a fused step whose loop clips by the global norm, accumulates, or
 *         scales its loss dynamically. Those need all gradients before the first weight changes: step after backward
 * measure reads only. ERR_STATE in the wrong order, ERR_ARGUMENT (slice off the grain or outside the part)
 * join    ends a pass over a tensor; again: 1 = measure all of it once more. Where ranks share a tensor, add up
 *         memopt_optim_sums() over them before
 * apply   ERR_STATE before the tensor was joined. A fused apply that meets a gradient that is not finite changes nothing
 *         and returns ERR_STATE; all later ones do too, until end. What was applied before stays: memopt_optim_applied()
 * end     ERR_STATE (no step has begun, or the fused step was stopped: it is ended nevertheless)
 */
MEMOPT_API memopt_status memopt_optim_begin(memopt_optim *optim, const memopt_optim_run *run);
MEMOPT_API memopt_status memopt_optim_measure(memopt_optim *optim, size_t tensor, size_t first, size_t count);
MEMOPT_API memopt_status memopt_optim_join(memopt_optim *optim, size_t tensor, int *again);
MEMOPT_API memopt_status memopt_optim_apply(memopt_optim *optim, size_t tensor, size_t first, size_t count);
MEMOPT_API memopt_status memopt_optim_end(memopt_optim *optim);
/** The sums of a tensor's slices measured here; those of other ranks are 0. returns OK, ERR_ARGUMENT, ERR_STATE */
MEMOPT_API memopt_status memopt_optim_sums(memopt_optim *optim, size_t tensor, double **sums, size_t *count);
/** Does this kind measure before it applies? */
MEMOPT_API int           memopt_optim_measures(const memopt_optim *optim);
MEMOPT_API size_t        memopt_optim_applied(const memopt_optim *optim, size_t tensor); /* elements, in this step */
MEMOPT_API uint64_t      memopt_optim_skipped(const memopt_optim *optim); /* elements left alone in this step */
/** Why the last call that failed did; MEMOPT_OK when none has. Never NULL for an optimizer; NULL for NULL. */
MEMOPT_API const memopt_error *memopt_optim_error(const memopt_optim *optim);
/* @section api_scale : api_number */
/* One step with fp16 gradients, micro-batches and clipping; the gradients are read once here and once by the optimizer:

     memopt_scaler_default(&scaler);                                (once; later restored from a save)
     memopt_gradients_scratch(&gradients, &bytes);                  (once: the scratch that the list brings along)
     ...
     for (each micro-batch)                                         (its loss was multiplied by scaler.scale)
         memopt_gradients_accumulate(&sums, &gradients, &batch, &accumulation, threads);
     memopt_scaler_measure(&scaler, &sums, &total, threads);        (reads only; memopt_scaler_unscale() writes, too)
     overflow = largest total.overflow of all ranks;
     if (!overflow) {
         memopt_accumulation_mean(&accumulation, &mean);            (1 / tokens)
         memopt_clip_norm(sqrt(total.squares) * total.factor * mean, max_norm, &clip);
         the optimizer's step, its gradient_factor being total.factor * mean * clip
     }
     memopt_scaler_update(&scaler, overflow);

   A step that met a NaN or an infinity calls no optimizer, so weights and state keep every bit. Measuring first is also
   why a step fused into backward cannot be combined with any of this: it has changed the first weights by then. */
#define MEMOPT_KEEP_NORMS      1u /* scales and biases of norms, and their running statistics */
#define MEMOPT_KEEP_BIASES     2u
#define MEMOPT_KEEP_EMBEDDINGS 4u
#define MEMOPT_KEEP_HEAD       8u /* logits, softmax and loss */
typedef struct memopt_precision { /* which numbers of a training run have which type; all zero = everything fp32 */
    memopt_type weights;      /* that forward and backward read */
    memopt_type master;       /* that the optimizer steps: F32; or BF16, in place and rounded stochastically */
    memopt_type gradients;    /* that backward writes for weights */
    memopt_type reduction;    /* sums of them, over micro-batches and over ranks */
    memopt_type buffers;      /* norm statistics, position tables: what is neither trained nor recomputed */
    unsigned    keep_f32;     /* MEMOPT_KEEP_..., or'ed: stays fp32 whatever is said above */
    int         loss_scaling; /* 1: the loss is multiplied by a memopt_scaler's scale */
} memopt_precision;
MEMOPT_API memopt_precision memopt_precision_f32(void);
/** bf16 weights and gradients; fp32 master, sums and buffers; norms and head stay fp32. */
MEMOPT_API memopt_precision memopt_precision_bf16(void);
/** The same without a master: 4 bytes for a weight and its gradient, sums in bf16. Needs stochastic rounding. */
MEMOPT_API memopt_precision memopt_precision_bf16_lean(void);
/** fp16 weights and gradients with loss scaling; fp32 master, sums and buffers; norms and head stay fp32. */
MEMOPT_API memopt_precision memopt_precision_f16(void);
/**
 * Does a policy go together?
 *
 * reason  may be NULL; receives one static lower-case line: what does not fit, and why; "" when all is well
 * returns OK, ERR_ARGUMENT (policy NULL, a value that is none, or what the reason says)
 */
MEMOPT_API memopt_status memopt_precision_check(const memopt_precision *policy, const char **reason);
/** The type of weights of a kind (MEMOPT_KEEP_..., or'ed; 0 = of none of these kinds); F32 for NULL. */
MEMOPT_API memopt_type memopt_precision_weights(const memopt_precision *policy, unsigned kinds);

typedef struct memopt_gradient { /* one tensor; zero it, then set what you need */
    void       *values;    /* count elements of the type, aligned as the type is; NULL only when count is 0 */
    size_t      count;     /* 0 is fine: a tensor whose part on this rank is empty */
    memopt_type type;
    uint16_t   *rest;      /* sums in BF16 only: count more bf16, for Kahan's sum; NULL = stochastic rounding */
    uint64_t    first;     /* sums without rest: the place of element 0 among all weights, which picks random bits */
    double      squares;   /* written by measure, scale and unscale: the sum of the squares; infinite if nonfinite */
    size_t      nonfinite; /* likewise: how many values are NaN or infinite */
} memopt_gradient;
typedef struct memopt_gradients { /* what one call works on, in one parallel pass */
    memopt_gradient *tensors;
    size_t           count;         /* 0 is fine */
    void            *scratch;       /* as memopt_gradients_scratch() says; aligned to 8; not kept between calls */
    size_t           scratch_bytes;
} memopt_gradients;
typedef struct memopt_gradient_total {
    double squares;   /* sum of the squares of all values as they lie in memory now; infinite if one is not finite */
    double factor;    /* what they still have to be multiplied by: the norm is sqrt(squares) * factor */
    size_t nonfinite; /* how many are NaN or infinite; memopt_gradient.nonfinite says in which tensor */
    int    overflow;  /* nonfinite != 0. The largest of all ranks (or'ed, MPI_MAX) decides for all of them */
} memopt_gradient_total;
/**
 * Bytes of scratch for a list: 32 (less on small machines) for each tensor and each 64 Ki elements begun.
 *
 * bytes   untouched on failure; 0 when there is no element
 * returns OK, ERR_ARGUMENT (NULL, a tensor that is wrong), ERR_OVERFLOW
 */
MEMOPT_API memopt_status memopt_gradients_scratch(const memopt_gradients *list, size_t *bytes);
/**
 * Norm and finite check of many tensors in one pass that reads only. Writes squares and nonfinite of each tensor.
 *
 * The sum is the same bits at every SIMD level and for any workers, because its order is fixed: a tensor is cut every
 * 65536 elements; in a piece, element i goes to sum i % 16 of 16 (in double), these are joined 0 + 8, 1 + 9, ..., then
 * 0 + 4, ..., 0 + 1; pieces are added in order to their tensor's, tensors in order to the total. So ranks that hold
 * whole tensors can put their tensors' sums together, add them in order, and have the bits of one rank.
 *
 * total   factor is 1
 * returns OK, also when it found NaN or infinities (total->overflow); ERR_ARGUMENT (NULL, no type, bad alignment, bad
 *         threads); ERR_OVERFLOW; ERR_BUFFER (scratch too small). A failed call has read and written nothing.
 * threads NULL = the calling thread; one call at a time for each list
 */
MEMOPT_API memopt_status memopt_gradients_measure(const memopt_gradients *list, memopt_gradient_total *total,
                                                  const memopt_threads *threads);
/**
 * Multiply in place, and measure the products, in one pass.
 *
 * factor  rounded to float first; finite. 1: nothing is written to the values. A product that is NaN is the quiet NaN
 *         0x7FC00000; a 16-bit one is rounded to nearest even, and overflows to infinity, which counts as nonfinite
 * total   may be NULL; factor is 1
 * returns as memopt_gradients_measure(); ERR_ARGUMENT for a factor that is not finite
 */
MEMOPT_API memopt_status memopt_gradients_scale(const memopt_gradients *list, double factor,
                                                memopt_gradient_total *total, const memopt_threads *threads);
/**
 * Bring every value into [-limit, limit], as torch.nn.utils.clip_grad_value_ does: NaN stays NaN, bit for bit,
 * infinities become the limit. Nothing is written where nothing is too large.
 *
 * limit   0 and up, infinity allowed; rounded to nearest in the tensor's type first
 * returns as memopt_gradients_measure(); ERR_ARGUMENT for a limit that is negative or NaN
 */
MEMOPT_API memopt_status memopt_gradients_clip_value(const memopt_gradients *list, float limit,
                                                     const memopt_threads *threads);
/**
 * The factor that brings a norm down to max_norm: max_norm / (norm + 1e-6), at most 1, as in
 * torch.nn.utils.clip_grad_norm_ (here in double). Give it to the optimizer as gradient_factor; or, for one pass more,
 * to memopt_gradients_scale().
 *
 * norm     finite: a step whose norm is not must be skipped
 * max_norm 0 and up; infinity: never clips
 * factor   untouched on failure
 * returns  OK, ERR_ARGUMENT
 */
MEMOPT_API memopt_status memopt_clip_norm(double norm, double max_norm, double *factor);

/* Dynamic loss scaling by the rules of PyTorch's GradScaler. Plain values, 40 bytes without padding: saving them all
   and setting them again resumes exactly. Fields stay as they are within a major version. */
typedef struct memopt_scaler {
    float    scale;           /* multiply the loss by it */
    float    floor;           /* below it the scale never falls: memopt_scaler_update() fails instead */
    double   growth_factor;   /* above 1 */
    double   backoff_factor;  /* above 0, below 1 */
    uint32_t growth_interval; /* so many steps in a row without overflow, then the scale grows; at least 1 */
    uint32_t growth_tracker;  /* steps in a row so far; below growth_interval */
    uint32_t unscaled;        /* 1: this step's gradients have been unscaled or measured, update is due */
    uint32_t found;           /* 1: and were not all finite, on this rank */
} memopt_scaler;
/** 65536, floor 1, growth 2 after 2000 steps, backoff 0.5. NULL is ERR_ARGUMENT. */
MEMOPT_API memopt_status memopt_scaler_default(memopt_scaler *scaler);
/** Is every field what its comment says, the scale finite and not below the floor, the inverse of the floor finite?
    Else ERR_ARGUMENT, here and in every call below. For values set by hand, and after a restore. */
MEMOPT_API memopt_status memopt_scaler_check(const memopt_scaler *scaler);
/** 1 / scale, computed in double and rounded to float, as GradScaler does; 0 for what memopt_scaler_check() refuses. */
MEMOPT_API float memopt_scaler_inverse(const memopt_scaler *scaler);
/**
 * Divide the gradients by the scale, in place; check and measure them, in the same pass; remember what was found.
 *
 * Values count as not finite before or after: where the scale is below 1, a quotient that overflows is found as well.
 *
 * total   total->overflow, the largest of all ranks, decides whether the optimizer may run
 * returns as memopt_gradients_scale(); ERR_STATE (already unscaled or measured, and not yet updated: unscaled twice,
 *         gradients would be too small). A failed call has changed nothing.
 */
MEMOPT_API memopt_status memopt_scaler_unscale(memopt_scaler *scaler, const memopt_gradients *list,
                                               memopt_gradient_total *total, const memopt_threads *threads);
/** The same without writing to the gradients: total->factor is 1 / scale, for the optimizer's gradient_factor. */
MEMOPT_API memopt_status memopt_scaler_measure(memopt_scaler *scaler, const memopt_gradients *list,
                                               memopt_gradient_total *total, const memopt_threads *threads);
/**
 * The end of a step: after an overflow scale *= backoff_factor; after growth_interval steps in a row without one
 * scale *= growth_factor, unless that is infinite.
 *
 * overflow  what all ranks found, or'ed; all ranks pass the same, so their scales stay the same
 * returns   OK; ERR_STATE (nothing has been unscaled or measured since the last update); ERR_ARGUMENT (bad scaler, or
 *           overflow 0 although this rank has found one: the flag was not combined); ERR_OVERFLOW (the scale would fall
 *           below the floor: the gradients are not finite at any scale, the loss itself is broken). A failed call has
 *           changed nothing; to train on at the floor nevertheless, memopt_scaler_cancel().
 */
MEMOPT_API memopt_status memopt_scaler_update(memopt_scaler *scaler, int overflow);
/** Drop a step that has been unscaled or measured: scale and tracker stay. ERR_STATE when there is none to drop. */
MEMOPT_API memopt_status memopt_scaler_cancel(memopt_scaler *scaler);

typedef struct memopt_accumulation { /* of one step; zero it before the first micro-batch. Plain values */
    uint64_t tokens;        /* counted so far; ranks add theirs up and put the sum here before they ask for the mean */
    uint64_t micro_batches; /* that had tokens */
} memopt_accumulation;
typedef struct memopt_micro_batch {
    uint64_t            tokens;  /* that count in its loss, not padding; 0: its gradients are neither read nor added */
    int                 is_mean; /* 0: gradients of a loss summed over tokens; 1: of its mean, to be weighted */
    const memopt_noise *noise;   /* for BF16 sums without rest; another one for every micro-batch of every step */
} memopt_micro_batch;
/**
 * Add a micro-batch's gradients to the sums, so that each token weighs the same however tokens fall into batches.
 *
 * The first micro-batch overwrites the sums; nothing has to be zeroed. sum = fma(weight, gradient, sum) in float, the
 * weight being 1, or float(tokens); a NaN is 0x7FC00000. F32 sums keep that. BF16 sums with `rest` are the nearest bf16
 * of it, and rest the nearest bf16 of what is left: 16 bits of precision in 4 bytes. BF16 sums without rest are rounded
 * stochastically: no bias, 8 bits of precision, 2 bytes; element i of a tensor takes the random bits first + i.
 *
 * sums         F32 or BF16; its scratch is used
 * gradients    as many tensors, each of the same count as its sum, of any type; never the memory of the sums
 * accumulation counts on; untouched on failure
 * returns      OK; ERR_ARGUMENT (NULL, counts that differ, F16 sums, rest beside F32, BF16 without rest and without
 *              noise, bad threads); ERR_OVERFLOW (tokens, or a size); ERR_BUFFER. A failed call has changed nothing.
 * threads      one call at a time for each list
 */
MEMOPT_API memopt_status memopt_gradients_accumulate(const memopt_gradients *sums, const memopt_gradients *gradients,
                                                     const memopt_micro_batch *batch, memopt_accumulation *accumulation,
                                                     const memopt_threads *threads);
/** 1 / tokens, which makes the sums a mean: a factor for the optimizer. ERR_STATE, factor untouched, without tokens. */
MEMOPT_API memopt_status memopt_accumulation_mean(const memopt_accumulation *accumulation, double *factor);
/* @section api_schedule : api_host
   A network as a chain: segment 0 reads the input, segment i the output of segment i - 1. Value v is what lies between
   them: value 0 is the input, value v the output of segment v - 1, and gradient v its gradient. Costs are in any unit,
   the same everywhere (seconds, operations). */
typedef struct memopt_segment { /* zero it, then set what it has */
    size_t output_bytes;
    size_t saved_bytes;      /* all that its backward keeps, its own output included: at least output_bytes */
    /* the gradient of its output; of the last segment: 0 when it begins the backward, as a loss */
    size_t grad_bytes;
    size_t forward_scratch;  /* beside input, output and saved, while its forward runs */
    size_t backward_scratch; /* while its backward runs */
    size_t plain_scratch;    /* of a forward that saves nothing; 0 = forward_scratch */
    size_t kept_bytes;       /* what a written output still takes in memory: 0 in another place, else a smaller copy */
    double forward_cost, backward_cost; /* finite, not negative */
} memopt_segment;
/* a tensor that one segment writes beside its output, and a later one reads beside its input */
typedef struct memopt_skip {
    size_t from, to;   /* from < to */
    size_t bytes;      /* counted once in every segment between, as long as some value there is held */
    size_t grad_bytes; /* of its gradient, which lives from the backward of `to` to that of `from` */
} memopt_skip;
typedef struct memopt_chain {
    const memopt_segment *segments;
    size_t                count;        /* 1 to MEMOPT_CHAIN_MOST */
    const memopt_skip    *skips;        /* NULL when there are none */
    size_t                skip_count;
    size_t                input_bytes;  /* value 0; it stays, and is counted, from beginning to end */
    size_t                input_grad_bytes; /* gradient 0; 0 when nobody wants it */
} memopt_chain;
#define MEMOPT_CHAIN_MOST 4096
typedef struct memopt_slow { /* a second place for values; all zero = none */
    size_t slots;            /* values it holds at most; MEMOPT_SLOW_UNLIMITED; 0 = there is no such place */
    double write_cost, read_cost;           /* of each transfer */
    double write_byte_cost, read_byte_cost; /* and of each byte */
    /* 1: transfers run beside the computing, one after the other; 0: computing waits for them */
    int    overlap;
} memopt_slow;
#define MEMOPT_SLOW_UNLIMITED ((size_t)-1)

/* What happens, one after the other. Everything not said is implied: backward frees the saved part, the output's value
   and gradient; a skip lives as long as a value between its ends does. */
typedef enum memopt_op {
    MEMOPT_OP_FORWARD,      /* segment: input value to output value; nothing else is kept */
    MEMOPT_OP_FORWARD_SAVE, /* segment: and what its backward needs */
    MEMOPT_OP_BACKWARD,     /* segment: needs its input, output and saved part, and the output's gradient */
    MEMOPT_OP_DROP,         /* value: its memory is free */
    MEMOPT_OP_WRITE,        /* value: a copy to the slow place begins; the memory stays taken until WAIT */
    MEMOPT_OP_READ,         /* value: memory is taken, the copy back begins; no use before WAIT */
    MEMOPT_OP_WAIT,         /* value: its transfer has ended */
    MEMOPT_OP_FORGET        /* value: its copy in the slow place is gone */
} memopt_op;
typedef struct memopt_action { uint16_t op; uint16_t index; } memopt_action; /* a memopt_op; the segment or value */

typedef enum memopt_rule {
    MEMOPT_RULE_EXTENDED, /* the best: a saved segment may stay while its input is dropped and made again */
    MEMOPT_RULE_ROTOR,    /* a saved segment pins its input (Rotor) */
    MEMOPT_RULE_REVOLVE,  /* values only: each segment saves right before its backward (REVOLVE, H-Revolve) */
    MEMOPT_RULE_ALL,      /* the textbook from here on, whatever the budget: keep everything */
    MEMOPT_RULE_NONE,     /* keep the input only */
    MEMOPT_RULE_EVERY,    /* keep every k-th value; the last segment is saved at once */
    MEMOPT_RULE_SQRT      /* every sqrt(n) */
} memopt_rule;
typedef struct memopt_schedule_result {
    size_t peak;     /* bytes, input included: exact, by going through the actions */
    double cost;     /* all forwards and backwards, and the waiting for transfers */
    double extra;    /* cost above that of keeping everything */
    size_t actions;  /* how many */
    size_t forwards; /* of them, FORWARD and FORWARD_SAVE */
    size_t at;       /* of an error: the action that cannot be; else the one at which the peak is first reached */
} memopt_schedule_result;
/**
 * Go through actions and tell their exact peak and cost. Any list will do, whoever made it.
 *
 * slow     NULL = none
 * host     its allocator is used, about 16 bytes a segment and 8 a skip, all returned; NULL = malloc
 * result   may be NULL; on ERR_STATE `at` is set; else untouched on failure
 * returns  OK; ERR_STATE (an action cannot be there: its input is missing, or at the end a backward is missing or
 *          something is still held); ERR_ARGUMENT (no segments, NULL, saved below output, bad skip, a cost that is NaN,
 *          infinite or negative), ERR_OVERFLOW (the sizes do not fit size_t when summed), ERR_MEMORY
 */
MEMOPT_API memopt_status memopt_schedule_simulate(const memopt_chain *chain, const memopt_slow *slow,
                                                  const memopt_action *actions, size_t count, const memopt_host *host,
                                                  memopt_schedule_result *result);
/**
 * The textbook's schedules: MEMOPT_RULE_ALL, _NONE, _EVERY, _SQRT. No table is needed.
 *
 * every    k of MEMOPT_RULE_EVERY, at least 1; else ignored
 * actions  receives them; may be NULL with capacity 0, to ask how many
 * count    receives how many there are, also with ERR_BUFFER
 * returns  OK, ERR_ARGUMENT, ERR_OVERFLOW, ERR_BUFFER (capacity is less than count)
 */
MEMOPT_API memopt_status memopt_schedule_textbook(const memopt_chain *chain, memopt_rule rule, size_t every,
                                                  memopt_action *actions, size_t capacity, size_t *count);
/**
 * The least number of forwards, beside the one that each backward needs anyway, to reverse `segments` equal segments
 * with `slots` values in memory, the input among them: r * l - C(c + r, c + 1), where C(c + r - 1, c) < l <= C(c + r,
 * c). UINT64_MAX when it does not fit, or slots is 0 and segments is not.
 */
MEMOPT_API uint64_t memopt_revolve_forwards(uint64_t segments, uint64_t slots);

/* solved for all budgets at once; lies in your memory, nothing to close */
typedef struct memopt_schedule memopt_schedule;
typedef struct memopt_schedule_desc { /* zero it, then set what you need */
    memopt_chain chain;  /* what it points to outlives the schedule */
    memopt_rule  rule;   /* EXTENDED, ROTOR or REVOLVE */
    memopt_slow  slow;   /* all zero = none */
    size_t       slots;  /* 0 = default: as many as 64 MiB hold, 280 to 16384; else 16 to 65535. For each part of the
                            chain so many sizes of memory are looked at; of schedules closer to each other, the faster
                            stays */
} memopt_schedule_desc;
/** The bytes that memopt_schedule_solve() needs: about 4 * count^2 * slots; four times that with a slow place, twice
    more when its transfers overlap, and slow.slots + 1 times that when these are fewer than the segments. */
MEMOPT_API memopt_status memopt_schedule_bytes(const memopt_schedule_desc *desc, size_t *bytes);
/**
 * Solve a chain: the fastest schedule for every budget. O(count^3 * slots): 0.25 s for 128 segments, 6 s for 512; with
 * skips, count^3 / 6 looks at all of them more. About 400 bytes of stack a segment, here and where a schedule is read.
 *
 * memory   bytes of yours, aligned to 64; holds the schedule
 * out      receives it; untouched on failure
 * returns  OK, what memopt_schedule_simulate() says of chains, ERR_ARGUMENT (NULL, bad alignment, a rule of the
 *          textbook, slots out of range), ERR_BUFFER (fewer bytes than memopt_schedule_bytes() says), ERR_OVERFLOW
 */
MEMOPT_API memopt_status memopt_schedule_solve(const memopt_schedule_desc *desc, void *memory, size_t bytes,
                                               const memopt_schedule **out);
typedef struct memopt_point { size_t peak; double cost; } memopt_point;
/** The whole frontier: each peak at which the cost falls, ascending; the first is the least memory found (more slots
    can find less). With overlap the costs are those of waiting for each transfer: the schedules are never slower. As
    for actions, capacity 0 asks how many. OK, ERR_ARGUMENT, ERR_BUFFER. */
MEMOPT_API memopt_status memopt_schedule_frontier(const memopt_schedule *schedule, memopt_point *points,
                                                  size_t capacity, size_t *count);
/**
 * The fastest schedule within a budget. More budget never costs more time.
 *
 * budget   bytes, input included
 * actions  as in memopt_schedule_textbook()
 * host     its allocator is used for memopt_schedule_simulate(), and with overlap for two lists of actions more. With
 *          overlap each call relaxes every schedule found up to the budget: half a second for 64 segments
 * result   may be NULL; with ERR_BUFFER only `actions` is set; with ERR_MEMORY only `peak` is set: the least budget
 * threads  one thread at a time per schedule
 * returns  OK, ERR_ARGUMENT, ERR_MEMORY (the budget is below the least peak, or host has none), ERR_BUFFER
 */
MEMOPT_API memopt_status memopt_schedule_for_budget(const memopt_schedule *schedule, size_t budget,
                                                    memopt_action *actions, size_t capacity, const memopt_host *host,
                                                    memopt_schedule_result *result);
/** The least memory for at most `overhead` more time than keeping everything takes: 0.33 allows a third. As for
    budgets; ERR_ARGUMENT also for an overhead that is negative, infinite or NaN; ERR_STATE when MEMOPT_RULE_REVOLVE has
    nothing as fast. With overlap it is chosen by the costs of waiting, and may be faster than asked for. */
MEMOPT_API memopt_status memopt_schedule_for_overhead(const memopt_schedule *schedule, double overhead,
                                                      memopt_action *actions, size_t capacity, const memopt_host *host,
                                                      memopt_schedule_result *result);
typedef enum memopt_strip { MEMOPT_STRIP_TEXT, MEMOPT_STRIP_SVG } memopt_strip;
/**
 * A schedule as a picture: segments across, time down. In text a letter for each segment and row: what is held and what
 * happens to it.
 *
 * buffer, capacity, length  as in memopt_ledger_export()
 * returns OK, ERR_ARGUMENT, ERR_STATE (the actions are no schedule of this chain), ERR_BUFFER, ERR_MEMORY
 */
MEMOPT_API memopt_status memopt_schedule_export(const memopt_chain *chain, const memopt_action *actions, size_t count,
                                                memopt_strip format, const memopt_host *host, char *buffer,
                                                size_t capacity, size_t *length);
/* @section api_tape : api_schedule api_arena api_number api_quant api_random */
typedef struct memopt_step { /* what a callback of the engine receives; valid during the call only */
    void       *user;        /* the layer's */
    size_t      segment;
    int         is_recompute;/* 1: this forward has run before in this pass. Running statistics, counters and every
                                other side effect belong to the first run */
    int         output_unused; /* 1: nobody but its own backward reads the output: a forward may stop as soon as what
                                its backward needs is there; never with verify = 1 */
    int         evaluating;  /* 1: memopt_tape_evaluate(): no backward will follow */
    const void *input;       /* value `segment`: output_bytes of the segment before, or what the tape was given */
    void       *output;      /* forward: to be written whole, in any order; backward: as the forward left it */
    /* saved_bytes - output_bytes; NULL in a forward that saves nothing, and when there are none */
    void       *saved;       /* for the backward to read, and to work in: nobody reads it after that */
    void       *scratch;     /* forward_scratch, plain_scratch or backward_scratch bytes, not zeroed; NULL when 0 */
    size_t      scratch_bytes;
    int         untouchable; /* 1: the tape's memory is only counted, or a device's: not for the CPU to touch */
    const void *grad_output; /* backward only; NULL when grad_bytes is 0 */
    void       *grad_input;  /* backward only, to be written whole; NULL when nobody wants it */
    void *const *skips;      /* of each declared skip: in the forward of `from` to be written, NULL when nobody will
                                read it; in forward and backward of `to` to be read */
    void *const *skip_grads; /* backward: of `to` to be written, of `from` to be read */
    uint64_t    seed, stream;/* for memopt_random_*() and memopt_noise_make(): the same in every forward and backward
                                of this segment in this pass, and of no other; so a mask is made again instead of stored.
                                An evaluation draws those of the next pass */
} memopt_step;
typedef memopt_status memopt_step_fn(const memopt_step *step); /* not MEMOPT_OK: the pass ends with that status */
typedef struct memopt_layer { memopt_step_fn *forward_fn, *backward_fn; void *user; } memopt_layer; /* of one segment */

typedef enum memopt_keep { /* how outputs are kept: a lossy one is the same loss for every schedule, budget and pass */
    MEMOPT_KEEP_EXACT, /* as they are */
    /* outputs of all segments but the last, which are float32 if their bytes are a multiple of 4, are rounded to bf16
       and kept in half the bytes */
    MEMOPT_KEEP_BF16,
    MEMOPT_KEEP_8BIT   /* the same in blocks of 256 signed 8-bit codes: a quarter of the bytes */
} memopt_keep;
typedef struct memopt_tape_store { /* a slow place for values; all zero = none. Keys are values of this tape */
    /* may return before it is done */
    memopt_status (*write_fn)(void *user, size_t value, const void *bytes, size_t count);
    memopt_status (*read_fn)(void *user, size_t value, void *bytes, size_t count);        /* the same */
    memopt_status (*wait_fn)(void *user, size_t value); /* until the last write or read of it has ended */
    /* its copy is not needed any more; waits for a transfer first */
    void          (*forget_fn)(void *user, size_t value);
    void          *user;
} memopt_tape_store;

typedef struct memopt_tape memopt_tape;
typedef struct memopt_tape_desc { /* zero it, then set what you need */
    memopt_chain        chain;   /* copied. What enters and leaves is yours and not counted: input_bytes,
                                    input_grad_bytes (only whether it is 0) and grad_bytes of the last segment */
    const memopt_layer *layers;  /* chain.count of them; copied */
    memopt_rule         rule;    /* 0 = EXTENDED */
    size_t              every;   /* of MEMOPT_RULE_EVERY */
    size_t              budget;  /* bytes the tape may take of the arena; 0 = by overhead */
    double              overhead;/* when budget is 0: the least memory for at most so much more time, 0.33 = a third */
    size_t              slots;   /* of memopt_schedule_desc */
    memopt_slow         slow;    /* of memopt_schedule_desc; together with a store, and only then */
    memopt_tape_store   store;
    memopt_keep         keep;    /* a lossy one and a store exclude each other */
    /* where each pass takes its memory, at the low end, in one push; NULL: see memopt_tape_place() */
    memopt_arena       *arena;
    memopt_tag          tag;     /* of that push; 0 = MEMOPT_TAG_ACTIVATIONS */
    uint64_t            seed;    /* of step->seed */
    /* of an engine's own generator: saved before the first forward of each segment... */
    size_t              random_bytes;
    void              (*random_save_fn)(void *user, void *state);
    /* ...and loaded for a recompute, then put back */
    void              (*random_load_fn)(void *user, const void *state);
    void               *random_user;
    int                 verify;  /* 1: hash every output and compare when it is made again: finds what is not
                                    deterministic. At MEMOPT_DEBUG 2 it is always on, but for outputs nobody reads */
    size_t              shapes;  /* plans kept for memopt_tape_reshape(); 0 = default: 8 */
    /* memory of the tape itself, threads of the conversions, clock; NULL = the C library's */
    const memopt_host  *host;
} memopt_tape_desc;
/**
 * Create a tape: it solves the chain, places every buffer with the planner, and knows its peak before anything runs.
 * Where placing needs more than the budget, a smaller one is solved for, until the placed peak fits.
 *
 * out     receives the tape; untouched on failure
 * returns OK; ERR_ARGUMENT (NULL, no callbacks, half a store or pair of hooks, what memopt_schedule_solve() refuses);
 *         ERR_MEMORY (the budget is below the least peak, which memopt_tape_least() tells; or no memory for the tape),
 *         ERR_OVERFLOW
 * memory  of the tape: about 200 bytes an action and shape, and while solving memopt_schedule_bytes()
 * threads one thread at a time per tape
 */
MEMOPT_API memopt_status memopt_tape_create(const memopt_tape_desc *desc, memopt_tape **out);
/* gives a pass back that was not ended; NULL is fine */
MEMOPT_API void          memopt_tape_destroy(memopt_tape *tape);
/** The least budget with which memopt_tape_create() succeeds with this rule, placed. The desc's budget is ignored. */
MEMOPT_API memopt_status memopt_tape_least(const memopt_tape_desc *desc, size_t *bytes);

typedef struct memopt_tape_stats {
    size_t   peak;           /* bytes that a pass takes of the arena: predicted, and exact */
    size_t   live_peak;      /* largest sum of bytes alive: no placing could need less */
    size_t   evaluate_peak;  /* of memopt_tape_evaluate() */
    size_t   kept;           /* bytes held between forward and backward */
    double   cost, extra;    /* of the schedule, as in memopt_schedule_result */
    size_t   actions, forwards;
    uint64_t passes;         /* forward and backward done */
    uint64_t solves;         /* shapes solved and placed, the first included */
} memopt_tape_stats;
MEMOPT_API memopt_tape_stats memopt_tape_get_stats(const memopt_tape *tape); /* all zero for NULL */
/** The actions it runs; *count receives how many. Valid until the next reshape. */
MEMOPT_API const memopt_action *memopt_tape_actions(const memopt_tape *tape, size_t *count);

/**
 * One pass: forward, then backward. Any number of passes may go into one step of the optimizer (gradient accumulation).
 *
 * Buffers lie at multiples of 64, or of the arena's alignment when that is larger. What the engine pushes itself
 * between forward and backward is to be rewound before the backward ends.
 *
 * input        value 0; must stay as it is until the backward has returned
 * grad_output  gradient of the last output; NULL when its grad_bytes is 0
 * grad_input   receives gradient 0; NULL when input_grad_bytes is 0
 * returns      OK; ERR_STATE (backward before forward, a second forward, called from a callback of this tape);
 *              ERR_ARGUMENT (NULL); ERR_MEMORY (the arena is full; its error says more); ERR_CORRUPT (verify: a segment
 *              gave other bits when it ran again); and what a callback or the store returned. What was
 *              wrong before anything ran changes nothing. After a failure in a pass the arena is as it was before the
 *              forward, the store has been told to forget, and the pass can be run again: it keeps its number (an
 *              engine's own generator stays where it is). memopt_tape_get_error() tells where
 */
MEMOPT_API memopt_status memopt_tape_forward(memopt_tape *tape, const void *input);
MEMOPT_API memopt_status memopt_tape_backward(memopt_tape *tape, const void *grad_output, void *grad_input);
/* of the last segment, from forward to backward; else NULL */
MEMOPT_API const void   *memopt_tape_output(const memopt_tape *tape);
/* a forward without a backward; OK also when there is none */
MEMOPT_API memopt_status memopt_tape_abandon(memopt_tape *tape);
/** Forward only: nothing is kept, statistics are the engine's to leave alone. output receives the last output; NULL =
    it is not wanted. Not between a forward and its backward: ERR_STATE. */
MEMOPT_API memopt_status memopt_tape_evaluate(memopt_tape *tape, const void *input, void *output);

/** The number of the next pass (they count from 0), so that a resumed run draws the random numbers it would have drawn.
    OK, ERR_ARGUMENT, ERR_STATE (between forward and backward). */
MEMOPT_API memopt_status memopt_tape_seek(memopt_tape *tape, uint64_t pass);

/**
 * Other sizes from here on, such as another batch or length; the layers stay. A shape seen before costs a comparison.
 *
 * chain   as many segments and skips as before; costs are part of the shape
 * returns OK, ERR_STATE (between forward and backward), and what memopt_tape_create() returns; then nothing has changed
 */
MEMOPT_API memopt_status memopt_tape_reshape(memopt_tape *tape, const memopt_chain *chain);
/**
 * Run `repeats` whole passes, put the median time of each segment, in seconds, in place of its costs, and solve again.
 * The engine's callbacks are told is_recompute = 1; weight gradients they accumulate are to be cleared afterwards.
 * Arguments and statuses as for a pass; also ERR_IO when the clock fails, ERR_ARGUMENT for 0 repeats.
 */
MEMOPT_API memopt_status memopt_tape_calibrate(memopt_tape *tape, const void *input, const void *grad_output,
                                               void *grad_input, size_t repeats);
/**
 * A tape as one segment of another: fills the sizes, costs and layer. The inner tape needs no arena; it lives in the
 * outer one's scratch. The inner tape outlives the outer one, is used by nobody else meanwhile, and is one segment
 * only: what it remembers of its first run is of one place. Reshaped, it is nested again, and the outer one reshaped too.
 */
MEMOPT_API memopt_status memopt_tape_nest(memopt_tape *inner, memopt_segment *segment, memopt_layer *layer);
/** Memory for the passes of a tape without an arena: stats.peak bytes (or evaluate_peak), aligned to 64. NULL takes
    it back. */
MEMOPT_API memopt_status memopt_tape_place(memopt_tape *tape, void *memory, size_t bytes);

typedef struct memopt_tape_error { /* of the last call that failed */
    memopt_status status;
    const char   *reason;  /* static text, never NULL */
    size_t        segment; /* where; SIZE_MAX when it is none in particular */
    size_t        action;  /* which of the schedule's actions; SIZE_MAX */
} memopt_tape_error;
MEMOPT_API memopt_tape_error memopt_tape_get_error(const memopt_tape *tape);
/** A table for people: each segment's bytes, forwards, time predicted and measured (with a clock); peak predicted and
    measured. buffer, capacity, length as in memopt_ledger_export(). */
MEMOPT_API memopt_status memopt_tape_report(const memopt_tape *tape, char *buffer, size_t capacity, size_t *length);

/* The simple form, for engines that update one buffer in place: copies on a stack at the low end of an arena, last in,
   first out. Push the input of a block, pop it before the block runs again. */
typedef struct memopt_stash memopt_stash;
/** Bytes one push of n floats takes. 0 when they do not fit size_t. */
MEMOPT_API size_t        memopt_stash_bytes(size_t n, memopt_keep keep);
/** depth: pushes at most. memory of the stash itself: 32 bytes a push, from host (NULL = malloc). OK, ERR_ARGUMENT,
    ERR_MEMORY. */
MEMOPT_API memopt_status memopt_stash_create(memopt_arena *arena, size_t depth, const memopt_host *host,
                                             memopt_stash **out);
/* pops what is left, if nothing was pushed on top of it; NULL is fine */
MEMOPT_API void          memopt_stash_destroy(memopt_stash *stash);
/** Copy x in; a lossy keep also rounds x itself, so that going on and starting again give the same bits.
    OK, ERR_ARGUMENT, ERR_STATE (depth is reached), ERR_MEMORY (the arena is full), ERR_OVERFLOW */
MEMOPT_API memopt_status memopt_stash_push(memopt_stash *stash, float *x, size_t n, memopt_keep keep);
/** The last one out again. OK, ERR_ARGUMENT, ERR_STATE (nothing was pushed, or not n floats; the arena is not where the
    push left it) */
MEMOPT_API memopt_status memopt_stash_pop(memopt_stash *stash, float *x, size_t n);
MEMOPT_API size_t        memopt_stash_depth(const memopt_stash *stash); /* copies in it now */
#ifdef __cplusplus
}
#endif
#endif /* MEMOPT_H */

#ifdef MEMOPT_IMPLEMENTATION
#undef  MEMOPT_IMPLEMENTATION
#ifndef MEMOPT_I_IMPLEMENTED
#define MEMOPT_I_IMPLEMENTED
/* @section platform : config
   What the implementation takes from the system. Every system call goes through `host` or `source`, nothing else
   includes a system header. Under -std=c99 the C library hides POSIX; macros tell what is visible, and the few
   functions that are hidden are declared here as POSIX has them, so that no flag and no _GNU_SOURCE is needed. */
#if defined(MEMOPT_STATIC) != MEMOPT_I_STATIC
#  error "memopt.h was included before without the same MEMOPT_STATIC: define it before the first #include"
#endif
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifndef MEMOPT_DEBUG
#  define MEMOPT_DEBUG 0
#endif
#ifndef MEMOPT_ASSERT
#  if MEMOPT_DEBUG > 0
#    include <assert.h>
#    define MEMOPT_ASSERT(x) assert(x)
#  else
#    define MEMOPT_ASSERT(x) ((void)0)
#  endif
#endif
#if defined(_WIN32)
#  define MEMOPT_I_WINDOWS 1
#  ifndef WIN32_LEAN_AND_MEAN
#    define WIN32_LEAN_AND_MEAN
#  endif
#  ifndef NOMINMAX
#    define NOMINMAX
#  endif
#  include <windows.h>
#elif defined(__unix__) || defined(__APPLE__)
#  define MEMOPT_I_POSIX 1
#  include <errno.h>
#  include <fcntl.h>
#  include <stdio.h>
#  include <sys/mman.h>
#  include <sys/stat.h>
#  include <sys/time.h>
#  include <sys/types.h>
#  include <time.h>
#  include <unistd.h>
#  if defined(__linux__) && !defined(__cplusplus)
#    if defined(__GLIBC__) && defined(__USE_FILE_OFFSET64) && !defined(__LP64__) /* off_t is wide, and so are these */
#      define MEMOPT_I_WIDE(name) __asm__(#name "64")
#    else
#      define MEMOPT_I_WIDE(name)
#    endif
extern int     madvise(void *start, size_t bytes, int advice);
extern ssize_t pread(int file, void *bytes, size_t count, off_t offset) MEMOPT_I_WIDE(pread);
extern ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset) MEMOPT_I_WIDE(pwrite);
extern int     ftruncate(int file, off_t bytes) MEMOPT_I_WIDE(ftruncate);
extern int     fsync(int file);
#  endif
#  if defined(__APPLE__)
#    include <mach/mach.h>
#  endif
#endif
#if defined(MEMOPT_PTHREADS) && defined(MEMOPT_I_POSIX)
#  include <pthread.h>
#  define MEMOPT_I_POOL 1
#endif
#if defined(_OPENMP)
#  include <omp.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#  define MEMOPT_I_ASAN 1
#elif defined(__has_feature)
#  if __has_feature(address_sanitizer)
#    define MEMOPT_I_ASAN 1
#  endif
#endif
#if defined(MEMOPT_I_ASAN)
#  include <sanitizer/asan_interface.h>
#endif
#if defined(__GNUC__) || defined(__clang__)
#  define MEMOPT_I_LIKELY(x)   __builtin_expect(!!(x), 1)
#  define MEMOPT_I_UNLIKELY(x) __builtin_expect(!!(x), 0)
#  define MEMOPT_I_NOINLINE    __attribute__((noinline))
#else
#  define MEMOPT_I_LIKELY(x)   (x)
#  define MEMOPT_I_UNLIKELY(x) (x)
#  define MEMOPT_I_NOINLINE
#endif
/* @section status : platform api_status
   Codes, not text, are the contract: a caller switches on them, a text is for people and may change.
   Negative codes leave room for values in the same int; 0 is success, so `if (s)` asks whether it failed. */
MEMOPT_API const char *memopt_status_text(memopt_status status) {
    switch (status) {
    case MEMOPT_OK:              return "no error";
    case MEMOPT_ERR_ARGUMENT:    return "the call is wrong: NULL, zero bytes, or an alignment that is no power of two";
    case MEMOPT_ERR_OVERFLOW:    return "a size does not fit size_t";
    case MEMOPT_ERR_MEMORY:      return "out of memory";
    case MEMOPT_ERR_BUFFER:      return "the buffer is too small";
    case MEMOPT_ERR_FORMAT:      return "the bytes are damaged, or of a newer format";
    case MEMOPT_ERR_STATE:       return "the right call at the wrong time";
    case MEMOPT_ERR_IO:          return "a file or the clock failed";
    case MEMOPT_ERR_UNSUPPORTED: return "not compiled in, or not on this platform";
    case MEMOPT_ERR_DEVICE:      return "the device failed";
    case MEMOPT_ERR_CORRUPT:     return "bytes were written outside their lifetime";
    }
    return "not a status of memopt";
}
static memopt_status memopt_i_fail(memopt_error *error, memopt_status status, const char *reason, size_t asked) {
    error->status = status; error->reason = reason;
    error->asked = asked; error->free_bytes = error->largest = 0;
    return status;
}
/* @section base : status
   Sizes that came from outside are added, multiplied and rounded only here; each returns 1 on overflow, and *out is
   then undefined. It stands below `host`, because the default allocator must round a hostile size like anybody else. */
static int memopt_i_add(size_t a, size_t b, size_t *out) { *out = a + b; return *out < a; }
static int memopt_i_mul(size_t a, size_t b, size_t *out) { *out = a * b; return a && *out / a != b; }
static int memopt_i_power_of_two(size_t x) { return x && !(x & (x - 1)); }
static size_t memopt_i_align_down(size_t x, size_t align) { return x & ~(align - 1); }
static int memopt_i_align_up(size_t x, size_t align, size_t *out) {
    if (memopt_i_add(x, align - 1, out)) return 1;
    *out = memopt_i_align_down(*out, align);
    return 0;
}
static size_t memopt_i_min(size_t a, size_t b) { return a < b ? a : b; }
static size_t memopt_i_max(size_t a, size_t b) { return a > b ? a : b; }
static uint32_t memopt_i_float_bits(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
static float memopt_i_bits_float(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }
/* A sum or product as a float: where the processor computes wider (x87), storing it rounds it. Twice rounded is once
   rounded here, because 64 bits are more than 2 * 24 + 2. */
static float memopt_i_round(float x) {
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
    volatile float stored = x;
    return stored;
#else
    return x;
#endif
}
/* The index of the highest and the lowest set bit; x is not 0. MEMOPT_I_PORTABLE lets a test ask for the plain code. */
static unsigned memopt_i_high_bit(uint64_t x) {
#if (defined(__GNUC__) || defined(__clang__)) && !defined(MEMOPT_I_PORTABLE)
    return 63u - (unsigned)__builtin_clzll(x);
#else
    unsigned i = 0;
    while (x >>= 1) ++i;
    return i;
#endif
}
static unsigned memopt_i_low_bit(uint64_t x) {
#if (defined(__GNUC__) || defined(__clang__)) && !defined(MEMOPT_I_PORTABLE)
    return (unsigned)__builtin_ctzll(x);
#else
    return memopt_i_high_bit(x & (~x + 1));
#endif
}
/* @section host : base api_host
   The only doors outside. A zero table stands for the C library, so that a caller who does not care writes nothing;
   whoever keeps a host resolves it once, and from then on calls through the table without asking what is set.
   Invariant  after memopt_host_resolve no function pointer of the host is NULL.
   Trap       malloc cannot align and C99 has no aligned_alloc: take more, keep malloc's pointer below the block. */
static void *memopt_i_system_alloc(void *user, size_t bytes, size_t alignment) {
    size_t total, skip; unsigned char *raw;
    (void)user;
    if (memopt_i_add(bytes, alignment, &total) || memopt_i_add(total, sizeof raw, &total)) return NULL;
    if (total > (size_t)PTRDIFF_MAX) return NULL; /* pointers into it could not be subtracted */
    raw = (unsigned char *)malloc(total);
    if (!raw) return NULL;
    skip = alignment - (size_t)((uintptr_t)(raw + sizeof raw) & (alignment - 1));
    memcpy(raw + skip, &raw, sizeof raw);
    return raw + sizeof raw + skip;
}
static void memopt_i_system_free(void *user, void *block, size_t bytes, size_t alignment) {
    void *raw;
    (void)user; (void)bytes; (void)alignment;
    memcpy(&raw, (unsigned char *)block - sizeof raw, sizeof raw);
    free(raw);
}
static void memopt_i_calling_thread_run(void *user, size_t chunk_count, memopt_task_fn *fn, void *task) {
    size_t i;
    (void)user;
    for (i = 0; i < chunk_count; ++i) fn(task, i, 0);
}
static void *memopt_i_alloc(const memopt_host *host, size_t bytes, size_t alignment) {
    return host->allocator.alloc_fn(host->allocator.user, bytes, alignment);
}
static void memopt_i_free(const memopt_host *host, void *block, size_t bytes, size_t alignment) {
    if (block) host->allocator.free_fn(host->allocator.user, block, bytes, alignment);
}
#define MEMOPT_I_HOST_ALIGN 64 /* what our own structures are aligned to: a cache line */

/* Files and clock of the system, once for POSIX, once for Windows; elsewhere they are there and say no. */
#if defined(MEMOPT_I_POSIX)
static int memopt_i_file_number(void *file) { return (int)((intptr_t)file - 1); } /* 0 is a file, NULL is none */
static int memopt_i_file_offset(uint64_t offset, size_t count, off_t *out) {
    const uint64_t most = sizeof(off_t) > 4 ? (uint64_t)INT64_MAX : (uint64_t)INT32_MAX;
    if (offset > most || count > most - offset) return 1;
    *out = (off_t)offset;
    return 0;
}
static memopt_status memopt_i_system_open(void *user, const char *path, memopt_open mode, void **file) {
    int number;
    (void)user;
    do number = mode == MEMOPT_OPEN_READ ? open(path, O_RDONLY) : open(path, O_RDWR | O_CREAT, 0666);
    while (number < 0 && errno == EINTR);
    if (number < 0) return MEMOPT_ERR_IO;
    *file = (void *)((intptr_t)number + 1);
    return MEMOPT_OK;
}
static memopt_status memopt_i_system_close(void *user, void *file) {
    (void)user;
    return close(memopt_i_file_number(file)) ? MEMOPT_ERR_IO : MEMOPT_OK;
}
static memopt_status memopt_i_system_read(void *user, void *file, uint64_t offset, void *bytes, size_t count,
                                          size_t *done) {
    size_t had = 0; off_t at;
    (void)user;
    if (memopt_i_file_offset(offset, count, &at)) return MEMOPT_ERR_OVERFLOW;
    while (had < count) { /* a read may be short without being at the end */
        const ssize_t n = pread(memopt_i_file_number(file), (char *)bytes + had,
                                memopt_i_min(count - had, (size_t)1 << 30), at + (off_t)had);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return MEMOPT_ERR_IO;
        if (n == 0) break;
        had += (size_t)n;
    }
    *done = had;
    return MEMOPT_OK;
}
static memopt_status memopt_i_system_write(void *user, void *file, uint64_t offset, const void *bytes, size_t count) {
    size_t had = 0; off_t at;
    (void)user;
    if (memopt_i_file_offset(offset, count, &at)) return MEMOPT_ERR_OVERFLOW;
    while (had < count) {
        const ssize_t n = pwrite(memopt_i_file_number(file), (const char *)bytes + had,
                                 memopt_i_min(count - had, (size_t)1 << 30), at + (off_t)had);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return MEMOPT_ERR_IO;
        had += (size_t)n;
    }
    return MEMOPT_OK;
}
static memopt_status memopt_i_system_size(void *user, void *file, uint64_t *bytes) {
    struct stat info;
    (void)user;
    if (fstat(memopt_i_file_number(file), &info)) return MEMOPT_ERR_IO;
    *bytes = (uint64_t)info.st_size;
    return MEMOPT_OK;
}
static memopt_status memopt_i_system_resize(void *user, void *file, uint64_t bytes) {
    off_t at;
    (void)user;
    if (memopt_i_file_offset(bytes, 0, &at)) return MEMOPT_ERR_OVERFLOW;
    return ftruncate(memopt_i_file_number(file), at) ? MEMOPT_ERR_IO : MEMOPT_OK;
}
static memopt_status memopt_i_system_sync(void *user, void *file) {
    (void)user;
#  if defined(__APPLE__) && defined(F_FULLFSYNC)
    if (!fcntl(memopt_i_file_number(file), F_FULLFSYNC)) return MEMOPT_OK; /* fsync alone stops at the disk's cache */
#  endif
    return fsync(memopt_i_file_number(file)) ? MEMOPT_ERR_IO : MEMOPT_OK;
}
static memopt_status memopt_i_system_rename(void *user, const char *from, const char *to) {
    (void)user;
    return rename(from, to) ? MEMOPT_ERR_IO : MEMOPT_OK;
}
static memopt_status memopt_i_system_remove(void *user, const char *path) {
    (void)user;
    return unlink(path) ? MEMOPT_ERR_IO : MEMOPT_OK;
}
/* -std=c99 hides the steady clock and its struct. With 64-bit longs Linux has but one form of both: declared here. */
#  if defined(CLOCK_MONOTONIC)
#    define MEMOPT_I_STEADY CLOCK_MONOTONIC
typedef struct timespec memopt_i_time;
#  elif defined(__linux__) && defined(__LP64__)
#    define MEMOPT_I_STEADY 1
typedef struct memopt_i_time { long tv_sec, tv_nsec; } memopt_i_time;
extern int clock_gettime(int clock, memopt_i_time *now);
#  endif
static memopt_status memopt_i_system_now(void *user, uint64_t *nanoseconds) {
    (void)user;
#  if defined(MEMOPT_I_STEADY)
    memopt_i_time t;
    if (clock_gettime(MEMOPT_I_STEADY, &t)) return MEMOPT_ERR_IO;
    *nanoseconds = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#  else /* this one is steady unless somebody sets it */
    struct timeval t;
    if (gettimeofday(&t, NULL)) return MEMOPT_ERR_IO;
    *nanoseconds = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_usec * 1000u;
#  endif
    return MEMOPT_OK;
}
#elif defined(MEMOPT_I_WINDOWS)
static int memopt_i_file_too_far(uint64_t offset, size_t count) { /* for a signed position */
    return offset > (uint64_t)INT64_MAX || count > (uint64_t)INT64_MAX - offset;
}
static OVERLAPPED memopt_i_file_position(uint64_t offset) {
    OVERLAPPED at;
    memset(&at, 0, sizeof at);
    at.Offset = (DWORD)(offset & 0xffffffffu); at.OffsetHigh = (DWORD)(offset >> 32);
    return at;
}
static memopt_status memopt_i_system_open(void *user, const char *path, memopt_open mode, void **file) {
    HANDLE h;
    (void)user;
    if (mode == MEMOPT_OPEN_READ)
        h = CreateFileA(path, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
            OPEN_EXISTING, 0, NULL);
    else
        h = CreateFileA(path, GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ, NULL, OPEN_ALWAYS, 0, NULL);
    if (h == INVALID_HANDLE_VALUE) return MEMOPT_ERR_IO;
    *file = (void *)h;
    return MEMOPT_OK;
}
static memopt_status memopt_i_system_close(void *user, void *file) {
    (void)user;
    return CloseHandle((HANDLE)file) ? MEMOPT_OK : MEMOPT_ERR_IO;
}
static memopt_status memopt_i_system_read(void *user, void *file, uint64_t offset, void *bytes, size_t count,
                                          size_t *done) {
    size_t had = 0;
    (void)user;
    if (memopt_i_file_too_far(offset, count)) return MEMOPT_ERR_OVERFLOW;
    while (had < count) {
        OVERLAPPED at = memopt_i_file_position(offset + had); DWORD n = 0;
        if (!ReadFile((HANDLE)file, (char *)bytes + had, (DWORD)memopt_i_min(count - had, (size_t)1 << 30), &n, &at)) {
            if (GetLastError() != ERROR_HANDLE_EOF) return MEMOPT_ERR_IO;
            break;
        }
        if (!n) break;
        had += n;
    }
    *done = had;
    return MEMOPT_OK;
}
static memopt_status memopt_i_system_write(void *user, void *file, uint64_t offset, const void *bytes, size_t count) {
    size_t had = 0;
    (void)user;
    if (memopt_i_file_too_far(offset, count)) return MEMOPT_ERR_OVERFLOW;
    while (had < count) {
        OVERLAPPED at = memopt_i_file_position(offset + had); DWORD n = 0;
        if (!WriteFile((HANDLE)file, (const char *)bytes + had, (DWORD)memopt_i_min(count - had, (size_t)1 << 30), &n,
            &at) || !n)
            return MEMOPT_ERR_IO;
        had += n;
    }
    return MEMOPT_OK;
}
static memopt_status memopt_i_system_size(void *user, void *file, uint64_t *bytes) {
    LARGE_INTEGER size;
    (void)user;
    if (!GetFileSizeEx((HANDLE)file, &size)) return MEMOPT_ERR_IO;
    *bytes = (uint64_t)size.QuadPart;
    return MEMOPT_OK;
}
static memopt_status memopt_i_system_resize(void *user, void *file, uint64_t bytes) {
    LARGE_INTEGER at;
    (void)user;
    if (memopt_i_file_too_far(bytes, 0)) return MEMOPT_ERR_OVERFLOW;
    at.QuadPart = (LONGLONG)bytes;
    if (!SetFilePointerEx((HANDLE)file, at, NULL, FILE_BEGIN) || !SetEndOfFile((HANDLE)file)) return MEMOPT_ERR_IO;
    return MEMOPT_OK;
}
static memopt_status memopt_i_system_sync(void *user, void *file) {
    (void)user;
    return FlushFileBuffers((HANDLE)file) ? MEMOPT_OK : MEMOPT_ERR_IO;
}
static memopt_status memopt_i_system_rename(void *user, const char *from, const char *to) {
    (void)user;
    return MoveFileExA(from, to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH) ? MEMOPT_OK : MEMOPT_ERR_IO;
}
static memopt_status memopt_i_system_remove(void *user, const char *path) {
    (void)user;
    return DeleteFileA(path) ? MEMOPT_OK : MEMOPT_ERR_IO;
}
static memopt_status memopt_i_system_now(void *user, uint64_t *nanoseconds) {
    LARGE_INTEGER ticks, rate;
    (void)user;
    if (!QueryPerformanceFrequency(&rate) || !QueryPerformanceCounter(&ticks)) return MEMOPT_ERR_IO;
    *nanoseconds = (uint64_t)(ticks.QuadPart / rate.QuadPart) * 1000000000u
                 + (uint64_t)(ticks.QuadPart % rate.QuadPart) * 1000000000u / (uint64_t)rate.QuadPart;
    return MEMOPT_OK;
}
#else
static memopt_status memopt_i_system_open(void *user, const char *path, memopt_open mode, void **file) {
    (void)user; (void)path; (void)mode; (void)file;
    return MEMOPT_ERR_UNSUPPORTED; /* no file is ever open, so the rest is never reached */
}
static memopt_status memopt_i_system_close(void *user, void *file) {
    (void)user;
    (void)file;
    return MEMOPT_ERR_UNSUPPORTED;
}
static memopt_status memopt_i_system_read(void *user, void *file, uint64_t offset, void *bytes, size_t count,
                                          size_t *done) {
    (void)user; (void)file; (void)offset; (void)bytes; (void)count; (void)done;
    return MEMOPT_ERR_UNSUPPORTED;
}
static memopt_status memopt_i_system_write(void *user, void *file, uint64_t offset, const void *bytes, size_t count) {
    (void)user; (void)file; (void)offset; (void)bytes; (void)count;
    return MEMOPT_ERR_UNSUPPORTED;
}
static memopt_status memopt_i_system_size(void *user, void *file, uint64_t *bytes) {
    (void)user;
    (void)file;
    (void)bytes;
    return MEMOPT_ERR_UNSUPPORTED;
}
static memopt_status memopt_i_system_resize(void *user, void *file, uint64_t bytes) {
    (void)user;
    (void)file;
    (void)bytes;
    return MEMOPT_ERR_UNSUPPORTED;
}
static memopt_status memopt_i_system_sync(void *user, void *file) {
    (void)user;
    (void)file;
    return MEMOPT_ERR_UNSUPPORTED;
}
static memopt_status memopt_i_system_rename(void *user, const char *from, const char *to) {
    (void)user;
    (void)from;
    (void)to;
    return MEMOPT_ERR_UNSUPPORTED;
}
static memopt_status memopt_i_system_remove(void *user, const char *path) {
    (void)user;
    (void)path;
    return MEMOPT_ERR_UNSUPPORTED;
}
static memopt_status memopt_i_system_now(void *user, uint64_t *nanoseconds) {
    (void)user;
    (void)nanoseconds;
    return MEMOPT_ERR_UNSUPPORTED;
}
#endif

/* A table is all there or not at all: half of one is a mistake of the caller that would show up months later. */
static int memopt_i_files_set(const memopt_files *f) {
    return !!f->open_fn + !!f->close_fn + !!f->read_fn + !!f->write_fn + !!f->size_fn + !!f->resize_fn
         + !!f->sync_fn + !!f->rename_fn + !!f->remove_fn;
}
static int memopt_i_threads_valid(const memopt_threads *t) {
    return t->worker_count >= 0 && t->simd_level >= 0 && !t->run_fn == !t->worker_count;
}
/* Work in chunks, by whatever workers there are; valid threads, or NULL for the calling thread. */
static void memopt_i_run(const memopt_threads *threads, size_t chunk_count, memopt_task_fn *fn, void *task) {
    if (threads && threads->run_fn && chunk_count > 1) threads->run_fn(threads->user, chunk_count, fn, task);
    else memopt_i_calling_thread_run(NULL, chunk_count, fn, task);
}
static int memopt_i_workers(const memopt_threads *threads) {
    return threads && threads->run_fn ? threads->worker_count : 1;
}
static memopt_files memopt_i_system_files(void) {
    memopt_files f;
    f.open_fn = memopt_i_system_open; f.close_fn = memopt_i_system_close;
    f.read_fn = memopt_i_system_read; f.write_fn = memopt_i_system_write;
    f.size_fn = memopt_i_system_size; f.resize_fn = memopt_i_system_resize;
    f.sync_fn = memopt_i_system_sync; f.rename_fn = memopt_i_system_rename; f.remove_fn = memopt_i_system_remove;
    f.user = NULL;
    return f;
}
MEMOPT_API memopt_status memopt_host_resolve(const memopt_host *host, memopt_host *out) {
    memopt_host h; int files;
    if (!out) return MEMOPT_ERR_ARGUMENT;
    if (host) h = *host; else memset(&h, 0, sizeof h);
    files = memopt_i_files_set(&h.files);
    if (!h.allocator.alloc_fn != !h.allocator.free_fn || (files != 0 && files != 9)) return MEMOPT_ERR_ARGUMENT;
    if (!memopt_i_threads_valid(&h.threads)) return MEMOPT_ERR_ARGUMENT;
    if (!h.allocator.alloc_fn) {
        h.allocator.alloc_fn = memopt_i_system_alloc;
        h.allocator.free_fn = memopt_i_system_free;
    }
    if (!h.threads.run_fn) { h.threads.run_fn = memopt_i_calling_thread_run; h.threads.worker_count = 1; }
    if (!files) h.files = memopt_i_system_files();
    if (!h.clock.now_fn) h.clock.now_fn = memopt_i_system_now;
    *out = h;
    return MEMOPT_OK;
}

#if defined(_OPENMP)
static void memopt_i_openmp_run(void *user, size_t chunk_count, memopt_task_fn *fn, void *task) {
    const int workers = (int)(intptr_t)user;
    ptrdiff_t i; /* OpenMP 2 wants a signed counter */
    if (omp_in_parallel()) { /* a run inside a run is done by the worker that asked for it, alone */
        const int self = omp_get_thread_num();
        for (i = 0; i < (ptrdiff_t)chunk_count; ++i) fn(task, (size_t)i, self < workers ? self : 0);
        return;
    }
#  pragma omp parallel for schedule(dynamic, 1) num_threads(workers)
    for (i = 0; i < (ptrdiff_t)chunk_count; ++i) fn(task, (size_t)i, omp_get_thread_num());
}
#endif
MEMOPT_API memopt_status memopt_threads_openmp(int worker_count, memopt_threads *out) {
    if (worker_count < 0 || !out) return MEMOPT_ERR_ARGUMENT;
#if defined(_OPENMP)
    memset(out, 0, sizeof *out);
    out->worker_count = worker_count ? worker_count : omp_get_max_threads();
    out->run_fn = memopt_i_openmp_run;
    out->user = (void *)(intptr_t)out->worker_count;
    return MEMOPT_OK;
#else
    return MEMOPT_ERR_UNSUPPORTED;
#endif
}

/* The pool. A run is a number of chunks and a counter of those handed out; every thread that is awake takes the next
   one under the lock, because a chunk is big (64 Ki elements) and a lock is small. A new run has a new ticket, which
   is what sleeping threads wait for. `owner` is the thread whose run it is; it works along as worker 0.
   A run asked for from inside a chunk must not wait for itself: it is recognised by its thread and done in place. */
#if defined(MEMOPT_I_POOL)
typedef struct memopt_i_pool_thread { struct memopt_pool *pool; pthread_t id; int worker; } memopt_i_pool_thread;
struct memopt_pool {
    memopt_host host;
    pthread_mutex_t lock;
    /* work: a new run or the end; done: a run is over, for its owner and for who waits a turn */
    pthread_cond_t work, done;
    memopt_task_fn *fn;
    void *task;
    size_t chunk_count, next, running; /* running: chunks taken and not finished */
    pthread_t owner;
    int busy, stop, thread_count;
    size_t bytes;
    memopt_i_pool_thread *threads;
};
static void memopt_i_pool_work(memopt_pool *p, int worker) { /* called and left with the lock held */
    while (p->next < p->chunk_count) {
        const size_t chunk = p->next++;
        ++p->running;
        pthread_mutex_unlock(&p->lock);
        p->fn(p->task, chunk, worker);
        pthread_mutex_lock(&p->lock);
        if (--p->running == 0 && p->next == p->chunk_count) pthread_cond_broadcast(&p->done);
    }
}
static void *memopt_i_pool_main(void *argument) {
    memopt_i_pool_thread *t = (memopt_i_pool_thread *)argument; memopt_pool *p = t->pool;
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        memopt_i_pool_work(p, t->worker);
        if (!p->stop) pthread_cond_wait(&p->work, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}
static int memopt_i_pool_inside(memopt_pool *p) { /* the worker that runs on this thread, or -1; lock held */
    const pthread_t self = pthread_self();
    int i;
    if (p->busy && pthread_equal(p->owner, self)) return 0;
    for (i = 0; i < p->thread_count; ++i)
        if (pthread_equal(p->threads[i].id, self)) return p->threads[i].worker;
    return -1;
}
static void memopt_i_pool_run(void *user, size_t chunk_count, memopt_task_fn *fn, void *task) {
    memopt_pool *p = (memopt_pool *)user; int inside; size_t i;
    pthread_mutex_lock(&p->lock);
    inside = memopt_i_pool_inside(p);
    if (inside >= 0) {
        pthread_mutex_unlock(&p->lock);
        for (i = 0; i < chunk_count; ++i) fn(task, i, inside);
        return;
    }
    while (p->busy) pthread_cond_wait(&p->done, &p->lock);
    p->busy = 1; p->owner = pthread_self();
    p->fn = fn; p->task = task; p->chunk_count = chunk_count; p->next = 0;
    if (chunk_count > 1) pthread_cond_broadcast(&p->work);
    memopt_i_pool_work(p, 0);
    while (p->running) pthread_cond_wait(&p->done, &p->lock);
    p->busy = 0;
    pthread_cond_broadcast(&p->done);
    pthread_mutex_unlock(&p->lock);
}
MEMOPT_API void memopt_pool_destroy(memopt_pool *pool) {
    memopt_host host; int i;
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = 1;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (i = 0; i < pool->thread_count; ++i) pthread_join(pool->threads[i].id, NULL);
    pthread_cond_destroy(&pool->done); pthread_cond_destroy(&pool->work); pthread_mutex_destroy(&pool->lock);
    host = pool->host; /* copied: the struct lies inside what is freed */
    memopt_i_free(&host, pool, pool->bytes, MEMOPT_I_HOST_ALIGN);
}
MEMOPT_API memopt_status memopt_pool_create(const memopt_host *host, int worker_count, memopt_pool **out) {
    memopt_host h; memopt_pool *p; size_t bytes;
    if (!out || worker_count < 1 || worker_count > 1024 || memopt_host_resolve(host, &h)) return MEMOPT_ERR_ARGUMENT;
    bytes = sizeof *p + (size_t)worker_count * sizeof *p->threads;
    p = (memopt_pool *)memopt_i_alloc(&h, bytes, MEMOPT_I_HOST_ALIGN);
    if (!p) return MEMOPT_ERR_MEMORY;
    memset(p, 0, bytes);
    p->host = h; p->bytes = bytes; p->threads = (memopt_i_pool_thread *)(void *)(p + 1);
    if (pthread_mutex_init(&p->lock, NULL)) goto no_lock;
    if (pthread_cond_init(&p->work, NULL)) goto no_work;
    if (pthread_cond_init(&p->done, NULL)) goto no_done;
    pthread_mutex_lock(&p->lock); /* the threads wait until their ids are all written */
    while (p->thread_count < worker_count - 1) {
        memopt_i_pool_thread *t = &p->threads[p->thread_count];
        t->pool = p; t->worker = p->thread_count + 1;
        if (pthread_create(&t->id, NULL, memopt_i_pool_main, t)) break;
        ++p->thread_count;
    }
    pthread_mutex_unlock(&p->lock);
    if (p->thread_count < worker_count - 1) { memopt_pool_destroy(p); return MEMOPT_ERR_STATE; }
    *out = p;
    return MEMOPT_OK;
no_done: pthread_cond_destroy(&p->work);
no_work: pthread_mutex_destroy(&p->lock);
no_lock: memopt_i_free(&h, p, bytes, MEMOPT_I_HOST_ALIGN);
    return MEMOPT_ERR_STATE;
}
MEMOPT_API memopt_threads memopt_pool_threads(memopt_pool *pool) {
    memopt_threads t;
    memset(&t, 0, sizeof t);
    if (!pool) return t;
    t.run_fn = memopt_i_pool_run; t.user = pool; t.worker_count = pool->thread_count + 1;
    return t;
}
#else
MEMOPT_API memopt_status memopt_pool_create(const memopt_host *host, int worker_count, memopt_pool **out) {
    memopt_host h;
    if (!out || worker_count < 1 || worker_count > 1024 || memopt_host_resolve(host, &h)) return MEMOPT_ERR_ARGUMENT;
    return MEMOPT_ERR_UNSUPPORTED;
}
MEMOPT_API memopt_threads memopt_pool_threads(memopt_pool *pool) {
    memopt_threads t;
    (void)pool;
    memset(&t, 0, sizeof t);
    return t;
}
MEMOPT_API void memopt_pool_destroy(memopt_pool *pool) { (void)pool; }
#endif
/* @section ledger : base host api_ledger
   Who holds which bytes, exactly. Without it an engine learns its peak from the kernel that kills it.
   Problem    "What was live at the peak" asks for a copy of all tags at every new peak, and while a model is loaded
              every single block is a new peak.
   Idea       A peak lasts until the first block goes. So the copy is made then, once a rise, not once a block:
              `rising` says that the peak is now and `now` still stands for it.
   Invariant  total == the sum over the tags, for every field but the two peaks; total.now <= total.peak;
              rising means total.now == total.peak.
   Cost       a handful of additions a block; with blocks or events known one by one, a hash and a ring entry more.
   Bounded    All tables are made at creation. A table that is full leaves things out and counts what it left out: the
              sums stay exact, and report and snapshot say that they do not show everything. */
enum memopt_i_action { MEMOPT_I_ALLOC, MEMOPT_I_FREE, MEMOPT_I_FAILED, MEMOPT_I_RETRIED, MEMOPT_I_RESERVE,
    MEMOPT_I_RELEASE };
typedef struct memopt_i_event {
    uint64_t time; /* nanoseconds */
    const void *address; /* of a failed attempt: how many bytes were free */
    const char *name;
    size_t bytes;
    memopt_tag tag;
    uint32_t step, layer;
    short action; /* of memopt_i_action */
    short alone;  /* a known block that lay in no known segment: the snapshot gives it one of its own */
} memopt_i_event;
typedef struct memopt_i_known { /* a live block; address NULL = a free place in the table */
    const void *address;
    const char *name;
    size_t bytes;
    memopt_tag tag;
    uint32_t step, layer;
} memopt_i_known;
typedef struct memopt_i_segment { const void *base; size_t reserved, committed; } memopt_i_segment;
typedef struct memopt_i_tag_name { char text[32]; } memopt_i_tag_name;
struct memopt_ledger {
    memopt_host host;
    size_t memory; /* bytes of this whole allocation */
    memopt_usage total;
    int rising;
    memopt_held held;
    uint32_t step, layer;
    memopt_i_event last_failed;
    uint64_t event_count; /* ever; the ring holds the last of them */
    size_t unknown_blocks, unknown_segments; /* live, but not in the tables */
    size_t clock_failures;
    size_t tag_count, tag_capacity, block_count, block_places, block_capacity, event_capacity, segment_count,
        segment_capacity;
    memopt_usage      *tags;
    memopt_i_tag_name *names;
    memopt_i_segment  *segments;
    memopt_i_event    *events;
    memopt_i_known    *blocks; /* a hash table with block_places places, a power of two */
    uint32_t          *order;  /* scratch of an export: the blocks by address */
};
static const char *const memopt_i_tag_names[MEMOPT_TAG_USER] = {
    "other", "parameters", "gradients", "optimizer", "activations", "checkpoints", "scratch", "communication"
};
/* Tables follow each other in one allocation; each begins where the last one ended, rounded up. */
static int memopt_i_table(size_t *total, size_t count, size_t size, size_t *offset) {
    size_t bytes;
    if (memopt_i_align_up(*total, 16, offset) || memopt_i_mul(count, size, &bytes)) return 1;
    return memopt_i_add(*offset, bytes, total);
}
static int memopt_i_ledger_layout(memopt_ledger *l, size_t offsets[6]) {
    l->memory = sizeof *l;
    return memopt_i_table(&l->memory, l->tag_capacity, sizeof *l->tags, &offsets[0])
        || memopt_i_table(&l->memory, l->tag_capacity, sizeof *l->names, &offsets[1])
        || memopt_i_table(&l->memory, l->segment_capacity, sizeof *l->segments, &offsets[2])
        || memopt_i_table(&l->memory, l->event_capacity, sizeof *l->events, &offsets[3])
        || memopt_i_table(&l->memory, l->block_places, sizeof *l->blocks, &offsets[4])
        || memopt_i_table(&l->memory, l->block_capacity, sizeof *l->order, &offsets[5]);
}
MEMOPT_API memopt_status memopt_ledger_create(const memopt_ledger_desc *desc, memopt_ledger **out) {
    memopt_ledger_desc d; memopt_ledger l, *p; size_t offsets[6], i;
    if (!out) return MEMOPT_ERR_ARGUMENT;
    if (desc) d = *desc; else memset(&d, 0, sizeof d);
    memset(&l, 0, sizeof l);
    if (memopt_host_resolve(d.host, &l.host)) return MEMOPT_ERR_ARGUMENT;
    l.tag_capacity = d.tag_capacity ? d.tag_capacity : 32;
    if (l.tag_capacity < MEMOPT_TAG_USER || l.tag_capacity > 4096) return MEMOPT_ERR_ARGUMENT;
    l.segment_capacity = d.segment_capacity ? d.segment_capacity : 64;
    l.event_capacity = d.event_capacity;
    l.block_capacity = d.block_capacity;
    if (l.block_capacity >= UINT32_MAX / 4) return MEMOPT_ERR_OVERFLOW;
    if (l.block_capacity) /* at most half full, so that a search is short */
        for (l.block_places = 4; l.block_places < 2 * l.block_capacity; l.block_places *= 2) {}
    if (memopt_i_ledger_layout(&l, offsets)) return MEMOPT_ERR_OVERFLOW;
    p = (memopt_ledger *)memopt_i_alloc(&l.host, l.memory, MEMOPT_I_HOST_ALIGN);
    if (!p) return MEMOPT_ERR_MEMORY;
    memset(p, 0, l.memory);
    l.tags     = (memopt_usage *)(void *)((char *)p + offsets[0]);
    l.names    = (memopt_i_tag_name *)(void *)((char *)p + offsets[1]);
    l.segments = (memopt_i_segment *)(void *)((char *)p + offsets[2]);
    l.events   = (memopt_i_event *)(void *)((char *)p + offsets[3]);
    l.blocks   = (memopt_i_known *)(void *)((char *)p + offsets[4]);
    l.order    = (uint32_t *)(void *)((char *)p + offsets[5]);
    l.tag_count = MEMOPT_TAG_USER;
    for (i = 0; i < MEMOPT_TAG_USER; ++i) memcpy(l.names[i].text, memopt_i_tag_names[i], strlen(memopt_i_tag_names[i]));
    *p = l;
    *out = p;
    return MEMOPT_OK;
}
MEMOPT_API void memopt_ledger_destroy(memopt_ledger *ledger) {
    memopt_host host;
    if (!ledger) return;
    host = ledger->host; /* copied: the struct lies inside what is freed */
    memopt_i_free(&host, ledger, ledger->memory, MEMOPT_I_HOST_ALIGN);
}
MEMOPT_API memopt_status memopt_ledger_tag_add(memopt_ledger *ledger, const char *name, memopt_tag *out) {
    size_t length;
    if (!ledger || !name || !*name || !out) return MEMOPT_ERR_ARGUMENT;
    if (ledger->tag_count == ledger->tag_capacity) return MEMOPT_ERR_MEMORY;
    length = memopt_i_min(strlen(name), sizeof ledger->names->text - 1);
    memcpy(ledger->names[ledger->tag_count].text, name, length); /* zeros follow */
    *out = (memopt_tag)ledger->tag_count++;
    return MEMOPT_OK;
}
MEMOPT_API const char *memopt_ledger_tag_name(const memopt_ledger *ledger, memopt_tag tag) {
    return ledger && tag < ledger->tag_count ? ledger->names[tag].text : "?";
}
MEMOPT_API void memopt_ledger_label(memopt_ledger *ledger, uint32_t step, uint32_t layer) {
    if (ledger) { ledger->step = step; ledger->layer = layer; }
}

/* Segments, events and blocks known one by one. A source may stand on a block of another: the smallest one counts. */
static memopt_i_segment *memopt_i_ledger_segment(const memopt_ledger *l, const void *address) {
    memopt_i_segment *best = NULL; size_t i;
    for (i = 0; i < l->segment_count; ++i) {
        memopt_i_segment *s = &l->segments[i];
        if ((uintptr_t)address - (uintptr_t)s->base < s->reserved && (!best || s->reserved < best->reserved)) best = s;
    }
    return best;
}
static void memopt_i_ledger_event(memopt_ledger *l, int action, memopt_tag tag, size_t bytes, const void *address,
                                  const memopt_i_known *known, const char *name) {
    memopt_i_event e; uint64_t before = 0;
    if (action != MEMOPT_I_FAILED && !l->event_capacity) return;
    e.action = (short)action; e.tag = tag; e.bytes = bytes; e.address = address; e.name = name;
    e.step = l->step; e.layer = l->layer; e.time = 0; e.alone = 0;
    if (l->event_capacity) {
        e.alone = (short)(known && !memopt_i_ledger_segment(l, address));
        if (l->event_count) before = l->events[(l->event_count - 1) % l->event_capacity].time;
        if (l->host.clock.now_fn(l->host.clock.user, &e.time)) { ++l->clock_failures; e.time = before; }
        l->events[l->event_count++ % l->event_capacity] = e;
    }
    if (action == MEMOPT_I_FAILED) l->last_failed = e;
}
/* where the search for a block begins */
static size_t memopt_i_ledger_home(const memopt_ledger *l, const void *address) {
    return (size_t)((((uint64_t)(uintptr_t)address >> 4) * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (l->block_places - 1);
}
/* of the block, or the free one for it */
static size_t memopt_i_ledger_place(const memopt_ledger *l, const void *address) {
    size_t at = memopt_i_ledger_home(l, address);
    while (l->blocks[at].address && l->blocks[at].address != address) at = (at + 1) & (l->block_places - 1);
    return at;
}
static memopt_i_known *memopt_i_ledger_know(memopt_ledger *l, memopt_tag tag, size_t bytes, const void *address,
                                            const char *name) {
    memopt_i_known *k;
    if (!l->block_capacity) return NULL;
    k = address ? &l->blocks[memopt_i_ledger_place(l, address)] : NULL;
    if (!k || k->address || l->block_count == l->block_capacity) { ++l->unknown_blocks; return NULL; }
    ++l->block_count;
    k->address = address; k->name = name; k->bytes = bytes; k->tag = tag;
    k->step = l->step; k->layer = l->layer;
    return k;
}
static memopt_i_known *memopt_i_ledger_find(const memopt_ledger *l, memopt_tag tag, size_t bytes, const void *address) {
    memopt_i_known *k;
    if (!l->block_capacity || !address) return NULL;
    k = &l->blocks[memopt_i_ledger_place(l, address)];
    return k->address && k->tag == tag && k->bytes == bytes ? k : NULL; /* else: one that shares its address, unknown */
}
/* Take a block out and close the gap: what comes behind and began its search at or before the gap moves into it. */
static void memopt_i_ledger_forget(memopt_ledger *l, const memopt_i_known *known) {
    size_t gap = (size_t)(known - l->blocks), at; const size_t mask = l->block_places - 1;
    for (at = (gap + 1) & mask; l->blocks[at].address; at = (at + 1) & mask) {
        const size_t home = memopt_i_ledger_home(l, l->blocks[at].address);
        if (((at - home) & mask) < ((at - gap) & mask)) continue;
        l->blocks[gap] = l->blocks[at];
        gap = at;
    }
    l->blocks[gap].address = NULL;
    --l->block_count;
}

/* The books. */
static void memopt_i_ledger_close_peak(memopt_ledger *l) {
    size_t i;
    if (!l->rising) return;
    for (i = 0; i < l->tag_count; ++i) l->tags[i].at_peak = l->tags[i].now;
    l->rising = 0;
}
MEMOPT_API memopt_status memopt_ledger_add(memopt_ledger *ledger, memopt_tag tag, size_t bytes, const void *address,
                                           const char *name) {
    memopt_usage *u;
    if (!ledger) return MEMOPT_OK;
    if (tag >= ledger->tag_count) return MEMOPT_ERR_ARGUMENT;
    if (bytes > SIZE_MAX - ledger->total.now) return MEMOPT_ERR_OVERFLOW;
    u = &ledger->tags[tag];
    u->now += bytes; ++u->blocks; ++u->allocs;
    if (u->now > u->peak) u->peak = u->now;
    ledger->total.now += bytes; ++ledger->total.blocks; ++ledger->total.allocs;
    if (ledger->total.now > ledger->total.peak) { ledger->total.peak = ledger->total.now; ledger->rising = 1; }
    memopt_i_ledger_event(ledger, MEMOPT_I_ALLOC, tag, bytes, address, memopt_i_ledger_know(ledger, tag, bytes,
        address, name), name);
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_ledger_remove(memopt_ledger *ledger, memopt_tag tag, size_t bytes,
                                              const void *address) {
    memopt_usage *u; const memopt_i_known *known;
    if (!ledger) return MEMOPT_OK;
    if (tag >= ledger->tag_count) return MEMOPT_ERR_ARGUMENT;
    u = &ledger->tags[tag];
    if (bytes > u->now || !u->blocks) return MEMOPT_ERR_STATE;
    known = memopt_i_ledger_find(ledger, tag, bytes, address);
    /* all are known, and it is none */
    if (ledger->block_capacity && !known && !ledger->unknown_blocks) return MEMOPT_ERR_STATE;
    memopt_i_ledger_close_peak(ledger);
    u->now -= bytes; --u->blocks; ++u->frees;
    ledger->total.now -= bytes; --ledger->total.blocks; ++ledger->total.frees;
    memopt_i_ledger_event(ledger, MEMOPT_I_FREE, tag, bytes, address, known, known ? known->name : NULL);
    if (known) memopt_i_ledger_forget(ledger, known); else if (ledger->block_capacity) --ledger->unknown_blocks;
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_ledger_failed(memopt_ledger *ledger, memopt_tag tag, size_t bytes) {
    size_t free_bytes = 0;
    if (!ledger) return MEMOPT_OK;
    if (tag >= ledger->tag_count) return MEMOPT_ERR_ARGUMENT;
    ++ledger->tags[tag].failed; ++ledger->total.failed;
    if (ledger->held.committed > ledger->total.now) free_bytes = ledger->held.committed - ledger->total.now;
    memopt_i_ledger_event(ledger, MEMOPT_I_FAILED, tag, bytes, (const void *)(uintptr_t)free_bytes, NULL, NULL);
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_ledger_retried(memopt_ledger *ledger, memopt_tag tag, size_t bytes) {
    if (!ledger) return MEMOPT_OK;
    if (tag >= ledger->tag_count) return MEMOPT_ERR_ARGUMENT;
    ++ledger->tags[tag].retried; ++ledger->total.retried;
    memopt_i_ledger_event(ledger, MEMOPT_I_RETRIED, tag, bytes, NULL, NULL, NULL);
    return MEMOPT_OK;
}
MEMOPT_API memopt_usage memopt_ledger_usage(const memopt_ledger *ledger, memopt_tag tag) {
    memopt_usage u;
    memset(&u, 0, sizeof u);
    if (!ledger || tag >= ledger->tag_count) return u;
    u = ledger->tags[tag];
    if (ledger->rising) u.at_peak = u.now;
    return u;
}
MEMOPT_API memopt_usage memopt_ledger_total(const memopt_ledger *ledger) {
    memopt_usage u;
    memset(&u, 0, sizeof u);
    if (!ledger) return u;
    u = ledger->total;
    u.at_peak = u.peak;
    return u;
}
MEMOPT_API memopt_held memopt_ledger_held(const memopt_ledger *ledger) {
    memopt_held held;
    memset(&held, 0, sizeof held);
    return ledger ? ledger->held : held;
}

/* What the sources report. A segment that found no place in the table is in the sums all the same. */
static void memopt_i_ledger_commit_by(memopt_ledger *l, const void *start, size_t more, size_t less) {
    memopt_i_segment *s = memopt_i_ledger_segment(l, start);
    if (s) s->committed += more - less;
    l->held.committed += more - less;
    if (l->held.committed > l->held.committed_peak) l->held.committed_peak = l->held.committed;
}
static void memopt_i_ledger_committed(memopt_ledger *l, const void *start, size_t bytes) {
    if (l) memopt_i_ledger_commit_by(l, start, bytes, 0);
}
static void memopt_i_ledger_decommitted(memopt_ledger *l, const void *start, size_t bytes) {
    if (l) memopt_i_ledger_commit_by(l, start, 0, bytes);
}
static void memopt_i_ledger_reserved(memopt_ledger *l, const void *base, size_t bytes, size_t committed) {
    memopt_i_segment s;
    if (!l) return;
    s.base = base; s.reserved = bytes; s.committed = 0;
    l->held.reserved += bytes; ++l->held.segments;
    if (l->segment_count == l->segment_capacity) ++l->unknown_segments;
    else {
        l->segments[l->segment_count++] = s;
        memopt_i_ledger_event(l, MEMOPT_I_RESERVE, MEMOPT_TAG_OTHER, bytes, base, NULL, NULL);
    }
    memopt_i_ledger_commit_by(l, base, committed, 0);
}
/* `committed`: what of it was; for one that is not in the table, that was booked to the segment it stands on, if any. */
static void memopt_i_ledger_released(memopt_ledger *l, const void *base, size_t bytes, size_t committed) {
    memopt_i_segment *s = l ? memopt_i_ledger_segment(l, base) : NULL;
    if (!l) return;
    l->held.reserved -= bytes; --l->held.segments;
    if (!s || s->base != base || s->reserved != bytes) {
        memopt_i_ledger_commit_by(l, base, 0, committed);
        --l->unknown_segments;
        return;
    }
    l->held.committed -= committed;
    *s = l->segments[--l->segment_count];
    memopt_i_ledger_event(l, MEMOPT_I_RELEASE, MEMOPT_TAG_OTHER, bytes, base, NULL, NULL);
}

/* Writing. Everything below appends to a buffer and counts on when it is full, so that one pass without a buffer tells
   the size. Sizes are written with integers only: printf's %f asks the locale for the decimal point. */
typedef struct memopt_i_out { char *buffer; size_t capacity, length; } memopt_i_out;
static void memopt_i_put(memopt_i_out *o, const void *bytes, size_t count) {
    if (o->length < o->capacity && count)
        memcpy(o->buffer + o->length, bytes, memopt_i_min(count, o->capacity - o->length));
    o->length += count;
}
static void memopt_i_put_text(memopt_i_out *o, const char *text) { memopt_i_put(o, text, strlen(text)); }
static void memopt_i_put_number(memopt_i_out *o, uint64_t n) {
    char digits[20]; size_t at = sizeof digits;
    do digits[--at] = (char)('0' + n % 10); while (n /= 10);
    memopt_i_put(o, digits + at, sizeof digits - at);
}
static void memopt_i_put_bytes(memopt_i_out *o, size_t bytes) { /* 12.3 MiB */
    static const char *const units[] = { " B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB" };
    const unsigned unit = bytes ? memopt_i_high_bit(bytes) / 10 : 0;
    const size_t one = (size_t)1 << (10 * unit);
    memopt_i_put_number(o, bytes / one);
    if (unit) { memopt_i_put_text(o, "."); memopt_i_put_number(o,
        ((uint64_t)(bytes % one) >> (10 * (unit - 1))) * 10 / 1024); }
    memopt_i_put_text(o, units[unit]);
}
/* Fill up with blanks: what was written since `start` becomes `width` wide, flush left; or right, by moving it. */
static void memopt_i_put_left(memopt_i_out *o, size_t start, size_t width) {
    while (o->length - start < width) memopt_i_put(o, " ", 1);
}
static void memopt_i_put_right_number(memopt_i_out *o, uint64_t n, size_t width) {
    uint64_t limit = 10; size_t digits = 1;
    while (digits < 20 && n >= limit) { ++digits; limit *= 10; }
    for (; digits < width; ++digits) memopt_i_put(o, " ", 1);
    memopt_i_put_number(o, n);
}
static void memopt_i_put_right_bytes(memopt_i_out *o, size_t bytes, size_t width) {
    char text[32]; memopt_i_out t;
    t.buffer = text; t.capacity = sizeof text; t.length = 0;
    memopt_i_put_bytes(&t, bytes);
    while (width-- > t.length) memopt_i_put(o, " ", 1);
    memopt_i_put(o, text, t.length);
}
static memopt_i_out memopt_i_out_begin(char *buffer, size_t capacity) {
    memopt_i_out o;
    o.buffer = buffer; o.capacity = capacity; o.length = 0;
    return o;
}
static memopt_status memopt_i_out_end(memopt_i_out *o, int text, size_t *length) {
    if (length) *length = o->length;
    if (text && o->capacity) o->buffer[memopt_i_min(o->length, o->capacity - 1)] = 0;
    return o->length + (size_t)(text != 0) > o->capacity ? MEMOPT_ERR_BUFFER : MEMOPT_OK;
}

/* The table for people. Tags that never held anything are left out. */
static void memopt_i_report_row(memopt_i_out *o, const char *name, const memopt_usage *u, size_t all) {
    const size_t start = o->length, share = all ? (size_t)((double)u->at_peak / (double)all * 20.0 + 0.5) : 0;
    size_t i;
    memopt_i_put_text(o, name);
    memopt_i_put_left(o, start, 16);
    memopt_i_put_right_bytes(o, u->now, 12);
    memopt_i_put_right_bytes(o, u->peak, 12);
    memopt_i_put_right_bytes(o, u->at_peak, 12);
    memopt_i_put_text(o, "  ");
    for (i = 0; i < 20; ++i) memopt_i_put(o, i < share ? "#" : ".", 1);
    memopt_i_put_right_number(o, u->blocks, 9);
    memopt_i_put_right_number(o, u->allocs, 11);
    memopt_i_put_right_number(o, u->failed, 8);
    memopt_i_put_text(o, "\n");
}
static void memopt_i_report_failures(memopt_i_out *o, const memopt_ledger *l) {
    const memopt_i_event *e = &l->last_failed;
    if (l->total.failed) {
        memopt_i_put_text(o, "failed attempts: ");
        memopt_i_put_number(o, l->total.failed);
        memopt_i_put_text(o, ", the last for ");
        memopt_i_put_bytes(o, e->bytes);
        memopt_i_put_text(o, " of ");
        memopt_i_put_text(o, memopt_ledger_tag_name(l, e->tag));
        memopt_i_put_text(o, " at step "); memopt_i_put_number(o, e->step);
        memopt_i_put_text(o, ", layer ");  memopt_i_put_number(o, e->layer);
        memopt_i_put_text(o, "\n");
    }
    if (l->total.retried) {
        memopt_i_put_text(o, "served another way than asked first: ");
        memopt_i_put_number(o, l->total.retried);
        memopt_i_put_text(o, "\n");
    }
    if (l->unknown_blocks || l->unknown_segments) {
        memopt_i_put_text(o, "not listed one by one, only in the sums: ");
        memopt_i_put_number(o, l->unknown_blocks);
        memopt_i_put_text(o, " blocks, "); memopt_i_put_number(o, l->unknown_segments);
        memopt_i_put_text(o, " reservations\n");
    }
    if (l->clock_failures) {
        memopt_i_put_text(o, "events with the time of the one before, because the clock failed: ");
        memopt_i_put_number(o, l->clock_failures);
        memopt_i_put_text(o, "\n");
    }
}
static void memopt_i_report(memopt_i_out *o, const memopt_ledger *l) {
    const memopt_usage all = memopt_ledger_total(l);
    size_t i;
    memopt_i_put_text(o,
        "memory                   now        peak at the peak  share at the peak      blocks     allocs  failed\n");
    for (i = 1; i <= l->tag_count; ++i) { /* `other`, the first, is told last */
        const memopt_tag tag = (memopt_tag)(i % l->tag_count);
        const memopt_usage u = memopt_ledger_usage(l, tag);
        if (u.allocs || u.failed || u.retried) memopt_i_report_row(o, l->names[tag].text, &u, all.peak);
    }
    memopt_i_report_row(o, "total", &all, all.peak);
    if (l->held.reserved || l->held.committed_peak) {
        memopt_i_put_text(o, "held by sources: reserved "); memopt_i_put_bytes(o, l->held.reserved);
        memopt_i_put_text(o, ", committed ");               memopt_i_put_bytes(o, l->held.committed);
        memopt_i_put_text(o, ", at most ");                 memopt_i_put_bytes(o, l->held.committed_peak);
        memopt_i_put_text(o, "\n");
    }
    memopt_i_report_failures(o, l);
}
MEMOPT_API memopt_status memopt_ledger_explain(const memopt_ledger *ledger, const memopt_error *error, char *buffer,
                                               size_t capacity, size_t *length) {
    memopt_i_out o; memopt_tag done[3]; size_t place, used = 0;
    if (!error || (!buffer && capacity)) return MEMOPT_ERR_ARGUMENT;
    o = memopt_i_out_begin(buffer, capacity);
    memopt_i_put_text(&o, error->reason ? error->reason : memopt_status_text(error->status));
    if (error->asked) { memopt_i_put_text(&o, ": asked "); memopt_i_put_bytes(&o, error->asked); }
    if (error->status == MEMOPT_ERR_MEMORY) {
        memopt_i_put_text(&o, ", free ");           memopt_i_put_bytes(&o, error->free_bytes);
        memopt_i_put_text(&o, ", largest piece ");  memopt_i_put_bytes(&o, error->largest);
        memopt_i_put_text(&o, ", fragmentation ");
        memopt_i_put_number(&o, error->largest < error->free_bytes
            ? (uint64_t)(100.0 - 100.0 * (double)error->largest / (double)error->free_bytes) : 0);
        memopt_i_put_text(&o, "%");
    }
    for (place = 0; ledger && place < 3; ++place) { /* the three tags that hold most */
        size_t tag, best = ledger->tag_count;
        for (tag = 0; tag < ledger->tag_count; ++tag) {
            if ((used > 0 && done[0] == tag) || (used > 1 && done[1] == tag) || !ledger->tags[tag].now) continue;
            if (best == ledger->tag_count || ledger->tags[tag].now > ledger->tags[best].now) best = tag;
        }
        if (best == ledger->tag_count) break;
        memopt_i_put_text(&o, place ? ", " : "; held by ");
        memopt_i_put_text(&o, ledger->names[best].text);
        memopt_i_put_text(&o, " "); memopt_i_put_bytes(&o, ledger->tags[best].now);
        done[used++] = (memopt_tag)best;
    }
    return memopt_i_out_end(&o, 1, length);
}

/* One walk writes the snapshot twice: as JSON, and as a pickle of protocol 2 (Python's own format, read back with
   pickle.load). A document is made of dicts, lists, texts and numbers; what differs is how each begins and ends. */
typedef struct memopt_i_document {
    memopt_i_out out;
    int pickle;
    int comma; /* JSON: one is due before the next item */
} memopt_i_document;
static void memopt_i_little_endian(memopt_i_out *o, uint64_t n, int count) {
    for (; count > 0; --count, n >>= 8) { const char byte = (char)(n & 0xff); memopt_i_put(o, &byte, 1); }
}
static void memopt_i_document_item(memopt_i_document *d) {
    if (!d->pickle && d->comma) memopt_i_put_text(&d->out, ", ");
    d->comma = 1;
}
static void memopt_i_document_begin(memopt_i_document *d, int dict) {
    memopt_i_document_item(d);
    if (d->pickle) memopt_i_put_text(&d->out, dict ? "}(" : "](");
    else memopt_i_put_text(&d->out, dict ? "{" : "[");
    d->comma = 0;
}
static void memopt_i_document_end(memopt_i_document *d, int dict) {
    if (d->pickle) memopt_i_put_text(&d->out, dict ? "u" : "e");
    else memopt_i_put_text(&d->out, dict ? "}" : "]");
    d->comma = 1;
}
/* Names are for people and may hold anything; what is not printable ASCII becomes a question mark in both forms. */
static void memopt_i_document_text(memopt_i_document *d, const char *text) {
    const size_t length = strlen(text); size_t i;
    memopt_i_document_item(d);
    if (d->pickle) { memopt_i_put_text(&d->out, "X"); memopt_i_little_endian(&d->out, length, 4); }
    else memopt_i_put_text(&d->out, "\"");
    for (i = 0; i < length; ++i) {
        const char c = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
        if (!d->pickle && (c == '"' || c == '\\')) memopt_i_put_text(&d->out, "\\");
        memopt_i_put(&d->out, &c, 1);
    }
    if (!d->pickle) memopt_i_put_text(&d->out, "\"");
}
static void memopt_i_document_number(memopt_i_document *d, uint64_t n) {
    int bytes;
    memopt_i_document_item(d);
    if (!d->pickle) { memopt_i_put_number(&d->out, n); return; }
    if (n <= 0x7fffffff) { memopt_i_put_text(&d->out, "J"); memopt_i_little_endian(&d->out, n, 4); return; }
    bytes = (int)(memopt_i_high_bit(n) + 9) / 8; /* with a sign bit. No more than it needs: the viewer cannot */
    memopt_i_put_text(&d->out, "\x8a");        /* add numbers of 9 bytes to numbers of 8 */
    memopt_i_little_endian(&d->out, (uint64_t)bytes, 1);
    memopt_i_little_endian(&d->out, n, bytes);
}
static void memopt_i_document_key(memopt_i_document *d, const char *key) {
    memopt_i_document_text(d, key);
    if (!d->pickle) memopt_i_put_text(&d->out, ": ");
    d->comma = 0;
}
static void memopt_i_document_field(memopt_i_document *d, const char *key, uint64_t n) {
    memopt_i_document_key(d, key);
    memopt_i_document_number(d, n);
}

/* The two zeros of the pool that everything is in: a tuple, because scripts compare it with one. */
static void memopt_i_document_pool(memopt_i_document *d, const char *key) {
    memopt_i_document_key(d, key);
    if (d->pickle) { memopt_i_document_number(d, 0); memopt_i_document_number(d, 0); memopt_i_put_text(&d->out,
        "\x86"); return; }
    memopt_i_document_begin(d, 0); memopt_i_document_number(d, 0); memopt_i_document_number(d, 0);
    memopt_i_document_end(d, 0);
}
/* A long list is filled a thousand items at a time, as Python does: the viewer takes each as arguments of a call. */
static void memopt_i_document_pause(memopt_i_document *d, uint64_t done) {
    if (d->pickle && done % 1000 == 999) memopt_i_put_text(&d->out, "e(");
}

/* The snapshot. A "stack frame" is where a block comes from: tag and name, step, layer. Blocks that lie in a segment
   tile it together with the free bytes between them; a block of yours that lies in none is a segment of its own.
   A block that overlaps the one before it, or the segment's end, is left out: a segment is never more than full. */
static int memopt_i_known_below(const memopt_ledger *l, uint32_t a, uint32_t b) {
    return (uintptr_t)l->blocks[a].address < (uintptr_t)l->blocks[b].address;
}
static void memopt_i_sift(const memopt_ledger *l, uint32_t *order, size_t root, size_t count) {
    for (;;) {
        size_t child = 2 * root + 1; uint32_t t;
        if (child >= count) return;
        if (child + 1 < count && memopt_i_known_below(l, order[child], order[child + 1])) ++child;
        if (!memopt_i_known_below(l, order[root], order[child])) return;
        t = order[root]; order[root] = order[child]; order[child] = t;
        root = child;
    }
}
/* Heap sort: qsort of some C libraries allocates. */
static void memopt_i_ledger_sort(const memopt_ledger *l) {
    uint32_t *order = l->order; size_t i, n = 0;
    for (i = 0; i < l->block_places; ++i) if (l->blocks[i].address) order[n++] = (uint32_t)i;
    for (i = n / 2; i-- > 0;) memopt_i_sift(l, order, i, n);
    for (i = n; i-- > 1;) {
        const uint32_t t = order[0];
        order[0] = order[i]; order[i] = t;
        memopt_i_sift(l, order, 0, i);
    }
}
static void memopt_i_snapshot_frames(memopt_i_document *d, const memopt_ledger *l, memopt_tag tag, const char *name,
                                     uint32_t step, uint32_t layer) {
    char where[32]; memopt_i_out o = memopt_i_out_begin(where, sizeof where - 1);
    memopt_i_put_text(&o, "step ");
    memopt_i_put_number(&o, step);
    where[o.length] = 0;
    memopt_i_document_key(d, "frames");
    memopt_i_document_begin(d, 0);
    memopt_i_document_begin(d, 1);
    memopt_i_document_key(d, "filename"); memopt_i_document_text(d, where);
    memopt_i_document_field(d, "line", layer);
    memopt_i_document_key(d, "name");     memopt_i_document_text(d, name ? name : memopt_ledger_tag_name(l, tag));
    memopt_i_document_end(d, 1);
    memopt_i_document_begin(d, 1);
    memopt_i_document_key(d, "filename"); memopt_i_document_text(d, "memopt");
    memopt_i_document_field(d, "line", tag);
    memopt_i_document_key(d, "name");     memopt_i_document_text(d, memopt_ledger_tag_name(l, tag));
    memopt_i_document_end(d, 1);
    memopt_i_document_end(d, 0);
}
static void memopt_i_snapshot_block(memopt_i_document *d, const memopt_ledger *l, uintptr_t address, size_t bytes,
                                    const memopt_i_known *k) {
    memopt_i_document_begin(d, 1);
    memopt_i_document_field(d, "address", address);
    memopt_i_document_field(d, "size", bytes);
    memopt_i_document_field(d, "requested_size", k ? bytes : 0);
    memopt_i_document_key(d, "state"); memopt_i_document_text(d, k ? "active_allocated" : "inactive");
    if (k) memopt_i_snapshot_frames(d, l, k->tag, k->name, k->step, k->layer);
    else { memopt_i_document_key(d, "frames"); memopt_i_document_begin(d, 0); memopt_i_document_end(d, 0); }
    memopt_i_document_end(d, 1);
}
/* The first of the blocks order[i..last) that lies in `s` (NULL: in none) and in its bytes from `at` on; or last. */
static size_t memopt_i_snapshot_next(const memopt_ledger *l, const memopt_i_segment *s, size_t at, size_t i,
                                     size_t last) {
    for (; s && i < last; ++i) {
        const memopt_i_known *k = &l->blocks[l->order[i]];
        const size_t offset = (size_t)((uintptr_t)k->address - (uintptr_t)s->base);
        if (offset >= at && k->bytes <= s->reserved - offset && memopt_i_ledger_segment(l, k->address) == s) return i;
    }
    return i;
}
static void memopt_i_snapshot_blocks(memopt_i_document *d, const memopt_ledger *l, const memopt_i_segment *s,
                                     size_t first, size_t last) {
    const uintptr_t base = (uintptr_t)(s ? s->base : l->blocks[l->order[first]].address);
    size_t i, at = 0; uint64_t done = 0;
    memopt_i_document_begin(d, 0);
    for (i = first; (i = memopt_i_snapshot_next(l, s, at, i, last)) < last; ++i) {
        const memopt_i_known *k = &l->blocks[l->order[i]];
        const size_t offset = (size_t)((uintptr_t)k->address - base);
        if (offset > at) memopt_i_snapshot_block(d, l, base + at, offset - at, NULL);
        memopt_i_snapshot_block(d, l, base + offset, k->bytes, k);
        at = offset + k->bytes;
        memopt_i_document_pause(d, done++);
    }
    if (s && s->reserved > at) memopt_i_snapshot_block(d, l, base + at, s->reserved - at, NULL);
    memopt_i_document_end(d, 0);
}
/* The segment `s` with the blocks order[first..last); NULL: the block order[first] alone. */
static void memopt_i_snapshot_segment(memopt_i_document *d, const memopt_ledger *l, const memopt_i_segment *s,
                                      size_t first, size_t last) {
    size_t i, at = 0, active = 0;
    for (i = first; (i = memopt_i_snapshot_next(l, s, at, i, last)) < last; ++i) {
        const memopt_i_known *k = &l->blocks[l->order[i]];
        active += k->bytes;
        if (s) at = (size_t)((uintptr_t)k->address - (uintptr_t)s->base) + k->bytes;
    }
    memopt_i_document_begin(d, 1);
    memopt_i_document_field(d, "device", 0);
    memopt_i_document_field(d, "address", (uintptr_t)(s ? s->base : l->blocks[l->order[first]].address));
    memopt_i_document_field(d, "total_size", s ? s->reserved : active);
    memopt_i_document_field(d, "allocated_size", active);
    memopt_i_document_field(d, "active_size", active);
    memopt_i_document_field(d, "requested_size", active);
    memopt_i_document_field(d, "stream", 0);
    memopt_i_document_key(d, "segment_type"); memopt_i_document_text(d, "large");
    memopt_i_document_pool(d, "segment_pool_id");
    memopt_i_document_key(d, "frames"); memopt_i_document_begin(d, 0); memopt_i_document_end(d, 0);
    memopt_i_document_key(d, "blocks");
    memopt_i_snapshot_blocks(d, l, s, first, last);
    memopt_i_document_end(d, 1);
}
static void memopt_i_snapshot_segments(memopt_i_document *d, const memopt_ledger *l) {
    size_t i, first, last; uint64_t done = 0;
    memopt_i_ledger_sort(l);
    memopt_i_document_begin(d, 0);
    for (i = 0; i < l->segment_count; ++i) {
        const uintptr_t base = (uintptr_t)l->segments[i].base;
        for (first = 0; first < l->block_count && (uintptr_t)l->blocks[l->order[first]].address < base; ++first) {}
        for (last = first; last < l->block_count; ++last)
            if ((uintptr_t)l->blocks[l->order[last]].address - base >= l->segments[i].reserved) break;
        memopt_i_snapshot_segment(d, l, &l->segments[i], first, last);
        memopt_i_document_pause(d, done++);
    }
    for (i = 0; i < l->block_count; ++i) {
        if (memopt_i_ledger_segment(l, l->blocks[l->order[i]].address)) continue;
        memopt_i_snapshot_segment(d, l, NULL, i, i + 1);
        memopt_i_document_pause(d, done++);
    }
    memopt_i_document_end(d, 0);
}
static void memopt_i_snapshot_event(memopt_i_document *d, const memopt_ledger *l, const memopt_i_event *e,
                                    const char *action) {
    const int failed = e->action == MEMOPT_I_FAILED;
    memopt_i_document_begin(d, 1);
    memopt_i_document_key(d, "action"); memopt_i_document_text(d, action);
    memopt_i_document_field(d, "addr", failed ? 0 : (uintptr_t)e->address);
    memopt_i_document_field(d, "size", e->bytes);
    memopt_i_document_field(d, "stream", 0);
    memopt_i_document_field(d, "time_us", e->time / 1000);
    if (failed) memopt_i_document_field(d, "device_free", (uintptr_t)e->address);
    memopt_i_document_pool(d, "pool_id");
    memopt_i_snapshot_frames(d, l, e->tag, e->name, e->step, e->layer);
    memopt_i_document_end(d, 1);
}
static void memopt_i_snapshot_events(memopt_i_document *d, const memopt_ledger *l, const memopt_i_event *e) {
    switch (e->action) {
    case MEMOPT_I_ALLOC:   if (e->alone) memopt_i_snapshot_event(d, l, e, "segment_alloc");
                           memopt_i_snapshot_event(d, l, e, "alloc"); break;
    case MEMOPT_I_FREE:    memopt_i_snapshot_event(d, l, e, "free_requested");
                           memopt_i_snapshot_event(d, l, e, "free_completed");
                           if (e->alone) memopt_i_snapshot_event(d, l, e, "segment_free");
                           break;
    case MEMOPT_I_FAILED:  memopt_i_snapshot_event(d, l, e, "oom"); break;
    case MEMOPT_I_RESERVE: memopt_i_snapshot_event(d, l, e, "segment_alloc"); break;
    case MEMOPT_I_RELEASE: memopt_i_snapshot_event(d, l, e, "segment_free"); break;
    default: break; /* a retry has no name there */
    }
}
static uint64_t memopt_i_oldest_event(const memopt_ledger *l) {
    return l->event_count > l->event_capacity ? l->event_count - l->event_capacity : 0;
}
static void memopt_i_snapshot(memopt_i_document *d, const memopt_ledger *l) {
    uint64_t i;
    if (d->pickle) memopt_i_put(&d->out, "\x80\x02", 2);
    memopt_i_document_begin(d, 1);
    memopt_i_document_key(d, "segments");
    memopt_i_snapshot_segments(d, l);
    memopt_i_document_key(d, "device_traces");
    memopt_i_document_begin(d, 0);
    memopt_i_document_begin(d, 0);
    for (i = memopt_i_oldest_event(l); i < l->event_count; ++i) {
        memopt_i_snapshot_events(d, l, &l->events[i % l->event_capacity]);
        memopt_i_document_pause(d, i);
    }
    memopt_i_document_end(d, 0);
    memopt_i_document_end(d, 0);
    memopt_i_document_end(d, 1);
    if (d->pickle) memopt_i_put_text(&d->out, ".");
}

/* The trace: the running sum of each tag as a counter, failures as instants. The ring may have lost its beginning, so
   the sums begin with what is live now less what the ring says came and went. */
static void memopt_i_trace_event(memopt_i_document *d, const char *name, const char *phase, uint64_t time,
                                 const char *key, uint64_t value) {
    memopt_i_document_begin(d, 1);
    memopt_i_document_key(d, "name"); memopt_i_document_text(d, name);
    memopt_i_document_key(d, "ph");   memopt_i_document_text(d, phase);
    if (*phase == 'i') { memopt_i_document_key(d, "s"); memopt_i_document_text(d, "g"); }
    memopt_i_document_field(d, "pid", 0);
    memopt_i_document_field(d, "tid", 0);
    memopt_i_document_field(d, "ts", time / 1000);
    memopt_i_document_key(d, "args");
    memopt_i_document_begin(d, 1); memopt_i_document_field(d, key, value); memopt_i_document_end(d, 1);
    memopt_i_document_end(d, 1);
}
static void memopt_i_trace_tag(memopt_i_document *d, const memopt_ledger *l, memopt_tag tag) {
    const uint64_t first = memopt_i_oldest_event(l);
    const char *name = l->names[tag].text;
    size_t sum = l->tags[tag].now; uint64_t i; int any = 0;
    for (i = l->event_count; i-- > first;) { /* back to what it was at the first event */
        const memopt_i_event *e = &l->events[i % l->event_capacity];
        if (e->tag == tag && e->action == MEMOPT_I_ALLOC) { sum -= e->bytes; any = 1; }
        if (e->tag == tag && e->action == MEMOPT_I_FREE)  { sum += e->bytes; any = 1; }
    }
    if (!any && !sum) return;
    if (l->event_count) memopt_i_trace_event(d, name, "C", l->events[first % l->event_capacity].time, "bytes", sum);
    for (i = first; i < l->event_count; ++i) {
        const memopt_i_event *e = &l->events[i % l->event_capacity];
        if (e->tag != tag || (e->action != MEMOPT_I_ALLOC && e->action != MEMOPT_I_FREE)) continue;
        sum = e->action == MEMOPT_I_ALLOC ? sum + e->bytes : sum - e->bytes;
        memopt_i_trace_event(d, name, "C", e->time, "bytes", sum);
    }
}
static void memopt_i_trace(memopt_i_document *d, const memopt_ledger *l) {
    const uint64_t first = memopt_i_oldest_event(l);
    uint32_t step = 0; uint64_t i; size_t tag;
    memopt_i_document_begin(d, 1);
    memopt_i_document_key(d, "displayTimeUnit"); memopt_i_document_text(d, "ms");
    memopt_i_document_key(d, "traceEvents");
    memopt_i_document_begin(d, 0);
    for (tag = 0; tag < l->tag_count; ++tag) memopt_i_trace_tag(d, l, (memopt_tag)tag);
    for (i = first; i < l->event_count; ++i) {
        const memopt_i_event *e = &l->events[i % l->event_capacity];
        if (i == first || e->step != step) memopt_i_trace_event(d, "step", "i", e->time, "step", e->step);
        step = e->step;
        if (e->action == MEMOPT_I_FAILED)  memopt_i_trace_event(d, "out of memory", "i", e->time, "bytes", e->bytes);
        if (e->action == MEMOPT_I_RETRIED) memopt_i_trace_event(d, "retried", "i", e->time, "bytes", e->bytes);
    }
    memopt_i_document_end(d, 0);
    memopt_i_document_end(d, 1);
}
MEMOPT_API memopt_status memopt_ledger_export(const memopt_ledger *ledger, memopt_export format, char *buffer,
                                              size_t capacity, size_t *length) {
    memopt_i_document d;
    if (!ledger || (!buffer && capacity)) return MEMOPT_ERR_ARGUMENT;
    d.out = memopt_i_out_begin(buffer, capacity); d.comma = 0;
    d.pickle = format == MEMOPT_EXPORT_SNAPSHOT_PICKLE;
    switch (format) {
    case MEMOPT_EXPORT_REPORT:          memopt_i_report(&d.out, ledger); break;
    case MEMOPT_EXPORT_SNAPSHOT_JSON:
    case MEMOPT_EXPORT_SNAPSHOT_PICKLE: memopt_i_snapshot(&d, ledger); break;
    case MEMOPT_EXPORT_TRACE_JSON:      memopt_i_trace(&d, ledger); break;
    default: return MEMOPT_ERR_ARGUMENT;
    }
    return memopt_i_out_end(&d.out, !d.pickle, length);
}
MEMOPT_API memopt_status memopt_ledger_report(const memopt_ledger *ledger, char *buffer, size_t capacity,
                                              size_t *length) {
    return memopt_ledger_export(ledger, MEMOPT_EXPORT_REPORT, buffer, capacity, length);
}
/* @section source : ledger host api_source
   Where bytes come from, as one table of functions, so that arenas and heaps do not care whether they stand on a static
   array, malloc, pages of the system, a GPU, or on nothing at all.
   Problem    For tensors the allocator is not what costs, page faults are: 410 us a MiB with 4 KiB pages, 99 with huge
              ones, 2 for pages that are there. So: reserve much, commit once, keep.  And a system that promises more
              than it has answers with a kill, hours later, instead of a NULL now.
   Idea       Reserving (addresses) and committing (memory) are two calls. What cannot tell them apart leaves commit out.
              Counting hands out addresses and nothing else: the same code, run dry, tells its exact peak.
   Invariant  Everybody else goes through the four memopt_i_source_ calls below, which book into the source's ledger
              what the table really did.
   Trap       A counting or device address must never be read; memset, poison and checks ask host_visible first. */
static memopt_status memopt_i_source_reserve(memopt_source *s, size_t bytes, void **base) {
    const memopt_status status = s->reserve_fn(s, bytes, base);
    if (!status) memopt_i_ledger_reserved(s->ledger, *base, bytes, s->commit_fn ? 0 : bytes);
    else memopt_ledger_failed(s->ledger, MEMOPT_TAG_OTHER, bytes);
    return status;
}
static memopt_status memopt_i_source_commit(memopt_source *s, void *start, size_t bytes) {
    memopt_status status;
    if (!s->commit_fn || !bytes) return MEMOPT_OK;
    status = s->commit_fn(s, start, bytes);
    if (!status) memopt_i_ledger_committed(s->ledger, start, bytes);
    else memopt_ledger_failed(s->ledger, MEMOPT_TAG_OTHER, bytes);
    return status;
}
static memopt_status memopt_i_source_decommit(memopt_source *s, void *start, size_t bytes) {
    memopt_status status;
    if (!s->commit_fn || !bytes) return MEMOPT_OK;
    status = s->decommit_fn(s, start, bytes);
    if (!status) memopt_i_ledger_decommitted(s->ledger, start, bytes);
    return status;
}
static void memopt_i_source_release(memopt_source *s, void *base, size_t bytes, size_t committed) {
    memopt_i_ledger_released(s->ledger, base, bytes, s->commit_fn ? committed : bytes);
    s->release_fn(s, base, bytes);
}
/* What arenas and heaps ask before they trust a table that somebody else filled in. */
static int memopt_i_source_valid(const memopt_source *s) {
    if (!s || !s->reserve_fn || !s->release_fn || !s->zero_fn || !s->commit_fn != !s->decommit_fn) return 0;
    if (!memopt_i_power_of_two(s->granularity) || !memopt_i_power_of_two(s->base_alignment)) return 0;
    return memopt_i_power_of_two(s->alignment) && s->alignment <= s->base_alignment && s->capacity;
}

/* Bytes the CPU can reach: the same four functions for block, allocator and pages. */
static memopt_status memopt_i_host_zero(memopt_source *s, void *start, size_t bytes) {
    (void)s;
    if (bytes) memset(start, 0, bytes);
    return MEMOPT_OK;
}
static memopt_status memopt_i_host_copy(memopt_source *s, void *to, const void *from, size_t bytes) {
    (void)s;
    if (bytes) memmove(to, from, bytes);
    return MEMOPT_OK;
}
static memopt_source memopt_i_host_source(memopt_source_kind kind) {
    memopt_source s;
    memset(&s, 0, sizeof s);
    s.zero_fn = memopt_i_host_zero;
    s.copy_in_fn = s.copy_out_fn = s.copy_fn = memopt_i_host_copy;
    s.granularity = 1; s.base_alignment = s.alignment = 64;
    s.host_visible = 1; s.kind = kind;
    return s;
}

/* Caller's block: given out whole, to one at a time. `flags` is 1 while somebody has it. */
static memopt_status memopt_i_block_reserve(memopt_source *s, size_t bytes, void **base) {
    if (bytes > s->capacity || s->flags) return MEMOPT_ERR_MEMORY;
    s->flags = 1;
    *base = s->user;
    return MEMOPT_OK;
}
static void memopt_i_block_release(memopt_source *s, void *base, size_t bytes) {
    (void)base; (void)bytes;
    s->flags = 0;
}
MEMOPT_API memopt_status memopt_source_block(void *block, size_t bytes, memopt_source *out) {
    memopt_source s; size_t skip;
    if (!block || !out || bytes > SIZE_MAX - (uintptr_t)block) return MEMOPT_ERR_ARGUMENT;
    s = memopt_i_host_source(MEMOPT_SOURCE_BLOCK);
    skip = (size_t)(-(uintptr_t)block & 63u);
    if (bytes < skip || bytes - skip < 64) return MEMOPT_ERR_ARGUMENT;
    s.reserve_fn = memopt_i_block_reserve; s.release_fn = memopt_i_block_release;
    s.user = (unsigned char *)block + skip;
    s.capacity = bytes - skip;
    /* as it happens to lie, at least 64 */
    s.base_alignment = (size_t)1 << memopt_i_low_bit((uint64_t)(uintptr_t)s.user);
    *out = s;
    return MEMOPT_OK;
}

/* The host's allocator: one call a reservation. Its blocks are aligned to a page, so that bigger pushes can be too. */
static memopt_status memopt_i_allocator_reserve(memopt_source *s, size_t bytes, void **base) {
    void *block = memopt_i_alloc(&s->host, bytes, s->base_alignment);
    if (!block) return MEMOPT_ERR_MEMORY;
    *base = block;
    return MEMOPT_OK;
}
static void memopt_i_allocator_release(memopt_source *s, void *base, size_t bytes) {
    memopt_i_free(&s->host, base, bytes, s->base_alignment);
}
MEMOPT_API memopt_status memopt_source_allocator(const memopt_host *host, memopt_source *out) {
    memopt_source s = memopt_i_host_source(MEMOPT_SOURCE_ALLOCATOR);
    if (!out || memopt_host_resolve(host, &s.host)) return MEMOPT_ERR_ARGUMENT;
    s.reserve_fn = memopt_i_allocator_reserve; s.release_fn = memopt_i_allocator_release;
    s.base_alignment = 4096;
    s.capacity = SIZE_MAX / 2;
    *out = s;
    return MEMOPT_OK;
}

/* Counting only. The base is the huge-page size: not NULL, aligned to all that real sources are aligned to, and never
   mapped. Reservations follow each other, so that no two share an address; `user` is where the next one begins. */
#define MEMOPT_I_COUNTING_BASE ((size_t)1 << 21)
static memopt_status memopt_i_counting_reserve(memopt_source *s, size_t bytes, void **base) {
    const size_t at = (size_t)(uintptr_t)s->user; size_t end;
    if (memopt_i_add(at, bytes, &end) || memopt_i_align_up(end, MEMOPT_I_COUNTING_BASE, &end)) return MEMOPT_ERR_MEMORY;
    s->user = (void *)(uintptr_t)end;
    *base = (void *)(uintptr_t)at;
    return MEMOPT_OK;
}
static void memopt_i_counting_release(memopt_source *s, void *base, size_t bytes) {
    size_t end = (size_t)(uintptr_t)base + bytes;
    if (!memopt_i_align_up(end, MEMOPT_I_COUNTING_BASE, &end) && end == (size_t)(uintptr_t)s->user) s->user = base;
}
static memopt_status memopt_i_counting_commit(memopt_source *s, void *start, size_t bytes) {
    (void)s; (void)start; (void)bytes;
    return MEMOPT_OK;
}
static memopt_status memopt_i_counting_copy(memopt_source *s, void *to, const void *from, size_t bytes) {
    (void)s; (void)to; (void)from; (void)bytes;
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_source_counting(memopt_source *out) {
    memopt_source s = memopt_i_host_source(MEMOPT_SOURCE_COUNTING);
    if (!out) return MEMOPT_ERR_ARGUMENT;
    s.reserve_fn = memopt_i_counting_reserve; s.release_fn = memopt_i_counting_release;
    s.commit_fn = s.decommit_fn = s.zero_fn = memopt_i_counting_commit;
    s.copy_in_fn = s.copy_out_fn = s.copy_fn = memopt_i_counting_copy;
    s.base_alignment = MEMOPT_I_COUNTING_BASE;
    /* room for a few; whole for every alignment */
    s.capacity = memopt_i_align_down(SIZE_MAX / 4, MEMOPT_I_COUNTING_BASE);
    s.host_visible = 0;
    s.user = (void *)(uintptr_t)MEMOPT_I_COUNTING_BASE;
    *out = s;
    return MEMOPT_OK;
}

/* Memory really available. Linux keeps the truth in text files: /proc/meminfo for the machine, and for every cgroup we
   are in, and every one above it, a limit, a usage, and how much of the usage is file cache that would make room. */
#define MEMOPT_I_TEXT 4096 /* longest file or path we look at; what is beyond it is not read */
#if defined(__linux__)
/* The number after `key` at the beginning of a line. Returns 0 when there is none, or none that fits. */
static int memopt_i_text_number(const char *text, const char *key, uint64_t *out) {
    const size_t length = strlen(key);
    uint64_t n = 0; int digits = 0;
    for (; text; text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL) {
        if (strncmp(text, key, length)) continue;
        for (text += length; *text == ' ' || *text == '\t'; ++text) {}
        for (; *text >= '0' && *text <= '9'; ++text, ++digits) {
            if (n > (UINT64_MAX - 9) / 10) return 0;
            n = n * 10 + (uint64_t)(*text - '0');
        }
        *out = n;
        return digits > 0;
    }
    return 0;
}
static memopt_status memopt_i_text_file(const memopt_host *host, const char *path, char text[MEMOPT_I_TEXT]) {
    void *file = NULL; size_t done = 0; memopt_status s, closed;
    if ((s = host->files.open_fn(host->files.user, path, MEMOPT_OPEN_READ, &file)) != MEMOPT_OK) return s;
    s = host->files.read_fn(host->files.user, file, 0, text, MEMOPT_I_TEXT - 1, &done);
    closed = host->files.close_fn(host->files.user, file);
    if (s || closed) return s ? s : closed;
    text[memopt_i_min(done, MEMOPT_I_TEXT - 1)] = 0;
    return MEMOPT_OK;
}
/* directory/name as a number; no file, or the word "max", is no limit. */
static int memopt_i_cgroup_number(const memopt_host *host, const char *directory, const char *name, const char *key,
                                  uint64_t *out) {
    char path[MEMOPT_I_TEXT], text[MEMOPT_I_TEXT];
    const size_t a = strlen(directory), b = strlen(name);
    if (a + b + 2 > sizeof path) return 0;
    memcpy(path, directory, a);
    path[a] = '/';
    memcpy(path + a + 1, name, b + 1);
    return !memopt_i_text_file(host, path, text) && memopt_i_text_number(text, key, out);
}
/* Lower *available to what the cgroup `path` below `root`, and each one above it, leaves. `path` is cut as we climb. */
static void memopt_i_cgroup_climb(const memopt_host *host, char *path, size_t root, int version, uint64_t *available) {
    const char *limit_name = version == 2 ? "memory.max" : "memory.limit_in_bytes";
    const char *usage_name = version == 2 ? "memory.current" : "memory.usage_in_bytes";
    const char *cache_key  = version == 2 ? "inactive_file" : "total_inactive_file";
    size_t n = strlen(path);
    for (;;) {
        uint64_t limit, usage, cache = 0, left;
        while (n > root && path[n - 1] == '/') path[--n] = 0;
        if (memopt_i_cgroup_number(host, path, limit_name, "", &limit)
            && memopt_i_cgroup_number(host, path, usage_name, "", &usage)) {
            (void)memopt_i_cgroup_number(host, path, "memory.stat", cache_key, &cache);
            usage = usage > cache ? usage - cache : 0;
            left = limit > usage ? limit - usage : 0;
            if (left < *available) *available = left;
        }
        if (n <= root) return;
        while (n > root && path[n - 1] != '/') path[--n] = 0;
    }
}
static int memopt_i_cgroup_names_memory(const char *name, const char *end) { /* names with commas between them */
    for (; name < end; ++name) {
        const char *comma = (const char *)memchr(name, ',', (size_t)(end - name));
        const char *stop = comma ? comma : end;
        if (stop - name == 6 && !memcmp(name, "memory", 6)) return 1;
        name = stop;
    }
    return 0;
}
/* One line of /proc/self/cgroup, "0::/path" (version 2) or "4:memory:/path" (version 1; several names with commas). */
static void memopt_i_cgroup_line(const memopt_host *host, const char *line, size_t length, uint64_t *available) {
    static const char *const roots[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory" };
    const char *names = (const char *)memchr(line, ':', length), *below, *end = line + length;
    size_t i; int version;
    if (!names) return;
    ++names;
    below = (const char *)memchr(names, ':', (size_t)(end - names));
    if (!below) return;
    version = below == names ? 2 : 1;
    if (version == 1 && !memopt_i_cgroup_names_memory(names, below)) return;
    ++below;
    for (i = version == 2 ? 0 : 2; i < (version == 2 ? 2u : 3u); ++i) {
        char path[MEMOPT_I_TEXT]; const size_t root = strlen(roots[i]), rest = (size_t)(end - below);
        if (root + rest + 1 > sizeof path) return;
        memcpy(path, roots[i], root);
        memcpy(path + root, below, rest);
        path[root + rest] = 0;
        memopt_i_cgroup_climb(host, path, root, version, available);
    }
}
static memopt_status memopt_i_available(const memopt_host *host, uint64_t *bytes) {
    char text[MEMOPT_I_TEXT]; const char *line, *end; uint64_t kib, available;
    memopt_status s = memopt_i_text_file(host, "/proc/meminfo", text);
    if (s) return s;
    if (!memopt_i_text_number(text, "MemAvailable:", &kib) || kib > UINT64_MAX / 1024) return MEMOPT_ERR_FORMAT;
    available = kib * 1024;
    if (!memopt_i_text_file(host, "/proc/self/cgroup", text))
        for (line = text; *line; line = *end ? end + 1 : end) {
            end = strchr(line, '\n');
            if (!end) end = line + strlen(line);
            memopt_i_cgroup_line(host, line, (size_t)(end - line), &available);
        }
    *bytes = available;
    return MEMOPT_OK;
}
#elif defined(__APPLE__)
static memopt_status memopt_i_available(const memopt_host *host, uint64_t *bytes) {
    vm_statistics64_data_t vm; mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    (void)host;
    if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&vm, &count) != KERN_SUCCESS)
        return MEMOPT_ERR_IO;
    *bytes = ((uint64_t)vm.free_count + vm.inactive_count + vm.purgeable_count) * (uint64_t)sysconf(_SC_PAGESIZE);
    return MEMOPT_OK;
}
#elif defined(MEMOPT_I_WINDOWS)
static memopt_status memopt_i_available(const memopt_host *host, uint64_t *bytes) {
    MEMORYSTATUSEX m;
    (void)host;
    m.dwLength = sizeof m;
    if (!GlobalMemoryStatusEx(&m)) return MEMOPT_ERR_IO;
    *bytes = m.ullAvailPhys < m.ullAvailPageFile ? m.ullAvailPhys : m.ullAvailPageFile;
    return MEMOPT_OK;
}
#else
static memopt_status memopt_i_available(const memopt_host *host, uint64_t *bytes) {
    (void)host;
    (void)bytes;
    return MEMOPT_ERR_UNSUPPORTED;
}
#endif
MEMOPT_API memopt_status memopt_memory_available(const memopt_host *host, uint64_t *bytes) {
    memopt_host h;
    if (!bytes || memopt_host_resolve(host, &h)) return MEMOPT_ERR_ARGUMENT;
    return memopt_i_available(&h, bytes);
}

/* Pages of the system. The four calls that differ between systems come first, then the source made of them. */
#define MEMOPT_I_PAGES_CHECK 1u
#define MEMOPT_I_PAGES_TOUCH 2u
#define MEMOPT_I_PAGES_HUGE  4u
#define MEMOPT_I_HUGE_FROM   ((size_t)4 << 20) /* below it a huge page is mostly waste */
#define MEMOPT_I_COMMIT_STEP ((size_t)64 << 10) /* a system call each 16 pages, against 16 faults of 1.6 us */
#if defined(MEMOPT_I_POSIX)
/* -std=c99 hides these; the numbers are the kernel's and do not change. */
#  if defined(MAP_ANONYMOUS)
#    define MEMOPT_I_MAP_ANONYMOUS MAP_ANONYMOUS
#  elif defined(MAP_ANON)
#    define MEMOPT_I_MAP_ANONYMOUS MAP_ANON
#  elif defined(__linux__) && (defined(__mips__) || defined(__xtensa__))
#    define MEMOPT_I_MAP_ANONYMOUS 0x800
#  elif defined(__linux__) && (defined(__alpha__) || defined(__hppa__))
#    define MEMOPT_I_MAP_ANONYMOUS 0x10
#  elif defined(__linux__)
#    define MEMOPT_I_MAP_ANONYMOUS 0x20
#  endif
#  if defined(MAP_NORESERVE)
#    define MEMOPT_I_MAP_NORESERVE MAP_NORESERVE
#  else
#    define MEMOPT_I_MAP_NORESERVE 0 /* PROT_NONE pages are not counted against the system anyway */
#  endif
static size_t memopt_i_page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }
static void *memopt_i_pages_map(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MEMOPT_I_MAP_ANONYMOUS | MEMOPT_I_MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}
static void memopt_i_pages_unmap(void *base, size_t bytes) { if (bytes) munmap(base, bytes); }
static int memopt_i_pages_open(void *start, size_t bytes) { return mprotect(start, bytes, PROT_READ | PROT_WRITE); }
/* Linux drops the pages and keeps the wish for huge ones; elsewhere only mapping afresh is sure to give memory back. */
static int memopt_i_pages_close(void *start, size_t bytes) {
#  if defined(__linux__)
    if (madvise(start, bytes, 4 /* MADV_DONTNEED */)) return 1;
    /* the memory is back; without it the addresses stay usable, nothing else */
    (void)mprotect(start, bytes, PROT_NONE);
    return 0;
#  else
    return mmap(start, bytes, PROT_NONE, MAP_PRIVATE | MAP_FIXED | MEMOPT_I_MAP_ANONYMOUS | MEMOPT_I_MAP_NORESERVE, -1,
        0) != start;
#  endif
}
/* 1 when the system refused; the pages then stay small, which is slower and nothing else. */
static int memopt_i_pages_advise_huge(void *start, size_t bytes) {
#  if defined(__linux__)
    return madvise(start, bytes, 14 /* MADV_HUGEPAGE */);
#  else
    (void)start; (void)bytes;
    return 1;
#  endif
}
/* Linux 5.14 can fault pages in and say no; before it, and elsewhere, each page is written once. */
static int memopt_i_pages_touch(void *start, size_t bytes, size_t page) {
    size_t at;
#  if defined(__linux__)
    if (!madvise(start, bytes, 23 /* MADV_POPULATE_WRITE */)) return 0;
    if (errno == ENOMEM || errno == EFAULT) return 1;
#  endif
    for (at = 0; at < bytes; at += page) ((volatile unsigned char *)start)[at] = 0;
    return 0;
}
#elif defined(MEMOPT_I_WINDOWS)
static size_t memopt_i_page_size(void) { SYSTEM_INFO info; GetSystemInfo(&info); return info.dwPageSize; }
static void *memopt_i_pages_map(size_t bytes) { return VirtualAlloc(NULL, bytes, MEM_RESERVE, PAGE_NOACCESS); }
static void memopt_i_pages_unmap(void *base, size_t bytes) { (void)bytes; VirtualFree(base, 0, MEM_RELEASE); }
static int memopt_i_pages_open(void *start, size_t bytes) {
    return !VirtualAlloc(start, bytes, MEM_COMMIT, PAGE_READWRITE);
}
static int memopt_i_pages_close(void *start, size_t bytes) { return !VirtualFree(start, bytes, MEM_DECOMMIT); }
static int memopt_i_pages_advise_huge(void *start, size_t bytes) { (void)start; (void)bytes; return 1; }
static int memopt_i_pages_touch(void *start, size_t bytes, size_t page) {
    size_t at;
    for (at = 0; at < bytes; at += page) ((volatile unsigned char *)start)[at] = 0;
    return 0;
}
#endif
#if defined(MEMOPT_I_POSIX) || defined(MEMOPT_I_WINDOWS)
static size_t memopt_i_pages_guard(void) { return MEMOPT_DEBUG > 0 ? memopt_i_page_size() : 0; }
static memopt_status memopt_i_pages_commit(memopt_source *s, void *start, size_t bytes) {
    uint64_t available;
    if (s->flags & MEMOPT_I_PAGES_CHECK) {
        const memopt_status status = memopt_memory_available(&s->host, &available);
        if (status) return status;
        if (bytes > available) return MEMOPT_ERR_MEMORY;
    }
    return memopt_i_pages_open(start, bytes) ? MEMOPT_ERR_MEMORY : MEMOPT_OK;
}
static memopt_status memopt_i_pages_decommit(memopt_source *s, void *start, size_t bytes) {
    (void)s;
    return memopt_i_pages_close(start, bytes) ? MEMOPT_ERR_MEMORY : MEMOPT_OK;
}
static void memopt_i_pages_release(memopt_source *s, void *base, size_t bytes) {
    (void)s;
    memopt_i_pages_unmap(base, bytes + memopt_i_pages_guard());
}
/* A base aligned to `align`, which is more than a page: reserve more, and give the ends back. Windows cannot give a part
   back, so there the addresses are let go and asked for again at the aligned place, until nobody else was faster. */
static void *memopt_i_pages_map_aligned(size_t bytes, size_t align) {
    unsigned char *raw, *base; size_t more, head;
    if (memopt_i_add(bytes, align, &more)) return NULL;
#  if defined(MEMOPT_I_WINDOWS)
    int tries;
    for (tries = 0; tries < 16; ++tries) {
        raw = (unsigned char *)memopt_i_pages_map(more);
        if (!raw) return NULL;
        head = (size_t)(-(uintptr_t)raw & (align - 1));
        memopt_i_pages_unmap(raw, more);
        base = (unsigned char *)VirtualAlloc(raw + head, bytes, MEM_RESERVE, PAGE_NOACCESS);
        if (base) return base;
    }
    return NULL;
#  else
    raw = (unsigned char *)memopt_i_pages_map(more);
    if (!raw) return NULL;
    head = (size_t)(-(uintptr_t)raw & (align - 1));
    base = raw + head;
    memopt_i_pages_unmap(raw, head);
    memopt_i_pages_unmap(base + bytes, align - head);
    return base;
#  endif
}
static memopt_status memopt_i_pages_reserve(memopt_source *s, size_t bytes, void **base) {
    const size_t page = memopt_i_page_size(); size_t whole; void *p; memopt_status status = MEMOPT_OK;
    if (memopt_i_add(bytes, memopt_i_pages_guard(), &whole)) return MEMOPT_ERR_MEMORY;
    p = memopt_i_pages_map_aligned(whole, s->base_alignment);
    if (!p) return MEMOPT_ERR_MEMORY;
    if ((s->flags & MEMOPT_I_PAGES_HUGE) && bytes >= MEMOPT_I_HUGE_FROM && memopt_i_pages_advise_huge(p, bytes))
        memopt_ledger_retried(s->ledger, MEMOPT_TAG_OTHER, bytes);
    if (s->flags & MEMOPT_I_PAGES_TOUCH) {
        status = memopt_i_pages_commit(s, p, bytes);
        if (!status && memopt_i_pages_touch(p, bytes, page)) status = MEMOPT_ERR_MEMORY;
    }
    if (status) { memopt_i_pages_unmap(p, whole); return status; }
    *base = p;
    return MEMOPT_OK;
}
/* What a huge page is here: 2 MiB on x86-64 and on ARM with 4 KiB pages; 0 when there are none worth having. */
static size_t memopt_i_huge_size(const memopt_host *host) {
    uint64_t bytes = (uint64_t)2 << 20;
#  if defined(__linux__)
    char text[MEMOPT_I_TEXT];
    if (!memopt_i_text_file(host, "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", text)
        && !memopt_i_text_number(text, "", &bytes)) return 0;
#  endif
    (void)host;
    return bytes >= ((uint64_t)1 << 16) && bytes <= ((uint64_t)32 << 20) && !(bytes & (bytes - 1)) ? (size_t)bytes : 0;
}
MEMOPT_API memopt_status memopt_source_pages(const memopt_pages_desc *desc, memopt_source *out) {
    memopt_source s = memopt_i_host_source(MEMOPT_SOURCE_PAGES); size_t huge = 0;
    if (!out || memopt_host_resolve(desc ? desc->host : NULL, &s.host)) return MEMOPT_ERR_ARGUMENT;
    s.reserve_fn = memopt_i_pages_reserve; s.release_fn = memopt_i_pages_release;
    if (desc && desc->check) s.flags |= MEMOPT_I_PAGES_CHECK;
    if (desc && desc->touch) s.flags |= MEMOPT_I_PAGES_TOUCH; /* then all is there from reserve to release */
    else { s.commit_fn = memopt_i_pages_commit; s.decommit_fn = memopt_i_pages_decommit; }
    if (!desc || !desc->no_huge) huge = memopt_i_huge_size(&s.host);
    if (huge) s.flags |= MEMOPT_I_PAGES_HUGE;
    s.granularity = memopt_i_max(memopt_i_max(MEMOPT_I_COMMIT_STEP, memopt_i_page_size()), huge);
    s.base_alignment = s.granularity;
    s.capacity = SIZE_MAX / 2;
    s.fresh_is_zero = 1;
    *out = s;
    return MEMOPT_OK;
}
#else
MEMOPT_API memopt_status memopt_source_pages(const memopt_pages_desc *desc, memopt_source *out) {
    memopt_host h;
    if (!out || memopt_host_resolve(desc ? desc->host : NULL, &h)) return MEMOPT_ERR_ARGUMENT;
    return MEMOPT_ERR_UNSUPPORTED;
}
#endif
/* @section arena : source api_arena
   Memory for lifetimes that nest, which is most of training: what a layer makes lives until its backward has run.
   Problem    A general allocator leaves holes between lifetimes of different length, and a list of pointers to free.
   Idea       One range of addresses, two ends. Long-lived bytes are pushed at the low end, short-lived ones at the
              top; each end is a stack, and going back to a mark frees everything since, at once. No holes can arise.
   Invariant  low.used + top.used <= capacity; what lies between the two is free. Committed is a prefix and a suffix
              that hold the used bytes. Nothing ever moves.
   Cost       A push is two comparisons and an addition while it stays in committed memory; `limit` is how far that
              is, and 0 when every push must be looked at (ledger, debug). All else, errors included, is in the slow
              path. Peak and `highest` are brought up to date only when bytes are about to go.
   Exact      Offsets depend on sizes and alignments alone, never on addresses: a run over a counting source tells the
              byte. `peak` is the capacity that would just have been enough.
   Marks      A mark is where an end was, and when. It is stale when a rewind went below it since: other bytes lie
              there now. Only those rewinds matter that no later one went below; they are kept in `rewinds`, lowest
              first, one for each level of nesting. Beyond that room the oldest are forgotten: then a stale mark may
              pass, but a good one is never refused.
   Fresh      Between the two `highest` no byte was ever handed out: where a source's fresh bytes are zero, a zeroed
              push need not write them, and their pages stay untouched.
   Debug      At MEMOPT_DEBUG 2 released bytes are filled with 0xDD and looked at when they are handed out again:
              a difference is a write after the rewind. ASan is told of every committed byte that is not pushed. */
#define MEMOPT_I_REWINDS  16
#define MEMOPT_I_RELEASED 0xDD
typedef struct memopt_i_rewind { uint64_t epoch; size_t used; } memopt_i_rewind;
/* before: used then */
typedef struct memopt_i_pushed { size_t before, bytes; const char *name; memopt_tag tag; } memopt_i_pushed;
typedef struct memopt_i_end { /* bytes are counted from the end's own side of the range */
    size_t used, limit, committed;
    size_t highest; /* the most it ever used, as of the last rewind */
    size_t log_count, rewind_count;
    memopt_i_rewind rewinds[MEMOPT_I_REWINDS];
} memopt_i_end;
struct memopt_arena {
    unsigned char *base;
    size_t capacity, alignment;
    memopt_i_end ends[2]; /* low, top */
    size_t peak, top_alignment; /* peak: as of the last rewind; top_alignment: the largest asked for at the top */
    uint64_t epoch;
    memopt_source *source;
    memopt_ledger *ledger;
    memopt_i_pushed *log; /* low pushes from the front, top pushes from the back */
    size_t log_capacity;
    memopt_error error;
    memopt_host host;
    size_t memory;
};
static size_t memopt_i_arena_middle(const memopt_arena *a) { return a->capacity - a->ends[0].used - a->ends[1].used; }

/* Debug: bytes in the middle are poisoned for ASan, and 0xDD where they were used before. Offsets are from the base. */
static void memopt_i_arena_hide(memopt_arena *a, size_t start, size_t bytes) {
#if defined(MEMOPT_I_ASAN)
    if (a->source->host_visible) __asan_poison_memory_region(a->base + start, bytes);
#else
    (void)a; (void)start; (void)bytes;
#endif
}
static void memopt_i_arena_show(memopt_arena *a, size_t start, size_t bytes) {
#if defined(MEMOPT_I_ASAN)
    if (a->source->host_visible) __asan_unpoison_memory_region(a->base + start, bytes);
#else
    (void)a; (void)start; (void)bytes;
#endif
}
static void memopt_i_arena_fill(memopt_arena *a, size_t start, size_t bytes) {
    memopt_i_arena_show(a, start, bytes);
    if (MEMOPT_DEBUG >= 2 && a->source->host_visible && bytes) memset(a->base + start, MEMOPT_I_RELEASED, bytes);
    memopt_i_arena_hide(a, start, bytes);
}
/* A push that failed late: what was used before is as it was left, what is fresh was not touched and stays fresh. */
static void memopt_i_arena_unpush(memopt_arena *a, size_t start, size_t end) {
    const size_t low = memopt_i_min(memopt_i_max(a->ends[0].highest, start), end);
    const size_t top = memopt_i_min(memopt_i_max(a->capacity - a->ends[1].highest, low), end);
    memopt_i_arena_fill(a, start, low - start);
    memopt_i_arena_hide(a, low, top - low);
    memopt_i_arena_fill(a, top, end - top);
}
/* Whether a byte of [start, end), all of it free and shown, was used before and is not as it was left. */
static int memopt_i_arena_written(const memopt_arena *a, size_t start, size_t end) {
    const size_t low = a->ends[0].highest, top = a->capacity - a->ends[1].highest;
    const int looks = MEMOPT_DEBUG >= 2 && a->source->host_visible; size_t i;
    for (i = start; looks && i < end; ++i) {
        if (i >= low && i < top) { i = memopt_i_min(top, end) - 1; continue; } /* fresh: nobody filled it */
        if (a->base[i] != MEMOPT_I_RELEASED) return 1;
    }
    return 0;
}

/* The log: one entry a push, so that a rewind can book every tag's bytes out. One place is kept for each end; when
   there is no more room, pushes join the newest entry of their end. */
static memopt_i_pushed *memopt_i_arena_entry(const memopt_arena *a, int top, size_t i) {
    return &a->log[top ? a->log_capacity - 1 - i : i];
}
/* where it begins */
static const void *memopt_i_arena_block(const memopt_arena *a, int top, const memopt_i_pushed *e) {
    return a->base + (top ? a->capacity - e->before - e->bytes : e->before);
}
static void memopt_i_arena_join(memopt_arena *a, int top, const memopt_i_pushed *e) {
    memopt_i_pushed *last = memopt_i_arena_entry(a, top, a->ends[top].log_count - 1);
    (void)memopt_ledger_remove(a->ledger, e->tag, e->bytes, memopt_i_arena_block(a, top, e));
    (void)memopt_ledger_remove(a->ledger, last->tag, last->bytes, memopt_i_arena_block(a, top, last));
    if (last->tag != e->tag) last->tag = MEMOPT_TAG_OTHER;
    last->bytes += e->bytes;
    last->name = NULL;
    (void)memopt_ledger_add(a->ledger, last->tag, last->bytes, memopt_i_arena_block(a, top, last), NULL);
}
static memopt_status memopt_i_arena_log(memopt_arena *a, int top, size_t used, memopt_tag tag, const char *name) {
    memopt_i_end *end = &a->ends[top]; memopt_i_pushed e; memopt_status s;
    if (!a->log) return MEMOPT_OK;
    e.before = end->used; e.bytes = used - end->used; e.name = name; e.tag = tag;
    s = memopt_ledger_add(a->ledger, tag, e.bytes, memopt_i_arena_block(a, top, &e), name);
    if (s) return s;
    if (end->log_count + memopt_i_max(a->ends[!top].log_count, 1) < a->log_capacity)
        *memopt_i_arena_entry(a, top, end->log_count++) = e;
    else memopt_i_arena_join(a, top, &e);
    return MEMOPT_OK;
}
static void memopt_i_arena_unlog(memopt_arena *a, int top, size_t used) {
    memopt_i_end *end = &a->ends[top];
    while (a->log && end->log_count) {
        memopt_i_pushed *e = memopt_i_arena_entry(a, top, end->log_count - 1);
        if (e->before + e->bytes <= used) return;
        (void)memopt_ledger_remove(a->ledger, e->tag, e->bytes, memopt_i_arena_block(a, top, e));
        if (e->before < used) { /* pushes that were joined, and only some of them go */
            e->bytes = used - e->before;
            (void)memopt_ledger_add(a->ledger, e->tag, e->bytes, memopt_i_arena_block(a, top, e), e->name);
            return;
        }
        --end->log_count;
    }
}

/* How far the fast path may go without asking: to the end of committed memory, or nowhere. */
static void memopt_i_arena_limits(memopt_arena *a) {
#if defined(MEMOPT_I_ASAN)
    const int looked_at = 1;
#else
    const int looked_at = a->log != NULL;
#endif
    a->ends[0].limit = looked_at ? 0 : a->ends[0].committed;
    a->ends[1].limit = looked_at ? 0 : a->ends[1].committed;
}
MEMOPT_API memopt_status memopt_arena_create(const memopt_arena_desc *desc, memopt_arena **out) {
    memopt_arena a, *p; size_t unit, capacity, head, log_bytes; void *base = NULL; memopt_status s;
    if (!desc || !out || !memopt_i_source_valid(desc->source)) return MEMOPT_ERR_ARGUMENT;
    memset(&a, 0, sizeof a);
    if (memopt_host_resolve(desc->host, &a.host)) return MEMOPT_ERR_ARGUMENT;
    a.source = desc->source; a.ledger = desc->ledger;
    a.alignment = desc->alignment ? desc->alignment : a.source->alignment;
    if (!memopt_i_power_of_two(a.alignment) || a.alignment < 16 || a.alignment > a.source->base_alignment)
        return MEMOPT_ERR_ARGUMENT;
    unit = memopt_i_max(a.source->granularity, a.alignment);
    capacity = desc->capacity ? desc->capacity : memopt_i_align_down(a.source->capacity, unit);
    if (memopt_i_align_up(capacity, unit, &a.capacity)) return MEMOPT_ERR_OVERFLOW;
    if (!a.capacity || a.capacity > a.source->capacity) return MEMOPT_ERR_MEMORY;
    if (a.ledger || MEMOPT_DEBUG >= 2) a.log_capacity = desc->log_entries ? memopt_i_max(desc->log_entries, 2) : 4096;
    if (memopt_i_align_up(sizeof a, 16, &head) || memopt_i_mul(a.log_capacity, sizeof *a.log, &log_bytes)
        || memopt_i_add(head, log_bytes, &a.memory)) return MEMOPT_ERR_OVERFLOW;
    p = (memopt_arena *)memopt_i_alloc(&a.host, a.memory, MEMOPT_I_HOST_ALIGN);
    if (!p) return MEMOPT_ERR_MEMORY;
    s = memopt_i_source_reserve(a.source, a.capacity, &base);
    if (s) { memopt_i_free(&a.host, p, a.memory, MEMOPT_I_HOST_ALIGN); return s; }
    a.base = (unsigned char *)base;
    if (a.log_capacity) a.log = (memopt_i_pushed *)(void *)((char *)p + head);
    a.error.reason = memopt_status_text(MEMOPT_OK);
    a.top_alignment = a.alignment;
    if (!a.source->commit_fn) {
        a.ends[0].committed = a.ends[1].committed = a.capacity;
        memopt_i_arena_hide(&a, 0, a.capacity);
    }
    *p = a;
    memopt_i_arena_limits(p);
    *out = p;
    return MEMOPT_OK;
}
MEMOPT_API void memopt_arena_destroy(memopt_arena *arena) {
    memopt_host host;
    if (!arena) return;
    memopt_i_arena_unlog(arena, 1, 0);
    memopt_i_arena_unlog(arena, 0, 0);
    memopt_i_arena_show(arena, 0, arena->ends[0].committed);
    memopt_i_arena_show(arena, arena->capacity - arena->ends[1].committed, arena->ends[1].committed);
    memopt_i_source_release(arena->source, arena->base, arena->capacity,
        arena->ends[0].committed + arena->ends[1].committed);
    host = arena->host; /* copied: the struct lies inside what is freed */
    memopt_i_free(&host, arena, arena->memory, MEMOPT_I_HOST_ALIGN);
}

/* Pushing. Fast: the two comparisons. `room` is what the end may reach: committed, and not across the other end. */
static void *memopt_i_arena_push(memopt_arena *arena, size_t bytes, const memopt_push_options *options);
static void *memopt_i_arena_refuse(memopt_arena *a, memopt_status status, const char *reason, size_t bytes,
                                   const memopt_push_options *o);
static memopt_push_options memopt_i_push_plain(memopt_tag tag) {
    memopt_push_options o;
    memset(&o, 0, sizeof o);
    o.tag = tag;
    return o;
}
static MEMOPT_I_NOINLINE void *memopt_i_arena_push_slow(memopt_arena *arena, size_t bytes, memopt_tag tag, int top) {
    memopt_push_options o = memopt_i_push_plain(tag);
    o.top = top;
    return memopt_i_arena_push(arena, bytes, &o);
}
MEMOPT_API void *memopt_arena_push(memopt_arena *arena, size_t bytes, memopt_tag tag) {
    size_t start, room;
    if (!arena) return NULL;
    start = (arena->ends[0].used + arena->alignment - 1) & ~(arena->alignment - 1);
    room = memopt_i_min(arena->ends[0].limit, arena->capacity - arena->ends[1].used);
    if (MEMOPT_I_UNLIKELY(start >= room || bytes - 1 >= room - start))
        return memopt_i_arena_push_slow(arena, bytes, tag, 0);
    arena->ends[0].used = start + bytes;
    return arena->base + start;
}
MEMOPT_API void *memopt_arena_push_top(memopt_arena *arena, size_t bytes, memopt_tag tag) {
    size_t start, floor;
    if (!arena) return NULL;
    start = arena->capacity - arena->ends[1].used;
    floor = memopt_i_max(arena->capacity - arena->ends[1].limit, arena->ends[0].used);
    if (MEMOPT_I_UNLIKELY(start <= floor || bytes - 1 >= start - floor))
        return memopt_i_arena_push_slow(arena, bytes, tag, 1);
    start = (start - bytes) & ~(arena->alignment - 1);
    if (MEMOPT_I_UNLIKELY(start < floor)) return memopt_i_arena_push_slow(arena, bytes, tag, 1);
    arena->ends[1].used = arena->capacity - start;
    return arena->base + start;
}
MEMOPT_API void *memopt_arena_push_zero(memopt_arena *arena, size_t bytes, memopt_tag tag) {
    memopt_push_options o = memopt_i_push_plain(tag);
    o.zero = 1;
    return memopt_arena_push_with(arena, bytes, &o);
}
MEMOPT_API void *memopt_arena_push_array(memopt_arena *arena, size_t count, size_t size, memopt_tag tag) {
    size_t bytes;
    if (!arena) return NULL;
    if (memopt_i_mul(count, size, &bytes)) {
        const memopt_push_options plain = memopt_i_push_plain(tag);
        return memopt_i_arena_refuse(arena, MEMOPT_ERR_OVERFLOW, "count times size does not fit size_t", SIZE_MAX,
            &plain);
    }
    return memopt_arena_push(arena, bytes, tag);
}
MEMOPT_API void *memopt_arena_push_with(memopt_arena *arena, size_t bytes, const memopt_push_options *options) {
    memopt_push_options plain = memopt_i_push_plain(MEMOPT_TAG_OTHER);
    return arena ? memopt_i_arena_push(arena, bytes, options ? options : &plain) : NULL;
}

/* The slow path, in order: where the bytes would lie, that their memory is there, that nobody wrote into it, that it is
   zero if it must be, that it is booked; and only then the one assignment that makes it so. */
/* The most bytes that fit between the ends and inside [from, to). Either end: what is aligned below stays below. */
static size_t memopt_i_arena_largest(const memopt_arena *a, size_t alignment, size_t from, size_t to) {
    const size_t end = memopt_i_min(to, a->capacity - a->ends[1].used); size_t start;
    if (memopt_i_align_up(memopt_i_max(from, a->ends[0].used), alignment, &start)) return 0;
    return start < end ? end - start : 0;
}
static void *memopt_i_arena_refuse(memopt_arena *a, memopt_status status, const char *reason, size_t bytes,
                                   const memopt_push_options *o) {
    const int aligned = memopt_i_power_of_two(o->alignment) && o->alignment <= a->source->base_alignment;
    (void)memopt_i_fail(&a->error, status, reason, bytes);
    a->error.free_bytes = memopt_i_arena_middle(a);
    a->error.largest = memopt_i_arena_largest(a, aligned ? o->alignment : a->alignment, 0, a->capacity);
    if (status == MEMOPT_ERR_MEMORY && (!a->ledger || o->tag < a->ledger->tag_count))
        (void)memopt_ledger_failed(a->ledger, o->tag, bytes);
    return NULL;
}
/* The offset of the bytes from the base, or 1 when they do not fit between the ends. */
static int memopt_i_arena_place(const memopt_arena *a, size_t bytes, size_t alignment, int top, size_t *start) {
    if (bytes > memopt_i_arena_middle(a)) return 1;
    if (top) {
        *start = memopt_i_align_down(a->capacity - a->ends[1].used - bytes, alignment);
        return *start < a->ends[0].used;
    }
    if (memopt_i_align_up(a->ends[0].used, alignment, start)) return 1;
    return *start > a->capacity - a->ends[1].used || bytes > a->capacity - a->ends[1].used - *start;
}
/* Commit one end as far as `used`, in whole granules, but not what the other end has committed already. */
static memopt_status memopt_i_arena_commit(memopt_arena *a, int top, size_t used) {
    memopt_i_end *end = &a->ends[top];
    const size_t most = a->capacity - a->ends[!top].committed;
    size_t want, start; memopt_status s;
    if (!a->source->commit_fn || used <= end->committed) return MEMOPT_OK;
    if (memopt_i_align_up(used, a->source->granularity, &want)) return MEMOPT_ERR_OVERFLOW;
    want = memopt_i_min(want, most);
    if (want <= end->committed) return MEMOPT_OK; /* the other end has it */
    start = top ? a->capacity - want : end->committed;
    s = memopt_i_source_commit(a->source, a->base + start, want - end->committed);
    if (s) return s;
    memopt_i_arena_hide(a, start, want - end->committed);
    end->committed = want;
    memopt_i_arena_limits(a);
    return MEMOPT_OK;
}
static int memopt_i_arena_is_fresh(const memopt_arena *a, size_t start, size_t bytes) {
    return a->source->fresh_is_zero && start >= memopt_i_max(a->ends[0].highest, a->ends[0].used)
        && start + bytes <= a->capacity - memopt_i_max(a->ends[1].highest, a->ends[1].used);
}
static void *memopt_i_arena_push(memopt_arena *a, size_t bytes, const memopt_push_options *o) {
    const size_t alignment = o->alignment ? o->alignment : a->alignment;
    const int top = o->top != 0;
    size_t start, used; memopt_status s;
    if (!bytes) return memopt_i_arena_refuse(a, MEMOPT_ERR_ARGUMENT, "a push of no bytes", bytes, o);
    if (!memopt_i_power_of_two(alignment) || alignment > a->source->base_alignment)
        return memopt_i_arena_refuse(a, MEMOPT_ERR_ARGUMENT,
            "the alignment is no power of two, or more than the source has", bytes, o);
    if (memopt_i_arena_place(a, bytes, alignment, top, &start))
        return memopt_i_arena_refuse(a, MEMOPT_ERR_MEMORY, "the arena is full", bytes, o);
    used = top ? a->capacity - start : start + bytes;
    s = memopt_i_arena_commit(a, top, used);
    if (s) {
        (void)memopt_i_arena_refuse(a, s, "the source could not commit memory", bytes, o);
        a->error.largest = memopt_i_arena_largest(a, alignment, top ? a->capacity - a->ends[1].committed : 0,
                                                  top ? a->capacity : a->ends[0].committed);
        return NULL;
    }
    memopt_i_arena_show(a, start, bytes);
    if (memopt_i_arena_written(a, start, start + bytes)) {
        memopt_i_arena_unpush(a, start, start + bytes); /* as it was before the write: the next push goes through */
        return memopt_i_arena_refuse(a, MEMOPT_ERR_CORRUPT, "bytes were written after they had been rewound", bytes, o);
    }
    s = o->zero && !memopt_i_arena_is_fresh(a, start, bytes) ? a->source->zero_fn(a->source, a->base + start, bytes)
        : MEMOPT_OK;
    if (!s) s = memopt_i_arena_log(a, top, used, o->tag, o->name);
    if (s) {
        memopt_i_arena_unpush(a, start, start + bytes);
        return memopt_i_arena_refuse(a, s, "the source could not zero the bytes, or the ledger has no such tag",
                                     bytes, o);
    }
    a->ends[top].used = used;
    if (top) a->top_alignment = memopt_i_max(a->top_alignment, alignment);
    return a->base + start;
}

/* Marks and rewinds. */
static memopt_mark memopt_i_arena_mark(const memopt_arena *a, int top) {
    memopt_mark m;
    memset(&m, 0, sizeof m);
    if (!a) return m;
    m.arena = a; m.used = a->ends[top].used; m.epoch = a->epoch; m.top = top;
    return m;
}
MEMOPT_API memopt_mark memopt_arena_mark(const memopt_arena *arena)     { return memopt_i_arena_mark(arena, 0); }
MEMOPT_API memopt_mark memopt_arena_mark_top(const memopt_arena *arena) { return memopt_i_arena_mark(arena, 1); }
static int memopt_i_mark_is_stale(const memopt_i_end *end, const memopt_mark *m) {
    size_t i = 0;
    while (i < end->rewind_count && end->rewinds[i].epoch <= m->epoch) ++i;
    return i < end->rewind_count && end->rewinds[i].used < m->used; /* the lowest of the later rewinds */
}
static void memopt_i_arena_note_rewind(memopt_arena *a, memopt_i_end *end, size_t used) {
    while (end->rewind_count && end->rewinds[end->rewind_count - 1].used >= used) --end->rewind_count;
    if (end->rewind_count == MEMOPT_I_REWINDS)
        memmove(end->rewinds, end->rewinds + 1, --end->rewind_count * sizeof *end->rewinds);
    end->rewinds[end->rewind_count].epoch = ++a->epoch;
    end->rewinds[end->rewind_count++].used = used;
}
static size_t memopt_i_arena_now(const memopt_arena *a) {
    return memopt_i_max(a->peak, a->ends[0].used + a->ends[1].used);
}
MEMOPT_API memopt_status memopt_arena_rewind(memopt_arena *arena, memopt_mark mark) {
    memopt_i_end *end; size_t released;
    if (!arena) return MEMOPT_ERR_ARGUMENT;
    if (mark.arena != arena || (mark.top != 0 && mark.top != 1))
        return memopt_i_fail(&arena->error, MEMOPT_ERR_ARGUMENT, "a mark of another arena", 0);
    end = &arena->ends[mark.top];
    if (mark.used > end->used || mark.epoch > arena->epoch)
        return memopt_i_fail(&arena->error, MEMOPT_ERR_STATE, "a mark from the future: the arena was rewound below it",
            0);
    if (memopt_i_mark_is_stale(end, &mark))
        return memopt_i_fail(&arena->error, MEMOPT_ERR_STATE, "a stale mark: its bytes were rewound and pushed anew",
            0);
    released = end->used - mark.used;
    if (!released) return MEMOPT_OK;
    arena->peak = memopt_i_arena_now(arena);
    end->highest = memopt_i_max(end->highest, end->used);
    memopt_i_arena_unlog(arena, mark.top, mark.used);
    memopt_i_arena_fill(arena, mark.top ? arena->capacity - end->used : mark.used, released);
    end->used = mark.used;
    memopt_i_arena_note_rewind(arena, end, mark.used);
    return MEMOPT_OK;
}

MEMOPT_API memopt_arena_stats memopt_arena_get_stats(const memopt_arena *arena) {
    memopt_arena_stats s;
    memset(&s, 0, sizeof s);
    if (!arena) return s;
    s.capacity = arena->capacity;
    s.used_low = arena->ends[0].used; s.used_top = arena->ends[1].used;
    s.free_bytes = memopt_i_arena_middle(arena);
    if (memopt_i_align_up(memopt_i_arena_now(arena), arena->top_alignment, &s.peak)) s.peak = arena->capacity;
    s.committed = arena->source->commit_fn ? arena->ends[0].committed + arena->ends[1].committed : arena->capacity;
    return s;
}
MEMOPT_API memopt_error memopt_arena_error(const memopt_arena *arena) {
    memopt_error none;
    memset(&none, 0, sizeof none);
    none.status = MEMOPT_ERR_ARGUMENT;
    none.reason = "the arena is NULL";
    return arena ? arena->error : none;
}
/* What stays committed between the ends then counts as used before: it may be, and must not pass for fresh. */
static memopt_status memopt_i_arena_trim_end(memopt_arena *a, int top) {
    memopt_i_end *end = &a->ends[top]; size_t keep, start, bytes; memopt_status s; int i;
    if (memopt_i_align_up(end->used, a->source->granularity, &keep) || keep >= end->committed) return MEMOPT_OK;
    bytes = end->committed - keep;
    start = top ? a->capacity - end->committed : keep;
    memopt_i_arena_show(a, start, bytes);
    s = memopt_i_source_decommit(a->source, a->base + start, bytes);
    if (s) { memopt_i_arena_hide(a, start, bytes); return s; }
    end->committed = keep;
    for (i = 0; i < 2; ++i) a->ends[i].highest = a->ends[i].committed;
    memopt_i_arena_fill(a, a->ends[0].used, a->ends[0].committed - a->ends[0].used);
    memopt_i_arena_fill(a, a->capacity - a->ends[1].committed, a->ends[1].committed - a->ends[1].used);
    memopt_i_arena_limits(a);
    return MEMOPT_OK;
}
/* Where an end has grown into what the other one had committed, it takes over what it uses, so that each end's part can
   be cut back to what that end needs. A granule that both use stays with the top. */
static void memopt_i_arena_divide(memopt_arena *a) {
    int i;
    for (i = 0; i < 2; ++i) {
        size_t keep;
        if (memopt_i_align_up(a->ends[i].used, a->source->granularity, &keep) || keep <= a->ends[i].committed) continue;
        a->ends[i].committed = keep;
        a->ends[!i].committed = a->capacity - keep;
    }
    memopt_i_arena_limits(a);
}
MEMOPT_API memopt_status memopt_arena_trim(memopt_arena *arena) {
    int top; memopt_status s;
    if (!arena) return MEMOPT_ERR_ARGUMENT;
    if (!arena->source->commit_fn) return MEMOPT_OK;
    memopt_i_arena_divide(arena);
    for (top = 0; top < 2; ++top) {
        s = memopt_i_arena_trim_end(arena, top);
        if (s) return memopt_i_fail(&arena->error, s, "the source could not take memory back", 0);
    }
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_arena_check(memopt_arena *arena) {
    size_t i, start, bytes; int written = 0;
    if (!arena) return MEMOPT_ERR_ARGUMENT;
    for (i = 0; i < 2; ++i) { /* the committed, free part of each end */
        const memopt_i_end *end = &arena->ends[i];
        const size_t committed = memopt_i_min(end->committed, arena->capacity - arena->ends[!i].used);
        if (committed <= end->used) continue;
        bytes = committed - end->used;
        start = i ? arena->capacity - committed : end->used;
        memopt_i_arena_show(arena, start, bytes);
        written |= memopt_i_arena_written(arena, start, start + bytes);
        memopt_i_arena_hide(arena, start, bytes);
    }
    if (written)
        return memopt_i_fail(&arena->error, MEMOPT_ERR_CORRUPT, "bytes were written after they had been rewound", 0);
    return MEMOPT_OK;
}
MEMOPT_API const char *memopt_arena_name_at(const memopt_arena *arena, const void *address) {
    size_t i; int top;
    for (top = 0; arena && arena->log && top < 2; ++top)
        for (i = 0; i < arena->ends[top].log_count; ++i) {
            const memopt_i_pushed *e = memopt_i_arena_entry(arena, top, i);
            if ((uintptr_t)address - (uintptr_t)memopt_i_arena_block(arena, top, e) < e->bytes) return e->name;
        }
    return NULL;
}
MEMOPT_API size_t memopt_arena_offset(const memopt_arena *arena, const void *address) {
    return arena ? (size_t)((uintptr_t)address - (uintptr_t)arena->base) : 0;
}
/* @section plan : base host api_plan
   Lifetimes known beforehand, to offsets: what lives at the same moment shares no byte, and the highest end is low.
   Problem    Finding the best plan is as hard as packing a strip. Greedy planners are up to 1.4 times above the optimum
              on hard instances, twice and more where they only stack; on training graphs execution order costs 5 to 29%.
   Idea       Two steps. First greedy: boxes in a fixed order, each at the first offset where it fits. Lifetimes of
              forward and backward nest, and for those "long lives first" is optimal nearly always. The lower bound, the
              largest sum of sizes alive at one moment, proves it, and then nothing else is tried.
              Else a search. Any plan can be pushed down until every box rests on offset 0 or on a box below it, so it is
              enough to decide, again and again, which box lies lowest. A box that was tried on its floor and failed
              floats: it must rest on one not placed yet, which raises how low it can go. A branch is dead as soon as,
              in some section of time, the boxes from some height up no longer fit below the capacity.
              Boxes that share no moment with the rest are parts, solved one by one; a part that failed is remembered by
              what it depends on (its boxes, their floors, the capacity), and never tried again.
   Targets    The search asks "is there a plan within this capacity?", most of the time for the bound itself, in between
              for a share of the way up to the best plan. Attempts are short, now and then long, by two tastes (long
              lives; sections that caused failures) and with noise, because run times of such a search vary by orders
              of magnitude, and a fresh start is cheaper than bad luck. An attempt that exhausts its capacity raises the goal.
   Pairs      In-place items that overlap form chains, one box at one offset; the greedy orders also try without chains. The
              search keeps the boxes that were better: valid, but with pairs it proves nothing, and says so in `optimal`.
   Invariant  `best` holds a valid plan from the first greedy order on; stopping at any moment costs quality, never
              validity. Only whole numbers decide, so the same work gives the same plan on every machine.
   Cost       Greedy: two trees, over the placed boxes and over the ground below which all is taken, so that a first fit
              costs O(log n) for lifetimes that nest. Search: a step is linear in the boxes of its part.
   Trap       A failed part is known by 128 bits of hash, so `optimal` is as certain as that.
   Source     Canonical plans, sections and parts: Moffitt, MiniMalloc, ASPLOS 2023. Restarts: Luby, Sinclair,
              Zuckerman 1993. Orders: TFLite, XLA, TVM (their figures were measured again, code is not theirs). */
#define MEMOPT_I_PLAN_NONE UINT32_MAX
#define MEMOPT_I_PLAN_SECOND UINT64_C(1000000000)
#define MEMOPT_I_PLAN_VISITS 1024 /* looks at placed boxes, for each box of an order: more than orders need that go well */

typedef struct memopt_i_box { /* one item, or a chain of in-place items that lie at one offset */
    size_t size, alignment, offset;
    uint32_t start, end; /* alive in sections [start, end) */
    uint32_t item;       /* its only item, or NONE when it is a chain */
    uint32_t tail, busy; /* of a chain: the item that lives longest, and the section before which others live too */
    int fixed, placed;
} memopt_i_box;
/* of placed boxes: lowest byte, highest end, last section */
typedef struct memopt_i_reach { size_t low, high; uint32_t end; } memopt_i_reach;
/* of some sections: how far they are full from offset 0 up */
typedef struct memopt_i_ground { size_t low, high; } memopt_i_ground;
typedef struct memopt_i_plan {
    memopt_host host;
    const memopt_plan_item *items;
    size_t count;
    memopt_i_box *boxes;    /* by birth */
    memopt_i_reach *reach;  /* a search tree over the boxes: the middle one of a range stands for all of the range */
    memopt_i_ground *ground; /* a segment tree over the sections: node i has the children 2i and 2i + 1 */
    uint32_t *start, *end;  /* of each item, in sections */
    uint32_t *box_of;       /* of each item */
    uint32_t *taker;        /* of each item: one that may take over its bytes */
    uint32_t *order, *spare;
    uint32_t *births, *deaths; /* [s]: boxes born before section s, boxes dead when it begins */
    uint64_t *key;
    size_t *best;           /* the offset of each item in the best plan so far */
    size_t box_count, section_count;
    size_t peak;            /* of the best plan so far; SIZE_MAX + have_plan 0 before the first */
    size_t bound;           /* the largest sum of sizes alive at one moment */
    size_t proven, goal;    /* no plan is smaller; stop at a peak of this or less */
    uint64_t started, time_ns;
    uint64_t visits;        /* looks at placed boxes left to the order; 0: what is left is stacked on top */
    int have_plan, timed, late;
    int exact;              /* no pair could share: boxes are items, and what the search proves holds */
} memopt_i_plan;

/* -- items and sections -- */

static int memopt_i_plan_overlap(const memopt_plan_item *a, const memopt_plan_item *b) {
    return a->first < b->last && b->first < a->last;
}
static int memopt_i_plan_pair(const memopt_plan_item *items, size_t a, size_t b) {
    return items[a].in_place_of == b + 1 || items[b].in_place_of == a + 1;
}
static memopt_status memopt_i_plan_item_check(const memopt_plan_item *items, size_t count, size_t i) {
    const memopt_plan_item *t = &items[i]; size_t end;
    if (t->first >= t->last || !t->size || t->in_place_of > count || t->in_place_of == i + 1)
        return MEMOPT_ERR_ARGUMENT;
    if (!t->fixed) return MEMOPT_OK;
    if (t->alignment && t->offset % t->alignment) return MEMOPT_ERR_ARGUMENT;
    return memopt_i_add(t->offset, t->size, &end) ? MEMOPT_ERR_OVERFLOW : MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_plan_check(const memopt_plan_item *items, size_t count, size_t peak) {
    size_t i, k;
    if (count && !items) return MEMOPT_ERR_ARGUMENT;
    for (i = 0; i < count; ++i) {
        const memopt_status s = memopt_i_plan_item_check(items, count, i);
        if (s) return s;
    }
    for (i = 0; i < count; ++i) {
        const memopt_plan_item *a = &items[i];
        if (a->size > peak || a->offset > peak - a->size) return MEMOPT_ERR_STATE;
        if (a->alignment && a->offset % a->alignment) return MEMOPT_ERR_STATE;
        for (k = 0; k < i; ++k) {
            const memopt_plan_item *b = &items[k];
            if (!memopt_i_plan_overlap(a, b)) continue;
            if (a->offset >= b->offset + b->size || b->offset >= a->offset + a->size) continue;
            if (a->offset != b->offset || !memopt_i_plan_pair(items, i, k)) return MEMOPT_ERR_STATE;
        }
    }
    return MEMOPT_OK;
}
/* Sort `order` by ascending key; equal keys stay as they are. The C library's qsort may allocate, and is not stable. */
static void memopt_i_plan_sort(const uint64_t *key, uint32_t *order, uint32_t *spare, size_t count) {
    uint32_t *from = order, *to = spare, *swap; size_t width, low, middle, high, a, b, at;
    for (width = 1; width < count; width *= 2) {
        for (low = 0; low < count; low = high) {
            middle = memopt_i_min(low + width, count); high = memopt_i_min(middle + width, count);
            for (a = low, b = middle, at = low; at < high; ++at)
                to[at] = b == high || (a < middle && key[from[a]] <= key[from[b]]) ? from[a++] : from[b++];
        }
        swap = from; from = to; to = swap;
    }
    if (from != order) memcpy(order, from, count * sizeof *order);
}
/* Time in sections. Walk the births and deaths in order of time, deaths first at the same moment; a new section begins
   where a birth follows a death. Two items overlap in sections exactly when they overlap in time. */
static void memopt_i_plan_sections(memopt_i_plan *p) {
    uint32_t *births = p->order, *deaths = p->box_of; size_t i, b = 0, d = 0; uint32_t section = 0; int died = 0;
    for (i = 0; i < p->count; ++i) { births[i] = (uint32_t)i; p->key[i] = p->items[i].first; }
    memopt_i_plan_sort(p->key, births, p->spare, p->count);
    for (i = 0; i < p->count; ++i) { deaths[i] = (uint32_t)i; p->key[i] = p->items[i].last; }
    memopt_i_plan_sort(p->key, deaths, p->spare, p->count);
    while (d < p->count) {
        if (b < p->count && p->items[births[b]].first < p->items[deaths[d]].last) {
            section += (uint32_t)died; died = 0;
            p->start[births[b++]] = section;
        } else {
            died = 1;
            p->end[deaths[d++]] = section + 1;
        }
    }
    p->section_count = section + 1;
}
/* Add `size` bytes to the sections [start, end): plus[s] is born, minus[s] dies there. 1 on overflow. */
static int memopt_i_plan_charge(size_t *plus, size_t *minus, uint32_t start, uint32_t end, size_t size) {
    if (start >= end) return 0;
    minus[end] += size; /* cannot overflow where plus did not: all of it was alive in the section before */
    return memopt_i_add(plus[start], size, &plus[start]);
}
/* The lower bound. A pair may share the smaller size while both live; the taker is charged less for that time. */
static memopt_status memopt_i_plan_bound(memopt_i_plan *p, size_t *plus, size_t *minus) {
    size_t i, s, live = 0;
    memset(plus, 0, (p->section_count + 1) * sizeof *plus);
    memset(minus, 0, (p->section_count + 1) * sizeof *minus);
    for (i = 0; i < p->count; ++i) {
        const memopt_plan_item *t = &p->items[i]; const size_t j = t->in_place_of - 1;
        uint32_t from = p->end[i], to = p->end[i]; size_t less = 0; /* shared in [from, to) */
        if (t->in_place_of && memopt_i_plan_overlap(t, &p->items[j]) && !(p->items[j].in_place_of == i + 1 && j < i)) {
            from = p->start[j] > p->start[i] ? p->start[j] : p->start[i];
            to = p->end[j] < p->end[i] ? p->end[j] : p->end[i];
            less = memopt_i_min(t->size, p->items[j].size);
        }
        if (memopt_i_plan_charge(plus, minus, p->start[i], from, t->size)
            || memopt_i_plan_charge(plus, minus, from, to, t->size - less)
            || memopt_i_plan_charge(plus, minus, to, p->end[i], t->size)) return MEMOPT_ERR_OVERFLOW;
    }
    for (s = 0; s < p->section_count; ++s) {
        if (memopt_i_add(live - minus[s], plus[s], &live)) return MEMOPT_ERR_OVERFLOW;
        p->bound = memopt_i_max(p->bound, live);
    }
    return MEMOPT_OK;
}

/* -- boxes -- */

/* May item i join the chain of the item it takes over? Only when nobody but that item of the chain is alive with it,
   and the box around all of them is no larger than the boxes apart. Fixed items stay alone. */
static int memopt_i_plan_joins(const memopt_i_plan *p, size_t i, const memopt_i_box *chain) {
    const memopt_plan_item *t = &p->items[i]; const size_t j = t->in_place_of - 1; size_t a, b, all;
    const size_t align = t->alignment ? t->alignment : 1;
    if (t->fixed || chain->fixed || chain->tail != j || p->start[i] < chain->busy) return 0;
    if (!memopt_i_plan_overlap(t, &p->items[j]) || (align % chain->alignment && chain->alignment % align)) return 0;
    if (memopt_i_mul(chain->size, chain->end - chain->start, &a) || memopt_i_mul(t->size, p->end[i] - p->start[i], &b)
        || memopt_i_add(a, b, &a)) return t->size == chain->size; /* too large to compare: equal sizes never lose */
    all = p->end[i] > chain->end ? p->end[i] - chain->start : chain->end - chain->start;
    return !memopt_i_mul(memopt_i_max(t->size, chain->size), all, &all) && all <= a;
}
static void memopt_i_plan_join(const memopt_i_plan *p, size_t i, memopt_i_box *chain) {
    const memopt_plan_item *t = &p->items[i];
    chain->size = memopt_i_max(chain->size, t->size);
    chain->alignment = memopt_i_max(chain->alignment, t->alignment);
    chain->item = MEMOPT_I_PLAN_NONE;
    if (p->end[i] > chain->end) { chain->busy = chain->end; chain->end = p->end[i]; chain->tail = (uint32_t)i; }
    else chain->busy = p->end[i];
}
/* One box an item, or with `chains` one for every chain of in-place items, which are built in order of birth. */
static void memopt_i_plan_boxes(memopt_i_plan *p, int chains) {
    size_t i, n; uint32_t k;
    for (i = 0; i < p->count; ++i) {
        p->order[i] = (uint32_t)i; p->key[i] = p->start[i];
        p->box_of[i] = MEMOPT_I_PLAN_NONE;
    }
    memopt_i_plan_sort(p->key, p->order, p->spare, p->count);
    p->box_count = 0;
    for (n = 0; n < p->count; ++n) {
        const memopt_plan_item *t = &p->items[i = p->order[n]]; memopt_i_box *box;
        k = t->in_place_of ? p->box_of[t->in_place_of - 1] : MEMOPT_I_PLAN_NONE;
        if (chains && k != MEMOPT_I_PLAN_NONE && memopt_i_plan_joins(p, i, &p->boxes[k])) {
            memopt_i_plan_join(p, i, &p->boxes[k]);
            p->box_of[i] = k;
            continue;
        }
        p->box_of[i] = (uint32_t)p->box_count;
        box = &p->boxes[p->box_count++];
        box->size = t->size; box->alignment = t->alignment ? t->alignment : 1; box->offset = t->offset;
        box->start = box->busy = p->start[i]; box->end = p->end[i];
        box->item = box->tail = (uint32_t)i; box->fixed = t->fixed;
    }
}

/* -- greedy: first fit -- */

static int memopt_i_plan_round(size_t x, size_t align, size_t *out) {
    const size_t over = x % align;
    return over ? memopt_i_add(x, align - over, out) : (*out = x, 0);
}
static int memopt_i_plan_late(memopt_i_plan *p) {
    uint64_t now;
    if (p->timed && !p->late)
        p->late = p->host.clock.now_fn(p->host.clock.user, &now) != MEMOPT_OK || now - p->started >= p->time_ns;
    return p->late;
}
/* Two items that may lie at one offset. A chain is as good as its only item, or no pair at all. */
static int memopt_i_plan_boxes_pair(const memopt_i_plan *p, const memopt_i_box *a, const memopt_i_box *b) {
    return a->item != MEMOPT_I_PLAN_NONE && b->item != MEMOPT_I_PLAN_NONE
        && memopt_i_plan_pair(p->items, a->item, b->item);
}
/* The ground: below it every byte of a section is taken. Sections whose ground is `from` are full up to `to` now. */
static void memopt_i_plan_fill(memopt_i_plan *p, size_t node, size_t begin, size_t end, const memopt_i_box *b,
                               size_t to) {
    memopt_i_ground *g = &p->ground[node], *half = &p->ground[2 * node];
    const size_t middle = begin + (end - begin) / 2;
    if (b->start >= end || begin >= b->end || g->low > b->offset || g->high < b->offset) return;
    if (g->low == g->high) {
        if (b->start <= begin && end <= b->end) { g->low = g->high = to; return; }
        half[0] = half[1] = *g; /* all equal: the children may be older */
    }
    memopt_i_plan_fill(p, 2 * node, begin, middle, b, to);
    memopt_i_plan_fill(p, 2 * node + 1, middle, end, b, to);
    g->low = memopt_i_min(half[0].low, half[1].low); g->high = memopt_i_max(half[0].high, half[1].high);
}
static size_t memopt_i_plan_ground(const memopt_i_plan *p, size_t node, size_t begin, size_t end,
                                   const memopt_i_box *b) {
    const memopt_i_ground *g = &p->ground[node]; const size_t middle = begin + (end - begin) / 2;
    if (b->start >= end || begin >= b->end) return 0;
    if (g->low == g->high || (b->start <= begin && end <= b->end)) return g->high;
    return memopt_i_max(memopt_i_plan_ground(p, 2 * node, begin, middle, b),
                        memopt_i_plan_ground(p, 2 * node + 1, middle, end, b));
}
/* Push offset `at` of box b above whatever placed box of the range it meets on the way; SIZE_MAX: out of bytes. */
static size_t memopt_i_plan_above(memopt_i_plan *p, size_t begin, size_t end, const memopt_i_box *b, size_t at) {
    const size_t middle = begin + (end - begin) / 2; const memopt_i_box *c; const memopt_i_reach *r; size_t top;
    if (begin == end || at > SIZE_MAX - b->size || p->boxes[begin].start >= b->end || !p->visits) return at;
    --p->visits;
    c = &p->boxes[middle]; r = &p->reach[middle]; top = at + b->size;
    if (r->end <= b->start || r->low >= top || r->high <= at) return at;
    at = memopt_i_plan_above(p, begin, middle, b, at);
    if (at > SIZE_MAX - b->size) return SIZE_MAX;
    if (c->placed && c != b && c->start < b->end && b->start < c->end && c->offset < at + b->size
        && c->offset + c->size > at
        && !(c->offset == at && memopt_i_plan_boxes_pair(p, b, c))
        && memopt_i_plan_round(c->offset + c->size, b->alignment, &at)) return SIZE_MAX;
    return memopt_i_plan_above(p, middle + 1, end, b, at);
}
static void memopt_i_plan_put(memopt_i_plan *p, uint32_t k, size_t at) { /* `at` + size does not overflow */
    memopt_i_box *b = &p->boxes[k]; size_t begin = 0, end = p->box_count, middle;
    b->offset = at; b->placed = 1;
    do {
        memopt_i_reach *r = &p->reach[middle = begin + (end - begin) / 2];
        r->low = memopt_i_min(r->low, at); r->high = memopt_i_max(r->high, at + b->size);
        if (b->end > r->end) r->end = b->end;
        if (k < middle) end = middle; else begin = middle + 1;
    } while (middle != k);
    memopt_i_plan_fill(p, 1, 0, p->section_count, b, at + b->size);
}
/* The offset of a placed item that box b may share, if it is alive with b and all is free there; else SIZE_MAX. */
static size_t memopt_i_plan_shared(memopt_i_plan *p, const memopt_i_box *b) {
    int side;
    for (side = 0; side < 2 && b->item != MEMOPT_I_PLAN_NONE; ++side) {
        const uint32_t i = side ? p->taker[b->item] : (uint32_t)(p->items[b->item].in_place_of - 1); /* 0 - 1: NONE */
        const memopt_i_box *c = i == MEMOPT_I_PLAN_NONE ? NULL : &p->boxes[p->box_of[i]];
        if (!c || !c->placed || c->item != i || c->start >= b->end || b->start >= c->end || c->offset % b->alignment)
            continue;
        if (memopt_i_plan_above(p, 0, p->box_count, b, c->offset) == c->offset && c->offset <= SIZE_MAX - b->size)
            return c->offset;
    }
    return SIZE_MAX;
}
/* Give box k the lowest offset where it meets no placed box. 1: it would end above SIZE_MAX. */
static int memopt_i_plan_first_fit(memopt_i_plan *p, uint32_t k) {
    const memopt_i_box *b = &p->boxes[k]; size_t before, at = memopt_i_plan_shared(p, b);
    if (at == SIZE_MAX) {
        if (memopt_i_plan_round(memopt_i_plan_ground(p, 1, 0, p->section_count, b), b->alignment, &at)) return 1;
        do at = memopt_i_plan_above(p, 0, p->box_count, b, before = at);
        while (at != before && at != SIZE_MAX);
    }
    if (!p->visits && memopt_i_plan_round(p->reach[p->box_count / 2].high, b->alignment, &at)) return 1;
    if (at > SIZE_MAX - b->size) return 1;
    memopt_i_plan_put(p, k, at);
    return 0;
}
/* Start over: only the fixed boxes lie where they must. 1: two of them meet. */
static int memopt_i_plan_clear(memopt_i_plan *p) {
    uint32_t k;
    for (k = 0; k < p->box_count; ++k) {
        p->boxes[k].placed = 0;
        p->reach[k].low = SIZE_MAX; p->reach[k].high = 0; p->reach[k].end = 0;
    }
    p->ground[1].low = p->ground[1].high = 0;
    p->visits = UINT64_MAX;
    for (k = 0; k < p->box_count; ++k) {
        const memopt_i_box *b = &p->boxes[k];
        if (!b->fixed) continue;
        if (memopt_i_plan_above(p, 0, p->box_count, b, b->offset) != b->offset) return 1;
        memopt_i_plan_put(p, k, b->offset);
    }
    return 0;
}
static void memopt_i_plan_keep(memopt_i_plan *p, size_t peak) { /* the boxes hold a better plan */
    size_t i;
    for (i = 0; i < p->count; ++i) p->best[i] = p->boxes[p->box_of[i]].offset;
    p->peak = peak; p->have_plan = 1;
}
/* The orders: two keys each, both from high to low; the second decides between equals of the first. */
enum { MEMOPT_I_PLAN_LIFE, MEMOPT_I_PLAN_SIZE, MEMOPT_I_PLAN_AREA, MEMOPT_I_PLAN_RIVALS, MEMOPT_I_PLAN_EARLY,
       MEMOPT_I_PLAN_LATE };
static const unsigned char memopt_i_plan_orders[][2] = {
    { MEMOPT_I_PLAN_LIFE, MEMOPT_I_PLAN_SIZE }, { MEMOPT_I_PLAN_SIZE, MEMOPT_I_PLAN_LIFE },
    { MEMOPT_I_PLAN_AREA, MEMOPT_I_PLAN_SIZE }, { MEMOPT_I_PLAN_RIVALS, MEMOPT_I_PLAN_SIZE },
    { MEMOPT_I_PLAN_EARLY, MEMOPT_I_PLAN_SIZE }, { MEMOPT_I_PLAN_LATE, MEMOPT_I_PLAN_SIZE }
};
#define MEMOPT_I_PLAN_ORDERS (sizeof memopt_i_plan_orders / sizeof memopt_i_plan_orders[0])
MEMOPT_API const char *memopt_plan_order_name(unsigned order) {
    switch (order) {
    case 0: return "life, size";
    case 1: return "size, life";
    case 2: return "area, size";
    case 3: return "conflicts, size";
    case 4: return "early, size";
    case 5: return "late, size";
    }
    return NULL;
}
/* Sort p->order by one key, high to low. Rivals: born before the box dies, less those dead when it is born. */
static void memopt_i_plan_by(memopt_i_plan *p, int what) {
    size_t k;
    for (k = 0; k < p->box_count; ++k) {
        const memopt_i_box *b = &p->boxes[k]; const size_t life = b->end - b->start; size_t area;
        switch (what) {
        case MEMOPT_I_PLAN_LIFE:   p->key[k] = ~(uint64_t)life; break;
        case MEMOPT_I_PLAN_SIZE:   p->key[k] = ~(uint64_t)b->size; break;
        case MEMOPT_I_PLAN_AREA:   p->key[k] = memopt_i_mul(life, b->size, &area) ? 0 : ~(uint64_t)area; break;
        case MEMOPT_I_PLAN_RIVALS: p->key[k] = ~(uint64_t)(p->births[b->end] - p->deaths[b->start]); break;
        case MEMOPT_I_PLAN_EARLY:  p->key[k] = b->start; break;
        default:                   p->key[k] = ~(uint64_t)b->end; break;
        }
    }
    memopt_i_plan_sort(p->key, p->order, p->spare, p->box_count);
}
static memopt_status memopt_i_plan_greedy(memopt_i_plan *p, unsigned order) {
    size_t n, peak = 0; uint32_t k;
    memopt_i_plan_clear(p);
    for (k = 0; k < p->box_count; ++k) p->order[k] = k;
    p->visits = MEMOPT_I_PLAN_VISITS * (uint64_t)p->box_count;
    memopt_i_plan_by(p, memopt_i_plan_orders[order][1]);
    memopt_i_plan_by(p, memopt_i_plan_orders[order][0]);
    for (n = 0; n < p->box_count; ++n) {
        k = p->order[n];
        if (!p->boxes[k].fixed && memopt_i_plan_first_fit(p, k)) return MEMOPT_ERR_OVERFLOW;
        peak = memopt_i_max(peak, p->boxes[k].offset + p->boxes[k].size);
        if (p->have_plan && (peak >= p->peak || !p->visits || (n % 64 == 0 && memopt_i_plan_late(p)))) return MEMOPT_OK;
    }
    memopt_i_plan_keep(p, peak);
    return MEMOPT_OK;
}
/* How many boxes are born before each section, and how many are dead when it begins. */
static void memopt_i_plan_census(memopt_i_plan *p) {
    size_t k, s;
    memset(p->births, 0, (p->section_count + 2) * sizeof *p->births);
    memset(p->deaths, 0, (p->section_count + 2) * sizeof *p->deaths);
    for (k = 0; k < p->box_count; ++k) { ++p->births[p->boxes[k].start + 1]; ++p->deaths[p->boxes[k].end]; }
    for (s = 1; s <= p->section_count; ++s) { p->births[s] += p->births[s - 1]; p->deaths[s] += p->deaths[s - 1]; }
}
static void memopt_i_plan_orders_try(memopt_i_plan *p, unsigned *orders) {
    unsigned order;
    memopt_i_plan_census(p);
    for (order = 0; order < MEMOPT_I_PLAN_ORDERS; ++order) {
        if (p->have_plan && (p->peak <= p->goal || memopt_i_plan_late(p))) return;
        *orders |= 1u << order;
        memopt_i_plan_greedy(p, order);
    }
}

/* -- the search -- */

#define MEMOPT_I_SEARCH_MOST 4096 /* boxes; larger plans stay greedy */
#define MEMOPT_I_SEARCH_TRAIL 64  /* changes that can be undone, for each box */
#define MEMOPT_I_SEARCH_START 500 /* steps of the shortest attempt */
enum { MEMOPT_I_SEARCH_FOUND, MEMOPT_I_SEARCH_NONE, MEMOPT_I_SEARCH_STOPPED };

typedef struct memopt_i_slab { /* a box of the search */
    size_t size, alignment;
    size_t floor;           /* the lowest offset above the placed boxes */
    /* it lies here or above; more than floor: it floats, and must rest on a box not placed yet */
    size_t low;
    uint32_t start, end;
    uint32_t bulk, noise;   /* what decides between boxes: its size in 20 bits; 256 to 511 */
    int fixed, placed;
} memopt_i_slab;
/* of the line: shares no section with the rest */
typedef struct memopt_i_part { uint32_t begin, end, owner; } memopt_i_part;
typedef struct memopt_i_key { uint64_t a, b; } memopt_i_key; /* of a part that cannot be solved */
typedef struct memopt_i_level { /* a decision: the lowest box of a part */
    memopt_i_key key;
    size_t trail_count;
    uint32_t begin, end;    /* the part */
    uint32_t owner;         /* the level whose box split it off, or NONE */
    uint32_t chosen, at;    /* the box, and where it stood in the line */
    uint32_t part_count;
} memopt_i_level;
typedef struct memopt_i_change { size_t floor, low; uint32_t slab; } memopt_i_change;
typedef struct memopt_i_search {
    memopt_i_plan *p;
    memopt_i_slab *slabs;   /* one a box, by birth */
    memopt_i_level *levels;
    memopt_i_part *parts;   /* a stack: still to be solved */
    memopt_i_change *trail; /* what to restore */
    memopt_i_key *dead;     /* parts that failed, by the low bits of a; a power of two of them */
    uint32_t *line;         /* boxes by birth, part by part; the box of a level stands in front of its part */
    uint32_t *ranked;       /* room for memopt_i_search_bound */
    uint32_t *trouble;      /* [section]: how often it proved a dead end */
    size_t *sum;            /* [section]: the same */
    size_t count, trail_count, dead_count;
    size_t capacity;        /* what is tried */
    size_t unit;            /* all offsets and ends are multiples of it */
    uint64_t work, work_limit, seed;
    uint32_t depth, part_count;
    uint32_t from, to;      /* sections in which something changed since the last bound */
    int by_trouble, full;   /* full: the trail is */
} memopt_i_search;

/* Box k lies at `low` or above; with `rests`, because placed boxes fill what is below. 1: it cannot. */
static int memopt_i_search_raise(memopt_i_search *s, uint32_t k, size_t low, int rests) {
    memopt_i_slab *b = &s->slabs[k]; memopt_i_change *c;
    if (b->fixed) return rests && low > b->low;
    if (memopt_i_plan_round(low, b->alignment, &low) || low > s->capacity - b->size) return 1;
    if (low <= b->low && (!rests || low <= b->floor)) return 0;
    if (s->trail_count == MEMOPT_I_SEARCH_TRAIL * s->count) { s->full = 1; return 1; }
    c = &s->trail[s->trail_count++];
    c->slab = k; c->floor = b->floor; c->low = b->low;
    if (low > b->low) b->low = low;
    if (rests && low > b->floor) b->floor = low;
    if (b->start < s->from) s->from = b->start;
    if (b->end > s->to) s->to = b->end;
    return 0;
}
static void memopt_i_search_undo(memopt_i_search *s, size_t trail_count) {
    while (s->trail_count > trail_count) {
        const memopt_i_change *c = &s->trail[--s->trail_count];
        s->slabs[c->slab].floor = c->floor; s->slabs[c->slab].low = c->low;
    }
}
/* Box k of the part [begin, end) does not rest on what is placed: so it rests on another one of the part. 1: on none. */
static int memopt_i_search_lift(memopt_i_search *s, uint32_t begin, uint32_t end, uint32_t k) {
    const memopt_i_slab *b = &s->slabs[k]; size_t least = SIZE_MAX; uint32_t i;
    for (i = begin; i < end; ++i) {
        const memopt_i_slab *c = &s->slabs[s->line[i]];
        if (c->start >= b->end) break;
        if (b->start < c->end && c != b && c->low + c->size < least) least = c->low + c->size;
    }
    return least == SIZE_MAX || memopt_i_search_raise(s, k, least, 0);
}
/* In every changed section, over its unplaced boxes from the highest `low` down: this one and those before it must fit
   between its `low` and the capacity. 1: they do not. */
static int memopt_i_search_bound(memopt_i_search *s, uint32_t begin, uint32_t end) {
    size_t at, count = 0, room; uint32_t i, k, t, from, to;
    for (i = begin; i < end; ++i) {
        const memopt_i_slab *b = &s->slabs[k = s->line[i]];
        if (b->start >= s->to) break;
        if (s->from >= b->end) continue;
        for (at = count++; at && s->slabs[s->ranked[at - 1]].low < b->low; --at) s->ranked[at] = s->ranked[at - 1];
        s->ranked[at] = k;
    }
    for (t = s->from; t < s->to; ++t) s->sum[t] = 0;
    for (i = 0; i < count; ++i) {
        const memopt_i_slab *b = &s->slabs[s->ranked[i]];
        from = b->start > s->from ? b->start : s->from; to = b->end < s->to ? b->end : s->to;
        room = s->capacity - b->low - b->size;
        for (t = from; t < to; ++t) {
            if (s->sum[t] > room) { s->trouble[t] += s->trouble[t] < UINT16_MAX; return 1; }
            s->sum[t] += b->size;
        }
    }
    return 0;
}
/* After a change in a part: floating boxes rise with what could carry them, then the bound. 1: a dead end. */
static int memopt_i_search_settle(memopt_i_search *s, uint32_t begin, uint32_t end) {
    uint32_t i;
    for (i = begin; i < end; ++i) {
        const memopt_i_slab *b = &s->slabs[s->line[i]];
        if (b->low > b->floor && !b->fixed && b->start < s->to && s->from < b->end
            && memopt_i_search_lift(s, begin, end, s->line[i])) return 1;
    }
    return memopt_i_search_bound(s, begin, end);
}
/* Who goes first among boxes at one offset: fixed ones, then those on their floor, and of these the long ones, or
   those that live through the most troubled sections. Whole numbers, so that every machine finds the same plan. */
static uint64_t memopt_i_search_rank(const memopt_i_search *s, const memopt_i_slab *b) {
    uint64_t weight = b->end - b->start; uint32_t t;
    if (b->fixed) return UINT64_MAX;
    if (b->low > b->floor) return 0;
    if (s->by_trouble)
        for (t = b->start, weight = 0; t < b->end; ++t) weight += s->trouble[t];
    return ((weight << 20) + b->bulk) * b->noise; /* below 2^12 sections * 2^16 * 2^20 * 2^9 */
}
static void memopt_i_search_choose(const memopt_i_search *s, memopt_i_level *l) {
    uint64_t rank, best = 0; size_t low = SIZE_MAX; uint32_t i;
    for (i = l->begin; i < l->end; ++i) {
        const memopt_i_slab *b = &s->slabs[s->line[i]];
        if (b->low > low) continue;
        rank = memopt_i_search_rank(s, b);
        if (b->low == low && rank <= best) continue;
        l->at = i; low = b->low; best = rank;
    }
    l->chosen = s->line[l->at];
}
/* The chosen box leaves its part, or comes back to where it was. */
static void memopt_i_search_take(memopt_i_search *s, const memopt_i_level *l) {
    memmove(s->line + l->begin + 1, s->line + l->begin, (l->at - l->begin) * sizeof *s->line);
    s->line[l->begin] = l->chosen;
    s->slabs[l->chosen].placed = 1;
}
static void memopt_i_search_give(memopt_i_search *s, const memopt_i_level *l) {
    memmove(s->line + l->begin, s->line + l->begin + 1, (l->at - l->begin) * sizeof *s->line);
    s->line[l->at] = l->chosen;
    s->slabs[l->chosen].placed = 0;
}
/* Place the chosen box on its floor: all others of the part then lie at its offset or above. 1: a dead end. */
static int memopt_i_search_place(memopt_i_search *s, const memopt_i_level *l) {
    const memopt_i_slab *b = &s->slabs[l->chosen]; uint32_t i; int dead = 0;
    if (!b->fixed && b->low > b->floor) return 1;
    memopt_i_search_take(s, l);
    s->from = b->start; s->to = b->end;
    for (i = l->begin + 1; i < l->end && !dead; ++i) {
        const memopt_i_slab *c = &s->slabs[s->line[i]];
        if (c->start >= b->end) break;
        dead = b->start < c->end && memopt_i_search_raise(s, s->line[i], b->low + b->size, 1);
    }
    if (!dead && !memopt_i_search_settle(s, l->begin + 1, l->end)) return 0;
    memopt_i_search_give(s, l);
    memopt_i_search_undo(s, l->trail_count);
    return 1;
}
/* The chosen box does not lie on its floor, nor does a twin of it. 1: the level is a dead end. */
static int memopt_i_search_refuse(memopt_i_search *s, memopt_i_level *l) {
    const memopt_i_slab b = s->slabs[l->chosen]; uint32_t i;
    if (b.fixed) return 1;
    s->from = b.start; s->to = b.end;
    for (i = l->begin; i < l->end; ++i) {
        const memopt_i_slab *c = &s->slabs[s->line[i]];
        if (c->start == b.start && c->end == b.end && c->size == b.size && c->alignment == b.alignment
            && c->low == b.low
            && !c->fixed && memopt_i_search_lift(s, l->begin, l->end, s->line[i])) return 1;
    }
    if (memopt_i_search_settle(s, l->begin, l->end)) return 1;
    l->trail_count = s->trail_count;
    return 0;
}
/* Cut the line from `begin` to `end` where no box crosses, and push the pieces. */
static void memopt_i_search_split(memopt_i_search *s, uint32_t begin, uint32_t end, uint32_t owner) {
    while (begin < end) {
        memopt_i_part *part = &s->parts[s->part_count++]; uint32_t last = s->slabs[s->line[begin]].end;
        part->begin = begin; part->owner = owner;
        while (++begin < end && s->slabs[s->line[begin]].start < last)
            if (s->slabs[s->line[begin]].end > last) last = s->slabs[s->line[begin]].end;
        part->end = begin;
    }
}
static uint64_t memopt_i_search_mix(uint64_t x) { /* the finalizer of splitmix64 */
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}
/* Whether a part can be solved depends on which boxes it has, how low each can go, and the capacity, not on what lies
   below: all else that is known of it was proved by failing. 128 bits of hash stand for it. */
static memopt_i_key memopt_i_search_key(const memopt_i_search *s, const memopt_i_level *l) {
    memopt_i_key key; size_t least = SIZE_MAX; uint32_t i;
    key.a = memopt_i_search_mix(s->capacity); key.b = ~key.a;
    for (i = l->begin; i < l->end; ++i) least = memopt_i_min(least, s->slabs[s->line[i]].low);
    for (i = l->begin; i < l->end; ++i) {
        const uint64_t k = s->line[i], low = memopt_i_max(s->slabs[k].floor, least);
        const uint64_t x = memopt_i_search_mix(low * UINT64_C(0x9e3779b97f4a7c15) + k * UINT64_C(0xd1b54a32d192ed03) + 1);
        key.a += x; key.b += memopt_i_search_mix(x + k);
    }
    return key;
}
/* A new level for the last part on the stack. 1: it has failed before. */
static int memopt_i_search_open(memopt_i_search *s) {
    const memopt_i_part part = s->parts[--s->part_count]; memopt_i_level *l = &s->levels[s->depth];
    const memopt_i_key *dead;
    l->begin = part.begin; l->end = part.end; l->owner = part.owner;
    l->part_count = s->part_count; l->trail_count = s->trail_count;
    l->key = memopt_i_search_key(s, l);
    dead = &s->dead[l->key.a & (s->dead_count - 1)];
    return dead->a == l->key.a && dead->b == l->key.b;
}
/* Back to where the box of level `depth` was placed, and take it away. */
static void memopt_i_search_unwind(memopt_i_search *s, uint32_t depth) {
    while (s->depth > depth) memopt_i_search_give(s, &s->levels[--s->depth]);
    memopt_i_search_undo(s, s->levels[depth].trail_count);
    s->part_count = s->levels[depth].part_count;
}
static void memopt_i_search_begin(memopt_i_search *s) { /* nothing is placed */
    size_t k;
    for (k = 0; k < s->count; ++k) {
        memopt_i_slab *b = &s->slabs[k];
        b->placed = 0; b->floor = 0; b->low = b->fixed ? s->p->boxes[k].offset : 0;
        s->line[k] = (uint32_t)k;
    }
    s->depth = s->part_count = 0; s->trail_count = 0; s->full = 0;
    s->from = 0; s->to = (uint32_t)s->p->section_count;
    memopt_i_search_split(s, 0, (uint32_t)s->count, MEMOPT_I_PLAN_NONE);
}
/* Look for a plan within the capacity, in `steps` steps at the most. */
static int memopt_i_search_run(memopt_i_search *s, uint64_t steps) {
    int dead;
    memopt_i_search_begin(s);
    if (memopt_i_search_bound(s, 0, (uint32_t)s->count)) return MEMOPT_I_SEARCH_NONE;
    dead = memopt_i_search_open(s);
    for (;; ++s->work) {
        memopt_i_level *l = &s->levels[s->depth];
        if (!steps-- || s->work == s->work_limit || (s->work % 16 == 0 && memopt_i_plan_late(s->p)))
            return MEMOPT_I_SEARCH_STOPPED;
        if (!dead) {
            memopt_i_search_choose(s, l);
            if (!memopt_i_search_place(s, l)) {
                memopt_i_search_split(s, l->begin + 1, l->end, s->depth);
                if (!s->part_count) return MEMOPT_I_SEARCH_FOUND;
                ++s->depth;
                dead = memopt_i_search_open(s);
                continue;
            }
        }
        while (dead || s->full || memopt_i_search_refuse(s, l)) {
            if (s->full) return MEMOPT_I_SEARCH_STOPPED;
            s->dead[l->key.a & (s->dead_count - 1)] = l->key;
            if (l->owner == MEMOPT_I_PLAN_NONE) return MEMOPT_I_SEARCH_NONE;
            memopt_i_search_unwind(s, l->owner); /* the parts beside it may be solved: it is the owner that was wrong */
            l = &s->levels[s->depth];
            dead = 0;
        }
    }
}
static size_t memopt_i_search_gcd(size_t a, size_t b) {
    while (b) { const size_t c = a % b; a = b; b = c; }
    return a;
}
/* Without alignments every end is a sum of sizes; an alignment that is no divisor of the unit makes it finer. */
static size_t memopt_i_search_unit(const memopt_i_plan *p) {
    size_t k, unit = 0, before;
    for (k = 0; k < p->box_count; ++k)
        unit = memopt_i_search_gcd(memopt_i_search_gcd(p->boxes[k].size, unit), p->boxes[k].fixed ? p->boxes[k].offset
            : 0);
    do {
        before = unit;
        for (k = 0; k < p->box_count; ++k)
            if (unit % p->boxes[k].alignment) unit = memopt_i_search_gcd(unit, p->boxes[k].alignment);
    } while (unit != before);
    return unit;
}
static void memopt_i_search_set_up(memopt_i_search *s) {
    const memopt_i_plan *p = s->p; size_t k, largest = 0; unsigned shift = 0;
    for (k = 0; k < s->count; ++k) largest = memopt_i_max(largest, p->boxes[k].size);
    while (largest >> shift >= (size_t)1 << 20) ++shift;
    for (k = 0; k < s->count; ++k) {
        const memopt_i_box *box = &p->boxes[k]; memopt_i_slab *b = &s->slabs[k];
        b->size = box->size; b->alignment = box->alignment; b->start = box->start; b->end = box->end;
        b->fixed = box->fixed; b->bulk = (uint32_t)(box->size >> shift); b->noise = 256;
    }
    for (k = 0; k < p->section_count; ++k) s->trouble[k] = 1;
    memset(s->dead, 0, s->dead_count * sizeof *s->dead);
    s->unit = memopt_i_search_unit(p);
}
static void memopt_i_search_keep(memopt_i_search *s) {
    memopt_i_plan *p = s->p; size_t k, peak = 0;
    for (k = 0; k < s->count; ++k) {
        p->boxes[k].offset = s->slabs[k].low;
        peak = memopt_i_max(peak, s->slabs[k].low + s->slabs[k].size);
    }
    memopt_i_plan_keep(p, peak);
}
/* Attempt after attempt: by long lives and by trouble, at the goal and at a share of the way from there to the best plan,
   short ones most of the time and long ones now and then: 1 1 2 1 1 2 4 ... [Luby 1993, as in Knuth 4A 7.2.2.2]. */
static void memopt_i_search_improve(memopt_i_search *s) {
    static const unsigned char eighths[8] = { 0, 4, 0, 2, 0, 6, 0, 1 };
    memopt_i_plan *p = s->p; uint64_t attempt, u = 1, v = 1; size_t k, over; int found;
    for (attempt = 0; p->peak > p->goal && !p->late && s->work != s->work_limit; ++attempt) {
        s->by_trouble = attempt / 2 % 2 == 1;
        for (k = 0; k < s->count && attempt > 3; ++k)
            s->slabs[k].noise = 256 + (uint32_t)(memopt_i_search_mix(s->seed += UINT64_C(0x9e3779b97f4a7c15)) >> 56);
        s->capacity = p->goal + (p->peak - p->goal) / 8 * eighths[attempt % 8];
        s->capacity -= s->capacity % s->unit;
        found = memopt_i_search_run(s, MEMOPT_I_SEARCH_START * v);
        if (found == MEMOPT_I_SEARCH_FOUND) memopt_i_search_keep(s);
        if (found == MEMOPT_I_SEARCH_NONE && !memopt_i_add(s->capacity, s->unit, &over)) {
            p->goal = memopt_i_max(p->goal, over);
            if (p->exact) p->proven = memopt_i_max(p->proven, over);
        }
        if (attempt % 4 != 3) continue;
        if ((u & (~u + 1)) == v) { ++u; v = 1; } else v *= 2;
    }
}
static void memopt_i_plan_search(memopt_i_plan *p, uint64_t work_limit, uint64_t *work) {
    const size_t n = p->box_count, sections = p->section_count; memopt_i_search s; size_t bytes; void *block;
    memset(&s, 0, sizeof s);
    s.p = p; s.count = n; s.work_limit = work_limit ? work_limit : UINT64_MAX;
    for (s.dead_count = 64; s.dead_count < 64 * n;) s.dead_count *= 2;
    bytes = s.dead_count * sizeof *s.dead + n * (sizeof *s.levels + sizeof *s.slabs + sizeof *s.parts + 2 * sizeof *s.line)
          + MEMOPT_I_SEARCH_TRAIL * n * sizeof *s.trail + sections * (sizeof *s.sum + sizeof *s.trouble);
    block = memopt_i_alloc(&p->host, bytes, MEMOPT_I_HOST_ALIGN);
    if (!block) return; /* the greedy plan stands */
    s.dead = (memopt_i_key *)block;
    s.levels = (memopt_i_level *)(void *)(s.dead + s.dead_count);
    s.slabs = (memopt_i_slab *)(void *)(s.levels + n);
    s.trail = (memopt_i_change *)(void *)(s.slabs + n);
    s.sum = (size_t *)(void *)(s.trail + MEMOPT_I_SEARCH_TRAIL * n);
    s.parts = (memopt_i_part *)(void *)(s.sum + sections);
    s.line = (uint32_t *)(void *)(s.parts + n);
    s.ranked = s.line + n; s.trouble = s.ranked + n;
    memopt_i_search_set_up(&s);
    memopt_i_search_improve(&s);
    *work = s.work;
    memopt_i_free(&p->host, block, bytes, MEMOPT_I_HOST_ALIGN);
}

/* -- the call -- */

static memopt_status memopt_i_plan_items_check(const memopt_plan_item *items, size_t count) {
    size_t i;
    if (count && !items) return MEMOPT_ERR_ARGUMENT;
    for (i = 0; i < count; ++i) {
        const memopt_status s = memopt_i_plan_item_check(items, count, i);
        if (s) return s;
    }
    return count > UINT32_MAX / 4 ? MEMOPT_ERR_OVERFLOW : MEMOPT_OK;
}
/* One block holds all arrays, each with room for two more than there are items. */
#define MEMOPT_I_PLAN_ITEM_BYTES (sizeof(memopt_i_box) + sizeof(memopt_i_reach) + 4 * sizeof(memopt_i_ground) \
    + sizeof(uint64_t) + sizeof(size_t) + 8 * sizeof(uint32_t))
static void memopt_i_plan_layout(memopt_i_plan *p, void *block) {
    const size_t n = p->count + 2; uint32_t *small; size_t i;
    p->key = (uint64_t *)block;
    p->boxes = (memopt_i_box *)(void *)(p->key + n);
    p->reach = (memopt_i_reach *)(void *)(p->boxes + n);
    p->ground = (memopt_i_ground *)(void *)(p->reach + n);
    p->best = (size_t *)(void *)(p->ground + 4 * n);
    small = (uint32_t *)(void *)(p->best + n);
    p->start = small;           p->end = small + n;
    p->box_of = small + 2 * n;  p->taker = small + 3 * n;
    p->order = small + 4 * n;   p->spare = small + 5 * n;
    p->births = small + 6 * n;  p->deaths = small + 7 * n;
    for (i = 0; i < p->count; ++i) p->taker[i] = MEMOPT_I_PLAN_NONE;
    for (i = 0; i < p->count; ++i)
        if (p->items[i].in_place_of) p->taker[p->items[i].in_place_of - 1] = (uint32_t)i;
}
/* What no plan can go below, and where to stop. */
static void memopt_i_plan_goal(memopt_i_plan *p, size_t capacity) {
    size_t i;
    p->proven = p->bound; p->exact = 1;
    for (i = 0; i < p->count; ++i) {
        const memopt_plan_item *t = &p->items[i];
        p->proven = memopt_i_max(p->proven, t->fixed ? t->offset + t->size : t->size);
        if (t->in_place_of && memopt_i_plan_overlap(t, &p->items[t->in_place_of - 1])) p->exact = 0;
    }
    p->goal = memopt_i_max(p->proven, capacity);
}
static memopt_status memopt_i_plan_run(memopt_i_plan *p, const memopt_plan_options *options, memopt_plan_result *r) {
    memopt_status s; size_t peak;
    memopt_i_plan_sections(p);
    /* boxes come later */
    s = memopt_i_plan_bound(p, (size_t *)(void *)p->boxes, (size_t *)(void *)p->boxes + p->count + 2);
    if (s) return s;
    memopt_i_plan_goal(p, options->capacity);
    memopt_i_plan_boxes(p, 0);
    if (memopt_i_plan_clear(p)) return MEMOPT_ERR_ARGUMENT;
    memopt_i_plan_boxes(p, 1);
    memopt_i_plan_orders_try(p, &r->orders);
    if (!p->exact) { /* chains can be clumsy: try without, and go on with what was better */
        peak = p->have_plan ? p->peak : SIZE_MAX;
        memopt_i_plan_boxes(p, 0);
        memopt_i_plan_orders_try(p, &r->orders);
        if (p->have_plan && p->peak == peak) memopt_i_plan_boxes(p, 1);
    }
    if (!p->have_plan) return MEMOPT_ERR_OVERFLOW;
    if (!options->no_search && p->peak > p->goal && !p->late && p->box_count <= MEMOPT_I_SEARCH_MOST)
        memopt_i_plan_search(p, options->work, &r->work);
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_plan_solve(memopt_plan_item *items, size_t count, const memopt_plan_options *options,
                                           const memopt_host *host, memopt_plan_result *result) {
    memopt_i_plan p; memopt_plan_options o; memopt_plan_result r; memopt_status s; size_t i, bytes; void *block;
    s = memopt_i_plan_items_check(items, count);
    if (s) return s;
    memset(&p, 0, sizeof p); memset(&o, 0, sizeof o); memset(&r, 0, sizeof r);
    if (memopt_host_resolve(host, &p.host)) return MEMOPT_ERR_ARGUMENT;
    if (options) o = *options;
    p.items = items; p.count = count;
    p.timed = o.time_ns || !o.work;
    p.time_ns = o.time_ns ? o.time_ns : MEMOPT_I_PLAN_SECOND;
    if (p.timed && p.host.clock.now_fn(p.host.clock.user, &p.started)) p.late = 1;
    if (count) {
        if (memopt_i_mul(count + 2, MEMOPT_I_PLAN_ITEM_BYTES, &bytes)) return MEMOPT_ERR_OVERFLOW;
        block = memopt_i_alloc(&p.host, bytes, MEMOPT_I_HOST_ALIGN);
        if (!block) return MEMOPT_ERR_MEMORY;
        memopt_i_plan_layout(&p, block);
        s = memopt_i_plan_run(&p, &o, &r);
        for (i = 0; i < count && !s; ++i) items[i].offset = p.best[i];
        memopt_i_free(&p.host, block, bytes, MEMOPT_I_HOST_ALIGN);
        if (s) return s;
    }
    r.peak = p.peak; r.lower_bound = p.bound;
    r.optimal = p.peak <= p.proven;
    if (result) *result = r;
    return MEMOPT_OK;
}
/* @section heap : source plan api_heap
   Lifetimes in any order, for memory that the CPU may not even see: everything known about a block lies outside it.
   Problem    Training asks for the same few sizes over and over and frees them in another order. Size classes round
              up, lists do not know what is largest, and pools leave slivers when lengths vary: 27 to 94 % more than was
              asked for. Yet each step nearly repeats the last one.
   Idea       Powers of two, 64 bins each, a bit for every bin that is not empty; below 64 units a bin is one size. A
              bin is a list of trees with the largest at the root (pairing heaps), and only the highest bin is kept to
              be one tree. So the largest free block is always known, a search is a few bit operations, and finds a
              block whenever one fits; everywhere else a bin is a plain list, and as cheap as one.
   Invariant  Blocks in order of addresses, gaps between them only where the heap holds no memory; two free blocks never
              touch. A free block is in the bin of its size and no child is larger than its parent. A link to a
              neighbour is `open` exactly when that is free and touches. memopt_heap_check() looks at all of it.
   Cost       Constant, but for one thing: when the root of the highest bin goes, its children are melded, amortised
              O(log n). 16 KiB, and 44 bytes a block. What costs most is a wrong guess of the processor, 20 cycles and
              what it waited for: so bins are changed without a branch, and `open` sits in the node that is freed.
   Handles    A node's serial goes up with each alloc and free, so a stale handle is told from a live one (until 2^31
              reuses of one node later). All that comes in is compared before anything is done.
   Growth     A source that commits is one range of addresses: memory is committed where the request then fits, lowest
              place first, also into gaps. Any other source gives extents; neighbours join, and trimming gives back
              whole ones, also out of the middle of a joined block. No source: a range that nobody commits.
   Replay     A record is the blocks of one step and the order of calls. The plan gives each a place in one region;
              later a request that comes where the record had one like it, or larger, gets the place in constant time.
              Two live places never overlap: either the record says that both live now, then the plan kept them apart;
              or one has outstayed its record (the cursor has passed its death, or a new step began): it is on a list of
              a few and compared. When the list is full, nothing is served until it empties.
   Committed  A region is committed as it is reached. Every second place is filled from its high end: then what short
              steps leave over lies together in pairs, and whole pages of it are never reached. Worst of 40 runs of 12
              steps with lengths from 128 to 1024, planned for 1024: 1.9 % above what was asked for with 2 MiB pages,
              0.1 % with 64 KiB. The plain heap needs up to 2.4 and 8.4 % (layers recomputed).
   Promise    A request fails only when no run of bytes between blocks in use can hold it, the plan's idle ones
              included, and nothing can be grown: before it fails, the region becomes ordinary blocks. A step as
              recorded never fails. Two heaps that place differently can each be lucky where the other is not, so a
              replay may fail where the plain heap happens not to. Random steps, capacity 0 to 40 % above the peak: in
              at most 0.5 % of runs with requests missing or all smaller, where the plain heap alone fails far more
              often; with new requests in 22 % when there is no byte to spare, 1 % with 5 % to spare, none with 20 %;
              with steps 10 % longer than the planned one in up to a third. So plan the largest step there is.
   Source     Bins with two levels of bits: Masmano et al. 2004 (TLSF). Pairing heaps: Fredman et al. 1986. Plan for the
              step with a fallback for the rest: STAlloc, arXiv:2507.16274. */
#define MEMOPT_I_HEAP_FINE   64u                        /* bins to each power of two */
#define MEMOPT_I_HEAP_LEVELS (sizeof(size_t) * 8 - 5)   /* level 0 is exact, each further one is a power of two */
#define MEMOPT_I_HEAP_BINS   (MEMOPT_I_HEAP_LEVELS * MEMOPT_I_HEAP_FINE)
#define MEMOPT_I_HEAP_NODES  (((size_t)1 << 31) - MEMOPT_I_HEAP_BINS) /* at the most: every cell has a number */
#define MEMOPT_I_HEAP_OPEN   ((uint32_t)1 << 31)        /* in a link: the neighbour is free, and nothing lies between */
#define MEMOPT_I_HEAP_CELL   ((size_t)64 << 10)         /* a region is committed in pieces of this or more */
#define MEMOPT_I_HEAP_SLACK  20                         /* bits: a unit is at most 1 MiB, a tag has the other 12 */
#define MEMOPT_I_HEAP_TAGS   4095                       /* the highest */
#define MEMOPT_I_HEAP_SERVED UINT32_MAX                 /* as `before` of a node: `after` is its slot */
#define MEMOPT_I_HEAP_AHEAD  8                          /* slots looked at for a request */
#define MEMOPT_I_HEAP_SURE   3                          /* requests in a row as recorded, to count on more */
#define MEMOPT_I_HEAP_LATE   16                         /* blocks that outstay their record, compared one by one */

#if defined(__GNUC__) || defined(__clang__)
#  define MEMOPT_I_HEAP_INLINE static inline __attribute__((always_inline)) /* the usual way through alloc and free */
#else
#  define MEMOPT_I_HEAP_INLINE static
#endif

typedef struct memopt_i_node { /* a block, free or used */
    size_t offset, size;
    uint32_t before, after; /* links to the neighbours by address; node 0 stands before the first and after the last */
    uint32_t serial;        /* odd: in use. A handle is good as long as it knows the number */
    uint32_t up;            /* free: the cell that leads to it. Used: its tag, and size - requested in the lower bits */
} memopt_i_node;
/* Cells: the first block of each bin, then two a node. Free: its next sibling and its first child. Used: 1 + its place
   in the record, or 0; it means something only while that goes on. */
#define MEMOPT_I_NEXT(i)  (MEMOPT_I_HEAP_BINS + 2 * (size_t)(i))
#define MEMOPT_I_CHILD(i) (MEMOPT_I_HEAP_BINS + 2 * (size_t)(i) + 1)
#define MEMOPT_I_NOTE(i)  MEMOPT_I_NEXT(i)
typedef struct memopt_i_extent { size_t base, bytes; } memopt_i_extent;
typedef struct memopt_i_noted { /* one recorded block */
    size_t bytes, alignment, first, last; /* last 0: not freed */
    memopt_tag tag;
} memopt_i_noted;
typedef struct memopt_i_slot { /* one planned block */
    size_t offset, size;  /* offset: from the region's start */
    memopt_tag tag;
    uint32_t node;
    uint32_t due, due_next; /* 1 + the first slot freed just before this one came; 1 + the next one freed then too */
    uint32_t turned;      /* 1: a smaller request lies at its high end */
    uint32_t late;        /* live longer than its record: 0 no, 1 in the list, 2 not in the list */
} memopt_i_slot;
enum memopt_i_recording { MEMOPT_I_RECORD_NONE, MEMOPT_I_RECORD_ON, MEMOPT_I_RECORD_DONE, MEMOPT_I_RECORD_LOST };
typedef struct memopt_i_replay {
    uint32_t region;        /* its node; 0 = no plan */
    uint32_t count, cursor, passed; /* slots; the next one; those up to `passed` have been checked for deaths */
    size_t start;           /* of slot offsets */
    size_t grid, cell;      /* below the grid all is committed; above it, each `cell` bytes as the map says */
    size_t missing;         /* bytes of the region that are not committed */
    size_t in_use;          /* bytes served and not freed */
    uint32_t live, late_count, late_more;
    uint32_t late[MEMOPT_I_HEAP_LATE];
    uint64_t served, fell_back;
    int stepping;
    unsigned exact;         /* so many requests in a row had the size recorded, up to SURE */
    memopt_i_slot *slots;   /* one allocation: slots, map, order */
    uint32_t *order;        /* slots by offset */
    uint64_t *map;
    size_t memory;
} memopt_i_replay;
struct memopt_heap {
    memopt_i_node *nodes;     /* one allocation: nodes, cells, unused */
    uint32_t *cells;
    uint32_t *unused;         /* a stack of nodes */
    uint32_t unused_count, pledged; /* pledged: unused nodes that giving the region back will need */
    uint32_t top;             /* the highest bin that is not empty; 0 = to be found again */
    unsigned shift;
    size_t unit;              /* 1 << shift */
    size_t used, requested, held; /* held: all blocks together */
    size_t peak_used, peak_requested, peak_reserved;
    size_t used_blocks;
    memopt_ledger *ledger;
    int solid;                /* 1: there is no gap between two blocks */
    int watched;              /* a ledger, a record or a plan wants to know of every call */
    int recording;            /* enum memopt_i_recording */
    int ranged;               /* one range of addresses; else extents */
    uint32_t node_count;
    size_t base, capacity;    /* of the range; base 0 with extents */
    size_t step, extent;      /* what growth counts in */
    memopt_source *source;
    memopt_i_extent *extents; /* in order of addresses */
    size_t extent_count, extent_room;
    memopt_i_noted *noted;
    size_t noted_count, noted_room, time;
    memopt_i_replay replay;
    memopt_error error;
    memopt_host host;
    uint64_t levels;          /* which levels have blocks */
    uint64_t bins[MEMOPT_I_HEAP_LEVELS]; /* which bins of each */
};

/* -- bins -- */

static int memopt_i_heap_is_free(const memopt_heap *h, uint32_t i) { return !(h->nodes[i].serial & 1); } /* not for 0 */
static size_t memopt_i_heap_end(const memopt_heap *h, uint32_t i) { return h->nodes[i].offset + h->nodes[i].size; }
/* A bin is what the seven highest bits of a size say, or all down to the unit's if those are fewer: how many bits are
   left out, and the bin. Shifts by a variable are slow, so there is one. */
MEMOPT_I_HEAP_INLINE unsigned memopt_i_heap_fine(const memopt_heap *h, size_t size) {
    return memopt_i_high_bit(size | (uint64_t)h->unit * MEMOPT_I_HEAP_FINE) - 6;
}
MEMOPT_I_HEAP_INLINE uint32_t memopt_i_heap_bin(const memopt_heap *h, size_t size) {
    const unsigned fine = memopt_i_heap_fine(h, size);
    return (fine - h->shift) * MEMOPT_I_HEAP_FINE + (uint32_t)(size >> fine);
}
/* i may be 0: node 0 takes what nobody reads, so that nobody has to ask. */
MEMOPT_I_HEAP_INLINE void memopt_i_heap_point(memopt_heap *h, size_t cell, uint32_t i) {
    h->cells[cell] = i;
    h->nodes[i].up = (uint32_t)cell;
}
static uint32_t memopt_i_heap_meld(memopt_heap *h, uint32_t a, uint32_t b) { /* two trees into one */
    uint32_t t;
    if (h->nodes[b].size > h->nodes[a].size) { t = a; a = b; b = t; }
    memopt_i_heap_point(h, MEMOPT_I_NEXT(b), h->cells[MEMOPT_I_CHILD(a)]);
    memopt_i_heap_point(h, MEMOPT_I_CHILD(a), b);
    return a;
}
/* A list of trees, not empty, becomes one: melded in pairs, then all into the last. Its own place is for the caller. */
static MEMOPT_I_NOINLINE uint32_t memopt_i_heap_meld_all(memopt_heap *h, uint32_t first) {
    uint32_t *cells = h->cells, done = 0, a, b;
    while (first) {
        a = first;
        b = cells[MEMOPT_I_NEXT(a)];
        first = b ? cells[MEMOPT_I_NEXT(b)] : 0;
        if (b) a = memopt_i_heap_meld(h, a, b);
        cells[MEMOPT_I_NEXT(a)] = done;
        done = a;
    }
    for (a = done, b = cells[MEMOPT_I_NEXT(a)]; b; b = done) {
        done = cells[MEMOPT_I_NEXT(b)];
        a = memopt_i_heap_meld(h, a, b);
    }
    return a;
}
/* The highest bin has changed: find it, and make one tree of it. */
static MEMOPT_I_NOINLINE void memopt_i_heap_find_top(memopt_heap *h) {
    uint32_t level, root;
    if (!h->levels) return;
    level = memopt_i_high_bit(h->levels);
    h->top = (uint32_t)(level * MEMOPT_I_HEAP_FINE + memopt_i_high_bit(h->bins[level]));
    root = h->cells[h->top];
    if (!h->cells[MEMOPT_I_NEXT(root)]) return;
    root = memopt_i_heap_meld_all(h, root);
    memopt_i_heap_point(h, h->top, root);
    memopt_i_heap_point(h, MEMOPT_I_NEXT(root), 0);
}
MEMOPT_I_HEAP_INLINE void memopt_i_heap_settle(memopt_heap *h) { /* after free blocks have come, gone or changed */
    if (MEMOPT_I_UNLIKELY(!h->top)) memopt_i_heap_find_top(h);
}
MEMOPT_I_HEAP_INLINE void memopt_i_heap_insert(memopt_heap *h, uint32_t i) {
    const uint32_t bin = memopt_i_heap_bin(h, h->nodes[i].size);
    memopt_i_heap_point(h, MEMOPT_I_NEXT(i), h->cells[bin]);
    memopt_i_heap_point(h, bin, i);
    h->cells[MEMOPT_I_CHILD(i)] = 0;
    h->bins[bin / MEMOPT_I_HEAP_FINE] |= (uint64_t)1 << bin % MEMOPT_I_HEAP_FINE;
    h->levels |= (uint64_t)1 << bin / MEMOPT_I_HEAP_FINE;
    if (MEMOPT_I_UNLIKELY(bin >= h->top)) h->top = 0;
}
/* No branch asks whether the bin is empty now: in a heap with a hundred free blocks nobody could guess the answer. */
MEMOPT_I_HEAP_INLINE void memopt_i_heap_remove(memopt_heap *h, uint32_t i) {
    const uint32_t bin = memopt_i_heap_bin(h, h->nodes[i].size), level = bin / MEMOPT_I_HEAP_FINE;
    const uint32_t cell = h->nodes[i].up;
    uint32_t heir = h->cells[MEMOPT_I_NEXT(i)];
    if (MEMOPT_I_UNLIKELY(h->cells[MEMOPT_I_CHILD(i)])) { /* its children, as one tree, take its place */
        heir = memopt_i_heap_meld_all(h, h->cells[MEMOPT_I_CHILD(i)]);
        memopt_i_heap_point(h, MEMOPT_I_NEXT(heir), h->cells[MEMOPT_I_NEXT(i)]);
    }
    memopt_i_heap_point(h, cell, heir);
    h->bins[level] &= ~((uint64_t)((cell == bin) & !heir) << bin % MEMOPT_I_HEAP_FINE);
    h->levels &= ~((uint64_t)!h->bins[level] << level);
    if (MEMOPT_I_UNLIKELY(bin == h->top)) h->top = 0;
}
/* A block of at least so many bytes, or 0 when there is none. The bin where it would be is asked for its first block
   only, which in the highest bin is the largest; any block of a higher bin will do. */
MEMOPT_I_HEAP_INLINE uint32_t memopt_i_heap_search(const memopt_heap *h, size_t size) {
    const uint32_t bin = memopt_i_heap_bin(h, size), first = h->cells[bin];
    uint32_t level = bin / MEMOPT_I_HEAP_FINE; uint64_t mask;
    if (first && h->nodes[first].size >= size) return first;
    mask = h->bins[level] & (~(uint64_t)1 << bin % MEMOPT_I_HEAP_FINE);
    if (!mask) {
        mask = h->levels & (~(uint64_t)1 << level);
        if (!mask) return 0;
        level = memopt_i_low_bit(mask);
        mask = h->bins[level];
    }
    return h->cells[level * MEMOPT_I_HEAP_FINE + memopt_i_low_bit(mask)];
}
static uint32_t memopt_i_heap_next_in_bin(const memopt_heap *h, uint32_t i) { /* each block once; 0 after the last */
    size_t cell;
    if (h->cells[MEMOPT_I_CHILD(i)]) return h->cells[MEMOPT_I_CHILD(i)];
    while (!h->cells[MEMOPT_I_NEXT(i)]) { /* back over the siblings, up to the parent */
        do {
            cell = h->nodes[i].up;
            if (cell < MEMOPT_I_HEAP_BINS) return 0;
            i = (uint32_t)((cell - MEMOPT_I_HEAP_BINS) / 2);
        } while (cell == MEMOPT_I_NEXT(i));
    }
    return h->cells[MEMOPT_I_NEXT(i)];
}
static int memopt_i_heap_fits(size_t start, size_t end, size_t size, size_t alignment, size_t *at) {
    return !memopt_i_align_up(start, alignment, at) && *at <= end && end - *at >= size;
}
/* The same for an alignment above the heap's: first a block that is large enough wherever it begins, then every one
   that may happen to begin well. */
static MEMOPT_I_NOINLINE uint32_t memopt_i_heap_search_aligned(const memopt_heap *h, size_t size, size_t alignment) {
    size_t padded, at; uint32_t bin, i;
    if (!memopt_i_add(size, alignment - h->unit, &padded)) {
        i = memopt_i_heap_search(h, padded);
        if (i) return i;
    }
    for (bin = memopt_i_heap_bin(h, size); bin < MEMOPT_I_HEAP_BINS; ++bin)
        for (i = h->cells[bin]; i; i = memopt_i_heap_next_in_bin(h, i))
            if (memopt_i_heap_fits(h->nodes[i].offset, memopt_i_heap_end(h, i), size, alignment, &at)) return i;
    return 0;
}
static uint32_t memopt_i_heap_find(const memopt_heap *h, size_t size, size_t alignment) {
    if (alignment > h->unit) return memopt_i_heap_search_aligned(h, size, alignment);
    return memopt_i_heap_search(h, size);
}

/* -- nodes and blocks -- */

static uint32_t memopt_i_heap_pop(memopt_heap *h) {
    MEMOPT_ASSERT(h->unused_count);
    return h->unused[--h->unused_count];
}
static void memopt_i_heap_push(memopt_heap *h, uint32_t i) { h->unused[h->unused_count++] = i; }
static uint32_t memopt_i_heap_before(const memopt_heap *h, uint32_t i) {
    return h->nodes[i].before & ~MEMOPT_I_HEAP_OPEN;
}
static uint32_t memopt_i_heap_after(const memopt_heap *h, uint32_t i) {
    return h->nodes[i].after & ~MEMOPT_I_HEAP_OPEN;
}
/* i comes behind `before`. Its own links tell what they lead to; the links to it stay closed. */
static void memopt_i_heap_link(memopt_heap *h, uint32_t before, uint32_t i) {
    const uint32_t after = memopt_i_heap_after(h, before);
    const int low = !before || memopt_i_heap_end(h, before) == h->nodes[i].offset; /* whether they touch */
    const int high = !after || memopt_i_heap_end(h, i) == h->nodes[after].offset;
    h->nodes[i].before = before && low && memopt_i_heap_is_free(h, before) ? before | MEMOPT_I_HEAP_OPEN : before;
    h->nodes[i].after = after && high && memopt_i_heap_is_free(h, after) ? after | MEMOPT_I_HEAP_OPEN : after;
    h->nodes[before].after = h->nodes[after].before = i;
    if (!low || !high) h->solid = 0;
}
static void memopt_i_heap_unlink(memopt_heap *h, uint32_t i) { /* and a gap is left */
    const uint32_t before = memopt_i_heap_before(h, i), after = memopt_i_heap_after(h, i);
    h->nodes[before].after = after;
    h->nodes[after].before = before;
    h->solid = !before && !after;
}
/* Tell the neighbours that i is free. Theirs are the links that say so: whoever is freed next finds in its own node
   whether to join, and need not load its neighbours to decide. Where there are no gaps, all neighbours touch. */
MEMOPT_I_HEAP_INLINE void memopt_i_heap_open(memopt_heap *h, uint32_t i) {
    const memopt_i_node *n = &h->nodes[i]; memopt_i_node *low = &h->nodes[n->before], *high = &h->nodes[n->after];
    low->after = high->before = i | MEMOPT_I_HEAP_OPEN;
    if (MEMOPT_I_LIKELY(h->solid)) return;
    if (low->offset + low->size != n->offset) low->after = i;
    if (n->offset + n->size != high->offset) high->before = i;
}
/* A table that grows by doubling. Untouched on failure. */
static memopt_status memopt_i_heap_table(memopt_heap *h, void **table, size_t size, size_t *room) {
    size_t more = *room ? *room : 8, bytes; void *p;
    if (memopt_i_mul(more, 2 * size, &bytes)) return MEMOPT_ERR_MEMORY;
    p = memopt_i_alloc(&h->host, bytes, MEMOPT_I_HOST_ALIGN);
    if (!p) return MEMOPT_ERR_MEMORY;
    if (*room) memcpy(p, *table, *room * size);
    memopt_i_free(&h->host, *table, *room * size, MEMOPT_I_HOST_ALIGN);
    *table = p;
    *room = more * 2;
    return MEMOPT_OK;
}
static size_t memopt_i_heap_nodes_bytes(size_t count) {
    return count * sizeof(memopt_i_node) + (MEMOPT_I_HEAP_BINS + 3 * count) * sizeof(uint32_t);
}
/* The three tables of the nodes grow together. Serials begin where the heap's address says, so that handles of another
   heap are hardly ever taken for ours. */
static MEMOPT_I_NOINLINE memopt_status memopt_i_heap_more_nodes(memopt_heap *h, size_t count) {
    const uint32_t salt = (uint32_t)(((uintptr_t)h >> 6) * 2654435761u) & ~(uint32_t)1, old = h->node_count;
    const size_t fit = (SIZE_MAX / 2 - 4 * MEMOPT_I_HEAP_BINS) / (sizeof *h->nodes + 12);
    const size_t most = memopt_i_min(MEMOPT_I_HEAP_NODES, fit);
    size_t room = old + (h->pledged - memopt_i_min(h->unused_count, h->pledged));
    memopt_i_node *nodes; uint32_t *cells, *unused, i;
    if (room > most || count > most - room) return MEMOPT_ERR_MEMORY;
    room = memopt_i_max(room + count, memopt_i_min(2 * (size_t)old, most));
    nodes = (memopt_i_node *)memopt_i_alloc(&h->host, memopt_i_heap_nodes_bytes(room), MEMOPT_I_HOST_ALIGN);
    if (!nodes) return MEMOPT_ERR_MEMORY;
    cells = (uint32_t *)(void *)(nodes + room);
    unused = cells + MEMOPT_I_HEAP_BINS + 2 * room;
    memset(nodes, 0, memopt_i_heap_nodes_bytes(room));
    for (i = (uint32_t)room; i-- > old; unused[room - 1 - i] = i) nodes[i].serial = salt;
    if (old) {
        memcpy(nodes, h->nodes, old * sizeof *nodes);
        memcpy(cells, h->cells, (MEMOPT_I_HEAP_BINS + 2 * (size_t)old) * sizeof *cells);
        memcpy(unused + room - old, h->unused, h->unused_count * sizeof *unused); /* they stay on top */
        memopt_i_free(&h->host, h->nodes, memopt_i_heap_nodes_bytes(old), MEMOPT_I_HOST_ALIGN);
    }
    h->nodes = nodes; h->cells = cells; h->unused = unused;
    h->unused_count += (uint32_t)room - old - !old; /* node 0, on top of the first stack, is not for use */
    h->node_count = (uint32_t)room;
    return MEMOPT_OK;
}
static memopt_status memopt_i_heap_need(memopt_heap *h, size_t count) { /* so many nodes, beside the pledged ones */
    if (MEMOPT_I_LIKELY(h->unused_count >= h->pledged + count)) return MEMOPT_OK;
    return memopt_i_heap_more_nodes(h, count);
}
/* A block that belongs to nobody takes its free neighbours in. Theirs are plain links: two free blocks never touch. */
MEMOPT_I_HEAP_INLINE void memopt_i_heap_join(memopt_heap *h, uint32_t i) {
    memopt_i_node *n = &h->nodes[i]; const uint32_t low = n->before, high = n->after;
    if (low & MEMOPT_I_HEAP_OPEN) {
        const uint32_t gone = low ^ MEMOPT_I_HEAP_OPEN;
        memopt_i_heap_remove(h, gone);
        memopt_i_heap_push(h, gone);
        n->offset = h->nodes[gone].offset;
        n->size += h->nodes[gone].size;
        n->before = h->nodes[gone].before;
    }
    if (high & MEMOPT_I_HEAP_OPEN) {
        const uint32_t gone = high ^ MEMOPT_I_HEAP_OPEN;
        memopt_i_heap_remove(h, gone);
        memopt_i_heap_push(h, gone);
        n->size += h->nodes[gone].size;
        n->after = h->nodes[gone].after;
    }
    memopt_i_heap_open(h, i);
    memopt_i_heap_insert(h, i);
}
static uint32_t memopt_i_heap_add(memopt_heap *h, uint32_t before, size_t offset, size_t size) { /* new free memory */
    const uint32_t i = memopt_i_heap_pop(h);
    h->nodes[i].offset = offset; h->nodes[i].size = size;
    memopt_i_heap_link(h, before, i);
    h->held += size;
    memopt_i_heap_join(h, i);
    return i;
}
static MEMOPT_I_NOINLINE void memopt_i_heap_move(memopt_heap *h, uint32_t i, size_t offset, size_t size) {
    memopt_i_heap_remove(h, i);
    h->nodes[i].offset = offset; h->nodes[i].size = size;
    memopt_i_heap_insert(h, i);
    memopt_i_heap_settle(h);
}
/* The first bytes of a free block become a node of their own, in no bin. A leaf that stays in its bin need not move. */
MEMOPT_I_HEAP_INLINE uint32_t memopt_i_heap_split(memopt_heap *h, uint32_t i, size_t size) {
    const uint32_t first = memopt_i_heap_pop(h); memopt_i_node *n = &h->nodes[i], *f = &h->nodes[first];
    const size_t rest = n->size - size, offset = n->offset + size; const uint32_t before = n->before;
    f->offset = n->offset; f->after = i | MEMOPT_I_HEAP_OPEN;
    h->nodes[before].after = n->before = first;
    if ((n->size ^ rest) >> memopt_i_heap_fine(h, n->size) /* another bin */ || h->cells[MEMOPT_I_CHILD(i)])
        memopt_i_heap_move(h, i, offset, rest);
    else { n->offset = offset; n->size = rest; }
    f->size = size; f->before = before; /* not above: gcc would pair fields up in a vector by way of the stack */
    return first;
}
static MEMOPT_I_NOINLINE void memopt_i_heap_take_whole(memopt_heap *h, uint32_t i) {
    memopt_i_heap_remove(h, i);
    h->nodes[h->nodes[i].before].after = h->nodes[h->nodes[i].after].before = i;
    memopt_i_heap_settle(h);
}
MEMOPT_I_HEAP_INLINE uint32_t memopt_i_heap_take(memopt_heap *h, uint32_t i, size_t size) { /* a free block's front */
    if (h->nodes[i].size != size) return memopt_i_heap_split(h, i, size);
    memopt_i_heap_take_whole(h, i);
    return i;
}
/* Memory goes out of free block i: [from, end). What is left on either side becomes new blocks: up to one node more. */
static void memopt_i_heap_punch(memopt_heap *h, uint32_t i, size_t from, size_t end) {
    const size_t start = h->nodes[i].offset, stop = memopt_i_heap_end(h, i); uint32_t before = h->nodes[i].before;
    memopt_i_heap_remove(h, i);
    memopt_i_heap_unlink(h, i);
    memopt_i_heap_push(h, i);
    h->held -= stop - start;
    if (from > start) before = memopt_i_heap_add(h, before, start, from - start);
    if (stop > end) (void)memopt_i_heap_add(h, before, end, stop - end);
}

/* -- growth and trimming -- */

static size_t memopt_i_heap_reserved(const memopt_heap *h) { return h->held - h->replay.missing; }
static size_t memopt_i_heap_free_blocks(const memopt_heap *h) { /* nodes that are nothing else */
    const size_t others = 1 + h->unused_count + h->replay.count + (h->replay.region != 0);
    return h->node_count - others - (h->used_blocks - h->replay.live);
}
static void *memopt_i_heap_address(size_t offset) { return (void *)(uintptr_t)offset; }
static memopt_status memopt_i_heap_commit(memopt_heap *h, size_t start, size_t bytes) {
    return h->source ? memopt_i_source_commit(h->source, memopt_i_heap_address(start), bytes) : MEMOPT_OK;
}
/* In a range: commit what is missing of [from, to), which no block in use touches; p is the block before, or 0. */
static memopt_status memopt_i_heap_fill(memopt_heap *h, uint32_t p, size_t from, size_t to) {
    size_t end = p ? memopt_i_heap_end(h, p) : h->base, start, stop, least, more; uint32_t next; memopt_status s;
    for (; end < to; p = next, end = memopt_i_heap_end(h, p)) {
        next = memopt_i_heap_after(h, p);
        stop = next ? h->nodes[next].offset : h->base + h->capacity;
        if (stop == end || stop <= from) continue;
        start = from > end ? end + memopt_i_align_down(from - end, h->step) : end;
        least = stop - start;
        if (to < stop) least = memopt_i_min(least, memopt_i_align_down(to - start + h->step - 1, h->step));
        more = memopt_i_min(memopt_i_max(least, h->extent), stop - start);
        s = memopt_i_heap_commit(h, start, more);
        if (s && more > least) {
            (void)memopt_ledger_retried(h->ledger, MEMOPT_TAG_OTHER, least);
            s = memopt_i_heap_commit(h, start, more = least);
        }
        if (s) return s;
        next = memopt_i_heap_add(h, p, start, more);
    }
    return MEMOPT_OK;
}
/* A range grows at the lowest place where the request fits between two blocks in use. Gaps begin and end at multiples
   of the step; free blocks may lie between them. */
static memopt_status memopt_i_heap_grow_range(memopt_heap *h, size_t size, size_t alignment) {
    uint32_t p = 0, next = memopt_i_heap_before(h, 0); size_t start, stop, at;
    if (next && memopt_i_heap_end(h, next) - h->base == h->held) /* the only gap is behind the last block */
        p = memopt_i_heap_is_free(h, next) ? memopt_i_heap_before(h, next) : next;
    for (;; p = next) {
        next = memopt_i_heap_after(h, p);
        while (next && memopt_i_heap_is_free(h, next)) next = memopt_i_heap_after(h, next);
        start = p ? memopt_i_heap_end(h, p) : h->base;
        stop = next ? h->nodes[next].offset : h->base + h->capacity;
        if (memopt_i_heap_fits(start, stop, size, alignment, &at)) return memopt_i_heap_fill(h, p, at, at + size);
        if (!next) return MEMOPT_ERR_MEMORY;
    }
}
static memopt_status memopt_i_heap_grow_extent(memopt_heap *h, size_t size, size_t alignment) {
    const size_t most = memopt_i_align_down(memopt_i_min(h->capacity - h->held, h->source->capacity), h->step);
    size_t least = size, more, i; void *base = NULL, *extents = h->extents; uint32_t p; memopt_status s;
    if (alignment > h->source->base_alignment)
        if (memopt_i_add(size, alignment - h->source->base_alignment, &least)) return MEMOPT_ERR_MEMORY;
    if (memopt_i_align_up(least, h->step, &least) || least > most) return MEMOPT_ERR_MEMORY;
    if (h->extent_count == h->extent_room) {
        if (memopt_i_heap_table(h, &extents, sizeof *h->extents, &h->extent_room)) return MEMOPT_ERR_MEMORY;
        h->extents = (memopt_i_extent *)extents;
    }
    more = memopt_i_min(memopt_i_max(least, h->extent), most);
    s = memopt_i_source_reserve(h->source, more, &base);
    if (s && more > least) {
        (void)memopt_ledger_retried(h->ledger, MEMOPT_TAG_OTHER, least);
        s = memopt_i_source_reserve(h->source, more = least, &base);
    }
    if (s) return s;
    for (i = h->extent_count++; i && h->extents[i - 1].base > (uintptr_t)base; --i) h->extents[i] = h->extents[i - 1];
    h->extents[i].base = (uintptr_t)base; h->extents[i].bytes = more;
    for (p = memopt_i_heap_before(h, 0); p && h->nodes[p].offset > (uintptr_t)base; ) p = memopt_i_heap_before(h, p);
    (void)memopt_i_heap_add(h, p, (uintptr_t)base, more);
    return MEMOPT_OK;
}
/* Grow so that the request fits. Takes a node, and two for a moment. */
static memopt_status memopt_i_heap_more(memopt_heap *h, size_t size, size_t alignment) {
    const memopt_status s = h->ranged ? memopt_i_heap_grow_range(h, size, alignment)
                                      : memopt_i_heap_grow_extent(h, size, alignment);
    memopt_i_heap_settle(h);
    return s;
}
static memopt_status memopt_i_heap_trim_range(memopt_heap *h, size_t *released) {
    uint32_t i, next; size_t from, end; memopt_status s;
    for (i = memopt_i_heap_after(h, 0); i; i = next) {
        next = memopt_i_heap_after(h, i);
        if (!memopt_i_heap_is_free(h, i)) continue;
        from = h->nodes[i].offset - h->base + h->step - 1;
        from = h->base + memopt_i_align_down(from, h->step);
        end  = h->base + memopt_i_align_down(memopt_i_heap_end(h, i) - h->base, h->step);
        if (from >= end) continue;
        s = h->source ? memopt_i_source_decommit(h->source, memopt_i_heap_address(from), end - from) : MEMOPT_OK;
        if (s) return s;
        memopt_i_heap_punch(h, i, from, end);
        *released += end - from;
    }
    return MEMOPT_OK;
}
static void memopt_i_heap_trim_extents(memopt_heap *h, size_t *released) {
    size_t e, kept = 0; uint32_t i = memopt_i_heap_after(h, 0), before;
    for (e = 0; e < h->extent_count; ++e) {
        const memopt_i_extent x = h->extents[e];
        while (memopt_i_heap_end(h, i) < x.base + x.bytes) i = memopt_i_heap_after(h, i); /* who holds its last byte */
        if (!memopt_i_heap_is_free(h, i) || h->nodes[i].offset > x.base) { h->extents[kept++] = x; continue; }
        before = h->nodes[i].before;
        memopt_i_heap_punch(h, i, x.base, x.base + x.bytes);
        i = memopt_i_heap_after(h, before); /* what is left in front, or what comes behind */
        memopt_i_source_release(h->source, memopt_i_heap_address(x.base), x.bytes, x.bytes);
        *released += x.bytes;
    }
    h->extent_count = kept;
}

/* -- the plan's region -- */

static void memopt_i_heap_watch(memopt_heap *h) {
    h->watched = h->ledger || h->recording == MEMOPT_I_RECORD_ON || h->replay.region;
}
static int memopt_i_replay_committed(const memopt_i_replay *r, size_t cell) {
    return (int)(r->map[cell / 64] >> cell % 64 & 1);
}
/* From `start`: the end, at most `stop`, of the piece that is committed, or not, as *committed tells. */
static size_t memopt_i_replay_piece(const memopt_i_replay *r, size_t start, size_t stop, int *committed) {
    size_t cell, end;
    if (start < r->grid) { *committed = 1; return memopt_i_min(stop, r->grid); }
    cell = (start - r->grid) / r->cell;
    *committed = memopt_i_replay_committed(r, cell);
    do end = r->grid + ++cell * r->cell; while (end < stop && memopt_i_replay_committed(r, cell) == *committed);
    return memopt_i_min(stop, end);
}
/* Commit what a slot reaches. A piece more may mean a node more when the region is given back, so one is pledged. */
static memopt_status memopt_i_replay_commit(memopt_heap *h, size_t start, size_t size) {
    memopt_i_replay *r = &h->replay; const size_t region_end = memopt_i_heap_end(h, r->region), stop = start + size;
    size_t at, end, cell; int committed; memopt_status s;
    for (at = start; at < stop; at = end) {
        end = memopt_i_replay_piece(r, at, stop, &committed);
        if (committed) continue;
        at -= (at - r->grid) % r->cell;
        end += r->cell - 1 - (end - r->grid + r->cell - 1) % r->cell; /* up to the end of its cell */
        end = memopt_i_min(end, region_end);
        s = memopt_i_heap_need(h, 1);
        if (!s) s = memopt_i_heap_commit(h, at, end - at);
        if (s) return s;
        ++h->pledged;
        r->missing -= end - at;
        for (cell = (at - r->grid) / r->cell; r->grid + cell * r->cell < end; ++cell)
            r->map[cell / 64] |= (uint64_t)1 << cell % 64;
    }
    return MEMOPT_OK;
}
static size_t memopt_i_replay_start(const memopt_i_replay *r, const memopt_i_slot *s, size_t size, size_t alignment) {
    return r->start + s->offset + (s->turned ? memopt_i_align_down(s->size - size, alignment) : 0);
}
static int memopt_i_replay_suits(const memopt_i_replay *r, const memopt_i_slot *s, size_t size, size_t alignment,
                                 memopt_tag tag) {
    return s->tag == tag && s->size >= size && !((r->start + s->offset) & (alignment - 1));
}
/* The slot for a request. While requests are exactly as recorded, one that is not stands where others are missing or
   new: its like is looked for a few slots ahead. Where sizes differ anyway, order is all there is: the next slot. */
static uint32_t memopt_i_replay_match(memopt_i_replay *r, size_t size, size_t alignment, memopt_tag tag) {
    const uint32_t next = r->cursor, stop = next + (uint32_t)memopt_i_min(MEMOPT_I_HEAP_AHEAD, r->count - next);
    const int fits = next < stop && memopt_i_replay_suits(r, &r->slots[next], size, alignment, tag);
    uint32_t k;
    if (!fits || (r->exact == MEMOPT_I_HEAP_SURE && r->slots[next].size != size))
        for (k = next; k < stop; ++k)
            if (r->slots[k].size == size && memopt_i_replay_suits(r, &r->slots[k], size, alignment, tag)) return k;
    if (!fits) return r->count;
    if (r->slots[next].size != size) r->exact = 0;
    else if (r->exact < MEMOPT_I_HEAP_SURE) ++r->exact;
    return next;
}
static void memopt_i_replay_outstays(memopt_i_replay *r, uint32_t k) { /* slot k lives longer than its record */
    memopt_i_slot *s = &r->slots[k];
    if (s->late) return;
    s->late = r->late_count < MEMOPT_I_HEAP_LATE ? 1 : 2;
    if (s->late == 1) r->late[r->late_count++] = k; else ++r->late_more;
}
static int memopt_i_replay_live(const memopt_heap *h, const memopt_i_slot *s) {
    return (int)(h->nodes[s->node].serial & 1);
}
/* The cursor passes slot k. Returns whether its bytes are nobody's: blocks whose record goes on past k lie elsewhere by
   plan, the others are compared. It is places that are compared, not blocks: so live places never overlap. */
static int memopt_i_replay_pass(memopt_heap *h, uint32_t k) {
    memopt_i_replay *r = &h->replay; const memopt_i_slot *s = &r->slots[k], *late; uint32_t i;
    while (r->passed < k) {
        for (i = r->slots[++r->passed].due; i; i = r->slots[i - 1].due_next)
            if (memopt_i_replay_live(h, &r->slots[i - 1])) memopt_i_replay_outstays(r, i - 1);
    }
    r->cursor = k + 1;
    for (i = 0; i < r->late_count; ++i) {
        late = &r->slots[r->late[i]];
        if (late->offset < s->offset + s->size && s->offset < late->offset + late->size) return 0;
    }
    return !r->late_more;
}
/* A used node in the region, or 0. */
static uint32_t memopt_i_replay_serve(memopt_heap *h, size_t size, size_t alignment, memopt_tag tag) {
    memopt_i_replay *r = &h->replay; const uint32_t k = memopt_i_replay_match(r, size, alignment, tag);
    size_t start; uint32_t i;
    if (k < r->count) {
        start = memopt_i_replay_start(r, &r->slots[k], size, alignment);
        if (memopt_i_replay_pass(h, k) && (!r->missing || !memopt_i_replay_commit(h, start, size))) {
            i = r->slots[k].node;
            h->nodes[i].offset = start; h->nodes[i].size = size;
            h->nodes[i].before = MEMOPT_I_HEAP_SERVED; h->nodes[i].after = k;
            r->in_use += size; ++r->live; ++r->served;
            return i;
        }
    }
    ++r->fell_back;
    (void)memopt_ledger_retried(h->ledger, tag, size);
    return 0;
}
static void memopt_i_replay_free(memopt_heap *h, uint32_t k) { /* the node's serial says already that it is not live */
    memopt_i_replay *r = &h->replay; memopt_i_slot *s = &r->slots[k]; uint32_t i = 0;
    r->in_use -= h->nodes[s->node].size; --r->live;
    if (s->late == 2) --r->late_more;
    if (s->late == 1) {
        while (r->late[i] != k) ++i;
        r->late[i] = r->late[--r->late_count];
    }
    s->late = 0;
}
/* Free bytes of a region that is going: its committed pieces become blocks, the others gaps. Returns the last block. */
static uint32_t memopt_i_replay_give(memopt_heap *h, uint32_t after, size_t start, size_t stop) {
    size_t end; int committed;
    for (; start < stop; start = end) {
        end = memopt_i_replay_piece(&h->replay, start, stop, &committed);
        if (committed) after = memopt_i_heap_add(h, after, start, end - start);
    }
    return after;
}
/* The region becomes ordinary blocks and gaps. The nodes it takes are pledged, so this cannot fail. */
static void memopt_i_replay_dissolve(memopt_heap *h) {
    memopt_i_replay *r = &h->replay; const uint32_t region = r->region;
    uint32_t i, k, at = memopt_i_heap_before(h, region);
    size_t start = h->nodes[region].offset; const size_t stop = memopt_i_heap_end(h, region);
    h->held -= h->nodes[region].size;
    ++h->nodes[region].serial;
    memopt_i_heap_unlink(h, region);
    memopt_i_heap_push(h, region);
    for (k = 0; k < r->count; ++k) {
        i = r->slots[r->order[k]].node;
        if (!(h->nodes[i].serial & 1)) { memopt_i_heap_push(h, i); continue; }
        at = memopt_i_replay_give(h, at, start, h->nodes[i].offset);
        memopt_i_heap_link(h, at, i);
        h->cells[MEMOPT_I_NOTE(i)] = 0;
        h->held += h->nodes[i].size;
        at = i;
        start = memopt_i_heap_end(h, i);
    }
    (void)memopt_i_replay_give(h, at, start, stop);
    memopt_i_free(&h->host, r->slots, r->memory, MEMOPT_I_HOST_ALIGN);
    memset(r, 0, sizeof *r);
    h->pledged = 0;
    memopt_i_heap_watch(h);
    memopt_i_heap_settle(h);
}
/* Where the request would fit if the region were given back: between two blocks in use, where there are addresses. */
static int memopt_i_replay_would_fit(const memopt_heap *h, size_t size, size_t alignment, size_t *at) {
    memopt_heap_entry e; size_t start = h->base, end = h->base;
    memset(&e, 0, sizeof e);
    while (memopt_heap_walk(h, &e)) {
        const int gap = !h->ranged && e.offset != end;
        if (gap || e.kind == MEMOPT_HEAP_USED) {
            if (memopt_i_heap_fits(start, gap ? end : e.offset, size, alignment, at)) return 1;
            start = gap && e.kind != MEMOPT_HEAP_USED ? e.offset : e.offset + e.bytes;
        }
        end = e.offset + e.bytes;
    }
    return memopt_i_heap_fits(start, h->ranged ? h->base + h->capacity : end, size, alignment, at);
}

/* Give the region back for a request that will lie at `at`. What can fail comes first: a failure costs no plan. */
static memopt_status memopt_i_replay_rescue(memopt_heap *h, size_t at, size_t size) {
    const uint32_t region = h->replay.region;
    const size_t start = memopt_i_max(at, h->nodes[region].offset);
    const size_t end = memopt_i_min(at + size, memopt_i_heap_end(h, region));
    memopt_status s = memopt_i_heap_need(h, 4);
    if (!s && h->ranged) {
        s = memopt_i_heap_fill(h, 0, at, at + size);
        memopt_i_heap_settle(h);
    }
    if (!s && start < end) s = memopt_i_replay_commit(h, start, end - start);
    if (!s) memopt_i_replay_dissolve(h);
    return s;
}

/* -- allocating and freeing -- */

/* The long way to a free block that fits: growing, and then giving the region back. */
static memopt_status memopt_i_heap_search_hard(memopt_heap *h, size_t size, size_t alignment, uint32_t *out) {
    size_t at; memopt_status s = memopt_i_heap_more(h, size, alignment);
    if (s && h->replay.region && memopt_i_replay_would_fit(h, size, alignment, &at))
        s = memopt_i_replay_rescue(h, at, size);
    if (!s) *out = memopt_i_heap_find(h, size, alignment);
    return s;
}
/* A used block for any request, by whatever way there is. */
static memopt_status memopt_i_heap_place(memopt_heap *h, size_t size, size_t alignment, uint32_t *out) {
    uint32_t i, front = 0; size_t at; memopt_status s = memopt_i_heap_need(h, 4); /* growth two, the front, the block */
    if (s) return s;
    i = memopt_i_heap_find(h, size, alignment);
    if (!i && (s = memopt_i_heap_search_hard(h, size, alignment, &i)) != MEMOPT_OK) return s;
    (void)memopt_i_align_up(h->nodes[i].offset, alignment, &at);
    if (at != h->nodes[i].offset) front = memopt_i_heap_split(h, i, at - h->nodes[i].offset);
    *out = memopt_i_heap_take(h, i, size);
    if (front) { memopt_i_heap_insert(h, front); memopt_i_heap_open(h, front); }
    memopt_i_heap_settle(h);
    return MEMOPT_OK;
}
static MEMOPT_I_NOINLINE memopt_status memopt_i_heap_fail(memopt_heap *h, memopt_status status, const char *reason,
                                                          size_t asked) {
    (void)memopt_i_fail(&h->error, status, reason, asked);
    h->error.free_bytes = memopt_heap_get_stats(h).free_bytes;
    h->error.largest = memopt_heap_largest(h); /* certain; growth might give more, or be refused */
    return status;
}
static memopt_status memopt_i_heap_out(memopt_heap *h, memopt_status s, size_t bytes) {
    return memopt_i_heap_fail(h, s, s == MEMOPT_ERR_MEMORY ? "no free piece is large enough, and the heap cannot grow"
                                                           : "the heap could not grow: its source refused", bytes);
}
/* Whether the ledger will take a block, asked before anything is done. */
static memopt_status memopt_i_heap_bookable(const memopt_heap *h, size_t size, memopt_tag tag) {
    if (tag > MEMOPT_I_HEAP_TAGS) return MEMOPT_ERR_ARGUMENT;
    if (!h->ledger) return MEMOPT_OK;
    if (tag >= h->ledger->tag_count) return MEMOPT_ERR_ARGUMENT;
    return size > SIZE_MAX - h->ledger->total.now ? MEMOPT_ERR_OVERFLOW : MEMOPT_OK;
}
static void memopt_i_heap_note(memopt_heap *h, uint32_t i, size_t bytes, size_t alignment, memopt_tag tag) {
    memopt_i_noted *n; void *noted = h->noted;
    if (h->noted_count == h->noted_room) {
        if (h->noted_count >= UINT32_MAX - 1 || memopt_i_heap_table(h, &noted, sizeof *n, &h->noted_room)) {
            h->recording = MEMOPT_I_RECORD_LOST; /* the block is good; only the plan will not be made */
            memopt_i_heap_watch(h);
            return;
        }
        h->noted = (memopt_i_noted *)noted;
    }
    n = &h->noted[h->noted_count];
    n->bytes = bytes; n->alignment = alignment; n->tag = tag; n->first = h->time++; n->last = 0;
    h->cells[MEMOPT_I_NOTE(i)] = (uint32_t)++h->noted_count;
}
static void memopt_i_heap_debug(const memopt_heap *h) {
    if (MEMOPT_DEBUG >= 3) MEMOPT_ASSERT(memopt_heap_check(h) == MEMOPT_OK);
    (void)h;
}
MEMOPT_I_HEAP_INLINE void memopt_i_heap_hand_out(memopt_heap *h, uint32_t i, size_t size, size_t bytes, memopt_tag tag,
                                                 memopt_block *out) {
    memopt_i_node *n = &h->nodes[i];
    h->used += size; h->requested += bytes; ++h->used_blocks;
    n->up = tag << MEMOPT_I_HEAP_SLACK | (uint32_t)(size - bytes);
    out->offset = n->offset; out->node = i; out->serial = n->serial = n->serial + 1;
}
static size_t memopt_i_heap_slack(const memopt_i_node *n) { return n->up & (((uint32_t)1 << MEMOPT_I_HEAP_SLACK) - 1); }
static memopt_tag memopt_i_heap_tag(const memopt_i_node *n) { return n->up >> MEMOPT_I_HEAP_SLACK; }
/* An allocation with all that may happen: bad arguments, plan, growth, ledger, record. */
static MEMOPT_I_NOINLINE memopt_status memopt_i_heap_alloc_full(memopt_heap *h, size_t bytes, size_t alignment,
                                                                memopt_tag tag, memopt_block *out) {
    size_t size; uint32_t i = 0; memopt_status s;
    if (!out || !bytes || (alignment && !memopt_i_power_of_two(alignment)))
        return memopt_i_heap_fail(h, MEMOPT_ERR_ARGUMENT, "zero bytes, no `out`, or a bad alignment", bytes);
    if (memopt_i_align_up(bytes, h->unit, &size))
        return memopt_i_heap_fail(h, MEMOPT_ERR_OVERFLOW, "the size wraps around", bytes);
    if ((s = memopt_i_heap_bookable(h, size, tag)) != MEMOPT_OK)
        return memopt_i_heap_fail(h, s, "no such tag, or the ledger's sum would not fit", bytes);
    alignment = memopt_i_max(alignment, h->unit);
    if (h->replay.stepping) i = memopt_i_replay_serve(h, size, alignment, tag);
    if (!i && (s = memopt_i_heap_place(h, size, alignment, &i)) != MEMOPT_OK) {
        (void)memopt_ledger_failed(h->ledger, tag, size);
        return memopt_i_heap_out(h, s, bytes);
    }
    memopt_i_heap_hand_out(h, i, size, bytes, tag, out);
    if (h->recording == MEMOPT_I_RECORD_ON) memopt_i_heap_note(h, i, bytes, alignment, tag);
    (void)memopt_ledger_add(h->ledger, tag, size, memopt_i_heap_address(out->offset), NULL);
    memopt_i_heap_debug(h);
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_heap_alloc(memopt_heap *heap, size_t bytes, size_t alignment, memopt_tag tag,
                                           memopt_block *out) {
    size_t size; uint32_t i;
    if (!heap) return MEMOPT_ERR_ARGUMENT;
    size = ((bytes - 1) | (heap->unit - 1)) + 1; /* rounded up; 0 for 0 bytes and when it wraps around */
    if (heap->watched || alignment > heap->unit || (alignment & (alignment - 1)) || !size || !out
        || tag > MEMOPT_I_HEAP_TAGS || !heap->unused_count || (i = memopt_i_heap_search(heap, size)) == 0)
        return memopt_i_heap_alloc_full(heap, bytes, alignment, tag, out);
    i = memopt_i_heap_take(heap, i, size); /* nothing special, as nearly always */
    memopt_i_heap_hand_out(heap, i, size, bytes, tag, out);
    memopt_i_heap_debug(heap);
    return MEMOPT_OK;
}
/* Node 0 is never in use, a region is but was never handed out, and an even serial is nobody's. */
MEMOPT_I_HEAP_INLINE memopt_status memopt_i_heap_known(const memopt_heap *h, memopt_block b) {
    const memopt_i_node *n;
    if (b.node >= h->node_count || !(b.serial & 1)) return MEMOPT_ERR_ARGUMENT;
    n = &h->nodes[b.node];
    if (n->serial != b.serial) return MEMOPT_ERR_STATE;
    if (n->offset != b.offset || (h->watched && b.node == h->replay.region)) return MEMOPT_ERR_ARGUMENT;
    return MEMOPT_OK;
}
/* Tell ledger, record and plan of a free. Returns 1 when the block was the plan's, and nothing is left to do. */
static MEMOPT_I_NOINLINE int memopt_i_heap_free_watched(memopt_heap *h, uint32_t i) {
    memopt_i_node *n = &h->nodes[i]; const uint32_t note = h->cells[MEMOPT_I_NOTE(i)];
    if (h->recording == MEMOPT_I_RECORD_ON && note) h->noted[note - 1].last = h->time++;
    (void)memopt_ledger_remove(h->ledger, memopt_i_heap_tag(n), n->size, memopt_i_heap_address(n->offset));
    if (n->before != MEMOPT_I_HEAP_SERVED) return 0;
    memopt_i_replay_free(h, n->after);
    return 1;
}
MEMOPT_API memopt_status memopt_heap_free(memopt_heap *heap, memopt_block block) {
    memopt_i_node *n; memopt_status s;
    if (!heap) return MEMOPT_ERR_ARGUMENT;
    if ((s = memopt_i_heap_known(heap, block)) != MEMOPT_OK)
        return memopt_i_heap_fail(heap, s, s == MEMOPT_ERR_STATE ? "freed before" : "not a block of this heap", 0);
    n = &heap->nodes[block.node];
    /* Peaks as late as can be: before anything goes. */
    if (MEMOPT_I_UNLIKELY(heap->used > heap->peak_used)) heap->peak_used = heap->used;
    if (MEMOPT_I_UNLIKELY(heap->requested > heap->peak_requested)) heap->peak_requested = heap->requested;
    heap->used -= n->size; heap->requested -= n->size - memopt_i_heap_slack(n); --heap->used_blocks;
    n->serial = block.serial + 1;
    if (!heap->watched || !memopt_i_heap_free_watched(heap, block.node)) {
        memopt_i_heap_join(heap, block.node);
        memopt_i_heap_settle(heap);
    }
    memopt_i_heap_debug(heap);
    return MEMOPT_OK;
}
MEMOPT_API void *memopt_heap_pointer(const memopt_heap *heap, memopt_block block) {
    return heap && heap->source && !memopt_i_heap_known(heap, block) ? memopt_i_heap_address(block.offset) : NULL;
}
MEMOPT_API memopt_status memopt_heap_grow(memopt_heap *heap, size_t bytes) {
    size_t size; memopt_status s;
    if (!heap) return MEMOPT_ERR_ARGUMENT;
    if (!bytes) return memopt_i_heap_fail(heap, MEMOPT_ERR_ARGUMENT, "zero bytes", 0);
    if (memopt_i_align_up(bytes, heap->unit, &size))
        return memopt_i_heap_fail(heap, MEMOPT_ERR_OVERFLOW, "the size wraps around", bytes);
    if (size <= memopt_heap_largest(heap)) return MEMOPT_OK;
    s = memopt_i_heap_need(heap, 2);
    if (!s) s = memopt_i_heap_more(heap, size, heap->unit);
    if (s) return memopt_i_heap_out(heap, s, bytes);
    memopt_i_heap_debug(heap);
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_heap_trim(memopt_heap *heap, size_t *released) {
    size_t bytes = 0; memopt_status s;
    if (!heap) return MEMOPT_ERR_ARGUMENT;
    heap->peak_reserved = memopt_i_max(heap->peak_reserved, memopt_i_heap_reserved(heap));
    s = memopt_i_heap_need(heap, heap->ranged ? memopt_i_heap_free_blocks(heap) : heap->extent_count);
    if (!s && heap->ranged) s = memopt_i_heap_trim_range(heap, &bytes);
    else if (!s) memopt_i_heap_trim_extents(heap, &bytes);
    memopt_i_heap_settle(heap);
    if (released) *released = bytes;
    memopt_i_heap_debug(heap);
    return s ? memopt_i_heap_fail(heap, s, "trimming: no memory for the tables, or the source refused", 0) : MEMOPT_OK;
}

/* -- create and destroy -- */

static memopt_status memopt_i_heap_settings(memopt_heap *h, const memopt_heap_desc *d) { /* all but memory */
    const memopt_source *s = d->source; size_t capacity = d->capacity;
    if (memopt_host_resolve(d->host, &h->host) || (s && !memopt_i_source_valid(s))) return MEMOPT_ERR_ARGUMENT;
    h->unit = d->alignment ? d->alignment : s ? s->alignment : 64;
    if (!memopt_i_power_of_two(h->unit) || h->unit > ((size_t)1 << MEMOPT_I_HEAP_SLACK)) return MEMOPT_ERR_ARGUMENT;
    if (s && h->unit > s->base_alignment) return MEMOPT_ERR_ARGUMENT;
    h->shift = memopt_i_low_bit(h->unit);
    h->source = d->source; h->ledger = d->ledger;
    h->ranged = !s || s->commit_fn;
    h->step = s ? memopt_i_max(h->unit, s->granularity) : h->unit;
    if (s && !capacity) capacity = SIZE_MAX;
    if (s && h->ranged) capacity = memopt_i_min(capacity, s->capacity);
    h->capacity = memopt_i_align_down(capacity, h->step);
    if (!h->capacity) return MEMOPT_ERR_ARGUMENT;
    h->extent = d->extent ? d->extent : (size_t)1 << 20;
    if (s && s->kind == MEMOPT_SOURCE_BLOCK) h->extent = SIZE_MAX; /* it can be reserved once */
    if (memopt_i_align_up(h->extent, h->step, &h->extent)) h->extent = memopt_i_align_down(SIZE_MAX, h->step);
    h->error.reason = "no error";
    h->solid = 1;
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_heap_create(const memopt_heap_desc *desc, memopt_heap **out) {
    memopt_heap *h; memopt_heap settings; void *base = NULL; memopt_status s;
    if (!desc || !out) return MEMOPT_ERR_ARGUMENT;
    memset(&settings, 0, sizeof settings);
    if ((s = memopt_i_heap_settings(&settings, desc)) != MEMOPT_OK) return s;
    h = (memopt_heap *)memopt_i_alloc(&settings.host, sizeof *h, MEMOPT_I_HOST_ALIGN);
    if (!h) return MEMOPT_ERR_MEMORY;
    *h = settings;
    s = memopt_i_heap_more_nodes(h, 64);
    if (!s && h->ranged && h->source) s = memopt_i_source_reserve(h->source, h->capacity, &base);
    if (s) {
        memopt_i_free(&settings.host, h->nodes, memopt_i_heap_nodes_bytes(h->node_count), MEMOPT_I_HOST_ALIGN);
        memopt_i_free(&settings.host, h, sizeof *h, MEMOPT_I_HOST_ALIGN);
        return s;
    }
    h->base = (uintptr_t)base;
    memopt_i_heap_watch(h);
    *out = h;
    return MEMOPT_OK;
}
MEMOPT_API void memopt_heap_destroy(memopt_heap *heap) {
    memopt_heap_entry e; memopt_host host; size_t i;
    if (!heap) return;
    memset(&e, 0, sizeof e);
    while (heap->ledger && memopt_heap_walk(heap, &e))
        if (e.kind == MEMOPT_HEAP_USED)
            (void)memopt_ledger_remove(heap->ledger, e.tag, e.bytes, memopt_i_heap_address(e.offset));
    if (heap->ranged && heap->source)
        memopt_i_source_release(heap->source, memopt_i_heap_address(heap->base), heap->capacity,
                                memopt_i_heap_reserved(heap));
    for (i = 0; heap->source && i < heap->extent_count; ++i)
        memopt_i_source_release(heap->source, memopt_i_heap_address(heap->extents[i].base), heap->extents[i].bytes,
                                heap->extents[i].bytes);
    host = heap->host; /* copied: the struct goes last */
    memopt_i_free(&host, heap->replay.slots, heap->replay.memory, MEMOPT_I_HOST_ALIGN);
    memopt_i_free(&host, heap->noted, heap->noted_room * sizeof *heap->noted, MEMOPT_I_HOST_ALIGN);
    memopt_i_free(&host, heap->extents, heap->extent_room * sizeof *heap->extents, MEMOPT_I_HOST_ALIGN);
    memopt_i_free(&host, heap->nodes, memopt_i_heap_nodes_bytes(heap->node_count), MEMOPT_I_HOST_ALIGN);
    memopt_i_free(&host, heap, sizeof *heap, MEMOPT_I_HOST_ALIGN);
}

/* -- questions -- */

MEMOPT_API size_t memopt_heap_largest(const memopt_heap *heap) {
    return heap && heap->levels ? heap->nodes[heap->cells[heap->top]].size : 0; /* the root of the highest bin's tree */
}
MEMOPT_API size_t memopt_heap_largest_grown(const memopt_heap *heap) {
    size_t more; uint32_t last;
    if (!heap) return 0;
    if (!heap->ranged) {
        more = memopt_i_min(heap->capacity - heap->held, heap->source->capacity);
        more = memopt_i_align_down(more, heap->step);
    } else {
        last = memopt_i_heap_before(heap, 0);
        more = heap->base + heap->capacity - (last ? memopt_i_heap_end(heap, last) : heap->base);
        if (last && memopt_i_heap_is_free(heap, last)) more += heap->nodes[last].size;
    }
    return memopt_i_max(more, memopt_heap_largest(heap));
}
MEMOPT_API memopt_heap_stats memopt_heap_get_stats(const memopt_heap *heap) {
    memopt_heap_stats s; const memopt_i_replay *r;
    memset(&s, 0, sizeof s);
    if (!heap) return s;
    r = &heap->replay;
    s.capacity = heap->capacity;
    s.reserved = memopt_i_heap_reserved(heap);
    s.used = heap->used; s.requested = heap->requested;
    if (r->region) { s.planned = heap->nodes[r->region].size; s.idle = s.planned - r->missing - r->in_use; }
    s.free_bytes = s.reserved - s.used - s.idle;
    s.largest = memopt_heap_largest(heap);
    s.peak_used      = memopt_i_max(heap->peak_used, s.used);
    s.peak_requested = memopt_i_max(heap->peak_requested, s.requested);
    s.peak_reserved  = memopt_i_max(heap->peak_reserved, s.reserved);
    s.used_blocks = heap->used_blocks; s.free_blocks = memopt_i_heap_free_blocks(heap);
    if (s.free_bytes) s.external = 1.0 - (double)s.largest / (double)s.free_bytes;
    if (s.used) s.internal = 1.0 - (double)s.requested / (double)s.used;
    s.served = r->served; s.fell_back = r->fell_back;
    return s;
}
MEMOPT_API memopt_error memopt_heap_error(const memopt_heap *heap) {
    memopt_error e;
    memset(&e, 0, sizeof e);
    e.reason = "no heap";
    return heap ? heap->error : e;
}
static void memopt_i_heap_entry(const memopt_heap *h, uint32_t i, memopt_heap_entry *e) {
    const memopt_i_node *n = &h->nodes[i];
    e->kind = n->serial & 1 ? MEMOPT_HEAP_USED : MEMOPT_HEAP_FREE;
    e->offset = n->offset; e->bytes = n->size;
    e->requested = 0; e->tag = 0;
    memset(&e->block, 0, sizeof e->block);
    if (e->kind == MEMOPT_HEAP_FREE) return;
    e->requested = n->size - memopt_i_heap_slack(n); e->tag = memopt_i_heap_tag(n);
    e->block.offset = n->offset; e->block.node = i; e->block.serial = n->serial;
}
/* Inside the region: the next live slot, or the idle bytes before it. Returns 0 at the region's end. */
static int memopt_i_heap_walk_region(const memopt_heap *h, memopt_heap_entry *e) {
    const memopt_i_replay *r = &h->replay; const size_t region_end = memopt_i_heap_end(h, r->region);
    const size_t start = e->node == r->region ? e->offset + e->bytes : h->nodes[r->region].offset;
    size_t end = region_end;
    if (e->node != r->region) e->slot = 0;
    if (start == region_end) return 0;
    for (; e->slot < r->count; ++e->slot) {
        const memopt_i_slot *s = &r->slots[r->order[e->slot]];
        if (!memopt_i_replay_live(h, s)) continue;
        end = h->nodes[s->node].offset;
        if (end > start) break;
        memopt_i_heap_entry(h, s->node, e);
        e->node = r->region;
        ++e->slot;
        return 1;
    }
    memset(&e->block, 0, sizeof e->block);
    e->kind = MEMOPT_HEAP_IDLE; e->offset = start; e->bytes = end - start;
    e->requested = 0; e->tag = 0; e->node = r->region;
    return 1;
}
MEMOPT_API int memopt_heap_walk(const memopt_heap *heap, memopt_heap_entry *entry) {
    uint32_t i;
    if (!heap || !entry || entry->node >= heap->node_count) return 0;
    if (entry->node && entry->node == heap->replay.region && memopt_i_heap_walk_region(heap, entry)) return 1;
    i = memopt_i_heap_after(heap, entry->node);
    if (!i || i >= heap->node_count) return 0;
    if (i == heap->replay.region) return memopt_i_heap_walk_region(heap, entry);
    memopt_i_heap_entry(heap, i, entry);
    entry->node = i;
    return 1;
}

/* -- record, plan, replay -- */

MEMOPT_API memopt_status memopt_heap_record(memopt_heap *heap) {
    uint32_t i;
    if (!heap) return MEMOPT_ERR_ARGUMENT;
    if (heap->replay.region) return memopt_i_heap_fail(heap, MEMOPT_ERR_STATE, "a plan is being replayed", 0);
    for (i = memopt_i_heap_after(heap, 0); i; i = memopt_i_heap_after(heap, i))
        if (!memopt_i_heap_is_free(heap, i)) heap->cells[MEMOPT_I_NOTE(i)] = 0;
    heap->noted_count = heap->time = 0;
    heap->recording = MEMOPT_I_RECORD_ON;
    memopt_i_heap_watch(heap);
    return MEMOPT_OK;
}
static size_t memopt_i_noted_planned(const memopt_heap *recorder) {
    size_t i, count = 0;
    for (i = 0; i < recorder->noted_count; ++i) count += recorder->noted[i].last != 0;
    return count;
}
static memopt_status memopt_i_noted_items(const memopt_heap *h, const memopt_heap *recorder, memopt_plan_item *items) {
    size_t i, k = 0;
    for (i = 0; i < recorder->noted_count; ++i) {
        const memopt_i_noted *n = &recorder->noted[i];
        if (!n->last) continue;
        memset(&items[k], 0, sizeof *items);
        items[k].first = n->first; items[k].last = n->last;
        if (memopt_i_align_up(n->bytes, h->unit, &items[k].size)) return MEMOPT_ERR_OVERFLOW;
        items[k++].alignment = memopt_i_max(n->alignment, h->unit);
    }
    return MEMOPT_OK;
}
static void memopt_i_replay_sift(const memopt_i_slot *slots, uint32_t *order, size_t root, size_t count) {
    size_t child; uint32_t t;
    for (; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && slots[order[child]].offset < slots[order[child + 1]].offset) ++child;
        if (slots[order[root]].offset >= slots[order[child]].offset) return;
        t = order[root]; order[root] = order[child]; order[child] = t;
    }
}
static void memopt_i_replay_sort(const memopt_i_slot *slots, uint32_t *order, size_t count) { /* by offset */
    size_t i; uint32_t t;
    for (i = count / 2; i-- > 0; ) memopt_i_replay_sift(slots, order, i, count);
    for (i = count; i-- > 1; ) {
        t = order[0]; order[0] = order[i]; order[i] = t;
        memopt_i_replay_sift(slots, order, 0, i);
    }
}
/* Slots from items, which stand in the order of their allocation. Every second one by offset is turned: what smaller
   requests leave over lies together in pairs, so that fewer pages are reached from two sides. */
static void memopt_i_replay_slots(memopt_i_replay *r, const memopt_heap *recorder, const memopt_plan_item *items) {
    uint32_t k = 0, low, high, middle; size_t i;
    for (i = 0; i < recorder->noted_count; ++i) {
        memopt_i_slot *s = &r->slots[k];
        if (!recorder->noted[i].last) continue;
        s->offset = items[k].offset; s->size = items[k].size; s->tag = recorder->noted[i].tag;
        for (low = k + 1, high = r->count; low < high; ) { /* the first slot allocated after this one was freed */
            middle = low + (high - low) / 2;
            if (items[middle].first < items[k].last) low = middle + 1; else high = middle;
        }
        r->order[k] = k;
        if (low < r->count) { s->due_next = r->slots[low].due; r->slots[low].due = k + 1; }
        ++k;
    }
    memopt_i_replay_sort(r->slots, r->order, r->count);
    for (k = 1; k < r->count; k += 2) r->slots[r->order[k]].turned = 1;
}
/* The region behind the last block: its memory is committed when it is reached. The range has the addresses. */
static int memopt_i_replay_behind(memopt_heap *h, memopt_i_replay *r, size_t peak, size_t alignment) {
    uint32_t p = memopt_i_heap_before(h, 0); const size_t end = p ? memopt_i_heap_end(h, p) : h->base;
    size_t first = end, at, stop;
    if (p && memopt_i_heap_is_free(h, p)) first = h->nodes[p].offset; else p = 0;
    if (!memopt_i_heap_fits(first, h->base + h->capacity, peak, alignment, &at)) return 0;
    stop = h->base + memopt_i_align_down(at + peak - h->base + h->step - 1, h->step);
    if (p) memopt_i_heap_take_whole(h, p);
    else {
        p = memopt_i_heap_pop(h);
        h->nodes[p].offset = first; h->nodes[p].size = 0;
        memopt_i_heap_link(h, memopt_i_heap_before(h, 0), p);
    }
    ++h->nodes[p].serial;
    h->nodes[p].size = stop - first;
    h->held += stop - end;
    r->region = p; r->start = at; r->grid = end; r->missing = stop - end;
    memopt_i_heap_settle(h);
    return 1;
}
static memopt_status memopt_i_replay_region(memopt_heap *h, memopt_i_replay *r, size_t peak, size_t alignment) {
    uint32_t i; memopt_status s = memopt_i_heap_need(h, (size_t)2 * r->count + 8); /* slots, what lies between, place */
    if (s) return s;
    i = memopt_i_heap_find(h, peak, alignment);
    if (i || !h->ranged || !h->source || !memopt_i_replay_behind(h, r, peak, alignment)) {
        if ((s = memopt_i_heap_place(h, peak, alignment, &r->region)) != MEMOPT_OK) return s;
        ++h->nodes[r->region].serial;
        r->start = h->nodes[r->region].offset;
        r->grid = memopt_i_heap_end(h, r->region);
    }
    for (i = 0; i < r->count; ++i) r->slots[i].node = memopt_i_heap_pop(h);
    h->pledged = r->count + 1;
    return MEMOPT_OK;
}
/* From a solved plan to a replay: tables first, then the region, which is the last that can fail. */
static memopt_status memopt_i_replay_make(memopt_heap *h, const memopt_heap *recorder, const memopt_plan_item *items,
                                          size_t count, size_t peak) {
    memopt_i_replay r; memopt_status s; size_t bytes, words, i, alignment = h->unit;
    memset(&r, 0, sizeof r);
    for (i = 0; i < count; ++i) alignment = memopt_i_max(alignment, items[i].alignment);
    r.count = (uint32_t)count;
    r.exact = MEMOPT_I_HEAP_SURE;
    r.cell = memopt_i_max(h->step, MEMOPT_I_HEAP_CELL);
    words = peak / r.cell / 64 + 2; /* grid to end: peak, and less than two steps */
    if (memopt_i_mul(count, sizeof *r.slots + sizeof *r.order, &bytes)) return MEMOPT_ERR_OVERFLOW;
    if (memopt_i_add(bytes, words * 8, &bytes)) return MEMOPT_ERR_OVERFLOW;
    r.slots = (memopt_i_slot *)memopt_i_alloc(&h->host, bytes, MEMOPT_I_HOST_ALIGN);
    if (!r.slots) return MEMOPT_ERR_MEMORY;
    memset(r.slots, 0, bytes);
    r.memory = bytes;
    r.map = (uint64_t *)(void *)(r.slots + count);
    r.order = (uint32_t *)(void *)(r.map + words);
    memopt_i_replay_slots(&r, recorder, items);
    s = memopt_i_replay_region(h, &r, peak, alignment);
    if (s) { memopt_i_free(&h->host, r.slots, bytes, MEMOPT_I_HOST_ALIGN); return s; }
    h->replay = r;
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_heap_plan(memopt_heap *heap, memopt_heap *recorder, const memopt_plan_options *options,
                                          memopt_plan_result *result) {
    memopt_plan_item *items = NULL; memopt_plan_result plan; size_t count, bytes; memopt_status s = MEMOPT_OK;
    if (!heap) return MEMOPT_ERR_ARGUMENT;
    if (!recorder) recorder = heap;
    if (heap->replay.region || recorder->recording == MEMOPT_I_RECORD_NONE)
        return memopt_i_heap_fail(heap, MEMOPT_ERR_STATE, "nothing was recorded, or there is a plan already", 0);
    if (recorder->recording == MEMOPT_I_RECORD_LOST)
        return memopt_i_heap_fail(heap, MEMOPT_ERR_MEMORY, "the recording was cut short by a lack of memory", 0);
    memset(&plan, 0, sizeof plan);
    count = memopt_i_noted_planned(recorder);
    bytes = count * sizeof *items;
    if (count) {
        if (count <= SIZE_MAX / sizeof *items)
            items = (memopt_plan_item *)memopt_i_alloc(&heap->host, bytes, MEMOPT_I_HOST_ALIGN);
        if (!items) return memopt_i_heap_fail(heap, MEMOPT_ERR_MEMORY, "no memory to plan in", 0);
        s = memopt_i_noted_items(heap, recorder, items);
        if (!s) s = memopt_plan_solve(items, count, options, &heap->host, &plan);
        if (!s) s = memopt_i_replay_make(heap, recorder, items, count, plan.peak);
        memopt_i_free(&heap->host, items, bytes, MEMOPT_I_HOST_ALIGN);
        if (s) return memopt_i_heap_fail(heap, s, "the plan could not be made, or its region has no room", plan.peak);
    }
    recorder->recording = MEMOPT_I_RECORD_DONE;
    memopt_i_heap_watch(recorder);
    memopt_i_heap_watch(heap);
    if (result) *result = plan;
    memopt_i_heap_debug(heap);
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_heap_step(memopt_heap *heap) {
    memopt_i_replay *r; uint32_t k, live;
    if (!heap) return MEMOPT_ERR_ARGUMENT;
    r = &heap->replay;
    for (k = 0, live = r->live; live; ++k) /* who lives on from one step into the next is not in the record */
        if (memopt_i_replay_live(heap, &r->slots[k])) { memopt_i_replay_outstays(r, k); --live; }
    r->cursor = r->passed = 0;
    r->stepping = r->region != 0;
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_heap_unplan(memopt_heap *heap) {
    if (!heap) return MEMOPT_ERR_ARGUMENT;
    if (heap->replay.region) memopt_i_replay_dissolve(heap);
    memopt_i_heap_debug(heap);
    return MEMOPT_OK;
}

/* -- all invariants -- */

static int memopt_i_check_bin(const memopt_heap *h, uint32_t bin, size_t *count) {
    uint32_t i, child; size_t cell;
    if ((h->cells[bin] != 0) != (int)(h->bins[bin / MEMOPT_I_HEAP_FINE] >> bin % MEMOPT_I_HEAP_FINE & 1)) return 0;
    for (i = h->cells[bin], cell = bin; i; cell = MEMOPT_I_NEXT(i), i = h->cells[cell])
        if (h->nodes[i].up != cell) return 0;
    for (i = h->cells[bin]; i; i = memopt_i_heap_next_in_bin(h, i)) {
        if (++*count > h->node_count || !memopt_i_heap_is_free(h, i)) return 0;
        if (memopt_i_heap_bin(h, h->nodes[i].size) != bin) return 0;
        for (cell = MEMOPT_I_CHILD(i); (child = h->cells[cell]) != 0; cell = MEMOPT_I_NEXT(child))
            if (h->nodes[child].up != cell || h->nodes[child].size > h->nodes[i].size) return 0;
    }
    return 1;
}
static int memopt_i_check_bins(const memopt_heap *h) {
    size_t count = 0; uint32_t bin, level, top = 0;
    for (bin = 0; bin < MEMOPT_I_HEAP_BINS; ++bin) {
        level = bin / MEMOPT_I_HEAP_FINE;
        if (!memopt_i_check_bin(h, bin, &count) || (h->bins[level] != 0) != (int)(h->levels >> level & 1)) return 0;
        if (h->cells[bin]) top = bin;
    }
    if (top && (h->top != top || h->cells[MEMOPT_I_NEXT(h->cells[top])])) return 0;
    return count == memopt_i_heap_free_blocks(h);
}
/* The blocks in order: aligned, apart, inside, free ones joined; their sums. */
static int memopt_i_check_blocks(const memopt_heap *h, size_t *count) {
    size_t held = 0, used = h->replay.in_use, free_blocks = 0, used_blocks = h->replay.live, end = h->base, e = 0, i;
    uint32_t p = 0, n;
    for (n = memopt_i_heap_after(h, 0); n; p = n, n = memopt_i_heap_after(h, n)) {
        const memopt_i_node *b = &h->nodes[n]; const int is_free = memopt_i_heap_is_free(h, n);
        if (++*count > h->node_count || memopt_i_heap_before(h, n) != p) return 0;
        if (!b->size || (b->offset | b->size) & (h->unit - 1) || b->offset < end) return 0;
        if (is_free && p && memopt_i_heap_is_free(h, p) && b->offset == end) return 0;
        if (h->solid && p && b->offset != end) return 0;
        if (p && (b->before != p) != (memopt_i_heap_is_free(h, p) && b->offset == end)) return 0;
        if (p && (h->nodes[p].after != n) != (is_free && b->offset == end)) return 0;
        if (h->ranged && b->offset != end && ((b->offset - h->base) % h->step || (end - h->base) % h->step)) return 0;
        for (end = b->offset; !h->ranged && end < b->offset + b->size; ) { /* each byte lies in an extent */
            while (e < h->extent_count && h->extents[e].base + h->extents[e].bytes <= end) ++e;
            if (e == h->extent_count || h->extents[e].base > end) return 0;
            end = memopt_i_min(b->offset + b->size, h->extents[e].base + h->extents[e].bytes);
        }
        end = b->offset + b->size;
        held += b->size;
        if (is_free) ++free_blocks;
        else if (n != h->replay.region) { used += b->size; ++used_blocks; }
    }
    for (i = 0, e = 0; i < h->extent_count; ++i) e += h->extents[i].bytes;
    if (memopt_i_heap_before(h, 0) != p || held != h->held || used != h->used) return 0;
    return free_blocks == memopt_i_heap_free_blocks(h) && used_blocks == h->used_blocks
        && (h->ranged ? end <= h->base + h->capacity : e == held);
}
static size_t memopt_i_check_pieces(const memopt_i_replay *r, size_t start, size_t stop) { /* committed ones */
    size_t count = 0; int committed;
    while (start < stop) {
        start = memopt_i_replay_piece(r, start, stop, &committed);
        count += committed != 0;
    }
    return count;
}
/* Live slots lie in their places, apart, in committed cells; either their record or the late list accounts for them. */
static int memopt_i_check_replay(const memopt_heap *h) {
    const memopt_i_replay *r = &h->replay; size_t in_use = 0, missing = 0, pieces = 0, at, next;
    uint32_t k, i, live = 0, late = 0, more = 0; int committed;
    if (!r->region) return !r->live && !h->pledged;
    at = h->nodes[r->region].offset;
    for (k = 0; k < r->count; ++k) {
        const memopt_i_slot *s = &r->slots[r->order[k]]; const memopt_i_node *n = &h->nodes[s->node];
        if (!memopt_i_replay_live(h, s)) { if (s->late) return 0; continue; }
        if (n->before != MEMOPT_I_HEAP_SERVED || n->after != r->order[k] || n->offset < at) return 0;
        if (n->offset < r->start + s->offset || n->offset + n->size > r->start + s->offset + s->size) return 0;
        pieces += memopt_i_check_pieces(r, at, n->offset);
        for (at = n->offset; at < n->offset + n->size; ) {
            at = memopt_i_replay_piece(r, at, n->offset + n->size, &committed);
            if (!committed) return 0;
        }
        if (!s->late && r->order[k] >= r->cursor) return 0;
        in_use += n->size; ++live; late += s->late == 1; more += s->late == 2;
    }
    for (k = 1; k <= r->passed; ++k) /* whose death the cursor has passed is late, or dead */
        for (i = r->slots[k].due; i; i = r->slots[i - 1].due_next)
            if (!r->slots[i - 1].late && memopt_i_replay_live(h, &r->slots[i - 1])) return 0;
    for (i = 0; i < r->late_count; ++i) if (r->slots[r->late[i]].late != 1) return 0;
    pieces += memopt_i_check_pieces(r, at, memopt_i_heap_end(h, r->region));
    if (at > memopt_i_heap_end(h, r->region) || pieces > h->pledged) return 0; /* a node each when the region goes */
    for (at = r->grid; at < memopt_i_heap_end(h, r->region); at = next) {
        next = memopt_i_replay_piece(r, at, memopt_i_heap_end(h, r->region), &committed);
        if (!committed) missing += next - at;
    }
    return live == r->live && in_use == r->in_use && missing == r->missing && late == r->late_count
        && more == r->late_more;
}
MEMOPT_API memopt_status memopt_heap_check(const memopt_heap *heap) {
    size_t count = 1; uint32_t i;
    if (!heap) return MEMOPT_ERR_ARGUMENT;
    if ((heap->nodes[0].serial & 1) || !memopt_i_check_blocks(heap, &count)) return MEMOPT_ERR_CORRUPT;
    if (!memopt_i_check_bins(heap)) return MEMOPT_ERR_CORRUPT;
    for (i = 0; i < heap->unused_count; ++i)
        if (!heap->unused[i] || heap->unused[i] >= heap->node_count || !memopt_i_heap_is_free(heap, heap->unused[i]))
            return MEMOPT_ERR_CORRUPT;
    if (heap->unused_count < heap->pledged || count + heap->unused_count + heap->replay.count != heap->node_count
        || !memopt_i_check_replay(heap)) return MEMOPT_ERR_CORRUPT;
    return MEMOPT_OK;
}
/* @section simd : host api_simd
   Problem    A header is compiled once, by flags that are not ours, and runs on processors its author never saw.
   Idea       Every wide function carries its instruction set as an attribute and is reached only through a level found
              at run time. The scalar function beside it is the definition; the wide ones give its bits, tails included.
   Invariant  A level is only ever lowered: to what the caller asks for, to what the machine has, to what was compiled
              in. MEMOPT_SIMD_AVX512 is Ice Lake, Zen 4 and later: it needs VBMI and VBMI2, whose byte permutations are the
              tables of the 8-bit codes. Earlier AVX-512 machines take the AVX2 path.
   Trap       A compiler may fuse a * b + c written with intrinsics into one rounding, where it is allowed to (gcc by
              default). So no product here is an operand of a plain sum: it is fmaf, and _mm256_fmadd_ps.
              -ffast-math replaces divisions and is outside the promise of equal bits.
   Cost       A look at a word that the compiler's runtime filled in at start. */
#if !defined(MEMOPT_NO_SIMD) && (defined(__GNUC__) || defined(__clang__)) && !defined(__CUDACC__) \
    && (!defined(_WIN32) || defined(__clang__)) /* gcc does not align wide variables on the stack of Win64 (bug 54412) */
#  if defined(__x86_64__) || (defined(__i386__) && defined(__SSE2__))
#    include <immintrin.h>
#    define MEMOPT_I_X86 1
#    define MEMOPT_I_AVX2        __attribute__((target("avx2,fma,f16c")))
#    define MEMOPT_I_AVX512_SET  "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2"
#    define MEMOPT_I_AVX512      __attribute__((target(MEMOPT_I_AVX512_SET)))
#    define MEMOPT_I_AVX512_BF16 __attribute__((target(MEMOPT_I_AVX512_SET ",avx512bf16")))
#  elif defined(__aarch64__) && !defined(__AARCH64EB__)
#    include <arm_neon.h>
#    define MEMOPT_I_NEON 1
#  endif
#endif
#if defined(MEMOPT_I_X86) && !defined(__clang__) /* g++ 12 warns of its own intrinsics; popped at the end of the file */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wuninitialized"
#  pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#  if !defined(__OPTIMIZE__)
#    pragma GCC diagnostic ignored "-Wsign-conversion" /* at -O0 they are macros */
#  endif
#endif
#if defined(__CUDACC__)
#  define MEMOPT_I_UNROLL
#elif defined(__clang__)
#  define MEMOPT_I_UNROLL _Pragma("clang loop unroll_count(4)")
#elif defined(__GNUC__)
#  define MEMOPT_I_UNROLL _Pragma("GCC unroll 4")
#else
#  define MEMOPT_I_UNROLL
#endif
#if defined(__GNUC__) || defined(__clang__)
#  define MEMOPT_I_FLATTEN __attribute__((flatten)) /* everything that is called in it becomes a part of it */
#else
#  define MEMOPT_I_FLATTEN
#endif
#if defined(MEMOPT_I_X86)
MEMOPT_I_AVX2 MEMOPT_I_NOINLINE static void memopt_i_zeroupper(void) { _mm256_zeroupper(); }
#endif
MEMOPT_API int memopt_simd_best(void) {
#if defined(MEMOPT_I_X86)
    __builtin_cpu_init(); /* for callers that run before main */
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return MEMOPT_SIMD_SCALAR;
    if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq")
        || !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512vbmi")
        || !__builtin_cpu_supports("avx512vbmi2")) return MEMOPT_SIMD_AVX2;
    return __builtin_cpu_supports("avx512bf16") ? MEMOPT_SIMD_AVX512_BF16 : MEMOPT_SIMD_AVX512;
#elif defined(MEMOPT_I_NEON)
    return MEMOPT_SIMD_NEON;
#else
    return MEMOPT_SIMD_SCALAR;
#endif
}
/* The end of wide work. gcc forgets to clear the upper halves of the registers at -O1, at -Os and before some tail
   calls, and then every float instruction that follows takes fifty times as long. */
static void memopt_i_wide_end(int level) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX2) memopt_i_zeroupper();
#else
    (void)level;
#endif
}
/* The level to run at: what was asked for (0 = best), never above what there is. threads may be NULL. */
static int memopt_i_simd_level(const memopt_threads *threads) {
    const int best = memopt_simd_best(), asked = threads ? threads->simd_level : 0;
    return asked && asked < best ? asked : best;
}
MEMOPT_API const char *memopt_simd_text(int level) {
    switch (level) {
    case MEMOPT_SIMD_SCALAR:      return "scalar";
    case MEMOPT_SIMD_NEON:        return "NEON";
    case MEMOPT_SIMD_AVX2:        return "AVX2";
    case MEMOPT_SIMD_AVX512:      return "AVX-512";
    case MEMOPT_SIMD_AVX512_BF16: return "AVX-512 with BF16";
    }
    return "not a level of memopt";
}
/* @section random : simd api_random
   Problem    Random numbers that depend on who asked first cannot be repeated: not with more workers, not for a part of
              a tensor, not after a crash. And rounding at random needs 16 bits for every weight at every step.
   Idea       Numbers by place. The counter (seed, stream, index) goes through a function that scrambles it; there is no
              state. Two functions: Philox for what must be beyond doubt, and noise, 6 instructions for 16 values.
   Philox     4x32-10: ten rounds of two 32 x 32 -> 64 products; passes TestU01's BigCrush.
   Noise      A 32-bit counter times the golden ratio (that is, one addition from lane to lane), key 0 added, through a
              finaliser of two multiplications, with key 1 between them, so that two streams are not the same walk
              begun elsewhere. One result serves two indices, the lower half one and the upper half the one 16
              further. The two keys are words of Philox. Multipliers and shifts of the finaliser were found by a
              search for the least bias. Without the golden ratio pairs of neighbours fail a chi-square test of 2^20;
              with it all of 1,638 such tests pass (steps 1 to 4096, lags 1 to 64, three places in the word), as
              Philox does. Of 32 bits a caller may ask for, the lower 16 are those of the index 16 away.
   Invariant  A group of 32 indices is one counter of each lane, whatever index a call starts at. Above 2^33 indices the
              counter is full: the index's upper bits then change both keys.
   Normal     Box and Muller: sqrt(-2 ln u) times cosine and sine of a random angle. Logarithm, sine and cosine are
              polynomials in fused multiply-adds (minimax fits, errors below half a unit in the last place of their
              terms), not the C library's, whose bits differ from machine to machine.
   Source     Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3 (SC11). Wellons: hash-prospector
              (multipliers 21f0aaad and d35a2d97, shifts 16, 15, 15). */
static void memopt_i_philox(uint32_t *out, uint64_t seed, uint64_t stream, uint64_t block) {
    uint32_t a = (uint32_t)block, b = (uint32_t)(block >> 32), c = (uint32_t)stream, d = (uint32_t)(stream >> 32);
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32); int round;
    for (round = 0; round < 10; ++round) {
        const uint64_t x = (uint64_t)0xd2511f53u * a, y = (uint64_t)0xcd9e8d57u * c;
        a = (uint32_t)(y >> 32) ^ b ^ key0; b = (uint32_t)y;
        c = (uint32_t)(x >> 32) ^ d ^ key1; d = (uint32_t)x;
        key0 += 0x9e3779b9u; key1 += 0xbb67ae85u;
    }
    out[0] = a; out[1] = b; out[2] = c; out[3] = d;
}
MEMOPT_API memopt_noise memopt_noise_make(uint64_t seed, uint64_t stream) {
    memopt_noise noise; uint32_t words[4];
    memopt_i_philox(words, seed, stream, ~(uint64_t)0); /* a block that no index reaches */
    noise.key[0] = words[0]; noise.key[1] = words[1];
    return noise;
}
/* The kernels below take multiples of 64 values; index is a multiple of 4. */
static void memopt_i_philox_words(uint32_t *dst, size_t n, uint64_t seed, uint64_t stream, uint64_t index) {
    size_t i;
    for (i = 0; i < n; i += 4) memopt_i_philox(dst + i, seed, stream, (index + i) >> 2);
}
static void memopt_i_uniform(float *dst, const uint32_t *words, size_t n) {
    size_t i;
    for (i = 0; i < n; ++i) dst[i] = (float)(words[i] >> 8) * (1.0f / 16777216.0f);
}
#define MEMOPT_I_LOG_0 0.333339095f
#define MEMOPT_I_LOG_1 (-0.250013381f)
#define MEMOPT_I_LOG_2 0.199630633f
#define MEMOPT_I_LOG_3 (-0.16577585f)
#define MEMOPT_I_LOG_4 0.149147674f
#define MEMOPT_I_LOG_5 (-0.142674863f)
#define MEMOPT_I_LOG_6 0.0870043635f
#define MEMOPT_I_LN_2  0.693147182f
#define MEMOPT_I_SIN_0 6.28318548f
#define MEMOPT_I_SIN_1 (-41.3416634f)
#define MEMOPT_I_SIN_2 81.5925522f
#define MEMOPT_I_SIN_3 (-75.4020691f)
#define MEMOPT_I_COS_0 (-19.7392082f)
#define MEMOPT_I_COS_1 64.9393234f
#define MEMOPT_I_COS_2 (-85.4437408f)
#define MEMOPT_I_COS_3 59.246f
#define MEMOPT_I_TWO_32 (1.0f / 4294967296.0f)
#if defined(__i386__) && !defined(__SSE2_MATH__)
#  define MEMOPT_I_X87 1 /* goes on with more bits than a float has, unless the float has been in memory */
#endif
static float memopt_i_rounded(float x) {
#if defined(MEMOPT_I_X87)
    volatile float stored = x;
    return stored;
#else
    return x;
#endif
}
/* sqrt(-2 ln((word + 1/2) / 2^32)) */
static float memopt_i_normal_radius(uint32_t word) {
    const uint32_t u = memopt_i_float_bits(fmaf((float)word, MEMOPT_I_TWO_32, 0.5f * MEMOPT_I_TWO_32));
    const uint32_t above = u - 0x3f3504f3; /* from sqrt(1/2): the mantissa then lies around 1 */
    const float exponent = (float)((int)((above + 0x20000000) >> 23) - 64);
    const float f = memopt_i_bits_float((above & 0x7fffff) + 0x3f3504f3) - 1.0f; float p = MEMOPT_I_LOG_6;
    p = fmaf(p, f, MEMOPT_I_LOG_5); p = fmaf(p, f, MEMOPT_I_LOG_4); p = fmaf(p, f, MEMOPT_I_LOG_3);
    p = fmaf(p, f, MEMOPT_I_LOG_2); p = fmaf(p, f, MEMOPT_I_LOG_1); p = fmaf(p, f, MEMOPT_I_LOG_0);
    p = fmaf(p, f, -0.5f);
    p = fmaf(f * f, p, f);
    p = fmaf(exponent, MEMOPT_I_LN_2, p);
    return memopt_i_rounded(sqrtf(-2.0f * p));
}
static void memopt_i_normal(float *dst, const uint32_t *words, size_t n) {
    size_t i;
    for (i = 0; i < n; i += 2) {
        const float r = memopt_i_normal_radius(words[i]);
        const uint32_t quarter = (words[i + 1] + 0x20000000) >> 30; /* the nearest multiple of a right angle */
        const float t = memopt_i_rounded((float)(int32_t)(words[i + 1] - (quarter << 30))) * MEMOPT_I_TWO_32, z = t * t;
        float s = MEMOPT_I_SIN_3, c = MEMOPT_I_COS_3; uint32_t x, y;
        s = fmaf(s, z, MEMOPT_I_SIN_2); s = fmaf(s, z, MEMOPT_I_SIN_1); s = fmaf(s, z, MEMOPT_I_SIN_0);
        c = fmaf(c, z, MEMOPT_I_COS_2); c = fmaf(c, z, MEMOPT_I_COS_1); c = fmaf(c, z, MEMOPT_I_COS_0);
        c = fmaf(c, z, 1.0f);
        s = memopt_i_rounded(s * t);
        x = memopt_i_float_bits(quarter & 1 ? s : c) ^ ((quarter + 1) & 2) << 30;
        y = memopt_i_float_bits(quarter & 1 ? c : s) ^ (quarter & 2) << 30;
        dst[i] = memopt_i_bits_float(x) * r;
        dst[i + 1] = memopt_i_bits_float(y) * r;
    }
}
#if defined(MEMOPT_I_X86)
#define MEMOPT_I_LAST_BLOCK 0x3fffffffffffffff /* after it comes block 0, as the index starts again */
/* Philox with a word in the lower half of each 64 bits: the product is where the next round wants it, and what is left
   in the upper half is never looked at. Blocks are dealt to the lanes so that unpacking puts them in order. */
MEMOPT_I_AVX512 static void memopt_i_philox_words_avx512(uint32_t *dst, size_t n, uint64_t seed, uint64_t stream,
                                                         uint64_t index) {
    const __m512i by_a = _mm512_set1_epi64(0xd2511f53), by_c = _mm512_set1_epi64(0xcd9e8d57);
    const __m512i lanes = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0), last = _mm512_set1_epi64(MEMOPT_I_LAST_BLOCK);
    size_t i; int round;
    for (i = 0; i < n; i += 32) { /* counters of 64 bits are added as such */
        const __m512i sum = _mm512_add_epi64(_mm512_set1_epi64((long long)((index + i) >> 2)), lanes);
        __m512i a = _mm512_and_si512(sum, last), b = _mm512_srli_epi64(a, 32);
        __m512i c = _mm512_set1_epi64((long long)stream), d = _mm512_srli_epi64(c, 32);
        uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
        for (round = 0; round < 10; ++round) {
            const __m512i x = _mm512_mul_epu32(a, by_a), y = _mm512_mul_epu32(c, by_c);
            a = _mm512_ternarylogic_epi64(_mm512_srli_epi64(y, 32), b, _mm512_set1_epi64(key0), 0x96); b = y;
            c = _mm512_ternarylogic_epi64(_mm512_srli_epi64(x, 32), d, _mm512_set1_epi64(key1), 0x96); d = x;
            key0 += 0x9e3779b9u; key1 += 0xbb67ae85u;
        }
        a = _mm512_mask_shuffle_epi32(a, 0xaaaa, b, (_MM_PERM_ENUM)0xa0);
        c = _mm512_mask_shuffle_epi32(c, 0xaaaa, d, (_MM_PERM_ENUM)0xa0);
        _mm512_storeu_si512(dst + i, _mm512_unpacklo_epi64(a, c));
        _mm512_storeu_si512(dst + i + 16, _mm512_unpackhi_epi64(a, c));
    }
}
MEMOPT_I_AVX512 static void memopt_i_uniform_avx512(float *dst, const uint32_t *words, size_t n) {
    const __m512 unit = _mm512_set1_ps(1.0f / 16777216.0f); size_t i;
    for (i = 0; i < n; i += 16)
        _mm512_storeu_ps(dst + i, _mm512_mul_ps(unit,
            _mm512_cvtepi32_ps(_mm512_srli_epi32(_mm512_loadu_si512(words + i), 8))));
}
MEMOPT_I_AVX512 static inline __m512 memopt_i_step512(__m512 p, __m512 x, float c) {
    return _mm512_fmadd_ps(p, x, _mm512_set1_ps(c));
}
MEMOPT_I_AVX512 static inline __m512 memopt_i_normal_radius512(__m512i word) {
    const __m512i root = _mm512_set1_epi32(0x3f3504f3);
    const __m512 whole = _mm512_cvtepu32_ps(word);
    const __m512 u = memopt_i_step512(whole, _mm512_set1_ps(MEMOPT_I_TWO_32), 0.5f * MEMOPT_I_TWO_32);
    const __m512i above = _mm512_sub_epi32(_mm512_castps_si512(u), root);
    const __m512 exponent = _mm512_cvtepi32_ps(_mm512_srai_epi32(above, 23));
    const __m512i near_one = _mm512_add_epi32(_mm512_and_si512(above, _mm512_set1_epi32(0x7fffff)), root);
    const __m512 f = _mm512_sub_ps(_mm512_castsi512_ps(near_one), _mm512_set1_ps(1.0f));
    __m512 p = memopt_i_step512(_mm512_set1_ps(MEMOPT_I_LOG_6), f, MEMOPT_I_LOG_5);
    p = memopt_i_step512(p, f, MEMOPT_I_LOG_4); p = memopt_i_step512(p, f, MEMOPT_I_LOG_3);
    p = memopt_i_step512(p, f, MEMOPT_I_LOG_2); p = memopt_i_step512(p, f, MEMOPT_I_LOG_1);
    p = memopt_i_step512(p, f, MEMOPT_I_LOG_0); p = memopt_i_step512(p, f, -0.5f);
    p = _mm512_fmadd_ps(_mm512_mul_ps(f, f), p, f);
    p = _mm512_fmadd_ps(exponent, _mm512_set1_ps(MEMOPT_I_LN_2), p);
    return _mm512_sqrt_ps(_mm512_mul_ps(p, _mm512_set1_ps(-2.0f)));
}
MEMOPT_I_AVX512 static void memopt_i_normal_avx512(float *dst, const uint32_t *words, size_t n) {
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i lower = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i one = _mm512_set1_epi32(1), two = _mm512_set1_epi32(2), odd = _mm512_or_si512(even, one);
    const __m512i upper = _mm512_add_epi32(lower, _mm512_set1_epi32(8)); size_t i;
    for (i = 0; i < n; i += 32) {
        const __m512i first = _mm512_loadu_si512(words + i), second = _mm512_loadu_si512(words + i + 16);
        const __m512i angle = _mm512_permutex2var_epi32(first, odd, second);
        const __m512 r = memopt_i_normal_radius512(_mm512_permutex2var_epi32(first, even, second));
        const __m512i quarter = _mm512_srli_epi32(_mm512_add_epi32(angle, _mm512_set1_epi32(0x20000000)), 30);
        const __m512 t = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(angle, _mm512_slli_epi32(quarter, 30))),
                                       _mm512_set1_ps(MEMOPT_I_TWO_32)), z = _mm512_mul_ps(t, t);
        const __mmask16 turned = _mm512_test_epi32_mask(quarter, one);
        __m512 s = memopt_i_step512(_mm512_set1_ps(MEMOPT_I_SIN_3), z, MEMOPT_I_SIN_2);
        __m512 c = memopt_i_step512(_mm512_set1_ps(MEMOPT_I_COS_3), z, MEMOPT_I_COS_2);
        __m512i x, y;
        s = memopt_i_step512(s, z, MEMOPT_I_SIN_1); s = memopt_i_step512(s, z, MEMOPT_I_SIN_0);
        c = memopt_i_step512(c, z, MEMOPT_I_COS_1); c = memopt_i_step512(c, z, MEMOPT_I_COS_0);
        c = memopt_i_step512(c, z, 1.0f);
        s = _mm512_mul_ps(s, t);
        x = _mm512_xor_si512(_mm512_castps_si512(_mm512_mask_blend_ps(turned, c, s)),
                             _mm512_slli_epi32(_mm512_and_si512(_mm512_add_epi32(quarter, one), two), 30));
        y = _mm512_xor_si512(_mm512_castps_si512(_mm512_mask_blend_ps(turned, s, c)),
                             _mm512_slli_epi32(_mm512_and_si512(quarter, two), 30));
        c = _mm512_mul_ps(_mm512_castsi512_ps(x), r); s = _mm512_mul_ps(_mm512_castsi512_ps(y), r);
        _mm512_storeu_ps(dst + i, _mm512_permutex2var_ps(c, lower, s));
        _mm512_storeu_ps(dst + i + 16, _mm512_permutex2var_ps(c, upper, s));
    }
}
MEMOPT_I_AVX2 static inline __m256i memopt_i_load256(const uint32_t *src) {
    return _mm256_loadu_si256((const __m256i *)(const void *)src);
}
MEMOPT_I_AVX2 static void memopt_i_philox_words_avx2(uint32_t *dst, size_t n, uint64_t seed, uint64_t stream,
                                                     uint64_t index) {
    const __m256i by_a = _mm256_set1_epi64x(0xd2511f53), by_c = _mm256_set1_epi64x(0xcd9e8d57);
    const __m256i lanes = _mm256_set_epi64x(3, 1, 2, 0), last = _mm256_set1_epi64x(MEMOPT_I_LAST_BLOCK);
    size_t i; int round;
    for (i = 0; i < n; i += 16) {
        const __m256i sum = _mm256_add_epi64(_mm256_set1_epi64x((long long)((index + i) >> 2)), lanes);
        __m256i a = _mm256_and_si256(sum, last), b = _mm256_srli_epi64(a, 32);
        __m256i c = _mm256_set1_epi64x((long long)stream), d = _mm256_srli_epi64(c, 32);
        uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
        for (round = 0; round < 10; ++round) {
            const __m256i x = _mm256_mul_epu32(a, by_a), y = _mm256_mul_epu32(c, by_c);
            a = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(y, 32), b), _mm256_set1_epi64x(key0)); b = y;
            c = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(x, 32), d), _mm256_set1_epi64x(key1)); d = x;
            key0 += 0x9e3779b9u; key1 += 0xbb67ae85u;
        }
        a = _mm256_blend_epi32(a, _mm256_slli_epi64(b, 32), 0xaa);
        c = _mm256_blend_epi32(c, _mm256_slli_epi64(d, 32), 0xaa);
        _mm256_storeu_si256((__m256i *)(void *)(dst + i), _mm256_unpacklo_epi64(a, c));
        _mm256_storeu_si256((__m256i *)(void *)(dst + i + 8), _mm256_unpackhi_epi64(a, c));
    }
}
MEMOPT_I_AVX2 static void memopt_i_uniform_avx2(float *dst, const uint32_t *words, size_t n) {
    const __m256 unit = _mm256_set1_ps(1.0f / 16777216.0f); size_t i;
    for (i = 0; i < n; i += 8)
        _mm256_storeu_ps(dst + i, _mm256_mul_ps(unit,
            _mm256_cvtepi32_ps(_mm256_srli_epi32(memopt_i_load256(words + i), 8))));
}
MEMOPT_I_AVX2 static inline __m256 memopt_i_step256(__m256 p, __m256 x, float c) {
    return _mm256_fmadd_ps(p, x, _mm256_set1_ps(c));
}
MEMOPT_I_AVX2 static inline __m256 memopt_i_normal_radius256(__m256i word) {
    const __m256i root = _mm256_set1_epi32(0x3f3504f3);
    const __m256 high = _mm256_cvtepi32_ps(_mm256_srli_epi32(word, 16)); /* exact halves: their sum rounds once */
    const __m256 low = _mm256_cvtepi32_ps(_mm256_and_si256(word, _mm256_set1_epi32(0xffff)));
    const __m256 whole = _mm256_fmadd_ps(high, _mm256_set1_ps(65536.0f), low);
    const __m256 u = memopt_i_step256(whole, _mm256_set1_ps(MEMOPT_I_TWO_32), 0.5f * MEMOPT_I_TWO_32);
    const __m256i above = _mm256_sub_epi32(_mm256_castps_si256(u), root);
    const __m256 exponent = _mm256_cvtepi32_ps(_mm256_srai_epi32(above, 23));
    const __m256i near_one = _mm256_add_epi32(_mm256_and_si256(above, _mm256_set1_epi32(0x7fffff)), root);
    const __m256 f = _mm256_sub_ps(_mm256_castsi256_ps(near_one), _mm256_set1_ps(1.0f));
    __m256 p = memopt_i_step256(_mm256_set1_ps(MEMOPT_I_LOG_6), f, MEMOPT_I_LOG_5);
    p = memopt_i_step256(p, f, MEMOPT_I_LOG_4); p = memopt_i_step256(p, f, MEMOPT_I_LOG_3);
    p = memopt_i_step256(p, f, MEMOPT_I_LOG_2); p = memopt_i_step256(p, f, MEMOPT_I_LOG_1);
    p = memopt_i_step256(p, f, MEMOPT_I_LOG_0); p = memopt_i_step256(p, f, -0.5f);
    p = _mm256_fmadd_ps(_mm256_mul_ps(f, f), p, f);
    p = _mm256_fmadd_ps(exponent, _mm256_set1_ps(MEMOPT_I_LN_2), p);
    return _mm256_sqrt_ps(_mm256_mul_ps(p, _mm256_set1_ps(-2.0f)));
}
MEMOPT_I_AVX2 static void memopt_i_normal_avx2(float *dst, const uint32_t *words, size_t n) {
    const __m256i one = _mm256_set1_epi32(1), two = _mm256_set1_epi32(2); size_t i;
    for (i = 0; i < n; i += 16) { /* shuffled out of order by halves, and unpacked back into it */
        const __m256 first = _mm256_castsi256_ps(memopt_i_load256(words + i));
        const __m256 second = _mm256_castsi256_ps(memopt_i_load256(words + i + 8));
        const __m256i angle = _mm256_castps_si256(_mm256_shuffle_ps(first, second, 0xdd));
        const __m256 r = memopt_i_normal_radius256(_mm256_castps_si256(_mm256_shuffle_ps(first, second, 0x88)));
        const __m256i quarter = _mm256_srli_epi32(_mm256_add_epi32(angle, _mm256_set1_epi32(0x20000000)), 30);
        const __m256 t = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(angle, _mm256_slli_epi32(quarter, 30))),
                                       _mm256_set1_ps(MEMOPT_I_TWO_32)), z = _mm256_mul_ps(t, t);
        const __m256 turned = _mm256_castsi256_ps(_mm256_slli_epi32(quarter, 31));
        __m256 s = memopt_i_step256(_mm256_set1_ps(MEMOPT_I_SIN_3), z, MEMOPT_I_SIN_2);
        __m256 c = memopt_i_step256(_mm256_set1_ps(MEMOPT_I_COS_3), z, MEMOPT_I_COS_2), x, y;
        s = memopt_i_step256(s, z, MEMOPT_I_SIN_1); s = memopt_i_step256(s, z, MEMOPT_I_SIN_0);
        c = memopt_i_step256(c, z, MEMOPT_I_COS_1); c = memopt_i_step256(c, z, MEMOPT_I_COS_0);
        c = memopt_i_step256(c, z, 1.0f);
        s = _mm256_mul_ps(s, t);
        x = _mm256_xor_ps(_mm256_blendv_ps(c, s, turned), _mm256_castsi256_ps(
            _mm256_slli_epi32(_mm256_and_si256(_mm256_add_epi32(quarter, one), two), 30)));
        y = _mm256_xor_ps(_mm256_blendv_ps(s, c, turned),
                          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_and_si256(quarter, two), 30)));
        x = _mm256_mul_ps(x, r); y = _mm256_mul_ps(y, r);
        _mm256_storeu_ps(dst + i, _mm256_unpacklo_ps(x, y));
        _mm256_storeu_ps(dst + i + 8, _mm256_unpackhi_ps(x, y));
    }
}
#endif
#if defined(MEMOPT_I_NEON)
static void memopt_i_philox_words_neon(uint32_t *dst, size_t n, uint64_t seed, uint64_t stream, uint64_t index) {
    size_t i; int round;
    for (i = 0; i < n; i += 8) { /* two blocks */
        const uint64x2_t block = vcombine_u64(vcreate_u64((index + i) >> 2), vcreate_u64((index + i + 4) >> 2));
        uint32x2_t a = vmovn_u64(block), b = vshrn_n_u64(block, 32);
        uint32x2_t c = vdup_n_u32((uint32_t)stream), d = vdup_n_u32((uint32_t)(stream >> 32));
        uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32); uint32x2x2_t ab, cd;
        for (round = 0; round < 10; ++round) {
            const uint64x2_t x = vmull_u32(a, vdup_n_u32(0xd2511f53u)), y = vmull_u32(c, vdup_n_u32(0xcd9e8d57u));
            a = veor_u32(veor_u32(vshrn_n_u64(y, 32), b), vdup_n_u32(key0)); b = vmovn_u64(y);
            c = veor_u32(veor_u32(vshrn_n_u64(x, 32), d), vdup_n_u32(key1)); d = vmovn_u64(x);
            key0 += 0x9e3779b9u; key1 += 0xbb67ae85u;
        }
        ab = vzip_u32(a, b); cd = vzip_u32(c, d);
        vst1q_u32(dst + i, vcombine_u32(ab.val[0], cd.val[0]));
        vst1q_u32(dst + i + 4, vcombine_u32(ab.val[1], cd.val[1]));
    }
}
static void memopt_i_uniform_neon(float *dst, const uint32_t *words, size_t n) {
    size_t i;
    for (i = 0; i < n; i += 4)
        vst1q_f32(dst + i, vmulq_n_f32(vcvtq_f32_u32(vshrq_n_u32(vld1q_u32(words + i), 8)), 1.0f / 16777216.0f));
}
static float32x4_t memopt_i_step_neon(float32x4_t p, float32x4_t x, float c) { return vfmaq_f32(vdupq_n_f32(c), p, x); }
static float32x4_t memopt_i_normal_radius_neon(uint32x4_t word) {
    const uint32x4_t root = vdupq_n_u32(0x3f3504f3);
    const float32x4_t u = memopt_i_step_neon(vcvtq_f32_u32(word), vdupq_n_f32(MEMOPT_I_TWO_32), 0.5f * MEMOPT_I_TWO_32);
    const uint32x4_t above = vsubq_u32(vreinterpretq_u32_f32(u), root);
    const float32x4_t exponent = vcvtq_f32_s32(vshrq_n_s32(vreinterpretq_s32_u32(above), 23));
    const uint32x4_t near_one = vaddq_u32(vandq_u32(above, vdupq_n_u32(0x7fffff)), root);
    const float32x4_t f = vsubq_f32(vreinterpretq_f32_u32(near_one), vdupq_n_f32(1.0f));
    float32x4_t p = memopt_i_step_neon(vdupq_n_f32(MEMOPT_I_LOG_6), f, MEMOPT_I_LOG_5);
    p = memopt_i_step_neon(p, f, MEMOPT_I_LOG_4); p = memopt_i_step_neon(p, f, MEMOPT_I_LOG_3);
    p = memopt_i_step_neon(p, f, MEMOPT_I_LOG_2); p = memopt_i_step_neon(p, f, MEMOPT_I_LOG_1);
    p = memopt_i_step_neon(p, f, MEMOPT_I_LOG_0); p = memopt_i_step_neon(p, f, -0.5f);
    p = vfmaq_f32(f, vmulq_f32(f, f), p);
    p = vfmaq_f32(p, exponent, vdupq_n_f32(MEMOPT_I_LN_2));
    return vsqrtq_f32(vmulq_n_f32(p, -2.0f));
}
static void memopt_i_normal_neon(float *dst, const uint32_t *words, size_t n) {
    const uint32x4_t one = vdupq_n_u32(1), two = vdupq_n_u32(2); size_t i;
    for (i = 0; i < n; i += 8) {
        const uint32x4x2_t pair = vld2q_u32(words + i);
        const float32x4_t r = memopt_i_normal_radius_neon(pair.val[0]);
        const uint32x4_t quarter = vshrq_n_u32(vaddq_u32(pair.val[1], vdupq_n_u32(0x20000000)), 30);
        const int32x4_t rest = vreinterpretq_s32_u32(vsubq_u32(pair.val[1], vshlq_n_u32(quarter, 30)));
        const float32x4_t t = vmulq_n_f32(vcvtq_f32_s32(rest), MEMOPT_I_TWO_32), z = vmulq_f32(t, t);
        const uint32x4_t turned = vtstq_u32(quarter, one);
        float32x4_t s = memopt_i_step_neon(vdupq_n_f32(MEMOPT_I_SIN_3), z, MEMOPT_I_SIN_2);
        float32x4_t c = memopt_i_step_neon(vdupq_n_f32(MEMOPT_I_COS_3), z, MEMOPT_I_COS_2); float32x4x2_t out;
        uint32x4_t x, y;
        s = memopt_i_step_neon(s, z, MEMOPT_I_SIN_1); s = memopt_i_step_neon(s, z, MEMOPT_I_SIN_0);
        c = memopt_i_step_neon(c, z, MEMOPT_I_COS_1); c = memopt_i_step_neon(c, z, MEMOPT_I_COS_0);
        c = memopt_i_step_neon(c, z, 1.0f);
        s = vmulq_f32(s, t);
        x = veorq_u32(vreinterpretq_u32_f32(vbslq_f32(turned, s, c)),
                      vshlq_n_u32(vandq_u32(vaddq_u32(quarter, one), two), 30));
        y = veorq_u32(vreinterpretq_u32_f32(vbslq_f32(turned, c, s)), vshlq_n_u32(vandq_u32(quarter, two), 30));
        out.val[0] = vmulq_f32(vreinterpretq_f32_u32(x), r);
        out.val[1] = vmulq_f32(vreinterpretq_f32_u32(y), r);
        vst2q_f32(dst + i, out);
    }
}
#endif
static void memopt_i_philox_words_at(int level, uint32_t *dst, size_t n, uint64_t seed, uint64_t stream,
                                     uint64_t index) {
    (void)level;
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) { memopt_i_philox_words_avx512(dst, n, seed, stream, index); return; }
    if (level >= MEMOPT_SIMD_AVX2) { memopt_i_philox_words_avx2(dst, n, seed, stream, index); return; }
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) { memopt_i_philox_words_neon(dst, n, seed, stream, index); return; }
#endif
    memopt_i_philox_words(dst, n, seed, stream, index);
}
static void memopt_i_uniform_at(int level, float *dst, const uint32_t *words, size_t n) {
    (void)level;
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) { memopt_i_uniform_avx512(dst, words, n); return; }
    if (level >= MEMOPT_SIMD_AVX2) { memopt_i_uniform_avx2(dst, words, n); return; }
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) { memopt_i_uniform_neon(dst, words, n); return; }
#endif
    memopt_i_uniform(dst, words, n);
}
static void memopt_i_normal_at(int level, float *dst, const uint32_t *words, size_t n) {
    (void)level;
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) { memopt_i_normal_avx512(dst, words, n); return; }
    if (level >= MEMOPT_SIMD_AVX2) { memopt_i_normal_avx2(dst, words, n); return; }
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) { memopt_i_normal_neon(dst, words, n); return; }
#endif
    memopt_i_normal(dst, words, n);
}

#define MEMOPT_I_RANDOM_CHUNK ((size_t)1 << 16) /* values: fixed, so that the data alone decides how work is cut */
enum { MEMOPT_I_RANDOM_BITS, MEMOPT_I_RANDOM_UNIFORM, MEMOPT_I_RANDOM_NORMAL };
typedef struct memopt_i_random_task {
    unsigned char *dst; /* of 4-byte elements */
    size_t n;
    uint64_t seed, stream, first;
    int level, kind;
} memopt_i_random_task;
/* Pieces of at most 256 values: the words of whole blocks, then made into floats; the ends of a stream's part are
   inside a block, so all of it goes through the stack. */
static void memopt_i_random_chunk(void *task, size_t chunk, int worker) {
    const memopt_i_random_task *t = (const memopt_i_random_task *)task;
    const size_t begin = chunk * MEMOPT_I_RANDOM_CHUNK, end = begin + memopt_i_min(t->n - begin, MEMOPT_I_RANDOM_CHUNK);
    size_t i = begin;
    uint32_t words[256]; float values[256];
    (void)worker;
    while (i < end) {
        const uint64_t index = t->first + i; const size_t skip = (size_t)(index & 3);
        const size_t count = memopt_i_min(end - i, 256 - skip), whole = (skip + count + 63) & ~(size_t)63;
        const void *bits = words + skip, *floats = values + skip;
        memopt_i_philox_words_at(t->level, words, whole, t->seed, t->stream, index - skip);
        if (t->kind == MEMOPT_I_RANDOM_UNIFORM) memopt_i_uniform_at(t->level, values, words, whole);
        if (t->kind == MEMOPT_I_RANDOM_NORMAL) memopt_i_normal_at(t->level, values, words, whole);
        memcpy(t->dst + i * 4, t->kind == MEMOPT_I_RANDOM_BITS ? bits : floats, count * 4);
        i += count;
    }
    memopt_i_wide_end(t->level);
}
static memopt_status memopt_i_random(void *dst, int kind, size_t n, uint64_t seed, uint64_t stream, uint64_t first,
                                     const memopt_threads *threads) {
    memopt_i_random_task t;
    if ((!dst && n) || ((uintptr_t)dst & 3)) return MEMOPT_ERR_ARGUMENT;
    if (threads && !memopt_i_threads_valid(threads)) return MEMOPT_ERR_ARGUMENT;
    if (n > SIZE_MAX / 4) return MEMOPT_ERR_OVERFLOW;
    t.dst = (unsigned char *)dst; t.n = n; t.seed = seed; t.stream = stream; t.first = first;
    t.level = memopt_i_simd_level(threads); t.kind = kind;
    memopt_i_run(threads, n / MEMOPT_I_RANDOM_CHUNK + (n % MEMOPT_I_RANDOM_CHUNK != 0), memopt_i_random_chunk, &t);
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_random_bits(uint32_t *dst, size_t n, uint64_t seed, uint64_t stream, uint64_t first,
                                            const memopt_threads *threads) {
    return memopt_i_random(dst, MEMOPT_I_RANDOM_BITS, n, seed, stream, first, threads);
}
MEMOPT_API memopt_status memopt_random_uniform(float *dst, size_t n, uint64_t seed, uint64_t stream, uint64_t first,
                                               const memopt_threads *threads) {
    return memopt_i_random(dst, MEMOPT_I_RANDOM_UNIFORM, n, seed, stream, first, threads);
}
MEMOPT_API memopt_status memopt_random_normal(float *dst, size_t n, uint64_t seed, uint64_t stream, uint64_t first,
                                              const memopt_threads *threads) {
    return memopt_i_random(dst, MEMOPT_I_RANDOM_NORMAL, n, seed, stream, first, threads);
}
/* @section number : simd random api_number
   Problem    Half the bytes are half the time, if the conversion costs nothing; but the conversions in use are slow, or
              lose NaN, or flush denormals, or give other bits in the last seven elements than in the rest.
   Idea       The scalar functions of the declarations are the definition, in plain integers. Wide ones treat a group of
              32 or 64 without a branch, and look once whether it holds what they cannot do; if so, the definition
              (or a slower wide form) does that group.
   Invariant  Whatever is wide is told by a level, and has the bits of the definition, ends included.
   Trap       vcvtne2ps2bf16 takes denormals for zero, so one test for 64 elements finds them (zeros get a second one).
              A magic float addition would depend on the rounding mode; shifts do not. gcc 12 forgets to clear the
              upper halves before a call that ends a function, and then whatever comes next is slow: done by hand.
   Cost       Stores past the cache spare the memory reading what is overwritten, a fifth to a half of the traffic; they
              lose where the result is soon read again, so only MEMOPT_I_NUMBER_STREAM bytes and more are streamed.
              Streaming alone waits for its loads: the lines that come are asked for 8 KiB ahead, into the second
              level. That takes bf16 from 0.79 of memcpy's speed to 0.94.
   Split      An even bf16 is the nearest (ties to even) of 65,537 floats, so 16 bits more cannot tell them apart: here
              ties go away from zero. The NaN with nothing in their upper mantissa have to live where no float
              rounds to: the signalling 0x7f80xxxx show as infinity, or (xxxx from 8000 on) as zero.
   Stochastic (bits + 16 random bits) >> 16 for bf16: exact values stay, and what is added carries with the probability
              that lies between. The small formats drop up to 31 bits, compared with as many random ones, of which the
              upper 16 are the index's own and the lower 15 are lent by its neighbour in the noise's lane. */
#define MEMOPT_I_NUMBER_CHUNK  ((size_t)1 << 16) /* elements: fixed, so that the data alone decides how work is cut */
#define MEMOPT_I_NUMBER_STREAM ((size_t)8 << 20) /* bytes of the result */
enum { MEMOPT_I_BF16, MEMOPT_I_F16, MEMOPT_I_E4M3, MEMOPT_I_E5M2, MEMOPT_I_SPLIT };
/* What the wide code has to know of a format. */
typedef struct memopt_i_format {
    uint32_t bits, lowest;    /* of the mantissa; float32's exponent of the smallest normal number */
    uint32_t sign_shift;      /* the sign, from bit 31 */
    uint32_t largest, beyond; /* as float32: the largest, and the first that nearest takes beyond it */
    uint32_t over, nan;       /* codes: of what is beyond, of a NaN */
    uint32_t payload;         /* bits of it that a NaN keeps */
} memopt_i_format;
#if defined(MEMOPT_I_X86) || defined(MEMOPT_I_NEON)
static memopt_i_format memopt_i_format_of(int kind, int saturate) {
    static const memopt_i_format formats[3] = {
        { 10, 113, 16, 0x477fe000, 0x477ff000, 0x7c00, 0x7e00, 0x3ff },
        { 3, 121, 24, 0x43e00000, 0x43e80001, 0x7f, 0x7f, 0 },
        { 2, 113, 24, 0x47600000, 0x47700000, 0x7c, 0x7e, 3 } };
    memopt_i_format f = formats[kind - MEMOPT_I_F16];
    if (saturate) --f.over; /* the code before infinity, or before e4m3's NaN, is the largest */
    return f;
}
#endif

/* The definition, for arrays. Bits are moved as bits: through an x87 register a signalling NaN would become quiet. */
static uint32_t memopt_i_get_bits(const float *src) { uint32_t u; memcpy(&u, src, 4); return u; }
static void memopt_i_put_bits(float *dst, uint32_t u) { memcpy(dst, &u, 4); }
static void memopt_i_bf16_from_f32(uint16_t *dst, const float *src, size_t n) {
    size_t i;
    for (i = 0; i < n; ++i) dst[i] = (uint16_t)memopt_i_bf16_code(memopt_i_get_bits(src + i), 0, 0);
}
static void memopt_i_bf16_noise(uint16_t *dst, const float *src, size_t n, memopt_noise noise, uint64_t first) {
    size_t i;
    for (i = 0; i < n; ++i)
        dst[i] = (uint16_t)memopt_i_bf16_code(memopt_i_get_bits(src + i), 1, memopt_i_noise32(noise, first + i));
}
static void memopt_i_f32_from_bf16(float *dst, const uint16_t *src, size_t n) {
    size_t i;
    for (i = 0; i < n; ++i) memopt_i_put_bits(dst + i, (uint32_t)src[i] << 16);
}
static uint32_t memopt_i_small_code(int kind, int saturate, uint32_t u, int stochastic, uint32_t random) {
    if (kind == MEMOPT_I_F16) return memopt_i_f16_code(u, stochastic, random);
    if (kind == MEMOPT_I_E4M3) return memopt_i_e4m3_code(u, saturate, stochastic, random);
    return memopt_i_e5m2_code(u, saturate, stochastic, random);
}
/* From i to n, what a wide loop has left. noise NULL: to nearest */
static void memopt_i_small_from_f32(void *dst, const float *src, size_t i, size_t n, int kind, int saturate,
                                    const memopt_noise *noise, uint64_t first) {
    uint16_t *two = (uint16_t *)dst; uint8_t *one = (uint8_t *)dst;
    for (; i < n; ++i) {
        const uint32_t code = memopt_i_small_code(kind, saturate, memopt_i_get_bits(src + i), noise != NULL,
                                                  noise ? memopt_i_noise32(*noise, first + i) : 0);
        if (kind == MEMOPT_I_F16) two[i] = (uint16_t)code;
        else one[i] = (uint8_t)code;
    }
}
static void memopt_i_f32_from_small(float *dst, const void *src, size_t i, size_t n, int kind) {
    const uint16_t *two = (const uint16_t *)src; const uint8_t *one = (const uint8_t *)src;
    for (; i < n; ++i)
        memopt_i_put_bits(dst + i, kind == MEMOPT_I_F16 ? memopt_i_f16_bits(two[i])
                                 : kind == MEMOPT_I_E4M3 ? memopt_i_e4m3_bits(one[i])
                                 : memopt_i_f16_bits((uint32_t)one[i] << 8));
}
static void memopt_i_split(uint16_t *high, uint16_t *low, const float *src, size_t n) {
    size_t i;
    for (i = 0; i < n; ++i) {
        const uint32_t u = memopt_i_get_bits(src + i);
        high[i] = (uint16_t)memopt_i_split_high(u);
        low[i] = (uint16_t)(u & 0xffff);
    }
}
static void memopt_i_join_halves(float *dst, const uint16_t *high, const uint16_t *low, size_t n) {
    size_t i;
    for (i = 0; i < n; ++i) memopt_i_put_bits(dst + i, memopt_i_join(high[i], low[i]));
}
/* a * b + c where a * b is exact, as squares of floats are in doubles: one rounding, fused or not. The x87 would round
   twice, to its own format and to a double. */
static double memopt_i_plus(double a, double b, double c) {
#if defined(MEMOPT_I_X87)
    return fma(a, b, c);
#else
    return a * b + c;
#endif
}
/* The 16 sums of squares: element i in sum i % 16. */
static void memopt_i_squares(double *sums, const float *x, size_t n) {
    size_t i;
    for (i = 0; i < n; ++i) sums[i & 15] = memopt_i_plus((double)x[i], (double)x[i], sums[i & 15]);
}
#define MEMOPT_I_NOISE_STEP 0x9e3779b9u /* from one lane's counter to the next */
/* Where a run of groups of 32 indices starts; the index's bits from 33 up are the same in all of it. */
typedef struct memopt_i_noise_run { uint32_t counter, key; } memopt_i_noise_run;
#if defined(MEMOPT_I_X86) || defined(MEMOPT_I_NEON)
static memopt_i_noise_run memopt_i_noise_from(memopt_noise noise, uint64_t first) {
    const uint32_t high = (uint32_t)(first >> 33); memopt_i_noise_run run;
    run.counter = ((uint32_t)(first >> 5) << 4) * MEMOPT_I_NOISE_STEP + noise.key[0] + high * 0x85ebca6bu;
    run.key = noise.key[1] ^ high * 0xc2b2ae35u;
    return run;
}
#endif

#if defined(MEMOPT_I_X86)
/* AVX-512. With `stream`, stores go past the cache (dst is then aligned) and loads are asked for in advance. */
MEMOPT_I_AVX512 static inline void memopt_i_put512(void *dst, __m512i v, int stream) {
    if (stream) _mm512_stream_si512((__m512i *)dst, v);
    else _mm512_storeu_si512(dst, v);
}
MEMOPT_I_AVX512 static inline void memopt_i_put256(void *dst, __m256i v, int stream) {
    if (stream) _mm256_stream_si256((__m256i *)dst, v);
    else _mm256_storeu_si256((__m256i *)dst, v);
}
/* The cache line 8 KiB further; beyond an array it does no harm. Macros: gcc takes a function that only does this for
   one that does nothing. */
#define MEMOPT_I_AHEAD(src) __builtin_prefetch((const void *)((uintptr_t)(src) + 8192), 0, 2)
#define MEMOPT_I_AHEAD_32(src) do { MEMOPT_I_AHEAD(src); MEMOPT_I_AHEAD((src) + 16); } while (0) /* of 32 floats */
MEMOPT_I_AVX512 static inline __m512i memopt_i_words512(__m512i a, __m512i b) { /* the upper halves of 32 */
    const __m512i order = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33,
                                           31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(a, order, b);
}
MEMOPT_I_AVX512 static inline __m512i memopt_i_bf16_512(__m512 x) { /* in the upper halves; NaN included */
    const __m512i u = _mm512_castps_si512(x), lsb = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), lsb);
    return _mm512_mask_or_epi32(r, _mm512_fpclass_ps_mask(x, 0x81), u, _mm512_set1_epi32(0x400000));
}
MEMOPT_I_AVX512 static inline __m512i memopt_i_bf16_pair512(const float *src) {
    return memopt_i_words512(memopt_i_bf16_512(_mm512_loadu_ps(src)), memopt_i_bf16_512(_mm512_loadu_ps(src + 16)));
}
MEMOPT_I_AVX512 static void memopt_i_bf16_from_f32_avx512(uint16_t *dst, const float *src, size_t n, int stream) {
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        if (stream) { MEMOPT_I_AHEAD_32(src + i); MEMOPT_I_AHEAD_32(src + i + 32); }
        memopt_i_put512(dst + i, memopt_i_bf16_pair512(src + i), stream);
        memopt_i_put512(dst + i + 32, memopt_i_bf16_pair512(src + i + 32), stream);
    }
    _mm256_zeroupper();
    memopt_i_bf16_from_f32(dst + i, src + i, n - i);
}
/* Zeros and denormals; then denormals alone. By bits: vfpclassps sees none where a program has told the processor to
   take denormals for zeros, as one linked with -ffast-math does. */
MEMOPT_I_AVX512 static inline __mmask16 memopt_i_tiny512(__m512 x) {
    return _mm512_testn_epi32_mask(_mm512_castps_si512(x), _mm512_set1_epi32(0x7f800000));
}
MEMOPT_I_AVX512 static inline int memopt_i_denormal512(__m512 a, __m512 b, __m512 c, __m512 d) {
    const __m512i mantissa = _mm512_set1_epi32(0x7fffff);
    return (_mm512_mask_test_epi32_mask(memopt_i_tiny512(a), _mm512_castps_si512(a), mantissa)
          | _mm512_mask_test_epi32_mask(memopt_i_tiny512(b), _mm512_castps_si512(b), mantissa)
          | _mm512_mask_test_epi32_mask(memopt_i_tiny512(c), _mm512_castps_si512(c), mantissa)
          | _mm512_mask_test_epi32_mask(memopt_i_tiny512(d), _mm512_castps_si512(d), mantissa)) != 0;
}
MEMOPT_I_AVX512_BF16 static void memopt_i_bf16_from_f32_avx512_bf16(uint16_t *dst, const float *src, size_t n,
                                                                    int stream) {
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        const __m512 a = _mm512_loadu_ps(src + i), b = _mm512_loadu_ps(src + i + 16);
        const __m512 c = _mm512_loadu_ps(src + i + 32), d = _mm512_loadu_ps(src + i + 48);
        const unsigned tiny = (unsigned)memopt_i_tiny512(a) | (unsigned)memopt_i_tiny512(b)
                            | (unsigned)memopt_i_tiny512(c) | (unsigned)memopt_i_tiny512(d);
        __m512i low = (__m512i)_mm512_cvtne2ps_pbh(b, a), high = (__m512i)_mm512_cvtne2ps_pbh(d, c);
        if (stream) { MEMOPT_I_AHEAD_32(src + i); MEMOPT_I_AHEAD_32(src + i + 32); }
        if (MEMOPT_I_UNLIKELY(tiny) && memopt_i_denormal512(a, b, c, d)) {
            low = memopt_i_words512(memopt_i_bf16_512(a), memopt_i_bf16_512(b));
            high = memopt_i_words512(memopt_i_bf16_512(c), memopt_i_bf16_512(d));
        }
        memopt_i_put512(dst + i, low, stream);
        memopt_i_put512(dst + i + 32, high, stream);
    }
    _mm256_zeroupper();
    memopt_i_bf16_from_f32(dst + i, src + i, n - i);
}
MEMOPT_I_AVX512 static void memopt_i_f32_from_bf16_avx512(float *dst, const uint16_t *src, size_t n, int stream) {
    size_t i = 0, k;
    for (; i + 64 <= n; i += 64) {
        if (stream) { MEMOPT_I_AHEAD(src + i); MEMOPT_I_AHEAD(src + i + 32); }
        for (k = 0; k < 64; k += 16) {
            const __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)(src + i + k));
            memopt_i_put512(dst + i + k, _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16), stream);
        }
    }
    _mm256_zeroupper();
    memopt_i_f32_from_bf16(dst + i, src + i, n - i);
}
MEMOPT_I_AVX512 static inline __m512i memopt_i_hash512(__m512i x, __m512i key) {
    x = _mm512_mullo_epi32(_mm512_xor_si512(x, _mm512_srli_epi32(x, 16)), _mm512_set1_epi32(0x21f0aaad));
    x = _mm512_ternarylogic_epi32(x, _mm512_srli_epi32(x, 15), key, 0x96);
    x = _mm512_mullo_epi32(x, _mm512_set1_epi32((int)0xd35a2d97u));
    return _mm512_xor_si512(x, _mm512_srli_epi32(x, 15));
}
MEMOPT_I_AVX512 static inline __m512i memopt_i_counter512(memopt_i_noise_run run) {
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_add_epi32(_mm512_set1_epi32((int)run.counter),
                            _mm512_mullo_epi32(lanes, _mm512_set1_epi32((int)MEMOPT_I_NOISE_STEP)));
}
/* n is a multiple of 32, first as well */
MEMOPT_I_AVX512 static void memopt_i_bf16_noise_avx512(uint16_t *dst, const float *src, size_t n, memopt_noise noise,
                                                       uint64_t first, int stream) {
    const memopt_i_noise_run run = memopt_i_noise_from(noise, first); size_t i;
    const __m512i key = _mm512_set1_epi32((int)run.key), step = _mm512_set1_epi32((int)(16 * MEMOPT_I_NOISE_STEP));
    const __m512i most = _mm512_set1_epi32((int)0xfefe0000u); __m512i counter = memopt_i_counter512(run);
    for (i = 0; i < n; i += 32) {
        const __m512i a = _mm512_loadu_si512(src + i), b = _mm512_loadu_si512(src + i + 16);
        const __m512i h = memopt_i_hash512(counter, key);
        const __m512i top = _mm512_max_epu32(_mm512_add_epi32(a, a), _mm512_add_epi32(b, b));
        const __m512i low = _mm512_add_epi32(a, _mm512_and_si512(h, _mm512_set1_epi32(0xffff)));
        const __m512i high = _mm512_add_epi32(b, _mm512_srli_epi32(h, 16));
        counter = _mm512_add_epi32(counter, step);
        if (stream) MEMOPT_I_AHEAD_32(src + i);
        if (MEMOPT_I_UNLIKELY(_mm512_cmpgt_epu32_mask(top, most))) /* beyond the largest bf16, infinity, NaN */
            memopt_i_bf16_noise(dst + i, src + i, 32, noise, first + i);
        else memopt_i_put512(dst + i, memopt_i_words512(low, high), stream);
    }
}
MEMOPT_I_AVX512 static void memopt_i_split_avx512(uint16_t *high, uint16_t *low, const float *src, size_t n,
                                                  int stream) {
    const __m512i order = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32,
                                           30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i half = _mm512_set1_epi32(0x8000); size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m512i a = _mm512_loadu_si512(src + i), b = _mm512_loadu_si512(src + i + 16);
        const unsigned nan = (unsigned)_mm512_fpclass_ps_mask(_mm512_castsi512_ps(a), 0x81)
                           | (unsigned)_mm512_fpclass_ps_mask(_mm512_castsi512_ps(b), 0x81);
        if (stream) MEMOPT_I_AHEAD_32(src + i);
        if (MEMOPT_I_UNLIKELY(nan)) { memopt_i_split(high + i, low + i, src + i, 32); continue; }
        memopt_i_put512(high + i, memopt_i_words512(_mm512_add_epi32(a, half), _mm512_add_epi32(b, half)), stream);
        memopt_i_put512(low + i, _mm512_permutex2var_epi16(a, order, b), stream);
    }
    _mm256_zeroupper();
    memopt_i_split(high + i, low + i, src + i, n - i);
}
MEMOPT_I_AVX512 static void memopt_i_join_avx512(float *dst, const uint16_t *high, const uint16_t *low, size_t n,
                                                 int stream) {
    const __m512i lows = _mm512_set1_epi32(0xffff), infinity = _mm512_set1_epi32(0x7f800000); size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512i h = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(high + i)));
        const __m512i l = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(low + i)));
        /* high << 16, less 65536 where the low half made it round up: that is less low's own top bit, doubled */
        const __m512i u = _mm512_or_si512(l, _mm512_sub_epi32(_mm512_slli_epi32(h, 16),
                          _mm512_andnot_si512(lows, _mm512_add_epi32(l, l))));
        if (stream && !(i & 16)) { MEMOPT_I_AHEAD(high + i); MEMOPT_I_AHEAD(low + i); }
        if (MEMOPT_I_UNLIKELY(_mm512_cmpge_epu32_mask(_mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff)), infinity)))
            memopt_i_join_halves(dst + i, high + i, low + i, 16);
        else memopt_i_put512(dst + i, u, stream);
    }
    _mm256_zeroupper();
    memopt_i_join_halves(dst + i, high + i, low + i, n - i);
}
/* memopt_i_narrow and what stands around it, for any of the small formats; the mantissa of a float32 denormal is wrong
   here, but it is dropped all the same. random: for nearest, 31 ones, so that it is just below half. */
MEMOPT_I_AVX512 static inline __m512i memopt_i_narrow512(__m512i u, const memopt_i_format *f, int stochastic,
                                                         __m512i random) {
    const __m512i zero = _mm512_setzero_si512(), all = _mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff));
    const __m512i magnitude = stochastic ? _mm512_min_epu32(all, _mm512_set1_epi32((int)f->largest)) : all;
    const __m512i exponent = _mm512_srli_epi32(magnitude, 23), bits = _mm512_set1_epi32((int)f->bits);
    const __m512i above = _mm512_sub_epi32(exponent, _mm512_set1_epi32((int)f->lowest));
    const __m512i usual = _mm512_set1_epi32(23 - (int)f->bits), over = _mm512_set1_epi32((int)f->over);
    const __m512i drop = _mm512_sub_epi32(usual, _mm512_min_epi32(above, zero));
    const __m512i capped = _mm512_min_epi32(drop, _mm512_set1_epi32(stochastic ? 31 : 25));
    const __m512i payload = _mm512_and_si512(_mm512_srlv_epi32(u, usual), _mm512_set1_epi32((int)f->payload));
    __m512i mantissa = _mm512_ternarylogic_epi32(magnitude, _mm512_set1_epi32(0x7fffff), _mm512_set1_epi32(0x800000),
                                                 0xEA); /* (magnitude and ...) or ... */
    __m512i code = _mm512_sllv_epi32(_mm512_max_epi32(above, zero), bits), sum;
    if (stochastic) mantissa = _mm512_srlv_epi32(mantissa, _mm512_sub_epi32(drop, capped));
    sum = _mm512_add_epi32(mantissa, _mm512_srlv_epi32(random, _mm512_sub_epi32(_mm512_set1_epi32(32), capped)));
    if (!stochastic)
        sum = _mm512_add_epi32(sum, _mm512_and_si512(_mm512_srlv_epi32(mantissa, capped), _mm512_set1_epi32(1)));
    code = _mm512_min_epu32(_mm512_add_epi32(code, _mm512_srlv_epi32(sum, capped)), over);
    if (stochastic)
        code = _mm512_mask_mov_epi32(code, _mm512_cmpge_epu32_mask(all, _mm512_set1_epi32((int)f->beyond)), over);
    code = _mm512_mask_or_epi32(code, _mm512_cmpgt_epu32_mask(all, _mm512_set1_epi32(0x7f800000)), payload,
                                _mm512_set1_epi32((int)f->nan));
    return _mm512_or_si512(code, _mm512_srlv_epi32(_mm512_andnot_si512(_mm512_set1_epi32(0x7fffffff), u),
                                                   _mm512_set1_epi32((int)f->sign_shift)));
}
MEMOPT_I_AVX512 static void memopt_i_small_noise_avx512(void *dst, const float *src, size_t n, int kind, int saturate,
                                                        memopt_noise noise, uint64_t first, int stream) {
    const memopt_i_format f = memopt_i_format_of(kind, saturate);
    const memopt_i_noise_run run = memopt_i_noise_from(noise, first); size_t i;
    const __m512i key = _mm512_set1_epi32((int)run.key); __m512i counter = memopt_i_counter512(run);
    uint16_t *two = (uint16_t *)dst; uint8_t *one = (uint8_t *)dst;
    for (i = 0; i < n; i += 32) {
        const __m512i h = memopt_i_hash512(counter, key);
        const __m512i a = memopt_i_narrow512(_mm512_loadu_si512(src + i), &f, 1, _mm512_rol_epi32(h, 16));
        const __m512i b = memopt_i_narrow512(_mm512_loadu_si512(src + i + 16), &f, 1, h);
        if (stream) MEMOPT_I_AHEAD_32(src + i);
        if (kind == MEMOPT_I_F16)
            memopt_i_put512(two + i, _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(a)),
                                                        _mm512_cvtepi32_epi16(b), 1), stream);
        else memopt_i_put256(one + i, _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(a)),
                                                              _mm512_cvtepi32_epi8(b), 1), stream);
        counter = _mm512_add_epi32(counter, _mm512_set1_epi32((int)(16 * MEMOPT_I_NOISE_STEP)));
    }
}
MEMOPT_I_AVX512 static void memopt_i_small_from_f32_avx512(void *dst, const float *src, size_t n, int kind,
                                                           int saturate, int stream) {
    const memopt_i_format f = memopt_i_format_of(kind, saturate); const __m512i below = _mm512_set1_epi32(0x7fffffff);
    uint16_t *two = (uint16_t *)dst; uint8_t *one = (uint8_t *)dst; size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        if (stream) MEMOPT_I_AHEAD_32(src + i);
        if (kind == MEMOPT_I_F16) {
            const __m256i a = _mm512_maskz_cvtps_ph(0xffff, _mm512_loadu_ps(src + i), 0);
            const __m256i b = _mm512_maskz_cvtps_ph(0xffff, _mm512_loadu_ps(src + i + 16), 0);
            memopt_i_put512(two + i, _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1), stream);
        } else {
            const __m512i a = memopt_i_narrow512(_mm512_loadu_si512(src + i), &f, 0, below);
            const __m512i b = memopt_i_narrow512(_mm512_loadu_si512(src + i + 16), &f, 0, below);
            memopt_i_put256(one + i, _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(a)),
                                                             _mm512_cvtepi32_epi8(b), 1), stream);
        }
    }
    _mm256_zeroupper();
    memopt_i_small_from_f32(dst, src, i, n, kind, saturate, NULL, 0);
}
/* The 8-bit formats are f16 cut short: e5m2 as it is, e4m3 with a bias that is 8 less, and another NaN. */
MEMOPT_I_AVX512 static inline __m512i memopt_i_f16_of_small512(const uint8_t *src, int kind) {
    const __m512i words = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)src));
    const __m512i magnitude = _mm512_and_si512(words, _mm512_set1_epi16(0x7f));
    const __m512i sign = _mm512_and_si512(words, _mm512_set1_epi16((short)-0x8000));
    if (kind == MEMOPT_I_E5M2) return _mm512_slli_epi16(words, 8);
    return _mm512_or_si512(sign, _mm512_mask_mov_epi16(_mm512_slli_epi16(magnitude, 7),
        _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7f)), _mm512_set1_epi16(0x7e00)));
}
MEMOPT_I_AVX512 static void memopt_i_f32_from_small_avx512(float *dst, const void *src, size_t n, int kind,
                                                           int stream) {
    const uint16_t *two = (const uint16_t *)src; const uint8_t *one = (const uint8_t *)src; size_t i = 0;
    const __m512 scale = _mm512_set1_ps(kind == MEMOPT_I_E4M3 ? 256.0f : 1.0f);
    for (; i + 32 <= n; i += 32) {
        const __m512i f16 = kind == MEMOPT_I_F16 ? _mm512_loadu_si512(two + i)
                                                 : memopt_i_f16_of_small512(one + i, kind);
        const __m512 a = _mm512_cvtph_ps(_mm512_castsi512_si256(f16));
        const __m512 b = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(f16, 1));
        if (stream) MEMOPT_I_AHEAD(kind == MEMOPT_I_F16 ? (const void *)(two + i) : (const void *)(one + i));
        memopt_i_put512(dst + i, _mm512_castps_si512(_mm512_mul_ps(a, scale)), stream);
        memopt_i_put512(dst + i + 16, _mm512_castps_si512(_mm512_mul_ps(b, scale)), stream);
    }
    _mm256_zeroupper();
    memopt_i_f32_from_small(dst, src, i, n, kind);
}
MEMOPT_I_AVX512 static void memopt_i_squares_avx512(double *sums, const float *x, size_t n) {
    __m512d a = _mm512_loadu_pd(sums), b = _mm512_loadu_pd(sums + 8); size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512d c = _mm512_cvtps_pd(_mm256_loadu_ps(x + i)), d = _mm512_cvtps_pd(_mm256_loadu_ps(x + i + 8));
        a = _mm512_fmadd_pd(c, c, a); b = _mm512_fmadd_pd(d, d, b);
    }
    _mm512_storeu_pd(sums, a); _mm512_storeu_pd(sums + 8, b);
    _mm256_zeroupper();
    memopt_i_squares(sums, x + i, n - i);
}

/* AVX2 with FMA and F16C: groups of 16 or 32. Packing works on halves of a register, so they are put in order after. */
MEMOPT_I_AVX2 static inline __m256i memopt_i_get256(const void *src) {
    return _mm256_loadu_si256((const __m256i *)src);
}
MEMOPT_I_AVX2 static inline void memopt_i_store256(void *dst, __m256i v, int stream) {
    if (stream) _mm256_stream_si256((__m256i *)dst, v);
    else _mm256_storeu_si256((__m256i *)dst, v);
}
MEMOPT_I_AVX2 static inline __m256i memopt_i_words256(__m256i a, __m256i b) { /* of 16 numbers below 65536 */
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
}
MEMOPT_I_AVX2 static inline __m256i memopt_i_bf16_256(const float *src) { /* NaN included */
    const __m256i u = memopt_i_get256(src), one = _mm256_set1_epi32(1), half = _mm256_set1_epi32(0x7fff);
    const __m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff)),
                                           _mm256_set1_epi32(0x7f800000));
    const __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(u, 16), one);
    const __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, half), lsb);
    return _mm256_srli_epi32(_mm256_blendv_epi8(r, _mm256_or_si256(u, _mm256_set1_epi32(0x400000)), nan), 16);
}
MEMOPT_I_AVX2 static void memopt_i_bf16_from_f32_avx2(uint16_t *dst, const float *src, size_t n, int stream) {
    size_t i = 0, k;
    for (; i + 32 <= n; i += 32) {
        if (stream) MEMOPT_I_AHEAD_32(src + i);
        for (k = 0; k < 32; k += 16)
            memopt_i_store256(dst + i + k, memopt_i_words256(memopt_i_bf16_256(src + i + k),
                                                             memopt_i_bf16_256(src + i + k + 8)), stream);
    }
    _mm256_zeroupper();
    memopt_i_bf16_from_f32(dst + i, src + i, n - i);
}
MEMOPT_I_AVX2 static inline __m256i memopt_i_dwords256(const uint16_t *src) { /* 8, extended with zeros */
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)src));
}
MEMOPT_I_AVX2 static void memopt_i_f32_from_bf16_avx2(float *dst, const uint16_t *src, size_t n, int stream) {
    size_t i = 0, k;
    for (; i + 32 <= n; i += 32) {
        if (stream) MEMOPT_I_AHEAD(src + i);
        for (k = 0; k < 32; k += 8)
            memopt_i_store256(dst + i + k, _mm256_slli_epi32(memopt_i_dwords256(src + i + k), 16), stream);
    }
    _mm256_zeroupper();
    memopt_i_f32_from_bf16(dst + i, src + i, n - i);
}
MEMOPT_I_AVX2 static inline __m256i memopt_i_hash256(__m256i x, __m256i key) {
    x = _mm256_mullo_epi32(_mm256_xor_si256(x, _mm256_srli_epi32(x, 16)), _mm256_set1_epi32(0x21f0aaad));
    x = _mm256_xor_si256(_mm256_xor_si256(x, _mm256_srli_epi32(x, 15)), key);
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int)0xd35a2d97u));
    return _mm256_xor_si256(x, _mm256_srli_epi32(x, 15));
}
MEMOPT_I_AVX2 static inline __m256i memopt_i_counter256(memopt_i_noise_run run) {
    const __m256i lanes = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    return _mm256_add_epi32(_mm256_set1_epi32((int)run.counter),
                            _mm256_mullo_epi32(lanes, _mm256_set1_epi32((int)MEMOPT_I_NOISE_STEP)));
}
MEMOPT_I_AVX2 static void memopt_i_bf16_noise_avx2(uint16_t *dst, const float *src, size_t n, memopt_noise noise,
                                                   uint64_t first, int stream) {
    const memopt_i_noise_run run = memopt_i_noise_from(noise, first); size_t i; int k;
    const __m256i key = _mm256_set1_epi32((int)run.key), step = _mm256_set1_epi32((int)(8 * MEMOPT_I_NOISE_STEP));
    const __m256i low = _mm256_set1_epi32(0xffff), magnitude = _mm256_set1_epi32(0x7fffffff);
    const __m256i most = _mm256_set1_epi32(0x7f7f0000);
    __m256i counter = memopt_i_counter256(run);
    for (i = 0; i < n; i += 32) {
        __m256i u[4], beyond = _mm256_setzero_si256();
        for (k = 0; k < 2; ++k) {
            const __m256i h = memopt_i_hash256(counter, key);
            const __m256i a = memopt_i_get256(src + i + 8 * k), b = memopt_i_get256(src + i + 16 + 8 * k);
            const __m256i top = _mm256_max_epi32(_mm256_and_si256(a, magnitude), _mm256_and_si256(b, magnitude));
            beyond = _mm256_or_si256(beyond, _mm256_cmpgt_epi32(top, most));
            u[k] = _mm256_srli_epi32(_mm256_add_epi32(a, _mm256_and_si256(h, low)), 16);
            u[k + 2] = _mm256_srli_epi32(_mm256_add_epi32(b, _mm256_srli_epi32(h, 16)), 16);
            counter = _mm256_add_epi32(counter, step);
        }
        if (stream) MEMOPT_I_AHEAD_32(src + i);
        if (MEMOPT_I_UNLIKELY(!_mm256_testz_si256(beyond, beyond))) {
            memopt_i_bf16_noise(dst + i, src + i, 32, noise, first + i);
            continue;
        }
        memopt_i_store256(dst + i, memopt_i_words256(u[0], u[1]), stream);
        memopt_i_store256(dst + i + 16, memopt_i_words256(u[2], u[3]), stream);
    }
}
MEMOPT_I_AVX2 static void memopt_i_split_avx2(uint16_t *high, uint16_t *low, const float *src, size_t n, int stream) {
    const __m256i half = _mm256_set1_epi32(0x8000), words = _mm256_set1_epi32(0xffff);
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff), infinity = _mm256_set1_epi32(0x7f800000); size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m256i a = memopt_i_get256(src + i), b = memopt_i_get256(src + i + 8);
        const __m256i nan = _mm256_cmpgt_epi32(_mm256_max_epi32(_mm256_and_si256(a, magnitude),
                                                                _mm256_and_si256(b, magnitude)), infinity);
        if (stream) MEMOPT_I_AHEAD(src + i);
        if (MEMOPT_I_UNLIKELY(!_mm256_testz_si256(nan, nan))) {
            memopt_i_split(high + i, low + i, src + i, 16);
            continue;
        }
        memopt_i_store256(high + i, memopt_i_words256(_mm256_srli_epi32(_mm256_add_epi32(a, half), 16),
                                                      _mm256_srli_epi32(_mm256_add_epi32(b, half), 16)), stream);
        memopt_i_store256(low + i, memopt_i_words256(_mm256_and_si256(a, words), _mm256_and_si256(b, words)), stream);
    }
    _mm256_zeroupper();
    memopt_i_split(high + i, low + i, src + i, n - i);
}
MEMOPT_I_AVX2 static void memopt_i_join_avx2(float *dst, const uint16_t *high, const uint16_t *low, size_t n,
                                             int stream) {
    const __m256i lows = _mm256_set1_epi32(0xffff), magnitude = _mm256_set1_epi32(0x7fffffff); size_t i = 0;
    const __m256i most = _mm256_set1_epi32(0x7f7fffff);
    for (; i + 8 <= n; i += 8) {
        const __m256i h = memopt_i_dwords256(high + i), l = memopt_i_dwords256(low + i);
        const __m256i u = _mm256_or_si256(l, _mm256_sub_epi32(_mm256_slli_epi32(h, 16),
                          _mm256_andnot_si256(lows, _mm256_add_epi32(l, l))));
        const __m256i odd = _mm256_cmpgt_epi32(_mm256_and_si256(u, magnitude), most);
        if (stream && !(i & 24)) { MEMOPT_I_AHEAD(high + i); MEMOPT_I_AHEAD(low + i); }
        if (MEMOPT_I_UNLIKELY(!_mm256_testz_si256(odd, odd))) memopt_i_join_halves(dst + i, high + i, low + i, 8);
        else memopt_i_store256(dst + i, u, stream);
    }
    _mm256_zeroupper();
    memopt_i_join_halves(dst + i, high + i, low + i, n - i);
}
MEMOPT_I_AVX2 static inline __m256i memopt_i_narrow256(__m256i u, const memopt_i_format *f, int stochastic,
                                                       __m256i random) { /* as memopt_i_narrow512 */
    const __m256i zero = _mm256_setzero_si256(), all = _mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff));
    const __m256i magnitude = stochastic ? _mm256_min_epu32(all, _mm256_set1_epi32((int)f->largest)) : all;
    const __m256i exponent = _mm256_srli_epi32(magnitude, 23), bits = _mm256_set1_epi32((int)f->bits);
    const __m256i above = _mm256_sub_epi32(exponent, _mm256_set1_epi32((int)f->lowest));
    const __m256i usual = _mm256_set1_epi32(23 - (int)f->bits), over = _mm256_set1_epi32((int)f->over);
    const __m256i drop = _mm256_sub_epi32(usual, _mm256_min_epi32(above, zero));
    const __m256i capped = _mm256_min_epi32(drop, _mm256_set1_epi32(stochastic ? 31 : 25));
    const __m256i payload = _mm256_and_si256(_mm256_srlv_epi32(u, usual), _mm256_set1_epi32((int)f->payload));
    const __m256i nan = _mm256_or_si256(payload, _mm256_set1_epi32((int)f->nan));
    __m256i mantissa = _mm256_or_si256(_mm256_and_si256(magnitude, _mm256_set1_epi32(0x7fffff)),
                                       _mm256_set1_epi32(0x800000));
    __m256i code = _mm256_sllv_epi32(_mm256_max_epi32(above, zero), bits), sum;
    if (stochastic) mantissa = _mm256_srlv_epi32(mantissa, _mm256_sub_epi32(drop, capped));
    sum = _mm256_add_epi32(mantissa, _mm256_srlv_epi32(random, _mm256_sub_epi32(_mm256_set1_epi32(32), capped)));
    if (!stochastic)
        sum = _mm256_add_epi32(sum, _mm256_and_si256(_mm256_srlv_epi32(mantissa, capped), _mm256_set1_epi32(1)));
    code = _mm256_min_epu32(_mm256_add_epi32(code, _mm256_srlv_epi32(sum, capped)), over);
    if (stochastic)
        code = _mm256_blendv_epi8(code, over, _mm256_cmpgt_epi32(all, _mm256_set1_epi32((int)f->beyond - 1)));
    code = _mm256_blendv_epi8(code, nan, _mm256_cmpgt_epi32(all, _mm256_set1_epi32(0x7f800000)));
    return _mm256_or_si256(code, _mm256_srlv_epi32(_mm256_andnot_si256(_mm256_set1_epi32(0x7fffffff), u),
                                                   _mm256_set1_epi32((int)f->sign_shift)));
}
/* 32 codes of a 2-byte or 1-byte format */
MEMOPT_I_AVX2 static inline void memopt_i_small_store256(void *dst, size_t i, int kind, const __m256i *code,
                                                         int stream) {
    const __m256i a = memopt_i_words256(code[0], code[1]), b = memopt_i_words256(code[2], code[3]);
    uint16_t *two = (uint16_t *)dst; uint8_t *one = (uint8_t *)dst;
    if (kind == MEMOPT_I_F16) {
        memopt_i_store256(two + i, a, stream);
        memopt_i_store256(two + i + 16, b, stream);
    } else memopt_i_store256(one + i, _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8), stream);
}
MEMOPT_I_AVX2 static void memopt_i_small_noise_avx2(void *dst, const float *src, size_t n, int kind, int saturate,
                                                    memopt_noise noise, uint64_t first, int stream) {
    const memopt_i_format f = memopt_i_format_of(kind, saturate);
    const memopt_i_noise_run run = memopt_i_noise_from(noise, first); size_t i; int k;
    const __m256i key = _mm256_set1_epi32((int)run.key); __m256i counter = memopt_i_counter256(run), code[4];
    for (i = 0; i < n; i += 32) {
        if (stream) MEMOPT_I_AHEAD_32(src + i);
        for (k = 0; k < 2; ++k) {
            const __m256i h = memopt_i_hash256(counter, key);
            const __m256i turned = _mm256_or_si256(_mm256_slli_epi32(h, 16), _mm256_srli_epi32(h, 16));
            code[k] = memopt_i_narrow256(memopt_i_get256(src + i + 8 * k), &f, 1, turned);
            code[k + 2] = memopt_i_narrow256(memopt_i_get256(src + i + 16 + 8 * k), &f, 1, h);
            counter = _mm256_add_epi32(counter, _mm256_set1_epi32((int)(8 * MEMOPT_I_NOISE_STEP)));
        }
        memopt_i_small_store256(dst, i, kind, code, stream);
    }
}
MEMOPT_I_AVX2 static void memopt_i_small_from_f32_avx2(void *dst, const float *src, size_t n, int kind, int saturate,
                                                       int stream) {
    const memopt_i_format f = memopt_i_format_of(kind, saturate); const __m256i below = _mm256_set1_epi32(0x7fffffff);
    size_t i = 0; int k; __m256i code[4];
    for (; i + 32 <= n; i += 32) {
        if (stream) MEMOPT_I_AHEAD_32(src + i);
        for (k = 0; k < 4; ++k)
            code[k] = kind == MEMOPT_I_F16 ? _mm256_cvtepu16_epi32(_mm256_cvtps_ph(_mm256_loadu_ps(src + i + 8 * k), 0))
                                           : memopt_i_narrow256(memopt_i_get256(src + i + 8 * k), &f, 0, below);
        memopt_i_small_store256(dst, i, kind, code, stream);
    }
    _mm256_zeroupper();
    memopt_i_small_from_f32(dst, src, i, n, kind, saturate, NULL, 0);
}
MEMOPT_I_AVX2 static inline __m256i memopt_i_f16_of_small256(const uint8_t *src, int kind) {
    const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)src));
    const __m256i magnitude = _mm256_and_si256(words, _mm256_set1_epi16(0x7f));
    const __m256i sign = _mm256_and_si256(words, _mm256_set1_epi16((short)-0x8000));
    if (kind == MEMOPT_I_E5M2) return _mm256_slli_epi16(words, 8);
    return _mm256_or_si256(sign, _mm256_blendv_epi8(_mm256_slli_epi16(magnitude, 7), _mm256_set1_epi16(0x7e00),
                                                    _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f))));
}
MEMOPT_I_AVX2 static void memopt_i_f32_from_small_avx2(float *dst, const void *src, size_t n, int kind, int stream) {
    const uint16_t *two = (const uint16_t *)src; const uint8_t *one = (const uint8_t *)src; size_t i = 0;
    const __m256 scale = _mm256_set1_ps(kind == MEMOPT_I_E4M3 ? 256.0f : 1.0f);
    for (; i + 16 <= n; i += 16) {
        const __m256i f16 = kind == MEMOPT_I_F16 ? memopt_i_get256(two + i) : memopt_i_f16_of_small256(one + i, kind);
        const __m256 a = _mm256_cvtph_ps(_mm256_castsi256_si128(f16));
        const __m256 b = _mm256_cvtph_ps(_mm256_extracti128_si256(f16, 1));
        if (stream) MEMOPT_I_AHEAD(kind == MEMOPT_I_F16 ? (const void *)(two + i) : (const void *)(one + i));
        memopt_i_store256(dst + i, _mm256_castps_si256(_mm256_mul_ps(a, scale)), stream);
        memopt_i_store256(dst + i + 8, _mm256_castps_si256(_mm256_mul_ps(b, scale)), stream);
    }
    _mm256_zeroupper();
    memopt_i_f32_from_small(dst, src, i, n, kind);
}
MEMOPT_I_AVX2 static void memopt_i_squares_avx2(double *sums, const float *x, size_t n) {
    __m256d s[4]; size_t i = 0; int k;
    for (k = 0; k < 4; ++k) s[k] = _mm256_loadu_pd(sums + 4 * k);
    for (; i + 16 <= n; i += 16)
        for (k = 0; k < 4; ++k) {
            const __m256d d = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4 * k));
            s[k] = _mm256_fmadd_pd(d, d, s[k]);
        }
    for (k = 0; k < 4; ++k) _mm256_storeu_pd(sums + 4 * k, s[k]);
    _mm256_zeroupper();
    memopt_i_squares(sums, x + i, n - i);
}
#endif
#if defined(MEMOPT_I_NEON)
/* NEON: groups of 8, 16 or 32. It has no stores past the cache. A shift to the right is one to the left by less. */
static uint32x4_t memopt_i_get_neon(const float *src) { return vreinterpretq_u32_f32(vld1q_f32(src)); }
static uint32x4_t memopt_i_bf16_neon(uint32x4_t u) { /* in the lower halves; NaN included */
    const uint32x4_t nan = vcgtq_u32(vandq_u32(u, vdupq_n_u32(0x7fffffff)), vdupq_n_u32(0x7f800000));
    const uint32x4_t lsb = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    const uint32x4_t r = vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), lsb);
    return vshrq_n_u32(vbslq_u32(nan, vorrq_u32(u, vdupq_n_u32(0x400000)), r), 16);
}
static uint16x8_t memopt_i_words_neon(uint32x4_t a, uint32x4_t b) { return vcombine_u16(vmovn_u32(a), vmovn_u32(b)); }
static void memopt_i_bf16_from_f32_neon(uint16_t *dst, const float *src, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        vst1q_u16(dst + i, memopt_i_words_neon(memopt_i_bf16_neon(memopt_i_get_neon(src + i)),
                                               memopt_i_bf16_neon(memopt_i_get_neon(src + i + 4))));
    memopt_i_bf16_from_f32(dst + i, src + i, n - i);
}
static void memopt_i_f32_from_bf16_neon(float *dst, const uint16_t *src, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const uint16x8_t h = vld1q_u16(src + i);
        vst1q_f32(dst + i, vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)));
        vst1q_f32(dst + i + 4, vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(h), 16)));
    }
    memopt_i_f32_from_bf16(dst + i, src + i, n - i);
}
static uint32x4_t memopt_i_hash_neon(uint32x4_t x, uint32x4_t key) {
    x = vmulq_u32(veorq_u32(x, vshrq_n_u32(x, 16)), vdupq_n_u32(0x21f0aaadu));
    x = vmulq_u32(veorq_u32(veorq_u32(x, vshrq_n_u32(x, 15)), key), vdupq_n_u32(0xd35a2d97u));
    return veorq_u32(x, vshrq_n_u32(x, 15));
}
static uint32x4_t memopt_i_counter_neon(memopt_i_noise_run run) {
    static const uint32_t lanes[4] = { 0, 1, 2, 3 };
    return vmlaq_n_u32(vdupq_n_u32(run.counter), vld1q_u32(lanes), MEMOPT_I_NOISE_STEP);
}
static void memopt_i_bf16_noise_neon(uint16_t *dst, const float *src, size_t n, memopt_noise noise, uint64_t first) {
    const memopt_i_noise_run run = memopt_i_noise_from(noise, first); size_t i; int k;
    const uint32x4_t key = vdupq_n_u32(run.key), magnitude = vdupq_n_u32(0x7fffffff);
    uint32x4_t counter = memopt_i_counter_neon(run);
    for (i = 0; i < n; i += 32) {
        uint32x4_t u[8], top = vdupq_n_u32(0);
        for (k = 0; k < 4; ++k) {
            const uint32x4_t h = memopt_i_hash_neon(counter, key);
            const uint32x4_t a = memopt_i_get_neon(src + i + 4 * k), b = memopt_i_get_neon(src + i + 16 + 4 * k);
            top = vmaxq_u32(top, vmaxq_u32(vandq_u32(a, magnitude), vandq_u32(b, magnitude)));
            u[k] = vshrq_n_u32(vaddq_u32(a, vandq_u32(h, vdupq_n_u32(0xffff))), 16);
            u[k + 4] = vshrq_n_u32(vaddq_u32(b, vshrq_n_u32(h, 16)), 16);
            counter = vaddq_u32(counter, vdupq_n_u32(4 * MEMOPT_I_NOISE_STEP));
        }
        if (MEMOPT_I_UNLIKELY(vmaxvq_u32(top) > 0x7f7f0000)) {
            memopt_i_bf16_noise(dst + i, src + i, 32, noise, first + i);
            continue;
        }
        for (k = 0; k < 8; k += 2) vst1q_u16(dst + i + 4 * k, memopt_i_words_neon(u[k], u[k + 1]));
    }
}
static void memopt_i_split_neon(uint16_t *high, uint16_t *low, const float *src, size_t n) {
    const uint32x4_t magnitude = vdupq_n_u32(0x7fffffff), half = vdupq_n_u32(0x8000); size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const uint32x4_t a = memopt_i_get_neon(src + i), b = memopt_i_get_neon(src + i + 4);
        const uint32x4_t top = vmaxq_u32(vandq_u32(a, magnitude), vandq_u32(b, magnitude));
        if (MEMOPT_I_UNLIKELY(vmaxvq_u32(top) > 0x7f800000)) {
            memopt_i_split(high + i, low + i, src + i, 8);
            continue;
        }
        vst1q_u16(high + i, memopt_i_words_neon(vshrq_n_u32(vaddq_u32(a, half), 16),
                                                vshrq_n_u32(vaddq_u32(b, half), 16)));
        vst1q_u16(low + i, memopt_i_words_neon(a, b));
    }
    memopt_i_split(high + i, low + i, src + i, n - i);
}
static void memopt_i_join_neon(float *dst, const uint16_t *high, const uint16_t *low, size_t n) {
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const uint16x4_t l = vld1_u16(low + i), h = vsub_u16(vld1_u16(high + i), vshr_n_u16(l, 15));
        const uint32x4_t u = vorrq_u32(vshll_n_u16(h, 16), vmovl_u16(l));
        if (MEMOPT_I_UNLIKELY(vmaxvq_u32(vandq_u32(u, vdupq_n_u32(0x7fffffff))) >= 0x7f800000))
            memopt_i_join_halves(dst + i, high + i, low + i, 4);
        else vst1q_f32(dst + i, vreinterpretq_f32_u32(u));
    }
    memopt_i_join_halves(dst + i, high + i, low + i, n - i);
}
static uint32x4_t memopt_i_right_neon(uint32x4_t x, int32x4_t by) { return vshlq_u32(x, vnegq_s32(by)); }
static uint32x4_t memopt_i_narrow_neon(uint32x4_t u, const memopt_i_format *f, int stochastic, uint32x4_t random) {
    const uint32x4_t all = vandq_u32(u, vdupq_n_u32(0x7fffffff)), over = vdupq_n_u32(f->over);
    const uint32x4_t magnitude = stochastic ? vminq_u32(all, vdupq_n_u32(f->largest)) : all;
    const int32x4_t above = vsubq_s32(vreinterpretq_s32_u32(vshrq_n_u32(magnitude, 23)), vdupq_n_s32((int)f->lowest));
    const int32x4_t zero = vdupq_n_s32(0), usual = vdupq_n_s32(23 - (int)f->bits);
    const int32x4_t drop = vsubq_s32(usual, vminq_s32(above, zero));
    const int32x4_t capped = vminq_s32(drop, vdupq_n_s32(stochastic ? 31 : 25));
    const uint32x4_t payload = vandq_u32(memopt_i_right_neon(u, usual), vdupq_n_u32(f->payload));
    const uint32x4_t sign = memopt_i_right_neon(vandq_u32(u, vdupq_n_u32(0x80000000u)),
                                                vdupq_n_s32((int)f->sign_shift));
    uint32x4_t mantissa = vorrq_u32(vandq_u32(magnitude, vdupq_n_u32(0x7fffff)), vdupq_n_u32(0x800000)), sum, code;
    code = vshlq_u32(vreinterpretq_u32_s32(vmaxq_s32(above, zero)), vdupq_n_s32((int)f->bits));
    if (stochastic) mantissa = memopt_i_right_neon(mantissa, vsubq_s32(drop, capped));
    sum = vaddq_u32(mantissa, memopt_i_right_neon(random, vsubq_s32(vdupq_n_s32(32), capped)));
    if (!stochastic) sum = vaddq_u32(sum, vandq_u32(memopt_i_right_neon(mantissa, capped), vdupq_n_u32(1)));
    code = vminq_u32(vaddq_u32(code, memopt_i_right_neon(sum, capped)), over);
    if (stochastic) code = vbslq_u32(vcgeq_u32(all, vdupq_n_u32(f->beyond)), over, code);
    code = vbslq_u32(vcgtq_u32(all, vdupq_n_u32(0x7f800000)), vorrq_u32(payload, vdupq_n_u32(f->nan)), code);
    return vorrq_u32(code, sign);
}
/* 8 codes */
static void memopt_i_small_store_neon(void *dst, size_t i, int kind, uint32x4_t a, uint32x4_t b) {
    const uint16x8_t words = memopt_i_words_neon(a, b);
    if (kind == MEMOPT_I_F16) vst1q_u16((uint16_t *)dst + i, words);
    else vst1_u8((uint8_t *)dst + i, vmovn_u16(words));
}
static void memopt_i_small_noise_neon(void *dst, const float *src, size_t n, int kind, int saturate, memopt_noise noise,
                                      uint64_t first) {
    const memopt_i_format f = memopt_i_format_of(kind, saturate);
    const memopt_i_noise_run run = memopt_i_noise_from(noise, first); size_t i; int k;
    uint32x4_t counter = memopt_i_counter_neon(run), code[8];
    for (i = 0; i < n; i += 32) {
        for (k = 0; k < 4; ++k) {
            const uint32x4_t h = memopt_i_hash_neon(counter, vdupq_n_u32(run.key));
            const uint32x4_t turned = vorrq_u32(vshlq_n_u32(h, 16), vshrq_n_u32(h, 16));
            code[k] = memopt_i_narrow_neon(memopt_i_get_neon(src + i + 4 * k), &f, 1, turned);
            code[k + 4] = memopt_i_narrow_neon(memopt_i_get_neon(src + i + 16 + 4 * k), &f, 1, h);
            counter = vaddq_u32(counter, vdupq_n_u32(4 * MEMOPT_I_NOISE_STEP));
        }
        for (k = 0; k < 8; k += 2) memopt_i_small_store_neon(dst, i + 4 * (size_t)k, kind, code[k], code[k + 1]);
    }
}
static void memopt_i_small_from_f32_neon(void *dst, const float *src, size_t n, int kind, int saturate) {
    const memopt_i_format f = memopt_i_format_of(kind, saturate); const uint32x4_t below = vdupq_n_u32(0x7fffffff);
    uint16_t *two = (uint16_t *)dst; uint8_t *one = (uint8_t *)dst; size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        if (kind == MEMOPT_I_F16) {
            vst1_u16(two + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(src + i))));
            vst1_u16(two + i + 4, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(src + i + 4))));
        } else memopt_i_small_store_neon(one, i, kind, memopt_i_narrow_neon(memopt_i_get_neon(src + i), &f, 0, below),
                                         memopt_i_narrow_neon(memopt_i_get_neon(src + i + 4), &f, 0, below));
    }
    memopt_i_small_from_f32(dst, src, i, n, kind, saturate, NULL, 0);
}
static uint16x8_t memopt_i_f16_of_small_neon(const uint8_t *src, int kind) {
    const uint16x8_t words = vshll_n_u8(vld1_u8(src), 8), sign = vandq_u16(words, vdupq_n_u16(0x8000));
    const uint16x8_t magnitude = vandq_u16(words, vdupq_n_u16(0x7f00));
    if (kind == MEMOPT_I_E5M2) return words;
    return vorrq_u16(sign, vbslq_u16(vceqq_u16(magnitude, vdupq_n_u16(0x7f00)), vdupq_n_u16(0x7e00),
                                     vshrq_n_u16(magnitude, 1)));
}
static void memopt_i_f32_from_small_neon(float *dst, const void *src, size_t n, int kind) {
    const uint16_t *two = (const uint16_t *)src; const uint8_t *one = (const uint8_t *)src; size_t i = 0;
    const float scale = kind == MEMOPT_I_E4M3 ? 256.0f : 1.0f;
    for (; i + 8 <= n; i += 8) {
        const uint16x8_t f16 = kind == MEMOPT_I_F16 ? vld1q_u16(two + i) : memopt_i_f16_of_small_neon(one + i, kind);
        vst1q_f32(dst + i, vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(f16))), scale));
        vst1q_f32(dst + i + 4, vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(f16))), scale));
    }
    memopt_i_f32_from_small(dst, src, i, n, kind);
}
static void memopt_i_squares_neon(double *sums, const float *x, size_t n) {
    float64x2_t s[8]; size_t i = 0; int k;
    for (k = 0; k < 8; ++k) s[k] = vld1q_f64(sums + 2 * k);
    for (; i + 16 <= n; i += 16)
        for (k = 0; k < 8; ++k) {
            const float64x2_t d = vcvt_f64_f32(vld1_f32(x + i + 2 * k));
            s[k] = vfmaq_f64(s[k], d, d);
        }
    for (k = 0; k < 8; ++k) vst1q_f64(sums + 2 * k, s[k]);
    memopt_i_squares(sums, x + i, n - i);
}
#endif

/* By level. Streaming ones get 64-byte aligned results, whole groups, and a level that can stream. */
static void memopt_i_bf16_from_f32_to(int level, uint16_t *dst, const float *src, size_t n, int stream) {
    (void)level; (void)stream;
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512_BF16) { memopt_i_bf16_from_f32_avx512_bf16(dst, src, n, stream); return; }
    if (level >= MEMOPT_SIMD_AVX512) { memopt_i_bf16_from_f32_avx512(dst, src, n, stream); return; }
    if (level >= MEMOPT_SIMD_AVX2) { memopt_i_bf16_from_f32_avx2(dst, src, n, stream); return; }
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) { memopt_i_bf16_from_f32_neon(dst, src, n); return; }
#endif
    memopt_i_bf16_from_f32(dst, src, n);
}
static void memopt_i_f32_from_bf16_to(int level, float *dst, const uint16_t *src, size_t n, int stream) {
    (void)level; (void)stream;
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) { memopt_i_f32_from_bf16_avx512(dst, src, n, stream); return; }
    if (level >= MEMOPT_SIMD_AVX2) { memopt_i_f32_from_bf16_avx2(dst, src, n, stream); return; }
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) { memopt_i_f32_from_bf16_neon(dst, src, n); return; }
#endif
    memopt_i_f32_from_bf16(dst, src, n);
}
static void memopt_i_small_from_f32_to(int level, void *dst, const float *src, size_t n, int kind, int saturate,
                                       int stream) {
    (void)level; (void)stream;
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) { memopt_i_small_from_f32_avx512(dst, src, n, kind, saturate, stream); return; }
    if (level >= MEMOPT_SIMD_AVX2) { memopt_i_small_from_f32_avx2(dst, src, n, kind, saturate, stream); return; }
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) { memopt_i_small_from_f32_neon(dst, src, n, kind, saturate); return; }
#endif
    memopt_i_small_from_f32(dst, src, 0, n, kind, saturate, NULL, 0);
}
static void memopt_i_f32_from_small_to(int level, float *dst, const void *src, size_t n, int kind, int stream) {
    (void)level; (void)stream;
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) { memopt_i_f32_from_small_avx512(dst, src, n, kind, stream); return; }
    if (level >= MEMOPT_SIMD_AVX2) { memopt_i_f32_from_small_avx2(dst, src, n, kind, stream); return; }
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) { memopt_i_f32_from_small_neon(dst, src, n, kind); return; }
#endif
    memopt_i_f32_from_small(dst, src, 0, n, kind);
}
static void memopt_i_split_to(int level, uint16_t *high, uint16_t *low, const float *src, size_t n, int stream) {
    (void)level; (void)stream;
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) { memopt_i_split_avx512(high, low, src, n, stream); return; }
    if (level >= MEMOPT_SIMD_AVX2) { memopt_i_split_avx2(high, low, src, n, stream); return; }
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) { memopt_i_split_neon(high, low, src, n); return; }
#endif
    memopt_i_split(high, low, src, n);
}
static void memopt_i_join_to(int level, float *dst, const uint16_t *high, const uint16_t *low, size_t n, int stream) {
    (void)level; (void)stream;
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) { memopt_i_join_avx512(dst, high, low, n, stream); return; }
    if (level >= MEMOPT_SIMD_AVX2) { memopt_i_join_avx2(dst, high, low, n, stream); return; }
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) { memopt_i_join_neon(dst, high, low, n); return; }
#endif
    memopt_i_join_halves(dst, high, low, n);
}
/* Whole groups of 32, none of them across a multiple of 2^33. */
static void memopt_i_noise_groups(int level, int kind, int saturate, void *dst, const float *src, size_t n,
                                  memopt_noise noise, uint64_t first, int stream) {
    const int bf16 = kind == MEMOPT_I_BF16; uint16_t *two = (uint16_t *)dst;
    (void)level; (void)stream;
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) {
        if (bf16) memopt_i_bf16_noise_avx512(two, src, n, noise, first, stream);
        else memopt_i_small_noise_avx512(dst, src, n, kind, saturate, noise, first, stream);
        return;
    }
    if (level >= MEMOPT_SIMD_AVX2) {
        if (bf16) memopt_i_bf16_noise_avx2(two, src, n, noise, first, stream);
        else memopt_i_small_noise_avx2(dst, src, n, kind, saturate, noise, first, stream);
        return;
    }
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) {
        if (bf16) memopt_i_bf16_noise_neon(two, src, n, noise, first);
        else memopt_i_small_noise_neon(dst, src, n, kind, saturate, noise, first);
        return;
    }
#endif
    if (bf16) memopt_i_bf16_noise(two, src, n, noise, first);
    else memopt_i_small_from_f32(dst, src, 0, n, kind, saturate, &noise, first);
}
/* Any n and first: what is less than a group goes through one on the stack. */
static void memopt_i_noise_to(int level, int kind, int saturate, void *dst, const float *src, size_t n,
                              memopt_noise noise, uint64_t first, int stream) {
    const size_t bytes = kind <= MEMOPT_I_F16 ? 2 : 1; size_t i = 0;
    while (i < n) {
        const uint64_t index = first + i, left = ((uint64_t)1 << 33) - (index & (((uint64_t)1 << 33) - 1));
        const size_t skip = (size_t)(index & 31);
        size_t count = memopt_i_min(n - i, 32 - skip);
        if (count == 32) {
            count = (n - i) & ~(size_t)31;
            if (count > left) count = (size_t)left;
            memopt_i_noise_groups(level, kind, saturate, (unsigned char *)dst + i * bytes, src + i, count, noise, index,
                                  stream);
        } else {
            float from[32] = { 0 }; uint16_t to[32];
            memcpy(from + skip, src + i, count * sizeof *from);
            memopt_i_noise_groups(level, kind, saturate, to, from, 32, noise, index - skip, 0);
            memcpy((unsigned char *)dst + i * bytes, (unsigned char *)to + skip * bytes, count * bytes);
        }
        i += count;
    }
}
/* For other sections: pieces that stay in the cache. */
static void memopt_i_bf16_from_f32_at(int level, uint16_t *dst, const float *src, size_t n) {
    memopt_i_bf16_from_f32_to(level, dst, src, n, 0);
}
static void memopt_i_f32_from_bf16_at(int level, float *dst, const uint16_t *src, size_t n) {
    memopt_i_f32_from_bf16_to(level, dst, src, n, 0);
}
static void memopt_i_bf16_noise_at(int level, uint16_t *dst, const float *src, size_t n, memopt_noise noise,
                                   uint64_t first) {
    memopt_i_noise_to(level, MEMOPT_I_BF16, 0, dst, src, n, noise, first, 0);
}
static void memopt_i_split_at(int level, uint16_t *high, uint16_t *low, const float *src, size_t n) {
    memopt_i_split_to(level, high, low, src, n, 0);
}
static void memopt_i_join_at(int level, float *dst, const uint16_t *high, const uint16_t *low, size_t n) {
    memopt_i_join_to(level, dst, high, low, n, 0);
}
static double memopt_i_squares_at(int level, const float *x, size_t n) {
    const volatile double one = 1.0; /* clang would make a plain sum of fma(a, 1, b), which rounds twice on the x87 */
    double sums[16] = { 0 }; int i, half;
    (void)level;
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) memopt_i_squares_avx512(sums, x, n);
    else if (level >= MEMOPT_SIMD_AVX2) memopt_i_squares_avx2(sums, x, n);
    else memopt_i_squares(sums, x, n);
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) memopt_i_squares_neon(sums, x, n);
    else memopt_i_squares(sums, x, n);
#else
    memopt_i_squares(sums, x, n);
#endif
    for (half = 8; half; half /= 2)
        for (i = 0; i < half; ++i) sums[i] = memopt_i_plus(sums[i], one, sums[i + half]);
    return sums[0];
}

typedef struct memopt_i_number_task {
    void *dst, *dst2; const void *src, *src2; /* the second ones: split and join */
    size_t n, dst_size, src_size;             /* elements; bytes of one */
    uint64_t first; memopt_noise noise;
    int kind, widen, stochastic, saturate, level, stream;
} memopt_i_number_task;
static void memopt_i_number_piece(const memopt_i_number_task *t, size_t i, size_t n, int stream) {
    void *dst = (unsigned char *)t->dst + i * t->dst_size;
    const void *src = (const unsigned char *)t->src + i * t->src_size;
    uint16_t *dst16 = (uint16_t *)dst; float *dst32 = (float *)dst;
    const uint16_t *src16 = (const uint16_t *)src; const float *src32 = (const float *)src;
    if (t->kind == MEMOPT_I_SPLIT && t->widen)
        memopt_i_join_to(t->level, dst32, src16, (const uint16_t *)t->src2 + i, n, stream);
    else if (t->kind == MEMOPT_I_SPLIT)
        memopt_i_split_to(t->level, dst16, (uint16_t *)t->dst2 + i, src32, n, stream);
    else if (t->stochastic)
        memopt_i_noise_to(t->level, t->kind, t->saturate, dst, src32, n, t->noise, t->first + i, stream);
    else if (t->kind == MEMOPT_I_BF16 && t->widen) memopt_i_f32_from_bf16_to(t->level, dst32, src16, n, stream);
    else if (t->kind == MEMOPT_I_BF16) memopt_i_bf16_from_f32_to(t->level, dst16, src32, n, stream);
    else if (t->widen) memopt_i_f32_from_small_to(t->level, dst32, src, n, t->kind, stream);
    else memopt_i_small_from_f32_to(t->level, dst, src32, n, t->kind, t->saturate, stream);
}
#if defined(MEMOPT_I_X86)
/* What was streamed is seen by other threads in order only behind a fence. */
MEMOPT_I_AVX2 static void memopt_i_number_fence(void) { _mm_sfence(); }
static int memopt_i_number_streams(const memopt_i_number_task *t) {
    return t->level >= MEMOPT_SIMD_AVX2 && t->n >= MEMOPT_I_NUMBER_STREAM / t->dst_size
        && (!t->dst2 || !(((uintptr_t)t->dst ^ (uintptr_t)t->dst2) & 63));
}
#else
static void memopt_i_number_fence(void) { }
static int memopt_i_number_streams(const memopt_i_number_task *t) { (void)t; return 0; }
#endif
static void memopt_i_number_chunk(void *task, size_t chunk, int worker) {
    const memopt_i_number_task *t = (const memopt_i_number_task *)task;
    const size_t begin = chunk * MEMOPT_I_NUMBER_CHUNK, n = memopt_i_min(t->n - begin, MEMOPT_I_NUMBER_CHUNK);
    const size_t over = ((uintptr_t)t->dst + begin * t->dst_size) & 63, head = over ? (64 - over) / t->dst_size : 0;
    const size_t body = n > head ? (n - head) & ~(size_t)63 : 0;
    (void)worker;
    if (!t->stream || !body || (t->stochastic && ((t->first + begin + head) & 31))) {
        memopt_i_number_piece(t, begin, n, 0);
        return;
    }
    memopt_i_number_piece(t, begin, head, 0);
    memopt_i_number_piece(t, begin + head, body, 1);
    memopt_i_number_piece(t, begin + head + body, n - head - body, 0);
    memopt_i_number_fence();
    memopt_i_wide_end(t->level);
}
static int memopt_i_number_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    return a && b && ((uintptr_t)b - (uintptr_t)a < a_bytes || (uintptr_t)a - (uintptr_t)b < b_bytes);
}
static memopt_status memopt_i_number_run(memopt_i_number_task *t, const memopt_threads *threads) {
    const uintptr_t misaligned = (((uintptr_t)t->dst | (uintptr_t)t->dst2) & (t->dst_size - 1))
                               | (((uintptr_t)t->src | (uintptr_t)t->src2) & (t->src_size - 1));
    const size_t n = t->n, dst_bytes = n * t->dst_size, src_bytes = n * t->src_size;
    if ((!t->dst || !t->src) && n) return MEMOPT_ERR_ARGUMENT;
    if (t->kind == MEMOPT_I_SPLIT && n && !(t->widen ? t->src2 != NULL : t->dst2 != NULL)) return MEMOPT_ERR_ARGUMENT;
    if (misaligned || (t->saturate & ~1) || (threads && !memopt_i_threads_valid(threads))) return MEMOPT_ERR_ARGUMENT;
    if (n > SIZE_MAX / 4) return MEMOPT_ERR_OVERFLOW;
    if (memopt_i_number_overlap(t->dst, dst_bytes, t->src, src_bytes)
        || memopt_i_number_overlap(t->dst, dst_bytes, t->src2, src_bytes)
        || memopt_i_number_overlap(t->dst2, dst_bytes, t->src, src_bytes)
        || memopt_i_number_overlap(t->dst, dst_bytes, t->dst2, dst_bytes)) return MEMOPT_ERR_ARGUMENT;
    t->level = memopt_i_simd_level(threads);
    t->stream = memopt_i_number_streams(t);
    memopt_i_run(threads, n / MEMOPT_I_NUMBER_CHUNK + (n % MEMOPT_I_NUMBER_CHUNK != 0), memopt_i_number_chunk, t);
    return MEMOPT_OK;
}
static memopt_i_number_task memopt_i_number_task_of(int kind, int widen, void *dst, const void *src, size_t n) {
    const size_t bytes = kind == MEMOPT_I_E4M3 || kind == MEMOPT_I_E5M2 ? 1 : 2; memopt_i_number_task t;
    memset(&t, 0, sizeof t);
    t.kind = kind; t.widen = widen; t.dst = dst; t.src = src; t.n = n;
    t.dst_size = widen ? 4 : bytes; t.src_size = widen ? bytes : 4;
    return t;
}
static memopt_status memopt_i_number_narrow(int kind, void *dst, const float *src, size_t n, int saturate,
                                            const memopt_noise *noise, uint64_t first, const memopt_threads *threads) {
    memopt_i_number_task t = memopt_i_number_task_of(kind, 0, dst, src, n);
    t.saturate = saturate; t.stochastic = noise != NULL; t.first = first;
    if (noise) t.noise = *noise;
    return memopt_i_number_run(&t, threads);
}
static memopt_status memopt_i_number_widen(int kind, float *dst, const void *src, size_t n,
                                           const memopt_threads *threads) {
    memopt_i_number_task t = memopt_i_number_task_of(kind, 1, dst, src, n);
    return memopt_i_number_run(&t, threads);
}
MEMOPT_API memopt_status memopt_bf16_from_f32(uint16_t *dst, const float *src, size_t n,
                                              const memopt_threads *threads) {
    return memopt_i_number_narrow(MEMOPT_I_BF16, dst, src, n, 0, NULL, 0, threads);
}
MEMOPT_API memopt_status memopt_f16_from_f32(uint16_t *dst, const float *src, size_t n, const memopt_threads *threads) {
    return memopt_i_number_narrow(MEMOPT_I_F16, dst, src, n, 0, NULL, 0, threads);
}
MEMOPT_API memopt_status memopt_e4m3_from_f32(uint8_t *dst, const float *src, size_t n, int saturate,
                                              const memopt_threads *threads) {
    return memopt_i_number_narrow(MEMOPT_I_E4M3, dst, src, n, saturate, NULL, 0, threads);
}
MEMOPT_API memopt_status memopt_e5m2_from_f32(uint8_t *dst, const float *src, size_t n, int saturate,
                                              const memopt_threads *threads) {
    return memopt_i_number_narrow(MEMOPT_I_E5M2, dst, src, n, saturate, NULL, 0, threads);
}
MEMOPT_API memopt_status memopt_bf16_from_f32_stochastic(uint16_t *dst, const float *src, size_t n, memopt_noise noise,
                                                         uint64_t first, const memopt_threads *threads) {
    return memopt_i_number_narrow(MEMOPT_I_BF16, dst, src, n, 0, &noise, first, threads);
}
MEMOPT_API memopt_status memopt_f16_from_f32_stochastic(uint16_t *dst, const float *src, size_t n, memopt_noise noise,
                                                        uint64_t first, const memopt_threads *threads) {
    return memopt_i_number_narrow(MEMOPT_I_F16, dst, src, n, 0, &noise, first, threads);
}
MEMOPT_API memopt_status memopt_e4m3_from_f32_stochastic(uint8_t *dst, const float *src, size_t n, int saturate,
                                                         memopt_noise noise, uint64_t first,
                                                         const memopt_threads *threads) {
    return memopt_i_number_narrow(MEMOPT_I_E4M3, dst, src, n, saturate, &noise, first, threads);
}
MEMOPT_API memopt_status memopt_e5m2_from_f32_stochastic(uint8_t *dst, const float *src, size_t n, int saturate,
                                                         memopt_noise noise, uint64_t first,
                                                         const memopt_threads *threads) {
    return memopt_i_number_narrow(MEMOPT_I_E5M2, dst, src, n, saturate, &noise, first, threads);
}
MEMOPT_API memopt_status memopt_f32_from_bf16(float *dst, const uint16_t *src, size_t n,
                                              const memopt_threads *threads) {
    return memopt_i_number_widen(MEMOPT_I_BF16, dst, src, n, threads);
}
MEMOPT_API memopt_status memopt_f32_from_f16(float *dst, const uint16_t *src, size_t n, const memopt_threads *threads) {
    return memopt_i_number_widen(MEMOPT_I_F16, dst, src, n, threads);
}
MEMOPT_API memopt_status memopt_f32_from_e4m3(float *dst, const uint8_t *src, size_t n, const memopt_threads *threads) {
    return memopt_i_number_widen(MEMOPT_I_E4M3, dst, src, n, threads);
}
MEMOPT_API memopt_status memopt_f32_from_e5m2(float *dst, const uint8_t *src, size_t n, const memopt_threads *threads) {
    return memopt_i_number_widen(MEMOPT_I_E5M2, dst, src, n, threads);
}
MEMOPT_API memopt_status memopt_f32_split(uint16_t *high, uint16_t *low, const float *src, size_t n,
                                          const memopt_threads *threads) {
    memopt_i_number_task t = memopt_i_number_task_of(MEMOPT_I_SPLIT, 0, high, src, n);
    t.dst2 = low;
    return memopt_i_number_run(&t, threads);
}
MEMOPT_API memopt_status memopt_f32_join(float *dst, const uint16_t *high, const uint16_t *low, size_t n,
                                         const memopt_threads *threads) {
    memopt_i_number_task t = memopt_i_number_task_of(MEMOPT_I_SPLIT, 1, dst, high, n);
    t.src2 = low;
    return memopt_i_number_run(&t, threads);
}
MEMOPT_API size_t memopt_type_bytes(memopt_type type) {
    switch (type) {
    case MEMOPT_TYPE_F32:  return 4;
    case MEMOPT_TYPE_BF16: case MEMOPT_TYPE_F16: return 2;
    }
    return 0;
}
MEMOPT_API const char *memopt_type_text(memopt_type type) {
    switch (type) {
    case MEMOPT_TYPE_F32:  return "fp32";
    case MEMOPT_TYPE_BF16: return "bf16";
    case MEMOPT_TYPE_F16:  return "fp16";
    }
    return "not a type of memopt";
}
/* @section quant : number api_quant
   Blocks of floats as bytes. A byte is an index into 256 levels that are scaled by the block's largest magnitude.
                                                                                  [Dettmers 2021, arXiv:2110.02861]
   Problem    Optimizer states span many decades within one tensor; levels at equal distances turn the small ones into
              0. And bitsandbytes' own CPU code finds the code through 65,536 equal bins: 9 to 11 of the 256 codes are
              never reached, and 0 comes back as something else.
   Idea       A dynamic map is a little decimal float: decade d (0 to 6) has 2^d levels (unsigned 2^(d+1)) in the
              middles of equal intervals of [0.1, 1) * 10^(d-6). So the index of y is a line, slope[d] * y +
              offset[d], cut off at the decade's last index. What decade is a question of the exponent and one
              comparison, as no octave holds more than one junction between decades.
   Exact      The levels below are, to the last bit, those of bitsandbytes' create_dynamic_map() under torch 2.15 on a
              processor with AVX2 or AVX-512, where torch.linspace is start + i * step with one rounding from the
              front, and end - i * step from the back. Older torch (1.13), or one without fused multiply-add, puts
              about a sixth of them one or two units of the last place elsewhere: no build of it is the norm, this one
              is the newest.
              tests/test_quant.c holds torch's own output; tests/exhaustive_quant.c builds them from the formula.
              The code of y is the number of middles between neighbouring levels that lie below y. A middle is exact
              in a double, and the scalar code compares with that. (bitsandbytes compares with a rounded middle, lets
              ties go to the even code, and moves small negative values from 0 to the level below it; here ties go to
              the lower code, and what is nearest to 0 is 0.)
              The vector code leaves the line's value as a float from 256 up, with 15 bits below the code, and a few
              units too high. Whatever then lies within 8 / 2^15 above an integer has that code or the one before, and
              is compared exactly: about one value in 4,000. Junctions are compared exactly as they are; the signed
              map compares 2 |y| + sign with twice the junction, which makes a tie of a negative value go down, too.
   Wide       AVX-512: the junction, slope, offset and last index of 16 octaves each are permuted out of two
              registers; 64 codes are gathered by multishifts. Decoding looks up one byte of each level at a time, as
              vpermb finds 64 bytes in 64 for one operation: 8 lookups (unsigned 16) and 8 interleavings make 64
              floats, no gather.
              AVX2: the piece is found by halving; decoding gathers. Elsewhere, NEON too, the scalar code runs.
   Invariant  A block's codes depend on its own elements only; chunks hold whole blocks; every level gives the same
              bytes. The vector paths want |y| < 2 or not finite, which x * memopt_i_inverse(absmax of it) always is.
   Cost       One read of the floats (the block is in the first-level cache when it is encoded). AVX-512, 256 elements
              there: absmax 0.04, encode 0.19 to 0.24, decode 0.11 to 0.14 ns an element; AVX2 3 to 5 times that.
              From 8 Mi elements on the results are streamed past the cache, and the lines to come are asked for 8 KiB
              ahead; codes are collected for up to 4 KiB first, so that only whole lines are written.
   Trap       Data with few bits, such as bf16, over a power of two lies on a boundary in one case out of 18, and the
              levels of the signed map lie on those of the unsigned one: exact comparisons then make encoding
              five times slower or more, in such blocks only. memopt_i_encode_unsure must get codes that are right or one too
              high.
   Four bits  For the first moment alone (blocks of 128, the second moment as 8 bits of its root) they were measured,
              as the relative error of Adam's update after 600 steps, one gradient of a block `ratio` times the
              others:
                                        ratio 1   1e-2   1e-4          allowed   0.04   0.13   0.35
                8 bits, dynamic           0.028  0.097  0.304          4 bits, NF4                 0.196  1.230  0.884
                4 bits, dynamic           0.298  0.680  0.883          4 bits, powers of two       0.385  0.665  0.883
                4 bits, linear            0.210  1.032  0.884          5, 6, 7 bits, linear, at 1  0.109  0.059  0.034
              Stochastic rounding makes each worse (NF4 0.30 at 1). It cannot work: with beta1 0.9 rounding errors add
              up to twice that of one step, and the best 16 levels for a normal distribution err by a tenth of its
              spread. 0.2 is five times what is allowed, so there are no 4-bit codes. tests/test_quant.c computes the
              table. */
#define MEMOPT_I_SIGNED_LEVELS(X) \
    X(0x00000000) X(0x3513a3b7) X(0x365a1a94) X(0x370205ff) X(0x37b24206) X(0x38378034) X(0x388aefb3) \
    X(0x38ba1f4b) X(0x3923d70b) X(0x398ce705) X(0x39c7e283) X(0x3a016f01) X(0x3a1eecc1) X(0x3a3c6a80) \
    X(0x3a59e83e) X(0x3a7765ff) X(0x3aa7ef9d) X(0x3af1a9fc) X(0x3b1db22d) X(0x3b428f5c) X(0x3b676c8a) \
    X(0x3b8624dd) X(0x3b989374) X(0x3bab020d) X(0x3bbd70a4) X(0x3bcfdf3b) X(0x3be24dd3) X(0x3bf4bc6a) \
    X(0x3c039581) X(0x3c0ccccd) X(0x3c160418) X(0x3c1f3b64) X(0x3c3ae148) X(0x3c68f5c3) X(0x3c8b851f) \
    X(0x3ca28f5d) X(0x3cb9999a) X(0x3cd0a3d7) X(0x3ce7ae15) X(0x3cfeb852) X(0x3d0ae148) X(0x3d166667) \
    X(0x3d21eb85) X(0x3d2d70a3) X(0x3d38f5c3) X(0x3d447ae1) X(0x3d500000) X(0x3d5b851f) X(0x3d670a3d) \
    X(0x3d728f5d) X(0x3d7e147b) X(0x3d84cccd) X(0x3d8a8f5d) X(0x3d9051eb) X(0x3d96147b) X(0x3d9bd70a) \
    X(0x3da1999a) X(0x3da75c2a) X(0x3dad1eb8) X(0x3db2e148) X(0x3db8a3d7) X(0x3dbe6667) X(0x3dc428f7) \
    X(0x3dc9eb85) X(0x3ddb3334) X(0x3df80000) X(0x3e0a6666) X(0x3e18cccd) X(0x3e273333) X(0x3e35999a) \
    X(0x3e440000) X(0x3e526666) X(0x3e60cccd) X(0x3e6f3333) X(0x3e7d9999) X(0x3e860000) X(0x3e8d3334) \
    X(0x3e946666) X(0x3e9b999a) X(0x3ea2cccc) X(0x3eaa0000) X(0x3eb13333) X(0x3eb86666) X(0x3ebf999a) \
    X(0x3ec6cccc) X(0x3ece0000) X(0x3ed53333) X(0x3edc6666) X(0x3ee3999a) X(0x3eeacccc) X(0x3ef20000) \
    X(0x3ef93332) X(0x3f003333) X(0x3f03cccc) X(0x3f076666) X(0x3f0b0000) X(0x3f0e999a) X(0x3f123334) \
    X(0x3f15cccd) X(0x3f196666) X(0x3f1d0000) X(0x3f20999a) X(0x3f243334) X(0x3f27cccd) X(0x3f2b6666) \
    X(0x3f2f0000) X(0x3f32999a) X(0x3f363334) X(0x3f39cccd) X(0x3f3d6666) X(0x3f410000) X(0x3f44999a) \
    X(0x3f483333) X(0x3f4bcccd) X(0x3f4f6666) X(0x3f530000) X(0x3f56999a) X(0x3f5a3333) X(0x3f5dcccd) \
    X(0x3f616666) X(0x3f650000) X(0x3f68999a) X(0x3f6c3333) X(0x3f6fcccd) X(0x3f736666) X(0x3f770000) \
    X(0x3f7a999a) X(0x3f7e3333)

#define MEMOPT_I_UNSIGNED_LEVELS(X) \
    X(0x00000000) X(0x34ae7baa) X(0x35500998) X(0x360e9b38) X(0x3692ccf6) X(0x36de4c51) X(0x3714e5d5) \
    X(0x3783126e) X(0x37e171a0) X(0x381fe868) X(0x384f1800) X(0x387e479a) X(0x3896bb99) X(0x38ae5364) \
    X(0x38c5eb31) X(0x3906594b) X(0x394154ca) X(0x397c5049) X(0x399ba5e4) X(0x39b923a2) X(0x39d6a163) \
    X(0x39f41f22) X(0x3a08ce71) X(0x3a178d50) X(0x3a264c30) X(0x3a350b10) X(0x3a43c9ef) X(0x3a5288d0) \
    X(0x3a6147af) X(0x3a70068e) X(0x3a7ec56e) X(0x3a958106) X(0x3aba5e35) X(0x3adf3b64) X(0x3b020c4a) \
    X(0x3b147ae1) X(0x3b26e978) X(0x3b395810) X(0x3b4bc6a7) X(0x3b5e3540) X(0x3b70a3d7) X(0x3b818937) \
    X(0x3b8ac082) X(0x3b93f7cf) X(0x3b9d2f1a) X(0x3ba66666) X(0x3baf9db2) X(0x3bb8d4fd) X(0x3bc20c4a) \
    X(0x3bcb4395) X(0x3bd47ae1) X(0x3bddb22e) X(0x3be6e978) X(0x3bf020c5) X(0x3bf9580f) X(0x3c0147ae) \
    X(0x3c05e354) X(0x3c0a7ef9) X(0x3c0f1aa0) X(0x3c13b645) X(0x3c1851eb) X(0x3c1ced92) X(0x3c218937) \
    X(0x3c2f5c2a) X(0x3c466667) X(0x3c5d70a3) X(0x3c747ae2) X(0x3c85c28f) X(0x3c9147af) X(0x3c9ccccd) \
    X(0x3ca851eb) X(0x3cb3d70b) X(0x3cbf5c29) X(0x3ccae147) X(0x3cd66667) X(0x3ce1eb87) X(0x3ced70a3) \
    X(0x3cf8f5c3) X(0x3d023d70) X(0x3d080000) X(0x3d0dc28f) X(0x3d13851f) X(0x3d1947af) X(0x3d1f0a3d) \
    X(0x3d24cccd) X(0x3d2a8f5c) X(0x3d3051eb) X(0x3d36147b) X(0x3d3bd70a) X(0x3d41999a) X(0x3d475c28) \
    X(0x3d4d1eb8) X(0x3d52e147) X(0x3d58a3d7) X(0x3d5e6667) X(0x3d6428f7) X(0x3d69eb87) X(0x3d6fae15) \
    X(0x3d7570a3) X(0x3d7b3333) X(0x3d807ae2) X(0x3d835c2a) X(0x3d863d71) X(0x3d891eb8) X(0x3d8c0000) \
    X(0x3d8ee148) X(0x3d91c290) X(0x3d94a3d7) X(0x3d97851f) X(0x3d9a6667) X(0x3d9d47af) X(0x3da028f6) \
    X(0x3da30a3e) X(0x3da5eb85) X(0x3da8cccd) X(0x3dabae15) X(0x3dae8f5c) X(0x3db170a4) X(0x3db451eb) \
    X(0x3db73333) X(0x3dba147b) X(0x3dbcf5c3) X(0x3dbfd70b) X(0x3dc2b852) X(0x3dc5999a) X(0x3dc87ae2) \
    X(0x3dcb5c29) X(0x3dd40000) X(0x3de26666) X(0x3df0cccd) X(0x3dff3333) X(0x3e06cccc) X(0x3e0e0000) \
    X(0x3e153334) X(0x3e1c6666) X(0x3e23999a) X(0x3e2acccc) X(0x3e320000) X(0x3e393334) X(0x3e406666) \
    X(0x3e47999a) X(0x3e4ecccc) X(0x3e560000) X(0x3e5d3334) X(0x3e646666) X(0x3e6b999a) X(0x3e72cccc) \
    X(0x3e7a0000) X(0x3e809999) X(0x3e843333) X(0x3e87cccd) X(0x3e8b6666) X(0x3e8f0000) X(0x3e92999a) \
    X(0x3e963333) X(0x3e99cccc) X(0x3e9d6666) X(0x3ea10000) X(0x3ea4999a) X(0x3ea83333) X(0x3eabcccc) \
    X(0x3eaf6666) X(0x3eb30000) X(0x3eb6999a) X(0x3eba3333) X(0x3ebdcccc) X(0x3ec16666) X(0x3ec50000) \
    X(0x3ec8999a) X(0x3ecc3333) X(0x3ecfcccc) X(0x3ed36666) X(0x3ed70000) X(0x3eda999a) X(0x3ede3333) \
    X(0x3ee1cccc) X(0x3ee56666) X(0x3ee90000) X(0x3eec999a) X(0x3ef03333) X(0x3ef3cccc) X(0x3ef76666) \
    X(0x3efb0000) X(0x3efe9999) X(0x3f01199a) X(0x3f02e666) X(0x3f04b333) X(0x3f068000) X(0x3f084ccc) \
    X(0x3f0a199a) X(0x3f0be666) X(0x3f0db334) X(0x3f0f8000) X(0x3f114ccd) X(0x3f13199a) X(0x3f14e666) \
    X(0x3f16b334) X(0x3f188000) X(0x3f1a4ccd) X(0x3f1c199a) X(0x3f1de666) X(0x3f1fb334) X(0x3f218000) \
    X(0x3f234ccd) X(0x3f25199a) X(0x3f26e666) X(0x3f28b334) X(0x3f2a8000) X(0x3f2c4ccd) X(0x3f2e199a) \
    X(0x3f2fe666) X(0x3f31b334) X(0x3f338000) X(0x3f354ccd) X(0x3f37199a) X(0x3f38e666) X(0x3f3ab334) \
    X(0x3f3c8000) X(0x3f3e4ccd) X(0x3f40199a) X(0x3f41e666) X(0x3f43b334) X(0x3f458000) X(0x3f474ccc) \
    X(0x3f49199a) X(0x3f4ae666) X(0x3f4cb334) X(0x3f4e8000) X(0x3f504ccc) X(0x3f52199a) X(0x3f53e666) \
    X(0x3f55b334) X(0x3f578000) X(0x3f594ccc) X(0x3f5b199a) X(0x3f5ce666) X(0x3f5eb334) X(0x3f608000) \
    X(0x3f624ccc) X(0x3f64199a) X(0x3f65e666) X(0x3f67b334) X(0x3f698000) X(0x3f6b4ccc) X(0x3f6d199a) \
    X(0x3f6ee666) X(0x3f70b334) X(0x3f728000) X(0x3f744ccc) X(0x3f76199a) X(0x3f77e666) X(0x3f79b334) \
    X(0x3f7b8000) X(0x3f7d4ccc) X(0x3f7f199a) X(0x3f800000)

#define MEMOPT_I_MAP_BITS(u) u,
static const uint32_t memopt_i_signed_levels[129] = { MEMOPT_I_SIGNED_LEVELS(MEMOPT_I_MAP_BITS) 0x3f800000 };
static const uint32_t memopt_i_unsigned_levels[256] = { MEMOPT_I_UNSIGNED_LEVELS(MEMOPT_I_MAP_BITS) };
static float memopt_i_map_level(memopt_map map, unsigned code) {
    const unsigned magnitude = code < 127 ? 127 - code : code - 127;
    if (map == MEMOPT_MAP_UNSIGNED) return memopt_i_bits_float(memopt_i_unsigned_levels[code]);
    if (map == MEMOPT_MAP_LINEAR) return (float)((int)code - 127) * 0.0078125f;
    return memopt_i_bits_float(memopt_i_signed_levels[magnitude] | (uint32_t)(code < 127) << 31);
}
static unsigned memopt_i_map_zero(memopt_map map) { return map == MEMOPT_MAP_UNSIGNED ? 0 : 127; }
/* Is y above the middle between this level and the next? Sums of two neighbours are exact in a double. */
static int memopt_i_map_above(memopt_map map, double y, unsigned code) {
    return y + y > (double)memopt_i_map_level(map, code) + (double)memopt_i_map_level(map, code + 1);
}
/* About the code of y, by the formula of the map. */
static unsigned memopt_i_map_guess(memopt_map map, double y) {
    const double magnitude = y < 0 ? -y : y; double ten = 1.0, index; unsigned decade = 6, count;
    if (map == MEMOPT_MAP_UNSIGNED && y <= 0) return 0;
    if (magnitude >= 1) return y < 0 ? 0 : 255;
    if (map == MEMOPT_MAP_LINEAR) return (unsigned)(y * 128 + 127.5);
    for (; decade > 0 && magnitude * ten < 0.1; --decade) ten *= 10;
    count = (map == MEMOPT_MAP_UNSIGNED ? 2u : 1u) << decade;
    index = (magnitude * ten - 0.1) / 0.9;
    index = (double)count * (index > 0 ? 1 + index : 1);
    if (map == MEMOPT_MAP_UNSIGNED) return (unsigned)index - 1;
    return y < 0 ? 127 - (unsigned)index : 127 + (unsigned)index;
}
/* The definition: the number of middles between neighbours that y is above. */
static uint8_t memopt_i_encode_one(memopt_map map, float y) {
    unsigned code;
    if ((memopt_i_float_bits(y) & 0x7fffffff) > 0x7f800000) return (uint8_t)memopt_i_map_zero(map);
    code = memopt_i_map_guess(map, (double)y);
    while (code < 255 && memopt_i_map_above(map, (double)y, code)) ++code;
    while (code > 0 && !memopt_i_map_above(map, (double)y, code - 1)) --code;
    return (uint8_t)code;
}
/* fl(x * inverse) as a float also where the processor computes wider */
static float memopt_i_scaled(float x, float inverse) {
    volatile float y = x * inverse;
    return y;
}
static float memopt_i_absmax_scalar(const float *x, size_t n) {
    uint32_t most = 0, u; size_t i;
    for (i = 0; i < n; ++i) {
        u = memopt_i_float_bits(x[i]) & 0x7fffffff;
        if (u > most && u < 0x7f800000) most = u;
    }
    return memopt_i_bits_float(most);
}
static float memopt_i_inverse(float absmax) {
    const uint32_t largest = 0x7f7fffff; float inverse;
    if (memopt_i_float_bits(absmax) << 1 == 0) return 0;
    inverse = 1.0f / absmax;
    return memopt_i_float_bits(inverse) > largest ? memopt_i_bits_float(largest) : inverse;
}
static void memopt_i_encode_scalar(memopt_map map, uint8_t *codes, const float *x, size_t n, float inverse) {
    size_t i;
    for (i = 0; i < n; ++i) codes[i] = memopt_i_encode_one(map, memopt_i_scaled(x[i], inverse));
}
static void memopt_i_decode_scalar(memopt_map map, float *x, const uint8_t *codes, size_t n, float absmax) {
    size_t i;
    for (i = 0; i < n; ++i) x[i] = memopt_i_map_level(map, codes[i]) * absmax;
}
/* For the wide paths: codes that are exact, or one too high; the bits of `unsure` tell which to compare exactly. */
#if defined(MEMOPT_I_X86)
static MEMOPT_I_NOINLINE void memopt_i_encode_unsure(memopt_map map, uint8_t *codes, const float *x, float inverse,
                                                     uint64_t unsure) {
    for (; unsure; unsure &= unsure - 1) {
        const unsigned i = memopt_i_low_bit(unsure), code = codes[i];
        const float y = memopt_i_scaled(x[i], inverse);
        const unsigned below = code ? code - 1 : 0; /* the choice without a branch: it goes either way */
        codes[i] = (uint8_t)(below + (unsigned)memopt_i_map_above(map, (double)y, below));
    }
}
#endif
#if defined(MEMOPT_I_X86)
/* Each octave from 2^-31 to 1 lies in one piece of a map, or in two, with a junction: below the first level (none), the
   decades 0 to 6, and the last level (one). A piece is a line, index = slope * |y| + offset, up to its last index;
   those of the unsigned map are twice as dense. A junction is the largest float that still belongs to the lower piece;
   in the signed map it is shifted left, and odd where the middle itself is no float. */
#define MEMOPT_I_NONE 0xffffffff
#define MEMOPT_I_SIGNED_OCTAVES(X) \
    X(none, MEMOPT_I_NONE) X(none, MEMOPT_I_NONE) X(none, MEMOPT_I_NONE) X(none, MEMOPT_I_NONE) X(none, MEMOPT_I_NONE) \
    X(none, MEMOPT_I_NONE) X(none, MEMOPT_I_NONE) X(none, MEMOPT_I_NONE) X(none, MEMOPT_I_NONE) X(none, 0x6927476e) \
    X(0, MEMOPT_I_NONE) X(0, 0x6bfe0703) X(1, MEMOPT_I_NONE) X(1, MEMOPT_I_NONE) X(1, 0x6ee68a0b) \
    X(2, MEMOPT_I_NONE) X(2, MEMOPT_I_NONE) X(2, MEMOPT_I_NONE) X(2, 0x7200e6b1) \
    X(3, MEMOPT_I_NONE) X(3, MEMOPT_I_NONE) X(3, 0x7523a29d) X(4, MEMOPT_I_NONE) X(4, MEMOPT_I_NONE) X(4, 0x785a1cac) \
    X(5, MEMOPT_I_NONE) X(5, MEMOPT_I_NONE) X(5, 0x7ba51eb9) X(6, MEMOPT_I_NONE) X(6, MEMOPT_I_NONE) X(6, 0x7efe3333) \
    X(one, MEMOPT_I_NONE)
#define MEMOPT_I_UNSIGNED_OCTAVES(X) \
    X(none, MEMOPT_I_NONE) X(none, MEMOPT_I_NONE) X(none, MEMOPT_I_NONE) X(none, MEMOPT_I_NONE) X(none, MEMOPT_I_NONE) \
    X(none, MEMOPT_I_NONE) X(none, MEMOPT_I_NONE) X(none, MEMOPT_I_NONE) X(none, 0x342e7baa) \
    X(0, MEMOPT_I_NONE) X(0, MEMOPT_I_NONE) X(0, 0x35c29d9e) X(1, MEMOPT_I_NONE) X(1, MEMOPT_I_NONE) X(1, 0x374d8558) \
    X(2, MEMOPT_I_NONE) X(2, MEMOPT_I_NONE) X(2, 0x38e94ee3) \
    X(3, MEMOPT_I_NONE) X(3, MEMOPT_I_NONE) X(3, MEMOPT_I_NONE) X(3, 0x3a8a71de) \
    X(4, MEMOPT_I_NONE) X(4, MEMOPT_I_NONE) X(4, 0x3c2872b0) X(5, MEMOPT_I_NONE) X(5, MEMOPT_I_NONE) X(5, 0x3dcfae14) \
    X(6, MEMOPT_I_NONE) X(6, MEMOPT_I_NONE) X(6, 0x3f7f8ccd) X(one, MEMOPT_I_NONE)
#define MEMOPT_I_SLOPE_none  0.0
#define MEMOPT_I_SLOPE_0     (1e6 / 0.9)
#define MEMOPT_I_SLOPE_1     (2e5 / 0.9)
#define MEMOPT_I_SLOPE_2     (4e4 / 0.9)
#define MEMOPT_I_SLOPE_3     (8e3 / 0.9)
#define MEMOPT_I_SLOPE_4     (16e2 / 0.9)
#define MEMOPT_I_SLOPE_5     (32e1 / 0.9)
#define MEMOPT_I_SLOPE_6     (64 / 0.9)
#define MEMOPT_I_SLOPE_one   1e6
#define MEMOPT_I_OFFSET_none 0.75
#define MEMOPT_I_OFFSET_0    (8 / 9.0)
#define MEMOPT_I_OFFSET_1    (16 / 9.0)
#define MEMOPT_I_OFFSET_2    (32 / 9.0)
#define MEMOPT_I_OFFSET_3    (64 / 9.0)
#define MEMOPT_I_OFFSET_4    (128 / 9.0)
#define MEMOPT_I_OFFSET_5    (256 / 9.0)
#define MEMOPT_I_OFFSET_6    (512 / 9.0)
#define MEMOPT_I_OFFSET_one  0.0
#define MEMOPT_I_LAST_none   0
#define MEMOPT_I_LAST_0      1
#define MEMOPT_I_LAST_1      3
#define MEMOPT_I_LAST_2      7
#define MEMOPT_I_LAST_3      15
#define MEMOPT_I_LAST_4      31
#define MEMOPT_I_LAST_5      63
#define MEMOPT_I_LAST_6      127
#define MEMOPT_I_LAST_one    127.6
#define MEMOPT_I_UNSURE      (4 / 32768.0) /* how far from a boundary the lines are trusted, in codes */
#define MEMOPT_I_SIGNED_SLOPE(p, j)    (float)MEMOPT_I_SLOPE_##p,
#define MEMOPT_I_SIGNED_OFFSET(p, j)   (float)(MEMOPT_I_OFFSET_##p - 0.5),
#define MEMOPT_I_SIGNED_LAST(p, j)     (float)MEMOPT_I_LAST_##p,
#define MEMOPT_I_UNSIGNED_SLOPE(p, j)  (float)(2 * MEMOPT_I_SLOPE_##p),
#define MEMOPT_I_UNSIGNED_OFFSET(p, j) (float)(2 * MEMOPT_I_OFFSET_##p + 255 + MEMOPT_I_UNSURE),
#define MEMOPT_I_UNSIGNED_LAST(p, j)   (float)(2 * MEMOPT_I_LAST_##p + 256.5),
#define MEMOPT_I_JUNCTION(p, j) j,
static const uint32_t memopt_i_signed_junctions[32]   = { MEMOPT_I_SIGNED_OCTAVES(MEMOPT_I_JUNCTION) };
static const float    memopt_i_signed_lines[3][32]    = { { MEMOPT_I_SIGNED_OCTAVES(MEMOPT_I_SIGNED_SLOPE) },
    { MEMOPT_I_SIGNED_OCTAVES(MEMOPT_I_SIGNED_OFFSET) }, { MEMOPT_I_SIGNED_OCTAVES(MEMOPT_I_SIGNED_LAST) } };
static const uint32_t memopt_i_unsigned_junctions[32] = { MEMOPT_I_UNSIGNED_OCTAVES(MEMOPT_I_JUNCTION) };
static const float    memopt_i_unsigned_lines[3][32]  = { { MEMOPT_I_UNSIGNED_OCTAVES(MEMOPT_I_UNSIGNED_SLOPE) },
    { MEMOPT_I_UNSIGNED_OCTAVES(MEMOPT_I_UNSIGNED_OFFSET) }, { MEMOPT_I_UNSIGNED_OCTAVES(MEMOPT_I_UNSIGNED_LAST) } };
#define MEMOPT_I_PIECES(X) X(0, 0) X(1, 0) X(2, 0) X(3, 0) X(4, 0) X(5, 0) X(6, 0) X(one, 0)
static const float    memopt_i_signed_pieces[3][8]    = { { MEMOPT_I_PIECES(MEMOPT_I_SIGNED_SLOPE) },
    { MEMOPT_I_PIECES(MEMOPT_I_SIGNED_OFFSET) }, { MEMOPT_I_PIECES(MEMOPT_I_SIGNED_LAST) } };
static const float    memopt_i_unsigned_pieces[3][8]  = { { MEMOPT_I_PIECES(MEMOPT_I_UNSIGNED_SLOPE) },
    { MEMOPT_I_PIECES(MEMOPT_I_UNSIGNED_OFFSET) }, { MEMOPT_I_PIECES(MEMOPT_I_UNSIGNED_LAST) } };
/* the junctions below pieces 1 to 6 and one, then that below piece 0 */
static const uint32_t memopt_i_piece_junctions[2][8]  = {
    { 0x6bfe0703, 0x6ee68a0b, 0x7200e6b1, 0x7523a29d, 0x785a1cac, 0x7ba51eb9, 0x7efe3333, 0x6927476e },
    { 0x35c29d9e, 0x374d8558, 0x38e94ee3, 0x3a8a71de, 0x3c2872b0, 0x3dcfae14, 0x3f7f8ccd, 0x342e7baa } };
#define MEMOPT_I_BYTE_0(u) (uint8_t)((u) & 0xff),
#define MEMOPT_I_BYTE_1(u) (uint8_t)((u) >> 8 & 0xff),
#define MEMOPT_I_BYTE_2(u) (uint8_t)((u) >> 16 & 0xff),
#define MEMOPT_I_BYTE_3(u) (uint8_t)((u) >> 24),
static const uint8_t memopt_i_signed_planes[4][128] = {
    { MEMOPT_I_SIGNED_LEVELS(MEMOPT_I_BYTE_0) }, { MEMOPT_I_SIGNED_LEVELS(MEMOPT_I_BYTE_1) },
    { MEMOPT_I_SIGNED_LEVELS(MEMOPT_I_BYTE_2) }, { MEMOPT_I_SIGNED_LEVELS(MEMOPT_I_BYTE_3) } };
static const uint8_t memopt_i_unsigned_planes[4][256] = {
    { MEMOPT_I_UNSIGNED_LEVELS(MEMOPT_I_BYTE_0) }, { MEMOPT_I_UNSIGNED_LEVELS(MEMOPT_I_BYTE_1) },
    { MEMOPT_I_UNSIGNED_LEVELS(MEMOPT_I_BYTE_2) }, { MEMOPT_I_UNSIGNED_LEVELS(MEMOPT_I_BYTE_3) } };

static uint32_t memopt_i_quant_larger(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline void memopt_i_quant_ahead(const void *x) { /* the four cache lines that are 8 KiB further on */
    __builtin_prefetch((const void *)((uintptr_t)x + 8192)); __builtin_prefetch((const void *)((uintptr_t)x + 8256));
    __builtin_prefetch((const void *)((uintptr_t)x + 8320)); __builtin_prefetch((const void *)((uintptr_t)x + 8384));
}
/* ---- AVX-512 ---- */
#if defined(__clang__) /* gcc -O2 keeps arrays of vectors in memory unless the loop over them is unrolled */
#  define MEMOPT_I_QUANT_UNROLL _Pragma("clang loop unroll(full)")
#else
#  define MEMOPT_I_QUANT_UNROLL _Pragma("GCC unroll 16")
#endif
#define MEMOPT_I_AVX512_PART MEMOPT_I_AVX512 static inline __attribute__((always_inline))
MEMOPT_I_AVX512_PART float memopt_i_absmax_avx512_as(const float *x, size_t n, int ahead) {
    const __m512i sign = _mm512_set1_epi32((int)0x80000000); size_t i; uint32_t most;
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    for (i = 0; i + 64 <= n; i += 64) {
        if (ahead) memopt_i_quant_ahead(x + i);
        a = _mm512_max_epu32(a, _mm512_andnot_si512(sign, _mm512_loadu_si512(x + i)));
        b = _mm512_max_epu32(b, _mm512_andnot_si512(sign, _mm512_loadu_si512(x + i + 16)));
        c = _mm512_max_epu32(c, _mm512_andnot_si512(sign, _mm512_loadu_si512(x + i + 32)));
        d = _mm512_max_epu32(d, _mm512_andnot_si512(sign, _mm512_loadu_si512(x + i + 48)));
    }
    for (; i < n; i += 16) {
        const __mmask16 k = (__mmask16)(n - i < 16 ? (1u << (n - i)) - 1 : 0xffff);
        a = _mm512_max_epu32(a, _mm512_andnot_si512(sign, _mm512_maskz_loadu_epi32(k, x + i)));
    }
    most = _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_max_epu32(a, b), _mm512_max_epu32(c, d)));
    if (MEMOPT_I_LIKELY(most < 0x7f800000)) return memopt_i_bits_float(most);
    _mm256_zeroupper(); /* gcc 12 leaves it out before a call at the end, which costs 160 ns later */
    return memopt_i_absmax_scalar(x, n);
}
MEMOPT_I_AVX512 static float memopt_i_absmax_avx512(const float *x, size_t n, int ahead) {
    return ahead ? memopt_i_absmax_avx512_as(x, n, 1) : memopt_i_absmax_avx512_as(x, n, 0);
}
typedef struct memopt_i_lines512 { __m512i junctions[2]; __m512 slopes[2], offsets[2], lasts[2]; } memopt_i_lines512;
MEMOPT_I_AVX512_PART memopt_i_lines512 memopt_i_lines_avx512(memopt_map map) {
    const uint32_t *junctions = map == MEMOPT_MAP_UNSIGNED ? memopt_i_unsigned_junctions : memopt_i_signed_junctions;
    const float (*lines)[32] = map == MEMOPT_MAP_UNSIGNED ? memopt_i_unsigned_lines : memopt_i_signed_lines;
    memopt_i_lines512 t; int i;
    MEMOPT_I_QUANT_UNROLL
    for (i = 0; i < 2; ++i) {
        t.junctions[i] = _mm512_loadu_si512(junctions + 16 * i);
        t.slopes[i] = _mm512_loadu_ps(lines[0] + 16 * i);
        t.offsets[i] = _mm512_loadu_ps(lines[1] + 16 * i);
        t.lasts[i] = _mm512_loadu_ps(lines[2] + 16 * i);
    }
    return t;
}
/* 16 codes, each as a float from 256 up: bits 15 to 22 are the code, below them is where in its interval y lies. */
MEMOPT_I_AVX512_PART __m512 memopt_i_place_avx512(memopt_map map, const memopt_i_lines512 *t, __m512 y) {
    const __m512i one = _mm512_set1_epi32(1); const __m512 tiny = _mm512_set1_ps(4.656612873077393e-10f); /* 2^-31 */
    __m512i key, octave; __m512 slope, offset, last;
    if (map == MEMOPT_MAP_UNSIGNED) y = _mm512_max_ps(y, tiny); /* NaN: the second */
    else y = _mm512_max_ps(_mm512_range_ps(y, tiny, 3), _mm512_set1_ps(-0.9921875f));
    if (map == MEMOPT_MAP_LINEAR) {
        slope = _mm512_set1_ps(128);
        offset = _mm512_setzero_ps();
        last = _mm512_set1_ps(127.9f);
    } else {
        key = _mm512_castps_si512(y);
        if (map == MEMOPT_MAP_SIGNED) key = _mm512_rol_epi32(key, 1);
        octave = _mm512_srli_epi32(key, map == MEMOPT_MAP_SIGNED ? 24 : 23);
        octave = _mm512_mask_add_epi32(octave, _mm512_cmpgt_epu32_mask(key, _mm512_permutex2var_epi32(t->junctions[0],
                                       octave, t->junctions[1])), octave, one);
        slope = _mm512_permutex2var_ps(t->slopes[0], octave, t->slopes[1]);
        offset = _mm512_permutex2var_ps(t->offsets[0], octave, t->offsets[1]);
        last = _mm512_permutex2var_ps(t->lasts[0], octave, t->lasts[1]);
    }
    if (map == MEMOPT_MAP_UNSIGNED) return _mm512_min_ps(_mm512_fmadd_ps(y, slope, offset), last);
    offset = _mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_castps_si512(offset), _mm512_castps_si512(y),
                                 _mm512_set1_epi32((int)0x80000000), 0x78)); /* offset ^ (y & sign) */
    y = _mm512_range_ps(_mm512_fmadd_ps(y, slope, offset), last, 2);
    return _mm512_add_ps(y, _mm512_set1_ps((float)(383.5 + MEMOPT_I_UNSURE)));
}
/* Bytes of 64 codes lie interleaved after the multishifts: in each 8 bytes two of each vector. */
MEMOPT_I_AVX512_PART __m512i memopt_i_pack_avx512(const __m512 *v) {
    const __m512i at = _mm512_set1_epi16(15 | 47 << 8);
    const __m512i order = _mm512_set_epi16(31, 27, 23, 19, 15, 11, 7, 3, 30, 26, 22, 18, 14, 10, 6, 2,
                                           29, 25, 21, 17, 13, 9, 5, 1, 28, 24, 20, 16, 12, 8, 4, 0);
    __m512i b = _mm512_multishift_epi64_epi8(at, _mm512_castps_si512(v[0]));
    b = _mm512_mask_multishift_epi64_epi8(b, 0x0c0c0c0c0c0c0c0c, at, _mm512_castps_si512(v[1]));
    b = _mm512_mask_multishift_epi64_epi8(b, 0x3030303030303030, at, _mm512_castps_si512(v[2]));
    b = _mm512_mask_multishift_epi64_epi8(b, 0xc0c0c0c0c0c0c0c0, at, _mm512_castps_si512(v[3]));
    return _mm512_permutexvar_epi16(order, b);
}

MEMOPT_I_AVX512_PART void memopt_i_encode_avx512_as(memopt_map map, uint8_t *codes, const float *x, size_t n,
                                                    float inverse) {
    const memopt_i_lines512 t = memopt_i_lines_avx512(map); const __m512 scale = _mm512_set1_ps(inverse);
    const __m512i fraction = _mm512_set1_epi32(0x7ff8); float rest[64]; uint8_t rest_codes[64]; size_t i;
    for (i = 0; i < n; i += 64) {
        const float *from = x + i; uint8_t *to = codes + i; __m512 v[4]; __mmask16 k0, k1, k2, k3;
        if (MEMOPT_I_UNLIKELY(n - i < 64)) {
            memset(rest, 0, sizeof rest);
            from = (const float *)memcpy(rest, from, (n - i) * sizeof *x); to = rest_codes;
        }
        v[0] = memopt_i_place_avx512(map, &t, _mm512_mul_ps(_mm512_loadu_ps(from), scale));
        v[1] = memopt_i_place_avx512(map, &t, _mm512_mul_ps(_mm512_loadu_ps(from + 16), scale));
        v[2] = memopt_i_place_avx512(map, &t, _mm512_mul_ps(_mm512_loadu_ps(from + 32), scale));
        v[3] = memopt_i_place_avx512(map, &t, _mm512_mul_ps(_mm512_loadu_ps(from + 48), scale));
        k0 = _mm512_testn_epi32_mask(_mm512_castps_si512(v[0]), fraction);
        k1 = _mm512_testn_epi32_mask(_mm512_castps_si512(v[1]), fraction);
        k2 = _mm512_testn_epi32_mask(_mm512_castps_si512(v[2]), fraction);
        k3 = _mm512_testn_epi32_mask(_mm512_castps_si512(v[3]), fraction);
        _mm512_storeu_si512(to, memopt_i_pack_avx512(v));
        if (MEMOPT_I_UNLIKELY(!_kortestz_mask16_u8(_kor_mask16(k0, k1), _kor_mask16(k2, k3))))
            memopt_i_encode_unsure(map, to, from, inverse,
                                   (uint64_t)k0 | (uint64_t)k1 << 16 | (uint64_t)k2 << 32 | (uint64_t)k3 << 48);
        if (MEMOPT_I_UNLIKELY(to == rest_codes)) memcpy(codes + i, rest_codes, n - i);
    }
}
MEMOPT_I_AVX512 static void memopt_i_encode_avx512(memopt_map map, uint8_t *codes, const float *x, size_t n,
                                                   float inverse) {
    if (map == MEMOPT_MAP_SIGNED) memopt_i_encode_avx512_as(MEMOPT_MAP_SIGNED, codes, x, n, inverse);
    else if (map == MEMOPT_MAP_UNSIGNED) memopt_i_encode_avx512_as(MEMOPT_MAP_UNSIGNED, codes, x, n, inverse);
    else memopt_i_encode_avx512_as(MEMOPT_MAP_LINEAR, codes, x, n, inverse);
}
typedef struct memopt_i_planes512 { __m512i at[16]; } memopt_i_planes512;
MEMOPT_I_AVX512_PART memopt_i_planes512 memopt_i_planes_avx512(memopt_map map) {
    memopt_i_planes512 t; int i;
    if (map == MEMOPT_MAP_SIGNED) {
        MEMOPT_I_QUANT_UNROLL
        for (i = 0; i < 8; ++i) t.at[i] = _mm512_loadu_si512(memopt_i_signed_planes[i / 2] + 64 * (i % 2));
    } else {
        MEMOPT_I_QUANT_UNROLL
        for (i = 0; i < 16; ++i) t.at[i] = _mm512_loadu_si512(memopt_i_unsigned_planes[i / 4] + 64 * (i % 4));
    }
    return t;
}
MEMOPT_I_AVX512_PART void memopt_i_signed_bytes_avx512(const memopt_i_planes512 *t, __m512i codes, __m512i *p) {
    const __m512i positive = _mm512_adds_epu8(codes, _mm512_set1_epi8(1)); /* the highest bit: from code 127 up */
    const __m512i index = _mm512_abs_epi8(_mm512_sub_epi8(codes, _mm512_set1_epi8(127)));
    const __mmask64 high = _mm512_test_epi8_mask(index, _mm512_set1_epi8(64)), one = _mm512_movepi8_mask(index);
    int i;
    MEMOPT_I_QUANT_UNROLL
    for (i = 0; i < 4; ++i)
        p[i] = _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(index, t->at[2 * i]), high, index,
                                            t->at[2 * i + 1]);
    p[2] = _mm512_mask_mov_epi8(p[2], one, _mm512_set1_epi8((char)0x80)); /* index 128 found that of 0: all bits zero */
    p[3] = _mm512_mask_mov_epi8(p[3], one, _mm512_set1_epi8(0x3f));
    p[3] = _mm512_ternarylogic_epi32(p[3], positive, _mm512_set1_epi8((char)0x80), 0xf2); /* p | (~positive & 0x80) */
}
MEMOPT_I_AVX512_PART void memopt_i_unsigned_bytes_avx512(const memopt_i_planes512 *t, __m512i codes, __m512i *p) {
    const __mmask64 high = _mm512_movepi8_mask(codes), odd = _mm512_test_epi8_mask(codes, _mm512_set1_epi8(64));
    const __mmask64 q1 = _kandn_mask64(high, odd), q2 = _kandn_mask64(odd, high), q3 = _kand_mask64(high, odd);
    int i;
    MEMOPT_I_QUANT_UNROLL
    for (i = 0; i < 4; ++i) {
        p[i] = _mm512_permutexvar_epi8(codes, t->at[4 * i]);
        p[i] = _mm512_mask_permutexvar_epi8(p[i], q1, codes, t->at[4 * i + 1]);
        p[i] = _mm512_mask_permutexvar_epi8(p[i], q2, codes, t->at[4 * i + 2]);
        p[i] = _mm512_mask_permutexvar_epi8(p[i], q3, codes, t->at[4 * i + 3]);
    }
}
MEMOPT_I_AVX512_PART __m512 memopt_i_linear_avx512(__m128i codes, __m512 scale) {
    const __m512i steps = _mm512_sub_epi32(_mm512_cvtepu8_epi32(codes), _mm512_set1_epi32(127));
    return _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(steps), _mm512_set1_ps(0.0078125f)), scale);
}
/* 64 levels times scale: a byte of each level at a time, looked up for 64 codes; then bytes to floats. The codes are
   put in such an order first that the interleavings, which work within 16 bytes, come out in order. */
MEMOPT_I_AVX512_PART void memopt_i_level64_avx512(memopt_map map, const memopt_i_planes512 *t, __m512i codes,
                                                  __m512 scale, __m512 *v) {
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    __m512i p[4], q[4]; int i;
    if (map == MEMOPT_MAP_LINEAR) {
        v[0] = memopt_i_linear_avx512(_mm512_castsi512_si128(codes), scale);
        v[1] = memopt_i_linear_avx512(_mm512_extracti32x4_epi32(codes, 1), scale);
        v[2] = memopt_i_linear_avx512(_mm512_extracti32x4_epi32(codes, 2), scale);
        v[3] = memopt_i_linear_avx512(_mm512_extracti32x4_epi32(codes, 3), scale);
        return;
    }
    codes = _mm512_permutexvar_epi32(order, codes);
    if (map == MEMOPT_MAP_SIGNED) memopt_i_signed_bytes_avx512(t, codes, p);
    else memopt_i_unsigned_bytes_avx512(t, codes, p);
    q[0] = _mm512_unpacklo_epi8(p[0], p[1]); q[1] = _mm512_unpackhi_epi8(p[0], p[1]);
    q[2] = _mm512_unpacklo_epi8(p[2], p[3]); q[3] = _mm512_unpackhi_epi8(p[2], p[3]);
    p[0] = _mm512_unpacklo_epi16(q[0], q[2]); p[1] = _mm512_unpackhi_epi16(q[0], q[2]);
    p[2] = _mm512_unpacklo_epi16(q[1], q[3]); p[3] = _mm512_unpackhi_epi16(q[1], q[3]);
    MEMOPT_I_QUANT_UNROLL
    for (i = 0; i < 4; ++i) v[i] = _mm512_mul_ps(_mm512_castsi512_ps(p[i]), scale);
}
/* Fewer than 64: what is whole may still be streamed. */
MEMOPT_I_AVX512 static void memopt_i_store_some_avx512(float *x, const __m512 *v, size_t n, int stream) {
    size_t i;
    for (i = 0; i < n; i += 16)
        if (n - i < 16) _mm512_mask_storeu_ps(x + i, (__mmask16)((1u << (n - i)) - 1), v[i / 16]);
        else if (stream) _mm512_stream_ps(x + i, v[i / 16]);
        else _mm512_storeu_ps(x + i, v[i / 16]);
}
MEMOPT_I_AVX512_PART void memopt_i_decode_avx512_as(memopt_map map, float *x, const uint8_t *codes, size_t n,
                                                    float absmax, int stream) {
    const memopt_i_planes512 t = memopt_i_planes_avx512(map); const __m512 scale = _mm512_set1_ps(absmax); __m512 v[4];
    size_t i = 0, some = stream ? memopt_i_min((size_t)(-(uintptr_t)x / 4 & 15), n) : 0; /* up to a cache line */
    for (;;) {
        if (some) {
            memopt_i_level64_avx512(map, &t, _mm512_maskz_loadu_epi8(((__mmask64)1 << some) - 1, codes + i), scale, v);
            memopt_i_store_some_avx512(x + i, v, some, stream);
            i += some;
        }
        for (; n - i >= 64; i += 64) {
            memopt_i_level64_avx512(map, &t, _mm512_loadu_si512(codes + i), scale, v);
            if (stream) {
                _mm512_stream_ps(x + i, v[0]); _mm512_stream_ps(x + i + 16, v[1]);
                _mm512_stream_ps(x + i + 32, v[2]); _mm512_stream_ps(x + i + 48, v[3]);
            } else {
                _mm512_storeu_ps(x + i, v[0]); _mm512_storeu_ps(x + i + 16, v[1]);
                _mm512_storeu_ps(x + i + 32, v[2]); _mm512_storeu_ps(x + i + 48, v[3]);
            }
        }
        if (i == n) return;
        some = n - i;
    }
}
MEMOPT_I_AVX512 static void memopt_i_decode_avx512(memopt_map map, float *x, const uint8_t *codes, size_t n,
                                                   float absmax, int stream) {
    if (map == MEMOPT_MAP_LINEAR) memopt_i_decode_avx512_as(MEMOPT_MAP_LINEAR, x, codes, n, absmax, stream);
    else if (map == MEMOPT_MAP_SIGNED && stream) memopt_i_decode_avx512_as(MEMOPT_MAP_SIGNED, x, codes, n, absmax, 1);
    else if (map == MEMOPT_MAP_SIGNED) memopt_i_decode_avx512_as(MEMOPT_MAP_SIGNED, x, codes, n, absmax, 0);
    else if (stream) memopt_i_decode_avx512_as(MEMOPT_MAP_UNSIGNED, x, codes, n, absmax, 1);
    else memopt_i_decode_avx512_as(MEMOPT_MAP_UNSIGNED, x, codes, n, absmax, 0);
}
/* ---- AVX2 ---- */
#define MEMOPT_I_AVX2_PART MEMOPT_I_AVX2 static inline __attribute__((always_inline))
MEMOPT_I_AVX2 static void memopt_i_quant_copy_avx2(uint8_t *to, const uint8_t *from, size_t n) {
    const size_t head = memopt_i_min((size_t)(-(uintptr_t)to & 63), n); size_t i;
    memcpy(to, from, head);
    for (i = head; i + 64 <= n; i += 64) {
        const __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)(from + i));
        const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(from + i + 32));
        _mm256_stream_si256((__m256i *)(void *)(to + i), a);
        _mm256_stream_si256((__m256i *)(void *)(to + i + 32), b);
    }
    memcpy(to + i, from + i, n - i);
}
MEMOPT_I_AVX2 static void memopt_i_quant_fence_avx2(void) { _mm_sfence(); }
MEMOPT_I_AVX2 static void memopt_i_quant_clean_avx2(void) { _mm256_zeroupper(); }
MEMOPT_I_AVX2 static float memopt_i_absmax_avx2(const float *x, size_t n, int ahead) {
    const __m256i most = _mm256_set1_epi32(0x7fffffff); uint32_t lanes[8], all = 0; size_t i;
    __m256i a = _mm256_setzero_si256(), b = a;
    for (i = 0; i + 16 <= n; i += 16) {
        if (ahead && i % 64 == 0) memopt_i_quant_ahead(x + i);
        a = _mm256_max_epu32(a, _mm256_and_si256(most, _mm256_castps_si256(_mm256_loadu_ps(x + i))));
        b = _mm256_max_epu32(b, _mm256_and_si256(most, _mm256_castps_si256(_mm256_loadu_ps(x + i + 8))));
    }
    _mm256_storeu_si256((__m256i *)(void *)lanes, _mm256_max_epu32(a, b));
    for (; i < n; ++i) lanes[i % 8] = memopt_i_quant_larger(lanes[i % 8], memopt_i_float_bits(x[i]) & 0x7fffffff);
    for (i = 0; i < 8; ++i) all = memopt_i_quant_larger(all, lanes[i]);
    if (MEMOPT_I_LIKELY(all < 0x7f800000)) return memopt_i_bits_float(all);
    _mm256_zeroupper();
    return memopt_i_absmax_scalar(x, n);
}
typedef struct memopt_i_lines256 { __m256i junctions, next, first; __m256 slopes, offsets, lasts; } memopt_i_lines256;
MEMOPT_I_AVX2_PART memopt_i_lines256 memopt_i_lines_avx2(memopt_map map) {
    const uint32_t *junctions = memopt_i_piece_junctions[map == MEMOPT_MAP_UNSIGNED];
    const float (*lines)[8] = map == MEMOPT_MAP_UNSIGNED ? memopt_i_unsigned_pieces : memopt_i_signed_pieces;
    memopt_i_lines256 t;
    t.junctions = _mm256_loadu_si256((const __m256i *)(const void *)junctions);
    t.next = _mm256_permutevar8x32_epi32(t.junctions, _mm256_set_epi32(0, 7, 6, 5, 4, 3, 2, 1));
    t.first = _mm256_set1_epi32((int)junctions[7]);
    t.slopes = _mm256_loadu_ps(lines[0]); t.offsets = _mm256_loadu_ps(lines[1]); t.lasts = _mm256_loadu_ps(lines[2]);
    return t;
}
/* As memopt_i_place_avx512; the piece is found by halving, as eight of them fit a register. */
MEMOPT_I_AVX2_PART __m256 memopt_i_place_avx2(memopt_map map, const memopt_i_lines256 *t, __m256 y) {
    const __m256 tiny = _mm256_set1_ps(4.656612873077393e-10f), sign = _mm256_and_ps(y, _mm256_set1_ps(-0.0f));
    __m256i key, piece; __m256 v, none = _mm256_setzero_ps();
    if (map == MEMOPT_MAP_UNSIGNED) y = _mm256_min_ps(_mm256_max_ps(y, tiny), _mm256_set1_ps(1.5f));
    else y = _mm256_min_ps(_mm256_max_ps(_mm256_xor_ps(y, sign), tiny),
                           _mm256_blendv_ps(_mm256_set1_ps(1.5f), _mm256_set1_ps(0.9921875f), sign));
    if (map == MEMOPT_MAP_LINEAR) v = _mm256_min_ps(_mm256_mul_ps(y, _mm256_set1_ps(128)), _mm256_set1_ps(127.9f));
    else {
        key = _mm256_castps_si256(y);
        if (map == MEMOPT_MAP_SIGNED)
            key = _mm256_or_si256(_mm256_add_epi32(key, key), _mm256_srli_epi32(_mm256_castps_si256(sign), 31));
        piece = _mm256_and_si256(_mm256_set1_epi32(4),
                    _mm256_cmpgt_epi32(key, _mm256_permute4x64_epi64(_mm256_shuffle_epi32(t->junctions, 0xff), 0)));
        piece = _mm256_add_epi32(piece, _mm256_and_si256(_mm256_set1_epi32(2),
                    _mm256_cmpgt_epi32(key, _mm256_permutevar8x32_epi32(t->next, piece))));
        piece = _mm256_sub_epi32(piece, _mm256_cmpgt_epi32(key, _mm256_permutevar8x32_epi32(t->junctions, piece)));
        v = _mm256_fmadd_ps(y, _mm256_permutevar8x32_ps(t->slopes, piece), _mm256_permutevar8x32_ps(t->offsets, piece));
        v = _mm256_min_ps(v, _mm256_permutevar8x32_ps(t->lasts, piece));
        none = _mm256_castsi256_ps(_mm256_cmpgt_epi32(key, t->first)); /* all bits: not below the first level */
    }
    if (map == MEMOPT_MAP_UNSIGNED) return _mm256_blendv_ps(_mm256_set1_ps(256.5f), v, none);
    if (map == MEMOPT_MAP_SIGNED) v = _mm256_and_ps(v, none);
    return _mm256_add_ps(_mm256_xor_ps(v, sign), _mm256_set1_ps((float)(383.5 + MEMOPT_I_UNSURE)));
}
MEMOPT_I_AVX2_PART __m256i memopt_i_pack_avx2(__m256 a, __m256 b, __m256 c, __m256 d) {
    const __m256i low = _mm256_set1_epi32(255);
    const __m256i ab = _mm256_packus_epi32(_mm256_and_si256(low, _mm256_srli_epi32(_mm256_castps_si256(a), 15)),
                                           _mm256_and_si256(low, _mm256_srli_epi32(_mm256_castps_si256(b), 15)));
    const __m256i cd = _mm256_packus_epi32(_mm256_and_si256(low, _mm256_srli_epi32(_mm256_castps_si256(c), 15)),
                                           _mm256_and_si256(low, _mm256_srli_epi32(_mm256_castps_si256(d), 15)));
    return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(ab, cd), _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0));
}
MEMOPT_I_AVX2_PART unsigned memopt_i_near_avx2(__m256 v) { /* a bit for each that is too near a boundary */
    const __m256i fraction = _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7ff8));
    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(fraction, _mm256_setzero_si256())));
}
MEMOPT_I_AVX2_PART void memopt_i_encode_avx2_as(memopt_map map, uint8_t *codes, const float *x, size_t n,
                                                float inverse) {
    const memopt_i_lines256 t = memopt_i_lines_avx2(map); const __m256 scale = _mm256_set1_ps(inverse);
    float rest[32]; uint8_t rest_codes[32]; size_t i; uint32_t unsure;
    for (i = 0; i < n; i += 32) {
        const float *from = x + i; uint8_t *to = codes + i; __m256 a, b, c, d;
        if (MEMOPT_I_UNLIKELY(n - i < 32)) {
            memset(rest, 0, sizeof rest);
            from = (const float *)memcpy(rest, from, (n - i) * sizeof *x); to = rest_codes;
        }
        a = memopt_i_place_avx2(map, &t, _mm256_mul_ps(_mm256_loadu_ps(from), scale));
        b = memopt_i_place_avx2(map, &t, _mm256_mul_ps(_mm256_loadu_ps(from + 8), scale));
        c = memopt_i_place_avx2(map, &t, _mm256_mul_ps(_mm256_loadu_ps(from + 16), scale));
        d = memopt_i_place_avx2(map, &t, _mm256_mul_ps(_mm256_loadu_ps(from + 24), scale));
        _mm256_storeu_si256((__m256i *)(void *)to, memopt_i_pack_avx2(a, b, c, d));
        unsure = memopt_i_near_avx2(a) | memopt_i_near_avx2(b) << 8 | memopt_i_near_avx2(c) << 16
               | memopt_i_near_avx2(d) << 24;
        if (MEMOPT_I_UNLIKELY(unsure)) memopt_i_encode_unsure(map, to, from, inverse, unsure);
        if (MEMOPT_I_UNLIKELY(to == rest_codes)) memcpy(codes + i, rest_codes, n - i);
    }
}
MEMOPT_I_AVX2 static void memopt_i_encode_avx2(memopt_map map, uint8_t *codes, const float *x, size_t n,
                                               float inverse) {
    if (map == MEMOPT_MAP_SIGNED) memopt_i_encode_avx2_as(MEMOPT_MAP_SIGNED, codes, x, n, inverse);
    else if (map == MEMOPT_MAP_UNSIGNED) memopt_i_encode_avx2_as(MEMOPT_MAP_UNSIGNED, codes, x, n, inverse);
    else memopt_i_encode_avx2_as(MEMOPT_MAP_LINEAR, codes, x, n, inverse);
}
MEMOPT_I_AVX2_PART __m256 memopt_i_level_avx2(memopt_map map, const uint8_t *codes) {
    const int *signed_levels = (const int *)(const void *)memopt_i_signed_levels;
    const int *unsigned_levels = (const int *)(const void *)memopt_i_unsigned_levels;
    const __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)codes));
    const __m256i steps = _mm256_sub_epi32(code, _mm256_set1_epi32(127));
    const __m256i sign = _mm256_and_si256(steps, _mm256_set1_epi32((int)0x80000000));
    if (map == MEMOPT_MAP_LINEAR) return _mm256_mul_ps(_mm256_cvtepi32_ps(steps), _mm256_set1_ps(0.0078125f));
    if (map == MEMOPT_MAP_UNSIGNED) return _mm256_castsi256_ps(_mm256_i32gather_epi32(unsigned_levels, code, 4));
    return _mm256_castsi256_ps(_mm256_or_si256(sign,
                                               _mm256_i32gather_epi32(signed_levels, _mm256_abs_epi32(steps), 4)));
}
MEMOPT_I_AVX2_PART void memopt_i_decode_avx2_as(memopt_map map, float *x, const uint8_t *codes, size_t n, float absmax,
                                                int stream) {
    const __m256 scale = _mm256_set1_ps(absmax);
    size_t i = stream ? memopt_i_min((size_t)(-(uintptr_t)x / 4 & 7), n) : 0; /* up to where streaming may start */
    if (i) memopt_i_decode_scalar(map, x, codes, i, absmax);
    for (; n - i >= 8; i += 8) {
        const __m256 v = _mm256_mul_ps(memopt_i_level_avx2(map, codes + i), scale);
        if (stream) _mm256_stream_ps(x + i, v);
        else _mm256_storeu_ps(x + i, v);
    }
    if (i < n) memopt_i_decode_scalar(map, x + i, codes + i, n - i, absmax);
    _mm256_zeroupper(); /* gcc 12 leaves it out before a call at the end */
}
MEMOPT_I_AVX2 static void memopt_i_decode_avx2(memopt_map map, float *x, const uint8_t *codes, size_t n, float absmax,
                                               int stream) {
    if (map == MEMOPT_MAP_SIGNED) memopt_i_decode_avx2_as(MEMOPT_MAP_SIGNED, x, codes, n, absmax, stream);
    else if (map == MEMOPT_MAP_UNSIGNED) memopt_i_decode_avx2_as(MEMOPT_MAP_UNSIGNED, x, codes, n, absmax, stream);
    else memopt_i_decode_avx2_as(MEMOPT_MAP_LINEAR, x, codes, n, absmax, stream);
}
#endif
#define MEMOPT_I_QUANT_MOST 4096 /* elements of a block */
static float memopt_i_absmax_at(int level, const float *x, size_t n) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) return memopt_i_absmax_avx512(x, n, 0);
    if (level >= MEMOPT_SIMD_AVX2) return memopt_i_absmax_avx2(x, n, 0);
#endif
    (void)level;
    return memopt_i_absmax_scalar(x, n);
}
static void memopt_i_encode_at(int level, memopt_map map, uint8_t *codes, const float *x, size_t n, float inverse) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) { memopt_i_encode_avx512(map, codes, x, n, inverse); return; }
    if (level >= MEMOPT_SIMD_AVX2) { memopt_i_encode_avx2(map, codes, x, n, inverse); return; }
#endif
    (void)level;
    memopt_i_encode_scalar(map, codes, x, n, inverse);
}
static void memopt_i_decode_at(int level, memopt_map map, float *x, const uint8_t *codes, size_t n, float absmax) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) { memopt_i_decode_avx512(map, x, codes, n, absmax, 0); return; }
    if (level >= MEMOPT_SIMD_AVX2) { memopt_i_decode_avx2(map, x, codes, n, absmax, 0); return; }
#endif
    (void)level;
    memopt_i_decode_scalar(map, x, codes, n, absmax);
}
/* For long arrays: the next lines are asked for in advance, and what is written goes past the cache. */
static float memopt_i_absmax_ahead(int level, const float *x, size_t n) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) return memopt_i_absmax_avx512(x, n, 1);
    if (level >= MEMOPT_SIMD_AVX2) return memopt_i_absmax_avx2(x, n, 1);
#endif
    return memopt_i_absmax_at(level, x, n);
}
static void memopt_i_decode_stream(int level, memopt_map map, float *x, const uint8_t *codes, size_t n, float absmax) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) { memopt_i_decode_avx512(map, x, codes, n, absmax, 1); return; }
    if (level >= MEMOPT_SIMD_AVX2) { memopt_i_decode_avx2(map, x, codes, n, absmax, 1); return; }
#endif
    memopt_i_decode_at(level, map, x, codes, n, absmax);
}
static void memopt_i_quant_copy(int level, uint8_t *to, const uint8_t *from, size_t n) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX2) { memopt_i_quant_copy_avx2(to, from, n); return; }
#endif
    (void)level;
    memcpy(to, from, n);
}
static void memopt_i_quant_fence(int level) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX2) memopt_i_quant_fence_avx2();
#endif
    (void)level;
}
/* A block of bf16 as floats, and back; n elements. gcc 12 leaves the upper halves of the registers dirty where a vector
   function ends in a call of a plain one, and whoever comes next pays 160 ns: hence the cleaning. */
static void memopt_i_quant_clean(int level) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX2) memopt_i_quant_clean_avx2();
#endif
    (void)level;
}
static void memopt_i_quant_widen(int level, float *wide, const uint16_t *from, size_t n, int stream) {
#if defined(MEMOPT_I_X86)
    size_t i;
    for (i = 0; stream && i < n; i += 128) memopt_i_quant_ahead(from + i);
#endif
    (void)stream;
    memopt_i_f32_from_bf16_at(level, wide, from, n);
    memopt_i_quant_clean(level);
}
static void memopt_i_quant_narrow(int level, uint16_t *to, const float *wide, size_t n, int stream) {
    uint16_t narrow[MEMOPT_I_QUANT_MOST];
    memopt_i_bf16_from_f32_at(level, stream ? narrow : to, wide, n);
    memopt_i_quant_clean(level);
    if (stream) memopt_i_quant_copy(level, (uint8_t *)to, (const uint8_t *)narrow, n * sizeof *to);
}
/* Arrays, in chunks of whole blocks. */
#define MEMOPT_I_QUANT_BLOCK 256
#define MEMOPT_I_QUANT_STREAM ((size_t)8 << 20) /* elements: then floats and codes no longer fit the caches of a core */
#define MEMOPT_I_QUANT_CHUNK ((size_t)1 << 16)
typedef struct memopt_i_quant {
    memopt_map map;
    int level, stream;
    size_t n, block, chunk; /* elements; chunk: a multiple of block */
    const float *from_f32, *from_absmax; const uint16_t *from_bf16; const uint8_t *from_codes;
    float *to_f32, *to_absmax; uint16_t *to_bf16; uint8_t *to_codes;
} memopt_i_quant;
static float memopt_i_quant_absmax(const memopt_i_quant *q, const float *x, size_t n) {
    return q->stream ? memopt_i_absmax_ahead(q->level, x, n) : memopt_i_absmax_at(q->level, x, n);
}
/* Long arrays: codes are collected and then streamed, so that only whole cache lines are written. The next block's
   absmax is asked for before this block is encoded: neither waits for the other, and memory is read meanwhile. */
static void memopt_i_quantize_chunk(void *task, size_t chunk, int worker) {
    const memopt_i_quant *q = (const memopt_i_quant *)task;
    float wide[MEMOPT_I_QUANT_MOST], next = 0; uint8_t codes[MEMOPT_I_QUANT_MOST];
    size_t i = chunk * q->chunk, first = i; const size_t end = memopt_i_min(i + q->chunk, q->n);
    float *absmax = q->to_absmax + i / q->block;
    (void)worker;
    if (q->from_f32) next = memopt_i_quant_absmax(q, q->from_f32 + i, memopt_i_min(q->block, end - i));
    while (i < end) {
        const size_t n = memopt_i_min(q->block, end - i); const float *x = q->from_f32 ? q->from_f32 + i : wide;
        uint8_t *to = q->stream ? codes + (i - first) : q->to_codes + i;
        *absmax = next;
        if (!q->from_f32) {
            memopt_i_quant_widen(q->level, wide, q->from_bf16 + i, n, q->stream);
            *absmax = memopt_i_absmax_at(q->level, x, n);
        } else if (i + n < end) next = memopt_i_quant_absmax(q, x + n, memopt_i_min(q->block, end - i - n));
        memopt_i_encode_at(q->level, q->map, to, x, n, memopt_i_inverse(*absmax++));
        i += n;
        if (q->stream && (i == end || i - first + q->block > sizeof codes)) {
            memopt_i_quant_copy(q->level, q->to_codes + first, codes, i - first);
            first = i;
        }
    }
    if (q->stream) memopt_i_quant_fence(q->level);
    memopt_i_wide_end(q->level);
}
static void memopt_i_dequantize_chunk(void *task, size_t chunk, int worker) {
    const memopt_i_quant *q = (const memopt_i_quant *)task; float wide[MEMOPT_I_QUANT_MOST];
    size_t i = chunk * q->chunk; const size_t end = memopt_i_min(i + q->chunk, q->n);
    (void)worker;
    for (; i < end; i += q->block) {
        const size_t n = memopt_i_min(q->block, end - i); float *x = q->to_f32 ? q->to_f32 + i : wide;
        const float absmax = q->from_absmax[i / q->block];
        if (q->stream && q->to_f32) memopt_i_decode_stream(q->level, q->map, x, q->from_codes + i, n, absmax);
        else memopt_i_decode_at(q->level, q->map, x, q->from_codes + i, n, absmax);
        if (!q->to_f32) memopt_i_quant_narrow(q->level, q->to_bf16 + i, wide, n, q->stream);
    }
    if (q->stream) memopt_i_quant_fence(q->level);
    memopt_i_wide_end(q->level);
}
static int memopt_i_quant_apart(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    const uintptr_t first = (uintptr_t)a, second = (uintptr_t)b;
    return first < second ? second - first >= a_bytes : first - second >= b_bytes;
}
/* Everything that can be wrong; the arrays are told by their starts, floats are `width` bytes an element. */
static memopt_status memopt_i_quant_check(memopt_i_quant *q, const void *floats, size_t width, const void *codes,
                                          const void *absmax, const memopt_threads *threads) {
    size_t bytes, blocks;
    if (!q->block) q->block = MEMOPT_I_QUANT_BLOCK;
    if (q->map != MEMOPT_MAP_SIGNED && q->map != MEMOPT_MAP_UNSIGNED && q->map != MEMOPT_MAP_LINEAR)
        return MEMOPT_ERR_ARGUMENT;
    if (threads && !memopt_i_threads_valid(threads)) return MEMOPT_ERR_ARGUMENT;
    if (q->block % 32 || q->block > MEMOPT_I_QUANT_MOST) return MEMOPT_ERR_ARGUMENT;
    q->chunk = MEMOPT_I_QUANT_CHUNK / q->block * q->block;
    q->level = memopt_i_simd_level(threads);
    q->stream = q->n >= MEMOPT_I_QUANT_STREAM;
    if (!q->n) return MEMOPT_OK;
    if (!floats || !codes || !absmax) return MEMOPT_ERR_ARGUMENT;
    if (memopt_i_mul(q->n, width, &bytes) || bytes > (size_t)PTRDIFF_MAX) return MEMOPT_ERR_OVERFLOW;
    blocks = memopt_quantize_blocks(q->n, q->block) * sizeof(float);
    if (!memopt_i_quant_apart(floats, bytes, codes, q->n) || !memopt_i_quant_apart(floats, bytes, absmax, blocks) ||
        !memopt_i_quant_apart(codes, q->n, absmax, blocks)) return MEMOPT_ERR_ARGUMENT;
    return MEMOPT_OK;
}
static memopt_i_quant memopt_i_quant_task(size_t n, memopt_map map, size_t block) {
    memopt_i_quant q;
    memset(&q, 0, sizeof q);
    q.n = n; q.map = map; q.block = block;
    return q;
}
static void memopt_i_quant_run(memopt_i_quant *q, memopt_task_fn *fn, const memopt_threads *threads) {
    if (q->n) memopt_i_run(threads, (q->n - 1) / q->chunk + 1, fn, q);
}
MEMOPT_API memopt_status memopt_map_levels(memopt_map map, float levels[256]) {
    unsigned code;
    if (!levels || (map != MEMOPT_MAP_SIGNED && map != MEMOPT_MAP_UNSIGNED && map != MEMOPT_MAP_LINEAR))
        return MEMOPT_ERR_ARGUMENT;
    for (code = 0; code < 256; ++code) levels[code] = memopt_i_map_level(map, code);
    return MEMOPT_OK;
}
MEMOPT_API size_t memopt_quantize_blocks(size_t n, size_t block) {
    if (!block) block = MEMOPT_I_QUANT_BLOCK;
    return n && block % 32 == 0 && block <= MEMOPT_I_QUANT_MOST ? (n - 1) / block + 1 : 0;
}
MEMOPT_API memopt_status memopt_quantize_f32(uint8_t *codes, float *absmax, const float *src, size_t n, memopt_map map,
                                             size_t block, const memopt_threads *threads) {
    memopt_i_quant q = memopt_i_quant_task(n, map, block);
    const memopt_status s = memopt_i_quant_check(&q, src, sizeof *src, codes, absmax, threads);
    if (s) return s;
    q.to_codes = codes; q.to_absmax = absmax; q.from_f32 = src;
    memopt_i_quant_run(&q, memopt_i_quantize_chunk, threads);
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_quantize_bf16(uint8_t *codes, float *absmax, const uint16_t *src, size_t n,
                                              memopt_map map, size_t block, const memopt_threads *threads) {
    memopt_i_quant q = memopt_i_quant_task(n, map, block);
    const memopt_status s = memopt_i_quant_check(&q, src, sizeof *src, codes, absmax, threads);
    if (s) return s;
    q.to_codes = codes; q.to_absmax = absmax; q.from_bf16 = src;
    memopt_i_quant_run(&q, memopt_i_quantize_chunk, threads);
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_dequantize_f32(float *dst, const uint8_t *codes, const float *absmax, size_t n,
                                               memopt_map map, size_t block, const memopt_threads *threads) {
    memopt_i_quant q = memopt_i_quant_task(n, map, block);
    const memopt_status s = memopt_i_quant_check(&q, dst, sizeof *dst, codes, absmax, threads);
    if (s) return s;
    q.to_f32 = dst; q.from_codes = codes; q.from_absmax = absmax;
    memopt_i_quant_run(&q, memopt_i_dequantize_chunk, threads);
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_dequantize_bf16(uint16_t *dst, const uint8_t *codes, const float *absmax, size_t n,
                                                memopt_map map, size_t block, const memopt_threads *threads) {
    memopt_i_quant q = memopt_i_quant_task(n, map, block);
    const memopt_status s = memopt_i_quant_check(&q, dst, sizeof *dst, codes, absmax, threads);
    if (s) return s;
    q.to_bf16 = dst; q.from_codes = codes; q.from_absmax = absmax;
    memopt_i_quant_run(&q, memopt_i_dequantize_chunk, threads);
    return MEMOPT_OK;
}
/* @section taper : simd
   The 8-bit codes of optimizer states.
   Problem    The usual 8-bit map (quant) is made of decades. Its levels need a table lookup per element and its codes a
              search, which costs more than the whole of Adam. Worse, it rounds to the nearest where its levels lie far
              apart: a moment that only decays, 10 % a step, is rounded back up to its level and never gets smaller. A
              row of an embedding that was touched once then drifts on for ever, 40 times as far as it should.
   Idea       Levels are binary: in the octave [2^-(k+1), 2^-k) there are 2^width[k] of them, evenly spaced, many near 1
              and few near 0. The sum x + C of two floats then *is* the rounding, when C is chosen for the octave of x
              so that its last place is the spacing; and C's own low bits are chosen so that the code stands in the low
              byte of the sum. C comes from a table of 32 floats by the exponent of x. Where only one level is left to
              an octave (below 2^-15, for the signed codes), C is so large that every x of the octave gets that level:
              rounding down. So what decays goes on decaying.
   Codes      Signed: the low bit is the sign, above it 7 bits of magnitude; magnitude 0 is zero, 127 is 1.0.
              Unsigned: 0 is 2^-25, 255 is 1.0; there is no zero, because a second moment that is lost makes the next
              step explode. Where a block is all zero its scale is 0, and so is everything in it.
              Otherwise a value gets the nearest level, and one half way between two the even code of its octave.
   Error      Of the update against 32-bit Adam, 600 steps of normal gradients, one entry of a block 1, 100, 10^4 times
              as large as the others: 0.03, 0.11, 0.24 (tests/bench/bench_states.c; decades: 0.03, 0.10, 0.27).
   Invariant  Every level has at most 7 significant bits, so it is a bfloat16, and decoding is exact.
   Cost       About 8 instructions for 16 codes either way with AVX-512, whose byte permutations look up 64 codes at once. */
#define MEMOPT_I_TAPER_TINY   4.656612873077392578125e-10f /* 2^-31: the smallest magnitude the table of octaves knows */
#define MEMOPT_I_TAPER_LIFT   1.490116119384765625e-8f     /* 2^-26: lifts zero into the octave below the lowest level */
typedef struct memopt_i_taper {
    float   grid[32];            /* C for the exponents 96 to 127, indexed by the exponent's low 5 bits */
    float   value[256];          /* the level of each code */
    uint8_t high[256], low[256]; /* the same as bfloat16 in two planes; signed: 128 magnitudes */
    int     is_signed;
} memopt_i_taper;

/* first: the code of the lowest level. Levels are numbered upward from it; the one after the last octave is 1.0. */
static void memopt_i_taper_fill(memopt_i_taper *t, const uint8_t *width, int octaves, int nearest_octaves,
                                uint32_t first) {
    uint32_t code = first; int k;
    for (k = 0; k < 32; ++k) t->grid[k] = memopt_i_bits_float((uint32_t)(k + 96 + 25) << 23); /* all of it gets code 0 */
    for (k = octaves - 1; k >= 0; --k) {
        const uint32_t exponent = (uint32_t)(126 - k), w = width[k], count = 1u << w; uint32_t j;
        t->grid[exponent & 31] = k < nearest_octaves
            ? memopt_i_bits_float((exponent - w + 23) << 23 | ((code - count) & 255))
            : memopt_i_bits_float((exponent + 25) << 23 | code);
        for (j = 0; j < count; ++j, ++code) {
            const uint32_t bits = exponent << 7 | j << (7 - w); /* as bfloat16 */
            t->high[code] = (uint8_t)(bits >> 8);
            t->low[code] = (uint8_t)(bits & 255);
        }
    }
    t->grid[31] = memopt_i_bits_float((127u + 23) << 23 | ((code - 1) & 255));
    t->high[code] = 0x3f; t->low[code] = 0x80;
}
static void memopt_i_taper_init(memopt_i_taper *t, int is_signed) {
    static const uint8_t of_signed[19] = { 5, 4, 4, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 1, 0, 0, 0, 0 };
    static const uint8_t of_unsigned[25] = { 6, 5, 5, 4, 4, 4, 4, 3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0 };
    int i;
    memset(t, 0, sizeof *t);
    t->is_signed = is_signed;
    if (is_signed) memopt_i_taper_fill(t, of_signed, 19, 15, 1);
    else memopt_i_taper_fill(t, of_unsigned, 25, 25, 0);
    for (i = 0; i < 256; ++i) {
        const int k = is_signed ? i >> 1 : i;
        const uint32_t sign = is_signed ? (uint32_t)(i & 1) << 31 : 0;
        t->value[i] = memopt_i_bits_float((uint32_t)t->high[k] << 24 | (uint32_t)t->low[k] << 16 | sign);
    }
}
/* What values are multiplied with before they are encoded. A scale so small that its inverse is infinite gets the
   largest float there is: its codes come out smaller than they should, and nothing overflows. */
static float memopt_i_taper_inverse(float absmax) {
    const float inverse = memopt_i_round(1.0f / absmax);
    if (!memopt_i_float_bits(absmax)) return 0;
    return memopt_i_bits_float((uint32_t)memopt_i_min(memopt_i_float_bits(inverse), 0x7f7fffffu));
}
static void memopt_i_taper_decode_v1(const memopt_i_taper *t, float *levels, const uint8_t *codes, size_t n) {
    size_t i;
    for (i = 0; i < n; ++i) levels[i] = t->value[codes[i]];
}
/* The definition. memopt_i_round: the product must not be kept wider than a float. */
static void memopt_i_taper_encode_v1(const memopt_i_taper *t, uint8_t *codes, const float *x, size_t n, float inverse) {
    size_t i;
    for (i = 0; i < n; ++i) {
        const uint32_t sign = memopt_i_float_bits(x[i]) >> 31;
        float y = t->is_signed ? memopt_i_round(fabsf(x[i]) * inverse) : fmaf(x[i], inverse, MEMOPT_I_TAPER_LIFT);
        if (t->is_signed && memopt_i_float_bits(y) < 96u << 23) y = MEMOPT_I_TAPER_TINY;
        y = memopt_i_round(y + t->grid[(memopt_i_float_bits(y) >> 23) & 31]);
        codes[i] = (uint8_t)(t->is_signed ? memopt_i_float_bits(y) << 1 | sign : memopt_i_float_bits(y));
    }
}
#if defined(MEMOPT_I_X86)
/* 64 codes to levels: the planes are looked up, put together as bfloat16 and shifted up to floats. Unpacking works
   within 128 bits, so the codes are first ordered by fours in the way that unpacking undoes. */
MEMOPT_I_AVX512 static void memopt_i_taper_widen_v16(float *levels, __m512i high, __m512i low) {
    const __m512i a = _mm512_unpacklo_epi8(low, high), b = _mm512_unpackhi_epi8(low, high);
    const __m512i zero = _mm512_setzero_si512();
    _mm512_storeu_si512(levels,      _mm512_unpacklo_epi16(zero, a));
    _mm512_storeu_si512(levels + 16, _mm512_unpackhi_epi16(zero, a));
    _mm512_storeu_si512(levels + 32, _mm512_unpacklo_epi16(zero, b));
    _mm512_storeu_si512(levels + 48, _mm512_unpackhi_epi16(zero, b));
}
MEMOPT_I_AVX512 static __m512i memopt_i_taper_ordered_v16(const uint8_t *codes) {
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
                                    _mm512_loadu_si512(codes));
}
MEMOPT_I_AVX512 static void memopt_i_taper_decode_v16(const memopt_i_taper *t, float *levels, const uint8_t *codes,
                                                      size_t n) {
    const __m512i h0 = _mm512_loadu_si512(t->high), h1 = _mm512_loadu_si512(t->high + 64);
    const __m512i l0 = _mm512_loadu_si512(t->low), l1 = _mm512_loadu_si512(t->low + 64);
    size_t i = 0;
    if (t->is_signed) {
        for (; i + 64 <= n; i += 64) { /* the permutation ignores bit 7, where the shift puts a neighbour's sign */
            const __m512i k = memopt_i_taper_ordered_v16(codes + i), magnitude = _mm512_srli_epi16(k, 1);
            const __m512i high = _mm512_permutex2var_epi8(h0, magnitude, h1), sign = _mm512_slli_epi16(k, 7);
            memopt_i_taper_widen_v16(levels + i,
                _mm512_ternarylogic_epi32(high, sign, _mm512_set1_epi8((char)0x80), 0xf8), /* high | (sign & 0x80) */
                _mm512_permutex2var_epi8(l0, magnitude, l1));
        }
    } else {
        const __m512i h2 = _mm512_loadu_si512(t->high + 128), h3 = _mm512_loadu_si512(t->high + 192);
        const __m512i l2 = _mm512_loadu_si512(t->low + 128), l3 = _mm512_loadu_si512(t->low + 192);
        for (; i + 64 <= n; i += 64) {
            const __m512i k = memopt_i_taper_ordered_v16(codes + i);
            const __mmask64 upper = _mm512_movepi8_mask(k);
            memopt_i_taper_widen_v16(levels + i,
                _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(h0, k, h1), _mm512_permutex2var_epi8(h2, k, h3)),
                _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(l0, k, l1),
                                       _mm512_permutex2var_epi8(l2, k, l3)));
        }
    }
    if (i < n) memopt_i_taper_decode_v1(t, levels + i, codes + i, n - i);
}
/* The low bytes of 4 x 16 words to 64 bytes in order: shifted together, then one permutation. */
MEMOPT_I_AVX512 static void memopt_i_taper_pack_v16(uint8_t *codes, __m512i a, __m512i b, __m512i c, __m512i d) {
    const __m512i order = _mm512_setr_epi32(0x0c080400, 0x1c181410, 0x2c282420, 0x3c383430,
        0x0d090501, 0x1d191511, 0x2d292521, 0x3d393531, 0x0e0a0602, 0x1e1a1612, 0x2e2a2622, 0x3e3a3632,
        0x0f0b0703, 0x1f1b1713, 0x2f2b2723, 0x3f3b3733);
    __m512i all = _mm512_shrdi_epi32(_mm512_slli_epi32(a, 24), b, 8);
    all = _mm512_shrdi_epi32(_mm512_shrdi_epi32(all, c, 8), d, 8);
    _mm512_storeu_si512(codes, _mm512_permutexvar_epi8(order, all));
}
MEMOPT_I_AVX512 static __m512i memopt_i_taper_sum_v16(__m512 g0, __m512 g1, __m512 y) {
    const __m512i octave = _mm512_srli_epi32(_mm512_castps_si512(y), 23); /* the permutation takes its low 5 bits */
    return _mm512_castps_si512(_mm512_add_ps(y, _mm512_permutex2var_ps(g0, octave, g1)));
}
MEMOPT_I_AVX512 static __m512i memopt_i_taper_signed_v16(__m512 g0, __m512 g1, __m512 x, __m512 scale) {
    const __m512 tiny = _mm512_set1_ps(MEMOPT_I_TAPER_TINY);
    const __m512 y = _mm512_range_ps(_mm512_mul_ps(x, scale), tiny, 11); /* the larger magnitude, as positive */
    return _mm512_shldi_epi32(memopt_i_taper_sum_v16(g0, g1, y), _mm512_castps_si512(x), 1); /* the sign goes below */
}
MEMOPT_I_AVX512 static __m512i memopt_i_taper_unsigned_v16(__m512 g0, __m512 g1, __m512 x, __m512 scale) {
    return memopt_i_taper_sum_v16(g0, g1, _mm512_fmadd_ps(x, scale, _mm512_set1_ps(MEMOPT_I_TAPER_LIFT)));
}
MEMOPT_I_AVX512 static void memopt_i_taper_encode_v16(const memopt_i_taper *t, uint8_t *codes, const float *x, size_t n,
                                                      float inverse) {
    const __m512 g0 = _mm512_loadu_ps(t->grid), g1 = _mm512_loadu_ps(t->grid + 16), scale = _mm512_set1_ps(inverse);
    size_t i = 0;
    if (t->is_signed)
        for (; i + 64 <= n; i += 64)
            memopt_i_taper_pack_v16(codes + i,
                memopt_i_taper_signed_v16(g0, g1, _mm512_loadu_ps(x + i), scale),
                memopt_i_taper_signed_v16(g0, g1, _mm512_loadu_ps(x + i + 16), scale),
                memopt_i_taper_signed_v16(g0, g1, _mm512_loadu_ps(x + i + 32), scale),
                memopt_i_taper_signed_v16(g0, g1, _mm512_loadu_ps(x + i + 48), scale));
    else
        for (; i + 64 <= n; i += 64)
            memopt_i_taper_pack_v16(codes + i,
                memopt_i_taper_unsigned_v16(g0, g1, _mm512_loadu_ps(x + i), scale),
                memopt_i_taper_unsigned_v16(g0, g1, _mm512_loadu_ps(x + i + 16), scale),
                memopt_i_taper_unsigned_v16(g0, g1, _mm512_loadu_ps(x + i + 32), scale),
                memopt_i_taper_unsigned_v16(g0, g1, _mm512_loadu_ps(x + i + 48), scale));
    if (i < n) memopt_i_taper_encode_v1(t, codes + i, x + i, n - i, inverse);
}
MEMOPT_I_AVX2 static void memopt_i_taper_decode_v8(const memopt_i_taper *t, float *levels, const uint8_t *codes,
                                                   size_t n) {
    size_t i = 0; uint64_t eight;
    for (; i + 8 <= n; i += 8) {
        memcpy(&eight, codes + i, 8);
        _mm256_storeu_ps(levels + i, _mm256_i32gather_ps(t->value,
            _mm256_cvtepu8_epi32(_mm_set_epi64x(0, (long long)eight)), 4));
    }
    memopt_i_taper_decode_v1(t, levels + i, codes + i, n - i);
}
/* The table of 32 in four registers: each is looked up by 3 bits, the other 2 choose among them. */
MEMOPT_I_AVX2 static __m256 memopt_i_taper_grid_v8(const float *grid, __m256i octave) {
    const __m256 bit3 = _mm256_castsi256_ps(_mm256_slli_epi32(octave, 28)); /* a blend looks at the sign */
    const __m256 bit4 = _mm256_castsi256_ps(_mm256_slli_epi32(octave, 27));
    const __m256 a = _mm256_permutevar8x32_ps(_mm256_loadu_ps(grid), octave);
    const __m256 b = _mm256_permutevar8x32_ps(_mm256_loadu_ps(grid + 8), octave);
    const __m256 c = _mm256_permutevar8x32_ps(_mm256_loadu_ps(grid + 16), octave);
    const __m256 d = _mm256_permutevar8x32_ps(_mm256_loadu_ps(grid + 24), octave);
    return _mm256_blendv_ps(_mm256_blendv_ps(a, b, bit3), _mm256_blendv_ps(c, d, bit3), bit4);
}
MEMOPT_I_AVX2 static __m256i memopt_i_taper_codes_v8(const memopt_i_taper *t, const float *x, __m256 scale) {
    const __m256 positive = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)), v = _mm256_loadu_ps(x);
    const __m256 y = t->is_signed
        ? _mm256_max_ps(_mm256_and_ps(_mm256_mul_ps(v, scale), positive), _mm256_set1_ps(MEMOPT_I_TAPER_TINY))
        : _mm256_fmadd_ps(v, scale, _mm256_set1_ps(MEMOPT_I_TAPER_LIFT));
    const __m256i octave = _mm256_srli_epi32(_mm256_castps_si256(y), 23);
    __m256i k = _mm256_castps_si256(_mm256_add_ps(y, memopt_i_taper_grid_v8(t->grid, octave)));
    if (t->is_signed) k = _mm256_or_si256(_mm256_slli_epi32(k, 1), _mm256_srli_epi32(_mm256_castps_si256(v), 31));
    return _mm256_and_si256(k, _mm256_set1_epi32(255));
}
MEMOPT_I_AVX2 static void memopt_i_taper_encode_v8(const memopt_i_taper *t, uint8_t *codes, const float *x, size_t n,
                                                   float inverse) {
    const __m256 scale = _mm256_set1_ps(inverse); size_t i = 0;
    for (; i + 32 <= n; i += 32) { /* packing works within 128 bits: the fours are put in order at the end */
        const __m256i a = memopt_i_taper_codes_v8(t, x + i, scale), b = memopt_i_taper_codes_v8(t, x + i + 8, scale);
        const __m256i c = memopt_i_taper_codes_v8(t, x + i + 16, scale);
        const __m256i d = memopt_i_taper_codes_v8(t, x + i + 24, scale);
        const __m256i all = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        _mm256_storeu_si256((__m256i *)(void *)(codes + i), _mm256_permutevar8x32_epi32(all, order));
    }
    memopt_i_taper_encode_v1(t, codes + i, x + i, n - i, inverse);
}
#endif
static void memopt_i_taper_decode_at(int level, const memopt_i_taper *t, float *levels, const uint8_t *codes,
                                     size_t n) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) { memopt_i_taper_decode_v16(t, levels, codes, n); return; }
    if (level >= MEMOPT_SIMD_AVX2) { memopt_i_taper_decode_v8(t, levels, codes, n); return; }
#endif
    (void)level;
    memopt_i_taper_decode_v1(t, levels, codes, n);
}
static void memopt_i_taper_encode_at(int level, const memopt_i_taper *t, uint8_t *codes, const float *x, size_t n,
                                     float inverse) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) { memopt_i_taper_encode_v16(t, codes, x, n, inverse); return; }
    if (level >= MEMOPT_SIMD_AVX2) { memopt_i_taper_encode_v8(t, codes, x, n, inverse); return; }
#endif
    (void)level;
    memopt_i_taper_encode_v1(t, codes, x, n, inverse);
}
/* @section lanes : simd
   The arithmetic of one optimizer step, for a group of elements.
   Problem    Seven kinds, four instruction sets, and one result to the bit.
   Idea       Each formula is written once, in terms of a lane type V: a float, 4, 8 or 16 of them. The macro
              MEMOPT_I_LANES makes the functions of an instruction set out of it; the one for a single float is the
              definition, and also the tail of the others.
   Rule       All of it is float. Products go into sums through fma only, so that no compiler can fuse differently.
              Divisions and roots are IEEE's. Constants are worked out in double and rounded once (memopt_i_rule).
   Formulas   x is the gradient times the factor, whose place is in g1 and g2; with coupled decay x = f g + wd w.
              moments    m = b1 m + g1 x;  v = b2 v + g2 x x. Where the root of v is kept (8-bit): t = sqrt(b2) scale v,
                         s = sqrt(t t + g2 x x). Codes are decoded without their scale, which is part of b1 and sqrt(b2).
              update     w = decay w - step m / (s ic2 + eps)                      Adam; `adam` is both
              direction  u = wd w + ic1 m / (s ic2 + eps)                          LAMB
              sgd        x = f g + wd w;  m = b1 m + g1 x;  u = m, or b1 m + x     SGD, LARS
              lion       u = sign(b1 m + g1 x);  m = b2 m + g2 x
              axpy       w = decay w - step u */
typedef struct memopt_i_rule {
    float b1, g1, b2, g2, factor, pull, decay, step, ic1, ic2, eps;
    float limit, weight_limit; /* of magnitudes that are stepped; weights count where they enter the moments, else 0 */
    int   coupled, late, nesterov; /* late: weights decay after the update, as bitsandbytes does it */
} memopt_i_rule;
typedef struct memopt_i_group { /* up to a few hundred elements; u, m, v and w may each be NULL where a kind has none */
    float       *w;
    const float *g;
    const float *old_m, *old_v;    /* as they were: m and v themselves, except where a step is only measured */
    float       *m, *v, *u;
    float        scale_m, scale_v; /* of the codes in m and v; 1 where they are floats */
    int          root;             /* v holds its root */
    int          in_memory;        /* g, w, m and v lie in memory: fetch ahead */
    size_t       count;
} memopt_i_group;
typedef void memopt_i_lane_fn(const memopt_i_rule *rule, const memopt_i_group *group);

/* One float. */
#define MEMOPT_I_V1(name) memopt_i_v1_##name
enum { memopt_i_v1_width = 1 };
typedef float memopt_i_v1_t;
static float memopt_i_v1_load(const float *p) { return *p; }
static void  memopt_i_v1_store(float *p, float x) { *p = x; }
static float memopt_i_v1_set(float x) { return x; }
static float memopt_i_v1_mul(float a, float b) { return memopt_i_round(a * b); }
static float memopt_i_v1_div(float a, float b) { return memopt_i_round(a / b); }
static float memopt_i_v1_sqrt(float a) { return memopt_i_round(sqrtf(a)); }
static float memopt_i_v1_fma(float a, float b, float c) { return fmaf(a, b, c); }
static float memopt_i_v1_sign(float a) { return a > 0 ? 1.0f : a < 0 ? -1.0f : 0.0f; }
/* The larger of a and |b| by their bits, in which NaN is above all; then whether all lanes are below a limit. */
static float memopt_i_v1_worse(float a, float b) {
    const uint32_t x = memopt_i_float_bits(a), y = memopt_i_float_bits(b) & 0x7fffffffu;
    return memopt_i_bits_float(x > y ? x : y);
}
static int memopt_i_v1_below(float a, float limit) { return memopt_i_float_bits(a) < memopt_i_float_bits(limit); }
#if defined(MEMOPT_I_X86)
#define MEMOPT_I_V8(name) memopt_i_v8_##name
enum { memopt_i_v8_width = 8 };
typedef __m256 memopt_i_v8_t;
MEMOPT_I_AVX2 static __m256 memopt_i_v8_load(const float *p) { return _mm256_loadu_ps(p); }
MEMOPT_I_AVX2 static void   memopt_i_v8_store(float *p, __m256 x) { _mm256_storeu_ps(p, x); }
MEMOPT_I_AVX2 static __m256 memopt_i_v8_set(float x) { return _mm256_set1_ps(x); }
MEMOPT_I_AVX2 static __m256 memopt_i_v8_mul(__m256 a, __m256 b) { return _mm256_mul_ps(a, b); }
MEMOPT_I_AVX2 static __m256 memopt_i_v8_div(__m256 a, __m256 b) { return _mm256_div_ps(a, b); }
MEMOPT_I_AVX2 static __m256 memopt_i_v8_sqrt(__m256 a) { return _mm256_sqrt_ps(a); }
MEMOPT_I_AVX2 static __m256 memopt_i_v8_fma(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
MEMOPT_I_AVX2 static __m256 memopt_i_v8_sign(__m256 a) {
    const __m256 sign = _mm256_set1_ps(-0.0f), zero = _mm256_setzero_ps();
    return _mm256_and_ps(_mm256_cmp_ps(a, zero, _CMP_NEQ_OQ), _mm256_or_ps(_mm256_and_ps(a, sign),
                                                                           _mm256_set1_ps(1.0f)));
}
MEMOPT_I_AVX2 static __m256 memopt_i_v8_worse(__m256 a, __m256 b) {
    return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(a),
        _mm256_and_si256(_mm256_castps_si256(b), _mm256_set1_epi32(0x7fffffff))));
}
MEMOPT_I_AVX2 static int memopt_i_v8_below(__m256 a, __m256 limit) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a, limit, _CMP_LT_OQ)) == 255;
}
#define MEMOPT_I_V16(name) memopt_i_v16_##name
enum { memopt_i_v16_width = 16 };
typedef __m512 memopt_i_v16_t;
MEMOPT_I_AVX512 static __m512 memopt_i_v16_load(const float *p) { return _mm512_loadu_ps(p); }
MEMOPT_I_AVX512 static void   memopt_i_v16_store(float *p, __m512 x) { _mm512_storeu_ps(p, x); }
MEMOPT_I_AVX512 static __m512 memopt_i_v16_set(float x) { return _mm512_set1_ps(x); }
MEMOPT_I_AVX512 static __m512 memopt_i_v16_mul(__m512 a, __m512 b) { return _mm512_mul_ps(a, b); }
MEMOPT_I_AVX512 static __m512 memopt_i_v16_div(__m512 a, __m512 b) { return _mm512_div_ps(a, b); }
MEMOPT_I_AVX512 static __m512 memopt_i_v16_sqrt(__m512 a) { return _mm512_sqrt_ps(a); }
MEMOPT_I_AVX512 static __m512 memopt_i_v16_fma(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
MEMOPT_I_AVX512 static __m512 memopt_i_v16_sign(__m512 a) {
    const __m512 sign = _mm512_and_ps(a, _mm512_set1_ps(-0.0f));
    return _mm512_maskz_or_ps(_mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_NEQ_OQ), sign, _mm512_set1_ps(1.0f));
}
MEMOPT_I_AVX512 static __m512 memopt_i_v16_worse(__m512 a, __m512 b) {
    return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a),
        _mm512_and_si512(_mm512_castps_si512(b), _mm512_set1_epi32(0x7fffffff))));
}
MEMOPT_I_AVX512 static int memopt_i_v16_below(__m512 a, __m512 limit) {
    return _mm512_cmp_ps_mask(a, limit, _CMP_LT_OQ) == 0xffff;
}
#elif defined(MEMOPT_I_NEON)
#define MEMOPT_I_V4(name) memopt_i_v4_##name
enum { memopt_i_v4_width = 4 };
typedef float32x4_t memopt_i_v4_t;
static float32x4_t memopt_i_v4_load(const float *p) { return vld1q_f32(p); }
static void        memopt_i_v4_store(float *p, float32x4_t x) { vst1q_f32(p, x); }
static float32x4_t memopt_i_v4_set(float x) { return vdupq_n_f32(x); }
static float32x4_t memopt_i_v4_mul(float32x4_t a, float32x4_t b) { return vmulq_f32(a, b); }
static float32x4_t memopt_i_v4_div(float32x4_t a, float32x4_t b) { return vdivq_f32(a, b); }
static float32x4_t memopt_i_v4_sqrt(float32x4_t a) { return vsqrtq_f32(a); }
static float32x4_t memopt_i_v4_fma(float32x4_t a, float32x4_t b, float32x4_t c) { return vfmaq_f32(c, a, b); }
static float32x4_t memopt_i_v4_sign(float32x4_t a) {
    const uint32x4_t one = vreinterpretq_u32_f32(vdupq_n_f32(1.0f)), bits = vreinterpretq_u32_f32(a);
    const uint32x4_t sign = vorrq_u32(vandq_u32(bits, vdupq_n_u32(0x80000000u)), one);
    const uint32x4_t is_signed = vorrq_u32(vcgtq_f32(a, vdupq_n_f32(0)), vcltq_f32(a, vdupq_n_f32(0)));
    return vreinterpretq_f32_u32(vandq_u32(sign, is_signed));
}
static float32x4_t memopt_i_v4_worse(float32x4_t a, float32x4_t b) {
    return vreinterpretq_f32_u32(vmaxq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(vabsq_f32(b))));
}
static int memopt_i_v4_below(float32x4_t a, float32x4_t limit) {
    return vminvq_u32(vcltq_f32(a, limit)) != 0;
}
#endif
/* Fetches what is 4 KiB further on: the processor's own prefetching falls behind with so many streams. An address is
   no access; it may lie past the end. */
static void memopt_i_fetch(const void *p, size_t offset) {
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch((const void *)((uintptr_t)p + offset));
#else
    (void)p; (void)offset;
#endif
}
static void memopt_i_fetch_ahead(const float *p) { memopt_i_fetch(p, 4096); }
/* The formulas. V(t) is the lane type; every function walks whole lanes and leaves what is over to the single float. */
#define MEMOPT_I_LANES(V, SET)                                                                                         \
SET static void V(moments)(const memopt_i_rule *r, const memopt_i_group *q) {                                          \
    const V(t) b1 = V(set)(memopt_i_round(r->b1 * q->scale_m)), g1 = V(set)(r->g1), g2 = V(set)(r->g2);                \
    const V(t) b2 = V(set)(memopt_i_round(r->b2 * q->scale_v)), f = V(set)(r->factor), pull = V(set)(r->pull);         \
    size_t i;                                                                                                          \
    MEMOPT_I_UNROLL                                                                                                    \
    for (i = 0; i + V(width) <= q->count; i += V(width)) {                                                             \
        V(t) x = V(load)(q->g + i), v = V(load)(q->old_v + i);                                                         \
        if (q->in_memory) { memopt_i_fetch_ahead(q->g + i); memopt_i_fetch_ahead(q->old_m + i); }                      \
        if (r->coupled) x = V(fma)(pull, V(load)(q->w + i), V(mul)(f, x));                                             \
        V(store)(q->m + i, V(fma)(b1, V(load)(q->old_m + i), V(mul)(g1, x)));                                          \
        if (q->root) { v = V(mul)(b2, v); v = V(sqrt)(V(fma)(v, v, V(mul)(V(mul)(g2, x), x))); }                       \
        else v = V(fma)(b2, v, V(mul)(V(mul)(g2, x), x));                                                              \
        V(store)(q->v + i, v);                                                                                         \
    }                                                                                                                  \
}                                                                                                                      \
SET static void V(update)(const memopt_i_rule *r, const memopt_i_group *q) {                                           \
    const V(t) ic2 = V(set)(r->ic2), eps = V(set)(r->eps), decay = V(set)(r->decay), step = V(set)(-r->step);          \
    size_t i;                                                                                                          \
    MEMOPT_I_UNROLL                                                                                                    \
    for (i = 0; i + V(width) <= q->count; i += V(width)) {                                                             \
        const V(t) v = V(load)(q->v + i), s = q->root ? v : V(sqrt)(v);                                                \
        if (q->in_memory) { memopt_i_fetch_ahead(q->old_v + i); memopt_i_fetch_ahead(q->w + i); }                      \
        const V(t) u = V(div)(V(load)(q->m + i), V(fma)(s, ic2, eps));                                                 \
        const V(t) w = V(load)(q->w + i);                                                                              \
        V(store)(q->w + i, r->late ? V(mul)(V(fma)(step, u, w), decay) : V(fma)(step, u, V(mul)(w, decay)));           \
    }                                                                                                                  \
}                                                                                                                      \
SET MEMOPT_I_FLATTEN static void V(adam)(const memopt_i_rule *r, const memopt_i_group *q) {                            \
    memopt_i_group part = *q; size_t left = q->count - q->count % V(width);                                            \
    for (; left; left -= part.count) { /* both by turns, while it is in the first cache and the divider is busy */     \
        part.count = memopt_i_min(left, 64);                                                                           \
        V(moments)(r, &part);                                                                                          \
        V(update)(r, &part);                                                                                           \
        part.w += part.count; part.g += part.count; part.old_m += part.count; part.old_v += part.count;                \
        part.m += part.count; part.v += part.count;                                                                    \
    }                                                                                                                  \
}                                                                                                                      \
SET static void V(direction)(const memopt_i_rule *r, const memopt_i_group *q) {                                        \
    const V(t) ic1 = V(set)(r->ic1), ic2 = V(set)(r->ic2), eps = V(set)(r->eps), pull = V(set)(r->pull);               \
    size_t i;                                                                                                          \
    MEMOPT_I_UNROLL                                                                                                    \
    for (i = 0; i + V(width) <= q->count; i += V(width)) {                                                             \
        const V(t) v = V(load)(q->v + i), s = q->root ? v : V(sqrt)(v);                                                \
        if (q->in_memory) { memopt_i_fetch_ahead(q->old_v + i); memopt_i_fetch_ahead(q->w + i); }                      \
        const V(t) u = V(div)(V(mul)(ic1, V(load)(q->m + i)), V(fma)(s, ic2, eps));                                    \
        V(store)(q->u + i, V(fma)(pull, V(load)(q->w + i), u));                                                        \
    }                                                                                                                  \
}                                                                                                                      \
SET static void V(sgd)(const memopt_i_rule *r, const memopt_i_group *q) {                                              \
    const V(t) b1 = V(set)(memopt_i_round(r->b1 * q->scale_m)), look = V(set)(r->b1), g1 = V(set)(r->g1);              \
    const V(t) f = V(set)(r->factor), pull = V(set)(r->pull);                                                          \
    size_t i;                                                                                                          \
    MEMOPT_I_UNROLL                                                                                                    \
    for (i = 0; i + V(width) <= q->count; i += V(width)) {                                                             \
        const V(t) x = V(fma)(pull, V(load)(q->w + i), V(mul)(f, V(load)(q->g + i)));                                  \
        V(t) m = x;                                                                                                    \
        if (q->in_memory) { memopt_i_fetch_ahead(q->g + i); memopt_i_fetch_ahead(q->w + i); }                          \
        if (q->m) {                                                                                                    \
            if (q->in_memory) memopt_i_fetch_ahead(q->old_m + i);                                                      \
            m = V(fma)(b1, V(load)(q->old_m + i), V(mul)(g1, x));                                                      \
            V(store)(q->m + i, m);                                                                                     \
        }                                                                                                              \
        V(store)(q->u + i, r->nesterov ? V(fma)(look, m, x) : m);                                                      \
    }                                                                                                                  \
}                                                                                                                      \
SET static void V(lion)(const memopt_i_rule *r, const memopt_i_group *q) {                                             \
    const V(t) b1 = V(set)(memopt_i_round(r->b1 * q->scale_m)), b2 = V(set)(memopt_i_round(r->b2 * q->scale_m));       \
    const V(t) g1 = V(set)(r->g1), g2 = V(set)(r->g2);                                                                 \
    size_t i;                                                                                                          \
    MEMOPT_I_UNROLL                                                                                                    \
    for (i = 0; i + V(width) <= q->count; i += V(width)) {                                                             \
        const V(t) x = V(load)(q->g + i), m = V(load)(q->old_m + i);                                                   \
        if (q->in_memory) { memopt_i_fetch_ahead(q->g + i); memopt_i_fetch_ahead(q->w + i); }                          \
        if (q->in_memory) memopt_i_fetch_ahead(q->old_m + i);                                                          \
        V(store)(q->u + i, V(sign)(V(fma)(b1, m, V(mul)(g1, x))));                                                     \
        V(store)(q->m + i, V(fma)(b2, m, V(mul)(g2, x)));                                                              \
    }                                                                                                                  \
}                                                                                                                      \
SET static void V(axpy)(const memopt_i_rule *r, const memopt_i_group *q) {                                             \
    const V(t) decay = V(set)(r->decay), step = V(set)(-r->step);                                                      \
    size_t i;                                                                                                          \
    MEMOPT_I_UNROLL                                                                                                    \
    for (i = 0; i + V(width) <= q->count; i += V(width))                                                               \
        V(store)(q->w + i, V(fma)(step, V(load)(q->u + i), V(mul)(V(load)(q->w + i), decay)));                         \
}                                                                                                                      \
SET static int V(sane)(const float *g, size_t n, float limit) {                                                        \
    V(t) worst = V(set)(0);                                                                                            \
    size_t i;                                                                                                          \
    MEMOPT_I_UNROLL                                                                                                    \
    for (i = 0; i + V(width) <= n; i += V(width)) worst = V(worse)(worst, V(load)(g + i));                             \
    return V(below)(worst, V(set)(limit));                                                                             \
}

MEMOPT_I_LANES(MEMOPT_I_V1, )
#if defined(MEMOPT_I_X86)
MEMOPT_I_LANES(MEMOPT_I_V8, MEMOPT_I_AVX2)
MEMOPT_I_LANES(MEMOPT_I_V16, MEMOPT_I_AVX512)
#elif defined(MEMOPT_I_NEON)
MEMOPT_I_LANES(MEMOPT_I_V4, )
#endif

/* What a level is made of. A lane function does whole lanes only; memopt_i_lanes_run() hands the rest to the float. */
enum { MEMOPT_I_MOMENTS, MEMOPT_I_UPDATE, MEMOPT_I_ADAM, MEMOPT_I_DIRECTION, MEMOPT_I_SGD, MEMOPT_I_LION, MEMOPT_I_AXPY };
typedef struct memopt_i_lanes {
    memopt_i_lane_fn *fn[7];
    int             (*sane)(const float *g, size_t n, float limit);
    size_t            width;
    int               level;
} memopt_i_lanes;
#define MEMOPT_I_LANES_TABLE(V, LEVEL) \
    { { V(moments), V(update), V(adam), V(direction), V(sgd), V(lion), V(axpy) }, V(sane), V(width), LEVEL }
static const memopt_i_lanes memopt_i_lanes_v1 = MEMOPT_I_LANES_TABLE(MEMOPT_I_V1, MEMOPT_SIMD_SCALAR);
#if defined(MEMOPT_I_X86)
static const memopt_i_lanes memopt_i_lanes_v8 = MEMOPT_I_LANES_TABLE(MEMOPT_I_V8, MEMOPT_SIMD_AVX2);
static const memopt_i_lanes memopt_i_lanes_v16 = MEMOPT_I_LANES_TABLE(MEMOPT_I_V16, MEMOPT_SIMD_AVX512);
#elif defined(MEMOPT_I_NEON)
static const memopt_i_lanes memopt_i_lanes_v4 = MEMOPT_I_LANES_TABLE(MEMOPT_I_V4, MEMOPT_SIMD_NEON);
#endif
static const memopt_i_lanes *memopt_i_lanes_at(int level) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) return &memopt_i_lanes_v16;
    if (level >= MEMOPT_SIMD_AVX2) return &memopt_i_lanes_v8;
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) return &memopt_i_lanes_v4;
#endif
    (void)level;
    return &memopt_i_lanes_v1;
}
static memopt_i_group memopt_i_group_from(const memopt_i_group *q, size_t i, size_t count) {
    memopt_i_group part = *q;
    part.g += i; part.count = count;
    if (part.w) part.w += i;
    if (part.m) { part.m += i; part.old_m += i; }
    if (part.v) { part.v += i; part.old_v += i; }
    if (part.u) part.u += i;
    return part;
}
static void memopt_i_lanes_run(const memopt_i_lanes *lanes, int which, const memopt_i_rule *rule,
                               const memopt_i_group *q) {
    const size_t whole = q->count - q->count % lanes->width;
    lanes->fn[which](rule, q);
    if (whole < q->count) {
        const memopt_i_group rest = memopt_i_group_from(q, whole, q->count - whole);
        memopt_i_wide_end(lanes->level);
        memopt_i_lanes_v1.fn[which](rule, &rest);
    }
}
static int memopt_i_lanes_sane(const memopt_i_lanes *lanes, const float *x, size_t n, float limit) {
    const size_t whole = n - n % lanes->width;
    return lanes->sane(x, whole, limit) && memopt_i_v1_sane(x + whole, n - whole, limit);
}
/* May the whole group be stepped? */
static int memopt_i_lanes_sane_group(const memopt_i_lanes *lanes, const memopt_i_rule *rule, const memopt_i_group *q) {
    return memopt_i_lanes_sane(lanes, q->g, q->count, rule->limit)
        && (!(rule->weight_limit > 0) || memopt_i_lanes_sane(lanes, q->w, q->count, rule->weight_limit));
}
/* @section state : host lanes api_optim api_random
   What a tensor's state is made of, byte by byte, and which combinations exist.
   Layout     64 bytes of header, which say what it is, then the parts, each aligned to 64: scales of the first and the
              second moment (a float a block), first moments, second moments, Adafactor's means of rows and columns.
              Numbers are in the machine's byte order, which the header tells, too. tests/test_optim.c holds golden bytes.
   Trap       Whether a tensor is small enough to keep floats is judged on the whole of it, never on the part that is
              held: otherwise the result depends on the number of ranks. */
enum { MEMOPT_I_OF_WEIGHTS, MEMOPT_I_OF_FIRST, MEMOPT_I_OF_SECOND, MEMOPT_I_NOISES };

/* A tensor as the object keeps it. */
typedef struct memopt_i_held_tensor {
    memopt_i_rule       rule;                   /* of this step, as are group, step and noise */
    memopt_optim_group  group;
    uint64_t            step;
    memopt_noise        noise[MEMOPT_I_NOISES];
    memopt_state_format format;                 /* of its moments: small tensors have floats */
    int                 moments;
    size_t              held, blocks;
    size_t              chunks, first_chunk;    /* in one parallel pass over all tensors */
    size_t              sums, sum_count;        /* where in the object's sums */
    size_t              applied;
    int                 phase, phases;          /* passes that have measured it, and how many there are */
} memopt_i_held_tensor;
typedef struct memopt_i_state_header {
    char     magic[8];
    uint32_t order, version, kind, format, block, moments; /* order: 0x01020304 in the byte order of its numbers */
    uint64_t count, first, held, columns;
} memopt_i_state_header;

static size_t memopt_i_ceil_div(size_t a, size_t b) {
    MEMOPT_ASSERT(b);
    return a / b + (a % b != 0);
}
static size_t memopt_i_held(const memopt_optim_tensor *t) { return t->held ? t->held : t->count - t->first; }
static int memopt_i_is_coded(memopt_state_format format) {
    return format == MEMOPT_STATE_8BIT || format == MEMOPT_STATE_BNB;
}
/* Adafactor: a matrix with at least 32 rows and columns has means of rows and of columns; all else has a mean for each
   element, kept as rows of one. Slices and panels are whole rows; the columns' sums are kept for each panel, and the
   panels added up in their order, so that no slice and no number of workers changes the order of a sum. */
#define MEMOPT_I_PANELS 32
static int memopt_i_factor_is_matrix(const memopt_optim_tensor *t) {
    return t->columns >= 32 && t->count / t->columns >= 32;
}
static size_t memopt_i_factor_rows(const memopt_optim_tensor *t) {
    return memopt_i_factor_is_matrix(t) ? memopt_i_held(t) / t->columns : memopt_i_held(t);
}
/* Rows of a panel: a 32nd of all, and whole blocks of an 8-bit first moment. */
static size_t memopt_i_factor_panel(const memopt_optim_desc *d, const memopt_optim_tensor *t) {
    const size_t columns = memopt_i_factor_is_matrix(t) ? t->columns : 1;
    const size_t least = memopt_i_ceil_div(t->count / columns, MEMOPT_I_PANELS);
    size_t a = d->block, b = columns;
    while (b) { const size_t rest = a % b; a = b; b = rest; } /* a: the greatest common divisor */
    return memopt_i_ceil_div(least, d->block / a) * (d->block / a);
}
static size_t memopt_i_factor_columns(const memopt_optim_tensor *t) { return memopt_i_factor_is_matrix(t) ? t->columns : 0; }
static size_t memopt_i_factor_grain(const memopt_optim_desc *d, const memopt_optim_tensor *t) {
    return memopt_i_factor_panel(d, t) * (memopt_i_factor_is_matrix(t) ? t->columns : 1);
}
/* Doubles: a sum for each row and, by panels, each column; the squares of updates and weights of each panel. */
static size_t memopt_i_factor_sums(const memopt_optim_tensor *t) {
    const size_t rows = memopt_i_factor_is_matrix(t) ? t->count / t->columns : 0;
    return rows + MEMOPT_I_PANELS * (memopt_i_factor_columns(t) + 2);
}
static int memopt_i_kind_measures(memopt_optim_kind kind) {
    return kind == MEMOPT_LARS || kind == MEMOPT_LAMB || kind == MEMOPT_ADAFACTOR;
}
static int memopt_i_kind_moments(const memopt_optim_desc *d) {
    switch (d->kind) {
    case MEMOPT_ADAMW: case MEMOPT_ADAM: case MEMOPT_LAMB: return 2;
    case MEMOPT_LION: case MEMOPT_LARS: return 1;
    case MEMOPT_SGD: case MEMOPT_ADAFACTOR: return d->first_moment != 0;
    }
    return -1;
}
static int memopt_i_in(int value, int least, int most) { return value >= least && value <= most; }
/* Fill in the defaults, and refuse what does not exist. */
static memopt_status memopt_i_optim_resolve(const memopt_optim_desc *desc, memopt_optim_desc *out) {
    memopt_optim_desc d; const int most_state = MEMOPT_STATE_BNB, most_weights = MEMOPT_WEIGHTS_F32_BF16;
    if (!desc || !desc->tensors || !desc->tensor_count) return MEMOPT_ERR_ARGUMENT;
    d = *desc;
    if (!d.block) d.block = 256;
    if (!d.min_quantized) d.min_quantized = 4096;
    if (d.block % 32 || d.block < 32 || d.block > 4096 || !memopt_i_threads_valid(&d.threads)) return MEMOPT_ERR_ARGUMENT;
    if (!memopt_i_in((int)d.kind, 0, MEMOPT_ADAFACTOR) || !memopt_i_in((int)d.state, 0, most_state)
        || !memopt_i_in((int)d.weights, 0, most_weights) || !memopt_i_in((int)d.gradients, 0, MEMOPT_GRADIENTS_F16))
        return MEMOPT_ERR_ARGUMENT;
    if (d.state == MEMOPT_STATE_BNB && d.kind != MEMOPT_ADAMW && d.kind != MEMOPT_ADAM) return MEMOPT_ERR_ARGUMENT;
    *out = d;
    return MEMOPT_OK;
}
/* Chunks are whole blocks, about 64 Ki elements: a worker's turn. Kinds that measure have one sum for each. */
static size_t memopt_i_optim_chunk(const memopt_optim_desc *d) { return d->block * (65536 / d->block); }
static size_t memopt_i_optim_grain(const memopt_optim_desc *d, const memopt_optim_tensor *t) {
    if (d->kind == MEMOPT_ADAFACTOR) return memopt_i_factor_grain(d, t);
    return memopt_i_kind_measures(d->kind) ? memopt_i_optim_chunk(d) : d->block;
}
static memopt_status memopt_i_tensor_check(const memopt_optim_desc *d, const memopt_optim_tensor *t) {
    size_t grain, held, bytes;
    if (!t->count || t->first >= t->count || (t->held && t->held > t->count - t->first)) return MEMOPT_ERR_ARGUMENT;
    if (t->columns && t->count % t->columns) return MEMOPT_ERR_ARGUMENT;
    if (memopt_i_mul(t->count, 16, &bytes)) return MEMOPT_ERR_OVERFLOW; /* every array of it and its sums then fit */
    if (d->kind == MEMOPT_ADAFACTOR && memopt_i_factor_is_matrix(t)
        && memopt_i_mul(memopt_i_factor_panel(d, t), t->columns, &bytes)) return MEMOPT_ERR_OVERFLOW; /* its grain */
    grain = memopt_i_optim_grain(d, t); held = memopt_i_held(t);
    MEMOPT_ASSERT(grain);
    if (t->first % grain || (t->first + held != t->count && held % grain)) return MEMOPT_ERR_ARGUMENT;
    return MEMOPT_OK;
}
/* What a tensor's state is made of; its sizes have been checked. */
static void memopt_i_tensor_fill(const memopt_optim_desc *d, const memopt_optim_tensor *t, memopt_i_held_tensor *part) {
    memset(part, 0, sizeof *part);
    part->format = memopt_i_is_coded(d->state) && t->count < d->min_quantized ? MEMOPT_STATE_F32 : d->state;
    part->moments = memopt_i_kind_moments(d);
    part->held = memopt_i_held(t);
    part->blocks = memopt_i_is_coded(part->format) ? memopt_i_ceil_div(part->held, d->block) : 0;
    part->chunks = memopt_i_ceil_div(part->held, memopt_i_optim_chunk(d));
    if (d->kind == MEMOPT_ADAFACTOR) { part->phases = 2; part->sum_count = memopt_i_factor_sums(t); }
    else if (memopt_i_kind_measures(d->kind)) {
        part->phases = 1;
        part->sum_count = 2 * memopt_i_ceil_div(t->count, memopt_i_optim_chunk(d));
    }
}
/* The parts of a state, from its first byte on; returns how many bytes there are. Without a state all pointers are
   NULL, and the bytes are told nevertheless. */
static size_t memopt_i_state_layout(const memopt_i_held_tensor *part, const memopt_optim_desc *d,
                                    const memopt_optim_tensor *t, memopt_optim_view *view) {
    const size_t element = part->format == MEMOPT_STATE_F32 ? 4 : part->format == MEMOPT_STATE_BF16 ? 2 : 1;
    const size_t factor[2] = { d->kind == MEMOPT_ADAFACTOR ? memopt_i_factor_rows(t) : 0,
                               d->kind == MEMOPT_ADAFACTOR ? memopt_i_factor_columns(t) : 0 };
    unsigned char *base = (unsigned char *)t->state; size_t at = sizeof(memopt_i_state_header); int i;
    memset(view, 0, sizeof *view);
    if (!part->moments && !factor[0]) return 0;
    view->held = part->held; view->blocks = part->blocks; view->bits = (int)element * 8; view->moments = part->moments;
    for (i = 0; i < part->moments && part->blocks; ++i) {
        if (base) view->scale[i] = (float *)(void *)(base + at);
        at += memopt_i_align_down(part->blocks * 4 + 63, 64);
    }
    for (i = 0; i < part->moments; ++i) {
        if (base) view->moment[i] = base + at;
        at += memopt_i_align_down(part->held * element + 63, 64);
    }
    for (i = 0; i < 2; ++i) if (factor[i]) {
        if (base) *(i ? &view->columns : &view->rows) = (float *)(void *)(base + at);
        at += memopt_i_align_down(factor[i] * 4 + 63, 64);
    }
    return at;
}
static memopt_i_state_header memopt_i_state_expected(const memopt_i_held_tensor *part, const memopt_optim_desc *d,
                                                     const memopt_optim_tensor *t) {
    memopt_i_state_header h;
    memcpy(h.magic, "memoptS", 8);
    h.order = 0x01020304; h.version = 1; h.kind = (uint32_t)d->kind; h.format = (uint32_t)part->format;
    h.block = (uint32_t)(part->blocks ? d->block : 0); h.moments = (uint32_t)part->moments;
    h.count = t->count; h.first = t->first; h.held = part->held; h.columns = t->columns;
    return h;
}
/* Why a header is not the one that is expected; NULL when it is. */
static const char *memopt_i_header_wrong(const memopt_i_state_header *h, const memopt_i_state_header *want) {
    if (memcmp(h->magic, want->magic, 8)) return "these bytes are no state of an optimizer";
    if (h->order != want->order) return "the state is of a machine with the other byte order";
    if (h->version != want->version) return "the state is of another version";
    if (h->kind != want->kind) return "the state is of another kind of optimizer";
    if (h->format != want->format || h->block != want->block || h->moments != want->moments)
        return "the state is in another format, or has other blocks";
    if (h->count != want->count || h->columns != want->columns) return "the state is of a tensor of another size";
    if (h->first != want->first || h->held != want->held) return "the state is of another part of the tensor";
    return NULL;
}
/* @section walk : state taper lanes quant number
   How a step walks over a tensor: every format is decoded into floats, stepped, and encoded again, a group at a time.
   Problem    An 8-bit block can only be encoded when its largest value is known, which is when all of it has been
              stepped; and the divider, which a step waits for, leaves the other units of the processor idle meanwhile.
   Idea       Two blocks are under way. While a group of 64 elements of this one waits for its roots and quotients, the
              same group of the block before is encoded. Nothing but the order of the calls says so: the processor finds
              what is independent by itself.
   Invariant  A block is decoded, stepped and encoded by one worker, from codes that nobody else writes. Blocks are
              counted from the start of the whole tensor, and the bits of rounding by the element's place in it; so a
              tensor may be cut anywhere on a block without a bit changing.
   Careful    A group with a gradient that is not finite, or so large that its square is not, is stepped element by
              element, without those: they keep weight and moments, and harm no other element of their block. Weights
              are looked at as well where they enter the moments (decay that is added to the gradient).
   Cost       One pass. Scratch: two blocks of two moments in float, 4 KiB, and three groups of 256 floats, on the stack;
              larger blocks have theirs in the object.
   Trap       Scratch of two workers side by side in the object made both a third slower: the processor fetches ahead, also
              into the next page, and takes lines out of the other's cache. */
#define MEMOPT_I_GROUP 256       /* elements stepped at a time where states are not coded ... */
#define MEMOPT_I_OWN_LANE 512    /* floats of scratch of a moment on the stack: two blocks of 256 */
#define MEMOPT_I_CODED_GROUP 64  /* ... and where they are: with 128 the processor no longer sees both blocks at once */
#define MEMOPT_I_HUGE 4.611686018427387904e18f /* 2^62: squares stay finite, and sums of all of them in double */
typedef struct memopt_i_walk {
    const memopt_optim_desc   *desc;
    const memopt_optim_tensor *tensor;
    const memopt_i_held_tensor       *part;
    const memopt_i_lanes      *lanes;
    const memopt_i_taper      *codes[2];  /* signed, unsigned */
    memopt_optim_view          view;
    memopt_i_group             group;
    float                     *scratch[2]; /* of each moment: two blocks */
    size_t                     half;       /* where in scratch the block under way begins: 0 or one block */
    size_t                     waiting, waiting_at; /* elements of the other block that wait to be encoded, and their place */
    float                      inverse[2];
    float                      largest[2];  /* magnitude so far, in the block under way */
    size_t                     skipped;
    int                        level, coded, measures, stepped;
    size_t                     weight_bytes, gradient_bytes; /* of an element */
    int                        direct;     /* no format but float: stepped where it lies */
    int                        pipelined;  /* by memopt_i_pipeline_v16() */
    float                      w[MEMOPT_I_GROUP], g[MEMOPT_I_GROUP], u[MEMOPT_I_GROUP];
    float                      own[2 * MEMOPT_I_OWN_LANE + 16]; /* scratch, aligned by hand */
} memopt_i_walk;

static void memopt_i_decode(const memopt_i_walk *k, int moment, float *x, size_t at, size_t n) {
    const uint8_t *codes = (const uint8_t *)k->view.moment[moment] + at;
    if (k->part->format == MEMOPT_STATE_BNB)
        memopt_i_decode_at(k->level, moment ? MEMOPT_MAP_UNSIGNED : MEMOPT_MAP_SIGNED, x, codes, n,
                           k->view.scale[moment][at / k->desc->block]);
    else memopt_i_taper_decode_at(k->level, k->codes[moment], x, codes, n);
}
static void memopt_i_encode(const memopt_i_walk *k, int moment, const float *x, size_t at, size_t n) {
    uint8_t *codes = (uint8_t *)k->view.moment[moment] + at;
    if (k->part->format == MEMOPT_STATE_BNB)
        memopt_i_encode_at(k->level, moment ? MEMOPT_MAP_UNSIGNED : MEMOPT_MAP_SIGNED, codes, x, n, k->inverse[moment]);
    else memopt_i_taper_encode_at(k->level, k->codes[moment], codes, x, n, k->inverse[moment]);
}
/* Moment `moment` of the elements at..at+n as floats: where to read it, and where to step it to, which is the same
   place unless the step is only measured. j: the group's place in its block. */
static float *memopt_i_load_moment(const memopt_i_walk *k, int moment, size_t at, size_t j, size_t n,
                                   const float **old) {
    float *x = k->scratch[moment] + k->half + j;
    *old = x;
    if (moment >= k->view.moments || (k->measures && k->desc->kind == MEMOPT_LARS)) return NULL;
    if (k->coded) memopt_i_decode(k, moment, x, at, n);
    else if (k->part->format == MEMOPT_STATE_BF16)
        memopt_i_f32_from_bf16_at(k->level, x, (const uint16_t *)k->view.moment[moment] + at, n);
    else {
        float *stored = (float *)k->view.moment[moment] + at;
        *old = stored;
        if (!k->measures) x = stored;
    }
    return x;
}
/* The gradients at..at+n as floats: where they are, or in the walk's own. */
static const float *memopt_i_load_gradients(memopt_i_walk *k, size_t at, size_t n) {
    const void *g = k->tensor->gradients;
    switch (k->desc->gradients) {
    case MEMOPT_GRADIENTS_BF16: memopt_i_f32_from_bf16_at(k->level, k->g, (const uint16_t *)g + at, n); break;
    case MEMOPT_GRADIENTS_F16:
        memopt_i_f32_from_small_to(k->level, k->g, (const uint16_t *)g + at, n, MEMOPT_I_F16, 0); break;
    case MEMOPT_GRADIENTS_F32: return (const float *)g + at;
    }
    return k->g;
}
/* Weights, gradients and what belongs to the block: all of the group but its moments. */
static void memopt_i_load_floats(memopt_i_walk *k, size_t at, size_t n) {
    const memopt_optim_tensor *t = k->tensor; memopt_i_group *q = &k->group;
    q->count = n;
    q->u = k->u;
    q->w = k->w;
    switch (k->desc->weights) {
    case MEMOPT_WEIGHTS_BF16:  memopt_i_f32_from_bf16_at(k->level, k->w, (const uint16_t *)t->weights + at, n); break;
    case MEMOPT_WEIGHTS_SPLIT: memopt_i_join_at(k->level, k->w, (const uint16_t *)t->weights + at,
                                                (const uint16_t *)t->extra + at, n); break;
    case MEMOPT_WEIGHTS_F32: case MEMOPT_WEIGHTS_F32_BF16: q->w = (float *)t->weights + at; break;
    }
    q->g = memopt_i_load_gradients(k, at, n);
    q->root = k->part->format == MEMOPT_STATE_8BIT;
    q->in_memory = k->direct;
    q->scale_m = q->scale_v = 1.0f;
    if (q->root && k->view.moments > 0) q->scale_m = k->view.scale[0][at / k->desc->block];
    if (q->root && k->view.moments > 1) q->scale_v = k->view.scale[1][at / k->desc->block];
}
static void memopt_i_load(memopt_i_walk *k, size_t at, size_t j, size_t n) {
    memopt_i_load_floats(k, at, n);
    k->group.m = memopt_i_load_moment(k, 0, at, j, n, &k->group.old_m);
    k->group.v = memopt_i_load_moment(k, 1, at, j, n, &k->group.old_v);
}
static void memopt_i_store(memopt_i_walk *k, size_t at) {
    const memopt_optim_tensor *t = k->tensor; const memopt_i_group *q = &k->group; const size_t n = q->count;
    const uint64_t index = (uint64_t)t->first + at; int i;
    switch (k->desc->weights) {
    case MEMOPT_WEIGHTS_BF16: memopt_i_bf16_noise_at(k->level, (uint16_t *)t->weights + at, q->w, n,
                                                     k->part->noise[MEMOPT_I_OF_WEIGHTS], index); break;
    case MEMOPT_WEIGHTS_SPLIT: memopt_i_split_at(k->level, (uint16_t *)t->weights + at, (uint16_t *)t->extra + at,
                                                 q->w, n); break;
    case MEMOPT_WEIGHTS_F32_BF16: memopt_i_bf16_from_f32_at(k->level, (uint16_t *)t->extra + at, q->w, n); break;
    case MEMOPT_WEIGHTS_F32: break;
    }
    if (k->part->format == MEMOPT_STATE_BF16)
        for (i = 0; i < k->view.moments; ++i)
            memopt_i_bf16_noise_at(k->level, (uint16_t *)k->view.moment[i] + at, i ? q->v : q->m, n,
                                   k->part->noise[MEMOPT_I_OF_FIRST + i], index);
}
static void memopt_i_step_moments(const memopt_i_walk *k, const memopt_i_lanes *lanes, const memopt_i_group *q) {
    switch (k->desc->kind) {
    case MEMOPT_ADAMW: case MEMOPT_ADAM: case MEMOPT_LAMB: memopt_i_lanes_run(lanes, MEMOPT_I_MOMENTS, &k->part->rule,
                                                                              q); break;
    case MEMOPT_LION: memopt_i_lanes_run(lanes, MEMOPT_I_LION, &k->part->rule, q); break;
    default: memopt_i_lanes_run(lanes, MEMOPT_I_SGD, &k->part->rule, q); break;
    }
}
static void memopt_i_step_weights(const memopt_i_walk *k, const memopt_i_lanes *lanes, const memopt_i_group *q) {
    const int adam = k->desc->kind == MEMOPT_ADAMW || k->desc->kind == MEMOPT_ADAM;
    if (k->desc->kind == MEMOPT_LAMB) memopt_i_lanes_run(lanes, MEMOPT_I_DIRECTION, &k->part->rule, q);
    if (!k->measures) memopt_i_lanes_run(lanes, adam ? MEMOPT_I_UPDATE : MEMOPT_I_AXPY, &k->part->rule, q);
}
/* A group with gradients that are not sane: moments and weights of the others. */
MEMOPT_I_NOINLINE static void memopt_i_step_careful(memopt_i_walk *k, const memopt_i_group *q) {
    size_t i;
    for (i = 0; i < q->count; ++i) {
        const memopt_i_group one = memopt_i_group_from(q, i, 1);
        if (memopt_i_lanes_sane_group(&memopt_i_lanes_v1, &k->part->rule, &one)) {
            memopt_i_step_moments(k, &memopt_i_lanes_v1, &one);
            memopt_i_step_weights(k, &memopt_i_lanes_v1, &one);
        } else {
            if (one.m) *one.m = memopt_i_round(*one.old_m * q->scale_m); /* as decoded; floats have the scale 1 */
            if (one.v) *one.v = memopt_i_round(*one.old_v * q->scale_v);
            *one.u = 0;
            ++k->skipped;
        }
    }
}
/* The group's moments; sets k->stepped where the weights are done as well. */
static void memopt_i_step_group(memopt_i_walk *k) {
    const memopt_i_group *q = &k->group;
    k->stepped = !memopt_i_lanes_sane_group(k->lanes, &k->part->rule, q);
    if (k->stepped) memopt_i_step_careful(k, q);
    else if (k->direct && !k->measures && (k->desc->kind == MEMOPT_ADAMW || k->desc->kind == MEMOPT_ADAM)) {
        memopt_i_lanes_run(k->lanes, MEMOPT_I_ADAM, &k->part->rule, q);
        k->stepped = 1;
    } else memopt_i_step_moments(k, k->lanes, q);
}
static void memopt_i_find_largest(memopt_i_walk *k) {
    const memopt_i_group *q = &k->group; int i;
    for (i = 0; i < k->view.moments; ++i) {
        const float largest = memopt_i_absmax_at(k->level, i ? q->v : q->m, q->count);
        if (largest > k->largest[i]) k->largest[i] = largest;
    }
}
/* Elements j..j+n of the block that waits; n is cut to what there is. */
static void memopt_i_encode_waiting(memopt_i_walk *k, size_t j, size_t n) {
    const size_t other = k->half ? 0 : k->desc->block; int i;
    if (j >= k->waiting) return;
    n = memopt_i_min(n, k->waiting - j);
    for (i = 0; i < k->view.moments; ++i) memopt_i_encode(k, i, k->scratch[i] + other + j, k->waiting_at + j, n);
}
/* The block at..at+n is stepped: its scales are known, and it waits to be encoded. */
static void memopt_i_block_done(memopt_i_walk *k, size_t at, size_t n) {
    int i;
    memopt_i_encode_waiting(k, n, k->waiting); /* where this block is the short last one */
    for (i = 0; i < k->view.moments; ++i) {
        const float largest = k->largest[i];
        k->view.scale[i][at / k->desc->block] = largest;
        k->inverse[i] = k->part->format == MEMOPT_STATE_BNB ? memopt_i_inverse(largest) : memopt_i_taper_inverse(largest);
        k->largest[i] = 0;
    }
    k->waiting = n; k->waiting_at = at;
    k->half = k->half ? 0 : k->desc->block;
}
#if defined(MEMOPT_I_X86)
/* Decode, step and encode 64 elements at a time, as the loop in memopt_i_walk_apply() does, without a call between:
   8-bit states, whole 64s. Calls would cost a third of a step. */
MEMOPT_I_AVX512 static __m512 memopt_i_larger_v16(__m512 largest, const float *x, size_t n) {
    size_t i;
    for (i = 0; i < n; i += 16) largest = _mm512_range_ps(largest, _mm512_loadu_ps(x + i), 11);
    return largest;
}
/* The same of numbers without a sign, where NaN and infinity are larger than all. */
MEMOPT_I_AVX512 static __m512i memopt_i_larger_root_v16(__m512i largest, const float *x, size_t n) {
    size_t i;
    for (i = 0; i < n; i += 16) largest = _mm512_max_epu32(largest, _mm512_loadu_si512(x + i));
    return largest;
}
MEMOPT_I_AVX512 static void memopt_i_pipeline_moments_v16(const memopt_i_walk *k, const memopt_i_rule *r,
                                                          const memopt_i_group *q) {
    if (q->v) memopt_i_v16_moments(r, q);
    else if (k->desc->kind == MEMOPT_LION) memopt_i_v16_lion(r, q);
    else memopt_i_v16_sgd(r, q);
}
MEMOPT_I_AVX512 static void memopt_i_pipeline_weights_v16(const memopt_i_walk *k, const memopt_i_rule *r,
                                                          const memopt_i_group *q) {
    if (q->v && k->desc->kind != MEMOPT_LAMB) { memopt_i_v16_update(r, q); return; }
    if (q->v) memopt_i_v16_direction(r, q);
    memopt_i_v16_axpy(r, q);
}
/* Weights and gradients of 16 bits, the next 64 elements, to and from the walk's own floats. */
MEMOPT_I_AVX512 static void memopt_i_pipeline_load_v16(memopt_i_walk *k, size_t at) {
    const memopt_optim_tensor *t = k->tensor;
    if (k->desc->weights == MEMOPT_WEIGHTS_BF16)
        memopt_i_f32_from_bf16_avx512(k->w, (const uint16_t *)t->weights + at, MEMOPT_I_CODED_GROUP, 0);
    if (k->desc->weights == MEMOPT_WEIGHTS_SPLIT)
        memopt_i_join_avx512(k->w, (const uint16_t *)t->weights + at, (const uint16_t *)t->extra + at,
                             MEMOPT_I_CODED_GROUP, 0);
    if (k->desc->gradients == MEMOPT_GRADIENTS_F16)
        memopt_i_f32_from_small_avx512(k->g, (const uint16_t *)t->gradients + at, MEMOPT_I_CODED_GROUP,
                                       MEMOPT_I_F16, 0);
    if (k->desc->gradients == MEMOPT_GRADIENTS_BF16)
        memopt_i_f32_from_bf16_avx512(k->g, (const uint16_t *)t->gradients + at, MEMOPT_I_CODED_GROUP, 0);
}
MEMOPT_I_AVX512 static void memopt_i_pipeline_store_v16(memopt_i_walk *k, const memopt_i_group *q, size_t at) {
    const memopt_optim_tensor *t = k->tensor;
    if (k->desc->weights == MEMOPT_WEIGHTS_BF16)
        memopt_i_bf16_noise_avx512((uint16_t *)t->weights + at, k->w, MEMOPT_I_CODED_GROUP,
                                   k->part->noise[MEMOPT_I_OF_WEIGHTS], (uint64_t)t->first + at, 0);
    if (k->desc->weights == MEMOPT_WEIGHTS_SPLIT)
        memopt_i_split_avx512((uint16_t *)t->weights + at, (uint16_t *)t->extra + at, k->w, MEMOPT_I_CODED_GROUP, 0);
    if (k->desc->weights == MEMOPT_WEIGHTS_F32_BF16)
        memopt_i_bf16_from_f32_avx512((uint16_t *)t->extra + at, q->w, MEMOPT_I_CODED_GROUP, 0);
}
MEMOPT_I_AVX512 MEMOPT_I_FLATTEN static void memopt_i_pipeline_v16(memopt_i_walk *k, size_t at, size_t j, size_t n) {
    enum { N = MEMOPT_I_CODED_GROUP };
    const memopt_i_taper *const cm = k->codes[0], *const cv = k->codes[1]; const int two = k->view.moments > 1;
    uint8_t *m = (uint8_t *)k->view.moment[0] + at, *v = (uint8_t *)k->view.moment[two] + at;
    const size_t other = k->half ? 0 : k->desc->block, back = at - k->waiting_at - j; /* from codes to waiting ones */
    const float *old_m = k->scratch[0] + other + j, *old_v = k->scratch[1] + other + j;
    const float inverse_m = k->inverse[0], inverse_v = k->inverse[1], limit = k->part->rule.limit;
    const size_t wide = k->weight_bytes, grad = k->gradient_bytes, waits = k->waiting > j;
    const char *far_w = (const char *)k->tensor->weights + at * wide, *far_g = (const char *)k->tensor->gradients + at * grad;
    memopt_i_rule rule = k->part->rule; memopt_i_group q = k->group; size_t left = n / N; int i, sane;
    __m512 largest_m = _mm512_set1_ps(k->largest[0]); __m512i largest_v = _mm512_castps_si512(_mm512_set1_ps(k->largest[1]));
    /* No gradient is over the limit while all roots are below this, so that it need not be looked at. */
    const float quiet = two && !rule.coupled ? 0.5f * limit * rule.factor * sqrtf(1 - rule.b2 * rule.b2) : 0;
    const __m512i alarm = _mm512_castps_si512(_mm512_set1_ps(quiet));
    q.m = k->scratch[0] + k->half + j; q.v = two ? k->scratch[1] + k->half + j : NULL;
    q.old_m = q.m; q.old_v = q.v;
    q.w = wide == 4 ? (float *)k->tensor->weights + at : k->w;
    q.g = grad == 4 ? (const float *)k->tensor->gradients + at : k->g;
    q.u = k->u;
    q.scale_m = k->view.scale[0][at / k->desc->block]; q.scale_v = two ? k->view.scale[1][at / k->desc->block] : 1;
    q.count = N; q.root = 1; q.in_memory = 0; rule.late = 0; /* told to the compiler */
    for (; left; --left) {
        __m512i root = largest_v;
        memopt_i_pipeline_load_v16(k, at);
        memopt_i_taper_decode_v16(cm, q.m, m, N);
        if (two) memopt_i_taper_decode_v16(cv, q.v, v, N);
        memopt_i_pipeline_moments_v16(k, &rule, &q);
        if (two) root = memopt_i_larger_root_v16(largest_v, q.v, N);
        sane = !_mm512_cmpge_epu32_mask(root, alarm) || (memopt_i_v16_sane(q.g, N, limit)
            && (!(rule.weight_limit > 0) || memopt_i_v16_sane(q.w, N, rule.weight_limit)));
        if (!sane) { /* the codes are still there: once more, element by element */
            const memopt_i_group group = q;
            memopt_i_taper_decode_v16(cm, q.m, m, N);
            if (two) memopt_i_taper_decode_v16(cv, q.v, v, N);
            memopt_i_step_careful(k, &group);
            if (two) root = memopt_i_larger_root_v16(largest_v, q.v, N);
        }
        largest_v = root;
        largest_m = memopt_i_larger_v16(largest_m, q.m, N);
        if (waits) {
            memopt_i_taper_encode_v16(cm, m - back, old_m, N, inverse_m);
            if (two) memopt_i_taper_encode_v16(cv, v - back, old_v, N, inverse_v);
        }
        for (i = 0; i < 4; ++i) { /* fetch what is 1024 elements further on */
            memopt_i_fetch(far_w, (1024 + 16 * (size_t)i) * wide);
            memopt_i_fetch(far_g, (1024 + 16 * (size_t)i) * grad);
        }
        memopt_i_fetch(m, 1024);
        memopt_i_fetch(v, 1024);
        if (sane) memopt_i_pipeline_weights_v16(k, &rule, &q);
        memopt_i_pipeline_store_v16(k, &q, at);
        at += N;
        if (wide == 4) q.w += N;
        if (grad == 4) q.g += N;
        q.m += N; q.old_m += N; m += N; v += N; old_m += N; old_v += N;
        if (two) { q.v += N; q.old_v += N; }
        far_w += N * wide; far_g += N * grad;
    }
    k->largest[0] = _mm512_reduce_max_ps(largest_m);
    k->largest[1] = _mm512_reduce_max_ps(_mm512_castsi512_ps(largest_v));
}
#endif
/* Does the whole group, if it can be done so. */
static int memopt_i_pipeline(memopt_i_walk *k, size_t at, size_t j, size_t n) {
#if defined(MEMOPT_I_X86)
    if (!k->pipelined || n % MEMOPT_I_CODED_GROUP || (k->waiting > j && k->waiting - j < n)) return 0;
    memopt_i_pipeline_v16(k, at, j, n);
    return 1;
#else
    (void)k; (void)at; (void)j; (void)n;
    return 0;
#endif
}
/* Apply the elements at..at+n of the part; at stands on a block. */
static void memopt_i_walk_apply(memopt_i_walk *k, size_t at, size_t n) {
    const size_t block = k->coded ? k->desc->block : n;
    const size_t group = k->coded && !k->pipelined ? MEMOPT_I_CODED_GROUP : MEMOPT_I_GROUP;
    const size_t end = at + n; size_t b, j;
    for (b = at; b < end; b += block) {
        const size_t size = memopt_i_min(block, end - b);
        for (j = 0; j < size; j += group) {
            const size_t count = memopt_i_min(group, size - j);
            if (memopt_i_pipeline(k, b + j, j, count)) continue;
            memopt_i_load(k, b + j, k->coded ? j : 0, count);
            memopt_i_step_group(k);
            if (k->coded) memopt_i_find_largest(k);
            memopt_i_encode_waiting(k, j, count);
            if (!k->stepped) memopt_i_step_weights(k, k->lanes, &k->group);
            memopt_i_store(k, b + j);
        }
        if (k->coded) memopt_i_block_done(k, b, size);
    }
    memopt_i_encode_waiting(k, 0, k->waiting);
    k->waiting = 0;
}
/* How many elements from `at` on can be taken at once: within a block, where there are blocks. */
static size_t memopt_i_span(const memopt_i_walk *k, size_t at, size_t end) {
    const size_t n = memopt_i_min(MEMOPT_I_GROUP, end - at);
    return k->coded ? memopt_i_min(n, k->desc->block - at % k->desc->block) : n;
}
/* The sums of squares that LAMB and LARS need: of the weights; of the directions, or the gradients. Reads only. */
static void memopt_i_walk_measure(memopt_i_walk *k, size_t at, size_t n, double sums[2]) {
    const size_t end = at + n; size_t i, count;
    sums[0] = sums[1] = 0;
    for (; at < end; at += count) {
        const memopt_i_group *q = &k->group; const float *x = k->u;
        count = memopt_i_span(k, at, end);
        memopt_i_load(k, at, 0, count);
        if (k->desc->kind == MEMOPT_LAMB) {
            memopt_i_step_group(k);
            if (!k->stepped) memopt_i_step_weights(k, k->lanes, q);
        } else if (memopt_i_lanes_sane(k->lanes, q->g, count, k->part->rule.limit)) x = q->g;
        else for (i = 0; i < count; ++i) k->u[i] = memopt_i_v1_sane(q->g + i, 1, k->part->rule.limit) ? q->g[i] : 0;
        sums[0] += memopt_i_squares_at(k->level, q->w, count);
        sums[1] += memopt_i_squares_at(k->level, x, count);
    }
}
/* How many groups hold a gradient that is not finite. */
static void memopt_i_walk_look(memopt_i_walk *k, size_t at, size_t n) {
    const size_t end = at + n;
    for (; at < end; at += MEMOPT_I_GROUP) {
        const size_t count = memopt_i_min(MEMOPT_I_GROUP, end - at);
        const float *g = memopt_i_load_gradients(k, at, count);
        k->skipped += !memopt_i_lanes_sane(k->lanes, g, count, k->part->rule.limit);
    }
}
/* The object: what all sections above the walk share. */
struct memopt_optim {
    memopt_optim_desc desc; /* with the defaults filled in */
    memopt_i_taper    codes[2];
    memopt_error      error;
    uint64_t          skipped;
    size_t            chunk, chunk_count; /* elements of a chunk, chunks of all tensors */
    size_t            lane;               /* floats of scratch of a worker and moment; 0: on the worker's stack */
    int               level, workers, active, fused;
    memopt_i_held_tensor    *parts;
    double           *sums;
    size_t           *skips;              /* of each worker */
    float            *scratch;
};
static void memopt_i_walk_begin(memopt_i_walk *k, const memopt_optim *o, size_t tensor, int worker, int measures) {
    const size_t lane = o->lane ? o->lane : MEMOPT_I_OWN_LANE;
    float *scratch = o->lane ? o->scratch + (size_t)worker * 2 * lane : k->own + (0 - (uintptr_t)k->own) % 64 / sizeof(float);
    k->desc = &o->desc; k->tensor = &o->desc.tensors[tensor]; k->part = &o->parts[tensor];
    (void)memopt_i_state_layout(k->part, &o->desc, k->tensor, &k->view);
    k->lanes = memopt_i_lanes_at(o->level); k->level = o->level;
    k->codes[0] = &o->codes[0]; k->codes[1] = &o->codes[1];
    k->scratch[0] = scratch; k->scratch[1] = scratch + lane;
    k->half = k->waiting = k->waiting_at = k->skipped = 0;
    k->measures = measures; k->stepped = 0; k->coded = memopt_i_is_coded(k->part->format);
    k->inverse[0] = k->inverse[1] = k->largest[0] = k->largest[1] = 0;
    k->weight_bytes = o->desc.weights == MEMOPT_WEIGHTS_F32 || o->desc.weights == MEMOPT_WEIGHTS_F32_BF16 ? 4 : 2;
    k->gradient_bytes = o->desc.gradients == MEMOPT_GRADIENTS_F32 ? 4 : 2;
    k->direct = k->part->format == MEMOPT_STATE_F32 && k->gradient_bytes == 4 && k->weight_bytes == 4;
    k->pipelined = o->level >= MEMOPT_SIMD_AVX512 && k->part->format == MEMOPT_STATE_8BIT
            && o->desc.kind != MEMOPT_ADAFACTOR && k->view.moments > 0 && o->desc.block % MEMOPT_I_GROUP == 0;
}
/* @section factor : walk
   Adafactor: the second moment of a matrix as one mean for each row and one for each column.
   Problem    A second moment for each element is as large as the weights. And the update is clipped by its own root
              mean square and scaled by that of the weights, which are known only when the whole tensor has been seen.
   Rule       The author's (mesh-tensorflow's optimize.py), for a gradient g, already multiplied with the factor:
                  b2 = 1 - t^-beta2
                  R  = b2 R + (1 - b2) mean of (g g + eps) over a row's elements;  C likewise over a column's
                  x  = g / sqrt(R / mean(R)) / sqrt(C)
                  V  = b2 V + (1 - b2) (g g + eps),  x = g / sqrt(V)     where there are no rows and columns to speak of
                  u  = x min(rate, 1 / sqrt(t)) max(RMS(w), least_scale) / max(1, RMS(x) / clip)
                  w -= u;  with a first moment m = beta1 m + (1 - beta1) u, w -= m
              Weight decay is not in it: where it is above 0, w is multiplied with 1 - rate weight_decay before.
   Idea       Three passes: one sums the squares of g for rows and columns; one those of x, which needs these sums, and
              of w; one writes. A vector needs no first pass. R and C stay in the object until a slice is written, so
              that measuring changes no state.
   Invariant  Squares of floats are exact in double, so a sum depends on its order only. A row is summed in 16 sums by
              the place in it, a column in the order of its rows within a panel, and panels are added in their order.
              A panel is a chunk of work and slices are whole panels: nothing else can change an order.
   Trap       mean(R) is taken as the mean of C, which is the same number: both are means of all that the matrix has
              seen. C is held in whole by every rank that shares the tensor, R only in part.
   Careful    An element with a gradient that is not finite, or too large, counts as a 0 in every sum, and keeps weight
              and first moment (V, too). x is worked out as ((f g) / sqrt(C)) / sqrt(R / mean(R)), and for its RMS the
              last quotient is taken in double: the first one is at most the root of t^beta2 times the rows, but x may
              be any size, until it is clipped.
   Cost       Float weights: 4 + 8 + 12 bytes an element read and written. The sums of columns: 32 doubles a column. */

/* The formulas, as in lanes. In old_v is 1 / sqrt(C) of each element's column, or its second moment v; scale_v is what
   all elements of the group are multiplied with. f: the gradient factor.
       part    u = f g old_v scale_v
       whole   x = f g;  v = b2 v + g2 (x x + eps);  u = x / sqrt(v) scale_v
       finish  m = b1 m + g1 u;  w = decay w - m, or - u where there is no first moment */
#define MEMOPT_I_FACTOR_LANES(V, SET)                                                                                  \
SET static void V(factor_part)(const memopt_i_rule *r, const memopt_i_group *q) {                                      \
    const V(t) f = V(set)(r->factor), row = V(set)(q->scale_v);                                                        \
    size_t i;                                                                                                          \
    for (i = 0; i + V(width) <= q->count; i += V(width)) {                                                             \
        const V(t) x = V(mul)(V(mul)(f, V(load)(q->g + i)), V(load)(q->old_v + i));                                    \
        V(store)(q->u + i, V(mul)(x, row));                                                                            \
    }                                                                                                                  \
}                                                                                                                      \
SET static void V(factor_whole)(const memopt_i_rule *r, const memopt_i_group *q) {                                     \
    const V(t) f = V(set)(r->factor), b2 = V(set)(r->b2), g2 = V(set)(r->g2), eps = V(set)(r->eps);                    \
    const V(t) scale = V(set)(q->scale_v);                                                                             \
    size_t i;                                                                                                          \
    for (i = 0; i + V(width) <= q->count; i += V(width)) {                                                             \
        const V(t) x = V(mul)(f, V(load)(q->g + i));                                                                   \
        const V(t) v = V(fma)(b2, V(load)(q->old_v + i), V(mul)(g2, V(fma)(x, x, eps)));                               \
        V(store)(q->v + i, v);                                                                                         \
        V(store)(q->u + i, V(mul)(V(div)(x, V(sqrt)(v)), scale));                                                      \
    }                                                                                                                  \
}                                                                                                                      \
SET static void V(factor_finish)(const memopt_i_rule *r, const memopt_i_group *q) {                                    \
    const V(t) b1 = V(set)(memopt_i_round(r->b1 * q->scale_m)), g1 = V(set)(r->g1), decay = V(set)(r->decay);          \
    const V(t) minus = V(set)(-r->ic1); /* -1, which a compiler that sees it turns into a difference, and fuses */     \
    size_t i;                                                                                                          \
    for (i = 0; i + V(width) <= q->count; i += V(width)) {                                                             \
        V(t) u = V(load)(q->u + i);                                                                                    \
        if (q->m) {                                                                                                    \
            u = V(fma)(b1, V(load)(q->old_m + i), V(mul)(g1, u));                                                      \
            V(store)(q->m + i, u);                                                                                     \
        }                                                                                                              \
        V(store)(q->w + i, V(fma)(minus, u, V(mul)(V(load)(q->w + i), decay)));                                        \
    }                                                                                                                  \
}

MEMOPT_I_FACTOR_LANES(MEMOPT_I_V1, )
#if defined(MEMOPT_I_X86)
MEMOPT_I_FACTOR_LANES(MEMOPT_I_V8, MEMOPT_I_AVX2)
MEMOPT_I_FACTOR_LANES(MEMOPT_I_V16, MEMOPT_I_AVX512)
#elif defined(MEMOPT_I_NEON)
MEMOPT_I_FACTOR_LANES(MEMOPT_I_V4, )
#endif
/* Adds the squares of x to a row's 16 sums and to a sum for each element: its column's. The definition. */
static void memopt_i_v1_factor_squares(double *sums, double *columns, const float *x, size_t n) {
    size_t i;
    for (i = 0; i < n; ++i) {
        const double d = (double)x[i];
        sums[i & 15] = memopt_i_plus(d, d, sums[i & 15]);
        columns[i] = memopt_i_plus(d, d, columns[i]);
    }
}
#if defined(MEMOPT_I_X86)
MEMOPT_I_AVX2 static void memopt_i_v8_factor_squares(double *sums, double *columns, const float *x, size_t n) {
    __m256d s[4]; size_t i = 0; int k;
    for (k = 0; k < 4; ++k) s[k] = _mm256_loadu_pd(sums + 4 * k);
    for (; i + 16 <= n; i += 16)
        for (k = 0; k < 4; ++k) {
            const __m256d d = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4 * k));
            double *column = columns + i + 4 * k;
            s[k] = _mm256_fmadd_pd(d, d, s[k]);
            _mm256_storeu_pd(column, _mm256_fmadd_pd(d, d, _mm256_loadu_pd(column)));
        }
    for (k = 0; k < 4; ++k) _mm256_storeu_pd(sums + 4 * k, s[k]);
    memopt_i_v1_factor_squares(sums, columns + i, x + i, n - i);
}
MEMOPT_I_AVX512 static void memopt_i_v16_factor_squares(double *sums, double *columns, const float *x, size_t n) {
    __m512d s[2]; size_t i = 0; int k;
    for (k = 0; k < 2; ++k) s[k] = _mm512_loadu_pd(sums + 8 * k);
    for (; i + 16 <= n; i += 16)
        for (k = 0; k < 2; ++k) {
            const __m512d d = _mm512_cvtps_pd(_mm256_loadu_ps(x + i + 8 * k));
            double *column = columns + i + 8 * k;
            s[k] = _mm512_fmadd_pd(d, d, s[k]);
            _mm512_storeu_pd(column, _mm512_fmadd_pd(d, d, _mm512_loadu_pd(column)));
        }
    for (k = 0; k < 2; ++k) _mm512_storeu_pd(sums + 8 * k, s[k]);
    memopt_i_v1_factor_squares(sums, columns + i, x + i, n - i);
}
#elif defined(MEMOPT_I_NEON)
static void memopt_i_v4_factor_squares(double *sums, double *columns, const float *x, size_t n) {
    float64x2_t s[8]; size_t i = 0; int k;
    for (k = 0; k < 8; ++k) s[k] = vld1q_f64(sums + 2 * k);
    for (; i + 16 <= n; i += 16)
        for (k = 0; k < 8; ++k) {
            const float64x2_t d = vcvt_f64_f32(vld1_f32(x + i + 2 * k));
            double *column = columns + i + 2 * k;
            s[k] = vfmaq_f64(s[k], d, d);
            vst1q_f64(column, vfmaq_f64(vld1q_f64(column), d, d));
        }
    for (k = 0; k < 8; ++k) vst1q_f64(sums + 2 * k, s[k]);
    memopt_i_v1_factor_squares(sums, columns + i, x + i, n - i);
}
#endif
enum { MEMOPT_I_FACTOR_PART, MEMOPT_I_FACTOR_WHOLE, MEMOPT_I_FACTOR_FINISH };
typedef struct memopt_i_factor_lanes {
    memopt_i_lane_fn *fn[3];
    void            (*squares)(double *sums, double *columns, const float *x, size_t n);
    size_t            width;
} memopt_i_factor_lanes;
#define MEMOPT_I_FACTOR_TABLE(V) { { V(factor_part), V(factor_whole), V(factor_finish) }, V(factor_squares), V(width) }
static const memopt_i_factor_lanes memopt_i_factor_lanes_v1 = MEMOPT_I_FACTOR_TABLE(MEMOPT_I_V1);
#if defined(MEMOPT_I_X86)
static const memopt_i_factor_lanes memopt_i_factor_lanes_v8 = MEMOPT_I_FACTOR_TABLE(MEMOPT_I_V8);
static const memopt_i_factor_lanes memopt_i_factor_lanes_v16 = MEMOPT_I_FACTOR_TABLE(MEMOPT_I_V16);
#elif defined(MEMOPT_I_NEON)
static const memopt_i_factor_lanes memopt_i_factor_lanes_v4 = MEMOPT_I_FACTOR_TABLE(MEMOPT_I_V4);
#endif
static const memopt_i_factor_lanes *memopt_i_factor_lanes_at(int level) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) return &memopt_i_factor_lanes_v16;
    if (level >= MEMOPT_SIMD_AVX2) return &memopt_i_factor_lanes_v8;
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) return &memopt_i_factor_lanes_v4;
#endif
    (void)level;
    return &memopt_i_factor_lanes_v1;
}
static void memopt_i_factor_run(const memopt_i_factor_lanes *lanes, int which, const memopt_i_rule *rule,
                                const memopt_i_group *q) {
    const size_t whole = q->count - q->count % lanes->width;
    lanes->fn[which](rule, q);
    if (whole < q->count) {
        const memopt_i_group rest = memopt_i_group_from(q, whole, q->count - whole);
        memopt_i_factor_lanes_v1.fn[which](rule, &rest);
    }
}

/* A slice of a tensor, and what is in the tensor's part of the object's sums. Once they are joined, each double of the
   rows and of the first panel is used again, for two floats. */
typedef struct memopt_i_factor {
    memopt_optim               *optim;
    const memopt_optim_tensor  *tensor;
    memopt_i_held_tensor       *part;
    const memopt_i_factor_lanes *lanes;
    memopt_optim_view view;
    size_t  index, at, count;             /* of the tensor; of the slice, counted in the part */
    size_t  rows, columns, panels;        /* of the whole tensor; a vector has no rows and no columns */
    size_t  first_row, held_rows;         /* of the part */
    size_t  grain, width;                 /* elements of a panel, and of what has one multiplier: a row, or a panel */
    double *row_sums, *column_sums, *squares;
    float  *row_means, *row_scales;       /* R; sqrt(mean(R) / R), later times the step */
    float  *column_means, *column_scales; /* C; 1 / sqrt(C) */
} memopt_i_factor;
static memopt_i_factor memopt_i_factor_of(memopt_optim *o, size_t tensor, size_t at, size_t count) {
    memopt_i_factor f;
    f.optim = o; f.tensor = &o->desc.tensors[tensor]; f.part = &o->parts[tensor];
    f.lanes = memopt_i_factor_lanes_at(o->level);
    f.index = tensor; f.at = at; f.count = count;
    f.columns = memopt_i_factor_columns(f.tensor);
    f.rows = f.columns ? f.tensor->count / f.columns : 0;
    f.first_row = f.columns ? f.tensor->first / f.columns : 0;
    f.held_rows = f.columns ? f.part->held / f.columns : 0;
    f.grain = memopt_i_factor_grain(&o->desc, f.tensor);
    f.width = f.columns ? f.columns : f.grain;
    f.panels = memopt_i_ceil_div(f.tensor->count, f.grain);
    f.row_sums = o->sums + f.part->sums;
    f.column_sums = f.row_sums + f.rows;
    f.squares = f.column_sums + MEMOPT_I_PANELS * f.columns;
    f.row_means = (float *)(void *)f.row_sums; f.row_scales = f.row_means + f.rows;
    f.column_means = (float *)(void *)f.column_sums; f.column_scales = f.column_means + f.columns;
    (void)memopt_i_state_layout(f.part, &o->desc, f.tensor, &f.view);
    return f;
}
/* What ranks that share the tensor add up before a join: each has its own rows and panels, and zeros elsewhere. */
static double *memopt_i_factor_shared(memopt_optim *o, size_t tensor, size_t *count) {
    const memopt_i_factor f = memopt_i_factor_of(o, tensor, 0, 0);
    if (!f.part->phase) { *count = f.rows + MEMOPT_I_PANELS * f.columns; return f.row_sums; }
    *count = 2 * MEMOPT_I_PANELS;
    return f.squares;
}
/* t^-power for a power below 1: by roots, a bit of the power each. pow() differs between C libraries. */
static double memopt_i_factor_decay(uint64_t t, double power) {
    volatile double result = 1, root = (double)t; /* stored, so that no processor keeps it wider */
    while (power > 0 && root > 1) {
        root = sqrt(root);
        power *= 2;
        if (power >= 1) { result = result * root; power -= 1; }
    }
    return 1 / result;
}

/* Fetches what is 4 KiB beyond n elements at p: worth a third of the time, in every pass. */
static void memopt_i_factor_ahead(const void *p, size_t at, size_t n, size_t size) {
    size_t i;
    for (i = 0; i < n * size; i += 64) memopt_i_fetch(p, at * size + 4096 + i);
}
static void memopt_i_factor_all_ahead(const memopt_i_walk *k, size_t at, size_t n) {
    memopt_i_factor_ahead(k->tensor->gradients, at, n, k->gradient_bytes);
    memopt_i_factor_ahead(k->tensor->weights, at, n, k->weight_bytes);
    if (k->desc->weights == MEMOPT_WEIGHTS_SPLIT) memopt_i_factor_ahead(k->tensor->extra, at, n, 2);
    if (k->view.moments && !k->measures) memopt_i_factor_ahead(k->view.moment[0], at, n, (size_t)k->view.bits / 8);
}
/* The gradients at..at+n with a 0 for each that is skipped. */
static const float *memopt_i_factor_cleaned(memopt_i_walk *k, const float *g, size_t n) {
    size_t i;
    if (memopt_i_lanes_sane(k->lanes, g, n, k->part->rule.limit)) return g;
    for (i = 0; i < n; ++i) k->u[i] = memopt_i_v1_sane(g + i, 1, k->part->rule.limit) ? g[i] : 0;
    return k->u;
}
static const float *memopt_i_factor_gradients(memopt_i_walk *k, size_t at, size_t n) {
    memopt_i_factor_ahead(k->tensor->gradients, at, n, k->gradient_bytes);
    return memopt_i_factor_cleaned(k, memopt_i_load_gradients(k, at, n), n);
}
/* The first pass over the rows at..end of a panel. The factor comes in when the sums are joined. */
static void memopt_i_factor_sum_panel(const memopt_i_factor *f, memopt_i_walk *k, size_t panel, size_t at, size_t end) {
    double *columns = f->column_sums + panel * f->columns; size_t row = f->first_row + at / f->columns, j;
    memset(columns, 0, f->columns * sizeof *columns);
    for (; at < end; at += f->columns, ++row) {
        double sums[16] = { 0 }; int half, i;
        for (j = 0; j < f->columns; j += MEMOPT_I_GROUP) {
            const size_t n = memopt_i_min(MEMOPT_I_GROUP, f->columns - j);
            f->lanes->squares(sums, columns + j, memopt_i_factor_gradients(k, at + j, n), n);
        }
        for (half = 8; half; half /= 2)
            for (i = 0; i < half; ++i) sums[i] = memopt_i_plus(sums[i], 1.0, sums[i + half]);
        f->row_sums[row] = sums[0];
    }
}
/* The second pass: the squares of x and of the weights. A row's multiplier comes in once for its sum, in double. */
static void memopt_i_factor_square_panel(const memopt_i_factor *f, memopt_i_walk *k, size_t panel, size_t at,
                                         size_t end) {
    const int which = f->columns ? MEMOPT_I_FACTOR_PART : MEMOPT_I_FACTOR_WHOLE;
    double *squares = f->squares + 2 * panel; memopt_i_group *q = &k->group; size_t row = at / f->width, j;
    squares[0] = squares[1] = 0;
    for (; at < end; at += f->width, ++row) {
        const double scale = f->columns ? (double)f->row_scales[row] : 1; double sum = 0;
        const size_t width = memopt_i_min(f->width, end - at);
        for (j = 0; j < width; j += MEMOPT_I_GROUP) {
            const size_t n = memopt_i_min(MEMOPT_I_GROUP, width - j);
            memopt_i_factor_all_ahead(k, at + j, n);
            memopt_i_load_floats(k, at + j, n); /* and no moments */
            q->m = NULL;
            squares[1] = memopt_i_plus(memopt_i_squares_at(k->level, q->w, n), 1.0, squares[1]);
            q->g = memopt_i_factor_cleaned(k, q->g, n);
            q->old_v = f->columns ? f->column_scales + j : f->view.rows + at + j;
            q->v = k->scratch[1]; /* measuring changes no state */
            q->scale_v = 1;
            memopt_i_factor_run(f->lanes, which, &k->part->rule, q);
            sum = memopt_i_plus(memopt_i_squares_at(k->level, q->u, n), 1.0, sum);
        }
        squares[0] = fma(scale * scale, sum, squares[0]);
    }
}
static void memopt_i_factor_measure_panel(void *task, size_t chunk, int worker) {
    const memopt_i_factor *f = (const memopt_i_factor *)task;
    const size_t at = f->at + chunk * f->grain, end = memopt_i_min(at + f->grain, f->at + f->count);
    const size_t panel = (f->tensor->first + at) / f->grain;
    memopt_i_walk k;
    memopt_i_walk_begin(&k, f->optim, f->index, worker, 1);
    if (f->part->phase) memopt_i_factor_square_panel(f, &k, panel, at, end);
    else memopt_i_factor_sum_panel(f, &k, panel, at, end);
    memopt_i_wide_end(k.level);
}
static memopt_status memopt_i_factor_measure(memopt_optim *o, size_t tensor, size_t at, size_t count) {
    memopt_i_factor f = memopt_i_factor_of(o, tensor, at, count);
    if (f.columns || f.part->phase)
        memopt_i_run(&o->desc.threads, memopt_i_ceil_div(count, f.grain), memopt_i_factor_measure_panel, &f);
    return MEMOPT_OK;
}

/* Sums of the squares of n elements each, to means: b2 old + g2 (f f sum / n + eps). They are read and written as
   bytes, because doubles turn into floats in place. */
static void memopt_i_factor_means(const memopt_i_factor *f, const double *sums, float *means, const float *old,
                                  size_t count, size_t n) {
    const memopt_i_rule *r = &f->part->rule; const double ff = (double)r->factor * (double)r->factor; size_t i;
    for (i = 0; i < count; ++i) {
        double sum; float mean;
        memcpy(&sum, (const unsigned char *)sums + i * sizeof sum, sizeof sum);
        mean = (float)fma((double)r->b2, (double)old[i], (double)r->g2 * (ff * sum / (double)n + (double)r->eps));
        memcpy((unsigned char *)means + i * sizeof mean, &mean, sizeof mean);
    }
}
/* Panels added up, R and C of this step, and their roots. */
static void memopt_i_factor_join_means(memopt_i_factor *f) {
    double mean = 0; size_t p, i;
    for (p = 1; p < f->panels; ++p)
        for (i = 0; i < f->columns; ++i)
            f->column_sums[i] = memopt_i_plus(f->column_sums[p * f->columns + i], 1.0, f->column_sums[i]);
    memopt_i_factor_means(f, f->column_sums, f->column_means, f->view.columns, f->columns, f->rows);
    memopt_i_factor_means(f, f->row_sums + f->first_row, f->row_means, f->view.rows, f->held_rows, f->columns);
    for (i = 0; i < f->columns; ++i) {
        mean = memopt_i_plus((double)f->column_means[i], 1.0, mean);
        f->column_scales[i] = (float)(1 / sqrt((double)f->column_means[i]));
    }
    mean /= (double)f->columns;
    for (i = 0; i < f->held_rows; ++i) f->row_scales[i] = (float)sqrt(mean / (double)f->row_means[i]);
}
/* How far this tensor goes in this step: the multiplier of x. */
static double memopt_i_factor_pace(const memopt_i_factor *f) {
    const memopt_optim_group *g = &f->part->group; size_t p;
    double x = 0, w = 0, rate = 1 / sqrt((double)f->part->step);
    for (p = 0; p < f->panels; ++p) {
        x = memopt_i_plus(f->squares[2 * p], 1.0, x);
        w = memopt_i_plus(f->squares[2 * p + 1], 1.0, w);
    }
    x = sqrt(x / (double)f->tensor->count) / g->clip; w = sqrt(w / (double)f->tensor->count);
    if (g->rate < rate) rate = g->rate;
    if (!(w > g->least_scale && w <= 3.402823466e+38)) w = g->least_scale; /* an infinite weight spoils no other */
    return rate * w / (x > 1 ? x : 1);
}
static void memopt_i_factor_join(memopt_optim *o, size_t tensor) {
    memopt_i_factor f = memopt_i_factor_of(o, tensor, 0, 0); memopt_i_rule *r = &f.part->rule;
    const memopt_optim_group *g = &f.part->group; double pace; size_t i;
    if (!f.part->phase) {
        const double decay = memopt_i_factor_decay(f.part->step, g->beta2);
        r->b2 = (float)(1 - decay); r->g2 = (float)decay;
        if (f.columns) memopt_i_factor_join_means(&f);
        return;
    }
    r->b1 = (float)g->beta1; r->g1 = (float)(1 - g->beta1); r->ic1 = 1;
    r->decay = (float)(1 - g->rate * g->weight_decay);
    pace = memopt_i_factor_pace(&f);
    r->step = (float)pace;
    for (i = 0; i < f.held_rows; ++i) f.row_scales[i] = (float)((double)f.row_scales[i] * pace);
}

/* The updates u of the elements i..i+n of the group, all in one row; first: the place of the group in the part. */
static void memopt_i_factor_update(const memopt_i_factor *f, const memopt_i_factor_lanes *lanes, const memopt_i_walk *k,
                                   size_t first, size_t i, size_t n) {
    memopt_i_group q = memopt_i_group_from(&k->group, i, n);
    if (f->columns) {
        q.old_v = q.v = f->column_scales + (first + i) % f->columns;
        q.scale_v = f->row_scales[(first + i) / f->columns];
        memopt_i_factor_run(lanes, MEMOPT_I_FACTOR_PART, &k->part->rule, &q);
    } else {
        q.old_v = q.v = f->view.rows + first + i;
        q.scale_v = k->part->rule.step;
        memopt_i_factor_run(lanes, MEMOPT_I_FACTOR_WHOLE, &k->part->rule, &q);
    }
}
static void memopt_i_factor_step_group(const memopt_i_factor *f, memopt_i_walk *k, size_t first) {
    const memopt_i_group *q = &k->group; size_t i, n;
    if (memopt_i_lanes_sane(k->lanes, q->g, q->count, k->part->rule.limit)) {
        for (i = 0; i < q->count; i += n) {
            n = q->count - i;
            if (f->columns) n = memopt_i_min(n, f->columns - (first + i) % f->columns);
            memopt_i_factor_update(f, f->lanes, k, first, i, n);
        }
        memopt_i_factor_run(f->lanes, MEMOPT_I_FACTOR_FINISH, &k->part->rule, q);
        return;
    }
    for (i = 0; i < q->count; ++i) {
        const memopt_i_group one = memopt_i_group_from(q, i, 1);
        if (memopt_i_v1_sane(one.g, 1, k->part->rule.limit)) {
            memopt_i_factor_update(f, &memopt_i_factor_lanes_v1, k, first, i, 1);
            memopt_i_factor_run(&memopt_i_factor_lanes_v1, MEMOPT_I_FACTOR_FINISH, &k->part->rule, &one);
        } else {
            if (one.m) *one.m = memopt_i_round(*one.old_m * q->scale_m); /* as decoded; floats have the scale 1 */
            ++k->skipped;
        }
    }
}
/* As memopt_i_walk_apply(), with blocks of an 8-bit moment encoded while the next is stepped. */
static void memopt_i_factor_apply_chunk(void *task, size_t chunk, int worker) {
    const memopt_i_factor *f = (const memopt_i_factor *)task; memopt_optim *o = f->optim;
    const size_t at = f->at + chunk * o->chunk, end = memopt_i_min(at + o->chunk, f->at + f->count);
    size_t block, group, b, j; memopt_i_walk k;
    memopt_i_walk_begin(&k, o, f->index, worker, 0);
    block = k.coded ? o->desc.block : end - at;
    group = k.coded ? MEMOPT_I_CODED_GROUP : MEMOPT_I_GROUP;
    for (b = at; b < end; b += block) {
        const size_t size = memopt_i_min(block, end - b);
        for (j = 0; j < size; j += group) {
            const size_t count = memopt_i_min(group, size - j);
            memopt_i_factor_all_ahead(&k, b + j, count);
            memopt_i_load(&k, b + j, k.coded ? j : 0, count);
            memopt_i_factor_step_group(f, &k, b + j);
            if (k.coded) { memopt_i_find_largest(&k); memopt_i_encode_waiting(&k, j, count); }
            memopt_i_store(&k, b + j);
        }
        if (k.coded) memopt_i_block_done(&k, b, size);
    }
    memopt_i_encode_waiting(&k, 0, k.waiting);
    o->skips[worker] += k.skipped;
    memopt_i_wide_end(o->level);
}
/* The means go into the state with the first slice. */
static uint64_t memopt_i_factor_apply(memopt_optim *o, size_t tensor, size_t at, size_t count) {
    memopt_i_factor f = memopt_i_factor_of(o, tensor, at, count); uint64_t skipped = 0; int i;
    if (f.columns && !f.part->applied) {
        memcpy(f.view.rows, f.row_means, f.held_rows * sizeof *f.view.rows);
        memcpy(f.view.columns, f.column_means, f.columns * sizeof *f.view.columns);
    }
    memset(o->skips, 0, (size_t)o->workers * sizeof *o->skips);
    memopt_i_run(&o->desc.threads, memopt_i_ceil_div(count, o->chunk), memopt_i_factor_apply_chunk, &f);
    for (i = 0; i < o->workers; ++i) skipped += o->skips[i];
    return skipped;
}
/* @section optim : walk factor
   The object: what belongs to what, what may be combined, and passes over many tensors.
   Problem    A step that fails half way has changed weights that cannot be put back.
   Idea       Everything that can be wrong is looked at in begin, before the first weight is touched: ranges, pointers,
              headers of states. What is left, gradients that are not finite, is a rule, not an error.
   Invariant  The numbers of a step are a function of tensors, groups and t. How tensors are cut into slices, how many
              workers there are and what else is in the list changes no bit: chunks are counted in the tensor, sums
              are kept for each chunk and added up in their order.
   Cost       Nothing beside the walk: a chunk is 64 Ki elements, and finding its tensor is a binary search. */
enum { MEMOPT_I_IDLE, MEMOPT_I_BEGUN, MEMOPT_I_STOPPED };
enum { MEMOPT_I_APPLY, MEMOPT_I_MEASURE, MEMOPT_I_LOOK };
MEMOPT_API memopt_optim_group memopt_optim_group_default(memopt_optim_kind kind) {
    memopt_optim_group g;
    memset(&g, 0, sizeof g);
    g.rate = 1e-3; g.beta1 = 0.9; g.beta2 = 0.999; g.eps = 1e-8;
    switch (kind) {
    case MEMOPT_ADAMW:     g.weight_decay = 1e-2; break;
    case MEMOPT_ADAM:      break;
    case MEMOPT_SGD:       g.beta1 = g.beta2 = g.eps = 0; break;
    case MEMOPT_LION:      g.rate = 1e-4; g.beta2 = 0.99; g.eps = 0; break;
    case MEMOPT_LARS:      g.beta2 = g.eps = 0; g.rate = 0.1; g.trust = 1e-3; g.weight_decay = 1e-4; break;
    case MEMOPT_LAMB:      g.eps = 1e-6; g.weight_decay = 1e-2; break;
    case MEMOPT_ADAFACTOR: g.rate = 1e-2; g.beta1 = 0; g.beta2 = 0.8; g.eps = 1e-30; g.clip = 1; g.least_scale = 1e-3; break;
    }
    return g;
}
MEMOPT_API memopt_status memopt_optim_state_bytes(const memopt_optim_desc *desc, size_t tensor, size_t *bytes) {
    memopt_optim_desc d; memopt_i_held_tensor part; memopt_optim_view view; memopt_status s;
    if (!bytes) return MEMOPT_ERR_ARGUMENT;
    s = memopt_i_optim_resolve(desc, &d);
    if (s) return s;
    if (tensor >= d.tensor_count) return MEMOPT_ERR_ARGUMENT;
    s = memopt_i_tensor_check(&d, &d.tensors[tensor]);
    if (s) return s;
    memopt_i_tensor_fill(&d, &d.tensors[tensor], &part);
    *bytes = memopt_i_state_layout(&part, &d, &d.tensors[tensor], &view);
    return MEMOPT_OK;
}
/* Where everything is in the object's memory. */
typedef struct memopt_i_optim_layout { size_t parts, sums, sum_count, skips, scratch, lane, bytes; int workers; } memopt_i_optim_layout;
static int memopt_i_place(size_t *at, size_t count, size_t size, size_t *where) {
    size_t bytes;
    *where = *at;
    return memopt_i_mul(count, size, &bytes) || memopt_i_align_up(bytes, 64, &bytes) || memopt_i_add(*at, bytes, at);
}
static memopt_status memopt_i_optim_plan(const memopt_optim_desc *d, memopt_i_optim_layout *l) {
    memopt_i_held_tensor part; memopt_status s; size_t i;
    memset(l, 0, sizeof *l);
    l->workers = memopt_i_workers(&d->threads);
    l->lane = 2 * d->block > MEMOPT_I_OWN_LANE ? 2 * d->block : 0;
    for (i = 0; i < d->tensor_count; ++i) {
        s = memopt_i_tensor_check(d, &d->tensors[i]);
        if (s) return s;
        memopt_i_tensor_fill(d, &d->tensors[i], &part);
        if (memopt_i_add(l->sum_count, part.sum_count, &l->sum_count)) return MEMOPT_ERR_OVERFLOW;
    }
    l->bytes = memopt_i_align_down(sizeof(memopt_optim) + 63, 64);
    if (memopt_i_place(&l->bytes, d->tensor_count, sizeof(memopt_i_held_tensor), &l->parts)
        || memopt_i_place(&l->bytes, l->sum_count, sizeof(double), &l->sums)
        || memopt_i_place(&l->bytes, (size_t)l->workers, sizeof(size_t), &l->skips)
        || memopt_i_place(&l->bytes, (size_t)l->workers, 2 * l->lane * sizeof(float),
                          &l->scratch)) return MEMOPT_ERR_OVERFLOW;
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_optim_bytes(const memopt_optim_desc *desc, size_t *bytes) {
    memopt_optim_desc d; memopt_i_optim_layout l; memopt_status s;
    if (!bytes) return MEMOPT_ERR_ARGUMENT;
    s = memopt_i_optim_resolve(desc, &d);
    if (s) return s;
    s = memopt_i_optim_plan(&d, &l);
    if (!s) *bytes = l.bytes;
    return s;
}
MEMOPT_API memopt_status memopt_optim_create(const memopt_optim_desc *desc, void *memory, size_t bytes,
                                             memopt_optim **out) {
    memopt_optim_desc d; memopt_i_optim_layout l; memopt_status s; size_t i, sums = 0;
    unsigned char *base = (unsigned char *)memory; memopt_optim *o = (memopt_optim *)memory;
    if (!memory || !out || (uintptr_t)memory % 64) return MEMOPT_ERR_ARGUMENT;
    s = memopt_i_optim_resolve(desc, &d);
    if (!s) s = memopt_i_optim_plan(&d, &l);
    if (s) return s;
    if (bytes < l.bytes) return MEMOPT_ERR_BUFFER;
    memset(memory, 0, l.bytes);
    o->desc = d;
    memopt_i_taper_init(&o->codes[0], 1);
    memopt_i_taper_init(&o->codes[1], 0);
    o->level = memopt_i_simd_level(&d.threads);
    o->workers = l.workers; o->lane = l.lane; o->chunk = memopt_i_optim_chunk(&d);
    o->parts = (memopt_i_held_tensor *)(void *)(base + l.parts);
    o->sums = (double *)(void *)(base + l.sums);
    o->skips = (size_t *)(void *)(base + l.skips);
    o->scratch = (float *)(void *)(base + l.scratch);
    o->error.reason = "";
    for (i = 0; i < d.tensor_count; ++i) {
        memopt_i_held_tensor *part = &o->parts[i];
        memopt_i_tensor_fill(&d, &d.tensors[i], part);
        part->sums = sums; sums += part->sum_count;
        part->first_chunk = o->chunk_count; o->chunk_count += part->chunks;
    }
    *out = o;
    return MEMOPT_OK;
}
static memopt_status memopt_i_optim_fail(memopt_optim *o, memopt_status status, const char *reason) {
    return memopt_i_fail(&o->error, status, reason, 0);
}
MEMOPT_API memopt_status memopt_optim_state_init(memopt_optim *o, size_t tensor) {
    memopt_optim_view view; memopt_i_state_header h; const memopt_optim_tensor *t; size_t bytes;
    if (!o) return MEMOPT_ERR_ARGUMENT;
    if (tensor >= o->desc.tensor_count) return memopt_i_optim_fail(o, MEMOPT_ERR_ARGUMENT, "there is no such tensor");
    t = &o->desc.tensors[tensor];
    bytes = memopt_i_state_layout(&o->parts[tensor], &o->desc, t, &view);
    if (!bytes) return MEMOPT_OK;
    if (!t->state || (uintptr_t)t->state % 64)
        return memopt_i_optim_fail(o, MEMOPT_ERR_ARGUMENT, "the state is missing, or not aligned to 64");
    memset(t->state, 0, bytes);
    h = memopt_i_state_expected(&o->parts[tensor], &o->desc, t);
    memcpy(t->state, &h, sizeof h);
    if (o->parts[tensor].format == MEMOPT_STATE_BNB) memset(view.moment[0], 127, view.held); /* its code of zero */
    return MEMOPT_OK;
}
static memopt_status memopt_i_state_check(memopt_optim *o, size_t tensor) {
    const memopt_optim_tensor *t = &o->desc.tensors[tensor]; const char *wrong;
    memopt_i_state_header h, want; memopt_optim_view view;
    if (!memopt_i_state_layout(&o->parts[tensor], &o->desc, t, &view)) return MEMOPT_OK;
    if (!t->state || (uintptr_t)t->state % 64)
        return memopt_i_optim_fail(o, MEMOPT_ERR_ARGUMENT, "a state is missing, or not aligned to 64");
    want = memopt_i_state_expected(&o->parts[tensor], &o->desc, t);
    memcpy(&h, t->state, sizeof h);
    wrong = memopt_i_header_wrong(&h, &want);
    return wrong ? memopt_i_optim_fail(o, MEMOPT_ERR_FORMAT, wrong) : MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_optim_state_check(memopt_optim *o, size_t tensor, size_t bytes) {
    memopt_optim_view view; memopt_status s; size_t need, i; int m;
    if (!o) return MEMOPT_ERR_ARGUMENT;
    if (tensor >= o->desc.tensor_count) return memopt_i_optim_fail(o, MEMOPT_ERR_ARGUMENT, "there is no such tensor");
    need = memopt_i_state_layout(&o->parts[tensor], &o->desc, &o->desc.tensors[tensor], &view);
    if (bytes < need) return memopt_i_optim_fail(o, MEMOPT_ERR_BUFFER, "the state is truncated");
    s = memopt_i_state_check(o, tensor);
    if (s) return s;
    for (m = 0; m < view.moments; ++m)
        for (i = 0; i < view.blocks; ++i) { /* a scale is finite and has no sign */
            if (memopt_i_float_bits(view.scale[m][i]) >= 0x7f800000u)
                return memopt_i_optim_fail(o, MEMOPT_ERR_FORMAT, "a scale of the state is negative or not finite");
        }
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_optim_state_view(memopt_optim *o, size_t tensor, memopt_optim_view *out) {
    memopt_status s;
    if (!o || !out) return MEMOPT_ERR_ARGUMENT;
    if (tensor >= o->desc.tensor_count) return memopt_i_optim_fail(o, MEMOPT_ERR_ARGUMENT, "there is no such tensor");
    s = memopt_i_state_check(o, tensor);
    if (!s) (void)memopt_i_state_layout(&o->parts[tensor], &o->desc, &o->desc.tensors[tensor], out);
    return s;
}
MEMOPT_API size_t memopt_optim_grain(const memopt_optim *o, size_t tensor) {
    return o && tensor < o->desc.tensor_count ? memopt_i_optim_grain(&o->desc, &o->desc.tensors[tensor]) : 0;
}

/* b to the power of t by squaring: pow() differs between C libraries. */
static double memopt_i_power(double b, uint64_t t) {
    volatile double result = 1, square = b; /* stored, so that no processor keeps it wider and no compiler fuses it */
    for (; t; t >>= 1) {
        if (t & 1) result = result * square;
        square = square * square;
    }
    return result;
}
static int memopt_i_within(double x, double least, double most) { return x >= least && x <= most; } /* no for NaN */
static const char *memopt_i_optim_group_wrong(const memopt_optim_desc *d, const memopt_optim_group *g) {
    const double most = 1e30, below_one = 1 - 1e-9;
    if (!memopt_i_within(g->rate, 0, most)) return "a rate is negative, too large or not a number";
    if (!memopt_i_within(g->beta1, 0, below_one) || !memopt_i_within(g->beta2, 0, below_one))
        return "a beta is below 0, or 1 and above, or not a number";
    if (!memopt_i_within(g->eps, 0, most)) return "an eps is negative, too large or not a number";
    if (!memopt_i_within(g->weight_decay, 0, most)) return "a weight decay is negative, too large or not a number";
    if (!memopt_i_within(g->dampening, 0, 1)) return "a dampening is below 0, above 1 or not a number";
    if (g->nesterov && (!(g->beta1 > 0) || g->dampening > 0))
        return "Nesterov needs a momentum and no dampening";
    if (d->kind == MEMOPT_LARS && !(g->trust > 0 && g->trust <= most)) return "LARS needs a trust above 0";
    if (d->kind == MEMOPT_ADAFACTOR && (!(g->clip > 0 && g->clip <= most) || !memopt_i_within(g->least_scale, 0, most)
        || !(g->beta2 > 0))) return "Adafactor needs a clip and a beta2 above 0, and a least_scale";
    if ((d->kind == MEMOPT_SGD || d->kind == MEMOPT_ADAFACTOR) && !d->first_moment && g->beta1 > 0)
        return "a beta1 above 0 needs first_moment in the desc";
    return NULL;
}
static memopt_i_rule memopt_i_rule_of(const memopt_optim_desc *d, memopt_state_format format,
                                      const memopt_optim_group *g,
                                      const memopt_optim_run *run) {
    const double f = run->gradient_factor > 0 ? run->gradient_factor : 1;
    const double c1 = 1 - memopt_i_power(g->beta1, run->step), c2 = 1 - memopt_i_power(g->beta2, run->step);
    const int adam = d->kind == MEMOPT_ADAMW || d->kind == MEMOPT_ADAM || d->kind == MEMOPT_LAMB;
    const int decoupled = d->kind == MEMOPT_ADAMW || d->kind == MEMOPT_LION;
    memopt_i_rule r;
    memset(&r, 0, sizeof r);
    r.limit = (float)((double)MEMOPT_I_HUGE / f);
    r.factor = (float)f;
    r.coupled = d->kind == MEMOPT_ADAM;
    r.late = format == MEMOPT_STATE_BNB;
    r.nesterov = d->kind == MEMOPT_SGD && g->nesterov;
    r.b1 = (float)g->beta1;
    r.b2 = (float)(format == MEMOPT_STATE_8BIT && adam ? sqrt(g->beta2) : g->beta2);
    r.g1 = (float)((1 - g->beta1) * (r.coupled ? 1 : f));
    r.g2 = (float)((1 - g->beta2) * (r.coupled ? 1 : d->kind == MEMOPT_LION ? f : f * f));
    r.ic1 = (float)(1 / c1); r.ic2 = (float)(1 / sqrt(c2));
    r.eps = (float)(g->eps > 1.2e-38 ? g->eps : 1.2e-38); /* never 0: 0 / 0 is no step */
    r.pull = (float)(decoupled ? 0 : g->weight_decay);
    if (r.coupled || d->kind == MEMOPT_SGD || d->kind == MEMOPT_LARS)
        r.weight_limit = (float)((double)MEMOPT_I_HUGE / (g->weight_decay > 1e-15 ? g->weight_decay : 1e-15));
    r.decay = (float)(decoupled ? 1 - g->rate * g->weight_decay : 1);
    r.step = (float)(d->kind == MEMOPT_LION || d->kind == MEMOPT_SGD ? g->rate : g->rate / c1);
    if (d->kind == MEMOPT_SGD) r.g1 = (float)(run->step == 1 ? 1 : 1 - g->dampening);
    return r;
}
static const char *memopt_i_run_wrong(const memopt_optim *o, const memopt_optim_run *run) {
    size_t i;
    if (!run->step) return "step 0: the first is 1";
    if (!run->groups || !run->group_count) return "there are no groups";
    if (run->gradient_factor != 0 && !memopt_i_within(run->gradient_factor, 1 / 281474976710656.0, 281474976710656.0))
        return "the gradient factor is not between 2^-48 and 2^48";
    if (run->fused && run->clips_norm) return "a fused step cannot clip by the global norm, which is known only after backward";
    if (run->fused && run->accumulates) return "a fused step cannot accumulate: it steps with each micro-batch's gradient";
    if (run->fused && run->scales_loss) return "a fused step cannot scale the loss dynamically: it could not take a step back";
    for (i = 0; i < run->group_count; ++i) {
        const char *wrong = memopt_i_optim_group_wrong(&o->desc, &run->groups[i]);
        if (wrong) return wrong;
    }
    for (i = 0; i < o->desc.tensor_count; ++i)
        if (o->desc.tensors[i].group >= run->group_count) return "a tensor is in a group that does not exist";
    return NULL;
}
MEMOPT_API memopt_status memopt_optim_begin(memopt_optim *o, const memopt_optim_run *run) {
    const char *wrong; memopt_status s; size_t i; int n;
    if (!o || !run) return MEMOPT_ERR_ARGUMENT;
    if (o->active != MEMOPT_I_IDLE) return memopt_i_optim_fail(o, MEMOPT_ERR_STATE, "a step has begun already");
    wrong = memopt_i_run_wrong(o, run);
    if (wrong) return memopt_i_optim_fail(o, MEMOPT_ERR_ARGUMENT, wrong);
    for (i = 0; i < o->desc.tensor_count; ++i) {
        s = memopt_i_state_check(o, i);
        if (s) return s;
    }
    for (i = 0; i < o->desc.tensor_count; ++i) {
        memopt_i_held_tensor *part = &o->parts[i]; const uint64_t seed = o->desc.seed + run->step * UINT64_C(0x9e3779b97f4a7c15);
        part->rule = memopt_i_rule_of(&o->desc, part->format, &run->groups[o->desc.tensors[i].group], run);
        part->group = run->groups[o->desc.tensors[i].group];
        part->step = run->step;
        for (n = 0; n < MEMOPT_I_NOISES; ++n)
            part->noise[n] = memopt_noise_make(seed, (uint64_t)i * MEMOPT_I_NOISES + (uint64_t)n);
        part->applied = 0; part->phase = 0;
    }
    if (o->parts[o->desc.tensor_count - 1].phases) memset(o->sums, 0, sizeof(double) *
        (o->parts[o->desc.tensor_count - 1].sums + o->parts[o->desc.tensor_count - 1].sum_count));
    o->skipped = 0;
    o->fused = run->fused != 0;
    o->active = MEMOPT_I_BEGUN;
    return MEMOPT_OK;
}

/* A pass over a slice of one tensor, or over all tensors. */
typedef struct memopt_i_pass {
    memopt_optim *optim;
    size_t        tensor, first, count; /* of the slice, counted in the part */
    int           all, mode;
} memopt_i_pass;
static void memopt_i_pass_chunk(void *task, size_t index, int worker) {
    const memopt_i_pass *pass = (const memopt_i_pass *)task; memopt_optim *o = pass->optim;
    size_t tensor = pass->tensor, first = pass->first, end = pass->first + pass->count, at, n; memopt_i_walk k;
    if (pass->all) { /* the last tensor whose first chunk is not after this one */
        size_t low = 0, high = o->desc.tensor_count;
        while (high - low > 1) {
            const size_t middle = low + (high - low) / 2;
            if (o->parts[middle].first_chunk <= index) low = middle; else high = middle;
        }
        tensor = low; index -= o->parts[low].first_chunk;
        first = 0; end = o->parts[low].held;
    }
    at = first + index * o->chunk;
    n = memopt_i_min(o->chunk, end - at);
    memopt_i_walk_begin(&k, o, tensor, worker, pass->mode != MEMOPT_I_APPLY);
    if (pass->mode == MEMOPT_I_MEASURE)
        memopt_i_walk_measure(&k, at, n, o->sums + o->parts[tensor].sums + 2 * ((k.tensor->first + at) / o->chunk));
    else if (pass->mode == MEMOPT_I_LOOK) memopt_i_walk_look(&k, at, n);
    else memopt_i_walk_apply(&k, at, n);
    if (pass->mode != MEMOPT_I_MEASURE) o->skips[worker] += k.skipped;
    memopt_i_wide_end(o->level);
}
/* Returns how many elements were skipped. */
static uint64_t memopt_i_pass_run(memopt_optim *o, memopt_i_pass *pass) {
    const size_t chunks = pass->all ? o->chunk_count : memopt_i_ceil_div(pass->count, o->chunk);
    uint64_t skipped = 0; int i;
    memset(o->skips, 0, (size_t)o->workers * sizeof *o->skips);
    pass->optim = o;
    memopt_i_run(&o->desc.threads, chunks, memopt_i_pass_chunk, pass);
    for (i = 0; i < o->workers; ++i) skipped += o->skips[i];
    return skipped;
}
static int memopt_i_misaligned(const void *p, size_t size) { return !p || (uintptr_t)p % size; }
static const char *memopt_i_pointers_wrong(const memopt_optim_desc *d, const memopt_optim_tensor *t) {
    const int wide = d->weights == MEMOPT_WEIGHTS_F32 || d->weights == MEMOPT_WEIGHTS_F32_BF16;
    const int extra = d->weights == MEMOPT_WEIGHTS_SPLIT || d->weights == MEMOPT_WEIGHTS_F32_BF16;
    if (memopt_i_misaligned(t->weights, wide ? 4 : 2)) return "weights are missing or misaligned";
    if (memopt_i_misaligned(t->gradients, d->gradients == MEMOPT_GRADIENTS_F32 ? 4 : 2)) return "gradients are missing or misaligned";
    if (extra && memopt_i_misaligned(t->extra, 2)) return "a tensor's extra is missing or misaligned";
    return NULL;
}
/* The checks that measure and apply share. first is counted in the whole tensor; *at in the part. */
static memopt_status memopt_i_slice(memopt_optim *o, size_t tensor, size_t first, size_t count, size_t *at) {
    const memopt_optim_tensor *t; const char *wrong; size_t grain, end;
    if (!o) return MEMOPT_ERR_ARGUMENT;
    if (o->active == MEMOPT_I_STOPPED)
        return memopt_i_optim_fail(o, MEMOPT_ERR_STATE, "the fused step was stopped by a gradient that is not finite");
    if (o->active != MEMOPT_I_BEGUN) return memopt_i_optim_fail(o, MEMOPT_ERR_STATE, "no step has begun");
    if (tensor >= o->desc.tensor_count) return memopt_i_optim_fail(o, MEMOPT_ERR_ARGUMENT, "there is no such tensor");
    t = &o->desc.tensors[tensor];
    grain = memopt_i_optim_grain(&o->desc, t);
    end = t->first + o->parts[tensor].held;
    if (!count || first < t->first || first >= end || count > end - first)
        return memopt_i_optim_fail(o, MEMOPT_ERR_ARGUMENT, "the slice is empty, or outside the part of the tensor that is held");
    if (first % grain || (first + count != end && count % grain))
        return memopt_i_optim_fail(o, MEMOPT_ERR_ARGUMENT, "the slice begins or ends inside a block: see memopt_optim_grain()");
    wrong = memopt_i_pointers_wrong(&o->desc, t);
    if (wrong) return memopt_i_optim_fail(o, MEMOPT_ERR_ARGUMENT, wrong);
    *at = first - t->first;
    return MEMOPT_OK;
}
static memopt_i_pass memopt_i_pass_of(size_t tensor, size_t at, size_t count, int mode) {
    memopt_i_pass pass;
    memset(&pass, 0, sizeof pass);
    pass.tensor = tensor; pass.first = at; pass.count = count; pass.mode = mode;
    return pass;
}
MEMOPT_API memopt_status memopt_optim_measure(memopt_optim *o, size_t tensor, size_t first, size_t count) {
    memopt_i_pass pass; size_t at = 0;
    const memopt_status s = memopt_i_slice(o, tensor, first, count, &at);
    if (s) return s;
    if (o->parts[tensor].phase >= o->parts[tensor].phases)
        return memopt_i_optim_fail(o, MEMOPT_ERR_STATE, "this kind does not measure, or the tensor is measured already");
    if (o->desc.kind == MEMOPT_ADAFACTOR) return memopt_i_factor_measure(o, tensor, at, count);
    pass = memopt_i_pass_of(tensor, at, count, MEMOPT_I_MEASURE);
    (void)memopt_i_pass_run(o, &pass);
    return MEMOPT_OK;
}
/* LAMB: rate * |w| / |u|. LARS: trust * |w| / (|g| + decay |w|). 1 where a norm is 0, or where there is no decay. */
static void memopt_i_trust(const memopt_optim_desc *d, memopt_i_held_tensor *part, const double *sums) {
    const memopt_optim_group *g = &part->group; double norms[2] = { 0, 0 }, ratio = 1; size_t i;
    for (i = 0; i < part->sum_count; i += 2) { norms[0] += sums[i]; norms[1] += sums[i + 1]; }
    norms[0] = sqrt(norms[0]); norms[1] = sqrt(norms[1]);
    if (d->kind == MEMOPT_LAMB) {
        if (norms[0] > 0 && norms[1] > 0 && (g->weight_decay > 0 || g->always_adapt)) ratio = norms[0] / norms[1];
        if (!memopt_i_within(ratio, 0, 1e30)) ratio = 1; /* a weight that is not finite */
        part->rule.step = (float)(g->rate * ratio);
    } else {
        norms[1] *= (double)part->rule.factor;
        if (norms[0] > 0 && norms[1] > 0) ratio = g->trust * norms[0] / fma(g->weight_decay, norms[0], norms[1]);
        if (!memopt_i_within(ratio, 0, 1e30)) ratio = 1; /* a weight that is not finite */
        part->rule.g1 = (float)(g->rate * ratio);
        part->rule.step = 1;
    }
}
MEMOPT_API memopt_status memopt_optim_join(memopt_optim *o, size_t tensor, int *again) {
    memopt_i_held_tensor *part;
    if (!o || !again) return MEMOPT_ERR_ARGUMENT;
    if (o->active != MEMOPT_I_BEGUN) return memopt_i_optim_fail(o, MEMOPT_ERR_STATE, "no step has begun");
    if (tensor >= o->desc.tensor_count) return memopt_i_optim_fail(o, MEMOPT_ERR_ARGUMENT, "there is no such tensor");
    part = &o->parts[tensor];
    if (part->phase >= part->phases)
        return memopt_i_optim_fail(o, MEMOPT_ERR_STATE, "this kind does not measure, or the tensor is joined already");
    if (o->desc.kind == MEMOPT_ADAFACTOR) memopt_i_factor_join(o, tensor);
    else memopt_i_trust(&o->desc, part, o->sums + part->sums);
    *again = ++part->phase < part->phases;
    return MEMOPT_OK;
}
/* After the checks: a slice of a tensor that is measured, if its kind measures. */
static memopt_status memopt_i_apply(memopt_optim *o, size_t tensor, size_t at, size_t count) {
    memopt_i_pass pass = memopt_i_pass_of(tensor, at, count, MEMOPT_I_LOOK);
    if (o->fused && memopt_i_pass_run(o, &pass)) {
        o->active = MEMOPT_I_STOPPED;
        return memopt_i_optim_fail(o, MEMOPT_ERR_STATE, "a gradient is not finite; this slice and later ones are not stepped");
    }
    pass.mode = MEMOPT_I_APPLY;
    if (o->desc.kind == MEMOPT_ADAFACTOR) o->skipped += memopt_i_factor_apply(o, tensor, at, count);
    else o->skipped += memopt_i_pass_run(o, &pass);
    o->parts[tensor].applied += count;
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_optim_apply(memopt_optim *o, size_t tensor, size_t first, size_t count) {
    size_t at = 0; const memopt_i_held_tensor *part;
    const memopt_status s = memopt_i_slice(o, tensor, first, count, &at);
    if (s) return s;
    part = &o->parts[tensor];
    if (part->phase < part->phases) return memopt_i_optim_fail(o, MEMOPT_ERR_STATE,
                                                               "the tensor is not measured and joined yet");
    if (count > part->held - part->applied) return memopt_i_optim_fail(o, MEMOPT_ERR_STATE,
                                                                       "this much was applied already");
    return memopt_i_apply(o, tensor, at, count);
}
MEMOPT_API memopt_status memopt_optim_end(memopt_optim *o) {
    int stopped;
    if (!o) return MEMOPT_ERR_ARGUMENT;
    if (o->active == MEMOPT_I_IDLE) return memopt_i_optim_fail(o, MEMOPT_ERR_STATE, "no step has begun");
    stopped = o->active == MEMOPT_I_STOPPED;
    o->active = MEMOPT_I_IDLE;
    return stopped ? memopt_i_optim_fail(o, MEMOPT_ERR_STATE, "the fused step was stopped by a gradient that is not finite")
                   : MEMOPT_OK;
}
/* Adafactor's passes are a tensor's own; the others' go over all tensors at once. */
static void memopt_i_step_all(memopt_optim *o) {
    memopt_i_pass pass = memopt_i_pass_of(0, 0, 0, MEMOPT_I_MEASURE); size_t i; int again;
    pass.all = 1;
    if (o->desc.kind != MEMOPT_ADAFACTOR) {
        if (memopt_i_kind_measures(o->desc.kind)) {
            (void)memopt_i_pass_run(o, &pass);
            for (i = 0; i < o->desc.tensor_count; ++i) (void)memopt_optim_join(o, i, &again);
        }
        pass.mode = MEMOPT_I_APPLY;
        o->skipped += memopt_i_pass_run(o, &pass);
        for (i = 0; i < o->desc.tensor_count; ++i) o->parts[i].applied = o->parts[i].held;
    } else for (i = 0; i < o->desc.tensor_count; ++i) {
        for (again = 1; again; ) {
            (void)memopt_i_factor_measure(o, i, 0, o->parts[i].held);
            (void)memopt_optim_join(o, i, &again);
        }
        (void)memopt_i_apply(o, i, 0, o->parts[i].held);
    }
}
MEMOPT_API memopt_status memopt_optim_step(memopt_optim *o, const memopt_optim_run *run) {
    memopt_status s; size_t i;
    if (!o || !run) return MEMOPT_ERR_ARGUMENT;
    if (run->fused) return memopt_i_optim_fail(o, MEMOPT_ERR_ARGUMENT, "a fused step is applied tensor by tensor");
    for (i = 0; i < o->desc.tensor_count; ++i) {
        const char *wrong = memopt_i_pointers_wrong(&o->desc, &o->desc.tensors[i]);
        if (wrong) return memopt_i_optim_fail(o, MEMOPT_ERR_ARGUMENT, wrong);
    }
    s = memopt_optim_begin(o, run);
    if (s) return s;
    memopt_i_step_all(o);
    return memopt_optim_end(o);
}
MEMOPT_API memopt_status memopt_optim_sums(memopt_optim *o, size_t tensor, double **sums, size_t *count) {
    if (!o || !sums || !count) return MEMOPT_ERR_ARGUMENT;
    if (o->active != MEMOPT_I_BEGUN) return memopt_i_optim_fail(o, MEMOPT_ERR_STATE, "no step has begun");
    if (tensor >= o->desc.tensor_count) return memopt_i_optim_fail(o, MEMOPT_ERR_ARGUMENT, "there is no such tensor");
    *sums = o->sums + o->parts[tensor].sums;
    *count = o->parts[tensor].sum_count;
    if (o->desc.kind == MEMOPT_ADAFACTOR) *sums = memopt_i_factor_shared(o, tensor, count); /* those of this pass */
    return MEMOPT_OK;
}
MEMOPT_API int memopt_optim_measures(const memopt_optim *o) { return o && memopt_i_kind_measures(o->desc.kind); }
MEMOPT_API size_t memopt_optim_applied(const memopt_optim *o, size_t tensor) {
    return o && tensor < o->desc.tensor_count ? o->parts[tensor].applied : 0;
}
MEMOPT_API uint64_t memopt_optim_skipped(const memopt_optim *o) { return o ? o->skipped : 0; }
MEMOPT_API const memopt_error *memopt_optim_error(const memopt_optim *o) { return o ? &o->error : NULL; }
/* @section scale : number api_scale
   Problem    Gradients come in many tensors, large and tiny, 16 or 32 bits wide, multiplied by a loss scale. Before a
              weight may change, one must know whether all are finite and how long they are together: a sum over all of
              them, whose bits must not depend on how many workers added it up.
   Idea       The list is cut into pieces of 64 Ki elements, of one tensor each; a piece writes its own sum into
              scratch, and the sums are added in the order of the pieces. One pass multiplies, stores, squares and adds.
              Whether a value is finite costs nothing: the square of a float always fits a double, so the sum of a piece
              is finite exactly when all its values are. Only a piece that is not is read again, to count.
   Invariant  A call checks all of its input before it touches the first value; after that it cannot fail.
              A scale is never below the floor, so that no inverse is infinite, and 0 * infinity never happens.
   Cost       The traffic, whatever the processor: 4 bytes read an fp32 value, and 4 written where it changes. 16-bit
              values are squared as they were stored. Sums in bf16 go through blocks of 4 KiB on the stack.
   Trap       Which of two NaNs comes out of a sum differs between processors, and between two forms of one instruction.
              So a NaN that arithmetic produces is replaced by the one quiet NaN 0x7FC00000.
   Source     GradScaler and _amp_update_scale_, clip_grad_norm_ and clip_grad_value_ of PyTorch; Kahan 1965, kept here
              as Dekker's (1971) pair of a rounded sum and its rest. */
#define MEMOPT_I_SCALE_PIECE ((size_t)1 << 16) /* elements: fixed, because it is part of what a norm is */
#define MEMOPT_I_SCALE_BLOCK 1024              /* elements decoded at a time; a multiple of 16 */
#define MEMOPT_I_SCALE_NAN 0x7FC00000u
typedef struct memopt_i_scale_piece { /* in the caller's scratch */
    double squares;
    size_t nonfinite, tensor, first;
} memopt_i_scale_piece;
static uint64_t memopt_i_scale_bits(double x) { uint64_t u; memcpy(&u, &x, 8); return u; }
static int memopt_i_scale_finite(double x) { return (memopt_i_scale_bits(x) >> 52 & 0x7FF) != 0x7FF; }
static int memopt_i_scale_finite32(float x) { return (memopt_i_float_bits(x) & 0x7F800000u) != 0x7F800000u; }
/* Finite or infinite, and not below zero; -0 is zero. */
static int memopt_i_scale_limit(double x) {
    const uint64_t u = memopt_i_scale_bits(x);
    return u <= UINT64_C(0x7FF) << 52 || u == UINT64_C(1) << 63;
}

/* ---- types and policies ---- */
MEMOPT_API memopt_precision memopt_precision_f32(void) {
    memopt_precision p;
    p.weights = p.master = p.gradients = p.reduction = p.buffers = MEMOPT_TYPE_F32;
    p.keep_f32 = 0; p.loss_scaling = 0;
    return p;
}
MEMOPT_API memopt_precision memopt_precision_bf16(void) {
    memopt_precision p = memopt_precision_f32();
    p.weights = p.gradients = MEMOPT_TYPE_BF16;
    p.keep_f32 = MEMOPT_KEEP_NORMS | MEMOPT_KEEP_HEAD;
    return p;
}
MEMOPT_API memopt_precision memopt_precision_bf16_lean(void) {
    memopt_precision p = memopt_precision_bf16();
    p.master = p.reduction = MEMOPT_TYPE_BF16;
    return p;
}
MEMOPT_API memopt_precision memopt_precision_f16(void) {
    memopt_precision p = memopt_precision_bf16();
    p.weights = p.gradients = MEMOPT_TYPE_F16;
    p.loss_scaling = 1;
    return p;
}
static const char *memopt_i_precision_reason(const memopt_precision *p) {
    const memopt_type f32 = MEMOPT_TYPE_F32, bf16 = MEMOPT_TYPE_BF16, f16 = MEMOPT_TYPE_F16;
    const int has_f16 = p->weights == f16 || p->gradients == f16;
    if (!memopt_type_bytes(p->weights) || !memopt_type_bytes(p->master) || !memopt_type_bytes(p->gradients)
        || !memopt_type_bytes(p->reduction) || !memopt_type_bytes(p->buffers)) return "a type that is none";
    if (p->keep_f32 > 15 || p->loss_scaling < 0 || p->loss_scaling > 1) return "a flag that is none";
    if (p->master == f16) return "an fp16 master loses updates below 1/2048 of a weight: use fp32, or bf16 in place";
    if (p->master == bf16 && p->weights != bf16) return "a bf16 master is the weights themselves: they must be bf16";
    if ((p->weights == f16 && p->gradients == bf16) || (p->weights == bf16 && p->gradients == f16))
        return "weights and gradients in two different 16-bit types: one of them has the wrong range for the other";
    if (has_f16 && !p->loss_scaling) return "fp16 gradients below 6e-8 vanish: fp16 needs loss scaling";
    if (!has_f16 && p->loss_scaling) return "fp32 and bf16 gradients have the range: loss scaling only skips steps";
    if (p->reduction == f16) return "sums overflow in fp16: reduce in fp32";
    if (p->reduction == bf16 && p->gradients != bf16) return "sums in bf16 are coarser than the gradients they sum";
    if (p->buffers != f32 && (p->keep_f32 & MEMOPT_KEEP_NORMS))
        return "norms are to stay fp32, and buffers hold their statistics";
    if (p->buffers != f32 && p->buffers != p->weights) return "buffers are neither fp32 nor of the weights' type";
    return NULL;
}
MEMOPT_API memopt_status memopt_precision_check(const memopt_precision *policy, const char **reason) {
    const char *why = policy ? memopt_i_precision_reason(policy) : "no policy";
    if (reason) *reason = why ? why : "";
    return why ? MEMOPT_ERR_ARGUMENT : MEMOPT_OK;
}
MEMOPT_API memopt_type memopt_precision_weights(const memopt_precision *policy, unsigned kinds) {
    return policy && !(policy->keep_f32 & kinds) ? policy->weights : MEMOPT_TYPE_F32;
}

/* ---- the loops: x * factor, stored or not, squared into 16 sums; to = weight * from (+ to); values cut ----
   Every loop that reads asks for what lies 4 KiB ahead: a core's own prefetchers stop at each page, and these loops are
   long enough to fill the window in which it would look further by itself. The address may be past the end. */
#if defined(__GNUC__) || defined(__clang__)
#  define MEMOPT_I_SCALE_AHEAD(p) __builtin_prefetch((const void *)((uintptr_t)(p) + 4096))
#else
#  define MEMOPT_I_SCALE_AHEAD(p) ((void)(p))
#endif
/* Rounded once, to the type it has, also where registers are wider (x87; s390x in part). A float's square is exact. */
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
static float memopt_i_scale_round(float x) { volatile float rounded = x; return rounded; }
static double memopt_i_scale_plus(double a, double b) { volatile double one = 1; return fma(one, a, b); }
static double memopt_i_scale_square(double sum, double x) { return fma(x, x, sum); }
#else
static float memopt_i_scale_round(float x) { return x; }
static double memopt_i_scale_plus(double a, double b) { return a + b; }
static double memopt_i_scale_square(double sum, double x) { return sum + x * x; }
#endif
static float memopt_i_scale_quiet(float x) { /* a result of arithmetic */
    const float v = memopt_i_scale_round(x);
    return (memopt_i_float_bits(v) & 0x7FFFFFFFu) > 0x7F800000u ? memopt_i_bits_float(MEMOPT_I_SCALE_NAN) : v;
}
static double memopt_i_scale_join(double *sums) {
    int half, i;
    for (half = 8; half; half /= 2)
        for (i = 0; i < half; ++i) sums[i] = memopt_i_scale_plus(sums[i], sums[i + half]);
    return sums[0];
}
static void memopt_i_scale_squares(float *x, size_t n, float factor, int write, double *sums) {
    size_t i;
    for (i = 0; i < n; ++i) {
        const float v = memopt_i_scale_quiet(x[i] * factor);
        if (write) x[i] = v;
        sums[i % 16] = memopt_i_scale_square(sums[i % 16], (double)v);
    }
}
/* The same on 16-bit values. What is squared is what was stored. */
static void memopt_i_scale_squares16(memopt_type type, uint16_t *x, size_t n, float factor, int write, double *sums) {
    const int bf16 = type == MEMOPT_TYPE_BF16; size_t i;
    for (i = 0; i < n; ++i) {
        float v = bf16 ? memopt_from_bf16(x[i]) : memopt_from_f16(x[i]);
        if (write) {
            v = memopt_i_scale_quiet(v * factor);
            x[i] = bf16 ? memopt_to_bf16(v) : memopt_to_f16(v);
            v = bf16 ? memopt_from_bf16(x[i]) : memopt_from_f16(x[i]);
        }
        sums[i % 16] = memopt_i_scale_square(sums[i % 16], (double)v);
    }
}
/* to = weight * from + sum, where from and sum are bf16 */
static void memopt_i_add_bf16(float *to, const uint16_t *from, const uint16_t *sum, size_t n, float weight) {
    size_t i;
    for (i = 0; i < n; ++i)
        to[i] = memopt_i_scale_quiet(fmaf(weight, memopt_from_bf16(from[i]), memopt_from_bf16(sum[i])));
}
/* high + rest += weight * from. The sum of both is exact, or rounded to 24 bits; what the nearest bf16 leaves of a
   float is a float. */
static void memopt_i_add_pair(uint16_t *high, uint16_t *rest, const float *from, size_t n, float weight, int start) {
    size_t i;
    for (i = 0; i < n; ++i) {
        const float sum = start ? 0 : memopt_i_scale_round(memopt_from_bf16(rest[i]) + memopt_from_bf16(high[i]));
        /* NOLINTNEXTLINE(clang-analyzer-*): what was loaded before is not seen to be written */
        const float v = memopt_i_scale_quiet(start ? (float)(weight * from[i]) : fmaf(weight, from[i], sum));
        high[i] = memopt_to_bf16(v);
        rest[i] = memopt_to_bf16(memopt_i_scale_quiet(v - memopt_from_bf16(high[i])));
    }
}
static void memopt_i_add_weighted(float *to, const float *from, size_t n, float weight, int start) {
    size_t i;
    for (i = 0; i < n; ++i) {
        /* NOLINTNEXTLINE(clang-analyzer-*): what was loaded before is not seen to be written */
        const float v = start ? (float)(weight * from[i]) : fmaf(weight, from[i], to[i]);
        to[i] = memopt_i_scale_quiet(v);
    }
}
/* On the bits: limit and infinity of the type without a sign, so that NaN (above infinity) is left alone. */
static void memopt_i_clip32(float *x, size_t n, uint32_t limit) {
    size_t i;
    for (i = 0; i < n; ++i) {
        const uint32_t bits = memopt_i_float_bits(x[i]), size = bits & 0x7FFFFFFFu;
        if (size > limit && size <= 0x7F800000u) x[i] = memopt_i_bits_float((bits & 0x80000000u) | limit);
    }
}
static void memopt_i_clip16(uint16_t *x, size_t n, uint16_t limit, uint16_t infinity) {
    size_t i;
    for (i = 0; i < n; ++i) {
        const uint16_t size = x[i] & 0x7FFF;
        if (size > limit && size <= infinity) x[i] = (uint16_t)((x[i] & 0x8000) | limit);
    }
}
#if defined(MEMOPT_I_X86)
/* 16 elements at a time; what is left goes to the scalar loop, whose index then starts at a multiple of 16 again. */
MEMOPT_I_AVX512 static __m512 memopt_i_scale_quiet_avx512(__m512 v) {
    const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(MEMOPT_I_SCALE_NAN));
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), v, nan);
}
MEMOPT_I_AVX512 static __m512d memopt_i_scale_square_avx512(__m512d sum, __m256 v) {
    const __m512d x = _mm512_maskz_cvtps_pd(0xFF, v); /* masked, as below: g++ 12 warns of its own header otherwise */
    return _mm512_fmadd_pd(x, x, sum);
}
MEMOPT_I_AVX512 static void memopt_i_scale_squares_avx512(float *x, size_t n, float factor, int write, double *sums) {
    const __m512 f = _mm512_set1_ps(factor); size_t i;
    __m512d a = _mm512_loadu_pd(sums), b = _mm512_loadu_pd(sums + 8);
    for (i = 0; i + 16 <= n; i += 16) {
        const __m512 v = memopt_i_scale_quiet_avx512(_mm512_mul_ps(_mm512_loadu_ps(x + i), f));
        MEMOPT_I_SCALE_AHEAD(x + i);
        if (write) _mm512_storeu_ps(x + i, v);
        a = memopt_i_scale_square_avx512(a, _mm512_maskz_extractf32x8_ps(0xFF, v, 0));
        b = memopt_i_scale_square_avx512(b, _mm512_maskz_extractf32x8_ps(0xFF, v, 1));
    }
    _mm512_storeu_pd(sums, a); _mm512_storeu_pd(sums + 8, b);
    memopt_i_scale_squares(x + i, n - i, factor, write, sums);
}
/* To the nearest bf16, in the upper half: half a unit less one is added, and one if the unit is odd, so that a tie goes
   to even. The quiet NaN stays. */
MEMOPT_I_AVX512 static __m512i memopt_i_scale_round_avx512(__m512 v) {
    const __m512i u = _mm512_castps_si512(memopt_i_scale_quiet_avx512(v));
    const __m512i odd = _mm512_and_si512(_mm512_maskz_srli_epi32(0xFFFF, u, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
}
MEMOPT_I_AVX512 static __m512 memopt_i_scale_decode_avx512(__m256i codes) {
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xFFFF, _mm512_maskz_cvtepu16_epi32(0xFFFF, codes), 16));
}
MEMOPT_I_AVX512 static __m512 memopt_i_scale_bf16_avx512(const uint16_t *p) {
    return memopt_i_scale_decode_avx512(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
MEMOPT_I_AVX512 static __m256i memopt_i_scale_encode_avx512(__m512 v) {
    return _mm512_maskz_cvtepi32_epi16(0xFFFF, _mm512_maskz_srli_epi32(0xFFFF, memopt_i_scale_round_avx512(v), 16));
}
/* 32 bf16 are 16 pairs: the lower of each shifted up, the upper with the rest masked off, are floats without any
   shuffling. So even and odd sums stand apart; 16 further comes the same sum again. */
MEMOPT_I_AVX512 static void memopt_i_scale_bf16_squares_avx512(uint16_t *x, size_t n, float factor, int write,
                                                               double *sums) {
    const __m512 f = _mm512_set1_ps(factor); const __m512i upper = _mm512_set1_epi32((int)0xFFFF0000u); size_t i; int k;
    double apart[16]; __m512d a, b;
    for (k = 0; k < 16; ++k) apart[k % 2 * 8 + k / 2] = sums[k];
    a = _mm512_loadu_pd(apart); b = _mm512_loadu_pd(apart + 8);
    for (i = 0; i + 32 <= n; i += 32) {
        __m512i u = _mm512_loadu_si512(x + i);
        __m512 even = _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xFFFF, u, 16));
        __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(u, upper));
        MEMOPT_I_SCALE_AHEAD(x + i);
        if (write) {
            even = _mm512_castsi512_ps(_mm512_and_si512(memopt_i_scale_round_avx512(_mm512_mul_ps(even, f)), upper));
            odd = _mm512_castsi512_ps(_mm512_and_si512(memopt_i_scale_round_avx512(_mm512_mul_ps(odd, f)), upper));
            u = _mm512_maskz_srli_epi32(0xFFFF, _mm512_castps_si512(even), 16);
            _mm512_storeu_si512(x + i, _mm512_or_si512(u, _mm512_castps_si512(odd)));
        }
        a = memopt_i_scale_square_avx512(a, _mm512_maskz_extractf32x8_ps(0xFF, even, 0));
        b = memopt_i_scale_square_avx512(b, _mm512_maskz_extractf32x8_ps(0xFF, odd, 0));
        a = memopt_i_scale_square_avx512(a, _mm512_maskz_extractf32x8_ps(0xFF, even, 1));
        b = memopt_i_scale_square_avx512(b, _mm512_maskz_extractf32x8_ps(0xFF, odd, 1));
    }
    _mm512_storeu_pd(apart, a); _mm512_storeu_pd(apart + 8, b);
    for (k = 0; k < 16; ++k) sums[k] = apart[k % 2 * 8 + k / 2];
    memopt_i_scale_squares16(MEMOPT_TYPE_BF16, x + i, n - i, factor, write, sums);
}
MEMOPT_I_AVX512 static void memopt_i_scale_f16_squares_avx512(uint16_t *x, size_t n, float factor, int write,
                                                              double *sums) {
    const __m512 f = _mm512_set1_ps(factor); size_t i;
    __m512d a = _mm512_loadu_pd(sums), b = _mm512_loadu_pd(sums + 8);
    for (i = 0; i + 16 <= n; i += 16) {
        __m256i codes = _mm256_loadu_si256((const __m256i *)(const void *)(x + i));
        __m512 v = _mm512_maskz_cvtph_ps(0xFFFF, codes);
        MEMOPT_I_SCALE_AHEAD(x + i);
        if (write) {
            codes = _mm512_maskz_cvtps_ph(0xFFFF, memopt_i_scale_quiet_avx512(_mm512_mul_ps(v, f)), 0); /* to even */
            _mm256_storeu_si256((__m256i *)(void *)(x + i), codes);
            v = _mm512_maskz_cvtph_ps(0xFFFF, codes);
        }
        a = memopt_i_scale_square_avx512(a, _mm512_maskz_extractf32x8_ps(0xFF, v, 0));
        b = memopt_i_scale_square_avx512(b, _mm512_maskz_extractf32x8_ps(0xFF, v, 1));
    }
    _mm512_storeu_pd(sums, a); _mm512_storeu_pd(sums + 8, b);
    memopt_i_scale_squares16(MEMOPT_TYPE_F16, x + i, n - i, factor, write, sums);
}
MEMOPT_I_AVX512 static void memopt_i_add_bf16_avx512(float *to, const uint16_t *from, const uint16_t *sum, size_t n,
                                                     float weight) {
    const __m512 w = _mm512_set1_ps(weight); size_t i;
    for (i = 0; i + 16 <= n; i += 16) {
        const __m512 v = memopt_i_scale_bf16_avx512(from + i);
        const __m512 s = memopt_i_scale_bf16_avx512(sum + i);
        MEMOPT_I_SCALE_AHEAD(from + i); MEMOPT_I_SCALE_AHEAD(sum + i);
        _mm512_storeu_ps(to + i, memopt_i_scale_quiet_avx512(_mm512_fmadd_ps(w, v, s)));
    }
    memopt_i_add_bf16(to + i, from + i, sum + i, n - i, weight);
}
MEMOPT_I_AVX512 static void memopt_i_add_pair_avx512(uint16_t *high, uint16_t *rest, const float *from, size_t n,
                                                     float weight, int start) {
    const __m512 w = _mm512_set1_ps(weight); size_t i;
    for (i = 0; i + 16 <= n; i += 16) {
        __m512 v = _mm512_loadu_ps(from + i); __m256i codes;
        MEMOPT_I_SCALE_AHEAD(high + i); MEMOPT_I_SCALE_AHEAD(rest + i);
        if (start) v = _mm512_mul_ps(w, v);
        else {
            const __m512 s = memopt_i_scale_bf16_avx512(high + i);
            const __m512 c = memopt_i_scale_bf16_avx512(rest + i);
            v = _mm512_fmadd_ps(w, v, _mm512_add_ps(c, s));
        }
        codes = memopt_i_scale_encode_avx512(v);
        _mm256_storeu_si256((__m256i *)(void *)(high + i), codes);
        v = _mm512_sub_ps(v, memopt_i_scale_decode_avx512(codes));
        _mm256_storeu_si256((__m256i *)(void *)(rest + i), memopt_i_scale_encode_avx512(v));
    }
    memopt_i_add_pair(high + i, rest + i, from + i, n - i, weight, start);
}
MEMOPT_I_AVX512 static void memopt_i_add_weighted_avx512(float *to, const float *from, size_t n, float weight,
                                                          int start) {
    const __m512 w = _mm512_set1_ps(weight); size_t i;
    for (i = 0; i + 16 <= n; i += 16) {
        __m512 v = _mm512_loadu_ps(from + i);
        MEMOPT_I_SCALE_AHEAD(from + i); MEMOPT_I_SCALE_AHEAD(to + i);
        v = start ? _mm512_mul_ps(w, v) : _mm512_fmadd_ps(w, v, _mm512_loadu_ps(to + i));
        _mm512_storeu_ps(to + i, memopt_i_scale_quiet_avx512(v));
    }
    memopt_i_add_weighted(to + i, from + i, n - i, weight, start);
}
MEMOPT_I_AVX2 static __m256 memopt_i_scale_quiet_avx2(__m256 v) {
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(MEMOPT_I_SCALE_NAN));
    return _mm256_blendv_ps(v, nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}
MEMOPT_I_AVX2 static __m256d memopt_i_scale_square_avx2(__m256d sum, __m128 v) {
    const __m256d x = _mm256_cvtps_pd(v);
    return _mm256_fmadd_pd(x, x, sum);
}
MEMOPT_I_AVX2 static void memopt_i_scale_squares_avx2(float *x, size_t n, float factor, int write, double *sums) {
    const __m256 f = _mm256_set1_ps(factor); size_t i;
    __m256d a = _mm256_loadu_pd(sums), b = _mm256_loadu_pd(sums + 4);
    __m256d c = _mm256_loadu_pd(sums + 8), d = _mm256_loadu_pd(sums + 12);
    for (i = 0; i + 16 <= n; i += 16) {
        const __m256 v = memopt_i_scale_quiet_avx2(_mm256_mul_ps(_mm256_loadu_ps(x + i), f));
        const __m256 w = memopt_i_scale_quiet_avx2(_mm256_mul_ps(_mm256_loadu_ps(x + i + 8), f));
        MEMOPT_I_SCALE_AHEAD(x + i);
        if (write) { _mm256_storeu_ps(x + i, v); _mm256_storeu_ps(x + i + 8, w); }
        a = memopt_i_scale_square_avx2(a, _mm256_castps256_ps128(v));
        b = memopt_i_scale_square_avx2(b, _mm256_extractf128_ps(v, 1));
        c = memopt_i_scale_square_avx2(c, _mm256_castps256_ps128(w));
        d = memopt_i_scale_square_avx2(d, _mm256_extractf128_ps(w, 1));
    }
    _mm256_storeu_pd(sums, a); _mm256_storeu_pd(sums + 4, b);
    _mm256_storeu_pd(sums + 8, c); _mm256_storeu_pd(sums + 12, d);
    memopt_i_scale_squares(x + i, n - i, factor, write, sums);
}
MEMOPT_I_AVX2 static void memopt_i_add_weighted_avx2(float *to, const float *from, size_t n, float weight, int start) {
    const __m256 w = _mm256_set1_ps(weight); size_t i;
    for (i = 0; i + 8 <= n; i += 8) {
        __m256 v = _mm256_loadu_ps(from + i);
        MEMOPT_I_SCALE_AHEAD(from + i); MEMOPT_I_SCALE_AHEAD(to + i);
        v = start ? _mm256_mul_ps(w, v) : _mm256_fmadd_ps(w, v, _mm256_loadu_ps(to + i));
        _mm256_storeu_ps(to + i, memopt_i_scale_quiet_avx2(v));
    }
    memopt_i_add_weighted(to + i, from + i, n - i, weight, start);
}
MEMOPT_I_AVX2 static __m256 memopt_i_scale_decode_avx2(int bf16, __m128i codes) {
    if (!bf16) return _mm256_cvtph_ps(codes);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16));
}
MEMOPT_I_AVX2 static __m256 memopt_i_scale_bf16_avx2(const uint16_t *p) {
    return memopt_i_scale_decode_avx2(1, _mm_loadu_si128((const __m128i *)(const void *)p));
}
MEMOPT_I_AVX2 static __m128i memopt_i_scale_encode_avx2(int bf16, __m256 v) {
    __m256i u = _mm256_castps_si256(v), odd;
    if (!bf16) return _mm256_cvtps_ph(v, 0);
    odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    u = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(u), _mm256_extracti128_si256(u, 1));
}
MEMOPT_I_AVX2 static void memopt_i_scale_squares16_avx2(memopt_type type, uint16_t *x, size_t n, float factor,
                                                        int write, double *sums) {
    const __m256 f = _mm256_set1_ps(factor); const int bf16 = type == MEMOPT_TYPE_BF16; size_t i; int k;
    __m256d a[4];
    for (k = 0; k < 4; ++k) a[k] = _mm256_loadu_pd(sums + 4 * k);
    for (i = 0; i + 16 <= n; i += 16) {
        MEMOPT_I_SCALE_AHEAD(x + i);
        for (k = 0; k < 2; ++k) {
            __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)(x + i + 8 * k));
            __m256 v = memopt_i_scale_decode_avx2(bf16, codes);
            if (write) {
                codes = memopt_i_scale_encode_avx2(bf16, memopt_i_scale_quiet_avx2(_mm256_mul_ps(v, f)));
                _mm_storeu_si128((__m128i *)(void *)(x + i + 8 * k), codes);
                v = memopt_i_scale_decode_avx2(bf16, codes);
            }
            a[2 * k] = memopt_i_scale_square_avx2(a[2 * k], _mm256_castps256_ps128(v));
            a[2 * k + 1] = memopt_i_scale_square_avx2(a[2 * k + 1], _mm256_extractf128_ps(v, 1));
        }
    }
    for (k = 0; k < 4; ++k) _mm256_storeu_pd(sums + 4 * k, a[k]);
    memopt_i_scale_squares16(type, x + i, n - i, factor, write, sums);
}
MEMOPT_I_AVX2 static void memopt_i_add_bf16_avx2(float *to, const uint16_t *from, const uint16_t *sum, size_t n,
                                                 float weight) {
    const __m256 w = _mm256_set1_ps(weight); size_t i;
    for (i = 0; i + 8 <= n; i += 8) {
        const __m256 v = memopt_i_scale_bf16_avx2(from + i);
        const __m256 s = memopt_i_scale_bf16_avx2(sum + i);
        MEMOPT_I_SCALE_AHEAD(from + i); MEMOPT_I_SCALE_AHEAD(sum + i);
        _mm256_storeu_ps(to + i, memopt_i_scale_quiet_avx2(_mm256_fmadd_ps(w, v, s)));
    }
    memopt_i_add_bf16(to + i, from + i, sum + i, n - i, weight);
}
MEMOPT_I_AVX2 static void memopt_i_add_pair_avx2(uint16_t *high, uint16_t *rest, const float *from, size_t n,
                                                 float weight, int start) {
    const __m256 w = _mm256_set1_ps(weight); size_t i;
    for (i = 0; i + 8 <= n; i += 8) {
        __m256 v = _mm256_loadu_ps(from + i); __m128i codes;
        MEMOPT_I_SCALE_AHEAD(high + i); MEMOPT_I_SCALE_AHEAD(rest + i);
        if (start) v = _mm256_mul_ps(w, v);
        else {
            const __m256 s = memopt_i_scale_bf16_avx2(high + i);
            const __m256 c = memopt_i_scale_bf16_avx2(rest + i);
            v = _mm256_fmadd_ps(w, v, _mm256_add_ps(c, s));
        }
        v = memopt_i_scale_quiet_avx2(v);
        codes = memopt_i_scale_encode_avx2(1, v);
        _mm_storeu_si128((__m128i *)(void *)(high + i), codes);
        v = memopt_i_scale_quiet_avx2(_mm256_sub_ps(v, memopt_i_scale_decode_avx2(1, codes)));
        _mm_storeu_si128((__m128i *)(void *)(rest + i), memopt_i_scale_encode_avx2(1, v));
    }
    memopt_i_add_pair(high + i, rest + i, from + i, n - i, weight, start);
}
/* Clipping reads and compares; wider than this it would wait for memory as well. */
MEMOPT_I_AVX2 static void memopt_i_clip32_avx2(float *x, size_t n, uint32_t limit) {
    const __m256i most = _mm256_set1_epi32((int)limit), infinity = _mm256_set1_epi32(0x7F800000); size_t i;
    const __m256i sizes = _mm256_set1_epi32(0x7FFFFFFF);
    for (i = 0; i + 8 <= n; i += 8) {
        const __m256i v = _mm256_castps_si256(_mm256_loadu_ps(x + i)), size = _mm256_and_si256(v, sizes);
        const __m256i cut = _mm256_andnot_si256(_mm256_cmpgt_epi32(size, infinity), _mm256_cmpgt_epi32(size, most));
        const __m256i clipped = _mm256_or_si256(_mm256_andnot_si256(sizes, v), most);
        MEMOPT_I_SCALE_AHEAD(x + i);
        if (!_mm256_movemask_epi8(cut)) continue;
        _mm256_storeu_ps(x + i, _mm256_castsi256_ps(_mm256_blendv_epi8(v, clipped, cut)));
    }
    memopt_i_clip32(x + i, n - i, limit);
}
MEMOPT_I_AVX2 static void memopt_i_clip16_avx2(uint16_t *x, size_t n, uint16_t limit, uint16_t infinity) {
    const __m256i most = _mm256_set1_epi16((short)limit), top = _mm256_set1_epi16((short)infinity); size_t i;
    const __m256i sizes = _mm256_set1_epi16(0x7FFF);
    for (i = 0; i + 16 <= n; i += 16) {
        const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(x + i)), size = _mm256_and_si256(v, sizes);
        const __m256i cut = _mm256_andnot_si256(_mm256_cmpgt_epi16(size, top), _mm256_cmpgt_epi16(size, most));
        const __m256i clipped = _mm256_or_si256(_mm256_andnot_si256(sizes, v), most);
        MEMOPT_I_SCALE_AHEAD(x + i);
        if (!_mm256_movemask_epi8(cut)) continue;
        _mm256_storeu_si256((__m256i *)(void *)(x + i), _mm256_blendv_epi8(v, clipped, cut));
    }
    memopt_i_clip16(x + i, n - i, limit, infinity);
}
#endif
#if defined(MEMOPT_I_NEON)
static float32x4_t memopt_i_scale_quiet_neon(float32x4_t v) {
    return vbslq_f32(vceqq_f32(v, v), v, vreinterpretq_f32_u32(vdupq_n_u32(MEMOPT_I_SCALE_NAN)));
}
static void memopt_i_scale_squares_neon(float *x, size_t n, float factor, int write, double *sums) {
    const float32x4_t f = vdupq_n_f32(factor); float64x2_t a[8]; size_t i; int k;
    for (k = 0; k < 8; ++k) a[k] = vld1q_f64(sums + 2 * k);
    for (i = 0; i + 16 <= n; i += 16)
        for (k = 0; k < 4; ++k) {
            const float32x4_t v = memopt_i_scale_quiet_neon(vmulq_f32(vld1q_f32(x + i + 4 * k), f));
            const float64x2_t low = vcvt_f64_f32(vget_low_f32(v)), high = vcvt_high_f64_f32(v);
            if (write) vst1q_f32(x + i + 4 * k, v);
            a[2 * k] = vfmaq_f64(a[2 * k], low, low);
            a[2 * k + 1] = vfmaq_f64(a[2 * k + 1], high, high);
        }
    for (k = 0; k < 8; ++k) vst1q_f64(sums + 2 * k, a[k]);
    memopt_i_scale_squares(x + i, n - i, factor, write, sums);
}
static float32x4_t memopt_i_scale_decode_neon(int bf16, uint16x4_t codes) {
    if (!bf16) return vcvt_f32_f16(vreinterpret_f16_u16(codes));
    return vreinterpretq_f32_u32(vshll_n_u16(codes, 16));
}
static uint16x4_t memopt_i_scale_encode_neon(int bf16, float32x4_t v) {
    const uint32x4_t u = vreinterpretq_u32_f32(v), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    if (!bf16) return vreinterpret_u16_f16(vcvt_f16_f32(v));
    return vshrn_n_u32(vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7FFF))), 16);
}
static void memopt_i_scale_squares16_neon(memopt_type type, uint16_t *x, size_t n, float factor, int write,
                                          double *sums) {
    const int bf16 = type == MEMOPT_TYPE_BF16; float64x2_t a[8]; size_t i; int k;
    for (k = 0; k < 8; ++k) a[k] = vld1q_f64(sums + 2 * k);
    for (i = 0; i + 16 <= n; i += 16)
        for (k = 0; k < 4; ++k) {
            uint16x4_t codes = vld1_u16(x + i + 4 * k); float32x4_t v = memopt_i_scale_decode_neon(bf16, codes);
            if (write) {
                codes = memopt_i_scale_encode_neon(bf16, memopt_i_scale_quiet_neon(vmulq_n_f32(v, factor)));
                vst1_u16(x + i + 4 * k, codes);
                v = memopt_i_scale_decode_neon(bf16, codes);
            }
            a[2 * k] = vfmaq_f64(a[2 * k], vcvt_f64_f32(vget_low_f32(v)), vcvt_f64_f32(vget_low_f32(v)));
            a[2 * k + 1] = vfmaq_f64(a[2 * k + 1], vcvt_high_f64_f32(v), vcvt_high_f64_f32(v));
        }
    for (k = 0; k < 8; ++k) vst1q_f64(sums + 2 * k, a[k]);
    memopt_i_scale_squares16(type, x + i, n - i, factor, write, sums);
}
static void memopt_i_add_bf16_neon(float *to, const uint16_t *from, const uint16_t *sum, size_t n, float weight) {
    const float32x4_t w = vdupq_n_f32(weight); size_t i;
    for (i = 0; i + 4 <= n; i += 4) {
        const float32x4_t v = memopt_i_scale_decode_neon(1, vld1_u16(from + i));
        const float32x4_t s = memopt_i_scale_decode_neon(1, vld1_u16(sum + i));
        vst1q_f32(to + i, memopt_i_scale_quiet_neon(vfmaq_f32(s, w, v)));
    }
    memopt_i_add_bf16(to + i, from + i, sum + i, n - i, weight);
}
static void memopt_i_add_pair_neon(uint16_t *high, uint16_t *rest, const float *from, size_t n, float weight,
                                   int start) {
    const float32x4_t w = vdupq_n_f32(weight); size_t i;
    for (i = 0; i + 4 <= n; i += 4) {
        float32x4_t v = vld1q_f32(from + i); uint16x4_t codes;
        const float32x4_t s = memopt_i_scale_decode_neon(1, vld1_u16(high + i));
        const float32x4_t c = memopt_i_scale_decode_neon(1, vld1_u16(rest + i));
        v = memopt_i_scale_quiet_neon(start ? vmulq_f32(w, v) : vfmaq_f32(vaddq_f32(c, s), w, v));
        codes = memopt_i_scale_encode_neon(1, v);
        vst1_u16(high + i, codes);
        v = memopt_i_scale_quiet_neon(vsubq_f32(v, memopt_i_scale_decode_neon(1, codes)));
        vst1_u16(rest + i, memopt_i_scale_encode_neon(1, v));
    }
    memopt_i_add_pair(high + i, rest + i, from + i, n - i, weight, start);
}
static void memopt_i_add_weighted_neon(float *to, const float *from, size_t n, float weight, int start) {
    const float32x4_t w = vdupq_n_f32(weight); size_t i;
    for (i = 0; i + 4 <= n; i += 4) {
        float32x4_t v = vld1q_f32(from + i);
        v = start ? vmulq_f32(w, v) : vfmaq_f32(vld1q_f32(to + i), w, v);
        vst1q_f32(to + i, memopt_i_scale_quiet_neon(v));
    }
    memopt_i_add_weighted(to + i, from + i, n - i, weight, start);
}
static void memopt_i_clip32_neon(float *x, size_t n, uint32_t limit) {
    const uint32x4_t most = vdupq_n_u32(limit), infinity = vdupq_n_u32(0x7F800000u), sizes = vdupq_n_u32(0x7FFFFFFFu);
    size_t i;
    for (i = 0; i + 4 <= n; i += 4) {
        const uint32x4_t v = vreinterpretq_u32_f32(vld1q_f32(x + i)), size = vandq_u32(v, sizes);
        const uint32x4_t cut = vandq_u32(vcgtq_u32(size, most), vcleq_u32(size, infinity));
        if (!vmaxvq_u32(cut)) continue;
        vst1q_f32(x + i, vreinterpretq_f32_u32(vbslq_u32(cut, vbslq_u32(sizes, most, v), v)));
    }
    memopt_i_clip32(x + i, n - i, limit);
}
static void memopt_i_clip16_neon(uint16_t *x, size_t n, uint16_t limit, uint16_t infinity) {
    const uint16x8_t most = vdupq_n_u16(limit), top = vdupq_n_u16(infinity), sizes = vdupq_n_u16(0x7FFF); size_t i;
    for (i = 0; i + 8 <= n; i += 8) {
        const uint16x8_t v = vld1q_u16(x + i), size = vandq_u16(v, sizes);
        const uint16x8_t cut = vandq_u16(vcgtq_u16(size, most), vcleq_u16(size, top));
        if (!vmaxvq_u16(cut)) continue;
        vst1q_u16(x + i, vbslq_u16(cut, vbslq_u16(sizes, most, v), v));
    }
    memopt_i_clip16(x + i, n - i, limit, infinity);
}
#endif
static void memopt_i_scale_squares_at(int level, float *x, size_t n, float factor, int write, double *sums) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) memopt_i_scale_squares_avx512(x, n, factor, write, sums);
    else if (level >= MEMOPT_SIMD_AVX2) memopt_i_scale_squares_avx2(x, n, factor, write, sums);
    else
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) memopt_i_scale_squares_neon(x, n, factor, write, sums);
    else
#endif
    memopt_i_scale_squares(x, n, factor, write, sums);
    (void)level;
}
static void memopt_i_scale_squares16_at(int level, memopt_type type, uint16_t *x, size_t n, float factor, int write,
                                        double *sums) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512 && type == MEMOPT_TYPE_BF16)
        memopt_i_scale_bf16_squares_avx512(x, n, factor, write, sums);
    else if (level >= MEMOPT_SIMD_AVX512) memopt_i_scale_f16_squares_avx512(x, n, factor, write, sums);
    else if (level >= MEMOPT_SIMD_AVX2) memopt_i_scale_squares16_avx2(type, x, n, factor, write, sums);
    else
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) memopt_i_scale_squares16_neon(type, x, n, factor, write, sums);
    else
#endif
    memopt_i_scale_squares16(type, x, n, factor, write, sums);
    (void)level;
}
static void memopt_i_add_bf16_at(int level, float *to, const uint16_t *from, const uint16_t *sum, size_t n,
                                 float weight) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) memopt_i_add_bf16_avx512(to, from, sum, n, weight);
    else if (level >= MEMOPT_SIMD_AVX2) memopt_i_add_bf16_avx2(to, from, sum, n, weight);
    else
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) memopt_i_add_bf16_neon(to, from, sum, n, weight);
    else
#endif
    memopt_i_add_bf16(to, from, sum, n, weight);
    (void)level;
}
static void memopt_i_add_pair_at(int level, uint16_t *high, uint16_t *rest, const float *from, size_t n, float weight,
                                 int start) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) memopt_i_add_pair_avx512(high, rest, from, n, weight, start);
    else if (level >= MEMOPT_SIMD_AVX2) memopt_i_add_pair_avx2(high, rest, from, n, weight, start);
    else
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) memopt_i_add_pair_neon(high, rest, from, n, weight, start);
    else
#endif
    memopt_i_add_pair(high, rest, from, n, weight, start);
    (void)level;
}
static void memopt_i_add_weighted_at(int level, float *to, const float *from, size_t n, float weight, int start) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX512) memopt_i_add_weighted_avx512(to, from, n, weight, start);
    else if (level >= MEMOPT_SIMD_AVX2) memopt_i_add_weighted_avx2(to, from, n, weight, start);
    else
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) memopt_i_add_weighted_neon(to, from, n, weight, start);
    else
#endif
    memopt_i_add_weighted(to, from, n, weight, start);
    (void)level;
}
static void memopt_i_clip32_at(int level, float *x, size_t n, uint32_t limit) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX2) memopt_i_clip32_avx2(x, n, limit);
    else
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) memopt_i_clip32_neon(x, n, limit);
    else
#endif
    memopt_i_clip32(x, n, limit);
    (void)level;
}
static void memopt_i_clip16_at(int level, uint16_t *x, size_t n, uint16_t limit, uint16_t infinity) {
#if defined(MEMOPT_I_X86)
    if (level >= MEMOPT_SIMD_AVX2) memopt_i_clip16_avx2(x, n, limit, infinity);
    else
#elif defined(MEMOPT_I_NEON)
    if (level >= MEMOPT_SIMD_NEON) memopt_i_clip16_neon(x, n, limit, infinity);
    else
#endif
    memopt_i_clip16(x, n, limit, infinity);
    (void)level;
}

/* ---- lists, cut into pieces ---- */
/* 16-bit values of either type to float and back. The public calls cannot fail here. */
static memopt_threads memopt_i_gradients_level(int level) {
    memopt_threads threads;
    threads.run_fn = NULL; threads.user = NULL; threads.worker_count = 0; threads.simd_level = level;
    return threads;
}
static void memopt_i_gradients_load(int level, memopt_type type, float *to, const uint16_t *from, size_t n) {
    const memopt_threads threads = memopt_i_gradients_level(level);
    if (type == MEMOPT_TYPE_BF16) memopt_i_f32_from_bf16_at(level, to, from, n);
    else (void)memopt_f32_from_f16(to, from, n, &threads);
}
static void memopt_i_gradients_store(int level, memopt_type type, uint16_t *to, const float *from, size_t n) {
    const memopt_threads threads = memopt_i_gradients_level(level);
    if (type == MEMOPT_TYPE_BF16) memopt_i_bf16_from_f32_at(level, to, from, n);
    else (void)memopt_f16_from_f32(to, from, n, &threads);
}
static uint16_t memopt_i_gradients_infinity(memopt_type type) { return type == MEMOPT_TYPE_BF16 ? 0x7F80 : 0x7C00; }
static void *memopt_i_gradient_at(const memopt_gradient *g, size_t first) {
    return (unsigned char *)g->values + first * memopt_type_bytes(g->type);
}
static memopt_status memopt_i_gradient_check(const memopt_gradient *g) {
    const size_t bytes = memopt_type_bytes(g->type); size_t all;
    if (!bytes || (g->count && !g->values)) return MEMOPT_ERR_ARGUMENT;
    if ((uintptr_t)g->values % bytes || (uintptr_t)g->rest % 2) return MEMOPT_ERR_ARGUMENT;
    return memopt_i_mul(g->count, bytes, &all) ? MEMOPT_ERR_OVERFLOW : MEMOPT_OK;
}
static memopt_status memopt_i_gradients_count(const memopt_gradients *list, size_t *pieces) {
    size_t i, count; *pieces = 0;
    if (!list || (list->count && !list->tensors)) return MEMOPT_ERR_ARGUMENT;
    for (i = 0; i < list->count; ++i) {
        const memopt_gradient *g = list->tensors + i; const memopt_status s = memopt_i_gradient_check(g);
        if (s) return s;
        count = g->count / MEMOPT_I_SCALE_PIECE + (g->count % MEMOPT_I_SCALE_PIECE != 0);
        if (memopt_i_add(*pieces, count, pieces)) return MEMOPT_ERR_OVERFLOW;
    }
    return *pieces > SIZE_MAX / sizeof(memopt_i_scale_piece) ? MEMOPT_ERR_OVERFLOW : MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_gradients_scratch(const memopt_gradients *list, size_t *bytes) {
    size_t pieces; memopt_status s;
    if (!bytes) return MEMOPT_ERR_ARGUMENT;
    s = memopt_i_gradients_count(list, &pieces);
    if (!s) *bytes = pieces * sizeof(memopt_i_scale_piece);
    return s;
}
/* Check everything that a call on a list needs; nothing is written yet. */
static memopt_status memopt_i_gradients_check(const memopt_gradients *list, const memopt_threads *threads,
                                              size_t *pieces) {
    const memopt_status s = memopt_i_gradients_count(list, pieces);
    if (s) return s;
    if (threads && !memopt_i_threads_valid(threads)) return MEMOPT_ERR_ARGUMENT;
    if (*pieces && (!list->scratch || (uintptr_t)list->scratch % 8)) return MEMOPT_ERR_ARGUMENT;
    return list->scratch_bytes / sizeof(memopt_i_scale_piece) < *pieces ? MEMOPT_ERR_BUFFER : MEMOPT_OK;
}
static memopt_i_scale_piece *memopt_i_gradients_cut(const memopt_gradients *list) {
    memopt_i_scale_piece *pieces = (memopt_i_scale_piece *)list->scratch, *p = pieces; size_t i, first;
    for (i = 0; i < list->count; ++i)
        for (first = 0; first < list->tensors[i].count; ) {
            p->squares = 0; p->nonfinite = 0; p->tensor = i; p->first = first; ++p;
            if (list->tensors[i].count - first <= MEMOPT_I_SCALE_PIECE) break;
            first += MEMOPT_I_SCALE_PIECE;
        }
    return pieces;
}
static size_t memopt_i_scale_count(const memopt_gradient *g, const memopt_i_scale_piece *piece) {
    return memopt_i_min(MEMOPT_I_SCALE_PIECE, g->count - piece->first);
}

/* ---- scale and measure ---- */
typedef struct memopt_i_gradients_task {
    const memopt_gradient *tensors, *gradients; /* gradients: what accumulate adds to the tensors */
    memopt_i_scale_piece        *pieces;
    float                  factor; /* or weight, or limit */
    int                    level, start;
    memopt_noise           noise;
} memopt_i_gradients_task;
static size_t memopt_i_gradients_nonfinite(memopt_type type, const void *values, size_t n) {
    size_t i, found = 0; const uint16_t infinity = memopt_i_gradients_infinity(type);
    if (type == MEMOPT_TYPE_F32) for (i = 0; i < n; ++i) found += !memopt_i_scale_finite32(((const float *)values)[i]);
    else for (i = 0; i < n; ++i) found += (((const uint16_t *)values)[i] & infinity) == infinity;
    return found;
}
static double memopt_i_scale_values(int level, memopt_type type, void *x, size_t n, float factor) {
    double sums[16] = { 0 }; const int write = factor != 1;
    if (type == MEMOPT_TYPE_F32) memopt_i_scale_squares_at(level, (float *)x, n, factor, write, sums);
    else memopt_i_scale_squares16_at(level, type, (uint16_t *)x, n, factor, write, sums);
    return memopt_i_scale_join(sums);
}
static void memopt_i_scale_one(void *task, size_t index, int worker) {
    const memopt_i_gradients_task *t = (const memopt_i_gradients_task *)task;
    memopt_i_scale_piece *p = t->pieces + index;
    const memopt_gradient *g = t->tensors + p->tensor;
    const size_t n = memopt_i_scale_count(g, p); void *x = memopt_i_gradient_at(g, p->first);
    (void)worker;
    p->squares = memopt_i_scale_values(t->level, g->type, x, n, t->factor);
    if (!memopt_i_scale_finite(p->squares)) p->nonfinite = memopt_i_gradients_nonfinite(g->type, x, n);
    memopt_i_wide_end(t->level);
}
static void memopt_i_gradients_join(const memopt_gradients *list, const memopt_i_scale_piece *pieces, size_t count,
                                    memopt_gradient_total *total) {
    const double infinity = (double)memopt_i_bits_float(0x7F800000u); size_t i;
    for (i = 0; i < list->count; ++i) { list->tensors[i].squares = 0; list->tensors[i].nonfinite = 0; }
    for (i = 0; i < count; ++i) {
        memopt_gradient *g = list->tensors + pieces[i].tensor;
        g->squares = memopt_i_scale_plus(g->squares, pieces[i].squares);
        g->nonfinite += pieces[i].nonfinite;
    }
    total->squares = 0; total->nonfinite = 0; total->factor = 1;
    for (i = 0; i < list->count; ++i) {
        memopt_gradient *g = list->tensors + i;
        if (g->nonfinite) g->squares = infinity;
        total->squares = memopt_i_scale_plus(total->squares, g->squares);
        total->nonfinite += g->nonfinite;
    }
    total->overflow = total->nonfinite != 0;
}
static memopt_status memopt_i_gradients_pass(const memopt_gradients *list, float factor, memopt_gradient_total *total,
                                             const memopt_threads *threads) {
    size_t pieces; memopt_i_gradients_task t; memopt_gradient_total unwanted;
    const memopt_status s = memopt_i_gradients_check(list, threads, &pieces);
    if (s) return s;
    memset(&t, 0, sizeof t);
    t.tensors = list->tensors; t.pieces = memopt_i_gradients_cut(list);
    t.factor = factor; t.level = memopt_i_simd_level(threads);
    memopt_i_run(threads, pieces, memopt_i_scale_one, &t);
    memopt_i_gradients_join(list, t.pieces, pieces, total ? total : &unwanted);
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_gradients_measure(const memopt_gradients *list, memopt_gradient_total *total,
                                                  const memopt_threads *threads) {
    return total ? memopt_i_gradients_pass(list, 1, total, threads) : MEMOPT_ERR_ARGUMENT;
}
MEMOPT_API memopt_status memopt_gradients_scale(const memopt_gradients *list, double factor,
                                                memopt_gradient_total *total, const memopt_threads *threads) {
    /* beyond float's range the cast itself would be undefined */
    if (!memopt_i_scale_finite(factor) || fabs(factor) > 3.4028234663852886e38) return MEMOPT_ERR_ARGUMENT;
    return memopt_i_gradients_pass(list, (float)factor, total, threads);
}

/* ---- clipping ---- */
static void memopt_i_clip_piece(void *task, size_t index, int worker) {
    const memopt_i_gradients_task *t = (const memopt_i_gradients_task *)task;
    const memopt_i_scale_piece *p = t->pieces + index;
    const memopt_gradient *g = t->tensors + p->tensor; uint16_t limit = 0;
    const size_t n = memopt_i_scale_count(g, p); void *x = memopt_i_gradient_at(g, p->first);
    (void)worker;
    if (g->type == MEMOPT_TYPE_F32) memopt_i_clip32_at(t->level, (float *)x, n, memopt_i_float_bits(t->factor));
    else {
        memopt_i_gradients_store(MEMOPT_SIMD_SCALAR, g->type, &limit, &t->factor, 1);
        memopt_i_clip16_at(t->level, (uint16_t *)x, n, limit, memopt_i_gradients_infinity(g->type));
    }
}
MEMOPT_API memopt_status memopt_gradients_clip_value(const memopt_gradients *list, float limit,
                                                     const memopt_threads *threads) {
    size_t pieces; memopt_i_gradients_task t; memopt_status s;
    if (!memopt_i_scale_limit((double)limit)) return MEMOPT_ERR_ARGUMENT;
    s = memopt_i_gradients_check(list, threads, &pieces);
    if (s) return s;
    memset(&t, 0, sizeof t);
    t.tensors = list->tensors; t.pieces = memopt_i_gradients_cut(list);
    t.factor = memopt_i_bits_float(memopt_i_float_bits(limit) & 0x7FFFFFFFu); t.level = memopt_i_simd_level(threads);
    memopt_i_run(threads, pieces, memopt_i_clip_piece, &t);
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_clip_norm(double norm, double max_norm, double *factor) {
    double f;
    if (!factor || !memopt_i_scale_limit(max_norm)) return MEMOPT_ERR_ARGUMENT;
    if (!memopt_i_scale_limit(norm) || !memopt_i_scale_finite(norm)) return MEMOPT_ERR_ARGUMENT;
    f = max_norm / (norm + 1e-6);
    *factor = f < 1 ? f : 1;
    return MEMOPT_OK;
}

/* ---- dynamic loss scaling ---- */
MEMOPT_API memopt_status memopt_scaler_default(memopt_scaler *scaler) {
    if (!scaler) return MEMOPT_ERR_ARGUMENT;
    scaler->scale = 65536; scaler->floor = 1;
    scaler->growth_factor = 2; scaler->backoff_factor = 0.5;
    scaler->growth_interval = 2000; scaler->growth_tracker = 0;
    scaler->unscaled = scaler->found = 0;
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_scaler_check(const memopt_scaler *s) {
    const float lowest = 2.9387358770557188e-39f; /* 2^-128: the largest whose inverse is infinite */
    if (!s || !memopt_i_scale_finite32(s->scale) || !memopt_i_scale_finite32(s->floor)) return MEMOPT_ERR_ARGUMENT;
    if (!memopt_i_scale_finite(s->growth_factor) || s->growth_factor <= 1) return MEMOPT_ERR_ARGUMENT;
    if (!memopt_i_scale_finite(s->backoff_factor) || s->backoff_factor <= 0) return MEMOPT_ERR_ARGUMENT;
    if (s->backoff_factor >= 1 || s->floor <= lowest || s->scale < s->floor) return MEMOPT_ERR_ARGUMENT;
    if (s->growth_tracker >= s->growth_interval || s->unscaled > 1) return MEMOPT_ERR_ARGUMENT;
    return s->found > s->unscaled ? MEMOPT_ERR_ARGUMENT : MEMOPT_OK;
}
MEMOPT_API float memopt_scaler_inverse(const memopt_scaler *scaler) {
    return memopt_scaler_check(scaler) ? 0 : (float)(1 / (double)scaler->scale);
}
static memopt_status memopt_i_scaler_pass(memopt_scaler *scaler, const memopt_gradients *list,
                                          memopt_gradient_total *total, const memopt_threads *threads, int in_place) {
    memopt_status s = memopt_scaler_check(scaler);
    if (s || !total) return MEMOPT_ERR_ARGUMENT;
    if (scaler->unscaled) return MEMOPT_ERR_STATE;
    s = memopt_i_gradients_pass(list, in_place ? memopt_scaler_inverse(scaler) : 1, total, threads);
    if (s) return s;
    if (!in_place) total->factor = (double)memopt_scaler_inverse(scaler);
    scaler->unscaled = 1; scaler->found = (uint32_t)total->overflow;
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_scaler_unscale(memopt_scaler *scaler, const memopt_gradients *list,
                                               memopt_gradient_total *total, const memopt_threads *threads) {
    return memopt_i_scaler_pass(scaler, list, total, threads, 1);
}
MEMOPT_API memopt_status memopt_scaler_measure(memopt_scaler *scaler, const memopt_gradients *list,
                                               memopt_gradient_total *total, const memopt_threads *threads) {
    return memopt_i_scaler_pass(scaler, list, total, threads, 0);
}
MEMOPT_API memopt_status memopt_scaler_update(memopt_scaler *scaler, int overflow) {
    double scale;
    if (memopt_scaler_check(scaler)) return MEMOPT_ERR_ARGUMENT;
    if (!scaler->unscaled) return MEMOPT_ERR_STATE;
    if (scaler->found && !overflow) return MEMOPT_ERR_ARGUMENT;
    if (overflow) {
        const float less = (float)((double)scaler->scale * scaler->backoff_factor);
        if (less < scaler->floor) return MEMOPT_ERR_OVERFLOW;
        scaler->scale = less; scaler->growth_tracker = 0;
    } else if (++scaler->growth_tracker == scaler->growth_interval) {
        scale = (double)scaler->scale * scaler->growth_factor;
        /* what rounds to infinity is not taken; 2^128 less half a unit in the last place */
        if (scale < 3.4028235677973366e38) scaler->scale = (float)scale;
        scaler->growth_tracker = 0;
    }
    scaler->unscaled = scaler->found = 0;
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_scaler_cancel(memopt_scaler *scaler) {
    if (memopt_scaler_check(scaler)) return MEMOPT_ERR_ARGUMENT;
    if (!scaler->unscaled) return MEMOPT_ERR_STATE;
    scaler->unscaled = scaler->found = 0;
    return MEMOPT_OK;
}

/* ---- accumulation ---- */
/* A block of any other kind than fp32 into fp32. The gradient is decoded first, except where bf16 meets bf16. */
static void memopt_i_accumulate_block(const memopt_i_gradients_task *t, const memopt_gradient *sum,
                                      const memopt_gradient *g, size_t at, size_t n) {
    float block[MEMOPT_I_SCALE_BLOCK], value[MEMOPT_I_SCALE_BLOCK]; const float *from = block;
    uint16_t *high = (uint16_t *)sum->values + at; const uint16_t *codes = (const uint16_t *)g->values + at;
    if (g->type == MEMOPT_TYPE_BF16 && sum->type == MEMOPT_TYPE_BF16 && !sum->rest && !t->start) {
        memopt_i_add_bf16_at(t->level, value, codes, high, n, t->factor);
        memopt_i_bf16_noise_at(t->level, high, value, n, t->noise, sum->first + at);
        return;
    }
    if (g->type == MEMOPT_TYPE_F32) from = (const float *)g->values + at;
    else memopt_i_gradients_load(t->level, g->type, block, codes, n);
    if (sum->type == MEMOPT_TYPE_F32)
        memopt_i_add_weighted_at(t->level, (float *)sum->values + at, from, n, t->factor, t->start);
    else if (sum->rest) memopt_i_add_pair_at(t->level, high, sum->rest + at, from, n, t->factor, t->start);
    else {
        if (!t->start) memopt_i_f32_from_bf16_at(t->level, value, high, n);
        memopt_i_add_weighted_at(t->level, value, from, n, t->factor, t->start);
        memopt_i_bf16_noise_at(t->level, high, value, n, t->noise, sum->first + at);
    }
}
static void memopt_i_accumulate_piece(void *task, size_t index, int worker) {
    const memopt_i_gradients_task *t = (const memopt_i_gradients_task *)task;
    const memopt_i_scale_piece *p = t->pieces + index;
    const memopt_gradient *sum = t->tensors + p->tensor, *g = t->gradients + p->tensor;
    const size_t end = p->first + memopt_i_scale_count(sum, p); size_t i, k;
    (void)worker;
    if (sum->type == MEMOPT_TYPE_F32 && g->type == MEMOPT_TYPE_F32) {
        memopt_i_add_weighted_at(t->level, (float *)sum->values + p->first, (const float *)g->values + p->first,
                                 end - p->first, t->factor, t->start);
        return;
    }
    for (i = p->first; i < end; i += k) {
        k = memopt_i_min(MEMOPT_I_SCALE_BLOCK, end - i);
        memopt_i_accumulate_block(t, sum, g, i, k);
    }
}
static memopt_status memopt_i_accumulate_check(const memopt_gradients *sums, const memopt_gradients *gradients,
                                               const memopt_micro_batch *batch) {
    size_t i, pieces; const memopt_status s = memopt_i_gradients_count(gradients, &pieces);
    if (s) return s;
    if (sums->count != gradients->count) return MEMOPT_ERR_ARGUMENT;
    for (i = 0; i < sums->count; ++i) {
        const memopt_gradient *sum = sums->tensors + i;
        if (sum->count != gradients->tensors[i].count || sum->type == MEMOPT_TYPE_F16) return MEMOPT_ERR_ARGUMENT;
        if (sum->rest ? sum->type != MEMOPT_TYPE_BF16 : sum->type == MEMOPT_TYPE_BF16 && sum->count && !batch->noise)
            return MEMOPT_ERR_ARGUMENT;
    }
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_gradients_accumulate(const memopt_gradients *sums, const memopt_gradients *gradients,
                                                     const memopt_micro_batch *batch, memopt_accumulation *accumulation,
                                                     const memopt_threads *threads) {
    size_t pieces; memopt_i_gradients_task t; memopt_status s;
    if (!batch || !accumulation) return MEMOPT_ERR_ARGUMENT;
    s = memopt_i_gradients_check(sums, threads, &pieces);
    if (!s) s = memopt_i_accumulate_check(sums, gradients, batch);
    if (!s && batch->tokens > UINT64_MAX - accumulation->tokens) s = MEMOPT_ERR_OVERFLOW;
    if (s || !batch->tokens) return s;
    memset(&t, 0, sizeof t);
    t.tensors = sums->tensors; t.gradients = gradients->tensors; t.pieces = memopt_i_gradients_cut(sums);
    t.factor = batch->is_mean ? (float)batch->tokens : 1;
    t.start = !accumulation->micro_batches; t.level = memopt_i_simd_level(threads);
    if (batch->noise) t.noise = *batch->noise;
    memopt_i_run(threads, pieces, memopt_i_accumulate_piece, &t);
    accumulation->tokens += batch->tokens; ++accumulation->micro_batches;
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_accumulation_mean(const memopt_accumulation *accumulation, double *factor) {
    if (!accumulation || !factor) return MEMOPT_ERR_ARGUMENT;
    if (!accumulation->tokens) return MEMOPT_ERR_STATE;
    *factor = 1 / (double)accumulation->tokens;
    return MEMOPT_OK;
}
/* @section course : base host api_schedule
   What is alive while a schedule runs: a list of actions is gone through, one after the other, and every buffer is told
   as it is born and as it goes. Peak and cost of a schedule, the tape's plan of its buffers and the picture of a schedule
   are all this walk, so they cannot disagree.
   Problem    Memory of a step is promised to the byte, for any list of actions, also for one that somebody else made.
   Idea       Actions say only what a schedule decides: run a segment, drop a value, move one to the slow place and back.
              What follows from that is not said but done: a backward frees what only it needed, gradients pass on, and
              a skip lives as long as some value between its ends does, here or in the slow place, because whoever
              starts again from that value needs it.
   Invariant  `live` is the sum of the buffers told as born and not as gone. An action that cannot be changes nothing.
   Time       Computing has a clock. Transfers form one queue behind it; a WAIT moves the clock to the end of its
              transfer. Costs are summed segment by segment, not action by action, so that equal work is equal to the
              last bit.
   Source     REVOLVE: Griewank, Walther, ACM TOMS 26 (2000). sqrt(n): Chen and others, arXiv:1604.06174. */

/* -- chains -- */

static int memopt_i_cost_ok(double x) { /* finite and not negative; told by the bits, which -ffast-math leaves alone */
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return bits < UINT64_C(0x7FF0000000000000) || bits == UINT64_C(0x8000000000000000);
}
static size_t memopt_i_chain_value(const memopt_chain *c, size_t v) { /* bytes of a value */
    return v ? c->segments[v - 1].output_bytes : c->input_bytes;
}
static size_t memopt_i_chain_grad(const memopt_chain *c, size_t v) { /* and of its gradient */
    return v ? c->segments[v - 1].grad_bytes : c->input_grad_bytes;
}
static size_t memopt_i_chain_copy(const memopt_chain *c, size_t v) { return v ? c->segments[v - 1].kept_bytes : 0; }
static size_t memopt_i_chain_plain(const memopt_segment *s) {
    return s->plain_scratch ? s->plain_scratch : s->forward_scratch;
}
static double memopt_i_chain_write(const memopt_chain *c, const memopt_slow *slow, size_t v) {
    return slow->write_cost + slow->write_byte_cost * (double)memopt_i_chain_value(c, v);
}
static double memopt_i_chain_read(const memopt_chain *c, const memopt_slow *slow, size_t v) {
    return slow->read_cost + slow->read_byte_cost * (double)memopt_i_chain_value(c, v);
}
/* All bytes of a chain together. Where they fit size_t, no sum of what is alive needs a check later. */
static int memopt_i_chain_total(const memopt_chain *c, size_t *out) {
    size_t total = 0, i, k; int wraps = memopt_i_add(c->input_bytes, c->input_grad_bytes, &total);
    for (i = 0; i < c->count; ++i) {
        const memopt_segment *s = &c->segments[i];
        const size_t parts[] = { s->saved_bytes, s->grad_bytes, s->kept_bytes,
                                 s->forward_scratch, s->backward_scratch, s->plain_scratch };
        for (k = 0; k < sizeof parts / sizeof *parts; ++k) wraps |= memopt_i_add(total, parts[k], &total);
    }
    for (k = 0; k < c->skip_count; ++k) {
        wraps |= memopt_i_add(total, c->skips[k].bytes, &total);
        wraps |= memopt_i_add(total, c->skips[k].grad_bytes, &total);
    }
    *out = total;
    return wraps;
}
static memopt_status memopt_i_chain_check(const memopt_chain *c) {
    double total = 0; size_t i, bytes;
    if (!c || !c->segments || !c->count || c->count > MEMOPT_CHAIN_MOST || (c->skip_count && !c->skips))
        return MEMOPT_ERR_ARGUMENT;
    for (i = 0; i < c->count; ++i) {
        const memopt_segment *s = &c->segments[i];
        if (s->saved_bytes < s->output_bytes) return MEMOPT_ERR_ARGUMENT;
        if (!memopt_i_cost_ok(s->forward_cost) || !memopt_i_cost_ok(s->backward_cost)) return MEMOPT_ERR_ARGUMENT;
        total += s->forward_cost + s->backward_cost;
    }
    for (i = 0; i < c->skip_count; ++i)
        if (c->skips[i].from >= c->skips[i].to || c->skips[i].to >= c->count) return MEMOPT_ERR_ARGUMENT;
    if (!memopt_i_cost_ok(total * (double)c->count)) return MEMOPT_ERR_OVERFLOW; /* every forward as often as can be */
    return memopt_i_chain_total(c, &bytes) ? MEMOPT_ERR_OVERFLOW : MEMOPT_OK;
}
static memopt_status memopt_i_slow_check(const memopt_slow *slow) {
    if (!memopt_i_cost_ok(slow->write_cost) || !memopt_i_cost_ok(slow->read_cost)
        || !memopt_i_cost_ok(slow->write_byte_cost) || !memopt_i_cost_ok(slow->read_byte_cost))
        return MEMOPT_ERR_ARGUMENT;
    return MEMOPT_OK;
}

/* -- the course: what is alive while actions happen, in one place for everybody -- */

typedef enum memopt_i_buffer { /* index: the value, segment or skip it belongs to */
    MEMOPT_I_VALUE, MEMOPT_I_SAVED, MEMOPT_I_GRAD, MEMOPT_I_SCRATCH, MEMOPT_I_COPY, MEMOPT_I_SKIP, MEMOPT_I_SKIP_GRAD
} memopt_i_buffer;
typedef void memopt_i_note_fn(void *user, memopt_i_buffer kind, size_t index, size_t bytes, int born);
enum { /* of a value */
    MEMOPT_I_HELD = 1, MEMOPT_I_COPIED = 2, MEMOPT_I_WRITING = 4, MEMOPT_I_READING = 8,
    MEMOPT_I_MOVING = MEMOPT_I_WRITING | MEMOPT_I_READING, MEMOPT_I_ANYWHERE = MEMOPT_I_HELD | MEMOPT_I_COPIED
};
typedef struct memopt_i_course_skip { uint32_t holders; uint8_t live, grad, done; } memopt_i_course_skip;
typedef struct memopt_i_course {
    const memopt_chain *chain;
    memopt_slow        slow;
    memopt_i_note_fn  *note_fn; /* told of every buffer: born before the action runs, gone after it; NULL = nobody */
    void              *user;
    memopt_host        host;
    double             *ready;  /* of each value: when its transfer ends */
    uint32_t           *runs;   /* of each segment: forwards so far */
    memopt_i_course_skip *skips;
    uint8_t            *values, *saved;
    size_t             bytes;   /* of the block that `ready` begins */
    size_t             live, peak; /* bytes now, and at the most */
    size_t             copies;  /* values in the slow place */
    size_t             left;    /* segments whose backward is still to come */
    double             now, waited, free_at; /* the computing's clock, what of it was waiting, when the transfers end */
} memopt_i_course;

static void memopt_i_course_note(memopt_i_course *w, memopt_i_buffer kind, size_t index, size_t bytes, int born) {
    if (!bytes) return;
    if (born) { w->live += bytes; w->peak = memopt_i_max(w->peak, w->live); }
    else w->live -= bytes;
    if (w->note_fn) w->note_fn(w->user, kind, index, bytes, born);
}
/* A value comes (now, or its copy) or is gone altogether: a skip dies with the last value between its ends. */
static void memopt_i_course_hold(memopt_i_course *w, size_t value, int comes) {
    size_t k;
    for (k = 0; k < w->chain->skip_count; ++k) {
        const memopt_skip *s = &w->chain->skips[k]; memopt_i_course_skip *state = &w->skips[k];
        if (value <= s->from || value > s->to) continue;
        if (comes) { ++state->holders; continue; }
        if (--state->holders || !state->live) continue;
        state->live = 0;
        memopt_i_course_note(w, MEMOPT_I_SKIP, k, s->bytes, 0);
    }
}
static void memopt_i_course_mark(memopt_i_course *w, size_t value, int flags) { /* make these the value's flags */
    const int before = w->values[value];
    w->values[value] = (uint8_t)flags;
    if (!(before & MEMOPT_I_HELD) && flags & MEMOPT_I_HELD)
        memopt_i_course_note(w, MEMOPT_I_VALUE, value, memopt_i_chain_value(w->chain, value), 1);
    if (before & MEMOPT_I_HELD && !(flags & MEMOPT_I_HELD))
        memopt_i_course_note(w, MEMOPT_I_VALUE, value, memopt_i_chain_value(w->chain, value), 0);
    if (!(before & MEMOPT_I_ANYWHERE) != !(flags & MEMOPT_I_ANYWHERE)) memopt_i_course_hold(w, value, flags != 0);
}
static int memopt_i_course_bytes(const memopt_chain *chain, size_t *bytes) { /* 1 on overflow */
    return memopt_i_mul(chain->skip_count, sizeof(memopt_i_course_skip), bytes)
        || memopt_i_add(*bytes, (chain->count + 1) * (sizeof(double) + sizeof(uint32_t) + 2), bytes);
}
/* Begin: the input and the last gradient are there, and stay to the end. note_fn is set by who wants to be told. */
static void memopt_i_course_begin(memopt_i_course *w, const memopt_chain *chain, const memopt_slow *slow, void *block) {
    const size_t n = chain->count;
    memset(w, 0, sizeof *w);
    memopt_i_course_bytes(chain, &w->bytes);
    memset(block, 0, w->bytes);
    w->chain = chain; w->left = n;
    if (slow) w->slow = *slow;
    w->ready = (double *)block;
    w->runs = (uint32_t *)(void *)(w->ready + n + 1);
    w->skips = (memopt_i_course_skip *)(void *)(w->runs + n + 1);
    w->values = (uint8_t *)(void *)(w->skips + chain->skip_count);
    w->saved = w->values + n + 1;
    memopt_i_course_mark(w, 0, MEMOPT_I_HELD);
    memopt_i_course_note(w, MEMOPT_I_GRAD, n, memopt_i_chain_grad(chain, n), 1);
}
static memopt_status memopt_i_course_open(memopt_i_course *w, const memopt_chain *chain, const memopt_slow *slow,
                                          const memopt_host *host) {
    memopt_host h; size_t bytes; void *block;
    if (memopt_host_resolve(host, &h)) return MEMOPT_ERR_ARGUMENT;
    if (memopt_i_course_bytes(chain, &bytes)) return MEMOPT_ERR_OVERFLOW;
    block = memopt_i_alloc(&h, bytes, MEMOPT_I_HOST_ALIGN);
    if (!block) return MEMOPT_ERR_MEMORY;
    memopt_i_course_begin(w, chain, slow, block);
    w->host = h;
    return MEMOPT_OK;
}
static void memopt_i_course_close(memopt_i_course *w) {
    memopt_i_free(&w->host, w->ready, w->bytes, MEMOPT_I_HOST_ALIGN);
    w->ready = NULL;
}
static int memopt_i_course_readable(const memopt_i_course *w, size_t value) {
    return (w->values[value] & (MEMOPT_I_HELD | MEMOPT_I_READING)) == MEMOPT_I_HELD;
}
static int memopt_i_course_skips_ready(const memopt_i_course *w, size_t segment, int backward) {
    size_t k;
    for (k = 0; k < w->chain->skip_count; ++k) {
        const memopt_skip *s = &w->chain->skips[k];
        if (s->to == segment && !w->skips[k].live) return 0;
        if (backward && s->from == segment && !w->skips[k].grad) return 0;
    }
    return 1;
}
static memopt_status memopt_i_course_forward(memopt_i_course *w, size_t i, int save) {
    const memopt_chain *c = w->chain; const memopt_segment *s = c->segments + i; size_t k;
    const size_t scratch = save ? s->forward_scratch : memopt_i_chain_plain(s);
    if (i >= w->left || !memopt_i_course_readable(w, i) || w->values[i + 1] & MEMOPT_I_HELD || w->saved[i])
        return MEMOPT_ERR_STATE;
    if (!memopt_i_course_skips_ready(w, i, 0)) return MEMOPT_ERR_STATE;
    memopt_i_course_mark(w, i + 1, w->values[i + 1] | MEMOPT_I_HELD);
    for (k = 0; k < c->skip_count; ++k) {
        if (c->skips[k].from != i || w->skips[k].live || w->skips[k].done) continue;
        w->skips[k].live = 1;
        memopt_i_course_note(w, MEMOPT_I_SKIP, k, c->skips[k].bytes, 1);
    }
    if (save) memopt_i_course_note(w, MEMOPT_I_SAVED, i, s->saved_bytes - s->output_bytes, 1);
    if (save) w->saved[i] = 1;
    memopt_i_course_note(w, MEMOPT_I_SCRATCH, i, scratch, 1);
    memopt_i_course_note(w, MEMOPT_I_SCRATCH, i, scratch, 0);
    ++w->runs[i];
    w->now += s->forward_cost;
    return MEMOPT_OK;
}
static memopt_status memopt_i_course_backward(memopt_i_course *w, size_t i) {
    const memopt_chain *c = w->chain; const memopt_segment *s = c->segments + i; size_t k;
    if (i + 1 != w->left || !w->saved[i] || !memopt_i_course_readable(w, i) || !memopt_i_course_readable(w, i + 1)
        || w->values[i + 1] & (MEMOPT_I_MOVING | MEMOPT_I_COPIED) || !memopt_i_course_skips_ready(w, i, 1))
        return MEMOPT_ERR_STATE;
    for (k = 0; k < c->skip_count; ++k) {
        if (c->skips[k].to != i) continue;
        w->skips[k].grad = 1;
        memopt_i_course_note(w, MEMOPT_I_SKIP_GRAD, k, c->skips[k].grad_bytes, 1);
    }
    memopt_i_course_note(w, MEMOPT_I_GRAD, i, memopt_i_chain_grad(c, i), 1);
    memopt_i_course_note(w, MEMOPT_I_SCRATCH, i, s->backward_scratch, 1);
    memopt_i_course_note(w, MEMOPT_I_SCRATCH, i, s->backward_scratch, 0);
    for (k = 0; k < c->skip_count; ++k) {
        if (c->skips[k].to == i) {
            w->skips[k].live = 0; w->skips[k].done = 1;
            memopt_i_course_note(w, MEMOPT_I_SKIP, k, c->skips[k].bytes, 0);
        }
        if (c->skips[k].from == i) memopt_i_course_note(w, MEMOPT_I_SKIP_GRAD, k, c->skips[k].grad_bytes, 0);
    }
    memopt_i_course_note(w, MEMOPT_I_SAVED, i, s->saved_bytes - s->output_bytes, 0);
    w->saved[i] = 0;
    memopt_i_course_mark(w, i + 1, 0);
    if (i + 1 < c->count) memopt_i_course_note(w, MEMOPT_I_GRAD, i + 1, memopt_i_chain_grad(c, i + 1), 0);
    w->left = i;
    w->now += s->backward_cost;
    return MEMOPT_OK;
}
static memopt_status memopt_i_course_transfer(memopt_i_course *w, size_t v, int writes) {
    const int flags = w->values[v];
    const double cost = writes ? memopt_i_chain_write(w->chain, &w->slow, v)
                               : memopt_i_chain_read(w->chain, &w->slow, v);
    const double start = w->free_at > w->now ? w->free_at : w->now;
    if (flags & MEMOPT_I_MOVING) return MEMOPT_ERR_STATE;
    if (writes ? flags != MEMOPT_I_HELD || w->copies >= w->slow.slots : flags != MEMOPT_I_COPIED)
        return MEMOPT_ERR_STATE;
    if (writes) { ++w->copies; memopt_i_course_note(w, MEMOPT_I_COPY, v, memopt_i_chain_copy(w->chain, v), 1); }
    memopt_i_course_mark(w, v, flags | MEMOPT_I_HELD | (writes ? MEMOPT_I_WRITING : MEMOPT_I_READING));
    if (w->slow.overlap) { w->free_at = w->ready[v] = start + cost; return MEMOPT_OK; }
    w->waited += cost;
    w->now += cost;
    return MEMOPT_OK;
}
static memopt_status memopt_i_course_wait(memopt_i_course *w, size_t v) {
    const int flags = w->values[v];
    if (!(flags & MEMOPT_I_MOVING)) return MEMOPT_ERR_STATE;
    if (w->ready[v] > w->now) { w->waited += w->ready[v] - w->now; w->now = w->ready[v]; }
    memopt_i_course_mark(w, v, MEMOPT_I_HELD | MEMOPT_I_COPIED);
    return MEMOPT_OK;
}
/* HELD: drop it; COPIED: forget its copy */
static memopt_status memopt_i_course_leave(memopt_i_course *w, size_t v, int what) {
    const int flags = w->values[v];
    if (!(flags & what) || flags & MEMOPT_I_MOVING) return MEMOPT_ERR_STATE;
    if (what == MEMOPT_I_HELD ? (!v || w->saved[v - 1]) && !(flags & MEMOPT_I_COPIED) : !v && flags == what)
        return MEMOPT_ERR_STATE; /* nothing would be left of the input, or of what a saved part belongs to */
    if (what == MEMOPT_I_COPIED) {
        --w->copies;
        memopt_i_course_note(w, MEMOPT_I_COPY, v, memopt_i_chain_copy(w->chain, v), 0);
    }
    memopt_i_course_mark(w, v, flags & ~what);
    return MEMOPT_OK;
}
/* One action; ERR_STATE when it cannot be, and then the course is where it was. */
static memopt_status memopt_i_course_step(memopt_i_course *w, memopt_action action) {
    const size_t i = action.index;
    const int of_segment = action.op <= MEMOPT_OP_BACKWARD;
    if (i > w->chain->count || (of_segment && i == w->chain->count)) return MEMOPT_ERR_STATE;
    switch (action.op) {
        case MEMOPT_OP_FORWARD:      return memopt_i_course_forward(w, i, 0);
        case MEMOPT_OP_FORWARD_SAVE: return memopt_i_course_forward(w, i, 1);
        case MEMOPT_OP_BACKWARD:     return memopt_i_course_backward(w, i);
        case MEMOPT_OP_DROP:         return memopt_i_course_leave(w, i, MEMOPT_I_HELD);
        case MEMOPT_OP_WRITE:        return memopt_i_course_transfer(w, i, 1);
        case MEMOPT_OP_READ:         return memopt_i_course_transfer(w, i, 0);
        case MEMOPT_OP_WAIT:         return memopt_i_course_wait(w, i);
        case MEMOPT_OP_FORGET:       return memopt_i_course_leave(w, i, MEMOPT_I_COPIED);
        default:                     return MEMOPT_ERR_STATE;
    }
}
/* At the end nothing is left but the input and the gradients of input and output. */
static int memopt_i_course_ended(const memopt_i_course *w) {
    size_t v;
    if (w->left) return 0;
    for (v = 0; v <= w->chain->count; ++v)
        if (w->values[v] != (v ? 0 : MEMOPT_I_HELD)) return 0;
    return 1;
}
/* In a fixed order, so that equal work is equal cost to the bit. */
static double memopt_i_chain_cost(const memopt_chain *c, const uint32_t *runs, double waited, double *extra) {
    double cost = 0; size_t i;
    *extra = waited;
    for (i = 0; i < c->count; ++i) {
        cost += c->segments[i].forward_cost + c->segments[i].backward_cost;
        *extra += ((double)runs[i] - 1) * c->segments[i].forward_cost;
    }
    return cost + *extra;
}
static memopt_status memopt_i_simulate(const memopt_chain *chain, const memopt_slow *slow, const memopt_action *actions,
                                       size_t count, const memopt_host *host, memopt_schedule_result *r) {
    memopt_i_course w; size_t t; memopt_status s = memopt_i_course_open(&w, chain, slow, host);
    memset(r, 0, sizeof *r);
    if (s) return s;
    for (t = 0; t < count && !s; ++t) {
        const size_t peak = w.peak;
        s = memopt_i_course_step(&w, actions[t]);
        if (s || w.peak > peak) r->at = t;
        if (actions[t].op <= MEMOPT_OP_FORWARD_SAVE) ++r->forwards;
    }
    if (!s && !memopt_i_course_ended(&w)) { s = MEMOPT_ERR_STATE; r->at = count; }
    r->peak = w.peak; r->actions = count;
    r->cost = memopt_i_chain_cost(chain, w.runs, w.waited, &r->extra);
    memopt_i_course_close(&w);
    return s;
}
MEMOPT_API memopt_status memopt_schedule_simulate(const memopt_chain *chain, const memopt_slow *slow,
                                                  const memopt_action *actions, size_t count, const memopt_host *host,
                                                  memopt_schedule_result *result) {
    memopt_schedule_result r; memopt_status s = memopt_i_chain_check(chain);
    if (s) return s;
    if ((count && !actions) || (slow && memopt_i_slow_check(slow))) return MEMOPT_ERR_ARGUMENT;
    s = memopt_i_simulate(chain, slow, actions, count, host, &r);
    if (result && !s) *result = r;
    if (result && s == MEMOPT_ERR_STATE) result->at = r.at;
    return s;
}

/* -- lists of actions -- */

typedef struct memopt_i_list { /* what does not fit is counted */
    memopt_action *actions;
    size_t capacity, count;
    memopt_i_course *course; /* goes along; NULL = nobody */
    memopt_status status;    /* of the course */
} memopt_i_list;
static void memopt_i_list_add(memopt_i_list *l, memopt_op op, size_t index) {
    memopt_action action;
    action.op = (uint16_t)op; action.index = (uint16_t)index;
    if (l->count < l->capacity) l->actions[l->count] = action;
    ++l->count;
    if (l->course && !l->status) l->status = memopt_i_course_step(l->course, action);
}
/* Forward through segments first to last (not included); of the values on the way only the first and last stay. */
static void memopt_i_list_sweep(memopt_i_list *l, size_t first, size_t last) {
    size_t i;
    for (i = first; i < last; ++i) {
        memopt_i_list_add(l, MEMOPT_OP_FORWARD, i);
        if (i > first) memopt_i_list_add(l, MEMOPT_OP_DROP, i);
    }
}
/* Save all of segments first to last (not included), and reverse them. */
static void memopt_i_list_reverse(memopt_i_list *l, size_t first, size_t last) {
    size_t i;
    for (i = first; i < last; ++i) memopt_i_list_add(l, MEMOPT_OP_FORWARD_SAVE, i);
    for (i = last; i-- > first;) memopt_i_list_add(l, MEMOPT_OP_BACKWARD, i);
}
static size_t memopt_i_square_root(size_t n) { /* rounded up; n is small */
    size_t k = 1;
    while (k * k < n) ++k;
    return k;
}
/* Groups of k segments, of which each keeps its input only; the last segment is a group of its own, saved at once. */
static void memopt_i_list_groups(memopt_i_list *l, size_t count, size_t k) {
    const size_t head = count - 1, groups = (head + k - 1) / k; size_t g;
    for (g = 0; g < groups; ++g) memopt_i_list_sweep(l, g * k, memopt_i_min(head, g * k + k));
    memopt_i_list_reverse(l, head, count);
    for (g = groups; g-- > 0;) {
        const size_t last = memopt_i_min(head, g * k + k);
        memopt_i_list_add(l, MEMOPT_OP_DROP, last);
        memopt_i_list_reverse(l, g * k, last);
    }
}
/* Nothing but the input: every backward starts from it. */
static void memopt_i_list_none(memopt_i_list *l, size_t count) {
    size_t i;
    for (i = count; i-- > 0;) {
        memopt_i_list_sweep(l, 0, i);
        memopt_i_list_add(l, MEMOPT_OP_FORWARD_SAVE, i);
        memopt_i_list_add(l, MEMOPT_OP_BACKWARD, i);
        if (i) memopt_i_list_add(l, MEMOPT_OP_DROP, i);
    }
}
MEMOPT_API memopt_status memopt_schedule_textbook(const memopt_chain *chain, memopt_rule rule, size_t every,
                                                  memopt_action *actions, size_t capacity, size_t *count) {
    memopt_i_list list = { actions, capacity, 0, NULL, MEMOPT_OK }; memopt_status s = memopt_i_chain_check(chain);
    if (s) return s;
    if (!count || (capacity && !actions) || (rule == MEMOPT_RULE_EVERY && !every)) return MEMOPT_ERR_ARGUMENT;
    switch (rule) {
        case MEMOPT_RULE_ALL:   memopt_i_list_reverse(&list, 0, chain->count); break;
        case MEMOPT_RULE_NONE:  memopt_i_list_none(&list, chain->count); break;
        case MEMOPT_RULE_EVERY: memopt_i_list_groups(&list, chain->count, memopt_i_min(every, chain->count)); break;
        case MEMOPT_RULE_SQRT:  memopt_i_list_groups(&list, chain->count, memopt_i_square_root(chain->count)); break;
        default: return MEMOPT_ERR_ARGUMENT;
    }
    *count = list.count;
    return list.count > capacity ? MEMOPT_ERR_BUFFER : MEMOPT_OK;
}
/* Products as 64 bits, or the largest number when they do not fit. */
static uint64_t memopt_i_mul_capped(uint64_t a, uint64_t b) { return a && b > UINT64_MAX / a ? UINT64_MAX : a * b; }
MEMOPT_API uint64_t memopt_revolve_forwards(uint64_t segments, uint64_t slots) {
    const uint64_t l = segments, c = slots < l ? slots : l - 1; /* more slots change nothing */
    uint64_t r, reach = 1, t = 0, high, low; /* C(c + r, c) segments need r forwards each at the most */
    if (l < 2) return slots || !l ? 0 : UINT64_MAX;
    if (!slots) return UINT64_MAX;
    if (c == 1) return memopt_i_mul_capped(l % 2 ? l : l / 2, l % 2 ? (l - 1) / 2 : l - 1);
    for (r = 1; reach < l; ++r) { /* those beyond the reach run once more */
        if (t > UINT64_MAX - (l - reach)) return UINT64_MAX;
        t += l - reach;
        high = memopt_i_mul_capped(reach / r, c + r);
        low = memopt_i_mul_capped(reach % r, c + r) / r;
        reach = high > UINT64_MAX - low ? UINT64_MAX : high + low;
    }
    return t;
}
/* @section solver : course simd
   The fastest schedule of a chain for every budget at once.
   Problem    Which values to keep, which segments to save, what to make again: exponentially many schedules.
   Idea       Parts of the chain. To reverse segments s to t, with value s - 1 in memory: go forward to some j - 1, and
              either keep value j - 1 or save segment j - 1 there; reverse j to t, the right part, in the memory that is
              left; then s to j - 1, the left part, in all of it. Saved at its end already, the left part is a kind of
              its own, which has only to make the input of j - 1 again: a saved segment may stay while its input is
              dropped, which autograd engines cannot do and Rotor does not. REVOLVE is the same without saving, Rotor
              the same with j = s + 1 only when it saves. With a slow place, each way has a second form: the part's own
              input is away while the right part runs.
   Points     A part's row holds, for each threshold of memory, the least cost and the memory this takes exactly. What a
              threshold hides is only which of several good schedules close to each other is kept: what is taken is
              counted to the unit, so nothing adds up. Where the thresholds are no wider than a unit, the table is the
              recurrence. They do not depend on a budget, so more budget is never slower, and one table serves all.
   Skips      A state held between s and j - 1 holds the skips that pass it, once: of those that pass s - 1 as well, the
              part's input has them already. So what a cut takes depends on s, j and t, and the right part's row is
              shifted anew where it differs.
   Units      Memory in 2^k bytes, such that 28 bits suffice, rounded up; costs in 2^k, such that all forwards are below
              2^28, so that small whole numbers are exact. What is delivered is gone through again in bytes and doubles.
   Cost       count^3 / 6 times the slots (four times that with a slow place), 8 at a time; bound by memory beyond
              some hundred segments. So both kinds of left part are solved together: they read the same rows. A saved
              segment's input is made again over 32 segments at the most, which halves the table and costs nothing that
              was found.
   Source     Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova: arXiv:1911.13214 (Rotor); Herrmann, Pallez, ACM TOMS 46
              (2020), H-Revolve. */

#define MEMOPT_I_NO_COST   ((int32_t)0x1FFFFFFF) /* two of these, a transfer's as much, and forwards still fit */
#define MEMOPT_I_MOST_COST 268435456.0           /* 2^28: what any finite cost stays below */
#define MEMOPT_I_LEAST_SLOTS 16
#define MEMOPT_I_MOST_SLOTS  65535
#define MEMOPT_I_TABLE_BYTES ((size_t)64 << 20)  /* the default table */
#define MEMOPT_I_SCHEDULE_ALIGN 64
#define MEMOPT_I_SAME_COST   1e-12               /* what sums of the same costs may differ by, of the sum */
#define MEMOPT_I_NO_VALUE    UINT16_MAX
#define MEMOPT_I_SWEEP_MOST  32                  /* segments gone through again for the input of one that was saved */
#define MEMOPT_I_POLISH_MOST 2048                /* actions of a list; longer ones stay as they are */
#define MEMOPT_I_FOUND       3                   /* schedules of each point at the most: as it is, polished, and
                                                    polished further */
enum { /* tables: transfers at their cost; at none, so to say: never; and with overlap, at a quarter, and for nothing */
    MEMOPT_I_BLEND_FULL, MEMOPT_I_BLEND_NEVER, MEMOPT_I_BLEND_QUARTER, MEMOPT_I_BLEND_FREE, MEMOPT_I_BLENDS
};

/* a segment, from 1 on, and the value and gradient behind it; 0 is the input. In units */
typedef struct memopt_i_stage {
    uint32_t value, saved, copy;
    uint32_t grads;   /* alive while its backward is waited for: its output's gradient, and those of skips around it */
    uint32_t plain, saving; /* of a forward that keeps its output, or all it saves: that and the scratch */
    uint32_t reverse; /* of its backward: all but the value before it */
    int32_t  backward, before; /* costs; before: the forwards of all segments up to this one */
    int32_t  write[MEMOPT_I_BLENDS], read[MEMOPT_I_BLENDS];
} memopt_i_stage;
typedef struct memopt_i_cut { /* a part [s, t] cut before segment j: what going from s to j - 1 takes at the most */
    int64_t  plain, save;           /* when segment j - 1 saves nothing; when it saves */
    int64_t  plain_away, save_away; /* the same while the part's input moves to the slow place */
    uint32_t skips;                 /* bytes of skips that start in s..j - 1 and end in j..t */
} memopt_i_cut;
typedef struct memopt_i_shifted { /* a row of points as it looks when `more` bytes are taken by something else */
    int32_t  *cost;
    uint16_t *from;  /* the point of the row behind each cost */
    int64_t   more;
    size_t    first, last; /* the first that is feasible, the first with the final cost */
} memopt_i_shifted;
enum { /* ways to solve a part: keep value j - 1, or save segment j - 1; the part's own input may be away meanwhile */
    MEMOPT_I_KEEP, MEMOPT_I_SAVE, MEMOPT_I_KEEP_AWAY, MEMOPT_I_SAVE_AWAY, MEMOPT_I_WAYS
};
typedef struct memopt_i_found { /* a schedule of the whole chain */
    size_t   peak;  /* exact, like the cost: by going through it */
    double   cost;
    size_t   limit; /* bytes within which it was polished; 0: it was not */
    uint32_t blend, point; /* of the table; point `slots` keeps everything */
    uint32_t count;  /* actions */
} memopt_i_found;
struct memopt_schedule {
    memopt_chain    chain;
    memopt_slow     slow;
    memopt_rule     rule;
    unsigned        shift;  /* a unit of memory is 2^shift bytes, so that all of them fit 32 bits */
    double          unit;   /* of cost: a power of two */
    double          dearest; /* more than all forwards, as often as can be, nobody pays for a transfer */
    size_t          count, slots;
    size_t          cells, sweep; /* parts of the chain; the longest that are also solved saved at their end */
    uint32_t        fineness; /* of the grid */
    /* ways of a part: saved at its end or not, its input away or not, slow slots left */
    size_t          saves, aways, rooms;
    size_t          planes;              /* of those, what right parts can be: their input is never away */
    size_t          blends; /* tables */
    int             ways;   /* 4 or 2, without a slow place */
    int             limited, level; /* whether slow slots are; of SIMD */
    uint32_t       *grid;   /* slots thresholds, ascending */
    memopt_i_stage *stages; /* count + 1 */
    memopt_i_cut   *cuts;   /* of the part being solved, by j */
    memopt_i_shifted *shifted; /* of the column being solved: ways * planes * (count + 2) */
    int32_t        *cost;   /* a row of `slots` for each blend, plane and part: the least cost with memory grid[g]... */
    uint32_t       *need;   /* ...and the memory that this takes exactly */
    uint16_t       *first, *last; /* of each row: its first feasible point, or slots; the first with the final cost */
    uint32_t       *choice; /* of the two rows being solved: WAYS * j + way */
    /* of the whole chain: by peak, each cheaper than the one before. NEVER is among FULL */
    memopt_i_found *found[MEMOPT_I_BLENDS];
    size_t          found_count[MEMOPT_I_BLENDS];
    memopt_action  *list;   /* MEMOPT_I_POLISH_MOST: of the whole chain, while it is polished */
    size_t         *live;   /* bytes alive in each of its actions */
    void           *course; /* the state of a walk through a list */
};
typedef struct memopt_i_stretch { /* segments s to t, reversed; value s - 1 is in memory and not counted */
    size_t s, t;
    size_t save; /* 1: segment t is saved already */
    size_t away; /* 1: a copy of value s - 1 is in the slow place */
    size_t room; /* free slots there, when they are limited */
    size_t blend;
} memopt_i_stretch;
/* one way to solve a part: cut before j; first the right one of two, then the left one */
typedef struct memopt_i_choice {
    memopt_i_stretch right, left;
    memopt_i_shifted *shifted; /* of right parts, by j */
    size_t  rows;         /* the row of the left part of j is rows + j */
    int64_t grads;        /* alive before the right part's backward begins */
    int64_t away_more;    /* memory that the input takes while it is away: less than nothing */
    int32_t away_add;     /* what its transfers cost */
    int     way, saves, away;
    size_t  threshold;    /* the first grid point that is not below the check */
    /* from here on of this j: memory that the right part has less than the whole; what it takes to */
    int64_t more, check;
    int32_t add;          /* get there, and costs */
} memopt_i_choice;

static uint32_t memopt_i_choice_name(size_t j, int way) { return (uint32_t)(j * MEMOPT_I_WAYS) + (uint32_t)way; }

/* -- a chain in units -- */

static uint32_t memopt_i_units(const memopt_schedule *p, size_t bytes) { /* rounded up */
    return (uint32_t)((bytes >> p->shift) + ((bytes & (((size_t)1 << p->shift) - 1)) != 0));
}
static int32_t memopt_i_cost_units(const memopt_schedule *p, double cost) {
    return (int32_t)floor(cost / p->unit + 0.5);
}
static uint32_t memopt_i_max32(uint32_t a, uint32_t b) { return a > b ? a : b; }
static int64_t memopt_i_max64(int64_t a, int64_t b) { return a > b ? a : b; }
/* Skips that start in [first, last] and end in [begin, end]; segments count from 1. */
static uint32_t memopt_i_skips(const memopt_schedule *p, size_t first, size_t last, size_t begin, size_t end,
                               int grads) {
    const memopt_chain *c = &p->chain; uint32_t sum = 0; size_t k;
    for (k = 0; k < c->skip_count; ++k) {
        const size_t from = c->skips[k].from + 1, to = c->skips[k].to + 1;
        if (from < first || from > last || to < begin || to > end) continue;
        sum += memopt_i_units(p, grads ? c->skips[k].grad_bytes : c->skips[k].bytes);
    }
    return sum;
}
/* A gradient between segments. Input and last gradient are always there: they are taken off the budget beforehand. */
static uint32_t memopt_i_stage_grad(const memopt_schedule *p, size_t v) {
    return v < p->count ? memopt_i_units(p, memopt_i_chain_grad(&p->chain, v)) : 0;
}
static memopt_i_stage memopt_i_stage_of(const memopt_schedule *p, size_t i) { /* sizes only */
    const memopt_chain *c = &p->chain; memopt_i_stage stage;
    memset(&stage, 0, sizeof stage);
    stage.value = memopt_i_units(p, memopt_i_chain_value(c, i));
    stage.copy = memopt_i_units(p, memopt_i_chain_copy(c, i));
    stage.grads = memopt_i_stage_grad(p, i) + memopt_i_skips(p, 1, i, i + 1, c->count, 1);
    if (i) {
        const memopt_segment *s = &c->segments[i - 1];
        stage.saved = memopt_i_units(p, s->saved_bytes);
        stage.saving = stage.saved + memopt_i_units(p, s->forward_scratch);
        stage.plain = stage.value + memopt_i_units(p, memopt_i_chain_plain(s));
        stage.reverse = stage.saved + memopt_i_units(p, s->backward_scratch) + memopt_i_stage_grad(p, i)
                      + memopt_i_stage_grad(p, i - 1) + memopt_i_skips(p, 1, i, i, c->count, 1);
    }
    return stage;
}
/* Memory between these two is of interest: from that of small segments alone to that of keeping everything. */
static void memopt_i_schedule_range(const memopt_schedule *p, uint32_t *low, uint32_t *high) {
    const size_t n = p->count; size_t i;
    uint32_t all = 0, least = UINT32_MAX, most = 0, plain = 0, waiting = 0, values = 0;
    const uint32_t grads = memopt_i_stage_of(p, n).grads;
    for (i = n; i; --i) { /* all: of segments i to n, all saved */
        const memopt_i_stage g = memopt_i_stage_of(p, i);
        const uint32_t single = memopt_i_max32(g.grads + g.saving, g.reverse);
        const uint32_t skips = memopt_i_skips(p, i, i, i + 1, n, 0);
        if (single < least) least = single;
        most = memopt_i_max32(most, single);
        plain = memopt_i_max32(plain, g.plain);
        waiting = memopt_i_max32(waiting, g.grads);
        values += g.value + skips;
        all = memopt_i_max32(memopt_i_max32(grads + g.saving + skips, g.reverse), i < n ? g.saved + skips + all : 0);
    }
    /* all values, and one segment at a time */
    if (p->rule == MEMOPT_RULE_REVOLVE) all = values + memopt_i_max32(most, plain + waiting);
    *high = all;
    *low = memopt_i_max32(least, most / 4); /* below it a part has one point only */
}
/* How many thresholds there are, at most `most` + 1. They grow by 64 in `per` of themselves, and where there is little
   memory by less, down to 1: that is where a few checkpoints make all the difference. */
static size_t memopt_i_schedule_thresholds(uint32_t low, uint32_t high, uint32_t per, size_t most, uint32_t *grid) {
    size_t n = 0; uint32_t m = low;
    for (;;) {
        const uint64_t step = (uint64_t)m * m * 64 / ((uint64_t)per * (m + high / 32) + 1);
        if (grid) grid[n] = n + 1 < most ? m : high;
        ++n;
        if (m >= high || n > most || (grid && n == most)) return n;
        m += step < high - m ? memopt_i_max32(1, (uint32_t)step) : high - m;
    }
}
static uint32_t memopt_i_schedule_fineness(uint32_t low, uint32_t high, size_t slots) { /* the finest that fits */
    uint32_t fits = 1, fails = UINT32_MAX;
    if (memopt_i_schedule_thresholds(low, high, fails, slots, NULL) <= slots) return fails;
    while (fails - fits > 1) {
        const uint32_t middle = fits + (fails - fits) / 2;
        if (memopt_i_schedule_thresholds(low, high, middle, slots, NULL) <= slots) fits = middle;
        else fails = middle;
    }
    return fits;
}

/* -- layout -- */

static size_t memopt_i_schedule_cells(const memopt_schedule *p) { /* saved at their end or not */
    return p->cells + (p->saves == 2 ? p->count * p->sweep : 0);
}
static size_t memopt_i_schedule_shifted(const memopt_schedule *p) {
    return (size_t)p->ways * p->planes * (p->count + 2);
}
/* A part of the block: its bytes are counted, and it lies at `base` when there is one. */
static void *memopt_i_schedule_carve(unsigned char *base, size_t *used, size_t count, size_t size, int *wraps) {
    const size_t at = *used; size_t bytes;
    *wraps |= memopt_i_mul(count, size, &bytes);
    *wraps |= memopt_i_add(at, bytes, used);
    *wraps |= memopt_i_align_up(*used, MEMOPT_I_SCHEDULE_ALIGN, used);
    return base ? base + at : NULL;
}
static memopt_status memopt_i_schedule_layout(memopt_schedule *p, unsigned char *base, size_t *bytes) {
    const size_t shifted = memopt_i_schedule_shifted(p); size_t used = 0, k, rows, points; int wraps = 0;
    int32_t *cost; uint16_t *from;
    memopt_i_schedule_carve(base, &used, 1, sizeof *p, &wraps);
    p->grid = (uint32_t *)memopt_i_schedule_carve(base, &used, p->slots, sizeof *p->grid, &wraps);
    p->stages = (memopt_i_stage *)memopt_i_schedule_carve(base, &used, p->count + 1, sizeof *p->stages, &wraps);
    p->cuts = (memopt_i_cut *)memopt_i_schedule_carve(base, &used, p->count + 2, sizeof *p->cuts, &wraps);
    p->choice = (uint32_t *)memopt_i_schedule_carve(base, &used, 2 * p->slots, sizeof *p->choice, &wraps);
    for (k = 0; k < p->blends; ++k) /* all of FULL and NEVER could be in one */
        p->found[k] = (memopt_i_found *)memopt_i_schedule_carve(base, &used, 2 * MEMOPT_I_FOUND * p->slots + 1,
                                                                sizeof **p->found, &wraps);
    p->list = (memopt_action *)memopt_i_schedule_carve(base, &used, MEMOPT_I_POLISH_MOST, sizeof *p->list, &wraps);
    p->live = (size_t *)memopt_i_schedule_carve(base, &used, MEMOPT_I_POLISH_MOST, sizeof *p->live, &wraps);
    wraps |= memopt_i_course_bytes(&p->chain, &k);
    p->course = memopt_i_schedule_carve(base, &used, k, 1, &wraps);
    p->shifted = (memopt_i_shifted *)memopt_i_schedule_carve(base, &used, shifted, sizeof *p->shifted, &wraps);
    wraps |= memopt_i_mul(shifted, p->slots, &points);
    cost = (int32_t *)memopt_i_schedule_carve(base, &used, points, sizeof *cost, &wraps);
    from = (uint16_t *)memopt_i_schedule_carve(base, &used, points, sizeof *from, &wraps);
    wraps |= memopt_i_mul(p->blends * p->rooms * p->aways, memopt_i_schedule_cells(p), &rows);
    wraps |= memopt_i_mul(rows, p->slots, &points);
    p->first = (uint16_t *)memopt_i_schedule_carve(base, &used, rows, sizeof *p->first, &wraps);
    p->last = (uint16_t *)memopt_i_schedule_carve(base, &used, rows, sizeof *p->last, &wraps);
    p->cost = (int32_t *)memopt_i_schedule_carve(base, &used, points, sizeof *p->cost, &wraps);
    p->need = (uint32_t *)memopt_i_schedule_carve(base, &used, points, sizeof *p->need, &wraps);
    for (k = 0; base && k < shifted; ++k) {
        p->shifted[k].cost = cost + k * p->slots;
        p->shifted[k].from = from + k * p->slots;
    }
    *bytes = used;
    return wraps ? MEMOPT_ERR_OVERFLOW : MEMOPT_OK;
}
/* What the solver takes a transfer for. */
static double memopt_i_transfer_cost(const memopt_schedule *p, double cost) {
    return cost < p->dearest ? cost : p->dearest;
}
/* All of a schedule that does not lie behind it: checked, and counted. */
static memopt_status memopt_i_schedule_shape(const memopt_schedule_desc *d, memopt_schedule *p) {
    size_t total, k; uint32_t low, high; double most = 0;
    memopt_status s = d ? memopt_i_chain_check(&d->chain) : MEMOPT_ERR_ARGUMENT;
    if (s) return s;
    if (d->rule > MEMOPT_RULE_REVOLVE || memopt_i_slow_check(&d->slow)) return MEMOPT_ERR_ARGUMENT;
    if (d->slots && (d->slots < MEMOPT_I_LEAST_SLOTS || d->slots > MEMOPT_I_MOST_SLOTS)) return MEMOPT_ERR_ARGUMENT;
    memset(p, 0, sizeof *p);
    p->chain = d->chain; p->rule = d->rule; p->count = d->chain.count;
    if (d->slow.slots) p->slow = d->slow;
    memopt_i_chain_total(&d->chain, &total);
    while (total >> p->shift > UINT32_MAX / 16) ++p->shift;
    p->limited = p->slow.slots && p->slow.slots < p->count;
    p->saves = p->rule == MEMOPT_RULE_REVOLVE ? 1 : 2;
    p->aways = p->slow.slots ? 2 : 1;
    p->ways = p->slow.slots ? MEMOPT_I_WAYS : MEMOPT_I_KEEP_AWAY;
    p->rooms = p->limited ? p->slow.slots + 1 : 1;
    p->planes = p->saves * p->rooms;
    p->blends = !p->slow.slots ? 1 : !p->slow.overlap ? 2 : MEMOPT_I_BLENDS;
    p->cells = p->count * (p->count + 1) / 2;
    p->sweep = p->rule == MEMOPT_RULE_EXTENDED ? memopt_i_min(p->count, MEMOPT_I_SWEEP_MOST) : 1;
    for (k = 0; k < p->count; ++k) {
        p->dearest += p->chain.segments[k].forward_cost * (double)p->count;
        most += p->chain.segments[k].backward_cost;
    }
    most += p->dearest;
    if (!memopt_i_cost_ok(most)) return MEMOPT_ERR_OVERFLOW;
    p->unit = 1;
    while (most > p->unit * MEMOPT_I_MOST_COST) p->unit *= 2;
    while (most > 0 && most * 2 <= p->unit * MEMOPT_I_MOST_COST && p->unit > 1e-300) p->unit /= 2;
    memopt_i_schedule_range(p, &low, &high);
    p->slots = d->slots;
    if (!p->slots) { /* as many as fit the default table */
        for (p->slots = 16384; p->slots > 280; p->slots -= p->slots / 32)
            if (!memopt_i_schedule_layout(p, NULL, &total) && total <= MEMOPT_I_TABLE_BYTES) break;
        p->slots = memopt_i_max(p->slots, 280);
    }
    p->fineness = memopt_i_schedule_fineness(low, high, p->slots);
    p->slots = memopt_i_min(p->slots, memopt_i_schedule_thresholds(low, high, p->fineness, p->slots, NULL));
    return MEMOPT_OK;
}

/* -- solving -- */

static size_t memopt_i_row(const memopt_schedule *p, const memopt_i_stretch *a) {
    const size_t q = a->s - 1, plane = (a->blend * p->rooms + a->room) * p->aways + a->away;
    const size_t cell = a->save ? p->cells + q * p->sweep : q * p->count - q * (q - (q != 0)) / 2;
    return plane * memopt_i_schedule_cells(p) + cell + a->t - a->s;
}
static size_t memopt_i_threshold(const memopt_schedule *p, uint32_t memory) { /* the first that is not below it */
    size_t low = 0, high = p->slots;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (p->grid[middle] < memory) low = middle + 1;
        else high = middle;
    }
    return low;
}
/* The last point of a row that takes no more than `memory`, or slots when there is none. */
static size_t memopt_i_point_within(const memopt_schedule *p, size_t row, int64_t memory) {
    const uint32_t *need = p->need + row * p->slots; size_t low = p->first[row], high = p->slots;
    if (low == p->slots || (int64_t)need[low] > memory) return p->slots;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if ((int64_t)need[middle] <= memory) low = middle;
        else high = middle;
    }
    return low;
}
/* For every j, what segments s to j - 1 take beside the part's input and the gradients. */
static void memopt_i_stretch_cuts(const memopt_schedule *p, size_t s, size_t t) {
    const int64_t input = p->stages[s - 1].value, copy = p->stages[s - 1].copy;
    int64_t plain = 0, plain_away = 0; size_t i;
    for (i = s; i < t; ++i) {
        const memopt_i_stage *stage = &p->stages[i]; memopt_i_cut *cut = &p->cuts[i + 1];
        const int64_t out = i == s ? copy : copy - input; /* of the input's own memory, when it moves away */
        int64_t around = i > s ? p->stages[i - 1].value : 0, save;
        cut->skips = 0;
        if (p->chain.skip_count) {
            around += memopt_i_skips(p, s, i, i, t, 0);
            cut->skips = memopt_i_skips(p, s, i, i + 1, t, 0);
        }
        save = around + stage->saving;
        cut->save = memopt_i_max64(plain, save);
        cut->save_away = memopt_i_max64(plain_away, save + out);
        cut->plain = plain = memopt_i_max64(plain, around + stage->plain);
        cut->plain_away = plain_away = memopt_i_max64(plain_away, around + stage->plain + out);
    }
}
/* One way to solve a part, whatever j; 0 when that cannot be. */
static int memopt_i_choice_begin(const memopt_schedule *p, const memopt_i_stretch *a, int way, memopt_i_choice *c) {
    const memopt_i_stage *input = &p->stages[a->s - 1]; size_t plane;
    const int away = way >= MEMOPT_I_KEEP_AWAY, writes = away && !a->away;
    c->way = way; c->saves = way == MEMOPT_I_SAVE || way == MEMOPT_I_SAVE_AWAY; c->away = away;
    c->threshold = 0;
    if (c->saves && p->saves == 1) return 0;
    if (away && (input->copy >= input->value || (writes && p->limited && !a->room))) return 0;
    c->right = *a; c->right.away = 0; c->right.room -= (size_t)(writes && p->limited);
    c->left = *a; c->left.save = (size_t)c->saves;
    /* a copy that takes memory is not kept on */
    if (away && !input->copy) { c->left.away = 1; c->left.room = c->right.room; }
    c->grads = (int64_t)p->stages[a->t].grads + (a->save ? p->stages[a->t].saved : 0);
    c->away_more = away ? (int64_t)input->copy - input->value : 0;
    c->away_add = away ? input->read[a->blend] + (writes ? input->write[a->blend] : 0) : 0;
    plane = c->right.room * p->saves + c->right.save;
    c->shifted = &p->shifted[((size_t)way * p->planes + plane) * (p->count + 2)];
    c->left.t = a->s;
    c->rows = memopt_i_row(p, &c->left) - a->s - 1;
    return 1;
}
static int memopt_i_choice_at(const memopt_schedule *p, const memopt_i_stretch *a, size_t j, memopt_i_choice *c) {
    const memopt_i_stage *input = &p->stages[a->s - 1], *last = &p->stages[j - 1];
    const memopt_i_cut *cut = &p->cuts[j];
    if (c->saves && j - 1 - a->s >= p->sweep) return 0;
    c->right.s = j; c->left.t = j - 1;
    c->add = last->before - input->before + c->away_add;
    c->more = (int64_t)(c->saves ? last->saved : last->value) + cut->skips + c->away_more;
    if (!c->away) { c->check = c->grads + (c->saves ? cut->save : cut->plain); return 1; }
    /* and the way back of the input: */
    c->check = memopt_i_max64(c->grads + (c->saves ? cut->save_away : cut->plain_away),
                              (int64_t)last->grads + (c->saves ? last->saved : 0) + input->copy);
    return 1;
}
/* The right one's row as the whole part sees it: `more` memory is taken. */
static void memopt_i_choice_shift(const memopt_schedule *p, const memopt_i_choice *c, memopt_i_shifted *to) {
    const size_t row = memopt_i_row(p, &c->right), slots = p->slots, first = p->first[row];
    const int32_t *cost = p->cost + row * slots; const uint32_t *need = p->need + row * slots;
    size_t g, h = first;
    to->more = c->more; to->first = slots; to->last = 0;
    for (g = 0; g < slots; ++g) {
        while (h < slots && (int64_t)need[h] <= (int64_t)p->grid[g] - c->more) ++h;
        to->cost[g] = MEMOPT_I_NO_COST;
        if (h == first) continue;
        if (to->first == slots) to->first = g;
        to->cost[g] = cost[h - 1]; to->from[g] = (uint16_t)(h - 1);
        if (to->first == g || to->cost[g] < to->cost[g - 1]) to->last = g;
    }
}
static const memopt_i_shifted *memopt_i_choice_right(const memopt_schedule *p, const memopt_i_choice *c) {
    memopt_i_shifted *to = c->shifted + c->right.s;
    if (to->more != c->more) memopt_i_choice_shift(p, c, to);
    return to;
}
/* cost[g] = min(cost[g], right[g] + left[g] + add), and whose it is. */
static void memopt_i_relax_scalar(int32_t *cost, uint32_t *choice, const int32_t *right, const int32_t *left,
                                  int32_t add, uint32_t name, size_t n) {
    size_t g;
    for (g = 0; g < n; ++g) {
        const int32_t sum = right[g] + left[g] + add;
        choice[g] = sum < cost[g] ? name : choice[g];
        cost[g] = sum < cost[g] ? sum : cost[g];
    }
}
#ifdef MEMOPT_I_X86
MEMOPT_I_AVX2 static void memopt_i_relax_avx2(int32_t *cost, uint32_t *choice, const int32_t *right,
                                              const int32_t *left, int32_t add, uint32_t name, size_t n) {
    const __m256i adds = _mm256_set1_epi32(add), names = _mm256_set1_epi32((int)name); size_t g;
    for (g = 0; g + 8 <= n; g += 8) {
        const __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)(right + g));
        const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(left + g));
        const __m256i old = _mm256_loadu_si256((const __m256i *)(const void *)(cost + g));
        const __m256i was = _mm256_loadu_si256((const __m256i *)(const void *)(choice + g));
        const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(a, b), adds), less = _mm256_cmpgt_epi32(old, sum);
        _mm256_storeu_si256((__m256i *)(void *)(cost + g), _mm256_min_epi32(old, sum));
        _mm256_storeu_si256((__m256i *)(void *)(choice + g), _mm256_blendv_epi8(was, names, less));
    }
    memopt_i_wide_end(MEMOPT_SIMD_AVX2);
    memopt_i_relax_scalar(cost + g, choice + g, right + g, left + g, add, name, n - g);
}
#endif
static void memopt_i_relax(const memopt_schedule *p, int32_t *cost, uint32_t *choice, const int32_t *right,
                           const int32_t *left, int32_t add, uint32_t name, size_t n) {
#ifdef MEMOPT_I_X86
    if (p->level >= MEMOPT_SIMD_AVX2) { memopt_i_relax_avx2(cost, choice, right, left, add, name, n); return; }
#endif
    (void)p;
    memopt_i_relax_scalar(cost, choice, right, left, add, name, n);
}
/* Solve part a, of which choice c is one way, by cutting it before j. */
static void memopt_i_stretch_try(const memopt_schedule *p, const memopt_i_stretch *a, size_t j, memopt_i_choice *c) {
    const memopt_i_shifted *right; const size_t left = c->rows + j, row = memopt_i_row(p, a) * p->slots; size_t g, end;
    if (!memopt_i_choice_at(p, a, j, c) || c->check > (int64_t)p->grid[p->slots - 1]) return;
    right = memopt_i_choice_right(p, c);
    g = memopt_i_max(right->first, p->first[left]);
    if (g == p->slots) return;
    while (c->threshold && (int64_t)p->grid[c->threshold - 1] >= c->check) --c->threshold;
    while ((int64_t)p->grid[c->threshold] < c->check) ++c->threshold; /* checks rise with j: it is near */
    g = memopt_i_max(g, c->threshold);
    end = 1 + memopt_i_max(g, memopt_i_max(right->last, p->last[left])); /* beyond it nothing changes */
    memopt_i_relax(p, p->cost + row + g, p->choice + a->save * p->slots + g, right->cost + g,
                   p->cost + left * p->slots + g, c->add, memopt_i_choice_name(j, c->way), end - g);
}
/* The memory that a choice takes exactly, when it is given grid[g]. */
static uint32_t memopt_i_stretch_need(const memopt_schedule *p, const memopt_i_stretch *a, uint32_t name, size_t g) {
    memopt_i_choice c; int64_t need; const memopt_i_shifted *right;
    memopt_i_choice_begin(p, a, (int)(name % MEMOPT_I_WAYS), &c);
    memopt_i_choice_at(p, a, name / MEMOPT_I_WAYS, &c);
    right = memopt_i_choice_right(p, &c);
    need = (int64_t)p->need[memopt_i_row(p, &c.right) * p->slots + right->from[g]] + c.more;
    need = memopt_i_max64(need, p->need[memopt_i_row(p, &c.left) * p->slots + g]);
    return (uint32_t)memopt_i_max64(need, c.check);
}
/* Whoever gets no better result from more memory does not take it. */
static void memopt_i_stretch_finish(const memopt_schedule *p, const memopt_i_stretch *a, size_t row) {
    int32_t *cost = p->cost + row * p->slots; uint32_t *need = p->need + row * p->slots; size_t g;
    p->first[row] = (uint16_t)p->slots; p->last[row] = 0;
    for (g = 0; g < p->slots; ++g) {
        if (p->first[row] < p->slots && cost[g] >= cost[g - 1]) {
            cost[g] = cost[g - 1]; need[g] = need[g - 1];
            continue;
        }
        need[g] = UINT32_MAX;
        if (cost[g] == MEMOPT_I_NO_COST) continue;
        if (p->first[row] == p->slots) p->first[row] = (uint16_t)g;
        p->last[row] = (uint16_t)g;
        need[g] = memopt_i_stretch_need(p, a, p->choice[a->save * p->slots + g], g);
    }
}
static void memopt_i_stretch_single(const memopt_schedule *p, const memopt_i_stretch *a, size_t row) { /* one segment */
    const memopt_i_stage *stage = &p->stages[a->t];
    const uint32_t need = a->save ? stage->reverse : memopt_i_max32(stage->grads + stage->saving, stage->reverse);
    const int32_t cost = stage->backward + (a->save ? 0 : stage->before - p->stages[a->t - 1].before);
    const size_t first = memopt_i_threshold(p, need); size_t g;
    p->first[row] = p->last[row] = (uint16_t)first;
    for (g = 0; g < p->slots; ++g) {
        p->cost[row * p->slots + g] = g < first ? MEMOPT_I_NO_COST : cost;
        p->need[row * p->slots + g] = g < first ? UINT32_MAX : need;
    }
}
/* A part of several segments, not saved at its end and saved: both read the same left parts, from far memory. */
static void memopt_i_stretch_solve(const memopt_schedule *p, const memopt_i_stretch *parts, size_t count) {
    memopt_i_choice c[MEMOPT_I_WAYS][2]; int can[MEMOPT_I_WAYS][2], way; size_t g, j, k;
    for (k = 0; k < count; ++k) {
        int32_t *cost = p->cost + memopt_i_row(p, &parts[k]) * p->slots;
        for (g = 0; g < p->slots; ++g) cost[g] = MEMOPT_I_NO_COST;
        for (way = 0; way < p->ways; ++way) can[way][k] = memopt_i_choice_begin(p, &parts[k], way, &c[way][k]);
    }
    for (j = parts->s + 1; j <= parts->t; ++j)
        for (way = 0; way < p->ways; ++way)
            for (k = 0; k < count; ++k)
                if (can[way][k]) memopt_i_stretch_try(p, &parts[k], j, &c[way][k]);
    for (k = 0; k < count; ++k) memopt_i_stretch_finish(p, &parts[k], memopt_i_row(p, &parts[k]));
}
/* All parts that end with segment t. One that is saved at its end lies left of something, so t is not the last, and
   is no longer than a sweep may be. */
static void memopt_i_schedule_column(const memopt_schedule *p, size_t blend, size_t t) {
    memopt_i_stretch parts[2]; size_t k, s, away, room;
    for (k = 0; k < memopt_i_schedule_shifted(p); ++k) p->shifted[k].more = INT64_MIN;
    for (s = t; s; --s) {
        memopt_i_stretch_cuts(p, s, t);
        for (room = 0; room < p->rooms; ++room)
            for (away = 0; away < p->aways; ++away) {
                for (k = 0; k < 2; ++k) {
                    parts[k].s = s; parts[k].t = t; parts[k].save = k; parts[k].away = away; parts[k].room = room;
                    parts[k].blend = blend;
                    if (s == t && k < p->saves) memopt_i_stretch_single(p, &parts[k], memopt_i_row(p, &parts[k]));
                }
                if (s < t) memopt_i_stretch_solve(p, parts, p->saves == 2 && t < p->count && t - s < p->sweep ? 2 : 1);
            }
    }
}

/* -- reading the table -- */

/* How point *g of a part was reached: the first choice with its cost, as the solver went through them. Returns the
   right part's point; the left's is *g, moved to the first with the same cost. */
MEMOPT_I_NOINLINE static size_t memopt_i_stretch_choice(const memopt_schedule *p, const memopt_i_stretch *a, size_t *g,
                                      memopt_i_choice *out) {
    const size_t row = memopt_i_row(p, a); const int32_t *cost = p->cost + row * p->slots; size_t j; int way;
    memopt_i_choice ways[MEMOPT_I_WAYS]; int can[MEMOPT_I_WAYS];
    while (*g > p->first[row] && cost[*g - 1] == cost[*g]) --*g;
    memopt_i_stretch_cuts(p, a->s, a->t);
    for (way = 0; way < p->ways; ++way) can[way] = memopt_i_choice_begin(p, a, way, &ways[way]);
    for (j = a->s + 1; j <= a->t; ++j)
        for (way = 0; way < p->ways; ++way) {
            const int64_t memory = p->grid[*g]; memopt_i_choice *c = &ways[way]; int32_t left; size_t h;
            if (!can[way] || !memopt_i_choice_at(p, a, j, c) || c->check > memory) continue;
            left = p->cost[(c->rows + j) * p->slots + *g];
            h = memopt_i_point_within(p, memopt_i_row(p, &c->right), memory - c->more);
            if (h == p->slots) continue;
            if (p->cost[memopt_i_row(p, &c->right) * p->slots + h] + left + c->add != cost[*g]) continue;
            *out = *c;
            return h;
        }
    MEMOPT_ASSERT(0);
    return p->slots;
}
/* Forward through the segments before the right part, and the input out of the way. */
static void memopt_i_emit_forward(const memopt_i_stretch *a, const memopt_i_choice *c, memopt_i_list *l) {
    const int writes = c->away && !a->away; size_t i;
    if (writes) memopt_i_list_add(l, MEMOPT_OP_WRITE, a->s - 1);
    for (i = a->s; i < c->right.s; ++i) {
        memopt_i_list_add(l, c->saves && i == c->left.t ? MEMOPT_OP_FORWARD_SAVE : MEMOPT_OP_FORWARD, i - 1);
        if (i == a->s && writes) memopt_i_list_add(l, MEMOPT_OP_WAIT, i - 1);
        if (i > a->s || c->away) memopt_i_list_add(l, MEMOPT_OP_DROP, i - 1);
    }
}
static void memopt_i_emit(const memopt_schedule *p, const memopt_i_stretch *a, size_t g, memopt_i_list *l) {
    memopt_i_choice c; size_t h; const uint32_t copy = p->stages[a->s - 1].copy;
    if (a->s == a->t) {
        if (!a->save) memopt_i_list_add(l, MEMOPT_OP_FORWARD_SAVE, a->t - 1);
        memopt_i_list_add(l, MEMOPT_OP_BACKWARD, a->t - 1);
        return;
    }
    h = memopt_i_stretch_choice(p, a, &g, &c);
    if (h == p->slots) return;
    memopt_i_emit_forward(a, &c, l);
    memopt_i_emit(p, &c.right, h, l);
    if (!c.saves) memopt_i_list_add(l, MEMOPT_OP_DROP, c.left.t);
    if (c.away) {
        memopt_i_list_add(l, MEMOPT_OP_READ, a->s - 1);
        memopt_i_list_add(l, MEMOPT_OP_WAIT, a->s - 1);
        if (copy) memopt_i_list_add(l, MEMOPT_OP_FORGET, a->s - 1);
    }
    memopt_i_emit(p, &c.left, g, l);
    if (c.away && !copy && !a->away) memopt_i_list_add(l, MEMOPT_OP_FORGET, a->s - 1);
}
static memopt_i_stretch memopt_i_schedule_whole(const memopt_schedule *p, size_t blend) {
    memopt_i_stretch a;
    memset(&a, 0, sizeof a);
    a.s = 1; a.t = p->count; a.room = p->rooms - 1; a.blend = blend;
    return a;
}
/* @section schedule : solver
   From the table to schedules: what was found for the whole chain, each gone through to the byte.
   Polish     In the table what is kept stays until its own backward. Better schedules exist where a value stays for a
              while only: a list that drops a value and makes it again is searched for such, within its peak, and within
              a byte less than the next point's. This finds the optimum for 98.4% of small random chains, the recurrence
              alone 97%.
   Overlap    Transfers beside the computing: the schedule for transfers that are waited for is relaxed, as far as
              memory allows: what is written is dropped later, reads begin earlier. A move that does not save time is
              not made. So it is never slower; it is tried for tables with full, cheap and free transfers, and the best
              is taken.
   Invariant  The list of those found is by peak, each cheaper than the one before. */

/* A list as it is emitted, with its exact peak and cost. */
static memopt_status memopt_i_schedule_emit(const memopt_schedule *p, size_t blend, size_t g, memopt_action *actions,
                                            size_t capacity, memopt_i_found *found) {
    const memopt_i_stretch whole = memopt_i_schedule_whole(p, blend);
    memopt_i_course course; memopt_i_list l; double extra;
    memset(&l, 0, sizeof l); l.actions = actions; l.capacity = capacity; l.course = &course;
    memopt_i_course_begin(&course, &p->chain, &p->slow, p->course);
    course.slow.overlap = 0;
    if (g == p->slots) memopt_i_list_reverse(&l, 0, p->count);
    else memopt_i_emit(p, &whole, g, &l);
    MEMOPT_ASSERT(!l.status && memopt_i_course_ended(&course));
    found->peak = course.peak; found->cost = memopt_i_chain_cost(&p->chain, course.runs, course.waited, &extra);
    found->limit = 0; found->blend = (uint32_t)blend; found->point = (uint32_t)g; found->count = (uint32_t)l.count;
    return l.status;
}
/* Polishing: a value that is dropped and made again could have stayed, where memory is left between. The table does not
   know such values: there, what is kept stays until its own backward. Deleted actions become DROP of no value. */
static int memopt_i_polish_is(const memopt_schedule *p, size_t t, memopt_op op, size_t index) {
    return p->list[t].op == op && p->list[t].index == index;
}
static void memopt_i_polish_delete(const memopt_schedule *p, size_t t) {
    p->list[t].op = MEMOPT_OP_DROP; p->list[t].index = MEMOPT_I_NO_VALUE;
}
static void memopt_i_polish_live(const memopt_schedule *p, size_t count) { /* bytes alive in each action */
    memopt_i_course course; size_t t;
    memopt_i_course_begin(&course, &p->chain, &p->slow, p->course);
    for (t = 0; t < count; ++t) {
        course.peak = course.live;
        memopt_i_course_step(&course, p->list[t]);
        p->live[t] = course.peak;
    }
}
/* Where value v, dropped at t, is made again by a plain forward; count when it is not. */
static size_t memopt_i_polish_again(const memopt_schedule *p, size_t t, size_t count) {
    const size_t v = p->list[t].index;
    if (p->list[t].op != MEMOPT_OP_DROP || v == MEMOPT_I_NO_VALUE || !v) return count;
    for (++t; t < count; ++t) {
        if (memopt_i_polish_is(p, t, MEMOPT_OP_FORWARD, v - 1)) return t;
        if (memopt_i_polish_is(p, t, MEMOPT_OP_FORWARD_SAVE, v - 1)) return count;
        if (memopt_i_polish_is(p, t, MEMOPT_OP_READ, v)) return count;
    }
    return count;
}
/* a value, and the skips that it keeps alive */
static size_t memopt_i_polish_bytes(const memopt_schedule *p, size_t v) {
    size_t bytes = memopt_i_chain_value(&p->chain, v), k;
    for (k = 0; k < p->chain.skip_count; ++k)
        if (p->chain.skips[k].from < v && v <= p->chain.skips[k].to) bytes += p->chain.skips[k].bytes;
    return bytes;
}
static int memopt_i_polish_fits(const memopt_schedule *p, size_t t, size_t again, size_t limit) {
    const size_t bytes = memopt_i_polish_bytes(p, p->list[t].index);
    for (++t; t < again; ++t)
        if (p->live[t] + bytes > limit) return 0;
    return 1;
}
static int memopt_i_polish_uses(const memopt_schedule *p, size_t t, size_t v) { /* whether action t needs value v */
    const memopt_action a = p->list[t];
    switch (a.op) {
        case MEMOPT_OP_FORWARD: return a.index == v;
        case MEMOPT_OP_FORWARD_SAVE: case MEMOPT_OP_BACKWARD: return a.index == v || a.index + 1u == v;
        case MEMOPT_OP_WRITE: case MEMOPT_OP_READ: return a.index == v;
        default: return 0;
    }
}
/* Forward t is not needed any more. Its input may have been made for it alone: then neither is that, nor what that was
   made of. Returns what these forwards cost; deletes them only when that is wanted. */
static double memopt_i_polish_unmake(const memopt_schedule *p, size_t t, size_t count, int really) {
    double gain = 0;
    for (;;) {
        const size_t u = p->list[t].index; size_t made = t, dropped = t;
        gain += p->chain.segments[u].forward_cost;
        if (really) memopt_i_polish_delete(p, t);
        while (++dropped < count && !memopt_i_polish_is(p, dropped, MEMOPT_OP_DROP, u))
            if (memopt_i_polish_uses(p, dropped, u)) return gain;
        if (!u || dropped == count) return gain;
        while (made && !memopt_i_polish_is(p, made - 1, MEMOPT_OP_FORWARD, u - 1))
            if (memopt_i_polish_uses(p, --made, u)) return gain;
        if (!made) return gain;
        if (really) memopt_i_polish_delete(p, dropped);
        t = made - 1;
    }
}
/* Let values stay, the most rewarding first, as long as no more than `limit` bytes are alive. Returns the new count. */
static size_t memopt_i_polish(const memopt_schedule *p, size_t count, size_t limit) {
    size_t t, n = 0;
    memopt_i_polish_live(p, count);
    for (;;) {
        size_t best = count, bytes; double most = 0;
        for (t = 0; t < count; ++t) {
            const size_t again = memopt_i_polish_again(p, t, count);
            if (again == count || !memopt_i_polish_fits(p, t, again, limit)) continue;
            if (memopt_i_polish_unmake(p, again, count, 0) <= most) continue;
            best = t; most = memopt_i_polish_unmake(p, again, count, 0);
        }
        if (best == count) break;
        bytes = memopt_i_polish_bytes(p, p->list[best].index);
        n = memopt_i_polish_again(p, best, count);
        for (t = best; t < n; ++t) p->live[t] += bytes;
        memopt_i_polish_unmake(p, n, count, 1);
        memopt_i_polish_delete(p, best);
    }
    for (t = n = 0; t < count; ++t)
        if (!memopt_i_polish_is(p, t, MEMOPT_OP_DROP, MEMOPT_I_NO_VALUE)) p->list[n++] = p->list[t];
    return n;
}
/* A point's list in p->list, polished within `limit`; ERR_BUFFER when it is too long for that. */
static memopt_status memopt_i_schedule_polished(const memopt_schedule *p, size_t blend, size_t g, size_t limit,
                                                memopt_i_found *found) {
    memopt_i_course course; size_t t; double extra; memopt_status s;
    s = memopt_i_schedule_emit(p, blend, g, p->list, MEMOPT_I_POLISH_MOST, found);
    if (s || found->count > MEMOPT_I_POLISH_MOST) return s ? s : MEMOPT_ERR_BUFFER;
    found->count = (uint32_t)memopt_i_polish(p, found->count, limit);
    found->limit = limit;
    memopt_i_course_begin(&course, &p->chain, &p->slow, p->course);
    course.slow.overlap = 0;
    for (t = 0; t < found->count && !s; ++t) s = memopt_i_course_step(&course, p->list[t]);
    found->peak = course.peak;
    found->cost = memopt_i_chain_cost(&p->chain, course.runs, course.waited, &extra);
    return s ? s : memopt_i_course_ended(&course) ? MEMOPT_OK : MEMOPT_ERR_STATE;
}
static memopt_status memopt_i_schedule_list(const memopt_schedule *p, const memopt_i_found *found,
                                            memopt_action *actions) {
    memopt_i_found same; memopt_status s;
    if (!found->limit) return memopt_i_schedule_emit(p, found->blend, found->point, actions, found->count, &same);
    s = memopt_i_schedule_polished(p, found->blend, found->point, found->limit, &same);
    if (!s) memcpy(actions, p->list, found->count * sizeof *actions);
    return s;
}
/* Take one in by its peak, unless another one is as good; what is worse than it goes. */
static void memopt_i_found_add(memopt_i_found *all, size_t *count, memopt_i_found one) {
    size_t at = *count, last;
    while (at && all[at - 1].peak > one.peak) --at;
    if (at && all[at - 1].cost <= one.cost) return;
    while (at && all[at - 1].peak == one.peak) --at;
    for (last = at; last < *count && all[last].cost >= one.cost; ++last) {}
    memmove(all + at + 1, all + last, (*count - last) * sizeof *all);
    all[at] = one;
    *count += 1 + at - last;
}
/* the next point that is cheaper */
static size_t memopt_i_schedule_next(const memopt_schedule *p, size_t row, size_t g) {
    const int32_t *cost = p->cost + row * p->slots;
    for (g = memopt_i_max(g, p->first[row]); g < p->slots && g > p->first[row] && cost[g] == cost[g - 1];) ++g;
    return g;
}
/* The schedules of a table: of each point as it is, and polished within its own peak and within what the next
   one takes less a byte. */
static memopt_status memopt_i_schedule_find(memopt_schedule *p, size_t blend) {
    const memopt_i_stretch whole = memopt_i_schedule_whole(p, blend);
    const size_t row = memopt_i_row(p, &whole);
    const size_t to = blend == MEMOPT_I_BLEND_NEVER ? (size_t)MEMOPT_I_BLEND_FULL : blend;
    const int polish = p->rule == MEMOPT_RULE_EXTENDED && to == MEMOPT_I_BLEND_FULL;
    memopt_i_found *all = p->found[to], one; size_t g, last = p->slots, *count = &p->found_count[to];
    for (g = memopt_i_schedule_next(p, row, 0); g < p->slots; g = memopt_i_schedule_next(p, row, g + 1)) {
        const memopt_status s = memopt_i_schedule_emit(p, blend, g, NULL, 0, &one);
        const size_t peak = one.peak;
        if (s) return s;
        memopt_i_found_add(all, count, one);
        if (!polish) continue;
        if (last < p->slots && !memopt_i_schedule_polished(p, blend, last, peak - 1, &one))
            memopt_i_found_add(all, count, one);
        if (!memopt_i_schedule_polished(p, blend, g, peak, &one)) memopt_i_found_add(all, count, one);
        last = g;
    }
    if (p->rule == MEMOPT_RULE_REVOLVE) return MEMOPT_OK;
    memopt_i_schedule_emit(p, blend, p->slots, NULL, 0, &one);
    memopt_i_found_add(all, count, one);
    return MEMOPT_OK;
}
static void memopt_i_schedule_stages(memopt_schedule *p) {
    static const double share[MEMOPT_I_BLENDS] = { 1, 0, 0.25, 0 }; size_t i, b;
    for (i = 0; i <= p->count; ++i) {
        const memopt_segment *s = i ? &p->chain.segments[i - 1] : NULL; memopt_i_stage *stage = &p->stages[i];
        *stage = memopt_i_stage_of(p, i);
        stage->backward = s ? memopt_i_cost_units(p, s->backward_cost) : 0;
        stage->before = s ? p->stages[i - 1].before + memopt_i_cost_units(p, s->forward_cost) : 0;
        for (b = 0; p->slow.slots && b < p->blends; ++b) {
            const double write = memopt_i_transfer_cost(p, memopt_i_chain_write(&p->chain, &p->slow, i));
            const double read = memopt_i_transfer_cost(p, memopt_i_chain_read(&p->chain, &p->slow, i));
            stage->write[b] = memopt_i_cost_units(p, share[b] * write);
            stage->read[b] = memopt_i_cost_units(p, share[b] * read);
            if (b == MEMOPT_I_BLEND_NEVER) stage->read[b] = MEMOPT_I_NO_COST;
        }
    }
}
MEMOPT_API memopt_status memopt_schedule_bytes(const memopt_schedule_desc *desc, size_t *bytes) {
    memopt_schedule p; size_t total; memopt_status s = memopt_i_schedule_shape(desc, &p);
    if (!s && !bytes) s = MEMOPT_ERR_ARGUMENT;
    if (!s) s = memopt_i_schedule_layout(&p, NULL, &total);
    if (!s) *bytes = total;
    return s;
}
MEMOPT_API memopt_status memopt_schedule_solve(const memopt_schedule_desc *desc, void *memory, size_t bytes,
                                               const memopt_schedule **out) {
    memopt_schedule p; size_t needed, b, t; uint32_t low, high; memopt_status s = memopt_i_schedule_shape(desc, &p);
    if (!s) s = memopt_i_schedule_layout(&p, NULL, &needed);
    if (s) return s;
    if (!memory || (uintptr_t)memory % MEMOPT_I_SCHEDULE_ALIGN || !out) return MEMOPT_ERR_ARGUMENT;
    if (bytes < needed) return MEMOPT_ERR_BUFFER;
    memopt_i_schedule_layout(&p, (unsigned char *)memory, &needed);
    p.level = memopt_i_simd_level(NULL);
    memopt_i_schedule_range(&p, &low, &high);
    memopt_i_schedule_thresholds(low, high, p.fineness, p.slots, p.grid);
    memopt_i_schedule_stages(&p);
    for (b = 0; b < p.blends; ++b) {
        for (t = 1; t <= p.count; ++t) memopt_i_schedule_column(&p, b, t);
        s = memopt_i_schedule_find(&p, b);
        if (s) return s;
    }
    memcpy(memory, &p, sizeof p);
    *out = (const memopt_schedule *)memory;
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_schedule_frontier(const memopt_schedule *schedule, memopt_point *points,
                                                  size_t capacity, size_t *count) {
    size_t i;
    if (!schedule || !count || (capacity && !points)) return MEMOPT_ERR_ARGUMENT;
    for (i = 0; i < memopt_i_min(capacity, schedule->found_count[0]); ++i) {
        points[i].peak = schedule->found[0][i].peak; points[i].cost = schedule->found[0][i].cost;
    }
    *count = schedule->found_count[0];
    return *count > capacity ? MEMOPT_ERR_BUFFER : MEMOPT_OK;
}

/* -- transfers beside the computing -- */

typedef struct memopt_i_overlap { /* a schedule that is being relaxed: waits go later, reads earlier */
    const memopt_schedule *p;
    const memopt_host     *host;
    memopt_action         *actions, *best;
    size_t                 capacity, count, best_count, limit;
    double                 cost; /* of `actions` */
} memopt_i_overlap;

/* Move `length` actions from `at` by so many places. */
static void memopt_i_overlap_move(memopt_action *actions, size_t at, size_t length, ptrdiff_t by) {
    memopt_action held[2]; const size_t bytes = length * sizeof *held;
    memcpy(held, actions + at, bytes);
    if (by > 0) memmove(actions + at, actions + at + length, (size_t)by * sizeof *held);
    else memmove(actions + at + length + by, actions + at + by, (size_t)-by * sizeof *held);
    memcpy(actions + at + by, held, bytes);
}
/* The cost with `length` actions at `at` moved by so many places; negative when that is no schedule within the limit.
   */
static double memopt_i_overlap_cost(memopt_i_overlap *o, size_t at, size_t length, ptrdiff_t by) {
    memopt_schedule_result r; memopt_status s;
    memopt_i_overlap_move(o->actions, at, length, by);
    s = memopt_i_simulate(&o->p->chain, &o->p->slow, o->actions, o->count, o->host, &r);
    memopt_i_overlap_move(o->actions, (size_t)((ptrdiff_t)at + by), length, -by);
    return s || r.peak > o->limit ? -1 : r.cost;
}
static ptrdiff_t memopt_i_overlap_by(int back, size_t places) { return back ? -(ptrdiff_t)places : (ptrdiff_t)places; }
/* Move them as far as memory allows, up to `most`, then back as long as that costs nothing: others need memory too. */
static void memopt_i_overlap_slide(memopt_i_overlap *o, size_t at, size_t length, size_t most, int back) {
    size_t places = 0, high = most + 1, fewer; double cost = o->cost;
    while (high - places > 1) {
        const size_t middle = places + (high - places) / 2;
        const double c = memopt_i_overlap_cost(o, at, length, memopt_i_overlap_by(back, middle));
        if (c < 0) high = middle;
        else { places = middle; cost = c; }
    }
    if (!places || cost >= o->cost) return;
    for (fewer = 0; places - fewer > 1;) {
        const size_t middle = fewer + (places - fewer) / 2;
        const double c = memopt_i_overlap_cost(o, at, length, memopt_i_overlap_by(back, middle));
        if (c >= 0 && c <= cost) { places = middle; cost = c; }
        else fewer = middle;
    }
    memopt_i_overlap_move(o->actions, at, length, memopt_i_overlap_by(back, places));
    o->cost = cost;
}
static size_t memopt_i_overlap_find(const memopt_i_overlap *o, size_t from, memopt_op op, size_t v) {
    while (from < o->count && (o->actions[from].op != op || o->actions[from].index != v)) ++from;
    return from;
}
static void memopt_i_overlap_relax(memopt_i_overlap *o) {
    size_t i, at;
    for (i = 0; i < o->count; ++i) { /* what was written is dropped as late as needed, up to when it is read again */
        if (o->actions[i].op != MEMOPT_OP_WRITE) continue;
        at = memopt_i_overlap_find(o, i, MEMOPT_OP_WAIT, o->actions[i].index);
        memopt_i_overlap_slide(o, at, 2, memopt_i_overlap_find(o, at, MEMOPT_OP_READ, o->actions[i].index) - at - 2, 0);
    }
    for (i = 0; i < o->count; ++i) { /* reads begin as early as needed; the first first, for it is used first */
        if (o->actions[i].op != MEMOPT_OP_READ) continue;
        for (at = i; o->actions[at].op != MEMOPT_OP_DROP || o->actions[at].index != o->actions[i].index;) --at;
        memopt_i_overlap_slide(o, i, 1, i - at - 1, 1);
    }
}
/* The best that takes no more than `peak`: of each one found, relaxed within its own peak, so that a higher peak only
   adds to what there is to choose from. */
static memopt_status memopt_i_overlap_best(memopt_i_overlap *o, size_t peak) {
    const memopt_schedule *p = o->p; size_t b, i; double best = -1;
    for (b = 0; b < p->blends; ++b)
        for (i = 0; i < p->found_count[b] && p->found[b][i].peak <= peak; ++i) {
            memopt_schedule_result r; memopt_status s = memopt_i_schedule_list(p, &p->found[b][i], o->actions);
            o->count = p->found[b][i].count; o->limit = p->found[b][i].peak;
            if (!s) s = memopt_i_simulate(&p->chain, &p->slow, o->actions, o->count, o->host, &r);
            if (s) return s;
            o->cost = r.cost;
            memopt_i_overlap_relax(o);
            if (best >= 0 && o->cost >= best) continue;
            best = o->cost;
            memcpy(o->best, o->actions, o->count * sizeof *o->best);
            o->best_count = o->count;
        }
    return MEMOPT_OK;
}
static size_t memopt_i_schedule_longest(const memopt_schedule *p) { /* of all lists */
    size_t most = 0, b, i;
    for (b = 0; b < p->blends; ++b)
        for (i = 0; i < p->found_count[b]; ++i) most = memopt_i_max(most, p->found[b][i].count);
    return most;
}
static memopt_status memopt_i_overlap_list(const memopt_schedule *p, size_t peak, const memopt_host *host,
                                           memopt_i_list *list) {
    memopt_i_overlap o; size_t bytes; memopt_status s; memopt_host h;
    memset(&o, 0, sizeof o);
    if (memopt_host_resolve(host, &h)) return MEMOPT_ERR_ARGUMENT;
    o.p = p; o.host = &h; o.capacity = memopt_i_schedule_longest(p);
    if (memopt_i_mul(o.capacity, 2 * sizeof *o.actions, &bytes)) return MEMOPT_ERR_OVERFLOW;
    o.actions = (memopt_action *)memopt_i_alloc(&h, bytes, MEMOPT_I_HOST_ALIGN);
    if (!o.actions) return MEMOPT_ERR_MEMORY;
    o.best = o.actions + o.capacity;
    s = memopt_i_overlap_best(&o, peak);
    if (!s && list->capacity)
        memcpy(list->actions, o.best, memopt_i_min(list->capacity, o.best_count) * sizeof *o.best);
    list->count = o.best_count;
    memopt_i_free(&h, o.actions, bytes, MEMOPT_I_HOST_ALIGN);
    return s;
}

/* -- schedules -- */

/* Into a buffer of yours, and what it comes to. */
static memopt_status memopt_i_schedule_deliver(const memopt_schedule *p, const memopt_i_found *found,
                                               memopt_action *actions, size_t capacity, const memopt_host *host,
                                               memopt_schedule_result *result) {
    memopt_i_list l; memopt_schedule_result r; memopt_status s = MEMOPT_OK;
    memset(&l, 0, sizeof l); l.actions = actions; l.capacity = capacity; l.count = found->count;
    memset(&r, 0, sizeof r);
    if (p->slow.overlap) s = memopt_i_overlap_list(p, found->peak, host, &l);
    if (!s && l.count > capacity) {
        if (result) result->actions = l.count;
        return MEMOPT_ERR_BUFFER;
    }
    if (!s && !p->slow.overlap) s = memopt_i_schedule_list(p, found, actions);
    if (!s) s = memopt_i_simulate(&p->chain, &p->slow, actions, l.count, host, &r);
    if (!s && result) *result = r;
    return s;
}
MEMOPT_API memopt_status memopt_schedule_for_budget(const memopt_schedule *schedule, size_t budget,
                                                    memopt_action *actions, size_t capacity, const memopt_host *host,
                                                    memopt_schedule_result *result) {
    const memopt_schedule *p = schedule; size_t i;
    if (!p || (capacity && !actions)) return MEMOPT_ERR_ARGUMENT;
    for (i = p->found_count[0]; i--;)
        if (p->found[0][i].peak <= budget)
            return memopt_i_schedule_deliver(p, &p->found[0][i], actions, capacity, host, result);
    if (result) result->peak = p->found_count[0] ? p->found[0][0].peak : SIZE_MAX;
    return MEMOPT_ERR_MEMORY;
}
MEMOPT_API memopt_status memopt_schedule_for_overhead(const memopt_schedule *schedule, double overhead,
                                                      memopt_action *actions, size_t capacity, const memopt_host *host,
                                                      memopt_schedule_result *result) {
    const memopt_schedule *p = schedule; double base = 0; size_t i;
    if (!p || (capacity && !actions) || !memopt_i_cost_ok(overhead)) return MEMOPT_ERR_ARGUMENT;
    for (i = 0; i < p->count; ++i) base += p->chain.segments[i].forward_cost + p->chain.segments[i].backward_cost;
    for (i = 0; i < p->found_count[0]; ++i)
        if (p->found[0][i].cost - base <= overhead * base + base * MEMOPT_I_SAME_COST)
            return memopt_i_schedule_deliver(p, &p->found[0][i], actions, capacity, host, result);
    return MEMOPT_ERR_STATE;
}
/* @section strip : schedule ledger api_schedule
   A schedule as a picture: a column for the input and for each segment, time down, a row for each action that takes
   time.
   Problem    A list of a hundred actions tells nobody whether it is good. What tells it is the pattern: a diagonal down
              to the right is the first forward, one down to the left the backward, and every short one in between is
              work done again; what stands between them is the memory it took.
   Idea       The picture is another walk over the course, which knows what is held; nothing is worked out here. As
              text, each row shows the state of all columns, and the action in its own. As SVG, what is held from one
              row to another is one bar, so that the file grows with the actions and not with the picture. Bars are
              drawn in layers, since what saves more must lie on top: a walk for copies, one for outputs, one for saved
              parts, then the actions, then the bytes alive beside them.
   Invariant  Bytes of a row are the most that are alive while its action runs; the largest is the schedule's peak.
   Cost       Text: rows times columns. SVG: about 60 bytes an action and layer. Memory: 4 bytes a segment and a course.
   Trap       The list does not tell what a transfer costs, so costs here are those of computing. Numbers are written
              with integers, as in the ledger: printf's %f asks the locale for the decimal point. */
/* of bars, the upper last */
typedef enum memopt_i_layer { MEMOPT_I_COPIES, MEMOPT_I_OUTPUTS, MEMOPT_I_PARTS } memopt_i_layer;
enum { /* of the SVG, in pixels; CELL in units of the scaled drawing, of which one cell is so many wide and high */
    MEMOPT_I_STRIP_LEFT = 64, MEMOPT_I_STRIP_TOP = 116, MEMOPT_I_STRIP_CURVE = 200, MEMOPT_I_STRIP_GAP = 28,
    MEMOPT_I_STRIP_LEAST = 880, MEMOPT_I_STRIP_CELL = 10
};
typedef struct memopt_i_strip {
    memopt_i_out         out;
    const memopt_chain  *chain;
    const memopt_action *actions;
    size_t               count, rows;
    memopt_schedule_result sum; /* of the whole schedule */
    memopt_i_course      course;
    memopt_action        action; /* the one that has just run */
    size_t               row, live; /* rows so far; the most bytes alive while it ran */
    size_t               width, height; /* of the SVG's grid */
} memopt_i_strip;

/* A cost, to about four digits; of a list that runs enormous forwards many times it can be infinite. */
static void memopt_i_put_cost(memopt_i_out *o, double x) {
    uint64_t whole, thousandths; int exponent = 0; char digits[3];
    if (!memopt_i_cost_ok(x)) { memopt_i_put_text(o, "infinite"); return; }
    while (x >= 1e15 || (exponent && x >= 10)) { x /= 10; ++exponent; }
    while (x > 0 && (x < 1e-3 || (exponent < 0 && x < 1))) { x *= 10; --exponent; }
    whole = (uint64_t)x;
    thousandths = (uint64_t)((x - (double)whole) * 1000 + 0.5);
    if (thousandths == 1000) { ++whole; thousandths = 0; }
    digits[0] = (char)('0' + thousandths / 100); digits[1] = (char)('0' + thousandths / 10 % 10);
    digits[2] = (char)('0' + thousandths % 10);
    memopt_i_put_number(o, whole);
    if (thousandths) {
        memopt_i_put_text(o, ".");
        memopt_i_put(o, digits, thousandths % 10 ? 3 : thousandths % 100 ? 2 : 1);
    }
    if (!exponent) return;
    memopt_i_put_text(o, exponent < 0 ? "e-" : "e");
    memopt_i_put_number(o, (uint64_t)(exponent < 0 ? -exponent : exponent));
}
static void memopt_i_strip_title(memopt_i_strip *s) {
    memopt_i_out *o = &s->out; const double least = s->sum.cost - s->sum.extra;
    memopt_i_put_number(o, s->chain->count);
    memopt_i_put_text(o, s->chain->count == 1 ? " segment: peak " : " segments: peak ");
    memopt_i_put_bytes(o, s->sum.peak);
    memopt_i_put_text(o, ", cost ");
    memopt_i_put_cost(o, s->sum.cost);
    if (least > 0) {
        memopt_i_put_text(o, ", ");
        memopt_i_put_cost(o, s->sum.extra / least * 100);
        memopt_i_put_text(o, "% above keeping all");
    }
    memopt_i_put_text(o, "; ");
    memopt_i_put_number(o, s->sum.forwards);
    memopt_i_put_text(o, " forwards, ");
    memopt_i_put_number(o, s->sum.forwards - s->chain->count);
    memopt_i_put_text(o, " of them again");
}

/* -- the walk -- */

static int memopt_i_strip_has_row(memopt_action a) { return a.op != MEMOPT_OP_DROP && a.op != MEMOPT_OP_FORGET; }
/* The column of an action: that of the value it makes, moves or consumes; 0 is the input. */
static size_t memopt_i_strip_column(memopt_action a) { return (size_t)a.index + (a.op <= MEMOPT_OP_BACKWARD); }
static memopt_status memopt_i_strip_begin(memopt_i_strip *s, const memopt_host *host) {
    memopt_slow any = { MEMOPT_SLOW_UNLIMITED, 0, 0, 0, 0, 0 };
    s->row = 0;
    return memopt_i_course_open(&s->course, s->chain, &any, host);
}
static void memopt_i_strip_step(memopt_i_strip *s, size_t i) {
    s->action = s->actions[i];
    s->course.peak = s->course.live; /* from here on: the peak of this action */
    (void)memopt_i_course_step(&s->course, s->action); /* it can be: all have been gone through before */
    s->live = s->course.peak;
    s->row += (size_t)memopt_i_strip_has_row(s->action);
}
static char memopt_i_strip_letter(const memopt_i_strip *s) { /* of the action */
    const int again = s->action.op <= MEMOPT_OP_FORWARD_SAVE && s->course.runs[s->action.index] > 1;
    switch (s->action.op) {
        case MEMOPT_OP_FORWARD:      return again ? 'r' : '>';
        case MEMOPT_OP_FORWARD_SAVE: return again ? 'R' : 'S';
        case MEMOPT_OP_BACKWARD:     return '<';
        case MEMOPT_OP_WRITE:        return 'w';
        case MEMOPT_OP_READ:         return 'b';
        default:                     return '=';
    }
}
static int memopt_i_strip_shows(const memopt_i_course *w, size_t value, memopt_i_layer layer) {
    switch (layer) {
        case MEMOPT_I_COPIES:  return (w->values[value] & (MEMOPT_I_COPIED | MEMOPT_I_WRITING)) != 0;
        case MEMOPT_I_OUTPUTS: return (w->values[value] & MEMOPT_I_HELD) != 0;
        default:               return value && w->saved[value - 1];
    }
}

/* -- as text -- */

static void memopt_i_strip_head(memopt_i_strip *s) { /* what the letters mean; the numbers of the segments */
    size_t i, start;
    memopt_i_strip_title(s);
    memopt_i_put_text(&s->out, "\n\n"
        "  > forward      S forward, saved     r R the same, again   < backward\n"
        "  | output held  # and saved part     ~ sent away only      . nothing\n"
        "  w being sent   b being brought back                       = waited for\n\n"
        "action in ");
    start = s->out.length;
    for (i = 0; i < s->chain->count; i += 10) {
        memopt_i_put_left(&s->out, start, i);
        memopt_i_put_number(&s->out, i);
    }
    memopt_i_put_left(&s->out, start, s->chain->count);
    memopt_i_put_text(&s->out, "  bytes alive\n");
}
static void memopt_i_strip_row(memopt_i_strip *s, size_t number) {
    const size_t at = memopt_i_strip_column(s->action); size_t v;
    memopt_i_put_right_number(&s->out, number, 6);
    memopt_i_put_text(&s->out, "  ");
    for (v = 0; v <= s->chain->count; ++v) {
        char c = '.';
        if (memopt_i_strip_shows(&s->course, v, MEMOPT_I_COPIES)) c = '~';
        if (memopt_i_strip_shows(&s->course, v, MEMOPT_I_OUTPUTS)) c = '|';
        if (memopt_i_strip_shows(&s->course, v, MEMOPT_I_PARTS)) c = '#';
        if (v == at) c = memopt_i_strip_letter(s);
        memopt_i_put(&s->out, &c, 1);
        if (!v) memopt_i_put_text(&s->out, " ");
    }
    memopt_i_put_right_number(&s->out, s->live, 13);
    memopt_i_put_text(&s->out, number == s->sum.at ? "  peak\n" : "\n");
}
static memopt_status memopt_i_strip_text(memopt_i_strip *s, const memopt_host *host) {
    size_t i; const memopt_status status = memopt_i_strip_begin(s, host);
    if (status) return status;
    memopt_i_strip_head(s);
    for (i = 0; i < s->count; ++i) {
        memopt_i_strip_step(s, i);
        if (memopt_i_strip_has_row(s->action)) memopt_i_strip_row(s, i);
    }
    memopt_i_course_close(&s->course);
    return MEMOPT_OK;
}

/* -- as SVG -- */

static void memopt_i_strip_attribute(memopt_i_out *o, const char *name, size_t n) { /* name="n", with a blank before */
    memopt_i_put_text(o, " ");
    memopt_i_put_text(o, name);
    memopt_i_put_text(o, "=\"");
    memopt_i_put_number(o, n);
    memopt_i_put_text(o, "\"");
}
static void memopt_i_strip_rect(memopt_i_out *o, const char *class_name, size_t x, size_t y, size_t width,
                                size_t height) {
    memopt_i_put_text(o, "<rect class=\"");
    memopt_i_put_text(o, class_name);
    memopt_i_put_text(o, "\"");
    memopt_i_strip_attribute(o, "x", x); memopt_i_strip_attribute(o, "y", y);
    memopt_i_strip_attribute(o, "width", width); memopt_i_strip_attribute(o, "height", height);
    memopt_i_put_text(o, "/>\n");
}
/* Its text and </text> follow. */
static void memopt_i_strip_label(memopt_i_out *o, const char *class_name, size_t x, size_t y) {
    memopt_i_put_text(o, "<text class=\"");
    memopt_i_put_text(o, class_name);
    memopt_i_put_text(o, "\"");
    memopt_i_strip_attribute(o, "x", x); memopt_i_strip_attribute(o, "y", y);
    memopt_i_put_text(o, ">");
}
static const char *memopt_i_strip_class(char letter) { /* of the marks; the colours are in the style below */
    switch (letter) {
        case '>': return "f"; case 'S': return "s"; case 'r': return "g"; case 'R': return "r"; case '<': return "b";
        case 'w': case 'b': return "t";
        default:  return "w";
    }
}
static void memopt_i_strip_legend(memopt_i_out *o) {
    static const struct { const char *class_name, *text; size_t x, y; } entries[] = {
        { "f", "forward", 0, 0 }, { "s", "forward, saved", 100, 0 }, { "g", "forward again", 230, 0 },
        { "r", "again, saved", 355, 0 }, { "b", "backward", 475, 0 }, { "t", "sent, brought back", 580, 0 },
        { "v", "output held", 0, 1 }, { "p", "and saved part held", 100, 1 }, { "c", "sent away", 250, 1 },
        { "w", "waited for", 355, 1 }, { "m", "bytes alive", 475, 1 }
    };
    size_t i;
    for (i = 0; i < sizeof entries / sizeof *entries; ++i) {
        const size_t x = MEMOPT_I_STRIP_LEFT + entries[i].x, y = 46 + 20 * entries[i].y;
        memopt_i_strip_rect(o, entries[i].class_name, x, y, 11, 11);
        memopt_i_strip_label(o, "l", x + 16, y + 10);
        memopt_i_put_text(o, entries[i].text);
        memopt_i_put_text(o, "</text>\n");
    }
}
static size_t memopt_i_strip_right(const memopt_i_strip *s) { /* where the bytes alive are drawn */
    return MEMOPT_I_STRIP_LEFT + s->width + MEMOPT_I_STRIP_GAP;
}
static void memopt_i_strip_open(memopt_i_strip *s) {
    memopt_i_out *o = &s->out; const size_t height = MEMOPT_I_STRIP_TOP + s->height + 30;
    const size_t width = memopt_i_max(memopt_i_strip_right(s) + MEMOPT_I_STRIP_CURVE + MEMOPT_I_STRIP_GAP,
                                      MEMOPT_I_STRIP_LEAST);
    memopt_i_put_text(o, "<svg xmlns=\"http://www.w3.org/2000/svg\"");
    memopt_i_strip_attribute(o, "width", width); memopt_i_strip_attribute(o, "height", height);
    memopt_i_put_text(o, " viewBox=\"0 0 ");
    memopt_i_put_number(o, width); memopt_i_put_text(o, " "); memopt_i_put_number(o, height);
    memopt_i_put_text(o, "\">\n<style>text{font-family:sans-serif;fill:#333}"
        ".h{font-size:14px;font-weight:bold}.l{font-size:12px}.n{font-size:10px;text-anchor:middle}"
        ".e{font-size:10px;text-anchor:end}.a{fill:#fff}.k{fill:#f6f6f4}"
        ".v{fill:#c3dcf0}.p{fill:#5a9bcf}.c{fill:#e8d9b5}.f{fill:#37a35a}.s{fill:#0c6b2f}.g{fill:#f7a928}"
        ".r{fill:#d4570a}.b{fill:#7d4aa8}.t{fill:#8a6d3b}.w{fill:#9a9a9a}.m{fill:#d98a9b}"
        ".d{stroke:#a02040;stroke-dasharray:3 3}</style>\n");
    memopt_i_strip_rect(o, "a", 0, 0, width, height);
    memopt_i_strip_label(o, "h", MEMOPT_I_STRIP_LEFT, 28);
    memopt_i_strip_title(s);
    memopt_i_put_text(o, "</text>\n");
    memopt_i_strip_legend(o);
}
/* About twelve numbers along each side: 1, 2 or 5 times a power of ten apart. */
static size_t memopt_i_strip_stride(size_t count) {
    size_t stride = 1, k = 0;
    for (; count / stride > 12; ++k) stride = k % 3 == 1 ? stride / 2 * 5 : stride * 2;
    return stride;
}
static void memopt_i_strip_axes(memopt_i_strip *s) {
    memopt_i_out *o = &s->out; const size_t n = s->chain->count, right = memopt_i_strip_right(s);
    size_t i, y, stride = memopt_i_strip_stride(n), shown = 0, row = 0;
    for (i = 0; i < n; i += stride) {
        const size_t x = MEMOPT_I_STRIP_LEFT + (2 * i + 3) * s->width / (2 * n + 2); /* the middle of column i + 1 */
        memopt_i_strip_label(o, "n", x, MEMOPT_I_STRIP_TOP - 6);
        memopt_i_put_number(o, i);
        memopt_i_put_text(o, "</text>\n");
    }
    stride = memopt_i_strip_stride(s->rows);
    for (i = 0; i < s->count; ++i) { /* numbers of actions, at the rows that they have */
        if (!memopt_i_strip_has_row(s->actions[i])) continue;
        if (row++ != shown) continue;
        y = MEMOPT_I_STRIP_TOP + (2 * row - 1) * s->height / (2 * s->rows);
        memopt_i_strip_label(o, "e", MEMOPT_I_STRIP_LEFT - 6, y + 4);
        memopt_i_put_number(o, i);
        memopt_i_put_text(o, "</text>\n");
        shown += stride;
    }
    memopt_i_strip_rect(o, "k", MEMOPT_I_STRIP_LEFT, MEMOPT_I_STRIP_TOP, s->width, s->height);
    memopt_i_strip_rect(o, "k", right, MEMOPT_I_STRIP_TOP, MEMOPT_I_STRIP_CURVE, s->height);
    memopt_i_strip_label(o, "e", right + MEMOPT_I_STRIP_CURVE, MEMOPT_I_STRIP_TOP - 6);
    memopt_i_put_bytes(o, s->sum.peak);
    memopt_i_put_text(o, "</text>\n");
}
/* What is inside is drawn in cells of CELL by CELL, and scaled to its place. */
static void memopt_i_strip_factor(memopt_i_out *o, double x) { /* to six decimals */
    const uint64_t millionths = (uint64_t)(x * 1e6 + 0.5); uint64_t rest = millionths % 1000000, place = 100000;
    memopt_i_put_number(o, millionths / 1000000);
    memopt_i_put_text(o, ".");
    for (; place; rest %= place, place /= 10) memopt_i_put_number(o, rest / place);
}
static void memopt_i_strip_scale(memopt_i_out *o, size_t x, size_t width, size_t columns, size_t height, size_t rows) {
    memopt_i_put_text(o, "<g transform=\"translate(");
    memopt_i_put_number(o, x);
    memopt_i_put_text(o, " ");
    memopt_i_put_number(o, MEMOPT_I_STRIP_TOP);
    memopt_i_put_text(o, ") scale(");
    memopt_i_strip_factor(o, (double)width / (double)(columns * MEMOPT_I_STRIP_CELL));
    memopt_i_put_text(o, " ");
    memopt_i_strip_factor(o, (double)height / (double)(rows * MEMOPT_I_STRIP_CELL));
    memopt_i_put_text(o, ")\">\n");
}
/* One layer of bars: from the row in which something is there to the one after which it is gone. */
static memopt_status memopt_i_strip_bars(memopt_i_strip *s, memopt_i_layer layer, uint32_t *since,
                                         const memopt_host *host) {
    static const char *const classes[] = { "c", "v", "p" };
    const size_t cell = MEMOPT_I_STRIP_CELL; size_t i, row; const memopt_status status = memopt_i_strip_begin(s, host);
    if (status) return status;
    since[0] = 0;
    for (i = 0; i <= s->count; ++i) { /* at the last one: the input, which stays */
        const size_t v = i < s->count ? memopt_i_strip_column(s->actions[i]) : 0;
        const int before = memopt_i_strip_shows(&s->course, v, layer); int after = 0;
        row = s->row;
        if (i < s->count) { memopt_i_strip_step(s, i); after = memopt_i_strip_shows(&s->course, v, layer); }
        if (!before && after) since[v] = (uint32_t)row;
        if (before && !after && s->row > since[v])
            memopt_i_strip_rect(&s->out, classes[layer], v * cell + 1, since[v] * cell, cell - 2,
                                (s->row - since[v]) * cell);
    }
    memopt_i_course_close(&s->course);
    return MEMOPT_OK;
}
static memopt_status memopt_i_strip_marks(memopt_i_strip *s, const memopt_host *host) {
    const size_t cell = MEMOPT_I_STRIP_CELL; size_t i; const memopt_status status = memopt_i_strip_begin(s, host);
    if (status) return status;
    for (i = 0; i < s->count; ++i) {
        memopt_i_strip_step(s, i);
        if (memopt_i_strip_has_row(s->action))
            memopt_i_strip_rect(&s->out, memopt_i_strip_class(memopt_i_strip_letter(s)),
                                memopt_i_strip_column(s->action) * cell, (s->row - 1) * cell, cell, cell);
    }
    memopt_i_course_close(&s->course);
    return MEMOPT_OK;
}
/* The bytes alive: the peak is CURVE cells wide. */
static memopt_status memopt_i_strip_curve(memopt_i_strip *s, const memopt_host *host) {
    const double wide = MEMOPT_I_STRIP_CURVE * MEMOPT_I_STRIP_CELL; size_t i, peak_row = 0;
    const memopt_status status = memopt_i_strip_begin(s, host);
    if (status) return status;
    memopt_i_put_text(&s->out, "<path class=\"m\" d=\"M0 0");
    for (i = 0; i < s->count; ++i) {
        memopt_i_strip_step(s, i);
        if (i == s->sum.at) peak_row = s->row;
        if (!memopt_i_strip_has_row(s->action)) continue;
        memopt_i_put_text(&s->out, "H");
        memopt_i_put_number(&s->out, s->sum.peak ? (uint64_t)((double)s->live / (double)s->sum.peak * wide) : 0);
        memopt_i_put_text(&s->out, "V");
        memopt_i_put_number(&s->out, s->row * MEMOPT_I_STRIP_CELL);
    }
    memopt_i_put_text(&s->out, "H0Z\"/>\n<path class=\"d\" vector-effect=\"non-scaling-stroke\" d=\"M0 ");
    memopt_i_put_number(&s->out, peak_row * MEMOPT_I_STRIP_CELL - MEMOPT_I_STRIP_CELL / 2);
    memopt_i_put_text(&s->out, "H");
    memopt_i_put_number(&s->out, (uint64_t)wide);
    memopt_i_put_text(&s->out, "\"/>\n");
    memopt_i_course_close(&s->course);
    return MEMOPT_OK;
}
static memopt_status memopt_i_strip_svg(memopt_i_strip *s, const memopt_host *host) {
    const size_t columns = s->chain->count + 1, bytes = columns * sizeof(uint32_t); memopt_status status = MEMOPT_OK;
    memopt_host h; uint32_t *since; int layer;
    if (memopt_host_resolve(host, &h)) return MEMOPT_ERR_ARGUMENT;
    since = (uint32_t *)memopt_i_alloc(&h, bytes, MEMOPT_I_HOST_ALIGN);
    if (!since) return MEMOPT_ERR_MEMORY;
    s->width = memopt_i_min(columns * 18, 960);
    s->height = memopt_i_min(s->rows * 10, 1600);
    memopt_i_strip_open(s);
    memopt_i_strip_axes(s);
    memopt_i_strip_scale(&s->out, MEMOPT_I_STRIP_LEFT, s->width, columns, s->height, s->rows);
    for (layer = MEMOPT_I_COPIES; layer <= MEMOPT_I_PARTS && !status; ++layer)
        status = memopt_i_strip_bars(s, (memopt_i_layer)layer, since, host);
    if (!status) status = memopt_i_strip_marks(s, host);
    memopt_i_put_text(&s->out, "</g>\n");
    memopt_i_strip_scale(&s->out, memopt_i_strip_right(s), MEMOPT_I_STRIP_CURVE, MEMOPT_I_STRIP_CURVE, s->height,
                         s->rows);
    if (!status) status = memopt_i_strip_curve(s, host);
    memopt_i_put_text(&s->out, "</g>\n</svg>\n");
    memopt_i_free(&h, since, bytes, MEMOPT_I_HOST_ALIGN);
    return status;
}
MEMOPT_API memopt_status memopt_schedule_export(const memopt_chain *chain, const memopt_action *actions, size_t count,
                                                memopt_strip format, const memopt_host *host, char *buffer,
                                                size_t capacity, size_t *length) {
    memopt_slow any = { MEMOPT_SLOW_UNLIMITED, 0, 0, 0, 0, 0 }; memopt_i_strip s; memopt_status status; size_t i;
    if (!buffer && capacity) return MEMOPT_ERR_ARGUMENT;
    if (format != MEMOPT_STRIP_TEXT && format != MEMOPT_STRIP_SVG) return MEMOPT_ERR_ARGUMENT;
    memset(&s, 0, sizeof s);
    status = memopt_schedule_simulate(chain, &any, actions, count, host, &s.sum);
    if (status) return status;
    s.chain = chain; s.actions = actions; s.count = count;
    for (i = 0; i < count; ++i) s.rows += (size_t)memopt_i_strip_has_row(actions[i]);
    s.out = memopt_i_out_begin(buffer, capacity);
    status = format == MEMOPT_STRIP_TEXT ? memopt_i_strip_text(&s, host) : memopt_i_strip_svg(&s, host);
    return status ? status : memopt_i_out_end(&s.out, 1, length);
}
/* @section kept : quant number simd api_tape
   Outputs in fewer bytes, so that what is read back is bit for bit what went on being used.
   Problem    Whether an output is kept, written away or made again is up to the schedule. If only the kept ones lost
              bits, results would depend on the budget.
   Idea       Every output is rounded right after its forward, to what a copy can hold, whatever becomes of it. A copy
              then loses nothing more: encode(decode(encode(x))) == encode(x).
   bf16       rounds to nearest; a bf16 as a float is a bf16 again.
   8 bits     Blocks of 256 in the signed dynamic map, which has a level 1 but none at -1: were absmax alone the scale,
              a block whose largest element is negative would shrink each time. So the scale has a sign: -absmax where
              no element takes the level 1 under +absmax. Either way an element with the level 1 comes back as the
              scale itself, nothing comes back larger, and under -absmax nothing near +absmax can come back: the next
              encoding finds the same scale. The other codes stay: a product and its quotient are three roundings from
              the level, 2^-22 of it at the most, and the next level is 2^-8 of it away.
   Not finite A block with a NaN or an infinity becomes NaN as a whole, so that an overflow is seen and not kept as a
              number. A block below 2^-100 becomes zeros: some levels would be denormal, too coarse for the proof.
   Layout     bf16: the codes. 8 bits: a scale a block, then the codes. What is no array of floats stays as it is. */
#define MEMOPT_I_KEPT_BLOCK 256
#define MEMOPT_I_KEPT_CHUNK ((size_t)1 << 16) /* floats: whole blocks, and nothing depends on who does them */
typedef enum memopt_i_kept_op { MEMOPT_I_KEPT_ROUND, MEMOPT_I_KEPT_ENCODE, MEMOPT_I_KEPT_DECODE } memopt_i_kept_op;
typedef struct memopt_i_kept {
    memopt_i_kept_op op;
    memopt_keep keep;
    int level;
    float *x;
    size_t n, blocks;
    unsigned char *copy;
} memopt_i_kept;
static int memopt_i_kept_is_lossy(memopt_keep keep, size_t bytes) {
    return keep != MEMOPT_KEEP_EXACT && bytes && bytes % sizeof(float) == 0;
}
static size_t memopt_i_kept_bytes(memopt_keep keep, size_t bytes) {
    const size_t n = bytes / sizeof(float);
    if (!memopt_i_kept_is_lossy(keep, bytes)) return bytes;
    return keep == MEMOPT_KEEP_BF16 ? 2 * n : n + memopt_quantize_blocks(n, MEMOPT_I_KEPT_BLOCK) * sizeof(float);
}
/* 1 when an element is a NaN or infinite. A fixed count inside: compilers make wide code of it. */
static int memopt_i_kept_is_odd(const float *x, size_t n) {
    uint32_t odd = 0; size_t i, k;
    for (i = 0; i + 32 <= n; i += 32)
        for (k = 0; k < 32; ++k) odd |= (memopt_i_float_bits(x[i + k]) & 0x7fffffff) + 0x800000;
    for (; i < n; ++i) odd |= (memopt_i_float_bits(x[i]) & 0x7fffffff) + 0x800000;
    return odd >> 31 != 0;
}
static float memopt_i_kept_encode(int level, uint8_t *codes, const float *x, size_t n) { /* returns the scale */
    const int odd = memopt_i_kept_is_odd(x, n); float absmax, inverse;
    absmax = memopt_i_absmax_at(level, x, n);
    if (odd || memopt_i_float_bits(absmax) < 0x0d800000) { /* 2^-100 */
        memset(codes, (int)memopt_i_map_zero(MEMOPT_MAP_SIGNED), n);
        return memopt_i_bits_float(odd ? 0x7fc00000 : 0);
    }
    inverse = memopt_i_inverse(absmax);
    memopt_i_encode_at(level, MEMOPT_MAP_SIGNED, codes, x, n, inverse);
    if (memchr(codes, 255, n)) return absmax;
    memopt_i_encode_at(level, MEMOPT_MAP_SIGNED, codes, x, n, -inverse);
    return -absmax;
}
/* At most a block, `first` elements into the array. */
static void memopt_i_kept_block(const memopt_i_kept *k, size_t first, size_t n) {
    uint16_t narrow[MEMOPT_I_KEPT_BLOCK]; uint8_t small[MEMOPT_I_KEPT_BLOCK]; unsigned char aside[sizeof(float)];
    const int encodes = !k->copy || k->op == MEMOPT_I_KEPT_ENCODE, decodes = !k->copy || k->op == MEMOPT_I_KEPT_DECODE;
    float *x = k->x + first;
    if (k->keep == MEMOPT_KEEP_BF16) {
        uint16_t *codes = k->copy ? (uint16_t *)(void *)k->copy + first : narrow;
        if (encodes) memopt_i_bf16_from_f32_at(k->level, codes, x, n);
        if (decodes) memopt_i_f32_from_bf16_at(k->level, x, codes, n);
    } else {
        unsigned char *at = k->copy ? k->copy + first / MEMOPT_I_KEPT_BLOCK * sizeof(float) : aside;
        uint8_t *codes = k->copy ? k->copy + k->blocks * sizeof(float) + first : small;
        float scale = 0;
        if (encodes) { scale = memopt_i_kept_encode(k->level, codes, x, n); memcpy(at, &scale, sizeof scale); }
        if (decodes) {
            memcpy(&scale, at, sizeof scale);
            memopt_i_decode_at(k->level, MEMOPT_MAP_SIGNED, x, codes, n, scale);
        }
    }
}
static void memopt_i_kept_chunk(void *task, size_t chunk, int worker) {
    const memopt_i_kept *k = (const memopt_i_kept *)task;
    size_t i = chunk * MEMOPT_I_KEPT_CHUNK; const size_t end = memopt_i_min(k->n, i + MEMOPT_I_KEPT_CHUNK);
    (void)worker;
    for (; i < end; i += MEMOPT_I_KEPT_BLOCK) memopt_i_kept_block(k, i, memopt_i_min(end - i, MEMOPT_I_KEPT_BLOCK));
    memopt_i_wide_end(k->level);
}
/* Round `bytes` at x in place (copy is NULL then), or bring them to a copy, or back. */
static void memopt_i_kept_run(memopt_i_kept_op op, memopt_keep keep, void *x, size_t bytes, void *copy,
                              const memopt_threads *threads) {
    memopt_i_kept k;
    if (!memopt_i_kept_is_lossy(keep, bytes)) {
        if (op == MEMOPT_I_KEPT_ENCODE && bytes) memcpy(copy, x, bytes);
        if (op == MEMOPT_I_KEPT_DECODE && bytes) memcpy(x, copy, bytes);
        return;
    }
    k.op = op; k.keep = keep; k.level = memopt_i_simd_level(threads);
    k.x = (float *)x; k.n = bytes / sizeof(float); k.copy = (unsigned char *)copy;
    k.blocks = memopt_quantize_blocks(k.n, MEMOPT_I_KEPT_BLOCK);
    memopt_i_run(threads, (k.n - 1) / MEMOPT_I_KEPT_CHUNK + 1, memopt_i_kept_chunk, &k);
}
/* @section script : schedule plan kept api_tape
   A chain, solved and placed: from sizes and a budget to a list of calls whose pointers are known.
   Problem    The solver's peak is what is alive at one moment. Real buffers lie somewhere: a gradient of a segment's
              input outlives that of its output, so no stack can hold them, and a bad placing needs more than is alive.
   Idea       The course of the actions tells each buffer's birth and death; those are the planner's items, and what
              comes back are offsets in one block. What the planner says is the peak, to the byte.
              Where it is above the budget, the solver is asked for a schedule smaller by the excess, and so on;
              in the end by the frontier from below, which is also how the least budget is found.
   Sizes      What belongs to the engine (value 0, both outer gradients) counts nothing. The solver sees each size
              rounded up to the alignment, since so many bytes a buffer takes; what is alive is told unrounded.
   Copies     The solver puts lossy copies where they pay. The textbook knows none: there a value becomes a copy
              whenever it waits while others work.
   Moves      An action that calls somebody becomes a move with six places, each an offset or one of the few names for
              what lies outside; a pass is a loop over them. Two scripts a shape: the pass, and forward only.
   Invariant  A place belongs to the newest buffer of its kind and index: whatever an action uses was born before it or
              by it, and is not born again before it is gone.
   Cost       72 bytes a move; the walk is linear in actions times skips. The planner searches by a fixed amount of
              work, never by the clock, so that every machine finds the same offsets. */
#define MEMOPT_I_NOWHERE     SIZE_MAX       /* nothing: NULL */
#define MEMOPT_I_INPUT       (SIZE_MAX - 1) /* value 0 */
#define MEMOPT_I_GRAD_OUTPUT (SIZE_MAX - 2)
#define MEMOPT_I_GRAD_INPUT  (SIZE_MAX - 3)
#define MEMOPT_I_RESULT      (SIZE_MAX - 4) /* where the last output of an evaluation goes */
#define MEMOPT_I_OUTSIDE     5              /* how many these are */
#define MEMOPT_I_SCRIPT_WORK 4096           /* the planner's steps, ... */
#define MEMOPT_I_SCRIPT_SEARCH 2048         /* ... and the items up to which it takes them */
#define MEMOPT_I_SCRIPT_TRIES  16           /* schedules that are placed in search of one that fits */

typedef struct memopt_i_touch { size_t value, grad; uint32_t skip; } memopt_i_touch; /* of a skip */
typedef struct memopt_i_move {
    size_t input, output; /* of a transfer: the value, and its copy */
    size_t saved, scratch, grad_output, grad_input;
    uint32_t action, touch, touch_count;
    uint16_t op, index;
    uint8_t again;  /* a forward that has run before in this pass */
    uint8_t unread; /* nobody but its own backward reads what it puts out */
} memopt_i_move;
typedef struct memopt_i_script {
    memopt_i_move  *moves;
    memopt_i_touch *touches;
    size_t count, touch_count;
    size_t split;  /* the first backward */
    size_t peak;   /* bytes */
    size_t bound;  /* the most that is alive at one moment, rounded up: no placing needs less */
    size_t output; /* where the last output lies when the forward is done */
} memopt_i_script;
typedef struct memopt_i_shape {
    memopt_chain    chain; /* as it was given; segments and skips are copies */
    memopt_segment *segments;
    memopt_skip    *skips;
    memopt_action  *actions;
    memopt_i_script pass, evaluation;
    memopt_schedule_result result; /* of the unrounded chain */
    size_t   kept;
    uint64_t hash, used; /* used: when it was last wanted */
    size_t   memory;
} memopt_i_shape;
typedef struct memopt_i_solver {
    const memopt_tape_desc *desc;
    const memopt_chain     *chain;
    const memopt_host      *host; /* resolved */
    size_t                  align;
    memopt_chain            plain, rounded;
    memopt_segment         *segments; /* of plain, then of rounded */
    memopt_skip            *skips;    /* of rounded */
    memopt_slow             slow;
    const memopt_schedule  *schedule; /* NULL: the rule is a textbook's */
    memopt_action          *actions;
    void                   *memory;
    size_t chain_memory, schedule_memory, capacity, action_count;
} memopt_i_solver;

/* A part of one block: where it begins, and where the next one does. Returns 1 on overflow. */
static int memopt_i_script_part(size_t *at, size_t count, size_t size, size_t *where) {
    size_t bytes;
    *where = *at;
    return memopt_i_mul(count, size, &bytes) || memopt_i_align_up(bytes, 16, &bytes) || memopt_i_add(*at, bytes, at);
}
static int memopt_i_rule_is_solved(memopt_rule rule) { return rule <= MEMOPT_RULE_REVOLVE; }

/* -- the draft: from actions to items and moves -- */

typedef struct memopt_i_draft {
    memopt_plan_item *items;
    size_t  *newest; /* of each kind and index: 1 + its newest item, 0 = none */
    uint8_t *alive;  /* the same: not gone yet */
    uint8_t *read;   /* of each item: read by others than its own segment's backward */
    uint8_t *ran;    /* of each segment */
    void    *block;
    size_t   memory, width, item_count, most, at, end, align;
} memopt_i_draft;
static void memopt_i_draft_note(void *user, memopt_i_buffer kind, size_t index, size_t bytes, int born) {
    memopt_i_draft *d = (memopt_i_draft *)user; const size_t slot = (size_t)kind * d->width + index;
    memopt_plan_item *item;
    d->alive[slot] = (uint8_t)born;
    if (!born) { d->items[d->newest[slot] - 1].last = d->at + 1; return; }
    MEMOPT_ASSERT(d->item_count < d->most);
    item = &d->items[d->item_count];
    memset(item, 0, sizeof *item);
    item->first = d->at; item->last = d->end; item->alignment = d->align;
    (void)memopt_i_align_up(bytes, d->align, &item->size); /* the rounded chain was checked */
    d->newest[slot] = ++d->item_count;
}
static size_t memopt_i_draft_item(const memopt_i_draft *d, memopt_i_buffer kind, size_t index) {
    return d->newest[(size_t)kind * d->width + index];
}
/* A value that somebody reads. */
static size_t memopt_i_draft_read(memopt_i_draft *d, size_t value) {
    const size_t item = memopt_i_draft_item(d, MEMOPT_I_VALUE, value);
    if (item) d->read[item - 1] = 1;
    return item;
}
static size_t memopt_i_draft_input(memopt_i_draft *d, size_t value) {
    return value ? memopt_i_draft_read(d, value) : MEMOPT_I_INPUT;
}
static int memopt_i_skip_touches(const memopt_skip *s, size_t i) { return s->from == i || s->to == i; }
static size_t memopt_i_script_touches(const memopt_chain *c, const memopt_action *actions, size_t count) {
    size_t t, k, n = 0;
    for (t = 0; t < count && c->skip_count; ++t)
        for (k = 0; actions[t].op <= MEMOPT_OP_BACKWARD && k < c->skip_count; ++k)
            n += (size_t)memopt_i_skip_touches(&c->skips[k], actions[t].index);
    return n;
}
static memopt_status memopt_i_draft_open(memopt_i_draft *d, const memopt_i_solver *s, size_t actions, size_t touches) {
    const size_t kinds = (size_t)MEMOPT_I_SKIP_GRAD + 1; size_t at = 0, newest, alive, read, ran, items, slots;
    unsigned char *block;
    memset(d, 0, sizeof *d);
    d->width = memopt_i_max(s->chain->count + 1, s->chain->skip_count);
    d->align = s->align; d->end = actions;
    if (memopt_i_mul(actions, 3, &d->most) || memopt_i_add(d->most, touches, &d->most)
        || memopt_i_mul(kinds, d->width, &slots)
        || memopt_i_script_part(&at, d->most, sizeof *d->items, &items)
        || memopt_i_script_part(&at, slots, sizeof *d->newest, &newest)
        || memopt_i_script_part(&at, slots, 1, &alive) || memopt_i_script_part(&at, d->most, 1, &read)
        || memopt_i_script_part(&at, s->chain->count, 1, &ran)) return MEMOPT_ERR_OVERFLOW;
    block = (unsigned char *)memopt_i_alloc(s->host, at, MEMOPT_I_HOST_ALIGN);
    if (!block) return MEMOPT_ERR_MEMORY;
    memset(block + newest, 0, at - newest);
    d->block = block; d->memory = at;
    d->items = (memopt_plan_item *)(void *)(block + items);
    d->newest = (size_t *)(void *)(block + newest);
    d->alive = block + alive; d->read = block + read; d->ran = block + ran;
    return MEMOPT_OK;
}
/* The skips that a callback sees. One that is not alive is made for nobody: its reader's backward is done. */
static void memopt_i_draft_touch(memopt_i_draft *d, const memopt_chain *c, memopt_i_script *script, memopt_i_move *m) {
    const int backward = m->op == MEMOPT_OP_BACKWARD; size_t k;
    m->touch = (uint32_t)script->touch_count;
    for (k = 0; k < c->skip_count; ++k) {
        memopt_i_touch *touch = &script->touches[script->touch_count];
        if (!memopt_i_skip_touches(&c->skips[k], m->index)) continue;
        touch->skip = (uint32_t)k;
        touch->value = touch->grad = 0;
        if (c->skips[k].to == m->index || (!backward && d->alive[(size_t)MEMOPT_I_SKIP * d->width + k]))
            touch->value = memopt_i_draft_item(d, MEMOPT_I_SKIP, k);
        if (backward) touch->grad = memopt_i_draft_item(d, MEMOPT_I_SKIP_GRAD, k);
        ++script->touch_count;
    }
    m->touch_count = (uint32_t)script->touch_count - m->touch;
}
/* Scratch is born and gone within its action: the newest is this action's, if it has any. */
static size_t memopt_i_draft_scratch(const memopt_i_draft *d, size_t segment) {
    const size_t item = memopt_i_draft_item(d, MEMOPT_I_SCRATCH, segment);
    return item && d->items[item - 1].first == d->at ? item : 0;
}
/* The action that the course has just taken, as a move; places are items, 1 and up, until all are placed. */
static void memopt_i_draft_move(memopt_i_draft *d, const memopt_chain *c, memopt_action action,
                                memopt_i_script *script) {
    memopt_i_move *m = &script->moves[script->count]; const size_t i = action.index;
    memset(m, 0, sizeof *m);
    m->op = action.op; m->index = action.index; m->action = (uint32_t)d->at;
    if (action.op > MEMOPT_OP_BACKWARD) { /* value 0 is the engine's and always there; a drop is nobody's business */
        if (action.op == MEMOPT_OP_DROP || !i || !memopt_i_chain_value(c, i)) return;
        m->input = action.op == MEMOPT_OP_WRITE ? memopt_i_draft_read(d, i) : memopt_i_draft_item(d, MEMOPT_I_VALUE, i);
        m->output = memopt_i_draft_item(d, MEMOPT_I_COPY, i);
        ++script->count;
        return;
    }
    m->input = memopt_i_draft_input(d, i);
    m->output = memopt_i_draft_item(d, MEMOPT_I_VALUE, i + 1);
    m->scratch = memopt_i_draft_scratch(d, i);
    if (action.op != MEMOPT_OP_FORWARD && c->segments[i].saved_bytes > c->segments[i].output_bytes)
        m->saved = memopt_i_draft_item(d, MEMOPT_I_SAVED, i);
    if (action.op == MEMOPT_OP_BACKWARD) {
        m->grad_output = i + 1 < c->count ? memopt_i_draft_item(d, MEMOPT_I_GRAD, i + 1) : MEMOPT_I_GRAD_OUTPUT;
        m->grad_input = i ? memopt_i_draft_item(d, MEMOPT_I_GRAD, i) : MEMOPT_I_GRAD_INPUT;
    } else {
        m->again = d->ran[i];
        d->ran[i] = 1;
    }
    memopt_i_draft_touch(d, c, script, m);
    ++script->count;
}
static size_t memopt_i_draft_place(const memopt_i_draft *d, size_t item) {
    if (item > SIZE_MAX - MEMOPT_I_OUTSIDE) return item;
    return item ? d->items[item - 1].offset : MEMOPT_I_NOWHERE;
}
/* All items have their offsets: from items to places. */
static void memopt_i_draft_resolve(const memopt_i_draft *d, memopt_i_script *script) {
    size_t i;
    for (i = 0; i < script->touch_count; ++i) {
        memopt_i_touch *touch = &script->touches[i];
        touch->value = memopt_i_draft_place(d, touch->value);
        touch->grad = memopt_i_draft_place(d, touch->grad);
    }
    for (i = 0; i < script->count; ++i) {
        memopt_i_move *m = &script->moves[i];
        m->unread = (uint8_t)(m->op == MEMOPT_OP_FORWARD_SAVE && m->output && !d->read[m->output - 1]);
        m->input = memopt_i_draft_place(d, m->input); m->output = memopt_i_draft_place(d, m->output);
        m->saved = memopt_i_draft_place(d, m->saved); m->scratch = memopt_i_draft_place(d, m->scratch);
        m->grad_output = memopt_i_draft_place(d, m->grad_output);
        m->grad_input = memopt_i_draft_place(d, m->grad_input);
    }
}
static memopt_status memopt_i_draft_plan(memopt_i_draft *d, const memopt_host *host, memopt_i_script *script) {
    memopt_plan_options options; memopt_plan_result result; memopt_status s;
    memset(&options, 0, sizeof options);
    options.work = MEMOPT_I_SCRIPT_WORK;
    options.no_search = d->item_count > MEMOPT_I_SCRIPT_SEARCH;
    s = memopt_plan_solve(d->items, d->item_count, &options, host, &result);
    if (s) return s;
    script->peak = result.peak; script->bound = result.lower_bound;
    return MEMOPT_OK;
}
/* Walk the actions, place the buffers, make the moves. kept: NULL, or it is a whole pass, and this receives what is
   alive before the first backward. */
static memopt_status memopt_i_script_make(const memopt_i_solver *s, const memopt_action *actions, size_t count,
                                          memopt_i_script *script, size_t *kept) {
    memopt_i_draft d; memopt_i_course w; memopt_status status;
    status = memopt_i_draft_open(&d, s, count, memopt_i_script_touches(&s->plain, actions, count));
    if (status) return status;
    script->split = SIZE_MAX; script->output = MEMOPT_I_NOWHERE;
    status = memopt_i_course_open(&w, &s->plain, &s->slow, s->host);
    if (!status) {
        w.note_fn = memopt_i_draft_note; w.user = &d;
        for (d.at = 0; d.at < count && !status; ++d.at) {
            if (kept && actions[d.at].op == MEMOPT_OP_BACKWARD && script->split == SIZE_MAX) {
                script->split = script->count; *kept = w.live;
            }
            status = memopt_i_course_step(&w, actions[d.at]);
            if (!status) memopt_i_draft_move(&d, &s->plain, actions[d.at], script);
        }
        if (!status && kept && !memopt_i_course_ended(&w)) status = MEMOPT_ERR_STATE;
        memopt_i_course_close(&w);
    }
    if (!status) status = memopt_i_draft_plan(&d, s->host, script);
    if (!status) memopt_i_draft_resolve(&d, script);
    memopt_i_free(s->host, d.block, d.memory, MEMOPT_I_HOST_ALIGN);
    return status;
}

/* -- shapes -- */

static uint64_t memopt_i_script_mix(uint64_t h, uint64_t word) {
    h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 32;
}
static uint64_t memopt_i_cost_bits(double x) { uint64_t bits; memcpy(&bits, &x, sizeof bits); return bits; }
static uint64_t memopt_i_chain_hash(const memopt_chain *c) {
    uint64_t h = memopt_i_script_mix(memopt_i_script_mix(c->count, c->input_bytes), c->input_grad_bytes); size_t i;
    for (i = 0; i < c->count; ++i) {
        const memopt_segment *s = &c->segments[i];
        h = memopt_i_script_mix(memopt_i_script_mix(h, s->output_bytes), s->saved_bytes);
        h = memopt_i_script_mix(memopt_i_script_mix(h, s->grad_bytes), s->forward_scratch);
        h = memopt_i_script_mix(memopt_i_script_mix(h, s->backward_scratch), s->plain_scratch);
        h = memopt_i_script_mix(memopt_i_script_mix(h, s->kept_bytes), memopt_i_cost_bits(s->forward_cost));
        h = memopt_i_script_mix(h, memopt_i_cost_bits(s->backward_cost));
    }
    for (i = 0; i < c->skip_count; ++i) {
        h = memopt_i_script_mix(memopt_i_script_mix(h, c->skips[i].from), c->skips[i].to);
        h = memopt_i_script_mix(memopt_i_script_mix(h, c->skips[i].bytes), c->skips[i].grad_bytes);
    }
    return h;
}
/* No memcmp: there may be padding. */
static int memopt_i_segment_equal(const memopt_segment *a, const memopt_segment *b) {
    return a->output_bytes == b->output_bytes && a->saved_bytes == b->saved_bytes && a->grad_bytes == b->grad_bytes
        && a->forward_scratch == b->forward_scratch && a->backward_scratch == b->backward_scratch
        && a->plain_scratch == b->plain_scratch && a->kept_bytes == b->kept_bytes
        && memopt_i_cost_bits(a->forward_cost) == memopt_i_cost_bits(b->forward_cost)
        && memopt_i_cost_bits(a->backward_cost) == memopt_i_cost_bits(b->backward_cost);
}
static int memopt_i_chain_equal(const memopt_chain *a, const memopt_chain *b) {
    size_t i;
    if (a->count != b->count || a->skip_count != b->skip_count || a->input_bytes != b->input_bytes
        || a->input_grad_bytes != b->input_grad_bytes) return 0;
    for (i = 0; i < a->count; ++i)
        if (!memopt_i_segment_equal(&a->segments[i], &b->segments[i])) return 0;
    for (i = 0; i < a->skip_count; ++i)
        if (a->skips[i].from != b->skips[i].from || a->skips[i].to != b->skips[i].to
            || a->skips[i].bytes != b->skips[i].bytes || a->skips[i].grad_bytes != b->skips[i].grad_bytes) return 0;
    return 1;
}
static void memopt_i_shape_free(const memopt_host *host, memopt_i_shape *shape) {
    if (shape) memopt_i_free(host, shape, shape->memory, MEMOPT_I_HOST_ALIGN);
}
/* One block for all of a shape. */
static memopt_status memopt_i_shape_alloc(const memopt_i_solver *s, size_t touches, memopt_i_shape **out) {
    const memopt_chain *c = s->chain; const size_t runs = s->action_count;
    size_t at = 0, head, segments, skips, actions, moves, touch, forwards, evaluated; unsigned char *block;
    memopt_i_shape *shape;
    if (memopt_i_script_part(&at, 1, sizeof *shape, &head)
        || memopt_i_script_part(&at, c->count, sizeof *shape->segments, &segments)
        || memopt_i_script_part(&at, c->skip_count, sizeof *shape->skips, &skips)
        || memopt_i_script_part(&at, runs, sizeof *shape->actions, &actions)
        || memopt_i_script_part(&at, runs, sizeof *shape->pass.moves, &moves)
        || memopt_i_script_part(&at, touches, sizeof *shape->pass.touches, &touch)
        || memopt_i_script_part(&at, 2 * c->count, sizeof *shape->pass.moves, &forwards)
        || memopt_i_script_part(&at, 2 * c->skip_count, sizeof *shape->pass.touches, &evaluated))
        return MEMOPT_ERR_OVERFLOW;
    block = (unsigned char *)memopt_i_alloc(s->host, at, MEMOPT_I_HOST_ALIGN);
    if (!block) return MEMOPT_ERR_MEMORY;
    shape = (memopt_i_shape *)(void *)(block + head);
    memset(shape, 0, sizeof *shape);
    shape->memory = at;
    shape->segments = (memopt_segment *)(void *)(block + segments);
    shape->skips = (memopt_skip *)(void *)(block + skips);
    shape->actions = (memopt_action *)(void *)(block + actions);
    shape->pass.moves = (memopt_i_move *)(void *)(block + moves);
    shape->pass.touches = (memopt_i_touch *)(void *)(block + touch);
    shape->evaluation.moves = (memopt_i_move *)(void *)(block + forwards);
    shape->evaluation.touches = (memopt_i_touch *)(void *)(block + evaluated);
    *out = shape;
    return MEMOPT_OK;
}
/* Forward only: each value goes as soon as the next one is there. */
static memopt_status memopt_i_shape_evaluation(const memopt_i_solver *s, memopt_i_shape *shape) {
    const size_t n = s->chain->count; memopt_action *list; memopt_status status; size_t i, count = 0;
    list = (memopt_action *)memopt_i_alloc(s->host, 2 * n * sizeof *list, MEMOPT_I_HOST_ALIGN);
    if (!list) return MEMOPT_ERR_MEMORY;
    for (i = 0; i < n; ++i) {
        list[count].op = MEMOPT_OP_FORWARD; list[count++].index = (uint16_t)i;
        if (i) { list[count].op = MEMOPT_OP_DROP; list[count++].index = (uint16_t)i; }
    }
    status = memopt_i_script_make(s, list, count, &shape->evaluation, NULL);
    memopt_i_free(s->host, list, 2 * n * sizeof *list, MEMOPT_I_HOST_ALIGN);
    if (status) return status;
    shape->evaluation.output = shape->evaluation.moves[n - 1].output;
    shape->evaluation.moves[n - 1].output = MEMOPT_I_RESULT;
    return MEMOPT_OK;
}
/* The solver's actions, placed. */
static memopt_status memopt_i_shape_make(const memopt_i_solver *s, memopt_i_shape **out) {
    const memopt_chain *c = s->chain; memopt_i_shape *shape = NULL; memopt_status status;
    status = memopt_i_shape_alloc(s, memopt_i_script_touches(c, s->actions, s->action_count), &shape);
    if (status) return status;
    memcpy(shape->segments, c->segments, c->count * sizeof *c->segments);
    if (c->skip_count) memcpy(shape->skips, c->skips, c->skip_count * sizeof *c->skips);
    memcpy(shape->actions, s->actions, s->action_count * sizeof *s->actions);
    shape->chain = *c; shape->chain.segments = shape->segments; shape->chain.skips = shape->skips;
    shape->hash = memopt_i_chain_hash(c);
    status = memopt_schedule_simulate(&s->plain, &s->slow, s->actions, s->action_count, s->host, &shape->result);
    if (!status) status = memopt_i_script_make(s, s->actions, s->action_count, &shape->pass, &shape->kept);
    if (!status) status = memopt_i_shape_evaluation(s, shape);
    if (status) { memopt_i_shape_free(s->host, shape); return status; }
    shape->pass.output = shape->pass.moves[shape->pass.split].output;
    *out = shape;
    return MEMOPT_OK;
}

/* -- the solver -- */

static int memopt_i_round_up(size_t *bytes, size_t align) { return memopt_i_align_up(*bytes, align, bytes); }
/* The engine's own memory counts nothing, and a lossy copy what it takes. */
static void memopt_i_solver_plain(memopt_i_solver *s) {
    const size_t n = s->chain->count; size_t i;
    s->plain = *s->chain;
    s->plain.input_bytes = s->plain.input_grad_bytes = 0;
    memcpy(s->segments, s->chain->segments, n * sizeof *s->segments);
    s->segments[n - 1].grad_bytes = 0;
    for (i = 0; i < n; ++i) /* the last output is exact, and so is its copy */
        s->segments[i].kept_bytes = s->desc->keep == MEMOPT_KEEP_EXACT ? 0
            : memopt_i_kept_bytes(i + 1 < n ? s->desc->keep : MEMOPT_KEEP_EXACT, s->segments[i].output_bytes);
    s->plain.segments = s->segments;
}
static memopt_status memopt_i_solver_round(memopt_i_solver *s) {
    const size_t n = s->chain->count; memopt_segment *to = s->segments + n; size_t i; int wraps = 0;
    s->rounded = s->plain;
    s->rounded.segments = to; s->rounded.skips = s->skips;
    for (i = 0; i < n; ++i) {
        size_t part = s->segments[i].saved_bytes - s->segments[i].output_bytes;
        to[i] = s->segments[i];
        wraps |= memopt_i_round_up(&part, s->align);
        wraps |= memopt_i_round_up(&to[i].output_bytes, s->align);
        wraps |= memopt_i_add(to[i].output_bytes, part, &to[i].saved_bytes);
        wraps |= memopt_i_round_up(&to[i].grad_bytes, s->align) | memopt_i_round_up(&to[i].kept_bytes, s->align);
        wraps |= memopt_i_round_up(&to[i].forward_scratch, s->align);
        wraps |= memopt_i_round_up(&to[i].backward_scratch, s->align);
        wraps |= memopt_i_round_up(&to[i].plain_scratch, s->align);
    }
    for (i = 0; i < s->chain->skip_count; ++i) {
        s->skips[i] = s->chain->skips[i];
        wraps |= memopt_i_round_up(&s->skips[i].bytes, s->align) | memopt_i_round_up(&s->skips[i].grad_bytes, s->align);
    }
    return wraps ? MEMOPT_ERR_OVERFLOW : memopt_i_chain_check(&s->rounded);
}
static memopt_status memopt_i_solver_solve(memopt_i_solver *s) {
    memopt_schedule_desc d; memopt_status status;
    memset(&d, 0, sizeof d);
    d.chain = s->rounded; d.rule = s->desc->rule; d.slow = s->slow; d.slots = s->desc->slots;
    status = memopt_schedule_bytes(&d, &s->schedule_memory);
    if (status) return status;
    s->memory = memopt_i_alloc(s->host, s->schedule_memory, MEMOPT_I_HOST_ALIGN);
    return s->memory ? memopt_schedule_solve(&d, s->memory, s->schedule_memory, &s->schedule) : MEMOPT_ERR_MEMORY;
}
static void memopt_i_solver_close(memopt_i_solver *s) {
    memopt_i_free(s->host, s->memory, s->schedule_memory, MEMOPT_I_HOST_ALIGN);
    memopt_i_free(s->host, s->actions, s->capacity * sizeof *s->actions, MEMOPT_I_HOST_ALIGN);
    memopt_i_free(s->host, s->segments, s->chain_memory, MEMOPT_I_HOST_ALIGN);
}
/* On failure, too, to be closed. */
static memopt_status memopt_i_solver_open(memopt_i_solver *s, const memopt_tape_desc *desc, const memopt_chain *chain,
                                          const memopt_host *host, size_t align) {
    size_t segments, skips; unsigned char *block; memopt_status status;
    memset(s, 0, sizeof *s);
    s->desc = desc; s->chain = chain; s->host = host; s->align = align;
    status = memopt_i_chain_check(chain);
    if (status) return status;
    if (memopt_i_script_part(&s->chain_memory, 2 * chain->count, sizeof *s->segments, &segments)
        || memopt_i_script_part(&s->chain_memory, chain->skip_count, sizeof *s->skips, &skips))
        return MEMOPT_ERR_OVERFLOW;
    block = (unsigned char *)memopt_i_alloc(host, s->chain_memory, MEMOPT_I_HOST_ALIGN);
    if (!block) return MEMOPT_ERR_MEMORY;
    s->segments = (memopt_segment *)(void *)(block + segments);
    s->skips = (memopt_skip *)(void *)(block + skips);
    s->slow = desc->slow;
    if (desc->keep != MEMOPT_KEEP_EXACT) s->slow.slots = MEMOPT_SLOW_UNLIMITED;
    memopt_i_solver_plain(s);
    status = memopt_i_solver_round(s);
    return !status && memopt_i_rule_is_solved(desc->rule) ? memopt_i_solver_solve(s) : status;
}
/* -- lossy copies for the textbook's schedules, which know no second place -- */

typedef struct memopt_i_gap { uint16_t read[2], write[2]; } memopt_i_gap; /* values before, after an action; 0 = none */
/* Where a value waits: between two uses with other segments' work between them, if its copy is smaller. */
static void memopt_i_gaps_find(const memopt_i_solver *s, memopt_i_gap *gaps, uint32_t *last) {
    size_t t, k, before = 0; /* before: 1 + the call before this one */
    for (t = 0; t < s->action_count; ++t) {
        const memopt_action a = s->actions[t];
        if (a.op == MEMOPT_OP_DROP) { last[a.index] = 0; continue; }
        for (k = 0; k < 2; ++k) {
            const size_t v = a.index + k; const int made = k == 1 && a.op != MEMOPT_OP_BACKWARD;
            if (!v || v >= s->chain->count) continue;
            if (!made && last[v] && last[v] < before
                && s->segments[v - 1].kept_bytes < s->segments[v - 1].output_bytes) {
                gaps[last[v] - 1].write[gaps[last[v] - 1].write[0] != 0] = (uint16_t)v;
                gaps[t].read[gaps[t].read[0] != 0] = (uint16_t)v;
            }
            last[v] = (uint32_t)t + 1;
        }
        before = t + 1;
    }
}
static void memopt_i_gaps_fill(const memopt_action *from, size_t count, const memopt_i_gap *gaps, memopt_i_list *to) {
    size_t t; int k;
    for (t = 0; t < count; ++t) {
        for (k = 0; k < 2; ++k) {
            if (!gaps[t].read[k]) continue;
            memopt_i_list_add(to, MEMOPT_OP_READ, gaps[t].read[k]);
            memopt_i_list_add(to, MEMOPT_OP_WAIT, gaps[t].read[k]);
            memopt_i_list_add(to, MEMOPT_OP_FORGET, gaps[t].read[k]);
        }
        memopt_i_list_add(to, (memopt_op)from[t].op, from[t].index);
        for (k = 0; k < 2; ++k) {
            if (!gaps[t].write[k]) continue;
            memopt_i_list_add(to, MEMOPT_OP_WRITE, gaps[t].write[k]);
            memopt_i_list_add(to, MEMOPT_OP_WAIT, gaps[t].write[k]);
            memopt_i_list_add(to, MEMOPT_OP_DROP, gaps[t].write[k]);
        }
    }
}
/* The solver's actions, values that wait as copies. */
static memopt_status memopt_i_solver_shrink(memopt_i_solver *s) {
    const size_t n = s->chain->count; size_t at = 0, gaps, last, bytes; unsigned char *block; memopt_i_list list;
    memopt_status status = MEMOPT_OK;
    if (memopt_i_script_part(&at, s->action_count, sizeof(memopt_i_gap), &gaps)
        || memopt_i_script_part(&at, n + 1, sizeof(uint32_t), &last)
        || memopt_i_mul(s->action_count, 13 * sizeof *list.actions, &bytes)) return MEMOPT_ERR_OVERFLOW;
    block = (unsigned char *)memopt_i_alloc(s->host, at, MEMOPT_I_HOST_ALIGN);
    if (!block) return MEMOPT_ERR_MEMORY;
    memset(block, 0, at);
    memopt_i_gaps_find(s, (memopt_i_gap *)(void *)(block + gaps), (uint32_t *)(void *)(block + last));
    memset(&list, 0, sizeof list);
    list.actions = (memopt_action *)memopt_i_alloc(s->host, bytes, MEMOPT_I_HOST_ALIGN);
    list.capacity = 13 * s->action_count; /* each action at most four transfers of three */
    if (list.actions) {
        memopt_i_gaps_fill(s->actions, s->action_count, (const memopt_i_gap *)(const void *)(block + gaps), &list);
        memopt_i_free(s->host, s->actions, s->capacity * sizeof *s->actions, MEMOPT_I_HOST_ALIGN);
        s->actions = list.actions; s->capacity = list.capacity; s->action_count = list.count;
    } else status = MEMOPT_ERR_MEMORY;
    memopt_i_free(s->host, block, at, MEMOPT_I_HOST_ALIGN);
    return status;
}
/* The actions for a budget (0: for the overhead that is allowed), or the textbook's; `need` receives how many. */
static memopt_status memopt_i_solver_ask(memopt_i_solver *s, size_t budget, size_t *need) {
    memopt_schedule_result r; memopt_status status;
    memset(&r, 0, sizeof r);
    if (!s->schedule)
        return memopt_schedule_textbook(&s->rounded, s->desc->rule, s->desc->every, s->actions, s->capacity, need);
    if (budget) status = memopt_schedule_for_budget(s->schedule, budget, s->actions, s->capacity, s->host, &r);
    else status = memopt_schedule_for_overhead(s->schedule, s->desc->overhead, s->actions, s->capacity, s->host, &r);
    if (!budget && status == MEMOPT_ERR_STATE) status = MEMOPT_ERR_ARGUMENT; /* no schedule of this rule is that fast */
    *need = r.actions;
    return status;
}
static memopt_status memopt_i_solver_try(memopt_i_solver *s, size_t budget, memopt_i_shape **out) {
    memopt_status status = memopt_i_solver_ask(s, budget, &s->action_count);
    if (status == MEMOPT_ERR_BUFFER) {
        memopt_action *actions; size_t bytes;
        if (memopt_i_mul(s->action_count, sizeof *actions, &bytes)) return MEMOPT_ERR_OVERFLOW;
        actions = (memopt_action *)memopt_i_alloc(s->host, bytes, MEMOPT_I_HOST_ALIGN);
        if (!actions) return MEMOPT_ERR_MEMORY;
        memopt_i_free(s->host, s->actions, s->capacity * sizeof *actions, MEMOPT_I_HOST_ALIGN);
        s->actions = actions; s->capacity = s->action_count;
        status = memopt_i_solver_ask(s, budget, &s->action_count);
    }
    if (!status && !s->schedule && s->desc->keep != MEMOPT_KEEP_EXACT) status = memopt_i_solver_shrink(s);
    return status ? status : memopt_i_shape_make(s, out);
}
/* The shape with the least placed peak: along the frontier from below, until more is alive than the best one takes. */
static memopt_status memopt_i_solver_least(memopt_i_solver *s, memopt_i_shape **out) {
    memopt_i_shape *best = NULL, *shape = NULL; memopt_point *points; size_t count = 0, bytes, i; memopt_status status;
    if (!s->schedule) return memopt_i_solver_try(s, 0, out);
    status = memopt_schedule_frontier(s->schedule, NULL, 0, &count);
    if (status != MEMOPT_ERR_BUFFER) return status ? status : MEMOPT_ERR_STATE;
    if (memopt_i_mul(count, sizeof *points, &bytes)) return MEMOPT_ERR_OVERFLOW;
    points = (memopt_point *)memopt_i_alloc(s->host, bytes, MEMOPT_I_HOST_ALIGN);
    if (!points) return MEMOPT_ERR_MEMORY;
    status = memopt_schedule_frontier(s->schedule, points, count, &count);
    for (i = 0; i < count && i < MEMOPT_I_SCRIPT_TRIES && !status; ++i) {
        if (best && points[i].peak >= best->pass.peak) break;
        status = memopt_i_solver_try(s, memopt_i_max(points[i].peak, 1), &shape);
        if (status) break;
        if (best && best->pass.peak <= shape->pass.peak) memopt_i_shape_free(s->host, shape);
        else { memopt_i_shape_free(s->host, best); best = shape; }
    }
    memopt_i_free(s->host, points, bytes, MEMOPT_I_HOST_ALIGN);
    if (status) memopt_i_shape_free(s->host, best);
    else *out = best;
    return status;
}
/* Between a budget whose shape fits and one whose shape does not: a few steps towards the larger. */
static memopt_status memopt_i_solver_refine(memopt_i_solver *s, size_t fits, size_t fails, size_t limit,
                                            memopt_i_shape **best) {
    memopt_i_shape *shape = NULL; int k;
    for (k = 0; k < 4 && fails - fits > s->align; ++k) {
        const size_t middle = fits + (fails - fits) / 2;
        const memopt_status status = memopt_i_solver_try(s, middle, &shape);
        if (status) return status;
        if (shape->pass.peak > limit) { memopt_i_shape_free(s->host, shape); fails = middle; continue; }
        memopt_i_shape_free(s->host, *best);
        *best = shape; fits = middle;
    }
    return MEMOPT_OK;
}
/* The fastest shape found whose placed peak is within the limit. */
static memopt_status memopt_i_solver_fit(memopt_i_solver *s, size_t limit, memopt_i_shape **out) {
    memopt_i_shape *shape = NULL; memopt_status status = MEMOPT_OK; size_t budget = limit, fails = limit; int k;
    for (k = 0; k < MEMOPT_I_SCRIPT_TRIES && budget; ++k) {
        size_t excess;
        if (s->schedule && budget < s->schedule->found[0][0].peak) break;
        status = memopt_i_solver_try(s, budget, &shape);
        if (status) return status;
        if (shape->pass.peak <= limit) {
            if (k) status = memopt_i_solver_refine(s, budget, fails, limit, &shape);
            if (status) memopt_i_shape_free(s->host, shape);
            else *out = shape;
            return status;
        }
        excess = shape->pass.peak - limit;
        fails = budget;
        budget = memopt_i_min(budget, shape->pass.bound);
        budget = budget > excess ? budget - excess : 0;
        memopt_i_shape_free(s->host, shape);
        if (!s->schedule) return MEMOPT_ERR_MEMORY; /* a textbook has no smaller one */
    }
    status = memopt_i_solver_least(s, &shape);
    if (status) return status;
    if (shape->pass.peak > limit) { memopt_i_shape_free(s->host, shape); return MEMOPT_ERR_MEMORY; }
    *out = shape;
    return MEMOPT_OK;
}
static memopt_status memopt_i_shape_solve(const memopt_tape_desc *desc, const memopt_chain *chain,
                                          const memopt_host *host, size_t align, int least, memopt_i_shape **out) {
    memopt_i_solver s; memopt_status status = memopt_i_solver_open(&s, desc, chain, host, align);
    if (!status && least) status = memopt_i_solver_least(&s, out);
    else if (!status && desc->budget) status = memopt_i_solver_fit(&s, desc->budget, out);
    else if (!status) status = memopt_i_solver_try(&s, 0, out);
    memopt_i_solver_close(&s);
    return status;
}
/* @section tape : script kept arena random base host api_tape
   Runs a schedule over the engine's callbacks, a pass at a time.
   Problem    Recomputing is easy to get wrong where it cannot be seen: a statistic updated twice, a mask drawn anew, a
              buffer that dies too early, memory that stays after a failure.
   Idea       Everything is decided before the first pass: order, places, what each callback is told. A pass takes its
              peak from the arena in one push, goes through the moves, and gives all back with one rewind, however it
              ends. What must not differ from run to run is given by place: seed and stream are functions of pass and
              segment, an engine's own generator is put back to where it was before the first run.
   Invariant  IDLE: nothing is held, in the arena or in the store. BETWEEN forward and backward: `base` is ours, as long
              as the mark taken behind it is good. `busy` while the engine's code runs: it can only look, not act.
   Again      Two things that mean the same nearly always: `again`, this forward has run before in this pass (its hash
              and its generator's state are known), and what the engine is told. A calibration tells "recompute" from
              the first run on; a nested tape goes by its outer one, and knows a first run by its seed, which differs
              from segment to segment and pass to pass.
   Nested     The outer forward is an evaluation of the inner tape, the outer backward a whole pass of it, all in the
              outer one's scratch. Its seed is made of the outer seed and stream.
   Cost       About 10 ns a callback, when nothing is hashed or rounded.
   Trap       Hashing needs the whole output, and `output_unused` allows a forward to stop early. Asked for by `verify`,
              hashing wins and nothing is told to be unused; on by MEMOPT_DEBUG alone, such outputs are not hashed.
   Trap       Memory of a device, and of a dry run, is not for the CPU: nothing is rounded, copied or hashed there. */
enum { MEMOPT_I_TAPE_IDLE, MEMOPT_I_TAPE_BETWEEN };
#define MEMOPT_I_TAPE_SHAPES 8
struct memopt_tape {
    memopt_tape_desc desc; /* without what it pointed to */
    memopt_host      host;
    memopt_layer    *layers;
    memopt_i_shape **shapes, *shape; /* all that are kept, and the one in use */
    uint64_t        *hashes;      /* of each segment's output in this pass */
    double          *costs, *measured; /* of each forward, then of each backward: as given, and in seconds */
    unsigned char   *states;      /* of the engine's generator: of each segment, at present, before a calibration */
    void           **skips, **skip_grads;
    uint8_t         *stored;      /* of each value: the store has it */
    uint64_t        *times;       /* during a calibration: nanoseconds of [segment][forward, backward][repeat] */
    size_t           count, skip_count, state_bytes, align, repeats, repeat;
    unsigned char   *base, *placed;
    size_t           placed_bytes, most;    /* most: bytes a pass has taken of the arena */
    memopt_mark      before, behind;        /* of the arena, around the push */
    void            *outside[MEMOPT_I_OUTSIDE];
    uint64_t         next, passes, solves, uses, probes;
    uint64_t         seed, stream;          /* of this pass; stream: of segment 0 */
    int state, busy, visible, verify, again, told, evaluating, is_measured;
    memopt_tape_error error;
    size_t           memory;
};
static memopt_status memopt_i_tape_fail_at(memopt_tape *t, memopt_status status, const char *reason, size_t segment,
                                           size_t action) {
    t->error.status = status; t->error.reason = reason; t->error.segment = segment; t->error.action = action;
    return status;
}
static memopt_status memopt_i_tape_fail(memopt_tape *t, memopt_status status, const char *reason) {
    return memopt_i_tape_fail_at(t, status, reason, SIZE_MAX, SIZE_MAX);
}
static memopt_status memopt_i_tape_fail_move(memopt_tape *t, const memopt_i_move *m, memopt_status status,
                                             const char *reason) {
    const size_t segment = m->op <= MEMOPT_OP_BACKWARD || !m->index ? m->index : m->index - 1u; /* a value's maker */
    return memopt_i_tape_fail_at(t, status, reason, segment, m->action);
}
/* Not from a callback, and, where `idle`, not between forward and backward. */
static memopt_status memopt_i_tape_ready(memopt_tape *t, int idle) {
    if (t->busy) return memopt_i_tape_fail(t, MEMOPT_ERR_STATE, "called from a callback of this tape");
    if (idle && t->state != MEMOPT_I_TAPE_IDLE)
        return memopt_i_tape_fail(t, MEMOPT_ERR_STATE, "between a forward and its backward");
    return MEMOPT_OK;
}

/* -- moves -- */

static void *memopt_i_tape_at(const memopt_tape *t, size_t place) {
    return place > SIZE_MAX - MEMOPT_I_OUTSIDE ? t->outside[SIZE_MAX - place] : t->base + place;
}
/* Only to see a difference: four lanes of 8 bytes; each step can be undone, so that no single change is lost. */
static uint64_t memopt_i_tape_hash(const void *bytes, size_t count) {
    const unsigned char *p = (const unsigned char *)bytes; uint64_t lane[4], word; size_t i, k;
    for (k = 0; k < 4; ++k) lane[k] = count + k;
    for (i = 0; i + 32 <= count; i += 32)
        for (k = 0; k < 4; ++k) {
            memcpy(&word, p + i + 8 * k, 8);
            lane[k] = memopt_i_script_mix(lane[k], word);
        }
    for (k = 0; i < count; i += 8, ++k) {
        word = 0;
        memcpy(&word, p + i, memopt_i_min(8, count - i));
        lane[k] = memopt_i_script_mix(lane[k], word);
    }
    word = lane[0];
    for (k = 1; k < 4; ++k) word = memopt_i_script_mix(word, lane[k]);
    return word;
}
static void memopt_i_tape_skips(memopt_tape *t, const memopt_i_script *script, const memopt_i_move *m, int on) {
    uint32_t i;
    for (i = m->touch; i < m->touch + m->touch_count; ++i) {
        const memopt_i_touch *touch = &script->touches[i];
        t->skips[touch->skip] = on ? memopt_i_tape_at(t, touch->value) : NULL;
        t->skip_grads[touch->skip] = on ? memopt_i_tape_at(t, touch->grad) : NULL;
    }
}
/* A callback, and in a calibration how long it takes. */
static memopt_status memopt_i_tape_time(memopt_tape *t, memopt_step_fn *fn, const memopt_step *step, int backward) {
    const memopt_clock *clock = &t->host.clock; uint64_t from = 0, to = 0; memopt_status status;
    if (clock->now_fn(clock->user, &from)) return MEMOPT_ERR_IO;
    status = fn(step);
    if (!status && clock->now_fn(clock->user, &to)) return MEMOPT_ERR_IO;
    t->times[(2 * step->segment + (size_t)backward) * t->repeats + t->repeat] = to - from;
    return status;
}
static memopt_status memopt_i_tape_call(memopt_tape *t, const memopt_i_script *script, const memopt_i_move *m) {
    const memopt_layer *layer = &t->layers[m->index]; const memopt_segment *segment = &t->shape->segments[m->index];
    const int backward = m->op == MEMOPT_OP_BACKWARD;
    memopt_step_fn *fn = backward ? layer->backward_fn : layer->forward_fn; memopt_step step; memopt_status status;
    step.user = layer->user; step.segment = m->index;
    step.is_recompute = !backward && (m->again || t->told);
    step.output_unused = m->unread && step.is_recompute && !t->times && !(t->verify && t->desc.verify);
    step.evaluating = t->evaluating;
    step.input = memopt_i_tape_at(t, m->input); step.output = memopt_i_tape_at(t, m->output);
    step.saved = memopt_i_tape_at(t, m->saved); step.scratch = memopt_i_tape_at(t, m->scratch);
    step.scratch_bytes = backward ? segment->backward_scratch
                       : m->op == MEMOPT_OP_FORWARD ? memopt_i_chain_plain(segment) : segment->forward_scratch;
    step.untouchable = !t->visible;
    step.grad_output = memopt_i_tape_at(t, m->grad_output); step.grad_input = memopt_i_tape_at(t, m->grad_input);
    step.skips = t->skips; step.skip_grads = t->skip_grads;
    step.seed = t->seed; step.stream = t->stream + m->index;
    if (m->touch_count) memopt_i_tape_skips(t, script, m, 1);
    status = t->times && m->op != MEMOPT_OP_FORWARD ? memopt_i_tape_time(t, fn, &step, backward) : fn(&step);
    if (m->touch_count) memopt_i_tape_skips(t, script, m, 0);
    return status;
}
/* A forward with the engine's own generator where it was when this segment ran first. */
static memopt_status memopt_i_tape_draw(memopt_tape *t, const memopt_i_script *script, const memopt_i_move *m) {
    const memopt_tape_desc *d = &t->desc; unsigned char *mine = t->states + m->index * t->state_bytes;
    unsigned char *present = t->states + t->count * t->state_bytes; memopt_status status;
    if (!m->again && !t->again) {
        d->random_save_fn(d->random_user, mine);
        return memopt_i_tape_call(t, script, m);
    }
    d->random_save_fn(d->random_user, present);
    d->random_load_fn(d->random_user, mine);
    status = memopt_i_tape_call(t, script, m);
    d->random_load_fn(d->random_user, present);
    return status;
}
static memopt_status memopt_i_tape_verify(memopt_tape *t, const memopt_i_move *m, const void *output, size_t bytes) {
    const int again = m->again || t->again; uint64_t hash;
    if (m->unread && again && !t->desc.verify) return MEMOPT_OK; /* it may have stopped early */
    hash = memopt_i_tape_hash(output, bytes);
    if (!again) t->hashes[m->index] = hash;
    else if (t->hashes[m->index] != hash)
        return memopt_i_tape_fail_move(t, m, MEMOPT_ERR_CORRUPT, "a segment gave other bits when it ran again");
    return MEMOPT_OK;
}
static memopt_status memopt_i_tape_forward(memopt_tape *t, const memopt_i_script *script, const memopt_i_move *m) {
    const size_t bytes = t->shape->segments[m->index].output_bytes; void *output = memopt_i_tape_at(t, m->output);
    const memopt_status status = t->states && !t->evaluating ? memopt_i_tape_draw(t, script, m)
                                                             : memopt_i_tape_call(t, script, m);
    if (status) return memopt_i_tape_fail_move(t, m, status, t->times ? "a forward callback or the clock failed"
                                                                      : "a forward callback failed");
    if (!t->visible || !bytes) return MEMOPT_OK;
    if (t->desc.keep != MEMOPT_KEEP_EXACT && m->index + 1u < t->count)
        memopt_i_kept_run(MEMOPT_I_KEPT_ROUND, t->desc.keep, output, bytes, NULL, &t->host.threads);
    return t->verify && !t->evaluating ? memopt_i_tape_verify(t, m, output, bytes) : MEMOPT_OK;
}
/* A transfer: to and from a smaller copy in our own memory, or to and from the store. */
static memopt_status memopt_i_tape_transfer(memopt_tape *t, const memopt_i_move *m) {
    const memopt_tape_store *store = &t->desc.store; const size_t v = m->index;
    const size_t bytes = t->shape->segments[v - 1].output_bytes; void *value = memopt_i_tape_at(t, m->input);
    const memopt_keep keep = v < t->count ? t->desc.keep : MEMOPT_KEEP_EXACT; memopt_status status = MEMOPT_OK;
    if (!store->write_fn) {
        if (!t->visible || m->op == MEMOPT_OP_WAIT || m->op == MEMOPT_OP_FORGET) return MEMOPT_OK;
        memopt_i_kept_run(m->op == MEMOPT_OP_WRITE ? MEMOPT_I_KEPT_ENCODE : MEMOPT_I_KEPT_DECODE, keep, value, bytes,
                          memopt_i_tape_at(t, m->output), &t->host.threads);
        return MEMOPT_OK;
    }
    switch (m->op) {
    case MEMOPT_OP_WRITE:  t->stored[v] = 1; status = store->write_fn(store->user, v, value, bytes); break;
    case MEMOPT_OP_READ:   status = store->read_fn(store->user, v, value, bytes); break;
    case MEMOPT_OP_WAIT:   status = store->wait_fn(store->user, v); break;
    case MEMOPT_OP_FORGET: t->stored[v] = 0; store->forget_fn(store->user, v); break;
    }
    return status ? memopt_i_tape_fail_move(t, m, status, "the store failed") : MEMOPT_OK;
}
static memopt_status memopt_i_tape_run(memopt_tape *t, const memopt_i_script *script, size_t from, size_t to) {
    memopt_status status = MEMOPT_OK; size_t i;
    t->busy = 1;
    for (i = from; i < to && !status; ++i) {
        const memopt_i_move *m = &script->moves[i];
        if (m->op <= MEMOPT_OP_FORWARD_SAVE) status = memopt_i_tape_forward(t, script, m);
        else if (m->op == MEMOPT_OP_BACKWARD) {
            status = memopt_i_tape_call(t, script, m);
            if (status) (void)memopt_i_tape_fail_move(t, m, status, t->times ? "a backward callback or the clock failed"
                                                                             : "a backward callback failed");
        } else status = memopt_i_tape_transfer(t, m);
    }
    t->busy = 0;
    return status;
}
/* Whether the CPU may touch this pass's memory. */
static void memopt_i_tape_see(memopt_tape *t, int visible) {
    t->visible = visible;
    t->verify = visible && (t->desc.verify || MEMOPT_DEBUG >= 2);
}

/* -- passes -- */

/* The memory of a pass: one push, or what was placed. */
static memopt_status memopt_i_tape_take(memopt_tape *t, size_t bytes) {
    memopt_push_options options; memopt_arena *arena = t->desc.arena;
    t->base = t->placed;
    if (!arena && bytes > t->placed_bytes)
        return memopt_i_tape_fail(t, MEMOPT_ERR_MEMORY, "no memory was placed, or less than a pass needs");
    if (!arena) { memopt_i_tape_see(t, 1); return MEMOPT_OK; }
    memset(&options, 0, sizeof options);
    options.tag = t->desc.tag; options.alignment = t->align; options.name = "tape";
    t->before = t->behind = memopt_arena_mark(arena);
    if (!bytes) return MEMOPT_OK;
    t->base = (unsigned char *)memopt_arena_push_with(arena, bytes, &options);
    if (!t->base) return memopt_i_tape_fail(t, memopt_arena_error(arena).status, "the arena has no room for a pass");
    t->behind = memopt_arena_mark(arena);
    return MEMOPT_OK;
}
/* Whether what a forward pushed is still ours: nobody has rewound the arena below its end. */
static int memopt_i_tape_holds(const memopt_tape *t) {
    const memopt_i_end *low = t->desc.arena ? &t->desc.arena->ends[0] : NULL;
    return !low || (t->behind.used <= low->used && !memopt_i_mark_is_stale(low, &t->behind));
}
/* The end of a pass, however it went: the store forgets, the arena is as it was. */
static void memopt_i_tape_end(memopt_tape *t) {
    const memopt_tape_store *store = &t->desc.store; size_t v;
    t->busy = 1;
    for (v = 1; v <= t->count && store->forget_fn; ++v)
        if (t->stored[v]) { t->stored[v] = 0; store->forget_fn(store->user, v); }
    t->busy = 0;
    if (t->desc.arena && memopt_i_tape_holds(t)) (void)memopt_arena_rewind(t->desc.arena, t->before);
    t->base = NULL;
    t->state = MEMOPT_I_TAPE_IDLE;
}
static void memopt_i_tape_outside(memopt_tape *t, const void *input, const void *grad_output, void *grad_input) {
    const memopt_chain *c = &t->shape->chain;
    t->outside[SIZE_MAX - MEMOPT_I_INPUT] = (void *)(uintptr_t)input;
    t->outside[SIZE_MAX - MEMOPT_I_GRAD_OUTPUT] =
        c->segments[c->count - 1].grad_bytes ? (void *)(uintptr_t)grad_output : NULL;
    t->outside[SIZE_MAX - MEMOPT_I_GRAD_INPUT] = c->input_grad_bytes ? grad_input : NULL;
}
static memopt_status memopt_i_tape_begin(memopt_tape *t, const void *input) {
    const memopt_i_script *script = &t->shape->pass; memopt_status status = memopt_i_tape_take(t, script->peak);
    if (status) return status;
    if (t->desc.arena) t->most = memopt_i_max(t->most, t->behind.used - t->before.used);
    memopt_i_tape_outside(t, input, NULL, NULL);
    status = memopt_i_tape_run(t, script, 0, script->split);
    if (status) memopt_i_tape_end(t);
    else t->state = MEMOPT_I_TAPE_BETWEEN;
    return status;
}
static memopt_status memopt_i_tape_return(memopt_tape *t, const void *grad_output, void *grad_input) {
    const memopt_i_script *script = &t->shape->pass; memopt_status status;
    if (memopt_i_tape_holds(t)) {
        memopt_i_tape_outside(t, t->outside[SIZE_MAX - MEMOPT_I_INPUT], grad_output, grad_input);
        status = memopt_i_tape_run(t, script, script->split, script->count);
    } else status = memopt_i_tape_fail(t, MEMOPT_ERR_STATE, "the arena was rewound below the pass");
    memopt_i_tape_end(t);
    return status;
}
/* As the next pass of a tape that stands alone. */
static void memopt_i_tape_alone(memopt_tape *t, uint64_t pass) {
    t->seed = t->desc.seed; t->stream = pass * MEMOPT_CHAIN_MOST;
    t->again = t->told = t->evaluating = 0;
}
static const char *memopt_i_tape_lacks(const memopt_tape *t, const void *grad_output, const void *grad_input) {
    const memopt_chain *c = &t->shape->chain;
    if (c->segments[c->count - 1].grad_bytes && !grad_output) return "the last output's gradient is missing";
    if (c->input_grad_bytes && !grad_input) return "there is no place for the input's gradient";
    return NULL;
}
MEMOPT_API memopt_status memopt_tape_forward(memopt_tape *tape, const void *input) {
    memopt_status status = tape ? memopt_i_tape_ready(tape, 1) : MEMOPT_ERR_ARGUMENT;
    if (status) return status;
    if (!input) return memopt_i_tape_fail(tape, MEMOPT_ERR_ARGUMENT, "the input is NULL");
    memopt_i_tape_alone(tape, tape->next);
    return memopt_i_tape_begin(tape, input);
}
MEMOPT_API memopt_status memopt_tape_backward(memopt_tape *tape, const void *grad_output, void *grad_input) {
    memopt_status status = tape ? memopt_i_tape_ready(tape, 0) : MEMOPT_ERR_ARGUMENT; const char *lacks;
    if (status) return status;
    if (tape->state != MEMOPT_I_TAPE_BETWEEN)
        return memopt_i_tape_fail(tape, MEMOPT_ERR_STATE, "a backward without its forward");
    lacks = memopt_i_tape_lacks(tape, grad_output, grad_input);
    if (lacks) return memopt_i_tape_fail(tape, MEMOPT_ERR_ARGUMENT, lacks);
    status = memopt_i_tape_return(tape, grad_output, grad_input);
    if (status) return status;
    ++tape->next; ++tape->passes;
    return MEMOPT_OK;
}
MEMOPT_API const void *memopt_tape_output(const memopt_tape *tape) {
    if (!tape || tape->state != MEMOPT_I_TAPE_BETWEEN || tape->busy) return NULL;
    return memopt_i_tape_at(tape, tape->shape->pass.output);
}
MEMOPT_API memopt_status memopt_tape_abandon(memopt_tape *tape) {
    const memopt_status status = tape ? memopt_i_tape_ready(tape, 0) : MEMOPT_ERR_ARGUMENT;
    if (!status && tape->state == MEMOPT_I_TAPE_BETWEEN) memopt_i_tape_end(tape);
    return status;
}
static memopt_status memopt_i_tape_evaluate(memopt_tape *t, const void *input, void *output) {
    const memopt_i_script *script = &t->shape->evaluation; memopt_status status;
    memopt_i_tape_outside(t, input, NULL, NULL);
    t->outside[SIZE_MAX - MEMOPT_I_RESULT] = output ? output : memopt_i_tape_at(t, script->output);
    status = memopt_i_tape_run(t, script, 0, script->count);
    memopt_i_tape_end(t);
    return status;
}
MEMOPT_API memopt_status memopt_tape_evaluate(memopt_tape *tape, const void *input, void *output) {
    memopt_status status = tape ? memopt_i_tape_ready(tape, 1) : MEMOPT_ERR_ARGUMENT;
    if (status) return status;
    if (!input) return memopt_i_tape_fail(tape, MEMOPT_ERR_ARGUMENT, "the input is NULL");
    status = memopt_i_tape_take(tape, tape->shape->evaluation.peak);
    if (status) return status;
    memopt_i_tape_alone(tape, tape->next);
    tape->evaluating = 1;
    return memopt_i_tape_evaluate(tape, input, output);
}
MEMOPT_API memopt_status memopt_tape_seek(memopt_tape *tape, uint64_t pass) {
    const memopt_status status = tape ? memopt_i_tape_ready(tape, 1) : MEMOPT_ERR_ARGUMENT;
    if (!status) tape->next = pass;
    return status;
}

/* -- nested -- */

/* Take the outer tape's place in random numbers and in what has run before. */
static void memopt_i_tape_inherit(memopt_tape *t, const memopt_step *step, int recompute) {
    const memopt_noise noise = memopt_noise_make(step->seed, step->stream);
    const uint64_t seed = (uint64_t)noise.key[1] << 32 | noise.key[0];
    t->again = recompute && seed == t->seed && !t->stream;
    t->told = recompute;
    t->seed = seed; t->stream = 0;
    t->evaluating = step->evaluating;
    t->base = (unsigned char *)step->scratch;
    memopt_i_tape_see(t, !step->untouchable);
}
static memopt_status memopt_i_tape_nest_ready(memopt_tape *t, size_t bytes, const memopt_step *step) {
    const memopt_status status = memopt_i_tape_ready(t, 1);
    if (!status && bytes > step->scratch_bytes)
        return memopt_i_tape_fail(t, MEMOPT_ERR_STATE, "reshaped to more memory than the outer tape was told");
    return status;
}
static memopt_status memopt_i_tape_nest_forward(const memopt_step *step) {
    memopt_tape *t = (memopt_tape *)step->user;
    const memopt_status status = memopt_i_tape_nest_ready(t, t->shape->evaluation.peak, step);
    if (status || step->output_unused) return status; /* its backward runs all of it again */
    memopt_i_tape_inherit(t, step, step->is_recompute);
    return memopt_i_tape_evaluate(t, step->input, step->output);
}
static memopt_status memopt_i_tape_nest_backward(const memopt_step *step) {
    memopt_tape *t = (memopt_tape *)step->user; const memopt_i_script *script = &t->shape->pass;
    memopt_status status = memopt_i_tape_nest_ready(t, script->peak, step);
    if (status) return status;
    if (step->grad_input && !t->shape->chain.input_grad_bytes)
        return memopt_i_tape_fail(t, MEMOPT_ERR_ARGUMENT, "an input gradient is wanted: input_grad_bytes is 0");
    memopt_i_tape_inherit(t, step, 1);
    memopt_i_tape_outside(t, step->input, step->grad_output, step->grad_input);
    status = memopt_i_tape_run(t, script, 0, script->count);
    memopt_i_tape_end(t);
    t->passes += !status;
    return status;
}
MEMOPT_API memopt_status memopt_tape_nest(memopt_tape *inner, memopt_segment *segment, memopt_layer *layer) {
    memopt_segment s; const memopt_i_shape *shape; size_t i; memopt_status status;
    if (!inner || !segment || !layer) return MEMOPT_ERR_ARGUMENT;
    status = memopt_i_tape_ready(inner, 1);
    if (status) return status;
    if (inner->desc.arena)
        return memopt_i_tape_fail(inner, MEMOPT_ERR_ARGUMENT, "an inner tape has no arena of its own");
    shape = inner->shape;
    memset(&s, 0, sizeof s);
    s.output_bytes = s.saved_bytes = shape->segments[inner->count - 1].output_bytes;
    s.grad_bytes = shape->segments[inner->count - 1].grad_bytes;
    s.forward_scratch = s.plain_scratch = shape->evaluation.peak;
    s.backward_scratch = shape->pass.peak;
    for (i = 0; i < inner->count; ++i) s.forward_cost += shape->segments[i].forward_cost;
    s.backward_cost = shape->result.cost;
    *segment = s;
    layer->forward_fn = memopt_i_tape_nest_forward; layer->backward_fn = memopt_i_tape_nest_backward;
    layer->user = inner;
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_tape_place(memopt_tape *tape, void *memory, size_t bytes) {
    const memopt_status status = tape ? memopt_i_tape_ready(tape, 1) : MEMOPT_ERR_ARGUMENT;
    if (status) return status;
    if (tape->desc.arena) return memopt_i_tape_fail(tape, MEMOPT_ERR_ARGUMENT, "the tape has an arena");
    if ((uintptr_t)memory % tape->align) return memopt_i_tape_fail(tape, MEMOPT_ERR_ARGUMENT, "not aligned to 64");
    tape->placed = (unsigned char *)memory;
    tape->placed_bytes = memory ? bytes : 0;
    return MEMOPT_OK;
}

/* -- shapes -- */

/* The shape of a chain, known or solved now, in use from here on. */
static memopt_status memopt_i_tape_use(memopt_tape *t, const memopt_chain *chain) {
    const uint64_t hash = memopt_i_chain_hash(chain); memopt_i_shape *shape = NULL; size_t i, place = 0;
    memopt_status status;
    for (i = 0; i < t->desc.shapes; ++i) {
        memopt_i_shape *known = t->shapes[i], *worst = t->shapes[place];
        if (known && known->hash == hash && memopt_i_chain_equal(&known->chain, chain)) {
            known->used = ++t->uses; t->shape = known;
            return MEMOPT_OK;
        }
        if (worst && (!known || known->used < worst->used)) place = i;
    }
    status = memopt_i_shape_solve(&t->desc, chain, &t->host, t->align, 0, &shape);
    if (status) return status;
    memopt_i_shape_free(&t->host, t->shapes[place]);
    shape->used = ++t->uses; ++t->solves;
    t->shape = t->shapes[place] = shape;
    return MEMOPT_OK;
}
/* A shape as the engine gave it: nothing of it is measured yet. */
static void memopt_i_tape_given(memopt_tape *t) {
    size_t i;
    for (i = 0; i < t->count; ++i) {
        t->costs[i] = t->shape->segments[i].forward_cost; t->costs[t->count + i] = t->shape->segments[i].backward_cost;
    }
    t->is_measured = 0; t->most = 0;
}
MEMOPT_API memopt_status memopt_tape_reshape(memopt_tape *tape, const memopt_chain *chain) {
    const memopt_i_shape *before; memopt_status status = tape ? memopt_i_tape_ready(tape, 1) : MEMOPT_ERR_ARGUMENT;
    if (status) return status;
    if (!chain || !chain->segments || chain->count != tape->count || chain->skip_count != tape->skip_count
        || (chain->skip_count && !chain->skips))
        return memopt_i_tape_fail(tape, MEMOPT_ERR_ARGUMENT, "not as many segments and skips as before");
    before = tape->shape;
    status = memopt_i_tape_use(tape, chain);
    if (status) return memopt_i_tape_fail(tape, status, "the new shape cannot be solved, or not within the budget");
    if (tape->shape != before) memopt_i_tape_given(tape);
    return MEMOPT_OK;
}
static uint64_t memopt_i_tape_median(uint64_t *x, size_t n) { /* sorts them, in place; of two middles the lower */
    size_t i, k;
    for (i = 1; i < n; ++i) {
        const uint64_t y = x[i];
        for (k = i; k && x[k - 1] > y; --k) x[k] = x[k - 1];
        x[k] = y;
    }
    return x[(n - 1) / 2];
}
/* The passes of a calibration: numbers from the far end, so that no pass of training ever draws the same. */
static memopt_status memopt_i_tape_probe(memopt_tape *t, const void *input, const void *grad_output, void *grad_input) {
    memopt_status status = MEMOPT_OK;
    for (t->repeat = 0; t->repeat < t->repeats && !status; ++t->repeat) {
        memopt_i_tape_alone(t, ~t->probes++);
        t->told = 1;
        status = memopt_i_tape_begin(t, input);
        if (!status) status = memopt_i_tape_return(t, grad_output, grad_input);
    }
    return status;
}
/* Medians in place of the costs, and the shape that follows from them. */
static memopt_status memopt_i_tape_adopt(memopt_tape *t) {
    const size_t bytes = t->count * sizeof(memopt_segment), n = t->repeats; size_t i;
    memopt_chain chain = t->shape->chain; memopt_segment *segments; memopt_status status;
    segments = (memopt_segment *)memopt_i_alloc(&t->host, bytes, MEMOPT_I_HOST_ALIGN);
    if (!segments) return memopt_i_tape_fail(t, MEMOPT_ERR_MEMORY, "no memory for the chain with its new costs");
    memcpy(segments, chain.segments, bytes);
    for (i = 0; i < t->count; ++i) {
        segments[i].forward_cost = 1e-9 * (double)memopt_i_tape_median(t->times + 2 * i * n, n);
        segments[i].backward_cost = 1e-9 * (double)memopt_i_tape_median(t->times + (2 * i + 1) * n, n);
    }
    chain.segments = segments;
    status = memopt_i_tape_use(t, &chain);
    for (i = 0; i < t->count && !status; ++i) {
        t->measured[i] = segments[i].forward_cost; t->measured[t->count + i] = segments[i].backward_cost;
    }
    memopt_i_free(&t->host, segments, bytes, MEMOPT_I_HOST_ALIGN);
    if (status) return memopt_i_tape_fail(t, status, "the chain with its new costs cannot be solved");
    t->is_measured = 1; t->most = 0;
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_tape_calibrate(memopt_tape *tape, const void *input, const void *grad_output,
                                               void *grad_input, size_t repeats) {
    memopt_status status = tape ? memopt_i_tape_ready(tape, 1) : MEMOPT_ERR_ARGUMENT; const char *lacks; size_t bytes;
    const memopt_tape_desc *d; unsigned char *state;
    if (status) return status;
    lacks = input && repeats ? memopt_i_tape_lacks(tape, grad_output, grad_input) : "no input, or no repeats";
    if (lacks) return memopt_i_tape_fail(tape, MEMOPT_ERR_ARGUMENT, lacks);
    if (memopt_i_mul(repeats, 2 * tape->count * sizeof *tape->times, &bytes))
        return memopt_i_tape_fail(tape, MEMOPT_ERR_OVERFLOW, "too many repeats");
    tape->times = (uint64_t *)memopt_i_alloc(&tape->host, bytes, MEMOPT_I_HOST_ALIGN);
    if (!tape->times) return memopt_i_tape_fail(tape, MEMOPT_ERR_MEMORY, "no memory for the times");
    d = &tape->desc; state = tape->states ? tape->states + (tape->count + 1) * tape->state_bytes : NULL;
    if (state) d->random_save_fn(d->random_user, state);
    tape->repeats = repeats;
    status = memopt_i_tape_probe(tape, input, grad_output, grad_input);
    if (state) d->random_load_fn(d->random_user, state);
    if (!status) status = memopt_i_tape_adopt(tape);
    memopt_i_free(&tape->host, tape->times, bytes, MEMOPT_I_HOST_ALIGN);
    tape->times = NULL;
    return status;
}

/* -- creation -- */

static memopt_status memopt_i_tape_check(const memopt_tape_desc *d, memopt_host *host) {
    const memopt_tape_store *s = &d->store; size_t i;
    const int store = !!s->write_fn + !!s->read_fn + !!s->wait_fn + !!s->forget_fn;
    const int hooks = !!d->random_bytes + !!d->random_save_fn + !!d->random_load_fn;
    const memopt_status status = memopt_i_chain_check(&d->chain);
    if (status) return status;
    if (!d->layers || memopt_host_resolve(d->host, host)) return MEMOPT_ERR_ARGUMENT;
    if ((store && store != 4) || (hooks && hooks != 3)) return MEMOPT_ERR_ARGUMENT;
    if (!store != !d->slow.slots || (d->keep != MEMOPT_KEEP_EXACT && store) || d->keep > MEMOPT_KEEP_8BIT)
        return MEMOPT_ERR_ARGUMENT;
    for (i = 0; i < d->chain.count; ++i)
        if (!d->layers[i].forward_fn || !d->layers[i].backward_fn) return MEMOPT_ERR_ARGUMENT;
    if (d->arena && !d->arena->source->host_visible && d->arena->source->kind != MEMOPT_SOURCE_COUNTING
        && (d->keep != MEMOPT_KEEP_EXACT || d->verify)) return MEMOPT_ERR_UNSUPPORTED;
    return MEMOPT_OK;
}
static size_t memopt_i_tape_align(const memopt_arena *arena) {
    return arena ? memopt_i_max(arena->alignment, memopt_i_min(64, arena->source->base_alignment)) : 64;
}
/* One block for the tape and its tables. */
static memopt_status memopt_i_tape_alloc(const memopt_tape_desc *d, const memopt_host *host, size_t state_bytes,
                                         memopt_tape **out) {
    const size_t n = d->chain.count, states = d->random_bytes ? n + 2 : 0;
    size_t at = 0, head, layers, shapes, hashes, measured, state, skips, stored; unsigned char *block; memopt_tape *t;
    if (memopt_i_script_part(&at, 1, sizeof *t, &head) || memopt_i_script_part(&at, n, sizeof *t->layers, &layers)
        || memopt_i_script_part(&at, d->shapes, sizeof(void *), &shapes)
        || memopt_i_script_part(&at, n, sizeof *t->hashes, &hashes)
        || memopt_i_script_part(&at, 2 * n, 2 * sizeof *t->measured, &measured)
        || memopt_i_script_part(&at, states, state_bytes, &state)
        || memopt_i_script_part(&at, d->chain.skip_count, 2 * sizeof *t->skips, &skips)
        || memopt_i_script_part(&at, n + 1, 1, &stored)) return MEMOPT_ERR_OVERFLOW;
    block = (unsigned char *)memopt_i_alloc(host, at, MEMOPT_I_HOST_ALIGN);
    if (!block) return MEMOPT_ERR_MEMORY;
    memset(block, 0, at);
    t = (memopt_tape *)(void *)(block + head);
    t->memory = at;
    t->layers = (memopt_layer *)(void *)(block + layers);
    t->shapes = (memopt_i_shape **)(void *)(block + shapes);
    t->hashes = (uint64_t *)(void *)(block + hashes);
    t->costs = (double *)(void *)(block + measured); t->measured = t->costs + 2 * n;
    t->states = states ? block + state : NULL;
    t->skips = (void **)(void *)(block + skips); t->skip_grads = t->skips + d->chain.skip_count;
    t->stored = block + stored;
    *out = t;
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_tape_create(const memopt_tape_desc *desc, memopt_tape **out) {
    memopt_tape_desc d; memopt_host host; memopt_tape *t = NULL; size_t state_bytes = 0; memopt_status status;
    if (!desc || !out) return MEMOPT_ERR_ARGUMENT;
    d = *desc;
    status = memopt_i_tape_check(&d, &host);
    if (status) return status;
    if (!d.shapes) d.shapes = MEMOPT_I_TAPE_SHAPES;
    if (!d.tag) d.tag = MEMOPT_TAG_ACTIVATIONS;
    if (memopt_i_align_up(d.random_bytes, 16, &state_bytes)) return MEMOPT_ERR_OVERFLOW;
    status = memopt_i_tape_alloc(&d, &host, state_bytes, &t);
    if (status) return status;
    t->host = host; t->state_bytes = state_bytes;
    t->count = d.chain.count; t->skip_count = d.chain.skip_count;
    t->align = memopt_i_tape_align(d.arena);
    t->error.reason = memopt_status_text(MEMOPT_OK); t->error.segment = t->error.action = SIZE_MAX;
    memcpy(t->layers, d.layers, t->count * sizeof *t->layers);
    t->desc = d;
    memopt_i_tape_see(t, !d.arena || d.arena->source->host_visible);
    t->desc.chain.segments = NULL; t->desc.chain.skips = NULL; t->desc.layers = NULL; t->desc.host = NULL;
    status = memopt_i_tape_use(t, &d.chain);
    if (status) { memopt_tape_destroy(t); return status; }
    memopt_i_tape_given(t);
    *out = t;
    return MEMOPT_OK;
}
MEMOPT_API void memopt_tape_destroy(memopt_tape *tape) {
    memopt_host host; size_t i;
    if (!tape || tape->busy) return; /* a callback cannot destroy what calls it */
    if (tape->state == MEMOPT_I_TAPE_BETWEEN) memopt_i_tape_end(tape);
    host = tape->host;
    for (i = 0; i < tape->desc.shapes; ++i) memopt_i_shape_free(&host, tape->shapes[i]);
    memopt_i_free(&host, tape, tape->memory, MEMOPT_I_HOST_ALIGN);
}
MEMOPT_API memopt_status memopt_tape_least(const memopt_tape_desc *desc, size_t *bytes) {
    memopt_host host; memopt_i_shape *shape = NULL; memopt_status status;
    if (!desc || !bytes) return MEMOPT_ERR_ARGUMENT;
    status = memopt_i_tape_check(desc, &host);
    if (!status) status = memopt_i_shape_solve(desc, &desc->chain, &host, memopt_i_tape_align(desc->arena), 1, &shape);
    if (status) return status;
    *bytes = shape->pass.peak;
    memopt_i_shape_free(&host, shape);
    return MEMOPT_OK;
}

/* -- what it tells -- */

MEMOPT_API memopt_tape_stats memopt_tape_get_stats(const memopt_tape *tape) {
    memopt_tape_stats s;
    memset(&s, 0, sizeof s);
    if (!tape) return s;
    s.peak = tape->shape->pass.peak; s.live_peak = tape->shape->result.peak;
    s.evaluate_peak = tape->shape->evaluation.peak; s.kept = tape->shape->kept;
    s.cost = tape->shape->result.cost; s.extra = tape->shape->result.extra;
    s.actions = tape->shape->result.actions; s.forwards = tape->shape->result.forwards;
    s.passes = tape->passes; s.solves = tape->solves;
    return s;
}
MEMOPT_API const memopt_action *memopt_tape_actions(const memopt_tape *tape, size_t *count) {
    if (count) *count = tape ? tape->shape->result.actions : 0;
    return tape ? tape->shape->actions : NULL;
}
MEMOPT_API memopt_tape_error memopt_tape_get_error(const memopt_tape *tape) {
    memopt_tape_error none;
    none.status = MEMOPT_ERR_ARGUMENT; none.reason = "the tape is NULL"; none.segment = none.action = SIZE_MAX;
    return tape ? tape->error : none;
}
/* The report: costs have any unit, so they are shown as shares of the pass; measured ones in microseconds as well. */
static void memopt_i_put_share(memopt_i_out *o, double part, double whole, size_t width) {
    const double share = whole > 0 ? part / whole * 1000 + 0.5 : 0;
    const uint64_t permille = share < 1e9 ? (uint64_t)share : 1000000000;
    memopt_i_put_right_number(o, permille / 10, width - 3);
    memopt_i_put_text(o, "."); memopt_i_put_number(o, permille % 10); memopt_i_put_text(o, "%");
}
static void memopt_i_put_right(memopt_i_out *o, const char *text, size_t width) {
    size_t length = strlen(text);
    for (; length < width; ++length) memopt_i_put(o, " ", 1);
    memopt_i_put_text(o, text);
}
static size_t memopt_i_tape_forwards(const memopt_i_shape *shape, size_t segment) {
    size_t i, n = 0;
    for (i = 0; i < shape->result.actions; ++i)
        n += shape->actions[i].op <= MEMOPT_OP_FORWARD_SAVE && shape->actions[i].index == segment;
    return n;
}
/* What a segment takes of a pass, by the costs given or measured. */
static double memopt_i_tape_takes(const memopt_tape *t, const double *costs, size_t i) {
    return costs[i] * (double)memopt_i_tape_forwards(t->shape, i) + costs[t->count + i];
}
static void memopt_i_tape_row(memopt_i_out *o, const memopt_tape *t, size_t i, double predicted, double measured) {
    const memopt_segment *s = &t->shape->segments[i];
    const size_t scratch = memopt_i_max(memopt_i_max(s->forward_scratch, s->plain_scratch), s->backward_scratch);
    memopt_i_put_right_number(o, i, 7);
    memopt_i_put_right_bytes(o, s->output_bytes, 12);
    memopt_i_put_right_bytes(o, s->saved_bytes, 12);
    memopt_i_put_right_bytes(o, scratch, 12);
    memopt_i_put_right_number(o, memopt_i_tape_forwards(t->shape, i), 10);
    memopt_i_put_share(o, memopt_i_tape_takes(t, t->costs, i), predicted, 11);
    if (t->is_measured) {
        memopt_i_put_share(o, memopt_i_tape_takes(t, t->measured, i), measured, 11);
        memopt_i_put_right_number(o, (uint64_t)(t->measured[i] * 1e6 + 0.5), 14);
        memopt_i_put_right_number(o, (uint64_t)(t->measured[t->count + i] * 1e6 + 0.5), 14);
    } else {
        memopt_i_put_right(o, "-", 11); memopt_i_put_right(o, "-", 14); memopt_i_put_right(o, "-", 14);
    }
    memopt_i_put_text(o, "\n");
}
static void memopt_i_tape_sums(memopt_i_out *o, const memopt_tape *t, double measured) {
    const memopt_i_shape *shape = t->shape; const double base = shape->result.cost - shape->result.extra;
    memopt_i_put_text(o, "peak predicted "); memopt_i_put_bytes(o, shape->pass.peak);
    memopt_i_put_text(o, " (");              memopt_i_put_number(o, shape->pass.peak);
    memopt_i_put_text(o, " bytes), measured ");
    if (t->most) { memopt_i_put_bytes(o, t->most); memopt_i_put_text(o, " ("); memopt_i_put_number(o, t->most);
                   memopt_i_put_text(o, " bytes)"); }
    else memopt_i_put_text(o, "-");
    memopt_i_put_text(o, "; alive at most "); memopt_i_put_bytes(o, shape->result.peak);
    memopt_i_put_text(o, ", between forward and backward "); memopt_i_put_bytes(o, shape->kept);
    memopt_i_put_text(o, "; evaluation "); memopt_i_put_bytes(o, shape->evaluation.peak);
    memopt_i_put_text(o, "\nforwards "); memopt_i_put_number(o, shape->result.forwards);
    memopt_i_put_text(o, " of "); memopt_i_put_number(o, t->count);
    memopt_i_put_text(o, " segments, extra time predicted "); memopt_i_put_share(o, shape->result.extra, base, 4);
    if (t->is_measured) {
        memopt_i_put_text(o, "; a pass by the measured times ");
        memopt_i_put_number(o, (uint64_t)(measured * 1e6 + 0.5)); memopt_i_put_text(o, " us");
    } else memopt_i_put_text(o, "; times are not measured: memopt_tape_calibrate()");
    memopt_i_put_text(o, "\npasses "); memopt_i_put_number(o, t->passes);
    memopt_i_put_text(o, ", shapes solved "); memopt_i_put_number(o, t->solves);
    memopt_i_put_text(o, "\n");
}
MEMOPT_API memopt_status memopt_tape_report(const memopt_tape *tape, char *buffer, size_t capacity, size_t *length) {
    memopt_i_out o; double predicted = 0, measured = 0; size_t i;
    if (!tape || (!buffer && capacity)) return MEMOPT_ERR_ARGUMENT;
    o = memopt_i_out_begin(buffer, capacity);
    for (i = 0; i < tape->count; ++i) {
        predicted += memopt_i_tape_takes(tape, tape->costs, i);
        measured += memopt_i_tape_takes(tape, tape->measured, i);
    }
    memopt_i_put_text(&o, "segment      output       saved     scratch  forwards  predicted   measured    forward us"
                          "   backward us\n");
    for (i = 0; i < tape->count; ++i) memopt_i_tape_row(&o, tape, i, predicted, measured);
    memopt_i_tape_sums(&o, tape, measured);
    return memopt_i_out_end(&o, 1, length);
}
/* @section stash : kept arena base host api_tape
   Copies on a stack at the low end of an arena, for engines that update one buffer in place.
   Idea       Last in, first out is what an arena's low end does: a push is a mark and a copy, a pop is a copy and a
              rewind. Where the newest copy ends must be where the arena ends; else somebody else has pushed and not
              popped, or popped too much, and the pop is refused. */
typedef struct memopt_i_stashed { /* 32 bytes: where the arena was, and what was pushed */
    uint64_t epoch;
    size_t before, n;
    memopt_keep keep;
} memopt_i_stashed;
struct memopt_stash {
    memopt_arena *arena;
    memopt_host   host;
    size_t count, depth, memory;
    memopt_i_stashed *entries;
};
MEMOPT_API size_t memopt_stash_bytes(size_t n, memopt_keep keep) {
    size_t bytes;
    if (keep > MEMOPT_KEEP_8BIT || memopt_i_mul(n, sizeof(float), &bytes) || bytes > (size_t)PTRDIFF_MAX) return 0;
    return memopt_i_kept_bytes(keep, bytes);
}
MEMOPT_API memopt_status memopt_stash_create(memopt_arena *arena, size_t depth, const memopt_host *host,
                                             memopt_stash **out) {
    memopt_host h; memopt_stash *stash; size_t bytes;
    const size_t head = memopt_i_align_down(sizeof *stash + 63, 64);
    if (!arena || !depth || !out || memopt_host_resolve(host, &h)) return MEMOPT_ERR_ARGUMENT;
    if (memopt_i_mul(depth, sizeof *stash->entries, &bytes) || memopt_i_add(bytes, head, &bytes))
        return MEMOPT_ERR_MEMORY;
    stash = (memopt_stash *)memopt_i_alloc(&h, bytes, MEMOPT_I_HOST_ALIGN);
    if (!stash) return MEMOPT_ERR_MEMORY;
    stash->arena = arena; stash->host = h; stash->count = 0; stash->depth = depth; stash->memory = bytes;
    stash->entries = (memopt_i_stashed *)(void *)((unsigned char *)stash + head);
    *out = stash;
    return MEMOPT_OK;
}
static memopt_mark memopt_i_stash_mark(const memopt_stash *stash, size_t entry) {
    memopt_mark mark = memopt_arena_mark(stash->arena);
    mark.used = stash->entries[entry].before; mark.epoch = stash->entries[entry].epoch;
    return mark;
}
/* How far into the arena a copy begins. */
static size_t memopt_i_stash_offset(const memopt_stash *stash, const memopt_i_stashed *e) {
    const size_t unit = stash->arena->alignment;
    return (e->before + unit - 1) & ~(unit - 1);
}
/* The arena's low end is where the newest push left it, and nobody was below since. */
static int memopt_i_stash_is_last(const memopt_stash *stash) {
    const memopt_i_stashed *e = &stash->entries[stash->count - 1]; const memopt_i_end *low = &stash->arena->ends[0];
    const memopt_mark mark = memopt_i_stash_mark(stash, stash->count - 1);
    return low->used == memopt_i_stash_offset(stash, e) + memopt_stash_bytes(e->n, e->keep)
        && !memopt_i_mark_is_stale(low, &mark);
}
MEMOPT_API void memopt_stash_destroy(memopt_stash *stash) {
    memopt_host host;
    if (!stash) return;
    if (stash->count && memopt_i_stash_is_last(stash))
        (void)memopt_arena_rewind(stash->arena, memopt_i_stash_mark(stash, 0));
    host = stash->host;
    memopt_i_free(&host, stash, stash->memory, MEMOPT_I_HOST_ALIGN);
}
MEMOPT_API memopt_status memopt_stash_push(memopt_stash *stash, float *x, size_t n, memopt_keep keep) {
    memopt_i_stashed e; memopt_mark before; size_t bytes; void *copy;
    if (!stash || !x || !n || keep > MEMOPT_KEEP_8BIT) return MEMOPT_ERR_ARGUMENT;
    bytes = memopt_stash_bytes(n, keep);
    if (!bytes) return MEMOPT_ERR_OVERFLOW;
    if (stash->count == stash->depth) return MEMOPT_ERR_STATE;
    before = memopt_arena_mark(stash->arena);
    copy = memopt_arena_push(stash->arena, bytes, MEMOPT_TAG_CHECKPOINTS);
    if (!copy) return memopt_arena_error(stash->arena).status;
    e.epoch = before.epoch; e.before = before.used; e.n = n; e.keep = keep;
    if (stash->arena->source->host_visible) {
        memopt_i_kept_run(MEMOPT_I_KEPT_ENCODE, keep, x, n * sizeof *x, copy, &stash->host.threads);
        if (keep != MEMOPT_KEEP_EXACT)
            memopt_i_kept_run(MEMOPT_I_KEPT_DECODE, keep, x, n * sizeof *x, copy, &stash->host.threads);
    }
    stash->entries[stash->count++] = e;
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_stash_pop(memopt_stash *stash, float *x, size_t n) {
    const memopt_i_stashed *e; unsigned char *copy;
    if (!stash || !x || !n) return MEMOPT_ERR_ARGUMENT;
    e = stash->count ? &stash->entries[stash->count - 1] : NULL;
    if (!e || e->n != n || !memopt_i_stash_is_last(stash)) return MEMOPT_ERR_STATE;
    copy = stash->arena->base + memopt_i_stash_offset(stash, e);
    if (stash->arena->source->host_visible)
        memopt_i_kept_run(MEMOPT_I_KEPT_DECODE, e->keep, x, n * sizeof *x, copy, &stash->host.threads);
    --stash->count;
    return memopt_arena_rewind(stash->arena, memopt_i_stash_mark(stash, stash->count));
}
MEMOPT_API size_t memopt_stash_depth(const memopt_stash *stash) { return stash ? stash->count : 0; }
#if defined(MEMOPT_I_X86) && !defined(__clang__)
#  pragma GCC diagnostic pop
#endif
#endif /* MEMOPT_I_IMPLEMENTED */
#endif /* MEMOPT_IMPLEMENTATION */

/* MIT License

   Copyright (c) 2026 the memopt authors

   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
   documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
   rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to
   permit persons to whom the Software is furnished to do so, subject to the following conditions:

   The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
   Software.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
   WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
   COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
   OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
