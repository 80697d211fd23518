/* tokeniser_file.h - the half of tokeniser.h that reads tokenizer.json; tokeniser.h includes it, and it uses what
   stands there. The member `type` of an object says what it is, as in the library; a type or a member that is not known
   is refused with its name. Nothing recurses: a Sequence within a Sequence is a type that is not known. */
#ifndef FINETUNE_TOKENISER_FILE_H
#define FINETUNE_TOKENISER_FILE_H
typedef json_document tokeniser_file;

/* Refuses members of an object that are not in the list of names, each between blanks. */
static inline int tokeniser_only(tokeniser *t, const tokeniser_file *f, uint32_t object, const char *where,
                                 const char *names) {
    uint32_t i;

    if (json_kind_of(f, object) != JSON_OBJECT) return tokeniser_refuse(t, "%s: an object was expected", where);
    for (i = json_first(f, object); i != JSON_NONE; i = json_next(f, object, i)) {
        char word[64];
        size_t n;
        const char *const name = json_name(f, i, &n);

        snprintf(word, sizeof word, " %.60s ", name);
        if (strcspn(name, " ") != n || !strstr(names, word))
            return tokeniser_refuse(t, "%s: member \"%.60s\" is not known", where, name);
    }
    return 0;
}

static inline int tokeniser_shown(size_t bytes) { return bytes < 60 ? (int)bytes : 60; } /* of a text in a message */

static inline int tokeniser_is_null(const tokeniser_file *f, uint32_t node) {
    return json_kind_of(f, node) == JSON_MISSING || json_kind_of(f, node) == JSON_NULL;
}

static inline int tokeniser_switch(tokeniser *t, const tokeniser_file *f, uint32_t object, const char *where,
                                   const char *name, int otherwise, int *out) {
    const uint32_t node = json_member(f, object, name);

    *out = tokeniser_is_null(f, node) ? otherwise : json_kind_of(f, node) == JSON_TRUE;
    if (tokeniser_is_null(f, node) || *out || json_kind_of(f, node) == JSON_FALSE) return 0;
    return tokeniser_refuse(t, "%s: %s is neither true nor false", where, name);
}

static inline int tokeniser_string(tokeniser *t, const tokeniser_file *f, uint32_t object, const char *where,
                                   const char *name, tokeniser_text *out) { /* into the pool */
    size_t bytes;
    const char *const text = json_string(f, json_member(f, object, name), &bytes);

    if (!text) return tokeniser_refuse(t, "%s: %s is no text", where, name);
    return tokeniser_keep(t, text, bytes, out);
}

static inline int tokeniser_id_of(tokeniser *t, const tokeniser_file *f, uint32_t node, const char *where,
                                  int32_t *id) {
    int64_t n = 0;

    *id = 0;
    if (json_integer(f, node, &n) || n < 0 || n >= TOKENISER_IDS)
        return tokeniser_refuse(t, "%s: an id is no number from 0 to %ld", where, (long)TOKENISER_IDS - 1);
    *id = (int32_t)n;
    return 0;
}

static inline int tokeniser_unknown(tokeniser *t, const tokeniser_file *f, uint32_t object, const char *where) {
    const char *const type = json_string(f, json_member(f, object, "type"), NULL);

    return type ? tokeniser_refuse(t, "%s: type %.60s is not known", where, type)
                : tokeniser_refuse(t, "%s: a type is missing", where);
}

static inline int tokeniser_type(const tokeniser_file *f, uint32_t object, const char *type) {
    return json_is(f, json_member(f, object, "type"), type);
}

/* A step, or a Sequence of steps, which is the list of this name. */
typedef int tokeniser_reader(tokeniser *t, const tokeniser_file *f, uint32_t node);
static inline int tokeniser_each(tokeniser *t, const tokeniser_file *f, const char *where, const char *list,
                                 tokeniser_reader *read) {
    const uint32_t node = json_member(f, 0, where), steps = json_member(f, node, list);
    char names[32];
    uint32_t i;

    if (tokeniser_is_null(f, node)) return 0;
    if (!tokeniser_type(f, node, "Sequence")) return read(t, f, node);
    snprintf(names, sizeof names, " type %s ", list);
    if (tokeniser_only(t, f, node, where, names)) return 1;
    if (json_kind_of(f, steps) != JSON_ARRAY) return tokeniser_refuse(t, "%s: %s is no list", where, list);
    for (i = json_first(f, steps); i != JSON_NONE; i = json_next(f, steps, i))
        if (read(t, f, i)) return 1;
    return 0;
}

