/* SPDX-License-Identifier: Apache-2.0 */
/* Spans: rows of an encoder that are computed once a step and read by all passes of the step.
 *
 * The graph of a model with frames contains their encoder, followed by a span (sl_splice). First
 * the encoder is cut out, and its parameters are frozen. The span stays and reads the parameters,
 * so that every device that reads the rows gets the parameters, as for any call.
 *
 * Once the graph covers all devices, the encoder comes back as passes of a separate pace, with a
 * tick for each prompt of a step. Q devices split the F frames of a prompt evenly; the first F mod
 * Q devices encode one extra frame. Each device gathers the rows of the others and adds all to its
 * span. Encoders with the same parameters, those of the model and of its reference, are merged.
 * Their ops compute with exact sums, so the rows do not depend on the number of devices. */
#include "graph/passes/passes.h"

#include <string.h>

#include <sluice/plan.h>

#include "graph/build/build.h"
#include "ops/ops.h"
#include "ops/splice.h"

/* An encoder that was cut out. */
struct sli_encoder {
  int nnodes;
  sli_node **nodes;        /* [nnodes] copies as cut out; later passes change the graph's nodes */
  const sli_node **makers; /* [nnodes] those of the graph */
  sl_tensor *rows;         /* its result, of one prompt */
  int nparams;
  sl_tensor **params; /* [nparams] in the order of the span's inputs */
  bool frozen;        /* encoder of a reference */
};

static bool is_span(const sli_node *n) { return n->op == &sl_op_span; }

/* ---- cut ------------------------------------------------------------------------------------ */

/* Marks the nodes that a tensor is computed from. */
static void find_ancestors(const sl_graph *g, const sl_tensor *t, bool *in) {
  for (int i = t->producer->id; i >= 0; i--) {
    const sli_node *n = g->nodes[i];
    bool wanted = n == t->producer || in[i];
    in[i] = wanted;
    for (int a = 0; a < n->nin && wanted; a++)
      if (n->in[a] && n->in[a]->producer) in[n->in[a]->producer->id] = true;
  }
}

static sl_status check_source(sl_graph *g, const sli_node *span, const sli_node *n) {
  if (n->cls != SL_CLASS_L || sli_frames_of(n)) return SL_OK;
  return sli_graph_fail_at(g, span->at, SL_E_UNSUPPORTED,
                           "sl_splice: its rows must come from frames only, but %s contributes",
                           n->name);
}

/* True for tensors that the encoder computes, and for its parameters. */
static bool is_of(const sli_encoder *e, const bool *in, const sl_tensor *t) {
  bool own = false;
  for (int i = 0; i < e->nparams; i++) own |= e->params[i] == t;
  return t->producer ? in[t->producer->id] && !sli_frames_of(t->producer) : own;
}

/* Checks that nothing else reads the encoder's tensors. */
static sl_status check_readers(sl_graph *g, const sli_node *span, const sli_encoder *e,
                               const bool *in) {
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    for (int a = 0; a < n->nin && !in[i] && !is_span(n); a++) {
      const sl_tensor *t = n->in[a];
      if (t && is_of(e, in, t))
        return sli_graph_fail_at(
            g, span->at, SL_E_UNSUPPORTED,
            "sl_splice: op %s (%s) also reads %s, which belongs to the encoder", n->name,
            n->op->name, t->name);
    }
  }
  return SL_OK;
}

static void add_param(sl_graph *g, sli_encoder *e, sl_tensor *t) {
  for (int i = 0; i < e->nparams; i++)
    if (e->params[i] == t) return;
  e->params[e->nparams++] = t;
  if (!t->frozen) sl_freeze_at(t->at, g, t->name);
}

static sli_node *copy_of(sl_graph *g, const sli_node *n) {
  sli_node *copy = sli_arena_alloc(&g->arena, sizeof *copy);
  *copy = *n;
  copy->in = sli_arena_alloc(&g->arena, (size_t)n->nin * sizeof *copy->in);
  for (int i = 0; i < n->nin; i++) copy->in[i] = n->in[i];
  return copy;
}

