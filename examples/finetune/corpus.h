/* corpus.h - a file of text as documents of tokens, tokenised once: NAME.tokens beside it.

   Input    See corpus_input.h.
   File     14 words of 32 bits, little endian (CORPUS_HEAD tells), then a word for each token, bit 31 its loss, and
            CORPUS_END behind each document. It is used again when content, tokeniser and options are the same and its
            checksums hold, and else replaced. It is written beside, synced and renamed: whole at any moment, whoever
            does the same at the same time. A file of that name that is not ours is left alone. Where it cannot be
            written, a temporary file without a name takes its place. */
#ifndef FINETUNE_CORPUS_H
#define FINETUNE_CORPUS_H
#include "corpus_input.h"

typedef struct corpus {
    memopt_host host;
    void    *file;         /* word w of the tokens is at byte 4 * (CORPUS_HEAD + w) */
    uint64_t words, documents;
    uint32_t crc;          /* of the words */
    char     path[4096];   /* of NAME.tokens */
    int      no_room;      /* beside it: temporary files go elsewhere */
} corpus;

/** 0; or 1, and nothing is left behind. */
static inline int corpus_open(const corpus_desc *desc, corpus *out, reason *why);
/** A file without a name, beside NAME.tokens or where the system has such. */
static inline int corpus_scratch(const corpus *c, void **file, reason *why);
static inline void corpus_close(corpus *c);

/* Words before the tokens: magic (2), version, CRCs of tokeniser, options and content, bytes of the content (2); these
   are the key. Then words behind them all (2), documents (2), the CRC of those words, the CRC of all before. */
enum { CORPUS_HEAD = 14, CORPUS_KEY = 8, CORPUS_VERSION = 1 };
enum { CORPUS_DONE, CORPUS_REFUSED, CORPUS_NO_FILE, CORPUS_FOREIGN }; /* NO_FILE: there is none, or it is no use */

typedef struct corpus_maker {
    corpus *c;
    corpus_input in;
    uint32_t head[CORPUS_HEAD];
} corpus_maker;

/* ---- files ---- */
/* Words first to first + count - 1 of the tokens. */
static inline int corpus_words(const corpus *c, uint64_t first, uint32_t *words, size_t count) {
    size_t i;

    if (corpus_read(&c->host, c->file, 4 * (CORPUS_HEAD + first), words, 4 * count)) return 1;
    for (i = 0; i < count; ++i) words[i] = corpus_word(&words[i]);
    return 0;
}

static inline void corpus_close(corpus *c) { corpus_shut(&c->host, &c->file); }

static inline int corpus_scratch(const corpus *c, void **file, reason *why) {
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
    return refuse(why, "no temporary file can be made beside %.300s, in TMPDIR or in /tmp: %s", c->path,
                  memopt_status_text(status));
}

/* ---- the file of tokens ---- */
static inline uint32_t corpus_options_crc(const corpus_input *in) {
    const chat *const c = &in->chat_template;
    const uint64_t vocabulary = in->desc->vocabulary;
    const uint32_t numbers[7] = { (uint32_t)in->kind, in->desc->learn_all != 0, (uint32_t)in->desc->coder.bos,
                                  (uint32_t)in->desc->coder.eos, (uint32_t)vocabulary, (uint32_t)(vocabulary >> 32),
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
    corpus_rewind(&m->in);
    while (m->in.at < m->in.to) {
        m->in.begin = m->in.end;
        if (corpus_more(&m->in)) return 1;
    }
    m->head[0] = 0x4f4d454d; /* "MEMOPTOK" */
    m->head[1] = 0x4b4f5450;
    m->head[2] = CORPUS_VERSION;
    m->head[3] = m->in.desc->coder.crc;
    m->head[4] = corpus_options_crc(&m->in);
    m->head[5] = m->in.crc;
    m->head[6] = (uint32_t)(m->in.to - m->in.from);
    m->head[7] = (uint32_t)((m->in.to - m->in.from) >> 32);
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
    m->c->crc = crc;
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

    corpus_out_begin(&m->in.out, h, file, sizeof head);
    wrong = corpus_documents(&m->in);
    corpus_flush(&m->in.out);
    if (m->in.out.status) return CORPUS_NO_FILE;
    if (wrong) return CORPUS_REFUSED;
    m->in.line = 0;
    if (m->in.crc != m->head[5]) return corpus_refuse(&m->in, "it changed while it was read");
    m->c->words = m->in.out.at / 4 - CORPUS_HEAD;
    m->c->documents = m->in.documents;
    m->c->crc = m->in.out.crc;
    m->head[8] = (uint32_t)m->c->words;
    m->head[9] = (uint32_t)(m->c->words >> 32);
    m->head[10] = (uint32_t)m->in.documents;
    m->head[11] = (uint32_t)(m->in.documents >> 32);
    m->head[12] = m->in.out.crc;
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
    if (!m->in.desc->quiet)
        fprintf(stderr, "%s %s: tokens are in a temporary file, for this run alone\n", m->c->path,
                result == CORPUS_FOREIGN ? "is another program's" : "cannot be written");
    if (corpus_scratch(m->c, &m->c->file, m->in.why)) return CORPUS_REFUSED;
    result = corpus_make(m, m->c->file);
    return result == CORPUS_NO_FILE ? corpus_refuse(&m->in, "no room for its tokens in a temporary file") : result;
}

/* ---- opening ---- */
static inline int corpus_begin_input(corpus_maker *m) {
    const corpus_desc *const d = m->in.desc;
    const memopt_files *const f = &m->c->host.files;
    memopt_status status;
    uint64_t bytes;
    char what[160];

    if (snprintf(m->c->path, sizeof m->c->path, "%s.tokens", d->path) >= (int)sizeof m->c->path)
        return corpus_refuse(&m->in, "its name is too long");
    status = f->open_fn(f->user, d->path, MEMOPT_OPEN_READ, &m->in.file);
    if (status) m->in.file = NULL;
    if (!status) status = f->size_fn(f->user, m->in.file, &bytes);
    if (status) return corpus_refuse(&m->in, "it cannot be opened: is it there, and may it be read?");
    if (corpus_recognise(&m->in, bytes)) return 1;
    if (m->in.kind != CORPUS_TOKENS && (!d->coder.encode_fn || !d->coder.token_fn))
        return corpus_refuse(&m->in, "a text needs a tokeniser");
    if (m->in.kind == CORPUS_LINES
        && chat_find(d->chat, d->coder.token_fn, d->coder.user, &m->in.chat_template, what, sizeof what))
        return refuse(m->in.why, "%s", what);
    return corpus_make_key(m);
}

static inline int corpus_open(const corpus_desc *desc, corpus *out, reason *why) {
    corpus_maker *m;
    corpus c;
    int wrong;

    memset(&c, 0, sizeof c);
    if (!desc->path) return refuse(why, "the path of the data is missing");
    if (memopt_host_resolve(desc->host, &c.host) || !c.host.files.lock_fn)
        return refuse(why, "the host is half set, or its files have no locks");
    m = (corpus_maker *)calloc(1, sizeof *m);
    if (!m) return refuse(why, "no memory");
    m->c = &c;
    m->in.desc = desc;
    m->in.host = &c.host;
    m->in.why = why;
    wrong = corpus_begin_input(m) || corpus_find_or_make(m);
    corpus_shut(&c.host, &m->in.file);
    if (wrong) corpus_close(&c);
    else *out = c;
    json_free(&m->in.json);
    free(m->in.text);
    free(m->in.ids);
    free(m->in.run);
    free(m);
    return wrong;
}
#endif
