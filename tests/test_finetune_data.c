/* test_finetune_data.c - examples/finetune/data.h, corpus.h and chat.h: documents, windows and files worked out by
   hand. The tokeniser is a toy: a byte is a token, and so are ten special texts. */
#include "test.h"
static size_t fd_reallocs = SIZE_MAX; /* so many of them succeed */
static void *fd_realloc(void *block, size_t bytes) {
    return fd_reallocs && fd_reallocs-- ? realloc(block, bytes) : NULL;
}
#define realloc fd_realloc
#include "../examples/finetune/data.h"
#undef realloc
#ifndef _WIN32
#  include <sys/wait.h>
#  include <unistd.h>
#endif

/* ---- the toy ---- */
enum { FD_EOT = 256, FD_START, FD_END, FD_BOS, FD_EOS, FD_INST, FD_BEGIN, FD_HEAD, FD_HEAD_END, FD_TURN };
static const char *const fd_specials[10] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "[INST]",
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>" };
static const char fd_names[] = "XSEBZIGHKT"; /* as they are shown below */
typedef struct fd_toy { unsigned known; size_t calls, next; } fd_toy; /* known: bit i, special text i */
static fd_toy fd_t;

static int fd_encode(void *user, const char *text, size_t bytes, int32_t **ids, size_t *count, size_t *capacity) {
    fd_toy *const t = (fd_toy *)user;
    size_t i;

    ++t->calls;
    if (*capacity < *count + bytes) {
        int32_t *const larger = (int32_t *)fd_realloc(*ids, (*count + bytes) * sizeof *larger);

        if (!larger) return 1;
        *ids = larger;
        *capacity = *count + bytes;
    }
    for (i = 0; i < bytes; ++i) {
        if (text[i] == 1) return 1;
        (*ids)[(*count)++] = (int32_t)(unsigned char)text[i];
    }
    return 0;
}
static int fd_token(void *user, const char *text, int32_t *id) {
    int i;

    for (i = 0; i < 10; ++i) {
        if (strcmp(text, fd_specials[i]) || !(((fd_toy *)user)->known >> i & 1)) continue;
        *id = 256 + i;
        return 0;
    }
    return 1;
}

/* ---- files ---- */
static char fd_folder[600];
static reason fd_reason;
#define fd_message fd_reason.text
static reason *fd_why(void) { /* cleared */
    memset(&fd_reason, 0, sizeof fd_reason);
    return &fd_reason;
}
static const char *fd_path(const char *name) {
    static char paths[4][700];
    static unsigned which;
    char *const path = paths[which++ % 4];

    snprintf(path, 700, "%s/%.90s", fd_folder, name);
    return path;
}
static void fd_write(const char *name, const void *bytes, size_t count) {
    FILE *const f = fopen(fd_path(name), "wb");

    CHECK(f != NULL);
    if (!f) return;
    CHECK(fwrite(bytes, 1, count, f) == count && !fclose(f));
}
static void fd_write_text(const char *name, const char *text) { fd_write(name, text, strlen(text)); }
static size_t fd_read(const char *name, unsigned char *bytes, size_t room) { /* 0: there is none */
    FILE *const f = fopen(fd_path(name), "rb");
    size_t n;

    if (!f) return 0;
    n = fread(bytes, 1, room, f);
    fclose(f);
    return n;
}
static char fd_list[2000];
static memopt_status fd_each(void *context, const char *name) {
    (void)context;
    snprintf(fd_list + strlen(fd_list), sizeof fd_list - strlen(fd_list), "%s ", name);
    return MEMOPT_OK;
}
static const char *fd_files(void) { /* names in the folder */
    fd_list[0] = 0;
    CHECK(memopt_i_system_list_dir(NULL, fd_folder, fd_each, NULL) == MEMOPT_OK);
    return fd_list;
}
static void fd_clean(void) {
    char *p, *end;

    (void)fd_files();
    for (p = fd_list; (end = strchr(p, ' ')) != NULL; p = end + 1) {
        *end = 0;
        (void)memopt_i_system_remove(NULL, fd_path(p));
    }
}
static data_desc fd_desc(const char *name) { /* knows <|endoftext|> alone; a fresh folder */
    static char path[700];
    data_desc d;

    test_path(fd_folder, "finetune-data");
    (void)memopt_i_system_make_dir(NULL, fd_folder);
    fd_clean();
    snprintf(path, sizeof path, "%s/%s", fd_folder, name);
    memset(&fd_t, 0, sizeof fd_t);
    fd_t.known = 1;
    memset(&d, 0, sizeof d);
    d.text.path = path;
    d.text.coder.encode_fn = fd_encode;
    d.text.coder.token_fn = fd_token;
    d.text.coder.user = &fd_t;
    d.text.coder.bos = -1;
    d.text.coder.eos = FD_EOT;
    d.text.quiet = 1;
    d.context = 8;
    return d;
}

/* ---- what a window shows ---- */
enum { FD_ROOM = 2048 };
static int32_t fd_ids[FD_ROOM], fd_targets[FD_ROOM], fd_positions[FD_ROOM];
static size_t fd_starts[FD_ROOM + 1];
static char fd_shown[3][FD_ROOM + 1]; /* ids, targets, starts */
static data_rows fd_rows(void) {
    data_rows r;

    memset(fd_ids, 0x55, sizeof fd_ids);
    memset(fd_starts, 0x55, sizeof fd_starts);
    r.ids = fd_ids;
    r.targets = fd_targets;
    r.positions = fd_positions;
    r.starts = fd_starts;
    r.rows = r.documents = 0;
    return r;
}
static char fd_letter(int32_t id) {
    if (id < 0) return '.';
    return id >= 256 ? id < 266 ? fd_names[id - 256] : '?' : id == '\n' ? '|' : (char)id;
}
static int fd_positions_fit(const data_rows *r) { /* and starts rise from 0 to the end */
    size_t i, k;

    if (r->starts[0] || r->starts[r->documents] != r->rows) return 0;
    for (k = 0; k < r->documents; ++k) {
        if (r->starts[k] >= r->starts[k + 1]) return 0;
        for (i = r->starts[k]; i < r->starts[k + 1]; ++i)
            if (r->positions[i] != (int32_t)(i - r->starts[k])) return 0;
    }
    return 1;
}
static void fd_show(const data *d, int held, uint64_t sequence) {
    data_rows r = fd_rows();
    size_t i, n = 0;

    fd_shown[0][0] = fd_shown[1][0] = fd_shown[2][0] = 0;
    CHECK(!data_window(d, held, sequence, &r, fd_why()) && fd_positions_fit(&r));
    for (i = 0; i < r.rows; ++i) {
        fd_shown[0][i] = fd_letter(r.ids[i]);
        fd_shown[1][i] = fd_letter(r.targets[i]);
    }
    fd_shown[0][r.rows] = fd_shown[1][r.rows] = 0;
    for (i = 0; i < r.documents; ++i)
        n += (size_t)snprintf(fd_shown[2] + n, FD_ROOM - n, i ? " %lu" : "%lu", (unsigned long)r.starts[i]);
}
static int fd_is(const data *d, int held, uint64_t sequence, const char *ids, const char *targets, const char *starts) {
    fd_show(d, held, sequence);
    if (!strcmp(fd_shown[0], ids) && !strcmp(fd_shown[1], targets) && !strcmp(fd_shown[2], starts)) return 1;
    printf("got  '%s' '%s' '%s'\nwant '%s' '%s' '%s'\n", fd_shown[0], fd_shown[1], fd_shown[2], ids, targets, starts);
    return 0;
}
static int fd_has(const data *d, const char *ids, const char *targets, const char *starts) { /* in an epoch */
    const uint64_t windows = data_get_counts(d).part[0].windows;
    uint64_t i;

    for (i = 0; i < windows; ++i) {
        fd_show(d, 0, i);
        if (!strcmp(fd_shown[0], ids) && !strcmp(fd_shown[1], targets) && !strcmp(fd_shown[2], starts)) return 1;
    }
    printf("no window '%s' '%s' '%s'\n", ids, targets, starts);
    return 0;
}
static data *fd_open(const data_desc *desc) {
    data *d = NULL;

    if (!data_open(desc, &d, fd_why())) return d;
    printf("FAILED %s\n", fd_message);
    exit(1);
}
static int fd_refuses(const data_desc *desc, const char *text) { /* behind the folder */
    data *d = NULL;
    char want[800];
    const int with_folder = *text == '/';

    snprintf(want, sizeof want, "%s%s", with_folder ? fd_folder : "", text);
    if (data_open(desc, &d, fd_why()) == 1 && !d && !strcmp(fd_message, want)) return 1;
    printf("got  '%s'\nwant '%s'\n", fd_message, want);
    data_close(d);
    return 0;
}

