/* SPDX-License-Identifier: Apache-2.0 */
/* GPU kernels of attention to chosen tokens, of the choice, and of its loss
 * (ops/attention_chosen.c).
 *
 * The choice and the loss keep the scores of ROWS rows at a time. A key's gradient is summed by one
 * block, row after row. */
#include "kernels/cuda/pages.cuh"
#include "kernels/cuda/served.cuh"
#include "ops/attention_shape.h"

namespace {

using namespace sli;

constexpr int64_t ROWS = 128; /* rows whose scores are kept at the same time */

/* Returns the largest x of a block; every thread gets it. */
__device__ inline float block_max(float x) {
  __shared__ float of_warp[WARP];
  for (int k = WARP / 2; k; k /= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, k));
  __syncthreads();
  if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = x;
  __syncthreads();
  for (unsigned w = 0; w < blockDim.x / WARP; w++) x = fmaxf(x, of_warp[w]);
  return x;
}

/* Returns the dot product of two rows, by one thread. */
__device__ inline float dot(const float *x, const float *y, int64_t n) {
  float sum = 0;
  for (int64_t d = 0; d < n; d++) sum += x[d] * y[d];
  return sum;
}

/* Returns the length of a list, which ends with -1 or after `most`. */
__device__ inline int64_t length_of(const int32_t *list, int64_t most) {
  int64_t least = most;
  for (int64_t j = threadIdx.x; j < most && least == most; j += blockDim.x)
    if (list[j] < 0) least = j;
  return most + (int64_t)block_max((float)(most - least)) * -1;
}

/* ---- attention ------------------------------------------------------------------------------- */

struct attention {
  int64_t context, heads, keys, values, count;
  float scale;
  const float *q, *k, *v, *o, *lse, *dout;
  const int32_t *chosen;
  float *out, *out_lse, *dq, *dk, *dv;
};

attention attention_of(const sl_call *call) {
  const sl_type *q = &call->in_type[0], *v = &call->in_type[2];
  attention a = {};
  a.context = q->dim[1];
  a.heads = call->attrs->attention.heads;
  a.keys = q->dim[2] / a.heads;
  a.values = v->dim[2] / a.heads;
  a.count = call->in_type[3].dim[2];
  a.scale = sli_attention_scale(call->attrs, a.keys);
  a.q = (const float *)call->in[0];
  a.k = (const float *)call->in[1];
  a.v = (const float *)call->in[2];
  a.chosen = (const int32_t *)call->in[3];
  return a;
}

/* Block (row, head): a thread scores a key of each tile, and sums numbers of values. */
__global__ void attend_row(attention a) {
  __shared__ float p[BLOCK];
  int64_t row = blockIdx.x, h = blockIdx.y, at = row * a.heads + h;
  int64_t first = row / a.context * a.context;
  const float *q = a.q + at * a.keys;
  const int32_t *list = a.chosen + row * a.count;
  int64_t n = length_of(list, a.count);
  int64_t values = a.out ? a.values : 0;
  float *out = a.out + at * values, top = -INFINITY, total = 0;
  for (int64_t d = threadIdx.x; d < values; d += BLOCK) out[d] = 0;
  for (int64_t j0 = 0; j0 < n; j0 += BLOCK) {
    int64_t j = j0 + threadIdx.x, m = n - j0 < BLOCK ? n - j0 : (int64_t)BLOCK;
    float s = j < n ? a.scale * dot(q, a.k + ((first + list[j]) * a.heads + h) * a.keys, a.keys)
                    : -INFINITY;
    float most = fmaxf(top, block_max(s)), fade = expf(top - most), x = j < n ? expf(s - most) : 0;
    total = total * fade + block_sum(x);
    top = most;
    p[threadIdx.x] = x;
    __syncthreads();
    for (int64_t d = threadIdx.x; d < values; d += BLOCK) {
      float sum = out[d] * fade;
      for (int64_t i = 0; i < m; i++)
        sum += p[i] * a.v[((first + list[j0 + i]) * a.heads + h) * a.values + d];
      out[d] = sum;
    }
    __syncthreads();
  }
  for (int64_t d = threadIdx.x; n && d < values; d += BLOCK) out[d] /= total;
  if (a.out_lse && !threadIdx.x) a.out_lse[at] = n ? top + logf(total) : 0.0f;
}

