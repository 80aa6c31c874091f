/* What a thread runs, for whoever must say so when it faults. */
#ifndef SLUICE_DOING_H
#define SLUICE_DOING_H

#include <sluice/program.h>

typedef struct sli_doing {
  const sl_program_call *call; /* NULL: between calls */
  const sl_firing *firing;
} sli_doing;

/* This thread's, or of the thread whose team it helps; NULL: nothing. The record is on the stack
 * of the thread that runs the program, which alone writes it. Signal handlers may read it in
 * programs that are linked to the library: nothing is allocated for it there. Not "initial-exec":
 * programs that run already, such as Python, could not load the library then. */
extern __thread const sli_doing *sli_doing_now;

#endif
