/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of one number, from unary.def, on f32 and bf16 arrays and on f64 scalars. */
#include "kernels/cuda/map.cuh"

namespace {

using namespace sli;

template <typename V> __device__ inline V exp_of(V v) { return exp(v); }
template <typename V> __device__ inline V log_of(V v) { return log(v); }
template <typename V> __device__ inline V sqrt_of(V v) { return sqrt(v); }
template <typename V> __device__ inline V abs_of(V v) { return fabs(v); }
template <typename V> __device__ inline V tanh_of(V v) { return tanh(v); }
template <typename V> __device__ inline V sigmoid_of(V v) { return V(1) / (V(1) + exp(-v)); }
template <typename V> __device__ inline V erf_of(V v) { return erf(v); }
template <typename V> __device__ inline V normal_of(V v) {
  return erfc(-v * V(0.70710678118654752)) / V(2);
}
template <typename V> __device__ inline V sin_of(V v) { return sin(v); }
template <typename V> __device__ inline V cos_of(V v) { return cos(v); }
template <typename V> __device__ inline V floor_of(V v) { return floor(v); }
template <typename V> __device__ inline V softplus_of(V v) {
  return fmax(v, V(0)) + log1p(exp(-fabs(v)));
}
template <typename V> __device__ inline V pick_of(bool mask, V a, V b) { return mask ? a : b; }

/* Defines a functor of v and d: name##_y, and name##_dx if the function has a separate backward
 * op. */
#define FUNCTION(name, expression)                                            \
  struct name {                                                               \
    template <typename V> static __device__ inline V of(V v, V d, V c, V u) { \
      const V zero = 0;                                                       \
      (void)v, (void)d, (void)c, (void)u, (void)zero;                         \
      return expression;                                                      \
    }                                                                         \
  };
#define UNARY(name, how, flops, y, dx) FUNCTION(name##_y, y) FUNCTION(name##_dx, dx)
#include "ops/unary.def"
#undef UNARY

template <typename F, int IN> struct unary : functor<IN, 1> {
  float c, u;
  __device__ void operator()(const float *x, float *y) const {
    y[0] = F::of(x[0], IN > 1 ? x[IN - 1] : 0.0f, c, u);
  }
};

template <typename F, typename D, typename Y>
__global__ void one(const double *x, const D *d, Y *y, double c, double u) {
  if (!threadIdx.x) *y = (Y)F::of(*x, d ? (double)*d : 0.0, c, u);
}

template <typename F> void run_scalar(const sl_call *call, void *stream) {
  double c = call->attrs->function.c, u = call->attrs->function.u;
  const double *x = (const double *)call->in[0];
  if (call->nin == 1)
    launch(stream, grid_of(1), WARP, 0, one<F, double, double>, x, (const double *)nullptr,
           (double *)call->out[0], c, u);
  else
    launch(stream, grid_of(1), WARP, 0, one<F, float, float>, x, (const float *)call->in[1],
           (float *)call->out[0], c, u);
}

template <typename F, int IN> void run_unary(const sl_call *call, void *stream) {
  if (call->in_type[0].dtype == SL_F64) return run_scalar<F>(call, stream);
  unary<F, IN> f;
  f.c = call->attrs->function.c;
  f.u = call->attrs->function.u;
  map_call(call, stream, f);
}

} // namespace

#define LAUNCH(name, function, nin)                         \
  void sli_cuda_##name(const sl_call *call, void *stream) { \
    run_unary<function, nin>(call, stream);                 \
  }
#define BACK_IN(name) LAUNCH(name##_b, name##_dx, 2)
#define BACK_OUT BACK_IN
#define BACK_BOUNDS BACK_IN
#define BACK_CAP BACK_IN
#define BACK_SAME(name)
#define BACK_THROUGH(name)
#define BACK_DETACHED(name)
#define UNARY(name, how, flops, y, dx) LAUNCH(name, name##_y, 1) BACK_##how(name)
#include "ops/unary.def"
#undef UNARY