/* Block (sequence, head): adds the gradients of its rows, in order. */
__global__ void attend_back(attention a) {
  __shared__ float p[BLOCK], ds[BLOCK];
  int64_t first = blockIdx.x * a.context, h = blockIdx.y;
  for (int64_t row = first; row < first + a.context; row++)
    for (int64_t d = threadIdx.x; d < a.keys || d < a.values; d += BLOCK) {
      int64_t at = row * a.heads + h;
      if (a.dq && d < a.keys) a.dq[at * a.keys + d] = 0;
      if (a.dk && d < a.keys) a.dk[at * a.keys + d] = 0;
      if (a.dv && d < a.values) a.dv[at * a.values + d] = 0;
    }
  for (int64_t row = first; row < first + a.context; row++) {
    int64_t at = row * a.heads + h;
    const float *q = a.q + at * a.keys, *dout = a.dout + at * a.values;
    const int32_t *list = a.chosen + row * a.count;
    int64_t n = length_of(list, a.count);
    float mean = dot(a.o + at * a.values, dout, a.values);
    for (int64_t j0 = 0; j0 < n; j0 += BLOCK) {
      int64_t j = j0 + threadIdx.x, m = n - j0 < BLOCK ? n - j0 : (int64_t)BLOCK;
      if (j < n) {
        int64_t key = (first + list[j]) * a.heads + h;
        float x = expf(a.scale * dot(q, a.k + key * a.keys, a.keys) - a.lse[at]);
        p[threadIdx.x] = x;
        ds[threadIdx.x] = a.scale * x * (dot(dout, a.v + key * a.values, a.values) - mean);
      }
      __syncthreads();
      for (int64_t d = threadIdx.x; d < a.keys || d < a.values; d += BLOCK)
        for (int64_t i = 0; i < m; i++) {
          int64_t key = (first + list[j0 + i]) * a.heads + h;
          if (a.dq && d < a.keys) a.dq[at * a.keys + d] += ds[i] * a.k[key * a.keys + d];
          if (a.dk && d < a.keys) a.dk[key * a.keys + d] += ds[i] * q[d];
          if (a.dv && d < a.values) a.dv[key * a.values + d] += p[i] * dout[d];
        }
      __syncthreads();
    }
  }
}

/* ---- choice ---------------------------------------------------------------------------------- */

/* Rows from `row` on choose among keys of pages, or of whole sequences if `batch` is NULL. */
struct choice {
  const sl_batch *batch;
  page_layout layout;
  const void *pages;
  int64_t heads, dim, count, context, row;
  const float *q, *k, *w;
  float *scores; /* [ROWS, context] */
  int32_t *chosen;
};

__device__ inline int64_t position_of(const choice &c, int64_t row) {
  return c.batch ? (int64_t)sl_batch_position(c.batch)[row] : row % c.context;
}

/* Returns number d of the key at a position of a row's sequence. */
template <typename P>
__device__ inline float key_number(const choice &c, int64_t row, int64_t at, int64_t d) {
  if (!c.batch) return c.k[(row / c.context * c.context + at) * c.dim + d];
  const P *page = (const P *)c.pages + page_of(c.batch, row, at) * c.layout.page;
  int64_t j = at % SL_PAGE;
  return page_number(page[j * c.layout.key_row + d]) *
         key_scale(c.layout, page, j, d / SLI_PAGE_BLOCK);
}

