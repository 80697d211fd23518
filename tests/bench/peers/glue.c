/* glue.c - what peers.py calls of memopt, as a shared library with plain arguments. Built by run.sh. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "../../scratch.h"

static memopt_threads glue_threads; /* all calls below use them */
static memopt_thread_pool *glue_pool;
typedef struct glue_adam {
    memopt_optim_tensor tensor;
    memopt_optim_group  group;
    memopt_optim       *optim;
    size_t              state_bytes;
    void               *blocks[2]; /* as malloc gave them */
} glue_adam;

int glue_open(int workers);
const char *glue_level(void);
int glue_version(void);
void glue_adam_close(glue_adam *a);
glue_adam *glue_adam_open(int state, int is_bf16, void *weights, const void *gradients, uint64_t count, double decay);
int glue_adam_step(glue_adam *a, uint64_t t);
uint64_t glue_adam_state_bytes(const glue_adam *a);
int glue_adam_parts(glue_adam *a, void **parts);
int glue_quantize(uint8_t *codes, float *absmax, const float *src, uint64_t n, int map);
int glue_dequantize(float *dst, const uint8_t *codes, const float *absmax, uint64_t n, int map);
int glue_bf16_from_f32(uint16_t *dst, const float *src, uint64_t n);
int glue_f32_from_bf16(float *dst, const uint16_t *src, uint64_t n);
int glue_levels(int map, float *levels);
int glue_chain(uint16_t *y, const uint16_t *x, const uint16_t *residual, const uint16_t *bias, float scale, uint64_t rows, uint64_t columns,
               float rate, uint64_t step);
int glue_attention(int is_bf16, int online, uint64_t length, uint64_t heads, void *const *operands);

int glue_open(int workers) {
    const memopt_status s = memopt_thread_pool_create(NULL, workers, &glue_pool);
    if (!s) glue_threads = memopt_thread_pool_threads(glue_pool);
    return s;
}
const char *glue_level(void) { return memopt_simd_text(memopt_simd_best()); }
int glue_version(void) { return MEMOPT_VERSION; }

static void *glue_block(void **block, size_t bytes) { /* aligned to 64, and touched */
    *block = malloc(bytes + 64);
    if (!*block) return NULL;
    memset(*block, 0, bytes + 64);
    return (unsigned char *)*block + (64 - (uintptr_t)*block % 64) % 64;
}
void glue_adam_close(glue_adam *a) {
    if (!a) return;
    free(a->blocks[0]); free(a->blocks[1]); free(a);
}
/* NULL: it cannot be had. state: memopt_state_format; is_bf16: weights and gradients are bfloat16 */
glue_adam *glue_adam_open(int state, int is_bf16, void *weights, const void *gradients, uint64_t count, double decay) {
    glue_adam *a = (glue_adam *)calloc(1, sizeof *a); memopt_optim_desc d = { 0 }; size_t bytes; void *memory;
    if (!a) return NULL;
    d.kind = MEMOPT_OPTIM_ADAMW; d.state = (memopt_state_format)state; d.threads = &glue_threads;
    d.weights = is_bf16 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
    d.gradients = is_bf16 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
    d.tensors = &a->tensor; d.tensor_count = 1;
    a->tensor.weights = weights; a->tensor.gradients = gradients; a->tensor.count = (size_t)count;
    a->group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    a->group.weight_decay = decay;
    if (memopt_optim_state_bytes(&d, 0, &a->state_bytes) || memopt_optim_bytes(&d, &bytes)) goto failed;
    a->tensor.state = glue_block(&a->blocks[0], a->state_bytes);
    memory = glue_block(&a->blocks[1], bytes);
    if (!a->tensor.state || !memory || memopt_optim_create(&d, memory, bytes, &a->optim)) goto failed;
    if (!memopt_optim_state_init(a->optim, 0)) return a;
failed:
    glue_adam_close(a);
    return NULL;
}
int glue_adam_step(glue_adam *a, uint64_t t) {
    memopt_optim_run run = { 0 };
    run.step = t; run.groups = &a->group; run.group_count = 1;
    return memopt_optim_step(a->optim, &run);
}
uint64_t glue_adam_state_bytes(const glue_adam *a) { return a->state_bytes; }
/* first moments, second moments, scales of the first, of the second */
int glue_adam_parts(glue_adam *a, void **parts) {
    memopt_optim_view view; const memopt_status s = memopt_optim_state_view(a->optim, 0, &view);
    if (s) return s;
    parts[0] = view.moment[0]; parts[1] = view.moment[1]; parts[2] = view.scale[0]; parts[3] = view.scale[1];
    return MEMOPT_OK;
}

