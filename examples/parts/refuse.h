/* refuse.h - a failure as a value, as memopt.h has it: who refuses, what, and why. Other parts include it: copy it with
   them. */
#ifndef PARTS_REFUSE_H
#define PARTS_REFUSE_H
#include <string.h>

/* Fills in `error`, if there is one, and returns `status`. */
static inline memopt_status part_refuse(memopt_error *error, const char *subject, memopt_status status,
                                        const char *argument, const char *reason) {
    if (!error) return status;
    memset(error, 0, sizeof *error);
    error->status = status;
    error->subject = subject;
    error->argument = argument;
    error->reason = reason;
    error->index = error->action = error->segment = SIZE_MAX;
    return status;
}

#endif
