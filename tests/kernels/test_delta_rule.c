/* SPDX-License-Identifier: Apache-2.0 */
/* The gated delta rule matches the plain recurrence in f64, and its gradients match finite
 * differences of the recurrence, for any heads and lengths. Pieces of any length have the bits of
 * the whole, forward and backward.
 * labels: random unthreaded */
#include <math.h>

#include "base/base.h"
#include "kernels/cpu/team.h"
#include "ops/linear_attention.h"
#include "ops/ops.h"
#include "tests/support/kernel_call.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/seeds.h"

enum { CASES = 5, MOST_LENGTH = 80, DIFFERENCES = 12, INPUTS = 5, O = INPUTS, E, DOUT };

typedef struct shape {
  sl_attrs attrs;
  int64_t batch, length, dk, dv, group;
  int64_t gates;        /* of a head: 1, or dk */
  sl_type in[DOUT + 1]; /* q, k, v, gates, parts; o, e, do */
} shape;

static shape shape_random(void) {
  int few = 1 + (int)random_below(3), group = 1 + (int)random_below(2), heads = few * group;
  shape s = {.attrs = {.attention.heads = heads, .attention.kv_heads = few},
             .batch = 1 + random_below(2),
             .length = 1 + random_below(MOST_LENGTH),
             .dk = 1 + random_below(40),
             .dv = 1 + random_below(40),
             .group = group};
  s.gates = group == 1 && random_below(4) ? s.dk : 1;
  int64_t widths[] = {few * s.dk, few * s.dk,   heads * s.dv, heads * s.gates,
                      heads,      heads * s.dv, heads * s.dv, heads * s.dv};
  for (int i = 0; i <= DOUT; i++) s.in[i] = SL_TYPE(SL_F32, s.batch, s.length, widths[i]);
  return s;
}

/* Normalizes the keys as models do; gates are negative, and parts are in [0, 1]. */
static void fill(const shape *s, kernel *k) {
  for (int i = 0; i < k->nin; i++) array_random(k->in[i], &s->in[i], 0);
  for (int64_t r = 0; r < sl_type_elements(&s->in[1]) / s->dk; r++) {
    float *key = (float *)k->in[1] + r * s->dk, sum = 1e-6f;
    for (int64_t i = 0; i < s->dk; i++) sum += key[i] * key[i];
    for (int64_t i = 0; i < s->dk; i++) key[i] /= sqrtf(sum);
  }
  float *g = k->in[3], *part = k->in[4];
  for (int64_t e = 0; e < sl_type_elements(&s->in[3]); e++) g[e] = -fabsf(g[e]) / 4;
  for (int64_t e = 0; e < sl_type_elements(&s->in[4]); e++) part[e] = fminf(fabsf(part[e]), 1);
}

/* ---- the recurrence in f64 ------------------------------------------------------------------- */

/* Computes o and e of a call from f64 inputs; returns the sum of o times do. */
static double recur(const shape *s, double *const *in, const float *dout, double *o, double *e) {
  int64_t H = s->attrs.attention.heads, few = s->attrs.attention.kv_heads, dk = s->dk, dv = s->dv;
  double scale = (double)sli_linear_scale(&s->attrs, dk), loss = 0;
  double *S = sli_calloc((size_t)(dk * dv), sizeof *S);
  for (int64_t b = 0; b < s->batch; b++)
    for (int64_t h = 0; h < H; h++) {
      memset(S, 0, (size_t)(dk * dv) * sizeof *S);
      for (int64_t t = 0; t < s->length; t++) {
        int64_t row = b * s->length + t;
        const double *q = in[0] + (row * few + h / s->group) * dk,
                     *k = in[1] + (row * few + h / s->group) * dk, *v = in[2] + (row * H + h) * dv;
        const double *g = in[3] + (row * H + h) * s->gates;
        double part = in[4][row * H + h];
        for (int64_t j = 0; j < dv; j++) {
          double has = 0, sum = 0;
          for (int64_t i = 0; i < dk; i++)
            has += k[i] * (S[i * dv + j] *= exp(g[s->gates == 1 ? 0 : i]));
          for (int64_t i = 0; i < dk; i++) {
            S[i * dv + j] += k[i] * part * (v[j] - has);
            sum += q[i] * S[i * dv + j];
          }
          int64_t at = (row * H + h) * dv + j;
          if (o) o[at] = scale * sum, e[at] = v[j] - has;
          if (dout) loss += scale * sum * (double)dout[at];
        }
      }
    }
  free(S);
  return loss;
}

