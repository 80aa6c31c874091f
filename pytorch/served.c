/* SPDX-License-Identifier: Apache-2.0 */
/* Serving an exported decoder: the graph of one row of positions becomes the graph of a tick.
 *
 * An exported program has its length T in every shape, in its masks and in its tables of angles. It
 * is built into a graph of one row first, as for training. This file then writes that graph anew
 * for R rows, the positions of any sequences, call by call:
 *
 * - A tensor that depends on tokens has its positions along one dim, of T * inner elements. Its
 *   twin has the shape [1, R, dims before, inner, dims after], whatever the order of dims was.
 *   Views that move positions therefore become views that keep rows, or nothing.
 * - A tensor without tokens, such as a mask or a table, is made as it was. Where it meets a tensor
 *   with positions, it gives each row the entry of the row's position.
 * - Calls that work position by position read twins. Attention keeps its form, for which the
 *   serving pass gives it pages. All other calls that would combine positions are refused.
 *
 * The same walk over a graph of several rows, with the batch dim in place of the positions, shows
 * whether the rows are independent. Its result is dropped.
 *
 * A view of T positions and further dims keeps their order, so the dim of positions after it is the
 * one that begins at the same element. */
#include "pytorch/served.h"

#include <stdlib.h>
#include <string.h>

#include "graph/build/build.h"
#include "ops/ops.h"
#include "ops/views.h"

/* The positions of a tensor: its dim, of T * inner elements; dim -1: none. */
typedef struct spread {
  int dim;
  int64_t inner;
} spread;

static const spread nowhere = {-1, 1};

/* Rows taken from a table, for calls of a block. */
typedef struct lookup {
  const sl_tensor *table; /* of the graph that is rewritten */
  sl_type view;
  int dim, block;
  sl_tensor *rows;
} lookup;

typedef struct rewriting {
  sl_graph *from, *to;
  const sli_served_how *how;
  int axis; /* dim of the tokens that is followed: 1: positions; 0: rows of the batch */
  int64_t length, rows;
  sl_tensor **made; /* [tensors of from] twins */
  spread *where;    /* [tensors of from] */
  sl_tensor *zeros; /* i32 [1, R]; NULL: not made */
  const sl_tensor *tokens;
  lookup *lookups;
  size_t nlookups;
  size_t capacity;
  const sli_node *now;
} rewriting;

static void refuse(rewriting *r, const char *why) {
  if (!r->axis) why = "it may combine rows of the batch, or give them different numbers";
  if (!r->to->status) r->how->refuse(r->how->ctx, r->to, r->now, why);
}

/* ---- shapes ------------------------------------------------------------------------------------
 */

/* Returns the type with the dim of positions as two: T and `inner`, if that is above 1. */
static sl_type view_of(const rewriting *r, const sl_type *type, spread p) {
  sl_type out = *type;
  if (p.dim < 0 || p.inner == 1) return out;
  out.ndim++;
  for (int d = type->ndim; d > p.dim + 1; d--) out.dim[d] = type->dim[d - 1];
  out.dim[p.dim] = r->length;
  out.dim[p.dim + 1] = p.inner;
  return out;
}

/* Returns the dim of a view that a dim of its type becomes. */
static int view_dim(spread p, int d) { return d + (d > p.dim && p.inner > 1); }

/* Returns whether a twin lacks the first dim, of length 1, of a type. */
static bool drops_first(const sl_type *type, spread p) { return p.dim > 0 && type->dim[0] == 1; }

/* Returns the twin's dim for a dim of the view; -1: left out. */
static int twin_dim(int dim, bool drops, int d) {
  if (d == dim) return 1;
  if (drops && !d) return -1;
  return d < dim ? d + 2 - drops : d + 1 - drops;
}

static sl_type twin_type(const rewriting *r, const sl_type *view, int dim, bool drops) {
  sl_type out = {.dtype = view->dtype, .ndim = view->ndim + 1 - drops};
  out.dim[0] = 1;
  for (int d = 0; d < view->ndim; d++) {
    int at = twin_dim(dim, drops, d);
    if (at >= 0 && at < SL_MAX_DIMS) out.dim[at] = d == dim ? r->rows : view->dim[d];
  }
  return out;
}

