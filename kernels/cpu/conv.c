/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of convolutions. For each image the columns under the kernel are gathered (im2col): a
 * row per kernel element and a column per output position. The convolution and its gradients are
 * then matrix products with the weight. Threads take images in turn, each with separate columns in
 * the scratch. A 1x1 kernel reads the image itself. Most 3x3 kernels are left to winograd.c. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/winograd.h"
#include "ops/layout.h"
#include "ops/ops.h"

/* ---- columns ----------------------------------------------------------------------------- */

/* Sizes of a call. Channels and outputs are those of one group; `taps` is kernel elements times
 * channels. */
typedef struct job {
  const sl_call *call;
  sli_window w;
  int64_t channels, outputs, taps, in, out; /* in, out: positions of an image */
  bool plain;                               /* the image itself serves as the columns */
  int workers;
  float *columns, *sums; /* scratch: [workers][taps * out], followed by partial sums */
} job;

static bool is_plain(const sli_window *w) {
  for (int a = 0; a < 2; a++)
    if (w->size[a] > 1 || w->stride[a] > 1 || w->pad[a]) return false;
  return true;
}

static job job_of(const sl_call *call, const sl_type *x, const sl_type *weight, int workers) {
  sli_window w = sli_window_of(call->attrs, x, weight);
  job j = {.call = call,
           .w = w,
           .plain = is_plain(&w),
           .columns = call->scratch,
           .channels = w.channels / w.groups,
           .outputs = weight->dim[0] / w.groups,
           .in = w.in[0] * w.in[1],
           .out = w.out[0] * w.out[1]};
  j.taps = j.channels * w.size[0] * w.size[1];
  j.workers = (int)SLI_MIN(workers, w.images);
  j.sums = j.columns + (j.plain ? 0 : j.workers * j.taps * j.out);
  return j;
}

static size_t columns_bytes(const job *j) {
  return j->plain ? 0 : (size_t)(j->workers * j->taps * j->out) * sizeof(float);
}

/* Returns the range of outputs along an axis for which kernel element k is inside the image. */
static sli_range meeting(const sli_window *w, int a, int64_t k) {
  int64_t at = k * w->dilation[a] - w->pad[a], s = w->stride[a]; /* input position for output 0 */
  int64_t begin = at < 0 ? (-at + s - 1) / s : 0;
  int64_t end = at >= w->in[a] ? 0 : (w->in[a] - 1 - at) / s + 1;
  begin = SLI_MIN(begin, w->out[a]);
  end = SLI_MIN(end, w->out[a]);
  return (sli_range){begin, SLI_MAX(end, begin)};
}

/* Gathers one row of columns, kernel element (k, l) on one channel. */
static void gather_row(const sli_window *w, int64_t k, int64_t l, const float *x, float *row) {
  sli_range down = meeting(w, 0, k), along = meeting(w, 1, l);
  memset(row, 0, (size_t)(w->out[0] * w->out[1]) * sizeof *row);
  for (int64_t i = down.begin; i < down.end; i++) {
    int64_t line = i * w->stride[0] - w->pad[0] + k * w->dilation[0];
    const float *from = x + line * w->in[1] - w->pad[1] + l * w->dilation[1];
    float *to = row + i * w->out[1];
    if (w->stride[1] == 1)
      memcpy(to + along.begin, from + along.begin, (size_t)(along.end - along.begin) * sizeof *to);
    else
      for (int64_t j = along.begin; j < along.end; j++) to[j] = from[j * w->stride[1]];
  }
}

/* Adds a row of columns to the places it was gathered from. */
static void scatter_row(const sli_window *w, int64_t k, int64_t l, const float *row, float *x) {
  sli_range down = meeting(w, 0, k), along = meeting(w, 1, l);
  for (int64_t i = down.begin; i < down.end; i++) {
    int64_t line = i * w->stride[0] - w->pad[0] + k * w->dilation[0];
    float *to = x + line * w->in[1] - w->pad[1] + l * w->dilation[1];
    const float *from = row + i * w->out[1];
    for (int64_t j = along.begin; j < along.end; j++) to[j * w->stride[1]] += from[j];
  }
}