static void take_inputs(const shape *s, const kernel *c, double **in) {
  for (int i = 0; i < INPUTS; i++) {
    int64_t n = sl_type_elements(&s->in[i]);
    in[i] = sli_calloc((size_t)n, sizeof *in[i]);
    for (int64_t at = 0; at < n; at++) in[i][at] = (double)((const float *)c->in[i])[at];
  }
}

static void check_close(const shape *s, const char *name, double got, double want, double size) {
  CHECK(fabs(got - want) <= 3e-5 * (1 + size),
        "%s is %.9g, not %.9g (%lld positions, %lld by %lld)", name, got, want,
        (long long)s->length, (long long)s->dk, (long long)s->dv);
}

static void check_values(const shape *s, const kernel *c) {
  double *in[INPUTS];
  int64_t n = sl_type_elements(&s->in[O]);
  double *o = sli_calloc((size_t)n, sizeof *o), *e = sli_calloc((size_t)n, sizeof *e);
  take_inputs(s, c, in);
  recur(s, in, NULL, o, e);
  for (int64_t at = 0; at < n; at++) {
    check_close(s, "o", (double)((const float *)c->out[0])[at], o[at], fabs(o[at]));
    check_close(s, "e", (double)((const float *)c->out[1])[at], e[at], fabs(e[at]));
  }
  for (int i = 0; i < INPUTS; i++) free(in[i]);
  free(o);
  free(e);
}

