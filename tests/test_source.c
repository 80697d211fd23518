/* Sources: a block of the caller's, the allocator, counting, pages of the system, memory that is really available, and a
   device of our own. Expected values are worked out by hand or follow from the definition. */
#include "test.h"
#include "test_device.h"
#if defined(MEMOPT_I_POSIX)
#  include <signal.h>
#  include <sys/wait.h>
#endif

/* Every source failed or succeeded without touching `out`: compare with what it was filled with. */
static int test_source_untouched(const memopt_source *s) {
    const unsigned char *p = (const unsigned char *)s; size_t i;
    for (i = 0; i < sizeof *s; ++i) if (p[i] != 0xAB) return 0;
    return 1;
}

static void test_source_block_alignment(void) {
    static unsigned char room[64 + 63 + 256]; /* begins anywhere */
    unsigned char *const aligned = room + (64 - (uintptr_t)room % 64) % 64;
    static const size_t lengths[] = { 0, 1, 63, 64, 65, 126, 127, 128, 191, 192 };
    memopt_source s, *const out = &s; size_t offset, i; void *base;
    for (offset = 0; offset < 64; ++offset)
        for (i = 0; i < sizeof lengths / sizeof *lengths; ++i) {
            const size_t bytes = lengths[i], skip = (64 - offset) % 64;
            const memopt_status wanted = bytes >= skip + 64 ? MEMOPT_OK : MEMOPT_ERR_ARGUMENT;
            memset(&s, 0xAB, sizeof s);
            CHECK_AT(memopt_source_block(aligned + offset, bytes, out) == wanted, offset * 1000 + bytes);
            if (wanted) { CHECK_AT(test_source_untouched(&s), offset * 1000 + bytes); continue; }
            CHECK_AT(s.capacity == bytes - skip, offset * 1000 + bytes);
            CHECK(s.alignment == 64 && s.granularity == 1 && s.host_visible && s.kind == MEMOPT_SOURCE_BLOCK);
            CHECK(!s.fresh_is_zero && !s.commit_fn && !s.decommit_fn);
            base = NULL;
            CHECK(s.reserve_fn(&s, s.capacity, &base) == MEMOPT_OK);
            CHECK_AT(base == aligned + offset + skip, offset);
            CHECK((uintptr_t)base % s.base_alignment == 0 && (uintptr_t)base / s.base_alignment % 2 == 1);
        }
}
static void test_source_block_use(void) {
    static unsigned char room[512];
    memopt_source s; void *base = NULL, *second = room;
    memset(&s, 0xAB, sizeof s);
    CHECK(memopt_source_block(NULL, 512, &s) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_source_block(room, 512, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_source_block(room, SIZE_MAX, &s) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_source_block(room, SIZE_MAX - (uintptr_t)room + 1, &s) == MEMOPT_ERR_ARGUMENT); /* just wraps around */
    CHECK(test_source_untouched(&s));
    CHECK(memopt_source_block((void *)(uintptr_t)(SIZE_MAX - 200), 200, &s) == MEMOPT_OK); /* just does not; never touched */
    CHECK(s.capacity == 200 - 9); /* SIZE_MAX - 200 is 9 below a multiple of 64 */

    CHECK(memopt_source_block(room, sizeof room, &s) == MEMOPT_OK);
    CHECK(s.reserve_fn(&s, s.capacity + 1, &second) == MEMOPT_ERR_MEMORY);
    CHECK(s.reserve_fn(&s, SIZE_MAX, &second) == MEMOPT_ERR_MEMORY);
    CHECK(s.reserve_fn(&s, 64, &base) == MEMOPT_OK);
    CHECK(s.reserve_fn(&s, 64, &second) == MEMOPT_ERR_MEMORY); /* one at a time */
    CHECK(second == room);
    s.release_fn(&s, base, 64);
    CHECK(s.reserve_fn(&s, s.capacity, &second) == MEMOPT_OK && second == base);
    s.release_fn(&s, second, s.capacity);
}
static void test_source_host_functions(void) { /* zero and copies of host memory; ranges may overlap, nothing beside is touched */
    static unsigned char room[256 + 64]; unsigned char outside[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, *p; memopt_source s; size_t i;
    CHECK(memopt_source_block(room, sizeof room, &s) == MEMOPT_OK);
    p = (unsigned char *)s.user;
    for (i = 0; i < 32; ++i) p[i] = (unsigned char)i;
    CHECK(s.copy_fn(&s, p + 4, p, 8) == MEMOPT_OK);
    for (i = 0; i < 32; ++i) CHECK(p[i] == (i >= 4 && i < 12 ? i - 4 : i));
    for (i = 0; i < 32; ++i) p[i] = (unsigned char)i;
    CHECK(s.copy_fn(&s, p, p + 4, 8) == MEMOPT_OK);
    for (i = 0; i < 32; ++i) CHECK(p[i] == (i < 8 ? i + 4 : i));
    CHECK(s.zero_fn(&s, p + 1, 3) == MEMOPT_OK);
    CHECK(p[0] == 4 && p[1] == 0 && p[2] == 0 && p[3] == 0 && p[4] == 8);
    CHECK(s.copy_in_fn(&s, p + 10, outside, 8) == MEMOPT_OK && !memcmp(p + 10, outside, 8) && p[9] == 9 && p[18] == 18);
    memset(outside, 0, sizeof outside);
    CHECK(s.copy_out_fn(&s, outside, p + 10, 7) == MEMOPT_OK && outside[6] == 7 && outside[7] == 0);
    CHECK(s.zero_fn(&s, p, 0) == MEMOPT_OK && s.copy_fn(&s, p, p, 0) == MEMOPT_OK && s.copy_in_fn(&s, p, NULL, 0) == MEMOPT_OK);
    CHECK(p[0] == 4);
}

static void test_source_allocator_use(void) {
    size_t n;
    for (n = 1; n < 10; ++n) { /* the nth call to the allocator fails */
        test_faults f; memopt_host h; memopt_source s; void *one = &f, *two = &f; memopt_status a, b;
        memset(&f, 0, sizeof f);
        f.fail_on = n;
        h = test_host(&f);
        CHECK(memopt_source_allocator(&h, &s) == MEMOPT_OK);
        CHECK(s.kind == MEMOPT_SOURCE_ALLOCATOR && s.host_visible && !s.commit_fn && !s.fresh_is_zero && f.calls == 0);
        a = s.reserve_fn(&s, 1000, &one);
        b = s.reserve_fn(&s, 5000, &two);
        CHECK(a == (n == 1 ? MEMOPT_ERR_MEMORY : MEMOPT_OK) && b == (n == 2 ? MEMOPT_ERR_MEMORY : MEMOPT_OK));
        CHECK(a ? one == &f : (uintptr_t)one % s.base_alignment == 0);
        CHECK(b ? two == &f : (uintptr_t)two % s.base_alignment == 0);
        CHECK(f.calls == 2); /* one call a reservation */
        if (!a) { memset(one, 7, 1000); s.release_fn(&s, one, 1000); }
        if (!b) { memset(two, 7, 5000); s.release_fn(&s, two, 5000); }
        CHECK(f.live_blocks == 0 && f.live_bytes == 0 && f.bad_frees == 0);
        if (f.calls < n) break;
    }
    CHECK(n == 3);
}
static void test_source_allocator_arguments(void) {
    memopt_host h; memopt_source s; void *base = &h;
    memset(&s, 0xAB, sizeof s);
    memset(&h, 0, sizeof h);
    CHECK(memopt_source_allocator(NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    h.allocator.free_fn = test_free;
    CHECK(memopt_source_allocator(&h, &s) == MEMOPT_ERR_ARGUMENT && test_source_untouched(&s));
    CHECK(memopt_source_allocator(NULL, &s) == MEMOPT_OK);
    CHECK(s.reserve_fn(&s, SIZE_MAX, &base) == MEMOPT_ERR_MEMORY && base == &h);
    CHECK(s.reserve_fn(&s, SIZE_MAX - 4096, &base) == MEMOPT_ERR_MEMORY && base == &h);
    CHECK(s.reserve_fn(&s, 100, &base) == MEMOPT_OK);
    memset(base, 1, 100);
    s.release_fn(&s, base, 100);
}

static void test_source_counting_use(void) {
    memopt_source s, again; void *bases[64], *base; size_t i, k; memopt_status status;
    CHECK(memopt_source_counting(NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_source_counting(&s) == MEMOPT_OK);
    CHECK(s.kind == MEMOPT_SOURCE_COUNTING && !s.host_visible && s.capacity % s.base_alignment == 0);
    CHECK(memopt_source_counting(&again) == MEMOPT_OK);
    for (i = 0; i < 64; ++i) { /* aligned, not NULL, and no two share an address */
        const size_t bytes = (i + 1) * 100000;
        bases[i] = NULL;
        CHECK(s.reserve_fn(&s, bytes, &bases[i]) == MEMOPT_OK && bases[i] && (uintptr_t)bases[i] % s.base_alignment == 0);
        for (k = 0; k < i; ++k)
            CHECK_AT((uintptr_t)bases[i] >= (uintptr_t)bases[k] + (k + 1) * 100000 || (uintptr_t)bases[k] >= (uintptr_t)bases[i] + bytes, i);
        base = NULL;
        CHECK(again.reserve_fn(&again, bytes, &base) == MEMOPT_OK && base == bases[i]); /* a run tells the same every time */
    }
    CHECK(s.commit_fn(&s, bases[3], 4096) == MEMOPT_OK && s.zero_fn(&s, bases[3], 4096) == MEMOPT_OK);
    CHECK(s.copy_in_fn(&s, bases[3], &s, 10) == MEMOPT_OK && s.copy_out_fn(&s, &i, bases[3], 4) == MEMOPT_OK && i == 64);
    CHECK(s.copy_fn(&s, bases[4], bases[3], 10) == MEMOPT_OK && s.decommit_fn(&s, bases[3], 4096) == MEMOPT_OK);
    s.release_fn(&s, bases[63], 64 * 100000); /* the last one's addresses can be had again */
    CHECK(s.reserve_fn(&s, 1, &base) == MEMOPT_OK && base == bases[63]);
    s.release_fn(&s, bases[0], 100000); /* others' are not, as somebody lies behind them */
    CHECK(s.reserve_fn(&s, 1, &base) == MEMOPT_OK && base != bases[0]);

    CHECK(memopt_source_counting(&s) == MEMOPT_OK);
    base = &s;
    CHECK(s.reserve_fn(&s, SIZE_MAX, &base) == MEMOPT_ERR_MEMORY && s.reserve_fn(&s, SIZE_MAX - s.base_alignment, &base) == MEMOPT_ERR_MEMORY);
    CHECK(base == &s);
    for (i = 0; i < 10 && (status = s.reserve_fn(&s, s.capacity, &base)) == MEMOPT_OK; ++i) {}
    CHECK(i == 4 && status == MEMOPT_ERR_MEMORY); /* nearly a quarter of all addresses each */
}

#if defined(__linux__)
/* -- A fake /proc and /sys: paths and texts, in a table of files that can fail and counts what is open -- */

typedef struct test_source_text { const char *path, *text; } test_source_text;
typedef struct test_source_system {
    const test_source_text *texts; /* up to path NULL */
    size_t calls, fail_on, opened, closed, wrong;
    size_t cut;   /* at most so many bytes a file; 0 = all */
    int lie;      /* the read says that it gave more than it was asked for */
} test_source_system;
static int test_source_fails(test_source_system *t) { return ++t->calls == t->fail_on; }
static memopt_status test_source_open(void *user, const char *path, memopt_open_mode mode, void **file) {
    test_source_system *t = (test_source_system *)user; size_t i;
    if (mode != MEMOPT_OPEN_READ) ++t->wrong;
    if (test_source_fails(t)) return MEMOPT_ERR_IO;
    for (i = 0; t->texts[i].path; ++i)
        if (!strcmp(t->texts[i].path, path)) {
            void *p;
            memcpy(&p, &t->texts[i].text, sizeof p); /* no const lost in a cast */
            ++t->opened;
            *file = p;
            return MEMOPT_OK;
        }
    return MEMOPT_ERR_IO;
}
static memopt_status test_source_close(void *user, void *file) {
    test_source_system *t = (test_source_system *)user;
    (void)file;
    ++t->closed;
    return test_source_fails(t) ? MEMOPT_ERR_IO : MEMOPT_OK;
}
static memopt_status test_source_read(void *user, void *file, uint64_t offset, void *bytes, size_t count, size_t *done) {
    test_source_system *t = (test_source_system *)user;
    const char *text = (const char *)file; size_t n = strlen(text);
    if (test_source_fails(t)) return MEMOPT_ERR_IO;
    if (t->cut && n > t->cut) n = t->cut;
    n = offset < n ? n - (size_t)offset : 0;
    if (n > count) n = count;
    memset(bytes, '7', count); /* what was not read is rubbish that looks like a number */
    if (n) memcpy(bytes, text + offset, n);
    *done = t->lie ? SIZE_MAX : n;
    return MEMOPT_OK;
}
static memopt_status test_source_no_write(void *user, void *file, uint64_t offset, const void *bytes, size_t count) {
    (void)file; (void)offset; (void)bytes; (void)count;
    ++((test_source_system *)user)->wrong;
    return MEMOPT_ERR_IO;
}
static memopt_status test_source_no_size(void *user, void *file, uint64_t *bytes) {
    (void)file; (void)bytes;
    ++((test_source_system *)user)->wrong;
    return MEMOPT_ERR_IO;
}
static memopt_status test_source_no_resize(void *user, void *file, uint64_t bytes) {
    (void)file; (void)bytes;
    ++((test_source_system *)user)->wrong;
    return MEMOPT_ERR_IO;
}
static memopt_status test_source_no_sync(void *user, void *file) {
    (void)file;
    ++((test_source_system *)user)->wrong;
    return MEMOPT_ERR_IO;
}
static memopt_status test_source_no_rename(void *user, const char *from, const char *to) {
    (void)from; (void)to;
    ++((test_source_system *)user)->wrong;
    return MEMOPT_ERR_IO;
}
static memopt_status test_source_no_remove(void *user, const char *path) {
    (void)path;
    ++((test_source_system *)user)->wrong;
    return MEMOPT_ERR_IO;
}
static memopt_host test_source_host(test_source_system *t, const test_source_text *texts) {
    memopt_host h;
    memset(&h, 0, sizeof h);
    memset(t, 0, sizeof *t);
    t->texts = texts;
    h.files.open_fn = test_source_open; h.files.close_fn = test_source_close; h.files.read_fn = test_source_read;
    h.files.write_fn = test_source_no_write; h.files.size_fn = test_source_no_size; h.files.resize_fn = test_source_no_resize;
    h.files.sync_fn = test_source_no_sync; h.files.rename_fn = test_source_no_rename; h.files.remove_fn = test_source_no_remove;
    h.files.user = t;
    return h;
}

#define TEST_SOURCE_MEMINFO "/proc/meminfo", "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\nBuffers: 5 kB\n"
#define TEST_SOURCE_GIB UINT64_C(1073741824)
typedef struct test_source_case { const char *what; memopt_status status; uint64_t bytes; test_source_text texts[16]; } test_source_case;
static const test_source_case test_source_cases[] = {
    { "no files at all", MEMOPT_ERR_IO, 0, { { NULL, NULL } } },
    { "cgroups, but no meminfo", MEMOPT_ERR_IO, 0, {
        { "/proc/self/cgroup", "0::/\n" }, { "/sys/fs/cgroup/memory.max", "1000\n" }, { "/sys/fs/cgroup/memory.current", "1\n" }, { NULL, NULL } } },
    { "meminfo alone", MEMOPT_OK, UINT64_C(8000000) * 1024, { { TEST_SOURCE_MEMINFO }, { NULL, NULL } } },
    { "meminfo ends in the number", MEMOPT_OK, 12 * 1024, { { "/proc/meminfo", "MemFree: 3 kB\nMemAvailable:\t12" }, { NULL, NULL } } },
    { "zero is a number", MEMOPT_OK, 0, { { "/proc/meminfo", "MemAvailable: 0 kB\n" }, { NULL, NULL } } },
    { "empty meminfo", MEMOPT_ERR_FORMAT, 0, { { "/proc/meminfo", "" }, { NULL, NULL } } },
    { "an old kernel's meminfo", MEMOPT_ERR_FORMAT, 0, { { "/proc/meminfo", "MemTotal: 16000000 kB\nMemFree: 1000000 kB\n" }, { NULL, NULL } } },
    { "the key in the middle of a line", MEMOPT_ERR_FORMAT, 0, { { "/proc/meminfo", "XMemAvailable: 5 kB\n MemAvailable: 6 kB\n" }, { NULL, NULL } } },
    { "no number behind the key", MEMOPT_ERR_FORMAT, 0, { { "/proc/meminfo", "MemAvailable: kB 5\n" }, { NULL, NULL } } },
    { "a negative number", MEMOPT_ERR_FORMAT, 0, { { "/proc/meminfo", "MemAvailable: -5 kB\n" }, { NULL, NULL } } },
    { "the number is on the next line", MEMOPT_ERR_FORMAT, 0, { { "/proc/meminfo", "MemAvailable:\n5\n" }, { NULL, NULL } } },
    { "the largest that fits: 2^54 - 1 KiB", MEMOPT_OK, UINT64_C(18014398509481983) * 1024, { { "/proc/meminfo", "MemAvailable: 18014398509481983 kB\n" }, { NULL, NULL } } },
    { "2^54 KiB are 2^64 bytes", MEMOPT_ERR_FORMAT, 0, { { "/proc/meminfo", "MemAvailable: 18014398509481984 kB\n" }, { NULL, NULL } } },
    { "more than 64 bits", MEMOPT_ERR_FORMAT, 0, { { "/proc/meminfo", "MemAvailable: 18446744073709551617 kB\n" }, { NULL, NULL } } },
    { "many digits", MEMOPT_ERR_FORMAT, 0, { { "/proc/meminfo", "MemAvailable: 99999999999999999999999999999999999999999999 kB\n" }, { NULL, NULL } } },

    /* Version 2. Limit - (current - inactive_file), the smallest of all levels and the machine. */
    { "v2 root has no limit file", MEMOPT_OK, UINT64_C(8000000) * 1024, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "0::/\n" }, { NULL, NULL } } },
    { "v2 max", MEMOPT_OK, UINT64_C(8000000) * 1024, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "0::/a\n" },
        { "/sys/fs/cgroup/a/memory.max", "max\n" }, { "/sys/fs/cgroup/a/memory.current", "123\n" }, { NULL, NULL } } },
    { "v2 one level, no cache", MEMOPT_OK, 4 * TEST_SOURCE_GIB - 1000, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "0::/a\n" },
        { "/sys/fs/cgroup/a/memory.max", "4294967296\n" }, { "/sys/fs/cgroup/a/memory.current", "1000\n" }, { NULL, NULL } } },
    { "v2 one level, cache makes room, no newlines", MEMOPT_OK, 4 * TEST_SOURCE_GIB - 300, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "0::/a" },
        { "/sys/fs/cgroup/a/memory.max", "4294967296" }, { "/sys/fs/cgroup/a/memory.current", "1000" },
        { "/sys/fs/cgroup/a/memory.stat", "anon 5\nactive_file 9000\ntotal_inactive_file 3\ninactive_file 700" }, { NULL, NULL } } },
    { "v2 more cache than usage", MEMOPT_OK, 5000, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "0::/a\n" },
        { "/sys/fs/cgroup/a/memory.max", "5000\n" }, { "/sys/fs/cgroup/a/memory.current", "1000\n" },
        { "/sys/fs/cgroup/a/memory.stat", "inactive_file 7000\n" }, { NULL, NULL } } },
    { "v2 over its limit", MEMOPT_OK, 0, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "0::/a\n" },
        { "/sys/fs/cgroup/a/memory.max", "5000\n" }, { "/sys/fs/cgroup/a/memory.current", "6000\n" }, { NULL, NULL } } },
    { "v2 a limit above the machine", MEMOPT_OK, UINT64_C(8000000) * 1024, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "0::/a\n" },
        { "/sys/fs/cgroup/a/memory.max", "9000000000000\n" }, { "/sys/fs/cgroup/a/memory.current", "6000\n" }, { NULL, NULL } } },
    { "v2 three levels, the middle one is tight", MEMOPT_OK, 700000, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "0::/user.slice/job/step\n" },
        { "/sys/fs/cgroup/user.slice/job/step/memory.max", "2000000\n" }, { "/sys/fs/cgroup/user.slice/job/step/memory.current", "100000\n" },
        { "/sys/fs/cgroup/user.slice/job/memory.max", "1500000\n" }, { "/sys/fs/cgroup/user.slice/job/memory.current", "800000\n" },
        { "/sys/fs/cgroup/user.slice/memory.max", "max\n" }, { "/sys/fs/cgroup/user.slice/memory.current", "90000000000\n" }, { NULL, NULL } } },
    { "v2 three levels, the root of a container is tight", MEMOPT_OK, 600, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "0::/a/b/c\n" },
        { "/sys/fs/cgroup/a/b/c/memory.max", "2000\n" }, { "/sys/fs/cgroup/a/b/c/memory.current", "100\n" },
        { "/sys/fs/cgroup/memory.max", "1000\n" }, { "/sys/fs/cgroup/memory.current", "400\n" }, { NULL, NULL } } },
    { "v2 slashes at the end and in twos", MEMOPT_OK, 900, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "0::/a//b///\n" },
        { "/sys/fs/cgroup/a//b/memory.max", "2000\n" }, { "/sys/fs/cgroup/a//b/memory.current", "100\n" },
        { "/sys/fs/cgroup/a/memory.max", "1000\n" }, { "/sys/fs/cgroup/a/memory.current", "100\n" }, { NULL, NULL } } },
    { "v2 beside v1 (unified)", MEMOPT_OK, 40, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "1:name=systemd:/x\n0::/x\n" },
        { "/sys/fs/cgroup/unified/x/memory.max", "50\n" }, { "/sys/fs/cgroup/unified/x/memory.current", "10\n" }, { NULL, NULL } } },
    { "v2 a limit and no usage is no limit we can use", MEMOPT_OK, UINT64_C(8000000) * 1024, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "0::/a\n" },
        { "/sys/fs/cgroup/a/memory.max", "5000\n" }, { NULL, NULL } } },
    { "v2 garbage in every file", MEMOPT_OK, UINT64_C(8000000) * 1024, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "0::/a\n" },
        { "/sys/fs/cgroup/a/memory.max", "\n\nqwert\t" }, { "/sys/fs/cgroup/a/memory.current", "-1" }, { "/sys/fs/cgroup/a/memory.stat", ":::" }, { NULL, NULL } } },
    { "v2 an overflowing limit is none; the one above counts", MEMOPT_OK, 70, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "0::/a/b\n" },
        { "/sys/fs/cgroup/a/b/memory.max", "99999999999999999999999\n" }, { "/sys/fs/cgroup/a/b/memory.current", "10\n" },
        { "/sys/fs/cgroup/a/memory.max", "80\n" }, { "/sys/fs/cgroup/a/memory.current", "10\n" }, { NULL, NULL } } },
    { "v2 an overflowing cache figure makes no room", MEMOPT_OK, 70, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "0::/a\n" },
        { "/sys/fs/cgroup/a/memory.max", "80\n" }, { "/sys/fs/cgroup/a/memory.current", "10\n" },
        { "/sys/fs/cgroup/a/memory.stat", "inactive_file 99999999999999999999999\n" }, { NULL, NULL } } },

    /* Version 1: other names, the memory hierarchy only, the totals of memory.stat. */
    { "v1 two levels", MEMOPT_OK, 5500, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "11:cpu,cpuacct:/docker/c\n4:memory:/docker/c\n1:name=systemd:/docker/c\n" },
        { "/sys/fs/cgroup/memory/docker/c/memory.limit_in_bytes", "10000\n" }, { "/sys/fs/cgroup/memory/docker/c/memory.usage_in_bytes", "5000\n" },
        { "/sys/fs/cgroup/memory/docker/c/memory.stat", "cache 1\ninactive_file 4000\ntotal_inactive_file 500\n" },
        { "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "9223372036854771712\n" }, { "/sys/fs/cgroup/memory/docker/memory.usage_in_bytes", "5000\n" },
        { NULL, NULL } } },
    { "v1 the container's own root", MEMOPT_OK, 777, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "4:memory:/docker/c\n" },
        { "/sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n" }, { "/sys/fs/cgroup/memory/memory.usage_in_bytes", "223\n" }, { NULL, NULL } } },
    { "v1 memory mounted with others", MEMOPT_OK, 60, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "4:cpu,memory:/m\n" },
        { "/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "70\n" }, { "/sys/fs/cgroup/memory/m/memory.usage_in_bytes", "10\n" }, { NULL, NULL } } },
    { "v1 other hierarchies tell nothing", MEMOPT_OK, UINT64_C(8000000) * 1024, { { TEST_SOURCE_MEMINFO },
        { "/proc/self/cgroup", "4:cpu:/m\n5:memoryx:/m\n6:xmemory:/m\n7:mem:/m\n8:name=memory:/m\n" },
        { "/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "70\n" }, { "/sys/fs/cgroup/memory/m/memory.usage_in_bytes", "10\n" }, { NULL, NULL } } },
    { "v1 does not read version 2's files", MEMOPT_OK, UINT64_C(8000000) * 1024, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "4:memory:/m\n" },
        { "/sys/fs/cgroup/memory/m/memory.max", "70\n" }, { "/sys/fs/cgroup/memory/m/memory.current", "10\n" },
        { "/sys/fs/cgroup/m/memory.max", "70\n" }, { "/sys/fs/cgroup/m/memory.current", "10\n" }, { NULL, NULL } } },
    { "v1 and v2, the smaller counts", MEMOPT_OK, 30, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "4:memory:/m\n0::/n\n" },
        { "/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "70\n" }, { "/sys/fs/cgroup/memory/m/memory.usage_in_bytes", "10\n" },
        { "/sys/fs/cgroup/n/memory.max", "50\n" }, { "/sys/fs/cgroup/n/memory.current", "20\n" }, { NULL, NULL } } },
    { "lines that are none", MEMOPT_OK, 30, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "\n\n:\n::\nmemory\n4\n4:\n4:memory\n0::/n" },
        { "/sys/fs/cgroup/n/memory.max", "50\n" }, { "/sys/fs/cgroup/n/memory.current", "20\n" }, { NULL, NULL } } },
    { "a path without its slash", MEMOPT_OK, 30, { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "0::n\n" },
        { "/sys/fs/cgroup/memory.max", "50\n" }, { "/sys/fs/cgroup/memory.current", "20\n" }, { NULL, NULL } } }
};
static void test_source_available_cases(void) {
    size_t i;
    for (i = 0; i < sizeof test_source_cases / sizeof *test_source_cases; ++i) {
        const test_source_case *c = &test_source_cases[i];
        test_source_system t; memopt_host h = test_source_host(&t, c->texts); uint64_t bytes = 42;
        const memopt_status s = memopt_memory_available(&h, &bytes);
        if (s != c->status || bytes != (s ? 42 : c->bytes))
            printf("case \"%s\": status %d, %llu bytes\n", c->what, (int)s, (unsigned long long)bytes);
        CHECK(s == c->status && bytes == (s ? 42 : c->bytes));
        CHECK_AT(t.opened == t.closed && !t.wrong, i);
        t.lie = 1; /* a read that claims to have done more than all is believed no further than the buffer */
        (void)memopt_memory_available(&h, &bytes);
        CHECK_AT(t.opened == t.closed, i);
    }
    CHECK(memopt_memory_available(NULL, NULL) == MEMOPT_ERR_ARGUMENT);
}
/* Each call to the files fails once. Without meminfo there is no answer; without a cgroup's file its limit is not known, so
   the answer is that of another level or of the machine. Whatever happens, what was opened is closed. */
