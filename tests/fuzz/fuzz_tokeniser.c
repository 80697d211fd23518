/* fuzz_tokeniser.c - two kinds of input, by the first byte.
   Files: one of four, with bytes of it changed or left out. It is refused with a reason, or encodes and decodes a text.
   Merges: a vocabulary of short texts, put together as the input says; then the ids of a text are those that the
   definition gives, which merges the pair of lowest rank, leftmost first, until there is none, in the whole text. */
#define TOKENISER_CACHE 4u /* so small that pieces take each other's place */
#include "examples/finetune/tokeniser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_must(int x) { if (!x) abort(); }

/* ' stands for the quotes of JSON. */
#define FUZZ_MARK "\xE2\x96\x81"
#define FUZZ_VOCAB "'vocab':{'<unk>':0,'a':1,'b':2,'ab':3,'\\u0120':4,'\\u0120a':5,'\\u00c3':6,'\\u00a9':7," \
    "'" FUZZ_MARK "':8,'" FUZZ_MARK "ab':9,'<0x0A>':10,'<0xC3>':11,'1':12}," \
    "'merges':['a b',['\\u0120','a'],'" FUZZ_MARK " ab']}}"
#define FUZZ_LEVEL "{'type':'ByteLevel','add_prefix_space':false,'trim_offsets':true,'use_regex':false}"
#define FUZZ_ADDED "'added_tokens':[{'id':20,'content':'<s>','single_word':false,'lstrip':true,'rstrip':true," \
    "'normalized':false,'special':true},{'id':21,'content':'e\\u0301','single_word':true,'normalized':true}]"
#define FUZZ_REST "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define FUZZ_WORDS "(?i:\"s|\"t|\"re|\"ve|\"m|\"ll|\"d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+"
#define FUZZ_METASPACE "{'type':'Metaspace','replacement':'" FUZZ_MARK "','prepend_scheme':'first','split':true}"
static const char *const fuzz_files[4] = {
    "{" FUZZ_ADDED ",'normalizer':{'type':'NFC'},'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split',"
        "'pattern':{'Regex':'" FUZZ_WORDS "|\\\\p{N}{1,3}" FUZZ_REST "'},'behavior':'Isolated','invert':false},"
        FUZZ_LEVEL "]},'post_processor':{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<s>'}},"
        "{'Sequence':{'id':'A'}}],'pair':[],'special_tokens':{'<s>':{'id':'<s>','ids':[20],'tokens':['<s>']}}},"
        "'decoder':" FUZZ_LEVEL ",'model':{'type':'BPE','ignore_merges':true," FUZZ_VOCAB,
    "{" FUZZ_ADDED ",'normalizer':{'type':'Sequence','normalizers':[{'type':'Prepend','prepend':'" FUZZ_MARK "'},"
        "{'type':'Replace','pattern':{'String':' '},'content':'" FUZZ_MARK "'}]},'decoder':{'type':'Sequence',"
        "'decoders':[{'type':'Replace','pattern':{'String':'" FUZZ_MARK "'},'content':' '},{'type':'ByteFallback'},{'type':'Fuse'},"
        "{'type':'Strip','content':' ','start':1,'stop':0}]},"
        "'model':{'unk_token':'<unk>','fuse_unk':true,'byte_fallback':true," FUZZ_VOCAB,
    "{" FUZZ_ADDED ",'pre_tokenizer':" FUZZ_METASPACE ",'decoder':" FUZZ_METASPACE ",'model':{" FUZZ_VOCAB,
    "{" FUZZ_ADDED ",'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Digits','individual_digits':true},"
        "{'type':'ByteLevel','add_prefix_space':false,'use_regex':true}]},'decoder':" FUZZ_LEVEL ","
        "'model':{'dropout':null," FUZZ_VOCAB
};

typedef struct fuzz_input { const uint8_t *data; size_t size; } fuzz_input;
static size_t fuzz_take(fuzz_input *in) {
    if (!in->size) return 0;
    --in->size;
    return *in->data++;
}

static void fuzz_encode(tokeniser *t, const char *text, size_t bytes) {
    tokeniser_ids ids;
    tokeniser_bytes out;
    size_t i;

    memset(&ids, 0, sizeof ids);
    memset(&out, 0, sizeof out);
    if (tokeniser_encode(t, text, bytes, TOKENISER_ADD_SPECIAL, &ids)) fuzz_must(!ids.count && t->message[0]);
    for (i = 0; i < ids.count; ++i) fuzz_must(ids.ids[i] >= 0 && (size_t)ids.ids[i] < tokeniser_size(t));
    fuzz_must(!tokeniser_decode(t, ids.ids, ids.count, TOKENISER_SKIP_SPECIAL, &out));
    free(ids.ids);
    free(out.bytes);
}

