/* actortrace names the planted culprit: on pipelines with one register short of
 * slots, one slow stage, one slow link or a late loader, that is where the idle
 * time is traced back to; reasons add up to the nanosecond, on both clocks; and
 * the slot it advises saves what it said.
 * labels: unthreaded long first */
#include <sluice/sluice.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/support/test.h"

enum { STAGES = 4, MICROBATCHES = 8, STEPS = 4 };

/* A pipeline of four devices; milliseconds. */
typedef struct pipeline {
  double forward[STAGES], backward[STAGES], link[STAGES], load;
  int act[STAGES], fwd; /* slots */
} pipeline;

static const pipeline even = {.forward = {4, 4, 4, 4}, .backward = {8, 8, 8, 8},
                              .link = {1, 1, 1, 1}, .load = 1, .act = {5, 4, 3, 2}, .fwd = 4};

static char path[64];

/* ---- the plan ------------------------------------------------------------------------ */

static int32_t add_queue(sl_plan *plan, const char *kind, int device, const sl_queue_ops *ops) {
  sl_queue q = {.name = sl_plan_format(plan, "%s@%d", kind, device), .device = device, .ops = ops,
                .run_ahead = ops == &sl_queue_delay ? MICROBATCHES : 1};
  q.class_order[SL_CLASS_F] = 1; /* backward goes first */
  return sl_plan_add_queue(plan, q);
}

static int32_t add_register(sl_plan *plan, const char *name, int device, int quota, int initial) {
  return sl_plan_add_register(
      plan, (sl_register){.name = sl_plan_format(plan, "%s@%d", name, device), .quota_name = name,
                          .quota = quota, .pool = SL_NONE, .device = device, .initial = initial,
                          .memory = SL_MEMORY_ACTIVATIONS, .slot_bytes = 1000});
}

static void add_actor(sl_plan *plan, const char *name, sl_class cls, int32_t queue, int stage,
                      double ms, int nin, sl_port *in, int nout, sl_port *out) {
  bool per_step = cls == SL_CLASS_U;
  sl_map_entry last = {MICROBATCHES - 1, SL_FIRST | SL_LAST};
  sl_plan_add_actor(plan, (sl_actor){
      .name = sl_plan_format(plan, "%s%d", name, stage), .cls = cls, .queue = queue, .stage = stage,
      .chunk = SL_NONE, .firings_per_step = per_step ? 1 : MICROBATCHES, .nin = nin, .in = in,
      .ticks = per_step ? sl_plan_add_map(plan, 1, MICROBATCHES, &last) : sl_plan_map_each(plan),
      .nout = nout, .out = out, .source = !nin, .seconds = ms * 1e-3});
}

/* load -> F0 -> send -> F1 ... F3 -> B3 -> B2 ... B0 -> update -> F0. */
static sl_plan *make_plan(const pipeline *p) {
  sl_plan *plan = sl_plan_create(MICROBATCHES, 1);
  int32_t each = sl_plan_map_each(plan), span = sl_plan_map_span(plan, MICROBATCHES),
          lag = sl_plan_map_lag(plan, 1, 1), pass[STAGES], fwd[STAGES], sent[STAGES], bwd[STAGES],
          act[STAGES];
  for (int d = 0; d < STAGES; d++) {
    sl_plan_add_device(plan, (sl_device){.name = sl_plan_format(plan, "timed:%d", d),
                                         .kind = "timed", .threads = 1});
    pass[d] = add_queue(plan, "pass", d, &sl_queue_timed);
    fwd[d] = add_register(plan, "fwd", d, p->fwd, 0);
    sent[d] = add_register(plan, "sent", d, p->fwd, 0);
    act[d] = add_register(plan, "act", d, p->act[d], 0);
    bwd[d] = add_register(plan, "bwd", d, MICROBATCHES, 0);
  }
  int32_t data = add_register(plan, "data", 0, 2, 0), grad = add_register(plan, "grad", 0, 1, 0),
          param = add_register(plan, "param", 0, 1, 1);
  add_actor(plan, "load", SL_CLASS_L, add_queue(plan, "host", 0, &sl_queue_timed), 0, p->load, 0,
            NULL, 1, &(sl_port){data, each});
  for (int d = 0; d < STAGES; d++) {
    bool last = d == STAGES - 1;
    sl_port in[] = {{d ? sent[d - 1] : data, each}, {param, span}};
    sl_port out[] = {{act[d], each}, {fwd[d], each}};
    add_actor(plan, "F", SL_CLASS_F, pass[d], d, p->forward[d], d ? 1 : 2, in, last ? 1 : 2, out);
    if (!last)
      add_actor(plan, "send", SL_CLASS_C, add_queue(plan, "link", d, &sl_queue_delay), d,
                p->link[d], 1, &(sl_port){fwd[d], each}, 1, &(sl_port){sent[d], each});
  }
  add_actor(plan, "X", SL_CLASS_C, add_queue(plan, "none", 3, &sl_queue_timed), 3, 0, 0, NULL, 2,
            (sl_port[]){{fwd[STAGES - 1], each}, {sent[STAGES - 1], each}});
  for (int d = STAGES - 1; d >= 0; d--) {
    bool last = d == STAGES - 1;
    sl_port in[] = {{act[d], each}, {last ? act[d] : bwd[d + 1], each}};
    sl_port out = d ? (sl_port){bwd[d], each} : (sl_port){grad, span};
    add_actor(plan, "B", SL_CLASS_B, pass[d], d, p->backward[d], last ? 1 : 2, in, 1, &out);
  }
  add_actor(plan, "X", SL_CLASS_C, add_queue(plan, "none", 0, &sl_queue_timed), 0, 0, 0, NULL, 1,
            &(sl_port){bwd[0], each});
  add_actor(plan, "update", SL_CLASS_U, pass[0], 0, 1, 1, &(sl_port){grad, each}, 1,
            &(sl_port){param, lag});
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  CHECK(!sl_plan_prove(plan), "%s", sl_detail());
  return plan;
}