int glue_quantize(uint8_t *codes, float *absmax, const float *src, uint64_t n, int map) {
    return memopt_quantize_f32(codes, absmax, src, (size_t)n, (memopt_quant_map)map, 256, &glue_threads);
}
int glue_dequantize(float *dst, const uint8_t *codes, const float *absmax, uint64_t n, int map) {
    return memopt_dequantize_f32(dst, codes, absmax, (size_t)n, (memopt_quant_map)map, 256, &glue_threads);
}
int glue_bf16_from_f32(uint16_t *dst, const float *src, uint64_t n) {
    return memopt_bf16_from_f32(dst, src, (size_t)n, &glue_threads);
}
int glue_f32_from_bf16(float *dst, const uint16_t *src, uint64_t n) {
    return memopt_f32_from_bf16(dst, src, (size_t)n, &glue_threads);
}
int glue_levels(int map, float *levels) { return memopt_quant_levels((memopt_quant_map)map, levels); }
/* bf16: y = residual + dropout(gelu(x * scale + bias)) */
int glue_chain(uint16_t *y, const uint16_t *x, const uint16_t *residual, const uint16_t *bias, float scale, uint64_t rows, uint64_t columns,
               float rate, uint64_t step) {
    const memopt_fused_array arrays[] = { { "x", MEMOPT_TYPE_BF16, MEMOPT_FUSED_EACH, x, NULL, 0 },
        { "residual", MEMOPT_TYPE_BF16, MEMOPT_FUSED_EACH, residual, NULL, 0 }, { "bias", MEMOPT_TYPE_BF16, MEMOPT_FUSED_ROW, bias, NULL, 0 },
        { "scale", MEMOPT_TYPE_F32, MEMOPT_FUSED_ONE, &scale, NULL, 0 }, { "y", MEMOPT_TYPE_BF16, MEMOPT_FUSED_EACH, NULL, y, 0 } };
    memopt_fused f; memopt_ops o;

    memset(&f, 0, sizeof f); memset(&o, 0, sizeof o);
    f.text = rate > 0 ? "y = residual + dropout(gelu(x * scale + bias))" : "y = residual + gelu(x * scale + bias)";
    f.rows = (size_t)rows; f.columns = (size_t)columns; f.arrays = arrays; f.array_count = 5; f.rate = rate;
    f.noise = memopt_noise_make(1, step);
    o.threads = &glue_threads;
    return memopt_fused_run(&o, &f);
}
/* Causal attention, forward and backward: queries, keys, values, output, their gradients in the same order. */
int glue_attention(int is_bf16, int online, uint64_t length, uint64_t heads, void *const *operands) {
    memopt_attention a; memopt_ops o; memopt_status s; size_t bytes; void *blocks[2]; float *statistics;

    memset(&a, 0, sizeof a); memset(&o, 0, sizeof o);
    a.batch = 1; a.length = (size_t)length; a.heads = (size_t)heads; a.width = 64; a.causal = 1; a.online = online;
    a.type = is_bf16 ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F32;
    a.queries = operands[0]; a.keys = operands[1]; a.values = operands[2]; a.output = operands[3];
    a.grad_queries = operands[4]; a.grad_keys = operands[5]; a.grad_values = operands[6]; a.grad_output = operands[7];
    o.threads = &glue_threads;
    s = scratch_of_attention(&o, &a, &bytes);
    if (s) return s;
    o.scratch = glue_block(&blocks[0], bytes);
    o.scratch_bytes = bytes;
    statistics = (float *)glue_block(&blocks[1], (size_t)(length * heads) * sizeof(float));
    if (online) a.statistics = statistics;
    s = o.scratch && statistics ? memopt_attention_forward(&o, &a) : MEMOPT_ERR_MEMORY;
    if (!s) s = memopt_attention_backward(&o, &a);
    free(blocks[0]); free(blocks[1]);
    return s;
}