/* ---- normalizer ---- */
static inline int tokeniser_read_replace(tokeniser *t, const tokeniser_file *f, uint32_t node, const char *where,
                                         tokeniser_step *s) {
    const uint32_t pattern = json_member(f, node, "pattern");

    s->change = TOKENISER_REPLACE;
    if (tokeniser_only(t, f, node, where, " type pattern content ") || tokeniser_only(t, f, pattern, where, " String ")
        || tokeniser_string(t, f, pattern, where, "String", &s->from)
        || tokeniser_string(t, f, node, where, "content", &s->to)) return 1;
    if (s->from.bytes && s->from.bytes <= 64) return 0; /* a text of many beginnings of it is read as often */
    return tokeniser_refuse(t, "%s: Replace has a pattern of no bytes, or of more than 64", where);
}

static inline int tokeniser_read_normalizer(tokeniser *t, const tokeniser_file *f, uint32_t node) {
    static const char where[] = "normalizer";
    tokeniser_step *const s = &t->normalizer.list[t->normalizer.count];

    if (t->normalizer.count == TOKENISER_STEPS) return tokeniser_refuse(t, "%s: more than 8 steps", where);
    ++t->normalizer.count;
    if (tokeniser_type(f, node, "NFC")) {
        s->change = TOKENISER_NFC;
        return tokeniser_only(t, f, node, where, " type ");
    }
    if (tokeniser_type(f, node, "Prepend")) {
        s->change = TOKENISER_PREPEND;
        return tokeniser_only(t, f, node, where, " type prepend ")
            || tokeniser_string(t, f, node, where, "prepend", &s->to);
    }
    if (tokeniser_type(f, node, "Replace")) return tokeniser_read_replace(t, f, node, where, s);
    return tokeniser_unknown(t, f, node, where);
}

/* ---- pre_tokenizer ---- */
static inline int tokeniser_add_split(tokeniser *t, tokeniser_pieces kind) {
    if (t->split_count == TOKENISER_SPLITS) return tokeniser_refuse(t, "pre_tokenizer: more than 4 steps that split");
    t->splits[t->split_count++] = kind;
    return 0;
}

static inline int tokeniser_read_pattern(tokeniser *t, const tokeniser_file *f, uint32_t node) { /* of Split */
#define TOKENISER_REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define TOKENISER_WORDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
    static const char *const patterns[] = { /* in the order of tokeniser_pieces */
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        TOKENISER_WORDS "|\\p{N}{1,3}" TOKENISER_REST, TOKENISER_WORDS "|\\p{N}" TOKENISER_REST
    };
#undef TOKENISER_WORDS
#undef TOKENISER_REST
    static const char where[] = "pre_tokenizer";
    const uint32_t pattern = json_member(f, node, "pattern"), regex = json_member(f, pattern, "Regex");
    const char *text = json_string(f, regex, NULL);
    int invert, i;

    if (tokeniser_only(t, f, node, where, " type pattern behavior invert ")
        || tokeniser_switch(t, f, node, where, "invert", 0, &invert)) return 1;
    if (!json_is(f, json_member(f, node, "behavior"), "Isolated") || invert)
        return tokeniser_refuse(t, "%s: Split is known with behavior Isolated and without invert", where);
    for (i = 0; i < 3; ++i)
        if (json_is(f, regex, patterns[i])) return tokeniser_add_split(t, (tokeniser_pieces)i);
    if (!text) text = json_string(f, json_member(f, pattern, "String"), NULL);
    return tokeniser_refuse(t, "%s: the pattern \"%.160s\" is not known", where, text ? text : "");
}

