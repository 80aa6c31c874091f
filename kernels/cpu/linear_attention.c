/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of gated linear attention (kernels/walks/linear_attention.c). */
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/walks.h"

static size_t b_scratch(const sl_call *call, int threads) {
  (void)threads;
  return sli_linear_attention_b_scratch(call);
}

static size_t step_b_scratch(const sl_call *call, int threads) {
  (void)threads;
  return sli_linear_attention_step_b_scratch(call);
}

static void attention_cpu(const sl_call *call) { sli_walk_on_cpu(call, sli_linear_attention_run); }

static void piece_cpu(const sl_call *call) {
  sli_walk_on_cpu(call, sli_linear_attention_piece_run);
}

static void step_cpu(const sl_call *call) { sli_walk_on_cpu(call, sli_linear_attention_step_run); }

static void attention_b_cpu(const sl_call *call) {
  sli_walk_on_cpu(call, sli_linear_attention_b_run);
}

static void piece_b_cpu(const sl_call *call) {
  sli_walk_on_cpu(call, sli_linear_attention_piece_b_run);
}

static void step_b_cpu(const sl_call *call) {
  sli_walk_on_cpu(call, sli_linear_attention_step_b_run);
}

static void walk_sequence(const sl_call *call, const sli_linear_shape *s, int32_t row,
                          sli_walk *w) {
  *w = sli_linear_attention_walk(call, s);
  sli_walked *all[] = {&w->b, &w->c, &w->d, &w->g};
  for (int i = 0; i < 4; i++) all[i]->x += row * all[i]->row;
  w->y.y += row * w->y.row;
}

static void served_cpu(const sl_call *call) { sli_walk_served(call, 1, walk_sequence); }

const sl_kernel sli_cpu_linear_attention_served = {
    .backend = "cpu", .run = served_cpu, .scratch = sli_walk_served_scratch};

const sl_kernel sli_cpu_linear_attention = {.backend = "cpu", .run = attention_cpu};

const sl_kernel sli_cpu_linear_attention_b = {
    .backend = "cpu", .run = attention_b_cpu, .scratch = b_scratch};

const sl_kernel sli_cpu_linear_attention_piece = {.backend = "cpu", .run = piece_cpu};

const sl_kernel sli_cpu_linear_attention_piece_b = {
    .backend = "cpu", .run = piece_b_cpu, .scratch = b_scratch};

const sl_kernel sli_cpu_linear_attention_step = {.backend = "cpu", .run = step_cpu};

const sl_kernel sli_cpu_linear_attention_step_b = {
    .backend = "cpu", .run = step_b_cpu, .scratch = step_b_scratch};
