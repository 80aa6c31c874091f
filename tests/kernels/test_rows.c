/* SPDX-License-Identifier: Apache-2.0 */
/* Every op with gradients matches its plain reference, and each of its gradient rules matches
 * finite differences of that reference. Cases: odd shapes, every CPU level, absent outputs, and
 * adding to existing values.
 * labels: random unthreaded computes */
#include <sys/wait.h>
#include <unistd.h>
#include <sluice/frames.h>

#include <sluice/attention.h>

#include "kernels/cpu/chunk.h"
#include "ops/ops.h"
#include "tests/support/claims.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/reference_kernels.h"
#include "tests/support/seeds.h"

typedef struct claim {
  const sl_op *op;
  reference_fn *reference;
  sl_attrs attrs;
  int nin;
  sl_type in[6];
  int below; /* ids are in [0, below) */
} claim;

#define F32(...) SL_TYPE(SL_F32, __VA_ARGS__)
#define I32(...) SL_TYPE(SL_I32, __VA_ARGS__)

/* Stretched frequencies, which also enlarge the scale of attention. */
static const sl_rope stretched = {
    .kind = SL_ROPE_YARN, .factor = 4, .original = 16, .low = 1, .high = 4, .scale = 1.25};
static const sl_rope in_part = {.part = 0.4},
                     stretched_in_part = {.kind = SL_ROPE_LINEAR, .factor = 2, .part = 0.75};

static const sl_part middle = {1, 1, {2}, {3}};
static const sl_lengths lengths = {2, (const int64_t[]){2, 5}};
static const sl_reshaping heads = {F32(2, 7, 12), F32(2, 7, 3, 4)},
                          flat = {F32(2, 7, 12), F32(14, 12)};