/* One document alone in a wide window: its tokens; a ^ stands before and behind what is learned. */
static int fd_document(const data_desc *desc, const char *marked) {
    char ids[FD_ROOM + 1], targets[FD_ROOM + 1], starts[40];
    data_desc wide = *desc;
    size_t n = 0, i;
    int learned = 0, same;
    data *d;

    wide.context = 300;
    for (; *marked; ++marked) {
        if (*marked == '^') {
            learned = !learned;
            continue;
        }
        if (n) targets[n - 1] = learned ? *marked : '.';
        ids[n++] = *marked;
    }
    --n; /* the last one is a target alone */
    for (i = n; i < wide.context; ++i) {
        ids[i] = fd_letter(desc->text.coder.eos);
        targets[i] = '.';
    }
    ids[i] = targets[i] = 0;
    snprintf(starts, sizeof starts, "0 %lu", (unsigned long)n);
    d = fd_open(&wide);
    if (!d) return 0;
    same = data_get_counts(d).part[0].windows == 1 && fd_is(d, 0, 0, ids, targets, starts);
    data_close(d);
    return same;
}
static int fd_line(data_desc *desc, const char *line, const char *marked) {
    fd_clean();
    fd_write_text("a.jsonl", line);
    return fd_document(desc, marked);
}
static int fd_line_refused(data_desc *desc, const char *line, const char *text) {
    fd_clean();
    fd_write_text("a.jsonl", line);
    return fd_refuses(desc, text)
        && (!strcmp(fd_files(), "a.jsonl ") || (strstr(text, "no document") && strstr(fd_list, ".tokens ")));
}

/* ---- text ---- */
static void fd_text(void) {
    data_desc desc = fd_desc("a.txt");
    data_counts c;
    data *d;

    fd_write_text("a.txt", "abc");
    d = fd_open(&desc);
    CHECK(fd_is(d, 0, 0, "abcXXXXX", "bcX.....", "0 3"));
    c = data_get_counts(d);
    CHECK(c.documents == 1 && c.tokens == 4 && c.left_out == 0 && c.part[0].documents == 1 && c.part[0].windows == 1);
    CHECK(c.part[0].targets == 3 && c.part[0].padding == 5 && c.part[1].documents == 0 && c.part[1].windows == 0);
    CHECK(c.part[1].targets == 0 && c.part[1].padding == 0);
    CHECK(fd_is(d, 0, 12345, "abcXXXXX", "bcX.....", "0 3")); /* whatever epoch */
    data_close(d);
    desc.text.coder.bos = FD_BOS;
    CHECK(fd_document(&desc, "B^abcX"));
    desc.text.coder.eos = -1; /* zeros are padding then */
    desc.context = 3;
    d = fd_open(&desc);
    CHECK(fd_is(d, 0, 0, "Bab", "abc", "0"));
    data_close(d);
    desc.context = 5;
    d = fd_open(&desc);
    fd_show(d, 0, 0);
    CHECK(!strcmp(fd_shown[0], "Bab") && fd_ids[3] == 0 && fd_ids[4] == 0 && !strcmp(fd_shown[1], "abc.."));
    data_close(d);
}
/* Where documents end: the token's text, and the newline behind it. */
static void fd_separators(void) {
    data_desc desc = fd_desc("a.txt");
    data *d;

    desc.context = 12;
    fd_write_text("a.txt", "<|endoftext|>ab\n<|endoftext|>\ncd<|endoftext|>\r\ne</s><|endoftext|>\n\n<|endoftext|>");
    d = fd_open(&desc);
    CHECK(data_get_counts(d).documents == 4 && data_get_counts(d).part[0].windows == 1);
    CHECK(fd_is(d, 0, 0, "ab|cde</s>|X", "b|XdX</s>XX.", "0 3 5 10 11"));
    data_close(d);
    fd_clean();
    desc.context = 8;
    fd_t.known = 1 << 4; /* now it is the other one */
    desc.text.coder.eos = FD_EOS;
    fd_write_text("a.txt", "\xEF\xBB\xBF" "a<b</s>c</s");
    d = fd_open(&desc);
    CHECK(data_get_counts(d).documents == 2 && fd_is(d, 0, 0, "a<bc</sZ", "<bZ</sZ.", "0 3 7"));
    data_close(d);
}

/* Separators, and characters of several bytes, where a long text is cut. */
static char fd_long[3 << 20];
static int fd_cuts_badly;
static int fd_encode_cut(void *user, const char *text, size_t bytes, int32_t **ids, size_t *count, size_t *capacity) {
    const size_t at = ((fd_toy *)user)->next;

    if (!bytes || memcmp(text, fd_long + at, bytes)) ++fd_cuts_badly;
    if (at && fd_long[1] == 'b' && memcmp(fd_long + at - 1, "y z", 3)) ++fd_cuts_badly; /* the only single space */
    if (((unsigned char)*text & 0xC0) == 0x80) ++fd_cuts_badly;
    ((fd_toy *)user)->next += bytes;
    return fd_encode(user, text, bytes, ids, count, capacity);
}
static void fd_long_texts(void) {
    data_desc desc = fd_desc("a.txt");
    uint32_t words[64];
    size_t i, k;
    data *d;
    int form;

    desc.context = 1000;
    desc.text.coder.encode_fn = fd_encode_cut;
    for (form = 0; form < 2; ++form) {
        const size_t n = sizeof fd_long - (form ? 0 : 5);

        for (i = 0; i < n; ++i)
            fd_long[i] = form ? "\xE4\xBD\xA0"[i % 3] : "abcde  fghij;\n klmno  pqrst  uvwxy z  "[i % 38];
        fd_clean();
        fd_write("a.txt", fd_long, n);
        memset(&fd_t, 0, sizeof fd_t);
        fd_cuts_badly = 0;
        d = fd_open(&desc);
        CHECK(!fd_cuts_badly && fd_t.calls >= 2 && data_get_counts(d).tokens == n + 1);
        CHECK(data_get_counts(d).documents == 1 && data_get_counts(d).part[0].windows == (n + 999) / 1000);
        CHECK(data_get_counts(d).part[0].targets == n);
        for (i = 0; i + 64 <= n; i += 64) {
            CHECK_AT(!corpus_words(&d->tokens, i, words, 64), i);
            for (k = 0; k < 64; ++k) CHECK_AT(words[k] == (0x80000000u | (unsigned char)fd_long[i + k]), i + k);
        }
        data_close(d);
    }
    desc.text.coder.encode_fn = fd_encode;
    for (i = 0; i < 60; ++i) {
        if (test_is_passed_over()) continue;
        fd_t.known = 1;
        memset(fd_long, 'a', sizeof fd_long);
        memcpy(fd_long + (1 << 20) - 45 + i, "<|endoftext|>\r\n", 15);
        fd_clean();
        fd_write("a.txt", fd_long, (1 << 20) + 70);
        d = fd_open(&desc);
        CHECK_AT(data_get_counts(d).documents == 2, i);
        CHECK_AT(data_get_counts(d).part[0].targets == (1 << 20) + 70 - 15, i);
        data_close(d);
    }
}

