/* replace.h - a file that appears whole or not at all. */
#ifndef GPT_REPLACE_H
#define GPT_REPLACE_H
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#ifdef _WIN32
#include <fcntl.h>
#include <io.h>
#endif

static FILE *file_new(const char *path) { /* NULL: also when anything is there, a link among it */
#ifdef _WIN32
    const int number = _open(path, _O_WRONLY | _O_CREAT | _O_EXCL | _O_BINARY, _S_IREAD | _S_IWRITE);
    return number < 0 ? NULL : _fdopen(number, "wb");
#else
    return fopen(path, "wbx");
#endif
}

/* Written by `put` to a new file beside it, then renamed. 0: done; else what was there before still is. */
static int file_replace(const char *path, void (*put)(FILE *f, const void *what), const void *what) {
    const unsigned long seconds = (unsigned long)time(NULL);
    char other[4096];
    FILE *f = NULL;
    int bad;

    unsigned i;
    struct stat there;
    if (!stat(path, &there) && !S_ISREG(there.st_mode)) { /* a pipe, a device: it stays what it is */
        f = fopen(path, "wb");
        if (!f) return 1;
        put(f, what);
        bad = ferror(f) != 0;
        return (fclose(f) != 0) | bad;
    }
    for (i = 0; !f && i < 100; ++i) { /* a name that nobody has */
        if (snprintf(other, sizeof other, "%s.%lx-%u.tmp", path, seconds, i) >= (int)sizeof other) return 1;
        f = file_new(other);
    }
    if (!f) return 1;
    put(f, what);
    bad = ferror(f) != 0;
    bad |= fclose(f) != 0;
#ifdef _WIN32
    if (!bad) remove(path); /* rename() does not replace there */
#endif
    if (!bad && !rename(other, path)) return 0;
    remove(other);
    return 1;
}
#endif
