/* rendezvous.h - the processes of a run find each other by files, and get what rank 0 has to say: the id of NCCL.

   Files    FILE.0, FILE.1, ...: each rank writes its own, in a folder that all of them see, and reads the others'. They
            stay: a later run takes them over.
   Old      Whatever a file says of another run is recognised. A rank draws a number, which nobody has seen before, and
            believes rank 0 when that repeats it; rank 0 believes a rank that repeats its own. A file that is being
            written has no right sum, and is read again.
   Two runs Each rank locks its file as long as it lives. Who finds it locked is refused. (Closing any descriptor of a
            file gives up its lock: so a process opens its own once.)
   Death    A file that nobody locks, and in which no rank says that it has ended, is that of a process that was killed:
            rendezvous_lost(). */
#ifndef GPT_RENDEZVOUS_H
#define GPT_RENDEZVOUS_H
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RENDEZVOUS_RANKS = 1024, RENDEZVOUS_BYTES = 128 };

typedef struct rendezvous_page { /* a file */
    char magic[8];
    uint64_t rank, count;
    uint64_t number;                    /* drawn by this process */
    uint64_t heard;                     /* that of rank 0; of rank 0 nothing */
    uint64_t ended;                     /* 1: this process has said all that it had to say */
    uint64_t numbers[RENDEZVOUS_RANKS]; /* of rank 0: those of all ranks, as far as it has seen them */
    unsigned char bytes[RENDEZVOUS_BYTES];
    uint64_t sum; /* of all before it */
} rendezvous_page;

typedef struct rendezvous {
    const char *path;
    int file; /* locked; -1: not open */
    rendezvous_page own;
} rendezvous;

static uint64_t rendezvous_sum(const rendezvous_page *p) { /* FNV-1a */
    const unsigned char *const bytes = (const unsigned char *)p;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    size_t i;

    for (i = 0; i < offsetof(rendezvous_page, sum); ++i) h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h;
}

static int rendezvous_write(rendezvous *v) {
    v->own.sum = rendezvous_sum(&v->own);
    return pwrite(v->file, &v->own, sizeof v->own, 0) != (ssize_t)sizeof v->own;
}

static int rendezvous_open_file(const rendezvous *v, size_t rank, int flags) {
    char path[4096];

    if ((size_t)snprintf(path, sizeof path, "%s.%zu", v->path, rank) >= sizeof path) return -1;
    return open(path, flags, 0666);
}

/* 0: there is no whole page of such a run. */
static int rendezvous_read(const rendezvous *v, size_t rank, rendezvous_page *out) {
    const int file = rendezvous_open_file(v, rank, O_RDONLY);
    int whole;

    if (file < 0) return 0;
    whole = pread(file, out, sizeof *out, 0) == (ssize_t)sizeof *out && out->sum == rendezvous_sum(out)
         && !memcmp(out->magic, v->own.magic, sizeof out->magic) && out->rank == rank && out->count == v->own.count;
    (void)close(file);
    return whole;
}

static struct flock rendezvous_lock(short type) {
    struct flock lock;

    memset(&lock, 0, sizeof lock);
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    return lock;
}

static int rendezvous_draw(uint64_t *number) {
    const int file = open("/dev/urandom", O_RDONLY);
    const int wrong = file < 0 || read(file, number, sizeof *number) != (ssize_t)sizeof *number;

    if (file >= 0) (void)close(file);
    return wrong;
}

/** This process is that rank. 0: its file is there, and locked until rendezvous_close(); else a message. */
static int rendezvous_open(rendezvous *v, const char *path, size_t rank, size_t count, char *message, size_t capacity) {
    struct flock lock = rendezvous_lock(F_WRLCK);

    memset(v, 0, sizeof *v);
    v->path = path;
    memcpy(v->own.magic, "memopt1", sizeof v->own.magic);
    v->own.rank = rank;
    v->own.count = count;
    v->file = rendezvous_open_file(v, rank, O_RDWR | O_CREAT);
    if (v->file >= 0 && fcntl(v->file, F_SETLK, &lock)) {
        snprintf(message, capacity,
                 "--id-file %s: a process that is rank %zu is there already: give each another "
                 "--rank, and another run another file.",
                 path, rank);
        return 1;
    }
    if (v->file >= 0 && !rendezvous_draw(&v->own.number) && !rendezvous_write(v)) return 0;
    snprintf(message, capacity, "--id-file %s: %s.%zu cannot be written: is its folder there, and is there room?", path,
             path, rank);
    return 1;
}

static void rendezvous_close(rendezvous *v) {
    if (v->file >= 0) (void)close(v->file);
    v->file = -1;
}

/* Of rank 0: looks at all files. The first rank that has not heard it; count: all have. */
static size_t rendezvous_answer(rendezvous *v) {
    size_t rank, missing = v->own.count;
    rendezvous_page p;
    int news = 0;

    for (rank = (size_t)v->own.count - 1; rank > 0; --rank) {
        const int is_there = rendezvous_read(v, rank, &p);

        if (!is_there || p.heard != v->own.number) missing = rank;
        if (!is_there || p.number == v->own.numbers[rank]) continue;
        v->own.numbers[rank] = p.number;
        news = 1;
    }
    if (news) (void)rendezvous_write(v); /* if it fails nobody hears it */
    return missing;
}

/* Of another rank: has rank 0 seen this very process? */
static size_t rendezvous_listen(rendezvous *v) {
    rendezvous_page p;

    if (!rendezvous_read(v, 0, &p) || p.numbers[v->own.rank] != v->own.number) return 0;
    memcpy(v->own.bytes, p.bytes, sizeof p.bytes);
    v->own.heard = p.number;
    return rendezvous_write(v) ? 0 : v->own.count;
}

/** What rank 0 has in `bytes`, RENDEZVOUS_BYTES of them, goes to all. 0: it is there; else a message. */
static int rendezvous_share(rendezvous *v, void *bytes, double seconds, char *message, size_t capacity) {
    const struct timespec nap = { 0, 2000000 };
    const time_t begin = time(NULL);
    size_t missing;

    if (!v->own.rank) memcpy(v->own.bytes, bytes, sizeof v->own.bytes);
    while ((missing = v->own.rank ? rendezvous_listen(v) : rendezvous_answer(v)) < v->own.count) {
        if (difftime(time(NULL), begin) > seconds) {
            snprintf(message, capacity,
                     "--id-file %s: rank %zu has not come within %g seconds: is it started, with the "
                     "same --id-file and --ranks?",
                     v->path, missing, seconds);
            return 1;
        }
        (void)nanosleep(&nap, NULL);
    }
    memcpy(bytes, v->own.bytes, sizeof v->own.bytes);
    return 0;
}

/** The last that this process says, whether it failed or not. */
static void rendezvous_end(rendezvous *v) {
    v->own.ended = 1;
    (void)rendezvous_write(v);
}

/** The first rank whose process is gone without a word; count: there is none. */
static size_t rendezvous_lost(const rendezvous *v) {
    size_t rank;

    for (rank = 0; rank < v->own.count; ++rank) {
        struct flock lock = rendezvous_lock(F_WRLCK);
        rendezvous_page p;
        int file;

        if (rank == v->own.rank || (file = rendezvous_open_file(v, rank, O_RDWR)) < 0) continue;
        (void)fcntl(file, F_GETLK, &lock); /* what keeps one from locking it */
        (void)close(file);
        if (lock.l_type == F_UNLCK && rendezvous_read(v, rank, &p) && !p.ended) return rank;
    }
    return (size_t)v->own.count;
}
#endif
