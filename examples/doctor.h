/* doctor.h - records what one step of an engine does with its memory; build/doctor_tool tells what could be saved.

   In one file of the engine, behind the system's headers:      #define DOCTOR_IMPLEMENTATION
                                                                #include "doctor.h"
   and in the others plainly. malloc, calloc, realloc and free below it are the doctor's. Two calls tell it of time:
       doctor_step();            a step begins; once more behind the last one
       doctor_mark("forward");   a phase begins, or its next layer: the same name again
       doctor_mark("forward, norm");  within a layer: each of its operators. More marks tell more
   The second step is recorded (the first one is timed), and written to doctor.trace where the third begins.

   How     Blocks of a page or more lie on pages of their own, which are closed at every mark (mprotect). The first
           read and the first write of a page between two marks raise SIGSEGV, are noted, and open it. So for each
           page it is known between which marks it was read, written, or read before it was written: exact, for any
           code, by any thread. What was written is hashed at the next mark, which tells zeros and copies.
   Where   Linux on x86; aarch64 by its manual, not run yet; with _DEFAULT_SOURCE if -std=c99 hides mmap. Elsewhere
           (Windows, macOS, other processors), and where a probe fails (valgrind, qemu), the program runs as without,
           and is told that nothing is recorded. What works on every system: doctor_tool, for traces of any of them and
           for the snapshot of a memopt_ledger, which tells lifetimes but not who reads and writes.
   Limits  A page that was written first may be read before the next mark: unseen. So put a mark behind what zeroes.
           What is written with the bytes that were there before counts as kept.
           A system call into a closed page fails with EFAULT: read files before the step that is recorded. One thread
           at a time allocates and marks. Not seen: small blocks, globals, stacks, new of C++, memory of a device.
   Proof   With DOCTOR_PROVE in the environment the third step puts 0xFF into each byte wherever the record says that
           nobody needs it. An engine that then computes the same as without has proven the record.
   Price   Some microseconds for every page between two marks, in the one step; 24 bytes for each; memory twice. */
#ifndef DOCTOR_H
#define DOCTOR_H
#include <stddef.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif
void  doctor_step(void);
void  doctor_mark(const char *name); /* of static text */
void *doctor_malloc(size_t bytes, const char *file, int line);
void *doctor_calloc(size_t count, size_t each, const char *file, int line);
void *doctor_realloc(void *old, size_t bytes, const char *file, int line);
void  doctor_free(void *at);
#ifdef __cplusplus
}
#endif

#ifdef DOCTOR_IMPLEMENTATION
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#ifndef DOCTOR_TRACE
#  define DOCTOR_TRACE "doctor.trace"
#endif
#if defined(__linux__) && (defined(__x86_64__) || defined(__i386__) || defined(__aarch64__))
#  include <signal.h>
#  include <sys/mman.h>
#  include <time.h>
#  include <ucontext.h>
#  include <unistd.h>
#  if defined(MAP_ANONYMOUS) && defined(SA_SIGINFO)
#    define DOCTOR_CLOSES_PAGES
#  endif
#endif
#ifdef DOCTOR_CLOSES_PAGES
enum { DOCTOR_WAITS, DOCTOR_PROBES, DOCTOR_RECORDS, DOCTOR_PROVES };
enum { DOCTOR_READ = 1, DOCTOR_WRITTEN = 2 }; /* READ | WRITTEN: in this order */

typedef struct doctor_event { /* what happened to a page between a mark and the next */
    uint32_t block, page, mark;
    uint16_t kind, zeros; /* zeros: some of its bytes were zeros before it was written, and still are */
    uint64_t hash; /* of what was written; 0: zeros only */
} doctor_event;

typedef struct doctor_block {
    unsigned char *at, *before, *flags; /* whole pages; what they held at the last mark; what was touched since */
    size_t bytes, pages, born, died, events, event_count;
    const char *file;
    int line, live;
} doctor_block;

typedef struct doctor_mark_of { const char *name; size_t time; } doctor_mark_of;
typedef struct doctor_cost { uint64_t began, took; } doctor_cost; /* nanoseconds */

static struct {
    doctor_block *blocks;
    doctor_event *events;
    doctor_mark_of *marks;
    doctor_cost *costs; /* of the marks of the step before the one that is recorded, where they are as many */
    size_t *by_address; /* the live blocks */
    size_t block_count, block_room, event_count, event_room, mark_count, mark_room, cost_count, cost_room;
    size_t live_count, live_room;
    size_t page, time, now; /* time: marks, allocations and frees so far; now: the mark of a proof */
    int state, step, failed;
} doctor;

