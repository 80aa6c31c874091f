/* SPDX-License-Identifier: Apache-2.0 */
/* Random loops: blocks in random visits, and delays from any visit to any other, whose ticks, slots
 * and readers are drawn. A plan that the proof accepts gives, on any number of stages and with any
 * timing, the values of a plain loop over ticks to the last bit. A loop whose slots do not suffice
 * is refused, and the words name a delay.
 *
 *   test_graph_random_loops [FIRST_SEED [COUNT]]
 * labels: random unthreaded */
#include <inttypes.h>
#include <string.h>

#include <sluice/sluice.h>

#include "base/base.h"
#include "base/philox.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { MOST_BLOCKS = 5, MOST_VISITS = 12, MOST_DELAYS = 4, TICKS = 24, ROWS = 2, WIDTH = 3 };

typedef struct delay {
  int from, to; /* visits that compute and read the value */
  int ticks;    /* or, if `some`, the values in flight at the start of a step */
  bool some;    /* read and written in some ticks of a step only */
  bool reads[TICKS], writes[TICKS];
  float factor;
} delay;

/* A model: `visits` visits of blocks in order, each y = factor x + the delays that it reads. */
typedef struct model {
  uint64_t state;
  int blocks, visits, ndelays, microbatches, stages, quota, slot_delay;
  int block[MOST_VISITS];
  bool again[MOST_VISITS];
  float factor[MOST_VISITS];
  delay delays[MOST_DELAYS];
  int count;
  float got[TICKS * 2][ROWS * WIDTH];
} model;

/* SplitMix64 (Steele et al., OOPSLA 2014). */
static uint64_t next_random(model *m) {
  uint64_t z = m->state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
static int draw(model *m, int least, int most) {
  return least + (int)(next_random(m) % (uint64_t)(most - least + 1));
}

static float data_at(int64_t tick, int64_t i) {
  uint32_t words[4] = {(uint32_t)i, (uint32_t)tick, 0, 0};
  sli_philox(words, 3);
  return (float)(int32_t)words[0] * 0x1p-31f;
}

/* ---- a random model ------------------------------------------------------------------------ */

/* Draws the blocks of visits: all in order, then some of them again. */
static void draw_visits(model *m) {
  m->blocks = draw(m, 1, MOST_BLOCKS);
  for (int b = 0; b < m->blocks; b++) m->block[m->visits++] = b;
  for (int loops = draw(m, 0, 2); loops > 0; loops--) {
    int first = draw(m, 0, m->blocks - 1), last = draw(m, first, m->blocks - 1);
    for (int b = first; b <= last && m->visits < MOST_VISITS; b++) {
      m->again[m->visits] = true;
      m->block[m->visits++] = b;
    }
  }
  for (int v = 0; v < m->visits; v++) m->factor[v] = (float)draw(m, 1, 7) / 8;
}

/* Returns whether a delay is read as often as it is written, and never before a value is there. A
 * value may be read in the tick that writes it if a later visit reads it. */
static bool is_sound(const model *m, const delay *d) {
  int held = d->ticks, reads = 0, writes = 0;
  for (int t = 0; t < m->microbatches; t++) {
    bool early = d->from < d->to && d->writes[t];
    if (d->reads[t] && held + early < 1) return false;
    held += d->writes[t] - d->reads[t];
    reads += d->reads[t];
    writes += d->writes[t];
  }
  return reads == writes && reads > 0;
}

/* Draws the ticks of a step in which a delay is written and read. */
static void draw_ticks(model *m, delay *d) {
  d->ticks = draw(m, 0, 3);
  for (int tries = 0; tries < 300 && !d->some; tries++) {
    for (int t = 0; t < m->microbatches; t++) {
      d->writes[t] = draw(m, 0, 1);
      d->reads[t] = draw(m, 0, 1);
    }
    d->some = is_sound(m, d);
  }
  if (!d->some) d->ticks = 1;
}

static void draw_delay(model *m, delay *d) {
  *d = (delay){.from = draw(m, 0, m->visits - 1),
               .to = draw(m, 0, m->visits - 1),
               .ticks = draw(m, 1, 5),
               .factor = (float)draw(m, -4, 4) / 8};
  if (m->microbatches > 1 && draw(m, 0, 2) == 0) draw_ticks(m, d);
}

static void draw_model(model *m, uint64_t seed) {
  static const int counts[] = {1, 2, 3, 4, 6, 12};
  *m = (model){.state = seed * 0x2545f4914f6cdd1du, .quota = -1};
  draw_visits(m);
  m->microbatches = counts[draw(m, 0, 5)];
  m->ndelays = draw(m, 1, MOST_DELAYS);
  for (int i = 0; i < m->ndelays; i++) draw_delay(m, &m->delays[i]);
  m->stages = draw(m, 1, m->blocks);
  if (draw(m, 0, 2) == 0) m->quota = draw(m, 1, 6);
}

/* ---- its graph ----------------------------------------------------------------------------- */

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx;
  for (int64_t i = 0; out[0] && i < ROWS * WIDTH; i++)
    ((float *)out[0])[i] = data_at(tick->number, i);
  if (out[1]) *(int32_t *)out[1] = (int32_t)tick->number;
}

