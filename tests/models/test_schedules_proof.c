/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict of the proof matches what happens, for random quotas, pools, orders and durations, on
 * the virtual clock and on real threads. The advice for a refused plan makes it finish, without a
 * slot too many.
 *
 *   test_models_schedules_proof [SEED [COUNT]]
 * labels: random unthreaded */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/support/actors_plans.h"
#include "tests/support/schedules.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { MOST_STAGES = 16, MOST_QUOTAS = 2 * MOST_STAGES + 8 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { DRAWS = 100 };
#else
enum { DRAWS = 600 };
#endif

/* A random run. */
typedef struct draw {
  uint64_t seed, random;
  int p, v, m;
  char path[64]; /* path of the order, empty if none */
  int nquotas;
  sl_quota quotas[MOST_QUOTAS];
  double of[MOST_STAGES][SL_CLASS_COUNT];
  stage_seconds seconds;
  sl_lower_options options;
} draw;

/* ---- drawing ------------------------------------------------------------------------- */

static int device_of(const draw *x, int stage) {
  int round = stage / x->p, along = stage % x->p;
  return !strcmp(x->options.parallel.placement, "vee") && round % 2 ? x->p - 1 - along : along;
}

/* Passes done so far, by class (F, B, W) and stage. */
typedef struct progress {
  int done[3][MOST_STAGES];
} progress;

static bool can_go(const draw *x, const progress *g, int cls, int s, bool split) {
  int n = g->done[cls][s], last = x->p * x->v - 1;
  if (n == x->m || (cls == 2 && !split)) return false;
  if (cls == 0) return !s || g->done[0][s - 1] > n;
  if (cls == 2) return g->done[1][s] > n;
  return g->done[0][s] > n && (s == last || g->done[1][s + 1] > n);
}

/* Writes a random order that unlimited memory allows: any pass that is ready may go next. */
static void write_order(draw *x, bool split) {
  char *texts[MOST_STAGES];
  size_t sizes[MOST_STAGES];
  FILE *lines[MOST_STAGES];
  for (int d = 0; d < x->p; d++) lines[d] = open_memstream(&texts[d], &sizes[d]);
  progress g = {0};
  int stages = x->p * x->v, backward_late = random_below(&x->random, 4);
  for (int left = stages * x->m * (split ? 3 : 2); left;) {
    int cls = random_below(&x->random, 3), s = random_below(&x->random, stages);
    if (cls && random_below(&x->random, 4) < backward_late && left % 3) cls = 0;
    if (!can_go(x, &g, cls, s, split)) continue;
    g.done[cls][s]++;
    left--;
    fprintf(lines[device_of(x, s)], " %c%d", "FBW"[cls], s);
  }
  snprintf(x->path, sizeof x->path, "schedules_order_%d.txt", (int)getpid());
  FILE *file = fopen(x->path, "w");
  CHECK(file, "cannot write %s", x->path);
  for (int d = 0; d < x->p; d++) {
    fclose(lines[d]);
    fprintf(file, "%d:%s\n", d, texts[d]);
    free(texts[d]);
  }
  fclose(file);
  x->options.schedule.order = x->path;
}

static void add_quota(draw *x, const char *name, int stage, int slots) {
  x->quotas[x->nquotas++] = (sl_quota){name, stage, slots};
  x->options.memory.nquotas = x->nquotas;
}

static void draw_quotas(draw *x, bool split) {
  for (int s = 0; s < x->p * x->v; s++)
    if (random_below(&x->random, 3)) add_quota(x, "act", s, 1 + random_below(&x->random, x->m));
  if (!random_below(&x->random, 3))
    add_quota(x, "pool", SL_NONE, x->v + random_below(&x->random, x->v * x->m));
  if (x->p * x->v > 1 && !random_below(&x->random, 4))
    add_quota(x, "fwd", SL_NONE, 1 + random_below(&x->random, x->m));
  if (x->p * x->v > 1 && !random_below(&x->random, 2))
    add_quota(x, "bwd", SL_NONE, 1 + random_below(&x->random, 3));
  if (split && !random_below(&x->random, 2))
    add_quota(x, "watermark", SL_NONE, 1 + random_below(&x->random, 4));
}

