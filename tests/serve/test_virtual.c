/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a session on the virtual clock: it reproduces published results on serving pipelines with
 * the same source and plan.
 * labels: unthreaded */
#include <math.h>

#include "serve/serve.h"
#include "tests/support/session.h"

static char *const small[] = {"--layers", "4",  "--width",   "8",      "--heads", "2",
                              "--vocab",  "11", "--context", "131200", NULL};

static sl_session_options on(const served *s, int stages, const sl_tick_cost *cost) {
  sl_session_options o = served_options(s);
  o.lower.parallel.stages = stages;
  o.lower.devices = (sl_device_options){.kind = "timed", .count = stages};
  o.cost = cost;
  return o;
}

static sl_session_simulation simulate(const sl_session_options *o, int64_t n,
                                      const sl_arrival *arrivals) {
  sl_session_simulation r;
  CHECK(!sl_session_simulate(o, 0, n, arrivals, &r), "%s", sl_detail());
  CHECK(!r.stats.pages_used && !r.stats.running && !r.stats.queued, "all pages are back");
  return r;
}

static bool near(double x, double want, double by) { return fabs(x - want) <= by * want; }

/* ---- a long prompt in chunks through four stages --------------------------------------------- */

static double first_token(const served *s, int64_t rows, sl_chunks chunks) {
  static const sl_tick_cost cost = {
      .tick = 26.1e-3, .position = 5.39e-7, .row = 6.03e-6, .pair = 3.25e-10};
  const sl_arrival one = {0, 131072, 1};
  sl_session_options o = on(s, 4, &cost);
  o.rows = rows;
  o.chunks = chunks;
  sl_session_simulation r = simulate(&o, 1, &one);
  double first = r.answered[0].first;
  CHECK(r.stats.rows == 131072 && r.stats.tokens == 1, "each position once");
  sl_session_simulation_fini(&r);
  return first;
}

static void a_long_prompt(const served *s) {
  static const struct {
    int64_t rows;
    double seconds;
  } published[] = {{32768, 14.729}, {16384, 11.306}, {8192, 9.766}, {4096, 9.684}, {2048, 11.105}};
  double best = INFINITY;
  for (size_t i = 0; i < SLI_COUNT(published); i++) {
    double first = first_token(s, published[i].rows, SL_CHUNKS_ROWS);
    printf("chunks of %lld: %.0f ms\n", (long long)published[i].rows, first * 1e3);
    CHECK(near(first, published[i].seconds, 0.005), "it takes %g s, not %g", first,
          published[i].seconds);
    best = fmin(best, first);
  }
  double even = first_token(s, 32768, SL_CHUNKS_TIMES);
  printf("of equal times: %.0f ms\n", even * 1e3);
  CHECK(even < 0.95 * best, "chunks of equal times take %g s, the best of equal lengths %g", even,
        best);
}

/* ---- ticks per second ------------------------------------------------------------------------ */

/* Measures answers with one tick each: as many are in flight as there are groups, or sequences. */
static double rate(const served *s, int groups) {
  static const sl_tick_cost cost = {.tick = 0.01};
  sl_arrival all[8];
  sl_session_options o = on(s, 4, &cost);
  o.rows = 1;
  o.sequences = groups;
  o.groups = groups;
  for (int i = 0; i < groups; i++) all[i] = (sl_arrival){0, 1, 400};
  sl_session_simulation r = simulate(&o, groups, all);
  double ticks = (double)r.stats.ticks / r.seconds;
  for (int p = 0; p < 4; p++)
    CHECK(near(r.busy[p], 0.01 * (double)r.stats.ticks, 1e-6), "stage %d computes %g s", p,
          r.busy[p]);
  sl_session_simulation_fini(&r);
  return ticks;
}

static void groups_fill_a_pipeline(const served *s) {
  for (int groups = 1; groups <= 6; groups++) {
    double want = fmin(groups / 0.04, 1 / 0.01), got = rate(s, groups);
    printf("%d groups: %.2f ticks a second\n", groups, got);
    CHECK(near(got, want, 0.01), "%d groups: %g ticks a second, not %g", groups, got, want);
  }
}

/* ---- chunked prefill with answers ------------------------------------------------------------ */

