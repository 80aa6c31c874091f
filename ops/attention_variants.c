/* SPDX-License-Identifier: Apache-2.0 */
/* Variants of attention (ops/attention.def), and rules that all their forms share. */
#include "ops/attention_shape.h"
#include "ops/attention_table.h"

const sli_attention_variant sli_attention_variants[SLI_VARIANTS] = {
#define ATTENTION(op, layout_, inputs_, ids_, gradients_, heads_, numbers, pairs_, ...) \
  {.layout = layout_,                                                                   \
   .inputs = inputs_,                                                                   \
   .ids = ids_,                                                                         \
   .gradients = gradients_,                                                             \
   .heads = heads_,                                                                     \
   .infer = sli_##op##_infer,                                                           \
   .pairs = pairs_},
#include "ops/attention.def"
#undef ATTENTION
};

sl_status sli_variant_infer(const sli_attention_variant *v, const sl_attrs *attrs, int nin,
                            const sl_type *in, sl_type *out) {
  SLI_TRY(v->infer(attrs, in, out));
  const sl_type *rows = &in[v->layout == SL_HEADS_JOINED]; /* keys, of which there may be more */
  return nin > v->inputs ? sli_want_ids(&in[v->inputs], rows) : SL_OK;
}

int sli_variant_signatures(const sli_attention_variant *v, int nin, sl_signature *out) {
  out[0] = (sl_signature){.out = {sli_split(0), sli_split(0)}};
  out[1] =
      (sl_signature){.out = {sli_split(2), sli_split(v->heads[v->inputs] - '0')}, .heads = true};
  for (int i = 0; i < nin; i++) out[0].in[i] = sli_split(0);
  for (int i = 0; i < v->inputs; i++)
    if (v->heads[i] != '-') out[1].in[i] = sli_split(v->heads[i] - '0');
  return 2;
}

double sli_masked_pairs(const sl_attrs *attrs, const sl_type *in) {
  return sli_mask_pairs(attrs, in[0].dim[1]);
}
