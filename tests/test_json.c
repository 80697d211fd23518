/* test_json.c - examples/finetune/json.h: values and refusals that RFC 8259 gives. */
#include "test.h"
static size_t json_refused_after = SIZE_MAX; /* so many calls of realloc succeed */
static void *json_test_realloc(void *block, size_t bytes) {
    return json_refused_after && json_refused_after-- ? realloc(block, bytes) : NULL;
}
#define realloc json_test_realloc
#include "../examples/finetune/json.h"
#undef realloc

static char json_copy[1 << 16];
static volatile size_t json_beyond = UINT32_MAX; /* the compiler does not know it, or it warns of the block's end */

/* Reads a text that lies at the end of its block, so that a sanitizer sees one byte too many. */
static int json_reads(json_document *j, const char *text, size_t bytes) {
    char *const at = json_copy + sizeof json_copy - bytes;

    memcpy(at, text, bytes);
    return json_parse(j, at, bytes);
}
static int json_reads_text(json_document *j, const char *text) { return json_reads(j, text, strlen(text)); }

static void json_values(void) {
    static const char text[] = " { \"a\" : [ 1, -2.5e3, \"x\\ny\" ] ,\"b\":{},\"c\":null,\"d\":[ ],\"e\":true,"
                               "\"f\":false,\n\t\"a\":7 }\r\n";
    json_document j;
    uint32_t a;
    int64_t integer = 42;
    double real = 42;
    size_t bytes = 0;

    memset(&j, 0, sizeof j);
    CHECK(!json_reads_text(&j, text) && !j.message[0]);
    CHECK(j.count == 18 && json_kind_of(&j, 0) == JSON_OBJECT && j.nodes[0].size == 7);
    CHECK(!json_integer(&j, json_member(&j, 0, "a"), &integer) && integer == 7); /* the last of two */
    a = json_first(&j, 0);
    CHECK(!strcmp(json_name(&j, a, &bytes), "a") && bytes == 1);
    CHECK(json_kind_of(&j, a) == JSON_ARRAY && j.nodes[a].size == 3);
    a = json_first(&j, a);
    CHECK(!json_integer(&j, a, &integer) && integer == 1 && !json_double(&j, a, &real) && real == 1);
    CHECK(!json_double(&j, a + 1, &real) && real == -2500 && json_integer(&j, a + 1, &integer) && integer == 1);
    CHECK(!strcmp(json_string(&j, a + 2, &bytes), "x\ny") && bytes == 3);
    CHECK(json_is(&j, a + 2, "x\ny") && !json_is(&j, a + 2, "x"));
    CHECK(json_next(&j, 2, a + 2) == JSON_NONE && json_next(&j, 2, a) == a + 1);
    CHECK(json_first(&j, json_member(&j, 0, "b")) == JSON_NONE);
    CHECK(json_first(&j, json_member(&j, 0, "d")) == JSON_NONE);
    CHECK(json_kind_of(&j, json_member(&j, 0, "b")) == JSON_OBJECT);
    CHECK(json_kind_of(&j, json_member(&j, 0, "d")) == JSON_ARRAY);
    CHECK(json_kind_of(&j, json_member(&j, 0, "c")) == JSON_NULL);
    CHECK(json_kind_of(&j, json_member(&j, 0, "e")) == JSON_TRUE);
    CHECK(json_kind_of(&j, json_member(&j, 0, "f")) == JSON_FALSE);
    json_free(&j);
}

static void json_missing(void) { /* what is not there can be asked like all else */
    json_document j;
    int64_t integer = 42;
    double real = 42;

    memset(&j, 0, sizeof j);
    CHECK(json_kind_of(&j, 0) == JSON_MISSING && json_member(&j, 0, "a") == JSON_NONE);
    CHECK(!json_reads_text(&j, "{\"a\":\"1\"}"));
    CHECK(json_member(&j, 0, "b") == JSON_NONE && json_member(&j, JSON_NONE, "b") == JSON_NONE);
    CHECK(json_member(&j, 2, "b") == JSON_NONE);
    CHECK(json_first(&j, JSON_NONE) == JSON_NONE && json_first(&j, 2) == JSON_NONE);
    CHECK(json_next(&j, JSON_NONE, 1) == JSON_NONE && json_next(&j, 0, JSON_NONE) == JSON_NONE);
    CHECK(!json_string(&j, JSON_NONE, NULL) && !json_string(&j, 0, NULL) && !json_is(&j, JSON_NONE, ""));
    CHECK(json_integer(&j, JSON_NONE, &integer) && json_integer(&j, 2, &integer) && integer == 42);
    CHECK(json_double(&j, JSON_NONE, &real) && json_double(&j, 2, &real) && real == 42);
    CHECK(json_kind_of(&j, JSON_NONE) == JSON_MISSING);
    json_free(&j);
}

