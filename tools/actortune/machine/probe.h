/* SPDX-License-Identifier: Apache-2.0 */
/* Small models whose calls the runtime times, on devices of this machine. */
#ifndef SLUICE_TOOLS_ACTORTUNE_MACHINE_PROBE_H
#define SLUICE_TOOLS_ACTORTUNE_MACHINE_PROBE_H

#include <sluice/hardware.h>

#include "graph/cost/cost.h"
#include "tools/cli/cli.h"
#include "tools/planner/planner.h"

/* Duration of an op's call: the mean over all calls of that shape, each in its fastest step. Also
 * the mean in the quietest step, in which all calls together took least, and in the median step. */
typedef struct sample {
  const char *op;
  bool has[SLI_TRAITS];
  double at[SL_CURVE_AXES]; /* the call's coordinate on each possible axis of a curve */
  double seconds, quiet, median;
} sample;

typedef struct samples {
  size_t count, capacity;
  sample *items;
} samples;

/* A model of alternating LLaMA and GPT-2 blocks: a map to `inner` dimensions and back, and
 * attention if it has heads. */
typedef struct probe {
  int64_t rows, context, width, inner, vocab; /* sizes of a device's microbatch */
  int heads, layers, microbatches;
  int stages;        /* stages of the plan; remaining devices share each stage's data */
  const char *grain; /* NULL: a pass is one actor */
} probe;

/* Durations of a probe's whole step, and of its calls, over all devices. */
typedef struct probe_times {
  double step_seconds, passes_seconds; /* medians */
  double call_seconds, pass_seconds;   /* all calls; calls of passes */
  int64_t firings;
} probe_times;

/* Runs a probe on `devices` devices. `to` collects samples of three to `steps` steps, beyond three
 * only until `seconds` are over. Faster samples replace those already there. `times` receives the
 * durations of `steps` consecutive steps. Either may be NULL. */
sl_status probe_run(const settings *s, const probe *p, int devices, int steps, double seconds,
                    samples *to, probe_times *times);
/* Returns the approximate floating-point operations of a step on one device. */
double probe_flops(const probe *p);

#endif
