/* data.h - batches of packed documents: which window comes when is a function of the position.

   Windows  have `context` rows. A document of n tokens has n - 1 rows: each has a token as input, and as target the
            next one, or -1 where that has no loss. A document that fits is never cut; a longer one becomes pieces of
            `context` rows and a rest, and the input that begins a piece is the target that ended the one before: every
            token with loss is a target once. Pieces stand side by side, none sees another, and positions begin anew.
   Packing  A piece goes where it leaves least room, of up to 64 windows that are open; where it fits into none, the
            fullest is closed for a new one. What remains of a window is padding: a document of its own, without loss.
            Pieces without loss are left out.
   Order    Sequence n of a run is window n % windows of epoch n / windows, which is shuffled (parts/feed.h): so a
            resumed run, and one over any number of ranks, see the same. What is held back are whole documents, chosen
            by a hash of the seed and the document's number; their windows have one order.
   Memory   data_bytes(), whatever the file has: tokens are in NAME.tokens (corpus.h), and windows in a temporary file
            without a name: for each the number of its last piece, for each piece its first token and the piece before.

       data_desc desc = { 0 };
       desc.text.path = "talks.jsonl"; desc.text.coder = coder; desc.context = 1024; desc.validation = 0.05;
       if (data_open(&desc, &d, &why)) ...
       rows.rows = rows.documents = 0;
       for (i = 0; i < batch; ++i)
           if (data_window(d, 0, step * batch + i, &rows, &why)) ... */
#ifndef FINETUNE_DATA_H
#define FINETUNE_DATA_H
#include "../parts/feed.h"
#include "corpus.h"

typedef struct data data;

typedef struct data_desc { /* zero it, then set what you need */
    corpus_desc text;
    size_t   context;    /* rows of a window */
    double   validation; /* the share of documents that is held back: 0 or more, below 1 */
    uint64_t seed;       /* of that choice and of the order */
} data_desc;

typedef struct data_part {
    uint64_t documents, windows;
    uint64_t targets;    /* with loss */
    uint64_t padding;    /* rows */
} data_part;

typedef struct data_counts {
    uint64_t documents, tokens; /* of the file */
    uint32_t crc;               /* of its tokens, and of which have loss */
    uint64_t left_out;          /* documents with no token to learn */
    data_part part[2];          /* 0: what is trained on; 1: what is held back */
} data_counts;

typedef struct data_rows { /* a batch, which windows are added to; rows and documents are 0 to begin */
    int32_t *ids, *targets, *positions; /* room for all rows */
    size_t  *starts;                    /* and for one more: as memopt_attention.starts */
    size_t   rows, documents;
} data_rows;

/** What an open file takes from the host's allocator, in one block. */
static inline size_t data_bytes(void);
/** Open a file: tokenise it, unless that has been done before, and pack. 0, and *out is open until data_close(); or 1,
    and nothing is left behind, except a NAME.tokens that is whole. */
static inline int data_open(const data_desc *desc, data **out, reason *why);
static inline data_counts data_get_counts(const data *d);
/** Add a window to a batch: sequence 0, 1, ... of the run, or window number `sequence` of what is held back. 0; or 1,
    and the batch has the windows that it had. Any number of threads may read at once. */
static inline int data_window(const data *d, int held_back, uint64_t sequence, data_rows *rows, reason *why);
static inline void data_close(data *d); /* NULL is fine */

enum { DATA_OPEN = 64 };

typedef struct data_piece {
    uint64_t begin, rows; /* its first word */
    uint64_t previous;    /* in the same window: number + 1; 0: it is the first */
} data_piece;

typedef struct data_place { /* a window */
    uint64_t last, rows;  /* its last piece: number + 1; the rows of all its pieces */
} data_place;

struct data {
    corpus tokens;
    void *index;         /* a file: pieces, windows that are trained on, windows that are held back */
    uint64_t begin[2];   /* of those windows */
    size_t context;
    uint64_t seed;
    int32_t padding;     /* a token */
    data_counts counts;
};

typedef struct data_packer {
    data *d;
    uint64_t held_below; /* of 2^32: hashes of documents that are held back */
    corpus_out pieces, windows[2];
    uint64_t piece_count;
    data_place open[2][DATA_OPEN + 1];
    size_t open_count[2];
    uint64_t document, learned;    /* number; tokens of it that are learned */
    uint64_t begin, rows, targets; /* of the piece that is being read */
    int inside, held;              /* a document */
} data_packer;

static inline size_t data_bytes(void) { return sizeof(data); }

static inline data_counts data_get_counts(const data *d) { return d->counts; }

/* ---- packing ---- */
static inline int data_is_held(const data_packer *p, uint64_t document) {
    uint32_t hash = 0;

    if (!p->held_below) return 0;
    (void)memopt_random_bits(&hash, 1, p->d->seed, UINT64_C(0x68656c64) << 32, document, NULL);
    return hash < p->held_below;
}

