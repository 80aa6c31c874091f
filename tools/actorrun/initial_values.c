/* SPDX-License-Identifier: Apache-2.0 */
/* Initial values of a run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/state/state.h"
#include "tools/actorrun/actorrun.h"
#include "tools/actorrun/objective.h"

/* Returns the expected weight of all experts together in a token's output. A random router gives
 * each chosen expert a probability of 1/N. A shared expert counts fully, or half if it has a
 * gate. */
static double expected_share(const settings *s) {
  const sl_args *a = s->model_args;
  double experts = (double)sl_arg_int(a, "experts"), k = (double)sl_arg_int(a, "top-k");
  double shared = sl_arg_int(a, "shared-ffn") ? 1 : 0;
  if (strcmp(s->model->name, "hybrid")) shared /= 2;
  return shared + (sl_arg_int(a, "norm-topk") ? 1 : k / experts);
}

/* Returns the factor for each of an expert's three weights, chosen so that all experts together
 * initially produce the output of the dense FFN. An expert's output grows with about the third
 * power of the factor (He et al., arXiv 2410.07524). */
static sl_status upcycling(const settings *s, float *out) {
  *out = 0;
  if (!sl_arg_flag(s->run, "upcycle")) return SL_OK;
  bool routes = sl_options_find(s->model->options, "experts") &&
                sl_options_find(s->model->options, "top-k") &&
                sl_options_find(s->model->options, "shared-ffn") &&
                sl_options_find(s->model->options, "norm-topk");
  if (!routes || !sl_arg_int(s->model_args, "experts"))
    return sl_fail(SL_E_USAGE, "--upcycle: %s has no experts", s->model->name);
  *out = (float)cbrt(1 / expected_share(s));
  return SL_OK;
}

/* Returns the patterns of parameters that weights may lack; the caller frees them. */
static char *lacking(const settings *s) {
  const char *fresh = settings_text(s, "init-new");
  if (!objective_routes_bits(s)) return fresh ? sli_strdup(fresh) : NULL;
  return sli_format("%s%s*.experts.*.bits.weight", fresh ? fresh : "", fresh ? "," : "");
}

sl_status job_initial_values(const settings *s, const sl_lowered *lowered, sl_runtime *rt) {
  char *fresh = lacking(s);
  sli_weights_lacks lacks = {.fresh = fresh};
  bool random = !settings_text(s, "init") || lacks.fresh || s->training.nlora;
  sl_status status = upcycling(s, &lacks.upcycled);
  if (!status && random) status = sl_params_init(lowered, rt, (uint64_t)sl_arg_int(s->run, "seed"));
  const pretrained p = settings_pretrained(s);
  if (!status) status = pretrained_load(&p, &lacks, lowered, rt);
  free(fresh);
  if (!status) status = objective_load(s, lowered, rt);
  return status ? status : sl_params_copy_versions(lowered, rt);
}

sl_status job_resumed_values(const job *j) {
  sl_status status = sl_checkpoints_load(j->checkpoints, j->lowered, j->rt);
  if (status || !j->settings->training.storage) return status;
  return sli_weights_load_stored(settings_text(j->settings, "init"), j->lowered, j->rt);
}