/* Returns a number that orders floats as integers do. */
__device__ inline uint32_t rank_of(float x) {
  uint32_t bits;
  x += 0.0f; /* -0 is 0 */
  memcpy(&bits, &x, sizeof bits);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__device__ inline int count_from(const float *x, int64_t n, uint32_t bound) {
  int count = 0;
  for (int64_t j = threadIdx.x; j < n; j += BLOCK) count += rank_of(x[j]) >= bound;
  return block_sum(count);
}

/* Writes the key of row blockIdx.x to its page. */
template <typename P> __global__ void keep_choice(choice c) {
  int64_t row = blockIdx.x, position = position_of(c, row);
  P *page = (P *)const_cast<void *>(c.pages) + page_of(c.batch, row, position) * c.layout.page;
  keep_key(c.layout, page, position % SL_PAGE, c.dim,
           [&](int64_t d) { return c.k[row * c.dim + d]; });
}

/* Block: a row. Each thread scores keys; the list is that of the largest scores, the first of equal
 * ones. */
template <typename P> __global__ void choose(choice c) {
  int64_t row = c.row + blockIdx.x, n = position_of(c, row) + 1;
  float *scores = c.scores + blockIdx.x * c.context;
  const float *q = c.q + row * c.heads * c.dim, *w = c.w + row * c.heads;
  for (int64_t at = threadIdx.x; at < n; at += BLOCK) {
    float sum = 0;
    for (int64_t h = 0; h < c.heads; h++) {
      float s = 0;
      for (int64_t d = 0; d < c.dim; d++) s += q[h * c.dim + d] * key_number<P>(c, row, at, d);
      sum += w[h] * fmaxf(s, 0.0f);
    }
    scores[at] = sum;
  }
  __syncthreads();
  uint32_t bound = 0;
  for (uint32_t bit = 1u << 31; bit && n > c.count; bit >>= 1)
    if (count_from(scores, n, bound | bit) >= c.count) bound |= bit;
  int ties = (int)(n > c.count ? c.count : n), taken = 0, tied = 0;
  if (n > c.count && bound < UINT32_MAX) ties -= count_from(scores, n, bound + 1);
  int32_t *list = c.chosen + row * c.count;
  for (int64_t j0 = 0; j0 < n; j0 += BLOCK) {
    int64_t j = j0 + threadIdx.x;
    uint32_t rank = j < n ? rank_of(scores[j]) : 0;
    bool tie = j < n && rank == bound && n > c.count,
         more = j < n && (rank > bound || c.count >= n);
    const int *up_to = sums_up_to((int)tie);
    bool in = more || (tie && tied + up_to[threadIdx.x] <= ties);
    tied += up_to[BLOCK - 1];
    __syncthreads();
    up_to = sums_up_to((int)in);
    if (in) list[taken + up_to[threadIdx.x] - 1] = (int32_t)j;
    taken += up_to[BLOCK - 1];
    __syncthreads();
  }
  for (int64_t i = taken + threadIdx.x; i < c.count; i += BLOCK) list[i] = -1;
}

choice choice_of(const sl_call *call, int64_t context) {
  choice c = {};
  c.heads = call->attrs->attention.heads;
  c.dim = call->in_type[1].dim[2];
  c.count = call->attrs->attention.tokens;
  c.context = context;
  c.q = (const float *)call->in[0];
  c.k = (const float *)call->in[1];
  c.w = (const float *)call->in[2];
  c.scores = (float *)call->scratch;
  c.chosen = (int32_t *)call->out[0];
  return c;
}

template <typename P> void choose_rows(choice c, int64_t rows, void *stream) {
  for (; c.row < rows; c.row += ROWS)
    launch(stream, grid_of(rows - c.row < ROWS ? rows - c.row : ROWS), BLOCK, 0, choose<P>, c);
}

/* ---- the indexer's loss ---------------------------------------------------------------------- */

struct index_loss {
  int64_t row, context, index_heads, dim, heads, keys, count; /* count 0: no list */
  float scale;
  const float *q, *k, *w, *queries, *all_keys, *dloss;
  const int32_t *chosen;
  float *loss, *dq, *dk, *dw, *p, *scores; /* [ROWS, most] */
  int64_t most;
};

/* The positions that a row sees. */
struct seen {
  int64_t row, first, n;
  const int32_t *list;
  __device__ int64_t at(int64_t j) const { return first + (list ? list[j] : j); }
};

__device__ inline seen seen_of(const index_loss &a, int64_t row) {
  seen s = {row, row / a.context * a.context, row % a.context + 1, NULL};
  if (!a.count) return s;
  s.list = a.chosen + row * a.count;
  s.n = length_of(s.list, a.count);
  return s;
}

/* Returns the logarithm of the sum of exponentials of n numbers. */
__device__ inline float lse_of(const float *x, int64_t n) {
  float top = -INFINITY, sum = 0;
  for (int64_t j = threadIdx.x; j < n; j += BLOCK) top = fmaxf(top, x[j]);
  top = block_max(top);
  for (int64_t j = threadIdx.x; j < n; j += BLOCK) sum += expf(x[j] - top);
  return top + logf(block_sum(sum));
}

/* Block: a row. Computes the attention's mean probabilities and the indexer's scores. Each thread
 * reads only numbers that it wrote. */
__device__ inline void score_row(const index_loss &a, const seen &s, float *p, float *scores) {
  for (int64_t j = threadIdx.x; j < s.n; j += BLOCK) p[j] = 0;
  for (int64_t h = 0; h < a.heads; h++) {
    const float *q = a.queries + (s.row * a.heads + h) * a.keys;
    for (int64_t j = threadIdx.x; j < s.n; j += BLOCK)
      scores[j] = a.scale * dot(q, a.all_keys + (s.at(j) * a.heads + h) * a.keys, a.keys);
    float lse = lse_of(scores, s.n);
    for (int64_t j = threadIdx.x; j < s.n; j += BLOCK)
      p[j] += expf(scores[j] - lse) / (float)a.heads;
  }
  const float *q = a.q + s.row * a.index_heads * a.dim, *w = a.w + s.row * a.index_heads;
  for (int64_t j = threadIdx.x; j < s.n; j += BLOCK) {
    float sum = 0;
    for (int64_t i = 0; i < a.index_heads; i++)
      sum += w[i] * fmaxf(dot(q + i * a.dim, a.k + s.at(j) * a.dim, a.dim), 0.0f);
    scores[j] = sum;
  }
}

__global__ void lose(index_loss a) {
  seen s = seen_of(a, a.row + blockIdx.x);
  float *p = a.p + blockIdx.x * a.most, *scores = a.scores + blockIdx.x * a.most, sum = 0;
  score_row(a, s, p, scores);
  float lse = lse_of(scores, s.n);
  for (int64_t j = threadIdx.x; j < s.n; j += BLOCK)
    if (p[j] > 0) sum += p[j] * (logf(p[j]) - scores[j] + lse);
  sum = block_sum(sum);
  if (!threadIdx.x) a.loss[s.row] = s.n ? sum : 0.0f;
}

/* Block: a row. Turns its probabilities into gradients of its scores, and computes dq and dw. */
__global__ void lose_back(index_loss a) {
  seen s = seen_of(a, a.row + blockIdx.x);
  float *p = a.p + blockIdx.x * a.most, *scores = a.scores + blockIdx.x * a.most, total = 0;
  score_row(a, s, p, scores);
  for (int64_t j = threadIdx.x; j < s.n; j += BLOCK) total += p[j];
  total = block_sum(total);
  float lse = lse_of(scores, s.n), by = a.dloss[s.row];
  for (int64_t j = threadIdx.x; j < s.n; j += BLOCK)
    p[j] = by * (total * expf(scores[j] - lse) - p[j]);
  for (int64_t i = 0; i < a.index_heads; i++) {
    int64_t at = s.row * a.index_heads + i;
    const float *q = a.q + at * a.dim;
    float dw = 0;
    for (int64_t j = threadIdx.x; j < s.n; j += BLOCK) {
      float x = fmaxf(dot(q, a.k + s.at(j) * a.dim, a.dim), 0.0f);
      dw += p[j] * x;
      scores[j] = x > 0 ? p[j] * a.w[at] : 0.0f;
    }
    dw = block_sum(dw);
    if (a.dw && !threadIdx.x) a.dw[at] = dw;
    __syncthreads();
    for (int64_t d = threadIdx.x; a.dq && d < a.dim; d += BLOCK) {
      float sum = 0;
      for (int64_t j = 0; j < s.n; j++) sum += scores[j] * a.k[s.at(j) * a.dim + d];
      a.dq[at * a.dim + d] = sum;
    }
    __syncthreads();
  }
}

/* Block: a key of the rows' sequences. Adds what some rows give to its gradient, row after row. */
__global__ void lose_keys(index_loss a, int64_t rows) {
  __shared__ float by[BLOCK];
  int64_t key = blockIdx.x, first = key / a.context * a.context;
  for (int64_t row = a.row; row < a.row + rows; row++) {
    if (row / a.context * a.context != first) continue;
    const int32_t *list = a.count ? a.chosen + row * a.count : NULL;
    const float *p = a.p + (row - a.row) * a.most;
    float g = 0;
    if (!list && key <= row) g = p[key - first];
    int64_t n = list ? length_of(list, a.count) : 0;
    for (int64_t j = threadIdx.x; j < n; j += BLOCK) g += first + list[j] == key ? p[j] : 0.0f;
    if (list) g = block_sum(g);
    if (g == 0) continue;
    for (int64_t i0 = 0; i0 < a.index_heads; i0 += BLOCK) {
      int64_t i = i0 + threadIdx.x, at = row * a.index_heads;
      if (i < a.index_heads)
        by[threadIdx.x] =
            dot(a.q + (at + i) * a.dim, a.k + key * a.dim, a.dim) > 0 ? g * a.w[at + i] : 0.0f;
      __syncthreads();
      for (int64_t d = threadIdx.x; d < a.dim; d += BLOCK) {
        float sum = a.dk[key * a.dim + d];
        for (int64_t k = i0; k < a.index_heads && k < i0 + BLOCK; k++)
          sum += by[k - i0] * a.q[(at + k) * a.dim + d];
        a.dk[key * a.dim + d] = sum;
      }
      __syncthreads();
    }
  }
}

__global__ void clear_keys(float *x, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) x[i] = 0;
}

