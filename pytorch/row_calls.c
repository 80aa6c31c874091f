/* SPDX-License-Identifier: Apache-2.0 */
/* The forms in which calls may read tensors with rows: dims stored with the rows first, and dims of
 * length 1 that stand for all positions. */
#include <string.h>

#include "pytorch/emit.h"
#include "pytorch/rows.h"

/* ---- kinds of calls ---------------------------------------------------------------------------
 */

/* Which arguments may have dims with the rows first. */
typedef enum order {
  ORDER_PYTORCH, /* none */
  ORDER_ANY,     /* the first */
  ORDER_FIRST,   /* the first, but not its last dim */
  ORDER_LEFT,    /* all, if they agree, counted from dim 0 */
  ORDER_RIGHT    /* all, if they agree, counted from the last dim */
} order;

static const struct {
  sli_pt_emit_fn *emit;
  order order;
  sli_repeats repeats;
} kinds[] = {
    {sli_emit_one, ORDER_RIGHT, REPEATS_PASS},
    {sli_emit_add, ORDER_RIGHT, REPEATS_PASS},
    {sli_emit_sub, ORDER_RIGHT, REPEATS_PASS},
    {sli_emit_rsub, ORDER_RIGHT, REPEATS_PASS},
    {sli_emit_mul, ORDER_RIGHT, REPEATS_PASS},
    {sli_emit_div, ORDER_RIGHT, REPEATS_PASS},
    {sli_emit_two, ORDER_RIGHT, REPEATS_PASS},
    {sli_emit_compare, ORDER_RIGHT, REPEATS_PASS},
    {sli_emit_whole, ORDER_RIGHT, REPEATS_PASS},
    {sli_emit_where, ORDER_RIGHT, REPEATS_PASS},
    {sli_emit_pow, ORDER_RIGHT, REPEATS_PASS},
    {sli_emit_clamp, ORDER_RIGHT, REPEATS_PASS},
    {sli_emit_cast, ORDER_ANY, REPEATS_PASS},
    {sli_emit_dropout, ORDER_ANY, REPEATS_ALL},
    {sli_emit_gelu, ORDER_ANY, REPEATS_PASS},
    {sli_emit_square, ORDER_ANY, REPEATS_PASS},
    {sli_emit_reciprocal, ORDER_ANY, REPEATS_PASS},
    {sli_emit_leaky, ORDER_ANY, REPEATS_PASS},
    {sli_emit_detach, ORDER_ANY, REPEATS_PASS},
    {sli_emit_same, ORDER_ANY, REPEATS_PASS},
    {sli_emit_view, ORDER_ANY, REPEATS_PASS},
    {sli_emit_permute, ORDER_ANY, REPEATS_PASS},
    {sli_emit_movedim, ORDER_ANY, REPEATS_PASS},
    {sli_emit_expand, ORDER_ANY, REPEATS_PASS},
    {sli_emit_broadcast, ORDER_ANY, REPEATS_PASS},
    {sli_emit_linear, ORDER_FIRST, REPEATS_PASS},
    {sli_emit_layer_norm, ORDER_FIRST, REPEATS_PASS},
    {sli_emit_rms_norm, ORDER_FIRST, REPEATS_PASS},
    {sli_emit_embedding, ORDER_LEFT, REPEATS_PASS},
    {sli_emit_softmax, ORDER_ANY, REPEATS_DIM},
    {sli_emit_mean, ORDER_ANY, REPEATS_PASS},
    {sli_emit_sum, ORDER_ANY, REPEATS_DIM},
    {sli_emit_norm2, ORDER_ANY, REPEATS_DIM},
    {sli_emit_logsumexp, ORDER_ANY, REPEATS_DIM},
    {sli_emit_variance, ORDER_ANY, REPEATS_DIM},
    {sli_emit_cross_entropy, ORDER_LEFT, REPEATS_ALL},
    {sli_emit_nll, ORDER_LEFT, REPEATS_ALL},
    {sli_emit_mse, ORDER_LEFT, REPEATS_SUM},
    {sli_emit_loss, ORDER_LEFT, REPEATS_SUM},
    {sli_emit_of, ORDER_RIGHT, REPEATS_DIM},
    {sli_emit_matmul, ORDER_PYTORCH, REPEATS_PRODUCT},
    {sli_emit_addmm, ORDER_PYTORCH, REPEATS_PRODUCT},
    {sli_emit_einsum, ORDER_PYTORCH, REPEATS_ALL},
    {sli_emit_cumsum, ORDER_PYTORCH, REPEATS_DIM},
    {sli_emit_slice, ORDER_PYTORCH, REPEATS_DIM},
    {sli_emit_narrow, ORDER_PYTORCH, REPEATS_DIM},
    {sli_emit_select, ORDER_PYTORCH, REPEATS_DIM},
    {sli_emit_split, ORDER_PYTORCH, REPEATS_DIM},
    {sli_emit_unbind, ORDER_PYTORCH, REPEATS_DIM},
    {sli_emit_cat, ORDER_PYTORCH, REPEATS_DIM},
    {sli_emit_roll, ORDER_PYTORCH, REPEATS_DIM},
    {sli_emit_flip, ORDER_PYTORCH, REPEATS_DIM},
    {sli_emit_diff, ORDER_PYTORCH, REPEATS_DIM},
    {sli_emit_interleave, ORDER_PYTORCH, REPEATS_DIM},
    {sli_emit_topk, ORDER_PYTORCH, REPEATS_DIM},
    {sli_emit_sort, ORDER_PYTORCH, REPEATS_DIM},
    {sli_emit_pad, ORDER_PYTORCH, REPEATS_ALL},
    {sli_emit_unfold, ORDER_PYTORCH, REPEATS_ALL},
    {sli_emit_draw, ORDER_PYTORCH, REPEATS_ALL},
    {sli_emit_bernoulli, ORDER_PYTORCH, REPEATS_ALL},
    {sli_emit_outer, ORDER_PYTORCH, REPEATS_ALL},
};

