/* corpus.h - a file of text as documents of tokens, made once: NAME.tokens beside it.

   Input    By the file's name. .jsonl or .json: a document a line, with "messages" (rendered by a chat template, see
            chat.h), or "prompt" and "completion", or "text": the first of these that a line has; other members are
            ignored, and null is as if missing. .u16, or .bin of llm.c: tokens, a document ends with the end-of-text
            token. Anything else: UTF-8, one document, unless it has <|endoftext|>, <|end_of_text|> or </s>, if the
            tokeniser has that token, between documents; a newline behind it belongs to it.
   Loss     is on completions and what the assistant says, or on everything (learn_all); on all of a text. A document
            gets the tokeniser's first token in front, and behind it the one that ends it, which has loss.
   File     14 words of 32 bits, little endian (CORPUS_HEAD tells), then a word for each token, bit 31 its loss, and
            CORPUS_END behind each document. It is used again when content, tokeniser and options are the same and its
            checksums hold, and else replaced. It is written beside, synced and renamed: whole at any moment, whoever
            does the same at the same time. A file of that name that is not ours is left alone. Where it cannot be
            written, a temporary file without a name takes its place.
   Memory   while it is made: a few times the longest line, or some MB for a text, which is encoded by the megabyte, cut
            before a space or newline between two words. */
#ifndef FINETUNE_CORPUS_H
#define FINETUNE_CORPUS_H
#include "memopt.h"
#include "chat.h"
#include <stdarg.h>

typedef struct finetune_coder { /* a tokeniser */
    /* Adds the tokens of a text to *ids, which grows by realloc: *count are there, of a *capacity. Special tokens' texts
       are ordinary text here. 1: no memory, or text it cannot encode */
    int (*encode_fn)(void *user, const char *text, size_t bytes, int32_t **ids, size_t *count, size_t *capacity);
    int (*token_fn)(void *user, const char *text, int32_t *id); /* a special token by its text; 1: there is none */
    void *user;
    int32_t bos, eos; /* in front of a document, and behind it; -1: none */
    uint32_t crc;     /* of all that decides its results */
} finetune_coder;

typedef struct corpus_desc { /* zero it, then set what you need */
    const char *path;
    const char *cache;     /* the folder for NAME.tokens; NULL = where the file is */
    const char *chat;      /* a template as chat_find() takes it; NULL = by the tokeniser's special tokens */
    finetune_coder coder;
    size_t vocabulary;     /* tokens are below it; 0 = CORPUS_END */
    int    learn_all;      /* 1: loss on prompts and users' turns too */
    int    quiet;          /* 1: no progress on stderr */
    const memopt_host *host;
} corpus_desc;

typedef struct corpus {
    memopt_host host;
    void    *file;         /* word w of the tokens is at byte 4 * (CORPUS_HEAD + w) */
    uint64_t words, documents;
    char     path[4096];   /* of NAME.tokens */
    int      no_room;      /* beside it: temporary files go elsewhere */
} corpus;

/** 0, or 1 and `message` says why not, and nothing is left behind. */
static inline int corpus_open(const corpus_desc *desc, corpus *out, char *message, size_t capacity);
/** A file without a name, beside NAME.tokens or where the system has such. 0, or 1 with a message. */
static inline int corpus_scratch(const corpus *c, void **file, char *message, size_t capacity);
static inline void corpus_close(corpus *c);

#define CORPUS_LEARNED 0x80000000u
#define CORPUS_END 0x7fffffffu
/* Words before the tokens: magic (2), version, CRCs of tokeniser, options and content, bytes of the content (2); these
   are the key. Then words behind them all (2), documents (2), the CRC of those words, the CRC of all before. */
enum { CORPUS_HEAD = 14, CORPUS_KEY = 8, CORPUS_VERSION = 1 };
enum { CORPUS_TEXT, CORPUS_LINES, CORPUS_TOKENS };    /* kinds of input */
enum { CORPUS_DONE, CORPUS_REFUSED, CORPUS_NO_FILE, CORPUS_FOREIGN }; /* NO_FILE: there is none, or it is no use */
enum { CORPUS_PIECE = 1 << 20, CORPUS_BLOCK = 4096, CORPUS_TAIL = 32 /* longer than a separator and its newline */ };

typedef struct corpus_out { /* a part of a file, written in blocks */
    const memopt_files *files;
    void *file;
    uint64_t at;
    uint32_t crc;
    memopt_status status; /* of the first write that failed */
    size_t used;
    unsigned char bytes[CORPUS_BLOCK];
} corpus_out;

