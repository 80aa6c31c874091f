/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of a device's part of a call, derived from the call's signatures along all axes. */
#include "graph/sharding/expand.h"
#include "ops/heads.h"

static const sli_layout everywhere; /* unset axes are broadcast */

/* ---- signatures ----------------------------------------------------------------- */

/* True if a call weighs a mean (sl_op.counted) that each device takes over its own rows. The mean
 * is weighted by the device's fraction of the rows, and the op must see the device's own mean, not
 * a sum of means. */
static bool counts_summands(const sli_expansion *x, const sli_node *forward, int axis) {
  const sl_tensor *t = sli_op_is(forward->op, SL_OP_COUNTED) ? forward->in[0] : NULL;
  if (!t || !t->producer) return false;
  const sl_signature *made = &x->choice[axis].signatures[t->producer->id];
  return sli_signature_out(made, t->output).kind == SL_PARTIAL;
}

/* True if calls are sharded along the axis. For calls at the experts, the expert axis gives the
 * location of rows even if it has one device. */
static bool is_shared_along(const sli_expansion *x, int axis, bool at_experts) {
  return x->grid->size[axis] > 1 || (axis == SLI_AXIS_EXPERT && at_experts);
}

sl_sbp sli_share_param(const sli_expansion *x, const sl_tensor *param, int axis) {
  bool of_experts = sli_is_of_experts(x, param);
  int by = of_experts ? sli_axes[axis].at_experts : sli_axes[axis].parent;
  bool rows = sli_axes[by].rows && by != SLI_AXIS_EXPERT && !x->g->options.serve;
  bool whole = param->update && param->update->rule->update->whole;
  if (whole || rows || !is_shared_along(x, axis, of_experts)) return (sl_sbp){SL_BROADCAST, 0};
  return x->choice[by].params[param->param_index];
}

const sl_signature *sli_share_signature(const sli_expansion *x, const sli_node *forward, int axis) {
  static const sl_signature repeated;
  static const sl_signature summands = {.in = {{SL_PARTIAL, 0}}, .out = {{SL_PARTIAL, 0}}};
  bool at_experts = sli_is_at_experts(&x->choice[SLI_AXIS_EXPERT], forward);
  int by = at_experts ? sli_axes[axis].at_experts : sli_axes[axis].parent;
  if (!is_shared_along(x, axis, at_experts)) return &repeated;
  return counts_summands(x, forward, by) ? &summands : &x->choice[by].signatures[forward->id];
}

sli_layout sli_share_layout(const sli_expansion *x, const sli_node *forward, sli_sbp_of *of,
                            int i) {
  sli_layout lies;
  for (int a = 0; a < SLI_AXES; a++) lies.axis[a] = of(sli_share_signature(x, forward, a), i);
  return lies;
}

/* ---- attributes of a part ------------------------------------------------------- */

/* Returns a member's part of the head units that inner axes leave. */
static int64_t units_of(int64_t units, int size, int member) {
  return units * (member + 1) / size - units * member / size;
}

/* Sets the device's number of heads, split along the sharding axes from the innermost outwards. */
static void share_heads(const sli_expansion *x, const sli_node *forward, int rank,
                        sl_attrs *attrs) {
  int64_t whole = 0, own = 0;
  sli_along done = 0;
  for (int i = SLI_AXES - 1; i >= 0; i--) {
    int a = sli_splitting[i];
    sli_along along = sli_axis_factors(a);
    const sl_signature *s = sli_share_signature(x, forward, a);
    if (!s->heads || done >> a & 1) continue;
    done |= along;
    if (!whole) own = whole = x->dims[forward->in[0]->id * SL_MAX_DIMS + s->in[0].dim].units;
    own = units_of(own, sli_grid_size(x->grid, along), sli_rank_share(x->grid, rank, along));
  }
  if (!whole) return;
  sli_heads_share(attrs, own, whole);
}

/* Returns the fraction of a microbatch's rows over which a device takes a mean. */
double sli_share_of_rows(const sli_expansion *x, const sli_node *mean, int rank, int variant) {
  double share = 1;
  sli_layout lies = everywhere;
  for (int a = 0; a < SLI_AXES; a++) {
    const sl_signature *s = sli_share_signature(x, mean, a);
    if (s->out[0].kind == SL_PARTIAL && s->in[0].kind == SL_SPLIT) lies.axis[a] = s->in[0];
  }
  sl_type whole = sli_logical_type(mean->in[0], variant);
  sl_type own = sli_local_type(x, mean->in[0], lies, rank, variant);
  for (int d = 0; d < whole.ndim; d++) share *= (double)own.dim[d] / (double)whole.dim[d];
  return share;
}

/* Sets the start of the device's part, for signatures that ask for it, in one dim of one input. */
static void say_first(const sli_expansion *x, const sli_node *forward, int rank, int variant,
                      sl_attrs *attrs) {
  for (int a = 0; a < SLI_AXES; a++) {
    int i = sli_share_signature(x, forward, a)->first - 1;
    if (i < 0) continue;
    sli_layout lies = sli_share_layout(x, forward, sli_signature_in, i);
    const sl_region *region = sli_share_region(x, forward->in[i], lies, rank, variant, NULL);
    const sl_part *own = &region->parts[lies.axis[a].dim];
    attrs->place.first += own->begin[0];
    if (own->nranges > 1) {
      attrs->place.run = own->count[0];
      attrs->place.skip = own->begin[1] - own->begin[0] - own->count[0];
    }
    attrs->place.partial = true;
    return;
  }
}

/* Sets the attributes of a device's part of a forward node, or of its backward pass. */
static void localize(const sli_expansion *x, const sli_node *forward, int rank, int variant,
                     sl_attrs *attrs) {
  share_heads(x, forward, rank, attrs);
  say_first(x, forward, rank, variant, attrs);
  if (sli_op_is(forward->op, SL_OP_COUNTED)) {
    double *share = sli_arena_alloc(&x->g->arena, sizeof *share);
    *share = sli_share_of_rows(x, forward->in[0]->producer, rank, variant);
    if (attrs->user) *share *= *(const double *)attrs->user; /* the weight of a piece */
    attrs->user = share;
  }
  if (sli_op_is(forward->op, SL_OP_LOCATED))
    attrs->region =
        sli_share_region(x, forward->out[0], sli_share_layout(x, forward, sli_signature_out, 0),
                         rank, variant, attrs->region);
}

/* Returns the attributes [nvariants] of a device's part. */
sl_attrs *sli_local_attrs(sli_expansion *x, const sli_node *n, const sli_node *forward, int rank) {
  sl_attrs *attrs = sli_arena_alloc(&x->g->arena, (size_t)x->nvariants * sizeof *attrs);
  for (int v = 0; v < x->nvariants; v++) {
    attrs[v] = n->shapes ? n->shapes[v].attrs : n->attrs;
    if (forward) localize(x, forward, rank, v, &attrs[v]);
  }
  return attrs;
}
