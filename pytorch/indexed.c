/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that index. Programs with experts sort the rows by expert, multiply group by group, and
 * restore the order. Here the rows are multiplied in their original order, each with its expert's
 * index. Sorting and restoring therefore become no-ops. */
#include <math.h>
#include <string.h>

#include "pytorch/emit.h"
#include "pytorch/rows.h"
#include "pytorch/whole.h"

/* Stops the gradient of rows with this id. */
static sl_tensor *without_gradient(sli_import *m, sl_tensor *y, sl_tensor *ids, int64_t id) {
  sl_type one = {.dtype = SL_I32, .ndim = 1, .dim = {1}}, to = ids->type;
  sl_tensor *is =
      sl_op2_at(m->at, m->g, &sl_op_eq, NULL, ids, sl_filled_at(m->at, m->g, one, (float)id, NULL));
  to.dim[to.ndim++] = 1;
  is = is ? sl_reshape_at(m->at, m->g, is, to) : NULL;
  sl_tensor *still = sl_op1_at(m->at, m->g, &sl_op_detach, NULL, y);
  return sl_op3_at(m->at, m->g, &sl_op_where, NULL, is, still, y);
}

void sli_emit_embedding(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *ids = sli_pt_arg_value(n, "indices");
  sl_tensor *table = sli_pt_in(m, n, "weight"), *at = sli_pt_i32(m, ids);
  sl_tensor *y = sl_op2_at(m->at, m->g, &sl_op_embedding, NULL, at, table);
  int64_t padding = sli_pt_whole(m, n, "padding_idx", -1);
  bool learns = padding >= 0 && !sli_constant(m, ids) && !sl_graph_infer(m->g);
  if (y && learns) y = without_gradient(m, y, at, padding);
  sli_pt_out(m, n, 0, y);
}

/* Returns the only index given, and its dim. */
static const sli_pt_value *only_index(const sli_pt_node *n, int *dim) {
  const sli_pt_arg *list = sli_pt_arg_find(n, "indices");
  const sli_pt_value *only = NULL;
  if (!list || list->kind != SLI_PT_LIST) return NULL;
  for (int i = 0; i < list->list.count; i++) {
    if (list->list.of[i].kind != SLI_PT_VALUE) continue;
    if (only) return NULL;
    only = list->list.of[i].value;
    *dim = i;
  }
  return only;
}

/* Repeats each row: x [R, ...] becomes [R * times, ...]. */
static sl_tensor *repeat_rows(sli_import *m, sl_tensor *x, int64_t times) {
  if (!x || times == 1) return x;
  sl_type one = x->type, many, out = x->type;
  if (one.ndim == SL_MAX_DIMS) return NULL;
  memmove(one.dim + 2, one.dim + 1, (size_t)(one.ndim - 1) * sizeof *one.dim);
  one.ndim++;
  one.dim[1] = 1;
  many = one;
  many.dim[1] = times;
  out.dim[0] *= times;
  x = sli_pt_reshape(m, x, &one);
  x = x ? sl_expand_at(m->at, m->g, x, many) : NULL;
  return x ? sl_reshape_at(m->at, m->g, x, out) : NULL;
}

/* Takes rows of a table by ids of any shape. */
static sl_tensor *table_rows(sli_import *m, sl_tensor *x, sl_tensor *ids) {
  if (!x || !ids) return NULL;
  int64_t rows = x->type.dim[0], width = sl_type_elements(&x->type) / rows;
  sl_type flat = {.dtype = x->type.dtype, .ndim = 2, .dim = {rows, width}};
  sl_type out = {.dtype = x->type.dtype, .ndim = ids->type.ndim + x->type.ndim - 1};
  for (int d = 0; d < out.ndim; d++)
    out.dim[d] = d < ids->type.ndim ? ids->type.dim[d] : x->type.dim[d - ids->type.ndim + 1];
  sl_tensor *y = sl_op2_at(m->at, m->g, &sl_op_embedding, NULL, ids, sli_pt_reshape(m, x, &flat));
  return y ? sli_pt_reshape(m, y, &out) : NULL;
}

