/* reason.h - why something cannot be done, as a sentence: the first reason counts. */
#ifndef FINETUNE_REASON_H
#define FINETUNE_REASON_H
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct reason {
    char text[768]; /* "": none */
    memopt_error error; /* that a call with this address has filled in */
} reason;

static inline int refuse(reason *r, const char *format, ...) { /* returns 1 */
    va_list list;
    char *c;

    va_start(list, format);
    if (!r->text[0]) vsnprintf(r->text, sizeof r->text, format, list);
    va_end(list);
    for (c = r->text; *c; ++c) /* a name in a file may hold anything, also what a terminal obeys */
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    return 1;
}

static inline int failed(reason *r, const char *what, memopt_status s) { /* returns whether it is a failure */
    char why[256];

    if (!s) return 0;
    if (r->error.status != s || memopt_error_text(&r->error, why, sizeof why, NULL))
        snprintf(why, sizeof why, "%s", memopt_status_text(s));
    return refuse(r, "%.300s: %s", what, why);
}
#endif
