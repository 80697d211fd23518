/* recurrent.h - a GRU or LSTM over time, a few time steps to a segment of a tape. Copy it and change what you like.

   What     Input of a segment: the state that is carried, batch x hidden (an LSTM's is followed by its cells, as many).
            Output: the state some time steps later. What each time step reads is the engine's own array, and its loss
            stands aside, in a hook: the head runs once a step, in backward, and no logits are kept.
            GRU   r, z = sigmoid(x W + h U), n = tanh(x W + r (h U)), h = (1 - z) n + z h; W has the rows of r, z, n
            LSTM  i, f, o = sigmoid(x W + h U), g = tanh(x W + h U), c = f c + i g, h = o tanh(c); rows of i, f, g, o
            Both products have a bias, as in torch.nn.GRU and LSTM. Float32.
   Memory   Kept for backward, of a time step: its gates (4 batch x hidden) and its state; under a budget the tape drops
            them and runs time steps again. Scratch: gradients of the gates (GRU 6, LSTM 4 times batch x hidden) and of
            the state.
   Bits     Those of a plain loop over time, for every budget, number of steps to a segment, workers and SIMD level;
            expf() and tanhf() are your C library's.
   Metrics  The hook runs once a time step in each backward, and in evaluations: recomputed forwards count nothing
            twice. Do not count when call->calibrating is 1.
   Use      recurrent r = { 0 };
            r.kind = RECURRENT_LSTM; r.steps = 256; r.per_segment = 4; r.batch = 32; r.inputs = 64; r.hidden = 128;
            r.x = inputs; r.input_weights = w; ...                  (and the other pointers)
            r.step_fn = my_head; r.user = my_engine;
            count = recurrent_layers(&r, layers, segments);         (room for recurrent_count(&r); one r for all)
            memopt_tape_describe(layers, segments, count, &error);
            desc.chain.segments = segments; desc.chain.count = count; desc.chain.input_bytes = recurrent_state(&r);
            desc.layers = layers; desc.budget = 100 << 20;          (and the rest of a memopt_tape_desc)
            memopt_tape_create(&desc, &tape);
            memopt_tape_forward(tape, first_state); memopt_tape_backward(tape, NULL, NULL);
            The last state, memopt_tape_output(), is copied to where the next stretch of time begins: not into
            first_state before the backward is done, which reads it. Include memopt.h before this file. */
#ifndef PARTS_RECURRENT_H
#define PARTS_RECURRENT_H
#include <math.h>
#include <string.h>
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

typedef enum recurrent_kind { RECURRENT_GRU, RECURRENT_LSTM } recurrent_kind;

/* The head of a time step. `h` is its batch x hidden. In backward, once: the loss, and its gradient into grad_h, whole
   (0 where this step has none). In an evaluation grad_h is NULL. While sizes are asked for (call->describing) nothing
   may be read or written; what operators need is counted if they run with `ops`. */
typedef memopt_status recurrent_step_fn(const memopt_tape_call *call, void *user, const memopt_ops *ops, size_t step,
                                        const float *h, float *grad_h);

typedef struct recurrent { /* zero it, then set what it has */
    recurrent_kind kind;
    size_t steps, per_segment;        /* time steps: all, and of a segment, 0 = 1; the last one may have fewer */
    size_t first_segment;             /* which segment of the chain is the first of these */
    size_t batch, inputs, hidden;
    const float *x;                   /* steps x batch x inputs; yours to set before every forward */
    const float *input_weights, *hidden_weights; /* gates x hidden rows of `inputs`, and of `hidden` */
    const float *input_bias, *hidden_bias;       /* gates x hidden; NULL = none */
    float *grad_x;                    /* as x, overwritten; each of these may be NULL: not wanted */
    float *grad_input_weights, *grad_hidden_weights, *grad_input_bias, *grad_hidden_bias;
    int    accumulate;                /* 1: gradients are added onto what is there; 0: overwritten */
    int    last_has_gradient;         /* 1: the last state has a gradient, from outside or from the next segment */
    recurrent_step_fn *step_fn;       /* NULL = no loss but that of the last state */
    void  *user;
    memopt_ops ops;                   /* threads and gemm; scratch comes from the tape */
} recurrent;

