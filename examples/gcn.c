/* SPDX-License-Identifier: Apache-2.0 */
/* A graph neural network over pipeline stages: layers of graph convolutions (Kipf and Welling,
 * arXiv 1609.02907) learn the classes of vertices, most of which are unlabelled.
 *
 *     actorrun --steps 100 examples/gcn.c
 *     actorrun --steps 100 --stages 4 --pieces 8 --schedule seq1f1b examples/gcn.c
 *     actorrun --steps 100 --eval-every 20 examples/gcn.c
 *
 * The vertices form one sequence, so --pieces cuts them into chunks that pass through the stages
 * one after another. A chunk's vertices have neighbours in other chunks. A layer uses this step's
 * values of earlier chunks, and the previous step's values of later ones (GNNPipe, arXiv
 * 2308.10087). Every vertex therefore crosses each stage boundary once in each direction. p stages
 * transfer 2 (p - 1) N H numbers per step, regardless of the number of edges.
 *
 * The custom op `aggregate`, which has a second form for pieces, implements all this. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sluice/sluice.h>

/* ---- the graph ---------------------------------------------------------------------------------
 *
 * The graph is symmetric, and each vertex has an edge to itself. `weight` is 1 / sqrt(product of
 * the degrees of both ends). */

typedef struct vertices {
  int64_t count;
  int64_t *first; /* [count + 1]: index of a vertex's first neighbour */
  int32_t *to;    /* neighbours in ascending order */
  float *weight;
} vertices;

/* Hashes a number to a value in [0, 1). */
static double chance(uint64_t number) {
  number += 0x9e3779b97f4a7c15u;
  number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9u;
  number = (number ^ number >> 27) * 0x94d049bb133111ebu;
  return (double)((number ^ number >> 31) >> 11) * 0x1p-53;
}

static int32_t class_of(int64_t vertex, int classes) {
  return (int32_t)(chance((uint64_t)vertex) * classes);
}

enum { DRAWS = 1 << 20, TRIES = 64 };

/* Returns the other end of a vertex's edge: in three of four cases a vertex of the same class. */
static int32_t other_end(int64_t n, int classes, int64_t vertex, int edge) {
  uint64_t key = ((uint64_t)vertex * 64 + (uint64_t)edge + 1) * DRAWS;
  bool alike = chance(key) < 0.75;
  int64_t end = vertex;
  for (int i = 1; i < TRIES; i++) {
    end = (int64_t)(chance(key + (uint64_t)i) * (double)n);
    if (!alike || class_of(end, classes) == class_of(vertex, classes)) break;
  }
  return (int32_t)end;
}

static int ascending(const void *a, const void *b) {
  return *(const int32_t *)a < *(const int32_t *)b ? -1 : *(const int32_t *)a > *(const int32_t *)b;
}

/* Builds the graph. Every vertex draws `edges` edges, and also has the edges that other vertices
 * draw to it. */
static vertices *make_graph(sl_graph *g, int64_t n, int classes, int edges) {
  vertices *v = sl_graph_alloc(g, sizeof *v);
  *v = (vertices){n, sl_graph_alloc(g, ((size_t)n + 1) * sizeof *v->first),
                  sl_graph_alloc(g, (size_t)(n * (2 * edges + 1)) * sizeof *v->to),
                  sl_graph_alloc(g, (size_t)(n * (2 * edges + 1)) * sizeof *v->weight)};
  int64_t *at = v->first;
  for (int64_t i = 0; i <= n; i++) at[i] = 0;
  for (int64_t i = 0; i < n; i++) {
    at[i] += 1 + edges;
    for (int e = 0; e < edges; e++) at[other_end(n, classes, i, e)]++;
  }
  for (int64_t i = 0, sum = 0; i <= n; i++) { /* ends of ranges, which become starts below */
    sum += at[i];
    at[i] = sum;
  }
  for (int64_t i = 0; i < n; i++) {
    v->to[--at[i]] = (int32_t)i;
    for (int e = 0; e < edges; e++) {
      int32_t end = other_end(n, classes, i, e);
      v->to[--at[i]] = end;
      v->to[--at[end]] = (int32_t)i;
    }
  }
  for (int64_t i = 0; i < n; i++) {
    qsort(v->to + at[i], (size_t)(at[i + 1] - at[i]), sizeof *v->to, ascending);
    for (int64_t e = at[i]; e < at[i + 1]; e++) {
      int32_t end = v->to[e];
      v->weight[e] = 1 / sqrtf((float)(at[i + 1] - at[i]) * (float)(at[end + 1] - at[end]));
    }
  }
  return v;
}

/* ---- the op -----------------------------------------------------------------------------------
 *
 * aggregate(x [1, N, H]) -> y [1, N, H], y_i the sum over i's neighbours j of weight_ij x_j. The
 * graph is symmetric, so in the backward pass dx is the same sum of dy. */