/* What pre_tokenizer and decoder have in common. *scheme: 0 never, 1 first, 2 always. */
static inline int tokeniser_read_metaspace(tokeniser *t, const tokeniser_file *f, uint32_t node, const char *where,
                                           tokeniser_text *mark, int *scheme, int *split) {
    static const char *const schemes[] = { "never", "first", "always" };
    const uint32_t said = json_member(f, node, "prepend_scheme");
    uint32_t code;
    int prefix;

    if (tokeniser_only(t, f, node, where, " type replacement add_prefix_space prepend_scheme split str_rep ")
        || tokeniser_string(t, f, node, where, "replacement", mark)
        || tokeniser_switch(t, f, node, where, "add_prefix_space", 1, &prefix)
        || tokeniser_switch(t, f, node, where, "split", 1, split)) return 1;
    if (!mark->bytes || json_utf8_read(t->pool.bytes + mark->begin, mark->bytes, &code) != mark->bytes)
        return tokeniser_refuse(t, "%s: the replacement is not one character", where);
    for (*scheme = 2; json_kind_of(f, said) != JSON_MISSING && !json_is(f, said, schemes[*scheme]); --*scheme)
        if (!*scheme) return tokeniser_refuse(t, "%s: prepend_scheme is none of never, first and always", where);
    return *scheme && !prefix ? tokeniser_refuse(t, "%s: add_prefix_space and prepend_scheme contradict", where) : 0;
}

static inline int tokeniser_read_marks(tokeniser *t, const tokeniser_file *f, uint32_t node) { /* Metaspace */
    static const tokeniser_change prepends[] = { TOKENISER_PREPEND_FIRST, TOKENISER_PREPEND_MISSING };
    static const char where[] = "pre_tokenizer";
    tokeniser_step *const s = t->metaspace.list;
    int scheme, split;

    if (t->split_count || t->metaspace.count) return tokeniser_refuse(t, "%s: Metaspace behind another step", where);
    if (tokeniser_read_metaspace(t, f, node, where, &t->mark, &scheme, &split)) return 1;
    s[0].change = TOKENISER_REPLACE;
    if (tokeniser_keep(t, " ", 1, &s[0].from)) return 1;
    s[0].to = s[1].to = t->mark;
    if (scheme) s[1].change = prepends[scheme - 1];
    t->metaspace.count = 1 + (scheme > 0);
    return split && tokeniser_add_split(t, TOKENISER_MARKED);
}

static inline int tokeniser_read_bytes(tokeniser *t, const tokeniser_file *f, uint32_t node) { /* ByteLevel */
    static const char where[] = "pre_tokenizer";
    const int is_first = !t->split_count && !t->metaspace.count;
    int prefix, pattern;

    if (tokeniser_only(t, f, node, where, " type add_prefix_space trim_offsets use_regex ")
        || tokeniser_switch(t, f, node, where, "add_prefix_space", 1, &prefix)
        || tokeniser_switch(t, f, node, where, "use_regex", 1, &pattern)) return 1;
    if (prefix && !is_first) return tokeniser_refuse(t, "%s: add_prefix_space behind another step", where);
    if (prefix) {
        t->metaspace.count = 1;
        t->metaspace.list[0].change = TOKENISER_PREPEND_MISSING;
        if (tokeniser_keep(t, " ", 1, &t->metaspace.list[0].to)) return 1;
    }
    t->byte_level = 1;
    return pattern && tokeniser_add_split(t, TOKENISER_GPT2);
}

static inline int tokeniser_read_splits(tokeniser *t, const tokeniser_file *f, uint32_t node) {
    static const char where[] = "pre_tokenizer";
    int each;

    if (t->byte_level) return tokeniser_refuse(t, "%s: a step behind ByteLevel", where);
    if (tokeniser_type(f, node, "ByteLevel")) return tokeniser_read_bytes(t, f, node);
    if (tokeniser_type(f, node, "Metaspace")) return tokeniser_read_marks(t, f, node);
    if (tokeniser_type(f, node, "Split")) return tokeniser_read_pattern(t, f, node);
    if (!tokeniser_type(f, node, "Digits")) return tokeniser_unknown(t, f, node, where);
    if (tokeniser_only(t, f, node, where, " type individual_digits ")
        || tokeniser_switch(t, f, node, where, "individual_digits", 0, &each)) return 1;
    return tokeniser_add_split(t, each ? TOKENISER_DIGIT : TOKENISER_DIGITS);
}

/* ---- decoder ---- */
static inline int tokeniser_read_strip(tokeniser *t, const tokeniser_file *f, uint32_t node) {
    static const char where[] = "decoder";
    int64_t stop = 0;

    if (tokeniser_only(t, f, node, where, " type content start stop ")
        || tokeniser_string(t, f, node, where, "content", &t->decode_strip)) return 1;
    if (json_integer(f, json_member(f, node, "start"), &t->decode_strips) || t->decode_strips < 0
        || json_integer(f, json_member(f, node, "stop"), &stop) || stop || !t->decode_strip.bytes)
        return tokeniser_refuse(t, "%s: Strip is known with a content, a start, and a stop of 0", where);
    return 0;
}

