/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences cut in pieces.
 *
 * A model is built on whole sequences and knows of no pieces. Two passes around the gradients
 * make the graph run piece by piece.
 *
 * Before the gradients, the sources give the sequence dim, and every op's shape rule is evaluated
 * again for a piece instead of the whole. This shows for each tensor whether it is cut, and along
 * which dim. Each op is checked against its promise (sl_pieces): an op that mixes positions is an
 * error that names it. Ops that look back to earlier positions are replaced by their `pieced` ops,
 * whose gradient rules then give the backward pass.
 *
 * After the gradients, all shapes are computed once for every distinct length (a variant). The
 * tensors themselves get the longest, so that a slot fits every piece.
 *
 * The loss of a piece is a summand (losses.c), or a mean over fewer positions. Such a mean is
 * weighted by its share of the positions, and so is the initial gradient. */
#include "graph/build/build.h"
#include "graph/cost/cost.h"
#include "graph/passes/passes.h"
#include "graph/sharding/sharding.h"
#include "ops/attention_table.h"
#include "ops/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Types of all tensors when a piece has n positions. */
typedef struct sizing {
  sl_graph *g;
  int64_t n;
  sl_type *types; /* [ntensors] */
  bool *parts;    /* [ntensors] a piece has a summand, or a mean over its positions */
} sizing;

static sl_status pieces_refuse(sl_graph *g, const sli_node *n, const char *why) {
  return sli_graph_fail_at(g, n->at, SL_E_UNSUPPORTED,
                           "op %s (%s) cannot be cut into pieces: %s; inputs %s", n->name,
                           n->op->name, why, sli_graph_describe(g, n->nin, n->in));
}

static const char *mixes(sl_graph *g, const sl_op *op) {
  const char *why = sli_attention_refusal(op, SLI_ATTENTION_PIECE);
  return sli_words(
      op, "it may mix positions (sl_op_cut.pieces does not say that it does not)",
      sli_arena_format(&g->arena, "%s; --stages, --data-parallel and --tensor cut no sequences",
                       why ? why : "it may mix positions"));
}

/* ---- shapes of a piece ------------------------------------------------------------ */

static sizing sizing_create(sl_graph *g, int64_t n) {
  sizing s = {g, n, sli_calloc((size_t)g->ntensors, sizeof *s.types),
              sli_calloc((size_t)g->ntensors, sizeof *s.parts)};
  for (int i = 0; i < g->nparams; i++) s.types[g->params[i]->id] = g->params[i]->type;
  return s;
}

static void sizing_destroy(sizing *s) {
  free(s->types);
  free(s->parts);
}

static int type_count(const sli_node *n) { return SLI_MAX(n->nin, n->op->max_in); }

static void source_types(const sizing *s, const sli_node *n, sl_type *out) {
  const sl_source *source = n->attrs.user;
  for (int o = 0; o < n->nout; o++) {
    out[o] = source->types[o];
    if (!n->whole) out[o].dim[source->cut - 1] = s->n;
  }
}

/* Fills in in[type_count] and out[nout] of a node; the types of earlier nodes must be known. */
static sl_status size_node(sizing *s, const sli_node *n, sl_type *in, sl_type *out) {
  for (int i = 0; i < type_count(n); i++)
    in[i] = i < n->nin && n->in[i] ? s->types[n->in[i]->id] : *sl_tensor_type(NULL);
  sl_status status = SL_OK;
  if (sli_op_is(n->op, SL_OP_SOURCE)) source_types(s, n, out);
  else if (n->like) {
    out[0] = s->types[n->like->id];
    out[0].dtype = SL_F32;
  } else status = n->op->infer(&n->attrs, n->nin, in, out);
  if (status)
    return pieces_refuse(
        s->g, n,
        sli_arena_format(&s->g->arena, "with %lld of %lld positions, %s", (long long)s->n,
                         (long long)s->g->cut.length, sl_detail()));
  for (int o = 0; o < n->nout; o++) {
    if (!n->out[o] || n->out[o]->param) continue;
    if (n->out[o]->type.dtype == SL_F64) out[o].dtype = SL_F64; /* an exact sum, too */
    s->types[n->out[o]->id] = out[o];
  }
  return SL_OK;
}

/* ---- sequence dims ------------------------------------------------------------------- */

