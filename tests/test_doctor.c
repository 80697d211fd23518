/* test_doctor.c - examples/doctor.h and what doctor_tool makes of its traces: diagnoses and bytes known by hand. */
#ifndef TEST_COMBINED
#  define _DEFAULT_SOURCE 1 /* mmap; the combined program has it where its compiler has it */
#endif
#include "test.h"
#include "../examples/doctor/trace.h"
#include "../examples/doctor/findings.h"
#include "../examples/doctor/report.h"
static char doctor_path[640];
#define DOCTOR_TRACE doctor_path
#define DOCTOR_IMPLEMENTATION
#include "../examples/doctor.h"
#include "../examples/parts/ledger_export.h"
#undef malloc
#undef calloc
#undef realloc
#undef free

static char doctor_text[8192];
static trace doctor_t;
static findings doctor_f;

static const char doctor_marks[] = "doctor 1\nmark 1 begin\nmark 2 forward\nmark 3 forward\nmark 4 backward\nmark 5 step\n";

static int doctor_reads(const char *head, const char *body, const char *end) { /* 1: it was refused */
    snprintf(doctor_text, sizeof doctor_text, "%s%s%s", head, body, end);
    return trace_read(&doctor_t, doctor_text);
}
static void doctor_finds(const char *head, const char *body, const char *end) {
    CHECK(!doctor_reads(head, body, end));
    if (doctor_t.error) printf("line %d: %s\n", (int)doctor_t.line, doctor_t.error);
    CHECK(findings_make(&doctor_f, &doctor_t) == MEMOPT_OK);
}
static void doctor_done(void) {
    findings_free(&doctor_f);
    trace_free(&doctor_t);
}

/* ---- what a buffer is ---- */
typedef struct doctor_case { const char *touches; finding_kind kind; int early, twice; size_t values; } doctor_case;

static void doctor_kinds(void) {
    static const doctor_case cases[] = {
        { "", FINDING_UNUSED, 0, 0, 0 },
        { "touch 0 w 0\n", FINDING_UNUSED, 0, 0, 0 },
        { "touch 0 w 7\n", FINDING_MARK, 0, 0, 1 },                             /* not zeros: used where it was written */
        { "touch 1 r 0\n", FINDING_KEPT, 0, 0, 1 },
        { "touch 1 r 0\ntouch 4 rw 7\n", FINDING_KEPT, 0, 0, 1 },
        { "touch 1 rw 7\n", FINDING_KEPT, 0, 0, 1 },
        { "touch 1 r 0\ntouch 2 w 7\ntouch 3 r 0\n", FINDING_KEPT, 0, 0, 1 },   /* read before it was written */
        { "touch 1 w 7\ntouch 2 r 0\n", FINDING_PHASE, 0, 0, 1 },
        { "touch 1 w 7\ntouch 2 rw 8\n", FINDING_PHASE, 0, 0, 1 },
        { "touch 1 w 7\ntouch 3 r 0\n", FINDING_IDLE, 0, 0, 1 },
        { "touch 1 w 7\ntouch 3 w 8\n", FINDING_MARK, 0, 1, 2 },
        { "touch 1 w 7\ntouch 2 r 0\ntouch 3 w 8\n", FINDING_IDLE, 0, 0, 2 },   /* two phases, but written twice it is not */
        { "touch 0 w 0\ntouch 3 rw 8\n", FINDING_MARK, 1, 0, 1 },
        { "touch 0 w 9\ntouch 3 rw 8\n", FINDING_IDLE, 0, 0, 1 },               /* no zeros: not early */
        { "touch 0 w 0\ntouch 3 w 8\n", FINDING_MARK, 0, 1, 1 },
        { "touch 0 w 0\ntouch 3 rw 8\ntouch 4 r 0\n", FINDING_IDLE, 1, 0, 1 },
        { "touch 0 rw 0\ntouch 3 rw 8\n", FINDING_KEPT, 0, 0, 1 },              /* zeros that were read before */
        { "touch 0 w 0\ntouch 2 w 0\ntouch 3 r 0\n", FINDING_MARK, 1, 1, 1 }
    };
    size_t i;
    char body[256];

    for (i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        snprintf(body, sizeof body, "buffer 0 6 100 0 0 here\n%s", cases[i].touches);
        doctor_finds(doctor_marks, body, "end 6\n");
        CHECK_AT(doctor_f.kinds[0] == cases[i].kind && doctor_f.bytes[cases[i].kind] == 100, i);
        CHECK_AT(doctor_f.early[0] == cases[i].early && doctor_f.early_bytes == (size_t)cases[i].early * 100, i);
        CHECK_AT(doctor_f.twice[0] == cases[i].twice && doctor_f.twice_bytes == (size_t)cases[i].twice * 100, i);
        CHECK_AT(doctor_f.value_count == cases[i].values && doctor_f.values_from[1] == cases[i].values, i);
        CHECK_AT(doctor_f.held == 100 && doctor_f.used == (cases[i].kind == FINDING_UNUSED ? 0u : 100u), i);
        doctor_done();
    }
}

static void doctor_lifetimes(void) { /* [first, last) of values, of blocks that come and go within the step */
    doctor_finds(doctor_marks, "buffer 0 6 100 0 0 a\ntouch 0 w 0\ntouch 2 rw 3\ntouch 3 r 0\n"
                 "buffer 0 6 100 1 0 b\ntouch 1 w 5\ntouch 2 w 6\n", "end 6\n");
    CHECK(doctor_f.value_count == 3 && doctor_f.values[0].first == 3 && doctor_f.values[0].last == 5);
    CHECK(doctor_f.values[1].first == 2 && doctor_f.values[1].last == 3 && doctor_f.values[2].first == 3 && doctor_f.values[2].last == 4);
    doctor_done();
    /* a block of the step: its read is no value of the step before, and after the end it is still somebody's */
    doctor_finds("doctor 1\nmark 1 forward\nmark 5 backward\n",
                 "buffer 2 4 100 0 0 a\ntouch 0 rw 3\nbuffer 3 9 50 1 0 b\ntouch 0 w 3\nbuffer 0 7 25 2 0 c\ntouch 0 r 0\n"
                 "buffer 4 6 10 3 0 d\ntouch 0 w 1\ntouch 1 r 0\n", "end 9\n");
    CHECK(doctor_f.kinds[0] == FINDING_MARK && doctor_f.values[0].first == 2 && doctor_f.values[0].last == 4);
    CHECK(doctor_f.kinds[1] == FINDING_KEPT && doctor_f.values[1].first == 3 && doctor_f.values[1].last == 9);
    CHECK(doctor_f.kinds[2] == FINDING_KEPT && doctor_f.values[2].first == 0 && doctor_f.values[2].last == 7);
    CHECK(doctor_f.kinds[3] == FINDING_IDLE && doctor_f.values[3].first == 4 && doctor_f.values[3].last == 6);
    CHECK(!doctor_f.early[0]);
    CHECK(doctor_f.held == 175 && doctor_f.used == 175 && doctor_f.peaks[FINDING_PLAN] >= 175);
    doctor_done();
    /* a block of the step that is read first, and zeros: no value of the step before, and not zeroed early */
    doctor_finds("doctor 1\nmark 1 forward\nmark 5 backward\nmark 6 step\n",
                 "buffer 2 8 100 0 0 a\ntouch 0 rw 0\ntouch 1 r 0\n", "end 9\n");
    CHECK(!doctor_f.early[0] && doctor_f.values[0].first == 2 && doctor_f.values[0].last == 6);
    doctor_done();
    /* a phase is its whole name up to a comma, and not the begin of another's */
    doctor_finds("doctor 1\nmark 1 forward\nmark 2 forwards\nmark 3 forward, norm\n",
                 "buffer 0 4 9 0 0 a\ntouch 0 w 1\ntouch 1 r 0\nbuffer 0 4 9 1 0 b\ntouch 0 w 1\ntouch 2 r 0\n", "end 4\n");
    CHECK(doctor_f.kinds[0] == FINDING_IDLE && doctor_f.kinds[1] == FINDING_PHASE);
    doctor_done();
}