/* Runs it and leaves its trace; returns the length of a step. */
static double run(const pipeline *p, sl_clock clock) {
  sl_plan *plan = make_plan(p);
  sl_runtime *rt;
  sl_runtime_options options = {.clock = clock, .no_data = true};
  CHECK(!sl_runtime_create(plan, &options, &rt), "%s", sl_detail());
  CHECK(!sl_runtime_run(rt, STEPS), "%s", sl_detail());
  CHECK(!sl_trace_write(path, plan, rt, clock), "%s", sl_detail());
  sl_figures figures = sl_runtime_figures(rt);
  free(figures.devices);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
  return figures.step_seconds;
}

/* ---- what actortrace says -------------------------------------------------------------- */

/* All of its output; the caller's to free. */
static char *say(const char *command) {
  const char *build = getenv("SLUICE_BUILD");
  char *line = sli_format("%s/bin/actortrace %s %s", build ? build : "..", command, path);
  FILE *pipe = popen(line, "r");
  CHECK(pipe, "%s cannot be run", line);
  size_t capacity = 1 << 20,
         used = fread(line = sli_realloc(line, capacity, 1), 1, capacity - 1, pipe);
  CHECK(used < capacity - 1 && pclose(pipe) == 0, "actortrace %s fails", command);
  line[used] = 0;
  return line;
}

/* The line after a heading that begins with `title`. */
static const char *line_after(const char *text, const char *title, char *out) {
  const char *at = strstr(text, title), *end = at ? strchr(at, '\n') : NULL;
  CHECK(end, "actortrace says '%s':\n%s", title, text);
  snprintf(out, 256, "%.*s", (int)strcspn(end + 1, "\n"), end + 1);
  return out;
}

/* "the span is the sum of the other lines" of every step and device. */
static void check_sums(double *credit_ns) {
  char *text = say("reasons"), reason[32], name[64], producer[64];
  int64_t missing = 0, lines = 0;
  *credit_ns = 0;
  for (char *at = strchr(text, '\n') + 1; *at; at = strchr(at, '\n') + 1, lines++) {
    long long step, device, start, ns;
    CHECK(sscanf(at, "%lld %lld %31s %63s %63s %lld %lld", &step, &device, reason, name, producer,
                 &start, &ns) == 7, "a line of seven: %.60s", at);
    bool span = !strcmp(reason, "span");
    CHECK(!span || !missing, "the lines before step %lld of device %lld lack %lld ns", step, device,
          (long long)missing);
    missing += span ? ns : -ns;
    if (!strcmp(reason, "credit")) *credit_ns += (double)ns;
    CHECK(strcmp(reason, "input") || strcmp(name, "-"), "an input has a register: %.60s", at);
  }
  CHECK(!missing && lines > STEPS * STAGES * 3, "reasons add up: %lld ns lack", (long long)missing);
  free(text);
}

