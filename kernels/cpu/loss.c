/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of the losses. Partial sums of chunks are added in chunk order. */
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/loss.h"
#include "ops/leaves.h"
#include "ops/ops.h"
#include "ops/target.h"

static int row_chunks(const sl_type *type) {
  return sli_chunk_count(sl_type_rows(type), sli_chunk_rows(sl_type_last(type)));
}

static double add_up(const double *partial, int n) {
  double total = 0;
  for (int i = 0; i < n; i++) total += partial[i];
  return total;
}

size_t sli_loss_scratch(const sl_call *call, int threads) {
  (void)threads;
  return (size_t)row_chunks(&call->in_type[0]) * sizeof(double);
}

double sli_loss_sum(const sl_call *call) {
  return add_up(call->scratch, row_chunks(&call->in_type[0]));
}

/* Sets the loss to the mean over the rows. */
static void set_loss(const sl_call *call) {
  double *loss = call->out[0];
  if (loss) *loss = sli_loss_sum(call) / (double)sl_type_rows(&call->in_type[0]);
}

static void cross_entropy_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->cross_entropy);
  set_loss(call);
}

static void cross_entropy_b_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->cross_entropy_b);
}

static void cross_entropy_part_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->cross_entropy_part);
}

static void log_probability_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->log_probability);
}

static void log_probability_b_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->log_probability_b);
}

static void log_probability_part_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->log_probability_part);
}

static void log_probability_join_cpu(const sl_call *call) {
  const float *parts = call->in[0];                /* [R, n, 3] */
  float *y = call->out[0], *lse = call->out[1], l; /* [R] */
  int64_t rows = sl_type_rows(&call->in_type[0]), width = sl_type_last(&call->in_type[0]);
  for (int64_t r = 0; r < rows; r++) {
    float log_probability = sli_join_log_probability(parts + r * width, width, &l);
    if (y) y[r] = log_probability;
    if (lse) lse[r] = l;
  }
}

/* Rows in parts of `part` numbers each. */
typedef struct joining {
  const sl_call *call;
  int part;
} joining;

static void join_chunk(void *arg, int i) {
  const joining *j = arg;
  const sl_type *type = &j->call->in_type[0];
  const float *parts = j->call->in[0]; /* [R, n, part] */
  float *lse = j->call->out[1];        /* [R] */
  double *partial = j->call->scratch, total = 0;
  sli_range rows = sli_rows(type, i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    float l;
    double loss = sli_join_parts(parts + r * sl_type_last(type), sl_type_last(type), j->part, &l);
    total += j->call->attrs->numbers.exact ? sli_loss_round(loss) : loss;
    if (lse) lse[r] = l;
  }
  partial[i] = total;
}

void sli_loss_join(const sl_call *call, int part) {
  sl_team_for(call->team, row_chunks(&call->in_type[0]), join_chunk, &(joining){call, part});
}

static void cross_entropy_join_cpu(const sl_call *call) {
  sli_loss_join(call, SLI_PART);
  set_loss(call);
}

static void softmax_part_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->softmax_part);
}

static void softmax_rescale_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->softmax_rescale);
}

/* An exact gradient keeps its value: the gradient of the mean divides by the rows of the whole
 * step. */
static void share_cpu(const sl_call *call) {
  const double share = call->attrs->user ? *(const double *)call->attrs->user : 1;
  if (call->attrs->numbers.exact && call->in_type[0].dtype == SL_F32)
    *(float *)call->out[0] = *(const float *)call->in[0];
  else if (call->in_type[0].dtype == SL_F64)
    *(double *)call->out[0] = share * *(const double *)call->in[0];
  else *(float *)call->out[0] = (float)(share * (double)*(const float *)call->in[0]);
}

static size_t mse_scratch(const sl_call *call, int threads) {
  (void)threads;
  return (size_t)sli_element_chunks(&call->in_type[0]) * sizeof(double);
}

/* Adds multiples of 2^-30, so that the sum does not depend on the order. */
static void mse_exact_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *y = call->in[0], *t = call->in[1];
  double *partial = call->scratch, total = 0;
  sli_range r = sli_elements(&call->in_type[0], i);
  for (int64_t e = r.begin; e < r.end; e++) {
    double off = (double)(y[e] - t[e]);
    total += sli_loss_round(off * off);
  }
  partial[i] = total;
}

static void mse_cpu(const sl_call *call) {
  const sl_type *y = &call->in_type[0];
  double *loss = call->out[0];
  sli_for_elements(call, y, call->attrs->numbers.exact ? mse_exact_chunk : sli_cpu()->mse);
  if (loss) *loss = add_up(call->scratch, sli_element_chunks(y)) / (double)sl_type_elements(y);
}

static void mse_b_cpu(const sl_call *call) {
  sli_for_elements(call, &call->in_type[0], sli_cpu()->mse_b);
}

const sl_kernel sli_cpu_cross_entropy = {
    .backend = "cpu",
    .run = cross_entropy_cpu,
    .scratch = sli_loss_scratch,
};

const sl_kernel sli_cpu_cross_entropy_b = {.backend = "cpu", .run = cross_entropy_b_cpu};

const sl_kernel sli_cpu_cross_entropy_part = {.backend = "cpu", .run = cross_entropy_part_cpu};

const sl_kernel sli_cpu_cross_entropy_join = {
    .backend = "cpu",
    .run = cross_entropy_join_cpu,
    .scratch = sli_loss_scratch,
};

const sl_kernel sli_cpu_log_probability = {.backend = "cpu", .run = log_probability_cpu};

const sl_kernel sli_cpu_log_probability_b = {.backend = "cpu", .run = log_probability_b_cpu};

const sl_kernel sli_cpu_log_probability_part = {.backend = "cpu", .run = log_probability_part_cpu};

const sl_kernel sli_cpu_log_probability_join = {.backend = "cpu", .run = log_probability_join_cpu};

const sl_kernel sli_cpu_softmax_part = {.backend = "cpu", .run = softmax_part_cpu};

const sl_kernel sli_cpu_softmax_rescale = {.backend = "cpu", .run = softmax_rescale_cpu};

const sl_kernel sli_cpu_share = {.backend = "cpu", .run = share_cpu};

const sl_kernel sli_cpu_mse = {.backend = "cpu", .run = mse_cpu, .scratch = mse_scratch};

const sl_kernel sli_cpu_mse_b = {.backend = "cpu", .run = mse_b_cpu};
