/* head.c - a language model's last layer and its loss, without ever holding the logits.

   What to see: logits of every token are the largest thing in a small language model's step. memopt_head_loss() makes
   them a few rows at a time and turns them into loss and both gradients at once: the memory falls with the rows, and
   neither loss nor gradients change by a bit. The exit status says whether that came true.
   Build: cc -O2 head.c -o head -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 256, WIDTH = 64, VOCABULARY = 5000, PADDED = 5120, KINDS = 4 };

int main(void) {
    static const size_t chunks[KINDS] = { ROWS, 64, 16, 1 };
    static float input[ROWS * WIDTH], weights[PADDED * WIDTH], grad_input[ROWS * WIDTH], grad_weights[PADDED * WIDTH];
    static float first_input[ROWS * WIDTH], first_weights[PADDED * WIDTH];
    static int32_t targets[ROWS];
    memopt_loss loss = { 0 }, first = { 0 };
    size_t i, k;
    int same = 1;

    if (memopt_random_normal(input, ROWS * WIDTH, 1, 0, 0, NULL)
        || memopt_random_normal(weights, PADDED * WIDTH, 1, 1, 0, NULL))
        return 1;
    for (i = 0; i < PADDED * WIDTH; ++i) weights[i] *= 0.1f;
    /* one in ten is padding: ignored */
    for (i = 0; i < ROWS; ++i) targets[i] = i % 10 ? (int32_t)(i * 37 % VOCABULARY) : -1;

    printf("rows at a time   scratch KiB   loss\n");
    for (k = 0; k < KINDS; ++k) {
        /* README: head */
        /* zero is: the calling thread, the built-in product, float32 */
        memopt_ops ops = { 0 };
        memopt_head head = { 0 };
        head.rows = ROWS;
        head.width = WIDTH;
        head.vocabulary = VOCABULARY;
        head.padded = PADDED;
        head.chunk = chunks[k];
        head.input = input;
        head.weights = weights;
        head.targets = targets; /* weights: such as the token embedding */
        head.grad_input = grad_input;
        head.grad_weights = grad_weights;
        if (memopt_head_scratch(&ops, &head, &ops.scratch_bytes)) return 1;
        ops.scratch = aligned_alloc(64, (ops.scratch_bytes + 63) / 64 * 64); /* or from an arena */
        if (!ops.scratch || memopt_head_loss(&ops, &head, &loss)) return 1;
        /* README: end */
        free(ops.scratch);
        printf("%14zu %13.1f   %.6f over %zu targets\n", chunks[k], (double)ops.scratch_bytes / 1024, loss.loss,
               loss.counted);
        if (!k) {
            first = loss;
            memcpy(first_input, grad_input, sizeof grad_input);
            memcpy(first_weights, grad_weights, sizeof grad_weights);
        }
        same = same && first.loss == loss.loss && !memcmp(first_input, grad_input, sizeof grad_input)
            && !memcmp(first_weights, grad_weights, sizeof grad_weights);
    }
    puts(same ? "loss and gradients equal, bit for bit" : "something differs");
    return same ? 0 : 1;
}
