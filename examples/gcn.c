/* SPDX-License-Identifier: Apache-2.0 */
/* A graph neural network over pipeline stages: layers of graph convolutions (Kipf and Welling,
 * arXiv 1609.02907) learn the classes of vertices, most of which are unlabelled.
 *
 *     actorrun --steps 100 examples/gcn.c
 *     actorrun --steps 100 --stages 4 --pieces 8 --schedule seq1f1b examples/gcn.c
 *     actorrun --steps 100 --eval-every 20 examples/gcn.c --graph FILE
 *
 * The vertices form one sequence, so --pieces cuts them into chunks that pass through the stages
 * one after another. A chunk's vertices have neighbours in other chunks. A layer uses this step's
 * values of earlier chunks, and the previous step's values of later ones (GNNPipe, arXiv
 * 2308.10087). Gradients, which come from the last chunk to the first, do the same the other way
 * round (PipeGCN, arXiv 2203.10428). Every vertex therefore crosses each stage boundary once in
 * each direction. p stages transfer 2 (p - 1) N H numbers per step, regardless of the number of
 * edges.
 *
 * The custom op `aggregate`, which has a second form for pieces, implements all this. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sluice/sluice.h>

/* ---- the graph ---------------------------------------------------------------------------------
 *
 * The graph is drawn, or read from a file. It is symmetric, and each vertex has an edge to itself.
 * `weight` is 1 / sqrt(product of the degrees of both ends). */

typedef struct vertices {
  int64_t count;
  int classes;
  int32_t *label; /* [count] */
  int64_t *first; /* [count + 1]: index of a vertex's first neighbour */
  int32_t *to;    /* neighbours in ascending order */
  float *weight;
} vertices;

/* Edges between vertices, each once. */
typedef struct edges {
  int64_t count, room;
  int32_t (*ends)[2];
} edges;

static void add_edge(edges *e, int64_t x, int64_t y) {
  if (e->count == e->room) {
    e->room = 2 * e->room + 64;
    e->ends = realloc(e->ends, (size_t)e->room * sizeof *e->ends);
    if (!e->ends) abort();
  }
  e->ends[e->count][0] = (int32_t)x;
  e->ends[e->count++][1] = (int32_t)y;
}

/* Hashes a number to a value in [0, 1). */
static double chance(uint64_t number) {
  number += 0x9e3779b97f4a7c15u;
  number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9u;
  number = (number ^ number >> 27) * 0x94d049bb133111ebu;
  return (double)((number ^ number >> 31) >> 11) * 0x1p-53;
}

enum { DRAWS = 1 << 20, TRIES = 64 };

/* Returns the other end of a vertex's edge: in three of four cases a vertex of the same class. */
static int64_t other_end(const vertices *v, int64_t vertex, int edge) {
  uint64_t key = ((uint64_t)vertex * 64 + (uint64_t)edge + 1) * DRAWS;
  bool alike = chance(key) < 0.75;
  int64_t end = vertex;
  for (int i = 1; i < TRIES; i++) {
    end = (int64_t)(chance(key + (uint64_t)i) * (double)v->count);
    if (!alike || v->label[end] == v->label[vertex]) break;
  }
  return end;
}

/* Draws the classes of `n` vertices, and `each` edges for every vertex. */
static void draw_graph(sl_graph *g, vertices *v, edges *e, int64_t n, int each) {
  v->count = n;
  v->label = sl_graph_alloc(g, (size_t)n * sizeof *v->label);
  for (int64_t i = 0; i < n; i++) v->label[i] = (int32_t)(chance((uint64_t)i) * v->classes);
  for (int64_t i = 0; i < n; i++)
    for (int k = 0; k < each; k++) add_edge(e, i, other_end(v, i, k));
}

static int ascending(const void *a, const void *b) {
  return *(const int32_t *)a < *(const int32_t *)b ? -1 : *(const int32_t *)a > *(const int32_t *)b;
}