/* Compares some elements of each gradient with finite differences of the recurrence. */
static void check_gradients(const shape *s, const kernel *c) {
  static const char *const names[] = {"dq", "dk", "dv", "the gradient of a gate",
                                      "the gradient of a part"};
  double *in[INPUTS];
  take_inputs(s, c, in);
  for (int i = 0; i < INPUTS; i++) {
    const float *got = c->out[i];
    double size = 0;
    int64_t n = sl_type_elements(&s->in[i]);
    for (int64_t at = 0; at < n; at++) size = fmax(size, fabs((double)got[at]));
    for (int k = 0; k < DIFFERENCES; k++) {
      const double step = 1e-5;
      int64_t at = random_below(n);
      double was = in[i][at];
      in[i][at] = was + step;
      double more = recur(s, in, c->in[DOUT], NULL, NULL);
      in[i][at] = was - step;
      double less = recur(s, in, c->in[DOUT], NULL, NULL);
      in[i][at] = was;
      check_close(s, names[i], (double)got[at], (more - less) / (2 * step), size);
    }
  }
  for (int i = 0; i < INPUTS; i++) free(in[i]);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Creates a call on a piece; input INPUTS + 2, if present, is the previous state. */
static kernel piece_of(const shape *s, const kernel *whole, const sl_op *op, int nin, int nout,
                       int64_t at, int64_t rows, const sl_type *state) {
  static const int from[] = {0, 1, 2, 3, 4, O, E, -1, DOUT};
  sl_type in[9];
  for (int i = 0; i < nin; i++) {
    in[i] = from[i] < 0 ? *state : s->in[from[i]];
    if (from[i] >= 0) in[i].dim[1] = rows;
  }
  kernel k = kernel_create(op, s->attrs, nin, in, nout);
  for (int i = 0; i < nin; i++)
    if (from[i] >= 0) copy_rows(&s->in[from[i]], at, rows, whole->in[from[i]], k.in[i], false);
  k.tick = (sl_tick){.row = at, .rows = rows};
  return k;
}

static void same(const shape *s, const char *name, const sl_type *type, const void *got,
                 const void *want) {
  CHECK(!memcmp(got, want, sl_type_bytes(type)), "%s: pieces of %lld positions have other bits",
        name, (long long)s->length);
}

static void run_with(kernel *k, int record, void *shared) {
  free(k->out[record]);
  k->out[record] = shared;
  kernel_run(k, NULL);
  k->out[record] = NULL;
}

static void check_pieces(shape *s, const kernel *whole, const kernel *back) {
  int64_t starts[MOST_LENGTH + 1], n = 0;
  sl_type state = sli_linear_state(&s->attrs, s->in),
          carry = sli_linear_carry_type(&s->attrs, s->in);
  void *now = array_create(&state), *record = array_create(&carry), *before[MOST_LENGTH];
  void *o = array_create(&s->in[O]), *gradients[INPUTS];
  for (int i = 0; i < INPUTS; i++) gradients[i] = array_create(&s->in[i]);
  s->attrs.place.length = s->length;
  for (int64_t at = 0, rows; at < s->length; at += rows, n++) {
    rows = 1 + random_below(40);
    rows = SLI_MIN(rows, s->length - at);
    starts[n] = at;
    kernel k = piece_of(s, whole, &sl_op_delta_rule_piece, INPUTS, 4, at, rows, NULL);
    run_with(&k, 3, now);
    copy_rows(&s->in[O], at, rows, o, k.out[0], true);
    before[n] = k.out[2];
    k.out[2] = NULL;
    kernel_destroy(&k);
  }
  same(s, "o", &s->in[O], o, whole->out[0]);
  starts[n] = s->length;
  for (int64_t p = n - 1; p >= 0; p--) {
    int64_t rows = starts[p + 1] - starts[p];
    kernel k = piece_of(s, back, &sl_op_delta_rule_piece_b, 9, 6, starts[p], rows, &state);
    memcpy(k.in[INPUTS + 2], before[p], sl_type_bytes(&state));
    run_with(&k, 5, record);
    for (int i = 0; i < INPUTS; i++)
      copy_rows(&s->in[i], starts[p], rows, gradients[i], k.out[i], true);
    kernel_destroy(&k);
    free(before[p]);
  }
  for (int i = 0; i < INPUTS; i++) {
    same(s, "a gradient", &s->in[i], gradients[i], back->out[i]);
    free(gradients[i]);
  }
  free(o);
  free(now);
  free(record);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void check_case(void) {
  shape s = shape_random();
  kernel there = kernel_create(&sl_op_delta_rule, s.attrs, INPUTS, s.in, 2);
  kernel back = kernel_create(&sl_op_delta_rule_b, s.attrs, DOUT + 1, s.in, INPUTS);
  struct sl_team *team = sli_team_create(2, NULL, NULL);
  fill(&s, &back);
  for (int i = 0; i < INPUTS; i++) memcpy(there.in[i], back.in[i], sl_type_bytes(&s.in[i]));
  kernel_run(&there, team);
  memcpy(back.in[O], there.out[0], sl_type_bytes(&s.in[O]));
  memcpy(back.in[E], there.out[1], sl_type_bytes(&s.in[E]));
  kernel_run(&back, team);
  sli_team_destroy(team);
  check_values(&s, &there);
  check_gradients(&s, &back);
  check_pieces(&s, &there, &back);
  kernel_destroy(&there);
  kernel_destroy(&back);
}

static void check_random(uint64_t seed) {
  seed_random(seed);
  for (int i = 0; i < CASES; i++) check_case();
}

static void bad_shapes_are_refused(void) {
  sl_type in[] = {SL_TYPE(SL_F32, 1, 3, 16), SL_TYPE(SL_F32, 1, 3, 8), SL_TYPE(SL_F32, 1, 3, 32),
                  SL_TYPE(SL_F32, 1, 3, 4), SL_TYPE(SL_F32, 1, 3, 3)};
  sl_attrs attrs = {.attention.heads = 4, .attention.kv_heads = 2};
  sl_type out[2];
  CHECK(sl_op_delta_rule.infer(&attrs, 5, in, out) == SL_E_SHAPE &&
            strstr(sl_detail(), "k must be f32[1, 3, 16], got f32[1, 3, 8]"),
        "%s", sl_detail());
  in[1] = in[0];
  CHECK(sl_op_delta_rule.infer(&attrs, 5, in, out) == SL_E_SHAPE &&
            strstr(sl_detail(), "b must be f32[1, 3, 4], got f32[1, 3, 3]"),
        "%s", sl_detail());
  in[3] = SL_TYPE(SL_F32, 1, 3, 32); /* gates of channels need a key for each head */
  CHECK(sl_op_delta_rule.infer(&attrs, 5, in, out) == SL_E_SHAPE &&
            strstr(sl_detail(), "gates must be f32[1, 3, 4], got f32[1, 3, 32]"),
        "%s", sl_detail());
}

int main(int argc, char **argv) {
  RUN(bad_shapes_are_refused);
  seeds s = seeds_of(argc, argv, 1, 2);
  for (uint64_t seed = s.first; seed < s.end; seed++)
    RUN_AS("check_random", on_every_level(check_random, seed));
  return 0;
}