/* ---- the same bytes twice ---- */
static void doctor_mirrors(void) {
    static const struct { const char *a, *b; int mirrored; size_t from, to; } cases[] = {
        { "touch 1 w 7\ntouch 3 r 0\n", "touch 2 w 7\ntouch 3 r 0\n", 1, 2, 3 },
        { "touch 1 w 7\ntouch 3 r 0\n", "touch 2 w 6\ntouch 3 r 0\n", 0, 0, 0 }, /* other bytes */
        { "touch 1 w 0\ntouch 3 r 0\n", "touch 2 w 0\ntouch 3 r 0\n", 0, 0, 0 }, /* zeros are not a copy */
        { "touch 1 w 7\n", "touch 2 w 7\ntouch 3 r 0\n", 0, 0, 0 },              /* nobody reads the first any more */
        { "touch 1 w 7\ntouch 2 r 0\n", "touch 2 w 7\ntouch 3 r 0\n", 0, 0, 0 }, /* it has served when the copy is there */
        { "touch 1 w 7\ntouch 2 w 8\ntouch 3 r 0\n", "touch 2 w 7\ntouch 3 r 0\n", 0, 0, 0 }, /* it is another one by then */
        { "touch 1 w 7\ntouch 3 rw 8\n", "touch 1 w 7\ntouch 3 r 0\n", 1, 1, 3 }, /* read once more before it changes */
        { "touch 1 r 0\ntouch 4 rw 9\n", "touch 2 r 0\ntouch 4 w 9\n", 1, 4, 5 + 2 }, /* a copy, until mark 2 of the next step */
        { "touch 4 w 9\n", "touch 2 r 0\ntouch 4 w 9\n", 0, 0, 0 }
    };
    size_t i;
    char body[256];

    for (i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        snprintf(body, sizeof body, "buffer 0 6 100 0 0 a\n%sbuffer 0 6 100 1 0 b\n%s", cases[i].a, cases[i].b);
        doctor_finds(doctor_marks, body, "end 6\n");
        CHECK_AT(doctor_f.mirror_count == (size_t)cases[i].mirrored && doctor_f.mirror_bytes == 100 * (size_t)cases[i].mirrored, i);
        if (cases[i].mirrored) CHECK_AT(doctor_f.mirrors[0].from == cases[i].from && doctor_f.mirrors[0].to == cases[i].to, i);
        doctor_done();
        snprintf(body, sizeof body, "buffer 0 6 100 0 0 a\n%sbuffer 0 6 99 1 0 b\n%s", cases[i].a, cases[i].b);
        doctor_finds(doctor_marks, body, "end 6\n");
        CHECK_AT(doctor_f.mirror_count == 0, i); /* another size */
        doctor_done();
    }
}

/* ---- what the ways would hold ---- */
/* Two layers. Weights 1000. x0 -> (h1) -> x1 -> (h2) -> x2, each h read again by its own backward; gradients of weights
   are zeroed first, added to, read in the step. All sizes are multiples of 64, so offsets cost nothing. */
static const char doctor_net[] =
    "doctor 1\nmark 1 forward\nmark 2 forward\nmark 3 zero\nmark 4 backward\nmark 5 backward\nmark 6 step\n"
    "buffer 0 7 6400 0 0 weights\ntouch 0 r 0\ntouch 1 r 0\ntouch 3 r 0\ntouch 4 r 0\ntouch 5 rw 1\n"
    "buffer 0 7 640 1 0 h1\ntouch 0 w 2\ntouch 4 r 0\n"
    "buffer 0 7 64 2 0 x1\ntouch 0 w 3\ntouch 1 r 0\ntouch 4 r 0\n"
    "buffer 0 7 1280 3 0 h2\ntouch 1 w 4\ntouch 3 r 0\n"
    "buffer 0 7 64 4 0 x2\ntouch 1 w 5\ntouch 3 r 0\n"
    "buffer 0 7 3200 5 0 g1\ntouch 2 w 0\ntouch 4 rw 6\ntouch 5 r 0\n"
    "buffer 0 7 3200 6 0 g2\ntouch 2 w 0\ntouch 3 rw 7\ntouch 5 r 0\n"
    "buffer 0 7 128 7 0 never\n";

static void doctor_ways(void) {
    doctor_finds(doctor_net, "", "end 7\n");
    CHECK(doctor_f.held == 6400 + 640 + 64 + 1280 + 64 + 3200 + 3200 + 128 && doctor_f.used == doctor_f.held - 128);
    CHECK(doctor_f.bytes[FINDING_UNUSED] == 128 && doctor_f.bytes[FINDING_KEPT] == 6400);
    CHECK(doctor_f.bytes[FINDING_IDLE] == 640 + 64 + 1280 + 64 + 6400 && doctor_f.early_bytes == 6400);
    /* backward of the first layer: weights, h1, x1, both gradients */
    CHECK(doctor_f.peaks[FINDING_PLAN] == 6400 + 640 + 64 + 6400);
    /* an arena pushes g2 below h2, x2 or keeps these: the smaller, 1280 + 64, stay below; nothing is freed before g's */
    CHECK(doctor_f.peaks[FINDING_ARENA] == 6400 + 640 + 64 + 1280 + 64 + 6400);
    /* g2 goes within its own backward: weights, h1, x1, h2, x2, g2 there; at the next: weights, h1, x1, g1 */
    CHECK(doctor_f.early_steps == 2 && doctor_f.peaks[FINDING_STEP] == 6400 + 640 + 64 + 1280 + 64 + 3200);
    /* h1 is made again; h2 and x2, made at mark 1 and not read by another of forward, as well; x1 is read there and kept.
       The most: mark 4, with h1 made again, x1, both gradients */
    CHECK(doctor_f.again == 3 && doctor_f.peaks[FINDING_TAPE] == 6400 + 640 + 64 + 6400);
    CHECK(doctor_f.pairs == 0);
    doctor_done();
}

static void doctor_tape_keeps_inputs(void) { /* x1 is last read in forward; the value made again needs it in backward */
    static const char body[] =
        "doctor 1\nmark 1 forward\nmark 2 forward\nmark 3 forward\nmark 4 backward\nmark 5 backward\nmark 6 backward\n"
        "buffer 0 7 64 0 0 x1\ntouch 0 w 3\ntouch 1 r 0\n"
        "buffer 0 7 6400 1 0 h2\ntouch 1 w 4\ntouch 4 r 0\n"
        "buffer 0 7 640 2 0 other\ntouch 2 w 5\ntouch 3 r 0\n"
        "buffer 0 7 8000 3 0 work\ntouch 3 w 5\n";
    doctor_finds(body, "", "end 7\n");
    CHECK(doctor_f.peaks[FINDING_PLAN] == 6400 + 640 + 8000);
    /* mark 3: x1 held for the one, the other at its second place, the work; h2 not */
    CHECK(doctor_f.again == 2 && doctor_f.peaks[FINDING_TAPE] == 64 + 640 + 8000);
    doctor_done();
    /* a value that forward itself reads at a later mark is not made again; nor one that the step reads */
    doctor_finds("doctor 1\nmark 1 forward\nmark 2 forward\nmark 3 backward\nmark 4 step\n",
                 "buffer 0 5 64 0 0 a\ntouch 0 w 3\ntouch 1 r 0\ntouch 2 r 0\nbuffer 0 5 64 1 0 b\ntouch 0 w 4\ntouch 3 r 0\n"
                 "buffer 0 5 64 2 0 c\ntouch 0 w 0\ntouch 2 rw 4\n", "end 5\n");
    CHECK(doctor_f.again == 0 && doctor_f.early_steps == 0);
    doctor_done();
    /* nor is what the step writes a gradient */
    doctor_finds(doctor_marks, "buffer 0 6 64 0 0 a\ntouch 0 w 0\ntouch 3 rw 4\ntouch 4 rw 5\n", "end 6\n");
    CHECK(doctor_f.early_steps == 0);
    doctor_done();
}

static void doctor_in_place(void) {
    static const struct { const char *second; size_t pairs, peak; } cases[] = {
        { "buffer 0 6 640 1 0 b\ntouch 2 w 4\ntouch 3 r 0\n", 1, 640 },
        { "buffer 0 6 640 1 0 b\ntouch 3 w 4\n", 0, 640 },                             /* they never meet: nothing to share */
        { "buffer 0 6 704 1 0 b\ntouch 2 w 4\ntouch 3 r 0\n", 0, 640 + 704 },          /* another size */
        { "buffer 0 6 640 1 0 b\ntouch 1 w 4\ntouch 3 r 0\n", 0, 1280 },               /* there before the first was used up */
        { "buffer 0 6 640 1 0 b\ntouch 0 w 0\ntouch 2 rw 4\n", 0, 1280 },              /* added to: begins as zeros */
        { "buffer 0 6 640 1 0 b\ntouch 2 r 4\ntouch 3 r 0\n", 0, 1280 }                /* of the step before */
    };
    size_t i;
    char body[256];

    for (i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        snprintf(body, sizeof body, "buffer 0 6 640 0 0 a\ntouch 1 w 3\ntouch 2 r 0\n%s", cases[i].second);
        doctor_finds(doctor_marks, body, "end 6\n");
        CHECK_AT(doctor_f.pairs == cases[i].pairs && doctor_f.peaks[FINDING_IN_PLACE] == cases[i].peak, i);
        doctor_done();
    }
    /* the first is still written where it ends */
    doctor_finds(doctor_marks, "buffer 0 6 640 0 0 a\ntouch 1 w 3\ntouch 2 rw 5\nbuffer 0 6 640 1 0 b\ntouch 2 w 4\n", "end 6\n");
    CHECK(doctor_f.pairs == 0 && doctor_f.peaks[FINDING_IN_PLACE] == 1280);
    doctor_done();
    /* only one of two takes the place */
    doctor_finds(doctor_marks, "buffer 0 6 640 0 0 a\ntouch 1 w 3\ntouch 2 r 0\nbuffer 0 6 640 1 0 b\ntouch 2 w 4\n"
                 "buffer 0 6 640 2 0 c\ntouch 2 w 5\n", "end 6\n");
    CHECK(doctor_f.pairs == 1 && doctor_f.peaks[FINDING_IN_PLACE] == 1280 && doctor_f.peaks[FINDING_PLAN] == 1920);
    doctor_done();
}

