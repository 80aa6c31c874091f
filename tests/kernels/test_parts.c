/* SPDX-License-Identifier: Apache-2.0 */
/* Tests parts of arrays against a plain loop over the elements: extraction, insertion, parts of
 * parts, slices and joins of random tilings, and sums in order, also in teams. An invalid part or
 * tiling is an error that says so.
 * labels: random unthreaded computes */
#include <string.h>
#include <unistd.h>

#include "kernels/cpu/team.h"
#include "tests/support/kernel_call.h"
#include "tests/support/seeds.h"

#if TEST_SANITIZED == 1
enum { ROUNDS = 150 };
#else
enum { ROUNDS = 400 };
#endif
enum { MOST_MEMBERS = 6 };

/* ---- the plain reference ----------------------------------------------------------- */

/* Returns the position of the whole's element e in the part, or -1 if it is not in the part. */
static int64_t place_in_part(const sl_type *whole, const sl_part *part, int64_t e) {
  int64_t inner = 1, positions = sl_type_elements(whole), at = 0, length = 0, found = -1;
  if (part->axis == SL_PART_ALL) return e;
  if (part->axis >= 0) {
    positions = whole->dim[part->axis];
    for (int d = part->axis + 1; d < whole->ndim; d++) inner *= whole->dim[d];
  }
  int64_t position = e / inner % positions;
  for (int r = 0; r < part->nranges; r++) {
    int64_t into = position - part->begin[r];
    if (into >= 0 && into < part->count[r]) found = at + into;
    at += part->count[r];
    length += part->count[r];
  }
  return found < 0 ? -1 : (e / inner / positions * length + found) * inner + e % inner;
}

static void check_element(const sl_type *type, const void *whole, int64_t e, const void *part,
                          int64_t p, const char *what) {
  size_t size = sl_dtype_bytes(type->dtype);
  char text[SL_TYPE_TEXT];
  const char *want = (const char *)whole + (size_t)e * size;
  CHECK(!memcmp(want, (const char *)part + (size_t)p * size, size), "%s: element %lld of %s", what,
        (long long)e, sl_type_format(text, type));
}

/* ---- random parts ------------------------------------------------------------------ */

static sl_type random_type(int64_t largest) {
  sl_type type = {.dtype = (sl_dtype)random_below(SL_DTYPE_COUNT),
                  .ndim = (int)random_below(SL_MAX_DIMS + 1)};
  for (int d = 0; d < type.ndim; d++) type.dim[d] = 1 + random_below(largest);
  return type;
}

static void *random_array(const sl_type *type) {
  size_t bytes = sl_type_bytes(type);
  unsigned char *p = array_create(type);
  for (size_t i = 0; i < bytes; i++) p[i] = (unsigned char)random_bits();
  return p;
}

static int random_axis(const sl_type *type) { return (int)random_below(type->ndim + 1) - 1; }

static int64_t positions_of(const sl_type *type, int axis) {
  return axis < 0 ? sl_type_elements(type) : type->dim[axis];
}

/* Returns up to three ranges, some of them empty. An axis of -1 means flat here. */
static sl_part random_part(const sl_type *type) {
  sl_part part = {.axis = random_axis(type), .nranges = (int)random_below(SL_PART_RANGES + 1)};
  int64_t positions = positions_of(type, part.axis), at = 0;
  if (part.axis < 0) part.axis = random_below(4) ? SL_PART_FLAT : SL_PART_ALL;
  for (int r = 0; r < part.nranges; r++) {
    part.begin[r] = at + random_below(positions - at + 1);
    part.count[r] = random_below(positions - part.begin[r] + 1);
    at = part.begin[r] + part.count[r];
  }
  return part;
}

/* ---- parts, and parts of parts ------------------------------------------------------ */

static void check_part(const sl_type *type, const sl_part *part) {
  sl_type part_type = sl_part_type(type, part);
  void *whole = random_array(type), *piece = array_create(&part_type), *back = array_create(type);
  int64_t n = sl_type_elements(type), taken = 0;
  sl_part_take(type, part, whole, piece);
  memcpy(back, whole, sl_type_bytes(type));
  for (int64_t e = 0; e < n; e++) {
    int64_t p = place_in_part(type, part, e);
    if (p < 0) continue;
    check_element(type, whole, e, piece, p, "taken");
    taken++;
  }
  CHECK(taken == sl_type_elements(&part_type), "the type of a part says how much it is");
  for (size_t i = 0; i < sl_type_bytes(&part_type); i++) ((unsigned char *)piece)[i] ^= 0x5a;
  sl_part_put(type, part, piece, back);
  for (int64_t e = 0; e < n; e++) {
    int64_t p = place_in_part(type, part, e);
    if (p < 0) check_element(type, back, e, whole, e, "what no part is put into stays");
    else check_element(type, back, e, piece, p, "put");
  }
  free(whole);
  free(piece);
  free(back);
}

