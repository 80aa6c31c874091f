/* SPDX-License-Identifier: Apache-2.0 */
/* Expansion: turns the graph that describes all devices into the nodes and tensors of each device
 * of a stage.
 *
 * The signatures of forward nodes determine the layouts of their inputs and outputs, and the
 * backward pass follows from them. A gradient rule reads forward tensors in the layouts of the
 * forward node. The gradient of a split tensor is split in the same way; the gradient of a sum is
 * wanted whole. If all devices have an input and each used it for its own part of the call, its
 * gradient consists of summands. Backward ops therefore need no signatures. Gradients are added in
 * their present layout, before any exchange. If sums are exact, each gradient is first made whole,
 * as on one device.
 *
 * Parameters have the layout that their updates want (shards.c). Updates are added again at the
 * end, one for each device that has a parameter or a part of it.
 *
 * For predictions one device can represent its whole stage (grid->alike). Only rank 0's nodes are
 * created, and they read their own tensors in place of other devices' tensors. If all parts have
 * the same size, all devices do the same work at the same time, so the predicted times are those of
 * a complete stage. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"
#include "graph/sharding/expand.h"
#include "ops/ops.h"
#include "ops/splice.h"

#include <stdlib.h>
#include <string.h>

static const sl_sbp broadcast = {SL_BROADCAST, 0};
static const sli_layout everywhere; /* unset axes are broadcast */

/* ---- forward -------------------------------------------------------------------- */

/* Returns the moment of a node. It is sharded if each stage runs its part of the node; sums, copies
 * and constants of gradients follow their tensors. */
static sli_moment moment_of(const sli_expansion *x, const sli_node *n) {
  sli_moment at = {n->cls, n->block, n->phase, false};
  const sli_node *forward = sli_is_forward(n) || sli_op_is(n->op, SL_OP_SOURCE) ? n : n->about;
  if (forward) at.sharded = !sli_is_repeated(sli_share_signature(x, forward, SLI_AXIS_STAGES));
  else if (n->like) at.sharded = x->arrays[n->like->id]->sharded;
  else
    for (int i = 0; i < n->nin; i++)
      at.sharded |= sli_is_stage_sharded(&x->arrays[n->in[i]->id]->layout);
  return at;
}

/* Returns the moment at which a tensor is boxed for a reader. A parameter is boxed once at the
 * start of each step, or for each read if ZeRO shards the parameters. Encoders of prompts (spans)
 * run once a step, too. */
static sli_moment reading(const sli_expansion *x, const sli_node *n, const sl_tensor *t) {
  sli_moment at = moment_of(x, n);
  if (t->param && (x->sharding != SLI_SHARD_PARAMETERS || n->op == &sl_op_span))
    at.phase = SLI_PHASE_PACK;
  return at;
}

static sl_status box_input(sli_expansion *x, const sli_node *n, const sl_tensor *t, sli_layout want,
                           sli_array **out) {
  *out = NULL;
  return t ? sli_box(x, t, want, reading(x, n, t), out) : SL_OK;
}

/* True for an optional input that all devices have but only one may add: on the other devices it is
 * absent, which counts as zero. Ops with any number of inputs have no optional ones. */
static bool is_added_once(const sli_expansion *x, const sli_node *n, int i, int axis) {
  return sli_is_forward(n) && i >= n->op->min_in && n->op->max_in >= 0 && n->in[i] &&
         sli_share_layout(x, n, sli_signature_in, i).axis[axis].kind == SL_PARTIAL &&
         x->arrays[n->in[i]->id]->layout.axis[axis].kind == SL_BROADCAST;
}

static bool is_absent(const sli_expansion *x, const sli_node *n, int i, int rank) {
  for (int a = 0; a < SLI_AXES; a++)
    if (sli_rank_member(x->grid, rank, 1u << a) && is_added_once(x, n, i, a)) return true;
  return false;
}