static const sl_type types[] = {{SL_F32, 3, {1, ROWS, WIDTH}}, {SL_I32, 1, {1}}};
static const sl_source source = {.nout = 2, .types = types, .fill = fill};

static bool is_read(const model *m, const delay *d, int64_t tick) {
  return !d->some || d->reads[tick % m->microbatches];
}
static bool is_written(const model *m, const delay *d, int64_t tick) {
  return !d->some || d->writes[tick % m->microbatches];
}

/* A delay and its model, for a call. */
typedef struct reader {
  const model *model;
  const delay *delay;
} reader;

/* read_delay(x, tick, value) -> x + factor value, or x in ticks that do not read the delay. */
static sl_status read_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = in[0];
  return SL_OK;
}

static void read_cpu(const sl_call *call) {
  const reader *r = call->attrs->user;
  const float *x = call->in[0], *before = call->in[2];
  float *y = call->out[0];
  bool reads = is_read(r->model, r->delay, *(const int32_t *)call->in[1]);
  for (int i = 0; i < ROWS * WIDTH; i++) {
    float more = reads ? before[i] * r->delay->factor : 0;
    y[i] = reads ? x[i] + more : x[i];
  }
}

/* all_rows(x) -> x, all of whose rows are valid. Delays with ticks are of such tensors. */
static void all_rows_cpu(const sl_call *call) {
  memcpy(call->out[0], call->in[0], sl_type_bytes(&call->in_type[0]));
  sl_call_fill(call, 0, ROWS);
}

static const sl_op all_rows_op = {.name = "all_rows",
                                  .min_in = 1,
                                  .max_in = 1,
                                  .nout = 1,
                                  .traits = SL_OP_DETACHED,
                                  .rows = &(const sl_op_rows){.fills = 1, .second = 1},
                                  .infer = read_infer,
                                  .kernels = SL_CPU_KERNEL(all_rows_cpu)};

static const sl_op read_op = {.name = "read_delay",
                              .min_in = 2,
                              .max_in = 3,
                              .nout = 1,
                              .traits = SL_OP_DETACHED,
                              .rows = &(const sl_op_rows){.looks = 5, .follows = 1},
                              .infer = read_infer,
                              .kernels = SL_CPU_KERNEL(read_cpu)};

static sl_tensor *read_delay(sl_graph *g, const model *m, int i, sl_tensor *tick, sl_tensor **x) {
  const delay *d = &m->delays[i];
  char name[16];
  snprintf(name, sizeof name, "loop.%d", i);
  sl_delay_ticks *in = sl_graph_alloc(g, sizeof *in);
  *in = (sl_delay_ticks){d->reads, d->writes};
  sl_tensor *before = d->some ? sl_delayed_in(g, types[0], d->ticks, in, name)
                              : sl_delayed_rows(g, types[0], d->ticks, name);
  reader *r = sl_graph_alloc(g, sizeof *r);
  *r = (reader){m, d};
  sl_tensor *inputs[] = {*x, tick, before};
  sl_apply(g, &read_op, (&(sl_attrs){.user = r}), 3, inputs, 0, x);
  return before;
}

static void build(sl_graph *g, const model *m) {
  sl_tensor *data[2], *before[MOST_DELAYS] = {0}, *after[MOST_VISITS];
  for (int v = 0; v < m->visits; v++) {
    if (m->again[v]) sl_block_again(g, "h.%d", m->block[v]);
    else sl_block(g, "h.%d", m->block[v]);
    if (!v) sl_data(g, &source, data);
    if (!v) sl_apply(g, &all_rows_op, NULL, 1, (sl_tensor *[]){data[0]}, 0, &data[0]);
    sl_tensor *x = sl_scale(g, v ? after[v - 1] : data[0], m->factor[v]);
    for (int i = 0; i < m->ndelays; i++)
      if (m->delays[i].to == v) before[i] = read_delay(g, m, i, data[1], &x);
    after[v] = x;
  }
  for (int i = 0; i < m->ndelays; i++) sl_delay(g, before[i], after[m->delays[i].from]);
  sl_output(g, "x", after[m->visits - 1]);
}

