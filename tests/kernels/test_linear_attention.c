/* SPDX-License-Identifier: Apache-2.0 */
/* Gated linear attention matches the plain recurrence in f64, and so do its gradients, for any
 * heads, gates and lengths. Pieces of any length have the bits of the whole, forward and backward,
 * and so has each sequence alone. Devices that split positions and exchange states get its values
 * and gradients, also in pieces, and with closed gates.
 * labels: random unthreaded */
#include <math.h>

#include "base/base.h"
#include "kernels/cpu/team.h"
#include "ops/linear_attention.h"
#include "ops/ops.h"
#include "tests/support/kernel_call.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/seeds.h"

enum { CASES = 6, MOST_LENGTH = 90 };

typedef struct shape {
  sl_attrs attrs;
  int64_t batch, length, dk, dv, group;
  bool per_head, shared; /* states share queries and keys */
  sl_type in[6];         /* q, k, v, gates, o, do */
} shape;

static shape shape_of(int64_t batch, int64_t length, int heads, int kv_heads, int64_t dk,
                      int64_t dv, bool per_head, bool shared) {
  shape s = {.attrs = {.attention.heads = heads, .attention.kv_heads = kv_heads},
             .batch = batch,
             .length = length,
             .dk = dk,
             .dv = dv,
             .group = heads / kv_heads,
             .per_head = per_head,
             .shared = shared};
  int q_heads = shared ? kv_heads : heads, v_heads = shared ? heads : kv_heads;
  int64_t widths[] = {q_heads * dk, kv_heads * dk, v_heads * dv, v_heads * (per_head ? 1 : dk),
                      heads * dv,   heads * dv};
  for (int i = 0; i < 6; i++) s.in[i] = SL_TYPE(SL_F32, batch, length, widths[i]);
  return s;
}

static shape shape_random(void) {
  int kv_heads = 1 + (int)random_below(3), group = 1 + (int)random_below(3);
  bool shared = group > 1 && random_below(2);
  return shape_of(1 + random_below(3), 1 + random_below(MOST_LENGTH), kv_heads * group, kv_heads,
                  2 + random_below(40), 1 + random_below(40), shared || random_below(2), shared);
}

static kernel call_of(const shape *s, const sl_op *op, int nin, int nout) {
  return kernel_create(op, s->attrs, nin, s->in, nout);
}

/* Fills q, k, v and do at random, and the gates with negative numbers, some of which close them. */
static void fill(const shape *s, kernel *k) {
  for (int i = 0; i < k->nin; i++) array_random(k->in[i], &s->in[i], 0);
  float *g = k->in[3];
  for (int64_t e = 0; e < sl_type_elements(&s->in[3]); e++)
    g[e] = random_below(40) ? -fabsf(g[e]) / 4 : -1e9f;
}

/* ---- the recurrence in f64 ------------------------------------------------------------------- */

typedef struct head {
  const shape *s;
  const float *q, *k, *v, *g; /* at position 0 */
  int64_t q_row, k_row, v_row, g_row;
} head;

static head head_of(const shape *s, const kernel *c, int64_t b, int64_t h) {
  int64_t few = h / s->group, T = s->length;
  int64_t of_q = s->shared ? few : h, of_v = s->shared ? h : few;
  head x = {.s = s,
            .q_row = s->in[0].dim[2],
            .k_row = s->in[1].dim[2],
            .v_row = s->in[2].dim[2],
            .g_row = s->in[3].dim[2]};
  x.q = (const float *)c->in[0] + b * T * x.q_row + of_q * s->dk;
  x.k = (const float *)c->in[1] + b * T * x.k_row + few * s->dk;
  x.v = (const float *)c->in[2] + b * T * x.v_row + of_v * s->dv;
  x.g = (const float *)c->in[3] + b * T * x.g_row + (s->per_head ? of_v : of_v * s->dk);
  return x;
}

static double gate(const head *x, int64_t t, int64_t i) {
  return exp((double)x->g[t * x->g_row + (x->s->per_head ? 0 : i)]);
}

/* Returns the states after each position: [T][dk][dv]. */
static double *states_of(const head *x) {
  int64_t n = x->s->dk * x->s->dv;
  double *all = sli_calloc((size_t)(x->s->length * n), sizeof *all);
  for (int64_t t = 0; t < x->s->length; t++)
    for (int64_t i = 0; i < x->s->dk; i++)
      for (int64_t j = 0; j < x->s->dv; j++) {
        double before = t ? all[(t - 1) * n + i * x->s->dv + j] : 0;
        all[t * n + i * x->s->dv + j] = gate(x, t, i) * before + (double)x->k[t * x->k_row + i] *
                                                                     (double)x->v[t * x->v_row + j];
      }
  return all;
}

