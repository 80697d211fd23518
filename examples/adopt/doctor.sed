# Lets examples/doctor.h look at gpt_0_plain.c: sed -f doctor.sed gpt_0_plain.c > watched.c. Eleven lines, of which seven mark.
/^#include <string.h>/a\
#define DOCTOR_IMPLEMENTATION\
#include "doctor.h"
s/^    embedding_forward(n->stream/    doctor_mark("forward");\
&/
s/^    for (l = 0; l < LAYERS; ++l) block_forward(/    for (l = 0; l < LAYERS; ++l, doctor_mark("forward"))\
        block_forward(/
/^    memset(g->weights, 0/i\
    doctor_mark("zero");
s/^    head_backward(net, n, g/    doctor_mark("backward");\
&/
s/^    for (l = LAYERS - 1; l >= 0; --l)$/    doctor_mark("backward");\
    for (l = LAYERS - 1; l >= 0; --l, doctor_mark("backward"))/
s/^        next_batch(&net, text, &state);/        doctor_step();\
&/
s/^        update(&net, step);/        doctor_mark("step");\
&/
