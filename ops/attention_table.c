/* SPDX-License-Identifier: Apache-2.0 */
/* The table of attention's variants and forms (ops/attention.def), for lookup. */
#include "ops/attention_table.h"

#define YES(op_) \
  { .op = &op_ }
#define NO(reason) {.refusal = reason} NONE
#define NONE(...)

const sli_attention_cell sli_attention_cells[SLI_VARIANTS][SLI_ATTENTION_FORMS] = {
#define ATTENTION(op, layout, inputs, ids, gradients, heads, numbers, pairs, check, pieces, parts, \
                  ring, served)                                                                    \
  {[SLI_ATTENTION_WHOLE] = YES(sl_op_##op),                                                        \
   [SLI_ATTENTION_PIECE] = pieces(sl_op_##op##_piece),                                             \
   [SLI_ATTENTION_PIECE_AGAIN] = pieces(sl_op_##op##_piece_again),                                 \
   [SLI_ATTENTION_PARTS] = parts(sl_op_##op##_parts),                                              \
   [SLI_ATTENTION_SWEEP] = parts(sl_op_attention_sweep),                                           \
   [SLI_ATTENTION_SHARE] = parts(sl_op_attention_share),                                           \
   [SLI_ATTENTION_SHARE_AGAIN] = parts(sl_op_attention_share_again),                               \
   [SLI_ATTENTION_STEP] = ring(sl_op_attention_step),                                              \
   [SLI_ATTENTION_SERVED] = served(sl_op_##op##_served)},
#include "ops/attention.def"
#undef ATTENTION
};

const char *sli_attention_refusal(const sl_op *op, sli_attention_form form) {
  for (int v = 0; v < SLI_VARIANTS; v++)
    if (sli_attention_cells[v][SLI_ATTENTION_WHOLE].op == op)
      return sli_attention_cells[v][form].refusal;
  return NULL;
}
