/* test_tokeniser.c - examples/finetune/tokeniser.h: ids, pieces and bytes known by hand from tiny vocabularies, and the
   counts of Unicode 16.0. Whole vocabularies are held against the library by tests/check_tokeniser.py. */
#include "test.h"
static size_t tok_calls_left = SIZE_MAX; /* so many allocations succeed */
static int tok_may_allocate(void) { return tok_calls_left && tok_calls_left--; }
static void *tok_malloc(size_t bytes) { return tok_may_allocate() ? malloc(bytes) : NULL; }
static void *tok_calloc(size_t count, size_t each) { return tok_may_allocate() ? calloc(count, each) : NULL; }
static void *tok_realloc(void *block, size_t bytes) { return tok_may_allocate() ? realloc(block, bytes) : NULL; }
#define malloc tok_malloc
#define calloc tok_calloc
#define realloc tok_realloc
#include "../examples/finetune/tokeniser.h"
#undef malloc
#undef calloc
#undef realloc

#define MARK "\xE2\x96\x81" /* U+2581 */
/* Parts of a tokenizer.json, as JSON with ` for its quotes; NULL: null. */
typedef struct tok_parts {
    const char *added, *normalizer, *pre_tokenizer, *post_processor, *decoder, *options, *vocab, *merges;
} tok_parts;

static char tok_file[1 << 16];
static tokeniser tok;
static tokeniser_ids tok_ids;
static tokeniser_bytes tok_out;

static const char *tok_or_null(const char *part) { return part ? part : "null"; }

static void tok_quote(char *text) {
    for (; *text; ++text)
        if (*text == '`') *text = '"';
}

static size_t tok_write(const tok_parts *p) {
    const int n = snprintf(tok_file, sizeof tok_file, "{`version`:`1.0`,`truncation`:null,`padding`:null,"
        "`added_tokens`:[%s],`normalizer`:%s,`pre_tokenizer`:%s,`post_processor`:%s,`decoder`:%s,"
        "`model`:{%s`vocab`:{%s},`merges`:[%s]}}", p->added ? p->added : "", tok_or_null(p->normalizer),
        tok_or_null(p->pre_tokenizer), tok_or_null(p->post_processor), tok_or_null(p->decoder),
        p->options ? p->options : "`type`:`BPE`,", p->vocab, p->merges ? p->merges : "");

    CHECK(n > 0 && (size_t)n < sizeof tok_file);
    tok_quote(tok_file);
    return (size_t)n;
}

static int tok_opens(const tok_parts *p) {
    char *text;
    const size_t bytes = tok_write(p);
    int failed;

    memset(&tok, 0, sizeof tok);
    text = (char *)malloc(bytes); /* of its own, so that a sanitizer sees a byte beyond it */
    CHECK(text != NULL);
    if (!text) return 0;
    memcpy(text, tok_file, bytes);
    failed = tokeniser_open_text(&tok, text, bytes);
    free(text);
    return !failed;
}

static void tok_begin(const tok_parts *p) {
    CHECK(tok_opens(p));
    if (tok.message[0]) printf("%s\n", tok.message);
}

static int tok_says(const char *want) {
    char text[256];

    snprintf(text, sizeof text, "%s", want);
    tok_quote(text);
    if (!strcmp(tok.message, text)) return 1;
    printf("got %s, want %s\n", tok.message, text);
    return 0;
}

static void tok_end(void) {
    tokeniser_close(&tok);
    free(tok_ids.ids);
    free(tok_out.bytes);
    memset(&tok_ids, 0, sizeof tok_ids);
    memset(&tok_out, 0, sizeof tok_out);
}

/* Whether a text has these ids: "4 5 2". */
static int tok_gives(const char *text, int flags, const char *want) {
    char got[512] = "";
    size_t i, n = 0;

    tok_ids.count = 0;
    if (tokeniser_encode(&tok, text, strlen(text), flags, &tok_ids)) {
        printf("'%s': %s\n", text, tok.message);
        return 0;
    }
    for (i = 0; i < tok_ids.count && n < 500; ++i)
        n += (size_t)snprintf(got + n, sizeof got - n, i ? " %ld" : "%ld", (long)tok_ids.ids[i]);
    if (!strcmp(got, want)) return 1;
    printf("'%s': got %s, want %s\n", text, got, want);
    return 0;
}

/* Whether the ids of the last text are decoded to this one. */
static int tok_back(int flags, const char *want) {
    tok_out.count = 0;
    if (tokeniser_decode(&tok, tok_ids.ids, tok_ids.count, flags, &tok_out)) return 0;
    if (tok_out.count == strlen(want) && (!tok_out.count || !memcmp(tok_out.bytes, want, tok_out.count))) return 1;
    printf("got '%.*s', want '%s'\n", (int)tok_out.count, tok_out.bytes, want);
    return 0;
}

/* ---- Unicode ---- */
static void tok_classes(void) { /* the library's own patterns find as many: \p{L}, \p{N}, \s, \w */
    size_t counts[8], marks = 0, orders = 0;
    uint32_t code;

    memset(counts, 0, sizeof counts);
    for (code = 0; code < 0x110000; ++code) {
        ++counts[unicode_class(code) & UNICODE_CLASS];
        marks += unicode_order_of(code) > 0;
        orders += unicode_order_of(code);
    }
    CHECK(counts[UNICODE_LETTER] == 141028 && counts[UNICODE_DIGIT] + counts[UNICODE_NUMBER] == 1911);
    CHECK(counts[UNICODE_SPACE] == 25);
    CHECK(counts[UNICODE_LETTER] + counts[UNICODE_DIGIT] + counts[UNICODE_WORD] == 144667);
    CHECK(marks == 934 && orders == 173501);
    for (code = 0; code < 128; ++code) /* by rule, and by the table */
        CHECK_AT((uint32_t)unicode_class(code) == (unicode_row(unicode_classes, UNICODE_ROWS(unicode_classes, 1), 1, 4,
                                                               code)[0] & 15), code);
}

static void tok_decompositions(void) { /* there and back; how many are not composed again, and how long all are */
    uint32_t code, parts[4], spare[4];
    size_t kept = 0, length = 0, changed = 0;

    for (code = 0; code < 0x110000; ++code) {
        size_t n;

        if (code >= 0xD800 && code < 0xE000) continue;
        n = unicode_decompose(code, parts);
        length += n;
        changed += n > 1 || parts[0] != code;
        unicode_order(parts, n, spare);
        n = unicode_compose(parts, n);
        kept += n == 1 && parts[0] == code;
    }
    CHECK(kept == 0x110000 - 0x800 - 1120 && length == 1135378 && changed == 13253);
    parts[0] = 0xAC00;
    parts[1] = 0x11A7; /* one before the first last letter of Hangul */
    CHECK(unicode_compose(parts, 2) == 2);
}

static int tok_composes(const char *text, const char *want) {
    tokeniser_bytes out;
    int changed, same;

    memset(&out, 0, sizeof out);
    same = !tokeniser_nfc(&tok, text, strlen(text), &out, &changed) && changed
        && out.count == strlen(want) && !memcmp(out.bytes, want, out.count);
    if (!same) printf("got '%.*s', want '%s'\n", (int)out.count, out.bytes, want);
    free(out.bytes);
    return same;
}