/* Finds an index as i32. Negative positions count from the end of a dim. */
static sl_tensor *positions_of(sli_import *m, const sli_pt_value *v, int64_t length) {
  const sli_pt_array *a = sli_constant(m, v);
  if (!a) return sli_pt_from_end(m, sli_pt_i32(m, v), length);
  sli_pt_array *from = sli_pt_array_cast(&m->arena, a, SLI_PT_I64);
  int64_t count = from ? sli_pt_elements(&from->type) : 0;
  for (int64_t i = 0; i < count; i++)
    if (from->of[i] < 0) from->of[i] += (double)length;
  return from ? sli_pt_constant(m, from) : NULL;
}

/* Returns whether there are two integer indices, of which the first only counts rows: x[arange(B),
 * ids]. */
static bool row_and_column(const sli_import *m, const sli_pt_node *n, const sli_pt_value **column) {
  const sli_pt_arg *list = sli_pt_arg_find(n, "indices");
  if (!list || list->kind != SLI_PT_LIST || list->list.count != 2) return false;
  const sli_pt_arg *of = list->list.of;
  if (of[0].kind != SLI_PT_VALUE || of[1].kind != SLI_PT_VALUE) return false;
  const sli_pt_array *rows = sli_constant(m, of[0].value);
  const sli_pt_value *x = sli_pt_first(n);
  if (!rows || rows->type.ndim != 1 || rows->type.dim[0] != x->type.dim[0]) return false;
  for (int64_t i = 0; i < rows->type.dim[0]; i++)
    if (sli_pt_get(rows, i) != (double)i) return false;
  *column = of[1].value;
  return (*column)->type.ndim == 1;
}

/* x[arange(B), ids]: takes one position of each row. */
static void emit_row_and_column(sli_import *m, const sli_pt_node *n, const sli_pt_value *column) {
  const sli_pt_value *self = sli_pt_first(n);
  sl_tensor *x = sli_pt_in(m, n, "self"), *at = positions_of(m, column, self->type.dim[1]);
  if (!x || !at) return;
  sl_type index = {.dtype = SL_I32, .ndim = x->type.ndim}, out = x->type;
  for (int d = 0; d < index.ndim; d++) index.dim[d] = d == 0 ? x->type.dim[0] : 1;
  if (at->type.dim[0] != x->type.dim[0]) { /* the same column for all rows */
    at = sl_expand_at(m->at, m->g, at, SL_TYPE(SL_I32, x->type.dim[0]));
  }
  at = at ? sli_pt_reshape(m, at, &index) : NULL;
  sl_tensor *y = at ? sl_gather_at(m->at, m->g, x, 1, at) : NULL;
  memmove(out.dim + 1, out.dim + 2, (size_t)(out.ndim - 2) * sizeof *out.dim);
  out.ndim--;
  sli_pt_out(m, n, 0, y ? sli_pt_reshape(m, y, &out) : NULL);
}

/* Finds the only dim along which an index varies, if it counts the positions 0, 1, ... of a dim of
 * `length`. Returns -1 otherwise. */
static int counts_along(const sli_pt_array *a, int ndim, int64_t length) {
  int along = -1;
  for (int d = 0; d < a->type.ndim; d++) {
    if (a->type.dim[d] == 1) continue;
    if (along >= 0 || a->type.dim[d] != length) return -1;
    along = d;
  }
  for (int64_t i = 0; along >= 0 && i < length; i++)
    if (sli_pt_get(a, i) != (double)i) return -1;
  return along < 0 ? -1 : along + ndim - a->type.ndim;
}

/* x[arange(B)[:, None, None, None], arange(T)[None, None, None, :]]: all elements of x, with dims
 * of length 1 inserted. Returns false for other indices. */
