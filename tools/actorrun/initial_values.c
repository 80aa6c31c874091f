/* SPDX-License-Identifier: Apache-2.0 */
/* Initial values of a run. */
#include "graph/state/state.h"
#include "tools/actorrun/actorrun.h"
#include "tools/actorrun/objective.h"

sl_status job_initial_values(const settings *s, const sl_lowered *lowered, sl_runtime *rt) {
  bool random = !settings_text(s, "init") || settings_text(s, "init-new") || s->training.nlora;
  sl_status status =
      random ? sl_params_init(lowered, rt, (uint64_t)sl_arg_int(s->run, "seed")) : SL_OK;
  if (!status) status = pretrained_load(s, settings_text(s, "init-new"), lowered, rt);
  if (!status) status = objective_load(s, lowered, rt);
  return status ? status : sl_params_copy_versions(lowered, rt);
}

sl_status job_resumed_values(const job *j) {
  sl_status status = sl_checkpoints_load(j->checkpoints, j->lowered, j->rt);
  if (status || !j->settings->training.storage) return status;
  return sli_weights_load_stored(settings_text(j->settings, "init"), j->lowered, j->rt);
}