static sl_tensor *reshaped(const rewriting *r, sl_tensor *t, const sl_type *to) {
  if (!t || sl_type_equal(&t->type, to)) return t;
  sl_type shape = *to;
  shape.dtype = t->type.dtype;
  if (sl_type_equal(&t->type, &shape)) return t;
  const sli_node *p = t->producer;
  bool again = p && p->op == &sl_op_reshape && sl_type_equal(&p->in[0]->type, &shape);
  return again ? p->in[0] : sl_reshape_at(r->now->at, r->to, t, shape);
}

static spread spread_of(const rewriting *r, const sl_tensor *t) {
  return t ? r->where[t->id] : nowhere;
}

/* Sets the twin of an output whose positions are at `p`. The result may lack dims of length 1. */
static void settle(rewriting *r, const sl_tensor *out, spread p, sl_tensor *t) {
  if (!out || !t) return;
  sl_type view = view_of(r, &out->type, p);
  sl_type type = twin_type(r, &view, p.dim, drops_first(&out->type, p));
  if (view.ndim >= SL_MAX_DIMS || sl_type_elements(&type) != sl_type_elements(&t->type)) {
    refuse(r, "its result has another number of positions");
    return;
  }
  r->made[out->id] = reshaped(r, t, &type);
  r->where[out->id] = p;
}

/* ---- tensors without tokens --------------------------------------------------------------------
 */

static sl_tensor *make_param(const rewriting *r, const sl_tensor *of) {
  return sl_param_at(of->at, r->to, of->type, of->init, "%s", of->name);
}

/* Returns the tensor of the new graph for one that does not depend on tokens. */
static sl_tensor *plain(rewriting *r, sl_tensor *of) {
  if (!of) return NULL;
  sl_tensor **made = &r->made[of->id];
  if (!*made && of->param) *made = make_param(r, of);
  return *made;
}

static const sl_values *constant_of(const sl_tensor *t) {
  const sli_node *n = t->producer;
  return n && n->op == &sl_op_constant ? n->attrs.user : NULL;
}

/* Returns whether a constant is 0, 1, 2, ... */
static bool counts(const sl_tensor *t) {
  const sl_values *v = constant_of(t);
  if (!v || v->type.dtype != SL_I32 || !v->values) return false;
  const int32_t *of = v->values;
  for (int64_t i = 0; i < sl_type_elements(&v->type); i++)
    if (of[i] != i) return false;
  return true;
}

/* Returns the tensor whose first T rows of the last dim are the tensor's: the table behind
 * embedding(0, 1, ...), views and leading slices. */
static sl_tensor *table_behind(const rewriting *r, sl_tensor *t) {
  const sli_node *n = t->producer;
  if (!n) return t;
  int64_t width = sl_type_last(&t->type);
  if (n->op == &sl_op_embedding && counts(n->in[0])) return n->in[1];
  bool views = n->op == &sl_op_reshape && sl_type_last(&n->in_type[0]) == width;
  if (views) return table_behind(r, n->in[0]);
  if (n->op != &sl_op_slice) return t;
  const sl_part *part = n->attrs.user;
  int64_t before = 1;
  for (int d = 0; d < part->axis; d++) before *= n->in_type[0].dim[d];
  bool leads = part->axis >= 0 && part->axis < t->type.ndim - 1 && part->nranges == 1 &&
               !part->begin[0] && before == 1 && part->count[0] == r->length;
  return leads ? table_behind(r, n->in[0]) : t;
}

/* Returns a constant's values with dim `dim` first, as a table [T, rest]. */
static sl_tensor *constant_table(const rewriting *r, const sl_values *v, const sl_type *type,
                                 int dim) {
  int64_t before = 1, after = 1, time = type->dim[dim];
  for (int d = 0; d < dim; d++) before *= type->dim[d];
  for (int d = dim + 1; d < type->ndim; d++) after *= type->dim[d];
  const int32_t *of = v->values;
  int32_t *out = sl_graph_alloc(r->to, (size_t)(time * before * after) * sizeof *out);
  for (int64_t t = 0; t < time; t++)
    for (int64_t b = 0; b < before; b++)
      memcpy(out + (t * before + b) * after, of + (b * time + t) * after,
             (size_t)after * sizeof *out);
  sl_type to = {v->type.dtype, 2, {time, before * after}};
  return sl_constant_at(r->now->at, r->to, to, out, NULL);
}