static void check_close(const shape *s, const char *what, double got, double want, double size) {
  CHECK(fabs(got - want) <= 2e-5 * (1 + size),
        "%s is %.9g, not %.9g (%lld positions, %lld by %lld)", what, got, want,
        (long long)s->length, (long long)s->dk, (long long)s->dv);
}

static void check_values(const shape *s, const kernel *c) {
  double scale = (double)sli_linear_scale(&s->attrs, s->dk);
  for (int64_t b = 0; b < s->batch; b++)
    for (int64_t h = 0; h < s->attrs.attention.heads; h++) {
      head x = head_of(s, c, b, h);
      double *S = states_of(&x);
      for (int64_t t = 0; t < s->length; t++)
        for (int64_t j = 0; j < s->dv; j++) {
          double sum = 0, size = 0;
          for (int64_t i = 0; i < s->dk; i++) {
            double term = (double)x.q[t * x.q_row + i] * S[(t * s->dk + i) * s->dv + j] * scale;
            sum += term, size += fabs(term);
          }
          const float *o = c->out[0];
          check_close(s, "o",
                      (double)o[((b * s->length + t) * s->attrs.attention.heads + h) * s->dv + j],
                      sum, size);
        }
      free(S);
    }
}

/* Adds a head's gradients, by the chain rule through its states, to those of its sequence; q, k, v
 * and gates are laid out like the inputs. */
static void add_gradients(const head *x, const float *dout, int64_t o_row, double *dq, double *dk,
                          double *dv, double *dg) {
  const shape *s = x->s;
  int64_t n = s->dk * s->dv;
  double scale = (double)sli_linear_scale(&s->attrs, s->dk);
  double *S = states_of(x), *D = sli_calloc((size_t)n, sizeof *D);
  for (int64_t t = s->length - 1; t >= 0; t--)
    for (int64_t i = 0; i < s->dk; i++)
      for (int64_t j = 0; j < s->dv; j++) {
        double *d = &D[i * s->dv + j], o = (double)dout[t * o_row + j] * scale;
        double before = t ? S[(t - 1) * n + i * s->dv + j] : 0, a = gate(x, t, i);
        *d += (double)x->q[t * x->q_row + i] * o;
        dq[t * x->q_row + i] += S[t * n + i * s->dv + j] * o;
        dk[t * x->k_row + i] += *d * (double)x->v[t * x->v_row + j];
        dv[t * x->v_row + j] += *d * (double)x->k[t * x->k_row + i];
        dg[t * x->g_row + (s->per_head ? 0 : i)] += *d * before * a;
        *d *= a;
      }
  free(S);
  free(D);
}

static void check_gradients(const shape *s, const kernel *c) {
  static const char *const names[] = {"dq", "dk", "dv", "the gradient of a gate"};
  double *want[4];
  for (int i = 0; i < 4; i++)
    want[i] = sli_calloc((size_t)sl_type_elements(&s->in[i]), sizeof *want[i]);
  for (int64_t b = 0; b < s->batch; b++)
    for (int64_t h = 0; h < s->attrs.attention.heads; h++) {
      head x = head_of(s, c, b, h);
      int64_t o_row = s->in[4].dim[2];
      add_gradients(
          &x, (const float *)c->in[5] + b * s->length * o_row + h * s->dv, o_row,
          want[0] + (x.q - (const float *)c->in[0]), want[1] + (x.k - (const float *)c->in[1]),
          want[2] + (x.v - (const float *)c->in[2]), want[3] + (x.g - (const float *)c->in[3]));
    }
  for (int i = 0; i < 4; i++) {
    double size = 0;
    for (int64_t e = 0; e < sl_type_elements(&s->in[i]); e++) size = fmax(size, fabs(want[i][e]));
    for (int64_t e = 0; e < sl_type_elements(&s->in[i]); e++)
      check_close(s, names[i], (double)((const float *)c->out[i])[e], want[i][e], size);
    free(want[i]);
  }
}

/* ---- pieces ------------------------------------------------------------------------------------
 */

/* Creates a call on some positions. `from` maps its inputs to inputs of the whole; -1 stands for
 * the type `record`. */
