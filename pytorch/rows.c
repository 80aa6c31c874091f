/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a batch, followed through the ops of a graph. */
#include "pytorch/rows.h"

#include <string.h>

#include "ops/views.h"
#include "pytorch/emit.h"

/* ---- records ----------------------------------------------------------------------------------
 */

bool sli_any_rows(const sli_rows *r) {
  bool any = r->lost;
  for (int d = 0; d < SL_MAX_DIMS; d++) any |= sli_has_rows(r, d);
  return any;
}

static int count_rows(const sli_rows *r) {
  int count = 0;
  for (int d = 0; d < SL_MAX_DIMS; d++) count += sli_has_rows(r, d);
  return count;
}

/* Returns whether a dim of the program is a multiple of a number. */
static bool divides_some(const sli_pt_program *p, int64_t number) {
  for (int i = 0; i < p->nvalues; i++)
    for (int d = 0; d < p->values[i]->type.ndim; d++)
      if (p->values[i]->type.dim[d] && p->values[i]->type.dim[d] % number == 0) return true;
  return false;
}

void sli_rows_begin(sli_import *m) {
  static const int64_t primes[] = {1009, 1511, 2003, 4001, 8191, 10007, 20011};
  size_t i = 0;
  while (i + 1 < SLI_COUNT(primes) && divides_some(m->p, primes[i])) i++;
  m->symbol = primes[i];
  m->followed = m->g->nnodes;
}

/* Returns the record of a tensor, which may be replaced. */
static sli_rows **record(sli_import *m, const sl_tensor *t) {
  if (t->id >= m->nrows) {
    int count = SLI_MAX(2 * m->nrows, t->id + 256);
    sli_rows **more = sli_arena_alloc(&m->arena, (size_t)count * sizeof *more);
    if (m->nrows) memcpy(more, m->row, (size_t)m->nrows * sizeof *more);
    m->row = more, m->nrows = count;
  }
  return &m->row[t->id];
}

static void put(sli_import *m, const sl_tensor *t, const sli_rows *rows) {
  sli_rows *copy = sli_arena_alloc(&m->arena, sizeof *copy);
  *copy = *rows;
  *record(m, t) = copy;
}

static const sli_rows *get(sli_import *m, const sl_tensor *t) {
  static const sli_rows none;
  const sli_rows *known = t ? *record(m, t) : NULL;
  return known ? known : &none;
}

/* ---- ops --------------------------------------------------------------------------------------
 */

/* Returns a type with the symbol for the rows. */
static sl_type symbolic(const sli_import *m, const sl_tensor *t, const sli_rows *rows) {
  sl_type type = t->type;
  for (int d = 0; d < type.ndim; d++)
    if (sli_has_rows(rows, d)) type.dim[d] = rows->dim[d].outer * m->symbol * rows->dim[d].inner;
  return type;
}

static bool same_dim(const sli_dim_rows *a, const sli_dim_rows *b) {
  return a->outer == b->outer && a->inner == b->inner && a->first == b->first;
}

/* Finds how rows enter a dim of a result: as in the input's dim of this length, the one at the same
 * place from the end if there are several. */
static bool like_input(sli_import *m, const sli_node *n, int64_t factor, int from_end,
                       sli_dim_rows *out) {
  bool found = false, at_place = false, agree = true;
  for (int i = 0; i < n->nin; i++) {
    const sli_rows *in = get(m, n->in[i]);
    for (int d = 0; n->in[i] && d < n->in[i]->type.ndim; d++) {
      const sli_dim_rows *r = &in->dim[d];
      bool place = n->in[i]->type.ndim - d == from_end;
      if (!r->outer || r->outer * r->inner != factor || (at_place && !place)) continue;
      if (place && !at_place) found = false, agree = true;
      if (found) agree &= same_dim(r, out);
      *out = *r, found = true, at_place |= place;
    }
  }
  if (!found && factor == 1) return *out = (sli_dim_rows){1, 1, false}, true;
  return found && agree;
}

/* Follows the rows through an op on elements with arguments of one shape, of which some have one
 * position for all rows: with one row, they are as long as the others. */
static bool follow_elements(sli_import *m, const sli_node *n, sli_rows *out) {
  if (m->rows != 1 || sli_op_cut(n->op)->pieces != SL_PIECES_ELEMENTS || n->nout != 1) return false;
  for (int i = 0; i < n->nin; i++) {
    if (!n->in[i] || !sl_type_equal(&n->in_type[i], &n->in_type[0])) return false;
    for (int d = 0; d < n->in_type[i].ndim; d++) {
      const sli_dim_rows *r = &get(m, n->in[i])->dim[d];
      if (r->outer && out->dim[d].outer && !same_dim(r, &out->dim[d])) return false;
      if (r->outer) out->dim[d] = *r;
    }
  }
  return true;
}

