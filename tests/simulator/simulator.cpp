/* simulator.cpp - a CUDA device that is the CPU: the runtime behind the headers in include/.

   Kernels are compiled with a sanitizer or without; this file always without, and with -DSIMULATOR_ASAN or
   -DSIMULATOR_TSAN when the kernels have one, so that it can tell the sanitizer what it does.
       g++ -std=c++17 -O2 -c simulator.cpp -o simulator.o
       g++ -std=c++17 -O2 -DSIMULATOR_ASAN -c simulator.cpp -o simulator_asan.o
       g++ -std=c++17 -O2 -DSIMULATOR_TSAN -fno-builtin -c simulator.cpp -o simulator_tsan.o

   Problem    Kernels must be right on machines without a GPU, and what goes wrong in kernels does so rarely and
              silently: a missing barrier gives the right answer a million times.
   Threads    Each CUDA thread is a fiber; a switch is a dozen instructions. One runs until it must wait at a barrier
              or in a warp operation, and then another one's turn comes; who that is, the schedule says. Threads start
              one after another on the same stack: as long as none of them waits, a block is a loop of plain calls.
              Blocks run one after another, in an order that the schedule says as well.
   Turns      Forward and backward find what depends on which end runs first. Random priorities of warps, changed now
              and then, find most of the rest; a fair random choice for each turn finds nearly nothing, because all
              threads then stay close together.       [Burckhardt et al. 2010, A randomized scheduler, PCT]
   Checks     Barriers and warp operations know who must come, and from which line: divergence, lanes that are not in
              their mask, masks that wait for each other and deadlocks are reported with file and line. Shared memory
              and device memory are exactly as large as asked for, with guards around, and filled with NaN. A prefetch
              that points beside them is reported, too.
   ASan       Guards are poisoned, and so is all device memory while the host runs: both sides are held to theirs.
   TSan       Each CUDA thread is a TSan fiber. Barriers, __syncwarp, fences and the start and end of a grid order
              memory; shuffles and votes do not, as CUDA says. Two blocks are not ordered at all: neighbours use
              different fibers, and what a block finds ready (its shared memory) is made by a fiber that learns
              nothing of earlier blocks. Rules that were learned: all of this file uninstrumented, without calls to
              memcpy and the like while a kernel's fiber is current (TSan would take them for the kernel's own); a
              stack belongs to one TSan fiber for good; malloc() only as the host or the launcher; setarch -R.
   Streams    Queues of operations, run at once, as late as anybody waits for them, or at random: what a program forgot
              to wait for has then not happened yet. Kernel arguments are copied at the launch, pageable memory at the
              call. An operation may have to wait for other ranks, as a kernel of NCCL does: its stream stands there, other
              streams go on, and a host that waits hands on to other threads (nccl.cpp) until it is ready.
   Graphs     What one stream is given while it is captured, run in that order at each launch. What no capture allows
              (the default stream, waiting, asking whether something is over, memory) is a finding, and there is no graph.
   Tensor     mma.m16n8k16, ldmatrix.x4 and cp.async, by the fragments that the PTX manual draws. A sum of 16 products
   cores      and what it is added onto is made in double, from the first product on, and rounded once: a card adds in
              an order and with a rounding of its own, within 2^-21 of the sum of the absolutes. A copy arrives when it
              is issued, or when it is waited for, as the schedule says; in between what was there is NaN, ldmatrix of
              it is a finding, and the thread sanitizer sees writes at both times.
   Groups     wgmma.m64n64k16 of 16 bits, as the PTX manual has it: from its descriptors, with chunks swapped in 128 bytes.
              Each warp has 16 rows of the group's 64; that all four do the same is looked at when the block ends. Sums
              are NaN from the first product on to the wait, which is also when shared memory is read, or when it is
              begun, as the schedule says. A tile must be what it was when the last of all threads had shown what it wrote
              (fence.proxy) before a barrier. Left that is in registers is read at once, whatever the schedule.
   Limits     One OS thread at a time: threads that take turns are in nccl.cpp. No textures, other inline
              assembly, or weak memory: a missing fence between two atomics goes unnoticed unless TSan sees the race.
              Blocks that wait for each other never end. Time means nothing here. */
#include "simulator.h"
#include "cuda_runtime_api.h"
#include "cuda.h"
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <vector>

/* ---- sanitizers: what they are told, and nothing without them ---------------------------------------------------- */
#ifdef SIMULATOR_TSAN
extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void  __tsan_destroy_fiber(void *fiber);
void  __tsan_switch_to_fiber(void *fiber, unsigned flags);
void  __tsan_acquire(void *clock);
void  __tsan_release(void *clock);
}
enum { HAVE_TSAN = 1, NO_ORDER = 1 }; /* NO_ORDER: the switch itself orders nothing */
static void *identity_now(void) { return __tsan_get_current_fiber(); }
static void *identity_new(void) { return __tsan_create_fiber(0); }
static void identity_end(void *identity) { __tsan_destroy_fiber(identity); }
static void identity_become(void *identity) { __tsan_switch_to_fiber(identity, NO_ORDER); }
static void clock_acquire(char *clock) { __tsan_acquire(clock); }
static void clock_release(char *clock) { __tsan_release(clock); }
#else
enum { HAVE_TSAN = 0 };
static void *identity_now(void) { return NULL; }
static void *identity_new(void) { return NULL; }
static void identity_end(void *) {}
static inline void identity_become(void *) {}
static inline void clock_acquire(char *) {}
static inline void clock_release(char *) {}
#endif
#ifdef SIMULATOR_ASAN
extern "C" {
void  __sanitizer_start_switch_fiber(void **fake_stack, const void *bottom, size_t bytes);
void  __sanitizer_finish_switch_fiber(void *fake_stack, const void **old_bottom, size_t *old_bytes);
void  __asan_poison_memory_region(const volatile void *p, size_t bytes);
void  __asan_unpoison_memory_region(const volatile void *p, size_t bytes);
void *__asan_region_is_poisoned(void *p, size_t bytes);
}
enum { HAVE_ASAN = 1 };
static void poison(const void *p, size_t bytes) { __asan_poison_memory_region(p, bytes); }
static void unpoison(const void *p, size_t bytes) { __asan_unpoison_memory_region(p, bytes); }
static bool is_poisoned(const void *p, size_t bytes) { return __asan_region_is_poisoned((void *)p, bytes) != NULL; }
#else
enum { HAVE_ASAN = 0 };
static void poison(const void *, size_t) {}
static void unpoison(const void *, size_t) {}
static bool is_poisoned(const void *, size_t) { return false; }
#endif

extern "C" {
simulator_i_view *simulator_i_now;
simulator_i_index simulator_i_block, simulator_i_block_size, simulator_i_grid_size;
}
static void *host_identity; /* the host, and whoever acts for it */
/* For a while, whoever runs is somebody else to TSan: nothing is switched but the name. */
struct acting_as {
    void *before;
    explicit acting_as(void *identity) : before(identity_now()) { if (identity) identity_become(identity); }
    ~acting_as() { if (before) identity_become(before); }
};

/* Bytes are copied and set where neither sanitizer looks, and no compiler makes a call of it. */
#if defined(__x86_64__)
static void bytes_copy(void *to, const void *from, size_t n) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}
static void bytes_set(void *to, int value, size_t n) {
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(value) : "memory");
}
#else
static void bytes_copy(void *to, const void *from, size_t n) {
    for (size_t i = 0; i < n; ++i) ((volatile unsigned char *)to)[i] = ((const volatile unsigned char *)from)[i];
}
static void bytes_set(void *to, int value, size_t n) {
    for (size_t i = 0; i < n; ++i) ((volatile unsigned char *)to)[i] = (unsigned char)value;
}
#endif

/* ---- random numbers ---------------------------------------------------------------------------------------------- */
struct generator {
    uint64_t state;
    void seed(uint64_t x) { state = (x + 1) * UINT64_C(0x9E3779B97F4A7C15) | 1; }
    unsigned next(void) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return (unsigned)(state >> 24);
    }
    unsigned below(unsigned n) { return (unsigned)(((uint64_t)next() * n) >> 32); }
};
static uint64_t seed_of_all(void) { /* SIMULATOR_SEED: other random choices, everywhere */
    static const char *const text = getenv("SIMULATOR_SEED");
    static const uint64_t seed = text ? strtoull(text, NULL, 0) : 0;
    return seed * 1000003;
}

/* ---- findings ---------------------------------------------------------------------------------------------------- */
enum { FINDINGS_PRINTED = 20 };
static struct { uint64_t launches, threads, synchronisations; } totals;
static struct {
    size_t count, ended;           /* of all; at the last end of a test */
    size_t places;
    size_t known[FINDINGS_PRINTED]; /* hashes of place and text */
    char log[16 * 1024];           /* lines: what was found, each thing at each place once */
    size_t logged;
    bool quiet;
} findings;
static struct { /* the launch that runs */
    const simulator_i_launch *launch;
    uint64_t number;               /* of the block */
    int      threads, warps;
    bool     aborted;
} grid;

static bool finding_is_new(const char *file, int line, const char *what) {
    size_t hash = 5381 + (size_t)line;
    for (const char *p = file; *p; ++p) hash = hash * 33 + (unsigned char)*p;
    for (const char *p = what; *p; ++p) hash = hash * 33 + (unsigned char)*p;
    for (size_t i = 0; i < findings.places; ++i)
        if (findings.known[i] == hash) return false;
    if (findings.places == FINDINGS_PRINTED) return false;
    findings.known[findings.places++] = hash;
    return true;
}
static size_t finding_where(char *text, size_t room) { /* "; thread (1,0,0), block (2,0,0) of kernel" */
    int n = 0;
    if (!grid.launch) { *text = 0; return 0; }
    if (simulator_i_now)
        n = snprintf(text, room, "; thread (%u,%u,%u), block (%u,%u,%u) of %s", simulator_i_now->thread.x,
                     simulator_i_now->thread.y, simulator_i_now->thread.z, simulator_i_block.x, simulator_i_block.y,
                     simulator_i_block.z, grid.launch->name);
    else
        n = snprintf(text, room, "; %s", grid.launch->name);
    return n > 0 ? (size_t)n : 0;
}
__attribute__((format(printf, 3, 4))) static void finding(const char *file, int line, const char *format, ...) {
    acting_as host(host_identity);
    static char what[512], where[256]; /* not on a fiber's stack, which is the fiber's to TSan */
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    finding_where(where, sizeof where);
    ++findings.count;
    if (!file) file = "?";
    if (!finding_is_new(file, line, line ? format : what)) return;
    const size_t room = sizeof findings.log - findings.logged;
    const int n = snprintf(findings.log + findings.logged, room, "%s:%d: %s%s\n", file, line, what, where);
    if (n > 0 && (size_t)n < room) findings.logged += (size_t)n;
    if (findings.quiet) return;
    fflush(stdout);
    fprintf(stderr, "simulator: %s:%d: %s%s\n", file, line, what, where);
    if (findings.places == FINDINGS_PRINTED) fprintf(stderr, "simulator: no more findings are printed\n");
}

/* ---- contexts: a stack and where it stands ----------------------------------------------------------------------- */
#if defined(__x86_64__) && !defined(SIMULATOR_UCONTEXT)
struct context { void *stack_pointer; };
extern "C" void simulator_i_switch(void **save, void *to);
__asm__(".text\n"
        ".p2align 4\n"
        ".globl simulator_i_switch\n"
        ".type simulator_i_switch, @function\n"
        "simulator_i_switch:\n"
        "  pushq %rbp\n"
        "  pushq %rbx\n"
        "  pushq %r12\n"
        "  pushq %r13\n"
        "  pushq %r14\n"
        "  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n"
        "  popq %r14\n"
        "  popq %r13\n"
        "  popq %r12\n"
        "  popq %rbx\n"
        "  popq %rbp\n"
        "  ret\n"
        ".size simulator_i_switch, . - simulator_i_switch\n");
static void context_make(context *c, char *top, void (*entry)(void)) {
    void **s = (void **)((uintptr_t)top & ~(uintptr_t)15);
    *--s = NULL;          /* where entry would return to: it never does */
    *--s = (void *)entry; /* what the switch returns to */
    for (int i = 0; i < 6; ++i) *--s = NULL;
    c->stack_pointer = s;
}
static inline void context_switch(context *from, context *to) {
    simulator_i_switch(&from->stack_pointer, to->stack_pointer);
}
#elif defined(__aarch64__) && !defined(SIMULATOR_UCONTEXT)
struct context { void *stack_pointer; };
extern "C" void simulator_i_switch(void **save, void *to);
__asm__(".text\n"
        ".p2align 4\n"
        ".globl simulator_i_switch\n"
        ".type simulator_i_switch, %function\n"
        "simulator_i_switch:\n"
        "  sub sp, sp, #160\n"
        "  stp x19, x20, [sp, #0]\n"
        "  stp x21, x22, [sp, #16]\n"
        "  stp x23, x24, [sp, #32]\n"
        "  stp x25, x26, [sp, #48]\n"
        "  stp x27, x28, [sp, #64]\n"
        "  stp x29, x30, [sp, #80]\n"
        "  stp d8, d9, [sp, #96]\n"
        "  stp d10, d11, [sp, #112]\n"
        "  stp d12, d13, [sp, #128]\n"
        "  stp d14, d15, [sp, #144]\n"
        "  mov x2, sp\n"
        "  str x2, [x0]\n"
        "  mov sp, x1\n"
        "  ldp x19, x20, [sp, #0]\n"
        "  ldp x21, x22, [sp, #16]\n"
        "  ldp x23, x24, [sp, #32]\n"
        "  ldp x25, x26, [sp, #48]\n"
        "  ldp x27, x28, [sp, #64]\n"
        "  ldp x29, x30, [sp, #80]\n"
        "  ldp d8, d9, [sp, #96]\n"
        "  ldp d10, d11, [sp, #112]\n"
        "  ldp d12, d13, [sp, #128]\n"
        "  ldp d14, d15, [sp, #144]\n"
        "  add sp, sp, #160\n"
        "  ret\n"
        ".size simulator_i_switch, . - simulator_i_switch\n");
static void context_make(context *c, char *top, void (*entry)(void)) {
    void **s = (void **)((uintptr_t)top & ~(uintptr_t)15) - 20;
    for (int i = 0; i < 20; ++i) s[i] = NULL;
    s[11] = (void *)entry; /* x30 */
    c->stack_pointer = s;
}
static inline void context_switch(context *from, context *to) {
    simulator_i_switch(&from->stack_pointer, to->stack_pointer);
}
#else
#include <ucontext.h>
struct context { ucontext_t state; };
static void context_make(context *c, char *top, void (*entry)(void)) {
    enum { ROOM = 32 * 1024 };
    getcontext(&c->state);
    c->state.uc_stack.ss_sp = top - ROOM; /* only the upper end matters */
    c->state.uc_stack.ss_size = ROOM;
    c->state.uc_link = NULL;
    makecontext(&c->state, entry, 0);
}
static void context_switch(context *from, context *to) { swapcontext(&from->state, &to->state); }
#endif

