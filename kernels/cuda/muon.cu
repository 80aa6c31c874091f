/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA kernel of Muon. cuBLASLt computes its products, in f32. The matrix X has the order of the
 * parameter; products with more rows than columns take it transposed, so that the square matrices
 * are small. */
#include "kernels/cuda/device.cuh"
#include "ops/muon.h"

namespace {

using namespace sli;

enum { GRAM, SQUARE, APPLY, PRODUCTS };

/* Products of an iteration, with side the smaller dim of X (n x n stands for side x side):
 * GRAM: A = X X^T or X^T X; SQUARE: B += (c A) A; APPLY: next += B X or X B. */
struct products {
  sl_attrs attrs[PRODUCTS];
  sl_type in[PRODUCTS][2], out[PRODUCTS];
  void *state[PRODUCTS];
};

/* Arrays in the scratch, of one size each: X, its next value, and the square ones. */
struct arrays {
  double *sums; /* partial sums, then the sum of squares */
  float *x, *next, *gram, *scaled, *square;
  void *workspace;
};

constexpr int64_t CHUNK = 16384;

int64_t side_of(const sl_type *x) { return x->dim[0] < x->dim[1] ? x->dim[0] : x->dim[1]; }

int64_t chunks_of(const sl_call *call) {
  return chunks(sl_type_elements(&call->out_type[0]), CHUNK);
}

products products_of(const sl_call *call) {
  const sl_type *x = &call->out_type[0];
  bool turned = x->dim[0] > x->dim[1];
  sl_type square = SL_TYPE(SL_F32, side_of(x), side_of(x));
  products p = {};
  p.attrs[GRAM].product.left_transposed = turned;
  p.attrs[GRAM].product.transposed = !turned;
  p.in[GRAM][0] = p.in[GRAM][1] = *x;
  p.out[GRAM] = p.out[SQUARE] = p.in[SQUARE][0] = p.in[SQUARE][1] = square;
  p.in[APPLY][turned] = square;
  p.in[APPLY][!turned] = p.out[APPLY] = *x;
  return p;
}

sl_call product_call(const products *p, int which) {
  sl_call call = {};
  call.op = &sl_op_matmul;
  call.attrs = &p->attrs[which];
  call.nin = 2;
  call.nout = 1;
  call.in_type = p->in[which];
  call.out_type = &p->out[which];
  call.state = p->state[which];
  call.accumulate = which != GRAM;
  return call;
}

void multiply(const sl_call *call, int which, const float *a, const float *b, float *c,
              void *workspace, void *stream) {
  const void *in[] = {a, b};
  void *out[] = {c};
  sl_call product = product_call((const products *)call->state, which);
  product.in = in;
  product.out = out;
  product.scratch = workspace;
  sli_cuda_matmul(&product, stream);
}

/* ---- elements -------------------------------------------------------------------------------- */

struct gradient {
  const void *of[SLI_CUDA_PARTS];
  int count;
  const float *scale;
};

/* Updates the momentum of a chunk of elements, a block per chunk, and stores u and its sum of
 * squares. */
__global__ void mix(const __grid_constant__ gradient g, float b, float *m, float *u, int64_t n,
                    double *sums) {
  double sum = 0;
  int64_t begin = (int64_t)blockIdx.x * CHUNK, end = begin + CHUNK < n ? begin + CHUNK : n;
  parts p = {g.of, g.count};
  float scale = *g.scale * (1 - b);
  for (int64_t e = begin + threadIdx.x; e < end; e += BLOCK) {
    float x[1];
    add_up<1, float>(x, p, e);
    x[0] *= scale;
    m[e] = b * m[e] + x[0];
    u[e] = x[0] + b * m[e];
    sum += (double)u[e] * (double)u[e];
  }
  sum = block_sum(sum);
  if (!threadIdx.x) sums[blockIdx.x] = sum;
}

__global__ void normalize(const float *u, const double *sum, float *x, int64_t n) {
  int64_t e = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  double norm = sqrt(*sum);
  if (e < n) x[e] = (float)(1 / (norm > 1e-7 ? norm : 1e-7)) * u[e];
}

/* y = a x; z = b x, unless z is NULL. */
__global__ void scale(const float *x, float a, float *y, float b, float *z, int64_t n) {
  int64_t e = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (e >= n) return;
  y[e] = a * x[e];
  if (z) z[e] = b * x[e];
}

__global__ void step(const float *x, float keep, float lr, float *p, int64_t n) {
  int64_t e = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (e < n) p[e] = keep * p[e] - lr * x[e];
}

dim3 blocks_for(int64_t n) { return grid_of(chunks(n, BLOCK)); }

/* ---- the step -------------------------------------------------------------------------------- */

size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* Lays out the scratch and returns its bytes. */
size_t lay_out(const sl_call *call, arrays *a) {
  const sl_type *x = &call->out_type[0];
  size_t whole = aligned(sl_type_bytes(x));
  size_t square = aligned(sizeof(float) * (size_t)(side_of(x) * side_of(x)));
  char *at = (char *)call->scratch;
  products p = products_of(call);
  sl_call product = product_call(&p, GRAM);
  auto take = [&](size_t bytes) {
    char *from = at;
    at += bytes;
    return from;
  };
  a->sums = (double *)take(aligned(sizeof(double) * (size_t)(chunks_of(call) + 1)));
  a->x = (float *)take(whole);
  a->next = (float *)take(whole);
  a->gram = (float *)take(square);
  a->scaled = (float *)take(square);
  a->square = (float *)take(square);
  a->workspace = take(sli_cuda_matmul_scratch(&product));
  return (size_t)(at - (char *)call->scratch);
}

/* Takes a Newton-Schulz step towards the nearest matrix with equal singular values. */
void newton_schulz(const sl_call *call, arrays *a, void *stream) {
  const sl_type *x = &call->out_type[0];
  int64_t n = sl_type_elements(x), squares = side_of(x) * side_of(x);
  bool turned = x->dim[0] > x->dim[1];
  multiply(call, GRAM, a->x, a->x, a->gram, a->workspace, stream);
  launch(stream, blocks_for(squares), BLOCK, 0, scale, (const float *)a->gram, SLI_MUON_C,
         a->scaled, SLI_MUON_B, a->square, squares);
  multiply(call, SQUARE, a->scaled, a->gram, a->square, a->workspace, stream);
  launch(stream, blocks_for(n), BLOCK, 0, scale, (const float *)a->x, SLI_MUON_A, a->next, 0.0f,
         (float *)nullptr, n);
  multiply(call, APPLY, turned ? a->x : a->square, turned ? a->square : a->x, a->next, a->workspace,
           stream);
  float *made = a->next;
  a->next = a->x;
  a->x = made;
}

void release_products(products *p) {
  for (int i = 0; i < PRODUCTS; i++) sli_cuda_matmul_release(p->state[i]);
  delete p;
}

} // namespace