typedef struct recurrent_memory { /* of a segment */
    size_t first, count;              /* time steps */
    size_t plane, kept_each;          /* elements of batch x hidden; and of `kept` from one time step to the next */
    float *states;                    /* between time steps; NULL where only the last one is wanted */
    float *kept;                      /* rows of 4 hidden: r, z, n, h U of n; or i, f, g, o */
    float *from_x, *from_h;           /* products, and in backward their gradients; LSTM: their sum, and one for both */
    float *grad, *grad_h;             /* of the state, as it goes back through time; from the hook */
} recurrent_memory;

static inline size_t recurrent_planes(const recurrent *r) {
    return r->kind == RECURRENT_LSTM ? 2 : 1;
}

static inline size_t recurrent_gates(const recurrent *r) {
    return r->kind == RECURRENT_LSTM ? 4 : 3;
}

static inline size_t recurrent_state(const recurrent *r) { /* bytes */
    return recurrent_planes(r) * r->batch * r->hidden * sizeof(float);
}

static inline size_t recurrent_count(const recurrent *r) { /* segments */
    const size_t each = r->per_segment ? r->per_segment : 1;

    return (r->steps + each - 1) / each;
}

static inline recurrent_memory recurrent_take(const memopt_tape_call *call, const recurrent *r, int backward) {
    const size_t each = r->per_segment ? r->per_segment : 1;
    const size_t plane = r->batch * r->hidden;
    const size_t wide = recurrent_gates(r) * plane * sizeof(float);
    recurrent_memory m;
    size_t kept;

    memset(&m, 0, sizeof m);
    m.first = (call->segment - r->first_segment) * each;
    m.count = r->steps - m.first < each ? r->steps - m.first : each;
    m.plane = plane;
    m.kept_each = call->saves ? 4 * plane : 0; /* nothing is saved: all time steps in one place */
    kept = (call->saves ? m.count : 1) * 4 * plane * sizeof(float);
    m.kept = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, kept);
    if (call->saves) m.states = (float *)memopt_tape_take(call, MEMOPT_TAPE_SAVED, (m.count - 1) * recurrent_state(r));
    m.from_h = m.from_x = (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, wide);
    if (r->kind == RECURRENT_GRU) m.from_h = (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, wide);
    if (backward) m.grad = (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, recurrent_state(r));
    if (backward) m.grad_h = (float *)memopt_tape_take(call, MEMOPT_TAPE_SCRATCH, plane * sizeof(float));
    if (call->describing) m.count = 1; /* all ask for the same */
    return m;
}

/* The state after `done` time steps of the segment. Without room for it, each takes the place of the one before. */
static inline float *recurrent_after(const memopt_tape_call *call, const recurrent_memory *m, size_t done,
                                     size_t planes) {
    if (!m->states || done == m->count) return (float *)call->output;
    return m->states + (done - 1) * planes * m->plane;
}

static inline memopt_linear recurrent_linear(const recurrent *r, size_t step, int of_h, const float *h) {
    memopt_linear x;

    memset(&x, 0, sizeof x);
    x.rows = r->batch;
    x.outputs = recurrent_gates(r) * r->hidden;
    x.inputs = of_h ? r->hidden : r->inputs;
    x.input = of_h || !r->x ? h : r->x + step * r->batch * r->inputs;
    x.weights = of_h ? r->hidden_weights : r->input_weights;
    x.bias = of_h ? r->hidden_bias : r->input_bias;
    x.grad_weights = of_h ? r->grad_hidden_weights : r->grad_input_weights;
    x.grad_bias = of_h ? r->grad_hidden_bias : r->grad_input_bias;
    x.accumulate = r->accumulate || step + 1 != r->steps; /* backward begins at the last time step */
    return x;
}

static inline float recurrent_sigmoid(float x) {
    return 1 / (1 + expf(-x));
}

