/* SPDX-License-Identifier: Apache-2.0 */
/* The axis of experts: which calls run on the experts' devices, and which rows stay there.
 *
 * It is a row axis like the data axis, except for ops that declare SL_DISPATCHED. Their calls run
 * on the devices of their experts, on the rows that ids dispatch to them, and each device has the
 * weights of its own experts only. Ops that work row by row follow the rows, so nothing is
 * exchanged between two linear layers of the same experts. Other readers get the rows back on the
 * devices they came from. Gradients of rows that several layers read are added at the experts, so
 * that they return only once. */
#include <string.h>

#include "graph/build/build.h"
#include "graph/sharding/search.h"
#include "ops/ops.h"

static bool is_dispatched(sl_sbp sbp) { return sbp.kind == SL_DISPATCHED; }

static bool is_rows(sl_sbp sbp) { return sbp.kind == SL_SPLIT && !sbp.dim; }

static const sl_signature *find_dispatched(const sl_signature *all, int count) {
  for (int i = 0; i < count; i++)
    if (is_dispatched(all[i].out[0])) return &all[i];
  return NULL;
}

const sl_tensor *sli_router_ids(const sli_node *router) {
  for (int i = 0; i < router->nin; i++)
    if (router->in[i] && router->in_type[i].dtype == SL_I32) return router->in[i];
  return NULL;
}

int64_t sli_router_experts(const sli_node *router) {
  return router->in_type[router->nin - 1].dim[0];
}

bool sli_dispatch_alike(const sli_node *a, const sli_node *b) {
  return sli_router_ids(a) == sli_router_ids(b) && sli_router_experts(a) == sli_router_experts(b);
}

static bool may_go(const sli_dispatching *r, const sli_node *n, const sl_tensor *t) {
  const sli_node *before = r->routers[t->id];
  return (is_rows(r->layouts[t->id]) || is_dispatched(r->layouts[t->id])) &&
         (!before || sli_dispatch_alike(before, n));
}

/* True if the inputs can be on the experts' devices. The experts' weights must be parameters. */
static bool may_dispatch(const sli_dispatching *r, const sli_node *n, const sl_signature *s) {
  if (sli_router_experts(n) < r->size) return false;
  for (int i = 0; i < n->nin; i++) {
    sl_sbp want = sli_signature_in(s, i);
    if (!n->in[i] || (is_dispatched(want) ? !may_go(r, n, n->in[i]) : !n->in[i]->param))
      return false;
  }
  return true;
}

static void note_router(const sli_dispatching *r, const sli_node *n, const sl_signature *s,
                        const sli_node *router) {
  for (int i = 0; i < n->nin; i++)
    if (n->in[i] && is_dispatched(sli_signature_in(s, i)) && !r->routers[n->in[i]->id])
      r->routers[n->in[i]->id] = router;
  for (int o = 0; o < n->nout; o++)
    if (n->out[o] && is_dispatched(sli_signature_out(s, o))) r->routers[n->out[o]->id] = router;
}

/* Returns the call that dispatched all inputs that are split by rows, or NULL if they are not all
 * in one place. */
static const sli_node *dispatched_place_of(const sli_dispatching *r, const sli_node *n,
                                           const sl_signature *s) {
  const sli_node *router = NULL;
  for (int i = 0; i < n->nin; i++) {
    if (!n->in[i]) continue;
    bool rows = is_rows(sli_signature_in(s, i)),
         dispatched = is_dispatched(r->layouts[n->in[i]->id]);
    if (rows != dispatched) return NULL;
    const sli_node *at = dispatched ? r->routers[n->in[i]->id] : router;
    if (router && !sli_dispatch_alike(router, at)) return NULL;
    router = at;
  }
  return router;
}

/* True if the outputs have the same rows as the input. */
static bool keeps_rows(const sli_node *n, int last) {
  for (int o = 0; o < n->nout; o++)
    for (int d = 0; d <= last; d++)
      if (n->out_type[o].ndim <= last + 1 || n->out_type[o].dim[d] != n->in_type[0].dim[d])
        return false;
  return n->nout > 0;
}