static void tok_nfc(void) {
    static const char done[] = "caf\xC3\xA9 \xEA\xB0\x80 \xE4\xBD\xA0"; /* is NFC, and nothing in it composes */
    tokeniser_bytes out;
    int changed = 1;
    size_t i;

    memset(&tok, 0, sizeof tok);
    memset(&out, 0, sizeof out);
    CHECK(!tokeniser_nfc(&tok, done, sizeof done - 1, &out, &changed) && !changed);
    CHECK(tok_composes("cafe\xCC\x81!", "caf\xC3\xA9!"));
    CHECK(tok_composes("e\xCC\x81" "e\xCC\x81", "\xC3\xA9\xC3\xA9"));
    CHECK(tok_composes("\xCC\x81" "a", "\xCC\x81" "a"));                         /* a mark that has nothing before it */
    CHECK(tok_composes("a\xCC\x81\xCC\xA3", "\xE1\xBA\xA1\xCC\x81"));            /* the dot below goes first */
    CHECK(tok_composes("\xC3\xA1\xCC\xA3", "\xE1\xBA\xA1\xCC\x81"));             /* also past what was composed */
    CHECK(tok_composes("a\xCC\xB4\xCC\x81", "\xC3\xA1\xCC\xB4"));                /* an overlay is not in the way */
    CHECK(tok_composes("a\xCC\x85\xCC\x81", "a\xCC\x85\xCC\x81"));               /* another mark above is */
    CHECK(tok_composes("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81")); /* Hangul: L V T */
    CHECK(tok_composes("\xEA\xB0\x80\xE1\x86\xA8", "\xEA\xB0\x81"));             /* LV T */
    CHECK(tok_composes("\xEA\xB0\x81\xE1\x86\xA8", "\xEA\xB0\x81\xE1\x86\xA8")); /* LVT takes no other */
    CHECK(tok_composes("\xE2\x84\xAB", "\xC3\x85"));                             /* Angstrom */
    CHECK(tok_composes("\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC"));             /* is never composed */
    CHECK(tok_composes("\xE1\xBD\xB1", "\xCE\xAC"));                             /* by way of another */
    out.count = 0;
    for (i = 0; i < 20000; ++i) CHECK_AT(!tokeniser_append(&tok, &out, i & 1 ? "\xCC\x81" : "\xCC\xA3", 2), i);
    tok_out.count = 0; /* a run of 20,000 marks: those below first */
    CHECK(!tokeniser_nfc(&tok, out.bytes, 40000, &tok_out, &changed) && tok_out.count == 40000);
    CHECK(!memcmp(tok_out.bytes + 19998, "\xCC\xA3\xCC\x81", 4));
    free(out.bytes);
    tok_end();
}

/* ---- pieces ---- */
static void tok_pieces(void) { /* with | between them */
    static const struct { tokeniser_pieces kind; const char *want; } cases[] = {
        { TOKENISER_GPT2, "Hello| world|!" }, { TOKENISER_GPT2, "I|'d|'s|'t|'ve|'ll" },
        { TOKENISER_GPT2, "I|'m| you|'re|'|Said" },
        { TOKENISER_GPT2, "a|   | b" }, { TOKENISER_GPT2, "a|  | b" }, { TOKENISER_GPT2, "a|\n|b" },
        { TOKENISER_GPT2, "a| |\n|b" }, { TOKENISER_GPT2, "a|   " }, { TOKENISER_GPT2, " 123| 4|a|5" },
        { TOKENISER_GPT2, "(|a|).'|x" }, { TOKENISER_GPT2, "\xC3\xA9t\xC3\xA9| \xC2\xB2|\xE2\x82\xAC" },
        { TOKENISER_GPT2, "a|\xC2\xA0|b" }, { TOKENISER_GPT2, "e|\xCC\x81|a" }, { TOKENISER_GPT2, "'" },
        { TOKENISER_LLAMA3, "Hello| world|!" }, { TOKENISER_LLAMA3, "I|'M| you|'re|'Ve|'lL" },
        { TOKENISER_LLAMA3, "x|'\xC5\xBF|a" }, { TOKENISER_LLAMA3, "123|456|7" }, { TOKENISER_LLAMA3, "a|\n\n|b" },
        { TOKENISER_LLAMA3, "a|  \n \n|    | b" }, { TOKENISER_LLAMA3, "(a|(..[|b|.\n\n| | c" },
        { TOKENISER_LLAMA3, "\tx|\r\n|y" }, { TOKENISER_LLAMA3, "a| |1| !!?" }, { TOKENISER_LLAMA3, "a|  \n" },
        { TOKENISER_LLAMA3, "'x|'''|s" }, { TOKENISER_LLAMA3, "a|\n|b|\r|c" },
        { TOKENISER_LLAMA3, "a| \r|  | b" }, { TOKENISER_QWEN2, "1|2|3|a" }, { TOKENISER_QWEN2, " |1| a|\xC2\xB2" },
        { TOKENISER_DIGITS, "ab|12|.|3" }, { TOKENISER_DIGIT, "ab |1|2|.a|\xC2\xBD|\xD9\xA3" }
    };
    size_t i;

    memset(&tok, 0, sizeof tok);
    for (i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        char text[64], got[128];
        size_t n = 0, k, bytes, end = 0;

        for (k = 0; cases[i].want[k]; ++k)
            if (cases[i].want[k] != '|') text[n++] = cases[i].want[k];
        for (k = 0; k < n; k += bytes) {
            if (k) got[end++] = '|';
            bytes = tokeniser_piece(&tok, cases[i].kind, text + k, n - k);
            memcpy(got + end, text + k, bytes);
            end += bytes;
        }
        got[end] = 0;
        CHECK_AT(!strcmp(got, cases[i].want), i);
        if (strcmp(got, cases[i].want)) printf("got '%s', want '%s'\n", got, cases[i].want);
    }
}

/* ---- byte level ---- */
#define TOK_BYTES "{`type`:`ByteLevel`,`add_prefix_space`:false,`trim_offsets`:true,`use_regex`:true}"
#define TOK_PREFIX "{`type`:`ByteLevel`,`add_prefix_space`:true,`trim_offsets`:true,`use_regex`:true}"
#define TOK_SPLIT(pattern) "{`type`:`Sequence`,`pretokenizers`:[{`type`:`Split`,`pattern`:{`Regex`:`" pattern "`}," \
    "`behavior`:`Isolated`,`invert`:false},{`type`:`ByteLevel`,`add_prefix_space`:false,`trim_offsets`:true," \
    "`use_regex`:false}]}"
#define TOK_METASPACE(more) "{`type`:`Metaspace`,`replacement`:`" MARK "`" more "}"
#define TOK_REST "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define TOK_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+"
#define TOK_WORDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+"
#define TOK_LLAMA3 TOK_WORDS "|\\\\p{N}{1,3}" TOK_REST
#define TOK_QWEN2 TOK_WORDS "|\\\\p{N}" TOK_REST

