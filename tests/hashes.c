/* hashes.c - a hash of what random, number, quant, optim, tape and fused compute, a line each: every machine must print the same
   lines, whatever its byte order and its levels. Values are hashed, not their bytes in memory. tests/check.sh compares two
   machines. With an argument, the tests of these sections that know their bits run first, so many as take seconds in an
   emulator. */
#define TEST_COMBINED
#include "test_random.c"
#include "test_number.c"
#include "test_quant.c"
#include "test_optim.c"
#include "test_adafactor.c"
#include "test_tape.c"

enum { HASHES_COUNT = 1 << 16 };
static float hashes_x[HASHES_COUNT], hashes_y[HASHES_COUNT];
static uint32_t hashes_u32[HASHES_COUNT];
static uint16_t hashes_u16[HASHES_COUNT];
static uint8_t hashes_u8[HASHES_COUNT];

static uint32_t hashes_of_floats(uint32_t h, const float *x, size_t n) {
    size_t i;

    for (i = 0; i < n; ++i) h = optim_hash_word(h, memopt_i_float_bits(x[i]));
    return h;
}

static void hashes_say(const char *what, int which, uint32_t hash) { printf("%-24s %2d %08x\n", what, which, (unsigned)hash); }

static void hashes_random(void) {
    uint32_t h = 1; size_t i;

    CHECK(memopt_random_bits(hashes_u32, HASHES_COUNT, 7, 8, 9, NULL) == MEMOPT_OK);
    for (i = 0; i < HASHES_COUNT; ++i) h = optim_hash_word(h, hashes_u32[i]);
    hashes_say("random bits", 0, h);
    CHECK(memopt_random_uniform(hashes_x, HASHES_COUNT, 7, 8, 9, NULL) == MEMOPT_OK);
    hashes_say("random uniform", 0, hashes_of_floats(1, hashes_x, HASHES_COUNT));
    CHECK(memopt_random_normal(hashes_x, HASHES_COUNT, 7, 8, 9, NULL) == MEMOPT_OK);
    hashes_say("random normal", 0, hashes_of_floats(1, hashes_x, HASHES_COUNT));
}

/* every bit pattern is as likely as any other: NaN, infinities and denormals among them */
static void hashes_number(void) {
    const memopt_noise noise = memopt_noise_make(3, 4); int way; size_t i;

    CHECK(memopt_random_bits(hashes_u32, HASHES_COUNT, 7, 8, 9, NULL) == MEMOPT_OK);
    for (i = 0; i < HASHES_COUNT; ++i) hashes_x[i] = memopt_i_bits_float(hashes_u32[i]);
    for (way = 0; way < 4; ++way) {
        uint32_t h = 1;

        if (way == 0) CHECK(memopt_bf16_from_f32(hashes_u16, hashes_x, HASHES_COUNT, NULL) == MEMOPT_OK);
        if (way == 1) CHECK(memopt_f16_from_f32(hashes_u16, hashes_x, HASHES_COUNT, NULL) == MEMOPT_OK);
        if (way == 2) CHECK(memopt_bf16_from_f32_stochastic(hashes_u16, hashes_x, HASHES_COUNT, noise, 5, NULL) == MEMOPT_OK);
        if (way == 3) CHECK(memopt_f16_from_f32_stochastic(hashes_u16, hashes_x, HASHES_COUNT, noise, 5, NULL) == MEMOPT_OK);
        for (i = 0; i < HASHES_COUNT; ++i) h = optim_hash_word(h, hashes_u16[i]);
        hashes_say("16 bits", way, h);
        if (way & 1) CHECK(memopt_f32_from_f16(hashes_y, hashes_u16, HASHES_COUNT, NULL) == MEMOPT_OK);
        else CHECK(memopt_f32_from_bf16(hashes_y, hashes_u16, HASHES_COUNT, NULL) == MEMOPT_OK);
        hashes_say("16 bits, widened", way, hashes_of_floats(1, hashes_y, HASHES_COUNT));
        h = 1;
        if (way == 0) CHECK(memopt_e4m3_from_f32(hashes_u8, hashes_x, HASHES_COUNT, 0, NULL) == MEMOPT_OK);
        if (way == 1) CHECK(memopt_e5m2_from_f32(hashes_u8, hashes_x, HASHES_COUNT, 1, NULL) == MEMOPT_OK);
        if (way == 2) CHECK(memopt_e4m3_from_f32_stochastic(hashes_u8, hashes_x, HASHES_COUNT, 1, noise, 5, NULL) == MEMOPT_OK);
        if (way == 3) CHECK(memopt_e5m2_from_f32_stochastic(hashes_u8, hashes_x, HASHES_COUNT, 0, noise, 5, NULL) == MEMOPT_OK);
        for (i = 0; i < HASHES_COUNT; ++i) h = optim_hash_word(h, hashes_u8[i]);
        hashes_say("8 bits", way, h);
    }
}

static void hashes_quant(void) {
    int map; size_t i; uint32_t h;

    CHECK(memopt_random_normal(hashes_x, HASHES_COUNT, 1, 2, 3, NULL) == MEMOPT_OK);
    CHECK(memopt_random_bits(hashes_u32, HASHES_COUNT, 7, 8, 9, NULL) == MEMOPT_OK);
    for (i = 0; i < HASHES_COUNT; i += 997) hashes_x[i] = memopt_i_bits_float(hashes_u32[i]);
    for (map = MEMOPT_QUANT_SIGNED; map <= MEMOPT_QUANT_LINEAR; ++map) {
        const size_t blocks = memopt_quantize_blocks(HASHES_COUNT, 96);

        CHECK(memopt_quantize_f32(hashes_u8, hashes_y, hashes_x, HASHES_COUNT, (memopt_quant_map)map, 96, NULL) == MEMOPT_OK);
        h = hashes_of_floats(1, hashes_y, blocks);
        for (i = 0; i < HASHES_COUNT; ++i) h = optim_hash_word(h, hashes_u8[i]);
        hashes_say("codes and scales", map, h);
    }
}

