/* SPDX-License-Identifier: Apache-2.0 */
/* A fixed order applies to the queue that runs a device's passes, at any position among the plan's
 * queues. The order may be read from a file, derived, or kept as the best one found.
 * labels: unthreaded */
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "graph/schedule/schedule.h"
#include "tests/support/test.h"

enum { STAGES = 2, MICROBATCHES = 4 };

static char path[64];
static int32_t passes[STAGES]; /* the queue of each device's passes */

static int32_t add_queue(sl_plan *plan, const char *name, int device) {
  return sl_plan_add_queue(
      plan, (sl_queue){.name = name, .device = device, .run_ahead = 1, .ops = &sl_queue_timed});
}

static void add_queues(sl_plan *plan) {
  for (int d = 0; d < STAGES; d++)
    sl_plan_add_device(plan, (sl_device){.name = d ? "b" : "a", .kind = "timed"});
  add_queue(plan, "exchange@1", 1);
  passes[1] = add_queue(plan, "pass@1", 1);
  add_queue(plan, "host@1", 1);
  add_queue(plan, "host@0", 0);
  passes[0] = add_queue(plan, "pass@0", 0);
}

static int32_t add_register(sl_plan *plan, const char *name, int device) {
  return sl_plan_add_register(plan, (sl_register){.name = name,
                                                  .quota_name = "act",
                                                  .quota = 4,
                                                  .pool = SL_NONE,
                                                  .device = device,
                                                  .slot_bytes = 64});
}

/* F0 -> F1 -> B1 -> B0. */
static sl_plan *make_plan(void) {
  static const char *const names[] = {"F0", "F1", "B1", "B0"};
  static const sl_class classes[] = {SL_CLASS_F, SL_CLASS_F, SL_CLASS_B, SL_CLASS_B};
  sl_plan *plan = sl_plan_create(MICROBATCHES, 1);
  int32_t each = sl_plan_map_each(plan), regs[3];
  add_queues(plan);
  for (int i = 0; i < 3; i++) regs[i] = add_register(plan, names[i], i == 0 ? 0 : 1);
  for (int i = 0; i < 4; i++) {
    int stage = i == 1 || i == 2;
    sl_port in = {i ? regs[i - 1] : 0, each}, out = {i < 3 ? regs[i] : 0, each};
    sl_plan_add_actor(plan, (sl_actor){.name = names[i],
                                       .cls = classes[i],
                                       .queue = passes[stage],
                                       .stage = stage,
                                       .ticks = each,
                                       .seconds = 1,
                                       .firings_per_step = MICROBATCHES,
                                       .source = i == 0,
                                       .nin = i > 0,
                                       .in = &in,
                                       .nout = i < 3,
                                       .out = &out});
  }
  return plan;
}

static sl_status fix_order(sl_plan *plan, const char *given) {
  return sli_order_passes(
      &(sli_pass_order){.plan = plan, .ndevices = STAGES, .queues = passes, .given = given});
}

/* Compares the order of a device's pass queue with a text such as "F0 F0 B0". */
static void check_order(const sl_plan *plan, int device, const char *expected) {
  const sl_queue *q = &plan->queues[passes[device]];
  char text[128] = "";
  for (int32_t i = 0; i < q->norder; i++) {
    if (i) strcat(text, " ");
    strcat(text, plan->actors[q->order[i]].name);
  }
  CHECK(!strcmp(text, expected), "device %d has the order %s, not %s", device, text, expected);
}

static void check_others(const sl_plan *plan) {
  for (int32_t q = 0; q < plan->nqueues; q++)
    CHECK(q == passes[0] || q == passes[1] || !plan->queues[q].order, "%s has an order",
          plan->queues[q].name);
}

static void what_a_file_says(void) {
  static const char *const lines[] = {"F0 F0 F0 B0 F0 B0 B0 B0", "F1 B1 F1 B1 F1 F1 B1 B1"};
  FILE *file = fopen(path, "w");
  CHECK(file && fprintf(file, "0: %s\n1: %s\n", lines[0], lines[1]) > 0 && !fclose(file), "%m");
  sl_plan *plan = make_plan();
  CHECK(!fix_order(plan, path), "%s", sl_detail());
  for (int d = 0; d < STAGES; d++) check_order(plan, d, lines[d]);
  check_others(plan);
  sl_plan_destroy(plan);
}

static void what_follows_from_quotas(void) {
  sl_plan *plan = make_plan();
  CHECK(!fix_order(plan, "derive"), "%s", sl_detail());
  for (int d = 0; d < STAGES; d++)
    CHECK(plan->queues[passes[d]].norder == 2 * MICROBATCHES, "device %d has an order of %d", d,
          plan->queues[passes[d]].norder);
  check_others(plan);
  sl_plan_destroy(plan);
}

static void a_second_line_is_refused(void) {
  FILE *file = fopen(path, "w");
  CHECK(file && fputs("1: F1 F1 F1 F1 B1 B1 B1 B1\n1: F1 B1\n", file) > 0 && !fclose(file), "%m");
  sl_plan *plan = make_plan();
  CHECK(fix_order(plan, path) == SL_E_INPUT &&
            strstr(sl_detail(), ":2: device 1 already has an order"),
        "%s", sl_detail());
  sl_plan_destroy(plan);
}

static void every_device_has_a_line(void) {
  static const struct {
    const char *text, *what;
  } files[] = {
      {"", "device 0 has no order"},
      {"# none\n\n", "device 0 has no order"},
      {"1: F1 F1 F1 F1 B1 B1 B1 B1\n", "device 0 has no order"},
      {"0: F0 F0 F0 F0 B0 B0 B0 B0", "device 1 has no order; each of the 2 devices needs a line"},
  };
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(files[i].text, file) >= 0 && !fclose(file), "%m");
    sl_plan *plan = make_plan();
    CHECK(fix_order(plan, path) == SL_E_INPUT && strstr(sl_detail(), path) &&
              strstr(sl_detail(), files[i].what),
          "file %zu: %s", i, sl_detail());
    sl_plan_destroy(plan);
  }
}

int main(void) {
  snprintf(path, sizeof path, "/tmp/sluice-test-order-%ld", (long)getpid());
  RUN(what_a_file_says);
  RUN(what_follows_from_quotas);
  RUN(a_second_line_is_refused);
  RUN(every_device_has_a_line);
  unlink(path);
  return 0;
}
