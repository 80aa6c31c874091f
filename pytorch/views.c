/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that move elements without computing. */
#include <string.h>

#include "pytorch/emit.h"
#include "pytorch/rows.h"

void sli_emit_same(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_first(n);
  if (!x || !n->nouts || !n->outs[0]) return;
  sli_made *from = sli_made_of(m, x), *to = sli_made_of(m, n->outs[0]);
  if (from->sorted) to->sorted = true, to->each = from->each;
  else to->tensor = sli_pt_tensor(m, x);
  to->ids = from->ids;
}

/* Returns the dims of length 1 that squeeze drops, or 0 if the call is another. */
static uint32_t squeezed_dims(const sli_import *m, const sli_pt_node *n, const sli_pt_type *x) {
  uint32_t ones = 0;
  if (strncmp(n->target, "aten.squeeze.", 13) != 0) return 0;
  for (int d = 0; d < x->ndim; d++) ones |= (x->dim[d] == 1 ? 1u : 0u) << d;
  return sli_pt_arg_find(n, "dim") ? ones & sli_pt_axes(m, n, "dim", x->ndim) : ones;
}

/* Makes a view, which may need all positions of dims that are the same for all rows. */
static sl_tensor *viewed(sli_import *m, const sli_pt_node *n, sl_tensor *t, const sli_pt_value *x) {
  const sli_pt_type *to = &n->outs[0]->type;
  const char *why;
  uint32_t squeezed = squeezed_dims(m, n, &x->type);
  for (int d = 0; d < x->type.ndim; d++)
    if (sli_has_rows(sli_rows_of(m, t), d)) squeezed &= ~(1u << d);
  if (squeezed && to->ndim + __builtin_popcount(squeezed) == x->type.ndim)
    return sli_pt_drop_dims(m, t, squeezed);
  if (!strcmp(n->target, "aten.unsqueeze.default"))
    return sli_pt_add_dim(m, t, sli_pt_dim(m, n, "dim", to->ndim, 0));
  sl_tensor *y = sli_pt_view(m, t, &x->type, to, &why);
  if (!y && !m->g->status) {
    sl_tensor *whole = sli_pt_expand_repeated(m, t, &x->type, ~0u);
    if (whole && whole != t) y = sli_pt_view(m, whole, &x->type, to, &why);
  }
  if (!y && !m->g->status)
    sli_pt_refuse(
        m, n, "%s; export with torch.export.Dim, or with a batch size that no other dim has", why);
  return y;
}

/* Calls that only change the shape. The exported dims of the outputs give the new shape. */
void sli_emit_view(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_first(n);
  if (x && sli_made_of(m, x)->sorted) {
    sli_emit_same(m, n, row);
    return;
  }
  sl_tensor *t = sli_pt_tensor(m, x);
  if (!t) return;
  if (t->type.dtype == SL_F64 && !t->type.ndim && !n->outs[0]->type.ndim) {
    sli_pt_out(m, n, 0, t);
    return;
  }
  sli_pt_out(m, n, 0, viewed(m, n, t, x));
}

/* Expands dims of length 1, except rows: a tensor that is the same for all rows keeps length 1
 * there until a call needs the rows. */
static sl_tensor *expand_to(sli_import *m, sl_tensor *t, const sli_pt_type *from,
                            const sli_pt_type *to) {
  sl_type dims = {.dtype = SL_F32, .ndim = to->ndim};
  int shift = to->ndim - from->ndim;
  bool same = !shift;
  if (!t) return NULL;
  if (to->ndim) t = sli_pt_narrow(m, t);
  for (int d = 0; t && d < to->ndim; d++) {
    bool old = d >= shift && (from->dim[d - shift] != 1 || to->dim[d] == 1);
    bool rows = !old && sli_pt_may_be_rows(m, to, d);
    dims.dim[d] = old ? t->type.dim[d - shift] : rows ? 1 : to->dim[d];
    same &= old || (rows && d >= shift);
  }
  return same ? t : sl_expand_at(m->at, m->g, t, dims);
}

