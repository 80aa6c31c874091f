/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling of the next tokens. A block chooses the token of one pick; only the tokens leave the
 * device. The choices are those of kernels/cpu/sample.c, up to the rounding of sums.
 *
 * Tokens are ordered by logit, largest first, then by number: this order is a 64-bit key. Instead
 * of sorting, a block finds the first key at which a count or a sum over all tokens up to it
 * reaches a bound, bit by bit. Sums are taken in a fixed order, so a pick does not depend on its
 * batch. */
#include "kernels/cuda/loss.cuh"
#include "kernels/cuda/served.cuh"
#include "ops/sampled.h"

namespace {

using namespace sli;

struct sampling {
  const sl_batch *batch;
  const float *logits; /* [picks, n] */
  int64_t n;
  const int32_t *allowed; /* [picks, words] bits of tokens, or NULL */
  int64_t words;
  float *choices;  /* [picks, n] edited logits */
  double *weights; /* [picks, n] */
  sl_sampled *out;
};

/* Candidates of a block. */
struct choices {
  const float *logits;
  double *weights;
  int64_t n;
  float least; /* lowest logit that passes min_p */
};

/* ---- settings -------------------------------------------------------------------------------- */

__device__ inline int32_t sequence_of(const sl_batch *batch, int64_t pick) {
  return sl_batch_sequence_of(batch)[sl_batch_pick(batch)[pick]];
}

/* Returns the settings of a pick: those of its sequence, advanced by the picks before it. */
__device__ inline sl_batch_sequence settings_of(const sl_batch *batch, int64_t i) {
  int32_t sequence = sequence_of(batch, i), behind = 0;
  while (behind < i && sequence_of(batch, i - behind - 1) == sequence) behind++;
  sl_batch_sequence how = sl_batch_settings(batch)[sequence];
  how.place += behind;
  how.edits += how.more * behind;
  return how;
}

/* Returns a number in [0, 1) for each position of the text (splitmix64). */
__device__ inline double draw(const sl_batch_sequence &how) {
  uint64_t seed = (uint64_t)how.seed[1] << 32 | how.seed[0];
  uint64_t z = seed * UINT64_C(0xd1342543de82ef95) +
               ((uint64_t)how.place + 1) * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Returns the key of a token. 0 and -0 are equal. */
__device__ inline uint64_t order_of(float logit, int64_t token) {
  float x = logit + 0.0f;
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  uint32_t rising = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return (uint64_t)~rising << 32 | (uint32_t)token;
}
__device__ inline int32_t token_of(uint64_t key) { return (int32_t)(uint32_t)key; }
constexpr uint64_t NO_KEY = ~(uint64_t)0;

__device__ inline uint64_t block_least(uint64_t x) {
  __shared__ uint64_t of_warp[WARP];
#pragma unroll
  for (int k = WARP / 2; k; k /= 2) {
    uint64_t other = __shfl_xor_sync(ALL, x, k);
    x = other < x ? other : x;
  }
  __syncthreads();
  if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = x;
  __syncthreads();
  x = of_warp[0];
  for (unsigned w = 1; w < blockDim.x / WARP; w++) x = of_warp[w] < x ? of_warp[w] : x;
  return x;
}

/* Returns the first key after `after`, or the first of all (`any`). */
__device__ inline uint64_t next_key(const float *logits, int64_t n, uint64_t after, bool any) {
  uint64_t least = NO_KEY;
  for (int64_t v = threadIdx.x; v < n; v += BLOCK) {
    uint64_t key = order_of(logits[v], v);
    if ((any || key > after) && key < least) least = key;
  }
  return block_least(least);
}

/* Returns the first key for which reached(key) holds, NO_KEY if there is none. It holds for all
 * later keys too. */
template <typename F> __device__ inline uint64_t first_key(F reached) {
  if (!reached(NO_KEY)) return NO_KEY;
  uint64_t key = 0;
  for (uint64_t bit = (uint64_t)1 << 63; bit; bit >>= 1)
    if (!reached(key | (bit - 1))) key |= bit;
  return key;
}

__device__ inline int64_t count_up_to(const choices &c, uint64_t key) {
  int64_t count = 0;
  for (int64_t v = threadIdx.x; v < c.n; v += BLOCK)
    count += c.logits[v] >= c.least && order_of(c.logits[v], v) <= key;
  return block_sum(count);
}

__device__ inline double weight_up_to(const choices &c, uint64_t key) {
  double sum = 0;
  for (int64_t v = threadIdx.x; v < c.n; v += BLOCK)
    if (order_of(c.logits[v], v) <= key) sum += c.weights[v];
  return block_sum(sum);
}

/* ---- edits ----------------------------------------------------------------------------------- */

__device__ inline float edit(const sl_batch_edit &e, float x) {
  x += e.bias;
  return (x > 0 ? x / e.scale : x * e.scale) - e.less;
}

/* Writes -infinity for tokens that are not allowed; returns whether any other logit remains. */
__device__ inline bool mask(const int32_t *allowed, const float *logits, int64_t n, float *out) {
  bool any = false;
  for (int64_t v = threadIdx.x; v < n; v += BLOCK) {
    out[v] = (uint32_t)allowed[v / 32] >> v % 32 & 1 ? logits[v] : -INFINITY;
    any |= out[v] > -INFINITY;
  }
  return __syncthreads_or(any);
}

/* Writes the edited logits of tokens; of several edits of a token the last applies. */
__device__ inline void apply_edits(const sl_batch_edit *edits, int32_t count, const float *logits,
                                   float *out) {
  for (int32_t k = (int32_t)threadIdx.x; k < count; k += BLOCK) {
    bool last = true;
    for (int32_t j = k + 1; j < count && last; j++) last = edits[j].token != edits[k].token;
    if (last) out[edits[k].token] = edit(edits[k], logits[edits[k].token]);
  }
}

/* Returns the logits that pick i chooses from: those of the model, or a copy. A constraint
 * overrides edits that leave no token. */
__device__ inline const float *choices_of(const sampling &s, const sl_batch_sequence &how,
                                          int64_t i, const float *logits) {
  bool constrained = s.allowed && how.constrained;
  float *out = s.choices + i * s.n;
  if (!how.edits && !constrained) return logits;
  for (int64_t v = threadIdx.x; v < s.n; v += BLOCK) out[v] = logits[v];
  __syncthreads();
  apply_edits(sl_batch_edits(s.batch) + how.edit, how.edits, logits, out);
  __syncthreads();
  const int32_t *allowed = s.allowed + i * s.words;
  if (constrained && !mask(allowed, out, s.n, out)) mask(allowed, logits, s.n, out);
  __syncthreads();
  return out;
}

/* ---- one token ------------------------------------------------------------------------------- */

/* Chooses among all tokens, in their order. Each thread has adjacent ones. */
__device__ inline int32_t choose_any(const choices &c, double at, int32_t best) {
  __shared__ int32_t chosen;
  int64_t each = (c.n + BLOCK - 1) / BLOCK, begin = threadIdx.x * each;
  int64_t end = begin + each < c.n ? begin + each : c.n;
  double sum = 0;
  for (int64_t v = begin; v < end; v++) sum += c.weights[v];
  const double *sums = sums_up_to(sum);
  double before = threadIdx.x ? sums[threadIdx.x - 1] : 0, left = at * sums[BLOCK - 1] - before;
  if (!threadIdx.x) chosen = best;
  __syncthreads();
  if (left >= 0 && before + left < sums[threadIdx.x]) {
    int32_t token = best;
    for (int64_t v = begin; v < end && left >= 0; v++) {
      if (c.weights[v] > 0) token = (int32_t)v;
      left -= c.weights[v];
    }
    chosen = token;
  }
  __syncthreads();
  return chosen;
}

/* Chooses among the most likely tokens only. */
__device__ inline int32_t choose_likely(const sl_batch_sequence &how, const choices &c, double at,
                                        int32_t best) {
  uint64_t last = NO_KEY;
  if (how.top_k > 0) last = first_key([&](uint64_t k) { return count_up_to(c, k) >= how.top_k; });
  if (how.top_p > 0 && how.top_p < 1) {
    double all = weight_up_to(c, last), part = (double)how.top_p * all;
    uint64_t key = first_key([&](uint64_t k) { return weight_up_to(c, k) >= part; });
    last = key < last ? key : last;
  }
  double left = at * weight_up_to(c, last);
  uint64_t key = first_key([&](uint64_t k) { return weight_up_to(c, k) > left; });
  return key <= last && key != NO_KEY ? token_of(key) : best;
}

__device__ inline int32_t sample_token(const sampling &s, const sl_batch_sequence &how, int64_t i,
                                       const float *logits) {
  choices c = {choices_of(s, how, i, logits), s.weights + i * s.n, s.n, -INFINITY};
  int32_t best = token_of(next_key(c.logits, c.n, 0, true));
  if (how.temperature <= 0) return best;
  double t = (double)how.temperature, top = (double)c.logits[best];
  if (how.min_p > 0) c.least = fminf((float)(top + t * log((double)how.min_p)), c.logits[best]);
  for (int64_t v = threadIdx.x; v < c.n; v += BLOCK)
    c.weights[v] = c.logits[v] >= c.least ? exp(((double)c.logits[v] - top) / t) : 0;
  __syncthreads();
  bool likely = how.top_k > 0 || (how.top_p > 0 && how.top_p < 1);
  return likely ? choose_likely(how, c, draw(how), best) : choose_any(c, draw(how), best);
}

/* ---- reports --------------------------------------------------------------------------------- */

/* Reports the log-probability of the token, and the most likely tokens. */
__device__ inline void report_likely(const sl_batch_sequence &how, const float *logits, int64_t n,
                                     sl_sampled *out) {
  sli_soft soft = row_soft(logits, n);
  float lse = soft.top + logf(soft.total);
  int64_t most = how.logprobs < SL_BATCH_TOP ? how.logprobs : SL_BATCH_TOP;
  int32_t count = (int32_t)(most < n ? most : n);
  uint64_t key = 0;
  for (int32_t i = 0; i < count; i++) {
    key = next_key(logits, n, key, !i);
    if (threadIdx.x) continue;
    out->top[i] = token_of(key);
    out->top_logprob[i] = logits[token_of(key)] - lse;
  }
  if (threadIdx.x) return;
  out->ntop = count > 0 ? count : 0;
  out->logprob = logits[out->token] - lse;
}

/* One block per pick. */
__global__ void sample(sampling s) {
  int64_t i = blockIdx.x;
  if (i >= s.batch->picks) return;
  const float *logits = s.logits + i * s.n;
  sl_sampled *out = s.out + i;
  bool odd = false;
  for (size_t w = threadIdx.x; w < sizeof *out / sizeof(int32_t); w += BLOCK)
    ((int32_t *)out)[w] = 0;
  for (int64_t v = threadIdx.x; v < s.n; v += BLOCK) odd |= !(fabsf(logits[v]) < INFINITY);
  if (__syncthreads_or(odd)) return;
  const sl_batch_sequence how = settings_of(s.batch, i);
  int32_t token = sl_batch_given(s.batch)[i] - 1;
  if (token < 0) token = sample_token(s, how, i, logits);
  if (!threadIdx.x) {
    uint64_t hash = how.hash ? sli_logits_hash(logits, s.n) : 0;
    out->finite = 1;
    out->token = token;
    out->hash[0] = (uint32_t)hash;
    out->hash[1] = (uint32_t)(hash >> 32);
  }
  __syncthreads();
  if (how.logprobs >= 0) report_likely(how, logits, s.n, out);
}

size_t logits_of(const sl_call *call) { return (size_t)sl_type_elements(&call->in_type[0]); }

} // namespace

size_t sli_cuda_sample_scratch(const sl_call *call) {
  return logits_of(call) * (sizeof(double) + sizeof(float));
}

void sli_cuda_sample(const sl_call *call, void *stream) {
  int64_t picks = sl_call_rows(call, 0, call->in_type[0].dim[1]);
  double *weights = (double *)call->scratch;
  bool constrained = call->nin > 2;
  sampling s = {(const sl_batch *)call->in[1],
                (const float *)call->in[0],
                sl_type_last(&call->in_type[0]),
                constrained ? (const int32_t *)call->in[2] : nullptr,
                constrained ? sl_type_last(&call->in_type[2]) : 0,
                (float *)(weights + logits_of(call)),
                weights,
                (sl_sampled *)call->out[0]};
  if (picks) launch(stream, grid_of(picks), BLOCK, 0, sample, s);
}