static sli_layout wanted_layout(const sli_expansion *x, const sli_node *n, int i) {
  sli_layout want = sli_share_layout(x, n, sli_signature_in, i);
  for (int a = 0; a < SLI_AXES; a++)
    if (is_added_once(x, n, i, a)) want.axis[a] = broadcast;
  return want;
}

static sl_status box_forward_inputs(sli_expansion *x, const sli_node *n, sli_array **in) {
  sl_status status = SL_OK;
  for (int i = 0; i < n->nin && !status; i++) {
    const sl_tensor *t = n->in[i];
    status = box_input(x, n, t, wanted_layout(x, n, i), &in[i]);
  }
  return status;
}

/* Returns the layout in which a backward node wants an input. */
static sli_layout argument_layout(const sli_expansion *x, const sli_node *n, int i) {
  sl_grad_arg arg = sli_rule_argument(n->rule, n->about->nin, n->about->nout, i);
  sli_sbp_of *of = arg.kind == SL_ARG_IN    ? sli_signature_in
                   : arg.kind == SL_ARG_OUT ? sli_signature_out
                                            : sli_gradient_wanted;
  return sli_share_layout(x, n->about, of, arg.index);
}

/* Returns the types [nvariants][nin] of a device's inputs that the op does not read. */
static const sl_type *unread_types(sli_expansion *x, const sli_node *n, int rank) {
  if (!sli_op_memory(n->op)->unread) return NULL;
  sl_type *types = sli_arena_alloc(&x->g->arena, (size_t)(x->nvariants * n->nin) * sizeof *types);
  for (int v = 0; v < x->nvariants; v++)
    for (int i = 0; i < n->nin; i++)
      types[v * n->nin + i] = sli_bit_on(sli_op_memory(n->op)->unread, i)
                                  ? sli_local_type(x, n->in[i], argument_layout(x, n, i), rank, v)
                                  : *sl_tensor_type(NULL);
  return types;
}

static void sum_in_f64(const sli_expansion *x, sli_node *n, int o) {
  n->out_type[o].dtype = SL_F64;
  for (int v = 0; v < x->nvariants && n->shapes; v++) n->shapes[v].out[o].dtype = SL_F64;
}

/* Checks that a device has whole groups of an exact sum, whose dim may be split by several axes. */
static sl_status want_groups(const sli_expansion *x, const sli_node *n) {
  int64_t steps = n->nin ? sl_type_last(&n->in_type[0]) : 0;
  if (!sli_is_exact(x->g) || !sli_op_exact(n->op)->groups || steps % n->attrs.numbers.chunk == 0)
    return SL_OK;
  return sli_graph_fail_at(
      x->g, n->at, SL_E_UNSUPPORTED,
      "numbers.exact: op %s (%s) sums over groups of %lld numbers, but the grid leaves %lld to a "
      "device",
      n->name, n->op->name, (long long)n->attrs.numbers.chunk, (long long)steps);
}

/* Creates the nodes of all devices, and their outputs in the given arrays. */
static sl_status make_nodes(sli_expansion *x, const sli_node *n, const sli_node *forward,
                            const sl_op *op, sli_array *const *in, int nout,
                            sli_array *const *out) {
  sli_moment at = moment_of(x, n);
  sl_status status = SL_OK;
  for (int r = 0; r < sli_own_ranks(x, at.sharded) && !status; r++) {
    sl_tensor *from[n->nin + 1];
    for (int i = 0; i < n->nin; i++)
      from[i] = in[i] && !is_absent(x, n, i, r) ? in[i]->on[r] : NULL;
    sli_making m = {.op = op,
                    .name = n->name,
                    .at = at,
                    .cls = n->cls,
                    .rank = r,
                    .nin = n->nin,
                    .in = from,
                    .nout = nout,
                    .where = n->at,
                    .unread = n->rule ? unread_types(x, n, r) : NULL,
                    .attrs = sli_local_attrs(x, n, forward, r)};
    sli_node *node;
    status = sli_expand_node(x, &m, &node);
    if (!status) status = want_groups(x, node);
    if (status) break;
    node->accumulate_span = n->accumulate_span;
    node->rule = n->rule;
    node->about = n->about;
    for (int o = 0; o < nout; o++) {
      if (!out[o]) continue;
      if (out[o]->tensor->type.dtype == SL_F64) sum_in_f64(x, node, o); /* also for exact sums */
      const char *name = sli_expand_name(x, out[o]->tensor->name, r);
      out[o]->on[r] = sli_expand_output(x, node, o, name);
      out[o]->on[r]->transient = out[o]->transient;
    }
  }
  for (int o = 0; o < nout && !status; o++) {
    if (!out[o]) continue;
    out[o]->sharded = at.sharded;
    sli_stand_for_all(x, out[o]);
  }
  return status;
}