static inline int tokeniser_read_decoding(tokeniser *t, const tokeniser_file *f, uint32_t node) {
    static const char where[] = "decoder";
    int split, scheme;

    if (tokeniser_type(f, node, "Replace")) return tokeniser_read_replace(t, f, node, where, &t->decode_replace);
    if (tokeniser_type(f, node, "Strip")) return tokeniser_read_strip(t, f, node);
    if (tokeniser_type(f, node, "Fuse")) return tokeniser_only(t, f, node, where, " type ");
    if (tokeniser_type(f, node, "ByteFallback")) {
        t->decode_fallback = 1;
        return tokeniser_only(t, f, node, where, " type ");
    }
    if (tokeniser_type(f, node, "ByteLevel")) {
        t->decode_byte_level = 1;
        return tokeniser_only(t, f, node, where, " type add_prefix_space trim_offsets use_regex ");
    }
    if (!tokeniser_type(f, node, "Metaspace")) return tokeniser_unknown(t, f, node, where);
    if (tokeniser_read_metaspace(t, f, node, where, &t->decode_replace.from, &scheme, &split)) return 1;
    t->decode_drops = scheme > 0;
    return tokeniser_keep(t, " ", 1, &t->decode_replace.to);
}

/* The steps of a Sequence are known in one order, and ByteLevel and Metaspace by themselves. */
static inline int tokeniser_read_decoder(tokeniser *t, const tokeniser_file *f, uint32_t node) {
    static const char *const order[] = { "Replace", "ByteFallback", "Fuse", "Strip", "ByteLevel", "Metaspace" };
    int kind;

    for (kind = 0; kind < 6 && !tokeniser_type(f, node, order[kind]); ++kind) {}
    if (kind == 6) return tokeniser_unknown(t, f, node, "decoder");
    if (t->decoder_seen >> kind || (kind == 3 && !(t->decoder_seen & 4)) || (kind > 3 && t->decoder_seen))
        return tokeniser_refuse(t, "decoder: %s is not known where it stands", order[kind]);
    t->decoder_seen |= 1 << kind;
    return tokeniser_read_decoding(t, f, node);
}

/* ---- post_processor ---- */
static inline int tokeniser_read_special(tokeniser *t, const tokeniser_file *f, uint32_t node, const char *name,
                                         tokeniser_ids *out) {
    static const char where[] = "post_processor";
    const uint32_t token = json_member(f, json_member(f, node, "special_tokens"), name);
    const uint32_t ids = json_member(f, token, "ids");
    uint32_t i;

    if (json_kind_of(f, ids) != JSON_ARRAY) return tokeniser_refuse(t, "%s: no ids of \"%.60s\"", where, name);
    for (i = json_first(f, ids); i != JSON_NONE; i = json_next(f, ids, i)) {
        int32_t id;

        if (tokeniser_id_of(t, f, i, where, &id)) return 1;
        if ((size_t)id >= t->size || !t->tokens[id].flags)
            return tokeniser_refuse(t, "%s: id %ld is no token", where, (long)id);
        if (tokeniser_push(t, out, id)) return 1;
    }
    return 0;
}

static inline int tokeniser_read_template(tokeniser *t, const tokeniser_file *f, uint32_t node) {
    static const char where[] = "post_processor";
    const uint32_t single = json_member(f, node, "single");
    int texts = 0;
    uint32_t i;

    if (tokeniser_only(t, f, node, where, " type single pair special_tokens ")) return 1;
    if (t->around[0].count || t->around[1].count) return tokeniser_refuse(t, "%s: two templates", where);
    if (json_kind_of(f, single) != JSON_ARRAY || f->nodes[single].size > 64)
        return tokeniser_refuse(t, "%s: single is no list of at most 64", where);
    for (i = json_first(f, single); i != JSON_NONE; i = json_next(f, single, i)) {
        const uint32_t special = json_member(f, i, "SpecialToken"), text = json_member(f, i, "Sequence");
        const char *const name = json_string(f, json_member(f, special, "id"), NULL);

        if (json_is(f, json_member(f, text, "id"), "A")) ++texts;
        else if (!name) return tokeniser_refuse(t, "%s: single has what is neither SpecialToken nor the text", where);
        else if (tokeniser_read_special(t, f, node, name, &t->around[texts > 0])) return 1;
    }
    return texts == 1 ? 0 : tokeniser_refuse(t, "%s: single has not the text once", where);
}

