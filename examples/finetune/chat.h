/* chat.h - conversations as a model's text: chat templates by name, or as text with three placeholders.

   A template describes one turn; a conversation is its turns one after the other.
       {role}     who speaks, as the data say it: system, user, assistant, tool
       {content}  what is said
       {end}      an assistant's turn is learned from {content} up to here; without it, up to the turn's end
   So chatml is "<|im_start|>{role}\n{content}<|im_end|>{end}\n": the model learns what to say and to end its turn, and
   the newline, which the program adds, it does not. A space right before {content} is learned with it, because most
   tokenisers join a word with the space before it. In a text of your own, \n is a newline, \t a tab, \\ a backslash.

   Special tokens, like <|im_end|> or [INST], are looked up in the template; one that the tokeniser does not have is
   text. What somebody says goes to the tokeniser as it is. */
#ifndef FINETUNE_CHAT_H
#define FINETUNE_CHAT_H
#include "json.h"

enum { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL, CHAT_ROLES };
enum { CHAT_TEXT = 1024 };

typedef struct chat_template {
    const char *name;
    const char *mark;              /* NULL, or a special token by which a model for this template is known */
    const char *turns[CHAT_ROLES]; /* NULL: it has no such role */
    const char *after_system;      /* NULL, or the user's turn behind the system's, which both are then one */
    int trims;                     /* spaces and newlines around a content are removed */
} chat_template;

typedef struct chat {
    const chat_template *known; /* NULL: the text below, for every role */
    char text[CHAT_TEXT];
} chat;

/* Where a conversation goes, piece by piece. Returns 0; anything else ends it, and is returned. */
typedef int chat_put_fn(void *user, const char *text, size_t bytes, int flags);
enum { CHAT_LEARNED = 1, CHAT_MARKUP = 2 /* of the template: special tokens count */ };

/** A template by name; by its text, which has {content}; or, NULL, by the tokeniser's special tokens, else plain.
    0, or 1 and `why` says what is wrong. */
static inline int chat_find(const char *text, int (*token_fn)(void *user, const char *text, int32_t *id), void *user,
                            chat *out, char *why, size_t capacity);
/** A list of { "role": ..., "content": ... }. 0; or 1, and `why` says what is wrong, or is empty if put_fn failed. */
static inline int chat_render(const chat *c, const json_document *j, uint32_t messages, chat_put_fn *put_fn, void *user,
                              char *why, size_t capacity);

#define CHAT_ML "<|im_start|>{role}\n{content}<|im_end|>{end}\n"
#define CHAT_LLAMA3 "<|start_header_id|>{role}<|end_header_id|>\n\n{content}<|eot_id|>{end}"
#define CHAT_PLAIN "{role}: {content}\n\n"

static const chat_template chat_templates[] = { /* of two with one name the first whose mark is there */
    { "chatml", "<|im_start|>", { CHAT_ML, CHAT_ML, CHAT_ML, CHAT_ML }, NULL, 0 },
    { "llama3", "<|start_header_id|>", { CHAT_LLAMA3, CHAT_LLAMA3, CHAT_LLAMA3, NULL }, NULL, 1 },
    { "llama2", NULL,
      { "<s>[INST] <<SYS>>\n{content}\n<</SYS>>\n\n", "<s>[INST] {content} [/INST]", " {content} </s>{end}", NULL },
      "{content} [/INST]", 1 },
    { "mistral", "[INST]", { "[INST] {content}\n\n", "[INST] {content}[/INST]", " {content}</s>{end}", NULL },
      "{content}[/INST]", 0 },
    { "mistral", NULL, { "[INST] {content}\n\n", "[INST] {content} [/INST]", " {content}</s>{end}", NULL },
      "{content} [/INST]", 0 },
    { "plain", NULL, { CHAT_PLAIN, CHAT_PLAIN, CHAT_PLAIN, CHAT_PLAIN }, NULL, 0 }
};
enum { CHAT_TEMPLATES = sizeof chat_templates / sizeof *chat_templates };

/* ---- which one ---- */
static inline int chat_own_text(const char *text, chat *out, char *why, size_t capacity) {
    const char *content = strstr(text, "{content}"), *end = strstr(text, "{end}");
    char *to = out->text;

    out->known = NULL;
    snprintf(why, capacity, "%s",
             !content ? "a chat template is chatml, llama3, llama2, mistral, plain, or a text with {content} in it"
             : strstr(content + 1, "{content}") ? "the chat template has {content} twice"
             : end && end < content             ? "the chat template has {end} before {content}"
             : strlen(text) >= CHAT_TEXT        ? "the chat template is longer than 1,023 characters"
                                                : "");
    if (*why) return 1;
    for (; *text; ++text) {
        const char next = *text == '\\' ? text[1] : 0;

        *to++ = next == 'n' ? '\n' : next == 't' ? '\t' : *text;
        text += next == 'n' || next == 't' || next == '\\';
    }
    *to = 0;
    return 0;
}

