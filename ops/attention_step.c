/* SPDX-License-Identifier: Apache-2.0 */
/* Attention ops that work chunk by chunk. Most of the keys are on other devices; a device fetches
 * one chunk after another and takes a step with each (ring attention: Liu et al., arXiv 2310.01889,
 * with an online softmax).
 *
 * A step continues from the previous one: o and the lse are the state of an online softmax whose
 * largest score is the lse and whose sum is 1. Steps therefore need only the usual outputs of
 * attention, and merge inside the kernel, in f32. In the backward pass each step has the final lse,
 * so it contributes the same gradients as a single call would. dq accumulates over the steps; the
 * gradients of a chunk's keys and values go to the device that owns them.
 *
 * With attrs.numbers.exact, steps have the bits of one call. The state is that of
 * attention_sweep.c: undivided sums, the largest score and the sum. Tiles of keys are those of the
 * whole sequence. In the backward pass the gradients of a chunk accumulate as well.
 *
 * Spans say which queries meet a chunk's keys. A span is a run of query positions, a run of key
 * positions, and the distance between them. All steps are views for the whole-sequence kernel
 * (vector/attention.h). */
#include "ops/attention_shape.h"
#include "ops/attention_step.h"
#include "ops/attention_table.h"

static bool is_there(int nin, const sl_type *in, int i) { return i < nin && in[i].ndim >= 0; }

static sl_status want_spans(const sl_attrs *attrs, const sl_type *q, const sl_type *kv) {
  const sli_spans *s = sli_spans_of(attrs);
  if (!s) return sl_fail(SL_E_SHAPE, "attrs.user must point to sli_spans");
  for (int i = 0; i < s->n; i++)
    if (s->items[i].query + s->items[i].queries > q->dim[1] ||
        s->items[i].key + s->items[i].keys > kv->dim[1])
      return sl_fail(SL_E_SHAPE, "span %d goes beyond the %lld queries or the %lld keys", i,
                     (long long)q->dim[1], (long long)kv->dim[1]);
  return SL_OK;
}

/* Checks that kv is [B, m, k then v]. */
static sl_status want_chunk(const sl_attrs *attrs, const sl_type *in, sl_type *forward) {
  SLI_TRY(sli_want_array("q", &in[0], SL_F32, 3));
  SLI_TRY(sli_want_array("kv", &in[1], SL_F32, 3));
  if (attrs->attention.heads < 1) return sl_fail(SL_E_SHAPE, "heads must be positive");
  sl_type k =
      sli_type_with_last(&in[0], in[0].dim[2] / attrs->attention.heads * sli_kv_heads(attrs));
  const sl_type whole[] = {in[0], k, k};
  SLI_TRY(sli_attention_infer(attrs, whole, forward));
  k.dim[1] = in[1].dim[1];
  k.dim[2] *= 2;
  SLI_TRY(sli_want("kv", &in[1], &k));
  return want_spans(attrs, &in[0], &in[1]);
}

/* Returns the type of the lse output of a step. */
static sl_type state_type(const sl_attrs *attrs, const sl_type *lse, bool ends) {
  sl_type type = *lse;
  if (attrs->numbers.exact && !ends) type.dim[2] *= 2;
  return type;
}

/* Checks that the tail holds keys of the previous chunk. */
static sl_status want_tail(int nin, const sl_type *in) {
  if (!is_there(nin, in, SLI_STEP_TAIL)) return SL_OK;
  sl_type want = in[1];
  want.dim[1] = SLI_MIN(in[SLI_STEP_TAIL].dim[1], SLI_KEY_TILE);
  return sli_want("tail", &in[SLI_STEP_TAIL], &want);
}

static sl_status want_all_ids(const sl_attrs *attrs, int nin, const sl_type *in, int i) {
  if (!is_there(nin, in, i)) return SL_OK;
  return sli_want("ids", &in[i], &SL_TYPE(SL_I32, in[0].dim[0], sli_spans_of(attrs)->length));
}

static sl_status step_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(want_chunk(attrs, in, out));
  SLI_TRY(want_all_ids(attrs, nin, in, SLI_STEP_IDS));
  if (is_there(nin, in, SLI_STEP_O)) SLI_TRY(sli_want("o", &in[SLI_STEP_O], &out[0]));
  sl_type before = state_type(attrs, &out[1], false);
  if (is_there(nin, in, SLI_STEP_LSE)) SLI_TRY(sli_want("lse", &in[SLI_STEP_LSE], &before));
  out[1] = state_type(attrs, &out[1], sli_spans_of(attrs)->ends);
  return want_tail(nin, in);
}