static tok_parts tok_gpt2(void) {
    tok_parts p;

    memset(&p, 0, sizeof p);
    p.pre_tokenizer = TOK_BYTES;
    p.decoder = TOK_BYTES;
    p.vocab = "`a`:0,`b`:1,`c`:2,`\\u0120`:3,`ab`:4,`\\u0120ab`:5,`abc`:6,`\\u00c3`:7,`\\u00a9`:8,"
              "`\\u00c3\\u00a9`:9,`aa`:10,`1`:11,`\\u010a`:12,`bc`:13,`-`:14";
    p.merges = "`a b`,[`\\u0120`,`ab`],`ab c`,`\\u00c3 \\u00a9`,`a a`";
    return p;
}

static void tok_byte_level(void) {
    tok_parts p = tok_gpt2();

    tok_begin(&p);
    CHECK(tokeniser_size(&tok) == 15);
    CHECK(tok.letters[33] == 33 && tok.letters[255] == 255 && tok.letters[0] == 0x100 && tok.letters[32] == 0x120);
    CHECK(tok.letters[127] == 0x121 && tok.letters[160] == 0x142 && tok.letters[173] == 0x143);
    CHECK(tokeniser_id(&tok, "\xC4\xA0" "ab", 4) == 5);
    CHECK(tokeniser_id(&tok, "ab", 1) == 0 && tokeniser_id(&tok, "x", 1) == -1);
    CHECK(tok_gives("", 0, "") && tok_back(0, ""));
    CHECK(tok_gives("ab", 0, "4") && tok_gives("ba", 0, "1 0"));
    CHECK(tok_gives("ab abc", 0, "4 5 2") && tok_back(0, "ab abc")); /* rank 1 before rank 2 */
    CHECK(tok_gives("abc abc", 0, "6 5 2"));                         /* the same piece at a text's begin */
    CHECK(tok_gives("aaa", 0, "10 0") && tok_gives("aaaa", 0, "10 10")); /* the leftmost first */
    CHECK(tok_gives("aab", 0, "0 4"));                                   /* a lower rank, though it stands behind */
    CHECK(tok_gives("\xC3\xA9", 0, "9") && tok_back(0, "\xC3\xA9"));
    CHECK(tok_gives("\xC3\xA9\xC3\xA9 a\n", 0, "9 9 3 0 12") && tok_back(0, "\xC3\xA9\xC3\xA9 a\n"));
    CHECK(tok_gives("axb", 0, "4")); /* without unk_token, what has no token is left out, and then merges are made */
    CHECK(tok_gives("a1", 0, "0 11"));
    tok_end();
    p.pre_tokenizer = TOK_PREFIX;
    tok_begin(&p);
    CHECK(tok_gives("ab", 0, "5") && tok_gives(" ab", 0, "5") && tok_gives("\nab", 0, "3 12 4"));
    CHECK(tok_gives("", 0, ""));
    tok_end();
    p.pre_tokenizer = TOK_SPLIT(TOK_LLAMA3);
    p.options = "`type`:`BPE`,`ignore_merges`:true,";
    tok_begin(&p);
    CHECK(tok_gives("bc", 0, "13") && tok_gives("bca", 0, "1 2 0")); /* no merge makes bc, but it is a token */
    CHECK(tok_gives("-ab\n", 0, "14 4 12"));
    tok_end();
    p.added = "{`id`:20,`content`:`bb`,`single_word`:true}"; /* is no token of the model */
    p.vocab = "`a`:0,`b`:1,`1`:2,`aaaaa`:3";
    p.merges = "";
    tok_begin(&p);
    CHECK(tok_gives("1bb", 0, "2 1 1") && tok_gives("bb", 0, "20") && tok_gives("aaaaa", 0, "3"));
    tok_end();
}

static void tok_patterns(void) { /* each by its text */
    static const struct { const char *pre_tokenizer; tokeniser_pieces kind; } cases[] = {
        { TOK_BYTES, TOKENISER_GPT2 }, { TOK_SPLIT(TOK_GPT2), TOKENISER_GPT2 },
        { TOK_SPLIT(TOK_LLAMA3), TOKENISER_LLAMA3 }, { TOK_SPLIT(TOK_QWEN2), TOKENISER_QWEN2 },
        { "{`type`:`Digits`,`individual_digits`:true}", TOKENISER_DIGIT },
        { "{`type`:`Digits`,`individual_digits`:false}", TOKENISER_DIGITS }, { TOK_METASPACE(""), TOKENISER_MARKED }
    };
    tok_parts p = tok_gpt2();
    size_t i;

    for (i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        p.pre_tokenizer = cases[i].pre_tokenizer;
        tok_begin(&p);
        CHECK_AT(tok.split_count == 1 && tok.splits[0] == cases[i].kind && tok.byte_level == (i < 4), i);
        tok_end();
    }
}

static void tok_two_ways(void) { /* to one token; a merge of what is merged already is passed over */
    tok_parts p = tok_gpt2();

    p.vocab = "`x`:0,`y`:1,`z`:2,`xy`:3,`yz`:4,`xyz`:5,`w`:6,`xyzw`:7,`xyxy`:8";
    p.merges = "`y z`,`x yz`,`x y`,`xy z`,`xyz w`,`xy xy`";
    tok_begin(&p);
    CHECK(tok_gives("xyxy", 0, "8") && tok_gives("xyxyxy", 0, "8 3"));
    CHECK(tok_gives("xyz", 0, "5") && tok_gives("xy", 0, "3") && tok_gives("xyzw", 0, "7"));
    CHECK(tok_gives("zyx", 0, "2 1 0"));
    tok_end();
}

static int tok_is_cached(const char *text) {
    const size_t n = strlen(text);
    const tokeniser_cached *const c = &tok.cache[tokeniser_hash(text, n) % TOKENISER_CACHE];

    return c->bytes == n && !memcmp(c->text, text, n);
}

static void tok_cache(void) { /* 4096 words, of which many have one place: each comes back */
    tok_parts p = tok_gpt2();
    size_t i, k;

    tok_begin(&p);
    for (i = 0; i < 3 * 4096; ++i) {
        char text[13] = "";

        for (k = 0; k < 12; ++k) text[k] = i >> k & 1 ? 'a' : 'b';
        tok_ids.count = 0;
        CHECK_AT(!tokeniser_encode(&tok, text, 12, 0, &tok_ids) && tok_back(0, text), i);
    }
    tok_end();
}