/* Returns a table [T or more, rest] of a tensor without tokens, with its dim of positions first. */
static sl_tensor *table_of(rewriting *r, sl_tensor *t, const sl_type *view, int dim) {
  const sl_values *v = constant_of(t);
  if (v) return constant_table(r, v, view, dim);
  int64_t width = sl_type_elements(view) / r->length;
  bool rows = width == sl_type_last(&t->type);
  for (int d = 0; d < dim; d++) rows &= view->dim[d] == 1;
  sl_tensor *behind = rows ? table_behind(r, t) : t, *of = plain(r, behind);
  if (!of) return NULL;
  sl_type full = *view;
  sl_type flat = {of->type.dtype, 2, {sl_type_elements(&of->type) / width, width}};
  if (behind != t) return reshaped(r, of, &flat);
  of = reshaped(r, of, &full);
  sl_type order = {.ndim = view->ndim, .dim = {dim}};
  for (int d = 0, k = 1; d < view->ndim; d++)
    if (d != dim) order.dim[k++] = d;
  bool same = true;
  for (int d = 0; d < dim; d++) same &= view->dim[d] == 1;
  if (!same) of = sl_permute_at(r->now->at, r->to, of, order);
  flat.dim[0] = r->length;
  return reshaped(r, of, &flat);
}

/* Returns zeros [1, R, width] in the rows of a tick. */
static sl_tensor *zero_rows(rewriting *r, int64_t width) {
  const sl_here at = r->now->at;
  if (!r->zeros) {
    sl_tensor *numbers = sl_cast_at(at, r->to, r->made[r->tokens->id], SL_F32);
    r->zeros = sl_cast_at(at, r->to, sl_scale_at(at, r->to, numbers, 0), SL_I32);
  }
  sl_tensor *none = sl_filled_at(at, r->to, SL_TYPE(SL_F32, 1, width), 0, NULL);
  return sl_op2_at(at, r->to, &sl_op_embedding, NULL, r->zeros, none);
}

/* Returns whether two tensors are the same one, or constants with the same values. */
static bool same_values(const sl_tensor *a, const sl_tensor *b) {
  const sl_values *x = constant_of(a), *y = constant_of(b);
  if (a == b) return true;
  return x && y && x->values && y->values && sl_type_equal(&x->type, &y->type) &&
         !memcmp(x->values, y->values, sl_type_bytes(&x->type));
}

/* Returns whether a tensor has the same elements at all places along dim `dim` of its view. */
static bool repeats(const sl_tensor *t, const sl_type *view, int dim) {
  const sli_node *n = t->producer;
  const sl_values *v = constant_of(t);
  int64_t before = 1, after = 1, count = view->dim[dim];
  for (int d = 0; d < dim; d++) before *= view->dim[d];
  for (int d = dim + 1; d < view->ndim; d++) after *= view->dim[d];
  if (v && !v->values) return true;
  if (!v && n && n->op == &sl_op_expand) {
    int d = dim - (view->ndim - n->in_type[0].ndim); /* dims of length 1 come before its own */
    return view->ndim == t->type.ndim && (d < 0 || n->in_type[0].dim[d] == 1);
  }
  bool same = v != NULL;
  const int32_t *of = v ? v->values : NULL;
  for (int64_t b = 0; same && b < before; b++)
    for (int64_t i = 1; same && i < count; i++)
      same =
          !memcmp(of + (b * count + i) * after, of + b * count * after, (size_t)after * sizeof *of);
  return same;
}

