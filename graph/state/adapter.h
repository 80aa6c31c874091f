/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters among the parameters of a lowered graph. */
#ifndef SLUICE_GRAPH_STATE_ADAPTER_H
#define SLUICE_GRAPH_STATE_ADAPTER_H

#include <sluice/lower.h>

/* True if the parameter is one of the two matrices of an adapter. */
bool sli_is_adapter(const sl_param_info *param);
/* Adds a parameter's adapter, (alpha / rank) B A, to its values. Returns SL_E_UNSUPPORTED unless
 * this process has both matrices completely. */
sl_status sli_adapter_merge(const sl_lowered *lowered, sl_runtime *rt, int param, float *whole);

#endif
