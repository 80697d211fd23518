/* onebit_gpt.c - train_gpt's tiny network by 1-bit Adam on two ranks, threads of this process, and by Adam on the same sequences:
   400 steps at the same rate, of which the first fifth is the warm-up that sends gradients whole. The loss at the end is within 2 %
   of Adam's, and what ranks send is the formula's to the byte. Exit status 1: it is not so.
   1-bit Adam corrects no bias, so its second moment must have settled when it is frozen: beta2 is 0.95, not 0.999. */
#define main train_gpt_main
#include "../examples/train_gpt.c"
#undef main

enum { RANKS = 2, STEPS = 400, WARMUP = STEPS / 5, LAST = 20 /* steps that the loss at the end is the mean of */ };

typedef struct learner { options o; engine e; data d; size_t rank; memopt_ranks *ranks; double loss; uint64_t sent; memopt_onebit_stats stats; int wrong; } learner;

static memopt_onebit *learner_optimizer(learner *l, memopt_onebit_tensor *tensors, memopt_comm *comm) {
    memopt_onebit_desc d = { 0 }; memopt_onebit *x = NULL; size_t i;
    for (i = 0; i < l->e.m.tensor_count; ++i) {
        tensors[i].weights = (float *)l->e.m.tensors[i].weights; tensors[i].gradients = (float *)l->e.m.tensors[i].gradients;
        tensors[i].count = l->e.m.tensors[i].count;
    }
    d.kind = MEMOPT_ONEBIT_ADAM; d.comm = comm; d.freeze_step = WARMUP; d.tensors = tensors; d.tensor_count = l->e.m.tensor_count; d.error = &l->e.error;
    return said(&l->e, "1-bit Adam", memopt_onebit_open(&d, NULL, &x)) ? NULL : x;
}
static int learner_train(learner *l, memopt_comm *comm) {
    memopt_onebit_tensor *tensors = (memopt_onebit_tensor *)calloc(l->e.m.tensor_count, sizeof *tensors); size_t i;
    memopt_onebit *x = tensors ? learner_optimizer(l, tensors, comm) : NULL; memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAM); memopt_onebit_run run = { 0 };
    memopt_status s = MEMOPT_OK;
    if (!x) return 1;
    for (i = 0; i < l->e.m.tensor_count; ++i) if (init_tensor(&l->e.m, i, &l->e.m.tensors[i], l->o.seed)) return 1;
    run.groups = &group; run.group_count = 1;
    l->e.m.head.rule.scale = 1; l->e.m.head.targets = l->e.targets;
    for (i = 0; !s && i < l->o.steps; ++i) {
        l->e.m.loss = 0; group.rate = rate_at(&l->o, i); group.beta2 = 0.95;
        if (load_batch(&l->e, &l->o, &l->d, i * RANKS + l->rank, 0) || pass(&l->e)) return 1;
        if (i >= STEPS - LAST) l->loss += l->e.m.loss / LAST;
        s = memopt_onebit_step(x, &run);
        if (s) l->e.error = memopt_onebit_error(x);
    }
    l->stats = memopt_onebit_get_stats(x);
    memopt_onebit_close(x);
    free(tensors);
    return said(&l->e, "A step", s);
}
static void *learner_main(void *user) {
    learner *l = (learner *)user; memopt_comm_desc c = { 0 }; memopt_comm *comm = NULL; beside b = { 0, 0 }; memopt_ops ops = { 0 }; size_t peak; int k;
    c.transport = memopt_ranks_transport(l->ranks, l->rank);
    l->wrong = memopt_comm_create(&c, &comm) || data_open(l->o.data, l->o.vocab, l->o.context, &l->d, l->e.message, sizeof l->e.message)
            || !(peak = planned_arena(&l->o, &ops, &b, l->e.message, sizeof l->e.message)) || engine_open(&l->e, &l->o, &ops, peak, &b)
            || open_feed(&l->e, &l->o, &l->d, RANKS, l->rank, RANKS) || learner_train(l, comm);
    for (k = 0; k < 3; ++k) l->sent += memopt_comm_get_stats(comm).sent[k];
    if (l->wrong) { fprintf(stderr, "rank %zu: %s\n", l->rank, l->e.message); memopt_comm_abort(comm); }
    return NULL;
}

int main(void) {
    static char words[14][16] = { "onebit_gpt", "--quiet", "--steps", "400", "--warmup", "40", "--schedule", "cosine", "--batch", "4", "--optimizer", "adam", "--accumulate", "2" };
    static learner learners[RANKS]; static outcome exact; pthread_t threads[RANKS]; memopt_ranks_desc d = { 0 }; memopt_ranks *ranks = NULL; char *switches[14], message[400] = ""; options o;
    size_t i, r, elements = 0; uint64_t chunk, want; double adam, loss; int wrong = 0;
    for (i = 0; i < 14; ++i) switches[i] = words[i];
    if (options_parse(14, switches, &o, message, sizeof message) || run(&o, &exact, NULL)) { fprintf(stderr, "%s%s\n", message, exact.message); return 1; }
    d.rank_count = RANKS;
    if (memopt_ranks_create(&d, &ranks)) return 77;
    for (r = 0; r < RANKS; ++r) {
        learners[r].o = o; learners[r].o.accumulate = 1; learners[r].rank = r; learners[r].ranks = ranks;
        if (pthread_create(&threads[r], NULL, learner_main, &learners[r])) return 1;
    }
    for (r = 0; r < RANKS; ++r) { (void)pthread_join(threads[r], NULL); wrong |= learners[r].wrong; }
    if (wrong) return 1;
    for (adam = 0, i = STEPS - LAST; i < STEPS; ++i) adam += (double)exact.losses[i] / LAST;
    loss = (learners[0].loss + learners[1].loss) / RANKS / adam - 1;
    for (i = 0; i < learners[0].e.m.tensor_count; ++i) elements += (learners[0].e.m.tensors[i].count + 7) / 8 * 8;
    chunk = (elements / 8 + RANKS - 1) / RANKS; /* bytes, a bit an element; before the first step 64 of a comparison */
    want = (RANKS - 1) * (64 + WARMUP * (8 * 8 * chunk + 4) + (STEPS - WARMUP) * (2 * chunk + 8));
    printf("%d steps: Adam's loss %.5f, 1-bit Adam's %+.2f %%; %llu bytes sent, %llu by the formula; a compressed step %llu, in fp16 %llu\n", STEPS, adam, 100 * loss,
           (unsigned long long)learners[0].sent, (unsigned long long)want, (unsigned long long)(2 * chunk + 8) * (RANKS - 1), (unsigned long long)elements * 4 * (RANKS - 1) / RANKS);
    for (r = 0; r < RANKS; ++r) wrong |= learners[r].sent != want || learners[r].stats.exact != WARMUP || learners[r].stats.compressed != STEPS - WARMUP;
    wrong |= !(fabs(loss) < 0.02) || weights_hash(&learners[0].e.m) != weights_hash(&learners[1].e.m);
    for (r = 0; r < RANKS; ++r) { data_close(&learners[r].d); engine_close(&learners[r].e); }
    memopt_ranks_destroy(ranks);
    puts(wrong ? "NOT as it should" : "as it should");
    return wrong;
}
