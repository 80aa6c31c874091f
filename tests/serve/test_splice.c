/* SPDX-License-Identifier: Apache-2.0 */
/* A prompt with rows in place of embeddings has the bits of the prompt whose tokens have these
 * embeddings, for any cut into ticks and stages. Prompts share pages only if their rows are equal
 * too. Invalid rows are refused with an error that names them.
 * labels: random */
#include <sluice/frames.h>

#include "tests/support/actors_plans.h"
#include "tests/support/seeds.h"
#include "tests/support/session.h"

enum { VOCABULARY = 40, WIDTH = 16, CONTEXT = 192, HEADS = 2, MARKER = 1, ANSWER = 6 };

/* ---- the model ------------------------------------------------------------------------------ */

static float value_of(int64_t i) { return (float)((i * 7919 + 13) % 1009) / 1009 - 0.5f; }

static void read_table(void *ctx, int64_t first, int64_t count, float *out) {
  (void)ctx;
  for (int64_t i = 0; i < count; i++) out[i] = value_of(first + i);
}

static const sl_given table_values = {.read = read_table, .hash = 1};

static sl_status build(sl_graph *g, const sl_args *args) {
  (void)args;
  sl_tensor *targets, *tokens = sl_tokens(g, "", 1, CONTEXT, VOCABULARY, &targets);
  sl_tensor *rows = sl_frames(g, "", 1, 3, SL_TYPE(SL_F32, WIDTH));
  sl_block(g, "embed");
  sl_tensor *table =
      sl_param(g, SL_TYPE(SL_F32, VOCABULARY, WIDTH), SL_GIVEN(&table_values), "table");
  sl_tensor *x = sl_splice(g, sl_embedding(g, tokens, table), tokens, MARKER, rows);
  for (int i = 0; i < 2; i++) {
    sl_block(g, "h.%d", i);
    sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, 3 * WIDTH, WIDTH), SL_NORMAL(0.3f), "qkv.%d", i);
    x = sl_add(
        g, x, sl_attend_packed(g, sl_linear(g, x, w, NULL), &(sl_attention_attrs){.heads = HEADS}));
  }
  sl_block(g, "head");
  sl_tensor *head = sl_param(g, SL_TYPE(SL_F32, VOCABULARY, WIDTH), SL_NORMAL(0.3f), "head");
  sl_output(g, "logits", sl_linear(g, x, head, NULL));
  return sl_graph_status(g);
}

static const sl_option no_options[] = {{0}};
static const sl_model model = {SL_MODEL_ABI, "spliced", "", no_options, build, NULL, NULL};

/* ---- requests ------------------------------------------------------------------------------- */

typedef struct prompt {
  int64_t count;
  int32_t tokens[CONTEXT], at[CONTEXT];
  float rows[CONTEXT][WIDTH];
  int64_t nrows;
  bool scored;
} prompt;

typedef struct outcome {
  int64_t cached;
  int count;
  int32_t tokens[ANSWER];
  uint64_t hash[ANSWER];
} outcome;

static sl_request request_of(const prompt *p) {
  return (sl_request){
      .prompt = p->tokens, .nprompt = p->count, .max_tokens = ANSWER, .scored = p->scored};
}

static uint64_t submit(sl_session *s, const prompt *p) {
  const sl_request q = request_of(p);
  const sl_spliced x = {p->at, p->rows[0], p->nrows};
  uint64_t id;
  CHECK(!(p->nrows ? sl_session_submit_spliced(s, &q, &x, &id) : sl_session_submit(s, &q, &id)),
        "%s", sl_detail());
  return id;
}

/* Waits for the answers of `n` requests; `first` is the id of the first one. */
static void await(sl_session *s, uint64_t first, int n, outcome *out) {
  memset(out, 0, (size_t)n * sizeof *out);
  for (int left = n; left;) {
    sl_session_event e = served_next(s);
    if (e.kind == SL_EVENT_PROMPT) continue;
    outcome *x = &out[e.id - first];
    x->cached = e.cached;
    if (e.kind == SL_EVENT_END) left--;
    else x->tokens[x->count] = e.token, x->hash[x->count++] = e.hash;
  }
}

static outcome ask(sl_session *s, const prompt *p) {
  outcome x;
  await(s, submit(s, p), 1, &x);
  return x;
}

static bool same(const outcome *a, const outcome *b) {
  return a->count == b->count && !memcmp(a->tokens, b->tokens, sizeof a->tokens) &&
         !memcmp(a->hash, b->hash, sizeof a->hash);
}

static prompt draw(uint64_t *seed, int64_t count) {
  prompt p = {.count = count};
  for (int64_t i = 0; i < count; i++) p.tokens[i] = (int32_t)(random_next(seed) % VOCABULARY);
  return p;
}

