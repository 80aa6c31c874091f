/* SPDX-License-Identifier: Apache-2.0 */
/* Random requests, some with constraints, sent one by one and concurrently, in sessions of random
 * sizes. A request must always get logits with the same bits. */
#ifndef SLUICE_TESTS_SUPPORT_BATCHES_H
#define SLUICE_TESTS_SUPPORT_BATCHES_H

#include "ops/storage.h"
#include "tests/support/rng.h"
#include "tests/support/session.h"

enum { REQUESTS = 12, CONTEXT = 200, MOST = 40, LONGEST = 150, OPENINGS = 2 };

static char *const batches_gpt[] = {"--layers", "3",  "--width",   "48",  "--heads", "3",
                                    "--vocab",  "97", "--context", "200", NULL};
static char *const batches_llama[] = {"--layers",   "3",   "--width", "48",  "--heads",  "6",
                                      "--kv-heads", "2",   "--vocab", "97",  "--window", "70",
                                      "--context",  "200", "--bias",  "qkv", NULL};

static char *const batches_qwen3[] = {"--layers",   "2",   "--width",    "48", "--heads", "6",
                                      "--kv-heads", "2",   "--head-dim", "16", "--vocab", "97",
                                      "--context",  "200", "--qk-norm",  NULL};

static char *const batches_olmo2[] = {
    "--layers", "2",  "--width",   "48",  "--heads", "6",     "--kv-heads",      "2",
    "--vocab",  "97", "--context", "200", "--norms", "after", "--qk-norm-whole", NULL};

static char *const batches_phi3[] = {"--layers",   "2",  "--width",  "48", "--heads",   "6",
                                     "--kv-heads", "2",  "--vocab",  "97", "--context", "200",
                                     "--window",   "70", "--packed", NULL};

static char *const batches_gemma3[] = {"--layers",
                                       "3",
                                       "--width",
                                       "48",
                                       "--heads",
                                       "6",
                                       "--kv-heads",
                                       "2",
                                       "--head-dim",
                                       "16",
                                       "--vocab",
                                       "97",
                                       "--context",
                                       "200",
                                       "--window",
                                       "30",
                                       "--full-every",
                                       "2",
                                       "--local-theta",
                                       "500",
                                       "--norms",
                                       "both",
                                       "--gate",
                                       "gelu",
                                       "--logit-cap",
                                       "9",
                                       "--query-scalar",
                                       "20",
                                       "--qk-norm",
                                       "--plus-one",
                                       "--scaled-embedding",
                                       "--tied",
                                       NULL};

static char *const batches_hybrid[] = {"--layers", "3",          "--width",   "48",      "--heads",
                                       "6",        "--kv-heads", "2",         "--vocab", "97",
                                       "--window", "70",         "--context", "200",     NULL};

/* The blocks of SpikingBrain-76B: both kinds of attention, experts in some blocks. */
static char *const batches_side_by_side[] = {"--layers",
                                             "3",
                                             "--width",
                                             "48",
                                             "--heads",
                                             "6",
                                             "--kv-heads",
                                             "2",
                                             "--vocab",
                                             "97",
                                             "--window",
                                             "70",
                                             "--context",
                                             "200",
                                             "--gates",
                                             "keys",
                                             "--experts",
                                             "4",
                                             "--top-k",
                                             "1",
                                             "--ffn",
                                             "40",
                                             "--shared-ffn",
                                             "40",
                                             "--side-by-side",
                                             "--dense-blocks",
                                             "1",
                                             NULL};

/* Learned tokens in front of each request, and a window. */
static char *const batches_sinks[] = {
    "--layers",   "3",   "--width",        "48",      "--heads",  "6",
    "--kv-heads", "2",   "--vocab",        "97",      "--window", "30",
    "--context",  "200", "--side-by-side", "--gates", "keys",     "--sink-tokens",
    "56",         NULL};

