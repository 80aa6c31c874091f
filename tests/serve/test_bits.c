/* A request alone has the bits of logits that it has in any batch: however many rows a tick has, on
 * any number of stages, of devices that share these out, and of threads, with weights in memory or on disk, with
 * any other requests, when it has given up its pages, when others are cancelled, when limits change, when it shares the pages of what others
 * began with; also with weights that are rounded. Nothing is computed twice but what was given up, and nothing
 * that was shared.
 * labels: random */
#include "tests/support/dice.h"
#include "tests/support/seeds.h"
#include "tests/support/session.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 1, SETTINGS = 3 };
#else
enum { SEEDS = 10, SETTINGS = 4 };
#endif

enum { REQUESTS = 12, CONTEXT = 200, MOST = 40, LONGEST = 150, OPENINGS = 2, ENOUGH = 10 };

static char *const gpt[] = {"--layers", "3", "--width", "48", "--heads", "3", "--vocab", "97",
                            "--context", "200", NULL};
static char *const llama[] = {"--layers", "3", "--width", "48", "--heads", "6", "--kv-heads", "2", "--vocab",
                              "97", "--window", "70", "--context", "200", "--bias", "qkv", NULL};

typedef struct told {
  int count;
  int32_t tokens[MOST];
  uint64_t hashes[MOST];
  bool ended;
} told;

typedef struct asked {
  sl_request how;
  int32_t prompt[LONGEST];
} asked;

/* Some begin as others do, up to anywhere. */
static void think_of(asked *q, dice *d) {
  int64_t n = 1 + (int64_t)roll(d, LONGEST);
  int64_t opening = (int64_t)roll(d, OPENINGS), common = roll(d, 2) ? (int64_t)roll(d, LONGEST + 1) : 0;
  for (int64_t i = 0; i < n; i++)
    q->prompt[i] = i < common ? (int32_t)((i * (5 + opening) + opening) % 97) : (int32_t)roll(d, 97);
  q->how = (sl_request){.prompt = q->prompt, .nprompt = n, .max_tokens = 1 + (int64_t)roll(d, MOST),
                        .logprobs = (int)roll(d, 4) - 1, .seed = roll(d, 1000)};
  if (roll(d, 2)) q->how.temperature = 1.5f;
  if (!roll(d, 3)) q->how.top_k = 5;
  if (!roll(d, 3)) q->how.top_p = 0.8f;
}

static void note(told *t, const sl_session_event *e) {
  CHECK(!t->ended, "nothing comes behind the end");
  if (e->kind == SL_EVENT_END) {
    t->ended = true;
    return;
  }
  CHECK(e->place == t->count && t->count < MOST, "tokens come in order");
  t->tokens[t->count] = e->token;
  t->hashes[t->count++] = e->hash;
}

/* Each by itself, in a session that has room for one. */
static void ask_alone(const served *s, asked *q, told *out) {
  sl_session_options options = served_options(s);
  served one = *s;
  options.sequences = 1;
  options.prefixes = SL_PREFIXES_APART;
  served_open(&one, &options);
  for (int i = 0; i < REQUESTS; i++) {
    uint64_t id;
    CHECK(!sl_session_submit(one.session, &q[i].how, &id), "%s", sl_detail());
    while (!out[i].ended) {
      sl_session_event e = served_next(one.session);
      note(&out[i], &e);
    }
  }
  sl_session_destroy(one.session);
}

typedef struct setting {
  sl_session_options options;
  int cancelled; /* one request that is, or -1 */
} setting;