/* Records the weight of each device's mean in the mean over all rows. */
static void note_share(sli_expansion *x, const sli_node *n) {
  int means = x->g->options.infer ? 0 : sli_graph_means(x->g);
  for (int m = 0; m < means; m++)
    if (n->out[0] == sli_graph_mean(x->g, m)->tensor && sli_is_mean(n->out[0]))
      for (int i = 0; i < x->ranks * x->nvariants; i++)
        x->share[m * x->ranks * x->nvariants + i] =
            sli_share_of_rows(x, n, i / x->nvariants, i % x->nvariants);
}

/* Joins the devices' results of the first call along the axes for which the call is split in
 * two. */
static sl_status join_parts(sli_expansion *x, const sli_node *n, sli_array *part) {
  int nv = x->nvariants, dim = sli_expand_type(x, part->on[0], 0)->ndim - 1;
  sl_type *whole = sli_arena_alloc(&x->g->arena, (size_t)(x->ranks * nv) * sizeof *whole);
  sl_status status = SL_OK;
  sli_along done = 0;
  for (int i = 0; i < SLI_AXES && !status; i++) { /* in column order */
    int axis = sli_splitting[i];
    sli_along along = sli_axis_factors(axis);
    if (!sli_share_signature(x, n, axis)->local || done >> axis & 1) continue;
    done |= along;
    sli_array all = {.tensor = part->tensor, .made = part->made, .sharded = part->sharded};
    all.on = sli_arena_alloc(&x->g->arena, (size_t)x->ranks * sizeof *all.on);
    for (int at = 0; at < x->ranks * nv; at++) {
      whole[at] = *sli_expand_type(x, part->on[at / nv], at % nv);
      whole[at].dim[dim] *= sli_grid_size(x->grid, along);
    }
    status = sli_box_join(x, part, along, dim, whole, &all);
    sli_stand_for_all(x, &all);
    *part = all;
  }
  return status;
}

/* Gives a part of a call the number of classes of the whole, for the check of targets. */
static void count_classes(sl_graph *g, const sli_node *whole, sli_node *part) {
  int64_t classes = sl_type_last(&whole->in_type[0]);
  part->attrs.place.whole = classes;
  if (!whole->shapes) return;
  size_t bytes = (size_t)g->cut.nvariants * sizeof *part->shapes;
  part->shapes = memcpy(sli_arena_alloc(&g->arena, bytes), whole->shapes, bytes);
  for (int v = 0; v < g->cut.nvariants; v++) part->shapes[v].attrs.place.whole = classes;
}

/* Expands a call into two: the first on each device's part, the second on the joined results. */
static sl_status expand_in_two(sli_expansion *x, const sli_node *n, const sl_signature *s,
                               sli_array *const *in, sli_array *const *out) {
  sli_moment at = moment_of(x, n);
  sl_tensor *local = sli_arena_alloc(&x->g->arena, sizeof *local);
  *local = (sl_tensor){.name = sli_arena_format(&x->g->arena, "%s:part", n->name), .at = n->at};
  sli_array part = {.tensor = local, .made = at};
  part.on = sli_arena_alloc(&x->g->arena, (size_t)x->ranks * sizeof *part.on);
  sli_node named = *n, joined = *n;
  named.name = local->name;
  named.op = s->local;
  count_classes(x->g, n, &named);
  joined.nin = 1;
  if (n->beside) joined.cls = SL_CLASS_C;
  sl_status status = make_nodes(x, &named, n, s->local, in, 1, (sli_array *[]){&part});
  if (!status) status = join_parts(x, n, &part);
  return status ? status
                : make_nodes(x, &joined, n, s->joined, (sli_array *[]){&part}, n->nout, out);
}

