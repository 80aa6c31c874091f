/* SPDX-License-Identifier: Apache-2.0 */
/* Calls for the shipped ops: thin wrappers of sl_apply(). */
#include "graph/build/build.h"

static sl_tensor *ops_apply(sl_here at, sl_graph *g, const sl_op *op, const sl_attrs *attrs,
                            int nin, sl_tensor *const *in, uint32_t absent) {
  int nout = SLI_MAX(op->nout, 1);
  sl_tensor *out[nout];
  out[0] = NULL;
  if (op->nout < 1) {
    sli_graph_fail_at(g, at, SL_E_USAGE, "op %s has %s: apply it with sl_apply()", op->name,
                      op->nout ? "a variable number of outputs" : "no output");
    return NULL;
  }
  sl_apply_at(at, g, op, attrs, nin, in, absent, out);
  return out[0];
}

sl_tensor *sl_rotary_at(sl_here at, sl_graph *g, sl_tensor *x, int heads, float theta,
                        const sl_rope *rope) {
  sl_attrs attrs = {.rotary.heads = heads, .rotary.theta = theta};
  if (rope && (rope->kind != SL_ROPE_PLAIN || (rope->part > 0 && rope->part < 1))) {
    sl_rope *copy = sl_graph_alloc(g, sizeof *copy);
    *copy = *rope;
    attrs.user = copy;
  }
  return ops_apply(at, g, &sl_op_rotary, &attrs, 1, &x, 0);
}

sl_tensor *sl_layernorm_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *gain, sl_tensor *bias,
                           float eps) {
  const sl_attrs attrs = {.norm.eps = eps};
  return sl_op3_at(at, g, &sl_op_layernorm, &attrs, x, gain, bias);
}

sl_tensor *sl_spikes_at(sl_here at, sl_graph *g, sl_tensor *x, float k, sl_tensor **counts) {
  sl_tensor *out[2];
  sl_apply_at(at, g, &sl_op_spikes, &(sl_attrs){.spikes.k = k}, 1, &x, 0, out);
  if (counts) *counts = out[1];
  return out[0];
}

sl_tensor *sl_rmsnorm_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *gain, float eps) {
  const sl_attrs attrs = {.norm.eps = eps};
  return sl_op2_at(at, g, &sl_op_rmsnorm, &attrs, x, gain);
}

sl_tensor *sl_group_norm_at(sl_here at, sl_graph *g, sl_tensor *x, int groups, sl_tensor *gain,
                            sl_tensor *bias, float eps) {
  const sl_attrs attrs = {.norm.groups = groups, .norm.eps = eps};
  return sl_op3_at(at, g, &sl_op_group_norm, &attrs, x, gain, bias);
}

sl_tensor *sl_attention_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *v,
                           int heads, int kv_heads) {
  const sl_attrs attrs = {.attention.heads = heads, .attention.kv_heads = kv_heads};
  return sl_op3_at(at, g, &sl_op_attention, &attrs, q, k, v);
}

sl_tensor *sl_attention_packed_at(sl_here at, sl_graph *g, sl_tensor *qkv, int heads,
                                  int kv_heads) {
  const sl_attrs attrs = {.attention.heads = heads, .attention.kv_heads = kv_heads};
  return sl_op1_at(at, g, &sl_op_attention_packed, &attrs, qkv);
}

sl_tensor *sl_attend_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *v,
                        const sl_attention_attrs *attrs) {
  const sl_attrs with = sli_attention_with(attrs);
  return sl_op3_at(at, g, &sl_op_attention, &with, q, k, v);
}

sl_tensor *sl_linear_attention_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *v,
                                  sl_tensor *gates, const sl_attention_attrs *attrs) {
  const sl_attrs with = sli_attention_with(attrs);
  return ops_apply(at, g, &sl_op_linear_attention, &with, 4, (sl_tensor *[]){q, k, v, gates}, 0);
}

sl_tensor *sl_attend_blocks_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *v,
                               const sl_attention_attrs *attrs, sl_tensor **recall) {
  const sl_attrs with = sli_attention_with(attrs);
  sl_tensor *chosen[2] = {0};
  sl_apply_at(at, g, &sl_op_choose_blocks, &with, 2, (sl_tensor *[]){q, k}, 0, chosen);
  if (recall) *recall = chosen[1];
  return ops_apply(at, g, &sl_op_attention_blocks, &with, 4, (sl_tensor *[]){q, k, v, chosen[0]},
                   0);
}

