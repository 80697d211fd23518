/* cublaslt_mock.h - what a test can ask of the cuBLASLt that is none: see cublaslt_mock.cpp. */
#ifndef SIMULATOR_CUBLASLT_MOCK_H
#define SIMULATOR_CUBLASLT_MOCK_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
void cublaslt_mock_reset(void); /* no faults, counts of calls from 0; capability 90 */
/* Faults to come. `k` counts from now on, 1 = the next one; 0 = none. */
void cublaslt_mock_fail(size_t k, int status);   /* Create, AlgoGetHeuristic and Matmul: the k-th of them returns that */
void cublaslt_mock_no_algorithm(size_t k);       /* the k-th heuristic finds nothing; SIZE_MAX: none does */
void cublaslt_mock_refuse(unsigned epilogues);   /* no algorithm for an epilogue with any of these bits */
void cublaslt_mock_capability(int capability);   /* of the device, as 90 for 9.0 */
void cublaslt_mock_quiet(int on);                /* find broken rules, but do not print them */

typedef struct cublaslt_mock_counts {
    size_t calls, heuristics, products; /* of those that can fail; those that did something */
    size_t handles;                     /* that are open */
    size_t findings;                    /* rules that the caller broke */
} cublaslt_mock_counts;
cublaslt_mock_counts cublaslt_mock_counted(void);
typedef struct cublaslt_mock_product { /* the last one that was handed to cublasLtMatmul() */
    uint64_t rows, columns, depth;     /* of D, column by column */
    int32_t  batch, epilogue, compute, left_type, result_type;
    uint32_t reduction;                /* the mask that its heuristic was asked with */
    size_t   workspace;                /* bytes that its algorithm took */
} cublaslt_mock_product;
cublaslt_mock_product cublaslt_mock_last(void);
const char *cublaslt_mock_finding(void); /* the last one; "" for none */
#ifdef __cplusplus
}
#endif
#endif
