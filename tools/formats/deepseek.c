/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/formats/deepseek.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading --------------------------------------------------------------------------------- */

static double number_at(const cJSON *from, const char *key, double missing) {
  const cJSON *item = config_at(from, key);
  return cJSON_IsNumber(item) ? item->valuedouble : missing;
}

/* Returns the attention factor of a stretched rope: 0.1 mscale ln(factor) + 1. */
static double mscale_of(double factor, double mscale) {
  return factor > 1 ? 0.1 * mscale * log(factor) + 1 : 1;
}

static sl_status set_number(const config *c, const char *key, const char *option, double value) {
  char *text = sli_format("%.9g", value);
  sl_status status = config_set(c, key, option, text);
  free(text);
  return status;
}

/* Sets the query scalar: a key's numbers, divided by mscale^4 if angles are stretched. */
static sl_status set_scalar(const config *c, const cJSON *rope) {
  const sl_args *args = c->target->args;
  double all = number_at(rope, "mscale_all_dim", 0);
  double m = all != 0 ? mscale_of(number_at(rope, "factor", 1), all) : 1;
  double numbers = (double)(sl_arg_int(args, "nope-dim") + sl_arg_int(args, "rope-dim"));
  return m == 1 ? SL_OK : set_number(c, "mscale_all_dim", "query-scalar", numbers / pow(m, 4));
}

/* Sets the width of the shared experts, which are one expert here. */
static sl_status set_shared(const config *c) {
  double shared = number_at(c->root, "n_shared_experts", 1);
  double inner = (double)sl_arg_int(c->target->args, "expert-ffn");
  if (shared < 1)
    return sl_fail(SL_E_INPUT, "%s: n_shared_experts is %g; must be at least 1", c->path, shared);
  return set_number(c, "n_shared_experts", "shared-ffn", shared * inner);
}

sl_status deepseek_derive(const config *c, const cJSON *rope) {
  const cJSON *pairs = config_at(c->root, "rope_interleave");
  sl_status status =
      config_set(c, "rope_interleave", "rope-halves", cJSON_IsFalse(pairs) ? "1" : "0");
  if (!status) status = set_shared(c);
  return status ? status : set_scalar(c, rope);
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool is_stretched(const sl_args *args) {
  return !strncmp(sl_arg_text(args, "rope"), "yarn", 4);
}

bool deepseek_fits(const sl_args *args) {
  int64_t inner = sl_arg_int(args, "expert-ffn"), shared = sl_arg_int(args, "shared-ffn");
  bool scaled = sl_arg_float(args, "query-scalar") > 0;
  return shared > 0 && inner > 0 && shared % inner == 0 && (!scaled || is_stretched(args));
}

static void put(cJSON *root, const char *key, cJSON *value) {
  cJSON_DeleteItemFromObjectCaseSensitive(root, key);
  cJSON_AddItemToObject(root, key, value);
}

/* Returns dim 0 of a parameter, or 0 if there is no such parameter. */
static int64_t rows_of(const sl_lowered *lowered, const char *name) {
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params);
  for (int i = 0; i < n; i++)
    if (!strcmp(params[i].name, name)) return params[i].type.dim[0];
  return 0;
}

/* Returns the mscale_all_dim that yields the model's query scalar; the inverse of set_scalar(). */
static double mscale_all(const sl_args *args) {
  sl_rope rope = {0};
  double scalar = sl_arg_float(args, "query-scalar");
  double numbers = (double)(sl_arg_int(args, "nope-dim") + sl_arg_int(args, "rope-dim"));
  sl_rope_parse(sl_arg_text(args, "rope"), &rope);
  return scalar > 0 && rope.factor > 1
             ? (pow(numbers / scalar, 0.25) - 1) / (0.1 * log(rope.factor))
             : 0;
}

void deepseek_describe(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  const sl_args *args = p->args;
  int64_t rank = sl_arg_int(args, "query-rank"), ffn = sl_arg_int(args, "ffn");
  int64_t dense = rows_of(lowered, "model.layers.0.mlp.gate_proj.weight");
  double all = mscale_all(args);
  cJSON *rope = cJSON_GetObjectItemCaseSensitive(root, "rope_parameters");
  if (all != 0) cJSON_AddItemToObject(rope, "mscale_all_dim", config_real(all));
  put(root, "q_lora_rank", rank ? cJSON_CreateNumber((double)rank) : cJSON_CreateNull());
  put(root, "intermediate_size", cJSON_CreateNumber((double)(dense ? dense : ffn)));
  put(root, "n_shared_experts",
      cJSON_CreateNumber(
          (double)(sl_arg_int(args, "shared-ffn") / sl_arg_int(args, "expert-ffn"))));
  put(root, "num_key_value_heads", cJSON_CreateNumber((double)sl_arg_int(args, "heads")));
  put(root, "rope_interleave", cJSON_CreateBool(!sl_arg_flag(args, "rope-halves")));
  put(root, "norm_topk_prob", cJSON_CreateBool(sl_arg_int(args, "norm-topk") != 0));
  put(root, "num_nextn_predict_layers", cJSON_CreateNumber(0));
}
