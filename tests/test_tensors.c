/* test_tensors.c - headers of safetensors files. What is accepted and what is not was tried with the reference reader
   (0.8.0); the golden header was written by it. */
#include "test.h"

static memopt_error tensors_why;
static unsigned char tensors_memory[2][1 << 16];

/* A file of a text and so many bytes of data; the source points to static memory, which ends with the text. */
static memopt_i_tensors_source tensors_file(const char *text, size_t length, uint64_t data) {
    static unsigned char room[1 << 14]; unsigned char *file = room + sizeof room - 8 - length; memopt_i_tensors_source s; size_t i;
    memset(&s, 0, sizeof s);
    for (i = 0; i < 8; ++i) file[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memcpy(file + 8, text, length);
    s.header = file; s.header_bytes = 8 + length; s.file_bytes = 8 + length + data;
    return s;
}
/* Blocks that end where a room does, as far as their alignment allows. Nothing is given back. */
static void *tensors_alloc(void *room, size_t size, size_t align) {
    if (size > sizeof *tensors_memory - align) { CHECK(0); return NULL; }
    memset(room, 0xA5, sizeof *tensors_memory);
    return (void *)(((uintptr_t)room + sizeof *tensors_memory - size) & ~(uintptr_t)(align - 1));
}
static void tensors_free(void *user, void *block, size_t size, size_t align) { (void)user; (void)block; (void)size; (void)align; }
static memopt_status tensors_read_into(size_t room, const memopt_i_tensors_source *s, memopt_tensors *out) {
    memopt_i_checks c = memopt_i_checks_begin(&tensors_why, "tensors"); memopt_host host; void *block; size_t bytes;
    memset(&host, 0, sizeof host);
    host.allocator.alloc_fn = tensors_alloc; host.allocator.free_fn = tensors_free; host.allocator.user = tensors_memory[room];
    return memopt_i_tensors_read(&c, &host, s, 0, &block, &bytes, out);
}
static memopt_status tensors_read(const memopt_i_tensors_source *s, memopt_tensors *out) { return tensors_read_into(0, s, out); }
static memopt_status tensors_header(const memopt_i_tensors_source *s, size_t *bytes, memopt_error *error) {
    memopt_i_checks c = memopt_i_checks_begin(error, "tensors");
    return memopt_i_tensors_header(&c, s, bytes);
}
static int tensors_same(const memopt_tensor *a, const memopt_tensor *b) {
    return strcmp(a->name, b->name) == 0 && a->type == b->type && a->rank == b->rank && a->begin == b->begin && a->end == b->end
        && (!a->rank || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
}
static memopt_tensor tensors_make(const char *name, memopt_tensor_type type, size_t rank, const uint64_t *shape) {
    memopt_tensor t;
    memset(&t, 0, sizeof t);
    t.name = name; t.type = type; t.rank = rank; t.shape = shape;
    return t;
}
/* Whatever has been read has these properties, is found by its name, and is the same once it was written and read again. */
static void tensors_consistent(const memopt_tensors *t) {
    static unsigned char text[1 << 16]; static memopt_tensor list[64];
    memopt_tensors_desc d; memopt_i_tensors_source s; memopt_tensors again; uint64_t end = 0; size_t i, k, bytes = 0;
    for (i = 0; i < t->count; ++i) {
        const memopt_tensor *x = &t->tensors[i]; uint64_t bits = memopt_tensor_type_bits(x->type);
        for (k = 0; k < x->rank; ++k) bits *= x->shape[k];
        CHECK_AT(x->begin == end && x->end >= end && bits == 8 * (x->end - x->begin), i);
        end = x->end;
        CHECK_AT(memopt_tensors_find(t, x->name) == x, i);
    }
    CHECK(end == t->data_bytes);
    for (i = 0; i < t->metadata_count; ++i) CHECK(memopt_tensors_value(t, t->metadata[i].key) == t->metadata[i].value);
    if (t->count > 64) { CHECK(0); return; }
    memset(&d, 0, sizeof d); memset(&s, 0, sizeof s);
    if (t->count) memcpy(list, t->tensors, t->count * sizeof *list);
    d.tensors = list; d.count = t->count; d.metadata = t->metadata; d.metadata_count = t->metadata_count;
    CHECK(memopt_tensors_write(&d, text, sizeof text, &bytes) == MEMOPT_OK);
    s.header = text; s.header_bytes = bytes; s.file_bytes = bytes + end;
    CHECK(tensors_read_into(1, &s, &again) == MEMOPT_OK);
    CHECK(again.count == t->count && again.metadata_count == t->metadata_count && again.data_begin == bytes);
    for (i = 0; i < t->count; ++i) {
        const memopt_tensor *x = memopt_tensors_find(&again, list[i].name);
        CHECK_AT(x && tensors_same(x, &list[i]), i);
    }
    for (i = 0; i < t->metadata_count; ++i) {
        const char *value = memopt_tensors_value(&again, t->metadata[i].key);
        CHECK_AT(value && strcmp(value, t->metadata[i].value) == 0 && strcmp(again.metadata[i].key, t->metadata[i].key) == 0, i);
    }
}

#define A "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}"
#define TENSOR(name, type, shape, offsets) "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
static const struct { const char *text; unsigned data; const char *why; } tensors_rows[] = { /* why NULL: accepted */
    { "{}", 0, NULL },
    { "{" A "}", 2, NULL },
    { "{" A "}  \n\t\r ", 2, NULL },
    { "\t\r\n {" A "}", 2, NULL },
    { "{ \"a\" : { \"shape\" : [ 2 ] , \"data_offsets\" : [ 0 , 2 ] , \"dtype\" : \"U8\" } }", 2, NULL },
    { "{" TENSOR("b", "U8", "[1]", "[2,3]") "," A "}", 3, NULL },
    { "{" TENSOR("b", "F32", "[1]", "[2,6]") "," A "}", 6, NULL },
    { "{" TENSOR("", "I64", "[]", "[0,8]") "}", 8, NULL },
    { "{" TENSOR("e", "F32", "[0,3]", "[2,2]") "," A "," TENSOR("f", "F32", "[3,0]", "[0,0]") "}", 2, NULL },
    { "{" TENSOR("a", "U64", "[18446744073709551615,0]", "[0,0]") "}", 0, NULL },
    { "{" TENSOR("a", "U64", "[0,18446744073709551615,18446744073709551615]", "[0,0]") "}", 0, NULL },
    { "{" TENSOR("a", "F4", "[4]", "[0,2]") "}", 2, NULL },
    { "{" TENSOR("a", "F6_E2M3", "[4]", "[0,3]") "}", 3, NULL },
    { "{" TENSOR("a", "F6_E3M2", "[8]", "[0,6]") "}", 6, NULL },
    { "{" TENSOR("\\/\\b\\f\\n\\r\\t\\\"\\\\\\u00e9\\u00E9\\ud83d\\ude00\\uFFFF\x7F\xC3\xA9", "U8", "[2]", "[0,2]") "}", 2, NULL },
    { "{\"a\":{\"d\\u0074ype\":\"U\\u0038\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, NULL },
    { "{\"__metadata__\":{}," A "}", 2, NULL },
    { "{" A ",\"__met\\u0061data__\":{\"format\":\"pt\",\"\":\"\"}}", 2, NULL },
    { "{\"a\":{\"x\":[1e5,-0.5,-0,0.25E-7,true,false,null,\"\\u00e9\",{\"a\":{},\"b\":[]},[[],[1,2]]],\"dtype\":\"U8\",\"x\":1,\"shape\":[2],\"data_offsets\":[0,2]}}", 2, NULL },
    { "{\"__metadata__\":null," A "}", 2, "tensors: metadata are not an object at byte 24" },
    { "{\"__metadata__\":{\"a\":1}," A "}", 2, "tensors: a text is missing at byte 29" },
    { "{\"__metadata__\":{\"a\":\"\",\"b\":\"\",\"\\u0061\":\"\"}," A "}", 2, "tensors: key of metadata occurs twice at byte 39" },
    { "{\"__metadata__\":{},\"__metadata__\":{}," A "}", 2, "tensors: __metadata__ occurs twice at byte 27" },
    { "{" A "," TENSOR("\\u0061", "U8", "[1]", "[2,3]") "}", 3, "tensors: name occurs twice at byte 61" },
    { "{" A "}x", 2, "tensors: something follows the header's object at byte 61" },
    { "{" A "," "}", 2, "tensors: a text is missing at byte 61" },
    { "[]", 0, "tensors: the header is not an object at byte 8" },
    { "\xEF\xBB\xBF{}", 0, "tensors: the header is not an object at byte 8" },
    { "{", 0, "tensors: a text is missing at byte 9" },
    { "{\"a\":null}", 0, "tensors: a tensor is not an object at byte 13" },
    { "{\"a\":[\"U8\",[2],[0,2]]}", 2, "tensors: a tensor is not an object at byte 13" },
    { "{\"a\" {}}", 0, "tensors: a colon is missing at byte 13" },
    { "{\"a\":{}}", 0, "tensors: dtype is missing at byte 9" },
    { "{\"a\":{\"dtype\":\"U8\"}}", 0, "tensors: shape is missing at byte 9" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[]}}", 1, "tensors: data_offsets is missing at byte 9" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"shape\":[2],\"data_offsets\":[0,2]}}", 2, "tensors: shape occurs twice at byte 39" },
    { "{" TENSOR("a", "u8", "[2]", "[0,2]") "}", 2, "tensors: dtype is unknown at byte 22" },
    { "{" TENSOR("a", "F8_E4M3FNUZ_and_more", "[2]", "[0,2]") "}", 2, "tensors: dtype is unknown at byte 22" },
    { "{\"a\":{\"dtype\":{\"U8\":null},\"shape\":[2],\"data_offsets\":[0,2]}}", 2, "tensors: a text is missing at byte 22" },
    { "{" TENSOR("a", "U8", "[2.0]", "[0,2]") "}", 2, "tensors: shape is not a decimal integer at byte 36" },
    { "{" TENSOR("a", "U8", "[2e0]", "[0,2]") "}", 2, "tensors: shape is not a decimal integer at byte 36" },
    { "{" TENSOR("a", "U8", "[02]", "[0,2]") "}", 2, "tensors: shape is not a decimal integer at byte 36" },
    { "{" TENSOR("a", "U8", "[-2]", "[0,2]") "}", 2, "tensors: shape is not a decimal integer at byte 36" },
    { "{" TENSOR("a", "U8", "[2,]", "[0,2]") "}", 2, "tensors: shape is not a decimal integer at byte 38" },
    { "{" TENSOR("a", "U8", "[18446744073709551616]", "[0,2]") "}", 2, "tensors: shape is too large for 64 bits at byte 36" },
    { "{" TENSOR("a", "U8", "null", "[0,2]") "}", 2, "tensors: a list is missing at byte 35" },
    { "{" TENSOR("a", "U8", "[2]", "[-0,2]") "}", 2, "tensors: data_offsets is not a decimal integer at byte 55" },
    { "{" TENSOR("a", "U8", "[2]", "[0]") "}", 2, "tensors: data_offsets are two numbers at byte 56" },
    { "{" TENSOR("a", "U8", "[2]", "[0,2,3]") "}", 2, "tensors: data_offsets are two numbers at byte 58" },
    { "{" TENSOR("a", "U8", "[2]", "[0,3]") "}", 3, "tensors: end - begin 3 at byte 9, the shape has 2" },
    { "{" TENSOR("a", "U8", "[2]", "[0,1]") "}", 3, "tensors: end - begin 1 at byte 9, the shape has 2" },
    { "{" TENSOR("a", "U8", "[2]", "[2,0]") "}", 3, "tensors: end 0 at byte 9, at least begin 2" },
    { "{" TENSOR("a", "U8", "[4]", "[0,4]") "}", 3, "tensors: end 4 at byte 9, limit 3" },
    { "{" TENSOR("a", "F4", "[3]", "[0,1]") "}", 1, "tensors: shape does not fill whole bytes at byte 9" },
    { "{" TENSOR("a", "F4", "[3]", "[0,2]") "}", 2, "tensors: shape does not fill whole bytes at byte 9" },
    { "{" TENSOR("a", "U64", "[4294967296,4294967295]", "[0,0]") "}", 0, "tensors: shape is too large for 64 bits at byte 9" },
    { "{" TENSOR("a", "U8", "[18446744073709551615,2,0]", "[0,0]") "}", 0, "tensors: shape is too large for 64 bits at byte 57" },
    { "{" A "}", 3, "tensors: data_bytes 3, the tensors end at 2" },
    { "{}", 1, "tensors: data_bytes 1, the tensors end at 0" },
    { "{" TENSOR("a", "U8", "[2]", "[1,3]") "}", 3, "tensors: begin 1 at byte 9, leaves a hole after 0" },
    { "{" TENSOR("b", "U8", "[1]", "[3,4]") "," A "}", 4, "tensors: begin 3 at byte 9, leaves a hole after 2" },
    { "{" TENSOR("b", "U8", "[2]", "[1,3]") "," A "}", 3, "tensors: begin 1 at byte 9, overlaps what ends at 2" },
    { "{\"\\u0000\":{}}", 0, "tensors: a text has the character 0 at byte 10" },
    { "{\"\\ud800\":{}}", 0, "tensors: a text has half a surrogate pair at byte 10" },
    { "{\"\\udc00\":{}}", 0, "tensors: a text has half a surrogate pair at byte 10" },
    { "{\"\\ud800\\u0041\":{}}", 0, "tensors: a text has half a surrogate pair at byte 10" },
    { "{\"\\ud800\\ud800\":{}}", 0, "tensors: a text has half a surrogate pair at byte 10" },
    { "{\"\\ud800", 0, "tensors: a text has half a surrogate pair at byte 10" },
    { "{\"\\ud800\\", 0, "tensors: a text has half a surrogate pair at byte 10" },
    { "{\"\\ud8", 0, "tensors: an escape is cut off at byte 14" },
    { "{\"\\", 0, "tensors: an unknown escape at byte 10" },
    { "{\"\\u00g0\":{}}", 0, "tensors: an escape is cut off at byte 14" },
    { "{\"\\x\":{}}", 0, "tensors: an unknown escape at byte 10" },
    { "{\"\n\":{}}", 0, "tensors: a text has a control character at byte 10" },
    { "{\"\xFF\":{}}", 0, "tensors: a text is not UTF-8 at byte 10" },
    { "{\"\xC0\x80\":{}}", 0, "tensors: a text is not UTF-8 at byte 10" },
    { "{\"\xED\xA0\x80\":{}}", 0, "tensors: a text is not UTF-8 at byte 10" },
    { "{\"\xF0\x9F\x98", 0, "tensors: a text is not UTF-8 at byte 10" },
    { "{\"abc", 0, "tensors: a text does not end at byte 10" },
    { "{\"a\":{\"x\":tru}}", 0, "tensors: an unknown value at byte 18" },
    { "{\"a\":{\"x\":}}", 0, "tensors: a value is missing, or a number is too long at byte 18" },
    { "{\"a\":{\"x\":01}}", 0, "tensors: a value is missing, or a number is too long at byte 18" },
    { "{\"a\":{\"x\":1.}}", 0, "tensors: a value is missing, or a number is too long at byte 18" },
    { "{\"a\":{\"x\":1e}}", 0, "tensors: a value is missing, or a number is too long at byte 18" },
    { "{\"a\":{\"x\":1e100}}", 0, "tensors: a value is missing, or a number is too long at byte 18" },
    { "{\"a\":{\"x\":11111111111111111111111111111111111111111111111111111111111111111}}", 0,
      "tensors: a value is missing, or a number is too long at byte 18" },
    { "{\"a\":{\"x\":[1,]}}", 0, "tensors: a value is missing, or a number is too long at byte 21" },
    { "{\"a\":{\"x\":[1}}", 0, "tensors: a comma or the end of a list is missing at byte 20" },
    { "{\"a\":{\"x\":{\"y\" 1}}}", 0, "tensors: a colon is missing at byte 23" },
    { "{\"a\":{\"x\":{1:1}}}", 0, "tensors: a text is missing at byte 19" },
};
static void table(void) {
    memopt_tensors t; size_t i;
    for (i = 0; i < sizeof tensors_rows / sizeof *tensors_rows; ++i) {
        const memopt_i_tensors_source s = tensors_file(tensors_rows[i].text, strlen(tensors_rows[i].text), tensors_rows[i].data);
        const memopt_status status = tensors_read(&s, &t);
        CHECK_AT((status == MEMOPT_OK) == !tensors_rows[i].why, i);
        if (tensors_rows[i].why) CHECK_AT(status == MEMOPT_ERR_FORMAT && test_says(&tensors_why, status, tensors_rows[i].why), i);
        else tensors_consistent(&t);
    }
}
static void what_is_read(void) {
    static const char text[] = "{\"b\":{\"dtype\":\"F32\",\"shape\":[2,0,1],\"data_offsets\":[6,6]},\"__metadata__\":{\"z\":\"1\\t\",\"format\":\"pt\"},"
        "\"\\u0041\\u00e9\\u20AC\\uD83D\\uDE00\":{\"dtype\":\"BF16\",\"shape\":[3,1],\"data_offsets\":[0,6]}}";
    const memopt_i_tensors_source s = tensors_file(text, sizeof text - 1, 6); memopt_tensors t;
    CHECK(tensors_read(&s, &t) == MEMOPT_OK);
    CHECK(t.count == 2 && t.metadata_count == 2 && t.data_begin == 8 + sizeof text - 1 && t.data_bytes == 6);
    CHECK(strcmp(t.tensors[0].name, "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80") == 0 && t.tensors[0].type == MEMOPT_TENSOR_BF16);
    CHECK(t.tensors[0].rank == 2 && t.tensors[0].shape[0] == 3 && t.tensors[0].shape[1] == 1);
    CHECK(t.tensors[0].begin == 0 && t.tensors[0].end == 6);
    CHECK(strcmp(t.tensors[1].name, "b") == 0 && t.tensors[1].type == MEMOPT_TENSOR_F32 && t.tensors[1].rank == 3);
    CHECK(t.tensors[1].shape[0] == 2 && t.tensors[1].shape[1] == 0 && t.tensors[1].begin == 6 && t.tensors[1].end == 6);
    CHECK(strcmp(t.metadata[0].key, "z") == 0 && strcmp(t.metadata[0].value, "1\t") == 0);
    CHECK(memopt_tensors_value(&t, "format") && strcmp(memopt_tensors_value(&t, "format"), "pt") == 0);
    CHECK(memopt_tensors_find(&t, "b") == &t.tensors[1] && !memopt_tensors_find(&t, "c") && !memopt_tensors_find(&t, ""));
    CHECK(!memopt_tensors_value(&t, "") && !memopt_tensors_value(&t, "b") && !memopt_tensors_value(NULL, "b"));
    CHECK(!memopt_tensors_find(NULL, "b") && !memopt_tensors_find(&t, NULL) && !memopt_tensors_value(&t, NULL));
}
static void escapes(void) { /* where the lengths of UTF-8 change, and the ends of surrogates */
    static const char text[] = "{\"__metadata__\":{\"k\":\"\\u0001\\u007f\\u0080\\u07ff\\u0800\\ud7ff\\ue000\\uffff\\ud800\\udc00\\udbff\\udfff\"}}";
    const memopt_i_tensors_source s = tensors_file(text, sizeof text - 1, 0); memopt_tensors t;
    CHECK(tensors_read(&s, &t) == MEMOPT_OK && t.metadata_count == 1);
    CHECK(strcmp(t.metadata[0].value, "\x01\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\xF0\x90\x80\x80\xF4\x8F\xBF\xBF") == 0);
}
static void types(void) { /* the names and bits of the format */
    static const struct { memopt_tensor_type type; const char *name; size_t bits; } rows[] = {
        { MEMOPT_TENSOR_BOOL, "BOOL", 8 }, { MEMOPT_TENSOR_F4, "F4", 4 }, { MEMOPT_TENSOR_F6_E2M3, "F6_E2M3", 6 },
        { MEMOPT_TENSOR_F6_E3M2, "F6_E3M2", 6 }, { MEMOPT_TENSOR_U8, "U8", 8 }, { MEMOPT_TENSOR_I8, "I8", 8 },
        { MEMOPT_TENSOR_F8_E5M2, "F8_E5M2", 8 }, { MEMOPT_TENSOR_F8_E4M3, "F8_E4M3", 8 }, { MEMOPT_TENSOR_F8_E8M0, "F8_E8M0", 8 },
        { MEMOPT_TENSOR_F8_E4M3FNUZ, "F8_E4M3FNUZ", 8 }, { MEMOPT_TENSOR_F8_E5M2FNUZ, "F8_E5M2FNUZ", 8 },
        { MEMOPT_TENSOR_I16, "I16", 16 }, { MEMOPT_TENSOR_U16, "U16", 16 }, { MEMOPT_TENSOR_F16, "F16", 16 },
        { MEMOPT_TENSOR_BF16, "BF16", 16 }, { MEMOPT_TENSOR_I32, "I32", 32 }, { MEMOPT_TENSOR_U32, "U32", 32 },
        { MEMOPT_TENSOR_F32, "F32", 32 }, { MEMOPT_TENSOR_C64, "C64", 64 }, { MEMOPT_TENSOR_F64, "F64", 64 },
        { MEMOPT_TENSOR_I64, "I64", 64 }, { MEMOPT_TENSOR_U64, "U64", 64 } };
    size_t i;
    for (i = 0; i < 22; ++i) {
        const char *name = memopt_tensor_type_name(rows[i].type);
        CHECK_AT(name && strcmp(name, rows[i].name) == 0 && memopt_tensor_type_bits(rows[i].type) == rows[i].bits, i);
    }
    CHECK(!memopt_tensor_type_name((memopt_tensor_type)test_number_of(22)) && !memopt_tensor_type_bits((memopt_tensor_type)test_number_of(22)));
    CHECK(!memopt_tensor_type_name((memopt_tensor_type)test_number_of(-1)) && !memopt_tensor_type_bits((memopt_tensor_type)test_number_of(-1)));
}

/* Written by safetensors.numpy.save() of 0.8.0 from the same list. */
static const char golden_text[] =
    "{\"__metadata__\":{\"z\":\"1\\t\",\"a\":\"q\",\"format\":\"pt\"},"
    "\"\xC3\xA9" "12\":{\"dtype\":\"U64\",\"shape\":[2,1],\"data_offsets\":[0,16]},"
    "\"a11\":{\"dtype\":\"I64\",\"shape\":[2,1],\"data_offsets\":[16,32]},"
    "\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[32,40]},"
    "\"b10\":{\"dtype\":\"F64\",\"shape\":[2,1],\"data_offsets\":[40,56]},"
    "\"\xF0\x9F\x98\x80" "9\":{\"dtype\":\"C64\",\"shape\":[2,1],\"data_offsets\":[56,72]},"
    "\"A\\n\\\"\\\\\\u0001\x7F" "8\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[72,80]},"
    "\"a16\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[80,88]},"
    "\"e\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[88,88]},"
    "\"\xC3\xA9" "7\":{\"dtype\":\"U32\",\"shape\":[2,1],\"data_offsets\":[88,96]},"
    "\"a6\":{\"dtype\":\"I32\",\"shape\":[2,1],\"data_offsets\":[96,104]},"
    "\"b5\":{\"dtype\":\"F16\",\"shape\":[2,1],\"data_offsets\":[104,108]},"
    "\"\xF0\x9F\x98\x80" "4\":{\"dtype\":\"U16\",\"shape\":[2,1],\"data_offsets\":[108,112]},"
    "\"A\\n\\\"\\\\\\u0001\x7F" "3\":{\"dtype\":\"I16\",\"shape\":[2,1],\"data_offsets\":[112,116]},"
    "\"\xC3\xA9" "2\":{\"dtype\":\"I8\",\"shape\":[2,1],\"data_offsets\":[116,118]},"
    "\"A\\n\\\"\\\\\\u0001\x7F" "13\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[118,120]},"
    "\"a1\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[120,122]},"
    "\"b15\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[122,124]},"
    "\"\xF0\x9F\x98\x80" "14\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[124,126]},"
    "\"b0\":{\"dtype\":\"BOOL\",\"shape\":[2,1],\"data_offsets\":[126,128]}}     ";
static const memopt_tensor_metadata golden_metadata[3] = { { "z", "1\t" }, { "a", "q" }, { "format", "pt" } };
static size_t golden_list(memopt_tensor list[19]) {
    static const uint64_t shape[2] = { 2, 1 }, empty[2] = { 0, 3 };
    static const char *const names[17] = { "b0", "a1", "\xC3\xA9" "2", "A\n\"\\\x01\x7F" "3", "\xF0\x9F\x98\x80" "4", "b5", "a6", "\xC3\xA9" "7",
        "A\n\"\\\x01\x7F" "8", "\xF0\x9F\x98\x80" "9", "b10", "a11", "\xC3\xA9" "12", "A\n\"\\\x01\x7F" "13", "\xF0\x9F\x98\x80" "14", "b15", "a16" };
    static const memopt_tensor_type of[17] = { MEMOPT_TENSOR_BOOL, MEMOPT_TENSOR_U8, MEMOPT_TENSOR_I8, MEMOPT_TENSOR_I16, MEMOPT_TENSOR_U16,
        MEMOPT_TENSOR_F16, MEMOPT_TENSOR_I32, MEMOPT_TENSOR_U32, MEMOPT_TENSOR_F32, MEMOPT_TENSOR_C64, MEMOPT_TENSOR_F64, MEMOPT_TENSOR_I64,
        MEMOPT_TENSOR_U64, MEMOPT_TENSOR_U8, MEMOPT_TENSOR_U8, MEMOPT_TENSOR_U8, MEMOPT_TENSOR_F32 };
    size_t i;
    for (i = 0; i < 17; ++i) list[i] = tensors_make(names[i], of[i], 2, shape);
    list[17] = tensors_make("e", MEMOPT_TENSOR_F32, 2, empty);
    list[18] = tensors_make("s", MEMOPT_TENSOR_I64, 0, NULL);
    return 19;
}
static void golden(void) {
    unsigned char text[8192]; memopt_tensor list[19]; memopt_tensors_desc d; size_t bytes = 0, i;
    memset(&d, 0, sizeof d);
    d.tensors = list; d.count = golden_list(list); d.metadata = golden_metadata; d.metadata_count = 3; d.error = &tensors_why;
    CHECK(memopt_tensors_write(&d, NULL, 0, &bytes) == MEMOPT_ERR_BUFFER && bytes == 8 + sizeof golden_text - 1);
    CHECK(test_says(&tensors_why, MEMOPT_ERR_BUFFER, "tensors: capacity 0, at least 1232"));
    CHECK(list[0].begin == 126 && list[0].end == 128 && list[12].begin == 0 && list[12].end == 16 && list[17].begin == 88 && list[17].end == 88);
    memset(text, 0xEE, sizeof text);
    CHECK(memopt_tensors_write(&d, text, bytes - 1, NULL) == MEMOPT_ERR_BUFFER && text[0] == 0xEE);
    bytes = 0;
    CHECK(memopt_tensors_write(&d, text, sizeof text, &bytes) == MEMOPT_OK && bytes == 8 + sizeof golden_text - 1);
    for (i = 0; i < 8; ++i) CHECK(text[i] == (unsigned char)((uint64_t)(bytes - 8) >> 8 * i));
    CHECK(memcmp(text + 8, golden_text, bytes - 8) == 0 && text[bytes] == 0xEE);
    d.alignment = 4096;
    CHECK(memopt_tensors_write(&d, text, sizeof text, &bytes) == MEMOPT_OK && bytes == 4096 && text[0] == 0xF8 && text[1] == 0x0F && text[2] == 0);
    CHECK(memcmp(text + 8, golden_text, sizeof golden_text - 1) == 0 && text[4096] == 0xEE);
    for (i = 8 + sizeof golden_text - 1; i < 4096; ++i) CHECK(text[i] == ' ');
    memset(&d, 0, sizeof d);
    CHECK(memopt_tensors_write(&d, text, sizeof text, &bytes) == MEMOPT_OK && bytes == 16 && memcmp(text, "\x08\0\0\0\0\0\0\0{}      ", 16) == 0);
    d.metadata = golden_metadata + 1; d.metadata_count = 1;
    CHECK(memopt_tensors_write(&d, text, sizeof text, &bytes) == MEMOPT_OK && bytes == 40 && memcmp(text + 8, "{\"__metadata__\":{\"a\":\"q\"}}      ", 32) == 0);
}
static void random_round_trips(void) { /* names of few letters, so that some occur twice */
    static const char *const letters[8] = { "a", "b", ".", "\"", "\x1F", "\xC3\xA9", "\xF0\x9F\x98\x80", "/" };
    static char names[40][32]; static uint64_t shapes[40][4]; memopt_tensor list[20]; memopt_tensor_metadata metadata[20];
    static unsigned char text[1 << 15]; uint64_t seed = 7; size_t round, i, k;
    for (round = 0; round < 2000; ++round) {
        memopt_tensors_desc d; memopt_i_tensors_source s; memopt_tensors t; memopt_status status; size_t bytes = 0, twice = 0;
        memset(&d, 0, sizeof d); memset(&s, 0, sizeof s);
        d.tensors = list; d.count = test_below(&seed, 20); d.metadata = metadata; d.metadata_count = test_below(&seed, 20);
        d.alignment = round % 3 ? 0 : (size_t)8 << test_below(&seed, 6);
        for (i = 0; i < 40; ++i)
            for (names[i][0] = 0, k = test_below(&seed, 7); k-- > 0;) strcat(names[i], letters[test_below(&seed, 8)]);
        for (i = 0; i < 20; ++i) {
            list[i] = tensors_make(names[i], (memopt_tensor_type)test_below(&seed, 22), test_below(&seed, 5), shapes[i]);
            for (k = 0; k < 4; ++k) shapes[i][k] = test_below(&seed, 4) * 8 / (1 + 7 * test_below(&seed, 2));
            if (memopt_tensor_type_bits(list[i].type) < 8) { list[i].rank = 4; shapes[i][3] = 8; }
            metadata[i].key = names[20 + i]; metadata[i].value = names[test_below(&seed, 40)];
        }
        for (i = 0; i < d.count; ++i) for (k = 0; k < i; ++k) twice |= strcmp(names[i], names[k]) == 0;
        for (i = 0; i < d.metadata_count; ++i) for (k = 0; k < i; ++k) twice |= strcmp(names[20 + i], names[20 + k]) == 0;
        status = memopt_tensors_write(&d, text, sizeof text, &bytes);
        CHECK_AT(status == (twice ? MEMOPT_ERR_ARGUMENT : MEMOPT_OK), round);
        if (status) continue;
        CHECK_AT(bytes % (d.alignment ? d.alignment : 8) == 0, round);
        s.header = text; s.header_bytes = bytes; s.file_bytes = bytes;
        for (i = 0; i < d.count; ++i) s.file_bytes += list[i].end - list[i].begin;
        CHECK_AT(tensors_read(&s, &t) == MEMOPT_OK && t.count == d.count && t.metadata_count == d.metadata_count, round);
        for (i = 0; i < d.count; ++i) {
            const memopt_tensor *x = memopt_tensors_find(&t, names[i]);
            CHECK_AT(x && tensors_same(x, &list[i]), round);
        }
        for (i = 0; i + 1 < t.count; ++i)
            CHECK_AT(t.tensors[i].type > t.tensors[i + 1].type || t.tensors[i].begin == t.tensors[i + 1].begin || t.tensors[i + 1].begin
                     == t.tensors[i + 1].end || strcmp(t.tensors[i].name, t.tensors[i + 1].name) < 0, round);
        for (i = 0; i < d.metadata_count; ++i)
            CHECK_AT(strcmp(t.metadata[i].key, metadata[i].key) == 0 && strcmp(t.metadata[i].value, metadata[i].value) == 0, round);
    }
}
static void truncations_and_flips(void) {
    static const char text[] = "{\"__metadata__\":{\"k\\u00e9\":\"v\"},\"a\\n\":{\"dtype\":\"F16\",\"shape\":[2,2],\"x\":[1.5e3,{\"y\":null}],\"data_offsets\":[2,10]},"
        "\"b\xC3\xA9\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}   ";
    const size_t length = sizeof text - 1; memopt_tensors t; size_t at, accepted = 0;
    for (at = 0; at < length; ++at) { /* a file that ends there; and a text that does, in a file that goes on */
        char cut[sizeof text]; memopt_i_tensors_source s; memopt_status status;
        memcpy(cut, text, at);
        s = tensors_file(cut, at, 10);
        status = tensors_read(&s, &t);
        CHECK_AT((status == MEMOPT_OK) == (at >= length - 3), at);
        if (status) CHECK_AT(status == MEMOPT_ERR_FORMAT && tensors_why.status == status && tensors_why.reason, at);
        s = tensors_file(text, length, 10);
        s.file_bytes = 8 + at;
        CHECK_AT(tensors_read(&s, &t) == MEMOPT_ERR_FORMAT, at);
        s.file_bytes = 8 + length + 10; s.header_bytes = 8 + at;
        CHECK_AT(tensors_read(&s, &t) == MEMOPT_ERR_ARGUMENT, at);
    }
    for (at = 0; at < 8 * (8 + length); ++at) {
        memopt_i_tensors_source s = tensors_file(text, length, 10);
        ((unsigned char *)(uintptr_t)s.header)[at / 8] ^= (unsigned char)(1u << at % 8);
        if (tensors_read(&s, &t)) continue;
        ++accepted;
        tensors_consistent(&t);
    }
    CHECK(accepted > 50 && accepted < 8 * length / 4);
}
static void nesting(void) { /* as deep as the reference goes: 127 lists, of which the header and the tensor are two */
    size_t depth, length; memopt_tensors t;
    for (depth = 100; depth < 3000; depth += depth < 130 ? 1 : 700) {
        char text[8192]; memopt_i_tensors_source s;
        strcpy(text, "{\"a\":{\"x\":");
        for (length = strlen(text); length < 10 + depth; ++length) text[length] = '[';
        for (; length < 10 + 2 * depth; ++length) text[length] = ']';
        strcpy(text + length, ",\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}");
        s = tensors_file(text, strlen(text), 2);
        CHECK_AT((tensors_read(&s, &t) == MEMOPT_OK) == (depth <= 125), depth);
        if (depth > 125) CHECK(test_says(&tensors_why, MEMOPT_ERR_FORMAT, "tensors: values are nested too deeply at byte 143"));
    }
}
static void lengths(void) {
    unsigned char file[16] = { 2, 0, 0, 0, 0, 0, 0, 0, '{', '}', ' ', ' ', ' ', ' ', ' ', ' ' }; memopt_i_tensors_source s; memopt_tensors t; memopt_error *why; size_t bytes = 77;
    memset(&s, 0, sizeof s);
    s.header = file; s.header_bytes = 8; s.file_bytes = 10;
    CHECK(tensors_header(&s, &bytes, NULL) == MEMOPT_OK && bytes == 10);
    bytes = 77;
    CHECK(tensors_read(&s, &t) == MEMOPT_ERR_ARGUMENT && test_says(&tensors_why, MEMOPT_ERR_ARGUMENT, "tensors: header_bytes 8, at least 10"));
    REFUSES(why, s.file_bytes = 9, tensors_header(&s, &bytes, why), MEMOPT_ERR_FORMAT, "tensors: header 2, limit 1");
    REFUSES(why, s.file_bytes = 7, tensors_header(&s, &bytes, why), MEMOPT_ERR_FORMAT, "tensors: file_bytes 7, at least 8");
    REFUSES(why, (s.file_bytes = 8, file[0] = 0), tensors_header(&s, &bytes, why), MEMOPT_ERR_FORMAT, "tensors: header is empty");
    s.file_bytes = UINT64_MAX; file[0] = 0; file[1] = 0xE1; file[2] = 0xF5; file[3] = 5; /* 100,000,000 */
    ACCEPTS(why, (void)0, tensors_header(&s, &bytes, why));
    CHECK(bytes == 100000008);
    REFUSES(why, (file[0] = 1, bytes = 77), tensors_header(&s, &bytes, why), MEMOPT_ERR_FORMAT, "tensors: header 100000001, limit 100000000");
    memset(file, 0xFF, 8);
    REFUSES(why, (void)0, tensors_header(&s, &bytes, why), MEMOPT_ERR_FORMAT, "tensors: header 18446744073709551615, limit 100000000");
    REFUSES(why, s.header_bytes = 7, tensors_header(&s, &bytes, why), MEMOPT_ERR_ARGUMENT, "tensors: header_bytes 7, at least 8");
    REFUSES(why, s.header = NULL, tensors_header(&s, &bytes, why), MEMOPT_ERR_ARGUMENT, "tensors: header is NULL");
    CHECK(bytes == 77);
}
static void memory_of_its_own(void) {
    static const char text[] = "{" A "}"; memopt_i_tensors_source s = tensors_file(text, sizeof text - 1, 2); memopt_tensors t, before;
    memset(&t, 0x77, sizeof t);
    before = t;
    --s.file_bytes;
    CHECK(tensors_read(&s, &t) == MEMOPT_ERR_FORMAT && memcmp(&t, &before, sizeof t) == 0);
    ++s.file_bytes;
    CHECK(tensors_read(&s, &t) == MEMOPT_OK);
    memset((void *)(uintptr_t)s.header, 0, s.header_bytes); /* the header may go */
    CHECK(t.count == 1 && strcmp(t.tensors[0].name, "a") == 0 && t.tensors[0].shape[0] == 2);
    s = tensors_file("{}", 2, 0);
    CHECK(tensors_read(&s, &t) == MEMOPT_OK && !t.count);
}
/* Many tensors, the last ones first. */
static void many(void) {
    const size_t count = 20000; size_t i, length = 0, bytes = 0; memopt_i_tensors_source s; memopt_tensors t;
    memopt_i_checks c = memopt_i_checks_begin(NULL, "tensors"); memopt_host host;
    char *text = (char *)malloc(count * 96 + 64); void *memory;
    if (!text) { CHECK(0); return; }
    memset(&s, 0, sizeof s);
    text[8] = '{';
    for (i = 0, length = 9; i < count; ++i)
        length += (size_t)sprintf(text + length, "%s\"layer.%u.weight\":{\"dtype\":\"U8\",\"shape\":[1,1],\"data_offsets\":[%u,%u]}", i ? "," : "",
                                  (unsigned)(i * 7919 % count), (unsigned)(count - 1 - i), (unsigned)(count - i));
    text[length++] = '}';
    for (i = 0; i < 8; ++i) text[i] = (char)((uint64_t)(length - 8) >> 8 * i);
    s.header = text; s.header_bytes = length; s.file_bytes = length + count;
    CHECK(memopt_host_resolve(NULL, &host) == MEMOPT_OK && memopt_i_tensors_read(&c, &host, &s, 0, &memory, &bytes, &t) == MEMOPT_OK && t.count == count);
    for (i = 0; !test_failures && i < count; ++i) {
        char name[32];
        sprintf(name, "layer.%u.weight", (unsigned)i);
        CHECK_AT(t.tensors[i].begin == i && memopt_tensors_find(&t, name) && strcmp(memopt_tensors_find(&t, name)->name, name) == 0, i);
    }
    memopt_i_free(&host, memory, bytes, 64); free(text);
}
/* Equal keys of the sort are put in order by their texts, and what is equal stays as it was. */
static void sort_by_text(void) {
    memopt_tensor list[257]; memopt_i_tensors_key keys[257], spare[257]; char names[257][4]; uint64_t seed = 3; size_t i, n;
    memset(list, 0, sizeof list);
    for (n = 0; n <= 257; ++n) {
        for (i = 0; i < n; ++i) {
            sprintf(names[i], "%c%c", (int)('a' + test_below(&seed, 6)), (int)('a' + test_below(&seed, 6)));
            list[i] = tensors_make(names[i], MEMOPT_TENSOR_U8, 0, NULL);
            keys[i] = memopt_i_tensors_key_of(test_below(&seed, 2), i, i);
        }
        memopt_i_tensors_sort(keys, spare, n, memopt_i_before_by_name, list);
        for (i = 1; i < n; ++i) {
            const int order = strcmp(names[keys[i - 1].index], names[keys[i].index]);
            CHECK_AT(keys[i - 1].key < keys[i].key || (keys[i - 1].key == keys[i].key && (order < 0 || (!order && keys[i - 1].index < keys[i].index))), n);
        }
    }
}
static void write_refuses(void) {
    static const uint64_t huge[2] = { UINT64_C(1) << 61, 8 }, odd[1] = { 3 }; unsigned char text[512]; memopt_tensor list[3], before[3];
    memopt_tensor_metadata metadata[2]; memopt_tensors_desc d; size_t bytes = 77; char *big = (char *)malloc(100000001);
    memset(&d, 0, sizeof d); memset(list, 0, sizeof list);
    list[0] = tensors_make("a", MEMOPT_TENSOR_U8, 1, odd); list[1] = tensors_make("b", MEMOPT_TENSOR_F32, 1, odd); list[2] = tensors_make("c", MEMOPT_TENSOR_F32, 1, odd);
    metadata[0].key = "k"; metadata[0].value = "v"; metadata[1] = metadata[0];
    d.tensors = list; d.count = 3; d.metadata = metadata; d.metadata_count = 1;
    memcpy(before, list, sizeof list);
#define WRITE memopt_tensors_write(&d, text, sizeof text, &bytes)
    REFUSES(d.error, list[2].name = "a", WRITE, MEMOPT_ERR_ARGUMENT, "tensors: name occurs twice at tensor 2");
    REFUSES(d.error, list[2].name = NULL, WRITE, MEMOPT_ERR_ARGUMENT, "tensors: name is NULL at tensor 2");
    REFUSES(d.error, list[2].name = "\xC3", WRITE, MEMOPT_ERR_ARGUMENT, "tensors: name is not UTF-8 at tensor 2");
    REFUSES(d.error, list[2].name = "__metadata__", WRITE, MEMOPT_ERR_ARGUMENT, "tensors: name is the one of the metadata at tensor 2");
    list[2].name = "c";
    REFUSES(d.error, list[1].type = (memopt_tensor_type)test_number_of(22), WRITE, MEMOPT_ERR_ARGUMENT, "tensors: type is an invalid memopt_tensor_type at tensor 1");
    REFUSES(d.error, list[1].type = MEMOPT_TENSOR_F4, WRITE, MEMOPT_ERR_ARGUMENT, "tensors: shape does not fill whole bytes at tensor 1");
    REFUSES(d.error, list[1].shape = NULL, WRITE, MEMOPT_ERR_ARGUMENT, "tensors: shape is NULL at tensor 1");
    REFUSES(d.error, (list[1].shape = huge, list[1].rank = 2, list[1].type = MEMOPT_TENSOR_U8), WRITE, MEMOPT_ERR_OVERFLOW, "tensors: shape is too large for 64 bits at tensor 1");
    REFUSES(d.error, (list[1].rank = 1, list[1].type = MEMOPT_TENSOR_U64), WRITE, MEMOPT_ERR_OVERFLOW, "tensors: shape is too large for 64 bits at tensor 1");
    list[1] = before[1];
    CHECK(memcmp(before, list, sizeof list) == 0 && bytes == 77);
    REFUSES(d.error, d.metadata_count = 2, WRITE, MEMOPT_ERR_ARGUMENT, "tensors: key occurs twice at metadata 1");
    REFUSES(d.error, metadata[1].key = NULL, WRITE, MEMOPT_ERR_ARGUMENT, "tensors: key is NULL at metadata 1");
    REFUSES(d.error, (metadata[1].key = "l", metadata[1].value = NULL), WRITE, MEMOPT_ERR_ARGUMENT, "tensors: value is NULL at metadata 1");
    REFUSES(d.error, metadata[1].value = "\xFF", WRITE, MEMOPT_ERR_ARGUMENT, "tensors: value is not UTF-8 at metadata 1");
    metadata[1].value = "w";
    REFUSES(d.error, d.alignment = 24, WRITE, MEMOPT_ERR_ARGUMENT, "tensors: alignment 24, must be a power of two");
    REFUSES(d.error, d.alignment = 4, WRITE, MEMOPT_ERR_ARGUMENT, "tensors: alignment 4, at least 8");
    d.alignment = 0;
    REFUSES(d.error, d.tensors = NULL, WRITE, MEMOPT_ERR_ARGUMENT, "tensors: tensors is NULL");
    REFUSES(d.error, (d.tensors = list, d.metadata = NULL), WRITE, MEMOPT_ERR_ARGUMENT, "tensors: metadata is NULL");
    d.metadata = metadata;
    REFUSES(d.error, (void)0, memopt_tensors_write(&d, NULL, 8, &bytes), MEMOPT_ERR_ARGUMENT, "tensors: buffer is NULL");
    REFUSES(d.error, d.count = 100000001, WRITE, MEMOPT_ERR_ARGUMENT, "tensors: count 100000001, limit 100000000");
    d.count = 3;
    CHECK(memopt_tensors_write(NULL, text, sizeof text, &bytes) == MEMOPT_ERR_ARGUMENT && bytes == 77);
    if (big && TEST_STRIDE == 1) { /* one value alone fills the limit: 25 bytes stand around it */
        memset(big, 'x', 100000000);
        big[100000000 - 25] = 0;
        d.count = 0; d.metadata_count = 1; metadata[0].value = big;
        CHECK(memopt_tensors_write(&d, NULL, 0, &bytes) == MEMOPT_ERR_BUFFER && bytes == 100000008);
        bytes = 77;
        big[100000000 - 25] = 'x'; big[100000001 - 25] = 0;
        REFUSES(d.error, (void)0, WRITE, MEMOPT_ERR_ARGUMENT, "tensors: header 100000001, limit 100000000");
        big[100000000 - 25] = 0;
        d.alignment = 1 << 20;
        REFUSES(d.error, (void)0, WRITE, MEMOPT_ERR_ARGUMENT, "tensors: header 100663288, limit 100000000");
        CHECK(bytes == 77);
    }
    free(big);
}
static void sums_that_do_not_fit(void) { /* of sizes that do */
    static const uint64_t huge[1] = { UINT64_C(1) << 60 }; memopt_tensor list[16]; char names[16][2]; memopt_tensors_desc d; size_t i;
    memset(&d, 0, sizeof d);
    for (i = 0; i < 16; ++i) {
        names[i][0] = (char)('a' + i); names[i][1] = 0;
        list[i] = tensors_make(names[i], MEMOPT_TENSOR_U8, 1, huge);
    }
    d.tensors = list; d.count = 15;
    CHECK(memopt_tensors_write(&d, NULL, 0, NULL) == MEMOPT_ERR_BUFFER && list[14].end == UINT64_C(15) << 60);
    d.count = 16;
    REFUSES(d.error, (void)0, memopt_tensors_write(&d, NULL, 0, NULL), MEMOPT_ERR_OVERFLOW, "tensors: shape makes all together too large for 64 bits at tensor 15");
}
static memopt_status tensors_long_size(void *user, void *file, uint64_t *bytes) { (void)user; (void)file; *bytes = 1 << 20; return MEMOPT_OK; }
/* A file: every call of the host fails once. */
static void files(void) {
    static const char path[] = "test_tensors.tmp"; unsigned char text[4096]; memopt_tensor list[19]; memopt_tensors_desc d; memopt_host host;
    test_faults f; memopt_tensors *t = NULL; char line[256]; size_t bytes = 0, n; FILE *file = fopen(path, "wb");
    if (!file) { SKIP("no file can be made here"); return; }
    memset(&d, 0, sizeof d);
    d.tensors = list; d.count = golden_list(list); d.metadata = golden_metadata; d.metadata_count = 3;
    CHECK(memopt_tensors_write(&d, text, sizeof text - 128, &bytes) == MEMOPT_OK);
    memset(text + bytes, 1, 128);
    fwrite(text, 1, bytes + 128, file);
    fclose(file);
    for (n = 1; n < 100; ++n) {
        memopt_status s;
        memset(&f, 0, sizeof f);
        f.fail_on = n;
        host = test_host(&f);
        t = NULL;
        s = memopt_tensors_open(&host, path, &t, &tensors_why);
        CHECK_AT(s == MEMOPT_OK || (!t && f.live_blocks == 0 && (s == MEMOPT_ERR_IO || s == MEMOPT_ERR_MEMORY) && tensors_why.status == s), n);
        if (s) CHECK_AT(memopt_error_text(&tensors_why, line, sizeof line, NULL) == MEMOPT_OK && strncmp(line, "tensors: ", 9) == 0, n);
        if (!s) {
            CHECK_AT(f.live_blocks == 1 && t->count == 19 && t->data_begin == bytes && t->data_bytes == 128 && memopt_tensors_find(t, "e"), n);
            memopt_tensors_close(t);
        }
        CHECK_AT(f.live_blocks == 0 && f.bad_frees == 0, n);
        if (f.calls < n) break;
    }
    CHECK(n > 7 && n < 100);
    memset(&f, 0, sizeof f);
    host = test_host(&f);
    for (n = 0; n < bytes + 128; n += n < 12 ? 1 : 97) { /* cut anywhere */
        file = fopen(path, "wb");
        if (!file) { CHECK(0); break; }
        fwrite(text, 1, n, file);
        fclose(file);
        CHECK_AT(memopt_tensors_open(&host, path, &t, &tensors_why) == MEMOPT_ERR_FORMAT && tensors_why.status == MEMOPT_ERR_FORMAT && !f.live_blocks, n);
        if (n < 8) CHECK(test_says(&tensors_why, MEMOPT_ERR_FORMAT, "tensors: file ends within its header"));
    }
    host.files.size_fn = tensors_long_size; /* it was longer when its size was asked */
    file = fopen(path, "wb");
    if (file) {
        fwrite(text, 1, 100, file);
        fclose(file);
        CHECK(test_refused(memopt_tensors_open(&host, path, &t, &test_why), MEMOPT_ERR_FORMAT, "tensors: file ends within its header"));
        CHECK(!f.live_blocks && !f.bad_frees);
    }
    remove(path);
    CHECK(test_refused(memopt_tensors_open(&host, path, &t, &test_why), MEMOPT_ERR_IO, "tensors: file could not be opened"));
    CHECK(test_refused(memopt_tensors_open(NULL, NULL, &t, &test_why), MEMOPT_ERR_ARGUMENT, "tensors: path is NULL"));
    CHECK(test_refused(memopt_tensors_open(NULL, path, NULL, &test_why), MEMOPT_ERR_ARGUMENT, "tensors: out is NULL"));
    memopt_tensors_close(NULL);
    memset(&f, 0, sizeof f);
    f.fail_on = 1;
    d.host = &host;
    d.error = &test_why;
    CHECK(test_refused(memopt_tensors_write(&d, text, sizeof text, &bytes), MEMOPT_ERR_MEMORY, "tensors: no memory for it: asked 640 B"));
    CHECK(memopt_tensors_write(&d, text, sizeof text, &bytes) == MEMOPT_OK && f.live_blocks == 0 && !f.bad_frees && f.peak_bytes == 20 * 32);
}
#undef A
#undef TENSOR
#undef WRITE

void test_tensors(void);
void test_tensors(void) {
    RUN(table);
    RUN(what_is_read);
    RUN(escapes);
    RUN(types);
    RUN(golden);
    RUN(random_round_trips);
    RUN(truncations_and_flips);
    RUN(nesting);
    RUN(lengths);
    RUN(memory_of_its_own);
    RUN(many);
    RUN(sort_by_text);
    RUN(write_refuses);
    RUN(sums_that_do_not_fit);
    RUN(files);
}
#ifndef TEST_COMBINED
int main(void) { test_tensors(); return test_totals(); }
#endif
