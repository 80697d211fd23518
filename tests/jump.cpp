/* jump.cpp - an engine in C++ whose callbacks throw, over memopt.h compiled as C or as C++ (tests/check.sh exceptions).

   A tape and an arena that are owned by objects are given back while the stack unwinds; a tape that outlives the catch
   goes on after memopt_tape_cancel() with the bits of an engine that has never thrown; a rank that throws gives up, and
   the other one learns it instead of waiting for ever. */
#include "memopt.h"
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <thread>

enum { SEGMENTS = 5, WIDTH = 200 };
static int calls, throws_at, failures;
#define CHECK(x) do { if (!(x)) { ++failures; std::printf("%s:%d: %s\n", __FILE__, __LINE__, #x); } } while (0)

struct held { /* destroyed however its scope is left: this one must not run while the pass still has its memory */
    ~held() { ++destroyed; }
    static int destroyed;
};
int held::destroyed;

static memopt_status layer_run(const memopt_tape_call *call) {
    held in_the_callback;
    float *const saved = static_cast<float *>(memopt_tape_take(call, MEMOPT_TAPE_SAVED, WIDTH * sizeof(float)));
    if (call->describing) return MEMOPT_OK;
    if (++calls == throws_at) throw std::runtime_error("an operator of the engine failed");
    const float *const in = static_cast<const float *>(call->input);
    for (int i = 0; i < WIDTH; ++i) {
        if (call->is_backward) {
            static_cast<float *>(call->grad_input)[i] = 2 * in[i] * static_cast<float *>(call->grad_output)[i] + saved[i];
            continue;
        }
        static_cast<float *>(call->output)[i] = in[i] * in[i] - 0.5f;
        saved[i] = in[i] / 3;
    }
    return MEMOPT_OK;
}

struct arena_owner {
    memopt_source pages;
    memopt_arena *arena;
    arena_owner() : arena(nullptr) {
        memopt_arena_desc d;
        std::memset(&d, 0, sizeof d);
        CHECK(memopt_source_pages(NULL, &pages) == MEMOPT_OK);
        d.source = &pages;
        d.capacity = std::size_t(1) << 20;
        CHECK(memopt_arena_create(&d, &arena) == MEMOPT_OK);
    }
    ~arena_owner() { memopt_arena_destroy(arena); }
    std::size_t used() const { return memopt_arena_get_stats(arena).used_low; }
};

struct tape_owner {
    memopt_tape *tape;
    explicit tape_owner(memopt_arena *arena) : tape(nullptr) {
        memopt_tape_desc d;
        memopt_segment segments[SEGMENTS];
        std::memset(&d, 0, sizeof d);
        std::memset(segments, 0, sizeof segments);
        for (int i = 0; i < SEGMENTS; ++i) segments[i].output_bytes = segments[i].grad_bytes = WIDTH * sizeof(float);
        d.chain.segments = segments;
        d.chain.count = SEGMENTS;
        d.chain.input_bytes = d.chain.input_grad_bytes = WIDTH * sizeof(float);
        d.layer.forward_fn = d.layer.backward_fn = layer_run;
        d.arena = arena;
        d.overhead = 0.5;
        CHECK(memopt_tape_open(&d, &tape) == MEMOPT_OK);
    }
    ~tape_owner() { memopt_tape_destroy(tape); }
    void pass(float *gradient) {
        float x[WIDTH], last[WIDTH];
        for (int i = 0; i < WIDTH; ++i) { x[i] = float(i) / WIDTH; last[i] = 1; }
        calls = 0;
        CHECK(memopt_tape_forward(tape, x) == MEMOPT_OK);
        CHECK(memopt_tape_backward(tape, last, gradient) == MEMOPT_OK);
    }
};

static void tapes() {
    float good[WIDTH], gradient[WIDTH];
    arena_owner arena;
    tape_owner kept(arena.arena);
    throws_at = 0;
    kept.pass(good);
    const int count = calls;
    CHECK(count > 2 * SEGMENTS);
    for (int at = 1; at <= count; ++at) {
        throws_at = at;
        bool caught = false;
        try { tape_owner own(arena.arena); own.pass(gradient); } catch (const std::exception &) { caught = true; }
        CHECK(caught && arena.used() == 0);
        try { kept.pass(gradient); caught = false; } catch (const std::exception &) {}
        CHECK(caught && arena.used() > 0 && memopt_tape_cancel(kept.tape) == MEMOPT_OK && arena.used() == 0);
        throws_at = 0;
        kept.pass(gradient);
        CHECK(std::memcmp(good, gradient, sizeof good) == 0 && memopt_tape_get_stats(kept.tape).passes == 1 + std::uint64_t(at));
    }
    CHECK(held::destroyed > count);
}

static void rank_run(memopt_ranks *ranks, std::size_t rank, memopt_status *status) {
    memopt_comm *comm = nullptr;
    memopt_comm_desc d;
    memopt_comm_call call;
    char own = char(rank), all[2];
    std::memset(&d, 0, sizeof d);
    d.transport = memopt_ranks_transport(ranks, rank);
    CHECK(memopt_comm_create(&d, &comm) == MEMOPT_OK);
    std::memset(&call, 0, sizeof call);
    call.kind = MEMOPT_COMM_ALL_GATHER;
    call.bytes = 1;
    call.send = &own;
    call.receive = all;
    try {
        for (int i = 0; !*status; ++i) {
            if (rank == 1 && i == 3) throw std::runtime_error("this rank's work failed");
            *status = memopt_comm_run(comm, &call);
        }
    } catch (const std::exception &) { memopt_comm_abort(comm); *status = MEMOPT_ERR_DEVICE; }
    memopt_comm_destroy(comm);
}

static void ranks() {
    memopt_ranks *both = nullptr;
    memopt_ranks_desc d;
    memopt_status status[2] = { MEMOPT_OK, MEMOPT_OK };
    std::memset(&d, 0, sizeof d);
    d.rank_count = 2;
    CHECK(memopt_ranks_create(&d, &both) == MEMOPT_OK);
    std::thread other(rank_run, both, 1, &status[1]);
    rank_run(both, 0, &status[0]);
    other.join();
    CHECK(status[0] == MEMOPT_ERR_STATE && status[1] == MEMOPT_ERR_DEVICE);
    memopt_ranks_destroy(both);
}

int main() {
    tapes();
    ranks();
    return failures != 0;
}