static kernel part_of(const shape *s, const kernel *whole, const sl_op *op, int nin,
                      const int *from, int nout, int64_t at, int64_t rows, const sl_type *record) {
  sl_type in[8];
  for (int i = 0; i < nin; i++) {
    in[i] = from[i] < 0 ? *record : s->in[from[i]];
    if (from[i] >= 0) in[i].dim[1] = rows;
  }
  kernel k = kernel_create(op, s->attrs, nin, in, nout);
  for (int i = 0; i < nin; i++)
    if (from[i] >= 0) copy_rows(&s->in[from[i]], at, rows, whole->in[from[i]], k.in[i], false);
  k.tick = (sl_tick){.row = at, .rows = rows};
  return k;
}

static kernel piece_of(const shape *s, const kernel *whole, const sl_op *op, int nin, int nout,
                       int64_t at, int64_t rows, const sl_type *record) {
  static const int from[] = {0, 1, 2, 3, 4, -1, 5};
  return part_of(s, whole, op, nin, from, nout, at, rows, record);
}

static void same(const shape *s, const char *what, const sl_type *type, const void *got,
                 const void *want) {
  CHECK(!memcmp(got, want, sl_type_bytes(type)), "%s: pieces of %lld positions have other bits",
        what, (long long)s->length);
}

static void check_pieces(shape *s, const kernel *whole, const kernel *back) {
  int64_t starts[MOST_LENGTH + 1], n = 0;
  sli_linear_shape sizes = sli_linear_shape_of(&s->attrs, s->in);
  sl_type record = SL_TYPE(SL_F32, s->batch, sizes.v_heads, s->dk * s->dv);
  sl_type carries = SL_TYPE(SL_I32, s->batch, sli_linear_carry(&sizes));
  void *state = array_create(&record), *carry = array_create(&carries);
  void *before[MOST_LENGTH], *o = array_create(&s->in[4]), *gradients[4];
  for (int i = 0; i < 4; i++) gradients[i] = array_create(&s->in[i]);
  s->attrs.place.length = s->length;
  for (int64_t at = 0, rows; at < s->length; at += rows, n++) {
    rows = 1 + random_below(40);
    rows = SLI_MIN(rows, s->length - at);
    starts[n] = at;
    kernel k = piece_of(s, whole, &sl_op_linear_attention_piece, 4, 3, at, rows, NULL);
    free(k.out[2]);
    k.out[2] = state;
    kernel_run(&k, NULL);
    copy_rows(&s->in[4], at, rows, o, k.out[0], true);
    before[n] = k.out[1];
    k.out[1] = k.out[2] = NULL;
    kernel_destroy(&k);
  }
  same(s, "o", &s->in[4], o, whole->out[0]);
  starts[n] = s->length;
  for (int64_t p = n - 1; p >= 0; p--) {
    int64_t rows = starts[p + 1] - starts[p];
    kernel k = piece_of(s, back, &sl_op_linear_attention_piece_b, 7, 5, starts[p], rows, &record);
    memcpy(k.in[5], before[p], sl_type_bytes(&record));
    free(k.out[4]);
    k.out[4] = carry;
    kernel_run(&k, NULL);
    for (int i = 0; i < 4; i++) copy_rows(&s->in[i], starts[p], rows, gradients[i], k.out[i], true);
    k.out[4] = NULL;
    kernel_destroy(&k);
    free(before[p]);
  }
  for (int i = 0; i < 4; i++) {
    same(s, "a gradient", &s->in[i], gradients[i], back->out[i]);
    free(gradients[i]);
  }
  free(o);
  free(state);
  free(carry);
}

/* ---- split positions ------------------------------------------------------------------------ */

enum { DEVICES = 3, PIECES = 2, SHARES = DEVICES * PIECES };

/* Shares of the positions in their order; each piece is split over DEVICES devices. */
typedef struct shares {
  shape s;
  int pieces, devices;
  int64_t begin[SHARES + 1];
  sl_type state, carry; /* all devices together */
  kernel records[SHARES];
  void *ends[DEVICES]; /* a device's state at the end of a piece */
} shares;

static shares shares_of(const shape *s) {
  sli_linear_shape sizes = sli_linear_shape_of(&s->attrs, s->in);
  shares x = {.s = *s, .pieces = 1, .devices = (int)SLI_MIN(s->length, DEVICES)};
  if (s->length >= SHARES) x.pieces += (int)random_below(PIECES);
  x.state = SL_TYPE(SL_F32, s->batch, sizes.v_heads, s->dk * s->dv);
  int n = x.pieces * x.devices;
  for (int i = 0; i < n; i++) {
    int64_t left = s->length - x.begin[i] - (n - 1 - i);
    x.begin[i + 1] = i + 1 == n ? s->length : x.begin[i] + 1 + random_below(left);
  }
  for (int d = 0; d < x.devices; d++) x.ends[d] = array_create(&x.state);
  return x;
}