static inline int chat_find(const char *text, int (*token_fn)(void *user, const char *text, int32_t *id), void *user,
                            chat *out, char *why, size_t capacity) {
    int32_t id;
    int i;

    memset(out, 0, sizeof *out);
    for (i = 0; i < CHAT_TEMPLATES; ++i) {
        const chat_template *const t = &chat_templates[i];
        const int marked = t->mark && !token_fn(user, t->mark, &id);

        if (text ? strcmp(text, t->name) != 0 : !marked && i < CHAT_TEMPLATES - 1) continue;
        out->known = t;
        if (marked || !t->mark) return 0;
    }
    if (out->known) return 0; /* its special tokens are text, then */
    return chat_own_text(text, out, why, capacity);
}

/* ---- a turn ---- */
static inline const char *chat_turn(const chat *c, int role, int after_system) {
    if (!c->known) return c->text;
    return after_system && role == CHAT_USER && c->known->after_system ? c->known->after_system : c->known->turns[role];
}

/* The template's own text, up to the next placeholder. */
static inline size_t chat_literal(const char *t) {
    size_t n = 0;

    while (t[n] && strncmp(t + n, "{role}", 6) && strncmp(t + n, "{content}", 9) && strncmp(t + n, "{end}", 5)) ++n;
    return n;
}

static inline int chat_put_turn(const char *t, const char *role, int learns, const char *content, size_t bytes,
                                chat_put_fn *put_fn, void *user) {
    int learned = 0, wrong = 0;

    while (*t && !wrong) {
        const size_t n = chat_literal(t);
        const size_t space = n && learns && t[n - 1] == ' ' && !strncmp(t + n, "{content}", 9);

        if (n) {
            if (n > space) wrong = put_fn(user, t, n - space, learned | CHAT_MARKUP);
            if (space && !wrong) wrong = put_fn(user, " ", 1, CHAT_LEARNED);
            t += n;
        } else if (t[1] == 'r') {
            wrong = put_fn(user, role, strlen(role), learned);
            t += 6;
        } else if (t[1] == 'c') {
            learned = learns ? CHAT_LEARNED : 0;
            wrong = put_fn(user, content, bytes, learned);
            t += 9;
        } else {
            learned = 0;
            t += 5;
        }
    }
    return wrong;
}

/* ---- a conversation ---- */
static inline void chat_trim(const char **text, size_t *bytes) {
    static const char space[] = " \t\r\n";

    for (; *bytes && memchr(space, (*text)[*bytes - 1], 4); --*bytes) {}
    for (; *bytes && memchr(space, **text, 4); --*bytes) ++*text;
}

static inline int chat_role(const json_document *j, uint32_t node) { /* CHAT_ROLES: none of them */
    static const char *const names[] = { "system", "user", "assistant", "tool" };
    int role = 0;

    while (role < CHAT_ROLES && !json_is(j, node, names[role])) ++role;
    return role;
}

/* Why a message cannot stand behind one of the role `before`; NULL: it can. */
static inline const char *chat_wrong(const chat *c, const json_document *j, uint32_t message, int role, int before) {
    const int joins = c->known && c->known->after_system;

    if (json_kind_of(j, message) != JSON_OBJECT) return "it is no object";
    if (!json_string(j, json_member(j, message, "role"), NULL)) return "\"role\" is missing, or is no string";
    if (!json_string(j, json_member(j, message, "content"), NULL)) return "\"content\" is missing, or is no string";
    if (role == CHAT_ROLES) return "the role is none of system, user, assistant, tool";
    if (!chat_turn(c, role, 0)) return "the chat template has no such role";
    if (joins && role == CHAT_SYSTEM && before != CHAT_ROLES) return "in this chat template the system speaks first";
    if (joins && before == CHAT_SYSTEM && role != CHAT_USER) return "in this chat template a user follows the system";
    return NULL;
}

static inline int chat_render(const chat *c, const json_document *j, uint32_t messages, chat_put_fn *put_fn, void *user,
                              char *why, size_t capacity) {
    int before = CHAT_ROLES;
    unsigned long number = 1;
    uint32_t i;

    *why = 0;
    for (i = json_first(j, messages); i != JSON_NONE; i = json_next(j, messages, i), ++number) {
        const int role = chat_role(j, json_member(j, i, "role"));
        const char *const wrong = chat_wrong(c, j, i, role, before);
        const char *name, *content;
        size_t bytes = 0;

        if (wrong) {
            snprintf(why, capacity, "message %lu: %s", number, wrong);
            return 1;
        }
        name = json_string(j, json_member(j, i, "role"), NULL);
        content = json_string(j, json_member(j, i, "content"), &bytes);
        if (c->known && c->known->trims) chat_trim(&content, &bytes);
        if (chat_put_turn(chat_turn(c, role, before == CHAT_SYSTEM), name, role == CHAT_ASSISTANT, content, bytes,
                          put_fn, user)) return 1;
        before = role;
    }
    return 0;
}
#endif
