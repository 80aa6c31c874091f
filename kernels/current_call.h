/* SPDX-License-Identifier: Apache-2.0 */
/* Record of the call that a thread runs, for reports about a fault. */
#ifndef SLUICE_KERNELS_CURRENT_CALL_H
#define SLUICE_KERNELS_CURRENT_CALL_H

#include <sluice/program.h>

typedef struct sli_current_call {
  const sl_program_call *call; /* NULL between calls */
  const sl_firing *firing;
} sli_current_call;

/* Current call of this thread, or of the thread whose team it helps; NULL if there is none. The
 * record is on the stack of the thread that runs the program; only that thread writes it. Signal
 * handlers of programs linked to the library may read it: nothing is allocated there. The TLS model
 * is not "initial-exec", because running programs such as Python could then not load the
 * library. */
extern __thread const sli_current_call *sli_thread_call;

#endif