static setting draw_setting(const served *s, dice *d) {
  setting x = {.options = served_options(s), .cancelled = (int)roll(d, 2 * REQUESTS) - REQUESTS};
  sl_session_options *o = &x.options;
  o->rows = 1 + (int64_t)roll(d, 40);
  o->sequences = 1 + (int)roll(d, (uint32_t)SLI_MIN(o->rows, 8));
  o->groups = (int)roll(d, 5);
  o->lower.tensor = roll(d, 12) ? 1 : 2 + (int)roll(d, 2);
  o->lower.stages = 1 << roll(d, o->lower.tensor > 1 ? 2 : 3);
  o->lower.devices.threads = 1 + (int)roll(d, 2);
  o->admit = roll(d, 2) ? SL_ADMIT_RECOMPUTE : SL_ADMIT_RESERVE;
  o->pages = CONTEXT / SL_PAGE + 1 + (int64_t)roll(d, 4);
  return x;
}

/* Weights of one block or two in memory. */
static void from_disk(sl_session_options *o, dice *d) {
  static const sl_home disk = {.name = "weights", .space = SL_SPACE_DISK};
  static const sl_quota quotas[] = {{"weights", SL_NONE, 1}, {"weights", SL_NONE, 2}};
  o->lower.stages = 1;
  o->lower.homes = (sl_home_options){.count = 1, .of = &disk};
  o->lower.nquotas = 1;
  o->lower.quotas = &quotas[roll(d, 2)];
}

/* Several that grow longer than there are pages for. */
static void short_of_pages(sl_session_options *o) {
  o->admit = SL_ADMIT_RECOMPUTE;
  o->pages = CONTEXT / SL_PAGE + 1;
  o->rows = 30;
  o->sequences = 4;
}

static void compare(const told *alone, const told *got, int i, bool whole) {
  CHECK(whole ? got->count == alone->count : got->count <= alone->count, "request %d: %d tokens, not %d", i,
        got->count, alone->count);
  for (int t = 0; t < got->count; t++)
    CHECK(got->hashes[t] == alone->hashes[t] && got->tokens[t] == alone->tokens[t],
          "request %d: the logits of token %d have other bits", i, t);
}

static bool same_files(const char *a, const char *b) {
  FILE *x = fopen(a, "r"), *y = fopen(b, "r");
  int c = 0;
  CHECK(x && y, "%s and %s are there", a, b);
  while (c != EOF && (c = getc(x)) == getc(y)) {}
  fclose(x);
  fclose(y);
  return c == EOF;
}

/* Rows that were computed for the first time, and those that others had computed. */
static void check_rows(const sl_session *s, const asked *q, const told *got, int cancelled) {
  sl_session_stats stats = sl_session_stat(s);
  uint64_t least = 0;
  for (int i = 0; i < REQUESTS; i++) least += (uint64_t)(q[i].how.nprompt + got[i].count - 1);
  CHECK(!stats.pages_used && !stats.running && !stats.queued, "all pages are back");
  if (cancelled < 0)
    CHECK(stats.rows - stats.rows_again + stats.rows_shared == least, "%llu rows and %llu shared for %llu positions",
          (unsigned long long)(stats.rows - stats.rows_again), (unsigned long long)stats.rows_shared,
          (unsigned long long)least);
}

static uint64_t preemptions, shared;

static void change_limits(sl_session *s, dice *d) {
  sl_session_info a = sl_session_about(s);
  const sl_session_limits limits = {.rows = 1 + (int64_t)roll(d, (uint32_t)a.rows),
                                    .pages = a.pages - (int64_t)roll(d, 2) * (a.pages > CONTEXT / SL_PAGE + 1),
                                    .sequences = 1 + (int)roll(d, (uint32_t)a.sequences),
                                    .groups = 1 + (int)roll(d, (uint32_t)a.groups)};
  CHECK(!sl_session_limit(s, &limits), "%s", sl_detail());
}