void sli_emit_expand(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_first(n);
  sli_pt_out(m, n, 0, expand_to(m, sli_pt_tensor(m, x), &x->type, &n->outs[0]->type));
}

void sli_emit_permute(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_first(n);
  sl_tensor *t = sli_pt_tensor(m, x);
  int order[SLI_PT_DIMS], ndim = x->type.ndim;
  if (!sli_pt_order(m, n, ndim, order)) return;
  if (t && t->type.ndim == ndim) sli_pt_out(m, n, 0, sli_pt_permute(m, t, ndim, order));
}

/* ---- parts --------------------------------------------------------------------------------- */

/* Takes every step-th position: splits the dim into runs of `step`, and takes one position of each
 * run. */
static sl_tensor *take_steps(sli_import *m, sl_tensor *t, int dim, int64_t begin, int64_t count,
                             int64_t step) {
  int64_t length = sl_dim(t, dim), first = begin - begin % step;
  if (first + count * step > length) return NULL;
  if (first || count * step < length) t = sl_slice_at(m->at, m->g, t, dim, first, count * step);
  if (!t || t->type.ndim == SL_MAX_DIMS) return NULL;
  sl_type runs = {.dtype = t->type.dtype, .ndim = t->type.ndim + 1}, out = t->type;
  for (int d = 0; d < runs.ndim; d++)
    runs.dim[d] = d < dim        ? t->type.dim[d]
                  : d == dim     ? count
                  : d == dim + 1 ? step
                                 : t->type.dim[d - 1];
  out.dim[dim] = count;
  t = sl_reshape_at(m->at, m->g, t, runs);
  t = sl_slice_at(m->at, m->g, t, dim + 1, begin % step, 1);
  return t ? sl_reshape_at(m->at, m->g, t, out) : NULL;
}

/* Sets an empty tensor, which only a concatenation reads. */
static void out_empty(sli_import *m, const sli_pt_node *n) {
  sli_pt_out_array(m, n, 0, sli_pt_array_make(&m->arena, &n->outs[0]->type));
}

void sli_emit_slice(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_first(n);
  sl_tensor *t = sli_pt_tensor(m, x);
  if (!t) return;
  int dim = sli_pt_dim(m, n, "dim", x->type.ndim, 0);
  int64_t length = x->type.dim[dim], step = sli_pt_whole(m, n, "step", 1);
  int64_t start = sli_pt_whole(m, n, "start", 0), count = n->outs[0]->type.dim[dim];
  if (start < 0) start = SLI_MAX(start + length, 0);
  if (count == length) sli_pt_out(m, n, 0, t);
  else if (t->type.dim[dim] != length)
    sli_pt_refuse(m, n, "it takes some rows of a batch, which are those of a microbatch here");
  else if (count < 1) out_empty(m, n);
  else if (step == 1) sli_pt_out(m, n, 0, sl_slice_at(m->at, m->g, t, dim, start, count));
  else {
    sl_tensor *y = take_steps(m, t, dim, start, count, step);
    if (!y) {
      int64_t *at = sli_arena_alloc(&m->arena, (size_t)count * sizeof *at);
      for (int64_t i = 0; i < count; i++) at[i] = start + i * step;
      y = sli_pt_take(m, t, dim, count, at);
    }
    sli_pt_out(m, n, 0, y);
  }
}

/* narrow(dim, start, length). */
void sli_emit_narrow(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_first(n);
  sl_tensor *t = sli_pt_tensor(m, x);
  if (!t || !x->type.ndim) return;
  int dim = sli_pt_dim(m, n, "dim", x->type.ndim, 0);
  int64_t length = x->type.dim[dim], count = sli_pt_whole(m, n, "length", length);
  int64_t start = sli_pt_whole(m, n, "start", 0);
  if (start < 0) start += length;
  if (count == length) sli_pt_out(m, n, 0, t);
  else if (t->type.dim[dim] != length)
    sli_pt_refuse(m, n, "it takes some rows of a batch, which are those of a microbatch here");
  else sli_pt_out(m, n, 0, sl_slice_at(m->at, m->g, t, dim, start, count));
}