static void fuzz_file(fuzz_input *in) {
    const char *const base = fuzz_files[fuzz_take(in) % 4];
    const size_t edits = fuzz_take(in) % 8;
    size_t bytes = strlen(base), i;
    char *const text = (char *)malloc(bytes);
    tokeniser t;

    if (!text) abort();
    for (i = 0; i < bytes; ++i) text[i] = base[i] == '\'' ? '"' : base[i] == '"' ? '\'' : base[i];
    for (i = 0; i < edits; ++i) {
        const size_t place = (fuzz_take(in) << 8 | fuzz_take(in)) % bytes, byte = fuzz_take(in);

        if (byte < 250) text[place] = (char)(unsigned char)byte;
        else memmove(text + place, text + place + 1, --bytes - place);
    }
    memset(&t, 0, sizeof t);
    if (tokeniser_open_text(&t, text, bytes)) fuzz_must(edits && t.message[0] && !t.tokens);
    else fuzz_encode(&t, (const char *)in->data, in->size);
    tokeniser_close(&t);
    free(text);
}

/* ---- merges ---- */
enum { FUZZ_TOKENS = 40, FUZZ_LENGTH = 8 };
typedef struct fuzz_words { char text[FUZZ_TOKENS][FUZZ_LENGTH + 1]; size_t count; } fuzz_words;

static size_t fuzz_word(fuzz_words *w, const char *text) { /* its number; it is there then, if there is room */
    size_t i;

    for (i = 0; i < w->count; ++i)
        if (!strcmp(w->text[i], text)) return i;
    if (w->count < FUZZ_TOKENS) strcpy(w->text[w->count++], text);
    return i;
}

static size_t fuzz_write(fuzz_input *in, char *out, size_t room) { /* a tokenizer.json by the input */
    fuzz_words w;
    char merges[2048] = "", both[2 * FUZZ_LENGTH + 1];
    size_t i, n = 0, end, count = fuzz_take(in) % 32;

    memset(&w, 0, sizeof w);
    for (i = 0; i < 3; ++i) (void)fuzz_word(&w, i == 0 ? "a" : i == 1 ? "b" : "\xC3\xA9");
    for (; count; --count) {
        const char *const a = w.text[fuzz_take(in) % w.count], *const b = w.text[fuzz_take(in) % w.count];

        snprintf(both, sizeof both, "%s%s", a, b);
        if (strlen(both) > FUZZ_LENGTH || fuzz_word(&w, both) == FUZZ_TOKENS) continue;
        n += (size_t)snprintf(merges + n, sizeof merges - n, "%s\"%s %s\"", n ? "," : "", a, b);
    }
    end = (size_t)snprintf(out, room, "{\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"merges\":[%s],\"vocab\":{",
                           merges);
    for (i = 0; i < w.count; ++i)
        end += (size_t)snprintf(out + end, room - end, "%s\"%s\":%lu", i ? "," : "", w.text[i], (unsigned long)i);
    return end + (size_t)snprintf(out + end, room - end, "}}}");
}

static void fuzz_define(tokeniser *t, const char *text, size_t bytes, tokeniser_ids *ids) { /* by the definition */
    for (; bytes; --bytes, ++text) { /* é is two bytes here; its second byte is left out */
        const int32_t id = *text == '\xC3' ? tokeniser_id(t, text, 2) : tokeniser_id(t, text, 1);

        if (id >= 0) fuzz_must(!tokeniser_push(t, ids, id));
    }
    for (;;) {
        size_t i, best = SIZE_MAX;
        uint32_t lowest = TOKENISER_NONE;

        for (i = 0; i + 1 < ids->count; ++i) {
            const uint64_t pair = tokeniser_pair((uint32_t)ids->ids[i], (uint32_t)ids->ids[i + 1]);
            const uint32_t rank = tokeniser_map_get(&t->merges, pair);

            if (rank >= lowest) continue;
            lowest = rank;
            best = i;
        }
        if (best == SIZE_MAX) return;
        ids->ids[best] = t->merged[lowest];
        memmove(ids->ids + best + 1, ids->ids + best + 2, (--ids->count - best - 1) * sizeof *ids->ids);
    }
}

static void fuzz_merges(fuzz_input *in) {
    static const char *const letters[4] = { "a", "b", "\xC3\xA9", "x" };
    char file[4096], text[1024];
    tokeniser t;
    tokeniser_ids got, want;
    size_t n = 0, round;

    memset(&t, 0, sizeof t);
    memset(&got, 0, sizeof got);
    memset(&want, 0, sizeof want);
    fuzz_must(!tokeniser_open_text(&t, file, fuzz_write(in, file, sizeof file)));
    while (in->size && n + 2 < 512) {
        const size_t byte = fuzz_take(in), letter = byte % 16 < 15 ? byte % 3 : 3;

        memcpy(text + n, letters[letter], strlen(letters[letter]));
        n += strlen(letters[letter]);
    }
    fuzz_define(&t, text, n, &want);
    for (round = 0; round < 2; ++round) { /* the second time by the cache */
        got.count = 0;
        fuzz_must(!tokeniser_encode(&t, text, n, 0, &got) && got.count == want.count);
        fuzz_must(!got.count || !memcmp(got.ids, want.ids, got.count * sizeof *got.ids));
    }
    free(got.ids);
    free(want.ids);
    tokeniser_close(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input in;

    in.data = data;
    in.size = size;
    if (fuzz_take(&in) & 1) fuzz_merges(&in);
    else fuzz_file(&in);
    return 0;
}