static inline int tokeniser_read_processor(tokeniser *t, const tokeniser_file *f, uint32_t node) {
    if (tokeniser_type(f, node, "TemplateProcessing")) return tokeniser_read_template(t, f, node);
    if (tokeniser_type(f, node, "ByteLevel")) return 0; /* of offsets, which are not kept here */
    return tokeniser_unknown(t, f, node, "post_processor");
}

/* ---- vocabulary ---- */
static inline int tokeniser_put(tokeniser *t, int32_t id, const char *text, size_t bytes, int flags) {
    tokeniser_token *const k = &t->tokens[id];
    const size_t slot = tokeniser_text_slot(t, text, bytes);
    tokeniser_text kept;

    if (slot > t->by_text_mask) return tokeniser_refuse(t, "texts of tokens that collide, as if by choice");
    if (t->by_text[slot]) return tokeniser_refuse(t, "the token \"%.60s\" is there twice", text);
    if (k->flags) return tokeniser_refuse(t, "two tokens have the id %ld", (long)id);
    if (tokeniser_keep(t, text, bytes, &kept)) return 1;
    t->by_text[slot] = (uint32_t)id + 1;
    k->begin = k->decoded = kept.begin;
    k->bytes = k->decoded_bytes = kept.bytes;
    k->flags = flags;
    if (bytes > t->longest) t->longest = bytes;
    return 0;
}

/* Tables for all tokens: t->size is the largest id of vocabulary and added tokens + 1. */
static inline int tokeniser_make_room(tokeniser *t, const tokeniser_file *f, uint32_t vocab, uint32_t added) {
    size_t count = 0, slots;
    int32_t id;
    uint32_t i;

    for (i = json_first(f, vocab); i != JSON_NONE; i = json_next(f, vocab, i), ++count) {
        if (tokeniser_id_of(t, f, i, "vocab", &id)) return 1;
        if ((size_t)id >= t->size) t->size = (size_t)id + 1;
    }
    for (i = json_first(f, added); i != JSON_NONE; i = json_next(f, added, i), ++count) {
        if (tokeniser_id_of(t, f, json_member(f, i, "id"), "added_tokens", &id)) return 1;
        if ((size_t)id >= t->size) t->size = (size_t)id + 1;
    }
    if (!t->size) return tokeniser_refuse(t, "the vocabulary is empty");
    slots = tokeniser_slots(count);
    t->by_text_mask = slots - 1;
    t->by_text = (uint32_t *)calloc(slots, sizeof *t->by_text);
    t->tokens = (tokeniser_token *)calloc(t->size, sizeof *t->tokens);
    t->cache = (tokeniser_cached *)calloc(TOKENISER_CACHE, sizeof *t->cache);
    return t->by_text && t->tokens && t->cache ? 0 : tokeniser_refuse(t, "out of memory");
}

static inline int tokeniser_read_vocab(tokeniser *t, const tokeniser_file *f, uint32_t vocab) {
    uint32_t i;

    for (i = json_first(f, vocab); i != JSON_NONE; i = json_next(f, vocab, i)) {
        size_t bytes;
        const char *const text = json_name(f, i, &bytes);
        int32_t id;

        if (tokeniser_id_of(t, f, i, "vocab", &id) || tokeniser_put(t, id, text, bytes, TOKENISER_IN_VOCAB)) return 1;
    }
    return 0;
}

#define TOKENISER_LONGEST 1024 /* a text of many beginnings of a token is read as often as the token has bytes */

