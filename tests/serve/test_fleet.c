/* SPDX-License-Identifier: Apache-2.0 */
/* Tests simulations of several servers: one is like a session, more share the requests, and pages
 * of prompts travel. Random loads and machines; bounds are not above what a simulation takes.
 * labels: unthreaded random */
#include <math.h>

#include "serve/serve.h"
#include "tests/support/seeds.h"
#include "tests/support/session.h"

static char *const small[] = {"--layers", "4",  "--width",   "64",   "--heads", "4",
                              "--vocab",  "50", "--context", "2048", NULL};
enum { REQUESTS = 24 };

static const sl_hardware machine = {.flops_per_second = 1e11,
                                    .bytes_per_second = 1e10,
                                    .op_seconds = 1e-6,
                                    .devices_per_host = 8,
                                    .host_link = {1e-6, 1e10},
                                    .tick_seconds = 1e-5};

static bool near(double x, double want, double by) { return fabs(x - want) <= by * want; }

static sl_session_options on(const served *s, int stages, int tensor) {
  sl_session_options o = served_options(s);
  o.rows = 64;
  o.sequences = 8;
  o.groups = 0;
  o.pages = 400;
  o.lower.parallel.stages = stages;
  o.lower.parallel.tensor = tensor;
  o.lower.devices = (sl_device_options){.kind = "timed", .count = stages * tensor};
  o.lower.simulation.hardware = &machine;
  return o;
}

static uint64_t next_random(uint64_t *state) {
  *state = sli_hash_word(SLI_HASH_SEED, *state);
  return *state >> 16;
}

static void draw_load(uint64_t *random, sl_arrival *to) {
  double at = 0;
  for (int i = 0; i < REQUESTS; i++) {
    at += 1e-5 * (double)(next_random(random) % 200);
    to[i] = (sl_arrival){at, 1 + (int64_t)(next_random(random) % 500),
                         1 + (int64_t)(next_random(random) % 40)};
  }
}

static sl_session_simulation simulate(const sl_fleet *f, int64_t clients, const sl_arrival *all) {
  sl_session_simulation r;
  int64_t tokens = 0;
  CHECK(!sl_fleet_simulate(f, clients, REQUESTS, all, &r), "%s", sl_detail());
  for (int i = 0; i < REQUESTS; i++) {
    const sl_answered *a = &r.answered[i];
    CHECK(a->tokens == all[i].answer && a->came <= a->first && a->first <= a->last,
          "request %d has %lld tokens of %lld", i, (long long)a->tokens, (long long)all[i].answer);
    tokens += a->tokens;
  }
  CHECK((int64_t)r.stats.tokens == tokens, "all tokens are counted");
  return r;
}

/* One server is like a session: exactly on one stage, and but for overlaps on several. */
static void one_is_a_session(const served *s, uint64_t *random) {
  static const int shapes[][2] = {{1, 1}, {1, 2}, {1, 3}, {2, 1}, {3, 2}};
  sl_arrival all[REQUESTS];
  for (size_t i = 0; i < SLI_COUNT(shapes); i++) {
    int64_t clients = (int64_t)(next_random(random) % 12);
    sl_session_options o = on(s, shapes[i][0], shapes[i][1]);
    sl_session_simulation own;
    draw_load(random, all);
    CHECK(!sl_session_simulate(&o, clients, REQUESTS, all, &own), "%s", sl_detail());
    sl_session_simulation r = simulate(&(sl_fleet){.servers = {&o, 1, NULL}}, clients, all);
    double by = shapes[i][0] > 1 ? 0.1 : 1e-5;
    CHECK(near(r.seconds, own.seconds, by), "%d stages of %d devices take %g s, a session %g",
          shapes[i][0], shapes[i][1], r.seconds, own.seconds);
    CHECK(near(r.busy[0], own.busy[0], 1e-4) || shapes[i][0] > 1, "busy for %g s, not %g",
          r.busy[0], own.busy[0]);
    sl_session_simulation_fini(&r);
    sl_session_simulation_fini(&own);
  }
}

/* Servers share the requests evenly, so several take less time; as many as there are requests take
 * the least. */
static void several_share(const served *s, uint64_t *random) {
  sl_arrival all[REQUESTS];
  sl_session_options o = on(s, 1, 1);
  double before = INFINITY;
  draw_load(random, all);
  for (int n = 1; n <= REQUESTS; n *= 5) {
    sl_session_simulation r = simulate(&(sl_fleet){.servers = {&o, n, NULL}}, REQUESTS, all);
    CHECK(r.seconds < before, "%d servers take %g s, fewer took %g", n, r.seconds, before);
    CHECK(r.stats.pages == 400 * n, "each server has its pages");
    before = r.seconds;
    sl_session_simulation_fini(&r);
  }
}

/* The first token of an answer comes from a server for prompts, and the next after the pages have
 * travelled. */