/* movedim(source, destination): the other dims keep their order. */
void sli_emit_movedim(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_first(n);
  sl_tensor *t = sli_pt_tensor(m, x);
  int from[SLI_PT_DIMS], to[SLI_PT_DIMS], order[SLI_PT_DIMS], ndim = x ? x->type.ndim : 0;
  int count = sli_pt_dims(m, n, "source", ndim, from);
  if (!t || count < 1 || sli_pt_dims(m, n, "destination", ndim, to) != count) return;
  for (int d = 0; d < ndim; d++) order[d] = -1;
  uint32_t used = 0;
  for (int i = 0; i < count; i++) order[to[i]] = from[i], used |= 1u << from[i];
  for (int d = 0, next = 0; d < ndim; d++) {
    if (order[d] >= 0) continue;
    while (used >> next & 1) next++;
    order[d] = next++;
  }
  sli_pt_out(m, n, 0, sli_pt_permute(m, t, ndim, order));
}

/* Drops a dim of length 1. */
static sl_tensor *drop_dim(sli_import *m, sl_tensor *t, int dim) {
  return sli_pt_drop_dims(m, t, 1u << dim);
}

void sli_emit_select(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_first(n);
  sl_tensor *t = sli_pt_tensor(m, x);
  if (!t) return;
  int dim = sli_pt_dim(m, n, "dim", x->type.ndim, 0);
  int64_t at = sli_pt_whole(m, n, "index", 0);
  if (t->type.dim[dim] != x->type.dim[dim]) {
    sli_pt_refuse(m, n, "it takes one row of a batch");
    return;
  }
  if (at < 0) at += t->type.dim[dim];
  sli_pt_out(m, n, 0, drop_dim(m, sl_slice_at(m->at, m->g, t, dim, at, 1), dim));
}

static void split_parts(sli_import *m, const sli_pt_node *n, sl_tensor **parts) {
  const sli_pt_value *x = sli_pt_first(n);
  sl_tensor *t = sli_pt_tensor(m, x);
  if (!t) return;
  int dim = sli_pt_dim(m, n, "dim", x->type.ndim, 0);
  int64_t *lengths = sli_arena_alloc(&m->arena, (size_t)n->nouts * sizeof *lengths);
  for (int i = 0; i < n->nouts; i++) {
    if (!n->outs[i]) {
      sli_pt_refuse(m, n, "a part without a name");
      return;
    }
    lengths[i] = n->outs[i]->type.ndim == x->type.ndim ? n->outs[i]->type.dim[dim] : 1;
  }
  if (t->type.dim[dim] != x->type.dim[dim]) sli_pt_refuse(m, n, "it divides the rows of a batch");
  else if (n->nouts == 1) parts[0] = t;
  else sl_split_at(m->at, m->g, t, dim, n->nouts, lengths, parts);
}

void sli_emit_split(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor **parts = sli_arena_alloc(&m->arena, ((size_t)n->nouts + 1) * sizeof *parts);
  split_parts(m, n, parts);
  for (int i = 0; i < n->nouts; i++) sli_pt_out(m, n, i, parts[i]);
}

void sli_emit_unbind(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor **parts = sli_arena_alloc(&m->arena, ((size_t)n->nouts + 1) * sizeof *parts);
  split_parts(m, n, parts);
  int dim = sli_pt_dim(m, n, "dim", sli_pt_first(n)->type.ndim, 0);
  for (int i = 0; i < n->nouts; i++) sli_pt_out(m, n, i, drop_dim(m, parts[i], dim));
}

/* ---- concatenation --------------------------------------------------------------------------- */

static sl_tensor *as_dtype(sli_import *m, sl_tensor *t, sl_dtype dtype) {
  t = sli_pt_narrow(m, t);
  return t && t->type.dtype != dtype ? sl_cast_at(m->at, m->g, t, dtype) : t;
}

