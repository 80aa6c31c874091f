/* SPDX-License-Identifier: Apache-2.0 */
/* Every signature by which an op says it can be sharded (sl_op_shard.signatures) gives the result
 * of the whole call, and so do its gradients. Tests random shares and odd shapes on every CPU
 * level. test_rows.c and test_kernels_pieces.c check the whole call against references and finite
 * differences.
 * labels: random unthreaded */
#include <sys/wait.h>
#include <unistd.h>
#include <sluice/frames.h>

#include <sluice/attention.h>

#include "kernels/cpu/chunk.h"
#include "ops/heads.h"
#include "ops/ops.h"
#include "tests/support/claims.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/seeds.h"

enum { MOST_MEMBERS = 4 };

#define F32(...) SL_TYPE(SL_F32, __VA_ARGS__)
#define I32(...) SL_TYPE(SL_I32, __VA_ARGS__)

typedef struct claim {
  const sl_op *op;
  sl_attrs attrs;
  int nin;
  sl_type in[6];
  int below;         /* ids are in [0, below) */
  double from;       /* other numbers are in [from - 1, from + 1) */
  bool exact;        /* the shares have the whole's bits, except in summands */
  int64_t row;       /* row of the tick */
  int64_t packed[3]; /* segments of input 0's columns, if it is packed */
  int64_t record[3]; /* of the record, output 2, */
  int64_t keys[3];   /* and of keys and values side by side: input 1 and output `keys_out` */
  int keys_out;
  bool several; /* the backward pass is tested separately */
} claim;

static const sl_rope in_part = {.part = 0.4};
static const sl_part middle = {1, 1, {2}, {3}};
static const sl_call_cut one_piece = {1, (const int64_t[]){0, 6}};
static const sl_lengths lengths = {2, (const int64_t[]){4, 4}};
static const sl_reshaping heads = {F32(6, 5, 12), F32(6, 5, 4, 3)};