/* Gathers all rows: channel, height and width, in the order of the weight. */
static const float *gather(const job *j, const float *x, float *columns) {
  if (j->plain) return x;
  int64_t row = 0;
  for (int64_t c = 0; c < j->channels; c++)
    for (int64_t k = 0; k < j->w.size[0]; k++)
      for (int64_t l = 0; l < j->w.size[1]; l++)
        gather_row(&j->w, k, l, x + c * j->in, columns + row++ * j->out);
  return columns;
}

static void scatter(const job *j, const float *columns, float *x) {
  int64_t row = 0;
  memset(x, 0, (size_t)(j->channels * j->in) * sizeof *x);
  for (int64_t c = 0; c < j->channels; c++)
    for (int64_t k = 0; k < j->w.size[0]; k++)
      for (int64_t l = 0; l < j->w.size[1]; l++)
        scatter_row(&j->w, k, l, columns + row++ * j->out, x + c * j->in);
}

/* Offsets of group g: in image n of x and of y, and in the weight. */
static int64_t at_x(const job *j, int64_t n, int64_t g) {
  return (n * j->w.groups + g) * j->channels * j->in;
}

static int64_t at_y(const job *j, int64_t n, int64_t g) {
  return (n * j->w.groups + g) * j->outputs * j->out;
}

static int64_t at_w(const job *j, int64_t g) { return g * j->outputs * j->taps; }

static float *own_columns(const job *j, int worker) {
  return j->columns + worker * j->taps * j->out;
}

/* State of a call: the product of columns, or the plan of Winograd's method. */
typedef struct method {
  sli_product *product;
  sli_winograd_plan *winograd;
} method;

static const sli_product *product_of(const job *j) {
  return ((const method *)j->call->state)->product;
}

static const sli_winograd_plan *winograd_of(const sl_call *call) {
  return ((const method *)call->state)->winograd;
}

static bool is_winograd(const job *j) {
  return sli_winograd_takes(j->call->attrs, &j->w, j->outputs);
}

static void release(void *state) {
  method *m = state;
  if (!m) return;
  sli_product_destroy(m->product);
  sli_winograd_destroy(m->winograd);
  free(m);
}

static sl_status prepare(const job *j, int of, sli_product_shape shape, void **state) {
  method *m = sli_calloc(1, sizeof *m);
  sli_winograd_shape winograd = {j->w, j->outputs, of};
  sli_product_order(&shape, j->call->attrs);
  sl_status status = is_winograd(j) ? sli_winograd_create(&winograd, &m->winograd)
                                    : sli_product_create(&shape, &m->product);
  if (status) release(m);
  else *state = m;
  return status;
}

/* Returns the bytes of scratch: of Winograd's method, or of columns and `sums`. */
static size_t conv_scratch_bytes(const job *j, int of, size_t sums) {
  sli_winograd_shape winograd = {j->w, j->outputs, of};
  return is_winograd(j) ? sli_winograd_scratch(&winograd) : columns_bytes(j) + sums;
}

/* ---- y = w columns + bias ---------------------------------------------------------------- */

static job forward_job(const sl_call *call, int threads) {
  return job_of(call, &call->in_type[0], &call->in_type[1], threads);
}

static sl_status conv_prepare(const sl_call *call, void **state) {
  job j = forward_job(call, 1);
  return prepare(&j, SLI_WINOGRAD_Y,
                 (sli_product_shape){.m = j.outputs, .n = j.out, .k = j.taps, .add = true}, state);
}

static size_t conv_scratch(const sl_call *call, int threads) {
  job j = forward_job(call, threads);
  return conv_scratch_bytes(&j, SLI_WINOGRAD_Y, 0);
}

static void fill_bias(const job *j, const float *bias, float *y) {
  for (int64_t o = 0; o < j->outputs; o++)
    for (int64_t p = 0; p < j->out; p++) y[o * j->out + p] = bias[o];
}