static inline void recurrent_gru(const recurrent *r, const float *x, const float *u, float *kept, const float *before,
                                 float *after) {
    const size_t n = r->hidden;
    size_t row, i;

    for (row = 0; row < r->batch; ++row, x += 3 * n, u += 3 * n, kept += 4 * n)
        for (i = 0; i < n; ++i) {
            const size_t at = row * n + i;
            const float reset = recurrent_sigmoid(x[i] + u[i]);
            const float keep = recurrent_sigmoid(x[n + i] + u[n + i]);
            const float fresh = tanhf(x[2 * n + i] + reset * u[2 * n + i]);

            kept[i] = reset;
            kept[n + i] = keep;
            kept[2 * n + i] = fresh;
            kept[3 * n + i] = u[2 * n + i];
            after[at] = fresh + keep * (before[at] - fresh);
        }
}

/* d: the gradient of what is after; becomes that of what is before, but for what goes through the product. */
static inline void recurrent_gru_back(const recurrent *r, float *x, float *u, const float *kept, const float *before,
                                      float *d) {
    const size_t n = r->hidden;
    size_t row, i;

    for (row = 0; row < r->batch; ++row, x += 3 * n, u += 3 * n, kept += 4 * n)
        for (i = 0; i < n; ++i) {
            const size_t at = row * n + i;
            const float reset = kept[i];
            const float keep = kept[n + i];
            const float fresh = kept[2 * n + i];
            const float d_fresh = d[at] * (1 - keep) * (1 - fresh * fresh);

            u[i] = x[i] = d_fresh * kept[3 * n + i] * reset * (1 - reset);
            u[n + i] = x[n + i] = d[at] * (before[at] - fresh) * keep * (1 - keep);
            x[2 * n + i] = d_fresh;
            u[2 * n + i] = d_fresh * reset;
            d[at] *= keep;
        }
}

static inline void recurrent_lstm(const recurrent *r, const float *x, float *kept, const float *before, float *after) {
    const size_t n = r->hidden;
    const size_t cells = r->batch * n;
    size_t row, i;

    for (row = 0; row < r->batch; ++row, x += 4 * n, kept += 4 * n)
        for (i = 0; i < n; ++i) {
            const size_t at = row * n + i;

            kept[i] = recurrent_sigmoid(x[i]);
            kept[n + i] = recurrent_sigmoid(x[n + i]);
            kept[2 * n + i] = tanhf(x[2 * n + i]);
            kept[3 * n + i] = recurrent_sigmoid(x[3 * n + i]);
            after[cells + at] = kept[n + i] * before[cells + at] + kept[i] * kept[2 * n + i];
            after[at] = kept[3 * n + i] * tanhf(after[cells + at]);
        }
}

static inline void recurrent_lstm_back(const recurrent *r, float *x, const float *kept, const float *before,
                                       const float *after, float *d) {
    const size_t n = r->hidden;
    const size_t cells = r->batch * n;
    size_t row, i;

    for (row = 0; row < r->batch; ++row, x += 4 * n, kept += 4 * n)
        for (i = 0; i < n; ++i) {
            const size_t at = row * n + i;
            const float in = kept[i];
            const float keep = kept[n + i];
            const float fresh = kept[2 * n + i];
            const float out = kept[3 * n + i];
            const float shown = tanhf(after[cells + at]);
            const float d_cell = d[cells + at] + d[at] * out * (1 - shown * shown);

            x[i] = d_cell * fresh * in * (1 - in);
            x[n + i] = d_cell * before[cells + at] * keep * (1 - keep);
            x[2 * n + i] = d_cell * in * (1 - fresh * fresh);
            x[3 * n + i] = d[at] * shown * out * (1 - out);
            d[cells + at] = d_cell * keep;
        }
}

static inline memopt_status recurrent_forward(const memopt_tape_call *call) {
    const recurrent *r = (const recurrent *)call->user;
    const recurrent_memory m = recurrent_take(call, r, 0);
    const memopt_ops ops = memopt_ops_in(call, &r->ops);
    const int has_head = r->step_fn && (call->evaluating || (call->describing && !call->saves));
    const float *before = (const float *)call->input;
    memopt_status s = MEMOPT_OK;
    size_t t;

    for (t = 0; t < m.count && !s; ++t) {
        memopt_linear x = recurrent_linear(r, m.first + t, 0, NULL);
        memopt_linear h = recurrent_linear(r, m.first + t, 1, before);
        float *kept = m.kept + t * m.kept_each;
        float *after = recurrent_after(call, &m, t + 1, recurrent_planes(r));

        x.output = m.from_x;
        h.output = m.from_h;
        if (r->kind == RECURRENT_LSTM) h.residual = m.from_x;
        s = memopt_linear_forward(&ops, &x);
        if (!s) s = memopt_linear_forward(&ops, &h);
        if (!s && !call->describing && r->kind == RECURRENT_GRU)
            recurrent_gru(r, m.from_x, m.from_h, kept, before, after);
        if (!s && !call->describing && r->kind == RECURRENT_LSTM) recurrent_lstm(r, m.from_x, kept, before, after);
        if (!s && has_head) s = r->step_fn(call, r->user, &ops, m.first + t, after, NULL);
        before = after;
    }
    return s;
}

