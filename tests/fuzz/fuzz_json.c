/* fuzz_json.c - whatever the bytes, they are refused with a place among them, or what is read tiles the text: nodes
   follow each other, their subtrees end where the next begins, strings are UTF-8 and end with a NUL. */
#include "examples/finetune/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_must(int x) { if (!x) abort(); }

static void fuzz_string(const json_document *j, uint32_t node, size_t size) {
    size_t bytes, i, n;
    uint32_t code;
    const char *const text = json_string(j, node, &bytes);

    fuzz_must(text && (size_t)(text - j->text) + bytes < size && !text[bytes]);
    for (i = 0; i < bytes; i += n) fuzz_must((n = json_utf8_read(text + i, bytes - i, &code)) != 0);
}

static void fuzz_node(const json_document *j, uint32_t node, size_t size) {
    const json_kind kind = json_kind_of(j, node);
    const uint32_t next = j->nodes[node].next;
    uint32_t i, count = 0, end = node + 1;
    int64_t integer = 0;
    double real;

    fuzz_must(kind >= JSON_NULL && kind <= JSON_OBJECT && next > node && next <= j->count);
    if (kind == JSON_STRING) fuzz_string(j, node, size);
    if (kind == JSON_NUMBER && !json_integer(j, node, &integer)) /* an integer is a number */
        fuzz_must(!json_double(j, node, &real) && real - (double)integer < 2000 && (double)integer - real < 2000);
    for (i = json_first(j, node); i != JSON_NONE; i = json_next(j, node, i), ++count) {
        fuzz_must(i == end + (kind == JSON_OBJECT));
        if (kind == JSON_OBJECT) fuzz_must(json_kind_of(j, i - 1) == JSON_STRING);
        if (kind == JSON_OBJECT && count < 100) fuzz_must(json_member(j, node, json_name(j, i, NULL)) != node);
        end = j->nodes[i].next;
    }
    fuzz_must(end == next && (kind < JSON_ARRAY || count == j->nodes[node].size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *const text = (char *)malloc(size + !size);
    json_document j;
    uint32_t i;

    if (!text) abort();
    if (size) memcpy(text, data, size);
    memset(&j, 0, sizeof j);
    if (json_parse(&j, text, size)) fuzz_must(!j.count && !strncmp(j.message, "line ", 5));
    else fuzz_must(j.count && j.nodes[0].next == j.count && !j.message[0]);
    for (i = 0; i < j.count && i < 2000; ++i) fuzz_node(&j, i, size);
    json_free(&j);
    free(text);
    return 0;
}