static void doctor_fail(const char *why) {
    if (!doctor.failed) fprintf(stderr, "doctor: %s; nothing is recorded\n", why);
    doctor.failed = 1;
}

/* Room for one more in an array, of whose pointer this is the address; 0 and a message: there is none. */
static int doctor_grow(void *array, size_t count, size_t *room, size_t each) {
    const size_t more = *room ? 2 * *room : 256;
    void *at;

    if (count < *room) return 1;
    memcpy(&at, array, sizeof at);
    at = more > SIZE_MAX / 2 / each ? NULL : realloc(at, more * each);
    if (!at) {
        doctor_fail("no memory for the record");
        return 0;
    }
    memcpy(array, &at, sizeof at);
    *room = more;
    return 1;
}

static uint64_t doctor_hash(const unsigned char *page) { /* 0 for zeros and for nothing else */
    uint64_t hash = 0x9e3779b97f4a7c15u;
    uint64_t any = 0;
    uint64_t word;
    size_t i;

    for (i = 0; i < doctor.page; i += sizeof word) {
        memcpy(&word, page + i, sizeof word);
        any |= word;
        hash ^= word * 0xff51afd7ed558ccdu;
        hash = (hash << 31 | hash >> 33) * 0x9e3779b97f4a7c15u; /* turned, or the top bits of two words cancel out */
    }
    return any ? hash | 1 : 0;
}

static size_t doctor_place(const void *at) { /* how many live blocks begin at this byte or before it */
    size_t below = 0, above = doctor.live_count;

    while (below < above) {
        const size_t middle = below + (above - below) / 2;

        if ((uintptr_t)doctor.blocks[doctor.by_address[middle]].at <= (uintptr_t)at) below = middle + 1;
        else above = middle;
    }
    return below;
}

static doctor_block *doctor_find(const void *at) { /* the live block that has this byte; NULL: none */
    const size_t place = doctor_place(at);
    doctor_block *b = place ? &doctor.blocks[doctor.by_address[place - 1]] : NULL;

    return b && (uintptr_t)at - (uintptr_t)b->at < b->pages * doctor.page ? b : NULL;
}

static void doctor_enter(size_t block) { /* among the live ones, which have room */
    const size_t place = doctor_place(doctor.blocks[block].at);

    memmove(doctor.by_address + place + 1, doctor.by_address + place, (doctor.live_count - place) * sizeof block);
    doctor.by_address[place] = block;
    ++doctor.live_count;
}

static void doctor_leave(const doctor_block *b) {
    const size_t place = doctor_place(b->at) - 1;

    --doctor.live_count;
    memmove(doctor.by_address + place, doctor.by_address + place + 1, (doctor.live_count - place) * sizeof place);
}

/* ---- pages that are closed ---- */
static struct sigaction doctor_before;

#  if defined(__aarch64__)
static int doctor_kind(const ucontext_t *c) { /* of a fault, by the syndrome: one of a list of records */
    const unsigned char *at = (const unsigned char *)c->uc_mcontext.__reserved;
    uint32_t head[2]; /* magic, bytes */
    uint64_t syndrome;

    for (;; at += head[1]) {
        memcpy(head, at, sizeof head);
        if (!head[0] || !head[1]) return DOCTOR_READ;
        if (head[0] == 0x45535201u) break;
    }
    memcpy(&syndrome, at + sizeof head, sizeof syndrome);
    return syndrome & 64 ? DOCTOR_WRITTEN : DOCTOR_READ;
}
#  else
/* An instruction that only stores; others, as `add %eax, (%rdi)`, read first, though the fault says that they write. */
static int doctor_only_stores(const unsigned char *code) {
    while (memchr("\x26\x2e\x36\x3e\x64\x65\x66\x67\xf2\xf3", *code, 10) || (sizeof(void *) == 8 && *code >> 4 == 4))
        ++code; /* prefixes */
    if (*code == 0x0f) return code[1] >> 4 == 9 || memchr("\x11\x13\x17\x29\x2b\x7f\xc3\xd6\xe7", code[1], 9) != NULL;
    return memchr("\x62\xc4\xc5\x88\x89\xc6\xc7\xa2\xa3\xa4\xa5\xaa\xab\xd9\xdb\xdd\xdf", *code, 17) != NULL;
}
static int doctor_kind(const ucontext_t *c) { /* of a fault, by REG_ERR and REG_RIP or REG_EIP */
    const int number = sizeof(void *) == 8 ? 19 : 13;

    if (!(c->uc_mcontext.gregs[number] & 2)) return DOCTOR_READ;
    return doctor_only_stores((const unsigned char *)(uintptr_t)c->uc_mcontext.gregs[sizeof(void *) == 8 ? 16 : 14])
           ? DOCTOR_WRITTEN : DOCTOR_READ | DOCTOR_WRITTEN;
}
#  endif

