/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of batched matrix products; each matrix is one product of the library. */
#include "ops/matmul.h"

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/product.h"
#include "ops/ops.h"

static sl_status prepare(const sl_call *call, void **state) {
  sli_matmul p = sli_matmul_of(call);
  sli_product_shape shape = {.m = p.m,
                             .n = p.n,
                             .k = p.k,
                             .a_transposed = p.a_transposed,
                             .b_transposed = p.b_transposed,
                             .add = p.batch.summed > 1 || (call->op->accumulates & 1)};
  sli_product *product = NULL;
  sli_product_order(&shape, call->attrs);
  SLI_TRY(sli_product_create(&shape, &product));
  *state = product;
  return SL_OK;
}

static void release(void *state) { sli_product_destroy(state); }

typedef struct stack {
  const sl_call *call;
  sli_matmul p;
  struct sl_team *team; /* team of one product */
} stack;

static int64_t matmul_place(const sli_space *s, int array, int from, int to, int64_t number) {
  int64_t at = 0;
  for (int d = to - 1; d >= from; number /= s->dim[d--])
    at += number % s->dim[d] * s->step[array][d];
  return at;
}

/* Computes one matrix of the output. */
static void multiply(void *arg, int i) {
  const stack *w = arg;
  const sli_matmul *p = &w->p;
  const sli_space *s = &p->batch;
  const float *a = w->call->in[p->a], *b = w->call->in[p->b];
  float *c = (float *)w->call->out[0] + i * p->m * p->n;
  for (int64_t k = 0; k < s->summed; k++) {
    int64_t at = matmul_place(s, 0, 0, s->kept, i) + matmul_place(s, 0, s->kept, s->ndim, k);
    int64_t bt = matmul_place(s, 1, 0, s->kept, i) + matmul_place(s, 1, s->kept, s->ndim, k);
    sli_product_run(w->call->state, w->team, k || sli_accumulates(w->call, 0), a + at * p->m * p->k,
                    b + bt * p->k * p->n, NULL, c, NULL);
  }
}

/* Batch size from which a single thread multiplies each matrix. */
enum { MANY = 8 };

static void matmul_cpu(const sl_call *call) {
  stack w = {call, sli_matmul_of(call), NULL};
  int count = (int)w.p.batch.total;
  if (count >= MANY) {
    sl_team_for(call->team, count, multiply, &w);
    return;
  }
  w.team = call->team;
  for (int i = 0; i < count; i++) multiply(&w, i);
}

#define KERNEL(name)                 \
  const sl_kernel sli_cpu_##name = { \
      .backend = "cpu", .run = matmul_cpu, .prepare = prepare, .release = release};
KERNEL(matmul)
KERNEL(matmul_left_b)
KERNEL(matmul_right_b)