static bool is_chunked(const sli_expansion *x, const sli_node *forward) {
  const bool *chunked = x->choice[SLI_AXIS_SEQUENCE].chunked;
  return chunked && chunked[forward->id];
}

/* Returns a copy of a node with an additional input i. Inputs in between are absent. */
static sli_node with_input(sli_expansion *x, const sli_node *n, int i) {
  sli_node with = *n;
  with.nin = i + 1;
  with.in = sli_arena_alloc(&x->g->arena, (size_t)with.nin * sizeof *with.in);
  memcpy(with.in, n->in, (size_t)n->nin * sizeof *with.in);
  return with;
}

/* Expands a call that reads rows of a neighbouring device as an additional last input. */
static sl_status expand_near(sli_expansion *x, const sli_node *n, sli_array *const *in,
                             sli_array *const *out) {
  enum { NEAR = 3 };
  const sli_node with = with_input(x, n, SLI_MAX(NEAR, n->nin - 1));
  sli_array *all[NEAR + 2] = {NULL};
  for (int i = 0; i < n->nin; i++) all[i] = in[i];
  SLI_TRY(sli_box_near(x, n, in[0], false, moment_of(x, n), &all[NEAR]));
  return make_nodes(x, &with, n, n->op, all, n->nout, out);
}

static sl_status expand_forward(sli_expansion *x, const sli_node *n) {
  sli_array *in[n->nin + 1], *out[n->nout + 1];
  sl_status status = box_forward_inputs(x, n, in);
  if (status) return status;
  for (int o = 0; o < n->nout; o++) {
    sli_layout lies = sli_share_layout(x, n, sli_signature_out, o);
    out[o] = n->out[o] ? sli_array_add(x, n->out[o], lies, moment_of(x, n)) : NULL;
  }
  note_share(x, n);
  if (is_chunked(x, n)) return sli_expand_ring(x, n, moment_of(x, n), in, out);
  if (sli_exchanges_states(x, n)) return sli_expand_states(x, n, moment_of(x, n), in, out);
  if (sli_reads_near(x, n)) return expand_near(x, n, in, out);
  for (int a = 0; a < SLI_AXES; a++)
    if (sli_share_signature(x, n, a)->local)
      return expand_in_two(x, n, sli_share_signature(x, n, a), in, out);
  return make_nodes(x, n, n, n->op, in, n->nout, out);
}

/* Returns how many devices run a source; the rest read its data from the first. Only one process
 * knows the answers of rollouts or the requests of a session. */
static int asking_devices(const sli_expansion *x) {
  return x->g->options.serve || x->g->rollouts.count ? 1 : x->own;
}

/* Expands a source, which produces the whole data on each device that runs it. Outputs that nobody
 * reads are dropped. */
