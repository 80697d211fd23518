/* ranks_cut.h - ranks that share a pass by width (parts/tensor.h) or length (parts/ring.h): how a rank's model is cut,
   and what its passes send. */
#ifndef GPT_RANKS_CUT_H
#define GPT_RANKS_CUT_H

static void rank_cut(rank *r) {
    model *m = &r->e->m;

    m->cut.parts = r->o.parts;
    m->cut.rank_count = cut_ranks(&r->o);
    m->cut.rank = r->number % m->cut.rank_count;
    m->cut.comm = r->comms[OWN_CUT];
    m->cut.by_length = r->o.sequence > 0;
    m->shape.cut = &m->cut;
    m->begin_fn = tensor_add_embedding;
    m->head_fn = tensor_add_head;
    if (!m->cut.by_length) m->block_fn = tensor_add_block;
    r->ring = ring_attention(m->cut.comm);
    if (m->cut.by_length) m->shape.attention = &r->ring;
}

static uint64_t rank_segment_sends(const rank *r, size_t segment, int is_backward) {
    if (!r->o.parts) return 0;
    return (r->o.sequence ? ring_sends : tensor_sends)(&r->e->m.shape, segment, r->e->segment_count, is_backward, 0);
}

/* Bytes to the others of its pass, in a pass of a tape from segment `first` on. */
static uint64_t rank_tape_sends(const rank *r, const memopt_tape *tape, size_t first) {
    const memopt_action *actions;
    uint64_t bytes = 0;
    size_t count, i;

    actions = memopt_tape_actions(tape, &count);
    for (i = 0; i < count; ++i) {
        const int op = actions[i].op, is_backward = op == MEMOPT_ACTION_BACKWARD;

        if (is_backward || op == MEMOPT_ACTION_FORWARD || op == MEMOPT_ACTION_FORWARD_SAVE)
            bytes += rank_segment_sends(r, first + actions[i].index, is_backward);
    }
    return bytes;
}
#endif
