/* SPDX-License-Identifier: Apache-2.0 */
/* The short causal convolution (ops/causal_conv.c). A thread computes one number, from the taps in
 * one order, so a row has the same bits in a whole sequence, in a piece, and in any batch. Records
 * of rows are written after all numbers, by a second kernel. */
#include "kernels/cuda/served.cuh"
#include "ops/causal_conv.h"

namespace {

using namespace sli;

/* A convolution of x [batch, rows, width] with the rows before it, or of dy with the rows after it
 * (`behind`). The rest are the taps - 1 rows there. */
struct conv {
  int64_t batch, rows, width, taps;
  const float *x, *w, *bias;
  const float *rest;                       /* [batch, taps - 1, width]; NULL: zeros */
  const int32_t *position, *rest_position; /* in documents; NULL: one document */
  float *y;
  bool behind;
};

__device__ inline float number_at(const conv &v, int64_t b, int64_t t, int64_t c) {
  if (t >= 0 && t < v.rows) return v.x[(b * v.rows + t) * v.width + c];
  if (!v.rest) return 0;
  int64_t row = v.behind ? t - v.rows : t + v.taps - 1;
  return v.rest[(b * (v.taps - 1) + row) * v.width + c];
}

/* Returns the document position of row t, which may be in the rest after the last row. */
__device__ inline int32_t position_of(const conv &v, int64_t b, int64_t t) {
  if (t < v.rows) return v.position[b * v.rows + t];
  if (v.rest_position) return v.rest_position[b * (v.taps - 1) + t - v.rows];
  return v.position[(b + 1) * v.rows - 1] + (int32_t)(t - v.rows) + 1;
}

/* Returns true if row t and the row j before it (after it, with `behind`) are of one document. */
__device__ inline bool are_together(const conv &v, int64_t b, int64_t t, int64_t j) {
  return !v.position || position_of(v, b, v.behind ? t + j : t) >= j;
}

__global__ void convolve(conv v) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= v.batch * v.rows * v.width) return;
  int64_t c = i % v.width, t = i / v.width % v.rows, b = i / v.width / v.rows;
  float sum = v.bias ? v.bias[c] : 0.0f;
  for (int64_t j = v.taps - 1; j >= 0; j--)
    if (are_together(v, b, t, j))
      sum += v.w[c * v.taps + v.taps - 1 - j] * number_at(v, b, v.behind ? t + j : t - j, c);
  v.y[i] = sum;
}

/* ---- records --------------------------------------------------------------------------------- */

/* Where rows go after the convolution: those before row 0, and those that the next piece reads. */
struct records {
  float *before, *next;     /* NULL: not needed */
  const float *near;        /* rows that the next piece reads instead; NULL: the last ones */
  const int32_t *positions; /* of the rows that are kept, if documents may part them; or NULL */
  int64_t positions_row;    /* positions of a sequence */
};

/* Returns whether row r that a backward piece keeps belongs to a document that began before the
 * piece. */
__device__ inline bool began_before(const conv &v, const records &k, int64_t b, int64_t r) {
  if (!k.positions) return true;
  int32_t at = r < k.positions_row ? k.positions[b * k.positions_row + r] : position_of(v, b, r);
  return at > r;
}

/* One thread per sequence and channel: reads all rows that it keeps before it writes any. */
__global__ void keep_rows(conv v, records k) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x, n = v.taps - 1;
  if (i >= v.batch * v.width) return;
  int64_t c = i % v.width, b = i / v.width;
  float kept[SLI_MOST_TAPS], before[SLI_MOST_TAPS];
  for (int64_t r = 0; r < n; r++) {
    before[r] = number_at(v, b, r - n, c);
    kept[r] = k.near ? k.near[(b * n + r) * v.width + c]
                     : number_at(v, b, v.behind ? r : v.rows - n + r, c);
    if (!began_before(v, k, b, r)) kept[r] = 0;
  }
  for (int64_t r = 0; r < n; r++) {
    if (k.before) k.before[(b * n + r) * v.width + c] = before[r];
    if (k.next) k.next[(b * n + r) * v.width + c] = kept[r];
  }
}