typedef struct corpus_maker {
    corpus *c;
    const corpus_desc *desc;
    chat chat_template;
    char *message;
    size_t capacity;
    void *input;
    int kind;
    uint64_t from, to, at; /* what is read of it: bytes; `at` is the next one */
    uint64_t line;         /* 0: none */
    uint64_t told;         /* when progress was */
    uint32_t crc;          /* of what has been read */
    char *text;            /* begin..end of it have been read and not used yet */
    size_t begin, end, text_room;
    int32_t *ids;          /* of a document, or a part of it; those with loss are negative */
    size_t count, room;
    char *run;             /* text of a line's document that is encoded at once, from run_begin on; before it, the one */
    size_t run_begin, run_bytes, run_room; /* that it goes on from */
    int run_learned;
    int opened, answered;  /* a document has begun; what is learned of it has not been ended by a token for that */
    json_document json;
    uint64_t documents;
    corpus_out out;
    uint32_t head[CORPUS_HEAD];
} corpus_maker;

/* ---- refusals ---- */
static inline int corpus_say(char *message, size_t capacity, const char *format, ...) { /* returns CORPUS_REFUSED */
    va_list list;

    va_start(list, format);
    vsnprintf(message, capacity, format, list);
    va_end(list);
    for (; *message; ++message) /* a file's name or content may hold anything, also what a terminal obeys */
        if ((unsigned char)*message < ' ' || *message == 127) *message = '?';
    return CORPUS_REFUSED;
}

static inline int corpus_refuse(const corpus_maker *m, const char *reason) { /* FILE:LINE: REASON */
    if (!m->line) return corpus_say(m->message, m->capacity, "%.300s: %s", m->desc->path, reason);
    return corpus_say(m->message, m->capacity, "%.300s:%llu: %s", m->desc->path, (unsigned long long)m->line, reason);
}

