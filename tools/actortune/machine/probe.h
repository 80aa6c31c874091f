/* Small models whose calls are timed as they run: by the runtime, on devices of this machine. */
#ifndef SLUICE_TOOLS_ACTORTUNE_PROBE_H
#define SLUICE_TOOLS_ACTORTUNE_PROBE_H

#include <sluice/hardware.h>

#include "graph/cost/cost.h"
#include "tools/common/common.h"

/* What a call of a row took: the mean over all calls of that shape, of each its fastest step's. Beside it that of the
 * quietest step, in which all calls together took least, and of the median step. */
typedef struct sample {
  const char *op;
  bool has[SLI_TRAITS];
  double at[SL_CURVE_AXES]; /* where it stands on each axis a curve can have */
  double seconds, quiet, median;
} sample;

typedef struct samples {
  size_t count, capacity;
  sample *of;
} samples;

/* Blocks as LLaMA and GPT-2 have them, by turns: a map to `inner` numbers and back, and attention if there
 * are heads. */
typedef struct probe {
  int64_t rows, context, width, inner, vocab; /* of a microbatch of each device */
  int heads, layers, microbatches;
  int stages;               /* of the plan; the devices that are left share each stage's data */
  const char *grain;        /* NULL: a pass is one actor */
} probe;

/* What a step of a probe took as a whole, and calls in it on all devices together. */
typedef struct probe_times {
  double step_seconds, passes_seconds; /* medians */
  double call_seconds, pass_seconds;   /* of all calls, and of those of passes */
  int64_t firings;
} probe_times;

/* Runs it on so many devices. `to` takes samples of at most `steps` steps, of three at least, and of more only
 * until `seconds` are over; those that it has are replaced where these are faster. `times` are those of so many
 * steps on end. Either may be NULL. */
sl_status probe_run(const settings *s, const probe *p, int devices, int steps, double seconds,
                    samples *to, probe_times *times);
/* Floating-point operations of a step of it on one device, about. */
double probe_flops(const probe *p);

#endif
