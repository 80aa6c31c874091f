/* SPDX-License-Identifier: Apache-2.0 */
/* Valid lengths on a GPU: row counts that calls set, which at first only the device knows.
 *
 * A kernel that fills rows writes their number to a word of pinned memory. When the firing is
 * complete, the number is stored beside the slot, and consumers receive it with the slot
 * (actors/run/wire.c). The host thus knows the lengths of a firing's inputs before it launches
 * anything, and launches calls for the valid rows only. If a call needs a number set by another
 * call of the same firing, the launch waits for the stream. */
#ifndef SLUICE_KERNELS_CUDA_LENGTHS_H
#define SLUICE_KERNELS_CUDA_LENGTHS_H

#include <cuda_runtime.h>

#include <sluice/program.h>

/* Valid lengths of a program. */
typedef struct sli_cuda_lengths sli_cuda_lengths;

/* Creates the lengths on the calling thread's device; NULL if the program's slots are always
 * full. */
sl_status sli_cuda_lengths_create(const sl_program *program, sli_cuda_lengths **out);
void sli_cuda_lengths_destroy(sli_cuda_lengths *x);

/* Begins firing number `fence`; at most SL_CUDA_RUN_AHEAD firings of the program are incomplete. */
void sli_cuda_lengths_begin(sli_cuda_lengths *x, const sl_firing *firing, uint64_t fence);
/* Launches a call of the firing that has arguments with valid lengths; `call` is bound except for
 * these. */
void sli_cuda_lengths_launch(sli_cuda_lengths *x, const sl_program_call *c, sl_call *call,
                             void *stream);
/* Stores the lengths of a complete firing beside its slots. Fails with SL_E_INPUT if the rows
 * exceed the capacity, and sets *culprit to the call that set them. */
sl_status sli_cuda_lengths_complete(sli_cuda_lengths *x, uint64_t fence,
                                    const sl_program_call **culprit);

#endif