static void forward_image(const job *j, int64_t n, float *columns) {
  const sl_call *call = j->call;
  const float *bias = call->nin > 2 ? call->in[2] : NULL;
  for (int64_t g = 0; g < j->w.groups; g++) {
    float *y = (float *)call->out[0] + at_y(j, n, g);
    const float *x = gather(j, (const float *)call->in[0] + at_x(j, n, g), columns);
    if (bias) fill_bias(j, bias + g * j->outputs, y);
    sli_product_run(product_of(j), NULL, bias, (const float *)call->in[1] + at_w(j, g), x, NULL, y,
                    NULL);
  }
}

static void forward_worker(void *arg, int worker) {
  const job *j = arg;
  for (int64_t n = worker; n < j->w.images; n += j->workers)
    forward_image(j, n, own_columns(j, worker));
}

static void conv_cpu(const sl_call *call) {
  job j = forward_job(call, sl_team_size(call->team));
  if (winograd_of(call)) {
    sli_winograd_run(winograd_of(call), call->team, j.w.images, call->in[0], call->in[1],
                     call->nin > 2 ? call->in[2] : NULL, false, call->out[0], call->scratch);
    return;
  }
  sl_team_for(call->team, j.workers, forward_worker, &j);
}

/* ---- dx: columns = w^T dy, scattered to their places ---------------------------------------- */

static job backward_job(const sl_call *call, int threads) {
  return job_of(call, &call->in_type[2], &call->in_type[1], threads);
}

static sl_status conv_b_prepare(const sl_call *call, void **state) {
  job j = backward_job(call, 1);
  return prepare(&j, SLI_WINOGRAD_X,
                 (sli_product_shape){.m = j.taps, .n = j.out, .k = j.outputs, .a_transposed = true},
                 state);
}

static size_t conv_b_scratch(const sl_call *call, int threads) {
  job j = backward_job(call, threads);
  return conv_scratch_bytes(&j, SLI_WINOGRAD_X, 0);
}

static void backward_image(const job *j, int64_t n, float *columns) {
  const sl_call *call = j->call;
  for (int64_t g = 0; g < j->w.groups; g++) {
    float *dx = (float *)call->out[0] + at_x(j, n, g);
    sli_product_run(product_of(j), NULL, false, (const float *)call->in[1] + at_w(j, g),
                    (const float *)call->in[0] + at_y(j, n, g), NULL, j->plain ? dx : columns,
                    NULL);
    if (!j->plain) scatter(j, columns, dx);
  }
}

static void backward_worker(void *arg, int worker) {
  const job *j = arg;
  for (int64_t n = worker; n < j->w.images; n += j->workers)
    backward_image(j, n, own_columns(j, worker));
}

static void conv_b_cpu(const sl_call *call) {
  job j = backward_job(call, sl_team_size(call->team));
  if (winograd_of(call)) {
    sli_winograd_run(winograd_of(call), call->team, j.w.images, call->in[0], call->in[1], NULL,
                     false, call->out[0], call->scratch);
    return;
  }
  sl_team_for(call->team, j.workers, backward_worker, &j);
}

/* ---- dw = dy columns^T, over all images ------------------------------------------------------
 *
 * Images are cut into a fixed number of runs; each run has a separate sum, and these are added in
 * order. */

static job weight_job(const sl_call *call, int threads) {
  int64_t images = call->in_type[0].dim[0];
  return job_of(call, &call->in_type[0], &call->in_type[2],
                (int)SLI_MIN(threads, SLI_MIN(images, SLI_PARTIALS)));
}

static int64_t runs_of(const job *j) { return SLI_MIN(j->w.images, SLI_PARTIALS); }

static sl_status conv_w_prepare(const sl_call *call, void **state) {
  job j = weight_job(call, 1);
  return prepare(&j, SLI_WINOGRAD_W,
                 (sli_product_shape){
                     .m = j.outputs, .n = j.taps, .k = j.out, .b_transposed = true, .add = true},
                 state);
}

static size_t conv_w_scratch(const sl_call *call, int threads) {
  job j = weight_job(call, threads);
  return conv_scratch_bytes(&j, SLI_WINOGRAD_W,
                            (size_t)runs_of(&j) * sl_type_bytes(&call->out_type[0]));
}