static void ask_together(const served *s, const setting *x, asked *q, const told *alone, dice *d) {
  told got[REQUESTS] = {0};
  served all = *s;
  served_open(&all, &x->options);
  uint64_t first = 0, id;
  int ended = 0;
  for (int i = 0; i < REQUESTS; i++) {
    CHECK(!sl_session_submit(all.session, &q[i].how, &id), "%s", sl_detail());
    first = i ? first : id;
    bool waits = x->options.replay; /* until all have come that its ticks have */
    for (uint32_t n = waits ? 0 : roll(d, 4); n && ended <= i; n--) { /* some are under way by now */
      sl_session_event e = served_next(all.session);
      note(&got[e.id - first], &e);
      ended += e.kind == SL_EVENT_END;
    }
    if (i == x->cancelled && !x->options.replay) sl_session_cancel(all.session, id);
    if (!x->options.replay && !roll(d, 4)) change_limits(all.session, d);
  }
  while (ended < REQUESTS) {
    sl_session_event e = served_next(all.session);
    note(&got[e.id - first], &e);
    ended += e.kind == SL_EVENT_END;
  }
  for (int i = 0; i < REQUESTS; i++) compare(&alone[i], &got[i], i, i != x->cancelled);
  check_rows(all.session, q, got, x->cancelled);
  preemptions += sl_session_stat(all.session).preemptions;
  shared += sl_session_stat(all.session).rows_shared;
  sl_session_destroy(all.session);
}

static void each_batch_gives_the_same_bits(const char *model, char *const *words, uint64_t seed) {
  served s = {0};
  asked q[REQUESTS];
  told alone[REQUESTS] = {0};
  dice d = {.key = seed};
  s.dtype = seed % 3 ? SL_F32 : SL_BF16;
  served_model(&s, model, words);
  for (int i = 0; i < REQUESTS; i++) think_of(&q[i], &d);
  ask_alone(&s, q, alone);
  for (int n = 0; n < SETTINGS; n++) {
    setting x = draw_setting(&s, &d);
    if (!n) short_of_pages(&x.options);
    if (n == 1 && seed == 1) x.options.lower.tensor = 2;
    if (n == 2 && seed % 3 == 1) from_disk(&x.options, &d);
    printf("%s %s seed %llu: rows %lld sequences %d groups %d stages %d tensor %d threads %d pages %lld %s cancelled %d%s\n", model, s.dtype == SL_BF16 ? "bf16" : "fp32",
           (unsigned long long)seed, (long long)x.options.rows, x.options.sequences, x.options.groups,
           x.options.lower.stages, x.options.lower.tensor, x.options.lower.devices.threads, (long long)x.options.pages,
           x.options.admit ? "recompute" : "reserve", x.cancelled,
           x.options.lower.homes.count ? " weights on disk" : "");
    fflush(stdout);
    ask_together(&s, &x, q, alone, &d);
  }
  sl_args_destroy(s.args);
}

/* Ticks taken as those of another run were are logged as those, and give the same bits: pages are shared and given up
 * where they were then, and who hung up does so again. */
static void a_log_is_followed(uint64_t seed) {
  served s = {0};
  asked q[REQUESTS];
  told alone[REQUESTS] = {0};
  dice d = {.key = 77 + seed};
  served_model(&s, "llama", llama);
  for (int i = 0; i < REQUESTS; i++) think_of(&q[i], &d);
  ask_alone(&s, q, alone);
  setting x = {.options = served_options(&s), .cancelled = (int)roll(&d, REQUESTS)};
  short_of_pages(&x.options);
  x.options.log = "ticks.log";
  ask_together(&s, &x, q, alone, &d);
  x.options.log = "again.log";
  x.options.replay = "ticks.log";
  x.options.lower.stages = 2;
  x.options.groups = 3;
  ask_together(&s, &x, q, alone, &d);
  CHECK(same_files("ticks.log", "again.log"), "ticks take the same again, seed %llu", (unsigned long long)seed);
  sl_args_destroy(s.args);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, SEEDS);
  for (uint64_t seed = s.first; seed < s.end; seed++)
    each_batch_gives_the_same_bits(seed % 2 ? "gpt" : "llama", seed % 2 ? gpt : llama, seed);
  for (uint64_t seed = s.first; seed < s.end; seed++) a_log_is_followed(seed);
  CHECK((preemptions && shared) || seeds_count(s) < ENOUGH, "some have given up their pages, and some shared others'");
  return 0;
}
