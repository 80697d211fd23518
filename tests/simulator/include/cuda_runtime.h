/* cuda_runtime.h - as much of CUDA's runtime and of its C++ as memopt_cuda.cu and its tests use, on the simulator. */
#ifndef SIMULATOR_CUDA_RUNTIME_H
#define SIMULATOR_CUDA_RUNTIME_H
#include "simulator.h"
#include "cuda_runtime_api.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <new>
#include <tuple>
#include <type_traits>

#ifndef CUDART_VERSION
#  define CUDART_VERSION 13000
#endif
#define CUDART_CB

/* ---- the language ------------------------------------------------------------------------------------------------ */
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#if defined(__GNUC__) && !defined(__clang__) && defined(__ELF__) && (defined(__x86_64__) || defined(__aarch64__))
/* A bound is kept as that many warps of NOPs before the kernel: the compiler notes where they begin, in a section. */
#  define __launch_bounds__(threads, ...)                                                                              \
       __attribute__((patchable_function_entry(((threads) + 31) / 32, ((threads) + 31) / 32)))
extern "C" {
extern const uintptr_t simulator_i_bounds[] __asm__("__start___patchable_function_entries") __attribute__((weak));
extern const uintptr_t simulator_i_bounds_end[] __asm__("__stop___patchable_function_entries") __attribute__((weak));
}
static inline int simulator_i_bound(const void *kernel) {
    for (const uintptr_t *p = simulator_i_bounds; p && p < simulator_i_bounds_end; ++p)
        if ((uintptr_t)kernel - *p <= 32) return (int)((uintptr_t)kernel - *p) * 32;
    return 0;
}
#else
#  define __launch_bounds__(...)
static inline int simulator_i_bound(const void *) { return 0; }
#endif
#define warpSize 32
#define threadIdx (simulator_i_now->thread)
#define blockIdx simulator_i_block
#define blockDim simulator_i_block_size
#define gridDim simulator_i_grid_size

typedef simulator_i_index uint3;
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
#define SIMULATOR_I_VECTOR(type, name, align1, align2, align4)                                                         \
    struct name##1 { type x; };                                                                                        \
    struct __align__(align2) name##2 { type x, y; };                                                                   \
    struct name##3 { type x, y, z; };                                                                                  \
    struct __align__(align4) name##4 { type x, y, z, w; };                                                             \
    static inline name##1 make_##name##1(type x) { name##1 v; v.x = x; return v; }                                     \
    static inline name##2 make_##name##2(type x, type y) { name##2 v; v.x = x; v.y = y; return v; }                    \
    static inline name##3 make_##name##3(type x, type y, type z) { name##3 v; v.x = x; v.y = y; v.z = z; return v; }   \
    static inline name##4 make_##name##4(type x, type y, type z, type w) {                                             \
        name##4 v;                                                                                                     \
        v.x = x; v.y = y; v.z = z; v.w = w;                                                                            \
        return v;                                                                                                      \
    }
#define SIMULATOR_I_UINT_VECTOR(type, name, align2, align4)                                                            \
    struct name##1 { type x; };                                                                                        \
    struct __align__(align2) name##2 { type x, y; };                                                                   \
    struct __align__(align4) name##4 { type x, y, z, w; };                                                             \
    static inline name##1 make_##name##1(type x) { name##1 v; v.x = x; return v; }                                     \
    static inline name##2 make_##name##2(type x, type y) { name##2 v; v.x = x; v.y = y; return v; }                    \
    static inline name##4 make_##name##4(type x, type y, type z, type w) {                                             \
        name##4 v;                                                                                                     \
        v.x = x; v.y = y; v.z = z; v.w = w;                                                                            \
        return v;                                                                                                      \
    }