static const claim claims[] = {
    {&sl_op_reshape, ref_reshape, {.user = &heads}, 1, {F32(2, 7, 12)}, 0},
    {&sl_op_reshape, ref_reshape, {.user = &flat}, 1, {F32(2, 7, 12)}, 0},
    {&sl_op_permute,
     ref_permute,
     {.shape.ndims = 3, .shape.dims = {2, 0, 1}},
     1,
     {F32(3, 5, 70)},
     0},
    {&sl_op_permute,
     ref_permute,
     {.shape.ndims = 4, .shape.dims = {0, 2, 1, 3}},
     1,
     {F32(2, 3, 4, 5)},
     0},
    {&sl_op_slice, ref_slice, {.user = &middle}, 1, {F32(3, 7, 33)}, 0},
    {&sl_op_split, ref_split, {.along.axes = 2, .user = &lengths}, 1, {F32(3, 7, 33)}, 0},
    {&sl_op_sum, ref_sum, {0}, 3, {F32(7, 33), F32(7, 33), F32(7, 33)}, 0},
    {&sl_op_linear, ref_linear, {0}, 3, {F32(7, 33), F32(5, 33), F32(5)}, 0},
    {&sl_op_linear, ref_linear, {0}, 3, {F32(2, 3, 16), F32(17, 16), NOTHING}, 0},
    {&sl_op_linear, ref_linear, {0}, 2, {F32(1, 1), F32(1, 1)}, 0},
    {&sl_op_linear,
     ref_linear,
     {.product.transposed = true},
     3,
     {F32(7, 33), F32(33, 5), F32(5)},
     0},
    {&sl_op_linear, ref_linear, {.product.transposed = true}, 2, {F32(1, 7), F32(7, 64)}, 0},
    {&sl_op_embedding, ref_embedding, {0}, 2, {I32(3, 7), F32(5, 33)}, 5},
    {&sl_op_embedding, ref_embedding, {0}, 2, {I32(1), F32(1, 130)}, 1},
    {&sl_op_splice, ref_splice, {0}, 3, {F32(2, 7, 33), F32(5, 33), I32(2, 7)}, 5},
    {&sl_op_position, ref_position, {0}, 2, {F32(2, 7, 33), F32(9, 33)}, 0},
    {&sl_op_position, ref_position, {0}, 2, {F32(3, 4, 65), F32(4, 65)}, 0},
    {&sl_op_expert_limit,
     ref_expert_limit,
     {.experts.factor = 1.25f, .experts.count = 4},
     2,
     {I32(2, 40, 2), F32(2, 40, 2)},
     4},
    {&sl_op_expert_limit,
     ref_expert_limit,
     {.experts.factor = 0.5f, .experts.count = 9},
     2,
     {I32(30, 1), F32(30, 1)},
     2},
    {&sl_op_bit_choice, ref_bit_choice, {0}, 2, {F32(2, 20, 2, 3), I32(2, 20, 2)}, 4},
    {&sl_op_bit_choice,
     ref_bit_choice,
     {.experts.count = 4, .experts.ncapacities = 3, .experts.capacity = {300000, 400000, 300000}},
     2,
     {F32(2, 20, 2, 3), I32(2, 20, 2)},
     4},
    {&sl_op_add, ref_add, {0}, 2, {F32(7, 33), F32(7, 33)}, 0},
    {&sl_op_copy, ref_copy, {0}, 1, {F32(7, 33)}, 0},
    {&sl_op_mul, ref_mul, {0}, 2, {F32(7, 33), F32(7, 33)}, 0},
    {&sl_op_gelu, ref_gelu, {0}, 1, {F32(7, 33)}, 0},
    {&sl_op_relu, ref_relu, {0}, 1, {F32(7, 33)}, 0},
    {&sl_op_tanh, ref_tanh, {0}, 1, {F32(7, 33)}, 0},
    {&sl_op_swiglu, ref_swiglu, {0}, 2, {F32(7, 33), F32(7, 33)}, 0},
    {&sl_op_layernorm, ref_layernorm, {0}, 3, {F32(7, 33), F32(33), F32(33)}, 0},
    {&sl_op_layernorm,
     ref_layernorm,
     {.norm.eps = 0.1f},
     3,
     {F32(2, 3, 130), F32(130), F32(130)},
     0},
    {&sl_op_rmsnorm, ref_rmsnorm, {0}, 2, {F32(7, 33), F32(33)}, 0},
    {&sl_op_rmsnorm, ref_rmsnorm, {.norm.eps = 0.1f}, 2, {F32(2, 3, 130), F32(130)}, 0},
    {&sl_op_rotary, ref_rotary, {.rotary.heads = 3}, 1, {F32(2, 7, 30)}, 0},
    {&sl_op_rotary, ref_rotary, {.rotary.heads = 1, .rotary.theta = 500}, 1, {F32(1, 5, 66)}, 0},
    {&sl_op_rotary, ref_rotary, {.rotary.heads = 2, .user = &stretched}, 1, {F32(2, 9, 32)}, 0},
    {&sl_op_rotary, ref_rotary, {.rotary.heads = 3, .user = &in_part}, 1, {F32(2, 7, 45)}, 0},
    {&sl_op_rotary,
     ref_rotary,
     {.rotary.heads = 2, .user = &stretched_in_part},
     1,
     {F32(2, 9, 64)},
     0},
    {&sl_op_attention,
     ref_attention,
     {.attention.heads = 1},
     3,
     {F32(1, 1, 1), F32(1, 1, 1), F32(1, 1, 1)},
     0},
    {&sl_op_attention,
     ref_attention,
     {.attention.heads = 2},
     3,
     {F32(2, 7, 14), F32(2, 7, 14), F32(2, 7, 14)},
     0},
    {&sl_op_attention,
     ref_attention,
     {.attention.heads = 4, .attention.kv_heads = 2},
     3,
     {F32(1, 33, 64), F32(1, 33, 32), F32(1, 33, 32)},
     0},
    {&sl_op_attention,
     ref_attention,
     {.attention.heads = 1},
     3,
     {F32(1, 133, 33), F32(1, 133, 33), F32(1, 133, 33)},
     0},
    {&sl_op_attention_sinks,
     ref_attention_sinks,
     {.attention.heads = 4, .attention.kv_heads = 2},
     4,
     {F32(2, 37, 40), F32(2, 37, 20), F32(2, 37, 20), F32(2, 37, 4)},
     0},
    {&sl_op_attention_sinks,
     ref_attention_sinks,
     {.attention.heads = 2, .attention.kv_heads = 1, .attention.window = 9},
     5,
     {F32(2, 70, 10), F32(2, 70, 5), F32(2, 70, 5), F32(2, 70, 2), I32(2, 70)},
     2},
    {&sl_op_attention_blocks,
     ref_attention_blocks,
     {.attention.heads = 2, .attention.kv_heads = 1},
     4,
     {F32(1, 131, 10), F32(1, 131, 5), F32(1, 131, 5), I32(1, 2, 3, 2)},
     3},
    {&sl_op_attention_chosen,
     ref_attention_chosen,
     {.attention.heads = 3},
     4,
     {F32(2, 71, 15), F32(2, 71, 15), F32(2, 71, 21), I32(2, 71, 5)},
     71},
    {&sl_op_attention_chosen,
     ref_attention_chosen,
     {.attention.heads = 1, .attention.scale = 0.5f},
     4,
     {F32(1, 90, 18), F32(1, 90, 18), F32(1, 90, 7), I32(1, 90, 80)},
     90},
    {&sl_op_index_loss,
     ref_index_loss,
     {.attention.heads = 3, .attention.scale = 0.3f},
     6,
     {F32(2, 19, 15), F32(2, 19, 5), F32(2, 19, 3), F32(2, 19, 21), F32(2, 19, 21), I32(2, 19, 7)},
     19},
    {&sl_op_index_loss,
     ref_index_loss,
     {.attention.heads = 2},
     5,
     {F32(2, 21, 35), F32(2, 21, 5), F32(2, 21, 7), F32(2, 21, 18), F32(2, 21, 18)},
     0},
    {&sl_op_linear_attention,
     ref_linear_attention,
     {.attention.heads = 2, .attention.scale = 0.25f},
     4,
     {F32(2, 7, 10), F32(2, 7, 10), F32(2, 7, 14), F32(2, 7, 10)},
     0},
    {&sl_op_linear_attention,
     ref_linear_attention,
     {.attention.heads = 4, .attention.kv_heads = 2, .attention.scale = 0.25f},
     4,
     {F32(1, 9, 20), F32(1, 9, 10), F32(1, 9, 12), F32(1, 9, 2)},
     0},
    {&sl_op_delta_rule,
     ref_delta_rule,
     {.attention.heads = 4, .attention.kv_heads = 2, .attention.scale = 0.1f},
     5,
     {F32(2, 7, 10), F32(2, 7, 10), F32(2, 7, 12), F32(2, 7, 4), F32(2, 7, 4)},
     0},
    {&sl_op_delta_rule,
     ref_delta_rule,
     {.attention.heads = 2, .attention.scale = 0.1f},
     5,
     {F32(2, 7, 10), F32(2, 7, 10), F32(2, 7, 6), F32(2, 7, 10), F32(2, 7, 2)},
     0},
    {&sl_op_causal_conv, ref_causal_conv, {0}, 3, {F32(2, 9, 70), F32(70, 1, 4), F32(70)}, 0},
    {&sl_op_causal_conv, ref_causal_conv, {0}, 3, {F32(3, 2, 5), F32(5, 3), NOTHING}, 0},
    {&sl_op_causal_conv, ref_causal_conv, {0}, 2, {F32(1, 4, 65), F32(65, 1)}, 0},
    {&sl_op_causal_conv,
     ref_causal_conv,
     {0},
     5,
     {F32(2, 9, 6), F32(6, 4), F32(6), NOTHING, I32(2, 9)},
     4},
    {&sl_op_attention_packed, ref_attention_packed, {.attention.heads = 2}, 1, {F32(2, 7, 42)}, 0},
    {&sl_op_attention_packed,
     ref_attention_packed,
     {.attention.heads = 2, .attention.full = true},
     1,
     {F32(3, 37, 48)},
     0},
    {&sl_op_attention_packed,
     ref_attention_packed,
     {.attention.heads = 2, .attention.scale = 0.5f},
     1,
     {F32(2, 37, 48)},
     0},
    {&sl_op_attention_packed,
     ref_attention_packed,
     {.attention.heads = 3, .attention.kv_heads = 1},
     1,
     {F32(1, 67, 40)},
     0},
    {&sl_op_attention_packed,
     ref_attention_packed,
     {.attention.heads = 2, .attention.kv_heads = 1, .attention.window = 40},
     1,
     {F32(1, 150, 32)},
     0},
    {&sl_op_attention_packed,
     ref_attention_packed,
     {.attention.heads = 2, .attention.full = true},
     2,
     {F32(2, 37, 48), I32(2, 37)},
     2},
    {&sl_op_cross_entropy, ref_cross_entropy, {0}, 2, {F32(7, 33), I32(7)}, 33},
    {&sl_op_cross_entropy, ref_cross_entropy, {0}, 2, {F32(2, 3, 1), I32(2, 3)}, 1},
    {&sl_op_log_probability, ref_log_probability, {0}, 2, {F32(7, 33), I32(7)}, 33},
    {&sl_op_log_probability, ref_log_probability, {0}, 2, {F32(2, 3, 1), I32(2, 3)}, 1},
    {&sl_op_dropout, ref_dropout, {.distribution.dropped = 0.25f}, 1, {F32(7, 33)}, 0},
    {&sl_op_dropout, ref_dropout, {0}, 1, {F32(7, 33)}, 0},
    {&sl_op_concat,
     ref_concat,
     {.along.axes = 1 << 1},
     3,
     {F32(3, 5, 7), F32(3, 1, 7), F32(3, 4, 7)},
     0},
    {&sl_op_concat, ref_concat, {.along.axes = 1 << 0}, 1, {F32(3, 5)}, 0},
    {&sl_op_concat, ref_concat, {.along.axes = 1 << 2}, 2, {F32(3, 5, 700), F32(3, 5, 65)}, 0},
    {&sl_op_mse, ref_mse, {0}, 2, {F32(7, 33), F32(7, 33)}, 0},
};

