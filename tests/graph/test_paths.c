/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the paths of microbatches (--paths) with random path files, schedules and numbers of
 * workers. Each run has the losses of a plain program that sends one microbatch after another along
 * its path, and all runs of one file have the same bits. A stage fires only for microbatches whose
 * path visits it. Broken files and models that cannot be cut this way are refused with an error
 * that names the cause; no text crashes the reader.
 *
 *   test_graph_paths [SEED [COUNT]]
 * labels: random */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include <sluice/ops.h>
#include <sluice/sluice.h>
#include <sluice/trace.h>

#include "base/base.h"
#include "graph/schedule/schedule.h"
#include "tests/support/rng.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { ROWS = 3, WIDTH = 4, MOST_STAGES = 7, MOST_MICROBATCHES = 12, STEPS = 3 };
static const float rate = 0.2f;

/* ---- a case -------------------------------------------------------------------------------- */

typedef struct scene {
  uint64_t seed;
  int stages, microbatches;
  int length[MOST_MICROBATCHES];
  int path[MOST_MICROBATCHES][MOST_STAGES];
  char file[64];
} scene;

static void write_file(const scene *x, rng *d) {
  FILE *f = fopen(x->file, "w");
  CHECK(f, "%s: %m", x->file);
  fprintf(f, "# seed %llu\n", (unsigned long long)x->seed);
  int first = (int)rng_below(d, (uint32_t)x->microbatches); /* lines may come in any order */
  for (int n = 0; n < x->microbatches; n++) {
    int i = (n + first) % x->microbatches;
    fprintf(f, "%d:", i);
    for (int s = 0; s < x->length[i]; s++) fprintf(f, " %d", x->path[i][s]);
    fprintf(f, rng_below(d, 4) ? "\n" : "  # a path\n\n");
  }
  fclose(f);
}

/* Draws a case. Each inner stage is skipped by some microbatches; some visit the stages in another
 * order. */
static void draw(scene *x, uint64_t seed) {
  rng d = {.key = seed};
  bool visits[MOST_MICROBATCHES][MOST_STAGES];
  *x = (scene){.seed = seed, .stages = 3 + (int)rng_below(&d, MOST_STAGES - 2)};
  x->microbatches = 2 + (int)rng_below(&d, MOST_MICROBATCHES - 1);
  memset(visits, 1, sizeof visits);
  for (int s = 1; s + 1 < x->stages; s++)
    for (int n = 0, out = (int)rng_below(&d, (uint32_t)x->microbatches); n < out;) {
      int i = (int)rng_below(&d, (uint32_t)x->microbatches);
      n += visits[i][s];
      visits[i][s] = false;
    }
  for (int i = 0; i < x->microbatches; i++) {
    for (int s = 0; s < x->stages; s++)
      if (visits[i][s]) x->path[i][x->length[i]++] = s;
    for (int n = 2; n + 1 < x->length[i] && rng_below(&d, 2); n++) {
      int *at = &x->path[i][n], other = 1 + (int)rng_below(&d, (uint32_t)(x->length[i] - 2));
      int stage = *at;
      *at = x->path[i][other];
      x->path[i][other] = stage;
    }
  }
  snprintf(x->file, sizeof x->file, "graph_paths.%d", (int)getpid());
  write_file(x, &d);
}

/* ---- the model ------------------------------------------------------------------------------ */

static float number_of(int64_t tick, int o, int64_t i) {
  uint32_t words[4] = {(uint32_t)i, (uint32_t)tick, (uint32_t)o};
  sli_philox(words, 5);
  return (float)(int32_t)words[0] * 0x1p-31f;
}

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx;
  for (int o = 0; o < 2; o++)
    for (int64_t i = 0; out[o] && i < ROWS * WIDTH; i++)
      ((float *)out[o])[i] = number_of(tick->number, o, i);
}

static const sl_type types[] = {{SL_F32, 2, {ROWS, WIDTH}}, {SL_F32, 2, {ROWS, WIDTH}}};
static const sl_source source = {.nout = 2, .types = types, .fill = fill};

static float start_of(int stage) { return 0.2f + 0.03f * (float)stage; }

/* Each stage ends in tanh, whose gradient reads the output that the stage also hands on. */
static void build(sl_graph *g, int stages) {
  sl_tensor *data[2], *x = NULL;
  for (int s = 0; s < stages; s++) {
    sl_block(g, "layer.%d", s);
    if (!s) sl_data(g, &source, data), x = data[0];
    sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, WIDTH, WIDTH), SL_CONSTANT(start_of(s)), "w.%d", s);
    x = sl_tanh(g, sl_linear(g, x, w, NULL));
  }
  sl_train(g, sl_mse(g, x, data[1]),
           &(sl_optimizer){.rule = &sl_op_sgd, .lr = rate, .clip = 1e30f});
}