static void doctor_arena(void) {
    /* nested lifetimes: as small as the plan */
    doctor_finds("doctor 1\nmark 1 forward\nmark 2 forward\nmark 3 backward\nmark 4 backward\n",
                 "buffer 0 5 640 0 0 a\ntouch 0 w 3\ntouch 3 r 0\nbuffer 0 5 64 1 0 b\ntouch 1 w 4\ntouch 2 r 0\n"
                 "buffer 0 5 128 2 0 c\ntouch 3 w 5\n", "end 5\n");
    CHECK(doctor_f.peaks[FINDING_ARENA] == 640 + 128 && doctor_f.peaks[FINDING_PLAN] == 640 + 128);
    doctor_done();
    /* a large one that ends before a small one which came later: the small one is pushed first */
    doctor_finds(doctor_marks, "buffer 0 6 6400 0 0 a\ntouch 1 w 3\ntouch 2 r 0\nbuffer 0 6 64 1 0 b\ntouch 2 w 4\ntouch 3 r 0\n"
                 "buffer 0 6 3200 2 0 c\ntouch 3 w 5\n", "end 6\n");
    CHECK(doctor_f.peaks[FINDING_ARENA] == 6400 + 64 && doctor_f.peaks[FINDING_PLAN] == 6400 + 64);
    doctor_done();
    /* a small one that ends before a large one which came later: it stays */
    doctor_finds(doctor_marks, "buffer 0 6 64 0 0 a\ntouch 1 w 3\ntouch 2 r 0\nbuffer 0 6 6400 1 0 b\ntouch 2 w 4\ntouch 3 r 0\n"
                 "buffer 0 6 640 2 0 c\ntouch 3 w 5\n", "end 6\n");
    CHECK(doctor_f.peaks[FINDING_ARENA] == 6400 + 64 + 640 && doctor_f.peaks[FINDING_PLAN] == 6400 + 640);
    doctor_done();
}

/* ---- operators within layers, and what is made again cheaply ---- */
/* Two layers of three operators: x -> n (norm) -> u (product) -> g (activation) -> the next x. 100 microseconds each step. */
static const char doctor_operators[] =
    "doctor 1\nmark 1 forward\ncost 1\nmark 2 forward, up\ncost %s\nmark 3 forward, act\ncost 1\nmark 4 forward\ncost 20\n"
    "mark 5 backward\ncost 20\nmark 6 backward, up\ncost 20\nmark 7 step\ncost 18\n"
    "buffer 0 8 6400 0 0 weights\ntouch 0 r 0\ntouch 1 r 0\ntouch 3 r 0\ntouch 4 r 0\ntouch 5 r 0\ntouch 6 rw 1\n"
    "buffer 0 8 640 1 0 x\n%s"
    "buffer 0 8 640 2 0 n\ntouch 0 w 3\ntouch 1 r 0\ntouch 5 r 0\n"
    "buffer 0 8 2560 3 0 u\ntouch 1 w 4\ntouch 2 r 0\ntouch 4 r 0\n"
    "buffer 0 8 2560 4 0 g\ntouch 2 w 5\ntouch 3 r 0\ntouch 4 r 0\n%s";

static void doctor_cheap(void) {
    static const char x[] = "touch 0 r 0\ntouch 5 r 0\n"; /* what the layer begins with: kept from the step before */
    static const struct { const char *up, *x, *more; int n, u, g; size_t cost; } cases[] = {
        { "20", x, "", 1, 0, 1, 2 },                                        /* u is made from n, which is made again */
        { "20", x, "buffer 0 8 64 5 0 s\ntouch 2 rw 9\n", 1, 0, 0, 1 },     /* the activation changes something */
        { "20", "touch 0 r 0\ntouch 3 rw 9\ntouch 5 r 0\n", "", 0, 0, 1, 1 }, /* x is another one by then */
        { "20", "touch 0 r 0\ntouch 5 rw 9\n", "", 1, 0, 1, 2 },            /* it changes where n is used, and not before */
        { "20", "touch 0 rw 7\ntouch 5 r 0\n", "", 0, 0, 1, 1 },            /* the norm itself changes it */
        { "20", x, "buffer 0 5 64 5 0 s\ntouch 2 r 0\n", 1, 0, 0, 1 },      /* s is given back before: it is not there */
        { "20", x, "buffer 0 6 64 5 0 s\ntouch 2 r 0\n", 1, 0, 1, 2 },
        { "20", x, "buffer 0 8 64 5 0 s\ntouch 1 w 9\ntouch 2 r 0\n", 1, 0, 0, 1 } /* nobody keeps s for it */
    };
    char body[1024];
    size_t i;

    for (i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        snprintf(body, sizeof body, doctor_operators, cases[i].up, cases[i].x, cases[i].more);
        doctor_finds(body, "", "end 8\n");
        CHECK_AT(doctor_t.cost == 100 && doctor_f.cheap_cost == cases[i].cost, i);
        CHECK_AT(doctor_f.cheap[2] == cases[i].n && doctor_f.cheap[3] == cases[i].u && doctor_f.cheap[4] == cases[i].g, i);
        CHECK_AT(doctor_f.cheap_count == (size_t)(cases[i].n + cases[i].u + cases[i].g), i);
        CHECK_AT(doctor_f.cheap_bytes == (size_t)(640 * cases[i].n + 2560 * (cases[i].u + cases[i].g)), i);
        CHECK_AT(!doctor_f.cheap[0] && !doctor_f.cheap[1], i);
        doctor_done();
    }
}

static void doctor_prices(void) {
    static const char x[] = "touch 0 r 0\ntouch 5 r 0\n";
    finding_maker small = { 3, 2, 1, 0 }, large = { 1, 100, 60, 0 };
    char body[1024];

    /* 2 bytes a microsecond come before 1.7; alike, the mark that comes first */
    CHECK(finding_by_gain(&small, &large) == -1 && finding_by_gain(&large, &small) == 1);
    large.bytes = 120;
    CHECK(finding_by_gain(&small, &large) == 1 && finding_by_gain(&large, &small) == -1);

    /* g before u: as many bytes in less time; with u at the price of nothing, n and u are what g needs u for: it stays */
    snprintf(body, sizeof body, doctor_operators, "20", x, "");
    doctor_finds(body, "", "end 8\n");
    /* 12,800 bytes are held; n again at mark 5 and g at mark 4: then live weights, x, u, g; before, n or g and not both */
    CHECK(doctor_f.held == 12800 && doctor_f.peaks[FINDING_PLAN] == 12800);
    CHECK(doctor_f.peaks[FINDING_CHEAP] == 6400 + 640 + 2560 + 2560);
    /* the layer of three operators is made again as one: at mark 4 live weights, x, n, u, g; before it, at mark 2, u and g */
    CHECK(doctor_f.again == 2 && doctor_f.again_cost == 22);
    doctor_done();
    snprintf(body, sizeof body, doctor_operators, "20", x, "");
    memcpy(strstr(body, "cost 1\n"), "cost 6\n", 7); /* 6 of 105 for 640 of 12,800 bytes: not cheap */
    doctor_finds(body, "", "end 8\n");
    CHECK(!doctor_f.cheap[2] && doctor_f.cheap[4] && doctor_f.cheap_cost == 1);
    doctor_done();
    snprintf(body, sizeof body, doctor_operators, "20", x, "");
    memcpy(strstr(body, "cost 1\n"), "cost 4\n", 7); /* 4 of 103: cheap */
    doctor_finds(body, "", "end 8\n");
    CHECK(doctor_f.cheap[2] && doctor_f.cheap[4] && doctor_f.cheap_cost == 5);
    doctor_done();
    /* without prices nothing is called cheap */
    doctor_finds(doctor_net, "", "end 7\n");
    CHECK(doctor_f.cheap_count == 0 && doctor_f.cheap_cost == 0 && doctor_f.again_cost == 0);
    doctor_done();
}

