/* Every test of memopt_cuda.cu in one program: what `make cuda` builds with nvcc and runs on a card. Without one it says
   SKIP and why. Names of sections as arguments run only these, in that order. On the simulator each test is a program of
   its own: see tests/simulator/. */
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

static const struct {
    const char *name;
    void (*test_fn)(void);
} sections[] = {
    { "memory", test_cuda_memory },
    { "number", test_cuda_number },
    { "quant", test_cuda_quant },
    { "fp8", test_cuda_fp8 },
    { "codec", test_cuda_codec },
    { "optim", test_cuda_optim },
    { "scale", test_cuda_scale },
    { "shard", test_cuda_shard },
    { "softmax", test_cuda_softmax },
    { "norm", test_cuda_norm },
    { "fused", test_cuda_fused },
    { "layer", test_cuda_layer },
    { "gemm", test_cuda_gemm },
    { "muon", test_cuda_muon },
    { "batchnorm", test_cuda_batchnorm },
    { "head", test_cuda_head },
    { "attention", test_cuda_attention },
};
enum { SECTIONS = sizeof sections / sizeof *sections };

static int section_of(const char *name) { /* SECTIONS: there is none */
    int i = 0;

    while (i < SECTIONS && strcmp(sections[i].name, name)) ++i;
    return i;
}

static int names_wrong(int count, char **names) {
    int i, s;

    for (i = 0; i < count && section_of(names[i]) < SECTIONS; ++i) {}
    if (i == count) return 0;
    fprintf(stderr, "test_cuda: no section %s; there are:", names[i]);
    for (s = 0; s < SECTIONS; ++s) fprintf(stderr, " %s", sections[s].name);
    fputc('\n', stderr);
    return 1;
}

int main(int argc, char **argv) {
    int count = 0, i;
    const cudaError_t error = cudaGetDeviceCount(&count);

    if (names_wrong(argc - 1, argv + 1)) return 2;
    if (error != cudaSuccess || !count) {
        printf("SKIP: no CUDA device here (%s); the simulator runs the same tests: make simulator\n",
               error == cudaSuccess ? "none" : cudaGetErrorString(error));
        return 0;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* what is stopped has said how far it came */
    for (i = 0; i < (argc > 1 ? argc - 1 : (int)SECTIONS); ++i)
        sections[argc > 1 ? section_of(argv[i + 1]) : i].test_fn();
    return test_totals();
}
