/* SPDX-License-Identifier: Apache-2.0 */
/* Ops for pieces, called piece by piece, match the reference of the whole sequence, and their
 * gradients match finite differences of it: for random cuts, at odd shapes, on every CPU level.
 * labels: random unthreaded computes */
#include <sys/wait.h>
#include <unistd.h>

#include <sluice/attention.h>

#include "kernels/cpu/chunk.h"
#include "ops/ops.h"
#include "tests/support/kernel_call.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/reference_kernels.h"
#include "tests/support/seeds.h"

enum { MOST_PIECES = 6 };

/* Attention of a whole sequence, and its cut. */
typedef struct claim {
  const sl_op *op;
  int heads, kv_heads;
  int64_t batch, length, dim, window;
  bool ids; /* documents, and invisible positions */
} claim;

static const claim claims[] = {
    {&sl_op_attention, 1, 1, 1, 7, 1, 0, false},
    {&sl_op_attention, 2, 2, 2, 33, 7, 0, false},
    {&sl_op_attention, 4, 2, 1, 133, 16, 0, false},
    {&sl_op_attention, 3, 1, 2, 70, 33, 0, false},
    {&sl_op_attention_packed, 1, 0, 1, 6, 5, 0, false},
    {&sl_op_attention_packed, 2, 2, 2, 37, 8, 0, false},
    {&sl_op_attention_packed, 6, 2, 1, 129, 16, 0, false},
    {&sl_op_attention_packed, 1, 1, 3, 64, 64, 0, false},
    {&sl_op_attention, 2, 1, 1, 133, 8, 40, false},
    {&sl_op_attention_packed, 2, 2, 2, 37, 8, 1, false},
    {&sl_op_attention, 2, 1, 2, 133, 8, 0, true},
    {&sl_op_attention_packed, 2, 2, 2, 70, 8, 0, true},
    {&sl_op_attention_packed, 1, 1, 1, 90, 8, 70, true},
    {&sl_op_attention_sinks, 4, 2, 1, 133, 16, 0, false},
    {&sl_op_attention_sinks, 2, 1, 2, 37, 8, 5, false},
    {&sl_op_attention_sinks, 2, 1, 2, 70, 8, 0, true},
};

typedef struct cut {
  int pieces;
  int64_t row[MOST_PIECES], rows[MOST_PIECES];
} cut;

/* Returns a cut in which each piece has at least one row and the rest fall at random. */
static cut random_cut(int64_t length) {
  cut c = {.pieces = 1 + (int)(random_bits() % MOST_PIECES)};
  for (int k = 0; k < c.pieces; k++) c.rows[k] = 1;
  for (int64_t left = length - c.pieces; left > 0;) {
    int64_t some = 1 + (int64_t)(random_bits() % (uint64_t)left);
    c.rows[random_bits() % (uint64_t)c.pieces] += some;
    left -= some;
  }
  for (int k = 1; k < c.pieces; k++) c.row[k] = c.row[k - 1] + c.rows[k - 1];
  return c;
}

/* Copies rows from `row` on between x, [B, T, W] or [B, T], and a piece [B, n, W]. */
static void slice(float *whole, const sl_type *type, int64_t row, float *piece, int64_t rows,
                  bool back) {
  int64_t T = type->dim[1], W = type->ndim < 3 ? 1 : type->dim[2];
  for (int64_t b = 0; b < type->dim[0]; b++) {
    float *x = whole + (b * T + row) * W, *y = piece + b * rows * W;
    memcpy(back ? x : y, back ? y : x, (size_t)(rows * W) * sizeof(float));
  }
}

static double *doubles_of(const void *x, const sl_type *type) {
  int64_t n = sl_type_elements(type);
  double *d = calloc((size_t)n, sizeof *d);
  for (int64_t i = 0; x && i < n; i++) d[i] = array_get(x, type, i);
  return d;
}

static void check_near(const float *got, const double *want, int64_t n, double tolerance,
                       const char *what) {
  for (int64_t i = 0; i < n; i++)
    CHECK(fabs((double)got[i] - want[i]) <= tolerance * (1 + fabs(want[i])),
          "%s: element %lld is %.9g, should be %.9g (CPU level %d)", what, (long long)i,
          (double)got[i], want[i], sli_cpu_level());
}

/* ---- attention -------------------------------------------------------------------- */