/* Returns the entries of a table at the positions of the rows, as a twin of `view`. */
static sl_tensor *at_positions(rewriting *r, sl_tensor *t, const sl_type *view, int dim,
                               bool drops) {
  const sl_values *v = constant_of(t);
  sl_type type = twin_type(r, view, dim, drops);
  if (v && !v->values)
    return sl_filled_at(r->now->at, r->to, type, t->producer->attrs.fill.value, NULL);
  if (!r->axis && !repeats(t, view, dim)) {
    refuse(r, NULL);
    return NULL;
  }
  if (!r->axis) return sl_filled_at(r->now->at, r->to, type, 0, NULL);
  int block = r->to->nblocks;
  for (size_t i = 0; i < r->nlookups; i++) {
    const lookup *l = &r->lookups[i];
    if (l->block == block && l->dim == dim && sl_type_equal(&l->view, view) &&
        same_values(l->table, t))
      return reshaped(r, l->rows, &type);
  }
  bool whole = t->type.dtype == SL_I32;
  sl_tensor *table = table_of(r, t, view, dim);
  if (whole) table = table ? sl_cast_at(r->now->at, r->to, table, SL_F32) : NULL;
  sl_tensor *rows = table ? zero_rows(r, table->type.dim[1]) : NULL;
  if (rows) rows = sl_op2_at(r->now->at, r->to, &sl_op_position, NULL, rows, table);
  rows = reshaped(r, rows, &type);
  if (whole && rows) rows = sl_cast_at(r->now->at, r->to, rows, SL_I32);
  SLI_GROW(r->lookups, r->nlookups, r->capacity);
  r->lookups[r->nlookups++] = (lookup){t, *view, dim, block, rows};
  return rows;
}

/* ---- operands ----------------------------------------------------------------------------------
 */

/* Returns the view of an operand beside a result with positions at `p`: dims of length 1 are put
 * before its own. Sets *has if it has all positions. */
static bool aligned(const rewriting *r, const sl_type *type, int ndim, spread p, sl_type *view,
                    bool *has) {
  int shift = ndim - type->ndim, d = p.dim - shift;
  *has = d >= 0 && type->dim[d] == r->length * p.inner;
  if (shift < 0 || (d >= 0 && !*has && type->dim[d] != 1)) return false;
  sl_type wide = {.dtype = type->dtype, .ndim = ndim};
  for (int k = 0; k < ndim; k++) wide.dim[k] = k < shift ? 1 : type->dim[k - shift];
  *view = view_of(r, &wide, p);
  if (!*has && p.inner > 1) view->dim[p.dim] = view->dim[p.dim + 1] = 1;
  return view->ndim < SL_MAX_DIMS;
}

/* Returns an operand of a call whose result has this type and positions at `p`; the call repeats
 * its dims of length 1. */
static sl_tensor *operand(rewriting *r, const sl_type *result, spread p, sl_tensor *of) {
  spread own = spread_of(r, of);
  int ndim = result->ndim;
  bool has, drops = drops_first(result, p);
  sl_type view;
  if (own.dim < 0 && of->type.ndim < ndim - p.dim) return plain(r, of);
  if (!aligned(r, &of->type, ndim, p, &view, &has) ||
      (own.dim >= 0 && (own.dim + ndim - of->type.ndim != p.dim || own.inner != p.inner))) {
    refuse(r, "it combines the positions of one argument with other elements of another");
    return NULL;
  }
  if (own.dim < 0 && has) return at_positions(r, of, &view, p.dim, drops);
  sl_type type = twin_type(r, &view, p.dim, drops);
  if (own.dim < 0) type.dim[1] = 1;
  return reshaped(r, own.dim < 0 ? plain(r, of) : r->made[of->id], &type);
}

/* Finds the positions of a result of `ndim` dims whose last dims are those of its arguments. */
static spread spread_beside(const rewriting *r, const sli_node *n, int ndim) {
  for (int i = 0; i < n->nin; i++) {
    spread p = spread_of(r, n->in[i]);
    if (p.dim >= 0) return (spread){p.dim + ndim - n->in[i]->type.ndim, p.inner};
  }
  return nowhere;
}

/* Applies the call's op, with these attributes, and sets its results' twins. */
static void apply(rewriting *r, const sl_attrs *attrs, sl_tensor *const *in, spread p) {
  const sli_node *n = r->now;
  sl_tensor *out[n->nout + 1];
  if (r->to->status) return;
  sl_apply_at(n->at, r->to, n->op, attrs, n->nin, in, UINT32_MAX, out);
  for (int o = 0; o < n->nout && !r->to->status; o++) settle(r, n->out[o], p, out[o]);
}

/* ---- calls -------------------------------------------------------------------------------------
 */