/* Extracts part after part; a shard does the same in one call. */
static void check_shard(const sl_type *type) {
  sl_shard shard = {.whole = *type};
  sl_type types[SL_SHARD_PARTS + 1] = {*type};
  void *of[SL_SHARD_PARTS + 1] = {random_array(type)},
                            *want[SL_SHARD_PARTS + 1] = {array_create(type)};
  for (int p = 0; p < SL_SHARD_PARTS; p++) {
    bool any = sl_type_elements(&types[p]) > 0;
    shard.parts[p] = any ? random_part(&types[p]) : (sl_part){.axis = SL_PART_ALL};
    types[p + 1] = sl_part_type(&types[p], &shard.parts[p]);
    of[p + 1] = array_create(&types[p + 1]);
    want[p + 1] = array_create(&types[p + 1]);
    sl_part_take(&types[p], &shard.parts[p], of[p], of[p + 1]);
  }
  const sl_type *last = &types[SL_SHARD_PARTS];
  sl_type got = sl_shard_type(&shard);
  CHECK(sl_type_equal(&got, last), "a shard's type is its last part's");
  void *shards = array_create(last), *back = random_array(type);
  sl_shard_take(&shard, of[0], shards);
  CHECK(!memcmp(of[SL_SHARD_PARTS], shards, sl_type_bytes(last)), "a shard is a part of a part");
  memcpy(want[0], back, sl_type_bytes(type));
  for (int p = 0; p < SL_SHARD_PARTS; p++)
    sl_part_take(&types[p], &shard.parts[p], want[p], want[p + 1]);
  memcpy(want[SL_SHARD_PARTS], shards, sl_type_bytes(last));
  for (int p = SL_SHARD_PARTS; p-- > 0;)
    sl_part_put(&types[p], &shard.parts[p], want[p + 1], want[p]);
  sl_shard_put(&shard, shards, back);
  CHECK(!memcmp(want[0], back, sl_type_bytes(type)), "a shard is put where it was");
  for (int p = 0; p <= SL_SHARD_PARTS; p++) free(of[p]), free(want[p]);
  free(shards);
  free(back);
}

/* ---- slice and join ------------------------------------------------------------------- */

/* Deals positions to members at random; each gets up to three ranges and at least one position. */
static int random_tiling(const sl_type *type, sl_part *parts) {
  int axis = random_axis(type), members, nranges;
  int64_t positions = positions_of(type, axis), at = 0;
  members = (int)(1 + random_below(positions < MOST_MEMBERS ? positions : MOST_MEMBERS));
  nranges = members + (int)random_below(members + 1);
  if (nranges > positions) nranges = (int)positions;
  for (int m = 0; m < members; m++) parts[m] = (sl_part){.axis = axis < 0 ? SL_PART_FLAT : axis};
  int turn = (int)random_below(members);
  for (int r = 0; r < nranges; r++) {
    sl_part *part = &parts[(turn + r) % members];
    int64_t left = positions - at - (nranges - r - 1);
    int64_t count = r == nranges - 1 ? left : 1 + random_below(left);
    part->begin[part->nranges] = at;
    part->count[part->nranges++] = count;
    at += count;
  }
  return members;
}

static void check_slices_join(const sl_type *type, struct sl_team *team) {
  sl_part parts[MOST_MEMBERS];
  int members = random_tiling(type, parts);
  sl_type types[MOST_MEMBERS];
  sl_joint joint = {*type, parts};
  for (int m = 0; m < members; m++) types[m] = sl_part_type(type, &parts[m]);
  kernel join = kernel_create(&sl_op_join, (sl_attrs){.user = &joint}, members, types, 1);
  void *whole = random_array(type);
  CHECK(sl_type_equal(&join.out_type[0], type), "a join's type is the whole's");
  for (int m = 0; m < members; m++) {
    kernel slice = kernel_create(&sl_op_slice, (sl_attrs){.user = &parts[m]}, 1, type, 1);
    CHECK(sl_type_equal(&slice.out_type[0], &types[m]), "a slice's type is the part's");
    memcpy(slice.in[0], whole, sl_type_bytes(type));
    kernel_run(&slice, team);
    for (int64_t e = 0, p; e < sl_type_elements(type); e++)
      if ((p = place_in_part(type, &parts[m], e)) >= 0)
        check_element(type, whole, e, slice.out[0], p, "sliced");
    memcpy(join.in[m], slice.out[0], sl_type_bytes(&types[m]));
    kernel_destroy(&slice);
  }
  kernel_run(&join, team);
  CHECK(!memcmp(whole, join.out[0], sl_type_bytes(type)), "slices join to what they were of");
  free(whole);
  kernel_destroy(&join);
}