typedef struct whole {
  kernel k;                 /* the uncut call, for its types and inputs */
  float *o, *dy, *grads[4]; /* assembled from pieces; dy is [B, T, Hq*D] */
  kernel pieces[MOST_PIECES];
  void *kv, *dkv, *ids; /* records */
} whole;

/* Returns the number of input arrays of the uncut call: q, k, v, or these and sinks, or qkv. */
static int arrays(const whole *w) { return w->k.op->min_in; }
static bool has_sinks(const whole *w) { return w->k.op == &sl_op_attention_sinks; }
static bool has_ids(const whole *w) { return w->k.nin > arrays(w); }

static kernel call_create(const sl_op *op, sl_attrs attrs, int nin, const sl_type *types) {
  return kernel_create(op, attrs, nin, types, sli_op_outputs(op, &attrs, nin));
}

/* Replaces the call's own output by a record. */
static void put_record(kernel *k, int o, void *record) {
  free(k->out[o]);
  k->out[o] = record;
}

static void fill_ids(int32_t *ids, int64_t batch, int64_t length) {
  for (int64_t i = 0; i < batch * length; i++)
    ids[i] = i && random_bits() % 8 ? ids[i - 1] : (int32_t)(random_bits() % 4) - 1;
}

static whole whole_create(const claim *c) {
  sl_attrs attrs = {.attention.heads = c->heads,
                    .attention.kv_heads = c->kv_heads,
                    .place.length = c->length,
                    .attention.window = c->window};
  int64_t kv = c->kv_heads ? c->kv_heads : c->heads, D = c->dim;
  sl_type q = SL_TYPE(SL_F32, c->batch, c->length, c->heads * D);
  sl_type k = SL_TYPE(SL_F32, c->batch, c->length, kv * D);
  sl_type packed = SL_TYPE(SL_F32, c->batch, c->length, (c->heads + 2 * kv) * D);
  sl_type record = SL_TYPE(SL_F32, c->batch, c->length, 2 * kv * D);
  sl_type ids = SL_TYPE(SL_I32, c->batch, c->length);
  sl_type sinks = SL_TYPE(SL_F32, c->batch, c->length, c->heads);
  const sl_type separate[] = {q, k, k, c->op == &sl_op_attention_sinks ? sinks : ids, ids},
                one[] = {packed, ids};
  bool is_packed = c->op == &sl_op_attention_packed;
  whole w = {
      .k = kernel_create(c->op, attrs, c->op->min_in + c->ids, is_packed ? one : separate, 2)};
  if (c->ids) fill_ids(w.k.in[arrays(&w)], c->batch, c->length);
  for (int i = 0; i < arrays(&w); i++) {
    array_random(w.k.in[i], &w.k.in_type[i], 0);
    w.grads[i] = array_create(&w.k.in_type[i]);
  }
  w.o = array_create(&q);
  w.dy = array_create(&q);
  array_random(w.dy, &q, 0);
  w.kv = array_create(&record);
  w.dkv = array_create(&record);
  w.ids = array_create(&ids);
  return w;
}

static void whole_destroy(whole *w, int pieces) {
  for (int p = 0; p < pieces; p++) {
    w->pieces[p].out[2] = NULL; /* the record */
    if (has_ids(w)) w->pieces[p].out[w->pieces[p].nout - 1] = NULL;
    kernel_destroy(&w->pieces[p]);
  }
  for (int i = 0; i < arrays(w); i++) free(w->grads[i]);
  kernel_destroy(&w->k);
  free(w->o);
  free(w->dy);
  free(w->kv);
  free(w->dkv);
  free(w->ids);
}

/* Runs one piece; outputs shared between pieces are replaced. */
static void run_forward(whole *w, const cut *c, int p) {
  sl_type types[5];
  for (int i = 0; i < w->k.nin; i++) {
    types[i] = w->k.in_type[i];
    types[i].dim[1] = c->rows[p];
  }
  const sl_op *op = sli_op_cut(w->k.op)->pieced;
  kernel *k = &w->pieces[p];
  *k = call_create(op, w->k.attrs, w->k.nin, types);
  CHECK(sl_type_bytes(&k->out_type[2]) ==
            (size_t)sl_type_rows(&w->k.in_type[0]) * 4 * (size_t)k->out_type[2].dim[2],
        "the record spans the sequence");
  put_record(k, 2, w->kv);
  if (has_ids(w)) put_record(k, k->nout - 1, w->ids);
  k->tick = (sl_tick){.piece = p, .row = c->row[p], .rows = c->rows[p]};
  for (int i = 0; i < k->nin; i++)
    slice(w->k.in[i], &w->k.in_type[i], c->row[p], k->in[i], c->rows[p], false);
  kernel_run(k, NULL);
  slice(w->o, &w->k.out_type[0], c->row[p], k->out[0], c->rows[p], true);
}