/* Returns the same prompt with rows in place of some tokens' embeddings, in any order. */
static prompt spliced(uint64_t *seed, const prompt *of) {
  prompt p = *of;
  for (int64_t i = 0; i < p.count; i++) p.at[i] = -1;
  for (int64_t i = 0; i < p.count; i++) {
    if (random_next(seed) % 3) continue;
    for (int c = 0; c < WIDTH; c++) p.rows[p.nrows][c] = value_of((int64_t)p.tokens[i] * WIDTH + c);
    p.at[i] = (int32_t)p.nrows++;
    p.tokens[i] = MARKER;
  }
  if (!p.nrows) p.at[0] = 0, p.nrows = 1, read_table(NULL, p.tokens[0] * WIDTH, WIDTH, p.rows[0]);
  return p;
}

static sl_session *open_session(const sl_args *args, int stages, int64_t rows) {
  sl_session *s;
  const sl_session_options o = {.model = &model,
                                .args = args,
                                .load = served_load,
                                .hash = true,
                                .rows = rows,
                                .lower = {.parallel.stages = stages, .devices = {.kind = "cpu"}}};
  CHECK(!sl_session_create(&o, &s), "%s", sl_detail());
  return s;
}

/* ---- claims --------------------------------------------------------------------------------- */

enum { PROMPTS = 5 };

static void rows_have_the_bits_of_their_tokens(const sl_args *args, uint64_t seed) {
  prompt whole[PROMPTS], with[PROMPTS];
  outcome wanted[PROMPTS], got[PROMPTS];
  for (int i = 0; i < PROMPTS; i++) {
    whole[i] = draw(&seed, 1 + (int64_t)(random_next(&seed) % 150));
    with[i] = spliced(&seed, &whole[i]);
    with[i].scored = i % 2; /* known tokens do not meet the rows */
  }
  sl_session *s = open_session(args, 1, 64);
  for (int i = 0; i < PROMPTS; i++) wanted[i] = ask(s, &whole[i]);
  sl_session_destroy(s);
  for (int stages = 1; stages <= 2; stages++)
    for (int64_t rows = 7; rows <= 64; rows += 57) {
      uint64_t first = 0;
      s = open_session(args, stages, rows);
      CHECK(sl_session_width(s) == WIDTH, "rows have %lld numbers", (long long)sl_session_width(s));
      for (int i = 0; i < PROMPTS; i++) {
        uint64_t id = submit(s, &with[i]);
        if (!i) first = id;
      }
      await(s, first, PROMPTS, got);
      for (int i = 0; i < PROMPTS; i++)
        CHECK(same(&got[i], &wanted[i]), "prompt %d of %lld tokens, %lld of them rows", i,
              (long long)with[i].count, (long long)with[i].nrows);
      sl_session_destroy(s);
    }
}

static void pages_are_shared_with_their_rows(const sl_args *args, uint64_t seed) {
  const prompt whole = draw(&seed, 150);
  prompt p = spliced(&seed, &whole), other = p;
  sl_session *s = open_session(args, 1, 64);
  outcome first = ask(s, &p), again = ask(s, &p);
  CHECK(!first.cached && again.cached == 2 * SL_SESSION_PAGE && same(&first, &again),
        "%lld tokens are there", (long long)again.cached);
  other.rows[0][0] += 1;
  outcome differs = ask(s, &other);
  CHECK(!differs.cached && differs.hash[0] != first.hash[0], "other rows are other pages");
  CHECK(!ask(s, &whole).cached, "and so are tokens");
  sl_session_destroy(s);
}

static void refused(sl_session *s, const prompt *p, const sl_spliced *x, const char *why) {
  const sl_request q = request_of(p);
  uint64_t id;
  CHECK(sl_session_submit_spliced(s, &q, x, &id) == SL_E_USAGE && strstr(sl_detail(), why),
        "%s: %s", why, sl_detail());
}

static void wrong_rows_are_refused(const sl_args *args, uint64_t seed) {
  static char *const words[] = {"--layers", "1",  "--width",   "16", "--heads", "2",
                                "--vocab",  "40", "--context", "64", NULL};
  const prompt whole = draw(&seed, 10);
  prompt p = spliced(&seed, &whole);
  sl_session *s = open_session(args, 1, 64);
  refused(s, &p, &(sl_spliced){p.at, NULL, 0}, "has placeholders for rows, but no rows");
  p.at[7] = (int32_t)p.nrows;
  refused(s, &p, &(sl_spliced){p.at, p.rows[0], p.nrows}, "token 7 of the prompt stands for row");
  sl_session_destroy(s);
  served gpt = {0};
  served_model(&gpt, "gpt", words);
  const sl_session_options o = served_options(&gpt);
  served_open(&gpt, &o);
  refused(gpt.session, &p, &(sl_spliced){p.at, p.rows[0], p.nrows},
          "which this model does not support");
  served_close(&gpt);
}

int main(int argc, char **argv) {
  uint64_t seed = seed_of(argc, argv, 5);
  sl_args *args;
  CHECK(!sl_args_create(no_options, &args), "%s", sl_detail());
  rows_have_the_bits_of_their_tokens(args, seed);
  pages_are_shared_with_their_rows(args, seed);
  wrong_rows_are_refused(args, seed);
  sl_args_destroy(args);
  return 0;
}
