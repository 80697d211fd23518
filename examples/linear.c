/* linear.c - an engine's products: its loops, and the calls that take their place.

   What to see: matmul_forward() and matmul_backward() are what most engines in C have; a memopt_linear does their work,
   with wide code, threads or a BLAS. Each sum keeps its order, so that loops of fused multiply-adds give the same bits;
   the exit status says whether they do.
   Build: cc -O2 linear.c -o linear -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 192, IN = 300, OUT = 256 };

/* ---- before ---- */
static void loop_forward(float *out, const float *inp, const float *weight, const float *bias, int rows, int C,
                         int OC) {
    for (int r = 0; r < rows; ++r)
        for (int o = 0; o < OC; ++o) {
            float sum = bias ? bias[o] : 0;

            for (int i = 0; i < C; ++i) sum = fmaf(inp[r * C + i], weight[o * C + i], sum);
            out[r * OC + o] = sum;
        }
}

static void loop_backward(float *dinp, float *dweight, float *dbias, const float *dout, const float *inp,
                          const float *weight, int rows, int C, int OC) {
    for (int r = 0; r < rows; ++r)
        for (int o = 0; o < OC; ++o) {
            const float d = dout[r * OC + o];

            if (dbias) dbias[o] += d;
            for (int i = 0; i < C; ++i) {
                dinp[r * C + i] = fmaf(d, weight[o * C + i], dinp[r * C + i]);
                dweight[o * C + i] = fmaf(d, inp[r * C + i], dweight[o * C + i]);
            }
        }
}

/* ---- after ---- */
static memopt_ops ops; /* workers, a BLAS, scratch: memopt_gemm_scratch() bytes, once, for products of any shape */

static int matmul_forward(float *out, const float *inp, const float *weight, const float *bias, int rows, int C,
                          int OC) {
    memopt_linear l = { 0 }; /* zero is float32 */
    l.rows = (size_t)rows;
    l.inputs = (size_t)C;
    l.outputs = (size_t)OC;
    l.input = inp;
    l.weights = weight;
    l.bias = bias;
    l.output = out;
    return memopt_linear_forward(&ops, &l);
}

static int matmul_backward(float *dinp, float *dweight, float *dbias, const float *dout, const float *inp,
                           const float *weight, int rows, int C, int OC) {
    memopt_linear l = { 0 };
    l.rows = (size_t)rows;
    l.inputs = (size_t)C;
    l.outputs = (size_t)OC;
    l.input = inp;
    l.weights = weight;
    l.grad_output = dout;
    l.grad_input = dinp;
    l.grad_weights = dweight;
    l.grad_bias = dbias;                   /* NULL: nobody wants it */
    l.accumulate = l.accumulate_input = 1; /* as +=; 0 overwrites */
    return memopt_linear_backward(&ops, &l);
}

int main(void) {
    static float inp[ROWS * IN], weight[OUT * IN], bias[OUT], dout[ROWS * OUT], out[2][ROWS * OUT];
    static float dinp[2][ROWS * IN], dweight[2][OUT * IN], dbias[2][OUT];
    int same;

    if (memopt_random_normal(inp, ROWS * IN, 1, 0, 0, NULL) || memopt_random_normal(weight, OUT * IN, 1, 1, 0, NULL)
        || memopt_random_normal(bias, OUT, 1, 2, 0, NULL) || memopt_random_normal(dout, ROWS * OUT, 1, 3, 0, NULL))
        return 1;
    ops.scratch_bytes = memopt_gemm_scratch(ops.threads);
    ops.scratch = aligned_alloc(64, ops.scratch_bytes); /* or from an arena */
    if (!ops.scratch) return 1;

    loop_forward(out[0], inp, weight, bias, ROWS, IN, OUT);
    loop_backward(dinp[0], dweight[0], dbias[0], dout, inp, weight, ROWS, IN, OUT);
    if (matmul_forward(out[1], inp, weight, bias, ROWS, IN, OUT)
        || matmul_backward(dinp[1], dweight[1], dbias[1], dout, inp, weight, ROWS, IN, OUT))
        return 1;
    same = !memcmp(out[0], out[1], sizeof out[0]) && !memcmp(dinp[0], dinp[1], sizeof dinp[0])
        && !memcmp(dweight[0], dweight[1], sizeof dweight[0]) && !memcmp(dbias[0], dbias[1], sizeof dbias[0]);
    puts(same ? "output and gradients equal, bit for bit" : "something differs");
    free(ops.scratch);
    return same ? 0 : 1;
}
