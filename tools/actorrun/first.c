/* The values that a run begins with. */
#include "graph/state/weights.h"
#include "tools/actorrun/actorrun.h"
#include "tools/common/config.h"

sl_status job_first_values(const settings *s, const sl_lowered *lowered, sl_runtime *rt) {
  const char *init = settings_text(s, "init"), *adapter = settings_text(s, "adapter");
  sl_status status = SL_OK;
  if (!init || s->training.nlora) status = sl_params_init(lowered, rt, (uint64_t)sl_arg_int(s->run, "seed"));
  if (!status && init) status = sli_weights_load(init, lowered, rt, config_is_shipped(s->model));
  if (!status && adapter) status = sl_adapter_load(adapter, lowered, rt);
  return status ? status : sl_params_spread(lowered, rt);
}
