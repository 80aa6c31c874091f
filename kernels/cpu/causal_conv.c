/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of the short causal convolution. A chunk is some channels, of one sequence or of all.
 * Each sum has one fixed order, so a row has the same bits in a whole sequence, in a piece, and in
 * any batch. */
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/served.h"
#include "ops/causal_conv.h"
#include "ops/leaves.h"
#include "ops/mask.h"

enum { CHANNELS = 64 }; /* channels per chunk */

/* Some channels of the rows of a sequence, and of the W - 1 rows before or after them (the
 * rest). */
typedef struct strip {
  int64_t rows, width, taps, channels;
  const float *x;    /* row 0 */
  const float *rest; /* rows before row 0, or after the last row; NULL: zeros */
  bool behind;
  const int32_t *position;       /* of each row in its document; NULL: one document */
  int32_t beyond[SLI_MOST_TAPS]; /* positions of the rest after the last row */
} strip;

static const float zeros[CHANNELS];

/* Returns row t, which may be in the rest. */
static const float *row_of(const strip *s, int64_t t) {
  if (t >= 0 && t < s->rows) return s->x + t * s->width;
  if (!s->rest) return zeros;
  return s->rest + (s->behind ? t - s->rows : t + s->taps - 1) * s->width;
}

/* Returns true if row t and row t - j, or t + j with `behind`, belong to the same document. */
static bool are_together(const strip *s, int64_t t, int64_t j) {
  int64_t later = s->behind ? t + j : t;
  return !s->position || (later < s->rows ? s->position[later] : s->beyond[later - s->rows]) >= j;
}

/* Weights of some channels, tap by tap. */
typedef struct taps {
  float w[SLI_MOST_TAPS][CHANNELS];
} taps;

static taps taps_of(const float *w, const strip *s, int64_t first) {
  taps t;
  for (int64_t j = 0; j < s->taps; j++)
    for (int64_t c = 0; c < s->channels; c++) t.w[j][c] = w[(first + c) * s->taps + j];
  return t;
}

/* Computes y, rows `width` apart, from the rows before each, or with `behind` from the rows after
 * it. */
static void convolve(const strip *s, const taps *w, const float *bias, float *y) {
  for (int64_t t = 0; t < s->rows; t++, y += s->width) {
    float sum[CHANNELS] = {0};
    if (bias) memcpy(sum, bias, (size_t)s->channels * sizeof *sum);
    for (int64_t j = s->taps - 1; j >= 0; j--) {
      if (!are_together(s, t, j)) continue;
      const float *x = row_of(s, s->behind ? t + j : t - j), *by = w->w[s->taps - 1 - j];
      for (int64_t c = 0; c < s->channels; c++) sum[c] += by[c] * x[c];
    }
    memcpy(y, sum, (size_t)s->channels * sizeof *sum);
  }
}

/* Moves the last W - 1 rows (with `behind`, the first ones) into the record, which may be the
 * rest. */
static void keep_rows(const strip *s, float *record) {
  size_t bytes = (size_t)s->channels * sizeof *record;
  int64_t n = s->taps - 1;
  for (int64_t i = 0; i < n; i++) {
    int64_t at = s->behind ? n - 1 - i : i;
    memmove(record + at * s->width, row_of(s, s->behind ? at : s->rows - n + at), bytes);
  }
}

/* Sets the channels of chunk i, and returns its number among the chunks of these channels. */
static int64_t channels_of(const sl_type *x, int64_t i, strip *s, int64_t *first) {
  int64_t blocks = sli_chunk_count(x->dim[2], CHANNELS);
  *first = i % blocks * CHANNELS;
  s->rows = x->dim[1];
  s->width = x->dim[2];
  s->channels = SLI_MIN((int64_t)CHANNELS, s->width - *first);
  return i / blocks;
}

static int blocks_of(const sl_type *x) { return sli_chunk_count(x->dim[2], CHANNELS); }

/* ---- forward and backward -------------------------------------------------------------------- */

/* A convolution of x with the rows before, or of dy with the rows after. */
typedef struct conv {
  const sl_call *call;
  const sl_type *type; /* type of x and y */
  const float *x, *w, *bias;
  int64_t taps;
  const float *near;                       /* rows of a neighbour, or NULL */
  const int32_t *position, *near_position; /* positions in documents; NULL: there is one document */
  float *y, *before, *record;              /* before, record: NULL without pieces */
  bool starts, behind;                     /* the record begins with zeros; see strip */
  bool inside; /* in a piece that devices share: the rest comes from the neighbour */
} conv;