/* Dual chunk attention with chunks of one page. */
static char *const batches_dual[] = {
    "--layers",   "2",
    "--width",    "48",
    "--heads",    "6",
    "--kv-heads", "2",
    "--head-dim", "16",
    "--vocab",    "97",
    "--context",  "250",
    "--rope",     "dual-chunk:chunk_size=96,local_size=32,original_max_position_embeddings=90",
    NULL};

static char *const batches_mamba2[] = {"--layers", "2",        "--width",   "48",      "--head-dim",
                                       "16",       "--groups", "3",         "--state", "10",
                                       "--vocab",  "97",       "--context", "200",     NULL};

/* Experts, also with a capacity that drops rows in training. */
#define BATCHES_EXPERTS                                                                         \
  "--layers", "2", "--width", "48", "--heads", "6", "--kv-heads", "2", "--vocab", "97",         \
      "--context", "200", "--experts", "5", "--top-k", "2", "--norm-topk", "0", "--expert-ffn", \
      "40", "--shared-ffn", "24", "--qk-norm"
static char *const batches_experts[] = {BATCHES_EXPERTS, NULL};
static char *const batches_dropping[] = {BATCHES_EXPERTS, "--expert-capacity", "0.5", NULL};

#define BATCHES_QWEN3_NEXT                                                                       \
  "--layers", "4", "--width", "48", "--heads", "6", "--kv-heads", "2", "--vocab", "97",          \
      "--context", "200", "--mixers", "delta,delta,full", "--rope",                              \
      "none:partial_rotary_factor=0.5", "--value-heads", "4", "--key-heads", "2", "--value-dim", \
      "8", "--key-dim", "12", "--expert-ffn", "24", "--shared-ffn", "24"
static char *const batches_qwen3_next[] = {
    BATCHES_QWEN3_NEXT, "--experts", "5", "--feeds", "experts,mlp,experts,experts", NULL};
static char *const batches_qwen3_next_dense[] = {BATCHES_QWEN3_NEXT, "--feeds", "mlp", NULL};

/* Kimi-Linear: states with gates of channels, latent attention without positions. */
static char *const batches_kimi[] = {"--layers",
                                     "4",
                                     "--width",
                                     "48",
                                     "--heads",
                                     "4",
                                     "--vocab",
                                     "97",
                                     "--context",
                                     "200",
                                     "--mixers",
                                     "kda,kda,latent-unplaced",
                                     "--feeds",
                                     "mlp,experts",
                                     "--value-heads",
                                     "3",
                                     "--value-dim",
                                     "12",
                                     "--key-dim",
                                     "12",
                                     "--latent",
                                     "20",
                                     "--nope-dim",
                                     "10",
                                     "--rope-dim",
                                     "6",
                                     "--latent-value-dim",
                                     "12",
                                     "--experts",
                                     "6",
                                     "--expert-ffn",
                                     "24",
                                     "--router",
                                     "corrected",
                                     "--expert-groups",
                                     "2",
                                     NULL};

/* Latent attention to the tokens of an indexer; the second block has those of the first. */
static char *const batches_indexed[] = {"--layers",
                                        "3",
                                        "--width",
                                        "32",
                                        "--heads",
                                        "4",
                                        "--vocab",
                                        "97",
                                        "--context",
                                        "200",
                                        "--mixers",
                                        "indexed,reused",
                                        "--latent",
                                        "20",
                                        "--nope-dim",
                                        "10",
                                        "--rope-dim",
                                        "6",
                                        "--latent-value-dim",
                                        "12",
                                        "--query-rank",
                                        "20",
                                        "--index-tokens",
                                        "40",
                                        "--index-dim",
                                        "12",
                                        NULL};

static char *const batches_gpt_oss[] = {
    "--layers", "3",         "--width",   "32",       "--heads",      "4",         "--kv-heads",
    "2",        "--vocab",   "97",        "--window", "40",           "--context", "200",
    "--bias",   "attention", "--experts", "5",        "--expert-ffn", "24",        NULL};