/* ---- a plain program for comparison ---------------------------------------------------------- */

typedef double matrix[WIDTH][WIDTH];
typedef double rows[ROWS][WIDTH];

static void forward(const matrix w, const rows x, rows y) {
  for (int r = 0; r < ROWS; r++)
    for (int o = 0; o < WIDTH; o++) {
      double sum = 0;
      for (int i = 0; i < WIDTH; i++) sum += x[r][i] * w[o][i];
      y[r][o] = tanh(sum);
    }
}

/* Turns dy, the gradient of y, into that of x. */
static void backward(const matrix w, const rows x, const rows y, rows dy, matrix dw) {
  rows dx = {{0}};
  for (int r = 0; r < ROWS; r++)
    for (int o = 0; o < WIDTH; o++) {
      double d = dy[r][o] * (1 - y[r][o] * y[r][o]);
      for (int i = 0; i < WIDTH; i++) {
        dw[o][i] += d * x[r][i];
        dx[r][i] += d * w[o][i];
      }
    }
  memcpy(dy, dx, sizeof(rows));
}

/* Returns the loss of one microbatch and adds to the gradients. */
static double one_microbatch(const scene *x, matrix *w, matrix *dw, int64_t tick) {
  rows at[MOST_STAGES + 1], dy;
  int i = (int)(tick % x->microbatches), n = x->length[i];
  double loss = 0, count = ROWS * WIDTH;
  for (int64_t k = 0; k < ROWS * WIDTH; k++) ((double *)at[0])[k] = (double)number_of(tick, 0, k);
  for (int k = 0; k < n; k++) forward(w[x->path[i][k]], at[k], at[k + 1]);
  for (int64_t k = 0; k < ROWS * WIDTH; k++) {
    double off = ((double *)at[n])[k] - (double)number_of(tick, 1, k);
    loss += off * off / count;
    ((double *)dy)[k] = 2 * off / count / x->microbatches;
  }
  for (int k = n - 1; k >= 0; k--)
    backward(w[x->path[i][k]], at[k], at[k + 1], dy, dw[x->path[i][k]]);
  return loss / x->microbatches;
}

static void train_plainly(const scene *x, double loss[STEPS]) {
  matrix w[MOST_STAGES], dw[MOST_STAGES];
  for (int s = 0; s < x->stages; s++)
    for (int k = 0; k < WIDTH * WIDTH; k++) ((double *)w[s])[k] = (double)start_of(s);
  for (int step = 0; step < STEPS; step++) {
    memset(dw, 0, sizeof dw);
    loss[step] = 0;
    for (int i = 0; i < x->microbatches; i++)
      loss[step] += one_microbatch(x, w, dw, (int64_t)step * x->microbatches + i);
    for (int s = 0; s < x->stages; s++)
      for (int k = 0; k < WIDTH * WIDTH; k++)
        ((double *)w[s])[k] -= (double)rate * ((double *)dw[s])[k];
  }
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void take_step(void *ctx, const sl_step_report *report) {
  ((double *)ctx)[report->step] = report->loss;
}

/* Checks that each pass fires exactly once for each microbatch that visits its stage. */
static void check_firings(const scene *x, const sl_plan *plan, const sl_runtime *rt) {
  char name[80];
  sl_trace *t;
  int fired[MOST_STAGES][MOST_MICROBATCHES] = {{0}};
  snprintf(name, sizeof name, "%s.trace", x->file);
  CHECK(!sl_trace_write(name, plan, rt, SL_CLOCK_REAL) && !sl_trace_read(name, &t), "%s",
        sl_detail());
  for (size_t i = 0; i < t->nfirings; i++) {
    const sl_trace_firing *f = &t->firings[i];
    const sl_actor *a = &t->plan->actors[f->record.actor];
    if (a->stage >= 0 && a->cls == SL_CLASS_F) fired[a->stage][f->tick.microbatch]++;
  }
  for (int i = 0; i < x->microbatches; i++) {
    for (int n = 0; n < x->length[i]; n++) fired[x->path[i][n]][i] -= STEPS;
    for (int s = 0; s < x->stages; s++)
      CHECK(!fired[s][i], "seed %llu: microbatch %d on stage %d: %d firings too many",
            (unsigned long long)x->seed, i, s, fired[s][i]);
  }
  sl_trace_destroy(t);
  unlink(name);
}

typedef struct how {
  const char *schedule, *recompute;
  int workers;
  uint64_t jitter;
  int quota; /* act; 0: the schedule's */
} how;

static void run(const scene *x, const how *h, double loss[STEPS]) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = x->microbatches});
  build(g, x->stages);
  sl_quota quota = {"act", SL_NONE, h->quota};
  sl_lower_options options = {.parallel.stages = x->stages,
                              .schedule.name = h->schedule,
                              .schedule.paths = x->file,
                              .memory.recompute = h->recompute,
                              .memory.nquotas = h->quota > 0,
                              .memory.quotas = &quota,
                              .devices = {.kind = "cpu", .threads = 1},
                              .report.on_step = take_step,
                              .report.ctx = loss};
  sl_lowered *lowered;
  CHECK(!sl_lower(g, &options, &lowered), "seed %llu: %s", (unsigned long long)x->seed,
        sl_detail());
  const sl_plan *plan = sl_lowered_plan(lowered);
  CHECK(!sl_plan_prove(plan), "seed %llu, %s: %s", (unsigned long long)x->seed, h->schedule,
        sl_detail());
  sl_runtime *rt;
  sl_runtime_options options_of_run = {.workers = h->workers,
                                       .check = true,
                                       .jitter_seed = h->jitter,
                                       .jitter_ns = 3000,
                                       .watchdog_seconds = 60};
  CHECK(!sl_runtime_create(plan, &options_of_run, &rt), "%s", sl_detail());
  sl_lowered_attach(lowered, rt);
  sl_params_init(lowered, rt, 1);
  CHECK(!sl_runtime_run(rt, STEPS), "%s", sl_detail());
  check_firings(x, plan, rt);
  sl_runtime_destroy(rt);
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
}

