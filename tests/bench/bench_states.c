/* bench_states.c - what 8 bits cost in accuracy: a block of 256 in which one entry, or every other one, has gradients
   much larger than the rest's. The limit of each row is bitsandbytes' rule (MEMOPT_STATE_BNB) on the same gradients.
   error_R      of the update against Adam in float64, 600 steps of normal gradients, those of the rest times R: root
                mean square over the rest, relative to the update's own; mean of five seeds
   touched_R    rows with one gradient and none after: how far they move in all, relative to float64; the worst of four
                settings (gradient at step 1 or 50, one entry or every other one large)
   first4_R     why there are no four-bit codes: the error if the first moment had them (torchao's dynamic map, nearest,
                blocks of 128) and the second moment were exact. The limit is memopt's error_R */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

enum { BENCH_BLOCK = 256, BENCH_STEPS = 600 };
typedef struct bench_setting { /* touched_at 0: every step */
    double   ratio;
    int      touched_at, half;
    uint64_t seed;
} bench_setting;
typedef struct bench_float64 { double m[BENCH_BLOCK], v[BENCH_BLOCK]; } bench_float64;

static double bench_uniform(uint64_t *state) { /* splitmix64 */
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}
static double bench_normal(uint64_t *state) {
    const double u = bench_uniform(state) + 1e-300, v = bench_uniform(state);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}