static void draw_run(draw *x, uint64_t seed, const char *kind) {
  static const char *const names[] = {"gpipe", "1f1b",   "interleaved", "zb-h1",
                                      "zb-v",  "v-half", "dualpipev"};
  *x = (draw){.seed = seed, .random = seed};
  const char *name = names[random_below(&x->random, (int)SLI_COUNT(names))];
  x->p = 1 + random_below(&x->random, 4);
  x->v = sl_schedule_chunks(name);
  x->m = 1 + random_below(&x->random, 8);
  x->options = (sl_lower_options){.parallel.stages = x->p,
                                  .schedule.chunks = x->v,
                                  .schedule.name = name,
                                  .parallel.placement = x->v == 1      ? "line"
                                                        : *name == 'i' ? "loop"
                                                                       : "vee",
                                  .devices.kind = kind,
                                  .memory.quotas = x->quotas,
                                  .simulation.op_seconds = stage_op_seconds,
                                  .simulation.op_seconds_ctx = &x->seconds};
  if (random_below(&x->random, 2))
    x->options.simulation.cost.comm = strcmp(kind, "null") ? 0.1 : 1e-4;
  x->seconds = (stage_seconds){x->p * x->v, x->of};
  for (int s = 0; s < x->p * x->v; s++)
    for (int c = 0; c < SL_CLASS_COUNT; c++) x->of[s][c] = 0.1 * random_below(&x->random, 20);
  bool split = *name == 'z' || *name == 'v' || *name == 'd';
  draw_quotas(x, split);
  if (random_below(&x->random, 3)) write_order(x, split);
}

static void lower(draw *x, lowered_model *out) {
  CHECK(!lowered_model_init(out, "pipeline", NULL, x->m, 1, &x->options), "seed %" PRIu64 ": %s",
        x->seed, sl_detail());
}

/* ---- what happens ------------------------------------------------------------------------ */

static sl_status happens(const draw *x, const sl_plan *plan, sl_clock clock, uint64_t jitter_seed) {
  sl_runtime *rt;
  bool real = clock == SL_CLOCK_REAL;
  sl_runtime_options options = {.clock = clock,
                                .no_data = true,
                                .watchdog_seconds = 20,
                                .workers = real ? 1 + (int)(x->seed / 12 % 4) : 0,
                                .jitter_seed = jitter_seed,
                                .jitter_ns = real ? 2000 : 900000000};
  CHECK(!sl_runtime_create(plan, &options, &rt), "seed %" PRIu64 ": %s", x->seed, sl_detail());
  sl_status status = sl_runtime_run(rt, 3);
  CHECK(!status || status == SL_E_STUCK, "seed %" PRIu64 ": %s", x->seed, sl_detail());
  for (int32_t i = 0; i < plan->nregs; i++)
    CHECK(sl_runtime_peak_slots(rt, i) <= plan->regs[i].quota, "seed %" PRIu64 ": %s", x->seed,
          plan->regs[i].name);
  sl_runtime_destroy(rt);
  return status;
}

/* Returns the verdict after lowering again with one more quota. */
static sl_status lowered_verdict(draw *x, sl_quota more) {
  lowered_model model;
  add_quota(x, more.name, more.stage, more.slots);
  lower(x, &model);
  sl_status status = sl_plan_prove(model.plan);
  lowered_model_fini(&model);
  x->options.memory.nquotas = --x->nquotas;
  return status;
}

static void *copy_of(const void *items, int32_t count, size_t size) {
  return count ? memcpy(sli_calloc((size_t)count, size), items, (size_t)count * size) : NULL;
}

/* Returns the verdict on the plan with nothing but that quota changed; lowering would also raise
 * the quotas that follow from it. */