void convolve_all(const conv &v, const records &k, void *stream) {
  launch(stream, grid_of(chunks(v.batch * v.rows * v.width, BLOCK)), BLOCK, 0, convolve, v);
  if (k.before || k.next)
    launch(stream, grid_of(chunks(v.batch * v.width, BLOCK)), BLOCK, 0, keep_rows, v, k);
}

const float *floats(const sl_call *call, int i) {
  return call->nin > i ? (const float *)call->in[i] : nullptr;
}
const int32_t *ints(const sl_call *call, int i) {
  return call->nin > i ? (const int32_t *)call->in[i] : nullptr;
}

conv forward_of(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  conv v = {};
  v.batch = x->dim[0], v.rows = x->dim[1], v.width = x->dim[2];
  v.taps = sl_type_last(&call->in_type[1]);
  v.x = floats(call, 0);
  v.w = floats(call, 1);
  v.bias = floats(call, 2);
  v.position = ints(call, 4);
  v.y = (float *)call->out[0];
  return v;
}

conv backward_of(const sl_call *call) {
  const sl_type *dy = &call->in_type[1];
  conv v = {};
  v.batch = dy->dim[0], v.rows = dy->dim[1], v.width = dy->dim[2];
  v.taps = sl_type_last(&call->in_type[0]);
  v.x = floats(call, 1);
  v.w = floats(call, 0);
  v.position = ints(call, 3);
  v.y = (float *)call->out[0];
  v.behind = true;
  return v;
}

/* ---- gradients of weights -------------------------------------------------------------------- */

constexpr int ROWS_EACH = BLOCK / WARP; /* rows that a block reads together */

/* Block (32 channels, tap): each warp sums every eighth row, the warps' sums are joined in order.
 */
template <typename S> __global__ void sum_weights(conv v, const float *dy, S *dw, bool add) {
  __shared__ double parts[ROWS_EACH][WARP];
  int64_t c = (int64_t)blockIdx.x * WARP + threadIdx.x % WARP, j = v.taps - 1 - blockIdx.y;
  int warp = (int)threadIdx.x / WARP;
  double sum = 0;
  for (int64_t i = warp; c < v.width && i < v.batch * v.rows; i += ROWS_EACH)
    if (are_together(v, i / v.rows, i % v.rows, j))
      sum += (double)dy[i * v.width + c] * (double)number_at(v, i / v.rows, i % v.rows - j, c);
  parts[warp][threadIdx.x % WARP] = sum;
  __syncthreads();
  if (warp || c >= v.width) return;
  S *to = dw + c * v.taps + blockIdx.y;
  sum = add ? (double)*to : 0;
  for (int k = 0; k < ROWS_EACH; k++) sum += parts[k][threadIdx.x];
  *to = (S)sum;
}

/* ---- serving --------------------------------------------------------------------------------- */

struct served {
  const sl_batch *batch;
  float *states; /* [slots, taps - 1, width] */
};

/* Returns a sequence's number at t rows after its first row; negative ones are in its state. */
__device__ inline float served_at(const conv &v, const served &s, int64_t first, int64_t t,
                                  int64_t c) {
  if (t >= 0) return v.x[(first + t) * v.width + c];
  int32_t from = sl_batch_settings(s.batch)[sl_batch_sequence_of(s.batch)[first]].from;
  return from < 0 ? 0.0f : s.states[((int64_t)from * (v.taps - 1) + t + v.taps - 1) * v.width + c];
}

__global__ void convolve_served(conv v, served s, int64_t rows) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= rows * v.width) return;
  int64_t c = i % v.width, row = i / v.width, begin = row - v.taps + 1;
  const int32_t *sequence = sl_batch_sequence_of(s.batch);
  int64_t first = row; /* as far as the taps reach */
  while (first && first > begin && sequence[first - 1] == sequence[row]) first--;
  float sum = v.bias ? v.bias[c] : 0.0f;
  for (int64_t j = v.taps - 1; j >= 0; j--)
    sum += v.w[c * v.taps + v.taps - 1 - j] * served_at(v, s, first, row - first - j, c);
  v.y[i] = sum;
}

