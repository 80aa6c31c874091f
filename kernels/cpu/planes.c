/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels that train bit routers of experts in planes (ops/planes.h). */
#include "ops/planes.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/ops.h"
#include "ops/place.h"

static void values_chunk(void *arg, int i) {
  const sl_call *call = arg;
  int64_t k = sl_type_last(&call->in_type[0]);
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++)
    sli_planes_values(k, (int)call->attrs->planes.base, (int)call->attrs->planes.width,
                      (const float *)call->in[0] + r * k, (float *)call->out[0] + r * k);
}

static void plane_values_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], values_chunk);
}

/* ---- choice --------------------------------------------------------------------------------- */

/* A row's probability of a width, at place row * widths + width. */
typedef struct pair {
  float p;
  int32_t place;
} pair;

typedef struct choosing {
  pair *pairs;   /* [rows * widths] */
  int64_t *room; /* [experts * widths] rows that may still take a width */
  bool *chosen;  /* [rows] */
} choosing;

static size_t lay_out(const sl_call *call, choosing *c) {
  size_t at = 0;
  int64_t places = sl_type_elements(&call->in_type[0]), widths = sl_type_last(&call->in_type[0]);
  c->pairs = sli_place(call->scratch, &at, places, sizeof *c->pairs);
  c->room = sli_place(call->scratch, &at, call->attrs->experts.count * widths, sizeof *c->room);
  c->chosen = sli_place(call->scratch, &at, places / widths, sizeof *c->chosen);
  return at;
}

static size_t bit_choice_scratch(const sl_call *call, int threads) {
  sl_call bare = *call;
  (void)threads;
  bare.scratch = NULL;
  return call->attrs->experts.ncapacities ? lay_out(&bare, &(choosing){0}) : 0;
}

static int by_probability(const void *a, const void *b) {
  const pair *x = a, *y = b;
  if (x->p != y->p) return x->p > y->p ? -1 : 1;
  return (x->place > y->place) - (x->place < y->place);
}

static bool is_limited(const sl_call *call, int32_t id) {
  return call->attrs->experts.ncapacities && id >= 0 && id < call->attrs->experts.count;
}

/* Chooses the largest p of a row whose width has no limit. */
static void choose_alone(const sl_call *call, int64_t row) {
  int64_t widths = sl_type_last(&call->in_type[0]), best = 0;
  const float *p = (const float *)call->in[0] + row * widths;
  for (int64_t v = 1; v < widths; v++)
    if (p[v] > p[best]) best = v;
  ((float *)call->out[0])[row * widths + best] = 1;
}

static void choose_limited(const sl_call *call) {
  choosing c;
  lay_out(call, &c);
  const int32_t *ids = call->in[1];
  int64_t widths = sl_type_last(&call->in_type[0]), places = sl_type_elements(&call->in_type[0]),
          experts = call->attrs->experts.count, rows = places / widths;
  memset(c.room, 0, (size_t)(experts * widths) * sizeof *c.room);
  memset(c.chosen, 0, (size_t)rows * sizeof *c.chosen);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t v = 0; v < widths && is_limited(call, ids[r]); v++) c.room[ids[r] * widths + v]++;
  for (int64_t i = 0; i < experts * widths; i++)
    c.room[i] =
        (c.room[i] * call->attrs->experts.capacity[i % widths] + SLI_BITS_ALL - 1) / SLI_BITS_ALL;
  for (int64_t i = 0; i < places; i++)
    c.pairs[i] = (pair){((const float *)call->in[0])[i], (int32_t)i};
  qsort(c.pairs, (size_t)places, sizeof *c.pairs, by_probability);
  for (int64_t i = 0; i < places; i++) {
    int64_t place = c.pairs[i].place, row = place / widths;
    if (!is_limited(call, ids[row]) || c.chosen[row]) continue;
    int64_t *room = &c.room[ids[row] * widths + place % widths];
    if (!*room) continue;
    --*room;
    c.chosen[row] = true;
    ((float *)call->out[0])[place] = 1;
  }
}

static void bit_choice_cpu(const sl_call *call) {
  int64_t rows = sl_type_rows(&call->in_type[0]);
  memset(call->out[0], 0, sl_type_bytes(&call->out_type[0]));
  for (int64_t r = 0; r < rows; r++)
    if (!is_limited(call, ((const int32_t *)call->in[1])[r])) choose_alone(call, r);
  if (call->attrs->experts.ncapacities) choose_limited(call);
}

const sl_kernel sli_cpu_plane_values = {.backend = "cpu", .run = plane_values_cpu};

const sl_kernel sli_cpu_bit_choice = {
    .backend = "cpu",
    .run = bit_choice_cpu,
    .scratch = bit_choice_scratch,
};
