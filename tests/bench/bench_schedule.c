/* bench_schedule.c - what solving a chain costs, and what its schedules save beside the textbook's.
   The chains: an embedding, equal transformer blocks and a head, in units of one residual stream. A block's output is
   1, what its backward keeps 17, forward and backward take 1 and 2; a head, where there is one, takes 5 times that and
   keeps 85, or 11 when it works in 8 parts.
   Limit of a time: reading the table count / 3 times, as the part that ends with a segment is found from all parts that
   end before; none where blocks are equal, and share the table's rows. Limit of the memory: what was promised. Limit of a peak: that of keeping the input of every block. Tables
   and charts are for people: without --json. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "bench.h"

enum { BENCH_MOST = 512, BENCH_ACTIONS = 1 << 20, BENCH_POINTS = 1 << 16, BENCH_ROUNDS = 5 };
typedef struct bench_chain { memopt_segment segments[BENCH_MOST]; memopt_chain chain; } bench_chain;
typedef struct bench_solved { const memopt_schedule *schedule; void *memory; size_t bytes; } bench_solved;
static memopt_action bench_actions[BENCH_ACTIONS];
static memopt_schedule_point bench_points[BENCH_POINTS];

static void bench_must(memopt_status s) {
    if (!s) return;
    fprintf(stderr, "bench_schedule: %s\n", memopt_status_text(s));
    exit(1);
}
static void bench_segment(bench_chain *c, size_t output, size_t saved, double cost) {
    memopt_segment *s = &c->segments[c->chain.count++];
    s->output_bytes = output; s->saved_bytes = saved; s->grad_bytes = output;
    s->forward_cost = cost; s->backward_cost = 2 * cost;
}
static void bench_gpt(bench_chain *c, size_t blocks, size_t head) { /* head: what its backward keeps; 1 = none */
    size_t i;
    memset(c, 0, sizeof *c);
    c->chain.segments = c->segments;
    bench_segment(c, 1, 1, 0);
    for (i = 0; i < blocks; ++i) bench_segment(c, 1, 17, 1);
    bench_segment(c, 1, head, head > 1 ? 5 : 0);
    c->segments[c->chain.count - 1].grad_bytes = 0; /* the loss is in it */
}

/* ---- time and memory of the solver ---- */
static bench_solved bench_solve(const memopt_chain *chain, memopt_schedule_rule rule) {
    memopt_schedule_desc desc; bench_solved s;
    memset(&desc, 0, sizeof desc);
    desc.chain = *chain; desc.rule = rule;
    bench_must(memopt_schedule_bytes(&desc, &s.bytes));
    s.memory = memopt_i_system_alloc(NULL, s.bytes, 64);
    if (!s.memory) bench_must(MEMOPT_ERR_MEMORY);
    bench_must(memopt_schedule_solve(&desc, s.memory, s.bytes, &s.schedule));
    return s;
}
static void bench_release(bench_solved *s) { memopt_i_system_free(NULL, s->memory, s->bytes, 64); }
#if defined(MEMOPT_I_X86)
MEMOPT_I_AVX2 static uint64_t bench_read(const unsigned char *p, size_t bytes) {
    __m256i a = _mm256_setzero_si256(), b = a; size_t i;
    for (i = 0; i + 64 <= bytes; i += 64) {
        a = _mm256_xor_si256(a, _mm256_loadu_si256((const __m256i *)(const void *)(p + i)));
        b = _mm256_xor_si256(b, _mm256_loadu_si256((const __m256i *)(const void *)(p + i + 32)));
    }
    return (uint64_t)_mm256_testz_si256(a, b);
}
#else
static uint64_t bench_read(const unsigned char *p, size_t bytes) {
    uint64_t x, sum = 0; size_t i;
    for (i = 0; i + 8 <= bytes; i += 8) { memcpy(&x, p + i, 8); sum ^= x; }
    return sum;
}
#endif
static double bench_limit(const bench_solved *s, size_t n) { /* seconds; of many times, eight are measured */
    static volatile uint64_t sink; const size_t times = n / 3, measured = times < 8 ? times : 8; size_t k;
    const uint64_t start = bench_now();
    for (k = 0; k < measured; ++k) sink = sink + bench_read((const unsigned char *)s->memory, s->bytes);
    return (double)(bench_now() - start) * 1e-9 * (double)times / (double)measured;
}
/* Equal blocks, or blocks of which no two are equal. */
static void bench_time(const bench *b, const char *kind, int equal, size_t n, int rounds, double promised) {
    bench_chain c; bench_solved s; double times[BENCH_ROUNDS], limits[BENCH_ROUNDS]; char name[32]; int round; size_t i;
    bench_gpt(&c, n - 2, 1);
    for (i = 0; i < n; ++i) { /* so many bytes that all slots are of use */
        c.segments[i].output_bytes *= 1000000; c.segments[i].saved_bytes *= 1000000; c.segments[i].grad_bytes *= 1000000;
        if (!equal) c.segments[i].saved_bytes += 1000 * i;
    }
    for (round = 0; round < rounds; ++round) {
        const uint64_t start = bench_now();
        s = bench_solve(&c.chain, MEMOPT_SCHEDULE_EXTENDED);
        times[round] = (double)(bench_now() - start) * 1e-9;
        limits[round] = equal ? 0 : bench_limit(&s, n);
        bench_release(&s);
    }
    sprintf(name, "solve_%s%u", kind, (unsigned)n);
    bench_row(b, name, 1, n, bench_median(times, (size_t)rounds), "s", bench_median(limits, (size_t)rounds), 0);
    sprintf(name, "memory_%s%u", kind, (unsigned)n);
    if (promised > 0) bench_row(b, name, 1, n, (double)s.bytes / 1048576, "MiB", promised, 0);
}

