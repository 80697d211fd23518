/* tensors_tool.c - read safetensors files, print what their headers say and write them again, for check_tensors.py. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdio.h>

static void tool_text(const char *text) { /* as hexadecimal digits: it may hold anything */
    printf(" x");
    for (; *text; ++text) printf("%02x", (unsigned)(unsigned char)*text);
}
static void tool_print(const memopt_tensors *t) {
    size_t i, k;
    printf("accepted %lu %lu\n", (unsigned long)t->count, (unsigned long)t->metadata_count);
    for (i = 0; i < t->count; ++i) {
        const memopt_tensor *x = &t->tensors[i];
        printf("tensor");
        tool_text(x->name);
        printf(" %s %lu %lu", memopt_tensor_type_name(x->type), (unsigned long)x->begin, (unsigned long)x->end);
        for (k = 0; k < x->rank; ++k) printf(" %lu", (unsigned long)x->shape[k]);
        printf("\n");
    }
    for (i = 0; i < t->metadata_count; ++i) {
        printf("metadata");
        tool_text(t->metadata[i].key);
        tool_text(t->metadata[i].value);
        printf("\n");
    }
}
/* What was read, written to PATH.again with data of zeros. */
static int tool_write(const memopt_tensors *t, const char *path) {
    memopt_tensors_desc d; size_t bytes = 0; char name[1024]; unsigned char *text = NULL; FILE *file; int failed;
    memopt_tensor *list = (memopt_tensor *)malloc((t->count + 1) * sizeof *list);
    memset(&d, 0, sizeof d);
    if (!list) return 1;
    if (t->count) memcpy(list, t->tensors, t->count * sizeof *list);
    d.tensors = list; d.count = t->count; d.metadata = t->metadata; d.metadata_count = t->metadata_count;
    failed = memopt_tensors_write(&d, NULL, 0, &bytes) != MEMOPT_ERR_BUFFER || !(text = (unsigned char *)calloc(1, bytes + (size_t)t->data_bytes))
        || memopt_tensors_write(&d, text, bytes, NULL) || snprintf(name, sizeof name, "%s.again", path) >= (int)sizeof name;
    if (!failed) {
        file = fopen(name, "wb");
        failed = !file || fwrite(text, 1, bytes + (size_t)t->data_bytes, file) != bytes + (size_t)t->data_bytes;
        if (file && fclose(file)) failed = 1;
    }
    free(text); free(list);
    return failed;
}
int main(int argc, char **argv) {
    int i;
    if (argc < 2) { fputs("usage: tensors_tool FILE...   what was read is written to FILE.again\n", stderr); return 2; }
    for (i = 1; i < argc; ++i) {
        memopt_tensors *t = NULL; memopt_error error; char line[256];
        if (!memopt_tensors_open(NULL, argv[i], &t, &error)) {
            tool_print(t);
            if (tool_write(t, argv[i])) { fprintf(stderr, "tensors_tool: cannot write %s again\n", argv[i]); return 1; }
            memopt_tensors_close(t);
            continue;
        }
        memopt_error_text(&error, line, sizeof line, NULL);
        printf("refused %s\n", line);
    }
    return 0;
}
