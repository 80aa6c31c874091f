/* SPDX-License-Identifier: Apache-2.0 */
/* Choice for row axes, which is forced and often impossible.
 *
 * Source data is split, and so is everything computed from it: each call reads its inputs in their
 * present layout. Along the sequence axis some calls cannot do that, because they read other
 * positions. If such a call can be sharded by heads, its inputs are exchanged for that, and its
 * outputs are converted back to positions for their readers. */
#include <stdlib.h>
#include <string.h>

#include "graph/build/build.h"
#include "graph/sharding/search.h"
#include "ops/attention_table.h"
#include "ops/heads.h"
#include "ops/ops.h"

typedef struct pass {
  sl_graph *g;
  const sli_dim *dims;
  int axis, size;
  int parts; /* parts of a source's data along all axes that split it in the same way */
  sli_dispatching dispatching;
  bool ring, zigzag, states;
  bool *chunked;   /* [nnodes] */
  sl_sbp *layouts; /* [ntensors] layout in which readers get a tensor */
} pass;

/* Returns the dim along which a source is split, or -1 if none. */
static int source_dim(const pass *p, const sli_node *n) {
  return p->axis == SLI_AXIS_SEQUENCE ? ((const sl_source *)n->attrs.user)->cut - 1 : 0;
}

/* Returns the shortest length of the dim over all pieces. */
static int64_t least_rows(const sli_node *n, int nvariants, int o, int dim) {
  int64_t least = n->out_type[o].dim[dim];
  for (int v = 0; v < nvariants && n->shapes; v++)
    least = SLI_MIN(least, n->shapes[v].out[o].dim[dim]);
  return least;
}

static int64_t least_input_rows(const sli_node *n, int nvariants) {
  int64_t least = n->in_type[0].dim[1];
  for (int v = 0; v < nvariants && n->shapes; v++)
    least = SLI_MIN(least, n->shapes[v].in[0].dim[1]);
  return least;
}

static sl_status split_source(const pass *p, const sli_node *n, sl_signature *out) {
  const sli_axis *axis = &sli_axes[p->axis];
  int dim = source_dim(p, n);
  for (int o = 0; o < n->nout && dim >= 0; o++) {
    const sl_type *type = &n->out_type[o];
    char text[SL_TYPE_TEXT];
    bool there = dim < type->ndim;
    if (there && least_rows(n, p->g->cut.nvariants, o, dim) >= (p->zigzag ? 2 : 1) * p->parts) {
      out->out[SLI_MIN(o, SL_SIGNATURE_ARGS - 1)] = (sl_sbp){SL_SPLIT, dim};
      continue;
    }
    return sli_graph_fail_at(
        p->g, n->at, SL_E_USAGE,
        "the data of %s cannot be split over %d devices: its output %d, %s, has %s", n->name,
        p->parts, o, sli_type_text(text, type), there ? axis->words.few : axis->words.none);
  }
  if (n->nout && dim >= 0) return SL_OK;
  return sli_graph_fail_at(p->g, n->at, SL_E_USAGE,
                           "the data of %s cannot be split over %d devices: it is not %s", n->name,
                           p->parts, axis->words.split);
}

static const char *lies_in_words(sli_arena *arena, sl_sbp lies) {
  if (lies.kind == SL_SPLIT) return sli_arena_format(arena, "split along dim %d", lies.dim);
  if (lies.kind == SL_DISPATCHED) return "on the devices of its experts";
  return lies.kind == SL_PARTIAL ? "a partial sum on each" : "whole on each";
}

/* Describes the inputs: "ids i32[8, 4] split along dim 0, table f32[16, 8] whole on each". */
static const char *rows_describe(const pass *p, const sli_node *n) {
  sli_arena *arena = &p->g->arena;
  const char *text = "";
  for (int i = 0; i < n->nin; i++) {
    if (!n->in[i]) continue;
    char type[SL_TYPE_TEXT];
    text = sli_arena_format(arena, "%s%s%s %s %s", text, *text ? ", " : "", n->in[i]->name,
                            sl_type_format(type, &n->in_type[i]),
                            lies_in_words(arena, p->layouts[n->in[i]->id]));
  }
  return text;
}

