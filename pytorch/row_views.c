/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of tensors with rows: reshapes, permutations, and views by the factors of dims. */
#include <string.h>

#include "pytorch/row_factors.h"

sl_tensor *sli_pt_narrow(sli_import *m, sl_tensor *t) {
  return t && t->type.dtype == SL_F64 ? sl_op1_at(m->at, m->g, &sl_op_to_f32, NULL, t) : t;
}

/* ---- shapes ------------------------------------------------------------------------------------
 */

static bool same_dims(const sl_type *a, const sl_type *b) {
  bool same = a->ndim == b->ndim;
  for (int d = 0; same && d < a->ndim; d++) same = a->dim[d] == b->dim[d];
  return same;
}

static bool same_rows(const sli_rows *a, const sli_rows *b) {
  bool same = true;
  for (int d = 0; d < SL_MAX_DIMS; d++)
    same &= a->dim[d].outer == b->dim[d].outer && a->dim[d].first == b->dim[d].first &&
            (!a->dim[d].outer || a->dim[d].inner == b->dim[d].inner);
  return same;
}

sl_tensor *sli_pt_reshape_rows(sli_import *m, sl_tensor *x, const sl_type *to,
                               const sli_rows *rows) {
  if (!x || m->g->status) return NULL;
  const sli_rows *values = sli_rows_of(m, x);
  sli_rows with = *rows;
  with.reduced = values->reduced, with.summed = values->summed, with.scaled = values->scaled;
  if (to->ndim) x = sli_pt_narrow(m, x);
  if (x && same_dims(&x->type, to) && same_rows(sli_rows_of(m, x), &with)) return x;
  while (x && x->producer && x->producer->op == &sl_op_reshape) {
    x = x->producer->in[0];
    if (same_dims(&x->type, to) && same_rows(sli_rows_of(m, x), &with)) return x;
  }
  x = x ? sl_reshape_at(m->at, m->g, x, *to) : NULL;
  sli_rows_set(m, x, &with);
  return x;
}

sl_tensor *sli_pt_reshape(sli_import *m, sl_tensor *x, const sl_type *to) {
  if (!x || m->g->status) return NULL;
  sli_rows rows = sli_rows_reshaped(m, &x->type, sli_rows_of(m, x), to);
  return sli_pt_reshape_rows(m, x, to, &rows);
}

sl_tensor *sli_pt_permute(sli_import *m, sl_tensor *x, int ndim, const int *order) {
  if (!x || m->g->status) return NULL;
  int all[SL_MAX_DIMS];
  memcpy(all, order, (size_t)ndim * sizeof *all);
  if (x->producer && x->producer->op == &sl_op_permute) {
    for (int d = 0; d < ndim; d++) all[d] = (int)x->producer->attrs.shape.dims[order[d]];
    x = x->producer->in[0];
  }
  sl_type dims = {.dtype = SL_I32, .ndim = ndim};
  bool same = true, ones = true;
  int64_t last = -1;
  for (int d = 0; d < ndim; d++) {
    dims.dim[d] = all[d];
    same &= all[d] == d;
    if (x->type.dim[all[d]] == 1) continue;
    ones &= all[d] > last;
    last = all[d];
  }
  if (same) return x;
  if (!ones) return sl_permute_at(m->at, m->g, x, dims);
  sl_type to = {.dtype = x->type.dtype, .ndim = ndim}; /* only dims of length 1 are moved */
  const sli_rows *from = sli_rows_of(m, x);
  sli_rows rows = *from;
  for (int d = 0; d < ndim; d++) to.dim[d] = x->type.dim[all[d]], rows.dim[d] = from->dim[all[d]];
  return sli_pt_reshape_rows(m, x, &to, &rows);
}

sl_tensor *sli_pt_add_dim(sli_import *m, sl_tensor *t, int dim) {
  if (!t || t->type.ndim == SL_MAX_DIMS) return NULL;
  sl_type to = t->type;
  sli_rows rows = *sli_rows_of(m, t);
  size_t after = (size_t)(to.ndim - dim);
  memmove(to.dim + dim + 1, to.dim + dim, after * sizeof *to.dim);
  memmove(rows.dim + dim + 1, rows.dim + dim, after * sizeof *rows.dim);
  to.dim[dim] = 1, rows.dim[dim] = (sli_dim_rows){0};
  to.ndim++;
  return sli_pt_reshape_rows(m, t, &to, &rows);
}

sl_tensor *sli_pt_drop_dims(sli_import *m, sl_tensor *t, uint32_t dims) {
  if (!t || m->g->status) return NULL;
  sl_type to = {.dtype = t->type.dtype};
  const sli_rows *from = sli_rows_of(m, t);
  sli_rows rows = *from;
  memset(rows.dim, 0, sizeof rows.dim);
  for (int d = 0; d < t->type.ndim; d++)
    if (!(dims >> d & 1)) rows.dim[to.ndim] = from->dim[d], to.dim[to.ndim++] = t->type.dim[d];
  return sli_pt_reshape_rows(m, t, &to, &rows);
}

