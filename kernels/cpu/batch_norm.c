/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of batch norm. Each thread takes some channels, each a run of `inner` numbers in
 * every image. */
#include <math.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/ops.h"

typedef struct channels {
  const sl_call *call;
  int64_t images, count, inner, size, block;
} channels;

static void for_channels(const sl_call *call, sli_chunk_fn *fn) {
  const sl_type *x = &call->in_type[0];
  channels c = {.call = call, .images = x->dim[0], .count = x->dim[1], .inner = 1};
  for (int d = 2; d < x->ndim; d++) c.inner *= x->dim[d];
  c.size = c.images * c.inner;
  c.block = SLI_MAX(SLI_CHUNK_ELEMENTS / c.size, 1);
  sl_team_for(call->team, sli_chunk_count(c.count, c.block), fn, &c);
}

/* Walks the numbers of a channel; e is the index of each in the array. */
#define FOR_CHANNEL(c, channel, e)                                                                \
  for (int64_t n_ = 0; n_ < (c)->images; n_++)                                                    \
    for (int64_t e = (n_ * (c)->count + (channel)) * (c)->inner, end_ = e + (c)->inner; e < end_; \
         e++)

typedef struct statistics {
  double mean, variance, squares; /* squares: the sum of squared distances */
} statistics;

static statistics of_microbatch(const channels *c, int64_t channel) {
  const float *x = c->call->in[0];
  statistics s = {0};
  FOR_CHANNEL(c, channel, e) s.mean += (double)x[e];
  s.mean /= (double)c->size;
  FOR_CHANNEL(c, channel, e) {
    double away = (double)x[e] - s.mean;
    s.squares += away * away;
  }
  s.variance = s.squares / (double)c->size;
  return s;
}

static void batch_norm_put(const sl_call *call, int output, int64_t at, double x) {
  float *to = call->out[output];
  if (to) to[at] = (float)(sli_accumulates(call, output) ? (double)to[at] + x : x);
}

static void batch_norm_channel(const channels *c, int64_t at) {
  const sl_call *call = c->call;
  const float *const *in = (const float *const *)call->in;
  bool keep = call->attrs->keep;
  statistics s = {.mean = (double)in[3][at], .variance = (double)in[4][at]};
  if (!keep) s = of_microbatch(c, at);
  float eps = call->attrs->eps > 0 ? call->attrs->eps : 1e-5f, *y = call->out[0];
  double rstd = 1 / sqrt(s.variance + (double)eps), scale = rstd * (double)in[1][at];
  if (y) FOR_CHANNEL(c, at, e)
  y[e] = (float)(((double)in[0][e] - s.mean) * scale + (double)in[2][at]);
  batch_norm_put(call, 1, at, s.mean);
  batch_norm_put(call, 2, at, rstd);
  batch_norm_put(call, 3, at, keep ? s.variance : s.squares / (double)(c->size - 1));
}

static void batch_norm_chunk(void *arg, int i) {
  const channels *c = arg;
  sli_range r = sli_chunk_range(c->count, c->block, i);
  for (int64_t at = r.begin; at < r.end; at++) batch_norm_channel(c, at);
}

static void batch_norm_cpu(const sl_call *call) { for_channels(call, batch_norm_chunk); }

/* With d = dy gain and z = (x - mean) rstd: dx = rstd (d - mean(d) - z mean(d z)). With given
 * statistics, dx = rstd d. */
static void batch_norm_b_channel(const channels *c, int64_t at) {
  const float *const *in = (const float *const *)c->call->in;
  const float *x = in[0], *dy = in[4];
  float *dx = c->call->out[0];
  double mean = (double)in[2][at], rstd = (double)in[3][at], sum = 0, slope = 0;
  double scale = rstd * (double)in[1][at];
  if (!c->call->attrs->keep) {
    FOR_CHANNEL(c, at, e) {
      sum += (double)dy[e];
      slope += (double)dy[e] * ((double)x[e] - mean) * rstd;
    }
    sum /= (double)c->size;
    slope /= (double)c->size;
  }
  FOR_CHANNEL(c, at, e)
  dx[e] = (float)(scale * ((double)dy[e] - sum - ((double)x[e] - mean) * rstd * slope));
}

static void batch_norm_b_chunk(void *arg, int i) {
  const channels *c = arg;
  sli_range r = sli_chunk_range(c->count, c->block, i);
  for (int64_t at = r.begin; at < r.end; at++) batch_norm_b_channel(c, at);
}

static void batch_norm_b_cpu(const sl_call *call) { for_channels(call, batch_norm_b_chunk); }

static void batch_norm_w_chunk(void *arg, int i) {
  const channels *c = arg;
  const float *const *in = (const float *const *)c->call->in;
  sli_range r = sli_chunk_range(c->count, c->block, i);
  for (int64_t at = r.begin; at < r.end; at++) {
    double mean = (double)in[1][at], rstd = (double)in[2][at], gain = 0, bias = 0;
    FOR_CHANNEL(c, at, e) {
      gain += (double)in[3][e] * ((double)in[0][e] - mean) * rstd;
      bias += (double)in[3][e];
    }
    batch_norm_put(c->call, 0, at, gain);
    batch_norm_put(c->call, 1, at, bias);
  }
}

static void batch_norm_w_cpu(const sl_call *call) { for_channels(call, batch_norm_w_chunk); }

const sl_kernel sli_cpu_batch_norm = {.backend = "cpu", .run = batch_norm_cpu};

const sl_kernel sli_cpu_batch_norm_b = {.backend = "cpu", .run = batch_norm_b_cpu};

const sl_kernel sli_cpu_batch_norm_w = {.backend = "cpu", .run = batch_norm_w_cpu};