static void hashes_optim(void) {
    int i, step;

    for (i = 0; i < OPTIM_PAIRS; ++i) {
        const optim_spec s = optim_pair(i, i % 4, i / 2 % 2, i % 5 == 4 ? 96 : 0);
        const memopt_optim_group g = optim_group(s.kind, s.moment); optim_model m;

        optim_open(&m, &s, NULL);
        optim_start(&m, 3);
        for (step = 1; step <= 20; ++step) {
            const memopt_optim_run run = optim_run(&g, (uint64_t)step);

            optim_feed(&m, (uint64_t)step);
            CHECK(memopt_optim_step(m.optim, &run) == MEMOPT_OK);
        }
        hashes_say("optimizer, 20 steps", i, optim_hash(&m));
        optim_close(&m);
    }
}

static void hashes_adafactor(void) {
    int way;

    for (way = 0; way < 12; ++way) {
        adafactor_case c = adafactor_small(way % 2); uint64_t hash;

        c.weights = (memopt_i_weights)(way % 4); c.gradients = (memopt_type)(way / 4 % 2);
        c.state = (memopt_state_format)(way / 4); c.moment = way > 3;
        hash = adafactor_found(&c, MEMOPT_SIMD_SCALAR, 0, 0, 1);
        hashes_say("Adafactor, 3 steps", way, (uint32_t)(hash >> 32) ^ (uint32_t)hash);
    }
}

/* dropout and batch norm among the layers: the tape's seeds and its recomputing are in the weights */
static void hashes_tape(void) {
    static tape_net n; size_t k, i;

    for (k = 0; k < 2; ++k) for (i = 0; i < TAPE_VARIANTS; i += 5) {
        memopt_tape_desc d; uint32_t h;

        tape_net_make(&n, tape_nets[k]);
        tape_net_sizes(&n, TAPE_ROWS);
        d = tape_net_desc(&n, NULL);
        tape_variant(&d, i);
        h = memopt_i_float_bits(tape_trained_with(&n, &d, tape_steps(8, 1)).last);
        h = hashes_of_floats(h, n.weights, n.weight_count);
        hashes_say("tape, 8 steps", (int)(100 * k + i), hashes_of_floats(h, n.stats, n.stat_count));
    }
}

static void hashes_fused(void) { /* every function of a text, with every type */
    static const float scale = 0.75f; static float sums[64], maxima[64]; int type;

    CHECK(memopt_random_normal(hashes_x, HASHES_COUNT, 7, 8, 9, NULL) == MEMOPT_OK);
    CHECK(memopt_bf16_from_f32(hashes_u16, hashes_x, HASHES_COUNT, NULL) == MEMOPT_OK);
    for (type = 0; type < 2; ++type) {
        const memopt_fused_array arrays[5] = {
            { "x", type ? MEMOPT_TYPE_BF16 : MEMOPT_TYPE_F16, MEMOPT_FUSED_EACH, hashes_u16, NULL, 0 },
            { "y", MEMOPT_TYPE_F32, MEMOPT_FUSED_EACH, NULL, hashes_y, 0 }, { "s", MEMOPT_TYPE_F32, MEMOPT_FUSED_ONE, &scale, NULL, 0 },
            { "sum", MEMOPT_TYPE_F32, MEMOPT_FUSED_COLUMN, NULL, sums, 0 }, { "max", MEMOPT_TYPE_F32, MEMOPT_FUSED_COLUMN, NULL, maxima, 0 } };
        memopt_fused f; uint32_t h;

        memset(&f, 0, sizeof f);
        f.text = "t = min(max(x, -60), 60); a = gelu(t * s + 0.1) - silu(t) / 3; b = dropout(exp(-abs(t))) + sigmoid(t) * sqrt(abs(a));"
                 "y = relu(b) + gelu_gradient(t, a) - silu_gradient(a, b) * relu_gradient(t, s); sum = row_sum(y); max = row_max(a)";
        f.rows = 64; f.columns = 1001; f.arrays = arrays; f.array_count = 5; f.rate = 0.3f; f.noise = memopt_noise_make(3, 4); f.first = 77;
        CHECK(memopt_fused_run(NULL, &f) == MEMOPT_OK);
        h = hashes_of_floats(hashes_of_floats(1, hashes_y, 64 * 1001), sums, 64);
        hashes_say("fused", type, hashes_of_floats(h, maxima, 64));
    }
}

int main(int argc, char **argv) {
    (void)argv; (void)test_random_section; (void)test_optim; (void)test_adafactor; (void)test_tape; /* too slow as a whole */
    if (argc > 1) {
        RUN(random_known_answers);
        RUN(random_normal_words);
        test_number();
        test_quant();
        RUN(optim_golden);
    }
    RUN(hashes_random);
    RUN(hashes_number);
    RUN(hashes_quant);
    RUN(hashes_optim);
    RUN(hashes_adafactor);
    RUN(hashes_tape);
    RUN(hashes_fused);
    return test_totals();
}
