/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of attention over the pages of the KV cache. ops/served_attention.c describes the
 * order of the sums. */
#include "kernels/cpu/served_attention.h"

#include "kernels/cpu/kernels.h"
#include "ops/attention_shape.h"

/* ---- scratch --------------------------------------------------------------------------------- */

/* Offsets of the parts of a call's scratch. */
typedef struct parts {
  int64_t chunks; /* most chunks of a tick */
  int64_t words;  /* of a mask: room for the pages of a sequence, and one more distance */
  size_t rows, masks, room, recall, end;
} parts;

/* Returns the bytes up to the next cache line. */
static size_t up_to(size_t bytes) {
  enum { LINE = 64 };
  return (bytes + LINE - 1) / LINE * LINE;
}

static parts lay_out(const sl_call *call) {
  const sl_attrs *attrs = call->attrs;
  int64_t rows = call->in_type[0].dim[1];
  parts p = {.end = (size_t)rows * sizeof(sli_run)};
  if (!attrs->pages.prompt_chunk) return p;
  p.chunks = rows / attrs->pages.prompt_chunk;
  p.words = (attrs->place.length / SL_PAGE + 2 + SL_PAGE - 1) / SL_PAGE;
  size_t heads = (size_t)p.chunks * (size_t)attrs->attention.heads, words = (size_t)p.words;
  p.rows = up_to(p.end);
  p.masks = up_to(p.rows + (size_t)p.chunks * sizeof(int32_t));
  p.room = up_to(p.masks +
                 heads * (size_t)(attrs->pages.prompt_chunk / SL_PAGE) * words * sizeof(uint64_t));
  p.recall = up_to(p.room + heads * SLI_CHOICE_ARRAYS * words * SL_PAGE * sizeof(float));
  p.end = p.recall + heads * sizeof(float);
  return p;
}

size_t sli_served_scratch(const sl_call *call, int threads) {
  (void)threads;
  return lay_out(call).end;
}

/* ---- runs and chunks ------------------------------------------------------------------------- */

/* Lists the rows that begin a chunk of which the tick has all positions. */
static int find_chunks(const sl_batch *batch, int64_t positions, int32_t *out) {
  const int32_t *sequence = sl_batch_sequence_of(batch), *position = sl_batch_position(batch);
  int n = 0;
  for (int32_t r = 0, last; r < batch->rows; r++) {
    last = r + (int32_t)positions - 1;
    if (position[r] % positions || last >= batch->rows || sequence[last] != sequence[r]) continue;
    out[n++] = r;
    r = last;
  }
  return n;
}

int sli_served_runs(const sl_batch *batch, bool by_pages, sli_run *runs) {
  const int32_t *sequence = sl_batch_sequence_of(batch), *position = sl_batch_position(batch);
  int n = 0;
  for (int32_t r = 0; r < batch->rows; r++) {
    bool more = n && sequence[r] == sequence[r - 1] && runs[n - 1].rows < SLI_SERVED_RUN;
    if (by_pages && position[r] % SL_PAGE == 0) more = false;
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

/* Adds the recall of the tick's choices to the counters of the server. */
static void count_choices(const sl_call *call, const sli_served_chunks *c, int64_t heads) {
  sl_block_choices *to = (sl_block_choices *)call->attrs->user;
  if (!to) return;
  for (int64_t i = 0; i < c->count * heads; i++)
    __atomic_fetch_add(&to->recall, (uint64_t)(1e6f * c->recall[i] + 0.5f), __ATOMIC_RELAXED);
  __atomic_fetch_add(&to->heads, (uint64_t)(c->count * heads), __ATOMIC_RELAXED);
}

/* Chooses the pages of the tick's chunks. All keys have been written. */
static void choose(const sl_call *call, sli_served_attention *a) {
  const parts p = lay_out(call);
  char *scratch = call->scratch;
  int32_t *rows = (int32_t *)(scratch + p.rows);
  if (!call->attrs->pages.prompt_chunk) return;
  SLI_CHECK(a->batch->pages < p.words * SL_PAGE, "a batch has %d pages of a sequence",
            a->batch->pages);
  a->chunks =
      (sli_served_chunks){.positions = call->attrs->pages.prompt_chunk,
                          .share = call->attrs->pages.prompt_share,
                          .count = find_chunks(a->batch, call->attrs->pages.prompt_chunk, rows),
                          .row = rows,
                          .words = p.words,
                          .masks = (uint64_t *)(scratch + p.masks),
                          .room = (float *)(scratch + p.room),
                          .recall = (float *)(scratch + p.recall)};
  sl_team_for(call->team, a->chunks.count * (int)a->heads, sli_cpu()->served_choice, a);
  count_choices(call, &a->chunks, a->heads);
}

void sli_served_attend(const sl_call *call, sli_served_attention *a) {
  const sl_attrs *attrs = call->attrs;
  a->batch = sli_batch_of(call);
  a->heads = attrs->attention.heads;
  a->kv_heads = sli_kv_heads(attrs);
  a->dim = call->out_type[0].dim[2] / a->heads;
  a->behind = attrs->attention.window > 0 ? attrs->attention.window - 1 : INT32_MAX;
  a->shown = attrs->attention.shown;
  a->scale = sli_attention_scale(attrs, a->dim);
  a->cap = attrs->attention.cap;
  a->out = call->out[0];
  a->o_row = call->out_type[0].dim[2];
  a->pages = call->out[2];
  a->storage = sli_pages_storage(attrs);
  a->runs = call->scratch;
  int runs = sli_served_runs(a->batch, attrs->pages.prompt_chunk > 0, call->scratch);
  sl_team_for(call->team, a->batch->rows, sli_cpu()->served_keys, a);
  choose(call, a);
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
                            .dual = {call->attrs->attention.chunk, {call->in[3], call->in[4]}}};
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