static sl_status expand_source(sli_expansion *x, const sli_node *n) {
  sli_array *out[n->nout + 1];
  for (int o = 0; o < n->nout; o++)
    out[o] = n->out[o] ? sli_array_add(x, n->out[o], everywhere, moment_of(x, n)) : NULL;
  sl_type types[x->nvariants * n->nout];
  for (int v = 0; v < x->nvariants; v++)
    for (int o = 0; o < n->nout; o++)
      types[v * n->nout + o] = n->shapes ? n->shapes[v].out[o] : n->out_type[o];
  int asking = asking_devices(x);
  for (int r = 0; r < asking; r++) {
    sli_making m = {.op = n->op,
                    .name = n->name,
                    .at = moment_of(x, n),
                    .cls = n->cls,
                    .rank = r,
                    .nout = n->nout,
                    .out = types,
                    .where = n->at,
                    .attrs = sli_local_attrs(x, n, NULL, r)};
    sli_node *node;
    sl_status status = sli_expand_node(x, &m, &node);
    if (status) return status;
    for (int o = 0; o < n->nout; o++)
      if (out[o])
        out[o]->on[r] = sli_expand_output(x, node, o, sli_expand_name(x, n->out[o]->name, r));
  }
  for (int o = 0; o < n->nout; o++) {
    for (int r = asking; r < x->own && out[o]; r++) out[o]->on[r] = out[o]->on[0];
    if (out[o]) sli_stand_for_all(x, out[o]);
  }
  for (int o = 0; o < n->nout; o++) { /* boxed here, so that the slices belong to loading */
    sli_array *as_wanted;
    sl_status status = n->out[o]
                           ? sli_box(x, n->out[o], sli_share_layout(x, n, sli_signature_out, o),
                                     moment_of(x, n), &as_wanted)
                           : SL_OK;
    if (status) return status;
    if (n->out[o]) x->arrays[n->out[o]->id] = as_wanted;
  }
  return SL_OK;
}

/* ---- backward ------------------------------------------------------------------- */

static sl_status make_backward(sli_expansion *x, const sli_node *n, sli_array *const *in,
                               const sli_layout *lies) {
  sli_array *out[n->nout + 1];
  sli_node now = *n;
  for (int o = 0; o < n->nout; o++) {
    out[o] = n->out[o] ? sli_array_add(x, n->out[o], lies[o], moment_of(x, n)) : NULL;
    if (!out[o] || !sli_is_shared_at_once(x, n->out[o], lies[o])) continue;
    now.accumulate_span &= ~(1u << o);
    out[o]->transient = true;
  }
  return make_nodes(x, &now, n->about, n->op, in, n->nout, out);
}

static bool is_gradient(const sli_node *n, int o) {
  return o < sli_rule_gradients(n->rule, n->about->nin);
}

/* Expands an exact sum of a weight's gradient over rows at their experts, which also reads the
 * rows' leaf numbers. */
static sl_status sum_at_experts(sli_expansion *x, const sli_node *n, sli_array **in,
                                const sli_layout *lies) {
  const sli_node with = with_input(x, n, n->nin);
  SLI_TRY(sli_box_leaves(x, n->in[1], argument_layout(x, n, 1), moment_of(x, n), &in[n->nin]));
  return make_backward(x, &with, in, lies);
}

/* Expands a gradient rule of a call that reads neighbouring rows. The rule may read rows after its
 * part of the gradient, and then also those rows' positions in documents, or rows before its part
 * of the input. */
static sl_status expand_near_rule(sli_expansion *x, const sli_node *n, sli_array **in,
                                  const sli_layout *lies) {
  bool behind = sli_op_shard(n->op)->behind;
  if (!sli_op_reads_near(n->op)) return make_backward(x, n, in, lies);
  int near = behind ? 2 : 3, positions = near + 1;
  bool documents = n->nin > positions && in[positions];
  const sli_node with =
      with_input(x, n, behind && documents ? positions + 1 : SLI_MAX(near, n->nin - 1));
  SLI_TRY(sli_box_near(x, n->about, in[behind ? 1 : 0], behind, moment_of(x, n), &in[near]));
  if (behind && documents)
    SLI_TRY(sli_box_near(x, n->about, in[positions], behind, moment_of(x, n), &in[positions + 1]));
  return make_backward(x, &with, in, lies);
}

/* Records the router of a gradient that is not yet at the experts, for example because the call's
 * output was added to a tensor at the rows' sources. */
static sl_status note_gradient_router(sli_expansion *x, const sli_node *n, const sl_tensor *t,
                                      const sli_layout *want) {
  if (!t || !sli_is_dispatched(want)) return SL_OK;
  const sli_node **router = &x->routers[t->id], *own = x->routers[n->about->out[0]->id];
  if (!*router) *router = own;
  return sli_dispatch_alike(*router, own)
             ? SL_OK
             : sli_graph_fail_at(x->g, n->about->at, SL_E_UNSUPPORTED,
                                 "experts.parallel: the gradient %s goes to the experts of two "
                                 "calls with different ids, %s and %s",
                                 t->name, (*router)->name, own->name);
}