/* True if boxing can produce the wanted layout. A whole tensor can become summands, with the value
 * on the first device. Without a gradient, a whole tensor can be split, and summands can be summed.
 * Rows can return from experts. */
static bool may_be_boxed(const pass *p, const sl_tensor *t, sl_sbp want) {
  if (p->layouts[t->id].kind == SL_DISPATCHED) return want.kind == SL_SPLIT && !want.dim;
  if (p->layouts[t->id].kind == SL_PARTIAL) return want.kind == SL_BROADCAST && !t->needs_grad;
  if (p->layouts[t->id].kind != SL_BROADCAST) return false;
  return want.kind == SL_PARTIAL || (want.kind == SL_SPLIT && !t->needs_grad && !t->param);
}

static bool fits(const pass *p, const sli_node *n, const sl_signature *s, bool boxed) {
  for (int i = 0; i < n->nin; i++) {
    if (!n->in[i] || sli_sbp_equal(p->layouts[n->in[i]->id], sli_signature_in(s, i))) continue;
    if (!boxed || !may_be_boxed(p, n->in[i], sli_signature_in(s, i))) return false;
  }
  return true;
}

/* True if each device gets units. Rows may stay together in units of several, as the two rows of a
 * pair do. */
static bool is_enough(const pass *p, const sl_tensor *t, sl_sbp sbp) {
  if (!t || sbp.kind != SL_SPLIT) return true;
  const sli_dim *dim = &p->dims[t->id * SL_MAX_DIMS + sbp.dim];
  return dim->cut || dim->units == t->type.dim[sbp.dim] || dim->units >= p->parts;
}

static bool are_enough(const pass *p, const sli_node *n, const sl_signature *s) {
  for (int i = 0; i < n->nin; i++)
    if (!is_enough(p, n->in[i], sli_signature_in(s, i))) return false;
  for (int o = 0; o < n->nout; o++)
    if (!is_enough(p, n->out[o], sli_signature_out(s, o))) return false;
  return true;
}

/* Returns an input of which each device has a summand, or NULL if none. */
static const sl_tensor *summand(const pass *p, const sli_node *n) {
  for (int i = 0; i < n->nin; i++)
    if (n->in[i] && p->layouts[n->in[i]->id].kind == SL_PARTIAL) return n->in[i];
  return NULL;
}

/* True if exchanges can bring all inputs into the wanted layouts. Inputs without a gradient can be
 * made whole. */
static bool may_be_exchanged(const pass *p, const sli_node *n, const sl_signature *s) {
  for (int i = 0; i < n->nin; i++) {
    if (!n->in[i]) continue;
    sl_sbp want = sli_signature_in(s, i), lies = p->layouts[n->in[i]->id];
    bool heads = s->heads && lies.kind == SL_SPLIT && want.kind == SL_SPLIT;
    bool whole = want.kind == SL_BROADCAST && lies.kind == SL_SPLIT && !n->in[i]->needs_grad;
    if (!heads && !whole && !sli_sbp_equal(lies, want)) return false;
  }
  return true;
}

static bool mixes_positions(const pass *p, const sli_node *n) {
  return p->axis == SLI_AXIS_SEQUENCE && n->in[0] && p->layouts[n->in[0]->id].kind == SL_SPLIT;
}

/* Rejects a call that could be sharded by heads but has fewer heads than devices. */
static sl_status refuse_heads(const pass *p, const sli_node *n) {
  int queries = n->attrs.attention.heads, keys = sli_key_heads(&n->attrs);
  bool few = queries < p->size;
  const char *ring = sli_attention_refusal(n->op, SLI_ATTENTION_STEP);
  return sli_graph_fail_at(
      p->g, n->at, SL_E_USAGE,
      "op %s (%s) cannot be split by heads over %d sequence-parallel devices: it has %d %s heads%s%s",
      n->name, n->op->name, p->size, few ? queries : keys, few ? "query" : "key/value",
      ring ? ", and for a ring " : "", ring ? ring : "");
}

