/* test_cuda_simulator.cu - the simulator itself: it finds every class of fault, with its file and line, and finds
   nothing in kernels that are right. What stops a program under a sanitizer is done in a child process. */
#include "test_cuda.h"

#ifdef __CUDACC__
static void test_cuda_simulator(void) {
    ++test_skipped;
    printf("skipped: the simulator is not what runs on a card\n");
}
#else
#include <algorithm>
#include <string>
#include <vector>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#  define CUSIM_ASAN 1
#elif defined(__has_feature)
#  if __has_feature(address_sanitizer)
#    define CUSIM_ASAN 1
#  endif
#endif
#if defined(__SANITIZE_THREAD__)
#  define CUSIM_TSAN 1
#elif defined(__has_feature)
#  if __has_feature(thread_sanitizer)
#    define CUSIM_TSAN 1
#  endif
#endif
#ifndef CUSIM_ASAN
#  define CUSIM_ASAN 0
#endif
#ifndef CUSIM_TSAN
#  define CUSIM_TSAN 0
#endif

/* The statement must be found at fault: at that line (0 = any), in these words. */
#define CUSIM_FINDS(line, words, statement) do { \
    simulator_quiet(1); statement; test_synchronize(); \
    if (!cusim_found(line, words)) { ++test_failures; \
        printf("%s:%d: not found: %s; but: %s\n", __FILE__, __LINE__, words, simulator_log()); } \
    simulator_forget(); simulator_quiet(0); (void)cudaGetLastError(); } while (0)
static int cusim_found(int line, const char *words) { /* on one line of the log */
    char place[64];
    std::string log(simulator_log());
    snprintf(place, sizeof place, "test_cuda_simulator.cu:%d:", line);
    for (size_t at = 0, end; (end = log.find('\n', at)) != std::string::npos; at = end + 1) {
        const std::string one = log.substr(at, end - at);
        if (one.find(words) != std::string::npos && (!line || one.find(place) != std::string::npos)) return 1;
    }
    return 0;
}
/* What a child process says, and whether it ended well. */
static int cusim_child(void (*run)(void), std::string *said) {
    int pipes[2], status = 0;
    char text[4096];
    said->clear();
    fflush(NULL);
    if (pipe(pipes)) return -1;
    const pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], 1);
        dup2(pipes[1], 2);
        close(pipes[0]);
        run();
        test_synchronize();
        exit(simulator_findings() != 0);
    }
    close(pipes[1]);
    for (ssize_t n; (n = read(pipes[0], text, sizeof text)) > 0;) said->append(text, (size_t)n);
    close(pipes[0]);
    waitpid(child, &status, 0);
    return status;
}
#  define CUSIM_DIES(run, words)                                                                                       \
    do {                                                                                                               \
      std::string said;                                                                                                \
      const int status = cusim_child(run, &said);                                                                      \
      if (!status || said.find(words) == std::string::npos) {                                                          \
        ++test_failures;                                                                                               \
        printf("%s:%d: %s: status %d, without '%s':\n%.2000s\n", __FILE__, __LINE__, #run, status, words,              \
               said.c_str());                                                                                          \
      }                                                                                                                \
    } while (0)

/* ---- kernels that are right -------------------------------------------------------------------------------------- */
static __device__ __forceinline__ float cusim_warp_sum(float v) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}
static __global__ void __launch_bounds__(256) cusim_block_sum(float *out, const float *x, int n) {
    MEMOPT_I_CUDA_SHARED(float, red, [32]);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, count = (blockDim.x + 31) / 32;
    float s = 0;
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += (int)(gridDim.x * blockDim.x)) s += x[i];
    s = cusim_warp_sum(s);
    if (lane == 0) red[warp] = s;
    __syncthreads();
    s = cusim_warp_sum(lane < count ? red[lane] : 0);
    if (threadIdx.x == 0) out[blockIdx.x] = s;
}
template <int missing>
static __global__ void __launch_bounds__(1024) cusim_layernorm(float *out, const float *in, int width) {
    MEMOPT_I_CUDA_SHARED(float, red, [32]);
    const float *const x = in + (size_t)blockIdx.x * width;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, count = blockDim.x / 32;
    float s = 0, v = 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x) s += x[i];
    s = cusim_warp_sum(s);
    if (lane == 0) red[warp] = s;
    __syncthreads();
    const float mean = cusim_warp_sum(lane < count ? red[lane] : 0) / width;
    if (!missing) __syncthreads(); /* else what is read above races with what is written below */
    for (int i = threadIdx.x; i < width; i += blockDim.x) v = fmaf(x[i] - mean, x[i] - mean, v);
    v = cusim_warp_sum(v);
    if (lane == 0) red[warp] = v;
    __syncthreads();
    const float r = rsqrtf(cusim_warp_sum(lane < count ? red[lane] : 0) / width + 1e-5f);
    for (int i = threadIdx.x; i < width; i += blockDim.x) out[(size_t)blockIdx.x * width + i] = (x[i] - mean) * r;
}
static __global__ void cusim_axpy(float *y, const float *x, float a, size_t n) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaf(a, x[i], y[i]);
}
static __global__ void cusim_count(unsigned *total, double *sum, unsigned long long *most, int *least, unsigned *bits) {
    atomicAdd(total, 1u);
    atomicAdd(sum, 0.5);
    atomicMax(most, (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x);
    atomicMin(least, -(int)threadIdx.x);
    atomicOr(bits, 1u << (threadIdx.x & 31));
}
/* Half a warp by itself, then all: the upper half may wait in the wide mask while the lower one is at its own. */
static __global__ void cusim_masks(unsigned *out) {
    const unsigned lane = threadIdx.x & 31, odd = __ballot_sync(0xffffffffu, threadIdx.x & 1);
    unsigned v = lane;
    if (lane < 16) v += __shfl_xor_sync(0x0000ffffu, v, 1, 16);
    v += __shfl_up_sync(0xffffffffu, v, 1);
    v += __shfl_down_sync(0xffffffffu, v, 2, 8);
    v += (unsigned)__shfl_sync(0xffffffffu, 1000ull << 32 | v, 35, 16);
    __syncwarp();
    v +=
        100000u * (unsigned)__any_sync(0xffffffffu, lane == 7) + 200000u * (unsigned)__all_sync(0xffffffffu, lane < 31);
    out[blockIdx.x * blockDim.x + threadIdx.x] = v + (odd == 0xaaaaaaaau ? 0 : 7);
}
static unsigned cusim_masks_expected(unsigned lane) { /* the same by rows of 32 */
    unsigned a[32], b[32], c[32], d[32], i;
    for (i = 0; i < 32; ++i) a[i] = i < 16 ? i + (i ^ 1) : i;
    for (i = 0; i < 32; ++i) b[i] = a[i] + a[i ? i - 1 : i];
    for (i = 0; i < 32; ++i) c[i] = b[i] + b[(i & 7) < 6 ? i + 2 : i];
    for (i = 0; i < 32; ++i) d[i] = c[i] + c[(i & 16) + (35 & 15)];
    return d[lane] + 100000;
}
static __global__ void cusim_votes(int *out) {
    const int t = (int)threadIdx.x;
    int v = __syncthreads_or(t == 5) ? 1 : 0;
    v += __syncthreads_or(t > 5000) ? 2 : 0;
    v += __syncthreads_and(t < 5000) ? 4 : 0;
    v += __syncthreads_and(t != 5) ? 8 : 0;
    v += 16 * __syncthreads_count(t % 3 == 0);
    out[t] = v;
}
/* Threads that have ended are not waited for; lanes that have ended say NaN. */
static __global__ void cusim_exits(float *out) {
    if (threadIdx.x % 3 == 2) return;
    const float v = __shfl_sync(0xffffffffu, 1.0f, 2);
    __syncthreads();
    out[threadIdx.x] = v;
}
static __global__ void cusim_dynamic(float *out, const float *x) {
    MEMOPT_I_CUDA_SHARED_BYTES(float, s, 16);
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[(threadIdx.x + 1) % blockDim.x];
}
static __global__ void cusim_shape(unsigned *out) {
    const unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    out[b * blockDim.x * blockDim.y * blockDim.z + t] = b * 1000 + t;
}
/* The last block to come adds up what all have written: ordered by fences and an atomic. */
static __global__ void cusim_last_block(float *parts, unsigned *came, float *total, int fenced) {
    MEMOPT_I_CUDA_SHARED(int, last, [1]);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = (float)blockIdx.x;
        if (fenced) __threadfence();
        last[0] = atomicAdd(came, 1u) == gridDim.x - 1;
        if (fenced) __threadfence();
    }
    __syncthreads();
    if (!last[0] || threadIdx.x) return;
    float s = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) s += parts[i];
    *total = s;
}
struct cusim_arguments { const float *x; float *y; float a; };
static __global__ void cusim_struct(cusim_arguments a) { a.y[threadIdx.x] = a.a * a.x[threadIdx.x]; }