static sl_status source_length(sl_graph *g, const sli_node *n) {
  const sl_source *source = n->attrs.user;
  if (!source->cut)
    return pieces_refuse(g, n, "it supplies data as whole microbatches only (sl_source.cut)");
  for (int o = 0; o < source->nout; o++) {
    const sl_type *type = &source->types[o];
    char text[SL_TYPE_TEXT];
    if (source->cut < 1 || source->cut > type->ndim)
      return pieces_refuse(g, n,
                           sli_arena_format(&g->arena, "output %d, %s, has no dim %d", o,
                                            sli_type_text(text, type), source->cut - 1));
    int64_t length = type->dim[source->cut - 1];
    if (g->cut.length && g->cut.length != length)
      return pieces_refuse(
          g, n,
          sli_arena_format(&g->arena,
                           "output %d, %s, has sequences of %lld positions, other outputs %lld", o,
                           sli_type_text(text, type), (long long)length, (long long)g->cut.length));
    g->cut.length = length;
  }
  return SL_OK;
}

static sl_status find_length(sl_graph *g) {
  const sli_node *first = NULL;
  for (int i = 0; i < g->nnodes; i++) {
    if (!sli_op_is(g->nodes[i]->op, SL_OP_SOURCE)) continue;
    if (!first) first = g->nodes[i];
    sl_status status = source_length(g, g->nodes[i]);
    if (status) return status;
  }
  int pieces = g->options.pieces;
  if (!first)
    return sl_graph_fail(g, SL_E_USAGE, "%d pieces asked for, but the model reads no sequences",
                         pieces);
  if (g->exact.leaf && g->cut.length % g->exact.leaf)
    return sli_graph_fail_at(g, first->at, SL_E_USAGE,
                             "numbers.leaf %lld: must divide the %lld positions of %s",
                             (long long)g->exact.leaf, (long long)g->cut.length, first->name);
  if (g->cut.length < pieces * SLI_MAX(g->exact.leaf, 1))
    return sli_graph_fail_at(
        g, first->at, SL_E_USAGE,
        "%d pieces asked for, but the sequences of %s have only %lld %s%s", pieces, first->name,
        (long long)(g->cut.length / SLI_MAX(g->exact.leaf, 1)),
        g->exact.leaf ? "leaves" : "position", g->exact.leaf || g->cut.length == 1 ? "" : "s");
  return SL_OK;
}

/* ---- lengths --------------------------------------------------------------------------- */

/* Cuts into even lengths, in whole leaves if sums are exact. */
static void cut_evenly(sl_graph *g) {
  int64_t pieces = g->options.pieces, unit = SLI_MAX(g->exact.leaf, 1),
          units = g->cut.length / unit;
  for (int64_t k = 0; k < pieces; k++)
    g->cut.lengths[k] = (units / pieces + (k < units % pieces)) * unit;
}

/* Estimates the time of the forward pass over the first n positions. Ops look at most at earlier
 * positions, so a piece takes the time up to its end minus the time up to its beginning. */
static sl_status prefix_seconds(sl_graph *g, const sl_hardware *h, int64_t n, double *out) {
  sizing s = sizing_create(g, n);
  sl_status status = SL_OK;
  *out = 0;
  for (int i = 0; i < g->nnodes && !status; i++) {
    const sli_node *node = g->nodes[i];
    sl_type in[type_count(node) + 1], to[node->nout + 1];
    status = size_node(&s, node, in, to);
    if (!status && node->cls == SL_CLASS_F) *out += sli_call_seconds(h, node, in, to);
  }
  sizing_destroy(&s);
  return status;
}

/* Finds the end in [low, high] whose prefix time is nearest to `seconds`. */
static sl_status find_end(sl_graph *g, const sl_hardware *h, double seconds, int64_t low,
                          int64_t high, int64_t *out) {
  double t = 0, before = -INFINITY;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    sl_status status = prefix_seconds(g, h, middle, &t);
    if (status) return status;
    if (t < seconds) low = middle + 1, before = t;
    else high = middle;
  }
  sl_status status = prefix_seconds(g, h, low, &t);
  if (status) return status;
  *out = low - (seconds - before < t - seconds);
  return SL_OK;
}

/* Gives each piece equal time. The fixed cost of a call (mostly reading the weights) is the same
 * for all pieces and is excluded. It is the value at length 0 of the parabola through lengths 1, 2
 * and 3. */
