/* Rows of grouped linear maps: each row goes through the map of the expert that its id names.
 *
 * A call sorts its rows by expert, then by place, and multiplies them in tiles of one expert's rows,
 * which are gathered for that and put back where they belong: so arrays stay in the order of tokens,
 * and what a row gives does not depend on which other experts are here. A tile has TILE rows, or FEW,
 * behind the last of an expert's zeros; weight gradients are summed tile by tile. An expert without
 * rows is ordinary. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/room.h"
#include "kernels/kernels.h"

enum { TILE = 64, FEW = 16, HEIGHTS = 2 };

/* ---- shapes ------------------------------------------------------------------------------ */

/* Is a row of x for all ids of its token, or has each id a row of its own? */
static bool is_shared(const sl_type *x, const sl_type *ids) { return x->ndim == ids->ndim; }

/* And are those several? */
static bool is_summed(const sl_type *x, const sl_type *ids) { return is_shared(x, ids) && sl_type_last(ids) > 1; }

static sl_status want_rows(const char *name, const sl_type *x, const sl_type *ids, bool may_share,
                           int64_t width) {
  int dims = may_share && is_shared(x, ids) ? ids->ndim - 1 : ids->ndim;
  SLI_TRY(sli_want_array(name, x, SL_F32, -1));
  bool fits = x->ndim == dims + 1 && x->dim[dims] == width;
  for (int d = 0; fits && d < dims; d++) fits = x->dim[d] == ids->dim[d];
  char of[SL_TYPE_TEXT];
  if (fits) return SL_OK;
  return sli_misfit(x, "%s must be f32 with a row of %lld for each %s of ids %s", name,
                    (long long)width, may_share ? "token or id" : "id", sl_type_format(of, ids));
}

static sl_status want_ids(const sl_type *ids) {
  SLI_TRY(sli_want_array("ids", ids, SL_I32, -1));
  if (ids->ndim < SL_MAX_DIMS) return SL_OK;
  return sli_misfit(ids, "ids must have at most %d dims", SL_MAX_DIMS - 1);
}

static sl_type rows_type(const sl_type *ids, int64_t width) {
  sl_type t = *ids;
  t.dtype = SL_F32;
  t.dim[t.ndim++] = width;
  return t;
}

static sl_status grouped_linear_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                      sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(want_ids(&in[1]));
  SLI_TRY(sli_want_array("weight", &in[2], SL_F32, 3));
  SLI_TRY(want_rows("x", &in[0], &in[1], true, in[2].dim[2]));
  out[0] = rows_type(&in[1], in[2].dim[1]);
  return SL_OK;
}

static sl_status grouped_linear_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                        sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(want_ids(&in[1]));
  SLI_TRY(sli_want_array("weight", &in[2], SL_F32, 3));
  SLI_TRY(want_rows("dy", &in[0], &in[1], false, in[2].dim[1]));
  SLI_TRY(want_rows("x", &in[3], &in[1], true, in[2].dim[2]));
  out[0] = in[3];
  return SL_OK;
}

static sl_status grouped_linear_w_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                        sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(want_ids(&in[1]));
  SLI_TRY(sli_want_array("weight", &in[3], SL_F32, 3));
  SLI_TRY(want_rows("x", &in[0], &in[1], true, in[3].dim[2]));
  SLI_TRY(want_rows("dy", &in[2], &in[1], false, in[3].dim[1]));
  out[0] = in[3];
  return SL_OK;
}

static double flops_of(const sl_type *ids, const sl_type *w) {
  return 2 * (double)sl_type_elements(ids) * (double)w->dim[1] * (double)w->dim[2];
}

