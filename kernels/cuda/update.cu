/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA kernels of the update: clipping by the norm of all gradients, and optimizers over a run of
 * tensors. */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/fuse.h"
#include "ops/running.h"

namespace {

using namespace sli;

/* Optimizer step on one element and its states. */
struct adamw {
  static constexpr int STATES = 2;
  __device__ static void step(const sli_update_numbers *a, float g, float *p, float *s) {
    sli_adamw_step(a, g, p, &s[0], &s[1]);
  }
};
struct adam {
  static constexpr int STATES = 2;
  __device__ static void step(const sli_update_numbers *a, float g, float *p, float *s) {
    sli_adam_step(a, g, p, &s[0], &s[1]);
  }
};
struct sgd {
  static constexpr int STATES = 1;
  __device__ static void step(const sli_update_numbers *a, float g, float *p, float *s) {
    sli_sgd_step(a, g, p, &s[0]);
  }
};
struct lion {
  static constexpr int STATES = 1;
  __device__ static void step(const sli_update_numbers *a, float g, float *p, float *s) {
    sli_lion_step(a, g, p, &s[0]);
  }
};

/* One tensor. A state that is not kept is NULL. */
struct segment {
  float *w, *states[2];
  const float *scale;
  int64_t n;
  sli_update_numbers numbers;
  unsigned first_block;
  unsigned short first_part, nparts;
};

template <typename R, int N>
__device__ inline void update_pack(const parts &p, const segment &s, int64_t at) {
  float g[N], w[N], states[R::STATES][N];
  add_up<N, float>(g, p, at);
  load<N>(w, s.w + at);
#pragma unroll
  for (int k = 0; k < R::STATES; k++) {
    if (s.states[k]) load<N>(states[k], s.states[k] + at);
    else
      for (int n = 0; n < N; n++) states[k][n] = 0;
  }
#pragma unroll
  for (int n = 0; n < N; n++) {
    float of[R::STATES];
    for (int k = 0; k < R::STATES; k++) of[k] = states[k][n];
    R::step(&s.numbers, sli_product(g[n], *s.scale), &w[n], of);
    for (int k = 0; k < R::STATES; k++) states[k][n] = of[k];
  }
  store<N>(s.w + at, w);
#pragma unroll
  for (int k = 0; k < R::STATES; k++)
    if (s.states[k]) store<N>(s.states[k] + at, states[k]);
}

using tensors = run<segment, 40, 64>;
static_assert(sizeof(tensors) <= PARAMETER_BYTES, "too many parameters");
static_assert(64 >= SLI_CUDA_PARTS, "one tensor fits");

constexpr int EACH = BLOCK * 4; /* elements per block */

template <typename R> __global__ void update(const __grid_constant__ tensors run) {
  constexpr int N = 4;
  const segment &s = run.of_block(blockIdx.x);
  parts p = run.parts_of(s);
  int64_t at = ((int64_t)(blockIdx.x - s.first_block) * BLOCK + threadIdx.x) * N;
  if (at + N <= s.n) update_pack<R, N>(p, s, at);
  else
    for (; at < s.n; at++) update_pack<R, 1>(p, s, at);
}

sli_update_numbers numbers_of(const sl_call *call) {
  const sl_optimizer *o = (const sl_optimizer *)call->attrs->user;
  double t = (double)call->tick.step + 1;
  float lr = sl_optimizer_lr(o, call->tick.step);
  float decay = sl_optimizer_decay(o, call->out_type[0].ndim);
  return {o->beta1,
          o->beta2,
          o->eps,
          1.0f - lr * decay,
          decay,
          lr,
          (float)(lr / (1.0 - pow(o->beta1, t))),
          (float)(1.0 / sqrt(1.0 - pow(o->beta2, t))),
          o->momentum,
          o->nesterov};
}

/* Adds the tensor of a call to the run, if it fits. */
template <typename R> bool add_tensor(tensors *run, const sl_call *call) {
  int64_t n = sl_type_elements(&call->out_type[0]);
  segment *s = run->add(call->nin - 1, call->in + 1, chunks(n, EACH));
  if (!s) return false;
  s->w = (float *)call->out[0];
  for (int k = 0; k < R::STATES; k++) s->states[k] = (float *)call->out[1 + k];
  s->scale = (const float *)call->in[0];
  s->n = n;
  s->numbers = numbers_of(call);
  return true;
}

template <typename R> void launch_run(const sl_call *calls, int ncalls, void *stream) {
  for (int at = 0; at < ncalls;) {
    tensors run = {};
    while (at < ncalls && add_tensor<R>(&run, &calls[at])) at++;
    launch(stream, grid_of(run.blocks), BLOCK, 0, update<R>, run);
  }
}

/* Batches of pointers to sums of squares. The first batch overwrites the norm; the last takes its
 * square root. */
struct batch {
  const double *of[256];
  int count;
  bool first, last;
};

__global__ void clip(batch b, float limit, float *scale, double *norm) {
  double total = b.first ? 0 : *norm;
  for (int i = 0; i < b.count; i++) total += *b.of[i];
  *norm = b.last ? sqrt(total) : total;
  if (!b.last || !scale) return;
  double fraction = (double)limit / (sqrt(total) + 1e-6);
  *scale = limit > 0 && fraction < 1 ? (float)fraction : 1.0f;
}

__global__ void add_part(const float *x, float *y, float factor, bool add, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) y[i] = sli_product(factor, x[i]) + (add ? y[i] : 0);
}