/* One thread per row that begins a sequence, and channel. */
__global__ void keep_served(conv v, served s, int64_t rows) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x, n = v.taps - 1;
  if (i >= rows * v.width) return;
  int64_t c = i % v.width, first = i / v.width, end = first;
  const int32_t *sequence = sl_batch_sequence_of(s.batch);
  if (first && sequence[first - 1] == sequence[first]) return;
  while (end < rows && sequence[end] == sequence[first]) end++;
  const sl_batch_sequence *own = &sl_batch_settings(s.batch)[sequence[first]];
  float kept[SLI_MOST_TAPS];
  for (int64_t last = end - own->drafted; last <= end; last++) {
    int64_t slot = sl_batch_slot(own, sl_batch_position(s.batch)[last - 1]);
    for (int64_t r = 0; r < n; r++) kept[r] = served_at(v, s, first, last - first - n + r, c);
    for (int64_t r = 0; r < n; r++) {
      if (own->kept >= 0 && last == end - own->drafted)
        s.states[((int64_t)own->kept * n + r) * v.width + c] = kept[r];
      s.states[(slot * n + r) * v.width + c] = kept[r];
    }
  }
}

} // namespace

void sli_cuda_causal_conv(const sl_call *call, void *stream) {
  conv v = forward_of(call);
  v.rest = floats(call, 3);
  convolve_all(v, {}, stream);
}

void sli_cuda_causal_conv_piece(const sl_call *call, void *stream) {
  conv v = forward_of(call);
  const float *near = floats(call, 3);
  bool inside = near && call->attrs->place.first > 0;
  float *record = (float *)call->out[2];
  v.rest = inside ? near : record && call->tick.row ? record : nullptr;
  convolve_all(v, {(float *)call->out[1], inside ? nullptr : record, near, nullptr, 0}, stream);
}

void sli_cuda_causal_conv_b(const sl_call *call, void *stream) {
  conv v = backward_of(call);
  v.rest = floats(call, 2);
  v.rest_position = v.rest ? ints(call, 4) : nullptr;
  convolve_all(v, {}, stream);
}

void sli_cuda_causal_conv_piece_b(const sl_call *call, void *stream) {
  conv v = backward_of(call);
  const float *near = floats(call, 2);
  float *record = (float *)call->out[1];
  int64_t end = call->attrs->place.first + v.rows;
  bool starts = call->tick.row + end == call->attrs->place.length;
  bool inside = near && end < call->tick.rows;
  v.rest = inside ? near : record && !starts ? record : nullptr;
  v.rest_position = inside ? ints(call, 4) : nullptr;
  records k = {nullptr, inside ? nullptr : record, near, nullptr, 0};
  if (v.position) {
    k.positions = near ? ints(call, 4) : v.position;
    k.positions_row = near ? v.taps - 1 : v.rows;
  }
  convolve_all(v, k, stream);
}

void sli_cuda_causal_conv_w(const sl_call *call, void *stream) {
  const sl_type *x = &call->in_type[0];
  conv v = {};
  v.batch = x->dim[0], v.rows = x->dim[1], v.width = x->dim[2];
  v.taps = sl_type_last(&call->in_type[2]);
  v.x = floats(call, 0);
  v.rest = floats(call, 3);
  v.position = ints(call, 4);
  launch(stream, dim3((unsigned)chunks(v.width, WARP), (unsigned)v.taps), BLOCK, 0,
         sum_weights<float>, v, floats(call, 1), (float *)call->out[0], accumulates(call, 0));
}

void sli_cuda_causal_conv_piece_w(const sl_call *call, void *stream) {
  sli_cuda_causal_conv_w(call, stream);
}

void sli_cuda_causal_conv_served(const sl_call *call, void *stream) {
  conv v = forward_of(call);
  served s = {batch_of(call), (float *)call->out[1]};
  int64_t rows = served_rows(call);
  if (!rows) return;
  launch(stream, grid_of(chunks(rows * v.width, BLOCK)), BLOCK, 0, convolve_served, v, s, rows);
  launch(stream, grid_of(chunks(rows * v.width, BLOCK)), BLOCK, 0, keep_served, v, s, rows);
}