static sl_status cut_by_cost(sl_graph *g, const sl_hardware *h) {
  int64_t pieces = g->options.pieces, begin = 0;
  double t[3], whole;
  for (int64_t n = 1; n <= 3; n++) {
    sl_status status = prefix_seconds(g, h, SLI_MIN(n, g->cut.length), &t[n - 1]);
    if (status) return status;
  }
  sl_status status = prefix_seconds(g, h, g->cut.length, &whole);
  double fixed = g->cut.length < 3 ? 0 : 3 * t[0] - 3 * t[1] + t[2];
  for (int64_t k = 0; k + 1 < pieces && !status; k++) {
    int64_t unit = SLI_MAX(g->exact.leaf, 1), low = begin + unit,
            high = g->cut.length - (pieces - 1 - k) * unit, end = low;
    double share = (double)(k + 1) / (double)pieces;
    status = find_end(g, h, fixed + (whole - fixed) * share, low, high, &end);
    end = SLI_MIN(SLI_MAX((end + unit / 2) / unit * unit, low), high);
    g->cut.lengths[k] = end - begin;
    begin = end;
  }
  g->cut.lengths[pieces - 1] = g->cut.length - begin;
  return status;
}

static sl_status take_given(sl_graph *g) {
  int64_t sum = 0;
  for (int k = 0; k < g->options.pieces; k++) {
    if (g->options.lengths[k] < 1)
      return sl_graph_fail(g, SL_E_USAGE, "piece %d has %lld positions: it needs at least 1", k,
                           (long long)g->options.lengths[k]);
    sum += g->cut.lengths[k] = g->options.lengths[k];
  }
  if (sum == g->cut.length) return SL_OK;
  return sl_graph_fail(
      g, SL_E_USAGE, "the lengths of the pieces add up to %lld positions, but sequences have %lld",
      (long long)sum, (long long)g->cut.length);
}

/* Lists the distinct lengths, longest first. */
static void find_variants(sl_graph *g) {
  g->cut.variant_lengths = sli_arena_alloc(&g->arena, (size_t)g->options.pieces * sizeof(int64_t));
  for (int k = 0; k < g->options.pieces; k++) {
    int at = 0;
    while (at < g->cut.nvariants && g->cut.variant_lengths[at] > g->cut.lengths[k]) at++;
    if (at < g->cut.nvariants && g->cut.variant_lengths[at] == g->cut.lengths[k]) continue;
    memmove(&g->cut.variant_lengths[at + 1], &g->cut.variant_lengths[at],
            (size_t)(g->cut.nvariants++ - at) * sizeof(int64_t));
    g->cut.variant_lengths[at] = g->cut.lengths[k];
  }
}

static sl_status choose_lengths(sl_graph *g, const sl_hardware *h) {
  sl_status status = SL_OK;
  g->cut.lengths = sli_arena_alloc(&g->arena, (size_t)g->options.pieces * sizeof *g->cut.lengths);
  if (g->options.lengths) status = take_given(g);
  else if (g->options.cut == SL_CUT_BALANCED) status = cut_by_cost(g, h);
  else cut_evenly(g);
  if (!status) find_variants(g);
  return status;
}

/* ---- promises --------------------------------------------------------------------------- */

/* Returns the number of dims in which a tensor's whole and its piece differ; *dim: the last. */
static int cut_dims(const sl_type *whole, const sl_type *piece, int *dim) {
  int count = 0;
  *dim = -1;
  for (int d = 0; d < whole->ndim; d++)
    if (whole->dim[d] != piece->dim[d]) count++, *dim = d;
  return count;
}

/* Returns what is wrong with cutting this input along dim d, or NULL if nothing. */
static const char *bad_input(sl_graph *g, const sl_op *op, int i, const sl_type *type, int d) {
  if (sli_bit(sli_op_cut(op)->whole, i))
    return sli_arena_format(&g->arena, "it needs its whole input %d", i);
  if (type->dtype == SL_I32 || sli_op_cut(op)->pieces == SL_PIECES_ELEMENTS) return NULL;
  if (sli_op_cut(op)->pieces == SL_PIECES_POSITIONS || sli_op_cut(op)->pieces == SL_PIECES_STATE)
    return d == 1 ? NULL
                  : sli_arena_format(&g->arena,
                                     "its positions are dim 1, but input %d is cut along"
                                     " dim %d",
                                     i, d);
  return d + 1 < type->ndim
             ? NULL
             : sli_arena_format(&g->arena,
                                "it works along the last dim, along which input %d is cut", i);
}

