/* tokeniser.h - text to ids and back, by a tokenizer.json of Hugging Face with a model of type BPE.

   Byte level (GPT-2, Llama 3, Qwen2, Qwen3, SmolLM) and by characters with byte fallback (Llama 2, Mistral). A text
   goes through these steps, each as the library `tokenizers` does it:
     added tokens     those that are not normalized are cut out of the text, the longest at the leftmost place
     normalizer       NFC; Prepend and Replace of literal texts
     added tokens     those that are normalized
     pre_tokenizer    pieces that no merge crosses: the patterns of GPT-2, Llama 3 and Qwen2, by matchers of our own;
                      Digits; Metaspace
     model            the pair of lowest rank is merged, leftmost first, until none is left
     post_processor   tokens in front and at the end, where they are asked for
   What a file asks for beyond this is refused with its name: ids that are nearly right would train a model that is
   wrong. `truncation` and `padding` are left to the caller. Text that is no UTF-8 is refused with the place.
   Cost: a piece of n bytes takes n log n, and some 40 n bytes of memory; short ones are kept in a cache of 1 MB. One
   thread at a time for each tokeniser.

       tokeniser t;
       tokeniser_ids ids;
       memset(&t, 0, sizeof t);
       memset(&ids, 0, sizeof ids);
       if (tokeniser_open(&t, "tokenizer.json") || tokeniser_encode(&t, "Hello", 5, TOKENISER_ADD_SPECIAL, &ids))
           puts(t.message);
       free(ids.ids);
       tokeniser_close(&t);

   Copy it with tokeniser_file.h, json.h and unicode.h: C99 or C++11 and the C library are all that they need. */
#ifndef FINETUNE_TOKENISER_H
#define FINETUNE_TOKENISER_H
#include "json.h"
#include "unicode.h"
#include <stdarg.h>

enum {
    TOKENISER_ADD_SPECIAL = 1,  /* encode: with what the file's post_processor puts in front and at the end */
    TOKENISER_SKIP_SPECIAL = 2, /* decode: without special tokens */
    TOKENISER_CONTINUE = 4      /* decode: what goes before was decoded by another call */
};
typedef struct tokeniser_ids { /* zero it; free(ids) */
    int32_t *ids;
    size_t count, capacity;
} tokeniser_ids;
typedef struct tokeniser_bytes { /* zero it; free(bytes) */
    char *bytes;
    size_t count, capacity;
} tokeniser_bytes;
typedef struct tokeniser tokeniser;

/** Zero `t` first. 0, or 1 with a reason in t->message, and nothing to be closed. */
static inline int tokeniser_open(tokeniser *t, const char *path);
/** The same with the bytes of a file, which are changed, and not needed afterwards. */
static inline int tokeniser_open_text(tokeniser *t, char *text, size_t bytes);
static inline void tokeniser_close(tokeniser *t);
/** The largest id + 1: a model has at least so many rows. Some below may be no token. */
static inline size_t tokeniser_size(const tokeniser *t);
/** The id of a token by its text in the file, say "<|im_start|>"; -1: there is none. */
static inline int32_t tokeniser_id(const tokeniser *t, const char *text, size_t bytes);
/** The ids that TOKENISER_ADD_SPECIAL puts in front (0) or at the end (1); *count may be 0, and NULL returned. */
static inline const int32_t *tokeniser_around(const tokeniser *t, int at_end, size_t *count);
/** Appends the ids of a text of at most 1 GiB. 0, or 1 with a reason in t->message, and `out` as it was. */
static inline int tokeniser_encode(tokeniser *t, const char *text, size_t bytes, int flags, tokeniser_ids *out);
/** Appends the bytes of ids, also where they are no UTF-8. 0, or 1 with a reason in t->message, and `out` as it was. */
static inline int tokeniser_decode(tokeniser *t, const int32_t *ids, size_t count, int flags, tokeniser_bytes *out);

/* ---- what is kept ---- */
enum { TOKENISER_IN_VOCAB = 1, TOKENISER_ADDED = 2, /* without either the id is no token */
       TOKENISER_SPECIAL = 4, TOKENISER_LSTRIP = 8, TOKENISER_RSTRIP = 16, TOKENISER_WORD = 32,
       TOKENISER_NORMALIZED = 64 };
#define TOKENISER_LETTER_END 324 /* of GPT-2's alphabet of bytes */
typedef struct tokeniser_token {
    uint32_t begin, bytes;           /* its text in the pool */
    uint32_t decoded, decoded_bytes; /* what the decoder gets: of normalized added tokens the normalizer's text */
    int flags;
} tokeniser_token;

#define TOKENISER_NONE UINT32_MAX
#define TOKENISER_IDS  (1 << 21) /* ids are below it */
#define TOKENISER_RANKS ((1 << 22) - 1)
typedef struct tokeniser_map { /* (a, b), 21 bits each, to a number of 22 bits; open addressing */
    uint64_t *slots;
    size_t mask;
    int shift;
} tokeniser_map;

typedef struct tokeniser_added {
    const char *text;
    uint32_t bytes;
    int32_t id;
} tokeniser_added;
typedef struct tokeniser_set { /* added tokens to look for, sorted */
    tokeniser_added *list;
    size_t count;
    unsigned char first[256]; /* whether one begins with this byte */
} tokeniser_set;

typedef enum tokeniser_change { /* of a text */
    TOKENISER_NFC, TOKENISER_PREPEND, TOKENISER_PREPEND_MISSING, TOKENISER_PREPEND_FIRST, TOKENISER_REPLACE
} tokeniser_change;
typedef struct tokeniser_text { uint32_t begin, bytes; } tokeniser_text; /* in the pool */
typedef struct tokeniser_step {
    tokeniser_change change;
    tokeniser_text from, to;
} tokeniser_step;
#define TOKENISER_STEPS 8
typedef struct tokeniser_steps {
    tokeniser_step list[TOKENISER_STEPS];
    int count;
    tokeniser_bytes buffers[2];
} tokeniser_steps;

