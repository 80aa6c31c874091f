/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fault_injection.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/support/test.h"

const pipeline injection_even = {.forward = {4, 4, 4, 4},
                                 .backward = {8, 8, 8, 8},
                                 .link = {1, 1, 1, 1},
                                 .load = 1,
                                 .act = {5, 4, 3, 2},
                                 .fwd = 4};

static char path[64];

static void remove_trace(void) { unlink(path); }

static void choose_path(void) {
  if (*path) return;
  const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  snprintf(path, sizeof path, "%s/sluice-injected-%ld.trace", folder, (long)getpid());
  atexit(remove_trace);
}

/* ---- the plan ------------------------------------------------------------------------ */

static int32_t add_queue(sl_plan *plan, const char *kind, int device, const sl_queue_ops *ops) {
  sl_queue q = {.name = sl_plan_format(plan, "%s@%d", kind, device),
                .device = device,
                .ops = ops,
                .run_ahead = ops == &sl_queue_delay ? MICROBATCHES : 1};
  q.class_order[SL_CLASS_F] = 1; /* backward passes go first */
  return sl_plan_add_queue(plan, q);
}

static int32_t add_register(sl_plan *plan, const char *name, int device, int quota, int initial) {
  return sl_plan_add_register(plan,
                              (sl_register){.name = sl_plan_format(plan, "%s@%d", name, device),
                                            .quota_name = name,
                                            .quota = quota,
                                            .pool = SL_NONE,
                                            .device = device,
                                            .initial = initial,
                                            .memory = SL_MEMORY_ACTIVATIONS,
                                            .slot_bytes = 1000});
}

static void add_actor(sl_plan *plan, const char *name, sl_class cls, int32_t queue, int stage,
                      double ms, int nin, sl_port *in, int nout, sl_port *out) {
  bool per_step = cls == SL_CLASS_U;
  sl_map_entry last = {MICROBATCHES - 1, SL_FIRST | SL_LAST};
  sl_plan_add_actor(plan,
                    (sl_actor){.name = sl_plan_format(plan, "%s%d", name, stage),
                               .cls = cls,
                               .queue = queue,
                               .stage = stage,
                               .chunk = SL_NONE,
                               .firings_per_step = per_step ? 1 : MICROBATCHES,
                               .nin = nin,
                               .in = in,
                               .ticks = per_step ? sl_plan_add_map(plan, 1, MICROBATCHES, &last)
                                                 : sl_plan_map_each(plan),
                               .nout = nout,
                               .out = out,
                               .source = !nin,
                               .seconds = ms * 1e-3});
}

/* Makes the plan load -> F0 -> send -> F1 ... F3 -> B3 -> B2 ... B0 -> update -> F0. */
static sl_plan *make_plan(const pipeline *p) {
  sl_plan *plan = sl_plan_create(MICROBATCHES, 1);
  int32_t each = sl_plan_map_each(plan), span = sl_plan_map_span(plan, MICROBATCHES),
          lag = sl_plan_map_lag(plan, 1, 1), pass[STAGES], fwd[STAGES], sent[STAGES], bwd[STAGES],
          act[STAGES];
  for (int d = 0; d < STAGES; d++) {
    sl_plan_add_device(
        plan,
        (sl_device){.name = sl_plan_format(plan, "timed:%d", d), .kind = "timed", .threads = 1});
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

double injection_run(const pipeline *p, sl_clock clock) {
  choose_path();
  sl_plan *plan = make_plan(p);
  sl_runtime *rt;
  sl_runtime_options options = {.clock = clock, .no_data = true};
  CHECK(!sl_runtime_create(plan, &options, &rt), "%s", sl_detail());
  CHECK(!sl_runtime_run(rt, STEPS), "%s", sl_detail());
  CHECK(!sl_trace_write(path, plan, rt, clock), "%s", sl_detail());
  sl_statistics stats = sl_runtime_statistics(rt);
  free(stats.devices);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
  return stats.step_seconds;
}

/* ---- output of actortrace -------------------------------------------------------------- */

char *injection_ask(const char *command) {
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

const char *injection_line(const char *text, const char *title, char out[256]) {
  const char *at = strstr(text, title), *end = at ? strchr(at, '\n') : NULL;
  CHECK(end, "actortrace says '%s':\n%s", title, text);
  snprintf(out, 256, "%.*s", (int)strcspn(end + 1, "\n"), end + 1);
  return out;
}

void injection_check_sums(double *credit_ns) {
  char *text = injection_ask("reasons"), reason[32], name[64], producer[64];
  int64_t missing = 0, lines = 0;
  *credit_ns = 0;
  for (char *at = strchr(text, '\n') + 1; *at; at = strchr(at, '\n') + 1, lines++) {
    long long step, device, start, ns;
    CHECK(sscanf(at, "%lld %lld %31s %63s %63s %lld %lld", &step, &device, reason, name, producer,
                 &start, &ns) == 7,
          "a line of seven: %.60s", at);
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

/* Parses the saving at the start of a line, "12.3 ms ...", in seconds. */
static double promised_saving(const char *line) {
  double value;
  char unit[8];
  CHECK(sscanf(line, "%lf %7s", &value, unit) == 2, "an advice: %s", line);
  return value * (!strcmp(unit, "s") ? 1 : !strcmp(unit, "ms") ? 1e-3 : 1e-6);
}

bool injection_keeps_promise(sl_clock clock, pipeline p, int stage) {
  double before = injection_run(&p, clock), credit_ns;
  injection_check_sums(&credit_ns);
  char line[256], *text = injection_ask("show --no-color"), want[64];
  injection_line(text, "One more slot would save", line);
  snprintf(want, sizeof want, "act of stage %d ", stage);
  CHECK(strstr(line, want), "the register short of slots is the one advised: %s", line);
  free(text);
  double promised = promised_saving(line);
  p.act[stage]++;
  double gained = before - injection_run(&p, clock);
  printf("stage %d, %s clock: promised %.1f ms, gained %.1f ms of %.1f ms\n", stage,
         clock == SL_CLOCK_REAL ? "real" : "virtual", promised * 1e3, gained * 1e3, before * 1e3);
  return promised > 0.02 * before && fabs(gained - promised) <= 0.1 * promised;
}
