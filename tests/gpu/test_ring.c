/* SPDX-License-Identifier: Apache-2.0 */
/* Ring attention, and attention of a share of a piece's queries, match the CPU on a GPU: for
 * queries in two runs, partly hidden keys, grouped key/value heads, documents and windows.
 * labels: unthreaded */
#include <math.h>

#include "base/base.h"
#include "ops/ops.h"
#include "ops/layout.h"
#include "tests/gpu/device_call.h"
#include "tests/support/kernel_call.h"

enum { LENGTH = 200 };

typedef struct shape {
  int heads, kv_heads;
  int64_t batch, dim, window;
  bool ids;
} shape;

static const shape shapes[] = {
    {2, 1, 1, 16, 0, false}, {4, 2, 2, 9, 0, true},   {3, 3, 1, 72, 40, false},
    {2, 2, 1, 136, 0, true}, {2, 1, 1, 24, 30, true},
};

static sl_type array_of(const shape *s, int64_t rows, int heads) {
  return SL_TYPE(SL_F32, s->batch, rows, heads * s->dim);
}

static sl_type lse_of(const shape *s, int64_t rows) {
  return SL_TYPE(SL_F32, s->batch, s->heads, rows);
}

static sl_type ids_of(const shape *s, int64_t rows) {
  sl_type none = {.ndim = -1};
  return s->ids ? SL_TYPE(SL_I32, s->batch, rows) : none;
}

/* ---- a call on CPU and GPU ------------------------------------------------------------------- */

static kernel make(const sl_op *op, const sl_attrs *attrs, sl_tick tick, int nin,
                   const sl_type *types) {
  kernel k = kernel_create(op, *attrs, nin, types, sli_op_outputs(op, attrs, nin));
  k.tick = tick;
  for (int i = 0; i < nin; i++)
    if (k.in[i]) array_random(k.in[i], &types[i], 3);
  for (int o = 0; o < k.nout; o++) array_random(k.out[o], &k.out_type[o], 3);
  return k;
}

static void give(kernel *to, int i, const kernel *from, int o) {
  CHECK(sl_type_equal(&to->in_type[i], &from->out_type[o]), "%s: input %d", to->op->name, i);
  memcpy(to->in[i], from->out[o], sl_type_bytes(&to->in_type[i]));
}

/* Runs the call on the device, then on the CPU. */
static void run_both(kernel *k) {
  kernel there = *k;
  device_call d;
  for (int o = 0; o < k->nout; o++) {
    there.out[o] = array_create(&k->out_type[o]);
    memcpy(there.out[o], k->out[o], sl_type_bytes(&k->out_type[o]));
  }
  device_call_create(&d, &there);
  device_call_run(&d, &there, there.out, there.out);
  device_call_destroy(&d);
  kernel_run(k, NULL);
  for (int o = 0; o < k->nout; o++) {
    for (int64_t i = 0, n = sl_type_elements(&k->out_type[o]); i < n; i++) {
      double want = array_get(k->out[o], &k->out_type[o], i),
             got = array_get(there.out[o], &k->out_type[o], i);
      CHECK(fabs(got - want) <= 2e-5 * (1 + fabs(want)),
            "%s, heads of %lld: %g, not %g at %lld of output %d", k->op->name,
            (long long)k->in_type[0].dim[2] / k->attrs.attention.heads, got, want, (long long)i, o);
    }
    free(there.out[o]);
  }
}

/* ---- chunk by chunk -------------------------------------------------------------------------- */

/* Keys 55 to 104: the first run sees some of them, the second all. */
static const sli_spans spans[] = {
    {2, LENGTH, {{0, 40, 0, 50, 60, 55, false}, {40, 33, 0, 50, 150, 55, false}}, false},
    {2, LENGTH, {{0, 40, 0, 50, 60, 55, true}, {40, 33, 10, 20, 40, 65, false}}, false},
};

static void check_steps(const shape *s, const sli_spans *of) {
  sl_attrs attrs = {.attention.heads = s->heads,
                    .attention.kv_heads = s->kv_heads,
                    .attention.window = s->window,
                    .user = of};
  sl_type q = array_of(s, 73, s->heads), kv = array_of(s, 50, 2 * s->kv_heads), lse = lse_of(s, 73),
          ids = ids_of(s, LENGTH);
  const sl_type forth[] = {q, kv, ids, q, lse}, back[] = {q, kv, q, lse, q, ids, q};
  kernel f = make(&sl_op_attention_step, &attrs, (sl_tick){0}, 5, forth);
  run_both(&f);
  kernel b = make(&sl_op_attention_step_b, &attrs, (sl_tick){0}, 7, back);
  for (int i = 0; i < 2; i++) memcpy(b.in[i], f.in[i], sl_type_bytes(&back[i]));
  if (s->ids) memcpy(b.in[5], f.in[2], sl_type_bytes(&ids));
  give(&b, 2, &f, 0);
  give(&b, 3, &f, 1);
  run_both(&b);
  kernel_destroy(&f);
  kernel_destroy(&b);
}

/* ---- a share of a piece's queries ------------------------------------------------------------ */

static void check_shares(const shape *s, int64_t row, bool two) {
  sl_attrs attrs = {.attention.heads = s->heads,
                    .attention.kv_heads = s->kv_heads,
                    .attention.window = s->window,
                    .place.length = LENGTH,
                    .place.first = 10,
                    .place.run = two ? 20 : 0,
                    .place.skip = two ? 25 : 0};
  sl_tick tick = {.row = row, .rows = 70};
  sl_type q = array_of(s, 33, s->heads), kv = array_of(s, 70, 2 * s->kv_heads), ids = ids_of(s, 70),
          record = array_of(s, LENGTH, 2 * s->kv_heads), lse = lse_of(s, 33),
          all = ids_of(s, LENGTH);
  const sl_type forth[] = {q, kv, ids}, back[] = {q, record, q, lse, q, kv, all};
  const sl_type again[] = {q, kv, s->ids ? ids : record, record, all};
  kernel f = make(&sl_op_attention_share, &attrs, tick, 2 + s->ids, forth);
  run_both(&f);
  kernel a = make(&sl_op_attention_share_again, &attrs, tick, s->ids ? 5 : 3, again);
  kernel b = make(&sl_op_attention_share_b, &attrs, tick, 6 + s->ids, back);
  memcpy(a.in[0], f.in[0], sl_type_bytes(&q));
  memcpy(b.in[0], f.in[0], sl_type_bytes(&q));
  give(&a, 2 + s->ids, &f, 2);
  for (int i = 1; i < 4; i++) give(&b, i, &f, i == 1 ? 2 : i - 2);
  if (s->ids) give(&a, 4, &f, 3), give(&b, 6, &f, 3);
  for (int o = 2; o < a.nout; o++) { /* as inputs they already exist */
    free(a.out[o]);
    a.out[o] = NULL;
  }
  a.nout = 2;
  run_both(&a);
  CHECK(!memcmp(a.out[0], f.out[0], sl_type_bytes(&q)), "made again, it has other bits");
  run_both(&b);
  kernel_destroy(&f);
  kernel_destroy(&a);
  kernel_destroy(&b);
}

int main(void) {
  need_gpu();
  seed_random(11);
  for (size_t i = 0; i < SLI_COUNT(shapes); i++) {
    for (size_t j = 0; j < SLI_COUNT(spans); j++) RUN(check_steps, &shapes[i], &spans[j]);
    RUN(check_shares, &shapes[i], 90, i % 2);
    RUN(check_shares, &shapes[i], LENGTH - 70, true);
  }
  return 0;
}
