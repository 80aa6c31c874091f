/* SPDX-License-Identifier: Apache-2.0 */
/* Exact sums on the tensor axis (docs/exact.md).
 *
 * A matrix product sums over a dim in groups of units, and adds the groups' sums in a binary tree.
 * The number of groups depends only on the dim and is a power of two, so each of 2, 4, ... devices
 * has a whole subtree, and boxing adds their sums with the rest of the tree. Signatures that would
 * make devices add anything else in f32 are excluded. */
#include "graph/sharding/search.h"

#include <stdlib.h>

#include "ops/leaves.h"
#include "ops/ops.h"

enum { LEAST_STEPS = 8 };

static int64_t length_of(const sli_dim *d) {
  int64_t length = 0;
  for (int s = 0; s < d->nsegments; s++) length += d->segment[s];
  return length;
}

static int64_t groups_of(const sli_dim *d) {
  int64_t groups = 1, length = length_of(d);
  while (groups < SLI_MOST_GROUPS && d->units % (2 * groups) == 0 &&
         length >= 2 * groups * LEAST_STEPS)
    groups *= 2;
  return groups;
}

static const sli_dim *last_dim(const sli_dim *dims, const sl_tensor *t) {
  return &dims[t->id * SL_MAX_DIMS + t->type.ndim - 1];
}

/* ---- groups of a node ---------------------------------------------------------------------- */

/* Returns the forward tensor that is input 0 or whose gradient is input 0. */
static const sl_tensor *subject_of(const sli_node *n) {
  if (!n->rule) return n->in[0];
  sl_grad_arg arg = sli_rule_argument(n->rule, n->about->nin, n->about->nout, 0);
  return sli_argument_tensor(n->about, arg);
}

static void set(sl_attrs *attrs, const sli_dim *d) {
  attrs->numbers.chunk = length_of(d) / groups_of(d);
  for (int s = 0; s < d->nsegments && d->nsegments > 1; s++) attrs->numbers.part[s] = d->segment[s];
}

sl_status sli_groups_set(sl_graph *g) {
  sli_dim *dims;
  sl_status status = sli_dims_find(g, &dims);
  if (status) return status;
  for (int i = 0; i < g->nnodes; i++) {
    sli_node *n = g->nodes[i];
    if (!sli_op_exact(n->op)->groups) continue;
    const sli_dim *d = last_dim(dims, subject_of(n));
    set(&n->attrs, d);
    for (int v = 0; v < g->cut.nvariants && n->shapes; v++) set(&n->shapes[v].attrs, d);
  }
  free(dims);
  return SL_OK;
}

/* ---- ways that keep sums exact ----------------------------------------------------------- */

/* True if each of `size` devices has whole groups of a tensor's last dim. */
static bool has_groups(const sli_dim *dims, const sl_tensor *t, int size) {
  return groups_of(last_dim(dims, t)) % size == 0;
}

/* True if the devices' outputs add up exactly: they are sums of groups, or only one of them is not
 * zero. */
static bool adds_outputs(const sli_dim *dims, const sli_node *n, const sl_signature *s, int size) {
  sl_sbp in = sli_signature_in(s, 0);
  bool groups = sli_op_exact(n->op)->groups && in.kind == SL_SPLIT &&
                in.dim + 1 == n->in_type[0].ndim && has_groups(dims, n->in[0], size);
  for (int o = 0; o < n->nout; o++) {
    if (sli_signature_out(s, o).kind != SL_PARTIAL) continue;
    if (sli_op_weight(n->op) != SL_WEIGHT_TABLE && !groups) return false;
  }
  return true;
}

/* True if the devices' gradients of a replicated input i add up exactly. Gradients of parameters
 * are sums of leaves. */
static bool adds_gradient(const sli_dim *dims, const sli_node *n, int i, int size) {
  const sl_tensor *t = n->in[i];
  return t->param || !t->needs_grad ||
         (sli_op_exact(n->op)->groups && !i && has_groups(dims, n->out[0], size));
}

/* True if a split of input i cuts a sum of a parameter's gradient: over rows within a leaf, or over
 * columns along which devices have all of the parameter. */
static bool cuts_sums(const sli_node *n, const sl_signature *s, int i) {
  sl_sbp sbp = sli_signature_in(s, i);
  bool rows = false, columns = false;
  for (int p = 0; p < n->nin; p++) {
    if (!n->in[p] || !n->in[p]->param || !n->in[p]->needs_grad) continue;
    rows = true;
    columns |= sli_signature_in(s, p).kind == SL_BROADCAST;
  }
  if (!rows || n->in[i]->param || sbp.kind != SL_SPLIT || !sbp.dim) return false;
  return columns || sbp.dim < sli_row_dims(&n->in_type[i]);
}

bool sli_is_way_exact(const sli_dim *dims, const sli_node *n, const sl_signature *s, int size) {
  if (sli_is_repeated(s)) return true;
  if (s->local && !(sli_op_exact(n->op)->groups && has_groups(dims, n->in[0], size))) return false;
  if (!adds_outputs(dims, n, s, size)) return false;
  for (int i = 0; i < n->nin; i++) {
    if (!n->in[i]) continue;
    sl_sbp sbp = sli_signature_in(s, i);
    bool optional =
        sli_op_exact(n->op)->groups && i >= n->op->min_in; /* a bias, which only one device adds */
    if (sbp.kind == SL_PARTIAL && !optional) return false;
    if (sbp.kind == SL_BROADCAST && !adds_gradient(dims, n, i, size)) return false;
    if (cuts_sums(n, s, i)) return false;
  }
  return true;
}
