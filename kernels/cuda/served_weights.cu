/* SPDX-License-Identifier: Apache-2.0 */
/* Products and tables of served graphs. Weights stay in their storage format and are unpacked in
 * registers. A row has the same bits alone and in any batch: its sums are split by columns of the
 * weights alone, over the lanes and warps of a block, and are joined in order. */
#include "kernels/cuda/served.cuh"
#include "kernels/cuda/stored_blocks.cuh"
#include "kernels/cuda/tensor_parts.cuh"
#include "kernels/cuda/tensor_small.cuh"

namespace {

using namespace sli;

/* Clears the rows of places without an expert. */
__global__ void clear_rows(product p, const int32_t *ids) {
  int64_t i = blockIdx.x;
  if (ids[i] >= 0 && ids[i] < p.experts) return;
  for (int64_t c = threadIdx.x; c < p.w.n; c += blockDim.x) p.y[i * p.w.n + c] = 0;
}

/* ---- tables ---------------------------------------------------------------------------------- */

struct table {
  stored w;
  const int32_t *ids;
  float *y;
  int64_t first;
  float other; /* numbers of ids outside the table */
};

/* One block per id. */
__global__ void look_up(table t, sl_storage storage) {
  int64_t i = blockIdx.x, id = t.ids[i] - t.first;
  bool here = id >= 0 && id < t.w.n;
  for (int64_t c = threadIdx.x; c < t.w.k; c += blockDim.x)
    t.y[i * t.w.k + c] = here ? served_number(storage, t.w, id, c) : t.other;
}

} // namespace

/* ---- products ----------------------------------------------------------------------------------
 */

/* Numbers that bf16 holds go to the tensor cores, chunk by chunk. */
void sli::multiply_stored(sl_storage storage, product p, void *scratch, void *stream) {
  bool chunked = p.w.k % CHUNK == 0;
  if (chunked && storage == SL_STORAGE_BF16)
    return multiply_on_tensor_cores<tensor_bf16>(p, scratch, stream);
  switch (storage) {
  case SL_STORAGE_Q8_0: return multiply_on_tensor_cores<tensor_q8_0>(p, scratch, stream);
  case SL_STORAGE_Q4_1: return multiply_on_tensor_cores<tensor_q4_1>(p, scratch, stream);
  case SL_STORAGE_Q5_1: return multiply_on_tensor_cores<tensor_q5_1>(p, scratch, stream);
  case SL_STORAGE_Q2_K: return multiply_on_tensor_cores<tensor_q2_k>(p, scratch, stream);
  case SL_STORAGE_Q3_K: return multiply_on_tensor_cores<tensor_q3_k>(p, scratch, stream);
  case SL_STORAGE_Q4_K: return multiply_on_tensor_cores<tensor_q4_k>(p, scratch, stream);
  case SL_STORAGE_Q5_K: return multiply_on_tensor_cores<tensor_q5_k>(p, scratch, stream);
  case SL_STORAGE_Q6_K: return multiply_on_tensor_cores<tensor_q6_k>(p, scratch, stream);
  case SL_STORAGE_IQ4_NL: return multiply_on_tensor_cores<tensor_iq4_nl>(p, scratch, stream);
  case SL_STORAGE_IQ4_XS: return multiply_on_tensor_cores<tensor_iq4_xs>(p, scratch, stream);
  case SL_STORAGE_MXFP4: return multiply_on_tensor_cores<tensor_mxfp4>(p, scratch, stream);
  case SL_STORAGE_SCALED: return multiply_on_tensor_cores<tensor_fp8>(p, scratch, stream);
  case SL_STORAGE_NVFP4: return multiply_on_tensor_cores<tensor_nvfp4>(p, scratch, stream);
  default: break;
  }
  const auto plain = [&](auto element) {
    using W = stored_rows<decltype(element), 16 / sizeof(element)>;
    p.w.packed = p.w.k % W::E == 0;
    multiply_all<W>(p, stream);
  };
  if (storage == SL_STORAGE_F16) plain(fp16());
  else with_elements(storage == SL_STORAGE_BF16 ? SL_BF16 : SL_F32, plain);
}

size_t sli::split_product_bytes(sl_storage storage, int64_t rows, int64_t k) {
  return split_bytes(storage, rows, k);
}

size_t sli_cuda_linear_served_scratch(const sl_call *call) {
  return split_bytes(sli_storage_of(call->attrs, &call->in_type[1]),
                     sl_type_rows(&call->in_type[0]), sl_type_last(&call->in_type[0]));
}

void sli_cuda_linear_served(const sl_call *call, void *stream) {
  bool turned = call->attrs->product.transposed;
  int64_t k = sl_type_last(&call->in_type[0]), n = sl_type_last(&call->out_type[0]);
  product p = {{call->in[1], n, k, false}, (const float *)call->in[0], (const float *)call->in[2],
               (float *)call->out[0],      served_rows(call),          k % 4 == 0};
  if (!p.rows) return;
  if (turned) return multiply_all<stored_columns>(p, stream);
  multiply_stored(sli_storage_of(call->attrs, &call->in_type[1]), p, call->scratch, stream);
}

size_t sli_cuda_grouped_linear_served_scratch(const sl_call *call) {
  int64_t places = sl_type_elements(&call->in_type[1]), k = sl_type_last(&call->in_type[0]);
  return (size_t)places * 2 * sizeof(uint64_t) +
         split_bytes(sli_storage_of(call->attrs, &call->in_type[2]), places, k);
}

void sli_cuda_grouped_linear_served(const sl_call *call, void *stream) {
  const sl_type *x = &call->in_type[0], *ids_type = &call->in_type[1], *w = &call->in_type[2];
  const int32_t *ids = (const int32_t *)call->in[1];
  int64_t rows = valid_ids(call), k = sl_type_last(x);
  uint64_t *keys = (uint64_t *)call->scratch;
  if (!rows) return;
  id_in_table expert = {call->attrs->place.first, w->dim[0]};
  product p = {{call->in[2], w->dim[1], k, false},
               (const float *)call->in[0],
               nullptr,
               (float *)call->out[0],
               rows,
               k % 4 == 0,
               sort_places(ids, rows, keys, keys + rows, expert, stream),
               w->dim[0],
               x->ndim == ids_type->ndim ? sl_type_last(ids_type) : 1};
  launch(stream, grid_of(rows), threads_for(p.w.n), 0, clear_rows, p, ids);
  sl_type matrix = SL_TYPE(w->dtype, w->dim[1], w->dim[2]);
  p.expert_bytes = (int64_t)sl_type_bytes(&matrix);
  multiply_stored(sli_storage_of(call->attrs, w), p, keys + 2 * sl_type_elements(ids_type), stream);
}

void sli_cuda_embedding_served(const sl_call *call, void *stream) {
  const sl_type *ids = &call->in_type[0];
  int64_t tokens = ids->dim[0] * ids->dim[1], width = sl_type_last(&call->out_type[0]);
  int64_t rows = sl_call_rows(call, 0, tokens) * (sl_type_elements(ids) / tokens);
  table t = {{call->in[1], call->in_type[1].dim[0], width, false},
             (const int32_t *)call->in[0],
             (float *)call->out[0],
             call->attrs->place.first,
             call->attrs->place.partial ? -0.0f : NAN};
  if (rows)
    launch(stream, grid_of(rows), threads_for(width), 0, look_up, t,
           sli_storage_of(call->attrs, &call->in_type[1]));
}
