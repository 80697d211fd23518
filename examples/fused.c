/* fused.c - a pass of your own: bias, GELU, dropout and residual in one pass over memory, from a line of text; backward
   is another line.

   What to see: activations in bf16 are read and written once, and what stands between the steps never reaches memory,
   so it is not rounded to bf16 either. The text is checked: a mistake is told with its place. The exit status says
   whether the pass has the bits of a loop that takes one step after the other.
   Build: cc -O2 fused.c -o fused -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 64, COLUMNS = 768, N = ROWS * COLUMNS };

static uint16_t x[N], residual[N], y[N], dy[N], dx[N], by_steps_y[N]; /* bf16 */
static float bias[COLUMNS], scale = 0.5f, step[N], wide[N], norms[ROWS];

/* ---- the usual way: a pass for each step, in float32 ---- */
static int by_steps(const memopt_ops *ops, memopt_noise noise) {
    memopt_activation_args gelu = { 0 };
    memopt_dropout dropout = { 0 };

    for (int i = 0; i < N; ++i) step[i] = fmaf(memopt_from_bf16(x[i]), scale, bias[i % COLUMNS]);
    gelu.n = dropout.n = N;
    gelu.activation = MEMOPT_ACTIVATION_GELU;
    gelu.input = dropout.input = step;
    gelu.output = dropout.output = step;
    dropout.rate = 0.1f;
    dropout.noise = noise;
    dropout.residual = wide;
    return memopt_f32_from_bf16(wide, residual, N, NULL) || memopt_activation_forward(ops, &gelu)
        || memopt_dropout_forward(ops, &dropout) || memopt_bf16_from_f32(by_steps_y, step, N, NULL);
}

int main(void) {
    memopt_ops ops = { 0 };
    memopt_error error = { MEMOPT_OK };
    char line[200];
    int same;
    const memopt_noise noise = memopt_noise_make(1, 2); /* in a tape: call->seed, call->stream */

    if (memopt_random_normal(step, N, 1, 0, 0, NULL) || memopt_bf16_from_f32(x, step, N, NULL)
        || memopt_random_normal(step, N, 1, 1, 0, NULL) || memopt_bf16_from_f32(residual, step, N, NULL)
        || memopt_random_normal(step, N, 1, 2, 0, NULL) || memopt_bf16_from_f32(dy, step, N, NULL)
        || memopt_random_normal(bias, COLUMNS, 1, 3, 0, NULL))
        return 1;
    ops.error = &error;

    const memopt_fused_array arrays[] = { { "x", MEMOPT_TYPE_BF16, MEMOPT_FUSED_EACH, x, NULL, 0 },
                                          { "residual", MEMOPT_TYPE_BF16, MEMOPT_FUSED_EACH, residual, NULL, 0 },
                                          { "bias", MEMOPT_TYPE_F32, MEMOPT_FUSED_ROW, bias, NULL, 0 },
                                          { "scale", MEMOPT_TYPE_F32, MEMOPT_FUSED_ONE, &scale, NULL, 0 },
                                          { "y", MEMOPT_TYPE_BF16, MEMOPT_FUSED_EACH, NULL, y, 0 } };
    memopt_fused pass = { "y = residual + dropout(gelu(x * scale + bias))", ROWS, COLUMNS, arrays, 5, 0.1f, noise, 0 };
    if (memopt_fused_run(&ops, &pass)) return 1;

    const memopt_fused_array back[] = { arrays[0],
                                        arrays[2],
                                        arrays[3],
                                        { "dy", MEMOPT_TYPE_BF16, MEMOPT_FUSED_EACH, dy, NULL, 0 },
                                        { "dx", MEMOPT_TYPE_BF16, MEMOPT_FUSED_EACH, NULL, dx, 0 },
                                        { "norms", MEMOPT_TYPE_F32, MEMOPT_FUSED_COLUMN, NULL, norms, 0 } };
    pass.text = "dx = gelu_gradient(x * scale + bias, dropout(dy)) * scale; norms = row_sum(dx * dx)";
    pass.arrays = back;
    pass.array_count = 6;
    if (memopt_fused_run(&ops, &pass)) return 1;
    printf("gradient of row 0: norm %.4f\n", sqrt((double)norms[0]));

    if (by_steps(&ops, noise)) return 1;
    same = !memcmp(y, by_steps_y, sizeof y);
    pass.text = "dx = gelu(x * scale + bais)";
    if (memopt_fused_run(&ops, &pass) && !memopt_error_text(&error, line, sizeof line, NULL)) puts(line);
    puts(same ? "y is equal, bit for bit" : "something differs");
    return same ? 0 : 1;
}
