/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/state/adapter.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

bool sli_is_adapter(const sl_param_info *param) {
  return param->adapter && strstr(param->name, ".lora_");
}

/* Reads all values of an adapter's matrix; the caller frees them. */
static sl_status read_matrix(const sl_lowered *lowered, sl_runtime *rt, const sl_adapter *adapter,
                             const char *letter, const sl_param_info **info, float **out) {
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params), i = 0;
  while (i < n && !(params[i].adapter && !strcmp(params[i].adapter->module, adapter->module) &&
                    strstr(params[i].name, letter)))
    i++;
  SLI_CHECK(i < n, "adapter of %s has no %s", adapter->module, letter);
  bool all = false;
  *info = &params[i];
  SLI_TRY(SLI_ALLOCATE(*out, (size_t)sl_type_elements(&params[i].type), params[i].name));
  sl_status status = sl_param_get(lowered, rt, i, *out, &all);
  if (!status && !all)
    status = sl_fail(
        SL_E_UNSUPPORTED,
        "cannot merge the adapter of %s: it is spread over several processes; save the adapter "
        "(--save-adapter) and merge it in one process",
        adapter->module);
  return status;
}

/* Adds the product; sums over the rank run in order and in double precision. */
static void add_product(const sl_adapter *adapter, int64_t in, int64_t out, const float *a,
                        const float *b, float *whole) {
  double scale = (double)adapter->alpha / adapter->rank;
  for (int64_t o = 0; o < out; o++)
    for (int64_t i = 0; i < in; i++) {
      double sum = 0;
      for (int64_t r = 0; r < adapter->rank; r++)
        sum += (double)b[o * adapter->rank + r] * (double)a[r * in + i];
      float *to = &whole[adapter->transposed ? i * out + o : o * in + i];
      *to = (float)((double)*to + scale * sum);
    }
}

sl_status sli_adapter_merge(const sl_lowered *lowered, sl_runtime *rt, int param, float *whole) {
  const sl_param_info *params, *of_a, *of_b;
  sl_lowered_params(lowered, &params);
  const sl_adapter *adapter = params[param].adapter;
  float *a = NULL, *b = NULL;
  sl_status status = read_matrix(lowered, rt, adapter, ".lora_A.", &of_a, &a);
  if (!status) status = read_matrix(lowered, rt, adapter, ".lora_B.", &of_b, &b);
  if (!status) add_product(adapter, of_a->type.dim[1], of_b->type.dim[0], a, b, whole);
  free(a);
  free(b);
  return status;
}