typedef enum tokeniser_pieces {
    TOKENISER_GPT2, TOKENISER_LLAMA3, TOKENISER_QWEN2, TOKENISER_DIGITS, TOKENISER_DIGIT, TOKENISER_MARKED
} tokeniser_pieces;
#define TOKENISER_SPLITS 4

typedef struct tokeniser_symbol { /* of a piece that is merged */
    int32_t id; /* -1: merged into the one before it */
    uint32_t prev, next;
} tokeniser_symbol;

#define TOKENISER_CACHED_BYTES 22
#define TOKENISER_CACHED_IDS   10
#ifndef TOKENISER_CACHE
#  define TOKENISER_CACHE (1u << 14) /* entries of 64 bytes */
#endif
typedef struct tokeniser_cached {
    unsigned char bytes, count; /* 0 bytes: empty */
    char text[TOKENISER_CACHED_BYTES];
    int32_t ids[TOKENISER_CACHED_IDS];
} tokeniser_cached;

struct tokeniser {
    char message[256];
    tokeniser_bytes pool;       /* every text */
    tokeniser_token *tokens;    /* by id */
    size_t size;
    uint32_t *by_text;          /* id + 1; open addressing */
    size_t by_text_mask, longest, added_count;
    tokeniser_map merges;       /* two ids to their rank */
    int32_t *merged;            /* rank to the id that they become */
    uint32_t merge_count;
    tokeniser_map chars;        /* a character to its token, where it has one */
    tokeniser_map joints;       /* two characters that a merge joins: between any others a piece can be cut */
    int32_t unk;                /* -1: what is not known is left out; -2: the token that was named does not exist */
    int fuse_unk, byte_fallback, ignore_merges;
    int byte_level;             /* bytes are written as letters of GPT-2's alphabet */
    uint32_t letters[256];      /* that alphabet */
    int bytes_of[TOKENISER_LETTER_END]; /* and back; -1: no letter of it */
    int32_t initial[256];       /* tokens of single bytes; without byte_level of characters below 128; -1: none */
    int32_t fallback[256];      /* <0x00> to <0xFF> */
    tokeniser_set sets[2];      /* added tokens: as they stand in the text; normalized */
    tokeniser_steps normalizer, metaspace; /* the latter: also ByteLevel's add_prefix_space */
    tokeniser_pieces splits[TOKENISER_SPLITS];
    int split_count;
    tokeniser_text mark;        /* pieces begin with it (TOKENISER_MARKED) */
    tokeniser_ids around[2];    /* special tokens in front, at the end */
    int decoder_seen;           /* the decoder's steps, a bit each, while it is read */
    int decode_byte_level;      /* letters of GPT-2's alphabet are bytes; nothing else is done then */
    tokeniser_step decode_replace; /* within each token */
    int decode_drops;           /* what is replaced in the first token is dropped */
    int decode_fallback;        /* <0x0A> is a byte */
    tokeniser_text decode_strip;
    int64_t decode_strips;      /* so many of it in front of all are dropped */
    tokeniser_cached *cache;
    /* of a call */
    tokeniser_ids *out;
    tokeniser_symbol *symbols;
    size_t symbol_count, symbol_capacity;
    int unknown;                /* an unknown character was met and its token not written yet */
    uint64_t *heap;             /* rank << 32 | place of the left symbol */
    size_t heap_count, heap_capacity;
    tokeniser_bytes whole;      /* a piece in that alphabet; while reading, what two tokens are merged to */
    uint32_t *codes;            /* of NFC */
    size_t code_capacity;
};

/* ---- memory, tables, characters ---- */
static inline int tokeniser_refuse(tokeniser *t, const char *format, ...) { /* returns 1 */
    va_list list;
    char *c;

    va_start(list, format);
    vsnprintf(t->message, sizeof t->message, format, list);
    va_end(list);
    for (c = t->message; *c; ++c) /* a text in a file may hold anything, also what a terminal obeys */
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    return 1;
}

/* Room for `need` elements in a block that grows by half; NULL with a message, and the block as it was. */
static inline void *tokeniser_grow(tokeniser *t, void *block, size_t *capacity, size_t need, size_t each) {
    size_t n = *capacity + *capacity / 2 + 64;

    if (need <= *capacity) return block;
    if (n < need) n = need;
    block = n <= SIZE_MAX / 2 / each ? realloc(block, n * each) : NULL;
    if (block) *capacity = n;
    else (void)tokeniser_refuse(t, "out of memory: %lu elements of %lu bytes", (unsigned long)n, (unsigned long)each);
    return block;
}

static inline int tokeniser_append(tokeniser *t, tokeniser_bytes *b, const char *text, size_t bytes) {
    char *const grown = (char *)tokeniser_grow(t, b->bytes, &b->capacity, b->count + bytes + 1, 1);

    if (!grown) return 1;
    b->bytes = grown;
    if (bytes) memcpy(b->bytes + b->count, text, bytes);
    b->count += bytes;
    return 0;
}

static inline int tokeniser_push(tokeniser *t, tokeniser_ids *out, int32_t id) {
    int32_t *const grown = (int32_t *)tokeniser_grow(t, out->ids, &out->capacity, out->count + 1, sizeof *grown);

    if (!grown) return 1;
    out->ids = grown;
    out->ids[out->count++] = id;
    return 0;
}

/* Into the pool. */
static inline int tokeniser_keep(tokeniser *t, const char *text, size_t bytes, tokeniser_text *where) {
    where->begin = (uint32_t)t->pool.count;
    where->bytes = (uint32_t)bytes;
    if (bytes > UINT32_MAX - t->pool.count) return tokeniser_refuse(t, "more than 4 GiB of text");
    return tokeniser_append(t, &t->pool, text, bytes);
}

#define TOKENISER_MIX UINT64_C(0x9E3779B97F4A7C15)
/* Tables are at most two thirds full, so a search is short, but for keys chosen to collide, which are refused. */
#define TOKENISER_PROBES 1024

static inline size_t tokeniser_slots(size_t count) { /* a power of two */
    size_t n = 4;

    while (n < count + count / 2 + 1) n *= 2;
    return n;
}

