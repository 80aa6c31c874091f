/* SPDX-License-Identifier: Apache-2.0 */
/* DualPipeV: idle times and memory of the published schedule, and its step under any durations,
 * beside a plain simulation of its eight phases that shares no code with the schedule table.
 *
 *   test_models_dual_pipe [SEED [COUNT]]
 * labels: random unthreaded */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "tests/support/schedules.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { DEEPEST = 8, LONGEST = 4 * DEEPEST + 3 };

/* ---- the published schedule -------------------------------------------------------------- */

/* A unit of a device's order: a pass, or a pass forward and a whole pass backward at once. */
typedef struct unit {
  char kind;        /* F, B (whole), b (input gradient), W, P (a pair) */
  int chunk, other; /* P: chunks of F and of B */
} unit;

typedef struct device_order {
  int n;
  unit units[8 * LONGEST];
  int put_off[2 * LONGEST], first, last;
} device_order;

static void put(device_order *o, char kind, int chunk, int other) {
  if (kind == 'b') o->put_off[o->last++] = chunk;
  if (kind == 'W') chunk = o->put_off[o->first++];
  o->units[o->n++] = (unit){kind, chunk, other};
}

/* The loop of DualPipeV's authors, phase by phase. */
static void write_order(device_order *o, int p, int m, int d) {
  *o = (device_order){0};
  for (int i = 0; i < 2 * (p - 1 - d); i++) put(o, 'F', 0, 0);
  for (int i = 0; i < d + 1; i++) put(o, 'F', 0, 0), put(o, 'F', 1, 0);
  for (int i = 0; i < p - 1 - d; i++) put(o, 'b', 1, 0), put(o, 'W', 0, 0), put(o, 'F', 1, 0);
  for (int i = 0; i < m - 2 * p + d + 1; i++) {
    if (i || d < p - 1) put(o, 'P', 0, 1);
    else put(o, 'F', 0, 0), put(o, 'B', 1, 0);
    put(o, 'P', 1, 0);
  }
  for (int i = 0; i < p - 1 - d; i++) put(o, 'B', 1, 0), put(o, 'P', 1, 0);
  bool zero_bubble = false;
  for (int i = 0; i < d + 1; i++) {
    zero_bubble |= i == (d + 1) / 2 && d % 2;
    put(o, zero_bubble ? 'b' : 'B', 1, 0);
    zero_bubble |= i == (d + 1) / 2;
    put(o, zero_bubble ? 'b' : 'B', 0, 0);
  }
  for (int i = 0; i < p - 1 - d; i++) put(o, 'W', 0, 0), put(o, 'b', 0, 0);
  for (int i = 0; i < d + 1; i++) put(o, 'W', 0, 0);
}

typedef struct durations {
  double F, B, W, together;
} durations;

static double unit_length(const durations *t, char kind) {
  return kind == 'F'   ? t->F
         : kind == 'B' ? t->B + t->W
         : kind == 'b' ? t->B
         : kind == 'W' ? t->W
                       : t->together;
}

/* Times at which forward and backward passes of a microbatch have left a stage. */
typedef struct known_ends {
  double forward[2 * DEEPEST][LONGEST], backward[2 * DEEPEST][LONGEST];
} known_ends;

/* Returns when the inputs of a unit are there, INFINITY if that is not known yet. */
static double inputs_of(const known_ends *k, int p, int d, const unit *u, const int n[2][2]) {
  double ready = 0;
  bool pair = u->kind == 'P', f = pair || u->kind == 'F',
       b = pair || u->kind == 'B' || u->kind == 'b';
  int back = pair ? u->other : u->chunk, s = u->chunk ? 2 * p - 1 - d : d,
      t = back ? 2 * p - 1 - d : d;
  if (f && s) ready = k->forward[s - 1][n[0][u->chunk]];
  if (b)
    ready = fmax(ready, t < 2 * p - 1 ? k->backward[t + 1][n[1][back]] : k->forward[t][n[1][back]]);
  return ready;
}

static void note_ends(known_ends *k, int p, int d, const unit *u, int n[2][2], double end) {
  bool pair = u->kind == 'P';
  int back = pair ? u->other : u->chunk;
  if (pair || u->kind == 'F') k->forward[u->chunk ? 2 * p - 1 - d : d][n[0][u->chunk]++] = end;
  if (pair || u->kind == 'B' || u->kind == 'b')
    k->backward[back ? 2 * p - 1 - d : d][n[1][back]++] = end;
}

/* Returns the length of a step in which each unit waits for all its inputs and hands on its outputs
 * at its end. */