/* Lists the neighbours of each vertex. */
static void connect(sl_graph *g, vertices *v, const edges *e) {
  size_t links = (size_t)(v->count + 2 * e->count);
  int64_t *at = v->first = sl_graph_alloc(g, ((size_t)v->count + 1) * sizeof *at);
  v->to = sl_graph_alloc(g, links * sizeof *v->to);
  v->weight = sl_graph_alloc(g, links * sizeof *v->weight);
  for (int64_t i = 0; i <= v->count; i++) at[i] = i < v->count;
  for (int64_t i = 0; i < 2 * e->count; i++) at[e->ends[i / 2][i % 2]]++;
  for (int64_t i = 0, sum = 0; i <= v->count; i++) at[i] = sum += at[i]; /* ends of ranges */
  for (int64_t i = 0; i < v->count; i++) v->to[--at[i]] = (int32_t)i;    /* now their starts */
  for (int64_t i = 0; i < 2 * e->count; i++)
    v->to[--at[e->ends[i / 2][i % 2]]] = e->ends[i / 2][1 - i % 2];
  for (int64_t i = 0; i < v->count; i++)
    qsort(v->to + at[i], (size_t)(at[i + 1] - at[i]), sizeof *v->to, ascending);
  for (int64_t i = 0; i < v->count; i++)
    for (int64_t n = at[i]; n < at[i + 1]; n++) {
      int32_t end = v->to[n];
      v->weight[n] = 1 / sqrtf((float)(at[i + 1] - at[i]) * (float)(at[end + 1] - at[end]));
    }
}

/* Reads a line of a file, "CLASS VERTEX VERTEX ...": the class of vertex `i` and the other ends of
 * some of its edges, each of which stands in one line only. */
static bool read_vertex(char *line, int64_t i, int32_t *label, edges *e) {
  enum { MOST_CLASSES = 1 << 10, MOST_VERTICES = 1 << 24 };
  char *end;
  long number = strtol(line, &end, 10);
  if (end == line || number < 0 || number >= MOST_CLASSES) return false;
  for (*label = (int32_t)number; end[strspn(end, " \t\n")]; add_edge(e, i, number)) {
    const char *from = end;
    number = strtol(from, &end, 10);
    if (end == from || number < 0 || number >= MOST_VERTICES) return false;
  }
  return true;
}

/* Reads the vertices from a file, numbered from 0 in the order of its lines. */
static sl_status read_graph(sl_graph *g, const char *path, vertices *v, edges *e) {
  char *line = NULL;
  size_t room = 0;
  sl_status status = SL_OK;
  FILE *file = fopen(path, "r");
  if (!file) return sl_fail(SL_E_INPUT, "graph %s: cannot be opened", path);
  while (getline(&line, &room, file) >= 0) v->count++;
  v->label = sl_graph_alloc(g, (size_t)(v->count + 1) * sizeof *v->label);
  v->classes = 2;
  rewind(file);
  for (int64_t i = 0; i < v->count && !status; i++) {
    int64_t before = e->count;
    ssize_t length = getline(&line, &room, file);
    if (length < 0 || strlen(line) != (size_t)length || !read_vertex(line, i, &v->label[i], e))
      status = sl_fail(SL_E_INPUT, "graph %s:%lld: must be CLASS VERTEX VERTEX ...", path,
                       (long long)i + 1);
    for (; before < e->count && !status; before++)
      if (e->ends[before][1] >= v->count)
        status = sl_fail(SL_E_INPUT, "graph %s:%lld: no vertex %d; there are %lld", path,
                         (long long)i + 1, e->ends[before][1], (long long)v->count);
    if (v->label[i] >= v->classes) v->classes = v->label[i] + 1;
  }
  free(line);
  fclose(file);
  return v->count > 1 || status ? status
                                : sl_fail(SL_E_INPUT, "graph %s: needs two vertices", path);
}

static sl_status make_graph(sl_graph *g, const sl_args *args, vertices *v) {
  const char *path = sl_arg_text(args, "graph");
  edges e = {0};
  sl_status status = SL_OK;
  v->classes = (int)sl_arg_int(args, "classes");
  if (*path) status = read_graph(g, path, v, &e);
  else draw_graph(g, v, &e, sl_arg_int(args, "vertices"), (int)sl_arg_int(args, "edges"));
  if (!status) connect(g, v, &e);
  free(e.ends);
  return status;
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

/* Sum over neighbours: computes y of vertices [begin, begin + count) from x of all. */
typedef struct sums {
  const vertices *v;
  const float *x;
  float *y;
  int64_t begin, count, width;
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
      for (int64_t c = 0; c < s->width; c++) y[c] += s->v->weight[e] * x[c];
    }
  }
}