/* Lists the encoder's nodes and parameters. */
static sl_status list_nodes(sl_graph *g, const sli_node *span, const bool *in, sli_encoder *e) {
  e->nodes = sli_arena_alloc(&g->arena, (size_t)g->nnodes * sizeof *e->nodes);
  e->makers = sli_arena_alloc(&g->arena, (size_t)g->nnodes * sizeof *e->makers);
  e->params = sli_arena_alloc(&g->arena, (size_t)g->nparams * sizeof *e->params);
  for (int i = 0; i < g->nnodes; i++) {
    sli_node *n = g->nodes[i];
    if (!in[i]) continue;
    SLI_TRY(check_source(g, span, n));
    e->makers[e->nnodes] = n;
    e->nodes[e->nnodes++] = copy_of(g, n);
    for (int a = 0; a < n->nin; a++)
      if (n->in[a] && n->in[a]->param) add_param(g, e, n->in[a]);
  }
  return SL_OK;
}

static void read_params(sl_graph *g, sli_node *span, const sli_encoder *e) {
  span->nin = e->nparams;
  span->in = sli_arena_alloc(&g->arena, (size_t)e->nparams * sizeof *span->in);
  span->in_type = sli_arena_alloc(&g->arena, (size_t)e->nparams * sizeof *span->in_type);
  for (int i = 0; i < e->nparams; i++) {
    span->in[i] = e->params[i];
    span->in_type[i] = e->params[i]->type;
  }
}

static sl_status cut_out(sl_graph *g, sli_node *span) {
  struct sli_encoded_spans *s = &g->spans;
  bool *in = sli_arena_alloc(&g->arena, (size_t)g->nnodes * sizeof *in);
  sli_encoder e = {.rows = span->in[0]};
  find_ancestors(g, e.rows, in);
  SLI_TRY(list_nodes(g, span, in, &e));
  SLI_TRY(check_readers(g, span, &e, in));
  for (int i = 0; i < e.nparams; i++) e.frozen |= e.params[i]->frozen != NULL;
  read_params(g, span, &e);
  span->attrs.tokens.encoder = s->count;
  s->encoders[s->count++] = e;
  return SL_OK;
}

/* Drops the nodes of all encoders; a node may belong to several. */
static void drop_encoders(sl_graph *g) {
  const sli_node **all =
      sli_arena_alloc(&g->arena, (size_t)(g->spans.count * g->nnodes) * sizeof *all);
  int count = 0;
  for (int e = 0; e < g->spans.count; e++)
    for (int i = 0; i < g->spans.encoders[e].nnodes; i++)
      all[count++] = g->spans.encoders[e].makers[i];
  sli_graph_drop(g, count, all);
}

sl_status sli_pass_spans(sl_graph *g) {
  int spans = 0;
  for (int i = 0; i < g->nnodes; i++) spans += is_span(g->nodes[i]);
  g->spans.encoders = sli_arena_alloc(&g->arena, (size_t)spans * sizeof *g->spans.encoders);
  for (int i = 0; i < g->nnodes; i++)
    if (is_span(g->nodes[i])) SLI_TRY(cut_out(g, g->nodes[i]));
  drop_encoders(g);
  g->spans.prompts = (int)g->spans.frames->prompts;
  return SL_OK;
}

bool sli_has_spans(const sl_graph *g) {
  for (int i = 0; i < g->nnodes; i++)
    if (is_span(g->nodes[i])) return true;
  return false;
}

/* ---- copies --------------------------------------------------------------------------------- */

/* The passes that are being added for one encoder. */
typedef struct encoding {
  sl_graph *g;
  const sli_encoder *encoder;
  const char *prefix; /* prefix of node names */
  int block, rank, ranks;
  int64_t frames, first, count; /* frames of a prompt; the device's part of them */
  sl_tensor *const *params;     /* [of->nparams] on the device */
  sl_tensor **twin;             /* [outputs] copies of the encoder's tensors, in order of nodes */
} encoding;

static void set_pace(sli_node *n, const encoding *x) {
  n->rank = x->rank;
  n->phase = SLI_PHASE_SPAN;
  n->pace = SLI_PACE_SPAN;
}

