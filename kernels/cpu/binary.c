/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of functions of two numbers, with broadcasting (listed in binary.def), and of
 * `where`. */
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/space.h"

/* ---- running ------------------------------------------------------------------------- */

void sli_fold_run(const sl_call *call, sli_fold *f) {
  const sli_space *s = &f->space;
  f->block = sli_fold_block(s);
  sl_team_for(call->team, sli_chunk_count(s->total, f->block), sli_cpu()->fold, f);
}

void sli_fold_output(const sl_call *call, int o, sli_row_fn *fn) {
  const sl_type *types[SLI_SPACE_ARRAYS] = {[SLI_SPACE_OUT] = &call->out_type[o]};
  sli_fold f = {.fn = fn, .out = call->out[o], .add = sli_accumulates(call, o), .factor = 1};
  sl_type whole;
  if (!f.out) return;
  for (int i = 0; i < call->nin; i++) types[i] = &call->in_type[i];
  for (int i = 0; i < call->nin; i++) f.in[i] = call->in[i];
  (void)sli_broadcast(call->nin, call->in_type, &whole);
  f.space = sli_space_make(&whole, types);
  sli_fold_run(call, &f);
}

static bool is_loss(const sl_type *type) { return type->dtype == SL_F64; }

/* ---- doubles: losses ---------------------------------------------------------------------- */

static double pick_of(bool mask, double a, double b) { return mask ? a : b; }

#define BINARY(name, flops, unread, partial, y, da, db)                                \
  static void name##_scalars(const sl_call *call) {                                    \
    const double a = *(const double *)call->in[0], b = *(const double *)call->in[1];   \
    *(double *)call->out[0] = y;                                                       \
  }                                                                                    \
  static void name##_scalars_b(const sl_call *call) {                                  \
    const double a = call->in[0] ? *(const double *)call->in[0] : 0;                   \
    const double b = call->in[1] ? *(const double *)call->in[1] : 0;                   \
    const double d = (double)*(const float *)call->in[2], zero = 0;                    \
    const double grads[2] = {da, db};                                                  \
    (void)a, (void)b, (void)zero;                                                      \
    for (int o = 0; o < 2; o++)                                                        \
      if (call->out[o])                                                                \
        *(float *)call->out[o] =                                                       \
            (float)grads[o] + (sli_accumulates(call, o) ? *(float *)call->out[o] : 0); \
  }
#define COMPARE(name, y)
#include "ops/binary.def"
#undef BINARY
#undef COMPARE

/* ---- kernels --------------------------------------------------------------------------------- */

#define BINARY(name, flops, unread, partial, y, da, db)                      \
  static void name##_cpu(const sl_call *call) {                              \
    if (is_loss(&call->in_type[0])) name##_scalars(call);                    \
    else sli_fold_output(call, 0, sli_cpu()->binary[SLI_BINARY_##name][0]);  \
  }                                                                          \
  static void name##_b_cpu(const sl_call *call) {                            \
    if (is_loss(&call->in_type[0])) return name##_scalars_b(call);           \
    for (int o = 0; o < 2; o++)                                              \
      sli_fold_output(call, o, sli_cpu()->binary[SLI_BINARY_##name][1 + o]); \
  }                                                                          \
  const sl_kernel sli_cpu_##name = {.backend = "cpu", .run = name##_cpu};    \
  const sl_kernel sli_cpu_##name##_b = {.backend = "cpu", .run = name##_b_cpu};

#define COMPARE(name, y)                                                                     \
  static void name##_cpu(const sl_call *call) {                                              \
    sli_fold_output(call, 0,                                                                 \
                    sli_cpu()->binary[SLI_BINARY_##name][call->in_type[0].dtype == SL_I32]); \
  }                                                                                          \
  const sl_kernel sli_cpu_##name = {.backend = "cpu", .run = name##_cpu};

#include "ops/binary.def"

static void where_cpu(const sl_call *call) { sli_fold_output(call, 0, sli_cpu()->where[0]); }

/* Computes gradients from the condition and dy; a and b supply only their types. */
static void where_b_cpu(const sl_call *call) {
  for (int o = 0; o < 2; o++) {
    const sl_type *types[SLI_SPACE_ARRAYS] = {&call->in_type[0], NULL, &call->in_type[3],
                                              &call->out_type[o]};
    sli_fold f = {.fn = sli_cpu()->where[1 + o],
                  .in = {call->in[0], NULL, call->in[3]},
                  .out = call->out[o],
                  .add = sli_accumulates(call, o),
                  .factor = 1};
    if (!f.out) continue;
    f.space = sli_space_make(&call->in_type[3], types);
    sli_fold_run(call, &f);
  }
}

const sl_kernel sli_cpu_where = {.backend = "cpu", .run = where_cpu};
const sl_kernel sli_cpu_where_b = {.backend = "cpu", .run = where_b_cpu};