/* Pieces of sequences: parts along one dim, with arrays shorter along another. */
static void check_join_of_pieces(void) {
  const sl_part parts[] = {{.axis = 2, .nranges = 1, .begin = {0}, .count = {3}},
                           {.axis = 2, .nranges = 1, .begin = {3}, .count = {2}}};
  sl_joint joint = {SL_TYPE(SL_F32, 2, 9, 5), parts};
  sl_type in[] = {SL_TYPE(SL_F32, 2, 4, 3), SL_TYPE(SL_F32, 2, 4, 2)}, out;
  sl_type want = SL_TYPE(SL_F32, 2, 4, 5);
  CHECK(!sl_op_join.infer(&(sl_attrs){.user = &joint}, 2, in, &out), "%s", sl_detail());
  CHECK(sl_type_equal(&out, &want), "the join of parts of a piece is a piece");
}

/* ---- sums --------------------------------------------------------------------------------- */

/* Returns the sum of element e of arrays [from, to), by a binary tree over the array numbers. */
static double sum_by_tree(const kernel *k, int64_t e, int from, int to) {
  int half = 1;
  while (2 * half < to - from) half *= 2;
  if (to - from == 1) return array_get(k->in[from], &k->in_type[from], e);
  double sum = sum_by_tree(k, e, from, from + half) + sum_by_tree(k, e, from + half, to);
  return (double)(float)sum;
}

/* Returns the sum of element e of the arrays in f64, in order. */
static double sum_in_order(const kernel *k, int64_t e) {
  double sum = 0;
  for (int i = 0; i < k->nin; i++) sum += array_get(k->in[i], &k->in_type[i], e);
  return sum;
}

static void check_sum(sl_dtype dtype, int64_t n, int summands, struct sl_team *team) {
  sl_type types[MAX_IN];
  memset(types, 0, sizeof types);
  for (int i = 0; i < summands; i++) types[i] = n ? SL_TYPE(dtype, n) : SL_SCALAR(dtype);
  kernel k = kernel_create(&sl_op_sum, (sl_attrs){0}, summands, types, 1);
  for (int i = 0; i < summands; i++) array_random(k.in[i], &types[i], 0);
  for (int accumulate = 0; accumulate < 2; accumulate++) {
    void *before = array_create(&types[0]);
    array_random(before, &types[0], 0);
    memcpy(k.out[0], before, sl_type_bytes(&types[0]));
    k.accumulate = (uint32_t)accumulate;
    kernel_run(&k, team);
    for (int64_t e = 0; e < sl_type_elements(&types[0]); e++) {
      double there = array_get(before, &types[0], e);
      double want = dtype == SL_F32 ? sum_by_tree(&k, e, 0, summands) : sum_in_order(&k, e);
      if (accumulate) want = dtype == SL_F32 ? (double)(float)(there + want) : there + want;
      CHECK(array_get(k.out[0], &types[0], e) == want, "element %lld of a sum of %d %s arrays%s",
            (long long)e, summands, sl_dtype_name(dtype), accumulate ? ", added" : "");
    }
    free(before);
  }
  kernel_destroy(&k);
}

/* The sum of a part has the same bits as that part of the sum. */
static void check_sum_part(sl_dtype dtype, int summands, struct sl_team *team) {
  sl_type whole = SL_TYPE(dtype, 3 + random_below(9), 2 + random_below(30), 2 + random_below(200));
  sl_part part = random_part(&whole);
  sl_type types[MAX_IN], type = sl_part_type(&whole, &part);
  if (!sl_type_elements(&type)) return;
  for (int i = 0; i < MAX_IN; i++) types[i] = whole;
  kernel all = kernel_create(&sl_op_sum, (sl_attrs){0}, summands, types, 1);
  kernel some = kernel_create(&sl_op_sum_part, (sl_attrs){.user = &part}, summands, types, 1);
  for (int i = 0; i < summands; i++) {
    array_random(all.in[i], &whole, 0);
    memcpy(some.in[i], all.in[i], sl_type_bytes(&whole));
  }
  void *before = array_create(&whole);
  array_random(before, &whole, 0);
  all.accumulate = some.accumulate = (uint32_t)random_below(2);
  memcpy(all.out[0], before, sl_type_bytes(&whole));
  sl_part_take(&whole, &part, before, some.out[0]);
  kernel_run(&all, team);
  kernel_run(&some, team);
  sl_part_take(&whole, &part, all.out[0], before);
  CHECK(!memcmp(before, some.out[0], sl_type_bytes(&type)), "a part of a sum of %d %s arrays",
        summands, sl_dtype_name(dtype));
  free(before);
  kernel_destroy(&all);
  kernel_destroy(&some);
}

/* ---- errors ---------------------------------------------------------------------------------- */