/* Combines elements at the same place; arguments' dims of length 1 are repeated. */
static void elements(rewriting *r) {
  const sli_node *n = r->now;
  const sl_type *y = &n->out_type[0];
  spread p = spread_beside(r, n, y->ndim);
  sl_tensor *in[n->nin + 1];
  for (int i = 0; i < n->nin && !r->to->status; i++)
    in[i] = n->in[i] ? operand(r, y, p, n->in[i]) : NULL;
  apply(r, &n->attrs, in, p);
}

/* Expands to the result's shape. */
static void expand(rewriting *r) {
  const sli_node *n = r->now;
  const sl_type *to = &n->out_type[0];
  spread p = spread_beside(r, n, to->ndim);
  sl_type view = view_of(r, to, p), type = twin_type(r, &view, p.dim, drops_first(to, p));
  sl_tensor *x = operand(r, to, p, n->in[0]);
  if (x) settle(r, n->out[0], p, sl_expand_at(n->at, r->to, x, type));
}

/* Works on the last dim of the first argument, whose rows the other arguments lack. */
static void rowwise(rewriting *r) {
  const sli_node *n = r->now;
  spread p = spread_of(r, n->in[0]);
  sl_tensor *in[n->nin + 1];
  for (int i = 0; i < n->nin; i++) {
    spread own = spread_of(r, n->in[i]);
    bool whole = i && own.dim < 0;
    in[i] = own.dim < 0 ? plain(r, n->in[i]) : r->made[n->in[i]->id];
    bool fits = whole || !n->in[i] ||
                (own.dim == p.dim && own.inner == p.inner && own.dim >= 0 &&
                 (own.dim < n->in[i]->type.ndim - 1 || n->in[i]->type.dtype == SL_I32));
    if (fits) continue;
    refuse(r, "it combines positions");
    return;
  }
  apply(r, &n->attrs, in, p);
}

/* Multiplies rows by a matrix without positions. */
static void product(rewriting *r, bool transposed) {
  const sli_node *n = r->now;
  sl_tensor *x = n->in[0], *w = n->in[1], *b = n->nin > 2 ? n->in[2] : NULL;
  spread p = spread_of(r, x);
  if (p.dim < 0 || spread_of(r, w).dim >= 0 || spread_of(r, b).dim >= 0) {
    refuse(r,
           "it multiplies positions by each other, which only attention with a causal mask or a "
           "window may do");
    return;
  }
  if (p.dim == x->type.ndim - 1 || w->type.ndim != 2) {
    refuse(r, "it multiplies along positions, or by several matrices");
    return;
  }
  sl_tensor *rows = r->made[x->id];
  int64_t width = sl_type_last(&rows->type), each = sl_type_elements(&rows->type) / width / r->rows;
  sl_type flat = SL_TYPE(SL_F32, 1, r->rows, width);
  if (each == 1) rows = reshaped(r, rows, &flat);
  settle(r, n->out[0], p, sl_linear_at(n->at, r->to, rows, plain(r, w), plain(r, b), transposed));
}

static void linear(rewriting *r) { product(r, r->now->attrs.product.transposed); }

static void matmul(rewriting *r) {
  const sl_attrs *a = &r->now->attrs;
  if (a->product.left_transposed)
    refuse(r, "it multiplies along positions, or by several matrices");
  else product(r, !a->product.transposed);
}

/* Finds the positions after a reshape: the dim that begins at the same element and counts T. */
static void reshape(rewriting *r) {
  const sli_node *n = r->now;
  const sl_type *x = &n->in_type[0], *y = &n->out_type[0];
  spread p = spread_of(r, n->in[0]);
  int64_t before = 1, prefix = 1;
  int d = 0;
  for (int k = 0; k < p.dim; k++) before *= x->dim[k];
  while (d < y->ndim && (prefix < before || y->dim[d] == 1)) prefix *= y->dim[d++];
  if (prefix != before || d == y->ndim || y->dim[d] % r->length) {
    refuse(r, "it merges positions with other dims");
    return;
  }
  settle(r, n->out[0], (spread){d, y->dim[d] / r->length}, r->made[n->in[0]->id]);
}