/* ---- what the schedules save ---- */
static memopt_schedule_result bench_textbook(const memopt_chain *chain, memopt_schedule_rule rule, size_t every) {
    memopt_schedule_result r; size_t count;
    bench_must(memopt_schedule_textbook(chain, rule, every, bench_actions, BENCH_ACTIONS, &count));
    bench_must(memopt_schedule_simulate(chain, NULL, bench_actions, count, NULL, &r));
    return r;
}
static memopt_schedule_result bench_within(const bench_solved *s, size_t budget) {
    memopt_schedule_result r;
    bench_must(memopt_schedule_for_budget(s->schedule, budget, bench_actions, BENCH_ACTIONS, NULL, &r));
    return r;
}
static memopt_schedule_result bench_least(const bench_solved *s, double overhead) {
    memopt_schedule_result r;
    bench_must(memopt_schedule_for_overhead(s->schedule, overhead, bench_actions, BENCH_ACTIONS, NULL, &r));
    return r;
}
static double bench_percent(const memopt_schedule_result *r) { return 100 * r->extra / (r->cost - r->extra); }

typedef struct bench_rule { const char *name; memopt_schedule_rule rule; size_t every; char mark; } bench_rule;
static const bench_rule bench_rules[] = {
    { "keep all", MEMOPT_SCHEDULE_ALL, 0, 'A' },     { "every block", MEMOPT_SCHEDULE_EVERY, 1, '1' },
    { "every 2nd", MEMOPT_SCHEDULE_EVERY, 2, '2' },  { "every 3rd", MEMOPT_SCHEDULE_EVERY, 3, '3' },
    { "every 4th", MEMOPT_SCHEDULE_EVERY, 4, '4' },  { "every 6th", MEMOPT_SCHEDULE_EVERY, 6, '6' },
    { "every 8th", MEMOPT_SCHEDULE_EVERY, 8, '8' },  { "every 12th", MEMOPT_SCHEDULE_EVERY, 12, 'c' },
    { "sqrt(n)", MEMOPT_SCHEDULE_SQRT, 0, 's' } };