static void weight_run(const job *j, int64_t run, float *columns) {
  const sl_call *call = j->call;
  int64_t begin = run * j->w.images / runs_of(j), end = (run + 1) * j->w.images / runs_of(j);
  float *sum = j->sums + run * sl_type_elements(&call->out_type[0]);
  for (int64_t n = begin; n < end; n++)
    for (int64_t g = 0; g < j->w.groups; g++) {
      const float *x = gather(j, (const float *)call->in[0] + at_x(j, n, g), columns);
      sli_product_run(product_of(j), NULL, n > begin, (const float *)call->in[1] + at_y(j, n, g), x,
                      NULL, sum + at_w(j, g), NULL);
    }
}

static void weight_worker(void *arg, int worker) {
  const job *j = arg;
  for (int64_t run = worker; run < runs_of(j); run += j->workers)
    weight_run(j, run, own_columns(j, worker));
}

static void add_runs(void *arg, int i) {
  const job *j = arg;
  int64_t n = sl_type_elements(&j->call->out_type[0]);
  sli_range r = sli_chunk_range(n, SLI_CHUNK_ELEMENTS, i);
  float *dw = j->call->out[0];
  for (int64_t e = r.begin; e < r.end; e++) {
    float sum = j->sums[e];
    for (int64_t run = 1; run < runs_of(j); run++) sum += j->sums[run * n + e];
    dw[e] = sli_accumulates(j->call, 0) ? dw[e] + sum : sum;
  }
}

static void conv_w_cpu(const sl_call *call) {
  job j = weight_job(call, sl_team_size(call->team));
  if (winograd_of(call)) {
    sli_winograd_run(winograd_of(call), call->team, j.w.images, call->in[0], call->in[1], NULL,
                     sli_accumulates(call, 0), call->out[0], call->scratch);
    return;
  }
  int chunks = sli_chunk_count(sl_type_elements(&call->out_type[0]), SLI_CHUNK_ELEMENTS);
  sl_team_for(call->team, j.workers, weight_worker, &j);
  sl_team_for(call->team, chunks, add_runs, &j);
}

/* ---- db ---------------------------------------------------------------------------------- */

enum { SUMS = 8 }; /* partial sums over a channel's positions, used in turn */

static double sum_positions(const float *x, int64_t n) {
  double sums[SUMS] = {0}, total = 0;
  for (int64_t p = 0; p < n; p++) sums[p % SUMS] += (double)x[p];
  for (int s = 0; s < SUMS; s++) total += sums[s];
  return total;
}

static void channel_chunk(void *arg, int c) {
  const sl_call *call = arg;
  const sl_type *dy = &call->in_type[0];
  int64_t channels = dy->dim[1], positions = sl_type_elements(dy) / (dy->dim[0] * channels);
  double total = 0;
  for (int64_t n = 0; n < dy->dim[0]; n++)
    total += sum_positions((const float *)call->in[0] + (n * channels + c) * positions, positions);
  float *db = (float *)call->out[0] + c;
  *db = sli_accumulates(call, 0) ? *db + (float)total : (float)total;
}

static void channel_sum_cpu(const sl_call *call) {
  sl_team_for(call->team, (int)call->in_type[0].dim[1], channel_chunk, (void *)call);
}

/* ---- tables ------------------------------------------------------------------------------- */

const sl_kernel sli_cpu_conv = {
    .backend = "cpu",
    .run = conv_cpu,
    .scratch = conv_scratch,
    .prepare = conv_prepare,
    .release = release,
};

const sl_kernel sli_cpu_conv_b = {
    .backend = "cpu",
    .run = conv_b_cpu,
    .scratch = conv_b_scratch,
    .prepare = conv_b_prepare,
    .release = release,
};

const sl_kernel sli_cpu_conv_w = {
    .backend = "cpu",
    .run = conv_w_cpu,
    .scratch = conv_w_scratch,
    .prepare = conv_w_prepare,
    .release = release,
};

const sl_kernel sli_cpu_channel_sum = {.backend = "cpu", .run = channel_sum_cpu};