static void permute(rewriting *r) {
  const sli_node *n = r->now;
  const sl_attrs *a = &n->attrs;
  spread p = spread_of(r, n->in[0]), to = p;
  sl_type view = view_of(r, &n->in_type[0], p), full = {.dtype = view.dtype, .ndim = view.ndim + 1};
  sl_type order = {.ndim = view.ndim + 1, .dim = {0, 1}};
  if (full.ndim > SL_MAX_DIMS) {
    refuse(r, "it has too many dims");
    return;
  }
  full.dim[0] = 1, full.dim[1] = r->rows;
  for (int d = 0, k = 2; d < view.ndim; d++)
    if (d != p.dim) full.dim[k++] = view.dim[d];
  bool same = true;
  for (int d = 0, k = 2; d < a->shape.ndims; d++) {
    int in = (int)a->shape.dims[d], first = view_dim(p, in);
    if (in == p.dim) to.dim = d;
    else order.dim[k++] = first < p.dim ? first + 2 : first + 1;
    if (in == p.dim && p.inner > 1) order.dim[k++] = p.dim + 2;
  }
  for (int k = 0; k < order.ndim; k++) same &= order.dim[k] == k;
  sl_tensor *t = reshaped(r, r->made[n->in[0]->id], &full);
  settle(r, n->out[0], to, same ? t : sl_permute_at(n->at, r->to, t, order));
}

/* Returns the twin's dims for dims of a type with positions at `p`; 0 if they are among them. */
static uint32_t twin_axes(const sl_type *type, spread p, uint32_t axes) {
  uint32_t out = 0;
  for (int d = 0; d < type->ndim; d++) {
    if (!(axes >> d & 1)) continue;
    int at = d == p.dim ? -2 : twin_dim(p.dim, drops_first(type, p), view_dim(p, d));
    if (at == -2) return 0;
    if (at >= 0) out |= 1u << at;
  }
  return out;
}

/* Works along dims other than the positions. */
static void along(rewriting *r) {
  const sli_node *n = r->now;
  int ndim = n->in_type[0].ndim;
  spread p = spread_beside(r, n, ndim), to = p;
  sl_attrs attrs = n->attrs;
  bool one = sli_op_cut(n->op)->along == SL_ALONG_AXIS;
  uint32_t axes = attrs.along.axes ? attrs.along.axes : one ? 1u << (ndim - 1) : (1u << ndim) - 1;
  sl_type wide = n->in_type[0];
  for (int i = 0; i < n->nin; i++)
    if (n->in[i] && n->in[i]->type.ndim == ndim && spread_of(r, n->in[i]).dim >= 0)
      wide = n->in_type[i];
  attrs.along.axes = twin_axes(&wide, p, axes);
  if (!attrs.along.axes) {
    refuse(r, "it combines positions");
    return;
  }
  if (one && !n->attrs.along.axes) attrs.along.axes = 0; /* the last dim stays the last */
  sl_tensor *in[n->nin + 1];
  for (int i = 0; i < n->nin && !r->to->status; i++)
    in[i] = n->in[i] ? operand(r, &wide, p, n->in[i]) : NULL;
  if (n->out_type[0].ndim < ndim) to.dim -= __builtin_popcount(axes & ((1u << p.dim) - 1));
  apply(r, &attrs, in, to);
}

/* Takes positions of a dim, as part of a split, which works row by row. */
static void slice(rewriting *r) {
  const sli_node *n = r->now;
  const sl_part *part = n->attrs.user;
  spread p = spread_of(r, n->in[0]);
  bool one = part->axis >= 0 && part->nranges == 1;
  if (one && part->axis == p.dim && part->count[0] == n->in_type[0].dim[p.dim]) {
    settle(r, n->out[0], p, r->made[n->in[0]->id]);
    return;
  }
  uint32_t axes = one ? twin_axes(&n->in_type[0], p, 1u << part->axis) : 0;
  if (!axes) {
    refuse(r,
           "it takes some positions; each position is computed by itself, so none may be left out");
    return;
  }
  int64_t whole = n->in_type[0].dim[part->axis], lengths[3];
  int count = 0, wanted = part->begin[0] > 0;
  if (part->begin[0]) lengths[count++] = part->begin[0];
  lengths[count++] = part->count[0];
  if (part->begin[0] + part->count[0] < whole)
    lengths[count++] = whole - part->begin[0] - part->count[0];
  sl_tensor *outs[3] = {NULL}, *x = r->made[n->in[0]->id];
  if (count == 1) outs[0] = x;
  else sl_split_at(n->at, r->to, x, __builtin_ctz(axes), count, lengths, outs);
  settle(r, n->out[0], p, outs[wanted]);
}

