/* SPDX-License-Identifier: Apache-2.0 */
/* Finds tensors with a valid length: only their first rows are valid; the call that fills them
 * reports how many (sl_op_rows.fills).
 *
 * Tensors of the same rows form a set with one valid length. A set begins with the output of a call
 * that fills it. A call that works row by row passes the valid length on to its outputs; if it has
 * several such inputs, their valid lengths must agree. Sets merge where ops relate them, such as a
 * gradient and its tensor. A recomputed tensor has the rows of the original, whether or not its own
 * call fills them: a program reads one or the other, depending on the piece. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"

#include "ops/ops.h"

static sl_tensor *leader_of(sl_tensor *t) {
  while (t && t->valid_length != t) t = t->valid_length;
  return t;
}

sl_tensor *sli_valid_length(sl_tensor *t) { return t && t->valid_length ? leader_of(t) : NULL; }

/* True if the type has `rows` rows. */
static bool has_rows(const sl_type *type, int64_t rows) {
  if (type->ndim < 1) return false;
  return type->dim[0] == rows || (type->ndim > 1 && type->dim[0] == 1 && type->dim[1] == rows);
}

static void join(sl_tensor **set, sl_tensor *t) {
  sl_tensor *other = sli_valid_length(t);
  if (!other) t->valid_length = *set ? *set : t;
  else if (!*set) *set = other;
  else if (other != *set) other->valid_length = *set;
}

/* Begins a set with the output of a call that fills it. */
static sl_status lengths_begin(sl_graph *g, const sli_node *n, int o) {
  sl_tensor *t = n->out[o];
  int d = sli_bit_on(sli_op_rows(n->op)->second, o) ? 1 : 0;
  bool fine = d < t->type.ndim && (!d || t->type.dim[0] == 1);
  if (!fine || n->per_step)
    return sli_graph_fail_at(g, n->at, SL_E_SHAPE, "%s (%s): output %d, %s, has no rows to fill",
                             n->name, n->op->name, o,
                             sli_type_text((char[SL_TYPE_TEXT]){0}, &t->type));
  t->valid_length = t;
  t->rows = t->type.dim[d];
  return SL_OK;
}

static bool counts(const sl_op *op) {
  return sli_op_rows(op)->fills || sli_op_rows(op)->looks || sli_op_rows(op)->follows;
}

/* True if a type has `rows` rows along dim 1. */
static bool lies_by_rows(const sl_type *type, int64_t rows) {
  return type->ndim > 1 && type->dim[0] == 1 && type->dim[1] == rows;
}

/* True for a reshape or permute that keeps `rows` rows along dim 1. */
static bool shapes_rows(const sli_node *n, int64_t rows) {
  bool reshapes = sli_op_is(n->op, SL_OP_RESHAPE), permutes = n->op == &sl_op_permute;
  return (reshapes || (permutes && n->attrs.shape.dims[1] == 1)) &&
         lies_by_rows(&n->in_type[0], rows) && lies_by_rows(&n->out_type[0], rows);
}

/* True for a function of broadcast inputs that have the output's rows along dim 1, or no rows. */
static bool broadcasts_rows(const sli_node *n, int64_t rows) {
  const sl_type *y = &n->out_type[0];
  bool fine = !n->nin || lies_by_rows(y, rows);
  for (int i = 0; i < n->nin; i++)
    fine &= n->in_type[i].ndim == y->ndim || n->in_type[i].ndim < y->ndim - 1;
  return fine;
}

/* True for an op along dims other than the rows. */
static bool goes_beside_rows(const sli_node *n, int64_t rows) {
  bool all = sli_op_cut(n->op)->along == SL_ALONG_AXES && !n->attrs.along.axes,
       fine = !all && !(n->attrs.along.axes & 3);
  for (int i = 0; i < n->nin; i++)
    fine &= n->in_type[i].ndim > 2 && lies_by_rows(&n->in_type[i], rows);
  return fine;
}

bool sli_keeps_rows(const sli_node *n, int64_t rows) {
  sl_pieces pieces = sli_op_cut(n->op)->pieces;
  if (sli_op_cut(n->op)->along == SL_ALONG_NOTHING) return broadcasts_rows(n, rows);
  if (sli_op_cut(n->op)->along) return goes_beside_rows(n, rows);
  return pieces == SL_PIECES_ELEMENTS || pieces == SL_PIECES_ROWS || shapes_rows(n, rows);
}

/* True if the op promises to work row by row and has no state that depends on the number of
 * rows. */
static bool goes_by_rows(const sli_node *n, int64_t rows) {
  return (sli_keeps_rows(n, rows) || sli_op_cut(n->op)->pieces == SL_PIECES_SUM) &&
         !sli_op_fixed(n->op);
}