static void grouped_linear_cost(const sl_attrs *attrs, int nin, const sl_type *in,
                                const sl_type *out, double *flops, double *bytes) {
  (void)attrs;
  *flops = flops_of(&in[1], &in[2]);
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

static void grouped_linear_w_cost(const sl_attrs *attrs, int nin, const sl_type *in,
                                  const sl_type *out, double *flops, double *bytes) {
  (void)attrs;
  *flops = flops_of(&in[1], &in[3]);
  *bytes = sli_argument_bytes(nin - 1, in, 1, out);
}

/* The experts are shared out, or what their maps give, or what they take; or rows go where theirs are. */
static int grouped_linear_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                     sl_signature *out) {
  sl_sbp last = sli_split(in[1].ndim), rows = {SL_ROUTED, in[0].ndim - 2}, ids = {SL_ROUTED, in[1].ndim - 1};
  (void)attrs, (void)nin;
  out[0] = (sl_signature){.in = {[2] = sli_split(0)}, .out = {sli_partial()}, .first = 3};
  out[1] = (sl_signature){.in = {[2] = sli_split(1)}, .out = {last}};
  out[2] = (sl_signature){.in = {sli_split_last(&in[0]), [2] = sli_split(2)}, .out = {sli_partial()}};
  out[3] = (sl_signature){.in = {rows, ids, sli_split(0)}, .out = {ids}, .first = 3};
  return in[1].ndim == 3 ? 4 : 3; /* [B, T, k] */
}

/* Of ids that need not all be valid, those that are. */
static int64_t valid_ids(const sl_call *call) {
  const sl_type *ids = &call->in_type[1];
  int64_t rows = ids->dim[ids->ndim > 1 && ids->dim[0] == 1];
  return sl_type_elements(ids) / rows * sl_call_rows(call, 1, rows);
}

static sl_status grouped_linear_check(const sl_call *call) {
  const int32_t *ids = call->in[1];
  int64_t count = call->attrs->count;
  if (!count && call->attrs->partial) return SL_OK;
  if (!count) count = call->in_type[2].dim[0];
  for (int64_t i = 0; i < valid_ids(call); i++)
    if (ids[i] < -1 || ids[i] >= count)
      return sl_fail(SL_E_INPUT, "element %lld of its ids is %d, and there are experts 0 to %lld",
                     (long long)i, (int)ids[i], (long long)count - 1);
  return SL_OK;
}

/* ---- rows by expert -------------------------------------------------------------------------- */

typedef struct tile {
  int32_t expert, begin, count; /* of `order` */
} tile;

typedef struct groups {
  const sl_call *call;
  int64_t rows, each; /* ids; how many of them a row of x is for */
  int experts, ntiles;
  int32_t *order;     /* [rows] the rows of each expert, one behind the other */
  int32_t *first;     /* [experts + 1] the first tile of each */
  tile *tiles;
  float *shared;      /* [rows, K] gradients of rows that are for several ids */
} groups;

static int64_t most_tiles(int64_t rows, int64_t experts) { return rows / TILE + experts; }

static size_t groups_bytes(const sl_type *ids, const sl_type *w) {
  int64_t rows = sl_type_elements(ids), experts = w->dim[0];
  int64_t words = rows + experts + 1 + 3 * most_tiles(rows, experts);
  return (size_t)((words * 4 + 63) / 64 * 64);
}

static int64_t expert_of(const groups *g, int64_t row) {
  int64_t id = (int64_t)((const int32_t *)g->call->in[1])[row];
  int64_t e = id < 0 ? -1 : id - g->call->attrs->first;
  return e >= 0 && e < g->experts ? e : -1;
}

static void add_tiles(groups *g, int e, int64_t begin, int64_t end) {
  g->first[e] = g->ntiles;
  for (int64_t at = begin; at < end; at += TILE)
    g->tiles[g->ntiles++] = (tile){e, (int32_t)at, (int32_t)SLI_MIN(end - at, TILE)};
}

/* By counting: the order of rows within an expert stays. */
static void sort_rows(groups *g) {
  int32_t *begin = g->first;
  memset(begin, 0, (size_t)(g->experts + 1) * sizeof *begin);
  for (int64_t r = 0; r < g->rows; r++)
    if (expert_of(g, r) >= 0) begin[expert_of(g, r) + 1]++;
  for (int e = 0; e < g->experts; e++) begin[e + 1] += begin[e];
  for (int64_t r = 0; r < g->rows; r++)
    if (expert_of(g, r) >= 0) g->order[begin[expert_of(g, r)]++] = (int32_t)r;
  for (int e = 0, at = 0; e < g->experts; e++) { /* begin[e] is where e ends by now */
    int end = begin[e];
    add_tiles(g, e, at, end);
    at = end;
  }
  g->first[g->experts] = g->ntiles;
}

