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
    size_t        largest;    /* the largest request that would have succeeded instead */
} memopt_error;
/* @section api_host : api_status */
typedef struct memopt_allocator { /* all zero = malloc and free; else set both functions */
    void *(*alloc_fn)(void *user, size_t bytes, size_t alignment); /* NULL when there is none; alignment: a power of two */
    void  (*free_fn)(void *user, void *block, size_t bytes, size_t alignment); /* what alloc_fn was asked for; never NULL */
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

typedef enum memopt_open { MEMOPT_OPEN_READ, MEMOPT_OPEN_WRITE /* read and write, made when missing, kept as it is */ } memopt_open;
typedef struct memopt_files { /* all zero = the system's files; else set every function */
    memopt_status (*open_fn)(void *user, const char *path, memopt_open mode, void **file);
    memopt_status (*close_fn)(void *user, void *file); /* the file is gone whatever it returns */
    memopt_status (*read_fn)(void *user, void *file, uint64_t offset, void *bytes, size_t count, size_t *done); /* done < count: the end */
    memopt_status (*write_fn)(void *user, void *file, uint64_t offset, const void *bytes, size_t count); /* all of them, or an error */
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

typedef struct memopt_host { /* the only doors outside; zero it (or pass NULL) for the C library and the calling thread */
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
MEMOPT_API void           memopt_pool_destroy(memopt_pool *pool); /* joins the threads; NULL is fine; never during a run */
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

/** A tag of your own. The name is copied, at most 31 bytes of it. OK, ERR_ARGUMENT (NULL, empty), ERR_MEMORY (all tags taken). */
MEMOPT_API memopt_status memopt_ledger_tag_add(memopt_ledger *ledger, const char *name, memopt_tag *out);
MEMOPT_API const char   *memopt_ledger_tag_name(const memopt_ledger *ledger, memopt_tag tag); /* "?" for no tag of it */
/** What the events from here on belong to: the training step and the layer. */
MEMOPT_API void          memopt_ledger_label(memopt_ledger *ledger, uint32_t step, uint32_t layer);

/**
 * Book a block that came or went. For memory of your own; arenas and heaps do it for theirs.
 *
 * ledger  NULL is fine: nothing is booked
 * address of the block, what tells it from others; a block booked out must have been booked in
 * name    static text or NULL; kept as a pointer
 * returns OK, ERR_ARGUMENT (no such tag), ERR_OVERFLOW (the sum would not fit), ERR_STATE (more out than in)
 */
MEMOPT_API memopt_status memopt_ledger_add(memopt_ledger *ledger, memopt_tag tag, size_t bytes, const void *address, const char *name);
MEMOPT_API memopt_status memopt_ledger_remove(memopt_ledger *ledger, memopt_tag tag, size_t bytes, const void *address);
MEMOPT_API memopt_status memopt_ledger_failed(memopt_ledger *ledger, memopt_tag tag, size_t bytes);  /* asked in vain */
MEMOPT_API memopt_status memopt_ledger_retried(memopt_ledger *ledger, memopt_tag tag, size_t bytes); /* served another way */

MEMOPT_API memopt_usage memopt_ledger_usage(const memopt_ledger *ledger, memopt_tag tag); /* all zero for no tag of it */
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
MEMOPT_API memopt_status memopt_ledger_export(const memopt_ledger *ledger, memopt_export format, char *buffer, size_t capacity, size_t *length);
/** The table for people: memopt_ledger_export(ledger, MEMOPT_EXPORT_REPORT, ...). */
MEMOPT_API memopt_status memopt_ledger_report(const memopt_ledger *ledger, char *buffer, size_t capacity, size_t *length);
/** One line of text for an error of an arena or heap: what was asked, what is free, who holds most. ledger may be NULL. */
MEMOPT_API memopt_status memopt_ledger_explain(const memopt_ledger *ledger, const memopt_error *error, char *buffer, size_t capacity, size_t *length);
/* @section api_source : api_ledger */
typedef enum memopt_source_kind {
    MEMOPT_SOURCE_BLOCK, MEMOPT_SOURCE_ALLOCATOR, MEMOPT_SOURCE_PAGES, MEMOPT_SOURCE_COUNTING,
    MEMOPT_SOURCE_DEVICE, MEMOPT_SOURCE_PINNED, MEMOPT_SOURCE_FILE, MEMOPT_SOURCE_USER
} memopt_source_kind;
typedef struct memopt_source memopt_source;
struct memopt_source { /* where bytes come from; fill one in to add a device. It must outlive what is built on it */
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
    int    fresh_is_zero;  /* 1: bytes read as zero after commit, also after decommit and commit */
    memopt_source_kind kind;
    void          *user;
    memopt_ledger *ledger; /* NULL, or who is told of reservations and commits; set it before the first use */
    memopt_host    host;   /* of the ready sources */
    unsigned       flags;  /* of the ready sources */
};

/**
 * A block of yours, for one arena or heap at a time. Up to 63 bytes at its front are skipped to align it: bring 63 more.
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
    size_t             capacity;    /* bytes, rounded up to the source's granularity; 0 = all that the source has */
    size_t             alignment;   /* of pushes that name none; 0 = the source's: 64, 256 for a device */
    memopt_ledger     *ledger;      /* NULL, or who is told of every push and rewind; outlives the arena */
    size_t             log_entries; /* pushes kept apart for the ledger; 0 = default: 4096. More are booked as OTHER */
    const memopt_host *host;        /* memory of the arena itself; NULL = malloc */
} memopt_arena_desc;
/**
 * Create an arena: lifetimes that nest. Bytes are pushed at the low or at the top end and go back, many at a time,
 * by rewinding that end to a mark. Nothing moves; memory is committed as it is reached.
 *
 * out     receives the arena; untouched on failure
 * returns OK, ERR_ARGUMENT (NULL, alignment no power of two, below 16 or above the source's base_alignment, half a
 *         host), ERR_OVERFLOW, ERR_MEMORY (for the arena itself, or the source has less), and what the source returns
 * memory  the arena itself, and 32 bytes a log entry when there is a ledger or at MEMOPT_DEBUG 2
 * threads one thread at a time per arena
 */
MEMOPT_API memopt_status memopt_arena_create(const memopt_arena_desc *desc, memopt_arena **out);
MEMOPT_API void          memopt_arena_destroy(memopt_arena *arena); /* books everything out, releases; NULL is fine */

/**
 * Push bytes at the low end (long-lived) or at the top end (short-lived). A handful of instructions.
 *
 * returns the address, aligned as the arena is; for a device or a counting source it is not for the CPU to touch.
 *         NULL on failure, nothing changed, with the reason in memopt_arena_error(): ERR_ARGUMENT (bytes 0), ERR_OVERFLOW,
 *         ERR_MEMORY (the ends would cross, or the source refused), ERR_CORRUPT (MEMOPT_DEBUG 2: the bytes were written
 *         after they had been rewound; the next push goes through)
 */
MEMOPT_API void *memopt_arena_push(memopt_arena *arena, size_t bytes, memopt_tag tag);
MEMOPT_API void *memopt_arena_push_top(memopt_arena *arena, size_t bytes, memopt_tag tag);
MEMOPT_API void *memopt_arena_push_zero(memopt_arena *arena, size_t bytes, memopt_tag tag); /* low end, all bytes zero */
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

typedef struct memopt_mark { /* where an end was; a value, nothing to close */
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
 *         rewind went below: its bytes belong to somebody else now)
 */
MEMOPT_API memopt_status memopt_arena_rewind(memopt_arena *arena, memopt_mark mark);

typedef struct memopt_arena_stats {
    size_t capacity;
    size_t used_low, used_top; /* bytes of each end, alignment included */
    size_t free_bytes;         /* between the ends */
    size_t peak;               /* the capacity with which the same pushes would just have fitted */
    size_t committed;
} memopt_arena_stats;
MEMOPT_API memopt_arena_stats memopt_arena_get_stats(const memopt_arena *arena); /* all zero for NULL */
MEMOPT_API memopt_error       memopt_arena_error(const memopt_arena *arena); /* of the last call that failed */
/** Give committed memory between the ends back to the source. What the source returns; OK when it has no commit. */
MEMOPT_API memopt_status      memopt_arena_trim(memopt_arena *arena);
/** At MEMOPT_DEBUG 2: ERR_CORRUPT when bytes between the ends were written after they had been rewound. Else OK. */
MEMOPT_API memopt_status      memopt_arena_check(memopt_arena *arena);
/** The name of the push that holds an address, as far as the log knows it (a ledger or MEMOPT_DEBUG 2); else NULL. */
MEMOPT_API const char        *memopt_arena_name_at(const memopt_arena *arena, const void *address);
/** How far an address is from the arena's beginning: the offset that a dry run tells. */
MEMOPT_API size_t             memopt_arena_offset(const memopt_arena *arena, const void *address);
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
extern int     madvise(void *start, size_t bytes, int advice);
extern ssize_t pread(int file, void *bytes, size_t count, off_t offset);
extern ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset);
extern int     ftruncate(int file, off_t bytes);
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
/* The index of the highest and the lowest set bit; x is not 0. */
static unsigned memopt_i_high_bit(uint64_t x) {
#if defined(__GNUC__) || defined(__clang__)
    return 63u - (unsigned)__builtin_clzll(x);
#else
    unsigned i = 0;
    while (x >>= 1) ++i;
    return i;
#endif
}
static unsigned memopt_i_low_bit(uint64_t x) {
#if defined(__GNUC__) || defined(__clang__)
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
static memopt_status memopt_i_system_read(void *user, void *file, uint64_t offset, void *bytes, size_t count, size_t *done) {
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
static memopt_status memopt_i_system_now(void *user, uint64_t *nanoseconds) {
    (void)user;
#  if defined(CLOCK_MONOTONIC)
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t)) return MEMOPT_ERR_IO;
    *nanoseconds = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#  else /* -std=c99 hides the steady clock; this one is steady unless somebody sets it */
    struct timeval t;
    if (gettimeofday(&t, NULL)) return MEMOPT_ERR_IO;
    *nanoseconds = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_usec * 1000u;
#  endif
    return MEMOPT_OK;
}
#elif defined(MEMOPT_I_WINDOWS)
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
        h = CreateFileA(path, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_EXISTING, 0, NULL);
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
static memopt_status memopt_i_system_read(void *user, void *file, uint64_t offset, void *bytes, size_t count, size_t *done) {
    size_t had = 0;
    (void)user;
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
    while (had < count) {
        OVERLAPPED at = memopt_i_file_position(offset + had); DWORD n = 0;
        if (!WriteFile((HANDLE)file, (const char *)bytes + had, (DWORD)memopt_i_min(count - had, (size_t)1 << 30), &n, &at) || !n)
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
    if (bytes > (uint64_t)INT64_MAX) return MEMOPT_ERR_OVERFLOW;
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
static memopt_status memopt_i_system_close(void *user, void *file) { (void)user; (void)file; return MEMOPT_ERR_UNSUPPORTED; }
static memopt_status memopt_i_system_read(void *user, void *file, uint64_t offset, void *bytes, size_t count, size_t *done) {
    (void)user; (void)file; (void)offset; (void)bytes; (void)count; (void)done;
    return MEMOPT_ERR_UNSUPPORTED;
}
static memopt_status memopt_i_system_write(void *user, void *file, uint64_t offset, const void *bytes, size_t count) {
    (void)user; (void)file; (void)offset; (void)bytes; (void)count;
    return MEMOPT_ERR_UNSUPPORTED;
}
static memopt_status memopt_i_system_size(void *user, void *file, uint64_t *bytes) { (void)user; (void)file; (void)bytes; return MEMOPT_ERR_UNSUPPORTED; }
static memopt_status memopt_i_system_resize(void *user, void *file, uint64_t bytes) { (void)user; (void)file; (void)bytes; return MEMOPT_ERR_UNSUPPORTED; }
static memopt_status memopt_i_system_sync(void *user, void *file) { (void)user; (void)file; return MEMOPT_ERR_UNSUPPORTED; }
static memopt_status memopt_i_system_rename(void *user, const char *from, const char *to) { (void)user; (void)from; (void)to; return MEMOPT_ERR_UNSUPPORTED; }
static memopt_status memopt_i_system_remove(void *user, const char *path) { (void)user; (void)path; return MEMOPT_ERR_UNSUPPORTED; }
static memopt_status memopt_i_system_now(void *user, uint64_t *nanoseconds) { (void)user; (void)nanoseconds; return MEMOPT_ERR_UNSUPPORTED; }
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
    if (!h.allocator.alloc_fn) { h.allocator.alloc_fn = memopt_i_system_alloc; h.allocator.free_fn = memopt_i_system_free; }
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
    pthread_cond_t work, done;  /* work: a new run or the end; done: a run is over, for its owner and for who waits a turn */
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
    p->busy = 0; p->chunk_count = p->next = 0;
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
enum memopt_i_action { MEMOPT_I_ALLOC, MEMOPT_I_FREE, MEMOPT_I_FAILED, MEMOPT_I_RETRIED, MEMOPT_I_RESERVE, MEMOPT_I_RELEASE };
typedef struct memopt_i_event {
    uint64_t time; /* nanoseconds */
    const void *address;
    const char *name;
    size_t bytes;
    memopt_tag tag;
    uint32_t step, layer;
    int action;
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
    size_t tag_count, tag_capacity, block_count, block_places, block_capacity, event_capacity, segment_count, segment_capacity;
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

/* Events and blocks known one by one. */
static void memopt_i_ledger_event(memopt_ledger *l, int action, memopt_tag tag, size_t bytes, const void *address, const char *name) {
    memopt_i_event e; uint64_t before = 0;
    if (action != MEMOPT_I_FAILED && !l->event_capacity) return;
    e.action = action; e.tag = tag; e.bytes = bytes; e.address = address; e.name = name;
    e.step = l->step; e.layer = l->layer; e.time = 0;
    if (l->event_capacity) {
        if (l->event_count) before = l->events[(l->event_count - 1) % l->event_capacity].time;
        if (l->host.clock.now_fn(l->host.clock.user, &e.time)) { ++l->clock_failures; e.time = before; }
        l->events[l->event_count++ % l->event_capacity] = e;
    }
    if (action == MEMOPT_I_FAILED) l->last_failed = e;
}
static size_t memopt_i_ledger_home(const memopt_ledger *l, const void *address) { /* where the search for a block begins */
    return (size_t)((((uint64_t)(uintptr_t)address >> 4) * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (l->block_places - 1);
}
static size_t memopt_i_ledger_place(const memopt_ledger *l, const void *address) { /* of the block, or the free one for it */
    size_t at = memopt_i_ledger_home(l, address);
    while (l->blocks[at].address && l->blocks[at].address != address) at = (at + 1) & (l->block_places - 1);
    return at;
}
static void memopt_i_ledger_know(memopt_ledger *l, memopt_tag tag, size_t bytes, const void *address, const char *name) {
    memopt_i_known *k;
    if (!l->block_capacity) return;
    k = address ? &l->blocks[memopt_i_ledger_place(l, address)] : NULL;
    if (!k || k->address || l->block_count == l->block_capacity) { ++l->unknown_blocks; return; }
    ++l->block_count;
    k->address = address; k->name = name; k->bytes = bytes; k->tag = tag;
    k->step = l->step; k->layer = l->layer;
}
/* Take a block out and close the gap: what comes behind and began its search at or before the gap moves into it. */
static const char *memopt_i_ledger_forget(memopt_ledger *l, const void *address) {
    size_t gap, at; const char *name; const size_t mask = l->block_places - 1;
    if (!l->block_capacity) return NULL;
    gap = address ? memopt_i_ledger_place(l, address) : 0;
    if (!address || !l->blocks[gap].address) { if (l->unknown_blocks) --l->unknown_blocks; return NULL; }
    name = l->blocks[gap].name;
    for (at = (gap + 1) & mask; l->blocks[at].address; at = (at + 1) & mask) {
        const size_t home = memopt_i_ledger_home(l, l->blocks[at].address);
        if (((at - home) & mask) < ((at - gap) & mask)) continue;
        l->blocks[gap] = l->blocks[at];
        gap = at;
    }
    l->blocks[gap].address = NULL;
    --l->block_count;
    return name;
}

/* The books. */
static void memopt_i_ledger_close_peak(memopt_ledger *l) {
    size_t i;
    if (!l->rising) return;
    for (i = 0; i < l->tag_count; ++i) l->tags[i].at_peak = l->tags[i].now;
    l->total.at_peak = l->total.now;
    l->rising = 0;
}
MEMOPT_API memopt_status memopt_ledger_add(memopt_ledger *ledger, memopt_tag tag, size_t bytes, const void *address, const char *name) {
    memopt_usage *u;
    if (!ledger) return MEMOPT_OK;
    if (tag >= ledger->tag_count) return MEMOPT_ERR_ARGUMENT;
    if (bytes > SIZE_MAX - ledger->total.now) return MEMOPT_ERR_OVERFLOW;
    u = &ledger->tags[tag];
    u->now += bytes; ++u->blocks; ++u->allocs;
    if (u->now > u->peak) u->peak = u->now;
    ledger->total.now += bytes; ++ledger->total.blocks; ++ledger->total.allocs;
    if (ledger->total.now > ledger->total.peak) { ledger->total.peak = ledger->total.now; ledger->rising = 1; }
    memopt_i_ledger_know(ledger, tag, bytes, address, name);
    memopt_i_ledger_event(ledger, MEMOPT_I_ALLOC, tag, bytes, address, name);
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_ledger_remove(memopt_ledger *ledger, memopt_tag tag, size_t bytes, const void *address) {
    memopt_usage *u; const char *name;
    if (!ledger) return MEMOPT_OK;
    if (tag >= ledger->tag_count) return MEMOPT_ERR_ARGUMENT;
    u = &ledger->tags[tag];
    if (bytes > u->now || !u->blocks) return MEMOPT_ERR_STATE;
    memopt_i_ledger_close_peak(ledger);
    u->now -= bytes; --u->blocks; ++u->frees;
    ledger->total.now -= bytes; --ledger->total.blocks; ++ledger->total.frees;
    name = memopt_i_ledger_forget(ledger, address);
    memopt_i_ledger_event(ledger, MEMOPT_I_FREE, tag, bytes, address, name);
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_ledger_failed(memopt_ledger *ledger, memopt_tag tag, size_t bytes) {
    if (!ledger) return MEMOPT_OK;
    if (tag >= ledger->tag_count) return MEMOPT_ERR_ARGUMENT;
    ++ledger->tags[tag].failed; ++ledger->total.failed;
    memopt_i_ledger_event(ledger, MEMOPT_I_FAILED, tag, bytes, NULL, NULL);
    return MEMOPT_OK;
}
MEMOPT_API memopt_status memopt_ledger_retried(memopt_ledger *ledger, memopt_tag tag, size_t bytes) {
    if (!ledger) return MEMOPT_OK;
    if (tag >= ledger->tag_count) return MEMOPT_ERR_ARGUMENT;
    ++ledger->tags[tag].retried; ++ledger->total.retried;
    memopt_i_ledger_event(ledger, MEMOPT_I_RETRIED, tag, bytes, NULL, NULL);
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
static memopt_i_segment *memopt_i_ledger_segment(memopt_ledger *l, const void *address) {
    size_t i;
    for (i = 0; i < l->segment_count; ++i)
        if ((uintptr_t)address - (uintptr_t)l->segments[i].base < l->segments[i].reserved) return &l->segments[i];
    return NULL;
}
static void memopt_i_ledger_commit_by(memopt_ledger *l, const void *start, size_t more, size_t less) {
    memopt_i_segment *s = memopt_i_ledger_segment(l, start);
    if (s) s->committed += more - less;
    l->held.committed += more - less;
    if (l->held.committed > l->held.committed_peak) l->held.committed_peak = l->held.committed;
}
static void memopt_i_ledger_committed(memopt_ledger *l, const void *start, size_t bytes) { if (l) memopt_i_ledger_commit_by(l, start, bytes, 0); }
static void memopt_i_ledger_decommitted(memopt_ledger *l, const void *start, size_t bytes) { if (l) memopt_i_ledger_commit_by(l, start, 0, bytes); }
static void memopt_i_ledger_reserved(memopt_ledger *l, const void *base, size_t bytes, size_t committed) {
    memopt_i_segment s;
    if (!l) return;
    s.base = base; s.reserved = bytes; s.committed = 0;
    if (l->segment_count < l->segment_capacity) l->segments[l->segment_count++] = s; else ++l->unknown_segments;
    l->held.reserved += bytes; ++l->held.segments;
    memopt_i_ledger_commit_by(l, base, committed, 0);
    memopt_i_ledger_event(l, MEMOPT_I_RESERVE, MEMOPT_TAG_OTHER, bytes, base, NULL);
}
/* `committed`: what of it was, for a segment that is not in the table. */
static void memopt_i_ledger_released(memopt_ledger *l, const void *base, size_t bytes, size_t committed) {
    memopt_i_segment *s = l ? memopt_i_ledger_segment(l, base) : NULL;
    if (!l) return;
    l->held.reserved -= bytes; --l->held.segments;
    l->held.committed -= s ? s->committed : committed;
    if (s) *s = l->segments[--l->segment_count]; else --l->unknown_segments;
    memopt_i_ledger_event(l, MEMOPT_I_RELEASE, MEMOPT_TAG_OTHER, bytes, base, NULL);
}

/* Writing. Everything below appends to a buffer and counts on when it is full, so that one pass without a buffer tells
   the size. Sizes are written with integers only: printf's %f asks the locale for the decimal point. */
typedef struct memopt_i_out { char *buffer; size_t capacity, length; } memopt_i_out;
static void memopt_i_put(memopt_i_out *o, const void *bytes, size_t count) {
    if (o->length < o->capacity && count) memcpy(o->buffer + o->length, bytes, memopt_i_min(count, o->capacity - o->length));
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
    if (unit) { memopt_i_put_text(o, "."); memopt_i_put_number(o, ((uint64_t)(bytes % one) >> (10 * (unit - 1))) * 10 / 1024); }
    memopt_i_put_text(o, units[unit]);
}
/* Fill up with blanks: what was written since `start` becomes `width` wide, flush left; or right, by moving it. */
static void memopt_i_put_left(memopt_i_out *o, size_t start, size_t width) { while (o->length - start < width) memopt_i_put(o, " ", 1); }
static void memopt_i_put_right_number(memopt_i_out *o, uint64_t n, size_t width) {
    uint64_t limit = 10; size_t digits = 1;
    while (digits < 20 && n >= limit) { ++digits; if (limit > UINT64_MAX / 10) break; limit *= 10; }
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
}
static void memopt_i_report(memopt_i_out *o, const memopt_ledger *l) {
    const memopt_usage all = memopt_ledger_total(l);
    size_t i;
    memopt_i_put_text(o, "memory                   now        peak at the peak  share at the peak      blocks     allocs  failed\n");
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
MEMOPT_API memopt_status memopt_ledger_explain(const memopt_ledger *ledger, const memopt_error *error, char *buffer, size_t capacity, size_t *length) {
    memopt_i_out o; memopt_tag done[3]; size_t place, used = 0;
    if (!error || (!buffer && capacity)) return MEMOPT_ERR_ARGUMENT;
    o = memopt_i_out_begin(buffer, capacity);
    memopt_i_put_text(&o, error->reason ? error->reason : memopt_status_text(error->status));
    if (error->asked) { memopt_i_put_text(&o, ": asked "); memopt_i_put_bytes(&o, error->asked); }
    if (error->status == MEMOPT_ERR_MEMORY) {
        memopt_i_put_text(&o, ", free ");           memopt_i_put_bytes(&o, error->free_bytes);
        memopt_i_put_text(&o, ", largest piece ");  memopt_i_put_bytes(&o, error->largest);
        memopt_i_put_text(&o, ", fragmentation ");
        memopt_i_put_number(&o, error->free_bytes ? (uint64_t)(100.0 - 100.0 * (double)error->largest / (double)error->free_bytes) : 0);
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
typedef struct memopt_i_document { memopt_i_out out; int pickle; int comma; /* JSON: one is due before the next item */ } memopt_i_document;
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
    memopt_i_document_item(d);
    if (!d->pickle) { memopt_i_put_number(&d->out, n); return; }
    if (n <= 0x7fffffff) { memopt_i_put_text(&d->out, "J"); memopt_i_little_endian(&d->out, n, 4); return; }
    memopt_i_put(&d->out, "\x8a\x09", 2); /* a long integer of 9 bytes: the ninth is its sign */
    memopt_i_little_endian(&d->out, n, 8);
    memopt_i_little_endian(&d->out, 0, 1);
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

/* The snapshot. A "stack frame" is where a block comes from: tag and name, step, layer. Blocks that lie in a segment
   tile it together with the free bytes between them; a block of yours that lies in none is a segment of its own. */
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
static void memopt_i_snapshot_frames(memopt_i_document *d, const memopt_ledger *l, memopt_tag tag, const char *name, uint32_t step, uint32_t layer) {
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
static void memopt_i_snapshot_block(memopt_i_document *d, const memopt_ledger *l, uintptr_t address, size_t bytes, const memopt_i_known *k) {
    memopt_i_document_begin(d, 1);
    memopt_i_document_field(d, "address", address);
    memopt_i_document_field(d, "size", bytes);
    memopt_i_document_field(d, "requested_size", k ? bytes : 0);
    memopt_i_document_key(d, "state"); memopt_i_document_text(d, k ? "active_allocated" : "inactive");
    if (k) memopt_i_snapshot_frames(d, l, k->tag, k->name, k->step, k->layer);
    else { memopt_i_document_key(d, "frames"); memopt_i_document_begin(d, 0); memopt_i_document_end(d, 0); }
    memopt_i_document_end(d, 1);
}
/* The segment [base, base + bytes) and the blocks order[first..last) that lie in it. */
static void memopt_i_snapshot_segment(memopt_i_document *d, const memopt_ledger *l, uintptr_t base, size_t bytes, size_t first, size_t last) {
    size_t i, active = 0; uintptr_t at = base;
    for (i = first; i < last; ++i) active += l->blocks[l->order[i]].bytes;
    memopt_i_document_begin(d, 1);
    memopt_i_document_field(d, "device", 0);
    memopt_i_document_field(d, "address", base);
    memopt_i_document_field(d, "total_size", bytes);
    memopt_i_document_field(d, "allocated_size", active);
    memopt_i_document_field(d, "active_size", active);
    memopt_i_document_field(d, "requested_size", active);
    memopt_i_document_field(d, "stream", 0);
    memopt_i_document_key(d, "segment_type"); memopt_i_document_text(d, "large");
    memopt_i_document_key(d, "segment_pool_id");
    memopt_i_document_begin(d, 0); memopt_i_document_number(d, 0); memopt_i_document_number(d, 0); memopt_i_document_end(d, 0);
    memopt_i_document_key(d, "frames"); memopt_i_document_begin(d, 0); memopt_i_document_end(d, 0);
    memopt_i_document_key(d, "blocks");
    memopt_i_document_begin(d, 0);
    for (i = first; i < last; ++i) {
        const memopt_i_known *k = &l->blocks[l->order[i]];
        if ((uintptr_t)k->address > at) memopt_i_snapshot_block(d, l, at, (uintptr_t)k->address - at, NULL);
        memopt_i_snapshot_block(d, l, (uintptr_t)k->address, k->bytes, k);
        at = (uintptr_t)k->address + k->bytes;
    }
    if (base + bytes > at) memopt_i_snapshot_block(d, l, at, base + bytes - at, NULL);
    memopt_i_document_end(d, 0);
    memopt_i_document_end(d, 1);
}
static void memopt_i_snapshot_segments(memopt_i_document *d, const memopt_ledger *l) {
    size_t i, first, last;
    memopt_i_ledger_sort(l);
    memopt_i_document_begin(d, 0);
    for (i = 0; i < l->segment_count; ++i) {
        const uintptr_t base = (uintptr_t)l->segments[i].base;
        for (first = 0; first < l->block_count && (uintptr_t)l->blocks[l->order[first]].address < base; ++first) {}
        for (last = first; last < l->block_count; ++last)
            if ((uintptr_t)l->blocks[l->order[last]].address - base >= l->segments[i].reserved) break;
        memopt_i_snapshot_segment(d, l, base, l->segments[i].reserved, first, last);
    }
    for (i = 0; i < l->block_count; ++i) {
        const memopt_i_known *k = &l->blocks[l->order[i]]; size_t s;
        for (s = 0; s < l->segment_count; ++s)
            if ((uintptr_t)k->address - (uintptr_t)l->segments[s].base < l->segments[s].reserved) break;
        if (s == l->segment_count) memopt_i_snapshot_segment(d, l, (uintptr_t)k->address, k->bytes, i, i + 1);
    }
    memopt_i_document_end(d, 0);
}
static void memopt_i_snapshot_event(memopt_i_document *d, const memopt_ledger *l, const memopt_i_event *e, const char *action) {
    memopt_i_document_begin(d, 1);
    memopt_i_document_key(d, "action"); memopt_i_document_text(d, action);
    memopt_i_document_field(d, "addr", (uintptr_t)e->address);
    memopt_i_document_field(d, "size", e->bytes);
    memopt_i_document_field(d, "stream", 0);
    memopt_i_document_field(d, "time_us", e->time / 1000);
    if (e->action == MEMOPT_I_FAILED) memopt_i_document_field(d, "device_free", l->held.committed > l->total.now ? l->held.committed - l->total.now : 0);
    memopt_i_document_key(d, "pool_id");
    memopt_i_document_begin(d, 0); memopt_i_document_number(d, 0); memopt_i_document_number(d, 0); memopt_i_document_end(d, 0);
    memopt_i_snapshot_frames(d, l, e->tag, e->name, e->step, e->layer);
    memopt_i_document_end(d, 1);
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
        const memopt_i_event *e = &l->events[i % l->event_capacity];
        switch (e->action) {
        case MEMOPT_I_ALLOC:   memopt_i_snapshot_event(d, l, e, "alloc"); break;
        case MEMOPT_I_FREE:    memopt_i_snapshot_event(d, l, e, "free_requested");
                               memopt_i_snapshot_event(d, l, e, "free_completed"); break;
        case MEMOPT_I_FAILED:  memopt_i_snapshot_event(d, l, e, "oom"); break;
        case MEMOPT_I_RESERVE: memopt_i_snapshot_event(d, l, e, "segment_alloc"); break;
        case MEMOPT_I_RELEASE: memopt_i_snapshot_event(d, l, e, "segment_free"); break;
        default: break; /* a retry has no name there */
        }
    }
    memopt_i_document_end(d, 0);
    memopt_i_document_end(d, 0);
    memopt_i_document_end(d, 1);
    if (d->pickle) memopt_i_put_text(&d->out, ".");
}

/* The trace: the running sum of each tag as a counter, failures as instants. The ring may have lost its beginning, so
   the sums begin with what is live now less what the ring says came and went. */
static void memopt_i_trace_event(memopt_i_document *d, const char *name, const char *phase, uint64_t time, const char *key, uint64_t value) {
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
MEMOPT_API memopt_status memopt_ledger_export(const memopt_ledger *ledger, memopt_export format, char *buffer, size_t capacity, size_t *length) {
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
MEMOPT_API memopt_status memopt_ledger_report(const memopt_ledger *ledger, char *buffer, size_t capacity, size_t *length) {
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
    else if (status == MEMOPT_ERR_MEMORY) memopt_ledger_failed(s->ledger, MEMOPT_TAG_OTHER, bytes);
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
    s.base_alignment = (size_t)1 << memopt_i_low_bit((uint64_t)(uintptr_t)s.user); /* as it happens to lie, at least 64 */
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
    s.capacity = SIZE_MAX / 4; /* room for a few reservations side by side */
    s.host_visible = 0;
    s.user = (void *)(uintptr_t)MEMOPT_I_COUNTING_BASE;
    *out = s;
    return MEMOPT_OK;
}

/* Memory really available. Linux keeps the truth in text files: /proc/meminfo for the machine, and for every cgroup we
   are in, and every one above it, a limit, a usage, and how much of the usage is file cache that would make room. */
#define MEMOPT_I_TEXT 4096 /* longest file or path we look at; what is beyond it is not read */
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
#if defined(__linux__)
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
static int memopt_i_cgroup_number(const memopt_host *host, const char *directory, const char *name, const char *key, uint64_t *out) {
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
        if (memopt_i_cgroup_number(host, path, limit_name, "", &limit) && memopt_i_cgroup_number(host, path, usage_name, "", &usage)) {
            (void)memopt_i_cgroup_number(host, path, "memory.stat", cache_key, &cache);
            usage = usage > cache ? usage - cache : 0;
            left = limit > usage ? limit - usage : 0;
            if (left < *available) *available = left;
        }
        if (n <= root) return;
        while (n > root && path[n - 1] != '/') path[--n] = 0;
    }
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
    if (version == 1 && !((below - names) == 6 && !memcmp(names, "memory", 6))) return;
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
    if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&vm, &count) != KERN_SUCCESS) return MEMOPT_ERR_IO;
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
static memopt_status memopt_i_available(const memopt_host *host, uint64_t *bytes) { (void)host; (void)bytes; return MEMOPT_ERR_UNSUPPORTED; }
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
    return madvise(start, bytes, 4 /* MADV_DONTNEED */) || mprotect(start, bytes, PROT_NONE);
#  else
    return mmap(start, bytes, PROT_NONE, MAP_PRIVATE | MAP_FIXED | MEMOPT_I_MAP_ANONYMOUS | MEMOPT_I_MAP_NORESERVE, -1, 0) != start;
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
static int memopt_i_pages_open(void *start, size_t bytes) { return !VirtualAlloc(start, bytes, MEM_COMMIT, PAGE_READWRITE); }
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
typedef struct memopt_i_pushed { size_t before, bytes; const char *name; memopt_tag tag; } memopt_i_pushed; /* before: used then */
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

/* Debug: bytes in the middle are poisoned for ASan, and 0xDD where they have been used before. Offsets are from the base. */
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
static const void *memopt_i_arena_block(const memopt_arena *a, int top, const memopt_i_pushed *e) { /* where it begins */
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
    if (!memopt_i_power_of_two(a.alignment) || a.alignment < 16 || a.alignment > a.source->base_alignment) return MEMOPT_ERR_ARGUMENT;
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
    memopt_i_source_release(arena->source, arena->base, arena->capacity, arena->ends[0].committed + arena->ends[1].committed);
    host = arena->host; /* copied: the struct lies inside what is freed */
    memopt_i_free(&host, arena, arena->memory, MEMOPT_I_HOST_ALIGN);
}

/* Pushing. Fast: the two comparisons. `room` is what the end may reach: committed, and not across the other end. */
static void *memopt_i_arena_push(memopt_arena *arena, size_t bytes, const memopt_push_options *options);
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
    if (MEMOPT_I_UNLIKELY(start >= room || bytes - 1 >= room - start)) return memopt_i_arena_push_slow(arena, bytes, tag, 0);
    arena->ends[0].used = start + bytes;
    return arena->base + start;
}
MEMOPT_API void *memopt_arena_push_top(memopt_arena *arena, size_t bytes, memopt_tag tag) {
    size_t start, floor;
    if (!arena) return NULL;
    start = arena->capacity - arena->ends[1].used;
    floor = memopt_i_max(arena->capacity - arena->ends[1].limit, arena->ends[0].used);
    if (MEMOPT_I_UNLIKELY(start <= floor || bytes - 1 >= start - floor)) return memopt_i_arena_push_slow(arena, bytes, tag, 1);
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
        (void)memopt_i_fail(&arena->error, MEMOPT_ERR_OVERFLOW, "count times size does not fit size_t", SIZE_MAX);
        return NULL;
    }
    return memopt_arena_push(arena, bytes, tag);
}
MEMOPT_API void *memopt_arena_push_with(memopt_arena *arena, size_t bytes, const memopt_push_options *options) {
    memopt_push_options plain = memopt_i_push_plain(MEMOPT_TAG_OTHER);
    return arena ? memopt_i_arena_push(arena, bytes, options ? options : &plain) : NULL;
}

/* The slow path, in order: where the bytes would lie, that their memory is there, that nobody wrote into it, that it is
   zero if it must be, that it is booked; and only then the one assignment that makes it so. */
static void *memopt_i_arena_refuse(memopt_arena *a, memopt_status status, const char *reason, size_t bytes, const memopt_push_options *o) {
    const size_t start = (a->ends[0].used + a->alignment - 1) & ~(a->alignment - 1), top = a->capacity - a->ends[1].used;
    (void)memopt_i_fail(&a->error, status, reason, bytes);
    a->error.free_bytes = memopt_i_arena_middle(a);
    a->error.largest = start < top ? top - start : 0; /* the same at either end: what is aligned below stays below */
    if (status == MEMOPT_ERR_MEMORY && (!a->ledger || o->tag < a->ledger->tag_count)) (void)memopt_ledger_failed(a->ledger, o->tag, bytes);
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
        return memopt_i_arena_refuse(a, MEMOPT_ERR_ARGUMENT, "the alignment is no power of two, or more than the source has", bytes, o);
    if (memopt_i_arena_place(a, bytes, alignment, top, &start))
        return memopt_i_arena_refuse(a, MEMOPT_ERR_MEMORY, "the arena is full", bytes, o);
    used = top ? a->capacity - start : start + bytes;
    s = memopt_i_arena_commit(a, top, used);
    if (s) return memopt_i_arena_refuse(a, s, "the source could not commit memory", bytes, o);
    memopt_i_arena_show(a, start, bytes);
    if (memopt_i_arena_written(a, start, start + bytes)) {
        memopt_i_arena_fill(a, start, bytes); /* as it was before the write: the next push goes through */
        return memopt_i_arena_refuse(a, MEMOPT_ERR_CORRUPT, "bytes were written after they had been rewound", bytes, o);
    }
    s = o->zero && !memopt_i_arena_is_fresh(a, start, bytes) ? a->source->zero_fn(a->source, a->base + start, bytes) : MEMOPT_OK;
    if (!s) s = memopt_i_arena_log(a, top, used, o->tag, o->name);
    if (s) {
        memopt_i_arena_fill(a, start, bytes);
        return memopt_i_arena_refuse(a, s, "the source could not zero, or the ledger has no such tag", bytes, o);
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
static size_t memopt_i_arena_now(const memopt_arena *a) { return memopt_i_max(a->peak, a->ends[0].used + a->ends[1].used); }
MEMOPT_API memopt_status memopt_arena_rewind(memopt_arena *arena, memopt_mark mark) {
    memopt_i_end *end; size_t released;
    if (!arena) return MEMOPT_ERR_ARGUMENT;
    if (mark.arena != arena || (mark.top != 0 && mark.top != 1))
        return memopt_i_fail(&arena->error, MEMOPT_ERR_ARGUMENT, "a mark of another arena", 0);
    end = &arena->ends[mark.top];
    if (mark.used > end->used || mark.epoch > arena->epoch)
        return memopt_i_fail(&arena->error, MEMOPT_ERR_STATE, "a mark from the future: the arena was rewound below it", 0);
    if (memopt_i_mark_is_stale(end, &mark))
        return memopt_i_fail(&arena->error, MEMOPT_ERR_STATE, "a stale mark: its bytes were rewound and pushed anew", 0);
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
MEMOPT_API memopt_status memopt_arena_trim(memopt_arena *arena) {
    int top; memopt_status s;
    if (!arena) return MEMOPT_ERR_ARGUMENT;
    for (top = 0; arena->source->commit_fn && top < 2; ++top) {
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
    if (written) return memopt_i_fail(&arena->error, MEMOPT_ERR_CORRUPT, "bytes were written after they had been rewound", 0);
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