static sl_status lengths_refuse(sl_graph *g, const sli_node *n, const sl_tensor *t,
                                const char *why) {
  return sli_graph_fail_at(g, n->at, SL_E_UNSUPPORTED,
                           "%s (%s) reads %s, some of whose rows may be invalid: %s", n->name,
                           n->op->name, t->name, why);
}

/* Checks that the node may read input i, which has rows of the set. */
static sl_status check_input(sl_graph *g, const sli_node *n, int i) {
  const sl_op *op = n->op;
  if (counts(op))
    return sli_bit_on(sli_op_rows(op)->looks, i)
               ? SL_OK
               : lengths_refuse(g, n, n->in[i],
                                sli_words(op,
                                          "its row does not declare that it checks for this "
                                          "(sl_op_rows.looks)",
                                          "the op does not check for this"));
  if (!goes_by_rows(n, sli_valid_length(n->in[i])->rows))
    return lengths_refuse(g, n, n->in[i], "the op does not work row by row");
  if (sli_bit_on(sli_op_cut(op)->whole, i))
    return lengths_refuse(g, n, n->in[i], "the op needs all rows");
  return SL_OK;
}

/* Finds the set of a node's inputs. For an op that counts rows, the first input determines it. */
static sl_status find_set(sl_graph *g, const sli_node *n, sl_tensor **set) {
  for (int i = 0; i < n->nin; i++) {
    if (!sli_valid_length(n->in[i])) continue;
    sl_status status = check_input(g, n, i);
    if (status) return status;
    if (!*set || !counts(n->op)) join(set, n->in[i]);
  }
  return SL_OK;
}

/* Rejects inputs with the same number of rows that are always full. */
static sl_status check_full(sl_graph *g, const sli_node *n, const sl_tensor *set) {
  for (int i = 0; i < n->nin; i++) {
    const sl_tensor *t = n->in[i];
    if (!t || t->param || t->valid_length || sli_bit_on(sli_op_cut(n->op)->whole, i) ||
        !has_rows(&t->type, set->rows))
      continue;
    return lengths_refuse(g, n, set,
                          sli_arena_format(&g->arena, "but all rows of %s are valid", t->name));
  }
  return SL_OK;
}

static bool follows(const sli_node *n, int o, const sl_tensor *set) {
  if (counts(n->op)) return sli_bit_on(sli_op_rows(n->op)->follows, o);
  return !sli_bit(n->accumulate_span, o) && n->cls != SL_CLASS_W &&
         has_rows(&n->out_type[o], set->rows);
}

/* Merges the set of a recomputed tensor into that of its original, which comes first. */
static void stand_for_kept(const sli_node *n) {
  for (int o = 0; o < n->nout; o++) {
    sl_tensor *t = n->out[o], *kept = t ? t->kept : NULL;
    sl_tensor *set = sli_valid_length(t), *first = sli_valid_length(kept);
    if (!kept) continue;
    SLI_CHECK(!set == !first, "some rows of %s may be invalid, but those of %s are valid", t->name,
              kept->name);
    if (set != first) set->valid_length = first;
  }
}

static sl_status pass_on(sl_graph *g, const sli_node *n) {
  sl_tensor *set = NULL;
  sl_status status = find_set(g, n, &set);
  if (!status && set && !counts(n->op)) status = check_full(g, n, set);
  for (int o = 0; o < n->nout && !status; o++) {
    if (!n->out[o]) continue;
    if (sli_bit_on(sli_op_rows(n->op)->fills, o)) status = lengths_begin(g, n, o);
    else if (set && follows(n, o, set)) join(&set, n->out[o]);
  }
  if (!status) stand_for_kept(n);
  return status;
}

/* Checks that an earlier value and its delay agree on which rows may be invalid. */
static sl_status check_delayed(sl_graph *g, sl_tensor *t) {
  const sli_delay *delay = sli_delay_before(t);
  sl_tensor *now = delay ? sli_valid_length(delay->next) : NULL;
  if (!delay || (delay->rows ? now && now->rows == sli_valid_length(t)->rows : !now)) return SL_OK;
  return sli_graph_fail_at(g, delay->at, SL_E_USAGE, "delay %s: %s", delay->name,
                           delay->rows ? "all rows of its value are valid (sl_delayed)"
                                       : "some rows of its value may be invalid (sl_delayed_rows)");
}

sl_status sli_pass_valid_lengths(sl_graph *g) {
  sl_status status = SL_OK;
  for (int i = 0; i < g->nnodes && !status; i++) status = pass_on(g, g->nodes[i]);
  for (int t = 0; t < g->ntensors && !status; t++) status = check_delayed(g, g->tensors[t]);
  return status;
}