/* Recomputation in the backward pass has the same bits, with the whole records and without the keys
 * and values that filled them. */
static void run_again(whole *w, int p) {
  const kernel *forward = &w->pieces[p];
  const sl_op *op = forward->op->rematerialized;
  int given = forward->nin, nin = given + 1 + has_ids(w), last = forward->nout - 1;
  sl_type types[7];
  for (int i = 0; i < given; i++) types[i] = forward->in_type[i];
  types[given] = forward->out_type[2];
  if (has_ids(w)) types[given + 1] = forward->out_type[last];
  kernel k = call_create(op, w->k.attrs, nin, types);
  for (int i = 0; i < nin; i++) {
    const void *from = i < given ? forward->in[i] : i == given ? w->kv : w->ids;
    if (sli_op_memory(op)->unread >> i & 1) free(k.in[i]), k.in[i] = NULL;
    else memcpy(k.in[i], from, sl_type_bytes(&types[i]));
  }
  put_record(&k, 2, NULL);
  if (has_ids(w)) put_record(&k, last, NULL);
  k.tick = forward->tick;
  kernel_run(&k, NULL);
  for (int o = 0; o < k.nout; o++)
    CHECK(!k.out[o] || !memcmp(k.out[o], forward->out[o], sl_type_bytes(&k.out_type[o])),
          "%s, piece %d: output %d has other bits", op->name, p, o);
  kernel_destroy(&k);
}

static void run_backward(whole *w, const cut *c, int p, bool wanted) {
  const kernel *forward = &w->pieces[p];
  bool packed = arrays(w) == 1;
  int ids = 5 + has_sinks(w);
  sl_type types[7] = {packed ? forward->out_type[3] : forward->in_type[0],
                      forward->out_type[2],
                      forward->out_type[0],
                      forward->out_type[1],
                      forward->out_type[0],
                      forward->in_type[3]};
  if (has_ids(w)) types[ids] = forward->out_type[forward->nout - 1];
  const sl_op *op = sli_op_cut(w->k.op)->pieced->grad[0].op;
  int record = op->nout - 1;
  kernel k = kernel_create(op, w->k.attrs, ids + has_ids(w), types, op->nout);
  const void *data[] = {packed ? forward->out[3] : forward->in[0], w->kv, forward->out[0],
                        forward->out[1]};
  for (int i = 0; i < 4; i++) memcpy(k.in[i], data[i], sl_type_bytes(&types[i]));
  slice(w->dy, &w->k.out_type[0], c->row[p], k.in[4], c->rows[p], false);
  if (has_sinks(w)) memcpy(k.in[5], forward->in[3], sl_type_bytes(&types[5]));
  if (has_ids(w)) memcpy(k.in[ids], w->ids, sl_type_bytes(&types[ids]));
  put_record(&k, record, w->dkv);
  k.tick = forward->tick;
  void *left_out = wanted ? NULL : k.out[0];
  if (!wanted) k.out[0] = NULL;
  kernel_run(&k, NULL);
  for (int i = 0; i < arrays(w); i++)
    if (k.out[i]) slice(w->grads[i], &w->k.in_type[i], c->row[p], k.out[i], c->rows[p], true);
  free(left_out);
  k.out[record] = NULL;
  kernel_destroy(&k);
}

typedef struct reference {
  double *in[5], *out[2], *dy;
} reference;

static void run_reference(const whole *w, reference *r) {
  (has_sinks(w)     ? ref_attention_sinks
   : arrays(w) == 1 ? ref_attention_packed
                    : ref_attention)(&w->k.attrs, w->k.in_type, r->in, r->out);
}

static double slope(const whole *w, reference *r, int i, int64_t e) {
  const double h = 1e-5;
  double x = r->in[i][e], total = 0;
  for (int side = -1; side <= 1; side += 2) {
    r->in[i][e] = x + side * h;
    run_reference(w, r);
    for (int64_t y = 0; y < sl_type_elements(&w->k.out_type[0]); y++)
      total += side * r->dy[y] * r->out[0][y] / (2 * h);
  }
  r->in[i][e] = x;
  return total;
}

/* Compares all elements with the uncut gradients, which test_rows.c checks against finite
 * differences. */