/* Returns the twin of a tensor whose rows are along dim 0, with the tensor's own dims. */
static sl_tensor *batch_of(const rewriting *r, const sl_tensor *t) {
  sl_type type = t->type;
  type.dim[0] = r->rows * r->where[t->id].inner;
  return reshaped(r, r->made[t->id], &type);
}

/* Gives a row its place among its sequence's positions, or attends to earlier ones. */
static void by_position(rewriting *r) {
  const sli_node *n = r->now;
  sl_tensor *in[n->nin + 1];
  spread p = spread_of(r, n->in[0]);
  if (r->axis && n->attrs.attention.full && n->op != &sl_op_rotary) {
    refuse(r, "its queries attend to later positions");
    return;
  }
  for (int i = 0; i < n->nin; i++) {
    spread own = spread_of(r, n->in[i]);
    bool fits = !n->in[i] || (own.dim == r->axis && (own.inner == 1 || !r->axis));
    in[i] = n->in[i] ? r->made[n->in[i]->id] : NULL;
    if (in[i] && fits && !r->axis) in[i] = batch_of(r, n->in[i]);
    if (fits) continue;
    refuse(r, "its sequences are not along dim 1 of all its arguments");
    return;
  }
  sl_tensor *out[n->nout + 1];
  if (r->to->status) return;
  sl_apply_at(n->at, r->to, n->op, &n->attrs, n->nin, in, UINT32_MAX, out);
  settle(r, n->out[0], p, out[0]); /* the others are for the gradient */
}

/* A learned table added to rows is added at their positions. */
static bool adds_table(rewriting *r) {
  const sli_node *n = r->now;
  for (int i = 0; i < 2; i++) {
    sl_tensor *x = n->in[i], *t = n->in[1 - i];
    spread p = spread_of(r, x);
    int64_t width = sl_type_last(&t->type);
    bool beside = p.dim == n->out_type[0].ndim - 2 && p.inner == 1 && x->type.ndim > p.dim &&
                  spread_of(r, t).dim < 0 && sl_type_elements(&t->type) == r->length * width &&
                  t->type.ndim > 1 && t->type.dim[t->type.ndim - 2] == r->length &&
                  sl_type_last(&x->type) == width && !constant_of(t);
    if (!beside || sl_type_elements(&n->out_type[0]) != r->length * width) continue;
    sl_type rows = SL_TYPE(SL_F32, 1, r->rows, width);
    sl_tensor *table = table_of(r, t, &t->type, t->type.ndim - 2);
    sl_tensor *y =
        sl_op2_at(n->at, r->to, &sl_op_position, NULL, reshaped(r, r->made[x->id], &rows), table);
    settle(r, n->out[0], p, y);
    return true;
  }
  return false;
}

static void add(rewriting *r) {
  if (!r->axis || !adds_table(r)) elements(r);
}

static const struct {
  const sl_op *op;
  void (*write)(rewriting *r);
} writers[] = {{&sl_op_reshape, reshape},       {&sl_op_permute, permute},
               {&sl_op_expand, expand},         {&sl_op_slice, slice},
               {&sl_op_linear, linear},         {&sl_op_matmul, matmul},
               {&sl_op_attention, by_position}, {&sl_op_attention_packed, by_position},
               {&sl_op_rotary, by_position},    {&sl_op_add, add}};

/* Writes a call that reads positions. */
static void write_rows(rewriting *r) {
  const sli_node *n = r->now;
  const sl_op_cut *cut = sli_op_cut(n->op);
  for (size_t i = 0; i < SLI_COUNT(writers); i++)
    if (writers[i].op == n->op) {
      writers[i].write(r);
      return;
    }
  if (sli_op_is(n->op, SL_OP_LOCATED)) refuse(r, "its result depends on where an element is");
  else if (cut->pieces == SL_PIECES_ELEMENTS || cut->along == SL_ALONG_NOTHING) elements(r);
  else if (cut->along) along(r);
  else if (cut->pieces == SL_PIECES_ROWS) rowwise(r);
  else refuse(r, "it may combine positions, in a way that has no served form");
}