static bool emit_positions(sli_import *m, const sli_pt_node *n) {
  const sli_pt_arg *list = sli_pt_arg_find(n, "indices");
  const sli_pt_value *self = sli_pt_first(n);
  int ndim = n->outs[0]->type.ndim, order[SLI_PT_DIMS] = {0}, last = -1;
  if (!list || list->kind != SLI_PT_LIST || list->list.count != self->type.ndim) return false;
  for (int i = 0; i < list->list.count; i++) {
    const sli_pt_array *a =
        list->list.of[i].kind == SLI_PT_VALUE ? sli_constant(m, list->list.of[i].value) : NULL;
    order[i] = a ? counts_along(a, ndim, self->type.dim[i]) : -1;
    if (order[i] <= last) return false;
    last = order[i];
  }
  sl_tensor *t = sli_pt_tensor(m, self);
  sl_type to = {.ndim = ndim};
  for (int d = 0; d < ndim; d++) to.dim[d] = 1;
  for (int i = 0; t && i < self->type.ndim; i++) to.dim[order[i]] = t->type.dim[i];
  if (t) to.dtype = t->type.dtype;
  sli_pt_out(m, n, 0, t ? sli_pt_reshape(m, t, &to) : NULL);
  return true;
}

/* The indices of a call, for consecutive dims. */
typedef struct indices {
  int first, dims, count; /* dims of the tensor that they replace; dims of the broadcast index */
  int64_t length[SLI_PT_DIMS];
  sl_tensor *at; /* i32 [length...]: row-major offsets within these dims */
} indices;

/* Returns the contribution of index number `i` to a row-major offset: its values times `by`. */
static sl_tensor *index_part(sli_import *m, const sli_pt_value *v, int64_t length, int64_t by) {
  sl_tensor *t = positions_of(m, v, length);
  t = t ? sl_cast_at(m->at, m->g, t, SL_F32) : NULL;
  return by == 1 ? t : sl_scale_at(m->at, m->g, t, (float)by);
}

/* Combines several integer indices, which are broadcast. Offsets are computed exactly in f32. */
static bool whole_indices(sli_import *m, const sli_pt_type *x, const sli_pt_arg *list,
                          indices *out) {
  int last = -1;
  *out = (indices){.first = -1};
  for (int i = 0; i < list->list.count; i++) {
    const sli_pt_arg *one = &list->list.of[i];
    if (one->kind != SLI_PT_VALUE) continue;
    if (one->value->type.dtype == SLI_PT_BOOL || (last >= 0 && last != i - 1) || i >= x->ndim)
      return false;
    if (out->first < 0) out->first = i;
    last = i;
  }
  if (out->first < 0) return false;
  out->dims = last - out->first + 1;
  int64_t by = 1;
  for (int i = last; i >= out->first; i--) {
    sl_tensor *part = index_part(m, list->list.of[i].value, x->dim[i], by);
    out->at = out->at ? sl_add_at(m->at, m->g, out->at, part) : part;
    by *= x->dim[i];
    if (by >= 1 << 24) return false;
  }
  if (!out->at) return false;
  out->at = sl_cast_at(m->at, m->g, out->at, SL_I32);
  out->count = out->at ? out->at->type.ndim : 0;
  for (int d = 0; d < out->count; d++) out->length[d] = out->at->type.dim[d];
  return out->at != NULL;
}

