/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernel of Muon. The product library computes its products. A matrix with more rows than
 * columns is turned first, so that the square matrices are small. */
#include <sluice/optimizer.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/product.h"
#include "ops/muon.h"
#include "ops/ops.h"

/* ---- products ------------------------------------------------------------------ */

/* The matrix X as multiplied: [side, length], with side <= length. */
typedef struct shape {
  int64_t rows, columns, side, length;
  bool turned;
} shape;

static shape shape_of(const sl_call *call) {
  int64_t rows = call->out_type[0].dim[0], columns = call->out_type[0].dim[1];
  return (shape){rows, columns, SLI_MIN(rows, columns), SLI_MAX(rows, columns), rows > columns};
}

typedef struct products {
  sli_product *gram;   /* A = X X^T */
  sli_product *square; /* B = 2.0315 A A - 4.775 A; adds to the second term */
  sli_product *apply;  /* X = 3.4445 X + B X; adds to the first term */
} products;

static void release(void *state) {
  products *p = state;
  sli_product_destroy(p->gram);
  sli_product_destroy(p->square);
  sli_product_destroy(p->apply);
  free(p);
}

static sl_status create(const sl_call *call, sli_product_shape shape, sli_product **product) {
  sli_product_order(&shape, call->attrs);
  return sli_product_create(&shape, product);
}

static sl_status muon_prepare(const sl_call *call, void **state) {
  shape s = shape_of(call);
  products *p = sli_calloc(1, sizeof *p);
  sli_product_shape gram = {.m = s.side, .n = s.side, .k = s.length, .b_transposed = true};
  sli_product_shape square = {.m = s.side, .n = s.side, .k = s.side, .add = true};
  sli_product_shape apply = {.m = s.side, .n = s.length, .k = s.side, .add = true};
  sl_status status = create(call, gram, &p->gram);
  if (!status) status = create(call, square, &p->square);
  if (!status) status = create(call, apply, &p->apply);
  if (status) release(p);
  else *state = p;
  return status;
}

static size_t sums_bytes(const sl_call *call) {
  enum { LINE = 64 };
  size_t bytes = (size_t)sli_element_chunks(&call->out_type[0]) * sizeof(double);
  return (bytes + LINE - 1) / LINE * LINE;
}

static size_t muon_scratch(const sl_call *call, int threads) {
  (void)threads;
  shape s = shape_of(call);
  return sums_bytes(call) + (size_t)(2 * s.side * s.length + 3 * s.side * s.side) * sizeof(float);
}

/* ---- elements ------------------------------------------------------------------ */

typedef struct step {
  const sl_call *call;
  shape s;
  float lr, keep; /* learning rate, with the factor of the shape of X; factor of the parameter */
  float factor;   /* factor for the elements in a loop */
  double *sums;   /* sums of the squares of u, by chunk */
  float *x, *next, *gram, *scaled, *square;
} step;

/* Updates the momentum of some elements, and stores u in `next`, in the order of the parameter. */
static void mix_chunk(void *arg, int i) {
  const step *t = arg;
  const sl_call *call = t->call;
  const sl_optimizer *o = call->attrs->user;
  float scale = *(const float *)call->in[0], b = o->momentum, *m = call->out[1];
  sli_range r = sli_elements(&call->out_type[0], i);
  double sum = 0;
  for (int64_t e = r.begin; e < r.end; e++) {
    float g = ((const float *)call->in[1])[e];
    for (int p = 2; p < call->nin; p++) g += ((const float *)call->in[p])[e];
    g *= scale * (1 - b);
    m[e] = b * m[e] + g;
    float u = g + b * m[e];
    t->next[e] = u;
    sum += (double)u * (double)u;
  }
  t->sums[i] = sum;
}

/* Returns the index in X of an element. */
static inline int64_t place(const shape *s, int64_t e) {
  return s->turned ? e % s->columns * s->rows + e / s->columns : e;
}

static void normalize_chunk(void *arg, int i) {
  const step *t = arg;
  sli_range r = sli_elements(&t->call->out_type[0], i);
  for (int64_t e = r.begin; e < r.end; e++) t->x[place(&t->s, e)] = t->factor * t->next[e];
}

static void scale_chunk(void *arg, int i) {
  const step *t = arg;
  sli_range r = sli_elements(&t->call->out_type[0], i);
  for (int64_t e = r.begin; e < r.end; e++) t->next[e] = t->factor * t->x[e];
}

static void apply_chunk(void *arg, int i) {
  const step *t = arg;
  float *p = t->call->out[0];
  sli_range r = sli_elements(&t->call->out_type[0], i);
  for (int64_t e = r.begin; e < r.end; e++) p[e] = t->keep * p[e] - t->lr * t->x[place(&t->s, e)];
}

/* ---- the step ------------------------------------------------------------------ */

static step begin(const sl_call *call) {
  const sl_optimizer *o = call->attrs->user;
  shape s = shape_of(call);
  float lr = sl_optimizer_lr(o, call->tick.step),
        *at = (float *)((char *)call->scratch + sums_bytes(call));
  double ratio = (double)s.rows / (double)s.columns;
  step t = {.call = call,
            .s = s,
            .lr = (float)((double)lr * sqrt(ratio > 1 ? ratio : 1)),
            .keep = 1 - lr * sl_optimizer_decay(o, 2),
            .sums = call->scratch};
  t.x = at;
  t.next = t.x + s.side * s.length;
  t.gram = t.next + s.side * s.length;
  t.scaled = t.gram + s.side * s.side;
  t.square = t.scaled + s.side * s.side;
  return t;
}

static void normalize(step *t) {
  const sl_type *type = &t->call->out_type[0];
  double sum = 0;
  for (int i = 0; i < sli_element_chunks(type); i++) sum += t->sums[i];
  t->factor = (float)(1 / fmax(sqrt(sum), 1e-7));
  sl_team_for(t->call->team, sli_element_chunks(type), normalize_chunk, t);
}

/* Takes a Newton-Schulz step towards the nearest matrix with equal singular values. */
static void newton_schulz(step *t) {
  const sl_call *call = t->call;
  const products *p = call->state;
  int64_t n = t->s.side * t->s.side;
  sli_product_run(p->gram, call->team, false, t->x, t->x, NULL, t->gram, NULL);
  for (int64_t e = 0; e < n; e++) {
    t->scaled[e] = SLI_MUON_C * t->gram[e];
    t->square[e] = SLI_MUON_B * t->gram[e];
  }
  sli_product_run(p->square, call->team, true, t->scaled, t->gram, NULL, t->square, NULL);
  t->factor = SLI_MUON_A;
  sl_team_for(call->team, sli_element_chunks(&call->out_type[0]), scale_chunk, t);
  sli_product_run(p->apply, call->team, true, t->square, t->x, NULL, t->next, NULL);
  float *made = t->next;
  t->next = t->x;
  t->x = made;
}

static void muon_cpu(const sl_call *call) {
  step t = begin(call);
  const sl_type *type = &call->out_type[0];
  sl_team_for(call->team, sli_element_chunks(type), mix_chunk, &t);
  normalize(&t);
  for (int i = 0; i < SLI_MUON_STEPS; i++) newton_schulz(&t);
  sl_team_for(call->team, sli_element_chunks(type), apply_chunk, &t);
}

const sl_kernel sli_cpu_muon = {.backend = "cpu",
                                .run = muon_cpu,
                                .prepare = muon_prepare,
                                .release = release,
                                .scratch = muon_scratch};