static void fd_packing(void) {
    data_desc desc = fd_desc("a.txt");
    data_counts c;
    data *d;

    fd_write_text("a.txt", "aaaaa<|endoftext|>bbbb<|endoftext|>cc<|endoftext|>ddd<|endoftext|>eeeeeeee<|endoftext|>"
                           "fghijklmnop<|endoftext|>q");
    d = fd_open(&desc);
    c = data_get_counts(d);
    CHECK(c.documents == 7 && c.tokens == 41 && c.left_out == 0 && c.part[0].documents == 7 && c.part[0].windows == 5);
    CHECK(c.part[0].targets == 34 && c.part[0].padding == 6);
    CHECK(fd_has(d, "eeeeeeee", "eeeeeeeX", "0"));
    CHECK(fd_has(d, "fghijklm", "ghijklmn", "0"));
    CHECK(fd_has(d, "aaaaaccq", "aaaaXcXX", "0 5 7"));
    CHECK(fd_has(d, "bbbbdddX", "bbbXddX.", "0 4 7"));
    CHECK(fd_has(d, "nopXXXXX", "opX.....", "0 3"));
    data_close(d);
}

/* Long prompts: a piece in which nothing is learned is left out. 65 documents that fit with no other: one of their
   windows is closed for the last. */
static void fd_pieces(void) {
    data_desc desc = fd_desc("a.jsonl");
    char text[65 * 30];
    data *d;
    int i;

    fd_write_text("a.jsonl", "{\"prompt\":\"abcdefghijklm\",\"completion\":\"no\"}\n{\"text\":\"\"}\n");
    d = fd_open(&desc);
    CHECK(data_get_counts(d).part[0].windows == 1 && data_get_counts(d).left_out == 1);
    CHECK(data_get_counts(d).documents == 2 && data_get_counts(d).part[0].targets == 3);
    CHECK(fd_is(d, 0, 0, "ijklmnoX", "....noX.", "0 7"));
    data_close(d);
    fd_clean();
    for (text[0] = 0, i = 0; i < 65; ++i) snprintf(text + strlen(text), 30, "{\"text\":\"abcde\"}\n");
    fd_write_text("a.jsonl", text);
    d = fd_open(&desc);
    CHECK(data_get_counts(d).part[0].windows == 65 && data_get_counts(d).part[0].padding == 65 * 3);
    CHECK(fd_is(d, 0, 0, "abcdeXXX", "bcdeX...", "0 5"));
    data_close(d);
}

/* ---- lines ---- */
static void fd_kinds(void) {
    data_desc desc = fd_desc("a.jsonl");
    data *d;

    CHECK(fd_line(&desc, "{\"text\":\"ab\"}", "a^bX"));
    CHECK(fd_line(&desc, "{\"prompt\":\"ab\",\"completion\":\"cd\"}\n", "ab^cdX"));
    CHECK(fd_line(&desc, "{\"prompt\":\"\",\"completion\":\"cd\"}\r\n\r\n", "c^dX"));
    CHECK(fd_line(&desc, "\n \t\n{\"completion\":\"\",\"prompt\":\"ab\"} \t\n\n", "ab^X"));
    CHECK(fd_line(&desc, "\xEF\xBB\xBF{\"messages\":null,\"id\":7,\"text\":\"a\\nb\",\"x\":{\"y\":[1,{}]},"
                         "\"prompt\":null}", "a^|bX"));
    CHECK(fd_line(&desc, "{\"text\":\"no\",\"prompt\":\"a\",\"completion\":\"b\"}", "a^bX"));
    CHECK(fd_line(&desc, "{\"prompt\":5,\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
                         "{\"role\":\"assistant\",\"content\":\"b\"}],\"text\":\"no\"}",
                  "user: a||assistant:^ b||X"));
    desc.text.learn_all = 1;
    CHECK(fd_line(&desc, "{\"prompt\":\"ab\",\"completion\":\"cd\"}\n", "a^bcdX"));
    desc.text.learn_all = 0;
    fd_clean();
    fd_write_text("a.jsonl", "{\"text\":\"a\\u0000b\"}");
    d = fd_open(&desc);
    CHECK(data_get_counts(d).part[0].targets == 3);
    fd_show(d, 0, 0);
    CHECK(fd_ids[0] == 'a' && fd_ids[1] == 0 && fd_ids[2] == 'b' && fd_ids[3] == FD_EOT && fd_targets[0] == 0);
    data_close(d);
    fd_clean();
    /* the last two teach nothing */
    fd_write_text("a.jsonl", "{\"text\":\"a\"}\r\n{\"prompt\":\"b\",\"completion\":\"c\"}\r\n"
                             "{\"messages\":[{\"role\":\"user\",\"content\":\"d\"}]}\r\n{\"messages\":[]}");
    d = fd_open(&desc);
    CHECK(data_get_counts(d).documents == 4 && data_get_counts(d).left_out == 2);
    CHECK(fd_is(d, 0, 0, "abcXXXXX", "XcX.....", "0 1 3"));
    data_close(d);
}

#define FD_SAYS(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
static const char fd_talk[] = "{\"messages\":[" FD_SAYS("system", "s") "," FD_SAYS("user", " u") ","
    FD_SAYS("assistant", "a\\n") "," FD_SAYS("user", "<s>") "," FD_SAYS("assistant", "w<|im_end|>") "]}";
static const char fd_short[] = "{\"messages\":[" FD_SAYS("user", "u") "," FD_SAYS("assistant", "a") ","
    FD_SAYS("user", "v") "]}";

static void fd_chats(void) {
    data_desc desc = fd_desc("a.jsonl");

    fd_t.known = 1 | 2 | 4;
    desc.text.coder.eos = FD_END;
    CHECK(fd_line(&desc, fd_talk, "Ssystem|sE|Suser| uE|Sassistant|^a|E^|Suser|<s>E|Sassistant|^w<|im_end|>E"));
    desc.text.coder.eos = FD_EOT;
    CHECK(fd_line(&desc, fd_talk, "Ssystem|sE|Suser| uE|Sassistant|^a|E^|Suser|<s>E|Sassistant|^w<|im_end|>E^|^X"));
    CHECK(fd_line(&desc, fd_short, "Suser|uE|Sassistant|^aE"));
    desc.text.learn_all = 1;
    CHECK(fd_line(&desc, fd_short, "S^user|uE|Sassistant|aE|Suser|vE|"));
    desc.text.learn_all = 0;
    desc.text.chat = "plain";
    CHECK(fd_line(&desc, fd_short, "user: u||assistant:^ a||"));
    desc.text.chat = "<|im_start|>{role} {content}{end};\\n\\t\\\\{x}";
    CHECK(fd_line(&desc, fd_short, "Suser u;|\t\\{x}Sassistant^ a"));
    desc.text.chat = "[{role}]{content}";
    CHECK(fd_line(&desc, fd_short, "[user]u[assistant]^a"));
    desc.text.chat = "chatml";
    fd_t.known = 1; /* not its tokens: text, then */
    CHECK(fd_line(&desc, fd_short, "<|im_start|>user|u<|im_end|>|<|im_start|>assistant|^a<|im_end|>"));
}
static void fd_llama(void) {
    data_desc desc = fd_desc("a.jsonl");

    fd_t.known = 64 | 128 | 256 | 512;
    desc.text.coder.bos = FD_BEGIN;
    desc.text.coder.eos = FD_TURN;
    CHECK(fd_line(&desc, fd_talk, "GHsystemK||sTHuserK||uTHassistantK||^aT^HuserK||<s>THassistantK||^w<|im_end|>T"));
    desc.text.chat = "llama2";
    desc.text.coder.bos = FD_BOS;
    desc.text.coder.eos = FD_EOS;
    fd_t.known = 8 | 16;
    CHECK(fd_line(&desc, fd_talk, "B[INST] <<SYS>>|s|<</SYS>>||u [/INST]^ a Z^B[INST] <s> [/INST]^ w<|im_end|> Z"));
    CHECK(fd_line(&desc, fd_short, "B[INST] u [/INST]^ a Z"));
    desc.text.chat = "mistral";
    CHECK(fd_line(&desc, fd_talk, "B[INST] s|| u [/INST]^ a|Z^[INST] <s> [/INST]^ w<|im_end|>Z"));
    desc.text.chat = NULL;
    fd_t.known = 8 | 16 | 32;
    CHECK(fd_line(&desc, fd_short, "BI u[/INST]^ aZ"));
}