/* Takes elements of several dims at once, which become one. */
static void emit_several(sli_import *m, const sli_pt_node *n) {
  const sli_pt_value *self = sli_pt_first(n);
  const sli_pt_arg *list = sli_pt_arg_find(n, "indices");
  sl_tensor *x = sli_pt_f32(m, self);
  indices of = {0};
  if (!x || !list || list->kind != SLI_PT_LIST) return;
  if (!whole_indices(m, &self->type, list, &of) || of.first + of.dims > x->type.ndim) {
    sli_pt_refuse(m, n, "only whole numbers, for neighbouring dims, are supported as indices");
    return;
  }
  int order[SLI_PT_DIMS], k = 0, ndim = x->type.ndim, rest = ndim - of.dims;
  int64_t rows = 1, width = 1;
  sl_type to = {.dtype = SL_F32, .ndim = rest + of.count};
  for (int d = 0; d < of.dims; d++) {
    order[k++] = of.first + d;
    rows *= x->type.dim[of.first + d];
    if (x->type.dim[of.first + d] != self->type.dim[of.first + d]) {
      sli_pt_refuse(m, n, "it takes some rows of a batch, which are those of a microbatch here");
      return;
    }
  }
  for (int d = 0, out = of.count; d < ndim; d++)
    if (d < of.first || d >= of.first + of.dims)
      order[k++] = d, width *= to.dim[out++] = x->type.dim[d];
  for (int d = 0; d < of.count; d++) to.dim[d] = of.length[d];
  if (to.ndim > SL_MAX_DIMS) return;
  sl_tensor *table = sli_pt_permute(m, x, ndim, order);
  table = sli_pt_reshape(m, table, &SL_TYPE(SL_F32, rows, width));
  sl_tensor *y = sl_op2_at(m->at, m->g, &sl_op_embedding, NULL, of.at, table);
  y = y ? sli_pt_reshape(m, y, &to) : NULL;
  k = 0; /* the indexed dims move to the position of the first */
  for (int d = 0; d < of.first; d++) order[k++] = of.count + d;
  for (int d = 0; d < of.count; d++) order[k++] = d;
  for (int d = of.first; d < rest; d++) order[k++] = of.count + d;
  sli_pt_out(m, n, 0, sli_pt_permute(m, y, k, order));
}

static bool has_negative(const sli_pt_array *a) {
  int64_t count = sli_pt_elements(&a->type);
  for (int64_t i = 0; i < count; i++)
    if (sli_pt_get(a, i) < 0) return true;
  return false;
}

/* Returns whether an index takes all positions of a dim, in order. */
static bool takes_all(const sli_import *m, const sli_pt_value *at, int64_t length) {
  const sli_pt_array *a = sli_constant(m, at);
  return a && a->type.ndim == 1 && counts_along(a, 1, length) == 0;
}

/* Refuses constant positions of a dim with rows, if a microbatch has others than the exported
 * batch. */
static bool takes_other_rows(sli_import *m, const sli_pt_node *n, const sli_pt_value *at,
                             const sl_tensor *x, int dim) {
  bool other = sli_constant(m, at) && x && dim < x->type.ndim && m->rows != m->exported &&
               sli_has_rows(sli_rows_of(m, x), dim);
  if (other)
    sli_pt_refuse(m, n, "it takes some rows of a batch, which are those of a microbatch here");
  return other;
}

/* Returns whether an index is constant and counts up from *begin. */
static bool is_range(const sli_pt_array *a, int64_t length, int64_t *begin) {
  if (!a || a->mask || a->type.ndim != 1 || !a->type.dim[0]) return false;
  double first = sli_pt_get(a, 0);
  *begin = (int64_t)first + (first < 0 ? length : 0);
  for (int64_t i = 1; i < a->type.dim[0]; i++)
    if (sli_pt_get(a, i) != first + (double)i) return false;
  return *begin >= 0 && *begin + a->type.dim[0] <= length;
}

void sli_emit_index(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  int dim = 0;
  const sli_pt_value *self = sli_pt_first(n), *at = only_index(n, &dim), *column;
  if (!at && emit_positions(m, n)) return;
  if (!at && row_and_column(m, n, &column)) {
    emit_row_and_column(m, n, column);
    return;
  }
  if (!at || at->type.dtype == SLI_PT_BOOL) {
    emit_several(m, n);
    return;
  }
  if (sli_made_of(m, at)->sorted && !dim) {
    sli_pt_out(m, n, 0, repeat_rows(m, sli_pt_f32(m, self), SLI_MAX(sli_made_of(m, at)->each, 1)));
    return;
  }
  if (takes_all(m, at, self->type.dim[dim])) {
    sli_pt_out(m, n, 0, sli_pt_tensor(m, self));
    return;
  }
  bool backwards = !sli_constant(m, at) || has_negative(sli_constant(m, at));
  sl_tensor *x = sli_pt_f32(m, self);
  if (takes_other_rows(m, n, at, x, dim)) return;
  int64_t begin;
  if (x && is_range(sli_constant(m, at), x->type.dim[dim], &begin)) {
    sli_pt_out(m, n, 0, sl_slice_at(m->at, m->g, x, dim, begin, at->type.dim[0]));
    return;
  }
  sl_tensor *ids = backwards ? positions_of(m, at, self->type.dim[dim]) : sli_pt_i32(m, at);
  if (!x || !ids) return;
  int order[SLI_PT_DIMS], k = 0, count = ids->type.ndim, ndim = x->type.ndim;
  order[k++] = dim;
  for (int d = 0; d < ndim; d++)
    if (d != dim) order[k++] = d;
  sl_tensor *y = table_rows(m, sli_pt_permute(m, x, ndim, order), ids);
  k = 0; /* the indexed dims move back */
  for (int d = 0; d < dim; d++) order[k++] = count + d;
  for (int d = 0; d < count; d++) order[k++] = d;
  for (int d = dim; d < ndim - 1; d++) order[k++] = count + d;
  sli_pt_out(m, n, 0, sli_pt_permute(m, y, k, order));
}

