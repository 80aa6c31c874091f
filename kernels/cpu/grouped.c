/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of grouped linear maps: each row goes through the map of the expert that its id
 * names. ops/grouped.c describes the sorting and the tiles. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/grouped.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/room.h"
#include "ops/grouped.h"
#include "ops/leaves.h"
#include "ops/ops.h"

enum { TILE = 64, FEW = 16, HEIGHTS = 2 };

/* ---- shapes ------------------------------------------------------------------------------ */

/* Returns true if gradients of several ids are summed into one row of x. */
static bool is_summed(const sl_type *x, const sl_type *ids) {
  return sli_grouped_shared(x, ids) && sl_type_last(ids) > 1;
}

/* ---- rows by expert -------------------------------------------------------------------------- */

typedef struct tile {
  int32_t expert, begin, count; /* range in `order` */
  int32_t ends;                 /* the last tile of a leaf */
} tile;

typedef struct groups {
  const sl_call *call;
  int64_t rows, each; /* ids, and how many of them share a row of x */
  int experts, ntiles;
  int64_t leaf;   /* ids per leaf, for exact sums of gradients; otherwise 0 */
  int32_t *order; /* [rows] rows sorted by expert, then by leaf */
  int32_t *first; /* [experts + 1] first tile of each expert */
  tile *tiles;
  float *shared; /* [rows, K] gradients of rows that several ids share */
} groups;

/* Returns the maximum number of tiles. Every row may be a leaf. */
static int64_t most_tiles(int64_t rows, int64_t experts, bool by_leaf) {
  return rows / (by_leaf ? 1 : TILE) + experts;
}

static size_t groups_bytes(const sl_type *ids, const sl_type *w, bool by_leaf) {
  int64_t rows = sl_type_elements(ids), experts = w->dim[0];
  int64_t words = rows + experts + 1 + 4 * most_tiles(rows, experts, by_leaf);
  return (size_t)((words * 4 + 63) / 64 * 64);
}

/* Returns the number of ids per leaf. Rows dispatched to the devices of their experts carry their
 * leaf numbers. */
static int64_t ids_of_leaf(const sl_call *call) {
  const sl_type *ids = &call->in_type[1];
  if (!call->attrs->numbers.leaves) return 0;
  int64_t row = sl_type_elements(ids) / ids->dim[0];
  return call->attrs->numbers.leaf ? row / ids->dim[1] * call->attrs->numbers.leaf : row;
}

static int64_t leaf_of(const groups *g, int64_t row) {
  const int32_t *leaves = g->call->nin > 4 ? g->call->in[4] : NULL;
  return leaves ? leaves[row] : row / g->leaf;
}