static void fd_line_refusals(void) {
    static const char *const lines[][2] = {
        { "", "it is empty" },
        { " \n\n", "no document has a token to learn (of 0)" },
        { "{\"text\":\"\"}", "no document has a token to learn (of 1)" },
        { "{\"text\":\"a\"}\n\n[1]\n", "3: it is no JSON object; each line has one: jq -c '.[]' makes them of a list" },
        { "{\"text\":\"a\"}\n{\"text\":\"a\"\n", "2: byte 11: a comma or an end was expected" },
        { "{\"text\":\"a\"}}", "1: byte 12: something follows the value" },
        { "{\"text\":\"a\xFF\"}", "1: byte 10: this is no UTF-8" },
        { "{\"id\":1}", "1: it has no \"messages\", no \"prompt\" with \"completion\", and no \"text\"" },
        { "{\"text\":null}", "1: it has no \"messages\", no \"prompt\" with \"completion\", and no \"text\"" },
        { "{\"text\":5}", "1: \"text\" is missing, or is no string" },
        { "{\"prompt\":\"a\"}", "1: \"completion\" is missing, or is no string" },
        { "{\"completion\":\"a\"}", "1: \"prompt\" is missing, or is no string" },
        { "{\"messages\":\"a\"}", "1: \"messages\" is no list" },
        { "{\"messages\":[5]}", "1: message 1: it is no object" },
        { "{\"messages\":[{\"content\":\"a\"}]}", "1: message 1: \"role\" is missing, or is no string" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":null}]}",
          "1: message 2: \"content\" is missing, or is no string" },
        { "{\"messages\":[{\"role\":\"User\",\"content\":\"a\"}]}",
          "1: message 1: the role is none of system, user, assistant, tool" },
        { "{\"text\":\"\\u0001\"}", "1: the tokeniser cannot encode the text, or has no memory" },
    };
    data_desc desc = fd_desc("a.jsonl");
    char want[200];
    size_t i;

    for (i = 0; i < sizeof lines / sizeof *lines; ++i) {
        const int numbered = lines[i][1][1] == ':';

        snprintf(want, sizeof want, "/a.jsonl%s%s", numbered ? ":" : ": ", lines[i][1]);
        CHECK_AT(fd_line_refused(&desc, lines[i][0], want), i);
    }
    fd_clean();
    fd_write("a.jsonl", "{\"text\":\"a\0b\"}", 14);
    CHECK(fd_refuses(&desc, "/a.jsonl:1: byte 10: a control character in a string"));
    desc.text.chat = "llama2";
    CHECK(fd_line_refused(&desc, "{\"messages\":[{\"role\":\"tool\",\"content\":\"\"}]}",
                          "/a.jsonl:1: message 1: the chat template has no such role"));
    CHECK(fd_line_refused(&desc, "{\"messages\":[" FD_SAYS("user", "") "," FD_SAYS("system", "") "]}",
                          "/a.jsonl:1: message 2: in this chat template the system speaks first"));
    CHECK(fd_line_refused(&desc, "{\"messages\":[" FD_SAYS("system", "") "," FD_SAYS("assistant", "") "]}",
                          "/a.jsonl:1: message 2: in this chat template a user follows the system"));
}
static void fd_refusals(void) {
    data_desc desc = fd_desc("a.txt");
    char text[1100];

    CHECK(fd_refuses(&desc, "/a.txt: it cannot be opened: is it there, and may it be read?"));
    fd_write_text("a.txt", "ab\xC3");
    CHECK(fd_refuses(&desc, "/a.txt: byte 2 is no UTF-8: convert it, as with iconv"));
    fd_write_text("a.txt", "ab");
    desc.text.vocabulary = 98;
    CHECK(fd_refuses(&desc, "/a.txt: token 98, and the vocabulary has 98"));
    desc.text.vocabulary = 256;
    CHECK(fd_refuses(&desc, "/a.txt: token 256, and the vocabulary has 256"));
    desc.text.vocabulary = 257;
    CHECK(fd_document(&desc, "a^bX"));
    desc.context = 0;
    CHECK(fd_refuses(&desc, "the context is not 1 to 2^31 - 1 tokens"));
    desc.context = 8;
    desc.validation = 1;
    CHECK(fd_refuses(&desc, "the share that is held back is not 0 or more and below 1"));
    desc.validation = -0.1;
    CHECK(fd_refuses(&desc, "the share that is held back is not 0 or more and below 1"));
    desc.validation = 1e-9;
    CHECK(fd_refuses(&desc, "/a.txt: none of its 1 documents is held back with a share of 1e-09 and this seed"));
    desc.validation = 1 - 1e-9;
    CHECK(fd_refuses(&desc, "/a.txt: each of its 1 documents is held back with a share of 1 and this seed"));
    desc.validation = 0;
    desc.text.coder.token_fn = NULL;
    CHECK(fd_refuses(&desc, "/a.txt: a text needs a tokeniser"));
    desc.text.path = NULL;
    CHECK(fd_refuses(&desc, "the path of the data is missing"));
    desc = fd_desc("a.jsonl");
    fd_write_text("a.jsonl", "{\"text\":\"ab\"}");
    desc.text.chat = "chat";
    CHECK(fd_refuses(&desc, "a chat template is chatml, llama3, llama2, mistral, plain, "
                            "or a text with {content} in it"));
    desc.text.chat = "{content}{content}";
    CHECK(fd_refuses(&desc, "the chat template has {content} twice"));
    desc.text.chat = "{end}{content}";
    CHECK(fd_refuses(&desc, "the chat template has {end} before {content}"));
    memset(text, 'a', sizeof text);
    memcpy(text + 1024 - 9, "{content}", 10);
    desc.text.chat = text;
    CHECK(fd_refuses(&desc, "the chat template is longer than 1,023 characters"));
    memcpy(text + 1023 - 9, "{content}", 10);
    CHECK(fd_document(&desc, "a^bX"));
}