/* gather(self, dim, index), index_select(self, dim, index of one dim). */
void sli_emit_gather(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  const sli_pt_value *self = sli_pt_first(n);
  bool indices = sli_pt_arg_find(n, "indices") != NULL; /* take_along_dim */
  sl_tensor *x = sli_pt_tensor(m, self), *at = sli_pt_in_i32(m, n, indices ? "indices" : "index");
  if (!x || !at || !self->type.ndim) return;
  int dim = sli_pt_dim(m, n, "dim", self->type.ndim, 0);
  if (!sli_pt_arg_find(n, "dim") && self->type.ndim > 1) {
    sli_pt_refuse(m, n, "it needs a dim");
    return;
  }
  const sli_pt_value *index = sli_pt_arg_value(n, indices ? "indices" : "index");
  if (takes_other_rows(m, n, index, x, dim)) return;
  if (strstr(row->target, "index_select")) {
    sl_type to = {.dtype = SL_I32, .ndim = x->type.ndim};
    for (int d = 0; d < to.ndim; d++) to.dim[d] = d == dim ? at->type.dim[0] : 1;
    at = sli_pt_reshape(m, at, &to);
  }
  sli_pt_out(m, n, 0, sl_gather_at(m->at, m->g, x, dim, at));
}

/* Refuses an index that is shorter than the array along another dim, whose further rows stay. */
static bool covers_rows(sli_import *m, const sli_pt_node *n, const sli_pt_value *self, int dim) {
  const sli_pt_value *index = sli_pt_arg_value(n, "index");
  bool all = index && index->type.ndim == self->type.ndim;
  for (int d = 0; all && d < self->type.ndim; d++)
    all = d == dim || index->type.dim[d] == self->type.dim[d];
  if (!all) sli_pt_refuse(m, n, "its index must be as long as the tensor along the other dims");
  return all;
}

/* Counts how often an index names each position of a dim. */
static sl_tensor *times_named(sli_import *m, const sli_pt_value *self, int dim, sl_tensor *at) {
  if (!at) return NULL;
  sl_type type = at->type;
  type.dtype = SL_F32;
  sl_tensor *ones = sl_filled_at(m->at, m->g, type, 1, at);
  return sl_scatter_sum_at(m->at, m->g, ones, dim, at, self->type.dim[dim]);
}

/* Returns the tensor that a call writes into, to be combined with `times`. */
static sl_tensor *before(sli_import *m, const sli_pt_node *n, const sl_tensor *times) {
  double value;
  if (sli_pt_scalar(m, sli_pt_arg_find(n, "self"), &value))
    return sli_pt_filled_like(m, times, value);
  return sli_pt_in(m, n, "self");
}

/* Returns `then` where a position is named, and the call's own tensor elsewhere. */
static sl_tensor *where_named(sli_import *m, const sli_pt_node *n, sl_tensor *times,
                              sl_tensor *then) {
  if (!times || !then) return NULL;
  sl_tensor *none = sli_pt_filled_like(m, times, 0);
  sl_tensor *named = sl_op2_at(m->at, m->g, &sl_op_gt, NULL, times, none);
  return sl_op3_at(m->at, m->g, &sl_op_where, NULL, named, then, before(m, n, times));
}