static char *const batches_deepseek[] = {
    "--layers",    "3",  "--width",         "32",  "--heads",      "4",
    "--vocab",     "97", "--context",       "200", "--query-rank", "20",
    "--latent",    "24", "--nope-dim",      "12",  "--rope-dim",   "8",
    "--value-dim", "10", "--expert-ffn",    "24",  "--shared-ffn", "24",
    "--experts",   "6",  "--expert-groups", "3",   "--top-groups", "2",
    NULL};

static char *const batches_spiking[] = {"--layers",   "2",   "--width",  "48", "--heads",  "6",
                                        "--kv-heads", "2",   "--vocab",  "97", "--window", "70",
                                        "--context",  "200", "--spikes", "3",  NULL};

typedef struct token_stream {
  int count;
  int32_t tokens[MOST];
  uint64_t hashes[MOST];
  bool ended;
} token_stream;

typedef struct random_request {
  sl_request how;
  int32_t prompt[LONGEST];
  /* constraint computed from the tokens so far; key 0: none */
  struct picky {
    uint64_t key, state;
  } picky;
} random_request;

/* ---- constraints ---------------------------------------------------------------------------- */

static inline bool picky_has(const struct picky *p, int32_t token) {
  return sli_hash_word(p->state, (uint64_t)token) % 4 == 0;
}

static inline void picky_move(struct picky *p, int32_t token) {
  p->state = sli_hash_word(p->state, (uint64_t)token + 1);
}

static inline bool picky_allow(void *ctx, int n, const int32_t *drafted, uint32_t *allowed) {
  struct picky at = *(const struct picky *)ctx;
  bool any = false;
  for (int i = 0; i < n; picky_move(&at, drafted[i++]))
    if (!picky_has(&at, drafted[i])) return false;
  for (int32_t v = 0; v < 97; v++) {
    bool has = picky_has(&at, v);
    if (has) allowed[v / 32] |= UINT32_C(1) << v % 32;
    any |= has;
  }
  return any;
}

/* Accepts a token; occasionally ends the answer. */
static inline bool picky_take(void *ctx, int32_t token) {
  struct picky *p = ctx;
  CHECK(picky_has(p, token), "token %d is allowed", token);
  picky_move(p, token);
  return p->state % 41 == 0;
}

/* Returns the request as it is sent, with its constraint reset. */
static inline const sl_request *batches_request(random_request *q) {
  q->picky.state = q->picky.key;
  if (q->picky.key) q->how.constraint = (sl_constraint){picky_allow, picky_take, &q->picky};
  return &q->how;
}

/* ---- requests ------------------------------------------------------------------------------- */

/* Returns the number of requests. Emulated GPUs are slow. */
static inline int batches_count(void) { return served_on_cpus() ? REQUESTS : 4; }

/* Draws a request. Some share a prefix of random length with others. */
static inline void batches_think(random_request *q, rng *d) {
  int64_t n = 1 + (int64_t)rng_below(d, LONGEST);
  int64_t opening = (int64_t)rng_below(d, OPENINGS),
          common = rng_below(d, 2) ? (int64_t)rng_below(d, LONGEST + 1) : 0;
  for (int64_t i = 0; i < n; i++)
    q->prompt[i] =
        i < common ? (int32_t)((i * (5 + opening) + opening) % 97) : (int32_t)rng_below(d, 97);
  q->how = (sl_request){.prompt = q->prompt,
                        .nprompt = n,
                        .max_tokens = 1 + (int64_t)rng_below(d, MOST),
                        .logprobs = (int)rng_below(d, 4) - 1,
                        .seed = rng_below(d, 1000)};
  if (rng_below(d, 2)) q->how.temperature = 1.5f;
  if (!rng_below(d, 3)) q->how.top_k = 5;
  if (!rng_below(d, 3)) q->how.top_p = 0.8f;
  q->picky.key = rng_below(d, 3) ? 0 : 1 + rng_below(d, 1000);
}

static inline void note(token_stream *t, const sl_session_event *e) {
  CHECK(!t->ended, "nothing comes behind the end");
  if (e->kind == SL_EVENT_END) {
    t->ended = true;
    return;
  }
  CHECK(e->place == t->count && t->count < MOST, "tokens come in order");
  t->tokens[t->count] = e->token;
  t->hashes[t->count++] = e->hash;
}

