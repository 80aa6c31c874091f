/* SPDX-License-Identifier: Apache-2.0 */
/* Attention that receives keys and values piece by piece has the bits of attention with the full
 * record, and so have its gradients. Pieces have any length, and a tile of keys may span several.
 * labels: unthreaded random */
#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "ops/ops.h"
#include "tests/support/rng.h"
#include "tests/support/kernel_call.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/seeds.h"

enum { MOST_PIECES = 9, CASES = 12 };
#if defined(__SANITIZE_ADDRESS__)
enum { SEEDS = 2 };
#else
enum { SEEDS = 3 };
#endif

typedef struct shape {
  bool packed, ids;
  int heads, kv_heads, pieces;
  int64_t batch, dim, starts[MOST_PIECES + 1];
  sl_call_cut cut;
  sl_attrs attrs;
} shape;

static void draw(shape *s, rng *d) {
  *s = (shape){.packed = rng_below(d, 2),
               .ids = rng_below(d, 2),
               .kv_heads = 1 + (int)rng_below(d, 2),
               .pieces = 1 + (int)rng_below(d, MOST_PIECES),
               .batch = 1 + rng_below(d, 2),
               .dim = 1 + rng_below(d, 40)};
  s->heads = s->kv_heads * (1 + (int)rng_below(d, 3));
  uint32_t longest = rng_below(d, 2) ? 30 : 150; /* shorter or longer than a tile of keys */
  for (int k = 0; k < s->pieces; k++) s->starts[k + 1] = s->starts[k] + 1 + rng_below(d, longest);
  s->cut = (sl_call_cut){s->pieces, s->starts};
  s->attrs = (sl_attrs){.attention.heads = s->heads,
                        .attention.kv_heads = s->kv_heads,
                        .place.length = s->starts[s->pieces],
                        .attention.window = rng_below(d, 2) ? 0 : 1 + rng_below(d, 120),
                        .user = &s->cut};
}

static int64_t rows(const shape *s, int k) { return s->starts[k + 1] - s->starts[k]; }

/* ---- calls ------------------------------------------------------------------------------- */

static kernel call(const shape *s, const sl_op *op, int k, int nin, const sl_type *types,
                   void *const *in) {
  kernel c = kernel_create(op, s->attrs, nin, types, sli_op_outputs(op, &s->attrs, nin));
  for (int i = 0; i < nin; i++) memcpy(c.in[i], in[i], sl_type_bytes(&types[i]));
  c.tick = (sl_tick){.piece = k, .row = s->starts[k], .rows = rows(s, k)};
  return c;
}

/* Replaces the call's own output by one that outlives it. */
static void put(kernel *c, int output, void **lasting) {
  if (!*lasting) *lasting = array_create(&c->out_type[output]);
  free(c->out[output]);
  c->out[output] = *lasting;
}

/* Destroys a call, but not the outputs that it does not own. */
static void leave(kernel *c, uint32_t outputs) {
  for (int o = 0; o < c->nout; o++)
    if (outputs >> o & 1) c->out[o] = NULL;
  kernel_destroy(c);
}

static void same(const kernel *a, int o, const kernel *b, int p, int k, const char *what) {
  CHECK(sl_type_equal(&a->out_type[o], &b->out_type[p]) &&
            !memcmp(a->out[o], b->out[p], sl_type_bytes(&a->out_type[o])),
        "%s of piece %d: other bits (CPU level %d)", what, k, sli_cpu_level());
}

/* ---- a sequence ---------------------------------------------------------------------------- */

typedef struct piece {
  int nin;
  sl_type types[4];
  void *in[4], *dy; /* inputs of attention */
  kernel whole;     /* with the full record */
  kernel parts;     /* q, kv */
  kernel sweep;
} piece;

static void make_inputs(const shape *s, piece *p, int k) {
  int64_t n = rows(s, k), kv = s->kv_heads * s->dim, q = s->heads * s->dim;
  sl_type of_q = SL_TYPE(SL_F32, s->batch, n, q), of_kv = SL_TYPE(SL_F32, s->batch, n, kv);
  p->nin = s->packed ? 1 : 3;
  p->types[0] = s->packed ? SL_TYPE(SL_F32, s->batch, n, q + 2 * kv) : of_q;
  if (!s->packed) p->types[1] = p->types[2] = of_kv;
  if (s->ids) p->types[p->nin++] = SL_TYPE(SL_I32, s->batch, n);
  for (int i = 0; i < p->nin; i++) {
    p->in[i] = array_create(&p->types[i]);
    array_random(p->in[i], &p->types[i], 3);
  }
  p->dy = array_create(&of_q);
  array_random(p->dy, &of_q, 0);
}

static void forward_whole(const shape *s, piece *p, int k, void **kv, void **ids) {
  const sl_op *op = sli_op_cut(s->packed ? &sl_op_attention_packed : &sl_op_attention)->pieced;
  p->whole = call(s, op, k, p->nin, p->types, p->in);
  put(&p->whole, 2, kv);
  if (s->ids) put(&p->whole, p->whole.nout - 1, ids);
  kernel_run(&p->whole, NULL);
}