/* Follows the rows through the shape rule, evaluated with the symbol. */
static void follow_shape(sli_import *m, const sli_node *n, sli_rows *out) {
  int types = SLI_MAX(SLI_MAX(n->nin, n->op->max_in), 1);
  sl_type *in = sli_arena_alloc(&m->arena, (size_t)types * sizeof *in);
  sl_type *to = sli_arena_alloc(&m->arena, ((size_t)n->nout + 1) * sizeof *to);
  for (int i = 0; i < types; i++)
    in[i] =
        i < n->nin && n->in[i] ? symbolic(m, n->in[i], get(m, n->in[i])) : *sl_tensor_type(NULL);
  bool known = !n->op->infer(&n->attrs, n->nin, in, to);
  if (!known && follow_elements(m, n, out)) return;
  for (int o = 0; o < n->nout; o++) {
    if (!n->out[o]) continue;
    const sl_type *type = &n->out[o]->type;
    out[o].lost |= !known || to[o].ndim != type->ndim;
    for (int d = 0; d < type->ndim && !out[o].lost; d++) {
      int64_t factor = to[o].dim[d] % m->symbol ? 0 : to[o].dim[d] / m->symbol;
      out[o].lost |= type->dim[d] != (factor ? factor * m->rows : to[o].dim[d]);
      if (factor) out[o].lost |= !like_input(m, n, factor, type->ndim - d, &out[o].dim[d]);
    }
  }
}

static sli_rows permuted(const sli_rows *in, const sl_attrs *attrs, int ndim) {
  sli_rows out = *in;
  for (int d = 0; d < ndim; d++) out.dim[d] = in->dim[attrs->shape.dims[d]];
  return out;
}

/* Joins parts along a dim: rows with the same positions inside are outer positions of one dim. */
static sli_rows joined(sli_import *m, const sli_node *n, int axis) {
  sli_rows out = {0};
  int64_t outer = 0, inner = 0;
  for (int i = 0; i < n->nin; i++) {
    const sli_rows *in = get(m, n->in[i]);
    const sli_dim_rows *r = &in->dim[axis];
    out.lost |= in->lost || r->first || (i && (!r->outer != !outer || r->inner != inner));
    outer += r->outer, inner = r->inner;
    for (int d = 0; d < n->in[i]->type.ndim; d++) {
      if (!in->dim[d].outer || d == axis) continue;
      out.lost |= out.dim[d].outer && !same_dim(&out.dim[d], &in->dim[d]);
      out.dim[d] = in->dim[d];
    }
  }
  out.dim[axis] = (sli_dim_rows){outer, inner, false};
  return out;
}

/* Returns whether an op computes an element from the elements at its place, or only moves them. */
static bool keeps_scale(const sl_op *op) {
  static const sl_op *const moves[] = {&sl_op_reshape,   &sl_op_permute, &sl_op_slice,
                                       &sl_op_concat,    &sl_op_split,   &sl_op_expand,
                                       &sl_op_reduce_sum};
  for (size_t i = 0; i < SLI_COUNT(moves); i++)
    if (op == moves[i]) return true;
  return sli_op_cut(op)->pieces == SL_PIECES_ELEMENTS;
}

/* Notes reductions over rows, and numbers that have met them. */
static void follow_sums(sli_import *m, const sli_node *n, sli_rows *out) {
  int before = 0;
  bool reduced = false, summed = false;
  const sli_pt_node *scaled = NULL;
  for (int i = 0; i < n->nin; i++) {
    const sli_rows *in = get(m, n->in[i]);
    before = SLI_MAX(before, count_rows(in));
    reduced |= in->reduced, summed |= in->summed;
    if (in->scaled && !scaled) scaled = in->scaled;
  }
  bool sums = n->op == &sl_op_reduce_sum || n->op == &sl_op_mean || n->op == &sl_op_mse;
  for (int o = 0; o < n->nout; o++) {
    bool fewer = count_rows(&out[o]) < before;
    out[o].reduced = reduced || fewer;
    out[o].summed = summed || fewer;
    out[o].scaled = keeps_scale(n->op) ? scaled : NULL;
    if (fewer && sums && scaled && !m->met) m->met = scaled;
  }
}

static void follow(sli_import *m, const sli_node *n) {
  sli_rows *out = sli_arena_alloc(&m->arena, ((size_t)n->nout + 1) * sizeof *out);
  bool any = false, lost = false;
  for (int i = 0; i < n->nin; i++) {
    any |= sli_any_rows(get(m, n->in[i])) || get(m, n->in[i])->reduced;
    lost |= get(m, n->in[i])->lost;
  }
  if (!any) return;
  const sli_rows *first = get(m, n->in[0]);
  if (lost)
    for (int o = 0; o < n->nout; o++) out[o].lost = true;
  else if (n->op == &sl_op_reshape)
    out[0] = sli_rows_reshaped(m, &n->in[0]->type, first, &n->out_type[0]);
  else if (n->op == &sl_op_permute) out[0] = permuted(first, &n->attrs, n->out_type[0].ndim);
  else if (n->op == &sl_op_concat) out[0] = joined(m, n, sli_concat_axis(&n->attrs));
  else if (n->op == &sl_op_constant) out[0] = *first;
  else follow_shape(m, n, out);
  follow_sums(m, n, out);
  for (int o = 0; o < n->nout; o++)
    if (n->out[o] && !n->out[o]->type.ndim) out[o].lost = false;
  for (int o = 0; o < n->nout; o++)
    if (n->out[o]) put(m, n->out[o], &out[o]);
}

static void follow_all(sli_import *m) {
  while (m->followed < m->g->nnodes) follow(m, m->g->nodes[m->followed++]);
}

const sli_rows *sli_rows_of(sli_import *m, const sl_tensor *t) {
  follow_all(m);
  return get(m, t);
}

void sli_rows_set(sli_import *m, const sl_tensor *t, const sli_rows *rows) {
  if (!t) return;
  follow_all(m);
  put(m, t, rows);
}

void sli_rows_set_first(sli_import *m, const sl_tensor *t) {
  sli_rows rows = {.dim = {{1, 1, false}}};
  sli_rows_set(m, t, &rows);
}
