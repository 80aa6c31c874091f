/* SPDX-License-Identifier: Apache-2.0 */
/* Names of an architecture's tensors, in GGUF and in Hugging Face's format. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/gguf/gguf_inner.h"

typedef struct name {
  const char *ours, *theirs; /* without ".weight" or ".bias"; names of a layer follow "blk.N." */
} name;

typedef struct architecture {
  const char *type;
  const name *layer, *norms; /* names of a layer's weights, and of its norms */
  bool neighbours;           /* q and k rows of a rotary pair are adjacent */
  bool plus_one;             /* norm gains are stored with the 1 that the model adds to them */
} architecture;

static const name whole[] = {{"token_embd", "model.embed_tokens"},
                             {"output_norm", "model.norm"},
                             {"output", "lm_head"},
                             {0}};

static const name llama_layer[] = {
    {"attn_q", "self_attn.q_proj"}, {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"}, {"attn_output", "self_attn.o_proj"},
    {"ffn_gate", "mlp.gate_proj"},  {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},  {0}};

static const name phi3_layer[] = {{"attn_qkv", "self_attn.qkv_proj"},
                                  {"attn_output", "self_attn.o_proj"},
                                  {"ffn_up", "mlp.gate_up_proj"},
                                  {"ffn_down", "mlp.down_proj"},
                                  {0}};

static const name llama_norms[] = {
    {"attn_norm", "input_layernorm"}, {"ffn_norm", "post_attention_layernorm"}, {0}};

static const name qwen3_norms[] = {{"attn_norm", "input_layernorm"},
                                   {"attn_q_norm", "self_attn.q_norm"},
                                   {"attn_k_norm", "self_attn.k_norm"},
                                   {"ffn_norm", "post_attention_layernorm"},
                                   {0}};

static const name olmo2_norms[] = {{"attn_q_norm", "self_attn.q_norm"},
                                   {"attn_k_norm", "self_attn.k_norm"},
                                   {"post_attention_norm", "post_attention_layernorm"},
                                   {"post_ffw_norm", "post_feedforward_layernorm"},
                                   {0}};

static const name gemma3_norms[] = {{"attn_norm", "input_layernorm"},
                                    {"attn_q_norm", "self_attn.q_norm"},
                                    {"attn_k_norm", "self_attn.k_norm"},
                                    {"post_attention_norm", "post_attention_layernorm"},
                                    {"ffn_norm", "pre_feedforward_layernorm"},
                                    {"post_ffw_norm", "post_feedforward_layernorm"},
                                    {0}};

static const architecture architectures[] = {
    {.type = "gemma3", .layer = llama_layer, .norms = gemma3_norms, .plus_one = true},
    {.type = "llama", .layer = llama_layer, .norms = llama_norms, .neighbours = true},
    {.type = "olmo2", .layer = llama_layer, .norms = olmo2_norms},
    {.type = "phi3", .layer = phi3_layer, .norms = llama_norms},
    {.type = "qwen2", .layer = llama_layer, .norms = llama_norms},
    {.type = "qwen3", .layer = llama_layer, .norms = qwen3_norms}};

static const architecture *find_architecture(const cJSON *metadata) {
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(metadata, "general.architecture");
  for (size_t i = 0; i < SLI_COUNT(architectures); i++)
    if (cJSON_IsString(type) && !strcmp(architectures[i].type, type->valuestring))
      return &architectures[i];
  return NULL;
}

/* Looks up a name of `bytes` bytes. Returns NULL if it is unknown. */
static const char *look_up(const name *names, const char *ours, size_t bytes) {
  for (const name *n = names; n->ours; n++)
    if (strlen(n->ours) == bytes && !strncmp(n->ours, ours, bytes)) return n->theirs;
  return NULL;
}

char *sli_gguf_name(const cJSON *metadata, const char *name) {
  const architecture *a = find_architecture(metadata);
  const char *at = name, *dot = strrchr(name, '.');
  if (!a || !dot || (strcmp(dot, ".weight") && strcmp(dot, ".bias"))) return sli_strdup(name);
  size_t digits = strncmp(at, "blk.", 4) ? 0 : strspn(at + 4, "0123456789");
  bool layer = digits && at[4 + digits] == '.' && at + 4 + digits < dot;
  if (layer) at += 4 + digits + 1;
  size_t bytes = (size_t)(dot - at);
  const char *theirs = look_up(layer ? a->layer : whole, at, bytes);
  if (!theirs && layer) theirs = look_up(a->norms, at, bytes);
  if (!theirs) return sli_strdup(name);
  return layer ? sli_format("model.layers.%.*s.%s%s", (int)digits, name + 4, theirs, dot)
               : sli_format("%s%s", theirs, dot);
}

/* Looks up a Hugging Face name of `bytes` bytes. Returns NULL if it is unknown. */
static const char *look_back(const name *names, const char *theirs, size_t bytes) {
  for (const name *n = names; n->ours; n++)
    if (strlen(n->theirs) == bytes && !strncmp(n->theirs, theirs, bytes)) return n->ours;
  return NULL;
}

char *sli_gguf_own_name(const cJSON *metadata, const char *name) {
  static const char layers[] = "model.layers.";
  const architecture *a = find_architecture(metadata);
  const char *at = name, *dot = strrchr(name, '.');
  if (!a || !dot) return sli_strdup(name);
  size_t begin = strlen(layers),
         digits = strncmp(at, layers, begin) ? 0 : strspn(at + begin, "0123456789");
  if (digits) at += begin + digits + 1;
  size_t bytes = (size_t)(dot - at);
  const char *ours = look_back(digits ? a->layer : whole, at, bytes);
  if (!ours && digits) ours = look_back(a->norms, at, bytes);
  if (!ours) return sli_strdup(name);
  return digits ? sli_format("blk.%.*s.%s%s", (int)digits, name + begin, ours, dot)
                : sli_format("%s%s", ours, dot);
}

static int64_t count_heads(const cJSON *metadata, const architecture *a, const char *which) {
  char *key = sli_format("%s.attention.%s", a->type, which);
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(metadata, key);
  free(key);
  return cJSON_IsNumber(item) && item->valuedouble >= 1 && item->valuedouble < 1 << 24
             ? (int64_t)item->valuedouble
             : 0;
}

bool sli_gguf_plus_one(const cJSON *metadata, const char *name) {
  static const char end[] = "norm.weight";
  const architecture *a = find_architecture(metadata);
  size_t n = strlen(name);
  return a && a->plus_one && n > strlen(end) && !strcmp(name + n - strlen(end), end);
}

int64_t sli_gguf_heads(const cJSON *metadata, const char *name) {
  const architecture *a = find_architecture(metadata);
  if (!a || !a->neighbours) return 0;
  bool q = strstr(name, ".self_attn.q_proj."), k = strstr(name, ".self_attn.k_proj.");
  if (!q && !k) return 0;
  int64_t heads = count_heads(metadata, a, "head_count"),
          kv = count_heads(metadata, a, "head_count_kv");
  return k && kv ? kv : heads;
}
