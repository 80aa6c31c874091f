/* The update: clipping by the norm of all gradients, AdamW of a run of tensors. */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/fuse.h"

namespace {

using namespace sli;

template <int N>
__device__ inline void adamw_pack(const parts &p, const sli_adamw &a, float scale, float *w,
                                  float *m, float *v, int64_t at) {
  float g[N], wn[N], mn[N], vn[N];
  add_up<N, float>(g, p, at);
  load<N>(wn, w + at);
  load<N>(mn, m + at);
  load<N>(vn, v + at);
#pragma unroll
  for (int n = 0; n < N; n++) sli_adamw_step(&a, g[n] * scale, &wn[n], &mn[n], &vn[n]);
  store<N>(w + at, wn);
  store<N>(m + at, mn);
  store<N>(v + at, vn);
}

/* One tensor. */
struct segment {
  float *w, *m, *v;
  const float *scale;
  int64_t n;
  sli_adamw numbers;
  unsigned first_block;
  unsigned short first_part, nparts;
};

using tensors = run<segment, 44, 88>;
static_assert(sizeof(tensors) <= PARAMETER_BYTES, "too many parameters");
static_assert(88 >= SLI_CUDA_PARTS, "one tensor fits");

constexpr int EACH = BLOCK * 4; /* elements of a block */

__global__ void adamw(const __grid_constant__ tensors run) {
  constexpr int N = 4;
  const segment &s = run.of_block(blockIdx.x);
  parts p = run.parts_of(s);
  int64_t at = ((int64_t)(blockIdx.x - s.first_block) * BLOCK + threadIdx.x) * N;
  if (at + N <= s.n) adamw_pack<N>(p, s.numbers, *s.scale, s.w, s.m, s.v, at);
  else
    for (; at < s.n; at++) adamw_pack<1>(p, s.numbers, *s.scale, s.w, s.m, s.v, at);
}

sli_adamw numbers_of(const sl_call *call) {
  const sl_optimizer *o = (const sl_optimizer *)call->attrs->user;
  double t = (double)call->tick.step + 1;
  float lr = sl_optimizer_lr(o, call->tick.step);
  return {o->beta1, o->beta2, o->eps,
          call->out_type[0].ndim >= 2 ? 1.0f - lr * o->weight_decay : 1.0f,
          (float)(lr / (1.0 - pow(o->beta1, t))), (float)(1.0 / sqrt(1.0 - pow(o->beta2, t)))};
}

/* The tensor of a call, if it still fits. */
bool add_tensor(tensors *run, const sl_call *call) {
  int64_t n = sl_type_elements(&call->out_type[0]);
  segment *s = run->add(call->nin - 1, call->in + 1, chunks(n, EACH));
  if (!s) return false;
  s->w = (float *)call->out[0];
  s->m = (float *)call->out[1];
  s->v = (float *)call->out[2];
  s->scale = (const float *)call->in[0];
  s->n = n;
  s->numbers = numbers_of(call);
  return true;
}

/* Sums of squares arrive in batches of pointers: the first overwrites the norm, the
 * last turns it from a sum into a length. */
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

} // namespace

size_t sli_cuda_clip_scratch(const sl_call *call) {
  (void)call;
  return sizeof(double); /* the norm, where nobody reads it */
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

void sli_cuda_adamw_run(const sli_cuda_fused *, const sl_call *calls, int ncalls, void *,
                        void *stream) {
  for (int at = 0; at < ncalls;) {
    tensors run = {};
    while (at < ncalls && add_tensor(&run, &calls[at])) at++;
    launch(stream, grid_of(run.blocks), BLOCK, 0, adamw, run);
  }
}

void sli_cuda_adamw(const sl_call *call, void *stream) {
  sli_cuda_adamw_run(NULL, call, 1, NULL, stream);
}