static void make_records(shares *x, const kernel *whole, bool back) {
  static const int forth[] = {0, 1, 2, 3}, with_do[] = {0, 1, 2, 3, 5};
  for (int i = 0; i < x->pieces * x->devices; i++) {
    const sl_op *op = back ? &sl_op_linear_attention_share_b : &sl_op_linear_attention_share;
    x->records[i] = part_of(&x->s, whole, op, 4 + back, back ? with_do : forth, 1, x->begin[i],
                            x->begin[i + 1] - x->begin[i], NULL);
    kernel_run(&x->records[i], NULL);
  }
}

static void drop_records(shares *x) {
  for (int i = 0; i < x->pieces * x->devices; i++) kernel_destroy(&x->records[i]);
}

/* Computes the state before a share, or backward the gradient of the state behind it, into `to`,
 * which starts at zero. Backward, records are joined from the last to the first. */
static void join(shares *x, int share, bool back, void *to) {
  int piece = share / x->devices, member = share % x->devices, of = piece * x->devices;
  int first = back ? x->devices - 1 - member : member;
  int nin = x->pieces > 1 ? x->devices : first;
  memset(to, 0, sl_type_bytes(&x->state));
  if (!nin) return;
  sl_type in[DEVICES];
  for (int i = 0; i < nin; i++) in[i] = x->records[0].out_type[0];
  sl_attrs attrs = {.states.gates = x->s.per_head ? 1 : x->s.dk,
                    .states.before = first,
                    .states.back = back,
                    .place.length = x->pieces > 1 ? x->s.length : 0};
  kernel k = kernel_create(&sl_op_linear_attention_join, attrs, nin, in, 1 + (x->pieces > 1));
  for (int i = 0; i < nin; i++)
    memcpy(k.in[i], x->records[of + (back ? x->devices - 1 - i : i)].out[0], sl_type_bytes(&in[i]));
  k.tick.row = x->begin[of];
  k.tick.rows = x->begin[of + x->devices] - x->begin[of];
  if (x->pieces > 1) {
    free(k.out[1]);
    k.out[1] = x->ends[member];
  }
  kernel_run(&k, NULL);
  memcpy(to, k.out[0], sl_type_bytes(&x->state));
  if (x->pieces > 1) k.out[1] = NULL;
  kernel_destroy(&k);
}

static void check_share(const shares *x, int share, const char *what, const sl_type *type,
                        void *got, char *whole) {
  sl_type part = *type;
  int64_t rows = x->begin[share + 1] - x->begin[share];
  part.dim[1] = rows;
  float *want = array_create(&part);
  double size = 0;
  copy_rows(type, x->begin[share], rows, whole, (char *)want, false);
  for (int64_t e = 0; e < sl_type_elements(type); e++)
    size = fmax(size, fabs((double)((const float *)(void *)whole)[e]));
  for (int64_t e = 0; e < sl_type_elements(&part); e++)
    check_close(&x->s, what, (double)((const float *)got)[e], (double)want[e], size);
  free(want);
}

static void check_step(shares *x, int share, const kernel *whole) {
  static const int from[] = {0, 1, 2, 3, -1};
  int64_t at = x->begin[share];
  kernel k = part_of(&x->s, whole, &sl_op_linear_attention_step, 5, from, 1, at,
                     x->begin[share + 1] - at, &x->state);
  join(x, share, false, k.in[4]);
  kernel_run(&k, NULL);
  check_share(x, share, "o of a share", &x->s.in[4], k.out[0], whole->out[0]);
  kernel_destroy(&k);
}

static void check_step_b(shares *x, int share, const kernel *back, const void *before) {
  static const int from[] = {0, 1, 2, 3, 4, -1, 5, -1};
  static const char *const names[] = {"dq of a share", "dk of a share", "dv of a share",
                                      "the gradient of a share's gate"};
  int64_t at = x->begin[share];
  kernel k = part_of(&x->s, back, &sl_op_linear_attention_step_b, 8, from, 4, at,
                     x->begin[share + 1] - at, &x->state);
  memcpy(k.in[5], before, sl_type_bytes(&x->state));
  join(x, share, true, k.in[7]);
  kernel_run(&k, NULL);
  for (int i = 0; i < 4; i++) check_share(x, share, names[i], &x->s.in[i], k.out[i], back->out[i]);
  kernel_destroy(&k);
}