static void forward_swept(const shape *s, piece *all, int k, void **tail, void **ids) {
  const sl_op *op = s->packed ? &sl_op_attention_packed : &sl_op_attention;
  piece *p = &all[k];
  p->parts = call(s, sli_op_cut(op)->parts, k, p->nin - s->ids, p->types, p->in);
  kernel_run(&p->parts, NULL);
  sl_type types[] = {p->parts.out_type[0], p->parts.out_type[1], p->types[p->nin - 1]};
  void *in[] = {p->parts.out[0], p->parts.out[1], p->in[p->nin - 1]};
  p->sweep = call(s, sli_op_cut(op)->swept, k, 2 + s->ids, types, in);
  put(&p->sweep, 2, tail);
  if (s->ids) put(&p->sweep, 4, ids);
  for (int j = k; j >= 0; j--) {
    void *own = p->sweep.in[1];
    p->sweep.accumulate = k ? 0x1c : 0;
    p->sweep.in[1] = all[j].parts.out[1];
    kernel_run(&p->sweep, NULL);
    p->sweep.in[1] = own;
  }
  same(&p->whole, 0, &p->sweep, 0, k, "o");
  same(&p->whole, 1, &p->sweep, 1, k, "lse");
}

static kernel backward_whole(const shape *s, const piece *p, int k, void *kv, void *ids,
                             void **dkv) {
  const kernel *w = &p->whole;
  const sl_op *op = w->op->grad[0].op;
  sl_type types[] = {s->packed ? w->out_type[3] : w->in_type[0],
                     w->out_type[2],
                     w->out_type[0],
                     w->out_type[1],
                     w->out_type[0],
                     w->out_type[w->nout - 1]};
  void *in[] = {s->packed ? w->out[3] : w->in[0], kv, w->out[0], w->out[1], p->dy, ids};
  kernel c = call(s, op, k, 5 + s->ids, types, in);
  put(&c, c.nout - 1, dkv);
  kernel_run(&c, NULL);
  return c;
}

static kernel backward_swept(const shape *s, const piece *all, int k, void *ids, void **record) {
  const piece *p = &all[k];
  const kernel *w = &p->sweep;
  sl_type types[] = {w->in_type[0],  w->in_type[1],  w->out_type[0],
                     w->out_type[1], w->out_type[0], w->out_type[w->nout - 1]};
  void *in[] = {w->in[0], w->in[1], w->out[0], w->out[1], p->dy, ids};
  kernel c = call(s, w->op->grad[0].op, k, 5 + s->ids, types, in);
  put(&c, 2, record);
  for (int j = 0; j <= k; j++) {
    void *own = c.in[1];
    c.accumulate = k < s->pieces - 1 || j ? 4 : 0;
    c.in[1] = all[j].parts.out[1];
    kernel_run(&c, NULL);
    c.in[1] = own;
  }
  sl_type dtypes[] = {c.out_type[0], c.out_type[1]};
  kernel back = call(s, p->parts.op->grad[0].op, k, 2, dtypes, c.out);
  kernel_run(&back, NULL);
  leave(&c, 1 << 2);
  return back;
}

static void check_backward(const shape *s, const piece *all, int k, void *kv, void *ids, void **dkv,
                           void **record) {
  kernel whole = backward_whole(s, &all[k], k, kv, ids, dkv);
  kernel swept = backward_swept(s, all, k, ids, record);
  for (int i = 0; i < swept.nout; i++) same(&whole, i, &swept, i, k, "gradient");
  leave(&whole, 1u << (whole.nout - 1));
  kernel_destroy(&swept);
}

static void check_shape(const shape *s) {
  piece all[MOST_PIECES] = {0};
  void *kv = NULL, *ids = NULL, *tail = NULL, *ids_swept = NULL, *dkv = NULL, *record = NULL;
  for (int k = 0; k < s->pieces; k++) {
    make_inputs(s, &all[k], k);
    forward_whole(s, &all[k], k, &kv, &ids);
    forward_swept(s, all, k, &tail, &ids_swept);
  }
  for (int k = s->pieces - 1; k >= 0; k--) check_backward(s, all, k, kv, ids, &dkv, &record);
  for (int k = 0; k < s->pieces; k++) {
    piece *p = &all[k];
    leave(&p->whole, 1 << 2 | (s->ids ? 1u << (p->whole.nout - 1) : 0));
    leave(&p->sweep, 1 << 2 | 1 << 4);
    kernel_destroy(&p->parts);
    for (int i = 0; i < p->nin; i++) free(p->in[i]);
    free(p->dy);
  }
  void *lasting[] = {kv, ids, tail, ids_swept, dkv, record};
  for (size_t i = 0; i < SLI_COUNT(lasting); i++) free(lasting[i]);
}

static void check_all(uint64_t seed) {
  rng d = {seed, 0};
  seed_random(seed);
  for (int i = 0; i < CASES; i++) {
    shape s;
    draw(&s, &d);
    check_shape(&s);
  }
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, SEEDS);
  for (uint64_t seed = s.first; seed < s.end; seed++)
    RUN_AS("check_all", on_every_level(check_all, seed));
  return 0;
}
