/* corpus_input.h - a file of text, lines of JSON, or tokens, as documents of tokens.

   Kinds    By the file's name. .jsonl or .json: a document a line, with "messages" (rendered by a chat template, see
            chat.h), or "prompt" and "completion", or "text": the first of these that a line has; other members are
            ignored, and null is as if missing. .u16, or .bin of llm.c: tokens, a document ends with the end-of-text
            token. Anything else: UTF-8, one document, unless it has <|endoftext|>, <|end_of_text|> or </s>, if the
            tokeniser has that token, between documents; a newline behind it belongs to it.
   Loss     is on completions and what the assistant says, or on everything (learn_all); on all of a text. A document
            gets the tokeniser's first token in front, and behind it the one that ends it, which has loss.
   Memory   A few times the longest line, or some MB for a text, which is encoded by the megabyte, cut before a space or
            newline between two words. */
#ifndef FINETUNE_CORPUS_INPUT_H
#define FINETUNE_CORPUS_INPUT_H
#include "memopt.h"
#include "chat.h"
#include "reason.h"

typedef struct finetune_coder { /* a tokeniser; its functions may be NULL where the input is tokens */
    /* Adds the tokens of a text to *ids, which grows by realloc: *count are there, of a *capacity. Whether a special
       token's text becomes that token is up to it. 1: no memory, or text it cannot encode */
    int (*encode_fn)(void *user, const char *text, size_t bytes, int32_t **ids, size_t *count, size_t *capacity);
    int (*token_fn)(void *user, const char *text, int32_t *id); /* a special token by its text; 1: there is none */
    void *user;
    int32_t bos, eos; /* in front of a document, and behind it; -1: none */
    uint32_t crc;     /* of all that decides its results */
} finetune_coder;

typedef struct corpus_desc { /* zero it, then set what you need */
    const char *path;
    const char *chat;      /* a template as chat_find() takes it; NULL = by the tokeniser's special tokens */
    finetune_coder coder;
    size_t vocabulary;     /* tokens are below it; 0 = CORPUS_END */
    int    learn_all;      /* 1: loss on prompts and users' turns too */
    int    quiet;          /* 1: no progress on stderr */
    const memopt_host *host;
} corpus_desc;

#define CORPUS_LEARNED 0x80000000u /* a token's word: the loss counts it */
#define CORPUS_END 0x7fffffffu     /* behind the last token of a document */
enum { CORPUS_TEXT, CORPUS_LINES, CORPUS_TOKENS }; /* kinds */
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

typedef struct corpus_input {
    const memopt_host *host;
    const corpus_desc *desc;
    chat chat_template;
    reason *why;
    void *file;
    int kind;
    uint64_t from, to, at; /* what is read of it: bytes; `at` is the next one */
    uint64_t line;         /* 0: none */
    uint64_t told;         /* when progress was */
    uint32_t crc;          /* of what has been read */
    char *text;            /* begin..end of it have been read and not used yet */
    size_t begin, end, text_room;
    int32_t *ids;          /* of a document, or a part of it; those with loss are negative */
    size_t count, room;
    char *run;             /* text that is encoded at once, from run_begin on; before it, the text that it continues */
    size_t run_begin, run_bytes, run_room;
    int run_learned;
    int opened, answered;  /* a document has begun; what is learned of it has not been ended by a token for that */
    json_document json;
    uint64_t documents;
    corpus_out out;
} corpus_input;