SIMULATOR_I_VECTOR(signed char, char, 1, 2, 4)
SIMULATOR_I_VECTOR(unsigned char, uchar, 1, 2, 4)
SIMULATOR_I_VECTOR(short, short, 2, 4, 8)
SIMULATOR_I_VECTOR(unsigned short, ushort, 2, 4, 8)
SIMULATOR_I_VECTOR(int, int, 4, 8, 16)
SIMULATOR_I_UINT_VECTOR(unsigned int, uint, 8, 16)
SIMULATOR_I_VECTOR(float, float, 4, 8, 16)
SIMULATOR_I_VECTOR(long long, longlong, 8, 16, 16)
SIMULATOR_I_VECTOR(unsigned long long, ulonglong, 8, 16, 16)
SIMULATOR_I_VECTOR(double, double, 8, 16, 16)

/* ---- what a thread can call -------------------------------------------------------------------------------------- */
#define SIMULATOR_I_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()
/* Loads and stores that are written as one instruction, which is one of global memory. */
template <class T> static inline T simulator_i_load(const T *p, const char *file, int line) { simulator_i_global(p, sizeof *p, file, line); return *p; }
template <class T> static inline void simulator_i_store(T *p, T v, const char *file, int line) { simulator_i_global(p, sizeof *p, file, line); *p = v; }
template <class T> static inline T __ldg(const T *p, SIMULATOR_I_HERE) { return simulator_i_load(p, file, line); }
template <class T> static inline T __ldcs(const T *p, SIMULATOR_I_HERE) { return simulator_i_load(p, file, line); }
template <class T> static inline T __ldcg(const T *p, SIMULATOR_I_HERE) { return simulator_i_load(p, file, line); }
template <class T> static inline void __stwb(T *p, T v, SIMULATOR_I_HERE) { simulator_i_store(p, v, file, line); }
template <class T> static inline void __stcs(T *p, T v, SIMULATOR_I_HERE) { simulator_i_store(p, v, file, line); }
template <class T> static inline void __stcg(T *p, T v, SIMULATOR_I_HERE) { simulator_i_store(p, v, file, line); }
static inline void __syncthreads(SIMULATOR_I_HERE) { simulator_i_barrier(SIMULATOR_I_PLAIN, 0, file, line); }
static inline int __syncthreads_or(int p, SIMULATOR_I_HERE) {
    return simulator_i_barrier(SIMULATOR_I_OR, p, file, line);
}
static inline int __syncthreads_and(int p, SIMULATOR_I_HERE) {
    return simulator_i_barrier(SIMULATOR_I_AND, p, file, line);
}
static inline int __syncthreads_count(int p, SIMULATOR_I_HERE) {
    return simulator_i_barrier(SIMULATOR_I_COUNT, p, file, line);
}
static inline void __syncwarp(unsigned mask = 0xffffffffu, SIMULATOR_I_HERE) {
    simulator_i_warp(SIMULATOR_I_SYNC, mask, 0, 0, file, line);
}
static inline unsigned __ballot_sync(unsigned mask, int p, SIMULATOR_I_HERE) {
    return (unsigned)simulator_i_warp(SIMULATOR_I_VOTE, mask, p != 0, 0, file, line);
}
static inline int __any_sync(unsigned mask, int p, SIMULATOR_I_HERE) {
    return simulator_i_warp(SIMULATOR_I_VOTE, mask, p != 0, 0, file, line) != 0;
}
static inline int __all_sync(unsigned mask, int p, SIMULATOR_I_HERE) {
    return simulator_i_warp(SIMULATOR_I_VOTE, mask, p == 0, 0, file, line) == 0;
}
template <class T>
static inline T simulator_i_shuffle(unsigned mask, T value, int source, const char *file, int line) {
    static_assert(std::is_arithmetic<T>::value && (sizeof(T) == 4 || sizeof(T) == 8), "shuffles take 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = simulator_i_warp(SIMULATOR_I_SHUFFLE | (sizeof(T) == 8 ? SIMULATOR_I_EIGHT : 0), mask, bits, source, file,
                            line);
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline int simulator_i_width(int width, const char *file, int line) {
    if (width >= 1 && width <= 32 && !(width & (width - 1))) return width;
    simulator_i_bad_width(width, file, line);
    return 32;
}
template <class T> static inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, SIMULATOR_I_HERE) {
    width = simulator_i_width(width, file, line);
    const int first = simulator_i_now->lane & ~(width - 1);
    return simulator_i_shuffle(mask, value, first + (lane & (width - 1)), file, line);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, SIMULATOR_I_HERE) {
    width = simulator_i_width(width, file, line);
    const int lane = simulator_i_now->lane, first = lane & ~(width - 1), from = lane - (int)delta;
    return simulator_i_shuffle(mask, value, from < first ? lane : from, file, line);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, SIMULATOR_I_HERE) {
    width = simulator_i_width(width, file, line);
    const int lane = simulator_i_now->lane, end = (lane & ~(width - 1)) + width, from = lane + (int)delta;
    return simulator_i_shuffle(mask, value, from >= end ? lane : from, file, line);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, SIMULATOR_I_HERE) {
    width = simulator_i_width(width, file, line);
    const int lane = simulator_i_now->lane, end = (lane & ~(width - 1)) + width, from = lane ^ bits;
    return simulator_i_shuffle(mask, value, from >= end ? lane : from, file, line);
}
static inline void __threadfence(void) { simulator_i_fence(); }
static inline void __threadfence_block(void) { simulator_i_fence(); }
static inline void __threadfence_system(void) { simulator_i_fence(); }
static inline void __trap(SIMULATOR_I_HERE) { simulator_i_trap(file, line); }