static sl_status infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  const vertices *v = attrs->user;
  (void)nin;
  if (in[0].dtype != SL_F32 || in[0].ndim != 3 || in[0].dim[0] != 1 || in[0].dim[1] > v->count)
    return sl_fail(SL_E_SHAPE, "x must be f32[1, %lld, h]", (long long)v->count);
  out[0] = in[0];
  return SL_OK;
}

/* Infers the types of the form for pieces, whose second output is a record of all vertices. */
static sl_status infer_piece(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  const vertices *v = attrs->user;
  sl_status status = infer(attrs, nin, in, out);
  out[1] = in[0];
  out[1].dim[1] = v->count;
  return status;
}

/* Estimates the cost of a call from the average number of edges per vertex. */
static void cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                 double *flops, double *bytes) {
  const vertices *v = attrs->user;
  double edges = (double)v->first[v->count] / (double)v->count * (double)sl_type_rows(&out[0]);
  (void)nin, (void)in;
  *flops = 2 * edges * (double)sl_type_last(&out[0]);
  *bytes = 4 * (edges + (double)sl_type_rows(&out[0])) * (double)sl_type_last(&out[0]);
}

/* Sum over neighbours: computes y of vertices [begin, begin + count) from x of vertices `from` and
 * above. */
typedef struct sums {
  const vertices *v;
  const float *x;
  float *y;
  int64_t begin, count, from, width;
} sums;

enum { ROWS = 64 };

static void sum_rows(void *arg, int chunk) {
  const sums *s = arg;
  int64_t r = (int64_t)chunk * ROWS, end = r + ROWS < s->count ? r + ROWS : s->count;
  for (; r < end; r++) {
    float *y = s->y + r * s->width;
    for (int64_t c = 0; c < s->width; c++) y[c] = 0;
    for (int64_t e = s->v->first[s->begin + r]; e < s->v->first[s->begin + r + 1]; e++) {
      const float *x = s->x + s->v->to[e] * s->width;
      if (s->v->to[e] < s->from) continue;
      for (int64_t c = 0; c < s->width; c++) y[c] += s->v->weight[e] * x[c];
    }
  }
}

static void sum_all(const sl_call *call, const float *x, int64_t from) {
  sums s = {call->attrs->user,
            x,
            call->out[0],
            call->tick.row,
            sl_type_rows(&call->out_type[0]),
            from,
            sl_type_last(&call->out_type[0])};
  sl_team_for(call->team, (int)((s.count + ROWS - 1) / ROWS), sum_rows, &s);
}

static void aggregate(const sl_call *call) { sum_all(call, call->in[0], 0); }

/* Copies the piece's x to its place in the record, output 1. */
static const float *put_in_record(const sl_call *call) {
  int64_t H = sl_type_last(&call->in_type[0]), n = sl_type_elements(&call->in_type[0]);
  const float *x = call->in[0];
  float *record = call->out[1];
  for (int64_t i = 0; i < n; i++) record[call->tick.row * H + i] = x[i];
  return record;
}

/* Aggregates a piece. The record persists across steps: it holds this step's x up to the end of the
 * piece, and the previous step's x after it. */
static void aggregate_piece(const sl_call *call) { sum_all(call, put_in_record(call), 0); }

/* Computes a piece's gradient; the backward pass runs pieces from last to first. The vertex's own
 * piece and later pieces read its x of this step. Earlier pieces read its x of the previous step,
 * which gets no gradient. */
static void aggregate_piece_b(const sl_call *call) {
  sum_all(call, put_in_record(call), call->tick.row);
}

static const sl_op row_b = {.name = "aggregate_b",
                            .min_in = 1,
                            .max_in = 1,
                            .nout = 1,
                            .infer = infer,
                            .cost = cost,
                            .kernels = SL_CPU_KERNEL(aggregate)};
static const sl_op row_piece_b = {.name = "aggregate_piece_b",
                                  .min_in = 1,
                                  .max_in = 1,
                                  .nout = 2,
                                  .infer = infer_piece,
                                  .cost = cost,
                                  .kernels = SL_CPU_KERNEL(aggregate_piece_b),
                                  .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},
                                  .memory = &(const sl_op_memory){.updates = 1 << 1}};
static const sl_op row_piece = {
    .name = "aggregate_piece",
    .min_in = 1,
    .max_in = 1,
    .nout = 2,
    .infer = infer_piece,
    .cost = cost,
    .kernels = SL_CPU_KERNEL(aggregate_piece),
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},
    .memory = &(const sl_op_memory){.updates = 1 << 1, .lasts = 1 << 1},
    .grad = {{.op = &row_piece_b, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}}};
static const sl_op row = {
    .name = "aggregate",
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .infer = infer,
    .cost = cost,
    .kernels = SL_CPU_KERNEL(aggregate),
    .cut = &(const sl_op_cut){.pieced = &row_piece},
    .grad = {{.op = &row_b, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}}};