enum { BENCH_RULES = sizeof bench_rules / sizeof bench_rules[0] };
static void bench_table(const memopt_chain *chain, const bench_solved *best, const bench_solved *rotor) {
    const memopt_schedule_result all = bench_textbook(chain, MEMOPT_SCHEDULE_ALL, 0);
    memopt_schedule_result r, same_peak, same_time, pinned; size_t i;
    printf("  %-14s%8s%10s   %-26s%s\n", "the textbook", "peak", "overhead", "ours at that peak",
           "ours at that overhead");
    for (i = 0; i < BENCH_RULES; ++i) {
        r = bench_textbook(chain, bench_rules[i].rule, bench_rules[i].every);
        same_peak = bench_within(best, r.peak); same_time = bench_least(best, bench_percent(&r) / 100 + 1e-9);
        printf("%c %-14s%8lu%8.1f %%   overhead %4.1f %%            peak %lu\n", bench_rules[i].mark,
               bench_rules[i].name, (unsigned long)r.peak, bench_percent(&r), bench_percent(&same_peak),
               (unsigned long)same_time.peak);
    }
    printf("\n  %-14s%8s%10s%16s%12s\n", "the frontier", "budget", "peak", "overhead", "Rotor's");
    for (i = 20; i > 1; --i) {
        const size_t budget = all.peak * i / 20;
        if (budget < bench_points[0].peak) break;
        r = bench_within(best, budget); pinned = bench_within(rotor, budget);
        printf("  %13lu%%%8lu%10lu%14.1f %%%10.1f %%\n", (unsigned long)(5 * i), (unsigned long)budget,
               (unsigned long)r.peak, bench_percent(&r), bench_percent(&pinned));
    }
    r = bench_within(best, bench_points[0].peak);
    printf("  %-14s%8lu%10lu%14.1f %%\n\n", "the least", (unsigned long)bench_points[0].peak, (unsigned long)r.peak,
           bench_percent(&r));
}
/* Overhead, upwards to 51 percent, against memory. */
static void bench_chart(const memopt_chain *chain, size_t points) {
    enum { COLUMNS = 64, LINES = 18 };
    static char canvas[LINES][COLUMNS + 1]; const double most = 51;
    const memopt_schedule_result all = bench_textbook(chain, MEMOPT_SCHEDULE_ALL, 0);
    const double base = all.cost - all.extra; size_t i, line;
    memset(canvas, ' ', sizeof canvas);
    for (i = 0; i < points + BENCH_RULES; ++i) {
        size_t peak; double percent, high; char mark = '*';
        if (i < points) {
            peak = bench_points[i].peak; percent = 100 * (bench_points[i].cost / base - 1);
        } else {
            const bench_rule *rule = &bench_rules[i - points];
            const memopt_schedule_result r = bench_textbook(chain, rule->rule, rule->every);
            peak = r.peak; percent = bench_percent(&r); mark = rule->mark;
        }
        high = percent / most * (LINES - 1) + 0.5;
        if (high < LINES && peak <= all.peak) canvas[LINES - 1 - (size_t)high][COLUMNS * peak / all.peak] = mark;
    }
    printf("  more time\n");
    for (line = 0; line < LINES; ++line) {
        size_t end = COLUMNS + 1;
        while (end && canvas[line][end - 1] == ' ') --end;
        printf("%5.0f %% |%.*s\n", most * (double)(LINES - 1 - line) / (LINES - 1), (int)end, canvas[line]);
    }
    printf("        +");
    for (i = 0; i <= COLUMNS; ++i) putchar(i % 16 ? '-' : '+');
    printf("\n         0%15s%16s%16s%16s of %lu\n\n", "25 %", "50 %", "75 %", "100 %", (unsigned long)all.peak);
}
/* One forward more than keeping all, as the textbook's schedules take: the least memory. */
static void bench_quality(const bench *b, const char *name, size_t blocks, size_t head) {
    bench_chain c; bench_solved best; memopt_schedule_result every, least;
    bench_gpt(&c, blocks, head);
    best = bench_solve(&c.chain, MEMOPT_SCHEDULE_EXTENDED);
    every = bench_textbook(&c.chain, MEMOPT_SCHEDULE_EVERY, 1);
    least = bench_least(&best, bench_percent(&every) / 100 + 1e-9);
    bench_row(b, name, 1, c.chain.count, (double)least.peak, "streams", (double)every.peak, 0);
    bench_release(&best);
}
static void bench_pictures(const char *title, size_t blocks, size_t head) {
    bench_chain c; bench_solved best, rotor; size_t points;
    bench_gpt(&c, blocks, head);
    best = bench_solve(&c.chain, MEMOPT_SCHEDULE_EXTENDED); rotor = bench_solve(&c.chain, MEMOPT_SCHEDULE_ROTOR);
    bench_must(memopt_schedule_frontier(best.schedule, bench_points, BENCH_POINTS, &points));
    printf("\n%s\n", title);
    bench_table(&c.chain, &best, &rotor);
    bench_chart(&c.chain, points);
    bench_release(&best); bench_release(&rotor);
}
int main(int argc, char **argv) {
    const bench b = bench_begin(argc, argv, "schedule");
    bench_time(&b, "", 0, 24, BENCH_ROUNDS, 0);
    bench_quality(&b, "peak_24_head", 24, 85);
    bench_quality(&b, "peak_24_head_in_parts", 24, 11);
    bench_quality(&b, "peak_96", 96, 1);
    bench_time(&b, "", 0, 128, BENCH_ROUNDS, 64);
    bench_time(&b, "", 0, 512, 1, 600);
    bench_time(&b, "equal_", 1, 128, BENCH_ROUNDS, 6);
    bench_time(&b, "equal_", 1, 140, BENCH_ROUNDS, 7);
    bench_time(&b, "equal_", 1, 512, 1, 20);
    if (b.json) return 0;
    bench_pictures("24 blocks and a head", 24, 85);
    bench_pictures("24 blocks and a head that works in 8 parts", 24, 11);
    bench_pictures("96 blocks", 96, 1);
    return 0;
}
