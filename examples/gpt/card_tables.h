/* card_tables.h - the ladder of a card. It has fewer rungs than the CPU's: no conventional engine is written for a card,
   attention never holds its matrix there, and nothing of this program's goes to a disk; they are left out. Rungs that
   cut a product into pieces add the pieces up in another order than cuBLASLt, and so round elsewhere. */
#ifndef GPT_CARD_TABLES_H
#define GPT_CARD_TABLES_H
#include "apart.h"
#include "ladder.h"

static int run_alone(const options *asked, outcome *out, char **strip) {
    options o = *asked;
    size_t free_bytes = 0, total = 0;
    char message[400];

    o.lean_attention = 1; /* of every rung */
    if (!o.dry_run && !memopt_cuda_memory_available(MEMOPT_CUDA_CURRENT_DEVICE, &free_bytes, &total)
        && planned_arena(&o, message, sizeof message) > free_bytes) o.dry_run = 1; /* too large for this card */
    return run(&o, out, strip);
}

static const char in_pieces[] = "products in pieces";
static const rung rungs[] = {
    { "arena: gradients of one layer", ARENA_RUNG, ARENA_RUNG, NULL },
    { "+ checkpoints, +33 % operations", CHECKPOINTS_RUNG, ARENA_RUNG, NULL },
    { "+ step inside backward", FUSED_RUNG, CHECKPOINTS_RUNG, NULL },
    { "+ head in chunks", HEAD_RUNG, FUSED_RUNG, in_pieces },
    { "+ MLP in chunks", MLP_RUNG, HEAD_RUNG, in_pieces },
    { "+ 8-bit Adam", ADAM8_RUNG, MLP_RUNG, lossy },
    { "+ bf16: everything on", BF16_RUNG, ADAM8_RUNG, lossy },
};
static const rung ends[] = {
    { "arena: gradients of one layer", ARENA_RUNG, ARENA_RUNG, NULL },
    { "all that keeps the bits", FUSED_RUNG, ARENA_RUNG, NULL },
    { "+ chunks, 8-bit Adam, bf16: all on", BF16_RUNG, FUSED_RUNG, lossy },
};

static int ladder_main(const options *o) {
    ladder l;

    l.rungs = o->ends ? ends : rungs;
    l.count = o->ends ? sizeof ends / sizeof *ends : sizeof rungs / sizeof *rungs;
    l.where = "one card";
    l.on_card = 1;
    return ladder_run(&l, o);
}
#endif
