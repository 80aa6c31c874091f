/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels that gather elements by index along a dim, and that scatter-add to indexed positions.
 * One thread adds all values of a position, in the order of the index. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/indexing.h"
#include "ops/ops.h"

/* ---- gather ---------------------------------------------------------------------------- */

typedef struct taking {
  const sl_call *call;
  sli_indexing by;
  uint32_t other; /* value for an index that is out of range */
} taking;

static uint32_t other_word(const sl_call *call) {
  const float nan = NAN;
  uint32_t word;
  memcpy(&word, &nan, sizeof word);
  if (call->attrs->place.partial) return 0;
  return call->out_type[0].dtype == SL_I32 ? UINT32_MAX : word;
}

static void gather_chunk(void *arg, int i) {
  const taking *t = arg;
  const sli_indexing *x = &t->by;
  const uint32_t *from = t->call->in[0];
  const int32_t *index = t->call->in[1];
  uint32_t *to = t->call->out[0];
  sli_range r = sli_elements(&t->call->out_type[0], i);
  for (int64_t run, at = r.begin; at < r.end; at += run) {
    int64_t row = at / x->inner, c = at % x->inner;
    int64_t id = index[sli_permutation_from(&x->index, at)] - x->first;
    run = x->rows ? SLI_MIN(x->inner - c, r.end - at) : 1;
    if (id >= 0 && id < x->n)
      memcpy(to + at, from + (row / x->m * x->n + id) * x->inner + c, (size_t)run * sizeof *to);
    else
      for (int64_t e = 0; e < run; e++) to[at + e] = t->other;
  }
}

static void gather_cpu(const sl_call *call) {
  taking t = {call, sli_indexing_of(call->attrs, &call->in_type[0], &call->in_type[1]),
              other_word(call)};
  sl_team_for(call->team, sli_element_chunks(&call->out_type[0]), gather_chunk, &t);
}

/* ---- sums ------------------------------------------------------------------------------ */

/* Computes y [outer, n, inner] += src [outer, m, inner] at index. */
typedef struct adding {
  sli_indexing by;
  const int32_t *index;
  const float *src, *base; /* base: initial values of y; NULL: zeros; y itself: unchanged */
  float *y;
  bool shows;    /* an index out of range sets its line to NaN */
  int64_t block; /* lines per chunk; there are outer * inner lines */
} adding;

/* Initialises columns [begin, end) of a row. */
static void begin_row(const adding *a, int64_t at, int64_t count) {
  if (!a->base) memset(a->y + at, 0, (size_t)count * sizeof *a->y);
  else if (a->base != a->y) memcpy(a->y + at, a->base + at, (size_t)count * sizeof *a->y);
}

static void add_row(const adding *a, int64_t outer, int64_t id, const float *src, int64_t begin,
                    int64_t end) {
  const sli_indexing *x = &a->by;
  bool there = id >= 0 && id < x->n;
  float *y = a->y + (outer * x->n + (there ? id : 0)) * x->inner;
  if (there)
    for (int64_t c = begin; c < end; c++) y[c] += src[c];
  else if (a->shows)
    for (int64_t c = begin; c < end; c++) y[c] = NAN;
}

/* Adds columns [begin, end) of one outer position. */
static void add_columns(const adding *a, int64_t outer, int64_t begin, int64_t end) {
  const sli_indexing *x = &a->by;
  for (int64_t r = 0; r < x->n; r++)
    begin_row(a, (outer * x->n + r) * x->inner + begin, end - begin);
  for (int64_t k = 0; k < x->m; k++) {
    int64_t row = (outer * x->m + k) * x->inner;
    for (int64_t c = begin, next; c < end; c = next) {
      next = x->rows ? end : c + 1;
      int64_t id = a->index[sli_permutation_from(&x->index, row + c)] - x->first;
      add_row(a, outer, id, a->src + row, c, next);
    }
  }
}

static void add_chunk(void *arg, int i) {
  const adding *a = arg;
  sli_range r = sli_chunk_range(a->by.outer * a->by.inner, a->block, i);
  for (int64_t next, at = r.begin; at < r.end; at = next) {
    int64_t outer = at / a->by.inner, begin = at % a->by.inner;
    int64_t end = SLI_MIN(a->by.inner, begin + r.end - at);
    next = at + end - begin;
    add_columns(a, outer, begin, end);
  }
}

static void add_all(const sl_call *call, adding *a) {
  int64_t few = SLI_MIN(a->by.inner, SLI_CHUNK_COLUMNS);
  a->block = SLI_MAX(few, SLI_CHUNK_ELEMENTS / (a->by.n + a->by.m));
  sl_team_for(call->team, sli_chunk_count(a->by.outer * a->by.inner, a->block), add_chunk, a);
}

/* Adds exact sums, in f64. */
static void gather_b_sums(const sl_call *call) {
  const sli_indexing x = sli_indexing_of(call->attrs, &call->out_type[0], &call->in_type[0]);
  const int32_t *index = call->in[0];
  const double *dy = call->in[1];
  double *dx = call->out[0];
  if (!sli_accumulates(call, 0)) memset(dx, 0, sl_type_bytes(&call->out_type[0]));
  for (int64_t e = 0; e < x.outer * x.m * x.inner; e++) {
    int64_t id = index[sli_permutation_from(&x.index, e)] - x.first, c = e % x.inner;
    if (id >= 0 && id < x.n) dx[(e / x.inner / x.m * x.n + id) * x.inner + c] += dy[e];
  }
}

static void gather_b_cpu(const sl_call *call) {
  if (call->in_type[1].dtype == SL_F64) {
    gather_b_sums(call);
    return;
  }
  adding a = {.by = sli_indexing_of(call->attrs, &call->out_type[0], &call->in_type[0]),
              .index = call->in[0],
              .src = call->in[1],
              .y = call->out[0],
              .base = sli_accumulates(call, 0) ? call->out[0] : NULL};
  add_all(call, &a);
}

static void scatter_add_cpu(const sl_call *call) {
  adding a = {.by = sli_indexing_of(call->attrs, &call->out_type[0], &call->in_type[1]),
              .src = call->in[0],
              .index = call->in[1],
              .y = call->out[0],
              .base = call->nin > 2 ? call->in[2] : NULL,
              .shows = !call->attrs->place.partial};
  add_all(call, &a);
}

/* ---- tables ---------------------------------------------------------------------------- */

const sl_kernel sli_cpu_gather = {.backend = "cpu", .run = gather_cpu};

const sl_kernel sli_cpu_gather_b = {.backend = "cpu", .run = gather_b_cpu};

const sl_kernel sli_cpu_scatter_add = {.backend = "cpu", .run = scatter_add_cpu};