/* scatter(self, dim, index, src or value). A position that src names several times gets the mean.
 */
void sli_emit_scatter(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *self = sli_pt_first(n);
  sl_tensor *at = sli_pt_in_i32(m, n, "index");
  if (!at || !self->type.ndim) return;
  bool numbers = sli_pt_arg_find(n, "src") != NULL;
  double value = 0;
  int dim = sli_pt_dim(m, n, "dim", self->type.ndim, 0);
  if (!covers_rows(m, n, self, dim)) return;
  sl_tensor *times = times_named(m, self, dim, at), *then;
  if (sli_pt_scalar(m, sli_pt_arg_find(n, numbers ? "src" : "value"), &value)) {
    then = sli_pt_filled_like(m, times, value);
  } else {
    then = sl_scatter_sum_at(m->at, m->g, sli_pt_in(m, n, "src"), dim, at, self->type.dim[dim]);
    then = sl_op2_at(m->at, m->g, &sl_op_div, NULL, then,
                     sl_clamp_at(m->at, m->g, times, 1, INFINITY));
  }
  sli_pt_out(m, n, 0, where_named(m, n, times, then));
}

/* scatter_reduce(self, dim, index, src, "sum" or "mean", include_self). */
void sli_emit_scatter_reduce(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *self = sli_pt_first(n);
  const sli_pt_arg *how = sli_pt_arg_find(n, "reduce");
  sl_tensor *at = sli_pt_in_i32(m, n, "index"), *src = sli_pt_in(m, n, "src");
  bool with_self = sli_pt_flag(n, "include_self", true);
  bool mean = how && how->kind == SLI_PT_TEXT && !strcmp(how->text, "mean");
  if (!at || !src || !self->type.ndim) return;
  if (!mean && (!how || how->kind != SLI_PT_TEXT || strcmp(how->text, "sum"))) {
    sli_pt_refuse(m, n, "only the sum and the mean are supported");
    return;
  }
  int dim = sli_pt_dim(m, n, "dim", self->type.ndim, 0);
  if (!covers_rows(m, n, self, dim)) return;
  sl_tensor *times = times_named(m, self, dim, at), *count = times;
  sl_tensor *y = sl_scatter_sum_at(m->at, m->g, src, dim, at, self->type.dim[dim]);
  if (with_self) {
    y = sl_add_at(m->at, m->g, y, before(m, n, times));
    count = sl_add_at(m->at, m->g, times, sli_pt_filled_like(m, times, 1));
  } else if (mean) count = sl_clamp_at(m->at, m->g, times, 1, INFINITY);
  if (mean) y = sl_op2_at(m->at, m->g, &sl_op_div, NULL, y, count);
  sli_pt_out(m, n, 0, with_self ? y : where_named(m, n, times, y));
}

/* scatter_add(self, dim, index, src): adds elements at their positions, in order. */
void sli_emit_scatter_add(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *self = sli_pt_first(n);
  sl_tensor *at = sli_pt_in_i32(m, n, "index"), *src = sli_pt_in(m, n, "src");
  if (!at || !src || !self || !self->type.ndim) return;
  double old = 1;
  int dim = sli_pt_dim(m, n, "dim", self->type.ndim, 0);
  if (!covers_rows(m, n, self, dim)) return;
  if (sli_pt_scalar(m, sli_pt_arg_find(n, "self"), &old) && old == 0)
    sli_pt_out(m, n, 0, sl_scatter_sum_at(m->at, m->g, src, dim, at, self->type.dim[dim]));
  else sli_pt_out(m, n, 0, sl_scatter_add_at(m->at, m->g, sli_pt_f32(m, self), dim, at, src));
}