static void tok_long_pieces(void) { /* longer than what is cached, and a megabyte of one letter: 2 of each, then 1 */
    const size_t n = 1000001;
    tok_parts p = tok_gpt2();
    char *text = (char *)malloc(n);
    size_t i;

    CHECK(text != NULL);
    if (!text) return;
    tok_begin(&p);
    CHECK(tok_gives("aaaaaaaaaaaaaaaaaaaaaaaaa", 0, "10 10 10 10 10 10 10 10 10 10 10 10 0"));
    CHECK(tok_gives("bbbbbbbbbb", 0, "1 1 1 1 1 1 1 1 1 1") && tok_is_cached("bbbbbbbbbb"));
    CHECK(tok_gives("bbbbbbbbbbb", 0, "1 1 1 1 1 1 1 1 1 1 1") && !tok_is_cached("bbbbbbbbbbb"));
    memset(text, 'a', n);
    tok_ids.count = 0;
    CHECK(!tokeniser_encode(&tok, text, n, 0, &tok_ids) && tok_ids.count == 500001);
    for (i = 0; i < tok_ids.count; ++i) CHECK_AT(tok_ids.ids[i] == (i < 500000 ? 10 : 0), i);
    tok_end();
    free(text);
}

static void tok_not_utf8(void) {
    static const char *const bad[] = { "ab\xFF", "ab\xC3", "ab\xC0\x80", "ab\xED\xA0\x80", "ab\x80" };
    tok_parts p = tok_gpt2();
    size_t i;

    tok_begin(&p);
    CHECK(tok_gives("ab", 0, "4"));
    for (i = 0; i < sizeof bad / sizeof bad[0]; ++i) { /* and what was there stays */
        CHECK_AT(tokeniser_encode(&tok, bad[i], strlen(bad[i]), 0, &tok_ids) == 1, i);
        CHECK_AT(tok_says("byte 2 of the text is no UTF-8") && tok_ids.count == 1 && tok_ids.ids[0] == 4, i);
    }
    CHECK(!tokeniser_encode(&tok, "ab", 2, 0, &tok_ids) && tok_ids.count == 2 && tok_ids.ids[1] == 4); /* appended */
    tok_ids.ids[1] = 15;
    CHECK(tokeniser_decode(&tok, tok_ids.ids, 2, 0, &tok_out) && tok_says("id 15 at place 1 is no token"));
    tok_ids.ids[1] = -1;
    CHECK(tokeniser_decode(&tok, tok_ids.ids, 2, 0, &tok_out) && tok_says("id -1 at place 1 is no token"));
    CHECK(tok_out.count == 0);
    tok_ids.ids[0] = 7; /* half of a character is decoded as it is */
    CHECK(!tokeniser_decode(&tok, tok_ids.ids, 1, 0, &tok_out) && tok_out.count == 1 && tok_out.bytes[0] == '\xC3');
    tok_end();
}

/* ---- characters ---- */
#define TOK_LLAMA_DECODER "{`type`:`Sequence`,`decoders`:[{`type`:`Replace`,`pattern`:{`String`:`" MARK "`}," \
    "`content`:` `},{`type`:`ByteFallback`},{`type`:`Fuse`},{`type`:`Strip`,`content`:` `,`start`:1,`stop`:0}]}"
#define TOK_LLAMA_NORMALIZER "{`type`:`Sequence`,`normalizers`:[{`type`:`Prepend`,`prepend`:`" MARK "`}," \
    "{`type`:`Replace`,`pattern`:{`String`:` `},`content`:`" MARK "`}]}"

static tok_parts tok_llama(void) {
    tok_parts p;

    memset(&p, 0, sizeof p);
    p.normalizer = TOK_LLAMA_NORMALIZER;
    p.decoder = TOK_LLAMA_DECODER;
    p.options = "`type`:`BPE`,`unk_token`:`<unk>`,`fuse_unk`:true,`byte_fallback`:true,";
    p.vocab = "`<unk>`:0,`<s>`:1,`</s>`:2,`<0xC3>`:3,`<0xA9>`:4,`<0x0A>`:5,`" MARK "`:6,`a`:7,`b`:8,`ab`:9,"
              "`" MARK "ab`:10,`\xE4\xBD\xA0`:11,`" MARK MARK "`:12,`a" MARK "`:13,`\xE4\xBD\xA0" "a`:14";
    p.merges = "`a b`,`" MARK " ab`,`" MARK " " MARK "`,`\xE4\xBD\xA0 a`";
    return p;
}

static void tok_characters(void) {
    tok_parts p = tok_llama();

    tok_begin(&p);
    CHECK(tok_gives("ab", 0, "10") && tok_back(0, "ab") && tok_back(TOKENISER_CONTINUE, " ab"));
    CHECK(tok_gives("ab ab", 0, "10 10") && tok_back(0, "ab ab"));
    CHECK(tok_gives(" ab", 0, "6 10") && tok_back(0, " ab"));      /* the rank of two marks is higher */
    CHECK(tok_gives("  a", 0, "12 6 7") && tok_back(0, "  a"));
    CHECK(tok_gives("aab", 0, "6 7 9") && tok_gives("", 0, ""));
    CHECK(tok_gives("\xC3\xA9\n", 0, "6 3 4 5") && tok_back(0, "\xC3\xA9\n"));
    CHECK(tok_gives("a\xE4\xBD\xA0" "ab", 0, "6 7 11 9"));         /* a b has the lower rank */
    CHECK(tok_gives("\xE4\xBD\xA0" "aa", 0, "6 14 7"));
    CHECK(tok_gives("\xE2\x82\xAC", 0, "6 0") && tok_gives("\xE2\x82\xAC\xE2\x82\xAC" "a", 0, "6 0 7")); /* fused */
    CHECK(tok_gives("\xE2\x82\xAC\n", 0, "6 5 0")); /* as in the library: a byte's token comes before what is unknown */
    tok_end();
    p.options = "`type`:`BPE`,`unk_token`:`<unk>`,";
    tok_begin(&p);
    CHECK(tok_gives("\xE2\x82\xAC\xE2\x82\xAC" "a\n", 0, "6 0 0 7 0"));
    tok_end();
    p.options = "`type`:`BPE`,`unk_token`:`<none>`,";
    tok_begin(&p);
    CHECK(tok_gives("ab", 0, "10") && tokeniser_encode(&tok, "ab ab\n", 6, 0, &tok_ids) && tok_ids.count == 1);
    CHECK(tok_says("a character has no token, and unk_token is not in the vocabulary"));
    tok_end();
    p.merges = "`a b`,`a " MARK "`,`" MARK " a`"; /* one that crosses a blank, so that no piece ends there */
    CHECK(!tok_opens(&p) && tok_says("merges: `" MARK "a` is not in vocab"));
    p.merges = "`a b`,`a " MARK "`";
    tok_begin(&p);
    CHECK(tok_gives("a a b", 0, "6 13 13 8"));
    tok_end();
    p.options = "`byte_fallback`:true,"; /* what stands for a byte is merged like all else */
    p.vocab = "`<0x0A>`:0,`a`:1,`<0x0A>a`:2,`" MARK "`:3";
    p.merges = "`<0x0A> a`";
    tok_begin(&p);
    CHECK(tok_gives("\na", 0, "3 2") && tok_gives("a\na\n", 0, "3 1 2 0"));
    tok_end();
}

#define TOK_REPLACE(from, to) "{`type`:`Replace`,`pattern`:{`String`:`" from "`},`content`:`" to "`}"
#define TOK_GROWS TOK_REPLACE("x", "111111111111111111111111111111111111111111111111")
#define TOK_DOUBLES TOK_REPLACE("x", "xx")

