/* Every section's tests in one program: what the matrix compiles once per configuration. */
#define TEST_COMBINED
#include "test_config.c"
#include "test_status.c"
#include "test_host.c"
#include "test_base.c"
#include "test_carve.c"
#include "test_ledger.c"
#include "test_source.c"
#include "test_arena.c"
#include "test_heap.c"
#include "test_plan.c"
#include "test_schedule.c"
#include "test_graph.c"
#include "test_simd.c"
#include "test_random.c"
#include "test_number.c"
#include "test_checksum.c"
#include "test_quant.c"
#include "test_state_codec.c"
#include "test_optim.c"
#include "test_adafactor.c"
#include "test_parts_cut.c"
#include "test_scale.c"
#include "test_tape.c"
#include "test_host_visible.c"
#include "test_gemm.c"
#include "test_row_kernels.c"
#include "test_operator.c"
#include "test_softmax.c"
#include "test_head.c"
#include "test_attention.c"
#include "test_norm.c"
#include "test_layer.c"
#include "test_batchnorm.c"
#include "test_fused.c"
#include "test_muon.c"
#include "test_fp8.c"
#include "test_comm.c"
#include "test_shard.c"
#include "test_pieces.c"
#include "test_pipeline.c"
#include "test_onebit.c"
#include "test_feed.c"
#include "test_tensors.c"
#include "test_save.c"
#include "test_advise.c"
#include "test_store.c"
#include "test_doctor.c"
#include "test_json.c"
#include "test_tokeniser.c"
#include "test_nan.c"
#include "test_parts_nets.c"
#include "test_parts.c"
#include "test_ring.c"
#include "test_tensor.c"
#include "test_finetune_data.c"

#ifndef TEST_WIDE /* 1: only sections that have wide code, where a processor is slow because it is simulated; -1: none of the operators */
#  define TEST_WIDE 0
#endif
static void test_narrow(void) {
    test_config();
    test_status();
    test_host_section(); /* test_host() makes the host that fails on demand */
    test_base();
    test_carve();
    test_ledger();
    test_source();
    test_arena();
    test_heap();
    test_plan();
    test_schedule();
    test_graph();
    test_comm();
    test_pieces();
    test_pipeline();
    test_feed();
    test_tensors();
    test_save();
    test_store();
    test_advise();
    test_doctor();
    test_json();
    test_tokeniser();
    test_finetune_data();
    test_fp8();
#ifndef __FAST_MATH__
    test_shard();
#else
    (void)test_shard;
#endif
}

static void test_operators(void) {
    test_gemm();
    test_row_kernels();
    test_operator();
    test_softmax();
    test_head();
    test_attention();
    test_norm();
    test_layer();
    test_batchnorm();
    test_fused();
    test_muon();
    test_nan();
    test_parts_nets();
    test_parts();
    test_ring();
    test_tensor();
}

int main(void) {
    if (TEST_WIDE <= 0) test_narrow();
    test_checksum();
#if !defined(__FAST_MATH__) && !defined(__MINGW32__) /* equal bits are not promised there: mingw-w64's fma rounds twice */
    test_simd();
    test_random_section(); /* test_random() makes the random numbers of tests */
    test_number();
    test_quant();
    test_state_codec();
    test_optim();
    test_adafactor();
    test_parts_cut();
    test_scale();
    if (TEST_WIDE <= 0) test_tape();
    test_host_visible();
    test_onebit();
    if (TEST_WIDE >= 0) test_operators();
#else
    (void)test_simd;
    (void)test_random_section; (void)test_number; (void)test_quant; (void)test_state_codec; (void)test_optim;
    (void)test_adafactor; (void)test_parts_cut;
    (void)test_scale; (void)test_tape; (void)test_onebit; (void)test_operators;
#endif
    return test_totals();
}