index_loss loss_of(const sl_call *call, int chosen) {
  const sl_type *in = call->in_type;
  bool listed = call->nin > chosen && in[chosen].ndim >= 0;
  index_loss a = {};
  a.context = in[2].dim[1];
  a.index_heads = in[2].dim[2];
  a.dim = in[1].dim[2];
  a.heads = call->attrs->attention.heads;
  a.keys = in[3].dim[2] / a.heads;
  a.count = listed ? in[chosen].dim[2] : 0;
  a.most = a.count ? a.count : a.context;
  a.scale = sli_attention_scale(call->attrs, a.keys);
  return a;
}

void give(index_loss *a, const sl_call *call, int chosen) {
  a->q = (const float *)call->in[0];
  a->k = (const float *)call->in[1];
  a->w = (const float *)call->in[2];
  a->queries = (const float *)call->in[3];
  a->all_keys = (const float *)call->in[4];
  a->chosen = a->count ? (const int32_t *)call->in[chosen] : NULL;
  a->p = (float *)call->scratch;
  a->scores = a->p + ROWS * a->most;
}

int64_t rows_of(const sl_call *call) { return sl_type_rows(&call->in_type[0]); }

} // namespace

void sli_cuda_attention_chosen(const sl_call *call, void *stream) {
  attention a = attention_of(call);
  a.out = (float *)call->out[0];
  a.out_lse = (float *)call->out[1];
  launch(stream, dim3((unsigned)rows_of(call), (unsigned)a.heads), BLOCK, 0, attend_row, a);
}

