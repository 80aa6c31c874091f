/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of constants, positions and casts of integers. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/layout.h"
#include "ops/ops.h"

/* ---- constants -------------------------------------------------------------------------- */

/* Returns the index in the whole of element `at` of this device's part; *run is the number of
 * contiguous elements. */
static int64_t stands(const sl_call *call, int64_t at, int64_t *run) {
  const sl_region *region = call->attrs->region;
  *run = sl_type_elements(&call->out_type[0]) - at;
  return region ? sli_region_index(region, call->out_type[0].dim, call->tick.row, at, run) : at;
}

static void constant_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_values *values = call->attrs->user;
  uint32_t *to = call->out[0];
  sli_range r = sli_elements(&call->out_type[0], i);
  for (int64_t run, at = r.begin; at < r.end; at += run) {
    int64_t from = stands(call, at, &run);
    run = SLI_MIN(run, r.end - at);
    memcpy(to + at, (const uint32_t *)values->values + from, (size_t)run * sizeof *to);
  }
}

static void filled_chunk(void *arg, int i) {
  const sl_call *call = arg;
  float value = call->attrs->fill.value;
  sli_range r = sli_elements(&call->out_type[0], i);
  for (int64_t e = r.begin; e < r.end; e++)
    if (call->out_type[0].dtype == SL_I32) ((int32_t *)call->out[0])[e] = (int32_t)value;
    else ((float *)call->out[0])[e] = value;
}

static void constant_cpu(const sl_call *call) {
  const sl_values *values = call->attrs->user;
  sli_for_elements(call, &call->out_type[0], values->values ? constant_chunk : filled_chunk);
}

/* ---- positions -------------------------------------------------------------------------- */

static void arange_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_type *type = &call->out_type[0];
  const sl_region *region = call->attrs->region;
  const int64_t *whole = region ? region->whole : type->dim;
  int32_t *to = call->out[0];
  int axis = sli_one_axis(call->attrs, type);
  int64_t inner = 1;
  for (int d = axis + 1; d < type->ndim; d++) inner *= whole[d];
  sli_range r = sli_elements(type, i);
  for (int64_t run, at = r.begin; at < r.end; at += run) {
    int64_t from = stands(call, at, &run);
    run = SLI_MIN(run, r.end - at);
    for (int64_t e = 0; e < run; e++) to[at + e] = (int32_t)((from + e) / inner % whole[axis]);
  }
}

static void arange_cpu(const sl_call *call) {
  sli_for_elements(call, &call->out_type[0], arange_chunk);
}

/* ---- integers and numbers --------------------------------------------------------------- */

/* Rounds towards 0. Numbers out of range give the nearest integer, NaN gives 0. */
static int32_t to_integer(float x) {
  if (isnan(x)) return 0;
  return x >= 0x1p31f ? INT32_MAX : x <= -0x1p31f ? INT32_MIN : (int32_t)x;
}

static void cast_chunk(void *arg, int i) {
  const sl_call *call = arg;
  bool integers = call->in_type[0].dtype == SL_I32;
  sli_range r = sli_elements(&call->in_type[0], i);
  for (int64_t e = r.begin; e < r.end; e++)
    if (integers) ((float *)call->out[0])[e] = (float)((const int32_t *)call->in[0])[e];
    else ((int32_t *)call->out[0])[e] = to_integer(((const float *)call->in[0])[e]);
}

static void cast_cpu(const sl_call *call) { sli_for_elements(call, &call->in_type[0], cast_chunk); }

static void to_f32_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const double *x = call->in[0];
  float *y = call->out[0];
  sli_range r = sli_elements(&call->in_type[0], i);
  for (int64_t e = r.begin; e < r.end; e++) y[e] = (float)x[e];
}

static void to_f32_cpu(const sl_call *call) {
  sli_for_elements(call, &call->in_type[0], to_f32_chunk);
}

static void to_f64_cpu(const sl_call *call) {
  *(double *)call->out[0] = (double)*(const float *)call->in[0];
}

static void one_hot_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const int32_t *ids = call->in[0];
  float *y = call->out[0];
  int64_t count = call->attrs->one_hot.classes;
  sli_range rows = sli_rows(&call->out_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    bool there = ids[r] >= 0 && ids[r] < count;
    for (int64_t c = 0; c < count; c++) y[r * count + c] = there ? 0 : NAN;
    if (there) y[r * count + ids[r]] = 1;
  }
}

static void one_hot_cpu(const sl_call *call) {
  sli_for_rows(call, &call->out_type[0], one_hot_chunk);
}

/* ---- tables ----------------------------------------------------------------------------- */

const sl_kernel sli_cpu_constant = {.backend = "cpu", .run = constant_cpu};

const sl_kernel sli_cpu_arange = {.backend = "cpu", .run = arange_cpu};

const sl_kernel sli_cpu_cast = {.backend = "cpu", .run = cast_cpu};

const sl_kernel sli_cpu_to_f32 = {.backend = "cpu", .run = to_f32_cpu};

const sl_kernel sli_cpu_to_f64 = {.backend = "cpu", .run = to_f64_cpu};

const sl_kernel sli_cpu_one_hot = {.backend = "cpu", .run = one_hot_cpu};