/* One time step back. */
static inline memopt_status recurrent_back(const memopt_tape_call *call, const memopt_ops *ops,
                                           const recurrent_memory *m, size_t t) {
    const recurrent *r = (const recurrent *)call->user;
    const size_t planes = recurrent_planes(r);
    const float *before = t ? recurrent_after(call, m, t, planes) : (const float *)call->input;
    const float *after = recurrent_after(call, m, t + 1, planes);
    const float *kept = m->kept + t * m->kept_each;
    memopt_linear x = recurrent_linear(r, m->first + t, 0, NULL);
    memopt_linear h = recurrent_linear(r, m->first + t, 1, before);
    memopt_status s = MEMOPT_OK;
    size_t i;

    if (r->step_fn) s = r->step_fn(call, r->user, ops, m->first + t, after, m->grad_h);
    if (s) return s;
    for (i = 0; r->step_fn && !call->describing && i < m->plane; ++i) m->grad[i] += m->grad_h[i];
    if (!call->describing && r->kind == RECURRENT_GRU)
        recurrent_gru_back(r, m->from_x, m->from_h, kept, before, m->grad);
    if (!call->describing && r->kind == RECURRENT_LSTM) recurrent_lstm_back(r, m->from_x, kept, before, after, m->grad);
    x.grad_output = m->from_x;
    h.grad_output = m->from_h;
    if (r->grad_x) x.grad_input = r->grad_x + (m->first + t) * r->batch * r->inputs;
    if (t || call->grad_input) h.grad_input = m->grad;
    h.accumulate_input = r->kind == RECURRENT_GRU; /* an LSTM's h goes nowhere but into the product */
    s = memopt_linear_backward(ops, &x);
    return s ? s : memopt_linear_backward(ops, &h);
}

static inline memopt_status recurrent_backward(const memopt_tape_call *call) {
    const recurrent *r = (const recurrent *)call->user;
    const recurrent_memory m = recurrent_take(call, r, 1);
    const memopt_ops ops = memopt_ops_in(call, &r->ops);
    memopt_status s = MEMOPT_OK;
    size_t t = m.count;

    if (!call->describing && call->grad_output) memcpy(m.grad, call->grad_output, recurrent_state(r));
    if (!call->describing && !call->grad_output) memset(m.grad, 0, recurrent_state(r));
    while (t-- > 0 && !s) s = recurrent_back(call, &ops, &m, t);
    if (!s && call->grad_input) memcpy(call->grad_input, m.grad, recurrent_state(r));
    return s;
}

/* Segments and layers of all time steps, recurrent_count() of each, but for the sizes that memopt_tape_describe() fills
   in. Returns how many. */
static inline size_t recurrent_layers(recurrent *r, memopt_tape_layer *layers, memopt_segment *segments) {
    const size_t count = recurrent_count(r);
    const size_t each = r->per_segment ? r->per_segment : 1;
    size_t i;

    for (i = 0; i < count; ++i) {
        const size_t steps = r->steps - i * each < each ? r->steps - i * each : each;

        memset(&segments[i], 0, sizeof segments[i]);
        segments[i].output_bytes = recurrent_state(r);
        if (i + 1 < count || r->last_has_gradient) segments[i].grad_bytes = recurrent_state(r);
        segments[i].forward_cost = (double)(steps * r->batch * (r->inputs + r->hidden));
        segments[i].backward_cost = 2 * segments[i].forward_cost;
        layers[i].forward_fn = recurrent_forward;
        layers[i].backward_fn = recurrent_backward;
        layers[i].user = r;
    }
    return count;
}
#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