/* Returns the rows adjacent to those of x; the first is number `kept`. */
static const float *rest_of(const conv *v, int64_t kept) {
  if (v->near && (v->inside || !v->record)) return v->near + kept;
  return v->record && !v->starts ? v->record + kept : NULL;
}

/* Stores the rows that the next piece reads: the last ones, which may be a neighbour's. */
static void keep_record(const conv *v, const strip *s, int64_t kept) {
  if (!v->record || v->inside) return;
  if (!v->near) keep_rows(s, v->record + kept);
  for (int64_t r = 0; v->near && r < s->taps - 1; r++)
    memcpy(v->record + kept + r * s->width, v->near + kept + r * s->width,
           (size_t)s->channels * sizeof(float));
}

/* In the backward pass, clears the stored rows whose documents begin within the piece: they do not
 * depend on the previous piece. */
static void part_documents(const conv *v, const strip *s, int64_t b, int64_t kept) {
  const int32_t *position = v->near ? v->near_position : v->position;
  if (!v->behind || !v->record || v->inside || !position) return;
  int64_t rows = v->near ? s->taps - 1 : s->rows;
  for (int64_t r = 0; r < s->taps - 1; r++)
    if ((r < rows ? position[b * rows + r] : s->beyond[r - rows]) <= r)
      memset(v->record + kept + r * s->width, 0, (size_t)s->channels * sizeof(float));
}

/* Sets the document positions of the rest after the last row. */
static void place_rest(const conv *v, strip *s, int64_t b) {
  if (!v->position) return;
  s->position = v->position + b * s->rows;
  bool near = v->near && (v->inside || !v->record);
  for (int64_t r = 0; v->behind && r < s->taps - 1; r++)
    s->beyond[r] =
        near ? v->near_position[b * (s->taps - 1) + r] : s->position[s->rows - 1] + (int32_t)r + 1;
}

static void conv_chunk(void *arg, int i) {
  const conv *v = arg;
  int64_t first;
  strip s = {.taps = v->taps, .behind = v->behind};
  int64_t b = channels_of(v->type, i, &s, &first), at = b * s.rows * s.width + first;
  int64_t kept = b * (s.taps - 1) * s.width + first;
  s.x = v->x + at;
  s.rest = rest_of(v, kept);
  place_rest(v, &s, b);
  for (int64_t r = 0; v->before && r < s.taps - 1; r++)
    memcpy(v->before + kept + r * s.width, row_of(&s, r - (s.taps - 1)),
           (size_t)s.channels * sizeof(float));
  taps w = taps_of(v->w, &s, first);
  convolve(&s, &w, v->bias ? v->bias + first : NULL, v->y + at);
  keep_record(v, &s, kept);
  part_documents(v, &s, b, kept);
}

static void conv_run(const conv *v) {
  sl_team_for(v->call->team, (int)v->type->dim[0] * blocks_of(v->type), conv_chunk, (void *)v);
}

static const float *input_or_null(const sl_call *call, int i) {
  return call->nin > i ? call->in[i] : NULL;
}

static conv forward_of(const sl_call *call) {
  return (conv){.call = call,
                .type = &call->in_type[0],
                .x = call->in[0],
                .w = call->in[1],
                .bias = input_or_null(call, 2),
                .taps = sl_type_last(&call->in_type[1]),
                .position = sli_optional(call, 4),
                .y = call->out[0]};
}

static void causal_conv_cpu(const sl_call *call) {
  conv v = forward_of(call);
  v.near = input_or_null(call, 3);
  conv_run(&v);
}

static void piece_cpu(const sl_call *call) {
  conv v = forward_of(call);
  v.near = input_or_null(call, 3);
  v.inside = v.near && call->attrs->place.first > 0;
  v.before = call->out[1];
  v.record = call->out[2];
  v.starts = !call->tick.row;
  conv_run(&v);
}

static conv backward_of(const sl_call *call) {
  return (conv){.call = call,
                .type = &call->in_type[1],
                .x = call->in[1],
                .w = call->in[0],
                .taps = sl_type_last(&call->in_type[0]),
                .near = input_or_null(call, 2),
                .position = sli_optional(call, 3),
                .near_position = sli_optional(call, 4),
                .y = call->out[0],
                .behind = true};
}

static void causal_conv_b_cpu(const sl_call *call) {
  conv v = backward_of(call);
  conv_run(&v);
}

static void piece_b_cpu(const sl_call *call) {
  conv v = backward_of(call);
  v.record = call->out[1];
  int64_t end = call->attrs->place.first + v.type->dim[1];
  v.starts = call->tick.row + end == call->attrs->place.length;
  v.inside = v.near && end < call->tick.rows;
  conv_run(&v);
}

