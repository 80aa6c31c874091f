/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels that replace embeddings of tokens with encoder rows. */
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/served.h"
#include "ops/splice.h"

/* ---- marks ------------------------------------------------------------------------------ */

static void marks_cpu(const sl_call *call) {
  const int32_t *tokens = call->in[0];
  int32_t *at = call->out[0];
  int64_t length = call->in_type[0].dim[1];
  for (int64_t b = 0; b < call->in_type[0].dim[0]; b++) {
    int64_t next = (call->attrs->place.first + b) * call->attrs->tokens.each;
    for (int64_t t = b * length; t < (b + 1) * length; t++)
      at[t] = tokens[t] == call->attrs->tokens.marker ? (int32_t)next++ : -1;
  }
}

const sl_kernel sli_cpu_marks = {.backend = "cpu", .run = marks_cpu};

/* ---- splice ----------------------------------------------------------------------------- */

/* Writes row r of the output: x, or row `at` of `count` rows. A place without a row becomes NaN, so
 * that the loss shows it. */
static void splice_row(const sl_call *call, int64_t r, const float *rows, int64_t count,
                       int32_t at) {
  int64_t width = sl_type_last(&call->in_type[0]);
  const float *x = (const float *)call->in[0] + r * width;
  float *y = (float *)call->out[0] + r * width;
  if (at >= 0 && at < count) memcpy(y, rows + at * width, (size_t)width * sizeof *y);
  else if (at >= 0) memset(y, 0xff, (size_t)width * sizeof *y);
  else memcpy(y, x, (size_t)width * sizeof *y);
}

/* Returns the number of a row within a device's part of all rows; negative if it has none. */
static int32_t here(const sl_call *call, int32_t at) {
  return at < 0 ? at : at - (int32_t)call->attrs->place.first;
}

static void splice_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const int32_t *at = call->in[2];
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++)
    splice_row(call, r, call->in[1], call->in_type[1].dim[0], here(call, at[r]));
}

static void splice_cpu(const sl_call *call) { sli_for_rows(call, &call->in_type[0], splice_chunk); }

const sl_kernel sli_cpu_splice = {.backend = "cpu", .run = splice_cpu};

/* Adds the gradient of a place to the gradient of its row. */
static void add_place(const sl_call *call, int64_t r, int32_t at) {
  int64_t width = sl_type_last(&call->in_type[0]);
  const float *dy = (const float *)call->in[0] + r * width;
  float *drow = (float *)call->out[1] + at * width;
  for (int64_t c = 0; c < width; c++) drow[c] += dy[c];
}

static void splice_b_cpu(const sl_call *call) {
  int64_t width = sl_type_last(&call->in_type[0]), count = call->in_type[1].dim[0];
  const int32_t *at = call->in[2];
  const float *dy = call->in[0];
  float *dx = call->out[0];
  size_t bytes = (size_t)width * sizeof *dy;
  if (call->out[1]) memset(call->out[1], 0, (size_t)count * bytes);
  for (int64_t r = 0; r < sl_type_rows(&call->in_type[0]); r++) {
    int32_t row = here(call, at[r]);
    if (call->out[1] && row >= 0 && row < count) add_place(call, r, row);
    if (dx && at[r] >= 0) memset(dx + r * width, 0, bytes);
    else if (dx) memcpy(dx + r * width, dy + r * width, bytes);
  }
}

const sl_kernel sli_cpu_splice_b = {.backend = "cpu", .run = splice_b_cpu};

/* ---- serving: positions of any sequences ------------------------------------------------ */

static void splice_served_cpu(const sl_call *call) {
  const sl_batch *batch = sli_batch_of(call);
  const float *rows = call->in[1] ? call->in[1] : sl_batch_spliced_rows(batch);
  int64_t count = call->in[1] ? call->in_type[1].dim[0] : batch->rows;
  for (int32_t r = 0; r < batch->rows; r++)
    splice_row(call, r, rows, count, sl_batch_spliced(batch)[r]);
}

const sl_kernel sli_cpu_splice_served = {.backend = "cpu", .run = splice_served_cpu};

/* ---- span ------------------------------------------------------------------------------- */

/* Appends a tick's rows to those of the previous ticks. */
static void span_cpu(const sl_call *call) {
  size_t bytes = sl_type_bytes(&call->in_type[0]);
  memcpy((char *)call->out[0] + (size_t)call->tick.microbatch * bytes, call->in[0], bytes);
}

const sl_kernel sli_cpu_span = {.backend = "cpu", .run = span_cpu};
