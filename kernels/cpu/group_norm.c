/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of group norm: each image's channels are divided into groups, and each group is
 * normalised as a whole. A group is contiguous; each thread takes some groups. */
#include <math.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/ops.h"

/* ---- kernels ----------------------------------------------------------------------------- */

/* Groups of `size` numbers: `channels` channels of `inner` each. */
typedef struct groups {
  const sl_call *call;
  int64_t images, count, channels, inner, size, block;
} groups;

static groups groups_create(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  groups g = {.call = call,
              .images = x->dim[0],
              .count = call->attrs->norm.groups,
              .channels = x->dim[1] / call->attrs->norm.groups,
              .inner = 1};
  for (int d = 2; d < x->ndim; d++) g.inner *= x->dim[d];
  g.size = g.channels * g.inner;
  return g;
}

static void for_groups(groups *g, sli_chunk_fn *fn) {
  g->block = SLI_MAX(SLI_CHUNK_ELEMENTS / g->size, 1);
  sl_team_for(g->call->team, sli_chunk_count(g->images * g->count, g->block), fn, g);
}

/* Returns the first channel of a group. */
static int64_t first_channel(const groups *g, int64_t group) {
  return group % g->count * g->channels;
}

static void find_statistics(const groups *g, const float *x, double *mean, double *rstd) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < g->size; i++) sum += (double)x[i];
  *mean = sum / (double)g->size;
  for (int64_t i = 0; i < g->size; i++) {
    double away = (double)x[i] - *mean;
    squares += away * away;
  }
  float eps = g->call->attrs->norm.eps > 0 ? g->call->attrs->norm.eps : 1e-5f;
  *rstd = 1 / sqrt(squares / (double)g->size + (double)eps);
}

static void normalise(const groups *g, int64_t group, double mean, double rstd) {
  const float *x = (const float *)g->call->in[0] + group * g->size;
  const float *gain = (const float *)g->call->in[1] + first_channel(g, group);
  const float *bias = (const float *)g->call->in[2] + first_channel(g, group);
  float *y = (float *)g->call->out[0] + group * g->size;
  for (int64_t c = 0; c < g->channels; c++) {
    double scale = rstd * (double)gain[c], shift = (double)bias[c];
    for (int64_t i = c * g->inner; i < (c + 1) * g->inner; i++)
      y[i] = (float)(((double)x[i] - mean) * scale + shift);
  }
}

static void group_norm_chunk(void *arg, int i) {
  const groups *g = arg;
  float *means = g->call->out[1], *rstds = g->call->out[2];
  sli_range r = sli_chunk_range(g->images * g->count, g->block, i);
  for (int64_t group = r.begin; group < r.end; group++) {
    double mean, rstd;
    find_statistics(g, (const float *)g->call->in[0] + group * g->size, &mean, &rstd);
    if (g->call->out[0]) normalise(g, group, mean, rstd);
    if (means) means[group] = (float)mean;
    if (rstds) rstds[group] = (float)rstd;
  }
}

static void group_norm_cpu(const sl_call *call) {
  groups g = groups_create(call);
  for_groups(&g, group_norm_chunk);
}

/* With d = dy gain and z = (x - mean) rstd: dx = rstd (d - mean(d) - z mean(d z)). */
static void group_norm_b_chunk(void *arg, int i) {
  const groups *g = arg;
  const float *const *in = (const float *const *)g->call->in;
  sli_range r = sli_chunk_range(g->images * g->count, g->block, i);
  for (int64_t group = r.begin; group < r.end; group++) {
    const float *x = in[0] + group * g->size, *dy = in[4] + group * g->size;
    const float *gain = in[1] + first_channel(g, group);
    float *dx = (float *)g->call->out[0] + group * g->size;
    double mean = (double)in[2][group], rstd = (double)in[3][group], sum = 0, slope = 0;
    for (int64_t e = 0; e < g->size; e++) {
      double d = (double)dy[e] * (double)gain[e / g->inner];
      sum += d;
      slope += d * ((double)x[e] - mean) * rstd;
    }
    for (int64_t e = 0; e < g->size; e++) {
      double d = (double)dy[e] * (double)gain[e / g->inner], z = ((double)x[e] - mean) * rstd;
      dx[e] = (float)(rstd * (d - (sum + z * slope) / (double)g->size));
    }
  }
}

static void group_norm_b_cpu(const sl_call *call) {
  groups g = groups_create(call);
  for_groups(&g, group_norm_b_chunk);
}

/* Adds the sums of a channel over one image. */
static void add_channel(const groups *g, int64_t image, int64_t channel, double *gain,
                        double *bias) {
  const float *const *in = (const float *const *)g->call->in;
  int64_t group = image * g->count + channel / g->channels;
  int64_t at = (image * g->count * g->channels + channel) * g->inner;
  double mean = (double)in[1][group], rstd = (double)in[2][group];
  for (int64_t i = at; i < at + g->inner; i++) {
    *gain += (double)in[3][i] * ((double)in[0][i] - mean) * rstd;
    *bias += (double)in[3][i];
  }
}

static void group_norm_put(const sl_call *call, int output, int64_t at, double x) {
  float *to = call->out[output];
  if (to) to[at] = (float)(sli_accumulates(call, output) ? (double)to[at] + x : x);
}

static void group_norm_w_chunk(void *arg, int i) {
  const groups *g = arg;
  sli_range r = sli_chunk_range(g->count * g->channels, g->block, i);
  for (int64_t c = r.begin; c < r.end; c++) {
    double gain = 0, bias = 0;
    for (int64_t n = 0; n < g->images; n++) add_channel(g, n, c, &gain, &bias);
    group_norm_put(g->call, 0, c, gain);
    group_norm_put(g->call, 1, c, bias);
  }
}

static void group_norm_w_cpu(const sl_call *call) {
  groups g = groups_create(call);
  g.block = SLI_MAX(SLI_CHUNK_ELEMENTS / (g.images * g.inner), 1);
  sl_team_for(call->team, sli_chunk_count(g.count * g.channels, g.block), group_norm_w_chunk, &g);
}

/* ---- tables ------------------------------------------------------------------------------ */

const sl_kernel sli_cpu_group_norm = {.backend = "cpu", .run = group_norm_cpu};

const sl_kernel sli_cpu_group_norm_b = {.backend = "cpu", .run = group_norm_b_cpu};

const sl_kernel sli_cpu_group_norm_w = {.backend = "cpu", .run = group_norm_w_cpu};