/* ---- gradients of weights -------------------------------------------------------------------- */

/* Adds a row's products to the sums of the taps; with `exact`, each product is rounded first. */
static void add_products(const strip *s, int64_t t, const float *dy, bool exact,
                         double sum[][CHANNELS]) {
  for (int64_t j = 0; j < s->taps; j++) {
    if (!are_together(s, t, j)) continue;
    const float *x = row_of(s, t - j);
    double *to = sum[s->taps - 1 - j];
    for (int64_t c = 0; c < s->channels; c++)
      to[c] += exact ? sli_leaf_round(dy[c] * x[c]) : (double)dy[c] * (double)x[c];
  }
}

/* Runs chunk i: some channels of all rows. */
static void weights_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_type *type = &call->in_type[0];
  bool exact = call->out_type[0].dtype == SL_F64, add = sli_accumulates(call, 0);
  double sum[SLI_MOST_TAPS][CHANNELS] = {{0}};
  int64_t first;
  strip s = {.taps = sl_type_last(&call->in_type[2])};
  const int32_t *position = sli_optional(call, 4);
  channels_of(type, i, &s, &first);
  for (int64_t b = 0; b < type->dim[0]; b++) {
    int64_t at = b * s.rows * s.width + first;
    s.x = (const float *)call->in[0] + at;
    s.position = position ? position + b * s.rows : NULL;
    if (input_or_null(call, 3))
      s.rest = (const float *)call->in[3] + b * (s.taps - 1) * s.width + first;
    for (int64_t t = 0; t < s.rows; t++)
      add_products(&s, t, (const float *)call->in[1] + at + t * s.width, exact, sum);
  }
  for (int64_t c = 0; c < s.channels; c++)
    for (int64_t j = 0; j < s.taps; j++) {
      int64_t to = (first + c) * s.taps + j;
      double *wide = call->out[0];
      float *narrow = call->out[0];
      if (exact) wide[to] = (add ? wide[to] : 0) + sum[j][c];
      else narrow[to] = (float)((add ? (double)narrow[to] : 0) + sum[j][c]);
    }
}

static void weights_cpu(const sl_call *call) {
  sl_team_for(call->team, blocks_of(&call->in_type[0]), weights_chunk, (void *)call);
}

/* ---- serving --------------------------------------------------------------------------------- */

/* Runs chunk i: some channels of a tick's sequences, one sequence after another. */
static void served_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_batch *batch = sli_batch_of(call);
  const int32_t *sequence = sl_batch_sequence_of(batch);
  conv v = forward_of(call);
  strip s = {.taps = v.taps};
  int64_t first;
  channels_of(v.type, i, &s, &first);
  taps w = taps_of(v.w, &s, first);
  for (int32_t row = 0, end = 0; row < batch->rows; row = end) {
    while (end < batch->rows && sequence[end] == sequence[row]) end++;
    const sl_batch_sequence *own = &sl_batch_settings(batch)[sequence[row]];
    const int32_t *position = sl_batch_position(batch) + row;
    int64_t at = row * s.width + first, each = (s.taps - 1) * s.width;
    float *records = (float *)call->out[1] + first;
    s.rows = end - row;
    s.x = v.x + at;
    s.rest = own->from < 0 ? NULL : records + own->from * each;
    convolve(&s, &w, v.bias ? v.bias + first : NULL, v.y + at);
    s.rows -= own->drafted;
    if (own->kept >= 0) keep_rows(&s, records + own->kept * each);
    for (; s.rows <= end - row; s.rows++)
      keep_rows(&s, records + sl_batch_slot(own, position[s.rows - 1]) * each);
  }
}

static void served_cpu(const sl_call *call) {
  sl_team_for(call->team, blocks_of(&call->in_type[0]), served_chunk, (void *)call);
}

const sl_kernel sli_cpu_causal_conv = {.backend = "cpu", .run = causal_conv_cpu};

const sl_kernel sli_cpu_causal_conv_b = {.backend = "cpu", .run = causal_conv_b_cpu};

const sl_kernel sli_cpu_causal_conv_w = {.backend = "cpu", .run = weights_cpu};

const sl_kernel sli_cpu_causal_conv_piece = {.backend = "cpu", .run = piece_cpu};

const sl_kernel sli_cpu_causal_conv_piece_b = {.backend = "cpu", .run = piece_b_cpu};

const sl_kernel sli_cpu_causal_conv_piece_w = {.backend = "cpu", .run = weights_cpu};

const sl_kernel sli_cpu_causal_conv_served = {.backend = "cpu", .run = served_cpu};