/* A tick of few rows takes the time to read its weights. SARATHI (Agrawal et al., arXiv
 * 2308.16369): ticks with a chunk of C rows and B - 1 answers gain most over separate prompts and
 * answers at C / (B - 1) prompt tokens per answer token. */
enum { B = 18, C = 256, WHOLE = 4096, REQUESTS = 72 };
static const sl_tick_cost rides = {.tick = 0.02, .row = 1e-4};

static double gain(const served *s, int64_t prompt) {
  static sl_arrival all[REQUESTS];
  int64_t answer = WHOLE - prompt;
  sl_session_options o = on(s, 1, &rides);
  o.rows = C + B - 1;
  o.sequences = B;
  for (int i = 0; i < REQUESTS; i++) all[i] = (sl_arrival){0, prompt, answer};
  sl_session_simulation r = simulate(&o, REQUESTS, all);
  double chunks = ceil((double)prompt / C), together = r.seconds / REQUESTS;
  double apart = rides.tick * chunks + rides.row * (double)prompt +
                 (double)answer * (rides.tick / B + rides.row);
  sl_session_simulation_fini(&r);
  return apart / together;
}

static void answers_ride_on_prompts(const served *s) {
  double best = 0, at = 0;
  for (int ratio = 4; ratio <= 64; ratio = ratio * 5 / 4 + 1) {
    double x = gain(s, (int64_t)WHOLE * ratio / (ratio + 1));
    printf("%d prompt tokens to one: %.3f times\n", ratio, x);
    if (x > best) best = x, at = ratio;
  }
  CHECK(best > 1.2 && at >= 0.6 * C / (B - 1) && at <= 1.6 * C / (B - 1),
        "the best ratio is %g, not near %g", at, (double)C / (B - 1));
}

/* ---- pages and refusals ---------------------------------------------------------------------- */

static void pages_are_counted(const served *s) {
  static const sl_tick_cost cost = {.tick = 0.01};
  static const sl_arrival all[] = {{0, 60, 200}, {0, 60, 200}, {0.5, 60, 4}, {1000, 10, 1}};
  sl_session_options o = on(s, 2, &cost);
  o.context = 320;
  o.pages = 6;
  o.admit = SL_ADMIT_RECOMPUTE;
  o.rows = 64;
  sl_session_simulation r = simulate(&o, 4, all);
  CHECK(r.stats.preemptions && r.stats.rows_again && r.stats.pages_most == 6, "pages run out");
  CHECK(r.stats.tokens == 405 && r.stats.ended[SL_END_LENGTH] == 4, "all are answered");
  CHECK(near(r.answered[3].first, 1000.02, 1e-6), "who comes late is answered at once: %g",
        r.answered[3].first);
  sl_session_simulation_fini(&r);
  o.queue = 1;
  r = simulate(&o, 4, all);
  CHECK(r.stats.requests == 3 && !r.answered[1].tokens, "one waits, one is sent away");
  sl_session_simulation_fini(&r);
}

/* A server whose users give no number of pages has those that fit in 512 MiB, whatever op keeps
 * them. Each of these models keeps 1024 numbers per position and layer: 1 MiB per page. */
static void pages_have_a_default(void) {
  static const sl_tick_cost cost = {.tick = 0.01};
  static const sl_arrival one = {0, 1, 1};
  static const struct {
    const char *model;
    char *words[15];
  } models[] = {
      {"gpt", {"--width", "512"}},
      {"llama", {"--head-dim", "64"}},
      {"llama", {"--head-dim", "64", "--rope", "dual-chunk:chunk_size=128,local_size=64"}},
      {"gpt-oss", {"--head-dim", "64"}},
      {"deepseek", {"--latent", "960", "--rope-dim", "64"}},
  };
  for (size_t i = 0; i < SLI_COUNT(models); i++) {
    served s = {0};
    char *words[32] = {"--layers", "4",         "--heads", "8",       "--vocab",
                       "11",       "--context", "4096",    "--width", "64"};
    for (int w = 0; models[i].words[w]; w++) words[10 + w] = models[i].words[w];
    served_model(&s, models[i].model, words);
    sl_session_options o = on(&s, 1, &cost);
    sl_session_simulation r = simulate(&o, 1, &one);
    CHECK(r.stats.pages == 512, "model %d, %s: %lld pages of 1 MiB", (int)i, models[i].model,
          (long long)r.stats.pages);
    sl_session_simulation_fini(&r);
    sl_args_destroy(s.args);
  }
}

