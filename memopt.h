/* memopt.h - v0.1.0 - train the same network in less memory - C99/C++11, no dependencies - MIT (see end)

   WHAT IT IS  Memory for people who write their own training engines. Three words pick the tool: lifetimes that NEST go
               into an arena, lifetimes in ANY ORDER into a heap, lifetimes KNOWN BEFOREHAND through the planner; a
               ledger knows at any moment who holds what. Each can be used alone.

   DO THIS     in exactly one .c or .cpp file:      #define MEMOPT_IMPLEMENTATION
                                                    #include "memopt.h"
               and everywhere else, plainly:        #include "memopt.h"

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

   CONVENTIONS
     Errors       Every call that can fail returns a memopt_status (0 is success), or NULL where a pointer comes back,
                  with the reason in memopt_arena_error() or memopt_heap_error(). A failed call has changed nothing,
                  leaks nothing and can be repeated; what it would have written, `out`, is untouched. Nothing aborts
                  or prints.
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
#define MEMOPT_SIMD_SCALAR 1 /* the definition of every result; wider levels give its bits */

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
    if (h.threads.worker_count < 0 || h.threads.simd_level < 0) return MEMOPT_ERR_ARGUMENT;
    if (!h.threads.run_fn != !h.threads.worker_count) return MEMOPT_ERR_ARGUMENT;
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
    size_t i;
    if (MEMOPT_DEBUG < 2 || !a->source->host_visible) return 0;
    for (i = start; i < end; ++i) {
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
        return memopt_i_arena_refuse(a, s, "the source could not zero the bytes, or the ledger has no such tag", bytes, o);
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
#endif /* MEMOPT_I_IMPLEMENTED */
#endif /* MEMOPT_IMPLEMENTATION */

/* MIT License

   Copyright (c) 2026 the memopt authors

   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
   documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
   rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
   persons to whom the Software is furnished to do so, subject to the following conditions:

   The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
   Software.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
   WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
   COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
   OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