/* ---- tokens ---- */
static void fd_many_tokens(void) { /* one document, of more than a read and a block */
    const size_t n = 600000;
    data_desc desc = fd_desc("a.u16");
    uint32_t words[64];
    size_t i, k;
    data *d;

    for (i = 0; i < n; ++i) {
        fd_long[2 * i] = (char)(i % 251);
        fd_long[2 * i + 1] = (char)(2 + i % 7);
    }
    fd_write("a.u16", fd_long, 2 * n);
    d = fd_open(&desc);
    CHECK(data_get_counts(d).documents == 1 && data_get_counts(d).tokens == n);
    for (i = 0; i + 64 <= n; i += 64) {
        CHECK_AT(!corpus_words(&d->tokens, i, words, 64), i);
        for (k = 0; k < 64; ++k) CHECK_AT(words[k] == (0x80000000u | ((i + k) % 251 + 256 * (2 + (i + k) % 7))), i + k);
    }
    data_close(d);
}
static void fd_tokens(void) {
    static const unsigned char tokens[14] = { 0, 1, 'a', 0, 'b', 0, 0, 1, 'c', 0, 0, 1, 'd', 0 };
    data_desc desc = fd_desc("a.u16");
    unsigned char file[1024 + 14] = { 0 };
    data *d;

    desc.text.coder.encode_fn = NULL;
    desc.text.coder.token_fn = NULL;
    fd_write("a.u16", tokens, 14);
    d = fd_open(&desc);
    CHECK(data_get_counts(d).documents == 4 && data_get_counts(d).left_out == 2 && data_get_counts(d).tokens == 7);
    CHECK(fd_is(d, 0, 0, "abcXXXXX", "bXX.....", "0 2 3"));
    data_close(d);
    desc.text.coder.eos = -1;
    d = fd_open(&desc);
    CHECK(data_get_counts(d).documents == 1 && data_get_counts(d).part[0].targets == 6);
    fd_show(d, 0, 0);
    CHECK(!strcmp(fd_shown[1], "abXcXd..") && !memcmp(fd_shown[0], "XabXcX", 6) && !fd_ids[6] && !fd_ids[7]);
    data_close(d);
    desc.text.coder.eos = FD_EOT;
    fd_write("a.u16", tokens, 13);
    CHECK(fd_refuses(&desc, "/a.u16: it is no whole number of 16-bit tokens: was it cut off?"));
    desc = fd_desc("a.bin");
    memcpy(file, "\x88\xd8\x34\x01\x01\0\0\0\x06\0\0\0", 12); /* 20240520, version 1, 6 tokens */
    memcpy(file + 1024, tokens, 14);
    fd_write("a.bin", file, sizeof file);
    d = fd_open(&desc);
    CHECK(data_get_counts(d).tokens == 6 && fd_is(d, 0, 0, "abcXXXXX", "bXX.....", "0 2 3"));
    data_close(d);
    fd_write("a.bin", file, 1035);
    CHECK(fd_refuses(&desc, "/a.bin: it has fewer tokens than its header says: was it cut off?"));
    file[4] = 7;
    fd_write("a.bin", file, sizeof file);
    CHECK(fd_refuses(&desc, "/a.bin: of llm.c's files only version 1, of 16-bit tokens, is read"));
    fd_write("a.bin", tokens, 14);
    CHECK(fd_refuses(&desc, "/a.bin: a .bin file begins with llm.c's number 20240520, and this one does not; 16-bit "
                            "tokens without a header are read from a file whose name ends in .u16"));
}

/* A tokeniser that begins each text with a token, and joins "bc" to one. */
static int fd_encode_joined(void *user, const char *text, size_t bytes, int32_t **ids, size_t *count,
                            size_t *capacity) {
    size_t i, n = *count;

    if (fd_encode(user, "_", 1, ids, count, capacity) || fd_encode(user, text, bytes, ids, count, capacity)) return 1;
    for (i = n; i < *count; ++i, ++n) {
        const int joined = i + 1 < *count && (*ids)[i] == 'b' && (*ids)[i + 1] == 'c';

        (*ids)[n] = joined ? 'M' : (*ids)[i];
        i += (size_t)joined;
    }
    *count = n;
    return 0;
}
static void fd_runs(void) {
    data_desc desc = fd_desc("a.jsonl");

    fd_t.known = 1 | 2 | 4;
    desc.text.coder.encode_fn = fd_encode_joined;
    CHECK(fd_line(&desc, "{\"text\":\"abc\"}", "_^aMX"));
    CHECK(fd_line(&desc, "{\"prompt\":\"a\",\"completion\":\"bcd\"}", "_a^MdX"));
    CHECK(fd_line(&desc, "{\"prompt\":\"ab\",\"completion\":\"cd\"}", "_ab^_cdX")); /* it would be a token of both */
    CHECK(fd_line(&desc, "{\"prompt\":\"abc\",\"completion\":\"\"}", "_aM^X"));
    CHECK(fd_line(&desc, "{\"prompt\":\"\",\"completion\":\"bc\"}", "_^MX"));
    CHECK(fd_line(&desc, fd_short, "S_user|uE_|S_assistant|^aE")); /* behind a special token a text begins */
    desc.text.chat = "plain";
    CHECK(fd_line(&desc, fd_talk, "_system: s||user:  u||assistant:^ a|||^user: <s>||assistant:^ w<|im_end|>||X"));
    desc.text.learn_all = 1;
    CHECK(fd_line(&desc, "{\"prompt\":\"ab\",\"completion\":\"cd\"}", "_^aMdX")); /* nothing parts them */
}

/* ---- the file of tokens ---- */
static const uint32_t fd_golden[19] = { /* of "abc", by another program */
    0x4f4d454d, 0x4b4f5450, 1, 0x04030201, 0xef124a29, 0x364b3fb7, 3, 0, 5, 0, 1, 0, 0xf60d3895, 0x62657adb,
    0x80000061, 0x80000062, 0x80000063, 0x80000100, 0x7fffffff };