/* index_add(self, dim, index, source, alpha): adds rows at their positions, in order. */
void sli_emit_index_add(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *self = sli_pt_first(n);
  sl_tensor *at = sli_pt_in_i32(m, n, "index"), *src = sli_pt_in(m, n, "source");
  if (!at || !src) return;
  double old = 1, alpha = sli_pt_number(m, n, "alpha", 1);
  if (alpha != 1) src = sl_scale_at(m->at, m->g, src, (float)alpha);
  int dim = sli_pt_dim(m, n, "dim", self->type.ndim, 0);
  sl_type to = {.dtype = SL_I32, .ndim = src->type.ndim};
  for (int d = 0; d < to.ndim; d++) to.dim[d] = d == dim ? at->type.dim[0] : 1;
  at = sli_pt_reshape(m, at, &to);
  if (sli_pt_scalar(m, sli_pt_arg_find(n, "self"), &old) && old == 0)
    sli_pt_out(m, n, 0, sl_scatter_sum_at(m->at, m->g, src, dim, at, self->type.dim[dim]));
  else sli_pt_out(m, n, 0, sl_scatter_add_at(m->at, m->g, sli_pt_f32(m, self), dim, at, src));
}

void sli_emit_one_hot(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  int64_t classes = sli_pt_whole(m, n, "num_classes", -1);
  sl_tensor *ids = sli_pt_in_i32(m, n, "self");
  if (classes < 1) sli_pt_refuse(m, n, "the number of classes must be given");
  else sli_pt_out(m, n, 0, sl_one_hot_at(m->at, m->g, ids, classes));
}

/* ---- experts ------------------------------------------------------------------------------- */

/* Returns the value that the group ends of a call are counted from. */
static const sli_pt_value *counted(const sli_import *m, const sli_pt_value *v) {
  static const char *const counts[] = {"aten.cumsum.default", "aten.histc.default",
                                       "aten.bincount.default", "aten.to.dtype",
                                       "aten._to_copy.default"};
  for (bool found = true; found;) {
    v = sli_pt_peel(m, v);
    found = false;
    for (size_t i = 0; v && v->def && !found && i < SLI_COUNT(counts); i++)
      found = !strcmp(v->def->target, counts[i]);
    if (found) v = sli_pt_first(v->def);
  }
  return v;
}

/* Returns whether a call sorts the experts of rows: the products of a later call have its groups.
 */
static bool sorts_experts(const sli_import *m, const sli_pt_node *n) {
  const sli_pt_value *x = sli_pt_first(n);
  if (x->type.ndim != 1 || sli_pt_floats(x->type.dtype) || sli_pt_flag(n, "descending", false))
    return false;
  for (int i = 0; i < m->p->nnodes; i++) {
    const sli_pt_node *later = m->p->nodes[i];
    if (!strstr(later->target, "grouped_mm")) continue;
    const sli_pt_value *from = counted(m, sli_pt_arg_value(later, "offs"));
    const sli_pt_node *taken = from ? sli_pt_made_by(m, from, "aten.index.Tensor") : NULL;
    if (taken) from = sli_pt_first(taken);
    if (from && (from->def == n || sli_pt_peel(m, from) == sli_pt_peel(m, x))) return true;
  }
  return false;
}

/* Sorting the experts of all rows keeps the rows in order. Other sorts are a top-k of all
 * elements. */
void sli_emit_sort(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  const sli_pt_value *x = sli_pt_first(n);
  bool positions = strstr(row->target, "argsort") != NULL;
  if (sorts_experts(m, n) || (x->type.ndim == 1 && sli_made_of(m, x)->sorted)) {
    sli_made *order = sli_made_of(m, n->outs[positions ? 0 : 1]);
    order->sorted = true, order->each = 1;
    (void)sli_pt_dim(m, n, "dim", 1, 0);
    if (positions) return;
    sli_made *values = sli_made_of(m, n->outs[0]);
    values->tensor = sli_pt_i32(m, x);
    values->ids = (sli_pt_value *)x;
    return;
  }
  int dim = sli_pt_dim(m, n, "dim", x->type.ndim, -1);
  bool rises = !sli_pt_flag(n, "descending", false);
  sl_tensor *places = NULL, *t = sli_pt_f32(m, x);
  if (!t || !x->type.ndim) return;
  if (rises) t = sl_op1_at(m->at, m->g, &sl_op_neg, NULL, t);
  sl_tensor *y = sl_top_k_at(m->at, m->g, t, dim, sl_dim(t, dim), &places);
  if (rises) y = sl_op1_at(m->at, m->g, &sl_op_neg, NULL, y);
  sli_pt_out(m, n, positions ? 1 : 0, positions ? NULL : y);
  sli_pt_out(m, n, positions ? 0 : 1, places);
}