static double from; /* numbers are in [from - 1, from + 1) */

/* ---- references on doubles ------------------------------------------------------- */

typedef struct doubles {
  double *in[MAX_IN], *out[MAX_OUT];
} doubles;

static double *to_doubles(const void *p, const sl_type *type) {
  if (!p) return NULL;
  int64_t n = sl_type_elements(type);
  double *d = calloc((size_t)n, sizeof *d);
  for (int64_t i = 0; i < n; i++) d[i] = array_get(p, type, i);
  return d;
}

static doubles doubles_create(const kernel *k) {
  doubles d = {0};
  for (int i = 0; i < k->nin; i++) d.in[i] = to_doubles(k->in[i], &k->in_type[i]);
  for (int o = 0; o < k->nout; o++)
    d.out[o] = calloc((size_t)sl_type_elements(&k->out_type[o]), sizeof(double));
  return d;
}

static void doubles_destroy(doubles *d) {
  for (int i = 0; i < MAX_IN; i++) free(d->in[i]);
  for (int o = 0; o < MAX_OUT; o++) free(d->out[o]);
}

static void check_close(const claim *c, const void *got, const sl_type *type, const double *want,
                        double tolerance) {
  int64_t n = sl_type_elements(type);
  char text[SL_TYPE_TEXT];
  for (int64_t i = 0; i < n; i++) {
    double g = array_get(got, type, i);
    CHECK(fabs(g - want[i]) <= tolerance * (1 + fabs(want[i])),
          "%s(%s...): element %lld is %.9g, should be %.9g (CPU level %d)", c->op->name,
          sl_type_format(text, &c->in[0]), (long long)i, g, want[i], sli_cpu_level());
  }
}