static void paths_give_what_a_plain_program_gives(uint64_t seed) {
  static const char *const schedules[] = {"1f1b", "gpipe", "eager-1f1b", "zb-h1", "zb-h2", "1f1b"};
  scene x;
  draw(&x, seed);
  double plain[STEPS], first[STEPS], loss[STEPS];
  train_plainly(&x, plain);
  rng d = {.key = seed + 1000000};
  run(&x, &(how){.schedule = "1f1b", .workers = 1}, first);
  for (int i = 0; i < STEPS; i++)
    CHECK(fabs(first[i] - plain[i]) < 2e-6, "seed %llu, step %d: loss %.9g, not %.9g",
          (unsigned long long)seed, i, first[i], plain[i]);
  for (int n = 0; n < 2; n++) {
    how h = {.schedule = schedules[rng_below(&d, SLI_COUNT(schedules))],
             .workers = 1 + (int)rng_below(&d, 3),
             .jitter = 1 + rng_below(&d, 100),
             .quota = rng_below(&d, 3) ? 0 : 1 + (int)rng_below(&d, 3),
             .recompute = rng_below(&d, 3) ? NULL : "full"};
    run(&x, &h, loss);
    CHECK(!memcmp(loss, first, sizeof loss), "seed %llu: %s with %d workers has other bits",
          (unsigned long long)seed, h.schedule, h.workers);
  }
  unlink(x.file);
}

/* ---- refused files and models ---------------------------------------------------------------- */

static sl_status read_text(const char *text, size_t bytes, int microbatches, int stages) {
  char name[64];
  snprintf(name, sizeof name, "graph_paths.%d", (int)getpid());
  FILE *f = fopen(name, "w");
  CHECK(f && fwrite(text, 1, bytes, f) == bytes && !fclose(f), "%s: %m", name);
  sli_arena arena = {0};
  const sli_paths *paths;
  sl_status status = sli_paths_read(name, microbatches, &arena, &paths);
  int visits[stages];
  if (!status) status = sli_paths_check(paths, stages, visits);
  if (!status) {
    char *again = sli_paths_format(paths);
    CHECK(!strncmp(again, "0: 0", 4), "paths are written as they are read");
    free(again);
  }
  sli_arena_fini(&arena);
  unlink(name);
  return status;
}

