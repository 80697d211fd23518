/* linear.c - an engine's products: its loops, and the calls that take their place.

   What to see: matmul_forward() and matmul_backward() are what most engines in C have; a memopt_linear does their work,
   with wide code, threads or a BLAS. Each sum keeps its order, so that loops of fused multiply-adds give the same bits;
   the exit status says whether they do. Then two more: a product that is no layer, by a memopt_product; and the sum of
   two streams with the norm behind it, in one pass over memory where an engine has two.
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

/* ---- beside layers ---- */
/* inp^T inp: of each two features, how they go together */
static int gram(float *out, const float *inp, int rows, int C) {
    memopt_product p = { 0 };

    p.rows = p.columns = (size_t)C;
    p.depth = (size_t)rows;
    p.left = p.right = inp;
    p.left_transposed = 1;
    p.left_stride = p.right_stride = p.result_stride = (size_t)C;
    p.result = out;
    return memopt_gemm_multiply(&p, ops.threads, ops.scratch, ops.scratch_bytes);
}

static void loop_gram(float *out, const float *inp, int rows, int C) {
    memset(out, 0, (size_t)C * (size_t)C * sizeof *out);
    for (int r = 0; r < rows; ++r)
        for (int i = 0; i < C; ++i)
            for (int k = 0; k < C; ++k) out[i * C + k] = fmaf(inp[r * C + i], inp[r * C + k], out[i * C + k]);
}

/* residual = inp + branch and normed = norm(residual), in one pass or two */
static int add_and_norm(float *residual, float *normed, const float *inp, const float *branch, int passes) {
    memopt_norm n = { 0 };

    n.rows = ROWS;
    n.width = IN;
    n.input = passes == 1 ? inp : residual;
    n.output = normed;
    if (passes == 1) return memopt_norm_residual_forward(&ops, &n, branch, residual);
    for (int i = 0; i < ROWS * IN; ++i) residual[i] = inp[i] + branch[i];
    return memopt_norm_forward(&ops, &n);
}

static int beside_layers(const float *inp, const float *branch) {
    static float products[2][IN * IN], residual[2][ROWS * IN], normed[2][ROWS * IN];
    int same;

    loop_gram(products[0], inp, ROWS, IN);
    if (gram(products[1], inp, ROWS, IN) || add_and_norm(residual[0], normed[0], inp, branch, 2)
        || add_and_norm(residual[1], normed[1], inp, branch, 1))
        return 1;
    same = !memcmp(products[0], products[1], sizeof products[0]) && !memcmp(residual[0], residual[1], sizeof residual[0])
        && !memcmp(normed[0], normed[1], sizeof normed[0]);
    puts(same ? "a product and a norm equal, too" : "a product or a norm differs");
    return !same;
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
    if (beside_layers(inp, dinp[0])) same = 0;
    free(ops.scratch);
    return same ? 0 : 1;
}
