#include <stdint.h>
#ifdef __cplusplus
extern "C"
#endif
uintptr_t _beginthreadex(void *security, unsigned stack, unsigned(__stdcall *start)(void *), void *argument, unsigned flags, unsigned *id);