static void broken_files_are_named(void) {
  static const struct {
    const char *text, *word;
  } cases[] = {
      {"0: 0 1 2 3\n1: 0 1 2\n2: 0 1 2 3\n", ":2: microbatch 1 goes from stage 0 to stage 2"},
      {"0: 0 1 2 3\n1: 1 2 3\n2: 0 1 2 3\n", ":2: microbatch 1 goes from stage 1 to stage 3"},
      {"0: 0 1 3\n1: 0 1 3\n2: 0 1 3\n", "no microbatch visits stage 2"},
      {"0: 0 1 2 3\n1: 0 1 4 3\n2: 0 1 2 3\n", ":2: no stage 4; there are 4, 0 to 3"},
      {"0: 0 1 2 3\n1: 0 1 1 2 3\n2: 0 1 2 3\n", ":2: microbatch 1 visits stage 1 twice"},
      {"0: 0 1 2 3\n2: 0 1 2 3\n", "microbatch 1 has no path"},
      {"0: 0 1 2 3\n1: 0 1 2 3\n\n1: 0 1 2 3\n2: 0 3\n",
       ":4: microbatch 1 already has a path, in line 2"},
      {"0: 0 1 2 3\n1: 0 1 2 3\n2: 0 1 2 3\n3: 0 1 2 3", ":4: no microbatch 3"},
      {"0: 0 1 2 3\n1 0 1 2 3\n", ":2: must be MICROBATCH: STAGE"},
      {"0: 0 1 2 3\n1:\n", ":2: must be MICROBATCH: STAGE"},
      {"0: 0 1 -2 3\n", ":1: must be MICROBATCH: STAGE"},
      {"0: 0 1 2x 3\n", ":1: must be MICROBATCH: STAGE"},
      {"0: 0 1 99999999999999999999 3\n", ":1: must be MICROBATCH: STAGE"},
      {"-1: 0 1 2 3\n", ":1: must be MICROBATCH: STAGE"},
      {"", "microbatch 0 has no path; a step has 3"}};
  for (size_t i = 0; i < SLI_COUNT(cases); i++)
    CHECK(read_text(cases[i].text, strlen(cases[i].text), 3, 4) == SL_E_INPUT &&
              strstr(sl_detail(), cases[i].word) && strstr(sl_detail(), "paths graph_paths."),
          "\"%s\" is refused, but: %s", cases[i].text, sl_detail());
  CHECK(read_text("0: 0 1\0 3\n", 10, 1, 4) == SL_E_INPUT, "a zero is no end of a line");
  const char *good = "\n# all\n 1:0\t2 3\r\n0:   0 1 3 # one\n";
  CHECK(!read_text(good, strlen(good), 2, 4), "%s", sl_detail());
}

/* Any text is either read or refused with a message. */
static void no_text_breaks_the_reader(uint64_t seed) {
  static const char signs[] = "0123456789:: \n\n\t#-+x.\377";
  rng d = {.key = seed + 2000000};
  char text[200];
  for (int n = 0; n < 40; n++) {
    size_t bytes = rng_below(&d, sizeof text);
    for (size_t i = 0; i < bytes; i++) text[i] = signs[rng_below(&d, sizeof signs)];
    sl_status status = read_text(text, bytes, 1 + (int)rng_below(&d, 4), 1 + (int)rng_below(&d, 4));
    CHECK(!status || (status == SL_E_INPUT && *sl_detail()), "seed %llu: %d",
          (unsigned long long)seed, (int)status);
  }
}

/* A skip connection between stages is refused where microbatches take different paths. */
static void models_that_do_not_fit_are_named(void) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = 2});
  sl_tensor *data[2], *x = NULL, *early = NULL;
  for (int s = 0; s < 4; s++) {
    sl_block(g, "layer.%d", s);
    if (!s) sl_data(g, &source, data), x = data[0];
    sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, WIDTH, WIDTH), SL_CONSTANT(0.3f), "w.%d", s);
    x = sl_tanh(g, sl_linear(g, x, w, NULL));
    if (s == 1) early = x;
  }
  sl_train(g, sl_mse(g, sl_add(g, x, early), data[1]), &(sl_optimizer){.rule = &sl_op_sgd});
  char name[64];
  snprintf(name, sizeof name, "graph_paths.%d", (int)getpid());
  FILE *f = fopen(name, "w");
  CHECK(f && fprintf(f, "0: 0 1 3\n1: 0 2 3\n") > 0 && !fclose(f), "%s: %m", name);
  sl_lowered *lowered;
  sl_lower_options options = {
      .parallel.stages = 4, .schedule.paths = name, .devices = {.kind = "cpu", .threads = 1}};
  CHECK(sl_lower(g, &options, &lowered) == SL_E_UNSUPPORTED && strstr(sl_detail(), "paths: "),
        "refused, but: %s", sl_detail());
  sl_graph_destroy(g);
  unlink(name);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, TEST_SANITIZED ? 4 : 12);
  RUN(broken_files_are_named);
  RUN(models_that_do_not_fit_are_named);
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    RUN(paths_give_what_a_plain_program_gives, seed);
    RUN(no_text_breaks_the_reader, seed);
  }
  return 0;
}
