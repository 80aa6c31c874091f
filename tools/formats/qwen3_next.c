/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/formats/qwen3_next.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_softmax(const cJSON *type) {
  return cJSON_IsString(type) && !strcmp(type->valuestring, "full_attention");
}

static bool is_known(const cJSON *type) {
  return is_softmax(type) ||
         (cJSON_IsString(type) && !strcmp(type->valuestring, "linear_attention"));
}

/* Returns N if every N-th layer has softmax attention and the others have linear attention. Returns
 * 0 if no layer has softmax attention, -1 for any other pattern. */
static int interval_of(const cJSON *types, int layers) {
  const cJSON *type;
  int first = 0, at = 0, every;
  if (cJSON_GetArraySize(types) != layers) return -1;
  cJSON_ArrayForEach(type, types) {
    if (!is_known(type)) return -1;
    at++;
    if (!first && is_softmax(type)) first = at;
  }
  every = first;
  at = 0;
  cJSON_ArrayForEach(type, types) {
    at++;
    if (is_softmax(type) != (every && at % every == 0)) return -1;
  }
  return every;
}

static sl_status set_interval(const config *c) {
  const cJSON *types = config_at(c->root, "layer_types"),
              *interval = config_at(c->root, "full_attention_interval");
  int every = cJSON_IsNumber(interval) ? interval->valueint : 4;
  if (types) every = interval_of(types, (int)sl_arg_int(c->target->args, "layers"));
  if (every < 0 || (interval && (!cJSON_IsNumber(interval) || interval->valueint < 1)))
    return sl_fail(
        SL_E_INPUT,
        "%s: %s: every N-th layer must be full_attention, and all others linear_attention", c->path,
        types ? "layer_types" : "full_attention_interval");
  char *value = sli_format("%d", every);
  sl_status status =
      config_set(c, types ? "layer_types" : "full_attention_interval", "softmax-every", value);
  free(value);
  return status;
}

static sl_status set_dense(const config *c) {
  const cJSON *layers = config_at(c->root, "mlp_only_layers"), *layer;
  char *text = sli_strdup("");
  bool good = !layers || cJSON_IsArray(layers);
  cJSON_ArrayForEach(layer, layers) {
    good &= cJSON_IsNumber(layer) && layer->valueint >= 0 &&
            layer->valuedouble == (double)layer->valueint;
    char *more = sli_format("%s%s%d", text, *text ? "," : "", layer->valueint);
    free(text);
    text = more;
  }
  sl_status status =
      good ? config_set(c, "mlp_only_layers", "dense-blocks", *text ? text : "none")
           : sl_fail(SL_E_INPUT, "%s: mlp_only_layers is not a list of layers", c->path);
  free(text);
  return status;
}

sl_status qwen3_next_derive(const config *c) {
  sl_status status = set_interval(c);
  return status ? status : set_dense(c);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put(cJSON *root, const char *key, cJSON *value) {
  cJSON_DeleteItemFromObjectCaseSensitive(root, key);
  cJSON_AddItemToObject(root, key, value);
}

/* Returns the length of a dim of a parameter in the first block that has it, or 0 if none has
 * it. */
static int64_t length_of(const sl_lowered *lowered, int layers, int dim, const char *part) {
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params);
  int64_t length = 0;
  for (int layer = 0; layer < layers && !length; layer++) {
    char *name = sli_format("model.layers.%d.%s", layer, part);
    for (int i = 0; i < n; i++)
      if (!strcmp(params[i].name, name)) length = params[i].type.dim[dim];
    free(name);
  }
  return length;
}

/* Replaces the model's default by the actual length. */
static void put_length(cJSON *root, const char *key, int64_t length) {
  if (length > 0) put(root, key, cJSON_CreateNumber((double)length));
}

static void put_heads(cJSON *root, const sl_args *args, const sl_lowered *lowered) {
  int layers = (int)sl_arg_int(args, "layers"), heads = (int)sl_arg_int(args, "heads");
  int64_t dim = length_of(lowered, layers, 0, "self_attn.q_norm.weight");
  int64_t kv = length_of(lowered, layers, 0, "self_attn.k_proj.weight");
  int64_t values = length_of(lowered, layers, 0, "linear_attn.A_log");
  int64_t channels = length_of(lowered, layers, 0, "linear_attn.conv1d.weight");
  int64_t keys = channels - values * sl_arg_int(args, "value-dim");
  if (!dim) dim = sl_arg_int(args, "head-dim");
  if (!dim) dim = sl_arg_int(args, "width") / heads;
  if (!kv) kv = dim * (sl_arg_int(args, "kv-heads") ? sl_arg_int(args, "kv-heads") : heads);
  put_length(root, "head_dim", dim);
  put_length(root, "num_key_value_heads", kv / dim);
  put_length(root, "linear_num_value_heads", values);
  put_length(root, "linear_num_key_heads", keys / (2 * sl_arg_int(args, "key-dim")));
}

static void put_widths(cJSON *root, const sl_args *args, const sl_lowered *lowered) {
  int layers = (int)sl_arg_int(args, "layers");
  put_length(root, "intermediate_size", length_of(lowered, layers, 0, "mlp.gate_proj.weight"));
  put_length(root, "moe_intermediate_size",
             length_of(lowered, layers, 1, "mlp.experts.*.gate_proj.weight"));
}

static void put_layers(cJSON *root, const sl_args *args) {
  int64_t every = sl_arg_int(args, "softmax-every"), layers = sl_arg_int(args, "layers");
  const char *dense = sl_arg_text(args, "dense-blocks");
  cJSON *types = cJSON_CreateArray(), *list = cJSON_CreateArray();
  for (int64_t i = 1; i <= layers; i++)
    cJSON_AddItemToArray(
        types, cJSON_CreateString(every && i % every == 0 ? "full_attention" : "linear_attention"));
  for (char *end; strcmp(dense, "none") && *dense; dense = end + (*end == ','))
    cJSON_AddItemToArray(list, cJSON_CreateNumber((double)strtol(dense, &end, 10)));
  put(root, "layer_types", types);
  put(root, "mlp_only_layers", list);
}

static void put_rope(cJSON *root, const sl_args *args) {
  sl_rope rope = {0};
  sl_rope_parse(sl_arg_text(args, "rope"), &rope);
  put(root, "partial_rotary_factor", config_real(rope.part > 0 ? rope.part : 1));
  put(root, "rope_theta", config_real(sl_arg_float(args, "theta")));
}

void qwen3_next_describe(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  const sl_args *args = p->args;
  int64_t positions = sl_arg_int(args, "positions");
  put_heads(root, args, lowered);
  put_widths(root, args, lowered);
  put_layers(root, args);
  put_rope(root, args);
  put(root, "max_position_embeddings",
      cJSON_CreateNumber((double)(positions ? positions : sl_arg_int(args, "context"))));
  put(root, "norm_topk_prob", cJSON_CreateBool(sl_arg_int(args, "norm-topk") != 0));
  put(root, "hidden_act", cJSON_CreateString("silu"));
  put(root, "attention_bias", cJSON_CreateBool(!strcmp(sl_arg_text(args, "bias"), "attention")));
}
