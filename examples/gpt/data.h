/* data.h - tokens from a file, and drawn images. What is trained on comes through a feed, which reads two batches ahead:
   each epoch is all windows of the file once, in an order of its own. Which sequences a batch has depends on the seed and
   its number alone, so a run that was resumed, and one over more ranks, see the same. */
#ifndef GPT_DATA_H
#define GPT_DATA_H
#include "memopt.h"
#include "options.h"
#include "../parts/feed.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef struct data {
    FILE *file;
    char name[4096];
    uint64_t tokens, training; /* training: so many at the beginning are trained on, which are all, or nine tenths */
    long begin;                /* of the tokens, in the file */
    int bytes;                 /* of a token: 1 = text, 2 */
    size_t vocab;              /* every token is below */
    memopt_feed *feed;         /* NULL: data_feed() was not called */
    size_t units;              /* its batches a step */
} data;

typedef struct data_shape { /* of what data_feed() hands out; ranks may be more than units: the last ones have none */
    uint64_t seed;
    size_t batch, context, units, rank, ranks;
} data_shape;

/**
 * Open a file: of llm.c (.bin, magic 20240520), of 16-bit tokens (.u16), or else of bytes, each a token. path NULL:
 * the examples' text.txt, looked for above the source and in the current folder. Every token is compared with the
 * vocabulary. 0: fine, and data_close() closes it; else `message` says what is wrong and what to do.
 */
static int data_open(const char *path, size_t vocab, size_t context, data *out, char *message, size_t capacity);
/** The last tenth is trained on no more. 1: it is too short for a sequence. */
static int data_hold_back(data *d, size_t context, char *message, size_t capacity);
static void data_close(data *d); /* also of one that is zeroed, or did not open */
/** How many bytes data_feed() wants at `place`, whatever the file has; 0: they do not fit a size_t. */
static inline size_t data_feed_bytes(size_t batch, size_t context);
/** Begin to read ahead what is trained on; `place` stays the feed's until data_end_feed() or data_close(). NULL: malloc. */
static int data_feed(data *d, const data_shape *shape, void *place, char *message, size_t capacity);
static memopt_feed_stats data_end_feed(data *d); /* all zero where there is none */
/** Batch number 0, 1, ... of the run: inputs, and targets, the tokens that follow them. In order they have been read. */
static int data_batch(data *d, uint64_t number, int32_t *inputs, int32_t *targets, char *message, size_t capacity);
/** Batches of what is held back: 128 sequences or a few more; of a text no more than lie in it side by side. */
static size_t data_held_batches(const data *d, size_t batch, size_t context);
/** The same of sequences first, first + 1, ... of `count` that lie evenly in what is held back. */
static int data_held_back(data *d, size_t count, size_t first, size_t batch, size_t context, int32_t *inputs,
                          int32_t *targets, char *message, size_t capacity);
/** Images number first, ...: batch * side * side patches (rows) of patch * patch * 3 numbers around 0; a label each. */
static inline void data_images(uint64_t seed, uint64_t first, size_t batch, size_t side, size_t patch, float *pixels,
                               int32_t *labels);

/** Cuts sequences into documents, none beyond its sequence: where each begins, with the end behind them, and the place of
    each token in its own. Returns how many. Of bytes one ends with an empty line; of tokens it begins with END_OF_TEXT.
    Targets stay: that of a document's last token is the first one of the next. */
static inline size_t data_documents(const data *d, const int32_t *ids, size_t batch, size_t context, size_t *starts,
                                    int32_t *positions);

enum { IMAGE_CLASSES = 10 };

