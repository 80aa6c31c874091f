/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of attention over the pages of the KV cache. ops/served_attention.c describes the
 * order of the sums. */
#include "kernels/cpu/served_attention.h"

#include "kernels/cpu/kernels.h"
#include "ops/attention_shape.h"

size_t sli_served_scratch(const sl_call *call, int threads) {
  (void)threads;
  return (size_t)call->in_type[0].dim[1] * sizeof(sli_run);
}

int sli_served_runs(const sl_batch *batch, sli_run *runs) {
  const int32_t *sequence = sl_batch_sequence_of(batch);
  int n = 0;
  for (int32_t r = 0; r < batch->rows; r++) {
    bool more = n && sequence[r] == sequence[r - 1] && runs[n - 1].rows < SLI_SERVED_RUN;
    if (more) runs[n - 1].rows++;
    else runs[n++] = (sli_run){r, 1};
  }
  return n;
}

/* Returns the number of parts into which the query heads of a KV head are cut: as few as keep all
 * threads busy. */
static int parts_for(const sli_served_attention *a, int runs, int threads) {
  int chunks = SLI_MAX(runs, 1) * (int)a->kv_heads;
  return SLI_MIN((threads + chunks - 1) / chunks, (int)(a->heads / a->kv_heads));
}

void sli_served_attend(const sl_call *call, sli_served_attention *a) {
  const sl_attrs *attrs = call->attrs;
  a->batch = sli_batch_of(call);
  a->heads = attrs->heads;
  a->kv_heads = sli_kv_heads(attrs);
  a->dim = call->out_type[0].dim[2] / a->heads;
  a->behind = attrs->window > 0 ? attrs->window - 1 : INT32_MAX;
  a->shown = attrs->shown;
  a->scale = sli_attention_scale(attrs, a->dim);
  a->cap = attrs->value;
  a->out = call->out[0];
  a->o_row = call->out_type[0].dim[2];
  a->pages = call->out[2];
  a->storage = sli_pages_storage(attrs);
  a->runs = call->scratch;
  int runs = sli_served_runs(a->batch, call->scratch);
  sl_team_for(call->team, a->batch->rows, sli_cpu()->served_keys, a);
  a->parts = parts_for(a, runs, sl_team_size(call->team));
  sl_team_for(call->team, runs * (int)a->kv_heads * a->parts, sli_cpu()->served_attention, a);
}

static void served_cpu(const sl_call *call) {
  sli_served_attention a = {.q = call->in[0],
                            .k = call->in[1],
                            .v = call->in[2],
                            .q_row = call->in_type[0].dim[2],
                            .kv_row = call->in_type[1].dim[2]};
  sli_served_attend(call, &a);
}

static void dual_cpu(const sl_call *call) {
  sli_served_attention a = {.q = call->in[0],
                            .k = call->in[1],
                            .v = call->in[2],
                            .q_row = call->in_type[0].dim[2],
                            .kv_row = call->in_type[1].dim[2],
                            .dual = {call->attrs->chunk, {call->in[3], call->in[4]}}};
  sli_served_attend(call, &a);
}

static void packed_cpu(const sl_call *call) {
  int64_t q = call->out_type[0].dim[2], row = call->in_type[0].dim[2], kv = (row - q) / 2;
  const float *x = call->in[0];
  sli_served_attend(call, &(sli_served_attention){
                              .q = x, .k = x + q, .v = x + q + kv, .q_row = row, .kv_row = row});
}

const sl_kernel sli_cpu_attention_served = {
    .backend = "cpu",
    .run = served_cpu,
    .scratch = sli_served_scratch,
};

const sl_kernel sli_cpu_attention_dual_served = {
    .backend = "cpu",
    .run = dual_cpu,
    .scratch = sli_served_scratch,
};

const sl_kernel sli_cpu_attention_packed_served = {
    .backend = "cpu",
    .run = packed_cpu,
    .scratch = sli_served_scratch,
};
