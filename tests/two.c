/* Two libraries that each carry a private copy of memopt, with other options, in a program that has one itself. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
int two_a(void);
int two_b(void);
int main(void) {
    memopt_host host;
    return !(two_a() && two_b() && !memopt_host_resolve(NULL, &host));
}