/* ---- forward --------------------------------------------------------------------- */

static kernel forward_create(const claim *c) {
  kernel k =
      kernel_create(c->op, c->attrs, c->nin, c->in, sli_op_outputs(c->op, &c->attrs, c->nin));
  for (int i = 0; i < k.nin; i++)
    if (k.in[i]) array_random_from(k.in[i], &k.in_type[i], c->below, from);
  return k;
}

static void check_forward(const claim *c, kernel *k) {
  doubles d = doubles_create(k);
  kernel_run(k, NULL);
  c->reference(&k->attrs, k->in_type, d.in, d.out);
  for (int o = 0; o < k->nout; o++) check_close(c, k->out[o], &k->out_type[o], d.out[o], 3e-6);
  doubles_destroy(&d);
}

/* Each output is the same when the other outputs are absent. */
static void check_absent_outputs(kernel *k) {
  for (int o = 0; o < k->nout; o++) {
    kernel alone = *k;
    for (int p = 0; p < k->nout; p++) alone.out[p] = NULL;
    alone.out[o] = array_create(&k->out_type[o]);
    kernel_run(&alone, NULL);
    CHECK(!memcmp(alone.out[o], k->out[o], sl_type_bytes(&k->out_type[o])),
          "%s: output %d changes when the others are absent", k->op->name, o);
    free(alone.out[o]);
  }
}