static std::vector<float> cusim_numbers(size_t n) {
    std::vector<float> v(n);
    for (size_t i = 0; i < n; ++i) v[i] = (float)((i * 37) % 101) / 101.0f - 0.4f;
    return v;
}
static float *cusim_put(const std::vector<float> &v) {
    float *const d = (float *)test_device(v.size() * 4);
    test_put(d, v.data(), v.size() * 4);
    return d;
}
template <class T> static std::vector<T> cusim_get(const T *d, size_t n) {
    std::vector<T> v(n);
    test_get(v.data(), d, n * sizeof(T));
    return v;
}
static void cusim_sums(void) {
    enum { WIDTH = 768, ROWS = 5 };
    const std::vector<float> x = cusim_numbers(WIDTH * ROWS);
    float *const d_x = cusim_put(x), *const d_out = (float *)test_device(WIDTH * ROWS * 4),
                 *const d_sum = (float *)test_device(12);
    std::vector<float> first;
    TEST_SCHEDULES(8) {
        MEMOPT_I_CUDA_LAUNCH(cusim_layernorm<0>, ROWS, 256, 0, 0, d_out, d_x, WIDTH);
        MEMOPT_I_CUDA_LAUNCH(cusim_block_sum, 3, 96, 0, 0, d_sum, d_x, WIDTH * ROWS);
        CHECK(!memopt_i_cuda::launched());
        const std::vector<float> out = cusim_get(d_out, WIDTH * ROWS), sum = cusim_get(d_sum, 3);
        double all = 0, expected = 0;
        for (int row = 0; row < ROWS; ++row) {
            double mean = 0, v = 0;
            for (int i = 0; i < WIDTH; ++i) mean += x[row * WIDTH + i];
            expected += mean;
            mean /= WIDTH;
            for (int i = 0; i < WIDTH; ++i) v += (x[row * WIDTH + i] - mean) * (x[row * WIDTH + i] - mean);
            for (int i = 0; i < WIDTH; ++i)
                CHECK_AT(fabs(out[row * WIDTH + i] - (x[row * WIDTH + i] - mean) / sqrt(v / WIDTH + 1e-5)) < 1e-5, i);
        }
        for (float s : sum) all += s;
        CHECK(fabs(all - expected) < 1e-3);
        if (first.empty()) first = out;
        CHECK(!memcmp(first.data(), out.data(), out.size() * 4)); /* whoever comes first */
    }
}
static void cusim_operations(void) {
    unsigned *const d_u = (unsigned *)test_device(96 * 4 * 3);
    int *const d_i = (int *)test_device(100 * 4);
    float *const d_f = (float *)test_device(64 * 4);
    TEST_SCHEDULES(8) {
        MEMOPT_I_CUDA_LAUNCH(cusim_masks, 3, 96, 0, 0, d_u);
        const std::vector<unsigned> u = cusim_get(d_u, 3 * 96);
        for (size_t i = 0; i < u.size(); ++i) CHECK_AT(u[i] == cusim_masks_expected(i % 32), i);
        MEMOPT_I_CUDA_LAUNCH(cusim_votes, 1, 100, 0, 0, d_i);
        for (int v : cusim_get(d_i, 100)) CHECK(v == 1 + 4 + 16 * 34);
        test_poison(d_f, 64 * 4);
        MEMOPT_I_CUDA_LAUNCH(cusim_exits, 1, 64, 0, 0, d_f);
        const std::vector<float> f = cusim_get(d_f, 64);
        if (test_schedule_i == 0)
            for (size_t i = 0; i < 64; ++i) CHECK_AT(isnan(f[i]) == (i < 32 ? 1 : i % 3 == 2), i);
    }
}
static void cusim_atomics(void) {
    unsigned *const d_u = (unsigned *)test_device(8);
    double *const d_sum = (double *)test_device(8);
    unsigned long long *const d_most = (unsigned long long *)test_device(8);
    int *const d_least = (int *)test_device(4);
    TEST_SCHEDULES(3) {
        test_cuda_must(cudaMemset(d_u, 0, 8), ""); test_cuda_must(cudaMemset(d_sum, 0, 8), "");
        test_cuda_must(cudaMemset(d_most, 0, 8), ""); test_cuda_must(cudaMemset(d_least, 0, 4), "");
        MEMOPT_I_CUDA_LAUNCH(cusim_count, 7, 40, 0, 0, d_u, d_sum, d_most, d_least, d_u + 1);
        CHECK(cusim_get(d_u, 2)[0] == 280 && cusim_get(d_u, 2)[1] == 0xffffffffu && cusim_get(d_sum, 1)[0] == 140);
        CHECK(cusim_get(d_most, 1)[0] == 279 && cusim_get(d_least, 1)[0] == -39);
    }
}
static void cusim_shapes(void) {
    const std::vector<float> x = cusim_numbers(1024);
    float *const d_x = cusim_put(x), *const d_y = (float *)test_device(1024 * 4);
    unsigned *const d_u = (unsigned *)test_device(2 * 3 * 4 * 5 * 6 * 7 * 4);
    cusim_arguments a = { d_x, d_y, 2.0f };
    TEST_SCHEDULES(4) {
        MEMOPT_I_CUDA_LAUNCH(cusim_dynamic, 1, 1024, 4096, 0, d_y, d_x);
        CHECK(cusim_get(d_y, 1024)[0] == x[1] && cusim_get(d_y, 1024)[1023] == x[0]);
        MEMOPT_I_CUDA_LAUNCH(cusim_struct, 1, 33, 0, 0, a);
        a.a = 100; /* copied at the launch */
        CHECK(cusim_get(d_y, 33)[32] == (test_schedule_i ? 100.0f : 2.0f) * x[32]);
        MEMOPT_I_CUDA_LAUNCH(cusim_shape, dim3(5, 6, 7), dim3(2, 3, 4), 0, 0, d_u);
        const std::vector<unsigned> u = cusim_get(d_u, 5 * 6 * 7 * 24);
        for (unsigned i = 0; i < u.size(); ++i) CHECK_AT(u[i] == i / 24 * 1000 + i % 24, i);
    }
}
static void cusim_blocks(void) {
    float *const d_parts = (float *)test_device(40 * 4), *const d_total = (float *)test_device(4);
    unsigned *const d_came = (unsigned *)test_device(4);
    TEST_SCHEDULES(8) {
        test_cuda_must(cudaMemset(d_came, 0, 4), "");
        test_poison(d_parts, 40 * 4);
        MEMOPT_I_CUDA_LAUNCH(cusim_last_block, 40, 64, 0, 0, d_parts, d_came, d_total, 1);
        CHECK(cusim_get(d_total, 1)[0] == 780);
    }
}

/* ---- faults that the simulator finds itself ---------------------------------------------------------------------- */
enum { CUSIM_DIVERGE = __LINE__ + 5 };
static __global__ void cusim_diverge(float *out) {
    if (threadIdx.x < 16) {
        __syncthreads();
        out[threadIdx.x] = 1;
    } else __syncthreads();
}
enum { CUSIM_KINDS = __LINE__ + 2 };
static __global__ void cusim_kinds(int *out) { /* the same line, another barrier */
    if (threadIdx.x & 1) __syncthreads();
    else out[threadIdx.x] = __syncthreads_or(1);
}
enum { CUSIM_HANG = __LINE__ + 2 };
static __global__ void cusim_hang(float *out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffffffu, 1.0f, 0);
    else __syncthreads();
}
enum { CUSIM_LANE = __LINE__ + 2 };
static __global__ void cusim_lane(float *out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_down_sync(0x0000ff00u, 1.0f, 1);
}
static __global__ void cusim_overlap(float *out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0x0001ffffu, 1.0f, 0);
    else out[threadIdx.x] = __shfl_sync(0xffff8000u, 1.0f, 0);
}
enum { CUSIM_SITES = __LINE__ + 3 };
static __global__ void cusim_sites(float *out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffffffu, 1.0f, 0);
    else out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
}
template <class T> static __device__ void cusim_size(float *out, T v) {
    out[threadIdx.x] = (float)__shfl_sync(0xffffffffu, v, 0);
}
static __global__ void cusim_sizes(float *out) {
    if (threadIdx.x < 16) cusim_size(out, 1.0f);
    else cusim_size(out, 1.0);
}
enum { CUSIM_WIDTH = __LINE__ + 1 };
static __global__ void cusim_width(float *out) { out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1, 12); }
enum { CUSIM_SHARED = __LINE__ + 2 };
static __global__ void cusim_shared(float *out, int behind) { /* 49 KiB; or one element behind */
    MEMOPT_I_CUDA_SHARED(float, small, [32]);
    if (behind) { small[threadIdx.x + 1] = 0; out[0] = small[0]; return; }
    MEMOPT_I_CUDA_SHARED(float, large, [12500]);
    out[0] = large[0];
}
static __global__ void cusim_no_dynamic(float *out) {
    MEMOPT_I_CUDA_SHARED_BYTES(float, s, 16);
    if (out) s[threadIdx.x] = 1;
}
static __global__ void cusim_poke(float *p, long index, float v) { p[index] = v; }
enum { CUSIM_PREFETCH = __LINE__ + 1 };
static __global__ void cusim_prefetch_one(const char *p, long at) { MEMOPT_I_CUDA_PREFETCH(p + at, 4); }
static __global__ void __launch_bounds__(128) cusim_bounded(float *out) {
    if (threadIdx.x + blockIdx.x == 0) out[0] = 1;
}
struct cusim_large { char bytes[4200]; };
static __global__ void cusim_heavy(cusim_large large, float *out) { out[0] = large.bytes[0]; }