/* Returns the index of an output among the outputs of all nodes. */
static int number_of(const sli_encoder *e, const sl_tensor *t) {
  int number = 0;
  for (int i = 0; e->makers[i] != t->producer; i++) number += e->nodes[i]->nout;
  return number + t->output;
}

static sl_tensor *twin_of(const encoding *x, const sl_tensor *t) {
  if (!t) return NULL;
  for (int i = 0; i < x->encoder->nparams && t->param; i++)
    if (x->encoder->params[i] == t) return x->params[i];
  return x->twin[number_of(x->encoder, t)];
}

/* Scales a shape to the device's frames; returns false if dim 0 does not count frames. */
static bool scale_type(const encoding *x, sl_type *type) {
  if (type->ndim < 1 || type->dim[0] % x->frames) return false;
  type->dim[0] = type->dim[0] / x->frames * x->count;
  return true;
}

/* True if the op works on positions of dim 0 independently. */
static bool goes_by_frames(const sli_node *n) {
  sl_signature all[SL_SIGNATURES];
  if (sli_op_cut(n->op)->pieces == SL_PIECES_ELEMENTS ||
      sli_op_cut(n->op)->pieces == SL_PIECES_ROWS)
    return true;
  memset(all, 0, sizeof all);
  int count = sli_op_signatures(n->op, &n->attrs, n->nin, n->in_type, all);
  for (int s = 0; s < count; s++)
    if (all[s].out[0].kind == SL_SPLIT && !all[s].out[0].dim && all[s].in[0].kind == SL_SPLIT &&
        !all[s].in[0].dim)
      return true;
  return false;
}

static sl_status refuse(const encoding *x, const sli_node *n) {
  return sli_graph_fail_at(x->g, n->at, SL_E_UNSUPPORTED,
                           "op %s (%s) of an encoder mixes frames, which are split over %d devices",
                           n->name, n->op->name, x->ranks);
}

/* Adjusts attributes of a call that refer to all frames. */
static bool scale_attrs(const encoding *x, const sli_node *from, sl_attrs *attrs) {
  if (sli_op_is(from->op, SL_OP_SOURCE)) {
    attrs->user = sli_frames_part(x->g, attrs->user, x->first, x->count);
  } else if (sli_op_is(from->op, SL_OP_RESHAPE)) {
    sl_reshaping *r = sli_arena_alloc(&x->g->arena, sizeof *r);
    *r = *(const sl_reshaping *)attrs->user;
    attrs->user = r;
    return scale_type(x, &r->from) && scale_type(x, &r->to);
  }
  return true;
}

/* Checks that a device's results are its part of the whole. */
static bool is_part(const encoding *x, const sli_node *from, const sli_node *n) {
  bool same = true;
  for (int o = 0; o < n->nout; o++) {
    sl_type want = from->out_type[o];
    same &= scale_type(x, &want) && sl_type_equal(&want, &n->out_type[o]);
  }
  return same && (n->cls == SL_CLASS_L || goes_by_frames(from));
}

static sl_status copy_node(encoding *x, const sli_node *from, int number) {
  sl_graph *g = x->g;
  sl_attrs attrs = from->attrs;
  sl_tensor *in[from->nin + 1];
  bool splits = x->count < x->frames;
  if (!scale_attrs(x, from, &attrs) && splits) return refuse(x, from);
  for (int a = 0; a < from->nin; a++) in[a] = twin_of(x, from->in[a]);
  attrs.numbers.exact = true;
  sli_node *n = sli_graph_node(
      g, from->op, sli_arena_format(&g->arena, "%s:%s#%d", x->prefix, from->name, x->rank), &attrs,
      from->cls, x->block, from->nin, in, from->nout);
  n->at = from->at;
  set_pace(n, x);
  if (sli_node_infer(n))
    return sli_graph_fail_at(g, n->at, SL_E_UNSUPPORTED, "op %s (%s) of an encoder: %s", from->name,
                             from->op->name, sli_arena_strdup(&g->arena, sl_detail()));
  if (splits && !is_part(x, from, n)) return refuse(x, from);
  for (int o = 0; o < n->nout; o++)
    if (from->out[o])
      x->twin[number + o] = sli_node_output(
          g, n, o, sli_arena_format(&g->arena, "%s:%s#%d", x->prefix, from->out[o]->name, x->rank));
  return SL_OK;
}