static inline void data_close_window(data_packer *p, size_t i) {
    data_part *const part = &p->d->counts.part[p->held];
    data_place *const open = p->open[p->held];

    corpus_put(&p->windows[p->held], &open[i], sizeof *open);
    ++part->windows;
    part->padding += p->d->context - open[i].rows;
    --p->open_count[p->held];
    memmove(open + i, open + i + 1, (p->open_count[p->held] - i) * sizeof *open);
}

static inline void data_place_piece(data_packer *p) {
    data_place *const open = p->open[p->held];
    size_t *const count = &p->open_count[p->held], context = p->d->context;
    size_t best = *count, fullest = 0, i;
    data_piece piece;

    for (i = 0; i < *count; ++i) {
        const int fits = p->rows <= context - open[i].rows;

        if (fits && (best == *count || open[i].rows > open[best].rows)) best = i;
        if (open[i].rows > open[fullest].rows) fullest = i;
    }
    if (best == *count) {
        if (best == DATA_OPEN && p->rows < context) data_close_window(p, fullest);
        best = (*count)++;
        memset(&open[best], 0, sizeof open[best]);
    }
    piece.begin = p->begin;
    piece.rows = p->rows;
    piece.previous = open[best].last;
    corpus_put(&p->pieces, &piece, sizeof piece);
    open[best].last = ++p->piece_count;
    open[best].rows += p->rows;
    if (open[best].rows == context) data_close_window(p, best);
}

static inline void data_end_piece(data_packer *p, uint64_t next) {
    if (p->targets) data_place_piece(p);
    p->learned += p->targets;
    p->begin = next;
    p->rows = p->targets = 0;
}

static inline void data_end_document(data_packer *p) {
    data_part *const part = &p->d->counts.part[p->held];

    data_end_piece(p, 0);
    if (p->learned) ++part->documents;
    else ++p->d->counts.left_out;
    part->targets += p->learned;
    p->learned = 0;
    p->inside = 0;
    ++p->document;
}

static inline void data_take_word(data_packer *p, uint32_t word, uint64_t at) {
    if (word == CORPUS_END) {
        data_end_document(p);
    } else if (!p->inside) {
        p->inside = 1;
        p->held = data_is_held(p, p->document);
        p->begin = at;
    } else {
        ++p->rows;
        p->targets += (word & CORPUS_LEARNED) != 0;
        if (p->rows == p->d->context) data_end_piece(p, at);
    }
}

static inline int data_take_words(data_packer *p) { /* 1: they cannot be read */
    const corpus *const c = &p->d->tokens;
    uint32_t words[CORPUS_BLOCK / 4];
    uint64_t at;
    size_t n, i;

    for (at = 0; at < c->words; at += n) {
        n = c->words - at < CORPUS_BLOCK / 4 ? (size_t)(c->words - at) : CORPUS_BLOCK / 4;
        if (corpus_words(c, at, words, n)) return 1;
        for (i = 0; i < n; ++i) data_take_word(p, words[i], at + i);
    }
    for (p->held = 0; p->held < 2; ++p->held)
        while (p->open_count[p->held]) data_close_window(p, 0);
    return 0;
}

static inline int data_pack(data *d, double validation, reason *why) {
    const uint64_t most = d->tokens.documents + d->tokens.words / d->context; /* pieces, and so windows */
    memopt_status status = MEMOPT_OK;
    data_packer p;
    int wrong, i;

    memset(&p, 0, sizeof p);
    p.d = d;
    p.held_below = (uint64_t)(validation * 4294967296.0);
    d->begin[0] = most * sizeof(data_piece);
    d->begin[1] = d->begin[0] + most * sizeof(data_place);
    corpus_out_begin(&p.pieces, &d->tokens.host, d->index, 0);
    for (i = 0; i < 2; ++i) corpus_out_begin(&p.windows[i], &d->tokens.host, d->index, d->begin[i]);
    wrong = data_take_words(&p);
    corpus_flush(&p.pieces);
    for (i = 0; i < 2; ++i) {
        corpus_flush(&p.windows[i]);
        if (p.windows[i].status) status = p.windows[i].status;
    }
    if (p.pieces.status) status = p.pieces.status;
    if (wrong) return refuse(why, "its tokens could not be read any more");
    return status ? refuse(why, "a temporary file: %s", memopt_status_text(status)) : 0;
}

/* ---- opening ---- */
static inline void data_close(data *d) {
    memopt_host host;

    if (!d) return;
    host = d->tokens.host;
    corpus_shut(&host, &d->index);
    corpus_close(&d->tokens);
    host.allocator.free_fn(host.allocator.user, d, sizeof *d, sizeof(uint64_t));
}

/* Whether there is something to train on, and to validate with where that was asked for. */
static inline int data_enough(const data *d, const data_desc *desc, reason *why) {
    const data_part *const part = d->counts.part;
    const unsigned long long documents = d->counts.documents - d->counts.left_out;

    if (!documents)
        return refuse(why, "%.300s: no document has a token to learn (of %llu)", desc->text.path,
                      (unsigned long long)d->counts.documents);
    if (!part[0].documents || (desc->validation > 0 && !part[1].documents))
        return refuse(why, "%.300s: %s of its %llu documents is held back with a share of %g and this seed",
                      desc->text.path, part[0].documents ? "none" : "each", documents, desc->validation);
    return 0;
}