__global__ void follow(const float *part, const float *p, float *y, float left, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) y[i] = sli_product(left, p[i]) + part[i];
}

} // namespace

size_t sli_cuda_clip_scratch(const sl_call *call) {
  (void)call;
  return sizeof(double); /* place for the norm, if it is not an output */
}

void sli_cuda_clip(const sl_call *call, void *stream) {
  const sl_optimizer *o = (const sl_optimizer *)call->attrs->user;
  double *norm = (double *)(call->out[1] ? call->out[1] : call->scratch);
  batch b = {};
  constexpr int most = sizeof b.of / sizeof *b.of;
  for (int at = 0; at < call->nin; at += most) {
    b.count = call->nin - at < most ? call->nin - at : most;
    b.first = at == 0;
    b.last = at + b.count == call->nin;
    for (int i = 0; i < b.count; i++) b.of[i] = (const double *)call->in[at + i];
    launch(stream, dim3(1), 1, 0, clip, b, o->clip, (float *)call->out[0], norm);
  }
}

#define OPTIMIZER(rule)                                                                        \
  void sli_cuda_##rule##_run(const sli_cuda_fused *, const sl_call *calls, int ncalls, void *, \
                             void *stream) {                                                   \
    launch_run<rule>(calls, ncalls, stream);                                                   \
  }                                                                                            \
  void sli_cuda_##rule(const sl_call *call, void *stream) { launch_run<rule>(call, 1, stream); }

OPTIMIZER(adamw)
OPTIMIZER(adam)
OPTIMIZER(sgd)
OPTIMIZER(lion)

void sli_cuda_keep(const sl_call *, void *) {}

void sli_cuda_running_part(const sl_call *call, void *stream) {
  int64_t n = sl_type_elements(&call->in_type[0]);
  launch(stream, grid_of(chunks(n, BLOCK)), BLOCK, 0, add_part, (const float *)call->in[0],
         (float *)call->out[0], sli_running_factor(call), accumulates(call, 0), n);
}

void sli_cuda_running(const sl_call *call, void *stream) {
  int64_t n = sl_type_elements(&call->in_type[0]);
  launch(stream, grid_of(chunks(n, BLOCK)), BLOCK, 0, follow, (const float *)call->in[0],
         (const float *)call->in[1], (float *)call->out[0], call->attrs->running.factor, n);
}

void sli_cuda_replace(const sl_call *call, void *stream) {
  cudaMemcpyAsync(call->out[0], call->in[0], sl_type_bytes(&call->in_type[0]), cudaMemcpyDefault,
                  (cudaStream_t)stream);
}