/* Returns the part with the most elements in dims other than `dim`: it has the rows, if any part
 * does. */
static sl_tensor *widest_of(sl_tensor *const *parts, int count, int dim) {
  sl_tensor *widest = NULL;
  int64_t most = 0;
  for (int i = 0; i < count; i++) {
    int64_t size = parts[i] ? sl_type_elements(&parts[i]->type) / parts[i]->type.dim[dim] : 0;
    if (size > most) most = size, widest = parts[i];
  }
  return widest;
}

/* Concatenates parts along a dim. Parts that are the same for all rows are expanded. */
static sl_tensor *concat(sli_import *m, int dim, int count, sl_tensor **parts) {
  sl_tensor *like = widest_of(parts, count, dim);
  for (int i = 0; i < count; i++) parts[i] = sli_pt_widen(m, parts[i], like, dim);
  return count == 1 ? parts[0] : sl_concat_at(m->at, m->g, dim, count, parts);
}

void sli_emit_cat(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_arg *list = sli_pt_arg_find(n, "tensors");
  if (!list || list->kind != SLI_PT_LIST || !list->list.count) return;
  bool stacks = strstr(n->target, ".stack.") != NULL, floats = false;
  int count = list->list.count, used = 0;
  int dim = sli_pt_dim(m, n, "dim", n->outs[0]->type.ndim, 0);
  if (strstr(n->target, "hstack") && n->outs[0]->type.ndim > 1) dim = 1;
  sl_tensor **parts = sli_arena_alloc(&m->arena, (size_t)count * sizeof *parts);
  for (int i = 0; i < count; i++) {
    const sli_pt_value *v = list->list.of[i].kind == SLI_PT_VALUE ? list->list.of[i].value : NULL;
    if (!v || !sli_pt_elements(&v->type)) continue;
    if (!stacks && v->type.ndim != n->outs[0]->type.ndim) continue;
    bool whole = !sli_pt_floats(n->outs[0]->type.dtype);
    sl_tensor *t = whole ? sli_pt_i32(m, v) : sli_pt_tensor(m, v);
    parts[used++] = stacks ? sli_pt_add_dim(m, t, dim) : t;
    floats |= t && t->type.dtype == SL_F32;
  }
  for (int i = 0; i < used; i++) parts[i] = as_dtype(m, parts[i], floats ? SL_F32 : SL_I32);
  sli_pt_out(m, n, 0, used ? concat(m, dim, used, parts) : NULL);
}

/* Makes a tensor of one number in the shape of t, with another length along a dim. */
static sl_tensor *filled_beside(sli_import *m, sl_tensor *t, int dim, int64_t length,
                                double value) {
  sl_tensor *like = sl_slice_at(m->at, m->g, t, dim, 0, 1);
  if (!like) return NULL;
  sl_tensor *one = sl_filled_at(m->at, m->g, like->type, (float)value, like);
  sl_type dims = like->type;
  dims.dim[dim] = length;
  return length == 1 ? one : sl_expand_at(m->at, m->g, one, dims);
}

/* Adds `before` and `after` positions of one number along a dim, or removes some. */
sl_tensor *sli_pt_pad_dim(sli_import *m, sl_tensor *t, int dim, int64_t before, int64_t after,
                          double value) {
  if (!t) return NULL;
  int64_t cut_before = SLI_MAX(-before, 0), cut_after = SLI_MAX(-after, 0);
  if (cut_before || cut_after)
    t = sl_slice_at(m->at, m->g, t, dim, cut_before, sl_dim(t, dim) - cut_before - cut_after);
  sl_tensor *parts[3];
  int count = 0;
  if (before > 0) parts[count++] = filled_beside(m, t, dim, before, value);
  parts[count++] = t;
  if (after > 0) parts[count++] = filled_beside(m, t, dim, after, value);
  return count == 1 ? t : sl_concat_at(m->at, m->g, dim, count, parts);
}