static void tok_steps(void) { /* one that changes nothing stands between two that do */
    tok_parts p = tok_gpt2();

    p.normalizer = "{`type`:`Sequence`,`normalizers`:[" TOK_REPLACE("x", "ab") ",{`type`:`NFC`},"
                   TOK_REPLACE("ba", "---") "]}";
    tok_begin(&p);
    CHECK(tok_gives("xxb", 0, "0 14 14 14 1 1") && tok_gives("ab", 0, "4"));
    tok_end();
    p.normalizer = TOK_GROWS; /* 10 bytes would be 480: 16 times as many and 64 are allowed */
    tok_begin(&p);
    CHECK(tok_gives("1", 0, "11") && !tokeniser_encode(&tok, "11", 2, 0, &tok_ids));
    CHECK(tokeniser_encode(&tok, "xxxxxxxxxx", 10, 0, &tok_ids));
    CHECK(tok_says("Replace makes a text more than 16 times as long"));
    tok_end();
    p.normalizer = "{`type`:`Sequence`,`normalizers`:[" TOK_DOUBLES "," TOK_DOUBLES "," TOK_DOUBLES "," TOK_DOUBLES ","
                   TOK_DOUBLES "]}"; /* 32 times */
    tok_begin(&p);
    CHECK(!tokeniser_encode(&tok, "xxxx", 4, 0, &tok_ids) && tokeniser_encode(&tok, "xxxxx", 5, 0, &tok_ids));
    CHECK(tok_says("the normalizer makes a text more than 16 times as long"));
    tok_end();
    p.normalizer = TOK_REPLACE("1111111111222222222233333333334444444444555555555566666666667777", "1");
    tok_begin(&p);
    CHECK(tok_gives("1111111111222222222233333333334444444444555555555566666666667777", 0, "11"));
    tok_end();
}

static void tok_metaspace(void) {
    static const struct { const char *pre_tokenizer, *text, *ids; } cases[] = {
        { TOK_METASPACE(",`prepend_scheme`:`always`,`split`:true"), "ab  ab", "10 6 10" },
        { TOK_METASPACE(""), MARK "ab", "10" },
        { TOK_METASPACE(",`add_prefix_space`:true,`str_rep`:`x`"), "ab<s>ab", "10 1 10" },
        { TOK_METASPACE(",`prepend_scheme`:`first`,`split`:false"), "ab  ab", "10 6 10" },
        { TOK_METASPACE(",`prepend_scheme`:`first`,`split`:false"), "ab<s>ab", "10 1 9" },
        { TOK_METASPACE(",`prepend_scheme`:`first`,`split`:false"), "<s>ab", "1 9" },
        { TOK_METASPACE(",`prepend_scheme`:`first`,`split`:false"), "<s>ab<s>", "1 9 1" },
        { TOK_METASPACE(",`prepend_scheme`:`never`,`split`:true"), "ab ab", "9 10" },
        { TOK_METASPACE(",`prepend_scheme`:`never`,`add_prefix_space`:false"), "ab", "9" }
    };
    tok_parts p = tok_llama();
    size_t i, k;

    p.normalizer = NULL;
    p.added = "{`id`:1,`content`:`<s>`,`single_word`:false,`lstrip`:false,`rstrip`:false,`normalized`:false,"
              "`special`:true}";
    for (i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        p.pre_tokenizer = cases[i].pre_tokenizer;
        tok_begin(&p);
        CHECK_AT(tok_gives(cases[i].text, 0, cases[i].ids), i);
        tok_end();
    }
    for (i = 0; i < 2; ++i) { /* all marks of the first token go, or are blanks */
        p.decoder = i ? TOK_METASPACE(",`prepend_scheme`:`never`") : TOK_METASPACE("");
        tok_begin(&p);
        for (k = tok_ids.count = 0; k < 3; ++k) CHECK(!tokeniser_push(&tok, &tok_ids, k < 2 ? 12 : 10));
        CHECK_AT(tok_back(0, i ? "     ab" : "   ab") && tok_back(TOKENISER_CONTINUE, "     ab"), i);
        tok_end();
    }
}

/* ---- added tokens and what stands around ---- */
#define TOK_ADD(id, content, more) "{`id`:" #id ",`content`:`" content "`" more "}"

static void tok_added(void) {
    tok_parts p = tok_gpt2();

    p.added = TOK_ADD(20, "<s>", ",`special`:true") "," TOK_ADD(21, "<s>a", "") ","
              TOK_ADD(22, "[L]", ",`lstrip`:true") "," TOK_ADD(23, "[R]", ",`rstrip`:true") ","
              TOK_ADD(24, "b1", ",`single_word`:true") "," TOK_ADD(4, "ab", ",`single_word`:true") ","
              TOK_ADD(25, "a a", "") "," TOK_ADD(26, "", "") "," TOK_ADD(28, "aaaa", "");
    tok_begin(&p);
    CHECK(tokeniser_size(&tok) == 29 && tokeniser_id(&tok, "<s>", 3) == 20 && tokeniser_id(&tok, "", 0) == -1);
    CHECK(tok_gives("<s>", 0, "20") && tok_back(0, "<s>") && tok_back(TOKENISER_SKIP_SPECIAL, ""));
    CHECK(tok_gives("b<s>ab", 0, "1 21 1") && tok_back(TOKENISER_SKIP_SPECIAL, "b<s>ab")); /* the longest */
    CHECK(tok_gives("b<sb", 0, "1 1"));                                  /* its beginning alone is text */
    CHECK(tok_gives("b \n[L] b", 0, "1 22 3 1") && tok_gives("b [R] \nb", 0, "1 3 23 1"));
    CHECK(tok_gives("[R]  [L]", 0, "23 22") && tok_gives(" [L]", 0, "22") && tok_gives("[R] ", 0, "23"));
    CHECK(tok_gives("b1", 0, "24") && tok_gives("-b1\n", 0, "14 24 12") && tok_gives("b11", 0, "1 11 11"));
    CHECK(tok_gives("ab1", 0, "4 11") && tok_gives("\xC3\xA9" "b1", 0, "9 1 11") && tok_gives("-ab", 0, "14 4"));
    CHECK(tok_gives("a a a", 0, "25 3 0") && tok_back(0, "a a a"));      /* has a blank, and is decoded as it stands */
    CHECK(tok_gives("aaaaa", 0, "28 0") && tok_gives("aaa", 0, "10 0")); /* leftmost */
    tok_end();
}