/* ---- the definitions, by looking at everything for everything ---- */
static size_t doctor_alive_most(const memopt_plan_item *x, size_t n) {
    size_t most = 0, sum, i, k;

    for (i = 0; i < n; ++i) {
        for (sum = k = 0; k < n; ++k)
            if (x[k].first <= x[i].first && x[i].first < x[k].last) sum += x[k].size;
        if (sum > most) most = sum;
    }
    return most;
}
static size_t doctor_arena_of(memopt_plan_item *x, size_t n) {
    size_t i, k, sum;

    qsort(x, n, sizeof *x, finding_by_birth);
    for (i = 0; i < n; ++i) {
        size_t first = x[i].first;

        for (sum = k = 0; k < i; ++k)
            if (x[k].last > x[i].first && x[k].last < x[i].last) {
                sum += x[k].size;
                if (x[k].first < first) first = x[k].first;
            }
        if (sum > x[i].size) x[i].first = first;
    }
    qsort(x, n, sizeof *x, finding_by_birth);
    for (i = n; i-- > 0;)
        for (k = i + 1; k < n && x[k].first < x[i].last; ++k)
            if (x[k].last > x[i].last) x[i].last = x[k].last;
    return doctor_alive_most(x, n);
}
static size_t doctor_pairs(const findings *f) { /* as many as there could be, each value in order taking the earliest */
    static unsigned char taken[512];
    const trace_touch *x = f->t->touches;
    size_t i, k, best, pairs = 0;

    memset(taken, 0, sizeof taken);
    for (i = 0; i < f->value_count; ++i) {
        const finding_value *v = &f->values[i];

        best = f->value_count;
        for (k = 0; k < f->value_count && !v->zeroed && !x[v->touch].read; ++k) {
            const finding_value *u = &f->values[k];
            const trace_touch *end = &x[u->touch + u->touch_count - 1];

            if (taken[k] || end->write || end->mark != x[v->touch].mark || u->first >= v->first || u->buffer == v->buffer
                || f->kinds[u->buffer] == FINDING_KEPT
                || f->t->buffers[u->buffer].bytes != f->t->buffers[v->buffer].bytes) continue;
            if (best == f->value_count || u->first < f->values[best].first) best = k;
        }
        if (best == f->value_count) continue;
        taken[best] = 1;
        ++pairs;
    }
    return pairs;
}
static report_moment doctor_moment(const findings *f, size_t time, size_t mark) {
    const trace *t = f->t;
    report_moment m;
    size_t i, k;

    memset(&m, 0, sizeof m);
    for (i = 0; i < t->buffer_count; ++i)
        if (t->buffers[i].born <= time && time < t->buffers[i].died) m.held += t->buffers[i].bytes;
    for (i = 0; i < f->value_count; ++i)
        for (k = 0; time >= f->values[i].first && time < f->values[i].last && k <= f->values[i].touch_count; ++k)
            if (!k) m.alive += t->buffers[f->values[i].buffer].bytes;
            else if (t->touches[f->values[i].touch + k - 1].mark == mark) m.touched += t->buffers[f->values[i].buffer].bytes;
    return m;
}
static uint32_t doctor_seed;
static unsigned doctor_random(unsigned below) {
    doctor_seed = doctor_seed * 1664525u + 1013904223u;
    return (doctor_seed >> 8) % below;
}
static size_t doctor_draw(char *text, size_t room, int operators) { /* a trace of 12 marks, ten times apart */
    size_t n = (size_t)snprintf(text, room, "doctor 1\n"), i, k;

    for (i = 0; i < 12; ++i)
        n += (size_t)snprintf(text + n, room - n, "mark %d %s%s\n", (int)(10 * i + 1), i < 6 ? "forward" : "backward",
                              operators && i % 3 ? ", op" : "");
    for (i = 0; i < 40; ++i) {
        const unsigned born = doctor_random(4) ? doctor_random(110) : 0, died = born + 1 + doctor_random(121 - born);

        n += (size_t)snprintf(text + n, room - n, "buffer %u %u %u %u 0 b\n", born, died, 64 * (1 + doctor_random(3)), (unsigned)i);
        for (k = 0; k < 12; ++k) {
            if (doctor_random(3) || 10 * k + 1 >= died || 10 * k + 11 <= born) continue;
            n += (size_t)snprintf(text + n, room - n, "touch %d %s %u\n", (int)k,
                                  doctor_random(3) ? doctor_random(2) ? "r" : "w" : "rw", doctor_random(4));
        }
    }
    return n + (size_t)snprintf(text + n, room - n, "end 121\n");
}
static void doctor_by_definition(void) {
    static char text[32768];
    memopt_plan_item *x;
    report_sweep sweep;
    size_t round, i, at, sum;

    doctor_seed = 7;
    for (round = 0; round < 60; ++round) {
        CHECK(doctor_draw(text, sizeof text, round % 2) < sizeof text);
        CHECK_AT(!trace_read(&doctor_t, text), round);
        if (doctor_t.error) { printf("line %d: %s\n", (int)doctor_t.line, doctor_t.error); return; }
        CHECK_AT(findings_make(&doctor_f, &doctor_t) == MEMOPT_OK, round);
        x = (memopt_plan_item *)calloc(doctor_f.value_count + doctor_t.buffer_count, sizeof *x);
        if (!x) return;
        for (i = 0; i < doctor_t.buffer_count; ++i) {
            x[i].first = doctor_t.buffers[i].born;
            x[i].last = doctor_t.buffers[i].died;
            x[i].size = doctor_t.buffers[i].bytes;
        }
        CHECK_AT(doctor_f.held == doctor_alive_most(x, doctor_t.buffer_count), round);
        finding_items(&doctor_f);
        memcpy(x, doctor_f.items, doctor_f.value_count * sizeof *x);
        sum = doctor_arena_of(x, doctor_f.value_count);
        finding_items(&doctor_f);
        for (i = 0; i < doctor_f.value_count; ++i) { /* layers are three marks long, or one */
            const size_t each = round % 2 ? 30 : 10;

            x[i] = doctor_f.items[i];
            x[i].first -= x[i].first ? (x[i].first - 1) % each : 0;
            x[i].last += (each + 1 - x[i].last % each) % each;
        }
        at = doctor_arena_of(x, doctor_f.value_count);
        CHECK_AT(doctor_f.peaks[FINDING_ARENA] == (at < sum ? at : sum), round);
        CHECK_AT(doctor_f.pairs == doctor_pairs(&doctor_f), round);
        CHECK_AT(!report_sweep_open(&sweep, &doctor_f), round);
        for (i = 0; i < doctor_t.mark_count; ++i) {
            const report_moment got = report_of_mark(&sweep, &doctor_t, i);
            report_moment want = doctor_moment(&doctor_f, doctor_t.marks[i].time, i);

            for (at = doctor_t.marks[i].time + 1; at < trace_mark_end(&doctor_t, i); ++at)
                if (doctor_moment(&doctor_f, at, i).held > want.held) want = doctor_moment(&doctor_f, at, i);
            CHECK_AT(got.held == want.held && got.alive == want.alive && got.touched == want.touched, round * 100 + i);
        }
        free(sweep.changes);
        free(x);
        doctor_done();
    }
}

static void doctor_many(void) { /* more values than are planned by a search: each takes the place of the one before */
    const size_t count = FINDING_MANY + 2;
    char *text = (char *)malloc(64 * (count + 5)), *at = text;
    size_t i;

    CHECK(text != NULL);
    if (!text) return;
    at += sprintf(at, "doctor 1\n");
    for (i = 0; i < 3; ++i) at += sprintf(at, "mark %d forward\n", (int)(i * count + 1));
    for (i = 0; i < count; ++i)
        at += sprintf(at, "buffer %d %d 64 %d 0 b\ntouch %d w 7\n%s", (int)(i + 2), (int)(i + count / 2), (int)i,
                      i + 2 > count, i + 2 > count || i + count / 2 <= count + 1 ? "" : "touch 1 r 0\n");
    sprintf(at, "end %d\n", (int)(3 * count));
    CHECK(!trace_read(&doctor_t, text));
    if (doctor_t.error) printf("line %d: %s\n", (int)doctor_t.line, doctor_t.error);
    CHECK(findings_make(&doctor_f, &doctor_t) == MEMOPT_OK);
    CHECK(doctor_f.value_count == count && doctor_f.held == 64 * (count / 2 - 2) && doctor_f.peaks[FINDING_PLAN] >= doctor_f.held);
    CHECK(doctor_f.peaks[FINDING_PLAN] < doctor_f.held + doctor_f.held / 20);
    CHECK(doctor_f.pairs == 1 && doctor_f.peaks[FINDING_IN_PLACE] == doctor_f.peaks[FINDING_PLAN]);
    doctor_done();
    free(text);
}