static sl_status raised_verdict(const sl_plan *plan, sl_quota more) {
  sl_plan with = *plan;
  with.regs = copy_of(plan->regs, plan->nregs, sizeof *plan->regs);
  with.pools = copy_of(plan->pools, plan->npools, sizeof *plan->pools);
  for (int32_t i = 0; i < plan->nregs; i++) {
    sl_register *r = &with.regs[i];
    int32_t stage = r->producer == SL_NONE ? SL_NONE : plan->actors[r->producer].stage;
    if (more.stage != SL_NONE && more.stage != stage) continue;
    if (!strcmp(more.name, "pool") && r->pool != SL_NONE)
      with.pools[r->pool].quota = SLI_MAX(with.pools[r->pool].quota, more.slots);
    if (!strcmp(more.name, r->quota_name))
      r->quota = more.stage == SL_NONE ? more.slots : SLI_MAX(r->quota, more.slots);
  }
  sl_status status = sl_plan_prove(&with);
  free(with.regs);
  free(with.pools);
  return status;
}

/* Reads "--quota act.b@2=5" or "--quota act.b=5" at the end of the text. */
static bool read_advice(const char *text, char name[32], sl_quota *out) {
  const char *at = strstr(text, "--quota ");
  int length = 0;
  if (!at) return false;
  *out = (sl_quota){name, SL_NONE, 0};
  CHECK(sscanf(at, "--quota %31[^@=]%n", name, &length) == 1, "advice names a quota: %s", text);
  at += length;
  if (*at == '@') {
    CHECK(sscanf(at, "@%d%n", &out->stage, &length) == 1, "advice says where: %s", text);
    at += length;
  }
  CHECK(sscanf(at, "=%d", &out->slots) == 1, "advice says how many: %s", text);
  return true;
}

static int accepted, refused, advised;

static void advice_helps(draw *x, const sl_plan *plan, const char *text) {
  char name[32];
  sl_quota more;
  CHECK(strstr(text, "waits for"), "seed %" PRIu64 ": refused, but who waits for whom?\n%s",
        x->seed, text);
  if (!read_advice(text, name, &more)) return;
  if (strstr(text, "the first of several changes")) return; /* not enough alone, and says so */
  advised++;
  CHECK(!lowered_verdict(x, more), "seed %" PRIu64 ": --quota %s@%d=%d does not help:\n%s\n%s",
        x->seed, name, more.stage, more.slots, text, sl_detail());
  more.slots--;
  CHECK(raised_verdict(plan, more), "seed %" PRIu64 ": --quota %s@%d=%d would have done:\n%s",
        x->seed, name, more.stage, more.slots, text);
}

static void check_draw(uint64_t seed, const char *kind, sl_clock clock, int timings) {
  draw x;
  lowered_model model;
  draw_run(&x, seed, kind);
  lower(&x, &model);
  sl_status verdict = sl_plan_prove(model.plan);
  CHECK(!verdict || verdict == SL_E_STUCK, "seed %" PRIu64 ": %s", seed, sl_detail());
  char *text = verdict ? sli_strdup(sl_detail()) : NULL;
  verdict ? refused++ : accepted++;
  for (int t = 0; t < timings && !(verdict && clock == SL_CLOCK_REAL); t++)
    CHECK(happens(&x, model.plan, clock, (uint64_t)t) == verdict,
          "seed %" PRIu64 ": the proof says %s, but timing %d says otherwise:\n%s", seed,
          verdict ? "stuck" : "fine", t, text ? text : sl_detail());
  if (verdict && clock == SL_CLOCK_VIRTUAL) advice_helps(&x, model.plan, text);
  lowered_model_fini(&model);
  free(text);
  if (*x.path) unlink(x.path);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, DRAWS);
  for (uint64_t i = s.first; i < s.end; i++) {
    RUN(check_draw, i, "timed", SL_CLOCK_VIRTUAL, 3);
    if (i % 12 == 0) RUN(check_draw, i, "null", SL_CLOCK_REAL, 1);
  }
  printf("%d accepted, %d refused, %d with advice\n", accepted, refused, advised);
  CHECK(seeds_count(s) < 300 || (accepted > 50 && refused > 50 && advised > 20),
        "the plans are all of one kind");
  return 0;
}