size_t sli_cuda_muon_scratch(const sl_call *call) {
  arrays a;
  return lay_out(call, &a);
}

sl_status sli_cuda_muon_prepare(const sl_call *call, void **state) {
  sl_status status = sli_cuda_parts_prepare(call, state);
  if (status) return status;
  products *p = new products(products_of(call));
  for (int i = 0; i < PRODUCTS && !status; i++) {
    sl_call product = product_call(p, i);
    status = sli_cuda_matmul_prepare(&product, &p->state[i]);
  }
  if (status) release_products(p);
  else *state = p;
  return status;
}

void sli_cuda_muon_release(void *state) { release_products((products *)state); }

void sli_cuda_muon(const sl_call *call, void *stream) {
  const sl_optimizer *o = (const sl_optimizer *)call->attrs->user;
  const sl_type *type = &call->out_type[0];
  int64_t n = sl_type_elements(type), count = chunks_of(call);
  double ratio = (double)type->dim[0] / (double)type->dim[1];
  float lr = sl_optimizer_lr(o, call->tick.step);
  arrays a;
  gradient g = {};
  lay_out(call, &a);
  for (; g.count < call->nin - 1; g.count++) g.of[g.count] = call->in[1 + g.count];
  g.scale = (const float *)call->in[0];
  launch(stream, grid_of(count), BLOCK, 0, mix, g, o->momentum, (float *)call->out[1], a.next, n,
         a.sums + 1);
  sum_all(stream, a.sums + 1, count, 1, a.sums);
  launch(stream, blocks_for(n), BLOCK, 0, normalize, (const float *)a.next, (const double *)a.sums,
         a.x, n);
  for (int i = 0; i < SLI_MUON_STEPS; i++) newton_schulz(call, &a, stream);
  launch(stream, blocks_for(n), BLOCK, 0, step, (const float *)a.x,
         1 - lr * sl_optimizer_decay(o, 2), (float)((double)lr * sqrt(ratio > 1 ? ratio : 1)),
         (float *)call->out[0], n);
}