static void check_gradients(const whole *w) {
  kernel uncut = w->k;
  kernel_run(&uncut, NULL);
  sl_type types[8];
  const void *data[8];
  int n = 0;
  for (int i = 0; i < arrays(w); i++) types[n] = uncut.in_type[i], data[n++] = uncut.in[i];
  for (int o = 0; o < 2; o++) types[n] = uncut.out_type[o], data[n++] = uncut.out[o];
  types[n] = uncut.out_type[0], data[n++] = w->dy;
  if (has_ids(w)) types[n] = uncut.in_type[arrays(w)], data[n++] = uncut.in[arrays(w)];
  kernel k = kernel_create(uncut.op->grad[0].op, uncut.attrs, n, types, arrays(w));
  for (int i = 0; i < n; i++) memcpy(k.in[i], data[i], sl_type_bytes(&types[i]));
  kernel_run(&k, NULL);
  for (int i = 0; i < arrays(w); i++) {
    double *want = doubles_of(k.out[i], &k.out_type[i]);
    check_near(w->grads[i], want, sl_type_elements(&k.out_type[i]), 3e-6,
               sli_op_cut(uncut.op)->pieced->name);
    free(want);
  }
  kernel_destroy(&k);
}

static void check_slopes(const whole *w, reference *r) {
  enum { SAMPLES = 3 };
  for (int i = 0; i < arrays(w); i++)
    for (int s = 0; s < SAMPLES; s++) {
      int64_t e = (int64_t)(random_bits() % (uint64_t)sl_type_elements(&w->k.in_type[i]));
      double want = slope(w, r, i, e), got = (double)w->grads[i][e];
      CHECK(fabs(got - want) <= 3e-5 * (1 + fabs(want)),
            "%s: gradient of input %d, element %lld is %.9g, should be %.9g (CPU level %d)",
            sli_op_cut(w->k.op)->pieced->name, i, (long long)e, got, want, sli_cpu_level());
    }
}

static void check_attention(const claim *c, const cut *pieces) {
  whole w = whole_create(c);
  reference r = {.dy = doubles_of(w.dy, &w.k.out_type[0])};
  for (int i = 0; i < w.k.nin; i++) r.in[i] = doubles_of(w.k.in[i], &w.k.in_type[i]);
  for (int o = 0; o < 2; o++) r.out[o] = doubles_of(NULL, &w.k.out_type[o]);
  run_reference(&w, &r);
  for (int p = 0; p < pieces->pieces; p++) run_forward(&w, pieces, p);
  check_near(w.o, r.out[0], sl_type_elements(&w.k.out_type[0]), 3e-6,
             sli_op_cut(w.k.op)->pieced->name);
  for (int p = 0; p < pieces->pieces; p++) run_again(&w, p);
  /* The last piece overwrites the record, whatever it contains. */
  for (int p = pieces->pieces - 1; p >= 0; p--) run_backward(&w, pieces, p, true);
  check_gradients(&w);
  check_slopes(&w, &r);
  if (arrays(&w) > 1) { /* dk and dv stay the same without dq */
    float *dv = w.grads[2];
    w.grads[2] = array_create(&w.k.in_type[2]);
    for (int p = pieces->pieces - 1; p >= 0; p--) run_backward(&w, pieces, p, false);
    CHECK(!memcmp(dv, w.grads[2], sl_type_bytes(&w.k.in_type[2])), "dv without dq");
    free(dv);
  }
  for (int i = 0; i < w.k.nin; i++) free(r.in[i]);
  free(r.out[0]);
  free(r.out[1]);
  free(r.dy);
  whole_destroy(&w, pieces->pieces);
}

/* ---- ops that use positions ------------------------------------------------------------ */

/* x -> y piece by piece has the bits of x -> y in one call. */
static void check_positions(const sl_op *op, sl_attrs attrs, int nin, const sl_type *in) {
  attrs.place.length = in[0].dim[1];
  kernel k = kernel_create(op, attrs, nin, in, 1);
  for (int i = 0; i < nin; i++) array_random(k.in[i], &in[i], 0);
  kernel_run(&k, NULL);
  float *y = array_create(&k.out_type[0]);
  cut c = random_cut(in[0].dim[1]);
  for (int p = 0; p < c.pieces; p++) {
    sl_type types[] = {in[0], in[1]};
    types[0].dim[1] = c.rows[p];
    kernel piece = kernel_create(op, attrs, nin, types, 1);
    slice(k.in[0], &in[0], c.row[p], piece.in[0], c.rows[p], false);
    if (nin > 1) memcpy(piece.in[1], k.in[1], sl_type_bytes(&in[1]));
    piece.tick = (sl_tick){.piece = p, .row = c.row[p], .rows = c.rows[p]};
    kernel_run(&piece, NULL);
    slice(y, &k.out_type[0], c.row[p], piece.out[0], c.rows[p], true);
    kernel_destroy(&piece);
  }
  CHECK(!memcmp(y, k.out[0], sl_type_bytes(&k.out_type[0])), "%s in %d pieces", op->name, c.pieces);
  free(y);
  kernel_destroy(&k);
}