/* Copies a call that reads no positions. A constant needs no shape of another tensor. */
static void copy(rewriting *r) {
  const sli_node *n = r->now;
  int nin = n->op == &sl_op_constant ? 0 : n->nin;
  sl_tensor *in[n->nin + 1], *out[n->nout + 1];
  for (int i = 0; i < nin; i++) in[i] = plain(r, n->in[i]);
  if (r->to->status) return;
  sl_apply_at(n->at, r->to, n->op, &n->attrs, nin, in, UINT32_MAX, out);
  for (int o = 0; o < n->nout; o++)
    if (n->out[o]) r->made[n->out[o]->id] = out[o];
}

static bool has_positions(const rewriting *r, const sli_node *n) {
  bool any = false;
  for (int i = 0; i < n->nin; i++) any |= spread_of(r, n->in[i]).dim >= 0;
  return any && n->op != &sl_op_constant;
}

static void enter_block(rewriting *r, int *block) {
  if (r->now->block == *block) return;
  *block = r->now->block;
  sl_block(r->to, "%s", r->from->blocks[*block].name);
}

/* Marks the nodes that the logits need, from last to first. */
static bool *needed(const sl_graph *g, const sl_tensor *logits, sli_arena *arena) {
  bool *out = sli_arena_alloc(arena, ((size_t)g->nnodes + 1) * sizeof *out);
  if (logits->producer) out[logits->producer->id] = true;
  for (int i = g->nnodes - 1; i >= 0; i--)
    for (int a = 0; out[i] && a < g->nodes[i]->nin; a++) {
      const sl_tensor *t = g->nodes[i]->in[a];
      if (t && t->producer) out[t->producer->id] = true;
    }
  return out;
}

/* Writes the calls that the logits need. Returns the logits of all rows, or NULL. */
static sl_tensor *rewrite(rewriting *r, const sl_tensor *logits, sl_tensor *rows) {
  size_t count = (size_t)r->from->ntensors + 1;
  r->made = sl_graph_alloc(r->to, count * sizeof(sl_tensor *));
  r->where = sl_graph_alloc(r->to, count * sizeof *r->where);
  for (size_t i = 0; i < count; i++) r->where[i] = nowhere;
  r->made[r->tokens->id] = rows;
  r->where[r->tokens->id] = (spread){r->axis, 1};
  const bool *wanted = needed(r->from, logits, &r->to->arena);
  int block = -1;
  for (int i = 0; i < r->from->nnodes && !r->to->status; i++) {
    const sli_node *n = r->now = r->from->nodes[i];
    if (!wanted[i] || sli_op_is(n->op, SL_OP_SOURCE)) continue;
    enter_block(r, &block);
    if (has_positions(r, n)) write_rows(r);
    else copy(r);
  }
  free(r->lookups);
  if (!r->to->status && r->where[logits->id].dim < 0)
    refuse(r, "its result does not depend on the tokens");
  return r->to->status ? NULL : r->made[logits->id];
}

sl_tensor *sli_served_rewrite(const sli_served_how *how, sl_graph *from, const sl_tensor *tokens,
                              const sl_tensor *logits, sl_graph *to, sl_tensor *rows) {
  rewriting r = {.from = from,
                 .to = to,
                 .how = how,
                 .tokens = tokens,
                 .axis = 1,
                 .length = tokens->type.dim[1],
                 .rows = rows->type.dim[1]};
  sl_tensor *out = rewrite(&r, logits, rows);
  sl_type flat = SL_TYPE(SL_F32, 1, r.rows, sl_type_last(&logits->type));
  return out ? reshaped(&r, out, &flat) : NULL;
}

void sli_served_check_batch(const sli_served_how *how, sl_graph *from, const sl_tensor *tokens,
                            const sl_tensor *logits, sl_graph *to, sl_tensor *rows) {
  rewriting r = {.from = from,
                 .to = to,
                 .how = how,
                 .tokens = tokens,
                 .length = tokens->type.dim[0],
                 .rows = rows->type.dim[1]};
  rewrite(&r, logits, rows);
}
