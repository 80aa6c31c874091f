/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of up to three numbers over broadcast arrays, summed over the dims that the output
 * lacks. Each array has a type of its own. */
#ifndef SLUICE_CUDA_FOLD_CUH
#define SLUICE_CUDA_FOLD_CUH

#include "kernels/cuda/device.cuh"
#include "ops/space.h"

namespace sli {

struct operand {
  const void *at; /* NULL if absent */
  sl_dtype dtype;
};

template <typename V> __device__ inline V get(const operand &x, int64_t i) {
  if (!x.at) return V(0);
  switch (x.dtype) {
  case SL_F64: return (V)((const double *)x.at)[i];
  case SL_I32: return (V)((const int32_t *)x.at)[i];
  case SL_BF16: return (V)to_float(((const bf16 *)x.at)[i]);
  default: return (V)((const float *)x.at)[i];
  }
}

__device__ inline void put_number(void *to, sl_dtype dtype, int64_t i, double y, bool add) {
  switch (dtype) {
  case SL_F64: ((double *)to)[i] = add ? ((double *)to)[i] + y : y; return;
  case SL_I32: ((int32_t *)to)[i] = (int32_t)y; return;
  case SL_BF16: {
    bf16 *at = (bf16 *)to + i;
    return assign(*at, add ? to_float(*at) + (float)y : (float)y);
  }
  default: ((float *)to)[i] = add ? ((float *)to)[i] + (float)y : (float)y; return;
  }
}

struct fold_args {
  sli_space space;
  operand in[SLI_SPACE_INPUTS];
  void *out;
  sl_dtype dtype; /* type of out */
  bool add;
  double factor;
};

/* Moves the places in the inputs to position `number` of dims [from, to). */
__device__ inline void move(const sli_space &s, int from, int to, int64_t number, int64_t *at) {
  for (int d = to - 1; d >= from; number /= s.dim[d--])
    for (int a = 0; a < SLI_SPACE_INPUTS; a++) at[a] += number % s.dim[d] * s.step[a][d];
}

template <typename F, typename V>
__device__ inline V fold_at(const fold_args &g, const int64_t *base, int64_t k) {
  int64_t at[SLI_SPACE_INPUTS] = {base[0], base[1], base[2]};
  move(g.space, g.space.kept, g.space.ndim, k, at);
  return F::template of<V>(get<V>(g.in[0], at[0]), get<V>(g.in[1], at[1]), get<V>(g.in[2], at[2]));
}

/* One thread per element of the output. */
template <typename F, typename V> __global__ void fold_threads(fold_args g) {
  int64_t e = (int64_t)blockIdx.x * BLOCK + threadIdx.x, at[SLI_SPACE_INPUTS] = {0, 0, 0};
  if (e >= g.space.total) return;
  move(g.space, 0, g.space.kept, e, at);
  double y = 0;
  for (int64_t k = 0; k < g.space.summed; k++) y += (double)fold_at<F, V>(g, at, k);
  put_number(g.out, g.dtype, e, g.factor == 1 ? y : y * g.factor, g.add);
}

/* One block per element of the output. */
template <typename F, typename V> __global__ void fold_block(fold_args g) {
  int64_t at[SLI_SPACE_INPUTS] = {0, 0, 0};
  move(g.space, 0, g.space.kept, blockIdx.x, at);
  double y = 0;
  for (int64_t k = threadIdx.x; k < g.space.summed; k += BLOCK)
    y += (double)fold_at<F, V>(g, at, k);
  y = block_sum(y);
  if (!threadIdx.x) put_number(g.out, g.dtype, blockIdx.x, y * g.factor, g.add);
}

enum { FEW_SUMMED = 128 };

template <typename F, typename V> void fold(void *stream, const fold_args &g) {
  if (!g.out) return;
  if (g.space.summed < FEW_SUMMED)
    launch(stream, grid_of(chunks(g.space.total, BLOCK)), BLOCK, 0, fold_threads<F, V>, g);
  else launch(stream, grid_of(g.space.total), BLOCK, 0, fold_block<F, V>, g);
}

/* Returns true if v at k ranks before top at `where`: the first of the largest wins; NaN counts as
 * largest. */
__device__ inline bool is_better(float v, int64_t k, float top, int64_t where) {
  if (isnan(v) != isnan(top)) return isnan(v);
  if (isnan(v) || v == top) return k < where;
  return v > top;
}

inline operand operand_of(const sl_call *call, int i) {
  return operand{call->in[i], call->in_type[i].dtype};
}

/* Computes output o from all inputs. */
template <typename F, typename V> void fold_output(const sl_call *call, int o, void *stream) {
  const sl_type *types[SLI_SPACE_ARRAYS] = {0};
  fold_args g = {};
  sl_type whole;
  types[SLI_SPACE_OUT] = &call->out_type[o];
  for (int i = 0; i < call->nin; i++) {
    types[i] = &call->in_type[i];
    g.in[i] = operand_of(call, i);
  }
  (void)sli_broadcast(call->nin, call->in_type, &whole);
  g.space = sli_space_make(&whole, types);
  g.out = call->out[o];
  g.dtype = call->out_type[o].dtype;
  g.add = accumulates(call, o);
  g.factor = 1;
  fold<F, V>(stream, g);
}

} // namespace sli

#endif