/* Runs each request alone, in a session with room for one. */
static inline void batches_ask_alone(const served *s, random_request *q, token_stream *out) {
  sl_session_options options = served_options(s);
  served one = *s;
  options.sequences = 1;
  options.constraints = true;
  options.prefixes = SL_PREFIXES_APART;
  served_open(&one, &options);
  for (int i = 0; i < batches_count(); i++) {
    uint64_t id;
    CHECK(!sl_session_submit(one.session, batches_request(&q[i]), &id), "%s", sl_detail());
    while (!out[i].ended) {
      sl_session_event e = served_next(one.session);
      note(&out[i], &e);
    }
  }
  sl_session_destroy(one.session);
}

typedef struct setting {
  sl_session_options options;
  int cancelled; /* one request that is cancelled, or -1 */
} setting;

static inline setting batches_draw(const served *s, rng *d) {
  setting x = {.options = served_options(s),
               .cancelled = (int)rng_below(d, 2 * REQUESTS) - REQUESTS};
  sl_session_options *o = &x.options;
  o->constraints = true;
  o->rows = 1 + (int64_t)rng_below(d, 40);
  o->sequences = 1 + (int)rng_below(d, (uint32_t)SLI_MIN(o->rows, 8));
  o->groups = (int)rng_below(d, 5);
  o->lower.parallel.tensor = rng_below(d, 12) ? 1 : 2 + (int)rng_below(d, 2);
  o->lower.parallel.stages = 1 << rng_below(d, o->lower.parallel.tensor > 1 ? 2 : 3);
  o->lower.devices.threads = 1 + (int)rng_below(d, 2);
  o->admit = rng_below(d, 2) ? SL_ADMIT_RECOMPUTE : SL_ADMIT_RESERVE;
  o->pages = CONTEXT / SL_PAGE + 1 + (int64_t)rng_below(d, 4);
  return x;
}

/* Fills in the draft model's values, which sometimes differ from those of served_load. */
static inline sl_status batches_load_draft(void *ctx, const sl_lowered *lowered, sl_runtime *rt) {
  return sl_params_init(lowered, rt, *(const uint64_t *)ctx);
}

/* Enables drafts of random length: from earlier text, or from a draft model. The draft model is the
 * model itself, so its drafts are right, or it has other values, so they are mostly wrong. */
static inline void batches_draft(const served *s, sl_session_options *o, rng *d) {
  static sl_session_options draft;
  static uint64_t key;
  o->speculation = (sl_speculation){.tokens = (int)rng_below(d, 7), .always = rng_below(d, 4)};
  if (rng_below(d, 2)) return;
  key = 7 + rng_below(d, 2);
  draft = served_options(s);
  draft.load = batches_load_draft;
  draft.load_ctx = &key;
  draft.lower.devices.threads = 1 + (int)rng_below(d, 2);
  o->speculation.draft = &draft;
}

/* Sets limits so that several requests grow longer than there are pages for. */
static inline void batches_short_of_pages(sl_session_options *o) {
  o->admit = SL_ADMIT_RECOMPUTE;
  o->pages = CONTEXT / SL_PAGE + 1;
  o->rows = 30;
  o->sequences = 4;
}

/* Prints a case, so that a failure can be reproduced. */
static inline void batches_say(const served *s, const setting *x, uint64_t seed) {
  const sl_session_options *o = &x->options;
  printf(
      "%s %s kv %s seed %llu: processes %d rows %lld sequences %d groups %d stages %d tensor %d threads %d pages %lld %s cancelled %d drafts %d%s%s\n",
      s->model->name, sl_dtype_name(s->dtype), sli_storage_name(s->kv), (unsigned long long)seed,
      SLI_MAX(o->lower.parallel.processes, 1), (long long)o->rows, o->sequences, o->groups,
      o->lower.parallel.stages, o->lower.parallel.tensor, o->lower.devices.threads,
      (long long)o->pages, o->admit ? "recompute" : "reserve", x->cancelled, o->speculation.tokens,
      o->speculation.draft ? " of a model" : "",
      o->lower.memory.homes.count ? " weights on disk" : "");
  fflush(stdout);
}