static inline int tokeniser_read_added_token(tokeniser *t, const tokeniser_file *f, uint32_t node) {
    static const char where[] = "added_tokens";
    static const char *const names[] = { "special", "lstrip", "rstrip", "single_word", "normalized" };
    size_t bytes;
    const char *const text = json_string(f, json_member(f, node, "content"), &bytes);
    int32_t id, known;
    int i, is_so, flags = TOKENISER_ADDED;

    if (tokeniser_only(t, f, node, where, " id content special lstrip rstrip single_word normalized ")
        || tokeniser_id_of(t, f, json_member(f, node, "id"), where, &id)) return 1;
    if (!text || bytes > TOKENISER_LONGEST)
        return tokeniser_refuse(t, "%s: a content is no text, or has more than %d bytes", where, TOKENISER_LONGEST);
    if (!bytes) return 0; /* which the library leaves out, too */
    for (i = 0; i < 5; ++i) {
        if (tokeniser_switch(t, f, node, where, names[i], 0, &is_so)) return 1;
        if (is_so) flags |= TOKENISER_SPECIAL << i;
    }
    known = tokeniser_id(t, text, bytes);
    if (known < 0 && tokeniser_put(t, id, text, bytes, 0)) return 1;
    if (known >= 0 && known != id) return tokeniser_refuse(t, "%s: \"%.60s\" has another id in vocab", where, text);
    if (t->tokens[id].flags & TOKENISER_ADDED) return tokeniser_refuse(t, "%s: \"%.60s\" is there twice", where, text);
    t->tokens[id].flags |= flags;
    return 0;
}