/* True if a call can run on rows in any order. Excludes calls whose values depend on their place,
 * and exact calls whose parameter gradients are sums over the rows. */
static bool goes_by_rows(const sli_node *n) {
  bool learns = false;
  for (int i = 0; i < n->nin; i++) learns |= n->in[i] && n->in[i]->param && n->in[i]->needs_grad;
  if (sli_op_is(n->op, SL_OP_LOCATED) || sli_op_fixed(n->op) || (n->attrs.numbers.exact && learns))
    return false;
  return sli_op_cut(n->op)->pieces == SL_PIECES_ELEMENTS ||
         sli_op_cut(n->op)->pieces == SL_PIECES_ROWS;
}

/* Makes a call that works row by row run on rows at their experts, if possible. */
static bool stay(const sli_dispatching *r, const sli_node *n, const sl_signature *rows,
                 sl_signature *out) {
  const sli_node *router = dispatched_place_of(r, n, rows);
  if (!router || !goes_by_rows(n) || !n->in[0]) return false;
  sl_sbp lies = {SL_DISPATCHED, sli_router_ids(router)->type.ndim - 1};
  if (!keeps_rows(n, lies.dim)) return false;
  *out = *rows;
  for (int i = 0; i < SL_SIGNATURE_ARGS; i++) {
    if (is_rows(out->in[i])) out->in[i] = lies;
    if (is_rows(out->out[i])) out->out[i] = lies;
  }
  note_router(r, n, out, router);
  return true;
}

bool sli_choose_dispatched(const sli_dispatching *r, const sli_node *n, const sl_signature *all,
                           int count, sl_signature *out) {
  const sl_signature *dispatched = find_dispatched(all, count);
  if (dispatched && may_dispatch(r, n, dispatched)) {
    *out = *dispatched;
    note_router(r, n, out, n);
    return true;
  }
  for (int i = 0; i < count; i++)
    if (is_rows(all[i].out[0]) && stay(r, n, &all[i], out)) return true;
  return false;
}

/* Rejects ids that number their tokens in a single row; the message says how to reshape them. */
static sl_status refuse_flat(sl_graph *g, const sli_node *n, int size) {
  char type[SL_TYPE_TEXT];
  return sli_graph_fail_at(
      g, n->at, SL_E_USAGE,
      "experts.parallel %d: the ids of %s, %s, have all tokens in one dim, but must be [rows, "
      "positions, k]; sl_reshape the ids and tokens before it",
      size, n->name, sli_type_text(type, &sli_router_ids(n)->type));
}

sl_status sli_check_dispatched(sl_graph *g, const sli_dispatching *r) {
  for (int t = 0; t < g->ntensors; t++)
    if (r->routers[t]) return SL_OK;
  for (int i = 0; i < g->nnodes; i++) {
    sl_signature all[SLI_SIGNATURES_RAW];
    const sli_node *n = g->nodes[i];
    int count = sli_signatures_raw(n, all);
    if (count && sli_op_weight(n->op) == SL_WEIGHT_EXPERTS && !find_dispatched(all, count))
      return refuse_flat(g, n, r->size);
    if (count && find_dispatched(all, count) && sli_router_experts(n) < r->size)
      return sli_graph_fail_at(
          g, n->at, SL_E_USAGE,
          "experts.parallel %d: %s has only %lld experts, fewer than the devices", r->size, n->name,
          (long long)sli_router_experts(n));
  }
  return sl_fail(SL_E_USAGE,
                 "experts.parallel %d: the model has no experts for rows of [batch, tokens] "
                 "(sl_grouped_linear)",
                 r->size);
}

bool sli_is_at_experts(const sli_choice *experts, const sli_node *forward) {
  return experts->routers && is_dispatched(sli_signature_out(&experts->signatures[forward->id], 0));
}

/* ---- tokens on tensor-axis devices ---------------------------------------------------------- */

/* True if there are enough rows or positions for the tensor-axis devices and for the axes that
 * already shard them. */
