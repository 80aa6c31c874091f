/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of attention in steps, chunk by chunk (ring attention: Liu et al., arXiv 2310.01889).
 * ops/attention_step.c describes the steps and the spans.
 *
 * Each span is a view for the whole-sequence kernel (vector/attention.h). */
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/attention_shape.h"
#include "ops/attention_step.h"
#include "ops/ops.h"

/* ---- kernels --------------------------------------------------------------------------- */

/* Initialises an output with the state that the previous step left. */
static void attention_step_begin(const sl_call *call, int i, int o, void *to) {
  const void *from = sli_optional(call, i);
  size_t bytes = sl_type_bytes(&call->out_type[o]);
  if (!to || from == to) return;
  if (from) memcpy(to, from, bytes);
  else memset(to, 0, bytes);
}

/* Fills the sizes of a span, and the addresses of its first rows. */
static sli_attention view(const sl_call *call, const sli_span *s, const void *ids) {
  const sl_attrs *attrs = call->attrs;
  const sl_type *q = &call->in_type[0], *kv = &call->in_type[1];
  int64_t dim = q->dim[2] / attrs->attention.heads, own = sli_kv_heads(attrs) * dim,
          row = q->dim[2];
  sli_attention a = {.batch = q->dim[0],
                     .queries = s->queries,
                     .q0 = s->at_query - s->at_key,
                     .keys = s->keys,
                     .heads = attrs->attention.heads,
                     .kv_heads = sli_kv_heads(attrs),
                     .dim = dim,
                     .q_row = row,
                     .q_batch = q->dim[1] * row,
                     .dq_row = row,
                     .dq_batch = q->dim[1] * row,
                     .o_row = row,
                     .o_batch = q->dim[1] * row,
                     .kv_row = 2 * own,
                     .kv_batch = kv->dim[1] * 2 * own,
                     .part = {q->dim[1], kv->dim[1] * 2 * own, {0, s->keys}, false, 0},
                     .mask = sli_step_mask(attrs, ids),
                     .scale = sli_attention_scale(attrs, dim),
                     .bf16 = attrs->numbers.bf16};
  if (ids) a.mask.ids += s->at_key;
  a.q = (const float *)call->in[0] + s->query * row;
  a.k = (const float *)call->in[1] + s->key * a.kv_row;
  a.v = a.k + own;
  return a;
}

/* Scratch for the lse, which the last step need not output. */
static size_t step_scratch(const sl_call *call, int threads) {
  (void)threads;
  return sl_type_bytes(&call->out_type[1]);
}

/* Fills the sizes of an exact step of a span, by positions in the whole sequence. */
static sli_sweep view_exact(const sl_call *call, const sli_span *s, float *seen) {
  const sli_spans *all = sli_spans_of(call->attrs);
  sli_sweep w = {.a = view(call, s, NULL), .begins = s->fresh, .ends = all->ends};
  w.a.q0 = s->at_query;
  w.a.keys = all->length;
  w.a.part.has = (sli_range){s->at_key, s->at_key + s->keys};
  w.a.mask = sli_step_mask(call->attrs, sli_optional(call, SLI_STEP_IDS));
  w.a.out = (float *)call->out[0] + s->query * w.a.o_row;
  w.a.lse = all->ends && call->out[1] ? (float *)call->out[1] + s->query : NULL;
  w.seen = seen ? seen + s->query : NULL;
  w.tail = sli_optional(call, SLI_STEP_TAIL);
  w.tail_batch = w.tail ? call->in_type[SLI_STEP_TAIL].dim[1] * w.a.kv_row : 0;
  w.tail_place = w.a.part.has.end % SLI_KEY_TILE;
  return w;
}

/* Takes a step that continues the sums of one call; the last step divides and writes the lse. */
static void step_exact(const sl_call *call) {
  const sli_spans *s = sli_spans_of(call->attrs);
  float *seen = (float *)sli_optional(call, SLI_STEP_LSE);
  attention_step_begin(call, SLI_STEP_O, 0, call->out[0]);
  if (!s->ends) {
    seen = call->out[1] ? call->out[1] : call->scratch;
    attention_step_begin(call, SLI_STEP_LSE, 1, seen);
  }
  for (int i = 0; i < s->n; i++) {
    sli_sweep w = view_exact(call, &s->items[i], seen);
    sl_team_for(call->team, (int)(w.a.batch * w.a.heads * sli_query_tiles(&w.a)),
                sli_cpu()->attention_sweep, &w);
  }
}

static void step_cpu(const sl_call *call) {
  const sli_spans *s = sli_spans_of(call->attrs);
  float *lse = call->out[1] ? call->out[1] : call->scratch;
  if (call->attrs->numbers.exact) {
    step_exact(call);
    return;
  }
  attention_step_begin(call, SLI_STEP_O, 0, call->out[0]);
  attention_step_begin(call, SLI_STEP_LSE, 1, lse);
  for (int i = 0; i < s->n; i++) {
    sli_attention a = view(call, &s->items[i], sli_optional(call, SLI_STEP_IDS));
    a.resumes = !s->items[i].fresh;
    a.out = (float *)call->out[0] + s->items[i].query * a.o_row;
    a.lse = lse + s->items[i].query;
    sl_team_for(call->team, sli_attention_cut(&a, call->team), sli_cpu()->attention, &a);
  }
}

static void step_b_cpu(const sl_call *call) {
  const sli_spans *s = sli_spans_of(call->attrs);
  float *dq = call->out[0], *dkv = call->out[1];
  attention_step_begin(call, SLI_STEP_BACKWARD_DQ, 0, dq);
  attention_step_begin(call, SLI_STEP_BACKWARD_DKV, 1, dkv);
  for (int i = 0; i < s->n; i++) {
    sli_attention a = view(call, &s->items[i], sli_optional(call, SLI_STEP_BACKWARD_IDS));
    int64_t from = s->items[i].query * a.o_row;
    a.resumes = a.part.adds_dkv = true;
    a.o = (const float *)call->in[SLI_STEP_BACKWARD_O] + from;
    a.do_ = (const float *)call->in[SLI_STEP_BACKWARD_DO] + from;
    a.lse = (float *)call->in[SLI_STEP_BACKWARD_LSE] + s->items[i].query;
    a.dq = dq ? dq + from : NULL;
    a.dk = dkv ? dkv + s->items[i].key * a.kv_row : NULL;
    a.dv = dkv ? a.dk + a.kv_heads * a.dim : NULL;
    sl_team_for(call->team, (int)(a.batch * a.kv_heads), sli_cpu()->attention_b, &a);
  }
}

const sl_kernel sli_cpu_attention_step = {
    .backend = "cpu",
    .run = step_cpu,
    .scratch = step_scratch,
};

const sl_kernel sli_cpu_attention_step_b = {.backend = "cpu", .run = step_b_cpu};