/* Devices that share a stage compute its ticks together, each its part of the work. */
static void devices_share_a_stage(const served *s) {
  static const sl_tick_cost cost = {.tick = 0.01, .row = 1e-4};
  static const sl_arrival all[] = {{0, 60, 20}, {0.1, 30, 20}};
  sl_session_simulation one, two;
  sl_session_options o = on(s, 2, &cost);
  one = simulate(&o, 2, all);
  o.lower.parallel.tensor = 2;
  o.lower.devices.count = 4;
  two = simulate(&o, 2, all);
  CHECK(near(two.seconds, one.seconds, 0.02), "a run takes %g s, on one device for each stage %g",
        two.seconds, one.seconds);
  for (int i = 0; i < 2; i++)
    CHECK(near(two.busy[i], one.busy[i], 1e-6), "stage %d computes for %g s, not %g", i,
          two.busy[i], one.busy[i]);
  sl_session_simulation_fini(&one);
  o.trace = "devices.trace"; /* has all devices, whose parts of 11 logits differ */
  one = simulate(&o, 2, all);
  CHECK(near(two.seconds, one.seconds, 0.01),
        "a run takes %g s with one device for all, %g with all", two.seconds, one.seconds);
  remove(o.trace);
  sl_session_simulation_fini(&one);
  sl_session_simulation_fini(&two);
}

/* On described hardware, rows take longer the further they look back. Of two prompts, one twice as
 * long, the longer takes four times as long for attention, and twice for everything else. */
static void rows_look_back(const served *s) {
  enum { SHORT = 8192, LAYERS = 4, WIDTH = 8 };
  const sl_hardware machine = {.flops_per_second = 1e9, .bytes_per_second = 1e18};
  const double more = LAYERS * 4.0 * WIDTH * SHORT * SHORT / machine.flops_per_second;
  sl_session_options o = on(s, 1, NULL);
  o.rows = 2048;
  o.lower.simulation.hardware = &machine;
  double seconds[2];
  for (int i = 0; i < 2; i++) {
    const sl_arrival one = {0, SHORT << i, 1};
    sl_session_simulation r = simulate(&o, 1, &one);
    seconds[i] = r.answered[0].first;
    sl_session_simulation_fini(&r);
  }
  CHECK(near(seconds[1] - 2 * seconds[0], more, 1e-3),
        "%g s and %g s: %g s more than twice, not %g", seconds[0], seconds[1],
        seconds[1] - 2 * seconds[0], more);
}

/* A tick reads its weights once, whatever its rows: on a machine without limits of arithmetic,
 * eight answers together take little more time per token than one alone, and no less than the
 * weights. */
static void weights_are_read_once_a_tick(const served *s) {
  const sl_hardware machine = {.flops_per_second = 1e18, .bytes_per_second = 1e9};
  enum { ANSWERS = 8, TOKENS = 16, LAYERS = 4, WIDTH = 8 };
  const double weights = LAYERS * 12.0 * WIDTH * WIDTH * 4 / machine.bytes_per_second;
  sl_session_options o = on(s, 1, NULL);
  o.sequences = ANSWERS;
  o.lower.simulation.hardware = &machine;
  double seconds[2];
  for (int i = 0; i < 2; i++) {
    sl_arrival all[ANSWERS] = {0};
    int n = i ? ANSWERS : 1;
    for (int k = 0; k < n; k++) all[k] = (sl_arrival){0, 1, TOKENS};
    sl_session_simulation r = simulate(&o, n, all);
    seconds[i] = (r.answered[0].last - r.answered[0].first) / (TOKENS - 1);
    sl_session_simulation_fini(&r);
  }
  CHECK(seconds[0] >= weights, "a token takes %g s, but the weights alone %g", seconds[0], weights);
  CHECK(seconds[1] < 2 * seconds[0], "a token takes %g s alone, but %g beside seven others",
        seconds[0], seconds[1]);
}