static void take_output(void *ctx, const char *name, const sl_type *shape, const void *data) {
  model *m = ctx;
  (void)name, (void)shape;
  memcpy(m->got[m->count++], data, sizeof m->got[0]);
}

/* ---- a plain loop -------------------------------------------------------------------------- */

/* Values that a delay has been given and has not handed on. */
typedef struct fifo {
  float values[64 + 2 * TICKS];
  int first, end;
} fifo;

static void check_element(const model *m, uint64_t seed, int64_t element, int ticks) {
  static fifo lines[MOST_DELAYS];
  memset(lines, 0, sizeof lines);
  for (int i = 0; i < m->ndelays; i++) lines[i].end = m->delays[i].ticks;
  for (int t = 0; t < ticks; t++) {
    float x = data_at(t, element);
    for (int v = 0; v < m->visits; v++) {
      x *= m->factor[v];
      for (int i = 0; i < m->ndelays; i++)
        if (m->delays[i].to == v && is_read(m, &m->delays[i], t)) {
          float more = lines[i].values[lines[i].first++] * m->delays[i].factor;
          x += more;
        }
      for (int i = 0; i < m->ndelays; i++)
        if (m->delays[i].from == v && is_written(m, &m->delays[i], t))
          lines[i].values[lines[i].end++] = x;
    }
    CHECK(m->got[t][element] == x, "seed %" PRIu64 ": tick %d, element %" PRId64 ": %a, not %a",
          seed, t, element, (double)m->got[t][element], (double)x);
  }
}

/* ---- cases --------------------------------------------------------------------------------- */

static int accepted, refused, deep;

static void run(model *m, const sl_lowered *lowered, uint64_t seed) {
  sl_runtime *rt;
  int steps = TICKS / m->microbatches;
  sl_runtime_options checked = {
      .check = true, .jitter_seed = seed, .jitter_ns = 1000, .watchdog_seconds = 20};
  CHECK(!sl_runtime_create(sl_lowered_plan(lowered), &checked, &rt), "seed %" PRIu64 ": %s", seed,
        sl_detail());
  sl_lowered_attach((sl_lowered *)lowered, rt);
  CHECK(!sl_runtime_run(rt, steps), "seed %" PRIu64 ": %s", seed, sl_detail());
  CHECK(m->count == TICKS, "seed %" PRIu64 ": %d ticks, not %d", seed, m->count, TICKS);
  for (int64_t i = 0; i < ROWS * WIDTH; i++) check_element(m, seed, i, TICKS);
  sl_runtime_destroy(rt);
}

/* Returns whether a plan may be refused: its slots are drawn, or a value is read in the tick that
 * writes it, which is too early if one actor does both. */
static bool may_be_refused(const model *m) {
  bool may = m->quota > 0;
  for (int i = 0; i < m->ndelays; i++) may |= m->delays[i].some;
  return may;
}

static void random_loops_give_the_values_of_a_plain_loop(uint64_t seed) {
  static model m;
  draw_model(&m, seed);
  sl_graph *g = sl_graph_create(
      &(sl_graph_options){.microbatches = m.microbatches, .stages = m.stages, .infer = true});
  sl_lowered *lowered = NULL;
  build(g, &m);
  CHECK(!sl_graph_status(g), "seed %" PRIu64 ": %s", seed, sl_detail());
  const sl_quota quota = {"delay", SL_NONE, m.quota};
  sl_lower_options how = {.parallel.stages = m.stages,
                          .devices = {.kind = "cpu", .threads = 1},
                          .memory = {.nquotas = m.quota > 0, .quotas = &quota},
                          .report.on_output = take_output,
                          .report.ctx = &m};
  sl_status status = sl_lower(g, &how, &lowered);
  deep += status != SL_OK;
  if (!status) status = sl_plan_prove(sl_lowered_plan(lowered));
  status ? refused++ : accepted++;
  if (status)
    CHECK(may_be_refused(&m) && strstr(sl_detail(), "delay:loop."), "seed %" PRIu64 ": %s", seed,
          sl_detail());
  else run(&m, lowered, seed);
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, (uint64_t)test_many(300, 60, 300));
  uint64_t count = seeds_count(s);
  for (uint64_t seed = s.first; seed < s.end; seed++)
    RUN(random_loops_give_the_values_of_a_plain_loop, seed);
  printf("seeds %" PRIu64 " to %" PRIu64 ": %d plans accepted, %d refused, %d of them unproved\n",
         s.first, s.end - 1, accepted, refused, deep);
  CHECK(count < 200 || (accepted > (int)count / 2 && refused > (int)count / 20),
        "the loops are all of one kind");
  return 0;
}
