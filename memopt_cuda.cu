/* memopt_cuda.cu - v0.2.0 - memopt.h on CUDA devices - C++11, CUDA 12 or 13, cuBLASLt - MIT (see the end of memopt.h)

   WHAT IT IS  The kernels of memopt.h for engines that train on a GPU: numbers in 16 and 8 bits, 8-bit states, all
               optimizers, loss scaling, norms, activations, softmax + cross-entropy in place, linear layers, attention
               and heads without their large matrices; and device memory as a source, so that arenas, heaps, plans,
               ledgers and tapes work on it. Each function is the twin of one in memopt.h: its name with cuda_, its
               arguments, and a stream at the end.

   DO THIS     compile it beside your engine:           nvcc -O2 -arch=native -c memopt_cuda.cu
               and link with                            -lcublasLt -lcudart
               where it is used, in C, C++ or CUDA,
               plainly:                                 #include "memopt_cuda.cu"
               (linked by gcc: -L of CUDA, and -lm -lstdc++ as well). Compute capability 8.0 and up. No flag is needed
               for the right bits; -use_fast_math, -ftz=true and -prec-div=false take them away. It has a copy of
               memopt.h of its own: compile engine and this file with the same memopt.h.
               Or, as with memopt.h, in exactly one .cu file of yours, in place of the first line:
                                                        #define MEMOPT_CUDA_IMPLEMENTATION
                                                        #include "memopt_cuda.cu"

   OPTIONS     [all] same value in every file that includes this; [impl] implementation file only
     MEMOPT_CUDA_STATIC        [impl] MEMOPT_CUDA_IMPLEMENTATION, and all functions are static; in the file that calls
                               them. What is not called is not compiled. They are templates: in
                               `c ? memopt_cuda_a : memopt_cuda_b` write memopt_cuda_a<>
     MEMOPT_ONLY_...           [all]  memopt.h's cut this file, too, if MEMOPT_ONLY_NUMBERS is among them: that is
                               memory to scale below, but codec; _ACTIVATIONS adds codec and the store, _OPERATORS
                               softmax to gemm and linear to attention, _RANKS shard and the store, _MUON gemm and muon
     MEMOPT_CUDA_ONLY_ADAMW    [impl] of the optimizers AdamW and Adam alone, with moments in 32 and 16 bits, and in 8
                               bits of blocks of 256; what is left out is MEMOPT_ERR_UNSUPPORTED. 9 kernels, not 28
     MEMOPT_CUDA_NO_ATTENTION, MEMOPT_CUDA_NO_NORM, MEMOPT_CUDA_NO_BATCH_NORM, MEMOPT_CUDA_NO_CONVERT,
     MEMOPT_CUDA_NO_SCALE, MEMOPT_CUDA_NO_F16
                               [impl] without these functions, which the linker then misses: attention; layer and RMS
                               norm; batch norm; conversions, random numbers, 8-bit blocks and fp8 by themselves; loss
                               scaling, clipping and accumulation, with the shard and Muon, which call them. F16: what
                               has kernels of its own for fp16 (attention, norms, losses, gradients of a bias or of
                               positions) is MEMOPT_CUDA_ERR_TYPE, which may come behind products
     MEMOPT_CUDA_WGMMA         [impl] with nvcc -arch=sm_90a: attention of 16 bits by wgmma, which H100 and H200 alone
                               have. It is simulated and counted, and has NOT RUN ON A CARD yet; without it attention
                               there is as elsewhere
     MEMOPT_CUDA_API           [all]  your own linkage, such as __declspec(dllexport)
     MEMOPT_CUDA_DECLARATIONS  the declarations only, whatever else is defined. Needed in .cu files where nvcc calls
                               MSVC, which does not tell an included file from one that is compiled

   CONTENTS    Search for "@section cuda_NAME"; first the declarations (api_cuda_NAME), then the implementation, bottom
               up; a section uses only what its marker names, and what that uses.
     base          statuses, launches, checks
     memory        sources: device, growing, pinned, managed; transfers in buckets; a store for tapes
     number        fp32 to and from bf16, fp16, fp8: nearest, stochastic, split; random numbers     the CPU's bits
     quant         8-bit blocks                                                                     the CPU's bits
     fp8           a matrix as 8-bit floats with a scale, and transposed                            the CPU's bits
     codec         lossy codecs of tapes: outputs in bf16 or 8 bits                                 the CPU's bits
     optim_kernels a step over slices of tensors: load, step, store in one pass                     the CPU's bits
     adafactor     Adafactor's rows and columns                                                     the CPU's bits
     optim         every kind and format, many tensors a launch, 8 bits in one pass                 the CPU's bits
     scale         norm, finite check, loss scaling, clipping, accumulation; the host never waits   the CPU's bits
     shard         weights and gradients of a shard on a device: ZeRO, offload to the host          the CPU's bits
     softmax       softmax, and softmax + cross-entropy in place                                    a bound
     norm          layer norm and RMS norm                                                          a bound
     fused         passes of your own over arrays of any types: a functor on their elements         the CPU's bits
     layer         activations, SwiGLU, residual + dropout, embedding, rotary positions             the CPU's bits
     gemm          products by cuBLASLt, planned once a shape; fp8                                  a bound
     muon          Muon's matrices: momentum and weights (the CPU's bits), Newton-Schulz            a bound
     linear        linear layers, bias and activation in the product                                a bound
     batchnorm     linear + batch norm + activation                                                 a bound
     head          linear + softmax + cross-entropy by chunks                                       a bound
     tensor        tensor cores and asynchronous copies, in PTX
     flash         attention in one kernel, on tensor cores                                         a bound
     groups        the same by groups of four warps, for sm_90a: MEMOPT_CUDA_WGMMA                  a bound
     attention     without the length x length matrix: by flash, or by rows of scores               a bound

   CONVENTIONS
     Pointers    d_... is memory of the device, and so are all data pointers of the structs that memopt.h shares with
                 this file; structs themselves are read on the host at the call. What the CPU looks at before it starts
                 (targets, ids, lengths) is read by kernels only: see each section for what a bad one does.
     Streams     Work is launched into the stream, of the calling thread's device, and the call returns. Nothing waits
                 and nothing is allocated unless it says so. So kernels can be captured into a graph; what a host brings
                 to them cannot: transfers, stores and sources. A captured call repeats its arguments. What has to go
                 on reads it on the device: memopt_cuda_optim_step_with_progress(), memopt_cuda_noise_make().
     Errors      0, or why not: memopt_cuda_status_text(). What is refused has launched nothing. An error of somebody
                 else that is pending in CUDA is told (MEMOPT_CUDA_BASE_PENDING) and left pending, by every call that
                 has something to launch.
     Scratch     of all operators may be one block, as large as the largest _scratch() says, while they share a stream.
     Overlap     of results with anything else is looked for where a declaration has MEMOPT_CUDA_ERR_OVERLAP for it;
                 with linear, attention, layer and lists of gradients it is on you.
     Bits        "The CPU's bits": those of memopt.h for every shape and alignment; which NaN a NaN is, too, unless a
                 section says otherwise. "A bound": it stands at the declarations, against float64; a NaN is any
                 NaN; the same bits in every run on the same card.
     Threads     Nothing global: any threads at once, but one at a time for each object.
     Tested      without a GPU, every kernel on the CPU under sanitizers and hostile schedules: make simulator. With
                 one: make cuda.

   NOT HERE    no handle, stream or memory of its own, no printing, no exit(). */

#if defined(MEMOPT_CUDA_DECLARATIONS)
#  undef MEMOPT_CUDA_IMPLEMENTATION
#elif defined(MEMOPT_CUDA_STATIC) && !defined(MEMOPT_I_CUDA_IMPLEMENTED)
#  undef MEMOPT_CUDA_IMPLEMENTATION
#  define MEMOPT_CUDA_IMPLEMENTATION
#elif defined(__CUDACC__) && !defined(MEMOPT_CUDA_IMPLEMENTATION)
#  if !defined(__INCLUDE_LEVEL__)
#    define MEMOPT_CUDA_IMPLEMENTATION
#  elif __INCLUDE_LEVEL__ == 0 /* this is the file that nvcc was given */
#    define MEMOPT_CUDA_IMPLEMENTATION
#  endif
#endif
#ifndef MEMOPT_CUDA_CU
#define MEMOPT_CUDA_CU
/* a copy of our own: kernels share its private formulas */
#if defined(MEMOPT_CUDA_IMPLEMENTATION) && !defined(MEMOPT_H)
#  define MEMOPT_STATIC
#  define MEMOPT_NO_SIMD
#  define MEMOPT_IMPLEMENTATION
#endif
#include "memopt.h" /* the declarations alone need neither CUDA nor C++ */
#if MEMOPT_VERSION != 200
#  error "memopt_cuda.cu and memopt.h are of different versions"
#endif
#if !(MEMOPT_I_GROUPS & 0x02)
#  error "memopt_cuda.cu is over the numbers: define MEMOPT_ONLY_NUMBERS beside the other MEMOPT_ONLY_..."
#endif
#define MEMOPT_I_CUDA_WGMMA_HAS_RUN 0 /* 1 once attention by wgmma has run on a card: from then on it is the default */
#if MEMOPT_I_CUDA_WGMMA_HAS_RUN && !defined(MEMOPT_CUDA_WGMMA)
#  define MEMOPT_CUDA_WGMMA
#endif

/* @section api_cuda_base :
   Every call takes a stream last, launches into it and returns: it waits for nothing and allocates nothing, unless it
   says so. Pointers named d_ are of the device; structs and what else is read at the call are the host's. Operands and
   results may be read and written from the moment the stream has come so far, and not before. */

#ifdef MEMOPT_CUDA_STATIC
#  define MEMOPT_I_CUDA_STATIC 1
#else
#  define MEMOPT_I_CUDA_STATIC 0
#endif
#if MEMOPT_I_CUDA_STATIC
#  undef MEMOPT_CUDA_API
#  define MEMOPT_CUDA_API template <int = 0> static /* compiled where it is called: see `base` */
#elif !defined(MEMOPT_CUDA_API)
#  define MEMOPT_CUDA_API extern
#endif
/* In C++ all of it is in a namespace, of which only the public names are everybody's. */
#ifdef __cplusplus
struct CUstream_st;
namespace memopt_i_cuda {
namespace api {
#endif
#if defined(__cplusplus) && !MEMOPT_I_CUDA_STATIC
extern "C" {
#endif

/* a cudaStream_t; NULL = the default stream */
typedef struct CUstream_st *memopt_cuda_stream;

/* 0; or why not: a memopt_status (-1 to -99), one of these, or what CUDA said. memopt_cuda_status_text() tells. */
typedef int memopt_cuda_status;

enum {
    MEMOPT_CUDA_ERR_NULL         = -101, /* a pointer that is needed is NULL */
    MEMOPT_CUDA_ERR_ALIGNMENT    = -102, /* a pointer is not aligned as its type, or as the call says */
    MEMOPT_CUDA_ERR_OVERLAP      = -103, /* a result shares bytes with something else */
    MEMOPT_CUDA_ERR_STRIDE       = -104, /* a leading dimension that cuBLASLt cannot take: see `gemm` */
    MEMOPT_CUDA_ERR_NO_ALGORITHM = -105, /* cuBLASLt has no algorithm for this product */
    MEMOPT_CUDA_ERR_TYPE         = -106, /* these types do not go together here, or not on this card */
    MEMOPT_CUDA_BASE_RUNTIME       = 1000, /* + the cudaError_t of this call */
    MEMOPT_CUDA_BASE_PENDING       = 3000, /* + the cudaError_t that was there before this call; it still is */
    MEMOPT_CUDA_BASE_DRIVER        = 5000, /* + a CUresult */
    MEMOPT_CUDA_BASE_BLAS          = 7000 /* + a cublasStatus_t */
};

/** What a status means, with CUDA's own text where it is CUDA's; static text, never NULL. */
MEMOPT_CUDA_API const char *memopt_cuda_status_text(memopt_cuda_status status);

/** The same as a memopt_status, for callbacks of tapes and sources: MEMOPT_ERR_MEMORY where memory was missing. */
MEMOPT_CUDA_API memopt_status memopt_cuda_to_status(memopt_cuda_status status);

/* What operators run with: the twin of memopt_ops. All zero = no products, no scratch. */
typedef struct memopt_cuda_gemm memopt_cuda_gemm; /* see `gemm` */

typedef struct memopt_cuda_ops {
    memopt_cuda_gemm *gemm;          /* NULL = none: operators with products are MEMOPT_CUDA_ERR_NULL */
    void             *d_scratch;     /* aligned to 256; what each operator's _scratch() says; not kept between calls */
    size_t            scratch_bytes;
} memopt_cuda_ops;

/* @section api_cuda_memory : api_cuda_base
   Memory of a device, pinned and managed memory as sources: arenas, heaps, plans and ledgers of memopt.h work on them
   as they are. Nothing of it is global. Every function works on the device it was made for and leaves the calling
   thread's device as it found it. An error that was pending in CUDA before a call is returned, as
   MEMOPT_CUDA_BASE_PENDING + its number, and left pending; an error of the call itself is returned and taken away. */

#define MEMOPT_CUDA_CURRENT_DEVICE (-1) /* the device of the calling thread */

/** Bytes of a device's memory: free at this moment, and all. Either may be NULL. OK, MEMOPT_ERR_ARGUMENT (no such
    device), what CUDA said. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_memory_available(int device, size_t *free_bytes, size_t *total_bytes);

typedef struct memopt_cuda_memory memopt_cuda_memory;

struct memopt_cuda_memory { /* what a source knows beside its table; yours: outlives the source and stays where it is */
    /* may be set at any time */
    memopt_cuda_stream stream; /* zero and all copies are done in it, and waited for; NULL = the default stream */
    int                no_wait;/* 1: zero and copy are only queued in `stream`: what touches the bytes is queued there
                                  too, or waits for it. copy_in and copy_out are waited for in any case */
    /* to be read */
    int                device;
    memopt_cuda_status status; /* why the last call that failed has failed, releases included; 0 = none has */
    size_t             free_bytes; /* of the device, when this call failed for lack of memory; else 0 */
    size_t             granularity; /* bytes committed at a time; 0 = there is no committing */
    void              *driver[7], *ranges; /* private */
};

/**
 * Sources. `device` is a number or MEMOPT_CUDA_CURRENT_DEVICE. In all of them: alignment 256; bytes are not zero when
 * they are fresh; reserve, commit and copies return ERR_MEMORY where memory is missing, ERR_DEVICE for all else, and
 * memory->status says what CUDA said. decommit and release wait until the device has ended all its work, since nobody
 * else can know who still uses the bytes.
 *
 * memory  receives what it knows; all of it is written
 * out     receives the source; untouched on failure
 * returns OK; MEMOPT_CUDA_ERR_NULL; MEMOPT_ERR_ARGUMENT (no such device, a bad granule, a switch that there is not);
 *         what CUDA said
 * threads one thread at a time per source
 */
/** Device memory, one cudaMalloc a reservation; capacity: all the device has. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_source_malloc(int device, memopt_cuda_memory *memory,
                                                             memopt_source *out);

/**
 * Device memory that grows: addresses are reserved at once, memory is committed granule by granule as it is reached,
 * and nothing ever moves. An arena of capacity 0 may grow until the device is full. The driver's functions are asked
 * for at run time: there is nothing to link beside the CUDA runtime. Only this device reaches the memory: neither peer
 * access of another device nor GPUDirect RDMA is asked for. What those are to reach comes from
 * memopt_cuda_source_malloc().
 *
 * granularity  bytes committed at a time; 0 = default: 32 MiB (fewer calls than the 2 MiB that devices have at the
 *          least, and less than one at each end is the most an arena wastes); else a power of two and a multiple of the
 *          device's own granularity
 * host     a byte a granule is kept in its memory; NULL = malloc
 * returns  also MEMOPT_ERR_UNSUPPORTED (the driver has no such functions); a device that cannot do it is
 *          MEMOPT_CUDA_BASE_DRIVER + what it said. memopt_cuda_source_malloc() always works
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_source_pages(int device, size_t granularity, const memopt_host *host,
                                                            memopt_cuda_memory *memory, memopt_source *out);

/** Pinned host memory, one cudaHostAlloc a reservation: the CPU works with it, and any device copies to and from it. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_source_pinned(int device, memopt_cuda_memory *memory,
                                                             memopt_source *out);

/**
 * Managed memory, which may be more than the device has; it prefers to lie on the device. kind is MEMOPT_SOURCE_DEVICE.
 *
 * host_visible  as the source's: 0 = the CPU leaves it alone, as on a device: right for arenas and tapes whose bytes
 *               kernels work on. 1 = the CPU may touch it, whenever the device does not: at MEMOPT_DEBUG 2 arenas and
 *               tapes do so at every rewind and forward, so wait for the device before each
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_source_managed(int device, int host_visible, memopt_cuda_memory *memory,
                                                              memopt_source *out);

/* Transfers between the host and a device, in buckets through fixed pinned memory: while one bucket crosses the bus,
   the CPU copies the next. Two streams of its own, one up and one down, so both directions run at once. */
typedef struct memopt_cuda_transfer memopt_cuda_transfer;

typedef struct memopt_cuda_transfer_desc { /* zero it, then set what you need; NULL = all zero */
    size_t             bucket_bytes; /* 0 = default: 4 MiB; rounded up to 256. There are four: two up, two down */
    void              *pinned;       /* your pinned memory, memopt_cuda_transfer_bytes() of it, aligned to 256; outlives
                                        the transfer. NULL = one cudaHostAlloc at the creation */
    memopt_ledger     *ledger;       /* NULL, or who is told of what was allocated here, as MEMOPT_TAG_COMMUNICATION */
    const memopt_host *host;         /* memory of the struct, below 1 KiB; NULL = malloc */
} memopt_cuda_transfer_desc;

/** The bytes of pinned memory, to the byte. OK, MEMOPT_CUDA_ERR_NULL, MEMOPT_ERR_OVERFLOW. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_transfer_bytes(const memopt_cuda_transfer_desc *desc, size_t *bytes);

/**
 * device  a number, or MEMOPT_CUDA_CURRENT_DEVICE
 * out     receives it; untouched on failure
 * returns OK; MEMOPT_CUDA_ERR_NULL, _ALIGNMENT (pinned); MEMOPT_ERR_ARGUMENT, _OVERFLOW, _MEMORY; what CUDA said
 * threads one thread at a time per transfer
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_transfer_create(int device, const memopt_cuda_transfer_desc *desc,
                                                               memopt_cuda_transfer **out);

/** Waits for what was begun, brings what is still on its way to the host, and frees. NULL is fine; returns what CUDA
    said, and has freed all it could in any case. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_transfer_destroy(memopt_cuda_transfer *transfer);

/**
 * Host to device. Runs after all that `stream` was given before and before all that it is given next; the call returns
 * as soon as the last bucket has been filled.
 *
 * from    any memory of the host; yours again when the call returns
 * stream  of the transfer's device
 * returns OK; MEMOPT_CUDA_ERR_NULL; what CUDA said: then nothing of this call is on its way any more, d_to may hold
 *         some of the bytes, and the transfer can be used again
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_transfer_in(memopt_cuda_transfer *transfer, void *d_to, const void *from,
                                                           size_t bytes, memopt_cuda_stream stream);

/** Device to host, in the same order with `stream`. The bytes are at `to` after memopt_cuda_transfer_wait(), which the
    call does for all buckets but the last two. After a failure nothing is written to `to` any more. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_transfer_out(memopt_cuda_transfer *transfer, void *to,
                                                            const void *d_from, size_t bytes,
                                                            memopt_cuda_stream stream);

/** Waits until everything begun has arrived, up and down; a _prefetch included. After a failure the host's bytes may
    still come: wait again. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_transfer_wait(memopt_cuda_transfer *transfer);

/**
 * Host to device beside the computing, without buckets: parameters of the next layer while this one runs. The copy runs
 * after all that `stream` was given before (so the last reader of d_to may be anywhere in it), and what `stream` is
 * given after the next _join() finds the bytes there.
 *     prefetch(w[0]); for (i...) { join(); if (more) prefetch(w[i + 1]); compute(w[i]); }
 *
 * from    pinned memory, not to be changed until the copy is done
 * returns OK; MEMOPT_CUDA_ERR_NULL; what CUDA said: then nothing of this call is on its way any more
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_transfer_prefetch(memopt_cuda_transfer *transfer, void *d_to,
                                                                 const void *from, size_t bytes,
                                                                 memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_transfer_join(memopt_cuda_transfer *transfer,
                                                             memopt_cuda_stream stream);

#if MEMOPT_I_GROUPS & 0x14 /* for activations, ranks */
/* An offload store for a tape whose memory is a device's: values go to host memory and come back, beside the
   computing. */
typedef struct memopt_cuda_store memopt_cuda_store;

typedef struct memopt_cuda_store_desc { /* zero it, then set what you need */
    memopt_cuda_transfer *transfer;   /* required; outlives the store */
    memopt_source        *source;     /* required, host_visible; outlives the store. Pinned: copies go straight to it,
                                         CPU waits for nothing. Other: through the transfer's buckets, and it does */
    size_t                slots;      /* values it can hold at once: offload.slots of the tape */
    size_t                slot_bytes; /* the largest of them */
    memopt_cuda_stream    stream;     /* in which the tape's callbacks queue all they do */
    memopt_ledger        *ledger;     /* NULL, or who is told of values that come and go, as MEMOPT_TAG_CHECKPOINTS */
    const memopt_host    *host;       /* memory of the struct, 32 bytes a slot; NULL = malloc */
} memopt_cuda_store_desc;

/** Bytes it takes of the source, to the byte: each slot is rounded up to 256, all together to the source's granularity.
    OK, MEMOPT_CUDA_ERR_NULL, MEMOPT_ERR_ARGUMENT, MEMOPT_ERR_OVERFLOW. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_store_bytes(const memopt_cuda_store_desc *desc, size_t *bytes);

/**
 * out     receives it; untouched on failure
 * table   receives what memopt_tape_desc.store wants. A write when all slots are taken, or of more bytes than a slot
 *         has, is ERR_MEMORY; a read of what is not there is ERR_STATE. A store serves one tape at a time
 * returns OK; MEMOPT_CUDA_ERR_NULL; MEMOPT_ERR_ARGUMENT, _OVERFLOW, _MEMORY; what CUDA or the source said
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_store_create(const memopt_cuda_store_desc *desc, memopt_cuda_store **out,
                                                            memopt_tape_store *table);

/** Waits for what was begun, and frees. NULL is fine. Returns as memopt_cuda_transfer_destroy(). */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_store_destroy(memopt_cuda_store *store);

/** Why the last call of the table that failed has failed, forgetting included; 0 = none has. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_store_status(const memopt_cuda_store *store);
#endif /* groups */

/* A clock for memopt_tape_calibrate(): callbacks only queue their work, so a clock of the CPU would measure nothing.
   This one waits for the stream, and then asks the host's. Give it to the host of the tape's desc. */
typedef struct memopt_cuda_clock { /* yours; outlives the table and stays where it is */
    int                device;
    memopt_cuda_stream stream;
    memopt_cuda_status status; /* why the last call that failed has failed; 0 = none has */
    memopt_clock       host_clock;
} memopt_cuda_clock;

/** host: whose clock it asks; NULL = the system's. OK, MEMOPT_CUDA_ERR_NULL, MEMOPT_ERR_ARGUMENT, what CUDA said. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_clock_make(int device, memopt_cuda_stream stream,
                                                          const memopt_host *host, memopt_cuda_clock *clock,
                                                          memopt_clock *out);

#if MEMOPT_I_GROUPS & 0x02 /* for numbers */
/* @section api_cuda_number : api_cuda_base
   The twins of memopt_bf16_from_f32 and its like, of memopt_f32_split and _join, and of memopt_random_*: the same bits,
   NaN included. See api_number and api_random in memopt.h for the formats, `saturate`, `noise` and `first`. */

/**
 * Arrays of n elements on the device.
 *
 * d_dst, d_src  aligned as their types, and without a byte in common; may be NULL when n is 0. Fastest where both are
 *               aligned to 16 bytes (as all that comes from cudaMalloc is)
 * saturate      0 or 1
 * noise, first  element i uses bits number first + i of the noise; fastest where first is a multiple of 32
 * returns       OK, MEMOPT_CUDA_ERR_NULL, _ALIGNMENT, _OVERLAP, MEMOPT_ERR_ARGUMENT (saturate not 0 or 1),
 *               MEMOPT_ERR_OVERFLOW (n elements do not fit size_t), or CUDA's; n = 0 launches nothing
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_bf16_from_f32(uint16_t *d_dst, const float *d_src, size_t n,
                                                             memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_f16_from_f32(uint16_t *d_dst, const float *d_src, size_t n,
                                                            memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_e4m3_from_f32(uint8_t *d_dst, const float *d_src, size_t n, int saturate,
                                                             memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_e5m2_from_f32(uint8_t *d_dst, const float *d_src, size_t n, int saturate,
                                                             memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_bf16_from_f32_stochastic(uint16_t *d_dst, const float *d_src, size_t n,
                                                                        memopt_noise noise, uint64_t first,
                                                                        memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_f16_from_f32_stochastic(uint16_t *d_dst, const float *d_src, size_t n,
                                                                       memopt_noise noise, uint64_t first,
                                                                       memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_e4m3_from_f32_stochastic(uint8_t *d_dst, const float *d_src, size_t n,
                                                                        int saturate, memopt_noise noise,
                                                                        uint64_t first, memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_e5m2_from_f32_stochastic(uint8_t *d_dst, const float *d_src, size_t n,
                                                                        int saturate, memopt_noise noise,
                                                                        uint64_t first, memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_f32_from_bf16(float *d_dst, const uint16_t *d_src, size_t n,
                                                             memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_f32_from_f16(float *d_dst, const uint16_t *d_src, size_t n,
                                                            memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_f32_from_e4m3(float *d_dst, const uint8_t *d_src, size_t n,
                                                             memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_f32_from_e5m2(float *d_dst, const uint8_t *d_src, size_t n,
                                                             memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_f32_split(uint16_t *d_high, uint16_t *d_low, const float *d_src,
                                                         size_t n, memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_f32_join(float *d_dst, const uint16_t *d_high, const uint16_t *d_low,
                                                        size_t n, memopt_cuda_stream stream);

/**
 * Random numbers by place, on the device: d_dst[i] is value first + i of the stream, the bits of memopt_random_*.
 *
 * d_dst    n elements, aligned as their type; may be NULL when n is 0
 * first    any; fastest where d_dst - first % 4 elements is aligned to 16 bytes
 * returns  OK, MEMOPT_CUDA_ERR_NULL, _ALIGNMENT, MEMOPT_ERR_OVERFLOW (n elements do not fit size_t), or CUDA's
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_random_bits(uint32_t *d_dst, size_t n, uint64_t seed,
                                                           uint64_t stream_number, uint64_t first,
                                                           memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_random_uniform(float *d_dst, size_t n, uint64_t seed,
                                                              uint64_t stream_number, uint64_t first,
                                                              memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_random_normal(float *d_dst, size_t n, uint64_t seed,
                                                             uint64_t stream_number, uint64_t first,
                                                             memopt_cuda_stream stream);

/**
 * Noise on the device, for graphs that are captured once: d_noise[i] = memopt_noise_make(seed, *d_step * count + i),
 * made when the stream comes to it. memopt_cuda_dropout_forward_with_noise() and _backward_with_noise() read one there.
 *
 * d_step   a number that changes, such as memopt_cuda_optim_progress.steps; aligned to 8
 * d_noise  count of them, such as one for each layer; may be NULL when count is 0
 * returns  OK, MEMOPT_CUDA_ERR_NULL, _ALIGNMENT, _OVERLAP, MEMOPT_ERR_OVERFLOW, or CUDA's
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_noise_make(memopt_noise *d_noise, size_t count, uint64_t seed,
                                                          const uint64_t *d_step, memopt_cuda_stream stream);

/* @section api_cuda_quant : api_cuda_base
   The twins of memopt_quantize_f32 and its like: the same codes and absmax, bit for bit, for any values. See api_quant
   in memopt.h for maps, blocks and what a code is. */

/**
 * Quantise on the device: codes and absmax from float32 or bf16. One pass over memory.
 *
 * d_codes   receives n bytes; fastest where aligned to 4 bytes
 * d_absmax  receives memopt_quantize_blocks(n, block) floats
 * d_src     n elements, aligned as their type, fastest to 16 bytes; any values
 * n         any; 0: nothing is launched, and the pointers may be NULL
 * block     a multiple of 32 from 32 to 4096; 0 = default: 256
 * returns   OK, MEMOPT_ERR_ARGUMENT (map, block), MEMOPT_CUDA_ERR_NULL, _ALIGNMENT, _OVERLAP, MEMOPT_ERR_OVERFLOW (n
 *           elements do not fit the address space), or CUDA's; then nothing is written
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_quantize_f32(uint8_t *d_codes, float *d_absmax, const float *d_src,
                                                            size_t n, memopt_quant_map map, size_t block,
                                                            memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_quantize_bf16(uint8_t *d_codes, float *d_absmax, const uint16_t *d_src,
                                                             size_t n, memopt_quant_map map, size_t block,
                                                             memopt_cuda_stream stream);

/**
 * Dequantise on the device: d_dst[i] = fl(level[d_codes[i]] * d_absmax[i / block]), or that rounded to the nearest
 * bf16. Any codes and any absmax are fine; what NaN an infinity times zero gives is the machine's affair, as on CPUs.
 * Arguments and statuses as for memopt_cuda_quantize_f32.
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_dequantize_f32(float *d_dst, const uint8_t *d_codes,
                                                              const float *d_absmax, size_t n, memopt_quant_map map,
                                                              size_t block, memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_dequantize_bf16(uint16_t *d_dst, const uint8_t *d_codes,
                                                               const float *d_absmax, size_t n, memopt_quant_map map,
                                                               size_t block, memopt_cuda_stream stream);

/* @section api_cuda_fp8 : api_cuda_base
   The twin of memopt_fp8_quantize(): the same codes, transposed codes and scale, bit for bit. See api_fp8 in memopt.h
   for scales, and for which of the codes forward and backward of a layer multiply with memopt_cuda_gemm_multiply_fp8():
   scale->scale is what its d_left_scale and d_right_scale point to, so a scale lies at 16 bytes for that. */

/**
 * Quantise a matrix on the device: three launches, of which one does nothing where the scale is delayed.
 *
 * x       input, codes, transposed and scale are of the device; input aligned as its type. Fastest where all are
 *         aligned to 16, and rows and columns are multiples of 16, as products of 8 bits want it
 * returns OK; MEMOPT_CUDA_ERR_NULL (x, input, scale), _ALIGNMENT; MEMOPT_ERR_ARGUMENT (as the twin), _OVERFLOW; CUDA's
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_fp8_quantize(const memopt_fp8 *x, memopt_cuda_stream stream);
#endif /* groups */

#if MEMOPT_I_GROUPS & 0x04 /* for activations */
/* @section api_cuda_codec : api_cuda_base
   A device codec for tapes over memory of a device: with it MEMOPT_CODEC_BF16 and MEMOPT_CODEC_8BIT work there as well,
   and values, copies, losses and gradients have the bits of the same tape on the CPU. See api_tape in memopt.h. */

typedef struct memopt_cuda_codec { /* what the codec knows; yours: outlives the tape and stays where it is */
    memopt_cuda_stream stream; /* that of the engine's callbacks; may be set between passes */
    memopt_cuda_status status; /* why the last call that failed has failed; 0 = none has */
} memopt_cuda_codec;

/**
 * Make a device codec, for memopt_tape_desc.device_codec. It launches into device_codec->stream, waits for nothing and
 * allocates nothing. One device codec is good for any number of tapes with the same stream, and for those nested in
 * them: each inner tape with a lossy codec wants it in its own desc.
 *
 * device_codec  all of it is written
 * out     its run_fn does what MEMOPT_CODEC_OP_... says, with value and copy on the device: a value of floats aligned
 *         to 4 bytes, fastest to 16; its copy to 4 (8BIT) or 2 bytes. It returns MEMOPT_OK; what
 *         memopt_cuda_to_status() makes of device_codec->status otherwise, and then nothing is written: NULL, not
 *         aligned, value and copy overlap, no such op or codec, CUDA's
 * returns OK; MEMOPT_CUDA_ERR_NULL, then nothing is written
 * threads one thread at a time per codec
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_codec_make(memopt_cuda_codec *device_codec, memopt_device_codec *out,
                                                          memopt_cuda_stream stream);
#endif /* groups */

#if MEMOPT_I_GROUPS & 0x02 /* for numbers */
/* @section api_cuda_optim : api_cuda_base api_cuda_memory
   An optimizer whose tensors lie on a device. The object is memopt_optim, made by memopt_optim_create() and kept on the
   host; `weights`, `extra`, `gradients` and `state` of its tensors are device pointers then, aligned as there. Objects
   of the CPU and of a device take turns over the same bytes: states, weights and codes are memopt_optim_step()'s.
   All calls of a step are given the same scratch and go into the same stream, or into streams that wait for each other.
   Errors are those of the twins, with the reason in memopt_optim_error(); and MEMOPT_CUDA_ERR_NULL, _ALIGNMENT
   (scratch: to 256), MEMOPT_ERR_BUFFER (scratch is smaller than memopt_cuda_optim_scratch() says), what CUDA said, and
   MEMOPT_ERR_UNSUPPORTED (LAMB, LARS, Adafactor, Muon: a part that begins or ends where slices to be measured may not;
   Muon of the CPU: see api_cuda_muon).
   A launch that fails in the middle of a step leaves what was launched before. A step in a captured graph repeats its
   own number, rates, corrections and random bits, which are arguments of its kernels: take _step_with_progress(). */

/** Bytes of device scratch: what was skipped, tables, sums and means, Muon's largest matrix. Kept from begin to end,
    and until _result(). */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_optim_scratch(const memopt_optim *optim, size_t *bytes);

/** Begin the state of a tensor: header, and zero moments. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_optim_state_init(memopt_optim *optim, size_t tensor,
                                                                memopt_cuda_stream stream);

/**
 * Is this a state of this tensor in this format? Reads header and scales back and WAITS for the stream. A step does not
 * look at headers: ask this of states that come from outside, once.
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_optim_state_check(memopt_optim *optim, size_t tensor, size_t bytes,
                                                                 memopt_cuda_stream stream);

/** Step all tensors: at most 24 slices of tensors a launch; the groups of `run` are read at the call. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_optim_step(memopt_optim *optim, const memopt_optim_run *run,
                                                          void *d_scratch, size_t scratch_bytes,
                                                          memopt_cuda_stream stream);

/**
 * The same in parts, as memopt_optim_begin() and so on. Nothing waits, so nothing is known of gradients at the call: a
 * fused apply that meets one that is not finite is MEMOPT_OK, and it and all later ones change nothing, until the next
 * begin; memopt_cuda_optim_result() tells. memopt_optim_applied() counts what was launched.
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_optim_begin(memopt_optim *optim, const memopt_optim_run *run,
                                                           void *d_scratch, size_t scratch_bytes,
                                                           memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_optim_measure(memopt_optim *optim, size_t tensor, size_t first,
                                                             size_t count, void *d_scratch, size_t scratch_bytes,
                                                             memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_optim_join(memopt_optim *optim, size_t tensor, int *again,
                                                          void *d_scratch, size_t scratch_bytes,
                                                          memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_optim_apply(memopt_optim *optim, size_t tensor, size_t first,
                                                           size_t count, void *d_scratch, size_t scratch_bytes,
                                                           memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_optim_end(memopt_optim *optim);

/** The sums of a tensor's slices measured here, in the scratch: to be added up over ranks before the join. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_optim_sums(memopt_optim *optim, size_t tensor, void *d_scratch,
                                                          size_t scratch_bytes, double **d_sums, size_t *count);

typedef struct memopt_cuda_optim_outcome {
    uint64_t skipped;       /* elements left alone in this step; memopt_optim_skipped() tells it from now on, too */
    int      stopped;       /* 1: a fused apply met a gradient that is not finite, ... */
    uint64_t tensor, first; /* ... in this slice: it and what was applied later has not been stepped */
    int      left_out;      /* 1: *d_factor was no factor: nothing has been stepped */
} memopt_cuda_optim_outcome;

/**
 * The step, or its begin, with a gradient factor that the device works out: see memopt_cuda_clip_norm(). What follows a
 * begin_with_factor is as above. The bits of a step whose run has that gradient_factor.
 *
 * run       its gradient_factor is 0: else MEMOPT_ERR_ARGUMENT
 * d_factor  read when the stream comes to the begin, and not later; not in the scratch. 0, and whatever a begin would
 *           refuse (NaN, or not from 2^-48 to 2^48), leaves the whole step out: no weight, state or sum changes, and
 *           memopt_cuda_optim_result() tells. run->step counts on the host, so it does not know: a step left out is one
 *           in which nothing happened. memopt_optim_applied() counts what was launched
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_optim_step_with_factor(memopt_optim *optim, const memopt_optim_run *run,
                                                                      const double *d_factor, void *d_scratch,
                                                                      size_t scratch_bytes, memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_optim_begin_with_factor(memopt_optim *optim, const memopt_optim_run *run,
                                                                       const double *d_factor, void *d_scratch,
                                                                       size_t scratch_bytes, memopt_cuda_stream stream);

typedef struct memopt_cuda_optim_progress { /* of the device: what changes from step to step */
    uint64_t steps;  /* taken so far; the next one has number steps + 1, and counts itself unless it is left out */
    double   factor; /* as *d_factor above, where memopt_cuda_clip_norm() may write it */
    double   rate;   /* all groups' rates are multiplied by it: a schedule. 1 = as they are */
} memopt_cuda_optim_progress;

/**
 * The step, or its begin, with all that changes read on the device: captured into a graph once, it is every step. The
 * bits of a step whose run has that number, that factor and those rates. Step number, corrections and the noise of
 * rounding follow `steps`; run->step only has to be at least 1.
 *
 * d_progress  yours, made by the host once; read and counted up when the stream comes to the begin. A rate that is not
 *             from 0 to 1e30 leaves the step out, too
 * returns     as with_factor
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_optim_step_with_progress(memopt_optim *optim,
                                                                        const memopt_optim_run *run,
                                                                        memopt_cuda_optim_progress *d_progress,
                                                                        void *d_scratch, size_t scratch_bytes,
                                                                        memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_optim_begin_with_progress(memopt_optim *optim,
                                                                         const memopt_optim_run *run,
                                                                         memopt_cuda_optim_progress *d_progress,
                                                                         void *d_scratch, size_t scratch_bytes,
                                                                         memopt_cuda_stream stream);

typedef struct memopt_cuda_optim_offload { /* states in the host's memory; zero it, then set what you need */
    memopt_cuda_transfer *transfer; /* required: its two streams are used, its buckets are not */
    size_t                tile;     /* elements of a tensor that are stepped at a time, at most: rounded up to the
                                       block, and 2^30 at the most; 0 = default: 1 Mi */
    void                 *d_tiles;  /* memopt_cuda_optim_offload_bytes(), aligned to 256. Anybody's before the call and
                                       after it, in the stream: such as memory of activations */
    size_t                bytes;
} memopt_cuda_optim_offload;

/** Device memory for three tiles, to the byte: one that comes, one that is stepped, one that leaves. No state need be
    there. OK, MEMOPT_CUDA_ERR_NULL, MEMOPT_ERR_OVERFLOW. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_optim_offload_bytes(const memopt_optim *optim,
                                                                   const memopt_cuda_optim_offload *offload,
                                                                   size_t *bytes);

/**
 * All of a step's applies, between any of the begins and the end, where states are the host's: `state` of the tensors
 * is pinned memory, begun by memopt_optim_state_init(). Moments and scales come to the device tile by tile, and go
 * back, beside the step of the tile between. The bits of memopt_cuda_optim_apply() with states on the device.
 *
 *     memopt_cuda_optim_begin(optim, &run, d_scratch, bytes, stream);
 *     memopt_cuda_optim_apply_offloaded(optim, &offload, d_scratch, bytes, stream);
 *     memopt_cuda_optim_end(optim);
 *
 * Runs after all that `stream` was given before; what it is given next finds states back in the host's memory, which
 * the CPU leaves alone until then. Not in a captured graph. Memory that is not pinned is right, but nothing runs beside
 * its copies.
 *
 * returns as memopt_cuda_optim_apply(); MEMOPT_ERR_UNSUPPORTED (kinds that measure), MEMOPT_ERR_ARGUMENT (a fused
 *         step), MEMOPT_ERR_STATE (something was applied already), MEMOPT_ERR_BUFFER (bytes), MEMOPT_CUDA_ERR_OVERLAP
 *         (tiles and scratch): then nothing has changed. When a copy or a launch fails nothing is on its way any more;
 *         tiles before it have been stepped, and one of them may not have come back
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_optim_apply_offloaded(memopt_optim *optim,
                                                                     const memopt_cuda_optim_offload *offload,
                                                                     void *d_scratch, size_t scratch_bytes,
                                                                     memopt_cuda_stream stream);

/** What came of the step. WAITS for the stream. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_optim_result(memopt_optim *optim, const void *d_scratch,
                                                            size_t scratch_bytes, memopt_cuda_optim_outcome *out,
                                                            memopt_cuda_stream stream);

/* @section api_cuda_scale : api_cuda_base
   Norm, finite check, loss scaling, clipping and sums of gradients on the device, bit for bit those of `scale`.

   A memopt_gradients and its tensors are the host's, and are read at the call: `values`, `compensation` and `scratch`
   point to the device. `squares` and `nonfinite` of a tensor are not written: sums of tensors go to d_sums. One step in
   which the host never waits (all in one stream):

     memopt_cuda_scaler_measure(d_scaler, &list, d_total, NULL, stream);       (d_scaler: a copy of a host's scaler)
     memopt_cuda_clip_norm(d_total, 1 / tokens, max_norm, d_factor, stream);   (*d_factor is 0 after an overflow)
     memopt_cuda_optim_step_with_factor(optim, &run, d_factor, d_scratch, bytes, stream);
                                                                           (changes nothing where it is 0)
     memopt_cuda_scaler_update(d_scaler, &d_total->overflow, NULL, stream);
     the next loss multiplied by d_scaler->scale, read on the device

   With several ranks, an all-reduce by maximum of d_total->overflow stands between the first and the second line (and
   one of the tensors' sums where ranks hold different tensors). A step of your own reads *d_factor as its
   gradient_factor, and changes nothing where it is 0. A memopt_scaler is plain values: copied to the host it is a
   host's scaler, to save, look at or memopt_scaler_cancel(), and back again.

   Statuses    of memopt.h for what is wrong with a list; MEMOPT_CUDA_ERR_NULL, MEMOPT_CUDA_ERR_ALIGNMENT; those of
               launches. What a status from a check refuses has changed nothing. When a launch fails, the ones before
               it have been made: values may have been scaled in part. */

typedef struct memopt_cuda_gradient_sum { /* of one tensor */
    double squares;   /* infinite if nonfinite */
    size_t nonfinite;
} memopt_cuda_gradient_sum;

/** Bytes of list->scratch, which is aligned to 16: 16 for each tensor and each 64 Ki elements begun. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_gradients_scratch(const memopt_gradients *list, size_t *bytes);

/**
 * Norm and finite check of many tensors, read once: the bits of memopt_gradients_measure().
 *
 * d_total  of the device; written in any case, by the last of three launches (and one or two more for each 150 tensors)
 * d_sums   NULL, or receives a memopt_cuda_gradient_sum for each tensor
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_gradients_measure(const memopt_gradients *list,
                                                                 memopt_gradient_total *d_total,
                                                                 memopt_cuda_gradient_sum *d_sums,
                                                                 memopt_cuda_stream stream);

/** Multiplied in place and measured in one pass, as memopt_gradients_scale(); d_total may be NULL. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_gradients_scale(const memopt_gradients *list, double factor,
                                                               memopt_gradient_total *d_total,
                                                               memopt_cuda_gradient_sum *d_sums,
                                                               memopt_cuda_stream stream);

/** As memopt_gradients_clip_value(). No scratch is needed. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_gradients_clip_value(const memopt_gradients *list, float limit,
                                                                    memopt_cuda_stream stream);

/**
 * What an optimizer multiplies gradients by, worked out on the device: total.factor * mean * clip, where clip is of
 * memopt_clip_norm(sqrt(total.squares) * total.factor * mean, max_norm); 0 when total.overflow says to skip the step.
 *
 * mean      such as 1 / tokens, see memopt_accumulation_mean(); above 0, finite
 * max_norm  0 and up; infinity: never clips
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_clip_norm(const memopt_gradient_total *d_total, double mean,
                                                         double max_norm, double *d_factor, memopt_cuda_stream stream);

/**
 * The CPU's twins on a scaler in device memory. Statuses that depend on it cannot be returned: a scaler that the twin
 * would refuse (a wrong field; already unscaled or measured) stays as it is, no value is changed, and *d_total is
 * overflow 1, factor 0, so that the step is skipped.
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_scaler_unscale(memopt_scaler *d_scaler, const memopt_gradients *list,
                                                              memopt_gradient_total *d_total,
                                                              memopt_cuda_gradient_sum *d_sums,
                                                              memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_scaler_measure(memopt_scaler *d_scaler, const memopt_gradients *list,
                                                              memopt_gradient_total *d_total,
                                                              memopt_cuda_gradient_sum *d_sums,
                                                              memopt_cuda_stream stream);

/** d_overflow: of the device, such as &d_total->overflow. d_status: NULL, or receives what the CPU's twin returns; an
    ERR_OVERFLOW (the scale would fall below its floor) means here that the step is dropped, and the scale stays. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_scaler_update(memopt_scaler *d_scaler, const int *d_overflow,
                                                             int *d_status, memopt_cuda_stream stream);

/** As memopt_gradients_accumulate(), less scratch; the counts in *accumulation are the host's, and count on when all
    has been launched. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_gradients_accumulate(const memopt_gradients *sums,
                                                                    const memopt_gradients *gradients,
                                                                    const memopt_micro_batch *batch,
                                                                    memopt_accumulation *accumulation,
                                                                    memopt_cuda_stream stream);
#endif /* groups */

#if MEMOPT_I_GROUPS & 0x10 /* for ranks */
/* @section api_cuda_shard : api_cuda_optim api_cuda_scale api_cuda_number
   A device for a memopt_shard: weights, gradients and what travels lie there, and the step is the host's, or the
   device's: then table.kernels = memopt_cuda_shard_kernels() before memopt_shard_open().

     memopt_cuda_shard_open(device, stream, &cuda, &table);
     desc.device = &table;                        (desc.pinned: an arena over memopt_cuda_source_pinned(), as large as
     memopt_shard_open(&desc, d_arena, &shard);    memopt_shard_bytes.staging; d_arena: over one of the device)
     ... as without a device: see api_shard; kernels of a group are launched into `stream` after its
         memopt_shard_forward() or _backward(), and before its memopt_shard_reduce() ...
     memopt_shard_close(shard);
     memopt_cuda_shard_close(&cuda);

   Ranks       examples/adapters/nccl.h, opened with the same stream. A group's weights are gathered while the group
               before computes: the host waits for them alone.
   Graphs      With memopt_cuda_shard_kernels() and d_progress a step goes by what is there: number, factor and rate. So
               one can be captured, and its graph launched for every step: that of one rank from the first
               memopt_shard_next_unit() to memopt_shard_step(), without memopt_shard_measure() and not inside backward;
               of several ranks in stage 3 memopt_shard_step() alone, and memopt_shard_cancel() follows every later
               launch.
   Order       A bucket of gradients crosses behind the kernels that were launched before memopt_shard_reduce(), beside
               those launched after it; weights cross beside the step of the next ones. What is launched after
               memopt_shard_step() finds them. */

typedef struct memopt_cuda_shard { /* yours; outlives the shard and stays where it is */
    memopt_cuda_stream stream; /* the engine's */
    int                device;
    memopt_cuda_status status; /* why the last call that failed has failed; 0 = none has */
    /* NULL; or what steps go by, as memopt_cuda_optim_step_with_progress(): with memopt_cuda_shard_kernels(), on every
       rank alike, and runs whose gradient_factor is 0. May be set between steps */
    memopt_cuda_optim_progress *d_progress;
    void              *streams[2], *events[2 + MEMOPT_SHARD_SLOTS]; /* private, and so is the next */
    int                is_copied;
} memopt_cuda_shard;

/**
 * device  a number, or MEMOPT_CUDA_CURRENT_DEVICE: that of `stream`
 * shard   receives what the table knows: two streams, and an event for each slot
 * out     receives the table, for memopt_shard_desc.device
 * returns OK; MEMOPT_CUDA_ERR_NULL; MEMOPT_ERR_ARGUMENT (no such device); what CUDA said: nothing is open then
 * threads one thread at a time
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_shard_open(int device, memopt_cuda_stream stream,
                                                          memopt_cuda_shard *shard, memopt_shard_device *out);

/**
 * A device that adds and steps, too, for memopt_shard_device.kernels: all optimizers (those that measure whole tensors,
 * LAMB, LARS, Adafactor and Muon, of one rank), the sums floats. Every bit is the CPU's, but of Muon's matrices. A step
 * waits for nothing; where one inside backward is ended the host waits for the stream, since only the device knows
 * whether a gradient was not finite: the step is ERR_STATE then, and what was stepped before that gradient is stepped.
 */
MEMOPT_CUDA_API void memopt_cuda_shard_kernels(memopt_shard_kernels *out);

/** After memopt_shard_close(). Waits for what is on its way. NULL is fine, and one that is all zero, as after its
    close; returns what CUDA said, and has freed all it could. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_shard_close(memopt_cuda_shard *shard);
#endif /* groups */

#if MEMOPT_I_GROUPS & 0x08 /* for operators */
/* @section api_cuda_softmax : api_cuda_base
   Softmax of rows, and softmax + cross-entropy in place: the twins, with the CPU's structs, their pointers being of the
   device. Not the same bits as there: exp is the device's, and sums have another order. The same bits every time.
   Bound       of a probability, against float64: 2^-24 (4 scale |x - largest| + n / 512 + 64) of itself, and 2^-99 of
               the largest. A loss: 2^-23 of itself and 2^-24 (8 most + n / 512 + 64) (1 + 2 z (most + 12)), `most`
               being the largest |x| of its row, n the vocabulary. A gradient: what p and z say by this, and one
               rounding to the type.
   On the device are `valid` and `targets`, so what the CPU refuses in them cannot be refused here: a `valid` above
   columns counts as columns; a target of vocabulary or more gives its row the loss NaN and a gradient that is NaN, and
   counts as not ignored. Nothing is read or written out of bounds. */

/**
 * ops may be NULL: nothing is multiplied, no scratch is used.
 *
 * returns OK; MEMOPT_ERR_ARGUMENT (stride below columns, a scale that is negative or not finite), _OVERFLOW;
 *         MEMOPT_CUDA_ERR_NULL, _ALIGNMENT, _OVERLAP (output with another pointer's rows, unless it is that pointer);
 *         and those of launches
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_softmax_forward(const memopt_cuda_ops *ops,
                                                               const memopt_softmax *softmax,
                                                               memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_softmax_backward(const memopt_cuda_ops *ops,
                                                                const memopt_softmax *softmax,
                                                                memopt_cuda_stream stream);

/** 8 bytes a row, and 16. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_cross_entropy_scratch(const memopt_cuda_ops *ops,
                                                                     const memopt_cross_entropy *x, size_t *bytes);

/**
 * Logits become their gradient, read from memory once and written once where a row fits into shared memory and the
 * cache. rule.count 0: the targets are counted on the device. d_out receives what the CPU's twin returns, without rows
 * too.
 *
 * returns as softmax; MEMOPT_ERR_BUFFER (scratch)
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_cross_entropy_loss(const memopt_cuda_ops *ops,
                                                                  const memopt_cross_entropy *x, memopt_loss *d_out,
                                                                  memopt_cuda_stream stream);

/**
 * Parts of a vocabulary, as on the CPU. measure reads logits once, and part once more; the scratch of a part is that of
 * memopt_cuda_cross_entropy_scratch(), and measure uses none. join is that of many parts, whose rows lie part behind
 * part: as a tree, pairs and pairs of pairs, into the first part's, with the bits of memopt_cross_entropy_join().
 *
 * d_rows  aligned to 4
 * returns as memopt_cuda_cross_entropy_loss()
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_cross_entropy_measure(const memopt_cuda_ops *ops,
                                                                     const memopt_cross_entropy *x,
                                                                     memopt_cross_entropy_row *d_rows,
                                                                     memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_cross_entropy_join(memopt_cross_entropy_row *d_rows, size_t parts,
                                                                  size_t rows, memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_cross_entropy_part(const memopt_cuda_ops *ops,
                                                                  const memopt_cross_entropy *x,
                                                                  const memopt_cross_entropy_row *d_rows,
                                                                  memopt_loss *d_out, memopt_cuda_stream stream);

/* @section api_cuda_norm : api_cuda_base
   Layer norm and RMS norm on the device. A memopt_norm as on the CPU, its pointers being the device's. Results are the
   same bits for the same shape and types, wherever the arrays lie and whatever the stride, and differ from the CPU's by
   rounding: sums have another order. So a batch in parts that are accumulated gives its gradients of scale and shift to
   rounding only. */

/** Bytes of scratch of a backward that is to give grad_scale or grad_shift: at most 8 bytes for each column of 1,056
    groups of rows, and of a group of at least 8 rows. Nothing else needs any; forward takes NULL for ops. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_norm_scratch(const memopt_cuda_ops *ops, const memopt_norm *norm,
                                                            size_t *bytes);

/**
 * Forward and backward, as memopt_norm_forward() and memopt_norm_backward().
 *
 * ops     NULL where no scratch is needed
 * returns OK; MEMOPT_CUDA_ERR_NULL, _ALIGNMENT, _OVERLAP (what the CPU refuses, too); MEMOPT_ERR_ARGUMENT (norm NULL, a
 *         type, eps or switch that there is not, a stride below the width), _OVERFLOW, _BUFFER (scratch); what CUDA
 *         says. A refused call has written nothing. Without rows gradients of parameters begin with 0, and nothing else
 *         is done
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_norm_forward(const memopt_cuda_ops *ops, const memopt_norm *norm,
                                                            memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_norm_backward(const memopt_cuda_ops *ops, const memopt_norm *norm,
                                                             memopt_cuda_stream stream);

/**
 * The end of a block and the norm of the next one, in one pass: d_residual = input + branch, rounded to `type`, and
 * output = norm(d_residual): the bits of memopt_cuda_dropout_forward() of rate 0, and then memopt_cuda_norm_forward().
 * Backward is memopt_cuda_norm_backward() of d_residual as the input, with accumulate_input; what comes out of that is
 * the gradient of input and of branch.
 *
 * d_branch, d_residual  rows x width of `type`. d_residual may be input or d_branch; output is none of them
 * returns also MEMOPT_ERR_ARGUMENT (a stride other than the width)
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_norm_residual_forward(const memopt_cuda_ops *ops,
                                                                     const memopt_norm *norm, const void *d_branch,
                                                                     void *d_residual, memopt_cuda_stream stream);

/* @section api_cuda_fused : api_cuda_base
   A pass of your own over memory: the twin of memopt_fused_run(), with a functor in the place of the text. It is C++,
   for files that nvcc compiles with the implementation (MEMOPT_CUDA_STATIC compiles nothing else of it).

     struct block_end {                                             y = residual + dropout(gelu(x * scale + bias))
         float scale;
         memopt_cuda_fused_noise noise;

         __device__ void operator()(size_t i, float x, float bias, float residual, float &y) const {
             const float a = memopt_cuda_fused_gelu(fmaf(x, scale, bias));
             y = memopt_cuda_fused_dropout_onto(noise, i, a, residual);
         }
     };
     const block_end f = { 0.5f, memopt_cuda_fused_dropout_make(0.1f, memopt_noise_make(seed, layer), 0) };
     status = memopt_cuda_fused_run(f, rows, columns, memopt_cuda_fused_arrays(
                  memopt_cuda_fused_each(d_x), memopt_cuda_fused_row(d_bias),
                  memopt_cuda_fused_each(d_residual), memopt_cuda_fused_each(d_y)), stream);

   Names       The functor's parameters, in the order of the arrays, behind the element's number in rows x columns. It
               is called for numbers behind the end, too: their elements are 0, and what is made of them goes nowhere.
   Arrays      of float, memopt_cuda_bf16, memopt_cuda_f16, of any mixture; const T * is read, T * is written, and
               rounded once to nearest even. In place is an array that is listed twice, as read and as written.
                   memopt_cuda_fused_each(p)           rows x columns; with a second argument, that stride
                   memopt_cuda_fused_row(p)            `columns` numbers, which all rows take, such as a bias
                   memopt_cuda_fused_column(p)         a number for each row
                   memopt_cuda_fused_one(p)            a number, read on the device
                   memopt_cuda_fused_row_sum(p)        receives for each row the sum of what the functor assigns to it,
                   memopt_cuda_fused_row_max(p)        and the maximum, NaN where one is, never -0
   Memory      16 bytes at a time where all arrays and strides are aligned to 16, one by one else.
   Bits        Those of memopt_fused_run(), if products and sums go through fmaf, __fmul_rn and __fadd_rn, or are
               compiled with -fmad=false; sums of rows have an order of their own, which columns and types fix.
   Returns     OK; MEMOPT_CUDA_ERR_NULL, _ALIGNMENT, _STRIDE (below columns), _OVERLAP (of what is written, unless in
               place); MEMOPT_ERR_OVERFLOW; what CUDA said. rows, columns may be 0: a sum is 0 then, a maximum
               -infinity. */

/* @section api_cuda_layer : api_cuda_base
   What stands between the large operators, on the device: activations, SwiGLU, residual + dropout, embeddings, rotary
   positions. Structs are those of the CPU, with pointers of the device; results are the CPU's bits, but for which NaN a
   NaN is. ops may be NULL where no scratch is needed. Overlap that a struct does not allow is on you: nothing looks for
   it.

   All return OK; MEMOPT_CUDA_ERR_NULL, _ALIGNMENT; MEMOPT_ERR_ARGUMENT (the struct NULL, a type, activation, rate or
   switch that there is not), _OVERFLOW, _BUFFER (scratch); what CUDA says. A refused call has written nothing. */

MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_activation_forward(const memopt_cuda_ops *ops,
                                                                  const memopt_activation_args *x,
                                                                  memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_activation_backward(const memopt_cuda_ops *ops,
                                                                   const memopt_activation_args *x,
                                                                   memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_swiglu_forward(const memopt_cuda_ops *ops, const memopt_swiglu *x,
                                                              memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_swiglu_backward(const memopt_cuda_ops *ops, const memopt_swiglu *x,
                                                               memopt_cuda_stream stream);

/** Which elements stay is drawn by place: the same as on the CPU, in forward and in backward. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_dropout_forward(const memopt_cuda_ops *ops, const memopt_dropout *x,
                                                               memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_dropout_backward(const memopt_cuda_ops *ops, const memopt_dropout *x,
                                                                memopt_cuda_stream stream);

/** The same by noise that lies on the device: x->noise is not looked at. d_noise: not NULL, aligned to 4. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_dropout_forward_with_noise(const memopt_cuda_ops *ops,
                                                                          const memopt_dropout *x,
                                                                          const memopt_noise *d_noise,
                                                                          memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_dropout_backward_with_noise(const memopt_cuda_ops *ops,
                                                                           const memopt_dropout *x,
                                                                           const memopt_noise *d_noise,
                                                                           memopt_cuda_stream stream);

/** The ids are the device's, and nobody looks at them before the kernels do: the output of an id that is negative, or
    vocabulary or more, becomes NaN, and its gradient goes to no token. Nothing is read or written out of bounds. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_embedding_forward(const memopt_cuda_ops *ops, const memopt_embedding *x,
                                                                 memopt_cuda_stream stream);

/** Of a backward that is to give grad_tokens: 12 bytes a token of the vocabulary, 4 a row, and 4. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_embedding_scratch(const memopt_cuda_ops *ops, const memopt_embedding *x,
                                                                 size_t *bytes);

/** As on the CPU, bit for bit; `places` is MEMOPT_ERR_UNSUPPORTED. Rows and vocabulary below 2^31, else
    MEMOPT_ERR_OVERFLOW. A token's rows are added one
    after the other, whatever their number: a token that most rows have (padding) is worth being given a gradient of 0
    beforehand, or an id that is none, which no token gets. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_embedding_backward(const memopt_cuda_ops *ops, const memopt_embedding *x,
                                                                  memopt_cuda_stream stream);

/** One launch for each 128 pairs of a head. Queries and keys side by side are one call, as on the CPU. 2^26 heads and
    more are MEMOPT_ERR_OVERFLOW. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_rotary_forward(const memopt_cuda_ops *ops, const memopt_rotary *x,
                                                              memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_rotary_backward(const memopt_cuda_ops *ops, const memopt_rotary *x,
                                                               memopt_cuda_stream stream);
#endif /* groups */

#if MEMOPT_I_GROUPS & 0x48 /* for operators, muon */
/* @section api_cuda_gemm : api_cuda_base
   Products by cuBLASLt. A memopt_cuda_gemm is what they run with: a cuBLASLt handle, a workspace on the device, and a
   table of the shapes met so far, each with its descriptors and its algorithm: a shape that is in the table costs no
   heuristic, no allocation and no copy. It lives in memory that the caller brings, and serves one thread and one stream
   at a time (the workspace is one): a stream of its own for each that runs beside another.

   Matrices lie row by row as in memopt_product, with device pointers. Sums are float32, in an order that is cuBLASLt's.
   Split-K adds its parts in float32 and never in 16 bits. An element differs from exact arithmetic by at most 2^-24
   (depth + 2) sum(|left right|), plus one rounding to the result's type. With the same gemm, card, library and shapes
   the bits are the same in every run, as cuBLAS's manual says.

   Types       left and right are of one type, float, bf16 or fp16; the result is of that type or float: else
               MEMOPT_CUDA_ERR_TYPE. bf16 needs compute capability 8.0, fp8 8.9.
   Strides     at least a row: else MEMOPT_CUDA_ERR_STRIDE. Any stride and any alignment of the element works;
               multiples of 16 bytes everywhere are what makes tensor cores run at full speed.
   No waiting, and no allocation but cuBLASLt's own in memopt_cuda_gemm_create(). */

typedef struct memopt_cuda_gemm_desc { /* all zero works */
    void  *d_workspace;      /* aligned to 256, of the current device; NULL = none, and few algorithms */
    size_t workspace_bytes;  /* 0 = none. Advice: MEMOPT_CUDA_GEMM_WORKSPACE */
    size_t shapes;           /* in the table; 0 = 1024, about 1 KiB each; one of them makes room */
    int    deterministic;    /* 1: no bias gradients in epilogues, whose order is not told: the shape fixes ours */
    int    tf32;             /* 1: products of floats may round their operands to 10 bits of mantissa */
    int    fast_fp8;         /* 1: fp8 products may add up in fewer bits throughout (FAST_ACCUM). 0: Hopper's units keep
                                about 14 bits of a sum as well, and only what they have added up so far goes into a
                                float32 from time to time; the bound above is not that of fp8 there */
} memopt_cuda_gemm_desc;

#define MEMOPT_CUDA_GEMM_WORKSPACE ((size_t)32 << 20) /* of Hopper and later; 4 MiB do on older cards */

/** Bytes of memory that memopt_cuda_gemm_create() needs, exactly. OK, MEMOPT_CUDA_ERR_NULL, MEMOPT_ERR_OVERFLOW. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_gemm_bytes(const memopt_cuda_gemm_desc *desc, size_t *bytes);

/**
 * Create a gemm on the current device.
 *
 * memory  of the host, aligned to 16; stays the caller's, untouched until the gemm is destroyed
 * out     untouched on failure
 * returns OK; MEMOPT_CUDA_ERR_NULL (desc, memory, out, half a workspace), _ALIGNMENT (memory, workspace);
 *         MEMOPT_ERR_ARGUMENT (a switch that there is not), _BUFFER (bytes too few), _OVERFLOW; what CUDA said;
 *         MEMOPT_CUDA_BASE_BLAS + what cublasLtCreate() said
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_gemm_create(const memopt_cuda_gemm_desc *desc, void *memory,
                                                           size_t bytes, memopt_cuda_gemm **out);

/** Gives back what cuBLASLt holds. Nothing of it may still be running. NULL is fine. */
MEMOPT_CUDA_API void memopt_cuda_gemm_destroy(memopt_cuda_gemm *gemm);

typedef struct memopt_cuda_gemm_stats { /* since it was created */
    size_t products;   /* handed to cuBLASLt */
    size_t heuristics; /* asked because a shape was not in the table. Grows after the first step: desc->shapes is too
                          few */
} memopt_cuda_gemm_stats;

/** NULL is fine. */
MEMOPT_CUDA_API memopt_cuda_gemm_stats memopt_cuda_gemm_get_stats(const memopt_cuda_gemm *gemm);

/**
 * Multiply; the twin of memopt_gemm_multiply().
 *
 * product left, right, bias and result are of the device. bias only with a float result: what adds one to a result of
 *         16 bits is memopt_cuda_linear_forward()
 * returns OK; MEMOPT_CUDA_ERR_NULL, _ALIGNMENT (below the element), _STRIDE (a stride below its row, or beyond
 *         2^31), _OVERLAP (of result and operands), _TYPE, _NO_ALGORITHM; MEMOPT_ERR_ARGUMENT (accumulate with bias, or
 *         a gemm of another device than the current one), _OVERFLOW; MEMOPT_CUDA_BASE_BLAS, _PENDING, _RUNTIME; nothing
 *         was launched then
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_gemm_multiply(memopt_cuda_gemm *gemm, const memopt_product *product,
                                                             memopt_cuda_stream stream);

typedef struct memopt_cuda_gemm_batch { /* `count` products of one shape; steps in elements from one to the next */
    size_t count, left_step, right_step, result_step; /* a step of 0 uses an operand again; bias is one for all */
} memopt_cuda_gemm_batch;

/** The same for a batch, in one call. Results must not overlap: MEMOPT_CUDA_ERR_STRIDE where a step leaves
    them no room. They may lie side by side in rows, and be added onto: cuBLAS asks only that each product can be
    computed without the others, and of a result in place that it is C with C's own layout. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_gemm_multiply_batch(memopt_cuda_gemm *gemm,
                                                                   const memopt_product *product,
                                                                   const memopt_cuda_gemm_batch *batch,
                                                                   memopt_cuda_stream stream);
typedef enum memopt_cuda_fp8 { MEMOPT_CUDA_FP8_E4M3, MEMOPT_CUDA_FP8_E5M2 } memopt_cuda_fp8;

typedef struct memopt_cuda_fp8_product { /* result = left_scale right_scale (left times right^T) + bias [+ result] */
    size_t          rows, columns, depth;   /* multiples of 16 */
    const uint8_t  *d_left, *d_right;       /* rows x depth, columns x depth; aligned to 16 */
    size_t          left_stride, right_stride; /* multiples of 16 */
    memopt_cuda_fp8 left_type, right_type;  /* not both e5m2 */
    const float    *d_left_scale, *d_right_scale; /* a float each, aligned to 16: what 1 stands for. NULL = 1 */
    const void     *d_bias;                 /* NULL, or `columns` bf16 with a bf16 or float result, fp16 with fp16 */
    int             accumulate;             /* 1: added onto what is in result; then without bias */
    void           *d_result;               /* aligned to 16 */
    size_t          result_stride;          /* a multiple of 16 bytes */
    memopt_type     result_type;
} memopt_cuda_fp8_product;

/** Multiply 8-bit floats. The scales are read on the device, at the product's turn in the stream. MEMOPT_CUDA_ERR_TYPE
    where the card has no fp8 (compute capability below 8.9), _STRIDE and _ALIGNMENT where the above is not kept. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_gemm_multiply_fp8(memopt_cuda_gemm *gemm,
                                                                 const memopt_cuda_fp8_product *product,
                                                                 memopt_cuda_stream stream);
#endif /* groups */

#if MEMOPT_I_GROUPS & 0x40 /* for muon */
/* @section api_cuda_muon : api_cuda_optim api_cuda_gemm
   Muon on a device. An object steps there, by the calls of api_cuda_optim, when its desc has the device's products:
       memopt_cuda_muon muon;                                       (yours, as long as the optimizer)
       desc.kind = MEMOPT_OPTIM_MUON;
       desc.muon = memopt_cuda_muon_products(&muon, gemm, MEMOPT_TYPE_BF16);
   Tensors and groups are those of api_muon. With the same u, momenta, skipped elements and what weights and momenta are
   rounded by are the CPU's bits; what is orthogonal is of cuBLASLt's products, whose sums have an order of their own.
   Scratch     memopt_cuda_optim_scratch() counts, of the largest matrix, twice its elements and, of the smaller of its
               sides, two squares, all as `products`; and 16 bytes for each 64 Ki elements. The object has none of it.
   Parts       A matrix is one slice, held whole or not at all: else MEMOPT_ERR_UNSUPPORTED. Its apply does all of it;
               measure and join come before, and launch nothing.
   Refused     with what api_cuda_optim says, before anything is launched: MEMOPT_ERR_ARGUMENT (no gemm, or one of
               another device than the current one), MEMOPT_CUDA_ERR_TYPE (BF16 on a card below 8.0), _NO_ALGORITHM. */

typedef struct memopt_cuda_muon { /* filled in by memopt_cuda_muon_products(); outlives the optimizer, does not move */
    uint64_t own[12];             /* private */
} memopt_cuda_muon;

/**
 * Muon of a device, for memopt_optim_desc.muon. Called again between steps, with the same `muon`, it gives the object
 * another gemm.
 *
 * gemm      whose stream is that of the steps. NULL: bytes can be told, and objects made, but not stepped
 * products  BF16, as torch has it, or F32
 * returns   what lies in `muon`; NULL for a muon that is NULL, for any other type, and with MEMOPT_CUDA_ONLY_ADAMW. An
 *           object with it is MEMOPT_ERR_UNSUPPORTED on the host
 */
MEMOPT_CUDA_API const memopt_muon *memopt_cuda_muon_products(memopt_cuda_muon *muon, memopt_cuda_gemm *gemm,
                                                             memopt_type products);
#endif /* groups */

#if MEMOPT_I_GROUPS & 0x08 /* for operators */
/* @section api_cuda_linear : api_cuda_gemm api_cuda_layer api_cuda_fp8
   Linear layers. type and weight_type are the same, and gradient_type is that or float: else MEMOPT_CUDA_ERR_TYPE.
   Where cuBLASLt can, bias, activation and their gradients are worked out in the product's epilogue, on float32 sums:
   an activation sees the sum before it is rounded to the type, and `pre_activation` is that sum rounded. Where it
   cannot (SiLU, ReLU with `pre_activation` wanted, outputs that are no multiple of 8 with `pre_activation` wanted, or
   no algorithm) a kernel comes after the product and works on what was stored, as on the CPU; the other kernel is
   memopt_cuda_activation_forward(). GELU of cuBLASLt is the form by tanh; it may use the card's tanh, 2^-10.98 off at
   most: |x| 2^-11.98 of the output. */

/** Bytes of scratch of a backward that is to give grad_bias: 4 for each output and 64 rows, 128 times at most, and
    about 1 MiB at most below 262,144 outputs. 0 without. Aligned to 256. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_linear_scratch(const memopt_cuda_ops *ops, const memopt_linear *linear,
                                                              size_t *bytes);

/**
 * output = activation(input * weights^T + bias) + residual, and `pre_activation` what goes into the activation.
 *
 * residual  without activation and pre_activation the product is added to it, in the epilogue; else a pass adds it in
 *           the place of the activation's kernel, with one rounding. It may be output where memopt.h lets it
 * returns OK; MEMOPT_CUDA_ERR_NULL (gemm, pointers), _ALIGNMENT, _TYPE; MEMOPT_ERR_ARGUMENT (linear NULL, a type,
 *         activation or switch that there is not), _BUFFER, _OVERFLOW; and what memopt_cuda_gemm_multiply() returns
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_linear_forward(const memopt_cuda_ops *ops, const memopt_linear *linear,
                                                              memopt_cuda_stream stream);

/** Gradients of input, weights and bias, as on the CPU: a backward with an activation is
    memopt_cuda_activation_backward() first, or part of the next layer's backward: see below. grad_bias is added up by
    the product of grad_weights where both are wanted and the gemm is not deterministic; else in an order that the shape
    alone fixes. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_linear_backward(const memopt_cuda_ops *ops, const memopt_linear *linear,
                                                               memopt_cuda_stream stream);

/** The same, where linear->input is activation(pre_activation): grad_input becomes the gradient of `pre_activation`
    (rows x inputs), so that the layer before needs no memopt_cuda_activation_backward(). With GELU it is part of the
    product. With NULL grad_input, or MEMOPT_ACTIVATION_NONE, it is memopt_cuda_linear_backward(). accumulate_input and
    an activation are MEMOPT_ERR_ARGUMENT; pre_activation must not overlap grad_input. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_linear_backward_through(const memopt_cuda_ops *ops,
                                                                       const memopt_linear *linear,
                                                                       memopt_activation activation,
                                                                       const void *pre_activation,
                                                                       memopt_cuda_stream stream);

/* The same in 8 bits: all three products have operands of memopt_cuda_fp8_quantize(), e4m3 forward and e5m2 for the
   gradient. Codes and scales have the bits of memopt_fp8_quantize(); the products are those of
   memopt_cuda_gemm_multiply_fp8(), and what follows them is as above. A layer keeps a byte an element for its backward,
   and its input may be gone then. */

typedef struct memopt_cuda_linear_fp8 { /* of a layer, beside its memopt_linear; all of the device */
    memopt_fp8_scale *d_input_scale, *d_weight_scale, *d_gradient_scale; /* aligned to 16; zeroed once, then kept */
    int               delayed;    /* as in memopt_fp8. 0 where a forward is made again: it would have other scales */
    uint8_t          *d_input;    /* inputs x rows, aligned to 16: written by forward, read by backward for grad_weights
                                     in place of the input. NULL = not wanted */
    uint8_t          *d_weights;  /* inputs x outputs: likewise of the weights, for grad_input */
} memopt_cuda_linear_fp8;

/** Bytes of scratch, forward or backward: a byte for each element of two operands, or what a bias gradient takes. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_linear_fp8_scratch(const memopt_cuda_ops *ops,
                                                                  const memopt_linear *linear, size_t *bytes);

/**
 * As memopt_cuda_linear_forward(). rows, inputs and outputs are multiples of 16, output and gradients aligned to 16.
 *
 * returns  also MEMOPT_CUDA_ERR_STRIDE (no multiples of 16), _TYPE (compute capability below 8.9), MEMOPT_ERR_ARGUMENT
 *          (as memopt_fp8_quantize()). When a launch fails scales may have counted this matrix
 */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_linear_forward_fp8(const memopt_cuda_ops *ops,
                                                                  const memopt_linear *linear,
                                                                  const memopt_cuda_linear_fp8 *fp8,
                                                                  memopt_cuda_stream stream);

/** As memopt_cuda_linear_backward_through(), after the layer's last forward: grad_output becomes 8 bits, and the bias'
    gradient is that of grad_output as it is. MEMOPT_ACTIVATION_NONE and NULL: the input is no activation's. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_linear_backward_fp8(const memopt_cuda_ops *ops,
                                                                   const memopt_linear *linear,
                                                                   const memopt_cuda_linear_fp8 *fp8,
                                                                   memopt_activation activation,
                                                                   const void *pre_activation,
                                                                   memopt_cuda_stream stream);

/* @section api_cuda_batchnorm : api_cuda_norm api_cuda_layer api_cuda_linear
   Linear + batch norm + activation on the device, as on the CPU, pointers being the device's. The product is that of
   memopt_cuda_linear_forward() and _backward(): their types, their statuses. Given z and the statistics, output is the
   CPU's bits, but for which NaN a NaN is; the statistics differ by rounding. Running statistics are updated on the
   device.

   All return OK; MEMOPT_CUDA_ERR_NULL, _ALIGNMENT, _OVERLAP; MEMOPT_ERR_ARGUMENT (x NULL, fewer than 2 rows, a number
   outside its range), _OVERFLOW, _BUFFER; and what linear returns. When cuBLASLt refuses a product after others have
   been launched, results may be half written. */

/** Linear's scratch; 8 bytes a column of groups of rows (about 1,056 groups in all for each 16 MiB of z); backward: a
    part of the gradient of z, of at most 64 MiB or a group of rows; and where that is a part, and gradient_type has 16
    bits, float sums of the gradients of weights and bias. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_batch_norm_scratch(const memopt_cuda_ops *ops,
                                                                  const memopt_batch_norm *x, size_t *bytes);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_batch_norm_forward(const memopt_cuda_ops *ops,
                                                                  const memopt_batch_norm *x,
                                                                  memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_batch_norm_backward(const memopt_cuda_ops *ops,
                                                                   const memopt_batch_norm *x,
                                                                   memopt_cuda_stream stream);

/** weights: outputs x inputs, bias: outputs floats, of the device. The CPU's bits. Needs neither scratch nor products:
    ops may be NULL. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_batch_norm_fold(const memopt_cuda_ops *ops, const memopt_batch_norm *x,
                                                               float *d_weights, float *d_bias,
                                                               memopt_cuda_stream stream);

/* @section api_cuda_head : api_cuda_gemm api_cuda_softmax
   Linear + softmax + cross-entropy without whole logits. type and weight_type are the same, gradient_type is that or
   float: else MEMOPT_CUDA_ERR_TYPE. Logits of a chunk are of `type`: with 16 bits they are rounded once before the
   softmax and their gradient once after it, 2^-9 (bf16) or 2^-12 (fp16) of each. Targets are read by kernels only: one
   of vocabulary or more is read nowhere out of bounds; see memopt_cuda_cross_entropy_loss() for what it counts as.
   Products take in all `padded` rows of weights: those behind the vocabulary must hold finite numbers, such as 0, and
   have no influence then; their gradient is 0 (if the input is finite), or stays as it is where it is added onto.
   chunk 0 = as many rows as 448 MiB of logits hold, a multiple of 128, at most 2048 (not 512 as on the CPU: a product
   of few rows leaves the card idle, and each chunk passes over grad_weights once). A grad_weights of 16 bits is rounded
   to nearest with every chunk: give it float, or few chunks. */

/** The logits of min(chunk, rows) rows, and 8 bytes a row; each of the two rounded up to 256, and 256 for the count. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_head_scratch(const memopt_cuda_ops *ops, const memopt_head *head,
                                                            size_t *bytes);

/** Loss into d_out (of the device), and both gradients, in one pass. grad_input may be input. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_head_loss(const memopt_cuda_ops *ops, const memopt_head *head,
                                                         memopt_loss *d_out, memopt_cuda_stream stream);

/** Some rows of logits, count x vocabulary floats. No scratch. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_head_logits(const memopt_cuda_ops *ops, const memopt_head *head,
                                                           size_t first, size_t count, float *d_logits,
                                                           memopt_cuda_stream stream);

/* @section api_cuda_attention : api_cuda_gemm
   Attention without the length x length matrix, in one of two ways; both are deterministic.
   Tensor      16 bits and a width up to 128: one kernel forward and three backward, for the whole batch; scores never
   cores       leave the registers. Causal is exact: nothing of a later row reaches an earlier one, NaN and infinities
               included. With online and statistics those are the CPU's, and output and statistics are read by a
               backward; otherwise a backward makes them again: 9 products, not 7. block is not looked at. With
               MEMOPT_CUDA_WGMMA and code of 9.0a on a card of 9.0 kernels with other bits do, in the same bound.
   Rows of     everything else: `block` rows of scores of all heads of a sequence are made by one batched product,
   scores      turned into probabilities by a kernel, used up by another product. block 0 = 256 (not 64 as on the CPU).
               online is taken as 0. Causal products run over whole blocks, with zeros where a row may not look, and 0
               times what is not finite is NaN: so a NaN or an infinity in a key or a value also makes rows before it in
               its block NaN, and one in a query or in grad_output the gradients of keys and values of rows after it in
               its block; and a window reaches up to block + 30 rows farther for both. No further, and into no other
               document.
   Bound       of an output: (E + 2^-9 for bf16, 2^-12 for fp16, 0 for float) sum(p |v|), E as in `attention` of
               memopt.h (tensor cores: and 2^-21, of their exponentials and additions), and one rounding to the type.
               Scores are float; probabilities, and gradients of scores, are of `type`, as products want their operands.
   lengths     are on the device, and read by kernels only. One above length counts as length. Rows after them are not
               read into any result, whatever they hold.
   documents   and window as on the CPU: tiles and blocks that nobody attends to are left out. starts are the host's,
               read by the call (not by _scratch()), which refuses what the CPU does; a captured call repeats them. By
               tensor cores a document has the bits of a sequence of its own, and its statistics their order. Rows of
               scores make it by products of their own, of the same shapes: documents of many lengths want a gemm with
               as many `shapes`. */

/** Bytes of scratch, of a backward where grad_queries is set, else of a forward. Tensor cores: none; batch * heads *
    length * 8 for a backward, half of that where online and statistics are set; with documents, (documents + 1) * 8
    more. Rows of scores, where columns are length, or longest, or, if that is less, window + block + 30: kv_heads *
    block * columns * 4, twice that for a backward, and half as much again with 16 bits of storage and more than 8,192
    columns. With 16 bits a backward takes length (or longest) * kv_heads * width * 8 more. With lengths: a copy of one
    sequence's keys or values, and in a backward of the rows of a block. */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_attention_scratch(const memopt_cuda_ops *ops, const memopt_attention *x,
                                                                 size_t *bytes);

/** statuses as of memopt_cuda_linear_forward() */
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_attention_forward(const memopt_cuda_ops *ops, const memopt_attention *x,
                                                                 memopt_cuda_stream stream);
MEMOPT_CUDA_API memopt_cuda_status memopt_cuda_attention_backward(const memopt_cuda_ops *ops, const memopt_attention *x,
                                                                  memopt_cuda_stream stream);
#endif /* groups */
#if defined(__cplusplus) && !MEMOPT_I_CUDA_STATIC
}
#endif
#ifdef __cplusplus
} /* namespace api */
using namespace api;
} /* namespace memopt_i_cuda */
using namespace memopt_i_cuda::api;
#endif
#endif /* MEMOPT_CUDA_CU */

#ifdef MEMOPT_CUDA_IMPLEMENTATION
#undef MEMOPT_CUDA_IMPLEMENTATION
#ifndef MEMOPT_I_CUDA_IMPLEMENTED
#define MEMOPT_I_CUDA_IMPLEMENTED
#ifndef MEMOPT_I_IMPLEMENTED
#  error "compile memopt_cuda.cu by itself, or #define MEMOPT_IMPLEMENTATION before the first #include of memopt.h"
#endif
#if defined(MEMOPT_CUDA_STATIC) != MEMOPT_I_CUDA_STATIC
#  error "memopt_cuda.cu was included before without the same MEMOPT_CUDA_STATIC: define it before the first #include"
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#  error "memopt_cuda.cu needs compute capability 8.0 and up: give nvcc -arch=native, or sm_80, sm_90..."
#endif
#include <cuda.h>
#include <cuda_runtime.h>
#include <cublasLt.h>
#if defined(__CUDACC__) && defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#  define MEMOPT_I_CUDA_GCC /* what runs on the host is control code: half of gcc's time for it saves nothing */
#  pragma nv_diag_suppress 1675 /* nvcc does not know the next two, and hands them on */
#  pragma GCC push_options
#  pragma GCC optimize("O1")
#endif

/* @section cuda_base : api_cuda_base
   What all kernels stand on.
   Simulator  Five macros are all that is not plain CUDA, so that the same file runs on a CPU, a fiber for each thread,
              under sanitizers. Whoever brings a simulator defines them first.
   Launch     One way for all kernels: CU_RUN(), with as many blocks as a size_t says. A launch that fails
              leaves CUDA's error, which is taken and returned. An error that was there before is somebody else's: it is
              returned as well, and left where it is, and nothing is launched.
   Tiles      A block does one tile, and there are as many blocks as tiles: 2^31 of them, of a thousand elements and up.
              All indices are size_t.
   Bits       Formulas are those of memopt.h, marked MEMOPT_I_HOST_DEVICE there, so they are written once. Products and
              sums that a compiler could fuse go through memopt_i_times() and memopt_i_sum(), or fmaf.
   Pruning    nvcc compiles every kernel that a function launches, and every plain kernel, called or not; of a template
              only what something that is compiled asks for. So kernels and all that may launch them are templates, with
              a parameter that nobody names where they need none: PRUNED. In the static form the public functions are,
              too, and a file compiles the kernels of what it calls. */

#define PRUNED template <int = 0> static
#define CU_DEVICE static __device__ __forceinline__
#define CU_MEMBER __device__ __forceinline__
#define CU_CONSTEXPR static __host__ __device__ constexpr /* tables of device functions are made by it */
#if MEMOPT_I_CUDA_STATIC
#  define PUBLIC template <int> /* linkage and the default stand at the declaration */
#else
#  define PUBLIC
#endif

#ifndef MEMOPT_I_CUDA_LAUNCH
#  define MEMOPT_I_CUDA_LAUNCH(kernel, grid, block, shared, stream, ...)                                               \
       (kernel)<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)

#  define MEMOPT_I_CUDA_SHARED(type, name, dimensions) __shared__ type name dimensions

#  define MEMOPT_I_CUDA_SHARED_BYTES(type, name, aligned)                                                              \
       extern __shared__ __align__(aligned) unsigned char shared_bytes_##aligned[];                                    \
       type *name = (type *)(void *)shared_bytes_##aligned

#  define MEMOPT_I_CUDA_TABLE(type, name, dimensions) static __device__ const type name dimensions

#  define MEMOPT_I_CUDA_PREFETCH(p, further) asm volatile("prefetch.global.L2 [%0+%1];" : : "l"(p), "n"(further))
#endif
#define MEMOPT_I_CUDA_ALL 0xffffffffu /* all lanes of a warp */
/* Blocks on a multiprocessor, asked of ptxas: before Blackwell, and from it on, where code takes more registers. And
   bounds that ask for one: left alone, it spills a register or two of some kernels there to make room for another. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#  define CU_RESIDENT(before, blackwell) (blackwell)
#else
#  define CU_RESIDENT(before, blackwell) (before)
#endif
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1000)
#  define CU_BOUNDS(threads) __launch_bounds__(threads, 1)
#else
#  define CU_BOUNDS(threads) __launch_bounds__(threads)
#endif
#if defined(__CUDACC__)
#  define CU_ARGUMENT __grid_constant__
#  define CU_UNROLL _Pragma("unroll")
#  define CU_ROLLED _Pragma("unroll 1") /* rare, or waits for memory: copies of it only take time to compile */
#  define CU_PRAGMA(...) _Pragma(#__VA_ARGS__)
#  define CU_ROLLED_IF(rare, times) CU_PRAGMA(unroll((rare) ? 1 : (times)))
#else
#  define CU_ARGUMENT
#  define CU_UNROLL
#  define CU_ROLLED
#  define CU_ROLLED_IF(rare, times)
#endif

namespace memopt_i_cuda {
#if defined(__CUDACC__)
#  pragma nv_diag_suppress 177 /* where families are left out not every helper is called */
#endif

typedef memopt_cuda_status status_t;

PRUNED status_t runtime(cudaError_t error) { return error == cudaSuccess ? 0 : MEMOPT_CUDA_BASE_RUNTIME + (int)error; }

/* What a runtime call said; its error is taken away, since it is told here. */
PRUNED status_t taken(cudaError_t error) {
    if (error != cudaSuccess) (void)cudaGetLastError();
    return runtime(error);
}

/* Before the first launch of a call. Where there is no device it is this very look that finds it out. */
PRUNED status_t ready(void) {
    const cudaError_t error = cudaPeekAtLastError();
    if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice || error == cudaErrorInitializationError)
        return taken(error);
    return error == cudaSuccess ? 0 : MEMOPT_CUDA_BASE_PENDING + (int)error;
}

/* After each launch: takes what this launch left. */
PRUNED status_t launched(void) { return runtime(cudaGetLastError()); }

/* No blocks: nothing is launched. More than 2^31 - 1 are ERR_OVERFLOW. */
template <class LAUNCH> static status_t launch_blocks(size_t blocks, const LAUNCH &launch) {
    status_t s;

    if (blocks > 0x7fffffffu) return MEMOPT_ERR_OVERFLOW;
    s = ready();
    if (s || !blocks) return s;
    launch((unsigned)blocks);
    return launched();
}

/* The status of an expression in which T is the type that the host knows: the one way from a memopt_type to kernels. */
#define CU_AS(type, ...) [&]() -> status_t { typedef type T; return __VA_ARGS__; }()
#ifdef MEMOPT_CUDA_NO_F16
#  define CU_NARROW(type, ...)                                                                                         \
       ((type) == MEMOPT_TYPE_BF16 ? CU_AS(bf16_t, __VA_ARGS__) : (status_t)MEMOPT_CUDA_ERR_TYPE)
#else
#  define CU_NARROW(type, ...)                                                                                         \
       ((type) == MEMOPT_TYPE_BF16 ? CU_AS(bf16_t, __VA_ARGS__) : CU_AS(f16_t, __VA_ARGS__))
#endif
#define CU_SIZED(type, ...) /* T is float or half_t */                                                                 \
    ((type) == MEMOPT_TYPE_F32 ? CU_AS(float, __VA_ARGS__) : CU_AS(half_t, __VA_ARGS__))
#define CU_WITH(type, ...)                                                                                             \
    ((type) == MEMOPT_TYPE_F32 ? CU_AS(float, __VA_ARGS__) : CU_NARROW(type, __VA_ARGS__))

/* A macro, so that a simulator is told the kernel's name and the line. */
#define CU_RUN(kernel, blocks, threads, shared, stream, ...)                                                \
    launch_blocks((blocks), [&](unsigned memopt_i_grid) {                                                          \
        MEMOPT_I_CUDA_LAUNCH(kernel, memopt_i_grid, threads, shared, stream, __VA_ARGS__);                             \
    })

/* 0 for a pointer that is there and aligned; `alignment` is a power of two. */
PRUNED status_t pointer(const void *p, size_t alignment) {
    if (!p) return MEMOPT_CUDA_ERR_NULL;
    return ((uintptr_t)p & (alignment - 1)) ? MEMOPT_CUDA_ERR_ALIGNMENT : 0;
}

PRUNED status_t pointer_if(const void *p, size_t alignment) { /* NULL is fine */
    return p ? pointer(p, alignment) : 0;
}

PRUNED status_t no_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    return a && b && memopt_i_overlaps(a, a_bytes, b, b_bytes) ? MEMOPT_CUDA_ERR_OVERLAP : 0;
}

/* Blocks for n elements, `tile` each; 0 for n = 0. More than 2^31 - 1 is ERR_OVERFLOW. */
PRUNED status_t grid_of(size_t n, size_t tile, unsigned *blocks) {
    const size_t count = memopt_i_ceil_div(n, tile);
    if (count > 0x7fffffffu) return MEMOPT_ERR_OVERFLOW;
    *blocks = (unsigned)count;
    return 0;
}

CU_DEVICE float exp2_near(float x) { /* within 2^-22; 0 below 2^-126 */
#if defined(__CUDA_ARCH__)
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

/* The last of n entries of a kernel's table whose first tile is not above this one. */
template <class ENTRY> CU_DEVICE unsigned find_entry(const ENTRY *entries, unsigned n, unsigned tile) {
    unsigned low = 0;
    unsigned high = n;

    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;

        if (entries[middle].first_tile <= tile) low = middle;
        else high = middle;
    }
    return low;
}

/* An element of any type as float, and back (to nearest even). */
CU_DEVICE float load_one(const float *p) { return *p; }
CU_DEVICE void store_one(float *p, float x) { *p = x; }

struct bf16_t {
    enum { is_bf16 = 1 };
    uint16_t code;
};

struct f16_t {
    enum { is_bf16 = 0 };
    uint16_t code;
};

CU_DEVICE float load_one(const bf16_t *p) { return memopt_from_bf16(p->code); }

/* By the processor's own instructions, which are free to choose a NaN. */
CU_DEVICE float load_one(const f16_t *p) {
#if defined(__CUDA_ARCH__)
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(p->code));
    return x;
#else
    return memopt_from_f16(p->code);
#endif
}

/* Two floats as two codes of 16 bits, the first in the lower half. */
CU_DEVICE uint32_t two(const bf16_t *, float low, float high) {
#if defined(__CUDA_ARCH__)
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#else
    return memopt_to_bf16(low) | (uint32_t)memopt_to_bf16(high) << 16;
#endif
}

CU_DEVICE uint32_t two(const f16_t *, float low, float high) {
#if defined(__CUDA_ARCH__)
    uint32_t both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#else
    return memopt_to_f16(low) | (uint32_t)memopt_to_f16(high) << 16;
#endif
}

CU_DEVICE void store_one(bf16_t *p, float x) { p->code = (uint16_t)two(p, x, x); }

CU_DEVICE void store_one(f16_t *p, float x) { p->code = (uint16_t)two(p, x, x); }

/* The same where a NaN is to be memopt.h's. The bits that are added to one there are in what becomes of it anyway, and
   tell a compiler that memopt.h's code for a NaN is all it needs. */
CU_DEVICE float from_f16(uint32_t code) {
    const f16_t one = { (uint16_t)code };
    const float x = load_one(&one);
    return x == x ? x : memopt_from_f16((uint16_t)(code | 0x7e00));
}

CU_DEVICE uint32_t nan_code(const bf16_t *, float x) {
    return memopt_i_bf16_code(memopt_i_bits_of(x) | 0x7fc00000, 0, 0);
}

CU_DEVICE uint32_t nan_code(const f16_t *, float x) {
    return memopt_i_f16_code(memopt_i_bits_of(x) | 0x7fc00000, 0, 0);
}

template <class T> CU_DEVICE uint32_t code_of(const T *type, float x) {
    return x == x ? two(type, x, x) & 0xffff : nan_code(type, x);
}

template <class T> CU_DEVICE uint32_t two_exact(const T *type, float low, float high) {
    const uint32_t both = two(type, low, high);
    return low == low && high == high ? both : code_of(type, low) | code_of(type, high) << 16;
}

/* ---- vectors: elements side by side, as they are stored ---- */
/* A store of four numbers is four stores to the compiler, which joins them again only where no branch is near, and
   stores of a lane 16 bytes apart cost the second-level cache four times. So a whole one is one instruction, asked for
   by name. */
template <int WORDS> CU_DEVICE void read(uint32_t *w, const void *p) {
    CU_UNROLL for (int i = 0; i < WORDS; ++i) {
        if (WORDS % 4 == 0 && i % 4 == 0) {
            const uint4 v = ((const uint4 *)p)[i / 4];
            w[i] = v.x;
            w[i + 1] = v.y;
            w[i + 2] = v.z;
            w[i + 3] = v.w;
        } else if (WORDS % 4 == 2 && i % 2 == 0) {
            const uint2 v = ((const uint2 *)p)[i / 2];
            w[i] = v.x;
            w[i + 1] = v.y;
        } else if (WORDS % 2) w[i] = ((const uint32_t *)p)[i];
    }
}

template <int WORDS> CU_DEVICE void write(void *p, const uint32_t *w) {
    CU_UNROLL for (int i = 0; i < WORDS; ++i) {
        if (WORDS % 4 == 0 && i % 4 == 0) __stwb((uint4 *)p + i / 4, make_uint4(w[i], w[i + 1], w[i + 2], w[i + 3]));
        else if (WORDS % 4 == 2 && i % 2 == 0) __stwb((uint2 *)p + i / 2, make_uint2(w[i], w[i + 1]));
        else if (WORDS % 2) ((uint32_t *)p)[i] = w[i];
    }
}

/* Element i of SIZE bytes, in the lowest bits of a word. */
template <int SIZE> CU_DEVICE uint32_t element(const void *p, unsigned i) {
    return SIZE == 4 ? ((const uint32_t *)p)[i] : SIZE == 2 ? ((const uint16_t *)p)[i] : ((const uint8_t *)p)[i];
}

/* Asks the second-level cache for what lies BEHIND bytes further than p; nothing waits for it. */
template <int BEHIND> CU_DEVICE void prefetch(const void *p) { MEMOPT_I_CUDA_PREFETCH(p, BEHIND); }

/* A number the compiler knows nothing of. It is kept, and not made again and again from what it came from; what is made
   of it is made where it is used, and not kept in registers through a whole loop. */
PRUNED __device__ __forceinline__ int anew(int x) {
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+r"(x));
#endif
    return x;
}

/* Each of K takes the place of the one before: in a loop over all that is compiled once, s[0] is the k-th. */
template <int K, class T> CU_DEVICE void take_turns(T *s) {
    const T first = s[0];

    CU_UNROLL for (int k = 0; k < K; ++k) s[k] = k + 1 < K ? s[(k + 1) % K] : first;
}

/* The elements `at` and following at p, in WORDS words; those from `end` on are 0, and are not stored. whole: all are
   there, and p is aligned to all of them. */
template <int SIZE, int WORDS, class COUNT>
CU_DEVICE void get(uint32_t *w, const void *p, COUNT at, COUNT end, bool whole) {
    enum { PER = 4 / SIZE };

    if (whole) {
        read<WORDS>(w, p);
        return;
    }
    const COUNT left = at < end ? end - at : 0;
    CU_UNROLL for (unsigned i = 0; i < WORDS * PER; ++i) {
        if (i % PER == 0) w[i / PER] = 0;
        if (i < left) w[i / PER] |= element<SIZE>(p, i) << i % PER * 8 * SIZE;
    }
}

template <int SIZE, int WORDS, class COUNT>
CU_DEVICE void put(void *p, const uint32_t *w, COUNT at, COUNT end, bool whole) {
    enum { PER = 4 / SIZE };

    if (whole) {
        write<WORDS>(p, w);
        return;
    }
    CU_UNROLL for (unsigned i = 0; i < WORDS * PER; ++i) {
        if (at + i >= end) break;
        if (SIZE == 4) ((uint32_t *)p)[i] = w[i];
        else if (SIZE == 2) ((uint16_t *)p)[i] = (uint16_t)(w[i / PER] >> i % PER * 16);
        else ((uint8_t *)p)[i] = (uint8_t)(w[i / PER] >> i % PER * 8);
    }
}

/* N elements of a type. */
template <class T, int N> struct row_span { uint32_t word[N * sizeof(T) / 4]; };

/* How many of N elements from `at` on there are below the end. */
template <int N> CU_DEVICE unsigned left_of(size_t end, size_t at) {
    return at >= end ? 0 : end - at < N ? (unsigned)(end - at) : (unsigned)N;
}

/* The first `left` elements at p; the others are 0. wide: p is aligned for all of them. */
template <class T, int N> CU_DEVICE void span_get(row_span<T, N> *s, const T *p, unsigned left, bool wide) {
    get<sizeof(T), N * sizeof(T) / 4>(s->word, p, 0u, left, wide && left == N);
}

/* All of them, or zeros. */
template <class T, int N> CU_DEVICE void span_get_if(row_span<T, N> *s, const T *p, bool there, bool wide) {
    if (there) span_get(s, p, N, wide);
    else CU_UNROLL for (int i = 0; i < (int)(N * sizeof(T) / 4); ++i) s->word[i] = 0;
}

template <class T, int N> CU_DEVICE void span_put(T *p, const row_span<T, N> &s, unsigned left, bool wide) {
    put<sizeof(T), N * sizeof(T) / 4>(p, s.word, 0u, left, wide && left == N);
}

/* The same where a span is not aligned, one element after the other: a compiler that is given their loads side by side
   puts them beside that of a whole span, each with a predicate. */
template <class T, int N> CU_DEVICE void span_get_ones(row_span<T, N> *s, const T *p, unsigned left) {
    enum { WORDS = N * sizeof(T) / 4 };

    CU_UNROLL for (int k = 0; k < WORDS; ++k) s->word[k] = 0;
    CU_ROLLED for (unsigned i = 0; i < N; ++i) {
        const uint32_t code = i < left ? element<sizeof(T)>(p, i) : 0;
        CU_UNROLL for (int k = 0; k < WORDS; ++k) {
            const uint32_t next = k + 1 < WORDS ? s->word[(k + 1) % WORDS] : code;
            s->word[k] = sizeof(T) == 4 ? next : s->word[k] >> 16 | next << 16;
        }
    }
}

/* Element i as a float, and back. i is known when it is compiled. */
template <int N> CU_DEVICE float element_at(const row_span<float, N> &s, int i) {
    return memopt_i_bits_float(s.word[i]);
}

template <class T, int N> CU_DEVICE float element_at(const row_span<T, N> &s, int i) {
    const T one = { (uint16_t)(s.word[i / 2] >> (i % 2 * 16)) };
    return load_one(&one);
}

/* Of 16 bits the lower half of a word is set first, and takes the upper one with it. */
template <class T, int N> CU_DEVICE void set_code(row_span<T, N> *s, int i, uint32_t code) {
    if (sizeof(T) == 4) s->word[i] = code;
    else s->word[i / 2] = i % 2 ? (s->word[i / 2] & 0xffffu) | code << 16 : code;
}

/* A span as floats, and back. */
template <class T, int N> CU_DEVICE void span_floats(float *x, const row_span<T, N> &s) {
    CU_UNROLL for (int i = 0; i < N; ++i) x[i] = element_at(s, i);
}

template <int N> CU_DEVICE void set_all(row_span<float, N> *s, const float *x) {
    CU_UNROLL for (int i = 0; i < N; ++i) s->word[i] = memopt_i_float_bits(x[i]);
}

template <class T, int N> CU_DEVICE void set_all(row_span<T, N> *s, const float *x) {
    CU_UNROLL for (int i = 0; i < N / 2; ++i) s->word[i] = two((const T *)0, x[2 * i], x[2 * i + 1]);
}

/* 16 bits of either type: which of them, a task says, by a branch for a span that all threads take alike. */
struct half_t { uint16_t code; };

template <class T> struct sized { typedef half_t type; };
template <> struct sized<float> { typedef float type; };

template <class T, int N> CU_DEVICE void span_open(float *x, const row_span<T, N> &s, bool) { span_floats(x, s); }

template <int N> CU_DEVICE void span_open(float *x, const row_span<half_t, N> &s, bool bf16) {
    row_span<bf16_t, N> one;
    row_span<f16_t, N> other;

    CU_UNROLL for (int i = 0; i < N / 2; ++i) one.word[i] = other.word[i] = s.word[i];
    if (bf16) span_floats(x, one);
    else span_floats(x, other);
}

template <class T, int N> CU_DEVICE void span_close(row_span<T, N> *s, const float *x, bool) { set_all(s, x); }

template <int N> CU_DEVICE void span_close(row_span<half_t, N> *s, const float *x, bool bf16) {
    CU_UNROLL for (int i = 0; i < N / 2; ++i) {
        if (bf16) s->word[i] = two((const bf16_t *)0, x[2 * i], x[2 * i + 1]);
        else s->word[i] = two((const f16_t *)0, x[2 * i], x[2 * i + 1]);
    }
}

template <class T, int N> CU_DEVICE row_span<T, N> span_of(const float *x) {
    row_span<T, N> s;
    set_all(&s, x);
    return s;
}

template <class T, int N> CU_DEVICE void span_put_floats(T *p, const float *x, unsigned left, bool wide) {
    span_put(p, span_of<T, N>(x), left, wide);
}

/* Four elements, aligned to all of them, as floats, and back. */
template <class T> CU_DEVICE void load_four(const T *p, float *x) {
    row_span<T, 4> s;
    span_get(&s, p, 4, true);
    span_floats(x, s);
}

template <class T> CU_DEVICE void store_four(T *p, const float *x) { span_put_floats<T, 4>(p, x, 4, true); }

/* N elements of an array of any type, as floats */
template <class T, int N> CU_DEVICE void floats_of(float *x, const void *data, size_t at, unsigned left, bool wide) {
    row_span<T, N> s;
    span_get(&s, static_cast<const T *>(data) + at, left, wide);
    span_floats(x, s);
}

template <int N> CU_DEVICE void floats_at(float *x, const void *data, memopt_type type, size_t at,
                                          unsigned left, bool wide, float missing) {
    if (!data) {
        CU_UNROLL for (int i = 0; i < N; ++i) x[i] = missing;
    } else if (type == MEMOPT_TYPE_F32) floats_of<float, N>(x, data, at, left, wide);
    else if (type == MEMOPT_TYPE_BF16) floats_of<bf16_t, N>(x, data, at, left, wide);
    else floats_of<f16_t, N>(x, data, at, left, wide);
}

/* One element of an array of any type. */
CU_DEVICE float one_of(const void *data, memopt_type type, size_t at) {
    if (type == MEMOPT_TYPE_F32) return load_one(static_cast<const float *>(data) + at);
    if (type == MEMOPT_TYPE_BF16) return load_one(static_cast<const bf16_t *>(data) + at);
    return load_one(static_cast<const f16_t *>(data) + at);
}

CU_DEVICE float one_or(const void *data, memopt_type type, size_t at, float missing) {
    return data ? one_of(data, type, at) : missing;
}

CU_DEVICE void put_one(void *data, memopt_type type, size_t at, float x) {
    if (type == MEMOPT_TYPE_F32) store_one(static_cast<float *>(data) + at, x);
    else if (type == MEMOPT_TYPE_BF16) store_one(static_cast<bf16_t *>(data) + at, x);
    else store_one(static_cast<f16_t *>(data) + at, x);
}

/* N floats into an array of any type */
template <class T, int N>
CU_DEVICE void put_floats_of(void *data, size_t at, const float *x, unsigned left, bool wide) {
    span_put(static_cast<T *>(data) + at, span_of<T, N>(x), left, wide);
}

template <int N>
CU_DEVICE void put_floats(void *data, memopt_type type, size_t at, const float *x, unsigned left, bool wide) {
    if (type == MEMOPT_TYPE_F32) put_floats_of<float, N>(data, at, x, left, wide);
    else if (type == MEMOPT_TYPE_BF16) put_floats_of<bf16_t, N>(data, at, x, left, wide);
    else put_floats_of<f16_t, N>(data, at, x, left, wide);
}

/* The numbers of CUresult and cudaError_t have been the same since CUDA 10.1, so the runtime has the driver's texts. */
PRUNED const char *own_text(status_t status) {
    switch (status) {
    case MEMOPT_CUDA_ERR_NULL:         return "a pointer that is needed is NULL";
    case MEMOPT_CUDA_ERR_ALIGNMENT:    return "a pointer is not aligned as the call needs it";
    case MEMOPT_CUDA_ERR_OVERLAP:      return "a result shares bytes with something else";
    case MEMOPT_CUDA_ERR_STRIDE:       return "cuBLASLt cannot take this leading dimension";
    case MEMOPT_CUDA_ERR_NO_ALGORITHM: return "cuBLASLt has no algorithm for this product";
    case MEMOPT_CUDA_ERR_TYPE:         return "these types do not go together here, or not on this card";
    default:                           return "no such status";
    }
}

PUBLIC const char *api::memopt_cuda_status_text(status_t status) {
    if (status <= 0 && status > -100) return memopt_status_text((memopt_status)status);
    if (status < MEMOPT_CUDA_BASE_RUNTIME) return own_text(status);
    if (status < MEMOPT_CUDA_BASE_PENDING) return cudaGetErrorString((cudaError_t)(status - MEMOPT_CUDA_BASE_RUNTIME));
    if (status < MEMOPT_CUDA_BASE_DRIVER)  return cudaGetErrorString((cudaError_t)(status - MEMOPT_CUDA_BASE_PENDING));
    if (status < MEMOPT_CUDA_BASE_BLAS)    return cudaGetErrorString((cudaError_t)(status - MEMOPT_CUDA_BASE_DRIVER));
    if (status < MEMOPT_CUDA_BASE_BLAS + 1000)
        return cublasLtGetStatusString((cublasStatus_t)(status - MEMOPT_CUDA_BASE_BLAS));
    return "no such status";
}

PUBLIC memopt_status api::memopt_cuda_to_status(status_t status) {
    if (status > -100 && status <= 0) return (memopt_status)status;
    if (status < 0) return MEMOPT_ERR_ARGUMENT;
    if (status == MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorMemoryAllocation) return MEMOPT_ERR_MEMORY;
    if (status == MEMOPT_CUDA_BASE_DRIVER + (int)CUDA_ERROR_OUT_OF_MEMORY) return MEMOPT_ERR_MEMORY;
    if (status == MEMOPT_CUDA_BASE_BLAS + (int)CUBLAS_STATUS_ALLOC_FAILED) return MEMOPT_ERR_MEMORY;
    return MEMOPT_ERR_DEVICE;
}

/* @section cuda_memory : cuda_base api_cuda_memory
   A device's memory as sources, and what goes between it and the host.
   Problem    cudaMalloc in the middle of a step stops the device, and a block that must grow is a second block and a
              copy. Pageable memory crosses the bus through the driver's own buffers, and the CPU waits. And a library
              that leaves the wrong device behind, or takes an error that was somebody else's, is found weeks later.
   Idea       Sources: what arenas and heaps stand on anyway, so they do not know that it is a device. Growing:
              addresses and memory are apart in the driver's virtual memory calls, as commit wants it; each granule is
              a mapping of its own, so any of them can go again. Transfers: four pinned buckets, two each way; the CPU
              fills one while the other crosses; two streams, so that both ways are used at once.
   Order      Nothing is known of the caller's stream but what events tell. Before a copy: ours waits for an event
              recorded now in the caller's, so for all that was queued before. After it: the caller's waits for an
              event recorded behind the copy. No CPU waits, but where a bucket must be free, or full.
   Ways       One bucket makes CPU and bus take turns; of two the copy of one hides behind the crossing of the other.
              Pinned at the other end (_prefetch, a pinned store) there is no bucket, and no wait of the CPU.
   Failure    A call that fails in the middle waits for what it has begun and forgets the rest, so that nothing arrives
              in memory that is somebody else's by then.
   Trap       cudaSetDevice makes a context on a device that had none, some hundred MiB of it. Putting the thread's
              device back does that too; so work on the thread's own device where there is a choice.
   Trap       The driver lets go of mapped memory that kernels still use: cuMemUnmap does not wait. Decommit and release
              do, for the whole device.
   Trap       An event waited for before it was ever recorded is no wait at all; then there is nothing to wait for. */

#define MEMOPT_I_CUDA_ALIGN   ((size_t)256)
#define MEMOPT_I_CUDA_GRANULARITY ((size_t)32 << 20)
#define MEMOPT_I_CUDA_BUCKET  ((size_t)4 << 20)

/* -- which device, and what is pending -- */

PRUNED status_t first_error(status_t a, status_t b) { return a ? a : b; }

PRUNED status_t enter_anyway(int device, int *before) {
    status_t s = taken(cudaGetDevice(before));
    if (s) *before = device; /* nothing to go back to */
    if (!s && *before != device) s = taken(cudaSetDevice(device));
    return s;
}

/* To be on `device` until leave_device(). After a failure the thread is where it was. */
PRUNED status_t enter_device(int device, int *before) {
    const status_t s = ready();
    return s ? s : enter_anyway(device, before);
}

PRUNED status_t leave_device(int device, int before) { return before == device ? 0 : taken(cudaSetDevice(before)); }

template <class WORK> static status_t on_device(int device, const WORK &work) {
    int before;
    status_t s = enter_device(device, &before);

    if (s) return s;
    s = work();
    return first_error(s, leave_device(device, before));
}

/* MEMOPT_CUDA_CURRENT_DEVICE becomes the number. */
PRUNED status_t device_of(int *device) {
    status_t s = ready();
    int count = 0;

    if (s) return s;
    if (*device == MEMOPT_CUDA_CURRENT_DEVICE) return taken(cudaGetDevice(device));
    s = taken(cudaGetDeviceCount(&count));
    if (s) return s;
    return *device < 0 || *device >= count ? MEMOPT_ERR_ARGUMENT : 0;
}

PUBLIC status_t api::memopt_cuda_memory_available(int device, size_t *free_bytes, size_t *total_bytes) {
    size_t left = 0;
    size_t total = 0;
    status_t s = device_of(&device);

    if (!s) s = on_device(device, [&] { return taken(cudaMemGetInfo(&left, &total)); });
    if (s) return s;
    if (free_bytes) *free_bytes = left;
    if (total_bytes) *total_bytes = total;
    return 0;
}

/* -- sources: what all of them share -- */

/* Of a host whatever is called here: its files are not. */
PRUNED memopt_status host_of(const memopt_host *host, memopt_host *out) {
    memopt_i_checks c = memopt_i_checks_begin(NULL, NULL);

    return memopt_i_host_resolve(&c, host, out) ? c.status : MEMOPT_OK;
}

PRUNED memopt_cuda_memory *memory_of(memopt_source *s) { return (memopt_cuda_memory *)s->user; }

/* Writes down why, and says it in words that arenas and heaps know. We are on the device. */
PRUNED memopt_status memory_status(memopt_cuda_memory *m, status_t status) {
    size_t total;

    if (!status) return MEMOPT_OK;
    m->status = status;
    m->free_bytes = 0;
    if (memopt_cuda_to_status(status) == MEMOPT_ERR_MEMORY) /* of our own: it cannot be told any better */
        (void)taken(cudaMemGetInfo(&m->free_bytes, &total));
    return memopt_cuda_to_status(status);
}

PRUNED status_t settle(const memopt_cuda_memory *m, status_t status, int may_stay) {
    if (status || (may_stay && m->no_wait)) return status;
    return taken(cudaStreamSynchronize(m->stream));
}

/* What zero and the copies have in common: `work` on the device, and the wait for it. */
typedef status_t work_fn(const memopt_cuda_memory *m, void *to, const void *from, size_t bytes);

PRUNED memopt_status source_work(memopt_source *source, work_fn *work, void *to,
                                 const void *from, size_t bytes, int may_stay) {
    memopt_cuda_memory *m = memory_of(source);

    if (!bytes) return MEMOPT_OK;
    return memory_status(m, on_device(m->device, [&] { return settle(m, work(m, to, from, bytes), may_stay); }));
}

PRUNED status_t work_zero(const memopt_cuda_memory *m, void *start, const void *, size_t bytes) {
    return taken(cudaMemsetAsync(start, 0, bytes, m->stream));
}

PRUNED memopt_status source_zero(memopt_source *source, void *start, size_t bytes) {
    return source_work(source, work_zero, start, NULL, bytes, 1);
}

/* Over the bus the runtime finds out itself where each side lies. */
PRUNED status_t work_across(const memopt_cuda_memory *m, void *to, const void *from, size_t bytes) {
    return taken(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, m->stream));
}

PRUNED memopt_status source_across(memopt_source *source, void *to, const void *from, size_t bytes) {
    return source_work(source, work_across, to, from, bytes, 0);
}

/* Bytes that overlap where they are going: cudaMemcpy must not. Pieces as long as the distance do not overlap; below
   64 KiB that would be too many, so one block of threads goes through a tile at a time: all read, then all write. What
   a tile writes lies on the side of the tiles that were read before it, so the next one need not wait. */
#define MEMOPT_I_CUDA_MOVE_THREADS 1024
#define MEMOPT_I_CUDA_MOVE_EACH    8
#define MEMOPT_I_CUDA_MOVE_TILE    ((size_t)MEMOPT_I_CUDA_MOVE_THREADS * MEMOPT_I_CUDA_MOVE_EACH)

PRUNED __global__ void __launch_bounds__(MEMOPT_I_CUDA_MOVE_THREADS)
move_kernel(unsigned char *to, const unsigned char *from, size_t bytes, int upwards) {
    const size_t tiles = (bytes + MEMOPT_I_CUDA_MOVE_TILE - 1) / MEMOPT_I_CUDA_MOVE_TILE;
    unsigned char byte[MEMOPT_I_CUDA_MOVE_EACH];

    for (size_t tile = 0; tile < tiles; ++tile) { /* bytes that go up are moved from the last one on */
        const size_t at = (upwards ? tiles - 1 - tile : tile) * MEMOPT_I_CUDA_MOVE_TILE + threadIdx.x;

        for (int k = 0; k < MEMOPT_I_CUDA_MOVE_EACH; ++k) {
            const size_t i = at + (size_t)k * MEMOPT_I_CUDA_MOVE_THREADS;
            byte[k] = i < bytes ? from[i] : (unsigned char)0;
        }
        __syncthreads(); /* all of the tile has been read */
        for (int k = 0; k < MEMOPT_I_CUDA_MOVE_EACH; ++k) {
            const size_t i = at + (size_t)k * MEMOPT_I_CUDA_MOVE_THREADS;
            if (i < bytes) to[i] = byte[k];
        }
    }
}

#define MEMOPT_I_CUDA_MOVE_PIECE ((size_t)64 << 10)

PRUNED status_t work_move(const memopt_cuda_memory *m, void *there, const void *here, size_t bytes) {
    unsigned char *const to = (unsigned char *)there;
    const unsigned char *const from = (const unsigned char *)here;
    const uintptr_t a = (uintptr_t)to;
    const uintptr_t b = (uintptr_t)from;
    const cudaStream_t stream = m->stream;
    const size_t apart = a > b ? a - b : b - a;
    size_t done = 0;
    size_t n;
    status_t s = 0;

    if (!apart) return 0;
    if (apart < bytes && apart < MEMOPT_I_CUDA_MOVE_PIECE)
        return CU_RUN(move_kernel<>, 1, MEMOPT_I_CUDA_MOVE_THREADS, 0, stream, to, from, bytes, a > b);
    for (; done < bytes && !s; done += n) {
        n = memopt_i_min(apart, bytes - done);
        const size_t at = a > b ? bytes - done - n : done;
        s = taken(cudaMemcpyAsync(to + at, from + at, n, cudaMemcpyDefault, stream));
    }
    return s;
}

PRUNED memopt_status source_copy(memopt_source *source, void *to, const void *from, size_t bytes) {
    return source_work(source, work_move, to, from, bytes, 1);
}

/* What a source is made of; the rest is filled in by its kind. */
PRUNED status_t source_of(int device, memopt_cuda_memory *memory, memopt_cuda_memory *m, memopt_source *s) {
    status_t status;
    size_t total = 0;

    memset(m, 0, sizeof *m);
    memset(s, 0, sizeof *s);
    if (!memory) return MEMOPT_CUDA_ERR_NULL;
    status = device_of(&device);
    if (!status) status = memopt_cuda_memory_available(device, NULL, &total);
    if (status) return status;
    m->device = device;
    s->zero_fn = source_zero;
    s->copy_fn = source_copy;
    s->copy_in_fn = s->copy_out_fn = source_across;
    s->granularity = 1;
    s->base_alignment = s->alignment = MEMOPT_I_CUDA_ALIGN;
    s->capacity = memopt_i_align_down(total, MEMOPT_I_CUDA_ALIGN);
    s->kind = MEMOPT_SOURCE_DEVICE;
    s->user = memory;
    return 0;
}

/* -- one call a reservation: device, pinned, managed -- */

typedef cudaError_t get_fn(memopt_cuda_memory *m, size_t bytes, void **block);
typedef cudaError_t give_fn(void *block);

template <get_fn *GET, give_fn *GIVE>
static memopt_status block_reserve(memopt_source *source, size_t bytes, void **base) {
    memopt_cuda_memory *m = memory_of(source);
    void *block = NULL;
    memopt_status plain = MEMOPT_OK;
    const status_t s = on_device(m->device, [&] {
        status_t got = taken(GET(m, bytes, &block));

        if (!got && pointer(block, source->base_alignment)) got = MEMOPT_ERR_DEVICE;
        plain = memory_status(m, got); /* here, where the free bytes are those of the device */
        return got;
    });

    if (s) {
        if (block) (void)taken(GIVE(block));
        return plain ? plain : memory_status(m, s);
    }
    *base = block;
    return MEMOPT_OK;
}

/* Frees whatever happens. An error that was pending before stays, unless a failure of ours has taken its place. */
template <give_fn *GIVE> static void block_release(memopt_source *source, void *base, size_t bytes) {
    memopt_cuda_memory *m = memory_of(source);
    int before;
    status_t s, t;

    (void)bytes;
    s = enter_anyway(m->device, &before);
    t = taken(cudaDeviceSynchronize());
    t = first_error(t, taken(GIVE(base)));
    s = first_error(first_error(s, t), leave_device(m->device, before));
    if (s) m->status = s;
}

PRUNED cudaError_t device_get(memopt_cuda_memory *m, size_t bytes, void **block) {
    (void)m;
    return cudaMalloc(block, bytes);
}

PRUNED cudaError_t device_give(void *block) { return cudaFree(block); }

PUBLIC status_t api::memopt_cuda_source_malloc(int device, memopt_cuda_memory *memory, memopt_source *out) {
    memopt_cuda_memory m;
    memopt_source s;
    status_t status = out ? source_of(device, memory, &m, &s) : MEMOPT_CUDA_ERR_NULL;

    if (status) return status;
    s.reserve_fn = block_reserve<device_get<>, device_give<> >;
    s.release_fn = block_release<device_give<> >;
    *memory = m;
    *out = s;
    return 0;
}

/* Pinned: the CPU does it all, once the stream has come so far. Portable: pinned for every device. */
PRUNED cudaError_t pinned_get(memopt_cuda_memory *m, size_t bytes, void **block) {
    (void)m;
    return cudaHostAlloc(block, bytes, cudaHostAllocPortable);
}

PRUNED cudaError_t pinned_give(void *block) { return cudaFreeHost(block); }

PRUNED memopt_status pinned_ready(memopt_source *source) {
    memopt_cuda_memory *m = memory_of(source);

    return memory_status(m, on_device(m->device, [&] { return settle(m, 0, 0); }));
}

PRUNED memopt_status pinned_zero(memopt_source *source, void *start, size_t bytes) {
    const memopt_status status = pinned_ready(source);
    return status ? status : memopt_i_host_zero(source, start, bytes);
}

PRUNED memopt_status pinned_copy(memopt_source *source, void *to, const void *from, size_t bytes) {
    const memopt_status status = pinned_ready(source);
    return status ? status : memopt_i_host_copy(source, to, from, bytes);
}

PUBLIC status_t api::memopt_cuda_source_pinned(int device, memopt_cuda_memory *memory, memopt_source *out) {
    memopt_cuda_memory m;
    memopt_source s;
    status_t status = out ? source_of(device, memory, &m, &s) : MEMOPT_CUDA_ERR_NULL;

    if (status) return status;
    s.reserve_fn = block_reserve<pinned_get<>, pinned_give<> >;
    s.release_fn = block_release<pinned_give<> >;
    s.zero_fn = pinned_zero;
    s.copy_in_fn = s.copy_out_fn = s.copy_fn = pinned_copy;
    s.capacity = SIZE_MAX / 2;
    s.host_visible = 1;
    s.kind = MEMOPT_SOURCE_PINNED;
    *memory = m;
    *out = s;
    return 0;
}

/* Managed. CUDA 13 says where with a struct, CUDA 12 with a number. Where CPU and device cannot use it at once
   (Windows), there is no advice to be given: the driver moves all of it at every launch. */
PRUNED cudaError_t prefer(const void *block, size_t bytes, int device) {
#if CUDART_VERSION >= 13000
    struct cudaMemLocation where;

    memset(&where, 0, sizeof where);
    where.type = cudaMemLocationTypeDevice;
    where.id = device;
    return cudaMemAdvise(block, bytes, cudaMemAdviseSetPreferredLocation, where);
#else
    return cudaMemAdvise(block, bytes, cudaMemAdviseSetPreferredLocation, device);
#endif
}

PRUNED cudaError_t managed_get(memopt_cuda_memory *m, size_t bytes, void **block) {
    int concurrent = 0;
    cudaError_t e = cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, m->device);

    if (e == cudaSuccess) e = cudaMallocManaged(block, bytes, cudaMemAttachGlobal);
    if (e != cudaSuccess || !concurrent) return e;
    return prefer(*block, bytes, m->device); /* a block with an error is freed by who called */
}

PUBLIC status_t api::memopt_cuda_source_managed(int device, int host_visible, memopt_cuda_memory *memory,
                                                memopt_source *out) {
    memopt_cuda_memory m;
    memopt_source s;
    int managed = 0;
    status_t status = out ? source_of(device, memory, &m, &s) : MEMOPT_CUDA_ERR_NULL;

    if (!status && (host_visible & ~1)) status = MEMOPT_ERR_ARGUMENT;
    if (!status) status = taken(cudaDeviceGetAttribute(&managed, cudaDevAttrManagedMemory, m.device));
    if (!status && !managed) status = MEMOPT_ERR_UNSUPPORTED;
    if (status) return status;
    s.reserve_fn = block_reserve<managed_get<>, device_give<> >;
    s.release_fn = block_release<device_give<> >;
    s.capacity = SIZE_MAX / 2;
    s.host_visible = host_visible;
    *memory = m;
    *out = s;
    return 0;
}

/* -- growing: the driver's virtual memory -- */

/* The driver's functions by place in memory->driver; the last one is asked once and not kept. */
enum { DRIVER_RESERVE, DRIVER_FREE, DRIVER_CREATE, DRIVER_RELEASE,
       DRIVER_MAP, DRIVER_UNMAP, DRIVER_ACCESS, DRIVER_COUNT };

typedef CUresult (CUDAAPI *address_reserve_fn)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);

/* of ADDRESS_FREE and UNMAP */
typedef CUresult (CUDAAPI *range_fn)(CUdeviceptr, size_t);
typedef CUresult (CUDAAPI *create_fn)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                                      unsigned long long);
typedef CUresult (CUDAAPI *handle_fn)(CUmemGenericAllocationHandle);
typedef CUresult (CUDAAPI *map_fn)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
typedef CUresult (CUDAAPI *access_fn)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
typedef CUresult (CUDAAPI *granularity_fn)(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags);

PRUNED status_t driver_error(CUresult result) {
    return result == CUDA_SUCCESS ? 0 : MEMOPT_CUDA_BASE_DRIVER + (int)result;
}

/* By version: without it a newer runtime may give a function with other arguments. 10.2 is where they came in. */
PRUNED status_t symbol(const char *name, void **out) {
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    status_t s;

    *out = NULL;
#if CUDART_VERSION >= 12050
    s = taken(cudaGetDriverEntryPointByVersion(name, out, 10020, cudaEnableDefault, &found));
#else
    s = taken(cudaGetDriverEntryPoint(name, out, cudaEnableDefault, &found));
#endif
    if (s) return s;
    return found == cudaDriverEntryPointSuccess && *out ? 0 : MEMOPT_ERR_UNSUPPORTED;
}

PRUNED status_t symbols(void *functions[DRIVER_COUNT], void **granularity) {
    static const char *const names[DRIVER_COUNT] = { "cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate",
        "cuMemRelease", "cuMemMap", "cuMemUnmap", "cuMemSetAccess" };
    status_t s = symbol("cuMemGetAllocationGranularity", granularity);
    int i;

    for (i = 0; i < DRIVER_COUNT && !s; ++i) s = symbol(names[i], &functions[i]);
    return s;
}

PRUNED CUmemAllocationProp access_prop(int device) {
    CUmemAllocationProp prop;

    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    return prop;
}

PRUNED CUdeviceptr device_address(const void *p) { return (CUdeviceptr)(uintptr_t)p; }

/* A granule's memory. The handle is let go as soon as it is mapped: the mapping alone keeps the memory from then on, so
   that nothing is left to remember but which granules there are. */
PRUNED status_t map_one(memopt_cuda_memory *m, unsigned char *at) {
    const CUmemAllocationProp prop = access_prop(m->device);
    CUmemGenericAllocationHandle handle = 0;
    const CUdeviceptr to = device_address(at);
    status_t s, t;

    s = driver_error(((create_fn)m->driver[DRIVER_CREATE])(&handle, m->granularity, &prop, 0));
    if (s) return s;
    s = driver_error(((map_fn)m->driver[DRIVER_MAP])(to, m->granularity, 0, handle, 0));
    t = driver_error(((handle_fn)m->driver[DRIVER_RELEASE])(handle));
    if (!s && t) (void)((range_fn)m->driver[DRIVER_UNMAP])(to, m->granularity);
    return first_error(s, t);
}

PRUNED status_t unmap_one(memopt_cuda_memory *m, unsigned char *at) {
    return driver_error(((range_fn)m->driver[DRIVER_UNMAP])(device_address(at), m->granularity));
}

/* All of a range, or nothing. Memory that is mapped is not yet anybody's to use. */
PRUNED status_t map_handle(memopt_cuda_memory *m, unsigned char *start, size_t bytes) {
    CUmemAccessDesc access;
    size_t done = 0;
    status_t s = 0;

    while (done < bytes && !s) {
        s = map_one(m, start + done);
        if (!s) done += m->granularity;
    }
    memset(&access, 0, sizeof access);
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = m->device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (!s) s = driver_error(((access_fn)m->driver[DRIVER_ACCESS])(device_address(start), bytes, &access, 1));
    while (s && done) {
        done -= m->granularity;
        (void)unmap_one(m, start + done);
    }
    return s;
}

/* Reservations: which granules are there is asked only by release, which is told nothing. */
typedef struct range { /* a byte for each granule behind it */
    struct range *next;
    unsigned char *base;
    size_t bytes, memory;
} range;

PRUNED unsigned char *granules(range *r) { return (unsigned char *)(r + 1); }

PRUNED range *range_of(const memopt_cuda_memory *m, const void *address) {
    range *r = (range *)m->ranges;
    while (r && (uintptr_t)address - (uintptr_t)r->base >= r->bytes) r = r->next;
    return r;
}

PRUNED void set_granules(memopt_cuda_memory *m, unsigned char *start, size_t bytes, int there) {
    range *r = range_of(m, start);
    if (r) memset(granules(r) + (size_t)(start - r->base) / m->granularity, there, bytes / m->granularity);
}

PRUNED memopt_status pages_commit(memopt_source *source, void *start, size_t bytes) {
    memopt_cuda_memory *m = memory_of(source);
    int before;
    memopt_status plain;
    status_t s = enter_device(m->device, &before);

    if (s) return memory_status(m, s);
    s = map_handle(m, (unsigned char *)start, bytes);
    if (!s) set_granules(m, (unsigned char *)start, bytes, 1);
    plain = memory_status(m, s);
    s = leave_device(m->device, before);
    if (s) m->status = s; /* the memory is there all the same */
    return plain;
}

/* Where a granule cannot go, those before it come back, so that the range is as it was but for what was in it. */
PRUNED memopt_status pages_decommit(memopt_source *source, void *start, size_t bytes) {
    memopt_cuda_memory *m = memory_of(source);
    unsigned char *p = (unsigned char *)start;
    size_t done = 0;
    int before;
    memopt_status plain;
    status_t s = enter_device(m->device, &before);

    if (s) return memory_status(m, s);
    s = taken(cudaDeviceSynchronize());
    for (; done < bytes && !s; done += s ? 0 : m->granularity) s = unmap_one(m, p + done);
    if (!s) set_granules(m, p, bytes, 0);
    else if (done && map_handle(m, p, done)) set_granules(m, p, done, 0);
    plain = memory_status(m, s);
    s = leave_device(m->device, before);
    if (s) m->status = s; /* the memory is gone all the same */
    return plain;
}

PRUNED memopt_status pages_reserve(memopt_source *source, size_t bytes, void **base) {
    memopt_cuda_memory *m = memory_of(source);
    range *r;
    CUdeviceptr at = 0;
    const size_t memory = sizeof *r + bytes / m->granularity;
    status_t s = ready();

    if (s) return memory_status(m, s);
    r = (range *)memopt_i_alloc(&source->host, memory, MEMOPT_I_HOST_ALIGN);
    s = !r ? (status_t)MEMOPT_ERR_MEMORY : on_device(m->device, [&] {
        return driver_error(((address_reserve_fn)m->driver[DRIVER_RESERVE])(&at, bytes, source->base_alignment, 0, 0));
    });
    if (s) {
        if (at) (void)((range_fn)m->driver[DRIVER_FREE])(at, bytes);
        if (r) memopt_i_free(&source->host, r, memory, MEMOPT_I_HOST_ALIGN);
        return memory_status(m, s);
    }
    memset(r, 0, memory);
    r->base = (unsigned char *)(uintptr_t)at;
    r->bytes = bytes;
    r->memory = memory;
    r->next = (range *)m->ranges;
    m->ranges = r;
    *base = r->base;
    return MEMOPT_OK;
}

PRUNED void pages_release(memopt_source *source, void *base, size_t bytes) {
    memopt_cuda_memory *m = memory_of(source);
    range *r = range_of(m, base);
    range **link = (range **)(void *)&m->ranges;
    size_t i;
    int before;
    status_t s;

    if (!r) return; /* none of ours */
    s = enter_anyway(m->device, &before);
    s = first_error(s, taken(cudaDeviceSynchronize()));
    for (i = 0; i < bytes / m->granularity; ++i)
        if (granules(r)[i]) s = first_error(s, unmap_one(m, r->base + i * m->granularity));
    s = first_error(s, driver_error(((range_fn)m->driver[DRIVER_FREE])(device_address(base), bytes)));
    s = first_error(s, leave_device(m->device, before));
    if (s) m->status = s;
    while (*link != r) link = &(*link)->next;
    *link = r->next;
    memopt_i_free(&source->host, r, r->memory, MEMOPT_I_HOST_ALIGN);
}

PUBLIC status_t api::memopt_cuda_source_pages(int device, size_t granularity, const memopt_host *host,
                                              memopt_cuda_memory *memory, memopt_source *out) {
    memopt_cuda_memory m;
    memopt_source s;
    void *get_granularity = NULL;
    size_t least = 0;
    CUmemAllocationProp prop;
    status_t status = out ? source_of(device, memory, &m, &s) : MEMOPT_CUDA_ERR_NULL;

    if (status) return status;
    if (host_of(host, &s.host)) return MEMOPT_ERR_ARGUMENT;
    prop = access_prop(m.device);
    status = symbols(m.driver, &get_granularity);
    if (!status) status = driver_error(((granularity_fn)get_granularity)(&least, &prop,
        CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    if (status) return status;
    if (!memopt_i_power_of_two(least)) return MEMOPT_ERR_UNSUPPORTED;
    m.granularity = granularity ? granularity : memopt_i_max(least, MEMOPT_I_CUDA_GRANULARITY);
    if (!memopt_i_power_of_two(m.granularity) || m.granularity < least) return MEMOPT_ERR_ARGUMENT;
    s.reserve_fn = pages_reserve;
    s.release_fn = pages_release;
    s.commit_fn = pages_commit;
    s.decommit_fn = pages_decommit;
    s.granularity = m.granularity;
    s.base_alignment = least;
    s.capacity = memopt_i_align_down(s.capacity, m.granularity);
    if (!s.capacity) return MEMOPT_ERR_ARGUMENT; /* a granule larger than the device */
    *memory = m;
    *out = s;
    return 0;
}

/* -- transfers -- */

enum { UP, DOWN, TRANSFER_TILES = 3 };

typedef struct transfer_bucket {
    unsigned char *pinned;
    cudaEvent_t event; /* behind its last crossing */
    unsigned char *to; /* on its way out: where the bytes belong; else NULL */
    size_t bytes;
    uint64_t call;     /* of which call */
} transfer_bucket;

struct api::memopt_cuda_transfer {
    int            device, owns, booked;
    size_t         bucket_bytes, memory;
    unsigned char *pinned;
    cudaStream_t   streams[2];
    cudaEvent_t    came, went; /* in the caller's stream before a copy; in ours behind it */
    cudaEvent_t    left[TRANSFER_TILES]; /* behind what a tile of an offloaded step has sent down */
    transfer_bucket buckets[2][2]; /* they take turns, so the next one is the one that waits longest */
    unsigned       next[2];
    uint64_t       call;
    memopt_ledger *ledger;
    memopt_host    host;
};

PUBLIC status_t api::memopt_cuda_transfer_bytes(const memopt_cuda_transfer_desc *desc, size_t *bytes) {
    size_t bucket = desc && desc->bucket_bytes ? desc->bucket_bytes : MEMOPT_I_CUDA_BUCKET;

    if (!bytes) return MEMOPT_CUDA_ERR_NULL;
    if (memopt_i_align_up(bucket, MEMOPT_I_CUDA_ALIGN, &bucket) || memopt_i_mul(bucket, 4, &bucket))
        return MEMOPT_ERR_OVERFLOW;
    *bytes = bucket;
    return 0;
}

/* `stream` goes on only when `event` has come to pass; an event that was never recorded is none. */
PRUNED status_t await(cudaStream_t stream, cudaEvent_t event) { return taken(cudaStreamWaitEvent(stream, event, 0)); }

/* One of ours starts behind all that the caller's was given so far. */
PRUNED status_t behind(memopt_cuda_transfer *t, int way, cudaStream_t stream) {
    const status_t s = taken(cudaEventRecord(t->came, stream));
    return s ? s : await(t->streams[way], t->came);
}

/* And the other way round. */
PRUNED status_t before_stream(memopt_cuda_transfer *t, int way, cudaStream_t stream) {
    const status_t s = taken(cudaEventRecord(t->went, t->streams[way]));
    return s ? s : await(stream, t->went);
}

/* The CPU waits for a bucket's crossing, and brings what came out to its place. */
PRUNED status_t empty(transfer_bucket *b) {
    const status_t s = taken(cudaEventSynchronize(b->event));

    if (s) return s;
    if (b->to) memcpy(b->to, b->pinned, b->bytes);
    b->to = NULL;
    return 0;
}

PRUNED status_t empty_all(memopt_cuda_transfer *t) { /* the oldest first */
    const unsigned next = t->next[DOWN];
    transfer_bucket *b = t->buckets[DOWN];
    const status_t s = b[next].to ? empty(&b[next]) : 0;
    return s || !b[!next].to ? s : empty(&b[!next]);
}

/* A call that copies one way: after a failure nothing of it is on its way when we return. */
template <class WORK> static status_t on_stream(memopt_cuda_transfer *t, int way, const WORK &work) {
    int before;
    status_t s = enter_device(t->device, &before);

    if (s) return s;
    s = work(t->streams[way]);
    s = first_error(s, leave_device(t->device, before));
    if (s) (void)taken(cudaStreamSynchronize(t->streams[way]));
    return s;
}

/* What a call has sent down does not arrive any more. */
PRUNED void forget_call(memopt_cuda_transfer *t) {
    int i;

    for (i = 0; i < 2; ++i)
        if (t->buckets[DOWN][i].call == t->call) t->buckets[DOWN][i].to = NULL;
}

/* A piece of at most a bucket, either way. */
PRUNED status_t piece(memopt_cuda_transfer *t, int way, unsigned char *to, const unsigned char *from, size_t n) {
    transfer_bucket *b = &t->buckets[way][t->next[way]];
    status_t s = empty(b);

    if (s) return s;
    if (way == UP) {
        memcpy(b->pinned, from, n);
        s = taken(cudaMemcpyAsync(to, b->pinned, n, cudaMemcpyHostToDevice, t->streams[way]));
    } else s = taken(cudaMemcpyAsync(b->pinned, from, n, cudaMemcpyDeviceToHost, t->streams[way]));
    if (!s) s = taken(cudaEventRecord(b->event, t->streams[way]));
    if (s) return s;
    b->to = way == UP ? NULL : to;
    b->bytes = n;
    b->call = t->call;
    t->next[way] = !t->next[way];
    return 0;
}

PRUNED status_t cross(memopt_cuda_transfer *t, int way, void *to, const void *from, size_t bytes, cudaStream_t stream) {
    status_t all;

    if (!t || (bytes && (!to || !from))) return MEMOPT_CUDA_ERR_NULL;
    ++t->call;
    all = on_stream(t, way, [&](cudaStream_t) {
        status_t s = bytes ? behind(t, way, stream) : 0;
        size_t done = 0, n;

        for (; done < bytes && !s; done += n) {
            n = memopt_i_min(t->bucket_bytes, bytes - done);
            s = piece(t, way, (unsigned char *)to + done, (const unsigned char *)from + done, n);
        }
        return bytes && !s ? before_stream(t, way, stream) : s;
    });
    if (all) forget_call(t);
    return all;
}

PUBLIC status_t api::memopt_cuda_transfer_in(memopt_cuda_transfer *transfer, void *d_to, const void *from, size_t bytes,
                                             cudaStream_t stream) {
    return cross(transfer, UP, d_to, from, bytes, stream);
}

PUBLIC status_t api::memopt_cuda_transfer_out(memopt_cuda_transfer *transfer, void *to, const void *d_from,
                                              size_t bytes, cudaStream_t stream) {
    return cross(transfer, DOWN, to, d_from, bytes, stream);
}

PRUNED status_t wait(memopt_cuda_transfer *t) {
    status_t s = empty_all(t);
    int way;

    for (way = 0; way < 2; ++way) s = first_error(s, taken(cudaStreamSynchronize(t->streams[way])));
    return s;
}

PUBLIC status_t api::memopt_cuda_transfer_wait(memopt_cuda_transfer *transfer) {
    if (!transfer) return MEMOPT_CUDA_ERR_NULL;
    return on_device(transfer->device, [&] { return wait(transfer); });
}

PUBLIC status_t api::memopt_cuda_transfer_prefetch(memopt_cuda_transfer *transfer, void *d_to, const void *from,
                                                   size_t bytes, cudaStream_t stream) {
    if (!transfer || (bytes && (!d_to || !from))) return MEMOPT_CUDA_ERR_NULL;
    return on_stream(transfer, UP, [&](cudaStream_t up) {
        const status_t s = bytes ? behind(transfer, UP, stream) : 0;

        return bytes && !s ? taken(cudaMemcpyAsync(d_to, from, bytes, cudaMemcpyHostToDevice, up)) : s;
    });
}

PUBLIC status_t api::memopt_cuda_transfer_join(memopt_cuda_transfer *transfer, cudaStream_t stream) {
    if (!transfer) return MEMOPT_CUDA_ERR_NULL;
    return on_device(transfer->device, [&] { return before_stream(transfer, UP, stream); });
}

/* Frees what is there: also after half a creation. */
PRUNED status_t transfer_close(memopt_cuda_transfer *t) {
    status_t s = 0;
    int way, i;

    for (way = 0; way < 2; ++way) {
        for (i = 0; i < 2; ++i)
            if (t->buckets[way][i].event) s = first_error(s, taken(cudaEventDestroy(t->buckets[way][i].event)));
        if (t->streams[way]) s = first_error(s, taken(cudaStreamDestroy(t->streams[way])));
    }
    for (i = 0; i < TRANSFER_TILES; ++i)
        if (t->left[i]) s = first_error(s, taken(cudaEventDestroy(t->left[i])));
    if (t->came) s = first_error(s, taken(cudaEventDestroy(t->came)));
    if (t->went) s = first_error(s, taken(cudaEventDestroy(t->went)));
    if (t->booked) (void)memopt_ledger_remove(t->ledger, MEMOPT_TAG_COMMUNICATION, 4 * t->bucket_bytes, t->pinned);
    if (t->owns && t->pinned) s = first_error(s, taken(cudaFreeHost(t->pinned)));
    return s;
}

/* Streams that do not wait for the default stream, and events without clocks: both wait only where they are told to. */
PRUNED status_t event_create(cudaEvent_t *event) {
    return taken(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
}

PRUNED status_t transfer_open(memopt_cuda_transfer *t) {
    status_t s = event_create(&t->came);
    void *block = NULL;
    int way, i;

    if (!s) s = event_create(&t->went);
    for (i = 0; i < TRANSFER_TILES && !s; ++i) s = event_create(&t->left[i]);
    for (way = 0; way < 2 && !s; ++way) {
        s = taken(cudaStreamCreateWithFlags(&t->streams[way], cudaStreamNonBlocking));
        for (i = 0; i < 2 && !s; ++i) s = event_create(&t->buckets[way][i].event);
    }
    if (!s && t->owns) {
        s = taken(cudaHostAlloc(&block, 4 * t->bucket_bytes, cudaHostAllocPortable));
        t->pinned = (unsigned char *)block;
        if (!s)
            s = memopt_ledger_add(t->ledger, MEMOPT_TAG_COMMUNICATION, 4 * t->bucket_bytes, block, "transfer buckets");
        t->booked = !s;
    }
    for (i = 0; i < 4 && !s; ++i) t->buckets[i >> 1][i & 1].pinned = t->pinned + (size_t)i * t->bucket_bytes;
    return s;
}

PUBLIC status_t api::memopt_cuda_transfer_create(int device, const memopt_cuda_transfer_desc *desc,
                                                 memopt_cuda_transfer **out) {
    memopt_cuda_transfer_desc d;
    memopt_cuda_transfer *t;
    memopt_host host;
    size_t bytes;
    status_t s;

    if (!out) return MEMOPT_CUDA_ERR_NULL;
    memset(&d, 0, sizeof d);
    if (desc) d = *desc;
    s = memopt_cuda_transfer_bytes(&d, &bytes);
    if (!s) s = pointer_if(d.pinned, MEMOPT_I_CUDA_ALIGN);
    if (!s && host_of(d.host, &host)) s = MEMOPT_ERR_ARGUMENT;
    if (!s) s = device_of(&device);
    if (s) return s;
    t = (memopt_cuda_transfer *)memopt_i_alloc(&host, sizeof *t, MEMOPT_I_HOST_ALIGN);
    if (!t) return MEMOPT_ERR_MEMORY;
    memset(t, 0, sizeof *t);
    t->device = device;
    t->bucket_bytes = bytes / 4;
    t->memory = sizeof *t;
    t->pinned = (unsigned char *)d.pinned;
    t->owns = !d.pinned;
    t->ledger = d.ledger;
    t->host = host;
    s = on_device(t->device, [&] { return transfer_open(t); });
    if (s) {
        (void)transfer_close(t);
        memopt_i_free(&host, t, sizeof *t, MEMOPT_I_HOST_ALIGN);
        return s;
    }
    *out = t;
    return 0;
}

PUBLIC status_t api::memopt_cuda_transfer_destroy(memopt_cuda_transfer *transfer) {
    memopt_host host;
    int before;
    status_t s;

    if (!transfer) return 0;
    s = enter_anyway(transfer->device, &before);
    s = first_error(s, wait(transfer));
    s = first_error(s, transfer_close(transfer));
    s = first_error(s, leave_device(transfer->device, before));
    host = transfer->host; /* copied: it lies in what is freed */
    memopt_i_free(&host, transfer, transfer->memory, MEMOPT_I_HOST_ALIGN);
    return s;
}

#if MEMOPT_I_GROUPS & 0x14 /* for activations, ranks */
/* -- a store for tapes -- */

/* A slot's event stands behind the last copy into it or out of it, whichever way. So whoever comes next waits for it:
   the tape's stream before it uses the device's side again, and the other way's stream before it uses the slot. */
typedef struct store_slot {
    cudaEvent_t event;
    size_t value, bytes;
    uint64_t is_taken;
} store_slot;

struct api::memopt_cuda_store {
    memopt_cuda_transfer *transfer;
    memopt_source *source;
    memopt_ledger *ledger;
    cudaStream_t   stream;
    unsigned char *base;
    size_t slots, slot_bytes, bytes, memory;
    int    pinned;
    status_t status;
    memopt_host host;
    store_slot *slot;
};

PRUNED memopt_status store_keep_status(memopt_cuda_store *store, status_t s) {
    if (s) store->status = s;
    return memopt_cuda_to_status(s);
}

/* The store's block: itself, and its slots. */
PRUNED store_slot *store_lay_out(memopt_carver *c, size_t slots) {
    (void)memopt_carve(c, 1, sizeof(memopt_cuda_store), 16);
    return (store_slot *)memopt_carve(c, slots, sizeof(store_slot), 16);
}

PRUNED store_slot *slot_of(memopt_cuda_store *store, size_t value, int or_free) {
    store_slot *none = NULL;
    size_t i;

    for (i = 0; i < store->slots; ++i) {
        if (store->slot[i].is_taken && store->slot[i].value == value) return &store->slot[i];
        if (!none && !store->slot[i].is_taken) none = &store->slot[i];
    }
    return or_free ? none : NULL;
}

PRUNED unsigned char *slot_at(const memopt_cuda_store *store, const store_slot *slot) {
    return store->base + (size_t)(slot - store->slot) * store->slot_bytes;
}

/* A copy between a pinned slot and the device, beside the computing; nobody waits here. */
PRUNED status_t store_cross(memopt_cuda_store *store, store_slot *slot, int way, void *to, const void *from,
                            size_t bytes) {
    const cudaMemcpyKind kind = way == UP ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;

    return on_stream(store->transfer, way, [&](cudaStream_t stream) {
        status_t s = behind(store->transfer, way, store->stream);

        if (!s) s = await(stream, slot->event);
        if (!s) s = taken(cudaMemcpyAsync(to, from, bytes, kind, stream));
        return s ? s : taken(cudaEventRecord(slot->event, stream));
    });
}

PRUNED void slot_free(memopt_cuda_store *store, store_slot *slot) {
    (void)memopt_ledger_remove(store->ledger, MEMOPT_TAG_CHECKPOINTS, slot->bytes, slot_at(store, slot));
    slot->is_taken = 0;
}

PRUNED memopt_status store_write(void *user, size_t value, const void *bytes, size_t count) {
    memopt_cuda_store *store = (memopt_cuda_store *)user;
    store_slot *slot = slot_of(store, value, 1);
    status_t s;
    unsigned char *at;

    if (!slot || count > store->slot_bytes) return store_keep_status(store, MEMOPT_ERR_MEMORY);
    at = slot_at(store, slot);
    if (slot->is_taken) slot_free(store, slot); /* written again */
    s = memopt_ledger_add(store->ledger, MEMOPT_TAG_CHECKPOINTS, count, at, "stored value");
    if (s) return store_keep_status(store, s);
    slot->is_taken = 1;
    slot->value = value;
    slot->bytes = count;
    s = store->pinned ? store_cross(store, slot, DOWN, at, bytes, count)
                      : memopt_cuda_transfer_out(store->transfer, at, bytes, count, store->stream);
    if (s) slot_free(store, slot);
    return store_keep_status(store, s);
}

PRUNED memopt_status store_read(void *user, size_t value, void *bytes, size_t count) {
    memopt_cuda_store *store = (memopt_cuda_store *)user;
    store_slot *slot = slot_of(store, value, 0);
    status_t s;
    unsigned char *at;

    if (!slot || count != slot->bytes) return store_keep_status(store, MEMOPT_ERR_STATE);
    at = slot_at(store, slot);
    if (store->pinned) s = store_cross(store, slot, UP, bytes, at, count);
    else {
        s = ready();
        if (!s) s = empty_all(store->transfer); /* it may not have arrived */
        if (!s) s = memopt_cuda_transfer_in(store->transfer, bytes, at, count, store->stream);
    }
    return store_keep_status(store, s);
}

/* The stream waits, not the CPU: what the tape does next with the bytes is queued there. Through buckets this was done
   by the transfer itself. */
PRUNED status_t store_join(memopt_cuda_store *store, const store_slot *slot) {
    int before;
    status_t s;

    if (!store->pinned) return 0;
    s = enter_anyway(store->transfer->device, &before);
    if (s) return s;
    s = await(store->stream, slot->event);
    return first_error(s, leave_device(store->transfer->device, before));
}

PRUNED memopt_status store_wait(void *user, size_t value) {
    memopt_cuda_store *store = (memopt_cuda_store *)user;
    status_t s = ready();
    store_slot *slot = slot_of(store, value, 0);

    if (!s) s = slot ? store_join(store, slot) : MEMOPT_ERR_STATE;
    return store_keep_status(store, s);
}

/* Also after a failed pass, where nobody has waited: the tape's memory is about to be somebody else's. */
PRUNED void store_forget(void *user, size_t value) {
    memopt_cuda_store *store = (memopt_cuda_store *)user;
    store_slot *slot = slot_of(store, value, 0);

    if (!slot) return;
    (void)store_keep_status(store, store_join(store, slot));
    slot_free(store, slot);
}

PUBLIC status_t api::memopt_cuda_store_bytes(const memopt_cuda_store_desc *desc, size_t *bytes) {
    memopt_i_checks c = memopt_i_checks_begin(NULL, NULL);
    size_t slot, all;

    if (!desc || !desc->source || !bytes) return MEMOPT_CUDA_ERR_NULL;
    if (!desc->slots || !desc->slot_bytes || desc->slots > MEMOPT_CHAIN_MAX) return MEMOPT_ERR_ARGUMENT;
    if (memopt_i_source_check(&c, desc->source)) return (status_t)c.status;
    if (memopt_i_align_up(desc->slot_bytes, MEMOPT_I_CUDA_ALIGN, &slot) || memopt_i_mul(slot, desc->slots, &all)
        || memopt_i_align_up(all, desc->source->granularity, &all)) return MEMOPT_ERR_OVERFLOW;
    *bytes = all;
    return 0;
}

/* Frees what is there: also after half a creation. */
PRUNED status_t store_close(memopt_cuda_store *store) {
    status_t s = 0;
    size_t i;
    memopt_host host = store->host;

    for (i = 0; i < store->slots; ++i) {
        if (store->slot[i].is_taken) slot_free(store, &store->slot[i]);
        if (store->slot[i].event) s = first_error(s, taken(cudaEventDestroy(store->slot[i].event)));
    }
    if (store->base) memopt_i_source_release(store->source, store->base, store->bytes, store->bytes);
    memopt_i_free(&host, store, store->memory, MEMOPT_I_HOST_ALIGN);
    return s;
}

PRUNED status_t store_open(memopt_cuda_store *store) {
    void *base = NULL;
    size_t i;
    status_t s = memopt_i_source_reserve(store->source, store->bytes, &base);

    if (s) return s;
    s = memopt_i_source_commit(store->source, base, store->bytes);
    if (s) {
        memopt_i_source_release(store->source, base, store->bytes, 0);
        return s;
    }
    store->base = (unsigned char *)base;
    for (i = 0; i < store->slots && store->pinned && !s; ++i) s = event_create(&store->slot[i].event);
    return s;
}

PUBLIC status_t api::memopt_cuda_store_create(const memopt_cuda_store_desc *desc, memopt_cuda_store **out,
                                              memopt_tape_store *table) {
    memopt_carver c = memopt_carver_begin(NULL);
    size_t bytes, memory;
    memopt_cuda_store *store;
    memopt_host host;
    status_t s;

    if (!desc || !desc->transfer || !out || !table) return MEMOPT_CUDA_ERR_NULL;
    s = memopt_cuda_store_bytes(desc, &bytes);
    if (s) return s;
    if (!desc->source->host_visible || host_of(desc->host, &host)) return MEMOPT_ERR_ARGUMENT;
    (void)store_lay_out(&c, desc->slots); /* MEMOPT_CHAIN_MAX of them at the most: it fits */
    memory = c.bytes;
    s = ready();
    if (s) return s;
    store = (memopt_cuda_store *)memopt_i_alloc(&host, memory, MEMOPT_I_HOST_ALIGN);
    if (!store) return MEMOPT_ERR_MEMORY;
    memset(store, 0, memory);
    store->transfer = desc->transfer;
    store->source = desc->source;
    store->ledger = desc->ledger;
    store->stream = desc->stream;
    store->host = host;
    store->memory = memory;
    store->slots = desc->slots;
    store->bytes = bytes;
    store->slot_bytes = memopt_i_align_down(desc->slot_bytes + MEMOPT_I_CUDA_ALIGN - 1, MEMOPT_I_CUDA_ALIGN);
    store->pinned = desc->source->kind == MEMOPT_SOURCE_PINNED;
    c = memopt_carver_begin(store);
    store->slot = store_lay_out(&c, desc->slots);
    s = on_device(desc->transfer->device, [&] { return store_open(store); });
    if (s) {
        (void)store_close(store);
        return s;
    }
    *out = store;
    table->write_fn = store_write;
    table->read_fn = store_read;
    table->wait_fn = store_wait;
    table->forget_fn = store_forget;
    table->user = store;
    return 0;
}

/* What could not be waited for does not arrive in the store's memory any more: the transfer goes on without it. */
PRUNED void store_forget_all(memopt_cuda_store *store) {
    transfer_bucket *const b = store->transfer->buckets[DOWN];
    int i;

    for (i = 0; i < 2; ++i)
        if (b[i].to && memopt_i_overlaps(b[i].to, b[i].bytes, store->base, store->bytes)) b[i].to = NULL;
}

PUBLIC status_t api::memopt_cuda_store_destroy(memopt_cuda_store *store) {
    int before, device;
    status_t s;

    if (!store) return 0;
    device = store->transfer->device;
    s = enter_anyway(device, &before);
    s = first_error(s, wait(store->transfer));
    store_forget_all(store);
    s = first_error(s, store_close(store));
    return first_error(s, leave_device(device, before));
}

PUBLIC status_t api::memopt_cuda_store_status(const memopt_cuda_store *store) {
    return store ? store->status : MEMOPT_CUDA_ERR_NULL;
}
#endif /* groups */

/* -- a clock -- */

PRUNED memopt_status clock_now(void *user, uint64_t *nanoseconds) {
    memopt_cuda_clock *clock = (memopt_cuda_clock *)user;
    const status_t s = on_device(clock->device, [&] { return taken(cudaStreamSynchronize(clock->stream)); });

    if (s) {
        clock->status = s;
        return MEMOPT_ERR_DEVICE;
    }
    return clock->host_clock.now_fn(clock->host_clock.user, nanoseconds);
}

PUBLIC status_t api::memopt_cuda_clock_make(int device, cudaStream_t stream, const memopt_host *host,
                                            memopt_cuda_clock *clock, memopt_clock *out) {
    memopt_host h;
    status_t s;

    if (!clock || !out) return MEMOPT_CUDA_ERR_NULL;
    if (host_of(host, &h)) return MEMOPT_ERR_ARGUMENT;
    s = device_of(&device);
    if (s) return s;
    clock->device = device;
    clock->stream = stream;
    clock->status = 0;
    clock->host_clock = h.clock;
    out->now_fn = clock_now;
    out->user = clock;
    return 0;
}

#if MEMOPT_I_GROUPS & 0x02 /* for numbers */
/* @section cuda_number : cuda_base api_cuda_number
   Conversions on the device: the bits of memopt.h at the speed of the memory.
   Problem    A conversion should cost what its bytes cost. At 4.8 TB/s and 1.75 GHz a card of 132 multiprocessors has
              time for 37 instructions an element where 6 bytes are moved, and for 31 where 5 are, half of them on the
              integer units. The definitions take 32 for e4m3, 60 with noise, and branch in each element.
   Idea       As in memopt.h: something without branches for four elements, one look whether they hold what it cannot
              do, and then the definition does these four. All of it is held to the definition's bits; three pieces of
              arithmetic do the work:
              Nearest  Adding a power of two that is 2^drop times the number's octave (or the smallest normal number's,
                       if that is more) rounds to the format's grid, ties to even, denormals included; what the sum's
                       bits have more than the power's are the code, exponent and all. One fused multiply-add and 5
                       integer instructions. Too large a number overflows into codes that are too large.
              Noise    code = the upper word of mantissa * 2^(32 - drop) + random: as random has 32 bits and the
                       product ends in zeros, the carry is that of the definition's sum, for any drop up to 31 bits;
                       where more would be dropped, the mantissa is cut off first, as the definition does.
              Back     A code, moved to where float32 has its exponent, times 2^112 (e4m3: 2^120): exact, denormals
                       included.
   Finite?    0 * x summed up over four elements is 0 or NaN: multiply-adds, which have nothing else to do, instead of
              comparisons. Back, the products are scaled first so that the codes of infinity and NaN, and no others,
              overflow.
   Ways       The definition branches in each element; without branches it is half the instructions, and four loads of
              a thread before its first store keep enough under way. Noise where `first` is a multiple of 32: a thread
              takes four elements and the four 16 further, which the same words serve; to shuffle words between threads
              would cost a shuffle for each that it saves.
   Stores     of 8-bit codes are 4 bytes a thread, 128 side by side in a warp. With noise they are 16 bytes here and
              16 there, the other half of the same 32 following at once: the second-level cache puts them together.
   Random     A thread makes whole blocks of four values; Philox's products keep it at 13 integer instructions a value
              for 4 bytes. Normal numbers use fmaf, single products and an IEEE root, none of which a compiler may
              change, so they are the same bits as well; they wait for arithmetic, not for memory.
   Trap       2^33 indices on, the noise's keys change; a group of 32 never lies across. A row that ends inside a tile,
              and arrays that are not aligned, go one element a thread and load, side by side. */

enum {
    NUMBER_THREADS = 256,
    NUMBER_FOURS   = 4, /* groups of four that a thread has in flight */
    NUMBER_TILE    = NUMBER_THREADS * NUMBER_FOURS * 4
};

/* Four codes. */
struct four16 { uint32_t w[2]; };
struct four8 { uint32_t w[1]; };

/* What a format is stored in, and its numbers: bits of mantissa, float32's exponent of the smallest normal number, the
   largest number as a float32, the code of what is too large. */
template <int kind> struct format_of;

template <> struct format_of<MEMOPT_I_BF16> {
    typedef uint16_t one;
    typedef four16 four;
};

template <> struct format_of<MEMOPT_I_F16> {
    typedef uint16_t one;
    typedef four16 four;
    enum { bits = 10, lowest = 113, largest = 0x477fe000, over = 0x7c00 };
};

template <> struct format_of<MEMOPT_I_E4M3> {
    typedef uint8_t one;
    typedef four8 four;
    enum { bits = 3, lowest = 121, largest = 0x43e00000, over = 0x7f };
};

template <> struct format_of<MEMOPT_I_E5M2> {
    typedef uint8_t one;
    typedef four8 four;
    enum { bits = 2, lowest = 113, largest = 0x47600000, over = 0x7c };
};

/* The definitions. */
template <int kind> CU_DEVICE uint32_t code_for(uint32_t u, int saturate, int stochastic, uint32_t random) {
    if (kind == MEMOPT_I_BF16) return memopt_i_bf16_code(u, stochastic, random);
    if (kind == MEMOPT_I_F16) return memopt_i_f16_code(u, stochastic, random);
    if (kind == MEMOPT_I_E4M3) return memopt_i_e4m3_code(u, saturate, stochastic, random);
    return memopt_i_e5m2_code(u, saturate, stochastic, random);
}

/* Of four, rarely: compiled once. */
template <int kind>
CU_DEVICE void codes_for(uint32_t *c, const uint32_t *u, int saturate, int stochastic, const uint32_t *random) {
    uint32_t from[4] = { u[0], u[1], u[2], u[3] };
    uint32_t by[4] = { random[0], random[1], random[2], random[3] };

    CU_ROLLED for (int k = 0; k < 4; ++k) {
        c[0] = code_for<kind>(from[0], saturate, stochastic, by[0]);
        take_turns<4>(c);
        take_turns<4>(from);
        take_turns<4>(by);
    }
}

template <int kind> CU_DEVICE float value_of(uint32_t code) {
    if (kind == MEMOPT_I_BF16) return memopt_from_bf16((uint16_t)code);
    if (kind == MEMOPT_I_F16) return memopt_from_f16((uint16_t)code);
    if (kind == MEMOPT_I_E4M3) return memopt_from_e4m3((uint8_t)code);
    return memopt_from_e5m2((uint8_t)code);
}

/* Without a branch, and without the sign: not for NaN. */
template <int kind> CU_DEVICE uint32_t nearest_code(uint32_t u, int saturate) {
    typedef format_of<kind> f;
    const uint32_t drop = 23 - f::bits;
    const uint32_t below = (uint32_t)f::lowest << 23;
    const uint32_t exponent = u & 0x7f800000;
    const uint32_t octave = exponent > below ? exponent : below;
    const float sum = fmaf(memopt_i_float_of(octave), (float)(1 << drop), memopt_i_float_of(u & 0x7fffffff));
    const uint32_t code = memopt_i_bits_of(sum) - octave + (octave >> drop) - (drop << 23)
                        - ((uint32_t)f::lowest << f::bits);
    const uint32_t over = (uint32_t)(f::over - saturate);

    return code < over ? code : over;
}

/* The same for magnitudes m up to the largest number. */
template <int kind> CU_DEVICE uint32_t dither(uint32_t m, uint32_t random) {
    typedef format_of<kind> f;
    const int least = f::lowest - f::bits - 32; /* from `least` down nothing is left */
    const int whole = f::lowest - f::bits - 8;
    const int e = (int)(m >> 23);
    const int exponent = e > least ? e : least;
    const int octave = exponent < f::lowest ? exponent : f::lowest;
    const int kept = octave > whole ? octave : whole; /* below, the lowest bits are cut off */
    const uint32_t mantissa = ((m & 0x7fffff) | 0x800000) >> (kept - octave);
    const uint32_t factor = 1u << (kept - whole + 1);
    const uint64_t sum = (uint64_t)mantissa * factor + random;

    return (uint32_t)(sum >> 32) + ((uint32_t)(exponent - octave) << f::bits);
}

/* A code, shifted to the left end of a word, as a float; wrong for infinity and NaN, which give 2^128 and more when
   multiplied with wide_limit. */
template <int kind> CU_DEVICE float widened(uint32_t word) {
    if (kind == MEMOPT_I_E4M3)
        return memopt_i_float_of((uint32_t)((int32_t)word >> 4) & 0x87f00000) * 1.32922799578e+36f;       /* 2^120 */
    return memopt_i_float_of((uint32_t)((int32_t)word >> 3) & (kind == MEMOPT_I_F16 ? 0x8fffe000 : 0x8fe00000))
         * 5.19229685853e+33f;                                                                            /* 2^112 */
}

template <int kind> CU_DEVICE float wide_limit(void) {
    return kind == MEMOPT_I_E4M3 ? 0.5625f * 1.32922799578e+36f : 5.19229685853e+33f;
}

/* The highest bytes of four words, side by side. */
CU_DEVICE uint32_t tops(const uint32_t *u) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(__byte_perm(u[0], u[1], 0x73), __byte_perm(u[2], u[3], 0x73), 0x5410);
#else
    return u[0] >> 24 | (u[1] >> 24) << 8 | (u[2] >> 24) << 16 | (u[3] & 0xff000000);
#endif
}

/* The nearest bf16 in the upper half; not for NaN. */
CU_DEVICE uint32_t bf16_upper(uint32_t u) { return u + 0x7fff + (u >> 16 & 1); }

/* The upper halves of four words, as four codes of 16 bits. */
CU_DEVICE void write_uppers(uint16_t *to, const uint32_t *c) {
    const uint32_t w[2] = { c[0] >> 16 | (c[1] & 0xffff0000), c[2] >> 16 | (c[3] & 0xffff0000) };
    write<2>(to, w);
}

/* Four codes side by side, with the signs of four floats. */
CU_DEVICE void join_codes(four16 *to, const uint32_t *c, const uint32_t *u) {
    to->w[0] = (c[0] | c[1] << 16) | ((u[0] >> 16 | (u[1] & 0xffff0000)) & 0x80008000);
    to->w[1] = (c[2] | c[3] << 16) | ((u[2] >> 16 | (u[3] & 0xffff0000)) & 0x80008000);
}

CU_DEVICE void join_codes(four8 *to, const uint32_t *c, const uint32_t *u) {
    to->w[0] = (c[0] | c[1] << 8 | c[2] << 16 | c[3] << 24) | (tops(u) & 0x80808080);
}

CU_DEVICE void four_words(uint32_t *u, const float4 &v) {
    u[0] = memopt_i_bits_of(v.x);
    u[1] = memopt_i_bits_of(v.y);
    u[2] = memopt_i_bits_of(v.z);
    u[3] = memopt_i_bits_of(v.w);
}

/* Is one of four not finite? On the multipliers, which have nothing else to do. */
CU_DEVICE int not_finite(float a, float b, float c, float d) {
    const float zero = fmaf(d, 0.0f, fmaf(c, 0.0f, fmaf(b, 0.0f, a * 0.0f)));
    return memopt_i_bits_of(zero) << 1 != 0;
}

/* What is done to an element, and to four of them: `one` and `four` are what is held between load and store. */
template <int kind> struct narrow_op {
    typedef format_of<kind> format;
    typedef typename format::one code;
    typedef float one;
    typedef float4 four;
    code *dst;
    const float *src;
    int saturate;

    __device__ __forceinline__ void load(one &v, size_t i) const { v = src[i]; }

    __device__ __forceinline__ void store(const one &v, size_t i) const {
        dst[i] = (code)code_for<kind>(memopt_i_bits_of(v), saturate, 0, 0);
    }

    __device__ __forceinline__ void load(four &v, size_t i) const { v = *(const float4 *)(src + i); }

    __device__ __forceinline__ void store(const four &v, size_t i) const {
        uint32_t u[4], c[4];

        typename format::four to;
        four_words(u, v);
        for (int k = 0; k < 4; ++k) c[k] = nearest_code<kind>(u[k], saturate);
        if (not_finite(v.x, v.y, v.z, v.w)) codes_for<kind>(c, u, saturate, 0, u);
        join_codes(&to, c, u);
        write<sizeof to / 4>(dst + i, to.w);
    }
};

template <class T> CU_DEVICE void narrow_four(uint16_t *to, const float4 &v) {
    const T *type = NULL;
    const uint32_t w[2] = { two_exact(type, v.x, v.y), two_exact(type, v.z, v.w) };
    write<2>(to, w);
}

template <> __device__ __forceinline__ void narrow_op<MEMOPT_I_BF16>::store(const float4 &v, size_t i) const {
    narrow_four<bf16_t>(dst + i, v);
}

template <> __device__ __forceinline__ void narrow_op<MEMOPT_I_F16>::store(const float4 &v, size_t i) const {
    narrow_four<f16_t>(dst + i, v);
}

template <int kind> struct stochastic {
    typedef format_of<kind> format;
    typedef typename format::one code;
    typedef float one;
    typedef float4 four;
    code *dst;
    const float *src;
    int saturate;
    memopt_noise noise;
    uint64_t first;

    __device__ __forceinline__ void load(one &v, size_t i) const { v = src[i]; }

    __device__ __forceinline__ void store(const one &v, size_t i) const {
        dst[i] = (code)code_for<kind>(memopt_i_bits_of(v), saturate, 1, memopt_i_noise32(noise, first + i));
    }

    __device__ __forceinline__ void load(four &v, size_t i) const { v = *(const float4 *)(src + i); }

    /* random: of each element, a word */
    __device__ __forceinline__ void put(const four &v, size_t i, const uint32_t *random) const {
        uint32_t u[4], c[4];
        uint32_t top = 0;

        typename format::four to;
        four_words(u, v);
        for (int k = 0; k < 4; ++k) {
            const uint32_t m = u[k] & 0x7fffffff;
            top = top > m ? top : m;
            c[k] = dither<kind>(m, random[k]);
        }
        if (top > (uint32_t)format::largest) codes_for<kind>(c, u, saturate, 1, random);
        join_codes(&to, c, u);
        write<sizeof to / 4>(dst + i, to.w);
    }
};

template <> __device__ __forceinline__ void stochastic<MEMOPT_I_BF16>::put(const float4 &v, size_t i,
                                                                           const uint32_t *random) const {
    uint32_t u[4], c[4];

    four_words(u, v);
    for (int k = 0; k < 4; ++k) c[k] = u[k] + (random[k] >> 16);
    if (not_finite(v.x * 2.0f, v.y * 2.0f, v.z * 2.0f, v.w * 2.0f)) /* 2^127 and up */
        for (int k = 0; k < 4; ++k) c[k] = memopt_i_bf16_code(u[k], 1, random[k]) << 16;
    write_uppers(dst + i, c);
}

template <int kind> struct widen {
    typedef format_of<kind> format;
    typedef typename format::one one;
    typedef typename format::four four;
    float *dst;
    const one *src;

    __device__ __forceinline__ void load(one &v, size_t i) const { v = src[i]; }
    __device__ __forceinline__ void store(const one &v, size_t i) const { dst[i] = value_of<kind>(v); }
    __device__ __forceinline__ void load(four &v, size_t i) const { read<sizeof v / 4>(v.w, src + i); }


    /* codes at the left end */
    CU_DEVICE void words(uint32_t *c, const four16 &v) {
        c[0] = v.w[0] << 16;
        c[1] = v.w[0] & 0xffff0000;
        c[2] = v.w[1] << 16;
        c[3] = v.w[1] & 0xffff0000;
    }

    CU_DEVICE void words(uint32_t *c, const four8 &v) {
        for (int k = 0; k < 4; ++k) c[k] = v.w[0] << (24 - 8 * k);
    }

    __device__ __forceinline__ void store(const four &v, size_t i) const {
        const float limit = wide_limit<kind>();
        uint32_t c[4];
        float x[4];

        words(c, v);
        for (int k = 0; k < 4; ++k) x[k] = widened<kind>(c[k]);
        if (not_finite(x[0] * limit, x[1] * limit, x[2] * limit, x[3] * limit)) {
            CU_ROLLED for (int k = 0; k < 4; ++k) {
                x[0] = value_of<kind>(c[0] >> (32 - 8 * sizeof(one)));
                take_turns<4>(x);
                take_turns<4>(c);
            }
        }
        store_four(dst + i, x);
    }
};

template <> __device__ __forceinline__ void widen<MEMOPT_I_F16>::store(const four16 &v, size_t i) const {
    const row_span<f16_t, 4> s = { { v.w[0], v.w[1] } };
    float x[4];

    span_floats(x, s);
    if (!(x[0] == x[0] && x[1] == x[1] && x[2] == x[2] && x[3] == x[3]))
        for (int k = 0; k < 4; ++k) x[k] = from_f16(v.w[k / 2] >> k % 2 * 16);
    store_four(dst + i, x);
}

template <> __device__ __forceinline__ void widen<MEMOPT_I_BF16>::store(const four16 &v, size_t i) const {
    uint32_t c[4];
    words(c, v);
    write<4>(dst + i, c);
}

struct split_op {
    typedef float one;
    typedef float4 four;
    uint16_t *high, *low;
    const float *src;

    __device__ __forceinline__ void load(one &v, size_t i) const { v = src[i]; }

    __device__ __forceinline__ void store(const one &v, size_t i) const {
        high[i] = (uint16_t)memopt_i_split_high(memopt_i_bits_of(v));
        low[i] = (uint16_t)(memopt_i_bits_of(v) & 0xffff);
    }

    __device__ __forceinline__ void load(four &v, size_t i) const { v = *(const float4 *)(src + i); }

    __device__ __forceinline__ void store(const four &v, size_t i) const {
        uint32_t u[4], h[4];

        four_words(u, v);
        for (int k = 0; k < 4; ++k) h[k] = u[k] + 0x8000; /* memopt_i_split_high of what is no NaN, in the upper half */
        if (not_finite(v.x, v.y, v.z, v.w))
            for (int k = 0; k < 4; ++k) h[k] = memopt_i_split_high(u[k]) << 16;
        write_uppers(high + i, h);
        for (int k = 0; k < 4; ++k) u[k] <<= 16;
        write_uppers(low + i, u);
    }
};

struct join {
    struct one { uint16_t high, low; };
    struct four { uint32_t high[2], low[2]; };
    float *dst;
    const uint16_t *high, *low;

    __device__ __forceinline__ void load(one &v, size_t i) const {
        v.high = high[i];
        v.low = low[i];
    }

    __device__ __forceinline__ void store(const one &v, size_t i) const {
        dst[i] = memopt_i_float_of(memopt_i_join(v.high, v.low));
    }

    __device__ __forceinline__ void load(four &v, size_t i) const {
        read<2>(v.high, high + i);
        read<2>(v.low, low + i);
    }

    __device__ __forceinline__ void store(const four &v, size_t i) const {
        uint32_t u[4];

        for (int k = 0; k < 4; ++k)
            u[k] = memopt_i_join(v.high[k / 2] >> k % 2 * 16 & 0xffff, v.low[k / 2] >> k % 2 * 16 & 0xffff);
        write<4>(dst + i, u);
    }
};

/* What is left where a tile is cut off, and all of an array that is not aligned: the threads' elements side by side. */
template <class OP> static __device__ void number_ones(const OP &op, size_t begin, size_t n) {
    enum { AT_ONCE = 4 };
    typename OP::one v[AT_ONCE];
    for (int part = 0; part < NUMBER_TILE / (AT_ONCE * NUMBER_THREADS); ++part) {
        const size_t at = begin + (size_t)part * AT_ONCE * NUMBER_THREADS + threadIdx.x;

        CU_UNROLL for (int k = 0; k < AT_ONCE; ++k) if (at + k * NUMBER_THREADS < n)
            op.load(v[k], at + k * NUMBER_THREADS);
        CU_ROLLED for (int k = 0; k < AT_ONCE; ++k) {
            if (at + k * NUMBER_THREADS < n) op.store(v[0], at + k * NUMBER_THREADS);
            take_turns<AT_ONCE>(v);
        }
    }
}

template <class OP>
static __global__ void __launch_bounds__(NUMBER_THREADS) number_kernel(OP op, size_t n, int vector) {
    const size_t begin = (size_t)blockIdx.x * NUMBER_TILE;
    const size_t at = begin + 4 * threadIdx.x;

    typename OP::four v[NUMBER_FOURS];
    if (!vector || n - begin < NUMBER_TILE) {
        number_ones(op, begin, n);
        return;
    }
    CU_UNROLL
    for (int k = 0; k < NUMBER_FOURS; ++k) op.load(v[k], at + k * 4 * NUMBER_THREADS);
    CU_UNROLL
    for (int k = 0; k < NUMBER_FOURS; ++k) op.store(v[k], at + k * 4 * NUMBER_THREADS);
}

/* vector: also, `first` is a multiple of 32. Then a thread takes four elements and the four that are 16 further, which
   the same four words of noise serve. A pair of rounds covers 64 groups of 32. */
template <int kind>
static __global__ void __launch_bounds__(NUMBER_THREADS) noise_kernel(stochastic<kind> op, size_t n, int vector) {
    const size_t begin = (size_t)blockIdx.x * NUMBER_TILE;
    const uint32_t lane = threadIdx.x % 4 * 4;
    const uint32_t group = threadIdx.x / 4;
    float4 v[NUMBER_FOURS];

    if (!vector || n - begin < NUMBER_TILE) {
        number_ones(op, begin, n);
        return;
    }
    CU_UNROLL for (int k = 0; k < NUMBER_FOURS; ++k)
        op.load(v[k], begin + (group + k / 2 * 64) * 32 + k % 2 * 16 + lane);
    CU_UNROLL for (int k = 0; k < NUMBER_FOURS; k += 2) {
        const size_t at = begin + (group + k / 2 * 64) * 32 + lane;
        const uint64_t groups = (op.first + begin) / 32 + group + k / 2 * 64;
        uint32_t random[4];

        CU_UNROLL for (int j = 0; j < 4; ++j) random[j] = memopt_i_noise32(op.noise, groups << 5 | lane | j);
        op.put(v[k], at, random);
        CU_UNROLL for (int j = 0; j < 4; ++j) random[j] = random[j] << 16 | random[j] >> 16;
        op.put(v[k + 1], at + 16, random);
    }
}

/* The host's side. Pointers that a conversion lacks are NULL, with 0 bytes an element. */
typedef struct number_arrays {
    const void *p[3];
    size_t bytes[3];
} number_arrays;

/* All that can be wrong. `joined`: the last two are both read, and may overlap. */
PRUNED status_t number_check(const number_arrays *x, size_t n, int saturate, int joined) {
    status_t s = 0;

    for (int i = 0; i < 3; ++i)
        if (x->bytes[i]) {
            s = n ? pointer(x->p[i], x->bytes[i]) : pointer_if(x->p[i], x->bytes[i]);
            if (s) return s;
        }
    if (saturate & ~1) return MEMOPT_ERR_ARGUMENT;
    if (n > SIZE_MAX / 4) return MEMOPT_ERR_OVERFLOW;
    for (int i = 0; i < 3; ++i)
        for (int k = i + 1; k < 3; ++k)
            if (!s && !(joined && i == 1)) s = no_overlap(x->p[i], n * x->bytes[i], x->p[k], n * x->bytes[k]);
    return s;
}

/* Whole groups of four of every array are then aligned to as many bytes as they have. */
PRUNED int number_vector(const number_arrays *x) {
    uintptr_t odd = 0;
    for (int i = 0; i < 3; ++i)
        if (x->bytes[i]) odd |= (uintptr_t)x->p[i] & (4 * x->bytes[i] - 1);
    return odd == 0;
}

template <class OP> static status_t number_run(const OP &op, const number_arrays *x, size_t n,
                                               int saturate, int joined, cudaStream_t stream) {
    const status_t s = number_check(x, n, saturate, joined);
    return s ? s : CU_RUN((number_kernel<OP>), memopt_i_ceil_div(n, NUMBER_TILE),
                                     NUMBER_THREADS, 0, stream, op, n, number_vector(x));
}

template <int kind> static status_t number_narrow(typename format_of<kind>::one *dst, const float *src,
                                                  size_t n, int saturate, cudaStream_t stream) {
    const number_arrays x = { { dst, src, NULL }, { sizeof *dst, sizeof *src, 0 } };
    const narrow_op<kind> op = { dst, src, saturate };
    return number_run(op, &x, n, saturate, 0, stream);
}

template <int kind>
static status_t number_noise(typename format_of<kind>::one *dst, const float *src, size_t n, int saturate,
                             memopt_noise noise, uint64_t first, cudaStream_t stream) {
    const number_arrays x = { { dst, src, NULL }, { sizeof *dst, sizeof *src, 0 } };
    const stochastic<kind> op = { dst, src, saturate, noise, first };
    const status_t s = number_check(&x, n, saturate, 0);

    return s ? s : CU_RUN((noise_kernel<kind>), memopt_i_ceil_div(n, NUMBER_TILE), NUMBER_THREADS, 0, stream, op, n,
                          first % 32 == 0 && number_vector(&x));
}

template <int kind>
static status_t number_widen(float *dst, const typename format_of<kind>::one *src, size_t n, cudaStream_t stream) {
    const number_arrays x = { { dst, src, NULL }, { sizeof *dst, sizeof *src, 0 } };
    const widen<kind> op = { dst, src };
    return number_run(op, &x, n, 0, 0, stream);
}

#ifndef MEMOPT_CUDA_NO_CONVERT
PUBLIC status_t api::memopt_cuda_bf16_from_f32(uint16_t *d_dst, const float *d_src, size_t n, cudaStream_t stream) {
    return number_narrow<MEMOPT_I_BF16>(d_dst, d_src, n, 0, stream);
}

PUBLIC status_t api::memopt_cuda_f16_from_f32(uint16_t *d_dst, const float *d_src, size_t n, cudaStream_t stream) {
    return number_narrow<MEMOPT_I_F16>(d_dst, d_src, n, 0, stream);
}

PUBLIC status_t api::memopt_cuda_e4m3_from_f32(uint8_t *d_dst, const float *d_src, size_t n, int saturate,
                                               cudaStream_t stream) {
    return number_narrow<MEMOPT_I_E4M3>(d_dst, d_src, n, saturate, stream);
}

PUBLIC status_t api::memopt_cuda_e5m2_from_f32(uint8_t *d_dst, const float *d_src, size_t n, int saturate,
                                               cudaStream_t stream) {
    return number_narrow<MEMOPT_I_E5M2>(d_dst, d_src, n, saturate, stream);
}

PUBLIC status_t api::memopt_cuda_bf16_from_f32_stochastic(uint16_t *d_dst, const float *d_src, size_t n,
                                                          memopt_noise noise, uint64_t first, cudaStream_t stream) {
    return number_noise<MEMOPT_I_BF16>(d_dst, d_src, n, 0, noise, first, stream);
}

PUBLIC status_t api::memopt_cuda_f16_from_f32_stochastic(uint16_t *d_dst, const float *d_src, size_t n,
                                                         memopt_noise noise, uint64_t first, cudaStream_t stream) {
    return number_noise<MEMOPT_I_F16>(d_dst, d_src, n, 0, noise, first, stream);
}

PUBLIC status_t api::memopt_cuda_e4m3_from_f32_stochastic(uint8_t *d_dst, const float *d_src, size_t n, int saturate,
                                                          memopt_noise noise, uint64_t first, cudaStream_t stream) {
    return number_noise<MEMOPT_I_E4M3>(d_dst, d_src, n, saturate, noise, first, stream);
}

PUBLIC status_t api::memopt_cuda_e5m2_from_f32_stochastic(uint8_t *d_dst, const float *d_src, size_t n, int saturate,
                                                          memopt_noise noise, uint64_t first, cudaStream_t stream) {
    return number_noise<MEMOPT_I_E5M2>(d_dst, d_src, n, saturate, noise, first, stream);
}

PUBLIC status_t api::memopt_cuda_f32_from_bf16(float *d_dst, const uint16_t *d_src, size_t n, cudaStream_t stream) {
    return number_widen<MEMOPT_I_BF16>(d_dst, d_src, n, stream);
}

PUBLIC status_t api::memopt_cuda_f32_from_f16(float *d_dst, const uint16_t *d_src, size_t n, cudaStream_t stream) {
    return number_widen<MEMOPT_I_F16>(d_dst, d_src, n, stream);
}

PUBLIC status_t api::memopt_cuda_f32_from_e4m3(float *d_dst, const uint8_t *d_src, size_t n, cudaStream_t stream) {
    return number_widen<MEMOPT_I_E4M3>(d_dst, d_src, n, stream);
}

PUBLIC status_t api::memopt_cuda_f32_from_e5m2(float *d_dst, const uint8_t *d_src, size_t n, cudaStream_t stream) {
    return number_widen<MEMOPT_I_E5M2>(d_dst, d_src, n, stream);
}

PUBLIC status_t api::memopt_cuda_f32_split(uint16_t *d_high, uint16_t *d_low, const float *d_src, size_t n,
                                           cudaStream_t stream) {
    const number_arrays x = { { d_high, d_low, d_src }, { 2, 2, 4 } };
    const split_op op = { d_high, d_low, d_src };
    return number_run(op, &x, n, 0, 0, stream);
}

PUBLIC status_t api::memopt_cuda_f32_join(float *d_dst, const uint16_t *d_high, const uint16_t *d_low, size_t n,
                                          cudaStream_t stream) {
    const number_arrays x = { { d_dst, d_high, d_low }, { 4, 2, 2 } };
    const join op = { d_dst, d_high, d_low };
    return number_run(op, &x, n, 0, 1, stream);
}
#endif

/* Random numbers. A thread makes whole blocks of four values; `skip` values of the first block are before d_dst. */
typedef struct random_task {
    void *dst;            /* of 4-byte elements */
    size_t n, skip;
    uint64_t seed, stream, first; /* the block that dst starts in */
} random_task;

template <int kind> CU_DEVICE void random_four(uint32_t *words, const random_task &t, uint64_t block) {
    float values[4];

    memopt_i_philox(words, t.seed, t.stream, block);
    if (kind != MEMOPT_I_RANDOM_BITS) {
        if (kind == MEMOPT_I_RANDOM_UNIFORM) memopt_i_v1_uniform(values, words, 4);
        else memopt_i_v1_normal(values, words, 4);
        for (int k = 0; k < 4; ++k) words[k] = memopt_i_float_bits(values[k]);
    }
}

template <int kind> static __global__ void __launch_bounds__(NUMBER_THREADS) random_kernel(random_task t, int vector) {
    const size_t at = (size_t)blockIdx.x * NUMBER_THREADS * NUMBER_FOURS + threadIdx.x;
    uint32_t *const dst = (uint32_t *)t.dst;

    CU_UNROLL for (int k = 0; k < NUMBER_FOURS; ++k) {
        const size_t block = at + k * NUMBER_THREADS;
        const size_t i = 4 * block; /* of value i - skip */

        uint32_t v[4];

        if (i >= t.n + t.skip) return;
        /* 2^62 blocks, then the stream starts again */
        random_four<kind>(v, t, (t.first + block) & (~(uint64_t)0 >> 2));
        if (vector && i >= t.skip && i + 4 <= t.n + t.skip) {
            write<4>(dst + (i - t.skip), v);
            continue;
        }
        CU_UNROLL for (int e = 0; e < 4; ++e) if (i + e >= t.skip && i + e < t.n + t.skip) dst[i + e - t.skip] = v[e];
    }
}

template <int kind>
static status_t random_run(void *dst, size_t n, uint64_t seed, uint64_t number, uint64_t first, cudaStream_t stream) {
    random_task t;
    const status_t s = n ? pointer(dst, 4) : pointer_if(dst, 4);

    if (s) return s;
    if (n > SIZE_MAX / 4) return MEMOPT_ERR_OVERFLOW;
    t.dst = dst;
    t.n = n;
    t.skip = (size_t)(first & 3);
    t.seed = seed;
    t.stream = number;
    t.first = first >> 2;
    return CU_RUN((random_kernel<kind>), n ? memopt_i_ceil_div(n + t.skip, NUMBER_TILE) : 0, NUMBER_THREADS, 0, stream,
                  t, (((uintptr_t)dst - 4 * t.skip) & 15) == 0);
}

#ifndef MEMOPT_CUDA_NO_CONVERT
PUBLIC status_t api::memopt_cuda_random_bits(uint32_t *d_dst, size_t n, uint64_t seed, uint64_t stream_number,
                                             uint64_t first, cudaStream_t stream) {
    return random_run<MEMOPT_I_RANDOM_BITS>(d_dst, n, seed, stream_number, first, stream);
}

PUBLIC status_t api::memopt_cuda_random_uniform(float *d_dst, size_t n, uint64_t seed, uint64_t stream_number,
                                                uint64_t first, cudaStream_t stream) {
    return random_run<MEMOPT_I_RANDOM_UNIFORM>(d_dst, n, seed, stream_number, first, stream);
}

PUBLIC status_t api::memopt_cuda_random_normal(float *d_dst, size_t n, uint64_t seed, uint64_t stream_number,
                                               uint64_t first, cudaStream_t stream) {
    return random_run<MEMOPT_I_RANDOM_NORMAL>(d_dst, n, seed, stream_number, first, stream);
}
#endif

/* ---- noise ---- */
PRUNED __global__ void __launch_bounds__(NUMBER_THREADS)
noise_make_kernel(memopt_noise *noise, size_t count, uint64_t seed, const uint64_t *step) {
    const size_t i = (size_t)blockIdx.x * NUMBER_THREADS + threadIdx.x;
    if (i < count) noise[i] = memopt_i_noise_of(seed, *step * count + i);
}

#ifndef MEMOPT_CUDA_NO_CONVERT
PUBLIC status_t api::memopt_cuda_noise_make(memopt_noise *d_noise, size_t count, uint64_t seed, const uint64_t *d_step,
                                            cudaStream_t stream) {
    size_t bytes;
    status_t s = pointer(d_step, sizeof *d_step);

    if (!s && count) s = pointer(d_noise, sizeof(uint32_t));
    if (!s && memopt_i_mul(count, sizeof *d_noise, &bytes)) s = MEMOPT_ERR_OVERFLOW;
    if (!s) s = no_overlap(d_noise, bytes, d_step, sizeof *d_step);
    if (s || !count) return s;
    return CU_RUN(noise_make_kernel<>, memopt_i_ceil_div(count, NUMBER_THREADS), NUMBER_THREADS, 0, stream, d_noise,
                  count, seed, d_step);
}
#endif

/* @section cuda_quant : cuda_number api_cuda_quant
   Blocks of floats as bytes, on the device. What a code is stands at `quant` in memopt.h.
   Problem    A code is the number of middles, between neighbouring levels, below y: exactly, with middles that are no
              floats. memopt.h guesses by a formula in doubles and looks; doubles are 1/2 of the floats' speed at best
              and 1/64 on most cards, and a search for the code takes 8 dependent reads of shared memory.
   Exact      y is a float, so "above the middle" is "above the largest float that is not above it". Of the signed maps
              ties count away from zero for negative y (the lower code): with 2 |y| + sign for y, and twice that
              largest float for the middle, plus one where it is not the middle itself, one comparison of integers is
              right for both signs. Unsigned maps compare the bits, as signed integers: whatever is negative is small.
   Table      The upper bits of that key, exponent and 6 bits of mantissa (unsigned: 7), choose a bin that holds at
              most one middle. A bin has one word: code * 2^24 + 2^24 - 1 - middle, counted from the start of the bin.
              Added to the key it carries into the code exactly where the key is above the middle. So a code is:
              rotate, clamp, shift, one read of 4 bytes, one addition; four codes are put together and their signs
              applied at once, 13 instructions for four. No search, no comparison, no double. The compiler makes the
              tables from the levels of memopt.h (1,409 words, unsigned 2,945); a CUDA block copies its own to shared
              memory while its numbers are on their way. tests/exhaustive_cuda.cu compares all floats from -1 to 1.
   Absmax     2 |x| + 2^24 as an integer: what is not finite wraps around and is less than anything that is, so one
              multiply-add and one maximum leave it out. Then shuffles; beyond a warp, shared memory and one barrier.
   Not finite is found as in `number`, by 0 * y; then NaN becomes 0 and infinities one.
   Teams      8 threads share a block of 256: 32 floats each, in registers from absmax to code, so memory is read once.
              In a warp four blocks, each row of them 128 bytes side by side. Blocks of 32, 64 and 128: several at
              once; larger ones: 16, 32, 64 or 128 threads. Any multiple of 32 is done so; only blocks of 32, 64, 128,
              256... go without asking whether an element is there.
   Rounds     A table of 5.6 KiB (unsigned 11.8) for 32 KiB of floats would be 18% (36%) more to read from the
              second-level cache. From 4,096 passes of 8,192 elements on, a CUDA block does 2 to 8 of them with one
              copy: with 8 it is 2% (5%).
   Bytes      Quantise: 4 + 1 + 4/256 an element (bf16: 2 + 1), dequantise as many; each once.
   Ways       A search is 8 dependent reads, a table one. A warp for a block has 5 shuffles and an inverse for 8
              elements of a thread; 8 threads with 32 floats each have 3 shuffles for 32, and share tests and addresses.
   Conflicts  Reads of shared memory at random places take 3.2 to 3.5 cycles a warp: half of its time, of bf16 three
              quarters. A copy of the levels for each bank would be 32 KiB to fill for each 8 KiB of codes.
   Trap       1 / absmax is IEEE division: an approximate one gives other codes. The product rounds by itself. y may be
              a few units of the last place above 1, so there is a bin from 1 on; negative y there have no level of
              their own and take code 0. A barrier between passes is spared by two rows of `red`. */

enum {
    QUANT_THREADS = 256,
    QUANT_FOURS   = 8, /* groups of four elements that a thread holds */
    QUANT_TILE    = QUANT_THREADS * QUANT_FOURS * 4,
    QUANT_PASSES  = 2048, /* so many CUDA blocks before one of them makes a second pass */
    QUANT_ROUNDS  = 8, /* passes of a CUDA block at most */
    /* Bins: octaves of a key, each cut into as many as give a bin one middle at most; the last octave, from 1 on, has
       one. Signed keys are shifted left by one, with the sign below. */
    SIGNED_SHIFT   = 18, SIGNED_FIRST   = 105, SIGNED_BINS   = 22 * 64 + 1,
    UNSIGNED_SHIFT = 16, UNSIGNED_FIRST = 104, UNSIGNED_BINS = 23 * 128 + 1
};

/* ---- the tables, made by the compiler from the levels of memopt.h ---- */
static constexpr uint32_t signed_magnitudes[129] = {
    MEMOPT_I_SIGNED_LEVELS(MEMOPT_I_MAP_BITS) 0x3f800000 };
static constexpr uint32_t unsigned_magnitudes[256] = { MEMOPT_I_UNSIGNED_LEVELS(MEMOPT_I_MAP_BITS) };

/* A level, in units of 2^-45: all are multiples of it, and below 2^46 of them. */
CU_CONSTEXPR uint64_t fixed(uint32_t bits) {
    return bits ? (uint64_t)((bits & 0x7fffff) | 0x800000) << ((bits >> 23) - 105) : 0;
}

CU_CONSTEXPR uint64_t level_of(memopt_quant_map map, int i) { /* the i-th from zero up */
    return map == MEMOPT_QUANT_UNSIGNED ? fixed(unsigned_magnitudes[i])
         : map == MEMOPT_QUANT_LINEAR ? (uint64_t)i << 38 : fixed(signed_magnitudes[i]);
}

CU_CONSTEXPR unsigned top_bit(uint64_t x, unsigned half = 32) {
    return !half ? 0 : x >> half ? half + top_bit(x >> half, half / 2) : top_bit(x, half / 2);
}

/* The largest float up to x * 2^-46, and whether it is less. */
CU_CONSTEXPR uint32_t floor(uint64_t x, unsigned top) {
    return ((top + 80) << 23) + (uint32_t)(x >> (top - 23));
}

CU_CONSTEXPR uint32_t less(uint64_t x, unsigned top) { return (x & (((uint64_t)1 << (top - 23)) - 1)) != 0; }

CU_CONSTEXPR uint32_t middle_of(memopt_quant_map map, uint64_t sum) {
    return map == MEMOPT_QUANT_UNSIGNED ? floor(sum, top_bit(sum))
                                        : floor(sum, top_bit(sum)) << 1 | less(sum, top_bit(sum));
}

/* Keys above it are above the middle between level i and the next. */
CU_CONSTEXPR uint32_t middle_between(memopt_quant_map map, int i) {
    return middle_of(map, level_of(map, i) + level_of(map, i + 1));
}

/* f of i, i + 1, ...; i is a sum. */
#define MEMOPT_I_CUDA_8(f, i) f(i), f(i + 1), f(i + 2), f(i + 3), f(i + 4), f(i + 5), f(i + 6), f(i + 7)

#define MEMOPT_I_CUDA_64(f, i) MEMOPT_I_CUDA_8(f, i), MEMOPT_I_CUDA_8(f, i + 8), MEMOPT_I_CUDA_8(f, i + 16), \
    MEMOPT_I_CUDA_8(f, i + 24), MEMOPT_I_CUDA_8(f, i + 32), MEMOPT_I_CUDA_8(f, i + 40), \
    MEMOPT_I_CUDA_8(f, i + 48), MEMOPT_I_CUDA_8(f, i + 56)

#define MEMOPT_I_CUDA_128(f, i) MEMOPT_I_CUDA_64(f, i), MEMOPT_I_CUDA_64(f, i + 64)
#define MEMOPT_I_CUDA_512(f, i) MEMOPT_I_CUDA_128(f, i), MEMOPT_I_CUDA_128(f, i + 128), \
    MEMOPT_I_CUDA_128(f, i + 256), MEMOPT_I_CUDA_128(f, i + 384)
#define MEMOPT_I_CUDA_SIGNED_MIDDLE(i)   middle_between(MEMOPT_QUANT_SIGNED, i)
#define MEMOPT_I_CUDA_LINEAR_MIDDLE(i)   middle_between(MEMOPT_QUANT_LINEAR, i)
/* there are 255 middles */
#define MEMOPT_I_CUDA_UNSIGNED_MIDDLE(i) middle_between(MEMOPT_QUANT_UNSIGNED, i < 255 ? i : 254)

static constexpr uint32_t signed_middles[128] = { MEMOPT_I_CUDA_128(MEMOPT_I_CUDA_SIGNED_MIDDLE, 0) };
static constexpr uint32_t linear_middles[128] = { MEMOPT_I_CUDA_128(MEMOPT_I_CUDA_LINEAR_MIDDLE, 0) };
static constexpr uint32_t unsigned_middles[256] = {
    MEMOPT_I_CUDA_128(MEMOPT_I_CUDA_UNSIGNED_MIDDLE, 0), MEMOPT_I_CUDA_128(MEMOPT_I_CUDA_UNSIGNED_MIDDLE, 128) };

/* How many of the middles from first on, and before last, are below key; they rise. */
CU_CONSTEXPR unsigned count_below(const uint32_t *middles, uint32_t key, unsigned first, unsigned last) {
    return first == last ? first : middles[(first + last) / 2] < key
         ? count_below(middles, key, (first + last) / 2 + 1, last)
         : count_below(middles, key, first, (first + last) / 2);
}

/* A bin's word: added to any key of the bin, it gives the code (as index from zero) in the uppermost byte. `key` is the
   bin's first; where no middle lies in the bin, nothing is carried. */
CU_CONSTEXPR uint32_t bin_of(const uint32_t *middles, uint32_t key, uint32_t width, unsigned count, unsigned index) {
    return ((uint32_t)index << 24) - key
         + (index < count && middles[index] - key < width ? 0xffffff - (middles[index] - key) : 0);
}

CU_CONSTEXPR uint32_t bin(const uint32_t *middles, uint32_t key, uint32_t width, unsigned count) {
    return bin_of(middles, key, width, count, count_below(middles, key, 0, count));
}

/* Templates, so that only what quantises has the compiler make them: LINEAR or signed; PART alone makes one of what has
   no kinds. */
template <bool LINEAR> CU_CONSTEXPR uint32_t signed_bin(unsigned i) {
    return bin(LINEAR ? linear_middles : signed_middles, (uint32_t)(SIGNED_FIRST * 64 + i) << SIGNED_SHIFT,
               1u << SIGNED_SHIFT, 128);
}

template <bool LINEAR> static __device__ const uint32_t *signed_bins(void) {
    static const uint32_t words[SIGNED_BINS] = { MEMOPT_I_CUDA_512(signed_bin<LINEAR>, 0),
        MEMOPT_I_CUDA_512(signed_bin<LINEAR>, 512), MEMOPT_I_CUDA_128(signed_bin<LINEAR>, 1024),
        MEMOPT_I_CUDA_128(signed_bin<LINEAR>, 1152), MEMOPT_I_CUDA_128(signed_bin<LINEAR>, 1280),
        signed_bin<LINEAR>(1408) };
    return words;
}

template <int PART> CU_CONSTEXPR uint32_t unsigned_bin(unsigned i) {
    return bin(unsigned_middles, (uint32_t)(UNSIGNED_FIRST * 128 + i) << UNSIGNED_SHIFT, 1u << UNSIGNED_SHIFT, 255);
}

template <int PART> static __device__ const uint32_t *unsigned_bins(void) {
    static const uint32_t words[UNSIGNED_BINS] = { MEMOPT_I_CUDA_512(unsigned_bin<PART>, 0),
        MEMOPT_I_CUDA_512(unsigned_bin<PART>, 512), MEMOPT_I_CUDA_512(unsigned_bin<PART>, 1024),
        MEMOPT_I_CUDA_512(unsigned_bin<PART>, 1536), MEMOPT_I_CUDA_512(unsigned_bin<PART>, 2048),
        MEMOPT_I_CUDA_128(unsigned_bin<PART>, 2560), MEMOPT_I_CUDA_128(unsigned_bin<PART>, 2688),
        MEMOPT_I_CUDA_128(unsigned_bin<PART>, 2816), unsigned_bin<PART>(2944) };
    return words;
}

MEMOPT_I_CUDA_TABLE(uint32_t, signed_decode, [129]) = { MEMOPT_I_SIGNED_LEVELS(MEMOPT_I_MAP_BITS) 0x3f800000 };
MEMOPT_I_CUDA_TABLE(uint32_t, unsigned_decode, [256]) = { MEMOPT_I_UNSIGNED_LEVELS(MEMOPT_I_MAP_BITS) };

/* ---- encode ---- */
CU_DEVICE uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* The index of y in the uppermost byte: that of the nearest level, counted from zero up; ties of the signed maps count
   up for negative y. y is finite, and not more than a few units of the last place above 1. */
CU_DEVICE uint32_t index_of(const uint32_t *bins, bool is_signed, uint32_t u) {
    const uint32_t first = is_signed ? SIGNED_FIRST * 64 : UNSIGNED_FIRST * 128;
    const uint32_t shift = is_signed ? SIGNED_SHIFT : UNSIGNED_SHIFT;
    const uint32_t least = first << shift;
    const uint32_t key = is_signed ? larger(u << 1 | u >> 31, least) : (uint32_t)max((int32_t)u, (int32_t)least);

    return bins[(key >> shift) - first] + key;
}

/* Four codes, the first in the lowest byte. Signed: 127 + index, or 127 - index where y is negative, at least 0. */
CU_DEVICE uint32_t encode(const uint32_t *bins, bool is_signed, const float4 &y) {
    uint32_t u[4], sums[4], index, signs, down;

    four_words(u, y);
    for (int k = 0; k < 4; ++k) sums[k] = index_of(bins, is_signed, u[k]);
    index = tops(sums);
    if (!is_signed) return index;
    signs = tops(u) >> 7 & 0x01010101;
    signs *= 255;
    down = index & signs;
    down -= down >> 7 & 0x01010101; /* there is no -1 */
    return (index & ~signs) - down + 0x7f7f7f7f;
}

/* What is not finite: NaN as zero, an infinity as one. */
CU_DEVICE float finite_or_zero(float y) {
    const uint32_t u = memopt_i_bits_of(y);
    const uint32_t m = u & 0x7fffffff;
    return m < 0x7f800000 ? y : m > 0x7f800000 ? 0.0f : memopt_i_float_of(0x3f800000 | (u & 0x80000000));
}

/* Four elements from `at` on; those from `end` on are zeros. */
template <class T> CU_DEVICE float4 four_of_each(const T *p, uint32_t at, uint32_t end, bool whole) {
    row_span<T, 4> s;

    get<sizeof(T), sizeof(T)>(s.word, p + at, at, end, whole);
    return make_float4(element_at(s, 0), element_at(s, 1), element_at(s, 2), element_at(s, 3));
}

/* ---- quantise ---- */
typedef struct quant_task {
    const void *src;
    uint8_t *codes;
    float *absmax;
    size_t n, blocks;    /* elements; blocks of the tensor */
    uint32_t block;      /* elements of one */
    uint32_t team, rounds; /* threads that share a block, a power of two from 8 to 128; passes */
    uint32_t fours;      /* groups of four that a thread has of a block: 1, 2, 4 or 8 */
    uint32_t map, vector, narrow; /* narrow: src is bf16 */
} quant_task;

/* The largest of a team: shuffles, and shared memory where a team is more than a warp. Two rows of `red`, so that one
   barrier a pass is enough. */
CU_DEVICE uint32_t team_max(uint32_t max, uint32_t team, uint32_t *red) {
    for (uint32_t o = team < 32 ? team / 2 : 16; o; o /= 2)
        max = larger(max, __shfl_xor_sync(MEMOPT_I_CUDA_ALL, max, (int)o));
    if (team <= 32) return max;
    if (threadIdx.x % 32 == 0) red[threadIdx.x / 32] = max;
    __syncthreads();
    for (uint32_t w = threadIdx.x / team * (team / 32), end = w + team / 32; w < end; ++w) max = larger(max, red[w]);
    return max;
}

/* Twice a magnitude, with 2^24 added: what is not finite wraps around and is less than any number. */
CU_DEVICE uint32_t max_key(uint32_t max, float x) { return larger(max, memopt_i_bits_of(x) * 2 + 0x01000000); }

/* COUNT groups of four, scaled in place. */
template <int COUNT> CU_DEVICE void scale_fours(float4 *x, float inverse) {
    float zero = 0;

    CU_UNROLL for (int k = 0; k < COUNT; ++k) {
        x[k].x = memopt_i_times(x[k].x, inverse);
        x[k].y = memopt_i_times(x[k].y, inverse);
        x[k].z = memopt_i_times(x[k].z, inverse);
        x[k].w = memopt_i_times(x[k].w, inverse);
        zero = fmaf(x[k].w, 0.0f, fmaf(x[k].z, 0.0f, fmaf(x[k].y, 0.0f, fmaf(x[k].x, 0.0f, zero))));
    }
    if (memopt_i_bits_of(zero) << 1 == 0) return; /* all are finite */
    CU_UNROLL for (int k = 0; k < COUNT; ++k) {
        x[k].x = finite_or_zero(x[k].x);
        x[k].y = finite_or_zero(x[k].y);
        x[k].z = finite_or_zero(x[k].z);
        x[k].w = finite_or_zero(x[k].w);
    }
}

/* A thread holds eight groups of four: of one block, or, of small ones, t.fours of each of 8 / t.fours blocks, which go
   to the teams in turn. The usual blocks, of 256, have a kernel for each T and each of the SIGNS; the others have one,
   which asks the task for everything. */
enum { QUANT_UNSIGNED, QUANT_SIGNED, QUANT_ANY };

template <class T, int SIGNS>
static __global__ void __launch_bounds__(QUANT_THREADS) quantize_kernel(quant_task t) {
    enum { ALL = QUANT_FOURS, ANY = SIGNS == QUANT_ANY, ALONE = ANY ? 1 : ALL };

    MEMOPT_I_CUDA_SHARED(uint32_t, bins, [SIGNS == QUANT_SIGNED ? SIGNED_BINS : UNSIGNED_BINS]);
    MEMOPT_I_CUDA_SHARED(uint32_t, red, [2 * QUANT_THREADS / 32]);
    const bool is_signed = ANY ? t.map != MEMOPT_QUANT_UNSIGNED : SIGNS == QUANT_SIGNED;
    const uint32_t team = ANY ? t.team : 8;
    const uint32_t teams = QUANT_THREADS / team;
    const uint32_t lane = threadIdx.x % team;
    const uint32_t fours = ANY ? t.fours : (uint32_t)ALL;
    const size_t pass = (size_t)teams * (ALL / fours);
    const size_t first = blockIdx.x * pass * t.rounds + threadIdx.x / team;
    const bool whole = t.vector && t.block == team * fours * 4
                    && (blockIdx.x + (size_t)1) * pass * t.rounds * t.block <= t.n;
    float4 x[ALL];
    for (uint32_t round = 0; round < t.rounds; ++round) {
        const size_t here = first + round * pass;

        CU_UNROLL for (uint32_t k = 0; k < ALL; ++k) {
            const size_t b = here + (size_t)(k / fours) * teams;
            const uint32_t end = b < t.blocks ? (uint32_t)memopt_i_min(t.n - b * t.block, t.block) : 0;
            const uint32_t offset = (k % fours * team + lane) * 4;
            const bool all = whole || (t.vector && offset + 4 <= end);
            if (ANY && t.narrow) x[k] = four_of_each((const bf16_t *)t.src + b * t.block, offset, end, all);
            else x[k] = four_of_each((const T *)t.src + b * t.block, offset, end, all);
        }
        if (round == 0) { /* the table comes while the numbers are on their way */
            const uint32_t *from =
                !is_signed ? unsigned_bins<0>()
                : t.map == MEMOPT_QUANT_LINEAR ? signed_bins<true>() : signed_bins<false>();
            const int count = is_signed ? SIGNED_BINS : UNSIGNED_BINS;

            for (int i = threadIdx.x; i < count; i += QUANT_THREADS) bins[i] = from[i];
            __syncthreads(); /* bins */
        }
        uint32_t max[ALL];
        CU_UNROLL for (int k = 0; k < ALL; ++k) {
            const uint32_t so_far = ANY || !k ? 0x01000000 : max[0];
            max[ANY ? k : 0] = max_key(max_key(max_key(max_key(so_far, x[k].x), x[k].y), x[k].z), x[k].w);
        }
        for (uint32_t apart = 1; ANY && apart < fours; apart *= 2) /* of all groups that are of one block */
            CU_UNROLL for (int k = 0; k < ALL; ++k) {
                if (apart == 1 && k % 2 == 0) max[k] = max[k + 1] = larger(max[k], max[k + 1]);
                if (apart == 2 && k % 4 < 2) max[k] = max[k + 2] = larger(max[k], max[k + 2]);
                if (apart == 4 && k < 4) max[k] = max[k + 4] = larger(max[k], max[k + 4]);
            }
        float absmax = 0;
        CU_ROLLED for (uint32_t g = 0; g < ALL; g += ALONE) {
            const size_t b = here + (size_t)(g / fours) * teams;
            const uint32_t end = b < t.blocks ? (uint32_t)memopt_i_min(t.n - b * t.block, t.block) : 0;

            if (!ANY || g % fours == 0) {
                const uint32_t largest = team_max(max[0], team, red + round % 2 * (QUANT_THREADS / 32));

                absmax = memopt_i_float_of((largest - 0x01000000) / 2);
                if (end && lane == 0) t.absmax[b] = absmax;
            }
            scale_fours<ALONE>(x, memopt_i_inverse(absmax));
            CU_UNROLL for (uint32_t k = 0; k < ALONE; ++k) {
                const uint32_t offset = ((g + k) % fours * team + lane) * 4;
                const uint32_t codes = encode(bins, is_signed, x[k]);
                put<1, 1>(t.codes + b * t.block + offset, &codes, offset, end,
                          whole || (t.vector && offset + 4 <= end));
            }
            take_turns<ALL>(x);
            take_turns<ALL>(max);
        }
    }
}

/* ---- dequantise ---- */
typedef struct dequant_task {
    void *dst;
    const uint8_t *codes;
    const float *absmax;
    size_t n;
    uint32_t block, blocks, reciprocal; /* blocks of a tile; ceil(2^32 / block) */
    uint32_t map, vector;
} dequant_task;

CU_DEVICE uint32_t decode_bits(uint32_t map, uint32_t code) {
    const uint32_t magnitude = code < 127 ? 127 - code : code - 127;
    if (map == MEMOPT_QUANT_UNSIGNED) return unsigned_decode[code];
    if (map == MEMOPT_QUANT_LINEAR) return memopt_i_bits_of((float)((int)code - 127) * 0.0078125f);
    return signed_decode[magnitude] | (uint32_t)(code < 127) << 31;
}

/* A level times absmax; a NaN there stays what it is and becomes quiet, which a device would not do by itself. */
CU_DEVICE float decode(float level, float absmax) {
    const float x = memopt_i_times(level, absmax);
    const uint32_t u = memopt_i_bits_of(absmax);
    return (u & 0x7fffffff) > 0x7f800000 ? memopt_i_float_of(u | 0x400000) : x;
}

CU_DEVICE void words_of(uint32_t *w, const float *, const float *x, bool) {
    for (int k = 0; k < 4; ++k) w[k] = memopt_i_bits_of(x[k]);
}

CU_DEVICE void words_of(uint32_t *w, const bf16_t *, const float *x, bool odd) {
    uint32_t u[4];

    for (int k = 0; k < 4; ++k) u[k] = bf16_upper(memopt_i_bits_of(x[k]));
    if (odd)
        for (int k = 0; k < 4; ++k) u[k] = memopt_i_bits_of(x[k]); /* infinities and quiet NaN, which keep what fits */
    w[0] = u[0] >> 16 | (u[1] & 0xffff0000);
    w[1] = u[2] >> 16 | (u[3] & 0xffff0000);
}

/* A tile: blocks of the tensor, up to 8 groups of four a thread. Codes and absmax are asked for before anything is
   waited for. */
template <class T> static __global__ void __launch_bounds__(QUANT_THREADS) dequantize_kernel(dequant_task t) {
    MEMOPT_I_CUDA_SHARED(float, levels, [256]);
    const uint32_t tile = t.blocks * t.block;
    const size_t begin = (size_t)blockIdx.x * tile;
    const size_t left = t.n - begin;
    const uint32_t size = left < tile ? (uint32_t)left : tile;
    const float *const absmax = t.absmax + (size_t)blockIdx.x * t.blocks;
    const uint8_t *const from = t.codes + begin;
    T *const to = (T *)t.dst + begin;
    const bool whole = t.vector && size == QUANT_TILE;
    uint32_t codes[QUANT_FOURS];
    float max[QUANT_FOURS];
    CU_UNROLL for (int k = 0; k < QUANT_FOURS; ++k) {
        const uint32_t offset = (k * QUANT_THREADS + threadIdx.x) * 4;

        max[k] = 0;
        get<1, 1>(codes + k, from + offset, offset, size, whole || (t.vector && offset + 4 <= size));
        if (whole || offset < size) max[k] = absmax[(uint32_t)(((uint64_t)offset * t.reciprocal) >> 32)];
    }
    levels[threadIdx.x] = memopt_i_float_of(decode_bits(t.map, threadIdx.x));
    __syncthreads(); /* levels */
    CU_UNROLL for (int k = 0; k < QUANT_FOURS; ++k) {
        const uint32_t offset = (k * QUANT_THREADS + threadIdx.x) * 4;
        const bool odd = (memopt_i_bits_of(max[k]) & 0x7f800000) == 0x7f800000;
        uint32_t words[sizeof(T)];
        float x[4];

        for (int j = 0; j < 4; ++j) x[j] = memopt_i_times(levels[codes[k] >> 8 * j & 0xff], max[k]);
        if (odd)
            for (int j = 0; j < 4; ++j) x[j] = decode(levels[codes[k] >> 8 * j & 0xff], max[k]);
        words_of(words, to, x, odd);
        put<sizeof(T), sizeof(T)>(to + offset, words, offset, size, whole || (t.vector && offset + 4 <= size));
    }
}

/* ---- the host's side ---- */
/* All that can be wrong; floats are `width` bytes an element. */
PRUNED status_t quant_check(const void *floats, size_t width, const void *codes, const void *absmax, size_t n,
                            memopt_quant_map map, size_t *block) {
    size_t bytes, blocks;
    status_t s;

    if (!*block) *block = MEMOPT_I_QUANT_BLOCK;
    if (map != MEMOPT_QUANT_SIGNED && map != MEMOPT_QUANT_UNSIGNED && map != MEMOPT_QUANT_LINEAR)
        return MEMOPT_ERR_ARGUMENT;
    if (*block % 32 || *block > MEMOPT_I_QUANT_BLOCK_MAX) return MEMOPT_ERR_ARGUMENT;
    if (!n) return 0;
    s = pointer(floats, width);
    if (!s) s = pointer(codes, 1);
    if (!s) s = pointer(absmax, sizeof(float));
    if (s) return s;
    if (memopt_i_mul(n, width, &bytes) || bytes > (size_t)PTRDIFF_MAX) return MEMOPT_ERR_OVERFLOW;
    blocks = memopt_quantize_blocks(n, *block) * sizeof(float);
    s = no_overlap(floats, bytes, codes, n);
    if (!s) s = no_overlap(floats, bytes, absmax, blocks);
    return s ? s : no_overlap(codes, n, absmax, blocks);
}

/* Threads for a block: as few as hold it with eight groups of four each. */
PRUNED uint32_t quant_team(size_t block) {
    uint32_t team = 8;
    while (team * 4 * QUANT_FOURS < block) team *= 2;
    return team;
}

/* Passes of a CUDA block, where there are so many in all. */
PRUNED uint32_t quant_rounds(size_t passes) {
    return (uint32_t)memopt_i_max(memopt_i_min(passes / QUANT_PASSES, QUANT_ROUNDS), 1);
}

template <class T> static status_t quantize_launch(quant_task t, cudaStream_t stream) {
    const size_t pass = (size_t)(QUANT_THREADS / t.team) * (QUANT_FOURS / t.fours);
    if (!t.rounds) t.rounds = quant_rounds(memopt_i_ceil_div(t.blocks, pass));
    const size_t blocks = memopt_i_ceil_div(t.blocks, pass * t.rounds);
    enum { THREADS = QUANT_THREADS };

    if (t.block != 256) return CU_RUN((quantize_kernel<float, QUANT_ANY>), blocks, THREADS, 0, stream, t);
    if (t.map == MEMOPT_QUANT_UNSIGNED)
        return CU_RUN((quantize_kernel<T, QUANT_UNSIGNED>), blocks, THREADS, 0, stream, t);
    return CU_RUN((quantize_kernel<T, QUANT_SIGNED>), blocks, THREADS, 0, stream, t);
}

/* rounds 0: as many as the size wants; tests ask for others */
template <class T>
static status_t quantize(uint8_t *codes, float *absmax, const T *src, size_t n, memopt_quant_map map, size_t block,
                         uint32_t rounds, cudaStream_t stream) {
    const status_t s = quant_check(src, sizeof *src, codes, absmax, n, map, &block);
    const uint32_t vector = !((uintptr_t)src & (4 * sizeof *src - 1)) && !((uintptr_t)codes & 3);

    if (s) return s;
    if (!n) return ready();
    const quant_task t = { src, codes, absmax, n, memopt_quantize_blocks(n, block), (uint32_t)block,
                           quant_team(block), rounds, block <= 32 ? 1u : block <= 64 ? 2u : block <= 128 ? 4u : 8u,
                           (uint32_t)map, vector, sizeof *src < 4 };
    return quantize_launch<T>(t, stream);
}

template <class T> static status_t dequantize(T *dst, const uint8_t *codes, const float *absmax, size_t n,
                                              memopt_quant_map map, size_t block, cudaStream_t stream) {
    const status_t s = quant_check(dst, sizeof *dst, codes, absmax, n, map, &block);
    const uint32_t vector = !((uintptr_t)dst & (4 * sizeof *dst - 1)) && !((uintptr_t)codes & 3);

    if (s) return s;
    const dequant_task t = { dst, codes, absmax, n, (uint32_t)block,
                                      (uint32_t)(QUANT_TILE / block),
                                      0xffffffffu / (uint32_t)block + 1, (uint32_t)map, vector };
    return CU_RUN((dequantize_kernel<T>), memopt_i_ceil_div(n, t.blocks * block), QUANT_THREADS, 0, stream, t);
}

#ifndef MEMOPT_CUDA_NO_CONVERT
PUBLIC status_t api::memopt_cuda_quantize_f32(uint8_t *d_codes, float *d_absmax, const float *d_src, size_t n,
                                              memopt_quant_map map, size_t block, cudaStream_t stream) {
    return quantize(d_codes, d_absmax, d_src, n, map, block, 0, stream);
}

PUBLIC status_t api::memopt_cuda_quantize_bf16(uint8_t *d_codes, float *d_absmax, const uint16_t *d_src, size_t n,
                                               memopt_quant_map map, size_t block, cudaStream_t stream) {
    return quantize(d_codes, d_absmax, (const bf16_t *)d_src, n, map, block, 0, stream);
}

PUBLIC status_t api::memopt_cuda_dequantize_f32(float *d_dst, const uint8_t *d_codes, const float *d_absmax, size_t n,
                                                memopt_quant_map map, size_t block, cudaStream_t stream) {
    return dequantize(d_dst, d_codes, d_absmax, n, map, block, stream);
}

PUBLIC status_t api::memopt_cuda_dequantize_bf16(uint16_t *d_dst, const uint8_t *d_codes, const float *d_absmax,
                                                 size_t n, memopt_quant_map map, size_t block, cudaStream_t stream) {
    return dequantize((bf16_t *)d_dst, d_codes, d_absmax, n, map, block, stream);
}
#endif

/* @section cuda_fp8 : cuda_base api_cuda_fp8
   A matrix as 8-bit floats, in its own order and transposed, in one pass.
   Problem    A product of 8 bits wants its operands with the depth side by side, so backward wants them transposed:
              bytes that lie a row apart. A scale wants the largest magnitude before the first code is made.
   Idea       A block has a tile of 64 x 64. Codes go out as they are made, and to shared memory by columns, from where
              16 of a column at a time go out transposed. The largest magnitude is an atomic maximum of bits, which has
              no order. The scale's state is on the device: a kernel of one thread begins it, and the pass that measures
              looks there whether it is needed.
   Cost       3 bytes of bf16 read and written, 4 with the transposed, and 2 more where the scale is its own.
   Banks      A column of the tile has 68 bytes: the codes of a warp's spans, 8 columns apart in 4 rows, are two a
              bank. */

enum { FP8_BLOCK = 256, FP8_TILE = 64, FP8_PITCH = 68,
       FP8_TURNS = 4 };

PRUNED __global__ void __launch_bounds__(32) fp8_begin_kernel(memopt_fp8_scale *scale, int delayed) {
    if (!threadIdx.x) memopt_i_fp8_begin(scale, delayed);
}

/* The largest of a block's magnitudes, as bits, to the scale. All threads of the block call it. */
CU_DEVICE void fp8_add(memopt_fp8_scale *scale, uint32_t amax) {
    CU_UNROLL for (int far = 16; far; far /= 2) {
        const uint32_t other = __shfl_xor_sync(MEMOPT_I_CUDA_ALL, amax, far);
        if (other > amax) amax = other;
    }
    if (threadIdx.x % 32 == 0 && amax) atomicMax((unsigned *)&scale->amax, (unsigned)amax);
}

template <class T> static __global__ void __launch_bounds__(FP8_BLOCK)
fp8_measure_kernel(memopt_fp8_scale *scale, const T *x, size_t n, bool wide, bool bf16) {
    enum { N = 16 / sizeof(T), STEP = FP8_BLOCK * N, TURNS = FP8_TURNS };
    const size_t from = (size_t)blockIdx.x * (STEP * TURNS) + threadIdx.x * N;
    row_span<T, N> s[TURNS];
    uint32_t amax = 0;

    if (scale->basis >= 0) return; /* the whole grid: it has one */
    CU_UNROLL for (int k = 0; k < TURNS; ++k)
        span_get(&s[k], x + from + (size_t)k * STEP, left_of<N>(n, from + (size_t)k * STEP), wide);
    CU_UNROLL for (int k = 0; k < TURNS; ++k) {
        float v[N];

        span_open(v, s[k], bf16);
        CU_UNROLL for (int i = 0; i < N; ++i) amax = memopt_i_fp8_larger(amax, v[i]);
    }
    fp8_add(scale, amax);
}

typedef struct fp8_task {
    memopt_fp8 x;
    unsigned   tiles; /* of a row */
    bool       wide, wide_codes, wide_transposed, bf16; /* bf16: what half_t is */
} fp8_task;

/* 16 codes of a column of the tile, transposed. */
CU_DEVICE void fp8_turn(const fp8_task &t, const uint8_t *tile, size_t row, size_t column) {
    const unsigned c = threadIdx.x / 4;
    const unsigned r = threadIdx.x % 4 * 16;
    const unsigned left = column + c < t.x.columns ? left_of<16>(t.x.rows, row + r) : 0;
    const uint32_t *from = (const uint32_t *)(const void *)(tile + c * FP8_PITCH + r);
    uint32_t w[4];

    CU_UNROLL for (int i = 0; i < 4; ++i) w[i] = from[i];
    if (!left) return;
    put<1, 4>(t.x.transposed + (column + c) * t.x.rows + row + r, w, 0u, left, t.wide_transposed && left == 16);
}

/* A block for each tile, row after row of them. */
template <class T> static __global__ void __launch_bounds__(FP8_BLOCK) fp8_kernel(fp8_task t) {
    enum { N = 16 / sizeof(T), TILE = FP8_TILE, SPANS = TILE / N, PITCH = FP8_PITCH };

    MEMOPT_I_CUDA_SHARED(uint32_t, words, [TILE * PITCH / 4]);
    uint8_t *tile = (uint8_t *)words;
    const size_t row = (size_t)(blockIdx.x / t.tiles) * TILE;
    const size_t column = (size_t)(blockIdx.x % t.tiles) * TILE;
    const float now = memopt_i_fp8_now(t.x.scale, t.x.format);
    const float inverse = memopt_i_quotient(1.0f, now);
    const bool measures = t.x.scale->basis >= 0;
    uint32_t amax = 0;
    for (unsigned k = threadIdx.x; k < TILE * SPANS; k += FP8_BLOCK) {
        const unsigned r = k / SPANS;
        const unsigned c = k % SPANS * N;
        const unsigned left = row + r < t.x.rows ? left_of<N>(t.x.columns, column + c) : 0;
        const size_t at = (row + r) * t.x.columns + column + c;
        row_span<T, N> s;
        uint32_t w[N / 4] = { 0 };
        float x[N];

        span_get(&s, static_cast<const T *>(t.x.input) + at, left, t.wide);
        span_open(x, s, t.bf16);
        CU_UNROLL for (int i = 0; i < N; ++i) {
            const uint32_t code = memopt_i_fp8_code(x[i], inverse, t.x.format);

            amax = memopt_i_fp8_larger(amax, x[i]);
            tile[(c + i) * PITCH + r] = (uint8_t)code;
            w[i / 4] |= code << i % 4 * 8;
        }
        if (t.x.codes && left) put<1, N / 4>(t.x.codes + at, w, 0u, left, t.wide_codes && left == N);
    }
    if (measures) fp8_add(t.x.scale, amax);
    if (!blockIdx.x && !threadIdx.x) t.x.scale->scale = now;
    if (!t.x.transposed) return;
    __syncthreads(); /* the tile is there */
    fp8_turn(t, tile, row, column);
}

template <class T> static status_t fp8_run(const memopt_fp8 *x, cudaStream_t stream) {
    enum { N = 16 / sizeof(T), TILE = FP8_TILE };
    const size_t n = x->rows * x->columns;
    const T *in = static_cast<const T *>(x->input);
    fp8_task t;
    size_t blocks;
    status_t s;

    t.x = *x;
    t.bf16 = x->type == MEMOPT_TYPE_BF16;
    if ((s = grid_of(n ? x->columns : 1, TILE, &t.tiles)) != 0) return s;
    blocks = n ? memopt_i_ceil_div(x->rows, TILE) * t.tiles : 1; /* an empty one has a scale */
    t.wide = x->columns % N == 0 && !((uintptr_t)in & 15);
    t.wide_codes = x->columns % N == 0 && !((uintptr_t)x->codes & (N - 1));
    t.wide_transposed = x->rows % 16 == 0 && !((uintptr_t)x->transposed & 15);
    if (blocks > 0x7fffffff) return MEMOPT_ERR_OVERFLOW;
    s = CU_RUN(fp8_begin_kernel<>, 1, 32, 0, stream, x->scale, x->delayed);
    if (!s)
        s = CU_RUN(fp8_measure_kernel<T>, memopt_i_ceil_div(n, FP8_BLOCK * N * FP8_TURNS), FP8_BLOCK, 0, stream,
                   x->scale, in, n, !((uintptr_t)in & 15), t.bf16);
    if (!s) s = CU_RUN(fp8_kernel<T>, blocks, FP8_BLOCK, 0, stream, t);
    return s;
}

#ifndef MEMOPT_CUDA_NO_CONVERT
PUBLIC status_t api::memopt_cuda_fp8_quantize(const memopt_fp8 *x, cudaStream_t stream) {
    status_t s;

    if (!x) return MEMOPT_CUDA_ERR_NULL;
    if ((s = pointer(x->scale, 4)) != 0) return s;
    if (memopt_type_bytes(x->type) && x->rows && x->columns
        && (s = pointer(x->input, memopt_type_bytes(x->type))) != 0) return s;
    if ((s = (status_t)memopt_i_fp8_check(x)) != 0 || (s = ready()) != 0) return s;
    return CU_SIZED(x->type, fp8_run<T>(x, stream));
}
#endif
#endif /* groups */

#if MEMOPT_I_GROUPS & 0x04 /* for activations */
/* @section cuda_codec : cuda_quant cuda_number cuda_memory cuda_base api_cuda_codec
   Outputs of a tape in fewer bytes, on the device. What is rounded to what stands at `codec` in memopt.h.
   Problem    A tape with a lossy codec rounds every output right after its forward, kept or not, so rounding is in each
              step's way. Made of the twins at hand it is a copy and its way back: 10 bytes an element (bf16: 12), twice
              the launches, and a scratch for the copy. And the sign of a block's scale depends on its codes.
   Idea       Rounding is a pass in place: elements stay in registers from the first read to the only write. bf16 is an
              operation more for the kernel of `number`, 8 bits are the team of 8 threads and the table of `quant`, and
              then the levels of the codes, from shared memory, times the scale.
   Sign       The scale is negative where no element takes the level 1 under +absmax. Products by one number do not
              change the order of floats, so only the largest element can tell: it is looked up before anything is
              encoded, and the block is encoded once, with the inverse's sign right from the start.
   Not finite As integers, magnitudes from 0x7f800000 on. Such a block, and one that is too small, is multiplied by
              zero: its codes are those of zero then, without a way of its own.
   Ways       To quantise under either sign, choose and dequantise is 3 launches and 16 bytes an element; a pass in
              registers 1 launch and 8, and with the sign first one encoding. The copy is 5 bytes (bf16: 6) each way.
   Rounds     as in `quant`: in long arrays a CUDA block makes 2 to 8 passes with one copy of the tables.
   Trap       A device makes its own NaN of zero times NaN. The CPU's is kept; see decode(). */

enum {
    CODEC_TEAM = 8, /* threads that share a block */
    CODEC_TEAMS = QUANT_THREADS / CODEC_TEAM,
    CODEC_FOURS = MEMOPT_I_CODEC_BLOCK / (4 * CODEC_TEAM)
};

/* ---- bf16: for number_kernel ---- */
struct codec_bf16 {
    typedef float one;
    typedef float4 four;
    float *x;

    __device__ __forceinline__ void load(one &v, size_t i) const { v = x[i]; }
    __device__ __forceinline__ void store(const one &v, size_t i) const { x[i] = memopt_from_bf16(memopt_to_bf16(v)); }
    __device__ __forceinline__ void load(four &v, size_t i) const { v = *(const float4 *)(x + i); }

    __device__ __forceinline__ void store(const four &v, size_t i) const {
        uint32_t u[4], c[4];

        four_words(u, v);
        for (int k = 0; k < 4; ++k) c[k] = bf16_upper(u[k]) & 0xffff0000;
        if (not_finite(v.x, v.y, v.z, v.w))
            for (int k = 0; k < 4; ++k) c[k] = memopt_i_bf16_code(u[k], 0, 0) << 16;
        write<4>(x + i, c);
    }
};

/* ---- 8 bits ---- */
typedef struct codec_task {
    float *x, *scales;
    uint8_t *codes; /* the copy: not when rounding */
    size_t n, blocks;
    uint32_t rounds, vector;
} codec_task;

/* Bits of the largest float, and of the largest with its sign turned; as integers, negative floats are below zero. */
struct ends { int32_t up, down; };

CU_DEVICE void codec_more(ends *e, float x) {
    const int32_t up = (int32_t)memopt_i_bits_of(x);
    const int32_t down = (int32_t)(memopt_i_bits_of(x) ^ 0x80000000);
    e->up = e->up > up ? e->up : up;
    e->down = e->down > down ? e->down : down;
}

CU_DEVICE ends codec_ends(const float4 *x) {
    ends e = { 0, 0 };

    CU_UNROLL for (int k = 0; k < CODEC_FOURS; ++k) {
        codec_more(&e, x[k].x);
        codec_more(&e, x[k].y);
        codec_more(&e, x[k].z);
        codec_more(&e, x[k].w);
    }
    CU_UNROLL for (int o = CODEC_TEAM / 2; o; o /= 2) {
        const int32_t up = __shfl_xor_sync(MEMOPT_I_CUDA_ALL, e.up, o);
        const int32_t down = __shfl_xor_sync(MEMOPT_I_CUDA_ALL, e.down, o);
        e.up = e.up > up ? e.up : up;
        e.down = e.down > down ? e.down : down;
    }
    return e;
}

/* The scale of a block with these ends, and what its elements are multiplied with. */
CU_DEVICE float codec_scale(const uint32_t *bins, ends e, float *inverse) {
    const int32_t max = e.up > e.down ? e.up : e.down;
    const float absmax = memopt_i_float_of((uint32_t)max);
    const float factor = memopt_i_inverse(absmax);
    const uint32_t top = memopt_i_bits_of(memopt_i_times(memopt_i_float_of((uint32_t)e.up), factor));

    *inverse = 0;
    if (max >= 0x7f800000) return memopt_i_float_of(0x7fc00000);
    if (max < 0x0d800000) return 0; /* 2^-100 */
    if (index_of(bins, true, top) >> 24 == 128) {
        *inverse = factor;
        return absmax;
    }
    *inverse = -factor;
    return -absmax;
}

/* What four codes come back as. */
CU_DEVICE void codec_put(float *to, uint32_t offset, size_t end, const float *levels, uint32_t codes, float scale,
                         bool four) {
    float x[4];

    for (int j = 0; j < 4; ++j) x[j] = decode(levels[codes >> 8 * j & 0xff], scale);
    span_put_floats<float, 4>(to + offset, x, left_of<4>(end, offset), four);
}

/* Blocks go to the teams in turn. */
template <bool ROUND> static __global__ void __launch_bounds__(QUANT_THREADS) codec_kernel(codec_task t) {
    enum { count = SIGNED_BINS, block = MEMOPT_I_CODEC_BLOCK };

    MEMOPT_I_CUDA_SHARED(uint32_t, bins, [SIGNED_BINS]);
    MEMOPT_I_CUDA_SHARED(float, levels, [ROUND ? 256 : 1]);
    const size_t first = (size_t)blockIdx.x * CODEC_TEAMS * t.rounds + threadIdx.x / CODEC_TEAM;
    const uint32_t lane = threadIdx.x % CODEC_TEAM;
    const bool whole = t.vector && (blockIdx.x + (size_t)1) * CODEC_TEAMS * t.rounds * block <= t.n;
    float4 x[CODEC_FOURS];
    float inverse;
    for (uint32_t round = 0; round < t.rounds; ++round) {
        const size_t b = first + (size_t)round * CODEC_TEAMS;
        const uint32_t end = b < t.blocks ? (uint32_t)memopt_i_min(t.n - b * block, block) : 0;
        float *const at = t.x + b * block;

        CU_UNROLL for (int k = 0; k < CODEC_FOURS; ++k) {
            const uint32_t offset = (k * CODEC_TEAM + lane) * 4;
            x[k] = four_of_each(at, offset, end, whole || (t.vector && offset + 4 <= end));
        }
        if (round == 0) { /* tables come while the numbers are on their way */
            for (int i = threadIdx.x; i < count; i += QUANT_THREADS) bins[i] = signed_bins<false>()[i];
            if (ROUND) levels[threadIdx.x] = memopt_i_float_of(decode_bits(MEMOPT_QUANT_SIGNED, threadIdx.x));
            __syncthreads(); /* bins, levels */
        }
        const float scale = codec_scale(bins, codec_ends(x), &inverse);
        if (!ROUND && end && lane == 0) t.scales[b] = scale;
        scale_fours<CODEC_FOURS>(x, inverse);
        CU_UNROLL for (int k = 0; k < CODEC_FOURS; ++k) {
            const uint32_t offset = (k * CODEC_TEAM + lane) * 4;
            const uint32_t codes = encode(bins, true, x[k]);
            const bool four = whole || (t.vector && offset + 4 <= end);

            if (ROUND) codec_put(at, offset, end, levels, codes, scale, four);
            else put<1, 1>(t.codes + b * block + offset, &codes, offset, end, four);
        }
    }
}

/* ---- the host's side: `copy` is NULL when rounding; rounds 0: as many as the size wants, tests ask for others ---- */
PRUNED status_t codec_encode(float *x, size_t n, void *copy, uint32_t rounds, cudaStream_t stream) {
    codec_task t;
    size_t grid;
    status_t s = pointer(x, sizeof *x);

    if (!s) s = pointer_if(copy, sizeof(float));
    const unsigned threads = QUANT_THREADS;
    t.x = x;
    t.n = n;
    t.blocks = memopt_quantize_blocks(n, MEMOPT_I_CODEC_BLOCK);
    t.scales = (float *)copy;
    t.codes = copy ? (uint8_t *)copy + t.blocks * sizeof(float) : NULL;
    if (!s) s = no_overlap(x, n * sizeof *x, copy, n + t.blocks * sizeof(float));
    if (s) return s;
    t.rounds = rounds ? rounds : quant_rounds(t.blocks / CODEC_TEAMS);
    t.vector = !((uintptr_t)x & 15);
    grid = memopt_i_ceil_div(t.blocks, (size_t)CODEC_TEAMS * t.rounds);
    if (copy) return CU_RUN(codec_kernel<false>, grid, threads, 0, stream, t);
    return CU_RUN(codec_kernel<true>, grid, threads, 0, stream, t);
}

PRUNED status_t codec_round_bf16(float *x, size_t n, cudaStream_t stream) {
    const number_arrays arrays = { { x, NULL, NULL }, { sizeof *x, 0, 0 } };
    const codec_bf16 op = { x };
    return number_run(op, &arrays, n, 0, 0, stream);
}

PRUNED status_t codec_plain(void *to, const void *from, size_t bytes, cudaStream_t stream) {
    status_t s = !to || !from ? (status_t)MEMOPT_CUDA_ERR_NULL : 0;
    if (!s) s = no_overlap(to, bytes, from, bytes);
    if (!s) s = ready();
    return s ? s : taken(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

/* The twin of memopt_i_codec_run. */
PRUNED status_t codec_run(memopt_codec_op op, memopt_codec codec, void *value, size_t bytes, void *copy,
                          cudaStream_t stream) {
    float *const x = (float *)value;
    const size_t n = bytes / sizeof *x;

    if ((unsigned)op > MEMOPT_CODEC_OP_DECODE || (unsigned)codec > MEMOPT_CODEC_8BIT) return MEMOPT_ERR_ARGUMENT;
    if (!bytes) return ready();
    if (!memopt_i_codec_is_lossy(codec, bytes)) {
        if (op == MEMOPT_CODEC_OP_ROUND) return ready(); /* it is as it stays */
        return op == MEMOPT_CODEC_OP_ENCODE ? codec_plain(copy, value, bytes, stream)
                                        : codec_plain(value, copy, bytes, stream);
    }
    if (op == MEMOPT_CODEC_OP_ROUND)
        return codec == MEMOPT_CODEC_BF16 ? codec_round_bf16(x, n, stream) : codec_encode(x, n, NULL, 0, stream);
    if (!copy) return MEMOPT_CUDA_ERR_NULL;
    if (codec == MEMOPT_CODEC_BF16)
        return op == MEMOPT_CODEC_OP_ENCODE ? number_narrow<MEMOPT_I_BF16>((uint16_t *)copy, x, n, 0, stream)
                                            : number_widen<MEMOPT_I_BF16>(x, (const uint16_t *)copy, n, stream);
    if (op == MEMOPT_CODEC_OP_ENCODE) return codec_encode(x, n, copy, 0, stream);
    const size_t scales = memopt_quantize_blocks(n, MEMOPT_I_CODEC_BLOCK) * sizeof(float);
    return dequantize(x, (const uint8_t *)copy + scales, (const float *)copy, n, MEMOPT_QUANT_SIGNED,
                       MEMOPT_I_CODEC_BLOCK, stream);
}

PRUNED memopt_status codec_call(void *user, memopt_codec_op op, memopt_codec codec, void *value,
                                size_t bytes, void *copy) {
    memopt_cuda_codec *const device_codec = (memopt_cuda_codec *)user;
    const status_t s = codec_run(op, codec, value, bytes, copy, device_codec->stream);
    if (s) device_codec->status = s;
    return memopt_cuda_to_status(s);
}

PUBLIC status_t api::memopt_cuda_codec_make(memopt_cuda_codec *device_codec, memopt_device_codec *out,
                                            cudaStream_t stream) {
    if (!device_codec || !out) return MEMOPT_CUDA_ERR_NULL;
    device_codec->stream = stream;
    device_codec->status = 0;
    out->run_fn = codec_call;
    out->user = device_codec;
    return 0;
}
#endif /* groups */

#if MEMOPT_I_GROUPS & 0x02 /* for numbers */
/* @section cuda_optim_kernels : cuda_base
   A step over slices of tensors: every format is loaded into registers, stepped, and stored, in one pass.
   Problem    The step itself is short. AdamW with floats moves 28 bytes an element (16 read, 12 written), with 8-bit
              states 16; all else is loss. A model is hundreds of tensors, many of them tiny, and an 8-bit block can be
              encoded only when all of it has been stepped.
   Ways       (tests/bench/results/cuda.md has the figures) Decode, step and encode are one kernel: moments stay in
              registers between. A table of 24 slices is the kernel's argument; a block finds its own by 5 comparisons,
              and nothing is uploaded. Four elements an access, all loads of a thread before its first result.
              8-bit blocks of 256, the usual ones: a warp does a block alone, and its largest values are found without a
              barrier. Other sizes have three: 32 elements (8 lanes) are joined by 3 shuffles, then by an atomicMax in
              shared memory, which has no order. Thread blocks of 128 where a warp works alone: they end and load their
              tables one by one, and more of them fit the registers.
              An 8-bit step is bound by instructions. So eight elements are stepped side by side: a root and a quotient
              are 4 and 5 instructions where the numbers are in the middle of the range, and are looked at together;
              what nvcc makes looks at each, and jumps twice an element. Second moments are compared by their bits, two
              at once, and tell of the gradients as well. Levels are floats at a byte offset, two instructions and a
              lookup; the octaves' table is 32 words in 32 banks. Two lanes share the words of noise. A warp asks the
              second-level cache for its next block before it steps this one. Whole blocks have a loop of their own,
              which all warps go round as often, so that nothing is provided for warps that part.
   Formats    Those of weights and gradients, and the kind, are a branch for four elements that all threads take alike;
              only AdamW over floats, AdamW in 8 bits over floats or bfloat16, and Muon are compiled by themselves. 11
              kernels instead of 350. Where all kinds are in one, all four are stepped, and those put back that may not
              be.
   Bits       The formulas are the kernels of memopt.h on one element, AdamW's once more for four and eight. A gradient
              that is not finite leaves its own element alone, as on the CPU, where the group is then done again one by
              one.
              Which NaN a weight that is one becomes is the processor's choice.
   Invariant  A thread writes what it has read, and nothing else: a slice may end anywhere, and its last vector, or all
              of them where an array is not aligned to its vectors, go element by element.
   Trap       A pointer into the table, which is the kernel's argument, makes nvcc copy all of it into local memory,
              unless it is a __grid_constant__. A moment that a kind does not have has no scales in any format. */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#  define MEMOPT_I_CUDA_OPTIM_RESIDENT 5 /* blocks that the registers shall suffice for; with 6 it would spill there */
#  define MEMOPT_I_CUDA_OPTIM_BF16     6 /* where weights and gradients are bfloat16, which are half as many words */
#else
#  define MEMOPT_I_CUDA_OPTIM_RESIDENT 7
#  define MEMOPT_I_CUDA_OPTIM_BF16     8
#endif

/* families of kinds; ANY: a kernel that asks the table, which names none of Muon's: the momentum, which writes u where
   others have weights, and the step of weights by a u that stands where others have the momentum */
enum { OPTIM_ANY = -1, OPTIM_ADAM, OPTIM_LAMB, OPTIM_SGD, OPTIM_LION,
       OPTIM_ADAFACTOR, OPTIM_RMSPROP, OPTIM_MUON, OPTIM_MUON_WEIGHTS };

#ifdef MEMOPT_CUDA_ONLY_ADAMW
enum { OPTIM_OTHERS = OPTIM_ADAM };
#else
enum { OPTIM_OTHERS = OPTIM_ANY };
#endif

/* formats of weights and gradients that the compiler knows, of AdamW; MIXED: asked of the table */
enum { OPTIM_MIXED, OPTIM_F32, OPTIM_BF16 };

/* four elements: some may not be there, or not be aligned; all are; all of the warp's are, from a multiple of 32 on */
enum { OPTIM_SOME, OPTIM_WHOLE, OPTIM_TOGETHER };

enum { OPTIM_THREADS = 256, OPTIM_TILE = 2048, /* elements, where no moment is coded */
       OPTIM_CODED = 4096,    /* at most, in whole 8-bit blocks */
       OPTIM_CODED_THREADS = 128, /* where a warp does an 8-bit block */
       OPTIM_ROUNDS = 8,      /* blocks of 256 that a warp does in turn there */
       OPTIM_APART = 128,     /* elements between both vectors of a lane there */
       OPTIM_TURN = 1024,     /* elements that the warps of a thread block do at once there */
       OPTIM_SLICES = 24, OPTIM_RULES = 5 };

/* The front of the scratch, on the device. */
struct optim_control {
    unsigned long long skipped, tensor, first; /* the slice that stopped a fused step */
    uint32_t stopped;
};

/* in `stopped`; a fused step; all of it */
enum { OPTIM_STOPPED = 1, OPTIM_LEFT_OUT = 2 };

struct optim_codes { /* of both moments: levels and octaves */
    float level[2][256], grid[2][32];
};

/* What the rule of a tensor has of things that the device knows: the factor, the step's number and rate. */
struct optim_terms {
    float4       gradient; /* limit, factor, g1, g2 */
    float4       step;     /* step, decay, ic1, ic2 */
    double       rate;     /* of a tensor that is measured */
    memopt_noise noise[MEMOPT_I_NOISES];
    float        b2;       /* Adafactor's */
};

struct optim_slice {
    void       *weights, *extra;
    const void *gradients;
    void       *moment[2];  /* Adafactor: [1] is the rows' multipliers, or V of a vector */
    float      *scale[2];   /* Adafactor: [1] is the columns' multipliers, every other float */
    double     *sums;       /* measuring: of its first chunk */
    uint64_t    columns;    /* Adafactor: of a matrix */
    uint64_t    place, count; /* of its first element in the whole tensor, for noise; elements */
    memopt_noise noise[MEMOPT_I_NOISES];
    uint32_t    first_tile, tensor, rule, aligned; /* aligned: whole vectors at once */
};

struct optim_table {
    optim_slice slice[OPTIM_SLICES];
    memopt_i_update_rule      rule[OPTIM_RULES];
    optim_control     *control;
    const optim_codes *codes;
    const float *pace;      /* of each tensor that was measured */
    const optim_terms *by;  /* of each tensor; NULL: the rules have it */
    uint64_t     chunk;
    uint32_t     count, rules, kind, family, weights, gradients, state, moments, block, tile;
    uint32_t     stops;     /* control->stopped is looked at */
};

static_assert(sizeof(optim_table) <= 4000, "the argument of a kernel");

/* Four elements as they are in memory: floats, or two words of 16 bits each. noise: of
   weights that are rounded by their places. */
struct optim_raw { uint32_t w[4], extra[2], g[4], m[4], v[4], noise[2]; };
struct optim_four { float m[4], v[4]; };

CU_DEVICE int optim_stopped(const optim_table &t) { return t.stops && t.control->stopped; }

/* Before something is measured: is the whole step left out? The sums stay as begin has left them. */
PRUNED __device__ __forceinline__ int optim_left_out(const optim_terms *by, const optim_control *control) {
    return by && control->stopped == OPTIM_LEFT_OUT;
}

/* With what only the device knows. */
CU_DEVICE void optim_by(memopt_i_update_rule *r, const optim_terms *by, int kind) {
    if (!by) return;
    const float4 x = by->gradient;
    const float4 y = by->step;
    r->limit = x.x;
    r->factor = x.y;
    r->g1 = x.z;
    r->g2 = x.w;
    if (kind == OPTIM_ADAFACTOR) r->b2 = by->b2;
    r->step = y.x;
    r->decay = y.y;
    r->ic1 = y.z;
    r->ic2 = y.w;
}

CU_DEVICE const optim_terms *optim_by_at(const optim_table &t, int k) { return t.by ? t.by + t.slice[k].tensor : NULL; }

CU_DEVICE const memopt_noise &optim_noise_of(const optim_table &t, int k, int which) {
    return t.by ? t.by[t.slice[k].tensor].noise[which] : t.slice[k].noise[which];
}

/* The family of a kind: KIND where the compiler knows it. */
template <int KIND> CU_DEVICE int optim_kind(const optim_table &t) { return KIND == OPTIM_ANY ? (int)t.family : KIND; }

/* With what was measured. */
template <int KIND, int FORM> CU_DEVICE memopt_i_update_rule optim_rule(const optim_table &t, int k) {
    memopt_i_update_rule r = t.rule[t.slice[k].rule];
    const int kind = optim_kind<KIND>(t);

    optim_by(&r, optim_by_at(t, k), kind);
    if (FORM) { /* it is AdamW, and the compiler may know it */
        r.coupled = r.decay_after = 0;
        r.weight_limit = 0;
    }
    if (kind == OPTIM_LAMB || kind == OPTIM_ADAFACTOR) r.step = t.pace[t.slice[k].tensor];
    if (kind == OPTIM_SGD && t.kind == MEMOPT_OPTIM_LARS) {
        r.g1 = t.pace[t.slice[k].tensor];
        r.step = 1;
    }
    return r;
}

/* ---- loads and stores of four elements of SIZE bytes; whole: they are all there, and aligned ---- */
template <int SIZE>
CU_DEVICE void optim_get(uint32_t *raw, const void *p, uint64_t i, unsigned plus, uint64_t n, int whole) {
    get<SIZE, SIZE>(raw, (const char *)p + (i + plus) * SIZE, i + plus, n, whole);
}

template <int SIZE>
CU_DEVICE void optim_put(void *p, const uint32_t *raw, uint64_t i, unsigned plus, uint64_t n, int whole) {
    put<SIZE, SIZE>((char *)p + (i + plus) * SIZE, raw, i + plus, n, whole);
}

CU_DEVICE void optim_put32(void *p, const float *x, uint64_t i, unsigned plus, uint64_t n, int whole) {
    uint32_t raw[4];

    CU_UNROLL for (int e = 0; e < 4; ++e) raw[e] = memopt_i_float_bits(x[e]);
    optim_put<4>(p, raw, i, plus, n, whole);
}

CU_DEVICE void optim_put16(void *p, const uint32_t *code, uint64_t i, unsigned plus, uint64_t n, int whole) {
    const uint32_t raw[2] = { code[0] | code[1] << 16, code[2] | code[3] << 16 };
    optim_put<2>(p, raw, i, plus, n, whole);
}

CU_DEVICE void optim_put_nearest(void *p, const float *x, uint64_t i, unsigned plus, uint64_t n, int whole) {
    const bf16_t *type = NULL;
    const uint32_t raw[2] = { two_exact(type, x[0], x[1]), two_exact(type, x[2], x[3]) };
    optim_put<2>(p, raw, i, plus, n, whole);
}

CU_DEVICE void optim_put8(void *p, uint32_t four, uint64_t i, unsigned plus, uint64_t n, int whole) {
    optim_put<1>(p, &four, i, plus, n, whole);
}

CU_DEVICE uint16_t optim_half(const uint32_t *raw, int e) { return (uint16_t)(raw[e / 2] >> 16 * (e % 2)); }

/* The lower halves of both next to each other, or, in the lower half, their lowest bytes; and the upper halves. */
CU_DEVICE uint32_t optim_lower(uint32_t a, uint32_t b, int bits) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(a, b, bits == 8 ? 0x7740 : 0x5410);
#else
    return bits == 8 ? (a & 255) | (b & 255) << 8 : (a & 0xffff) | b << 16;
#endif
}

CU_DEVICE uint32_t optim_upper(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(a, b, 0x7632);
#else
    return a >> 16 | (b & 0xffff0000);
#endif
}

/* The bits that round four elements, 16 each. */
CU_DEVICE void optim_noise4(uint32_t *bits, const memopt_noise &noise, uint64_t place) {
    CU_UNROLL for (unsigned e = 0; e < 4; e += 2) bits[e / 2] =
        optim_lower(memopt_i_noise16(noise, place + e), memopt_i_noise16(noise, place + e + 1), 16);
}

/* Of two vectors of a lane, APART elements from each other, where all lanes of the warp have both, and the first lane
   begins at a multiple of 32. 16 places on are the other halves of the same words, see memopt_i_noise32(): these are
   those of the lane four further. So one of them makes the words of the first vector, the other those of the second. */
template <unsigned APART>
CU_DEVICE void optim_noise8(uint32_t (*bits)[2], const memopt_noise &noise, uint64_t place) {
    const unsigned second = (unsigned)place & 16;
    const uint64_t at = ((place & ~(uint64_t)3) | 16) + second * (APART / 16);
    uint32_t word[4];
    int k;

    CU_UNROLL for (k = 0; k < 4; ++k) word[k] = memopt_i_noise32(noise, at | (unsigned)k);
    CU_UNROLL for (k = 0; k < 2; ++k) {
        const uint32_t low = optim_lower(word[2 * k], word[2 * k + 1], 16);
        const uint32_t high = optim_upper(word[2 * k], word[2 * k + 1]);
        const uint32_t given = __shfl_xor_sync(MEMOPT_I_CUDA_ALL, second ? low : high, 4);

        bits[0][k] = second ? given : low;
        bits[1][k] = second ? high : given;
    }
}

CU_DEVICE float optim_power(int e) { return memopt_i_bits_float((uint32_t)(127 + e) << 23); } /* of 2 */

/* N floats as bfloat16, rounded by such bits, two a word. */
template <int N> CU_DEVICE void optim_noisy(uint32_t *raw, const float *x, const uint32_t *bits) {
    const float large = optim_power(127); /* what is above is rounded to nearest, or infinite, or NaN */
    uint32_t c[N];
    int small = 1;
    int e;

    CU_UNROLL for (e = 0; e < N; ++e) {
        c[e] = memopt_i_float_bits(x[e]) + (e % 2 ? bits[e / 2] >> 16 : bits[e / 2] & 0xffff);
        small &= (int)(fabsf(x[e]) < large);
    }
    if (!small)
        CU_UNROLL for (e = 0; e < N; ++e)
            c[e] = memopt_i_bf16_code(memopt_i_float_bits(x[e]), 1, bits[e / 2] << (e % 2 ? 0 : 16)) << 16;
    CU_UNROLL for (e = 0; e < N; e += 2) raw[e / 2] = optim_upper(c[e], c[e + 1]);
}

/* ---- what a kind has, where the compiler knows it ---- */
CU_DEVICE int optim_has_first(int kind, uint32_t moments) {
    if (kind == OPTIM_RMSPROP) return moments > 1;
    return kind != OPTIM_SGD && kind != OPTIM_ADAFACTOR ? 1 : moments > 0;
}

/* The same where a moment is coded: that is the first, unless there is a second. */
CU_DEVICE int optim_codes_first(int kind, uint32_t moments) { return kind == OPTIM_RMSPROP ? moments > 1 : 1; }

CU_DEVICE int optim_has_second(int kind) { return kind == OPTIM_ADAM || kind == OPTIM_LAMB || kind == OPTIM_RMSPROP; }

template <int FORM> CU_DEVICE uint32_t optim_weights(const optim_table &t) {
    return FORM == OPTIM_F32 ? (uint32_t)MEMOPT_I_WEIGHTS_F32 : FORM ? (uint32_t)MEMOPT_I_WEIGHTS_BF16 : t.weights;
}

template <int FORM> CU_DEVICE uint32_t optim_gradients(const optim_table &t) {
    return FORM == OPTIM_F32 ? (uint32_t)MEMOPT_TYPE_F32 : FORM ? (uint32_t)MEMOPT_TYPE_BF16 : t.gradients;
}

/* Everything of four elements, nothing of it looked at: all of it is under way before the first is needed. */
template <int KIND, int CODED, int FORM>
CU_DEVICE void optim_load(optim_raw *raw, const optim_table &t, int k, uint64_t i, unsigned plus, int whole) {
    const optim_slice &s = t.slice[k];
    const uint64_t n = s.count;
    const uint32_t weights = optim_weights<FORM>(t);
    const int kind = optim_kind<KIND>(t);
    const int first = optim_has_first(kind, t.moments);
    const int second = optim_has_second(kind);

    if (optim_gradients<FORM>(t) == MEMOPT_TYPE_F32) optim_get<4>(raw->g, s.gradients, i, plus, n, whole);
    else optim_get<2>(raw->g, s.gradients, i, plus, n, whole);
    if (KIND != OPTIM_MUON) {
        if (weights == MEMOPT_I_WEIGHTS_F32 || weights == MEMOPT_I_WEIGHTS_F32_BF16)
            optim_get<4>(raw->w, s.weights, i, plus, n, whole);
        else optim_get<2>(raw->w, s.weights, i, plus, n, whole);
        if (weights == MEMOPT_I_WEIGHTS_SPLIT) optim_get<2>(raw->extra, s.extra, i, plus, n, whole);
    }
    if (CODED) {
        if (first) optim_get<1>(raw->m, s.moment[0], i, plus, n, whole);
        if (second) optim_get<1>(raw->v, s.moment[1], i, plus, n, whole);
    } else if (!FORM && t.state == MEMOPT_STATE_BF16) {
        if (first) optim_get<2>(raw->m, s.moment[0], i, plus, n, whole);
        if (second) optim_get<2>(raw->v, s.moment[1], i, plus, n, whole);
    } else {
        if (first) optim_get<4>(raw->m, s.moment[0], i, plus, n, whole);
        if (second) optim_get<4>(raw->v, s.moment[1], i, plus, n, whole);
    }
    if (kind == OPTIM_ADAFACTOR && !s.columns) optim_get<4>(raw->v, s.moment[1], i, plus, n, whole);
}

/* Four at once, so that a format is asked for once. */
CU_DEVICE void optim_weights4(float *w, uint32_t format, const optim_raw &raw) {
    int e;

    if (format == MEMOPT_I_WEIGHTS_BF16)
        CU_UNROLL for (e = 0; e < 4; ++e) w[e] = memopt_from_bf16(optim_half(raw.w, e));
    else if (format == MEMOPT_I_WEIGHTS_SPLIT)
        CU_UNROLL for (e = 0; e < 4; ++e)
            w[e] = memopt_i_bits_float(memopt_i_join(optim_half(raw.w, e), optim_half(raw.extra, e)));
    else CU_UNROLL for (e = 0; e < 4; ++e) w[e] = memopt_i_bits_float(raw.w[e]);
}

CU_DEVICE void optim_gradients4(float *x, uint32_t format, const uint32_t *g) {
    int e;

    if (format == MEMOPT_TYPE_BF16) CU_UNROLL for (e = 0; e < 4; ++e) x[e] = memopt_from_bf16(optim_half(g, e));
    else if (format == MEMOPT_TYPE_F16) CU_UNROLL for (e = 0; e < 4; ++e) x[e] = from_f16(optim_half(g, e));
    else CU_UNROLL for (e = 0; e < 4; ++e) x[e] = memopt_i_bits_float(g[e]);
}

/* What rounds both vectors of a lane, made while they are on their way. first: the place of the first one. */
template <unsigned APART>
CU_DEVICE void optim_noises(optim_raw *raw, const memopt_noise &noise, uint64_t first, int all) {
    uint32_t bits[2][2];
    int j;

    if (all == OPTIM_TOGETHER) optim_noise8<APART>(bits, noise, first);
    else CU_UNROLL for (j = 0; j < 2; ++j) optim_noise4(bits[j], noise, first + APART * (unsigned)j);
    CU_UNROLL for (j = 0; j < 2; ++j) {
        raw[j].noise[0] = bits[j][0];
        raw[j].noise[1] = bits[j][1];
    }
}

CU_DEVICE void optim_store_exact(const optim_table &t, int k, uint32_t format, const float *w, uint64_t i,
                                 unsigned plus, int whole) {
    const optim_slice &s = t.slice[k];
    uint32_t code[4];
    int e;

    if (format == MEMOPT_I_WEIGHTS_F32 || format == MEMOPT_I_WEIGHTS_F32_BF16)
        optim_put32(s.weights, w, i, plus, s.count, whole);
    if (format == MEMOPT_I_WEIGHTS_F32) return;
    if (format == MEMOPT_I_WEIGHTS_F32_BF16) {
        optim_put_nearest(s.extra, w, i, plus, s.count, whole);
        return;
    }
    CU_UNROLL for (e = 0; e < 4; ++e) code[e] = memopt_i_float_bits(w[e]) & 0xffff;
    optim_put16(s.extra, code, i, plus, s.count, whole);
    CU_UNROLL for (e = 0; e < 4; ++e) code[e] = memopt_i_split_high(memopt_i_float_bits(w[e]));
    optim_put16(s.weights, code, i, plus, s.count, whole);
}

template <int VECTORS>
CU_DEVICE void optim_store_weights(const optim_table &t, int k, uint32_t format, const float *w, const optim_raw *raw,
                                   uint64_t i, unsigned plus, int whole) {
    uint32_t bits[2 * VECTORS], code[2 * VECTORS];
    int j;

    if (format != MEMOPT_I_WEIGHTS_BF16) {
        CU_UNROLL for (j = 0; j < VECTORS; ++j)
            optim_store_exact(t, k, format, w + 4 * j, i, plus + (unsigned)j * OPTIM_APART, whole);
        return;
    }
    CU_UNROLL for (j = 0; j < 2 * VECTORS; ++j) bits[j] = raw[j / 2].noise[j % 2];
    optim_noisy<4 * VECTORS>(code, w, bits);
    CU_UNROLL for (j = 0; j < VECTORS; ++j)
        optim_put<2>(t.slice[k].weights, code + 2 * j, i, plus + (unsigned)j * OPTIM_APART, t.slice[k].count, whole);
}

/* Muon's u of four elements, in what is multiplied: floats, or bfloat16 to nearest. */
CU_DEVICE void optim_store_u(const optim_table &t, int k, const float *u, uint64_t i, unsigned plus, int whole) {
    if (t.weights == MEMOPT_I_WEIGHTS_F32) optim_put32(t.slice[k].weights, u, i, plus, t.slice[k].count, whole);
    else optim_put_nearest(t.slice[k].weights, u, i, plus, t.slice[k].count, whole);
}

/* ---- one element ---- */
struct optim_element {
    float w, g, m, v, u;
    float scale_m, scale_v, row, column; /* of codes; Adafactor: multipliers of a matrix */
    int   root, first, factored;
};

CU_DEVICE int optim_refused(const memopt_i_update_rule &r, float g, float w) {
    return !memopt_i_v1_finite(&g, 1, r.limit) || (r.weight_limit > 0 && !memopt_i_v1_finite(&w, 1, r.weight_limit));
}

template <int KIND> CU_DEVICE void optim_one(const memopt_i_update_rule &rule, optim_element *x) {
    const memopt_i_update_rule *r = &rule;
    memopt_i_tile q;

    q.w = &x->w;
    q.g = &x->g;
    q.old_m = q.m = &x->m;
    q.old_v = q.v = &x->v;
    q.u = &x->u;
    q.scale_m = x->scale_m;
    q.scale_v = x->scale_v;
    q.root = x->root;
    q.in_memory = 0;
    q.count = 1;
    if (KIND == OPTIM_ADAM || KIND == OPTIM_LAMB) memopt_i_v1_moments(r, &q);
    if (KIND == OPTIM_ADAM) memopt_i_v1_update(r, &q);
    if (KIND == OPTIM_LAMB) memopt_i_v1_direction(r, &q);
    if (KIND == OPTIM_LION) memopt_i_v1_lion(r, &q);
    if (KIND == OPTIM_MUON) memopt_i_v1_sgd(r, &q);
    if (KIND == OPTIM_MUON_WEIGHTS) q.u = &x->m;
    if (KIND == OPTIM_SGD) {
        if (x->first) memopt_i_v1_sgd(r, &q);
        else {
            q.m = NULL;
            memopt_i_v1_sgd(r, &q);
        }
    }
    if (KIND == OPTIM_RMSPROP) {
        if (x->first) memopt_i_v1_rmsprop(r, &q);
        else {
            q.m = NULL;
            memopt_i_v1_rmsprop(r, &q);
        }
    }
    if (KIND == OPTIM_ADAFACTOR) {
        if (x->factored) {
            q.old_v = &x->column;
            q.scale_v = x->row;
            memopt_i_v1_adafactor_part(r, &q);
        } else {
            q.scale_v = r->step;
            memopt_i_v1_adafactor_whole(r, &q);
        }
        if (x->first) memopt_i_v1_adafactor_finish(r, &q);
        else {
            q.m = NULL;
            memopt_i_v1_adafactor_finish(r, &q);
        }
    }
    if (KIND != OPTIM_ADAM && KIND != OPTIM_ADAFACTOR && KIND != OPTIM_MUON) memopt_i_v1_axpy(r, &q);
}

/* ---- root and quotient of numbers in the middle of the range, which need no look at each ---- */
/* 1 / root of x, and 1 / x, to some bits */
#if defined(__CUDA_ARCH__)
CU_DEVICE float optim_near_inverse_root(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

CU_DEVICE float optim_near_inverse(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#else
CU_DEVICE float optim_near_inverse_root(float x) { return 1 / sqrtf(x); }
CU_DEVICE float optim_near_inverse(float x) { return 1 / x; }
#endif

/* IEEE's, by the instructions that nvcc makes of both where its own look lets them pass: x is from 2^-100 to 2^100. */
CU_DEVICE float optim_root(float x) {
    const float y = optim_near_inverse_root(x);
    const float s = memopt_i_times(x, y);
    return fmaf(fmaf(-s, s, x), memopt_i_times(y, 0.5f), s);
}

/* a from 2^-60 to 2^60 in magnitude, b as well */
CU_DEVICE float optim_quotient(float a, float b) {
    const float rough = optim_near_inverse(b);
    const float y = fmaf(fmaf(-b, rough, 1), rough, rough);
    const float q = memopt_i_times(a, y);
    return fmaf(fmaf(-b, q, a), y, q);
}

template <int N> CU_DEVICE float optim_minimum(const float *x) {
    float minimum = fabsf(x[0]);
    CU_UNROLL for (int e = 1; e < N; ++e) minimum = fminf(minimum, fabsf(x[e]));
    return minimum;
}

template <int N> CU_DEVICE float optim_maximum(const float *x) {
    float maximum = fabsf(x[0]);
    CU_UNROLL for (int e = 1; e < N; ++e) maximum = fmaxf(maximum, fabsf(x[e]));
    return maximum;
}

/* The same of numbers that are not negative, by their bits: a processor takes two at once. A NaN is above all. */
template <int N> CU_DEVICE uint32_t optim_minimum_bits(const float *x) {
    uint32_t minimum = memopt_i_float_bits(x[0]);
    CU_UNROLL for (int e = 1; e < N; ++e) minimum = min(minimum, memopt_i_float_bits(x[e]));
    return minimum;
}

template <int N> CU_DEVICE uint32_t optim_maximum_bits(const float *x) {
    uint32_t maximum = memopt_i_float_bits(x[0]);
    CU_UNROLL for (int e = 1; e < N; ++e) maximum = max(maximum, memopt_i_float_bits(x[e]));
    return maximum;
}

/* From `from` to `to`, without the branch that && would be. */
CU_DEVICE int optim_within(float least, float most, float from, float to) {
    return (int)(least >= from) & (int)(most <= to);
}

/* Is a divisor within 2^-60 and 2^60 where v is within 2^-100 and 2^100? */
CU_DEVICE int optim_adam_known(const memopt_i_update_rule &r) {
    return optim_within(r.ic2, r.ic2, optim_power(-9), optim_power(9)) & optim_within(r.eps, r.eps, 0, 1);
}

/* Does v tell of every gradient that is refused? Products rise with their factors: where the limit's own square is
   beyond 2^100, that of a gradient beyond the limit is, or NaN, and v too. */
CU_DEVICE int optim_adam_tells(const memopt_i_update_rule &r) {
    return !r.coupled && memopt_i_times(memopt_i_times(r.g2, r.limit), r.limit) > optim_power(100);
}

/* Where numbers are out of the range above: are those zeros alone? Of m, which is a dividend, only 0 and not -0, whose
   quotient by the instructions above is 0. Where v is 0 eps is the divisor. */
template <int N> CU_DEVICE int optim_adam_zeros(const memopt_i_update_rule &r, const float *m, const float *v) {
    int fine = (int)(r.eps >= optim_power(-60));
    int e;

    CU_UNROLL for (e = 0; e < N; ++e) {
        fine &= (int)(memopt_i_float_bits(m[e]) == 0) | optim_within(fabsf(m[e]), fabsf(m[e]), optim_power(-60),
                                                                     optim_power(60));
        fine &= (int)(memopt_i_float_bits(v[e]) == 0) | optim_within(v[e], v[e], optim_power(-100), optim_power(100));
    }
    return fine;
}

/* The range of numbers: OPTIM_MIDDLE where all are in it, v within 2^-100 and 2^100, as its root is within 2^-50 and
   2^50 then; OPTIM_ZEROS where those that are not are 0, as of frozen rows, unused ids and padding. */
enum { OPTIM_OUTSIDE, OPTIM_MIDDLE, OPTIM_ZEROS };

/* memopt_i_v1_moments() and _update() of N elements side by side, in two halves, by a rule that is known. The first
   returns the range of what it made. A NaN of m may pass: it comes out as one. m, v: v is not its root yet. */
template <int N>
CU_DEVICE int optim_adam_moments(const memopt_i_update_rule &r, const optim_element *one, float *m, float *v) {
    const float b1 = memopt_i_times(r.b1, one->scale_m);
    const float b2 = memopt_i_times(r.b2, one->scale_v);
    int e;

    CU_UNROLL for (e = 0; e < N; ++e) {
        float x = one[e].g;
        float t = one[e].v;

        if (r.coupled) x = fmaf(r.coupled_decay, one[e].w, memopt_i_times(r.factor, x));
        m[e] = fmaf(b1, one[e].m, memopt_i_times(r.g1, x));
        x = memopt_i_times(memopt_i_times(r.g2, x), x);
        if (one->root) {
            t = memopt_i_times(b2, t);
            v[e] = fmaf(t, t, x);
        } else v[e] = fmaf(b2, t, x);
    }
    if (optim_within(optim_minimum<N>(m), optim_maximum<N>(m), optim_power(-60), optim_power(60))
        & (int)(optim_minimum_bits<N>(v) >= memopt_i_float_bits(optim_power(-100)))
        & (int)(optim_maximum_bits<N>(v) <= memopt_i_float_bits(optim_power(100)))) return OPTIM_MIDDLE;
    return optim_adam_zeros<N>(r, m, v) ? OPTIM_ZEROS : OPTIM_OUTSIDE;
}

template <int N, int RANGE>
CU_DEVICE void optim_adam_update(const memopt_i_update_rule &r, optim_element *one, const float *m, const float *v) {
    int e;

    CU_UNROLL for (e = 0; e < N; ++e) {
        const float root = RANGE == OPTIM_ZEROS && v[e] == 0 ? 0 : optim_root(v[e]);
        const float u = optim_quotient(m[e], fmaf(root, r.ic2, r.eps));

        one[e].m = m[e];
        one[e].v = one->root ? root : v[e];
        one[e].w = fmaf(-r.step, u, memopt_i_times(one[e].w, r.decay));
    }
}

template <int KIND> CU_DEVICE void optim_four_of(const memopt_i_update_rule &rule, optim_element *one) {
    int e;
    CU_UNROLL for (e = 0; e < 4; ++e) optim_one<KIND>(rule, &one[e]);
}

CU_DEVICE void optim_any_four(int kind, const memopt_i_update_rule &rule, optim_element *one) {
    switch (kind) {
    case OPTIM_LAMB: optim_four_of<OPTIM_LAMB>(rule, one); break;
    case OPTIM_SGD: optim_four_of<OPTIM_SGD>(rule, one); break;
    case OPTIM_LION: optim_four_of<OPTIM_LION>(rule, one); break;
    case OPTIM_ADAFACTOR: optim_four_of<OPTIM_ADAFACTOR>(rule, one); break;
    case OPTIM_RMSPROP: optim_four_of<OPTIM_RMSPROP>(rule, one); break;
    default: optim_four_of<OPTIM_ADAM>(rule, one);
    }
}

/* What comes of an element that may not be stepped. */
CU_DEVICE void optim_keep(optim_element *x, float w, float m, float v, int kind) {
    x->w = w;
    x->m = memopt_i_times(m, x->scale_m);
    x->v = kind == OPTIM_ADAFACTOR ? v : memopt_i_times(v, x->scale_v);
}

CU_DEVICE void optim_count(const optim_table &t, unsigned skipped) {
    if (skipped) atomicAdd(&t.control->skipped, (unsigned long long)skipped); /* whole numbers: no order */
}

/* Four elements: steps them, stores weights (and V of a vector), gives the moments back. x: as decoded. They are looked
   at together: almost always all may be stepped, and then there is no branch between them. quick: the rule is known. */
template <int KIND, int FORM>
CU_DEVICE void optim_step4(optim_four *x, const optim_raw &raw, const optim_table &t, int k,
                           const memopt_i_update_rule &rule, uint64_t i, unsigned plus, int whole, const float *scale,
                           int root, int quick) {
    const optim_slice &s = t.slice[k];
    const uint32_t format = optim_weights<FORM>(t);
    const int kind = optim_kind<KIND>(t);
    const int factored = kind == OPTIM_ADAFACTOR && s.columns;
    const unsigned left = whole || s.count - i - plus >= 4 ? 4 : (unsigned)(s.count - i - plus);
    optim_element one[4];
    float w[4], g[4], m[4], v[4];
    unsigned skipped = 0;
    int found = OPTIM_OUTSIDE;
    int fine, e;

    if (KIND != OPTIM_MUON) optim_weights4(w, format, raw);
    optim_gradients4(g, optim_gradients<FORM>(t), raw.g);
    CU_UNROLL for (e = 0; e < 4; ++e) {
        if (KIND == OPTIM_MUON) w[e] = 0; /* the formula adds a decay of it */
        one[e].w = w[e];
        one[e].g = g[e];
        one[e].m = x->m[e];
        one[e].v = x->v[e];
        one[e].u = 0;
        one[e].scale_m = scale[0];
        one[e].scale_v = scale[1];
        one[e].root = root;
        one[e].row = one[e].column = 1;
        one[e].first = optim_has_first(kind, t.moments);
        one[e].factored = factored;
    }
    if (factored) {
        uint64_t row = (i + plus) / s.columns;
        uint64_t column = (i + plus) % s.columns;

        CU_UNROLL for (e = 0; e < 4; ++e) {
            if ((unsigned)e >= left) continue;
            one[e].row = ((const float *)s.moment[1])[2 * row];
            one[e].column = s.scale[1][2 * column];
            if (++column == s.columns) {
                column = 0;
                ++row;
            }
        }
    }
    fine = memopt_i_v1_finite(g, 4, rule.limit);
    if (rule.weight_limit > 0) fine &= memopt_i_v1_finite(w, 4, rule.weight_limit);
    if (kind == OPTIM_ADAM && quick && fine) found = optim_adam_moments<4>(rule, one, m, v);
    if (KIND != OPTIM_ANY && found == OPTIM_MIDDLE)
        optim_adam_update<4, OPTIM_MIDDLE>(rule, one, m, v); /* almost always: there is no branch between the four */
    else if (found != OPTIM_OUTSIDE) optim_adam_update<4, OPTIM_ZEROS>(rule, one, m, v); /* of all kinds: of both */
    else if (KIND != OPTIM_ANY) {
        CU_UNROLL for (e = 0; e < 4; ++e) {
            if (fine || !optim_refused(rule, g[e], w[e])) optim_one<KIND>(rule, &one[e]);
            else {
                optim_keep(&one[e], w[e], x->m[e], x->v[e], kind);
                ++skipped;
            }
        }
        if (KIND != OPTIM_MUON_WEIGHTS) optim_count(t, skipped); /* there it is, with the momentum */
    } else {
        optim_any_four(kind, rule, one);
        if (!fine) {
            CU_UNROLL for (e = 0; e < 4; ++e) {
                if (!optim_refused(rule, g[e], w[e])) continue;
                optim_keep(&one[e], w[e], x->m[e], x->v[e], kind);
                ++skipped;
            }
            optim_count(t, skipped);
        }
    }
    CU_UNROLL for (e = 0; e < 4; ++e) {
        w[e] = one[e].w;
        x->m[e] = one[e].m;
        x->v[e] = one[e].v;
    }
    if (left < 4) { /* what is not there is 0: not skipped, not stored, and no block's largest */
        CU_UNROLL for (e = 0; e < 4; ++e) {
            if ((unsigned)e < left) continue;
            x->m[e] = x->v[e] = 0;
        }
    }
    if (KIND == OPTIM_MUON) {
        const float u[4] = { one[0].u, one[1].u, one[2].u, one[3].u };
        optim_store_u(t, k, u, i, plus, whole);
    } else optim_store_weights<1>(t, k, format, w, &raw, i, plus, whole);
    if (kind == OPTIM_ADAFACTOR && !s.columns) optim_put32(s.moment[1], x->v, i, plus, s.count, whole);
}

/* ---- moments in 32 or 16 bits: a tile is 2048 elements, two vectors a thread ---- */
CU_DEVICE void optim_moments4(float *x, int there, int bf16, const uint32_t *raw) {
    int e;

    if (!there) CU_UNROLL for (e = 0; e < 4; ++e) x[e] = 0;
    else if (bf16) CU_UNROLL for (e = 0; e < 4; ++e) x[e] = memopt_from_bf16(optim_half(raw, e));
    else CU_UNROLL for (e = 0; e < 4; ++e) x[e] = memopt_i_bits_float(raw[e]);
}

CU_DEVICE void optim_store_moments(const optim_table &t, int k, int moment, int bf16, const float *x, uint64_t i,
                                   unsigned plus, int whole) {
    const optim_slice &s = t.slice[k];
    uint32_t bits[2], raw[2];

    if (!bf16) {
        optim_put32(s.moment[moment], x, i, plus, s.count, whole);
        return;
    }
    optim_noise4(bits, optim_noise_of(t, k, moment ? MEMOPT_I_NOISE_SECOND : MEMOPT_I_NOISE_FIRST), s.place + i + plus);
    optim_noisy<4>(raw, x, bits);
    optim_put<2>(s.moment[moment], raw, i, plus, s.count, whole);
}

template <int KIND, int FORM>
CU_DEVICE void optim_floats4(const optim_raw &raw, const optim_table &t, int k, const memopt_i_update_rule &rule,
                             uint64_t i, unsigned plus, int whole) {
    const optim_slice &s = t.slice[k];
    const int bf16 = !FORM && t.state == MEMOPT_STATE_BF16;
    const int kind = optim_kind<KIND>(t);
    const int first = optim_has_first(kind, t.moments);
    const int second = optim_has_second(kind);
    const float scale[2] = { 1, 1 };
    optim_four x;

    optim_moments4(x.m, first, bf16, raw.m);
    optim_moments4(x.v, second || (kind == OPTIM_ADAFACTOR && !s.columns), second && bf16, raw.v);
    optim_step4<KIND, FORM>(&x, raw, t, k, rule, i, plus, whole, scale, 0, optim_adam_known(rule));
    if (first && KIND != OPTIM_MUON_WEIGHTS) optim_store_moments(t, k, 0, bf16, x.m, i, plus, whole);
    if (second) optim_store_moments(t, k, 1, bf16, x.v, i, plus, whole);
}

/* all: OPTIM_SOME, or what every vector of the tile is. */
template <int KIND, int FORM>
CU_DEVICE void optim_floats_tile(const optim_table &t, int k, const memopt_i_update_rule &rule, uint64_t i, int all) {
    const uint64_t n = t.slice[k].count;
    const int aligned = (int)t.slice[k].aligned;
    optim_raw raw[2];
    int j;

    CU_UNROLL for (j = 0; j < 2; ++j) {
        const unsigned plus = 4u * OPTIM_THREADS * (unsigned)j;
        if (all || i + plus < n)
            optim_load<KIND, 0, FORM>(&raw[j], t, k, i, plus, all ? all : aligned && i + plus + 4 <= n);
    }
    if (KIND != OPTIM_MUON && optim_weights<FORM>(t) == MEMOPT_I_WEIGHTS_BF16)
        optim_noises<4 * OPTIM_THREADS>(raw, optim_noise_of(t, k, MEMOPT_I_NOISE_WEIGHTS), t.slice[k].place + i, all);
    CU_UNROLL for (j = 0; j < 2; ++j) {
        const unsigned plus = 4u * OPTIM_THREADS * (unsigned)j;
        if (all || i + plus < n) optim_floats4<KIND, FORM>(raw[j], t, k, rule, i, plus,
            all ? all : aligned && i + plus + 4 <= n);
    }
}

template <int KIND, int FORM>
static __global__ void __launch_bounds__(OPTIM_THREADS, 3) optim_floats_kernel(const CU_ARGUMENT optim_table t) {
    const int k = (int)find_entry(t.slice, t.count, blockIdx.x);
    const optim_slice &s = t.slice[k];
    const memopt_i_update_rule rule = optim_rule<KIND, FORM>(t, k);
    const uint64_t first = (uint64_t)(blockIdx.x - s.first_tile) * OPTIM_TILE;
    const uint64_t i = first + 4 * threadIdx.x;
    const int whole = s.aligned && first + OPTIM_TILE <= s.count;

    if (optim_stopped(t)) return;
    if (FORM == OPTIM_MIXED) optim_floats_tile<KIND, FORM>(t, k, rule, i, !whole ? OPTIM_SOME
        : s.place % 32 ? OPTIM_WHOLE : OPTIM_TOGETHER);
    else if (whole) optim_floats_tile<KIND, FORM>(t, k, rule, i, OPTIM_WHOLE);
    else optim_floats_tile<KIND, FORM>(t, k, rule, i, OPTIM_SOME);
}

/* ---- moments in 8 bits ---- */
/* The levels of both moments, and the octaves, to shared memory. */
CU_DEVICE void optim_tables(const optim_codes *codes, float *level, float *grid) {
    unsigned i;
    for (i = threadIdx.x; i < 512; i += blockDim.x) level[i] = codes->level[i / 256][i % 256];
    if (threadIdx.x < 64) grid[threadIdx.x] = codes->grid[threadIdx.x / 32][threadIdx.x % 32];
}

/* The level of code e of four. Shifted and masked to where it lies in bytes: two instructions and the lookup. */
CU_DEVICE float optim_decode(const float *level, int moment, uint32_t four, int e) {
    const uint32_t byte = (e ? four >> (8 * e - 2) : four << 2) & 0x3fc;
    return *(const float *)(const void *)((const char *)(level + 256 * moment) + byte);
}

CU_DEVICE uint32_t optim_encode4(const float *grid, int moment, const float *x, float inverse) {
    uint32_t code[4];
    int e;

    CU_UNROLL for (e = 0; e < 4; ++e) code[e] = memopt_i_state_codec_word(grid + 32 * moment, !moment, x[e], inverse);
    return optim_lower(optim_lower(code[0], code[1], 8), optim_lower(code[2], code[3], 8), 16);
}

/* What a block is multiplied by. Where the largest of what is finite is zero any number does for it, and 0 would make a
   NaN of an infinity: its code would be the processor's affair. */
CU_DEVICE float optim_inverse(float largest) {
    return largest == 0 ? 1.0f : memopt_i_inverse(largest);
}

/* The same of both moments of a block. */
CU_DEVICE void optim_inverses(float *largest) {
    if (optim_within(fminf(largest[0], largest[1]), fmaxf(largest[0], largest[1]), optim_power(-60), optim_power(60))) {
        largest[0] = optim_quotient(1, largest[0]);
        largest[1] = optim_quotient(1, largest[1]);
        return;
    }
    largest[0] = optim_inverse(largest[0]);
    largest[1] = optim_inverse(largest[1]);
}

/* The largest of four magnitudes that are finite, by its bits. */
CU_DEVICE uint32_t optim_largest4(const float *x) {
    uint32_t maximum = 0;
    int e;

    CU_UNROLL for (e = 0; e < 4; ++e) {
        const uint32_t u = memopt_i_float_bits(x[e]) & 0x7fffffff;
        if (u < 0x7f800000 && u > maximum) maximum = u;
    }
    return maximum;
}

CU_DEVICE uint32_t optim_warp_largest(uint32_t largest) {
#if defined(__CUDA_ARCH__)
    return __reduce_max_sync(MEMOPT_I_CUDA_ALL, largest);
#else
    int far;

    CU_UNROLL for (far = 16; far; far /= 2) largest = max(largest, __shfl_xor_sync(MEMOPT_I_CUDA_ALL, largest, far));
    return largest;
#endif
}

/* Of a warp's block, of both moments, both vectors of a lane; what is not there is 0. A maximum of floats leaves NaN
   out: where it gives an infinity, or NaN alone, all is looked at as above, which takes four times as many
   instructions. Second moments are not negative. */
CU_DEVICE void optim_block_largest(float *largest, int one, int two, const optim_four *x) {
    const float m[8] = { x[0].m[0], x[0].m[1], x[0].m[2], x[0].m[3], x[1].m[0], x[1].m[1], x[1].m[2], x[1].m[3] };
    const float v[8] = { x[0].v[0], x[0].v[1], x[0].v[2], x[0].v[3], x[1].v[0], x[1].v[1], x[1].v[2], x[1].v[3] };
    uint32_t a = one ? optim_warp_largest(memopt_i_float_bits(optim_maximum<8>(m)) & 0x7fffffff) : 0;
    uint32_t b = two ? optim_warp_largest(optim_maximum_bits<8>(v)) : 0;

    if (max(a, b) >= 0x7f800000) {
        a = optim_warp_largest(max(optim_largest4(m), optim_largest4(m + 4)));
        b = optim_warp_largest(max(optim_largest4(v), optim_largest4(v + 4)));
    }
    largest[0] = memopt_i_bits_float(a);
    largest[1] = memopt_i_bits_float(b);
}

/* Decode and step four elements of a block whose scales are those. */
template <int KIND, int FORM>
CU_DEVICE void optim_coded4(optim_four *x, const optim_raw &raw, const optim_table &t, int k,
                            const memopt_i_update_rule &rule, uint64_t i, unsigned plus, int whole, const float *level,
                            const float *absmax, int quick) {
    const int kind = optim_kind<KIND>(t);
    const int first = optim_has_first(kind, t.moments);
    const int second = optim_has_second(kind);
    int e;

    CU_UNROLL for (e = 0; e < 4; ++e) {
        x->m[e] = first ? optim_decode(level, 0, raw.m[0], e) : 0;
        x->v[e] = second ? optim_decode(level, 1, raw.v[0], e)
                : kind == OPTIM_ADAFACTOR && !t.slice[k].columns ? memopt_i_bits_float(raw.v[e]) : 0;
    }
    optim_step4<KIND, FORM>(x, raw, t, k, rule, i, plus, whole, absmax, 1, quick);
}

/* AdamW of both vectors of a lane, whole, by a rule that is known. */
template <int KIND, int FORM>
CU_DEVICE void optim_coded8(optim_four *x, const optim_raw *raw, const optim_table &t, int k,
                           const memopt_i_update_rule &rule, uint64_t i, const float *level, const float *absmax) {
    optim_element one[8];
    float w[8], g[8], m[8], v[8];
    int e;

    CU_UNROLL for (e = 0; e < 8; e += 4) {
        optim_weights4(w + e, optim_weights<FORM>(t), raw[e / 4]);
        optim_gradients4(g + e, optim_gradients<FORM>(t), raw[e / 4].g);
    }
    CU_UNROLL for (e = 0; e < 8; ++e) {
        one[e].w = w[e];
        one[e].g = g[e];
        one[e].m = optim_decode(level, 0, raw[e / 4].m[0], e % 4);
        one[e].v = optim_decode(level, 1, raw[e / 4].v[0], e % 4);
        one[e].scale_m = absmax[0];
        one[e].scale_v = absmax[1];
        one[e].root = 1;
    }
    const int found = optim_adam_moments<8>(rule, one, m, v);
    if (found == OPTIM_OUTSIDE) {
        CU_UNROLL for (e = 0; e < 2; ++e)
            optim_coded4<KIND, FORM>(x + e, raw[e], t, k, rule, i, OPTIM_APART * (unsigned)e, OPTIM_WHOLE,
                                                 level, absmax, 0);
        return;
    }
    if (found == OPTIM_MIDDLE)
        optim_adam_update<8, OPTIM_MIDDLE>(rule, one, m, v); /* almost always: there is no branch between the eight */
    else optim_adam_update<8, OPTIM_ZEROS>(rule, one, m, v);
    CU_UNROLL for (e = 0; e < 8; ++e) {
        w[e] = one[e].w;
        x[e / 4].m[e % 4] = one[e].m;
        x[e / 4].v[e % 4] = one[e].v;
    }
    optim_store_weights<2>(t, k, optim_weights<FORM>(t), w, raw, i, 0, OPTIM_WHOLE);
}

/* Blocks of any size: a tile is as many as 4096 elements hold, a vector a thread. */
template <int KIND>
static __global__ void __launch_bounds__(OPTIM_CODED / 4) optim_coded_kernel(const CU_ARGUMENT optim_table t) {
    MEMOPT_I_CUDA_SHARED(float, level, [512]);
    MEMOPT_I_CUDA_SHARED(float, grid, [64]);
    MEMOPT_I_CUDA_SHARED(uint32_t, maximum, [2 * OPTIM_CODED / 32]);
    const int k = (int)find_entry(t.slice, t.count, blockIdx.x);
    const optim_slice &s = t.slice[k];
    const int kind = optim_kind<KIND>(t);
    const int one = optim_codes_first(kind, t.moments);
    const int two = optim_has_second(kind);
    const unsigned half = OPTIM_CODED / 32;
    const uint64_t first = (uint64_t)(blockIdx.x - s.first_tile) * t.tile;
    const unsigned count = (unsigned)(s.count - first < t.tile ? s.count - first : t.tile);
    const memopt_i_update_rule rule = optim_rule<KIND, OPTIM_MIXED>(t, k);
    const unsigned i = 4 * threadIdx.x;
    const unsigned b = i / t.block;
    const int whole = s.aligned && i + 4 <= count;
    float *const scale_m = one ? s.scale[0] + first / t.block : NULL;
    float *const scale_v = two ? s.scale[1] + first / t.block : NULL;
    uint32_t largest[2] = { 0, 0 };
    optim_raw raw;
    optim_four x;
    int far;

    if (optim_stopped(t)) return;
    if (i < count) optim_load<KIND, 1, OPTIM_MIXED>(&raw, t, k, first, i, whole);
    if (KIND != OPTIM_MUON && t.weights == MEMOPT_I_WEIGHTS_BF16) optim_noise4(raw.noise,
        optim_noise_of(t, k, MEMOPT_I_NOISE_WEIGHTS), s.place + first + i);
    optim_tables(t.codes, level, grid);
    if (threadIdx.x < 2 * half) maximum[threadIdx.x] = 0;
    __syncthreads();
    if (i < count) {
        const float absmax[2] = { one ? scale_m[b] : 1, two ? scale_v[b] : 1 };

        optim_coded4<KIND, OPTIM_MIXED>(&x, raw, t, k, rule, first, i, whole, level, absmax,
            optim_adam_known(rule));
        if (one) largest[0] = optim_largest4(x.m);
        if (two) largest[1] = optim_largest4(x.v);
    }
    for (far = 1; far < 8; far *= 2) {
        if (one) largest[0] = max(largest[0], __shfl_xor_sync(MEMOPT_I_CUDA_ALL, largest[0], far));
        if (two) largest[1] = max(largest[1], __shfl_xor_sync(MEMOPT_I_CUDA_ALL, largest[1], far));
    }
    if (threadIdx.x % 8 == 0 && i < count) {
        if (one) atomicMax(&maximum[b], largest[0]);
        if (two) atomicMax(&maximum[half + b], largest[1]);
    }
    __syncthreads(); /* scales are all read, and known anew */
    if (i < count) {
        const float m = one ? memopt_i_bits_float(maximum[b]) : 0;
        const float v = two ? memopt_i_bits_float(maximum[half + b]) : 0;

        if (one && i % t.block == 0) scale_m[b] = m;
        if (two && i % t.block == 0) scale_v[b] = v;
        if (one) optim_put8(s.moment[0], optim_encode4(grid, 0, x.m, optim_inverse(m)), first, i,
                            s.count, whole);
        if (two) optim_put8(s.moment[1], optim_encode4(grid, 1, x.v, optim_inverse(v)), first, i,
                            s.count, whole);
    }
}

/* Asks the second-level cache for both vectors of a lane in its warp's next block, which is whole, of SIZE bytes an
   element: the warp would wait for it longer than it steps. i: in this block, so that its addresses serve. */
template <int SIZE> CU_DEVICE void optim_prefetch(const void *p, uint64_t i) {
    const char *const at = (const char *)p + i * SIZE;

    prefetch<OPTIM_TURN * SIZE>(at);
    prefetch<(OPTIM_TURN + OPTIM_APART) * SIZE>(at);
}

template <int KIND, int FORM>
CU_DEVICE void optim_prefetch_next(const optim_table &t, const optim_slice &s, uint64_t i) {
    const uint32_t weights = optim_weights<FORM>(t);
    const int kind = optim_kind<KIND>(t);

    if (weights == MEMOPT_I_WEIGHTS_F32 || weights == MEMOPT_I_WEIGHTS_F32_BF16) optim_prefetch<4>(s.weights, i);
    else optim_prefetch<2>(s.weights, i);
    if (optim_gradients<FORM>(t) == MEMOPT_TYPE_F32) optim_prefetch<4>(s.gradients, i);
    else optim_prefetch<2>(s.gradients, i);
    if (weights == MEMOPT_I_WEIGHTS_SPLIT) optim_prefetch<2>(s.extra, i);
    if (optim_codes_first(kind, t.moments)) optim_prefetch<1>(s.moment[0], i);
    if (optim_has_second(kind)) optim_prefetch<1>(s.moment[1], i);
}

/* Blocks of 256: a warp does a block, two vectors a lane, and OPTIM_ROUNDS of them one after another. They begin at
   multiples of 32, so a block that is whole is OPTIM_TOGETHER, any other OPTIM_SOME: all. next: the warp's next one is
   whole, too. */
template <int KIND, int FORM>
CU_DEVICE void optim_coded256(const optim_table &t, int k, const memopt_i_update_rule &rule, uint64_t i,
                              const float *level, const float *grid, const memopt_noise &noise, int all, int next) {
    const optim_slice &s = t.slice[k];
    const int kind = optim_kind<KIND>(t);
    const int one = optim_codes_first(kind, t.moments);
    const int two = optim_has_second(kind);
    const uint64_t b = i / 256;
    const uint64_t n = s.count;
    const int aligned = (int)s.aligned;
    optim_raw raw[2];
    optim_four x[2];
    float scale[2];
    int j;

    CU_UNROLL for (j = 0; j < 2; ++j) {
        const unsigned plus = OPTIM_APART * (unsigned)j;
        if (all || i + plus < n)
            optim_load<KIND, 1, FORM>(&raw[j], t, k, i, plus, all ? all : aligned && i + plus + 4 <= n);
    }
    if (next) optim_prefetch_next<KIND, FORM>(t, s, i);
    if (optim_weights<FORM>(t) == MEMOPT_I_WEIGHTS_BF16)
        optim_noises<OPTIM_APART>(raw, FORM ? noise : optim_noise_of(t, k, MEMOPT_I_NOISE_WEIGHTS), s.place + i, all);
    scale[0] = one ? s.scale[0][b] : 1;
    scale[1] = two ? s.scale[1][b] : 1;
    if (FORM && all) optim_coded8<KIND, FORM>(x, raw, t, k, rule, i, level, scale);
    else CU_UNROLL for (j = 0; j < 2; ++j) {
        const unsigned plus = OPTIM_APART * (unsigned)j;

        if (all || i + plus < n) optim_coded4<KIND, FORM>(x + j, raw[j], t, k, rule, i, plus,
            all ? all : aligned && i + plus + 4 <= n, level, scale, !FORM && optim_adam_known(rule));
        else CU_UNROLL for (int e = 0; e < 4; ++e) x[j].m[e] = x[j].v[e] = 0;
    }
    optim_block_largest(scale, one, two, x);
    __syncwarp(MEMOPT_I_CUDA_ALL); /* all lanes have read the old scales; a shuffle orders no memory */
    if (i % 256 == 0) {
        if (one) s.scale[0][b] = scale[0];
        if (two) s.scale[1][b] = scale[1];
    }
    optim_inverses(scale);
    CU_UNROLL for (j = 0; j < 2; ++j) {
        const unsigned plus = OPTIM_APART * (unsigned)j;
        const int whole = all ? all : aligned && i + plus + 4 <= n;

        if (!all && i + plus >= n) continue;
        if (one) optim_put8(s.moment[0], optim_encode4(grid, 0, x[j].m, scale[0]), i, plus, n, whole);
        if (two) optim_put8(s.moment[1], optim_encode4(grid, 1, x[j].v, scale[1]), i, plus, n, whole);
    }
}

template <int KIND, int FORM> static __global__ void __launch_bounds__(OPTIM_CODED_THREADS,
    CU_RESIDENT(FORM == OPTIM_F32 ? MEMOPT_I_CUDA_OPTIM_RESIDENT : FORM ? MEMOPT_I_CUDA_OPTIM_BF16 : 5, 4))
optim_coded256_kernel(const CU_ARGUMENT optim_table t) {
    MEMOPT_I_CUDA_SHARED(float, level, [512]);
    MEMOPT_I_CUDA_SHARED(float, grid, [64]);
    enum { TILE = OPTIM_TURN * OPTIM_ROUNDS };
    const int k = (int)find_entry(t.slice, t.count, blockIdx.x);
    const optim_slice &s = t.slice[k];
    const uint64_t n = s.count;
    const uint64_t first = (uint64_t)(blockIdx.x - s.first_tile) * TILE;
    const memopt_i_update_rule rule = optim_rule<KIND, FORM>(t, k);
    const memopt_noise noise = optim_noise_of(t, k, MEMOPT_I_NOISE_WEIGHTS);
    const int known = !FORM || (optim_adam_known(rule) && optim_adam_tells(rule));
    /* elements from `first` on; in whole blocks; in whole turns */
    const unsigned left = (unsigned)min(n - first, (uint64_t)TILE);
    const unsigned in_blocks = s.aligned && known ? left / 256 * 256 : 0;
    const unsigned in_turns = in_blocks / OPTIM_TURN * OPTIM_TURN;
    const unsigned end = (left + 255) / 256 * 256;
    uint64_t i = first + threadIdx.x / 32 * 256 + 4 * (threadIdx.x % 32);
    unsigned at;

    if (optim_stopped(t)) return;
    optim_tables(t.codes, level, grid);
    __syncthreads();
    for (at = 0; FORM && at < in_turns; at += OPTIM_TURN) /* all warps as often, or a compiler expects them to part */
        optim_coded256<KIND, FORM>(t, k, rule, i + at, level, grid, noise, OPTIM_TOGETHER,
                                   at + 2 * OPTIM_TURN <= in_blocks);
    for (i += at; i - first < end; i += OPTIM_TURN)
        optim_coded256<KIND, FORM>(t, k, rule, i, level, grid, noise,
                                   !FORM && i - first < in_turns ? OPTIM_TOGETHER : OPTIM_SOME,
                                   !FORM && i - first + OPTIM_TURN < in_blocks);
}

/* Before a fused apply: is there a gradient that is not finite? Then nothing is stepped any more. */
PRUNED __global__ void __launch_bounds__(OPTIM_THREADS) optim_scan_kernel(const CU_ARGUMENT optim_table t) {
    const int k = (int)find_entry(t.slice, t.count, blockIdx.x);
    const optim_slice &s = t.slice[k];
    int j, e;
    int bad = 0;
    const uint64_t i = (uint64_t)(blockIdx.x - s.first_tile) * OPTIM_TILE + 4 * threadIdx.x;
    const float limit = t.by ? t.by[s.tensor].gradient.x : t.rule[s.rule].limit;
    uint32_t raw[2][4];

    CU_UNROLL for (j = 0; j < 2; ++j) {
        const uint64_t at = i + 4u * OPTIM_THREADS * (unsigned)j;
        const int whole = s.aligned && at + 4 <= s.count;

        if (at >= s.count) {
            CU_UNROLL for (e = 0; e < 4; ++e) raw[j][e] = 0;
        } else if (t.gradients == MEMOPT_TYPE_F32) optim_get<4>(raw[j], s.gradients, at, 0, s.count, whole);
        else optim_get<2>(raw[j], s.gradients, at, 0, s.count, whole);
    }
    CU_UNROLL for (j = 0; j < 2; ++j) {
        float g[4];

        optim_gradients4(g, t.gradients, raw[j]); /* 0 where there is none */
        bad |= !memopt_i_v1_finite(g, 4, limit);
    }
    if (bad && atomicCAS(&t.control->stopped, 0u, (unsigned)OPTIM_STOPPED) == 0) { /* the first tells */
        t.control->tensor = s.tensor;
        t.control->first = s.place;
    }
}

/* ---- what LAMB and LARS measure ---- */
/* The squares of 256 elements of a and of b, each in 16 sums by place, joined as memopt_i_sums_join() does it. Lane l
   has the elements l + 32 k; a's sums are kept by the lower lanes, b's by the upper ones, and lane l gets what is
   missing from lane l ^ 16: one shuffle for two squares. */
PRUNED __device__ __forceinline__ double optim_pair(double sum, float a, float b) {
    const int upper = threadIdx.x % 32 >= 16;
    const float got = __shfl_xor_sync(MEMOPT_I_CUDA_ALL, upper ? a : b, 16);
    const float x = upper ? got : a;
    const float y = upper ? b : got;

    return memopt_i_add_square(memopt_i_add_square(sum, (double)x), (double)y);
}

PRUNED __device__ __forceinline__ double optim_pair_join(double sum) { /* to lanes 0 and 16 */
    int half;
    for (half = 8; half; half /= 2) sum = memopt_i_sum_double(sum, __shfl_xor_sync(MEMOPT_I_CUDA_ALL, sum, half));
    return sum;
}

/* Element i of a slice of either table, alone. */
template <class SLICE> CU_DEVICE float optim_weight_at(uint32_t format, const SLICE &s, uint64_t i) {
    if (format == MEMOPT_I_WEIGHTS_BF16) return memopt_from_bf16(((const uint16_t *)s.weights)[i]);
    if (format == MEMOPT_I_WEIGHTS_SPLIT)
        return memopt_i_bits_float(memopt_i_join(((const uint16_t *)s.weights)[i], ((const uint16_t *)s.extra)[i]));
    return ((const float *)s.weights)[i];
}

PRUNED __device__ __forceinline__ float optim_gradient_at(uint32_t format, const void *g, uint64_t i) {
    if (format == MEMOPT_TYPE_BF16) return memopt_from_bf16(((const uint16_t *)g)[i]);
    if (format == MEMOPT_TYPE_F16) return from_f16(((const uint16_t *)g)[i]);
    return ((const float *)g)[i];
}

PRUNED __device__ __forceinline__ float optim_moment_at(const optim_table &t, int k, int moment, uint64_t i,
                                                        const float *level) {
    const void *p = t.slice[k].moment[moment];
    if (t.state == MEMOPT_STATE_8BIT) return optim_decode(level, moment, ((const uint8_t *)p)[i], 0);
    return t.state == MEMOPT_STATE_BF16 ? memopt_from_bf16(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

/* LAMB's direction of an element, or LARS's gradient; 0 where it is skipped. */
CU_DEVICE float optim_direction(const optim_table &t, int k, const memopt_i_update_rule &rule, uint64_t i, float w,
                                const float *level) {
    const optim_slice &s = t.slice[k];
    memopt_i_tile q;
    const int coded = t.state == MEMOPT_STATE_8BIT;
    float g = optim_gradient_at(t.gradients, s.gradients, i);
    float m, v;
    float u = 0;

    if (!memopt_i_v1_finite(&g, 1, rule.limit)) return 0;
    if (t.family != OPTIM_LAMB) return g;
    m = optim_moment_at(t, k, 0, i, level);
    v = optim_moment_at(t, k, 1, i, level);
    q.w = &w;
    q.g = &g;
    q.old_m = q.m = &m;
    q.old_v = q.v = &v;
    q.u = &u;
    q.root = coded;
    q.in_memory = 0;
    q.count = 1;
    q.scale_m = coded ? s.scale[0][i / t.block] : 1;
    q.scale_v = coded ? s.scale[1][i / t.block] : 1;
    memopt_i_v1_moments(&rule, &q);
    memopt_i_v1_direction(&rule, &q);
    return u;
}

/* A block does a chunk as the CPU's worker does it: spans of at most 256 elements, none of them across an 8-bit block,
   a warp each; then their sums in order. */
PRUNED __global__ void __launch_bounds__(OPTIM_THREADS) optim_measure_kernel(const CU_ARGUMENT optim_table t) {
    MEMOPT_I_CUDA_SHARED(float, level, [512]);
    MEMOPT_I_CUDA_SHARED(float, grid, [64]);
    MEMOPT_I_CUDA_SHARED(double, squares, [512]);
    const int k = (int)find_entry(t.slice, t.count, blockIdx.x);
    const optim_slice &s = t.slice[k];
    const int coded = t.state == MEMOPT_STATE_8BIT;
    const unsigned lane = threadIdx.x % 32;
    const unsigned block = coded ? t.block : 256;
    const unsigned parts = (block + 255) / 256;
    const uint64_t chunk = blockIdx.x - s.first_tile;
    const uint64_t at = chunk * t.chunk;
    const unsigned n = (unsigned)(s.count - at < t.chunk ? s.count - at : t.chunk);
    const unsigned spans = n / block * parts + (n % block + 255) / 256;
    memopt_i_update_rule rule = t.rule[s.rule];
    double total = 0;
    unsigned base, span, i;
    if (optim_left_out(t.by, t.control)) return;
    optim_by(&rule, optim_by_at(t, k), (int)t.family);
    if (t.family == OPTIM_LAMB && coded) optim_tables(t.codes, level, grid);
    __syncthreads();
    for (base = 0; base < spans; base += 256) {
        const unsigned end = spans - base < 256 ? spans - base : 256;

        for (span = threadIdx.x / 32; span < end; span += OPTIM_THREADS / 32) {
            const unsigned first = (base + span) / parts * block + (base + span) % parts * 256;
            const unsigned left = block - (base + span) % parts * 256;
            const unsigned maximum = left < n - first ? left : n - first;
            const unsigned count = maximum < 256 ? maximum : 256;
            double sum = 0;
            int j;

            CU_UNROLL for (j = 0; j < 8; ++j) {
                const unsigned e = lane + 32 * (unsigned)j;
                float w = 0;
                float u = 0;

                if (e < count) {
                    w = optim_weight_at(t.weights, s, at + first + e);
                    u = optim_direction(t, k, rule, at + first + e, w, level);
                }
                sum = optim_pair(sum, w, u);
            }
            sum = optim_pair_join(sum);
            if (lane % 16 == 0) squares[2 * span + lane / 16] = sum;
        }
        __syncthreads();
        if (threadIdx.x < 2)
            for (i = 0; i < end; ++i) total += squares[2 * i + threadIdx.x];
        __syncthreads();
    }
    if (threadIdx.x < 2) s.sums[2 * chunk + threadIdx.x] = total;
}

/* The sums of chunks in their order, by a warp: 32 are fetched at a time, and every lane adds them all up. */
PRUNED __device__ __forceinline__ double optim_ordered(double sum, const double *p, uint64_t n, uint64_t stride) {
    uint64_t at;
    int k;

    for (at = 0; at < n; at += 32) {
        const uint64_t i = at + threadIdx.x % 32;
        const double x = i < n ? p[i * stride] : 0;
        for (k = 0; k < 32; ++k) sum = memopt_i_sum_double(__shfl_sync(MEMOPT_I_CUDA_ALL, x, k), sum);
    }
    return sum;
}

struct optim_trust {
    const double *sums;
    uint64_t      count;
    memopt_optim_group group;
    float         factor;
    uint32_t      tensor;
};

enum { OPTIM_TRUSTS = 32 };

struct optim_trusts {
    optim_trust of[OPTIM_TRUSTS];
    float *pace;
    const optim_terms *by;
    int    is_lamb;
};

static_assert(sizeof(optim_trusts) <= 4000, "the argument of a kernel");

PRUNED __global__ void __launch_bounds__(32) optim_trust_kernel(const CU_ARGUMENT optim_trusts t) {
    const optim_trust &x = t.of[blockIdx.x];
    const double w = optim_ordered(0, x.sums, x.count, 2);
    const double u = optim_ordered(0, x.sums + 1, x.count, 2);
    const float factor = t.by ? t.by[x.tensor].gradient.y : x.factor;
    memopt_optim_group group = x.group;

    if (t.by) group.rate = t.by[x.tensor].rate;
    if (threadIdx.x == 0) t.pace[x.tensor] = memopt_i_trust_of(t.is_lamb, &group, factor, w, u);
}

/* @section cuda_adafactor : cuda_optim_kernels
   Adafactor's sums and means.
   Problem    The CPU's order of summation is the definition: a row in 16 sums by the place in it, a column down the
              rows of a panel, then over panels. Each is a chain that cannot be cut.
   Idea       There are many chains. Rows: a warp does two, 16 lanes each, which trade elements by a shuffle, so that
              every load is a whole line. Columns: a thread each, for each of up to 32 panels. Both read the gradients:
              4 + 4 + 8 + 12 bytes an element with float weights, where the CPU, that keeps a row's columns in its
              cache, moves 4 + 8 + 12.
              The squares of updates and weights are taken of 256 elements at a time, a warp each, and left in the
              scratch (16 bytes for 256); a warp for each panel adds them up in their order, 32 fetched at a time.
   Means      In place, as on the CPU: the double of a row's or column's sum becomes two floats, mean and multiplier, by
              the thread that has read it. The mean of all columns is one chain: a warp, with shuffles for loads.
   Launches   For 14 tensors: 2 for sums, 3 for their join, 2 for squares, 1 for the pace, 1 for the state's means; and
              the apply, for 28. Not measured on a card. */

enum { ADAFACTOR_SLICES = 14, ADAFACTOR_RULES = 4, ADAFACTOR_GROUPS = 32 };

struct adafactor_slice {
    const void *weights, *extra, *gradients;
    float      *rows, *columns_of;        /* in the state: R or V from the slice's first on; C */
    double     *row_sums, *column_sums, *squares; /* of the whole tensor */
    double     *groups;                   /* two for each 256 elements of a row */
    double     *mean;                     /* of C */
    float      *pace;
    const optim_terms *by;                /* NULL: the rule has it */
    memopt_optim_group group;
    double      rate;                     /* of the step */
    uint64_t    all, count;               /* all: of the whole tensor */
    uint64_t    columns, panel_size;      /* 0: a vector; elements of a panel */
    uint64_t    first_row, held_rows, panel, panels; /* of the slice; of the whole tensor */
    uint32_t    first_tile, rule;
};

struct adafactor_table {
    adafactor_slice slice[ADAFACTOR_SLICES];
    memopt_i_update_rule rule[ADAFACTOR_RULES];
    optim_control *control;
    uint32_t count, rules, weights, gradients, stops;
};

static_assert(sizeof(adafactor_table) <= 4000, "the argument of a kernel");

PRUNED __device__ __forceinline__ memopt_i_update_rule adafactor_rule(const adafactor_table &t, int k) {
    memopt_i_update_rule r = t.rule[t.slice[k].rule];
    optim_by(&r, t.slice[k].by, OPTIM_ADAFACTOR);
    return r;
}

PRUNED __device__ __forceinline__ int adafactor_left_out(const adafactor_table &t) {
    return optim_left_out(t.slice[0].by, t.control);
}

/* A gradient, 0 where it is skipped. */
PRUNED __device__ __forceinline__ float adafactor_gradient(const adafactor_table &t, int k, uint64_t i, float limit) {
    const float g = optim_gradient_at(t.gradients, t.slice[k].gradients, i);
    return memopt_i_v1_finite(&g, 1, limit) ? g : 0;
}

/* Sums of rows: two for each warp, 16 for a block. */
PRUNED __global__ void __launch_bounds__(OPTIM_THREADS) adafactor_rows_kernel(const CU_ARGUMENT adafactor_table t) {
    const int k = (int)find_entry(t.slice, t.count, blockIdx.x);
    const adafactor_slice &s = t.slice[k];
    const unsigned lane = threadIdx.x % 32;
    const float limit = adafactor_rule(t, k).limit;
    uint64_t j;
    double sum = 0;
    int e;
    const uint64_t rows = s.count / s.columns;
    const uint64_t row = ((uint64_t)(blockIdx.x - s.first_tile) * 8 + threadIdx.x / 32) * 2;
    const uint64_t a = row * s.columns;
    const uint64_t b = a + s.columns;

    if (row >= rows || adafactor_left_out(t)) return; /* all of the warp */
    for (j = lane; j - lane < s.columns; j += 128) {
        float x[4], y[4];

        CU_UNROLL for (e = 0; e < 4; ++e) {
            const uint64_t column = j + 32u * (unsigned)e;
            x[e] = column < s.columns ? adafactor_gradient(t, k, a + column, limit) : 0;
            y[e] = column < s.columns && row + 1 < rows ? adafactor_gradient(t, k, b + column, limit) : 0;
        }
        CU_UNROLL for (e = 0; e < 4; ++e) sum = optim_pair(sum, x[e], y[e]);
    }
    sum = optim_pair_join(sum);
    if (lane == 0) s.row_sums[s.first_row + row] = sum;
    if (lane == 16 && row + 1 < rows) s.row_sums[s.first_row + row + 1] = sum;
}

/* Sums of a panel's columns: 256 of them for a block. */
PRUNED __global__ void __launch_bounds__(OPTIM_THREADS) adafactor_columns_kernel(const CU_ARGUMENT adafactor_table t) {
    const int k = (int)find_entry(t.slice, t.count, blockIdx.x);
    const adafactor_slice &s = t.slice[k];
    const uint64_t wide = (s.columns + 255) / 256;
    const uint64_t tile = blockIdx.x - s.first_tile;
    const uint64_t panel = tile / wide;
    const uint64_t column = tile % wide * 256 + threadIdx.x;
    const uint64_t end = (panel + 1) * s.panel_size < s.count ? (panel + 1) * s.panel_size : s.count;
    const float limit = adafactor_rule(t, k).limit;
    double sum = 0;
    uint64_t i;

    if (column >= s.columns || adafactor_left_out(t)) return;
    for (i = panel * s.panel_size + column; i < end; i += 8 * s.columns) {
        float x[8];
        int e;

        CU_UNROLL for (e = 0; e < 8; ++e) {
            const uint64_t at = i + (unsigned)e * s.columns;
            x[e] = at < end ? adafactor_gradient(t, k, at, limit) : 0;
        }
        CU_UNROLL for (e = 0; e < 8; ++e) sum = memopt_i_add_square(sum, (double)x[e]);
    }
    s.column_sums[(s.panel + panel) * s.columns + column] = sum;
}

/* Panels added up; C of this step, and its multipliers: in the double of the column's first panel. */
PRUNED __global__ void __launch_bounds__(OPTIM_THREADS)
adafactor_join_columns_kernel(const CU_ARGUMENT adafactor_table t) {
    const int k = (int)find_entry(t.slice, t.count, blockIdx.x);
    const adafactor_slice &s = t.slice[k];
    const uint64_t column = (uint64_t)(blockIdx.x - s.first_tile) * 256 + threadIdx.x;
    uint64_t p;
    double sum;
    float mean;
    const memopt_i_update_rule rule = adafactor_rule(t, k);
    float *to = (float *)(void *)s.column_sums;

    if (column >= s.columns || adafactor_left_out(t)) return;
    sum = s.column_sums[column];
    for (p = 1; p < s.panels; ++p) sum = memopt_i_sum_double(s.column_sums[p * s.columns + column], sum);
    mean = memopt_i_adafactor_mean(&rule, sum, s.all / s.columns, s.columns_of[column]);
    to[2 * column] = mean;
    to[2 * column + 1] = memopt_i_adafactor_column_scale(mean);
}

/* a warp for a tensor */
PRUNED __global__ void __launch_bounds__(32)
adafactor_mean_kernel(const CU_ARGUMENT adafactor_table t) {
    const adafactor_slice &s = t.slice[blockIdx.x];
    const float *c = (const float *)(const void *)s.column_sums;
    double sum = 0;
    uint64_t at;
    int k;

    if (adafactor_left_out(t)) return;
    for (at = 0; at < s.columns; at += 32) {
        const uint64_t i = at + threadIdx.x;
        const float x = i < s.columns ? c[2 * i] : 0;
        for (k = 0; k < 32; ++k) sum = memopt_i_sum_double((double)__shfl_sync(MEMOPT_I_CUDA_ALL, x, k), sum);
    }
    if (threadIdx.x == 0) *s.mean = sum / (double)s.columns;
}

PRUNED __global__ void __launch_bounds__(OPTIM_THREADS)
adafactor_join_rows_kernel(const CU_ARGUMENT adafactor_table t) {
    const int k = (int)find_entry(t.slice, t.count, blockIdx.x);
    const adafactor_slice &s = t.slice[k];
    const uint64_t row = (uint64_t)(blockIdx.x - s.first_tile) * 256 + threadIdx.x;
    const memopt_i_update_rule rule = adafactor_rule(t, k);
    float *to;
    float mean;

    if (row >= s.held_rows || adafactor_left_out(t)) return;
    to = (float *)(void *)(s.row_sums + s.first_row + row);
    mean = memopt_i_adafactor_mean(&rule, s.row_sums[s.first_row + row], s.columns, s.rows[row]);
    to[0] = mean;
    to[1] = memopt_i_adafactor_row_scale(*s.mean, mean);
}

/* The second pass: squares of x and of weights, of 256 elements of a row each; a vector's rows are its panels. A warp
   does a group, a block 32 of them. */
PRUNED __device__ __forceinline__ uint64_t adafactor_width(const adafactor_slice &s) {
    return s.columns ? s.columns : s.panel_size;
}

PRUNED __global__ void __launch_bounds__(OPTIM_THREADS) adafactor_squares_kernel(const CU_ARGUMENT adafactor_table t) {
    const int k = (int)find_entry(t.slice, t.count, blockIdx.x);
    const adafactor_slice &s = t.slice[k];
    const uint64_t width = adafactor_width(s);
    const uint64_t wide = (width + 255) / 256;
    const uint64_t last = (s.count + width - 1) / width * wide;
    const float *multiplier = (const float *)(const void *)s.column_sums;
    const unsigned lane = threadIdx.x % 32;
    uint64_t group = (uint64_t)(blockIdx.x - s.first_tile) * ADAFACTOR_GROUPS + threadIdx.x / 32;
    int round, j;
    const memopt_i_update_rule rule = adafactor_rule(t, k);

    if (adafactor_left_out(t)) return;
    for (round = 0; round < ADAFACTOR_GROUPS / 8 && group < last; ++round, group += 8) {
        const uint64_t in_row = group % wide * 256;
        const uint64_t at = group / wide * width + in_row;
        double sum = 0;

        CU_UNROLL for (j = 0; j < 8; ++j) {
            const uint64_t e = lane + 32u * (unsigned)j;
            const uint64_t i = at + e;
            float w = 0;
            float g, v;
            float u = 0;
            memopt_i_tile q;

            if (in_row + e < width && i < s.count) {
                w = optim_weight_at(t.weights, s, i);
                g = adafactor_gradient(t, k, i, rule.limit);
                v = s.columns ? multiplier[2 * (in_row + e) + 1] : s.rows[i];
                q.g = &g;
                q.old_v = q.v = &v;
                q.u = &u;
                q.scale_v = 1;
                q.in_memory = 0;
                q.count = 1;
                if (s.columns) memopt_i_v1_adafactor_part(&rule, &q);
                else memopt_i_v1_adafactor_whole(&rule, &q);
            }
            sum = optim_pair(sum, u, w);
        }
        sum = optim_pair_join(sum);
        if (lane % 16 == 0) s.groups[2 * group + lane / 16] = sum;
    }
}

/* A warp for each panel of the slice: groups to rows, rows to the panel, in their order. */
PRUNED __global__ void __launch_bounds__(32) adafactor_fold_kernel(const CU_ARGUMENT adafactor_table t) {
    const int k = (int)find_entry(t.slice, t.count, blockIdx.x);
    const adafactor_slice &s = t.slice[k];
    const uint64_t width = adafactor_width(s);
    const uint64_t wide = (width + 255) / 256;
    const uint64_t panel = blockIdx.x - s.first_tile;
    const uint64_t rows = (s.count + width - 1) / width; /* rows of a panel */
    const uint64_t each = s.panel_size / width;
    const uint64_t end = ((panel + 1) * each < rows ? (panel + 1) * each : rows) * wide;
    const float *multiplier = (const float *)(const void *)(s.row_sums + s.first_row);
    double sum = 0;
    double x = 0;
    double w = 0;
    uint64_t at;
    int j;

    if (adafactor_left_out(t)) return;
    for (at = panel * each * wide; at < end; at += 32) {
        const uint64_t i = at + threadIdx.x;
        const int there = i < end;
        const double mine_x = there ? s.groups[2 * i] : 0;
        const double mine_w = there ? s.groups[2 * i + 1] : 0;
        const float mine_scale = there && s.columns ? multiplier[2 * (i / wide) + 1] : 1;

        for (j = 0; j < 32; ++j) {
            const double scale = (double)__shfl_sync(MEMOPT_I_CUDA_ALL, mine_scale, j);

            w = memopt_i_sum_double(__shfl_sync(MEMOPT_I_CUDA_ALL, mine_w, j), w);
            sum = memopt_i_sum_double(__shfl_sync(MEMOPT_I_CUDA_ALL, mine_x, j), sum);
            if ((at + (unsigned)j + 1) % wide == 0 && at + (unsigned)j < end) {
                x = fma(scale * scale, sum, x);
                sum = 0;
            }
        }
    }
    if (threadIdx.x == 0) {
        s.squares[2 * (s.panel + panel)] = x;
        s.squares[2 * (s.panel + panel) + 1] = w;
    }
}

/* How far each tensor goes: a block for each. */
PRUNED __global__ void __launch_bounds__(OPTIM_THREADS) adafactor_pace_kernel(const CU_ARGUMENT adafactor_table t) {
    const adafactor_slice &s = t.slice[blockIdx.x];
    uint64_t row;
    const double rate = s.by ? s.by->rate : s.rate;
    const double pace = memopt_i_adafactor_pace(&s.group, rate, s.squares, s.panels, s.all);
    float *multiplier = (float *)(void *)(s.row_sums + s.first_row);

    if (adafactor_left_out(t)) return;
    if (threadIdx.x == 0) *s.pace = (float)pace;
    for (row = threadIdx.x; row < s.held_rows; row += OPTIM_THREADS)
        multiplier[2 * row + 1] = (float)((double)multiplier[2 * row + 1] * pace);
}

/* The means go into the state with a tensor's first slice. */
PRUNED __global__ void __launch_bounds__(OPTIM_THREADS) adafactor_keep_kernel(const CU_ARGUMENT adafactor_table t) {
    const int k = (int)find_entry(t.slice, t.count, blockIdx.x);
    const adafactor_slice &s = t.slice[k];
    const uint64_t i = (uint64_t)(blockIdx.x - s.first_tile) * 256 + threadIdx.x;
    const float *row = (const float *)(const void *)(s.row_sums + s.first_row);
    const float *column = (const float *)(const void *)s.column_sums;

    if (t.stops && t.control->stopped) return;
    if (i < s.held_rows) s.rows[i] = row[2 * i];
    else if (i < s.held_rows + s.columns) s.columns_of[i - s.held_rows] = column[2 * (i - s.held_rows)];
}

/* @section cuda_optim : cuda_adafactor cuda_memory api_cuda_optim
   The calls: what belongs to what, and launches for many tensors.
   Idea       The object, its checks and its rules are the CPU's; only headers of states are not looked at. What the
              host cannot know without waiting stays on the device: sums, trust ratios, the pace, the flag of a fused
              step. Kernels read them where the CPU's functions read the object.
   Known      What only the device knows, a factor, a step's number and rate, is in ten numbers of a rule and its noise,
              which a launch at begin leaves in the scratch, 80 bytes for each tensor, by the CPU's functions. A block
              loads its tensor's: no element pays for it, and a step of which the host knows all only asks whether there
              are any. A factor of 0 is a stop before the first.
   Scratch    Control and codes; a float, a double and those 80 bytes for each tensor; the sums, laid out as in the
              object; for Adafactor two doubles for each group of 256 elements, of as many tensors as fit 4 MiB: at
              least one. Of Muon's matrices the largest one's.
   Muon       Its matrices are stepped one by one, by functions that the object's desc brings along: who does not name
              them does not compile them. All its other tensors are AdamW's.
   Offload    A tile is what one launch steps: slices of tensors, whole ones where they are small, until the memory of a
              tile is full. Their moments and scales are copied there, and there the slice's pointers point: kernels do
              not know. Tile k + 1 comes up while k is stepped and k - 1 goes down; an event a tile says when its memory
              is free again. With floats 16 bytes an element cross the bus, half of them each way, and 4 with 8 bits.
   Invariant  Everything is checked before the first launch. begin changes the object when its launch has succeeded. */

struct optim_call;

/* What section cuda_muon steps matrices with, behind memopt_muon.device. */
struct optim_muon {
    size_t   (*bytes_fn)(const memopt_optim_desc *d, const memopt_optim_tensor *t); /* of scratch; SIZE_MAX: too many */
    status_t (*check_fn)(const optim_call *c, size_t tensor); /* before anything has been launched */
    status_t (*step_fn)(const optim_call *c, size_t tensor);
};

struct optim_parts { /* of the scratch, each at a multiple of 256 bytes */
    optim_control *control;
    optim_codes   *codes;
    float  *pace;             /* this and the next two: one for each tensor */
    optim_terms *by;
    double *mean, *sums;
    double *groups;           /* two for each of group_count */
    unsigned char *muon;      /* the matrix that is under way */
    size_t  sum_count, group_count, muon_bytes, bytes;
};

struct optim_call { /* what a call works with */
    memopt_optim *o;
    optim_parts at;
    cudaStream_t stream;
};

/* Groups of 256 that a slice of a tensor leaves in the scratch, in rows of so many elements. */
PRUNED size_t adafactor_groups(size_t width, size_t count) {
    return memopt_i_ceil_div(count, width) * memopt_i_ceil_div(width, 256);
}

PRUNED void optim_lay_out(size_t tensors, optim_parts *p, memopt_carver *c) {
    p->control = (optim_control *)memopt_carve(c, 1, sizeof *p->control, 256);
    p->codes = (optim_codes *)memopt_carve(c, 1, sizeof *p->codes, 256);
    p->pace = (float *)memopt_carve(c, tensors, sizeof *p->pace, 256);
    p->by = (optim_terms *)memopt_carve(c, tensors, sizeof *p->by, 256);
    p->mean = (double *)memopt_carve(c, tensors, sizeof *p->mean, 256);
    p->sums = (double *)memopt_carve(c, p->sum_count, sizeof *p->sums, 256);
    p->groups = (double *)memopt_carve(c, p->group_count, 2 * sizeof *p->groups, 256);
    p->muon = (unsigned char *)memopt_carve(c, p->muon_bytes, 1, 256);
    (void)memopt_carve(c, 0, 1, 256);
    p->bytes = c->bytes;
}

PRUNED const optim_muon *optim_muon_of(const memopt_optim_desc *d) { return (const optim_muon *)d->muon->device; }

/* The kind of all that is stepped by tables of slices: beside Muon's matrices, AdamW's. */
PRUNED memopt_optim_kind optim_kind_of(const memopt_optim_desc *d) {
    return d->kind == MEMOPT_OPTIM_MUON ? MEMOPT_OPTIM_ADAMW : d->kind;
}

/* How many sums and groups the scratch has room for, and its bytes; of a desc with its defaults. */
PRUNED status_t optim_count(const memopt_optim_desc *d, optim_parts *p) {
    memopt_carver c = memopt_carver_begin(NULL);
    memopt_i_tensor_part part;
    size_t max = 0, all = 0, i;

    p->sum_count = p->muon_bytes = 0;
    if (d->kind == MEMOPT_OPTIM_MUON && !optim_muon_of(d)) return MEMOPT_ERR_UNSUPPORTED; /* see optim_left_in() */
    for (i = 0; i < d->tensor_count && memopt_i_kind_measures(d->kind); ++i) {
        const memopt_optim_tensor *t = &d->tensors[i];
        const size_t columns = memopt_i_adafactor_columns(t);
        size_t groups = 0;

        memopt_i_tensor_fill(d, t, &part);
        if (part.kind == MEMOPT_OPTIM_MUON && part.held)
            p->muon_bytes = memopt_i_max(p->muon_bytes, optim_muon_of(d)->bytes_fn(d, t));
        if (d->kind == MEMOPT_OPTIM_ADAFACTOR)
            groups = adafactor_groups(columns ? columns : memopt_i_adafactor_slice_alignment(d, t), part.held);
        max = memopt_i_max(max, groups);
        if (memopt_i_add(all, groups, &all)) return MEMOPT_ERR_OVERFLOW;
        if (memopt_i_add(p->sum_count, part.sum_count + part.end_count, &p->sum_count)) return MEMOPT_ERR_OVERFLOW;
    }
    p->group_count = memopt_i_max(max, memopt_i_min(all, (size_t)1 << 18)); /* 4 MiB, unless a tensor needs more */
    optim_lay_out(d->tensor_count, p, &c);
    return c.overflow ? MEMOPT_ERR_OVERFLOW : 0;
}

/* Sums under way at a border do not travel between devices: kinds that measure need parts of whole chunks or panels. */
PRUNED status_t optim_uncut(memopt_optim *o) {
    size_t i;

    for (i = 0; i < o->desc.tensor_count && memopt_i_kind_measures(o->desc.kind); ++i)
        if (memopt_i_part_is_cut(&o->desc, &o->desc.tensors[i]))
            return memopt_i_optim_fail_at(o, MEMOPT_ERR_UNSUPPORTED,
                "the part begins or ends where a slice may not, which a device does not measure", i);
    return 0;
}

PRUNED status_t optim_not_here(memopt_optim *o) {
    return memopt_i_optim_fail(o, MEMOPT_ERR_UNSUPPORTED,
                               "no device steps MEMOPT_STATE_BNB: see memopt_optim_state_convert()");
}

/* What MEMOPT_CUDA_ONLY_ADAMW leaves out; states of bitsandbytes; and Muon of the CPU. */
PRUNED status_t optim_left_in(memopt_optim *o) {
    const memopt_optim_desc *d = &o->desc;
#ifdef MEMOPT_CUDA_ONLY_ADAMW
    const int adam = d->kind == MEMOPT_OPTIM_ADAMW || d->kind == MEMOPT_OPTIM_ADAM;

    if (!adam || (d->state == MEMOPT_STATE_8BIT && d->block != 256))
        return memopt_i_optim_fail(o, MEMOPT_ERR_UNSUPPORTED,
                                   "MEMOPT_CUDA_ONLY_ADAMW has left out this kind, state or block");
#endif
    if (d->state == MEMOPT_STATE_BNB) return optim_not_here(o);
    if (d->kind == MEMOPT_OPTIM_MUON && !optim_muon_of(d))
        return memopt_i_optim_fail(o, MEMOPT_ERR_UNSUPPORTED, "muon is the CPU's: take memopt_cuda_muon_products()");
    return 0;
}

/* What all calls with a scratch look at first. */
PRUNED status_t optim_call_of(optim_call *c, memopt_optim *o, const void *d_scratch, size_t bytes,
                              cudaStream_t stream) {
    memopt_carver carver = memopt_carver_begin((void *)(uintptr_t)d_scratch);
    status_t s;

    if (!o) return MEMOPT_CUDA_ERR_NULL;
    s = pointer(d_scratch, 256);
    if (!s) s = optim_left_in(o);
    if (!s) s = optim_count(&o->desc, &c->at);
    if (!s && bytes < c->at.bytes) s = MEMOPT_ERR_BUFFER;
    if (!s) s = optim_uncut(o);
    if (s) return s;
    optim_lay_out(o->desc.tensor_count, &c->at, &carver);
    c->o = o;
    c->stream = stream;
    return 0;
}

PRUNED optim_terms *optim_by_of(const optim_call *c) { /* NULL: the host has all of it */
    return c->o->by_device ? c->at.by : NULL;
}

PRUNED double *optim_sums_of(const optim_call *c, size_t tensor) { return c->at.sums + c->o->parts[tensor].sums; }

PUBLIC status_t api::memopt_cuda_optim_scratch(const memopt_optim *optim, size_t *bytes) {
    optim_parts parts;
    status_t s;

    if (!optim || !bytes) return MEMOPT_CUDA_ERR_NULL;
    s = optim_count(&optim->desc, &parts);
    if (!s) *bytes = parts.bytes;
    return s;
}

/* ---- many slices in one launch ---- */
enum { OPTIM_APPLY, OPTIM_MEASURE, OPTIM_SCAN };

struct optim_batch {
    optim_table table;
    int      mode, format; /* of the moments of all of them */
    uint64_t tiles;
};

PRUNED uint32_t optim_family(memopt_optim_kind kind) {
    switch (kind) {
    case MEMOPT_OPTIM_SGD: case MEMOPT_OPTIM_LARS: return OPTIM_SGD;
    case MEMOPT_OPTIM_LION: return OPTIM_LION;
    case MEMOPT_OPTIM_LAMB: return OPTIM_LAMB;
    case MEMOPT_OPTIM_ADAFACTOR: return OPTIM_ADAFACTOR;
    case MEMOPT_OPTIM_RMSPROP: return OPTIM_RMSPROP;
    default: return OPTIM_ADAM;
    }
}

PRUNED void optim_batch_of(const optim_call *c, optim_batch *b, int mode, memopt_state_format format) {
    optim_table *t = &b->table;
    const memopt_optim *o = c->o;
    const memopt_optim_kind kind = optim_kind_of(&o->desc);

    memset(b, 0, sizeof *b);
    if (!memopt_i_kind_moments(&o->desc, kind)) format = MEMOPT_STATE_F32; /* nothing is coded */
    b->mode = mode;
    b->format = (int)format;
    t->control = c->at.control;
    t->codes = c->at.codes;
    t->pace = c->at.pace;
    t->chunk = o->chunk;
    t->kind = (uint32_t)kind;
    t->family = optim_family(kind);
    t->weights = (uint32_t)memopt_i_weights_of(&o->desc);
    t->gradients = (uint32_t)o->desc.gradients;
    t->state = (uint32_t)format;
    t->block = (uint32_t)o->desc.block;
    t->moments = (uint32_t)memopt_i_kind_moments(&o->desc, kind);
    t->by = optim_by_of(c);
    t->stops = (uint32_t)(o->fused || o->by_device);
    if (mode == OPTIM_MEASURE) t->tile = (uint32_t)o->chunk;
    else if (mode == OPTIM_SCAN || !memopt_i_is_coded(format)) t->tile = OPTIM_TILE;
    else if (format == MEMOPT_STATE_8BIT && t->block == 256) t->tile = 8 * OPTIM_CODED_THREADS * OPTIM_ROUNDS;
    else t->tile = (uint32_t)(OPTIM_CODED / t->block * t->block);
}

/* AdamW over floats, and 8-bit AdamW, have kernels of their own; the others share one for each format of moments. */
PRUNED status_t optim_launch(const optim_batch *b, cudaStream_t stream) {
    const unsigned threads = OPTIM_THREADS;
    const unsigned fewer = OPTIM_CODED_THREADS;
    const optim_table &t = b->table;
    const int is_adamw = t.kind == MEMOPT_OPTIM_ADAMW;
    const int f32 = is_adamw && t.weights == MEMOPT_I_WEIGHTS_F32 && t.gradients == MEMOPT_TYPE_F32;
    const int bf16 = is_adamw && t.weights == MEMOPT_I_WEIGHTS_BF16 && t.gradients == MEMOPT_TYPE_BF16;

    if (f32 && b->format == MEMOPT_STATE_F32)
        return CU_RUN((optim_floats_kernel<OPTIM_ADAM, OPTIM_F32>), b->tiles, threads, 0, stream, t);
    if (!memopt_i_is_coded((memopt_state_format)b->format))
        return CU_RUN((optim_floats_kernel<OPTIM_OTHERS, OPTIM_MIXED>), b->tiles, threads, 0, stream, t);
#ifndef MEMOPT_CUDA_ONLY_ADAMW
    if (t.block != 256)
        return CU_RUN((optim_coded_kernel<OPTIM_OTHERS>), b->tiles, OPTIM_CODED / 4, 0, stream, t);
#endif
    if (f32) return CU_RUN((optim_coded256_kernel<OPTIM_ADAM, OPTIM_F32>), b->tiles, fewer, 0, stream, t);
    if (bf16) return CU_RUN((optim_coded256_kernel<OPTIM_ADAM, OPTIM_BF16>), b->tiles, fewer, 0, stream, t);
    if (t.family == OPTIM_ADAM)
        return CU_RUN((optim_coded256_kernel<OPTIM_ADAM, OPTIM_MIXED>), b->tiles, fewer, 0, stream, t);
    return CU_RUN((optim_coded256_kernel<OPTIM_OTHERS, OPTIM_MIXED>), b->tiles, fewer, 0, stream, t);
}

PRUNED status_t optim_flush(const optim_call *c, optim_batch *b) {
    const unsigned threads = OPTIM_THREADS;
    status_t s;

    if (!b->table.count) return 0;
    if (b->mode == OPTIM_SCAN) s = CU_RUN(optim_scan_kernel<>, b->tiles, threads, 0, c->stream, b->table);
    else if (b->mode == OPTIM_APPLY) s = optim_launch(b, c->stream);
#ifndef MEMOPT_CUDA_ONLY_ADAMW
    else s = CU_RUN(optim_measure_kernel<>, b->tiles, threads, 0, c->stream, b->table);
#else
    else s = MEMOPT_ERR_UNSUPPORTED;
#endif
    b->table.count = b->table.rules = 0;
    b->tiles = 0;
    return s;
}

PRUNED int optim_misaligned(const void *p, size_t bytes) { return (uintptr_t)p % bytes != 0; }
static unsigned char *optim_past(void *p, size_t bytes) { return p ? (unsigned char *)p + bytes : NULL; }

/* The slice at..at+count of a tensor, as the kernels see it. */
PRUNED void optim_slice_of(const optim_call *c, size_t tensor, size_t at, size_t count, optim_slice *s) {
    memopt_optim *o = c->o;
    const memopt_optim_tensor *t = &o->desc.tensors[tensor];
    const memopt_i_tensor_part *part = &o->parts[tensor];
    const size_t wide = memopt_type_bytes(o->desc.weights);
    const size_t gradient = memopt_type_bytes(o->desc.gradients);
    memopt_optim_view view;
    int i;

    memset(s, 0, sizeof *s);
    (void)memopt_i_state_layout(part, &o->desc, t, &view);
    s->weights = (unsigned char *)t->weights + at * wide;
    s->extra = o->desc.extra ? optim_past(t->extra, at * 2) : NULL;
    s->gradients = (const unsigned char *)t->gradients + at * gradient;
    for (i = 0; i < 2; ++i) {
        s->moment[i] = optim_past(view.moment[i], at * (size_t)view.bits / 8);
        if (view.scale[i]) s->scale[i] = view.scale[i] + at / o->desc.block;
    }
    if (o->desc.kind == MEMOPT_OPTIM_ADAFACTOR) {
        const memopt_i_adafactor f = memopt_i_adafactor_of(o, tensor, at, count);
        double *sums = optim_sums_of(c, tensor);

        s->columns = f.columns;
        s->moment[1] =
            f.columns ? (void *)((float *)(void *)(sums + f.first_row + at / f.columns) + 1) : (void *)(view.rows + at);
        s->scale[1] = f.columns ? (float *)(void *)(sums + f.rows) + 1 : NULL;
    } else if (part->sum_count)
        s->sums = optim_sums_of(c, tensor) + 2 * ((t->first + at) / o->chunk);
    s->place = (uint64_t)t->first + at;
    s->count = count;
    s->tensor = (uint32_t)tensor;
    for (i = 0; i < MEMOPT_I_NOISES; ++i) s->noise[i] = part->noise[i];
    s->aligned = !optim_misaligned(s->weights, 4 * wide) && !optim_misaligned(s->gradients, 4 * gradient)
              && !optim_misaligned(s->extra, 8);
}

/* A rule's place in a table; `most` where there is no room. */
PRUNED uint32_t optim_rule_at(memopt_i_update_rule *rules, uint32_t *count, uint32_t max,
                              const memopt_i_update_rule *rule) {
    uint32_t i;

    for (i = 0; i < *count; ++i)
        if (!memcmp(&rules[i], rule, sizeof *rule)) return i;
    if (i == max) return max;
    rules[i] = *rule;
    ++*count;
    return i;
}

/* 1: taken into the table; 0: no room. */
PRUNED int optim_take(const optim_call *c, optim_batch *b, optim_slice *slice) {
    optim_table *t = &b->table;
    const uint64_t tiles = memopt_i_ceil_div((size_t)slice->count, t->tile);

    if (t->count == OPTIM_SLICES || b->tiles + tiles > 0x7fffffff) return 0;
    slice->rule = optim_rule_at(t->rule, &t->rules, OPTIM_RULES, &c->o->parts[slice->tensor].rule);
    if (slice->rule == OPTIM_RULES) return 0;
    slice->first_tile = (uint32_t)b->tiles;
    t->slice[t->count++] = *slice;
    b->tiles += tiles;
    return 1;
}

PRUNED status_t optim_add(const optim_call *c, optim_batch *b, size_t tensor, size_t at, size_t count) {
    optim_slice slice;
    status_t s;

    if (memopt_i_ceil_div(count, b->table.tile) > 0x7fffffff) return MEMOPT_ERR_OVERFLOW;
    optim_slice_of(c, tensor, at, count, &slice);
    if (optim_take(c, b, &slice)) return 0;
    s = optim_flush(c, b);
    if (!s) (void)optim_take(c, b, &slice);
    return s;
}

/* ---- states in the host's memory ---- */
struct offload_copy { unsigned char *host, *device; size_t bytes; };

struct offload_pass {
    const optim_call *c;
    memopt_cuda_transfer *transfer;
    unsigned char *d_tiles;
    size_t tile, bytes;   /* elements of a slice, bytes of a tile */
    size_t number;        /* of the tile that is being filled; ... */
    size_t used, copies;  /* ... of it */
    optim_batch batch;
    offload_copy copy[4 * (OPTIM_SLICES + 1)]; /* one slice that has no room is placed, too */
};

/* The next place of the tile, for bytes whose place in the state that is. */
PRUNED void *offload_next(offload_pass *f, void *host, size_t bytes) {
    offload_copy *copy = &f->copy[f->copies++];

    copy->host = (unsigned char *)host;
    copy->device = (unsigned char *)((uintptr_t)f->d_tiles + f->number % TRANSFER_TILES * f->bytes + f->used);
    copy->bytes = bytes;
    f->used += memopt_i_align_down(bytes + 255, 256);
    return copy->device;
}

/* A slice whose moments and scales are the tile's. */
PRUNED void offload_place(offload_pass *f, memopt_optim *o, optim_slice *s) {
    const memopt_i_tensor_part *part = &o->parts[s->tensor];
    memopt_optim_view view;
    int i;

    (void)memopt_i_state_layout(part, &o->desc, &o->desc.tensors[s->tensor], &view);
    for (i = 0; i < 2; ++i) {
        if (!memopt_i_kind_keeps(&o->desc, o->desc.kind, i)) continue;
        s->moment[i] = offload_next(f, s->moment[i], (size_t)s->count * (size_t)view.bits / 8);
        if (part->blocks)
            s->scale[i] = (float *)offload_next(f, s->scale[i], memopt_i_ceil_div((size_t)s->count, o->desc.block) * 4);
    }
}

/* The next tile: its memory is free when what was there has left. */
PRUNED status_t offload_open(offload_pass *f) {
    f->used = f->copies = 0;
    return await(f->transfer->streams[UP], f->transfer->left[f->number % TRANSFER_TILES]);
}

PRUNED status_t offload_copy_on(const offload_pass *f, size_t i, int way) {
    const offload_copy *copy = &f->copy[i];
    const cudaStream_t stream = f->transfer->streams[way];

    if (way == UP) return taken(cudaMemcpyAsync(copy->device, copy->host, copy->bytes, cudaMemcpyHostToDevice, stream));
    return taken(cudaMemcpyAsync(copy->host, copy->device, copy->bytes, cudaMemcpyDeviceToHost, stream));
}

/* Steps the tile when it has come, and sends it back. */
PRUNED status_t offload_flush(offload_pass *f) {
    memopt_cuda_transfer *t = f->transfer;
    status_t s;
    size_t i;

    if (!f->batch.table.count) return 0;
    s = before_stream(t, UP, f->c->stream);
    if (!s) s = optim_flush(f->c, &f->batch);
    if (!s) s = behind(t, DOWN, f->c->stream);
    for (i = 0; i < f->copies && !s; ++i) s = offload_copy_on(f, i, DOWN);
    if (!s) s = taken(cudaEventRecord(t->left[f->number % TRANSFER_TILES], t->streams[DOWN]));
    ++f->number;
    return s ? s : offload_open(f);
}

PRUNED status_t offload_add(offload_pass *f, size_t tensor, size_t at, size_t count) {
    optim_slice slice;
    size_t used, i;
    status_t s = 0;

    for (;;) { /* twice at most: every slice fits an empty tile */
        used = f->used;
        i = f->copies;
        optim_slice_of(f->c, tensor, at, count, &slice);
        offload_place(f, f->c->o, &slice);
        if (f->used <= f->bytes && optim_take(f->c, &f->batch, &slice)) break;
        f->used = used;
        f->copies = i;
        if ((s = offload_flush(f)) != 0) return s;
    }
    for (; i < f->copies && !s; ++i) s = offload_copy_on(f, i, UP);
    return s;
}

/* Bytes of a tile: what the largest slice takes. */
PRUNED void offload_measure(offload_pass *f, memopt_optim *o, size_t tile) {
    optim_slice slice;
    size_t i, max = 0;

    memset(f, 0, sizeof *f);
    tile = memopt_i_min(tile ? tile : (size_t)1 << 20, (size_t)1 << 30);
    f->tile = memopt_i_ceil_div(tile, o->desc.block) * o->desc.block;
    memset(&slice, 0, sizeof slice);
    for (i = 0; i < o->desc.tensor_count; ++i) {
        slice.tensor = (uint32_t)i;
        slice.count = memopt_i_min(f->tile, o->parts[i].held);
        offload_place(f, o, &slice);
        max = memopt_i_max(max, f->used);
        f->used = f->copies = 0;
    }
    f->bytes = max;
}

PUBLIC status_t api::memopt_cuda_optim_offload_bytes(const memopt_optim *optim,
                                                     const memopt_cuda_optim_offload *offload, size_t *bytes) {
    offload_pass f;
    size_t all;

    if (!optim || !offload || !bytes) return MEMOPT_CUDA_ERR_NULL;
    offload_measure(&f, (memopt_optim *)(uintptr_t)optim, offload->tile);
    if (memopt_i_mul(f.bytes, TRANSFER_TILES, &all)) return MEMOPT_ERR_OVERFLOW;
    *bytes = all;
    return 0;
}

/* One slice, or all tensors whose moments have that format. */
PRUNED status_t optim_pass(const optim_call *c, int mode, size_t tensor, size_t at, size_t count) {
    optim_batch b;
    status_t s;

    optim_batch_of(c, &b, mode, c->o->parts[tensor].format);
    s = optim_add(c, &b, tensor, at, count);
    return s ? s : optim_flush(c, &b);
}

/* f: NULL, or whose states come from the host and go back. Muon's matrices are none of its slices. */
PRUNED status_t optim_pass_all(const optim_call *c, int mode, offload_pass *f) {
    const memopt_state_format formats[2] = { c->o->desc.state, MEMOPT_STATE_F32 };
    optim_batch own;
    optim_batch *b = f ? &f->batch : &own;
    status_t s = 0;
    size_t i, at, n;
    int k;

    for (k = 0; k < (memopt_i_is_coded(c->o->desc.state) ? 2 : 1) && !s; ++k) { /* small tensors keep floats */
        optim_batch_of(c, b, mode, formats[k]);
        for (i = 0; i < c->o->desc.tensor_count; ++i) {
            const memopt_i_tensor_part *part = &c->o->parts[i];

            if (part->format != formats[k] || part->kind == MEMOPT_OPTIM_MUON) continue;
            for (at = 0; at < part->held && !s; at += n) {
                n = part->held - at;
                if (f) n = memopt_i_min(n, f->tile);
                s = f ? offload_add(f, i, at, n) : optim_add(c, b, i, at, n);
            }
        }
        if (!s) s = f ? offload_flush(f) : optim_flush(c, b);
    }
    return s;
}

/* ---- Adafactor's passes over many tensors ---- */
enum {
    ADAFACTOR_ROWS, ADAFACTOR_COLUMNS, ADAFACTOR_JOIN_COLUMNS,
    ADAFACTOR_MEAN, ADAFACTOR_JOIN_ROWS, ADAFACTOR_SQUARES,
    ADAFACTOR_FOLD, ADAFACTOR_PACE, ADAFACTOR_KEEP
};

struct adafactor_batch {
    adafactor_table table;
    size_t groups;
};

PRUNED uint64_t adafactor_tiles(const adafactor_slice *s, int which) {
    const uint64_t width = s->columns ? s->columns : s->panel_size;
    const uint64_t wide = memopt_i_ceil_div(width, 256);

    switch (which) {
    case ADAFACTOR_ROWS: return memopt_i_ceil_div(s->count / s->columns, 16);
    case ADAFACTOR_COLUMNS: return memopt_i_ceil_div(s->count, s->panel_size) * wide;
    case ADAFACTOR_JOIN_COLUMNS: return wide;
    case ADAFACTOR_JOIN_ROWS: return memopt_i_ceil_div(s->held_rows, 256);
    case ADAFACTOR_SQUARES: return memopt_i_ceil_div(memopt_i_ceil_div(s->count, width) * wide, ADAFACTOR_GROUPS);
    case ADAFACTOR_FOLD: return memopt_i_ceil_div(s->count, s->panel_size);
    case ADAFACTOR_KEEP: return memopt_i_ceil_div(s->held_rows + s->columns, 256);
    default: return 1; /* a block for a tensor */
    }
}

PRUNED status_t adafactor_launch(const optim_call *c, adafactor_table *t, int which) {
    const unsigned threads = OPTIM_THREADS;
    uint64_t tiles = 0;
    uint32_t i;

    for (i = 0; i < t->count; ++i) {
        t->slice[i].first_tile = (uint32_t)tiles;
        tiles += adafactor_tiles(&t->slice[i], which);
        if (tiles > 0x7fffffff) return MEMOPT_ERR_OVERFLOW;
    }
#ifndef MEMOPT_CUDA_ONLY_ADAMW
#  define MEMOPT_I_CUDA_ADAFACTOR_CASE(label, kernel, size) \
    case ADAFACTOR_##label: \
        return CU_RUN(adafactor_##kernel##_kernel<>, tiles, size, 0, c->stream, *t)
    switch (which) {
        MEMOPT_I_CUDA_ADAFACTOR_CASE(ROWS, rows, threads);
        MEMOPT_I_CUDA_ADAFACTOR_CASE(COLUMNS, columns, threads);
        MEMOPT_I_CUDA_ADAFACTOR_CASE(JOIN_COLUMNS, join_columns, threads);
        MEMOPT_I_CUDA_ADAFACTOR_CASE(MEAN, mean, 32);
        MEMOPT_I_CUDA_ADAFACTOR_CASE(JOIN_ROWS, join_rows, threads);
        MEMOPT_I_CUDA_ADAFACTOR_CASE(SQUARES, squares, threads);
        MEMOPT_I_CUDA_ADAFACTOR_CASE(FOLD, fold, 32);
        MEMOPT_I_CUDA_ADAFACTOR_CASE(PACE, pace, threads);
        MEMOPT_I_CUDA_ADAFACTOR_CASE(KEEP, keep, threads);
    }
#  undef MEMOPT_I_CUDA_ADAFACTOR_CASE
#else
    (void)threads;
    (void)c;
    (void)which;
#endif
    return 0;
}

PRUNED void adafactor_begin(const optim_call *c, adafactor_batch *b) {
    memset(b, 0, sizeof *b);
    b->table.control = c->at.control;
    b->table.weights = (uint32_t)memopt_i_weights_of(&c->o->desc);
    b->table.gradients = (uint32_t)c->o->desc.gradients;
    b->table.stops = (uint32_t)(c->o->fused || c->o->by_device);
}

/* 1: taken in; 0: no room. */
PRUNED int adafactor_add(const optim_call *c, adafactor_batch *b, size_t tensor, size_t at, size_t count) {
    const memopt_i_adafactor f = memopt_i_adafactor_of(c->o, tensor, at, count);
    adafactor_table *t = &b->table;
    const size_t groups = adafactor_groups(f.width, count);
    adafactor_slice *s;
    optim_slice slice;
    uint32_t rule;

    if (t->count == ADAFACTOR_SLICES || groups > c->at.group_count - b->groups) return 0;
    rule = optim_rule_at(t->rule, &t->rules, ADAFACTOR_RULES, &f.part->rule);
    if (rule == ADAFACTOR_RULES) return 0;
    s = &t->slice[t->count++];
    optim_slice_of(c, tensor, at, count, &slice);
    s->weights = slice.weights;
    s->extra = slice.extra;
    s->gradients = slice.gradients;
    s->rows = f.columns ? f.view.rows : f.view.rows + at;
    s->columns_of = f.view.columns;
    s->row_sums = optim_sums_of(c, tensor);
    s->column_sums = s->row_sums + f.rows;
    s->squares = s->column_sums + MEMOPT_I_ADAFACTOR_PANELS * f.columns;
    s->groups = c->at.groups + 2 * b->groups;
    s->mean = c->at.mean + tensor;
    s->pace = c->at.pace + tensor;
    s->by = c->o->by_device ? c->at.by + tensor : NULL;
    s->group = f.part->group;
    s->rate = memopt_i_adafactor_rate(f.part->group.rate, f.part->step);
    s->all = f.tensor->count;
    s->count = count;
    s->columns = f.columns;
    s->panel_size = f.panel_size;
    s->held_rows = f.held_rows;
    s->panels = f.panels;
    s->first_row = f.columns ? f.first_row + at / f.columns : 0;
    s->panel = (f.tensor->first + at) / f.panel_size;
    s->rule = rule;
    b->groups += groups;
    return 1;
}

PRUNED status_t adafactor_measure(const optim_call *c, adafactor_batch *b, int phase) {
    const int then = phase ? ADAFACTOR_FOLD : ADAFACTOR_COLUMNS;
    status_t s;

    s = adafactor_launch(c, &b->table, phase ? ADAFACTOR_SQUARES : ADAFACTOR_ROWS);
    return s ? s : adafactor_launch(c, &b->table, then);
}

PRUNED status_t adafactor_join(const optim_call *c, adafactor_batch *b, int phase) {
    status_t s;

    if (phase) return adafactor_launch(c, &b->table, ADAFACTOR_PACE);
    s = adafactor_launch(c, &b->table, ADAFACTOR_JOIN_COLUMNS);
    if (!s) s = adafactor_launch(c, &b->table, ADAFACTOR_MEAN);
    return s ? s : adafactor_launch(c, &b->table, ADAFACTOR_JOIN_ROWS);
}

/* One of the passes over all tensors; a vector has no first one, and no means to keep. */
enum { ADAFACTOR_FIRST, ADAFACTOR_SECOND, ADAFACTOR_MEANS };

PRUNED status_t adafactor_run(const optim_call *c, adafactor_batch *b, int pass) {
    status_t s;

    if (!b->table.count) return 0;
    if (pass == ADAFACTOR_MEANS) return adafactor_launch(c, &b->table, ADAFACTOR_KEEP);
    s = adafactor_measure(c, b, pass == ADAFACTOR_SECOND);
    return s ? s : adafactor_join(c, b, pass == ADAFACTOR_SECOND);
}

PRUNED status_t adafactor_all(const optim_call *c, int pass) {
    adafactor_batch b;
    status_t s;
    size_t i;

    adafactor_begin(c, &b);
    for (i = 0; i < c->o->desc.tensor_count; ++i) {
        if (!c->o->parts[i].held) continue;
        if (pass != ADAFACTOR_SECOND && !memopt_i_adafactor_is_matrix(&c->o->desc.tensors[i])) continue;
        if (adafactor_add(c, &b, i, 0, c->o->parts[i].held)) continue;
        s = adafactor_run(c, &b, pass);
        if (s) return s;
        adafactor_begin(c, &b);
        (void)adafactor_add(c, &b, i, 0, c->o->parts[i].held);
    }
    return adafactor_run(c, &b, pass);
}

/* ---- states ---- */
struct optim_header { uint4 word[sizeof(memopt_i_state_header) / 16]; };

/* Zeros behind a header. */
PRUNED __global__ void __launch_bounds__(OPTIM_THREADS)
optim_state_kernel(uint4 *state, uint64_t words, const CU_ARGUMENT optim_header header) {
    const uint64_t i = (uint64_t)blockIdx.x * OPTIM_THREADS + threadIdx.x;

    if (i < words) state[i] = i < sizeof header / 16 ? header.word[i] : make_uint4(0, 0, 0, 0);
}

PRUNED status_t optim_tensor(memopt_optim *o, size_t tensor) {
    if (!o) return MEMOPT_CUDA_ERR_NULL;
    return memopt_i_optim_has(o, tensor) ? MEMOPT_ERR_ARGUMENT : memopt_i_state_there(o, tensor);
}

PUBLIC status_t api::memopt_cuda_optim_state_init(memopt_optim *optim, size_t tensor, cudaStream_t stream) {
    const status_t s = optim_tensor(optim, tensor);
    memopt_optim_view view;
    size_t bytes;
    const memopt_optim_tensor *t;
    memopt_i_state_header want;
    optim_header header;

    if (s) return s;
    if (optim->desc.state == MEMOPT_STATE_BNB) return optim_not_here(optim);
    t = &optim->desc.tensors[tensor];
    bytes = memopt_i_state_layout(&optim->parts[tensor], &optim->desc, t, &view);
    if (!bytes) return 0;
    want = memopt_i_state_expected(&optim->parts[tensor], &optim->desc, t);
    memcpy(&header, &want, sizeof header);
    return CU_RUN(optim_state_kernel<>, memopt_i_ceil_div(bytes / 16, OPTIM_THREADS), OPTIM_THREADS, 0, stream,
                  (uint4 *)t->state, bytes / 16, header);
}

PRUNED status_t optim_fetch(void *to, const void *d_from, size_t bytes, cudaStream_t stream) {
    cudaError_t e = cudaMemcpyAsync(to, d_from, bytes, cudaMemcpyDeviceToHost, stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(stream);
    return taken(e);
}

PUBLIC status_t api::memopt_cuda_optim_state_check(memopt_optim *optim, size_t tensor, size_t bytes,
                                                   cudaStream_t stream) {
    memopt_i_state_header header;
    memopt_optim_view view;
    float scale[1024];
    size_t need, i, n, k;
    int m;
    status_t s;

    if (!optim) return MEMOPT_CUDA_ERR_NULL;
    if (tensor < optim->desc.tensor_count) {
        need = memopt_i_state_layout(&optim->parts[tensor], &optim->desc, &optim->desc.tensors[tensor], &view);
        if ((s = memopt_i_state_whole(optim, tensor, bytes, need)) != MEMOPT_OK) return s;
        if (!need) return 0;
    }
    s = optim_tensor(optim, tensor);
    if (!s) s = ready();
    if (!s) s = optim_fetch(&header, optim->desc.tensors[tensor].state, sizeof header, stream);
    if (!s) s = memopt_i_state_header_check(optim, tensor, &header);
    for (m = 0; !s && m < 2; ++m)
        for (i = 0; view.scale[m] && i < view.blocks && !s; i += n) {
            n = memopt_i_min(1024, view.blocks - i);
            s = optim_fetch(scale, view.scale[m] + i, n * sizeof *scale, stream);
            for (k = 0; k < n && !s; ++k)
                if (memopt_i_float_bits(scale[k]) >= 0x7f800000u)
                    s = memopt_i_optim_fail_at(optim, MEMOPT_ERR_FORMAT,
                                               "a scale of the state is negative or not finite", tensor);
        }
    return s;
}

/* ---- a step ---- */
PRUNED __global__ void __launch_bounds__(OPTIM_THREADS)
optim_begin_kernel(optim_control *control, optim_codes *to, double *sums,
                   uint64_t count, const CU_ARGUMENT optim_codes codes) {
    const unsigned i = threadIdx.x;
    const uint64_t at = ((uint64_t)blockIdx.x - 1) * OPTIM_THREADS + i;

    if (blockIdx.x) {
        if (at < count) sums[at] = 0;
        return;
    }
    to->level[0][i] = codes.level[0][i];
    to->level[1][i] = codes.level[1][i];
    if (i < 32) {
        to->grid[0][i] = codes.grid[0][i];
        to->grid[1][i] = codes.grid[1][i];
    }
    if (i == 0) {
        control->skipped = control->tensor = control->first = 0;
        control->stopped = 0;
    }
}

static_assert(sizeof(optim_codes) <= 3900, "the argument of a kernel");

PRUNED optim_codes optim_codes_of(const memopt_optim *o) {
    optim_codes codes;
    int m, i;

    for (m = 0; m < 2; ++m) {
        for (i = 0; i < 256; ++i) codes.level[m][i] = o->codes[m].value[i];
        for (i = 0; i < 32; ++i) codes.grid[m][i] = o->codes[m].grid[i];
    }
    return codes;
}

/* What the rules of up to 90 tensors are made of, where the device knows the factor, or all that changes. */
enum { OPTIM_RATES = 90 };

struct optim_rates {
    struct { double beta1, beta2, rate, weight_decay, dampening; } of[OPTIM_RATES];
    uint64_t seed, first, step; /* the first tensor; step: where the host counts */
    uint32_t count, kind, last; /* last: of a step's launches, that which counts it */
};

static_assert(sizeof(optim_rates) <= 3900, "the argument of a kernel");

CU_DEVICE optim_terms optim_terms_of(const optim_rates &r, unsigned i, double factor, double rate, uint64_t step) {
    const memopt_optim_kind kind = (memopt_optim_kind)r.kind;
    const double by_rate = memopt_i_times_double(r.of[i].rate, rate);
    const memopt_i_gradient_terms g = memopt_i_gradient_terms_of(kind, r.of[i].beta1, r.of[i].beta2, factor);
    const memopt_i_step_terms s =
        memopt_i_step_terms_of(kind, r.of[i].beta1, r.of[i].beta2, by_rate, r.of[i].weight_decay, step);
    const bool sgd = kind == MEMOPT_OPTIM_SGD;
    const bool adafactor = kind == MEMOPT_OPTIM_ADAFACTOR;
    optim_terms x;

    x.gradient = make_float4(g.limit, g.factor, !sgd ? g.g1 : step == 1 ? 1.0f : (float)(1 - r.of[i].dampening),
                             adafactor ? s.g2 : g.g2);
    x.step = make_float4(s.step, s.decay, s.ic1, s.ic2);
    x.rate = adafactor ? memopt_i_adafactor_rate(by_rate, step) : by_rate;
    x.b2 = s.b2;
    for (unsigned n = 0; n < MEMOPT_I_NOISES; ++n)
        x.noise[n] = memopt_i_optim_noise(r.seed, (r.first + i) * MEMOPT_I_NOISES + n, step);
    return x;
}

/* progress: NULL where the host counts. All read it before its number of steps is counted up. */
PRUNED __global__ void __launch_bounds__(OPTIM_THREADS)
optim_by_kernel(optim_control *control, optim_terms *by, const double *d_factor, memopt_cuda_optim_progress *progress,
                const CU_ARGUMENT optim_rates rates) {
    const unsigned i = threadIdx.x;
    const double f = *d_factor;
    const double rate = progress ? progress->rate : 1;
    const uint64_t step = progress ? progress->steps + 1 : rates.step;
    const int allowed = memopt_i_gradient_terms_allowed(f) && memopt_i_within(rate, 0, 1e30);

    __syncthreads(); /* progress has been read */
    if (i == 0 && !allowed) control->stopped = OPTIM_LEFT_OUT;
    if (i == 0 && allowed && progress && rates.last) progress->steps = step;
    if (i < rates.count) by[i] = optim_terms_of(rates, i, allowed ? f : 1, allowed ? rate : 1, step);
}

/* What of a step only the device knows: a factor, or all that changes; bytes 0: nothing. */
struct optim_known {
    const double *d_factor;
    memopt_cuda_optim_progress *d_progress;
    size_t bytes;
};

PRUNED status_t optim_begin_terms(const optim_call *c, const memopt_optim_run *run, const optim_known &known) {
    const memopt_optim_desc *d = &c->o->desc;
    const double *d_factor = known.d_progress ? &known.d_progress->factor : known.d_factor;
    optim_rates r;
    status_t s = 0;
    size_t i;

    memset(&r, 0, sizeof r);
    r.kind = (uint32_t)optim_kind_of(d);
    r.seed = d->seed;
    r.step = run->step;
    for (; r.first < d->tensor_count && !s; r.first += i) {
        for (i = 0; i < OPTIM_RATES && r.first + i < d->tensor_count; ++i) {
            const memopt_optim_group *g = &run->groups[d->tensors[r.first + i].group];

            r.of[i].beta1 = g->beta1;
            r.of[i].beta2 = g->beta2;
            r.of[i].rate = g->rate;
            r.of[i].weight_decay = g->weight_decay;
            r.of[i].dampening = g->dampening;
        }
        r.count = (uint32_t)i;
        r.last = r.first + i == d->tensor_count;
        s = CU_RUN(optim_by_kernel<>, 1, OPTIM_THREADS, 0, c->stream, c->at.control, c->at.by + r.first, d_factor,
                   known.d_progress, r);
    }
    return s;
}

/* Of all matrices: can they be multiplied? */
PRUNED status_t optim_matrices_check(const optim_call *c) {
    status_t s = 0;
    size_t i;

    for (i = 0; i < c->o->desc.tensor_count && !s; ++i)
        if (c->o->parts[i].kind == MEMOPT_OPTIM_MUON && c->o->parts[i].held)
            s = optim_muon_of(&c->o->desc)->check_fn(c, i);
    return s;
}

PRUNED status_t optim_matrices(const optim_call *c) {
    status_t s = 0;
    size_t i;

    for (i = 0; i < c->o->desc.tensor_count && !s; ++i)
        if (c->o->parts[i].kind == MEMOPT_OPTIM_MUON && c->o->parts[i].held)
            s = optim_muon_of(&c->o->desc)->step_fn(c, i);
    return s;
}

PRUNED status_t optim_begin(const optim_call *c, const memopt_optim_run *run, const optim_known &known) {
    const size_t count = memopt_i_optim_sum_count(c->o);
    status_t s = memopt_i_optim_begin_check(c->o, run, MEMOPT_I_STATES_ON_DEVICE);

    if (!s && known.bytes && run->gradient_factor != 0)
        s = memopt_i_optim_fail(c->o, MEMOPT_ERR_ARGUMENT, "the run has a gradient factor, and the device another");
    if (!s) s = optim_matrices_check(c);
    if (!s)
        s = CU_RUN(optim_begin_kernel<>, memopt_i_ceil_div(count, OPTIM_THREADS) + 1, OPTIM_THREADS, 0, c->stream,
                   c->at.control, c->at.codes, c->at.sums, count, optim_codes_of(c->o));
    if (!s && known.bytes) s = optim_begin_terms(c, run, known);
    if (s) return s;
    memopt_i_optim_begin_set(c->o, run);
    c->o->by_device = known.bytes != 0;
    return 0;
}

PUBLIC status_t api::memopt_cuda_optim_measure(memopt_optim *optim, size_t tensor, size_t first, size_t count,
                                               void *d_scratch, size_t scratch_bytes, cudaStream_t stream) {
    optim_call c;
    status_t s = optim_call_of(&c, optim, d_scratch, scratch_bytes, stream);
    adafactor_batch b;
    size_t at = 0;

    if (!s) s = memopt_i_optim_slice(optim, tensor, first, count, 1, &at);
    if (!s && optim->parts[tensor].phase >= optim->parts[tensor].phases)
        s = memopt_i_optim_fail(optim, MEMOPT_ERR_STATE,
                                "this kind does not measure, or the tensor is measured already");
    if (!s) s = ready();
    if (s || optim->desc.kind == MEMOPT_OPTIM_MUON) return s; /* its apply measures: there is room for one matrix */
    if (optim->desc.kind != MEMOPT_OPTIM_ADAFACTOR) return optim_pass(&c, OPTIM_MEASURE, tensor, at, count);
    if (!optim->parts[tensor].phase && !memopt_i_adafactor_is_matrix(&optim->desc.tensors[tensor])) return 0;
    adafactor_begin(&c, &b);
    (void)adafactor_add(&c, &b, tensor, at, count);
    return adafactor_measure(&c, &b, optim->parts[tensor].phase);
}

/* Trust ratios of the tensors from..end. */
PRUNED status_t optim_trust_run(const optim_call *c, size_t from, size_t end) {
    optim_trusts t;
    status_t s;
    size_t i;

    memset(&t, 0, sizeof t);
    t.pace = c->at.pace;
    t.is_lamb = c->o->desc.kind == MEMOPT_OPTIM_LAMB;
    t.by = optim_by_of(c);
    for (; from < end; from += i) {
        for (i = 0; i < OPTIM_TRUSTS && from + i < end; ++i) {
            const memopt_i_tensor_part *part = &c->o->parts[from + i];

            t.of[i].sums = optim_sums_of(c, from + i);
            t.of[i].count = part->sum_count / 2;
            t.of[i].group = part->group;
            t.of[i].factor = part->rule.factor;
            t.of[i].tensor = (uint32_t)(from + i);
        }
#ifndef MEMOPT_CUDA_ONLY_ADAMW
        s = CU_RUN(optim_trust_kernel<>, i, 32, 0, c->stream, t);
#else
        s = MEMOPT_ERR_UNSUPPORTED;
#endif
        if (s) return s;
    }
    return 0;
}

PUBLIC status_t api::memopt_cuda_optim_join(memopt_optim *optim, size_t tensor, int *again, void *d_scratch,
                                            size_t scratch_bytes, cudaStream_t stream) {
    optim_call c;
    status_t s = optim_call_of(&c, optim, d_scratch, scratch_bytes, stream);
    memopt_i_tensor_part *part;
    adafactor_batch b;

    if (!s && !again) s = MEMOPT_CUDA_ERR_NULL;
    if (s) return s;
    part = memopt_i_optim_join_part(optim, tensor);
    if (!part) return optim->error.status;
    s = ready();
    if (s) return s;
    if (optim->desc.kind == MEMOPT_OPTIM_ADAFACTOR) {
        adafactor_begin(&c, &b);
        (void)adafactor_add(&c, &b, tensor, 0, part->held);
        if (part->held && (part->phase || memopt_i_adafactor_is_matrix(&optim->desc.tensors[tensor])))
            s = adafactor_join(&c, &b, part->phase);
    } else if (optim->desc.kind != MEMOPT_OPTIM_MUON) s = optim_trust_run(&c, tensor, tensor + 1);
    if (s) return s;
    *again = ++part->phase < part->phases;
    return 0;
}

PUBLIC status_t api::memopt_cuda_optim_apply(memopt_optim *optim, size_t tensor, size_t first, size_t count,
                                             void *d_scratch, size_t scratch_bytes, cudaStream_t stream) {
    optim_call c;
    status_t s = optim_call_of(&c, optim, d_scratch, scratch_bytes, stream);
    adafactor_batch b;
    size_t at = 0;

    if (!s) s = memopt_i_optim_apply_slice(optim, tensor, first, count, &at);
    if (!s) s = ready();
    if (!s && optim->fused) s = optim_pass(&c, OPTIM_SCAN, tensor, at, count);
    if (!s && optim->desc.kind == MEMOPT_OPTIM_ADAFACTOR && !optim->parts[tensor].applied
        && memopt_i_adafactor_is_matrix(&optim->desc.tensors[tensor])) {
        adafactor_begin(&c, &b);
        (void)adafactor_add(&c, &b, tensor, 0, optim->parts[tensor].held);
        s = adafactor_run(&c, &b, ADAFACTOR_MEANS);
    }
    if (!s && optim->parts[tensor].kind == MEMOPT_OPTIM_MUON) s = optim_muon_of(&optim->desc)->step_fn(&c, tensor);
    else if (!s) s = optim_pass(&c, OPTIM_APPLY, tensor, at, count);
    if (!s) optim->parts[tensor].applied += count;
    return s;
}

PUBLIC status_t api::memopt_cuda_optim_end(memopt_optim *optim) {
    return optim ? (status_t)memopt_optim_end(optim) : MEMOPT_CUDA_ERR_NULL;
}

PRUNED void optim_applied_all(memopt_optim *o) {
    size_t i;

    for (i = 0; i < o->desc.tensor_count; ++i) {
        o->parts[i].applied = o->parts[i].held;
        o->parts[i].phase = o->parts[i].phases;
    }
}

PRUNED status_t offload_refused(memopt_optim *o) {
    size_t i, at;
    status_t s = 0;

    if (memopt_i_kind_measures(o->desc.kind))
        return memopt_i_optim_fail(o, MEMOPT_ERR_UNSUPPORTED, "this kind measures: its states stay on the device");
    if (o->fused) return memopt_i_optim_fail(o, MEMOPT_ERR_ARGUMENT, "a fused step is applied tensor by tensor");
    for (i = 0; i < o->desc.tensor_count && !s; ++i)
        if (o->parts[i].held)
            s = memopt_i_optim_apply_slice(o, i, o->desc.tensors[i].first, o->parts[i].held, &at);
    return s;
}

/* After a failure: nothing of the step is on its way when we return. */
PRUNED void offload_stop(const offload_pass *f) {
    (void)taken(cudaStreamSynchronize(f->transfer->streams[UP]));
    (void)taken(cudaStreamSynchronize(f->c->stream));
    (void)taken(cudaStreamSynchronize(f->transfer->streams[DOWN]));
}

PUBLIC status_t api::memopt_cuda_optim_apply_offloaded(memopt_optim *optim, const memopt_cuda_optim_offload *offload,
                                                       void *d_scratch, size_t scratch_bytes, cudaStream_t stream) {
    optim_call c;
    offload_pass f;
    size_t bytes = 0;
    status_t s = optim_call_of(&c, optim, d_scratch, scratch_bytes, stream);

    if (!s && (!offload || !offload->transfer)) s = MEMOPT_CUDA_ERR_NULL;
    if (!s) s = memopt_cuda_optim_offload_bytes(optim, offload, &bytes);
    if (!s) s = bytes ? pointer(offload->d_tiles, 256) : 0;
    if (!s && offload->bytes < bytes) s = MEMOPT_ERR_BUFFER;
    if (!s) s = no_overlap(offload->d_tiles, bytes, d_scratch, c.at.bytes);
    if (!s) s = offload_refused(optim);
    if (!s) s = ready();
    if (s) return s;
    offload_measure(&f, optim, offload->tile);
    f.c = &c;
    f.transfer = offload->transfer;
    f.d_tiles = (unsigned char *)offload->d_tiles;
    s = on_device(f.transfer->device, [&] {
        status_t here = behind(f.transfer, UP, stream);

        if (!here) here = offload_open(&f);
        if (!here) here = optim_pass_all(&c, OPTIM_APPLY, &f);
        return here ? here : before_stream(f.transfer, DOWN, stream);
    });
    if (s) offload_stop(&f);
    else optim_applied_all(optim);
    return s;
}

PRUNED status_t optim_all(const optim_call *c) {
    memopt_optim *o = c->o;
    status_t s = 0;

    if (o->desc.kind == MEMOPT_OPTIM_ADAFACTOR) {
        s = adafactor_all(c, ADAFACTOR_FIRST);
        if (!s) s = adafactor_all(c, ADAFACTOR_SECOND);
        if (!s) s = adafactor_all(c, ADAFACTOR_MEANS);
    } else if (o->desc.kind == MEMOPT_OPTIM_MUON) s = optim_matrices(c);
    else if (memopt_i_kind_measures(o->desc.kind)) {
        s = optim_pass_all(c, OPTIM_MEASURE, NULL);
        if (!s) s = optim_trust_run(c, 0, o->desc.tensor_count);
    }
    if (!s) s = optim_pass_all(c, OPTIM_APPLY, NULL);
    if (!s) optim_applied_all(o);
    return s;
}

PRUNED status_t optim_step(const optim_call *c, const memopt_optim_run *run, const optim_known &known) {
    status_t s = memopt_i_optim_step_check(c->o, run);

    if (!s) s = optim_begin(c, run, known);
    if (s) return s;
    s = optim_all(c);
    (void)memopt_optim_end(c->o);
    return s;
}

/* begin or step, which check the run; what the device knows is not in the scratch. */
typedef status_t optim_go_fn(const optim_call *c, const memopt_optim_run *run, const optim_known &known);

PRUNED status_t optim_go(optim_go_fn *go, memopt_optim *optim, const memopt_optim_run *run, const optim_known &known,
                         void *d_scratch, size_t scratch_bytes, cudaStream_t stream) {
    const void *d_known = known.d_progress ? (const void *)known.d_progress : known.d_factor;
    optim_call c;
    status_t s = optim_call_of(&c, optim, d_scratch, scratch_bytes, stream);

    if (!s && !run) s = MEMOPT_CUDA_ERR_NULL;
    if (!s && known.bytes) s = pointer(d_known, sizeof(double));
    if (!s) s = no_overlap(d_known, known.bytes, c.at.control, c.at.bytes);
    return s ? s : go(&c, run, known);
}

PUBLIC status_t api::memopt_cuda_optim_begin(memopt_optim *optim, const memopt_optim_run *run, void *d_scratch,
                                             size_t scratch_bytes, cudaStream_t stream) {
    const optim_known known = { NULL, NULL, 0 };
    return optim_go(optim_begin, optim, run, known, d_scratch, scratch_bytes, stream);
}

PUBLIC status_t api::memopt_cuda_optim_begin_with_factor(memopt_optim *optim, const memopt_optim_run *run,
                                                         const double *d_factor, void *d_scratch, size_t scratch_bytes,
                                                         cudaStream_t stream) {
    const optim_known known = { d_factor, NULL, sizeof *d_factor };
    return optim_go(optim_begin, optim, run, known, d_scratch, scratch_bytes, stream);
}

PUBLIC status_t api::memopt_cuda_optim_begin_with_progress(memopt_optim *optim, const memopt_optim_run *run,
                                                           memopt_cuda_optim_progress *d_progress, void *d_scratch,
                                                           size_t scratch_bytes, cudaStream_t stream) {
    const optim_known known = { NULL, d_progress, sizeof *d_progress };
    return optim_go(optim_begin, optim, run, known, d_scratch, scratch_bytes, stream);
}

PUBLIC status_t api::memopt_cuda_optim_step(memopt_optim *optim, const memopt_optim_run *run, void *d_scratch,
                                            size_t scratch_bytes, cudaStream_t stream) {
    const optim_known known = { NULL, NULL, 0 };
    return optim_go(optim_step, optim, run, known, d_scratch, scratch_bytes, stream);
}

PUBLIC status_t api::memopt_cuda_optim_step_with_factor(memopt_optim *optim, const memopt_optim_run *run,
                                                        const double *d_factor, void *d_scratch, size_t scratch_bytes,
                                                        cudaStream_t stream) {
    const optim_known known = { d_factor, NULL, sizeof *d_factor };
    return optim_go(optim_step, optim, run, known, d_scratch, scratch_bytes, stream);
}

PUBLIC status_t api::memopt_cuda_optim_step_with_progress(memopt_optim *optim, const memopt_optim_run *run,
                                                          memopt_cuda_optim_progress *d_progress, void *d_scratch,
                                                          size_t scratch_bytes, cudaStream_t stream) {
    const optim_known known = { NULL, d_progress, sizeof *d_progress };
    return optim_go(optim_step, optim, run, known, d_scratch, scratch_bytes, stream);
}

PUBLIC status_t api::memopt_cuda_optim_sums(memopt_optim *optim, size_t tensor, void *d_scratch, size_t scratch_bytes,
                                            double **d_sums, size_t *count) {
    optim_call c;
    status_t s = optim_call_of(&c, optim, d_scratch, scratch_bytes, NULL);
    double *sums = NULL;

    if (!s && (!d_sums || !count)) s = MEMOPT_CUDA_ERR_NULL;
    if (!s) s = memopt_i_optim_sums(optim, tensor, &sums, count);
    if (!s) *d_sums = c.at.sums + (sums - optim->sums); /* the same place in both */
    return s;
}

PUBLIC status_t api::memopt_cuda_optim_result(memopt_optim *optim, const void *d_scratch, size_t scratch_bytes,
                                              memopt_cuda_optim_outcome *out, cudaStream_t stream) {
    optim_call c;
    optim_control control;
    status_t s = optim_call_of(&c, optim, d_scratch, scratch_bytes, stream);

    if (!s && !out) s = MEMOPT_CUDA_ERR_NULL;
    if (!s) s = ready();
    if (!s) s = optim_fetch(&control, d_scratch, sizeof control, stream);
    if (s) return s;
    out->skipped = control.skipped;
    out->stopped = control.stopped == OPTIM_STOPPED;
    out->left_out = control.stopped == OPTIM_LEFT_OUT;
    out->tensor = control.tensor;
    out->first = control.first;
    optim->skipped = control.skipped;
    return 0;
}

/* @section cuda_scale : cuda_base api_cuda_scale
   Unscale, finite check and norm in one pass over many tensors; clipping; accumulation.
   Problem    A norm is a sum whose order is the same on the CPU, so it is fixed. Its chains of additions in double must
              be short, or they take longer than the memory does; and many, or too little is read at once.
   Idea       A leaf of a tensor, 4,096 elements, is 32 chains of 128 additions (section `scale` of memopt.h). Eight
              lanes have a leaf, four neighbouring sums each, in registers: 64 bytes of a lane are on their way at once,
              in lines of 128 bytes of fp32 and of 64 bytes of 16 bits. A warp has four leaves, a block a piece of 64 Ki
              elements: no lane waits for another one until the end. Sums of a leaf, leaves, and pieces are added in
              pairs of neighbours, by shuffles.
   Not finite is a piece whose sum is not: no square of a float is too large for a double. Its block goes over it again,
              to count, as the CPU does. A sum that has any is replaced by infinity in the end.
   Ways       One pass that multiplies and measures moves 8 n bytes for n floats, where unscaling, checking, squaring
              and adding by themselves move 28 n. Tensors are a list in a launch's arguments: no upload. What was left
              was the wait of a chain of additions in double, each behind a conversion: hence eight lanes a leaf, and
              chains of 128. Measure reads 4 n (2 n of 16 bits) and writes 16 bytes for each 64 Ki elements.
   Bits       Equal to the CPU's: values, sums, counts, scaler and accumulated sums; formulas are those of memopt.h.
              Leaves are filled up with zeros, whose squares change no sum, as are pieces of a tensor. A warp adds up
              sums of pieces, 1,024 at a time in pairs; and those of tensors, in order.
   Device     A scaler, the total and the factor of a step stay on the device, so that a step is skipped there: see the
              declarations. Everything that decides is read from memory by every block that needs it, and no block of a
              pass writes what another one of it reads. */

#ifndef MEMOPT_CUDA_NO_SCALE
enum {
    SCALE_THREADS = 128, /* a warp for four leaves, four warps for a piece */
    SCALE_BYTES = 64,    /* of a thread, on their way at once */
    SCALE_LISTED = 150, /* tensors a launch: arguments have 4,000 bytes */
    SUMS_LISTED = 80,
    CLIP_TILE = 4096,   /* elements a block */
    SUM_TILE = 4096,
    JOIN_PARTS = 1024   /* of a tensor, at a time */
};

/* ---- lists of tensors ---- */
struct scale_tensor {
    unsigned char *values;
    size_t count;
    unsigned first_tile, type;
};

struct scale_list {
    scale_tensor tensors[SCALE_LISTED];
    unsigned count;
};

PRUNED status_t gradient_check(const memopt_gradient *g) {
    const size_t bytes = memopt_type_bytes(g->type);
    size_t all;

    if (!bytes) return MEMOPT_ERR_ARGUMENT;
    if (g->count && !g->values) return MEMOPT_CUDA_ERR_NULL;
    if ((uintptr_t)g->values % bytes || (uintptr_t)g->compensation % 2) return MEMOPT_CUDA_ERR_ALIGNMENT;
    if (memopt_i_mul(g->count, bytes, &all)) return MEMOPT_ERR_OVERFLOW;
    return memopt_i_ceil_div(g->count, CLIP_TILE) > 0x7fffffffu ? MEMOPT_ERR_OVERFLOW : 0;
}

PRUNED status_t gradients_check(const memopt_gradients *list, size_t *pieces) {
    size_t i;

    *pieces = 0;
    if (!list || (list->count && !list->tensors)) return MEMOPT_CUDA_ERR_NULL;
    for (i = 0; i < list->count; ++i) {
        const status_t s = gradient_check(list->tensors + i);
        if (s) return s;
        if (memopt_i_add(*pieces, memopt_i_ceil_div(list->tensors[i].count, MEMOPT_I_SCALE_PIECE), pieces))
            return MEMOPT_ERR_OVERFLOW;
    }
    return list->count > SIZE_MAX / sizeof(memopt_cuda_gradient_sum) - *pieces ? MEMOPT_ERR_OVERFLOW : 0;
}

/* Tensors from *next on that fit into one launch, `unit` elements a block. Empty ones are left out. */
PRUNED unsigned scale_take(const memopt_gradients *list, size_t unit, size_t *next, scale_list *part) {
    size_t blocks = 0;

    for (part->count = 0; *next < list->count && part->count < SCALE_LISTED; ++*next) {
        const memopt_gradient *g = list->tensors + *next;
        scale_tensor *to = part->tensors + part->count;
        const size_t more = memopt_i_ceil_div(g->count, unit);

        if (!more) continue;
        if (blocks + more > 0x7fffffffu) break;
        to->values = (unsigned char *)g->values;
        to->count = g->count;
        to->first_tile = (unsigned)blocks;
        to->type = (unsigned)g->type;
        blocks += more;
        ++part->count;
    }
    return (unsigned)blocks;
}

/* ---- multiply, and add up squares ---- */
CU_DEVICE float scale_times(float x, float factor) { return memopt_i_v1_quiet(memopt_i_times(x, factor)); }

template <int TYPE> CU_DEVICE uint32_t scale_word(uint32_t w, float factor) {
    if (TYPE == MEMOPT_TYPE_F32) return memopt_i_float_bits(scale_times(memopt_i_bits_float(w), factor));
    const uint16_t low = (uint16_t)w;
    const uint16_t high = (uint16_t)(w >> 16);
    if (TYPE == MEMOPT_TYPE_BF16)
        return two_exact((const bf16_t *)0, scale_times(memopt_from_bf16(low), factor),
                         scale_times(memopt_from_bf16(high), factor));
    return two_exact((const f16_t *)0, scale_times(from_f16(low), factor), scale_times(from_f16(high), factor));
}

/* Squares of a word: into one sum, or into two neighbours. */
template <int TYPE> CU_DEVICE void scale_square(double *sums, uint32_t w) {
    if (TYPE == MEMOPT_TYPE_F32) {
        sums[0] = memopt_i_add_square(sums[0], (double)memopt_i_bits_float(w));
        return;
    }
    const uint16_t low = (uint16_t)w;
    const uint16_t high = (uint16_t)(w >> 16);
    const bool is_bf16 = TYPE == MEMOPT_TYPE_BF16;
    sums[0] = memopt_i_add_square(sums[0], (double)(is_bf16 ? memopt_from_bf16(low) : from_f16(low)));
    sums[1] = memopt_i_add_square(sums[1], (double)(is_bf16 ? memopt_from_bf16(high) : from_f16(high)));
}

/* A number of each lane, in pairs of neighbours; every lane has the result. */
CU_DEVICE double scale_pairs(double x) {
    CU_UNROLL for (int k = 1; k < 32; k *= 2)
        x = memopt_i_sum_double(x, __shfl_xor_sync(MEMOPT_I_CUDA_ALL, x, k));
    return x;
}

template <int TYPE> static __device__ unsigned scale_count(const unsigned char *p, size_t n) {
    unsigned found = 0;

    for (size_t i = threadIdx.x; i < n; i += SCALE_THREADS)
        if (TYPE == MEMOPT_TYPE_F32) found += !memopt_i_finite(((const float *)(const void *)p)[i]);
        else {
            const uint16_t infinity = TYPE == MEMOPT_TYPE_BF16 ? 0x7f80 : 0x7c00;
            found += (((const uint16_t *)(const void *)p)[i] & infinity) == infinity;
        }
    return found;
}

/* Four leaves, or less, by a warp: eight lanes a leaf, each with four of its sums. Every lane has the result. */
template <int TYPE> static __device__ double scale_leaves(unsigned char *p, size_t n, float factor) {
    enum { SIZE = TYPE == MEMOPT_TYPE_F32 ? 4 : 2, WORDS = SIZE /* of four elements */ };
    enum { ROWS = SCALE_BYTES / (4 * SIZE), ROW = MEMOPT_I_SCALE_SUMS };
    const size_t first = threadIdx.x % 32 / 8 * MEMOPT_I_SCALE_LEAF;
    const size_t end = memopt_i_min(first + MEMOPT_I_SCALE_LEAF, n);
    const bool aligned = (uintptr_t)p % (4 * SIZE) == 0;
    double sums[4] = { 0 };

    for (size_t at = first + threadIdx.x % 8 * 4; at < end; at += ROWS * ROW) {
        uint32_t w[ROWS][WORDS];

        CU_UNROLL for (int k = 0; k < ROWS; ++k) {
            const size_t i = at + (size_t)k * ROW;
            get<SIZE, WORDS>(w[k], p + i * SIZE, i, end, aligned && i + 4 <= end);
        }
        CU_UNROLL for (int k = 0; k < ROWS; ++k) {
            const size_t i = at + (size_t)k * ROW;

            if (factor != 1) {
                CU_UNROLL for (int j = 0; j < WORDS; ++j) w[k][j] = scale_word<TYPE>(w[k][j], factor);
                put<SIZE, WORDS>(p + i * SIZE, w[k], i, end, aligned && i + 4 <= end);
            }
            CU_UNROLL for (int j = 0; j < WORDS; ++j) scale_square<TYPE>(sums + j * 4 / WORDS, w[k][j]);
        }
    }
    __syncwarp();
    return scale_pairs(memopt_i_four_end(sums));
}

/* A piece of n elements by a block. Thread 0 has the result. */
template <int TYPE> static __device__ memopt_cuda_gradient_sum scale_piece(unsigned char *p, size_t n, float factor,
                                                                           double *warps, unsigned *found) {
    enum { SIZE = TYPE == MEMOPT_TYPE_F32 ? 4 : 2 };
    const size_t first = threadIdx.x / 32 * 4 * MEMOPT_I_SCALE_LEAF;
    const double sum = first < n ? scale_leaves<TYPE>(p + first * SIZE, n - first, factor) : 0;
    memopt_cuda_gradient_sum result;

    if (threadIdx.x == 0) *found = 0;
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    if (__syncthreads_or(!memopt_i_finite_double(sum))) { /* rare; behind the barrier all see what was stored */
        const unsigned mine = scale_count<TYPE>(p, n);
        if (mine) atomicAdd(found, mine);
        __syncthreads(); /* all of the piece has been counted */
    }
    result.squares = memopt_i_four_end(warps);
    result.nonfinite = *found;
    return result;
}

/* d_scaler: NULL, or where the factor comes from; 0: it would be refused. */
static __device__ int scaler_ready(const memopt_scaler *d_scaler) {
    return !memopt_i_scaler_check(d_scaler) && !d_scaler->unscaled;
}

PRUNED __global__ void __launch_bounds__(SCALE_THREADS, CU_RESIDENT(8, 7))
scale_kernel(const scale_list list, const memopt_scaler *d_scaler, float factor, memopt_cuda_gradient_sum *d_pieces) {
    MEMOPT_I_CUDA_SHARED(double, warps, [SCALE_THREADS / 32]);
    MEMOPT_I_CUDA_SHARED(unsigned, found, [1]);
    const scale_tensor *t = list.tensors + find_entry(list.tensors, list.count, blockIdx.x);
    const size_t first = (size_t)(blockIdx.x - t->first_tile) * MEMOPT_I_SCALE_PIECE;
    const size_t n = memopt_i_min(MEMOPT_I_SCALE_PIECE, t->count - first);
    memopt_cuda_gradient_sum sum;
    if (d_scaler) factor = scaler_ready(d_scaler) ? memopt_i_scaler_inverse(d_scaler) : 1;
    if (t->type == MEMOPT_TYPE_F32)
        sum = scale_piece<MEMOPT_TYPE_F32>(t->values + first * 4, n, factor, warps, found);
    else if (t->type == MEMOPT_TYPE_BF16)
        sum = scale_piece<MEMOPT_TYPE_BF16>(t->values + first * 2, n, factor, warps, found);
    else sum = scale_piece<MEMOPT_TYPE_F16>(t->values + first * 2, n, factor, warps, found);
    if (threadIdx.x == 0) d_pieces[blockIdx.x] = sum;
}

/* ---- sums of pieces and of tensors, each by a warp ---- */
CU_DEVICE memopt_cuda_gradient_sum scale_part(const memopt_cuda_gradient_sum *parts, size_t i, size_t n) {
    const memopt_cuda_gradient_sum none = { 0, 0 };
    return i < n ? parts[i] : none;
}

CU_DEVICE size_t scale_all_found(unsigned long long found) {
    CU_UNROLL for (int k = 1; k < 32; k *= 2) found += __shfl_xor_sync(MEMOPT_I_CUDA_ALL, found, k);
    return (size_t)found;
}

/* The sums of a tensor's pieces, JOIN_PARTS at a time, of which a lane has 32 neighbours. Lane k keeps the sum of 2^k
   times as many that waits for its neighbour, or 0. */
static __device__ memopt_cuda_gradient_sum scale_join(const memopt_cuda_gradient_sum *parts, size_t n) {
    memopt_cuda_gradient_sum result;
    unsigned long long found = 0;
    double pairs = 0;

    for (size_t at = 0; at < n; at += JOIN_PARTS) {
        double x[32];
        unsigned level = 0;

        CU_UNROLL for (int k = 0; k < 32; ++k) {
            const memopt_cuda_gradient_sum part = scale_part(parts, at + threadIdx.x * 32 + k, n);
            x[k] = part.squares;
            found += part.nonfinite;
        }
        CU_UNROLL for (int step = 1; step < 32; step *= 2)
            CU_UNROLL for (int k = 0; k < 32; k += 2 * step) x[k] = memopt_i_sum_double(x[k], x[k + step]);
        x[0] = scale_pairs(x[0]);
        for (; at / JOIN_PARTS >> level & 1; ++level) {
            x[0] = memopt_i_sum_double(__shfl_sync(MEMOPT_I_CUDA_ALL, pairs, level), x[0]);
            if (threadIdx.x == level) pairs = 0;
        }
        if (threadIdx.x == level) pairs = x[0];
    }
    result.squares = 0;
    for (int k = 0; k < 32; ++k)
        result.squares = memopt_i_sum_double(__shfl_sync(MEMOPT_I_CUDA_ALL, pairs, k), result.squares);
    result.nonfinite = scale_all_found(found);
    if (result.nonfinite) result.squares = (double)memopt_i_bits_float(0x7F800000u);
    return result;
}

/* Those of tensors, in order. */
static __device__ memopt_cuda_gradient_sum scale_add_up(const memopt_cuda_gradient_sum *parts, size_t n) {
    memopt_cuda_gradient_sum result = { 0, 0 };
    unsigned long long found = 0;

    for (size_t at = 0; at < n; at += 32) {
        const memopt_cuda_gradient_sum part = scale_part(parts, at + threadIdx.x, n);

        found += part.nonfinite;
        for (int k = 0; k < 32; ++k)
            result.squares = memopt_i_sum_double(result.squares, __shfl_sync(MEMOPT_I_CUDA_ALL, part.squares, k));
    }
    result.nonfinite = scale_all_found(found);
    return result;
}

struct scale_joins { /* of up to so many tensors */
    struct { size_t first, count; } tensors[240]; /* among the pieces */
};

PRUNED __global__ void __launch_bounds__(32)
scale_join_kernel(const scale_joins joins, const memopt_cuda_gradient_sum *d_pieces, memopt_cuda_gradient_sum *d_sums) {
    const memopt_cuda_gradient_sum sum = scale_join(d_pieces + joins.tensors[blockIdx.x].first,
                                                    joins.tensors[blockIdx.x].count);
    if (threadIdx.x == 0) d_sums[blockIdx.x] = sum;
}

PRUNED __global__ void __launch_bounds__(32)
scale_total_kernel(const memopt_cuda_gradient_sum *d_sums, size_t n, memopt_scaler *d_scaler,
                   int in_place, memopt_gradient_total *d_total) {
    const memopt_cuda_gradient_sum sum = scale_add_up(d_sums, n);
    if (threadIdx.x) return;
    d_total->squares = sum.squares;
    d_total->nonfinite = sum.nonfinite;
    d_total->factor = 1;
    d_total->overflow = sum.nonfinite != 0;
    if (!d_scaler) return;
    if (!scaler_ready(d_scaler)) {
        d_total->factor = 0;
        d_total->overflow = 1;
        return;
    }
    if (!in_place) d_total->factor = (double)memopt_i_scaler_inverse(d_scaler);
    d_scaler->unscaled = 1;
    d_scaler->found_nonfinite = sum.nonfinite != 0;
}

PRUNED status_t scale_joins_run(const memopt_gradients *list, const memopt_cuda_gradient_sum *d_pieces,
                                memopt_cuda_gradient_sum *d_sums, cudaStream_t stream) {
    const size_t max = sizeof(scale_joins) / 16;
    scale_joins joins;
    size_t i, n;
    size_t at = 0;

    for (i = 0; i < list->count; i += n) {
        status_t s;

        for (n = 0; n < max && i + n < list->count; ++n) {
            joins.tensors[n].first = at;
            joins.tensors[n].count = memopt_i_ceil_div(list->tensors[i + n].count, MEMOPT_I_SCALE_PIECE);
            at += joins.tensors[n].count;
        }
        s = CU_RUN(scale_join_kernel<>, n, 32, 0, stream, joins, d_pieces, d_sums + i);
        if (s) return s;
    }
    return 0;
}

struct scale_call { /* one pass over a list */
    const memopt_gradients   *list;
    memopt_scaler            *d_scaler; /* NULL: none */
    float                     factor;
    int                       in_place; /* with a scaler: values are divided by the scale */
    memopt_gradient_total    *d_total;
    memopt_cuda_gradient_sum *d_sums;
    cudaStream_t        stream;
};

PRUNED status_t scale_check(const scale_call *c) {
    size_t pieces;
    status_t s = gradients_check(c->list, &pieces);

    if (!s && c->list->count) s = pointer(c->list->scratch, 16);
    if (!s && c->list->scratch_bytes / sizeof(memopt_cuda_gradient_sum) < pieces + c->list->count)
        s = MEMOPT_ERR_BUFFER;
    if (!s) s = pointer_if(c->d_total, sizeof(double));
    if (!s) s = pointer_if(c->d_sums, sizeof(double));
    return s ? s : pointer_if(c->d_scaler, sizeof(double));
}

PRUNED status_t scale_run(const scale_call *c) {
    memopt_cuda_gradient_sum *const d_sums = (memopt_cuda_gradient_sum *)c->list->scratch;
    memopt_cuda_gradient_sum *d_pieces;
    memopt_cuda_gradient_sum *const d_to = c->d_sums ? c->d_sums : d_sums;
    scale_list part;
    size_t next = 0;
    size_t at = 0;
    status_t s = ready();

    d_pieces = c->list->count ? d_sums + c->list->count : NULL;
    while (!s && next < c->list->count) {
        const unsigned blocks = scale_take(c->list, MEMOPT_I_SCALE_PIECE, &next, &part);
        s = CU_RUN(scale_kernel<>, blocks, SCALE_THREADS, 0, c->stream, part, c->in_place ? c->d_scaler : NULL,
                   c->factor, d_pieces + at);
        at += blocks;
    }
    if (s || (!c->d_total && !c->d_sums)) return s;
    s = scale_joins_run(c->list, d_pieces, d_to, c->stream);
    if (s || !c->d_total) return s;
    return CU_RUN(scale_total_kernel<>, 1, 32, 0, c->stream, d_to, c->list->count, c->d_scaler, c->in_place,
                  c->d_total);
}

PUBLIC status_t api::memopt_cuda_gradients_scratch(const memopt_gradients *list, size_t *bytes) {
    size_t pieces;
    const status_t s = gradients_check(list, &pieces);

    if (s) return s;
    if (!bytes) return MEMOPT_CUDA_ERR_NULL;
    *bytes = (pieces + list->count) * sizeof(memopt_cuda_gradient_sum);
    return 0;
}

PUBLIC status_t api::memopt_cuda_gradients_scale(const memopt_gradients *list, double factor,
                                                 memopt_gradient_total *d_total, memopt_cuda_gradient_sum *d_sums,
                                                           cudaStream_t stream) {
    const scale_call c = { list, NULL, (float)factor, 0, d_total, d_sums, stream };
    status_t s;

    if (!memopt_i_finite_double(factor) || fabs(factor) > 3.4028234663852886e38) return MEMOPT_ERR_ARGUMENT;
    s = scale_check(&c);
    return s ? s : scale_run(&c);
}

PUBLIC status_t api::memopt_cuda_gradients_measure(const memopt_gradients *list, memopt_gradient_total *d_total,
                                                   memopt_cuda_gradient_sum *d_sums, cudaStream_t stream) {
    return d_total ? memopt_cuda_gradients_scale(list, 1, d_total, d_sums, stream) : MEMOPT_CUDA_ERR_NULL;
}

PRUNED status_t scaler_pass(memopt_scaler *d_scaler, const memopt_gradients *list, int in_place,
                            memopt_gradient_total *d_total, memopt_cuda_gradient_sum *d_sums, cudaStream_t stream) {
    const scale_call c = { list, d_scaler, 1, in_place, d_total, d_sums, stream };
    status_t s;

    if (!d_scaler || !d_total) return MEMOPT_CUDA_ERR_NULL;
    s = scale_check(&c);
    return s ? s : scale_run(&c);
}

PUBLIC status_t api::memopt_cuda_scaler_unscale(memopt_scaler *d_scaler, const memopt_gradients *list,
                                                memopt_gradient_total *d_total,
                                                memopt_cuda_gradient_sum *d_sums, cudaStream_t stream) {
    return scaler_pass(d_scaler, list, 1, d_total, d_sums, stream);
}

PUBLIC status_t api::memopt_cuda_scaler_measure(memopt_scaler *d_scaler, const memopt_gradients *list,
                                                memopt_gradient_total *d_total,
                                                memopt_cuda_gradient_sum *d_sums, cudaStream_t stream) {
    return scaler_pass(d_scaler, list, 0, d_total, d_sums, stream);
}

/* ---- a step's last words ---- */
PRUNED __global__ void __launch_bounds__(32) clip_norm_kernel(const memopt_gradient_total *d_total, double mean,
                                                              double max_norm, double *d_factor) {
    const double factor = d_total->factor * mean;
    const double norm = sqrt(d_total->squares) * factor;
    const int skip = d_total->overflow || !memopt_i_finite_double(norm);
    if (threadIdx.x == 0) *d_factor = skip ? 0 : factor * memopt_i_clip_factor(norm, max_norm);
}

PUBLIC status_t api::memopt_cuda_clip_norm(const memopt_gradient_total *d_total, double mean, double max_norm,
                                           double *d_factor, cudaStream_t stream) {
    status_t s = pointer(d_total, sizeof(double));

    if (!s) s = pointer(d_factor, sizeof(double));
    if (s) return s;
    if (!memopt_i_scale_limit(max_norm) || !memopt_i_finite_double(mean) || mean <= 0) return MEMOPT_ERR_ARGUMENT;
    return CU_RUN(clip_norm_kernel<>, 1, 32, 0, stream, d_total, mean, max_norm, d_factor);
}

PRUNED __global__ void __launch_bounds__(32) scaler_update_kernel(memopt_scaler *d_scaler,
                                                                  const int *d_overflow, int *d_status) {
    if (threadIdx.x) return;
    memopt_scaler scaler = *d_scaler;
    const memopt_status s = memopt_i_scaler_update(&scaler, *d_overflow);
    if (s == MEMOPT_ERR_OVERFLOW) scaler.unscaled = scaler.found_nonfinite = 0; /* nobody is there to cancel it */
    *d_scaler = scaler;
    if (d_status) *d_status = (int)s;
}

PUBLIC status_t api::memopt_cuda_scaler_update(memopt_scaler *d_scaler, const int *d_overflow, int *d_status,
                                               cudaStream_t stream) {
    status_t s = pointer(d_scaler, sizeof(double));

    if (!s) s = pointer(d_overflow, sizeof(int));
    if (!s) s = pointer_if(d_status, sizeof(int));
    if (s) return s;
    return CU_RUN(scaler_update_kernel<>, 1, 32, 0, stream, d_scaler, d_overflow, d_status);
}

/* ---- clipping ---- */
template <int SIZE> CU_DEVICE int clip_word(uint32_t *w, uint32_t limit, uint32_t infinity) {
    const uint32_t before = *w;

    if (SIZE == 4) {
        float x = memopt_i_bits_float(before);
        memopt_i_v1_clip32(&x, 1, limit);
        *w = memopt_i_float_bits(x);
    } else {
        uint16_t low = (uint16_t)before;
        uint16_t high = (uint16_t)(before >> 16);
        memopt_i_v1_clip16(&low, 1, (uint16_t)limit, (uint16_t)infinity);
        memopt_i_v1_clip16(&high, 1, (uint16_t)limit, (uint16_t)infinity);
        *w = low | (uint32_t)high << 16;
    }
    return *w != before;
}

template <int SIZE> static __device__ void clip_tile(unsigned char *p, size_t n, uint32_t limit, uint32_t infinity) {
    enum { EACH = 16 / SIZE, LOADS = CLIP_TILE / EACH / 256 };
    const bool aligned = (uintptr_t)p % 16 == 0;
    uint32_t w[LOADS][4];

    CU_UNROLL for (int k = 0; k < LOADS; ++k) {
        const size_t at = ((size_t)k * 256 + threadIdx.x) * EACH;
        get<SIZE, 4>(w[k], p + at * SIZE, at, n, aligned && at + EACH <= n);
    }
    CU_UNROLL for (int k = 0; k < LOADS; ++k) {
        const size_t at = ((size_t)k * 256 + threadIdx.x) * EACH;
        int cut = 0;

        CU_UNROLL for (int j = 0; j < 4; ++j) cut |= clip_word<SIZE>(&w[k][j], limit, infinity);
        if (cut) put<SIZE, 4>(p + at * SIZE, w[k], at, n, aligned && at + EACH <= n);
    }
}

PRUNED __global__ void __launch_bounds__(256) clip_kernel(const scale_list list, uint32_t limit, uint32_t limit_bf16,
                                                          uint32_t limit_f16) {
    const scale_tensor *t = list.tensors + find_entry(list.tensors, list.count, blockIdx.x);
    const size_t first = (size_t)(blockIdx.x - t->first_tile) * CLIP_TILE;
    const size_t n = memopt_i_min(CLIP_TILE, t->count - first);

    if (t->type == MEMOPT_TYPE_F32) clip_tile<4>(t->values + first * 4, n, limit, 0);
    else if (t->type == MEMOPT_TYPE_BF16) clip_tile<2>(t->values + first * 2, n, limit_bf16, 0x7f80);
    else clip_tile<2>(t->values + first * 2, n, limit_f16, 0x7c00);
}

PUBLIC status_t api::memopt_cuda_gradients_clip_value(const memopt_gradients *list, float limit, cudaStream_t stream) {
    scale_list part;
    size_t pieces;
    size_t next = 0;
    status_t s;

    if (!memopt_i_scale_limit((double)limit)) return MEMOPT_ERR_ARGUMENT;
    limit = memopt_i_bits_float(memopt_i_float_bits(limit) & 0x7FFFFFFFu);
    s = gradients_check(list, &pieces);
    if (!s) s = ready();
    while (!s && next < list->count) {
        const unsigned blocks = scale_take(list, CLIP_TILE, &next, &part);
        s = CU_RUN(clip_kernel<>, blocks, 256, 0, stream, part, memopt_i_float_bits(limit),
                              (uint32_t)memopt_to_bf16(limit), (uint32_t)memopt_to_f16(limit));
    }
    return s;
}

/* ---- accumulation ---- */
enum { SUM_F32, SUM_PAIR, SUM_NOISE };

struct sum_tensor {
    unsigned char *sum;
    uint16_t *compensation;
    const unsigned char *from;
    size_t count;
    uint64_t place; /* among all weights: picks random bits */
    unsigned first_tile;
    unsigned char how, type, aligned; /* aligned: groups of 4 elements are */
};

struct sum_list {
    sum_tensor tensors[SUMS_LISTED];
    unsigned count;
    float weight;
    int start;
    memopt_noise noise;
};

/* A NaN is memopt.h's here. */
template <typename T> CU_DEVICE float sum_element(const row_span<T, 4> &s, int i) { return element_at(s, i); }
CU_DEVICE float sum_element(const row_span<f16_t, 4> &s, int i) { return from_f16(s.word[i / 2] >> i % 2 * 16); }

/* Up to 4 elements of a thread: `n` of them, `step` apart; 4 and 1 when they are aligned. */
template <typename T> CU_DEVICE void sum_load(const T *p, unsigned n, unsigned step, int wide, float *x) {
    row_span<T, 4> s;

    if (wide) span_get(&s, p, 4, true);
    else
        CU_UNROLL for (unsigned i = 0; i < 4; ++i)
            set_code(&s, (int)i, i < n ? element<sizeof(T)>(p + (size_t)i * step, 0) : 0);
    CU_UNROLL for (int i = 0; i < 4; ++i) x[i] = sum_element(s, i);
}

/* code: what is stored of each */
template <typename T> CU_DEVICE void sum_store(T *p, unsigned n, unsigned step, int wide, const uint32_t *code) {
    row_span<T, 4> s;

    if (wide) {
        CU_UNROLL for (unsigned i = 0; i < 4; ++i) set_code(&s, (int)i, code[i]);
        span_put(p, s, 4, true);
        return;
    }
    CU_UNROLL for (unsigned i = 0; i < 4; ++i) if (i < n)
        put<sizeof(T), 1>(p + (size_t)i * step, code + i, 0u, 1u, false);
}

/* A group of a thread, `at` elements into its tile. */
struct sum_at {
    unsigned at, n, step;
    int wide;
};

CU_DEVICE sum_at sum_place(unsigned g, unsigned left, int aligned) {
    sum_at q;

    q.step = aligned ? 1 : 256; /* where groups are not aligned, a warp still reads neighbours */
    q.at = aligned ? (g * 256 + threadIdx.x) * 4 : g * 1024 + threadIdx.x;
    q.n = q.at < left ? min(4u, (left - q.at + q.step - 1) / q.step) : 0;
    q.wide = aligned && q.n == 4;
    return q;
}

template <int HOW> CU_DEVICE void sum_group(unsigned char *sum, uint16_t *rest_at,
                                            const sum_list &list, uint64_t place, sum_at q, const float *from) {
    float x[4] = { -0.0f, -0.0f, -0.0f, -0.0f }; /* a sum that starts: it leaves every product as it is */
    uint32_t code[4];

    if (HOW == SUM_F32) {
        float *const to = (float *)(void *)sum + q.at;

        if (!list.start) sum_load(to, q.n, q.step, q.wide, x);
        CU_UNROLL for (int i = 0; i < 4; ++i) {
            memopt_i_v1_add_weighted(x + i, from + i, 1, list.weight, 0);
            code[i] = memopt_i_float_bits(x[i]);
        }
        sum_store(to, q.n, q.step, q.wide, code);
        return;
    }
    bf16_t *const to = (bf16_t *)(void *)sum + q.at;
    if (!list.start) sum_load(to, q.n, q.step, q.wide, x);
    if (HOW == SUM_PAIR) {
        bf16_t *const rest_to = (bf16_t *)(void *)rest_at + q.at;
        float y[4] = { -0.0f, -0.0f, -0.0f, -0.0f };
        uint32_t rests[4];

        if (!list.start) sum_load(rest_to, q.n, q.step, q.wide, y);
        CU_UNROLL for (int i = 0; i < 4; ++i) {
            uint16_t high = (uint16_t)(memopt_i_float_bits(x[i]) >> 16); /* what they were */
            uint16_t rest = (uint16_t)(memopt_i_float_bits(y[i]) >> 16);

            memopt_i_v1_add_pair(&high, &rest, from + i, 1, list.weight, 0);
            code[i] = high;
            rests[i] = rest;
        }
        sum_store(rest_to, q.n, q.step, q.wide, rests);
    } else CU_UNROLL for (unsigned i = 0; i < 4; ++i) {
                memopt_i_v1_add_weighted(x + i, from + i, 1, list.weight, 0);
                code[i] = memopt_to_bf16_stochastic(x[i], memopt_i_noise32(list.noise, place + q.at + i * q.step));
            }
    sum_store(to, q.n, q.step, q.wide, code);
}

/* The sums of a tile. */
template <int HOW>
CU_DEVICE void sum_tile(const sum_list &list, const sum_tensor &t, size_t first, unsigned left, float (*from)[4]) {
    CU_UNROLL for (unsigned g = 0; g < 4; ++g)
        sum_group<HOW>(t.sum + first * (HOW == SUM_F32 ? 4 : 2), HOW == SUM_PAIR ? t.compensation + first : NULL, list,
                       t.place + first, sum_place(g, left, t.aligned), from[g]);
}

/* A tile: 4 groups of 4 elements a thread, all gradients loaded before the first sum. */
PRUNED __global__ void __launch_bounds__(256, 4) sum_kernel(const sum_list list) {
    const sum_tensor &t = list.tensors[find_entry(list.tensors, list.count, blockIdx.x)];
    const size_t first = (size_t)(blockIdx.x - t.first_tile) * SUM_TILE;
    const unsigned left = (unsigned)memopt_i_min(t.count - first, SUM_TILE);
    float from[4][4];

    CU_UNROLL for (unsigned g = 0; g < 4; ++g) {
        const sum_at q = sum_place(g, left, t.aligned);
        const size_t at = first + q.at;

        if (t.type == MEMOPT_TYPE_F32) sum_load((const float *)(const void *)t.from + at, q.n, q.step, q.wide, from[g]);
        else if (t.type == MEMOPT_TYPE_BF16)
            sum_load((const bf16_t *)(const void *)t.from + at, q.n, q.step, q.wide, from[g]);
        else sum_load((const f16_t *)(const void *)t.from + at, q.n, q.step, q.wide, from[g]);
    }
    if (t.how == SUM_F32) sum_tile<SUM_F32>(list, t, first, left, from);
    else if (t.how == SUM_PAIR) sum_tile<SUM_PAIR>(list, t, first, left, from);
    else sum_tile<SUM_NOISE>(list, t, first, left, from);
}

PRUNED status_t sum_check(const memopt_gradients *sums, const memopt_gradients *gradients,
                          const memopt_micro_batch *batch, const memopt_accumulation *accumulation) {
    size_t i, pieces;
    status_t s;

    if (!batch || !accumulation) return MEMOPT_CUDA_ERR_NULL;
    s = gradients_check(sums, &pieces);
    if (!s) s = gradients_check(gradients, &pieces);
    if (s) return s;
    if (sums->count != gradients->count) return MEMOPT_ERR_ARGUMENT;
    for (i = 0; i < sums->count; ++i) {
        const memopt_gradient *sum = sums->tensors + i;
        if (sum->count != gradients->tensors[i].count || sum->type == MEMOPT_TYPE_F16) return MEMOPT_ERR_ARGUMENT;
        if (sum->compensation ? sum->type != MEMOPT_TYPE_BF16 : sum->type == MEMOPT_TYPE_BF16 && sum->count
            && !batch->noise)
            return MEMOPT_ERR_ARGUMENT;
    }
    return batch->tokens > UINT64_MAX - accumulation->tokens ? MEMOPT_ERR_OVERFLOW : 0;
}

PRUNED void sum_entry(sum_tensor *to, const memopt_gradient *sum, const memopt_gradient *g) {
    const uintptr_t of_sum = sum->type == MEMOPT_TYPE_F32 ? 15 : 7;
    const uintptr_t of_g = g->type == MEMOPT_TYPE_F32 ? 15 : 7;

    to->sum = (unsigned char *)sum->values;
    to->compensation = sum->compensation;
    to->from = (const unsigned char *)g->values;
    to->count = sum->count;
    to->place = sum->first;
    to->type = (unsigned char)g->type;
    to->how = sum->type == MEMOPT_TYPE_F32 ? SUM_F32 : sum->compensation ? SUM_PAIR : SUM_NOISE;
    to->aligned = !((uintptr_t)sum->values & of_sum) && !((uintptr_t)g->values & of_g)
        && !((uintptr_t)sum->compensation & 7);
}

PUBLIC status_t api::memopt_cuda_gradients_accumulate(const memopt_gradients *sums, const memopt_gradients *gradients,
                                                      const memopt_micro_batch *batch,
                                            memopt_accumulation *accumulation, cudaStream_t stream) {
    sum_list list;
    size_t next = 0;
    status_t s = sum_check(sums, gradients, batch, accumulation);

    if (s || !batch->tokens) return s;
    if ((s = ready()) != 0) return s;
    list.weight = batch->is_mean ? (float)batch->tokens : 1;
    list.start = !accumulation->micro_batches;
    memset(&list.noise, 0, sizeof list.noise);
    if (batch->noise) list.noise = *batch->noise;
    while (next < sums->count) {
        size_t blocks = 0;

        for (list.count = 0; next < sums->count && list.count < SUMS_LISTED; ++next) {
            const size_t more = memopt_i_ceil_div(sums->tensors[next].count, SUM_TILE);

            if (!more) continue;
            if (blocks + more > 0x7fffffffu) break;
            sum_entry(list.tensors + list.count, sums->tensors + next, gradients->tensors + next);
            list.tensors[list.count++].first_tile = (unsigned)blocks;
            blocks += more;
        }
        s = CU_RUN(sum_kernel<>, blocks, 256, 0, stream, list);
        if (s) return s;
    }
    accumulation->tokens += batch->tokens;
    ++accumulation->micro_batches;
    return 0;
}
#endif /* MEMOPT_CUDA_NO_SCALE */

#endif /* groups */

#if MEMOPT_I_GROUPS & 0x10 /* for ranks */
/* @section cuda_shard : cuda_optim cuda_scale cuda_number cuda_memory cuda_base api_cuda_shard
   What a shard asks of a device, over streams and events.
   Order      A copy out waits for an event recorded now in the engine's stream, so for the kernels that wrote what it
              reads; unless it is told that the bytes are there: they have come by a call which the host has waited for,
              and behind the engine's stream the copy would wait for all that was queued meanwhile. A copy in waits so
              for the last kernels that read what it overwrites. The engine's stream waits for copies in at a join, so
              kernels of a backward run on beside weights that come back. The host waits for a slot's event before it
              reads, or writes again, the slot's bytes. Where nothing was copied in there is nothing to join: events
              of other streams would spoil a capture.
   Units      of several ranks: a kernel reads each summand once, and adds it to what waits for it in the tree.
   Failure    A call that fails waits for its stream: nothing of it is on its way any more. */

#ifndef MEMOPT_CUDA_NO_SCALE
/* Events; those of slots follow the last. */
enum { SHARD_BEFORE, SHARD_JOINED, SHARD_AFTER };

PRUNED cudaStream_t shard_stream(const memopt_cuda_shard *x, int way) { return (cudaStream_t)x->streams[way]; }

PRUNED cudaEvent_t shard_event(const memopt_cuda_shard *x, size_t event) { return (cudaEvent_t)x->events[event]; }

PRUNED memopt_status shard_told(void *user, status_t s) {
    if (s) ((memopt_cuda_shard *)user)->status = s;
    return memopt_cuda_to_status(s);
}

PRUNED memopt_status shard_zero(void *user, void *d_to, size_t bytes) {
    memopt_cuda_shard *const x = (memopt_cuda_shard *)user;

    return shard_told(x, on_device(x->device, [&] { return taken(cudaMemsetAsync(d_to, 0, bytes, x->stream)); }));
}

/* behind: after what the engine's stream was given so far. */
PRUNED memopt_status shard_copy(memopt_cuda_shard *x, int way, void *to, const void *from, size_t bytes, int behind,
                                size_t slot) {
    const cudaMemcpyKind kind = way == UP ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
    const cudaStream_t stream = shard_stream(x, way);
    int begun = 0;
    const status_t all = on_device(x->device, [&] {
        status_t s = behind ? taken(cudaEventRecord(shard_event(x, SHARD_BEFORE), x->stream)) : 0;

        begun = 1;
        if (behind && !s) s = await(stream, shard_event(x, SHARD_BEFORE));
        if (!s) s = taken(cudaMemcpyAsync(to, from, bytes, kind, stream));
        if (!s) s = taken(cudaEventRecord(shard_event(x, SHARD_AFTER + slot), stream));
        if (way == UP) x->is_copied = 1;
        return s;
    });

    if (all && begun) (void)taken(cudaStreamSynchronize(stream));
    return shard_told(x, all);
}

PRUNED memopt_status shard_copy_out(void *user, void *to, const void *d_from, size_t bytes, int is_there, size_t slot) {
    return shard_copy((memopt_cuda_shard *)user, DOWN, to, d_from, bytes, !is_there, slot);
}

PRUNED memopt_status shard_copy_in(void *user, void *d_to, const void *from, size_t bytes, size_t slot) {
    return shard_copy((memopt_cuda_shard *)user, UP, d_to, from, bytes, 1, slot);
}

PRUNED status_t shard_settle(const memopt_cuda_shard *x) {
    status_t s = 0;
    int way;

    for (way = 0; way < 2; ++way)
        if (x->streams[way]) s = first_error(s, taken(cudaStreamSynchronize(shard_stream(x, way))));
    return s;
}

PRUNED memopt_status shard_wait(void *user, size_t slot) {
    memopt_cuda_shard *const x = (memopt_cuda_shard *)user;
    const status_t all = on_device(x->device, [&] {
        const status_t s = taken(cudaEventSynchronize(shard_event(x, SHARD_AFTER + slot)));

        if (s) (void)shard_settle(x);
        return s;
    });

    return shard_told(x, all);
}

PRUNED memopt_status shard_join(void *user) {
    memopt_cuda_shard *const x = (memopt_cuda_shard *)user;
    const cudaEvent_t event = shard_event(x, SHARD_JOINED);

    if (!x->is_copied) return MEMOPT_OK;
    const status_t all = on_device(x->device, [&] {
        status_t s = taken(cudaEventRecord(event, shard_stream(x, UP)));

        if (!s) s = await(x->stream, event);
        x->is_copied = s != 0;
        return s;
    });

    return shard_told(x, all);
}

PRUNED status_t shard_give_back(memopt_cuda_shard *x) {
    status_t s = shard_settle(x);
    size_t i;

    for (i = 0; i < 2 + MEMOPT_SHARD_SLOTS; ++i)
        if (x->events[i]) s = first_error(s, taken(cudaEventDestroy(shard_event(x, i))));
    for (i = 0; i < 2; ++i)
        if (x->streams[i]) s = first_error(s, taken(cudaStreamDestroy(shard_stream(x, (int)i))));
    return s;
}

PRUNED status_t shard_make(memopt_cuda_shard *x) {
    status_t s = 0;
    size_t i;

    for (i = 0; i < 2 && !s; ++i) {
        cudaStream_t stream = NULL;

        s = taken(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        x->streams[i] = stream;
    }
    for (i = 0; i < 2 + MEMOPT_SHARD_SLOTS && !s; ++i) {
        cudaEvent_t event = NULL;

        s = event_create(&event);
        x->events[i] = event;
    }
    return s;
}

PUBLIC status_t api::memopt_cuda_shard_open(int device, cudaStream_t stream, memopt_cuda_shard *shard,
                                            memopt_shard_device *out) {
    memopt_cuda_shard x;
    status_t s = shard && out ? device_of(&device) : (status_t)MEMOPT_CUDA_ERR_NULL;

    if (s) return s;
    memset(&x, 0, sizeof x);
    x.stream = stream;
    x.device = device;
    s = on_device(device, [&] { return shard_make(&x); });
    if (s) {
        (void)shard_give_back(&x);
        return s;
    }
    *shard = x;
    memset(out, 0, sizeof *out);
    out->zero_fn = shard_zero;
    out->copy_out_fn = shard_copy_out;
    out->copy_in_fn = shard_copy_in;
    out->wait_fn = shard_wait;
    out->join_fn = shard_join;
    out->user = shard;
    return 0;
}

/* ---- a device that adds and steps ---- */
PRUNED cudaStream_t shard_engine(const void *user) { return ((const memopt_cuda_shard *)user)->stream; }

PRUNED memopt_status shard_scratch(void *user, const memopt_optim_desc *optim, size_t *bytes) {
    memopt_optim_desc d;
    memopt_i_checks checks;
    optim_parts parts;
    status_t s = memopt_i_optim_resolve(&checks, optim, &d);

    if (!s && d.kind == MEMOPT_OPTIM_MUON && !optim_muon_of(&d))
        s = memopt_i_refuse(&checks, MEMOPT_ERR_UNSUPPORTED, "muon", "is the CPU's: take memopt_cuda_muon_products()");
    if (!s) s = optim_count(&d, &parts);
    if (!s) *bytes = parts.bytes;
    return shard_told(user, s);
}

enum { SHARD_TREE = 17 }; /* levels, of the 65536 ranks that there are at most */

/* What waits in the tree for its neighbour: a summand, a pair, a pair of pairs ... A thread has an element. */
PRUNED __global__ void __launch_bounds__(256)
shard_tree_kernel(float *sums, const unsigned char *pieces, size_t stride, size_t count, size_t units,
                  size_t unit_ranks, int start) {
    const size_t at = (size_t)blockIdx.x * 256 + threadIdx.x;
    float waits[SHARD_TREE] = {}, sum, one = 0;

    if (at >= count) return;
    sum = start ? 0 : sums[at];
    for (size_t u = 0; u < units; ++u) {
        for (size_t r = 0; r < unit_ranks; ++r, pieces += stride) {
            one = ((const float *)(const void *)pieces)[at];
            bool rises = true;
            CU_UNROLL for (int level = 0; level < SHARD_TREE; ++level) { /* in registers: a stack would be memory */
                const bool joins = r >> level & 1;

                if (rises && joins) one = memopt_i_sum(waits[level], one);
                if (rises && !joins) waits[level] = one;
                rises = rises && joins;
            }
        }
        memopt_i_v1_add_weighted(&sum, &one, 1, 1, start && !u);
    }
    sums[at] = sum;
}

PRUNED memopt_status shard_add(void *user, float *d_sums, const void *d_pieces, memopt_type type, size_t stride,
                               size_t count, size_t pieces, size_t unit_ranks, int start) {
    memopt_gradient sum, piece;
    memopt_gradients sums, from;
    memopt_micro_batch batch;
    memopt_accumulation so_far;
    status_t s = 0;
    size_t i;

    memset(&sum, 0, sizeof sum);
    memset(&sums, 0, sizeof sums);
    memset(&batch, 0, sizeof batch);
    memset(&so_far, 0, sizeof so_far);
    sum.values = d_sums;
    sum.count = count;
    sum.type = MEMOPT_TYPE_F32;
    sums.tensors = &sum;
    sums.count = 1;
    piece = sum;
    piece.type = type;
    from = sums;
    from.tensors = &piece;
    batch.tokens = 1;
    so_far.micro_batches = !start;
    if (unit_ranks > 1)
        return shard_told(user, CU_RUN(shard_tree_kernel<>, memopt_i_ceil_div(count, 256), 256, 0, shard_engine(user),
                                       d_sums, (const unsigned char *)d_pieces, stride, count, pieces / unit_ranks,
                                       unit_ranks, start));
    for (i = 0; i < pieces && !s; ++i) {
        piece.values = (unsigned char *)(uintptr_t)d_pieces + i * stride;
        s = memopt_cuda_gradients_accumulate(&sums, &from, &batch, &so_far, shard_engine(user));
    }
    return shard_told(user, s);
}

PRUNED memopt_status shard_square(void *user, const float *d_values, size_t count, memopt_shard_square *d_squares) {
    memopt_gradient values;
    memopt_gradients list;
    scale_list part;
    size_t next = 0;
    unsigned blocks;

    static_assert(sizeof *d_squares == sizeof(memopt_cuda_gradient_sum), "the same in both");
    memset(&values, 0, sizeof values);
    memset(&list, 0, sizeof list);
    values.values = (void *)(uintptr_t)d_values;
    values.count = count;
    values.type = MEMOPT_TYPE_F32;
    list.tensors = &values;
    list.count = 1;
    blocks = scale_take(&list, MEMOPT_I_SCALE_PIECE, &next, &part);
    return shard_told(user, CU_RUN(scale_kernel<>, blocks, SCALE_THREADS, 0, shard_engine(user), part,
                                   (const memopt_scaler *)NULL, 1.0f, (memopt_cuda_gradient_sum *)(void *)d_squares));
}

PRUNED memopt_status shard_round(void *user, uint16_t *d_to, const float *d_from, size_t count) {
    return shard_told(user, number_narrow<MEMOPT_I_BF16>(d_to, d_from, count, 0, shard_engine(user)));
}

PRUNED memopt_status shard_state(void *user, memopt_optim *optim, size_t tensor) {
    return shard_told(user, memopt_cuda_optim_state_init(optim, tensor, shard_engine(user)));
}

PRUNED memopt_status shard_begin(void *user, memopt_optim *optim, const memopt_optim_run *run, void *d_scratch,
                                 size_t bytes) {
    memopt_cuda_optim_progress *const d_progress = ((const memopt_cuda_shard *)user)->d_progress;

    if (!d_progress) return shard_told(user, memopt_cuda_optim_begin(optim, run, d_scratch, bytes, shard_engine(user)));
    return shard_told(user, memopt_cuda_optim_begin_with_progress(optim, run, d_progress, d_scratch, bytes,
                                                                  shard_engine(user)));
}

PRUNED memopt_status shard_apply(void *user, memopt_optim *optim, size_t tensor, size_t first, size_t count,
                                 void *d_scratch, size_t bytes) {
    return shard_told(user, memopt_cuda_optim_apply(optim, tensor, first, count, d_scratch, bytes, shard_engine(user)));
}

PRUNED memopt_status shard_end(void *user, memopt_optim *optim, void *d_scratch, size_t bytes) {
    memopt_cuda_optim_outcome outcome;
    status_t s = 0;

    memset(&outcome, 0, sizeof outcome);
    if (optim->fused) s = memopt_cuda_optim_result(optim, d_scratch, bytes, &outcome, shard_engine(user));
    s = first_error(s, memopt_cuda_optim_end(optim));
    if (!s && outcome.stopped) s = MEMOPT_ERR_STATE;
    return shard_told(user, s);
}

PRUNED memopt_status shard_step(void *user, memopt_optim *optim, const memopt_optim_run *run, void *d_scratch,
                                size_t bytes) {
    memopt_cuda_optim_progress *const d_progress = ((const memopt_cuda_shard *)user)->d_progress;

    if (!d_progress) return shard_told(user, memopt_cuda_optim_step(optim, run, d_scratch, bytes, shard_engine(user)));
    return shard_told(user, memopt_cuda_optim_step_with_progress(optim, run, d_progress, d_scratch, bytes,
                                                                 shard_engine(user)));
}

PUBLIC void api::memopt_cuda_shard_kernels(memopt_shard_kernels *out) {
    if (!out) return;
    out->scratch_fn = shard_scratch;
    out->add_fn = shard_add;
    out->square_fn = shard_square;
    out->round_fn = shard_round;
    out->state_fn = shard_state;
    out->begin_fn = shard_begin;
    out->apply_fn = shard_apply;
    out->end_fn = shard_end;
    out->step_fn = shard_step;
}

PUBLIC status_t api::memopt_cuda_shard_close(memopt_cuda_shard *shard) {
    int before;
    status_t s;

    if (!shard || !shard->streams[0]) return 0;
    s = enter_anyway(shard->device, &before);
    s = first_error(s, shard_give_back(shard));
    s = first_error(s, leave_device(shard->device, before));
    memset(shard, 0, sizeof *shard);
    return s;
}
#endif /* MEMOPT_CUDA_NO_SCALE */

#endif /* groups */

#if MEMOPT_I_GROUPS & 0x08 /* for operators */
/* @section cuda_softmax : cuda_base api_cuda_softmax
   Softmax of rows, and softmax + cross-entropy in place.
   Problem    Logits of a language model are rows of 50,304 or 128,256 numbers: 98 or 250 KiB in bf16, more than
              registers hold. The plain form passes over them for the largest, for the sum and for the result, in
              kernels of their own: 12 bytes or more for each bf16 logit. And exp costs: this library's own is 32
              instructions, twice a logit, where the memory leaves time for 25 of all kinds (132 multiprocessors, 128
              lanes, 1.75 GHz, 1.2e12 logits a second at 4.8 TB/s).
   Idea       The largest and the sum are found in one read: a running largest, and a sum that is multiplied down when a
              larger one comes. The second read is not from memory: as much of the row as half a multiprocessor's shared
              memory holds (112 KiB on an H200: all of 50,304 bf16) stays there, the rest, read a moment ago, is still
              in the cache. So memory sees 2 bytes read and 2 written for a bf16 logit. Two blocks a multiprocessor, so
              that one loads while the other reduces, or writes; it has 64 KiB under way, the half of them in registers,
              and the other half asked for: a memory of a microsecond wants 33. Of 128,256 bf16 two blocks on each of
              132 multiprocessors leave 38 MB to a cache of 50 MB, of which a half serves a half of the card. But the
              second read goes from the end to the beginning, so what is left is there for a short while only: 10 MB at
              a time. What need not stay in the cache says so: what is kept, when it is read, and the gradient. Where
              even that is too much, one block has all of the shared memory: of 128,256 floats.
   exp        is 2^(log2(e) x) by the device's own instruction: 2 units in the last place, 0 below 2^-126, and with the
              product 2 instructions.
   Ways       Largest, sum, loss and gradient by themselves move 12 bytes a bf16 logit; largest and sum in one read 8;
              with rows in shared memory and cache for the second read 4. Then instructions count: the device's own
              exponential, rounding without asking for NaN, few compares, one place for the target.
   Rows       of softmax, which are floats, are held in registers, 32 floats a thread: by a warp up to 1,024 columns, by
              256 threads up to 8,192: read once, written once, no shared memory but for 16 numbers. Longer ones are
              read twice.
   Row ends   A row of logits that does not begin at 16 bytes has a head of single elements, a body of 16-byte pieces,
              and a tail. Rows of softmax that do not are read element by element, a warp side by side.
   Not finite A NaN and +infinity make the sum NaN by themselves: infinity - infinity. A row of -infinity has the sum 0,
              because the running largest begins at the smallest finite float. -infinity beside numbers is exp's 0.
   Trap       A target's logit must be read before its place is overwritten by the gradient; its gradient is written by
              the thread that writes its surroundings.

   What others may use, by name and signature:

   Rows of any length, of floats and, what comes of them, any type: softmax_launch(). Columns beyond those that a row
   has become 0. The probabilities of 16 bits may be the first half of the scores' bytes, because all of a row is read
   before any of it is written, where it is held in registers (up to 8,192 columns).
   Cross-entropy, for chunks of rows (no scratch; statuses of launches): cross_entropy_count/_rows/_total.
   Parts      of the columns are read from memory in both of their kernels: between them ranks tell each other what they
              have measured, and no shared memory lasts so long. */

enum { SOFTMAX_GROUPS = 8, SOFTMAX_WARP = 1024, SOFTMAX_BLOCK = 8192 };
#define MEMOPT_I_CUDA_SOFTMAX_LOWEST (-3.4028234663852886e38f)

CU_DEVICE float softmax_exp(float x) { /* 0 below 2^-126, where exp2f would take three instructions more */
    return exp2_near(memopt_i_times(x, MEMOPT_I_EXP_LOG2E));
}

/* 0 in place of what cannot be seen beside 1 */
CU_DEVICE float softmax_share(float x) { return x < MEMOPT_I_EXP_LEAST ? 0.0f : softmax_exp(x); }

CU_DEVICE float softmax_nan(void) { return memopt_i_bits_float(0x7fc00000u); }

/* ---- groups of 4 elements: side by side where aligned, else one of each of 4 stretches ---- */
struct softmax_at {
    size_t first;
    unsigned step;
    int wide;
};

/* Group k of a thread, of `lanes` threads. */
CU_DEVICE softmax_at softmax_place(size_t k, unsigned lane, unsigned lanes, int aligned) {
    softmax_at q;

    q.first = aligned ? (k * lanes + lane) * 4 : k * 4 * lanes + lane;
    q.step = aligned ? 1 : lanes;
    q.wide = aligned;
    return q;
}

/* Elements of a type that the host knows: a branch for four of them, which all threads take alike. */
struct softmax_data {
    void *p;
    memopt_type type;

    CU_MEMBER softmax_data operator+(size_t n) const {
        return { (char *)p + n * (type == MEMOPT_TYPE_F32 ? 4 : 2), type };
    }
};

CU_DEVICE float load_one(softmax_data d) { return one_of(d.p, d.type, 0); }
CU_DEVICE void store_one(softmax_data d, float x) { put_one(d.p, d.type, 0, x); }

CU_DEVICE void load_four(softmax_data d, float *x) {
    if (d.type == MEMOPT_TYPE_F32) load_four((const float *)d.p, x);
    else if (d.type == MEMOPT_TYPE_BF16) load_four((const bf16_t *)d.p, x);
    else load_four((const f16_t *)d.p, x);
}

CU_DEVICE void store_four(softmax_data d, const float *x) { put_floats<4>(d.p, d.type, 0, x, 4, true); }

CU_DEVICE int softmax_aligned(const float *p) { return ((uintptr_t)p & 15) == 0; }

CU_DEVICE int softmax_aligned(softmax_data d) { return ((uintptr_t)d.p & (d.type == MEMOPT_TYPE_F32 ? 15 : 7)) == 0; }

/* The elements from n on are `fill`. */
template <class ROW> CU_DEVICE void softmax_load(ROW p, softmax_at q, size_t n, float fill, float *x) {
    if (q.wide && q.first + 4 <= n) {
        load_four(p + q.first, x);
        return;
    }
    CU_UNROLL for (unsigned i = 0; i < 4; ++i) {
        const size_t at = q.first + (size_t)i * q.step;
        x[i] = at < n ? load_one(p + at) : fill;
    }
}

/* Those from n on become 0, up to `columns`. */
CU_DEVICE void softmax_store(softmax_data p, softmax_at q, size_t n, size_t columns, const float *x) {
    if (q.wide && q.first + 4 <= n) {
        store_four(p + q.first, x);
        return;
    }
    float y[4] = { x[0], x[1], x[2], x[3] };
    CU_ROLLED for (unsigned i = 0; i < 4; ++i) { /* stores do not wait */
        const size_t at = q.first + (size_t)i * q.step;
        if (at < columns) store_one(p + at, at < n ? y[0] : 0.0f);
        take_turns<4>(y);
    }
}

/* ---- what all threads of a group have in the end ---- */
CU_DEVICE float softmax_warp_sum(float x) {
    CU_UNROLL for (int far = 16; far; far /= 2) x = memopt_i_sum(x, __shfl_xor_sync(MEMOPT_I_CUDA_ALL, x, far));
    return x;
}

CU_DEVICE double softmax_warp_sum(double x) {
    CU_UNROLL for (int far = 16; far; far /= 2) x += __shfl_xor_sync(MEMOPT_I_CUDA_ALL, x, far);
    return x;
}

CU_DEVICE float softmax_warp_max(float x) {
    CU_UNROLL for (int far = 16; far; far /= 2) x = fmaxf(x, __shfl_xor_sync(MEMOPT_I_CUDA_ALL, x, far));
    return x;
}

/* One number of each warp for all threads of a block, after the warps have agreed on it. Two barriers. */
CU_DEVICE float softmax_share_out(float x, float none, float *red) {
    const unsigned lane = threadIdx.x & 31;
    const unsigned warps = blockDim.x / 32;

    __syncthreads(); /* red has been read by all */
    if (lane == 0) red[threadIdx.x / 32] = x;
    __syncthreads(); /* red is there */
    return lane < warps ? red[lane] : none;
}

CU_DEVICE float softmax_sum(float x, unsigned lanes, float *red) {
    x = softmax_warp_sum(x);
    if (lanes == 32) return x;
    return softmax_warp_sum(softmax_share_out(x, 0, red));
}

CU_DEVICE float softmax_max(float x, unsigned lanes, float *red) {
    x = softmax_warp_max(x);
    if (lanes == 32) return x;
    return softmax_warp_max(softmax_share_out(x, memopt_i_bits_float(0xff800000u), red));
}

/* ---- rows in registers ---- */
#define MEMOPT_I_CUDA_SOFTMAX_EACH(k, columns, lanes)                                                                  \
    for (int k = 0; k < SOFTMAX_GROUPS; ++k) if (k * 4 * lanes < (columns))

CU_DEVICE void softmax_row(const float *x, softmax_data y, size_t n, size_t columns, float scale, unsigned lanes,
                           float *red) {
    const unsigned lane = threadIdx.x & (lanes - 1);
    const float none = memopt_i_bits_float(0xff800000u);
    const int aligned = softmax_aligned(x) && softmax_aligned(y);
    float v[SOFTMAX_GROUPS][4];
    float max = none;
    float sum = 0;
    float part;

    CU_UNROLL MEMOPT_I_CUDA_SOFTMAX_EACH(k, columns, lanes)
    softmax_load(x, softmax_place(k, lane, lanes, aligned), n, none, v[k]);
    CU_UNROLL MEMOPT_I_CUDA_SOFTMAX_EACH(k, columns, lanes) max =
        fmaxf(max, fmaxf(fmaxf(v[k][0], v[k][1]), fmaxf(v[k][2], v[k][3])));
    max = softmax_max(max, lanes, red);
    CU_UNROLL MEMOPT_I_CUDA_SOFTMAX_EACH(k, columns, lanes) {
        CU_UNROLL for (int i = 0; i < 4; ++i) v[k][i] =
            softmax_share(memopt_i_times(scale, memopt_i_sum(v[k][i], -max)));
        part = memopt_i_sum(memopt_i_sum(v[k][0], v[k][1]), memopt_i_sum(v[k][2], v[k][3]));
        sum = memopt_i_sum(sum, part);
    }
    sum = memopt_i_v1_div(1.0f, softmax_sum(sum, lanes, red));
    if (lanes == 32) __syncwarp(); /* others' scores may lie there, and shuffles order no memory */
    CU_UNROLL MEMOPT_I_CUDA_SOFTMAX_EACH(k, columns, lanes) {
        CU_UNROLL for (int i = 0; i < 4; ++i) v[k][i] = memopt_i_times(v[k][i], sum);
        softmax_store(y, softmax_place(k, lane, lanes, aligned), n, columns, v[k]);
    }
}

CU_DEVICE void softmax_slope_row(softmax_data p, const float *g, softmax_data y, size_t n, size_t columns, float scale,
                                 unsigned lanes, float *red) {
    const unsigned lane = threadIdx.x & (lanes - 1);
    const int aligned = softmax_aligned(p) && softmax_aligned(g) && softmax_aligned(y);
    float v[SOFTMAX_GROUPS][4], w[SOFTMAX_GROUPS][4];
    float mean = 0;

    CU_UNROLL MEMOPT_I_CUDA_SOFTMAX_EACH(k, columns, lanes) {
        const softmax_at q = softmax_place(k, lane, lanes, aligned);
        softmax_load(p, q, n, 0, v[k]);
        softmax_load(g, q, n, 0, w[k]);
    }
    CU_UNROLL MEMOPT_I_CUDA_SOFTMAX_EACH(k, columns, lanes) CU_UNROLL for (int i = 0; i < 4; ++i) mean =
        fmaf(v[k][i], w[k][i], mean);
    mean = softmax_sum(mean, lanes, red);
    if (lanes == 32) __syncwarp();
    CU_UNROLL MEMOPT_I_CUDA_SOFTMAX_EACH(k, columns, lanes) {
        float z[4];
        CU_UNROLL for (int i = 0; i < 4; ++i) (void)memopt_i_v1_softmax_grad(z + i, v[k] + i, w[k] + i, scale, mean, 1);
        softmax_store(y, softmax_place(k, lane, lanes, aligned), n, columns, z);
    }
}

/* ---- the largest and the sum in one read ---- */
struct softmax_sums { /* total: of the logits / 8, where it is wanted */
    float max, sum;
    double total;
};

CU_DEVICE softmax_sums softmax_begin(void) {
    softmax_sums s;

    s.max = MEMOPT_I_CUDA_SOFTMAX_LOWEST;
    s.sum = 0;
    s.total = 0;
    return s;
}

/* SCALED: else scale is 1, and a product with it would be an instruction all the same. */
template <bool SCALED> CU_DEVICE float softmax_scaled(float x, float scale) {
    return SCALED ? memopt_i_times(scale, x) : x;
}

template <int N, bool SCALED> CU_DEVICE void softmax_take(softmax_sums *s, const float *x, float scale) {
    float max = x[0];
    float e[N];

    CU_UNROLL for (int i = 1; i < N; ++i) max = fmaxf(max, x[i]);
    if (max > s->max) {
        s->sum = memopt_i_times(s->sum, softmax_exp(softmax_scaled<SCALED>(memopt_i_sum(s->max, -max), scale)));
        s->max = max;
    }
    CU_UNROLL for (int i = 0; i < N; ++i) {
        e[i] = softmax_exp(softmax_scaled<SCALED>(memopt_i_sum(x[i], -s->max), scale));
    }
    CU_UNROLL for (int half = N / 2; half; half /= 2)
        CU_UNROLL for (int i = 0; i < half; ++i) e[i] = memopt_i_sum(e[i], e[i + half]);
    s->sum = memopt_i_sum(s->sum, e[0]);
}

/* An eighth of the sum of no more than 8 numbers: no overflow, one conversion. */
template <int N> CU_DEVICE void softmax_add(softmax_sums *s, const float *x) {
    float t[N];

    CU_UNROLL for (int i = 0; i < N; ++i) t[i] = memopt_i_times(x[i], 0.125f);
    CU_UNROLL for (int half = N / 2; half; half /= 2)
        CU_UNROLL for (int i = 0; i < half; ++i) t[i] = memopt_i_sum(t[i], t[i + half]);
    s->total += (double)t[0];
}

/* By a warp: all lanes have the warp's. */
CU_DEVICE void softmax_merge(softmax_sums *s, float scale) {
    const float max = softmax_warp_max(s->max);
    s->sum = memopt_i_times(s->sum, softmax_exp(memopt_i_times(scale, memopt_i_sum(s->max, -max))));
    s->sum = softmax_warp_sum(s->sum);
    s->max = max;
}

/* By a block. red: 32 floats. A row without a softmax has the sum 0, or NaN. First every warp's share; then all of the
   block's, for the warps that ask. */
CU_DEVICE void softmax_hand_over(softmax_sums *s, float scale, float *red) {
    softmax_merge(s, scale);
    if (threadIdx.x % 32 == 0) {
        red[threadIdx.x / 32] = s->max;
        red[16 + threadIdx.x / 32] = s->sum;
    }
    __syncthreads(); /* all warps' are there, and totals */
}

CU_DEVICE void softmax_collect(softmax_sums *s, float scale, const float *red) {
    const unsigned lane = threadIdx.x & 31;
    const unsigned warps = blockDim.x / 32;

    s->max = lane < warps ? red[lane] : MEMOPT_I_CUDA_SOFTMAX_LOWEST;
    s->sum = lane < warps ? red[16 + lane] : 0;
    softmax_merge(s, scale);
}

/* ---- rows from memory ---- */
CU_DEVICE void softmax_long_row(const float *x, softmax_data y, size_t n, size_t columns, float scale, float *red) {
    const unsigned lanes = blockDim.x;
    const size_t all = (size_t)lanes * 4;
    float v[2][4], inverse;
    const int aligned = softmax_aligned(x) && softmax_aligned(y);
    softmax_sums s = softmax_begin();

    for (size_t k = 0; k * all < n; k += 2) {
        const float none = memopt_i_bits_float(0xff800000u);

        CU_UNROLL for (int u = 0; u < 2; ++u)
            softmax_load(x, softmax_place(k + u, threadIdx.x, lanes, aligned), n, none, v[u]);
        CU_UNROLL for (int u = 0; u < 2; ++u) softmax_take<4, true>(&s, v[u], scale);
    }
    softmax_hand_over(&s, scale, red);
    softmax_collect(&s, scale, red);
    inverse = memopt_i_v1_div(1.0f, s.sum);
    for (size_t k = 0; k * all < columns; k += 2) CU_UNROLL for (int u = 0; u < 2; ++u) {
                const softmax_at q = softmax_place(k + u, threadIdx.x, lanes, aligned);

                softmax_load(x, q, n, 0, v[u]);
            CU_UNROLL for (int i = 0; i < 4; ++i) v[u][i] =
                memopt_i_times(inverse, softmax_share(memopt_i_times(scale, memopt_i_sum(v[u][i], -s.max))));
                softmax_store(y, q, n, columns, v[u]);
            }
}

CU_DEVICE void softmax_long_slope_row(softmax_data p, const float *g, softmax_data y, size_t n, size_t columns,
                                      float scale, float *red) {
    const unsigned lanes = blockDim.x;
    const size_t all = (size_t)lanes * 4;
    float v[4], w[4];
    float mean = 0;
    const int aligned = softmax_aligned(p) && softmax_aligned(g) && softmax_aligned(y);

    for (size_t k = 0; k * all < n; ++k) {
        const softmax_at q = softmax_place(k, threadIdx.x, lanes, aligned);
        softmax_load(p, q, n, 0, v);
        softmax_load(g, q, n, 0, w);
        CU_UNROLL for (int i = 0; i < 4; ++i) mean = fmaf(v[i], w[i], mean);
    }
    mean = softmax_sum(mean, lanes, red);
    for (size_t k = 0; k * all < columns; ++k) {
        const softmax_at q = softmax_place(k, threadIdx.x, lanes, aligned);
        float z[4];

        softmax_load(p, q, n, 0, v);
        softmax_load(g, q, n, 0, w);
        CU_UNROLL for (int i = 0; i < 4; ++i) (void)memopt_i_v1_softmax_grad(z + i, v + i, w + i, scale, mean, 1);
        softmax_store(y, q, n, columns, z);
    }
}

/* ---- rows of any length: held by `lanes` threads, or, where those are 512, by a block from memory ---- */
typedef struct softmax_task {
    float        *x;     /* scores; slopes: the gradients of probabilities */
    softmax_data  p, to; /* slopes: the probabilities */
    const size_t *valid; /* NULL, or how many columns each row has; or, where there are blocks, a sequence's length */
    size_t  rows, columns, stride, pitch; /* pitch: of p and to */
    size_t  heads, block;  /* of attention: `rows` rows of each head, which are `block` rows apart; 0: no heads */
    size_t  first, at, length, window; /* of the block: its first row, where its columns begin */
    float   scale;
    int     causal;
} softmax_task;

/* Where the columns of a row end; at 0 for one of a block that is not in use. */
CU_DEVICE size_t softmax_end(const softmax_task &t, size_t row) {
    if (!t.heads) return t.valid ? memopt_i_min(t.valid[row], t.columns) : t.columns;
    const size_t used = t.valid ? memopt_i_min(*t.valid, t.length) : t.length;
    const size_t i = t.first + row % t.rows;

    return i >= used ? 0 : t.causal ? i + 1 - t.at : used;
}

CU_DEVICE void softmax_barrier(unsigned lanes) {
    if (lanes == 32) __syncwarp();
    else __syncthreads();
}

/* Columns of a row become a number. All threads of its group come here, and see it. */
template <class ROW> CU_DEVICE void softmax_hide(ROW x, size_t from, size_t end, float value, unsigned lanes) {
    softmax_barrier(lanes);
    for (size_t i = from + threadIdx.x % lanes; i < end; i += lanes) store_one(x + i, value);
    softmax_barrier(lanes);
}

/* A row by a warp, by 256 threads, or, HELD 0, where it is longer than their registers hold, by 512. */
template <bool HELD, bool SLOPE>
static __global__ void CU_BOUNDS(HELD ? 256 : 512) softmax_kernel(const softmax_task t, unsigned lanes) {
    MEMOPT_I_CUDA_SHARED(float, red, [32]);
    const size_t row = lanes == 32 ? (size_t)blockIdx.x * 8 + threadIdx.x / 32 : blockIdx.x;
    if (row >= (t.heads ? t.rows * t.heads : t.rows)) return; /* whole warps, and no barriers then */
    const size_t at = t.heads ? row / t.rows * t.block + row % t.rows : row;
    const size_t end = softmax_end(t, row);
    const size_t hidden = t.window && end > t.window ? end - t.window : 0; /* before its window */
    const size_t from = hidden / 4 * 4; /* where floats are aligned as those of the row are */
    float *x = t.x + at * t.stride + from;
    const softmax_data y = t.to + at * t.pitch;
    const size_t n = end - from;
    const size_t columns = t.columns - from;
    if (hidden) softmax_hide(x, 0, hidden - from, SLOPE ? 0 : memopt_i_bits_float(0xff800000u), lanes);
    if (SLOPE && HELD)
        softmax_slope_row(t.p + at * t.pitch + from, x, y + from, n, columns, t.scale, lanes, red);
    else if (SLOPE) softmax_long_slope_row(t.p + at * t.pitch + from, x, y + from, n, columns, t.scale, red);
    else if (HELD) softmax_row(x, y + from, n, columns, t.scale, lanes, red);
    else softmax_long_row(x, y + from, n, columns, t.scale, red);
    if (hidden) softmax_hide(y, 0, hidden, 0, lanes);
}

template <bool SLOPE> static status_t softmax_launch(const softmax_task &t, cudaStream_t stream) {
    const unsigned lanes = t.columns <= SOFTMAX_WARP ? 32 : t.columns <= SOFTMAX_BLOCK ? 256 : 512;
    const size_t rows = t.heads ? t.rows * t.heads : t.rows;

    if (lanes == 512) return CU_RUN((softmax_kernel<false, SLOPE>), rows, 512, 0, stream, t, lanes);
    return CU_RUN((softmax_kernel<true, SLOPE>), memopt_i_ceil_div(rows, 256 / lanes), 256, 0, stream, t, lanes);
}

PRUNED status_t softmax_check(const memopt_softmax *s, int backward) {
    const size_t bytes = ((s->rows - 1) * s->stride + s->columns) * sizeof(float);
    status_t r = pointer(s->input, 4);

    if (!r) r = pointer(s->output, 4);
    if (!r && backward) r = pointer(s->grad_output, 4);
    if (!r) r = pointer_if(s->valid, sizeof *s->valid);
    if (!r && s->output != s->input) r = no_overlap(s->output, bytes, s->input, bytes);
    if (!r && backward && s->output != s->grad_output) r = no_overlap(s->output, bytes, s->grad_output, bytes);
    return r ? r : no_overlap(s->output, bytes, s->valid, s->rows * sizeof *s->valid);
}

PRUNED status_t softmax_run(const memopt_softmax *softmax, int backward, cudaStream_t stream) {
    memopt_softmax s;
    size_t bytes;
    status_t r;

    if (!softmax) return MEMOPT_CUDA_ERR_NULL;
    s = *softmax;
    if (!s.stride) s.stride = s.columns;
    if (s.scale == 0) s.scale = 1;
    if (s.stride < s.columns || memopt_i_float_bits(s.scale) >= 0x7f800000u) return MEMOPT_ERR_ARGUMENT;
    if (memopt_i_ops_too_large(s.rows, s.stride, MEMOPT_TYPE_F32) || memopt_i_mul(s.rows, sizeof *s.valid, &bytes))
        return MEMOPT_ERR_OVERFLOW;
    if (!s.rows || !s.columns) return 0;
    r = softmax_check(&s, backward);
    if (r) return r;
    const softmax_data p = { (void *)(uintptr_t)s.input, MEMOPT_TYPE_F32 };
    const softmax_data to = { s.output, MEMOPT_TYPE_F32 };
    const softmax_task t = { (float *)(uintptr_t)(backward ? s.grad_output : s.input), p, to, s.valid, s.rows,
                             s.columns, s.stride, s.stride, 0, 0, 0, 0, 0, 0, s.scale, 0 };
    return backward ? softmax_launch<true>(t, stream) : softmax_launch<false>(t, stream);
}

PUBLIC status_t api::memopt_cuda_softmax_forward(const memopt_cuda_ops *, const memopt_softmax *softmax,
                                                 cudaStream_t stream) {
    return softmax_run(softmax, 0, stream);
}

PUBLIC status_t api::memopt_cuda_softmax_backward(const memopt_cuda_ops *, const memopt_softmax *softmax,
                                                  cudaStream_t stream) {
    return softmax_run(softmax, 1, stream);
}

/* ---- cross-entropy: 16 bytes of a row of logits ---- */
template <typename T> struct softmax_pack { enum { N = 16 / sizeof(T) }; };

template <typename T> CU_DEVICE void softmax_unpack(const T *, uint4 v, float *x) {
    const row_span<T, softmax_pack<T>::N> s = { { v.x, v.y, v.z, v.w } };
    span_floats(x, s);
}

template <typename T> CU_DEVICE uint4 softmax_packed(const T *, const float *x) {
    const row_span<T, softmax_pack<T>::N> s = span_of<T, softmax_pack<T>::N>(x);
    return make_uint4(s.word[0], s.word[1], s.word[2], s.word[3]);
}

/* A row: `head` single elements up to 16 bytes, `body` pieces of 16 bytes, `tail` single elements. */
template <typename T> struct softmax_span {
    T *x;
    uint4 *pieces;
    size_t head, body, tail, n;
};

template <typename T> CU_DEVICE softmax_span<T> softmax_cut(T *x, size_t n) {
    softmax_span<T> r;

    r.head = memopt_i_min(n, ((16 - ((uintptr_t)x & 15)) & 15) / sizeof(T));
    r.body = (n - r.head) / softmax_pack<T>::N;
    r.tail = n - r.head - r.body * softmax_pack<T>::N;
    r.x = x;
    r.pieces = (uint4 *)(void *)(x + r.head);
    r.n = n;
    return r;
}

/* All n become `value`. */
template <typename T> static __device__ void softmax_fill(T *x, size_t n, float value) {
    const softmax_span<T> r = softmax_cut(x, n);
    float v[softmax_pack<T>::N];

    CU_UNROLL for (int i = 0; i < softmax_pack<T>::N; ++i) v[i] = value;
    const uint4 all = softmax_packed(x, v);
    for (size_t i = threadIdx.x; i < r.body; i += blockDim.x) __stwb(r.pieces + i, all);
    for (size_t i = threadIdx.x; i < r.head; i += blockDim.x) store_one(x + i, value);
    for (size_t i = threadIdx.x; i < r.tail; i += blockDim.x) store_one(x + n - r.tail + i, value);
}

enum { CROSS_ENTROPY_LOADS = 4, CROSS_ENTROPY_THREADS = 512 };

struct cross_entropy {
    memopt_cross_entropy x;      /* with its stride */
    const size_t *d_count;
    double       *d_row_losses;
    size_t        kept;          /* pieces of a row in shared memory */
    memopt_cross_entropy_row *d_rows; /* of a part: measured, or joined */
};

/* Of LOADS pieces from `at` on, blockDim.x apart, those of this thread that there are: read, and kept where they fit.
   WHOLE: all of them. total: their sum is wanted, too. */
template <bool WHOLE, typename T>
CU_DEVICE void cross_entropy_take(softmax_sums *s, const softmax_span<T> &r, uint4 *kept, size_t some, size_t at,
                                  bool total) {
    enum { N = softmax_pack<T>::N, LOADS = CROSS_ENTROPY_LOADS };
    const uint4 *const from = r.pieces + at;
    const unsigned step = blockDim.x;
    const unsigned left = WHOLE ? 0 : (unsigned)(r.body - at);
    const unsigned keep = at < some ? (unsigned)(some - at) : 0;
    uint4 v[LOADS];
    float x[N];

    if (WHOLE && (LOADS - 1) * step < keep) { /* not read again: the first to leave the cache */
        CU_UNROLL for (unsigned k = 0; k < LOADS; ++k) v[k] = __ldcs(from + k * step);
    } else {
        CU_UNROLL for (unsigned k = 0; k < LOADS; ++k) if (WHOLE || k * step < left) v[k] = from[k * step];
    }
    CU_ROLLED_IF(!WHOLE, LOADS) for (unsigned k = 0; k < LOADS && (WHOLE || k * step < left); ++k) {
        if (k * step < keep) kept[(unsigned)at + k * step] = v[0];
        softmax_unpack(r.x, v[0], x);
        softmax_take<N, false>(s, x, 1.0f);
        if (total) softmax_add<N>(s, x);
        take_turns<LOADS>(v);
    }
}

/* First read: the largest and the sum. What fits stays in shared memory, read by the thread that wrote it. */
template <typename T> static __device__ softmax_sums cross_entropy_measure(softmax_span<T> r, uint4 *kept, size_t some,
                                                                           float *red, double *totals, bool total) {
    const size_t step = (size_t)CROSS_ENTROPY_LOADS * blockDim.x;
    const size_t whole = r.body / step * step;
    softmax_sums s = softmax_begin();
    float x[1];

    for (size_t at = threadIdx.x; at < whole; at += step) {
        if (at + step < whole) CU_UNROLL for (unsigned k = 0; k < CROSS_ENTROPY_LOADS; ++k)
            prefetch<0>(r.pieces + at + step + k * blockDim.x);
        cross_entropy_take<true>(&s, r, kept, some, at, total);
    }
    if (whole + threadIdx.x < r.body) cross_entropy_take<false>(&s, r, kept, some, whole + threadIdx.x, total);
    for (size_t i = threadIdx.x; i < r.head + r.tail; i += blockDim.x) {
        x[0] = load_one(r.x + (i < r.head ? i : i - r.head + r.n - r.tail));
        softmax_take<1, false>(&s, x, 1.0f);
        if (total) softmax_add<1>(&s, x);
    }
    if (total) {
        s.total = softmax_warp_sum(s.total);
        if (threadIdx.x % 32 == 0) totals[threadIdx.x / 32] = s.total;
    }
    softmax_hand_over(&s, 1.0f, red); /* and its barrier */
    if (threadIdx.x < 32) softmax_collect(&s, 1.0f, red);
    return s; /* the row's in the first warp, whose thread 0 decides */
}

/* What thread 0 finds out about a row, for all threads. */
struct cross_entropy_found {
    memopt_i_cross_entropy_terms terms;
    float max, at_target;
};

PRUNED __device__ memopt_i_cross_entropy_row cross_entropy_decide(const cross_entropy &t, const softmax_sums &s,
                                                                  int32_t target, float at,
                                                                  cross_entropy_found *found) {
    const memopt_loss_rule *rule = &t.x.rule;
    memopt_i_cross_entropy_row r;
    const int bad = (size_t)target >= t.x.whole || !(s.sum > 0);

    r.logits = NULL;
    r.target = 0;
    r.in_place = 0;
    r.max = bad ? softmax_nan() : s.max;
    r.sum = s.sum;
    r.at = bad ? 0 : at;
    r.total = s.total;
    const double lse = rule->z_weight > 0 ? (double)r.max + memopt_i_row_log((double)r.sum) : 0;
    found->terms = memopt_i_cross_entropy_grad(rule, t.x.whole, memopt_i_loss_rule_factor(rule, *t.d_count),
                                               (double)s.sum, lse);
    found->max = r.max; /* NaN: all of the gradient is */
    found->at_target = fmaf(found->terms.a, softmax_exp(memopt_i_sum(r.at, -r.max)), found->terms.at_target);
    return r;
}

/* Its loss, which no other thread waits for: a logarithm of doubles takes as long as a tenth of a row. */
PRUNED __device__ void cross_entropy_lose(const cross_entropy &t, const memopt_i_cross_entropy_row &r, size_t row) {
    double lse;
    const double loss = memopt_i_cross_entropy_loss(&t.x.rule, t.x.whole, &r, &lse);

    t.d_row_losses[row] = loss;
    if (t.x.losses) t.x.losses[row] = (float)loss;
}

template <typename T> CU_DEVICE void cross_entropy_grads(float *x, int n, const cross_entropy_found &f) {
    CU_UNROLL for (int i = 0; i < n; ++i) {
        x[i] = softmax_exp(memopt_i_sum(x[i], -f.max));
        (void)memopt_i_v1_head_grads(x + i, f.terms.a, f.terms.b, f.terms.c, 1);
    }
}

/* The gradient of the same pieces. */
template <bool WHOLE, typename T>
CU_DEVICE void cross_entropy_give(const softmax_span<T> &r, const uint4 *kept, size_t some, size_t at,
                                  const cross_entropy_found &f) {
    enum { N = softmax_pack<T>::N, LOADS = CROSS_ENTROPY_LOADS };
    uint4 *const to = r.pieces + at;
    const unsigned step = blockDim.x;
    const unsigned left = WHOLE ? 0 : (unsigned)(r.body - at);
    const unsigned keep = at < some ? (unsigned)(some - at) : 0;
    uint4 v[LOADS];
    float x[N];

    CU_UNROLL for (unsigned k = 0; k < LOADS; ++k) if (WHOLE || k * step < left)
            v[k] = k * step < keep ? kept[(unsigned)at + k * step] : __ldcs(to + k * step);
    CU_ROLLED_IF(!WHOLE, LOADS) for (unsigned k = 0; k < LOADS && (WHOLE || k * step < left); ++k) {
        softmax_unpack(r.x, v[0], x);
        cross_entropy_grads<T>(x, N, f);
        __stcs(to + k * step, softmax_packed(r.x, x));
        take_turns<LOADS>(v);
    }
}

/* Second read: the gradient in place, from the end, because what was read last is in the cache for sure. */
template <typename T> static __device__ void cross_entropy_write(softmax_span<T> r, const uint4 *kept, size_t some,
                                                                 size_t target, const cross_entropy_found f) {
    enum { N = softmax_pack<T>::N };
    const size_t step = (size_t)CROSS_ENTROPY_LOADS * blockDim.x;
    const size_t whole = r.body / step * step;
    const size_t of_target = (target - r.head) / N;
    float x[1];

    for (size_t i = threadIdx.x; i < r.head + r.tail; i += blockDim.x) {
        const size_t at = i < r.head ? i : i - r.head + r.n - r.tail;
        x[0] = load_one(r.x + at);
        cross_entropy_grads<T>(x, 1, f);
        store_one(r.x + at, at == target ? f.at_target : x[0]);
    }
    if (whole + threadIdx.x < r.body) cross_entropy_give<false>(r, kept, some, whole + threadIdx.x, f);
    for (size_t at = whole; at; at -= step) cross_entropy_give<true>(r, kept, some, at - step + threadIdx.x, f);
    if (target >= r.head && of_target < r.body && (of_target & (blockDim.x - 1)) == threadIdx.x)
        store_one(r.x + target, f.at_target); /* over what this thread has just written: a block is a power of two */
}

/* Of all warps; for thread 0, behind a barrier. */
CU_DEVICE double cross_entropy_total_of(const cross_entropy &t, const double *totals) {
    double total = 0;

    for (unsigned i = 0; i < blockDim.x / 32 && t.x.rule.smoothing > 0; ++i) total += totals[i];
    return total * 8;
}

/* A row without a target: no loss, a gradient of 0. */
template <typename T> CU_DEVICE void cross_entropy_ignore(const cross_entropy &t, T *x, size_t row) {
    if (threadIdx.x == 0) t.d_row_losses[row] = 0;
    if (threadIdx.x == 0 && t.x.losses) t.x.losses[row] = 0;
    if (!t.x.keep_logits) softmax_fill(x, t.x.stride, 0);
}

/* Loss and gradient of a row, by what thread 0 knows of it: s and the target's logit `at`. */
template <typename T>
CU_DEVICE void cross_entropy_end(const cross_entropy &t, const softmax_span<T> &r, const uint4 *kept, size_t some,
                                 const softmax_sums &s, int32_t target, float at, cross_entropy_found *found) {
    const size_t row = blockIdx.x;
    memopt_i_cross_entropy_row of;
    if (threadIdx.x == 0) of = cross_entropy_decide(t, s, target, at, found);
    if (!t.x.keep_logits) __syncthreads(); /* the target's logit has been read, found is there */
    if (threadIdx.x == 0) cross_entropy_lose(t, of, row);
    if (t.x.keep_logits) return;
    cross_entropy_write(r, kept, some, (size_t)target - t.x.first, *found);
    softmax_fill(r.x + t.x.vocabulary, t.x.stride - t.x.vocabulary, 0);
}

template <typename T>
static __global__ void __launch_bounds__(CROSS_ENTROPY_THREADS, 2) cross_entropy_kernel(const cross_entropy t) {
    MEMOPT_I_CUDA_SHARED_BYTES(uint4, kept, 16);
    MEMOPT_I_CUDA_SHARED(float, red, [32]);
    MEMOPT_I_CUDA_SHARED(double, totals, [16]);
    MEMOPT_I_CUDA_SHARED(cross_entropy_found, found, [1]);
    const size_t row = blockIdx.x;
    const int32_t target = t.x.targets[row];
    T *const x = (T *)t.x.logits + row * t.x.stride;
    if (target < 0) {
        cross_entropy_ignore(t, x, row);
        return;
    }
    const softmax_span<T> r = softmax_cut(x, t.x.vocabulary);
    const bool decides = threadIdx.x == 0;
    const float at = decides && (size_t)target < t.x.vocabulary ? load_one(x + target) : 0; /* used later */
    softmax_sums s = cross_entropy_measure(r, kept, t.kept, red, totals, t.x.rule.smoothing > 0);
    if (decides) s.total = cross_entropy_total_of(t, totals);
    cross_entropy_end(t, r, kept, t.kept, s, target, at, found);
}

/* ---- a part of the columns: what there is to tell, and, with what all parts have told, its gradient ---- */
template <typename T>
static __global__ void __launch_bounds__(CROSS_ENTROPY_THREADS, 2) cross_entropy_measure_kernel(const cross_entropy t) {
    MEMOPT_I_CUDA_SHARED(float, red, [32]);
    MEMOPT_I_CUDA_SHARED(double, totals, [16]);
    const size_t row = blockIdx.x;
    const int32_t target = t.x.targets[row];
    const size_t column = (size_t)target - t.x.first; /* beyond all of them where it is in another part */
    T *const x = (T *)t.x.logits + row * t.x.stride;
    memopt_cross_entropy_row of = { 0, 0, 0, 0 };
    if (target >= 0) {
        const softmax_sums s = cross_entropy_measure(softmax_cut(x, t.x.vocabulary), (uint4 *)NULL, 0, red, totals,
                                                     t.x.rule.smoothing > 0);
        of.largest = s.sum >= 0 ? s.max : softmax_nan(); /* a NaN stays one beside larger logits of other parts */
        of.sum = s.sum;
        of.at = column < t.x.vocabulary ? load_one(x + column) : memopt_i_bits_float(0xff800000u);
        if (threadIdx.x == 0) of.total = (float)cross_entropy_total_of(t, totals);
    }
    if (threadIdx.x == 0) t.d_rows[row] = of;
}

template <typename T>
static __global__ void __launch_bounds__(CROSS_ENTROPY_THREADS, 2) cross_entropy_part_kernel(const cross_entropy t) {
    MEMOPT_I_CUDA_SHARED(cross_entropy_found, found, [1]);
    const size_t row = blockIdx.x;
    const int32_t target = t.x.targets[row];
    T *const x = (T *)t.x.logits + row * t.x.stride;
    if (target < 0) {
        cross_entropy_ignore(t, x, row);
        return;
    }
    const memopt_cross_entropy_row of = t.d_rows[row];
    const softmax_sums s = { of.largest, of.sum, (double)of.total };
    cross_entropy_end(t, softmax_cut(x, t.x.vocabulary), (const uint4 *)NULL, 0, s, target, of.at, found);
}

PRUNED __global__ void __launch_bounds__(256) cross_entropy_join_kernel(memopt_cross_entropy_row *d_rows, size_t parts,
                                                                        size_t rows) {
    const size_t row = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    for (size_t half = 1; half < parts && row < rows; half *= 2)
        for (size_t part = row; part + half * rows < parts * rows; part += 2 * half * rows)
            d_rows[part] = memopt_i_cross_entropy_join(&d_rows[part], &d_rows[part + half * rows]);
}

/* Pieces of a row that stay in shared memory: of half a multiprocessor's, for two blocks; of all of it where what two
   blocks leave to the cache is too much. A block reads what is left at its first read's end and at its second one's
   beginning, so that left / row of the time half of it lies there: left * left / row of two blocks. A quarter of the
   cache, because each half of it holds what its own side reads, and no replacement is the best one. */
template <typename KERNEL> static size_t cross_entropy_kept(KERNEL kernel, size_t pieces) {
    static const cudaDeviceAttr asked[] = { cudaDevAttrMaxSharedMemoryPerBlockOptin, cudaDevAttrMultiProcessorCount,
                                            cudaDevAttrL2CacheSize };
    int device = 0;
    int is[3] = { 0, 0, 0 };
    size_t bytes = 32768;
    cudaError_t error = cudaGetDevice(&device);

    for (int i = 0; i < 3 && error == cudaSuccess; ++i) error = cudaDeviceGetAttribute(&is[i], asked[i], device);
    if (error == cudaSuccess && is[0] > 65536 && pieces * 16 > 47 * 1024) {
        const size_t all = memopt_i_align_down((size_t)is[0] - 2048, 16); /* 2 KiB for what else the kernel has */
        const size_t half = memopt_i_align_down((size_t)(is[0] + 1024) / 2 - 2048, 16); /* and 1 of them the system's */
        const size_t left = pieces * 16 - memopt_i_min(pieces * 16, half);
        /* always to the same: threads with other rows launch it, too */
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)all);
        if (error == cudaSuccess)
            bytes = (double)left * (double)left * 4 * is[1] <= (double)pieces * 16 * is[2] ? half : all;
    }
    (void)cudaGetLastError(); /* of these calls: there was none before */
    return memopt_i_min(pieces, bytes / 16);
}

PRUNED unsigned cross_entropy_threads(size_t pieces) {
    unsigned threads = 64;

    while (threads < CROSS_ENTROPY_THREADS && threads * 2 <= pieces) threads *= 2;
    return threads;
}

template <typename T> static status_t cross_entropy_launch(cross_entropy t, cudaStream_t stream) {
    const size_t pieces = t.x.vocabulary / softmax_pack<T>::N;
    const unsigned threads = cross_entropy_threads(pieces);

    t.kept = t.x.keep_logits ? 0 : cross_entropy_kept(cross_entropy_kernel<T>, pieces);
    return CU_RUN((cross_entropy_kernel<T>), t.x.rows, threads, memopt_i_max(t.kept, 1) * 16, stream, t);
}

template <typename T> static status_t cross_entropy_launch_part(const cross_entropy &t, cudaStream_t stream) {
    const unsigned threads = cross_entropy_threads(t.x.vocabulary / softmax_pack<T>::N);

    if (t.d_count) return CU_RUN((cross_entropy_part_kernel<T>), t.x.rows, threads, 0, stream, t);
    return CU_RUN((cross_entropy_measure_kernel<T>), t.x.rows, threads, 0, stream, t);
}

/* Rows whose logits become their gradient. x has been checked and has its stride and `whole`; *d_count are the targets
   of all rows that are not ignored. */
PRUNED status_t cross_entropy_rows(const memopt_cross_entropy *x, const size_t *d_count, double *d_row_losses,
                                   cudaStream_t stream) {
    const cross_entropy t = { *x, d_count, d_row_losses, 0, NULL };

    if (!x->rows) return 0;
    return CU_WITH(x->type, cross_entropy_launch<T>(t, stream));
}

/* ---- counts and sums: one block, in an order that the number of rows fixes ---- */
PRUNED __global__ void __launch_bounds__(1024) cross_entropy_count_kernel(const int32_t *targets, size_t rows,
                                                                          size_t *d_count) {
    MEMOPT_I_CUDA_SHARED(unsigned long long, count, [1]);
    unsigned long long mine = 0;
    if (threadIdx.x == 0) *count = 0;
    __syncthreads(); /* it is 0 */
    for (size_t i = threadIdx.x; i < rows; i += 1024) mine += targets[i] >= 0;
    if (mine) atomicAdd(count, mine);
    __syncthreads(); /* all have counted */
    if (threadIdx.x == 0) *d_count = (size_t)*count;
}

/* A target that is too large counts: its loss is NaN. */
PRUNED status_t cross_entropy_count(const int32_t *targets, size_t rows, size_t *d_count, cudaStream_t stream) {
    return CU_RUN(cross_entropy_count_kernel<>, 1, 1024, 0, stream, targets, rows, d_count);
}

PRUNED __global__ void __launch_bounds__(1024) cross_entropy_total_kernel(const double *d_row_losses, size_t rows,
                                                                          const memopt_loss_rule rule,
                                                                          const size_t *d_count, memopt_loss *d_out) {
    MEMOPT_I_CUDA_SHARED(double, sums, [32]);
    double sum = 0;
    for (size_t i = threadIdx.x; i < rows; i += 1024) sum += d_row_losses[i];
    sum = softmax_warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads(); /* the warps' sums are there */
    if (threadIdx.x >= 32) return;
    sum = softmax_warp_sum(sums[threadIdx.x]);
    if (threadIdx.x == 0) *d_out = memopt_i_loss_rule_loss(&rule, *d_count, sum);
}

PRUNED status_t cross_entropy_total(const double *d_row_losses, size_t rows, const memopt_loss_rule *rule,
                                    const size_t *d_count, memopt_loss *d_out, cudaStream_t stream) {
    return CU_RUN(cross_entropy_total_kernel<>, 1, 1024, 0, stream, d_row_losses, rows, *rule, d_count, d_out);
}

/* ---- cross-entropy ---- */
struct cross_entropy_parts { /* of the scratch */
    size_t *count;
    double *row_losses;
};

PRUNED void cross_entropy_lay_out(size_t rows, cross_entropy_parts *p, memopt_carver *c) {
    p->count = (size_t *)memopt_carve(c, 1, sizeof *p->count, 16);
    p->row_losses = (double *)memopt_carve(c, rows, sizeof *p->row_losses, 16);
}

PRUNED status_t cross_entropy_resolve(const memopt_cross_entropy *x, int is_part, memopt_cross_entropy *out,
                                      size_t *bytes) {
    memopt_carver c = memopt_carver_begin(NULL);
    cross_entropy_parts none;
    memopt_i_cross_entropy t;
    memopt_i_ops o;

    if (!x) return MEMOPT_CUDA_ERR_NULL;
    (void)memopt_i_ops_resolve(NULL, NULL, x, &o);
    if (memopt_i_cross_entropy_check(&o, x, is_part, &t, bytes)) return (status_t)o.c.status;
    cross_entropy_lay_out(x->rows, &none, &c);
    *bytes = c.bytes;
    *out = t.x;
    return c.overflow ? MEMOPT_ERR_OVERFLOW : 0;
}

PUBLIC status_t api::memopt_cuda_cross_entropy_scratch(const memopt_cuda_ops *, const memopt_cross_entropy *x,
                                                       size_t *bytes) {
    memopt_cross_entropy e;
    size_t b;
    const status_t s = cross_entropy_resolve(x, x && x->whole, &e, &b);

    if (s) return s;
    if (!bytes) return MEMOPT_CUDA_ERR_NULL;
    *bytes = b;
    return 0;
}

/* ops and d_out are NULL together, where logits are only measured; d_rows are those of a part. */
PRUNED status_t cross_entropy_check(const memopt_cross_entropy *x, const memopt_cuda_ops *ops, const memopt_loss *d_out,
                                    int is_part, const memopt_cross_entropy_row *d_rows) {
    const size_t logits = x->rows * x->stride * memopt_type_bytes(x->type);
    const size_t row = x->rows * 4;
    size_t i, k;
    const struct { const void *p; size_t bytes, alignment; int optional; } a[6] = {
        { d_out, sizeof *d_out, sizeof(double), !ops },
        { ops ? ops->d_scratch : NULL, ops ? ops->scratch_bytes : 0, 256, !ops },
        { x->logits, logits, memopt_type_bytes(x->type), !x->rows }, { x->targets, row, 4, !x->rows },
        { x->losses, row, 4, 1 }, { d_rows, 4 * row, 4, !is_part || !x->rows } };

    for (i = 0; i < 6; ++i) {
        const status_t s = a[i].optional ? pointer_if(a[i].p, a[i].alignment) : pointer(a[i].p, a[i].alignment);
        if (s) return s;
    }
    for (i = 0; i < 6; ++i)
        for (k = i + 1; k < 6; ++k)
            if (no_overlap(a[i].p, a[i].bytes, a[k].p, a[k].bytes)) return MEMOPT_CUDA_ERR_OVERLAP;
    return 0;
}

/* Loss and gradients: of all columns, or of a part, with what the parts have together. */
PRUNED status_t cross_entropy_run(const memopt_cuda_ops *ops, const memopt_cross_entropy *x, int is_part,
                                  const memopt_cross_entropy_row *d_rows, memopt_loss *d_out, cudaStream_t stream) {
    memopt_cross_entropy e;
    cross_entropy_parts d;
    memopt_carver c;
    size_t bytes;
    unsigned blocks;
    status_t s = cross_entropy_resolve(x, is_part, &e, &bytes);

    if (s) return s;
    if (!ops || ops->scratch_bytes < bytes) return MEMOPT_ERR_BUFFER;
    s = cross_entropy_check(&e, ops, d_out, is_part, d_rows);
    if (!s) s = grid_of(e.rows, 1, &blocks);
    if (!s) s = ready();
    if (s) return s;
    c = memopt_carver_begin(ops->d_scratch);
    cross_entropy_lay_out(e.rows, &d, &c);
    const cross_entropy t = { e, d.count, d.row_losses, 0, (memopt_cross_entropy_row *)(uintptr_t)d_rows };
    s = cross_entropy_count(e.targets, e.rows, d.count, stream);
    if (!s && is_part) s = CU_WITH(e.type, cross_entropy_launch_part<T>(t, stream));
    if (!s && !is_part) s = cross_entropy_rows(&e, d.count, d.row_losses, stream);
    return s ? s : cross_entropy_total(d.row_losses, e.rows, &e.rule, d.count, d_out, stream);
}

PUBLIC status_t api::memopt_cuda_cross_entropy_loss(const memopt_cuda_ops *ops, const memopt_cross_entropy *x,
                                                    memopt_loss *d_out, cudaStream_t stream) {
    return cross_entropy_run(ops, x, 0, NULL, d_out, stream);
}

PUBLIC status_t api::memopt_cuda_cross_entropy_part(const memopt_cuda_ops *ops, const memopt_cross_entropy *x,
                                                    const memopt_cross_entropy_row *d_rows, memopt_loss *d_out,
                                                    cudaStream_t stream) {
    return cross_entropy_run(ops, x, 1, d_rows, d_out, stream);
}

PUBLIC status_t api::memopt_cuda_cross_entropy_measure(const memopt_cuda_ops *, const memopt_cross_entropy *x,
                                                       memopt_cross_entropy_row *d_rows, cudaStream_t stream) {
    memopt_cross_entropy e;
    size_t bytes;
    status_t s = cross_entropy_resolve(x, 1, &e, &bytes);

    if (!s) s = cross_entropy_check(&e, NULL, NULL, 1, d_rows);
    if (s) return s;
    const cross_entropy t = { e, NULL, NULL, 0, d_rows };
    return CU_WITH(e.type, cross_entropy_launch_part<T>(t, stream));
}

PUBLIC status_t api::memopt_cuda_cross_entropy_join(memopt_cross_entropy_row *d_rows, size_t parts, size_t rows,
                                                    cudaStream_t stream) {
    const size_t blocks = parts > 1 ? memopt_i_ceil_div(rows, 256) : 0;
    const status_t s = pointer_if(d_rows, 4);
    size_t n, bytes;

    if (memopt_i_mul(parts, rows, &n) || memopt_i_mul(n, sizeof *d_rows, &bytes)) return MEMOPT_ERR_OVERFLOW;
    if (s || (!d_rows && n)) return s ? s : (status_t)MEMOPT_CUDA_ERR_NULL;
    return CU_RUN(cross_entropy_join_kernel<>, blocks, 256, 0, stream, d_rows, parts, rows);
}

/* @section cuda_norm : cuda_base api_cuda_norm
   Layer norm and RMS norm of rows, and their gradients; and what other sections take from here: spans (16 bytes of a
   row, from any type), sums over the threads of a row, the checks of an operator's arrays.
   Problem    A row is needed three times: for its mean, for the squares about it, for the output. Backward needs two
              rows twice, and sums over columns, for which rows lie the wrong way.
   Idea       The threads of a row keep it in registers, as it is stored. Its width decides how many they are: 1 to 32
              of a warp, who need no barrier, or up to 512, and how much each holds: up to 32 elements. So variance is
              taken from the squares about the mean, in a second pass that costs no memory. Backward walks down a group
              of rows with the same threads, each of them keeping the sums of its columns in registers, and the scales
              of these as floats in shared memory. A warp has 1,024 columns of 16 bits, so what a row costs beside its
              elements (two sums, addresses, statistics) is spread over 32 of them a thread. The row after is loaded
              into the registers of this one, span by span, as its gradient is written. Groups leave their sums in
              scratch; another kernel adds those up. They are as many as run at once on 132 multiprocessors: each of
              them costs 16 bytes a column, and a thread's chain of sums is no worry.
   Ways       Forward: a thread, warp or block that goes over a row in memory reads it 3 times; in registers it is
              read once, 16 bytes at a time, with 2 barriers, none up to 1,024 columns (512 of float32).
              Backward: a kernel for columns makes it 5 passes (x and g twice, 1 write); atomicAdd 3, but other bits
              every time; sums in registers over a group of rows 3, and 8 / rows-of-a-group bytes an element for the
              groups' sums. A row to a warp, scales in shared memory and statistics a row ahead took most instructions
              away, which were for rows and spans, not for elements. The second-level cache is asked for the next row
              before this one's sums.
   Aligned    One body for arrays that are and are not. Elements that are read or written by themselves stand behind a
              branch of their own, for all spans together or in a loop, where a compiler cannot put them beside the
              spans with a predicate each: what is aligned pays one branch, what is not some more time.
   Bits       An element is always the same thread's, also where arrays are not aligned and it is read by itself; so the
              order of a sum is the width's (rows: the shape's) and nothing else's. Formulas are those of the CPU,
              but for the means of backward, which are products with 1 / width.
   Bound      A sum's chain: 32 elements of a thread, then 5 steps within a warp, then up to 16 warps. Of scale and
              shift: the rows of a group, its slots, 33 groups, 32 slices.
   Trap       Barriers: slots of a block that have run out of rows go on with zeros. A gradient in place is gone when it
              has been written: all of its row is in registers then, and where columns need a pass of their own it is
              first.
   Wider      than 16,384 columns (8,192 backward), where its width is no multiple of a span, and backward from the
              output, a row is read from memory once more for each sum: kernels that hold rows know whole spans only. */

/* ---- what the host looks at ---- */
struct array {
    const void *data;
    size_t count;
    memopt_type type;
    int needed, is_result;
};

PRUNED status_t arrays_check(const array *a, int count) {
    for (int i = 0; i < count; ++i) {
        const size_t bytes = memopt_type_bytes(a[i].type);
        if (!bytes) return MEMOPT_ERR_ARGUMENT;
        const status_t s = a[i].needed && a[i].count ? pointer(a[i].data, bytes) : pointer_if(a[i].data, bytes);
        if (s) return s;
    }
    return 0;
}

PRUNED status_t no_overlap(const memopt_i_ops_array *a, int count) {
    int first, second;

    return memopt_i_ops_find_overlap(a, count, 1, &first, &second) ? MEMOPT_CUDA_ERR_OVERLAP : 0;
}

/* The same, and no result shares a byte with anything else; only the first two may be one and the same. */
PRUNED status_t arrays_no_overlap(const array *a, int count) {
    memopt_i_ops_array plain[16];
    const status_t s = arrays_check(a, count);

    if (s) return s;
    for (int i = 0; i < count; ++i) {
        plain[i].data = a[i].data;
        plain[i].bytes = a[i].count * memopt_type_bytes(a[i].type);
        plain[i].is_result = a[i].is_result;
    }
    return no_overlap(plain, count);
}

/* Scratch that is there, aligned and large enough; none is needed for 0 bytes. */
PRUNED status_t scratch_check(const memopt_cuda_ops *ops, size_t bytes) {
    if (!bytes) return 0;
    if (!ops || !ops->d_scratch) return MEMOPT_ERR_BUFFER;
    if ((uintptr_t)ops->d_scratch & 255) return MEMOPT_CUDA_ERR_ALIGNMENT;
    return ops->scratch_bytes < bytes ? MEMOPT_ERR_BUFFER : 0;
}

/* Rows of `width` elements of which every span of N is aligned to its bytes, up to 16. */
PRUNED bool are_spans(const void *p, memopt_type type, size_t width, size_t n) {
    const size_t bytes = memopt_i_min(16, n * memopt_type_bytes(type));
    return !p || (width % n == 0 && !((uintptr_t)p & (bytes - 1)));
}

/* The binary logarithm of the threads of a row: as few as hold `spans` with `each` of them, but a warp if it can be. */
PRUNED unsigned row_shift(size_t spans, size_t each) {
    unsigned shift = 0;
    while (((size_t)1 << shift) < spans && (shift < 5 || ((size_t)1 << shift) * each < spans)) ++shift;
    return shift;
}

/* ---- sums over the threads of a row ---- */
enum { NORM_WARPS = 16, NORM_BLOCK = 256, NORM_THREADS_MAX = 512, NORM_HELD = 8192 };

/* What a row is folded by: a sum, or a maximum, which is NaN where an element is. */
template <bool IS_MAX> struct row_total {
    static CU_MEMBER float none(void) { return IS_MAX ? memopt_i_bits_float(0xff800000u) : 0.0f; }
    static CU_MEMBER float of(float a, float b) { return !IS_MAX ? memopt_i_sum(a, b) : b > a || b != b ? b : a; }
};

template <class FOLD> CU_DEVICE float near_fold(float x, unsigned lanes) {
    CU_UNROLL for (unsigned apart = 16; apart; apart /= 2) if (apart < lanes) x =
        FOLD::of(x, __shfl_xor_sync(MEMOPT_I_CUDA_ALL, x, (int)apart));
    return x;
}

/* Of 1 << shift threads next to each other; all of the block call it, with a `red` that nobody else uses. */
template <class FOLD> CU_DEVICE float row_fold(float x, unsigned shift, float *red) {
    const unsigned warp = threadIdx.x / 32;

    x = near_fold<FOLD>(x, 1u << shift);
    if (shift <= 5) return x;
    if (threadIdx.x % 32 == 0) red[warp] = x;
    __syncthreads(); /* every warp's part is there */
    const unsigned first = (threadIdx.x >> shift) << (shift - 5);
    x = red[first];
    for (unsigned i = 1; i < 1u << (shift - 5); ++i) x = FOLD::of(x, red[first + i]);
    return x;
}

CU_DEVICE float row_sum(float x, unsigned shift, float *red) { return row_fold<row_total<false> >(x, shift, red); }

CU_DEVICE void two_row_sums(float *a, float *b, unsigned shift, float *red) {
    const unsigned warp = threadIdx.x / 32;

    CU_UNROLL for (unsigned apart = 16; apart; apart /= 2) if (apart < 1u << shift) { /* both: one look at apart */
            const float other = __shfl_xor_sync(MEMOPT_I_CUDA_ALL, *a, (int)apart);
            *b = memopt_i_sum(*b, __shfl_xor_sync(MEMOPT_I_CUDA_ALL, *b, (int)apart));
            *a = memopt_i_sum(*a, other);
        }
    if (shift <= 5) return;
    if (threadIdx.x % 32 == 0) {
        red[warp] = *a;
        red[NORM_WARPS + warp] = *b;
    }
    __syncthreads(); /* both of every warp are there */
    const unsigned first = (threadIdx.x >> shift) << (shift - 5);
    *a = red[first];
    *b = red[NORM_WARPS + first];
    for (unsigned i = 1; i < 1u << (shift - 5); ++i) {
        *a = memopt_i_sum(*a, red[first + i]);
        *b = memopt_i_sum(*b, red[NORM_WARPS + first + i]);
    }
}

/* ---- forward ---- */
typedef struct norm_task {
    memopt_norm n;     /* with the defaults filled in */
    unsigned    shift; /* 1 << shift threads have a row */
    unsigned    each;  /* backward: spans of a thread; the spans of a warp are next to each other */
    float       share; /* 1 / width */
    size_t      group; /* backward: rows of a block */
    float      *sums;  /* of groups: `width` of scale, then of shift; NULL = not wanted */
    bool        wide, wide_weights;
    bool        back, bf16; /* backward from the output; what half_t is */
    const void *branch; /* forward: NULL, or what is added to the input first, ... */
    void       *residual; /* ... and receives the sum */
} norm_task;

CU_DEVICE float norm_inverse(float squares, const memopt_norm *n) {
    const float variance = memopt_i_v1_div(squares, (float)n->width);
    return memopt_i_v1_div(1.0f, memopt_i_v1_sqrt(memopt_i_sum(variance, n->eps)));
}

/* A span of the input becomes one of the output. */
template <class T, int N> CU_DEVICE void norm_affine(const norm_task &t, row_span<T, N> *s, size_t at, unsigned left,
                                                     bool wide, float mean, float inverse) {
    float y[N], scale[N], shift[N];

    floats_at<N>(scale, t.n.scale, t.n.weight_type, at, left, wide, 1);
    floats_at<N>(shift, t.n.shift, t.n.weight_type, at, left, wide, 0);
    span_open(y, *s, t.bf16);
    CU_UNROLL for (int i = 0; i < N; ++i)
        y[i] = fmaf(memopt_i_v1_norm_normalize_of(y[i], mean, inverse), scale[i], shift[i]);
    span_close(s, y, t.bf16);
}

/* A span of the branch is added to one of the input, rounded: the residual stream. */
template <class T, int N>
CU_DEVICE void norm_add(const norm_task &t, row_span<T, N> *s, const row_span<T, N> &branch) {
    float x[N], y[N];

    span_open(x, branch, t.bf16);
    span_open(y, *s, t.bf16);
    CU_UNROLL for (int i = 0; i < N; ++i) x[i] = memopt_i_sum(x[i], y[i]);
    span_close(s, x, t.bf16);
}

/* K whole spans of a row, `step` elements apart, of which `count` are there; the others are 0. Whether they are aligned
   is asked once for all of them: a compiler would put the loads of single elements beside those of spans, each with a
   predicate. Stores do not wait, so those of single elements are a loop over spans. */
template <class T, int K, int N>
CU_DEVICE void spans_get(row_span<T, N> *s, const T *p, unsigned step, unsigned count, bool wide) {
    if (wide) CU_UNROLL for (unsigned k = 0; k < K; ++k) span_get_if(&s[k], p + k * step, k < count, true);
    else CU_UNROLL for (unsigned k = 0; k < K; ++k) span_get_if(&s[k], p + k * step, k < count, false);
}

template <class T, int K, int N>
CU_DEVICE void spans_put(T *p, row_span<T, N> *s, unsigned step, unsigned count, bool wide) {
    if (wide) {
        CU_UNROLL for (unsigned k = 0; k < K; ++k) if (k < count) span_put(p + k * step, s[k], N, true);
        return;
    }
    CU_ROLLED for (unsigned k = 0; k < K; ++k) {
        if (k < count) span_put(p + k * step, s[0], N, false);
        take_turns<K>(s);
    }
}

CU_DEVICE void norm_keep(const norm_task &t, size_t row, float mean, float inverse) {
    t.n.statistics[2 * row] = mean;
    t.n.statistics[2 * row + 1] = inverse;
}

/* K whole spans a thread. Threads of rows that are not there work on zeros. */
template <class T, int K> static __global__ void CU_BOUNDS(NORM_THREADS_MAX) norm_forward_kernel(norm_task t) {
    enum { N = 16 / sizeof(T) };

    MEMOPT_I_CUDA_SHARED(float, red, [2][NORM_WARPS]);
    const size_t row = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) >> t.shift;
    const unsigned width = (unsigned)t.n.width;
    const unsigned step = N << t.shift;
    const unsigned lane = threadIdx.x & ((1u << t.shift) - 1);
    const unsigned at = (unsigned)anew((int)(lane * N));
    const bool there = row < t.n.rows;
    const unsigned count = there && at < width ? (width - at + step - 1) / step : 0;
    const size_t place = there ? row * t.n.stride + at : 0;
    row_span<T, N> s[K];
    float sum = 0;
    float squares = 0;
    float mean = 0;

    spans_get<T, K>(s, static_cast<const T *>(t.n.input) + place, step, count, t.wide);
    if (t.branch && there) {
        row_span<T, N> branch[K];

        spans_get<T, K>(branch, static_cast<const T *>(t.branch) + place, step, count, t.wide);
        CU_UNROLL for (int k = 0; k < K; ++k) norm_add(t, &s[k], branch[k]);
        spans_put<T, K>(static_cast<T *>(t.residual) + place, s, step, count, t.wide);
    }
    if (!t.n.rms) {
        CU_UNROLL for (int k = 0; k < K; ++k) CU_UNROLL for (int i = 0; i < N; ++i) sum =
            memopt_i_sum(sum, element_at(s[k], i));
        mean = memopt_i_v1_div(row_sum(sum, t.shift, red[0]), (float)width);
    }
    CU_UNROLL for (int k = 0; k < K; ++k) {
        if ((unsigned)k >= count) continue;
        CU_UNROLL for (int i = 0; i < N; ++i) {
            const float d = memopt_i_v1_sub(element_at(s[k], i), mean);
            squares = fmaf(d, d, squares);
        }
    }
    const float inverse = norm_inverse(row_sum(squares, t.shift, red[1]), &t.n);
    if (!there) return;
    if (K == 1 || t.wide_weights) {
        CU_UNROLL for (unsigned k = 0; k < K; ++k)
            if (k < count) norm_affine(t, &s[k], at + k * step, N, K > 1 || t.wide_weights, mean, inverse);
    } else CU_ROLLED for (unsigned k = 0; k < K; ++k) {
        if (k < count) norm_affine(t, &s[0], at + k * step, N, false, mean, inverse);
        take_turns<K>(s);
    }
    spans_put<T, K>(static_cast<T *>(t.n.output) + place, s, step, count, t.wide);
    if (t.n.statistics && lane == 0) norm_keep(t, row, mean, inverse);
}

/* A block for a row that no block can hold, or that is not whole spans. */
template <class T> static __global__ void __launch_bounds__(NORM_THREADS_MAX) norm_forward_long_kernel(norm_task t) {
    enum { N = 16 / sizeof(T) };

    MEMOPT_I_CUDA_SHARED(float, red, [2][NORM_WARPS]);
    const size_t row = blockIdx.x;
    const size_t width = t.n.width;
    const size_t step = (size_t)blockDim.x * N;
    const size_t first = row * t.n.stride;
    const T *x = static_cast<const T *>(t.n.input) + first; /* then the sum with the branch */
    row_span<T, N> s, branch;
    float sum = 0;
    float squares = 0;
    float mean = 0;
    float inverse = 0;
    CU_ROLLED for (int pass = t.n.rms && !t.branch; pass < 3; ++pass) { /* the mean, the squares, the output */
        for (size_t at = (size_t)threadIdx.x * N; at < width; at += step) {
            const unsigned left = left_of<N>(width, at);

            span_get(&s, x + at, left, t.wide);
            if (!pass && t.branch) {
                span_get(&branch, static_cast<const T *>(t.branch) + first + at, left, t.wide);
                norm_add(t, &s, branch);
                span_put(static_cast<T *>(t.residual) + first + at, s, left, t.wide);
            }
            float v[N];

            span_open(v, s, t.bf16);
            if (!pass) CU_UNROLL for (int i = 0; i < N; ++i) sum = memopt_i_sum(sum, v[i]);
            else if (pass == 1) CU_UNROLL for (int i = 0; i < N; ++i) {
                const float d = (unsigned)i < left ? memopt_i_v1_sub(v[i], mean) : 0.0f;
                squares = fmaf(d, d, squares);
            } else {
                norm_affine(t, &s, at, left, t.wide_weights, mean, inverse);
                span_put(static_cast<T *>(t.n.output) + first + at, s, left, t.wide);
            }
        }
        if (!pass && !t.n.rms) mean = memopt_i_v1_div(row_sum(sum, t.shift, red[0]), (float)width);
        if (!pass && t.branch) x = static_cast<const T *>(t.residual) + first; /* its own: no barrier */
        if (pass == 1) inverse = norm_inverse(row_sum(squares, t.shift, red[1]), &t.n);
    }
    if (t.n.statistics && !threadIdx.x) norm_keep(t, row, mean, inverse);
}

/* ---- backward ---- */
/* What a span is made of: the normalised elements, the gradient, the weights. */
template <int N> struct norm_parts { float h[N], g[N], scale[N], shift[N]; };

template <int N> CU_DEVICE void norm_weights(norm_parts<N> *p, const norm_task &t, size_t at, unsigned left) {
    floats_at<N>(p->scale, t.n.scale, t.n.weight_type, at, left, t.wide_weights, 1);
    if (t.back) floats_at<N>(p->shift, t.n.shift, t.n.weight_type, at, left, t.wide_weights, 0);
}

/* ANY: x may be the output. */
template <bool ANY, class T, int N>
CU_DEVICE void norm_load(norm_parts<N> *p, const norm_task &t, const row_span<T, N> &x, const row_span<T, N> &g,
                         float mean, float inverse) {
    span_open(p->g, g, t.bf16);
    span_open(p->h, x, t.bf16);
    if (ANY && t.back)
        CU_UNROLL for (int i = 0; i < N; ++i)
            p->h[i] = memopt_i_v1_norm_from_output_of(p->h[i], p->scale[i], p->shift[i]);
    else CU_UNROLL for (int i = 0; i < N; ++i) p->h[i] = memopt_i_v1_norm_normalize_of(p->h[i], mean, inverse);
}

template <class T> CU_DEVICE const T *norm_source(const norm_task &t) {
    return static_cast<const T *>(t.back ? t.n.output : t.n.input);
}

/* Of a row: minus the means of s and of s h, and 1 / deviation, from the sums of the first two */
CU_DEVICE void norm_means(const norm_task &t, float a, float b, float inverse, float *three) {
    three[0] = t.n.rms ? -0.0f : -memopt_i_times(a, t.share);
    three[1] = -memopt_i_times(b, t.share);
    three[2] = inverse;
}

/* A span of the gradient of the input, which goes to `to`, or onto what is there. */
template <class T, int N> CU_DEVICE row_span<T, N> norm_grad(const norm_task &t, const norm_parts<N> &p, const T *to,
                                                             unsigned left, const float *three) {
    float s[N];

    CU_UNROLL for (int i = 0; i < N; ++i) s[i] = memopt_i_v1_norm_grad_of(p.g[i], p.h[i], p.scale[i], three);
    if (t.n.accumulate_input) {
        row_span<T, N> old;

        if (t.wide && left == N) span_get(&old, to, N, true);
        else span_get_ones(&old, to, left);
        float before[N];

        span_open(before, old, t.bf16);
        CU_UNROLL for (int i = 0; i < N; ++i) s[i] = fmaf(three[2], s[i], before[i]);
    } else CU_UNROLL for (int i = 0; i < N; ++i) s[i] = memopt_i_times(three[2], s[i]);
    row_span<T, N> to_be;
    span_close(&to_be, s, t.bf16);
    return to_be;
}

/* The first column of lane `lane` of a row; its other spans follow 32 apart. And how many there are. */
template <int N> CU_DEVICE unsigned norm_column(const norm_task &t, unsigned lane) {
    return (lane / 32 * t.each * 32 + lane % 32) * N;
}

template <int N> CU_DEVICE unsigned norm_spans(const norm_task &t, unsigned column) {
    const unsigned width = (unsigned)t.n.width;
    const unsigned spans = column >= width ? 0 : (width - column + 32 * N - 1) / (32 * N);
    return spans < t.each ? spans : t.each;
}

/* The sums of a block's slots, in their order, to scratch. Element e is column first + e / N * 32 N + e % N. */
template <int E, int N> CU_DEVICE void norm_slots(const norm_task &t, const float *sum, float *all, float *to) {
    const unsigned lanes = 1u << t.shift;
    const unsigned slots = blockDim.x >> t.shift;

    __syncthreads(); /* `all` is read no more */
    CU_UNROLL for (int e = 0; e < E; ++e) all[e * blockDim.x + threadIdx.x] = sum[e];
    __syncthreads(); /* every slot's sums are there */
    for (unsigned k = threadIdx.x; k < E * lanes; k += blockDim.x) {
        const unsigned e = k >> t.shift;
        const unsigned lane = k & (lanes - 1);
        const unsigned column = norm_column<N>(t, lane);
        float x = all[e * blockDim.x + lane];

        if (e / N >= norm_spans<N>(t, column)) continue;
        for (unsigned slot = 1; slot < slots; ++slot)
            x = memopt_i_sum(x, all[e * blockDim.x + (slot << t.shift) + lane]);
        to[column + e / N * 32 * N + e % N] = x;
    }
}

/* A thread's spans of a row and its gradient, and what is known of the row. */
template <class T, int K> struct norm_row {
    row_span<T, 16 / sizeof(T)> x[K], g[K];
    float mean, inverse;
};

/* A span's parts. */
template <int K, class T, int N>
CU_DEVICE void norm_parts_of(norm_parts<N> *p, const norm_task &t, const norm_row<T, K> &r, int k, const float *all) {
    CU_UNROLL for (int i = 0; i < N; i += 4)
        load_four(all + ((k * N + i) / 4 * blockDim.x + threadIdx.x) * 4, p->scale + i);
    norm_load<false>(p, t, r.x[k], r.g[k], r.mean, r.inverse);
}

/* A thread's scales as floats in shared memory, four of them beside those of the next thread. */
template <int K, int N> CU_DEVICE void norm_hold(float *all, const norm_task &t, unsigned column, unsigned mine) {
    CU_ROLLED for (unsigned k = 0; k < K && k < mine; ++k) {
        float w[N];

        floats_at<N>(w, t.n.scale, t.n.weight_type, column + k * 32 * N, N, t.wide_weights, 1);
        CU_UNROLL for (unsigned i = 0; i < N; i += 4)
            *(float4 *)(void *)(all + ((k * N + i) / 4 * blockDim.x + threadIdx.x) * 4) =
                make_float4(w[i], w[i + 1], w[i + 2], w[i + 3]);
    }
}

/* K whole spans a thread; the slots of a block take the rows of its group in turns. What is aligned is read a row
   ahead, what is not when its row comes. */
template <class T, int K>
static __global__ void __launch_bounds__(K * 16 / sizeof(T) > 16 ? 384 : K * 16 / sizeof(T) > 8 ? NORM_THREADS_MAX
                                         : NORM_BLOCK, K * 16 / sizeof(T) > 8 ? 1 : 3)
norm_backward_kernel(norm_task t) {
    enum { N = 16 / sizeof(T), E = K * N };

    MEMOPT_I_CUDA_SHARED(float, red, [2][2 * NORM_WARPS]);
    MEMOPT_I_CUDA_SHARED(uint4, aligned, [NORM_HELD / 4]);
    float *all = (float *)(void *)aligned;
    const size_t width = t.n.width;
    const unsigned slots = blockDim.x >> t.shift;
    const size_t first = (size_t)blockIdx.x * t.group;
    const size_t end = memopt_i_min(first + t.group, t.n.rows);
    const unsigned column = norm_column<N>(t, threadIdx.x & ((1u << t.shift) - 1));
    const unsigned mine = (unsigned)anew((int)norm_spans<N>(t, column));
    norm_row<T, K> r;
    float scale[E] = { 0 };
    float shift[E] = { 0 };
    float three[3];
    size_t row = first + (threadIdx.x >> t.shift);
    unsigned have = row < end ? mine : 0;
    const size_t step = slots * t.n.stride;
    const size_t place = have ? row * t.n.stride + column : 0;
    const T *x = static_cast<const T *>(t.n.input) + place;
    const T *g = static_cast<const T *>(t.n.grad_output) + place;
    T *to = t.n.grad_input ? static_cast<T *>(t.n.grad_input) + place : NULL;
    float mean = have ? t.n.statistics[2 * row] : 0;
    float inverse = have ? t.n.statistics[2 * row + 1] : 0;
    if (t.wide) {
        spans_get<T, K>(r.x, x, 32 * N, have, true);
        spans_get<T, K>(r.g, g, 32 * N, have, true);
    }
    norm_hold<K, N>(all, t, column, mine);
    for (size_t turn = 0; first + turn * slots < end; ++turn) {
        float a = 0;
        float b = 0;

        if (!t.wide) {
            spans_get<T, K>(r.x, x, 32 * N, have, false);
            spans_get<T, K>(r.g, g, 32 * N, have, false);
        }
        r.mean = mean;
        r.inverse = inverse;
        row += slots;
        const unsigned next = row < end ? mine : 0;
        const size_t ahead = next ? step : 0;
        x += ahead;
        g += ahead;
        mean = next ? t.n.statistics[2 * row] : 0;
        inverse = next ? t.n.statistics[2 * row + 1] : 0;
        CU_UNROLL for (int k = 0; k < K; ++k) {
            norm_parts<N> p;

            if ((unsigned)k >= have) continue;
            if (next) { /* no fewer than of this row */
                prefetch<0>(x + k * 32 * N);
                prefetch<0>(g + k * 32 * N);
            }
            norm_parts_of<K>(&p, t, r, k, all);
            CU_UNROLL for (int i = 0; i < N; ++i) {
                a = fmaf(p.g[i], p.scale[i], a);
                b = fmaf(memopt_i_times(p.g[i], p.scale[i]), p.h[i], b);
                scale[k * N + i] = fmaf(p.g[i], p.h[i], scale[k * N + i]);
                shift[k * N + i] = memopt_i_sum(shift[k * N + i], p.g[i]);
            }
        }
        if (to) two_row_sums(&a, &b, t.shift, red[turn & 1]);
        norm_means(t, a, b, r.inverse, three);
        CU_UNROLL for (unsigned k = 0; k < K; ++k) {
            norm_parts<N> p;

            if (k >= have) continue;
            if (to) {
                norm_parts_of<K>(&p, t, r, k, all);
                r.g[k] = norm_grad(t, p, to + k * 32 * N, N, three);
                if (t.wide) span_put(to + k * 32 * N, r.g[k], N, true);
            }
            if (t.wide && next) {
                span_get(&r.x[k], x + k * 32 * N, N, true);
                span_get(&r.g[k], g + k * 32 * N, N, true);
            }
        }
        if (!t.wide && to) spans_put<T, K>(to, r.g, 32 * N, have, false);
        if (to) to += ahead;
        have = next;
    }
    if (!t.sums) return;
    norm_slots<E, N>(t, scale, all, t.sums + (size_t)blockIdx.x * 2 * width);
    norm_slots<E, N>(t, shift, all, t.sums + (size_t)blockIdx.x * 2 * width + width);
}

/* The columns of a group of rows, by themselves: blockIdx.x = group * (blocks of a row) + block. */
template <class T>
static __global__ void __launch_bounds__(NORM_BLOCK) norm_columns_kernel(norm_task t, unsigned blocks) {
    enum { N = 16 / sizeof(T) };
    const size_t width = t.n.width;
    const size_t group = blockIdx.x / blocks;
    const size_t at = ((size_t)(blockIdx.x % blocks) * blockDim.x + threadIdx.x) * N;
    const size_t end = memopt_i_min((group + 1) * t.group, t.n.rows);
    const unsigned left = left_of<N>(width, at);
    float scale[N] = { 0 };
    float shift[N] = { 0 };
    float *to = t.sums + group * 2 * width + at;
    row_span<T, N> x, g;
    norm_parts<N> p;

    if (!left) return;
    norm_weights(&p, t, at, left);
    for (size_t row = group * t.group; row < end; ++row) {
        span_get(&x, norm_source<T>(t) + row * t.n.stride + at, left, t.wide);
        span_get(&g, static_cast<const T *>(t.n.grad_output) + row * t.n.stride + at, left, t.wide);
        norm_load<true>(&p, t, x, g, t.n.statistics[2 * row], t.n.statistics[2 * row + 1]);
        CU_UNROLL for (int i = 0; i < N; ++i) {
            scale[i] = fmaf(p.g[i], p.h[i], scale[i]);
            shift[i] = memopt_i_sum(shift[i], p.g[i]);
        }
    }
    CU_UNROLL for (int i = 0; i < N; ++i) if ((unsigned)i < left) {
            to[i] = scale[i];
            to[width + i] = shift[i];
        }
}

template <class T> static __global__ void CU_BOUNDS(NORM_THREADS_MAX) norm_backward_long_kernel(norm_task t) {
    enum { N = 16 / sizeof(T) };

    MEMOPT_I_CUDA_SHARED(float, red, [2 * NORM_WARPS]);
    const size_t row = blockIdx.x;
    const size_t width = t.n.width;
    const size_t step = (size_t)blockDim.x * N;
    const size_t first = row * t.n.stride;
    const T *x = norm_source<T>(t) + first;
    const T *g = static_cast<const T *>(t.n.grad_output) + first;
    T *to = static_cast<T *>(t.n.grad_input) + first;
    const float mean = t.n.statistics[2 * row];
    const float inverse = t.n.statistics[2 * row + 1];
    row_span<T, N> xs, gs;
    norm_parts<N> p;
    float a = 0;
    float b = 0;
    float three[3] = { 0 };
    CU_ROLLED for (int pass = 0; pass < 2; ++pass) { /* the sums, the gradient */
        for (size_t at = (size_t)threadIdx.x * N; at < width; at += step) {
            const unsigned left = left_of<N>(width, at);

            span_get(&xs, x + at, left, t.wide);
            span_get(&gs, g + at, left, t.wide);
            norm_weights(&p, t, at, left);
            norm_load<true>(&p, t, xs, gs, mean, inverse);
            if (pass) span_put(to + at, norm_grad(t, p, to + at, left, three), left, t.wide);
            else CU_UNROLL for (int i = 0; i < N; ++i) {
                if ((unsigned)i >= left) continue;
                a = fmaf(p.g[i], p.scale[i], a);
                b = fmaf(memopt_i_times(p.g[i], p.scale[i]), p.h[i], b);
            }
        }
        if (pass) return;
        two_row_sums(&a, &b, t.shift, red);
        norm_means(t, a, b, inverse, three);
    }
}

/* Slices of groups: a warp for each, 32 at most. */
PRUNED unsigned slice_count(size_t groups) { return (unsigned)memopt_i_max(1, memopt_i_min(32, groups)); }

/* 32 columns of the sums of groups: slice y of n takes groups y, y + n, ... in order; then the slices, in order. */
PRUNED __global__ void __launch_bounds__(1024)
norm_total_kernel(const float *sums, size_t groups, size_t width, void *scale, void *shift,
                  memopt_type type, int accumulate, unsigned blocks) {
    enum { AHEAD = 8 };
    MEMOPT_I_CUDA_SHARED(float, part, [32][33]);
    const unsigned x = threadIdx.x % 32;
    const unsigned y = threadIdx.x / 32;
    const unsigned slices = blockDim.x / 32;
    const unsigned which = blockIdx.x / blocks;
    const size_t at = (size_t)(blockIdx.x % blocks) * 32 + x;
    void *to = which ? shift : scale;
    float sum = 0;
    if (!to) return; /* the whole block */
    if (at < width)
        for (size_t k = y; k < groups; k += AHEAD * slices) {
            float next[AHEAD]; /* all asked for before the first is added */

            CU_UNROLL for (unsigned i = 0; i < AHEAD; ++i)
                next[i] = k + i * slices < groups ? sums[((k + i * slices) * 2 + which) * width + at] : 0.0f;
            CU_UNROLL for (unsigned i = 0; i < AHEAD; ++i) sum = memopt_i_sum(sum, next[i]);
        }
    part[y][x] = sum;
    __syncthreads(); /* every slice is there */
    if (y || at >= width) return;
    sum = accumulate ? one_of(to, type, at) : 0.0f;
    float total = 0;
    for (unsigned k = 0; k < slices; ++k) total = memopt_i_sum(total, part[k][x]);
    put_one(to, type, at, memopt_i_sum(sum, total));
}

/* ---- the host's part ---- */
/* Rows of a group, 8 at least: as many groups as blocks have room on 132 multiprocessors at once; where columns have a
   pass of their own, 8 on each. It depends on the shape alone, as the bits do. */
PRUNED size_t norm_group(const memopt_norm *n) {
    const size_t per = 16 / memopt_type_bytes(n->type);
    const size_t blocks = n->width % per || n->width > NORM_HELD ? 8
                        : n->width <= NORM_HELD / 32 ? 3 : n->width > NORM_HELD / 2 ? 1 : per == 8 ? 3 : 2;

    return memopt_i_max(8, memopt_i_ceil_div(n->rows, 132 * blocks));
}

/* The pointers. Without rows only the gradients of parameters are looked at. */
PRUNED status_t norm_check(const memopt_norm *n, int backward) {
    const size_t all = n->rows ? (n->rows - 1) * n->stride + n->width : 0;
    const size_t w = n->width;
    const memopt_type type = n->type;
    const memopt_type f32 = MEMOPT_TYPE_F32;
    const array forward_arrays[] = { { n->input, all, type, 1, 0 },
        { n->output, all, type, 1, 1 },
        { n->scale, w, n->weight_type, 0, 0 },
        { n->shift, w, n->weight_type, 0, 0 },
        { n->statistics, 2 * n->rows, f32, 0, 1 } };
    const array backward_arrays[] = { { n->grad_output, all, type, 1, 0 },
        { n->grad_input, all, type, 0, 1 },
        { n->input ? n->input : n->output, all, type, 1, 0 },
        { n->scale, w, n->weight_type, 0, 0 },
        { n->shift, w, n->weight_type, 0, 0 },
        { n->statistics, 2 * n->rows, f32, 1, 0 },
        { n->grad_scale, w, n->gradient_type, 0, 1 },
        { n->grad_shift, w, n->gradient_type, 0, 1 } };

    return backward ? arrays_no_overlap(backward_arrays, 8) : arrays_no_overlap(forward_arrays, 5);
}

PRUNED status_t norm_resolve(const memopt_norm *norm, int backward, norm_task *t) {
    memopt_norm *n = &t->n;

    if (!norm) return MEMOPT_ERR_ARGUMENT;
    memset(t, 0, sizeof *t);
    *n = *norm;
    if (((n->rms | n->accumulate | n->accumulate_input) & ~1) || memopt_i_norm_eps(&n->eps)
        || (n->rms && (n->shift || (backward && n->grad_shift))) || !memopt_type_bytes(n->type)
        || !memopt_type_bytes(n->weight_type) || !memopt_type_bytes(n->gradient_type)) return MEMOPT_ERR_ARGUMENT;
    if (!n->stride) n->stride = n->width;
    if (n->stride < n->width) return MEMOPT_ERR_ARGUMENT;
    if (memopt_i_ops_too_large(n->rows, n->stride, MEMOPT_TYPE_F32)
        || memopt_i_ops_too_large(n->rows, 2, MEMOPT_TYPE_F32)
        || memopt_i_ops_too_large(1, n->width, MEMOPT_TYPE_F32)) return MEMOPT_ERR_OVERFLOW;
    if (!n->width) n->rows = 0;
    t->back = backward && !n->input;
    t->bf16 = n->type == MEMOPT_TYPE_BF16;
    t->group = norm_group(n);
    t->share = 1.0f / (float)memopt_i_max(n->width, 1);
    return 0;
}

/* How a row is dealt out, which arrays are whole spans; *each: spans a thread, 0 = more than a block can hold, or no
   whole spans: then a block, of a warp at least, has a row. */
PRUNED void norm_partition(norm_task *t, int backward, size_t *each, unsigned *block) {
    const memopt_norm *n = &t->n;
    const size_t per = 16 / memopt_type_bytes(n->type);
    const size_t spans = memopt_i_ceil_div(n->width, per);
    const size_t max = backward ? 4 : 32 / per;
    const size_t few = backward ? 8 / per : 1;
    const bool held = n->width % per == 0 && n->width <= (size_t)NORM_HELD * (backward ? 1 : 2);

    *each = !held || t->back ? 0 : spans <= 32 * few ? few : max;
    t->shift = *each ? row_shift(spans, *each) : (unsigned)memopt_i_min(memopt_i_max(row_shift(spans, max), 5), 9);
    t->each = (unsigned)memopt_i_ceil_div(spans, (size_t)1 << t->shift);
    *block = memopt_i_max(!*each ? 32 : backward && *each * per > 16 ? 128 : NORM_BLOCK, (size_t)1 << t->shift);
    t->wide = n->stride % per == 0 && are_spans(backward && !n->input ? n->output : n->input, n->type, n->width, per)
           && are_spans(backward ? n->grad_output : n->output, n->type, n->width, per)
           && (!backward || are_spans(n->grad_input, n->type, n->width, per));
    t->wide_weights = are_spans(n->scale, n->weight_type, n->width, per)
                   && are_spans(n->shift, n->weight_type, n->width, per);
}

template <class T>
static status_t norm_forward_of(const norm_task &t, size_t each, unsigned block, cudaStream_t stream) {
    enum { MOST = 32 * sizeof(T) / 16 };
    const size_t blocks = memopt_i_ceil_div(t.n.rows, (size_t)block >> t.shift);

    if (!each) return CU_RUN((norm_forward_long_kernel<typename sized<T>::type>), blocks, block, 0, stream, t);
    if (each == 1) return CU_RUN((norm_forward_kernel<T, 1>), blocks, block, 0, stream, t);
    return CU_RUN((norm_forward_kernel<T, MOST>), blocks, block, 0, stream, t);
}

PRUNED status_t norm_forward(norm_task *t, cudaStream_t stream) {
    const size_t per = 16 / memopt_type_bytes(t->n.type);
    size_t each;
    unsigned block;

    norm_partition(t, 0, &each, &block);
    t->wide = t->wide && are_spans(t->branch, t->n.type, t->n.width, per)
           && are_spans(t->residual, t->n.type, t->n.width, per);
    return CU_WITH(t->n.type, norm_forward_of<T>(*t, each, block, stream));
}

#ifndef MEMOPT_CUDA_NO_NORM
PUBLIC status_t api::memopt_cuda_norm_forward(const memopt_cuda_ops *, const memopt_norm *norm, cudaStream_t stream) {
    norm_task t;
    status_t s;

    if ((s = norm_resolve(norm, 0, &t)) != 0 || !t.n.rows) return s;
    if ((s = norm_check(&t.n, 0)) != 0) return s;
    return norm_forward(&t, stream);
}

PUBLIC status_t api::memopt_cuda_norm_residual_forward(const memopt_cuda_ops *, const memopt_norm *norm,
                                                       const void *d_branch, void *d_residual, cudaStream_t stream) {
    norm_task t;
    status_t s;

    if ((s = norm_resolve(norm, 0, &t)) != 0 || !t.n.rows) return s;
    const memopt_norm *n = &t.n;
    if (n->stride != n->width) return MEMOPT_ERR_ARGUMENT;
    const size_t all = n->rows * n->width;
    const array a[] = { /* the first two may be one; what the sum is written over is listed once, as the sum */
        { n->scale, n->width, n->weight_type, 0, 0 },
        { n->shift, n->width, n->weight_type, 0, 0 },
        { d_residual, all, n->type, 1, 1 },
        { n->output, all, n->type, 1, 1 },
        { n->statistics, 2 * n->rows, MEMOPT_TYPE_F32, 0, 1 },
        { n->input == d_residual ? NULL : n->input, all, n->type, n->input != d_residual, 0 },
        { d_branch == d_residual ? NULL : d_branch, all, n->type, d_branch != d_residual, 0 } };
    if ((s = arrays_no_overlap(a, 7)) != 0) return s;
    t.branch = d_branch;
    t.residual = d_residual;
    return norm_forward(&t, stream);
}
#endif

PRUNED status_t norm_sums_bytes(const norm_task *t, size_t *bytes) {
    const size_t groups = memopt_i_ceil_div(t->n.rows, t->group);
    return memopt_i_mul(t->n.width, 2 * sizeof(float), bytes) || memopt_i_mul(*bytes, groups, bytes)
           ? MEMOPT_ERR_OVERFLOW : 0;
}

#ifndef MEMOPT_CUDA_NO_NORM
PUBLIC status_t api::memopt_cuda_norm_scratch(const memopt_cuda_ops *, const memopt_norm *norm, size_t *bytes) {
    norm_task t;
    size_t all;
    status_t s;

    if (!bytes) return MEMOPT_CUDA_ERR_NULL;
    if ((s = norm_resolve(norm, 0, &t)) != 0 || (s = norm_sums_bytes(&t, &all)) != 0) return s;
    *bytes = all;
    return 0;
}
#endif

/* Rows that no block can hold, or that are not whole spans, or known by their output: columns first, then rows. */
template <class T>
static status_t norm_backward_long(const norm_task &t, size_t groups, cudaStream_t stream) {
    enum { TILE = NORM_BLOCK * 16 / sizeof(T) };
    unsigned blocks, grid, rows;
    status_t s;

    if ((s = grid_of(t.n.width, TILE, &blocks)) != 0
        || (s = grid_of(t.n.rows, 1, &rows)) != 0 || (s = grid_of(groups * blocks, 1, &grid)) != 0) return s;
    if (t.sums) s = CU_RUN(norm_columns_kernel<T>, grid, NORM_BLOCK, 0, stream, t, blocks);
    if (s || !t.n.grad_input) return s;
    return CU_RUN(norm_backward_long_kernel<T>, rows, 1u << t.shift, 0, stream, t);
}

template <class T>
static status_t norm_backward_of(const norm_task &t, size_t each, unsigned block, size_t groups, cudaStream_t stream) {
    enum { FEW = 8 * sizeof(T) / 16, MOST = 4 };

    if (!each) return norm_backward_long<typename sized<T>::type>(t, groups, stream);
    if (each == FEW) return CU_RUN((norm_backward_kernel<T, FEW>), groups, block, 0, stream, t);
    return CU_RUN((norm_backward_kernel<T, MOST>), groups, block, 0, stream, t);
}

PRUNED status_t norm_total(const norm_task *t, size_t groups, cudaStream_t stream) {
    unsigned blocks;
    const memopt_norm *n = &t->n;
    const status_t s = grid_of(n->width, 32, &blocks);

    if (s || (!n->grad_scale && !n->grad_shift)) return s;
    return CU_RUN(norm_total_kernel<>, (size_t)blocks * 2, 32 * slice_count(groups), 0, stream, t->sums, groups,
                  n->width, n->grad_scale, n->grad_shift, n->gradient_type, n->accumulate, blocks);
}

#ifndef MEMOPT_CUDA_NO_NORM
PUBLIC status_t api::memopt_cuda_norm_backward(const memopt_cuda_ops *ops, const memopt_norm *norm,
                                               cudaStream_t stream) {
    norm_task t;
    size_t each, bytes, groups;
    unsigned block;
    status_t s;

    if ((s = norm_resolve(norm, 1, &t)) != 0 || !t.n.width) return s;
    if ((s = norm_check(&t.n, 1)) != 0 || (s = norm_sums_bytes(&t, &bytes)) != 0) return s;
    if (!t.n.grad_scale && !t.n.grad_shift) bytes = 0;
    if ((s = scratch_check(ops, bytes)) != 0 || (s = ready()) != 0) return s;
    groups = memopt_i_ceil_div(t.n.rows, t.group);
    t.sums = bytes ? static_cast<float *>(ops->d_scratch) : NULL;
    if (t.n.rows && (t.n.grad_input || t.sums)) {
        norm_partition(&t, 1, &each, &block);
        s = CU_WITH(t.n.type, norm_backward_of<T>(t, each, block, groups, stream));
        if (s) return s;
    }
    return norm_total(&t, groups, stream);
}
#endif

/* @section cuda_fused : cuda_norm cuda_base api_cuda_fused
   A pass over memory: arrays are read once, a functor works on the elements, and what it makes is written once.
   Problem    Every operator that works on elements has the same outside: which elements a thread has, wide loads,
              several of them under way before the first is used, what is behind the end, wide stores; and a user's own
              chain of such operators wants to be one pass, which no library can have ready.
   Idea       The outside is written once, over a list of arrays that the compiler knows: how each takes part and what
              it is stored as. The functor is called with a float for each of them, in their order. Storage is opened on
              the way in and closed on the way out, one array at a time, by a recursion over the list that the compiler
              takes apart.
   Forms      flat  the places are one row: a thread has several spans of 16 bytes of what is read, 4 in all
              rows  arrays with a stride, or one that rows share: blocks of rows and columns, a span a thread
              sums  something is added up at the end of a row: its threads walk along it, a warp if that is enough
   Bits       A maximum is the CPU's, a sum has the order of the row's threads: that of the columns and the storage.
   Ours       Activations, SwiGLU, dropout and biases, in `layer` and `linear`, are functors of this: they take a span
              at a time, because a branch for a span costs less than one for an element. */

enum { FUSED_BLOCK = 256 };

/* To 16 bytes; NULL is aligned. */
PRUNED bool is_aligned(const void *p) { return !((uintptr_t)p & 15); }

/* ---- rows by blocks: 1 << shift threads have a row's next spans; wide rows are several tiles ---- */
typedef struct row_tiling { unsigned shift, tiles; } row_tiling;

PRUNED status_t row_tiles(size_t rows, size_t width, size_t per, row_tiling *t, unsigned *blocks) {
    const size_t spans = memopt_i_ceil_div(width, per);
    status_t s;

    t->shift = 0;
    while (t->shift < 8 && ((size_t)1 << t->shift) < spans) ++t->shift;
    if ((s = grid_of(spans, (size_t)1 << t->shift, &t->tiles)) != 0
        || (s = grid_of(rows, (size_t)FUSED_BLOCK >> t->shift, blocks)) != 0) return s;
    return grid_of((size_t)*blocks * t->tiles, 1, blocks);
}

template <int N> CU_DEVICE size_t row_place(const row_tiling &t, size_t *at) {
    const unsigned turn = blockIdx.x / t.tiles;
    const unsigned tile = blockIdx.x % t.tiles;
    const unsigned lane = threadIdx.x & ((1u << t.shift) - 1);

    *at = (((size_t)tile << t.shift) + lane) * N;
    return ((size_t)turn * FUSED_BLOCK + threadIdx.x) >> t.shift;
}

/* ---- the arrays ---- */
/* How an array takes part: a number for each place (MAYBE: and data may be NULL); for each column, which all rows
   share; for each row; one for all; or a row's sum or maximum, of which what the functor makes of a place is a term. */
enum { FUSED_EACH, FUSED_MAYBE, FUSED_STRIDED, FUSED_ROW, FUSED_COLUMN, FUSED_ONE, FUSED_SUM, FUSED_MAX };
enum { FUSED_FLAT, FUSED_ROWS, FUSED_SUMS };               /* the form of a pass */
enum { FUSED_READ, FUSED_NUMBER, FUSED_WRITE, FUSED_TOTAL }; /* what a thread does with an array */

template <class T> struct stored { typedef T type; static const bool IS_INPUT = false; };
template <class T> struct stored<const T> { typedef T type; static const bool IS_INPUT = true; };

template <class T> struct type_of;
template <> struct type_of<float> { static const memopt_type CODE = MEMOPT_TYPE_F32; };
template <> struct type_of<bf16_t> { static const memopt_type CODE = MEMOPT_TYPE_BF16; };
template <> struct type_of<f16_t> { static const memopt_type CODE = MEMOPT_TYPE_F16; };

template <class T, int S> struct fused_array { /* an input where T is const */
    typedef typename stored<T>::type type;
    static const int SHAPE = S;
    static const int SIZE = sizeof(type);
    static const bool IS_INPUT = stored<T>::IS_INPUT;
    static const bool IS_SPAN = S <= FUSED_ROW;
    static const int FORM = S >= FUSED_SUM ? FUSED_SUMS : S <= FUSED_MAYBE || S == FUSED_ONE ? FUSED_FLAT : FUSED_ROWS;
    static const int PART = S >= FUSED_SUM ? FUSED_TOTAL : !IS_INPUT ? FUSED_WRITE
                          : IS_SPAN ? FUSED_READ : FUSED_NUMBER;

    T     *data;
    size_t stride; /* from row to row; 0 where they share it */

    CU_MEMBER bool is_there(void) const { return S != FUSED_MAYBE || data; }
    CU_MEMBER T *at(size_t row, size_t column) const { return data + (row * stride + column); }
};

template <class... A> struct fused_arrays;

template <> struct fused_arrays<> { static const int SIZE = 4, BYTES = 0, FORM = FUSED_FLAT, TOTALS = 0; };

template <class A, class... REST> struct fused_arrays<A, REST...> {
    typedef fused_arrays<REST...> others;
    static const int SIZE = A::SIZE < others::SIZE ? A::SIZE : others::SIZE; /* of the smallest element */
    static const int BYTES = others::BYTES + (A::PART == FUSED_READ ? A::SIZE : 0); /* read for a place */
    static const int FORM = A::FORM > others::FORM ? A::FORM : others::FORM;
    static const int TOTALS = others::TOTALS + (A::PART == FUSED_TOTAL);
    static const int SPAN = 16 / SIZE; /* elements of a thread side by side */
    static const int TURNS = BYTES > 2 * SIZE ? 1 : BYTES > SIZE ? 2 : 4; /* such spans under way */

    A      first;
    others rest;
};

PRUNED fused_arrays<> fused_list(void) { return fused_arrays<>(); }

template <class A, class... REST> static fused_arrays<A, REST...> fused_list(const A &first, const REST &...rest) {
    fused_arrays<A, REST...> list = { first, fused_list(rest...) };
    return list;
}

template <int S, class T> static fused_array<T, S> array_of(T *data, size_t stride) {
    fused_array<T, S> a = { data, stride };
    return a;
}

/* ---- what a thread holds of them ---- */
template <int N> struct fused_place { /* of N elements */
    size_t    row, at, index; /* index: in all of them, row after row */
    unsigned  left, turn;     /* how many there are; which of the thread's spans */
    bool      wide, bf16;     /* bf16: what half_t is */
    uint32_t *kept;           /* a word for each turn, which the turns before may set */
};

template <class A, int N, int TURNS, int PART = A::PART> struct fused_held;

template <class A, int N, int TURNS> struct fused_held<A, N, TURNS, FUSED_READ> {
    row_span<typename A::type, N> span[TURNS];

    CU_MEMBER void begin(const A &, size_t) {}
    CU_MEMBER void fetch(const A &a, const fused_place<N> &p) {
        span_get(&span[p.turn], a.at(p.row, p.at), a.is_there() ? p.left : 0, p.wide);
    }
    CU_MEMBER void open(float *x, const fused_place<N> &p) const { span_open(x, span[p.turn], p.bf16); }
    CU_MEMBER void close(const A &, const float *, const fused_place<N> &) {}
    CU_MEMBER void total(const A &, size_t, bool, unsigned, float (*)[NORM_WARPS]) {}
};

template <class A, int N, int TURNS> struct fused_held<A, N, TURNS, FUSED_NUMBER> {
    float value;

    CU_MEMBER void begin(const A &a, size_t row) { value = load_one(a.at(row, 0)); }
    CU_MEMBER void fetch(const A &, const fused_place<N> &) {}
    CU_MEMBER void open(float *x, const fused_place<N> &) const { CU_UNROLL for (int i = 0; i < N; ++i) x[i] = value; }
    CU_MEMBER void close(const A &, const float *, const fused_place<N> &) {}
    CU_MEMBER void total(const A &, size_t, bool, unsigned, float (*)[NORM_WARPS]) {}
};

template <class A, int N, int TURNS> struct fused_held<A, N, TURNS, FUSED_WRITE> {
    CU_MEMBER void begin(const A &, size_t) {}
    CU_MEMBER void fetch(const A &, const fused_place<N> &) {}
    CU_MEMBER void open(float *, const fused_place<N> &) const {}
    CU_MEMBER void close(const A &a, const float *x, const fused_place<N> &p) {
        row_span<typename A::type, N> s;

        if (!a.is_there()) return;
        span_close(&s, x, p.bf16);
        span_put(a.at(p.row, p.at), s, p.left, p.wide);
    }
    CU_MEMBER void total(const A &, size_t, bool, unsigned, float (*)[NORM_WARPS]) {}
};

template <class A, int N, int TURNS> struct fused_held<A, N, TURNS, FUSED_TOTAL> {
    typedef row_total<A::SHAPE == FUSED_MAX> fold;
    float sum;

    CU_MEMBER void begin(const A &, size_t) { sum = fold::none(); }
    CU_MEMBER void fetch(const A &, const fused_place<N> &) {}
    CU_MEMBER void open(float *, const fused_place<N> &) const {}
    CU_MEMBER void close(const A &, const float *x, const fused_place<N> &p) {
        CU_UNROLL for (int i = 0; i < N; ++i) if ((unsigned)i < p.left) sum = fold::of(sum, x[i]);
    }
    CU_MEMBER void total(const A &a, size_t row, bool writes, unsigned shift, float (*red)[NORM_WARPS]) {
        const float all = row_fold<fold>(sum, shift, *red);
        if (writes) store_one(a.at(row, 0), memopt_i_sum(all, 0.0f)); /* 0 for -0 */
    }
};

/* All of them, from the first to the last. */
template <int N, int TURNS, class... A> struct fused_thread;

template <int N, int TURNS> struct fused_thread<N, TURNS> {
    CU_MEMBER void begin(const fused_arrays<> &, size_t) {}
    CU_MEMBER void fetch(const fused_arrays<> &, const fused_place<N> &) {}
    template <class F, class... X>
    CU_MEMBER void run(const F &f, const fused_arrays<> &, const fused_place<N> &p, X &...x) {
        f(p, x...);
    }
    CU_MEMBER void total(const fused_arrays<> &, size_t, bool, unsigned, float (*)[NORM_WARPS]) {}
};

template <int N, int TURNS, class A, class... REST> struct fused_thread<N, TURNS, A, REST...> {
    fused_held<A, N, TURNS> held;
    fused_thread<N, TURNS, REST...> rest;

    CU_MEMBER void begin(const fused_arrays<A, REST...> &a, size_t row) {
        held.begin(a.first, row);
        rest.begin(a.rest, row);
    }
    CU_MEMBER void fetch(const fused_arrays<A, REST...> &a, const fused_place<N> &p) {
        held.fetch(a.first, p);
        rest.fetch(a.rest, p);
    }
    /* The floats of the arrays before, of this one, and of those that follow; then the functor; then back. */
    template <class F, class... X>
    CU_MEMBER void run(const F &f, const fused_arrays<A, REST...> &a, const fused_place<N> &p, X &...before) {
        float x[N];

        held.open(x, p);
        rest.run(f, a.rest, p, before..., x);
        held.close(a.first, x, p);
    }
    CU_MEMBER void total(const fused_arrays<A, REST...> &a, size_t row, bool writes, unsigned shift,
                         float (*red)[NORM_WARPS]) {
        held.total(a.first, row, writes, shift, red);
        rest.total(a.rest, row, writes, shift, red + (A::PART == FUSED_TOTAL));
    }
};

/* Only for its type. */
template <int N, int TURNS, class... A> fused_thread<N, TURNS, A...> thread_of(const fused_arrays<A...> &);

/* ---- the kernels ---- */
typedef struct fused_task {
    size_t     rows, columns; /* flat: 1 x all of them */
    row_tiling tiling;        /* sums: only the shift */
    bool       wide, bf16;
} fused_task;

/* Which elements a thread of a flat pass has at a turn. A functor that wants others has a place_of() of its own. */
struct fused_spans {
    template <int N, int TURNS> CU_MEMBER static size_t place_of(unsigned turn) {
        enum { STEP = FUSED_BLOCK * N };
        return (size_t)blockIdx.x * (STEP * TURNS) + threadIdx.x * N + (size_t)turn * STEP;
    }
};

template <int FORM, int N, int TURNS, class F> CU_DEVICE fused_place<N> place_of(const fused_task &t, unsigned turn) {
    fused_place<N> p;

    p.row = FORM == FUSED_FLAT ? 0 : row_place<N>(t.tiling, &p.at);
    if (FORM == FUSED_FLAT) p.at = F::template place_of<N, TURNS>(turn);
    p.index = FORM == FUSED_FLAT ? p.at : p.row * t.columns + p.at;
    p.left = p.row < t.rows ? left_of<N>(t.columns, p.at) : 0;
    p.turn = turn;
    p.wide = t.wide;
    p.bf16 = t.bf16;
    return p;
}

template <int FORM, class F, class ARRAYS>
static __global__ void __launch_bounds__(FUSED_BLOCK) fused_kernel(F f, ARRAYS a, fused_task t) {
    enum { N = ARRAYS::SPAN, TURNS = FORM == FUSED_FLAT ? ARRAYS::TURNS : 1 };
    decltype(thread_of<N, TURNS>(a)) thread;
    uint32_t kept[TURNS] = { 0 };

    CU_UNROLL for (unsigned k = 0; k < TURNS; ++k) {
        const fused_place<N> p = place_of<FORM, N, TURNS, F>(t, k);
        if (!k && !p.left) return;
        if (!k) thread.begin(a, p.row);
        thread.fetch(a, p);
    }
    CU_UNROLL for (unsigned k = 0; k < TURNS; ++k) {
        fused_place<N> p = place_of<FORM, N, TURNS, F>(t, k);
        if (!p.left) return;
        p.kept = kept;
        thread.run(f, a, p);
    }
}

/* Threads of rows that are not there find nothing, and take part in the barriers. */
template <class F, class ARRAYS>
static __global__ void __launch_bounds__(FUSED_BLOCK) fused_sums_kernel(F f, ARRAYS a, fused_task t) {
    enum { N = ARRAYS::SPAN, TURNS = ARRAYS::TURNS };
    MEMOPT_I_CUDA_SHARED(float, red, [ARRAYS::TOTALS][NORM_WARPS]);
    decltype(thread_of<N, TURNS>(a)) thread;
    const size_t row = ((size_t)blockIdx.x * FUSED_BLOCK + threadIdx.x) >> t.tiling.shift;
    const unsigned lane = threadIdx.x & ((1u << t.tiling.shift) - 1);
    const bool there = row < t.rows;
    uint32_t kept[TURNS] = { 0 };
    fused_place<N> p;

    p.row = there ? row : 0;
    p.wide = t.wide;
    p.bf16 = t.bf16;
    p.kept = kept;
    thread.begin(a, p.row);
    for (size_t first = lane * N; first < t.columns; first += (size_t)(TURNS * N) << t.tiling.shift) {
        CU_UNROLL for (p.turn = 0; p.turn < TURNS; ++p.turn) {
            p.at = first + ((size_t)(p.turn * N) << t.tiling.shift);
            p.left = there ? left_of<N>(t.columns, p.at) : 0;
            thread.fetch(a, p);
        }
        CU_UNROLL for (p.turn = 0; p.turn < TURNS; ++p.turn) {
            p.at = first + ((size_t)(p.turn * N) << t.tiling.shift);
            p.left = there ? left_of<N>(t.columns, p.at) : 0;
            p.index = row * t.columns + p.at;
            if (p.left) thread.run(f, a, p);
        }
    }
    thread.total(a, row, there && !lane, t.tiling.shift, red);
}

/* ---- the host's part ---- */
PRUNED bool fused_wide(const fused_arrays<> &, int) { return true; }

template <class A, class... REST> static bool fused_wide(const fused_arrays<A, REST...> &a, int n) {
    const size_t bytes = memopt_i_min(16, (size_t)(A::SIZE * n));
    const bool wide =
        !A::IS_SPAN || !a.first.data || !(((uintptr_t)a.first.data | a.first.stride * A::SIZE) & (bytes - 1));
    return wide && fused_wide(a.rest, n);
}

template <int FORM> struct fused_launch {
    template <class F, class ARRAYS>
    static status_t run(const F &f, const ARRAYS &a, fused_task t, cudaStream_t stream) {
        unsigned blocks;
        const status_t s = row_tiles(t.rows, t.columns, ARRAYS::SPAN, &t.tiling, &blocks);

        if (s) return s;
        return CU_RUN((fused_kernel<FORM, F, ARRAYS>), blocks, FUSED_BLOCK, 0, stream, f, a, t);
    }
};

template <> struct fused_launch<FUSED_FLAT> {
    template <class F, class ARRAYS>
    static status_t run(const F &f, const ARRAYS &a, fused_task t, cudaStream_t stream) {
        enum { TILE = FUSED_BLOCK * ARRAYS::SPAN * ARRAYS::TURNS };

        t.columns *= t.rows; /* one row; no array has another's */
        t.rows = 1;
        return CU_RUN((fused_kernel<FUSED_FLAT, F, ARRAYS>), memopt_i_ceil_div(t.columns, TILE), FUSED_BLOCK, 0, stream,
                      f, a, t);
    }
};

template <> struct fused_launch<FUSED_SUMS> {
    template <class F, class ARRAYS>
    static status_t run(const F &f, const ARRAYS &a, fused_task t, cudaStream_t stream) {
        t.tiling.shift = row_shift(memopt_i_ceil_div(t.columns, ARRAYS::SPAN), 2 * ARRAYS::TURNS);
        t.tiling.shift = (unsigned)memopt_i_min(t.tiling.shift, 8);
        return CU_RUN((fused_sums_kernel<F, ARRAYS>), memopt_i_ceil_div(t.rows, (size_t)FUSED_BLOCK >> t.tiling.shift),
                                 FUSED_BLOCK, 0, stream, f, a, t);
    }
};

/* Everything has been checked. type: what half_t is. */
template <class F, class... A> static status_t fused_run(const F &f, size_t rows, size_t columns, memopt_type type,
                                                         const fused_arrays<A...> &a, cudaStream_t stream) {
    typedef fused_arrays<A...> arrays;
    fused_task t;

    memset(&t, 0, sizeof t);
    t.rows = rows;
    t.columns = columns;
    t.bf16 = type == MEMOPT_TYPE_BF16;
    t.wide = fused_wide(a, arrays::SPAN);
    if (!rows || (!columns && arrays::FORM != FUSED_SUMS)) return 0;
    return fused_launch<arrays::FORM>::run(f, a, t, stream);
}

/* ---- dropout: which elements stay, and what becomes of them ---- */
struct drawn {
    memopt_noise noise;
    uint64_t     first;
    uint32_t     threshold;
    float        factor;

    CU_MEMBER bool stays_at(uint64_t index) const { return memopt_i_noise16(noise, first + index) >= threshold; }
    CU_MEMBER float times(bool stays, float x) const { return stays ? memopt_i_times(factor, x) : 0.0f; }
    CU_MEMBER float onto(bool stays, float x, float base) const { return stays ? fmaf(factor, x, base) : base; }
};

PRUNED drawn drawn_with(float rate, memopt_noise noise, uint64_t first) {
    drawn d;

    d.noise = noise;
    d.first = first;
    d.threshold = (uint32_t)memopt_i_min(65535, (size_t)memopt_i_round(rate * 65536.0f + 0.5f));
    d.factor = memopt_i_round(65536.0f / (float)(65536 - d.threshold));
    return d;
}

/* A thread has spans that are 16 apart, in pairs: what is drawn for one of them is drawn for both. */
struct dropout : drawn {
    bool has_base;
    const memopt_noise *d_noise; /* NULL: it has it */

    template <int N, int TURNS> CU_MEMBER static size_t place_of(unsigned turn) {
        enum { PER = 16 / N };
        const size_t pair = (size_t)blockIdx.x * FUSED_BLOCK + threadIdx.x;
        return pair / PER * 32 + pair % PER * N + turn * 16;
    }

    /* Bit i says whether element i of a span stays. The upper half of a word drawn is that of the second 16 of 32. */
    template <int N> CU_MEMBER uint32_t stay(const fused_place<N> &p) const {
        const memopt_noise by = d_noise ? *d_noise : noise;
        uint32_t stays = 0;

        if (first % 32) {
            CU_UNROLL for (int i = 0; i < N; ++i) stays |=
                (uint32_t)(memopt_i_noise16(by, first + p.at + (unsigned)i) >= threshold) << i;
            return stays;
        }
        if (p.turn) return p.kept[p.turn];
        CU_UNROLL for (int i = 0; i < N; ++i) {
            const uint32_t both = memopt_i_noise32(by, first + p.at + 16 + (unsigned)i);
            stays |= (uint32_t)((both & 0xffffu) >= threshold) << i;
            p.kept[1] |= (uint32_t)((both >> 16) >= threshold) << i;
        }
        return stays;
    }

    template <int N>
    CU_MEMBER void operator()(const fused_place<N> &p, float (&x)[N], float (&base)[N], float (&y)[N]) const {
        const uint32_t stays = stay(p);

        CU_UNROLL for (int i = 0; i < N; ++i) {
            const bool is = (stays >> i & 1) != 0;
            y[i] = has_base ? onto(is, x[i], base[i]) : times(is, x[i]);
        }
    }
};

/* ---- a functor of the user's, which works on one element ---- */
template <class F> struct fused_functor : fused_spans {
    F f;

    explicit fused_functor(const F &of) : f(of) {}

    template <int N, class... X> CU_MEMBER void operator()(const fused_place<N> &p, X &...x) const {
        CU_UNROLL for (int i = 0; i < N; ++i) f(p.index + (size_t)i, x[i]...);
    }
};

/* An array as the matrix that it is; MATRIX is a rows x columns part of memory. */
typedef struct fused_matrix {
    const void *data;
    size_t      rows, columns, stride, bytes;
    int         type, is_result;
} fused_matrix;

PRUNED status_t fused_matrix_check(fused_matrix *m) {
    const size_t size = memopt_type_bytes((memopt_type)m->type);

    m->bytes = 0;
    if (m->stride < m->columns) return MEMOPT_CUDA_ERR_STRIDE;
    if (!m->rows || !m->columns) return 0;
    if (memopt_i_mul(m->rows - 1, m->stride, &m->bytes) || memopt_i_add(m->bytes, m->columns, &m->bytes)
        || memopt_i_mul(m->bytes, size, &m->bytes) || m->bytes > SIZE_MAX / 2) return MEMOPT_ERR_OVERFLOW;
    return pointer(m->data, size);
}

/* Two arrays may be the same elements, if only one of them is a result; else a result has nothing of another. */
PRUNED bool fused_overlap(const fused_matrix *a, const fused_matrix *b) {
    const memopt_i_gemm_matrix x = memopt_i_gemm_matrix_of(a->data, a->rows, a->columns, 0, a->stride,
                                                           (memopt_type)a->type);
    const memopt_i_gemm_matrix y = memopt_i_gemm_matrix_of(b->data, b->rows, b->columns, 0, b->stride,
                                                           (memopt_type)b->type);
    const bool same = a->data == b->data && a->type == b->type && a->rows == b->rows && a->columns == b->columns
                   && a->stride == b->stride && !(a->is_result && b->is_result);

    return (a->is_result || b->is_result) && !same && memopt_i_gemm_overlap(&x, a->bytes, &y, b->bytes);
}

PRUNED status_t fused_resolve(fused_arrays<> *, fused_matrix *, size_t, size_t) { return 0; }

/* Strides, and the arrays as matrices. */
template <class A, class... REST>
static status_t fused_resolve(fused_arrays<A, REST...> *a, fused_matrix *m, size_t rows, size_t columns) {
    const bool shared = A::SHAPE == FUSED_ROW || A::SHAPE == FUSED_ONE;
    status_t s;

    if (A::SHAPE == FUSED_EACH) a->first.stride = columns;
    m->data = a->first.data;
    m->type = type_of<typename A::type>::CODE;
    m->is_result = !A::IS_INPUT;
    m->rows = !shared ? rows : rows != 0;
    m->columns = A::IS_SPAN ? columns : 1;
    m->stride = shared ? m->columns : a->first.stride;
    if ((s = fused_matrix_check(m)) != 0) return s;
    return fused_resolve(&a->rest, m + 1, rows, columns);
}

namespace api {
/* See `fused` above. What storage of 16 bits holds; cast pointers of __nv_bfloat16 and __half to these. */
typedef bf16_t memopt_cuda_bf16;
typedef f16_t  memopt_cuda_f16;

template <class T> static fused_array<T, FUSED_EACH> memopt_cuda_fused_each(T *d) { return array_of<FUSED_EACH>(d, 0); }
template <class T> static fused_array<T, FUSED_STRIDED> memopt_cuda_fused_each(T *d, size_t stride) {
    return array_of<FUSED_STRIDED>(d, stride);
}

template <class T> static fused_array<const T, FUSED_ROW> memopt_cuda_fused_row(const T *d) {
    return array_of<FUSED_ROW>(d, 0);
}

template <class T> static fused_array<const T, FUSED_COLUMN> memopt_cuda_fused_column(const T *d) {
    return array_of<FUSED_COLUMN>(d, 1);
}

template <class T> static fused_array<const T, FUSED_ONE> memopt_cuda_fused_one(const T *d) {
    return array_of<FUSED_ONE>(d, 0);
}

template <class T> static fused_array<T, FUSED_SUM> memopt_cuda_fused_row_sum(T *d) {
    return array_of<FUSED_SUM>(d, 1);
}

template <class T> static fused_array<T, FUSED_MAX> memopt_cuda_fused_row_max(T *d) {
    return array_of<FUSED_MAX>(d, 1);
}

template <class... A> static fused_arrays<A...> memopt_cuda_fused_arrays(const A &...a) { return fused_list(a...); }

template <class F, class... A>
static status_t memopt_cuda_fused_run(const F &f, size_t rows, size_t columns, fused_arrays<A...> arrays,
                                      cudaStream_t stream) {
    enum { COUNT = sizeof...(A) };
    fused_matrix m[COUNT + 1];
    status_t s = fused_resolve(&arrays, m, rows, columns);

    if (s) return s;
    for (int i = 0; i < COUNT; ++i)
        for (int j = 0; j < i; ++j)
            if (fused_overlap(&m[i], &m[j])) return MEMOPT_CUDA_ERR_OVERLAP;
    return fused_run(fused_functor<F>(f), rows, columns, MEMOPT_TYPE_F32, arrays, stream);
}

/* What a functor calls: the CPU's bits. g: the gradient that comes back. */
PRUNED CU_MEMBER float memopt_cuda_fused_exp(float x) { return memopt_i_v1_exp(x); }
PRUNED CU_MEMBER float memopt_cuda_fused_relu(float x) { return memopt_i_v1_act(x, MEMOPT_ACTIVATION_RELU); }
PRUNED CU_MEMBER float memopt_cuda_fused_gelu(float x) { return memopt_i_v1_act(x, MEMOPT_ACTIVATION_GELU); }
PRUNED CU_MEMBER float memopt_cuda_fused_silu(float x) { return memopt_i_v1_act(x, MEMOPT_ACTIVATION_SILU); }

PRUNED CU_MEMBER float memopt_cuda_fused_gradient(memopt_activation kind, float x, float g) {
    float y;
    return memopt_i_v1_act_grad(x, g, kind, &y);
}

/* Dropout: made on the host, a member of the functor; i: the first argument of its call. */
typedef drawn memopt_cuda_fused_noise;

PRUNED memopt_cuda_fused_noise memopt_cuda_fused_dropout_make(float rate, memopt_noise noise, uint64_t first) {
    return drawn_with(rate, noise, first);
}

PRUNED CU_MEMBER float memopt_cuda_fused_dropout(const memopt_cuda_fused_noise &d, size_t i, float x) {
    return d.times(d.stays_at(i), x);
}

PRUNED CU_MEMBER float memopt_cuda_fused_dropout_onto(const memopt_cuda_fused_noise &d, size_t i, float x, float base) {
    return d.onto(d.stays_at(i), x, base);
}
} /* namespace api */

/* @section cuda_layer : cuda_fused cuda_norm cuda_base api_cuda_layer
   What stands between the large operators: activations, SwiGLU, residual + dropout, embeddings, rotary positions.
   Problem    Elements that are read, worked on and written once take the memory's time: the kernel's part is to ask for
              enough of them, and not to spend more instructions than that leaves time for. The gradient of an embedding
              is a sum over the rows of each token, which lie anywhere, and atomic sums of floats come out differently
              every time.
   Idea       16 bytes at a time, several such reads of a thread under way before the first is used. The activation is
              known when the kernel is compiled. Dropout's bits come from the place; two elements that are 16 apart
              share a hash, so a thread takes both. For tokens, integers are counted and dealt out atomically: how many
              rows a token has, the last of them, room for a list; what atomics leave open, the order of a list, is put
              right by sorting it. Then the block of a token's last row adds them up, in order.
   Ways       Elementwise: spans of 16 bytes, 4 under way (2 and 2 where two arrays are read). Dropout: a hash for each
              element is 12 integer instructions, more than 6 bytes of bf16 leave time for, so two share one. Embedding
              backward: a block for each token of the vocabulary reads all ids; atomicAdd of floats has no order; lists
              by counting, sorted, are n reads and 12 V + 16 n bytes of tables, 4 or 5 launches. A token of more than
              1,024 rows has no list: its blocks look at all ids, and there are less than n / 1,024 such tokens.
   Rotary     A block has some rows: it makes their sines once, in shared memory, and all heads take them from there.
              Frequencies are the host's, 1 KiB of a launch's arguments.
   Bits       The CPU's: its formulas, and its order of sums; a token's gradient of 16 bits is rounded at the end of 256
              rows as there.
   Cost       GELU and SiLU are about 50 instructions an element: in 16 bits these take longer than the memory.
   Trap       A token's rows are one chain of additions, so one block's for each 1,024 columns (float32: 512). */

enum { LAYER_BLOCK = 256, LAYER_TURNS = 4 };

/* ---- activations: of N elements, so that all threads take a branch alike and there is one for N ---- */
template <int KIND, int N> CU_DEVICE void act_of(float *x) {
    CU_UNROLL for (int i = 0; i < N; ++i) x[i] = memopt_i_v1_act(x[i], KIND);
}

template <int N> CU_DEVICE void activate(memopt_activation kind, float *x) {
    if (kind == MEMOPT_ACTIVATION_RELU) act_of<MEMOPT_ACTIVATION_RELU, N>(x);
    if (kind == MEMOPT_ACTIVATION_GELU) act_of<MEMOPT_ACTIVATION_GELU, N>(x);
    if (kind == MEMOPT_ACTIVATION_SILU) act_of<MEMOPT_ACTIVATION_SILU, N>(x);
}

/* g becomes the gradient of the input, and x the output. */
template <int KIND, int N> CU_DEVICE void act_grad_of(float *x, float *g) {
    CU_UNROLL for (int i = 0; i < N; ++i) g[i] = memopt_i_v1_act_grad(x[i], g[i], KIND, x + i);
}

template <int N> CU_DEVICE void act_grad(memopt_activation kind, float *x, float *g) {
    if (kind == MEMOPT_ACTIVATION_RELU) act_grad_of<MEMOPT_ACTIVATION_RELU, N>(x, g);
    if (kind == MEMOPT_ACTIVATION_GELU) act_grad_of<MEMOPT_ACTIVATION_GELU, N>(x, g);
    if (kind == MEMOPT_ACTIVATION_SILU) act_grad_of<MEMOPT_ACTIVATION_SILU, N>(x, g);
}

struct activation : fused_spans {
    memopt_activation kind;

    explicit activation(memopt_activation k) : kind(k) {}

    template <int N> CU_MEMBER void operator()(const fused_place<N> &, float (&x)[N], float (&y)[N]) const {
        activate<N>(kind, x);
        CU_UNROLL for (int i = 0; i < N; ++i) y[i] = x[i];
    }
};

struct activation_gradient : fused_spans { /* y: the output once more */
    memopt_activation kind;

    explicit activation_gradient(memopt_activation k) : kind(k) {}

    template <int N>
    CU_MEMBER void operator()(const fused_place<N> &, float (&x)[N], float (&g)[N], float (&grad)[N],
                              float (&y)[N]) const {
        act_grad<N>(kind, x, g);
        CU_UNROLL for (int i = 0; i < N; ++i) {
            grad[i] = g[i];
            y[i] = x[i];
        }
    }
};

template <class T> static status_t act_launch(const memopt_activation_args *x, int backward, cudaStream_t stream) {
    const fused_array<const T, FUSED_EACH> in = array_of<FUSED_EACH>((const T *)x->input, 0);
    T *out = static_cast<T *>(x->output);

    if (!backward)
        return fused_run(activation(x->activation), 1, x->n, x->type, fused_list(in, array_of<FUSED_EACH>(out, 0)),
                         stream);
    return fused_run(activation_gradient(x->activation), 1, x->n, x->type,
                     fused_list(in, array_of<FUSED_EACH>((const T *)x->grad_output, 0),
                                array_of<FUSED_EACH>((T *)x->grad_input, 0), array_of<FUSED_MAYBE>(out, 0)), stream);
}

PRUNED status_t act_run(const memopt_activation_args *x, int backward, cudaStream_t stream) {
    status_t s;

    if (!x || memopt_i_activation_is_invalid(x->activation) || !memopt_type_bytes(x->type)) return MEMOPT_ERR_ARGUMENT;
    if (memopt_i_ops_too_large(x->n, 1, x->type)) return MEMOPT_ERR_OVERFLOW;
    const array a[] = { { x->input, x->n, x->type, 1, 0 },
        { x->output, x->n, x->type, !backward, 1 },
        { x->grad_output, x->n, x->type, 1, 0 },
        { x->grad_input, x->n, x->type, 1, 1 } };
    if ((s = arrays_check(a, backward ? 4 : 2)) != 0 || !x->n || (s = ready()) != 0) return s;
    return CU_SIZED(x->type, act_launch<T>(x, backward, stream));
}

PUBLIC status_t api::memopt_cuda_activation_forward(const memopt_cuda_ops *, const memopt_activation_args *x,
                                                    cudaStream_t stream) {
    return act_run(x, 0, stream);
}

PUBLIC status_t api::memopt_cuda_activation_backward(const memopt_cuda_ops *, const memopt_activation_args *x,
                                                     cudaStream_t stream) {
    return act_run(x, 1, stream);
}

/* ---- SwiGLU ---- */
struct swiglu : fused_spans {
    template <int N>
    CU_MEMBER void operator()(const fused_place<N> &, float (&gate)[N], float (&up)[N], float (&y)[N]) const {
        CU_UNROLL for (int i = 0; i < N; ++i) y[i] = memopt_i_v1_swiglu(gate[i], up[i]);
    }
};

struct swiglu_gradient : fused_spans {
    template <int N>
    CU_MEMBER void operator()(const fused_place<N> &, float (&gate)[N], float (&up)[N], float (&g)[N],
                              float (&grad_gate)[N], float (&grad_up)[N], float (&y)[N]) const {
        CU_UNROLL for (int i = 0; i < N; ++i) grad_gate[i] =
            memopt_i_v1_swiglu_grad(gate[i], up[i], g[i], grad_up + i, y + i);
    }
};

template <class T> static status_t swiglu_of(const memopt_swiglu *x, int backward, cudaStream_t stream) {
    const size_t width = x->width;
    const T *in = static_cast<const T *>(x->input);
    T *grad = static_cast<T *>(x->grad_input);
    const fused_array<const T, FUSED_STRIDED> gate = array_of<FUSED_STRIDED>(in, 2 * width);
    const fused_array<const T, FUSED_STRIDED> up = array_of<FUSED_STRIDED>(in + width, 2 * width);
    T *y = static_cast<T *>(x->output);

    if (!backward)
        return fused_run(swiglu(), x->rows, width, x->type, fused_list(gate, up, array_of<FUSED_EACH>(y, width)),
                         stream);
    return fused_run(swiglu_gradient(), x->rows, width, x->type,
                     fused_list(gate, up, array_of<FUSED_EACH>((const T *)x->grad_output, width),
                                array_of<FUSED_STRIDED>(grad, 2 * width),
                                array_of<FUSED_STRIDED>(grad + width, 2 * width), array_of<FUSED_MAYBE>(y, width)),
                     stream);
}

PRUNED status_t swiglu_run(const memopt_swiglu *x, int backward, cudaStream_t stream) {
    status_t s;
    size_t width, n;

    if (!x || !memopt_type_bytes(x->type)) return MEMOPT_ERR_ARGUMENT;
    if (memopt_i_mul(2, x->width, &width) || memopt_i_ops_too_large(x->rows, width, x->type))
        return MEMOPT_ERR_OVERFLOW;
    n = x->rows * width;
    const array a[] = { { x->input, n, x->type, 1, 0 },
        { x->output, n / 2, x->type, !backward, 1 },
        { x->grad_output, n / 2, x->type, 1, 0 },
        { x->grad_input, n, x->type, 1, 1 } };
    if ((s = arrays_check(a, backward ? 4 : 2)) != 0 || !n || (s = ready()) != 0) return s;
    return CU_SIZED(x->type, swiglu_of<T>(x, backward, stream));
}

PUBLIC status_t api::memopt_cuda_swiglu_forward(const memopt_cuda_ops *, const memopt_swiglu *x, cudaStream_t stream) {
    return swiglu_run(x, 0, stream);
}

PUBLIC status_t api::memopt_cuda_swiglu_backward(const memopt_cuda_ops *, const memopt_swiglu *x, cudaStream_t stream) {
    return swiglu_run(x, 1, stream);
}

/* ---- dropout ---- */
PRUNED status_t dropout_run(const memopt_dropout *x, int backward, const memopt_noise *d_noise, cudaStream_t stream) {
    dropout t;
    status_t s;

    if (!x || !(x->rate >= 0 && x->rate < 1) || !memopt_type_bytes(x->type)) return MEMOPT_ERR_ARGUMENT;
    if (memopt_i_ops_too_large(x->n, 1, x->type)) return MEMOPT_ERR_OVERFLOW;
    const array a[] = { { backward ? x->grad_output : x->input, x->n, x->type, 1, 0 },
        { backward ? NULL : x->residual, x->n, x->type, 0, 0 },
        { backward ? x->grad_input : x->output, x->n, x->type, 1, 1 } };
    if ((s = arrays_check(a, 3)) != 0 || !x->n || (s = ready()) != 0) return s;
    static_cast<drawn &>(t) = drawn_with(x->rate, x->noise, x->first);
    t.has_base = a[1].data != NULL;
    t.d_noise = d_noise;
    return CU_SIZED(x->type, fused_run(t, 1, x->n, x->type,
        fused_list(array_of<FUSED_EACH>((const T *)a[0].data, 0), array_of<FUSED_MAYBE>((const T *)a[1].data, 0),
                   array_of<FUSED_EACH>((T *)(backward ? x->grad_input : x->output), 0)), stream));
}

PUBLIC status_t api::memopt_cuda_dropout_forward(const memopt_cuda_ops *, const memopt_dropout *x,
                                                 cudaStream_t stream) {
    return dropout_run(x, 0, NULL, stream);
}

PUBLIC status_t api::memopt_cuda_dropout_backward(const memopt_cuda_ops *, const memopt_dropout *x,
                                                  cudaStream_t stream) {
    return dropout_run(x, 1, NULL, stream);
}

PUBLIC status_t api::memopt_cuda_dropout_forward_with_noise(const memopt_cuda_ops *, const memopt_dropout *x,
                                                            const memopt_noise *d_noise, cudaStream_t stream) {
    const status_t s = pointer(d_noise, sizeof(uint32_t));
    return s ? s : dropout_run(x, 0, d_noise, stream);
}

PUBLIC status_t api::memopt_cuda_dropout_backward_with_noise(const memopt_cuda_ops *, const memopt_dropout *x,
                                                             const memopt_noise *d_noise, cudaStream_t stream) {
    const status_t s = pointer(d_noise, sizeof(uint32_t));
    return s ? s : dropout_run(x, 1, d_noise, stream);
}

/* ---- embeddings ---- */
CU_DEVICE bool is_token(int32_t id, size_t vocabulary) { return id >= 0 && (size_t)id < vocabulary; }

/* 64 bits take five times as long */
CU_DEVICE size_t remainder(size_t a, size_t b) { return (a | b) >> 32 ? a % b : (size_t)((uint32_t)a % (uint32_t)b); }

template <int N> static __global__ void __launch_bounds__(LAYER_BLOCK)
embedding_kernel(row_tiling t, memopt_embedding x, bool wide, bool wide_weights) {
    size_t at;
    const size_t row = row_place<N>(t, &at);
    const unsigned left = left_of<N>(x.width, at);
    float y[N], place[N];

    if (row >= x.rows || !left) return;
    const int32_t id = x.ids[row];
    const bool there = is_token(id, x.vocabulary);
    if (there) floats_at<N>(y, x.tokens, x.weight_type, (size_t)id * x.width + at, left, wide_weights, 0);
    if (there && x.positions) {
        const size_t from = remainder(row, x.length) * x.width + at;
        floats_at<N>(place, x.positions, x.weight_type, from, left, wide_weights, 0);
        CU_UNROLL for (int i = 0; i < N; ++i) y[i] = memopt_i_sum(y[i], place[i]);
    }
    CU_UNROLL for (int i = 0; i < N; ++i) y[i] = there ? y[i] : memopt_i_bits_float(0x7fc00000u);
    put_floats<N>(x.output, x.type, row * x.width + at, y, left, wide);
}

/* What forward and backward look at; `of` and `positions` are the weights, or their gradients. */
PRUNED status_t embedding_check(const memopt_embedding *x, const void *rows, const void *of, const void *positions,
                                memopt_type type, int needed) {
    size_t n;

    if (!x || !memopt_type_bytes(x->type) || !memopt_type_bytes(type) || (x->accumulate & ~1))
        return MEMOPT_ERR_ARGUMENT;
    if (x->places) return MEMOPT_ERR_UNSUPPORTED;
    if (memopt_i_ops_too_large(x->rows, x->width, x->type) || memopt_i_ops_too_large(x->rows, 1, MEMOPT_TYPE_F32)
        || memopt_i_ops_too_large(x->vocabulary, x->width, MEMOPT_TYPE_F32)
        || (positions && memopt_i_ops_too_large(x->length, x->width, type))) return MEMOPT_ERR_OVERFLOW;
    n = x->rows * x->width;
    const array a[] = {
        { x->ids, x->rows, MEMOPT_TYPE_F32, 1, 0 }, /* 4 bytes, as ids have */
        { rows, n, x->type, 1, 0 },
        { of, n, type, needed, 0 },
        { positions, n, type, 0, 0 } };
    if (positions && x->rows && !x->length) return MEMOPT_ERR_ARGUMENT;
    return arrays_check(a, 4);
}

template <class T> static status_t embedding_of(const memopt_embedding *x, cudaStream_t stream) {
    enum { N = 16 / sizeof(T) };
    row_tiling t;
    unsigned blocks;
    const status_t s = row_tiles(x->rows, x->width, N, &t, &blocks);
    const bool wide = are_spans(x->output, x->type, x->width, N);
    const bool wide_weights = are_spans(x->tokens, x->weight_type, x->width, N)
                           && are_spans(x->positions, x->weight_type, x->width, N);

    if (s) return s;
    return CU_RUN((embedding_kernel<N>), blocks, LAYER_BLOCK, 0, stream, t, *x, wide, wide_weights);
}

PUBLIC status_t api::memopt_cuda_embedding_forward(const memopt_cuda_ops *, const memopt_embedding *x,
                                                   cudaStream_t stream) {
    status_t s;

    if (!x) return MEMOPT_ERR_ARGUMENT;
    if ((s = embedding_check(x, x->output, x->tokens, x->positions, x->weight_type, 1)) != 0
        || !x->rows || !x->width || (s = ready()) != 0) return s;
    return CU_SIZED(x->type, embedding_of<T>(x, stream));
}

/* ---- the gradient of an embedding ---- */
enum { TOKEN_BLOCK = 128, TOKEN_LIST = 1024, TOKEN_TURNS = 4 };

typedef struct token_tables { /* tables of scratch, in this order; room and those before `start` begin with 0 */
    uint32_t *room;        /* of lists that has been given away */
    uint32_t *count, *last;/* of each token: its rows, and the last of them, plus 1 */
    uint32_t *start;       /* of each token: its list; when that is full, the end of it */
    uint32_t *list;        /* rows of tokens that have 2 to TOKEN_LIST of them */
    const int32_t *ids;
    size_t    rows, vocabulary;
} token_tables;

/* The row of this thread, and its token; false where there is none. */
CU_DEVICE bool token_of(const token_tables &t, uint32_t *row, uint32_t *id) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= t.rows || !is_token(t.ids[i], t.vocabulary)) return false;
    *row = (uint32_t)i;
    *id = (uint32_t)t.ids[i];
    return true;
}

PRUNED __global__ void __launch_bounds__(LAYER_BLOCK) token_count_kernel(token_tables t) {
    uint32_t row, id;
    if (!token_of(t, &row, &id)) return;
    atomicAdd(t.count + id, 1u);
    atomicMax(t.last + id, row + 1);
}

CU_DEVICE bool token_listed(uint32_t count) { return count > 1 && count <= TOKEN_LIST; }

/* Room for lists: where one lies is left to chance, and nobody asks. */
PRUNED __global__ void __launch_bounds__(LAYER_BLOCK) token_room_kernel(token_tables t) {
    uint32_t row, id;
    if (!token_of(t, &row, &id) || t.last[id] != row + 1) return;
    if (token_listed(t.count[id])) t.start[id] = atomicAdd(t.room, t.count[id]);
}

PRUNED __global__ void __launch_bounds__(LAYER_BLOCK) token_list_kernel(token_tables t) {
    uint32_t row, id;
    if (!token_of(t, &row, &id) || !token_listed(t.count[id])) return;
    t.list[atomicAdd(t.start + id, 1u)] = row;
}

/* A thread's columns of a gradient. */
template <int N> struct token_sum {
    float    x[N];
    uint32_t turn; /* of 256 rows: a sum of 16 bits is rounded at the end of each that it takes part in */
    bool     bf16; /* what half_t is */
};

template <class T, int N>
CU_DEVICE void token_add(token_sum<N> *sum, const row_span<T, N> &g, size_t row, memopt_type type) {
    const uint32_t turn = (uint32_t)(row / MEMOPT_I_EMBEDDING_ROWS);
    float x[N];

    if (type != MEMOPT_TYPE_F32 && turn != sum->turn) {
        CU_UNROLL for (int i = 0; i < N; ++i) sum->x[i] = type == MEMOPT_TYPE_BF16
            ? memopt_from_bf16((uint16_t)code_of((const bf16_t *)0, sum->x[i]))
            : from_f16(code_of((const f16_t *)0, sum->x[i]));
    }
    sum->turn = turn;
    span_open(x, g, sum->bf16);
    CU_UNROLL for (int i = 0; i < N; ++i) sum->x[i] = memopt_i_sum(sum->x[i], x[i]);
}

/* `count` rows of the gradient, in the order they have in shared memory; several of them under way */
template <class T, int N> CU_DEVICE void token_rows(token_sum<N> *sum, const T *g, size_t width, const uint32_t *rows,
                                                    unsigned count, unsigned left, bool wide, memopt_type type) {
    enum { TURNS = TOKEN_TURNS };

    for (unsigned k = 0; k < count; k += TURNS) {
        row_span<T, N> s[TURNS];

        CU_UNROLL for (unsigned i = 0; i < TURNS; ++i) if (k + i < count)
            span_get(&s[i], g + rows[k + i] * width, left, wide);
        CU_ROLLED for (unsigned i = 0; i < TURNS && k + i < count; ++i) {
            token_add(sum, s[0], rows[k + i], type);
            take_turns<TURNS>(s);
        }
    }
}

/* A list, sorted: each row goes to where as many are before it. `mixed` and `rows` are shared. */
CU_DEVICE void token_sort(const uint32_t *list, uint32_t *mixed, uint32_t *rows, unsigned count) {
    for (unsigned k = threadIdx.x; k < count; k += blockDim.x) mixed[k] = list[k];
    __syncthreads(); /* the list is there */
    for (unsigned k = threadIdx.x; k < count; k += blockDim.x) {
        const uint32_t row = mixed[k];
        unsigned before = 0;
        for (unsigned i = 0; i < count; ++i) before += mixed[i] < row;
        rows[before] = row;
    }
    __syncthreads(); /* and now in order */
}

/* The rows of a token among TOKEN_LIST from `first` on, in order; each warp looks at a part. Returns how many. */
CU_DEVICE unsigned token_find(const token_tables &t, int32_t id, size_t first, uint32_t *rows, unsigned *found) {
    const unsigned warp = threadIdx.x / 32;
    const unsigned lane = threadIdx.x % 32;
    const unsigned warps = blockDim.x / 32;
    const unsigned part = TOKEN_LIST / warps;
    unsigned count = 0;
    unsigned before = 0;
    unsigned all = 0;

    for (unsigned k = 0; k < part; k += 32) {
        const size_t row = first + warp * part + k + lane;
        const bool is = row < t.rows && t.ids[row] == id;
        count += (unsigned)__popc(__ballot_sync(MEMOPT_I_CUDA_ALL, is));
    }
    if (lane == 0) found[warp] = count;
    __syncthreads(); /* every warp has counted */
    for (unsigned k = 0; k < warps; ++k) {
        before += k < warp ? found[k] : 0;
        all += found[k];
    }
    for (unsigned k = 0; k < part; k += 32) {
        const size_t row = first + warp * part + k + lane;
        const bool is = row < t.rows && t.ids[row] == id;
        const unsigned some = __ballot_sync(MEMOPT_I_CUDA_ALL, is);
        if (is) rows[before + (unsigned)__popc(some & ((1u << lane) - 1))] = (uint32_t)row;
        before += (unsigned)__popc(some);
    }
    __syncthreads(); /* all rows are there */
    return all;
}

/* A block for some columns of a row's token, if that is its last row. */
template <class T> static __global__ void __launch_bounds__(TOKEN_BLOCK)
token_sum_kernel(token_tables t, const T *g, void *grad, size_t width, memopt_type type, int accumulate,
                 unsigned tiles, bool wide, bool wide_grad, bool bf16) {
    enum { N = 16 / sizeof(T) };

    MEMOPT_I_CUDA_SHARED(uint32_t, mixed, [TOKEN_LIST]);
    MEMOPT_I_CUDA_SHARED(uint32_t, rows, [TOKEN_LIST]);
    MEMOPT_I_CUDA_SHARED(unsigned, found, [TOKEN_BLOCK / 32]);
    const size_t row = blockIdx.x / tiles;
    const size_t at = ((size_t)(blockIdx.x % tiles) * blockDim.x + threadIdx.x) * N;
    const unsigned left = left_of<N>(width, at);
    const int32_t id = t.ids[row];
    token_sum<N> sum;
    if (!is_token(id, t.vocabulary) || t.last[id] != row + 1) return; /* the whole block */
    const uint32_t count = t.count[id];
    const size_t place = (size_t)id * width + at;
    floats_at<N>(sum.x, accumulate ? grad : NULL, type, place, left, wide_grad, 0);
    sum.turn = 0xffffffffu; /* of the first, there is nothing to round */
    sum.bf16 = bf16;
    if (count == 1) {
        row_span<T, N> s;
        span_get(&s, g + row * width + at, left, wide);
        token_add(&sum, s, row, MEMOPT_TYPE_F32);
    } else {
        const bool listed = token_listed(count);

        if (listed) token_sort(t.list + (t.start[id] - count), mixed, rows, count);
        for (size_t first = 0; first <= row; first += TOKEN_LIST) {
            const unsigned some = listed ? count : token_find(t, id, first, rows, found);

            token_rows<T, N>(&sum, g + at, width, rows, some, left, wide, type);
            if (listed) break;
            __syncthreads(); /* rows are used again */
        }
    }
    if (left) put_floats<N>(grad, type, place, sum.x, left, wide_grad);
}

/* A block for some columns of a position: rows position, position + length, ... */
template <class T> static __global__ void __launch_bounds__(TOKEN_BLOCK)
position_sum_kernel(const T *g, void *grad, size_t count, size_t length, size_t width, memopt_type type,
                    int accumulate, unsigned tiles, bool wide, bool wide_grad) {
    enum { N = 16 / sizeof(T), TURNS = TOKEN_TURNS };
    const size_t position = blockIdx.x / tiles;
    const size_t at = ((size_t)(blockIdx.x % tiles) * blockDim.x + threadIdx.x) * N;
    const unsigned left = left_of<N>(width, at);
    token_sum<N> sum;

    sum.bf16 = false; /* T says it */
    if (!left) return;
    floats_at<N>(sum.x, accumulate ? grad : NULL, type, position * width + at, left, wide_grad, 0);
    for (size_t k = 0; position + k * length < count; k += TURNS) {
        row_span<T, N> s[TURNS];

        CU_UNROLL for (int i = 0; i < TURNS; ++i) {
            const size_t row = position + (k + (size_t)i) * length;
            if (row < count) span_get(&s[i], g + row * width + at, left, wide);
        }
        CU_UNROLL for (int i = 0; i < TURNS; ++i) if (position + (k + (size_t)i) * length < count)
            token_add(&sum, s[i], 0, MEMOPT_TYPE_F32);
    }
    put_floats<N>(grad, type, position * width + at, sum.x, left, wide_grad);
}

PRUNED status_t clear(void *p, size_t bytes, cudaStream_t stream) {
    return bytes ? taken(cudaMemsetAsync(p, 0, bytes, stream)) : 0;
}

PRUNED void tokens_lay_out(const memopt_embedding *x, token_tables *t, memopt_carver *c) {
    t->room = (uint32_t *)memopt_carve(c, 1, sizeof *t->room, sizeof *t->room);
    t->count = (uint32_t *)memopt_carve(c, x->vocabulary, sizeof *t->count, sizeof *t->count);
    t->last = (uint32_t *)memopt_carve(c, x->vocabulary, sizeof *t->last, sizeof *t->last);
    t->start = (uint32_t *)memopt_carve(c, x->vocabulary, sizeof *t->start, sizeof *t->start);
    t->list = (uint32_t *)memopt_carve(c, x->rows, sizeof *t->list, sizeof *t->list);
}

PRUNED status_t tokens_bytes(const memopt_embedding *x, size_t *bytes) {
    memopt_carver c = memopt_carver_begin(NULL);
    token_tables none;

    tokens_lay_out(x, &none, &c);
    *bytes = c.bytes;
    return c.overflow || x->rows > 0x7fffffffu || x->vocabulary > 0x7fffffffu ? MEMOPT_ERR_OVERFLOW : 0;
}

PUBLIC status_t api::memopt_cuda_embedding_scratch(const memopt_cuda_ops *, const memopt_embedding *x, size_t *bytes) {
    size_t all;
    status_t s;

    if (!bytes) return MEMOPT_CUDA_ERR_NULL;
    if (!x) return MEMOPT_ERR_ARGUMENT;
    if ((s = tokens_bytes(x, &all)) != 0) return s;
    *bytes = all;
    return 0;
}

/* The tables, by three kernels. */
PRUNED status_t tokens_make(const memopt_embedding *x, void *scratch, token_tables *t, cudaStream_t stream) {
    const size_t v = x->vocabulary;
    const size_t blocks = memopt_i_ceil_div(x->rows, LAYER_BLOCK);
    memopt_carver c = memopt_carver_begin(scratch);
    status_t s;

    tokens_lay_out(x, t, &c);
    t->ids = x->ids;
    t->rows = x->rows;
    t->vocabulary = v;
    s = clear(t->room, (1 + 2 * v) * sizeof(uint32_t), stream);
    if (!s) s = CU_RUN(token_count_kernel<>, blocks, LAYER_BLOCK, 0, stream, *t);
    if (!s) s = CU_RUN(token_room_kernel<>, blocks, LAYER_BLOCK, 0, stream, *t);
    if (!s) s = CU_RUN(token_list_kernel<>, blocks, LAYER_BLOCK, 0, stream, *t);
    return s;
}

/* Sums, when the tables are there. Positions that no row has, and tokens, begin with 0 unless they are added to. */
template <class T>
static status_t embedding_sums(const memopt_embedding *x, const token_tables *t, cudaStream_t stream) {
    enum { N = 16 / sizeof(T) };
    const size_t row_bytes = x->width * memopt_type_bytes(x->gradient_type);
    const size_t spans = memopt_i_ceil_div(x->width, N);
    const size_t used = memopt_i_min(x->length, x->rows);
    const bool wide = are_spans(x->grad_output, x->type, x->width, N);
    const T *g = static_cast<const T *>(x->grad_output);
    unsigned block = 32;
    unsigned tiles, blocks;
    status_t s;

    while (block < TOKEN_BLOCK && block < spans) block *= 2;
    if ((s = grid_of(spans, block, &tiles)) != 0) return s;
    if (x->grad_tokens) {
        const bool whole = are_spans(x->grad_tokens, x->gradient_type, x->width, N);

        if ((s = grid_of(x->rows * tiles, 1, &blocks)) != 0) return s;
        if (!x->accumulate) s = clear(x->grad_tokens, x->vocabulary * row_bytes, stream);
        if (!s)
            s = CU_RUN((token_sum_kernel<typename sized<T>::type>), blocks, block, 0, stream, *t,
                       static_cast<const typename sized<T>::type *>(x->grad_output), x->grad_tokens, x->width,
                       x->gradient_type, x->accumulate, tiles, wide, whole, x->type == MEMOPT_TYPE_BF16);
        if (s) return s;
    }
    if (!x->grad_positions) return 0;
    const bool whole = are_spans(x->grad_positions, x->gradient_type, x->width, N);
    if ((s = grid_of(used * tiles, 1, &blocks)) != 0) return s;
    if (!x->accumulate && (s = clear(static_cast<unsigned char *>(x->grad_positions) + used * row_bytes,
                                     (x->length - used) * row_bytes, stream)) != 0) return s;
    return CU_RUN((position_sum_kernel<T>), blocks, block, 0, stream, g, x->grad_positions, x->rows, x->length,
                  x->width, x->gradient_type, x->accumulate, tiles, wide, whole);
}

PUBLIC status_t api::memopt_cuda_embedding_backward(const memopt_cuda_ops *ops, const memopt_embedding *x,
                                                    cudaStream_t stream) {
    token_tables t;
    size_t bytes = 0;
    status_t s;

    if (!x) return MEMOPT_ERR_ARGUMENT;
    if (!x->grad_tokens && !x->grad_positions) return 0;
    if ((s = embedding_check(x, x->grad_output, x->grad_tokens, x->grad_positions, x->gradient_type, 0))
        || (s = tokens_bytes(x, &bytes)) != 0) return s;
    if (!x->width) return 0;
    if (!x->grad_tokens || !x->rows) bytes = 0;
    if ((s = scratch_check(ops, bytes)) != 0 || (s = ready()) != 0) return s;
    memset(&t, 0, sizeof t);
    if (bytes && (s = tokens_make(x, ops->d_scratch, &t, stream)) != 0) return s;
    return CU_WITH(x->type, embedding_sums<T>(x, &t, stream));
}

/* ---- rotary positions ---- */
enum { ROTARY_ANGLES = 1024, ROTARY_ROWS = 32 }; /* of a block, at most */

typedef struct rotary_task {
    memopt_rotary x;     /* with defaults filled in; backward as well: the gradients are input and output */
    unsigned pair, pairs; /* the first, and how many, under way */
    unsigned rows, pitch; /* of a block; of its table of angles, from row to row */
    unsigned shift;      /* 1 << shift threads have a head */
    float    sign;       /* -1: rotate back */
    bool     wide, bf16; /* bf16: what half_t is */
    uint64_t frequencies[MEMOPT_I_ROTARY_PAIRS]; /* of these pairs; 2^64 is a turn a position */
} rotary_task;

/* The angles of a block's rows, which serve all heads. */
CU_DEVICE void rotary_angles(const rotary_task &t, float *cosines, float *sines, size_t first, unsigned count) {
    for (unsigned i = threadIdx.x; i < count * t.pairs; i += LAYER_BLOCK) {
        const unsigned row = i / t.pairs;
        const unsigned pair = i % t.pairs;
        const uint64_t position = t.x.positions ? (uint64_t)t.x.positions[first + row]
                                                : t.x.first + remainder(first + row, t.x.length);
        const uint64_t angle = position * t.frequencies[pair] + ((uint64_t)1 << 31); /* to nearest */
        float sine;

        cosines[row * t.pitch + pair] = memopt_i_times(memopt_i_v1_cosine((uint32_t)(angle >> 32), &sine),
                                                       t.x.magnitude);
        sines[row * t.pitch + pair] = memopt_i_times(t.sign, memopt_i_times(sine, t.x.magnitude));
    }
}

CU_DEVICE void rotate(float *a, float *b, float cosine, float sine) {
    const float x = *a;

    *a = fmaf(x, cosine, memopt_i_times(*b, -sine));
    *b = fmaf(*b, cosine, memopt_i_times(x, sine));
}

/* N pairs from `at` on: two spans, as far apart as half of what is rotated. */
template <class T, int N>
CU_DEVICE void rotary_split(const rotary_task &t, const float *cosines, const float *sines, size_t head, unsigned at) {
    const size_t first = head + t.pair + at;
    const size_t second = first + t.x.rotated / 2;
    const unsigned left = left_of<N>(t.pairs, at);
    const T *from = static_cast<const T *>(t.x.input);
    T *to = static_cast<T *>(t.x.output);
    row_span<T, N> sa, sb;
    row_span<float, N> c, s;
    float a[N], b[N];

    span_get(&sa, from + first, left, t.wide);
    span_get(&sb, from + second, left, t.wide);
    span_get(&c, cosines + at, left, true);
    span_get(&s, sines + at, left, true);
    span_open(a, sa, t.bf16);
    span_open(b, sb, t.bf16);
    CU_UNROLL for (int i = 0; i < N; ++i) rotate(a + i, b + i, element_at(c, i), element_at(s, i));
    span_close(&sa, a, t.bf16);
    span_close(&sb, b, t.bf16);
    span_put(to + first, sa, left, t.wide);
    span_put(to + second, sb, left, t.wide);
}

/* N / 2 pairs from `at` on: a span. */
template <class T, int N> CU_DEVICE void rotary_interleaved(const rotary_task &t, const float *cosines,
                                                            const float *sines, size_t head, unsigned at) {
    const size_t first = head + 2 * (t.pair + at);
    const unsigned left = left_of<N>(2 * t.pairs, 2 * at);
    row_span<T, N> both;
    row_span<float, N / 2> c, s;
    float x[N];

    span_get(&both, static_cast<const T *>(t.x.input) + first, left, t.wide);
    span_get(&c, cosines + at, left / 2, true);
    span_get(&s, sines + at, left / 2, true);
    span_open(x, both, t.bf16);
    CU_UNROLL for (int i = 0; i < N / 2; ++i) rotate(x + 2 * i, x + 2 * i + 1, element_at(c, i), element_at(s, i));
    span_close(&both, x, t.bf16);
    span_put(static_cast<T *>(t.x.output) + first, both, left, t.wide);
}

/* What is not rotated. */
template <class T, int N> CU_DEVICE void rotary_rest(const rotary_task &t, size_t head, unsigned lane, unsigned lanes) {
    row_span<T, N> s;

    for (size_t at = t.x.rotated + lane * N; at < t.x.width; at += (size_t)lanes * N) {
        const unsigned left = left_of<N>(t.x.width, at);

        span_get(&s, static_cast<const T *>(t.x.input) + head + at, left, t.wide);
        span_put(static_cast<T *>(t.x.output) + head + at, s, left, t.wide);
    }
}

template <class T> static __global__ void __launch_bounds__(LAYER_BLOCK) rotary_kernel(rotary_task t) {
    enum { N = 16 / sizeof(T), FLOATS = ROTARY_ANGLES };

    MEMOPT_I_CUDA_SHARED(uint4, angles, [2 * FLOATS / 4]); /* aligned */
    float *cosines = (float *)angles;
    float *sines = cosines + FLOATS;
    const size_t first = (size_t)blockIdx.x * t.rows;
    const unsigned count = (unsigned)memopt_i_min(t.rows, t.x.rows - first);
    const unsigned heads = (unsigned)t.x.heads;
    const unsigned lanes = 1u << t.shift;
    const unsigned lane = threadIdx.x & (lanes - 1);
    rotary_angles(t, cosines, sines, first, count);
    __syncthreads(); /* every angle is there */
    for (unsigned i = threadIdx.x >> t.shift; i < count * heads; i += LAYER_BLOCK >> t.shift) {
        const unsigned row = i / heads;
        const size_t head = (first + row) * t.x.stride + (size_t)(i % heads) * t.x.width;
        const float *c = cosines + row * t.pitch;
        const float *s = sines + row * t.pitch;

        if (t.x.interleaved)
            for (unsigned at = lane * (N / 2); at < t.pairs; at += lanes * (N / 2))
                rotary_interleaved<T, N>(t, c, s, head, at);
        else
            for (unsigned at = lane * N; at < t.pairs; at += lanes * N) rotary_split<T, N>(t, c, s, head, at);
        if (!t.pair && t.x.input != t.x.output) rotary_rest<T, N>(t, head, lane, lanes);
    }
}

/* The defaults, and what the CPU's twin refuses; then the pointers. */
PRUNED status_t rotary_resolve(const memopt_rotary *rotary, int backward, rotary_task *t, size_t *n) {
    memopt_rotary *x = &t->x;
    memopt_i_ops o;

    memset(t, 0, sizeof *t);
    if (memopt_i_ops_resolve(NULL, "rotary", rotary, &o)) return (status_t)o.c.status;
    *x = *rotary;
    x->input = backward ? rotary->grad_output : rotary->input;
    x->output = backward ? rotary->grad_input : rotary->output;
    if (memopt_i_rotary_check(&o, x, "input")) return (status_t)o.c.status;
    if (x->heads > 0x7fffffff / ROTARY_ROWS || x->width > 0x7fffffff) return MEMOPT_ERR_OVERFLOW;
    t->sign = backward ? -1.0f : 1.0f;
    *n = x->rows * x->heads * x->width;
    const array a[] = { { x->input, *n, x->type, 1, 0 }, { x->output, *n, x->type, 1, 1 } };
    return arrays_check(a, 2);
}

PRUNED status_t rotary_run(const memopt_rotary *rotary, int backward, cudaStream_t stream) {
    rotary_task t;
    const memopt_rotary *x = &t.x;
    size_t n = 0;
    status_t s = rotary_resolve(rotary, backward, &t, &n);

    if (s || !n || (s = ready()) != 0) return s;
    const size_t per = 16 / memopt_type_bytes(x->type);
    const size_t half = x->rotated / 2;
    t.bf16 = x->type == MEMOPT_TYPE_BF16;
    t.wide = is_aligned(x->input) && is_aligned(x->output)
          && (x->stride | x->width | x->rotated | (x->interleaved ? 0 : half)) % per == 0;
    for (; t.pair < half && !s; t.pair += t.pairs) {
        t.pairs = (unsigned)memopt_i_min(MEMOPT_I_ROTARY_PAIRS, half - t.pair);
        t.pitch = (t.pairs + 3) & ~3u;
        t.rows = (unsigned)memopt_i_min(ROTARY_ROWS, ROTARY_ANGLES / t.pitch);
        t.shift = row_shift(memopt_i_ceil_div(t.pairs * (x->interleaved ? 2 : 1), per), 1);
        for (unsigned i = 0; i < t.pairs; ++i) t.frequencies[i] = memopt_i_rotary_frequency(x, t.pair + i);
        s = CU_SIZED(x->type, CU_RUN(rotary_kernel<T>, memopt_i_ceil_div(x->rows, t.rows), LAYER_BLOCK, 0, stream, t));
    }
    return s;
}

PUBLIC status_t api::memopt_cuda_rotary_forward(const memopt_cuda_ops *, const memopt_rotary *x, cudaStream_t stream) {
    return rotary_run(x, 0, stream);
}

PUBLIC status_t api::memopt_cuda_rotary_backward(const memopt_cuda_ops *, const memopt_rotary *x, cudaStream_t stream) {
    return rotary_run(x, 1, stream);
}
#endif /* groups */

#if MEMOPT_I_GROUPS & 0x48 /* for operators, muon */
/* @section cuda_gemm : cuda_base api_cuda_gemm
   Products by cuBLASLt.
   Problem    cuBLASLt wants four descriptors and an algorithm for each product. Made anew each time they cost three to
              five allocations of the host's and a heuristic: longer than many a product takes on the card.
   Idea       A table by shape holds all of them. The descriptors lie in the table itself (cublasLt*Init instead of
              *Create): nothing is allocated, so nothing can leak, and the bytes are known before.
   Rows       Row by row is column by column transposed: result^T = right^T left^T. So cuBLASLt's A is our right
              operand, its B the left one, its rows our columns; a bias along our columns is its bias along rows.
   Ways       Descriptors made in each call cost 5 allocations and a heuristic; kept in place, the pointers of bias and
              aux, a hash of 144 bytes, and a look at 8 bytes for each shape in the table.
   Key        is all that a heuristic looks at: shape, strides, types, epilogue, and how far pointers are aligned, up to
              64 bytes, as a tape aligns: where in it a matrix lies changes no bit, and no kernel loads more at once.
              An algorithm found for aligned ones must not meet others. What it does not look at (alpha,
              beta, addresses) is not in it. "There is none" is kept too.
   Split-K    Parts of a sum may be added by COMPUTE_TYPE, in float, and where the result is float also in place; never
              in 16 bits, which would lose what a float accumulator is for. Deterministic gemms do so as well:
              cublasLt.h has COMPUTE_TYPE reduce in a separate step, and INPLACE with counters "to guarantee the
              sequentiality"; cuBLAS's manual (Results Reproducibility) has the same bits at every run, on cards of one
              architecture and as many multiprocessors, by cublasLtMatmul() with a workspace of the caller's.
   Two looks  Operators of several products first find algorithms for all of them, then launch: so that "no algorithm"
              comes before anything has been written.
   Trap       The preference's default alignment is 256 for all matrices; told nothing, the heuristic picks kernels that
              fault on other addresses. Its default workspace is 0, which excludes the fast ones. */

typedef struct shape_of_product { /* in cuBLASLt's terms: D (rows x columns) = A B; compared by its bytes */
    uint64_t rows, columns, depth;
    int64_t  a_leading, b_leading, d_leading, aux_leading, a_step, b_step, d_step;
    int32_t  batch, compute, a_type, b_type, d_type, bias_type;
    uint32_t a_transposed, b_transposed, epilogue, scales, a_align, b_align, d_align, bias_align, aux_align, unused;
} shape_of_product;

typedef struct shape_entry {
    shape_of_product          shape;
    cublasLtMatmulDescOpaque_t   desc;
    cublasLtMatrixLayoutOpaque_t a, b, d;
    cublasLtMatmulAlgo_t         algorithm;
    size_t                       workspace;
    int                          none; /* there is no algorithm */
} shape_entry;

struct api::memopt_cuda_gemm {
    cublasLtHandle_t handle;
    memopt_cuda_gemm_desc desc;      /* with defaults filled in */
    memopt_cuda_gemm_stats counts;
    int    device, capability;       /* 90 for 9.0 */
    size_t used;                     /* entries */
    uint64_t *hashes;
    shape_entry *entries;
};

/* A product with what only the device has: a batch, an epilogue, 8 bits. p.bias is not looked at. */
typedef struct matrix_product {
    memopt_product    p;
    memopt_cuda_gemm_batch batch;    /* count 0 = 1 */
    int               epilogue;      /* cublasLtEpilogue_t; 0 = none */
    const void       *onto;          /* p.accumulate: NULL = the result, or what the product is added to instead */
    float             factor, onto_factor; /* of the product, and of what it is added to; 0 = 1 */
    void             *bias, *aux;    /* the epilogue's: read or written */
    size_t            aux_stride;
    int               bias_type;     /* cudaDataType */
    int               is_fp8, left_code, right_code; /* cudaDataType of operands of 8 bits */
    const float      *left_scale, *right_scale;
} matrix_product;

/* An operand or a result: `stride` elements from row to row, `step` from one of a batch to the next. */
struct matrix {
    const void *data;
    size_t stride;
    memopt_type type;
    int turned;
    size_t step;
};

PRUNED matrix_product product_of(size_t rows, size_t columns, size_t depth, const matrix &left, const matrix &right,
                                 const matrix &result) {
    matrix_product q;

    memset(&q, 0, sizeof q);
    q.p.rows = rows;
    q.p.columns = columns;
    q.p.depth = depth;
    q.p.left = left.data;
    q.p.left_stride = left.stride;
    q.p.left_type = left.type;
    q.p.left_transposed = left.turned;
    q.batch.left_step = left.step;
    q.p.right = right.data;
    q.p.right_stride = right.stride;
    q.p.right_type = right.type;
    q.p.right_transposed = right.turned;
    q.batch.right_step = right.step;
    q.p.result = (void *)(uintptr_t)result.data;
    q.p.result_stride = result.stride;
    q.p.result_type = result.type;
    q.batch.result_step = result.step;
    return q;
}

/* ---- the object ---- */
PRUNED status_t blas(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? 0 : MEMOPT_CUDA_BASE_BLAS + (int)status;
}

PRUNED size_t gemm_shapes(const memopt_cuda_gemm_desc *desc) { return desc->shapes ? desc->shapes : 1024; }

/* The caller's block: the gemm itself, and its table. */
PRUNED void gemm_lay_out(memopt_cuda_gemm *g, size_t shapes, memopt_carver *c) {
    (void)memopt_carve(c, 1, sizeof *g, 8);
    g->entries = (shape_entry *)memopt_carve(c, shapes, sizeof *g->entries, 8);
    g->hashes = (uint64_t *)memopt_carve(c, shapes, sizeof *g->hashes, 8);
}

PUBLIC status_t api::memopt_cuda_gemm_bytes(const memopt_cuda_gemm_desc *desc, size_t *bytes) {
    memopt_carver c = memopt_carver_begin(NULL);
    memopt_cuda_gemm none;

    if (!desc || !bytes) return MEMOPT_CUDA_ERR_NULL;
    gemm_lay_out(&none, gemm_shapes(desc), &c);
    if (c.overflow) return MEMOPT_ERR_OVERFLOW;
    *bytes = c.bytes;
    return 0;
}

PRUNED status_t gemm_open(memopt_cuda_gemm *g) { /* the device, and cuBLASLt */
    int major = 0;
    int minor = 0;
    status_t s = taken(cudaGetDevice(&g->device));

    if (!s) s = taken(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, g->device));
    if (!s) s = taken(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, g->device));
    if (s) return s;
    g->capability = 10 * major + minor;
    return blas(cublasLtCreate(&g->handle));
}

PUBLIC status_t api::memopt_cuda_gemm_create(const memopt_cuda_gemm_desc *desc, void *memory, size_t bytes,
                                             memopt_cuda_gemm **out) {
    memopt_cuda_gemm *g = (memopt_cuda_gemm *)memory;
    memopt_carver c;
    size_t needed;
    status_t s;

    if (!desc || !memory || !out || (!desc->d_workspace && desc->workspace_bytes)) return MEMOPT_CUDA_ERR_NULL;
    if (((uintptr_t)memory & 15) || ((uintptr_t)desc->d_workspace & 255)) return MEMOPT_CUDA_ERR_ALIGNMENT;
    if ((desc->deterministic | desc->tf32 | desc->fast_fp8) & ~1) return MEMOPT_ERR_ARGUMENT;
    if ((s = memopt_cuda_gemm_bytes(desc, &needed)) != 0) return s;
    if (bytes < needed) return MEMOPT_ERR_BUFFER;
    if ((s = ready()) != 0) return s;
    memset(memory, 0, needed);
    g->desc = *desc;
    g->desc.shapes = gemm_shapes(desc);
    c = memopt_carver_begin(memory);
    gemm_lay_out(g, g->desc.shapes, &c);
    if ((s = gemm_open(g)) != 0) return s;
    *out = g;
    return 0;
}

PUBLIC void api::memopt_cuda_gemm_destroy(memopt_cuda_gemm *gemm) {
    if (!gemm) return;
    (void)cublasLtDestroy(gemm->handle);
    gemm->handle = NULL;
}

PUBLIC memopt_cuda_gemm_stats api::memopt_cuda_gemm_get_stats(const memopt_cuda_gemm *gemm) {
    memopt_cuda_gemm_stats none;
    memset(&none, 0, sizeof none);
    return gemm ? gemm->counts : none;
}

/* ---- a product as a shape ---- */
PRUNED size_t gemm_size(int type) { /* bytes of an element */
    return type == CUDA_R_32F ? 4 : type == CUDA_R_16BF || type == CUDA_R_16F ? 2 : 1;
}

PRUNED int gemm_type(memopt_type type) {
    return type == MEMOPT_TYPE_BF16 ? CUDA_R_16BF : type == MEMOPT_TYPE_F16 ? CUDA_R_16F : CUDA_R_32F;
}

/* The largest power of two, up to 64, that every matrix of a batch begins at a multiple of; step in bytes. */
PRUNED uint32_t gemm_alignment(const void *p, size_t step) {
    const uintptr_t x = (uintptr_t)p | (uintptr_t)step | 64;
    return (uint32_t)(x & (~x + 1));
}

PRUNED shape_of_product gemm_shape(const memopt_cuda_gemm *g, const matrix_product *q) {
    const memopt_product *p = &q->p;
    shape_of_product s;

    memset(&s, 0, sizeof s); /* it is compared by its bytes */
    s.rows = p->columns;
    s.columns = p->rows;
    s.depth = p->depth;
    s.a_type = q->is_fp8 ? q->right_code : gemm_type(p->right_type);
    s.b_type = q->is_fp8 ? q->left_code : gemm_type(p->left_type);
    s.d_type = gemm_type(p->result_type);
    s.a_transposed = p->right_transposed != 0;
    s.b_transposed = p->left_transposed != 0;
    s.a_leading = (int64_t)p->right_stride;
    s.b_leading = (int64_t)p->left_stride;
    s.d_leading = (int64_t)p->result_stride;
    s.batch = q->batch.count ? (int32_t)q->batch.count : 1;
    if (s.batch > 1) {
        s.a_step = (int64_t)q->batch.right_step;
        s.b_step = (int64_t)q->batch.left_step;
        s.d_step = (int64_t)q->batch.result_step;
    }
    s.compute = g->desc.tf32 && s.a_type == CUDA_R_32F ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    s.epilogue = q->epilogue ? (uint32_t)q->epilogue : (uint32_t)CUBLASLT_EPILOGUE_DEFAULT;
    s.scales = (q->left_scale ? 1u : 0u) | (q->right_scale ? 2u : 0u);
    s.a_align = gemm_alignment(p->right, (size_t)s.a_step * gemm_size(s.a_type));
    s.b_align = gemm_alignment(p->left, (size_t)s.b_step * gemm_size(s.b_type));
    s.d_align = gemm_alignment((const void *)((uintptr_t)p->result | (uintptr_t)q->onto),
                               (size_t)s.d_step * gemm_size(s.d_type));
    s.bias_type = q->bias ? q->bias_type : 0;
    s.bias_align = gemm_alignment(q->bias, 0);
    s.aux_align = gemm_alignment(q->aux, 0);
    s.aux_leading = q->aux ? (int64_t)q->aux_stride : 0;
    return s;
}

PRUNED uint64_t gemm_hash(const shape_of_product *shape) {
    uint64_t words[sizeof *shape / 8];
    uint64_t h = 0;
    size_t i;

    memcpy(words, shape, sizeof words);
    for (i = 0; i < sizeof words / 8; ++i) h = (h ^ words[i] ^ (h >> 32)) * UINT64_C(0x9e3779b97f4a7c15);
    return h;
}

/* ---- descriptors, and the heuristic ---- */
#define MEMOPT_I_CUDA_SET(object, attribute, type, value)                                                              \
    do { type memopt_i_value = (type)(value);                                                                          \
         if (!s) s = blas(object(attribute, &memopt_i_value, sizeof memopt_i_value)); } while (0)

#define MEMOPT_I_CUDA_OF_DESC(attribute, ...)                                                                          \
    cublasLtMatmulDescSetAttribute(&e->desc, CUBLASLT_MATMUL_DESC_##attribute, __VA_ARGS__)

#define MEMOPT_I_CUDA_OF_LAYOUT(attribute, ...)                                                                        \
    cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_##attribute, __VA_ARGS__)

#define MEMOPT_I_CUDA_OF_PREFERENCE(attribute, ...)                                                                    \
    cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_##attribute, __VA_ARGS__)

PRUNED status_t gemm_layout(cublasLtMatrixLayout_t layout, int type, uint64_t rows, uint64_t columns, int64_t leading,
                            int32_t batch, int64_t step) {
    status_t s = blas(cublasLtMatrixLayoutInit(layout, (cudaDataType)type, rows, columns, leading));

    if (batch == 1) return s;
    MEMOPT_I_CUDA_SET(MEMOPT_I_CUDA_OF_LAYOUT, BATCH_COUNT, int32_t, batch);
    MEMOPT_I_CUDA_SET(MEMOPT_I_CUDA_OF_LAYOUT, STRIDED_BATCH_OFFSET, int64_t, step);
    return s;
}

/* The addresses that a descriptor holds: told anew in each call. The heuristic looks at how they are aligned. */
PRUNED status_t gemm_point(shape_entry *e, const matrix_product *q) {
    status_t s = 0;

    if (q->bias) MEMOPT_I_CUDA_SET(MEMOPT_I_CUDA_OF_DESC, BIAS_POINTER, void *, q->bias);
    if (q->aux) MEMOPT_I_CUDA_SET(MEMOPT_I_CUDA_OF_DESC, EPILOGUE_AUX_POINTER, void *, q->aux);
    if (q->right_scale) MEMOPT_I_CUDA_SET(MEMOPT_I_CUDA_OF_DESC, A_SCALE_POINTER, const void *, q->right_scale);
    if (q->left_scale) MEMOPT_I_CUDA_SET(MEMOPT_I_CUDA_OF_DESC, B_SCALE_POINTER, const void *, q->left_scale);
    return s;
}

PRUNED status_t gemm_describe(const memopt_cuda_gemm *g, const matrix_product *q, shape_entry *e) {
    const shape_of_product *x = &e->shape;
    matrix_product seen = *q; /* addresses that are aligned as the key says, and no better */
    status_t s = blas(cublasLtMatmulDescInit(&e->desc, (cublasComputeType_t)x->compute, CUDA_R_32F));

    if (q->bias) seen.bias = (void *)(uintptr_t)x->bias_align;
    if (q->aux) seen.aux = (void *)(uintptr_t)x->aux_align;
    MEMOPT_I_CUDA_SET(MEMOPT_I_CUDA_OF_DESC, TRANSA, int32_t, x->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    MEMOPT_I_CUDA_SET(MEMOPT_I_CUDA_OF_DESC, TRANSB, int32_t, x->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    MEMOPT_I_CUDA_SET(MEMOPT_I_CUDA_OF_DESC, EPILOGUE, uint32_t, x->epilogue);
    if (q->bias) MEMOPT_I_CUDA_SET(MEMOPT_I_CUDA_OF_DESC, BIAS_DATA_TYPE, int32_t, x->bias_type);
    if (q->aux) MEMOPT_I_CUDA_SET(MEMOPT_I_CUDA_OF_DESC, EPILOGUE_AUX_LD, int64_t, x->aux_leading);
    if (q->is_fp8 && g->desc.fast_fp8) MEMOPT_I_CUDA_SET(MEMOPT_I_CUDA_OF_DESC, FAST_ACCUM, int8_t, 1);
    if (!s) s = gemm_point(e, &seen);
    if (!s) s = gemm_layout(&e->a, x->a_type, x->a_transposed ? x->depth : x->rows,
                            x->a_transposed ? x->rows : x->depth, x->a_leading, x->batch, x->a_step);
    if (!s) s = gemm_layout(&e->b, x->b_type, x->b_transposed ? x->columns : x->depth,
                            x->b_transposed ? x->depth : x->columns, x->b_leading, x->batch, x->b_step);
    if (!s) s = gemm_layout(&e->d, x->d_type, x->rows, x->columns, x->d_leading, x->batch, x->d_step);
    return s;
}

PRUNED status_t gemm_search(memopt_cuda_gemm *g, shape_entry *e) {
    const shape_of_product *x = &e->shape;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t found;
    cublasStatus_t status;
    int count = 0;
    const uint32_t split = (uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                         | (x->d_type == CUDA_R_32F ? (uint32_t)CUBLASLT_REDUCTION_SCHEME_INPLACE : 0u);
    status_t s = blas(cublasLtMatmulPreferenceInit(&preference));

    MEMOPT_I_CUDA_SET(MEMOPT_I_CUDA_OF_PREFERENCE, MAX_WORKSPACE_BYTES, uint64_t, g->desc.workspace_bytes);
    MEMOPT_I_CUDA_SET(MEMOPT_I_CUDA_OF_PREFERENCE, REDUCTION_SCHEME_MASK, uint32_t, split);
    MEMOPT_I_CUDA_SET(MEMOPT_I_CUDA_OF_PREFERENCE, MIN_ALIGNMENT_A_BYTES, uint32_t, x->a_align);
    MEMOPT_I_CUDA_SET(MEMOPT_I_CUDA_OF_PREFERENCE, MIN_ALIGNMENT_B_BYTES, uint32_t, x->b_align);
    MEMOPT_I_CUDA_SET(MEMOPT_I_CUDA_OF_PREFERENCE, MIN_ALIGNMENT_C_BYTES, uint32_t, x->d_align);
    MEMOPT_I_CUDA_SET(MEMOPT_I_CUDA_OF_PREFERENCE, MIN_ALIGNMENT_D_BYTES, uint32_t, x->d_align);
    if (s) return s;
    memset(&found, 0, sizeof found);
    ++g->counts.heuristics;
    status = cublasLtMatmulAlgoGetHeuristic(g->handle, &e->desc, &e->a, &e->b, &e->d, &e->d, &preference, 1, &found,
                                            &count);
    if (status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED
        && status != CUBLAS_STATUS_INVALID_VALUE)
        return blas(status); /* these two: not in this library */
    e->none = status != CUBLAS_STATUS_SUCCESS || count < 1 || found.state != CUBLAS_STATUS_SUCCESS;
    if (!e->none) {
        e->algorithm = found.algo;
        e->workspace = found.workspaceSize;
    }
    return 0;
}

/* Any of them, as the count of heuristics falls: the oldest would be the very one that is needed next, in a step that
   goes through more shapes than there is room for. */
PRUNED size_t gemm_victim(const memopt_cuda_gemm *g) {
    return (size_t)(((uint64_t)g->counts.heuristics * UINT64_C(0x9e3779b97f4a7c15) >> 32) % g->desc.shapes);
}

/* The entry of a product's shape; made where there is none. A failure leaves the table as it was. */
PRUNED status_t gemm_find(memopt_cuda_gemm *g, const matrix_product *q, shape_entry **out) {
    shape_entry made;
    uint64_t hash;
    status_t s;
    size_t i;

    memset(&made, 0, sizeof made);
    made.shape = gemm_shape(g, q);
    hash = gemm_hash(&made.shape);
    for (i = 0; i < g->used; ++i)
        if (g->hashes[i] == hash && !memcmp(&g->entries[i].shape, &made.shape, sizeof made.shape)) break;
    if (i == g->used) {
        if ((s = gemm_describe(g, q, &made)) != 0) return s;
        if ((s = gemm_search(g, &made)) != 0) return s;
        i = g->used < g->desc.shapes ? g->used++ : gemm_victim(g);
        g->hashes[i] = hash;
        g->entries[i] = made;
    }
    *out = &g->entries[i];
    return g->entries[i].none ? MEMOPT_CUDA_ERR_NO_ALGORITHM : 0;
}

/* ---- products without depth: only the beginning ---- */
PRUNED __global__ void __launch_bounds__(256) begin_kernel(matrix_product q, size_t blocks_a_row) {
    const size_t row = blockIdx.x / blocks_a_row;
    const size_t j = blockIdx.x % blocks_a_row * 256 + threadIdx.x;
    const size_t at = row / q.p.rows * q.batch.result_step + row % q.p.rows * q.p.result_stride + j;

    if (j >= q.p.columns) return;
    if (q.p.result_type == MEMOPT_TYPE_F32) ((float *)q.p.result)[at] = q.p.bias ? q.p.bias[j] : 0.0f;
    else ((uint16_t *)q.p.result)[at] = 0;
}

PRUNED status_t gemm_begin(const matrix_product *q, cudaStream_t stream) {
    const size_t a_row = memopt_i_ceil_div(q->p.columns, 256);
    size_t rows;

    if (memopt_i_mul(q->p.rows, memopt_i_max(q->batch.count, 1), &rows) || memopt_i_mul(rows, a_row, &rows))
        return MEMOPT_ERR_OVERFLOW;
    return CU_RUN(begin_kernel<>, rows, 256, 0, stream, *q, a_row);
}

/* ---- a product ---- */
/* Only its algorithm where `plan_only`; else it is launched. Everything about it has been checked. */
PRUNED status_t gemm_run(memopt_cuda_gemm *g, const matrix_product *q, int plan_only, cudaStream_t stream) {
    const float factor = q->factor != 0 ? q->factor : 1.0f;
    const float begin = !q->p.accumulate ? 0.0f : q->onto_factor != 0 ? q->onto_factor : 1.0f;
    shape_entry *e;
    status_t s;

    if (!q->p.rows || !q->p.columns) return 0;
    if (!q->p.depth) return plan_only || q->p.accumulate ? 0 : gemm_begin(q, stream);
    if ((s = gemm_find(g, q, &e)) != 0 || plan_only) return s;
    if ((s = gemm_point(e, q)) != 0) return s;
    s = blas(cublasLtMatmul(g->handle, &e->desc, &factor, q->p.right, &e->a, q->p.left, &e->b, &begin,
                            q->onto ? q->onto : q->p.result, &e->d, q->p.result, &e->d, &e->algorithm,
                            g->desc.d_workspace, e->workspace, stream));
    g->counts.products += !s;
    return s;
}

/* Where no algorithm adds a bias: the result begins as the bias, and the product is added to it. */
PRUNED status_t gemm_onto_bias(memopt_cuda_gemm *g, matrix_product q, cudaStream_t stream) {
    status_t s;

    q.bias = NULL; /* q.p has it for the beginning */
    q.epilogue = 0;
    q.p.accumulate = 1;
    s = gemm_run(g, &q, 1, stream);
    if (!s) s = gemm_begin(&q, stream);
    return s ? s : gemm_run(g, &q, 0, stream);
}

/* Can this gemm work with such operands and results at all? */
PRUNED status_t gemm_types(const memopt_cuda_gemm *g, memopt_type operands, memopt_type result) {
    if (!memopt_type_bytes(operands) || !memopt_type_bytes(result)) return MEMOPT_ERR_ARGUMENT;
    if (operands != result && result != MEMOPT_TYPE_F32) return MEMOPT_CUDA_ERR_TYPE;
    return operands == MEMOPT_TYPE_BF16 && g->capability < 80 ? MEMOPT_CUDA_ERR_TYPE : 0;
}

/* The gemm is there, and of the device that is current; no error is waiting. */
PRUNED status_t gemm_ready(const memopt_cuda_gemm *g) {
    int device = 0;
    status_t s = ready();
    if (!s) s = taken(cudaGetDevice(&device));
    return s ? s : device == g->device ? 0 : MEMOPT_ERR_ARGUMENT;
}

PRUNED status_t gemm_dimension(size_t n) { return n > 0x7fffffff ? MEMOPT_ERR_OVERFLOW : 0; }

/* A matrix of a batch as one: that overlap is looked for in all of it. */
PRUNED status_t gemm_matrix(memopt_i_gemm_matrix *m, size_t count, size_t step, size_t *bytes) {
    const size_t size = memopt_type_bytes(m->type);
    size_t far;
    memopt_i_checks c = memopt_i_checks_begin(NULL, NULL);

    if (!size) return MEMOPT_ERR_ARGUMENT;
    if (m->stride < m->columns || m->stride > 0x7fffffff) return MEMOPT_CUDA_ERR_STRIDE;
    *bytes = 0;
    if (!m->rows || !m->columns || !count) return 0;
    if (!m->data) return MEMOPT_CUDA_ERR_NULL;
    if ((uintptr_t)m->data & (size - 1)) return MEMOPT_CUDA_ERR_ALIGNMENT;
    if (memopt_i_gemm_check(&c, m, bytes)) return (status_t)c.status;
    if (memopt_i_mul(count - 1, step, &far) || memopt_i_mul(far, size, &far) || memopt_i_add(far, *bytes, bytes)
        || *bytes > SIZE_MAX / 2) return MEMOPT_ERR_OVERFLOW;
    return 0;
}

PRUNED int gemm_overlap(const memopt_i_gemm_matrix *a, size_t a_bytes, const memopt_i_gemm_matrix *b,
                        size_t b_bytes, size_t count) {
    return count > 1 ? memopt_i_overlaps(a->data, a_bytes, b->data, b_bytes)
                     : memopt_i_gemm_overlap(a, a_bytes, b, b_bytes);
}

PRUNED status_t gemm_check(const memopt_product *p, const memopt_cuda_gemm_batch *batch) {
    memopt_i_gemm_matrix m[4];
    size_t bytes[4], i, far;
    status_t s;
    const size_t steps[4] = { batch->result_step, batch->left_step, batch->right_step, 0 };

    if ((p->left_transposed | p->right_transposed | p->accumulate) & ~1) return MEMOPT_ERR_ARGUMENT;
    if (p->accumulate && p->bias) return MEMOPT_ERR_ARGUMENT;
    if (gemm_dimension(p->rows) || gemm_dimension(p->columns) ||
        gemm_dimension(p->depth) || gemm_dimension(batch->count))
        return MEMOPT_ERR_OVERFLOW;
    m[0] = memopt_i_gemm_matrix_of(p->result, p->rows, p->columns, 0, p->result_stride, p->result_type);
    m[1] = memopt_i_gemm_matrix_of(p->left, p->rows, p->depth, p->left_transposed, p->left_stride, p->left_type);
    m[2] = memopt_i_gemm_matrix_of(p->right, p->depth, p->columns, p->right_transposed, p->right_stride, p->right_type);
    m[3] = memopt_i_gemm_matrix_of(p->bias, p->bias != NULL, p->columns, 0, p->columns, MEMOPT_TYPE_F32);
    for (i = 0; i < 4; ++i)
        if ((s = gemm_matrix(&m[i], batch->count, steps[i], &bytes[i])) != 0) return s;
    for (i = 1; i < 4; ++i)
        if (gemm_overlap(&m[0], bytes[0], &m[i], bytes[i], batch->count)) return MEMOPT_CUDA_ERR_OVERLAP;
    if (batch->count < 2 || !p->rows || !p->columns) return 0;
    far = (batch->count - 1) * steps[0] + p->columns; /* results side by side in rows, or one after the other */
    if (steps[0] < (p->rows - 1) * p->result_stride + p->columns
        && (steps[0] < p->columns || far > p->result_stride)) return MEMOPT_CUDA_ERR_STRIDE;
    return 0;
}

PUBLIC status_t api::memopt_cuda_gemm_multiply_batch(memopt_cuda_gemm *gemm, const memopt_product *product,
                                                     const memopt_cuda_gemm_batch *batch, cudaStream_t stream) {
    const memopt_product *p = product;
    matrix_product q;
    status_t s;

    if (!gemm || !p || !batch) return MEMOPT_CUDA_ERR_NULL;
    if ((s = gemm_check(p, batch)) != 0) return s;
    if (p->left_type != p->right_type || p->quantized) return MEMOPT_CUDA_ERR_TYPE;
    if ((s = gemm_types(gemm, p->left_type, p->result_type)) != 0) return s;
    if (p->bias && p->result_type != MEMOPT_TYPE_F32) return MEMOPT_CUDA_ERR_TYPE;
    if (!batch->count) return 0;
    memset(&q, 0, sizeof q);
    q.p = *p;
    q.batch = *batch;
    if (p->bias && p->depth) {
        q.bias = (void *)(uintptr_t)p->bias;
        q.bias_type = CUDA_R_32F;
        q.epilogue = CUBLASLT_EPILOGUE_BIAS;
    }
    if ((s = gemm_ready(gemm)) != 0) return s;
    s = gemm_run(gemm, &q, 0, stream);
    return q.bias && s == MEMOPT_CUDA_ERR_NO_ALGORITHM ? gemm_onto_bias(gemm, q, stream) : s;
}

PUBLIC status_t api::memopt_cuda_gemm_multiply(memopt_cuda_gemm *gemm, const memopt_product *product,
                                               cudaStream_t stream) {
    memopt_cuda_gemm_batch one;
    memset(&one, 0, sizeof one);
    one.count = 1;
    return memopt_cuda_gemm_multiply_batch(gemm, product, &one, stream);
}

/* ---- 8 bits: cuBLASLt takes them only as A^T B, which is left right^T of rows ---- */
PRUNED int fp8_code(memopt_cuda_fp8 type) {
    return type == MEMOPT_CUDA_FP8_E4M3 ? CUDA_R_8F_E4M3 : type == MEMOPT_CUDA_FP8_E5M2 ? CUDA_R_8F_E5M2 : -1;
}

PRUNED status_t fp8_check(const memopt_cuda_fp8_product *p) {
    const size_t size = memopt_type_bytes(p->result_type);
    size_t left, right, result;

    if (fp8_code(p->left_type) < 0 || fp8_code(p->right_type) < 0 || !size
        || (p->accumulate & ~1) || (p->accumulate && p->d_bias)) return MEMOPT_ERR_ARGUMENT;
    if (p->left_type == MEMOPT_CUDA_FP8_E5M2 && p->right_type == MEMOPT_CUDA_FP8_E5M2) return MEMOPT_CUDA_ERR_TYPE;
    if (gemm_dimension(p->rows) || gemm_dimension(p->columns) || gemm_dimension(p->depth)) return MEMOPT_ERR_OVERFLOW;
    if ((p->rows | p->columns | p->depth | p->left_stride | p->right_stride | p->result_stride * size) & 15)
        return MEMOPT_CUDA_ERR_STRIDE;
    if (p->left_stride < p->depth || p->right_stride < p->depth || p->result_stride < p->columns
        || p->left_stride > 0x7fffffff || p->right_stride > 0x7fffffff || p->result_stride > 0x7fffffff)
        return MEMOPT_CUDA_ERR_STRIDE;
    if (!p->rows || !p->columns) return 0;
    if (!p->d_result || (p->depth && (!p->d_left || !p->d_right))) return MEMOPT_CUDA_ERR_NULL;
    if (((uintptr_t)p->d_left | (uintptr_t)p->d_right | (uintptr_t)p->d_result | (uintptr_t)p->d_left_scale
         | (uintptr_t)p->d_right_scale) & 15 || (uintptr_t)p->d_bias & 1) return MEMOPT_CUDA_ERR_ALIGNMENT;
    left = p->left_stride * (p->rows - 1) + p->depth;
    right = p->right_stride * (p->columns - 1) + p->depth;
    result = (p->result_stride * (p->rows - 1) + p->columns) * size;
    if (no_overlap(p->d_result, result, p->d_left, left) || no_overlap(p->d_result, result, p->d_right, right)
        || no_overlap(p->d_result, result, p->d_bias, 2 * p->columns)
        || no_overlap(p->d_result, result, p->d_left_scale, 4)
        || no_overlap(p->d_result, result, p->d_right_scale, 4)) return MEMOPT_CUDA_ERR_OVERLAP;
    return 0;
}

PUBLIC status_t api::memopt_cuda_gemm_multiply_fp8(memopt_cuda_gemm *gemm, const memopt_cuda_fp8_product *product,
                                                   cudaStream_t stream) {
    const memopt_cuda_fp8_product *p = product;
    matrix_product q;
    status_t s;
    const memopt_type none = MEMOPT_TYPE_F32; /* the codes of operands say what they are */

    if (!gemm || !p) return MEMOPT_CUDA_ERR_NULL;
    if ((s = fp8_check(p)) != 0) return s;
    if (gemm->capability < 89 || (p->d_bias && !p->depth)) return MEMOPT_CUDA_ERR_TYPE;
    q = product_of(p->rows, p->columns, p->depth, { p->d_left, p->left_stride, none, 0, 0 },
                   { p->d_right, p->right_stride, none, 1, 0 },
                   { p->d_result, p->result_stride, p->result_type, 0, 0 });
    q.p.accumulate = p->accumulate;
    q.is_fp8 = 1;
    q.left_code = fp8_code(p->left_type);
    q.right_code = fp8_code(p->right_type);
    q.left_scale = p->d_left_scale;
    q.right_scale = p->d_right_scale;
    if (p->d_bias) {
        q.bias = (void *)(uintptr_t)p->d_bias;
        q.epilogue = CUBLASLT_EPILOGUE_BIAS;
        q.bias_type = p->result_type == MEMOPT_TYPE_F16 ? CUDA_R_16F : CUDA_R_16BF;
    }
    if ((s = gemm_ready(gemm)) != 0) return s;
    return gemm_run(gemm, &q, 0, stream);
}
#endif /* groups */

#if MEMOPT_I_GROUPS & 0x40 /* for muon */
/* @section cuda_muon : cuda_optim cuda_scale cuda_gemm cuda_base api_cuda_muon
   Muon: u of a matrix by the kernels of optimizers, Newton-Schulz by cuBLASLt, the weights by those kernels again.
   Rule       See section `muon` of memopt.h. With n the elements of a matrix and s the smaller of its sides:
                X = u             the momentum steps; u is written where others have weights    n: 6 to 16 bytes
                norm of X         by section cuda_scale: a sum of a fixed order                   n: 2 or 4 bytes
                X = X / norm      in place                                                        n: 4 or 8 bytes
                A = X X^T         this and the next two 5 times; tall: X^T X                      2 s n operations
                B = b A + c A A   the factors are cuBLASLt's alpha and beta                       2 s^3 operations
                Y = a X + B X     tall: X B; then X and Y change places                           2 s n operations
                w                 X is read where others have the momentum                        n: 8 to 20 bytes
   Memory     X and Y, both whole: a product that adds in place would read what its other blocks have written. Strips
              of X, as on the CPU, would halve that, by smaller products and a copy of each; all other memory of a step
              is for a whole model, this for one matrix.
   Symmetric  A and B are, but products are made whole: cuBLASLt has none that makes a half, and strips of rows up to
              the diagonal, as on the CPU, are many small ones.
   Skipped    Elements whose gradient is not finite: found in both passes, counted in the first. 0 in u, so 0 in X.
   Known      What only the device knows is in the optimizer's terms, made for AdamW at begin; a launch of one thread
              makes those of the matrix of them. A step that is stopped, or left out, multiplies whatever lies in X, and
              no weight sees it. */

#ifndef MEMOPT_CUDA_NO_SCALE
#ifndef MEMOPT_CUDA_ONLY_ADAMW
enum { MUON_THREADS = 256, MUON_VECTOR = 8 };

struct muon_products { /* in memopt_cuda_muon */
    memopt_muon       host; /* first: what a desc points to */
    optim_muon        device;
    memopt_cuda_gemm *gemm;
};

static_assert(sizeof(muon_products) <= sizeof(memopt_cuda_muon), "it has room");

struct muon_matrix { /* that is under way, and its scratch */
    const optim_call *call;
    const muon_products *products;
    const memopt_optim_tensor *tensor;
    memopt_i_tensor_part part; /* with the rule of this matrix */
    memopt_type type;
    size_t rows, columns, side;
    optim_terms *by;           /* what only the device knows of the rule */
    memopt_gradient_total *total;
    memopt_cuda_gradient_sum *pieces;
    unsigned char *x, *next, *square, *polynomial; /* X, Y, A, B */
};

PRUNED size_t muon_pieces(const muon_matrix *m) {
    return 1 + memopt_i_ceil_div(m->rows * m->columns, MEMOPT_I_SCALE_PIECE);
}

PRUNED void muon_lay_out(muon_matrix *m, memopt_carver *c) {
    const size_t size = memopt_type_bytes(m->type);

    m->by = (optim_terms *)memopt_carve(c, 1, sizeof *m->by, 256);
    m->total = (memopt_gradient_total *)memopt_carve(c, 1, sizeof *m->total, 256);
    m->pieces = (memopt_cuda_gradient_sum *)memopt_carve(c, muon_pieces(m), sizeof *m->pieces, 256);
    m->x = (unsigned char *)memopt_carve(c, m->rows * m->columns, size, 256);
    m->next = (unsigned char *)memopt_carve(c, m->rows * m->columns, size, 256);
    m->square = (unsigned char *)memopt_carve(c, m->side, m->side * size, 256);
    m->polynomial = (unsigned char *)memopt_carve(c, m->side, m->side * size, 256);
    (void)memopt_carve(c, 0, 1, 256);
}

PRUNED void muon_shape(muon_matrix *m, memopt_type type, const memopt_optim_tensor *t) {
    memset(m, 0, sizeof *m);
    m->type = type;
    m->tensor = t;
    m->rows = t->count / t->columns;
    m->columns = t->columns;
    m->side = memopt_i_min(m->rows, m->columns);
}

PRUNED size_t muon_scratch(const memopt_optim_desc *d, const memopt_optim_tensor *t) {
    memopt_carver c = memopt_carver_begin(NULL);
    muon_matrix m;

    muon_shape(&m, d->muon->type, t);
    muon_lay_out(&m, &c);
    return c.overflow ? SIZE_MAX : c.bytes;
}

PRUNED size_t muon_no_bytes(const memopt_optim_desc *d, const memopt_optim_tensor *t) { /* of the host */
    (void)d;
    (void)t;
    return 0;
}

PRUNED void muon_begin(muon_matrix *m, const optim_call *c, size_t tensor) {
    memopt_carver carver = memopt_carver_begin(c->at.muon);

    muon_shape(m, c->o->desc.muon->type, &c->o->desc.tensors[tensor]);
    muon_lay_out(m, &carver);
    m->call = c;
    m->products = (const muon_products *)(const void *)c->o->desc.muon;
    m->part = c->o->parts[tensor];
    memopt_i_muon_rule(&m->part, m->tensor);
}

/* ---- products ---- */
/* A by X, B by A, Y by X and B. */
PRUNED void muon_products_of(const muon_matrix *m, matrix_product *q) {
    const size_t other = memopt_i_max(m->rows, m->columns);
    const int tall = m->rows > m->columns;
    const matrix x = { m->x, m->columns, m->type, 0, 0 };
    const matrix turned = { m->x, m->columns, m->type, 1, 0 };
    const matrix square = { m->square, m->side, m->type, 0, 0 };
    const matrix polynomial = { m->polynomial, m->side, m->type, 0, 0 };
    const matrix next = { m->next, m->columns, m->type, 0, 0 };
    const double a = 3.4445;
    const double b = -4.7750;
    const double c = 2.0315;

    q[0] = product_of(m->side, m->side, other, tall ? turned : x, tall ? x : turned, square);
    q[1] = product_of(m->side, m->side, m->side, square, square, polynomial);
    q[2] = product_of(m->rows, m->columns, m->side, tall ? x : polynomial, tall ? polynomial : x, next);
    q[1].p.accumulate = q[2].p.accumulate = 1;
    q[1].onto = m->square;
    q[1].onto_factor = (float)b;
    q[1].factor = (float)c;
    q[2].onto = m->x;
    q[2].onto_factor = (float)a;
}

/* Whether the gemm can do it: algorithms are found before anything is launched. */
PRUNED status_t muon_check(const optim_call *c, size_t tensor) {
    matrix_product q[3];
    muon_matrix m;
    memopt_cuda_gemm *gemm;
    status_t s;

    muon_begin(&m, c, tensor);
    gemm = m.products->gemm;
    if (!gemm)
        return memopt_i_optim_fail(c->o, MEMOPT_ERR_ARGUMENT, "muon has no gemm: give memopt_cuda_muon_products() one");
    if (gemm_dimension(m.rows) || gemm_dimension(m.columns))
        return memopt_i_optim_fail_at(c->o, MEMOPT_ERR_OVERFLOW, "the matrix has a side of 2^31 or more", tensor);
    s = gemm_types(gemm, m.type, m.type);
    if (s) return s;
    s = gemm_ready(gemm);
    if (s == MEMOPT_ERR_ARGUMENT)
        return memopt_i_optim_fail(c->o, MEMOPT_ERR_ARGUMENT, "muon's gemm is of another device than the current one");
    muon_products_of(&m, q);
    for (int i = 0; i < 3 && !s; ++i) s = gemm_run(gemm, &q[i], 1, c->stream);
    return s;
}

/* ---- X, of norm 1 ---- */
PRUNED __device__ __forceinline__ float muon_norm(const float *, double squares) { return (float)sqrt(squares); }

PRUNED __device__ __forceinline__ float muon_norm(const bf16_t *, double squares) { /* as torch has it */
    return memopt_from_bf16(memopt_to_bf16((float)sqrt(squares)));
}

template <class T> static __global__ void __launch_bounds__(MUON_THREADS)
muon_scale_kernel(T *x, uint64_t n, const memopt_gradient_total *total, float eps) {
    MEMOPT_I_CUDA_SHARED(float, inverse, [1]);
    const uint64_t at = ((uint64_t)blockIdx.x * MUON_THREADS + threadIdx.x) * MUON_VECTOR;
    const unsigned left = left_of<MUON_VECTOR>(n, at);
    row_span<T, MUON_VECTOR> span;
    float f[MUON_VECTOR];

    if (threadIdx.x == 0) {
        const float norm = muon_norm(x, total->squares);
        inverse[0] = memopt_i_quotient(1, norm > eps ? norm : eps);
    }
    span_get(&span, x + at, left, true);
    __syncthreads();
    span_floats(f, span);
    CU_UNROLL for (int i = 0; i < MUON_VECTOR; ++i) f[i] = memopt_i_times(f[i], inverse[0]);
    span_put_floats<T, MUON_VECTOR>(x + at, f, left, true);
}

PRUNED status_t muon_normalize(const muon_matrix *m) {
    const size_t n = m->rows * m->columns;
    const size_t blocks = memopt_i_ceil_div(n, MUON_THREADS * MUON_VECTOR);
    const float eps = m->part.rule.eps;
    memopt_gradient u;
    memopt_gradients list;
    status_t s;

    memset(&u, 0, sizeof u);
    memset(&list, 0, sizeof list);
    u.values = m->x;
    u.count = n;
    u.type = m->type;
    list.tensors = &u;
    list.count = 1;
    list.scratch = m->pieces;
    list.scratch_bytes = muon_pieces(m) * sizeof *m->pieces;
    s = memopt_cuda_gradients_measure(&list, m->total, NULL, m->call->stream);
    if (s) return s;
    if (m->type == MEMOPT_TYPE_F32)
        return CU_RUN(muon_scale_kernel<float>, blocks, MUON_THREADS, 0, m->call->stream, (float *)(void *)m->x, n,
                      m->total, eps);
    return CU_RUN(muon_scale_kernel<bf16_t>, blocks, MUON_THREADS, 0, m->call->stream, (bf16_t *)(void *)m->x, n,
                  m->total, eps);
}

PRUNED status_t muon_orthogonalize(muon_matrix *m) {
    status_t s = muon_normalize(m);

    for (int round = 0; round < 5 && !s; ++round) {
        unsigned char *const made = m->next;
        matrix_product q[3];

        muon_products_of(m, q);
        for (int i = 0; i < 3 && !s; ++i) s = gemm_run(m->products->gemm, &q[i], 0, m->call->stream);
        m->next = m->x;
        m->x = made;
    }
    return s;
}

/* ---- momentum and weights ---- */
PRUNED __global__ void __launch_bounds__(32) muon_terms_kernel(optim_terms *to, const optim_terms *of, double beta1,
                                                               double weight_decay, double scale) {
    optim_terms x = *of;
    const memopt_i_muon_terms m = memopt_i_muon_terms_of(beta1, weight_decay, scale, x.gradient.y, x.rate);

    x.gradient.y = m.factor;
    x.gradient.z = 1;
    x.step.x = m.step;
    x.step.y = m.decay;
    *to = x;
}

PRUNED status_t muon_terms(const muon_matrix *m, size_t tensor) {
    const memopt_optim_group *g = &m->part.group;
    const optim_terms *of = optim_by_of(m->call);

    if (!of) return 0;
    return CU_RUN(muon_terms_kernel<>, 1, 1, 0, m->call->stream, m->by, of + tensor, g->beta1, g->weight_decay,
                  memopt_i_muon_scale(g, m->tensor));
}

/* All of the matrix as the only slice of a table, whose terms are its own. */
PRUNED void muon_batch(const muon_matrix *m, size_t tensor, memopt_state_format format, optim_batch *b) {
    optim_table *t = &b->table;

    optim_batch_of(m->call, b, OPTIM_APPLY, format);
    optim_slice_of(m->call, tensor, 0, m->part.held, &t->slice[0]);
    t->slice[0].tensor = 0;
    t->rule[0] = m->part.rule;
    t->count = t->rules = 1;
    if (t->by) t->by = m->by;
    t->tile = memopt_i_is_coded(format) ? (uint32_t)(OPTIM_CODED / t->block * t->block) : (uint32_t)OPTIM_TILE;
    b->tiles = memopt_i_ceil_div(m->part.held, t->tile);
}

PRUNED status_t muon_momentum(const muon_matrix *m, size_t tensor) {
    const size_t gradients = 4 * memopt_type_bytes(m->call->o->desc.gradients);
    const cudaStream_t stream = m->call->stream;
    optim_batch b;

    muon_batch(m, tensor, m->part.format, &b);
    b.table.weights = m->type == MEMOPT_TYPE_F32 ? (uint32_t)MEMOPT_I_WEIGHTS_F32 : (uint32_t)MEMOPT_I_WEIGHTS_BF16;
    b.table.slice[0].weights = m->x;
    b.table.slice[0].aligned = !optim_misaligned(m->tensor->gradients, gradients);
    if (memopt_i_is_coded(m->part.format))
        return CU_RUN((optim_coded_kernel<OPTIM_MUON>), b.tiles, OPTIM_CODED / 4, 0, stream, b.table);
    return CU_RUN((optim_floats_kernel<OPTIM_MUON, OPTIM_MIXED>), b.tiles, OPTIM_THREADS, 0, stream, b.table);
}

PRUNED status_t muon_weights(const muon_matrix *m, size_t tensor) {
    optim_batch b;

    muon_batch(m, tensor, m->type == MEMOPT_TYPE_F32 ? MEMOPT_STATE_F32 : MEMOPT_STATE_BF16, &b);
    b.table.slice[0].moment[0] = m->x;
    return CU_RUN((optim_floats_kernel<OPTIM_MUON_WEIGHTS, OPTIM_MIXED>), b.tiles, OPTIM_THREADS, 0, m->call->stream,
                  b.table);
}

PRUNED status_t muon_step(const optim_call *c, size_t tensor) {
    muon_matrix m;
    status_t s;

    muon_begin(&m, c, tensor);
    s = muon_terms(&m, tensor);
    if (!s) s = muon_momentum(&m, tensor);
    if (!s) s = muon_orthogonalize(&m);
    return s ? s : muon_weights(&m, tensor);
}
#endif

PUBLIC const memopt_muon *api::memopt_cuda_muon_products(memopt_cuda_muon *muon, memopt_cuda_gemm *gemm,
                                                         memopt_type products) {
#ifndef MEMOPT_CUDA_ONLY_ADAMW
    muon_products *const p = (muon_products *)(void *)muon;

    if (!muon || (products != MEMOPT_TYPE_F32 && products != MEMOPT_TYPE_BF16)) return NULL;
    memset(muon, 0, sizeof *muon);
    p->host.type = products;
    p->host.check_fn = memopt_i_muon_check;
    p->host.bytes_fn = muon_no_bytes;
    p->host.device = &p->device;
    p->device.bytes_fn = muon_scratch;
    p->device.check_fn = muon_check;
    p->device.step_fn = muon_step;
    p->gemm = gemm;
    return &p->host;
#else
    (void)muon;
    (void)gemm;
    (void)products;
    return NULL;
#endif
}
#endif /* MEMOPT_CUDA_NO_SCALE */

#endif /* groups */

#if MEMOPT_I_GROUPS & 0x08 /* for operators */
/* @section cuda_linear : cuda_base cuda_fp8 cuda_fused cuda_gemm cuda_layer api_cuda_linear
   Linear layers.
   Problem    Bias, activation, their gradients: each a pass over the outputs, of which the product alone needs one.
   Idea       cuBLASLt works them out in the product's epilogue, while the sums are in registers. What it has no
              epilogue for is a kernel of `layer` after the product.
   Ways       By kernels bias and GELU move 8 bytes for an output of 2, and 8 backward. In the epilogues there remain
              `pre_activation`, written (GELU_AUX_BIAS) and read (DGELU); a bias gradient in the one of the weights'
              product (BGRADB) moves nothing.
   Epilogues  forward: GELU_AUX wants `pre_activation` with rows of a multiple of 8. RELU_AUX gives a bit mask, not
              `pre_activation`, so ReLU is in the epilogue where nobody wants `pre_activation`. SiLU has none. Backward:
              the gradient goes through the activation of the layer that made our input, so it is DGELU of the product
              that makes grad_input. BGRADB sums the columns of the product's right operand over its depth, the rows of
              grad_output.
   Fallback   Which epilogues there are for a type, a shape and a card, cuBLASLt tells only when it is asked: no
              algorithm with an epilogue means the next simpler one, and a kernel. What was found is in the gemm's
              table.
   Sums       Of bias gradients by our own kernels: a block adds 256 columns of some rows (8 columns a thread, a warp
              each 8th row, 4 loads in flight), and a second kernel adds what the blocks left in their order. The shape
              alone says how many. An epilogue's sums are in cuBLASLt's order, so a deterministic gemm does not use
              them; and it cannot add onto what is there, so that goes through scratch.
   8 bits     The same products with other operands, made of the matrices when algorithms for all products are known.
              Each matrix is quantised once, in both orders: 4 bytes of bf16 read and written forward, and of the
              gradient; the input that is kept has 1 byte and not 2. Of epilogues only the bias is asked for, and only
              in 16 bits; for all else there are the kernels. */

enum { SUM_PARTS = 128, SUM_ROWS = 64 };

/* Rows of partial sums of a bias gradient. */
PRUNED size_t linear_parts(const memopt_linear *x) {
    const size_t tiles = memopt_i_max(memopt_i_ceil_div(x->outputs, 256), 1);
    const size_t max = memopt_i_max(memopt_i_min(1024 / tiles, SUM_PARTS), 1);
    return memopt_i_max(memopt_i_min(memopt_i_ceil_div(x->rows, SUM_ROWS), max), 1);
}

/* 8 elements of `n` rows (4 or 1) `step` apart, added to sums in the order of rows; all loads come first. */
template <typename T, int n> CU_DEVICE void sum_eight(float *sums, const T *row, size_t step) {
    uint4 words[n][sizeof(T) / 2];

    CU_UNROLL for (int k = 0; k < n; ++k) for (int i = 0; i < (int)(sizeof(T) / 2); ++i) words[k][i] =
        reinterpret_cast<const uint4 *>(row + k * step)[i];
    CU_UNROLL for (int k = 0; k < n; ++k) {
        T x[8];
        memcpy(x, words[k], sizeof x);
        CU_UNROLL for (int i = 0; i < 8; ++i) sums[i] = memopt_i_sum(sums[i], load_one(&x[i]));
    }
}

typedef struct sum_task {
    const void *rows;          /* count x width */
    size_t      count, width, parts, each; /* rows of a part */
    float      *partial;       /* parts x width */
    void       *sums;
    int         wide, accumulate;
} sum_task;

template <typename T> static __global__ void __launch_bounds__(256) columns_kernel(sum_task t) {
    MEMOPT_I_CUDA_SHARED(float, part, [8][256 + 8]);
    const size_t tiles = (t.width + 255) / 256;
    const size_t tile = blockIdx.x % tiles;
    const size_t first = blockIdx.x / tiles * t.each;
    const size_t end = memopt_i_min(first + t.each, t.count);
    const size_t lane = threadIdx.x & 31;
    const size_t warp = threadIdx.x >> 5;
    const size_t j = tile * 256 + lane * 8;
    const T *rows = (const T *)t.rows;
    float sums[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    size_t row = first + warp;
    if (t.wide && j + 8 <= t.width) {
        for (; row + 24 < end; row += 32) sum_eight<T, 4>(sums, rows + row * t.width + j, 8 * t.width);
        for (; row < end; row += 8) sum_eight<T, 1>(sums, rows + row * t.width + j, 0);
    } else
        for (; row < end; row += 8)
            for (int i = 0; i < 8; ++i)
                if (j + i < t.width) sums[i] = memopt_i_sum(sums[i], load_one(rows + row * t.width + j + i));
    for (int i = 0; i < 8; ++i) part[warp][i * 32 + lane] = sums[i]; /* lanes side by side: no bank conflicts */
    __syncthreads(); /* sums of all warps */
    float sum = 0;
    for (int i = 0; i < 8; ++i) sum = memopt_i_sum(sum, part[i][threadIdx.x]);
    const size_t column = tile * 256 + lane * 8 + warp; /* of slot (warp, lane): element `warp` of that lane */
    if (column < t.width) t.partial[blockIdx.x / tiles * t.width + column] = sum;
}

/* The partial sums of t.parts, added up in their order. */
PRUNED __global__ void __launch_bounds__(128) total_kernel(sum_task t, memopt_type type) {
    const size_t j = (size_t)blockIdx.x * 128 + threadIdx.x;

    if (j >= t.width) return;
    float sum = t.accumulate ? one_of(t.sums, type, j) : 0.0f;
    CU_UNROLL for (size_t i = 0; i < t.parts; ++i) sum = memopt_i_sum(sum, t.partial[i * t.width + j]);
    put_one(t.sums, type, j, sum);
}

PRUNED status_t linear_total(const sum_task *t, memopt_type type, cudaStream_t stream) {
    return CU_RUN(total_kernel<>, memopt_i_ceil_div(t->width, 128), 128, 0, stream, *t, type);
}

PRUNED status_t linear_sum(const memopt_cuda_ops *ops, const memopt_linear *x, cudaStream_t stream) {
    sum_task t;
    status_t s = 0;
    const size_t size = memopt_type_bytes(x->type);

    memset(&t, 0, sizeof t);
    t.rows = x->grad_output;
    t.count = x->rows;
    t.width = x->outputs;
    t.partial = (float *)ops->d_scratch;
    t.sums = x->grad_bias;
    t.accumulate = x->accumulate;
    t.parts = x->rows ? linear_parts(x) : 0;
    t.wide = !(((uintptr_t)t.rows | t.width * size) & 15);
    if (t.parts) {
        t.each = memopt_i_ceil_div(t.count, t.parts);
        t.parts = memopt_i_ceil_div(t.count, t.each);
        s = CU_WITH(x->type, CU_RUN(columns_kernel<T>, t.parts * memopt_i_ceil_div(t.width, 256), 256, 0, stream, t));
    }
    return s ? s : linear_total(&t, x->gradient_type, stream);
}

/* ---- what forward and backward have in common ---- */
PRUNED status_t linear_resolve(const memopt_linear *x, size_t *bytes) {
    size_t parts;

    if (!x || !memopt_type_bytes(x->type) || !memopt_type_bytes(x->weight_type)
        || ((x->accumulate | x->accumulate_input) & ~1)) return MEMOPT_ERR_ARGUMENT;
    if (x->type != x->weight_type || x->quantized) return MEMOPT_CUDA_ERR_TYPE;
    if (gemm_dimension(x->rows) || gemm_dimension(x->inputs) || gemm_dimension(x->outputs)
        || memopt_i_ops_too_large(x->rows, x->inputs, x->type) || memopt_i_ops_too_large(x->rows, x->outputs, x->type)
        || memopt_i_ops_too_large(x->outputs, x->inputs, MEMOPT_TYPE_F32)) return MEMOPT_ERR_OVERFLOW;
    parts = linear_parts(x);
    if (memopt_i_mul(parts, x->outputs, &parts) || memopt_i_mul(parts, sizeof(float), &parts))
        return MEMOPT_ERR_OVERFLOW;
    *bytes = x->grad_bias ? parts : 0;
    return 0;
}

PUBLIC status_t api::memopt_cuda_linear_scratch(const memopt_cuda_ops *, const memopt_linear *linear, size_t *bytes) {
    size_t all;
    status_t s;

    if (!bytes) return MEMOPT_CUDA_ERR_NULL;
    if ((s = linear_resolve(linear, &all)) == 0) *bytes = all;
    return s;
}

/* A pointer to count elements that the work cannot do without; NULL is fine where there are none. */
PRUNED status_t linear_pointer(const void *p, memopt_type type, size_t count) {
    return count ? pointer(p, memopt_type_bytes(type)) : pointer_if(p, memopt_type_bytes(type));
}

PRUNED status_t linear_scratch(const memopt_cuda_ops *ops, size_t bytes) {
    if ((uintptr_t)ops->d_scratch & 255) return MEMOPT_CUDA_ERR_ALIGNMENT;
    return ops->scratch_bytes < bytes || (bytes && !ops->d_scratch) ? MEMOPT_ERR_BUFFER : 0;
}

/* ---- operands in 8 bits ---- */
struct linear_codes {
    const memopt_cuda_linear_fp8 *kept;
    memopt_fp8 made[2];    /* forward: input, weights; backward: the gradient */
    uint8_t *left, *right; /* forward: those two; backward: the gradient, and transposed */
};

/* Scratch: the codes that no backward wants. When a bias' gradient is summed up there they have been multiplied. */
PRUNED void linear_codes_lay_out(linear_codes *c, const memopt_linear *x, int is_backward, memopt_carver *carver) {
    c->left = (uint8_t *)memopt_carve(carver, x->rows * (is_backward ? x->outputs : x->inputs), 1, 256);
    c->right = (uint8_t *)memopt_carve(carver, x->outputs * (is_backward ? x->rows : x->inputs), 1, 256);
}

PRUNED status_t linear_codes_bytes(const memopt_linear *x, int is_backward, size_t *bytes) {
    memopt_carver carver = memopt_carver_begin(NULL);
    linear_codes c;
    size_t sums;
    const status_t s = linear_resolve(x, &sums);

    if (s) return s;
    linear_codes_lay_out(&c, x, is_backward, &carver);
    if (carver.overflow) return MEMOPT_ERR_OVERFLOW;
    *bytes = memopt_i_max(carver.bytes, sums);
    return 0;
}

PUBLIC status_t api::memopt_cuda_linear_fp8_scratch(const memopt_cuda_ops *, const memopt_linear *linear,
                                                    size_t *bytes) {
    size_t forward, backward;
    status_t s;

    if (!bytes) return MEMOPT_CUDA_ERR_NULL;
    if ((s = linear_codes_bytes(linear, 0, &forward)) != 0 || (s = linear_codes_bytes(linear, 1, &backward)) != 0)
        return s;
    *bytes = memopt_i_max(forward, backward);
    return 0;
}

PRUNED memopt_fp8 linear_made(const linear_codes *c, const void *input, size_t rows, size_t columns, memopt_type type,
                              memopt_fp8_format format, uint8_t *codes, uint8_t *transposed, memopt_fp8_scale *scale) {
    memopt_fp8 m;

    memset(&m, 0, sizeof m);
    m.rows = rows;
    m.columns = columns;
    m.type = type;
    m.format = format;
    m.delayed = c->kept->delayed;
    m.input = input;
    m.codes = codes;
    m.transposed = transposed;
    m.scale = scale;
    return m;
}

/* Input and weights. */
PRUNED status_t linear_codes_forward(linear_codes *c, const memopt_linear *x) {
    const memopt_cuda_linear_fp8 *k = c->kept;
    const size_t in = x->rows * x->inputs;
    const size_t weights = x->outputs * x->inputs;
    const size_t out = x->rows * x->outputs * memopt_type_bytes(x->type);
    status_t s;

    if ((s = pointer_if(x->output, 16)) != 0 || (s = pointer_if(x->pre_activation, 16)) != 0
        || (s = pointer_if(x->residual, 16)) != 0) return s;
    if (no_overlap(k->d_input, in, k->d_weights, weights) || no_overlap(x->output, out, k->d_input, in)
        || no_overlap(x->output, out, k->d_weights, weights) || no_overlap(x->pre_activation, out, k->d_input, in)
        || no_overlap(x->pre_activation, out, k->d_weights, weights)) return MEMOPT_CUDA_ERR_OVERLAP;
    c->made[0] = linear_made(c, x->input, x->rows, x->inputs, x->type, MEMOPT_FP8_E4M3, c->left, k->d_input,
                             k->d_input_scale);
    c->made[1] = linear_made(c, x->weights, x->outputs, x->inputs, x->type, MEMOPT_FP8_E4M3, c->right, k->d_weights,
                             k->d_weight_scale);
    return 0;
}

/* The gradient, in the orders that are wanted. */
PRUNED status_t linear_codes_backward(linear_codes *c, const memopt_linear *x) {
    const memopt_cuda_linear_fp8 *k = c->kept;
    status_t s;

    if ((s = pointer(k->d_gradient_scale, 16)) != 0 || (s = pointer_if(x->grad_input, 16)) != 0
        || (s = pointer_if(x->grad_weights, 16)) != 0) return s;
    c->made[0] = linear_made(c, x->grad_output, x->rows, x->outputs, x->type, MEMOPT_FP8_E5M2,
                             x->grad_input ? c->left : NULL, x->grad_weights ? c->right : NULL, k->d_gradient_scale);
    return 0;
}

/* What 8 bits ask for beyond what the layer does, and what is to be quantised. */
PRUNED status_t linear_codes_of(linear_codes *c, const memopt_cuda_ops *ops, const memopt_linear *x,
                                const memopt_cuda_linear_fp8 *kept, int is_backward) {
    memopt_carver carver = memopt_carver_begin(ops ? ops->d_scratch : NULL);
    size_t bytes;
    status_t s;

    if (!ops || !ops->gemm || !kept) return MEMOPT_CUDA_ERR_NULL;
    if ((s = linear_codes_bytes(x, is_backward, &bytes)) != 0) return s;
    if ((x->rows | x->inputs | x->outputs) & 15) return MEMOPT_CUDA_ERR_STRIDE;
    if (ops->gemm->capability < 89) return MEMOPT_CUDA_ERR_TYPE;
    if ((s = pointer_if(kept->d_input, 16)) != 0 || (s = pointer_if(kept->d_weights, 16)) != 0
        || (s = pointer(kept->d_input_scale, 16)) != 0 || (s = pointer(kept->d_weight_scale, 16)) != 0
        || (s = linear_scratch(ops, bytes)) != 0) return s;
    memset(c, 0, sizeof *c);
    c->kept = kept;
    linear_codes_lay_out(c, x, is_backward, &carver);
    s = is_backward ? linear_codes_backward(c, x) : linear_codes_forward(c, x);
    for (int i = 0; i < 2 && c->made[i].scale && !s; ++i) {
        s = linear_pointer(c->made[i].input, x->type, c->made[i].rows * c->made[i].columns);
        if (!s) s = (status_t)memopt_i_fp8_check(&c->made[i]);
    }
    return s;
}

PRUNED status_t linear_codes_make(const linear_codes *c, cudaStream_t stream) {
    status_t s = 0;

    for (int i = 0; i < 2 && c && c->made[i].scale && !s; ++i) s = memopt_cuda_fp8_quantize(&c->made[i], stream);
    return s;
}

/* The product with these operands: both with their depth side by side. */
PRUNED void linear_in_8_bits(matrix_product *q, const uint8_t *left, int left_code, const memopt_fp8_scale *left_scale,
                             const uint8_t *right, const memopt_fp8_scale *right_scale) {
    q->is_fp8 = 1;
    q->p.left = left;
    q->p.right = right;
    q->p.left_stride = q->p.right_stride = q->p.depth;
    q->p.left_transposed = 0;
    q->p.right_transposed = 1;
    q->left_code = left_code;
    q->right_code = CUDA_R_8F_E4M3;
    q->left_scale = &left_scale->scale;
    q->right_scale = &right_scale->scale;
}

/* ---- forward ---- */
struct biased : fused_spans {
    template <int N>
    CU_MEMBER void operator()(const fused_place<N> &, float (&z)[N], float (&bias)[N], float (&y)[N]) const {
        CU_UNROLL for (int i = 0; i < N; ++i) y[i] = memopt_i_sum(z[i], bias[i]);
    }
};

/* An activation, or none, and a residual: rounded once. */
struct activation_onto : fused_spans {
    memopt_activation kind;

    explicit activation_onto(memopt_activation k) : kind(k) {}

    template <int N>
    CU_MEMBER void operator()(const fused_place<N> &, float (&z)[N], float (&residual)[N], float (&y)[N]) const {
        activate<N>(kind, z);
        CU_UNROLL for (int i = 0; i < N; ++i) y[i] = memopt_i_sum(z[i], residual[i]);
    }
};

/* Is the residual what the product is added to? */
PRUNED bool linear_adds(const memopt_linear *x, const void *pre_activation) {
    return x->residual && !pre_activation && x->activation == MEMOPT_ACTIVATION_NONE
        && (x->inputs || x->residual == x->output);
}

/* How much of a layer the product does: all of it; product and bias; the product alone. */
enum { LINEAR_WHOLE, LINEAR_BIASED, LINEAR_BARE };

PRUNED int linear_can(const memopt_linear *x, const void *pre_activation) {
    if (x->residual) return linear_adds(x, pre_activation);
    if (x->activation == MEMOPT_ACTIVATION_NONE || x->activation == MEMOPT_ACTIVATION_RELU) return !pre_activation;
    return x->activation == MEMOPT_ACTIVATION_GELU && (!pre_activation || x->outputs % 8 == 0);
}

PRUNED matrix_product linear_product(const memopt_linear *x, void *pre_activation, int how) {
    matrix_product q = product_of(
        x->rows, x->outputs, x->inputs, { x->input, x->inputs, x->type, 0, 0 },
        { x->weights, x->inputs, x->type, 1, 0 },
        { how == LINEAR_WHOLE || !pre_activation ? x->output : pre_activation, x->outputs, x->type, 0, 0 });

    if (linear_adds(x, pre_activation)) {
        q.p.accumulate = 1;
        q.onto = x->residual;
    }
    if (x->bias && how != LINEAR_BARE) {
        q.bias = (void *)(uintptr_t)x->bias;
        q.bias_type = gemm_type(x->type);
        q.epilogue = CUBLASLT_EPILOGUE_BIAS;
    }
    if (how != LINEAR_WHOLE) return q;
    if (x->activation == MEMOPT_ACTIVATION_RELU) q.epilogue |= CUBLASLT_EPILOGUE_RELU;
    if (x->activation == MEMOPT_ACTIVATION_GELU)
        q.epilogue |= pre_activation ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU;
    if (x->activation == MEMOPT_ACTIVATION_GELU && pre_activation) {
        q.aux = pre_activation;
        q.aux_stride = x->outputs;
    }
    return q;
}

/* The most that is asked for. */
PRUNED int linear_first(const memopt_linear *x, const void *pre_activation, const linear_codes *codes) {
    if (!x->inputs || (codes && x->type == MEMOPT_TYPE_F32)) return LINEAR_BARE;
    return !codes && linear_can(x, pre_activation) ? LINEAR_WHOLE : LINEAR_BIASED;
}

/* codes: NULL, or what stands in the place of input and weights. */
PRUNED status_t linear_run(const memopt_cuda_ops *ops, const memopt_linear *x, const linear_codes *codes,
                           cudaStream_t stream) {
    void *pre_activation = x->pre_activation == x->output ? NULL : x->pre_activation;
    matrix_product q;
    memopt_activation_args a;
    int how = linear_first(x, pre_activation, codes);
    status_t s;

    for (;; ++how) { /* the most that there is an algorithm for */
        q = linear_product(x, pre_activation, how);
        if (codes)
            linear_in_8_bits(&q, codes->left, CUDA_R_8F_E4M3, codes->kept->d_input_scale, codes->right,
                             codes->kept->d_weight_scale);
        s = gemm_run(ops->gemm, &q, 1, stream);
        if (s != MEMOPT_CUDA_ERR_NO_ALGORITHM || how == LINEAR_BARE) break;
    }
    if (!s) s = linear_codes_make(codes, stream);
    if (!s) s = gemm_run(ops->gemm, &q, 0, stream);
    if (!s && how == LINEAR_BARE && x->bias)
        s = CU_SIZED(x->type, fused_run(biased(), x->rows, x->outputs, x->type,
            fused_list(array_of<FUSED_EACH>((const T *)q.p.result, x->outputs),
                       array_of<FUSED_ROW>((const T *)x->bias, 0),
                       array_of<FUSED_EACH>((T *)q.p.result, x->outputs)), stream));
    if (s || how == LINEAR_WHOLE || linear_adds(x, pre_activation)) return s;
    if (x->residual)
        return CU_SIZED(x->type, fused_run(activation_onto(x->activation), 1, x->rows * x->outputs, x->type,
            fused_list(array_of<FUSED_EACH>((const T *)q.p.result, 0), array_of<FUSED_EACH>((const T *)x->residual, 0),
                       array_of<FUSED_EACH>((T *)x->output, 0)), stream));
    if (x->activation == MEMOPT_ACTIVATION_NONE && q.p.result == x->output) return 0;
    memset(&a, 0, sizeof a);
    a.n = x->rows * x->outputs;
    a.activation = x->activation;
    a.type = x->type;
    a.input = q.p.result;
    a.output = x->output;
    return memopt_cuda_activation_forward(ops, &a, stream);
}

PRUNED status_t linear_forward(const memopt_cuda_ops *ops, const memopt_linear *x, const linear_codes *codes,
                               cudaStream_t stream) {
    size_t bytes, in, out, weights, size;
    const void *pre; /* where it is not the output */
    bool in_place;   /* the residual's elements become the output's */
    status_t s;

    if (!ops || !ops->gemm) return MEMOPT_CUDA_ERR_NULL;
    if ((s = linear_resolve(x, &bytes)) != 0) return s;
    if ((s = gemm_types(ops->gemm, x->type, x->type)) != 0) return s;
    if (memopt_i_activation_is_invalid(x->activation)) return MEMOPT_ERR_ARGUMENT;
    in = x->rows * x->inputs;
    out = x->rows * x->outputs;
    weights = out ? x->outputs * x->inputs : 0;
    size = memopt_type_bytes(x->type);
    if ((s = linear_pointer(x->input, x->type, out ? in : 0)) != 0
        || (s = linear_pointer(x->weights, x->type, weights)) != 0 || (s = linear_pointer(x->output, x->type, out)) != 0
        || (s = pointer_if(x->bias, size)) != 0 || (s = pointer_if(x->residual, size)) != 0
        || (s = pointer_if(x->pre_activation, size)) != 0)
        return s;
    if (!out) return 0;
    pre = x->pre_activation == x->output ? NULL : x->pre_activation;
    in_place = x->residual == x->output && (pre || linear_adds(x, NULL));
    if (no_overlap(x->output, out * size, x->input, in * size)
        || no_overlap(x->output, out * size, x->weights, weights * size)
        || no_overlap(pre, out * size, x->input, in * size) || no_overlap(pre, out * size, x->weights, weights * size)
        || no_overlap(pre, out * size, x->output, out * size) || no_overlap(pre, out * size, x->residual, out * size)
        || (!in_place && no_overlap(x->residual, out * size, x->output, out * size)))
        return MEMOPT_CUDA_ERR_OVERLAP;
    if ((s = gemm_ready(ops->gemm)) != 0) return s;
    return linear_run(ops, x, codes, stream);
}

PUBLIC status_t api::memopt_cuda_linear_forward(const memopt_cuda_ops *ops, const memopt_linear *linear,
                                                cudaStream_t stream) {
    return linear_forward(ops, linear, NULL, stream);
}

PUBLIC status_t api::memopt_cuda_linear_forward_fp8(const memopt_cuda_ops *ops, const memopt_linear *linear,
                                                    const memopt_cuda_linear_fp8 *fp8, cudaStream_t stream) {
    linear_codes codes;
    const status_t s = linear_codes_of(&codes, ops, linear, fp8, 0);

    return s ? s : linear_forward(ops, linear, &codes, stream);
}

/* ---- backward ---- */
typedef struct backward_task {
    const memopt_cuda_ops *ops;
    const memopt_linear   *x;
    memopt_activation      activation; /* that made the input; none where its gradient is not wanted */
    const void            *pre_activation;
    const linear_codes    *codes;      /* NULL, or what stands in the place of the operands */
    matrix_product  input, weights;
    int                    through;    /* the activation's gradient is a kernel after the product */
    int                    summed;     /* the bias' gradient comes with the weights' product */
} backward_task;

PRUNED matrix_product linear_grad_input(const memopt_linear *x) {
    matrix_product q = product_of(
        x->rows, x->inputs, x->outputs, { x->grad_output, x->outputs, x->type, 0, 0 },
        { x->weights, x->inputs, x->type, 0, 0 }, { x->grad_input, x->inputs, x->type, 0, 0 });

    q.p.accumulate = x->accumulate_input;
    return q;
}

PRUNED matrix_product linear_grad_weights(const memopt_linear *x) {
    matrix_product q = product_of(
        x->outputs, x->inputs, x->rows, { x->grad_output, x->outputs, x->type, 1, 0 },
        { x->input, x->inputs, x->type, 0, 0 }, { x->grad_weights, x->inputs, x->gradient_type, 0, 0 });

    q.p.accumulate = x->accumulate;
    return q;
}

/* The product with its epilogue, or without where there is no algorithm for that. */
PRUNED status_t linear_plan_most(memopt_cuda_gemm *g, matrix_product *q) {
    const status_t s = gemm_run(g, q, 1, NULL);

    if (s != MEMOPT_CUDA_ERR_NO_ALGORITHM || !q->epilogue) return s;
    q->epilogue = 0;
    q->aux = q->bias = NULL;
    q->aux_stride = 0;
    q->bias_type = 0;
    return gemm_run(g, q, 1, NULL);
}

/* The products of a backward, each with the most that there is an algorithm for. Nothing is launched. */
PRUNED status_t linear_plan(backward_task *b) {
    const memopt_linear *x = b->x;
    memopt_cuda_gemm *g = b->ops->gemm;
    status_t s;

    if (x->grad_input) {
        b->input = linear_grad_input(x);
        if (b->codes)
            linear_in_8_bits(&b->input, b->codes->left, CUDA_R_8F_E5M2, b->codes->kept->d_gradient_scale,
                             b->codes->kept->d_weights, b->codes->kept->d_weight_scale);
        else if (b->activation == MEMOPT_ACTIVATION_GELU && x->inputs % 8 == 0 && x->outputs) {
            b->input.epilogue = CUBLASLT_EPILOGUE_DGELU;
            b->input.aux = (void *)(uintptr_t)b->pre_activation;
            b->input.aux_stride = x->inputs;
        }
        s = linear_plan_most(g, &b->input);
        b->through = b->activation != MEMOPT_ACTIVATION_NONE && !b->input.epilogue;
        if (s) return s;
    }
    if (!x->grad_weights) return 0;
    b->weights = linear_grad_weights(x);
    if (b->codes)
        linear_in_8_bits(&b->weights, b->codes->right, CUDA_R_8F_E5M2, b->codes->kept->d_gradient_scale,
                         b->codes->kept->d_input, b->codes->kept->d_input_scale);
    else if (x->grad_bias && !g->desc.deterministic && x->rows && x->inputs
             && (x->gradient_type == MEMOPT_TYPE_F32 || !x->accumulate)) {
        b->weights.epilogue = CUBLASLT_EPILOGUE_BGRADB;
        b->weights.bias = x->accumulate ? b->ops->d_scratch : x->grad_bias;
        b->weights.bias_type = gemm_type(x->gradient_type);
    }
    s = linear_plan_most(g, &b->weights);
    b->summed = b->weights.epilogue != 0;
    return s;
}

PRUNED status_t linear_grad_bias(const backward_task *b, cudaStream_t stream) {
    const memopt_linear *x = b->x;
    sum_task t;

    if (!x->grad_bias || (b->summed && !x->accumulate)) return 0;
    if (!b->summed) return linear_sum(b->ops, x, stream);
    memset(&t, 0, sizeof t);
    t.width = x->outputs;
    t.parts = 1;
    t.partial = (float *)b->ops->d_scratch;
    t.sums = x->grad_bias;
    t.accumulate = 1;
    return linear_total(&t, x->gradient_type, stream);
}

PRUNED status_t linear_back(backward_task *b, cudaStream_t stream) {
    const memopt_linear *x = b->x;
    memopt_activation_args a;
    status_t s = linear_plan(b);

    if (!s) s = linear_codes_make(b->codes, stream);
    if (!s && x->grad_input) s = gemm_run(b->ops->gemm, &b->input, 0, stream);
    if (!s && x->grad_input && b->through && x->rows && x->inputs) {
        memset(&a, 0, sizeof a);
        a.n = x->rows * x->inputs;
        a.activation = b->activation;
        a.type = x->type;
        a.input = b->pre_activation;
        a.grad_output = x->grad_input;
        a.grad_input = x->grad_input;
        s = memopt_cuda_activation_backward(b->ops, &a, stream);
    }
    if (!s && x->grad_weights) s = gemm_run(b->ops->gemm, &b->weights, 0, stream);
    return s ? s : linear_grad_bias(b, stream);
}

/* Pointers and types of a backward. */
PRUNED status_t linear_check(const backward_task *b) {
    const memopt_linear *x = b->x;
    const memopt_cuda_linear_fp8 *kept = b->codes ? b->codes->kept : NULL;
    const void *input = kept ? (const void *)kept->d_input : x->input;
    const void *from = kept ? (const void *)kept->d_weights : x->weights;
    const int wanted = x->grad_weights || x->grad_bias;
    const size_t in = x->rows * x->inputs;
    const size_t out = x->rows * x->outputs;
    const size_t weights = x->outputs * x->inputs;
    const size_t size = memopt_type_bytes(x->type);
    const size_t operand = kept ? 1 : size;
    status_t s;

    if ((s = linear_pointer(x->grad_output, x->type, x->grad_input || wanted ? out : 0)) != 0
        || (s = pointer_if(x->grad_input, size)) != 0
        || (s = linear_pointer(from, x->type, x->grad_input && x->rows ? weights : 0)) != 0
        || (s = linear_pointer(input, x->type, x->grad_weights && x->outputs ? in : 0)) != 0
        || (s = gemm_types(b->ops->gemm, x->type, wanted ? x->gradient_type : x->type)) != 0)
        return s;
    if (wanted && ((s = pointer_if(x->grad_weights, memopt_type_bytes(x->gradient_type))) != 0
        || (s = pointer_if(x->grad_bias, memopt_type_bytes(x->gradient_type))) != 0)) return s;
    if (no_overlap(x->grad_input, in * size, x->grad_output, out * size)
        || no_overlap(x->grad_input, in * size, from, weights * operand)
        || (x->grad_weights && no_overlap(x->grad_input, in * size, input, in * operand)))
        return MEMOPT_CUDA_ERR_OVERLAP;
    if (b->activation == MEMOPT_ACTIVATION_NONE) return 0;
    if (x->accumulate_input) return MEMOPT_ERR_ARGUMENT;
    if ((s = linear_pointer(b->pre_activation, x->type, in)) != 0) return s;
    return no_overlap(x->grad_input, in * size, b->pre_activation, in * size);
}

PRUNED status_t linear_backward(const memopt_cuda_ops *ops, const memopt_linear *linear, const linear_codes *codes,
                                memopt_activation activation, const void *pre_activation, cudaStream_t stream) {
    backward_task b;
    size_t bytes;
    status_t s;

    if (!ops || !ops->gemm) return MEMOPT_CUDA_ERR_NULL;
    if ((s = linear_resolve(linear, &bytes)) != 0) return s;
    if (memopt_i_activation_is_invalid(activation)) return MEMOPT_ERR_ARGUMENT;
    memset(&b, 0, sizeof b);
    b.ops = ops;
    b.x = linear;
    b.codes = codes;
    b.pre_activation = pre_activation;
    b.activation = linear->grad_input ? activation : MEMOPT_ACTIVATION_NONE;
    if ((s = linear_check(&b)) != 0 || (s = linear_scratch(ops, bytes)) != 0) return s;
    if ((s = gemm_ready(ops->gemm)) != 0) return s;
    return linear_back(&b, stream);
}

PUBLIC status_t api::memopt_cuda_linear_backward_through(const memopt_cuda_ops *ops, const memopt_linear *linear,
                                                         memopt_activation activation, const void *pre_activation,
                                                         cudaStream_t stream) {
    return linear_backward(ops, linear, NULL, activation, pre_activation, stream);
}

PUBLIC status_t api::memopt_cuda_linear_backward(const memopt_cuda_ops *ops, const memopt_linear *linear,
                                                 cudaStream_t stream) {
    return linear_backward(ops, linear, NULL, MEMOPT_ACTIVATION_NONE, NULL, stream);
}

PUBLIC status_t api::memopt_cuda_linear_backward_fp8(const memopt_cuda_ops *ops, const memopt_linear *linear,
                                                     const memopt_cuda_linear_fp8 *fp8, memopt_activation activation,
                                                     const void *pre_activation, cudaStream_t stream) {
    linear_codes codes;
    const status_t s = linear_codes_of(&codes, ops, linear, fp8, 1);

    return s ? s : linear_backward(ops, linear, &codes, activation, pre_activation, stream);
}

/* @section cuda_batchnorm : cuda_fused cuda_layer cuda_norm cuda_linear cuda_base api_cuda_batchnorm
   A linear layer, batch norm and an activation, as one operator: the product z of `linear`, and what is done to z here.
   Problem    One by one, z is written by the product, read for the mean, read for the variance, read and written by
              the norm, read and written by the activation: seven times over its memory, and sums run down the columns.
   Idea       A warp has 32 spans of a row side by side and goes down the rows, so memory is read in whole lines, and
              each thread keeps the sums of its own columns. z comes in parts that the second-level cache holds: a
              part's statistics are taken before it has left. Then one pass norms and activates. The gradient of z is
              made in parts, too, for linear's backward to take.
   Statistics A thread's mean and squares about it go from row to row (Welford), in float: d = z - mean, mean += d / k,
              squares += d (z - mean); nothing cancels. Threads, groups and slices are joined by Chan's formula in
              double, in their order.
   Ways       Mean, then squares pass over z and the output 5 times, Welford 4, parts of 16 MiB, whose statistics are
              the cache's reads, 3. Backward: z and its gradient read twice, the gradient of z written: 5 and linear's.
              h is made again from z; kept, it would be a pass more.
   Bits       Given the statistics, output and gradient of z are the CPU's formulas, element by element. Sums: the order
              is the shape's.
   Bound      Of a thread's Welford: rows / groups / slots steps; then double.
   Trap       Groups must not straddle parts: parts are whole groups. */

#ifndef MEMOPT_CUDA_NO_BATCH_NORM
#define MEMOPT_I_CUDA_BATCH_PART  ((size_t)16 << 20) /* bytes of z between a product and its statistics */
#define MEMOPT_I_CUDA_BATCH_GRAD_PARTS 4 /* such parts of the gradient of z, between its kernel and the product */
enum { BATCH_BLOCK = 256, BATCH_GROUPS = 1056, BATCH_TURNS = 4 };

typedef struct batch_task { /* what kernels get, too: everything about z */
    memopt_batch_norm x;      /* with defaults filled in */
    size_t   group, groups;   /* rows of one, and how many */
    size_t   part, grad_part;/* rows, whole groups */
    size_t   first, count;    /* rows that a kernel is to work on: whole groups, but for the last */
    unsigned shift, tiles;    /* 1 << shift threads have the spans of a tile of a row */
    bool     wide, wide_weights, wide_floats; /* whole spans: of z and the like, of scale and shift, of floats */
    bool     bf16;            /* what half_t is */
    float   *sums;            /* of groups: means, then squares; backward: sum(g'), then sum(g' h) */
    float   *factor, *mean, *share; /* what the gradient of z is made of */
    void    *grad_z;          /* a part of the gradient of z */
    float   *weights;         /* where that is a part: sums for gradients of 16 bits, of weights, then of the bias */
} batch_task;

/* A thread's place: its columns, and of the rows that the block has, its first, its step and the end. */
typedef struct batch_place {
    size_t at, row, step, end, group;
    unsigned left;
} batch_place;

template <int N> CU_DEVICE batch_place batch_at(const batch_task &t, size_t rows) {
    batch_place p;
    const unsigned lane = threadIdx.x & ((1u << t.shift) - 1);
    const size_t turn = blockIdx.x / t.tiles;
    const size_t begin = t.first + turn * rows;

    p.at = (((size_t)(blockIdx.x % t.tiles) << t.shift) + lane) * N;
    p.left = left_of<N>(t.x.linear.outputs, p.at);
    p.step = blockDim.x >> t.shift;
    p.row = begin + (threadIdx.x >> t.shift);
    p.end = memopt_i_min(begin + rows, t.first + t.count);
    p.group = t.first / t.group + turn;
    return p;
}

/* What a thread knows of its columns. */
template <int N> struct batch_columns { float mean[N], inverse[N], scale[N], shift[N]; };

template <int N> CU_DEVICE void batch_load_columns(const batch_task &t, const batch_place &p, batch_columns<N> *c) {
    const memopt_type f32 = MEMOPT_TYPE_F32;
    const memopt_type of_w = t.x.linear.weight_type;

    floats_at<N>(c->mean, t.x.statistics, f32, p.at, p.left, t.wide_floats, 0);
    floats_at<N>(c->inverse, t.x.statistics, f32, t.x.linear.outputs + p.at, p.left, t.wide_floats, 0);
    floats_at<N>(c->scale, t.x.scale, of_w, p.at, p.left, t.wide_weights, 1);
    floats_at<N>(c->shift, t.x.shift, of_w, p.at, p.left, t.wide_weights, 0);
}

/* Two sums of every slot of the block, in order, to scratch; element i of thread k is at all[i * BLOCK + k]. */
template <int N> CU_DEVICE void batch_add_slots(const batch_task &t, const float *a, const float *b, size_t group) {
    const size_t n = t.x.linear.outputs;
    const size_t first = ((size_t)(blockIdx.x % t.tiles) << t.shift) * N;
    const unsigned lanes = 1u << t.shift;
    const unsigned slots = BATCH_BLOCK >> t.shift;

    for (unsigned k = threadIdx.x; k < 2 * N * lanes; k += BATCH_BLOCK) {
        const unsigned which = k >= N * lanes;
        const unsigned e = k - which * N * lanes;
        const unsigned lane = e / N;
        const unsigned i = e % N;
        const float *from = (which ? b : a) + i * BATCH_BLOCK + lane;
        float sum = from[0];

        for (unsigned slot = 1; slot < slots; ++slot) sum = memopt_i_sum(sum, from[slot << t.shift]);
        if (first + e < n) t.sums[(group * 2 + which) * n + first + e] = sum;
    }
}

CU_DEVICE double batch_share(double before, double more) { return more / (before + more); }

/* The slots' means and squares, joined in order. */
template <int N> CU_DEVICE void batch_join_slots(const batch_task &t, const float *means,
                                                 const float *squares, size_t rows, size_t group) {
    const size_t n = t.x.linear.outputs;
    const size_t first = ((size_t)(blockIdx.x % t.tiles) << t.shift) * N;
    const unsigned lanes = 1u << t.shift;
    const unsigned slots = BATCH_BLOCK >> t.shift;

    for (unsigned e = threadIdx.x; e < N * lanes; e += BATCH_BLOCK) {
        const unsigned from = e % N * BATCH_BLOCK + e / N;
        double mean = 0;
        double square = 0;
        double before = 0;

        if (first + e >= n) continue;
        for (unsigned slot = 0; slot < slots && slot < rows; ++slot) {
            const double more = (double)((rows - slot + slots - 1) / slots);
            const double share = batch_share(before, more);
            memopt_i_batch_join_one(&mean, &square, means[from + (slot << t.shift)], squares[from + (slot << t.shift)],
                                    share, before * share);
            before += more;
        }
        t.sums[group * 2 * n + first + e] = (float)mean;
        t.sums[(group * 2 + 1) * n + first + e] = (float)square;
    }
}

/* A thread's spans of its next rows, all under way before the first is used. */
template <class T, int N, int TURNS>
CU_DEVICE void batch_fetch(row_span<T, N> *s, const T *from, const batch_task &t, const batch_place &p, size_t row) {
    CU_UNROLL for (int k = 0; k < TURNS; ++k) if (row + (size_t)k * p.step < p.end)
            span_get(&s[k], from + (row + (size_t)k * p.step) * t.x.linear.outputs, p.left, t.wide);
}

/* The same of two arrays, their rows side by side. */
template <class T, int N, int TURNS>
CU_DEVICE void batch_fetch_two(row_span<T, N> *zs, row_span<T, N> *gs, const T *z, const T *g, const batch_task &t,
                               const batch_place &p, size_t row) {
    CU_UNROLL for (int k = 0; k < TURNS; ++k) if (row + (size_t)k * p.step < p.end) {
            const size_t at = (row + (size_t)k * p.step) * t.x.linear.outputs;

            span_get(&zs[k], z + at, p.left, t.wide);
            span_get(&gs[k], g + at, p.left, t.wide);
        }
}

/* Mean and squares of the columns of a group. */
template <class T> static __global__ void __launch_bounds__(BATCH_BLOCK) batch_deviations_kernel(batch_task t) {
    enum { N = 16 / sizeof(T), TURNS = BATCH_TURNS };

    MEMOPT_I_CUDA_SHARED(float, means, [N * BATCH_BLOCK]);
    MEMOPT_I_CUDA_SHARED(float, squares, [N * BATCH_BLOCK]);
    const batch_place p = batch_at<N>(t, t.group);
    const size_t begin = p.row - (threadIdx.x >> t.shift);
    const T *z = static_cast<const T *>(t.x.linear.pre_activation) + p.at;
    float mean[N] = { 0 };
    float square[N] = { 0 };
    float count = 0;
    for (size_t row = p.row; row < p.end; row += p.step * TURNS) {
        row_span<T, N> s[TURNS];

        batch_fetch<T, N, TURNS>(s, z, t, p, row);
        CU_UNROLL for (int k = 0; k < TURNS; ++k) {
            if (row + (size_t)k * p.step >= p.end) break;
            float x[N];

            span_open(x, s[k], t.bf16);
            count = memopt_i_sum(count, 1.0f);
            const float share = memopt_i_v1_div(1.0f, count);
            CU_UNROLL for (int i = 0; i < N; ++i) {
                const float d = memopt_i_v1_sub(x[i], mean[i]);
                mean[i] = fmaf(d, share, mean[i]);
                square[i] = fmaf(d, memopt_i_v1_sub(x[i], mean[i]), square[i]);
            }
        }
    }
    CU_UNROLL for (int i = 0; i < N; ++i) {
        means[i * BATCH_BLOCK + threadIdx.x] = mean[i];
        squares[i * BATCH_BLOCK + threadIdx.x] = square[i];
    }
    __syncthreads(); /* every thread's squares are there */
    batch_join_slots<N>(t, means, squares, p.end - begin, p.group);
}

/* Of 32 columns: slice y of n joins groups y, y + n, ...; then the slices are joined, in order. */
PRUNED __global__ void __launch_bounds__(1024) batch_statistics_kernel(batch_task t) {
    MEMOPT_I_CUDA_SHARED(double, means, [32][32]);
    MEMOPT_I_CUDA_SHARED(double, squares, [32][32]);
    MEMOPT_I_CUDA_SHARED(double, counts, [32]);
    const memopt_batch_norm *x = &t.x;
    const size_t n = x->linear.outputs;
    const size_t i = (size_t)blockIdx.x * 32 + threadIdx.x % 32;
    const unsigned slice = threadIdx.x / 32;
    const unsigned lane = threadIdx.x % 32;
    const unsigned slices = blockDim.x / 32;
    const double rows = (double)x->linear.rows;
    double mean = 0;
    double square = 0;
    double before = 0;
    for (size_t k = slice; k < t.groups; k += slices) {
        const double more = (double)memopt_i_min(t.group, x->linear.rows - k * t.group);
        const double share = batch_share(before, more);

        if (i < n)
            memopt_i_batch_join_one(&mean, &square, t.sums[k * 2 * n + i], t.sums[(k * 2 + 1) * n + i], share,
                                    before * share);
        before += more;
    }
    means[slice][lane] = mean;
    squares[slice][lane] = square;
    if (lane == 0) counts[slice] = before;
    __syncthreads(); /* every slice of groups is there */
    if (slice || i >= n) return;
    for (unsigned k = 1; k < slices; ++k) {
        const double share = batch_share(before, counts[k]);
        memopt_i_batch_join_one(&mean, &square, means[k][lane], squares[k][lane], share, before * share);
        before += counts[k];
    }
    const float variance = (float)(square / (rows - 1));
    const float middle = (float)mean;
    x->statistics[i] = middle;
    x->statistics[n + i] = (float)(1 / sqrt(square / rows + (double)x->eps));
    if (x->no_update) return;
    if (x->running_mean)
        x->running_mean[i] = fmaf(x->momentum, memopt_i_v1_sub(middle, x->running_mean[i]), x->running_mean[i]);
    if (x->running_variance)
        x->running_variance[i] = fmaf(x->momentum, memopt_i_v1_sub(variance, x->running_variance[i]),
                                      x->running_variance[i]);
}

/* Rows of a block, where none has to be a group. */
static __host__ __device__ __forceinline__ size_t batch_rows(unsigned shift) {
    return (size_t)(BATCH_BLOCK >> shift) * (4 * BATCH_TURNS);
}

template <class T> static __global__ void __launch_bounds__(BATCH_BLOCK) batch_output_kernel(batch_task t) {
    enum { N = 16 / sizeof(T), TURNS = BATCH_TURNS };
    const batch_place p = batch_at<N>(t, batch_rows(t.shift));
    const size_t width = t.x.linear.outputs;
    const T *z = static_cast<const T *>(t.x.linear.pre_activation) + p.at;
    T *y = static_cast<T *>(t.x.linear.output) + p.at;
    batch_columns<N> c;

    if (!p.left) return;
    batch_load_columns(t, p, &c);
    for (size_t row = p.row; row < p.end; row += p.step * TURNS) {
        row_span<T, N> s[TURNS];

        batch_fetch<T, N, TURNS>(s, z, t, p, row);
        CU_ROLLED for (int k = 0; k < TURNS; ++k) {
            float out[N];

            if (row + (size_t)k * p.step >= p.end) break;
            span_open(out, s[0], t.bf16);
            CU_UNROLL for (int i = 0; i < N; ++i) {
                const float h = memopt_i_v1_norm_normalize_of(out[i], c.mean[i], c.inverse[i]);
                out[i] = fmaf(h, c.scale[i], c.shift[i]);
            }
            activate<N>(t.x.linear.activation, out);
            span_close(&s[0], out, t.bf16);
            span_put(y + (row + (size_t)k * p.step) * width, s[0], p.left, t.wide);
            take_turns<TURNS>(s);
        }
    }
}

/* ---- backward ---- */
/* g' and h of a span. */
template <class T, int N>
CU_DEVICE void batch_grad_of(const batch_task &t, const batch_columns<N> &c, const row_span<T, N> &z,
                             const row_span<T, N> &g, float *u, float *h) {
    float x[N];

    span_open(u, g, t.bf16);
    span_open(h, z, t.bf16);
    CU_UNROLL for (int i = 0; i < N; ++i) {
        h[i] = memopt_i_v1_norm_normalize_of(h[i], c.mean[i], c.inverse[i]);
        x[i] = fmaf(h[i], c.scale[i], c.shift[i]);
    }
    act_grad<N>(t.x.linear.activation, x, u);
}

/* sum(g') and sum(g' h) of the columns of a group */
template <class T> static __global__ void CU_BOUNDS(BATCH_BLOCK) batch_sums_kernel(batch_task t) {
    enum { N = 16 / sizeof(T), TURNS = BATCH_TURNS / 2 };

    MEMOPT_I_CUDA_SHARED(float, of_g, [N * BATCH_BLOCK]);
    MEMOPT_I_CUDA_SHARED(float, of_gh, [N * BATCH_BLOCK]);
    const batch_place p = batch_at<N>(t, t.group);
    const T *z = static_cast<const T *>(t.x.linear.pre_activation) + p.at;
    const T *g = static_cast<const T *>(t.x.linear.grad_output) + p.at;
    batch_columns<N> c;
    float a[N] = { 0 };
    float b[N] = { 0 };
    batch_load_columns(t, p, &c);
    for (size_t row = p.row; p.left && row < p.end; row += p.step * TURNS) {
        row_span<T, N> zs[TURNS], gs[TURNS];

        batch_fetch_two<T, N, TURNS>(zs, gs, z, g, t, p, row);
        CU_ROLLED for (int k = 0; k < TURNS; ++k) {
            float u[N], h[N];

            if (row + (size_t)k * p.step >= p.end) break;
            batch_grad_of(t, c, zs[0], gs[0], u, h);
            CU_UNROLL for (int i = 0; i < N; ++i) {
                a[i] = memopt_i_sum(a[i], u[i]);
                b[i] = fmaf(u[i], h[i], b[i]);
            }
            take_turns<TURNS>(zs);
            take_turns<TURNS>(gs);
        }
    }
    CU_UNROLL for (int i = 0; i < N; ++i) {
        of_g[i * BATCH_BLOCK + threadIdx.x] = a[i];
        of_gh[i * BATCH_BLOCK + threadIdx.x] = b[i];
    }
    __syncthreads(); /* every thread's sums are there */
    batch_add_slots<N>(t, of_g, of_gh, p.group);
}

CU_DEVICE void batch_put(void *to, memopt_type type, size_t i, double sum, int accumulate) {
    if (!to) return;
    if (accumulate) sum = (double)one_of(to, type, i) + sum;
    put_one(to, type, i, (float)sum);
}

/* Of 32 columns, as the statistics. */
PRUNED __global__ void __launch_bounds__(1024) batch_gradients_kernel(batch_task t) {
    MEMOPT_I_CUDA_SHARED(double, of_g, [32][32]);
    MEMOPT_I_CUDA_SHARED(double, of_gh, [32][32]);
    const memopt_linear *l = &t.x.linear;
    const size_t n = l->outputs;
    const size_t i = (size_t)blockIdx.x * 32 + threadIdx.x % 32;
    const unsigned slice = threadIdx.x / 32;
    const unsigned lane = threadIdx.x % 32;
    const unsigned slices = blockDim.x / 32;
    double a = 0;
    double b = 0;
    for (size_t k = slice; k < t.groups && i < n; k += slices) {
        a += (double)t.sums[k * 2 * n + i];
        b += (double)t.sums[(k * 2 + 1) * n + i];
    }
    of_g[slice][lane] = a;
    of_gh[slice][lane] = b;
    __syncthreads(); /* every slice of sums is there */
    if (slice || i >= n) return;
    for (unsigned k = 1; k < slices; ++k) {
        a += of_g[k][lane];
        b += of_gh[k][lane];
    }
    batch_put(t.x.grad_shift, l->gradient_type, i, a, l->accumulate);
    batch_put(t.x.grad_scale, l->gradient_type, i, b, l->accumulate);
    t.factor[i] = memopt_i_times(t.x.statistics[n + i], one_or(t.x.scale, l->weight_type, i, 1));
    t.mean[i] = (float)(a / (double)l->rows);
    t.share[i] = (float)(b / (double)l->rows);
}

/* The gradient of z, of a part: row t.first is the first of t.grad_z. */
template <class T> static __global__ void __launch_bounds__(BATCH_BLOCK) batch_grad_kernel(batch_task t) {
    enum { N = 16 / sizeof(T), TURNS = BATCH_TURNS / 2 };
    const batch_place p = batch_at<N>(t, batch_rows(t.shift));
    const size_t width = t.x.linear.outputs;
    const T *z = static_cast<const T *>(t.x.linear.pre_activation) + p.at;
    const T *g = static_cast<const T *>(t.x.linear.grad_output) + p.at;
    T *y = static_cast<T *>(t.grad_z) + p.at;
    batch_columns<N> c;
    float factor[N], mean[N], share[N];

    if (!p.left) return;
    batch_load_columns(t, p, &c);
    floats_at<N>(factor, t.factor, MEMOPT_TYPE_F32, p.at, p.left, t.wide_floats, 0);
    floats_at<N>(mean, t.mean, MEMOPT_TYPE_F32, p.at, p.left, t.wide_floats, 0);
    floats_at<N>(share, t.share, MEMOPT_TYPE_F32, p.at, p.left, t.wide_floats, 0);
    for (size_t row = p.row; row < p.end; row += p.step * TURNS) {
        row_span<T, N> zs[TURNS], gs[TURNS];

        batch_fetch_two<T, N, TURNS>(zs, gs, z, g, t, p, row);
        CU_ROLLED for (int k = 0; k < TURNS; ++k) {
            float u[N], h[N];

            if (row + (size_t)k * p.step >= p.end) break;
            batch_grad_of(t, c, zs[0], gs[0], u, h);
            CU_UNROLL for (int i = 0; i < N; ++i) u[i] =
                memopt_i_times(factor[i], fmaf(-h[i], share[i], memopt_i_v1_sub(u[i], mean[i])));
            span_close(&gs[0], u, t.bf16);
            span_put(y + (row + (size_t)k * p.step - t.first) * width, gs[0], p.left, t.wide);
            take_turns<TURNS>(zs);
            take_turns<TURNS>(gs);
        }
    }
}

/* 16-bit gradients of weights and bias, from their float sums: rounded once */
PRUNED __global__ void __launch_bounds__(LAYER_BLOCK)
batch_store_kernel(const float *sums, void *to, memopt_type type, size_t n, int accumulate) {
    const size_t from = (size_t)blockIdx.x * (LAYER_BLOCK * 4) + threadIdx.x;

    for (unsigned k = 0; k < 4; ++k) {
        const size_t i = from + (size_t)k * LAYER_BLOCK;
        if (i >= n) return;
        const float sum = accumulate ? memopt_i_sum(one_of(to, type, i), sums[i]) : sums[i];
        put_one(to, type, i, sum);
    }
}

/* ---- stages: of z, by type ---- */
enum { BATCH_SPREAD, BATCH_OUTPUT, BATCH_SUMS, BATCH_GRAD_Z };

template <class T> static status_t batch_launch(const batch_task &t, int stage, cudaStream_t stream) {
    const bool grouped = stage == BATCH_SPREAD || stage == BATCH_SUMS;
    enum { BLOCK = BATCH_BLOCK };
    const size_t blocks = memopt_i_ceil_div(t.count, grouped ? t.group : batch_rows(t.shift)) * t.tiles;

    if (stage == BATCH_SPREAD) return CU_RUN(batch_deviations_kernel<T>, blocks, BLOCK, 0, stream, t);
    if (stage == BATCH_OUTPUT) return CU_RUN(batch_output_kernel<T>, blocks, BLOCK, 0, stream, t);
    if (stage == BATCH_SUMS) return CU_RUN(batch_sums_kernel<T>, blocks, BLOCK, 0, stream, t);
    return CU_RUN(batch_grad_kernel<T>, blocks, BLOCK, 0, stream, t);
}

/* Rows first..first + count: whole groups, but for the last */
PRUNED status_t batch_stage(batch_task *t, int stage, size_t first, size_t count, cudaStream_t stream) {
    t->first = first;
    t->count = count;
    t->bf16 = t->x.linear.type == MEMOPT_TYPE_BF16;
    return CU_SIZED(t->x.linear.type, batch_launch<T>(*t, stage, stream));
}

/* The statistics, or gradients of scale and shift, when all groups' sums are there. */
PRUNED status_t batch_join(const batch_task *t, int backward, cudaStream_t stream) {
    const unsigned block = 32 * slice_count(t->groups);
    const size_t blocks = memopt_i_ceil_div(t->x.linear.outputs, 32);
    if (backward) return CU_RUN(batch_gradients_kernel<>, blocks, block, 0, stream, *t);
    return CU_RUN(batch_statistics_kernel<>, blocks, block, 0, stream, *t);
}

/* ---- the host's part ---- */
/* How rows are cut: fixed by shape and type. There is at least one output. part: bytes of z of one */
PRUNED void batch_cut(batch_task *t, size_t part) {
    const memopt_linear *l = &t->x.linear;
    const size_t bytes = memopt_type_bytes(l->type);
    const size_t n = l->outputs;
    const size_t spans = memopt_i_ceil_div(n, 16 / bytes);
    const size_t rows = memopt_i_max(1, part / bytes / n);
    const size_t grad_rows = rows * MEMOPT_I_CUDA_BATCH_GRAD_PARTS;

    t->shift = 0;
    while (t->shift < 5 && ((size_t)1 << t->shift) < spans) ++t->shift;
    t->tiles = (unsigned)memopt_i_ceil_div(spans, (size_t)1 << t->shift);
    t->group = memopt_i_max((size_t)(BATCH_BLOCK >> t->shift) * BATCH_TURNS,
                            memopt_i_ceil_div(memopt_i_min(rows, l->rows), memopt_i_max(1, BATCH_GROUPS / t->tiles)));
    t->groups = memopt_i_ceil_div(l->rows, t->group);
    t->part = memopt_i_max(1, rows / t->group) * t->group;
    t->grad_part = memopt_i_min(l->rows, memopt_i_max(1, grad_rows / t->group) * t->group);
}

/* Where it all lies in scratch: `linear` bytes for linear, then ours. */
PRUNED void batch_lay_out(batch_task *t, size_t linear, memopt_carver *c) {
    const memopt_linear *l = &t->x.linear;
    const size_t n = l->outputs;
    const int narrow = l->gradient_type != MEMOPT_TYPE_F32 && t->grad_part < l->rows;

    (void)memopt_carve(c, linear, 1, 256);
    t->sums = static_cast<float *>(memopt_carve(c, t->groups, 2 * n * sizeof(float), 256));
    t->factor = static_cast<float *>(memopt_carve(c, 3 * n, sizeof(float), 256));
    t->mean = t->factor ? t->factor + n : NULL;
    t->share = t->factor ? t->mean + n : NULL;
    t->grad_z = memopt_carve(c, t->grad_part * n, memopt_type_bytes(l->type), 256);
    t->weights = static_cast<float *>(memopt_carve(c, narrow ? n * l->inputs + n : 0, sizeof(float), 256));
    if (!narrow) t->weights = NULL;
}

/* The numbers, without the pointers. */
PRUNED status_t batch_resolve(const memopt_batch_norm *x, batch_task *t) {
    memopt_linear *l = &t->x.linear;
    size_t n;

    if (!x) return MEMOPT_ERR_ARGUMENT;
    memset(t, 0, sizeof *t);
    t->x = *x;
    if (!(memopt_i_float_bits(t->x.momentum) << 1)) t->x.momentum = 0.1f;
    if (memopt_i_activation_is_invalid(l->activation) || !memopt_type_bytes(l->gradient_type)
        || memopt_i_norm_eps(&t->x.eps) || l->residual
        || !(t->x.momentum > 0 && t->x.momentum <= 1) || (t->x.no_update & ~1) || (l->accumulate & ~1)
        || (l->accumulate_input & ~1) || !memopt_type_bytes(l->type) || !memopt_type_bytes(l->weight_type))
        return MEMOPT_ERR_ARGUMENT;
    if (memopt_i_ops_too_large(l->rows, l->inputs, l->type) || memopt_i_ops_too_large(l->rows, l->outputs, l->type)
        || memopt_i_ops_too_large(l->outputs, 2, MEMOPT_TYPE_F32) || memopt_i_add(l->inputs, 1, &n)
        || memopt_i_ops_too_large(l->outputs, n, MEMOPT_TYPE_F32)) return MEMOPT_ERR_OVERFLOW;
    return 0;
}

/* Scratch: linear's, then ours. *linear: the bytes of the former. part: see batch_cut() */
PRUNED status_t batch_scratch(const memopt_cuda_ops *ops, batch_task *t, size_t part, size_t *linear, size_t *bytes) {
    memopt_linear l = t->x.linear;
    status_t s;
    size_t other;
    memopt_carver c = memopt_carver_begin(NULL);
    static float wanted; /* whether or not there is a gradient of the bias this time */

    l.activation = MEMOPT_ACTIVATION_NONE;
    l.pre_activation = NULL;
    l.grad_bias = &wanted;
    l.accumulate = 0;
    if ((s = memopt_cuda_linear_scratch(ops, &l, linear)) != 0) return s;
    l.gradient_type = MEMOPT_TYPE_F32;
    if ((s = memopt_cuda_linear_scratch(ops, &l, &other)) != 0) return s;
    *linear = memopt_i_max(*linear, other);
    if (l.outputs) batch_cut(t, part);
    batch_lay_out(t, *linear, &c);
    *bytes = c.bytes;
    return c.overflow ? MEMOPT_ERR_OVERFLOW : 0;
}

PUBLIC status_t api::memopt_cuda_batch_norm_scratch(const memopt_cuda_ops *ops, const memopt_batch_norm *x,
                                                    size_t *bytes) {
    batch_task t;
    size_t linear, all;
    status_t s;

    if (!bytes) return MEMOPT_CUDA_ERR_NULL;
    if ((s = batch_resolve(x, &t)) != 0
        || (s = batch_scratch(ops, &t, MEMOPT_I_CUDA_BATCH_PART, &linear, &all)) != 0) return s;
    *bytes = all;
    return 0;
}

/* The pointers. There is at least one output. */
PRUNED status_t batch_check(const memopt_batch_norm *x, int backward) {
    const memopt_linear *l = &x->linear;
    const memopt_type f32 = MEMOPT_TYPE_F32;
    const memopt_type type = l->type;
    const memopt_type of_w = l->weight_type;
    const memopt_type of_g = l->gradient_type;
    const size_t n = l->outputs;
    const size_t in = l->rows * l->inputs;
    const size_t out = l->rows * n;
    const array none = { NULL, 0, type, 0, 0 }; /* twice, where two arrays might be one */
    const array forward_arrays[] = {
        none, none,
        { l->pre_activation, out, type, 1, 1 },
        { x->statistics, 2 * n, f32, 1, 1 },
        { l->input, in, type, 1, 0 },
        { l->weights, n * l->inputs, of_w, 1, 0 },
        { l->bias, n, of_w, 0, 0 },
        { x->scale, n, of_w, 0, 0 },
        { x->shift, n, of_w, 0, 0 },
        { l->output, out, type, 1, 1 },
        { x->running_mean, n, f32, 0, 1 },
        { x->running_variance, n, f32, 0, 1 } };
    const array backward_arrays[] = { { l->grad_output, out, type, 1, 0 },
        none,
        { l->pre_activation, out, type, 1, 0 },
        { x->statistics, 2 * n, f32, 1, 0 },
        { l->input, in, type, l->grad_weights != NULL, 0 },
        { l->weights, n * l->inputs, of_w, l->grad_input != NULL, 0 },
        { l->bias, n, of_w, 0, 0 },
        { x->scale, n, of_w, 0, 0 },
        { x->shift, n, of_w, 0, 0 },
        { l->grad_input, in, type, 0, 1 },
        { l->grad_weights, n * l->inputs, of_g, 0, 1 },
        { l->grad_bias, n, of_g, 0, 1 },
        { x->grad_scale, n, of_g, 0, 1 },
        { x->grad_shift, n, of_g, 0, 1 } };

    return backward ? arrays_no_overlap(backward_arrays, 14) : arrays_no_overlap(forward_arrays, 12);
}

/* Which arrays are whole spans. */
PRUNED void batch_align(batch_task *t, int backward) {
    const memopt_linear *l = &t->x.linear;
    const memopt_type type = l->type;
    const memopt_type f32 = MEMOPT_TYPE_F32;
    const size_t n = l->outputs;
    const size_t per = 16 / memopt_type_bytes(type);

    t->wide = are_spans(l->pre_activation, type, n, per)
           && are_spans(backward ? l->grad_output : l->output, type, n, per);
    t->wide_weights = are_spans(t->x.scale, l->weight_type, n, per) && are_spans(t->x.shift, l->weight_type, n, per);
    t->wide_floats = are_spans(t->x.statistics, f32, n, per);
}

/* Everything is made sure of. inner: what linear runs with */
PRUNED status_t batch_begin(const memopt_cuda_ops *ops, const memopt_batch_norm *x, int backward, size_t part,
                            batch_task *t, memopt_cuda_ops *inner) {
    size_t linear, bytes;
    memopt_carver c;
    status_t s;

    if ((s = batch_resolve(x, t)) != 0) return s;
    if (t->x.linear.rows < 2) return MEMOPT_ERR_ARGUMENT;
    if (!t->x.linear.outputs) return 0;
    if ((s = batch_check(&t->x, backward)) != 0) return s;
    if (!ops) return MEMOPT_CUDA_ERR_NULL;
    if ((s = batch_scratch(ops, t, part, &linear, &bytes)) != 0 || (s = scratch_check(ops, bytes)) != 0) return s;
    *inner = *ops;
    inner->scratch_bytes = linear;
    c = memopt_carver_begin(ops->d_scratch);
    batch_lay_out(t, linear, &c);
    batch_align(t, backward);
    return ready();
}

PRUNED const void *batch_row(const void *p, memopt_type type, size_t at) {
    return p ? memopt_i_row_at(p, type, at) : NULL;
}

/* z of a part: linear, without the activation */
PRUNED status_t batch_product(const memopt_cuda_ops *ops, const batch_task *t, size_t first, size_t count,
                              cudaStream_t stream) {
    memopt_linear l = t->x.linear;

    l.rows = count;
    l.activation = MEMOPT_ACTIVATION_NONE;
    l.pre_activation = NULL;
    l.input = batch_row(l.input, l.type, first * l.inputs);
    l.output = memopt_i_row_to(t->x.linear.pre_activation, l.type, first * l.outputs);
    return memopt_cuda_linear_forward(ops, &l, stream);
}

PRUNED status_t batch_forward(const memopt_cuda_ops *ops, const memopt_batch_norm *x, size_t part,
                              cudaStream_t stream) {
    batch_task t;
    memopt_cuda_ops inner;
    status_t s = batch_begin(ops, x, 0, part, &t, &inner);
    const size_t rows = s ? 0 : t.x.linear.rows;

    if (s || !t.x.linear.outputs) return s;
    for (size_t first = 0, count; first < rows; first += count) {
        count = memopt_i_min(t.part, rows - first);
        if ((s = batch_product(&inner, &t, first, count, stream)) != 0
            || (s = batch_stage(&t, BATCH_SPREAD, first, count, stream)) != 0) return s;
    }
    if ((s = batch_join(&t, 0, stream)) != 0) return s;
    return batch_stage(&t, BATCH_OUTPUT, 0, rows, stream);
}

PUBLIC status_t api::memopt_cuda_batch_norm_forward(const memopt_cuda_ops *ops, const memopt_batch_norm *x,
                                                    cudaStream_t stream) {
    return batch_forward(ops, x, MEMOPT_I_CUDA_BATCH_PART, stream);
}

/* Linear's backward of a part; its gradients go on from part to part, as floats. */
PRUNED status_t batch_linear(const memopt_cuda_ops *ops, const batch_task *t, size_t first, size_t count,
                             cudaStream_t stream) {
    memopt_linear l = t->x.linear;

    l.rows = count;
    l.activation = MEMOPT_ACTIVATION_NONE;
    l.pre_activation = NULL;
    l.grad_output = t->grad_z;
    l.input = batch_row(l.input, l.type, first * l.inputs);
    if (l.grad_input) l.grad_input = memopt_i_row_to(l.grad_input, l.type, first * l.inputs);
    if (t->weights) {
        l.gradient_type = MEMOPT_TYPE_F32;
        l.accumulate = 0;
        if (l.grad_weights) l.grad_weights = t->weights;
        if (l.grad_bias) l.grad_bias = t->weights + l.outputs * l.inputs;
    }
    if (first) l.accumulate = 1;
    return memopt_cuda_linear_backward(ops, &l, stream);
}

PRUNED status_t batch_store(const batch_task *t, void *to, const float *sums, size_t n, cudaStream_t stream) {
    if (!to || !t->weights) return 0;
    return CU_RUN(batch_store_kernel<>, memopt_i_ceil_div(n, LAYER_BLOCK * 4), LAYER_BLOCK, 0, stream, sums, to,
                  t->x.linear.gradient_type, n, t->x.linear.accumulate);
}

/* What linear's backward would refuse, when gradients of scale and shift have been written. */
PRUNED status_t batch_linear_check(const memopt_cuda_ops *ops, const memopt_linear *l) {
    const int of_weights = l->grad_weights || l->grad_bias;
    status_t s;

    if (!of_weights && !l->grad_input) return 0;
    if (!ops->gemm) return MEMOPT_CUDA_ERR_NULL;
    s = gemm_types(ops->gemm, l->type, of_weights ? l->gradient_type : l->type);
    return s ? s : gemm_ready(ops->gemm);
}

PRUNED status_t batch_backward(const memopt_cuda_ops *ops, const memopt_batch_norm *x, size_t part,
                               cudaStream_t stream) {
    batch_task t;
    memopt_cuda_ops inner;
    status_t s = batch_begin(ops, x, 1, part, &t, &inner);
    const memopt_linear *l = &t.x.linear;

    if (s || !l->outputs || (s = batch_linear_check(ops, l)) != 0) return s;
    if ((s = batch_stage(&t, BATCH_SUMS, 0, l->rows, stream)) != 0 || (s = batch_join(&t, 1, stream)) != 0) return s;
    if (!l->grad_input && !l->grad_weights && !l->grad_bias) return 0;
    for (size_t first = 0, count; first < l->rows; first += count) {
        count = memopt_i_min(t.grad_part, l->rows - first);
        if ((s = batch_stage(&t, BATCH_GRAD_Z, first, count, stream)) != 0
            || (s = batch_linear(&inner, &t, first, count, stream)) != 0) return s;
    }
    if ((s = batch_store(&t, l->grad_weights, t.weights, l->outputs * l->inputs, stream)) != 0) return s;
    return batch_store(&t, l->grad_bias, t.weights ? t.weights + l->outputs * l->inputs : NULL, l->outputs, stream);
}

PUBLIC status_t api::memopt_cuda_batch_norm_backward(const memopt_cuda_ops *ops, const memopt_batch_norm *x,
                                                     cudaStream_t stream) {
    return batch_backward(ops, x, MEMOPT_I_CUDA_BATCH_PART, stream);
}

/* ---- inference ---- */
PRUNED __global__ void __launch_bounds__(LAYER_BLOCK)
batch_fold_kernel(row_tiling t, memopt_batch_norm x, float *weights, float *bias, bool wide) {
    enum { N = 4 };
    const memopt_linear *l = &x.linear;
    size_t at;
    const size_t row = row_place<N>(t, &at);
    const unsigned left = left_of<N>(l->inputs, at);
    float w[N];

    if (row >= l->outputs || (!left && at)) return;
    const float variance = memopt_i_sum(x.running_variance[row], x.eps);
    const float inverse = memopt_i_v1_div(1.0f, memopt_i_v1_sqrt(variance));
    const float factor = memopt_i_times(inverse, one_or(x.scale, l->weight_type, row, 1));
    if (!at) {
        const float old = one_or(l->bias, l->weight_type, row, 0);
        const float shift = one_or(x.shift, l->weight_type, row, 0);
        bias[row] = fmaf(memopt_i_v1_sub(old, x.running_mean[row]), factor, shift);
    }
    floats_at<N>(w, left ? l->weights : NULL, l->weight_type, row * l->inputs + at, left, wide, 0);
    CU_UNROLL for (int i = 0; i < N; ++i) w[i] = memopt_i_times(factor, w[i]);
    span_put_floats<float, N>(weights + row * l->inputs + at, w, left, wide);
}

PUBLIC status_t api::memopt_cuda_batch_norm_fold(const memopt_cuda_ops *, const memopt_batch_norm *x, float *d_weights,
                                                 float *d_bias, cudaStream_t stream) {
    batch_task t;
    row_tiling r;
    unsigned blocks;
    status_t s = batch_resolve(x, &t);
    const memopt_linear *l = &t.x.linear;
    const memopt_type f32 = MEMOPT_TYPE_F32;

    if (s || !l->outputs) return s;
    const size_t n = l->outputs;
    const size_t all = n * l->inputs;
    const array a[] = { { l->weights, all, l->weight_type, 1, 0 },
        { l->bias, n, l->weight_type, 0, 0 },
        { d_weights, all, f32, 1, 1 },
        { d_bias, n, f32, 1, 1 },
        { t.x.running_mean, n, f32, 1, 0 },
        { t.x.running_variance, n, f32, 1, 0 },
        { t.x.scale, n, l->weight_type, 0, 0 },
        { t.x.shift, n, l->weight_type, 0, 0 } };
    if ((s = arrays_no_overlap(a, 8)) != 0
        || (s = row_tiles(n, memopt_i_max(1, l->inputs), 4, &r, &blocks)) != 0) return s;
    const bool wide = are_spans(l->weights, l->weight_type, l->inputs, 4) && are_spans(d_weights, f32, l->inputs, 4);
    return CU_RUN(batch_fold_kernel<>, blocks, LAYER_BLOCK, 0, stream, r, t.x, d_weights, d_bias, wide);
}
#endif /* MEMOPT_CUDA_NO_BATCH_NORM */

/* @section cuda_head : cuda_base cuda_gemm cuda_linear cuda_softmax api_cuda_head
   Linear + softmax + cross-entropy of a language model's head.
   Problem    Logits of 32,768 rows and 128,256 tokens are 8.4 GB in bf16, as their gradient is, for three products.
   Idea       As on the CPU: rows go through in chunks, logits -> gradient in place -> gradient of weights, added onto
              the last by beta -> gradient of input. What is divided by, the targets of all rows that are not ignored,
              is counted first, on the device: no chunk needs the host, and nothing waits.
   Ways       Whole logits, probabilities and gradient are 3 x 8.4 GB; the gradient in place 8.4; chunks 0.46 GB, for
              which the gradient of weights is read and written once a chunk, under products that take longer.
   Chunk      The larger, the fewer passes over the gradient of weights; below 1,024 rows these passes are what takes
              time, so the default is what fits 448 MiB, up to 2,048 rows, in multiples of 128 (a product's tile).
   Type       A logit of 16 bits is wrong by 2^-9 (bf16) of itself, and its probability by as much times its size: what
              engines that train in bf16 live with. The sums over them are double all the same. See `cuda_softmax`.
   Order      Sums over a chunk's rows are cuBLASLt's, chunks follow each other, rows of losses are added in their
              order.
   Padding    Products are `padded` wide and deep, which suits tensor cores where the vocabulary does not (50,304 for
              50,257); softmax looks at `vocabulary` logits and makes the gradient of the others 0. */

enum { HEAD_ROWS = 2048, HEAD_TILE = 128 };
#define MEMOPT_I_CUDA_HEAD_LOGITS ((size_t)448 << 20) /* bytes of logits in scratch, where nobody says how many rows */

typedef struct head_task {
    memopt_head h;       /* with defaults filled in */
    memopt_cuda_gemm *gemm;
    size_t  bytes;       /* of scratch */
    size_t  stride;      /* of logits: of a multiple of 16 bytes, as tensor cores like it */
    unsigned char *logits;
    double *row_losses;
    size_t *count;
} head_task;

PRUNED size_t head_chunk(const memopt_head *h, size_t stride, size_t size) {
    size_t rows = h->chunk;

    if (!rows) {
        rows = memopt_i_align_down(MEMOPT_I_CUDA_HEAD_LOGITS / size / stride, HEAD_TILE);
        rows = memopt_i_min(memopt_i_max(rows, HEAD_TILE), HEAD_ROWS);
    }
    return memopt_i_min(rows, h->rows);
}

PRUNED void head_lay_out(head_task *t, memopt_carver *c) {
    t->logits = (unsigned char *)memopt_carve(c, t->h.chunk, t->stride * memopt_type_bytes(t->h.type), 256);
    t->row_losses = (double *)memopt_carve(c, t->h.rows, sizeof *t->row_losses, 256);
    t->count = (size_t *)memopt_carve(c, 256, 1, 256);
}

/* Shapes and types, and the bytes of scratch. */
PRUNED status_t head_resolve(const memopt_head *head, head_task *t) {
    memopt_head *h = &t->h;
    memopt_carver scratch = memopt_carver_begin(NULL);
    size_t size;
    memopt_i_checks c = memopt_i_checks_begin(NULL, NULL);

    if (!head || !head->width || !head->vocabulary || memopt_i_loss_rule_check(&c, &head->rule)
        || !memopt_type_bytes(head->type) || !memopt_type_bytes(head->weight_type)
        || !memopt_type_bytes(head->gradient_type) || (head->accumulate & ~1)) return MEMOPT_ERR_ARGUMENT;
    if (head->type != head->weight_type
        || (head->gradient_type != head->type && head->gradient_type != MEMOPT_TYPE_F32)) return MEMOPT_CUDA_ERR_TYPE;
    memset(t, 0, sizeof *t);
    *h = *head;
    if (!h->padded) h->padded = h->vocabulary;
    if (h->padded < h->vocabulary) return MEMOPT_ERR_ARGUMENT;
    if (gemm_dimension(h->rows) || gemm_dimension(h->width)
        || h->padded > 0x7fffffff - 16 || memopt_i_ops_too_large(h->rows, h->width, MEMOPT_TYPE_F32)
        || memopt_i_ops_too_large(h->padded, h->width, MEMOPT_TYPE_F32)) return MEMOPT_ERR_OVERFLOW;
    size = memopt_type_bytes(h->type);
    t->stride = memopt_i_align_down(h->padded + 16 / size - 1, 16 / size);
    h->chunk = head_chunk(h, t->stride, size);
    head_lay_out(t, &scratch);
    t->bytes = scratch.bytes;
    return scratch.overflow ? MEMOPT_ERR_OVERFLOW : 0;
}

PUBLIC status_t api::memopt_cuda_head_scratch(const memopt_cuda_ops *, const memopt_head *head, size_t *bytes) {
    head_task t;
    const status_t s = head_resolve(head, &t);

    if (s) return s;
    if (!bytes) return MEMOPT_CUDA_ERR_NULL;
    *bytes = t.bytes;
    return 0;
}

PRUNED status_t head_check(const memopt_head *h, const memopt_cuda_ops *ops, const memopt_loss *d_out) {
    const size_t in = h->rows * h->width;
    const size_t weights = h->padded * h->width;
    const size_t row = memopt_type_bytes(h->type);
    const memopt_i_ops_array a[] = { /* targets have 4 bytes, as losses do */
        { h->input, in * row, 0, NULL },
        { h->grad_input, in * row, 1, NULL },
        { h->weights, weights * row, 0, NULL },
        { h->targets, h->rows * 4, 0, NULL },
        { h->losses, h->rows * 4, 1, NULL },
        { h->grad_weights, weights * memopt_type_bytes(h->gradient_type), 1, NULL },
        { ops->d_scratch, ops->scratch_bytes, 1, NULL },
        { d_out, sizeof *d_out, 1, NULL } };
    status_t s;

    if ((s = pointer(d_out, 8)) != 0 || (s = linear_pointer(h->weights, h->weight_type, h->rows ? weights : 0)) != 0
        || (s = linear_pointer(h->input, h->type, in)) != 0
        || (s = linear_pointer(h->targets, MEMOPT_TYPE_F32, h->rows)) != 0
        || (s = pointer_if(h->grad_input, memopt_type_bytes(h->type))) != 0
        || (s = pointer_if(h->grad_weights, memopt_type_bytes(h->gradient_type))) != 0
        || (s = pointer_if(h->losses, 4)) != 0) return s;
    return no_overlap(a, 8);
}

/* ---- the three products of a chunk ---- */
PRUNED matrix head_logits(const head_task *t, int turned) { return { t->logits, t->stride, t->h.type, turned, 0 }; }

PRUNED matrix head_rows(const head_task *t, const void *rows, size_t first) {
    return { memopt_i_row_at(rows, t->h.type, first * t->h.width), t->h.width, t->h.type, 0, 0 };
}

PRUNED matrix_product head_forward(const head_task *t, size_t first, size_t rows) {
    const memopt_head *h = &t->h;
    return product_of(rows, h->padded, h->width, head_rows(t, h->input, first),
                      { h->weights, h->width, h->type, 1, 0 }, head_logits(t, 0));
}

PRUNED matrix_product head_weights(const head_task *t, size_t first, size_t rows) {
    const memopt_head *h = &t->h;
    matrix_product q = product_of(h->padded, h->width, rows, head_logits(t, 1), head_rows(t, h->input, first),
        { h->grad_weights, h->width, h->gradient_type, 0, 0 });

    q.p.accumulate = h->accumulate || first;
    return q;
}

PRUNED matrix_product head_input(const head_task *t, size_t first, size_t rows) {
    const memopt_head *h = &t->h;
    return product_of(rows, h->width, h->padded, head_logits(t, 0), { h->weights, h->width, h->type, 0, 0 },
                      head_rows(t, h->grad_input, first));
}

/* Of a chunk, first only its algorithms, then all of it. The input's gradient is last: it may take its place. */
PRUNED status_t head_part(const head_task *t, size_t first, int plan_only, cudaStream_t stream) {
    const memopt_head *h = &t->h;
    const size_t rows = memopt_i_min(h->chunk, h->rows - first);
    matrix_product q = head_forward(t, first, rows);
    memopt_cross_entropy x = {};
    status_t s = gemm_run(t->gemm, &q, plan_only, stream);

    x.rows = rows;
    x.vocabulary = x.whole = h->vocabulary;
    x.stride = t->stride;
    x.type = h->type;
    x.logits = t->logits;
    x.keep_logits = !h->grad_input && !h->grad_weights;
    x.targets = h->targets + first;
    x.losses = h->losses ? h->losses + first : NULL;
    x.rule = h->rule;
    if (!s && !plan_only) s = cross_entropy_rows(&x, t->count, t->row_losses + first, stream);
    if (!s && h->grad_weights) {
        q = head_weights(t, first, rows);
        s = gemm_run(t->gemm, &q, plan_only, stream);
    }
    if (!s && h->grad_input) {
        q = head_input(t, first, rows);
        s = gemm_run(t->gemm, &q, plan_only, stream);
    }
    return s;
}

/* Gradients of weights that no product writes, because there is no row. */
PRUNED status_t head_clear(const memopt_head *h, cudaStream_t stream) {
    const size_t size = memopt_type_bytes(h->gradient_type);

    if (!h->grad_weights || h->accumulate || h->rows) return 0;
    return taken(cudaMemsetAsync(h->grad_weights, 0, h->padded * h->width * size, stream));
}

PUBLIC status_t api::memopt_cuda_head_loss(const memopt_cuda_ops *ops, const memopt_head *head, memopt_loss *d_out,
                                           cudaStream_t stream) {
    head_task t;
    const memopt_head *h = &t.h;
    memopt_carver c;
    size_t first;
    status_t s;
    int plan_only;

    if (!ops || !ops->gemm) return MEMOPT_CUDA_ERR_NULL;
    if ((s = head_resolve(head, &t)) != 0 || (s = head_check(h, ops, d_out)) != 0
        || (s = gemm_types(ops->gemm, h->type, h->gradient_type)) != 0 || (s = linear_scratch(ops, t.bytes)) != 0
        || (s = gemm_ready(ops->gemm)) != 0) return s;
    t.gemm = ops->gemm;
    c = memopt_carver_begin(ops->d_scratch);
    head_lay_out(&t, &c);
    for (plan_only = 1; plan_only >= 0 && !s; --plan_only) {
        if (!plan_only) s = head_clear(h, stream);
        if (!plan_only && !s) s = cross_entropy_count(h->targets, h->rows, t.count, stream);
        for (first = 0; first < h->rows && !s; first += memopt_i_min(h->chunk, h->rows - first))
            s = head_part(&t, first, plan_only, stream);
    }
    return s ? s : cross_entropy_total(t.row_losses, h->rows, &h->rule, t.count, d_out, stream);
}

PUBLIC status_t api::memopt_cuda_head_logits(const memopt_cuda_ops *ops, const memopt_head *head, size_t first,
                                             size_t count, float *d_logits, cudaStream_t stream) {
    head_task t;
    matrix_product q;
    status_t s;
    size_t bytes;

    if (!ops || !ops->gemm) return MEMOPT_CUDA_ERR_NULL;
    if ((s = head_resolve(head, &t)) != 0) return s;
    if (first > t.h.rows || count > t.h.rows - first) return MEMOPT_ERR_ARGUMENT;
    if (memopt_i_ops_too_large(count, t.h.vocabulary, MEMOPT_TYPE_F32)) return MEMOPT_ERR_OVERFLOW;
    if (!count) return 0;
    bytes = count * t.h.vocabulary * sizeof(float);
    if ((s = pointer(t.h.input, memopt_type_bytes(t.h.type))) != 0
        || (s = pointer(t.h.weights, memopt_type_bytes(t.h.type))) != 0 || (s = pointer(d_logits, sizeof(float))) != 0
        || (s = gemm_types(ops->gemm, t.h.type, MEMOPT_TYPE_F32)) != 0
        || (s = no_overlap(d_logits, bytes, t.h.input, t.h.rows * t.h.width * memopt_type_bytes(t.h.type))) != 0
        || (s = no_overlap(d_logits, bytes, t.h.weights, t.h.vocabulary * t.h.width * memopt_type_bytes(t.h.type))) != 0
        || (s = gemm_ready(ops->gemm)) != 0)
        return s;
    q = head_forward(&t, first, count);
    q.p.columns = t.h.vocabulary;
    q.p.result = d_logits;
    q.p.result_stride = t.h.vocabulary;
    q.p.result_type = MEMOPT_TYPE_F32;
    return gemm_run(ops->gemm, &q, 0, stream);
}

/* @section cuda_tensor : cuda_base
   Tensor cores and asynchronous copies: what is said in PTX, and nothing else.
   Fragments  mma.m16n8k16 adds a product of 16 x 16 (left) and 16 x 8 (right) onto 16 x 8 floats (sums). With lane =
              4 g + t a lane holds, each word two neighbours: of left, rows g, g + 8, g, g + 8 and columns 2t, 2t, 2t +
              8, 2t + 8; of right, column g, rows 2t and 2t + 8; of sums, row g columns 2t and 2t + 1, row g + 8 the
              same. So sums of two neighbouring products, rounded, are the left of the next one.
   Rows       _matrices() reads four matrices of 8 x 8 elements: lane i gives the address of row i % 8 of matrix i / 8,
              and gets of each matrix what right wants of one that lies transposed; with TRANSPOSED, of one that does
              not.
   Copies     16 bytes each, of which `bytes` (0 or 16) are read and the rest is 0. A thread waits until all but its
              last GROUPS commits are there: for its own copies only, so a barrier follows.
   Groups     wgmma, of sm_90a alone: four warps add a product of 64 x 16 (left) and 16 x 64 (right) onto 64 x 64
              floats. Warp w has rows 16 w to 16 w + 15, in fragments as above: of sums eight of 16 x 8, of left one,
              unless left is in shared memory as right is. It reads and adds while the warps go on: from _begin(), which
              orders registers, and _commit() on to a _wait() nobody touches sums, and nobody writes what it reads, left
              in registers neither. Both are `settled` before and after, or the compiler would move what uses them
              across: ptxas tells when sums are touched too early, but not left, which tests/check_flight.py looks for.
   Matrices   of a group in shared memory are tiles of 64 rows of 64 elements, at multiples of 1,024 bytes; chunk c of
              16 bytes of row r is at place c ^ (r & 7) of its row. Of right the rows of a tile are columns; ACROSS, its
              columns are. wgmma reads by another way than threads write, asynchronous copies too: each thread shows
              what it wrote (_show()), then comes the barrier.
   Trap       Kernels with groups have a body for sm_90a alone, which no version tells: without it they take no more
              than 32 threads, and that can be asked for. */

#ifndef MEMOPT_CUDA_NO_ATTENTION
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#  define MEMOPT_I_CUDA_NO_GROUPS
#endif
#ifndef MEMOPT_I_CUDA_TENSOR
#define MEMOPT_I_CUDA_TENSOR
PRUNED __device__ __forceinline__ void memopt_i_cuda_copy(void *to, const void *from, unsigned bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 : : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(bytes) : "memory");
}

PRUNED __device__ __forceinline__ void memopt_i_cuda_copy_commit(void) {
    asm volatile("cp.async.commit_group;" : : : "memory");
}

template <int GROUPS> CU_DEVICE void memopt_i_cuda_copy_wait(void) {
    asm volatile("cp.async.wait_group %0;" : : "n"(GROUPS) : "memory");
}

template <int TRANSPOSED> CU_DEVICE void memopt_i_cuda_matrices(uint32_t *part, const void *row) {
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);

    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3]) : "r"(at) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3]) : "r"(at) : "memory");
}

template <typename T> CU_DEVICE void memopt_i_cuda_multiply(float *sums, const uint32_t *left, const uint32_t *right) {
    if (T::is_bf16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};" : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(left[0]),
            "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};" : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(left[0]),
            "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

#ifdef MEMOPT_CUDA_WGMMA
PRUNED __device__ __forceinline__ uint32_t memopt_i_cuda_shared_at(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

PRUNED __device__ __forceinline__ void memopt_i_cuda_show(void) {
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

PRUNED __device__ __forceinline__ void memopt_i_cuda_group_begin(void) {
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

PRUNED __device__ __forceinline__ void memopt_i_cuda_group_commit(void) {
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

template <int GROUPS> CU_DEVICE void memopt_i_cuda_group_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(GROUPS) : "memory");
}

PRUNED __device__ __forceinline__ void memopt_i_cuda_settle(float &x) { asm volatile("" : "+f"(x) : : "memory"); }

PRUNED __device__ __forceinline__ void memopt_i_cuda_settle(uint32_t &x) { asm volatile("" : "+r"(x) : : "memory"); }

/* wgmma with 32 sums, which were nothing before where `onto` is 0 */
#define CU_SUM(i) "+f"(sums[i][0]), "+f"(sums[i][1]), "+f"(sums[i][2]), "+f"(sums[i][3])
#define CU_SUMS CU_SUM(0), CU_SUM(1), CU_SUM(2), CU_SUM(3), CU_SUM(4), CU_SUM(5), CU_SUM(6), CU_SUM(7)
#define CU_LOW "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
#define CU_HIGH "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define CU_ONTO "{.reg .pred onto; setp.ne.b32 onto, %32, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32."
#define CU_PRODUCT(type) CU_ONTO type "." type " {" CU_LOW CU_HIGH "}, "

template <typename T, int ACROSS>
CU_DEVICE void memopt_i_cuda_group_multiply(float (*sums)[4], const uint32_t *left, uint64_t right, int onto) {
    if (T::is_bf16)
        asm volatile(CU_PRODUCT("bf16") "{%33, %34, %35, %36}, %37, onto, 1, 1, %38;}" : CU_SUMS : "r"(onto),
                     "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "n"(ACROSS));
    else
        asm volatile(CU_PRODUCT("f16") "{%33, %34, %35, %36}, %37, onto, 1, 1, %38;}" : CU_SUMS : "r"(onto),
                     "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "n"(ACROSS));
}

template <typename T>
CU_DEVICE void memopt_i_cuda_group_multiply_shared(float (*sums)[4], uint64_t left, uint64_t right, int onto) {
    if (T::is_bf16)
        asm volatile(CU_PRODUCT("bf16") "%33, %34, onto, 1, 1, 0, 0;}" : CU_SUMS : "r"(onto), "l"(left), "l"(right));
    else
        asm volatile(CU_PRODUCT("f16") "%33, %34, onto, 1, 1, 0, 0;}" : CU_SUMS : "r"(onto), "l"(left), "l"(right));
}
#undef CU_SUM
#undef CU_SUMS
#undef CU_LOW
#undef CU_HIGH
#undef CU_ONTO
#undef CU_PRODUCT
#endif
#endif

#ifdef MEMOPT_CUDA_WGMMA
/* What wgmma is told of a tile: where it is, by sixteens of bytes; that eight rows are 1,024 bytes; how chunks are
   swapped. */
PRUNED __device__ __forceinline__ uint64_t group_tile(const void *tile) {
    const uint64_t apart = 1024 / 16;

    return (uint64_t)(memopt_i_cuda_shared_at(tile) & 0x3ffff) / 16 | apart << 16 | apart << 32 | (uint64_t)1 << 62;
}
#endif

/* @section cuda_flash : cuda_base cuda_tensor
   Attention in one kernel: scores never leave the registers.           [Milakov 2018, FlashAttention-2, Dao 2023]
   Idea       A block owns 128 rows, 32 each of four warps, and walks over the others in tiles of N, two buffers deep:
              while one is computed with, the other comes. Forward owns queries and walks over keys and values, with a
              running maximum and sum, as `online` of `attention` in memopt.h. Backward is two kernels, so that each
              result has one owner, and sums have one order: rows own queries and grad_output and make the gradient of
              queries; columns own keys and values, walk over queries and grad_output of all heads that share them, and
              make both gradients. The two are one kernel: scores transposed are a product of the same kind.
   Statistics Online forward keeps of each row the score with probability 1, and backward takes sum(P dP) of a row from
              sum(dO O). Otherwise backward begins with a forward that keeps both numbers in scratch and no output.
   Tiles      in shared memory are rows of D = 64 or 128 elements, zeros beyond the width and beyond the last row in
              use. Chunk c of 16 bytes of row r is at place c ^ (r & 7): eight rows at one chunk are in eight banks.
   Causal     A tile that crosses the diagonal is multiplied whole, with zeros where a row may not look. So that 0 times
              what is not finite is not NaN there, such a tile is looked at first: what is not finite in it is added on
              by itself, for the rows that see it, and then 0 in the tile. A row's bits depend on what it sees, alone.
   Window     The same where the diagonal of its beginnings crosses a tile. Tiles before it are not loaded.
   Documents  are sequences, of tiles of their own; which one a block has is found by halving in where they begin.
   Bound      On sm_90 a tensor core takes 4 cycles for a product of 16 x 8 x 16, and shared memory gives 128 bytes a
              cycle to four of them: 128 bytes a product. Fragments of the others that meet 16 rows take 256, 32 rows
              128. So a warp has 32 rows, and of their own fragments as many as fit stay in registers (KEPT), where each
              would take 512 bytes for every tile.
   Registers  255 of a lane. D = 128: forward has 128 sums and 32 scores; backward would have 128 or 256 sums and 64, so
              two warps share 32 rows, see flash_pairs_kernel. D = 64: 64 or 128 sums and 64. What is not needed in
              every product is asked for again: places by anew(), the route from shared memory.
   Memory     Shared, 97 KiB at most: more is not to be had on 8.6, 8.9 and 12.0.
   Products   Forward 2, backward 7, without statistics 9; the least is 2 and 5. What is above pays for no atomics.
   Measured   On an H200, of cuBLASLt's rate for the least: forward 0.36 (D = 64) and 0.39, backward 0.26 and 0.23, with
              tensor cores at work in 44 % of the cycles; two warps a scheduler do not hide more. What is written for
              wgmma has twice that: see cuda_groups. */

enum { FLASH_WIDTH = 128, FLASH_ROWS = 128, FLASH_TILE = 64 }; /* rows of a tile of others, at most */
enum { FLASH_ALL = 0x7fffffff - 1024 }; /* a window that is none: rows are fewer */

/* Of eight fragments of own rows, what rows of D = 128 keep: at least four, see flash_passed_at(). Only on 9.0 are
   tensor cores so fast that it matters, and elsewhere seven would be spilled. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
enum { FLASH_KEPT = 4 };
#else
enum { FLASH_KEPT = 7 };
#endif

typedef struct flash_state {
    memopt_attention a;         /* starts: on the device */
    float  *statistics, *means; /* batch x heads x length; means: sum(P dP) */
    size_t  tiles;              /* of a head, or of a head of all documents: a block each */
    int     window;             /* or FLASH_ALL */
    unsigned inside;            /* the nearest query of a tile that all see is 0 to less than this behind its key */
    int     is_statistics;      /* a forward for a backward: statistics and means, and no output */
    int     wide;               /* rows are whole chunks of 16 bytes, and aligned to them */
} flash_state;

/* Rows of one head. */
template <typename T> struct flash_rows {
    T     *data;
    size_t stride;
    int    rows, width, wide; /* rows: from this one on there is nothing */
};

template <typename T>
CU_DEVICE flash_rows<T> flash_of(const flash_state &t, T *data, size_t stride, size_t start, size_t head, int rows) {
    return { data + start * stride + head * t.a.width, stride, rows, (int)t.a.width, t.wide };
}

/* Rows of a sequence. */
PRUNED __device__ __forceinline__ int flash_length(const flash_state &t, int used) {
    return t.a.lengths ? (int)t.a.length : used;
}

/* Where the statistic of a row is: the heads of a sequence follow each other. */
PRUNED __device__ __forceinline__ size_t flash_row_at(const flash_state &t, size_t start, size_t head, int used,
                                                     int row) {
    return start * t.a.heads + head * (size_t)flash_length(t, used) + (size_t)row;
}

/* The first of a warp's own 16 M rows; 8 / M warps have all of them. */
template <int M> CU_DEVICE int flash_own_row(void) {
    return (int)((unsigned)anew((int)threadIdx.x) % (256 / M) / 32 * 16 * M);
}

/* What a block owns. */
struct flash_place {
    size_t start, head;
    int    first, used; /* its first row; rows in use of the sequence, which begins at row `start` of all */
};

/* The last document whose first row, or whose first tile, is not behind `at`. Document d has the tiles from
   start / FLASH_ROWS + d on: for each as many as it needs or one more, and no table. */
template <int TILES> CU_DEVICE size_t flash_document(const flash_state &t, size_t at) {
    size_t low = 0;
    size_t high = t.a.documents;

    while (low + 1 < high) {
        const size_t middle = (low + high) / 2;

        if ((TILES ? t.a.starts[middle] / FLASH_ROWS + middle : t.a.starts[middle]) <= at) low = middle;
        else high = middle;
    }
    return low;
}

/* Blocks that have most to do begin: the last rows of a causal head, the first columns. */
PRUNED __device__ __forceinline__ flash_place flash_begin(const flash_state &t, unsigned block, size_t heads,
                                                          int last_first) {
    const unsigned all = (unsigned)t.tiles; /* as all blocks, below 2^31 */
    unsigned tile = block % all;
    unsigned tiles = all;
    size_t head = block / all;
    size_t start, used;

    if (t.a.documents) {
        const size_t document = flash_document<1>(t, tile);

        start = t.a.starts[document];
        used = t.a.starts[document + 1] - start;
        tile -= (unsigned)(start / FLASH_ROWS + document);
        tiles = (unsigned)memopt_i_ceil_div(used, FLASH_ROWS);
    } else {
        const size_t sequence = (unsigned)head / (unsigned)heads;

        head = (unsigned)head % (unsigned)heads;
        start = sequence * t.a.length;
        used = t.a.lengths ? memopt_i_min(t.a.lengths[sequence], t.a.length) : t.a.length;
    }
    if (last_first && tile < tiles) tile = tiles - 1 - tile;
    return { start, head, (int)tile * FLASH_ROWS, (int)used };
}

/* What a block's rows see of others; a warp has 16 M of them. */
template <int M, int COLUMNS> struct flash_sight {
    int first, used, causal, window; /* of the block, of the sequence */
    unsigned inside;

    /* Whether the diagonal, or the one where windows begin, crosses the tile of N others from this one on. */
    template <int N> __device__ __forceinline__ bool crosses(int other) const {
        return causal && (unsigned)(COLUMNS ? other - first - FLASH_ROWS + 1 : first - other - N + 1) >= inside;
    }

    /* Whether all rows see all of it. */
    template <int N> __device__ __forceinline__ bool whole(int other) const {
        return !crosses<N>(other) && other + N <= used;
    }

    /* The first own row of a lane; the others are multiples of 8 below it. */
    __device__ __forceinline__ int own(void) const {
        return first + flash_own_row<M>() + anew((int)threadIdx.x) % 32 / 4;
    }

    /* By how many rows the query is behind the key, of an own row and another one. */
    static __device__ __forceinline__ int lag(int own, int other) { return COLUMNS ? other - own : own - other; }

    __device__ __forceinline__ bool sees(int lag, int other) const {
        return other < used && (!causal || (unsigned)lag < (unsigned)window);
    }
};

/* ---- tiles ---- */
template <int D> static MEMOPT_I_HOST_DEVICE int flash_at(int row, int chunk) {
    return (row * (D / 8) + (chunk ^ (row & 7))) * 16;
}

/* Where row 16 down + r, chunk 2 right + c is, when `at` is where row r, chunk c (0 or 1) is. */
template <int D> static MEMOPT_I_HOST_DEVICE int flash_beside(int at, int down, int right) {
    return (at ^ right * 32) + down * D * 32;
}

/* A chunk of eight elements, or zeros, one by one. */
template <typename T> CU_DEVICE void flash_gather(unsigned char *to, const T *from, int elements) {
    uint32_t word[4] = { 0, 0, 0, 0 };

    CU_UNROLL for (int i = 0; i < 8; ++i) if (i < elements) word[i / 2] |= (uint32_t)from[i].code << (i % 2 * 16);
    *(uint4 *)(void *)to = make_uint4(word[0], word[1], word[2], word[3]);
}

/* Rows of a thread are a multiple of eight apart: all at the same place of their row. Of a copy of 0 bytes nothing is
   read, wherever it is from. */
template <typename T, int D, int ROWS, int THREADS>
CU_DEVICE void flash_load(unsigned char *tile, const flash_rows<const T> &r, int first) {
    enum { STEP = THREADS / (D / 8) };
    const int thread = anew((int)threadIdx.x);
    const int row = thread / (D / 8);
    const int chunk = thread % (D / 8);
    const int rows = chunk * 8 < r.width ? r.rows - first - row : 0; /* that are there, from this one on */
    const T *from = r.data + (size_t)(first + row) * r.stride + chunk * 8;

    tile += flash_at<D>(row, chunk);
    if (r.wide) {
        CU_UNROLL for (int i = 0; i < ROWS; i += STEP)
            memopt_i_cuda_copy(tile + i * D * 2, from + (size_t)i * r.stride, i < rows ? 16 : 0);
        return;
    }
    CU_ROLLED for (int i = 0; i < ROWS; i += STEP)
        flash_gather(tile + i * D * 2, from + (size_t)i * r.stride, i < rows ? r.width - chunk * 8 : 0);
}

/* Where a tile is of D / PANEL panels, each of which is a tile of PANEL columns, one behind the other. */
template <typename T, int D, int ROWS, int THREADS, int PANEL>
CU_DEVICE void flash_load_panels(unsigned char *tile, flash_rows<const T> r, int first) {
    CU_UNROLL for (int i = 0; i < D / PANEL; ++i) {
        flash_load<T, PANEL, ROWS, THREADS>(tile + i * ROWS * PANEL * 2, r, first);
        r.data += PANEL;
        r.width -= PANEL;
    }
}

/* A warp's 16 M rows of sums, rounded, by way of its own tile, which nobody else reads. Rows not in use are 0. */
template <typename T, int D, int M> CU_DEVICE void flash_store(unsigned char *tile, const float (&sums)[M][D / 8][4],
                                                               const flash_rows<T> &r, int first, int used) {
    const int lane = (int)threadIdx.x % 32;

    CU_UNROLL for (int i = 0; i < 2 * M * (D / 8); ++i) {
        const int row = i % 2 * 8 + i / 2 % M * 16 + lane / 4;
        const int n = i / 2 / M;
        const float *x = sums[i / 2 % M][n] + i % 2 * 2;
        const uint32_t word = two((const T *)NULL, x[0], x[1]);

        *(uint32_t *)(void *)(tile + flash_at<D>(row, n) + lane % 4 * 4) = first + row < used ? word : 0;
    }
    __syncwarp();
    CU_ROLLED for (int i = lane; i < 16 * M * (D / 8); i += 32) {
        const int row = i / (D / 8);
        const int column = i % (D / 8) * 8;
        const unsigned char *from = tile + flash_at<D>(row, column / 8);
        T *to = r.data + (size_t)(first + row) * r.stride + column;

        if (first + row >= r.rows || column >= r.width) continue;
        if (r.wide) *(uint4 *)(void *)to = *(const uint4 *)(const void *)from;
        else CU_ROLLED for (int j = 0; j < 8 && column + j < r.width; ++j)
            to[j].code = ((const uint16_t *)(const void *)from)[j];
    }
}

/* All that have been begun are there, for all; and nobody reads any more what was there before. */
PRUNED __device__ __forceinline__ void flash_copies_end(void) {
    memopt_i_cuda_copy_commit();
    memopt_i_cuda_copy_wait<0>();
    __syncthreads();
}

/* ---- products of a warp ---- */
template <int M, int N> CU_DEVICE void flash_zero(float (&sums)[M][N][4]) {
    CU_UNROLL for (int i = 0; i < M * N * 4; ++i) sums[i / 4 / N][i / 4 % N][i % 4] = 0;
}

/* Of own rows (16 M) the first KEPT columns of 16: the left of every product with others. */
template <int D, int M, int KEPT> CU_DEVICE void flash_keep(uint32_t (&kept)[KEPT][M][4], const unsigned char *own) {
    const int lane = (int)(threadIdx.x % 32);
    const int at = flash_at<D>(lane % 16, lane / 16);

    CU_UNROLL for (int i = 0; i < KEPT * M; ++i)
        memopt_i_cuda_matrices<0>(kept[i / M][i % M], own + flash_beside<D>(at, i % M, i / M));
    __syncwarp(); /* lanes may write there from now on */
}

/* scores = own rows (16 M), of which KEPT columns of 16 are kept, times the transposed of others (N) */
template <typename T, int D, int M, int N, int KEPT>
CU_DEVICE void flash_cross(float (&scores)[M][N / 8][4], const uint32_t (&kept)[KEPT][M][4], const unsigned char *own,
                           const unsigned char *others) {
    const int lane = anew((int)(threadIdx.x % 32)) & 31;
    const int own_at = flash_at<D>(lane % 16, lane / 16);
    const int at = flash_at<D>(lane % 8 + lane / 16 * 8, lane / 8 % 2);

    flash_zero(scores);
    CU_UNROLL for (int k = 0; k < D / 16; ++k) {
        uint32_t left[M][4];

        CU_UNROLL for (int m = 0; m < M; ++m) {
            if (k >= KEPT) memopt_i_cuda_matrices<0>(left[m], own + flash_beside<D>(own_at, m, k));
            else CU_UNROLL for (int i = 0; i < 4; ++i) left[m][i] = kept[k < KEPT ? k : 0][m][i];
        }
        CU_UNROLL for (int n = 0; n < N / 16; ++n) {
            uint32_t right[4];

            memopt_i_cuda_matrices<0>(right, others + flash_beside<D>(at, n, k));
            CU_UNROLL for (int m = 0; m < M; ++m) {
                memopt_i_cuda_multiply<T>(scores[m][2 * n], left[m], right);
                memopt_i_cuda_multiply<T>(scores[m][2 * n + 1], left[m], right + 2);
            }
        }
    }
}

/* sums += weights (16 M x N), rounded to the type, times others (N x D) */
template <typename T, int D, int M, int N>
CU_DEVICE void flash_mix(float (&sums)[M][D / 8][4], const float (&weights)[M][N / 8][4], const unsigned char *others) {
    const int lane = anew((int)(threadIdx.x % 32)) & 31;
    const int at = flash_at<D>(lane % 16, lane / 16);

    CU_UNROLL for (int k = 0; k < N / 16; ++k) {
        uint32_t left[M][4];

        CU_UNROLL for (int i = 0; i < 4 * M; ++i) {
            const float *x = weights[i / 4][2 * k + i % 4 / 2] + i % 2 * 2;
            left[i / 4][i % 4] = two((const T *)NULL, x[0], x[1]);
        }
        CU_UNROLL for (int n = 0; n < D / 16; ++n) {
            uint32_t right[4];

            memopt_i_cuda_matrices<1>(right, others + flash_beside<D>(at, k, n));
            CU_UNROLL for (int m = 0; m < M; ++m) {
                memopt_i_cuda_multiply<T>(sums[m][2 * n], left[m], right);
                memopt_i_cuda_multiply<T>(sums[m][2 * n + 1], left[m], right + 2);
            }
        }
    }
}

/* ---- what is not finite, in a tile that crosses the diagonal ---- */
template <typename T> CU_DEVICE bool flash_odd(uint32_t code) {
    const uint32_t exponent = T::is_bf16 ? 0x7f80 : 0x7c00;
    return (code & exponent) == exponent;
}

/* Whether this thread's words have any. CLEAR: it becomes 0. */
template <typename T, int D, int N, int THREADS, int CLEAR> CU_DEVICE bool flash_look(unsigned char *tile) {
    bool any = false;

    CU_ROLLED for (int i = (int)threadIdx.x % THREADS; i < N * D / 2; i += THREADS) {
        uint32_t *word = (uint32_t *)(void *)tile + i;
        const uint32_t x = *word;
        const bool low = flash_odd<T>(x);
        const bool high = flash_odd<T>(x >> 16);

        any |= low || high;
        if (CLEAR && (low || high)) *word = (low ? 0 : x & 0xffff) | (high ? 0 : x & 0xffff0000u);
    }
    return any;
}

/* weight times a code that is not finite, onto sum. */
template <typename T> CU_DEVICE float flash_odd_sum(float weight, uint32_t code, float sum) {
    const uint32_t nan = code & (T::is_bf16 ? 0x007f : 0x03ff) ? 0x00400000 : 0;

    return fmaf(weight, __uint_as_float((code & 0x8000) << 16 | 0x7f800000 | nan), sum);
}

/* sums += weights times what is not finite of others, for the rows that see it: eight columns at a time, by themselves,
   so that next to no registers are taken. */
template <typename T, int D, int M, int N, int COLUMNS>
CU_DEVICE void flash_add_odd(float (&sums)[M][D / 8][4], const float (&weights)[M][N / 8][4],
                             const unsigned char *others, const flash_sight<M, COLUMNS> &sight, int first) {
    const int lane = (int)threadIdx.x % 32;

    CU_ROLLED for (int n = 0; n < D / 8; ++n) {
        float odd[2 * M][2];

        CU_UNROLL for (int i = 0; i < 4 * M; ++i) odd[i / 2][i % 2] = 0;
        CU_ROLLED for (int j = 0; j < N; ++j) {
            const uint32_t pair = *(const uint32_t *)(const void *)(others + flash_at<D>(j, n) + lane % 4 * 4);

            CU_UNROLL for (int i = 0; i < 2 * M; ++i) {
                const bool seen = sight.sees(sight.lag(sight.own() + i * 8, first + j), first + j);
                uint32_t bits = 0; /* a sum of masks: the compiler would make an index of anything else, and an array */
                float weight;

                CU_UNROLL for (int k = 0; k < N / 8; ++k) bits |=
                    (0u - (uint32_t)(k == j / 8))
                          & __float_as_uint(j % 2 ? weights[i / 2][k][i % 2 * 2 + 1] : weights[i / 2][k][i % 2 * 2]);
                weight = __uint_as_float(__shfl_sync(MEMOPT_I_CUDA_ALL, bits, (lane & ~3) | j % 8 / 2));
                if (seen && flash_odd<T>(pair)) odd[i][0] = flash_odd_sum<T>(weight, pair, odd[i][0]);
                if (seen && flash_odd<T>(pair >> 16)) odd[i][1] = flash_odd_sum<T>(weight, pair >> 16, odd[i][1]);
            }
        }
        CU_UNROLL for (int i = 0; i < M * (D / 8) * 4; ++i)
            if (i / 4 % (D / 8) == n && odd[i / 4 / (D / 8) * 2 + i % 4 / 2][i % 2] != 0)
                sums[i / 4 / (D / 8)][i / 4 % (D / 8)][i % 4] += odd[i / 4 / (D / 8) * 2 + i % 4 / 2][i % 2];
    }
}

/* As _mix(), of a tile of which some rows may not see all. All threads come here, and are done with the tile; those
   that do not take it look at it, only. */
template <typename T, int D, int M, int N, int COLUMNS>
CU_DEVICE void flash_mix_some(float (&sums)[M][D / 8][4], const float (&weights)[M][N / 8][4], unsigned char *others,
                              const flash_sight<M, COLUMNS> &sight, int first, bool takes) {
    if (sight.template crosses<N>(first) && __syncthreads_or(flash_look<T, D, N, 128, 0>(others))) {
        if (takes) flash_add_odd<T, D, M, N>(sums, weights, others, sight, first);
        __syncthreads(); /* all have read what is not finite */
        (void)flash_look<T, D, N, 128, 1>(others);
        __syncthreads(); /* and it is gone */
    }
    if (takes) flash_mix<T, D, M, N>(sums, weights, others);
}

/* What a row does not see becomes `value`. */
template <int M, int N, int COLUMNS>
CU_DEVICE void flash_hide(float (&scores)[M][N / 8][4], const flash_sight<M, COLUMNS> &sight, int first, float value) {
    const int other = first + anew((int)threadIdx.x) % 4 * 2;
    const int lag = sight.lag(sight.own(), other);
    const int ahead = sight.causal ? lag : FLASH_ALL / 2; /* each is compared with numbers that are known */
    const int beyond = sight.causal ? lag - sight.window : -FLASH_ALL / 2;
    const int past = other - sight.used;

    CU_UNROLL for (int i = 0; i < M * (N / 8) * 4; ++i) {
        const int right = i / 4 % (N / 8) * 8 + i % 2;
        const int apart = sight.lag(i / 4 / (N / 8) * 16 + i % 4 / 2 * 8, right);

        if (ahead < -apart || beyond >= -apart || past >= -right)
            scores[i / 4 / (N / 8)][i / 4 % (N / 8)][i % 4] = value;
    }
}

/* Over the four lanes that share a row. */
PRUNED __device__ __forceinline__ float flash_row_sum(float x) {
    x += __shfl_xor_sync(MEMOPT_I_CUDA_ALL, x, 1);
    return x + __shfl_xor_sync(MEMOPT_I_CUDA_ALL, x, 2);
}

PRUNED __device__ __forceinline__ float flash_row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(MEMOPT_I_CUDA_ALL, x, 1));
    return fmaxf(x, __shfl_xor_sync(MEMOPT_I_CUDA_ALL, x, 2));
}

/* ---- forward ---- */
/* Scores become exp(scale (x - largest so far)); what a row has so far is to shrink to a larger one. `total` is the
   lane's own part of the row's sum. */
template <int M, int N> CU_DEVICE void flash_weigh(float (&scores)[M][N / 8][4], float (&shrink)[M][2],
                                                   float (&most)[M][2], float (&total)[M][2], float scale) {
    CU_UNROLL for (int i = 0; i < 2 * M; ++i) {
        const int m = i / 2;
        const int h = i % 2;
        const float before = most[m][h];
        float max = before;
        float sum = 0;
        float base;

        CU_UNROLL for (int n = 0; n < N / 8; ++n) max = fmaxf(max, fmaxf(scores[m][n][2 * h], scores[m][n][2 * h + 1]));
        most[m][h] = max = flash_row_max(max);
        base = (__float_as_uint(max) == 0xff800000u ? 0.0f : max) * scale; /* -infinity is no place to count from */
        shrink[m][h] = exp2_near(fmaf(before, scale, -base));
        CU_UNROLL for (int n = 0; n < N / 8; ++n) {
            const float a = exp2_near(fmaf(scores[m][n][2 * h], scale, -base));
            const float b = exp2_near(fmaf(scores[m][n][2 * h + 1], scale, -base));

            scores[m][n][2 * h] = a;
            scores[m][n][2 * h + 1] = b;
            sum += a + b;
        }
        total[m][h] = fmaf(total[m][h], shrink[m][h], sum);
    }
}

template <int D, int M> CU_DEVICE void flash_shrink(float (&sums)[M][D / 8][4], const float (&factor)[M][2]) {
    CU_UNROLL for (int i = 0; i < M * (D / 8) * 4; ++i)
        sums[i / (D / 2)][i % (D / 2) / 4][i % 4] *= factor[i / (D / 2)][i % 4 / 2];
}

/* sum(dO O) of the rows of a lane's quarter, as backward wants it. */
template <typename T, int D>
CU_DEVICE float flash_mean(const float (&sums)[D / 8][4], int h, const flash_rows<const T> &grads, int row) {
    float mean = 0;

    CU_UNROLL for (int n = 0; n < D / 4; ++n) {
        const int column = n / 2 * 8 + (int)threadIdx.x % 4 * 2 + n % 2;

        if (row < grads.rows && column < grads.width)
            mean = fmaf(sums[n / 2][2 * h + n % 2], load_one(grads.data + (size_t)row * grads.stride + column), mean);
    }
    return flash_row_sum(mean);
}

/* Output is divided by the row's sum; statistics are kept, and sum(P dP), if asked for. */
template <typename T, int D, int M>
CU_DEVICE void flash_finish(const flash_state &t, const flash_place &p, float (&sums)[M][D / 8][4],
                            const float (&most)[M][2], const float (&total)[M][2], int first) {
    const flash_rows<const T> grads =
        flash_of(t, (const T *)t.a.grad_output, t.a.output_stride, p.start, p.head, p.used);
    const int lane = anew((int)threadIdx.x % 32);

    CU_UNROLL for (int i = 0; i < 2 * M; ++i) {
        const int m = i / 2;
        const int h = i % 2;
        const int row = first + 16 * m + 8 * h + lane / 4;
        const size_t at = flash_row_at(t, p.start, p.head, p.used, row);
        const float sum = flash_row_sum(total[m][h]);
        const float factor = 1 / sum;

        CU_UNROLL for (int n = 0; n < D / 4; ++n) sums[m][n / 2][2 * h + n % 2] *= factor;
        if (t.statistics && lane % 4 == 0 && row < p.used) t.statistics[at] = most[m][h] + logf(sum) / t.a.scale;
        if (t.is_statistics) {
            const float mean = flash_mean<T, D>(sums[m], h, grads, row);

            if (lane % 4 == 0 && row < p.used) t.means[at] = mean;
        }
    }
}

#define MEMOPT_I_CUDA_LOG2_E 1.4426950408889634f

template <typename T, int D, int M, int N, int KEPT>
static __global__ void __launch_bounds__(128) flash_forward_kernel(flash_state t) {
    enum { OWN = 64 * M, BYTES = N * D * 2 };
    MEMOPT_I_CUDA_SHARED_BYTES(unsigned char, memory, 16);
    const flash_place p = flash_begin(t, blockIdx.x, t.a.heads, 1);
    const size_t key_head = (unsigned)p.head / ((unsigned)t.a.heads / (unsigned)t.a.kv_heads);
    const flash_rows<const T> keys = flash_of(t, (const T *)t.a.keys, t.a.kv_stride, p.start, key_head, p.used);
    const flash_rows<const T> values = flash_of(t, (const T *)t.a.values, t.a.kv_stride, p.start, key_head, p.used);
    const int end = p.first >= p.used ? 0 : t.a.causal ? min(p.first + OWN, p.used) : p.used;
    const int begin = max(p.first + 1 - t.window, 0) / N * N;
    const int own_row = (int)threadIdx.x / 32 * 16 * M;
    unsigned char *own = memory + own_row * D * 2;
    unsigned char *tiles = memory + OWN * D * 2;
    const flash_sight<M, 0> sight = { p.first, p.used, t.a.causal, t.window, t.inside };
    uint32_t kept[KEPT][M][4];
    float sums[M][D / 8][4], most[M][2], total[M][2];

    CU_UNROLL for (int i = 0; i < 2 * M; ++i) {
        most[i / 2][i % 2] = __uint_as_float(0xff800000u);
        total[i / 2][i % 2] = 0;
    }
    flash_zero(sums);
    flash_load<T, D, OWN, 128>(
        memory, flash_of(t, (const T *)t.a.queries, t.a.query_stride, p.start, p.head, p.used), p.first);
    flash_load<T, D, N, 128>(tiles + begin / N % 2 * 2 * BYTES, keys, begin);
    flash_load<T, D, N, 128>(tiles + begin / N % 2 * 2 * BYTES + BYTES, values, begin);
    flash_copies_end();
    flash_keep<D, M, KEPT>(kept, own);
    for (int first = begin; first < end; first += N) {
        unsigned char *tile = tiles + first / N % 2 * 2 * BYTES;
        unsigned char *next = tiles + (first / N + 1) % 2 * 2 * BYTES;
        float scores[M][N / 8][4], shrink[M][2];

        if (first + N < end) {
            flash_load<T, D, N, 128>(next, keys, first + N);
            flash_load<T, D, N, 128>(next + BYTES, values, first + N);
        }
        flash_cross<T, D, M, N>(scores, kept, own, tile);
        if (!sight.template whole<N>(first)) flash_hide<M, N>(scores, sight, first, __uint_as_float(0xff800000u));
        flash_weigh<M, N>(scores, shrink, most, total, t.a.scale * MEMOPT_I_CUDA_LOG2_E);
        flash_shrink<D, M>(sums, shrink);
        flash_mix_some<T, D, M, N>(sums, scores, tile + BYTES, sight, first, true);
        flash_copies_end();
    }
    /* not kept through the loop: there is no register left */
    const flash_place done = flash_begin(t, (unsigned)anew((int)blockIdx.x), t.a.heads, 1);
    const int row = done.first + own_row;
    flash_finish<T, D, M>(t, done, sums, most, total, row);
    if (!t.is_statistics)
        flash_store<T, D, M>(own, sums, flash_of(t, (T *)t.a.output, t.a.output_stride,
                             done.start, done.head, flash_length(t, done.used)), row, done.used);
}

/* ---- backward ---- */
/* sum(dO O) of eight columns of a row, `at` in the order of statistics. */
template <typename T> CU_DEVICE float flash_mean_eight(const flash_state &t, size_t at, size_t column) {
    const size_t documents = t.a.documents;
    const size_t sequence = documents ? flash_document<0>(t, at / t.a.heads) : at / t.a.length / t.a.heads;
    const size_t start = documents ? t.a.starts[sequence] : sequence * t.a.length;
    const size_t length = documents ? t.a.starts[sequence + 1] - start : t.a.length;
    const size_t row = (at - start * t.a.heads) % length;
    const size_t head = (at - start * t.a.heads) / length;
    const size_t first = (start + row) * t.a.output_stride + head * t.a.width + column;
    const T *output = (const T *)t.a.output + first;
    const T *grads = (const T *)t.a.grad_output + first;
    T x[8] = {}, y[8] = {};
    float sum = 0;

    if (column >= t.a.width || (t.a.lengths && row >= t.a.lengths[sequence])) return 0;
    if (t.wide) {
        const uint4 both[2] = { *(const uint4 *)(const void *)output, *(const uint4 *)(const void *)grads };

        memcpy(x, &both[0], sizeof x);
        memcpy(y, &both[1], sizeof y);
    } else CU_UNROLL for (int i = 0; i < 8; ++i) if (column + i < t.a.width) {
        x[i] = output[i];
        y[i] = grads[i];
    }
    CU_UNROLL for (int i = 0; i < 8; ++i) sum = fmaf(load_one(x + i), load_one(y + i), sum);
    return sum;
}

/* Of whole rows, by as many neighbouring lanes as they have eights: 8 or 16. */
template <typename T> static __global__ void __launch_bounds__(256) flash_mean_kernel(flash_state t, size_t rows) {
    const unsigned lanes = t.a.width > 64 ? 16 : 8;
    const size_t at = (size_t)blockIdx.x * (256 / lanes) + threadIdx.x / lanes;
    float sum = at < rows ? flash_mean_eight<T>(t, at, threadIdx.x % lanes * 8) : 0;

    for (unsigned i = lanes / 2; i; i /= 2) sum += __shfl_xor_sync(MEMOPT_I_CUDA_ALL, sum, (int)i);
    if (at < rows && threadIdx.x % lanes == 0) t.means[at] = sum;
}

/* -statistic * scale and sum(P dP) of a row; zeros where it is not in use. */
PRUNED __device__ __forceinline__ float2 flash_numbers(const flash_state &t, size_t start, size_t head, int row,
                                                       int used) {
    const size_t at = flash_row_at(t, start, head, used, row);

    if (row >= used) return make_float2(0, 0);
    return make_float2(memopt_i_times(t.statistics[at], t.a.scale * -MEMOPT_I_CUDA_LOG2_E), t.means[at]);
}

/* Where the numbers are of a lane's element i of four in part m, n of a product. COLUMNS: numbers are those of the
   others, else of a warp's own rows. */
template <int COLUMNS> CU_DEVICE int flash_number_at(int lane, int m, int n, int i) {
    return COLUMNS ? n * 8 + lane % 4 * 2 + i % 2 : m * 16 + i / 2 * 8 + lane / 4;
}

/* Scores become probabilities. */
template <int M, int N, int COLUMNS>
CU_DEVICE void flash_chances(float (&scores)[M][N / 8][4], const float2 *numbers, float scale) {
    const int lane = anew((int)threadIdx.x) & 31;

    CU_UNROLL for (int i = 0; i < M * (N / 2); ++i) {
        const int m = i / 4 % M;
        const int n = i / 4 / M;
        const float base = numbers[flash_number_at<COLUMNS>(lane, m, n, i % 4)].x;

        scores[m][n][i % 4] = exp2_near(fmaf(scores[m][n][i % 4], scale * MEMOPT_I_CUDA_LOG2_E, base));
    }
}

/* Gradients of four probabilities become those of their scores. */
template <int COLUMNS> CU_DEVICE void flash_slope(float (&grads)[4], float4 chances, int lane, int m, int n,
                                                  const float2 *numbers, float scale) {
    const float p[4] = { chances.x, chances.y, chances.z, chances.w };

    CU_UNROLL for (int i = 0; i < 4; ++i)
        grads[i] = p[i] * scale * (grads[i] - numbers[flash_number_at<COLUMNS>(lane, m, n, i)].y);
}

template <int M, int N, int COLUMNS>
CU_DEVICE void flash_slopes(float (&grads)[M][N / 8][4], const float (&chances)[M][N / 8][4], const float2 *numbers,
                            float scale) {
    const int lane = anew((int)threadIdx.x) & 31;

    CU_UNROLL for (int i = 0; i < M * (N / 8); ++i) {
        const float *p = chances[i % M][i / M];
        const float4 four = make_float4(p[0], p[1], p[2], p[3]);

        flash_slope<COLUMNS>(grads[i % M][i / M], four, lane, i % M, i / M, numbers, scale);
    }
}

/* Probabilities are passed to the fourth warp after the one that made them, from lane to lane, by way of the first
   warp's own rows: by the first half of each row, of which all fragments are kept. Eight lanes take a row. */
template <int D, int M> CU_DEVICE int flash_passed_at(void) {
    const unsigned thread = (unsigned)anew((int)threadIdx.x) % 128;

    return (int)((thread / 32 * 16 * M + thread % 32 / 8) * D * 2 + thread % 8 * 16);
}

template <int D, int M, int N> CU_DEVICE void flash_pass(unsigned char *own, const float (&chances)[M][N / 8][4]) {
    unsigned char *to = own + flash_passed_at<D, M>();

    CU_UNROLL for (int i = 0; i < M * (N / 8); ++i) {
        const float *p = chances[i % M][i / M];

        *(float4 *)(void *)(to + i * 4 * D * 2) = make_float4(p[0], p[1], p[2], p[3]);
    }
}

template <int D, int M, int N, int COLUMNS>
CU_DEVICE void flash_take(float (&grads)[M][N / 8][4], const unsigned char *own, const float2 *numbers, float scale) {
    const unsigned char *from = own + flash_passed_at<D, M>();
    const int lane = anew((int)threadIdx.x) & 31;

    CU_UNROLL for (int i = 0; i < M * (N / 8); ++i) {
        const float4 four = *(const float4 *)(const void *)(from + i * 4 * D * 2);

        flash_slope<COLUMNS>(grads[i % M][i / M], four, lane, i % M, i / M, numbers, scale);
    }
}

/* Where a block of backward goes: what each tile is loaded by is one load of 16 bytes. */
struct alignas(16) flash_route {
    uint32_t start, others;       /* the sequence's first row of all; the first head of the others */
    int      used, tiles;         /* rows of the sequence; tiles of the others: of columns in all, of rows their end */
    int      from, per;           /* the first of them; those of a head */
    int      first;               /* own row */
    uint32_t head;                /* own */
};

/* Rows (COLUMNS 0) or columns: own is queries and grad_output, or keys and values; the others are the others, in tiles
   of N rows, STAGES of which have a place. The route is in shared memory, and asked for where it is needed: there are
   no registers to keep it. */
template <typename T, int COLUMNS, int D, int N, int THREADS, int STAGES = 2, int PANEL = D> struct flash_walk {
    const flash_state &t;
    const flash_route &r;

    __device__ __forceinline__ flash_rows<const T> rows(int second, int of_keys, const flash_route &at,
                                                        size_t head) const {
        return of_keys ? flash_of(t, (const T *)(second ? t.a.values : t.a.keys), t.a.kv_stride, at.start, head,
                                  at.used)
                       : flash_of(t, (const T *)(second ? t.a.grad_output : t.a.queries),
                                  second ? t.a.output_stride : t.a.query_stride, at.start, head, at.used);
    }

    __device__ __forceinline__ int count(void) const { return COLUMNS ? r.tiles : r.tiles - r.from; }

    template <int M> __device__ __forceinline__ flash_sight<M, COLUMNS> sight(void) const {
        return { r.first, r.used, t.a.causal, t.window, t.inside };
    }

    /* Gradients of the first or second of what is own. */
    __device__ __forceinline__ flash_rows<T> result(int second) const {
        const int length = flash_length(t, r.used);

        return COLUMNS ? flash_of(t, (T *)(second ? t.a.grad_values : t.a.grad_keys), t.a.kv_stride, r.start, r.head,
                                  length)
                       : flash_of(t, (T *)t.a.grad_queries, t.a.query_stride, r.start, r.head, length);
    }

    template <int ROWS>
    __device__ __forceinline__ void load_rows(unsigned char *tile, const flash_rows<const T> &of, int first) const {
        flash_load_panels<T, D, ROWS, THREADS, PANEL>(tile, of, first);
    }

    __device__ __forceinline__ void load_own(unsigned char *own, float2 *numbers) const {
        const flash_route at = r;

        load_rows<FLASH_ROWS>(own, rows(0, COLUMNS, at, at.head), at.first);
        load_rows<FLASH_ROWS>(own + FLASH_ROWS * D * 2, rows(1, COLUMNS, at, at.head), at.first);
        if (!COLUMNS && threadIdx.x < FLASH_ROWS)
            numbers[threadIdx.x] = flash_numbers(t, at.start, at.head, at.first + (int)threadIdx.x, at.used);
    }

    /* The tile of others after which `left - 1` are left, into its place; its first row is returned. */
    __device__ __forceinline__ int load(unsigned char *tiles, float2 *all, int left) const {
        unsigned char *tile = tiles + left % STAGES * 4 * N * D;
        float2 *numbers = all + left % STAGES * N;
        const flash_route at = r;
        const int n = at.tiles - left;
        const size_t head = at.others + (size_t)(COLUMNS ? n / at.per : 0);
        const int first = (COLUMNS ? at.from + n % at.per : n) * N;

        load_rows<N>(tile, rows(0, !COLUMNS, at, head), first);
        load_rows<N>(tile + N * D * 2, rows(1, !COLUMNS, at, head), first);
        if (COLUMNS && threadIdx.x < N)
            numbers[threadIdx.x] = flash_numbers(t, at.start, head, first + (int)threadIdx.x, at.used);
        return first;
    }
};

template <int N, int COLUMNS> CU_DEVICE void flash_find_route(const flash_state &t, flash_route *r) {
    const flash_place p = flash_begin(t, blockIdx.x, COLUMNS ? t.a.kv_heads : t.a.heads, !COLUMNS);
    const unsigned group = (unsigned)t.a.heads / (unsigned)t.a.kv_heads;
    const int last = p.first + FLASH_ROWS - 1;
    const int from = (!COLUMNS ? max(p.first + 1 - t.window, 0) : t.a.causal ? p.first : 0) / N;
    const int seen = COLUMNS ? t.window < p.used - last ? last + t.window : p.used
                             : t.a.causal ? min(last + 1, p.used) : p.used;
    const int per = p.first < p.used ? (seen + N - 1) / N - from : 0;

    if (!threadIdx.x)
        *r = { (uint32_t)p.start, (uint32_t)(COLUMNS ? p.head * group : p.head / group), p.used,
               COLUMNS ? per * (int)group : from + per, from, per, p.first, (uint32_t)p.head };
    __syncthreads();
}

/* D = 64: a warp makes all that its 32 rows need. */
template <typename T, int N, int COLUMNS>
static __global__ void __launch_bounds__(128) flash_backward_kernel(flash_state t) {
    enum { D = 64, M = 2, OWN_BYTES = FLASH_ROWS * D * 2, BYTES = N * D * 2, MORE = COLUMNS ? D : 8 };
    enum { KEPT = COLUMNS ? 1 : D / 16 };
    MEMOPT_I_CUDA_SHARED_BYTES(unsigned char, memory, 16);
    MEMOPT_I_CUDA_SHARED(flash_route, route, [1]);
    const flash_walk<T, COLUMNS, D, N, 128> w = { t, route[0] };
    unsigned char *tiles = memory + 2 * OWN_BYTES;
    float2 *numbers = (float2 *)(void *)(tiles + 4 * BYTES); /* of two tiles, or of own rows */
    uint32_t kept[2][KEPT][M][4];
    float sums[M][D / 8][4];                    /* gradients of queries, or of keys */
    float more[M][MORE / 8][4];                 /* of values, for columns */

    flash_zero(sums);
    flash_zero(more);
    flash_find_route<N, COLUMNS>(t, route);
    w.load_own(memory, numbers);
    int left = w.count();
    int next = 0;
    if (left) next = w.load(tiles, numbers, left);
    flash_copies_end();
    flash_keep<D, M, KEPT>(kept[0], memory + flash_own_row<M>() * D * 2);
    flash_keep<D, M, KEPT>(kept[1], memory + flash_own_row<M>() * D * 2 + OWN_BYTES);
    for (; left > 0; --left) {
        unsigned char *tile = tiles + left % 2 * 2 * BYTES;
        const float2 *base = numbers + (COLUMNS ? left % 2 * N : flash_own_row<M>());
        const unsigned char *own = memory + flash_own_row<M>() * D * 2;
        const int first = next;
        float scores[M][N / 8][4], grads[M][N / 8][4];

        if (left > 1) next = w.load(tiles, numbers, left - 1);
        flash_cross<T, D, M, N>(scores, kept[0], own, tile);
        flash_cross<T, D, M, N>(grads, kept[1], own + OWN_BYTES, tile + BYTES);
        flash_chances<M, N, COLUMNS>(scores, base, t.a.scale);
        flash_slopes<M, N, COLUMNS>(grads, scores, base, t.a.scale);
        const flash_sight<M, COLUMNS> sight = w.template sight<M>();
        if (!sight.template whole<N>(first)) {
            if (COLUMNS) flash_hide<M, N>(scores, sight, first, 0);
            flash_hide<M, N>(grads, sight, first, 0);
        }
        if (COLUMNS) flash_mix_some<T, MORE, M, N>(more, scores, tile + BYTES, sight, first, true);
        flash_mix_some<T, D, M, N>(sums, grads, tile, sight, first, true);
        flash_copies_end();
    }
    const int own_row = flash_own_row<M>();
    unsigned char *through = memory + own_row * D * 2;
    flash_store<T, D, M>(through, sums, w.result(0), w.r.first + own_row, w.r.used);
    if (COLUMNS)
        flash_store<T, MORE, M>(through + OWN_BYTES, more, w.result(1), w.r.first + own_row, w.r.used);
}

/* D = 128: two warps share 32 rows, as one has no registers for all. The first has scores and makes probabilities, the
   second has gradients of probabilities, is passed these, and makes gradients of scores. For columns each goes on to
   sums of its own; for rows the second alone has any. */
template <typename T, int N, int COLUMNS>
static __global__ void __launch_bounds__(256) flash_pairs_kernel(flash_state t) {
    enum { D = 128, M = 2, KEPT = COLUMNS ? 7 : FLASH_KEPT, OWN_BYTES = FLASH_ROWS * D * 2, BYTES = N * D * 2 };
    MEMOPT_I_CUDA_SHARED_BYTES(unsigned char, memory, 16);
    MEMOPT_I_CUDA_SHARED(flash_route, route, [1]);
    const flash_walk<T, COLUMNS, D, N, 256> w = { t, route[0] };
    const int second = (int)threadIdx.x / 128;
    unsigned char *tiles = memory + 2 * OWN_BYTES;
    float2 *numbers = (float2 *)(void *)(tiles + 4 * BYTES); /* of two tiles, or of own rows */
    uint32_t kept[KEPT][M][4];
    float sums[M][D / 8][4];

    flash_zero(sums);
    flash_find_route<N, COLUMNS>(t, route);
    w.load_own(memory, numbers);
    int left = w.count();
    int next = 0;
    if (left) next = w.load(tiles, numbers, left);
    flash_copies_end();
    flash_keep<D, M, KEPT>(kept, memory + flash_own_row<M>() * D * 2 + second * OWN_BYTES);
    for (; left > 0; --left) {
        unsigned char *tile = tiles + left % 2 * 2 * BYTES;
        const float2 *base = numbers + (COLUMNS ? left % 2 * N : flash_own_row<M>());
        const unsigned char *own = memory + flash_own_row<M>() * D * 2 + second * OWN_BYTES;
        const int first = next;
        float x[M][N / 8][4]; /* scores, or their gradients */

        if (left > 1) next = w.load(tiles, numbers, left - 1);
        flash_cross<T, D, M, N>(x, kept, own, tile + second * BYTES);
        if (!second) {
            flash_chances<M, N, COLUMNS>(x, base, t.a.scale);
            flash_pass<D, M, N>(memory, x);
        }
        __syncthreads(); /* probabilities have been passed */
        if (second) flash_take<D, M, N, COLUMNS>(x, memory, base, t.a.scale);
        const flash_sight<M, COLUMNS> sight = w.template sight<M>();
        if (!sight.template whole<N>(first)) flash_hide<M, N>(x, sight, first, 0);
        flash_mix_some<T, D, M, N>(sums, x, tile + !second * BYTES, sight, first, COLUMNS || second);
        flash_copies_end();
    }
    const int own_row = flash_own_row<M>();
    if (COLUMNS || second)
        flash_store<T, D, M>(memory + own_row * D * 2 + second * OWN_BYTES, sums, w.result(!second),
                             w.r.first + own_row, w.r.used);
}

/* @section cuda_groups : cuda_base cuda_tensor cuda_flash
   Flash attention by groups of four warps, for sm_90a.                                 [FlashAttention-3, Shah 2024]
   Problem    mma.sync reaches not much more than half the rate of the tensor cores of 9.0, and each warp loads
              fragments of its own from shared memory. wgmma has the full rate, and reads what four warps share there
              itself.
   Idea       The kernels of cuda_flash, with two groups of 64 rows for a block's 128. All that is done to scores stays,
              as a lane has the same of them; left of a product is in registers: own rows, kept, and what became of
              scores. Products go on while the warps do something else.
   Order      Around the loop scores of a tile are begun first (backward: and gradients of probabilities), then the sums
              of the tile before. So exponentials and slopes of a tile run beside the last tile's sums, which must be
              there only when this one's are made of them. Registers of a product are made while none is under way:
              ptxas makes one wait for another otherwise, and says so. It also lifts a wait above arithmetic that does
              not need it, but across no branch: so one stands before each wait, of a tile that crosses the diagonal.
   Tiles      of 64 others, three deep: this one, the one before, and the one that comes. One barrier a tile.
   Registers  Columns of D = 128 have 128 sums, 64 scores and gradients, 32 of operands: own rows are read from shared
              memory there, which gives just enough.
   Counted    of the full rate, by the machine code: forward 0.77 (D = 64) and 1.00, rows and columns 0.97 to 1.00,
              where cuda_flash has 0.60 to 0.78 of what mma.sync cannot reach. Of 332 instructions around forward, D =
              64, about 20 are for copies: bulk copies would not pay. tests/check_flight.py sees that all exponentials
              come before the second wait.
   Switch     MEMOPT_CUDA_WGMMA, and off without it: these kernels are simulated and counted, and have not run on a
              card. */

#ifdef MEMOPT_CUDA_WGMMA
enum { GROUP_THREADS = 2 * FLASH_ROWS, GROUP_N = 64, GROUP_TILE = 64 * 64 * 2, GROUP_STAGES = 3 };

#ifdef MEMOPT_I_CUDA_NO_GROUPS
enum { GROUP_BOUND = 32 }; /* of threads: cuda_attention sees by it that there is no body */
#else
enum { GROUP_BOUND = GROUP_THREADS };
#endif

template <int N> CU_DEVICE void group_settle(float (&sums)[1][N][4]) {
    CU_UNROLL for (int i = 0; i < 4 * N; ++i) memopt_i_cuda_settle(sums[0][i / 4][i % 4]);
}

PRUNED __device__ __forceinline__ void group_settle(uint32_t (&left)[4][4]) {
    CU_UNROLL for (int i = 0; i < 16; ++i) memopt_i_cuda_settle(left[i / 4][i % 4]);
}

/* Eight neighbouring columns of 8 of sums, as those of a tile. */
template <int N> CU_DEVICE float (&group_panel(float (&sums)[1][N][4], int panel))[1][8][4] {
    return *(float (*)[1][8][4])(void *)sums[0][panel * 8];
}

/* All but the last GROUPS of what has been begun is there. */
template <int GROUPS, int N> CU_DEVICE void group_end(float (&sums)[1][N][4]) {
    memopt_i_cuda_group_wait<GROUPS>();
    group_settle(sums);
}

/* Own rows of a warp, in columns of 16. */
template <int D> CU_DEVICE void group_keep(uint32_t (*kept)[4], const unsigned char *own) {
    const int lane = (int)threadIdx.x % 32;
    const int row = flash_own_row<1>() + lane % 16;

    CU_UNROLL for (int k = 0; k < D / 16; ++k)
        memopt_i_cuda_matrices<0>(kept[k], own + k / 4 * FLASH_ROWS * 128 + flash_at<64>(row, k % 4 * 2 + lane / 16));
}

/* scores = own rows of the group, kept or in shared memory, times the transposed of others: begun. */
template <typename T, int D, bool KEPT>
CU_DEVICE void group_cross(float (&scores)[1][8][4], const uint32_t (*kept)[4], const unsigned char *own,
                           const unsigned char *others) {
    const uint64_t left = group_tile(own + threadIdx.x / 128 * GROUP_TILE);
    const uint64_t right = group_tile(others);

    memopt_i_cuda_group_begin();
    CU_UNROLL for (int k = 0; k < D / 16; ++k) {
        const uint64_t column = right + k / 4 * (GROUP_TILE / 16) + k % 4 * 2;
        const uint64_t own_column = left + k / 4 * (2 * GROUP_TILE / 16) + k % 4 * 2;

        if (KEPT) memopt_i_cuda_group_multiply<T, 0>(scores[0], kept[k], column, k > 0);
        else memopt_i_cuda_group_multiply_shared<T>(scores[0], own_column, column, k > 0);
    }
    memopt_i_cuda_group_commit();
}

/* As operands. */
template <typename T> CU_DEVICE void group_round(uint32_t (&left)[4][4], const float (&weights)[1][8][4]) {
    CU_UNROLL for (int i = 0; i < 16; ++i) {
        const float *x = weights[0][i / 4 * 2 + i % 4 / 2] + i % 2 * 2;

        left[i / 4][i % 4] = two((const T *)NULL, x[0], x[1]);
    }
}

/* sums += left (rows of the group x 64) times others (64 x D): begun. */
template <typename T, int D>
CU_DEVICE void group_mix(float (&sums)[1][D / 8][4], uint32_t (&left)[4][4], const unsigned char *others) {
    const uint64_t right = group_tile(others);

    group_settle(left);
    group_settle(sums);
    memopt_i_cuda_group_begin();
    CU_UNROLL for (int i = 0; i < D / 16; ++i) /* 16 rows are 2,048 bytes */
        memopt_i_cuda_group_multiply<T, 1>(sums[0] + i / 4 * 8, left[i % 4],
                                           right + i / 4 * (GROUP_TILE / 16) + i % 4 * (2048 / 16), 1);
    memopt_i_cuda_group_commit();
}

/* Of a tile before which there is none: nothing, but counted as if. */
PRUNED __device__ __forceinline__ void group_skip(void) {
    memopt_i_cuda_group_begin();
    memopt_i_cuda_group_commit();
}

/* Whether a tile crosses the diagonal and has anything that is not finite. */
template <typename T, int D, int COLUMNS>
CU_DEVICE bool group_is_odd(unsigned char *others, const flash_sight<1, COLUMNS> &sight, int first) {
    return sight.template crosses<GROUP_N>(first) &&
           __syncthreads_or(flash_look<T, D, GROUP_N, GROUP_THREADS, 0>(others));
}

/* What is not finite of such a tile is added by itself, and then 0 in the tile. */
template <typename T, int D, int COLUMNS>
CU_DEVICE void group_take_odd(float (&sums)[1][D / 8][4], const float (&weights)[1][8][4], unsigned char *others,
                              const flash_sight<1, COLUMNS> &sight, int first) {
    CU_UNROLL for (int i = 0; i < D / 64; ++i)
        flash_add_odd<T, 64, 1, GROUP_N>(group_panel(sums, i), weights, others + i * GROUP_TILE, sight, first);
    __syncthreads(); /* all have read what is not finite */
    (void)flash_look<T, D, GROUP_N, GROUP_THREADS, 1>(others); /* seen by all from group_copies_end() on */
}

/* As flash_copies_end(), for groups. */
PRUNED __device__ __forceinline__ void group_copies_end(void) {
    memopt_i_cuda_copy_commit();
    memopt_i_cuda_copy_wait<0>();
    memopt_i_cuda_show();
    __syncthreads();
}

/* Keys and values, read tile after tile, as by flash_load_panels(); what a thread has to know for it is kept. */
template <typename T, int D> struct group_reader {
    const T *keys, *values; /* of the next tile: a thread's first chunk */
    size_t stride;
    int rows, width, wide;  /* rows that are left from this one on, columns from this one on */

    __device__ __forceinline__ group_reader(const flash_rows<const T> &k, const flash_rows<const T> &v, int from) {
        const int row = from + (int)threadIdx.x / 8;
        const int column = (int)threadIdx.x % 8 * 8;

        keys = k.data + (size_t)row * k.stride + column;
        values = v.data + (size_t)row * k.stride + column;
        stride = k.stride;
        rows = k.rows - row;
        width = k.width - column;
        wide = k.wide;
    }

    /* The two tiles of the next rows. */
    __device__ __forceinline__ void load(unsigned char *tile) {
        unsigned char *to = tile + flash_at<64>((int)threadIdx.x / 8, (int)threadIdx.x % 8);

        if (wide) CU_UNROLL for (int i = 0; i < D / 16; ++i)
            memopt_i_cuda_copy(to + i * 32 * 128, from(i), i % 2 * 32 < rows && i % (D / 32) / 2 * 64 < width ? 16 : 0);
        else CU_ROLLED for (int i = 0; i < D / 16; ++i)
            flash_gather(to + i * 32 * 128, from(i), i % 2 * 32 < rows ? width - i % (D / 32) / 2 * 64 : 0);
        keys += GROUP_N * stride;
        values += GROUP_N * stride;
        rows -= GROUP_N;
    }

private:
    /* 32 rows of a panel, and the other 32; then of the next panel; then values. */
    __device__ __forceinline__ const T *from(int i) const {
        return (i < D / 32 ? keys : values) + i % 2 * 32 * stride + i % (D / 32) / 2 * 64;
    }
};

template <typename T, int D>
static __global__ void __launch_bounds__(GROUP_BOUND, D == 64 ? 2 : 1) group_forward_kernel(flash_state t) {
#ifndef MEMOPT_I_CUDA_NO_GROUPS
    enum { N = GROUP_N, BYTES = N * D * 2 };
    MEMOPT_I_CUDA_SHARED_BYTES(unsigned char, memory, 1024);
    unsigned char *tiles = memory + FLASH_ROWS * D * 2;
    flash_route *route = (flash_route *)(void *)(tiles + 2 * GROUP_STAGES * BYTES);
    uint32_t kept[D / 16][4], shares[4][4];
    float sums[1][D / 8][4], scores[1][8][4], most[1][2], total[1][2], shrink[1][2];

    if (memopt_i_cuda_shared_at(memory) % 1024) __trap(); /* as it is declared: wgmma swaps chunks by the address */
    flash_find_route<N, 0>(t, route);
    const flash_route r = route[0]; /* for which there are registers here */
    const flash_walk<T, 0, D, N, GROUP_THREADS, GROUP_STAGES, 64> w = { t, r };
    group_reader<T, D> others(w.rows(0, 1, r, r.others), w.rows(1, 1, r, r.others), r.from * N);
    const flash_sight<1, 0> sight = w.template sight<1>();
    CU_UNROLL for (int i = 0; i < 2; ++i) {
        most[0][i] = __uint_as_float(0xff800000u);
        total[0][i] = 0;
    }
    flash_zero(sums);
    w.template load_rows<FLASH_ROWS>(memory, w.rows(0, 0, r, r.head), r.first);
    others.load(tiles);
    group_copies_end();
    group_keep<D>(kept, memory);
    const int count = w.count();
    for (int i = 0, first = r.from * N; i < count; ++i, first += N) {
        unsigned char *tile = tiles + i % GROUP_STAGES * 2 * BYTES;
        unsigned char *next = tiles + (i + 1) % GROUP_STAGES * 2 * BYTES;
        const unsigned char *before = tiles + (i + 2) % GROUP_STAGES * 2 * BYTES;

        if (i + 1 < count) others.load(next);
        group_cross<T, D, true>(scores, kept, memory, tile);
        if (i) group_mix<T, D>(sums, shares, before + BYTES);
        else group_skip();
        group_end<1>(scores);
        if (!sight.template whole<N>(first)) flash_hide<1, N>(scores, sight, first, __uint_as_float(0xff800000u));
        flash_weigh<1, N>(scores, shrink, most, total, t.a.scale * MEMOPT_I_CUDA_LOG2_E);
        /* before the wait: see Order */
        const bool odd = group_is_odd<T, D>(tile + BYTES, sight, first);
        group_end<0>(sums);
        group_settle(shares);
        flash_shrink<D, 1>(sums, shrink);
        if (odd) group_take_odd<T, D>(sums, scores, tile + BYTES, sight, first);
        group_round<T>(shares, scores);
        group_copies_end();
    }
    if (count) group_mix<T, D>(sums, shares, tiles + (count - 1) % GROUP_STAGES * 2 * BYTES + BYTES);
    group_end<0>(sums);
    __syncthreads(); /* nobody reads a tile any more */
    const flash_route done = route[0]; /* not kept through the loop */
    const flash_place place = { done.start, done.head, done.first, done.used };
    const int row = done.first + flash_own_row<1>();
    flash_finish<T, D, 1>(t, place, sums, most, total, row);
    if (!t.is_statistics)
        flash_store<T, D, 1>(memory + flash_own_row<1>() * D * 2, sums, flash_of(t, (T *)t.a.output, t.a.output_stride,
                             done.start, done.head, flash_length(t, done.used)), row, done.used);
#else
    (void)t;
#endif
}

/* As flash_backward_kernel, of either width. */
template <typename T, int D, int COLUMNS>
static __global__ void __launch_bounds__(GROUP_BOUND) group_backward_kernel(flash_state t) {
#ifndef MEMOPT_I_CUDA_NO_GROUPS
    enum { N = GROUP_N, OWN_BYTES = FLASH_ROWS * D * 2, BYTES = N * D * 2, MORE = COLUMNS ? D : 8 };
    enum { KEPT = !COLUMNS || D == 64 };
    MEMOPT_I_CUDA_SHARED_BYTES(unsigned char, memory, 1024);
    unsigned char *tiles = memory + 2 * OWN_BYTES;
    flash_route *route = (flash_route *)(void *)(tiles + 2 * GROUP_STAGES * BYTES);
    float2 *numbers = (float2 *)(void *)(route + 1); /* of all tiles, or of own rows */
    const flash_walk<T, COLUMNS, D, N, GROUP_THREADS, GROUP_STAGES, 64> w = { t, route[0] };
    uint32_t kept[2][KEPT ? D / 16 : 1][4], shares[4][4], slopes[4][4];
    float sums[1][D / 8][4], more[1][MORE / 8][4]; /* gradients of queries, or of keys; of values, for columns */

    flash_zero(sums);
    flash_zero(more);
    if (memopt_i_cuda_shared_at(memory) % 1024) __trap(); /* as it is declared: wgmma swaps chunks by the address */
    flash_find_route<N, COLUMNS>(t, route);
    w.load_own(memory, numbers);
    int left = w.count();
    int next = 0;
    if (left) next = w.load(tiles, numbers, left);
    group_copies_end();
    CU_UNROLL for (int i = 0; i < 2 * KEPT; ++i) group_keep<D>(kept[i], memory + i * OWN_BYTES);
    for (; left > 0; --left) {
        unsigned char *tile = tiles + left % GROUP_STAGES * 2 * BYTES;
        const unsigned char *before = tiles + (left + 1) % GROUP_STAGES * 2 * BYTES;
        const float2 *base = numbers + (COLUMNS ? left % GROUP_STAGES * N : flash_own_row<1>());
        const flash_sight<1, COLUMNS> sight = w.template sight<1>();
        const int first = next;
        float scores[1][8][4], grads[1][8][4];

        if (left > 1) next = w.load(tiles, numbers, left - 1);
        group_cross<T, D, KEPT != 0>(scores, kept[0], memory, tile);
        group_cross<T, D, KEPT != 0>(grads, kept[1], memory + OWN_BYTES, tile + BYTES);
        if (left < w.count()) {
            if (COLUMNS) group_mix<T, MORE>(more, shares, before + BYTES);
            group_mix<T, D>(sums, slopes, before);
        } else {
            if (COLUMNS) group_skip();
            group_skip();
        }
        group_end<2 + COLUMNS>(scores);
        flash_chances<1, N, COLUMNS>(scores, base, t.a.scale);
        if (!sight.template whole<N>(first)) flash_hide<1, N>(scores, sight, first, 0); /* of rows for Order alone */
        group_end<1 + COLUMNS>(grads);
        flash_slopes<1, N, COLUMNS>(grads, scores, base, t.a.scale);
        if (!sight.template whole<N>(first)) flash_hide<1, N>(grads, sight, first, 0);
        group_end<0>(sums);
        group_settle(more);
        group_settle(slopes);
        if (COLUMNS) group_settle(shares);
        if (COLUMNS && group_is_odd<T, D>(tile + BYTES, sight, first))
            group_take_odd<T, MORE>(more, scores, tile + BYTES, sight, first);
        if (group_is_odd<T, D>(tile, sight, first)) group_take_odd<T, D>(sums, grads, tile, sight, first);
        if (COLUMNS) group_round<T>(shares, scores);
        group_round<T>(slopes, grads);
        group_copies_end();
    }
    if (w.count()) { /* the last tile is in place 1 */
        if (COLUMNS) group_mix<T, MORE>(more, shares, tiles + 3 * BYTES);
        group_mix<T, D>(sums, slopes, tiles + 2 * BYTES);
    }
    group_end<0>(sums);
    group_settle(more);
    __syncthreads(); /* nobody reads a tile any more */
    const int own_row = flash_own_row<1>();
    unsigned char *through = memory + own_row * D * 2;
    flash_store<T, D, 1>(through, sums, w.result(0), w.r.first + own_row, w.r.used);
    if (COLUMNS)
        flash_store<T, MORE, 1>(through + OWN_BYTES, more, w.result(1), w.r.first + own_row, w.r.used);
#else
    (void)t;
#endif
}
#endif

/* @section cuda_attention : cuda_base cuda_flash cuda_groups cuda_gemm cuda_linear cuda_softmax api_cuda_attention
   Attention without the length x length matrix.
   Problem    Of each head, probabilities and their gradients are length^2 numbers each, kept from forward to backward:
              at 4096 rows, 32 heads and 2 bytes 1 GiB a sequence and layer, twice.
   Idea       As on the CPU: rows of scores do not know of each other. `block` rows of all key heads of a sequence are
              one batched product, one kernel (softmax), another batched product; backward makes them again.
   Ways       Of 32 heads, 4096 rows of width 128, bf16, the whole matrix in float and in bf16 is 3.2 GB of scratch,
              written, read twice, written, read. Blocks of 256 rows with probabilities in the first half of their
              scores' bytes are 134 MB: a block's scores are written by the product, read once and written once by the
              kernel (registers hold the row, up to 8,192 columns), read by the other product, out of the cache in part.
              Causal: columns beyond a block's last row are left out: (1 + block / length) / 2 of everything.
   Batch      Key heads lie `width` apart: one product for all of them. Query heads that share a key head are a loop, so
              that the gradients of keys and values, which are sums over them, are added by beta.
   Sums       of gradients of keys and values: block onto block, from the last to the first: the last one sees all
              columns, so nothing has to be set to 0. With 16 bits of storage in floats in scratch, rounded once.
   Window     A block's columns begin at the first of its first row, or up to 31 before it. Not every block sees all
              columns then, so sums begin with 0.
   Documents  are sequences, each of products of its own: zeros between them would be multiplied, too, and 0 times what
              is not finite would carry it from one to another.
   Lengths    are known to kernels only. Products run over all rows; probabilities and slopes of rows and columns that
              are not in use are 0. But 0 times what lies there may be NaN: so operands that are multiplied by such
              zeros are copied first, with zeros in these rows. Without lengths nothing is copied.
   Longer     rows than 8,192 do not fit into the registers of a block: they are read twice, and their probabilities of
              16 bits have a buffer of their own.
   Online     is not offered here: columns in tiles with a running maximum would need products that add onto a result
              which has been scaled row by row, and cuBLASLt's beta is one number. cuda_flash has it. */

enum { ATTENTION_BLOCK = 256 };

typedef struct attention_task {
    memopt_attention  a;         /* with defaults filled in */
    memopt_cuda_gemm *gemm;
    cudaStream_t stream;
    size_t group, row;           /* query heads of a key head; elements of a row of all key heads */
    size_t rows;                 /* of all sequences */
    size_t sequences, longest;   /* or documents; rows of one */
    size_t columns;              /* of a block of scores */
    size_t stride, pitch;        /* of rows of scores in floats, of probabilities in elements */
    size_t bytes;                /* of scratch */
    float *scores, *grad_scores; /* kv_heads x block x stride */
    void  *p, *g;                /* probabilities and gradients of scores, as operands: the same bytes, or a buffer */
    float *keys, *values;        /* longest x row: sums, with 16 bits of storage */
    void  *kept, *left, *grads;  /* with lengths: copies of keys or values; of a block of queries, of grad_output */
    int    backward;
    int    flash, groups;        /* by cuda_flash, or cuda_groups, with nothing of the above but: */
    float *statistics, *means;   /* batch x heads x length each, in a backward; statistics: unless they are kept */
    size_t *starts;              /* of documents, as kernels read them */
} attention_task;

#ifdef MEMOPT_CUDA_WGMMA
/* Whether the kernels of cuda_groups have a body. Without a device they have none. */
PRUNED status_t attention_groups(int *groups) {
    struct cudaFuncAttributes code;
    const status_t s = taken(cudaFuncGetAttributes(&code, group_forward_kernel<bf16_t, 64>));

    if (s == MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorNoDevice
        || s == MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorInsufficientDriver
        || s == MEMOPT_CUDA_BASE_RUNTIME + (int)cudaErrorInitializationError) return 0;
    *groups = !s && code.maxThreadsPerBlock >= GROUP_THREADS;
    return s;
}
#endif

PRUNED void attention_lay_out_flash(attention_task *t, memopt_carver *c) {
    const memopt_attention *a = &t->a;
    const size_t row = a->length * sizeof(float);

    t->statistics = a->statistics;
    if (a->documents) t->starts = (size_t *)memopt_carve(c, a->documents + 1, sizeof *t->starts, 256);
    if (t->backward && !a->statistics) t->statistics = (float *)memopt_carve(c, a->batch * a->heads, row, 256);
    if (t->backward) t->means = (float *)memopt_carve(c, a->batch * a->heads, row, 256);
    (void)memopt_carve(c, 0, 1, 256);
}

/* Where everything is in scratch. Heads, block and row are below 2^31 each, as strides and length are. */
PRUNED void attention_lay_out(attention_task *t, memopt_carver *c) {
    const memopt_attention *a = &t->a;
    const size_t size = memopt_type_bytes(a->type);
    const size_t narrow = size < 4;
    const size_t backward = t->backward != 0;
    const size_t apart = narrow && t->columns > SOFTMAX_BLOCK;
    const size_t masked = a->lengths != NULL;
    const size_t rows = a->kv_heads * a->block;
    const size_t wide = t->stride * 4;
    const size_t sums = t->row * 4 * narrow * backward;

    if (t->flash) {
        attention_lay_out_flash(t, c);
        return;
    }
    t->scores = (float *)memopt_carve(c, rows, wide, 256);
    t->grad_scores = (float *)memopt_carve(c, rows, wide * backward, 256);
    t->p = memopt_carve(c, rows, wide / 2 * apart, 256);
    t->g = memopt_carve(c, rows, wide / 2 * apart * backward, 256);
    if (!apart) {
        t->p = t->scores;
        t->g = t->grad_scores;
    }
    t->pitch = narrow && !apart ? 2 * t->stride : t->stride;
    t->keys = (float *)memopt_carve(c, t->longest, sums, 256);
    t->values = (float *)memopt_carve(c, t->longest, sums, 256);
    t->kept = memopt_carve(c, a->length, t->row * size * masked, 256);
    t->left = memopt_carve(c, a->block, t->row * size * masked * backward, 256);
    t->grads = memopt_carve(c, a->block, t->row * size * masked * backward, 256);
    (void)memopt_carve(c, 0, 1, 256);
}

/* The first column of a block: the multiple of 32 at or before which its first row's window begins. */
PRUNED size_t attention_first(size_t row, size_t window) {
    return window ? memopt_i_less(row + 1, window) / 32 * 32 : 0;
}

/* Columns of a block of scores, at most. */
PRUNED size_t attention_columns(const memopt_attention *a, size_t longest) {
    if (!a->window || a->window >= longest) return longest;
    return memopt_i_min(longest, a->window + a->block + 30);
}

PRUNED status_t attention_resolve(const memopt_attention *x, int backward, attention_task *t) {
    memopt_carver c = memopt_carver_begin(NULL);
    memopt_attention y;
    memopt_i_attention same;
    memopt_status s;

    if (!x) return MEMOPT_ERR_ARGUMENT;
    y = *x;
    if (!y.block) y.block = ATTENTION_BLOCK;
    if ((s = memopt_i_attention_resolve(NULL, &y, &same)) != MEMOPT_OK) return s; /* the CPU's rules */
    memset(t, 0, sizeof *t);
    t->a = same.a;
    t->rows = same.rows;
    t->sequences = same.sequences;
    t->longest = same.longest;
    t->a.block = memopt_i_min(y.block, memopt_i_max(t->longest, 1)); /* no multiple of 32: the CPU's order of sums */
    if (!y.online) t->a.statistics = NULL;
    t->group = same.group;
    t->backward = backward;
    t->row = t->a.kv_heads * t->a.width;
    if (t->longest >= FLASH_ALL || t->rows > 0xffffffff || t->a.query_stride > 0x7fffffff || t->a.kv_stride > 0x7fffffff
        || t->a.output_stride > 0x7fffffff) return MEMOPT_ERR_OVERFLOW;
    t->columns = attention_columns(&t->a, t->longest);
    t->stride = memopt_i_align_down(t->columns + 63, 64);
    if (t->stride > 0x7fffffff / 2) return MEMOPT_ERR_OVERFLOW; /* of a row of 16 bits in the place of floats */
    t->flash = t->a.type != MEMOPT_TYPE_F32 && t->a.width <= FLASH_WIDTH;
#ifdef MEMOPT_CUDA_WGMMA
    const status_t s2 = t->flash ? attention_groups(&t->groups) : 0;
    if (s2) return s2;
#endif
    attention_lay_out(t, &c);
    t->bytes = c.bytes;
    return c.overflow ? MEMOPT_ERR_OVERFLOW : 0;
}

PUBLIC status_t api::memopt_cuda_attention_scratch(const memopt_cuda_ops *, const memopt_attention *x, size_t *bytes) {
    attention_task t;
    status_t s;

    if (!bytes) return MEMOPT_CUDA_ERR_NULL;
    if ((s = attention_resolve(x, x && x->grad_queries, &t)) == 0) *bytes = t.bytes;
    return s;
}

/* Where documents begin, by the CPU's rules. */
PRUNED status_t attention_documents(const memopt_attention *a) {
    memopt_i_attention same;
    memopt_status s;
    const status_t at = pointer(a->starts, sizeof *a->starts);

    if (at) return at;
    if ((s = memopt_i_attention_resolve(NULL, a, &same)) != MEMOPT_OK) return s;
    return memopt_i_attention_documents(&same);
}

PRUNED status_t attention_check(const attention_task *t, const memopt_cuda_ops *ops) {
    const memopt_attention *a = &t->a;
    const size_t size = memopt_type_bytes(a->type);
    const void *const p[] = { a->queries, a->keys, a->values, t->backward ? a->grad_output : a->output,
                              a->grad_queries, a->grad_keys, a->grad_values };
    size_t i;
    status_t s = pointer_if(a->lengths, sizeof *a->lengths);

    for (i = 0; i < (t->backward ? 7u : 4u) && !s; ++i) s = pointer(p[i], size);
    if (!s && t->flash) s = pointer_if(a->statistics, sizeof *a->statistics);
    if (!s && t->flash && t->backward && a->statistics) s = pointer(a->output, size);
    if (!s && a->documents) s = attention_documents(a);
    if (!s) s = gemm_types(ops->gemm, a->type, a->type);
    if (!s) s = linear_scratch(ops, t->bytes);
    return s ? s : gemm_ready(ops->gemm);
}

/* ---- kernels ---- */
/* Rows of all key heads side by side, copied; those that are not in use become 0. Heads lie `step` apart. */
typedef struct mask_task {
    const void *from;
    void  *to;
    const size_t *lengths;
    size_t sequence, first, rows, row, width, step, stride;
} mask_task;

template <typename T> static __global__ void __launch_bounds__(256) mask_kernel(mask_task t) {
    const size_t used = t.lengths[t.sequence];
    const size_t n = t.rows * t.row;
    const size_t first = (size_t)blockIdx.x * 1024 + threadIdx.x;
    T x[4]; /* all loads come first */

    CU_UNROLL for (int i = 0; i < 4; ++i) {
        const size_t at = first + (size_t)i * 256;
        const size_t row = at / t.row;
        const size_t j = at % t.row;

        x[i] = 0;
        if (at < n && t.first + row < used)
            x[i] = ((const T *)t.from)[row * t.stride + j / t.width * t.step + j % t.width];
    }
    CU_UNROLL for (int i = 0; i < 4; ++i) if (first + (size_t)i * 256 < n)((T *)t.to)[first + (size_t)i * 256] = x[i];
}

PRUNED status_t mask_rows(const attention_task *t, const mask_task &k) {
    const size_t blocks = memopt_i_ceil_div(k.rows * t->row, 1024);

    if (t->a.type == MEMOPT_TYPE_F32) return CU_RUN(mask_kernel<uint32_t>, blocks, 256, 0, t->stream, k);
    return CU_RUN(mask_kernel<uint16_t>, blocks, 256, 0, t->stream, k);
}

/* Sums as rows of a type. */
typedef struct round_task {
    const float *from;
    void *to;
    size_t n, row, stride;
    int wide;
} round_task;

template <typename T> static __global__ void __launch_bounds__(256) round_kernel(round_task t) {
    const size_t at = ((size_t)blockIdx.x * 256 + threadIdx.x) * 4;
    const size_t left = at < t.n ? memopt_i_min(t.n - at, 4) : 0;

    if (t.wide && left == 4) { /* rows are multiples of 4 then */
        float x[4];

        load_four(t.from + at, x);
        store_four((T *)t.to + at / t.row * t.stride + at % t.row, x);
        return;
    }
    for (size_t i = at; i < at + left; ++i) store_one((T *)t.to + i / t.row * t.stride + i % t.row, t.from[i]);
}

PRUNED status_t attention_round(const attention_task *t, const float *sums, size_t rows, void *to) {
    const size_t n = rows * t->row;
    const size_t blocks = memopt_i_ceil_div(n, 1024);
    const int wide = !(t->row % 4 || t->a.kv_stride % 4 || ((uintptr_t)to & 7));
    const round_task k = { sums, to, n, t->row, t->a.kv_stride, wide };

    return CU_NARROW(t->a.type, CU_RUN(round_kernel<T>, blocks, 256, 0, t->stream, k));
}

/* Sums to add onto: rows of floats become 0. */
PRUNED __global__ void __launch_bounds__(256) clear_kernel(float *sums, size_t n, size_t row, size_t stride) {
    const size_t first = (size_t)blockIdx.x * 1024 + threadIdx.x;

    for (size_t at = first; at < n && at < first + 1024; at += 256) sums[at / row * stride + at % row] = 0;
}

/* ---- a block: rows of one query head of each group ---- */
typedef struct attention_worker {
    const attention_task *t;
    int    plan_only;                /* only for algorithms */
    size_t sequence, start, length, window; /* its first row of all; its rows; 0 where its rows see all before them */
    size_t head, first, rows, at, columns; /* of the block; its columns begin with `at` */
    matrix queries, keys, values, grads; /* of all key heads: operands, or copies of them */
} attention_worker;

PRUNED matrix attention_rows(const attention_task *t, const void *data, size_t at, size_t stride, size_t step) {
    return { memopt_i_row_at(data, t->a.type, at), stride, t->a.type, 0, step };
}

/* Scores of all key heads, in floats; and what a softmax made of them. */
PRUNED matrix attention_scores(const attention_task *t, const float *scores) {
    return { scores, t->stride, MEMOPT_TYPE_F32, 0, t->a.block * t->stride };
}

PRUNED matrix attention_shares(const attention_task *t, const void *p, int turned) {
    return { p, t->pitch, t->a.type, turned, t->a.block * t->pitch };
}

/* The rows from one on. */
PRUNED matrix attention_from(matrix m, size_t row) {
    m.data = memopt_i_row_at(m.data, m.type, row * m.stride);
    return m;
}

template <int SLOPES> static status_t attention_soft(const attention_worker *w) {
    const attention_task *t = w->t;
    const memopt_attention *a = &t->a;
    const softmax_data p = { t->p, a->type };
    const softmax_data to = { SLOPES ? t->g : t->p, a->type };
    const softmax_task k = { SLOPES ? t->grad_scores : t->scores, p, to, a->lengths ? a->lengths + w->sequence : NULL,
                             w->rows, w->columns, t->stride, t->pitch, a->kv_heads, a->block, w->first, w->at,
                             w->length, w->window, a->scale, a->causal };

    return w->plan_only ? 0 : softmax_launch<SLOPES>(k, t->stream);
}

PRUNED status_t attention_multiply(const attention_worker *w, matrix_product *q) {
    q->batch.count = w->t->a.kv_heads;
    return gemm_run(w->t->gemm, q, w->plan_only, w->t->stream);
}

/* scores = rows * others^T */
PRUNED status_t attention_cross(const attention_worker *w, const matrix &left, const matrix &others, float *scores) {
    matrix right = attention_from(others, w->at);
    matrix_product q;

    right.turned = 1;
    q = product_of(w->rows, w->columns, w->t->a.width, left, right, attention_scores(w->t, scores));
    return attention_multiply(w, &q);
}

/* result = probabilities (or slopes) * others, of the type */
PRUNED status_t attention_mix(const attention_worker *w, const void *p, const matrix &right, const matrix &result) {
    matrix_product q = product_of(w->rows, w->t->a.width, w->columns, attention_shares(w->t, p, 0),
                                  attention_from(right, w->at), result);
    return attention_multiply(w, &q);
}

/* Where gradients of the sequence's keys, or values, are added up: in scratch, or, of floats, in their place. */
PRUNED matrix attention_sums(const attention_worker *w, float *sums, void *place) {
    const memopt_attention *a = &w->t->a;
    const size_t row = w->t->row;

    if (a->type != MEMOPT_TYPE_F32) return { sums, row, MEMOPT_TYPE_F32, 0, a->width };
    return { memopt_i_row_to(place, a->type, w->start * a->kv_stride), a->kv_stride, MEMOPT_TYPE_F32, 0, a->width };
}

PRUNED status_t attention_clear(const attention_worker *w, const matrix &sums) {
    const size_t n = w->length * w->t->row;
    float *to = static_cast<float *>(const_cast<void *>(sums.data));

    return CU_RUN(clear_kernel<>, memopt_i_ceil_div(n, 1024), 256, 0, w->t->stream, to, n, w->t->row, sums.stride);
}

/* sums (+)= probabilities^T * rows, in float */
PRUNED status_t attention_gather(const attention_worker *w, const void *p, const matrix &right, float *sums,
                                 void *place) {
    const attention_task *t = w->t;
    matrix_product q = product_of(w->columns, t->a.width, w->rows, attention_shares(t, p, 1), right,
                                  attention_from(attention_sums(w, sums, place), w->at));

    q.p.accumulate = w->head > 0 || w->window || w->first + w->rows < w->length;
    return attention_multiply(w, &q);
}

/* In place of rows, a copy where those not in use are 0. */
PRUNED status_t attention_mask(const attention_worker *w, matrix *r, void *to, size_t first, size_t rows) {
    const attention_task *t = w->t;
    const mask_task k = { r->data, to, t->a.lengths, w->sequence, first, rows, t->row, t->a.width, r->step, r->stride };

    if (!t->a.lengths) return 0;
    *r = attention_rows(t, to, 0, t->row, t->a.width);
    return w->plan_only ? 0 : mask_rows(t, k);
}

PRUNED attention_worker attention_begin(const attention_task *t, int plan_only, size_t sequence) {
    const memopt_attention *a = &t->a;
    attention_worker w;

    memset(&w, 0, sizeof w);
    w.t = t;
    w.plan_only = plan_only;
    w.sequence = sequence;
    w.start = a->documents ? a->starts[sequence] : sequence * a->length;
    w.length = a->documents ? a->starts[sequence + 1] - w.start : a->length;
    w.window = a->window < w.length ? a->window : 0;
    const size_t at = w.start * a->kv_stride;
    w.keys = attention_rows(t, a->keys, at, a->kv_stride, a->width);
    w.values = attention_rows(t, a->values, at, a->kv_stride, a->width);
    return w;
}

/* The rows of a block: its operands, and the place of its results. */
PRUNED matrix attention_at(const attention_worker *w, const void *data, size_t stride) {
    const attention_task *t = w->t;
    return attention_rows(t, data, (w->start + w->first) * stride + w->head * t->a.width,
                          stride, t->group * t->a.width);
}

/* Scores, and their probabilities. */
PRUNED status_t attention_weigh(attention_worker *w, size_t head, size_t first) {
    const memopt_attention *a = &w->t->a;
    status_t s;

    w->head = head;
    w->first = first;
    w->rows = memopt_i_min(a->block, w->length - first);
    w->at = attention_first(first, w->window);
    w->columns = (a->causal ? first + w->rows : w->length) - w->at;
    w->queries = attention_at(w, a->queries, a->query_stride);
    s = attention_cross(w, w->queries, w->keys, w->t->scores);
    return s ? s : attention_soft<0>(w);
}

PRUNED status_t attention_forward_sequence(const attention_task *t, int plan_only, size_t sequence) {
    const memopt_attention *a = &t->a;
    attention_worker w = attention_begin(t, plan_only, sequence);
    status_t s = attention_mask(&w, &w.values, t->kept, 0, w.length);
    size_t head, first;

    for (head = 0; head < t->group; ++head)
        for (first = 0; first < w.length && !s; first += memopt_i_min(a->block, w.length - first)) {
            s = attention_weigh(&w, head, first);
            if (!s) s = attention_mix(&w, t->p, w.values, attention_at(&w, a->output, a->output_stride));
        }
    return s;
}

PRUNED status_t attention_backward_block(attention_worker *w, matrix keys, size_t head, size_t first) {
    const attention_task *t = w->t;
    const memopt_attention *a = &t->a;
    status_t s = attention_weigh(w, head, first);

    w->grads = attention_at(w, a->grad_output, a->output_stride);
    if (!s) s = attention_mask(w, &w->grads, t->grads, first, w->rows);
    if (!s) s = attention_gather(w, t->p, w->grads, t->values, a->grad_values);
    if (!s) s = attention_cross(w, w->grads, w->values, t->grad_scores);
    if (!s) s = attention_soft<1>(w);
    if (!s) s = attention_mix(w, t->g, keys, attention_at(w, a->grad_queries, a->query_stride));
    if (!s) s = attention_mask(w, &w->queries, t->left, first, w->rows);
    return s ? s : attention_gather(w, t->g, w->queries, t->keys, a->grad_keys);
}

PRUNED status_t attention_backward_sequence(const attention_task *t, int plan_only, size_t sequence) {
    const memopt_attention *a = &t->a;
    attention_worker w = attention_begin(t, plan_only, sequence);
    matrix keys = w.keys;
    const size_t at = w.start * a->kv_stride;
    size_t head, block;
    status_t s = attention_mask(&w, &keys, t->kept, 0, w.length);

    if (!s && w.window && !plan_only) {
        s = attention_clear(&w, attention_sums(&w, t->keys, a->grad_keys));
        if (!s) s = attention_clear(&w, attention_sums(&w, t->values, a->grad_values));
    }
    for (head = 0; head < t->group; ++head)
        for (block = memopt_i_ceil_div(w.length, a->block); block-- && !s; )
            s = attention_backward_block(&w, keys, head, block * a->block);
    if (s || plan_only || a->type == MEMOPT_TYPE_F32) return s;
    s = attention_round(t, t->keys, w.length, memopt_i_row_to(a->grad_keys, a->type, at));
    return s ? s : attention_round(t, t->values, w.length, memopt_i_row_to(a->grad_values, a->type, at));
}

/* ---- by cuda_flash ---- */
PRUNED int flash_is_wide(const memopt_attention *a) {
    const void *const p[] = { a->queries, a->keys, a->values, a->output, a->grad_output, a->grad_queries, a->grad_keys,
                              a->grad_values };
    uintptr_t all = (uintptr_t)(16 * (a->width % 8 || a->query_stride % 8 || a->kv_stride % 8 || a->output_stride % 8));
    size_t i;

    for (i = 0; i < 8; ++i) all |= (uintptr_t)p[i] & 15;
    return all == 0;
}

PRUNED flash_state flash_task(const attention_task *t) {
    const memopt_attention *a = &t->a;
    const size_t tiles = a->documents ? t->rows / FLASH_ROWS + a->documents
                       : memopt_i_ceil_div(a->length, FLASH_ROWS);
    const int window = a->window ? (int)memopt_i_min(a->window, FLASH_ALL) : (int)FLASH_ALL;
    const unsigned inside = (unsigned)memopt_i_less((size_t)window + 2, FLASH_ROWS + FLASH_TILE);
    flash_state k = { *a, t->statistics, t->means, tiles, window, inside, t->backward, flash_is_wide(a) };

    k.a.starts = t->starts;
    return k;
}

/* Where documents begin, from the host's memory to the device's: within launches, which may be captured. */
enum { STARTS = 480 };
typedef struct starts_part {
    size_t  *to;
    unsigned n;
    size_t   start[STARTS];
} starts_part;

PRUNED __global__ void __launch_bounds__(512) starts_kernel(const CU_ARGUMENT starts_part p) {
    if (threadIdx.x < p.n) p.to[threadIdx.x] = p.start[threadIdx.x];
}

PRUNED status_t flash_starts(const attention_task *t) {
    const size_t count = t->a.documents ? t->a.documents + 1 : 0;
    starts_part p;
    status_t s = 0;

    for (size_t first = 0; first < count && !s; first += p.n) {
        p.to = t->starts + first;
        p.n = (unsigned)memopt_i_min(count - first, STARTS);
        memcpy(p.start, t->a.starts + first, p.n * sizeof *p.start);
        s = CU_RUN(starts_kernel<>, 1, 512, 0, t->stream, p);
    }
    return s;
}

/* A block for each FLASH_ROWS of a head. */
template <class KERNEL>
static status_t flash_run(const attention_task *t, KERNEL kernel, size_t heads, unsigned threads, size_t shared) {
    const flash_state k = flash_task(t);
    const status_t s =
        taken(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));

    if (s) return s;
    return CU_RUN(kernel, (t->a.documents ? 1 : t->a.batch) * heads * k.tiles, threads, shared, t->stream, k);
}

template <typename T, int D> static status_t flash_forward(const attention_task *t) {
    enum { N = D == 64 ? 64 : 32, KEPT = D == 64 ? 4 : 3 }; /* with more there are not enough registers */
#ifdef MEMOPT_CUDA_WGMMA
    if (t->groups)
        return flash_run(t, group_forward_kernel<T, D>, t->a.heads, GROUP_THREADS,
                         (FLASH_ROWS + 6 * GROUP_N) * D * 2 + sizeof(flash_route));
#endif
    return flash_run(t, flash_forward_kernel<T, D, FLASH_ROWS / 64, N, KEPT>, t->a.heads, 128,
                     (FLASH_ROWS + 4 * N) * D * 2);
}

template <typename T, int D, int COLUMNS> static status_t flash_backward(const attention_task *t) {
    enum { N = 32, PAIRS = D == 128 };
#ifdef MEMOPT_CUDA_WGMMA
    if (t->groups)
        return flash_run(t, group_backward_kernel<T, D, COLUMNS>, COLUMNS ? t->a.kv_heads : t->a.heads, GROUP_THREADS,
                         (2 * FLASH_ROWS + 6 * GROUP_N) * D * 2 + sizeof(flash_route) + 3 * GROUP_N * sizeof(float2));
#endif
    return flash_run(t, PAIRS ? flash_pairs_kernel<T, N, COLUMNS> : flash_backward_kernel<T, N, COLUMNS>,
                     COLUMNS ? t->a.kv_heads : t->a.heads, PAIRS ? 256 : 128,
                     (2 * FLASH_ROWS + 4 * N) * D * 2 + FLASH_ROWS * sizeof(float2));
}

template <typename T> static status_t flash_means(const attention_task *t) {
    const size_t rows = t->a.batch * t->a.heads * t->a.length;
    const flash_state k = flash_task(t);

    return CU_RUN(flash_mean_kernel<T>, memopt_i_ceil_div(rows, t->a.width > 64 ? 16 : 32), 256, 0, t->stream, k, rows);
}

template <typename T, int D> static status_t flash_any(const attention_task *t) {
    status_t s = flash_starts(t);

    if (s || !t->backward) return s ? s : flash_forward<T, D>(t);
    s = t->a.statistics ? flash_means<T>(t) : flash_forward<T, D>(t);
    if (!s) s = flash_backward<T, D, 0>(t);
    return s ? s : flash_backward<T, D, 1>(t);
}

PRUNED status_t attention_run(const memopt_cuda_ops *ops, const memopt_attention *x, int backward,
                              cudaStream_t stream) {
    attention_task t;
    memopt_carver c;
    status_t s;
    size_t i;
    int plan_only;

    if (!ops || !ops->gemm) return MEMOPT_CUDA_ERR_NULL;
    if ((s = attention_resolve(x, backward, &t)) != 0 || !t.a.batch || !t.a.length) return s;
    if ((s = attention_check(&t, ops)) != 0) return s;
    c = memopt_carver_begin(ops->d_scratch);
    attention_lay_out(&t, &c);
    t.gemm = ops->gemm;
    t.stream = stream;
    if (t.flash) return CU_NARROW(t.a.type, t.a.width <= 64 ? flash_any<T, 64>(&t) : flash_any<T, 128>(&t));
    for (plan_only = 1; plan_only >= 0; --plan_only)
        for (i = 0; i < t.sequences && !s; ++i)
            s = backward ? attention_backward_sequence(&t, plan_only, i) : attention_forward_sequence(&t, plan_only, i);
    return s;
}

PUBLIC status_t api::memopt_cuda_attention_forward(const memopt_cuda_ops *ops, const memopt_attention *x,
                                                   cudaStream_t stream) {
    return attention_run(ops, x, 0, stream);
}

PUBLIC status_t api::memopt_cuda_attention_backward(const memopt_cuda_ops *ops, const memopt_attention *x,
                                                    cudaStream_t stream) {
    return attention_run(ops, x, 1, stream);
}
#endif /* MEMOPT_CUDA_NO_ATTENTION */

#endif /* groups */
#undef PRUNED
#undef PUBLIC
#undef CU_DEVICE
#undef CU_MEMBER
#undef CU_CONSTEXPR
#undef CU_UNROLL
#undef CU_ROLLED
#undef CU_ROLLED_IF
#undef CU_PRAGMA
#undef CU_RUN
#undef CU_WITH
#undef CU_NARROW
#undef CU_SIZED
#undef CU_AS
#undef CU_ARGUMENT
#undef CU_BOUNDS
#undef CU_RESIDENT
#if defined(__CUDACC__)
#  pragma nv_diag_default 177
#endif
} /* namespace memopt_i_cuda */
#ifdef MEMOPT_I_CUDA_GCC
#  undef MEMOPT_I_CUDA_GCC
#  if __INCLUDE_LEVEL__ /* else nothing follows but what nvcc adds, which is no other code */
#    pragma GCC pop_options
#  endif
#  pragma nv_diag_default 1675
#endif
#endif /* MEMOPT_I_CUDA_IMPLEMENTED */
#endif /* MEMOPT_CUDA_IMPLEMENTATION */
