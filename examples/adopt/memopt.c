/* memopt.c - the implementation, in a file of its own: compiled once, at -O2, whatever flags the engine takes. */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
