#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
void *memchr(const void *in, int value, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);
size_t strlen(const char *text);
int strcmp(const char *a, const char *b);
char *strchr(const char *s, int c);
char *strrchr(const char *s, int c);
int strncmp(const char *a, const char *b, size_t count);
size_t strspn(const char *text, const char *of);
char *strstr(char const *in, const char *text);
#ifdef __cplusplus
}
#endif