static sl_status expand_rule(sli_expansion *x, const sli_node *n) {
  sli_array *in[n->nin + 2];
  sli_layout lies[n->nout + 1];
  sl_status status = SL_OK;
  for (int i = 0; i < n->nin && !status; i++) {
    bool unread = sli_bit_on(sli_op_memory(n->op)->unread, i);
    sli_layout want = argument_layout(x, n, i);
    status = note_gradient_router(x, n, n->in[i], &want);
    if (!status) status = box_input(x, n, unread ? NULL : n->in[i], want, &in[i]);
  }
  for (int o = 0; o < n->nout; o++)
    lies[o] = is_gradient(n, o)
                  ? sli_share_layout(x, n->about, sli_gradient_given, sli_rule_of(n->rule, o))
                  : everywhere; /* a record is private */
  if (status) return status;
  if (n->attrs.numbers.leaves && sli_is_at_experts(&x->choice[SLI_AXIS_EXPERT], n->about))
    return sum_at_experts(x, n, in, lies);
  if (sli_reads_near(x, n->about)) return expand_near_rule(x, n, in, lies);
  bool states = sli_exchanges_states(x, n->about);
  if (!is_chunked(x, n->about) && !states) return make_backward(x, n, in, lies);
  sli_array *out[n->nout + 1];
  for (int o = 0; o < n->nout; o++)
    out[o] = n->out[o] ? sli_array_add(x, n->out[o], lies[o], moment_of(x, n)) : NULL;
  return (states ? sli_expand_states_back : sli_expand_ring_back)(x, n, moment_of(x, n), in, out);
}

/* Returns the layout to which two summands can be brought with the least exchange. */
static sl_sbp common(sl_sbp a, sl_sbp b) {
  if (sli_sbp_equal(a, b)) return a;
  if (a.kind == SL_SPLIT) return a;
  if (b.kind == SL_SPLIT) return b;
  return a.kind == SL_PARTIAL ? a : b;
}

/* True for a summand that can be added at the experts. Exact gradients of tokens must first be
 * summed over each token's ids. */
static bool adds_at_experts(const sli_expansion *x, const sl_tensor *t) {
  const sli_layout *lies = &x->arrays[t->id]->layout;
  if (!sli_is_dispatched(lies) || !sli_is_exact(x->g)) return sli_is_dispatched(lies);
  return lies->axis[SLI_AXIS_EXPERT].dim + 1 == sli_router_ids(sli_router_of(x, t))->type.ndim;
}

/* Returns the layout in which a summand is added: at its experts if all summands can be added
 * there, else in the layout that the rows came from. */
static sli_layout summand_layout(const sli_expansion *x, const sli_node *n, const sl_tensor *t) {
  const sli_layout *lies = &x->arrays[t->id]->layout;
  bool all = true;
  for (int i = 0; i < n->nin; i++) all &= adds_at_experts(x, n->in[i]);
  return all ? *lies : sli_rows_layout(x, lies);
}

/* Expands a sum or copy of gradients in their present layout. */
static sl_status expand_linear(sli_expansion *x, const sli_node *n) {
  sli_array *in[n->nin];
  sli_layout lies = summand_layout(x, n, n->in[0]);
  for (int i = 1; i < n->nin; i++) {
    sli_layout other = summand_layout(x, n, n->in[i]);
    for (int a = 0; a < SLI_AXES; a++) lies.axis[a] = common(lies.axis[a], other.axis[a]);
  }
  for (int a = 0; a < SLI_AXES && sli_is_exact(x->g); a++)
    if (lies.axis[a].kind == SL_PARTIAL) lies.axis[a] = broadcast;
  sl_status status = SL_OK;
  for (int i = 0; i < n->nin && !status; i++) status = box_input(x, n, n->in[i], lies, &in[i]);
  return status ? status : make_backward(x, n, in, &lies);
}