/* clang-format off */
static const claim claims[] = {
    {&sl_op_permute, {.shape.ndims = 3, .shape.dims = {2, 0, 1}}, 1, {F32(5, 6, 7)}, .exact = true},
    {&sl_op_slice, {.user = &middle}, 1, {F32(5, 6, 7)}, .exact = true},
    {&sl_op_split, {.along.axes = 2, .user = &lengths}, 1, {F32(6, 8, 7)}, .exact = true},
    {&sl_op_sum, {0}, 3, {F32(7, 33), F32(7, 33), F32(7, 33)}, .below = 0},
    {&sl_op_reshape, {.user = &heads}, 1, {F32(6, 5, 12)}, .exact = true},
    {&sl_op_linear, {0}, 3, {F32(7, 33), F32(9, 33), F32(9)}, .below = 0},
    {&sl_op_linear, {0}, 2, {F32(2, 3, 16), F32(17, 16)}, .below = 0},
    {&sl_op_linear, {.product.transposed = true}, 3, {F32(2, 5, 33), F32(33, 8), F32(8)}, .below = 0},
    {&sl_op_linear, {.product.transposed = true}, 3, {F32(7, 12), F32(12, 8), NOTHING}, .below = 0},
    {&sl_op_linear_b, {0}, 2, {F32(2, 3, 17), F32(17, 16)}, .below = 0},
    {&sl_op_linear_b, {.product.transposed = true}, 2, {F32(7, 9), F32(33, 9)}, .below = 0},
    {&sl_op_embedding, {0}, 2, {I32(3, 7), F32(50, 33)}, .below = 50, .exact = true},
    {&sl_op_embedding, {0}, 2, {I32(11), F32(7, 130)}, .below = 7, .exact = true},
    {&sl_op_position, {0}, 2, {F32(5, 7, 33), F32(7, 33)}, .exact = true},
    {&sl_op_splice, {0}, 3, {F32(5, 7, 33), F32(6, 33), I32(5, 7)}, .below = 6, .exact = true},
    {&sl_op_marks, {.tokens.each = 2, .tokens.marker = 3}, 1, {I32(5, 7)}, .below = 4, .exact = true},
    {&sl_op_position, {.place.length = 12}, 2, {F32(4, 5, 33), F32(12, 33)}, .exact = true, .row = 6},
    {&sl_op_add, {0}, 2, {F32(7, 33), F32(7, 33)}, .below = 0},
    {&sl_op_copy, {0}, 1, {F32(7, 33)}, .below = 0},
    {&sl_op_rotary, {.rotary.heads = 6}, 1, {F32(5, 7, 60)}, .exact = true},
    {&sl_op_rotary, {.rotary.heads = 6, .user = &in_part}, 1, {F32(5, 7, 60)}, .exact = true},
    {&sl_op_rotary, {.rotary.heads = 4, .place.length = 12}, 1, {F32(4, 6, 72)}, .exact = true, .row = 5},
    {&sl_op_attention, {.attention.heads = 4}, 3, {F32(5, 9, 28), F32(5, 9, 28), F32(5, 9, 28)}, .below = 0},
    {&sl_op_attention, {.attention.heads = 8, .attention.kv_heads = 4}, 3,
     {F32(4, 9, 40), F32(4, 9, 20), F32(4, 9, 20)}, .below = 0},
    {&sl_op_attention_packed, {.attention.heads = 5}, 1, {F32(4, 9, 60)},
     .packed = {20, 20, 20}},
    {&sl_op_attention_packed, {.attention.heads = 5, .attention.full = true}, 1, {F32(4, 9, 60)},
     .packed = {20, 20, 20}},
    {&sl_op_attention_packed, {.attention.heads = 10, .attention.kv_heads = 5}, 1, {F32(5, 9, 60)},
     .packed = {30, 15, 15}},
    {&sl_op_attention_sinks, {.attention.heads = 8, .attention.kv_heads = 4}, 5,
     {F32(4, 33, 40), F32(4, 33, 20), F32(4, 33, 20), F32(4, 33, 8), I32(4, 33)}, .below = 3, .exact = true},
    {&sl_op_attention, {.attention.heads = 4, .attention.window = 3, .attention.shown = 2}, 3,
     {F32(5, 9, 28), F32(5, 9, 28), F32(5, 9, 28)}, .below = 0},
    {&sl_op_attention_dual, {.attention.heads = 8, .attention.kv_heads = 4, .attention.chunk = 64}, 5,
     {F32(4, 150, 40), F32(4, 150, 20), F32(4, 150, 20), F32(4, 150, 40), F32(4, 150, 40)}, .below = 0, .exact = true},
    {&sl_op_attention_blocks, {.attention.heads = 8, .attention.kv_heads = 4}, 4,
     {F32(4, 130, 40), F32(4, 130, 20), F32(4, 130, 20), I32(4, 8, 3, 2)}, .below = 3, .exact = true},
    {&sl_op_choose_blocks, {.attention.heads = 8, .attention.kv_heads = 4, .attention.blocks = 3}, 2,
     {F32(4, 300, 40), F32(4, 300, 20)}, .from = 0, .exact = true},
    {&sl_op_choose_tokens, {.attention.heads = 3, .attention.tokens = 4}, 3,
     {F32(5, 9, 21), F32(5, 9, 7), F32(5, 9, 3)}, .exact = true},
    {&sl_op_attention_chosen, {.attention.heads = 8}, 4,
     {F32(4, 9, 40), F32(4, 9, 40), F32(4, 9, 56), I32(4, 9, 3)}, .below = 9, .exact = true},
    {&sl_op_index_loss, {.attention.heads = 3}, 5,
     {F32(5, 9, 14), F32(5, 9, 7), F32(5, 9, 2), F32(5, 9, 15), F32(5, 9, 15)}, .exact = true},
    {&sl_op_index_loss, {.attention.heads = 3}, 6,
     {F32(5, 9, 14), F32(5, 9, 7), F32(5, 9, 2), F32(5, 9, 15), F32(5, 9, 15), I32(5, 9, 4)}, .below = 9, .exact = true},
    {&sl_op_linear_attention, {.attention.heads = 8, .attention.kv_heads = 4}, 4,
     {F32(4, 9, 40), F32(4, 9, 20), F32(4, 9, 24), F32(4, 9, 20)}, .from = -1, .exact = true},
    {&sl_op_linear_attention, {.attention.heads = 4}, 4,
     {F32(5, 9, 20), F32(5, 9, 20), F32(5, 9, 24), F32(5, 9, 4)}, .from = -1, .exact = true},
    {&sl_op_linear_attention_piece, {.attention.heads = 8, .attention.kv_heads = 4, .place.length = 6}, 4,
     {F32(4, 6, 40), F32(4, 6, 20), F32(4, 6, 24), F32(4, 6, 20)}, .from = -1, .exact = true,
     .several = true},
    {&sl_op_linear_attention, {.attention.heads = 8, .attention.kv_heads = 4}, 4,
     {F32(5, 9, 20), F32(5, 9, 20), F32(5, 9, 24), F32(5, 9, 8)}, .from = -1, .exact = true},
    {&sl_op_delta_rule, {.attention.heads = 8, .attention.kv_heads = 4}, 5,
     {F32(4, 9, 20), F32(4, 9, 20), F32(4, 9, 24), F32(4, 9, 8), F32(4, 9, 8)}, .from = -1, .exact = true},
    {&sl_op_delta_rule_piece, {.attention.heads = 4, .place.length = 6}, 5,
     {F32(5, 6, 20), F32(5, 6, 20), F32(5, 6, 24), F32(5, 6, 20), F32(5, 6, 4)}, .from = -1, .exact = true,
     .several = true},
    {&sl_op_causal_conv, {0}, 3, {F32(5, 9, 24), F32(24, 1, 4), F32(24)}, .exact = true},
    {&sl_op_causal_conv_piece, {.place.length = 7}, 2, {F32(5, 7, 24), F32(24, 3)}, .exact = true, .several = true},
    {&sl_op_causal_conv, {0}, 5, {F32(5, 9, 24), F32(24, 4), F32(24), NOTHING, I32(5, 9)}, .below = 4, .exact = true},
    {&sl_op_documents, {.tokens.end = 2}, 1, {I32(5, 9)}, .below = 4, .exact = true},
    {&sl_op_documents_piece, {.tokens.end = 2, .place.length = 30}, 1, {I32(5, 9)}, .below = 4, .exact = true,
     .row = 7},
    {&sl_op_attention_packed, {.attention.heads = 5, .attention.window = 3}, 2, {F32(4, 9, 60), I32(4, 9)},
     .packed = {20, 20, 20}, .below = 2},
    {&sl_op_attention_piece, {.attention.heads = 8, .attention.kv_heads = 4, .place.length = 13}, 4,
     {F32(4, 6, 40), F32(4, 6, 20), F32(4, 6, 20), I32(4, 6)}, .row = 7, .record = {20, 20},
     .below = 2},
    {&sl_op_attention_packed_piece, {.attention.heads = 4, .place.length = 8}, 2, {F32(5, 6, 60), I32(5, 6)},
     .row = 2, .packed = {20, 20, 20}, .record = {20, 20}, .below = 2},
    {&sl_op_attention_piece, {.attention.heads = 8, .attention.kv_heads = 4, .place.length = 13}, 3,
     {F32(4, 6, 40), F32(4, 6, 20), F32(4, 6, 20)}, .row = 7, .record = {20, 20}},
    {&sl_op_attention_packed_piece, {.attention.heads = 4, .place.length = 8}, 1, {F32(5, 6, 60)}, .row = 2,
     .packed = {20, 20, 20}, .record = {20, 20}},
    {&sl_op_attention_sinks_piece, {.attention.heads = 8, .attention.kv_heads = 4, .place.length = 13}, 5,
     {F32(4, 6, 40), F32(4, 6, 20), F32(4, 6, 20), F32(4, 6, 8), I32(4, 6)}, .row = 7, .record = {20, 20},
     .below = 2},
    {&sl_op_attention_parts, {.attention.heads = 8, .attention.kv_heads = 4}, 3,
     {F32(4, 6, 40), F32(4, 6, 20), F32(4, 6, 20)}, .exact = true, .keys = {20, 20}, .keys_out = 1,
     .several = true},
    {&sl_op_attention_packed_parts, {.attention.heads = 5}, 1, {F32(4, 9, 60)}, .packed = {20, 20, 20},
     .exact = true, .keys = {20, 20}, .keys_out = 1, .several = true},
    {&sl_op_attention_sweep, {.attention.heads = 8, .attention.kv_heads = 4, .place.length = 6, .user = &one_piece}, 2,
     {F32(4, 6, 40), F32(4, 6, 40)}, .record = {20, 20}, .keys = {20, 20}, .keys_out = 2},
    {&sl_op_attention_share, {.attention.heads = 8, .attention.kv_heads = 4, .place.length = 13}, 3,
     {F32(4, 6, 40), F32(4, 6, 40), I32(4, 6)}, .row = 7, .record = {20, 20}, .keys = {20, 20}, .keys_out = 2,
     .below = 2},
    {&sl_op_attention_share, {.attention.heads = 8, .attention.kv_heads = 4, .place.length = 8, .attention.window = 4}, 2,
     {F32(5, 6, 40), F32(5, 6, 40)}, .row = 2, .record = {20, 20}, .keys = {20, 20}, .keys_out = 2},
    {&sl_op_concat, {.along.axes = 1 << 1}, 3, {F32(5, 3, 8), F32(5, 1, 8), F32(5, 4, 8)}, .exact = true},
    {&sl_op_grouped_linear, {.place.whole = 6}, 3, {F32(7, 33), I32(7, 2), F32(6, 9, 33)}, .below = 6},
    {&sl_op_grouped_linear, {.place.whole = 5}, 3, {F32(2, 5, 3, 16), I32(2, 5, 3), F32(5, 8, 16)}, .below = 5},
    {&sl_op_combine, {0}, 2, {F32(5, 7, 3, 33), F32(5, 7, 3)}, .below = 0},
    {&sl_op_expert_limit, {.experts.factor = 4, .experts.count = 4}, 2, {I32(5, 8, 2), F32(5, 8, 2)}, .below = 4,
     .exact = true}, /* each part has its own limit: equal if no row is dropped */
    {&sl_op_bit_choice, {0}, 2, {F32(5, 8, 2, 3), I32(5, 8, 2)}, .below = 4, .exact = true},
    {&sl_op_cross_entropy, {0}, 2, {F32(7, 330), I32(7)}, .below = 330},
    {&sl_op_cross_entropy, {0}, 2, {F32(2, 300, 5), I32(2, 300)}, .below = 5},
    {&sl_op_log_probability, {0}, 2, {F32(7, 330), I32(7)}, .below = 330},
    {&sl_op_log_probability, {0}, 2, {F32(2, 300, 5), I32(2, 300)}, .below = 5},
    {&sl_op_mse, {0}, 2, {F32(77), F32(77)}, .below = 0},
};
/* clang-format on */