sl_tensor *sl_causal_conv_within_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *w,
                                    sl_tensor *bias, sl_tensor *positions) {
  enum { BIAS = 1 << 2, NEAR = 1 << 3 }; /* inputs that may be absent */
  return ops_apply(at, g, &sl_op_causal_conv, NULL,
                   positions ? 5
                   : bias    ? 3
                             : 2,
                   (sl_tensor *[]){x, w, bias, NULL, positions}, BIAS | NEAR);
}

sl_tensor *sl_causal_conv_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *w, sl_tensor *bias) {
  return sl_causal_conv_within_at(at, g, x, w, bias, NULL);
}

sl_tensor *sl_delta_rule_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *v,
                            sl_tensor *gates, sl_tensor *parts, const sl_attention_attrs *attrs) {
  const sl_attrs with = sli_attention_with(attrs);
  return ops_apply(at, g, &sl_op_delta_rule, &with, 5, (sl_tensor *[]){q, k, v, gates, parts}, 0);
}

sl_tensor *sl_attend_within_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *v,
                               sl_tensor *ids, const sl_attention_attrs *attrs) {
  const sl_attrs with = sli_attention_with(attrs);
  return ops_apply(at, g, &sl_op_attention, &with, ids ? 4 : 3, (sl_tensor *[]){q, k, v, ids}, 0);
}

sl_tensor *sl_attend_packed_at(sl_here at, sl_graph *g, sl_tensor *qkv,
                               const sl_attention_attrs *attrs) {
  const sl_attrs with = sli_attention_with(attrs);
  return sl_op1_at(at, g, &sl_op_attention_packed, &with, qkv);
}

sl_tensor *sl_attend_packed_within_at(sl_here at, sl_graph *g, sl_tensor *qkv, sl_tensor *ids,
                                      const sl_attention_attrs *attrs) {
  const sl_attrs with = sli_attention_with(attrs);
  return ops_apply(at, g, &sl_op_attention_packed, &with, ids ? 2 : 1, (sl_tensor *[]){qkv, ids},
                   0);
}

sl_tensor *sl_documents_at(sl_here at, sl_graph *g, sl_tensor *tokens, int32_t end,
                           sl_tensor **positions) {
  sl_tensor *out[2] = {0};
  sl_apply_at(at, g, &sl_op_documents, &(sl_attrs){.tokens.end = end}, 1, &tokens, 0, out);
  if (positions) *positions = out[1];
  return out[0];
}

sl_tensor *sl_op1_at(sl_here at, sl_graph *g, const sl_op *op, const sl_attrs *attrs,
                     sl_tensor *a) {
  return ops_apply(at, g, op, attrs, 1, (sl_tensor *[]){a}, 0);
}

sl_tensor *sl_op2_at(sl_here at, sl_graph *g, const sl_op *op, const sl_attrs *attrs, sl_tensor *a,
                     sl_tensor *b) {
  return ops_apply(at, g, op, attrs, 2, (sl_tensor *[]){a, b}, 0);
}

sl_tensor *sl_op3_at(sl_here at, sl_graph *g, const sl_op *op, const sl_attrs *attrs, sl_tensor *a,
                     sl_tensor *b, sl_tensor *c) {
  return ops_apply(at, g, op, attrs, 3, (sl_tensor *[]){a, b, c}, 0);
}

sl_tensor *sl_clamp_at(sl_here at, sl_graph *g, sl_tensor *x, float low, float high) {
  return sl_op1_at(at, g, &sl_op_clamp, &(sl_attrs){.function.c = low, .function.u = high}, x);
}

sl_tensor *sl_softcap_at(sl_here at, sl_graph *g, sl_tensor *x, float cap) {
  return sl_op1_at(at, g, &sl_op_softcap, &(sl_attrs){.function.c = cap}, x);
}

sl_tensor *sl_scale_at(sl_here at, sl_graph *g, sl_tensor *x, float by) {
  return sl_op1_at(at, g, &sl_op_scale, &(sl_attrs){.function.c = by}, x);
}

sl_tensor *sl_add_constant_at(sl_here at, sl_graph *g, sl_tensor *x, float constant) {
  return sl_op1_at(at, g, &sl_op_add_constant, &(sl_attrs){.function.c = constant}, x);
}
