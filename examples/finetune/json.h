/* json.h - reads JSON (RFC 8259): config.json, tokenizer.json, model.safetensors.index.json, lines of a data set.

   A document becomes one flat array of nodes, 16 bytes each, in the order of the text; a node knows where its subtree
   ends. Strings are unescaped in place and end with a NUL, so nothing is copied. Time and memory are linear in the
   text; nesting is limited, and nothing recurses. Whatever is wrong gives 1 and a reason in `message`, with its place.

       json_document config;
       int64_t layers;
       memset(&config, 0, sizeof config);
       if (json_load(&config, "config.json")) printf("config.json: %s\n", config.message);
       else if (json_integer(&config, json_member(&config, 0, "num_hidden_layers"), &layers)) puts("no layers");
       json_free(&config);

   Copy it: C99 or C++11 and the C library are all that it needs. */
#ifndef FINETUNE_JSON_H
#define FINETUNE_JSON_H
#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum json_kind {
    JSON_MISSING, JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT
} json_kind;
#define JSON_NONE  UINT32_MAX /* no node; every function below takes it, and finds nothing in it */
#define JSON_DEPTH 64         /* arrays and objects within each other, at most */

typedef struct json_node {
    uint32_t kind;  /* json_kind */
    uint32_t begin; /* offset in the text, of what it holds */
    uint32_t size;  /* string, number: bytes of it; array: elements; object: members */
    uint32_t next;  /* the node after its subtree */
} json_node;

typedef struct json_document { /* zero it; one document after the other may be read into it; json_free at the end */
    char *text;
    json_node *nodes;          /* node 0 is the whole; in an object, a member's name stands right before its value */
    uint32_t count, capacity;
    char *file;                /* the bytes that json_load read */
    char message[128];         /* without the path */
} json_document;

/** Read `bytes` bytes at `text`, which are changed and have to stay while the document is used. At most 4 GiB.
    0, or 1 with a message. Of members with one name, json_member finds the last, as Python does. */
static inline int json_parse(json_document *j, char *text, size_t bytes);
/** The same with a file's bytes, which the document owns. */
static inline int json_load(json_document *j, const char *path);
static inline void json_free(json_document *j);

static inline json_kind json_kind_of(const json_document *j, uint32_t node);
/** Value of a member, found from the first on: for a few names; to look up thousands, go through all once. */
static inline uint32_t json_member(const json_document *j, uint32_t object, const char *name);
/** The first element or member's value, and the next; JSON_NONE at the end.
        for (i = json_first(j, list); i != JSON_NONE; i = json_next(j, list, i)) */
static inline uint32_t json_first(const json_document *j, uint32_t container);
static inline uint32_t json_next(const json_document *j, uint32_t container, uint32_t node);
/** The name of a member that one of these returned; the rest as with json_string. */
static inline const char *json_name(const json_document *j, uint32_t value, size_t *bytes);
/** NULL: it is no string. *bytes (may be NULL) receives the length; a NUL can be among them, and one more follows. */
static inline const char *json_string(const json_document *j, uint32_t node, size_t *bytes);
/** Whether it is the string `text`. */
static inline int json_is(const json_document *j, uint32_t node, const char *text);
/** 0, or 1 and *out as it was: it is no number, or one with a point or an exponent, or beyond int64_t. */
static inline int json_integer(const json_document *j, uint32_t node, int64_t *out);
/** 0, or 1 and *out as it was: it is no number, has more than 300 characters, or is infinite as a double. */
static inline int json_double(const json_document *j, uint32_t node, double *out);
/** The file's bytes, with a NUL behind them, from malloc. Returns NULL, or why not. */
static inline const char *json_file_bytes(const char *path, char **text, size_t *bytes);
/** The code point at p, of 1 to 4 bytes, which are returned; 0: what stands there is no UTF-8. */
static inline size_t json_utf8_read(const char *p, size_t left, uint32_t *code);
/** Writes a code point; returns its 1 to 4 bytes. */
static inline size_t json_utf8_write(char *out, uint32_t code);