static void tok_normalized(void) { /* added tokens are looked for behind the normalizer, as it writes them */
    tok_parts p = tok_gpt2();

    p.normalizer = "{`type`:`NFC`}";
    p.added = TOK_ADD(20, "e\\u0301x", ",`normalized`:true") "," TOK_ADD(21, "e\\u0301", ",`normalized`:false");
    tok_begin(&p);
    CHECK(tok_gives("\xC3\xA9x", 0, "20") && tok_back(0, "\xE9x")); /* as in the library: all letters of the alphabet */
    CHECK(tok_gives("e\xCC\x81x", 0, "21") && tok_back(0, "e\xCC\x81"));
    CHECK(tok_gives("be\xCC\x81", 0, "1 21") && tok_gives("\xC3\xA9", 0, "9"));
    tok_end();
    p = tok_llama();
    p.added = TOK_ADD(1, "<s>", ",`normalized`:true,`special`:true") "," TOK_ADD(2, "</s>", ",`special`:true");
    tok_begin(&p);
    CHECK(tok_gives("<s>ab", 0, "1 9") && tok_gives(" <s>", 0, "6 1") && tok_gives("ab<s>", 0, "10 0"));
    CHECK(tok_gives("ab</s>ab", 0, "10 2 10") && tok_back(TOKENISER_SKIP_SPECIAL, "ab ab"));
    tok_end();
}

#define TOK_SPECIAL(name) "{`SpecialToken`:{`id`:`" name "`,`type_id`:0}}"
#define TOK_TEXT "{`Sequence`:{`id`:`A`,`type_id`:0}}"
#define TOK_TEMPLATE(single, tokens) "{`type`:`TemplateProcessing`,`single`:[" single "],`pair`:[]," \
    "`special_tokens`:{" tokens "}}"

static void tok_around(void) {
    tok_parts p = tok_llama();
    size_t count;

    p.post_processor = TOK_TEMPLATE(TOK_SPECIAL("<s>") "," TOK_TEXT "," TOK_SPECIAL("e"),
        "`<s>`:{`id`:`<s>`,`ids`:[1],`tokens`:[`<s>`]},`e`:{`id`:`e`,`ids`:[2,7],`tokens`:[`</s>`,`a`]}");
    tok_begin(&p);
    CHECK(tok_gives("ab", TOKENISER_ADD_SPECIAL, "1 10 2 7") && tok_gives("ab", 0, "10"));
    CHECK(tokeniser_around(&tok, 0, &count)[0] == 1 && count == 1);
    CHECK(tokeniser_around(&tok, 1, &count)[1] == 7 && count == 2);
    CHECK(tok_gives("", TOKENISER_ADD_SPECIAL, "1 2 7"));
    tok_end();
    p.post_processor = "{`type`:`Sequence`,`processors`:[" TOK_BYTES "," TOK_TEMPLATE(TOK_SPECIAL("b") "," TOK_TEXT,
        "`b`:{`id`:`b`,`ids`:[2],`tokens`:[`</s>`]}") "]}";
    tok_begin(&p);
    CHECK(tok_gives("ab", TOKENISER_ADD_SPECIAL, "2 10"));
    tok_end();
}

/* ---- refusals ---- */
#define TOK_4 TOK_TEXT "," TOK_TEXT "," TOK_TEXT "," TOK_TEXT ","
#define TOK_16 TOK_4 TOK_4 TOK_4 TOK_4
#define TOK_SET(field, value, text) { offsetof(tok_parts, field), value, text }
typedef struct tok_refusal { size_t field; const char *value, *message; } tok_refusal;

static void tok_refused(const tok_parts *base, const tok_refusal *cases, size_t count) {
    size_t i;

    for (i = 0; i < count; ++i) {
        tok_parts p = *base;

        memcpy((char *)&p + cases[i].field, &cases[i].value, sizeof cases[i].value);
        CHECK_AT(!tok_opens(&p) && tok_says(cases[i].message), i);
    }
}