static bool are_enough(const sl_tensor *ids, const sli_dim *dims, const sli_grid *grid, int dim) {
  int others = dim ? sli_choice_size(grid, SLI_AXIS_SEQUENCE) : sli_grid_size(grid, sli_along_data);
  bool stay = dim && grid->ring; /* ring attention fixes positions */
  return !stay && dims[ids->id * SL_MAX_DIMS + dim].units >=
                      (int64_t)sli_choice_size(grid, SLI_AXIS_TENSOR) * others;
}

/* True if devices with the same experts would share the positions of a leaf. */
static bool cuts_leaves(const sl_graph *g, const sli_grid *grid) {
  return sli_is_exact(g) && grid->size[SLI_AXIS_TENSOR] > 1;
}

sl_status sli_choose_tokens(sl_graph *g, const sli_dim *dims, const sli_choice *experts,
                            sli_grid *grid) {
  bool rows = true, positions = true;
  const sli_node *last = NULL;
  for (int i = 0; i < g->nnodes; i++) {
    if (!sli_is_forward(g->nodes[i]) || !sli_is_at_experts(experts, g->nodes[i])) continue;
    const sl_tensor *ids = sli_router_ids(experts->routers[g->nodes[i]->out[0]->id]);
    last = g->nodes[i];
    positions &= are_enough(ids, dims, grid, 1) && !cuts_leaves(g, grid);
    rows &= are_enough(ids, dims, grid, 0);
  }
  grid->tokens = positions;
  if (positions || rows) return SL_OK;
  return sli_graph_fail_at(
      g, last->at, SL_E_USAGE,
      "experts.parallel %d: the tokens of %s cannot be split over the %d tensor-parallel "
      "devices: too few %s",
      sli_choice_size(grid, SLI_AXIS_EXPERT), last->name, sli_choice_size(grid, SLI_AXIS_TENSOR),
      cuts_leaves(g, grid) ? "rows, and numbers.exact keeps the positions of a row together"
                           : "positions, and too few rows");
}

/* ---- sums of gradients
 * --------------------------------------------------------------------------- */

/* True for a gradient that is computed at the experts. */
static bool comes_dispatched(const sli_choice *experts, const sl_tensor *grad) {
  const sli_node *n = grad->producer;
  if (sli_is_forward(n) || n->like) return false;
  if (n->rule && grad->output < sli_rule_gradients(n->rule, n->about->nin))
    return is_dispatched(
        sli_gradient_given(&experts->signatures[n->about->id], sli_rule_of(n->rule, grad->output)));
  bool dispatched = !n->rule && n->nin;
  for (int i = 0; i < n->nin && dispatched; i++) dispatched = comes_dispatched(experts, n->in[i]);
  return dispatched;
}

static bool is_sum(const sli_node *n) {
  return n->op == &sl_op_add && !sli_is_forward(n) && !n->rule && !n->like;
}

/* Regroups (a + b) + c to a + (b + c), if b and c are computed at the experts and a is not. */
static bool regroup(const sli_choice *experts, sli_node *n) {
  sli_node *first = is_sum(n) ? n->in[0]->producer : NULL;
  if (!first || !is_sum(first) || comes_dispatched(experts, first->in[0])) return false;
  if (!comes_dispatched(experts, first->in[1]) || !comes_dispatched(experts, n->in[1]))
    return false;
  sl_tensor *a = first->in[0];
  first->in[0] = first->in[1];
  first->in[1] = n->in[1];
  n->in[1] = n->in[0];
  n->in[0] = a;
  return true;
}

/* Moves a node to just before the node at `to`. */
static void put_before(sli_node **nodes, sli_node *n, int to) {
  int at = to;
  while (nodes[at] != n) at--;
  memmove(nodes + at, nodes + at + 1, (size_t)(to - at - 1) * sizeof *nodes);
  nodes[to - 1] = n;
}

void sli_regroup_sums(sl_graph *g, const sli_choice *experts) {
  for (int i = 0; i < g->nnodes && experts->routers; i++)
    if (regroup(experts, g->nodes[i])) put_before(g->nodes, g->nodes[i]->in[1]->producer, i);
}
