/* The declarations alone must compile as C89 and as any C++, with every warning. */
#include "memopt.h"
#include "memopt.h" /* twice does no harm */
memopt_status decl(void);
memopt_status decl(void) { return MEMOPT_OK; }
