/* sample.h - text, a token at a time: the last tokens go through the network, and of the logits one row is asked for. */
#ifndef GPT_SAMPLE_H
#define GPT_SAMPLE_H

static int32_t draw(const float *logits, size_t n, float u) { /* u: 0 to 1 */
    double sum = 0, at = 0;
    float most_logit = logits[0];
    size_t i;
    for (i = 1; i < n; ++i)
        if (logits[i] > most_logit) most_logit = logits[i];
    for (i = 0; i < n; ++i) sum += exp((double)(logits[i] - most_logit));
    for (i = 0; i + 1 < n; ++i)
        if ((at += exp((double)(logits[i] - most_logit))) > (double)u * sum) break;
    return (int32_t)i;
}

static void sample_tell(const options *o, int32_t id) {
    if (o->vocab == 256) putchar(id);
    else printf("%d ", (int)id);
}

/* tells: 0 where another rank prints the same. */
static int sample(engine *e, const options *o, data *d, int tells) {
    enum { PROMPT = 16 };

    model *m = &e->m;
    const size_t t = m->shape.length, vocabulary = m->shape.vocabulary;
    memopt_chain chain = { 0 };
    size_t i, have = least(PROMPT, t), n;
    float u;
    int32_t *ids = (int32_t *)e->input;
    int wrong = 0;
    float unused[16];
    if (said(e, "The activations", memopt_arena_trim(e->arena)))
        return 1; /* training is over: the system has them back */
    m->head.logits = (float *)malloc(vocabulary * sizeof(float));
    if (!m->head.logits) return said(e, "The logits", MEMOPT_ERR_MEMORY);
    m->shape.batch = 1;
    m->head.chunk = least(m->head.chunk, t);
    m->head.row_count = 1;
    describe_chain(m, e->layers, e->segments);
    wrong = said(e, "A batch of one", memopt_tape_describe(e->layers, e->segments, e->segment_count, &e->error));
    chain.segments = e->segments;
    chain.count = e->segment_count;
    chain.input_bytes = input_bytes(m);
    wrong = wrong || said(e, "A batch of one", memopt_tape_reshape(e->tape, &chain)) || load_batch(e, o, d, 0, 0);
    for (i = 0; !wrong && tells && i < have; ++i) sample_tell(o, ids[i]);
    for (n = 0; !wrong && n < o->sample; ++n) {
        for (i = have; i < t; ++i) ids[i] = 0; /* behind the last one: nobody looks there */
        if (m->documents) mark_documents(e, d, ids);
        m->head.first_row = have - 1;
        wrong = said(e, "A forward", memopt_tape_evaluate(e->tape, ids, unused))
             || said(e, "A draw", memopt_random_uniform(&u, 1, o->seed, UINT64_C(1) << 62, n, NULL));
        if (wrong) break;
        if (have == t) memmove(ids, ids + 1, --have * sizeof *ids);
        ids[have] = draw(m->head.logits, vocabulary, u);
        if (tells) sample_tell(o, ids[have]);
        ++have;
    }
    if (tells) putchar('\n');
    free(m->head.logits);
    m->head.logits = NULL;
    return wrong;
}
#endif