static void json_numbers(void) {
    static const struct { const char *text; int64_t value; int refused; } integers[] = {
        { "0", 0, 0 }, { "-0", 0, 0 }, { "9223372036854775807", INT64_MAX, 0 }, { "9223372036854775808", 0, 1 },
        { "-9223372036854775808", INT64_MIN, 0 }, { "-9223372036854775809", 0, 1 }, { "-1", -1, 0 },
        { "92233720368547758070", 0, 1 }, { "18446744073709551616", 0, 1 }, { "1.0", 0, 1 }, { "1e2", 0, 1 },
        { "50257", 50257, 0 }
    };
    static const struct { const char *text; double value; int refused; } reals[] = {
        { "1e-05", 1e-05, 0 }, { "500000.0", 500000, 0 }, { "0.1", 0.1, 0 }, { "-1E+2", -100, 0 },
        { "1e400", 0, 1 }, { "-1e400", 0, 1 },
        { "0.041666666666666664", 1.0 / 24, 0 }, { "1e-400", 0, 0 }, { "9007199254740993", 9007199254740992.0, 0 }
    };
    char text[304];
    json_document j;
    size_t i;

    memset(&j, 0, sizeof j);
    for (i = 0; i < sizeof integers / sizeof integers[0]; ++i) {
        int64_t got = 42;

        CHECK_AT(!json_reads_text(&j, integers[i].text), i);
        CHECK_AT(json_integer(&j, 0, &got) == integers[i].refused, i);
        CHECK_AT(integers[i].refused ? got == 42 : got == integers[i].value, i);
    }
    for (i = 0; i < sizeof reals / sizeof reals[0]; ++i) {
        double got = 42;

        CHECK_AT(!json_reads_text(&j, reals[i].text), i);
        CHECK_AT(json_double(&j, 0, &got) == reals[i].refused && got == (reals[i].refused ? 42 : reals[i].value), i);
    }
    for (i = 300; i < 302; ++i) { /* the longest that are looked at: 1 with zeros behind the point */
        double got = 42;

        memset(text, '0', sizeof text);
        memcpy(text, "1.", 2);
        CHECK_AT(!json_reads(&j, text, i) && json_double(&j, 0, &got) == (i > 300) && got == (i > 300 ? 42 : 1), i);
    }
    json_free(&j);
}