/* ---- fibers ------------------------------------------------------------------------------------------------------ */
enum { MAX_THREADS = 1024, WARP = 32, MAX_WARPS = MAX_THREADS / WARP };
enum { FIBERS = HAVE_TSAN ? 2 * MAX_THREADS : MAX_THREADS }; /* TSan: two sets, for blocks by turns */
enum { STACK_BYTES = HAVE_ASAN + HAVE_TSAN ? 256 * 1024 : 64 * 1024, STACK_GUARD = 4096 };
struct fiber {
    context  where;
    char    *stack;      /* the lowest byte that may be used */
    size_t   stack_bytes;
    void    *fake_stack; /* ASan's */
    void    *identity;   /* TSan's */
    bool     in_use;
};
static fiber host, fibers[FIBERS], *idle_fibers[FIBERS];
static int idle_fiber_count;
static char end_clock; /* whoever ends releases it */

static void fiber_main(void);
/* Stacks end at different places of their pages, or all of them would want the same few lines of the cache. */
static void fiber_rewind(fiber *f) {
    context_make(&f->where, f->stack + f->stack_bytes - (size_t)((f - fibers) % 61) * 192, fiber_main);
    f->fake_stack = NULL;
    f->in_use = true;
}
static void fiber_prepare(fiber *f) {
    if (f->stack) return;
    char *const memory = (char *)mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) { fprintf(stderr, "simulator: no memory for stacks\n"); exit(1); }
    mprotect(memory, STACK_GUARD, PROT_NONE);
    f->stack = memory + STACK_GUARD;
    f->stack_bytes = STACK_BYTES - STACK_GUARD;
    f->identity = identity_new();
}
/* After a block that did not end: its fibers stand somewhere in a kernel and are given up. */
static void fibers_give_up(void) {
    idle_fiber_count = 0;
    for (fiber *f = fibers; f < fibers + FIBERS; ++f) {
        if (!f->stack) continue;
        if (f->in_use) {
            unpoison(f->stack, f->stack_bytes);
            { acting_as itself(f->identity); clock_release(&end_clock); }
            identity_end(f->identity);
            f->identity = identity_new();
        }
        f->in_use = false;
        if (!HAVE_TSAN) idle_fibers[idle_fiber_count++] = f;
    }
}
static fiber *fiber_take(void) { /* without TSan: any. There are as many as threads */
    static int made;
    if (idle_fiber_count) return idle_fibers[--idle_fiber_count];
    fiber_prepare(&fibers[made]);
    return &fibers[made++];
}
static fiber *fiber_for(int thread) { /* a fresh one for a thread that starts */
    fiber *f;
    if (HAVE_TSAN) /* not the one that a neighbouring block's thread of this number had */
        f = &fibers[(grid.number & 1) * MAX_THREADS + ((uint64_t)thread + grid.number * 17) % (uint64_t)grid.threads];
    else
        f = fiber_take();
    fiber_rewind(f);
    return f;
}
static void fiber_return(fiber *f) {
    f->in_use = false;
    if (!HAVE_TSAN) idle_fibers[idle_fiber_count++] = f;
}
static inline void fiber_switch(fiber *from, fiber *to, bool for_good) {
    (void)for_good;
#ifdef SIMULATOR_ASAN
    __sanitizer_start_switch_fiber(for_good ? NULL : &from->fake_stack, to->stack, to->stack_bytes);
#endif
    identity_become(to->identity);
    context_switch(&from->where, &to->where);
#ifdef SIMULATOR_ASAN
    __sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
}
static void fiber_begins(void) {
#ifdef SIMULATOR_ASAN
    const bool first = !host.stack; /* then it is the host that was left: so this is where its stack is */
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(NULL, &bottom, &bytes);
    if (first) { host.stack = (char *)bottom; host.stack_bytes = bytes; }
#endif
}

/* ---- threads and their turns ------------------------------------------------------------------------------------- */
enum { RUNS, AT_BARRIER, IN_WARP, ENDED };
struct cuda_thread {
    simulator_i_view view; /* first: simulator_i_now points at it */
    int    index, warp, state;
    fiber *on;
    const char *file;      /* where it waits */
    int    line;
};
struct meeting;
struct cuda_warp {
    unsigned alive;                            /* lanes that have not ended */
    unsigned priority;                         /* schedules 2 and up */
    int      ready[WARP], ready_count;
    meeting *open[WARP];                       /* operations that wait for lanes */
    int      open_count;
};
static cuda_thread threads[MAX_THREADS];
static cuda_warp warps[MAX_WARPS];
static int start_order[MAX_THREADS], started, ended;
static struct { int ring[2 * MAX_THREADS]; unsigned head, tail; } queue; /* schedules 0 and 1 */
static int schedule, favourite = -1; /* the ready warp of the highest priority; -1 = not known */
static generator luck;

static inline cuda_thread *current(void) { return (cuda_thread *)(void *)simulator_i_now; }
static inline void make_ready(int thread) {
    threads[thread].state = RUNS;
    if (schedule < 2) { queue.ring[queue.tail++ % (2 * MAX_THREADS)] = thread; return; }
    const int w = thread / WARP;
    warps[w].ready[warps[w].ready_count++] = thread;
    if (favourite >= 0 && warps[w].priority > warps[favourite].priority) favourite = w;
}
static int take_by_priority(void) {
    if (favourite < 0 || !warps[favourite].ready_count) {
        favourite = -1;
        for (int w = 0; w < grid.warps; ++w)
            if (warps[w].ready_count && (favourite < 0 || warps[w].priority > warps[favourite].priority)) favourite = w;
        if (favourite < 0) return -1;
    }
    cuda_warp *const w = &warps[favourite];
    const unsigned k = luck.below((unsigned)w->ready_count);
    const int thread = w->ready[k];
    w->ready[k] = w->ready[--w->ready_count];
    if (luck.below(64) == 0) { w->priority = luck.next(); favourite = -1; }
    return thread;
}
static inline int take_ready(void) {
    if (schedule >= 2) return take_by_priority();
    if (queue.head == queue.tail) return -1;
    return schedule == 0 ? queue.ring[queue.head++ % (2 * MAX_THREADS)] : queue.ring[--queue.tail % (2 * MAX_THREADS)];
}
/* Whose turn it is: one that has not started yet, as a rule. -1 when nobody can run. */
static inline int take_turn(bool *starts) {
    int thread;
    if (schedule >= 2 && luck.below(4) == 0) {
        thread = take_ready();
        *starts = thread < 0 && started < grid.threads;
        return *starts ? start_order[started++] : thread;
    }
    *starts = started < grid.threads;
    return *starts ? start_order[started++] : take_ready();
}
static void report_deadlock(void) {
    acting_as host_itself(host_identity);
    const cuda_thread *first = NULL;
    static char others[256];
    size_t used = 0;
    int waiting = 0;
    others[0] = 0;
    for (const cuda_thread *t = threads; t < threads + grid.threads; ++t) {
        if (t->state != AT_BARRIER && t->state != IN_WARP) continue;
        ++waiting;
        if (!first) first = t;
        else if (used < sizeof others - 80 && (t->file != first->file || t->line != first->line) && waiting < 200)
            used += (size_t)snprintf(others + used, sizeof others - used, ", thread %d at line %d", t->index, t->line);
    }
    simulator_i_now = first ? (simulator_i_view *)&first->view : NULL;
    finding(first ? first->file : NULL, first ? first->line : 0,
            "deadlock: %d of %d threads wait, the first in %s%s%.100s", waiting, grid.threads,
            first && first->state == AT_BARRIER ? "a barrier" : "a warp operation", others, used > 100 ? "..." : "");
}
static void abort_grid(fiber *from) {
    grid.aborted = true;
    fiber_switch(from, &host, true);
}
/* The current thread waits, or lets others go first; returns when its turn has come again. */
static inline void give_way(cuda_thread *self) {
    bool starts;
    const int next = take_turn(&starts);
    if (next == self->index) return;
    if (next < 0) { report_deadlock(); abort_grid(self->on); }
    cuda_thread *const to = &threads[next];
    if (starts) to->on = fiber_for(next);
    simulator_i_now = &to->view;
    fiber_switch(self->on, to->on, false);
}

/* ---- barriers ---------------------------------------------------------------------------------------------------- */
/* A thread may still read what a barrier found while others wait in the next one, so there are two by turns. */
static struct barrier {
    int kind, line, arrived, with; /* with: a predicate that holds */
    const char *file;
    char clock;
} barriers[2], *barrier = barriers;

static void shared_is_shown(void);
static void barrier_open(void) {
    shared_is_shown();
    for (int i = 0; i < grid.threads; ++i)
        if (threads[i].state == AT_BARRIER) make_ready(i);
    barrier = barrier == barriers ? barriers + 1 : barriers;
    barrier->arrived = barrier->with = 0;
}
extern "C" int simulator_i_barrier(int kind, int predicate, const char *file, int line) {
    cuda_thread *const self = current();
    struct barrier *const b = barrier;
    ++totals.synchronisations;
    clock_release(&b->clock);
    if (!b->arrived) { b->kind = kind; b->file = file; b->line = line; }
    else if (b->line != line || b->kind != kind || (b->file != file && strcmp(b->file, file)))
        finding(file, line, "divergent barrier: others of the block wait at line %d", b->line);
    b->with += predicate != 0;
    self->state = AT_BARRIER;
    self->file = file;
    self->line = line;
    if (++b->arrived == grid.threads - ended) barrier_open();
    give_way(self);
    clock_acquire(&b->clock);
    return kind == SIMULATOR_I_OR ? b->with > 0 : kind == SIMULATOR_I_AND ? b->with == b->arrived : b->with;
}

/* ---- warp operations --------------------------------------------------------------------------------------------- */
struct meeting {                   /* the lanes of a mask come together */
    unsigned mask, arrived, left, votes;
    int operation, line;
    const char *file;
    char clock;
    uint64_t value[WARP];
};
static void tensor_together(const meeting *m, const char *file, int line);
static meeting meetings[2 * MAX_THREADS], *idle_meetings[2 * MAX_THREADS];
static int idle_meeting_count, meeting_count;

static meeting *meeting_new(cuda_warp *w, unsigned mask, int operation, const char *file, int line) {
    meeting *const m = idle_meeting_count ? idle_meetings[--idle_meeting_count] : &meetings[meeting_count++];
    m->mask = mask;
    m->arrived = m->left = m->votes = 0;
    m->operation = operation;
    m->file = file;
    m->line = line;
    w->open[w->open_count++] = m;
    return m;
}
/* Masks that share lanes may well be open at once. But not when each waits for a lane that waits in the other. */
static void check_masks(const cuda_warp *w, const meeting *mine) {
    for (int i = 0; i < w->open_count; ++i) {
        const meeting *const m = w->open[i];
        if (m != mine && (m->mask & mine->arrived) && (mine->mask & m->arrived))
            finding(mine->file, mine->line, "overlapping masks wait for each other: %08x here, %08x at line %d",
                    mine->mask, m->mask, m->line);
    }
}
static meeting *meeting_join(cuda_warp *w, unsigned mask, int operation, const char *file, int line) {
    for (int i = 0; i < w->open_count; ++i) {
        meeting *const m = w->open[i];
        if (m->mask != mask) continue;
        if (m->line != line || m->operation != operation || (m->file != file && strcmp(m->file, file)))
            finding(file, line, "lanes of one mask %08x in different warp operations: others are at line %d%s", mask,
                    m->line, (m->operation ^ operation) & SIMULATOR_I_EIGHT ? ", with another size" : "");
        return m;
    }
    return meeting_new(w, mask, operation, file, line);
}
/* Everybody has come: all but the lane that runs can go on. */
static void meeting_close(cuda_warp *w, meeting *m, int running) {
    const int first = (int)(w - warps) * WARP;
    for (unsigned rest = ~m->arrived; rest; rest &= rest - 1) m->value[__builtin_ctz(rest)] = ~UINT64_C(0); /* NaN */
    for (int i = 0; i < w->open_count; ++i)
        if (w->open[i] == m) { w->open[i] = w->open[--w->open_count]; break; }
    for (unsigned rest = m->arrived; rest; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        if (lane != running) make_ready(first + lane);
    }
}
extern "C" uint64_t simulator_i_warp(int operation, unsigned mask, uint64_t value, int source, const char *file,
                                     int line) {
    cuda_thread *const self = current();
    cuda_warp *const w = &warps[self->warp];
    const int lane = self->view.lane, kind = operation & 255;
    const unsigned bit = 1u << lane;
    ++totals.synchronisations;
    if (!(mask & bit)) {
        finding(file, line, "warp operation: lane %d is not in its mask %08x", lane, mask);
        mask |= bit;
    }
    meeting *const m = meeting_join(w, mask, operation, file, line);
    if (kind == SIMULATOR_I_SYNC) clock_release(&m->clock);
    m->arrived |= bit;
    m->value[lane] = value;
    if (value) m->votes |= bit;
    if (w->open_count > 1) check_masks(w, m);
    if (m->arrived == (m->mask & w->alive)) {
        if (kind >= SIMULATOR_I_MULTIPLY) tensor_together(m, file, line);
        meeting_close(w, m, lane);
    } else {
        self->state = IN_WARP;
        self->file = file;
        self->line = line;
        give_way(self);
    }
    if (kind == SIMULATOR_I_SYNC) clock_acquire(&m->clock);
    const uint64_t result = kind == SIMULATOR_I_SHUFFLE ? m->value[source & 31] : m->votes;
    m->left |= bit;
    if (m->left == m->arrived) idle_meetings[idle_meeting_count++] = m;
    return result;
}
extern "C" void simulator_i_bad_width(int width, const char *file, int line) {
    finding(file, line, "shuffle: width %d is no power of two up to 32", width);
}

/* ---- tensor cores ------------------------------------------------------------------------------------------------ */
static double half_value(unsigned code, bool is_bf16) {
    if (is_bf16) {
        union { unsigned bits; float x; } value = { code << 16 };
        return (double)value.x;
    }
    const int exponent = (int)(code >> 10 & 31);
    const double fraction = (double)(code & 1023), sign = code & 0x8000 ? -1 : 1;
    if (exponent == 31) return sign * (code & 1023 ? __builtin_nan("") : __builtin_inf());
    return sign * (exponent ? __builtin_ldexp(1024 + fraction, exponent - 25) : __builtin_ldexp(fraction, -24));
}
static unsigned half_of(const uint32_t *words, int i) { return words[i / 2] >> (i % 2 * 16) & 0xffff; }

/* Lane 4 g + t holds, of left, rows g and g + 8 and columns 2t, 2t + 1, 2t + 8, 2t + 9; of right, those as rows of
   column g; of sums, rows g and g + 8 and columns 2t and 2t + 1. */
