#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
void *malloc(size_t bytes);
void free(void *block);
void abort(void);
#ifdef __cplusplus
}
#endif