/* ---- UTF-8 ---- */
static inline size_t json_utf8_read(const char *p, size_t left, uint32_t *code) {
    static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    const unsigned char *const u = (const unsigned char *)p;
    size_t n, i;
    uint32_t c;

    if (!left) return 0;
    n = u[0] < 0x80 ? 1 : u[0] < 0xC2 ? 0 : u[0] < 0xE0 ? 2 : u[0] < 0xF0 ? 3 : u[0] < 0xF5 ? 4 : 0;
    if (!n || n > left) return 0;
    c = n == 1 ? u[0] : u[0] & (0x7Fu >> n);
    for (i = 1; i < n; ++i) {
        if ((u[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | (u[i] & 0x3Fu);
    }
    if (c < least[n] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return 0;
    *code = c;
    return n;
}

static inline size_t json_utf8_write(char *out, uint32_t code) {
    const size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned first[5] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    size_t i;

    for (i = n - 1; i; --i) {
        out[i] = (char)(unsigned char)(0x80 | (code & 0x3F));
        code >>= 6;
    }
    out[0] = (char)(unsigned char)(first[n] | code);
    return n;
}

/* ---- reading ---- */
typedef struct json_reader {
    json_document *j;
    char *at, *end;
    size_t line;
    uint32_t open[JSON_DEPTH]; /* nodes that have not ended */
    int depth;
} json_reader;

static inline int json_refuse(json_reader *r, const char *reason) { /* returns 1 */
    snprintf(r->j->message, sizeof r->j->message, "line %lu, byte %lu: %s", (unsigned long)r->line,
             (unsigned long)(r->at - r->j->text), reason);
    return 1;
}

static inline int json_add(json_reader *r, json_kind kind, const char *begin, size_t size) {
    json_document *const j = r->j;
    json_node *n;

    if (j->count == j->capacity) {
        const size_t capacity = j->capacity ? (size_t)j->capacity * 2 : 64;

        n = capacity < JSON_NONE && capacity <= SIZE_MAX / sizeof *n ?
            (json_node *)realloc(j->nodes, capacity * sizeof *n) : NULL;
        if (!n) return json_refuse(r, "out of memory");
        j->nodes = n;
        j->capacity = (uint32_t)capacity;
    }
    n = &j->nodes[j->count++];
    n->kind = (uint32_t)kind;
    n->begin = (uint32_t)(begin - j->text);
    n->size = (uint32_t)size;
    n->next = j->count;
    return 0;
}

static inline void json_skip_space(json_reader *r) {
    for (; r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t'); ++r->at)
        r->line += *r->at == '\n';
}

static inline int json_hex(const json_reader *r, const char *p, uint32_t *code) { /* of \uXXXX at p; 1: it is none */
    uint32_t c = 0;
    int i;

    if (r->end - p < 6 || p[0] != '\\' || p[1] != 'u') return 1;
    for (i = 2; i < 6; ++i) {
        const unsigned char d = (unsigned char)p[i];
        const unsigned lower = d | 0x20u;

        if (d >= '0' && d <= '9') c = c << 4 | (uint32_t)(d - '0');
        else if (lower >= 'a' && lower <= 'f') c = c << 4 | (uint32_t)(lower - 'a' + 10);
        else return 1;
    }
    *code = c;
    return 0;
}

static inline int json_escape(json_reader *r, char **out) { /* what stands at the backslash is written at *out */
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *const name = r->end - r->at > 1 && r->at[1] ? strchr(names, r->at[1]) : NULL;
    uint32_t code, low;

    if (name) {
        *(*out)++ = values[name - names];
        r->at += 2;
        return 0;
    }
    if (json_hex(r, r->at, &code)) return json_refuse(r, "this is no escape of JSON");
    if (code >= 0xD800 && code < 0xE000) { /* a pair of them is one code point */
        if (code >= 0xDC00 || json_hex(r, r->at + 6, &low) || low < 0xDC00 || low > 0xDFFF)
            return json_refuse(r, "half of a surrogate pair");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        r->at += 6;
    }
    r->at += 6;
    *out += json_utf8_write(*out, code);
    return 0;
}

static inline int json_read_string(json_reader *r) { /* at its quote */
    char *const begin = ++r->at;
    char *out = begin;
    uint32_t code;

    while (r->at < r->end && *r->at != '"') {
        const unsigned char c = (unsigned char)*r->at;
        size_t n = 1;

        if (c == '\\') {
            if (json_escape(r, &out)) return 1;
            continue;
        }
        if (c < 0x20) return json_refuse(r, "a control character in a string");
        if (c >= 0x80) n = json_utf8_read(r->at, (size_t)(r->end - r->at), &code);
        if (!n) return json_refuse(r, "this is no UTF-8");
        for (; n; --n) *out++ = *r->at++;
    }
    if (r->at == r->end) return json_refuse(r, "a string without its end");
    if (json_add(r, JSON_STRING, begin, (size_t)(out - begin))) return 1;
    *out = 0; /* in place of the closing quote, or before it */
    ++r->at;
    return 0;
}

static inline size_t json_skip_digits(json_reader *r) {
    const char *const begin = r->at;

    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') ++r->at;
    return (size_t)(r->at - begin);
}

static inline int json_read_number(json_reader *r) { /* its form; what it is worth is asked for later */
    const char *const begin = r->at;
    const char *first;

    r->at += *r->at == '-';
    first = r->at;
    if (!json_skip_digits(r) || (*first == '0' && r->at - first > 1)) return json_refuse(r, "this is no value of JSON");
    if (r->at < r->end && *r->at == '.') {
        ++r->at;
        if (!json_skip_digits(r)) return json_refuse(r, "no digit behind the point");
    }
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        ++r->at;
        r->at += r->at < r->end && (*r->at == '+' || *r->at == '-');
        if (!json_skip_digits(r)) return json_refuse(r, "no digit in the exponent");
    }
    return json_add(r, JSON_NUMBER, begin, (size_t)(r->at - begin));
}

static inline int json_read_scalar(json_reader *r) {
    static const char *const words[] = { "null", "false", "true" }; /* from JSON_NULL on */
    const size_t left = (size_t)(r->end - r->at);
    int i;

    if (!left) return json_refuse(r, "the text ends before its value does");
    if (*r->at == '"') return json_read_string(r);
    for (i = 0; i < 3; ++i) {
        const size_t n = strlen(words[i]);

        if (left < n || memcmp(r->at, words[i], n)) continue;
        r->at += n;
        return json_add(r, (json_kind)(JSON_NULL + i), r->at - n, n);
    }
    return json_read_number(r);
}

static inline int json_read_name(json_reader *r) { /* of a member, and the colon */
    json_skip_space(r);
    if (r->at == r->end || *r->at != '"') return json_refuse(r, "a member's name was expected");
    if (json_read_string(r)) return 1;
    json_skip_space(r);
    if (r->at == r->end || *r->at != ':') return json_refuse(r, "a colon was expected");
    ++r->at;
    return 0;
}

/* Behind the opening bracket, or behind an element: closes what ends here. *more: another value is next. */
static inline int json_go_on(json_reader *r, int opened, int *more) {
    for (*more = 0; r->depth; opened = 0) {
        json_node *const n = &r->j->nodes[r->open[r->depth - 1]];
        const int object = n->kind == JSON_OBJECT;

        json_skip_space(r);
        if (r->at < r->end && *r->at == (object ? '}' : ']')) {
            ++r->at;
            n->next = r->j->count;
            --r->depth;
            continue;
        }
        if (!opened && (r->at == r->end || *r->at != ',')) return json_refuse(r, "a comma or an end was expected");
        r->at += !opened;
        ++n->size;
        *more = 1;
        return object ? json_read_name(r) : 0;
    }
    return 0;
}

static inline int json_read_all(json_reader *r) {
    int more = 1;

    while (more) {
        int opened = 0;

        json_skip_space(r);
        if (r->at < r->end && (*r->at == '[' || *r->at == '{')) {
            if (r->depth == JSON_DEPTH) return json_refuse(r, "more than 64 arrays and objects within each other");
            r->open[r->depth++] = r->j->count;
            if (json_add(r, *r->at == '[' ? JSON_ARRAY : JSON_OBJECT, r->at, 0)) return 1;
            ++r->at;
            opened = 1;
        } else if (json_read_scalar(r)) return 1;
        if (json_go_on(r, opened, &more)) return 1;
    }
    json_skip_space(r);
    return r->at < r->end ? json_refuse(r, "something follows the value") : 0;
}

static inline int json_parse(json_document *j, char *text, size_t bytes) {
    json_reader r;

    memset(&r, 0, sizeof r);
    r.j = j;
    r.at = j->text = text;
    r.line = 1;
    j->count = 0;
    j->message[0] = 0;
    if (bytes >= JSON_NONE) return json_refuse(&r, "more than 4 GiB");
    r.end = text + bytes;
    if (bytes >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) r.at += 3; /* a byte order mark, as some editors write it */
    if (!json_read_all(&r)) return 0;
    j->count = 0;
    return 1;
}

static inline const char *json_file_bytes(const char *path, char **text, size_t *bytes) {
    FILE *const file = fopen(path, "rb");
    char *block = NULL, *larger;
    size_t n = 0, capacity = 0, got = 1;
    int failed;

    if (!file) return "could not be opened";
    for (; got; n += got) {
        if (n == capacity) {
            capacity = capacity ? capacity + capacity / 2 : (size_t)1 << 16;
            larger = (char *)realloc(block, capacity + 1);
            if (!larger) break;
            block = larger;
        }
        got = fread(block + n, 1, capacity - n, file);
    }
    failed = ferror(file);
    fclose(file);
    if (got || failed) {
        free(block);
        return got ? "out of memory" : "could not be read";
    }
    block[n] = 0;
    *text = block;
    *bytes = n;
    return NULL;
}

static inline int json_load(json_document *j, const char *path) {
    char *text;
    size_t bytes;
    const char *const why = json_file_bytes(path, &text, &bytes);

    j->count = 0;
    if (why) {
        snprintf(j->message, sizeof j->message, "%s", why);
        return 1;
    }
    free(j->file);
    j->file = text;
    return json_parse(j, text, bytes);
}

static inline void json_free(json_document *j) {
    free(j->nodes);
    free(j->file);
    memset(j, 0, sizeof *j);
}

/* ---- asking ---- */
static inline json_kind json_kind_of(const json_document *j, uint32_t node) {
    return node < j->count ? (json_kind)j->nodes[node].kind : JSON_MISSING;
}

/* The value that begins at the node, or at the name there. */
static inline uint32_t json_from(const json_document *j, uint32_t container, uint32_t node) {
    if (node >= j->nodes[container].next) return JSON_NONE;
    return node + (j->nodes[container].kind == JSON_OBJECT);
}

static inline uint32_t json_first(const json_document *j, uint32_t container) {
    const json_kind kind = json_kind_of(j, container);

    return kind == JSON_ARRAY || kind == JSON_OBJECT ? json_from(j, container, container + 1) : JSON_NONE;
}

static inline uint32_t json_next(const json_document *j, uint32_t container, uint32_t node) {
    return container < j->count && node < j->count ? json_from(j, container, j->nodes[node].next) : JSON_NONE;
}

static inline int json_is(const json_document *j, uint32_t node, const char *text) {
    size_t bytes;
    const char *const string = json_string(j, node, &bytes);

    return string && bytes == strlen(text) && !memcmp(string, text, bytes);
}

static inline uint32_t json_member(const json_document *j, uint32_t object, const char *name) {
    uint32_t i, found = JSON_NONE;

    if (json_kind_of(j, object) != JSON_OBJECT) return JSON_NONE;
    for (i = json_first(j, object); i != JSON_NONE; i = json_next(j, object, i))
        if (json_is(j, i - 1, name)) found = i;
    return found;
}

static inline const char *json_name(const json_document *j, uint32_t value, size_t *bytes) {
    if (bytes) *bytes = j->nodes[value - 1].size;
    return j->text + j->nodes[value - 1].begin;
}

static inline const char *json_string(const json_document *j, uint32_t node, size_t *bytes) {
    if (bytes) *bytes = 0;
    return json_kind_of(j, node) == JSON_STRING ? json_name(j, node + 1, bytes) : NULL;
}

static inline int json_integer(const json_document *j, uint32_t node, int64_t *out) {
    const uint64_t limit = UINT64_C(1) << 63; /* of a negative number; others are one less */
    uint64_t value = 0;
    const char *p;
    uint32_t i;
    int negative;

    if (json_kind_of(j, node) != JSON_NUMBER) return 1;
    p = j->text + j->nodes[node].begin;
    negative = *p == '-';
    for (i = (uint32_t)negative; i < j->nodes[node].size; ++i) {
        const unsigned digit = (unsigned)(unsigned char)p[i] - '0';

        if (digit > 9 || value > (limit - digit) / 10) return 1;
        value = value * 10 + digit;
    }
    if (value > limit - !negative) return 1;
    *out = negative ? -(int64_t)(value ? value - 1 : 0) - (value != 0) : (int64_t)value;
    return 0;
}

static inline int json_double(const json_document *j, uint32_t node, double *out) {
    char digits[304], *point;
    uint64_t bits;
    double value;

    if (json_kind_of(j, node) != JSON_NUMBER || j->nodes[node].size > 300) return 1;
    memcpy(digits, j->text + j->nodes[node].begin, j->nodes[node].size);
    digits[j->nodes[node].size] = 0;
    point = strchr(digits, '.');
    if (point) *point = *localeconv()->decimal_point; /* what strtod knows as one, whatever the user speaks */
    value = strtod(digits, NULL);
    memcpy(&bits, &value, sizeof bits);
    if ((bits >> 52 & 0x7FF) == 0x7FF) return 1; /* infinite; -ffast-math would drop a comparison */
    *out = value;
    return 0;
}
#endif
