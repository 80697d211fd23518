/* page_tool.c - page_tool PAGE.html CHART.svg: a page and a chart of made-up figures, for check_page.py to look at. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "../examples/gpt/page.h"
#include "../examples/parts/schedule_plot.h"

enum { RUNGS = 11, LAYERS = 12 };
/* MB by tag at the peak, tokens a second, and which rungs share their bits. */
static const struct { const char *name, *switches; double megabytes[TAGS], speed; int bits; } sample[RUNGS] = {
    { "conventional", "--keep conventional", { 4, 498, 498, 996, 9224, 9220, 0.1 }, 812, 1 },
    { "arena", "--keep arena", { 4, 498, 498, 996, 4392, 2122, 0.1 }, 841, 1 },
    { "+ checkpoints", "--keep every:1", { 4, 498, 498, 996, 151, 1682, 0.1 }, 846, 1 },
    { "+ optimizer inside backward", "--keep every:1 --fuse-step", { 4, 498, 186, 996, 151, 1682, 0.1 }, 850, 1 },
    { "+ head in chunks", "--keep every:1 --fuse-step --head chunk:512", { 4, 498, 186, 996, 151, 858, 0.1 }, 861, 1 },
    { "+ lean attention", "--keep every:1 --fuse-step --head chunk:512 --attention lean",
      { 4, 498, 186, 996, 151, 248, 0.1 }, 902, 1 },
    { "+ MLP in chunks", "--keep every:1 --fuse-step --head chunk:512 --attention lean --mlp chunk:512",
      { 4, 498, 186, 996, 151, 133, 0.1 }, 899, 1 },
    { "+ 8-bit AdamW",
      "--keep every:1 --fuse-step --head chunk:512 --attention lean --mlp chunk:512 --optimizer adamw8",
      { 4, 498, 186, 257, 151, 133, 0.1 }, 911, 2 },
    { "+ bf16 checkpoints", "... --checkpoints bf16", { 4, 498, 186, 257, 76, 133, 0.1 }, 910, 3 },
    { "+ bf16 gradients", "... --gradients bf16", { 4, 498, 93, 257, 76, 133, 0.1 }, 908, 4 },
    { "+ bf16 weights", "... --weights bf16", { 4, 249, 93, 257, 76, 133, 0.1 }, 934, 5 } };
static outcome rungs[RUNGS];
static char strip[1 << 20];

/* Forward keeps layer after layer, the head works, backward lets go; the figures given are those of the peak. */
static void moments(outcome *o, const double *mb) {
    const int steps = 4 * LAYERS + 4; int i;
    const int lets_go = mb[2] < 400; /* gradients live for a moment only */
    for (i = 0; i < steps; ++i) {
        struct moment *const m = &o->moments[i]; const int forward = i < 2 * LAYERS, turn = !forward
            && i < 2 * LAYERS + 3;
        const double done = forward ? (i / 2 + 1) / (double)LAYERS : turn ? 1 : (steps - i) / 2 / (double)LAYERS;
        size_t t;
        for (t = 0; t < TAGS; ++t) m->bytes[t] = (float)(1e6 * mb[t]);
        m->when = (float)i / (float)steps;
        m->bytes[4] *= (float)done;
        m->bytes[5] *= turn ? 1.0f : forward ? i % 2 ? 0.18f : 0.05f : i % 2 ? 0.45f : 0.3f;
        if (lets_go) m->bytes[2] *= forward ? 0.0f : turn ? 1.0f : i % 2 ? 0.95f : 0.86f;
    }
    o->moment_count = (uint32_t)steps;
}
static void fill(outcome *o, size_t rung) {
    uint32_t s, noise = 7, own = (uint32_t)(sample[rung].bits * 77); size_t t;
    memset(o, 0, sizeof *o);
    o->ok = 1;
    snprintf(o->name, sizeof o->name, "%s", sample[rung].name);
    snprintf(o->switches, sizeof o->switches, "%s", sample[rung].switches);
    for (t = 0; t < TAGS; ++t) o->predicted_peak += o->at_peak[t] = (uint64_t)(1e6 * sample[rung].megabytes[t]);
    o->measured_peak = o->predicted_peak + 900000 + 70000 * rung;
    o->parameters = 124475904; o->tokens = 4096; o->batch = 4;
    o->tokens_per_second = sample[rung].speed; o->flops_per_step = 3.5e12;
    o->weights_hash = (uint64_t)sample[rung].bits * 0x123456789abcdef;
    o->steps = o->loss_count = 60;
    o->loss_steps = 1;
    for (s = 0; s < o->loss_count; ++s) {
        noise = noise * 1664525u + 1013904223u; own = own * 1664525u + 1013904223u;
        o->losses[s] = (float)(4.2 + 6.8 * exp(-(double)s / 14) + 0.12 * ((double)(noise >> 8) / 16777216 - 0.5)
                     + 2e-4 * (sample[rung].bits - 1) * ((double)(own >> 8) / 16777216 - 0.45));
    }
    moments(o, sample[rung].megabytes);
}
static int draw_strip(void) {
    memopt_segment segments[LAYERS]; memopt_chain chain; memopt_action actions[256]; size_t i, count = 0;
    FILE *file = tmpfile(); int failed;
    memset(segments, 0, sizeof segments); memset(&chain, 0, sizeof chain);
    for (i = 0; i < LAYERS; ++i) {
        segments[i].output_bytes = segments[i].grad_bytes = 12u << 20;
        segments[i].saved_bytes = 200u << 20; segments[i].forward_cost = 1; segments[i].backward_cost = 2;
    }
    chain.segments = segments; chain.count = LAYERS; chain.input_bytes = 12u << 20;
    failed = !file || memopt_schedule_textbook(&chain, MEMOPT_SCHEDULE_EVERY, 1, actions, 256, &count)
        || schedule_plot(&chain, actions, count, PLOT_SVG, file);
    if (failed) return 1;
    rewind(file);
    strip[fread(strip, 1, sizeof strip - 1, file)] = 0;
    return fclose(file);
}
int main(int argc, char **argv) {
    const char *strips[RUNGS] = { 0 }; page p; size_t i;
    if (argc != 3 || draw_strip()) return 2;
    for (i = 0; i < RUNGS; ++i) fill(&rungs[i], i);
    strips[2] = strip;
    memset(&p, 0, sizeof p);
    p.title = "The same GPT in less and less memory";
    p.about = "GPT-2 124M, batch 4, context 1024. Made-up figures: this page is for looking at.";
    p.rungs = rungs; p.count = RUNGS; p.strips = strips;
    return page_write(argv[1], &p) || page_chart_svg(argv[2], &p);
}