/* histc, bincount: number of rows per expert. Only their cumulative ends are used. */
void sli_emit_histc(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_first(n);
  sli_pt_value *ids = x ? sli_made_of(m, x)->ids : NULL;
  double bins = sli_pt_number(m, n, "bins", 0), low = sli_pt_number(m, n, "min", 0),
         high = sli_pt_number(m, n, "max", bins - 1), most = sli_pt_number(m, n, "minlength", 0);
  bool each = low == 0 && high == bins - 1 && most >= 0; /* a bin per expert */
  if (!ids || !each) sli_pt_refuse(m, n, "it is supported for the rows of experts alone");
  else sli_made_of(m, n->outs[0])->ids = ids;
}

/* index_put(empty, [order], arange): the inverse order, which restores the rows. */
void sli_emit_index_put(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  int dim = 0;
  const sli_pt_value *at = only_index(n, &dim), *values = sli_pt_arg_value(n, "values");
  const sli_pt_array *numbers = values ? sli_constant(m, values) : NULL;
  (void)sli_pt_first(n); /* overwritten as a whole */
  if (at && sli_made_of(m, at)->sorted && numbers &&
      counts_along(numbers, 1, at->type.dim[0]) == 0) {
    sli_made *order = sli_made_of(m, n->outs[0]);
    order->sorted = true, order->each = 1;
  } else sli_pt_refuse(m, n, "it is supported for orders of the rows of experts alone");
}

/* Returns whether a call transposes the last two dims. */
static bool transposes_last(const sli_import *m, const sli_pt_node *n) {
  const sli_pt_value *x = sli_pt_first(n);
  int a = sli_pt_dim(m, n, "dim0", 3, 0), b = sli_pt_dim(m, n, "dim1", 3, 0);
  return x && x->type.ndim == 3 && a + b == 3 && a != b && (a == 1 || b == 1);
}

/* grouped_mm(input [R, K], weight [E, K, N], offs): multiplies each row by the weight of its
 * expert. */
void sli_emit_grouped(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *ends = sli_pt_arg_value(n, "offs"), *w = sli_pt_arg_value(n, "weight");
  if (!w) w = sli_pt_arg_value(n, "mat2");
  const sli_pt_value *x = sli_pt_first(n);
  sli_pt_value *ids = ends ? sli_made_of(m, ends)->ids : NULL;
  if (!ids || !w || !x) {
    sli_pt_refuse(m, n, "the groups are not the experts of rows that were sorted");
    return;
  }
  const sli_pt_node *swap = sli_pt_made_by(m, w, "aten.transpose.int");
  sl_tensor *by, *in = sli_pt_f32(m, x), *at = sli_pt_i32(m, ids);
  if (swap && transposes_last(m, swap)) by = sli_pt_in(m, swap, "self");
  else by = sli_pt_permute(m, sli_pt_f32(m, w), 3, (int[]){0, 2, 1});
  if (!by || !in || !at) return;
  int64_t rows = in->type.dim[0], each = 1, out = by->type.dim[1];
  const sli_pt_node *repeat = sli_pt_made_by(m, x, "aten.index.Tensor");
  int dim = 0;
  const sli_pt_value *places = repeat ? only_index(repeat, &dim) : NULL;
  if (places && sli_made_of(m, places)->sorted && !dim)
    each = SLI_MAX(sli_made_of(m, places)->each, 1);
  if (each > 1) in = sli_pt_in(m, repeat, "self"); /* a token's row, shared by its experts */
  at = sli_pt_reshape(m, at, &SL_TYPE(SL_I32, rows / each, each));
  sl_tensor *y = at ? sl_grouped_linear_at(m->at, m->g, in, at, by) : NULL;
  sli_pt_out(m, n, 0, y ? sli_pt_reshape(m, y, &SL_TYPE(SL_F32, rows, out)) : NULL);
}