static void multiply_all(simulator_i_product *const *lanes) {
    static double left[16][16], right[16][8];
    const bool is_bf16 = lanes[0]->is_bf16 != 0;
    for (int lane = 0; lane < WARP; ++lane)
        for (int i = 0; i < 8; ++i) {
            const int g = lane / 4, k = lane % 4 * 2 + i % 2;
            left[g + i / 2 % 2 * 8][k + i / 4 * 8] = half_value(half_of(lanes[lane]->left, i), is_bf16);
            if (i < 4) right[k + i / 2 * 8][g] = half_value(half_of(lanes[lane]->right, i), is_bf16);
        }
    for (int lane = 0; lane < WARP; ++lane)
        for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            double sum = 0;
            for (int k = 0; k < 16; ++k) sum += left[row][k] * right[k][column];
            lanes[lane]->sums[i] = (float)(sum + (double)lanes[lane]->sums[i]);
        }
}
static unsigned bank_conflicts;
static void count_banks(simulator_i_matrices *const *lanes) { /* eight rows at a time are read, 16 bytes each */
    for (int first = 0; first < WARP; first += 8)
        for (int bank = 0; bank < 8; ++bank) {
            unsigned rows = 0;
            for (int i = first; i < first + 8; ++i) {
                bool seen = (uintptr_t)lanes[i]->from / 16 % 8 != (uintptr_t)bank;
                for (int j = first; j < i; ++j) seen |= lanes[j]->from == lanes[i]->from;
                rows += !seen;
            }
            if (rows > bank_conflicts) bank_conflicts = rows;
        }
}
/* Lane i gets elements 2 (i % 4) and the next of row i / 4 of each matrix; transposed, of column i / 4. */
static void load_all(simulator_i_matrices *const *lanes) {
    count_banks(lanes);
    for (int lane = 0; lane < WARP; ++lane)
        for (int matrix = 0; matrix < 4; ++matrix) {
            const int a = lane / 4, b = lane % 4 * 2;
            simulator_i_matrices *const *const rows = lanes + 8 * matrix;
            lanes[lane]->part[matrix] = !lanes[lane]->transposed ? rows[a]->row[b / 2]
                : half_of(rows[b]->row, a) | (uint32_t)half_of(rows[b + 1]->row, a) << 16;
        }
}
struct group_product;
struct group_state;
static void group_begin_all(group_product *const *lanes, const char *file, int line);
static void group_wait_all(group_state *const *lanes, const char *file, int line);
static void tensor_together(const meeting *m, const char *file, int line) {
    static void *lanes[WARP];
    if (m->arrived != ~0u) { finding(file, line, "a tensor operation without all lanes of its warp"); return; }
    for (int i = 0; i < WARP; ++i) lanes[i] = (void *)(uintptr_t)m->value[i];
    switch (m->operation & 255) {
    case SIMULATOR_I_MULTIPLY: multiply_all((simulator_i_product *const *)(void *)lanes); break;
    case SIMULATOR_I_LOAD: load_all((simulator_i_matrices *const *)(void *)lanes); break;
    case SIMULATOR_I_GROUP: group_begin_all((group_product *const *)(void *)lanes, file, line); break;
    default: group_wait_all((group_state *const *)(void *)lanes, file, line);
    }
}
extern "C" void simulator_i_multiply(simulator_i_product *lane, const char *file, int line) {
    (void)simulator_i_warp(SIMULATOR_I_MULTIPLY, ~0u, (uint64_t)(uintptr_t)lane, 0, file, line);
}
extern "C" unsigned simulator_bank_conflicts(void) { return bank_conflicts; }

/* TSan knows no fences: all of them are one clock, so whoever fences later knows what was fenced before. */
static char fence_clock;
extern "C" void simulator_i_trap(const char *file, int line) { finding(file, line, "a kernel traps"); }
extern "C" void simulator_i_fence(void) {
    clock_acquire(&fence_clock);
    clock_release(&fence_clock);
}

/* ---- guarded memory: exactly so many bytes, and something around it that must stay ------------------------------- */
enum { GUARD = 256, GUARD_BYTE = 0xB7, POISON_BYTE = 0xFF };
struct guarded {
    unsigned char *raw, *start;
    size_t raw_bytes, bytes;
};
static bool guarded_make(guarded *g, size_t bytes) {
    void *raw = NULL;
    if (bytes > SIZE_MAX - 4 * GUARD) return false;
    g->bytes = bytes;
    g->raw_bytes = GUARD + bytes + GUARD;
    if (posix_memalign(&raw, GUARD, g->raw_bytes)) return false;
    g->raw = (unsigned char *)raw;
    g->start = g->raw + GUARD;
    bytes_set(g->raw, GUARD_BYTE, GUARD);
    bytes_set(g->start, POISON_BYTE, bytes);
    bytes_set(g->start + bytes, GUARD_BYTE, GUARD);
    poison(g->raw, g->raw_bytes);
    unpoison(g->start, bytes);
    return true;
}
static void guarded_free(guarded *g) {
    unpoison(g->raw, g->raw_bytes);
    free(g->raw);
    g->raw = NULL;
}
static bool guard_is_whole(const unsigned char *guard) {
    for (int i = 0; i < GUARD; ++i)
        if (guard[i] != GUARD_BYTE) return false;
    return true;
}
/* 0; -1 something was written before it; 1 behind it. Under ASan that would have ended the program. */
static int guarded_damage(const guarded *g) {
    if (HAVE_ASAN || !g->raw) return 0;
    return !guard_is_whole(g->raw) ? -1 : !guard_is_whole(g->start + g->bytes);
}
static void guarded_repair(guarded *g) {
    bytes_set(g->raw, GUARD_BYTE, GUARD);
    bytes_set(g->start + g->bytes, GUARD_BYTE, GUARD);
}

/* ---- shared memory ----------------------------------------------------------------------------------------------- */
enum { SHARED_ARRAYS = 64, STATIC_SHARED_BYTES = 48 * 1024, SHARED_BYTES = 227 * 1024 };
static struct shared_array {
    const void *key; /* the declaration; NULL = the dynamic one */
    guarded memory;
    const char *name, *file;
    int line;
} shared_arrays[SHARED_ARRAYS];
static int shared_count;
static size_t static_shared_bytes;
static void *launcher; /* TSan: makes what blocks find ready, and knows nothing of what earlier blocks did */
static char launcher_clock;

static shared_array *shared_new(const void *key, size_t bytes, const char *name, const char *file, int line) {
    acting_as somebody(launcher);
    shared_array *const s = &shared_arrays[shared_count];
    if (shared_count == SHARED_ARRAYS || !guarded_make(&s->memory, bytes)) {
        fprintf(stderr, "simulator: %s:%d: no room for shared memory\n", file, line);
        exit(1);
    }
    ++shared_count;
    s->key = key;
    s->name = name;
    s->file = file;
    s->line = line;
    if (key) static_shared_bytes += bytes;
    if (static_shared_bytes > STATIC_SHARED_BYTES)
        finding(file, line, "%zu bytes of static shared memory; 49152 are the most", static_shared_bytes);
    else if (key && static_shared_bytes + grid.launch->shared_bytes > SHARED_BYTES)
        finding(file, line, "%zu bytes of shared memory; 232448 are the most",
                static_shared_bytes + grid.launch->shared_bytes);
    clock_release(&launcher_clock);
    return s;
}
extern "C" void *simulator_i_shared(const void *key, size_t bytes, const char *name, const char *file, int line) {
    shared_array *s = shared_arrays;
    while (s < shared_arrays + shared_count && s->key != key) ++s;
    if (s == shared_arrays + shared_count) s = shared_new(key, bytes, name, file, line);
    clock_acquire(&launcher_clock);
    return s->memory.start;
}
/* A card stops at one that is shared memory's; a load or store that does not say which memory may go to either. And at
   one that is not aligned to what it takes. */
extern "C" void simulator_i_global(const void *p, size_t bytes, const char *file, int line) {
    if ((uintptr_t)p % bytes) finding(file, line, "%zu bytes at %p, which is not aligned to them", bytes, p);
    for (const shared_array *s = shared_arrays; s < shared_arrays + shared_count; ++s)
        if ((uintptr_t)p - (uintptr_t)s->memory.start < s->memory.bytes)
            finding(file, line, "an instruction of global memory at %s, which is shared memory", s->name);
}

extern "C" void *simulator_i_shared_bytes(const char *file, int line) {
    return simulator_i_shared(NULL, grid.launch->shared_bytes, "the dynamic shared memory", file, line);
}

/* ---- asynchronous copies ----------------------------------------------------------------------------------------- */
enum { COPIES = 256 }; /* of a thread at a time */
static struct { simulator_i_copy ring[COPIES]; unsigned begun, ended, group; } copies[MAX_THREADS];
static unsigned char coming[SHARED_ARRAYS][SHARED_BYTES / 16]; /* of each 16 bytes: a copy has not been waited for */

static unsigned char *coming_at(const void *p) {
    for (const shared_array *s = shared_arrays; s < shared_arrays + shared_count; ++s) {
        const uintptr_t at = (uintptr_t)p - (uintptr_t)s->memory.start;
        if (at < s->memory.bytes && s->memory.bytes - at >= 16) return &coming[s - shared_arrays][at / 16];
    }
    return NULL;
}
static unsigned char *coming_checked(const void *to, const void *from, const char *file, int line) {
    static unsigned char nowhere;
    unsigned char *const state = coming_at(to);
    if (((uintptr_t)to | (uintptr_t)from) & 15)
        finding(file, line, "16 bytes that do not begin at a multiple of 16: %p, %p", to, from);
    if (!state) finding(file, line, "%p is no shared memory of 16 bytes", to);
    nowhere = 0;
    return state ? state : &nowhere;
}
extern "C" simulator_i_copy *simulator_i_copy_begin(void *to, const void *from, unsigned bytes, const char *file,
                                                    int line) {
    const int thread = current()->index;
    unsigned char *const state = coming_checked(to, from, file, line);
    simulator_i_copy *const c = &copies[thread].ring[copies[thread].begun % COPIES];
    if (*state) finding(file, line, "two asynchronous copies to one place");
    if (copies[thread].begun++ - copies[thread].ended == COPIES) finding(file, line, "more copies than the ring holds");
    *state = 1;
    c->to = to;
    c->from = from;
    c->bytes = bytes;
    c->group = copies[thread].group;
    c->is_there = schedule == 0 || (schedule > 1 && luck.below(2));
    return c;
}
extern "C" void simulator_i_copy_commit(void) { ++copies[current()->index].group; }
extern "C" const simulator_i_copy *simulator_i_copy_end(unsigned groups) {
    const int thread = current()->index;
    if (copies[thread].ended == copies[thread].begun) return NULL;
    const simulator_i_copy *const c = &copies[thread].ring[copies[thread].ended % COPIES];
    if (c->group + groups >= copies[thread].group) return NULL;
    ++copies[thread].ended;
    unsigned char *const state = coming_at(c->to);
    if (state) *state = 0;
    return c;
}
extern "C" void simulator_i_load(simulator_i_matrices *lane, const char *file, int line) {
    if (*coming_checked(lane->from, NULL, file, line))
        finding(file, line, "ldmatrix of what an asynchronous copy still brings");
    (void)simulator_i_warp(SIMULATOR_I_LOAD, ~0u, (uint64_t)(uintptr_t)lane, 0, file, line);
}

/* ---- products of groups ------------------------------------------------------------------------------------------ */
enum { GROUP_PRODUCTS = 64, GROUP_SUMS = 8, SHARED_FIRST = 1024 }; /* of a thread; where dynamic shared memory begins */
struct group_sums { /* of products that have been begun and not waited for: what `of` will be */
    float *of, value[32];
    unsigned products;
    bool early;
};
struct group_product {
    simulator_i_group_product p;
    group_sums *sums;
    unsigned group;
    bool is_done;
};
struct group_state {
    group_product ring[GROUP_PRODUCTS];
    group_sums sums[GROUP_SUMS];
    unsigned begun, ended, group, made; /* made: sums so far */
    uint64_t history; /* of all products: the same for the four warps of a group */
    bool in_order, has_shown;
};
static group_state groups[MAX_THREADS];
static bool groups_used, tile_is_shown;
static int show_count; /* threads that have shown since the last barrier */
alignas(16) static unsigned char shown[SHARED_BYTES]; /* shared memory as it was */