static void doctor_holds_inputs(void) { /* what a value's own touches read, and not that of the next buffer */
    size_t until[5] = { 99, 99, 99, 99, 99 };

    doctor_finds(doctor_marks, "buffer 0 6 100 0 0 a\ntouch 1 w 7\nbuffer 0 6 100 1 0 b\ntouch 2 r 0\n", "end 6\n");
    finding_items(&doctor_f);
    CHECK(doctor_f.items[0].last == 3);
    finding_hold_inputs(&doctor_f, until);
    CHECK(doctor_f.items[0].last == 3 && doctor_f.value_count == 2);
    doctor_done();
    doctor_finds(doctor_net, "", "end 7\n"); /* weights, h1, x1, ... g1: which of their touches the backward reads */
    CHECK(doctor_f.values[1].buffer == 1 && doctor_f.values[2].buffer == 2 && doctor_f.values[5].buffer == 5);
    CHECK(finding_read_again(&doctor_f, &doctor_f.values[0]) == 0 && finding_read_again(&doctor_f, &doctor_f.values[1]) == 1);
    CHECK(finding_read_again(&doctor_f, &doctor_f.values[2]) == 2 && finding_read_again(&doctor_f, &doctor_f.values[5]) == 0);
    doctor_done();
}

static void doctor_rows(void) { /* more kinds of findings than there is room for at first; each is found again */
    static char names[300][8];
    report_rows r;
    size_t i;

    memset(&r, 0, sizeof r);
    for (i = 0; i < 600; ++i) {
        snprintf(names[i % 300], sizeof names[0], "w%d", (int)(i % 300));
        report_add(&r, "never used", names[i % 300], i);
    }
    CHECK(!r.failed && r.count == 300);
    for (i = 0; i < r.count; ++i) CHECK_AT(r.rows[i].count == 2 && r.rows[i].bytes == 300 + 2 * i, i);
    free(r.rows);
    free(r.slots);
}

/* ---- reading ---- */
static void doctor_refusals(void) {
    static const struct { const char *head, *body, *end, *why; size_t line; } cases[] = {
        { "", "", "", "the trace is cut off: there is no end", 0 },
        { "doctor 2\n", "", "end 6\n", "this is no trace of doctor.h", 1 },
        { "nurse 1\n", "", "end 6\n", "this is no trace of doctor.h", 1 },
        { "doctor 1\n", "", "end 6\n", "there is no mark", 2 },
        { doctor_marks, "", "", "the trace is cut off: there is no end", 6 },
        { doctor_marks, "", "end 5\n", "the end is before the last mark", 7 },
        { doctor_marks, "", "end x\n", "the end is no number", 7 },
        { doctor_marks, "", "end 6\nend 7\n", "something follows the end", 8 },
        { doctor_marks, "mark 5 more\n", "end 6\n", "marks are not in the order of time", 7 },
        { doctor_marks, "mark 7\n", "end 9\n", "a mark has no name", 7 },
        { doctor_marks, "mark seven more\n", "end 9\n", "the time of a mark is no number", 7 },
        { doctor_marks, "mark 99999999999999999999 more\n", "end 9\n", "the time of a mark is no number", 7 },
        { doctor_marks, "buffer 0 6 1 0 0 a\nmark 7 more\n", "end 9\n", "a mark behind a buffer", 8 },
        { doctor_marks, "buffer 0 6 1 0\n", "end 6\n", "a buffer needs born, died, bytes, block and offset", 7 },
        { doctor_marks, "buffer 0 6 -1 0 0 a\n", "end 6\n", "a buffer needs born, died, bytes, block and offset", 7 },
        { doctor_marks, "buffer 3 3 1 0 0 a\n", "end 6\n", "a buffer dies before it is born", 7 },
        { doctor_marks, "buffer 0 6 0 0 0 a\n", "end 6\n", "a buffer has no bytes", 7 },
        { doctor_marks, "buffer 0 7 1 0 0 a\n", "end 6\n", "a buffer dies after the end", 7 },
        { doctor_marks, "touch 1 r 0\n", "end 6\n", "a touch without a buffer", 7 },
        { doctor_marks, "buffer 0 6 1 0 0 a\ntouch 5 r 0\n", "end 6\n", "a touch at a mark that is not there", 8 },
        { doctor_marks, "buffer 0 6 1 0 0 a\ntouch 1 r 0\ntouch 1 w 0\n", "end 6\n", "touches are not in the order of marks", 9 },
        { doctor_marks, "buffer 0 3 1 0 0 a\ntouch 2 r 0\n", "end 6\n", "a touch of a buffer that is dead", 8 },
        { doctor_marks, "buffer 3 6 1 0 0 a\ntouch 1 r 0\n", "end 6\n", "a touch of a buffer that is not there yet", 8 },
        { doctor_marks, "buffer 0 6 1 0 0 a\ntouch 1 x 0\n", "end 6\n", "a touch is r, w or rw", 8 },
        { doctor_marks, "buffer 0 6 1 0 0 a\ntouch 1\n", "end 6\n", "a touch is r, w or rw", 8 },
        { doctor_marks, "buffer 0 6 1 0 0 a\ntouch 1 w\n", "end 6\n", "a touch needs a hash", 8 },
        { doctor_marks, "buffer 0 6 1 0 0 a\ntouch 1 w 1g\n", "end 6\n", "a touch needs a hash", 8 },
        { doctor_marks, "buffer 0 6 1 0 0 a\ntouch 1 w 12345678123456781\n", "end 6\n", "a touch needs a hash", 8 },
        { doctor_marks, "bluffer 0 6 1 0 0 a\n", "end 6\n", "a line is mark, cost, buffer, touch or end", 7 },
        { doctor_marks, "cost 1\n", "end 6\n", "a cost is not that of the mark above", 7 },
        { "doctor 1\ncost 1\n", "", "end 6\n", "a cost is not that of the mark above", 2 },
        { "doctor 1\nmark 1 a\ncost 1\ncost 1\n", "", "end 6\n", "a cost is not that of the mark above", 4 },
        { "doctor 1\nmark 1 a\ncost nan\n", "", "end 6\n", "a cost is no number", 3 },
        { "doctor 1\nmark 1 a\ncost 1\nmark 2 b\nmark 3 c\n", "", "end 6\n", "the mark before has no cost", 5 },
        { "doctor 1\nmark 1 a\ncost 1\nmark 2 b\n", "", "end 6\n", "the last mark has no cost", 5 },
        { doctor_marks, "buffer 0 6 nan 0 0 a\n", "end 6\n", "a buffer needs born, died, bytes, block and offset", 7 },
        { doctor_marks, "buffer 0 6 9 1 0 a\nbuffer 0 6 9 0 0 a\nbuffer 0 6 9 1 8 a\n", "end 6\n", "a buffer overlaps another of its block", 9 },
        { doctor_marks, "buffer 0 6 9 1 9 a\nbuffer 0 6 10 1 0 a\n", "end 6\n", "a buffer overlaps another of its block", 8 },
        { doctor_marks, "buffer 0 6 9 1 9 a\nbuffer 0 5 9 1 0 a\n", "end 6\n", "a buffer lives longer than another of its block", 8 },
        { doctor_marks, "buffer 0 6 9 1 9 a\nbuffer 2 6 9 1 0 a\n", "end 6\n", "a buffer lives longer than another of its block", 8 },
        { "{}", "", "", "the snapshot has no events: give the ledger an event_capacity", 0 },
        { "{\"action\": \"alloc\", \"addr\": 1}", "", "", "an event has no frames", 1 }
    };
    char body[256], whole[sizeof doctor_net + 16];
    size_t i, n;

    for (i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        CHECK_AT(doctor_reads(cases[i].head, cases[i].body, cases[i].end), i);
        if (!doctor_t.error || strcmp(doctor_t.error, cases[i].why)) printf("got '%s'\n", doctor_t.error ? doctor_t.error : "");
        CHECK_AT(doctor_t.error && !strcmp(doctor_t.error, cases[i].why) && doctor_t.line == cases[i].line, i);
        CHECK_AT(!doctor_t.marks && !doctor_t.buffers && !doctor_t.touches, i);
    }
    snprintf(body, sizeof body, "buffer 0 6 %lu 0 0 a\nbuffer 0 6 %lu 1 0 a\n", (unsigned long)(SIZE_MAX / 4 < ULONG_MAX ? SIZE_MAX / 4 : ULONG_MAX / 4), 1ul);
    if (SIZE_MAX / 4 <= ULONG_MAX) CHECK(doctor_reads(doctor_marks, body, "end 6\n") && !strcmp(doctor_t.error, "the bytes of all buffers do not fit"));
    snprintf(whole, sizeof whole, "%send 7\n", doctor_net);
    for (n = 0; n + 1 < strlen(whole); ++n) { /* cut off anywhere; the last newline may be missing */
        memcpy(doctor_text, whole, n);
        doctor_text[n] = 0;
        CHECK_AT(trace_read(&doctor_t, doctor_text), n);
    }
    CHECK(!doctor_reads("doctor 1\r\nmark 1 two words\r\n\r\n", "buffer 0 2 3 0 0 a b:1\r\n", "end 2\r\n"));
    CHECK(!strcmp(doctor_t.marks[0].name, "two words") && !strcmp(doctor_t.buffers[0].where, "a b:1"));
    trace_free(&doctor_t);
}