static void tok_refusals(void) {
    static const tok_refusal bytes[] = {
        TOK_SET(normalizer, "{`type`:`NFKC`}", "normalizer: type NFKC is not known"),
        TOK_SET(normalizer, "{`type`:`NFC`,`x`:1}", "normalizer: member `x` is not known"),
        TOK_SET(normalizer, "{`type`:`NFC`,`type\\u0000`:1}", "normalizer: member `type` is not known"),
        TOK_SET(normalizer, "{}", "normalizer: a type is missing"),
        TOK_SET(normalizer, "7", "normalizer: a type is missing"),
        TOK_SET(normalizer, "{`type`:`Sequence`,`normalizers`:7}", "normalizer: normalizers is no list"),
        TOK_SET(normalizer, "{`type`:`Sequence`,`normalizers`:[],`y`:1}", "normalizer: member `y` is not known"),
        TOK_SET(normalizer, "{`type`:`Sequence`,`normalizers`:[{`type`:`Sequence`,`normalizers`:[]}]}",
                "normalizer: type Sequence is not known"),
        TOK_SET(normalizer, "{`type`:`Sequence`,`normalizers`:[{`type`:`NFC`},{`type`:`NFC`},{`type`:`NFC`},"
                "{`type`:`NFC`},{`type`:`NFC`},{`type`:`NFC`},{`type`:`NFC`},{`type`:`NFC`},{`type`:`NFC`}]}",
                "normalizer: more than 8 steps"),
        TOK_SET(normalizer, "{`type`:`Prepend`}", "normalizer: prepend is no text"),
        TOK_SET(normalizer, "{`type`:`Replace`,`pattern`:{`Regex`:`a`},`content`:``}",
                "normalizer: member `Regex` is not known"),
        TOK_SET(normalizer, "{`type`:`Replace`,`pattern`:{`String`:``},`content`:``}",
                "normalizer: Replace has a pattern of no bytes, or of more than 64"),
        TOK_SET(normalizer, TOK_REPLACE("1234567890123456789012345678901234567890123456789012345678901234x", ""),
                "normalizer: Replace has a pattern of no bytes, or of more than 64"),
        TOK_SET(pre_tokenizer, "{`type`:`Whitespace`}", "pre_tokenizer: type Whitespace is not known"),
        TOK_SET(pre_tokenizer, TOK_SPLIT("a\\\\nb"), "pre_tokenizer: the pattern `a\\nb` is not known"),
        TOK_SET(pre_tokenizer, "{`type`:`Split`,`pattern`:{`String`:` `},`behavior`:`Isolated`}",
                "pre_tokenizer: the pattern ` ` is not known"),
        TOK_SET(pre_tokenizer, "{`type`:`Split`,`pattern`:{`Regex`:` `},`behavior`:`Removed`}",
                "pre_tokenizer: Split is known with behavior Isolated and without invert"),
        TOK_SET(pre_tokenizer, "{`type`:`Sequence`,`pretokenizers`:[" TOK_BYTES "," TOK_BYTES "]}",
                "pre_tokenizer: a step behind ByteLevel"),
        TOK_SET(pre_tokenizer, "{`type`:`Sequence`,`pretokenizers`:[{`type`:`Digits`}," TOK_PREFIX "]}",
                "pre_tokenizer: add_prefix_space behind another step"),
        TOK_SET(pre_tokenizer, "{`type`:`Sequence`,`pretokenizers`:[{`type`:`Digits`}," TOK_METASPACE("") "]}",
                "pre_tokenizer: Metaspace behind another step"),
        TOK_SET(pre_tokenizer, "{`type`:`Sequence`,`pretokenizers`:[{`type`:`Digits`},{`type`:`Digits`},"
                "{`type`:`Digits`},{`type`:`Digits`},{`type`:`Digits`}]}",
                "pre_tokenizer: more than 4 steps that split"),
        TOK_SET(pre_tokenizer, "{`type`:`Digits`,`individual_digits`:1}",
                "pre_tokenizer: individual_digits is neither true nor false"),
        TOK_SET(pre_tokenizer, "{`type`:`Metaspace`,`replacement`:`ab`}",
                "pre_tokenizer: the replacement is not one character"),
        TOK_SET(pre_tokenizer, "{`type`:`Metaspace`,`replacement`:``}",
                "pre_tokenizer: the replacement is not one character"),
        TOK_SET(pre_tokenizer, TOK_METASPACE(",`prepend_scheme`:`last`"),
                "pre_tokenizer: prepend_scheme is none of never, first and always"),
        TOK_SET(pre_tokenizer, TOK_METASPACE(",`add_prefix_space`:false"),
                "pre_tokenizer: add_prefix_space and prepend_scheme contradict"),
        TOK_SET(decoder, NULL, "decoder: none is not known"),
        TOK_SET(decoder, "{`type`:`BPEDecoder`}", "decoder: type BPEDecoder is not known"),
        TOK_SET(decoder, "{`type`:`Strip`,`content`:` `,`start`:1,`stop`:0}",
                "decoder: Strip is not known where it stands"),
        TOK_SET(decoder, "{`type`:`Sequence`,`decoders`:[{`type`:`Fuse`},{`type`:`ByteFallback`}]}",
                "decoder: ByteFallback is not known where it stands"),
        TOK_SET(decoder, "{`type`:`Sequence`,`decoders`:[{`type`:`Fuse`},{`type`:`ByteLevel`}]}",
                "decoder: ByteLevel is not known where it stands"),
        TOK_SET(decoder, "{`type`:`Sequence`,`decoders`:[{`type`:`Fuse`},{`type`:`Strip`,`content`:` `,`start`:1,"
                "`stop`:1}]}", "decoder: Strip is known with a content, a start, and a stop of 0"),
        TOK_SET(post_processor, "{`type`:`BertProcessing`}", "post_processor: type BertProcessing is not known"),
        TOK_SET(post_processor, TOK_TEMPLATE("", ""), "post_processor: single has not the text once"),
        TOK_SET(post_processor, "{`type`:`TemplateProcessing`,`single`:`$A`}",
                "post_processor: single is no list of at most 64"),
        TOK_SET(post_processor, TOK_TEMPLATE(TOK_16 TOK_16 TOK_16 TOK_16 TOK_TEXT, ""),
                "post_processor: single is no list of at most 64"),
        TOK_SET(post_processor, TOK_TEMPLATE(TOK_TEXT "," TOK_TEXT, ""),
                "post_processor: single has not the text once"),
        TOK_SET(post_processor, TOK_TEMPLATE("7," TOK_TEXT, ""),
                "post_processor: single has what is neither SpecialToken nor the text"),
        TOK_SET(post_processor, TOK_TEMPLATE(TOK_SPECIAL("x") "," TOK_TEXT, ""), "post_processor: no ids of `x`"),
        TOK_SET(post_processor, TOK_TEMPLATE(TOK_SPECIAL("x") "," TOK_TEXT, "`x`:{`ids`:[15]}"),
                "post_processor: id 15 is no token"),
        TOK_SET(post_processor, "{`type`:`Sequence`,`processors`:["
                TOK_TEMPLATE(TOK_SPECIAL("x") "," TOK_TEXT, "`x`:{`ids`:[1]}") ","
                TOK_TEMPLATE(TOK_SPECIAL("x") "," TOK_TEXT, "`x`:{`ids`:[1]}") "]}", "post_processor: two templates")
    };
    static const tok_refusal tokens[] = {
        TOK_SET(added, "{`id`:20}", "added_tokens: a content is no text, or has more than 1024 bytes"),
        TOK_SET(added, TOK_ADD(20, "x", ",`lstrip`:`yes`"), "added_tokens: lstrip is neither true nor false"),
        TOK_SET(added, TOK_ADD(20, "x", ",`colour`:1"), "added_tokens: member `colour` is not known"),
        TOK_SET(added, TOK_ADD(-1, "x", ""), "added_tokens: an id is no number from 0 to 2097151"),
        TOK_SET(added, TOK_ADD(2097152, "x", ""), "added_tokens: an id is no number from 0 to 2097151"),
        TOK_SET(added, TOK_ADD(1, "x", ""), "two tokens have the id 1"),
        TOK_SET(added, TOK_ADD(5, "ab", ""), "added_tokens: `ab` has another id in vocab"),
        TOK_SET(added, TOK_ADD(20, "x", "") "," TOK_ADD(20, "x", ""), "added_tokens: `x` is there twice"),
        TOK_SET(added, "],`added_tokens`:{},`padding`:[", "added_tokens is no list"),
        TOK_SET(added, "7", "added_tokens: an id is no number from 0 to 2097151"),
        TOK_SET(vocab, "", "the vocabulary is empty"),
        TOK_SET(vocab, "`a`:`1`", "vocab: an id is no number from 0 to 2097151"),
        TOK_SET(vocab, "`a`:1.0", "vocab: an id is no number from 0 to 2097151"),
        TOK_SET(vocab, "`a`:1,`b`:1", "two tokens have the id 1"),
        TOK_SET(vocab, "`a`:1,`a`:2", "the token `a` is there twice"),
        TOK_SET(merges, "`a x`", "merges: `x` is not in vocab"),
        TOK_SET(merges, "`c c`", "merges: `cc` is not in vocab"),
        TOK_SET(merges, "`ab`", "merges: neither `a b` nor [`a`, `b`]"),
        TOK_SET(merges, "[`a`]", "merges: neither `a b` nor [`a`, `b`]"),
        TOK_SET(merges, "[`a`,``]", "merges: neither `a b` nor [`a`, `b`]"),
        TOK_SET(merges, "[`a`,1]", "merges: neither `a b` nor [`a`, `b`]"),
        TOK_SET(merges, "`a b c`", "merges: `a b c` is not two texts with a blank between them"),
        TOK_SET(merges, "`a `", "merges: `a ` is not two texts with a blank between them"),
        TOK_SET(merges, "`a b`]},`x`:{`y`:[1", "tokenizer.json: member `x` is not known"),
        TOK_SET(options, "`type`:`WordPiece`,", "model: type WordPiece is not known"),
        TOK_SET(options, "`type`:7,", "model: a type is missing"),
        TOK_SET(options, "`dropout`:0.1,", "model: dropout is not known"),
        TOK_SET(options, "`end_of_word_suffix`:`</w>`,", "model: end_of_word_suffix is not known"),
        TOK_SET(options, "`continuing_subword_prefix`:`##`,", "model: continuing_subword_prefix is not known"),
        TOK_SET(options, "`unk_token`:7,", "model: unk_token is no text"),
        TOK_SET(options, "`fuse_unk`:7,", "model: fuse_unk is neither true nor false"),
        TOK_SET(options, "`type dropout`:7,", "model: member `type dropout` is not known"),
        TOK_SET(options, "`colour\\u001b`:7,", "model: member `colour?` is not known")
    };
    tok_parts p = tok_gpt2();
    char text[64];

    tok_refused(&p, bytes, sizeof bytes / sizeof bytes[0]);
    tok_refused(&p, tokens, sizeof tokens / sizeof tokens[0]);
    p.merges = "`a b`,";
    snprintf(text, sizeof text, "line 1, byte %lu: this is no value of JSON", (unsigned long)tok_write(&p) - 3);
    CHECK(!tok_opens(&p) && tok_says(text));
    p = tok_gpt2();
    p.normalizer = "{`type`:`NFC`}";
    p.added = TOK_ADD(20, "e\\u0301", ",`normalized`:true") "," TOK_ADD(21, "\xC3\xA9", ",`normalized`:true");
    CHECK(!tok_opens(&p) && tok_says("added_tokens: two are normalized to `\xC3\xA9`"));
    p.normalizer = "{`type`:`Replace`,`pattern`:{`String`:`x`},`content`:``}";
    p.added = TOK_ADD(20, "x", ",`normalized`:true");
    CHECK(!tok_opens(&p) && tok_says("added_tokens: id 20 is normalized to nothing"));
}