/* Expands the initial gradient, scaled by each device's weight in the loss, or a constant of
 * zeros. */
static sl_status expand_constant(sli_expansion *x, const sli_node *n) {
  sli_layout lies;
  bool seed = n->like == x->g->loss.tensor && !x->g->loss.rows; /* exact means divide by all rows */
  sli_layout like = sli_rows_layout(x, &x->arrays[n->like->id]->layout);
  for (int a = 0; a < SLI_AXES; a++)
    lies.axis[a] = like.axis[a].kind == SL_SPLIT ? like.axis[a] : broadcast;
  sli_moment at = moment_of(x, n);
  sli_array *out = sli_array_add(x, n->out[0], lies, at);
  out->sharded = at.sharded;
  for (int r = 0; r < sli_own_ranks(x, at.sharded); r++) {
    sl_attrs *attrs = sli_local_attrs(x, n, NULL, r);
    for (int v = 0; v < x->nvariants; v++) {
      sl_type *type = sli_arena_alloc(&x->g->arena, sizeof *type);
      *type = sli_local_type(x, n->like, lies, r, v);
      type->dtype = SL_F32;
      attrs[v].user = type;
      if (seed)
        attrs[v].fill.value = (float)((double)attrs[v].fill.value * x->share[r * x->nvariants + v]);
    }
    sli_making m = {.op = n->op,
                    .name = n->name,
                    .at = at,
                    .cls = n->cls,
                    .rank = r,
                    .nout = 1,
                    .where = n->at,
                    .attrs = attrs};
    sli_node *node;
    sl_status status = sli_expand_node(x, &m, &node);
    if (status) return status;
    node->like = n->like;
    out->on[r] = sli_expand_output(x, node, 0, sli_expand_name(x, n->out[0]->name, r));
  }
  sli_stand_for_all(x, out);
  return SL_OK;
}

/* Returns the running statistic that a node contributes to. */
static const sl_tensor *statistic_of(const sli_expansion *x, const sli_node *n) {
  int p = 0;
  while (!x->params[p]->running || x->params[p]->grads[0] != n->out[0]) p++;
  return x->params[p];
}

/* Returns the tensor whose gradient is output o of a backward node, or the running statistic that
 * it contributes to. */
static const sl_tensor *subject(const sli_expansion *x, const sli_node *n, int o) {
  if (n->op == &sl_op_running_part) return statistic_of(x, n);
  if (n->rule) return is_gradient(n, o) ? n->about->in[sli_rule_of(n->rule, o)] : NULL;
  return n->like ? n->like : n->in[0];
}

/* A parameter's gradient keeps the dims of its parameter (own_gradients). */
static void note_dims(sli_expansion *x, const sli_node *n) {
  for (int o = 0; o < n->nout; o++) {
    const sl_tensor *of = n->out[o] ? subject(x, n, o) : NULL;
    if (!of) continue;
    int *shaped = &x->shaped[n->out[o]->id];
    if (*shaped == n->out[o]->id) *shaped = x->shaped[of->id];
    x->routers[n->out[o]->id] = x->routers[of->id];
  }
}

static sl_status expand_node(sli_expansion *x, const sli_node *n) {
  if (sli_op_is(n->op, SL_OP_SOURCE)) return expand_source(x, n);
  if (sli_is_forward(n)) return expand_forward(x, n);
  note_dims(x, n);
  if (n->rule) return expand_rule(x, n);
  if (n->like) return expand_constant(x, n);
  return expand_linear(x, n);
}

/* ---- the pass ------------------------------------------------------------------- */

/* Gives each parameter's gradients the parameter's dims, however the gradient is computed: the
 * parts of both, of the optimizer's state and of checkpoints are then the same. */