static bool has_heads(const sli_node *n) {
  sl_signature all[SLI_SIGNATURES_RAW];
  int count = sli_signatures_raw(n, all);
  for (int i = 0; i < count; i++)
    if (all[i].heads) return true;
  return false;
}

/* Attention of a piece: queries stay in place, and each device gathers all keys and values. */
static bool gathers(const sli_node *n, sl_signature *out) {
  const sl_sbp positions = {SL_SPLIT, 1};
  if (sli_op_sequence(n->op) != SL_SEQUENCE_GATHER) return false;
  *out = (sl_signature){.in = {positions}, .out = {positions, {SL_SPLIT, 2}}, .first = 1};
  return true;
}

/* Ring attention: queries, keys and values stay in place. */
static bool goes_around(const pass *p, const sli_node *n, sl_signature *out) {
  bool separate = sli_op_shard(n->op)->heads == SL_HEADS_SEPARATE;
  if (!p->ring || !mixes_positions(p, n)) return false;
  if (gathers(n, out)) return true;
  if (sli_op_sequence(n->op) != SL_SEQUENCE_RING || n->attrs.attention.shown) return false;
  const sl_sbp positions = {SL_SPLIT, 1};
  *out = (sl_signature){.out = {positions, {SL_SPLIT, 2}}};
  for (int i = 0; i < (separate ? 3 : 1); i++) out->in[i] = positions;
  return p->chunked[n->id] = true;
}

static bool is_conv(const sli_node *n) { return sli_op_sequence(n->op) == SL_SEQUENCE_NEAR; }

/* Short convolution: positions stay in place, and each device reads some rows of its neighbour
 * (near.c). */
static sl_status reads_near(const pass *p, const sli_node *n, sl_signature *out) {
  const sl_sbp positions = {SL_SPLIT, 1};
  int64_t rows = least_input_rows(n, p->g->cut.nvariants) / p->size,
          before = sl_type_last(&n->in_type[1]) - 1;
  *out = (sl_signature){.in = {positions}, .out = {positions}, .first = 1};
  if (n->nin > 4) out->in[4] = positions;
  if (rows >= before) return SL_OK;
  return sli_graph_fail_at(
      p->g, n->at, SL_E_USAGE,
      "op %s (%s) cannot be split over %d sequence-parallel devices: each reads %lld positions "
      "before its own, but its neighbour has only %lld",
      n->name, n->op->name, p->size, (long long)before, (long long)rows);
}

/* Linear attention by exchange of states: positions stay in place (states.c). */
static bool exchanges_states(const pass *p, const sli_node *n, sl_signature *out) {
  const sl_sbp positions = {SL_SPLIT, 1};
  if (!p->states || !sli_has_states(n) || !mixes_positions(p, n)) return false;
  *out = (sl_signature){.out = {positions}};
  for (int i = 0; i < n->nin; i++) out->in[i] = positions;
  return true;
}

/* Returns a dim of one of the node's arrays that has fewer units than devices, or NULL if none. */
static const sli_dim *few_units(const pass *p, const sli_node *n, const sl_tensor **out) {
  for (int a = 0; a < n->nin + n->nout; a++) {
    const sl_tensor *t = *out = a < n->nin ? n->in[a] : n->out[a - n->nin];
    if (!t || t->param || !t->type.ndim) continue;
    const sli_dim *dim = &p->dims[t->id * SL_MAX_DIMS];
    if (dim->units < p->parts && dim->units < t->type.dim[0] && !dim->cut) return dim;
  }
  return NULL;
}

/* Returns what can be done about an op without a rule. */
static const char *remedy(const pass *p, const sli_node *n) {
  const char *user = p->zigzag && mixes_positions(p, n)
                         ? "it reads positions in order, as --sequence-layout contiguous has them"
                         : "it needs them whole; --stages and --tensor leave them whole";
  return sli_words(n->op, "set .cut or .shard in its sl_op", user);
}

