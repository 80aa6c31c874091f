/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels for training with frozen weights in their storage format. A product unpacks a tile of
 * the weight, which stays in a cache, multiplies by it, and proceeds to the next tile. No more of
 * the weight than a tile is ever in f32. Exact products with weights in blocks are those of a
 * server. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/served.h"
#include "kernels/cpu/stored.h"
#include "ops/linear.h"

/* ---- tiles ------------------------------------------------------------------------------------
 */

enum { TILE_NUMBERS = 1 << 20, TILE_LEAST = 64, TILE_MULTIPLE = 16 };

/* A product with a weight [n, k]. In the forward pass, and in exact gradients, a tile yields
 * columns of the output; in other gradients it yields a summand of the whole output. */
typedef struct tiling {
  bool forward, sums;
  int64_t m, n, k;
  int64_t count; /* rows or columns of the weight in a tile; the last one may have fewer */
  int64_t all;   /* rows or columns of the weight */
} tiling;

static tiling tiling_of(const sl_call *call, bool forward) {
  tiling t = {.forward = forward,
              .sums = !forward && !call->attrs->numbers.exact,
              .m = sl_type_rows(&call->in_type[0]),
              .n = call->in_type[1].dim[0],
              .k = call->attrs->weight.width};
  bool rows = forward || t.sums;
  int64_t multiple =
      rows ? TILE_MULTIPLE : sli_storage_block((sl_storage)call->attrs->weight.storage);
  int64_t count = SLI_MAX(TILE_NUMBERS / (rows ? t.k : t.n), TILE_LEAST);
  multiple = SLI_MAX(multiple, TILE_MULTIPLE);
  t.all = rows ? t.n : t.k;
  t.count = SLI_MIN((count + multiple - 1) / multiple * multiple, t.all);
  return t;
}

/* Returns the product with a tile of `count` rows or columns. */
static sli_product_shape tile_shape(const sl_call *call, const tiling *t, int64_t count) {
  sli_product_shape shape = {.m = t->m,
                             .n = t->sums ? t->k : count,
                             .k = t->forward ? t->k
                                  : t->sums  ? count
                                             : t->n,
                             .b_transposed = t->forward,
                             .bias = t->forward && sli_linear_has(call->nin, call->in_type, 2),
                             .add = t->sums,
                             .bf16 = call->attrs->numbers.bf16};
  sli_product_order(&shape, call->attrs);
  return shape;
}

/* Products of a tile, and of the last one. */
typedef struct stored_products {
  sli_product *whole, *last;
} stored_products;

static void stored_release(void *state) {
  stored_products *p = state;
  if (!p) return;
  sli_product_destroy(p->whole);
  sli_product_destroy(p->last);
  free(p);
}

static sl_status stored_prepare(const sl_call *call, bool forward, void **state) {
  tiling t = tiling_of(call, forward);
  stored_products *p = sli_calloc(1, sizeof *p);
  sli_product_shape shape = tile_shape(call, &t, t.count);
  sl_status status = sli_product_create(&shape, &p->whole);
  shape = tile_shape(call, &t, t.all % t.count);
  if (!status && t.all % t.count) status = sli_product_create(&shape, &p->last);
  if (status) stored_release(p);
  else *state = p;
  return status;
}

/* ---- scratch ----------------------------------------------------------------------------------
 */

static size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

static size_t tile_bytes(const tiling *t) {
  return round_up((size_t)(t->count * (t->forward || t->sums ? t->k : t->n)) * sizeof(float));
}

/* Returns the bytes of a tile's result, or of the columns of dy that it multiplies. */
static size_t side_bytes(const tiling *t) {
  return t->count == t->all ? 0 : round_up((size_t)(t->m * t->count) * sizeof(float));
}

static size_t stored_scratch(const sl_call *call, bool forward) {
  tiling t = tiling_of(call, forward);
  sli_product_shape whole = tile_shape(call, &t, t.count), last = tile_shape(call, &t, 1);
  last = t.all % t.count ? tile_shape(call, &t, t.all % t.count) : whole;
  return tile_bytes(&t) + side_bytes(&t) +
         SLI_MAX(sli_product_scratch(&whole), sli_product_scratch(&last));
}

/* ---- runs -------------------------------------------------------------------------------------
 */

/* Copies columns of an array to a separate array, or back. */
typedef struct moved_columns {
  const float *from;
  float *to;
  int64_t from_row, to_row, columns, rows;
} moved_columns;

enum { MOVED_ROWS = 16 };

static void move_columns(void *arg, int i) {
  const moved_columns *m = arg;
  sli_range r = sli_chunk_range(m->rows, MOVED_ROWS, i);
  for (int64_t row = r.begin; row < r.end; row++)
    memcpy(m->to + row * m->to_row, m->from + row * m->from_row,
           (size_t)m->columns * sizeof(float));
}

static void move_all(struct sl_team *team, const moved_columns *m) {
  sl_team_for(team, sli_chunk_count(m->rows, MOVED_ROWS), move_columns, (void *)m);
}

/* A run of a tiled product. */
typedef struct stored_run {
  const sl_call *call;
  tiling t;
  int64_t rows; /* valid rows */
  float *w, *side;
  void *scratch; /* scratch of the products */
} stored_run;

