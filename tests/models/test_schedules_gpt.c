/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a real GPT: every schedule gives the same losses bit for bit, and no device holds more than
 * its plan says.
 * labels: smoke */
#include <string.h>

#include "base/base.h"
#include "tests/support/schedules.h"
#include "tests/support/test.h"

enum { STEPS = 3, STAGES = 4, MICROBATCHES = 8 };

typedef struct losses {
  int count;
  double loss[STEPS], norm[STEPS];
} losses;

static void take_step(void *ctx, const sl_step_report *report) {
  losses *l = ctx;
  CHECK(report->step == l->count && l->count < STEPS, "steps are reported in order");
  l->loss[l->count] = report->loss;
  l->norm[l->count++] = report->grad_norm;
}

/* Returns the most activations that a device's quotas allow, in microbatches. */
static double most_activations(const sl_plan *plan, int32_t device) {
  double most = 0, pooled = 0, pool = 0;
  for (int32_t i = 0; i < plan->nregs; i++) {
    const sl_register *r = &plan->regs[i];
    if (r->device != device || !(r->activation > 0)) continue;
    if (r->pool == SL_NONE) {
      most += r->quota * r->activation;
    } else {
      pooled += r->quota * r->activation;
      pool = plan->pools[r->pool].quota * r->activation;
    }
  }
  return most + SLI_MIN(pooled, pool);
}

static void check_memory(const char *schedule, const sl_plan *plan, const sl_runtime *rt) {
  for (int32_t i = 0; i < plan->nregs; i++)
    CHECK(sl_runtime_peak_slots(rt, i) <= plan->regs[i].quota,
          "%s: %s had %d slots, its quota is %d", schedule, plan->regs[i].name,
          sl_runtime_peak_slots(rt, i), plan->regs[i].quota);
  for (int32_t d = 0; d < plan->ndevices; d++)
    CHECK(sl_runtime_peak_activations(rt, d) <= most_activations(plan, d) + 1e-9,
          "%s: device %d held %g activations, its quotas say %g", schedule, d,
          sl_runtime_peak_activations(rt, d), most_activations(plan, d));
}

static losses train(const char *schedule, char *text) {
  char *words[] = {"--data", text,        "--layers", "8",       "--width", "32", "--heads",
                   "2",      "--context", "16",       "--batch", "8",       NULL};
  losses l = {0};
  lowered_model x;
  sl_lower_options options = {.parallel.stages = STAGES,
                              .schedule.chunks = sl_schedule_chunks(schedule),
                              .schedule.name = schedule,
                              .devices = {.kind = "cpu", .threads = 1},
                              .report.on_step = take_step,
                              .report.ctx = &l};
  CHECK(!lowered_model_init(&x, "gpt", words, MICROBATCHES, 1, &options), "%s", sl_detail());
  CHECK(!sl_plan_prove(x.plan), "%s", sl_detail());
  sl_runtime *rt;
  CHECK(
      !sl_runtime_create(x.plan, &(sl_runtime_options){.jitter_seed = 1, .jitter_ns = 20000}, &rt),
      "%s", sl_detail());
  sl_lowered_attach(x.lowered, rt);
  sl_params_init(x.lowered, rt, 1);
  CHECK(!sl_runtime_run(rt, STEPS), "%s", sl_detail());
  check_memory(schedule, x.plan, rt);
  sl_runtime_destroy(rt);
  lowered_model_fini(&x);
  CHECK(l.count == STEPS, "%s reports every step", schedule);
  return l;
}

int main(void) {
  const char *source = getenv("SLUICE_SOURCE");
  char *text = sli_format("%s/tests/reference/text.txt", source ? source : ".");
  losses first = train("gpipe", text);
  for (const char *const *name = sl_schedule_names(); *name; name++) {
    if (!strcmp(*name, "auto")) continue;
    losses l = train(*name, text);
    for (int i = 0; i < STEPS; i++)
      CHECK(l.loss[i] == first.loss[i] && l.norm[i] == first.norm[i],
            "%s, step %d: loss %a and norm %a; gpipe's are %a and %a", *name, i, l.loss[i],
            l.norm[i], first.loss[i], first.norm[i]);
  }
  CHECK(first.loss[STEPS - 1] < first.loss[0], "it learns: %g, then %g", first.loss[0],
        first.loss[STEPS - 1]);
  free(text);
  return 0;
}
