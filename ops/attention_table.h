/* SPDX-License-Identifier: Apache-2.0 */
/* Table of attention's variants and forms (ops/attention.def), and the rules that all rows of the
 * table share. */
#ifndef SLUICE_OPS_ATTENTION_TABLE_H
#define SLUICE_OPS_ATTENTION_TABLE_H

#include <sluice/attention.h>

#include "ops/facets.h"
#include "ops/ops.h"

/* A row of the table. */
typedef struct sli_attention_variant {
  sl_heads layout;
  int inputs, ids, gradients;
  const char *heads;
  sl_status (*infer)(const sl_attrs *attrs, const sl_type *in, sl_type *out);
  double (*pairs)(const sl_attrs *attrs, const sl_type *in);
} sli_attention_variant;

typedef enum sli_attention_form {
  SLI_ATTENTION_WHOLE,
  SLI_ATTENTION_PIECE,
  SLI_ATTENTION_PIECE_AGAIN,
  SLI_ATTENTION_PARTS,
  SLI_ATTENTION_SWEEP,
  SLI_ATTENTION_SHARE,
  SLI_ATTENTION_SHARE_AGAIN,
  SLI_ATTENTION_STEP,
  SLI_ATTENTION_SERVED,
  SLI_ATTENTION_FORMS
} sli_attention_form;

/* A variant in a form, or the reason why it has none. */
typedef struct sli_attention_cell {
  const sl_op *op;
  const char *refusal;
} sli_attention_cell;

#ifdef __cplusplus
extern "C" {
#endif

enum {
#define ATTENTION(op, ...) SLI_VARIANT_##op,
#include "ops/attention.def"
#undef ATTENTION
  SLI_VARIANTS
};
extern const sli_attention_variant sli_attention_variants[SLI_VARIANTS];
extern const sli_attention_cell sli_attention_cells[SLI_VARIANTS][SLI_ATTENTION_FORMS];

/* Returns the reason why an op has no such form. NULL: it has, or it is no attention in its first
 * form. */
const char *sli_attention_refusal(const sl_op *op, sli_attention_form form);

/* Shapes and pairs of a variant, the pairs per query and twice (two operations each). */
#define ATTENTION(op, ...) \
  sl_status sli_##op##_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out);
#include "ops/attention.def"
#undef ATTENTION
double sli_masked_pairs(const sl_attrs *attrs, const sl_type *in);
double sli_blocks_pairs(const sl_attrs *attrs, const sl_type *in);
double sli_chosen_pairs(const sl_attrs *attrs, const sl_type *in);
sl_status sli_blocks_check(const sl_call *call);
sl_status sli_chosen_check(const sl_call *call);

/* Rules of a forward call on whole sequences. */
sl_status sli_variant_infer(const sli_attention_variant *v, const sl_attrs *attrs, int nin,
                            const sl_type *in, sl_type *out);
/* Splits by sequences or by heads. */
int sli_variant_signatures(const sli_attention_variant *v, int nin, sl_signature *out);

#ifdef __cplusplus
}
#endif

#endif
