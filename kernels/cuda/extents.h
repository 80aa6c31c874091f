/* Extents on a GPU: how many rows calls fill, as far as only the device knows.
 *
 * A call that fills rows leaves their number in a word of pinned memory, which its kernels write. When
 * the firing is complete the number goes beside the slot, and whoever reads that hears of it then
 * (actors/run/wire.c), so the host knows what a firing reads before it launches anything: calls are
 * launched for as many rows as there are. Only where a call of the same firing needs a number that
 * another one leaves, the launch waits for the stream. */
#ifndef SLUICE_CUDA_EXTENTS_H
#define SLUICE_CUDA_EXTENTS_H

#include <cuda_runtime.h>

#include <sluice/program.h>

/* Of a program. */
typedef struct sli_cuda_extents sli_cuda_extents;

/* NULL where its slots are always full. On the calling thread's device. */
sl_status sli_cuda_extents_create(const sl_program *program, sli_cuda_extents **out);
void sli_cuda_extents_destroy(sli_cuda_extents *x);

/* Firing number `fence` begins; at most SL_CUDA_RUN_AHEAD of the program are not complete. */
void sli_cuda_extents_begin(sli_cuda_extents *x, const sl_firing *firing, uint64_t fence);
/* Launches a call of it that has arguments with rows; `call` is bound but for these. */
void sli_cuda_extents_launch(sli_cuda_extents *x, const sl_program_call *c, sl_call *call, void *stream);
/* It is complete: what it has filled stands beside its slots. SL_E_INPUT: more rows than there is
 * room for; *culprit: the call that would have filled them. */
sl_status sli_cuda_extents_complete(sli_cuda_extents *x, uint64_t fence, const sl_program_call **culprit);

#endif