void sli_cuda_attention_chosen_b(const sl_call *call, void *stream) {
  attention a = attention_of(call);
  a.o = (const float *)call->in[4];
  a.lse = (const float *)call->in[5];
  a.dout = (const float *)call->in[6];
  a.dq = (float *)call->out[0];
  a.dk = (float *)call->out[1];
  a.dv = (float *)call->out[2];
  launch(stream, dim3((unsigned)call->in_type[0].dim[0], (unsigned)a.heads), BLOCK, 0, attend_back,
         a);
}

size_t sli_cuda_choose_tokens_scratch(const sl_call *call) {
  return sizeof(float) * (size_t)(ROWS * call->in_type[0].dim[1]);
}

void sli_cuda_choose_tokens(const sl_call *call, void *stream) {
  choose_rows<float>(choice_of(call, call->in_type[0].dim[1]), rows_of(call), stream);
}

size_t sli_cuda_choose_tokens_served_scratch(const sl_call *call) {
  return sizeof(float) * (size_t)(ROWS * (call->attrs->place.length + SL_PAGE));
}

void sli_cuda_choose_tokens_served(const sl_call *call, void *stream) {
  choice c = choice_of(call, call->attrs->place.length + SL_PAGE);
  int64_t rows = served_rows(call);
  c.batch = batch_of(call);
  c.pages = call->out[1];
  if (!rows) return;
  with_pages(sli_pages_storage(call->attrs), [&](auto number) {
    using P = decltype(number);
    c.layout = layout_of_latents<P>(c.dim);
    launch(stream, grid_of(rows), BLOCK, 0, keep_choice<P>, c);
    choose_rows<P>(c, rows, stream);
  });
}

size_t sli_cuda_index_loss_scratch(const sl_call *call) {
  return sizeof(float) * (size_t)(2 * ROWS * loss_of(call, 5).most);
}

size_t sli_cuda_index_loss_b_scratch(const sl_call *call) {
  return sizeof(float) * (size_t)(2 * ROWS * loss_of(call, 6).most);
}

void sli_cuda_index_loss(const sl_call *call, void *stream) {
  index_loss a = loss_of(call, 5);
  int64_t rows = rows_of(call);
  give(&a, call, 5);
  a.loss = (float *)call->out[0];
  for (; a.row < rows; a.row += ROWS)
    launch(stream, grid_of(rows - a.row < ROWS ? rows - a.row : ROWS), BLOCK, 0, lose, a);
}

void sli_cuda_index_loss_b(const sl_call *call, void *stream) {
  index_loss a = loss_of(call, 6);
  int64_t rows = rows_of(call), numbers = rows * a.dim;
  give(&a, call, 6);
  a.dloss = (const float *)call->in[5];
  a.dq = (float *)call->out[0];
  a.dk = (float *)call->out[1];
  a.dw = (float *)call->out[2];
  if (a.dk) launch(stream, grid_of(chunks(numbers, BLOCK)), BLOCK, 0, clear_keys, a.dk, numbers);
  for (; a.row < rows; a.row += ROWS) {
    int64_t more = rows - a.row < ROWS ? rows - a.row : ROWS;
    launch(stream, grid_of(more), BLOCK, 0, lose_back, a);
    if (a.dk) launch(stream, grid_of(rows), BLOCK, 0, lose_keys, a, more);
  }
}