/* Atomics: relaxed ones of the compiler, so that ThreadSanitizer knows them. */
template <size_t bytes> struct simulator_i_bits;
template <> struct simulator_i_bits<4> { typedef uint32_t type; };
template <> struct simulator_i_bits<8> { typedef uint64_t type; };
template <class T, class F> static inline T simulator_i_atomic(T *p, F change) {
    typedef typename simulator_i_bits<sizeof(T)>::type bits;
    bits *const word = reinterpret_cast<bits *>(p);
    bits old = __atomic_load_n(word, __ATOMIC_RELAXED), now;
    for (;;) {
        T before, after;
        memcpy(&before, &old, sizeof before);
        after = change(before);
        memcpy(&now, &after, sizeof now);
        if (__atomic_compare_exchange_n(word, &old, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return before;
    }
}
#define SIMULATOR_I_ATOMIC(name, T, expression)                                                                        \
    static inline T name(T *p, T v) { return simulator_i_atomic(p, [=](T x) -> T { return expression; }); }
#define SIMULATOR_I_ATOMICS(T)                                                                                         \
    SIMULATOR_I_ATOMIC(atomicAdd, T, x + v)                                                                            \
    SIMULATOR_I_ATOMIC(atomicMax, T, x > v ? x : v)                                                                    \
    SIMULATOR_I_ATOMIC(atomicMin, T, x < v ? x : v)                                                                    \
    SIMULATOR_I_ATOMIC(atomicOr, T, x | v)                                                                             \
    SIMULATOR_I_ATOMIC(atomicAnd, T, x & v)                                                                            \
    SIMULATOR_I_ATOMIC(atomicXor, T, x ^ v)                                                                            \
    SIMULATOR_I_ATOMIC(atomicExch, T, (void(x), v))                                                                    \
    static inline T atomicCAS(T *p, T expected, T v) {                                                                 \
        return simulator_i_atomic(p, [=](T x) -> T { return x == expected ? v : x; });                                 \
    }
SIMULATOR_I_ATOMICS(int)
SIMULATOR_I_ATOMICS(unsigned)
SIMULATOR_I_ATOMICS(unsigned long long)
SIMULATOR_I_ATOMIC(atomicSub, int, x - v)
SIMULATOR_I_ATOMIC(atomicSub, unsigned, x - v)
SIMULATOR_I_ATOMIC(atomicInc, unsigned, x >= v ? 0 : x + 1)
SIMULATOR_I_ATOMIC(atomicDec, unsigned, x == 0 || x > v ? v : x - 1)
SIMULATOR_I_ATOMIC(atomicAdd, float, x + v)
SIMULATOR_I_ATOMIC(atomicAdd, double, x + v)
SIMULATOR_I_ATOMIC(atomicExch, float, (void(x), v))

/* Arithmetic. Each is rounded by itself as long as the compiler does not fuse: -ffp-contract=off. */
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __dsqrt_rn(double a) { return sqrt(a); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
#define __expf(x) expf(x) /* glibc has functions of these names */
#define __logf(x) logf(x)
template <class To, class From> static inline To simulator_i_cast(From x) {
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline unsigned __float_as_uint(float x) { return simulator_i_cast<unsigned>(x); }
static inline int __float_as_int(float x) { return simulator_i_cast<int>(x); }
static inline float __uint_as_float(unsigned x) { return simulator_i_cast<float>(x); }
static inline float __int_as_float(int x) { return simulator_i_cast<float>(x); }
static inline long long __double_as_longlong(double x) { return simulator_i_cast<long long>(x); }
static inline double __longlong_as_double(long long x) { return simulator_i_cast<double>(x); }
static inline int __float2int_rn(float x) { return (int)nearbyintf(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a * b) >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; ++i) y |= ((x >> i) & 1u) << (31 - i);
    return y;
}
#define SIMULATOR_I_MIN_MAX(T)                                                                                         \
    static inline T min(T a, T b) { return b < a ? b : a; }                                                            \
    static inline T max(T a, T b) { return a < b ? b : a; }
SIMULATOR_I_MIN_MAX(int)
SIMULATOR_I_MIN_MAX(unsigned)
SIMULATOR_I_MIN_MAX(long)
SIMULATOR_I_MIN_MAX(unsigned long)
SIMULATOR_I_MIN_MAX(long long)
SIMULATOR_I_MIN_MAX(unsigned long long)
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

/* ---- the runtime with types -------------------------------------------------------------------------------------- */
template <class T> static inline cudaError_t cudaMalloc(T **devPtr, size_t size) {
    return cudaMalloc((void **)(void *)devPtr, size);
}
template <class T> static inline cudaError_t cudaMallocHost(T **ptr, size_t size, unsigned int flags = 0) {
    return cudaHostAlloc((void **)(void *)ptr, size, flags);
}
template <class T> static inline cudaError_t cudaHostAlloc(T **ptr, size_t size, unsigned int flags) {
    return cudaHostAlloc((void **)(void *)ptr, size, flags);
}
template <class T>
static inline cudaError_t cudaMallocManaged(T **devPtr, size_t size, unsigned int flags = cudaMemAttachGlobal) {
    return cudaMallocManaged((void **)(void *)devPtr, size, flags);
}
template <class T> static inline cudaError_t cudaFuncSetAttribute(T *func, enum cudaFuncAttribute attr, int value) {
    return cudaFuncSetAttribute((const void *)func, attr, value);
}
template <class T> static inline cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, T *func) {
    return cudaFuncGetAttributes(attr, (const void *)func);
}

/* ---- launches, and the words of memopt_cuda.cu for what is not C++ ----------------------------------------------- */
template <size_t... i> struct simulator_i_numbers {};
template <size_t n, size_t... i> struct simulator_i_count : simulator_i_count<n - 1, n - 1, i...> {};
template <size_t... i> struct simulator_i_count<0, i...> { typedef simulator_i_numbers<i...> type; };
template <class... P> struct simulator_i_call { /* a kernel and its arguments, copied when it is launched */
    void (*kernel)(P...);
    std::tuple<P...> arguments;
    template <class... A>
    explicit simulator_i_call(void (*k)(P...), A &&...a) : kernel(k), arguments(static_cast<A &&>(a)...) {}
    template <size_t... i> void run(simulator_i_numbers<i...>) { kernel(std::get<i>(arguments)...); }
    static void thread(void *call) {
        static_cast<simulator_i_call *>(call)->run(typename simulator_i_count<sizeof...(P)>::type());
    }
    static void destroy(void *call) { static_cast<simulator_i_call *>(call)->~simulator_i_call(); free(call); }
};
template <class T> static inline void simulator_i_note(simulator_i_launch *, const T &) {}
template <class T> static inline void simulator_i_note(simulator_i_launch *l, T *const &p) {
    if (l->pointer_count < SIMULATOR_I_POINTERS) l->pointers[l->pointer_count++] = reinterpret_cast<const void *>(p);
}
template <class... P, size_t... i>
static inline void simulator_i_note_all(simulator_i_launch *l, const std::tuple<P...> &arguments,
                                        simulator_i_numbers<i...>) {
    const int done[] = { 0, (simulator_i_note(l, std::get<i>(arguments)), 0)... };
    (void)done; (void)l; (void)arguments;
}
struct simulator_i_where { const char *name, *file; int line; };
static inline simulator_i_index simulator_i_dimensions(dim3 d) { simulator_i_index i = { d.x, d.y, d.z }; return i; }
template <class... P, class... A>
static inline void simulator_i_run(simulator_i_where where, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                   void *stream, A &&...arguments) {
    typedef simulator_i_call<P...> call;
    simulator_i_launch launch;
    launch.grid = simulator_i_dimensions(grid);
    launch.block = simulator_i_dimensions(block);
    launch.shared_bytes = shared;
    launch.argument_bytes = 0;
    const size_t sizes[] = { 0, sizeof(P)... }, aligns[] = { 1, alignof(P)... };
    for (size_t i = 1; i <= sizeof...(P); ++i)
        launch.argument_bytes = (launch.argument_bytes + aligns[i] - 1) / aligns[i] * aligns[i] + sizes[i];
    launch.stream = stream;
    launch.run = call::thread;
    launch.destroy = call::destroy;
    call *const copy = new (malloc(sizeof(call))) call(kernel, static_cast<A &&>(arguments)...);
    launch.arguments = copy;
    launch.kernel = reinterpret_cast<void *>(kernel);
    launch.bound = simulator_i_bound(launch.kernel);
    launch.pointer_count = 0;
    simulator_i_note_all(&launch, copy->arguments, typename simulator_i_count<sizeof...(P)>::type());
    launch.name = where.name;
    launch.file = where.file;
    launch.line = where.line;
    simulator_i_start(&launch);
}
#define MEMOPT_I_CUDA_LAUNCH(kernel, grid, block, shared, stream, ...)                                                 \
    simulator_i_run(simulator_i_where{ #kernel, __FILE__, __LINE__ }, kernel, grid, block, shared, stream, __VA_ARGS__)
#define MEMOPT_I_CUDA_SHARED(type, name, dimensions)                                                                   \
    typedef type name##_array dimensions;                                                                              \
    static char name##_key;                                                                                            \
    name##_array &name = *static_cast<name##_array *>(                                                                 \
        simulator_i_shared(&name##_key, sizeof(name##_array), #name, __FILE__, __LINE__))
#define MEMOPT_I_CUDA_SHARED_BYTES(type, name, aligned)                                                                \
    type *name = static_cast<type *>(simulator_i_shared_bytes(__FILE__, __LINE__))
#define MEMOPT_I_CUDA_TABLE(type, name, dimensions) static const type name dimensions
#define MEMOPT_I_CUDA_PREFETCH(p, further)                                                                             \
    simulator_i_fetch(static_cast<const char *>(p) + (further), __FILE__, __LINE__)

/* What memopt_cuda.cu says in PTX. Memory is touched here, where a sanitizer sees who does it. */
#define MEMOPT_I_CUDA_TENSOR
static inline void simulator_i_words(void *to, const void *from, unsigned bytes) {
    for (unsigned i = 0; i < 4; ++i)
        static_cast<uint32_t *>(to)[i] = 4 * i < bytes ? static_cast<const uint32_t *>(from)[i] : 0;
}
/* From now on nobody may read what was there: it is NaN until the copy has come. */
static inline void memopt_i_cuda_copy(void *to, const void *from, unsigned bytes, SIMULATOR_I_HERE) {
    const simulator_i_copy *const c = simulator_i_copy_begin(to, from, bytes, file, line);
    for (int i = 0; i < 4; ++i) static_cast<uint32_t *>(to)[i] = 0xffffffffu;
    if (c->is_there) simulator_i_words(to, from, bytes);
}
static inline void memopt_i_cuda_copy_commit(void) { simulator_i_copy_commit(); }
template <int GROUPS> static inline void memopt_i_cuda_copy_wait(void) {
    while (const simulator_i_copy *const c = simulator_i_copy_end(GROUPS))
        if (!c->is_there) simulator_i_words(c->to, c->from, c->bytes);
}
template <int TRANSPOSED> static inline void memopt_i_cuda_matrices(uint32_t *part, const void *row, SIMULATOR_I_HERE) {
    simulator_i_matrices m;
    m.from = row;
    m.transposed = TRANSPOSED;
    simulator_i_words(m.row, row, 16);
    simulator_i_load(&m, file, line);
    for (int i = 0; i < 4; ++i) part[i] = m.part[i];
}
template <typename T>
static inline void memopt_i_cuda_multiply(float *sums, const uint32_t *left, const uint32_t *right, SIMULATOR_I_HERE) {
    simulator_i_product p;
    for (int i = 0; i < 4; ++i) { p.sums[i] = sums[i]; p.left[i] = left[i]; }
    for (int i = 0; i < 2; ++i) p.right[i] = right[i];
    p.is_bf16 = T::is_bf16;
    simulator_i_multiply(&p, file, line);
    for (int i = 0; i < 4; ++i) sums[i] = p.sums[i];
}

static inline uint32_t memopt_i_cuda_shared_at(const void *p, SIMULATOR_I_HERE) {
    return simulator_i_shared_at(p, file, line);
}
static inline void memopt_i_cuda_show(void) { simulator_i_show(); }
static inline void memopt_i_cuda_group_begin(void) { simulator_i_group_begin(); }
static inline void memopt_i_cuda_group_commit(void) { simulator_i_group_commit(); }
static inline void memopt_i_cuda_settle(float &) {}
static inline void memopt_i_cuda_settle(uint32_t &) {}
/* Each warp reads all of right; of left, which is as large, more than it has. */
static inline void simulator_i_group_read(const simulator_i_group_product *p) {
    for (int i = 0; i < 32; ++i) {
        const uint64_t tile = i < 16 ? p->right : p->left_tile;
        const void *const word = tile ? simulator_i_group_word(tile, i < 16 && p->across, i % 16) : NULL;
        if (word) (void)*static_cast<const volatile uint32_t *>(word);
    }
}
static inline void simulator_i_group_product_begin(float (*sums)[4], const uint32_t *left, uint64_t left_tile,
                                                   uint64_t right, int across, int onto, int is_bf16,
                                                   const char *file, int line) {
    simulator_i_group_product p;
    p.sums = sums[0];
    for (int i = 0; i < 4; ++i) p.left[i] = left ? left[i] : 0;
    p.left_tile = left_tile;
    p.right = right;
    p.across = across;
    p.onto = onto;
    p.is_bf16 = is_bf16;
    simulator_i_group_read(&p);
    simulator_i_group_multiply(&p, file, line);
}
template <typename T, int ACROSS>
static inline void memopt_i_cuda_group_multiply(float (*sums)[4], const uint32_t *left, uint64_t right, int onto,
                                                SIMULATOR_I_HERE) {
    simulator_i_group_product_begin(sums, left, 0, right, ACROSS, onto, T::is_bf16, file, line);
}
template <typename T>
static inline void memopt_i_cuda_group_multiply_shared(float (*sums)[4], uint64_t left, uint64_t right, int onto,
                                                       SIMULATOR_I_HERE) {
    simulator_i_group_product_begin(sums, NULL, left, right, 0, onto, T::is_bf16, file, line);
}
template <int GROUPS> static inline void memopt_i_cuda_group_wait(SIMULATOR_I_HERE) {
    unsigned i = 0;
    while (const simulator_i_group_product *const p = simulator_i_group_due(GROUPS, i++)) simulator_i_group_read(p);
    simulator_i_group_wait(GROUPS, file, line);
}

#endif