static void tok_older_files(void) { /* no type, empty affixes, a dropout of 0, the first line of a merges.txt */
    tok_parts p = tok_gpt2();

    p.options = "`dropout`:0.0,`unk_token`:``,`continuing_subword_prefix`:``,`end_of_word_suffix`:``,`fuse_unk`:false,";
    p.merges = "`#version: 0.2`,`a b`";
    tok_begin(&p);
    CHECK(tok_gives("ab", 0, "4") && tokeniser_encode(&tok, "x", 1, 0, &tok_ids));
    tok_end();
}

static void tok_limits(void) { /* an added token of 1024 bytes is taken, one of 1025 is not */
    static char added[1200];
    tok_parts p = tok_gpt2();
    size_t n;

    for (n = 1024; n < 1026; ++n) {
        const int head = snprintf(added, sizeof added, "{`id`:20,`content`:`");

        memset(added + head, 'x', n);
        memcpy(added + head + n, "`}", 3);
        p.added = added;
        CHECK_AT(tok_opens(&p) == (n == 1024), n);
        if (n == 1024) CHECK(tokeniser_size(&tok) == 21);
        tok_end();
    }
}

static void tok_cuts(void) { /* a file cut at every length is refused; what is behind is not read */
    tok_parts p = tok_llama();
    size_t bytes, i;

    p.added = TOK_ADD(1, "<s>", ",`normalized`:true");
    p.post_processor = TOK_TEMPLATE(TOK_SPECIAL("<s>") "," TOK_TEXT, "`<s>`:{`ids`:[1]}");
    bytes = tok_write(&p);
    for (i = 0; i < bytes; ++i) {
        char *const text = (char *)malloc(i + !i);

        CHECK(text != NULL);
        if (!text) return;
        (void)tok_write(&p);
        memcpy(text, tok_file, i);
        memset(&tok, 0, sizeof tok);
        CHECK_AT(tokeniser_open_text(&tok, text, i) == 1 && tok.message[0] && !tok.tokens, i);
        free(text);
    }
}

static void tok_without_memory(void) { /* the n-th block is refused: a reason, and nothing is lost */
    tok_parts p = tok_llama();
    size_t n, k;

    p.normalizer = "{`type`:`Sequence`,`normalizers`:[{`type`:`NFC`}," "{`type`:`Prepend`,`prepend`:`" MARK "`}]}";
    p.pre_tokenizer = TOK_METASPACE("");
    p.added = TOK_ADD(1, "<s>e\\u0301", ",`normalized`:true");
    p.vocab = "`a`:0,`b`:3,`ab`:2,`" MARK "`:4";
    p.merges = "`a b`";
    p.options = "`ignore_merges`:true,";
    p.post_processor = TOK_TEMPLATE(TOK_SPECIAL("a") "," TOK_TEXT, "`a`:{`ids`:[0]}");
    for (n = 0; n < 200; ++n) {
        tok_calls_left = n;
        k = (size_t)tok_opens(&p);
        tok_calls_left = SIZE_MAX;
        if (k) break;
        CHECK_AT(!strncmp(tok.message, "out of memory", 13) || strstr(tok.message, ": out of memory"), n);
        CHECK_AT(!tok.tokens && !tok.pool.bytes, n);
    }
    CHECK(n > 10 && n < 200);
    for (k = 0; k < 200; ++k) {
        int failed;

        tok_end();
        tok_begin(&p);
        tok_calls_left = k;
        failed = tokeniser_encode(&tok, "ab e\xCC\x81", 6, TOKENISER_ADD_SPECIAL, &tok_ids)
            || tokeniser_decode(&tok, tok_ids.ids, tok_ids.count, 0, &tok_out);
        tok_calls_left = SIZE_MAX;
        if (!failed) break;
        CHECK_AT(!strncmp(tok.message, "out of memory", 13) && !tok_out.count, k);
        CHECK_AT(!tok_ids.count || tok_ids.ids[0] == 0, k); /* the ids are none, or whole: decoding failed */
    }
    CHECK(k > 4 && k < 200); /* ids, two changed texts, symbols, heap and bytes; what opening took is there */
    tok_end();
}

static void tok_files(void) {
    char path[600];
    const tok_parts p = tok_gpt2();
    const size_t bytes = tok_write(&p);
    FILE *f;

    test_path(path, "tokeniser");
    memset(&tok, 0, sizeof tok);
    CHECK(tokeniser_open(&tok, path) && tok_says("could not be opened"));
    f = fopen(path, "wb");
    CHECK(f && fwrite(tok_file, 1, bytes, f) == bytes && !fclose(f));
    CHECK(!tokeniser_open(&tok, path));
    CHECK(tok_gives("ab", 0, "4"));
    tok_end();
    CHECK(tokeniser_id(&tok, "a", 1) == -1 && tokeniser_size(&tok) == 0); /* closed */
    remove(path);
}

static void test_tokeniser(void) {
    RUN(tok_classes);
    RUN(tok_decompositions);
    RUN(tok_nfc);
    RUN(tok_pieces);
    RUN(tok_byte_level);
    RUN(tok_patterns);
    RUN(tok_two_ways);
    RUN(tok_steps);
    RUN(tok_cache);
    RUN(tok_long_pieces);
    RUN(tok_not_utf8);
    RUN(tok_characters);
    RUN(tok_metaspace);
    RUN(tok_added);
    RUN(tok_normalized);
    RUN(tok_around);
    RUN(tok_refusals);
    RUN(tok_older_files);
    RUN(tok_limits);
    RUN(tok_cuts);
    RUN(tok_without_memory);
    RUN(tok_files);
}
#ifndef TEST_COMBINED
int main(void) {
    test_tokeniser();
    return test_totals();
}
#endif