static inline uint64_t tokeniser_pair(uint32_t a, uint32_t b) { return (uint64_t)a << 21 | b; }

static inline int tokeniser_map_open(tokeniser *t, tokeniser_map *m, size_t count) {
    const size_t n = tokeniser_slots(count);

    m->slots = (uint64_t *)malloc(n * sizeof *m->slots);
    if (!m->slots) return tokeniser_refuse(t, "out of memory");
    memset(m->slots, 255, n * sizeof *m->slots); /* empty: no key has all bits, as ids and code points are smaller */
    m->mask = n - 1;
    for (m->shift = 64; (size_t)1 << (64 - m->shift) < n; --m->shift) {}
    return 0;
}

/* The key's slot, or the empty one where it would be; mask + 1: it was not found in reasonable time. */
static inline size_t tokeniser_map_slot(const tokeniser_map *m, uint64_t key) {
    size_t i = (size_t)(key * TOKENISER_MIX >> m->shift), probes;

    for (probes = 0; probes < TOKENISER_PROBES; ++probes, i = (i + 1) & m->mask)
        if (m->slots[i] >> 22 == key || m->slots[i] == UINT64_MAX) return i;
    return m->mask + 1;
}

static inline int tokeniser_map_put(tokeniser *t, tokeniser_map *m, uint64_t key, uint32_t value) {
    const size_t i = tokeniser_map_slot(m, key);

    if (i > m->mask) return tokeniser_refuse(t, "keys that collide, as if by choice");
    m->slots[i] = key << 22 | value;
    return 0;
}

static inline uint32_t tokeniser_map_get(const tokeniser_map *m, uint64_t key) {
    const size_t i = tokeniser_map_slot(m, key);

    return i > m->mask || m->slots[i] == UINT64_MAX ? TOKENISER_NONE : (uint32_t)(m->slots[i] & 0x3FFFFF);
}

static inline uint64_t tokeniser_load(const char *p, size_t n) { /* 1 to 8 bytes, each of which counts in the number */
    uint32_t a = 0, b = 0;
    uint64_t all;

    if (n == 8) {
        memcpy(&all, p, 8);
        return all;
    }
    if (n < 4) {
        a = (unsigned char)p[0];
        b = (uint32_t)(unsigned char)p[n / 2] << 8 | (unsigned char)p[n - 1];
    } else {
        memcpy(&a, p, 4);
        memcpy(&b, p + n - 4, 4);
    }
    return (uint64_t)a << 32 | b;
}

static inline uint64_t tokeniser_hash(const char *p, size_t n) {
    uint64_t h = n * TOKENISER_MIX;

    for (; n > 8; n -= 8, p += 8) {
        h = (h ^ tokeniser_load(p, 8)) * TOKENISER_MIX;
        h ^= h >> 29;
    }
    if (n) h = (h ^ tokeniser_load(p, n)) * TOKENISER_MIX;
    return h ^ h >> 32;
}

/* The slot of a text in by_text, or the empty one where it would be; mask + 1: not in reasonable time. */
static inline size_t tokeniser_text_slot(const tokeniser *t, const char *text, size_t bytes) {
    size_t i = (size_t)tokeniser_hash(text, bytes) & t->by_text_mask, probes;

    for (probes = 0; probes < TOKENISER_PROBES; ++probes, i = (i + 1) & t->by_text_mask) {
        const tokeniser_token *const k = &t->tokens[t->by_text[i] ? t->by_text[i] - 1 : 0];

        if (!t->by_text[i]) return i;
        if (k->bytes == bytes && !memcmp(t->pool.bytes + k->begin, text, bytes)) return i;
    }
    return t->by_text_mask + 1;
}

static inline int32_t tokeniser_id(const tokeniser *t, const char *text, size_t bytes) {
    const size_t i = t->by_text ? tokeniser_text_slot(t, text, bytes) : 1;

    return t->by_text && i <= t->by_text_mask ? (int32_t)t->by_text[i] - 1 : -1;
}

static inline size_t tokeniser_size(const tokeniser *t) { return t->size; }

static inline const int32_t *tokeniser_around(const tokeniser *t, int at_end, size_t *count) {
    *count = t->around[at_end != 0].count;
    return t->around[at_end != 0].ids;
}

/* The code point at p, of text that is known to be UTF-8; returns its bytes. */
static inline size_t tokeniser_code(const char *p, uint32_t *code) {
    const unsigned char *const u = (const unsigned char *)p;

    if (u[0] < 0x80) {
        *code = u[0];
        return 1;
    }
    if (u[0] < 0xE0) {
        *code = (u[0] & 0x1Fu) << 6 | (u[1] & 0x3Fu);
        return 2;
    }
    if (u[0] < 0xF0) {
        *code = (u[0] & 0xFu) << 12 | (u[1] & 0x3Fu) << 6 | (u[2] & 0x3Fu);
        return 3;
    }
    *code = (u[0] & 7u) << 18 | (u[1] & 0x3Fu) << 12 | (u[2] & 0x3Fu) << 6 | (u[3] & 0x3Fu);
    return 4;
}

static inline size_t tokeniser_class(const char *p, int *kind) { /* of the character at p; returns its bytes */
    uint32_t code;
    const size_t n = tokeniser_code(p, &code);

    *kind = unicode_class(code);
    return n;
}

static inline size_t tokeniser_before(const char *p, size_t i) { /* where the character begins that ends at i > 0 */
    do --i;
    while (((unsigned char)p[i] & 0xC0) == 0x80);
    return i;
}

/* ---- pieces ---- */
/* Bytes of the run of characters from p on whose class is in the set of bits. */
static inline size_t tokeniser_run(const char *p, size_t n, int classes) {
    size_t i, bytes;
    int k;

    for (i = 0; i < n; i += bytes) {
        bytes = tokeniser_class(p + i, &k);
        if (!(classes >> (k & UNICODE_CLASS) & 1)) break;
    }
    return i;
}

