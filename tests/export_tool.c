/* export_tool.c - write every export of a ledger with planted events, for check_exports.py to load and compare.

   Usage: export_tool SCENARIO REPORT JSON PICKLE TRACE LOG
   LOG receives what was booked, a call a line with its status: what the checker does again with a model of its own.
   0 nothing   1 planted numbers and names   2 blocks in segments and alone, none overlap   3 the same in a small ring
   4 small tables, blocks that overlap       5 lists of thousands */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include "../examples/parts/ledger_export.h"

static FILE *log_file;
static memopt_ledger *ledger;
static uint64_t seed, now;

static size_t below(size_t n) { /* splitmix64 */
    uint64_t z = (seed += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (size_t)((z ^ (z >> 31)) % n);
}
static memopt_status steady(void *user, uint64_t *nanoseconds) { (void)user; *nanoseconds = now += 700; return MEMOPT_OK; }
static void log_call(const char *call, uint64_t a, uint64_t b, uint64_t c, const char *name, int status) {
    fprintf(log_file, "%s %llu %llu %llu ", call, (unsigned long long)a, (unsigned long long)b, (unsigned long long)c);
    if (!name) fputs("-", log_file);
    for (fputs(name ? "x" : "", log_file); name && *name; ++name) fprintf(log_file, "%02x", (unsigned)(unsigned char)*name);
    fprintf(log_file, " %d\n", status);
}
static const void *at(uint64_t address) { return (const void *)(uintptr_t)address; } /* never looked into */
static void add(unsigned tag, uint64_t bytes, uint64_t address, const char *name) {
    log_call("add", tag, bytes, address, name, memopt_ledger_add(ledger, tag, (size_t)bytes, at(address), name));
}
static void drop(unsigned tag, uint64_t bytes, uint64_t address) {
    log_call("remove", tag, bytes, address, NULL, memopt_ledger_remove(ledger, tag, (size_t)bytes, at(address)));
}
static void failed(unsigned tag, uint64_t bytes)  { log_call("failed", tag, bytes, 0, NULL, memopt_ledger_failed(ledger, tag, (size_t)bytes)); }
static void retried(unsigned tag, uint64_t bytes) { log_call("retried", tag, bytes, 0, NULL, memopt_ledger_retried(ledger, tag, (size_t)bytes)); }
static void label(uint32_t step, uint32_t layer) { memopt_ledger_label(ledger, step, layer); log_call("label", step, layer, 0, NULL, 0); }
static void own_tag(const char *name) { memopt_tag tag = 0; log_call("tag", 0, 0, 0, name, memopt_ledger_tag_add(ledger, name, &tag)); }
static void reserve(uint64_t base, uint64_t bytes, uint64_t committed) {
    memopt_i_ledger_reserved(ledger, at(base), (size_t)bytes, (size_t)committed);
    log_call("reserve", base, bytes, committed, NULL, 0);
}
static void release(uint64_t base, uint64_t bytes, uint64_t committed) {
    memopt_i_ledger_released(ledger, at(base), (size_t)bytes, (size_t)committed);
    log_call("release", base, bytes, committed, NULL, 0);
}
static void commit(uint64_t start, uint64_t bytes) { memopt_i_ledger_commit_by(ledger, at(start), (size_t)bytes, 0); log_call("commit", start, bytes, 0, NULL, 0); }

static void planted(void) {
    static const char *const names[] = {
        "plain", "\"quoted\" and \\back\\slashed\\", "tab\t newline\n bell\a delete\x7f", "\xc3\xa9t\xc3\xa9 \xff\xfe",
        "\xe2\x82\xac \xf0\x9f\x98\x80 \xc0\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82", "", "/", "{}[],:", "'", "e(u.", NULL
    };
    static const int bits[] = { 4, 7, 8, 15, 16, 30, 31, 32, 33, 39, 40, 46, 47, 48, 52, 53, 54, 55, 56, 62, 63 };
    size_t i;
    own_tag("\"own\" \\ tag"); own_tag("\xf0\x9f\x98\x80"); own_tag("control\x01"); own_tag("thirty bytes and the euro sign\xe2\x82\xac cut");
    reserve(0x7f0000000000, (uint64_t)5 << 30, (uint64_t)3 << 30);
    for (i = 0; i < sizeof names / sizeof *names; ++i) {
        label((uint32_t)i, 0xffffffffu - (uint32_t)i);
        add((unsigned)(i % 12), ((uint64_t)1 << 28) + i, 0x7f0000000000 + ((uint64_t)i << 29), names[i]);
    }
    for (i = 0; i < sizeof bits / sizeof *bits; ++i) { /* around every place where the coding of a number changes */
        label(0xffffffffu, (uint32_t)bits[i]);
        add(8, 1, ((uint64_t)1 << bits[i]) - 1, NULL);
        add(8, 1, (uint64_t)1 << bits[i], "power of two");
    }
    add(9, 0, UINT64_MAX, NULL);
    add(9, (uint64_t)1 << 62, (uint64_t)3 << 60, "half of everything");
    add(9, UINT64_MAX, 16, "too much");
    failed(10, UINT64_MAX); failed(3, 3000000000u); retried(1, 0); failed(99, 1);
    drop(9, (uint64_t)1 << 62, (uint64_t)3 << 60);
    drop(9, 1, 12345);
}
/* Blocks of 64 to 4096 bytes in the places of some segments and between them. */
typedef struct place { unsigned tag; uint64_t bytes, committed; } place; /* bytes 0: nothing there; committed: of a segment */
static void churn(size_t operations, size_t places, int overlap) {
    static place blocks[9000], segments[64]; size_t n, i, k;
    memset(blocks, 0, sizeof blocks); memset(segments, 0, sizeof segments);
    for (n = 0; n < operations; ++n) {
        const size_t what = below(100), fill = n < operations / 2 ? 55 : 40;
        i = below(places); k = i / 16 % 64; /* sixteen places to a segment */
        if (what < fill && !blocks[i].bytes) {
            blocks[i].bytes = 1 + below(overlap ? 6000 : 4096); blocks[i].tag = (unsigned)below(8);
            add(blocks[i].tag, blocks[i].bytes, 0x7fff00000000 + i * 4096, below(2) ? NULL : "named");
        } else if (what < 90 && blocks[i].bytes) {
            drop(blocks[i].tag, blocks[i].bytes, 0x7fff00000000 + i * 4096);
            blocks[i].bytes = 0;
        } else if (what < 93 && k % 3 && i < 1024) { /* a segment comes or goes; blocks of it go before */
            const uint64_t base = 0x7fff00000000 + k * 65536; size_t b;
            for (b = k * 16; b < k * 16 + 16; ++b)
                if (blocks[b].bytes) { drop(blocks[b].tag, blocks[b].bytes, 0x7fff00000000 + b * 4096); blocks[b].bytes = 0; }
            if (segments[k].bytes) release(base, 65536, segments[k].committed); else { reserve(base, 65536, 4096); segments[k].committed = 4096; }
            segments[k].bytes = !segments[k].bytes;
        } else if (what < 95 && segments[k].bytes && segments[k].committed < 65536) {
            commit(0x7fff00000000 + k * 65536 + segments[k].committed, 4096);
            segments[k].committed += 4096;
        } else if (what < 97) label((uint32_t)(n / 50), (uint32_t)below(24));
        else if (what < 98) failed((unsigned)below(8), below(100000));
        else if (what < 99) retried((unsigned)below(8), below(100000));
        else if (!overlap) drop((unsigned)below(8), below(5000), 0x6000 + below(100)); /* no such block; seen where all are known */
    }
    for (k = 0; overlap && k < 64; ++k) if (segments[k].bytes) release(0x7fff00000000 + k * 65536, 65536, segments[k].committed);
    if (overlap) reserve(0x7fff00000000, places * 4096, 0); /* under all that is left */
}
static FILE *opened(const char *path) { FILE *file = fopen(path, "wb"); if (!file) exit(1); return file; }
static int write_report(const char *path) {
    char text[8000]; size_t length; FILE *file = opened(path);
    const int good = !memopt_ledger_report(ledger, text, sizeof text, &length) && fwrite(text, 1, length, file) == length;
    return !fclose(file) && good;
}
static int write_export(ledger_format format, const char *path) {
    FILE *file = opened(path);
    const int good = ledger_export(ledger, format, file) == MEMOPT_OK;
    return !fclose(file) && good;
}
int main(int argc, char **argv) {
    static const size_t tables[6][3] = { { 10, 10, 4 }, { 100, 200, 4 }, { 2000, 40000, 64 }, { 2000, 300, 64 }, { 60, 500, 3 }, { 9000, 30000, 64 } };
    memopt_ledger_desc d; memopt_host host; int scenario;
    if (argc != 7 || (scenario = atoi(argv[1])) < 0 || scenario > 5) {
        fprintf(stderr, "usage: export_tool SCENARIO REPORT JSON PICKLE TRACE LOG   (scenario 0 to 5)\n");
        return 2;
    }
    memset(&d, 0, sizeof d); memset(&host, 0, sizeof host);
    host.clock.now_fn = steady;
    d.block_capacity = tables[scenario][0]; d.event_capacity = tables[scenario][1]; d.segment_capacity = tables[scenario][2]; d.host = &host;
    d.tag_capacity = 12;
    log_file = fopen(argv[6], "wb");
    if (!log_file || memopt_ledger_create(&d, &ledger)) return 1;
    log_call("tables", d.block_capacity, d.event_capacity, d.segment_capacity, NULL, 0);
    seed = (uint64_t)scenario;
    if (scenario == 1) planted();
    if (scenario == 2 || scenario == 3) churn(4000, 1200, 0);
    if (scenario == 4) churn(4000, 200, 1);
    if (scenario == 5) churn(24000, 9000, 0);
    if (!write_report(argv[2]) || !write_export(LEDGER_SNAPSHOT_JSON, argv[3])
        || !write_export(LEDGER_SNAPSHOT_PICKLE, argv[4]) || !write_export(LEDGER_TRACE_JSON, argv[5])) return 1;
    memopt_ledger_destroy(ledger);
    return fclose(log_file) != 0;
}