/* Adds the passes of a device; *rows: their result. */
static sl_status encode(encoding *x, sl_tensor **rows) {
  int number = 0;
  for (int i = 0; i < x->encoder->nnodes; i++) number += x->encoder->nodes[i]->nout;
  x->twin = sli_arena_alloc(&x->g->arena, (size_t)number * sizeof *x->twin);
  number = 0;
  for (int i = 0; i < x->encoder->nnodes; number += x->encoder->nodes[i++]->nout)
    SLI_TRY(copy_node(x, x->encoder->nodes[i], number));
  *rows = twin_of(x, x->encoder->rows);
  return SL_OK;
}

/* Gathers the rows of all devices on one device. */
static sl_status gather(const encoding *x, int nparts, sl_tensor *const *parts, sl_tensor **whole) {
  const sl_attrs attrs = {.along.axes = SL_DIM(0)};
  const char *name = sli_arena_format(&x->g->arena, "%s:rows#%d", x->prefix, x->rank);
  sli_node *n =
      sli_graph_node(x->g, &sl_op_concat, name, &attrs, SL_CLASS_C, x->block, nparts, parts, 1);
  n->at = x->encoder->rows->at;
  set_pace(n, x);
  SLI_TRY(sli_node_infer(n));
  n->remote_bytes = (double)sl_type_bytes(&n->out_type[0]) * (x->ranks - 1) / x->ranks;
  *whole = sli_node_output(x->g, n, 0, name);
  return SL_OK;
}

/* ---- all devices ---------------------------------------------------------------------------- */

/* Spans of one encoder: one on each device. */
typedef struct spans {
  sli_node **on; /* [ranks] NULL: one device stands for all */
} spans;

/* Sets a device's range of the prompt's frames. */
static void set_share(encoding *x) {
  int64_t each = x->frames / x->ranks, more = x->frames % x->ranks;
  x->first = x->rank * each + SLI_MIN(x->rank, more);
  x->count = each + (x->rank < more);
}

/* Makes a span collect the rows instead of reading the parameters. On a device without frames it
 * reads both, since nothing else reads that device's parameters. */
static void collect(sl_graph *g, sli_node *span, sl_tensor *rows, bool encodes) {
  int params = encodes ? 0 : span->nin;
  sl_tensor **in = sli_arena_alloc(&g->arena, (size_t)(params + 1) * sizeof *in);
  sl_type *types = sli_arena_alloc(&g->arena, (size_t)(params + 1) * sizeof *types);
  for (int i = 0; i <= params; i++) {
    in[i] = i ? span->in[i - 1] : rows;
    types[i] = in[i]->type;
  }
  span->nin = params + 1;
  span->in = in;
  span->in_type = types;
  span->shapes = NULL;
  span->phase = SLI_PHASE_SPAN;
  span->pace = SLI_PACE_SPAN;
}

/* Adds the encoder's passes, whose rows its spans collect. */
static sl_status encode_all(sl_graph *g, const char *prefix, int ranks, const spans *s) {
  const sli_encoder *e = &g->spans.encoders[s->on[0]->attrs.tokens.encoder];
  const int64_t frames = sli_frames_of(e->nodes[0])->count;
  sl_tensor *parts[ranks], *rows[ranks];
  int nparts = 0, own = 0;
  encoding x[ranks];
  for (int r = 0; r < ranks; r++) {
    x[r] = (encoding){
        .g = g, .encoder = e, .prefix = prefix, .rank = r, .ranks = ranks, .frames = frames};
    set_share(&x[r]);
    if (!s->on[r]) parts[nparts++] = parts[0]; /* alike devices */
    if (!s->on[r]) continue;
    x[r].block = s->on[r]->block, x[r].params = s->on[r]->in;
    own = r + 1;
    if (x[r].count) SLI_TRY(encode(&x[r], &parts[nparts++]));
  }
  for (int r = 0; r < own; r++) {
    rows[r] = parts[0];
    if (ranks > 1) SLI_TRY(gather(&x[r], nparts, parts, &rows[r]));
  }
  for (int r = 0; r < own; r++) collect(g, s->on[r], rows[r], x[r].count);
  return SL_OK;
}