/* In a closed loop each answer that ends brings the next request. */
static void a_loop_is_closed(const served *s) {
  static const sl_tick_cost cost = {.tick = 0.01};
  enum { CLIENTS = 3, REQUESTS = 9, TOKENS = 10 };
  sl_arrival all[REQUESTS];
  for (int i = 0; i < REQUESTS; i++) all[i] = (sl_arrival){0, 1, TOKENS};
  sl_session_options o = on(s, 1, &cost);
  sl_session_simulation r;
  CHECK(!sl_session_simulate(&o, CLIENTS, REQUESTS, all, &r), "%s", sl_detail());
  for (int i = 0; i < REQUESTS; i++) {
    const sl_answered *a = &r.answered[i];
    double before = i < CLIENTS ? 0 : r.answered[i - CLIENTS].last;
    CHECK(a->tokens == TOKENS && near(a->came + 1, before + 1, 1e-6),
          "request %d comes at %g s, after an end at %g", i, a->came, before);
  }
  CHECK(near(r.seconds, REQUESTS / CLIENTS * TOKENS * cost.tick, 1e-6), "it takes %g s", r.seconds);
  sl_session_simulation_fini(&r);
}

static void what_cannot_be_is_refused(const served *s) {
  static const sl_arrival backward[] = {{1, 1, 1}, {0.5, 1, 1}}, late[] = {{0, 131201, 1}};
  sl_session_options o = on(s, 1, NULL);
  sl_session_simulation r;
  CHECK(
      sl_session_simulate(&o, 0, 2, backward, &r) == SL_E_USAGE && strstr(sl_detail(), "arrival 2"),
      "%s", sl_detail());
  CHECK(sl_session_simulate(&o, 0, 1, late, &r) == SL_E_USAGE && strstr(sl_detail(), "arrival 1"),
        "%s", sl_detail());
  o.lower.devices.kind = "cpu";
  CHECK(sl_session_simulate(&o, 0, 1, late, &r) == SL_E_USAGE && strstr(sl_detail(), "timed"), "%s",
        sl_detail());
}

/* ---- measured tick times --------------------------------------------------------------------- */

static load load_of(int64_t rows, int64_t picks, double behind) {
  return (load){.rows = rows,
                .picks = picks,
                .positions = behind,
                .pairs = (double)rows * (2 * behind + (double)rows)};
}

static double seconds_of(const sl_tick_cost *c, int64_t rows, int64_t picks, double behind) {
  load l = load_of(rows, picks, behind);
  return sli_price_tick(c, &l);
}

/* Small row counts go in steps of 4, and a row count seen once makes no corner. */
static void corners_are_found_again(void) {
  static const sl_tick_cost real = {.position = 2e-6,
                                    .pair = 1e-7,
                                    .pick = 1e-3,
                                    .corners = 6,
                                    .rows = {1, 4, 5, 8, 9, 64},
                                    .seconds = {0.005, 0.008, 0.018, 0.02, 0.025, 0.1}};
  static const int64_t often[] = {1, 4, 5, 8, 9, 64};
  fit f = {0};
  CHECK(!sli_fit_cost(&f, true).corners, "nothing is known at first");
  for (int i = 0; i < 60; i++) {
    int64_t rows = i == 30 ? 33 : often[i % 6], picks = i / 6 % 2 ? rows : 1;
    double behind = 7 * i % 31;
    load l = load_of(rows, picks, behind);
    sli_fit_note(&f, &l, i ? sli_price_tick(&real, &l) : 1);
  }
  sl_tick_cost found = sli_fit_cost(&f, true);
  CHECK(found.corners == 6, "%d corners", found.corners);
  for (int64_t rows = 1; rows <= 128; rows++)
    CHECK(near(seconds_of(&found, rows, 1, 50), seconds_of(&real, rows, 1, 50), 1e-6),
          "%lld rows take %g s, not %g", (long long)rows, seconds_of(&found, rows, 1, 50),
          seconds_of(&real, rows, 1, 50));
  CHECK(near(found.pick, real.pick, 1e-6), "a token that is sampled takes %g s", found.pick);
  for (int i = 0; i < found.spreads; i++)
    CHECK(near(found.spread[i], 1, 1e-6), "all ticks are as they should be");
  sl_tick_cost numbers = sli_fit_cost(&f, false);
  CHECK(!numbers.corners && !numbers.spreads && numbers.row > 0, "five numbers are still there");
  sli_fit_fini(&f);
}

