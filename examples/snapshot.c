/* snapshot.c - see memory as PyTorch users see theirs: write a snapshot and a trace to files.

   memory.pickle opens in PyTorch's memory viewer (pytorch.org/memory_viz); memory.json has the same fields;
   trace.json opens in ui.perfetto.dev and chrome://tracing.   Build: cc -O2 snapshot.c -o snapshot -lm
   Usage: snapshot [FOLDER]     writes the three files there, by default into the current folder */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdio.h>
#include <stdlib.h>

/* README: snapshot */
static int write_export(const memopt_ledger *ledger, memopt_export_format format, const char *path) {
    size_t length; char *text; FILE *file; int ok;
    (void)memopt_ledger_export(ledger, format, NULL, 0, &length); /* asks for the size */
    text = (char *)malloc(length + 1);
    if (!text || memopt_ledger_export(ledger, format, text, length + 1, NULL)) { free(text); return 0; }
    file = fopen(path, "wb");
    ok = file && fwrite(text, 1, length, file) == length;
    if (file && fclose(file)) ok = 0;
    free(text);
    return ok;
}
/* README: end */

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : ".";
    static const char *const names[3] = { "memory.pickle", "memory.json", "trace.json" };
    static const memopt_export_format formats[3] = { MEMOPT_EXPORT_SNAPSHOT_PICKLE, MEMOPT_EXPORT_SNAPSHOT_JSON, MEMOPT_EXPORT_TRACE_JSON };
    memopt_source pages; memopt_arena_desc desc = { 0 }; memopt_arena *arena = NULL; memopt_ledger *ledger = NULL;
    memopt_mark step_mark; memopt_ledger_desc ledger_desc = { 0 }; memopt_push_options cache = { 0 }; memopt_tag cache_tag;
    uint32_t step, layer; int i; char path[4096];

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
    for (i = 0; i < 3; ++i) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (!write_export(ledger, formats[i], path)) { fprintf(stderr, "cannot write %s\n", path); return 1; }
        printf("wrote %s\n", path);
    }
    memopt_arena_destroy(arena);
    memopt_ledger_destroy(ledger);
    return 0;
}