#define DOCTOR_EVENT(action, address, size, time) "{\"action\": \"" action "\", \"addr\": " address ", \"size\": " size \
    ", \"time_us\": " time ", \"frames\": [{\"filename\": \"step 0\", \"line\": 0, \"name\": \"x\"}]}"
#define DOCTOR_EVENTS(a, b) "{\"device_traces\": [[" a ", " b "]]}"
static void doctor_ledger_refusals(void) {
    static const char first[] = DOCTOR_EVENT("alloc", "64", "100", "5");
    static const struct { const char *second, *why; } cases[] = {
        { DOCTOR_EVENT("free_completed", "64", "100", "4"), "an event is earlier than the one before" },
        { DOCTOR_EVENT("free_completed", "64", "99", "6"), "a block is freed with other bytes than it has" },
        { DOCTOR_EVENT("alloc", "64", "100", "6"), "a block is where another one is" },
        { DOCTOR_EVENT("alloc", "65", "NaN", "6"), "the size of an event is no number" },
        { DOCTOR_EVENT("alloc", "65", "-1", "6"), "the size of an event is no number" },
        { DOCTOR_EVENT("alloc", "65", "1.5", "6"), "the size of an event is no number" },
        { DOCTOR_EVENT("alloc", "65", "99999999999999999999", "6"), "the size of an event is no number" },
        { DOCTOR_EVENT("alloc", "65", "0", "6"), "an event has no bytes, or too many" },
        { DOCTOR_EVENT("alloc", "65", "18446744073709551615", "6"), "an event has no bytes, or too many" },
        { DOCTOR_EVENT("alloc", "x", "100", "6"), "the address of an event is no number" },
        { DOCTOR_EVENT("alloc", "65", "100", "soon"), "the time of an event is no number" }
    };
    char text[1024];
    size_t i;

    for (i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        snprintf(text, sizeof text, DOCTOR_EVENTS("%s", "%s"), first, cases[i].second);
        CHECK_AT(trace_read(&doctor_t, text) && doctor_t.line == 2 && !strcmp(doctor_t.error, cases[i].why), i);
    }
    snprintf(text, sizeof text, DOCTOR_EVENTS("%s", "%s, %s"), first, DOCTOR_EVENT("free_completed", "64", "100", "5"),
             DOCTOR_EVENT("free_completed", "64", "100", "5"));
    CHECK(trace_read(&doctor_t, text) && doctor_t.line == 3 && !strcmp(doctor_t.error, "a block is freed that is free already"));
    snprintf(text, sizeof text, "{\"device_traces\": [[%s", first);
    CHECK(trace_read(&doctor_t, text) && !strcmp(doctor_t.error, "the snapshot is cut off"));
    /* freed, and taken again; and one that is older than the oldest event */
    snprintf(text, sizeof text, DOCTOR_EVENTS("%s, %s", "%s"), DOCTOR_EVENT("free_completed", "64", "10", "5"), first,
             DOCTOR_EVENT("free_completed", "64", "100", "5"));
    CHECK(!trace_read(&doctor_t, text) && doctor_t.buffer_count == 2);
    if (doctor_t.buffer_count == 2) {
        CHECK(doctor_t.buffers[0].born == 0 && doctor_t.buffers[0].died == 1 && doctor_t.buffers[0].bytes == 10);
        CHECK(doctor_t.buffers[1].born == 2 && doctor_t.buffers[1].died == 3 && doctor_t.buffers[1].bytes == 100);
    }
    trace_free(&doctor_t);
}

static void doctor_reads_ledger(void) {
    memopt_ledger_desc desc;
    memopt_ledger *ledger = NULL;
    size_t length;
    FILE *file;

    memset(&desc, 0, sizeof desc);
    desc.block_capacity = 8;
    desc.event_capacity = 32;
    CHECK(memopt_ledger_create(&desc, &ledger) == MEMOPT_OK);
    if (!ledger) return;
    CHECK(memopt_ledger_add(ledger, MEMOPT_TAG_PARAMETERS, 6400, doctor_text, "weights") == MEMOPT_OK);
    memopt_ledger_label(ledger, 0, 1);
    CHECK(memopt_ledger_add(ledger, MEMOPT_TAG_ACTIVATIONS, 640, doctor_text + 1, NULL) == MEMOPT_OK);
    CHECK(memopt_ledger_remove(ledger, MEMOPT_TAG_ACTIVATIONS, 640, doctor_text + 1) == MEMOPT_OK);
    memopt_ledger_label(ledger, 1, 1);
    CHECK(memopt_ledger_add(ledger, MEMOPT_TAG_ACTIVATIONS, 1280, doctor_text + 1, NULL) == MEMOPT_OK);
    file = tmpfile();
    if (!file) exit(1);
    CHECK(ledger_export(ledger, LEDGER_SNAPSHOT_JSON, file) == MEMOPT_OK);
    rewind(file);
    length = fread(doctor_text, 1, sizeof doctor_text - 1, file);
    doctor_text[length] = 0;
    fclose(file);
    memopt_ledger_destroy(ledger);
    CHECK(!trace_read(&doctor_t, doctor_text));
    if (doctor_t.error) printf("%s\n", doctor_t.error);
    CHECK(doctor_t.lifetimes_only && doctor_t.buffer_count == 3 && doctor_t.mark_count == 3 && doctor_t.touch_count == 0);
    if (doctor_t.buffer_count == 3) {
        CHECK(!strcmp(doctor_t.buffers[0].where, "weights") && !strcmp(doctor_t.buffers[1].where, "activations"));
        CHECK(doctor_t.buffers[0].bytes == 6400 && doctor_t.buffers[0].died == doctor_t.end);
        CHECK(doctor_t.buffers[1].bytes == 640 && doctor_t.buffers[1].died == doctor_t.buffers[1].born + 2);
        CHECK(doctor_t.buffers[2].born > doctor_t.buffers[1].died);
        CHECK(!strcmp(doctor_t.marks[1].name, "step 0") && !strcmp(doctor_t.marks[2].name, "step 1"));
        CHECK(findings_make(&doctor_f, &doctor_t) == MEMOPT_OK);
        CHECK(doctor_f.held == 7680 && doctor_f.peaks[FINDING_PLAN] == 7680 && doctor_f.bytes[FINDING_UNUSED] == 0);
    }
    doctor_done();
}

static int doctor_says(const char *text, const char *what) {
    if (strstr(text, what)) return 1;
    printf("not there: %s\n", what);
    return 0;
}
static void doctor_tells(void) { /* every row by hand */
    static char text[16384];
    FILE *file = tmpfile();
    size_t length;

    if (!file) { SKIP("no temporary file"); return; }
    doctor_finds(doctor_net, "", "end 7\n");
    CHECK(!report_findings(&doctor_f, file));
    report_ways(&doctor_f, file);
    CHECK(!report_chart(&doctor_f, file));
    CHECK(!report_page(&doctor_f, file));
    rewind(file);
    length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    CHECK(doctor_says(text, "     0.003        1  written in backward, idle until step (g1)\n"));
    CHECK(doctor_says(text, "     0.003        1  zeroed before the mark that first uses it (g2)\n"));
    CHECK(doctor_says(text, "     0.001        1  written in forward, idle until backward (h2)\n"));
    CHECK(doctor_says(text, "     0.000        1  never used (never)\n"));
    /* h2 lies behind 7,104 of 14,976 bytes, and lives from the second of six marks to the fourth, both of which use it */
    CHECK(doctor_says(text, "<rect class=\"h\" x=\"0.00\" y=\"474.359\" width=\"1000.00\" height=\"85.470\"/>"
                            "<rect class=\"a\" x=\"166.67\" y=\"474.359\" width=\"500.00\" height=\"85.470\"/>"
                            "<rect class=\"t\" x=\"166.67\" y=\"474.359\" width=\"166.67\" height=\"85.470\"/>"
                            "<rect class=\"t\" x=\"500.00\" y=\"474.359\" width=\"166.67\" height=\"85.470\"/></g>"));
    CHECK(doctor_says(text, "     0.006           kept from step to step\n"));
    CHECK(doctor_says(text, "     0.003      0.012  a plan, and the step inside backward for 2 gradients\n"));
    CHECK(!strstr(text, "in place")); /* there are none */
    CHECK(doctor_f.again == 3 && !strstr(text, "a tape")); /* it would hold what the plan holds, and take time */
    /* 14,976 bytes in 48 columns; mark 3: used weights, h2, x2, g2 = 10,944, alive with them h1, x1 */
    CHECK(doctor_says(text, "   3 backward            0.015  ###################################==...........\n"));
    CHECK(doctor_says(text, "<title>never, 0.000 MB from byte 0 on: never used</title>") && doctor_says(text, "</html>"));
    doctor_done();
}