/* If one tick in ten is delayed by something else, its time counts in full. */
static void ticks_that_were_held_up_count(void) {
  fit f = {0};
  for (int i = 0; i < 101; i++) sli_fit_note(&f, &(load){.rows = 1 + i % 2}, i % 10 ? 0.01 : 0.06);
  sl_tick_cost found = sli_fit_cost(&f, true);
  CHECK(found.corners == 2 && near(found.seconds[0], 0.02, 0.01) &&
            near(found.seconds[1], 0.01, 0.01),
        "%g and %g s", found.seconds[0], found.seconds[1]);
  CHECK(found.spreads == 100, "%d ticks tell how far they are from that", found.spreads);
  for (int i = 0; i < found.spreads; i++) {
    double want = i % 2 == 0 ? 1 : (i + 1) % 10 ? 0.5 : 3;
    CHECK(near(found.spread[i], want, 0.02), "tick %d takes %g times the mean, not %g", i,
          found.spread[i], want);
  }
  sli_fit_fini(&f);
}

/* Runs of neighbouring ticks are kept if there are many, spread from the first to the last. */
static void spreads_of_many_ticks_have_an_end(void) {
  fit f = {0};
  for (int i = 0; i < 2001; i++)
    sli_fit_note(&f, &(load){.rows = 1 + i % 2}, i > 1000 ? 0.02 : 0.01);
  sl_tick_cost found = sli_fit_cost(&f, true);
  CHECK(found.spreads == SL_TICK_SPREAD, "%d", found.spreads);
  CHECK(
      near(found.spread[0], 2.0 / 3, 0.05) && near(found.spread[SL_TICK_SPREAD - 1], 4.0 / 3, 0.05),
      "%g and %g", found.spread[0], found.spread[SL_TICK_SPREAD - 1]);
  sli_fit_fini(&f);
}

/* Ticks use the values of a spread in turn; only the last chunk of a prompt samples. */
static void ticks_are_priced_as_they_were_found(const served *s) {
  static const sl_tick_cost uneven = {.tick = 0.01, .spreads = 2, .spread = {0.5, 1.5}},
                            sampled = {.tick = 0.01, .pick = 0.002};
  static const sl_arrival answer = {0, 1, 401}, prompt = {0, 60, 2};
  sl_session_options o = on(s, 1, &uneven);
  o.rows = 30;
  sl_session_simulation r = simulate(&o, 1, &answer);
  double first = r.answered[0].first;
  CHECK(near(first, 0.005, 1e-6) || near(first, 0.015, 1e-6), "the first tick takes %g s", first);
  CHECK(near(r.seconds - first, 4, 1e-6), "400 ticks take %g s", r.seconds - first);
  sl_session_simulation_fini(&r);
  o.cost = &sampled;
  r = simulate(&o, 1, &prompt);
  CHECK(near(r.answered[0].first, 0.022, 1e-6) && near(r.seconds, 0.034, 1e-6), "%g and %g s",
        r.answered[0].first, r.seconds);
  sl_session_simulation_fini(&r);
}

int main(void) {
  RUN(corners_are_found_again);
  RUN(ticks_that_were_held_up_count);
  RUN(spreads_of_many_ticks_have_an_end);
  served s = {0};
  served_model(&s, "gpt", small);
  RUN(a_long_prompt, &s);
  RUN(groups_fill_a_pipeline, &s);
  RUN(answers_ride_on_prompts, &s);
  RUN(pages_are_counted, &s);
  RUN(pages_have_a_default);
  RUN(devices_share_a_stage, &s);
  RUN(ticks_are_priced_as_they_were_found, &s);
  RUN(rows_look_back, &s);
  RUN(weights_are_read_once_a_tick, &s);
  RUN(a_loop_is_closed, &s);
  RUN(what_cannot_be_is_refused, &s);
  sl_args_destroy(s.args);
  return 0;
}