/* ---- files ---- */
static inline uint32_t corpus_word(const void *bytes) {
    unsigned char b[4];

    memcpy(b, bytes, 4);
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline int corpus_read(const memopt_host *h, void *file, uint64_t at, void *bytes, size_t count) {
    size_t done = 0;

    return h->files.read_fn(h->files.user, file, at, bytes, count, &done) || done != count;
}

/* Words first to first + count - 1 of the tokens. */
static inline int corpus_words(const corpus *c, uint64_t first, uint32_t *words, size_t count) {
    size_t i;

    if (corpus_read(&c->host, c->file, 4 * (CORPUS_HEAD + first), words, 4 * count)) return 1;
    for (i = 0; i < count; ++i) words[i] = corpus_word(&words[i]);
    return 0;
}

static inline void corpus_shut(const memopt_host *h, void **file) {
    if (*file) (void)h->files.close_fn(h->files.user, *file);
    *file = NULL;
}

static inline void corpus_close(corpus *c) { corpus_shut(&c->host, &c->file); }

static inline void corpus_flush(corpus_out *o) {
    if (!o->status && o->used) o->status = o->files->write_fn(o->files->user, o->file, o->at, o->bytes, o->used);
    o->crc = memopt_crc32c(o->crc, o->bytes, o->used);
    o->at += o->used;
    o->used = 0;
}

static inline void corpus_put(corpus_out *o, const void *bytes, size_t count) {
    if (sizeof o->bytes - o->used < count) corpus_flush(o);
    memcpy(o->bytes + o->used, bytes, count);
    o->used += count;
}

static inline void corpus_word_bytes(unsigned char *b, uint32_t word) {
    int i;

    for (i = 0; i < 4; ++i) b[i] = (unsigned char)(word >> 8 * i & 255);
}

static inline void corpus_put_word(corpus_out *o, uint32_t word) {
    unsigned char b[4];

    corpus_word_bytes(b, word);
    corpus_put(o, b, 4);
}

static inline void corpus_out_begin(corpus_out *o, const memopt_host *h, void *file, uint64_t at) {
    memset(o, 0, sizeof *o);
    o->files = &h->files;
    o->file = file;
    o->at = at;
}

static inline int corpus_scratch(const corpus *c, void **file, char *message, size_t capacity) {
    const memopt_host *const h = &c->host;
    const char *const folders[] = { c->path, getenv("TMPDIR"), getenv("TEMP"), "/tmp" };
    memopt_status status = MEMOPT_ERR_IO;
    uint64_t now = 0;
    char name[4200];
    int i, attempt;

    for (i = c->no_room; i < 4; ++i) {
        for (attempt = 0; folders[i] && attempt < 8; ++attempt) {
            (void)h->clock.now_fn(h->clock.user, &now);
            snprintf(name, sizeof name, i ? "%s/memopt.%llx" : "%s.%llx", folders[i],
                     (unsigned long long)now + (unsigned)attempt);
            status = h->files.open_fn(h->files.user, name, MEMOPT_OPEN_SCRATCH, file);
            if (!status) return 0;
            if (status != MEMOPT_ERR_STATE) break; /* else another file has that name */
        }
    }
    return corpus_say(message, capacity, "no temporary file can be made beside %.300s, in TMPDIR or in /tmp: %s",
                      c->path, memopt_status_text(status));
}

/* ---- reading the input ---- */
static inline void corpus_tell(corpus_maker *m) { /* every five seconds */
    const memopt_host *const h = &m->c->host;
    uint64_t now = 0;

    if (m->desc->quiet || h->clock.now_fn(h->clock.user, &now)) return;
    if (!m->told) m->told = now;
    if (now - m->told < UINT64_C(5000000000)) return;
    m->told = now;
    fprintf(stderr, "tokenising %s: %llu of %llu MB\n", m->desc->path, (unsigned long long)(m->at / 1000000),
            (unsigned long long)(m->to / 1000000));
}

/* Reads on: as many bytes as there are unused ones, and at least CORPUS_PIECE, or to the end. */
static inline int corpus_more(corpus_maker *m) {
    const size_t left = m->end - m->begin, want = left < CORPUS_PIECE ? (size_t)CORPUS_PIECE : left;
    const size_t count = m->to - m->at < want ? (size_t)(m->to - m->at) : want;

    if (left) memmove(m->text, m->text + m->begin, left);
    m->begin = 0;
    m->end = left;
    if (left + want > m->text_room) {
        char *const larger = left > SIZE_MAX / 2 ? NULL : (char *)realloc(m->text, left + want);

        if (!larger) return corpus_refuse(m, "no memory for a line");
        m->text = larger;
        m->text_room = left + want;
    }
    if (corpus_read(&m->c->host, m->input, m->at, m->text + left, count))
        return corpus_refuse(m, "it could not be read");
    m->crc = memopt_crc32c(m->crc, m->text + left, count);
    m->end += count;
    m->at += count;
    return 0;
}

static inline void corpus_rewind(corpus_maker *m) {
    m->at = m->from;
    m->begin = m->end = 0;
    m->line = m->crc = 0;
}

static inline int corpus_is_named(const char *path, const char *end) {
    const size_t name = strlen(path), n = strlen(end);

    return name > n && !strcmp(path + name - n, end);
}

static inline int corpus_recognise(corpus_maker *m, uint64_t bytes) {
    const char *const path = m->desc->path;
    unsigned char head[12] = { 0 };
    const int llmc = bytes >= 1024 && !corpus_read(&m->c->host, m->input, 0, head, 12) && corpus_word(head) == 20240520;

    m->to = bytes;
    m->kind = llmc || corpus_is_named(path, ".u16")                               ? CORPUS_TOKENS
              : corpus_is_named(path, ".jsonl") || corpus_is_named(path, ".json") ? CORPUS_LINES
                                                                                  : CORPUS_TEXT;
    if (llmc) {
        m->from = 1024;
        m->to = 1024 + 2 * (uint64_t)corpus_word(head + 8);
        if (corpus_word(head + 4) != 1)
            return corpus_refuse(m, "of llm.c's files only version 1, of 16-bit tokens, is read");
        if (m->to > bytes) return corpus_refuse(m, "it has fewer tokens than its header says: was it cut off?");
    } else if (corpus_is_named(path, ".bin")) {
        return corpus_refuse(m, "a .bin file begins with llm.c's number 20240520, and this one does not; 16-bit tokens "
                                "without a header are read from a file whose name ends in .u16");
    }
    if (m->kind == CORPUS_TOKENS && (m->to - m->from) % 2)
        return corpus_refuse(m, "it is no whole number of 16-bit tokens: was it cut off?");
    return m->to > m->from ? 0 : corpus_refuse(m, "it is empty");
}

/* ---- a document's tokens ---- */
static inline int corpus_mark(corpus_maker *m, size_t i, int learned) { /* a token that has been added */
    const uint64_t limit = m->desc->vocabulary ? m->desc->vocabulary : CORPUS_END;
    char why[100];

    if (m->ids[i] < 0 || (uint64_t)m->ids[i] >= limit) {
        snprintf(why, sizeof why, "token %ld, and the vocabulary has %llu", (long)m->ids[i], (unsigned long long)limit);
        return corpus_refuse(m, why);
    }
    if (learned) m->ids[i] = m->ids[i] - INT32_MAX - 1;
    return 0;
}

static inline int corpus_push(corpus_maker *m, int32_t id, int learned) {
    if (m->count == m->room) {
        const size_t room = m->room ? 2 * m->room : 256;
        int32_t *const larger = room > SIZE_MAX / 8 ? NULL : (int32_t *)realloc(m->ids, room * sizeof *larger);

        if (!larger) return corpus_refuse(m, "no memory for its tokens");
        m->ids = larger;
        m->room = room;
    }
    m->ids[m->count++] = id;
    return corpus_mark(m, m->count - 1, learned);
}

static inline int corpus_encode(corpus_maker *m, const char *text, size_t bytes) { /* without loss */
    const finetune_coder *const c = &m->desc->coder;

    if (!bytes || !c->encode_fn(c->user, text, bytes, &m->ids, &m->count, &m->room)) return 0;
    return corpus_refuse(m, "the tokeniser cannot encode the text, or has no memory");
}

static inline int corpus_mark_from(corpus_maker *m, size_t first, int learned) {
    while (first < m->count)
        if (corpus_mark(m, first++, learned)) return 1;
    return 0;
}

static inline int corpus_begin(corpus_maker *m) { /* a document */
    m->count = m->run_begin = m->run_bytes = 0;
    m->opened = 1;
    m->answered = 0;
    return m->desc->coder.bos < 0 ? 0 : corpus_push(m, m->desc->coder.bos, 0);
}

static inline int corpus_write(corpus_maker *m, size_t first) { /* 1 without a message: it could not be written */
    size_t i;

    for (i = first; i < m->count; ++i) corpus_put_word(&m->out, (uint32_t)m->ids[i]);
    m->count = 0;
    return m->out.status != MEMOPT_OK;
}

static inline int corpus_end(corpus_maker *m, size_t first) {
    if (corpus_write(m, first)) return 1;
    corpus_put_word(&m->out, CORPUS_END);
    ++m->documents;
    m->opened = 0;
    return 0;
}

/* ---- text ---- */
/* The first separator in what is unused: its offset; *length: its bytes, with the newline behind it. 0: there is none,
   or it may go on behind what has been read. */
static inline size_t corpus_separator(const corpus_maker *m, size_t *length) {
    static const char *const names[] = { "<|endoftext|>", "<|end_of_text|>", "</s>" };
    const char *const text = m->text + m->begin, *p = text;
    const size_t left = m->end - m->begin;
    int32_t id;
    int i;

    for (*length = 0; left && (p = (const char *)memchr(p, '<', (size_t)(text + left - p))) != NULL; ++p) {
        for (i = 0; i < 3; ++i) {
            const size_t n = strlen(names[i]), behind = (size_t)(text + left - p);

            if (behind < n || memcmp(p, names[i], n)) continue;
            if (m->desc->coder.token_fn(m->desc->coder.user, names[i], &id)) continue;
            if (behind < n + 2 && m->at < m->to) return 0;
            *length = n;
            if (behind > n && p[n] == '\n') *length += 1;
            else if (behind > n + 1 && p[n] == '\r' && p[n + 1] == '\n') *length += 2;
            return (size_t)(p - text);
        }
    }
    return left;
}

static inline int corpus_is_word(char c) {
    const unsigned char u = (unsigned char)c;

    return u >= 0x80 || (u >= '0' && u <= '9') || ((u | 32) >= 'a' && (u | 32) <= 'z');
}

/* Where a long text is cut: most tokenisers end a token there anyway. */
static inline size_t corpus_cut(const char *text, size_t bytes) {
    size_t i = bytes - CORPUS_TAIL;

    for (; i > bytes / 2; --i)
        if ((text[i] == ' ' || text[i] == '\n') && corpus_is_word(text[i - 1]) && corpus_is_word(text[i + 1])) return i;
    for (i = bytes - CORPUS_TAIL; ((unsigned char)text[i] & 0xC0) == 0x80 && i > bytes / 2; --i) {}
    return i;
}

static inline int corpus_text_part(corpus_maker *m, size_t bytes) {
    const char *const text = m->text + m->begin;
    uint32_t code;
    size_t i, n;
    char why[100];

    for (i = 0; i < bytes; i += n) {
        n = json_utf8_read(text + i, bytes - i, &code);
        if (n) continue;
        snprintf(why, sizeof why, "byte %llu is no UTF-8: convert it, as with iconv",
                 (unsigned long long)(m->at - (m->end - m->begin) + i));
        return corpus_refuse(m, why);
    }
    if (bytes && !m->opened && corpus_begin(m)) return 1;
    m->begin += bytes;
    n = m->count;
    return corpus_encode(m, text, bytes) || corpus_mark_from(m, n, 1) || corpus_write(m, 0);
}

static inline int corpus_text_end(corpus_maker *m) { /* of a document */
    const int32_t eos = m->desc->coder.eos;

    if (!m->opened) return 0;
    return (eos >= 0 && corpus_push(m, eos, 1)) || corpus_end(m, 0);
}

static inline int corpus_text(corpus_maker *m) {
    size_t length, n;

    if (corpus_more(m)) return 1;
    if (m->end >= 3 && !memcmp(m->text, "\xEF\xBB\xBF", 3)) m->begin = 3; /* as some editors begin a file */
    while (m->begin < m->end || m->at < m->to) {
        const size_t left = m->end - m->begin;

        n = corpus_separator(m, &length);
        if (length) {
            if (corpus_text_part(m, n) || corpus_text_end(m)) return 1;
            m->begin += length;
        } else if (m->at == m->to) {
            if (corpus_text_part(m, left)) return 1;
        } else if (left < CORPUS_PIECE) {
            if (corpus_more(m)) return 1;
        } else if (corpus_text_part(m, corpus_cut(m->text + m->begin, left))) return 1;
        corpus_tell(m);
    }
    return corpus_text_end(m);
}

/* ---- tokens ---- */
static inline int corpus_tokens(corpus_maker *m) { /* of 16 bits: as they are */
    for (;;) {
        unsigned char b[4] = { 0 };
        int32_t id;

        if (m->begin == m->end && m->at < m->to && corpus_more(m)) return 1;
        if (m->begin == m->end) return m->opened ? corpus_end(m, 0) : 0;
        memcpy(b, m->text + m->begin, 2);
        m->begin += 2;
        m->opened = 1;
        id = (int32_t)corpus_word(b);
        if (corpus_push(m, id, 1)) return 1;
        if (id == m->desc->coder.eos ? corpus_end(m, 0) : m->count == CORPUS_BLOCK && corpus_write(m, 0)) return 1;
    }
}

/* ---- lines of JSON ---- */
/* The tokens of a run are those that it adds to the tokens of the text before it, as where the whole is encoded at once:
   a tokeniser may begin a text in a way of its own. Where the two grow together into one token, it is encoded alone. */
static inline int corpus_run_end(corpus_maker *m) {
    const size_t first = m->count, bytes = m->run_bytes - m->run_begin;
    size_t before, both;

    if (!bytes) return 0;
    if (corpus_encode(m, m->run, m->run_begin)) return 1;
    before = m->count - first;
    if (corpus_encode(m, m->run, m->run_bytes)) return 1;
    both = m->count - first - before;
    if (both >= before && (!before || !memcmp(m->ids + first, m->ids + first + before, before * sizeof *m->ids))) {
        m->count = first + both - before;
        if (before) memmove(m->ids + first, m->ids + first + 2 * before, (both - before) * sizeof *m->ids);
    } else {
        m->count = first;
        if (corpus_encode(m, m->run + m->run_begin, bytes)) return 1;
    }
    memmove(m->run, m->run + m->run_begin, bytes);
    m->run_begin = m->run_bytes = bytes;
    return corpus_mark_from(m, first, m->run_learned);
}

static inline int corpus_special_token(corpus_maker *m, int32_t id, int learned) {
    const int wrong = corpus_run_end(m);

    m->run_begin = m->run_bytes = 0;
    return wrong || corpus_push(m, id, learned);
}

static inline int corpus_run_add(corpus_maker *m, const char *text, size_t bytes, int learned) {
    if (learned != m->run_learned && corpus_run_end(m)) return 1;
    m->run_learned = learned;
    if (bytes > m->run_room - m->run_bytes) {
        const size_t room = bytes > SIZE_MAX / 4 - m->run_bytes ? 0 : 2 * (m->run_bytes + bytes);
        char *const larger = room ? (char *)realloc(m->run, room) : NULL;

        if (!larger) return corpus_refuse(m, "no memory for its text");
        m->run = larger;
        m->run_room = room;
    }
    if (bytes) memcpy(m->run + m->run_bytes, text, bytes);
    m->run_bytes += bytes;
    return 0;
}

static inline size_t corpus_special(const corpus_maker *m, const char *text, size_t bytes, int32_t *id) {
    const char *const end = *text == '<' || *text == '[' ? (const char *)memchr(text, *text == '<' ? '>' : ']', bytes)
                                                         : NULL;
    char name[64];
    size_t n;

    if (!end || end - text >= 63) return 0;
    n = (size_t)(end - text) + 1;
    memcpy(name, text, n);
    name[n] = 0;
    return m->desc->coder.token_fn(m->desc->coder.user, name, id) ? 0 : n;
}

/* A chat_put_fn. */
static inline int corpus_add(void *user, const char *text, size_t bytes, int flags) {
    corpus_maker *const m = (corpus_maker *)user;
    const int learned = m->desc->learn_all || (flags & CHAT_LEARNED);
    int32_t id;
    size_t n;

    if (!(flags & CHAT_MARKUP)) {
        m->answered = flags & CHAT_LEARNED;
        return corpus_run_add(m, text, bytes, learned);
    }
    for (; bytes; text += n, bytes -= n) {
        n = corpus_special(m, text, bytes, &id);
        if (n) {
            if (corpus_special_token(m, id, learned)) return 1;
            if (id == m->desc->coder.eos) m->answered = 0;
            continue;
        }
        n = 1;
        if (corpus_run_add(m, text, n, learned)) return 1;
    }
    return 0;
}

static inline uint32_t corpus_member(const corpus_maker *m, const char *name) {
    const uint32_t node = json_member(&m->json, 0, name);

    return json_kind_of(&m->json, node) == JSON_NULL ? JSON_NONE : node;
}

static inline int corpus_add_member(corpus_maker *m, const char *name, int flags) {
    size_t bytes = 0;
    const char *const text = json_string(&m->json, corpus_member(m, name), &bytes);
    char why[64];

    if (text) return corpus_add(m, text, bytes, flags);
    snprintf(why, sizeof why, "\"%s\" is missing, or is no string", name);
    return corpus_refuse(m, why);
}

static inline int corpus_add_messages(corpus_maker *m, uint32_t messages) {
    char why[160];

    if (json_kind_of(&m->json, messages) != JSON_ARRAY) return corpus_refuse(m, "\"messages\" is no list");
    if (!chat_render(&m->chat_template, &m->json, messages, corpus_add, m, why, sizeof why)) return 0;
    return *why ? corpus_refuse(m, why) : 1;
}

static inline int corpus_line_end(corpus_maker *m) { /* of its document */
    const int32_t bos = m->desc->coder.bos, eos = m->desc->coder.eos;
    size_t first;

    if (corpus_run_end(m) || (eos >= 0 && m->answered && corpus_push(m, eos, 1))) return 1;
    while (m->count && m->ids[m->count - 1] >= 0) --m->count; /* no loss there, nor behind */
    first = bos >= 0 && m->count > 1 && (m->ids[1] & INT32_MAX) == bos; /* the template has one itself */
    return corpus_end(m, first);
}

static inline int corpus_line(corpus_maker *m, char *text, size_t bytes) {
    const char *reason;
    uint32_t messages;
    int wrong;

    if (json_parse(&m->json, text, bytes)) {
        reason = strchr(m->json.message, ','); /* behind its "line 1" */
        return corpus_refuse(m, reason ? reason + 2 : m->json.message);
    }
    if (json_kind_of(&m->json, 0) != JSON_OBJECT)
        return corpus_refuse(m, "it is no JSON object; each line has one: jq -c '.[]' makes them of a list");
    if (corpus_begin(m)) return 1;
    messages = corpus_member(m, "messages");
    if (messages != JSON_NONE) wrong = corpus_add_messages(m, messages);
    else if (corpus_member(m, "prompt") != JSON_NONE || corpus_member(m, "completion") != JSON_NONE)
        wrong = corpus_add_member(m, "prompt", 0) || corpus_add_member(m, "completion", CHAT_LEARNED);
    else if (corpus_member(m, "text") != JSON_NONE) {
        wrong = corpus_add_member(m, "text", CHAT_LEARNED);
        m->answered = m->run_bytes > 0; /* without it: an empty text is no document */
    } else wrong = corpus_refuse(m, "it has no \"messages\", no \"prompt\" with \"completion\", and no \"text\"");
    return wrong || corpus_line_end(m);
}

static inline int corpus_lines(corpus_maker *m) {
    while (m->begin < m->end || m->at < m->to) {
        char *const line = m->text + m->begin;
        const size_t left = m->end - m->begin;
        const char *const newline = left ? (const char *)memchr(line, '\n', left) : NULL;
        size_t bytes = newline ? (size_t)(newline - line) : left;

        corpus_tell(m);
        if (!newline && m->at < m->to) {
            if (corpus_more(m)) return 1;
            continue;
        }
        ++m->line;
        m->begin += bytes + (newline != NULL);
        while (bytes && strchr(" \t\r", line[bytes - 1]) && line[bytes - 1]) --bytes;
        if (bytes && corpus_line(m, line, bytes)) return 1;
    }
    return 0;
}

/* ---- the file of tokens ---- */
static inline uint32_t corpus_options_crc(const corpus_maker *m) {
    const chat *const c = &m->chat_template;
    const uint64_t vocabulary = m->desc->vocabulary;
    const uint32_t numbers[7] = { (uint32_t)m->kind, m->desc->learn_all != 0, (uint32_t)m->desc->coder.bos,
                                  (uint32_t)m->desc->coder.eos, (uint32_t)vocabulary, (uint32_t)(vocabulary >> 32),
                                  c->known && c->known->trims };
    unsigned char bytes[4];
    uint32_t crc = 0;
    int i;

    for (i = 0; i < 7; ++i) {
        corpus_word_bytes(bytes, numbers[i]);
        crc = memopt_crc32c(crc, bytes, 4);
    }
    for (i = 0; i <= CHAT_ROLES; ++i) {
        const char *const turn = i < CHAT_ROLES ? chat_turn(c, i, 0) : chat_turn(c, CHAT_USER, 1);

        crc = memopt_crc32c(crc, turn ? turn : "", turn ? strlen(turn) + 1 : 0);
    }
    return crc;
}

static inline int corpus_make_key(corpus_maker *m) { /* reads all of the content */
    corpus_rewind(m);
    while (m->at < m->to) {
        m->begin = m->end;
        if (corpus_more(m)) return 1;
    }
    m->head[0] = 0x4f4d454d; /* "MEMOPTOK" */
    m->head[1] = 0x4b4f5450;
    m->head[2] = CORPUS_VERSION;
    m->head[3] = m->desc->coder.crc;
    m->head[4] = corpus_options_crc(m);
    m->head[5] = m->crc;
    m->head[6] = (uint32_t)(m->to - m->from);
    m->head[7] = (uint32_t)((m->to - m->from) >> 32);
    return 0;
}

static inline uint32_t corpus_head_bytes(const corpus_maker *m, unsigned char *bytes) { /* returns their CRC */
    int i;

    for (i = 0; i < CORPUS_HEAD; ++i) corpus_word_bytes(bytes + 4 * i, m->head[i]);
    return memopt_crc32c(0, bytes, 4 * (CORPUS_HEAD - 1));
}

/* Whether an open file is what would be made: CORPUS_DONE, CORPUS_NO_FILE, or CORPUS_FOREIGN. */
static inline int corpus_check(corpus_maker *m, void *file) {
    const memopt_host *const h = &m->c->host;
    unsigned char head[4 * CORPUS_HEAD], key[4 * CORPUS_HEAD], block[CORPUS_BLOCK];
    uint64_t bytes, at = sizeof head;
    uint32_t crc = 0;

    if (h->files.size_fn(h->files.user, file, &bytes)) return CORPUS_FOREIGN;
    (void)corpus_head_bytes(m, key);
    if (!bytes) return CORPUS_NO_FILE;
    if (corpus_read(h, file, 0, head, 8) || memcmp(head, key, 8)) return CORPUS_FOREIGN;
    if (corpus_read(h, file, 0, head, sizeof head) || memcmp(head, key, 4 * CORPUS_KEY)) return CORPUS_NO_FILE;
    if (corpus_word(head + 52) != memopt_crc32c(0, head, 52)) return CORPUS_NO_FILE;
    m->c->words = (uint64_t)corpus_word(head + 36) << 32 | corpus_word(head + 32);
    m->c->documents = (uint64_t)corpus_word(head + 44) << 32 | corpus_word(head + 40);
    if (bytes % 4 || bytes / 4 != CORPUS_HEAD + m->c->words) return CORPUS_NO_FILE;
    for (; at < bytes; at += sizeof block) {
        const size_t n = bytes - at < sizeof block ? (size_t)(bytes - at) : sizeof block;

        if (corpus_read(h, file, at, block, n)) return CORPUS_NO_FILE;
        crc = memopt_crc32c(crc, block, n);
    }
    return crc == corpus_word(head + 48) ? CORPUS_DONE : CORPUS_NO_FILE;
}

static inline int corpus_find(corpus_maker *m) {
    const memopt_files *const f = &m->c->host.files;
    int result;

    if (f->open_fn(f->user, m->c->path, MEMOPT_OPEN_READ, &m->c->file)) {
        m->c->file = NULL;
        return CORPUS_NO_FILE;
    }
    result = corpus_check(m, m->c->file);
    if (result) corpus_close(m->c);
    return result;
}

/* CORPUS_NO_FILE: it cannot be written. */
static inline int corpus_make(corpus_maker *m, void *file) {
    const memopt_host *const h = &m->c->host;
    unsigned char head[4 * CORPUS_HEAD];
    int wrong;

    corpus_rewind(m);
    m->opened = 0;
    m->documents = 0;
    corpus_out_begin(&m->out, h, file, sizeof head);
    wrong = m->kind == CORPUS_TEXT ? corpus_text(m) : m->kind == CORPUS_LINES ? corpus_lines(m) : corpus_tokens(m);
    corpus_flush(&m->out);
    if (m->out.status) return CORPUS_NO_FILE;
    if (wrong) return CORPUS_REFUSED;
    m->line = 0;
    if (m->crc != m->head[5]) return corpus_refuse(m, "it changed while it was read");
    m->c->words = m->out.at / 4 - CORPUS_HEAD;
    m->c->documents = m->documents;
    m->head[8] = (uint32_t)m->c->words;
    m->head[9] = (uint32_t)(m->c->words >> 32);
    m->head[10] = (uint32_t)m->documents;
    m->head[11] = (uint32_t)(m->documents >> 32);
    m->head[12] = m->out.crc;
    m->head[13] = corpus_head_bytes(m, head);
    (void)corpus_head_bytes(m, head);
    return h->files.write_fn(h->files.user, file, 0, head, sizeof head) ? CORPUS_NO_FILE : CORPUS_DONE;
}

/* A new file, locked while it is written. One that nobody has locked is what a run left that was killed. */
static inline memopt_status corpus_new(const memopt_files *f, const char *path, void **file) {
    memopt_status status = f->open_fn(f->user, path, MEMOPT_OPEN_NEW, file);
    void *old;

    if (status == MEMOPT_ERR_STATE && !f->open_fn(f->user, path, MEMOPT_OPEN_OWN, &old)) {
        status = f->lock_fn(f->user, old);
        (void)f->close_fn(f->user, old);
        if (!status) (void)f->remove_fn(f->user, path);
        if (!status) status = f->open_fn(f->user, path, MEMOPT_OPEN_NEW, file);
    }
    if (!status) (void)f->lock_fn(f->user, *file); /* not everywhere: then a second one removes it, and both go on */
    return status;
}

static inline int corpus_cache(corpus_maker *m) {
    const memopt_files *const f = &m->c->host.files;
    void *file = NULL;
    char path[4200];
    int result;

    snprintf(path, sizeof path, "%s.new", m->c->path);
    if (corpus_new(f, path, &file)) return CORPUS_NO_FILE;
    result = corpus_make(m, file);
    if (!result && f->sync_fn(f->user, file)) result = CORPUS_NO_FILE;
    if (f->close_fn(f->user, file) && !result) result = CORPUS_NO_FILE;
    if (!result && f->rename_fn(f->user, path, m->c->path)) result = CORPUS_NO_FILE;
    if (result) (void)f->remove_fn(f->user, path);
    m->c->no_room = result == CORPUS_NO_FILE;
    return result ? result : corpus_find(m); /* another process may have put its own there since */
}

static inline int corpus_find_or_make(corpus_maker *m) {
    int result = corpus_find(m);

    if (result == CORPUS_NO_FILE) result = corpus_cache(m);
    if (result == CORPUS_DONE || result == CORPUS_REFUSED) return result;
    if (corpus_scratch(m->c, &m->c->file, m->message, m->capacity)) return CORPUS_REFUSED;
    result = corpus_make(m, m->c->file);
    return result == CORPUS_NO_FILE ? corpus_refuse(m, "no room for its tokens in a temporary file") : result;
}

/* ---- opening ---- */
static inline int corpus_begin_input(corpus_maker *m) {
    const corpus_desc *const d = m->desc;
    const memopt_files *const f = &m->c->host.files;
    const char *name = d->path, *p;
    memopt_status status;
    uint64_t bytes;
    char why[160];

    for (p = d->path; *p; ++p)
        if (*p == '/' || *p == '\\') name = p + 1;
    if (!d->cache) name = d->path;
    if (snprintf(m->c->path, sizeof m->c->path, "%s%s%s.tokens", d->cache ? d->cache : "", d->cache ? "/" : "", name)
        >= (int)sizeof m->c->path) return corpus_refuse(m, "its name is too long");
    if (chat_find(d->chat, d->coder.token_fn, d->coder.user, &m->chat_template, why, sizeof why))
        return corpus_say(m->message, m->capacity, "%s", why);
    status = f->open_fn(f->user, d->path, MEMOPT_OPEN_READ, &m->input);
    if (status) m->input = NULL;
    if (!status) status = f->size_fn(f->user, m->input, &bytes);
    if (status) return corpus_refuse(m, "it cannot be opened: is it there, and may it be read?");
    return corpus_recognise(m, bytes) || corpus_make_key(m);
}

static inline int corpus_open(const corpus_desc *desc, corpus *out, char *message, size_t capacity) {
    corpus_maker *m;
    corpus c;
    int wrong;

    memset(&c, 0, sizeof c);
    if (!desc->path || !desc->coder.encode_fn || !desc->coder.token_fn)
        return corpus_say(message, capacity, "a text needs a path and a tokeniser");
    if (memopt_host_resolve(desc->host, &c.host) || !c.host.files.lock_fn)
        return corpus_say(message, capacity, "the host is half set, or its files have no locks");
    m = (corpus_maker *)calloc(1, sizeof *m);
    if (!m) return corpus_say(message, capacity, "no memory");
    m->c = &c;
    m->desc = desc;
    m->message = message;
    m->capacity = capacity;
    wrong = corpus_begin_input(m) || corpus_find_or_make(m);
    corpus_shut(&c.host, &m->input);
    if (wrong) corpus_close(&c);
    else *out = c;
    json_free(&m->json);
    free(m->text);
    free(m->ids);
    free(m->run);
    free(m);
    return wrong;
}
#endif