static void cusim_synchronisation_faults(void) {
    float *const d = (float *)test_device(64 * 4);
    TEST_SCHEDULES(4) {
        CUSIM_FINDS(0, "divergent barrier", MEMOPT_I_CUDA_LAUNCH(cusim_diverge, 1, 32, 0, 0, d));
        if (test_schedule_i == 0)
            CUSIM_FINDS(CUSIM_DIVERGE, "divergent", MEMOPT_I_CUDA_LAUNCH(cusim_diverge, 1, 32, 0, 0, d));
        CUSIM_FINDS(0, "divergent barrier", MEMOPT_I_CUDA_LAUNCH(cusim_kinds, 1, 32, 0, 0, (int *)d));
        CUSIM_FINDS(0, "deadlock: 32 of 32", MEMOPT_I_CUDA_LAUNCH(cusim_hang, 1, 32, 0, 0, d));
        CUSIM_FINDS(CUSIM_HANG, "deadlock", MEMOPT_I_CUDA_LAUNCH(cusim_hang, 3, 32, 0, 0, d));
        CUSIM_FINDS(CUSIM_LANE, "lane 0 is not in its mask 0000ff00", MEMOPT_I_CUDA_LAUNCH(cusim_lane, 1, 1, 0, 0, d));
        CUSIM_FINDS(0, "overlapping masks", MEMOPT_I_CUDA_LAUNCH(cusim_overlap, 1, 32, 0, 0, d));
        CUSIM_FINDS(0, "different warp operations", MEMOPT_I_CUDA_LAUNCH(cusim_sites, 1, 32, 0, 0, d));
        CUSIM_FINDS(0, "another size", MEMOPT_I_CUDA_LAUNCH(cusim_sizes, 1, 32, 0, 0, d));
        CUSIM_FINDS(CUSIM_WIDTH, "width 12", MEMOPT_I_CUDA_LAUNCH(cusim_width, 1, 32, 0, 0, d));
        MEMOPT_I_CUDA_LAUNCH(cusim_bounded, 2, 128, 0, 0, d); /* and it still works after all that */
        CHECK(cusim_get(d, 1)[0] == 1);
    }
    simulator_schedule(0);
    CUSIM_FINDS(CUSIM_KINDS, "divergent", MEMOPT_I_CUDA_LAUNCH(cusim_kinds, 1, 2, 0, 0, (int *)d));
    CUSIM_FINDS(CUSIM_SITES, "different", MEMOPT_I_CUDA_LAUNCH(cusim_sites, 1, 32, 0, 0, d));
}
static void cusim_memory_faults(void) {
    float *const d = (float *)test_device(400), host = 0;
    const int line = __LINE__ + 1;
    CUSIM_FINDS(line, "is no device memory", MEMOPT_I_CUDA_LAUNCH(cusim_poke, 1, 1, 0, 0, (float *)&host, 0L, 1.0f));
    CUSIM_FINDS(CUSIM_SHARED + 2, "50128 bytes of static shared memory",
                MEMOPT_I_CUDA_LAUNCH(cusim_shared, 1, 1, 0, 0, d, 0));
    MEMOPT_I_CUDA_LAUNCH(cusim_prefetch_one, 1, 1, 0, 0, (const char *)d, -4L);
    MEMOPT_I_CUDA_LAUNCH(cusim_prefetch_one, 1, 1, 0, 0, (const char *)d, 395L);
    CUSIM_FINDS(CUSIM_PREFETCH, "a prefetch of", MEMOPT_I_CUDA_LAUNCH(cusim_prefetch_one, 1, 1, 0, 0, (const char *)d, 396L));
    CUSIM_FINDS(CUSIM_PREFETCH, "a prefetch of", MEMOPT_I_CUDA_LAUNCH(cusim_prefetch_one, 1, 1, 0, 0, (const char *)d, -5L));
    if (CUSIM_ASAN || CUSIM_TSAN) return; /* there the sanitizer stops the program: below */
    CUSIM_FINDS(CUSIM_SHARED, "written behind small", MEMOPT_I_CUDA_LAUNCH(cusim_shared, 1, 32, 0, 0, d, 1));
    CUSIM_FINDS(0, "written behind the dynamic", MEMOPT_I_CUDA_LAUNCH(cusim_no_dynamic, 1, 1, 0, 0, d));
    CUSIM_FINDS(0, "written behind a block of 400 bytes", MEMOPT_I_CUDA_LAUNCH(cusim_poke, 1, 1, 0, 0, d, 100L, 1.0f));
    CUSIM_FINDS(0, "written before a block", MEMOPT_I_CUDA_LAUNCH(cusim_poke, 1, 1, 0, 0, d, -1L, 1.0f));
    const int fault = __LINE__ + 1;
    CUSIM_FINDS(fault, "illegal address", MEMOPT_I_CUDA_LAUNCH(cusim_poke, 5, 4, 0, 0, d, 1L << 44, 1.0f));
    MEMOPT_I_CUDA_LAUNCH(cusim_poke, 1, 1, 0, 0, d, 0L, 5.0f);
    CHECK(cusim_get(d, 1)[0] == 5);
}
static void cusim_launch_faults(void) {
    float *const d = (float *)test_device(4);
    static const struct { unsigned grid[3], block[3];
    } bad[] = { { { 0, 1, 1 }, { 1, 1, 1 } },           { { 1, 0, 1 }, { 1, 1, 1 } },
                { { 1, 1, 65536 }, { 1, 1, 1 } },       { { 1, 65536, 1 }, { 1, 1, 1 } },
                { { 0x80000000u, 1, 1 }, { 1, 1, 1 } }, { { 1, 1, 1 }, { 0, 1, 1 } },
                { { 1, 1, 1 }, { 1025, 1, 1 } },        { { 1, 1, 1 }, { 33, 32, 1 } },
                { { 1, 1, 1 }, { 1, 1, 65 } } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
        MEMOPT_I_CUDA_LAUNCH(cusim_no_dynamic, dim3(bad[i].grid[0], bad[i].grid[1], bad[i].grid[2]),
                             dim3(bad[i].block[0], bad[i].block[1], bad[i].block[2]), 0, 0, d);
        CHECK_AT(cudaPeekAtLastError() == cudaErrorInvalidConfiguration &&
                     cudaGetLastError() == cudaErrorInvalidConfiguration,
                 i);
        CHECK_AT(cudaGetLastError() == cudaSuccess, i);
    }
    MEMOPT_I_CUDA_LAUNCH(cusim_dynamic, 1, 1, 48 * 1024 + 1, 0, d, d);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK(
        cudaFuncSetAttribute((const void *)cusim_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 + 1));
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK(!cudaFuncSetAttribute((const void *)cusim_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024));
    MEMOPT_I_CUDA_LAUNCH(cusim_dynamic, 1, 1, 227 * 1024, 0, d, d);
    CHECK(cudaGetLastError() == cudaSuccess);
    CUSIM_FINDS(0, "4208 bytes of arguments", MEMOPT_I_CUDA_LAUNCH(cusim_heavy, 1, 1, 0, 0, cusim_large(), d));
#ifndef __clang__
    CUSIM_FINDS(0, "129 threads in a block of cusim_bounded, whose __launch_bounds__ say 128",
                MEMOPT_I_CUDA_LAUNCH(cusim_bounded, 1, 129, 0, 0, d));
#endif
}
static void cusim_seeded_errors(void) {
    float *const d = (float *)test_device(4);
    void *p = NULL;
    simulator_fail_launch(2);
    MEMOPT_I_CUDA_LAUNCH(cusim_poke, 1, 1, 0, 0, d, 0L, 1.0f);
    CHECK(!memopt_i_cuda::launched());
    MEMOPT_I_CUDA_LAUNCH(cusim_poke, 1, 1, 0, 0, d, 0L, 2.0f);
    CHECK(memopt_i_cuda::launched() == MEMOPT_CUDA_BASE_RUNTIME + cudaErrorLaunchOutOfResources &&
          cusim_get(d, 1)[0] == 1);
    simulator_fail_malloc(2);
    CHECK(cudaMalloc(&p, 8) == cudaSuccess && cudaFree(p) == cudaSuccess);
    CHECK(cudaHostAlloc(&p, 8, 0) == cudaErrorMemoryAllocation && cudaGetLastError() == cudaErrorMemoryAllocation);
    const size_t before = simulator_calls();
    simulator_fail_call(3);
    CHECK(!cudaMemset(d, 0, 4) && !cudaMemset(d, 0, 4) && cudaMemset(d, 1, 4) == cudaErrorInvalidValue &&
          !cudaMemset(d, 0, 4));
    CHECK(simulator_calls() - before == 4 && cudaGetLastError() == cudaErrorInvalidValue);
    simulator_pending_error(cudaErrorIllegalAddress);
    CHECK(memopt_i_cuda::ready() == MEMOPT_CUDA_BASE_PENDING + cudaErrorIllegalAddress &&
          cudaPeekAtLastError() == cudaErrorIllegalAddress);
    simulator_pending_error(0);
    CHECK(!memopt_i_cuda::ready());
    CHECK(cudaMalloc(&p, (size_t)142 << 30) == cudaErrorMemoryAllocation &&
          cudaMalloc(&p, SIZE_MAX) == cudaErrorMemoryAllocation);
    simulator_memory(1000);
    CHECK(cudaMalloc(&p, 997) == cudaErrorMemoryAllocation && !cudaMalloc(&p, 996) && !cudaFree(p));
    (void)cudaGetLastError();
}

