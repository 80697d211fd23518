/* fuzz_plan_csv.c - whatever the text, it is refused, or it can be planned, written, and read again. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "../plan_csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static FILE *file; plan_csv csv, again; memopt_plan_options options; char *copy; size_t length, i;
    if (plan_csv_parse(&csv, (const char *)data, size)) return 0;
    memset(&options, 0, sizeof options);
    options.work = 64;
    if (csv.count < 64 && !memopt_plan_solve(csv.items, csv.count, &options, NULL, NULL)) {
        if (!file) file = tmpfile();
        if (!file) abort();
        rewind(file);
        if (plan_csv_write(&csv, file)) abort();
        length = (size_t)ftell(file);
        copy = (char *)malloc(length);
        rewind(file);
        if (!copy || fread(copy, 1, length, file) != length || plan_csv_parse(&again, copy, length)) abort();
        if (again.count != csv.count) abort();
        for (i = 0; i < csv.count; ++i)
            if (!again.items[i].fixed || again.items[i].offset != csv.items[i].offset) abort();
        plan_csv_free(&again);
        free(copy);
    }
    plan_csv_free(&csv);
    return 0;
}