/* ---- encoders that are one ------------------------------------------------------------------ */

static bool are_same(const sli_node *a, const sli_node *b) {
  return a->rank == b->rank && a->nin == b->nin &&
         !memcmp(a->in, b->in, (size_t)a->nin * sizeof *a->in);
}

/* Returns the first span of the same rows. */
static const sli_node *find_same(const sl_graph *g, const sli_node *span) {
  int i = 0;
  while (!is_span(g->nodes[i]) || !are_same(g->nodes[i], span)) i++;
  return g->nodes[i];
}

/* Makes readers of several spans with the same rows read the first. */
static void merge_spans(sl_graph *g) {
  const sli_node **merged = sli_arena_alloc(&g->arena, (size_t)g->nnodes * sizeof *merged);
  int count = 0;
  for (int i = 0; i < g->nnodes; i++) {
    sli_node *n = g->nodes[i];
    const sli_node *first = is_span(n) ? find_same(g, n) : n;
    if (first == n) continue;
    sli_graph_replace_reads(g, 0, n->out[0], first->out[0]);
    merged[count++] = n;
  }
  sli_graph_drop(g, count, merged);
}

/* ---- the pass ------------------------------------------------------------------------------- */

/* Finds the spans of an encoder; returns false if they have been merged into another's. */
static bool find_spans(const sl_graph *g, int encoder, int ranks, spans *s) {
  s->on = sli_arena_alloc((sli_arena *)&g->arena, (size_t)ranks * sizeof *s->on);
  for (int i = 0; i < g->nnodes; i++)
    if (is_span(g->nodes[i]) && g->nodes[i]->attrs.tokens.encoder == encoder)
      s->on[g->nodes[i]->rank] = g->nodes[i];
  return s->on[0];
}

/* Adds a copy of an encoder's span on the first device, for rollouts only. */
static spans copy_span(sl_graph *g, const spans *s) {
  spans copy = {sli_arena_alloc(&g->arena, sizeof *copy.on)};
  const sli_node *of = s->on[0];
  const char *name = sli_arena_format(&g->arena, "rollout:%s", of->name);
  sli_node *n = sli_graph_node(g, of->op, name, &of->attrs, of->cls, of->block, of->nin, of->in, 1);
  n->at = of->at;
  n->rank = of->rank;
  sli_node_infer(n);
  sli_node_output(g, n, 0, name);
  copy.on[0] = n;
  return copy;
}

/* Returns the sort key of a node: sources, passes of encoders, the spans that collect their rows,
 * all others. */
static int order_of(const sli_node *n, int before) {
  if (is_span(n)) return 2;
  return n->id >= before ? 1 : sli_op_is(n->op, SL_OP_SOURCE) ? 0 : 3;
}

static void put_first(sl_graph *g, int before) {
  sli_node **nodes = sli_arena_alloc(&g->arena, (size_t)g->nnodes * sizeof *nodes);
  for (int order = 0, n = 0; order < 4; order++)
    for (int i = 0; i < g->nnodes; i++)
      if (order_of(g->nodes[i], before) == order) nodes[n++] = g->nodes[i];
  sli_graph_reorder(g, nodes);
}

sl_status sli_pass_encode(sl_graph *g, int ranks) {
  bool apart = g->spans.frames->apart;
  if (!apart) merge_spans(g);
  int before = g->nnodes;
  for (int e = 0; e < g->spans.count; e++) {
    spans s, rollouts;
    if (!find_spans(g, e, ranks, &s)) continue;
    bool own = !g->spans.encoders[e].frozen || !apart;
    if (own && apart) rollouts = copy_span(g, &s);
    if (own && apart) SLI_TRY(encode_all(g, "rollout.span", 1, &rollouts));
    if (own) g->spans.served = (apart ? rollouts.on[0] : s.on[0])->out[0];
    SLI_TRY(encode_all(g, g->spans.encoders[e].frozen ? "reference.span" : "span", ranks, &s));
  }
  put_first(g, before);
  return SL_OK;
}
