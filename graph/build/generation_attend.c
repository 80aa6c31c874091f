/* SPDX-License-Identifier: Apache-2.0 */
/* Attention between the rows of a tick of a graph that generates, and to the rows ahead.
 *
 * The rows ahead are the first frames of the next block, whose keys and values that block's tick,
 * the one before, has kept as they were before norm and rotary: here their positions come after the
 * block's own. Every row attends to all. Sums go from the first key to the last, so bits depend on
 * the rows of a tick alone. */
#include <math.h>
#include <string.h>

#include "graph/build/build.h"
#include "graph/build/generation.h"
#include "ops/ops.h"

/* ---- positions ----------------------------------------------------------------------------- */

/* Returns how many of `half` angles belong to frames; the others are those of height and width in
 * equal parts, height first. */
static int64_t frame_angles(int64_t half) { return half - (half / 3 + half / 3); }

/* Returns angle i of a head's `half` angles. */
static float angle_of(int64_t i, int64_t half, int64_t frame, int64_t row, int64_t column) {
  int64_t own = frame_angles(half), third = half / 3, count = i < own ? own : third;
  int64_t place = i < own ? frame : i < own + third ? row : column;
  int64_t nth = i < own ? i : (i - own) % SLI_MAX(third, 1);
  return (float)((double)place * pow(100, -(double)nth / (double)count));
}

void sl_generation_angles(int64_t frames, int64_t height, int64_t width, int64_t dim,
                          float *cosines, float *sines) {
  int64_t half = dim / 2, rows = frames * height * width;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < half; i++) {
      float angle = angle_of(i, half, r / (height * width), r / width % height, r % width);
      cosines[r * half + i] = cosf(angle);
      sines[r * half + i] = sinf(angle);
    }
}

/* ---- the kernel ---------------------------------------------------------------------------- */

typedef struct attending {
  const sl_call *call;
  const sl_generation *how;
  const sl_generation_tick *t;
  int64_t rows, ahead, keys; /* valid rows, kept rows, both */
  int64_t dim, heads, ways;
  float *scratch; /* [ways][heads][chunk_floats] */
} attending;

static int64_t all_rows(const sl_generation *how) {
  return (how->frames + how->context) * how->patches;
}
static int64_t kept_rows(const sl_generation *how) { return how->context * how->patches; }

/* Returns the scratch of a head: angles of a row, normed keys, a query, scores. */
static size_t chunk_floats(const sl_generation *how, int64_t dim) {
  size_t keys = (size_t)(all_rows(how) + kept_rows(how));
  return keys * (size_t)dim + (size_t)dim + keys;
}

static size_t attend_scratch(const sl_call *call, int threads) {
  const sl_generation *how = call->attrs->user;
  int64_t ways = call->in_type[0].dim[2], heads = call->attrs->attention.heads,
          dim = call->in_type[0].dim[3] / heads;
  (void)threads;
  return (size_t)(ways * heads) * chunk_floats(how, dim) * sizeof(float);
}

/* Norms a row of a head and rotates it to its position; `row` counts from the oldest context. */
static void prepare(const attending *a, const float *x, const float *gain, int64_t row,
                    float *out) {
  int64_t dim = a->dim, half = dim / 2, area = a->how->patches, width = a->how->grid[1];
  float sum = 0;
  for (int64_t i = 0; i < dim; i++) sum += x[i] * x[i];
  float scale = 1 / sqrtf(sum / (float)dim + 1e-5f);
  for (int64_t i = 0; i < half; i++) {
    float angle = angle_of(i, half, row / area, row % area / width, row % width);
    float c = cosf(angle), s = sinf(angle);
    float u = x[i] * scale * gain[i], v = x[half + i] * scale * gain[half + i];
    out[i] = u * c - v * s;
    out[half + i] = v * c + u * s;
  }
}

/* Returns head `head` of a row: of the tick, then of the rows ahead. */
static const float *row_of(const attending *a, int which, int64_t row, int64_t way, int64_t head) {
  bool own = row < a->rows;
  const float *x = a->call->in[own ? which : which + 5];
  return x + (((own ? row : row - a->rows) * a->ways + way) * a->heads + head) * a->dim;
}

static void attend_row(const attending *a, int64_t row, int64_t way, int64_t head,
                       const float *keys, float *query, float *scores) {
  int64_t first = a->how->context - a->t->context, dim = a->dim;
  float *o = (float *)a->call->out[0] + ((row * a->ways + way) * a->heads + head) * dim;
  float most = -INFINITY, sum = 0, scale = 1 / sqrtf((float)dim);
  prepare(a, row_of(a, 0, row, way, head), a->call->in[3], first * a->how->patches + row, query);
  for (int64_t k = 0; k < a->keys; k++) {
    float score = 0;
    for (int64_t i = 0; i < dim; i++) score += query[i] * keys[k * dim + i];
    scores[k] = score * scale;
    most = SLI_MAX(most, scores[k]);
  }
  memset(o, 0, (size_t)dim * sizeof *o);
  for (int64_t k = 0; k < a->keys; k++) {
    float weight = expf(scores[k] - most);
    const float *v = row_of(a, 2, k, way, head);
    sum += weight;
    for (int64_t i = 0; i < dim; i++) o[i] += weight * v[i];
  }
  for (int64_t i = 0; i < dim; i++) o[i] /= sum;
}