static groups groups_of(const sl_call *call, const sl_type *x, const sl_type *w) {
  const sl_type *ids = &call->in_type[1];
  groups g = {.call = call, .rows = valid_ids(call), .each = is_shared(x, ids) ? sl_type_last(ids) : 1,
              .experts = (int)w->dim[0], .order = call->scratch};
  g.first = g.order + sl_type_elements(ids);
  g.tiles = (tile *)(g.first + g.experts + 1);
  g.shared = (float *)((char *)call->scratch + groups_bytes(ids, w));
  sort_rows(&g);
  return g;
}

static int height_of(int count) { return count <= FEW; }
static int rows_at(int height) { return height ? FEW : TILE; }

/* A tile's rows of an array in a buffer of this thread's, zeros behind them. */
static const float *gather(const groups *g, const tile *t, int room, const float *x, int64_t each,
                           int64_t width) {
  int64_t rows = rows_at(height_of(t->count));
  float *out = sli_room(room, (size_t)(rows * width) * sizeof *out);
  for (int i = 0; i < t->count; i++)
    memcpy(out + i * width, x + g->order[t->begin + i] / each * width, (size_t)width * sizeof *out);
  memset(out + t->count * width, 0, (size_t)((rows - t->count) * width) * sizeof *out);
  return out;
}

static void scatter(const groups *g, const tile *t, const float *from, float *y, int64_t width) {
  for (int i = 0; i < t->count; i++)
    memcpy(y + g->order[t->begin + i] * width, from + i * width, (size_t)width * sizeof *y);
}

/* Rows that are no expert's here. */
static void clear_others(const groups *g, float *y, int64_t width) {
  for (int64_t r = 0; r < g->rows; r++)
    if (expert_of(g, r) < 0) memset(y + r * width, 0, (size_t)width * sizeof *y);
}

/* ---- products -------------------------------------------------------------------------------- */

typedef struct products {
  sli_product *of[HEIGHTS];
} products;

static void release(void *state) {
  products *p = state;
  if (!p) return;
  for (int h = 0; h < HEIGHTS; h++) sli_product_destroy(p->of[h]);
  free(p);
}

/* `m` or `k` of the shape is a tile's height. */
static sl_status prepare(const sli_product_shape shapes[HEIGHTS], void **state) {
  products *p = sli_calloc(1, sizeof *p);
  sl_status status = SL_OK;
  for (int h = 0; h < HEIGHTS && !status; h++) status = sli_product_create(&shapes[h], &p->of[h]);
  if (status) release(p);
  else *state = p;
  return status;
}

/* Layers are alike: see linear.c. */
static size_t keeps_products(const sl_call *call, uint64_t *which) {
  uint64_t hash = SLI_HASH_SEED;
  for (int i = 0; i < call->nin; i++) hash = sli_hash_type(hash, &call->in_type[i]);
  *which = hash;
  return 0;
}

static sl_status prepare_rows(int64_t n, int64_t k, bool transposed, void **state) {
  sli_product_shape shapes[HEIGHTS];
  for (int h = 0; h < HEIGHTS; h++)
    shapes[h] = (sli_product_shape){.m = rows_at(h), .n = n, .k = k, .b_transposed = transposed};
  return prepare(shapes, state);
}

static sl_status grouped_linear_prepare(const sl_call *call, void **state) {
  return prepare_rows(call->in_type[2].dim[1], call->in_type[2].dim[2], true, state);
}

static sl_status grouped_linear_b_prepare(const sl_call *call, void **state) {
  return prepare_rows(call->in_type[2].dim[2], call->in_type[2].dim[1], false, state);
}

static sl_status grouped_linear_w_prepare(const sl_call *call, void **state) {
  const sl_type *dw = &call->out_type[0];
  sli_product_shape shapes[HEIGHTS];
  for (int h = 0; h < HEIGHTS; h++)
    shapes[h] = (sli_product_shape){.m = dw->dim[1], .n = dw->dim[2], .k = rows_at(h),
                                    .a_transposed = true, .add = true};
  return prepare(shapes, state);
}