static void doctor_fault(int number, siginfo_t *info, void *context) {
    doctor_block *b = doctor_find(info->si_addr);
    int kind = doctor_kind((const ucontext_t *)context);
    size_t page, i;

    if (b && doctor.state != DOCTOR_WAITS) {
        page = (size_t)((unsigned char *)info->si_addr - b->at) / doctor.page;
        if (b->flags[page] & DOCTOR_READ) kind = DOCTOR_WRITTEN; /* it is open for reading */
        b->flags[page] |= (unsigned char)kind;
        i = page * doctor.page;
        if (!mprotect(b->at + i, doctor.page, kind & DOCTOR_WRITTEN ? PROT_READ | PROT_WRITE : PROT_READ)) return;
    } else if (doctor.state == DOCTOR_PROBES) b = doctor.blocks; /* no address is told here */
    else { /* a fault of the engine's own: it happens again, as without us */
        sigaction(number, &doctor_before, NULL);
        return;
    }
    /* Or the system has no more pieces of maps: the whole block opens, and counts as read and written. */
    for (i = 0; i < b->pages; ++i) b->flags[i] |= DOCTOR_READ | DOCTOR_WRITTEN;
    if (mprotect(b->at, b->pages * doctor.page, PROT_READ | PROT_WRITE)) _exit(70);
}

static int doctor_catch_faults(void) {
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_sigaction = doctor_fault;
    action.sa_flags = SA_SIGINFO;
    return !sigaction(SIGSEGV, &action, &doctor_before);
}

static void doctor_open(const doctor_block *b, int open) {
    if (mprotect(b->at, b->pages * doctor.page, open ? PROT_READ | PROT_WRITE : PROT_NONE))
        doctor_fail("mprotect failed");
}