static inline int tokeniser_compare(const void *a, const void *b) { /* a shorter text is before what it begins */
    const tokeniser_added *const x = (const tokeniser_added *)a, *const y = (const tokeniser_added *)b;
    const int order = memcmp(x->text, y->text, x->bytes < y->bytes ? x->bytes : y->bytes);

    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static inline int tokeniser_make_set(tokeniser *t, tokeniser_set *set, int which) { /* the pool grows no more */
    size_t i;

    set->list = (tokeniser_added *)malloc(t->added_count * sizeof *set->list + 1);
    if (!set->list) return tokeniser_refuse(t, "out of memory");
    for (i = 0; i < t->size; ++i) {
        const tokeniser_token *const k = &t->tokens[i];
        tokeniser_added *const a = &set->list[set->count];

        if (!(k->flags & TOKENISER_ADDED) || (k->flags & TOKENISER_NORMALIZED) != which) continue;
        a->text = t->pool.bytes + k->decoded;
        a->bytes = k->decoded_bytes;
        a->id = (int32_t)i;
        set->first[(unsigned char)*a->text] = 1;
        ++set->count;
    }
    qsort(set->list, set->count, sizeof *set->list, tokeniser_compare);
    for (i = 1; i < set->count; ++i)
        if (!tokeniser_compare(&set->list[i - 1], &set->list[i]))
            return tokeniser_refuse(t, "added_tokens: two are normalized to \"%.*s\"",
                                    tokeniser_shown(set->list[i].bytes), set->list[i].text);
    return 0;
}

static inline int tokeniser_read_added(tokeniser *t, const tokeniser_file *f, uint32_t added) {
    uint32_t i;
    size_t k;

    if (!tokeniser_is_null(f, added) && json_kind_of(f, added) != JSON_ARRAY)
        return tokeniser_refuse(t, "added_tokens is no list");
    for (i = json_first(f, added); i != JSON_NONE; i = json_next(f, added, i), ++t->added_count)
        if (tokeniser_read_added_token(t, f, i)) return 1;
    for (k = 0; k < t->size; ++k) {
        tokeniser_token *const token = &t->tokens[k];
        const char *text = t->pool.bytes + token->begin;
        size_t bytes = token->bytes;
        tokeniser_text kept;

        if (!(token->flags & TOKENISER_NORMALIZED)) continue;
        if (tokeniser_change_text(t, &t->normalizer, 1, &text, &bytes)) return 1;
        if (!bytes) return tokeniser_refuse(t, "added_tokens: id %lu is normalized to nothing", (unsigned long)k);
        if (text == t->pool.bytes + token->begin) continue;
        if (tokeniser_keep(t, text, bytes, &kept)) return 1;
        token->decoded = kept.begin;
        token->decoded_bytes = kept.bytes;
    }
    return 0;
}

/* ---- model ---- */
static inline int tokeniser_read_pair(tokeniser *t, const tokeniser_file *f, uint32_t node, const char **text,
                                      size_t *bytes) {
    const uint32_t second = json_next(f, node, json_first(f, node));
    const char *space;

    if (json_kind_of(f, node) == JSON_ARRAY && f->nodes[node].size == 2) {
        text[0] = json_string(f, json_first(f, node), &bytes[0]);
        text[1] = json_string(f, second, &bytes[1]);
        if (text[0] && text[1] && bytes[0] && bytes[1]) return 0;
    }
    text[0] = json_string(f, node, &bytes[0]);
    space = text[0] ? (const char *)memchr(text[0], ' ', bytes[0]) : NULL;
    if (!space) return tokeniser_refuse(t, "merges: neither \"a b\" nor [\"a\", \"b\"]");
    text[1] = space + 1;
    bytes[1] = bytes[0] - (size_t)(space + 1 - text[0]);
    bytes[0] = (size_t)(space - text[0]);
    if (bytes[0] && bytes[1] && !memchr(text[1], ' ', bytes[1])) return 0;
    return tokeniser_refuse(t, "merges: \"%.60s\" is not two texts with a blank between them", text[0]);
}

/* A merge of rank t->merge_count. */
static inline int tokeniser_read_merge(tokeniser *t, const tokeniser_file *f, uint32_t node) {
    const char *text[2];
    size_t bytes[2];
    uint32_t last, first;
    int32_t id[2];
    int i;

    if (tokeniser_read_pair(t, f, node, text, bytes)) return 1;
    t->whole.count = 0;
    for (i = 0; i < 2; ++i) {
        id[i] = tokeniser_id(t, text[i], bytes[i]);
        if (id[i] < 0)
            return tokeniser_refuse(t, "merges: \"%.*s\" is not in vocab", tokeniser_shown(bytes[i]), text[i]);
        if (tokeniser_append(t, &t->whole, text[i], bytes[i])) return 1;
    }
    t->merged[t->merge_count] = tokeniser_id(t, t->whole.bytes, t->whole.count);
    if (t->merged[t->merge_count] < 0)
        return tokeniser_refuse(t, "merges: \"%.*s\" is not in vocab", tokeniser_shown(t->whole.count), t->whole.bytes);
    if (tokeniser_map_put(t, &t->merges, tokeniser_pair((uint32_t)id[0], (uint32_t)id[1]), t->merge_count++)) return 1;
    if (t->byte_level) return 0;
    (void)tokeniser_code(text[0] + tokeniser_before(text[0], bytes[0]), &last);
    (void)tokeniser_code(text[1], &first);
    return tokeniser_map_put(t, &t->joints, tokeniser_pair(last, first), 0);
}

static inline int tokeniser_read_merges(tokeniser *t, const tokeniser_file *f, uint32_t merges) {
    uint32_t i;
    size_t count;

    if (json_kind_of(f, merges) != JSON_ARRAY) return tokeniser_refuse(t, "model: merges is no list");
    count = f->nodes[merges].size;
    if (count > TOKENISER_RANKS) return tokeniser_refuse(t, "model: more than %ld merges", (long)TOKENISER_RANKS);
    t->merged = (int32_t *)malloc(count * sizeof *t->merged + 1);
    if (!t->merged) return tokeniser_refuse(t, "out of memory");
    if (tokeniser_map_open(t, &t->merges, count) || tokeniser_map_open(t, &t->joints, t->byte_level ? 0 : count))
        return 1;
    for (i = json_first(f, merges); i != JSON_NONE; i = json_next(f, merges, i)) {
        const char *const text = json_string(f, i, NULL);

        if (text && !strncmp(text, "#version", 8)) continue; /* the first line of a merges.txt */
        if (tokeniser_read_merge(t, f, i)) return 1;
    }
    return 0;
}

/* The alphabet of GPT-2: a byte that can be seen stands for itself, and the others for letters from U+0100 on. */
static inline void tokeniser_make_letters(tokeniser *t) {
    uint32_t next = 256, i;

    for (i = 0; i < TOKENISER_LETTER_END; ++i) t->bytes_of[i] = -1;
    for (i = 0; i < 256; ++i) {
        const int seen = (i > 32 && i < 127) || (i > 160 && i != 173);

        t->letters[i] = seen ? i : next++;
        t->bytes_of[t->letters[i]] = (int)i;
    }
}

/* The tokens of single bytes and characters. */
static inline int tokeniser_make_alphabet(tokeniser *t) {
    size_t i, count = 0;
    uint32_t code;
    char text[8];

    for (i = 0; i < 256; ++i) {
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
        t->fallback[i] = tokeniser_id(t, text, 6);
        t->initial[i] = tokeniser_id(t, text, json_utf8_write(text, t->byte_level ? t->letters[i] : (uint32_t)i));
    }
    for (i = 0; i < t->size; ++i) count += t->tokens[i].bytes < 5;
    if (tokeniser_map_open(t, &t->chars, t->byte_level ? 0 : count)) return 1;
    for (i = 0; i < t->size && !t->byte_level; ++i) {
        const char *const p = t->pool.bytes + t->tokens[i].begin;
        const size_t bytes = t->tokens[i].bytes;

        if (!bytes || bytes > 4 || tokeniser_code(p, &code) != bytes) continue;
        if (tokeniser_map_put(t, &t->chars, code, (uint32_t)i)) return 1;
    }
    return 0;
}

static inline int tokeniser_read_model(tokeniser *t, const tokeniser_file *f, uint32_t bpe) {
    static const char where[] = "model";
    static const char *const affixes[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    const uint32_t dropout = json_member(f, bpe, "dropout");
    double probability = 0;
    int i;

    if (tokeniser_only(t, f, bpe, where, " type dropout unk_token continuing_subword_prefix end_of_word_suffix "
                       "fuse_unk byte_fallback ignore_merges vocab merges ")) return 1;
    if (json_member(f, bpe, "type") != JSON_NONE && !tokeniser_type(f, bpe, "BPE"))
        return tokeniser_unknown(t, f, bpe, where); /* without a type, as older files are, it is BPE */
    if (json_kind_of(f, json_member(f, bpe, "vocab")) != JSON_OBJECT)
        return tokeniser_refuse(t, "%s: vocab is no object", where);
    if (!tokeniser_is_null(f, dropout) && (json_double(f, dropout, &probability) || probability != 0))
        return tokeniser_refuse(t, "%s: dropout is not known", where);
    for (i = 0; i < 2; ++i) {
        const uint32_t affix = json_member(f, bpe, affixes[i]);

        if (!tokeniser_is_null(f, affix) && !json_is(f, affix, ""))
            return tokeniser_refuse(t, "%s: %s is not known", where, affixes[i]);
    }
    return tokeniser_switch(t, f, bpe, where, "fuse_unk", 0, &t->fuse_unk)
        || tokeniser_switch(t, f, bpe, where, "byte_fallback", 0, &t->byte_fallback)
        || tokeniser_switch(t, f, bpe, where, "ignore_merges", 0, &t->ignore_merges);
}

static inline int tokeniser_read_unk(tokeniser *t, const tokeniser_file *f, uint32_t unk) {
    size_t bytes;
    const char *const text = json_string(f, unk, &bytes);

    t->unk = -1;
    if (tokeniser_is_null(f, unk)) return 0;
    if (!text) return tokeniser_refuse(t, "model: unk_token is no text");
    t->unk = tokeniser_id(t, text, bytes);
    if (t->unk < 0) t->unk = -2;
    return 0;
}

static inline int tokeniser_read(tokeniser *t, const tokeniser_file *f) {
    const uint32_t bpe = json_member(f, 0, "model"), vocab = json_member(f, bpe, "vocab");
    const uint32_t added = json_member(f, 0, "added_tokens");

    tokeniser_make_letters(t);
    return tokeniser_only(t, f, 0, "tokenizer.json", " version truncation padding added_tokens normalizer "
                          "pre_tokenizer post_processor decoder model ")
        || tokeniser_read_model(t, f, bpe)
        || tokeniser_each(t, f, "normalizer", "normalizers", tokeniser_read_normalizer)
        || tokeniser_each(t, f, "pre_tokenizer", "pretokenizers", tokeniser_read_splits)
        || tokeniser_each(t, f, "decoder", "decoders", tokeniser_read_decoder)
        || (!t->decoder_seen && tokeniser_refuse(t, "decoder: none is not known"))
        || tokeniser_make_room(t, f, vocab, added) || tokeniser_read_vocab(t, f, vocab)
        || tokeniser_read_unk(t, f, json_member(f, bpe, "unk_token"))
        || tokeniser_read_merges(t, f, json_member(f, bpe, "merges")) || tokeniser_make_alphabet(t)
        || tokeniser_read_added(t, f, added) /* from here on not all tokens are the model's */
        || tokeniser_make_set(t, &t->sets[0], 0) || tokeniser_make_set(t, &t->sets[1], TOKENISER_NORMALIZED)
        || tokeniser_each(t, f, "post_processor", "processors", tokeniser_read_processor);
}
#endif
