/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines with an injected fault, whose cause of delay is known, so the output of
 * actortrace can be checked. */
#ifndef SLUICE_TESTS_SUPPORT_FAULT_INJECTION_H
#define SLUICE_TESTS_SUPPORT_FAULT_INJECTION_H

#include <sluice/sluice.h>

enum { STAGES = 4, MICROBATCHES = 8, STEPS = 4 };

/* A pipeline of four devices; durations in milliseconds. */
typedef struct pipeline {
  double forward[STAGES], backward[STAGES], link[STAGES], load;
  int act[STAGES], fwd; /* slots */
} pipeline;

/* A pipeline without a fault: the last stages wait only for the first microbatches. */
extern const pipeline injection_even;

/* Runs a pipeline and leaves its trace for injection_ask(). Returns the length of a step. The
 * trace is removed when the program ends. */
double injection_run(const pipeline *p, sl_clock clock);
/* Returns the output of `actortrace COMMAND` for the last trace; the caller frees it. */
char *injection_ask(const char *command);
/* Finds the line after a heading that begins with `title`; returns `out`. */
const char *injection_line(const char *text, const char *title, char out[256]);
/* Ends the test unless idle time by reason and busy time add up to the span, for every step and
 * device, to the nanosecond. */
void injection_check_sums(double *credit_ns);
/* Returns whether one more slot in the starved stage saves what actortrace promises, within a
 * tenth. */
bool injection_keeps_promise(sl_clock clock, pipeline p, int stage);

#endif