static void fd_golden_bytes(unsigned char bytes[76]) {
    size_t i;

    for (i = 0; i < 76; ++i) bytes[i] = (unsigned char)(fd_golden[i / 4] >> 8 * (i % 4) & 255);
}
static data_desc fd_abc(void) {
    data_desc desc = fd_desc("a.txt");

    fd_write_text("a.txt", "abc");
    desc.text.coder.crc = 0x04030201;
    desc.text.vocabulary = 300;
    return desc;
}
/* Opens and closes; returns how often the tokeniser was called. */
static size_t fd_calls(const data_desc *desc) {
    data *d;

    fd_t.calls = 0;
    d = fd_open(desc);
    CHECK(data_get_counts(d).documents == 1 && fd_is(d, 0, 0, "abcXXXXX", "bcX.....", "0 3"));
    data_close(d);
    return fd_t.calls;
}
static void fd_cache(void) {
    data_desc desc = fd_abc(), other;
    unsigned char want[76], got[80];
    data *d;

    fd_golden_bytes(want);
    CHECK(fd_calls(&desc) == 1 && !strcmp(fd_files(), "a.txt a.txt.tokens ") + !strcmp(fd_list, "a.txt.tokens a.txt "));
    CHECK(fd_read("a.txt.tokens", got, 80) == 76 && !memcmp(got, want, 76));
    CHECK(fd_calls(&desc) == 0);
    desc.seed = 9;
    CHECK(fd_calls(&desc) == 0);
    desc.context = 20;
    d = fd_open(&desc);
    CHECK(fd_t.calls == 0 && data_get_counts(d).part[0].padding == 17);
    data_close(d);
    desc.context = 8;
    other = desc;
    other.text.coder.crc = 1;
    CHECK(fd_calls(&other) == 1 && fd_calls(&other) == 0 && fd_calls(&desc) == 1);
    other = desc;
    other.text.vocabulary = 0;
    CHECK(fd_calls(&other) == 1 && fd_calls(&other) == 0);
    other.text.learn_all = 1;
    CHECK(fd_calls(&other) == 1 && fd_calls(&other) == 0);
    other.text.chat = "chatml"; /* not for a text */
    CHECK(fd_calls(&other) == 0);
    CHECK(fd_calls(&desc) == 1);
    fd_write_text("a.txt", "abd");
    d = fd_open(&desc);
    CHECK(fd_is(d, 0, 0, "abdXXXXX", "bdX.....", "0 3"));
    data_close(d);
    desc.text.coder.bos = FD_BOS;
    d = fd_open(&desc);
    CHECK(fd_is(d, 0, 0, "BabdXXXX", "abdX....", "0 4"));
    data_close(d);
}
static void fd_cache_of_chats(void) {
    static const char *const chats[] = { "plain", "chatml", "llama2", "mistral", "{role} {content}",
                                         "{role} {content}\n" };
    data_desc desc = fd_desc("a.jsonl");
    size_t i, k;

    fd_write_text("a.jsonl", fd_talk);
    for (i = 0; i < sizeof chats / sizeof *chats; ++i) {
        desc.text.chat = chats[i];
        for (k = 0; k < 2; ++k) {
            fd_t.calls = 0;
            data_close(fd_open(&desc));
            CHECK_AT((fd_t.calls == 0) == (k == 1), i);
        }
    }
}
/* Cut off anywhere, or with a wrong byte, it is made again; what does not begin as ours is left alone. */
static void fd_cache_damaged(void) {
    data_desc desc = fd_abc();
    unsigned char want[77], bytes[77], got[80];
    size_t i, n;

    fd_golden_bytes(want);
    want[76] = 0;
    for (i = 0; i <= 77; ++i) {
        if (i == 76) continue;
        fd_write("a.txt.tokens", want, i);
        CHECK_AT(fd_calls(&desc) == 1, i);
        n = i && i < 8 ? i : 76;
        CHECK_AT(fd_read("a.txt.tokens", got, 80) == n && !memcmp(got, want, n), i);
    }
    for (i = 0; i < 76; ++i) {
        memcpy(bytes, want, 76);
        bytes[i] ^= 0x10;
        fd_write("a.txt.tokens", bytes, 76);
        CHECK_AT(fd_calls(&desc) == 1, i);
        CHECK_AT(fd_read("a.txt.tokens", got, 80) == 76 && !memcmp(got, i < 8 ? bytes : want, 76), i);
    }
}
static memopt_status fd_lock_status; /* of the new file, for somebody else, when it has been written */
static memopt_status fd_sync_file(void *user, void *file) {
    void *other;

    CHECK(!memopt_i_system_open(NULL, fd_path("a.txt.tokens.new"), MEMOPT_OPEN_OWN, &other));
    fd_lock_status = memopt_i_system_lock(NULL, other);
    CHECK(!memopt_i_system_close(NULL, other));
    return test_sync(user, file);
}
static void fd_cache_locked(void) {
    data_desc desc = fd_abc();
    memopt_status expected = MEMOPT_ERR_STATE;
    test_faults f;
    memopt_host h;
    void *file;

    CHECK(!memopt_i_system_open(NULL, fd_path("lock"), MEMOPT_OPEN_NEW, &file));
    if (memopt_i_system_lock(NULL, file)) expected = MEMOPT_ERR_UNSUPPORTED; /* this file system has none */
    CHECK(!memopt_i_system_close(NULL, file));
    memset(&f, 0, sizeof f);
    h = test_host(&f);
    h.files.sync_fn = fd_sync_file;
    desc.text.host = &h;
    fd_lock_status = MEMOPT_OK;
    CHECK(fd_calls(&desc) == 1 && fd_lock_status == expected && fd_calls(&desc) == 0);
}
static void fd_cache_places(void) {
    data_desc desc = fd_abc();
    unsigned char got[80];
    memopt_host h;
    void *file = NULL;

#ifndef _WIN32 /* where a file may take the place of an empty folder */
    CHECK(memopt_i_system_make_dir(NULL, fd_path("a.txt.tokens")) == MEMOPT_OK); /* a folder of that name */
    CHECK(fd_calls(&desc) == 1 && fd_calls(&desc) == 1);
    CHECK(memopt_i_system_remove(NULL, fd_path("a.txt.tokens")) == MEMOPT_OK);
#endif
    fd_write_text("a.txt.tokens.new", "left by a process that was killed");
    CHECK(fd_calls(&desc) == 1 && fd_calls(&desc) == 0 && !fd_read("a.txt.tokens.new", got, 80));
    CHECK(memopt_i_system_remove(NULL, fd_path("a.txt.tokens")) == MEMOPT_OK);
    CHECK(memopt_host_resolve(NULL, &h) == MEMOPT_OK); /* one that is being written */
    CHECK(!h.files.open_fn(h.files.user, fd_path("a.txt.tokens.new"), MEMOPT_OPEN_NEW, &file));
    if (h.files.lock_fn(h.files.user, file) == MEMOPT_OK) {
        CHECK(fd_calls(&desc) == 1 && !fd_read("a.txt.tokens", got, 80));
        CHECK(strstr(fd_files(), "a.txt.tokens.new ") != NULL);
    }
    CHECK(!h.files.close_fn(h.files.user, file));
    CHECK(fd_calls(&desc) == 1 && fd_calls(&desc) == 0 && !fd_read("a.txt.tokens.new", got, 80));
    fd_clean();
}

/* ---- failures ---- */
static int fd_handles;
static memopt_status fd_open_file(void *user, const char *path, memopt_open_mode mode, void **file) {
    const memopt_status s = test_open(user, path, mode, file);

    fd_handles += s == MEMOPT_OK;
    return s;
}
static memopt_status fd_close_file(void *user, void *file) {
    --fd_handles;
    return test_close(user, file);
}
/* The n-th call of the host fails, or all from it on: a refusal, or the same data; nothing stays open or lies about. */
static void fd_failures(void) {
    data_desc desc = fd_abc();
    test_faults f;
    memopt_host h;
    size_t n;
    int form;

    for (form = 0; form < 4; ++form) { /* bit 0: all from there on; bit 1: the tokens are there */
        for (n = 1; n < 1000; ++n) {
            data *d = NULL;
            int wrong;

            fd_clean();
            fd_write_text("a.txt", "abc");
            desc.text.host = NULL;
            if (form & 2) (void)fd_calls(&desc);
            memset(&f, 0, sizeof f);
            h = test_host(&f);
            h.files.open_fn = fd_open_file;
            h.files.close_fn = fd_close_file;
            if (form & 1) f.fail_from = n;
            else f.fail_on = n;
            desc.text.host = &h;
                    wrong = data_open(&desc, &d, fd_why());
            CHECK_AT(wrong ? !d && fd_message[0] : d != NULL, n);
            if (d) {
                const size_t calls = f.calls;

                f.fail_from = 0;
                CHECK_AT(f.live_bytes == data_bytes() && f.peak_bytes == data_bytes() && fd_handles == 2, n);
                if (f.fail_on > calls) f.fail_on = 0;
                CHECK_AT(fd_is(d, 0, 0, "abcXXXXX", "bcX.....", "0 3"), n);
                f.calls = calls;
            }
            data_close(d);
            CHECK_AT(!fd_handles && !f.live_blocks && !f.bad_frees, n);
            if (!(form & 1)) CHECK_AT(!strstr(fd_files(), ".new"), n);
            if (f.calls < n) break;
        }
        CHECK_AT(n > 10 && n < 1000, n);
    }
}
static void fd_no_memory(void) {
    data_desc desc = fd_desc("a.jsonl");
    char text[2000];
    size_t n, i;

    for (text[0] = 0, i = 0; i < 30; ++i)
        snprintf(text + strlen(text), 60, "{\"prompt\":\"ab\",\"completion\":\"cd\"}\n");
    for (n = 0; n < 100; ++n) {
        data *d = NULL;
        int wrong;

        fd_clean();
        fd_write_text("a.jsonl", text);
        fd_reallocs = n;
        wrong = data_open(&desc, &d, fd_why());
        if (fd_reallocs) {
            CHECK(!wrong);
            data_close(d);
            break;
        }
        CHECK_AT(wrong ? !d && strstr(fd_message, "memory") : d != NULL, n);
        data_close(d);
        CHECK_AT(!wrong || !strcmp(fd_files(), "a.jsonl "), n);
    }
    fd_reallocs = SIZE_MAX;
    CHECK(n > 2 && n < 100);
}
/* A window that cannot be read leaves the batch as it was. */
static void fd_window_failures(void) {
    data_desc desc = fd_desc("a.txt");
    test_faults f;
    memopt_host h;
    data_rows r;
    size_t n, starts[4];
    data *d;

    memset(&f, 0, sizeof f);
    h = test_host(&f);
    desc.text.host = &h;
    fd_write_text("a.txt", "abc<|endoftext|>de");
    d = fd_open(&desc);
    r = fd_rows();
    CHECK(!data_window(d, 0, 0, &r, fd_why()) && r.rows == 8 && r.documents == 3);
    memcpy(starts, fd_starts, sizeof starts);
    CHECK(starts[0] == 0 && starts[1] == 3 && starts[2] == 5 && starts[3] == 8);
    for (n = 1; n < 100; ++n) {
        f.calls = 0;
        f.fail_on = n;
        if (!data_window(d, 0, 0, &r, fd_why())) break;
        CHECK(!strcmp(fd_message, "the tokens of a window could not be read any more"));
        CHECK(r.rows == 8 && r.documents == 3 && !memcmp(starts, fd_starts, sizeof starts));
    }
    CHECK(n == 8 && r.rows == 16 && r.documents == 6 && fd_starts[3] == 8 && fd_starts[4] == 11 && fd_starts[6] == 16);
    CHECK(fd_positions_fit(&r));
    CHECK(data_window(d, 1, 0, &r, fd_why()) == 1 && r.rows == 16);
    CHECK(!strcmp(fd_message, "window 0 of 0 that are held back"));
    data_close(d);
    data_close(NULL);
}

