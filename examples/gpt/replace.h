/* replace.h - a file that appears whole or not at all. */
#ifndef GPT_REPLACE_H
#define GPT_REPLACE_H
#include <stdio.h>
#include <sys/stat.h>

/* Written by `put` to a temporary name beside it, then renamed. 0: done; else what was there before still is. */
static int file_replace(const char *path, void (*put)(FILE *f, const void *what), const void *what) {
    char other[4096]; FILE *f; int bad; struct stat there;
    if (!stat(path, &there) && !S_ISREG(there.st_mode)) { /* a pipe, a device: it stays what it is */
        f = fopen(path, "wb");
        if (!f) return 1;
        put(f, what);
        bad = ferror(f) != 0;
        return (fclose(f) != 0) | bad;
    }
    if (snprintf(other, sizeof other, "%s.tmp", path) >= (int)sizeof other) return 1;
    f = fopen(other, "wb");
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