/* ---- faults that stop a program under a sanitizer ---------------------------------------------------------------- */
static float *cusim_block;
static void cusim_device_behind(void) { MEMOPT_I_CUDA_LAUNCH(cusim_poke, 1, 1, 0, 0, cusim_block, 100L, 1.0f); }
static void cusim_shared_behind(void) { MEMOPT_I_CUDA_LAUNCH(cusim_shared, 1, 32, 0, 0, cusim_block, 1); }
static void cusim_dynamic_behind(void) {
    MEMOPT_I_CUDA_LAUNCH(cusim_dynamic, 1, 100, 396, 0, cusim_block, cusim_block);
}
static void cusim_host_reads(void) { printf("%g\n", ((volatile float *)cusim_block)[1]); }
static void cusim_host_frees(void) { free(cusim_block); }
static void cusim_copy_behind(void) {
    float *const p = (float *)malloc(396);
    test_get(p, cusim_block, 400);
    free(p);
}
static __global__ void cusim_vectors(float4 *p) { p[threadIdx.x].w = p[threadIdx.x].x; }
static void cusim_misaligned(void) { MEMOPT_I_CUDA_LAUNCH(cusim_vectors, 1, 2, 0, 0, (float4 *)(void *)(cusim_block + 1)); }
static __global__ void cusim_add_plainly(float *sum) { *sum += 1; }
static __global__ void cusim_add_by_block(float *sum) {
    __syncthreads();
    if (threadIdx.x == 0) *sum += 1;
}
static __global__ void cusim_shuffle_orders(float *out) { /* a shuffle is no barrier for memory */
    MEMOPT_I_CUDA_SHARED(float, s, [32]);
    s[threadIdx.x] = 1;
    const float v = __shfl_sync(0xffffffffu, 1.0f, 0);
    out[threadIdx.x] = s[31 - threadIdx.x] + v;
}
static void cusim_race_shared(void) {
    MEMOPT_I_CUDA_LAUNCH(cusim_layernorm<1>, 1, 256, 0, 0, cusim_block, cusim_block, 100);
}
static void cusim_race_sum(void) { MEMOPT_I_CUDA_LAUNCH(cusim_add_plainly, 1, 32, 0, 0, cusim_block); }
static void cusim_race_blocks(void) { MEMOPT_I_CUDA_LAUNCH(cusim_add_by_block, 3, 64, 0, 0, cusim_block); }
static void cusim_race_shuffle(void) { MEMOPT_I_CUDA_LAUNCH(cusim_shuffle_orders, 1, 32, 0, 0, cusim_block); }
static void cusim_race_fence(void) {
    test_cuda_must(cudaMemset(cusim_block, 0, 400), "");
    MEMOPT_I_CUDA_LAUNCH(cusim_last_block, 3, 32, 0, 0, cusim_block, (unsigned *)cusim_block + 10, cusim_block + 11, 0);
}
static void cusim_sanitized(void) {
    cusim_block = (float *)test_device(400);
    if (CUSIM_ASAN) {
        CUSIM_DIES(cusim_device_behind, "AddressSanitizer");
        CUSIM_DIES(cusim_shared_behind, "index 32 out of bounds");
        CUSIM_DIES(cusim_dynamic_behind, "AddressSanitizer");
        CUSIM_DIES(cusim_host_reads, "AddressSanitizer");
        CUSIM_DIES(cusim_copy_behind, "not all there");
        CUSIM_DIES(cusim_misaligned, "misaligned address");
    }
    if (!CUSIM_TSAN) CUSIM_DIES(cusim_host_frees, "");
    if (!CUSIM_TSAN) return;
    TEST_SCHEDULES(3) {
        CUSIM_DIES(cusim_race_shared, "data race");
        CUSIM_DIES(cusim_race_sum, "data race");
        CUSIM_DIES(cusim_race_blocks, "data race");
        CUSIM_DIES(cusim_race_shuffle, "data race");
        CUSIM_DIES(cusim_race_fence, "data race");
    }
}
/* Without TSan: the missing barrier shows as another result, backward and with random priorities. */
static void cusim_schedules_differ(void) {
    enum { WIDTH = 768, ROWS = 4 };
    float *const d_x = cusim_put(cusim_numbers(WIDTH * ROWS)), *const d_out = (float *)test_device(WIDTH * ROWS * 4);
    int differ = 0;
    if (CUSIM_TSAN) return;
    MEMOPT_I_CUDA_LAUNCH(cusim_layernorm<0>, ROWS, 256, 0, 0, d_out, d_x, WIDTH);
    const std::vector<float> right = cusim_get(d_out, WIDTH * ROWS);
    TEST_SCHEDULES(8) {
        MEMOPT_I_CUDA_LAUNCH(cusim_layernorm<1>, ROWS, 256, 0, 0, d_out, d_x, WIDTH);
        differ += memcmp(right.data(), cusim_get(d_out, WIDTH * ROWS).data(), right.size() * 4) != 0;
    }
    CHECK(differ >= 6);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */
static __global__ void cusim_mix(float *acc, const float *x, int n) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) acc[i] = acc[i] * 0.5f + x[i];
}
enum { CUSIM_RIGHT, CUSIM_READER, CUSIM_COPY }; /* the wait that is missing: for the slot's last reader, for the copy */
/* Layers go through two slots on the device: copies in one stream, kernels in the other. */
static std::vector<float> cusim_prefetch(int missing) {
    enum { N = 64, LAYERS = 16 };
    cudaStream_t stream[2];
    cudaEvent_t copied[2], used[2];
    float *pinned, *d_slots, *d_acc;
    const std::vector<float> x = cusim_numbers(N * LAYERS), ones(N, 1.0f);
    std::vector<float> result(N);
    test_cuda_must(cudaHostAlloc(&pinned, N * LAYERS * 4, cudaHostAllocDefault), "");
    memcpy(pinned, x.data(), N * LAYERS * 4);
    test_cuda_must(cudaMalloc(&d_slots, 2 * N * 4), "");
    test_cuda_must(cudaMalloc(&d_acc, N * 4), "");
    test_put(d_acc, ones.data(), N * 4);
    for (int i = 0; i < 2; ++i) {
        test_cuda_must(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking), "");
        test_cuda_must(cudaEventCreateWithFlags(&copied[i], cudaEventDisableTiming), "");
        test_cuda_must(cudaEventCreateWithFlags(&used[i], cudaEventDisableTiming), "");
    }
    for (int i = 0; i < LAYERS; ++i) {
        const int slot = i & 1;
        if (missing != CUSIM_READER) cudaStreamWaitEvent(stream[1], used[slot], 0); /* the first time: never recorded */
        cudaMemcpyAsync(d_slots + slot * N, pinned + i * N, N * 4, cudaMemcpyHostToDevice, stream[1]);
        cudaEventRecord(copied[slot], stream[1]);
        if (missing != CUSIM_COPY) cudaStreamWaitEvent(stream[0], copied[slot], 0);
        MEMOPT_I_CUDA_LAUNCH(cusim_mix, 1, N, 0, stream[0], d_acc, d_slots + slot * N, (int)N);
        cudaEventRecord(used[slot], stream[0]);
    }
    test_cuda_must(cudaStreamSynchronize(stream[0]), "");
    test_get(result.data(), d_acc, N * 4);
    for (int i = 0; i < 2; ++i) {
        cudaStreamDestroy(stream[i]);
        cudaEventDestroy(copied[i]);
        cudaEventDestroy(used[i]);
    }
    cudaFree(d_acc); cudaFree(d_slots); cudaFreeHost(pinned);
    return result;
}
static void cusim_streams(void) {
    simulator_streams(MODE_EAGER, 0);
    const std::vector<float> right = cusim_prefetch(CUSIM_RIGHT);
    int wrong[3][3] = { { 0 } };
    for (int missing = 0; missing < 3; ++missing)
        for (int i = 0; i < 42; ++i) {
            const int mode = i == 0 ? MODE_EAGER : i == 1 ? MODE_LAZY : MODE_RANDOM;
            simulator_streams(mode, (uint64_t)i);
            wrong[missing][mode] += memcmp(right.data(), cusim_prefetch(missing).data(), right.size() * 4) != 0;
        }
    CHECK(wrong[CUSIM_RIGHT][MODE_EAGER] + wrong[CUSIM_RIGHT][MODE_LAZY] + wrong[CUSIM_RIGHT][MODE_RANDOM] == 0);
    CHECK(wrong[CUSIM_READER][MODE_RANDOM] > 20 && wrong[CUSIM_COPY][MODE_RANDOM] > 30 &&
          wrong[CUSIM_COPY][MODE_LAZY] == 1);
    CHECK(cudaGetLastError() == cudaSuccess);
}
static void cusim_set_flag(void *flag) { ++*(int *)flag; }
static void cusim_calls_cuda(void *) { int count; (void)cudaGetDeviceCount(&count); }
static void cusim_write_device(void *d) { ((float *)d)[0] = 7; }
static void cusim_lazy(void) { /* late, but no later than allowed */
    float *const d = (float *)test_device(400), *pinned, host[100];
    cudaStream_t s, other;
    cudaEvent_t e;
    int flag = 0;
    test_cuda_must(cudaHostAlloc(&pinned, 400, 0), "");
    test_cuda_must(cudaStreamCreate(&s), "");
    test_cuda_must(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "");
    test_cuda_must(cudaEventCreate(&e), "");
    simulator_streams(MODE_LAZY, 0);
    CHECK(!cudaEventQuery(e) && !cudaEventSynchronize(e) && !cudaStreamWaitEvent(s, e, 0)); /* never recorded */
    host[0] = pinned[0] = 1; host[1] = pinned[1] = 2;
    CHECK(!cudaMemcpyAsync(d, host, 4, cudaMemcpyHostToDevice, s) &&
          !cudaMemcpyAsync(d + 1, pinned, 4, cudaMemcpyHostToDevice, s));
    host[0] = pinned[0] = 9; /* pageable memory was read, pinned was not */
    CHECK(!cudaLaunchHostFunc(s, cusim_set_flag, &flag) && !cudaEventRecord(e, s) && !flag);
    CHECK(cudaEventQuery(e) == cudaErrorNotReady && cudaStreamQuery(s) == cudaErrorNotReady &&
          cudaGetLastError() == cudaErrorNotReady);
    CHECK(!cudaEventSynchronize(e) && flag == 1 && !cudaEventQuery(e) && !cudaStreamQuery(s));
    test_get(host, d, 8);
    CHECK(host[0] == 1 && host[1] == 9);
    CHECK(!cudaMemsetAsync(d, 0, 4, s)); /* blocking streams come before the default stream's copy, others do not */
    CHECK(!cudaMemsetAsync(d + 1, 0, 4, other));
    test_get(host, d, 8);
    CHECK(host[0] == 0 && host[1] == 9);
    CHECK(!cudaStreamSynchronize(other));
    test_get(host, d, 8);
    CHECK(host[1] == 0);
    CHECK(!simulator_host_function(s, cusim_write_device, NULL, d) &&
          !cudaMemcpyAsync(host, d, 4, cudaMemcpyDeviceToHost, s) && host[0] == 7);
    for (int i = 0; i < 5; ++i) CHECK(!cudaLaunchHostFunc(other, cusim_set_flag, &flag));
    for (int i = 0; i < 5; ++i) CHECK(cudaStreamQuery(other) == cudaErrorNotReady); /* asking makes it go on */
    CHECK(!cudaStreamQuery(other) && flag == 6);
    CHECK(!cudaMemcpy2DAsync(d, 16, pinned, 8, 8, 3, cudaMemcpyDefault, s) && !cudaDeviceSynchronize());
    test_get(host, d, 48);
    CHECK(host[0] == 9 && host[1] == 2 && !memcmp(host + 4, pinned + 2, 8) && !memcmp(host + 8, pinned + 4, 8));
    CHECK(!cudaLaunchHostFunc(other, cusim_set_flag, &flag) && !cudaStreamDestroy(other) && !cudaDeviceSynchronize() &&
          flag == 7);
    CUSIM_FINDS(0, "a host function of a stream calls CUDA", CHECK(!cudaLaunchHostFunc(s, cusim_calls_cuda, NULL)));
    CUSIM_FINDS(0, "stream that was destroyed", CHECK(cudaStreamSynchronize(other) == cudaErrorInvalidResourceHandle));
    CHECK(!cudaEventDestroy(e) && !cudaStreamDestroy(s) && !cudaFreeHost(pinned));
    CUSIM_FINDS(0, "event that was destroyed", CHECK(cudaEventRecord(e, 0) == cudaErrorInvalidResourceHandle));
}
/* A graph does at each launch what was captured. What no capture allows is refused, found, and leaves none. */
static int cusim_ended;
static void cusim_write_next(void *d) { ++*(int *)d; }
static void cusim_end_argument(void *) { ++cusim_ended; }
static void cusim_capture(void) {
    int *const d = (int *)test_device(64), host[2] = { 40, 0 };
    float *const f = (float *)test_device(64);
    cudaStream_t s = NULL;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaEvent_t e = NULL;
    void *more = NULL;
    size_t nodes = 0;
    test_cuda_must(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "");
    test_cuda_must(cudaEventCreate(&e), "");
    cusim_ended = 0;
    CHECK(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeThreadLocal) == cudaErrorStreamCaptureUnsupported);
    (void)cudaGetLastError();
    CHECK(!cudaMemcpy(d, host, 8, cudaMemcpyHostToDevice) && !cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    CHECK(!cudaMemsetAsync(d + 1, 1, 4, s) && !simulator_host_function(s, cusim_write_next, cusim_end_argument, d));
    MEMOPT_I_CUDA_LAUNCH(cusim_poke, 1, 1, 0, s, f, 0L, 3.0f);
    CHECK(!cudaGetLastError() && !cudaStreamEndCapture(s, &graph) && !cudaGraphGetNodes(graph, NULL, &nodes) && nodes == 3);
    CHECK(!cudaGraphInstantiate(&exec, graph, 0) && !cudaGraphDestroy(graph));
    test_get(host, d, 8);
    CHECK(host[0] == 40 && host[1] == 0); /* nothing has run */
    for (int i = 1; i < 4; ++i) {
        CHECK(!cudaMemset(d + 1, 0, 4) && !cudaGraphLaunch(exec, s) && !cudaStreamSynchronize(s));
        test_get(host, d, 8);
        CHECK(host[0] == 40 + i && host[1] == 0x01010101 && cusim_get(f, 1)[0] == 3.0f && !cusim_ended);
    }
    CHECK(!cudaGraphExecDestroy(exec) && !cudaEventRecord(e, s));
    for (int i = 0; i < 10; ++i) {
        static const char *const finds[] = { "default stream is used", "default stream is used", "cudaDeviceSynchronize",
            "cudaStreamSynchronize", "memory is asked for", "memory is given back", "cudaStreamQuery", "cudaEventQuery",
            "cudaEventSynchronize", "cannot be captured in this simulator" };
        cudaError_t error = cudaSuccess;
        CHECK(!cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
        CUSIM_FINDS(0, finds[i], {
            if (i == 0) { MEMOPT_I_CUDA_LAUNCH(cusim_poke, 1, 1, 0, 0, f, 0L, 4.0f); error = cudaGetLastError(); }
            if (i == 1) error = cudaMemcpy(d, host, 8, cudaMemcpyHostToDevice);
            if (i == 2) error = cudaDeviceSynchronize();
            if (i == 3) error = cudaStreamSynchronize(s);
            if (i == 4) error = cudaMalloc(&more, 64);
            if (i == 5) error = cudaFree(f);
            if (i == 6) error = cudaStreamQuery(s);
            if (i == 7) error = cudaEventQuery(e);
            if (i == 8) error = cudaEventSynchronize(e);
            if (i == 9) error = cudaEventRecord(e, s) ? cudaSuccess : cudaErrorUnknown;
            graph = (cudaGraph_t)&more;
            CHECK_AT(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated && !graph, i);
        });
        CHECK_AT(error != cudaSuccess, i);
    }
    CHECK(cusim_get(f, 1)[0] == 3.0f && !more && cudaStreamEndCapture(s, &graph) == cudaErrorInvalidValue);
    CHECK(!cudaEventDestroy(e) && !cudaStreamDestroy(s));
    (void)cudaGetLastError();
    test_device_free(0);
    CHECK(simulator_end_test() == 0 && cusim_ended == 1);
}
static void cusim_devices(void) {
    float *const d = (float *)test_device(400), *d_other;
    cudaStream_t s = NULL;
    cudaEvent_t e = NULL;
    int n = 0, value = 0;
    CHECK(!cudaGetDeviceCount(&n) && n == 2 && !cudaGetDevice(&n) && n == 0 &&
          cudaSetDevice(2) == cudaErrorInvalidDevice);
    CHECK(!cudaSetDevice(1) && !cudaMalloc(&d_other, 400) && !cudaStreamCreate(&s) && !cudaEventCreate(&e) &&
          !cudaSetDevice(0));
    (void)cudaGetLastError();
    MEMOPT_I_CUDA_LAUNCH(cusim_poke, 1, 1, 0, s, d, 0L, 1.0f); /* a stream of another device */
    CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle && isnan(cusim_get(d, 1)[0]));
    CHECK(cudaMemsetAsync(d, 0, 4, s) == cudaErrorInvalidResourceHandle &&
          cudaEventRecord(e, 0) == cudaErrorInvalidResourceHandle);
    CUSIM_FINDS(0, "memory of another device", { MEMOPT_I_CUDA_LAUNCH(cusim_no_dynamic, 1, 1, 4, 0, d_other); });
    simulator_forget();
    cudaPointerAttributes a;
    CHECK(!cudaPointerGetAttributes(&a, d_other + 1) && a.type == cudaMemoryTypeDevice && a.device == 1 &&
          a.devicePointer == d_other + 1);
    CHECK(!cudaPointerGetAttributes(&a, &n) && a.type == cudaMemoryTypeUnregistered);
    simulator_capability(7, 5);
    CHECK(!cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0) && value == 7);
    CHECK(!cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMinor, 1) && value == 5);
    size_t left = 0, total = 0;
    CHECK(!cudaMemGetInfo(&left, &total) && total - left == 400);
    (void)cudaGetLastError();
    CHECK(!cudaStreamDestroy(s) && !cudaEventDestroy(e) && !cudaFree(d_other));
    simulator_devices(0);
    CHECK(cudaGetDeviceCount(&n) == cudaErrorNoDevice && n == 0 && cudaMalloc(&d_other, 4) == cudaErrorNoDevice);
    (void)cudaGetLastError();
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */
static void cusim_copies(void) {
    float *const d = (float *)test_device(400), host[100], *managed;
    CHECK(!cudaMallocManaged(&managed, 400));
    managed[3] = 3;
    CHECK(!cudaMemcpy(d, managed, 400, cudaMemcpyDefault));
    CHECK(cusim_get(d, 4)[3] == 3);
    CUSIM_FINDS(0, "404 bytes at offset 0 of a block of 400",
                CHECK(cudaMemcpy(d, host, 404, cudaMemcpyDefault) == cudaErrorInvalidValue));
    CUSIM_FINDS(0, "8 bytes at offset 396", CHECK(cudaMemset(d + 99, 0, 8) == cudaErrorInvalidValue));
    CUSIM_FINDS(0, "cudaMemcpyKind",
                CHECK(cudaMemcpy(d, host, 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidMemcpyDirection));
    CUSIM_FINDS(0, "cudaMemcpyKind",
                CHECK(cudaMemcpy(host, host + 1, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidMemcpyDirection));
    CUSIM_FINDS(0, "no device memory", CHECK(cudaMemset(host, 0, 4) == cudaErrorInvalidValue));
    CUSIM_FINDS(0, "not from there", CHECK(cudaFree(d + 1) == cudaErrorInvalidValue));
    CUSIM_FINDS(0, "cudaFreeHost", CHECK(cudaFreeHost(d) == cudaErrorInvalidValue));
#if CUDART_VERSION >= 13000
    const cudaMemLocation here = { cudaMemLocationTypeDevice, 0 };
    CHECK(!cudaMemPrefetchAsync(managed, 400, here, 0) &&
          cudaMemPrefetchAsync(managed, 404, here, 0) == cudaErrorInvalidValue);
    CHECK(!cudaMemAdvise(managed, 400, cudaMemAdviseSetPreferredLocation, here));
#else
    CHECK(!cudaMemPrefetchAsync(managed, 400, 0) && cudaMemPrefetchAsync(managed, 404, 0) == cudaErrorInvalidValue);
    CHECK(!cudaMemAdvise(managed, 400, cudaMemAdviseSetPreferredLocation, 0));
#endif
    CHECK(!cudaFree(managed) && simulator_live(LIVE_MANAGED_BYTES) == 0 && simulator_live(LIVE_DEVICE_BYTES) == 400);
    (void)cudaGetLastError();
}
static int cusim_a_kernel_waits(void) { return 1; }
static void cusim_memory_beside_waiting_kernels(void) { /* of other devices, as NCCL's */
    float *d = NULL, *pinned = NULL;
    simulator_ranks(cusim_a_kernel_waits, NULL);
    CUSIM_FINDS(0, "memory is asked for, while a kernel waits", CHECK(!cudaMalloc(&d, 12)));
    CUSIM_FINDS(0, "memory is asked for, while a kernel waits", CHECK(!cudaMallocHost(&pinned, 12)));
    CUSIM_FINDS(0, "memory is given back, while a kernel waits", CHECK(!cudaFree(d)));
    simulator_ranks(NULL, NULL);
    CHECK(!cudaFreeHost(pinned));
}
/* What waits for other ranks: its stream stands there, others go on, and a host that waits hands on until it is ready. */
static int cusim_ready, cusim_turns, cusim_came;
static int cusim_is_ready(void *) { return cusim_ready; }
static int cusim_hand_on(void) { cusim_ready = ++cusim_turns == 3; return 0; }
static void cusim_come(void *) { ++cusim_came; }
static void cusim_waits_for_ranks(int mode) {
    int *const d = (int *)test_device(64), *pinned, host = 0;
    cudaStream_t s, other, behind;
    cudaEvent_t e;
    void *more = NULL;
    test_cuda_must(cudaHostAlloc(&pinned, 64, 0), ""); test_cuda_must(cudaEventCreate(&e), "");
    test_cuda_must(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "");
    test_cuda_must(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "");
    test_cuda_must(cudaStreamCreateWithFlags(&behind, cudaStreamNonBlocking), "");
    CHECK(!cudaMalloc(&more, 4) && !cudaDeviceSynchronize());
    simulator_streams(mode, 1);
    simulator_ranks(NULL, cusim_hand_on);
    for (int way = 0; way < 6; ++way) {
        const int before = cusim_came;
        cusim_ready = cusim_turns = 0;
        *pinned = 1;
        CHECK(!cudaMemsetAsync(d, 0, 8, s) && !simulator_awaiting_function(s, cusim_is_ready, cusim_come, cusim_come, d));
        CHECK(!cudaMemcpyAsync(pinned, d, 4, cudaMemcpyDeviceToHost, s) && !cudaEventRecord(e, s));
        CHECK(!cudaStreamWaitEvent(behind, e, 0) && !cudaMemsetAsync(d + 1, 1, 4, behind));
        CHECK(!cudaMemsetAsync(d + 2, way, 1, other));
        for (int i = 0; i < 9; ++i) CHECK(cudaEventQuery(e) == cudaErrorNotReady && cudaStreamQuery(s) == cudaErrorNotReady && cudaStreamQuery(behind) == cudaErrorNotReady);
        (void)cudaGetLastError();
        CHECK(!cudaStreamSynchronize(other) && !cusim_turns && *pinned == 1 && cusim_came == before);
        if (way == 0) CHECK(!cudaStreamSynchronize(s));
        if (way == 1) CHECK(!cudaEventSynchronize(e));
        if (way == 2) CHECK(!cudaDeviceSynchronize());
        if (way == 3) CHECK(!cudaMemcpyAsync(&host, d + 1, 4, cudaMemcpyDeviceToHost, behind) && host == 0x01010101);
        if (way == 4) CHECK(!cudaFree(more));
        if (way == 5) { /* who asks gets there, once it is ready */
            cusim_ready = 1;
            while (cudaStreamQuery(behind)) {}
            (void)cudaGetLastError();
            CHECK(!cudaEventQuery(e));
            cusim_turns = 3;
        }
        CHECK(cusim_turns == 3 && *pinned == 0 && cusim_came == before + 2);
        CHECK(!cudaDeviceSynchronize());
    }
    CHECK(!cudaStreamDestroy(s) && !cudaStreamDestroy(other) && !cudaStreamDestroy(behind) && !cudaEventDestroy(e) && !cudaFreeHost(pinned));
}
static void cusim_ranks(void) {
    cudaStream_t s;
    for (int mode = MODE_EAGER; mode <= MODE_RANDOM; ++mode) { cusim_waits_for_ranks(mode); simulator_streams(MODE_EAGER, 0); }
    test_cuda_must(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "");
    simulator_ranks(NULL, NULL);
    cusim_ready = 0;
    CHECK(!simulator_awaiting_function(s, cusim_is_ready, cusim_come, NULL, NULL));
    CUSIM_FINDS(0, "the host waits for other ranks for ever", CHECK(!cudaStreamSynchronize(s)); cusim_ready = 1);
    CHECK(!cudaStreamSynchronize(s) && !cudaStreamDestroy(s));
}
static void cusim_leaks(void) {
    float *d;
    cudaStream_t s;
    CHECK(!cudaMalloc(&d, 12) && !cudaStreamCreate(&s));
    simulator_quiet(1);
    CHECK(simulator_end_test() == 2 && cusim_found(0, "leak: 12 bytes of cudaMalloc") &&
          cusim_found(0, "leak: 1 streams"));
    simulator_forget();
    simulator_quiet(0);
}
static __global__ void cusim_number(uint16_t *y, size_t n) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (uint16_t)(i >> 8);
}
static void cusim_huge(void) { /* more than 2^32 elements, of which a few are written */
    const size_t n = ((size_t)1 << 32) + 1000;
    uint16_t *const d = (uint16_t *)test_device(2 * n), last[2];
    simulator_run_blocks(2, 3);
    MEMOPT_I_CUDA_LAUNCH(cusim_number, (unsigned)((n + 255) / 256), 256, 0, 0, d, n);
    test_get(last, d + n - 2, 4);
    CHECK(last[0] == (uint16_t)((n - 2) >> 8) && last[1] == (uint16_t)((n - 1) >> 8));
    test_get(last, d + 511, 4);
    CHECK(last[0] == 1 && last[1] == 0);
}
static CUmemAllocationProp cusim_property(int device) {
    CUmemAllocationProp p;
    memset(&p, 0, sizeof p);
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = device;
    return p;
}
static void cusim_virtual_memory(void) {
    const CUmemAllocationProp p = cusim_property(0);
    CUmemAccessDesc access = { p.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    CUmemGenericAllocationHandle h[2];
    CUdeviceptr base;
    size_t g = 0;
    float host[2];
    CHECK(!cuMemGetAllocationGranularity(&g, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM) && g == (size_t)2 << 20);
    CHECK(cuMemAddressReserve(&base, g + 1, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE &&
          !cuMemAddressReserve(&base, 8 * g, 0, 0, 0));
    CHECK(!cuMemCreate(&h[0], g, &p, 0) && !cuMemCreate(&h[1], 2 * g, &p, 0) && base % g == 0);
    CUSIM_FINDS(0, "not reserved", CHECK(cuMemMap(base + 7 * g, 2 * g, 0, h[1], 0)));
    CHECK(!cuMemMap(base, g, 0, h[0], 0) && !cuMemMap(base + g, 2 * g, 0, h[1], 0) && !cuMemRelease(h[0]));
    CUSIM_FINDS(0, "mapped there already",
                CHECK(cuMemMap(base + 2 * g, 2 * g, 0, h[1], 0) == CUDA_ERROR_ALREADY_MAPPED));
    if (!CUSIM_ASAN && !CUSIM_TSAN)
        CUSIM_FINDS(0, "illegal address", MEMOPT_I_CUDA_LAUNCH(cusim_poke, 1, 1, 0, 0, (float *)base, 0L, 1.0f));
    CHECK(!cuMemSetAccess(base, 3 * g, &access, 1));
    MEMOPT_I_CUDA_LAUNCH(cusim_poke, 1, 1, 0, 0, (float *)base, (long)g / 4 - 1, 1.0f);
    MEMOPT_I_CUDA_LAUNCH(cusim_poke, 1, 1, 0, 0, (float *)base, (long)g / 4, 2.0f);
    test_get(host, (float *)base + g / 4 - 1, 8); /* across two mappings */
    CHECK(host[0] == 1 && host[1] == 2);
    CUSIM_FINDS(0, "not all of", CHECK(cudaMemset((char *)base + 3 * g - 4, 0, 8) == cudaErrorInvalidValue));
    CUSIM_FINDS(0, "whole mappings", CHECK(cuMemUnmap(base + g, g)));
    CUSIM_FINDS(0, "still mapped", CHECK(cuMemAddressFree(base, 8 * g)));
    CHECK(!cuMemUnmap(base, 3 * g) && simulator_live(LIVE_MAPPINGS) == 0);
    CHECK(!cuMemMap(base + 4 * g, 2 * g, 0, h[1], 0) &&
          !cuMemSetAccess(base + 4 * g, 2 * g, &access, 1)); /* elsewhere: its bytes */
    test_get(host, (float *)(base + 4 * g), 4);
    CHECK(host[0] == 2 && simulator_live(LIVE_HANDLES) == 1 && simulator_live(LIVE_RESERVATIONS) == 1);
    CHECK(!cuMemRelease(h[1]) && !cuMemUnmap(base + 4 * g, 2 * g) && !cuMemAddressFree(base, 8 * g));
    CUSIM_FINDS(0, "handle that was released", CHECK(cuMemRelease(h[1])));
    simulator_fail_malloc(1);
    CHECK(cuMemCreate(h, g, &p, 0) == CUDA_ERROR_OUT_OF_MEMORY && cudaGetLastError() == cudaSuccess);
    void *entry = NULL;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    CHECK(!cudaGetDriverEntryPointByVersion("cuMemMap", &entry, 12000, cudaEnableDefault, &found) &&
          entry == (void *)&cuMemMap);
    CHECK(!cudaGetDriverEntryPointByVersion("cuNothing", &entry, 12000, cudaEnableDefault, &found) && !entry && found);
#else
    CHECK(!cudaGetDriverEntryPoint("cuMemMap", &entry, cudaEnableDefault, &found) && entry == (void *)&cuMemMap);
#endif
}

/* ---- how long it takes ------------------------------------------------------------------------------------------- */
static double cusim_seconds(void) { /* of this process: others may be busy */
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static void cusim_bench(void) { /* medians; printed, not checked */
    enum { WIDTH = 768, ROWS = 100, RUNS = 9, N = 1 << 18 };
    float *const d_x = cusim_put(cusim_numbers(WIDTH * ROWS)), *const d_out = (float *)test_device(WIDTH * ROWS * 4);
    float *const d_y = cusim_put(cusim_numbers(N));
    std::vector<double> t[3];
    for (int i = 0; i < RUNS; ++i) {
        double start = cusim_seconds();
        MEMOPT_I_CUDA_LAUNCH(cusim_block_sum, 100, 256, 0, 0, d_out, d_x, WIDTH * ROWS);
        t[0].push_back((cusim_seconds() - start) / (100 * 256 * 11));
        start = cusim_seconds();
        MEMOPT_I_CUDA_LAUNCH(cusim_layernorm<0>, ROWS, 256, 0, 0, d_out, d_x, WIDTH);
        t[1].push_back((cusim_seconds() - start) / (ROWS * 256 * 23));
        start = cusim_seconds();
        MEMOPT_I_CUDA_LAUNCH(cusim_axpy, N / 256, 256, 0, 0, d_y, d_y, 0.5f, (size_t)N);
        t[2].push_back((cusim_seconds() - start) / N);
    }
    for (int i = 0; i < 3; ++i) std::sort(t[i].begin(), t[i].end());
    printf("ns per thread and synchronisation: %.1f (block sum), %.1f (layer norm); per thread without: %.1f\n",
           t[0][RUNS / 2] * 1e9, t[1][RUNS / 2] * 1e9, t[2][RUNS / 2] * 1e9);
}
/* ---- tensor cores: fragments as the PTX manual has them, written down here once more ---- */
static int cusim_left_row(int lane, int i) { return lane / 4 + ((i < 2 || (i >= 4 && i < 6)) ? 0 : 8); }
static int cusim_left_column(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8); }
static int cusim_right_row(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8); }

/* sums (16 x 8) += left (16 x 16) * right (16 x 8): HOW 0 fragments by hand, 1 by ldmatrix, 2 with right transposed */
template <typename T, int HOW>
static __global__ void cusim_product(float *sums, const uint16_t *left, const uint16_t *right) {
    MEMOPT_I_CUDA_SHARED(uint4, rows, [64]);
    uint16_t *const shared = (uint16_t *)(void *)rows;
    const int lane = (int)threadIdx.x;
    uint32_t a[4] = { 0, 0, 0, 0 }, b[4] = { 0, 0, 0, 0 };
    float c[4];
    for (int i = 0; i < 8; ++i) {
        a[i / 2] |= (uint32_t)left[cusim_left_row(lane, i) * 16 + cusim_left_column(lane, i)] << (i % 2 * 16);
        if (i < 4) b[i / 2] |= (uint32_t)right[cusim_right_row(lane, i) * 8 + lane / 4] << (i % 2 * 16);
        shared[lane * 8 + i] = left[lane * 8 + i];
    }
    for (int i = 0; i < 8; ++i) { /* right: 16 rows of 8, each twice, or 8 rows of 16, twice */
        const int at = lane * 8 + i;
        shared[256 + at] = HOW == 2 ? right[at % 16 * 8 + at / 16 % 8] : right[at / 16 * 8 + at % 8];
    }
    __syncwarp();
    if (HOW) memopt_i_cuda_matrices<0>(a, shared + lane % 16 * 16 + lane / 16 * 8);
    if (HOW == 1) memopt_i_cuda_matrices<1>(b, shared + 256 + lane % 16 * 16 + lane / 16 * 8);
    if (HOW == 2) memopt_i_cuda_matrices<0>(b, shared + 256 + lane % 8 * 16 + lane / 8 % 2 * 8);
    for (int i = 0; i < 4; ++i) c[i] = sums[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2];
    memopt_i_cuda_multiply<T>(c, a, b);
    for (int i = 0; i < 4; ++i) sums[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = c[i];
}
template <typename T, int HOW> static void cusim_multiply(void) {
    float sums[128], before[128]; uint16_t left[256], right[128]; uint64_t seed = 7; int i, j, k;
    const memopt_type type = T::is_bf16 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F16;
    float *d_sums = (float *)test_device(sizeof sums); uint16_t *d_left = (uint16_t *)test_device(sizeof left), *d_right = (uint16_t *)test_device(sizeof right);
    for (i = 0; i < 256; ++i) { const float x = (float)((double)(int64_t)(test_random(&seed) >> 11) * 0x1p-51 - 2); left[i] = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x); }
    for (i = 0; i < 128; ++i) { const float x = (float)((double)(int64_t)(test_random(&seed) >> 11) * 0x1p-51 - 2); right[i] = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x); }
    for (i = 0; i < 128; ++i) before[i] = (float)(i - 60);
    test_put(d_sums, before, sizeof before); test_put(d_left, left, sizeof left); test_put(d_right, right, sizeof right);
    MEMOPT_I_CUDA_LAUNCH((cusim_product<T, HOW>), 1, 32, 0, 0, d_sums, d_left, d_right);
    test_get(sums, d_sums, sizeof sums);
    for (i = 0; i < 16; ++i) for (j = 0; j < 8; ++j) {
        double wanted = (double)before[i * 8 + j];
        for (k = 0; k < 16; ++k)
            wanted += type == MEMOPT_TYPE_BF16 ? (double)memopt_from_bf16(left[i * 16 + k]) * (double)memopt_from_bf16(right[k * 8 + j])
                                               : (double)memopt_from_f16(left[i * 16 + k]) * (double)memopt_from_f16(right[k * 8 + j]);
        CHECK_AT(fabs((double)sums[i * 8 + j] - wanted) <= ldexp(1, -24) * (fabs(wanted) + 1e-9), i * 8 + j);
    }
}
static void cusim_tensor(void) {
    TEST_SCHEDULES(4) {
        cusim_multiply<memopt_i_cuda::bf16_t, 0>(); cusim_multiply<memopt_i_cuda::bf16_t, 1>(); cusim_multiply<memopt_i_cuda::bf16_t, 2>();
        cusim_multiply<memopt_i_cuda::f16_t, 0>(); cusim_multiply<memopt_i_cuda::f16_t, 1>(); cusim_multiply<memopt_i_cuda::f16_t, 2>();
    }
    CHECK(simulator_bank_conflicts() == 2); /* rows of 32 bytes one after another: of eight, two to each bank */
}
#ifdef MEMOPT_CUDA_WGMMA
/* 64 x 64 products of depth 64 by a group: sums (+)= left times right transposed, or, ACROSS, right. What may be wrong: */
enum { GROUP_RIGHT, GROUP_NO_ORDER, GROUP_NOT_SHOWN, GROUP_NO_WAIT, GROUP_MOVED, GROUP_DIVERGED, GROUP_PARTED, GROUP_OVERWRITTEN, GROUP_BEYOND };
template <typename T, int SHARED, int ACROSS, int ONTO, int FAULT>
static __global__ void cusim_group_product(float *sums, const uint16_t *left, const uint16_t *right) {
    MEMOPT_I_CUDA_SHARED_BYTES(unsigned char, memory, 1024);
    uint16_t *const tile = (uint16_t *)(void *)memory; /* left, and right */
    const int thread = (int)threadIdx.x, g = thread % 32 / 4, t = thread % 4;
    float c[8][4];
    uint32_t a[4];
    for (int i = thread; i < 4096; i += 128) {
        const int at = i / 64 * 64 + ((i / 8 ^ i / 64) & 7) * 8 + i % 8;
        tile[at] = left[i];
        tile[4096 + at] = right[i];
    }
    if (FAULT != GROUP_NOT_SHOWN) memopt_i_cuda_show();
    __syncthreads();
    for (int i = 0; i < 32; ++i) c[i / 4][i % 4] = sums[(thread / 32 * 16 + g + i / 2 % 2 * 8) * 64 + i / 4 * 8 + t * 2 + i % 2];
    if (FAULT != GROUP_NO_ORDER) memopt_i_cuda_group_begin();
    for (int k = 0; k < 4; ++k) {
        const uint64_t at = memopt_i_cuda::group_tile(memory + 8192 + (FAULT == GROUP_MOVED) * 512 + (FAULT == GROUP_BEYOND) * 4096)
                          + (uint64_t)(k * (ACROSS ? 128 : 2)) + (FAULT == GROUP_DIVERGED && thread % 32 == 7) * 2 + (FAULT == GROUP_PARTED && thread / 32 == 2) * 2;
        const uint16_t *const row = left + (thread / 32 * 16 + g) * 64 + k * 16 + t * 2;
        for (int i = 0; i < 4; ++i) a[i] = row[i % 2 * 512 + i / 2 * 8] | (uint32_t)row[i % 2 * 512 + i / 2 * 8 + 1] << 16;
        if (SHARED) memopt_i_cuda_group_multiply_shared<T>(c, memopt_i_cuda::group_tile(memory) + (uint64_t)k * 2, at, ONTO || k);
        else memopt_i_cuda_group_multiply<T, ACROSS>(c, a, at, ONTO || k);
    }
    memopt_i_cuda_group_commit();
    if (FAULT == GROUP_OVERWRITTEN) {
        __syncthreads();
        if (!thread) tile[4096] = 0x3f00;
    }
    if (FAULT == GROUP_NO_WAIT) memopt_i_cuda_group_wait<1>();
    else memopt_i_cuda_group_wait<0>();
    for (int i = 0; i < 32; ++i) sums[(thread / 32 * 16 + g + i / 2 % 2 * 8) * 64 + i / 4 * 8 + t * 2 + i % 2] = c[i / 4][i % 4];
}
static float cusim_group_sums[4096]; static uint16_t cusim_group_left[4096], cusim_group_right[4096];
static float *cusim_group_d_sums; static uint16_t *cusim_group_d_left, *cusim_group_d_right;
template <typename T, int SHARED, int ACROSS, int ONTO, int FAULT> static void cusim_group_go(void) {
    MEMOPT_I_CUDA_LAUNCH((cusim_group_product<T, SHARED, ACROSS, ONTO, FAULT>), 1, 128, 16384, 0, cusim_group_d_sums, cusim_group_d_left, cusim_group_d_right);
}
template <typename T, int SHARED, int ACROSS, int ONTO> static void cusim_group_multiply(void) {
    static float got[4096]; uint64_t seed = 17; int i, j, k; const memopt_type type = T::is_bf16 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F16;
    for (i = 0; i < 8192; ++i) {
        const float x = (float)((double)(int64_t)(test_random(&seed) >> 11) * 0x1p-51 - 2);
        (i < 4096 ? cusim_group_left : cusim_group_right)[i % 4096] = type == MEMOPT_TYPE_BF16 ? memopt_to_bf16(x) : memopt_to_f16(x);
        if (i < 4096) cusim_group_sums[i] = (float)(i % 100);
    }
    test_put(cusim_group_d_sums, cusim_group_sums, sizeof cusim_group_sums);
    test_put(cusim_group_d_left, cusim_group_left, sizeof cusim_group_left); test_put(cusim_group_d_right, cusim_group_right, sizeof cusim_group_right);
    cusim_group_go<T, SHARED, ACROSS, ONTO, GROUP_RIGHT>();
    test_get(got, cusim_group_d_sums, sizeof got);
    for (i = 0; i < 64; ++i) for (j = 0; j < 64; ++j) {
        double wanted = ONTO ? (double)cusim_group_sums[i * 64 + j] : 0, most = fabs(wanted);
        for (k = 0; k < 64; ++k) {
            const uint16_t a = cusim_group_left[i * 64 + k], b = cusim_group_right[ACROSS ? k * 64 + j : j * 64 + k];
            const double x = type == MEMOPT_TYPE_BF16 ? (double)memopt_from_bf16(a) * (double)memopt_from_bf16(b) : (double)memopt_from_f16(a) * (double)memopt_from_f16(b);
            wanted += x; most += fabs(x);
        }
        CHECK_AT(fabs((double)got[i * 64 + j] - wanted) <= ldexp(1, -21) * most, i * 64 + j);
    }
}
static void cusim_groups(void) {
    cusim_group_d_sums = (float *)test_device(sizeof cusim_group_sums);
    cusim_group_d_left = (uint16_t *)test_device(sizeof cusim_group_left); cusim_group_d_right = (uint16_t *)test_device(sizeof cusim_group_right);
    TEST_SCHEDULES(4) {
        cusim_group_multiply<memopt_i_cuda::bf16_t, 0, 0, 1>(); cusim_group_multiply<memopt_i_cuda::bf16_t, 0, 1, 0>();
        cusim_group_multiply<memopt_i_cuda::bf16_t, 1, 0, 1>(); cusim_group_multiply<memopt_i_cuda::f16_t, 0, 1, 1>();
        cusim_group_multiply<memopt_i_cuda::f16_t, 1, 0, 0>();
    }
    if (CUSIM_TSAN) { CUSIM_DIES((cusim_group_go<memopt_i_cuda::bf16_t, 0, 0, 1, GROUP_OVERWRITTEN>), "data race"); return; }
    CUSIM_FINDS(0, "without a wgmma.fence", (cusim_group_go<memopt_i_cuda::bf16_t, 0, 0, 1, GROUP_NO_ORDER>()));
    CUSIM_FINDS(0, "not shown", (cusim_group_go<memopt_i_cuda::bf16_t, 0, 0, 1, GROUP_NOT_SHOWN>()));
    CUSIM_FINDS(0, "nobody has waited for", (cusim_group_go<memopt_i_cuda::bf16_t, 0, 0, 1, GROUP_NO_WAIT>()));
    CUSIM_FINDS(0, "no multiple of 1,024", (cusim_group_go<memopt_i_cuda::bf16_t, 0, 1, 1, GROUP_MOVED>()));
    CUSIM_FINDS(0, "different products", (cusim_group_go<memopt_i_cuda::bf16_t, 0, 0, 1, GROUP_DIVERGED>()));
    CUSIM_FINDS(0, "warps of a group have begun different products", (cusim_group_go<memopt_i_cuda::bf16_t, 0, 0, 1, GROUP_PARTED>()));
    CUSIM_FINDS(0, "beyond shared memory", (cusim_group_go<memopt_i_cuda::bf16_t, 0, 0, 1, GROUP_BEYOND>()));
    simulator_schedule(1); /* what is read late */
    CUSIM_FINDS(0, "not shown", (cusim_group_go<memopt_i_cuda::bf16_t, 0, 0, 1, GROUP_OVERWRITTEN>()));
}
#endif
/* 32 lanes bring 16 bytes each, wait as GROUPS says, and read what their neighbours brought. */
template <int GROUPS, int BARRIER, int TWICE, int SHIFT> static __global__ void cusim_copy_rows(uint32_t *out, const uint32_t *from) {
    MEMOPT_I_CUDA_SHARED(uint4, rows, [33]);
    uint32_t part[4];
    memopt_i_cuda_copy((char *)(void *)(rows + threadIdx.x) + SHIFT, from + 4 * threadIdx.x, threadIdx.x == 31 ? 0 : 16);
    if (TWICE) memopt_i_cuda_copy(rows + threadIdx.x, from, 16);
    memopt_i_cuda_copy_commit();
    memopt_i_cuda_copy_wait<GROUPS>();
    if (BARRIER) __syncthreads();
    memopt_i_cuda_matrices<0>(part, rows + (threadIdx.x + 1) % 32);
    out[threadIdx.x] = part[0];
}
static uint32_t *cusim_copy_out, *cusim_copy_from;
template <int GROUPS, int BARRIER, int TWICE, int SHIFT> static void cusim_copy_go(void) {
    MEMOPT_I_CUDA_LAUNCH((cusim_copy_rows<GROUPS, BARRIER, TWICE, SHIFT>), 1, 32, 0, 0, cusim_copy_out, cusim_copy_from);
}
static void cusim_asynchronous(void) {
    uint32_t from[128], out[32]; int i;
    cusim_copy_out = (uint32_t *)test_device(sizeof out); cusim_copy_from = (uint32_t *)test_device(sizeof from);
    for (i = 0; i < 128; ++i) from[i] = (uint32_t)i * 3 + 1;
    test_put(cusim_copy_from, from, sizeof from);
    TEST_SCHEDULES(6) {
        cusim_copy_go<0, 1, 0, 0>();
        test_get(out, cusim_copy_out, sizeof out);
        for (i = 0; i < 32; ++i) CHECK_AT(out[i] == from[4 * (i / 4 + 1) + i % 4], i); /* matrix 0: rows 1 to 8 */
        if (!CUSIM_TSAN) CUSIM_FINDS(0, "still brings", (cusim_copy_go<1, 1, 0, 0>()));
    }
    if (!CUSIM_TSAN) CUSIM_FINDS(0, "two asynchronous copies", (cusim_copy_go<0, 1, 1, 0>()));
    if (!CUSIM_TSAN && !CUSIM_ASAN) CUSIM_FINDS(0, "multiple of 16", (cusim_copy_go<0, 1, 0, 4>()));
    if (CUSIM_TSAN) CUSIM_DIES((cusim_copy_go<0, 0, 0, 0>), "data race");
}

static void test_cuda_simulator(void) {
    RUN(cusim_tensor); RUN(cusim_asynchronous);
#ifdef MEMOPT_CUDA_WGMMA
    RUN(cusim_groups);
#endif
    RUN(cusim_sums); RUN(cusim_operations); RUN(cusim_atomics); RUN(cusim_shapes); RUN(cusim_blocks);
    RUN(cusim_synchronisation_faults); RUN(cusim_memory_faults); RUN(cusim_launch_faults); RUN(cusim_seeded_errors);
    RUN(cusim_sanitized); RUN(cusim_schedules_differ);
    RUN(cusim_streams); RUN(cusim_lazy); RUN(cusim_capture); RUN(cusim_devices);
    RUN(cusim_copies); RUN(cusim_memory_beside_waiting_kernels); RUN(cusim_ranks); RUN(cusim_leaks); RUN(cusim_huge); RUN(cusim_virtual_memory);
    RUN(cusim_bench);
}
#endif
#ifndef TEST_COMBINED
int main(void) { test_cuda_simulator(); return test_totals(); }
#endif