/* The table's gradient accumulates over pieces in any order. */
static void check_table_gradient(void) {
  sl_type in[] = {SL_TYPE(SL_F32, 2, 23, 70), SL_TYPE(SL_F32, 25, 70)};
  kernel k = kernel_create(&sl_op_position_w, (sl_attrs){0}, 2, in, 1);
  array_random(k.in[0], &in[0], 0);
  kernel_run(&k, NULL);
  float *sum = array_create(&in[1]);
  cut c = random_cut(in[0].dim[1]);
  for (int p = c.pieces - 1; p >= 0; p--) {
    sl_type types[] = {in[0], in[1]};
    types[0].dim[1] = c.rows[p];
    kernel piece = kernel_create(&sl_op_position_w, (sl_attrs){0}, 2, types, 1);
    slice(k.in[0], &in[0], c.row[p], piece.in[0], c.rows[p], false);
    piece.tick = (sl_tick){.piece = p, .row = c.row[p], .rows = c.rows[p]};
    piece.accumulate = p + 1 < c.pieces;
    free(piece.out[0]);
    piece.out[0] = sum;
    kernel_run(&piece, NULL);
    piece.out[0] = NULL;
    kernel_destroy(&piece);
  }
  CHECK(!memcmp(sum, k.out[0], sl_type_bytes(&in[1])), "position_w in %d pieces", c.pieces);
  free(sum);
  kernel_destroy(&k);
}

/* Stretched frequencies, which also enlarge the scale of attention. */
static const sl_rope stretched = {
    .kind = SL_ROPE_YARN, .factor = 4, .original = 16, .low = 1, .high = 4, .scale = 1.25};
static const sl_rope in_part = {.part = 0.4},
                     stretched_in_part = {.kind = SL_ROPE_LINEAR, .factor = 2, .part = 0.75};

static void check_all(uint64_t seed) {
  seed_random(seed);
  for (size_t i = 0; i < sizeof claims / sizeof *claims; i++)
    for (int round = 0; round < 3; round++) {
      cut c = random_cut(claims[i].length);
      check_attention(&claims[i], &c);
    }
  for (int round = 0; round < 5; round++) {
    check_positions(&sl_op_rotary, (sl_attrs){.rotary.heads = 3}, 1,
                    (sl_type[]){SL_TYPE(SL_F32, 2, 19, 30), SL_SCALAR(SL_F32)});
    check_positions(&sl_op_rotary, (sl_attrs){.rotary.heads = 3, .user = &stretched}, 1,
                    (sl_type[]){SL_TYPE(SL_F32, 2, 19, 30), SL_SCALAR(SL_F32)});
    check_positions(&sl_op_rotary, (sl_attrs){.rotary.heads = 3, .user = &in_part}, 1,
                    (sl_type[]){SL_TYPE(SL_F32, 2, 19, 45), SL_SCALAR(SL_F32)});
    check_positions(&sl_op_rotary_b, (sl_attrs){.rotary.heads = 2, .user = &stretched_in_part}, 1,
                    (sl_type[]){SL_TYPE(SL_F32, 2, 19, 64), SL_SCALAR(SL_F32)});
    check_positions(&sl_op_rotary_b, (sl_attrs){.rotary.heads = 1}, 1,
                    (sl_type[]){SL_TYPE(SL_F32, 1, 8, 66), SL_SCALAR(SL_F32)});
    check_positions(&sl_op_position, (sl_attrs){0}, 2,
                    (sl_type[]){SL_TYPE(SL_F32, 2, 23, 33), SL_TYPE(SL_F32, 23, 33)});
    check_table_gradient();
  }
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 1);
  for (uint64_t seed = s.first; seed < s.end; seed++)
    RUN_AS("check_all", on_every_level(check_all, seed));
  return 0;
}