void sli_emit_pad(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_first(n);
  const sli_pt_arg *mode = sli_pt_arg_find(n, "mode");
  int64_t pad[2 * SLI_PT_DIMS];
  int count = sli_pt_wholes(m, n, "pad", 2 * SLI_PT_DIMS, pad);
  sl_tensor *t = sli_pt_tensor(m, x);
  if (mode && mode->kind == SLI_PT_TEXT && strcmp(mode->text, "constant")) {
    sl_tensor *y = sli_pt_edges(m, n, t, mode->text);
    if (!y) sli_pt_refuse(m, n, "padding of the mode %s is not supported here", mode->text);
    sli_pt_out(m, n, 0, y);
    return;
  }
  for (int i = 0; i + 1 < count; i += 2)
    t = sli_pt_pad_dim(m, t, x->type.ndim - 1 - i / 2, pad[i], pad[i + 1],
                       sli_pt_number(m, n, "value", 0));
  sli_pt_out(m, n, 0, t);
}

/* repeat(repeats): concatenates copies along each dim. */
void sli_emit_repeat(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_first(n);
  sl_tensor *t = sli_pt_tensor(m, x);
  int64_t repeats[SLI_PT_DIMS];
  int count = sli_pt_wholes(m, n, n->args[n->nargs - 1].name, SLI_PT_DIMS, repeats);
  int missing = t ? t->type.ndim - count : 0; /* tile() may list fewer dims */
  if (count < 0 || t == NULL) return;
  if (missing > 0) {
    memmove(repeats + missing, repeats, (size_t)count * sizeof *repeats);
    for (int d = 0; d < missing; d++) repeats[d] = 1;
    count += missing;
  }
  for (int d = 0; d < count; d++)
    if (repeats[d] < 1 || repeats[d] > SLI_PT_MOST) return;
  for (int shift = count - x->type.ndim; t && shift > 0; shift--) t = sli_pt_add_dim(m, t, 0);
  for (int d = 0; t && d < count; d++) {
    int64_t times = repeats[d];
    bool rows = t->type.dim[d] == 1 && sli_pt_may_be_rows(m, &n->outs[0]->type, d);
    if (times == 1 || rows) continue;
    if (t->type.dim[d] == 1) {
      sl_type dims = t->type;
      dims.dim[d] = times;
      t = sl_expand_at(m->at, m->g, t, dims);
      continue;
    }
    sl_tensor **parts = sli_arena_alloc(&m->arena, (size_t)times * sizeof *parts);
    for (int64_t i = 0; i < times; i++) parts[i] = t;
    bool by_rows = m->p->rows && n->outs[0]->type.rows >> d & 1 && times == m->rows &&
                   !sli_has_rows(sli_rows_of(m, t), d);
    sli_rows with = *sli_rows_of(m, t);
    with.dim[d] = (sli_dim_rows){by_rows, t->type.dim[d], false};
    t = sl_concat_at(m->at, m->g, d, (int)times, parts);
    if (by_rows) sli_rows_set(m, t, &with);
  }
  sli_pt_out(m, n, 0, t);
}

/* Repeats each position of a dim several times. */
static sl_tensor *repeat_each(sli_import *m, sl_tensor *t, int dim, int64_t times) {
  t = times == 1 ? t : sli_pt_add_dim(m, t, dim + 1);
  if (!t || times == 1) return t;
  sl_type dims = t->type, to;
  dims.dim[dim + 1] = times;
  t = sl_expand_at(m->at, m->g, t, dims);
  to = dims;
  to.dim[dim] *= times;
  memmove(to.dim + dim + 1, to.dim + dim + 2, (size_t)(to.ndim - dim - 2) * sizeof *to.dim);
  to.ndim--;
  return t ? sl_reshape_at(m->at, m->g, t, to) : NULL;
}