/* True if a signature's argument matches the pieces: split if the argument is cut, partial if it is
 * a summand, else broadcast. */
static bool lies_cut(sl_sbp sbp, const sl_type *whole, const sl_type *piece, bool part) {
  int d, cut = cut_dims(whole, piece, &d);
  if (part || !cut) return !cut && sbp.kind == (part ? SL_PARTIAL : SL_BROADCAST);
  return cut == 1 && sbp.kind == SL_SPLIT && sbp.dim == d;
}

static bool is_part(const sizing *s, const sl_tensor *t) { return t && s->parts[t->id]; }

static bool lie_cut(const sizing *s, const sli_node *n, const sl_signature *how, const sl_type *in,
                    const sl_type *out) {
  for (int i = 0; i < n->nin; i++)
    if (n->in_type[i].ndim >= 0 &&
        !lies_cut(sli_signature_in(how, i), &n->in_type[i], &in[i], is_part(s, n->in[i])))
      return false;
  for (int o = 0; o < n->nout; o++) {
    sl_sbp lies = sli_signature_out(how, o);
    if (!lies_cut(lies, &n->out_type[o], &out[o], lies.kind == SL_PARTIAL)) return false;
  }
  return true;
}

/* True if a call on a piece matches one of its op's signatures; records which outputs are then
 * summands. */
static bool is_share(sizing *s, const sli_node *n, const sl_op *op, const sl_type *in,
                     const sl_type *out) {
  sl_signature all[SL_SIGNATURES] = {0};
  int count = sli_op_signatures(op, &n->attrs, n->nin, n->in_type, all);
  for (int i = 0; i < count; i++) {
    if (!lie_cut(s, n, &all[i], in, out)) continue;
    for (int o = 0; o < n->nout; o++)
      if (n->out[o]) s->parts[n->out[o]->id] = sli_signature_out(&all[i], o).kind == SL_PARTIAL;
    return true;
  }
  return false;
}

/* Checks that a call that reads summands produces summands. */
static sl_status check_parts(sizing *s, const sli_node *n, const sl_op *op, int i,
                             const sl_type *in, const sl_type *out) {
  if (is_share(s, n, op, in, out)) return SL_OK;
  return pieces_refuse(
      s->g, n,
      sli_arena_format(
          &s->g->arena,
          "each piece has a partial sum of its input %d, %s: only linear ops can read that, and "
          "not together with a whole input",
          i, n->in[i]->name));
}

static bool is_reduction(const sl_op *op) {
  return sli_op_cut(op)->pieces == SL_PIECES_MEAN || sli_op_cut(op)->pieces == SL_PIECES_SUM;
}

static sl_status check_node(sizing *s, const sli_node *n, const sl_type *in, const sl_type *out) {
  const sl_op *op = sli_op_cut(n->op)->pieced ? sli_op_cut(n->op)->pieced : n->op;
  sl_graph *g = s->g;
  bool any = false;
  int d;
  if (sli_op_is(n->op, SL_OP_SOURCE) || n->whole) return SL_OK;
  if (sli_op_cut(op)->pieces == SL_PIECES_REFUSED) return pieces_refuse(g, n, mixes(g, n->op));
  for (int i = 0; i < n->nin; i++) {
    if (is_part(s, n->in[i])) return check_parts(s, n, op, i, in, out);
    if (!n->in[i] || !cut_dims(&n->in_type[i], &in[i], &d)) continue;
    any = true;
    if (sli_op_cut(op)->pieces == SL_PIECES_SIGNATURES) continue;
    const char *bad = bad_input(g, op, i, &in[i], d);
    if (bad) return pieces_refuse(g, n, bad);
  }
  if (any && sli_op_cut(op)->pieces == SL_PIECES_SIGNATURES)
    return is_share(s, n, op, in, out)
               ? SL_OK
               : pieces_refuse(g, n,
                               sli_words(op, "no signature of its row fits inputs cut this way",
                                         "it needs inputs whole that this cuts"));
  if (any && is_reduction(op) && n->out[0]) s->parts[n->out[0]->id] = true;
  for (int o = 0; o < n->nout && any; o++)
    if (cut_dims(&n->out_type[o], &out[o], &d) != 1 && !(is_reduction(op) && !o))
      return pieces_refuse(
          g, n, sli_arena_format(&g->arena, "its output %d would not be cut into pieces", o));
  return SL_OK;
}