static void check_culprit(const char *what, const pipeline *p, const char *culprit) {
  run(p, SL_CLOCK_VIRTUAL);
  char line[256], *text = say("show --no-color");
  CHECK(strstr(line_after(text, "Traced back", line), culprit), "%s: %s is named, not %s\n%s", what,
        culprit, line, text);
  free(text);
  double credit_ns;
  check_sums(&credit_ns);
}

static void planted_culprits_are_named(void) {
  pipeline starved = even, slow = even, link = even, late = even, blocked = even;
  starved.act[0] = 1;
  check_culprit("a starved register", &starved, "credit: register act@0 has only 1 slot");
  slow.forward[1] = 12, slow.backward[1] = 24;
  check_culprit("a slow stage", &slow, "1 on pass@1 was running");
  slow.forward[1] = 4, slow.backward[1] = 8, slow.forward[3] = 12, slow.backward[3] = 24;
  check_culprit("another slow stage", &slow, "3 on pass@3 was running");
  link.link[1] = 40;
  check_culprit("a slow link", &link, "send1 on link@1 was running");
  late.load = 30;
  check_culprit("a late loader", &late, "load0 on host@0 was running");
  /* Room for all activations, and none for what is sent: the first device stands
   * still for want of credit, and its neighbour is what is slow. */
  for (int d = 0; d < STAGES; d++) blocked.act[d] = MICROBATCHES;
  blocked.fwd = 1;
  blocked.forward[1] = 16;
  check_culprit("back pressure", &blocked, "F1 on pass@1 was running");
  double credit_ns;
  check_sums(&credit_ns);
  CHECK(credit_ns > 0, "waiting for credit is called that");
}

/* "12.3 ms ...", in seconds */
static double promised_saving(const char *line) {
  double value;
  char unit[8];
  CHECK(sscanf(line, "%lf %7s", &value, unit) == 2, "an advice: %s", line);
  return value * (!strcmp(unit, "s") ? 1 : !strcmp(unit, "ms") ? 1e-3 : 1e-6);
}

/* Is what one more slot of the starved stage saves within a tenth of what was
 * promised? */
static bool keeps_promise(sl_clock clock, pipeline p, int stage) {
  double before = run(&p, clock), credit_ns;
  check_sums(&credit_ns);
  char line[256], *text = say("show --no-color"), want[64];
  line_after(text, "One more slot would save", line);
  snprintf(want, sizeof want, "act of stage %d ", stage);
  CHECK(strstr(line, want), "the register short of slots is the one advised: %s", line);
  free(text);
  double promised = promised_saving(line);
  p.act[stage]++;
  double gained = before - run(&p, clock);
  printf("stage %d, %s clock: promised %.1f ms, gained %.1f ms of %.1f ms\n", stage,
         clock == SL_CLOCK_REAL ? "real" : "virtual", promised * 1e3, gained * 1e3, before * 1e3);
  return promised > 0.02 * before && fabs(gained - promised) <= 0.1 * promised;
}

/* With more to do than it has cores a machine keeps nobody's time. */
static bool is_busy(void) {
  double load;
  return getloadavg(&load, 1) == 1 && load > 0.75 * (double)sysconf(_SC_NPROCESSORS_ONLN);
}

static void check_advice(sl_clock clock, pipeline p, int stage) {
  int tries = 1;
  if (clock == SL_CLOCK_REAL) {
    tries = 4;
    for (int d = 0; d < STAGES; d++) p.forward[d] *= 2, p.backward[d] *= 2, p.link[d] *= 2;
  }
  while (tries && !keeps_promise(clock, p, stage)) tries--;
  if (!tries && clock == SL_CLOCK_REAL && is_busy())
    printf("skipped: the machine is too busy to measure on the real clock\n");
  else
    CHECK(tries, "the slot saves what was promised");
}

static void advised_slots_save_what_was_said(void) {
  pipeline p = even;
  p.act[0] = 1;
  check_advice(SL_CLOCK_VIRTUAL, p, 0);
  check_advice(SL_CLOCK_REAL, p, 0);
  p.act[0] = 5, p.act[1] = 1;
  check_advice(SL_CLOCK_VIRTUAL, p, 1);
  p.act[1] = 4, p.act[2] = 1;
  check_advice(SL_CLOCK_VIRTUAL, p, 2);
  check_advice(SL_CLOCK_REAL, p, 2);
}

int main(void) {
  const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  snprintf(path, sizeof path, "%s/sluice-culprits-%ld.trace", folder, (long)getpid());
  planted_culprits_are_named();
  advised_slots_save_what_was_said();
  unlink(path);
  return 0;
}