static sl_status rows_choose(const pass *p, const sli_node *n, sl_signature *out) {
  sl_signature all[SL_SIGNATURES];
  if (sli_op_is(n->op, SL_OP_SOURCE) && !n->whole) return split_source(p, n, out);
  if (goes_around(p, n, out) || exchanges_states(p, n, out)) return SL_OK;
  if (is_conv(n) && mixes_positions(p, n) && !p->zigzag) return reads_near(p, n, out);
  int count = sli_signatures(p->dims, n, p->axis, p->size, all);
  if (p->dispatching.routers && sli_choose_dispatched(&p->dispatching, n, all, count, out))
    return SL_OK;
  for (int i = 0; i < 2 * count; i++) { /* first the ways that fit the present layouts */
    const sl_signature *s = &all[i % count];
    if (!fits(p, n, s, i >= count) || !are_enough(p, n, s)) continue;
    *out = *s;
    return SL_OK;
  }
  for (int i = 0; i < count && mixes_positions(p, n); i++) {
    if (!may_be_exchanged(p, n, &all[i])) continue;
    *out = all[i];
    return SL_OK;
  }
  const char *axis = sli_axes[p->axis].name;
  const sl_tensor *sum = summand(p, n);
  if (mixes_positions(p, n) && has_heads(n)) return refuse_heads(p, n);
  if (sum)
    return sli_graph_fail_at(
        p->g, n->at, SL_E_UNSUPPORTED,
        "op %s (%s) reads %s, of which each of %d %s-parallel devices has a partial sum: %s",
        n->name, n->op->name, sum->name, p->size, axis,
        sli_words(n->op, "only linear ops can read that",
                  "sums and multiples of it can be shared, other functions of it cannot; --stages "
                  "and --tensor leave it whole"));
  const sl_tensor *few;
  const sli_dim *dim = sli_along_data >> p->axis & 1 ? few_units(p, n, &few) : NULL;
  if (dim)
    return sli_graph_fail_at(
        p->g, n->at, SL_E_USAGE,
        "%lld rows of %s cannot be split over %d %s-parallel devices: %lld rows each stay together",
        (long long)few->type.dim[0], few->name, p->parts, axis,
        (long long)(few->type.dim[0] / dim->units));
  return sli_graph_fail_at(p->g, n->at, SL_E_UNSUPPORTED,
                           "op %s (%s) has no rule for %d %s-parallel devices that have %s: %s",
                           n->name, n->op->name, p->size, axis, rows_describe(p, n), remedy(p, n));
}

/* Returns the layout in which readers get an output. If inputs were exchanged, outputs return to
 * the layout that the input had. */
static sl_sbp as_read(const pass *p, const sli_node *n, const sl_signature *s, int o) {
  sl_sbp made = sli_signature_out(s, o);
  if (!mixes_positions(p, n) || made.kind == SL_PARTIAL) return made;
  sl_sbp lies = p->layouts[n->in[0]->id];
  const sl_type *in = &n->in_type[0], *out = &n->out_type[o];
  bool exchanged = !sli_sbp_equal(lies, sli_signature_in(s, 0)),
       has_positions = out->ndim == in->ndim && out->dim[lies.dim] == in->dim[lies.dim];
  return exchanged && has_positions ? lies : made;
}

/* Checks that each device has its own part of the loss. */
static sl_status check_loss(const pass *p) {
  const sl_tensor *loss = p->g->loss.tensor;
  if (!loss || p->layouts[loss->id].kind == SL_PARTIAL) return SL_OK;
  return sli_graph_fail_at(
      p->g, loss->at, SL_E_UNSUPPORTED,
      "the loss %s does not depend on %s of data, so there is nothing to split over %d devices",
      loss->name, sli_axes[p->axis].words.rows, p->size);
}