/* ---- gradients ------------------------------------------------------------------- */

enum { SAMPLES = 12 };

/* Returns d(sum of y dy)/dx for one element of input i, by central differences. */
static double slope(const claim *c, const kernel *k, doubles *d, int i, int64_t e,
                    const double *dy) {
  const double h = 1e-5;
  double x = d->in[i][e], total = 0;
  for (int side = -1; side <= 1; side += 2) {
    d->in[i][e] = x + side * h;
    c->reference(&k->attrs, k->in_type, d->in, d->out);
    int64_t ny = sl_type_elements(&k->out_type[0]);
    for (int64_t y = 0; y < ny; y++) total += side * dy[y] * d->out[0][y] / (2 * h);
  }
  d->in[i][e] = x;
  return total;
}

static sl_type gradient_type(const sl_type *of) {
  sl_type type = *of;
  type.dtype = SL_F32;
  return type;
}

/* Checks some elements of `got`, the gradient of input i, against the slopes of the reference. */
static void check_slopes(const claim *c, const kernel *k, int i, const double *dy,
                         const void *got) {
  int64_t n = sl_type_elements(&k->in_type[i]);
  sl_type type = gradient_type(&k->in_type[i]);
  doubles d = doubles_create(k);
  for (int64_t s = 0; s < n && s < SAMPLES; s++) {
    int64_t e = n <= SAMPLES ? s : (int64_t)(random_bits() % (uint64_t)n);
    double g = array_get(got, &type, e), want = slope(c, k, &d, i, e, dy);
    CHECK(fabs(g - want) <= 2e-5 * (1 + fabs(want)),
          "gradient of %s for input %d: element %lld is %.9g, should be %.9g (CPU level %d)",
          c->op->name, i, (long long)e, g, want, sli_cpu_level());
  }
  doubles_destroy(&d);
}

static kernel rule_create(const kernel *forward, const sl_grad_rule *rule, const sl_type *dy_type,
                          const void *dy) {
  sl_type types[MAX_IN];
  const void *data[MAX_IN];
  int n = sli_rule_arguments(rule, forward->nin, forward->nout);
  for (int a = 0; a < n; a++) {
    sl_grad_arg arg = sli_rule_argument(rule, forward->nin, forward->nout, a);
    bool in = arg.kind == SL_ARG_IN, out = arg.kind == SL_ARG_OUT;
    types[a] = NOTHING, data[a] = NULL;
    if (in && arg.index >= forward->nin) continue;
    types[a] = in ? forward->in_type[arg.index] : forward->out_type[arg.index];
    data[a] = in ? forward->in[arg.index] : out ? forward->out[arg.index] : dy;
    if (in || out) continue;
    if (arg.index) data[a] = NULL; /* no gradient flows into the others */
    types[a].dtype = dy_type->dtype;
  }
  kernel k =
      kernel_create(rule->op, forward->attrs, n, types, sli_rule_gradients(rule, forward->nin));
  for (int i = 0; i < n; i++)
    if (data[i]) memcpy(k.in[i], data[i], sl_type_bytes(&types[i]));
    else if (k.in[i]) memset(k.in[i], 0, sl_type_bytes(&types[i]));
  return k;
}