static shared_array *shared_dynamic(void) {
    shared_array *s = shared_arrays;
    while (s < shared_arrays + shared_count && s->key) ++s;
    return s < shared_arrays + shared_count ? s : NULL;
}
extern "C" uint32_t simulator_i_shared_at(const void *p, const char *file, int line) {
    const shared_array *const s = shared_dynamic();
    const uintptr_t at = s ? (uintptr_t)p - (uintptr_t)s->memory.start : 0;
    if (s && at < s->memory.bytes) return (uint32_t)at + SHARED_FIRST;
    finding(file, line, "%p is no place in the dynamic shared memory", p);
    return SHARED_FIRST;
}
static unsigned char showing[SHARED_BYTES]; /* `shown` from the next barrier on */
extern "C" void simulator_i_show(void) {
    group_state *const g = &groups[current()->index];
    const shared_array *const s = shared_dynamic();
    groups_used = true;
    show_count += !g->has_shown;
    g->has_shown = true;
    if (s && show_count == grid.threads - ended) bytes_copy(showing, s->memory.start, s->memory.bytes);
}
static void shared_is_shown(void) { /* at a barrier, if all have shown since the last one */
    const shared_array *const s = shared_dynamic();
    if (!show_count) return;
    if (s && show_count == grid.threads - ended) {
        bytes_copy(shown, showing, s->memory.bytes);
        tile_is_shown = true;
    }
    for (int i = 0; i < grid.threads; ++i) groups[i].has_shown = false;
    show_count = 0;
}
static void check_tile(uint64_t tile, bool across, const char *file, int line) {
    const unsigned start = (unsigned)(tile & 0x3fff) * 16;
    const unsigned leading = (unsigned)(tile >> 16 & 0x3fff), stride = (unsigned)(tile >> 32 & 0x3fff);
    if (tile >> 62 != 1 || tile >> 49 & 7 || tile >> 46 & 7 || tile >> 52 & 0x3ff || tile >> 14 & 3 || tile >> 30 & 3)
        finding(file, line, "descriptor %016llx: only chunks swapped in 128 bytes, from a place without an offset, are simulated",
                (unsigned long long)tile);
    if (start / 128 * 128 % 1024) finding(file, line, "a tile from %u on, which is no multiple of 1,024", start);
    if (across && leading != stride)
        finding(file, line, "a tile across whose two steps are not the same: which of them leads is not simulated");
}
/* Where eight elements are, from the dynamic shared memory's beginning: of a tile's line, the chunk-th. */
static size_t group_place(uint64_t tile, int line, int chunk) {
    const unsigned stride = (unsigned)(tile >> 32 & 0x3fff) * 16;
    const size_t at = (size_t)(tile & 0x3fff) * 16 + (size_t)(line / 8) * stride + (size_t)(line % 8) * 128 + (size_t)chunk * 16;
    return (at ^ (at >> 7 & 7) << 4) - SHARED_FIRST;
}
extern "C" const void *simulator_i_group_word(uint64_t tile, int across, int i) {
    const int lane = simulator_i_now->lane; /* four words a chunk, four chunks a lane: of 16 lines of 8, or 64 lines of 2 */
    const int chunk = lane * 4 + i / 4;
    const shared_array *const s = shared_dynamic();
    const size_t at = across ? group_place(tile, chunk / 8, chunk % 8) : group_place(tile, chunk / 2, chunk % 2);
    return s && at < s->memory.bytes ? s->memory.start + at + i % 4 * 4 : NULL;
}
static void group_read(double *to, int step, uint64_t tile, int from, int chunk, bool is_bf16, const char *file, int line) {
    const shared_array *const s = shared_dynamic();
    const size_t at = group_place(tile, from, chunk);
    if (!s || at + 16 > s->memory.bytes) { finding(file, line, "a tile beyond shared memory"); return; }
    const uint16_t *const codes = (const uint16_t *)(const void *)(s->memory.start + at);
    const uint16_t *const before = (const uint16_t *)(const void *)(shown + at);
    bool same = tile_is_shown;
    for (int i = 0; i < 8; ++i) {
        same &= codes[i] == before[i];
        to[i * step] = half_value(codes[i], is_bf16);
    }
    if (!same) finding(file, line, "wgmma of what its writer has not shown: fence.proxy.async");
    if (coming[s - shared_arrays][at / 16]) finding(file, line, "wgmma of what an asynchronous copy still brings");
}
/* 16 rows of a warp, and 64 columns. */
static void group_multiply_all(group_product *const *lanes, const char *file, int line) {
    static double left[16][16], right[16][64];
    const simulator_i_group_product *const p = &lanes[0]->p;
    const bool is_bf16 = p->is_bf16 != 0;
    const int first = current()->index / WARP % 4 * 16;
    for (int i = 0; i < 128; ++i)
        if (p->across) group_read(&right[i / 8][i % 8 * 8], 1, p->right, i / 8, i % 8, is_bf16, file, line);
        else group_read(&right[i % 2 * 8][i / 2], 64, p->right, i / 2, i % 2, is_bf16, file, line);
    for (int i = 0; i < 32 && p->left_tile; ++i)
        group_read(&left[i / 2][i % 2 * 8], 1, p->left_tile, first + i / 2, i % 2, is_bf16, file, line);
    for (int i = 0; i < 256 && !p->left_tile; ++i) {
        const int lane = i / 8, k = lane % 4 * 2 + i % 2;
        left[lane / 4 + i / 2 % 2 * 8][k + i % 8 / 4 * 8] = half_value(half_of(lanes[lane]->p.left, i % 8), is_bf16);
    }
    for (int row = 0; row < 16; ++row) {
        double sums[64] = { 0 };
        for (int k = 0; k < 16; ++k)
            for (int i = 0; i < 64; ++i) sums[i] += left[row][k] * right[k][i];
        for (int i = 0; i < 64; ++i) {
            group_product *const q = lanes[row % 8 * 4 + i % 8 / 2];
            float *const value = &q->sums->value[i / 8 * 4 + row / 8 * 2 + i % 2];
            *value = (float)(q->p.onto ? sums[i] + (double)*value : sums[i]);
        }
    }
    for (int i = 0; i < WARP; ++i) lanes[i]->is_done = true;
}
static void group_begin_all(group_product *const *lanes, const char *file, int line) {
    const simulator_i_group_product *const p = &lanes[0]->p;
    for (int i = 1; i < WARP; ++i) {
        const simulator_i_group_product *const q = &lanes[i]->p;
        if (q->right != p->right || q->left_tile != p->left_tile || q->onto != p->onto || q->across != p->across)
            finding(file, line, "lanes of a group begin different products");
    }
    check_tile(p->right, p->across != 0, file, line);
    if (p->left_tile) check_tile(p->left_tile, false, file, line);
    if (lanes[0]->sums->early) group_multiply_all(lanes, file, line);
}
static group_sums *group_sums_of(group_state *g, float *of, const char *file, int line) {
    group_sums *s = g->sums, *idle = NULL;
    for (; s < g->sums + GROUP_SUMS; ++s) {
        if (s->of == of) return s;
        if (!s->of) idle = s;
    }
    if (!idle) { finding(file, line, "more sums under way than the simulator holds"); return g->sums; }
    idle->of = of;
    idle->products = 0;
    idle->early = schedule == 0 || (schedule > 1 && g->made % 2);
    ++g->made;
    bytes_copy(idle->value, of, sizeof idle->value);
    bytes_set(of, POISON_BYTE, sizeof idle->value);
    return idle;
}
extern "C" void simulator_i_group_begin(void) { groups[current()->index].in_order = true; }
extern "C" void simulator_i_group_multiply(const simulator_i_group_product *p, const char *file, int line) {
    group_state *const g = &groups[current()->index];
    group_product *const q = &g->ring[g->begun % GROUP_PRODUCTS];
    if (!g->in_order) finding(file, line, "products of a group without a wgmma.fence before them");
    if (g->begun++ - g->ended == GROUP_PRODUCTS) finding(file, line, "more products than the ring holds");
    q->p = *p;
    q->sums = group_sums_of(g, p->sums, file, line);
    q->group = g->group;
    q->is_done = false;
    ++q->sums->products;
    groups_used = true;
    g->history = (g->history * 31 + p->right) * 31 + p->left_tile * 2 + (p->onto != 0) + 1;
    (void)simulator_i_warp(SIMULATOR_I_GROUP, ~0u, (uint64_t)(uintptr_t)q, 0, file, line);
}
extern "C" void simulator_i_group_commit(void) {
    group_state *const g = &groups[current()->index];
    ++g->group;
    g->in_order = false;
}
static bool group_is_due(const group_state *g, unsigned i, unsigned last) {
    return i != g->begun && g->ring[i % GROUP_PRODUCTS].group + last < g->group;
}
extern "C" const simulator_i_group_product *simulator_i_group_due(unsigned last, unsigned i) {
    const group_state *const g = &groups[current()->index];
    return group_is_due(g, g->ended + i, last) ? &g->ring[(g->ended + i) % GROUP_PRODUCTS].p : NULL;
}
static unsigned group_last; /* how many commits the wait leaves alone */
static void group_wait_all(group_state *const *states, const char *file, int line) {
    for (unsigned i = states[0]->ended; group_is_due(states[0], i, group_last); ++i) {
        group_product *lanes[WARP];
        for (int k = 0; k < WARP; ++k) {
            if (states[k]->begun != states[0]->begun) finding(file, line, "lanes of a group have begun different products");
            lanes[k] = &states[k]->ring[i % GROUP_PRODUCTS];
        }
        if (!lanes[0]->is_done) group_multiply_all(lanes, file, line);
    }
}
extern "C" void simulator_i_group_wait(unsigned last, const char *file, int line) {
    group_state *const g = &groups[current()->index];
    group_last = last;
    (void)simulator_i_warp(SIMULATOR_I_GROUP_WAIT, ~0u, (uint64_t)(uintptr_t)g, 0, file, line);
    for (; group_is_due(g, g->ended, last); ++g->ended) {
        group_sums *const s = g->ring[g->ended % GROUP_PRODUCTS].sums;
        if (--s->products) continue;
        bytes_copy(s->of, s->value, sizeof s->value);
        s->of = NULL;
    }
}
static void groups_forget(void) {
    for (int i = 0; i < grid.threads && groups_used; ++i) {
        group_state *const g = &groups[i];
        const group_state *const first = &groups[i / (4 * WARP) * (4 * WARP)];
        if (g->begun != g->ended && !grid.aborted)
            finding(grid.launch->file, grid.launch->line, "products of a group that nobody has waited for");
        if (g->history != first->history && !grid.aborted)
            finding(grid.launch->file, grid.launch->line, "warps of a group have begun different products");
    }
    for (int i = 0; i < grid.threads && groups_used; ++i) {
        group_state *const g = &groups[i];
        for (int k = 0; k < GROUP_SUMS; ++k) g->sums[k].of = NULL;
        g->begun = g->ended = g->group = g->made = 0;
        g->history = 0;
        g->in_order = g->has_shown = false;
    }
    groups_used = tile_is_shown = false;
    show_count = 0;
}
static void copies_forget(void) { /* the block is over */
    groups_forget();
    for (int i = 0; i < grid.threads; ++i) copies[i].begun = copies[i].ended = copies[i].group = 0;
    for (int i = 0; i < shared_count; ++i) bytes_set(coming[i], 0, shared_arrays[i].memory.bytes / 16);
}
static void shared_check(void) {
    for (shared_array *s = shared_arrays; s < shared_arrays + shared_count; ++s) {
        const int damage = guarded_damage(&s->memory);
        if (!damage) continue;
        finding(s->file, s->line, "shared memory: written %s %s", damage < 0 ? "before" : "behind", s->name);
        guarded_repair(&s->memory);
    }
}
static void shared_free(void) {
    for (int i = 0; i < shared_count; ++i) guarded_free(&shared_arrays[i].memory);
    shared_count = 0;
    static_shared_bytes = 0;
}
/* Between two blocks. TSan must see new memory, or it takes the next block's threads for rivals of the last one's. */
static void shared_renew(void) {
    shared_check();
    copies_forget();
    if (HAVE_TSAN) { shared_free(); return; }
    for (shared_array *s = shared_arrays; s < shared_arrays + shared_count; ++s)
        bytes_set(s->memory.start, POISON_BYTE, s->memory.bytes);
}

/* ---- blocks and grids -------------------------------------------------------------------------------------------- */
static uint64_t blocks_first = UINT64_MAX, blocks_last;