/* ---- dims with the rows first -----------------------------------------------------------------
 */

/* A dim of arguments that are counted together: no positions yet, or how they are stored. */
typedef struct stored {
  bool known;
  sli_dim_rows rows;
} stored;

static bool agree(stored *s, const sli_dim_rows *r) {
  bool first = s->known && s->rows.first;
  if (!s->known) *s = (stored){true, *r};
  return (first || s->rows.first) == r->first &&
         (!r->first || (s->rows.outer == r->outer && s->rows.inner == r->inner));
}

/* Compares a value's dims with those of earlier arguments. */
static bool value_agrees(sli_import *m, const sli_pt_value *v, bool right, stored *dims) {
  const sli_made *made = sli_made_of(m, v);
  const sli_rows *rows = sli_rows_of(m, made->tensor);
  for (int d = 0; d < v->type.ndim; d++) {
    bool one = v->type.dim[d] == 1 || (made->tensor && made->tensor->type.dim[d] == 1);
    if (made->array) one |= sli_pt_repeats(made->array, d);
    int at = right ? v->type.ndim - 1 - d : d;
    if ((!one || sli_has_rows(rows, d)) && !agree(&dims[at], &rows->dim[d])) return false;
  }
  return true;
}

static bool is_tensor(const sli_pt_arg *a) { return a->kind == SLI_PT_VALUE && !a->value->symbol; }

static bool all_agree(sli_import *m, const sli_pt_node *n, bool right) {
  stored dims[SLI_PT_DIMS] = {0};
  bool same = true;
  for (int i = 0; i < n->nargs && same; i++) {
    if (!is_tensor(&n->args[i])) continue;
    const sli_pt_input *in = n->args[i].value->input;
    bool weight = in && in->role == SLI_PT_PARAM && !right;
    if (!weight) same = value_agrees(m, n->args[i].value, right, dims);
  }
  return same;
}

static bool parts_agree(sli_import *m, const sli_match *match) {
  stored dims[SLI_PT_DIMS] = {0};
  bool same = true;
  for (int i = 0; i < SLI_PT_PARTS && same; i++)
    if (match->part[i]) same = value_agrees(m, match->part[i], true, dims);
  return same;
}

static bool last_is_first(sli_import *m, const sli_pt_value *v) {
  const sl_tensor *t = v ? sli_made_of(m, v)->tensor : NULL;
  return t && t->type.ndim && sli_rows_of(m, t)->dim[t->type.ndim - 1].first;
}