static void own_gradients(sli_expansion *x) {
  for (int p = 0; p < x->nparams; p++)
    for (int u = 0; u < x->params[p]->ngrads; u++)
      x->shaped[x->params[p]->grads[u]->id] = x->params[p]->id;
}

/* Moves the logical graph out of g to make room for the devices' graph. */
static void take_over(sli_expansion *x) {
  sl_graph *g = x->g;
  x->logical = g->nodes;
  x->nlogical = g->nnodes;
  x->params = g->params;
  x->nparams = g->nparams;
  x->arrays = sli_arena_alloc(&g->arena, (size_t)g->ntensors * sizeof *x->arrays);
  x->shared = sli_arena_alloc(&g->arena, (size_t)g->ntensors * sizeof *x->shared);
  x->sharded = sli_arena_alloc(&g->arena, (size_t)g->nblocks * sizeof *x->sharded);
  x->shaped = sli_arena_alloc(&g->arena, (size_t)g->ntensors * sizeof *x->shaped);
  x->routers = sli_arena_alloc(&g->arena, (size_t)g->ntensors * sizeof *x->routers);
  for (int t = 0; t < g->ntensors; t++) {
    x->shaped[t] = t;
    if (x->choice[SLI_AXIS_EXPERT].routers) x->routers[t] = x->choice[SLI_AXIS_EXPERT].routers[t];
  }
  own_gradients(x);
  x->rounds = sli_arena_alloc(&g->arena, (size_t)g->nnodes * sizeof *x->rounds);
  x->states = sli_arena_alloc(&g->arena, (size_t)g->nnodes * sizeof *x->states);
  int shares = sli_graph_means(g) * x->ranks * x->nvariants;
  x->share = sli_arena_alloc(&g->arena, (size_t)shares * sizeof *x->share);
  for (int i = 0; i < shares; i++) x->share[i] = 1;
  g->nodes = NULL;
  g->params = NULL;
  g->nnodes = g->nparams = 0;
  g->capacity.nodes = g->capacity.params = 0;
  free(g->tensors);
  g->tensors = NULL;
  g->ntensors = 0;
  g->capacity.tensors = 0;
  g->grad_norm = NULL;
}

/* Notes the layouts of tensors that stages may pass on, if other stages may follow than the next.
 */
static void note_layouts(const sli_expansion *x, int logical) {
  for (int t = 0; t < logical && x->g->skips; t++)
    for (const sli_array *a = x->arrays[t]; a; a = a->next)
      for (int r = 0; r < x->ranks; r++)
        if (a->on[r] && !a->on[r]->layout) a->on[r]->layout = sli_layout_format(x, &a->layout);
}

sl_status sli_pass_expand(sl_graph *g, const sli_dim *dims, const sli_grid *grid,
                          const sli_choice choice[SLI_AXES], sli_sharding sharding) {
  sli_expansion x = {.g = g,
                     .dims = dims,
                     .grid = grid,
                     .choice = choice,
                     .sharding = sharding,
                     .ranks = grid->alike ? 1 : sli_grid_ranks(grid),
                     .nvariants = SLI_MAX(g->cut.nvariants, 1)};
  x.own = x.ranks / SLI_MAX(grid->size[SLI_AXIS_STAGES], 1);
  sl_status status = SL_OK;
  if (!sli_is_exact(g)) sli_regroup_sums(g, &choice[SLI_AXIS_EXPERT]);
  int ntensors = g->ntensors;
  take_over(&x);
  sli_expand_params(&x);
  for (int i = 0; i < x.nlogical && !status; i++)
    if (x.logical[i]->cls != SL_CLASS_U) status = expand_node(&x, x.logical[i]);
  if (!status) status = sli_expand_gradients(&x);
  if (!status) status = sli_expand_rollouts(&x);
  if (!status) {
    note_layouts(&x, ntensors);
    sli_expand_results(&x);
    sli_expand_prune(g);
    if (!g->options.infer) sli_graph_add_updates(g);
    sli_fold_ranks(&x);
  }
  free(x.logical);
  free(x.params);
  free(x.types);
  return status;
}