/* repeat_interleave(repeats, dim). */
void sli_emit_interleave(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_first(n);
  sl_tensor *t = sli_pt_tensor(m, x);
  if (!sli_pt_arg_find(n, "dim")) sli_pt_refuse(m, n, "it needs a dim");
  else
    sli_pt_out(m, n, 0,
               repeat_each(m, t, sli_pt_dim(m, n, "dim", x->type.ndim, 0),
                           sli_pt_whole(m, n, "repeats", 1)));
}

void sli_emit_roll(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_first(n);
  sl_tensor *t = sli_pt_tensor(m, x);
  int64_t shifts[SLI_PT_DIMS];
  int dims[SLI_PT_DIMS], count = sli_pt_wholes(m, n, "shifts", SLI_PT_DIMS, shifts);
  if (count < 1 || sli_pt_dims(m, n, "dims", x->type.ndim, dims) != count) {
    sli_pt_refuse(m, n, "it needs a dim for each shift");
    return;
  }
  for (int i = 0; t && i < count; i++) {
    int dim = dims[i];
    int64_t length = sl_dim(t, dim), by = (shifts[i] % length + length) % length;
    if (!by) continue;
    sl_tensor *parts[2] = {sl_slice_at(m->at, m->g, t, dim, length - by, by),
                           sl_slice_at(m->at, m->g, t, dim, 0, length - by)};
    t = sl_concat_at(m->at, m->g, dim, 2, parts);
  }
  sli_pt_out(m, n, 0, t);
}

void sli_emit_flip(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_first(n);
  sl_tensor *t = sli_pt_tensor(m, x);
  int dims[SLI_PT_DIMS], count = sli_pt_dims(m, n, "dims", x->type.ndim, dims);
  if (count < 0) return;
  for (int i = 0; t && i < count; i++) {
    int dim = dims[i];
    int64_t length = sl_dim(t, dim), *at = sli_arena_alloc(&m->arena, (size_t)length * sizeof *at);
    for (int64_t k = 0; k < length; k++) at[k] = length - 1 - k;
    if (length > 1) t = sli_pt_take(m, t, dim, length, at);
  }
  sli_pt_out(m, n, 0, t);
}

/* tril, triu: zeros on one side of a diagonal. */
void sli_emit_triangle(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  const sli_pt_value *x = sli_pt_first(n);
  sl_tensor *t = sli_pt_f32(m, x);
  if (!t || t->type.ndim < 2) return;
  bool lower = strstr(row->target, "tril") != NULL;
  int64_t h = sl_dim(t, -2), w = sl_dim(t, -1), diagonal = sli_pt_whole(m, n, "diagonal", 0);
  float *mask = sl_graph_alloc(m->g, (size_t)(h * w) * sizeof *mask);
  for (int64_t i = 0; i < h; i++)
    for (int64_t j = 0; j < w; j++) mask[i * w + j] = lower ? j - i <= diagonal : j - i >= diagonal;
  sl_tensor *c = sl_constant_at(m->at, m->g, SL_TYPE(SL_F32, h, w), mask, NULL);
  sli_pt_out(m, n, 0, sl_mul_at(m->at, m->g, t, c));
}

/* upsample_nearest: repeats each position of an image. */
void sli_emit_upsample(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_first(n);
  sl_tensor *t = sli_pt_tensor(m, x);
  const sli_pt_type *to = &n->outs[0]->type;
  if (!sli_pt_repeats_positions(m, n)) {
    sli_pt_out(m, n, 0, sli_pt_nearest(m, n));
    return;
  }
  for (int d = 2; t && d < x->type.ndim; d++) t = repeat_each(m, t, d, to->dim[d] / x->type.dim[d]);
  sli_pt_out(m, n, 0, t);
}