#ifndef _WIN32
/* Processes that tokenise one file at once, with two tokenisers: each gets its own tokens, and a whole file remains. */
static uint64_t fd_hash(const data *d) {
    const data_counts c = data_get_counts(d);
    uint64_t hash = c.tokens, i;
    size_t k;

    for (i = 0; i < c.part[0].windows; ++i) {
        data_rows r = fd_rows();

        if (data_window(d, 0, i, &r, fd_why())) return 0;
        for (k = 0; k < r.rows; ++k)
            hash = hash * 31 + (uint64_t)(uint32_t)r.ids[k] * 7 + (uint64_t)(uint32_t)r.targets[k];
    }
    return hash;
}
static void fd_processes(void) {
    data_desc desc = fd_desc("a.txt");
    uint64_t want[2], random = 1;
    pid_t child[6];
    int round, i, status;
    size_t k;
    data *d;

    desc.context = 100;
    for (k = 0; k < 60000; ++k) fd_long[k] = (char)('a' + test_below(&random, 26));
    for (k = 900; k < 60000; k += 900) memcpy(fd_long + k, "<|endoftext|>", 13);
    fd_write("a.txt", fd_long, 60000);
    for (i = 0; i < 2; ++i) {
        desc.text.coder.bos = i ? FD_BOS : -1;
        d = fd_open(&desc);
        want[i] = fd_hash(d);
        data_close(d);
    }
    CHECK(want[0] != want[1]);
    for (round = 0; round < TEST_CASES(5, 50); ++round) {
        (void)memopt_i_system_remove(NULL, fd_path("a.txt.tokens"));
        for (i = 0; i < 6; ++i) {
            child[i] = fork();
            CHECK(child[i] >= 0);
            if (child[i]) continue;
            desc.text.coder.bos = i % 2 ? FD_BOS : -1;
            d = NULL;
            status = data_open(&desc, &d, fd_why()) || fd_hash(d) != want[i % 2];
            _exit(status);
        }
        for (i = 0; i < 6; ++i) CHECK_AT(waitpid(child[i], &status, 0) == child[i] && status == 0, i);
        CHECK(!strcmp(fd_files(), "a.txt a.txt.tokens ") + !strcmp(fd_list, "a.txt.tokens a.txt "));
        for (i = 0; i < 2; ++i) {
            desc.text.coder.bos = i ? FD_BOS : -1;
            d = fd_open(&desc);
            CHECK_AT(fd_hash(d) == want[i], i);
            data_close(d);
        }
    }
}
#endif

/* ---- sizes ---- */
static void fd_long_line(void) {
    data_desc desc = fd_desc("a.jsonl");
    const size_t n = 10000000;
    char *const line = (char *)malloc(n + 100);
    data *d;
    size_t i;

    CHECK(line != NULL);
    if (!line) return;
    memcpy(line, "{\"text\":\"", 9);
    for (i = 0; i < n; ++i) line[9 + i] = "abcdefghij"[i % 10];
    memcpy(line + 9 + n, "\"}\n{\"text\":\"xyz\"}", 17);
    fd_write("a.jsonl", line, n + 26);
    free(line);
    desc.context = 1000;
    d = fd_open(&desc);
    CHECK(data_get_counts(d).documents == 2 && data_get_counts(d).part[0].windows == n / 1000 + 1);
    CHECK(data_get_counts(d).part[0].targets == n + 3 && data_get_counts(d).part[0].padding == 997);
    data_close(d);
    desc.context = INT32_MAX;
    d = fd_open(&desc);
    CHECK(data_get_counts(d).part[0].windows == 1 && data_get_counts(d).part[0].padding == INT32_MAX - n - 3);
    data_close(d);
    fd_clean();
}

