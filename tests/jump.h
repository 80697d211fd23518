/* jump.h - a jump out of a callback of the engine's: longjmp(), and an exception where the test is compiled as C++. */
#ifndef JUMP_H
#define JUMP_H
typedef memopt_status jump_task(void *x);
#ifdef __cplusplus
typedef struct jump { int none; } jump;
static inline void jump_out(jump *j) { (void)j; throw 7; }
static inline int jump_caught(jump *j, jump_task *task, void *x, memopt_status *status) { /* 1: the task was left by a jump */
    (void)j;
    try { *status = task(x); } catch (int) { return 1; }
    return 0;
}
#else
#include <setjmp.h>
typedef struct jump { jmp_buf landing; } jump;
static inline void jump_out(jump *j) { longjmp(j->landing, 1); }
static inline int jump_caught(jump *j, jump_task *task, void *x, memopt_status *status) {
    if (setjmp(j->landing)) return 1;
    *status = task(x);
    return 0;
}
#endif
#endif
