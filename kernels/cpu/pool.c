/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of pooling. A chunk is several planes; a plane is one channel of one image. */
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/room.h"
#include "ops/layout.h"
#include "ops/ops.h"

/* ---- one plane ----------------------------------------------------------------------------- */

/* Returns the range of input positions in output i's window along an axis. */
static sli_range window_range(const sli_window *w, int a, int64_t i) {
  int64_t begin = i * w->stride[a] - w->pad[a], end = begin + w->size[a];
  return (sli_range){SLI_MAX(begin, 0), SLI_MIN(end, w->in[a])};
}

/* Finds the largest numbers in the windows of output row i; their positions count from the first
 * row of the windows, which is returned. */
static int64_t find_largest(const sli_window *w, const float *x, int64_t i, int32_t *at) {
  sli_range down = window_range(w, 0, i);
  sli_largest l = {.x = x + down.begin * w->in[1],
                   .rows = down.end - down.begin,
                   .width = w->in[1],
                   .outputs = w->out[1],
                   .size = w->size[1],
                   .stride = w->stride[1],
                   .pad = w->pad[1],
                   .at = at};
  sli_cpu()->largest_positions(&l, 0);
  return down.begin;
}

static int32_t *positions_of(const sli_window *w) {
  return sli_room(SLI_ROOM_LEFT, (size_t)w->out[1] * sizeof(int32_t));
}

static void max_plane(const sli_window *w, const float *x, float *y) {
  int32_t *at = positions_of(w);
  for (int64_t i = 0; i < w->out[0]; i++) {
    const float *from = x + find_largest(w, x, i, at) * w->in[1];
    for (int64_t j = 0; j < w->out[1]; j++) *y++ = from[at[j]];
  }
}

static void max_plane_b(const sli_window *w, const float *x, const float *dy, float *dx) {
  int32_t *at = positions_of(w);
  memset(dx, 0, (size_t)(w->in[0] * w->in[1]) * sizeof *dx);
  for (int64_t i = 0; i < w->out[0]; i++) {
    float *to = dx + find_largest(w, x, i, at) * w->in[1];
    for (int64_t j = 0; j < w->out[1]; j++) to[at[j]] += *dy++;
  }
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
  int64_t planes, in, out, per; /* in, out: positions of a plane; per: planes per chunk */
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
  job j = {.call = call,
           .w = w,
           .planes = w.images * w.channels,
           .in = w.in[0] * w.in[1],
           .out = w.out[0] * w.out[1],
           .run = run};
  j.per = sli_chunk_rows(j.in);
  sl_team_for(call->team, sli_chunk_count(j.planes, j.per), pool_chunk, &j);
}

#define POOL(name, x, body)                                 \
  static void name##_run(const job *j, int64_t p) { body; } \
  static void name##_cpu(const sl_call *call) { run_all(call, &call->in_type[x], name##_run); }

POOL(max_pool, 0, max_plane(&j->w, plane_of(j, 0, p, j->in), output_of(j, p, j->out)))

POOL(max_pool_b, 0,
     max_plane_b(&j->w, plane_of(j, 0, p, j->in), plane_of(j, 1, p, j->out),
                 output_of(j, p, j->in)))

POOL(mean_pool, 0, mean_plane(&j->w, plane_of(j, 0, p, j->in), output_of(j, p, j->out)))

POOL(mean_pool_b, 1, mean_plane_b(&j->w, plane_of(j, 0, p, j->out), output_of(j, p, j->in)))

/* ---- tables -------------------------------------------------------------------------------- */

const sl_kernel sli_cpu_max_pool = {.backend = "cpu", .run = max_pool_cpu};

const sl_kernel sli_cpu_max_pool_b = {.backend = "cpu", .run = max_pool_b_cpu};

const sl_kernel sli_cpu_mean_pool = {.backend = "cpu", .run = mean_pool_cpu};

const sl_kernel sli_cpu_mean_pool_b = {.backend = "cpu", .run = mean_pool_b_cpu};
