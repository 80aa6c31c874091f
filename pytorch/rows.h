/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a batch as a symbol: how they enter each dim of each tensor of an import.
 *
 * A dim into which rows enter is `outer` x rows x `inner` long: 1 x B x 1 for a batch dim, T x B x
 * 1 for positions and rows merged with the rows inside. The tensors of the graph are followed op by
 * op (rows.c): the shape rule of each op is evaluated for a number of rows that divides no other
 * length. Views are computed from the factors of their dims (row_views.c).
 *
 * A dim with rows inside (outer above 1) is stored with the rows first, so that every device that
 * has some of the rows has consecutive positions. Calls that take elements or whole positions one
 * by one read it so; others read it in PyTorch's order. */
#ifndef SLUICE_PYTORCH_ROWS_H
#define SLUICE_PYTORCH_ROWS_H

#include "pytorch/import.h"

typedef struct sli_dim_rows {
  int64_t outer, inner; /* outer 0: no rows */
  bool first;           /* stored with the rows before `outer` */
} sli_dim_rows;

struct sli_rows {
  sli_dim_rows dim[SL_MAX_DIMS];
  bool lost;                 /* rows enter in a way that is not followed */
  bool reduced, summed;      /* depends on a reduction over rows; on one that is no mean */
  const sli_pt_node *scaled; /* multiplied, element by element, by what may be the rows; or NULL */
};

void sli_rows_begin(sli_import *m);
/* Returns the rows in a tensor's dims. */
const sli_rows *sli_rows_of(sli_import *m, const sl_tensor *t);
void sli_rows_set(sli_import *m, const sl_tensor *t, const sli_rows *rows);
/* Declares dim 0 of a tensor the batch dim. */
void sli_rows_set_first(sli_import *m, const sl_tensor *t);
static inline bool sli_has_rows(const sli_rows *r, int d) { return r->dim[d].outer != 0; }
bool sli_any_rows(const sli_rows *r);

/* ---- views ------------------------------------------------------------------------------------
 */

/* Returns the rows of a reshaped tensor, by the actual lengths. */
sli_rows sli_rows_reshaped(sli_import *m, const sl_type *from, const sli_rows *rows,
                           const sl_type *to);
/* Views a tensor of exported type `from` as exported type `to`. Returns NULL if the rows cannot be
 * followed; *why says why. */
sl_tensor *sli_pt_view(sli_import *m, sl_tensor *x, const sli_pt_type *from, const sli_pt_type *to,
                       const char **why);
/* Returns the tensor with every dim in PyTorch's order. */
sl_tensor *sli_pt_true_order(sli_import *m, sl_tensor *x);

/* ---- calls ------------------------------------------------------------------------------------
 */

/* Prepares for a call: which forms of its arguments it may read. */
void sli_rows_enter(sli_import *m, const sli_pt_node *n, const sli_pt_call *row,
                    const sli_match *match);
/* Checks a call's results, and notes which of them are means. */
void sli_rows_leave(sli_import *m, const sli_pt_node *n);
/* Returns the call to emit: constants of a static program that may be the number of rows, and meet
 * a sum over rows, are refused, kept or scaled, as the user says. */
const sli_pt_node *sli_rows_constants(sli_import *m, const sli_pt_node *n);
void sli_rows_refuse_constant(sli_import *m, const sli_pt_node *n);

#endif
