/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings of tokens replaced by encoder rows (ops/splice.c). */
#include "kernels/cuda/served.cuh"

namespace {

using namespace sli;

/* One thread per row of tokens: numbers its places. */
__global__ void mark(const int32_t *tokens, int32_t *at, int64_t rows, int64_t length,
                     int64_t first, int64_t count, int32_t place) {
  int64_t b = (int64_t)blockIdx.x * BLOCK + threadIdx.x, next = (first + b) * count;
  if (b >= rows) return;
  for (int64_t t = b * length; t < (b + 1) * length; t++)
    at[t] = tokens[t] == place ? (int32_t)next++ : -1;
}

/* Encoder rows [first, first + count). */
struct encoded {
  const float *rows;
  int64_t first, count, width;
};

/* Writes a row of x, or the encoder row `at`. A place without a row becomes NaN. */
__device__ inline void write_row(const encoded &e, const float *x, float *y, int32_t at) {
  int64_t row = at < 0 ? at : at - e.first;
  bool here = row >= 0 && row < e.count;
  const float *from = here ? e.rows + row * e.width : x;
  for (int64_t c = threadIdx.x; c < e.width; c += blockDim.x)
    y[c] = here || row < 0 ? from[c] : NAN;
}

/* One block per row. */
__global__ void splice_rows(encoded e, const float *x, const int32_t *at, float *y) {
  int64_t r = blockIdx.x;
  write_row(e, x + r * e.width, y + r * e.width, at[r]);
}

/* The batch names the places; without rows of an encoder it has them, too. */
__global__ void splice_tick(encoded e, const sl_batch *batch, const float *x, float *y) {
  const int32_t *at = (const int32_t *)(sl_batch_edits(batch) + batch->most_edits);
  int64_t r = blockIdx.x;
  if (!e.rows) e.rows = (const float *)(at + batch->most_rows), e.count = batch->rows;
  write_row(e, x + r * e.width, y + r * e.width, at[r]);
}

/* Clears the gradient of x at places. */
__global__ void leave_places(const float *dy, const int32_t *at, float *dx, int64_t width) {
  int64_t r = blockIdx.x;
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x)
    dx[r * width + c] = at[r] >= 0 ? 0 : dy[r * width + c];
}

/* One block per encoder row: adds the gradients of its places in order. */
__global__ void add_places(const float *dy, const int32_t *at, float *drows, int64_t places,
                           int64_t first, int64_t width) {
  int64_t row = blockIdx.x;
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x) {
    float sum = 0;
    for (int64_t r = 0; r < places; r++)
      if (at[r] >= 0 && at[r] - first == row) sum += dy[r * width + c];
    drows[row * width + c] = sum;
  }
}

encoded encoded_of(const sl_call *call) {
  int64_t count = call->in[1] ? call->in_type[1].dim[0] : 0;
  return {(const float *)call->in[1], call->attrs->place.first, count,
          sl_type_last(&call->in_type[0])};
}

} // namespace

void sli_cuda_marks(const sl_call *call, void *stream) {
  const sl_type *tokens = &call->in_type[0];
  launch(stream, grid_of(chunks(tokens->dim[0], BLOCK)), BLOCK, 0, mark,
         (const int32_t *)call->in[0], (int32_t *)call->out[0], tokens->dim[0], tokens->dim[1],
         call->attrs->place.first, call->attrs->tokens.each, call->attrs->tokens.marker);
}

void sli_cuda_splice(const sl_call *call, void *stream) {
  encoded e = encoded_of(call);
  launch(stream, grid_of(sl_type_rows(&call->in_type[0])), threads_for(e.width), 0, splice_rows, e,
         (const float *)call->in[0], (const int32_t *)call->in[2], (float *)call->out[0]);
}

void sli_cuda_splice_b(const sl_call *call, void *stream) {
  const float *dy = (const float *)call->in[0];
  const int32_t *at = (const int32_t *)call->in[2];
  int64_t width = sl_type_last(&call->in_type[0]), rows = sl_type_rows(&call->in_type[0]);
  if (call->out[0])
    launch(stream, grid_of(rows), threads_for(width), 0, leave_places, dy, at,
           (float *)call->out[0], width);
  if (call->out[1])
    launch(stream, grid_of(call->in_type[1].dim[0]), threads_for(width), 0, add_places, dy, at,
           (float *)call->out[1], rows, call->attrs->place.first, width);
}

void sli_cuda_splice_served(const sl_call *call, void *stream) {
  int64_t rows = served_rows(call);
  encoded e = encoded_of(call);
  e.first = 0;
  if (rows)
    launch(stream, grid_of(rows), threads_for(e.width), 0, splice_tick, e, batch_of(call),
           (const float *)call->in[0], (float *)call->out[0]);
}

void sli_cuda_span(const sl_call *call, void *stream) {
  size_t bytes = sl_type_bytes(&call->in_type[0]);
  cudaMemcpyAsync((char *)call->out[0] + (size_t)call->tick.microbatch * bytes, call->in[0], bytes,
                  cudaMemcpyDefault, (cudaStream_t)stream);
}