static sl_status step_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type forward[2];
  SLI_TRY(want_chunk(attrs, in, forward));
  SLI_TRY(sli_want("o", &in[SLI_STEP_BACKWARD_O], &forward[0]));
  SLI_TRY(sli_want("lse", &in[SLI_STEP_BACKWARD_LSE], &forward[1]));
  SLI_TRY(sli_want("do", &in[SLI_STEP_BACKWARD_DO], &forward[0]));
  SLI_TRY(want_all_ids(attrs, nin, in, SLI_STEP_BACKWARD_IDS));
  if (is_there(nin, in, SLI_STEP_BACKWARD_DQ))
    SLI_TRY(sli_want("dq", &in[SLI_STEP_BACKWARD_DQ], &in[0]));
  if (is_there(nin, in, SLI_STEP_BACKWARD_DKV))
    SLI_TRY(sli_want("dkv", &in[SLI_STEP_BACKWARD_DKV], &in[1]));
  out[0] = in[0];
  out[1] = in[1];
  return SL_OK;
}

/* ---- costs ---------------------------------------------------------------------------- */

/* Returns the sum of n consecutive integers from `first` on, each clamped to [0, most]. */
static double clamped_sum(int64_t first, int64_t n, int64_t most) {
  int64_t below = SLI_MAX(0, SLI_MIN(n, -first)), above = SLI_MAX(0, SLI_MIN(n, first + n - most));
  double rising = (double)(n - below - above);
  if (rising < 0) return (double)above * (double)most;
  double sli_begin = (double)(first + below);
  return rising * sli_begin + rising * (rising - 1) / 2 + (double)above * (double)most;
}

/* Returns the number of (query, key) pairs inside the mask. */
static double pairs_of(const sl_attrs *attrs, const sli_span *s) {
  sli_mask mask = sli_step_mask(attrs, NULL);
  int64_t ahead = s->at_query - s->at_key;
  return clamped_sum(ahead + mask.ahead + 1, s->queries, s->keys) -
         clamped_sum(ahead - mask.behind, s->queries, s->keys);
}

static void cost(const sl_attrs *attrs, int products, int nin, const sl_type *in, int nout,
                 const sl_type *out, double *flops, double *bytes) {
  const sli_spans *s = sli_spans_of(attrs);
  double pairs = 0;
  for (int i = 0; i < s->n; i++) pairs += pairs_of(attrs, &s->items[i]);
  *flops = 2 * products * pairs * (double)(in[0].dim[0] * in[0].dim[2]);
  *bytes = sli_argument_bytes(nin, in, nout, out);
}

static void step_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                      double *flops, double *bytes) {
  cost(attrs, 2, nin, in, 2, out, flops, bytes);
}

static void step_b_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                        double *flops, double *bytes) {
  cost(attrs, 5, nin, in, 2, out, flops, bytes);
}

/* ---- ops ------------------------------------------------------------------------------- */

static uint64_t hash_spans(uint64_t hash, const sl_attrs *attrs, int nin) {
  const sli_spans *s = sli_spans_of(attrs);
  (void)nin;
  hash = sli_hash_word(sli_hash_word(hash, (uint64_t)s->n), (uint64_t)s->length);
  hash = sli_hash_word(hash, s->ends);
  for (int i = 0; i < s->n; i++) {
    const sli_span *x = &s->items[i];
    const int64_t words[] = {x->query,    x->queries, x->key,  x->keys,
                             x->at_query, x->at_key,  x->fresh};
    for (size_t w = 0; w < SLI_COUNT(words); w++) hash = sli_hash_word(hash, (uint64_t)words[w]);
  }
  return hash;
}

const sl_op sl_op_attention_step = {
    .name = "attention_step",
    .attrs = {&sl_attrs_attention},
    .min_in = 2,
    .max_in = SLI_STEP_INPUTS,
    .nout = 2,
    .memory = &(const sl_op_memory){.in_place = {1u << SLI_STEP_O, 1u << SLI_STEP_LSE}},
    .narrow = &(const sl_op_narrow){.rounds = true},
    .infer = step_infer,
    .cost = step_cost,
    .hash = hash_spans,
};

const sl_op sl_op_attention_step_b = {
    .name = "attention_step_b",
    .attrs = {&sl_attrs_attention},
    .min_in = 5,
    .max_in = SLI_STEP_BACK_INPUTS,
    .nout = 2,
    .memory = &(
        const sl_op_memory){.in_place = {1u << SLI_STEP_BACKWARD_DQ, 1u << SLI_STEP_BACKWARD_DKV}},
    .narrow = &(const sl_op_narrow){.rounds = true},
    .infer = step_b_infer,
    .cost = step_b_cost,
    .hash = hash_spans,
};