static void thread_ends(cuda_thread *t) {
    cuda_warp *const w = &warps[t->warp];
    t->state = ENDED;
    ++ended;
    w->alive &= ~(1u << t->view.lane);
    clock_release(&end_clock);
    for (int i = w->open_count; i-- > 0;) /* whoever waited for this lane waits no longer */
        if (w->open[i]->arrived == (w->open[i]->mask & w->alive)) meeting_close(w, w->open[i], -1);
    if (barrier->arrived && barrier->arrived == grid.threads - ended) barrier_open();
}
/* What a fiber does: one thread, and those that have not started after it, as long as none of them waits. */
static void fiber_main(void) {
    fiber_begins();
    for (;;) {
        cuda_thread *const t = current();
        fiber *const self = t->on;
        bool starts;
        t->state = RUNS;
        clock_acquire(&launcher_clock);
        grid.launch->run(grid.launch->arguments);
        thread_ends(t);
        const int next = take_turn(&starts);
        if (next < 0 && ended < grid.threads) { report_deadlock(); abort_grid(self); }
        cuda_thread *const to = next < 0 ? NULL : &threads[next];
        simulator_i_now = to ? &to->view : NULL;
        if (to && starts && !HAVE_TSAN) { to->on = self; continue; }
        if (to && starts) to->on = fiber_for(next);
        fiber_return(self);
        fiber_switch(self, to ? to->on : &host, true);
    }
}
static void grid_prepare(const simulator_i_launch *l) {
    const simulator_i_index size = l->block;
    grid.launch = l;
    grid.threads = (int)(size.x * size.y * size.z);
    grid.warps = (grid.threads + WARP - 1) / WARP;
    grid.aborted = false;
    simulator_i_block_size = size;
    simulator_i_grid_size = l->grid;
    for (int i = 0; i < grid.threads; ++i) {
        const unsigned k = (unsigned)i;
        cuda_thread *const t = &threads[i];
        t->view.thread.x = k % size.x;
        t->view.thread.y = k / size.x % size.y;
        t->view.thread.z = k / (size.x * size.y);
        t->view.lane = i % WARP;
        t->index = i;
        t->warp = i / WARP;
        start_order[i] = schedule == 1 ? grid.threads - 1 - i : i;
        if (HAVE_TSAN) { fiber_prepare(&fibers[i]); fiber_prepare(&fibers[MAX_THREADS + i]); }
    }
}
static void block_prepare(uint64_t number) {
    const simulator_i_index g = simulator_i_grid_size;
    grid.number = number;
    simulator_i_block.x = (unsigned)(number % g.x);
    simulator_i_block.y = (unsigned)(number / g.x % g.y);
    simulator_i_block.z = (unsigned)(number / g.x / g.y);
    started = ended = 0;
    queue.head = queue.tail = 0;
    favourite = -1;
    barrier->arrived = barrier->with = 0;
    for (int i = 0; i < grid.warps; ++i) {
        const int lanes = grid.threads - i * WARP;
        warps[i].alive = lanes >= WARP ? ~0u : (1u << lanes) - 1;
        warps[i].ready_count = warps[i].open_count = 0;
        warps[i].priority = luck.next();
    }
    if (schedule >= 2)
        for (int i = grid.threads - 1; i > 0; --i) std::swap(start_order[i], start_order[luck.below((unsigned)i + 1)]);
}
static void block_run(uint64_t number) {
    bool starts;
    block_prepare(number);
    cuda_thread *const first = &threads[take_turn(&starts)];
    first->on = fiber_for(first->index);
    simulator_i_now = &first->view;
    totals.threads += (uint64_t)grid.threads;
    fiber_switch(&host, first->on, false);
    simulator_i_now = NULL;
    if (grid.aborted) {
        fibers_give_up();
        idle_meeting_count = meeting_count = 0;
        for (int i = 0; i < grid.threads; ++i) threads[i].state = ENDED;
    }
    clock_acquire(&end_clock);
    shared_renew();
}
/* The blocks' order is the schedule's as well: forward, backward, or with a random stride. */
static uint64_t stride_of(uint64_t blocks) {
    for (;;) {
        const uint64_t stride = 1 + luck.next() % blocks;
        uint64_t a = stride, b = blocks;
        while (b) { const uint64_t c = a % b; a = b; b = c; }
        if (a == 1) return stride;
    }
}
static void grid_run(const simulator_i_launch *l) {
    const uint64_t blocks = (uint64_t)l->grid.x * l->grid.y * l->grid.z;
    grid_prepare(l);
    clock_release(&launcher_clock);
    if (!launcher) launcher = identity_new();
    { acting_as somebody(launcher); clock_acquire(&launcher_clock); }
    const uint64_t stride = schedule >= 2 ? stride_of(blocks) : 1, shift = schedule >= 2 ? luck.next() % blocks : 0;
    const uint64_t first = blocks_first < blocks ? blocks_first : blocks;
    const uint64_t last = blocks_last < blocks - first ? blocks_last : blocks - first, count = first + last;
    for (uint64_t i = 0; i < count && !grid.aborted; ++i) {
        uint64_t k = schedule == 1 ? count - 1 - i : i;
        if (count == blocks && schedule >= 2) k = (uint64_t)(((unsigned __int128)i * stride + shift) % blocks);
        block_run(k < first ? k : blocks - last + (k - first));
    }
    shared_free();
    grid.launch = NULL;
}
/* An address that nothing is mapped at, in a kernel: say where, and leave the kernel. Sanitizers have their own way. */
static void on_fault(int number, siginfo_t *info, void *) {
    if (!simulator_i_now) { /* the host's: once more, and for good */
        fprintf(stderr, "simulator: the host touches %p: not its memory, or nobody's\n", info->si_addr);
        signal(number, SIG_DFL);
        return;
    }
    finding(grid.launch->file, grid.launch->line, "illegal address %p in a kernel launched here", info->si_addr);
    abort_grid(current()->on);
}
static void watch_faults(void) {
    static char stack[64 * 1024];
    static bool watching;
    struct sigaction action;
    stack_t where;
    if (watching || HAVE_ASAN || HAVE_TSAN) return;
    watching = true;
    memset(&where, 0, sizeof where);
    where.ss_sp = stack;
    where.ss_size = sizeof stack;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaltstack(&where, NULL);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

/* ---- the machine ------------------------------------------------------------------------------------------------- */
enum { MAX_DEVICES = 8 };
/* For programs that cannot say it by a call: SIMULATOR_MEMORY, bytes of a device, SIMULATOR_DEVICES, SIMULATOR_STREAMS. */
static size_t said_outside(const char *name, size_t usual) {
    const char *const text = getenv(name);
    return text ? (size_t)strtoull(text, NULL, 0) : usual;
}
static const size_t usual_sparse = (size_t)64 << 20, usual_memory = said_outside("SIMULATOR_MEMORY", (size_t)141 << 30);
static const int usual_devices = (int)std::min(said_outside("SIMULATOR_DEVICES", 2), (size_t)MAX_DEVICES);
static struct {
    int    devices;
    size_t memory, sparse;
    size_t used[MAX_DEVICES];
    std::map<int, int> attributes;
    int    compiled;        /* for which capability; 0 = the device's */
    bool in_callback;
    int (*kernel_waits)(void), (*hand_on)(void); /* of nccl.cpp; NULL: nothing waits */
} machine = { usual_devices, usual_memory, usual_sparse, {}, {}, 0, false, NULL, NULL };
static thread_local int device_now; /* of each host thread, as is */
static thread_local cudaError_t last_error;
static struct { size_t malloc, launch, call, calls, launches; } faults; /* the first three count down */

/* Every runtime call that fails leaves its error for cudaGetLastError(). */
static cudaError_t told(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}
static bool counts_down(size_t *k) { return *k && --*k == 0; }
static bool call_fails(void) {
    ++faults.calls;
    if (machine.in_callback) finding(NULL, 0, "a host function of a stream calls CUDA");
    return counts_down(&faults.call) || machine.in_callback;
}
static bool malloc_fails(void) {
    const bool fails = counts_down(&faults.malloc);
    return call_fails() || fails;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */
enum memory_kind { DEVICE, PINNED, MANAGED };
struct memory {
    memory_kind kind;
    int device;
    unsigned char *start;
    size_t bytes;
    guarded around;      /* raw NULL = sparse: pages of its own, with pages around that cannot be touched */
    void *pages;
    size_t page_bytes;
};
typedef std::map<uintptr_t, memory> memory_map;
static memory_map memories;
static int device_side; /* > 0: device memory is in reach */

struct mapping { /* of the driver's virtual memory */
    size_t bytes;
    struct physical *of;
    bool readable, writable;
};
static std::map<uintptr_t, mapping> mappings;

static memory *memory_at(const void *p) { /* that p points into, or just behind; NULL */
    memory_map::iterator i = memories.upper_bound((uintptr_t)p);
    if (i == memories.begin()) return NULL;
    --i;
    return (uintptr_t)p - i->first <= i->second.bytes ? &i->second : NULL;
}
/* Whether [p, p + bytes) is mapped without a hole; for 0 bytes, one behind a mapping is fine. */
static bool is_mapped(const void *p, size_t bytes) {
    uintptr_t at = (uintptr_t)p;
    for (;;) {
        std::map<uintptr_t, mapping>::iterator i = mappings.upper_bound(at);
        if (i == mappings.begin()) return false;
        --i;
        const size_t left = i->first + i->second.bytes - at;
        if (at > i->first + i->second.bytes || (bytes && !left)) return false;
        if (left >= bytes) return true;
        at += left;
        bytes -= left;
    }
}
/* A prefetch has no result, so nothing else notices one that is beyond its array. */
extern "C" void simulator_i_fetch(const void *p, const char *file, int line) {
    const memory *const m = memory_at(p);
    if ((!m || (const unsigned char *)p == m->start + m->bytes) && !is_mapped(p, 1))
        finding(file, line, "a prefetch of %p, which is no device memory", p);
}
static bool sparse_make(memory *m, size_t bytes) {
    const size_t page = 4096, inside = (bytes + page - 1) / page * page;
    m->page_bytes = page + inside + page;
    m->pages = mmap(NULL, m->page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m->pages == MAP_FAILED) return false;
    m->start = (unsigned char *)m->pages + page + (inside - bytes) / GUARD * GUARD; /* it ends where the pages do */
    return true;
}
static void sparse_access(const memory *m, bool on) {
    mprotect((char *)m->pages + 4096, m->page_bytes - 2 * 4096, on ? PROT_READ | PROT_WRITE : PROT_NONE);
}
static bool memory_new(memory_kind kind, size_t bytes, void **out) {
    memory m;
    memset(&m, 0, sizeof m);
    m.kind = kind;
    m.device = device_now;
    m.bytes = bytes;
    size_t *const used = &machine.used[m.device];
    if (kind == DEVICE && (bytes > machine.memory || *used > machine.memory - bytes)) return false;
    if (kind == DEVICE && bytes >= machine.sparse) {
        if (!sparse_make(&m, bytes)) return false;
    } else {
        if (bytes >= (size_t)1 << 33 || !guarded_make(&m.around, bytes)) return false; /* 8 GiB are nobody's test */
        m.start = m.around.start;
        if (kind == DEVICE && !device_side) poison(m.start, bytes);
    }
    if (kind == DEVICE) *used += bytes;
    memories[(uintptr_t)m.start] = m;
    *out = m.start;
    return true;
}
static void memory_free(memory *m) {
    if (m->kind == DEVICE) machine.used[m->device] -= m->bytes;
    if (m->pages) munmap(m->pages, m->page_bytes);
    else guarded_free(&m->around);
    memories.erase((uintptr_t)m->start);
}
static void memory_access(bool on, int device) {
    for (memory_map::iterator i = memories.begin(); i != memories.end(); ++i) {
        memory *const m = &i->second;
        if (m->kind != DEVICE || (on && device >= 0 && m->device != device)) continue;
        if (m->pages) sparse_access(m, on);
        else if (on) unpoison(m->start, m->bytes);
        else poison(m->start, m->bytes);
    }
    for (std::map<uintptr_t, mapping>::iterator i = mappings.begin(); i != mappings.end(); ++i) {
        const mapping *const m = &i->second;
        const int access = m->writable ? PROT_READ | PROT_WRITE : m->readable ? PROT_READ : PROT_NONE;
        mprotect((void *)i->first, m->bytes, on ? access : PROT_NONE);
    }
}
/* While one of these lives, device memory can be touched: of one device, or (-1) of all. */
struct on_device {
    explicit on_device(int device) { if (device_side++ == 0) memory_access(true, device); }
    ~on_device() { if (--device_side == 0) memory_access(false, -1); }
};
/* After a launch, and when memory is freed: was anything written around a block? */
static void memory_check(memory *m, const char *file, int line) {
    const int damage = m->pages ? 0 : guarded_damage(&m->around);
    if (!damage) return;
    finding(file, line, "written %s a block of %zu bytes that %s gave", damage < 0 ? "before" : "behind", m->bytes,
            m->kind == DEVICE ? "cudaMalloc" : m->kind == PINNED ? "cudaHostAlloc" : "cudaMallocManaged");
    guarded_repair(&m->around);
}
static void memory_check_all(const char *file, int line) {
    for (memory_map::iterator i = memories.begin(); i != memories.end(); ++i) memory_check(&i->second, file, line);
}

/* ---- streams: queues of operations ------------------------------------------------------------------------------- */
struct operation {
    enum { LAUNCH, COPY, SET, HOST, HOST_ON_DEVICE, RECORD, WAIT } kind;
    uint64_t sequence;              /* of all operations ever: those that it waits for have smaller ones */
    simulator_i_launch launch;
    unsigned char *to;
    const unsigned char *from;
    size_t bytes, rows, to_pitch, from_pitch;
    unsigned char *staged;          /* a copy of `from` made at the call, or NULL */
    int value;
    void (*function)(void *);
    void (*destroy)(void *);        /* NULL, or what its argument ends with */
    int (*is_ready)(void *);        /* NULL: always */
    void *argument;
    CUevent_st *event;
    uint64_t version;
    CUstream_st *other;             /* WAIT: until this stream has come to `until` */
    uint64_t until;
};
struct CUstream_st {
    int device;
    unsigned flags;
    bool is_default, destroyed;
    std::deque<operation> queue;
    uint64_t done;                  /* the last sequence that ran */
    size_t awaits;                  /* operations that may not be ready */
    CUgraph_st *capture;            /* NULL, or what takes the operations instead */
};
struct CUgraph_st { /* one stream's operations, in order; CUgraphExec_st is the same object */
    std::vector<operation> operations;
    bool graph_destroyed, exec_made, exec_destroyed;
    bool invalid;                   /* what no capture allows was done meanwhile: there is no graph at its end */
};
struct CUevent_st {
    int device;
    unsigned flags;
    bool destroyed;
    uint64_t recorded, reached;     /* versions */
    CUstream_st *stream;            /* where it was recorded last, and as which operation */
    uint64_t sequence;
    double when;
};
static std::vector<CUstream_st *> streams; /* destroyed ones too, until the end of the test */
static std::vector<CUevent_st *> events;
static std::vector<CUgraph_st *> graphs; /* until the end of the test: launches that wait may need their arguments */
static thread_local CUgraph_st *capturing; /* what this thread captures; NULL: nothing */
static CUstream_st *default_streams[MAX_DEVICES];
static uint64_t operations;
enum { MOST_SECONDS = 200 }; /* that a host waits for other ranks */
static int streams_mode = (int)said_outside("SIMULATOR_STREAMS", MODE_EAGER);
static generator streams_luck = [] { generator g; g.seed(seed_of_all()); return g; }();

static void operation_run(CUstream_st *s, operation *o);
static bool stream_run_until(CUstream_st *s, uint64_t sequence);

static CUstream_st *stream_new(int device, unsigned flags, bool is_default) {
    CUstream_st *const s = new CUstream_st();
    s->device = device;
    s->flags = flags;
    s->is_default = is_default;
    streams.push_back(s);
    return s;
}
static CUstream_st *default_stream(int device) {
    if (!default_streams[device]) default_streams[device] = stream_new(device, 0, true);
    return default_streams[device];
}
/* CUDA refuses it, and the capture has failed. */
static bool capture_forbids(const char *what) {
    if (!capturing) return false;
    finding(NULL, 0, "%s while a stream is captured", what);
    capturing->invalid = true;
    return true;
}
/* The stream of a handle; NULL for one that is none, or not to be used now. */
static CUstream_st *stream_of(cudaStream_t handle) {
    if (handle == NULL || handle == cudaStreamLegacy || handle == cudaStreamPerThread)
        return capture_forbids("the default stream is used") ? NULL : default_stream(device_now);
    for (size_t i = 0; i < streams.size(); ++i)
        if (streams[i] == handle && !streams[i]->destroyed) return streams[i];
    finding(NULL, 0, "a stream that was destroyed, or never created");
    return NULL;
}
static bool event_exists(cudaEvent_t event) {
    if (std::find(events.begin(), events.end(), event) != events.end() && !event->destroyed) return true;
    finding(NULL, 0, "an event that was destroyed, or never created");
    return false;
}
static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
/* The default stream and streams that were not created as non-blocking wait for each other, both ways. */
static bool wait_for_default(CUstream_st *s, uint64_t sequence) {
    for (size_t i = 0; i < streams.size(); ++i) {
        CUstream_st *const t = streams[i];
        if (t == s || t->device != s->device || t->is_default == s->is_default) continue;
        if ((s->flags & cudaStreamNonBlocking) || (t->flags & cudaStreamNonBlocking)) continue;
        if (!stream_run_until(t, sequence)) return false;
    }
    return true;
}
/* Here and below false: the stream stands at an operation that is not ready, or waits for a stream that does. */
static bool stream_run_first(CUstream_st *s) {
    {
        const operation &first = s->queue.front();
        const uint64_t sequence = first.sequence;
        if (first.kind == operation::WAIT && !stream_run_until(first.other, first.until)) return false;
        if (!wait_for_default(s, sequence)) return false;
        if (first.is_ready && !first.is_ready(first.argument)) return false;
    }
    operation o = s->queue.front();
    s->queue.pop_front();
    s->awaits -= o.is_ready != NULL;
    operation_run(s, &o);
    s->done = o.sequence;
    return true;
}
static bool stream_run_until(CUstream_st *s, uint64_t sequence) {
    while (!s->queue.empty() && s->queue.front().sequence <= sequence)
        if (!stream_run_first(s)) return false;
    return true;
}
static bool stream_run(CUstream_st *s) { return stream_run_until(s, UINT64_MAX); }
static bool device_run_until(int device, uint64_t sequence) { /* -1: all of them */
    bool is_there = true;
    for (size_t i = 0; i < streams.size(); ++i)
        if (device < 0 || streams[i]->device == device) is_there &= stream_run_until(streams[i], sequence);
    return is_there;
}
/* Something is not ready. On a card other streams go on by themselves: here those that others may be waiting for. */
static void others_go_on(void) {
    for (size_t i = 0; i < streams.size(); ++i)
        while (streams[i]->awaits && stream_run_first(streams[i])) {}
}
/* The host waits, in a call that began then; false: for ever, as it seems. */
static bool hand_on(double begin) {
    others_go_on();
    if (machine.hand_on && seconds() - begin < MOST_SECONDS) { (void)machine.hand_on(); return true; }
    finding(NULL, 0, "the host waits for other ranks for ever");
    return false;
}
static void stream_await(CUstream_st *s, uint64_t sequence) {
    const double begin = seconds();
    while (!stream_run_until(s, sequence) && hand_on(begin)) {}
}
static void device_await(int device) {
    const double begin = seconds();
    const uint64_t last = operations;
    while (!device_run_until(device, last) && hand_on(begin)) {}
}
/* One stream for a while, as far as it has come, and what it waits for; the others stand still. Then another one. */
static void run_some(void) {
    static size_t favoured;
    if (favoured >= streams.size() || streams_luck.below(8) == 0)
        do favoured = streams_luck.below((unsigned)streams.size());
        while (streams[favoured]->destroyed && streams[favoured]->queue.empty() && streams.back() != streams[favoured]);
    for (unsigned n = streams_luck.below(4); n > 0 && !streams[favoured]->queue.empty(); --n)
        if (!stream_run_first(streams[favoured])) return;
}
/* Into a graph: kernels, products, copies and sets. A copy reads its source when the graph is launched. */
static void graph_add(CUgraph_st *graph, operation *o) {
    if (o->kind == operation::HOST || o->kind == operation::RECORD || o->kind == operation::WAIT || o->is_ready) {
        finding(NULL, 0, "events, callbacks and calls of NCCL cannot be captured in this simulator");
        graph->invalid = true;
    }
    free(o->staged);
    o->staged = NULL;
    graph->operations.push_back(*o);
}
static uint64_t stream_add(CUstream_st *s, operation *o) {
    o->sequence = ++operations;
    if (s->capture) { graph_add(s->capture, o); return o->sequence; }
    s->queue.push_back(*o);
    s->awaits += o->is_ready != NULL;
    if (streams_mode == MODE_EAGER) stream_run(s);
    else if (streams_mode == MODE_RANDOM) run_some();
    return o->sequence;
}
static operation operation_new(int kind) {
    operation o;
    memset(&o, 0, sizeof o);
    o.kind = (decltype(o.kind))kind;
    return o;
}
static void run_launch(CUstream_st *s, simulator_i_launch *l) {
    on_device reach(s->device);
    if (simulator_only_lists()) fprintf(stderr, "kernel %s: %u x %u\n", l->name, l->grid.x, l->block.x);
    else grid_run(l);
    l->destroy(l->arguments);
    memory_check_all(l->file, l->line);
}
static void run_copy(const operation *o) {
    on_device reach(-1);
    for (size_t row = 0; row < o->rows; ++row)
        bytes_copy(o->to + row * o->to_pitch, (o->staged ? o->staged : o->from) + row * o->from_pitch, o->bytes);
    free(o->staged);
}
static void operation_run(CUstream_st *s, operation *o) {
    switch (o->kind) {
    case operation::LAUNCH: run_launch(s, &o->launch); break;
    case operation::COPY: run_copy(o); break;
    case operation::SET: { on_device reach(-1); bytes_set(o->to, o->value, o->bytes); break; }
    case operation::HOST: machine.in_callback = true; o->function(o->argument); machine.in_callback = false; break;
    case operation::HOST_ON_DEVICE: {
        on_device reach(s->device);
        o->function(o->argument);
        if (o->destroy) o->destroy(o->argument);
        break;
    }
    case operation::RECORD:
        if (o->event->reached < o->version) { o->event->reached = o->version; o->event->when = seconds(); }
        break;
    case operation::WAIT: break;
    }
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */
enum { ARGUMENT_BYTES = 4096, SHARED_BYTES_UNASKED = 48 * 1024 };
static std::map<const void *, int> shared_asked; /* cudaFuncAttributeMaxDynamicSharedMemorySize of kernels */

static cudaError_t launch_dimensions(const simulator_i_launch *l) {
    const simulator_i_index g = l->grid, b = l->block;
    if (!g.x || !g.y || !g.z || !b.x || !b.y || !b.z) return cudaErrorInvalidConfiguration;
    if (g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535) return cudaErrorInvalidConfiguration;
    if (b.x > 1024 || b.y > 1024 || b.z > 64 || b.x * b.y * b.z > MAX_THREADS) return cudaErrorInvalidConfiguration;
    if (l->bound && b.x * b.y * b.z > (unsigned)l->bound) {
        finding(l->file, l->line, "%u threads in a block of %s, whose __launch_bounds__ say %d", b.x * b.y * b.z,
                l->name, l->bound);
        return cudaErrorLaunchOutOfResources;
    }
    return cudaSuccess;
}
static cudaError_t launch_sizes(const simulator_i_launch *l) {
    const std::map<const void *, int>::const_iterator asked = shared_asked.find(l->kernel);
    const size_t most = asked == shared_asked.end() ? (size_t)SHARED_BYTES_UNASKED : (size_t)asked->second;
    if (l->shared_bytes > most) return cudaErrorInvalidValue;
    if (l->argument_bytes > ARGUMENT_BYTES) {
        finding(l->file, l->line, "%zu bytes of arguments for %s; 4096 are the most", l->argument_bytes, l->name);
        return cudaErrorLaunchOutOfResources;
    }
    return cudaSuccess;
}
/* A parameter that is a pointer must be NULL or point into, or just behind, memory that the device has. */
static void launch_pointers(const simulator_i_launch *l, int device) {
    for (size_t i = 0; i < l->pointer_count; ++i) {
        const void *const p = l->pointers[i];
        if (!p || is_mapped(p, 0)) continue;
        const memory *const m = memory_at(p);
        if (!m) finding(l->file, l->line, "pointer argument %zu of %s is no device memory", i + 1, l->name);
        else if (m->kind == DEVICE && m->device != device)
            finding(l->file, l->line, "pointer argument %zu of %s is memory of another device", i + 1, l->name);
    }
}
extern "C" void simulator_i_start(const simulator_i_launch *l) {
    const bool launch_fault = counts_down(&faults.launch), fault = call_fails() || launch_fault;
    CUstream_st *const s = stream_of((cudaStream_t)l->stream);
    cudaError_t error = fault ? cudaErrorLaunchOutOfResources : launch_dimensions(l);
    ++faults.launches;
    ++totals.launches;
    host_identity = identity_now();
    host.identity = host_identity;
    watch_faults();
    if (!error) error = launch_sizes(l);
    if (!error && (!s || s->device != device_now)) error = cudaErrorInvalidResourceHandle;
    if (error) { told(error); l->destroy(l->arguments); return; }
    launch_pointers(l, s->device);
    operation o = operation_new(operation::LAUNCH);
    o.launch = *l;
    stream_add(s, &o);
}

/* ---- the runtime: errors and devices ----------------------------------------------------------------------------- */
static const struct {
    int code;
    const char *name, *text;
} error_texts[] = {
    { cudaSuccess, "cudaSuccess", "no error" },
    { cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument" },
    { cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory" },
    { cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error" },
    { cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument" },
    { cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy" },
    { cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
      "CUDA driver version is insufficient for CUDA runtime version" },
    { cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function" },
    { cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected" },
    { cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal" },
    { cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle" },
    { cudaErrorSymbolNotFound, "cudaErrorSymbolNotFound", "named symbol not found" },
    { cudaErrorNotReady, "cudaErrorNotReady", "device not ready" },
    { cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
      "operation not permitted when stream is capturing" },
    { cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
      "operation failed due to a previous error during capture" },
    { cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered" },
    { cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch" },
    { cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated" },
    { cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address" },
    { cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure" },
    { cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted" },
    { cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported" },
    { cudaErrorUnknown, "cudaErrorUnknown", "unknown error" },
};
extern "C" {
cudaError_t cudaPeekAtLastError(void) { return last_error; }
cudaError_t cudaGetLastError(void) {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}
const char *cudaGetErrorString(cudaError_t error) {
    for (size_t i = 0; i < sizeof error_texts / sizeof *error_texts; ++i)
        if (error_texts[i].code == (int)error) return error_texts[i].text;
    return "unrecognized error code";
}
const char *cudaGetErrorName(cudaError_t error) {
    for (size_t i = 0; i < sizeof error_texts / sizeof *error_texts; ++i)
        if (error_texts[i].code == (int)error) return error_texts[i].name;
    return "unrecognized error code";
}
cudaError_t cudaRuntimeGetVersion(int *version) {
    if (call_fails() || !version) return told(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) { return cudaRuntimeGetVersion(version); }
cudaError_t cudaGetDeviceCount(int *count) {
    if (call_fails() || !count) return told(cudaErrorInvalidValue);
    *count = machine.devices;
    return machine.devices ? cudaSuccess : told(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
    if (call_fails() || device < 0 || device >= machine.devices) return told(cudaErrorInvalidDevice);
    device_now = device;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
    if (call_fails() || !device) return told(cudaErrorInvalidValue);
    if (!machine.devices) return told(cudaErrorNoDevice);
    *device = device_now;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
    if (call_fails()) return told(cudaErrorUnknown);
    if (capture_forbids("cudaDeviceSynchronize")) return told(cudaErrorStreamCaptureUnsupported);
    device_await(device_now);
    return cudaSuccess;
}
static int attribute_usual(int attribute) {
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: case cudaDevAttrMaxBlockDimX: return MAX_THREADS;
    case cudaDevAttrMaxGridDimX: return 0x7fffffff;
    case cudaDevAttrMaxSharedMemoryPerBlock: return STATIC_SHARED_BYTES;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return SHARED_BYTES;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return 228 * 1024;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return 2048;
    case cudaDevAttrWarpSize: return WARP;
    case cudaDevAttrMultiProcessorCount: return 132;
    case cudaDevAttrL2CacheSize: return 50 << 20;
    case cudaDevAttrComputeCapabilityMajor: return 9;
    default: return 0;
    case cudaDevAttrManagedMemory: case cudaDevAttrConcurrentManagedAccess: case cudaDevAttrUnifiedAddressing: return 1;
    }
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    if (call_fails() || !value) return told(cudaErrorInvalidValue);
    if (device < 0 || device >= machine.devices) return told(cudaErrorInvalidDevice);
    const std::map<int, int>::const_iterator set = machine.attributes.find((int)attribute);
    *value = set == machine.attributes.end() ? attribute_usual((int)attribute) : set->second;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    if (!p) return told(cudaErrorInvalidValue);
    memset(p, 0, sizeof *p);
    const cudaError_t error = cudaDeviceGetAttribute(&p->major, cudaDevAttrComputeCapabilityMajor, device);
    if (error) return error;
    const std::map<int, int>::const_iterator minor = machine.attributes.find(cudaDevAttrComputeCapabilityMinor);
    snprintf(p->name, sizeof p->name, "simulator");
    p->minor = minor == machine.attributes.end() ? 0 : minor->second;
    p->totalGlobalMem = machine.memory;
    p->sharedMemPerBlock = STATIC_SHARED_BYTES;
    p->sharedMemPerBlockOptin = SHARED_BYTES;
    p->warpSize = WARP;
    p->maxThreadsPerBlock = MAX_THREADS;
    p->multiProcessorCount = attribute_usual(cudaDevAttrMultiProcessorCount);
    p->l2CacheSize = attribute_usual(cudaDevAttrL2CacheSize);
    p->memoryBusWidth = 6144;
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value) {
    if (call_fails() || !kernel || value < 0) return told(cudaErrorInvalidValue);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value > SHARED_BYTES)
        return told(cudaErrorInvalidValue);
    shared_asked[kernel] = value;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel) {
    if (call_fails() || !kernel || !attributes) return told(cudaErrorInvalidValue);
    if (!machine.devices) return told(cudaErrorNoDevice);
    struct cudaDeviceProp p;
    const cudaError_t error = cudaGetDeviceProperties(&p, device_now);
    if (error) return error;
    attributes->binaryVersion = 10 * p.major + p.minor;
    attributes->ptxVersion = machine.compiled ? machine.compiled : attributes->binaryVersion;
    /* As of a kernel that has a body for 9.0a alone: nobody asks another one. */
    attributes->maxThreadsPerBlock = attributes->ptxVersion >= 90 && attributes->binaryVersion == 90 ? MAX_THREADS : WARP;
    return cudaSuccess;
}

/* ---- the runtime: memory ----------------------------------------------------------------------------------------- */
void simulator_ranks(int (*kernel_waits)(void), int (*hand_on)(void)) {
    machine.kernel_waits = kernel_waits;
    machine.hand_on = hand_on;
}
static void may_wait_for_ever(const char *what) {
    if (machine.kernel_waits && machine.kernel_waits()) finding(NULL, 0, "%s, while a kernel waits for that of another device", what);
}
static cudaError_t allocate(memory_kind kind, size_t bytes, void **out, bool good) {
    const bool fault = malloc_fails();
    may_wait_for_ever("memory is asked for");
    if (capture_forbids("memory is asked for")) return told(cudaErrorStreamCaptureUnsupported);
    if (!out || !good) return told(cudaErrorInvalidValue);
    if (!machine.devices) return told(cudaErrorNoDevice);
    if (fault) return told(cudaErrorMemoryAllocation);
    if (!bytes) { *out = NULL; return cudaSuccess; }
    return memory_new(kind, bytes, out) ? cudaSuccess : told(cudaErrorMemoryAllocation);
}
cudaError_t cudaMalloc(void **p, size_t bytes) { return allocate(DEVICE, bytes, p, true); }
cudaError_t cudaMallocHost(void **p, size_t bytes) { return allocate(PINNED, bytes, p, true); }
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags) { return allocate(PINNED, bytes, p, flags < 8); }
cudaError_t cudaMallocManaged(void **p, size_t bytes, unsigned flags) {
    return allocate(MANAGED, bytes, p, bytes && (flags == cudaMemAttachGlobal || flags == cudaMemAttachHost));
}
static cudaError_t release(void *p, bool pinned) {
    if (!p) return cudaSuccess;
    const memory_map::iterator i = memories.find((uintptr_t)p);
    if (i == memories.end() || (i->second.kind == PINNED) != pinned) {
        finding(NULL, 0, "%s of %p: it is not from there, or no longer", pinned ? "cudaFreeHost" : "cudaFree", p);
        return told(cudaErrorInvalidValue);
    }
    may_wait_for_ever("memory is given back");
    if (capture_forbids("memory is given back")) return told(cudaErrorStreamCaptureUnsupported);
    device_await(i->second.device); /* as CUDA does */
    memory_check(&i->second, NULL, 0);
    memory_free(&i->second);
    return cudaSuccess;
}
cudaError_t cudaFree(void *p) { return release(p, false); }
cudaError_t cudaFreeHost(void *p) { return release(p, true); }
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    if (call_fails() || !free_bytes || !total_bytes) return told(cudaErrorInvalidValue);
    *total_bytes = machine.memory;
    *free_bytes = machine.memory > machine.used[device_now] ? machine.memory - machine.used[device_now] : 0;
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
    if (call_fails() || !a || !p) return told(cudaErrorInvalidValue);
    const memory *m = memory_at(p);
    if (m && p == m->start + m->bytes) m = NULL;
    const bool mapped = !m && is_mapped(p, 1);
    memset(a, 0, sizeof *a);
    a->device = m ? m->device : mapped ? device_now : cudaInvalidDeviceId;
    if (!m && !mapped) { a->hostPointer = (void *)p; return cudaSuccess; }
    a->type = mapped || m->kind == DEVICE ? cudaMemoryTypeDevice
              : m->kind == PINNED         ? cudaMemoryTypeHost
                                          : cudaMemoryTypeManaged;
    a->devicePointer = (void *)p;
    a->hostPointer = a->type == cudaMemoryTypeDevice ? NULL : (void *)p;
    return cudaSuccess;
}

int simulator_is_pinned(const void *p) {
    const memory *const m = memory_at(p);
    return m && m->kind == PINNED;
}

/* What one side of a copy is, and whether all its bytes are there. */
enum side_kind { SIDE_PAGEABLE, SIDE_PINNED, SIDE_MANAGED, SIDE_DEVICE };
struct side {
    side_kind kind;
    int device;
};
static bool side_of(const void *p, size_t bytes, const char *what, side *out) {
    const memory *const m = memory_at(p);
    out->device = device_now;
    if (m && (bytes || p != m->start + m->bytes)) {
        const size_t offset = (size_t)((const unsigned char *)p - m->start);
        out->kind = m->kind == DEVICE ? SIDE_DEVICE : m->kind == PINNED ? SIDE_PINNED : SIDE_MANAGED;
        out->device = m->device;
        if (bytes <= m->bytes - offset) return true;
        finding(NULL, 0, "%s: %zu bytes at offset %zu of a block of %zu", what, bytes, offset, m->bytes);
        return false;
    }
    out->kind = is_mapped(p, 1) ? SIDE_DEVICE : SIDE_PAGEABLE;
    if (out->kind == SIDE_DEVICE && !is_mapped(p, bytes)) {
        finding(NULL, 0, "%s: not all of %zu bytes are mapped", what, bytes);
        return false;
    }
    if (out->kind == SIDE_PAGEABLE && is_poisoned(p, bytes)) {
        finding(NULL, 0, "%s: %zu bytes on the host that are not all there", what, bytes);
        return false;
    }
    return true;
}
static bool direction_fits(enum cudaMemcpyKind kind, const side *to, const side *from) {
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if ((unsigned)kind > cudaMemcpyDefault) return false;
    if (kind == cudaMemcpyDefault) return true;
    if ((to_device ? to->kind == SIDE_PAGEABLE : to->kind == SIDE_DEVICE) ||
        (from_device ? from->kind == SIDE_PAGEABLE : from->kind == SIDE_DEVICE)) {
        finding(NULL, 0, "a copy whose cudaMemcpyKind is not what its pointers are");
        return false;
    }
    return true;
}
/* A copy of rows; waits for it when `wait`, or when CUDA does: to pageable memory. */
static cudaError_t copy(operation *o, enum cudaMemcpyKind kind, cudaStream_t stream, bool wait) {
    if (call_fails()) return told(cudaErrorInvalidValue);
    CUstream_st *const s = stream_of(stream);
    side to, from;
    if (!s) return told(cudaErrorInvalidResourceHandle);
    if (!o->bytes || !o->rows) return cudaSuccess;
    if (!o->to || !o->from) return told(cudaErrorInvalidValue);
    const size_t to_bytes = (o->rows - 1) * o->to_pitch + o->bytes,
                 from_bytes = (o->rows - 1) * o->from_pitch + o->bytes;
    if (!side_of(o->to, to_bytes, "copy: destination", &to) || !side_of(o->from, from_bytes, "copy: source", &from))
        return told(cudaErrorInvalidValue);
    if (!direction_fits(kind, &to, &from)) return told(cudaErrorInvalidMemcpyDirection);
    if (from.kind == SIDE_PAGEABLE && !wait) { /* read now; from pinned memory when it runs */
        o->staged = (unsigned char *)malloc(from_bytes);
        if (!o->staged) return told(cudaErrorMemoryAllocation);
        bytes_copy(o->staged, o->from, from_bytes);
    }
    const uint64_t sequence = stream_add(s, o);
    if (wait || to.kind == SIDE_PAGEABLE) stream_await(s, sequence);
    return cudaSuccess;
}
static operation copy_operation(void *to, const void *from, size_t bytes, size_t rows, size_t to_pitch,
                                size_t from_pitch) {
    operation o = operation_new(operation::COPY);
    o.to = (unsigned char *)to;
    o.from = (const unsigned char *)from;
    o.bytes = bytes;
    o.rows = rows;
    o.to_pitch = to_pitch;
    o.from_pitch = from_pitch;
    return o;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    operation o = copy_operation(to, from, bytes, 1, bytes, bytes);
    return copy(&o, kind, NULL, true);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    operation o = copy_operation(to, from, bytes, 1, bytes, bytes);
    return copy(&o, kind, stream, false);
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
    operation o = copy_operation(to, from, width, height, to_pitch, from_pitch);
    if (width > to_pitch || width > from_pitch) o.to = NULL; /* refused there */
    return copy(&o, kind, stream, false);
}
static cudaError_t fill(void *p, int value, size_t bytes, cudaStream_t stream, bool wait) {
    if (call_fails()) return told(cudaErrorInvalidValue);
    CUstream_st *const s = stream_of(stream);
    side to;
    if (!s || (!wait && s->device != device_now)) return told(cudaErrorInvalidResourceHandle);
    if (!bytes) return cudaSuccess;
    if (!p || !side_of(p, bytes, "cudaMemset", &to)) return told(cudaErrorInvalidValue);
    if (to.kind == SIDE_PAGEABLE) {
        finding(NULL, 0, "cudaMemset: %p is no device memory", p);
        return told(cudaErrorInvalidValue);
    }
    operation o = operation_new(operation::SET);
    o.to = (unsigned char *)p;
    o.value = value;
    o.bytes = bytes;
    const uint64_t sequence = stream_add(s, &o);
    if (wait) stream_await(s, sequence);
    return cudaSuccess;
}
cudaError_t cudaMemset(void *p, int value, size_t bytes) { return fill(p, value, bytes, NULL, true); }
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
    return fill(p, value, bytes, stream, false);
}

static bool is_managed(const void *p, size_t bytes, int device) {
    const memory *const m = memory_at(p);
    return m && m->kind == MANAGED && bytes <= m->bytes - (size_t)((const unsigned char *)p - m->start) &&
           (device == cudaCpuDeviceId || (device >= 0 && device < machine.devices));
}
cudaError_t simulator_i_prefetch(const void *p, size_t bytes, int device, cudaStream_t stream) {
    if (call_fails() || !is_managed(p, bytes, device)) return told(cudaErrorInvalidValue);
    return stream_of(stream) ? cudaSuccess : told(cudaErrorInvalidResourceHandle);
}
cudaError_t simulator_i_advise(const void *p, size_t bytes, enum cudaMemoryAdvise advice, int device) {
    const bool known = advice >= cudaMemAdviseSetReadMostly && advice <= cudaMemAdviseUnsetAccessedBy;
    if (advice == cudaMemAdviseSetReadMostly || advice == cudaMemAdviseUnsetReadMostly)
        device = cudaCpuDeviceId; /* ignored */
    return call_fails() || !known || !is_managed(p, bytes, device) ? told(cudaErrorInvalidValue) : cudaSuccess;
}

/* ---- the runtime: streams and events ----------------------------------------------------------------------------- */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    if (call_fails()) return told(cudaErrorMemoryAllocation);
    if (!out || flags > cudaStreamNonBlocking) return told(cudaErrorInvalidValue);
    *out = stream_new(device_now, flags, false);
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *out) { return cudaStreamCreateWithFlags(out, cudaStreamDefault); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { /* what is queued still runs, some time */
    CUstream_st *const s = stream_of(stream);
    if (!s || s->is_default) return told(cudaErrorInvalidResourceHandle);
    s->destroyed = true;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (call_fails()) return told(cudaErrorUnknown);
    CUstream_st *const s = stream_of(stream);
    if (!s) return told(cudaErrorInvalidResourceHandle);
    if (capture_forbids("cudaStreamSynchronize")) return told(cudaErrorStreamCaptureUnsupported);
    stream_await(s, operations);
    return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode) {
    CUstream_st *const s = stream_of(stream);
    if (call_fails() || !s) return told(cudaErrorInvalidValue);
    if (s->is_default || capturing) return told(cudaErrorStreamCaptureUnsupported);
    s->capture = capturing = new CUgraph_st();
    graphs.push_back(s->capture);
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    CUstream_st *const s = stream_of(stream);
    if (call_fails() || !s || !s->capture || !graph) return told(cudaErrorInvalidValue);
    CUgraph_st *const g = s->capture;
    s->capture = capturing = NULL;
    g->graph_destroyed = g->invalid;
    *graph = g->invalid ? NULL : g;
    return g->invalid ? told(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}
static CUgraph_st *graph_of(const void *handle) {
    for (size_t i = 0; i < graphs.size(); ++i)
        if (graphs[i] == handle) return graphs[i];
    finding(NULL, 0, "a graph that was never captured");
    return NULL;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
    CUgraph_st *const g = graph_of(graph);
    if (call_fails() || !out || !g || g->graph_destroyed || flags) return told(cudaErrorInvalidValue);
    g->exec_made = true;
    *out = reinterpret_cast<cudaGraphExec_t>(g);
    return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) { /* how many alone */
    CUgraph_st *const g = graph_of(graph);
    if (call_fails() || !g || g->graph_destroyed || nodes || !count) return told(cudaErrorInvalidValue);
    *count = g->operations.size();
    return cudaSuccess;
}
static void nothing(void *) {}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    CUgraph_st *const g = graph_of(graph);
    CUstream_st *const s = stream_of(stream);
    if (call_fails() || !g || !g->exec_made || g->exec_destroyed || !s) return told(cudaErrorInvalidValue);
    for (size_t i = 0; i < g->operations.size(); ++i) {
        operation o = g->operations[i];
        if (o.kind == operation::LAUNCH) {
            o.launch.destroy = nothing; /* the graph keeps the arguments */
            launch_pointers(&o.launch, s->device);
        }
        o.destroy = NULL;
        stream_add(s, &o);
    }
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    CUgraph_st *const g = graph_of(graph);
    if (!g || g->exec_destroyed) return told(cudaErrorInvalidValue);
    g->exec_destroyed = true;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    CUgraph_st *const g = graph_of(graph);
    if (!g || g->graph_destroyed) return told(cudaErrorInvalidValue);
    g->graph_destroyed = true;
    return cudaSuccess;
}
static void graphs_free(void) {
    for (size_t i = 0; i < graphs.size(); ++i) {
        CUgraph_st *const g = graphs[i];
        if (!g->graph_destroyed || (g->exec_made && !g->exec_destroyed)) finding(NULL, 0, "a graph was not destroyed");
        for (operation &o : g->operations) {
            if (o.kind == operation::LAUNCH) o.launch.destroy(o.launch.arguments);
            if (o.destroy) o.destroy(o.argument);
        }
        delete g;
    }
    graphs.clear();
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { /* not yet; but who asks again and again gets there */
    if (call_fails()) return told(cudaErrorUnknown);
    CUstream_st *const s = stream_of(stream);
    if (!s) return told(cudaErrorInvalidResourceHandle);
    if (capture_forbids("cudaStreamQuery")) return told(cudaErrorStreamCaptureUnsupported);
    if (s->queue.empty()) return cudaSuccess;
    if (!stream_run_first(s)) others_go_on();
    return told(cudaErrorNotReady);
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device) {
    CUstream_st *const s = stream_of(stream);
    if (call_fails() || !device) return told(cudaErrorInvalidValue);
    if (!s) return told(cudaErrorInvalidResourceHandle);
    *device = s->device;
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    CUstream_st *const s = stream_of(stream);
    if (call_fails() || flags) return told(cudaErrorInvalidValue);
    if (!s || !event_exists(event)) return told(cudaErrorInvalidResourceHandle);
    if (!event->recorded) return cudaSuccess; /* nothing to wait for */
    operation o = operation_new(operation::WAIT);
    o.other = event->stream;
    o.until = event->sequence;
    stream_add(s, &o);
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    if (call_fails()) return told(cudaErrorMemoryAllocation);
    if (!out || flags > 7) return told(cudaErrorInvalidValue);
    CUevent_st *const e = new CUevent_st();
    e->device = device_now;
    e->flags = flags;
    events.push_back(e);
    *out = e;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *out) { return cudaEventCreateWithFlags(out, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    if (!event_exists(event)) return told(cudaErrorInvalidResourceHandle);
    event->destroyed = true;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (call_fails()) return told(cudaErrorUnknown);
    CUstream_st *const s = stream_of(stream);
    if (!s || !event_exists(event) || event->device != s->device) return told(cudaErrorInvalidResourceHandle);
    operation o = operation_new(operation::RECORD);
    o.event = event;
    o.version = ++event->recorded;
    event->stream = s;
    event->sequence = operations + 1; /* what stream_add() gives it */
    stream_add(s, &o);
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (call_fails()) return told(cudaErrorUnknown);
    if (!event_exists(event)) return told(cudaErrorInvalidResourceHandle);
    if (capture_forbids("cudaEventQuery")) return told(cudaErrorStreamCaptureUnsupported);
    if (event->reached == event->recorded) return cudaSuccess;
    if (!stream_run_first(event->stream)) others_go_on();
    return told(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (call_fails()) return told(cudaErrorUnknown);
    if (!event_exists(event)) return told(cudaErrorInvalidResourceHandle);
    if (capture_forbids("cudaEventSynchronize")) return told(cudaErrorStreamCaptureUnsupported);
    if (event->recorded) stream_await(event->stream, event->sequence);
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    if (call_fails() || !ms) return told(cudaErrorInvalidValue);
    if (!event_exists(start) || !event_exists(end)) return told(cudaErrorInvalidResourceHandle);
    if (!start->recorded || !end->recorded || ((start->flags | end->flags) & cudaEventDisableTiming))
        return told(cudaErrorInvalidResourceHandle);
    if (start->reached != start->recorded || end->reached != end->recorded) return told(cudaErrorNotReady);
    *ms = (float)((end->when - start->when) * 1e3);
    return cudaSuccess;
}
static cudaError_t add_function(int kind, cudaStream_t stream, int (*is_ready)(void *), void (*fn)(void *),
                                void (*destroy)(void *), void *argument) {
    if (call_fails() || !fn) return told(cudaErrorInvalidValue);
    CUstream_st *const s = stream_of(stream);
    if (!s) return told(cudaErrorInvalidResourceHandle);
    operation o = operation_new(kind);
    o.is_ready = is_ready;
    o.function = fn;
    o.destroy = destroy;
    o.argument = argument;
    stream_add(s, &o);
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *argument) {
    return add_function(operation::HOST, stream, NULL, fn, NULL, argument);
}
int simulator_host_function(void *stream, void (*fn)(void *), void (*destroy)(void *), void *argument) {
    return simulator_awaiting_function(stream, NULL, fn, destroy, argument);
}
int simulator_awaiting_function(void *stream, int (*is_ready)(void *), void (*fn)(void *), void (*destroy)(void *),
                                void *argument) {
    CUstream_st *const s = stream_of((cudaStream_t)stream);
    if (s && s->device != device_now) return told(cudaErrorInvalidResourceHandle);
    return add_function(operation::HOST_ON_DEVICE, (cudaStream_t)stream, is_ready, fn, destroy, argument);
}
} /* extern "C" */

/* ---- the driver: virtual memory ---------------------------------------------------------------------------------- */
enum : size_t { GRANULARITY = (size_t)2 << 20, POISONED_MOST = (size_t)8 << 20 };
struct physical {           /* memory without an address: a piece of one file that lies nowhere */
    size_t offset, bytes;
    int    device;
    bool   has_handle;
    int    mapped;          /* how many times; it lives as long as either */
};
static std::map<uintptr_t, size_t> reservations;
static std::vector<physical *> physicals;
static int physical_file = -1;
static size_t physical_end;

static bool is_granular(size_t bytes) { return bytes && bytes % GRANULARITY == 0; }
static CUresult driver_fails(CUresult error) { return call_fails() ? error : CUDA_SUCCESS; }
static physical *physical_of(CUmemGenericAllocationHandle handle) {
    for (size_t i = 0; i < physicals.size(); ++i)
        if ((CUmemGenericAllocationHandle)(uintptr_t)physicals[i] == handle && physicals[i]->has_handle)
            return physicals[i];
    finding(NULL, 0, "a memory handle that was released, or never created");
    return NULL;
}
static void physical_drop(physical *p) {
    if (p->has_handle || p->mapped) return;
    machine.used[p->device] -= p->bytes;
    if (fallocate(physical_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)p->offset, (off_t)p->bytes)) return;
    physicals.erase(std::find(physicals.begin(), physicals.end(), p));
    delete p;
}
/* Fresh memory is anything: NaN, where that is quickly done. */
static void physical_poison(const physical *p) {
    if (p->bytes > POISONED_MOST) return;
    void *const m = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, physical_file, (off_t)p->offset);
    if (m == MAP_FAILED) return;
    bytes_set(m, POISON_BYTE, p->bytes);
    munmap(m, p->bytes);
}
static bool is_reserved(uintptr_t start, size_t bytes) {
    std::map<uintptr_t, size_t>::iterator i = reservations.upper_bound(start);
    if (i == reservations.begin()) return false;
    --i;
    return start - i->first <= i->second && bytes <= i->second - (start - i->first);
}
static bool has_mapping(uintptr_t start, size_t bytes) { /* anywhere in there */
    std::map<uintptr_t, mapping>::iterator i = mappings.lower_bound(start);
    if (i != mappings.end() && i->first < start + bytes) return true;
    return i != mappings.begin() && (--i)->first + i->second.bytes > start;
}
extern "C" {
CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *p,
                                       CUmemAllocationGranularity_flags) {
    if (call_fails() || !granularity || !p) return CUDA_ERROR_INVALID_VALUE;
    if (p->type != CU_MEM_ALLOCATION_TYPE_PINNED || p->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (p->location.id < 0 || p->location.id >= machine.devices) return CUDA_ERROR_INVALID_DEVICE;
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr, unsigned long long flags) {
    const bool fault = malloc_fails();
    if (!out || !is_granular(bytes) || (alignment & (alignment - 1)) || flags) return CUDA_ERROR_INVALID_VALUE;
    if (fault || bytes > SIZE_MAX / 4) return CUDA_ERROR_OUT_OF_MEMORY;
    const size_t align = std::max(alignment, (size_t)GRANULARITY);
    char *const p = (char *)mmap(NULL, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    char *const start = (char *)(((uintptr_t)p + align - 1) / align * align);
    if (start > p) munmap(p, (size_t)(start - p));
    munmap(start + bytes, (size_t)(p + align - start));
    reservations[(uintptr_t)start] = bytes;
    *out = (CUdeviceptr)(uintptr_t)start;
    return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr start, size_t bytes) {
    const std::map<uintptr_t, size_t>::iterator i = reservations.find((uintptr_t)start);
    if (i == reservations.end() || i->second != bytes || has_mapping((uintptr_t)start, bytes)) {
        finding(NULL, 0, "cuMemAddressFree: not a whole reservation, or something is still mapped there");
        return CUDA_ERROR_INVALID_VALUE;
    }
    munmap((void *)(uintptr_t)start, bytes);
    reservations.erase(i);
    return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *p,
                     unsigned long long flags) {
    const bool fault = malloc_fails();
    if (!out || !p || !is_granular(bytes) || flags || p->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        p->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    const int device = p->location.id;
    if (device < 0 || device >= machine.devices) return CUDA_ERROR_INVALID_DEVICE;
    if (p->allocFlags.gpuDirectRDMACapable) return CUDA_ERROR_NOT_SUPPORTED; /* as devices without it */
    if (fault || bytes > machine.memory || machine.used[device] > machine.memory - bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (physical_file < 0) physical_file = memfd_create("simulator", 0);
    if (physical_file < 0 || ftruncate(physical_file, (off_t)(physical_end + bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
    physical *const made = new physical();
    made->offset = physical_end;
    made->bytes = bytes;
    made->device = device;
    made->has_handle = true;
    physical_end += bytes;
    machine.used[device] += bytes;
    physicals.push_back(made);
    physical_poison(made);
    *out = (CUmemGenericAllocationHandle)(uintptr_t)made;
    return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) { /* what is mapped stays until it is unmapped */
    physical *const p = physical_of(handle);
    if (!p) return CUDA_ERROR_INVALID_VALUE;
    p->has_handle = false;
    physical_drop(p);
    return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr start, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    if (driver_fails(CUDA_ERROR_INVALID_VALUE)) return CUDA_ERROR_OUT_OF_MEMORY;
    physical *const p = physical_of(handle);
    const uintptr_t at = (uintptr_t)start;
    if (!p || offset || flags || !is_granular(bytes) || bytes > p->bytes || at % GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_reserved(at, bytes)) {
        finding(NULL, 0, "cuMemMap: these addresses are not reserved");
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (has_mapping(at, bytes)) {
        finding(NULL, 0, "cuMemMap: something is mapped there already");
        return CUDA_ERROR_ALREADY_MAPPED;
    }
    if (mmap((void *)at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical_file, (off_t)p->offset) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ++p->mapped;
    mapping m = { bytes, p, false, false };
    mappings[at] = m;
    return CUDA_SUCCESS;
}
/* Whether [start, start + bytes) is made of whole mappings. */
static bool is_whole(uintptr_t start, size_t bytes) {
    while (bytes) {
        const std::map<uintptr_t, mapping>::iterator i = mappings.find(start);
        if (i == mappings.end() || i->second.bytes > bytes) return false;
        start += i->second.bytes;
        bytes -= i->second.bytes;
    }
    return true;
}
CUresult cuMemUnmap(CUdeviceptr start, size_t bytes) {
    uintptr_t at = (uintptr_t)start;
    if (!bytes || !is_whole(at, bytes)) {
        finding(NULL, 0, "cuMemUnmap: not made of whole mappings");
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (const uintptr_t end = at + bytes; at < end;) {
        const std::map<uintptr_t, mapping>::iterator i = mappings.find(at);
        physical *const p = i->second.of;
        mmap((void *)at, i->second.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        at += i->second.bytes;
        mappings.erase(i);
        --p->mapped;
        physical_drop(p);
    }
    return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr start, size_t bytes, const CUmemAccessDesc *access, size_t count) {
    if (driver_fails(CUDA_ERROR_INVALID_VALUE)) return CUDA_ERROR_INVALID_VALUE;
    uintptr_t at = (uintptr_t)start;
    if (!bytes || !access || count != 1 || access->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (access->location.id < 0 || access->location.id >= machine.devices) return CUDA_ERROR_INVALID_DEVICE;
    if (!is_whole(at, bytes)) {
        finding(NULL, 0, "cuMemSetAccess: not made of whole mappings");
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (const uintptr_t end = at + bytes; at < end; at += mappings[at].bytes) {
        if (access->location.id != mappings[at].of->device) return CUDA_ERROR_INVALID_DEVICE; /* no device has peers */
        mappings[at].readable = access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
        mappings[at].writable = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    return CUDA_SUCCESS;
}
static const struct { CUresult code; const char *name, *text; } driver_texts[] = {
    { CUDA_SUCCESS, "CUDA_SUCCESS", "no error" },
    { CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
    { CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
    { CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
    { CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
    { CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
    { CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
    { CUDA_ERROR_ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped" },
    { CUDA_ERROR_NOT_MAPPED, "CUDA_ERROR_NOT_MAPPED", "resource not mapped" },
    { CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle" },
    { CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
    { CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
    { CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error" },
};
static CUresult driver_text(CUresult error, const char **text, bool name) {
    if (!text) return CUDA_ERROR_INVALID_VALUE;
    *text = NULL;
    for (size_t i = 0; i < sizeof driver_texts / sizeof *driver_texts; ++i)
        if (driver_texts[i].code == error) *text = name ? driver_texts[i].name : driver_texts[i].text;
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGetErrorString(CUresult error, const char **text) { return driver_text(error, text, false); }
CUresult cuGetErrorName(CUresult error, const char **text) { return driver_text(error, text, true); }
CUresult cuInit(unsigned flags) { return call_fails() || flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) {
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    if (call_fails() || !device || ordinal < 0 || ordinal >= machine.devices) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *count) {
    if (call_fails() || !count) return CUDA_ERROR_INVALID_VALUE;
    *count = machine.devices;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *device) {
    if (call_fails() || !device) return CUDA_ERROR_INVALID_VALUE;
    *device = device_now;
    return CUDA_SUCCESS;
}
#define ENTRY(name) { #name, (void *)&name }
static const struct { const char *name; void *address; } driver_entries[] = {
    ENTRY(cuMemGetAllocationGranularity), ENTRY(cuMemAddressReserve), ENTRY(cuMemAddressFree), ENTRY(cuMemCreate),
    ENTRY(cuMemRelease), ENTRY(cuMemMap), ENTRY(cuMemUnmap), ENTRY(cuMemSetAccess), ENTRY(cuGetErrorString),
    ENTRY(cuGetErrorName), ENTRY(cuInit), ENTRY(cuDriverGetVersion), ENTRY(cuDeviceGet), ENTRY(cuDeviceGetCount),
    ENTRY(cuCtxGetDevice),
};
cudaError_t simulator_i_entry_point(const char *symbol, void **function, unsigned version, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *result) {
    if (call_fails() || !symbol || !function || flags > 2 || version < 10000) return told(cudaErrorInvalidValue);
    *function = NULL;
    for (size_t i = 0; i < sizeof driver_entries / sizeof *driver_entries; ++i)
        if (!strcmp(driver_entries[i].name, symbol)) *function = driver_entries[i].address;
    if (result) *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return *function || result ? cudaSuccess : told(cudaErrorSymbolNotFound);
}

/* ---- what tests ask of it ---------------------------------------------------------------------------------------- */
void simulator_schedule(int number) {
    schedule = number < 0 ? 0 : number;
    luck.seed(seed_of_all() + (uint64_t)schedule);
}
void simulator_streams(int mode, uint64_t seed) {
    (void)device_run_until(-1, operations);
    streams_mode = mode;
    streams_luck.seed(seed_of_all() + seed);
}
void simulator_fail_malloc(size_t k) { faults.malloc = k; }
void simulator_fail_launch(size_t k) { faults.launch = k; }
void simulator_fail_call(size_t k) { faults.call = k; }
void simulator_pending_error(int code) { last_error = (cudaError_t)code; }
size_t simulator_calls(void) { return faults.calls; }
size_t simulator_synchronisations(void) { return (size_t)totals.synchronisations; }
size_t simulator_launches(void) { return faults.launches; }
int simulator_only_lists(void) {
    static const bool lists = getenv("SIMULATOR_LISTS") != NULL;
    return lists;
}
void simulator_run_blocks(size_t first, size_t last) {
    (void)device_run_until(-1, operations);
    blocks_first = first;
    blocks_last = last;
}
void simulator_sparse(size_t bytes) { machine.sparse = bytes ? bytes : usual_sparse; }
void simulator_devices(int count) {
    machine.devices = std::max(0, std::min(count, (int)MAX_DEVICES));
    device_now = 0;
}
void simulator_memory(size_t bytes) { machine.memory = bytes; }
void simulator_capability(int major, int minor) {
    simulator_attribute(cudaDevAttrComputeCapabilityMajor, major);
    simulator_attribute(cudaDevAttrComputeCapabilityMinor, minor);
}
void simulator_attribute(int attribute, int value) { machine.attributes[attribute] = value; }
void simulator_compiled(int version) { machine.compiled = version; }
size_t simulator_findings(void) { return findings.count; }
const char *simulator_log(void) { return findings.log; }
void simulator_forget(void) {
    findings.count = findings.ended = 0;
    findings.places = findings.logged = 0;
    findings.log[0] = 0;
}
void simulator_quiet(int on) { findings.quiet = on != 0; }

static size_t memory_live(memory_kind kind) {
    size_t sum = 0;
    for (memory_map::iterator i = memories.begin(); i != memories.end(); ++i)
        if (i->second.kind == kind) sum += i->second.bytes;
    return sum;
}
size_t simulator_live(int what) {
    size_t n = 0;
    switch (what) {
    case LIVE_DEVICE_BYTES: return memory_live(DEVICE);
    case LIVE_PINNED_BYTES: return memory_live(PINNED);
    case LIVE_MANAGED_BYTES: return memory_live(MANAGED);
    case LIVE_STREAMS:
        for (size_t i = 0; i < streams.size(); ++i) n += !streams[i]->is_default && !streams[i]->destroyed;
        break;
    case LIVE_EVENTS: for (size_t i = 0; i < events.size(); ++i) n += !events[i]->destroyed; break;
    case LIVE_RESERVATIONS: return reservations.size();
    case LIVE_HANDLES: for (size_t i = 0; i < physicals.size(); ++i) n += physicals[i]->has_handle; break;
    case LIVE_MAPPINGS: return mappings.size();
    }
    return n;
}
static void report_leaks(void) {
    static const char *const what[LIVE_KINDS] = {
        "bytes of cudaMalloc", "bytes of cudaHostAlloc", "bytes of cudaMallocManaged", "streams", "events",
        "reserved ranges of addresses", "memory handles", "mappings"
    };
    for (int i = 0; i < LIVE_KINDS; ++i) {
        const size_t n = simulator_live(i);
        if (n) finding(NULL, 0, "leak: %zu %s at the end of a test", n, what[i]);
    }
}
static void free_everything(void) {
    while (!memories.empty()) {
        memory_check(&memories.begin()->second, NULL, 0);
        memory_free(&memories.begin()->second);
    }
    while (!mappings.empty()) cuMemUnmap((CUdeviceptr)mappings.begin()->first, mappings.begin()->second.bytes);
    while (!reservations.empty())
        cuMemAddressFree((CUdeviceptr)reservations.begin()->first, reservations.begin()->second);
    for (size_t i = physicals.size(); i-- > 0;) {
        physicals[i]->has_handle = false;
        physical_drop(physicals[i]);
    }
    for (size_t i = 0; i < streams.size(); ++i) delete streams[i];
    for (size_t i = 0; i < events.size(); ++i) delete events[i];
    streams.clear();
    events.clear();
    memset(default_streams, 0, sizeof default_streams);
}
size_t simulator_end_test(void) {
    device_await(-1);
    graphs_free();
    report_leaks();
    free_everything();
    machine.devices = usual_devices;
    device_now = 0;
    simulator_ranks(NULL, NULL);
    machine.memory = usual_memory;
    machine.sparse = usual_sparse;
    machine.attributes.clear();
    machine.compiled = 0;
    bank_conflicts = 0;
    last_error = cudaSuccess;
    faults.malloc = faults.launch = faults.call = 0;
    blocks_first = UINT64_MAX;
    blocks_last = 0;
    shared_asked.clear();
    simulator_schedule(0);
    simulator_streams(MODE_EAGER, 0);
    const size_t fresh = findings.count - findings.ended;
    findings.ended = findings.count;
    return fresh;
}
void simulator_totals(void) {
    printf("simulator: %llu launches, %llu threads, %llu synchronisations, %zu findings",
           (unsigned long long)totals.launches, (unsigned long long)totals.threads,
           (unsigned long long)totals.synchronisations, findings.count);
    printf(getenv("SIMULATOR_SEED") ? ", SIMULATOR_SEED=%s\n" : "\n", getenv("SIMULATOR_SEED"));
}
} /* extern "C" */
