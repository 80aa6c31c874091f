/* SPDX-License-Identifier: Apache-2.0 */
/* Tests copies between devices and processes. Registers of copies obey their quota and reserve no
 * more memory than it allows; only links read a register of another process.
 * labels: unthreaded */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tests/support/schedules.h"
#include "tests/support/shipped.h"
#include "tests/support/test.h"

static void lower(lowered_model *model, const sl_lower_options *options) {
  char *text = shipped_text();
  char *words[] = {"--layers", "2",       "--width", "16",     "--heads", "2", "--context",
                   "8",        "--batch", "8",       "--data", text,      NULL};
  CHECK(!lowered_model_init(model, "gpt", words, 4, 1, options), "%s", sl_detail());
  free(text);
}

static void copies_have_their_quota(void) {
  lowered_model model;
  const sl_quota quotas[] = {{"h2d", SL_NONE, 1}, {"d2h", 1, 3}, {"d2d", SL_NONE, 2}};
  lower(&model,
        &(sl_lower_options){.parallel.stages = 2,
                            .devices = {.kind = "cuda", .nnumbers = 2, .numbers = (int[]){0, 1}},
                            .memory.nquotas = 3,
                            .memory.quotas = quotas});
  int seen[3] = {0};
  for (int32_t i = 0; i < model.plan->nregs; i++) {
    const sl_register *r = &model.plan->regs[i];
    for (int q = 0; q < 3; q++) {
      if (strcmp(r->quota_name, quotas[q].name)) continue;
      if (quotas[q].stage != SL_NONE && model.plan->actors[r->producer].stage != quotas[q].stage)
        continue;
      seen[q]++;
      CHECK(r->quota == quotas[q].slots && r->quota_most <= r->quota, "%s has %d slots, at most %d",
            r->name, r->quota, r->quota_most);
    }
  }
  CHECK(seen[0] && seen[1] && seen[2], "%d, %d and %d registers", seen[0], seen[1], seen[2]);
  lowered_model_fini(&model);
}

static void links_alone_read_other_processes(const char *kind) {
  lowered_model model;
  lower(&model, &(sl_lower_options){.parallel.stages = 2,
                                    .parallel.data = 2,
                                    .memory.shard = "parameters",
                                    .devices.kind = kind,
                                    .parallel.processes = 4});
  const sl_plan *plan = model.plan;
  int links = 0;
  for (int32_t a = 0; a < plan->nactors; a++) {
    const sl_queue *q = &plan->queues[plan->actors[a].queue];
    bool link = q->ops == &sl_queue_link;
    links += link;
    for (int i = 0; i < plan->actors[a].nin; i++) {
      const sl_register *r = &plan->regs[plan->actors[a].in[i].reg];
      CHECK(link || plan->devices[r->device].process == plan->devices[q->device].process,
            "%s reads %s", plan->actors[a].name, r->name);
    }
  }
  CHECK(links, "there are links");
  lowered_model_fini(&model);
}

int main(void) {
  RUN(copies_have_their_quota);
  RUN(links_alone_read_other_processes, "cpu");
  RUN(links_alone_read_other_processes, "cuda");
  return 0;
}