static void doctor_worth(void) { /* arena, plan, in place, cheap, step, tape: held, time of cheap and of the tape, which are told */
    static const struct { size_t peaks[FINDING_WAYS], cheap, tape; const char *told; } cases[] = {
        { { 90, 80, 70, 60, 50, 40 }, 1, 10, "111111" },
        { { 90, 80, 80, 80, 80, 80 }, 1, 10, "110000" }, /* no more than the plan */
        { { 70, 80, 75, 70, 71, 69 }, 1, 10, "110001" }, /* or than the arena */
        { { 100, 99, 98, 97, 96, 100 }, 1, 10, "011110" }, /* no less than now */
        { { 90, 80, 50, 60, 50, 60 }, 1, 10, "111110" }, /* a tape that takes more time than what is made again cheaply */
        { { 90, 80, 50, 60, 50, 59 }, 1, 10, "111111" },
        { { 90, 80, 50, 60, 50, 60 }, 5, 5, "111110" }, /* one of two that are alike */
        { { 90, 80, 50, 60, 50, 60 }, 10, 5, "111011" },
        { { 90, 80, 50, 59, 50, 60 }, 10, 5, "111111" },
        { { 90, 80, 50, 61, 50, 60 }, 10, 5, "111011" }
    };
    findings f;
    size_t i, k;

    memset(&f, 0, sizeof f);
    f.held = 100;
    f.pairs = f.cheap_count = f.early_steps = f.again = 1;
    for (i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        memcpy(f.peaks, cases[i].peaks, sizeof f.peaks);
        f.cheap_cost = cases[i].cheap;
        f.again_cost = cases[i].tape;
        for (k = 0; k < FINDING_WAYS; ++k)
            CHECK_AT(report_is_worth(&f, (finding_way)k) == (cases[i].told[k] == '1'), i * FINDING_WAYS + k);
    }
    f.cheap_count = 0; /* without prices nothing is cheap, and takes no place from a tape */
    memset(f.peaks, 0, sizeof f.peaks);
    f.peaks[FINDING_ARENA] = f.peaks[FINDING_PLAN] = 80;
    f.peaks[FINDING_TAPE] = 70;
    f.again_cost = f.cheap_cost = 0;
    CHECK(report_is_worth(&f, FINDING_TAPE) && !report_is_worth(&f, FINDING_CHEAP));
}

/* ---- recording ---- */
#ifdef DOCTOR_CLOSES_PAGES
typedef struct doctor_engine { volatile unsigned char *weights, *acts, *mixed, *tail; size_t page; } doctor_engine;
static unsigned char doctor_sum; /* so that reads are there */

static void doctor_engine_step(const doctor_engine *e) {
    const size_t p = e->page;
    volatile unsigned char *work;
    size_t i;

    doctor_mark("forward");
    for (i = 0; i < 3 * p; ++i) e->acts[i] = (unsigned char)(e->weights[i % 2] + i); /* reads one page of two */
    for (i = 0; i < p / 2; ++i) e->mixed[i] = (unsigned char)(e->weights[0] + 1);
    for (i = 0; i < p / 2; ++i) e->tail[i] = (unsigned char)(e->weights[0] + 1);
    doctor_mark("zero");
    for (i = 3 * p; i < 5 * p; ++i) e->acts[i] = 0;
    doctor_mark("backward");
    work = (volatile unsigned char *)doctor_malloc(p + 1, "work", 9);
    if (!work) return;
    for (i = 0; i <= p; ++i) work[i] = e->acts[i];
    for (i = 3 * p; i < 5 * p; ++i) e->acts[i] = (unsigned char)(e->acts[i] + work[i % p] + 1);
    doctor_free((void *)(uintptr_t)work);
    doctor_sum = (unsigned char)(doctor_sum + e->mixed[p - 1] + e->tail[0]);
    doctor_mark("step");
    for (i = 3 * p; i < 5 * p; ++i) doctor_sum = (unsigned char)(doctor_sum + e->acts[i]);
    e->weights[0] = (unsigned char)(e->weights[0] + 1);
}
static const trace_touch *doctor_touch(size_t buffer, size_t touch) { return &doctor_t.touches[doctor_t.buffers[buffer].touch + touch]; }
static int doctor_is(size_t buffer, size_t touch, size_t mark, int read, int write) {
    const trace_touch *x = doctor_touch(buffer, touch);

    return touch < doctor_t.buffers[buffer].touch_count && x->mark == mark && x->read == read && x->write == write;
}

static void doctor_recorded(size_t p) { /* the trace of the engine's second step */
    const trace_buffer *b = doctor_t.buffers;

    CHECK(doctor_t.mark_count == 5 && !strcmp(doctor_t.marks[0].name, "begin") && !strcmp(doctor_t.marks[4].name, "step"));
    CHECK(doctor_t.buffer_count == 9);
    if (doctor_t.buffer_count != 9) return;
    CHECK(b[0].bytes == p && b[0].touch_count == 2 && doctor_is(0, 0, 1, 1, 0) && doctor_is(0, 1, 4, 1, 1));
    CHECK(b[1].bytes == p && b[1].offset == p && b[1].touch_count == 0); /* the other page of the weights */
    CHECK(b[2].bytes == 2 * p && b[2].touch_count == 2 && doctor_is(2, 0, 1, 0, 1) && doctor_is(2, 1, 3, 1, 0));
    CHECK(b[3].bytes == p && b[3].offset == 2 * p && b[3].touch_count == 1 && doctor_is(3, 0, 1, 0, 1));
    CHECK(b[4].bytes == 2 * p && b[4].touch_count == 3 && doctor_is(4, 0, 2, 0, 1) && doctor_touch(4, 0)->hash == 0);
    CHECK(doctor_is(4, 1, 3, 1, 1) && doctor_is(4, 2, 4, 1, 0) && doctor_touch(4, 1)->hash != 0);
    CHECK(b[5].bytes == 5 && b[5].offset == 5 * p && b[5].touch_count == 0); /* the rest of a last page */
    CHECK(b[6].bytes == p && doctor_is(6, 0, 1, 1, 1) && doctor_is(6, 1, 3, 1, 0)); /* its other half is from before */
    CHECK(b[7].bytes == p && doctor_is(7, 0, 1, 0, 1) && doctor_is(7, 1, 3, 1, 0)); /* whose other half are zeros */
    CHECK(b[8].bytes == p + 1 && !strcmp(b[8].where, "work:9") && b[8].born > doctor_t.marks[3].time && b[8].died < doctor_t.marks[4].time);
    CHECK(b[8].touch_count == 1 && doctor_is(8, 0, 3, 0, 1) && b[8].block == 4);
    CHECK(b[0].born == 0 && b[0].died == doctor_t.end && !strcmp(b[2].where, "acts:2"));
    CHECK(doctor_t.cost_count == 5 && doctor_t.cost >= 5 && doctor_t.marks[2].cost > 0); /* of the first step, rounded up */
    CHECK(doctor_t.marks[4].cost > 1); /* the last mark's as well: two pages take more than a microsecond */
}

static void doctor_engine_free(const doctor_engine *e) {
    doctor_free((void *)(uintptr_t)e->weights);
    doctor_free((void *)(uintptr_t)e->acts);
    doctor_free((void *)(uintptr_t)e->mixed);
    doctor_free((void *)(uintptr_t)e->tail);
}