/* ---- what holds for any documents ---- */
/* A token is five hexadecimal digits: all are different, and the test knows where each is. */
static int fd_encode_hex(void *user, const char *text, size_t bytes, int32_t **ids, size_t *count, size_t *capacity) {
    const size_t first = *count;
    size_t i;

    if (fd_encode(user, text, bytes, ids, count, capacity)) return 1; /* which makes room */
    for (i = 0; i < bytes / 5; ++i) {
        char digits[6] = { 0 };

        memcpy(digits, text + 5 * i, 5);
        (*ids)[first + i] = (int32_t)strtol(digits, NULL, 16);
    }
    *count = first + bytes / 5;
    return 0;
}
enum { FD_DOCUMENTS = 400, FD_TOKENS = 40000 };
typedef struct fd_case {
    size_t context, documents, tokens;
    size_t begin[FD_DOCUMENTS + 1];      /* first token of each document */
    unsigned char learned[FD_TOKENS];
    unsigned char seen[2][FD_TOKENS];    /* as a target of an epoch; held back */
    unsigned char part[FD_DOCUMENTS];    /* bit p: has been seen in it */
    int owner[FD_TOKENS];
} fd_case;
static fd_case fd_c;
static void fd_random_documents(uint64_t *random) {
    static char text[6 * FD_TOKENS + 60 * FD_DOCUMENTS];
    char *at = text;
    size_t i, k;

    fd_c.context = 1 + test_below(random, test_below(random, 2) ? 12 : 300);
    fd_c.documents = 1 + test_below(random, FD_DOCUMENTS);
    fd_c.tokens = 0;
    memset(fd_c.learned, 0, sizeof fd_c.learned);
    for (i = 0; i < fd_c.documents; ++i) {
        const size_t longest = test_below(random, 10) ? 20 : 97;
        const size_t prompt = test_below(random, longest), completion = test_below(random, longest);
        const int is_text = test_below(random, 3) == 0;

        fd_c.begin[i] = fd_c.tokens;
        at += sprintf(at, is_text ? "{\"text\":\"" : "{\"prompt\":\"");
        for (k = 0; k < prompt + completion; ++k) {
            if (k == prompt && !is_text) at += sprintf(at, "\",\"completion\":\"");
            fd_c.owner[fd_c.tokens] = (int)i;
            fd_c.learned[fd_c.tokens] = is_text || k >= prompt;
            at += sprintf(at, "%05x", (unsigned)fd_c.tokens++);
        }
        at += sprintf(at, !completion && !is_text ? "\",\"completion\":\"\"}\n" : "\"}\n");
    }
    fd_c.begin[i] = fd_c.tokens;
    fd_write("a.jsonl", text, (size_t)(at - text));
}
/* A piece: consecutive tokens of one document; all of it, if it fits. */
static void fd_check_piece(const int32_t *ids, const int32_t *targets, size_t rows, int held) {
    const size_t first = (size_t)ids[0], document = (size_t)fd_c.owner[first];
    const size_t in_document = first - fd_c.begin[document];
    size_t end = fd_c.begin[document + 1], i;

    while (end > fd_c.begin[document] && !fd_c.learned[end - 1]) --end; /* behind it nothing is learned */
    fd_c.part[document] |= (unsigned char)(1 << held);
    CHECK_AT(in_document % fd_c.context == 0, first);
    CHECK_AT(rows == (end - 1 - first < fd_c.context ? end - 1 - first : fd_c.context), first);
    for (i = 0; i < rows; ++i) {
        CHECK_AT((size_t)ids[i] == first + i, first + i);
        CHECK_AT(targets[i] == (fd_c.learned[first + i + 1] ? ids[i] + 1 : -1), first + i);
        if (targets[i] >= 0) ++fd_c.seen[held][targets[i]];
    }
}
static void fd_check_epoch(const data *d, int held, uint64_t first) {
    const data_part part = data_get_counts(d).part[held];
    uint64_t padding = 0, targets = 0, i;
    size_t k, row;

    for (i = 0; i < part.windows; ++i) {
        data_rows r = fd_rows();

        CHECK(!data_window(d, held, first + i, &r, fd_why()) && r.rows == fd_c.context);
        CHECK(fd_positions_fit(&r) && fd_ids[r.rows] == 0x55555555 && fd_starts[r.documents + 1] != 0);
        for (k = 0; k < r.documents; ++k) {
            const size_t rows = fd_starts[k + 1] - fd_starts[k];

            for (row = fd_starts[k]; row < fd_starts[k + 1]; ++row) targets += fd_targets[row] >= 0;
            if (fd_ids[fd_starts[k]] == 0xFFFFF) padding += rows;
            else fd_check_piece(fd_ids + fd_starts[k], fd_targets + fd_starts[k], rows, held);
        }
    }
    CHECK(targets == part.targets && padding == part.padding);
}
/* By the definition: a document is held back if the hash of its number is below the share. */
static int fd_is_held(const data_desc *desc, size_t document) {
    uint32_t hash = 0;

    CHECK(!memopt_random_bits(&hash, 1, desc->seed, UINT64_C(0x68656c6400000000), document, NULL));
    return (double)hash < desc->validation * 4294967296.0 - 1;
}
static int fd_teaches(size_t document) { /* its first token is no target */
    size_t i;

    for (i = fd_c.begin[document] + 1; i < fd_c.begin[document + 1]; ++i)
        if (fd_c.learned[i]) return 1;
    return 0;
}
static void fd_check_data(data *d, const data_desc *desc, const uint64_t documents[2]) {
    uint64_t epoch;
    size_t i;

    CHECK(data_get_counts(d).documents == fd_c.documents);
    for (i = 0; i < 2; ++i) CHECK(data_get_counts(d).part[i].documents == documents[i]);
    CHECK(data_get_counts(d).left_out == fd_c.documents - documents[0] - documents[1]);
    d->padding = 0xFFFFF; /* to tell it from tokens */
    for (epoch = 0; epoch < 2; ++epoch) {
        memset(fd_c.seen, 0, sizeof fd_c.seen);
        memset(fd_c.part, 0, sizeof fd_c.part);
        fd_check_epoch(d, 0, epoch * (epoch + 40) * data_get_counts(d).part[0].windows);
        fd_check_epoch(d, 1, 0);
        for (i = 0; i < fd_c.tokens; ++i) { /* a target once */
            const int is_target = fd_c.learned[i] && i > fd_c.begin[fd_c.owner[i]];

            CHECK_AT(fd_c.seen[0][i] + fd_c.seen[1][i] == is_target, i);
        }
        for (i = 0; i < fd_c.documents; ++i)
            CHECK_AT(fd_c.part[i] == (fd_teaches(i) ? 1 << fd_is_held(desc, i) : 0), i);
    }
}
static void fd_properties(void) {
    const size_t cases = (size_t)TEST_CASES(40, 1000);
    data_desc desc = fd_desc("a.jsonl");
    uint64_t random = 7;
    size_t n, i;

    desc.text.coder.encode_fn = fd_encode_hex;
    desc.text.coder.eos = -1;
    for (n = 0; n < cases; ++n) {
        uint64_t documents[2] = { 0, 0 };
        data *d = NULL;

        if (test_is_passed_over()) continue;
        fd_random_documents(&random);
        desc.context = fd_c.context;
        desc.seed = test_random(&random);
        desc.validation = n % 3 == 0 ? 0.3 : n % 3 == 1 ? 0.99 : 0;
        for (i = 0; i < fd_c.documents; ++i) documents[fd_is_held(&desc, i)] += (uint64_t)fd_teaches(i);
        if (!documents[0] || (desc.validation > 0 && !documents[1])) {
            const char *const reason_for_it = documents[0] || documents[1] ? "is held back" : "to learn";

            CHECK_AT(data_open(&desc, &d, fd_why()) && strstr(fd_message, reason_for_it), n);
            continue;
        }
        d = fd_open(&desc);
        fd_check_data(d, &desc, documents);
        data_close(d);
    }
}

/* Windows come as the feed shuffles them; the seed gives the order, the position is all there is to know. */
static void fd_order(void) {
    data_desc desc = fd_desc("a.txt");
    char letters[27] = "";
    uint64_t window;
    data *d;
    int i, seed, same = 0;

    desc.context = 2;
    desc.text.coder.eos = -1;
    for (fd_long[0] = 0, i = 0; i < 23; ++i)
        snprintf(fd_long + strlen(fd_long), 40, "%c%cz<|endoftext|>", 'a' + i, 'a' + i);
    fd_write_text("a.txt", fd_long);
    for (seed = 41; seed < 43; ++seed) {
        desc.seed = (uint64_t)seed;
        d = fd_open(&desc);
        CHECK(data_get_counts(d).part[0].windows == 23);
        for (i = 68; i >= 0; --i) {
            fd_show(d, 0, (uint64_t)i);
            window = memopt_feed_shuffle(desc.seed, (uint64_t)i / 23, 23, (uint64_t)i % 23);
            CHECK_AT(fd_shown[0][0] == 'a' + (int)window, i);
            if (i >= 23) continue;
            same += letters[i] == fd_shown[0][0];
            letters[i] = fd_shown[0][0];
        }
        data_close(d);
    }
    CHECK(!strcmp(letters, "rtulgjbqwavcfhedikponsm") && same < 8); /* test_feed.c has it as numbers, for seed 42 */
}

static void test_finetune_data(void) {
    RUN(fd_text);
    RUN(fd_separators);
    RUN(fd_long_texts);
    RUN(fd_packing);
    RUN(fd_pieces);
    RUN(fd_kinds);
    RUN(fd_chats);
    RUN(fd_llama);
    RUN(fd_runs);
    RUN(fd_line_refusals);
    RUN(fd_refusals);
    RUN(fd_tokens);
    RUN(fd_many_tokens);
    RUN(fd_cache);
    RUN(fd_cache_of_chats);
    RUN(fd_cache_damaged);
    RUN(fd_cache_locked);
    RUN(fd_cache_places);
    RUN(fd_failures);
    RUN(fd_no_memory);
    RUN(fd_window_failures);
#ifndef _WIN32
    RUN(fd_processes);
#endif
    RUN(fd_long_line);
    RUN(fd_properties);
    RUN(fd_order);
    fd_clean();
    (void)memopt_i_system_remove(NULL, fd_path("none"));
    (void)memopt_i_system_remove(NULL, fd_folder);
}
#ifndef TEST_COMBINED
int main(void) {
    test_finetune_data();
    return test_totals();
}
#endif
