/* SPDX-License-Identifier: Apache-2.0 */
/* Functions by number, computed in doubles, and functions of integers, from functions.def. */
#include "kernels/cuda/fold.cuh"
#include "kernels/cuda/map.cuh"
#include "ops/functions.h"

namespace {

using namespace sli;

/* ---- of one number ---------------------------------------------------------------------- */

#define NUMBER(name, expression)                                                 \
  struct name {                                                                  \
    static __device__ inline double of(double v, double d, double c, double u) { \
      (void)v, (void)d, (void)c, (void)u;                                        \
      return expression;                                                         \
    }                                                                            \
  };
#define FUNCTION(name, y, da) NUMBER(name##_y, y) NUMBER(name##_da, da)
#include "ops/functions.def"

template <typename F, int IN> struct unary : functor<IN, 1> {
  float c, u;
  __device__ void operator()(const float *x, float *y) const {
    y[0] = (float)F::of((double)x[0], IN > 1 ? (double)x[IN - 1] : 0.0, (double)c, (double)u);
  }
};

template <typename F, int IN> void run_unary(const sl_call *call, void *stream) {
  unary<F, IN> f;
  f.c = call->attrs->function.c;
  f.u = call->attrs->function.u;
  map_call(call, stream, f);
}

/* ---- of two numbers --------------------------------------------------------------------- */

#define PAIR(name, expression)                                           \
  struct name {                                                          \
    template <typename V> static __device__ inline V of(V a, V b, V d) { \
      (void)a, (void)b, (void)d;                                         \
      return expression;                                                 \
    }                                                                    \
  };
#define FUNCTION2(name, y, da, db) PAIR(name##_2_y, y) PAIR(name##_2_da, da) PAIR(name##_2_db, db)
#include "ops/functions.def"

/* ---- of integers ------------------------------------------------------------------------ */

/* One thread per element of the output. `a` and `b` are the same array in a reduction. */
__global__ void whole(sli_space s, const int32_t *a, const int32_t *b, int32_t *y, int64_t function,
                      int range, bool reduces) {
  int64_t e = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (e >= s.total) return;
  int64_t at[SLI_SPACE_INPUTS] = {0, 0, 0};
  move(s, 0, s.kept, e, at);
  int64_t v = a[at[0]];
  if (!reduces) v = sli_whole_apply(function, v, b[at[1]]);
  for (int64_t k = 1; reduces && k < s.summed; k++) {
    int64_t to[SLI_SPACE_INPUTS] = {at[0], at[1], at[2]};
    move(s, s.kept, s.ndim, k, to);
    v = sli_whole_apply(function, v, a[to[0]]);
  }
  y[e] = (int32_t)sli_whole_wrap(range, v);
}

void run_whole(const sl_call *call, const sl_type *like, const sl_type *out, void *stream) {
  const sl_type *types[SLI_SPACE_ARRAYS] = {
      &call->in_type[0], call->nin > 1 ? &call->in_type[1] : nullptr, nullptr, out};
  sli_space s = sli_space_make(like, types);
  launch(stream, grid_of(chunks(s.total, BLOCK)), BLOCK, 0, whole, s, (const int32_t *)call->in[0],
         (const int32_t *)call->in[call->nin - 1], (int32_t *)call->out[0],
         call->attrs->function.number, (int)call->attrs->function.range, call->nin == 1);
}

} // namespace

void sli_cuda_function(const sl_call *call, void *stream) {
  switch (call->attrs->function.number) {
#define FUNCTION(name, ...) \
  case SLI_FUNCTION_##name: \
    return run_unary<name##_y, 1>(call, stream);
#include "ops/functions.def"
  }
}

void sli_cuda_function_b(const sl_call *call, void *stream) {
  switch (call->attrs->function.number) {
#define FUNCTION(name, ...) \
  case SLI_FUNCTION_##name: \
    return run_unary<name##_da, 2>(call, stream);
#include "ops/functions.def"
  }
}

void sli_cuda_function2(const sl_call *call, void *stream) {
  switch (call->attrs->function.number) {
#define FUNCTION2(name, ...) \
  case SLI_FUNCTION2_##name: \
    return fold_output<name##_2_y, double>(call, 0, stream);
#include "ops/functions.def"
  }
}

void sli_cuda_function2_b(const sl_call *call, void *stream) {
  switch (call->attrs->function.number) {
#define FUNCTION2(name, ...)                           \
  case SLI_FUNCTION2_##name:                           \
    fold_output<name##_2_da, double>(call, 0, stream); \
    return fold_output<name##_2_db, double>(call, 1, stream);
#include "ops/functions.def"
  }
}

void sli_cuda_whole(const sl_call *call, void *stream) {
  run_whole(call, &call->out_type[0], &call->out_type[0], stream);
}

void sli_cuda_whole_reduce(const sl_call *call, void *stream) {
  const sl_type *x = &call->in_type[0];
  uint32_t axes = call->attrs->along.axes ? call->attrs->along.axes : (1u << x->ndim) - 1;
  sl_type out = sli_reduced(x, axes, true);
  run_whole(call, x, &out, stream);
}