static void pages_travel(const served *s) {
  const sl_arrival one = {0, 640, 2};
  sl_session_options o = on(s, 1, 1);
  const double link_seconds = 0.5, bytes = 640.0 * 4 /* layers */ * 2 * 64 * 4;
  sl_fleet f = {.servers = {&o, 1, NULL}, .prefill = {&o, 1, NULL}};
  double apart[3];
  for (int i = 0; i < 3; i++) {
    sl_session_simulation r;
    f.link_seconds = i ? link_seconds : 0;
    f.link_bytes_per_second = i > 1 ? bytes / 2 : 0;
    CHECK(!sl_fleet_simulate(&f, 1, 1, &one, &r), "%s", sl_detail());
    apart[i] = r.answered[0].last - r.answered[0].first;
    CHECK(r.stats.rows == 641 && r.nstages == 2, "%lld rows", (long long)r.stats.rows);
    sl_session_simulation_fini(&r);
  }
  CHECK(near(apart[1], apart[0] + link_seconds, 1e-6), "%g s, not half a second more than %g",
        apart[1], apart[0]);
  CHECK(near(apart[2], apart[1] + 2, 1e-6), "%g s, not two seconds more than %g", apart[2],
        apart[1]);
}

/* Answers that end with their first token need no other server, and requests without a place wait;
 * a page less than a sequence needs is refused. */
static void odd_cases(const served *s) {
  sl_arrival all[REQUESTS];
  sl_session_options o = on(s, 1, 1), tiny = o;
  for (int i = 0; i < REQUESTS; i++) all[i] = (sl_arrival){0, 64 + i, 1 + i % 2 * 9};
  tiny.sequences = 1;
  tiny.pages = 32;
  sl_fleet f = {.servers = {&tiny, 2, NULL}, .prefill = {&tiny, 3, NULL}};
  sl_session_simulation r = simulate(&f, 7, all);
  sl_session_simulation_fini(&r);
  tiny.pages = 31;
  CHECK(sl_fleet_simulate(&f, 7, REQUESTS, all, &r) == SL_E_USAGE, "too few pages");
  CHECK(strstr(sl_detail(), "kv=31 is too small"), "%s", sl_detail());
  all[3].prompt = 5000;
  tiny.pages = 32;
  CHECK(sl_fleet_simulate(&f, 7, REQUESTS, all, &r) == SL_E_USAGE, "too long a prompt");
  CHECK(strstr(sl_detail(), "arrival 4"), "%s", sl_detail());
}

/* Simulated with the prices of larger ticks, a server takes as long, and no less than the bound. */
static void bounds_hold(const served *s, uint64_t *random) {
  sl_arrival all[REQUESTS];
  for (int i = 0; i < 24; i++) {
    int stages = 1 + (int)(next_random(random) % 3), tensor = 1 + (int)(next_random(random) % 3);
    sl_session_options large = on(s, stages, tensor), o = large;
    large.rows = 256;
    large.sequences = 64;
    o.rows = 8 << next_random(random) % 5;
    o.sequences = 1 + (int)(next_random(random) % 8);
    o.groups = 1 + (int)(next_random(random) % 4);
    int64_t clients = 1 + (int64_t)(next_random(random) % 16);
    int servers = 1 + (int)(next_random(random) % 3);
    sl_session_prices *p;
    draw_load(random, all);
    CHECK(!sl_session_price(&large, &p), "%s", sl_detail());
    sl_session_prices_weigh(p, REQUESTS, all);
    sl_session_simulation r = simulate(&(sl_fleet){.servers = {&o, servers, p}}, clients, all),
                          exact =
                              simulate(&(sl_fleet){.servers = {&o, servers, NULL}}, clients, all);
    double least = sl_session_prices_least(p, SL_SERVING_ALL, servers, o.rows,
                                           SLI_MIN(o.sequences, o.rows), o.groups);
    /* a few ops have the size of the largest tick, and devices may share smaller ones otherwise */
    CHECK(near(r.seconds, exact.seconds, tensor > 1 ? 0.3 : 0.15),
          "%g s by prices, %g by its own plan", r.seconds, exact.seconds);
    CHECK(least > 0 && least <= 1.001 * r.seconds, "load %d: bound %g s, took %g", i, least,
          r.seconds);
    sl_session_simulation_fini(&r);
    sl_session_simulation_fini(&exact);
    sl_session_prices_free(p);
  }
}

int main(int argc, char **argv) {
  served s = {0};
  uint64_t random = seed_of(argc, argv, 1);
  printf("seed %llu\n", (unsigned long long)random);
  served_model(&s, "gpt", small);
  RUN(one_is_a_session, &s, &random);
  RUN(several_share, &s, &random);
  RUN(pages_travel, &s);
  RUN(odd_cases, &s);
  RUN(bounds_hold, &s, &random);
  sl_args_destroy(s.args);
  return 0;
}
