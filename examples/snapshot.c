/* snapshot.c - see memory as PyTorch users see theirs: write a snapshot and a trace to files.

   memory.pickle opens in PyTorch's memory viewer (pytorch.org/memory_viz); memory.json has the same fields;
   trace.json opens in ui.perfetto.dev and chrome://tracing.   Build: cc -O2 snapshot.c -o snapshot -lm
   (memopt.h and parts/ beside it or with -I)
   Usage: snapshot [FOLDER]     writes the three files there, by default into the current folder */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "parts/ledger_export.h"

/* README: snapshot */
static int write_export(const memopt_ledger *ledger, ledger_format format, const char *path) {
    FILE *file = fopen(path, "wb");
    int ok;

    if (!file) return 0;
    ok = ledger_export(ledger, format, file) == MEMOPT_OK;
    return !fclose(file) && ok;
}

/* README: end */

/* Twenty steps of twelve layers: activations at the low end, scratch at the top end, gone before the next layer. */
static int train(memopt_arena *arena, memopt_ledger *ledger) {
    const memopt_mark step_mark = memopt_arena_mark(arena);
    const memopt_mark scratch_mark = memopt_arena_mark_top(arena);
    uint32_t step, layer;

    for (step = 0; step < 20; ++step) {
        if (step) memopt_arena_rewind(arena, step_mark); /* the last step stays, to be seen in the snapshot */
        for (layer = 0; layer < 12; ++layer) {
            memopt_ledger_label(ledger, step, layer);
            if (!memopt_arena_push(arena, (size_t)(1 + layer % 3) << 20, MEMOPT_TAG_ACTIVATIONS)) return 0;
            if (!memopt_arena_push_top(arena, (size_t)512 << 10, MEMOPT_TAG_SCRATCH)) return 0;
            memopt_arena_rewind(arena, scratch_mark);
        }
    }
    return memopt_arena_check(arena) == MEMOPT_OK; /* with MEMOPT_DEBUG 2: nobody wrote to what was rewound */
}

/* The same for people: each tag's peak, what the source holds, and what a push that does not fit is told. */
static void tell(memopt_arena *arena, const memopt_ledger *ledger, memopt_tag last) {
    memopt_error error;
    memopt_tag tag;
    char text[512];

    for (tag = 0; tag <= last; ++tag) {
        const size_t peak = memopt_ledger_usage(ledger, tag).peak;

        if (peak) printf("%-12s %4.1f MiB at its peak\n", memopt_ledger_tag_name(ledger, tag), (double)peak / 1048576);
    }
    printf("reserved     %4.1f MiB\n", (double)memopt_ledger_footprint(ledger).reserved / 1048576);
    if (memopt_arena_push(arena, (size_t)64 << 20, MEMOPT_TAG_GRADIENTS)) return;
    error = memopt_arena_error(arena);
    memopt_ledger_explain(ledger, &error, text, sizeof text, NULL);
    printf("%s\n", text);
}

int main(int argc, char **argv) {
    static const char *const names[3] = { "memory.pickle", "memory.json", "trace.json" };
    static const ledger_format formats[3] = { LEDGER_SNAPSHOT_PICKLE, LEDGER_SNAPSHOT_JSON, LEDGER_TRACE_JSON };
    const char *folder = argc > 1 ? argv[1] : ".";
    memopt_source source;
    memopt_arena_desc desc = { 0 };
    memopt_arena *arena = NULL;
    memopt_ledger_desc ledger_desc = { 0 };
    memopt_ledger *ledger = NULL;
    memopt_push_options cache = { 0 };
    char path[4096];
    int i;

    ledger_desc.block_capacity = 1024; /* live blocks one by one, for the snapshot */
    ledger_desc.event_capacity = 8192; /* and what happened, for the trace */
    if (memopt_ledger_create(&ledger_desc, &ledger)) return 1;
    if (memopt_source_allocator(NULL, &source)) return 1; /* malloc; or your own, in a memopt_host */
    source.ledger = ledger;
    desc.source = &source;
    desc.capacity = (size_t)64 << 20;
    desc.ledger = ledger;
    if (memopt_arena_create(&desc, &arena)) return 1;
    if (memopt_ledger_tag_add(ledger, "kv cache", &cache.tag)) return 1;
    cache.name = "keys and values";
    if (!memopt_arena_push(arena, 20 << 20, MEMOPT_TAG_PARAMETERS)) return 1;
    if (!memopt_arena_push_with(arena, 4 << 20, &cache) || !train(arena, ledger)) return 1;
    for (i = 0; i < 3; ++i) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (!write_export(ledger, formats[i], path)) {
            fprintf(stderr, "cannot write %s\n", path);
            return 1;
        }
        printf("wrote %s\n", path);
    }
    tell(arena, ledger, cache.tag);
    memopt_arena_destroy(arena);
    memopt_ledger_destroy(ledger);
    return 0;
}
