/* SPDX-License-Identifier: Apache-2.0 */
/* Compiling a graph to a plan: the passes in their order, and questions about the result that the
 * library's own tools ask. Programs have <sluice/lower.h>. */
#ifndef SLUICE_GRAPH_COMPILE_H
#define SLUICE_GRAPH_COMPILE_H

#include <sluice/job.h>
#include <sluice/lower.h>

#include "base/base.h"

struct sli_fingerprints;

/* ---- passes --------------------------------------------------------------------------- */

/* A pass over the graph, as people see it. */
typedef struct sli_pass_info {
  const char *name;
  const char *when;    /* the graphs it runs on, in words */
  const char *summary; /* the change it makes */
} sli_pass_info;

/* Pass number i in the order in which they run; NULL behind the last. */
const sli_pass_info *sli_pass_at(int i);

/* ---- names ----------------------------------------------------------------------------- */

/* Reads "act.b=4", "act.b@2=4", "act.b=4,3,2,1" (from stage 0 on) or "fwd@1=3,-,2" (from stage 1
 * on, but not at 2). Errors name "quota TEXT". The quotas and their name are one allocation, for
 * free(). */
sl_status sli_quota_read(const char *text, int *count, sl_quota **out);
/* Reads "act=disk" or "act@h.31=device"; errors name "home TEXT". */
sl_status sli_home_read(const char *text, sli_arena *arena, sl_home *out);

/* ---- the result ----------------------------------------------------------------------- */

/* Fingerprints of the model before any pass (graph/build/fingerprints.c). */
const struct sli_fingerprints *sli_lowered_fingerprints(const sl_lowered *lowered);

/* The blocks of each stage along the model, "wte h.0 | h.1 head". */
const char *sli_lowered_cut(const sl_lowered *lowered);

/* Number of quotas in force. Fills in number i with its slots now, and the part of the plan that
 * tells it from others of its name: "evaluation", "vocabulary" or NULL. */
int sli_lowered_quota(const sl_lowered *lowered, int i, sl_quota *out, const char **part);

/* Bytes of the weights that all ticks of rollouts in a step read: in the registers of parameters,
 * and in others that the step fills from these (gathered or rounded). */
typedef struct sli_rollout_weights {
  double in_place, copied;
} sli_rollout_weights;
sli_rollout_weights sli_lowered_rollout_weights(const sl_lowered *lowered);

/* Whether the model has ops or a learning rate of its own, known by its source file alone. */
bool sli_lowered_own_code(const sl_lowered *lowered);

/* The library that computes products on CPUs, "oneDNN 2.6.0"; NULL on other devices. */
const char *sli_lowered_library(const sl_lowered *lowered);

/* The first items of sl_lowered_fingerprint(): those that a resumed run must share, too. */
int sli_lowered_results(const sl_lowered *lowered, const sl_fingerprint_item **out);

/* Modelled seconds of a call, as the mean over its pieces; 0 where devices are not described. */
double sli_lowered_call_seconds(const sl_lowered *lowered, const sl_program *program, int call);

/* The device for each place that suits the links of `h` best for the traffic of this plan, in the
 * form of --assign. Found by annealing, the same for the same seed; the caller's to free(). NULL
 * where nothing better is found or the plan's own hardware is not described. */
char *sli_lowered_assign(const sl_lowered *lowered, const sl_hardware *h, uint64_t seed);

#endif
