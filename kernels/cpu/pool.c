/* Rows of pools. A chunk is some planes, each one channel of one image. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/kernels.h"
#include "kernels/ops/ops.h"

static sl_status pool_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_window_check(attrs, &in[0], NULL));
  sli_window w = sli_window_of(attrs, &in[0], NULL);
  out[0] = sli_window_output(&w, &in[0], in[0].dim[1]);
  return SL_OK;
}

/* Of x and dy. */
static sl_status gradient_infer(const sl_attrs *attrs, const sl_type *x, const sl_type *dy,
                                sl_type *dx) {
  sl_type y, like = *x;
  like.dtype = dy->dtype;
  SLI_TRY(pool_infer(attrs, 1, &like, &y));
  *dx = like;
  return sli_want("dy", dy, &y);
}

static sl_status max_pool_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                  sl_type *out) {
  (void)nin;
  return gradient_infer(attrs, &in[0], &in[1], &out[0]);
}

static sl_status mean_pool_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                   sl_type *out) {
  (void)nin;
  return gradient_infer(attrs, &in[1], &in[0], &out[0]);
}

/* Images and channels are shared out. */
static int pool_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                           sl_signature *out) {
  (void)attrs, (void)nin, (void)in;
  for (int d = 0; d < 2; d++)
    out[d] = (sl_signature){.in = {sli_split(d)}, .out = {sli_split(d)}};
  return 2;
}

SLI_COST(pool_cost, 0, 1, 1)
SLI_COST(max_pool_b_cost, 0, 1, 2)
SLI_COST(mean_pool_b_cost, 1, 1, 1)

/* ---- one plane ----------------------------------------------------------------------------- */

/* What of an axis of the image output i looks at. */
static sli_range window_range(const sli_window *w, int a, int64_t i) {
  int64_t begin = i * w->stride[a] - w->pad[a], end = begin + w->size[a];
  return (sli_range){SLI_MAX(begin, 0), SLI_MIN(end, w->in[a])};
}

/* Does x come before the largest so far? NaN does before all, once. */
static bool is_larger(float x, float largest) { return x > largest || (isnan(x) && !isnan(largest)); }

/* Where the largest of an output's window is. */
static int64_t find_largest(const sli_window *w, const float *x, int64_t i, int64_t j) {
  sli_range down = window_range(w, 0, i), along = window_range(w, 1, j);
  int64_t at = down.begin * w->in[1] + along.begin;
  for (int64_t r = down.begin; r < down.end; r++)
    for (int64_t c = along.begin; c < along.end; c++)
      if (is_larger(x[r * w->in[1] + c], x[at])) at = r * w->in[1] + c;
  return at;
}

static void max_plane(const sli_window *w, const float *x, float *y) {
  for (int64_t i = 0; i < w->out[0]; i++)
    for (int64_t j = 0; j < w->out[1]; j++) *y++ = x[find_largest(w, x, i, j)];
}

static void max_plane_b(const sli_window *w, const float *x, const float *dy, float *dx) {
  memset(dx, 0, (size_t)(w->in[0] * w->in[1]) * sizeof *dx);
  for (int64_t i = 0; i < w->out[0]; i++)
    for (int64_t j = 0; j < w->out[1]; j++) dx[find_largest(w, x, i, j)] += *dy++;
}

static float window_sum(const sli_window *w, const float *x, int64_t i, int64_t j) {
  sli_range down = window_range(w, 0, i), along = window_range(w, 1, j);
  float sum = 0;
  for (int64_t r = down.begin; r < down.end; r++)
    for (int64_t c = along.begin; c < along.end; c++) sum += x[r * w->in[1] + c];
  return sum;
}

static void mean_plane(const sli_window *w, const float *x, float *y) {
  float share = 1 / (float)(w->size[0] * w->size[1]);
  for (int64_t i = 0; i < w->out[0]; i++)
    for (int64_t j = 0; j < w->out[1]; j++) *y++ = share * window_sum(w, x, i, j);
}

static void add_to_window(const sli_window *w, float *dx, int64_t i, int64_t j, float d) {
  sli_range down = window_range(w, 0, i), along = window_range(w, 1, j);
  for (int64_t r = down.begin; r < down.end; r++)
    for (int64_t c = along.begin; c < along.end; c++) dx[r * w->in[1] + c] += d;
}

