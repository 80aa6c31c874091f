/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels that cut and join tensors: the boxing between devices that shard a tensor in
 * different ways. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/layout.h"
#include "ops/ops.h"
#include "ops/part.h"

enum { CHUNK_BYTES = 4 * SLI_CHUNK_ELEMENTS };

/* ---- slice ------------------------------------------------------------------------- */

typedef struct slicing {
  const sl_call *call;
  sli_cut cut;
} slicing;

static void slice_chunk(void *arg, int i) {
  const slicing *s = arg;
  sli_range r = sli_chunk_range(s->cut.rows * s->cut.part, CHUNK_BYTES, i);
  sli_cut_take(&s->cut, r.begin, r.end, s->call->in[0], (char *)s->call->out[0] + r.begin);
}

static void slice_cpu(const sl_call *call) {
  slicing s = {call, sli_part_cut(&call->in_type[0], call->attrs->user)};
  sl_team_for(call->team, sli_chunk_count(s.cut.rows * s.cut.part, CHUNK_BYTES), slice_chunk, &s);
}

static void slice_b_chunk(void *arg, int i) {
  const slicing *s = arg;
  sli_range r = sli_chunk_range(s->cut.rows * s->cut.part, CHUNK_BYTES, i);
  sli_cut_put(&s->cut, r.begin, r.end, (const char *)s->call->in[0] + r.begin, s->call->out[0]);
}

static void zero_chunk(void *arg, int i) {
  const sl_call *call = arg;
  sli_range r = sli_chunk_range((int64_t)sl_type_bytes(&call->out_type[0]), CHUNK_BYTES, i);
  memset((char *)call->out[0] + r.begin, 0, (size_t)(r.end - r.begin));
}

static void slice_b_cpu(const sl_call *call) {
  slicing s = {call, sli_part_cut(&call->out_type[0], call->attrs->user)};
  int64_t bytes = (int64_t)sl_type_bytes(&call->out_type[0]);
  sl_team_for(call->team, sli_chunk_count(bytes, CHUNK_BYTES), zero_chunk, (void *)call);
  sl_team_for(call->team, sli_chunk_count(s.cut.rows * s.cut.part, CHUNK_BYTES), slice_b_chunk, &s);
}

/* ---- join -------------------------------------------------------------------------- */

/* Copies a chunk of the concatenation of all inputs. */
static void join_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_joint *joint = call->attrs->user;
  int p = 0;
  for (;; p++) {
    int n = sli_chunk_count((int64_t)sl_type_bytes(&call->in_type[p]), CHUNK_BYTES);
    if (i < n) break;
    i -= n;
  }
  sli_cut cut = sli_part_cut(&call->out_type[0], &joint->parts[p]);
  sli_range r = sli_chunk_range(cut.rows * cut.part, CHUNK_BYTES, i);
  sli_cut_put(&cut, r.begin, r.end, (const char *)call->in[p] + r.begin, call->out[0]);
}

static void join_cpu(const sl_call *call) {
  int n = 0;
  for (int p = 0; p < call->nin; p++)
    n += sli_chunk_count((int64_t)sl_type_bytes(&call->in_type[p]), CHUNK_BYTES);
  sl_team_for(call->team, n, join_chunk, (void *)call);
}

/* ---- sum --------------------------------------------------------------------------- */

static void sum_f64_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const double *const *x = (const double *const *)call->in;
  double *y = call->out[0];
  sli_range r = sli_elements(&call->in_type[0], i);
  for (int64_t e = r.begin; e < r.end; e++) {
    double s = x[0][e];
    for (int k = 1; k < call->nin; k++) s += x[k][e];
    y[e] = sli_accumulates(call, 0) ? y[e] + s : s;
  }
}

static void sum_cpu(const sl_call *call) {
  bool f64 = call->in_type[0].dtype == SL_F64;
  sli_for_elements(call, &call->in_type[0], f64 ? sum_f64_chunk : sli_cpu()->sum);
}

/* ---- the sum of one part ------------------------------------------------------------- */

/* Sums a stretch that is contiguous in the whole. */
static void sum_stretch(const sl_call *call, int64_t whole, int64_t part, int64_t bytes) {
  const void *in[SLI_SUM_MOST];
  void *out = (char *)call->out[0] + part;
  sl_dtype dtype = call->in_type[0].dtype;
  sl_type type = SL_TYPE(dtype, bytes / (int64_t)sl_dtype_bytes(dtype));
  for (int k = 0; k < call->nin; k++) in[k] = (const char *)call->in[k] + whole;
  sl_call one = *call;
  one.in_type = one.out_type = &type;
  one.in = in;
  one.out = &out;
  void (*sum)(void *arg, int i) = dtype == SL_F64 ? sum_f64_chunk : sli_cpu()->sum;
  for (int i = 0; i < sli_element_chunks(&type); i++) sum(&one, i);
}

static void sum_part_chunk(void *arg, int i) {
  const slicing *s = arg;
  sli_range r = sli_chunk_range(s->cut.rows * s->cut.part, CHUNK_BYTES, i);
  for (int64_t run, at = r.begin; at < r.end; at += run) {
    int64_t whole = sli_cut_find(&s->cut, at, &run);
    run = SLI_MIN(run, r.end - at);
    sum_stretch(s->call, whole, at, run);
  }
}

static void sum_part_cpu(const sl_call *call) {
  slicing s = {call, sli_part_cut(&call->in_type[0], call->attrs->user)};
  sl_team_for(call->team, sli_chunk_count(s.cut.rows * s.cut.part, CHUNK_BYTES), sum_part_chunk,
              &s);
}

/* ---- tables ------------------------------------------------------------------------- */

const sl_kernel sli_cpu_slice = {.backend = "cpu", .run = slice_cpu};

const sl_kernel sli_cpu_slice_b = {.backend = "cpu", .run = slice_b_cpu};

const sl_kernel sli_cpu_join = {.backend = "cpu", .run = join_cpu};

const sl_kernel sli_cpu_sum = {.backend = "cpu", .run = sum_cpu};

const sl_kernel sli_cpu_sum_part = {.backend = "cpu", .run = sum_part_cpu};
