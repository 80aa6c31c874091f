/* SPDX-License-Identifier: Apache-2.0 */
/* Products and tables of frozen weights that training keeps in their storage format, for adapters
 * on quantized models. */
#include "kernels/cuda/stored_blocks.cuh"
#include "kernels/cuda/stored_product.cuh"

namespace {

using namespace sli;

/* Returns number c of a row of weights that a reader reads. */
template <typename W> struct numbers {
  __device__ static float at(const stored &w, sl_storage storage, int64_t row, int64_t c) {
    return stored_number(storage, w, row, c);
  }
};
template <sl_storage STORAGE> struct numbers<stored_file<STORAGE>> {
  __device__ static float at(const stored &w, sl_storage, int64_t row, int64_t c) {
    return stored_file<STORAGE>::number(w, row, c);
  }
};

constexpr int GRADIENT_ROWS = 8; /* rows of dy that share a reading of the weights */

struct gradient {
  stored w;
  sl_storage storage;
  const float *dy;
  float *dx;
  int64_t rows;
};

/* A thread computes a column of dx for some rows, in the order of the weights' rows. */
template <typename W> __global__ void multiply_back(gradient g) {
  int64_t c = (int64_t)blockIdx.x * BLOCK + threadIdx.x, first = blockIdx.y * GRADIENT_ROWS;
  float sum[GRADIENT_ROWS] = {};
  if (c >= g.w.k) return;
  for (int64_t n = 0; n < g.w.n; n++) {
    float w = numbers<W>::at(g.w, g.storage, n, c);
#pragma unroll
    for (int r = 0; r < GRADIENT_ROWS; r++)
      if (first + r < g.rows) sum[r] += g.dy[(first + r) * g.w.n + n] * w;
  }
#pragma unroll
  for (int r = 0; r < GRADIENT_ROWS; r++)
    if (first + r < g.rows) g.dx[(first + r) * g.w.k + c] = sum[r];
}

struct table {
  stored w;
  sl_storage storage;
  const int32_t *ids;
  float *y;
  int64_t first;
  float other; /* numbers of ids outside the table */
};

/* One block per id. */
template <typename W> __global__ void look_up(table t) {
  int64_t i = blockIdx.x, id = t.ids[i] - t.first;
  bool here = id >= 0 && id < t.w.n;
  for (int64_t c = threadIdx.x; c < t.w.k; c += blockDim.x)
    t.y[i * t.w.k + c] = here ? numbers<W>::at(t.w, t.storage, id, c) : t.other;
}

sl_storage storage_of(const sl_call *call) { return (sl_storage)call->attrs->weight.storage; }

stored weights_of(const sl_call *call) {
  return {call->in[1], call->in_type[1].dim[0], call->attrs->weight.width, false};
}

int64_t rows_of(const sl_call *call) {
  return sl_call_rows(call, 0, sl_type_rows(&call->in_type[0]));
}

} // namespace

void sli_cuda_linear_stored(const sl_call *call, void *stream) {
  product p = {weights_of(call),
               (const float *)call->in[0],
               call->nin > 2 ? (const float *)call->in[2] : nullptr,
               (float *)call->out[0],
               rows_of(call),
               call->attrs->weight.width % 4 == 0};
  if (!p.rows) return;
  with_any_stored(storage_of(call), [&](auto reader) {
    using W = decltype(reader);
    p.w.packed = p.w.k % W::E == 0;
    multiply_rows<W, MOST_ROWS>(p, stream);
  });
}

void sli_cuda_linear_b_stored(const sl_call *call, void *stream) {
  gradient g = {weights_of(call), storage_of(call), (const float *)call->in[0],
                (float *)call->out[0], rows_of(call)};
  if (!g.rows) return;
  with_any_stored(g.storage, [&](auto reader) {
    dim3 grid((unsigned)chunks(g.w.k, BLOCK), (unsigned)chunks(g.rows, GRADIENT_ROWS));
    launch(stream, grid, BLOCK, 0, multiply_back<decltype(reader)>, g);
  });
}

void sli_cuda_embedding_stored(const sl_call *call, void *stream) {
  table t = {
      weights_of(call),      storage_of(call),         (const int32_t *)call->in[0],
      (float *)call->out[0], call->attrs->place.first, call->attrs->place.partial ? 0.0f : NAN};
  with_any_stored(t.storage, [&](auto reader) {
    launch(stream, grid_of(sl_type_elements(&call->in_type[0])), threads_for(t.w.k), 0,
           look_up<decltype(reader)>, t);
  });
}
