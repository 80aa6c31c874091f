/* Adapters among the parameters of a lowered graph. */
#ifndef SLUICE_GRAPH_STATE_ADAPTER_H
#define SLUICE_GRAPH_STATE_ADAPTER_H

#include <sluice/lower.h>

/* Is it one of the two matrices of an adapter? */
bool sli_is_adapter(const sl_param_info *param);
/* Adds (alpha / rank) B A of a parameter's adapter to its values. SL_E_UNSUPPORTED if not all of both
 * matrices lie in this process. */
sl_status sli_adapter_merge(const sl_lowered *lowered, sl_runtime *rt, int param, float *whole);

#endif
