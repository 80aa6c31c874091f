/* Rows of rotary positions. The table of angles is the state of all calls of a device that turn
 * by the same. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/served.h"
#include "kernels/kernels.h"
#include "kernels/ops/ops.h"

static sl_status rotary_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, 3));
  if (attrs->heads < 1 || in[0].dim[2] % (2 * attrs->heads))
    return sli_misfit(&in[0], "x must be f32[b, t, n] with n a multiple of 2 * %d heads",
                      attrs->heads);
  out[0] = in[0];
  return SL_OK;
}

/* Sequences, positions or heads are shared out. */
static int rotary_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                             sl_signature *out) {
  (void)attrs, (void)nin, (void)in;
  int n = 0;
  out[n++] = (sl_signature){.in = {sli_split(0)}, .out = {sli_split(0)}};
  out[n++] = (sl_signature){.in = {sli_split(1)}, .out = {sli_split(1)}, .first = 1};
  out[n++] = (sl_signature){.in = {sli_split(2)}, .out = {sli_split(2)}, .heads = true};
  return n;
}

SLI_COST(rotary_cost, 0, 1, 3)

/* The angles by which calls turn, and so the table they share. */
typedef struct turning {
  int64_t positions, pairs;
} turning;

static turning turning_of(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  const sl_attrs *a = call->attrs;
  return (turning){.positions = a->first + a->dims[1] + (a->length ? a->length : x->dim[1]),
                   .pairs = x->dim[2] / a->heads / 2};
}

static size_t table_bytes(const turning *t) {
  return sizeof(sli_rotary) + 2 * (size_t)(t->positions * t->pairs) * sizeof(float);
}

static size_t rotary_keeps(const sl_call *call, uint64_t *which) {
  turning t = turning_of(call);
  *which = sli_hash_word(SLI_HASH_SEED, (uint64_t)t.positions);
  double theta = call->attrs->theta > 0 ? (double)call->attrs->theta : 10000.0;
  *which = sli_hash_real(sli_hash_word(*which, (uint64_t)t.pairs), theta);
  *which = sli_rope_hash(*which, call->attrs, 1);
  return table_bytes(&t);
}

static void fill_angles(sli_rotary *r, const double *frequency, double scale) {
  for (int64_t t = 0; t < r->positions; t++)
    for (int64_t j = 0; j < r->pairs; j++) {
      double angle = (double)t * frequency[j];
      r->cos[t * r->pairs + j] = (float)(scale * cos(angle));
      r->sin[t * r->pairs + j] = (float)(scale * sin(angle));
    }
}

static sl_status rotary_prepare(const sl_call *call, void **state) {
  turning by = turning_of(call);
  size_t count = (size_t)(by.positions * by.pairs);
  sli_rotary *r = malloc(table_bytes(&by));
  double *frequency = malloc((size_t)by.pairs * sizeof *frequency);
  if (!r || !frequency) {
    free(r);
    free(frequency);
    return sl_fail(SL_E_MEMORY, "no memory for a table of %zu angles", count);
  }
  *r = (sli_rotary){by.positions, by.pairs, (float *)(r + 1), (float *)(r + 1) + count};
  fill_angles(r, frequency, sli_rope_frequencies(call->attrs, by.pairs, frequency));
  free(frequency);
  *state = r;
  return SL_OK;
}

static void rotary_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->rotary);
}

static void rotary_b_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->rotary_b);
}

const sl_op sl_op_rotary = {
    .name = "rotary", .served = &sl_op_rotary_served, .min_in = 1, .max_in = 1, .nout = 1,
    .narrow_in = 1, .narrow_out = 1, .cheap = true,
    .pieces = SL_PIECES_POSITIONS, .over = {1},
    .infer = rotary_infer, .cost = rotary_cost,
    .prepare = rotary_prepare, .release = free, .keeps = rotary_keeps, .cpu = rotary_cpu,
    .hash = sli_rope_hash, .signatures = rotary_signatures,
    .grad = {{.op = &sl_op_rotary_b, .cls = SL_CLASS_B,
              .in = {SL_DOUT(0)}, .nof = 1, .of = {0}}},
};

const sl_op sl_op_rotary_b = {
    .name = "rotary_b", .min_in = 1, .max_in = 1, .nout = 1,
    .narrow_in = 1, .narrow_out = 1,
    .pieces = SL_PIECES_ROWS, .over = {1},
    .infer = rotary_infer, .cost = rotary_cost,
    .prepare = rotary_prepare, .release = free, .keeps = rotary_keeps, .cpu = rotary_b_cpu,
    .hash = sli_rope_hash,
};

/* ---- served: positions of any sequences ------------------------------------------------- */

static sl_status rotary_served_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_want_batch(nin, in, 1));
  return rotary_infer(attrs, 1, in, out);
}

static void rotary_served_cpu(const sl_call *call) {
  sl_team_for(call->team, sli_batch_of(call)->rows, sli_cpu()->rotary_served, (void *)call);
}

const sl_op sl_op_rotary_served = {
    .name = "rotary_served", .min_in = 2, .max_in = 2, .nout = 1,
    .infer = rotary_served_infer, .cost = rotary_cost, .prepare = rotary_prepare, .release = free,
    .keeps = rotary_keeps, .hash = sli_rope_hash, .cpu = rotary_served_cpu,
    .looks = 1, .follows = 1,
};
