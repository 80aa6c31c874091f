/* Rows of group norm: of each image the channels are taken in groups, and each group is normalised
 * as a whole. A group lies in one piece; a thread takes some of them. */
#include <math.h>

#include "kernels/cpu/chunk.h"
#include "kernels/kernels.h"

/* ---- shapes ------------------------------------------------------------------------------ */

static sl_type channels_of(const sl_type *x) { return SL_TYPE(SL_F32, x->dim[1]); }

static sl_type groups_of(const sl_attrs *attrs, const sl_type *x) {
  return SL_TYPE(SL_F32, x->dim[0], attrs->heads);
}

static sl_status want_images(const sl_attrs *attrs, const sl_type *x) {
  SLI_TRY(sli_want_array("x", x, SL_F32, -1));
  if (x->ndim >= 2 && attrs->heads >= 1 && x->dim[1] % attrs->heads == 0) return SL_OK;
  return sli_misfit(x, "x must be f32[n, c, ...] with c a multiple of the %d groups (attrs.heads)",
                    attrs->heads);
}

static sl_status want_statistics(const sl_attrs *attrs, const sl_type *mean, const sl_type *rstd,
                                 const sl_type *x) {
  sl_type want = groups_of(attrs, x);
  SLI_TRY(sli_want("mean", mean, &want));
  return sli_want("rstd", rstd, &want);
}

static sl_status group_norm_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(want_images(attrs, &in[0]));
  sl_type width = channels_of(&in[0]);
  SLI_TRY(sli_want("gain", &in[1], &width));
  SLI_TRY(sli_want("bias", &in[2], &width));
  out[0] = in[0];
  out[1] = out[2] = groups_of(attrs, &in[0]);
  return SL_OK;
}

static sl_status group_norm_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_type *out) {
  (void)nin;
  SLI_TRY(want_images(attrs, &in[0]));
  sl_type width = channels_of(&in[0]);
  SLI_TRY(sli_want("gain", &in[1], &width));
  SLI_TRY(want_statistics(attrs, &in[2], &in[3], &in[0]));
  SLI_TRY(sli_want("dy", &in[4], &in[0]));
  out[0] = in[0];
  return SL_OK;
}

static sl_status group_norm_w_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_type *out) {
  (void)nin;
  SLI_TRY(want_images(attrs, &in[0]));
  SLI_TRY(want_statistics(attrs, &in[1], &in[2], &in[0]));
  SLI_TRY(sli_want("dy", &in[3], &in[0]));
  out[0] = out[1] = channels_of(&in[0]);
  return SL_OK;
}

SLI_COST(group_norm_cost, 0, 3, 8)
SLI_COST(group_norm_b_cost, 0, 1, 11)
SLI_COST(group_norm_w_cost, 0, 2, 5)

/* Images are shared out, or groups. */
static int group_norm_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                 sl_signature *out) {
  const sl_sbp images = sli_split(0), channels = sli_split(1), weights = sli_split(0);
  (void)attrs, (void)nin, (void)in;
  out[0] = (sl_signature){.in = {images}, .out = {images, images, images}};
  out[1] = (sl_signature){.in = {channels, weights, weights}, .out = {channels, channels, channels},
                          .heads = true};
  return 2;
}

/* ---- kernels ----------------------------------------------------------------------------- */

/* Groups of `size` numbers, `channels` of `inner` each. */
typedef struct groups {
  const sl_call *call;
  int64_t images, count, channels, inner, size, block;
} groups;

static groups groups_create(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  groups g = {.call = call, .images = x->dim[0], .count = call->attrs->heads,
              .channels = x->dim[1] / call->attrs->heads, .inner = 1};
  for (int d = 2; d < x->ndim; d++) g.inner *= x->dim[d];
  g.size = g.channels * g.inner;
  return g;
}

static void for_groups(groups *g, sli_chunk_fn *fn) {
  g->block = SLI_MAX(SLI_CHUNK_ELEMENTS / g->size, 1);
  sl_team_for(g->call->team, sli_chunk_count(g->images * g->count, g->block), fn, g);
}

/* The first channel of a group. */
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
  float eps = g->call->attrs->eps > 0 ? g->call->attrs->eps : 1e-5f;
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

/* Sums of a channel over one image. */
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

static void put(const sl_call *call, int output, int64_t at, double x) {
  float *to = call->out[output];
  if (to) to[at] = (float)(sli_accumulates(call, output) ? (double)to[at] + x : x);
}

static void group_norm_w_chunk(void *arg, int i) {
  const groups *g = arg;
  sli_range r = sli_chunk_range(g->count * g->channels, g->block, i);
  for (int64_t c = r.begin; c < r.end; c++) {
    double gain = 0, bias = 0;
    for (int64_t n = 0; n < g->images; n++) add_channel(g, n, c, &gain, &bias);
    put(g->call, 0, c, gain);
    put(g->call, 1, c, bias);
  }
}

static void group_norm_w_cpu(const sl_call *call) {
  groups g = groups_create(call);
  g.block = SLI_MAX(SLI_CHUNK_ELEMENTS / (g.images * g.inner), 1);
  sl_team_for(call->team, sli_chunk_count(g.count * g.channels, g.block), group_norm_w_chunk, &g);
}

/* ---- rows -------------------------------------------------------------------------------- */

const sl_op sl_op_group_norm = {
    .name = "group_norm", .min_in = 3, .max_in = 3, .nout = 3,
    .narrow_in = 1, .narrow_out = 1, .cheap = true,
    .pieces = SL_PIECES_SIGNATURES, .over = {1}, .signatures = group_norm_signatures,
    .infer = group_norm_infer, .cost = group_norm_cost, .cpu = group_norm_cpu,
    .grad = {{.op = &sl_op_group_norm_b, .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_OUT(1), SL_OUT(2), SL_DOUT(0)}, .nof = 1, .of = {0}},
             {.op = &sl_op_group_norm_w, .cls = SL_CLASS_W,
              .in = {SL_IN(0), SL_OUT(1), SL_OUT(2), SL_DOUT(0)}, .nof = 2, .of = {1, 2}}},
};

const sl_op sl_op_group_norm_b = {
    .name = "group_norm_b", .min_in = 5, .max_in = 5, .nout = 1,
    .narrow_in = 0x11, .narrow_out = 1,
    .pieces = SL_PIECES_SIGNATURES, .over = {1 | 1 << 4},
    .infer = group_norm_b_infer, .cost = group_norm_b_cost, .cpu = group_norm_b_cpu,
};

const sl_op sl_op_group_norm_w = {
    .name = "group_norm_w", .min_in = 4, .max_in = 4, .nout = 2,
    .narrow_in = 9,
    .pieces = SL_PIECES_SIGNATURES,
    .infer = group_norm_w_infer, .cost = group_norm_w_cost, .cpu = group_norm_w_cpu,
    .accumulates = 3,
};