static void check_shares(const shape *s, const kernel *whole, const kernel *back) {
  shares x = shares_of(s);
  void *before[SHARES];
  int n = x.pieces * x.devices;
  make_records(&x, whole, false);
  for (int i = 0; i < n; i++) before[i] = array_create(&x.state);
  for (int i = 0; i < n; i++) check_step(&x, i, whole);
  for (int i = 0; i < n; i++) join(&x, i, false, before[i]);
  drop_records(&x);
  make_records(&x, back, true);
  for (int p = x.pieces - 1; p >= 0; p--)
    for (int i = 0; i < x.devices; i++)
      check_step_b(&x, p * x.devices + i, back, before[p * x.devices + i]);
  drop_records(&x);
  for (int i = 0; i < n; i++) free(before[i]);
  for (int d = 0; d < x.devices; d++) free(x.ends[d]);
}

/* ---- cases -------------------------------------------------------------------------------------
 */

static void check_case(void) {
  shape s = shape_random();
  kernel there = call_of(&s, &sl_op_linear_attention, 4, 1);
  kernel back = call_of(&s, &sl_op_linear_attention_b, 6, 4);
  struct sl_team *team = sli_team_create(2, NULL, NULL);
  fill(&s, &back);
  for (int i = 0; i < 4; i++) memcpy(there.in[i], back.in[i], sl_type_bytes(&s.in[i]));
  kernel_run(&there, team);
  memcpy(back.in[4], there.out[0], sl_type_bytes(&s.in[4]));
  kernel_run(&back, team);
  sli_team_destroy(team);
  check_values(&s, &there);
  check_gradients(&s, &back);
  check_shares(&s, &there, &back);
  check_pieces(&s, &there, &back);
  kernel_destroy(&there);
  kernel_destroy(&back);
}

static void check_random(uint64_t seed) {
  seed_random(seed);
  for (int i = 0; i < CASES; i++) check_case();
}

/* Three positions, worked out by hand. */
static void check_by_hand(void) {
  static const float q[] = {1, 0, 1, 1, 0, 2}, k[] = {1, 1, 0, 1, 2, 0}, v[] = {1, 2, 3, 0, 1, 1},
                     gates[] = {.5f, .5f, .5f, .25f, 1, .5f}, o[] = {1, 2, 3.75f, 1.5f, 3.25f, .5f};
  shape s = shape_of(1, 3, 1, 1, 2, 2, false, false);
  s.attrs.attention.scale = 1;
  kernel c = call_of(&s, &sl_op_linear_attention, 4, 1);
  memcpy(c.in[0], q, sizeof q);
  memcpy(c.in[1], k, sizeof k);
  memcpy(c.in[2], v, sizeof v);
  for (int i = 0; i < 6; i++) ((float *)c.in[3])[i] = logf(gates[i]);
  kernel_run(&c, NULL);
  for (int i = 0; i < 6; i++)
    CHECK(fabsf(((float *)c.out[0])[i] - o[i]) < 1e-6f, "o[%d] is %g, not %g", i,
          (double)((float *)c.out[0])[i], (double)o[i]);
  kernel_destroy(&c);
}

static void refuse(shape s, const char *text) {
  sl_type out[5];
  CHECK(sl_op_linear_attention.infer(&s.attrs, 4, s.in, out) == SL_E_SHAPE &&
            strstr(sl_detail(), text),
        "%s", sl_detail());
}

static void bad_shapes_are_refused(void) {
  shape s = shape_of(1, 3, 4, 2, 8, 8, false, false);
  s.attrs.attention.kv_heads = 3;
  refuse(s, "4 heads and 3 key heads");
  s = shape_of(1, 3, 4, 2, 8, 8, false, false);
  s.in[3].dim[2] = 5;
  refuse(s, "gates must be f32[1, 3, 16], got f32[1, 3, 5]");
  s = shape_of(1, 3, 1, 1, 300, 8, false, false);
  refuse(s, "heads of 300 keys and 8 values: at most 256");
}

int main(int argc, char **argv) {
  RUN(check_by_hand);
  RUN(bad_shapes_are_refused);
  seeds s = seeds_of(argc, argv, 1, 2);
  for (uint64_t seed = s.first; seed < s.end; seed++)
    RUN_AS("check_random", on_every_level(check_random, seed));
  return 0;
}