static void sum_all(const sl_call *call, const float *x) {
  sums s = {call->attrs->user,
            x,
            call->out[0],
            call->tick.row,
            sl_type_rows(&call->out_type[0]),
            sl_type_last(&call->out_type[0])};
  sl_team_for(call->team, (int)((s.count + ROWS - 1) / ROWS), sum_rows, &s);
}

static void aggregate(const sl_call *call) { sum_all(call, call->in[0]); }

/* Puts a piece's x into the record, output 1, and sums over that. The record persists across steps:
 * it holds this step's x of the pieces so far, and the previous step's x of the others. Pieces run
 * from first to last, and those of gradients from last to first. */
static void aggregate_piece(const sl_call *call) {
  int64_t H = sl_type_last(&call->in_type[0]), n = sl_type_elements(&call->in_type[0]);
  float *record = call->out[1];
  memcpy(record + call->tick.row * H, call->in[0], (size_t)n * sizeof *record);
  sum_all(call, record);
}

static const sl_op row_b = {.name = "aggregate_b",
                            .min_in = 1,
                            .max_in = 1,
                            .nout = 1,
                            .infer = infer,
                            .cost = cost,
                            .kernels = SL_CPU_KERNEL(aggregate)};
/* clang-format off */
#define PIECE(name_)                                                                               \
  .name = name_, .min_in = 1, .max_in = 1, .nout = 2, .infer = infer_piece, .cost = cost,          \
  .kernels = SL_CPU_KERNEL(aggregate_piece), .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE}, \
  .memory = &(const sl_op_memory){.updates = 1 << 1, .lasts = 1 << 1}
/* clang-format on */

static const sl_op row_piece_b = {PIECE("aggregate_piece_b")};
static const sl_op row_piece = {
    PIECE("aggregate_piece"),
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
  const vertices *v;
  int features;
  double shift; /* of every classes-th feature, from the vertex's class on */
} looks;

static void fill_rows(const looks *l, const sl_tick *tick, bool held_out, void *const *out) {
  float *x = out[0];       /* [1, rows, features] */
  int32_t *label = out[1]; /* [1, rows] */
  int64_t rows = tick->rows ? tick->rows : l->v->count;
  for (int64_t i = 0; i < rows; i++) {
    int64_t vertex = tick->row + i;
    int32_t class = l->v->label[vertex];
    for (int f = 0; x && f < l->features; f++) {
      uint64_t key = ~((uint64_t)vertex * 4096 + (uint64_t)f);
      x[i * l->features + f] =
          (float)(2 * chance(key) - 1 + (f % l->v->classes == class ? l->shift : 0));
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

static looks *make_source(sl_graph *g, const sl_args *args, const vertices *v) {
  looks *l = sl_graph_alloc(g, sizeof *l);
  int64_t n = sl_microbatch_rows(g, 1) * v->count; /* one microbatch holds all vertices */
  l->v = v;
  l->features = (int)sl_arg_int(args, "features");
  l->shift = *sl_arg_text(args, "graph") ? 0 : 0.25;
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
    {"graph", SL_OPTION_TEXT, "", "`FILE` with a line for each vertex: its class, and vertices to which it has edges; "
     "each edge stands in one line", 0, 0},
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
  vertices *v = sl_graph_alloc(g, sizeof *v);
  *v = (vertices){0};
  sl_status status = make_graph(g, args, v);
  if (status) return status;
  looks *l = make_source(g, args, v);
  sl_block(g, "input");
  sl_tensor *data[2];
  sl_data(g, &l->source, data);
  sl_tensor *x = dense(g, data[0], sl_arg_int(args, "width"), "input");
  for (int i = 0; i < sl_arg_int(args, "layers"); i++) x = layer(g, x, v, i);
  sl_block(g, "output");
  sl_tensor *logits = dense(g, x, v->classes, "output"); /* [1, N, classes] */
  sl_output(g, "logits", logits);
  sl_metric(g, "accuracy", /* of the unlabelled vertices */
            sl_scale(g, sl_accuracy(g, logits, data[1]),
                     (float)v->count / (float)(v->count - (v->count - 1) / LABELLED - 1)));
  sl_train(g, sl_cross_entropy_with(g, logits, data[1], NULL),
           &(sl_optimizer){.lr = (float)sl_arg_float(args, "lr")});
  return sl_graph_status(g);
}

SL_MODEL(gcn, "classes of the vertices of a graph", options, build);
