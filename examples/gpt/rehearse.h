/* rehearse.h - a BLAS has memory of its own and tells nobody how much: it goes by the products, and by how many workers are
   inside it at once. So the products are rehearsed before anything is planned, and what the process grows by is planned. */
#ifndef GPT_REHEARSE_H
#define GPT_REHEARSE_H

/* OpenBLAS lends each call that is inside it a buffer, always the first that is free. While those before are held, a
   call gets the next one. These two are not in its header, but LAPACK's part of the same library calls them; a build that
   hides them is treated like any other BLAS. */
#if defined(TRAIN_GPT_CBLAS) && defined(OPENBLAS_CONFIG_H) && defined(__GNUC__)
extern void *blas_memory_alloc(int place) __attribute__((weak));
extern void blas_memory_free(void *buffer) __attribute__((weak));

static int buffers_are_held(void) { return blas_memory_alloc && blas_memory_free; }

static void *buffer_hold(void) { return blas_memory_alloc(0); }

static void buffer_let_go(void *buffer) { blas_memory_free(buffer); }
#else
static int buffers_are_held(void) { return 0; }

static void *buffer_hold(void) { return NULL; }

static void buffer_let_go(void *buffer) { (void)buffer; }
#endif

static void first_chunk(void *user, size_t chunk_count, memopt_task_fn *fn, void *task) {
    (void)user;
    if (chunk_count) fn(task, 0, 0);
}

/* One step of one layer, of a thousand rows a worker. Of everything only the first chunk is done, which is as large as
   any: what comes out is nonsense, and nobody looks. */
static int first_products(const options *o, const memopt_ops *ops, data *d, const beside *b, char *message, size_t n) {
    const size_t rows = 1024 * o->threads, length = o->context + (is_vit(o) ? 1 : 0);
    memopt_threads one = { 0 };
    options x = *o;
    memopt_ops mine = *ops;
    engine e;
    int wrong;
    size_t peak;

    one.run_fn = first_chunk;
    one.worker_count = (int)o->threads;
    mine.threads = &one;
    x.layers = 1;
    x.batch = least(o->batch, rows / length + 1);
    x.accumulate = least(o->accumulate, 2);
    if (x.keep != KEEP_CONVENTIONAL) x.keep = KEEP_LEAST;
    peak = planned_arena(&x, &mine, b, message, n);
    if (!peak) return 1;
    wrong = engine_open(&e, &x, &mine, peak, b) || init_scale(&e);
    if (wrong) snprintf(message, n, "%s", e.message);
    else (void)step(&e, &x, d, 0);
    engine_close(&e);
    return wrong;
}

/* The first worker's buffer, then, where that takes no time, the others'. Those that are left come in training: they are
   counted as large as the first. */
static int rehearse(const options *o, const memopt_ops *ops, data *d, beside *b, char *message, size_t n) {
    const size_t before = process_anonymous();
    const double begin = seconds_worked();
    void *held[1024];
    int wrong = first_products(o, ops, d, b, message, n);
    const int others = buffers_are_held() && (seconds_worked() - begin) * (double)o->threads < 1;
    const size_t after = process_anonymous(), each = after > before ? after - before : 0;
    size_t i;

    for (i = 0; !wrong && others && i + 1 < o->threads; ++i) {
        held[i] = buffer_hold();
        wrong = first_products(o, ops, d, b, message, n);
    }
    b->process = process_now() + each * (o->threads - 1 - i);
    while (i) buffer_let_go(held[--i]);
    b->highest = process_highest();
    return wrong;
}
#endif
