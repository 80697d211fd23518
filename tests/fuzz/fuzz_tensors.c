/* fuzz_tensors.c - whatever the bytes, a header is refused with a place in it, or what is read tiles the data, is found
   by its name, and is read again once it was written. The file ends with the input, or where the data would. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *take(void *user, size_t size, size_t align) {
    void *block = malloc(size + !size);
    (void)user; (void)align;
    if (!block) abort();
    return block;
}
static void give_back(void *user, void *block, size_t size, size_t align) { (void)user; (void)size; (void)align; free(block); }
/* What is read lies in a block that ends with it. */
static memopt_tensors read_header(const memopt_i_tensors_source *s, void **memory, memopt_error *error, memopt_status *status) {
    memopt_i_checks c = memopt_i_checks_begin(error, "tensors"); memopt_host host; memopt_tensors t; size_t bytes = 0;
    memset(&t, 0, sizeof t); memset(&host, 0, sizeof host);
    host.allocator.alloc_fn = take; host.allocator.free_fn = give_back;
    *status = memopt_i_tensors_read(&c, &host, s, 0, memory, &bytes, &t);
    return t;
}
static uint64_t check(const memopt_tensors *t) { /* returns where the data end */
    uint64_t end = 0; size_t i;
    for (i = 0; i < t->count; ++i) {
        const memopt_tensor *x = &t->tensors[i];
        if (x->begin != end || x->end < end || memopt_tensors_find(t, x->name) != x) abort();
        end = x->end;
    }
    for (i = 0; i < t->metadata_count; ++i)
        if (memopt_tensors_value(t, t->metadata[i].key) != t->metadata[i].value) abort();
    if (end != t->data_bytes) abort();
    return end;
}
static void write_again(const memopt_tensors *t) {
    memopt_tensors_desc d; memopt_i_tensors_source s; memopt_tensors again; memopt_status status; size_t bytes = 0, i; void *text, *memory;
    memopt_tensor *list = (memopt_tensor *)malloc(t->count * sizeof *list + 1);
    memset(&d, 0, sizeof d); memset(&s, 0, sizeof s);
    if (!list) abort();
    if (t->count) memcpy(list, t->tensors, t->count * sizeof *list);
    d.tensors = list; d.count = t->count; d.metadata = t->metadata; d.metadata_count = t->metadata_count;
    if (memopt_tensors_write(&d, NULL, 0, &bytes) != MEMOPT_ERR_BUFFER) abort();
    text = malloc(bytes);
    if (!text || memopt_tensors_write(&d, text, bytes, NULL)) abort();
    s.header = text; s.header_bytes = bytes; s.file_bytes = bytes + t->data_bytes;
    again = read_header(&s, &memory, NULL, &status);
    if (status || again.count != t->count || again.metadata_count != t->metadata_count) abort();
    (void)check(&again);
    for (i = 0; i < t->count; ++i) {
        const memopt_tensor *x = memopt_tensors_find(&again, list[i].name);
        if (!x || x->type != list[i].type || x->rank != list[i].rank || x->begin != list[i].begin || x->end != list[i].end) abort();
        if (x->rank && memcmp(x->shape, list[i].shape, x->rank * sizeof *x->shape)) abort();
    }
    for (i = 0; i < t->metadata_count; ++i)
        if (strcmp(again.metadata[i].key, t->metadata[i].key) || strcmp(again.metadata[i].value, t->metadata[i].value)) abort();
    free(memory); free(text); free(list);
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    memopt_i_tensors_source s; memopt_tensors t; memopt_error error; memopt_status status; void *memory; uint8_t *file; int again;
    if (!size) return 0;
    file = (uint8_t *)malloc(size + 7);
    if (!file) abort();
    memset(&s, 0, sizeof s); memset(&error, 0, sizeof error);
    memset(file, 0, 8);
    s.header = file;
    if (data[0] & 1) { /* the input is the file: a length of its own */
        memcpy(file, data + 1, size - 1);
        s.header_bytes = size - 1; s.file_bytes = s.header_bytes;
    } else {
        memcpy(file + 8, data + 1, size - 1);
        file[0] = (uint8_t)(size - 1); file[1] = (uint8_t)((size - 1) >> 8); file[2] = (uint8_t)((size - 1) >> 16);
        s.header_bytes = size + 7; s.file_bytes = s.header_bytes + data[0] / 2;
    }
    for (again = 0; again < 2; ++again) {
        t = read_header(&s, &memory, &error, &status);
        if (!status) {
            (void)check(&t);
            write_again(&t);
        } else if (error.status != status || !error.reason) abort();
        free(memory);
        /* once more, where all that was amiss is the number of bytes behind the header */
        if (status != MEMOPT_ERR_FORMAT || !error.argument || strcmp(error.argument, "data_bytes")) break;
        s.file_bytes += error.limit.count - error.got.count;
    }
    free(file);
    return 0;
}
