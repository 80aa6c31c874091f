/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernel of experts that are lent by the disk's queue (ops/expert_loads.h). A row is computed
 * as if all experts were in memory and nobody else were in the tick: its bits do not depend on when
 * its expert arrives. */
#include <string.h>

#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/grouped.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/room.h"
#include "kernels/cpu/served.h"
#include "ops/expert_loads.h"
#include "ops/grouped.h"
#include "ops/place.h"
#include "ops/planes.h"

enum { GATE, UP, DOWN };

/* Rows of one item in `order`. */
typedef struct lent_rows {
  const sli_lent_item *item;
  int32_t begin, count;
} lent_rows;

typedef struct lending {
  const sl_call *call;
  const sli_expert_loads *loads;
  const char *cache;
  int64_t rows, each; /* ids, and how many of them share a row of x */
  int nparts, sorted;
  int32_t *index; /* [experts * levels] 1 + item; 0: not lent */
  int32_t *order; /* [rows] */
  lent_rows *parts;
  float *x, *inner[2], *y; /* sorted rows; gate and up */
  sli_digits *digits;      /* of the input of a product with weights in blocks */
  /* The products under way: `first` and, for gate and up, the next one. Pieces of each part are
   * adjacent. */
  int first, nproducts, pieces;
} lending;

static int64_t rows_in(const lending *l, int m) { return l->loads->matrix[m].dim[0]; }
static int64_t width_of(const lending *l, int m) {
  return m == DOWN ? rows_in(l, GATE) : sl_type_last(&l->call->in_type[0]);
}

static bool in_blocks(const lending *l, int m) {
  return !l->loads->planes && sli_storage_by_digits(l->loads->storage[m]);
}

static size_t lay_out(const sl_call *call, lending *l) {
  const sli_expert_loads *s = call->attrs->user;
  l->call = call;
  l->loads = s;
  int64_t blocks = 0;
  for (int m = GATE; m <= DOWN; m++)
    if (in_blocks(l, m)) blocks = SLI_MAX(blocks, width_of(l, m) / SLI_STORAGE_BLOCK);
  int64_t most = sl_type_elements(&call->in_type[1]), items = (int64_t)s->experts * s->levels;
  size_t at = 0;
  l->index = sli_place(call->scratch, &at, items, sizeof *l->index);
  l->order = sli_place(call->scratch, &at, most, sizeof *l->order);
  l->parts = sli_place(call->scratch, &at, items, sizeof *l->parts);
  l->x = sli_place(call->scratch, &at, most * sl_type_last(&call->in_type[0]), sizeof(float));
  for (int m = GATE; m <= UP; m++)
    l->inner[m] = sli_place(call->scratch, &at, most * s->matrix[m].dim[0], sizeof(float));
  l->y = sli_place(call->scratch, &at, most * s->matrix[DOWN].dim[0], sizeof(float));
  l->digits = sli_place(call->scratch, &at, most * blocks, sizeof *l->digits);
  return at;
}

static size_t loaded_experts_scratch(const sl_call *call, int threads) {
  sl_call bare = *call;
  (void)threads;
  bare.scratch = NULL;
  return lay_out(&bare, &(lending){0});
}

/* ---- rows by item --------------------------------------------------------------------------- */

static int item_of(const lending *l, int64_t row) {
  int32_t id = ((const int32_t *)l->call->in[1])[row];
  if (id < 0 || id >= l->loads->experts) return -1;
  int32_t level = sli_expert_level(l->loads, l->call->in[2], row);
  return l->index[id * l->loads->levels + level] - 1;
}

static void sort_rows(lending *l, const sli_lent *lent) {
  const sli_expert_loads *s = l->loads;
  memset(l->index, 0, (size_t)(s->experts * s->levels) * sizeof *l->index);
  l->nparts = lent->count;
  for (int i = 0; i < l->nparts; i++) {
    const sli_lent_item *item = sli_lent_item_at(s, lent, i);
    l->parts[i] = (lent_rows){.item = item};
    l->index[item->expert * s->levels + item->level] = i + 1;
  }
  for (int64_t r = 0; r < l->rows; r++)
    if (item_of(l, r) >= 0) l->parts[item_of(l, r)].count++;
  for (int i = 0; i < l->nparts; i++) {
    l->parts[i].begin = l->sorted;
    l->sorted += l->parts[i].count;
    l->parts[i].count = 0;
  }
  for (int64_t r = 0; r < l->rows; r++) {
    int i = item_of(l, r);
    if (i >= 0) l->order[l->parts[i].begin + l->parts[i].count++] = (int32_t)r;
  }
}

/* Sets rows without an expert to 0. */
static void clear_others(const lending *l) {
  const int32_t *ids = l->call->in[1];
  int64_t n = rows_in(l, DOWN);
  for (int64_t r = 0; r < l->rows; r++)
    if (ids[r] < 0) memset((float *)l->call->out[0] + r * n, 0, (size_t)n * sizeof(float));
}

static void gather_row(void *arg, int i) {
  const lending *l = arg;
  int64_t k = width_of(l, GATE), from = l->order[i] / l->each;
  memcpy(l->x + i * k, (const float *)l->call->in[0] + from * k, (size_t)k * sizeof(float));
}

static void scatter_row(void *arg, int i) {
  const lending *l = arg;
  int64_t n = rows_in(l, DOWN);
  memcpy((float *)l->call->out[0] + l->order[i] * n, l->y + i * n, (size_t)n * sizeof(float));
}

/* ---- products ------------------------------------------------------------------------------- */

/* Address of a matrix's piece in the slot of an expert's part. */
static const char *piece_in_slot(const lending *l, const sli_lent_item *item, int part, int m) {
  const char *slot = l->cache + (size_t)item->slot[part] * l->loads->slot_bytes;
  for (int before = 0; before < m; before++) slot += l->loads->piece_bytes[before];
  return slot;
}