static const sli_product *product_for(const groups *g, const tile *t) {
  return ((const products *)g->call->state)->of[height_of(t->count)];
}

/* Rows x [each] of a tile, times the expert's matrix, to rows of y. */
static void multiply_tile(const groups *g, const tile *t, const float *x, int64_t each, int64_t k,
                          float *y, int64_t n) {
  const float *w = (const float *)g->call->in[2] + t->expert * k * n;
  const float *a = gather(g, t, SLI_ROOM_LEFT, x, each, k);
  float *c = sli_room(SLI_ROOM_RIGHT, (size_t)(rows_at(height_of(t->count)) * n) * sizeof *c);
  sli_product_run(product_for(g, t), NULL, false, a, w, NULL, c, NULL);
  scatter(g, t, c, y, n);
}

/* ---- y = x w^T ---------------------------------------------------------------------------------- */

static size_t grouped_linear_scratch(const sl_call *call, int threads) {
  (void)threads;
  return groups_bytes(&call->in_type[1], &call->in_type[2]);
}

static void y_tile(void *arg, int i) {
  const groups *g = arg;
  const sl_type *w = &g->call->in_type[2];
  multiply_tile(g, &g->tiles[i], g->call->in[0], g->each, w->dim[2], g->call->out[0], w->dim[1]);
}

static void grouped_linear_cpu(const sl_call *call) {
  groups g = groups_of(call, &call->in_type[0], &call->in_type[2]);
  clear_others(&g, call->out[0], call->in_type[2].dim[1]);
  sl_team_for(call->team, g.ntiles, y_tile, &g);
}

/* ---- dx = dy w ------------------------------------------------------------------------------------ */

static size_t grouped_linear_b_scratch(const sl_call *call, int threads) {
  const sl_type *ids = &call->in_type[1], *x = &call->in_type[3];
  size_t shared = is_summed(x, ids) ? (size_t)(sl_type_elements(ids) * sl_type_last(x)) : 0;
  return grouped_linear_scratch(call, threads) + shared * sizeof(float);
}

static void dx_tile(void *arg, int i) {
  const groups *g = arg;
  const sl_type *w = &g->call->in_type[2];
  float *dx = is_summed(&g->call->in_type[3], &g->call->in_type[1]) ? g->shared : g->call->out[0];
  multiply_tile(g, &g->tiles[i], g->call->in[0], 1, w->dim[1], dx, w->dim[2]);
}

/* The gradients of a token's ids, in their order. */
static void add_shared(void *arg, int i) {
  const groups *g = arg;
  const sl_type *type = &g->call->out_type[0];
  int64_t width = sl_type_last(type);
  sli_range rows = sli_rows(type, i);
  for (int64_t r = rows.begin; r < SLI_MIN(rows.end, g->rows / g->each); r++) {
    const float *of = g->shared + r * g->each * width;
    float *dx = (float *)g->call->out[0] + r * width;
    memcpy(dx, of, (size_t)width * sizeof *dx);
    for (int64_t j = 1; j < g->each; j++)
      for (int64_t c = 0; c < width; c++) dx[c] += of[j * width + c];
  }
}

static void grouped_linear_b_cpu(const sl_call *call) {
  groups g = groups_of(call, &call->in_type[3], &call->in_type[2]);
  bool shared = is_summed(&call->in_type[3], &call->in_type[1]);
  clear_others(&g, shared ? g.shared : call->out[0], call->in_type[2].dim[2]);
  sl_team_for(call->team, g.ntiles, dx_tile, &g);
  if (!shared) return;
  const sl_type *type = &call->out_type[0];
  sl_team_for(call->team, sli_chunk_count(sl_type_rows(type), sli_chunk_rows(sl_type_last(type))),
              add_shared, &g);
}

/* ---- dw = dy^T x, of each expert -------------------------------------------------------------------- */