static int bench_is_large(const bench_setting *s, size_t i) { return s->half ? i % 2 == 0 : i == 0; }
static double bench_reference(bench_float64 *r, size_t i, double g, int t) { /* the update at rate 1 */
    r->m[i] = 0.9 * r->m[i] + 0.1 * g;
    r->v[i] = 0.999 * r->v[i] + 0.001 * g * g;
    return r->m[i] / (1 - pow(0.9, t)) / (sqrt(r->v[i] / (1 - pow(0.999, t))) + 1e-8);
}
static memopt_optim *bench_open(memopt_state_format format, memopt_optim_tensor *tensor) {
    static unsigned char memory[1 << 16], state[1 << 12]; memopt_optim_desc d; memopt_optim *o = NULL; memopt_status s;
    memset(&d, 0, sizeof d);
    d.kind = MEMOPT_OPTIM_ADAMW; d.state = format; d.min_quantized = 1; d.tensors = tensor; d.tensor_count = 1;
    tensor->state = state + (64 - (uintptr_t)state % 64) % 64;
    s = memopt_optim_create(&d, memory + (64 - (uintptr_t)memory % 64) % 64, sizeof memory - 64, &o);
    if (!s) s = memopt_optim_state_init(o, 0);
    if (s) { fprintf(stderr, "bench_states: %s\n", memopt_status_text(s)); exit(1); }
    return o;
}
/* Weights start each step from 0 at rate 1, so that they are the update afterwards, unrounded. */
static double bench_run(memopt_state_format format, const bench_setting *s) {
    static float weights[BENCH_BLOCK], gradients[BENCH_BLOCK]; static bench_float64 r;
    double moved[BENCH_BLOCK] = { 0 }, wanted[BENCH_BLOCK] = { 0 }, error = 0, size = 0, far = 0;
    memopt_optim_tensor tensor;
    memopt_optim *o; memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    memopt_optim_run run; uint64_t seed = s->seed; size_t i, count = 0; int t;
    memset(&tensor, 0, sizeof tensor); memset(&run, 0, sizeof run); memset(&r, 0, sizeof r);
    tensor.weights = weights; tensor.gradients = gradients; tensor.count = BENCH_BLOCK;
    o = bench_open(format, &tensor);
    group.rate = 1; group.weight_decay = 0;
    run.groups = &group; run.group_count = 1;
    for (t = 1; t <= BENCH_STEPS; ++t) {
        for (i = 0; i < BENCH_BLOCK; ++i) {
            const double g = bench_normal(&seed);
            gradients[i] = (float)(bench_is_large(s, i) ? g : s->touched_at && t != s->touched_at ? 0 : g * s->ratio);
            weights[i] = 0;
        }
        run.step = (uint64_t)t;
        if (memopt_optim_step(o, &run)) {
            fprintf(stderr, "bench_states: %s\n", memopt_optim_error(o).reason);
            exit(1);
        }
        for (i = 0; i < BENCH_BLOCK; ++i) {
            const double want = bench_reference(&r, i, (double)gradients[i], t), got = -(double)weights[i];
            moved[i] += got; wanted[i] += want;
            if (s->ratio < 1 && bench_is_large(s, i)) continue;
            error += (got - want) * (got - want); size += want * want;
        }
    }
    if (!s->touched_at) return sqrt(error / size);
    for (i = 0; i < BENCH_BLOCK; ++i)
        if (!bench_is_large(s, i)) { far += fabs(moved[i]) / fabs(wanted[i]); ++count; }
    return far / (double)count;
}
static double bench_error(memopt_state_format format, double ratio) {
    bench_setting s = { 0, 0, 0, 0 }; double sum = 0;
    s.ratio = ratio;
    for (s.seed = 1; s.seed <= 5; ++s.seed) sum += bench_run(format, &s) / 5;
    return sum;
}
static double bench_touched(memopt_state_format format, double ratio) {
    bench_setting s = { 0, 0, 0, 3 }; double worst = 0; int i;
    s.ratio = ratio;
    for (i = 0; i < 4; ++i) {
        double far;
        s.touched_at = i & 1 ? 50 : 1; s.half = i >> 1;
        far = bench_run(format, &s);
        if (far > worst) worst = far;
    }
    return worst;
}
static double bench_nearest4(double x) { /* 0 to 1 */
    static const double levels[9] = { 0, 0.0055, 0.0325, 0.0775, 0.2125, 0.4375, 0.6625, 0.8875, 1 };
    int i = 0;
    while (i < 7 && levels[i + 1] <= x) ++i;
    return x - levels[i] <= levels[i + 1] - x ? levels[i] : levels[i + 1];
}
static double bench_first4_run(double ratio, uint64_t seed) {
    enum { BLOCK = 128 };
    bench_float64 r; double m[BLOCK] = { 0 }, error = 0, size = 0; int t, i;
    memset(&r, 0, sizeof r);
    for (t = 1; t <= BENCH_STEPS; ++t) {
        double largest = 0;
        for (i = 0; i < BLOCK; ++i) {
            const double g = bench_normal(&seed) * (i ? ratio : 1), want = bench_reference(&r, (size_t)i, g, t);
            m[i] = 0.9 * m[i] + 0.1 * g; /* the update is as much too large as the moment is */
            if (fabs(m[i]) > largest) largest = fabs(m[i]);
            if (ratio < 1 && !i) continue;
            error += (want * (m[i] / r.m[i] - 1)) * (want * (m[i] / r.m[i] - 1)); size += want * want;
        }
        for (i = 0; i < BLOCK; ++i) m[i] = (m[i] < 0 ? -largest : largest) * bench_nearest4(fabs(m[i]) / largest);
    }
    return sqrt(error / size);
}
static double bench_first4(memopt_state_format format, double ratio) {
    double sum = 0; uint64_t seed;
    if (format != MEMOPT_STATE_8BIT) return bench_error(MEMOPT_STATE_8BIT, ratio); /* the limit */
    for (seed = 1; seed <= 5; ++seed) sum += bench_first4_run(ratio, seed) / 5;
    return sum;
}
int main(int argc, char **argv) {
    static const struct { const char *name; double (*measure)(memopt_state_format, double); double ratio; } rows[] = {
        { "error_1", bench_error, 1 }, { "error_1e-1", bench_error, 1e-1 }, { "error_1e-2", bench_error, 1e-2 },
        { "error_1e-3", bench_error, 1e-3 }, { "error_1e-4", bench_error, 1e-4 }, { "error_1e-5", bench_error, 1e-5 },
        { "touched_1", bench_touched, 1 }, { "touched_1e-2", bench_touched, 1e-2 },
        { "touched_1e-4", bench_touched, 1e-4 },
        { "first4_1", bench_first4, 1 }, { "first4_1e-2", bench_first4, 1e-2 }, { "first4_1e-4", bench_first4, 1e-4 } };
    bench b; size_t i;
    b.json = argc > 1 && !strcmp(argv[1], "--json");
    if (!b.json) printf("accuracy of 8-bit states, not a time; limit: bitsandbytes' rule on the same gradients\n"
        "%-28s %8s %10s %12s %-8s %12s %9s\n", "name", "threads", "n", "value", "unit", "limit", "of limit");
    for (i = 0; i < sizeof rows / sizeof rows[0]; ++i)
        bench_row(&b, rows[i].name, 1, BENCH_BLOCK, rows[i].measure(MEMOPT_STATE_8BIT, rows[i].ratio), "relative",
                  rows[i].measure(MEMOPT_STATE_BNB, rows[i].ratio), 0);
    return 0;
}