static void test_source_available_failures(void) {
    static const test_source_text texts[] = { { TEST_SOURCE_MEMINFO }, { "/proc/self/cgroup", "0::/a\n" },
        { "/sys/fs/cgroup/a/memory.max", "5000\n" }, { "/sys/fs/cgroup/a/memory.current", "3000\n" },
        { "/sys/fs/cgroup/a/memory.stat", "inactive_file 500\n" },
        { "/sys/fs/cgroup/memory.max", "9000\n" }, { "/sys/fs/cgroup/memory.current", "5000\n" }, { NULL, NULL } };
    size_t n;
    for (n = 1; n < 100; ++n) {
        test_source_system t; memopt_host h = test_source_host(&t, texts); uint64_t bytes = 42; memopt_status s;
        t.fail_on = n;
        s = memopt_memory_available(&h, &bytes);
        CHECK_AT(t.opened == t.closed && !t.wrong, n);
        if (n <= 3) CHECK_AT(s == MEMOPT_ERR_IO && bytes == 42, n);      /* open, read, close of meminfo */
        else {
            CHECK_AT(s == MEMOPT_OK, n);
            if (n <= 6) CHECK_AT(bytes == UINT64_C(8000000) * 1024, n);  /* /proc/self/cgroup: no cgroup is known */
            else if (n <= 12) CHECK_AT(bytes == 4000, n);                /* the group's limit or usage: the root's 9000 - 5000 */
            else if (n <= 15) CHECK_AT(bytes == 2000, n);                /* its cache: 5000 - 3000 */
            else CHECK_AT(bytes == 2500, n);                             /* 5000 - (3000 - 500) */
        }
        if (t.calls < n) break;
    }
    CHECK(n > 15 && n < 100);
}
static void test_source_available_long(void) { /* files and paths longer than what is looked at */
    enum { LENGTH = 9000 };
    char *text = (char *)malloc(LENGTH + 100), *line = (char *)malloc(LENGTH + 100);
    test_source_text texts[4]; test_source_system t; memopt_host h; uint64_t bytes; size_t length;
    if (!text || !line) { SKIP("no memory"); free(text); free(line); return; }
    memset(texts, 0, sizeof texts);
    texts[0].path = "/proc/meminfo"; texts[1].path = "/proc/self/cgroup";
    memset(text, 'x', LENGTH); /* the key comes too late */
    memcpy(text + LENGTH, "\nMemAvailable: 5 kB\n", 21);
    texts[0].text = text; texts[1].text = "0::/\n";
    h = test_source_host(&t, texts);
    CHECK(memopt_memory_available(&h, &bytes) == MEMOPT_ERR_FORMAT);
    for (length = 4000; length < 4200; ++length) { /* paths of every length about the limit: none may be cut and read as another */
        texts[0].text = "MemAvailable: 5 kB\n";
        memcpy(line, "0::/", 4);
        memset(line + 4, 'd', length);
        memcpy(line + 4 + length, "\n", 2);
        texts[1].text = line;
        h = test_source_host(&t, texts);
        bytes = 0;
        CHECK_AT(memopt_memory_available(&h, &bytes) == MEMOPT_OK && bytes == 5 * 1024, length);
        CHECK_AT(t.opened == t.closed && t.opened == 2, length);
    }
    for (length = 4; length < 4095; ++length) line[length] = length % 2 ? 'd' : '/'; /* two thousand levels */
    line[3] = '/'; line[4095] = 0;
    h = test_source_host(&t, texts);
    CHECK(memopt_memory_available(&h, &bytes) == MEMOPT_OK && bytes == 5 * 1024);
    free(text);
    free(line);
}
#endif
static void test_source_available_here(void) { /* the machine's own figures: plausible, and never above what it has */
    uint64_t bytes = 0; memopt_host h;
    const memopt_status s = memopt_memory_available(NULL, &bytes);
    memset(&h, 0, sizeof h);
    h.allocator.alloc_fn = test_alloc;
    CHECK(memopt_memory_available(NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    CHECK(memopt_memory_available(&h, &bytes) == MEMOPT_ERR_ARGUMENT); /* half a host */
    if (s) { SKIP("this system does not tell how much memory is available"); return; }
    CHECK(bytes > ((uint64_t)1 << 20) && bytes < ((uint64_t)1 << 50));
}

/* -- Pages -- */

/* An emulator (qemu-user) that says yes to any advice and follows none, and keeps tables of its own for what is mapped. */
static int test_source_is_emulated(void) {
#if defined(__linux__)
    static unsigned char room[2 << 16];
    const size_t page = memopt_i_page_size();
    return page <= 65536 && madvise(room + (page - (uintptr_t)room % page) % page, page, 12345) == 0;
#else
    return 0;
#endif
}

static int test_source_is(const void *start, size_t bytes, unsigned value) {
    const unsigned char *p = (const unsigned char *)start; size_t i;
    for (i = 0; i < bytes; ++i) if (p[i] != value) return 0;
    return 1;
}
static void test_source_pages_use(void) {
    int no_huge;
    for (no_huge = 0; no_huge < 2; ++no_huge) {
        memopt_pages_desc d; memopt_source s; unsigned char *p = NULL; void *base = NULL; size_t g;
        memset(&d, 0, sizeof d);
        d.no_huge = no_huge;
        if (memopt_source_pages(&d, &s) == MEMOPT_ERR_UNSUPPORTED) { SKIP("no pages on this platform"); return; }
        CHECK(s.kind == MEMOPT_SOURCE_PAGES && s.host_visible && s.fresh_is_zero && s.commit_fn && s.decommit_fn);
        g = s.granularity;
        CHECK(g >= 65536 && !(g & (g - 1)) && s.base_alignment == g && (no_huge ? g <= 65536 || g == memopt_i_page_size() : 1));
        CHECK(s.reserve_fn(&s, 5 * g, &base) == MEMOPT_OK && (uintptr_t)base % g == 0);
        p = (unsigned char *)base;
        CHECK(s.commit_fn(&s, p + g, 2 * g) == MEMOPT_OK); /* the middle, then both sides of it */
        CHECK(test_source_is(p + g, 2 * g, 0));
        memset(p + g, 0xC3, 2 * g);
        CHECK(s.commit_fn(&s, p + 3 * g, 2 * g) == MEMOPT_OK && s.commit_fn(&s, p, g) == MEMOPT_OK);
        CHECK(test_source_is(p, g, 0) && test_source_is(p + 3 * g, 2 * g, 0) && test_source_is(p + g, 2 * g, 0xC3));
        memset(p, 0xC3, 5 * g);
        CHECK(s.decommit_fn(&s, p + 2 * g, g) == MEMOPT_OK);
        CHECK(test_source_is(p, 2 * g, 0xC3) && test_source_is(p + 3 * g, 2 * g, 0xC3));
        CHECK(s.commit_fn(&s, p + 2 * g, g) == MEMOPT_OK);
        CHECK(test_source_is(p + 2 * g, g, 0)); /* fresh again */
        CHECK(test_source_is(p, 2 * g, 0xC3) && test_source_is(p + 3 * g, 2 * g, 0xC3));
        s.release_fn(&s, base, 5 * g);
    }
}
static void test_source_pages_arguments(void) {
    memopt_pages_desc d; memopt_source s; memopt_host h; void *base = &d; size_t i;
    memset(&d, 0, sizeof d);
    memset(&h, 0, sizeof h);
    memset(&s, 0xAB, sizeof s);
    CHECK(memopt_source_pages(NULL, NULL) == MEMOPT_ERR_ARGUMENT);
    h.allocator.alloc_fn = test_alloc;
    d.host = &h;
    CHECK(memopt_source_pages(&d, &s) == MEMOPT_ERR_ARGUMENT && test_source_untouched(&s));
    if (memopt_source_pages(NULL, &s) == MEMOPT_ERR_UNSUPPORTED) { CHECK(test_source_untouched(&s)); SKIP("no pages on this platform"); return; }
    CHECK(s.reserve_fn(&s, SIZE_MAX - s.granularity + 1, &base) == MEMOPT_ERR_MEMORY); /* wraps around with guard or alignment */
    CHECK(base == &d);
    if (sizeof(size_t) < 8 || test_source_is_emulated()) return;
    CHECK(s.reserve_fn(&s, SIZE_MAX / 2 + 1, &base) == MEMOPT_ERR_MEMORY);
    CHECK(base == &d);
    for (i = 0; i < 3000; i += TEST_STRIDE) { /* together more than there are addresses: nothing may be left behind */
        base = NULL;
        if (s.reserve_fn(&s, (size_t)1 << 36 % (8 * sizeof(size_t)), &base) != MEMOPT_OK) break;
        s.release_fn(&s, base, (size_t)1 << 36 % (8 * sizeof(size_t)));
    }
    CHECK(i == 0 || s.capacity >= (size_t)1 << 36 % (8 * sizeof(size_t))); /* the most that one reserve can get */
    CHECK_AT(i >= 3000 || i == 0, i); /* 0: this system, or what it runs on, does not give so many addresses even once */
}
#if defined(__linux__)
static size_t test_source_align_up(size_t x, size_t alignment) { return (x + alignment - 1) / alignment * alignment; }
/* What the system says about the huge page decides the granularity; whatever it is, and without any file, pages work. */
static void test_source_pages_huge_size(void) {
    static const struct { const char *text; size_t granularity; } cases[] = {
        { NULL, (size_t)2 << 20 }, /* no such file: as on x86-64 */
        { "2097152\n", (size_t)2 << 20 }, { "1048576\n", (size_t)1 << 20 }, { "33554432", (size_t)32 << 20 }, { "65536\n", 65536 },
        { "67108864\n", 0 }, { "32768\n", 0 }, { "3000000\n", 0 }, { "0\n", 0 }, { "\n", 0 }, { "", 0 }, { "max\n", 0 }, { "-2097152\n", 0 },
        { "99999999999999999999999999\n", 0 }
    };
    size_t i, n;
    for (i = 0; i < sizeof cases / sizeof *cases; ++i) {
        const size_t small = test_source_align_up(65536, memopt_i_page_size());
        for (n = 0; n < 5; ++n) { /* and the nth call to the files fails: the same as no file */
            test_source_text texts[2]; test_source_system t; memopt_host h; memopt_pages_desc d; memopt_source s; void *base = NULL;
            size_t wanted = n >= 1 && n <= 3 ? cases[0].granularity : cases[i].granularity;
            memset(texts, 0, sizeof texts);
            if (cases[i].text) texts[0].path = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
            texts[0].text = cases[i].text;
            h = test_source_host(&t, texts);
            t.fail_on = n;
            memset(&d, 0, sizeof d);
            d.host = &h;
            CHECK(memopt_source_pages(&d, &s) == MEMOPT_OK && t.opened == t.closed && !t.wrong);
            if (wanted < small) wanted = small;
            CHECK_AT(s.granularity == wanted && s.base_alignment == wanted, i * 10 + n);
            CHECK_AT(((s.flags & MEMOPT_I_PAGES_HUGE) != 0) == ((n >= 1 && n <= 3) || cases[i].granularity), i * 10 + n);
            if (n) continue;
            CHECK(s.reserve_fn(&s, wanted, &base) == MEMOPT_OK && (uintptr_t)base % wanted == 0);
            CHECK(s.commit_fn(&s, base, wanted) == MEMOPT_OK);
            *(volatile char *)base = 1;
            s.release_fn(&s, base, wanted);
            d.no_huge = 1;
            CHECK(memopt_source_pages(&d, &s) == MEMOPT_OK && s.granularity == small);
        }
    }
}
/* `check`: a commit is held against what is available at that moment. */
static void test_source_pages_check(void) {
    static test_source_text texts[] = { { "/proc/meminfo", NULL }, { NULL, NULL } };
    int touch;
    for (touch = 0; touch < 2; ++touch) {
        test_source_system t; memopt_host h = test_source_host(&t, texts); memopt_pages_desc d; memopt_source s; void *base = NULL;
        memopt_ledger *ledger = NULL;
        memset(&d, 0, sizeof d);
        d.host = &h; d.check = 1; d.no_huge = 1; d.touch = touch;
        texts[0].text = "MemAvailable: 128 kB\n";
        CHECK(memopt_source_pages(&d, &s) == MEMOPT_OK);
        CHECK(memopt_ledger_create(NULL, &ledger) == MEMOPT_OK);
        if (s.granularity != 65536) { SKIP("pages of more than 64 KiB"); memopt_ledger_destroy(ledger); return; }
        s.ledger = ledger;
        if (!touch) {
            CHECK(memopt_i_source_reserve(&s, 256 << 10, &base) == MEMOPT_OK); /* addresses are free */
            CHECK(memopt_i_source_commit(&s, base, 192 << 10) == MEMOPT_ERR_MEMORY);
            CHECK(memopt_ledger_footprint(ledger).committed == 0 && memopt_ledger_total(ledger).failed == 1);
            CHECK(memopt_i_source_commit(&s, base, 128 << 10) == MEMOPT_OK); /* just what there is */
            CHECK(memopt_ledger_footprint(ledger).committed == 128 << 10);
            texts[0].text = "MemAvailable: 0 kB\n";
            CHECK(memopt_i_source_commit(&s, (char *)base + (128 << 10), 64 << 10) == MEMOPT_ERR_MEMORY);
            texts[0].text = "rubbish";
            CHECK(memopt_i_source_commit(&s, (char *)base + (128 << 10), 64 << 10) == MEMOPT_ERR_FORMAT);
            t.fail_on = t.calls + 1;
            CHECK(memopt_i_source_commit(&s, (char *)base + (128 << 10), 64 << 10) == MEMOPT_ERR_IO);
            CHECK(memopt_ledger_footprint(ledger).committed == 128 << 10);
            memopt_i_source_release(&s, base, 256 << 10, 128 << 10);
        } else {
            CHECK(!s.commit_fn && !s.decommit_fn);
            CHECK(memopt_i_source_reserve(&s, 192 << 10, &base) == MEMOPT_ERR_MEMORY && !base);
            CHECK(memopt_ledger_footprint(ledger).reserved == 0 && memopt_ledger_total(ledger).failed == 1);
            CHECK(memopt_i_source_reserve(&s, 128 << 10, &base) == MEMOPT_OK);
            CHECK(memopt_ledger_footprint(ledger).committed == 128 << 10); /* all there from the start */
            memopt_i_source_release(&s, base, 128 << 10, 0);
        }
        CHECK(memopt_ledger_footprint(ledger).reserved == 0 && memopt_ledger_footprint(ledger).committed == 0 && memopt_ledger_footprint(ledger).segments == 0);
        CHECK(t.opened == t.closed && !t.wrong);
        memopt_ledger_destroy(ledger);
    }
}
#  if !defined(__cplusplus)
extern int mincore(void *start, size_t bytes, unsigned char *resident); /* hidden by -std=c99 */
#  endif
static size_t test_source_resident(void *start, size_t bytes) { /* pages of a range that are in memory */
    static unsigned char map[4096]; const size_t pages = bytes / memopt_i_page_size(); size_t i, n = 0;
    if (pages > sizeof map || mincore(start, bytes, map)) return SIZE_MAX;
    for (i = 0; i < pages; ++i) n += map[i] & 1;
    return n;
}
static uint64_t test_source_mapped(void) { /* pages of the whole program, in memory or not; 0 when nobody tells */
    char text[64]; void *file = NULL; size_t done = 0;
    if (memopt_i_system_open(NULL, "/proc/self/statm", MEMOPT_OPEN_READ, &file)) return 0;
    (void)memopt_i_system_read(NULL, file, 0, text, sizeof text - 1, &done);
    (void)memopt_i_system_close(NULL, file);
    text[done] = 0;
    return strtoul(text, NULL, 10);
}
/* Nothing stays mapped: neither what was cut off to align the base, nor the guard page, nor what a refusal had taken. */
static void test_source_pages_leak(void) {
    static const test_source_text texts[] = { { "/proc/meminfo", "MemAvailable: 0 kB\n" }, { "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "33554432\n" }, { NULL, NULL } };
    test_source_system t; memopt_host h = test_source_host(&t, texts); memopt_pages_desc d; memopt_source s; uint64_t before; size_t i; void *base = NULL;
    before = test_source_mapped();
    if (!before || test_source_is_emulated()) { SKIP("no /proc/self/statm of this program"); return; }
    memset(&d, 0, sizeof d);
    d.host = &h;
    CHECK(memopt_source_pages(&d, &s) == MEMOPT_OK && s.granularity == (size_t)32 << 20);
    for (i = 0; i < 20; ++i) {
        CHECK(s.reserve_fn(&s, s.granularity, &base) == MEMOPT_OK);
        if (MEMOPT_DEBUG >= 1) CHECK(test_source_resident((char *)base + s.granularity, memopt_i_page_size()) == 0); /* a guard page is there */
        s.release_fn(&s, base, s.granularity);
    }
    d.check = d.touch = 1;
    CHECK(memopt_source_pages(&d, &s) == MEMOPT_OK);
    for (i = 0; i < 20; ++i) CHECK(s.reserve_fn(&s, s.granularity, &base) == MEMOPT_ERR_MEMORY);
    CHECK(test_source_mapped() == before);
}
static void test_source_pages_touch(void) {
    int no_huge;
    for (no_huge = 0; no_huge < 2; ++no_huge) {
        const size_t bytes = (size_t)8 << 20, pages = bytes / memopt_i_page_size();
        memopt_pages_desc d; memopt_source lazy, touched; void *base = NULL; size_t n;
        memset(&d, 0, sizeof d);
        d.no_huge = no_huge;
        CHECK(memopt_source_pages(&d, &lazy) == MEMOPT_OK);
        d.touch = 1;
        CHECK(memopt_source_pages(&d, &touched) == MEMOPT_OK && !touched.commit_fn && !touched.decommit_fn && touched.fresh_is_zero);
        CHECK(lazy.reserve_fn(&lazy, bytes, &base) == MEMOPT_OK && lazy.commit_fn(&lazy, base, bytes) == MEMOPT_OK);
        n = test_source_resident(base, bytes);
        if (n == 0) { /* mincore can tell */
            *((volatile char *)base + 5 * memopt_i_page_size()) = 1;
            n = test_source_resident(base, bytes);
            CHECK(n >= 1);
        }
        lazy.release_fn(&lazy, base, bytes);
        if (n == SIZE_MAX || n == pages || test_source_is_emulated()) { SKIP("no mincore here that knows what is in memory"); return; }
        CHECK(touched.reserve_fn(&touched, bytes, &base) == MEMOPT_OK);
        CHECK(test_source_resident(base, bytes) == pages);
        CHECK(test_source_is(base, bytes, 0));
        memset(base, 1, bytes);
        touched.release_fn(&touched, base, bytes);
    }
}
/* The flags the kernel keeps for a range, from /proc/self/smaps: " hg" when huge pages were asked for. */
static int test_source_asked_huge(const void *address) {
    static char text[4 << 20]; void *file = NULL; size_t done = 0; char *line; int inside = 0;
    if (memopt_i_system_open(NULL, "/proc/self/smaps", MEMOPT_OPEN_READ, &file)) return -1;
    (void)memopt_i_system_read(NULL, file, 0, text, sizeof text - 1, &done);
    (void)memopt_i_system_close(NULL, file);
    text[done] = 0;
    for (line = text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        char *end; const unsigned long from = strtoul(line, &end, 16);
        if (*end == '-') inside = from <= (uintptr_t)address && (uintptr_t)address < strtoul(end + 1, NULL, 16);
        else if (inside && !strncmp(line, "VmFlags:", 8)) {
            char *stop = strchr(line, '\n'); char *flag = strstr(line, " hg");
            return flag && (!stop || flag < stop);
        }
    }
    return -1;
}
static void test_source_pages_advice(void) {
    memopt_source s; memopt_pages_desc d; void *big = NULL, *small = NULL; int asked; memopt_ledger *ledger = NULL;
    CHECK(memopt_ledger_create(NULL, &ledger) == MEMOPT_OK);
    memset(&d, 0, sizeof d);
    CHECK(memopt_source_pages(&d, &s) == MEMOPT_OK);
    s.ledger = ledger;
    CHECK(memopt_i_source_reserve(&s, test_source_align_up((size_t)4 << 20, s.granularity), &big) == MEMOPT_OK);
    CHECK(memopt_i_source_reserve(&s, s.granularity, &small) == MEMOPT_OK);
    asked = test_source_asked_huge(big);
    if (asked < 0 || memopt_ledger_total(ledger).retried || test_source_is_emulated()) { /* the refusal is in the ledger */
        CHECK(asked <= 0);
        SKIP("this system has no huge pages, or does not tell");
    } else CHECK(asked == 1 && (s.granularity >= (size_t)4 << 20 || test_source_asked_huge(small) == 0));
    memopt_i_source_release(&s, big, test_source_align_up((size_t)4 << 20, s.granularity), 0);
    memopt_i_source_release(&s, small, s.granularity, 0);
    d.no_huge = 1;
    CHECK(memopt_source_pages(&d, &s) == MEMOPT_OK);
    CHECK(memopt_i_source_reserve(&s, (size_t)8 << 20, &big) == MEMOPT_OK);
    CHECK(test_source_asked_huge(big) <= 0);
    memopt_i_source_release(&s, big, (size_t)8 << 20, 0);
    memopt_ledger_destroy(ledger);
}
#endif
#if defined(MEMOPT_I_POSIX)
/* A child writes to the address. 1: it was killed for it; 0: it lived; -1: no child. */
static int test_source_is_killed(volatile char *address) {
    int status = 0; const pid_t child = fork();
    if (child < 0) return -1;
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would end it in another way */
        signal(SIGBUS, SIG_DFL);
        *address = 1;
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child) return -1;
    if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS;
    return 0;
}
static void test_source_pages_guard(void) {
    int touch;
    for (touch = 0; touch < 2; ++touch) {
        memopt_pages_desc d; memopt_source s; void *base = NULL; volatile char *p; size_t bytes;
        memset(&d, 0, sizeof d);
        d.no_huge = 1; d.touch = touch;
        CHECK(memopt_source_pages(&d, &s) == MEMOPT_OK);
        bytes = 2 * s.granularity;
        CHECK(s.reserve_fn(&s, bytes, &base) == MEMOPT_OK);
        p = (volatile char *)base;
        if (!touch) {
            CHECK(test_source_is_killed(p) == 1); /* reserved is not committed */
            CHECK(s.commit_fn(&s, base, bytes) == MEMOPT_OK);
        }
        CHECK(test_source_is_killed(p) == 0 && test_source_is_killed(p + bytes - 1) == 0);
        if (MEMOPT_DEBUG >= 1) CHECK(test_source_is_killed(p + bytes) == 1); /* the guard page */
        if (!touch) {
            CHECK(s.decommit_fn(&s, base, s.granularity) == MEMOPT_OK);
            CHECK(test_source_is_killed(p) == 1 && test_source_is_killed(p + s.granularity) == 0);
        }
        s.release_fn(&s, base, bytes);
    }
}
#endif

/* -- A device of our own, and the ledger -- */

static void test_source_valid(void) {
    memopt_source good, s; test_device d; int i; memopt_arena_desc a; memopt_arena *arena = NULL;
    test_device_open(&d, &good, 65536, 4096, 0);
    for (i = -1; i < 16; ++i) {
        s = good;
        if (i == 0) s.reserve_fn = NULL;
        if (i == 1) s.release_fn = NULL;
        if (i == 2) s.zero_fn = NULL;
        if (i == 3) s.commit_fn = NULL;
        if (i == 4) s.decommit_fn = NULL;
        if (i == 5) s.granularity = 0;
        if (i == 6) s.granularity = 3;
        if (i == 7) s.base_alignment = 0;
        if (i == 8) s.base_alignment = 4096 + 64;
        if (i == 9) s.alignment = 0;
        if (i == 10) s.alignment = 96;
        if (i == 11) s.alignment = 8192; /* above base_alignment */
        if (i == 12) s.capacity = 0;
        if (i == 13) s.alignment = 8;    /* an arena wants 16 */
        if (i == 14) s.granularity = SIZE_MAX;
        if (i == 15) memset(&s, 0, sizeof s);
        memset(&a, 0, sizeof a);
        a.source = &s;
        if (i == 11) a.alignment = 64; /* good in itself */
        CHECK_AT(memopt_arena_create(&a, &arena) == (i < 0 ? MEMOPT_OK : MEMOPT_ERR_ARGUMENT), i);
        CHECK_AT((arena != NULL) == (i < 0), i);
        memopt_arena_destroy(arena);
        arena = NULL;
    }
    CHECK(d.reserved == 0 && d.mistakes == 0);
    test_device_close(&d);
}
static void test_source_device_failures(void) { /* a fixed story with a device; every call of the table fails once, in turn */
    size_t n;
    for (n = 1; n < 100; ++n) {
        test_device d; memopt_source s; memopt_ledger *l = NULL; void *base = NULL; unsigned char bytes[64]; memopt_status status; size_t tries = 0, committed = 0;
        memset(bytes, 9, sizeof bytes);
        test_device_open(&d, &s, 65536, 4096, 0);
        CHECK(memopt_ledger_create(NULL, &l) == MEMOPT_OK);
        s.ledger = l;
        d.fail_on = n;
#define TEST_SOURCE_STEP(call) do { status = (call); \
            CHECK_AT(status == MEMOPT_OK || (status == MEMOPT_ERR_DEVICE && d.calls == n), n); \
            CHECK_AT(memopt_ledger_footprint(l).reserved == d.reserved && memopt_ledger_footprint(l).committed == d.committed, n); \
            CHECK_AT(memopt_ledger_footprint(l).segments == (d.reserved != 0), n); } while (status && ++tries < 3)
        TEST_SOURCE_STEP(memopt_i_source_reserve(&s, 32768, &base));
        TEST_SOURCE_STEP(memopt_i_source_commit(&s, base, 8192));
        TEST_SOURCE_STEP(memopt_i_source_commit(&s, (char *)base + 8192, 4096));
        TEST_SOURCE_STEP(s.zero_fn(&s, base, 12288));
        TEST_SOURCE_STEP(s.copy_in_fn(&s, (char *)base + 5, bytes, 64));
        TEST_SOURCE_STEP(s.copy_fn(&s, (char *)base + 5000, (char *)base + 5, 64));
        memset(bytes, 0, sizeof bytes);
        TEST_SOURCE_STEP(s.copy_out_fn(&s, bytes, (char *)base + 5000, 64));
        CHECK(test_source_is(bytes, 64, 9));
        TEST_SOURCE_STEP(memopt_i_source_decommit(&s, (char *)base + 4096, 4096));
        committed = d.committed;
        CHECK(committed == 8192 && memopt_ledger_footprint(l).committed_peak == 12288);
        memopt_i_source_release(&s, base, 32768, committed);
        CHECK(memopt_ledger_footprint(l).reserved == 0 && memopt_ledger_footprint(l).committed == 0 && memopt_ledger_footprint(l).segments == 0);
        /* An attempt that ended without memory is in the ledger: the reservation's or one of the two commits'. */
        CHECK_AT(memopt_ledger_total(l).failed == (n <= 3 ? 1 : 0), n);
        CHECK_AT(d.mistakes == 0 && tries == (n <= 8), n);
        memopt_ledger_destroy(l);
        test_device_close(&d);
        if (d.calls < n) break;
    }
    CHECK(n == 9);
}
/* Random reservations and commits over several sources with one ledger whose table of segments is too small for them. */
static void test_source_ledger_exact(void) {
    size_t capacity; uint64_t seed = 3;
    for (capacity = 1; capacity <= 8; ++capacity) {
        test_device d[6]; memopt_source s[6]; void *base[6]; memopt_ledger *l = NULL; memopt_ledger_desc desc; int round, i; size_t peak = 0;
        memset(&desc, 0, sizeof desc);
        desc.segment_capacity = capacity; desc.event_capacity = 3;
        CHECK(memopt_ledger_create(&desc, &l) == MEMOPT_OK);
        for (i = 0; i < 6; ++i) {
            test_device_open(&d[i], &s[i], 16 * 4096, 4096, 1);
            if (i >= 4) s[i].commit_fn = s[i].decommit_fn = NULL; /* usable from reserve to release */
            s[i].ledger = l;
        }
        for (round = 0; round < 600; ++round) {
            size_t reserved = 0, committed = 0, segments = 0; const size_t k = test_below(&seed, 6), at = test_below(&seed, 16);
            if (!d[k].reserved) CHECK(memopt_i_source_reserve(&s[k], 16 * 4096, &base[k]) == MEMOPT_OK);
            else if (test_below(&seed, 6) == 0) memopt_i_source_release(&s[k], base[k], d[k].reserved, s[k].commit_fn ? d[k].committed : 0);
            else if (!s[k].commit_fn) CHECK(memopt_i_source_commit(&s[k], base[k], 4096) == MEMOPT_OK); /* nothing to do, nothing to book */
            else if (d[k].is_committed[at]) CHECK(memopt_i_source_decommit(&s[k], (char *)base[k] + at * 4096, 4096) == MEMOPT_OK);
            else CHECK(memopt_i_source_commit(&s[k], (char *)base[k] + at * 4096, 4096) == MEMOPT_OK);
            for (i = 0; i < 6; ++i) { reserved += d[i].reserved; committed += d[i].committed; segments += d[i].reserved != 0; }
            if (committed > peak) peak = committed;
            CHECK_AT(memopt_ledger_footprint(l).reserved == reserved
                     && memopt_ledger_footprint(l).committed == committed, round);
            CHECK_AT(memopt_ledger_footprint(l).segments == segments
                     && memopt_ledger_footprint(l).committed_peak == peak, round);
        }
        for (i = 0; i < 6; ++i) {
            if (d[i].reserved) memopt_i_source_release(&s[i], base[i], d[i].reserved, s[i].commit_fn ? d[i].committed : 0);
            CHECK(d[i].mistakes == 0);
            test_device_close(&d[i]);
        }
        CHECK(memopt_ledger_footprint(l).reserved == 0 && memopt_ledger_footprint(l).committed == 0 && memopt_ledger_footprint(l).segments == 0);
        memopt_ledger_destroy(l);
    }
}

/* What arenas and heaps say of a table that somebody else filled in, and of a desc of pages. */
#define SOURCE_SAYS(change, text) REFUSES(door, (s = right, change), source_told(door, p), MEMOPT_ERR_ARGUMENT, \
    "arena: source" text)
static memopt_status test_source_commit(memopt_source *s, void *start, size_t bytes) {
    (void)s; (void)start; (void)bytes;
    return MEMOPT_OK;
}
static memopt_status source_told(memopt_error *error, const memopt_source *s) {
    memopt_i_checks c = memopt_i_checks_begin(error, "arena");

    return memopt_i_source_check(&c, s);
}
static void test_source_errors(void) {
    memopt_source right, s;
    const memopt_source *p = &s;
    memopt_error *door = NULL;
    memopt_pages_desc d;
    memopt_host h;

    CHECK(memopt_source_counting(&right) == MEMOPT_OK);
    ACCEPTS(door, s = right, source_told(door, p));
    SOURCE_SAYS(s.reserve_fn = NULL, ".reserve_fn is NULL");
    SOURCE_SAYS(s.release_fn = NULL, ".release_fn is NULL");
    SOURCE_SAYS(s.zero_fn = NULL, ".zero_fn is NULL");
    SOURCE_SAYS(s.decommit_fn = s.decommit_fn ? NULL : test_source_commit, " has one of commit_fn and decommit_fn, not both");
    SOURCE_SAYS(s.granularity = 48, ".granularity 48, must be a power of two");
    SOURCE_SAYS(s.base_alignment = 0, ".base_alignment 0, must be a power of two");
    SOURCE_SAYS(s.alignment = 100, ".alignment 100, must be a power of two");
    SOURCE_SAYS((s.base_alignment = 64, s.alignment = 128), ".alignment 128, at most source.base_alignment 64");
    SOURCE_SAYS(s.capacity = 0, ".capacity is 0");
    SOURCE_SAYS(p = NULL, " is NULL");
    memset(&d, 0, sizeof d);
    memset(&h, 0, sizeof h);
    if (memopt_source_pages(&d, &s) == MEMOPT_ERR_UNSUPPORTED) {
        REFUSES(d.error, (void)0, memopt_source_pages(&d, &s), MEMOPT_ERR_UNSUPPORTED,
                "pages: this platform has no virtual memory");
        return;
    }
    ACCEPTS(d.error, (void)0, memopt_source_pages(&d, &s));
    REFUSES(d.error, (void)0, memopt_source_pages(&d, NULL), MEMOPT_ERR_ARGUMENT, "pages: out is NULL");
    h.allocator.alloc_fn = test_alloc;
    REFUSES(d.error, d.host = &h, memopt_source_pages(&d, &s), MEMOPT_ERR_ARGUMENT, "pages: host.allocator is half a table");
}
static void test_source(void) {
    RUN(test_source_block_alignment);
    RUN(test_source_block_use);
    RUN(test_source_host_functions);
    RUN(test_source_allocator_use);
    RUN(test_source_allocator_arguments);
    RUN(test_source_counting_use);
#if defined(__linux__)
    RUN(test_source_available_cases);
    RUN(test_source_available_failures);
    RUN(test_source_available_long);
    RUN(test_source_pages_huge_size);
    RUN(test_source_pages_check);
    RUN(test_source_pages_leak);
    RUN(test_source_pages_touch);
    RUN(test_source_pages_advice);
#endif
    RUN(test_source_available_here);
    RUN(test_source_pages_use);
    RUN(test_source_pages_arguments);
#if defined(MEMOPT_I_POSIX)
    RUN(test_source_pages_guard);
#endif
    RUN(test_source_valid);
    RUN(test_source_errors);
    RUN(test_source_device_failures);
    RUN(test_source_ledger_exact);
}
#ifndef TEST_COMBINED
int main(void) { test_source(); return test_totals(); }
#endif