/* ---- blocks ---- */
static int doctor_take(doctor_block *b, size_t bytes) { /* its memory; 0: there is none */
    void *at;

    memset(b, 0, sizeof *b);
    b->bytes = bytes;
    b->pages = (bytes + doctor.page - 1) / doctor.page;
    b->flags = (unsigned char *)calloc(b->pages, 1);
    at = mmap(NULL, 2 * b->pages * doctor.page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    b->live = b->flags && at != MAP_FAILED;
    if (b->live) {
        b->at = (unsigned char *)at;
        b->before = b->at + b->pages * doctor.page;
        return 1;
    }
    if (at != MAP_FAILED) munmap(at, 2 * b->pages * doctor.page);
    free(b->flags);
    return 0;
}

static void doctor_give(doctor_block *b) {
    munmap(b->at, 2 * b->pages * doctor.page);
    free(b->flags);
    b->live = 0;
}

static void doctor_begin_once(void) { /* and see whether a fault here tells a read from a write */
    doctor_block b;
    size_t first = 0;

    if (doctor.page) return;
    doctor.page = (size_t)sysconf(_SC_PAGESIZE);
    if (!doctor_take(&b, 2 * doctor.page)) {
        doctor_fail("no memory");
        return;
    }
    doctor.blocks = &b;
    doctor.by_address = &first;
    doctor.block_count = doctor.live_count = 1;
    doctor.state = DOCTOR_PROBES;
    if (doctor_catch_faults()) {
        doctor_open(&b, 0);
        ((volatile unsigned char *)b.at)[doctor.page] = ((volatile unsigned char *)b.at)[0];
        sigaction(SIGSEGV, &doctor_before, NULL);
    }
    if (b.flags[0] != DOCTOR_READ || b.flags[1] != DOCTOR_WRITTEN)
        doctor_fail("a fault does not tell reads from writes here");
    doctor.state = DOCTOR_WAITS;
    doctor.blocks = NULL;
    doctor.by_address = NULL;
    doctor.block_count = doctor.live_count = 0;
    doctor_give(&b);
}

static int doctor_room_for_a_block(void) {
    return doctor_grow(&doctor.blocks, doctor.block_count, &doctor.block_room, sizeof *doctor.blocks)
        && doctor_grow(&doctor.by_address, doctor.live_count, &doctor.live_room, sizeof *doctor.by_address);
}

void *doctor_malloc(size_t bytes, const char *file, int line) {
    doctor_block b;

    doctor_begin_once();
    if (bytes < doctor.page || bytes > SIZE_MAX / 2) return malloc(bytes);
    if (!doctor_room_for_a_block() || !doctor_take(&b, bytes)) {
        doctor_fail("the system has no more pages for it");
        return malloc(bytes);
    }
    b.file = file;
    b.line = line;
    b.born = ++doctor.time;
    if (doctor.state == DOCTOR_RECORDS) doctor_open(&b, 0);
    doctor.blocks[doctor.block_count] = b;
    doctor_enter(doctor.block_count++);
    return b.at;
}

void *doctor_calloc(size_t count, size_t each, const char *file, int line) {
    void *at;

    if (each && count > SIZE_MAX / each) return NULL;
    at = doctor_malloc(count * each, file, line); /* blocks of ours are zeros already */
    if (at && !doctor_find(at)) memset(at, 0, count * each);
    return at;
}

static void doctor_look(size_t block);

static void doctor_forget(doctor_block *dead) { /* the last block takes its number */
    const doctor_block *last = &doctor.blocks[--doctor.block_count];

    if (last == dead) return;
    if (last->live) doctor.by_address[doctor_place(last->at) - 1] = (size_t)(dead - doctor.blocks);
    *dead = *last;
}

void doctor_free(void *at) {
    doctor_block *b = doctor.page && (uintptr_t)at % doctor.page == 0 ? doctor_find(at) : NULL;

    if (!b) {
        free(at);
        return;
    }
    b->died = ++doctor.time;
    if (doctor.state == DOCTOR_RECORDS) doctor_look((size_t)(b - doctor.blocks));
    doctor_leave(b);
    doctor_give(b);
    if (doctor.state != DOCTOR_RECORDS) doctor_forget(b);
}

void *doctor_realloc(void *old, size_t bytes, const char *file, int line) {
    const doctor_block *b = old ? doctor_find(old) : NULL;
    const size_t had = b ? b->bytes : bytes;
    void *at;

    if (!b && old) old = realloc(old, bytes);
    if (!b && (!old || bytes < doctor.page)) return old ? old : doctor_malloc(bytes, file, line);
    at = doctor_malloc(bytes, file, line);
    if (!at) return b ? NULL : old;
    memcpy(at, old, had < bytes ? had : bytes);
    doctor_free(old);
    return at;
}

/* ---- marks ---- */
/* What was written. Sixteen bytes that are as before are not known to be: they are kept, as if they had been read. */
static void doctor_compare(doctor_event *e, const unsigned char *now, unsigned char *before) {
    static const unsigned char zeros[16] = { 0 };
    size_t i;

    e->hash = doctor_hash(now);
    for (i = 0; i < doctor.page; i += sizeof zeros) {
        if (memcmp(now + i, before + i, sizeof zeros)) continue;
        if (memcmp(now + i, zeros, sizeof zeros)) e->kind |= DOCTOR_READ;
        else e->zeros = 1;
    }
    memcpy(before, now, doctor.page);
}

static void doctor_look(size_t block) { /* what was touched since the last mark; the block is open then */
    const doctor_block *b = &doctor.blocks[block];
    size_t i;

    doctor_open(b, 1);
    for (i = 0; i < b->pages; ++i) {
        doctor_event e;

        if (!b->flags[i]) continue;
        memset(&e, 0, sizeof e);
        e.block = (uint32_t)block;
        e.page = (uint32_t)i;
        e.mark = (uint32_t)(doctor.mark_count - 1);
        e.kind = b->flags[i];
        if (e.kind & DOCTOR_WRITTEN) doctor_compare(&e, b->at + i * doctor.page, b->before + i * doctor.page);
        if (doctor_grow(&doctor.events, doctor.event_count, &doctor.event_room, sizeof e))
            doctor.events[doctor.event_count++] = e;
        b->flags[i] = 0;
    }
}

static void doctor_look_at_all(int closing) {
    size_t i;

    for (i = 0; i < doctor.live_count; ++i) {
        doctor_look(doctor.by_address[i]);
        if (closing) doctor_open(&doctor.blocks[doctor.by_address[i]], 0);
    }
}

static uint64_t doctor_now(void) {
    struct timespec t;

    if (clock_gettime(CLOCK_MONOTONIC, &t)) return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void doctor_time(int another) { /* the mark before ends, and perhaps another begins */
    const uint64_t now = doctor_now();

    if (doctor.cost_count) doctor.costs[doctor.cost_count - 1].took = now - doctor.costs[doctor.cost_count - 1].began;
    if (!another || !doctor_grow(&doctor.costs, doctor.cost_count, &doctor.cost_room, sizeof *doctor.costs)) return;
    doctor.costs[doctor.cost_count++].began = doctor_now();
}

static void doctor_add_mark(const char *name) {
    if (!doctor_grow(&doctor.marks, doctor.mark_count, &doctor.mark_room, sizeof *doctor.marks)) return;
    doctor.marks[doctor.mark_count].name = name;
    doctor.marks[doctor.mark_count++].time = ++doctor.time;
}

static size_t doctor_of_page(const doctor_block *b, size_t from, size_t page) { /* how many events it has */
    size_t n = 0;

    while (from + n < b->event_count && doctor.events[b->events + from + n].page == page) ++n;
    return n;
}

/* What a proof puts into a page when a mark begins: -1 nothing, 0 or 255. */
static int doctor_fill(const doctor_event *e, size_t count, size_t mark) {
    int fill = -1;
    size_t i;

    if (!count || e[0].kind != DOCTOR_WRITTEN) return -1;
    for (i = 0; i < count; ++i) {
        const int zeros = e[i].kind == DOCTOR_WRITTEN && !e[i].hash;

        if (mark == e[i].mark && i && e[i - 1].kind == DOCTOR_WRITTEN && !e[i - 1].hash) fill = 0;
        if (mark == e[i].mark && e[i].kind == DOCTOR_WRITTEN) fill = e[i].zeros ? 0 : 255; /* it is taken zeroed */
        if (mark == e[i].mark + 1 && (i + 1 == count || (zeros && e[i + 1].mark != mark))) fill = 255;
    }
    return fill;
}

static void doctor_prove(size_t mark) {
    size_t i, page, at, count;

    for (i = 0; i < doctor.block_count; ++i) {
        const doctor_block *b = &doctor.blocks[i];

        for (page = at = 0; b->event_count && page < b->pages; ++page, at += count) {
            const int fill = doctor_fill(doctor.events + b->events + at, count = doctor_of_page(b, at, page), mark);

            if (fill >= 0) memset(b->at + page * doctor.page, fill, doctor.page);
        }
    }
}

/* ---- the record ---- */
static int doctor_by_page(const void *a, const void *b) {
    const doctor_event *x = (const doctor_event *)a;
    const doctor_event *y = (const doctor_event *)b;

    if (x->block != y->block) return x->block < y->block ? -1 : 1;
    if (x->page != y->page) return x->page < y->page ? -1 : 1;
    return x->mark < y->mark ? -1 : x->mark > y->mark;
}

static int doctor_alike(const doctor_event *a, const doctor_event *b, size_t count) {
    size_t i;

    for (i = 0; i < count; ++i)
        if (a[i].mark != b[i].mark || a[i].kind != b[i].kind || !a[i].hash != !b[i].hash) return 0;
    return 1;
}

/* Neighbouring pages with one history are one buffer. */
static void doctor_write_block(FILE *file, const doctor_block *b, size_t number, size_t end) {
    doctor_event *e = doctor.events + b->events;
    size_t page = 0;
    size_t at = 0;
    size_t count, more, i, bytes;

    for (; page < b->pages; page += more, at += more * count) {
        count = doctor_of_page(b, at, page);
        for (more = 1; page + more < b->pages; ++more) {
            const size_t next = at + more * count;

            if (doctor_of_page(b, next, page + more) != count || !doctor_alike(e + at, e + next, count)) break;
            for (i = 0; i < count; ++i) {
                uint64_t *const hash = &e[at + i].hash;

                if (*hash) *hash = ((*hash << 7 | *hash >> 57) ^ e[next + i].hash) | 1;
            }
        }
        bytes = page + more < b->pages ? more * doctor.page : b->bytes - page * doctor.page;
        fprintf(file, "buffer %lu %lu %lu %lu %lu %s:%d\n", (unsigned long)b->born,
                (unsigned long)(b->live ? end : b->died), (unsigned long)bytes, (unsigned long)number,
                (unsigned long)(page * doctor.page), b->file, b->line);
        for (i = 0; i < count; ++i)
            fprintf(file, "touch %lu %s %lx%08lx\n", (unsigned long)e[at + i].mark,
                    e[at + i].kind == DOCTOR_READ ? "r" : e[at + i].kind == DOCTOR_WRITTEN ? "w" : "rw",
                    (unsigned long)(e[at + i].hash >> 32), (unsigned long)(e[at + i].hash & 0xffffffffu));
    }
}

static void doctor_write(void) {
    FILE *file = fopen(DOCTOR_TRACE, "w");
    const size_t end = ++doctor.time;
    size_t i, at = 0;
    int bad;

    if (doctor.event_count) qsort(doctor.events, doctor.event_count, sizeof *doctor.events, doctor_by_page);
    for (i = 0; i < doctor.block_count; ++i) {
        doctor.blocks[i].events = at;
        while (at < doctor.event_count && doctor.events[at].block == i) ++at;
        doctor.blocks[i].event_count = at - doctor.blocks[i].events;
    }
    if (!file) {
        doctor_fail("the trace cannot be written");
        return;
    }
    fputs("doctor 1\n", file);
    for (i = 0; i < doctor.mark_count; ++i) {
        fprintf(file, "mark %lu %s\n", (unsigned long)doctor.marks[i].time, doctor.marks[i].name);
        if (doctor.cost_count == doctor.mark_count) fprintf(file, "cost %.0f\n", (double)(doctor.costs[i].took / 1000 + 1));
    }
    for (i = 0; i < doctor.block_count; ++i) doctor_write_block(file, &doctor.blocks[i], i, end);
    fprintf(file, "end %lu\n", (unsigned long)end);
    bad = ferror(file);
    if (fclose(file) || bad) doctor_fail("the trace cannot be written");
}

static void doctor_begin(void) {
    size_t i;

    doctor_begin_once();
    doctor.time = 0;
    for (i = 0; i < doctor.block_count; ++i) {
        const doctor_block *b = &doctor.blocks[i];

        doctor.blocks[i].born = 0;
        memcpy(b->before, b->at, b->pages * doctor.page);
    }
    if (!doctor.failed && !doctor_catch_faults()) doctor_fail("sigaction failed");
    if (doctor.failed) return;
    doctor.state = DOCTOR_RECORDS;
    doctor_add_mark("begin");
    doctor_look_at_all(1);
}

static void doctor_end(void) {
    size_t i;

    doctor_look_at_all(0);
    doctor.state = DOCTOR_WAITS;
    sigaction(SIGSEGV, &doctor_before, NULL);
    if (!doctor.failed) doctor_write();
    for (i = doctor.block_count; i-- > 0;)
        if (!doctor.blocks[i].live) doctor_forget(&doctor.blocks[i]);
}

void doctor_step(void) {
    ++doctor.step;
    if (doctor.state == DOCTOR_PROVES) doctor.state = DOCTOR_WAITS;
    if (doctor.state == DOCTOR_RECORDS) {
        doctor_end();
        if (getenv("DOCTOR_PROVE") && !doctor.failed) doctor.state = DOCTOR_PROVES;
        if (doctor.state == DOCTOR_PROVES) doctor_prove(doctor.now = 0);
    }
    if (doctor.step == 1) doctor_time(1);
    if (doctor.step != 2) return;
    doctor_time(0);
    doctor_begin();
}

void doctor_mark(const char *name) {
    if (doctor.step == 1) doctor_time(1);
    if (doctor.state == DOCTOR_PROVES) doctor_prove(++doctor.now);
    if (doctor.state != DOCTOR_RECORDS) return;
    doctor_look_at_all(1);
    doctor_add_mark(name);
}
#else
void *doctor_malloc(size_t n, const char *file, int line) { return file || line ? malloc(n) : NULL; }
void *doctor_calloc(size_t n, size_t each, const char *file, int line) { return file || line ? calloc(n, each) : NULL; }
void *doctor_realloc(void *a, size_t n, const char *file, int line) { return file || line ? realloc(a, n) : NULL; }
void  doctor_free(void *at) { free(at); }
void  doctor_step(void) {
    static int told;

    if (!told) fputs("doctor: reads and writes are seen on Linux, x86 and aarch64; nothing is recorded here\n", stderr);
    told = 1;
}
void  doctor_mark(const char *name) { (void)name; }
#endif
#endif

#define malloc(bytes) doctor_malloc(bytes, __FILE__, __LINE__)
#define calloc(count, each) doctor_calloc(count, each, __FILE__, __LINE__)
#define realloc(old, bytes) doctor_realloc(old, bytes, __FILE__, __LINE__)
#define free(at) doctor_free(at)
#endif
