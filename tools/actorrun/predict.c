/* SPDX-License-Identifier: Apache-2.0 */
/* Simulation of a plan on devices that need not exist: --dry-run on the virtual clock, and the
 * lines about links and arithmetic after every run on that clock. */
#include <stdlib.h>

#include "tools/actorrun/actorrun.h"
#include "actors/plan/plan.h"

bool has_hosts(const job *j) { return j->settings->modelled.hardware.devices_per_host > 0; }

moved_sum moved_in_step(const job *j) {
  int32_t n = j->plan->ndevices;
  uint64_t(*to)[SL_TRAFFIC_COUNT] = sli_calloc((size_t)n, sizeof *to);
  moved_sum sum = {0};
  sl_lowered_moved(j->lowered, to);
  if (has_hosts(j))
    sl_lowered_crossed(j->lowered, j->settings->modelled.hardware.devices_per_host, sum.crossed);
  for (int32_t d = 0; d < n; d++)
    for (int t = 0; t < SL_TRAFFIC_COUNT; t++) {
      sum.all[t] += (double)to[d][t] * sl_lowered_alike(j->lowered);
      sum.most[t] = SLI_MAX(sum.most[t], (double)to[d][t]);
    }
  free(to);
  return sum;
}

static void print_moved(const job *j) {
  moved_sum sum = moved_in_step(j);
  for (int t = 0; t < SL_TRAFFIC_COUNT; t++) {
    char all[32], most[32], crossed[32], between[64] = "";
    sli_format_bytes(all, sum.all[t]);
    sli_format_bytes(most, sum.most[t]);
    sli_format_bytes(crossed, sum.crossed[t]);
    if (sum.crossed[t] > 0) snprintf(between, sizeof between, "; %s from host to host", crossed);
    if (sum.all[t] > 0 && t != SL_TRAFFIC_ASIDE)
      printf("  %-8s links carry %s in a step, %s to one device at most%s\n",
             sl_traffic_name((sl_traffic)t), all, most, between);
  }
}

double step_joules(const job *j, const sl_statistics *statistics) {
  const sl_hardware *h = &j->settings->modelled.hardware;
  double sum = 0;
  for (int32_t d = 0; d < j->plan->ndevices; d++) {
    const sl_device_statistics *x = &statistics->devices[d];
    sum += energy_joules(h, statistics->step_seconds, x->busy_seconds + x->update_seconds);
  }
  return sum * sl_lowered_alike(j->lowered);
}

static void print_energy(const job *j, const sl_statistics *statistics) {
  double joules = step_joules(j, statistics);
  char all[32], item[32];
  if (joules <= 0) return;
  printf("  devices take %s in a step", energy_text(all, joules));
  if (j->made.items)
    printf(": %s for each of %lld %s", energy_text(item, joules / (double)j->made.items),
           (long long)j->made.items, j->made.word);
  printf("\n");
}

void print_step(const job *j, const sl_statistics *statistics) {
  if (!(statistics->step_seconds > 0)) return;
  char step[32];
  printf("a step takes %s", sli_format_seconds(step, statistics->step_seconds));
  if (j->made.items)
    printf(" (%.0f %s/s)", (double)j->made.items / statistics->step_seconds, j->made.word);
  if (j->plan->ndevices > 1) printf(", bubble %.1f %%", 100 * statistics->bubble_fraction);
  printf("\n");
  char passes[32], update[32], other[32];
  printf("  passes %s, update %s, other %s\n",
         sli_format_seconds(passes, statistics->passes_seconds),
         sli_format_seconds(update, statistics->update_seconds),
         sli_format_seconds(other, statistics->other_seconds));
}

void print_modelled(const job *j, const sl_statistics *statistics) {
  if (!(statistics->step_seconds > 0)) return;
  int alike = sl_lowered_alike(j->lowered);
  int devices = j->plan->ndevices * alike;
  double flops = sl_lowered_flops(j->lowered);
  char rate[32];
  if (flops > 0)
    printf("  passes compute %.4g flop in a step: %s a device\n", flops,
           sli_format_rate(rate, flops / statistics->step_seconds / devices, "flop/s"));
  print_energy(j, statistics);
  print_moved(j);
  if (alike > 1)
    printf("  each device above stands for the %d of its stage, which are alike\n", alike);
}

static void print_prediction(const job *j, const sl_statistics *stats) {
  char memory[32];
  sli_format_bytes(memory, (double)sli_plan_most_bytes(j->plan));
  printf("\n");
  print_step(j, stats);
  printf("  memory of a device: %s at most\n", memory);
  print_modelled(j, stats);
}

sl_status predict_plan(const job *j, sl_statistics *out) {
  sl_status status = sl_plan_predict(j->plan, NULL, out);
  if (!status) print_prediction(j, out);
  return status;
}
