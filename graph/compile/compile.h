/* SPDX-License-Identifier: Apache-2.0 */
/* Compiling a graph to a plan: the list of passes, and queries about the result for the library's
 * tools. Programs use <sluice/lower.h>. */
#ifndef SLUICE_GRAPH_COMPILE_COMPILE_H
#define SLUICE_GRAPH_COMPILE_COMPILE_H

#include <sluice/job.h>
#include <sluice/lower.h>

#include "base/base.h"

struct sli_fingerprints;
struct sli_prices;

/* ---- passes --------------------------------------------------------------------------- */

/* Description of a pass over the graph. */
typedef struct sli_pass_info {
  const char *name;
  const char *when;    /* description of the graphs it runs on */
  const char *summary; /* description of the change it makes */
} sli_pass_info;

/* Returns pass i in execution order, or NULL after the last. */
const sli_pass_info *sli_pass_at(int i);

/* ---- names ----------------------------------------------------------------------------- */

/* Reads "act.b=4", "act.b@2=4", "act.b=4,3,2,1" (from stage 0 on) or "fwd@1=3,-,2" (from stage 1
 * on, but not at 2). Errors name "quota TEXT". The quotas and their name are one allocation, which
 * the caller frees with free(). */
sl_status sli_quota_read(const char *text, int *count, sl_quota **out);
/* Reads "act=disk" or "act@h.31=device"; errors name "home TEXT". */
sl_status sli_home_read(const char *text, sli_arena *arena, sl_home *out);

/* ---- candidates of a search ----------------------------------------------------------- */

/* Lowers the graph of a result again, with other homes of activations and of the optimizer's state,
 * on which no pass depends. `from` must outlive *out, which has no hash, and can be predicted but
 * not run. */
sl_status sli_lower_again(const sl_lowered *from, const sl_home_options *homes, sl_lowered **out);

/* ---- the result ----------------------------------------------------------------------- */

/* Fingerprints of the model before any pass (graph/build/fingerprints.c). */
const struct sli_fingerprints *sli_lowered_fingerprints(const sl_lowered *lowered);

/* Returns the blocks of each stage along the model, "wte h.0 | h.1 head". */
const char *sli_lowered_cut(const sl_lowered *lowered);

/* Returns the prices of blocks, if the plan has one stage and was made with simulation.any_order;
 * else NULL. */
const struct sli_prices *sli_lowered_prices(const sl_lowered *lowered);

/* Returns the number of quotas in force. Sets *out to quota i with its current slots, and *part to
 * the part of the plan that distinguishes it from quotas of the same name: "evaluation",
 * "vocabulary" or NULL. */
int sli_lowered_quota(const sl_lowered *lowered, int i, sl_quota *out, const char **part);

/* Bytes of the weights that all rollout ticks of a step read: in parameter registers, and in
 * registers that the step fills from parameters (gathered or rounded). */
typedef struct sli_rollout_weights {
  double in_place, copied;
} sli_rollout_weights;
sli_rollout_weights sli_lowered_rollout_weights(const sl_lowered *lowered);

/* Returns true if the model has custom ops or a custom learning rate, which only its source file
 * identifies. */
bool sli_lowered_own_code(const sl_lowered *lowered);

/* Returns the library that computes products on CPUs, "oneDNN 2.6.0"; NULL on other devices. */
const char *sli_lowered_library(const sl_lowered *lowered);

/* Returns the first items of sl_lowered_fingerprint(), which a resumed run must share too. */
int sli_lowered_results(const sl_lowered *lowered, const sl_fingerprint_item **out);

/* Returns the modelled seconds of a call, averaged over its pieces; 0 if devices have no hardware
 * model. */
double sli_lowered_call_seconds(const sl_lowered *lowered, const sl_program *program, int call);

/* Returns the assignment of devices to places that best fits the links of `h` to this plan's
 * traffic, in the format of --assign. The search is simulated annealing and depends only on the
 * seed. The caller frees the result with free(). NULL if nothing better is found or the plan has no
 * hardware model. */
char *sli_lowered_assign(const sl_lowered *lowered, const sl_hardware *h, uint64_t seed);

#endif