/* ---- views -------------------------------------------------------------------------------------
 */

static void sort_factors(int *order, int count, const int *key) {
  for (int i = 0; i < count; i++) order[i] = i;
  for (int i = 1; i < count; i++)
    for (int k = i; k > 0 && key[order[k]] < key[order[k - 1]]; k--) {
      int t = order[k];
      order[k] = order[k - 1], order[k - 1] = t;
    }
}

/* Moves factors from their order in memory to that of the new dims: splits all dims, permutes, and
 * merges. */
static sl_tensor *rearrange(sli_import *m, sl_tensor *x, sli_factors *f, const sl_type *to,
                            const sli_rows *rows) {
  int memory[SLI_MOST_FACTORS], wanted[SLI_MOST_FACTORS], key[SLI_MOST_FACTORS],
      at[SLI_MOST_FACTORS], order[SL_MAX_DIMS];
  if (f->count > SL_MAX_DIMS) return NULL;
  for (int i = 0; i < f->count; i++) key[i] = f->of[i].place;
  sort_factors(memory, f->count, key);
  for (int i = 0; i < f->count; i++)
    key[i] = 2 * f->of[i].to + !(f->of[i].rows && rows->dim[f->of[i].to].first);
  sort_factors(wanted, f->count, key);
  sl_type apart = {.dtype = x->type.dtype, .ndim = f->count};
  sli_rows in = {0};
  for (int i = 0; i < f->count; i++) {
    apart.dim[i] = f->of[memory[i]].actual;
    if (f->of[memory[i]].rows) in.dim[i] = (sli_dim_rows){1, 1, false};
    at[memory[i]] = i;
  }
  for (int i = 0; i < f->count; i++) order[i] = at[wanted[i]];
  x = sli_pt_reshape_rows(m, x, &apart, &in);
  x = sli_pt_permute(m, x, f->count, order);
  return x ? sli_pt_reshape_rows(m, x, to, rows) : NULL;
}

static bool any_first(const sli_rows *rows) {
  bool any = false;
  for (int d = 0; d < SL_MAX_DIMS; d++) any |= rows->dim[d].first;
  return any;
}

/* Keeps what is known of a tensor's values in a view of it. */
static void same_values(sli_rows *to, const sli_rows *from) {
  to->reduced = from->reduced, to->summed = from->summed, to->scaled = from->scaled;
}

sl_tensor *sli_pt_true_order(sli_import *m, sl_tensor *x) {
  sli_rows rows = x ? *sli_rows_of(m, x) : (sli_rows){0};
  sli_factors f;
  if (!x || !any_first(&rows) || !sli_factors_find(m, &x->type, &rows, NULL, &f)) return x;
  if (!sli_factors_share(&f, x->type.dim, x->type.ndim)) return x;
  for (int d = 0; d < x->type.ndim; d++) rows.dim[d].first = false;
  return rearrange(m, x, &f, &x->type, &rows);
}

/* Views a tensor with the rows of the exported batch by its lengths alone: the rows are lost.
 * Returns NULL for other numbers of rows. */
static sl_tensor *as_exported(sli_import *m, sl_tensor *x, const sli_pt_type *to) {
  sl_type dims = {.dtype = x->type.dtype, .ndim = to->ndim};
  memcpy(dims.dim, to->dim, sizeof dims.dim);
  if (m->rows != m->exported || sl_type_elements(&dims) != sl_type_elements(&x->type)) return NULL;
  const sli_rows lost = {.lost = true};
  return sli_pt_reshape_rows(m, sli_pt_true_order(m, x), &dims, &lost);
}

sl_tensor *sli_pt_view(sli_import *m, sl_tensor *x, const sli_pt_type *from, const sli_pt_type *to,
                       const char **why) {
  sli_factors f;
  sli_rows from_rows, rows = {0};
  sl_type dims = {.dtype = x->type.dtype, .ndim = to->ndim};
  from_rows = *sli_rows_of(m, x);
  *why = "the rows of a batch enter its argument in a way that is not followed";
  if (x->type.ndim != from->ndim || to->ndim > SL_MAX_DIMS) return NULL;
  if (from_rows.lost || !sli_factors_find(m, &x->type, &from_rows, from, &f))
    return as_exported(m, x, to);
  *why = "it divides the rows of a batch";
  if (!sli_factors_share(&f, to->dim, to->ndim)) return as_exported(m, x, to);
  *why = "it merges the rows of a batch with themselves, or with what is repeated";
  if (!sli_factors_dims(&f, &dims, &rows)) return as_exported(m, x, to);
  same_values(&rows, &from_rows);
  if (any_first(&from_rows) || any_first(&rows)) return rearrange(m, x, &f, &dims, &rows);
  return sli_pt_reshape_rows(m, x, &dims, &rows);
}