static double published_step(int p, int m, const durations *t) {
  known_ends *k = sli_calloc(1, sizeof *k);
  device_order *o = sli_calloc((size_t)p, sizeof *o);
  double at[DEEPEST] = {0}, last = 0;
  int place[DEEPEST] = {0}, n[DEEPEST][2][2] = {0}, left = 0;
  for (int s = 0; s < 2 * p; s++)
    for (int i = 0; i < m; i++) k->forward[s][i] = k->backward[s][i] = INFINITY;
  for (int d = 0; d < p; d++) write_order(&o[d], p, m, d), left += o[d].n;
  for (int before = -1; left && left != before;) {
    before = left;
    for (int d = 0; d < p; d++)
      while (place[d] < o[d].n) {
        const unit *u = &o[d].units[place[d]];
        double ready = inputs_of(k, p, d, u, n[d]);
        if (isinf(ready)) break;
        at[d] = fmax(at[d], ready) + unit_length(t, u->kind);
        note_ends(k, p, d, u, n[d], at[d]);
        place[d]++, left--;
      }
  }
  CHECK(!left, "p %d, m %d: the published order gets stuck", p, m);
  for (int d = 0; d < p; d++) last = fmax(last, at[d]);
  free(o);
  free(k);
  return last;
}

/* ---- ours ----------------------------------------------------------------------------------- */

typedef struct result {
  double step, peak; /* peak: chunks */
} result;

static result run(int p, int m, const durations *t) {
  lowered_model x;
  pipeline_init(&x, m, 1,
                &(sl_lower_options){
                    .parallel.stages = p,
                    .schedule.chunks = 2,
                    .schedule.name = "dualpipev",
                    .simulation.cost = {.F = t->F, .B = t->B, .W = t->W, .together = t->together}});
  CHECK(!sl_plan_prove(x.plan), "%s", sl_detail());
  result r;
  timetable table = measure(x.plan, 0, 0, &r.peak);
  r.step = timetable_span(&table);
  r.peak *= 2;
  timetable_free(&table);
  lowered_model_fini(&x);
  return r;
}

/* The authors' table, of P = 2p stages on p devices: (P/2 - 1)(F&B + B - 3W) idle, P + 1
 * activations. */
static void idle_and_memory_are_the_published_ones(void) {
  static const int stages[] = {4, 8, 16}, idle[] = {2, 6, 14};
  for (size_t i = 0; i < SLI_COUNT(stages); i++)
    for (int m = stages[i]; m <= 2 * stages[i]; m += stages[i] / 2 + 1)
      for (double together = 3; together >= 2; together -= 0.5) {
        int p = stages[i] / 2;
        result r = run(p, m, &(durations){1, 1, 1, together});
        CHECK(fabs(r.peak - (stages[i] + 1)) < 1e-9,
              "%d stages, m %d: holds %g activations, not %d", stages[i], m, r.peak, stages[i] + 1);
        CHECK(fabs(r.step - published_step(p, m, &(durations){1, 1, 1, together})) < 1e-6,
              "%d stages, m %d, F&B %g: a step of %g", stages[i], m, together, r.step);
        if (together == 3)
          CHECK(fabs(r.step - 6.0 * m - idle[i]) < 1e-6, "%d stages, m %d: idle for %g, not %d",
                stages[i], m, r.step - 6.0 * m, idle[i]);
      }
}

static int draw(uint64_t *state, int count) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int)(*state >> 33) % count;
}

static void no_step_is_longer_than_the_published_one(uint64_t seed) {
  uint64_t state = seed;
  draw(&state, 2);
  int p = 2 + draw(&state, DEEPEST - 1), m = 2 * p + draw(&state, 2 * p + 4);
  durations t = {.F = 0.5 + draw(&state, 6) / 2.0,
                 .B = 0.5 + draw(&state, 6) / 2.0,
                 .W = 0.5 + draw(&state, 6) / 2.0};
  double least = fmax(t.F, t.B + t.W);
  t.together = least + (t.F + t.B + t.W - least) * draw(&state, 5) / 4;
  result r = run(p, m, &t);
  double published = published_step(p, m, &t);
  CHECK(r.step <= published + 1e-6,
        "seed %" PRIu64 ": p %d, m %d, F %g, B %g, W %g, F&B %g: a step of %g, published %g", seed,
        p, m, t.F, t.B, t.W, t.together, r.step, published);
  CHECK(fabs(r.peak - (2 * p + 1)) < 1e-9, "seed %" PRIu64 ": holds %g, not %d", seed, r.peak,
        2 * p + 1);
}

/* With fewer microbatches than the script needs, the order emerges. */
static void short_steps_finish(void) {
  for (int p = 2; p <= 5; p++)
    for (int m = 1; m < 2 * p; m++) {
      result r = run(p, m, &(durations){1, 1, 1, 0});
      CHECK(r.peak <= 2 * p + 1 && r.step >= 6.0 * m, "p %d, m %d", p, m);
    }
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 60);
  if (seeds_count(s)) {
    RUN(idle_and_memory_are_the_published_ones);
    RUN(short_steps_finish);
  }
  for (uint64_t i = s.first; i < s.end; i++) RUN(no_step_is_longer_than_the_published_one, i);
  return 0;
}