static void mean_plane_b(const sli_window *w, const float *dy, float *dx) {
  float share = 1 / (float)(w->size[0] * w->size[1]);
  memset(dx, 0, (size_t)(w->in[0] * w->in[1]) * sizeof *dx);
  for (int64_t i = 0; i < w->out[0]; i++)
    for (int64_t j = 0; j < w->out[1]; j++) add_to_window(w, dx, i, j, share * *dy++);
}

/* ---- all planes ---------------------------------------------------------------------------- */

typedef struct job {
  const sl_call *call;
  sli_window w;
  int64_t planes, in, out, per; /* in, out: positions of a plane; per: planes of a chunk */
  void (*run)(const struct job *job, int64_t plane);
} job;

static const float *plane_of(const job *j, int input, int64_t plane, int64_t positions) {
  return (const float *)j->call->in[input] + plane * positions;
}

static float *output_of(const job *j, int64_t plane, int64_t positions) {
  return (float *)j->call->out[0] + plane * positions;
}

static void pool_chunk(void *arg, int i) {
  const job *j = arg;
  sli_range r = sli_chunk_range(j->planes, j->per, i);
  for (int64_t plane = r.begin; plane < r.end; plane++) j->run(j, plane);
}

static void run_all(const sl_call *call, const sl_type *x,
                    void (*run)(const struct job *job, int64_t plane)) {
  sli_window w = sli_window_of(call->attrs, x, NULL);
  job j = {.call = call, .w = w, .planes = w.images * w.channels, .in = w.in[0] * w.in[1],
           .out = w.out[0] * w.out[1], .run = run};
  j.per = sli_chunk_rows(j.in);
  sl_team_for(call->team, sli_chunk_count(j.planes, j.per), pool_chunk, &j);
}

#define POOL(name, x, body)                                                    \
  static void name##_run(const job *j, int64_t p) { body; }                    \
  static void name##_cpu(const sl_call *call) {                                \
    run_all(call, &call->in_type[x], name##_run);                              \
  }
POOL(max_pool, 0, max_plane(&j->w, plane_of(j, 0, p, j->in), output_of(j, p, j->out)))
POOL(max_pool_b, 0, max_plane_b(&j->w, plane_of(j, 0, p, j->in), plane_of(j, 1, p, j->out),
                                output_of(j, p, j->in)))
POOL(mean_pool, 0, mean_plane(&j->w, plane_of(j, 0, p, j->in), output_of(j, p, j->out)))
POOL(mean_pool_b, 1, mean_plane_b(&j->w, plane_of(j, 0, p, j->out), output_of(j, p, j->in)))

/* ---- rows ---------------------------------------------------------------------------------- */

const sl_op sl_op_max_pool = {
    .name = "max_pool", .min_in = 1, .max_in = 1, .nout = 1,
    .narrow_in = 1, .narrow_out = 1, .cheap = true,
    .pieces = SL_PIECES_SIGNATURES, .signatures = pool_signatures,
    .infer = pool_infer, .cost = pool_cost, .cpu = max_pool_cpu, .hash = sli_window_hash,
    .grad = {{.op = &sl_op_max_pool_b, .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_DOUT(0)}, .nof = 1, .of = {0}}},
};

const sl_op sl_op_max_pool_b = {
    .name = "max_pool_b", .min_in = 2, .max_in = 2, .nout = 1,
    .narrow_in = 3, .narrow_out = 1,
    .pieces = SL_PIECES_SIGNATURES,
    .infer = max_pool_b_infer, .cost = max_pool_b_cost, .cpu = max_pool_b_cpu,
    .hash = sli_window_hash,
};

const sl_op sl_op_mean_pool = {
    .name = "mean_pool", .min_in = 1, .max_in = 1, .nout = 1,
    .narrow_in = 1, .narrow_out = 1, .cheap = true,
    .pieces = SL_PIECES_SIGNATURES, .signatures = pool_signatures,
    .infer = pool_infer, .cost = pool_cost, .cpu = mean_pool_cpu, .hash = sli_window_hash,
    .grad = {{.op = &sl_op_mean_pool_b, .cls = SL_CLASS_B,
              .in = {SL_DOUT(0), SL_IN(0)}, .nof = 1, .of = {0}}},
};

const sl_op sl_op_mean_pool_b = {
    .name = "mean_pool_b", .min_in = 2, .max_in = 2, .nout = 1,
    .narrow_in = 3, .narrow_out = 1, .unread = 1 << 1,
    .pieces = SL_PIECES_SIGNATURES,
    .infer = mean_pool_b_infer, .cost = mean_pool_b_cost, .cpu = mean_pool_b_cpu,
    .hash = sli_window_hash,
};
