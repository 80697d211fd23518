/* nccl_mock.h - NCCL and what its adapter needs of the CUDA runtime, as ranks that are threads of one process. Compiled
   against the toolkit's own nccl.h and cuda_runtime.h. Device n is rank n: each thread calls cudaSetDevice(its rank).

   Streams    run nothing until somebody asks, and then only what the answer needs: here and on the other ranks.
   NCCL       calls are taken in at the end of the outermost group, with mock_delay() only when ncclCommGetAsyncError()
              has said ncclInProgress a few times, and the first pieces when every rank has come to its own. Pieces
              between two ranks move when both have come; a call of all ranks when all have. ncclCommSplit() is in
              progress, on its parent, until all ranks have asked, and its communicator is NULL until then.
   Findings   what real ones would answer by a hang or wrong bytes: see mock_findings(). */
#ifndef NCCL_MOCK_H
#define NCCL_MOCK_H
#include <cuda_runtime.h>
#include <nccl.h>

enum { MOCK_RANKS = 8 };
typedef enum mock_fault {
    MOCK_CALL,     /* the n-th call of NCCL returns `result`, and has done nothing */
    MOCK_ASYNC,    /* from the n-th call of NCCL on ncclCommGetAsyncError() says `result`; bytes move all the same */
    MOCK_PROGRESS, /* the n-th call of NCCL stays in progress for ever, and moves nothing */
    MOCK_CUDA,     /* the n-th call of the runtime fails; not counted: queries, cudaMalloc(), cudaLaunchHostFunc() */
    MOCK_QUERY,    /* the n-th query of an event or stream does, and all after it */
    MOCK_ABORT,    /* ncclCommAbort() hangs, until mock_release() */
    MOCK_DESTROY,  /* ncclCommDestroy() likewise */
    MOCK_FAULTS
} mock_fault;

void mock_begin(void);                                                   /* forget all faults, findings, counts */
void mock_fail(mock_fault what, int rank, unsigned long n, ncclResult_t result); /* n counts from 1, and from now on */
void mock_delay(int polls);                                              /* 0: calls are through when they return */
void mock_remote_errors(int on); /* 1: who is in a communicator that another rank has aborted learns it; else nobody */
void mock_nap(void);             /* 0.1 ms */
void mock_release(void);         /* what hangs goes on */
void mock_hold(cudaStream_t stream); /* what is given to the stream from now on is not begun until mock_release() */
unsigned long mock_calls(int rank, int of_cuda); /* that can fail, since mock_begin() */
unsigned long mock_aborts(int rank); /* calls of ncclCommAbort() */
int  mock_findings(void); /* each is printed: a call before the last is through or after the end, memory not the device's,
                             memory freed while the device works, a stream that changes, another rank's device, ... */
int  mock_mismatches(void);  /* calls that differ between ranks: they never end; no findings, a test may want them */
int  mock_live(void);        /* objects and blocks of memory */
#endif