#define DATA_REFUSE(condition, ...)                                                                                    \
    do {                                                                                                               \
        if (condition) {                                                                                               \
            snprintf(message, capacity, __VA_ARGS__);                                                                  \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static uint64_t data_random(uint64_t seed, uint64_t stream, uint64_t n) { /* streams of its own: 2^63 and above */
    uint32_t bits[2] = { 0, 0 };
    memopt_random_bits(bits, 2, seed, stream | (uint64_t)1 << 63, 2 * n, NULL);
    return (uint64_t)bits[1] << 32 | bits[0];
}

/* Tokens at..at + count of the file; 1: it ended, or could not be read. */
static int data_read(const data *d, uint64_t at, size_t count, int32_t *tokens) {
    unsigned char bytes[4096];
    const size_t most = sizeof bytes / (size_t)d->bytes;
    size_t i, n;

    if (fseek(d->file, d->begin + (long)(at * (uint64_t)d->bytes), SEEK_SET)) return 1;
    for (; count; count -= n, tokens += n) {
        n = count < most ? count : most;
        if (fread(bytes, (size_t)d->bytes, n, d->file) != n) return 1;
        for (i = 0; i < n; ++i)
            tokens[i] = d->bytes == 1 ? (int32_t)bytes[i] : (int32_t)(bytes[2 * i] | bytes[2 * i + 1] << 8);
    }
    return 0;
}

static int data_beyond(const data *d, uint64_t at, const int32_t *tokens, size_t count, char *message,
                       size_t capacity) {
    size_t i;
    for (i = 0; i < count; ++i)
        DATA_REFUSE((size_t)tokens[i] >= d->vocab,
                    "%.200s: token %llu is %d, and the vocabulary has %zu; give --vocab %d, or the one that made it.",
                    d->name, (unsigned long long)(at + i), (int)tokens[i], d->vocab, tokens[i] < 50257 ? 50257 : 65536);
    return 0;
}

static int data_header(data *d, uint64_t bytes, char *message, size_t capacity) { /* of llm.c: 256 numbers of 32 bits */
    unsigned char head[12];
    uint32_t h[3];
    size_t i;
    uint64_t held;
    if (fseek(d->file, 0, SEEK_SET) || fread(head, 1, 12, d->file) != 12) return 0; /* shorter: text, then */
    for (i = 0; i < 3; ++i)
        h[i] = (uint32_t)head[4 * i] | (uint32_t)head[4 * i + 1] << 8 | (uint32_t)head[4 * i + 2] << 16
             | (uint32_t)head[4 * i + 3] << 24;
    if (h[0] != 20240520) {
        const size_t name = strlen(d->name);

        DATA_REFUSE(name > 4 && !strcmp(d->name + name - 4, ".bin"),
                    "%.200s: a .bin file begins with llm.c's number 20240520, "
                    "and this one does not; bare 16-bit tokens are read from a file whose name ends in .u16.",
                    d->name);
        return 0;
    }
    DATA_REFUSE(h[1] != 1,
                "%.200s: this is version %u of llm.c's format, and only 1, 16-bit tokens of GPT-2, "
                "is read here; make it again with dev/data of llm.c.",
                d->name, (unsigned)h[1]);
    held = bytes < 1024 ? 0 : (bytes - 1024) / 2;
    DATA_REFUSE(h[2] > held,
                "%.200s: the header promises %u tokens and the file has %llu; it was cut off: fetch it again.", d->name,
                (unsigned)h[2], (unsigned long long)held);
    d->bytes = 2;
    d->begin = 1024;
    d->tokens = h[2];
    return 0;
}

/* text.txt: in the folder above this file's, or in or below the current one. */
static FILE *data_own_text(char *name, size_t capacity) {
    static const char *const places[] = { "../text.txt", "text.txt", "examples/text.txt" };
    const char *const here = __FILE__;
    const char *slash = here;
    FILE *f = NULL;

    for (const char *c = here; *c; ++c)
        if (*c == '/' || *c == '\\') slash = c + 1;
    for (size_t i = 0; !f && i < 3; ++i) {
        snprintf(name, capacity, "%.*s%s", i ? 0 : (int)(slash - here), here, places[i]);
        f = fopen(name, "rb");
    }
    return f;
}

static int data_open_file(const char *path, size_t vocab, size_t context, data *d, char *message, size_t capacity) {
    int32_t tokens[2048];
    uint64_t at, bytes;
    long end;
    const char *dot;
    char byte;

    d->vocab = vocab;
    snprintf(d->name, sizeof d->name, "%s", path ? path : "");
    d->file = path ? fopen(path, "rb") : data_own_text(d->name, sizeof d->name);
    DATA_REFUSE(!d->file && !path,
                "text.txt of the examples, which is trained on, is not in this folder: go there, or give --data FILE.");
    DATA_REFUSE(!d->file, "%.200s: %s; give --data a file that can be read.", d->name, strerror(errno));
    setvbuf(d->file, NULL, _IONBF, 0);
    errno = 0; /* a directory opens here and there, but does not read */
    DATA_REFUSE(fread(&byte, 1, 1, d->file) != 1, "%.200s: %s; give --data a file with tokens.", d->name,
                ferror(d->file) && errno ? strerror(errno) : "it is empty");
    DATA_REFUSE(fseek(d->file, 0, SEEK_END) || (end = ftell(d->file)) < 0,
                "%.200s: it cannot be read from the "
                "middle, as pipes cannot, or is too large here; give --data a file.",
                d->name);
    bytes = (uint64_t)end;
    dot = strrchr(d->name, '.');
    d->bytes = 1;
    d->begin = 0;
    d->tokens = bytes;
    if (dot && !strcmp(dot, ".u16")) {
        DATA_REFUSE(bytes % 2,
                    "%.200s: %llu bytes are no whole number of 16-bit tokens; it was cut off: make it again.", d->name,
                    (unsigned long long)bytes);
        d->bytes = 2;
        d->tokens = bytes / 2;
    } else if (data_header(d, bytes, message, capacity)) return 1;
    DATA_REFUSE(d->bytes == 1 && vocab < 256,
                "%.200s: text has 256 different bytes, and the vocabulary has %zu; give "
                "--vocab 256.",
                d->name, vocab);
    DATA_REFUSE(d->tokens <= context,
                "%.200s: %llu tokens are too few for a context of %zu and one that "
                "follows; give more --data, or a smaller --context.",
                d->name, (unsigned long long)d->tokens, context);
    for (at = 0; d->bytes == 2 && vocab < 65536 && at < d->tokens; at += 2048) {
        const size_t n = d->tokens - at < 2048 ? (size_t)(d->tokens - at) : 2048;

        DATA_REFUSE(data_read(d, at, n, tokens), "%.200s: reading ends at token %llu of %llu; fetch it again.", d->name,
                    (unsigned long long)at, (unsigned long long)d->tokens);
        if (data_beyond(d, at, tokens, n, message, capacity)) return 1;
    }
    return 0;
}

static void data_close(data *d) {
    (void)data_end_feed(d);
    if (d->file) fclose(d->file);
    d->file = NULL;
}

static int data_open(const char *path, size_t vocab, size_t context, data *out, char *message, size_t capacity) {
    data d;
    int wrong;

    memset(&d, 0, sizeof d);
    wrong = data_open_file(path, vocab, context, &d, message, capacity);
    if (wrong) data_close(&d);
    d.training = d.tokens;
    *out = d;
    return wrong;
}

static int data_hold_back(data *d, size_t context, char *message, size_t capacity) {
    const uint64_t held = d->tokens / 10;

    DATA_REFUSE(held <= context,
                "%.200s: %llu tokens, of which a tenth is held back for --validate, are too few for a context "
                "of %zu; give more --data, or a smaller --context.",
                d->name, (unsigned long long)d->tokens, context);
    d->training = d->tokens - held;
    return 0;
}

/* ---- what is trained on ---- */
static inline size_t data_feed_bytes(size_t batch, size_t context) {
    memopt_feed_desc desc;
    size_t bytes = 0;

    memset(&desc, 0, sizeof desc);
    desc.token_bytes = 2;
    desc.length = context;
    desc.samples = batch;
    (void)memopt_feed_bytes(&desc, &bytes);
    return bytes;
}

static void *data_take(void *place, size_t bytes, size_t alignment) {
    (void)bytes;
    (void)alignment;
    return place;
}

static void data_give(void *place, void *block, size_t bytes, size_t alignment) {
    (void)place;
    (void)block;
    (void)bytes;
    (void)alignment;
}

static int data_failed(const data *d, const char *what, memopt_status status, const memopt_error *error, char *message,
                       size_t capacity) {
    char why[256];
    if (error->status != status || memopt_error_text(error, why, sizeof why, NULL))
        snprintf(why, sizeof why, "%s", memopt_status_text(status));
    DATA_REFUSE(status, "%.100s: %s: %.180s; %s?", d->name, what, why,
                !d->feed && status == MEMOPT_ERR_IO
                    ? "is it still there, and may this process open one more (ulimit -n)"
                    : "was the file changed");
    return 0;
}

static int data_feed(data *d, const data_shape *shape, void *place, char *message, size_t capacity) {
    memopt_feed_desc desc;
    memopt_host host;
    memopt_error error;
    memopt_status status;

    if (shape->rank >= shape->units) return 0;
    memset(&desc, 0, sizeof desc);
    memset(&host, 0, sizeof host);
    memset(&error, 0, sizeof error);
    if (place) {
        host.allocator.alloc_fn = data_take;
        host.allocator.free_fn = data_give;
        host.allocator.user = place;
    }
    desc.path = d->name;
    desc.offset = (uint64_t)d->begin;
    desc.tokens = d->training;
    desc.token_bytes = (size_t)d->bytes;
    desc.vocabulary = d->vocab;
    desc.length = shape->context;
    desc.samples = shape->batch;
    desc.units = d->units = shape->units;
    desc.rank = shape->rank;
    desc.ranks = shape->ranks < shape->units ? shape->ranks : shape->units;
    desc.shuffle = 1;
    desc.seed = shape->seed;
    desc.host = &host;
    desc.error = &error;
    status = memopt_feed_create(&desc, &d->feed);
    return data_failed(d, "the batches", status, &error, message, capacity);
}

static memopt_feed_stats data_end_feed(data *d) {
    const memopt_feed_stats stats = memopt_feed_get_stats(d->feed);

    memopt_feed_destroy(d->feed);
    d->feed = NULL;
    return stats;
}

static int data_batch(data *d, uint64_t number, int32_t *inputs, int32_t *targets, char *message, size_t capacity) {
    const memopt_feed_stats next = memopt_feed_get_stats(d->feed);
    const uint64_t step = number / d->units;
    const size_t unit = (size_t)(number % d->units);
    memopt_status status = MEMOPT_OK;
    memopt_error error;

    if (next.step != step || next.unit != unit) status = memopt_feed_seek(d->feed, step, unit);
    if (!status) status = memopt_feed_next(d->feed, inputs, targets);
    error = memopt_feed_error(d->feed);
    return data_failed(d, "a batch", status, &error, message, capacity);
}

/* A sequence, and the tokens that follow its own. */
static int data_sequence(data *d, uint64_t at, size_t context, int32_t *inputs, int32_t *targets, char *message,
                         size_t capacity) {
    DATA_REFUSE(data_read(d, at, context, inputs) || data_read(d, at + context, 1, targets + context - 1),
                "%.200s: tokens %llu and after could not be read any more; was the file changed?", d->name,
                (unsigned long long)at);
    memcpy(targets, inputs + 1, (context - 1) * sizeof *targets);
    return data_beyond(d, at, inputs, context, message, capacity)
        || data_beyond(d, at + context, targets + context - 1, 1, message, capacity);
}

/* Lines of text end with \n, or with \r\n. */
static int data_begins_document(const data *d, const int32_t *id, size_t before) {
    size_t ends = 0;

    if (d->bytes != 1) return *id == END_OF_TEXT;
    if (*id == '\n' || *id == '\r') return 0;
    for (; before && (id[-1] == '\n' || id[-1] == '\r'); --before) ends += *--id == '\n';
    return ends > 1;
}

static inline size_t data_documents(const data *d, const int32_t *ids, size_t batch, size_t context, size_t *starts,
                                    int32_t *positions) {
    const size_t rows = batch * context;
    size_t count = 0, i;

    for (i = 0; i < rows; ++i) {
        if (i % context == 0 || data_begins_document(d, ids + i, i % context)) starts[count++] = i;
        positions[i] = (int32_t)(i - starts[count - 1]);
    }
    starts[count] = rows;
    return count;
}

static size_t data_held_batches(const data *d, size_t batch, size_t context) {
    uint64_t sequences = 128;

    if (d->file && sequences > (d->tokens - d->training) / context) sequences = (d->tokens - d->training) / context;
    return ((size_t)sequences + batch - 1) / batch;
}

static int data_held_back(data *d, size_t count, size_t first, size_t batch, size_t context, int32_t *inputs,
                          int32_t *targets, char *message, size_t capacity) {
    const uint64_t places = d->tokens - d->training - context;
    size_t i;
    for (i = 0; i < batch; ++i, inputs += context, targets += context) {
        const uint64_t at = d->training + places * (first + i) / count;

        if (data_sequence(d, at, context, inputs, targets, message, capacity)) return 1;
    }
    return 0;
}

/* ---- images: stripes, a chessboard, shapes, a slope; each class around a hue of its own that others overlap ---- */
static float data_wave(float x) { /* a triangle: -1 to 1, period 1, the same bits on every machine */
    x -= (float)(int)x;
    if (x < 0) x += 1.0f;
    return x < 0.5f ? 4.0f * x - 1.0f : 3.0f - 4.0f * x;
}

static float data_pattern(int label, float x, float y, float phase, float middle_x, float middle_y, float size) {
    const float dx = x < middle_x ? middle_x - x : x - middle_x, dy = y < middle_y ? middle_y - y : y - middle_y;
    const float square = dx * dx + dy * dy, far_side = dx > dy ? dx : dy, near_side = dx > dy ? dy : dx;

    switch (label) {
    case 0: return data_wave(4.0f * y + phase);
    case 1: return data_wave(4.0f * x + phase);
    case 2: return data_wave(3.0f * (x + y) + phase);
    case 3: return data_wave(3.0f * (x - y) + phase);
    case 4: return data_wave(3.0f * x + phase) * data_wave(3.0f * y + phase) > 0 ? 1.0f : -1.0f;
    case 5: return square < size * size ? 1.0f : -1.0f;
    case 6: return square < size * size && square > 0.36f * size * size ? 1.0f : -1.0f;
    case 7: return far_side < 0.8f * size ? 1.0f : -1.0f;
    case 8: return far_side < size && near_side < 0.3f * size ? 1.0f : -1.0f;
    default: return 2.0f * x - 1.0f;
    }
}

static inline void data_image(uint64_t seed, uint64_t number, size_t side, size_t patch, float *pixels,
                              int32_t *label) {
    const size_t count = side * side * patch * patch * 3;
    const uint64_t r = data_random(seed, 1, number);
    const float edge = (float)(side * patch), phase = (float)(r >> 16 & 255) / 256.0f;
    const float middle_x = 0.35f + 0.3f * (float)(r >> 24 & 255) / 256.0f;
    const float middle_y = 0.35f + 0.3f * (float)(r >> 32 & 255) / 256.0f;
    const float size = 0.22f + 0.12f * (float)(r >> 40 & 255) / 256.0f;
    float hue;
    size_t i;
    *label = (int32_t)((r & 0xffff) % IMAGE_CLASSES);
    hue = (float)*label / IMAGE_CLASSES + 0.16f * ((float)(r >> 48 & 255) / 256.0f - 0.5f);
    memopt_random_uniform(pixels, count, seed, ((uint64_t)3 << 62) + number, 0, NULL); /* the noise */
    for (i = 0; i < count; ++i) { /* patch by patch, in each row by row, three colours each */
        const size_t c = i % 3, column = i / 3 % patch, row = i / 3 / patch % patch, tile = i / 3 / patch / patch;
        const float x = ((float)(tile % side * patch + column) + 0.5f) / edge;
        const float y = ((float)(tile / side * patch + row) + 0.5f) / edge;
        pixels[i] = 0.7f * data_pattern((int)*label, x, y, phase, middle_x, middle_y, size)
                  + 0.6f * data_wave(1.0f + hue + (float)c / 3.0f) + 0.5f * (pixels[i] - 0.5f);
    }
}

static inline void data_images(uint64_t seed, uint64_t first, size_t batch, size_t side, size_t patch, float *pixels,
                               int32_t *labels) {
    size_t i;
    for (i = 0; i < batch; ++i)
        data_image(seed, first + i, side, patch, pixels + i * side * side * patch * patch * 3, labels + i);
}
#endif