static inline int corpus_refuse(const corpus_input *in, const char *what) { /* FILE:LINE: WHAT; returns 1 */
    if (!in->line) return refuse(in->why, "%.300s: %s", in->desc->path, what);
    return refuse(in->why, "%.300s:%llu: %s", in->desc->path, (unsigned long long)in->line, what);
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

static inline void corpus_shut(const memopt_host *h, void **file) {
    if (*file) (void)h->files.close_fn(h->files.user, *file);
    *file = NULL;
}

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

/* ---- reading the input ---- */
/* Is it time to tell how far it has got? Every five seconds from the first call on. */
static inline int corpus_is_due(const memopt_host *h, uint64_t *told) {
    uint64_t now = 0;

    if (h->clock.now_fn(h->clock.user, &now)) return 0;
    if (!*told) *told = now;
    if (now - *told < UINT64_C(5000000000)) return 0;
    *told = now;
    return 1;
}

static inline void corpus_tell(corpus_input *in) {
    if (in->desc->quiet || !corpus_is_due(in->host, &in->told)) return;
    fprintf(stderr, "tokenising %s: %llu of %llu MB\n", in->desc->path, (unsigned long long)(in->at / 1000000),
            (unsigned long long)(in->to / 1000000));
}

/* Reads on: as many bytes as there are unused ones, and at least CORPUS_PIECE, or to the end. */
static inline int corpus_more(corpus_input *in) {
    const size_t left = in->end - in->begin, want = left < CORPUS_PIECE ? (size_t)CORPUS_PIECE : left;
    const size_t count = in->to - in->at < want ? (size_t)(in->to - in->at) : want;

    if (left) memmove(in->text, in->text + in->begin, left);
    in->begin = 0;
    in->end = left;
    if (left + want > in->text_room) {
        char *const larger = left > SIZE_MAX / 2 ? NULL : (char *)realloc(in->text, left + want);

        if (!larger) return corpus_refuse(in, "no memory for a line");
        in->text = larger;
        in->text_room = left + want;
    }
    if (corpus_read(in->host, in->file, in->at, in->text + left, count))
        return corpus_refuse(in, "it could not be read");
    in->crc = memopt_crc32c(in->crc, in->text + left, count);
    in->end += count;
    in->at += count;
    return 0;
}

static inline void corpus_rewind(corpus_input *in) {
    in->at = in->from;
    in->begin = in->end = 0;
    in->line = in->crc = 0;
}

static inline int corpus_is_named(const char *path, const char *end) {
    const size_t name = strlen(path), n = strlen(end);

    return name > n && !strcmp(path + name - n, end);
}

static inline int corpus_recognise(corpus_input *in, uint64_t bytes) {
    const char *const path = in->desc->path;
    unsigned char head[12] = { 0 };
    const int llmc = bytes >= 1024 && !corpus_read(in->host, in->file, 0, head, 12) && corpus_word(head) == 20240520;

    in->to = bytes;
    in->kind = llmc || corpus_is_named(path, ".u16")                             ? CORPUS_TOKENS
             : corpus_is_named(path, ".jsonl") || corpus_is_named(path, ".json") ? CORPUS_LINES
                                                                                 : CORPUS_TEXT;
    if (llmc) {
        in->from = 1024;
        in->to = 1024 + 2 * (uint64_t)corpus_word(head + 8);
        if (corpus_word(head + 4) != 1)
            return corpus_refuse(in, "of llm.c's files only version 1, of 16-bit tokens, is read");
        if (in->to > bytes) return corpus_refuse(in, "it has fewer tokens than its header says: was it cut off?");
    } else if (corpus_is_named(path, ".bin")) {
        return corpus_refuse(in, "a .bin file begins with llm.c's number 20240520, and this one does not; 16-bit "
                                 "tokens without a header are read from a file whose name ends in .u16");
    }
    if (in->kind == CORPUS_TOKENS && (in->to - in->from) % 2)
        return corpus_refuse(in, "it is no whole number of 16-bit tokens: was it cut off?");
    return in->to > in->from ? 0 : corpus_refuse(in, "it is empty");
}

/* ---- a document's tokens ---- */
static inline int corpus_mark(corpus_input *in, size_t i, int learned) { /* a token that has been added */
    const uint64_t limit = in->desc->vocabulary ? in->desc->vocabulary : CORPUS_END;
    char what[100];

    if (in->ids[i] < 0 || (uint64_t)in->ids[i] >= limit) {
        snprintf(what, sizeof what, "token %ld, and the vocabulary has %llu", (long)in->ids[i],
                 (unsigned long long)limit);
        return corpus_refuse(in, what);
    }
    if (learned) in->ids[i] = in->ids[i] - INT32_MAX - 1;
    return 0;
}

static inline int corpus_push(corpus_input *in, int32_t id, int learned) {
    if (in->count == in->room) {
        const size_t room = in->room ? 2 * in->room : 256;
        int32_t *const larger = room > SIZE_MAX / 8 ? NULL : (int32_t *)realloc(in->ids, room * sizeof *larger);

        if (!larger) return corpus_refuse(in, "no memory for its tokens");
        in->ids = larger;
        in->room = room;
    }
    in->ids[in->count++] = id;
    return corpus_mark(in, in->count - 1, learned);
}

static inline int corpus_encode(corpus_input *in, const char *text, size_t bytes) { /* without loss */
    const finetune_coder *const c = &in->desc->coder;

    if (!bytes || !c->encode_fn(c->user, text, bytes, &in->ids, &in->count, &in->room)) return 0;
    return corpus_refuse(in, "the tokeniser cannot encode the text, or has no memory");
}

static inline int corpus_mark_from(corpus_input *in, size_t first, int learned) {
    while (first < in->count)
        if (corpus_mark(in, first++, learned)) return 1;
    return 0;
}

static inline int corpus_begin(corpus_input *in) { /* a document */
    in->count = in->run_begin = in->run_bytes = 0;
    in->opened = 1;
    in->answered = 0;
    return in->desc->coder.bos < 0 ? 0 : corpus_push(in, in->desc->coder.bos, 0);
}

static inline int corpus_write(corpus_input *in, size_t first) { /* 1 without a message: it could not be written */
    size_t i;

    for (i = first; i < in->count; ++i) corpus_put_word(&in->out, (uint32_t)in->ids[i]);
    in->count = 0;
    return in->out.status != MEMOPT_OK;
}

static inline int corpus_end(corpus_input *in, size_t first) {
    if (corpus_write(in, first)) return 1;
    corpus_put_word(&in->out, CORPUS_END);
    ++in->documents;
    in->opened = 0;
    return 0;
}

/* ---- text ---- */
/* The offset of the first separator in what is unused. *length: its bytes and those of the newline behind it; 0: there
   is none, or what has been read may end within it. */
static inline size_t corpus_separator(const corpus_input *in, size_t *length) {
    static const char *const names[] = { "<|endoftext|>", "<|end_of_text|>", "</s>" };
    const char *const text = in->text + in->begin, *p = text;
    const size_t left = in->end - in->begin;
    int32_t id;
    int i;

    for (*length = 0; left && (p = (const char *)memchr(p, '<', (size_t)(text + left - p))) != NULL; ++p) {
        for (i = 0; i < 3; ++i) {
            const size_t n = strlen(names[i]), behind = (size_t)(text + left - p);

            if (behind < n || memcmp(p, names[i], n)) continue;
            if (in->desc->coder.token_fn(in->desc->coder.user, names[i], &id)) continue;
            if (behind < n + 2 && in->at < in->to) return 0;
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

static inline int corpus_text_part(corpus_input *in, size_t bytes) {
    const char *const text = in->text + in->begin;
    uint32_t code;
    size_t i, n;
    char what[100];

    for (i = 0; i < bytes; i += n) {
        n = json_utf8_read(text + i, bytes - i, &code);
        if (n) continue;
        snprintf(what, sizeof what, "byte %llu is no UTF-8: convert it, as with iconv",
                 (unsigned long long)(in->at - (in->end - in->begin) + i));
        return corpus_refuse(in, what);
    }
    if (bytes && !in->opened && corpus_begin(in)) return 1;
    in->begin += bytes;
    n = in->count;
    return corpus_encode(in, text, bytes) || corpus_mark_from(in, n, 1) || corpus_write(in, 0);
}

static inline int corpus_text_end(corpus_input *in) { /* of a document */
    const int32_t eos = in->desc->coder.eos;

    if (!in->opened) return 0;
    return (eos >= 0 && corpus_push(in, eos, 1)) || corpus_end(in, 0);
}

static inline int corpus_text(corpus_input *in) {
    size_t length, n;

    if (corpus_more(in)) return 1;
    if (in->end >= 3 && !memcmp(in->text, "\xEF\xBB\xBF", 3)) in->begin = 3; /* as some editors begin a file */
    while (in->begin < in->end || in->at < in->to) {
        const size_t left = in->end - in->begin;

        n = corpus_separator(in, &length);
        if (length) {
            if (corpus_text_part(in, n) || corpus_text_end(in)) return 1;
            in->begin += length;
        } else if (in->at == in->to) {
            if (corpus_text_part(in, left)) return 1;
        } else if (left < CORPUS_PIECE) {
            if (corpus_more(in)) return 1;
        } else if (corpus_text_part(in, corpus_cut(in->text + in->begin, left))) return 1;
        corpus_tell(in);
    }
    return corpus_text_end(in);
}

/* ---- tokens ---- */
static inline int corpus_tokens(corpus_input *in) { /* of 16 bits: as they are */
    for (;;) {
        unsigned char b[4] = { 0 };
        int32_t id;

        if (in->begin == in->end && in->at < in->to && corpus_more(in)) return 1;
        if (in->begin == in->end) return in->opened ? corpus_end(in, 0) : 0;
        memcpy(b, in->text + in->begin, 2);
        in->begin += 2;
        in->opened = 1;
        id = (int32_t)corpus_word(b);
        if (corpus_push(in, id, 1)) return 1;
        if (id == in->desc->coder.eos ? corpus_end(in, 0) : in->count == CORPUS_BLOCK && corpus_write(in, 0)) return 1;
    }
}

/* ---- lines of JSON ---- */
/* A run that continues a text has the tokens that it adds to those of that text, as if both were encoded at once:
   tokenisers may put something in front of a text. If a token would span both, the run is encoded alone. */
static inline int corpus_run_end(corpus_input *in) {
    const size_t first = in->count, bytes = in->run_bytes - in->run_begin;
    size_t before, both;

    if (!bytes) return 0;
    if (corpus_encode(in, in->run, in->run_begin)) return 1;
    before = in->count - first;
    if (corpus_encode(in, in->run, in->run_bytes)) return 1;
    both = in->count - first - before;
    if (both >= before && (!before || !memcmp(in->ids + first, in->ids + first + before, before * sizeof *in->ids))) {
        in->count = first + both - before;
        if (before) memmove(in->ids + first, in->ids + first + 2 * before, (both - before) * sizeof *in->ids);
    } else {
        in->count = first;
        if (corpus_encode(in, in->run + in->run_begin, bytes)) return 1;
    }
    memmove(in->run, in->run + in->run_begin, bytes);
    in->run_begin = in->run_bytes = bytes;
    return corpus_mark_from(in, first, in->run_learned);
}

static inline int corpus_special_token(corpus_input *in, int32_t id, int learned) {
    const int wrong = corpus_run_end(in);

    in->run_begin = in->run_bytes = 0;
    return wrong || corpus_push(in, id, learned);
}

static inline int corpus_run_add(corpus_input *in, const char *text, size_t bytes, int learned) {
    if (learned != in->run_learned && corpus_run_end(in)) return 1;
    in->run_learned = learned;
    if (bytes > in->run_room - in->run_bytes) {
        const size_t room = bytes > SIZE_MAX / 4 - in->run_bytes ? 0 : 2 * (in->run_bytes + bytes);
        char *const larger = room ? (char *)realloc(in->run, room) : NULL;

        if (!larger) return corpus_refuse(in, "no memory for its text");
        in->run = larger;
        in->run_room = room;
    }
    if (bytes) memcpy(in->run + in->run_bytes, text, bytes);
    in->run_bytes += bytes;
    return 0;
}

/* The bytes of a special token that the text begins with; 0: there is none. */
static inline size_t corpus_special(const corpus_input *in, const char *text, size_t bytes, int32_t *id) {
    const int closing = *text == '<' ? '>' : ']';
    const char *const end = (const char *)memchr(text, closing, bytes);
    char name[64];
    size_t n;

    if ((*text != '<' && *text != '[') || !end || end - text >= 63) return 0;
    n = (size_t)(end - text) + 1;
    memcpy(name, text, n);
    name[n] = 0;
    return in->desc->coder.token_fn(in->desc->coder.user, name, id) ? 0 : n;
}

/* Adds text to a document: a chat_put_fn. */
static inline int corpus_add(void *user, const char *text, size_t bytes, int flags) {
    corpus_input *const in = (corpus_input *)user;
    const int learned = in->desc->learn_all || (flags & CHAT_LEARNED);
    int32_t id;
    size_t n;

    if (!(flags & CHAT_MARKUP)) {
        in->answered = flags & CHAT_LEARNED;
        return corpus_run_add(in, text, bytes, learned);
    }
    for (; bytes; text += n, bytes -= n) {
        n = corpus_special(in, text, bytes, &id);
        if (n) {
            if (corpus_special_token(in, id, learned)) return 1;
            if (id == in->desc->coder.eos) in->answered = 0;
            continue;
        }
        n = 1;
        if (corpus_run_add(in, text, n, learned)) return 1;
    }
    return 0;
}

static inline uint32_t corpus_member(const corpus_input *in, const char *name) {
    const uint32_t node = json_member(&in->json, 0, name);

    return json_kind_of(&in->json, node) == JSON_NULL ? JSON_NONE : node;
}

static inline int corpus_add_member(corpus_input *in, const char *name, int flags) {
    size_t bytes = 0;
    const char *const text = json_string(&in->json, corpus_member(in, name), &bytes);
    char what[64];

    if (text) return corpus_add(in, text, bytes, flags);
    snprintf(what, sizeof what, "\"%s\" is missing, or is no string", name);
    return corpus_refuse(in, what);
}

static inline int corpus_add_messages(corpus_input *in, uint32_t messages) {
    char what[160];

    if (json_kind_of(&in->json, messages) != JSON_ARRAY) return corpus_refuse(in, "\"messages\" is no list");
    if (!chat_render(&in->chat_template, &in->json, messages, corpus_add, in, what, sizeof what)) return 0;
    return *what ? corpus_refuse(in, what) : 1;
}

static inline int corpus_line_end(corpus_input *in) { /* of its document */
    const int32_t bos = in->desc->coder.bos, eos = in->desc->coder.eos;
    size_t first;

    if (corpus_run_end(in) || (eos >= 0 && in->answered && corpus_push(in, eos, 1))) return 1;
    while (in->count && in->ids[in->count - 1] >= 0) --in->count; /* no loss there, nor behind */
    first = bos >= 0 && in->count > 1 && (in->ids[1] & INT32_MAX) == bos; /* the template has one itself */
    return corpus_end(in, first);
}

static inline int corpus_line(corpus_input *in, char *text, size_t bytes) {
    const char *place;
    uint32_t messages;
    int wrong;

    if (json_parse(&in->json, text, bytes)) {
        place = strchr(in->json.message, ','); /* behind its "line 1" */
        return corpus_refuse(in, place ? place + 2 : in->json.message);
    }
    if (json_kind_of(&in->json, 0) != JSON_OBJECT)
        return corpus_refuse(in, "it is no JSON object; each line has one: jq -c '.[]' makes them of a list");
    if (corpus_begin(in)) return 1;
    messages = corpus_member(in, "messages");
    if (messages != JSON_NONE) wrong = corpus_add_messages(in, messages);
    else if (corpus_member(in, "prompt") != JSON_NONE || corpus_member(in, "completion") != JSON_NONE)
        wrong = corpus_add_member(in, "prompt", 0) || corpus_add_member(in, "completion", CHAT_LEARNED);
    else if (corpus_member(in, "text") != JSON_NONE) {
        wrong = corpus_add_member(in, "text", CHAT_LEARNED);
        in->answered = in->run_bytes > 0; /* without it: an empty text is no document */
    } else wrong = corpus_refuse(in, "it has no \"messages\", no \"prompt\" with \"completion\", and no \"text\"");
    return wrong || corpus_line_end(in);
}

static inline int corpus_lines(corpus_input *in) {
    while (in->begin < in->end || in->at < in->to) {
        char *const line = in->text + in->begin;
        const size_t left = in->end - in->begin;
        const char *const newline = left ? (const char *)memchr(line, '\n', left) : NULL;
        size_t bytes = newline ? (size_t)(newline - line) : left;

        corpus_tell(in);
        if (!newline && in->at < in->to) {
            if (corpus_more(in)) return 1;
            continue;
        }
        ++in->line;
        in->begin += bytes + (newline != NULL);
        while (bytes && memchr(" \t\r", line[bytes - 1], 3)) --bytes;
        if (bytes && corpus_line(in, line, bytes)) return 1;
    }
    return 0;
}

/* Writes all its documents. 1: refused, with a message; or it could not be written, and in->out.status says so. */
static inline int corpus_documents(corpus_input *in) {
    corpus_rewind(in);
    in->opened = 0;
    in->documents = 0;
    if (in->kind == CORPUS_TEXT) return corpus_text(in);
    return in->kind == CORPUS_LINES ? corpus_lines(in) : corpus_tokens(in);
}
#endif