enum { TOKENISER_LETTERS = 1 << UNICODE_LETTER, TOKENISER_NUMBERS = 1 << UNICODE_DIGIT | 1 << UNICODE_NUMBER,
       TOKENISER_SPACES = 1 << UNICODE_SPACE, TOKENISER_OTHERS = 1 << UNICODE_OTHER | 1 << UNICODE_WORD };

static inline int tokeniser_bit(const char *p) { /* which of these four the character at p is in */
    int k;

    (void)tokeniser_class(p, &k);
    k = 1 << (k & UNICODE_CLASS);
    return k & TOKENISER_NUMBERS ? TOKENISER_NUMBERS : k & TOKENISER_OTHERS ? TOKENISER_OTHERS : k;
}

/* 's 't 're 've 'm 'll 'd: its bytes, or 0. In any case, which to the patterns is also the long s, U+017F. */
static inline size_t tokeniser_contraction(const char *p, size_t n, int any_case) {
    const int lower = any_case ? 32 : 0;
    int a, b;

    if (n < 2 || *p != '\'') return 0;
    a = p[1] | lower;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if (n < 3) return 0;
    if (any_case && !memcmp(p + 1, "\xC5\xBF", 2)) return 3;
    b = p[2] | lower;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* White space up to where the next word's own begins: all of it at the text's end, and else all but its last. */
static inline size_t tokeniser_gap(const char *p, size_t n) {
    const size_t spaces = tokeniser_run(p, n, TOKENISER_SPACES), last = tokeniser_before(p, spaces);

    return spaces < n && last ? last : spaces;
}

static inline size_t tokeniser_gpt2(const char *p, size_t n) { /* bytes of the first piece */
    size_t i = tokeniser_contraction(p, n, 0);
    int bit;

    if (i) return i;
    i = *p == ' ';
    bit = i < n ? tokeniser_bit(p + i) : TOKENISER_SPACES;
    return bit == TOKENISER_SPACES ? tokeniser_gap(p, n) : i + tokeniser_run(p + i, n - i, bit);
}

static inline size_t tokeniser_line_ends(const char *p, size_t n) { /* [\r\n]* */
    size_t i = 0;

    while (i < n && (p[i] == '\r' || p[i] == '\n')) ++i;
    return i;
}

static inline size_t tokeniser_llama3(const char *p, size_t n, size_t digits) {
    size_t i = tokeniser_contraction(p, n, 1), bytes;
    uint32_t code;
    int bit;

    if (i) return i;
    bit = tokeniser_bit(p);
    if (bit == TOKENISER_LETTERS) return tokeniser_run(p, n, bit);
    bytes = tokeniser_code(p, &code);
    if (bit == TOKENISER_NUMBERS) {
        for (i = bytes; --digits && i < n && tokeniser_bit(p + i) == bit; i += tokeniser_code(p + i, &code)) {}
        return i;
    }
    if (*p != '\r' && *p != '\n' && bytes < n && tokeniser_bit(p + bytes) == TOKENISER_LETTERS)
        return bytes + tokeniser_run(p + bytes, n - bytes, TOKENISER_LETTERS);
    i = *p == ' ';
    if (i < n && tokeniser_bit(p + i) == TOKENISER_OTHERS) {
        i += tokeniser_run(p + i, n - i, TOKENISER_OTHERS);
        return i + tokeniser_line_ends(p + i, n - i);
    }
    for (i = tokeniser_run(p, n, TOKENISER_SPACES); i; --i) /* up to the last end of a line */
        if (p[i - 1] == '\r' || p[i - 1] == '\n') return i;
    return tokeniser_gap(p, n);
}

static inline size_t tokeniser_digits(const char *p, size_t n, int each) {
    uint32_t code;
    const int all = TOKENISER_LETTERS | TOKENISER_NUMBERS | TOKENISER_SPACES | TOKENISER_OTHERS;

    if (tokeniser_bit(p) != TOKENISER_NUMBERS) return tokeniser_run(p, n, all - TOKENISER_NUMBERS);
    return each ? tokeniser_code(p, &code) : tokeniser_run(p, n, TOKENISER_NUMBERS);
}

/* Where `what` is found at or behind `from`, or n. */
static inline size_t tokeniser_find(const char *p, size_t n, size_t from, const char *what, size_t bytes) {
    while (from < n) {
        const char *const c = (const char *)memchr(p + from, *what, n - from);

        if (!c || (size_t)(p + n - c) < bytes) break;
        from = (size_t)(c - p);
        if (!memcmp(c, what, bytes)) return from;
        ++from;
    }
    return n;
}

static inline size_t tokeniser_piece(const tokeniser *t, tokeniser_pieces kind, const char *p, size_t n) {
    switch (kind) {
    case TOKENISER_GPT2: return tokeniser_gpt2(p, n);
    case TOKENISER_LLAMA3: return tokeniser_llama3(p, n, 3);
    case TOKENISER_QWEN2: return tokeniser_llama3(p, n, 1);
    case TOKENISER_DIGITS: return tokeniser_digits(p, n, 0);
    case TOKENISER_DIGIT: return tokeniser_digits(p, n, 1);
    case TOKENISER_MARKED: break;
    }
    return tokeniser_find(p, n, 1, t->pool.bytes + t->mark.begin, t->mark.bytes);
}

/* ---- the model ---- */
static inline int tokeniser_add(tokeniser *t, int32_t id) { /* a symbol */
    tokeniser_symbol *const grown = (tokeniser_symbol *)tokeniser_grow(t, t->symbols, &t->symbol_capacity,
                                                                       t->symbol_count + 1, sizeof *grown);
    const uint32_t place = (uint32_t)t->symbol_count;

    if (!grown) return 1;
    t->symbols = grown;
    grown[place].id = id;
    grown[place].prev = place ? place - 1 : TOKENISER_NONE;
    grown[place].next = TOKENISER_NONE;
    if (place) grown[place - 1].next = place;
    ++t->symbol_count;
    return 0;
}

static inline int tokeniser_add_known(tokeniser *t, int32_t id) {
    const int unknown = t->unknown;

    t->unknown = 0;
    return (unknown && tokeniser_add(t, t->unk)) || tokeniser_add(t, id);
}

/* A character without a token: its bytes' tokens, or the one for what is unknown, or nothing. */
static inline int tokeniser_add_unknown(tokeniser *t, const char *p, size_t n) {
    size_t i;

    for (i = 0; t->byte_fallback && i < n && t->fallback[(unsigned char)p[i]] >= 0; ++i) {}
    if (i == n) {
        for (i = 0; i < n; ++i)
            if (tokeniser_add(t, t->fallback[(unsigned char)p[i]])) return 1;
        return 0;
    }
    if (t->unk == -1) return 0;
    if (t->unk < 0) return tokeniser_refuse(t, "a character has no token, and unk_token is not in the vocabulary");
    if (t->unknown && !t->fuse_unk && tokeniser_add(t, t->unk)) return 1;
    t->unknown = 1;
    return 0;
}

static inline int32_t tokeniser_char(const tokeniser *t, uint32_t code) { /* its token, or -1; not of bytes */
    const uint32_t id = code < 128 ? (uint32_t)t->initial[code] : tokeniser_map_get(&t->chars, code);

    return id == TOKENISER_NONE ? -1 : (int32_t)id;
}

static inline int tokeniser_add_all(tokeniser *t, const char *p, size_t n) { /* a piece as symbols */
    size_t i, bytes;

    t->symbol_count = 0;
    t->unknown = 0;
    for (i = 0; i < n; i += bytes) {
        char letter[4];
        uint32_t code = (unsigned char)p[i];
        int32_t id;
        int failed;

        bytes = t->byte_level ? 1 : tokeniser_code(p + i, &code);
        id = t->byte_level ? t->initial[code] : tokeniser_char(t, code);
        if (id >= 0) failed = tokeniser_add_known(t, id);
        else if (!t->byte_level) failed = tokeniser_add_unknown(t, p + i, bytes);
        else failed = tokeniser_add_unknown(t, letter, json_utf8_write(letter, t->letters[code]));
        if (failed) return 1;
    }
    return t->unknown && tokeniser_add(t, t->unk);
}

static inline uint32_t tokeniser_rank(const tokeniser *t, uint32_t place) { /* of a symbol with the next */
    const tokeniser_symbol *const s = &t->symbols[place];

    return tokeniser_map_get(&t->merges, tokeniser_pair((uint32_t)s->id, (uint32_t)t->symbols[s->next].id));
}

static inline int tokeniser_queue(tokeniser *t, uint32_t place) { /* its merge with the next symbol, if there is one */
    const uint32_t rank = t->symbols[place].next == TOKENISER_NONE ? TOKENISER_NONE : tokeniser_rank(t, place);
    uint64_t *heap, key;
    size_t i;

    if (rank == TOKENISER_NONE) return 0;
    heap = (uint64_t *)tokeniser_grow(t, t->heap, &t->heap_capacity, t->heap_count + 1, sizeof *heap);
    if (!heap) return 1;
    t->heap = heap;
    key = (uint64_t)rank << 32 | place;
    for (i = t->heap_count++; i && heap[(i - 1) / 2] > key; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = key;
    return 0;
}

static inline uint64_t tokeniser_unqueue(tokeniser *t) { /* the lowest rank, and of these the leftmost */
    uint64_t *const heap = t->heap;
    const uint64_t top = heap[0], last = heap[--t->heap_count];
    size_t i = 0, child;

    for (; (child = 2 * i + 1) < t->heap_count; i = child) {
        if (child + 1 < t->heap_count && heap[child + 1] < heap[child]) ++child;
        if (heap[child] >= last) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

static inline int tokeniser_merge(tokeniser *t) {
    uint32_t i;

    t->heap_count = 0;
    for (i = 0; i < t->symbol_count; ++i)
        if (tokeniser_queue(t, i)) return 1;
    while (t->heap_count) {
        const uint64_t top = tokeniser_unqueue(t);
        const uint32_t place = (uint32_t)top;
        tokeniser_symbol *const s = &t->symbols[place];
        const uint32_t next = s->next;

        if (s->id < 0 || next == TOKENISER_NONE || tokeniser_rank(t, place) != top >> 32) continue; /* outdated */
        s->id = t->merged[top >> 32];
        s->next = t->symbols[next].next;
        t->symbols[next].id = -1;
        if (s->next != TOKENISER_NONE) t->symbols[s->next].prev = place;
        if ((s->prev != TOKENISER_NONE && tokeniser_queue(t, s->prev)) || tokeniser_queue(t, place)) return 1;
    }
    return 0;
}

/* *id: the token that the whole piece is, or -1. */
static inline int tokeniser_whole(tokeniser *t, const char *p, size_t n, int32_t *id) {
    char letter[4];
    size_t i;

    *id = -1;
    if (n > t->longest) return 0;
    t->whole.count = 0;
    for (i = 0; t->byte_level && i < n; ++i)
        if (tokeniser_append(t, &t->whole, letter, json_utf8_write(letter, t->letters[(unsigned char)p[i]]))) return 1;
    *id = t->byte_level ? tokeniser_id(t, t->whole.bytes, t->whole.count) : tokeniser_id(t, p, n);
    if (*id >= 0 && !(t->tokens[*id].flags & TOKENISER_IN_VOCAB)) *id = -1;
    return 0;
}

static inline int tokeniser_ids_of(tokeniser *t, const char *p, size_t n) { /* of a piece */
    int32_t id = -1;
    uint32_t i;

    if (n > UINT32_MAX / 2) return tokeniser_refuse(t, "a piece of more than 2 GiB"); /* places have 32 bits */
    if (t->ignore_merges && tokeniser_whole(t, p, n, &id)) return 1;
    if (id >= 0) return tokeniser_push(t, t->out, id);
    if (tokeniser_add_all(t, p, n) || tokeniser_merge(t)) return 1;
    for (i = t->symbol_count ? 0 : TOKENISER_NONE; i != TOKENISER_NONE; i = t->symbols[i].next)
        if (tokeniser_push(t, t->out, t->symbols[i].id)) return 1;
    return 0;
}

static inline int tokeniser_word(tokeniser *t, const char *p, size_t n) { /* the same, from the cache if it is there */
    const size_t begin = t->out->count;
    tokeniser_cached *c;
    size_t i;

    if (n > TOKENISER_CACHED_BYTES) return tokeniser_ids_of(t, p, n);
    c = &t->cache[tokeniser_hash(p, n) % TOKENISER_CACHE];
    if (c->bytes == n && !memcmp(c->text, p, n)) {
        for (i = 0; i < c->count; ++i)
            if (tokeniser_push(t, t->out, c->ids[i])) return 1;
        return 0;
    }
    if (tokeniser_ids_of(t, p, n)) return 1;
    if (t->out->count - begin > TOKENISER_CACHED_IDS) return 0;
    c->bytes = (unsigned char)n;
    c->count = (unsigned char)(t->out->count - begin);
    memcpy(c->text, p, n);
    for (i = 0; i < c->count; ++i) c->ids[i] = t->out->ids[begin + i];
    return 0;
}

/* A piece of characters, which can be a whole text: cut between any two that have tokens and that no merge joins. */
static inline int tokeniser_words(tokeniser *t, const char *p, size_t n) {
    uint32_t code, before = 0;
    int known_before = 0;
    size_t i, begin = 0, bytes;

    if (t->byte_level || t->ignore_merges) return tokeniser_word(t, p, n);
    for (i = 0; i < n; i += bytes) {
        int known;

        bytes = tokeniser_code(p + i, &code);
        known = tokeniser_char(t, code) >= 0;
        if (known && known_before && tokeniser_map_get(&t->joints, tokeniser_pair(before, code)) == TOKENISER_NONE) {
            if (tokeniser_word(t, p + begin, i - begin)) return 1;
            begin = i;
        }
        before = code;
        known_before = known;
    }
    return tokeniser_word(t, p + begin, n - begin);
}

/* Calls itself for the next stage, of TOKENISER_SPLITS at most. */
static inline int tokeniser_split(tokeniser *t, int stage, const char *p, size_t n) {
    size_t i, bytes;

    if (stage == t->split_count || stage == TOKENISER_SPLITS) return tokeniser_words(t, p, n);
    for (i = 0; i < n; i += bytes) {
        bytes = tokeniser_piece(t, t->splits[stage], p + i, n - i);
        if (tokeniser_split(t, stage + 1, p + i, bytes)) return 1;
    }
    return 0;
}

/* ---- changes of the text ---- */
/* Canonical composition of the characters from p on, appended. */
static inline int tokeniser_compose(tokeniser *t, const char *p, size_t n, tokeniser_bytes *out) {
    size_t i, count = 0, half;
    uint32_t code, *codes;
    char text[4];

    if (n > SIZE_MAX / 64) return tokeniser_refuse(t, "out of memory");
    codes = (uint32_t *)tokeniser_grow(t, t->codes, &t->code_capacity, n * 8, sizeof *codes); /* 4 each, and spare */
    if (!codes) return 1;
    t->codes = codes;
    for (i = 0; i < n; count += unicode_decompose(code, codes + count)) i += tokeniser_code(p + i, &code);
    half = t->code_capacity / 2;
    unicode_order(codes, count, codes + half);
    count = unicode_compose(codes, count);
    for (i = 0; i < count; ++i)
        if (tokeniser_append(t, out, text, json_utf8_write(text, codes[i]))) return 1;
    return 0;
}

/* NFC. *changed: whether `out` has the text; else it is NFC as it stands. A run of what composes, with the character
   before it, is composed by itself: the next one that does not compose begins anew. */
static inline int tokeniser_nfc(tokeniser *t, const char *p, size_t n, tokeniser_bytes *out, int *changed) {
    size_t i, bytes, before = 0, done = 0;
    int k;

    *changed = 0;
    for (i = 0; i < n; i += bytes) {
        bytes = tokeniser_class(p + i, &k);
        if (!(k & UNICODE_COMPOSES)) {
            before = i;
            continue;
        }
        if (tokeniser_append(t, out, p + done, before - done)) return 1;
        for (; i < n; i += bytes) {
            bytes = tokeniser_class(p + i, &k);
            if (!(k & UNICODE_COMPOSES)) break;
        }
        if (tokeniser_compose(t, p + before, i - before, out)) return 1;
        *changed = 1;
        done = i;
        bytes = 0;
    }
    return *changed && tokeniser_append(t, out, p + done, n - done);
}

/* What n bytes may become. No file needs as much, but one that was made for it could ask for all memory. */
static inline size_t tokeniser_limit(size_t n) { return n > SIZE_MAX / 64 ? SIZE_MAX / 4 : n * 16 + 64; }

static inline int tokeniser_replace(tokeniser *t, const tokeniser_step *s, const char *p, size_t n,
                                    tokeniser_bytes *out) {
    const char *const from = t->pool.bytes + s->from.begin;
    const size_t limit = out->count + tokeniser_limit(n);
    size_t i = 0, found;

    while ((found = tokeniser_find(p, n, i, from, s->from.bytes)) < n) {
        if (out->count > limit) return tokeniser_refuse(t, "Replace makes a text more than 16 times as long");
        if (tokeniser_append(t, out, p + i, found - i)) return 1;
        if (tokeniser_append(t, out, t->pool.bytes + s->to.begin, s->to.bytes)) return 1;
        i = found + s->from.bytes;
    }
    return tokeniser_append(t, out, p + i, n - i);
}

/* One step; *p and *n become its result, which lies in `out`, or where it did. */
static inline int tokeniser_step_apply(tokeniser *t, const tokeniser_step *s, int is_first, const char **p, size_t *n,
                                       tokeniser_bytes *out) {
    const char *const to = t->pool.bytes + s->to.begin;
    const int has_it = *n >= s->to.bytes && !memcmp(*p, to, s->to.bytes);
    int changed = 1, is_needed = *n > 0;

    out->count = 0;
    if (s->change == TOKENISER_NFC) {
        if (tokeniser_nfc(t, *p, *n, out, &changed)) return 1;
    } else if (s->change == TOKENISER_REPLACE) {
        if (tokeniser_replace(t, s, *p, *n, out)) return 1;
    } else {
        if (s->change != TOKENISER_PREPEND && has_it) is_needed = 0;
        if (s->change == TOKENISER_PREPEND_FIRST && !is_first) is_needed = 0;
        if (!is_needed) return 0;
        if (tokeniser_append(t, out, to, s->to.bytes) || tokeniser_append(t, out, *p, *n)) return 1;
    }
    if (!changed) return 0;
    *p = out->bytes;
    *n = out->count;
    return 0;
}

static inline int tokeniser_change_text(tokeniser *t, tokeniser_steps *steps, int is_first, const char **p, size_t *n) {
    const size_t limit = tokeniser_limit(*n);
    int i;

    for (i = 0; i < steps->count; ++i) {
        tokeniser_bytes *const free_one = &steps->buffers[*p == steps->buffers[0].bytes];

        if (tokeniser_step_apply(t, &steps->list[i], is_first, p, n, free_one)) return 1;
        if (*n > limit) return tokeniser_refuse(t, "the normalizer makes a text more than 16 times as long");
    }
    return 0;
}

/* ---- added tokens ---- */
static inline int tokeniser_byte_at(const tokeniser_added *a, size_t i) {
    return i < a->bytes ? (unsigned char)a->text[i] : -1;
}

/* Of the entries [low, high), which agree in the first i bytes, the first whose byte i is not below `byte`. */
static inline size_t tokeniser_bound(const tokeniser_set *set, size_t low, size_t high, size_t i, int byte) {
    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (tokeniser_byte_at(&set->list[middle], i) < byte) low = middle + 1;
        else high = middle;
    }
    return low;
}

static inline const tokeniser_added *tokeniser_longest(const tokeniser_set *set, const char *p, size_t n) {
    const tokeniser_added *best = NULL;
    size_t low = 0, high = set->count, i;

    for (i = 0; i < n && low < high; ++i) {
        const int byte = (unsigned char)p[i];

        low = tokeniser_bound(set, low, high, i, byte);
        high = tokeniser_bound(set, low, high, i, byte + 1);
        if (low < high && set->list[low].bytes == i + 1) best = &set->list[low];
    }
    return best;
}

static inline int tokeniser_within_word(const char *p, size_t n, size_t begin, size_t end) {
    int k;

    if (begin) {
        (void)tokeniser_class(p + tokeniser_before(p, begin), &k);
        if (unicode_is_word(k)) return 1;
    }
    if (end == n) return 0;
    (void)tokeniser_class(p + end, &k);
    return unicode_is_word(k);
}

static inline size_t tokeniser_space_before(const char *p, size_t least, size_t i) { /* where white space begins */
    int k;

    while (i > least) {
        const size_t before = tokeniser_before(p, i);

        (void)tokeniser_class(p + before, &k);
        if ((k & UNICODE_CLASS) != UNICODE_SPACE) break;
        i = before;
    }
    return i;
}

typedef int tokeniser_rest(tokeniser *t, const char *p, size_t n, int is_first);

/* The added tokens of a set, and `rest` for what stands between them. is_first: p is where the text begins. */
static inline int tokeniser_scan(tokeniser *t, const tokeniser_set *set, const char *p, size_t n, int is_first,
                                 tokeniser_rest *rest) {
    size_t done = 0, i = 0, spaces = 0; /* spaces: where a run of white space ends, which is not gone through twice */

    while (i < n) {
        const tokeniser_added *const a = set->first[(unsigned char)p[i]] ? tokeniser_longest(set, p + i, n - i) : NULL;
        size_t begin = i, end;
        int flags;

        i += a ? a->bytes : 1;
        if (!a) continue;
        end = i;
        flags = t->tokens[a->id].flags;
        if (flags & TOKENISER_WORD && tokeniser_within_word(p, n, begin, end)) continue;
        if (flags & TOKENISER_LSTRIP) begin = tokeniser_space_before(p, done, begin);
        if (flags & TOKENISER_RSTRIP) {
            if (end >= spaces) spaces = end + tokeniser_run(p + end, n - end, TOKENISER_SPACES);
            end = spaces;
        }
        if (done < begin && rest(t, p + done, begin - done, is_first && !done)) return 1;
        if (tokeniser_push(t, t->out, a->id)) return 1;
        done = end;
    }
    return done < n && rest(t, p + done, n - done, is_first && !done);
}

static inline int tokeniser_plain(tokeniser *t, const char *p, size_t n, int is_first) { /* without added tokens */
    if (tokeniser_change_text(t, &t->metaspace, is_first, &p, &n)) return 1;
    return tokeniser_split(t, 0, p, n);
}

static inline int tokeniser_raw(tokeniser *t, const char *p, size_t n, int is_first) { /* may have normalized ones */
    if (tokeniser_change_text(t, &t->normalizer, is_first, &p, &n)) return 1;
    return tokeniser_scan(t, &t->sets[1], p, n, is_first, tokeniser_plain);
}

static inline int tokeniser_push_all(tokeniser *t, const tokeniser_ids *ids) {
    size_t i;

    for (i = 0; i < ids->count; ++i)
        if (tokeniser_push(t, t->out, ids->ids[i])) return 1;
    return 0;
}

static inline int tokeniser_encode(tokeniser *t, const char *text, size_t bytes, int flags, tokeniser_ids *out) {
    const size_t count = out->count;
    const int special = flags & TOKENISER_ADD_SPECIAL;
    size_t i, n;
    uint32_t code;
    int failed;

    if (!t->tokens) return tokeniser_refuse(t, "the tokeniser is not open");
    if (bytes > (size_t)1 << 30) return tokeniser_refuse(t, "a text of more than 1 GiB");
    for (i = 0; i < bytes; i += n) {
        n = (unsigned char)text[i] < 0x80 ? 1 : json_utf8_read(text + i, bytes - i, &code);
        if (!n) return tokeniser_refuse(t, "byte %lu of the text is no UTF-8", (unsigned long)i);
    }
    t->out = out;
    failed = (special && tokeniser_push_all(t, &t->around[0]))
        || tokeniser_scan(t, &t->sets[0], text, bytes, 1, tokeniser_raw)
        || (special && tokeniser_push_all(t, &t->around[1]));
    if (failed) out->count = count;
    return failed;
}

/* ---- decoding ---- */
static inline int tokeniser_decode_bytes(tokeniser *t, const char *p, size_t n, tokeniser_bytes *out) {
    const size_t begin = out->count;
    size_t i, bytes;
    uint32_t code;

    for (i = 0; i < n; i += bytes) {
        char byte;

        bytes = tokeniser_code(p + i, &code);
        if (code >= TOKENISER_LETTER_END || t->bytes_of[code] < 0) { /* an added token with a blank, say: as it is */
            out->count = begin;
            return tokeniser_append(t, out, p, n);
        }
        byte = (char)(unsigned char)t->bytes_of[code];
        if (tokeniser_append(t, out, &byte, 1)) return 1;
    }
    return 0;
}

static inline int tokeniser_hex(char digit) { /* its value, or -1 */
    static const char digits[] = "0123456789ABCDEFabcdef";
    const char *const found = digit ? strchr(digits, digit) : NULL;

    return !found ? -1 : found - digits < 16 ? (int)(found - digits) : (int)(found - digits) - 6;
}

/* Whether it reads <0x0A>, and which byte that is. */
static inline int tokeniser_is_byte(const char *p, size_t n, char *byte) {
    if (n != 6 || memcmp(p, "<0x", 3) || p[5] != '>' || tokeniser_hex(p[3]) < 0 || tokeniser_hex(p[4]) < 0) return 0;
    *byte = (char)(unsigned char)(tokeniser_hex(p[3]) * 16 + tokeniser_hex(p[4]));
    return 1;
}

static inline int tokeniser_decode_text(tokeniser *t, const char *p, size_t n, int is_first, tokeniser_bytes *out) {
    tokeniser_step s = t->decode_replace;
    char byte;

    if (t->decode_fallback && tokeniser_is_byte(p, n, &byte)) return tokeniser_append(t, out, &byte, 1);
    if (t->decode_drops && is_first) s.to.bytes = 0;
    return s.from.bytes ? tokeniser_replace(t, &s, p, n, out) : tokeniser_append(t, out, p, n);
}

static inline void tokeniser_strip(const tokeniser *t, tokeniser_bytes *out, size_t begin) {
    const char *const strip = t->pool.bytes + t->decode_strip.begin;
    size_t end = begin;
    int64_t i;

    for (i = 0; i < t->decode_strips && out->count - end >= t->decode_strip.bytes; ++i) {
        if (memcmp(out->bytes + end, strip, t->decode_strip.bytes)) break;
        end += t->decode_strip.bytes;
    }
    if (end > begin) memmove(out->bytes + begin, out->bytes + end, out->count - end);
    out->count -= end - begin;
}

static inline int tokeniser_decode(tokeniser *t, const int32_t *ids, size_t count, int flags, tokeniser_bytes *out) {
    const size_t begin = out->count;
    int is_first = !(flags & TOKENISER_CONTINUE), failed = 0;
    size_t i;

    for (i = 0; i < count && !failed; ++i) {
        const size_t id = ids[i] < 0 ? t->size : (size_t)ids[i];
        const tokeniser_token *const k = id < t->size ? &t->tokens[id] : NULL;
        const char *p;

        if (!k || !k->flags) {
            failed = tokeniser_refuse(t, "id %ld at place %lu is no token", (long)ids[i], (unsigned long)i);
            break;
        }
        if (k->flags & TOKENISER_SPECIAL && flags & TOKENISER_SKIP_SPECIAL) continue;
        p = t->pool.bytes + k->decoded;
        if (t->decode_byte_level) failed = tokeniser_decode_bytes(t, p, k->decoded_bytes, out);
        else failed = tokeniser_decode_text(t, p, k->decoded_bytes, is_first, out);
        is_first = 0;
    }
    if (failed) out->count = begin;
    else if (!(flags & TOKENISER_CONTINUE)) tokeniser_strip(t, out, begin);
    return failed;
}

/* ---- opening ---- */
#include "tokeniser_file.h" /* tokeniser_read */

static inline void tokeniser_close(tokeniser *t) {
    int i;

    for (i = 0; i < 2; ++i) {
        free(t->sets[i].list);
        free(t->around[i].ids);
        free(t->normalizer.buffers[i].bytes);
        free(t->metaspace.buffers[i].bytes);
    }
    free(t->pool.bytes);
    free(t->tokens);
    free(t->by_text);
    free(t->merges.slots);
    free(t->chars.slots);
    free(t->joints.slots);
    free(t->merged);
    free(t->cache);
    free(t->symbols);
    free(t->heap);
    free(t->whole.bytes);
    free(t->codes);
    memset(t, 0, sizeof *t);
}

static inline int tokeniser_open_text(tokeniser *t, char *text, size_t bytes) {
    tokeniser_file f;
    char why[sizeof t->message];
    int failed;

    memset(&f, 0, sizeof f);
    failed = json_parse(&f, text, bytes) ? tokeniser_refuse(t, "%s", f.message) : tokeniser_read(t, &f);
    json_free(&f);
    if (!failed) return 0;
    memcpy(why, t->message, sizeof why);
    tokeniser_close(t);
    memcpy(t->message, why, sizeof why);
    return 1;
}

static inline int tokeniser_open(tokeniser *t, const char *path) {
    char *text;
    size_t bytes;
    const char *const why = json_file_bytes(path, &text, &bytes);
    int failed;

    if (why) return tokeniser_refuse(t, "%s", why);
    failed = tokeniser_open_text(t, text, bytes);
    free(text);
    return failed;
}
#endif
