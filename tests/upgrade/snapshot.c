/* snapshot.c - a ledger that sees everything. What wrote its files is examples/parts/ledger_export.h now. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdio.h>

int main(void) {
    memopt_source pages; memopt_arena_desc desc = { 0 }; memopt_arena *arena; memopt_ledger *ledger; memopt_mark step_mark;
    memopt_ledger_desc ledger_desc = { 0 }; memopt_push_options cache = { 0 }; memopt_tag cache_tag;
    uint32_t step, layer;

    ledger_desc.block_capacity = 1024; /* live blocks one by one, for the snapshot */
    ledger_desc.event_capacity = 8192; /* and what happened, for the trace */
    if (memopt_ledger_create(&ledger_desc, &ledger) || memopt_source_pages(NULL, &pages)) return 1;
    pages.ledger = ledger;
    desc.source = &pages; desc.capacity = (size_t)64 << 20; desc.ledger = ledger;
    if (memopt_arena_create(&desc, &arena) || memopt_ledger_tag_add(ledger, "kv cache", &cache_tag)) return 1;
    cache.tag = cache_tag; cache.name = "keys and values";
    if (!memopt_arena_push(arena, 20 << 20, MEMOPT_TAG_PARAMETERS) || !memopt_arena_push_with(arena, 4 << 20, &cache)) return 1;
    step_mark = memopt_arena_mark(arena);
    for (step = 0; step < 20; ++step) {
        for (layer = 0; layer < 12; ++layer) {
            memopt_ledger_label(ledger, step, layer);
            if (!memopt_arena_push(arena, (size_t)(1 + layer % 3) << 20, MEMOPT_TAG_ACTIVATIONS)) return 1;
        }
        if (step + 1 < 20) memopt_arena_rewind(arena, step_mark); /* the last step stays, to be seen in the snapshot */
    }
    memopt_arena_destroy(arena);
    memopt_ledger_destroy(ledger);
    return 0;
}