static sl_status check_promises(sl_graph *g) {
  sizing s = sizing_create(g, g->cut.variant_lengths[0]);
  sl_status status = SL_OK;
  for (int i = 0; i < g->nnodes && !status; i++) {
    const sli_node *n = g->nodes[i];
    sl_type in[type_count(n) + 1], out[n->nout + 1];
    status = size_node(&s, n, in, out);
    if (!status) status = check_node(&s, n, in, out);
  }
  if (!status && g->loss.tensor && !is_part(&s, g->loss.tensor))
    status = sli_graph_fail_at(
        g, g->loss.tensor->at, SL_E_UNSUPPORTED,
        "the loss %s cannot be cut into pieces: it is not a mean or sum over positions "
        "(sl_op_cut.pieces)",
        g->loss.tensor->name);
  for (int m = 0; m < sli_graph_means(g) && !status; m++) {
    sli_mean *mean = sli_graph_mean(g, m);
    mean->adds = is_part(&s, mean->tensor) && !sli_is_mean(mean->tensor);
  }
  sizing_destroy(&s);
  return status;
}

/* ---- before the gradients ------------------------------------------------------------------ */

/* Replaces a node's op by the one for pieces. Its outputs stay; the record and other tensors
 * kept for the backward pass are appended. */
static sl_status exchange(sl_graph *g, sli_node *n, const sl_op *op) {
  int nout = sli_op_outputs(op, &n->attrs, n->nin);
  sl_tensor **out = sli_arena_alloc(&g->arena, (size_t)nout * sizeof *out);
  memcpy(out, n->out, (size_t)n->nout * sizeof *out);
  int o = n->nout;
  n->op = op;
  n->out = out;
  n->nout = nout;
  n->out_type = sli_arena_alloc(&g->arena, (size_t)nout * sizeof *n->out_type);
  sl_status status = sli_node_infer(n);
  if (status) return pieces_refuse(g, n, sl_detail());
  for (; o < n->nout; o++)
    sli_node_output(g, n, o, sli_arena_format(&g->arena, "%s:%d", n->name, o));
  return SL_OK;
}

/* Compares shapes for whole sequences with shapes for sequences that are one leaf shorter. */
static sl_status compare_lengths(sl_graph *g, int8_t *positions) {
  sizing s = sizing_create(g, g->cut.length - g->exact.leaf);
  sl_status status = SL_OK;
  memset(positions, -1, (size_t)g->ntensors);
  for (int i = 0; i < g->nnodes && !status; i++) {
    const sli_node *n = g->nodes[i];
    sl_type in[type_count(n) + 1], out[n->nout + 1];
    status = size_node(&s, n, in, out);
    for (int o = 0; o < n->nout && !status; o++) {
      int dim;
      cut_dims(&n->out_type[o], &out[o], &dim);
      if (n->out[o]) positions[n->out[o]->id] = (int8_t)dim;
    }
  }
  sizing_destroy(&s);
  return status;
}

sl_status sli_positions_find(sl_graph *g) {
  sl_status status = find_length(g);
  if (status || g->cut.length == g->exact.leaf) return status;
  int8_t *positions = sli_arena_alloc(&g->arena, (size_t)g->ntensors + 1);
  g->exact.positions = positions;
  return compare_lengths(g, positions);
}

sl_status sli_pass_cut(sl_graph *g, const sl_hardware *hardware) {
  if (g->status) return sl_graph_status(g);
  if (g->options.pieces == 1) return SL_OK;
  sl_status status = find_length(g);
  if (!status) status = choose_lengths(g, hardware);
  if (!status) status = check_promises(g);
  if (!status) status = sli_pass_parts(g);
  for (int i = 0; i < g->nnodes && !status; i++) {
    sli_node *n = g->nodes[i];
    if (n->whole) continue;
    n->attrs.place.length = g->cut.length;
    if (sli_is_sweeping(g, n)) status = exchange(g, n, sli_op_cut(n->op)->swept);
    else if (sli_has_parts(g, n)) status = exchange(g, n, sli_op_cut(n->op)->shared);
    else if (sli_op_cut(n->op)->pieced) status = exchange(g, n, sli_op_cut(n->op)->pieced);
  }
  return status;
}

