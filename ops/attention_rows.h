/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of sl_op made from the table of attention (ops/attention.def). */
#ifndef SLUICE_OPS_ATTENTION_ROWS_H
#define SLUICE_OPS_ATTENTION_ROWS_H

#include "ops/attention_table.h"

/* Cells of the table: CELL(x) is x, or nothing. */
#define YES(...) __VA_ARGS__
#define NO(reason) NONE
#define NONE(...)

/* Column `numbers` of the table, and the masks of sl_op_narrow that it gives. */
enum { FULL, ROUNDED, NARROW };
#define NARROWED(numbers, in_, out_)                                                \
  &(const sl_op_narrow) {                                                           \
    .in = (numbers) == NARROW ? (in_) : 0, .out = (numbers) == NARROW ? (out_) : 0, \
    .rounds = (numbers) != FULL,                                                    \
  }

/* The first n bits, and the first n inputs in a gradient rule. */
#define FIRST_BITS(n) ((1u << (n)) - 1)
#define FIRST_1 SL_IN(0)
#define FIRST_3 FIRST_1, SL_IN(1), SL_IN(2)
#define FIRST_4 FIRST_3, SL_IN(3)
#define FIRST_5 FIRST_4, SL_IN(4)

/* Functions of a row, which pass the variant on to those of its form. */
#define VARIANT(op) (&sli_attention_variants[SLI_VARIANT_##op])
#define INFER(name, form, v)                                                               \
  static sl_status name(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) { \
    return form(v, attrs, nin, in, out);                                                   \
  }
#define COST(name, form, v)                                                               \
  static void name(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out, \
                   double *flops, double *bytes) {                                        \
    form(v, attrs, nin, in, out, flops, bytes);                                           \
  }
#define SHARES(name, form, v)                                                             \
  static int name(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) { \
    (void)attrs, (void)in;                                                                \
    return form(v, nin, out);                                                             \
  }
#define OUTPUTS(name, form, v)                      \
  static int name(const sl_attrs *attrs, int nin) { \
    (void)attrs;                                    \
    return form(v, nin);                            \
  }

#endif