static void unpack_tile(const stored_run *r, int64_t first, int64_t count) {
  const sl_call *call = r->call;
  bool rows = r->t.forward || r->t.sums;
  sli_unpacking u = {.storage = (sl_storage)call->attrs->weight.storage,
                     .layout = &call->in_type[1],
                     .weights = call->in[1],
                     .k = r->t.k,
                     .row = rows ? first : 0,
                     .rows = rows ? count : r->t.n,
                     .column = rows ? 0 : first,
                     .columns = rows ? r->t.k : count,
                     .to = r->w};
  sl_team_for(call->team, sli_chunk_count(u.rows, SLI_UNPACKED_ROWS), sli_cpu()->unpack_stored, &u);
}

/* Multiplies by a tile that yields columns of the output. */
static void make_columns(const stored_run *r, const sli_product *product, int64_t first,
                         int64_t count) {
  const sl_call *call = r->call;
  float *out = call->out[0];
  const float *bias = call->nin > 2 && call->in[2] ? (const float *)call->in[2] + first : NULL;
  bool all = count == r->t.all;
  sli_product_run_rows(product, call->team, r->rows, call->in[0], r->w, bias, all ? out : r->side,
                       r->scratch);
  if (all) return;
  move_all(call->team, &(moved_columns){r->side, out + first, count, r->t.all, count, r->rows});
}

/* Multiplies by a tile that yields a summand of the output. */
static void add_summand(const stored_run *r, const sli_product *product, int64_t first,
                        int64_t count) {
  const sl_call *call = r->call;
  const float *dy = call->in[0];
  if (count < r->t.all) {
    move_all(call->team, &(moved_columns){dy + first, r->side, r->t.n, count, count, r->t.m});
    dy = r->side;
  }
  sli_product_run(product, call->team, first > 0, dy, r->w, NULL, call->out[0], r->scratch);
}

static void stored_product_run(const sl_call *call, bool forward) {
  const stored_products *p = call->state;
  stored_run r = {call, tiling_of(call, forward), sli_valid_rows(call, 0), call->scratch, NULL,
                  NULL};
  r.side = (float *)((char *)call->scratch + tile_bytes(&r.t));
  r.scratch = (char *)r.side + side_bytes(&r.t);
  for (int64_t first = 0; first < r.t.all; first += r.t.count) {
    int64_t count = SLI_MIN(r.t.count, r.t.all - first);
    const sli_product *product = count < r.t.count ? p->last : p->whole;
    unpack_tile(&r, first, count);
    if (r.t.sums) add_summand(&r, product, first, count);
    else make_columns(&r, product, first, count);
  }
}

/* ---- exact products with blocks ---------------------------------------------------------------
 */

static bool is_as_served(const sl_call *call) {
  return call->attrs->numbers.exact &&
         sli_storage_by_digits((sl_storage)call->attrs->weight.storage);
}

/* Computes the valid rows as one tick of a server would. */
static void run_as_served(const sl_call *call) {
  int64_t rows = sli_valid_rows(call, 0);
  const sl_type in_type[] = {SL_TYPE(SL_F32, rows, call->attrs->weight.width), call->in_type[1]};
  const sl_type out_type = SL_TYPE(SL_F32, rows, call->in_type[1].dim[0]);
  const void *in[] = {call->in[0], call->in[1], call->nin > 2 ? call->in[2] : NULL};
  sl_call served = {.attrs = call->attrs,
                    .nin = 3,
                    .nout = 1,
                    .in_type = in_type,
                    .out_type = &out_type,
                    .in = in,
                    .out = call->out,
                    .scratch = call->scratch,
                    .team = call->team};
  if (rows) sli_linear_served_joined(&served, 1);
}

/* ---- kernels ----------------------------------------------------------------------------------
 */

static sl_status linear_stored_prepare(const sl_call *call, void **state) {
  return is_as_served(call) ? SL_OK : stored_prepare(call, true, state);
}
static size_t linear_stored_scratch(const sl_call *call, int threads) {
  (void)threads;
  return is_as_served(call) ? sli_served_digits_bytes(&call->in_type[0])
                            : stored_scratch(call, true);
}
static void linear_stored_cpu(const sl_call *call) {
  if (is_as_served(call)) run_as_served(call);
  else stored_product_run(call, true);
}

const sl_kernel sli_cpu_linear_stored = {
    .backend = "cpu",
    .run = linear_stored_cpu,
    .scratch = linear_stored_scratch,
    .prepare = linear_stored_prepare,
    .release = stored_release,
};

static sl_status linear_b_stored_prepare(const sl_call *call, void **state) {
  return stored_prepare(call, false, state);
}
static size_t linear_b_stored_scratch(const sl_call *call, int threads) {
  (void)threads;
  return stored_scratch(call, false);
}
static void linear_b_stored_cpu(const sl_call *call) { stored_product_run(call, false); }

const sl_kernel sli_cpu_linear_b_stored = {
    .backend = "cpu",
    .run = linear_b_stored_cpu,
    .scratch = linear_b_stored_scratch,
    .prepare = linear_b_stored_prepare,
    .release = stored_release,
};

static void embedding_stored_cpu(const sl_call *call) {
  sl_team_for(call->team, (int)sl_type_elements(&call->in_type[0]), sli_cpu()->embedding_stored,
              (void *)call);
}

const sl_kernel sli_cpu_embedding_stored = {.backend = "cpu", .run = embedding_stored_cpu};
