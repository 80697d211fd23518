/* A library with a private copy of memopt inside, see two.c. */
#define MEMOPT_STATIC
#define MEMOPT_DEBUG 2
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
int two_b(void);
int two_b(void) {
    memopt_host host;
    return !memopt_host_resolve(NULL, &host) && memopt_status_text(MEMOPT_OK)[0];
}
