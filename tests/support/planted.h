/* Pipelines with a planted culprit, run and asked about: what keeps them is known, so is what
 * actortrace has to say of their traces. */
#ifndef SLUICE_TESTS_PLANTED_H
#define SLUICE_TESTS_PLANTED_H

#include <sluice/sluice.h>

enum { STAGES = 4, MICROBATCHES = 8, STEPS = 4 };

/* A pipeline of four devices; milliseconds. */
typedef struct pipeline {
  double forward[STAGES], backward[STAGES], link[STAGES], load;
  int act[STAGES], fwd; /* slots */
} pipeline;

/* No culprit: the last stages wait for the first microbatches, and nobody for anything else. */
extern const pipeline planted_even;

/* Runs it and leaves its trace for planted_ask(); returns the length of a step. The trace is
 * removed when the program ends. */
double planted_run(const pipeline *p, sl_clock clock);
/* All that `actortrace COMMAND` says of the last trace; the caller's to free. */
char *planted_ask(const char *command);
/* The line after a heading that begins with `title`; returns `out`. */
const char *planted_line(const char *text, const char *title, char out[256]);
/* Ends the test unless the reasons for idle time and the busy time of every step and device add up
 * to its span, to the nanosecond. */
void planted_check_sums(double *credit_ns);
/* Is what one more slot of the starved stage saves within a tenth of what actortrace
 * promises? */
bool planted_keeps_promise(sl_clock clock, pipeline p, int stage);

#endif