#define F32(...) SL_TYPE(SL_F32, __VA_ARGS__)
#define PART(axis_, begin_, count_)                                       \
  {                                                                       \
    .axis = (axis_), .nranges = 1, .begin = {begin_}, .count = { count_ } \
  }
#define SLICE(...) &sl_op_slice, &(const sl_part)__VA_ARGS__
#define JOIN(type_, ...)                     \
  &sl_op_join, &(const sl_joint) {           \
    type_, (const sl_part[]) { __VA_ARGS__ } \
  }

static void check_misfit(const sl_op *op, const void *user, int nin, const sl_type *in,
                         const char *text) {
  sl_type out;
  sl_status status = op->infer(&(sl_attrs){.user = user}, nin, in, &out);
  CHECK(status == SL_E_SHAPE, "%s takes what it should not: %s", op->name, text);
  CHECK(!strcmp(sl_detail(), text), "%s says \"%s\", should say \"%s\"", op->name, sl_detail(),
        text);
}

static void check_misfits(void) {
  const sl_type x = F32(4, 6), halves[] = {F32(4, 3), F32(4, 3)}, odd[] = {F32(4, 3), F32(4, 2)};
  check_misfit(&sl_op_slice, NULL, 1, &x, "attrs.user must point to an sl_part");
  check_misfit(SLICE(PART(2, 0, 1)), 1, &x,
               "a part along dim 2 needs an array with that dim, got f32[4, 6]");
  check_misfit(SLICE({.axis = 0, .nranges = 4}), 1, &x, "a part must have 0 to 3 ranges, got 4");
  check_misfit(SLICE(PART(1, 4, 3)), 1, &x,
               "range 0 of a part, 3 from 4 on, must lie in [0, 6), got f32[4, 6]");
  check_misfit(SLICE({.axis = SL_PART_FLAT, .nranges = 2, .begin = {0, 5}, .count = {6, 1}}), 1, &x,
               "range 1 of a part, 1 from 5 on, must lie in [6, 24), got f32[4, 6]");
  check_misfit(SLICE(PART(0, 1, 0)), 1, &x, "a part must not be empty, got f32[0, 6]");
  check_misfit(&sl_op_join, NULL, 2, halves, "attrs.user must point to an sl_joint");
  check_misfit(JOIN(x, PART(1, 0, 3), PART(1, 3, 3)), 2, odd,
               "part 1 must be f32[4, 3], got f32[4, 2]");
  check_misfit(JOIN(x, PART(1, 0, 3), PART(1, 2, 3)), 2, halves,
               "parts 0 and 1 must not overlap, got f32[4, 6]");
  check_misfit(JOIN(x, PART(1, 0, 3), PART(1, 3, 2)), 2, odd,
               "parts must cover the whole, got f32[4, 6]");
  check_misfit(JOIN(x, PART(1, 0, 3), PART(0, 0, 2)), 2, (sl_type[]){F32(4, 3), F32(2, 6)},
               "parts 0 and 1 must be along one dim to be joined, got f32[4, 6]");
  check_misfit(&sl_op_sum, NULL, 2, odd, "summand 1 must be f32[4, 3], got f32[4, 2]");
  check_misfit(&sl_op_sum, NULL, 1, (sl_type[]){SL_TYPE(SL_I32, 3)},
               "summand 0 must be f32[..., n], got i32[3]");
}

static void check_random(uint64_t seed, struct sl_team *team) {
  seed_random(seed);
  for (int round = 0; round < ROUNDS; round++) {
    sl_type type = random_type(9);
    sl_part part = random_part(&type);
    check_part(&type, &part);
    check_shard(&type);
    check_slices_join(&type, round % 2 ? team : NULL);
  }
  for (int round = 0; round < 4; round++) { /* with many chunks */
    sl_type type = random_type(4);
    type.dim[type.ndim++ % SL_MAX_DIMS] = 30011;
    if (type.ndim > SL_MAX_DIMS) type.ndim = SL_MAX_DIMS;
    check_slices_join(&type, team);
  }
  for (int summands = 1; summands <= MAX_IN; summands++) {
    check_sum(SL_F64, 0, summands, NULL);
    check_sum(SL_F32, 1 + random_below(40), summands, NULL);
    check_sum(summands % 2 ? SL_F32 : SL_F64, 30000 + random_below(9999), summands, team);
  }
  for (int round = 0; round < 60; round++)
    check_sum_part(round % 2 ? SL_F32 : SL_F64, 1 + (int)random_below(MAX_IN),
                   round % 3 ? team : NULL);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 1);
  struct sl_team *team = sli_team_create(3, NULL, NULL);
  for (uint64_t seed = s.first; seed < s.end; seed++) RUN(check_random, seed, team);
  RUN(check_join_of_pieces);
  RUN(check_misfits);
  sli_team_destroy(team);
  return 0;
}
