/* SPDX-License-Identifier: Apache-2.0 */
/* A tick computes exactly as many rows as it has tokens, and logits only for the wanted positions.
 * Neither shipped nor user-defined ops see padding. */
#include <stdatomic.h>

#include "tests/support/session.h"

enum { WIDTH = 8, VOCABULARY = 11, ROWS = 16, REQUESTS = 7 };

static atomic_llong rows_seen, picks_seen; /* counted by calls of `count` */

static sl_status count_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = in[0];
  return SL_OK;
}

static void count_cpu(const sl_call *call) {
  bool logits = sl_type_last(&call->in_type[0]) == VOCABULARY;
  atomic_fetch_add(logits ? &picks_seen : &rows_seen, sl_type_rows(&call->in_type[0]));
  memcpy(call->out[0], call->in[0], sl_type_bytes(&call->in_type[0]));
}

static const sl_op count_rows = {.name = "count_rows",
                                 .min_in = 1,
                                 .max_in = 1,
                                 .nout = 1,
                                 .infer = count_infer,
                                 .kernels = SL_CPU_KERNEL(count_cpu),
                                 .cut = &sl_cut_rows};

static sl_tensor *count(sl_graph *g, sl_tensor *x) {
  sl_tensor *y = NULL;
  sl_apply(g, &count_rows, NULL, 1, &x, 0, &y);
  return y;
}

static sl_status build(sl_graph *g, const sl_args *args) {
  (void)args;
  sl_tensor *next, *ids = sl_tokens(g, "", 1, 64, VOCABULARY, &next);
  sl_tensor *table = sl_param(g, SL_TYPE(SL_F32, VOCABULARY, WIDTH), SL_NORMAL(1), "table");
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, WIDTH, WIDTH), SL_NORMAL(1), "w");
  sl_tensor *x = count(g, sl_embedding(g, ids, table));
  sl_block(g, "middle");
  x = count(g, sl_gelu(g, sl_linear(g, x, w, NULL)));
  sl_block(g, "head");
  sl_output(g, "logits", count(g, sl_linear(g, x, table, NULL)));
  return sl_graph_status(g);
}
static const sl_option none[] = {{0}};
static const sl_model counted = {.name = "counted", .options = none, .build = build};

/* Sends prompts longer than a tick, together with single tokens. */
static void ask_all(sl_session *s) {
  int32_t prompt[40];
  for (int i = 0; i < 40; i++) prompt[i] = i % VOCABULARY;
  int ended = 0;
  uint64_t id;
  for (int i = 0; i < REQUESTS; i++)
    CHECK(
        !sl_session_submit(
            s,
            &(sl_request){.prompt = prompt, .nprompt = 1 + 6 * i, .max_tokens = 10, .logprobs = -1},
            &id),
        "%s", sl_detail());
  while (ended < REQUESTS) ended += served_next(s).kind == SL_EVENT_END;
}

int main(void) {
  for (int stages = 1; stages <= 3; stages++) {
    served s = {.model = &counted};
    CHECK(!sl_args_create(none, &s.args), "%s", sl_detail());
    sl_session_options options = served_options(&s);
    options.rows = ROWS;
    options.lower.parallel.stages = stages;
    atomic_store(&rows_seen, 0);
    atomic_store(&picks_seen, 0);
    served_open(&s, &options);
    ask_all(s.session);
    sl_session_stats stats = sl_session_stat(s.session);
    served_close(&s);
    long long rows = atomic_load(&rows_seen), picks = atomic_load(&picks_seen);
    CHECK(rows == 2 * (long long)stats.rows, "%d stages: %lld rows are computed for %llu tokens",
          stages, rows / 2, (unsigned long long)stats.rows);
    CHECK(picks == (long long)stats.tokens, "%d stages: %lld logits for %llu tokens", stages, picks,
          (unsigned long long)stats.tokens);
  }
  return 0;
}