/* Returns whether a call names a dim that its first argument stores with the rows first. */
static bool names_first(sli_import *m, const sli_pt_node *n) {
  const sli_pt_value *x = sli_pt_first(n);
  const sl_tensor *t = x ? sli_made_of(m, x)->tensor : NULL;
  if (!t || !sli_pt_arg_find(n, "dim")) return false;
  return sli_rows_of(m, t)->dim[sli_pt_dim(m, n, "dim", x->type.ndim, 0)].first;
}

static bool allows(sli_import *m, const sli_pt_node *n, const sli_pt_call *row, order order) {
  switch (order) {
  case ORDER_PYTORCH: return false;
  case ORDER_ANY: return true;
  case ORDER_FIRST: return !last_is_first(m, sli_pt_first(n));
  case ORDER_LEFT: return all_agree(m, n, false);
  case ORDER_RIGHT:
    return all_agree(m, n, true) && (row->emit != sli_emit_of || !names_first(m, n));
  }
  return false;
}

void sli_rows_enter(sli_import *m, const sli_pt_node *n, const sli_pt_call *row,
                    const sli_match *match) {
  m->now = n;
  m->any_order = false;
  m->repeats = REPEATS_PASS;
  if (match) m->any_order = parts_agree(m, match);
  for (size_t i = 0; !match && i < SLI_COUNT(kinds); i++) {
    if (kinds[i].emit != row->emit) continue;
    m->repeats = kinds[i].repeats;
    m->any_order = allows(m, n, row, kinds[i].order);
  }
}

/* ---- results ----------------------------------------------------------------------------------
 */

/* Returns whether a call is a mean, so that a sum over rows is divided by their number. */
static bool is_mean(const sli_import *m, const sli_pt_node *n) {
  enum { MEAN = 1 };
  const sli_pt_call *row = sli_pt_call_find(n->target);
  if (strstr(n->target, "mean") || strstr(n->target, "aten.var") || strstr(n->target, "aten.std"))
    return true;
  bool loss = row && (row->emit == sli_emit_cross_entropy || row->emit == sli_emit_nll ||
                      row->emit == sli_emit_mse || row->emit == sli_emit_loss);
  if (loss) return sli_pt_whole(m, n, "reduction", MEAN) == MEAN;
  return strstr(n->target, "max") || strstr(n->target, "min") || strstr(n->target, "norm.default");
}

void sli_rows_leave(sli_import *m, const sli_pt_node *n) {
  m->any_order = true; /* what is stored keeps its form */
  m->repeats = REPEATS_PASS;
  if (m->g->status) return;
  sli_rows_of(m, NULL); /* follows the call's ops */
  if (m->met && m->rows != m->exported && !m->p->rows && m->constants != SL_ROWS_NO)
    sli_rows_refuse_constant(m, m->met);
  m->met = NULL;
  for (int k = 0; m->scales && k < n->nouts; k++) {
    const sl_tensor *t = n->outs[k] ? sli_made_of(m, n->outs[k])->tensor : NULL;
    sli_rows rows = *sli_rows_of(m, t);
    rows.scaled = m->scales;
    sli_rows_set(m, t, &rows);
  }
  for (int k = 0; k < n->nouts && m->rows != m->exported; k++) {
    const sli_made *made = n->outs[k] ? sli_made_of(m, n->outs[k]) : NULL;
    if (made && sli_rows_of(m, made->tensor)->lost)
      sli_pt_refuse(m, n,
                    "the rows of a batch enter its result in a way that is not followed; "
                    "export a batch of %lld rows",
                    (long long)m->rows);
  }
  bool summed = false, mean = is_mean(m, n);
  for (int i = 0; i < n->nargs; i++)
    if (is_tensor(&n->args[i]))
      summed |= sli_rows_of(m, sli_made_of(m, n->args[i].value)->tensor)->summed;
  for (int k = 0; mean && !summed && k < n->nouts; k++) {
    const sl_tensor *t = n->outs[k] ? sli_made_of(m, n->outs[k])->tensor : NULL;
    if (!t) continue;
    sli_rows rows = *sli_rows_of(m, t);
    rows.summed = false;
    sli_rows_set(m, t, &rows);
  }
}