static int compare(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_leaf_and_row(const void *a, const void *b) {
  const int64_t *x = a, *y = b;
  return x[0] == y[0] ? compare(x[1], y[1]) : compare(x[0], y[0]);
}

/* Sorts an expert's rows by leaf. Rows of one leaf stay in order. */
static void sort_by_leaf(const groups *g, int32_t *order, int64_t count) {
  bool sorted = true;
  for (int64_t i = 1; i < count; i++) sorted &= leaf_of(g, order[i - 1]) <= leaf_of(g, order[i]);
  if (sorted) return;
  int64_t(*keys)[2] = sli_room(SLI_ROOM_LEFT, (size_t)count * sizeof *keys);
  for (int64_t i = 0; i < count; i++) keys[i][0] = leaf_of(g, order[i]), keys[i][1] = order[i];
  qsort(keys, (size_t)count, sizeof *keys, by_leaf_and_row);
  for (int64_t i = 0; i < count; i++) order[i] = (int32_t)keys[i][1];
}

/* Returns the end of the leaf that begins at a place of `order`; `end` without leaves. */
static int64_t leaf_end(const groups *g, int64_t begin, int64_t end) {
  int64_t at = begin;
  if (!g->leaf) return end;
  while (at < end && leaf_of(g, g->order[at]) == leaf_of(g, g->order[begin])) at++;
  return at;
}

static void add_tiles(groups *g, int e, int64_t begin, int64_t end) {
  g->first[e] = g->ntiles;
  if (g->leaf) sort_by_leaf(g, g->order + begin, end - begin);
  for (int64_t at = begin, stop = begin, count; at < end; at += count) {
    if (at == stop) stop = leaf_end(g, at, end);
    count = SLI_MIN(stop - at, TILE);
    g->tiles[g->ntiles++] = (tile){e, (int32_t)at, (int32_t)count, at + count == stop};
  }
}

void sli_sort_by_expert(const sl_call *call, int experts, int64_t rows, int32_t *order,
                        int32_t *ends) {
  int64_t e;
  memset(ends, 0, (size_t)(experts + 1) * sizeof *ends);
  for (int64_t r = 0; r < rows; r++)
    if ((e = sli_expert_of(call, experts, r)) >= 0) ends[e + 1]++;
  for (int i = 0; i < experts; i++) ends[i + 1] += ends[i];
  for (int64_t r = 0; r < rows; r++)
    if ((e = sli_expert_of(call, experts, r)) >= 0) order[ends[e]++] = (int32_t)r;
}

static void sort_rows(groups *g) {
  sli_sort_by_expert(g->call, g->experts, g->rows, g->order, g->first);
  for (int e = 0, at = 0; e < g->experts; e++) {
    int end = g->first[e];
    add_tiles(g, e, at, end);
    at = end;
  }
  g->first[g->experts] = g->ntiles;
}

static groups groups_of(const sl_call *call, const sl_type *x, const sl_type *w) {
  const sl_type *ids = &call->in_type[1];
  groups g = {.call = call,
              .rows = sli_grouped_valid_ids(call),
              .each = sli_grouped_shared(x, ids) ? sl_type_last(ids) : 1,
              .experts = (int)w->dim[0],
              .leaf = ids_of_leaf(call),
              .order = call->scratch};
  g.first = g.order + sl_type_elements(ids);
  g.tiles = (tile *)(g.first + g.experts + 1);
  g.shared = (float *)((char *)call->scratch + groups_bytes(ids, w, g.leaf));
  sort_rows(&g);
  return g;
}

static int height_of(int count) { return count <= FEW; }

static int rows_at(int height) { return height ? FEW : TILE; }

/* Gathers a tile's rows of an array into a buffer of this thread, padded with zeros. */
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

void sli_clear_without_expert(const sl_call *call, int experts, int64_t rows, float *y,
                              int64_t width) {
  for (int64_t r = 0; r < rows; r++)
    if (sli_expert_of(call, experts, r) < 0) memset(y + r * width, 0, (size_t)width * sizeof *y);
}

static void clear_others(const groups *g, float *y, int64_t width) {
  sli_clear_without_expert(g->call, g->experts, g->rows, y, width);
}

/* ---- products -------------------------------------------------------------------------------- */

typedef struct products {
  sli_product *items[HEIGHTS];
} products;

static void release(void *state) {
  products *p = state;
  if (!p) return;
  for (int h = 0; h < HEIGHTS; h++) sli_product_destroy(p->items[h]);
  free(p);
}

/* Creates a product for each tile height; `m` or `k` of the shape is the height. */
static sl_status prepare(const sl_call *call, sli_product_shape shapes[HEIGHTS], void **state) {
  products *p = sli_calloc(1, sizeof *p);
  sl_status status = SL_OK;
  for (int h = 0; h < HEIGHTS && !status; h++) {
    sli_product_order(&shapes[h], call->attrs);
    status = sli_product_create(&shapes[h], &p->items[h]);
  }
  if (status) release(p);
  else *state = p;
  return status;
}

static sl_status prepare_rows(const sl_call *call, int64_t n, int64_t k, bool transposed,
                              void **state) {
  sli_product_shape shapes[HEIGHTS];
  for (int h = 0; h < HEIGHTS; h++)
    shapes[h] = (sli_product_shape){.m = rows_at(h), .n = n, .k = k, .b_transposed = transposed};
  return prepare(call, shapes, state);
}

static sl_status grouped_linear_prepare(const sl_call *call, void **state) {
  return prepare_rows(call, call->in_type[2].dim[1], call->in_type[2].dim[2], true, state);
}

static sl_status grouped_linear_b_prepare(const sl_call *call, void **state) {
  return prepare_rows(call, call->in_type[2].dim[2], call->in_type[2].dim[1], false, state);
}

static sl_status grouped_linear_w_prepare(const sl_call *call, void **state) {
  const sl_type *dw = &call->out_type[0];
  sli_product_shape shapes[HEIGHTS];
  for (int h = 0; h < HEIGHTS; h++)
    shapes[h] = (sli_product_shape){
        .m = dw->dim[1], .n = dw->dim[2], .k = rows_at(h), .a_transposed = true, .add = true};
  return prepare(call, shapes, state);
}

static const sli_product *product_for(const groups *g, const tile *t) {
  return ((const products *)g->call->state)->items[height_of(t->count)];
}

/* Multiplies a tile's rows of x by the expert's matrix, into rows of y. */
static void multiply_tile(const groups *g, const tile *t, const float *x, int64_t each, int64_t k,
                          float *y, int64_t n) {
  const float *w = (const float *)g->call->in[2] + t->expert * k * n;
  const float *a = gather(g, t, SLI_ROOM_LEFT, x, each, k);
  float *c = sli_room(SLI_ROOM_RIGHT, (size_t)(rows_at(height_of(t->count)) * n) * sizeof *c);
  sli_product_run(product_for(g, t), NULL, false, a, w, NULL, c, NULL);
  scatter(g, t, c, y, n);
}

/* ---- y = x w^T ------------------------------------------------------------------------------- */

static size_t grouped_linear_scratch(const sl_call *call, int threads) {
  (void)threads;
  return groups_bytes(&call->in_type[1], &call->in_type[2], false);
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

/* ---- dx = dy w ------------------------------------------------------------------------------- */

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

/* Sums the gradients of a token's ids, in order. */
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

/* ---- dw = dy^T x, for each expert ------------------------------------------------------------ */

static size_t grouped_linear_w_scratch(const sl_call *call, int threads) {
  (void)threads;
  return groups_bytes(&call->in_type[1], &call->in_type[3], call->attrs->numbers.leaves);
}

static int chunks_of(const groups *g) {
  return sli_product_chunks(((const products *)g->call->state)->items[0]);
}

/* Computes some rows of one expert's gradient. */
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

static void add_leaf(const sli_product_part *part, int64_t width, const float *leaf, double *out,
                     bool add) {
  for (int64_t r = 0; r < part->rows; r++)
    for (int64_t c = 0; c < part->columns; c++) {
      int64_t at = (part->row + r) * width + part->column + c;
      out[at] = (add ? out[at] : 0) + sli_leaf_round(leaf[at]);
    }
}

/* Computes some of one expert's gradient, leaf by leaf. */
static void dw_exact_chunk(void *arg, int i) {
  const groups *g = arg;
  const sl_type *dw = &g->call->out_type[0];
  int e = i / chunks_of(g), chunk = i % chunks_of(g);
  int64_t n = dw->dim[1], k = dw->dim[2];
  sli_product_part part = sli_product_part_of(((const products *)g->call->state)->items[0], chunk);
  double *out = (double *)g->call->out[0] + e * n * k;
  float *leaf = sli_room(SLI_ROOM_LEAF, (size_t)(n * k) * sizeof *leaf);
  bool add = sli_accumulates(g->call, 0), goes_on = false;
  for (int t = g->first[e]; t < g->first[e + 1]; t++, goes_on = !g->tiles[t - 1].ends) {
    const float *dy = gather(g, &g->tiles[t], SLI_ROOM_LEFT, g->call->in[2], 1, n);
    const float *x = gather(g, &g->tiles[t], SLI_ROOM_RIGHT, g->call->in[0], g->each, k);
    sli_product_run_chunk(product_for(g, &g->tiles[t]), goes_on, dy, x, NULL, leaf, chunk);
    if (!g->tiles[t].ends) continue;
    add_leaf(&part, k, leaf, out, add);
    add = true;
  }
}

static void clear_unused(const groups *g) {
  const sl_type *dw = &g->call->out_type[0];
  size_t each = sl_type_bytes(dw) / (size_t)g->experts;
  for (int e = 0; e < g->experts; e++)
    if (g->first[e] == g->first[e + 1]) memset((char *)g->call->out[0] + (size_t)e * each, 0, each);
}

static void grouped_linear_w_cpu(const sl_call *call) {
  groups g = groups_of(call, &call->in_type[0], &call->in_type[3]);
  if (!sli_accumulates(call, 0)) clear_unused(&g);
  sl_team_for(call->team, g.experts * chunks_of(&g), g.leaf ? dw_exact_chunk : dw_chunk, &g);
}

/* ---- tables ---------------------------------------------------------------------------------- */

const sl_kernel sli_cpu_grouped_linear = {
    .backend = "cpu",
    .run = grouped_linear_cpu,
    .scratch = grouped_linear_scratch,
    .prepare = grouped_linear_prepare,
    .release = release,
};

const sl_kernel sli_cpu_grouped_linear_b = {
    .backend = "cpu",
    .run = grouped_linear_b_cpu,
    .scratch = grouped_linear_b_scratch,
    .prepare = grouped_linear_b_prepare,
    .release = release,
};

const sl_kernel sli_cpu_grouped_linear_w = {
    .backend = "cpu",
    .run = grouped_linear_w_cpu,
    .scratch = grouped_linear_w_scratch,
    .prepare = grouped_linear_w_prepare,
    .release = release,
};