static void *copy_of(const void *x, const sl_type *type) {
  return memcpy(array_create(type), x, sl_type_bytes(type));
}

/* ---- sharing ------------------------------------------------------------------------- */

/* How many members share a call, and which units each has. */
typedef struct sharing {
  const claim *c;
  sl_signature how;
  int members;
  int64_t units, bound[MOST_MEMBERS + 1];
  double tolerance;
} sharing;

static int split_input(const sl_signature *s) {
  for (int i = 0; i < SL_SIGNATURE_ARGS; i++)
    if (s->in[i].kind == SL_SPLIT) return i;
  return -1;
}

/* Returns the number of units that divides the split dims of input i and of output 0. */
static int64_t common_units(const claim *c, const sl_signature *how, int i) {
  sl_type out[MAX_OUT];
  CHECK(!c->op->infer(&c->attrs, c->nin, c->in, out), "%s: %s", c->op->name, sl_detail());
  int64_t a = c->in[i].dim[how->in[i].dim], b = a;
  if (how->out[0].kind == SL_SPLIT) b = out[0].dim[how->out[0].dim];
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* Returns the units where no input is split: those of output 0, if it is split. */
static int64_t output_units(const claim *c, const sl_signature *how) {
  sl_type out[MAX_OUT];
  CHECK(!c->op->infer(&c->attrs, c->nin, c->in, out), "%s: %s", c->op->name, sl_detail());
  return how->out[0].kind == SL_SPLIT ? out[0].dim[how->out[0].dim] : MOST_MEMBERS;
}

/* Returns a random sharing in which each member has at least one unit. */
static sharing random_sharing(const claim *c, const sl_signature *how) {
  sharing s = {.c = c, .how = *how, .tolerance = c->exact ? 0 : 1e-5};
  int kv_heads = sli_key_heads(&c->attrs), i = split_input(how);
  s.units = how->heads ? kv_heads : i < 0 ? output_units(c, how) : common_units(c, how, i);
  s.members = (int)(1 + random_below(s.units < MOST_MEMBERS ? s.units : MOST_MEMBERS));
  s.bound[s.members] = s.units;
  for (int m = 1; m < s.members; m++) {
    int64_t left = s.units - s.bound[m - 1] - (s.members - m);
    s.bound[m] = s.bound[m - 1] + 1 + random_below(left);
  }
  for (int a = 0; a < c->nin; a++)
    if (how->in[a].kind == SL_PARTIAL) s.tolerance = 1e-5;
  return s;
}

/* Returns the segments of an argument's columns, or NULL if they are one segment. */
static const int64_t *input_segments(const claim *c, int i) {
  if (i == 1 && c->keys[0] && (c->nin == 2 || c->record[0])) return c->keys;
  return !i && c->packed[0] ? c->packed : NULL;
}

static const int64_t *output_segments(const claim *c, int o) {
  if (o == c->keys_out && c->keys[0]) return c->keys;
  return o == 2 && c->record[0] ? c->record : NULL;
}

/* Returns member m's part of a dim, segment by segment if the dim is the columns. */
static sl_part member_part(const sharing *s, const sl_type *type, const int64_t *segments, int dim,
                           int m) {
  sl_part part = {.axis = dim};
  const int64_t one[SL_PART_RANGES] = {type->dim[dim]};
  if (!segments || dim != type->ndim - 1) segments = one;
  int64_t at = 0;
  for (int r = 0; r < SL_PART_RANGES && segments[r]; at += segments[r++]) {
    part.begin[r] = at + segments[r] * s->bound[m] / s->units;
    part.count[r] = at + segments[r] * s->bound[m + 1] / s->units - part.begin[r];
    part.nranges++;
  }
  return part;
}

/* Returns member m's part of output 0. */
static const sl_region *member_region(const sharing *s, int m) {
  static sl_region regions[MOST_MEMBERS];
  sl_type out[MAX_OUT];
  CHECK(!s->c->op->infer(&s->c->attrs, s->c->nin, s->c->in, out), "%s: %s", s->c->op->name,
        sl_detail());
  regions[m] = (sl_region){.ndim = out[0].ndim};
  memcpy(regions[m].whole, out[0].dim, sizeof out[0].dim);
  int d = s->how.out[0].dim;
  if (s->how.out[0].kind == SL_SPLIT) regions[m].parts[d] = member_part(s, &out[0], NULL, d, m);
  return &regions[m];
}

static sl_attrs member_attrs(const sharing *s, int m) {
  sl_attrs attrs = s->c->attrs;
  int64_t units = s->bound[m + 1] - s->bound[m];
  if (s->how.heads) {
    sli_heads_share(&attrs, units, s->units);
  }
  if (s->how.first) {
    attrs.place.first = s->bound[m];
    attrs.place.partial = s->members > 1;
  }
  if (sli_op_is(s->c->op, SL_OP_LOCATED)) attrs.region = member_region(s, m);
  return attrs;
}

/* ---- arrays spread over members -------------------------------------------------------- */

typedef struct laid {
  sl_type type[MOST_MEMBERS];
  void *data[MOST_MEMBERS];
} laid;

/* Fills summands that add up to x, except for rounding. */
static void lay_summands(laid *l, int members, const float *x) {
  int64_t n = sl_type_elements(&l->type[0]);
  for (int m = 1; m < members; m++) array_random(l->data[m], &l->type[m], 0);
  for (int64_t e = 0; e < n; e++) {
    float rest = x[e];
    for (int m = 1; m < members; m++) rest -= ((float *)l->data[m])[e];
    ((float *)l->data[0])[e] = rest;
  }
}

static laid lay_out(const sharing *s, sl_sbp sbp, const sl_type *type, const int64_t *segments,
                    const void *x) {
  laid l = {0};
  for (int m = 0; m < s->members; m++) {
    l.type[m] = *type;
    if (type->ndim < 0) continue;
    if (sbp.kind == SL_SPLIT) {
      sl_part part = member_part(s, type, segments, sbp.dim, m);
      l.type[m] = sl_part_type(type, &part);
      l.data[m] = array_create(&l.type[m]);
      sl_part_take(type, &part, x, l.data[m]);
    } else {
      l.data[m] = copy_of(x, type);
    }
  }
  if (sbp.kind == SL_PARTIAL) lay_summands(&l, s->members, x);
  return l;
}

static void laid_destroy(laid *l) {
  for (int m = 0; m < MOST_MEMBERS; m++) free(l->data[m]);
}

static void check_near(const sharing *s, const void *got, const void *want, const sl_type *type,
                       const char *what) {
  double tolerance = type->dtype == SL_F64 ? 1e-6 : s->tolerance;
  for (int64_t e = 0; e < sl_type_elements(type); e++) {
    double g = array_get(got, type, e), w = array_get(want, type, e);
    CHECK(fabs(g - w) <= tolerance * (1 + fabs(w)),
          "%s shared by %d: %s, element %lld is %.9g, of the whole %.9g (CPU level %d)",
          s->c->op->name, s->members, what, (long long)e, g, w, sli_cpu_level());
  }
}

static void add_up(void *sum, const laid *l, int members) {
  bool is_double = l->type[0].dtype == SL_F64;
  for (int m = 0; m < members; m++)
    for (int64_t e = 0; e < sl_type_elements(&l->type[0]); e++)
      if (is_double) ((double *)sum)[e] += ((double *)l->data[m])[e];
      else ((float *)sum)[e] += ((float *)l->data[m])[e];
}

/* Checks that the members' arrays represent `want` as sbp says. */
static void check_laid(const sharing *s, sl_sbp sbp, const laid *l, const void *want,
                       const sl_type *type, const int64_t *segments, const char *what) {
  void *whole = array_create(type);
  if (sbp.kind == SL_PARTIAL) {
    memset(whole, 0, sl_type_bytes(type));
    add_up(whole, l, s->members);
  }
  for (int m = 0; m < s->members; m++)
    if (sbp.kind == SL_BROADCAST) {
      check_near(s, l->data[m], want, type, what);
    } else if (sbp.kind == SL_SPLIT) {
      sl_part part = member_part(s, type, segments, sbp.dim, m);
      sl_type of = sl_part_type(type, &part);
      CHECK(sl_type_equal(&of, &l->type[m]), "%s: a share's type is that part's: %s",
            s->c->op->name, what);
      sl_part_put(type, &part, l->data[m], whole);
    }
  if (sbp.kind != SL_BROADCAST) check_near(s, whole, want, type, what);
  free(whole);
}

static sl_sbp adjoint(sl_sbp a) {
  if (a.kind == SL_SPLIT) return a;
  return (sl_sbp){a.kind == SL_PARTIAL ? SL_BROADCAST : SL_PARTIAL, 0};
}

/* ---- calls ------------------------------------------------------------------------------ */

/* Runs a call on copies of its inputs; outputs that are updated start from initial[]. */
static kernel run(const sl_op *op, sl_attrs attrs, int64_t row, int nin, const sl_type *types,
                  void *const *in, void *const *initial) {
  kernel k = kernel_create(op, attrs, nin, types, sli_op_outputs(op, &attrs, nin));
  k.tick = (sl_tick){.row = row};
  for (int i = 0; i < nin; i++)
    if (in[i]) memcpy(k.in[i], in[i], sl_type_bytes(&types[i]));
  for (int o = 0; o < k.nout; o++)
    if (initial && initial[o] && (sli_op_memory(op)->updates >> o & 1))
      memcpy(k.out[o], initial[o], sl_type_bytes(&k.out_type[o]));
  kernel_run(&k, NULL);
  return k;
}

/* Runs `op` on every member's share of the inputs; fills outs[op->nout]. */
static void run_members(const sharing *s, const sl_op *op, int nin, const laid *in,
                        const laid *initial, laid *outs) {
  for (int m = 0; m < s->members; m++) {
    sl_type types[MAX_IN];
    void *data[MAX_IN], *start[MAX_OUT] = {0};
    for (int i = 0; i < nin; i++) types[i] = in[i].type[m], data[i] = in[i].data[m];
    for (int o = 0; o < sli_op_outputs(op, &s->c->attrs, nin) && initial; o++)
      start[o] = initial[o].data[m];
    kernel k = run(op, member_attrs(s, m), s->c->row, nin, types, data, start);
    for (int o = 0; o < k.nout; o++) {
      outs[o].type[m] = k.out_type[o];
      outs[o].data[m] = k.out[o];
      k.out[o] = NULL;
    }
    kernel_destroy(&k);
  }
}

/* Runs the call in its two parts, local and joined: every member ends up with all outputs. */
static void run_local_and_joined(const sharing *s, const laid *in, laid *outs) {
  laid local[MAX_OUT] = {0};
  run_members(s, s->how.local, s->c->nin, in, NULL, local);
  sl_part parts[MOST_MEMBERS];
  sl_joint joint = {local[0].type[0], parts};
  int last = joint.type.ndim - 1;
  int64_t width = joint.type.dim[last];
  for (int m = 0; m < s->members; m++)
    parts[m] = (sl_part){.axis = last, .nranges = 1, .begin = {m * width}, .count = {width}};
  joint.type.dim[last] *= s->members;
  kernel join = run(&sl_op_join, (sl_attrs){.user = &joint}, 0, s->members, local[0].type,
                    local[0].data, NULL);
  laid joined = {0};
  for (int m = 0; m < s->members; m++) {
    joined.type[m] = join.out_type[0];
    joined.data[m] = copy_of(join.out[0], &join.out_type[0]);
  }
  run_members(s, s->how.joined, 1, &joined, NULL, outs);
  kernel_destroy(&join);
  laid_destroy(&joined);
  laid_destroy(&local[0]);
}

/* ---- one signature ------------------------------------------------------------------------- */

typedef struct whole {
  kernel k;
  void *initial[MAX_OUT]; /* values of updated outputs before the call */
  float *dy;
  sl_type dy_type;
} whole;

static whole whole_create(const claim *c) {
  whole w = {
      .k = kernel_create(c->op, c->attrs, c->nin, c->in, sli_op_outputs(c->op, &c->attrs, c->nin))};
  w.k.tick = (sl_tick){.row = c->row};
  for (int i = 0; i < c->nin; i++)
    if (w.k.in[i]) array_random_from(w.k.in[i], &c->in[i], c->below, c->from);
  for (int o = 0; o < w.k.nout; o++) {
    array_random(w.k.out[o], &w.k.out_type[o], 1);
    w.initial[o] = copy_of(w.k.out[o], &w.k.out_type[o]);
  }
  kernel_run(&w.k, NULL);
  w.dy_type = w.k.out_type[0];
  w.dy_type.dtype = SL_F32;
  w.dy = array_create(&w.dy_type);
  array_random(w.dy, &w.dy_type, 0);
  return w;
}

static void whole_destroy(whole *w) {
  for (int o = 0; o < w->k.nout; o++) free(w->initial[o]);
  free(w->dy);
  kernel_destroy(&w->k);
}

/* Finds the argument of a rule, in the whole and in the members' arrays. */
static const laid *argument(const whole *w, const sl_grad_arg *a, const laid *in, const laid *outs,
                            const laid *dy, sl_type *type, void **data) {
  static const laid nothing = {.type = {NOTHING, NOTHING, NOTHING, NOTHING}};
  bool is_in = a->kind == SL_ARG_IN, is_out = a->kind == SL_ARG_OUT;
  *type = NOTHING;
  *data = NULL;
  if (is_in && a->index >= w->k.nin) return &nothing;
  *type = is_in ? w->k.in_type[a->index] : is_out ? w->k.out_type[a->index] : w->dy_type;
  *data = is_in ? w->k.in[a->index] : is_out ? w->k.out[a->index] : w->dy;
  return is_in ? &in[a->index] : is_out ? &outs[a->index] : dy;
}

static void check_rule(const sharing *s, const whole *w, const sl_grad_rule *rule, const laid *in,
                       const laid *outs, const laid *dy) {
  sl_type types[MAX_IN];
  void *data[MAX_IN];
  laid args[MAX_IN], grads[MAX_OUT] = {0};
  int n = sli_rule_arguments(rule, w->k.nin, w->k.nout);
  int ngradients = sli_rule_gradients(rule, w->k.nin);
  for (int a = 0; a < n; a++) {
    sl_grad_arg arg = sli_rule_argument(rule, w->k.nin, w->k.nout, a);
    args[a] = *argument(w, &arg, in, outs, dy, &types[a], &data[a]);
  }
  kernel want = run(rule->op, s->c->attrs, s->c->row, n, types, data, NULL);
  run_members(s, rule->op, n, args, NULL, grads);
  for (int o = 0; o < want.nout; o++) { /* the record's gradient follows the others */
    bool is_record = o >= ngradients;
    int of = sli_rule_of(rule, o);
    sl_sbp sbp = is_record ? s->how.out[2] : adjoint(s->how.in[of]);
    const int64_t *segments = is_record ? output_segments(s->c, 2) : input_segments(s->c, of);
    sharing with = *s; /* sums over positions or rows change their order */
    if (sbp.kind == SL_PARTIAL) with.tolerance = 1e-5;
    check_laid(&with, sbp, &grads[o], want.out[o], &want.out_type[o], segments, rule->op->name);
    laid_destroy(&grads[o]);
  }
  kernel_destroy(&want);
}

/* Scales a mean over part of the elements by its share. */
static void weigh(const sharing *s, laid *scalars) {
  if (sli_op_cut(s->c->op)->pieces != SL_PIECES_MEAN || s->how.local ||
      s->how.in[0].kind != SL_SPLIT)
    return;
  for (int m = 0; m < s->members; m++) {
    double share = (double)(s->bound[m + 1] - s->bound[m]) / (double)s->units;
    if (scalars->type[m].dtype == SL_F64) *(double *)scalars->data[m] *= share;
    else *(float *)scalars->data[m] *= (float)share;
  }
}

static void check_way_back(const sharing *s, const whole *w, const laid *in, const laid *outs) {
  sl_sbp dy_lies = s->how.local ? (sl_sbp){0} : adjoint(s->how.out[0]);
  laid dy = lay_out(s, dy_lies, &w->dy_type, NULL, w->dy);
  weigh(s, &dy);
  for (const sl_grad_rule *rule = s->c->op->grad; rule->nwrt; rule++) {
    sl_sbp of = s->how.in[rule->wrt[0]], out = s->how.out[0];
    if (rule->wrt[0] >= w->k.nin || !w->k.in[rule->wrt[0]]) continue;
    if (rule->op) check_rule(s, w, rule, in, outs, &dy);
    else
      CHECK(of.kind == out.kind && of.dim == out.dim, "%s: what passes through lies alike",
            s->c->op->name);
  }
  laid_destroy(&dy);
}

static void check_signature(const claim *c, const sl_signature *how) {
  sharing s = random_sharing(c, how);
  whole w = whole_create(c);
  laid in[MAX_IN] = {0}, initial[MAX_OUT] = {0}, outs[MAX_OUT] = {0};
  for (int i = 0; i < c->nin; i++)
    in[i] = lay_out(&s, how->in[i], &c->in[i], input_segments(c, i), w.k.in[i]);
  for (int o = 0; o < w.k.nout; o++)
    if (sli_op_memory(c->op)->updates >> o & 1)
      initial[o] = lay_out(&s, how->out[o], &w.k.out_type[o], output_segments(c, o), w.initial[o]);
  if (how->local) run_local_and_joined(&s, in, outs);
  else {
    run_members(&s, c->op, c->nin, in, initial, outs);
    weigh(&s, &outs[0]);
  }
  for (int o = 0; o < w.k.nout; o++)
    check_laid(&s, how->out[o], &outs[o], w.k.out[o], &w.k.out_type[o], output_segments(c, o),
               "output");
  if (!c->several) check_way_back(&s, &w, in, outs);
  for (int i = 0; i < MAX_IN; i++) laid_destroy(&in[i]);
  for (int o = 0; o < MAX_OUT; o++) {
    laid_destroy(&initial[o]);
    laid_destroy(&outs[o]);
  }
  whole_destroy(&w);
}

/* ---- ops that know their part -------------------------------------------------------------- */

/* With the same log-sum, the gradients of some columns have the whole's bits; a target outside of
 * them changes nothing. */
static void check_columns_of_gradient(void) {
  sl_type types[] = {F32(9, 77), I32(9), F32(9), SL_SCALAR(SL_F32)};
  kernel k = kernel_create(&sl_op_cross_entropy_b, (sl_attrs){0}, 4, types, 1);
  for (int i = 0; i < 4; i++) array_random(k.in[i], &types[i], 77);
  kernel_run(&k, NULL);
  for (int round = 0; round < 10; round++) {
    int64_t first = random_below(77), count = 1 + random_below(77 - first);
    sl_part part = {.axis = 1, .nranges = 1, .begin = {first}, .count = {count}};
    sl_type of[] = {sl_part_type(&types[0], &part), types[1], types[2], types[3]};
    kernel p = kernel_create(&sl_op_cross_entropy_b,
                             (sl_attrs){.place.first = first, .place.partial = true}, 4, of, 1);
    sl_part_take(&types[0], &part, k.in[0], p.in[0]);
    for (int i = 1; i < 4; i++) memcpy(p.in[i], k.in[i], sl_type_bytes(&types[i]));
    kernel_run(&p, NULL);
    float *want = array_create(&of[0]);
    sl_part_take(&types[0], &part, k.out[0], want);
    CHECK(!memcmp(want, p.out[0], sl_type_bytes(&of[0])), "columns %lld.. of the gradient",
          (long long)first);
    free(want);
    kernel_destroy(&p);
  }
  kernel_destroy(&k);
}

/* Fully masked columns contribute nothing. */
static void check_masked_columns(void) {
  sl_type types[] = {F32(1, 9), I32(1)}, joined = F32(1, 6);
  kernel join = kernel_create(&sl_op_cross_entropy_join, (sl_attrs){0}, 1, &joined, 2);
  for (int m = 0; m < 2; m++) {
    kernel part =
        kernel_create(&sl_op_cross_entropy_part, (sl_attrs){.place.first = 9 * m}, 2, types, 1);
    for (int c = 0; c < 9; c++) ((float *)part.in[0])[c] = m ? -INFINITY : 2;
    *(int32_t *)part.in[1] = 3;
    kernel_run(&part, NULL);
    memcpy((float *)join.in[0] + 3 * m, part.out[0], 3 * sizeof(float));
    kernel_destroy(&part);
  }
  kernel_run(&join, NULL);
  CHECK(fabs(*(double *)join.out[0] - log(9)) < 1e-6, "the loss is %g", *(double *)join.out[0]);
  kernel_destroy(&join);
}

/* The gradient behind the logits, computed from products made before all columns were known: the
 * parts, some of them masked, add up to the whole gradient. */
static void check_rescaling(void) {
  enum { ROWS = 5, WIDTH = 6, WORDS = 11, PARTS = 3 };
  static const int64_t begin[PARTS + 1] = {0, 4, 5, 11};
  sl_type x = F32(ROWS, WIDTH), w = F32(WORDS, WIDTH), ids = I32(ROWS), row = F32(ROWS);
  float *wide = array_create(&x), *words = array_create(&w), sum[ROWS * WIDTH] = {0},
        logits[ROWS][WORDS];
  int32_t targets[ROWS] = {0, 4, 10, 7, 4};
  array_random(wide, &x, 0);
  array_random(words, &w, 0);
  float lse[ROWS];
  double want[ROWS * WIDTH] = {0}, dloss = 0.7;
  for (int r = 0; r < ROWS; r++) {
    double total = 0;
    for (int v = 0; v < WORDS; v++) {
      double y = 0;
      for (int c = 0; c < WIDTH; c++)
        y += (double)wide[r * WIDTH + c] * (double)words[v * WIDTH + c];
      logits[r][v] = v == 4 && r < 3 && targets[r] != 4 ? -INFINITY : (float)y;
      total += exp((double)logits[r][v]);
    }
    lse[r] = (float)log(total);
    for (int v = 0; v < WORDS; v++)
      for (int c = 0; c < WIDTH; c++)
        want[r * WIDTH + c] += (exp((double)logits[r][v]) / total - (v == targets[r])) *
                               (double)words[v * WIDTH + c] * dloss / ROWS;
  }
  for (int p = 0; p < PARTS; p++) {
    int64_t n = begin[p + 1] - begin[p];
    sl_type part = F32(ROWS, n), table = F32(n, WIDTH);
    kernel soft = kernel_create(&sl_op_softmax_part, (sl_attrs){0}, 1, &part, 2);
    for (int r = 0; r < ROWS; r++)
      memcpy((float *)soft.in[0] + r * n, &logits[r][begin[p]], (size_t)n * sizeof(float));
    kernel_run(&soft, NULL);
    kernel ahead = kernel_create(&sl_op_linear_b, (sl_attrs){0}, 2, (sl_type[]){part, table}, 1);
    memcpy(ahead.in[0], soft.out[0], sl_type_bytes(&part));
    memcpy(ahead.in[1], words + begin[p] * WIDTH, sl_type_bytes(&table));
    kernel_run(&ahead, NULL);
    kernel taken =
        kernel_create(&sl_op_embedding, (sl_attrs){.place.first = begin[p], .place.partial = true},
                      2, (sl_type[]){ids, table}, 1);
    memcpy(taken.in[0], targets, sizeof targets);
    memcpy(taken.in[1], ahead.in[1], sl_type_bytes(&table));
    kernel_run(&taken, NULL);
    kernel back = kernel_create(&sl_op_softmax_rescale, (sl_attrs){0}, 5,
                                (sl_type[]){x, x, row, row, SL_SCALAR(SL_F32)}, 1);
    memcpy(back.in[0], ahead.out[0], sl_type_bytes(&x));
    memcpy(back.in[1], taken.out[0], sl_type_bytes(&x));
    memcpy(back.in[2], soft.out[1], sizeof lse);
    memcpy(back.in[3], lse, sizeof lse);
    *(float *)back.in[4] = (float)dloss;
    kernel_run(&back, NULL);
    for (int i = 0; i < ROWS * WIDTH; i++) sum[i] += ((float *)back.out[0])[i];
    kernel *all[] = {&soft, &ahead, &taken, &back};
    for (size_t k = 0; k < SLI_COUNT(all); k++) kernel_destroy(all[k]);
  }
  for (int i = 0; i < ROWS * WIDTH; i++)
    CHECK(fabs((double)sum[i] - want[i]) < 1e-6, "element %d is %g, not %g", i, (double)sum[i],
          want[i]);
  free(wide);
  free(words);
}

/* A whole table reports an id out of range; a part of a table leaves it to other members. */
static void check_other_ids(void) {
  sl_type types[] = {I32(1), F32(4, 3)};
  for (int partial = 0; partial < 2; partial++) {
    kernel k = kernel_create(&sl_op_embedding,
                             (sl_attrs){.place.first = 2, .place.partial = partial}, 2, types, 1);
    array_random(k.in[1], &types[1], 0);
    for (int id = 0; id < 8; id++) {
      *(int32_t *)k.in[0] = id;
      kernel_run(&k, NULL);
      float y = *(float *)k.out[0];
      if (id >= 2 && id < 6) CHECK(y == ((float *)k.in[1])[3 * (id - 2)], "row %d", id);
      else CHECK(partial ? y == 0 : isnan(y), "id %d gives %g", id, (double)y);
    }
    kernel_destroy(&k);
  }
}

static void check_signatures(const claim *c) {
  sl_signature how[SL_SIGNATURES];
  memset(how, 0xff, sizeof how);
  int n = sli_op_shard(c->op)->signatures(&c->attrs, c->nin, c->in, how);
  CHECK(n >= 0 && n <= SL_SIGNATURES, "%s has %d signatures", c->op->name, n);
  for (int s = 0; s < n; s++) /* rows that go to experts: test_expert_parallel.c */
    for (int round = 0; round < 4 && how[s].out[0].kind != SL_DISPATCHED; round++)
      check_signature(c, &how[s]);
}

/* ---- all ops on one level ----------------------------------------------------------------- */

static void check_all(uint64_t seed) {
  seed_random(seed);
  for (size_t i = 0; i < SLI_COUNT(claims); i++) check_signatures(&claims[i]);
  for (size_t i = 0; i < SLI_COUNT(math_claims); i++) {
    const math_claim *m = &math_claims[i];
    claim c = {.op = m->op, .attrs = m->attrs, .nin = m->nin, .below = m->below, .from = m->from};
    memcpy(c.in, m->in, sizeof m->in);
    if (sli_op_shard(c.op)->signatures && c.in[0].ndim) check_signatures(&c);
  }
  check_columns_of_gradient();
  check_masked_columns();
  check_rescaling();
  check_other_ids();
}

/* Ops whose inputs are private to each device have no whole; check_rescaling() tests them. */
static bool is_own(const sl_op *op) {
  return op == &sl_op_softmax_part || op == &sl_op_softmax_rescale;
}

static void check_every_row_with_signatures_is_claimed(void) {
  for (int i = 0; sl_ops[i]; i++) {
    bool claimed = !sli_op_shard(sl_ops[i])->signatures || is_own(sl_ops[i]);
    for (size_t j = 0; j < sizeof claims / sizeof *claims; j++)
      claimed |= claims[j].op == sl_ops[i];
    for (size_t j = 0; j < SLI_COUNT(math_claims); j++) claimed |= math_claims[j].op == sl_ops[i];
    CHECK(claimed, "%s has signatures and no claim here", sl_ops[i]->name);
  }
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 1);
  RUN(check_every_row_with_signatures_is_claimed);
  for (uint64_t seed = s.first; seed < s.end; seed++)
    RUN_AS("check_all", on_every_level(check_all, seed));
  return 0;
}