/* 0 for zeros alone; where words are, and which of their bits are, counts: two changes do not cancel out. */
static void doctor_hashes(void) {
    const size_t words = doctor.page / 8;
    uint64_t *page = (uint64_t *)calloc(words, 8), first;
    size_t i, k;

    CHECK(page != NULL);
    if (!page) return;
    CHECK(doctor_hash((unsigned char *)page) == 0);
    for (i = 0; i < words; i += words / 2 - 1) {
        page[i] = 1;
        CHECK_AT(doctor_hash((unsigned char *)page) != 0, i);
        page[i] = 0;
    }
    page[0] = 6;
    page[1] = page[2] = page[3] = 5;
    first = doctor_hash((unsigned char *)page);
    page[0] = 5;
    page[1] = 6;
    CHECK(doctor_hash((unsigned char *)page) != first);
    page[1] = 5;
    first = doctor_hash((unsigned char *)page);
    for (i = 1; i < 256; ++i) { /* signs of eight floats */
        for (k = 0; k < 4; ++k) page[k] = 5 ^ (uint64_t)(i >> 2 * k & 1) << 63 ^ (uint64_t)(i >> (2 * k + 1) & 1) << 31;
        CHECK_AT(doctor_hash((unsigned char *)page) != first, i);
    }
    free(page);
}

/* Pages alike are one buffer, whose hashes are of all of them, mark by mark. */
static void doctor_joins(void) {
    doctor_event events[4];
    doctor_block b;
    char text[200];
    FILE *file = tmpfile();
    size_t i;

    if (!file) return;
    memset(events, 0, sizeof events);
    memset(&b, 0, sizeof b);
    for (i = 0; i < 4; ++i) {
        events[i].page = (uint32_t)i / 2;
        events[i].mark = (uint32_t)i % 2;
        events[i].kind = DOCTOR_WRITTEN;
        events[i].hash = 3 + 2 * i; /* 3, 5; 7, 9 */
    }
    b.pages = 2;
    b.bytes = 2 * doctor.page;
    b.event_count = 4;
    b.died = 9;
    b.file = "here";
    doctor.events = events;
    doctor_write_block(file, &b, 0, 9);
    doctor.events = NULL;
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    CHECK(doctor_says(text, "touch 0 w 000000187\ntouch 1 w 000000289\n")); /* 3 << 7 ^ 7, 5 << 7 ^ 9 */
}

static void doctor_records(void) {
    const char *folder = getenv("TMPDIR");
    doctor_engine e;
    size_t i;
    FILE *file;

    snprintf(doctor_path, sizeof doctor_path, "%s/memopt-doctor-%ld.trace", folder ? folder : "/tmp", (long)getpid());
    e.weights = (volatile unsigned char *)doctor_calloc(1, 2 * (size_t)sysconf(_SC_PAGESIZE), "weights", 1);
    e.page = doctor.page;
    e.acts = (volatile unsigned char *)doctor_malloc(5 * e.page + 5, "acts", 2);
    e.mixed = (volatile unsigned char *)doctor_malloc(e.page, "mixed", 3);
    e.tail = (volatile unsigned char *)doctor_malloc(e.page, "tail", 4);
    CHECK(e.weights && e.acts && e.mixed && e.tail);
    if (doctor.failed || !e.weights || !e.acts || !e.mixed || !e.tail) {
        doctor_engine_free(&e);
        SKIP("faults do not tell reads from writes here");
        return;
    }
    doctor_hashes();
    doctor_joins();
    e.weights[0] = 7;
    e.weights[1] = 7;
    for (i = e.page / 2; i < e.page; ++i) e.mixed[i] = 5;
    for (i = 0; i < 2; ++i) {
        doctor_step();
        doctor_engine_step(&e);
    }
    doctor_step(); /* the record is written */
    file = fopen(doctor_path, "rb");
    CHECK(file != NULL);
    if (!file) return;
    doctor_text[fread(doctor_text, 1, sizeof doctor_text - 1, file)] = 0;
    fclose(file);
    remove(doctor_path);
    CHECK(!trace_read(&doctor_t, doctor_text));
    if (doctor_t.error) printf("%s\n", doctor_t.error);
    doctor_recorded(e.page);
    trace_free(&doctor_t);

    /* the proof of the third step: what nobody needs is gone, all else stays */
    doctor.state = DOCTOR_PROVES;
    doctor_prove(doctor.now = 0);
    CHECK(e.acts[0] != 0xff || e.acts[1] != 0xff); /* mark 0: not yet */
    doctor_mark("forward");
    CHECK(e.acts[0] == 0xff && e.acts[3 * e.page - 1] == 0xff && e.weights[0] == 9 && e.weights[1] == 7);
    CHECK(e.mixed[e.page - 1] == 5 && e.mixed[0] != 0xff && e.tail[0] == 0 && e.tail[e.page - 1] == 0); /* taken zeroed */
    e.acts[0] = 1;
    e.acts[2 * e.page] = 1;
    doctor_mark("zero");
    CHECK(e.acts[0] == 1 && e.acts[2 * e.page] == 0xff); /* the third page was used at one mark only */
    CHECK(e.acts[3 * e.page] == 0xff && e.acts[5 * e.page - 1] == 0xff);
    e.acts[3 * e.page] = 5;
    doctor_mark("backward");
    CHECK(e.acts[3 * e.page] == 0 && e.acts[5 * e.page - 1] == 0 && e.acts[0] == 1); /* zeroed where it is first used */
    doctor_mark("step");
    CHECK(e.acts[0] == 0xff && e.acts[3 * e.page] == 0 && e.weights[0] == 9);
    doctor_step();
    doctor_engine_free(&e);
}

static void doctor_allocates(void) { /* as the C library does */
    unsigned char *a = (unsigned char *)doctor_malloc(10, "a", 1), *b;
    size_t i;

    CHECK(a && !doctor_find(a));
    if (!a) return;
    memset(a, 3, 10);
    b = (unsigned char *)doctor_realloc(a, 3 * doctor.page, "b", 2); /* out of the library's into pages */
    CHECK(b && doctor_find(b) && b[9] == 3);
    if (!b) return;
    b[3 * doctor.page - 1] = 4;
    a = (unsigned char *)doctor_realloc(b, 4 * doctor.page, "c", 3);
    CHECK(a && a[9] == 3 && a[3 * doctor.page - 1] == 4 && a[3 * doctor.page] == 0);
    b = a ? (unsigned char *)doctor_realloc(a, 10, "d", 4) : NULL; /* and back */
    CHECK(b && !doctor_find(b) && b[9] == 3);
    doctor_free(b);
    doctor_free(NULL);
    CHECK(doctor_calloc(SIZE_MAX / 2, 3, "e", 5) == NULL && doctor.block_count == 0);
    b = (unsigned char *)doctor_calloc(5, 2, "f", 6);
    for (i = 0; b && i < 10; ++i) CHECK(b[i] == 0);
    doctor_free(b);
    a = (unsigned char *)doctor_realloc(NULL, doctor.page, "g", 7);
    CHECK(a && doctor_find(a));
    doctor_free(a);
    CHECK(doctor.block_count == 0 && doctor.live_count == 0);
    free(doctor.blocks); /* for valgrind */
    free(doctor.by_address);
    free(doctor.costs);
    free(doctor.events);
    free(doctor.marks);
    memset(&doctor, 0, sizeof doctor);
}
#else
static void doctor_records(void) {
    (void)doctor_path;
    SKIP("pages cannot be closed here");
}
static void doctor_allocates(void) {
    void *a = doctor_malloc(10, "a", 1);

    CHECK(a != NULL);
    a = doctor_realloc(a, 20, "a", 1);
    doctor_mark("forward");
    doctor_free(a);
    a = doctor_calloc(2, 5, "a", 1);
    CHECK(a != NULL);
    doctor_free(a);
}
#endif

static void test_doctor(void) {
    RUN(doctor_kinds);
    RUN(doctor_lifetimes);
    RUN(doctor_mirrors);
    RUN(doctor_ways);
    RUN(doctor_tape_keeps_inputs);
    RUN(doctor_in_place);
    RUN(doctor_arena);
    RUN(doctor_cheap);
    RUN(doctor_prices);
    RUN(doctor_by_definition);
    RUN(doctor_many);
    RUN(doctor_holds_inputs);
    RUN(doctor_rows);
    RUN(doctor_refusals);
    RUN(doctor_ledger_refusals);
    RUN(doctor_reads_ledger);
    RUN(doctor_tells);
    RUN(doctor_worth);
#ifndef TEST_COMBINED /* where valgrind would call faults on purpose errors */
    RUN(doctor_records);
    RUN(doctor_allocates);
#else
    (void)doctor_records;
    (void)doctor_allocates;
#endif
}
#ifndef TEST_COMBINED
int main(void) {
    test_doctor();
    return test_totals();
}
#endif