static void json_strings(void) {
    static const struct { const char *text, *value; size_t bytes; } cases[] = {
        { "\"\"", "", 0 }, { "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8 },
        { "\"\\u0041\\u00e9\\u20AC\"", "A\xC3\xA9\xE2\x82\xAC", 6 },
        { "\"\\ud83d\\ude00\"", "\xF0\x9F\x98\x80", 4 },
        { "\"\\uD800\\uDC00\\uDBFF\\uDFFF\"", "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF", 8 },
        { "\"a\\u0000b\"", "a\0b", 3 },
        { "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\x7F\"", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\x7F", 10 },
        { "\"\\uFFFF\\u07FF\\u0800\\u007f\\u0080\"", "\xEF\xBF\xBF\xDF\xBF\xE0\xA0\x80\x7F\xC2\x80", 11 }
    };
    json_document j;
    size_t i, bytes;

    memset(&j, 0, sizeof j);
    for (i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        const char *got;

        CHECK_AT(!json_reads_text(&j, cases[i].text), i);
        got = json_string(&j, 0, &bytes);
        CHECK_AT(got && bytes == cases[i].bytes && !memcmp(got, cases[i].value, bytes + 1), i);
    }
    json_free(&j);
}

static void json_code_points(void) { /* every one there and back; surrogates and what is beyond are none */
    static const char *const bad[] = { "\xF4\x90\x80\x80", "\xC0\x80", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF", "\x80",
                                       "\xFF", "\xE2\x82\x41", "\xE2\x41\x82", "\xC3\xC3" };
    uint32_t code, got;
    size_t i;
    char text[4];

    for (code = 0; code < 0x110000; ++code) {
        const size_t n = json_utf8_write(text, code), size = code < 128 ? 1 : code < 2048 ? 2 : code < 65536 ? 3 : 4;

        if (code >= 0xD800 && code < 0xE000) CHECK_AT(!json_utf8_read(text, n, &got), code);
        else CHECK_AT(n == size && json_utf8_read(text, n, &got) == n && got == code, code);
        CHECK_AT(!json_utf8_read(text, n - 1, &got), code);
    }
    for (i = 0; i < sizeof bad / sizeof bad[0]; ++i) CHECK_AT(!json_utf8_read(bad[i], strlen(bad[i]), &got), i);
}

static void json_refusals(void) {
    static const struct { const char *text, *message; } cases[] = {
        { "", "line 1, byte 0: the text ends before its value does" },
        { "\n\n ", "line 3, byte 3: the text ends before its value does" },
        { "nul", "line 1, byte 0: this is no value of JSON" }, { "+1", "line 1, byte 0: this is no value of JSON" },
        { "01", "line 1, byte 2: this is no value of JSON" }, { "-", "line 1, byte 1: this is no value of JSON" },
        { "-01", "line 1, byte 3: this is no value of JSON" }, { "NaN", "line 1, byte 0: this is no value of JSON" },
        { ".5", "line 1, byte 0: this is no value of JSON" }, { "1.", "line 1, byte 2: no digit behind the point" },
        { "1.e1", "line 1, byte 2: no digit behind the point" }, { "1e", "line 1, byte 2: no digit in the exponent" },
        { "1e+", "line 1, byte 3: no digit in the exponent" }, { "1 2", "line 1, byte 2: something follows the value" },
        { "[1,]", "line 1, byte 3: this is no value of JSON" }, { "[,1]", "line 1, byte 1: this is no value of JSON" },
        { "[1", "line 1, byte 2: a comma or an end was expected" },
        { "[1}", "line 1, byte 2: a comma or an end was expected" },
        { "[\n1\n2]", "line 3, byte 4: a comma or an end was expected" },
        { "[", "line 1, byte 1: the text ends before its value does" },
        { "{", "line 1, byte 1: a member's name was expected" },
        { "{\"a\":1,}", "line 1, byte 7: a member's name was expected" },
        { "{a:1}", "line 1, byte 1: a member's name was expected" },
        { "{\"a\" 1}", "line 1, byte 5: a colon was expected" },
        { "{\"a\":}", "line 1, byte 5: this is no value of JSON" },
        { "{\"a\":1]", "line 1, byte 6: a comma or an end was expected" },
        { "{\"a", "line 1, byte 3: a string without its end" }, { "\"", "line 1, byte 1: a string without its end" },
        { "\"\\\"", "line 1, byte 3: a string without its end" },
        { "\"\\", "line 1, byte 1: this is no escape of JSON" },
        { "\"\\x\"", "line 1, byte 1: this is no escape of JSON" },
        { "\"\\u12g4\"", "line 1, byte 1: this is no escape of JSON" },
        { "\"\\u12\"", "line 1, byte 1: this is no escape of JSON" },
        { "\"a\nb\"", "line 1, byte 2: a control character in a string" },
        { "\"\x1F\"", "line 1, byte 1: a control character in a string" },
        { "\"\\ud800\"", "line 1, byte 1: half of a surrogate pair" },
        { "\"\\udc00\"", "line 1, byte 1: half of a surrogate pair" },
        { "\"\\ud800\\u0041\"", "line 1, byte 1: half of a surrogate pair" },
        { "\"\\ud800\\ud800\"", "line 1, byte 1: half of a surrogate pair" },
        { "\"\\ud800\\ue000\"", "line 1, byte 1: half of a surrogate pair" },
        { "\"\xC3\"", "line 1, byte 1: this is no UTF-8" },
        { "\"\xED\xA0\x80\"", "line 1, byte 1: this is no UTF-8" },
        { "\xC3\xA9", "line 1, byte 0: this is no value of JSON" },
        { "// a\n1", "line 1, byte 0: this is no value of JSON" }, { "\f1", "line 1, byte 0: this is no value of JSON" }
    };
    json_document j;
    size_t i;

    memset(&j, 0, sizeof j);
    for (i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        CHECK_AT(json_reads_text(&j, cases[i].text) == 1 && j.count == 0, i);
        CHECK_AT(!strcmp(j.message, cases[i].message), i);
        if (strcmp(j.message, cases[i].message)) printf("%s\n", j.message);
    }
    CHECK(json_reads(&j, "1\0", 2) && !strcmp(j.message, "line 1, byte 1: something follows the value"));
    CHECK(json_reads(&j, "\"\0\"", 3) && !strcmp(j.message, "line 1, byte 1: a control character in a string"));
    CHECK(!json_reads_text(&j, "\xEF\xBB\xBF[1]") && j.count == 2);
    CHECK(json_parse(&j, json_copy, json_beyond) && strstr(j.message, "4 GiB")); /* before a byte is looked at */
    json_free(&j);
}

static void json_nesting(void) { /* 64 are taken, 65 are not; nor are 60,000 a stack that ends */
    static char text[60001];
    json_document j;
    size_t i, depth;

    memset(&j, 0, sizeof j);
    for (depth = JSON_DEPTH; depth < 60000; depth += depth == JSON_DEPTH ? 1 : 20000) {
        memset(text, '[', depth);
        memset(text + depth, ']', sizeof text - depth);
        CHECK_AT(json_reads(&j, text, depth <= JSON_DEPTH ? 2 * depth : depth) == (depth > JSON_DEPTH), depth);
        if (depth == JSON_DEPTH) CHECK(j.count == JSON_DEPTH && j.nodes[0].next == JSON_DEPTH);
        else CHECK(strstr(j.message, "line 1, byte 64: more than 64"));
    }
    for (i = 0; i < 5000; ++i) memcpy(text + 3 * i, i ? ",[]" : "[[]", 3); /* siblings are no nesting */
    text[15000] = ']';
    CHECK(!json_reads(&j, text, 15001) && j.count == 5001 && j.nodes[0].size == 5000);
    json_free(&j);
}

/* Cut at every length it is refused; with any byte changed it is refused or read, and nothing beside it. */
static void json_cuts(void) {
    static const char text[] = "{\"a\":[1,-2.5e3,\"x\\n\\ud83d\\ude00\xC3\xA9\"],\"b\":{\"c\":null},"
                               "\"d\":[[],{},true,false]}";
    static const char bytes[] = "\0\"\\{}[]:,u\x80\xFF 0e-n";
    char changed[sizeof text];
    json_document j;
    size_t i, k;

    memset(&j, 0, sizeof j);
    for (i = 0; i + 1 < sizeof text; ++i) {
        CHECK_AT(json_reads(&j, text, i), i);
        for (k = 0; k + 1 < sizeof bytes; ++k) {
            memcpy(changed, text, sizeof text);
            changed[i] = bytes[k];
            CHECK_AT(json_reads(&j, changed, sizeof text - 1) == !j.count, i);
        }
    }
    CHECK(!json_reads(&j, text, i) && j.count == 16);
    json_free(&j);
}

static void json_files(void) {
    char path[600];
    json_document j;
    FILE *f;
    size_t n;

    memset(&j, 0, sizeof j);
    test_path(path, "json");
    CHECK(json_load(&j, path) && !strcmp(j.message, "could not be opened"));
    for (n = 0; n < 200000; n = n ? n * 4 + 1 : 16383) { /* 0, then beyond the first blocks of reading */
        size_t i;

        f = fopen(path, "wb");
        CHECK(f != NULL);
        if (!f) return;
        fputc('[', f);
        for (i = 0; i < n; ++i) fputs(i ? ",\"x\"" : "\"x\"", f);
        fputc(']', f);
        CHECK(!fclose(f));
        CHECK_AT(!json_load(&j, path) && j.count == n + 1 && j.nodes[0].size == n, n); /* into the same document */
    }
    for (n = 0; n < 40; ++n) { /* the n-th block of memory is refused */
        int refused;

        json_free(&j);
        json_refused_after = n;
        refused = json_load(&j, path);
        json_refused_after = SIZE_MAX;
        if (!refused) break;
        CHECK_AT(strstr(j.message, "out of memory") && !json_kind_of(&j, 0), n);
    }
    CHECK(n > 2 && n < 40 && j.count > 60000);
    json_free(&j);
    remove(path);
}

static void test_json(void) {
    RUN(json_values);
    RUN(json_missing);
    RUN(json_numbers);
    RUN(json_strings);
    RUN(json_code_points);
    RUN(json_refusals);
    RUN(json_nesting);
    RUN(json_cuts);
    RUN(json_files);
}
#ifndef TEST_COMBINED
int main(void) {
    test_json();
    return test_totals();
}
#endif
