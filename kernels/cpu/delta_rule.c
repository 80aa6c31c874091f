/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of the gated delta rule (kernels/walks/delta_rule.c). */
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/walks.h"

static size_t b_scratch(const sl_call *call, int threads) {
  (void)threads;
  return sli_delta_rule_b_scratch(call);
}

static void delta_rule_cpu(const sl_call *call) { sli_walk_on_cpu(call, sli_delta_rule_run); }

static void piece_cpu(const sl_call *call) { sli_walk_on_cpu(call, sli_delta_rule_piece_run); }

static void delta_rule_b_cpu(const sl_call *call) { sli_walk_on_cpu(call, sli_delta_rule_b_run); }

static void piece_b_cpu(const sl_call *call) { sli_walk_on_cpu(call, sli_delta_rule_piece_b_run); }

static void walk_sequence(const sl_call *call, const sli_linear_shape *s, int32_t row,
                          sli_walk *w) {
  *w = sli_delta_rule_walk(call, s);
  sli_walked *all[] = {&w->b, &w->c, &w->d, &w->g, &w->part};
  for (int i = 0; i < 5; i++) all[i]->x += row * all[i]->row;
  w->y.y += row * w->y.row;
  if (w->z.y) w->z.y += row * w->z.row;
}

static void served_cpu(const sl_call *call) { sli_walk_served(call, 2, walk_sequence); }

const sl_kernel sli_cpu_delta_rule_served = {
    .backend = "cpu", .run = served_cpu, .scratch = sli_walk_served_scratch};

const sl_kernel sli_cpu_delta_rule = {.backend = "cpu", .run = delta_rule_cpu};

const sl_kernel sli_cpu_delta_rule_b = {
    .backend = "cpu", .run = delta_rule_b_cpu, .scratch = b_scratch};

const sl_kernel sli_cpu_delta_rule_piece = {.backend = "cpu", .run = piece_cpu};

const sl_kernel sli_cpu_delta_rule_piece_b = {
    .backend = "cpu", .run = piece_b_cpu, .scratch = b_scratch};