/* ---- the data ---------------------------------------------------------------------------------
 *
 * A vertex's features say little about its class; its neighbours' features say more. One vertex in
 * ten is labelled. */

enum { LABELLED = 10, NO_LABEL = -100 };

typedef struct looks {
  sl_source source;
  sl_type types[2];
  int64_t count;
  int classes, features;
} looks;

static void fill_rows(const looks *l, const sl_tick *tick, bool held_out, void *const *out) {
  float *x = out[0];       /* [1, rows, features] */
  int32_t *label = out[1]; /* [1, rows] */
  int64_t rows = tick->rows ? tick->rows : l->count;
  for (int64_t i = 0; i < rows; i++) {
    int64_t vertex = tick->row + i;
    int32_t class = class_of(vertex, l->classes);
    for (int f = 0; x && f < l->features; f++) {
      uint64_t key = ~((uint64_t)vertex * 4096 + (uint64_t)f);
      x[i * l->features + f] = (float)(2 * chance(key) - 1 + (f % l->classes == class ? 0.25 : 0));
    }
    if (label) label[i] = (vertex % LABELLED == 0) != held_out ? class : NO_LABEL;
  }
}

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  fill_rows(ctx, tick, false, out);
}

static void fill_held_out(void *ctx, const sl_tick *tick, void *const *out) {
  fill_rows(ctx, tick, true, out);
}

static looks *make_source(sl_graph *g, const sl_args *args) {
  looks *l = sl_graph_alloc(g, sizeof *l);
  /* one microbatch holds all vertices */
  int64_t n = sl_microbatch_rows(g, 1) * sl_arg_int(args, "vertices");
  l->count = n;
  l->classes = (int)sl_arg_int(args, "classes");
  l->features = (int)sl_arg_int(args, "features");
  l->types[0] = SL_TYPE(SL_F32, 1, n, l->features);
  l->types[1] = SL_TYPE(SL_I32, 1, n);
  l->source = (sl_source){.nout = 2,
                          .types = l->types,
                          .fill = fill,
                          .ctx = l,
                          .cut = 2,
                          .fill_held_out = fill_held_out,
                          .held_out = 1};
  return l;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* clang-format off */
static const sl_option options[] = {
    {"vertices", SL_OPTION_INT, "2000", "vertices of the graph", 2, 1 << 24},
    {"edges", SL_OPTION_INT, "4", "edges that each vertex draws", 0, 63},
    {"classes", SL_OPTION_INT, "5", "classes", 2, 1 << 10},
    {"features", SL_OPTION_INT, "20", "numbers that are known of a vertex", 1, 4096},
    {"layers", SL_OPTION_INT, "4", "layers", 1, 1000},
    {"width", SL_OPTION_INT, "32", "numbers for a vertex between layers", 1, 1 << 14},
    {"lr", SL_OPTION_FLOAT, "0.01", "learning rate", 0, 1}, {0}};
/* clang-format on */

static sl_tensor *dense(sl_graph *g, sl_tensor *x, int64_t out, const char *name) {
  int64_t in = sl_dim(x, -1);
  float bound = in > 0 ? sqrtf(3 / (float)in) : 0;
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, out, in), SL_UNIFORM(bound), "%s.weight", name);
  sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, out), SL_CONSTANT(0), "%s.bias", name);
  return sl_linear(g, x, w, b);
}

/* x [1, N, H] -> [1, N, H] */
static sl_tensor *layer(sl_graph *g, sl_tensor *x, const vertices *v, int i) {
  char name[32];
  snprintf(name, sizeof name, "layer.%d", i);
  sl_block(g, "%s", name);
  sl_tensor *in = dense(g, x, sl_dim(x, -1), name), *y;
  sl_apply(g, &row, &(sl_attrs){.user = v}, 1, &in, 0, &y);
  return sl_add(g, x, sl_relu(g, y));
}

static sl_status build(sl_graph *g, const sl_args *args) {
  looks *l = make_source(g, args);
  vertices *v = make_graph(g, l->count, l->classes, (int)sl_arg_int(args, "edges"));
  sl_block(g, "input");
  sl_tensor *data[2];
  sl_data(g, &l->source, data);
  sl_tensor *x = dense(g, data[0], sl_arg_int(args, "width"), "input");
  for (int i = 0; i < sl_arg_int(args, "layers"); i++) x = layer(g, x, v, i);
  sl_block(g, "output");
  sl_tensor *logits = dense(g, x, l->classes, "output"); /* [1, N, classes] */
  sl_output(g, "logits", logits);
  sl_metric(g, "accuracy",
            sl_scale(g, sl_accuracy(g, logits, data[1]), (float)LABELLED / (LABELLED - 1)));
  sl_train(g, sl_cross_entropy_with(g, logits, data[1], NULL),
           &(sl_optimizer){.lr = (float)sl_arg_float(args, "lr")});
  return sl_graph_status(g);
}

SL_MODEL(gcn, "classes of the vertices of a graph", options, build);
