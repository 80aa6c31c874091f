/* What a thread runs, for whoever must say so when it faults. */
#ifndef SLUICE_DOING_H
#define SLUICE_DOING_H

#include <sluice/program.h>

typedef struct sli_doing {
  const sl_program_call *call; /* NULL: between calls */
  const sl_firing *firing;
} sli_doing;

/* This thread's, or of the thread whose team it helps; NULL: nothing. The record is on the stack
 * of the thread that runs the program, which alone writes it. */
extern __thread const sli_doing *sli_doing_now __attribute__((tls_model("initial-exec")));

#endif