static void attend_head(void *arg, int n) {
  const attending *a = arg;
  int64_t way = n / a->heads, head = n % a->heads, first = a->how->context - a->t->context;
  float *keys = a->scratch + (size_t)n * chunk_floats(a->how, a->dim),
        *query = keys + a->keys * a->dim, *scores = query + a->dim;
  for (int64_t k = 0; k < a->keys; k++)
    prepare(a, row_of(a, 1, k, way, head), a->call->in[4], first * a->how->patches + k,
            keys + k * a->dim);
  for (int64_t r = 0; r < a->rows; r++) attend_row(a, r, way, head, keys, query, scores);
}

/* Copies the first own rows of k and v for the next tick. */
static void keep_rows(const attending *a) {
  int64_t own = (int64_t)a->t->own * a->how->patches, kept = SLI_MIN(own, kept_rows(a->how)),
          row = a->ways * a->heads * a->dim;
  for (int o = 1; o < 3; o++) {
    if (a->call->out[o])
      memcpy(a->call->out[o], (const float *)a->call->in[o] + (a->rows - own) * row,
             (size_t)(kept * row) * sizeof(float));
    sl_call_fill(a->call, o, kept);
  }
}

static void attend_cpu(const sl_call *call) {
  const sl_generation_tick *t = call->in[5];
  const sl_type *q = &call->in_type[0];
  attending a = {call,
                 call->attrs->user,
                 t,
                 .rows = sl_call_rows(call, 0, q->dim[1]),
                 .heads = call->attrs->attention.heads,
                 .ways = q->dim[2],
                 .scratch = call->scratch};
  a.dim = q->dim[3] / a.heads;
  a.ahead = call->nin > 6 ? t->ahead * a.how->patches : 0;
  a.keys = a.rows + a.ahead;
  if (a.rows) sl_team_for(call->team, (int)(a.ways * a.heads), attend_head, &a);
  keep_rows(&a);
}

/* ---- the op -------------------------------------------------------------------------------- */

/* attend(q, k, v [1, R, ways, C], q gain, k gain [C / heads], tick, kept k, kept v) -> o [1, R,
 * ways, C], kept k, kept v [1, kept, ways, C] */
static sl_status attend_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  const sl_generation *how = attrs->user;
  bool fits = in[0].ndim == 4 && in[0].dim[1] == all_rows(how) && attrs->attention.heads > 0 &&
              in[0].dim[3] % attrs->attention.heads == 0 &&
              in[0].dim[3] / attrs->attention.heads % 2 == 0;
  if (!fits || !sl_type_equal(&in[0], &in[1]) || !sl_type_equal(&in[0], &in[2]))
    return sl_fail(SL_E_SHAPE,
                   "q, k and v must be [1, %lld, ways, C], with an even number of C per head",
                   (long long)all_rows(how));
  for (int i = 3; i < 5; i++)
    if (in[i].ndim != 1 || in[i].dim[0] != in[0].dim[3] / attrs->attention.heads)
      return sl_fail(SL_E_SHAPE, "gains must be as wide as a head");
  (void)nin;
  out[0] = in[0];
  out[1] = in[0];
  out[1].dim[1] = SLI_MAX(kept_rows(how), 1);
  out[2] = out[1];
  return SL_OK;
}

static int64_t attend_expects(const sl_attrs *attrs, int o, const sl_type *type, int32_t tick) {
  const sl_generation *how = attrs->user;
  (void)o, (void)type;
  return SLI_MIN(sli_generation_expected(how, tick).own * how->patches, kept_rows(how));
}

static void attend_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                        double *flops, double *bytes) {
  (void)attrs;
  *flops = 4.0 * (double)sl_type_elements(&in[0]) * (double)in[0].dim[1];
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

static const sl_op attend_op = {
    .name = "generation_attend",
    .attrs = {&sl_attrs_attention},
    .min_in = 6,
    .max_in = 8,
    .nout = 3,
    .traits = SL_OP_DETACHED,
    .infer = attend_infer,
    .cost = attend_cost,
    .rows =
        &(const sl_op_rows){
            .looks = 0xc7, .follows = 1, .fills = 6, .second = 6, .expects = attend_expects},
    .kernels =
        (const sl_kernel[]){{.backend = "cpu", .run = attend_cpu, .scratch = attend_scratch}, {0}}};

sl_tensor *sl_generate_attend(sl_graph *g, const sl_generated *tick, sl_tensor *q, sl_tensor *k,
                              sl_tensor *v, sl_tensor *q_gain, sl_tensor *k_gain, int heads,
                              const char *name) {
  sl_generation *how = sl_graph_generation(g);
  sl_tensor *in[8] = {q, k, v, q_gain, k_gain, tick->tick}, *out[3] = {0};
  if (sl_graph_status(g)) return NULL;
  const sl_attrs attrs = {.user = how, .attention.heads = heads};
  if (how->context && how->lag > 1) {
    sl_type kept = SL_TYPE(SL_F32, 1, kept_rows(how), sl_dim(k, 2), sl_dim(k, 3));
    in[6] = sl_delayed_rows(g, kept, 1, sli_arena_format(&g->arena, "%s.keys", name));
    in[7] = sl_delayed_rows(g, kept, 1, sli_arena_format(&g->arena, "%s.values", name));
    sl_apply(g, &attend_op, &attrs, 8, in, 0, out);
    sl_delay(g, in[6], out[1]);
    sl_delay(g, in[7], out[2]);
  } else sl_apply(g, &attend_op, &attrs, 6, in, 0, out);
  return out[0];
}