/* Checks outputs that accumulate: two runs give double. */
static void check_accumulation(kernel *k) {
  for (int o = 0; o < k->nout; o++) {
    if (!(k->op->accumulates >> o & 1)) continue;
    int64_t n = sl_type_elements(&k->out_type[o]);
    double *once = to_doubles(k->out[o], &k->out_type[o]);
    k->accumulate = 1u << o;
    kernel_run(k, NULL);
    k->accumulate = 0;
    for (int64_t i = 0; i < n; i++)
      CHECK(fabs(array_get(k->out[o], &k->out_type[o], i) - 2 * once[i]) <=
                1e-5 * (1 + fabs(once[i])),
            "%s does not add to output %d", k->op->name, o);
    kernel_run(k, NULL);
    free(once);
  }
}

static void check_rule(const claim *c, const kernel *forward, const sl_grad_rule *rule) {
  sl_type dy_type = forward->out_type[0];
  dy_type.dtype = SL_F32;
  int ngradients = sli_rule_gradients(rule, forward->nin);
  for (int j = 0; j < ngradients; j++)
    if (sli_rule_of(rule, j) >= forward->nin || !forward->in[sli_rule_of(rule, j)]) return;
  void *dy = array_create(&dy_type);
  array_random(dy, &dy_type, 0);
  double *dy_doubles = to_doubles(dy, &dy_type);
  kernel k = {0};
  if (rule->op) {
    k = rule_create(forward, rule, &dy_type, dy);
    kernel_run(&k, NULL);
  }
  for (int j = 0; j < ngradients; j++) {
    int i = sli_rule_of(rule, j);
    sl_type type = gradient_type(&forward->in_type[i]);
    if (rule->op)
      CHECK(sl_type_equal(&k.out_type[j], &type), "%s: type of gradient %d", k.op->name, j);
    check_slopes(c, forward, i, dy_doubles, rule->op ? k.out[j] : dy);
  }
  if (rule->op) {
    check_accumulation(&k);
    check_absent_outputs(&k);
    kernel_destroy(&k);
  }
  free(dy_doubles);
  free(dy);
}

/* ---- all ops on one level --------------------------------------------------------- */

static void check_claim(const claim *c) {
  kernel k = forward_create(c);
  check_forward(c, &k);
  check_absent_outputs(&k);
  for (const sl_grad_rule *rule = c->op->grad; rule->nwrt; rule++) check_rule(c, &k, rule);
  kernel_destroy(&k);
}

static void check_all(uint64_t seed) {
  seed_random(seed);
  for (size_t i = 0; i < SLI_COUNT(claims); i++) check_claim(&claims[i]);
  for (size_t i = 0; i < SLI_COUNT(math_claims); i++) {
    const math_claim *m = &math_claims[i];
    claim c = {
        m->op,   m->reference, m->attrs, m->nin, {m->in[0], m->in[1], m->in[2], m->in[3], m->in[4]},
        m->below};
    from = m->from;
    check_claim(&c);
    from = 0;
  }
}

static void check_every_row_with_gradients_is_claimed(void) {
  for (int i = 0; sl_ops[i]; i++) {
    bool claimed =
        !sl_ops[i]->grad[0].nwrt || sl_ops[i] == &sl_op_plane_values || /* in test_planes.c */
        sl_ops[i] == &sl_op_spikes || sl_ops[i] == &sl_op_quantize;     /* in test_spikes.c */
    for (size_t j = 0; j < sizeof claims / sizeof *claims; j++)
      claimed |= claims[j].op == sl_ops[i] || /* in test_pieces.c and test_sweep.c: */
                 sli_op_cut(claims[j].op)->pieced == sl_ops[i] ||
                 sli_op_cut(claims[j].op)->parts == sl_ops[i] ||
                 sli_op_cut(claims[j].op)->swept == sl_ops[i] ||
                 sli_op_cut(claims[j].op)->shared == sl_ops[i]; /* in test_ring.c */
    for (size_t j = 0; j < SLI_COUNT(math_claims); j++) claimed |= math_claims[j].op == sl_ops[i];
    CHECK(claimed, "%s has gradient rules and no claim here", sl_ops[i]->name);
    CHECK(sl_op_find(sl_ops[i]->name) == sl_ops[i], "%s is not found by name", sl_ops[i]->name);
  }
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 1);
  RUN(check_every_row_with_gradients_is_claimed);
  for (uint64_t seed = s.first; seed < s.end; seed++)
    RUN_AS("check_all", on_every_level(check_all, seed));
  return 0;
}