/* The product of a part's rows with matrix m, or with some of its rows. */
static sli_expert_product product_of(const lending *l, const lent_rows *part, int m,
                                     const sl_type *weight, const void *values, float *y) {
  int64_t k = width_of(l, m);
  return (sli_expert_product){.attrs = l->call->attrs,
                              .weight = weight,
                              .storage = l->loads->storage[m],
                              .values = values,
                              .x = (m == DOWN ? l->inner[GATE] : l->x) + part->begin * k,
                              .y = y,
                              .rows = part->count,
                              .k = k,
                              .digits = l->digits + part->begin * (k / SLI_STORAGE_BLOCK)};
}

/* The product of a part's rows with matrix m of a whole expert. */
static sli_expert_product whole_product(const lending *l, const lent_rows *part, int m) {
  float *y = (m == DOWN ? l->y : l->inner[m]) + part->begin * rows_in(l, m);
  return product_of(l, part, m, &l->loads->matrix[m], piece_in_slot(l, part->item, 0, m), y);
}

/* A piece of a product with the numbers that an expert's planes stand for, in f32. */
static void planes_piece(const lending *l, const lent_rows *part, int m, int piece) {
  int64_t n = rows_in(l, m), k = width_of(l, m);
  sli_range columns = sli_served_columns(n, l->pieces, piece);
  int64_t count = columns.end - columns.begin;
  if (!part->count || count <= 0) return;
  const void *planes[SLI_PLANES_MOST];
  int width = l->loads->base + part->item->level;
  for (int p = 0; p < width; p++) planes[p] = piece_in_slot(l, part->item, p, m);
  float *w = sli_room(SLI_ROOM_LEFT, (size_t)(count * k) * sizeof *w),
        *to = sli_room(SLI_ROOM_RIGHT, (size_t)(part->count * count) * sizeof *to);
  sli_planes_unpack(planes, l->loads->base, width, k, columns.begin, count, w);
  float *y = (m == DOWN ? l->y : l->inner[m]) + part->begin * n + columns.begin;
  const sl_type weight = SL_TYPE(SL_F32, count, k);
  sli_expert_product product = product_of(l, part, m, &weight, w, to);
  sli_expert_product_piece(&product, 1, 0);
  for (int32_t r = 0; r < part->count; r++)
    memcpy(y + r * n, to + r * count, (size_t)count * sizeof *y);
}

static void expert_piece(void *arg, int i) {
  const lending *l = arg;
  int piece = i % l->pieces, which = i / l->pieces % l->nproducts, m = l->first + which;
  const lent_rows *part = &l->parts[i / l->pieces / l->nproducts];
  if (l->loads->planes) {
    planes_piece(l, part, m, piece);
    return;
  }
  sli_expert_product product = whole_product(l, part, m);
  if (part->count) sli_expert_product_piece(&product, l->pieces, piece);
}

static void digits_row(void *arg, int i) {
  const lending *l = arg;
  const lent_rows *part = l->parts;
  while (i >= part->begin + part->count) part++;
  sli_expert_product product = whole_product(l, part, l->first);
  sli_expert_product_digits(&product, i - part->begin);
}

/* Returns the pieces of one expert's product: whole columns for each thread, or a few more. */
static int pieces_of(const lending *l, int m) {
  enum { EACH = 4 };
  int64_t all = sli_chunk_count(rows_in(l, m), SLI_SERVED_COLUMNS);
  int threads = sl_team_size(l->call->team);
  return (int)SLI_MAX(SLI_MIN(all, l->nparts >= EACH * threads ? threads : EACH * threads), 1);
}

static void multiply(lending *l, int first, int nproducts) {
  l->first = first;
  l->nproducts = nproducts;
  l->pieces = pieces_of(l, first);
  if (in_blocks(l, first)) sl_team_for(l->call->team, l->sorted, digits_row, l);
  sl_team_for(l->call->team, l->nparts * nproducts * l->pieces, expert_piece, l);
}

static void activate(const lending *l) {
  const sl_type type = SL_TYPE(SL_F32, l->sorted, rows_in(l, GATE));
  const sl_type types[] = {type, type};
  const void *in[] = {l->inner[GATE], l->inner[UP]};
  void *out = l->inner[GATE];
  const sl_call call = {.attrs = l->call->attrs,
                        .nin = 2,
                        .nout = 1,
                        .in_type = types,
                        .out_type = &type,
                        .in = in,
                        .out = &out,
                        .team = l->call->team};
  sli_for_elements(&call, &type, sli_cpu()->swiglu);
}

static void loaded_experts_cpu(const sl_call *call) {
  const sl_type *ids = &call->in_type[1];
  const sli_lent *lent = call->in[3];
  lending l = {.cache = (const char *)(uintptr_t)lent->cache,
               .rows = sli_grouped_valid_ids(call),
               .each = sli_grouped_shared(&call->in_type[0], ids) ? sl_type_last(ids) : 1};
  lay_out(call, &l);
  if (!lent->firing) clear_others(&l);
  if (!lent->count) return;
  sort_rows(&l, lent);
  sl_team_for(call->team, l.sorted, gather_row, &l);
  if (sl_type_equal(&l.loads->matrix[GATE], &l.loads->matrix[UP])) multiply(&l, GATE, 2);
  else multiply(&l, GATE, 1), multiply(&l, UP, 1);
  activate(&l);
  multiply(&l, DOWN, 1);
  sl_team_for(call->team, l.sorted, scatter_row, &l);
}

const sl_kernel sli_cpu_loaded_experts = {
    .backend = "cpu",
    .run = loaded_experts_cpu,
    .scratch = loaded_experts_scratch,
};