static inline int data_set_up(data *d, const data_desc *desc, reason *why) {
    d->context = desc->context;
    d->seed = desc->seed;
    d->padding = desc->text.coder.eos < 0 ? 0 : desc->text.coder.eos;
    d->counts.documents = d->tokens.documents;
    d->counts.crc = d->tokens.crc;
    d->counts.tokens = d->tokens.words - d->tokens.documents;
    return corpus_scratch(&d->tokens, &d->index, why) || data_pack(d, desc->validation, why)
        || data_enough(d, desc, why);
}

static inline int data_open(const data_desc *desc, data **out, reason *why) {
    data *d;
    corpus tokens;

    if (!desc->context || desc->context > INT32_MAX)
        return refuse(why, "the context is not 1 to 2^31 - 1 tokens");
    if (!(desc->validation >= 0 && desc->validation < 1))
        return refuse(why, "the share that is held back is not 0 or more and below 1");
    if (corpus_open(&desc->text, &tokens, why)) return 1;
    d = (data *)tokens.host.allocator.alloc_fn(tokens.host.allocator.user, sizeof *d, sizeof(uint64_t));
    if (!d) {
        corpus_close(&tokens);
        return refuse(why, "no memory");
    }
    memset(d, 0, sizeof *d);
    d->tokens = tokens;
    if (data_set_up(d, desc, why)) {
        data_close(d);
        return 1;
    }
    *out = d;
    return 0;
}

/* ---- windows ---- */
/* A piece, into its rows. Its words are read where the targets go. */
static inline int data_read_piece(const data *d, const data_piece *piece, int32_t *ids, int32_t *targets,
                                  int32_t *positions) {
    uint32_t *const words = (uint32_t *)targets;
    uint32_t input, target;
    size_t i;

    if (corpus_words(&d->tokens, piece->begin, &input, 1)) return 1;
    if (corpus_words(&d->tokens, piece->begin + 1, words, (size_t)piece->rows)) return 1;
    for (i = 0; i < piece->rows; ++i) {
        target = words[i];
        ids[i] = (int32_t)(input & ~CORPUS_LEARNED);
        targets[i] = target & CORPUS_LEARNED ? (int32_t)(target & ~CORPUS_LEARNED) : -1;
        positions[i] = (int32_t)i;
        input = target;
    }
    return 0;
}

/* The pieces of a window, from the last one to the first, and where each begins, then put in order. */
static inline int data_read_pieces(const data *d, const data_place *window, data_rows *rows) {
    const size_t first = rows->documents;
    size_t at = rows->rows + (size_t)window->rows, i, k;
    data_piece piece;

    for (piece.previous = window->last; piece.previous; rows->starts[rows->documents++] = at) {
        if (corpus_read(&d->tokens.host, d->index, (piece.previous - 1) * sizeof piece, &piece, sizeof piece)) return 1;
        at -= (size_t)piece.rows;
        if (data_read_piece(d, &piece, rows->ids + at, rows->targets + at, rows->positions + at)) return 1;
    }
    for (i = first, k = rows->documents; i + 1 < k; ++i) {
        const size_t start = rows->starts[--k];

        rows->starts[k] = rows->starts[i];
        rows->starts[i] = start;
    }
    return 0;
}

static inline void data_pad(const data *d, size_t used, data_rows *rows) { /* the rest of a window */
    size_t i;

    if (used < d->context) rows->starts[rows->documents++] = rows->rows + used;
    for (i = used; i < d->context; ++i) {
        rows->ids[rows->rows + i] = d->padding;
        rows->targets[rows->rows + i] = -1;
        rows->positions[rows->rows + i] = (int32_t)(i - used);
    }
    rows->rows += d->context;
    rows->starts[rows->documents] = rows->rows;
}

static inline int data_window(const data *d, int held_back, uint64_t sequence, data_rows *rows, reason *why) {
    const int part = held_back != 0;
    const uint64_t windows = d->counts.part[part].windows;
    uint64_t number = sequence;
    data_rows filled = *rows;
    data_place window;

    if (!part) number = memopt_feed_shuffle(d->seed, sequence / windows, windows, sequence % windows);
    if (number >= windows)
        return refuse(why, "window %llu of %llu that are held back", (unsigned long long)number,
                          (unsigned long long)windows);
    if (corpus_read(&d->tokens.host, d->index, d->begin[part] + number * sizeof window, &window, sizeof window)
        || data_read_pieces(d, &window, &filled)) {
        rows->starts[rows->documents] = rows->rows;
        return refuse(why, "the tokens of a window could not be read any more");
    }
    data_pad(d, (size_t)window.rows, &filled);
    *rows = filled;
    return 0;
}
#endif
