/* Every test of memopt_cuda.cu in one program: what `make cuda` builds with nvcc and runs on a card. Without one it says
   SKIP and why. On the simulator each test is a program of its own: see tests/simulator/. */
#define TEST_COMBINED
#include "test_cuda_memory.cu"
#include "test_cuda_number.cu"
#include "test_cuda_quant.cu"
#include "test_cuda_fp8.cu"
#include "test_cuda_codec.cu"
#include "test_cuda_optim.cu"
#include "test_cuda_scale.cu"
#include "test_cuda_shard.cu"
#include "test_cuda_softmax.cu"
#include "test_cuda_norm.cu"
#include "test_cuda_fused.cu"
#include "test_cuda_layer.cu"
#include "test_cuda_gemm.cu"
#include "test_cuda_muon.cu"
#include "test_cuda_batchnorm.cu"
#include "test_cuda_head.cu"
#include "test_cuda_attention.cu"

int main(void) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || !count) {
        printf("SKIP: no CUDA device here (%s); the simulator runs the same tests: make simulator\n",
               error == cudaSuccess ? "none" : cudaGetErrorString(error));
        return 0;
    }
    test_cuda_memory();
    test_cuda_number();
    test_cuda_quant();
    test_cuda_fp8();
    test_cuda_codec();
    test_cuda_optim();
    test_cuda_scale();
    test_cuda_shard();
    test_cuda_softmax();
    test_cuda_norm();
    test_cuda_fused();
    test_cuda_layer();
    test_cuda_gemm();
    test_cuda_muon();
    test_cuda_batchnorm();
    test_cuda_head();
    test_cuda_attention();
    return test_totals();
}