static inline void compare(const token_stream *alone, const token_stream *got, int i, bool whole) {
  CHECK(whole ? got->count == alone->count : got->count <= alone->count,
        "request %d: %d tokens, not %d", i, got->count, alone->count);
  for (int t = 0; t < got->count; t++)
    CHECK(got->hashes[t] == alone->hashes[t] && got->tokens[t] == alone->tokens[t],
          "request %d: the logits of token %d have other bits", i, t);
}

/* Returns the number of learned tokens in front of each request. */
static inline uint64_t sinks_of(const served *s) {
  const char *name = "sink-tokens";
  return sl_options_find(s->model->options, name) ? (uint64_t)sl_arg_int(s->args, name) : 0;
}

/* Checks the counts of computed rows and of rows shared by prefix caching. */
static inline void check_rows(const served *s, const random_request *q, const token_stream *got,
                              int cancelled) {
  sl_session_stats stats = sl_session_stat(s->session);
  uint64_t least = (uint64_t)batches_count() * sinks_of(s);
  for (int i = 0; i < batches_count(); i++)
    least += (uint64_t)(q[i].how.nprompt + got[i].count - 1);
  CHECK(!stats.pages_used && !stats.running && !stats.queued, "all pages are back");
  uint64_t computed = stats.rows - stats.rows_again - (stats.drafted - stats.accepted);
  if (cancelled < 0)
    CHECK(computed + stats.rows_shared == least, "%llu rows and %llu shared for %llu positions",
          (unsigned long long)computed, (unsigned long long)stats.rows_shared,
          (unsigned long long)least);
}

static inline void change_limits(sl_session *s, rng *d) {
  sl_session_info a = sl_session_about(s);
  const sl_session_limits limits = {
      .rows = 1 + (int64_t)rng_below(d, (uint32_t)a.rows),
      .pages = a.pages - (int64_t)rng_below(d, 2) * (a.pages > CONTEXT / SL_PAGE + 1),
      .sequences = 1 + (int)rng_below(d, (uint32_t)a.sequences),
      .groups = 1 + (int)rng_below(d, (uint32_t)a.groups)};
  CHECK(!sl_session_limit(s, &limits), "%s", sl_detail());
}

/* Sends all requests concurrently. Some may be cancelled, and limits change. Each must get the bits
 * that it gets alone. */
static inline sl_session_stats batches_ask(const served *s, const setting *x, random_request *q,
                                           const token_stream *alone, rng *d) {
  token_stream got[REQUESTS] = {0};
  served all = *s;
  served_open(&all, &x->options);
  uint64_t first = 0, id;
  int ended = 0;
  for (int i = 0; i < batches_count(); i++) {
    CHECK(!sl_session_submit(all.session, batches_request(&q[i]), &id), "%s", sl_detail());
    first = i ? first : id;
    bool waits = x->options.replay; /* replay waits for all requests of the replayed ticks */
    /* some requests are in progress now */
    for (uint32_t n = waits ? 0 : rng_below(d, 4); n && ended <= i; n--) {
      sl_session_event e = served_next(all.session);
      note(&got[e.id - first], &e);
      ended += e.kind == SL_EVENT_END;
    }
    if (i == x->cancelled && !x->options.replay) sl_session_cancel(all.session, id);
    if (!x->options.replay && !rng_below(d, 4)) change_limits(all.session, d);
  }
  while (ended < batches_count()) {
    sl_session_event e = served_next(all.session);
    note(&got[e.id - first], &e);
    ended += e.kind == SL_EVENT_END;
  }
  for (int i = 0; i < batches_count(); i++) compare(&alone[i], &got[i], i, i != x->cancelled);
  check_rows(&all, q, got, x->cancelled);
  sl_session_stats stats = sl_session_stat(all.session);
  sl_session_destroy(all.session);
  return stats;
}

#endif
