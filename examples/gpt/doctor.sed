# Lets examples/doctor.h look at train_gpt --keep conventional: sed -f doctor.sed of train_gpt.c and of gpt/conventional.h.
# The arena's memory comes from malloc, and each push has pages of its own. A mark at each layer; behind a comma, one at
# each operator of it.
/^#define MEMOPT_STATIC/i\
#include <math.h>\
#include <sys/stat.h>\
#include <sys/wait.h>\
#include <time.h>\
#include <unistd.h>\
#define DOCTOR_IMPLEMENTATION\
#include "doctor.h"
s/^    e->beside = \*b; e->host = process_host();/&\
    e->alignment = 4096;/
s/ s = arena_pages(capacity, &e->source);/ s = memopt_source_allocator(NULL, \&e->source);/
s/^        if (step(e, o, d, i)) return 1;/        doctor_step();\
&/
s/^    if (!s && !leaves_out) s = memopt_optim_step/    doctor_mark("step");\
&/
/^static memopt_status block_forward/,/^}/{
s/^    if ((s = /    doctor_mark("forward");\
&/
s/|| (s = /|| (doctor_mark("forward, operator"), s = /
s/^    return memopt/    doctor_mark("forward, operator");\
&/
}
/^static memopt_status block_backward/,/^}/{
s/^    copy(&b, grad(x, DOWN_ROWS/    doctor_mark("backward");\
&/
s/^    copy(&a, grad(x, PROJECTED/    doctor_mark("backward, operator");\
&/
s/|| (s = /|| (doctor_mark("backward, operator"), s = /
s/^    return transformer/    doctor_mark("backward, operator");\
&/
}
/^static memopt_status head_both/,/^}/{
s/^    if ((s = transformer_norm/    doctor_mark("forward");\
&/
s/|| (s = /|| (doctor_mark("forward, operator"), s = /g
s/^    if (!call->describing) memcpy/    doctor_mark("backward");\
&/
s/^    if ((s = multiply/    doctor_mark("backward, operator");\
&/
s/^    s = transformer_norm/    doctor_mark("backward, operator");\
&/
}
s/^    for (l = 0; !dry && l < ACTIVATIONS; ++l) memset/    doctor_mark("zero");\
&/
s/^    s = ends\[0\](&call);/    doctor_mark("forward");\
&/
s/^    return s ? s : ends\[1\](&call);/    doctor_mark("backward");\
&/