sl_status sli_choose_rows(sl_graph *g, const sli_dim *dims, const sli_grid *grid, int axis,
                          sli_choice *out) {
  pass p = {.g = g, .dims = dims, .axis = axis, .size = grid->size[axis]};
  p.parts = sli_along_data >> axis & 1 ? sli_grid_size(grid, sli_along_data) : p.size;
  p.ring = axis == SLI_AXIS_SEQUENCE && grid->ring;
  p.zigzag = axis == SLI_AXIS_SEQUENCE && grid->zigzag;
  p.states = axis == SLI_AXIS_SEQUENCE && grid->states;
  sl_status status = SL_OK;
  sli_choice choice = {.signatures = sli_calloc((size_t)g->nnodes, sizeof *choice.signatures),
                       .params = sli_calloc((size_t)g->nparams, sizeof *choice.params)};
  p.layouts = sli_calloc((size_t)g->ntensors, sizeof *p.layouts);
  p.chunked = choice.chunked = sli_calloc((size_t)g->nnodes, sizeof *choice.chunked);
  if (axis == SLI_AXIS_EXPERT)
    choice.routers = sli_calloc((size_t)g->ntensors, sizeof *choice.routers);
  p.dispatching = (sli_dispatching){p.layouts, choice.routers, sli_choice_size(grid, axis)};
  bool there = p.size > 1 || choice.routers;
  for (int i = 0; i < g->nnodes && !status && there; i++) {
    const sli_node *n = g->nodes[i];
    if (!sli_is_shared(n)) continue;
    sl_signature *s = &choice.signatures[i];
    status = rows_choose(&p, n, s);
    for (int o = 0; o < n->nout && !status; o++)
      if (n->out[o]) p.layouts[n->out[o]->id] = as_read(&p, n, s, o);
  }
  if (!status && there) status = check_loss(&p);
  if (!status && choice.routers) status = sli_check_dispatched(g, &p.dispatching);
  free(p.layouts);
  if (status) {
    sli_choice_free(&choice);
    return status;
  }
  sli_costs costs;
  sli_costs_init(&costs, g, dims, grid, axis);
  costs.chunked = choice.chunked;
  sli_costs_sum(&costs, NULL, &choice, NULL);
  sli_costs_fini(&costs);
  *out = choice;
  return SL_OK;
}

/* ---- layouts given by the user -------------------------------------------------------- */

static sl_status check_given(const sl_graph *g, const sli_choice *rows, const sl_given_sbp *given) {
  char want[SLI_SBP_TEXT], is[SLI_SBP_TEXT];
  sl_sbp lies = {SL_BROADCAST, 0};
  const char *why = "memory.shard decides how parameters lie";
  bool known = false;
  for (int p = 0; p < g->nparams; p++) known |= !strcmp(g->params[p]->name, given->name);
  for (int i = 0; i < g->nnodes && !known; i++) {
    const sli_node *n = g->nodes[i];
    if (!sli_is_shared(n) || strcmp(n->name, given->name)) continue;
    lies = sli_signature_out(&rows->signatures[i], 0);
    why = sli_axes[given->axis].words.into;
    known = true;
  }
  if (!known) return sl_fail(SL_E_USAGE, "no parameter or op is called %s", given->name);
  if (sli_sbp_equal(lies, given->sbp)) return SL_OK;
  return sl_fail(SL_E_USAGE, "%s lies as %s along the %s axis, and cannot as %s: %s", given->name,
                 sli_sbp_format(is, lies), sli_axes[given->axis].name,
                 sli_sbp_format(want, given->sbp), why);
}

sl_status sli_check_rows(const sl_graph *g, const sli_choice *rows, int axis, int ngiven,
                         const sl_given_sbp *given) {
  sl_status status = SL_OK;
  for (int i = 0; i < ngiven && !status; i++)
    if (given[i].axis == axis) status = check_given(g, rows, &given[i]);
  return status;
}

void sli_choice_free(sli_choice *choice) {
  free(choice->signatures);
  free(choice->params);
  free(choice->chunked);
  free(choice->routers);
  free(choice->runner_up);
  *choice = (sli_choice){0};
}