/* diff(self, prepend): the difference from the previous position. */
void sli_emit_diff(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_first(n), *before = sli_pt_arg_value(n, "prepend");
  sl_tensor *t = sli_pt_f32(m, x);
  if (!t || sli_pt_whole(m, n, "n", 1) != 1 || sli_pt_arg_find(n, "append")) return;
  int dim = sli_pt_dim(m, n, "dim", x->type.ndim, -1);
  if (before) {
    sl_tensor *parts[2] = {sli_pt_f32(m, before), t};
    t = sl_concat_at(m->at, m->g, dim, 2, parts);
  }
  int64_t count = sl_dim(t, dim) - 1;
  sl_tensor *late = sl_slice_at(m->at, m->g, t, dim, 1, count),
            *early = sl_slice_at(m->at, m->g, t, dim, 0, count);
  sli_pt_out(m, n, 0, sl_op2_at(m->at, m->g, &sl_op_sub, NULL, late, early));
}

/* ---- writes -------------------------------------------------------------------------------- */

/* copy_(self, src): src in self's shape and type. */
void sli_emit_copy(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *x = sli_pt_arg_value(n, "src");
  sl_tensor *t = sli_pt_tensor(m, x);
  if (t && sli_pt_floats(n->outs[0]->type.dtype)) t = as_dtype(m, t, SL_F32);
  sli_pt_out(m, n, 0, x ? expand_to(m, t, &x->type, &n->outs[0]->type) : NULL);
}

/* Replaces a slice or a position of a whole: the parts before and after it are kept. */
void sli_emit_put(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *whole = sli_pt_first(n), *part = sli_pt_arg_value(n, "put");
  sl_tensor *new_part = sli_pt_tensor(m, part);
  if (!new_part) return;
  bool slices = strstr(n->target, "slice") != NULL, selects = strstr(n->target, "select") != NULL;
  if (!slices && !selects) { /* a view of the whole */
    const char *why;
    sli_pt_out(m, n, 0, sli_pt_view(m, new_part, &part->type, &whole->type, &why));
    return;
  }
  int dim = sli_pt_dim(m, n, "dim", whole->type.ndim, 0);
  int64_t length = whole->type.dim[dim];
  int64_t start = sli_pt_whole(m, n, slices ? "start" : "index", 0);
  if (start < 0) start = SLI_MAX(start + length, 0);
  if (selects) new_part = sli_pt_add_dim(m, new_part, dim);
  if (!new_part) return;
  int64_t count = n->args[n->nargs - 1].value->type.dim[dim];
  if (selects) count = 1;
  int64_t rest = length - start - count;
  if (slices && sli_pt_whole(m, n, "step", 1) != 1) {
    sli_pt_refuse(m, n, "a write with steps is not supported");
    return;
  }
  sl_tensor *old = start || rest > 0 ? sli_pt_unrepeated(m, whole) : NULL, *parts[3];
  if (old && old->type.dim[dim] != length) {
    sli_pt_refuse(m, n, "it writes some rows of a batch, which are those of a microbatch here");
    return;
  }
  bool floats = new_part->type.dtype == SL_F32 || (old && old->type.dtype == SL_F32);
  new_part = as_dtype(m, new_part, floats ? SL_F32 : SL_I32);
  if (old) old = as_dtype(m, old, floats ? SL_F32 : SL_I32);
  int used = 0;
  if (start) parts[used++] = sl_slice_at(m->at, m->g, old, dim, 0, start);
  parts[used++] = new_part;
  if (rest > 0) parts[used++] = sl_slice_at(m->at, m->g, old, dim, start + count, rest);
  sli_pt_out(m, n, 0, concat(m, dim, used, parts));
}

/* broadcast_tensors: expands each tensor to the common shape. */
void sli_emit_broadcast(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_arg *list = sli_pt_arg_find(n, "tensors");
  if (!list || list->kind != SLI_PT_LIST || list->list.count != n->nouts) return;
  for (int i = 0; i < n->nouts; i++) {
    const sli_pt_value *v = list->list.of[i].kind == SLI_PT_VALUE ? list->list.of[i].value : NULL;
    if (!v || !n->outs[i]) return;
    if (sli_constant(m, v)) sli_made_of(m, n->outs[i])->array = sli_constant(m, v);
    else sli_pt_out(m, n, i, expand_to(m, sli_pt_tensor(m, v), &v->type, &n->outs[i]->type));
  }
}