/* ---- after the gradients
 * ------------------------------------------------------------------------ */

/* Returns a piece's share of a microbatch's positions. */
static const double *share_of(const sizing *s) {
  double *share = sli_arena_alloc(&s->g->arena, sizeof *share);
  *share = (double)s->n / (double)s->g->cut.length;
  return share;
}

/* Resizes a constant to a piece, and scales it if it is the initial gradient of a mean. Exact
 * gradients of means divide by the rows of the whole step instead. */
static void scale_constant(const sizing *s, const sli_node *n, sli_shapes *shapes) {
  sl_type *type = sli_arena_alloc(&s->g->arena, sizeof *type);
  *type = shapes->out[0];
  shapes->attrs.user = type;
  if (n->like == s->g->loss.tensor && !s->g->loss.adds && !s->g->loss.rows)
    shapes->attrs.fill.value =
        (float)((double)n->attrs.fill.value * (double)s->n / (double)s->g->cut.length);
}

/* Returns the region that a piece takes of the forward call's whole output 0; until the last
 * variant, n->out_type is the whole. */
static const sl_region *region_of(sl_graph *g, const sli_node *n, int variant) {
  const sli_node *forward = n->rule ? n->about : n;
  if (!sli_op_is(forward->op, SL_OP_LOCATED)) return NULL;
  const sl_type *whole = &forward->out_type[0];
  sl_region *region = sli_arena_alloc(&g->arena, sizeof *region);
  int d, cut = cut_dims(whole, &forward->shapes[variant].out[0], &d);
  region->ndim = whole->ndim;
  region->sequence = cut ? d + 1 : 0;
  memcpy(region->whole, whole->dim, sizeof whole->dim);
  return region;
}

static sl_status add_variant(sl_graph *g, int v) {
  sizing s = sizing_create(g, g->cut.variant_lengths[v]);
  sl_status status = SL_OK;
  for (int i = 0; i < g->nnodes && !status; i++) {
    sli_node *n = g->nodes[i];
    if (n->per_step) continue;
    if (!v) n->shapes = sli_arena_alloc(&g->arena, (size_t)g->cut.nvariants * sizeof *n->shapes);
    sli_shapes *shapes = &n->shapes[v];
    shapes->attrs = n->attrs;
    shapes->in = sli_arena_alloc(&g->arena, (size_t)type_count(n) * sizeof *shapes->in);
    shapes->out = sli_arena_alloc(&g->arena, (size_t)n->nout * sizeof *shapes->out);
    bool cut = !sli_op_is(n->op, SL_OP_SOURCE) && !n->like && !n->whole;
    if (sli_op_cut(n->op)->pieces == SL_PIECES_REFUSED && cut)
      status = pieces_refuse(g, n, mixes(g, n->op));
    if (!status) status = size_node(&s, n, shapes->in, shapes->out);
    if (!status) shapes->attrs.region = region_of(g, n, v);
    if (!status && sli_op_is((n->rule ? n->about : n)->op, SL_OP_COUNTED))
      shapes->attrs.user = share_of(&s);
    if (!status && n->like) scale_constant(&s, n, shapes);
  }
  sizing_destroy(&s);
  return status;
}

/* Gives each tensor the type of its longest piece. */
static void take_longest(sl_graph *g) {
  for (int i = 0; i < g->nnodes; i++) {
    sli_node *n = g->nodes[i];
    if (!n->shapes) continue;
    n->attrs = n->shapes[0].attrs;
    n->in_type = n->shapes[0].in;
    n->out_type = n->shapes[0].out;
    for (int o = 0; o < n->nout; o++)
      if (n->out[o]) n->out[o]->type = n->out_type[o];
  }
}

sl_status sli_pass_pieces(sl_graph *g) {
  if (g->status) return sl_graph_status(g);
  sl_status status = SL_OK;
  for (int v = 0; v < g->cut.nvariants && !status; v++) status = add_variant(g, v);
  if (status || !g->cut.nvariants) return status;
  take_longest(g);
  return SL_OK;
}

int sl_graph_pieces(const sl_graph *g, const int64_t **lengths) {
  *lengths = g->cut.lengths;
  return g->options.pieces;
}