static size_t grouped_linear_w_scratch(const sl_call *call, int threads) {
  (void)threads;
  return groups_bytes(&call->in_type[1], &call->in_type[3]);
}

static int chunks_of(const groups *g) {
  return sli_product_chunks(((const products *)g->call->state)->of[0]);
}

/* Some rows of one expert's gradient. */
static void dw_chunk(void *arg, int i) {
  const groups *g = arg;
  const sl_type *dw = &g->call->out_type[0];
  int e = i / chunks_of(g), chunk = i % chunks_of(g);
  int64_t n = dw->dim[1], k = dw->dim[2];
  float *out = (float *)g->call->out[0] + e * n * k;
  bool add = sli_accumulates(g->call, 0);
  for (int t = g->first[e]; t < g->first[e + 1]; t++, add = true) {
    const float *dy = gather(g, &g->tiles[t], SLI_ROOM_LEFT, g->call->in[2], 1, n);
    const float *x = gather(g, &g->tiles[t], SLI_ROOM_RIGHT, g->call->in[0], g->each, k);
    sli_product_run_chunk(product_for(g, &g->tiles[t]), add, dy, x, NULL, out, chunk);
  }
}

static void clear_unused(const groups *g) {
  const sl_type *dw = &g->call->out_type[0];
  int64_t each = dw->dim[1] * dw->dim[2];
  for (int e = 0; e < g->experts; e++)
    if (g->first[e] == g->first[e + 1])
      memset((float *)g->call->out[0] + e * each, 0, (size_t)each * sizeof(float));
}

static void grouped_linear_w_cpu(const sl_call *call) {
  groups g = groups_of(call, &call->in_type[0], &call->in_type[3]);
  if (!sli_accumulates(call, 0)) clear_unused(&g);
  sl_team_for(call->team, g.experts * chunks_of(&g), dw_chunk, &g);
}

/* ---- rows -------------------------------------------------------------------------------------------- */

const sl_op sl_op_grouped_linear = {
    .name = "grouped_linear", .min_in = 3, .max_in = 3, .nout = 1,
    .pieces = SL_PIECES_ROWS, .whole = 4, .narrow_in = 1, .narrow_out = 1,
    .infer = grouped_linear_infer, .cost = grouped_linear_cost, .check = grouped_linear_check,
    .prepare = grouped_linear_prepare, .release = release, .keeps = keeps_products,
    .scratch = grouped_linear_scratch, .cpu = grouped_linear_cpu, .looks = 3, .follows = 1,
    .signatures = grouped_linear_signatures,
    .grad = {{.op = &sl_op_grouped_linear_b, .cls = SL_CLASS_B,
              .in = {SL_DOUT(0), SL_IN(1), SL_IN(2), SL_IN(0)}, .nof = 1, .of = {0}},
             {.op = &sl_op_grouped_linear_w, .cls = SL_CLASS_W,
              .in = {SL_IN(0), SL_IN(1), SL_DOUT(0), SL_IN(2)}, .nof = 1, .of = {2}}},
};

const sl_op sl_op_grouped_linear_b = {
    .name = "grouped_linear_b", .min_in = 4, .max_in = 4, .nout = 1,
    .pieces = SL_PIECES_ROWS, .whole = 4, .unread = 8, .narrow_in = 9, .narrow_out = 1,
    .infer = grouped_linear_b_infer, .cost = grouped_linear_cost,
    .prepare = grouped_linear_b_prepare, .release = release, .keeps = keeps_products,
    .scratch = grouped_linear_b_scratch, .cpu = grouped_linear_b_cpu, .looks = 11, .follows = 1,
};

const sl_op sl_op_grouped_linear_w = {
    .name = "grouped_linear_w", .min_in = 4, .max_in = 4, .nout = 1,
    .pieces = SL_PIECES_ROWS, .whole = 8, .unread = 8, .narrow_in = 5,
    .infer = grouped_linear_w_infer, .cost = grouped_linear_w_cost,
    .prepare = grouped_linear_w_prepare, .release = release, .keeps = keeps_products,
    .scratch = grouped_linear_w_scratch, .cpu = grouped_linear_w_cpu,
    .accumulates = 1, .looks = 7,
};
