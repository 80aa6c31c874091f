/* SPDX-License-Identifier: Apache-2.0 */
/* Tests tensors stored in parts. Names say which part, and any set of parts that covers a tensor
 * assembles to the whole. A missing or overlapping part is an error that names the tensor.
 * labels: random unthreaded */
#include "graph/state/parts.h"

#include <cjson/cJSON.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

static const sl_part all = {.axis = SL_PART_ALL};

static sl_part range(int axis, int64_t begin, int64_t end) {
  return (sl_part){.axis = axis, .nranges = 1, .begin = {begin}, .count = {end - begin}};
}

/* ---- names --------------------------------------------------------------------------- */

static void check_name(const sl_shard *shard, const char *wanted) {
  char *name = sli_part_format("w", shard);
  CHECK(!strcmp(name, wanted), "%s, not %s", wanted, name);
  sl_shard back;
  CHECK(sli_part_parse(name + 1, &shard->whole, &back), "%s is understood", name);
  char *again = sli_part_format("w", &back);
  CHECK(!strcmp(name, again), "%s is %s again", name, again);
  free(again);
  free(name);
}

static void names_say_which_part_it_is(void) {
  sl_part heads = {.axis = 1, .nranges = 3, .begin = {0, 64, 128}, .count = {32, 32, 32}};
  check_name(&(sl_shard){SL_TYPE(SL_F32, 256, 64), {range(0, 0, 128), all, all}},
             "w[256,64][0:128,:]");
  check_name(&(sl_shard){SL_TYPE(SL_F32, 64, 192), {heads, range(0, 32, 64), all}},
             "w[64,192][:,0:32+64:96+128:160][32:64,:]");
  check_name(&(sl_shard){SL_TYPE(SL_F32, 256), {all, range(SL_PART_FLAT, 0, 100), all}},
             "w[256][flat 0:100]");
  check_name(
      &(sl_shard){SL_TYPE(SL_F32, 256, 64), {range(0, 0, 128), range(0, 64, 128), range(1, 0, 8)}},
      "w[256,64][0:128,:][64:128,:][:,0:8]");
  check_name(&(sl_shard){SL_TYPE(SL_F32, 4, 6), {range(1, 0, 3), range(SL_PART_FLAT, 5, 12), all}},
             "w[4,6][:,0:3][flat 5:12]");
}

static void other_names_are_no_parts(void) {
  static const char *const texts[] = {"",
                                      "[4,6]",
                                      "[4,6][0:2]",
                                      "[4,6][:,:]",
                                      "[4,6][0:2,0:2]",
                                      "[4,6][0:5,:]",
                                      "[4,6][2:1,:]",
                                      "[4,6][0:2,:",
                                      "[4,6][0:2,:]x",
                                      "[4,7][0:2,:]",
                                      "[4][0:2]",
                                      "[4,6][-1:2,:]",
                                      "[4,6][0:2+1:3,:]",
                                      "[4,6][ 0:2,:]",
                                      "[4,6][0:1+1:2+2:3+3:4,:]",
                                      "[4,6][flat 0:25]",
                                      "[4,6][flat 0:4,:]",
                                      "[4,6][0:99999999999999999999,:]",
                                      "[4,6][0:2,:][0:1,:][0:1,:][0:1,:]",
                                      "[4,6][0:2,:][0:3,:]",
                                      "[0].weight"};
  sl_type whole = SL_TYPE(SL_F32, 4, 6);
  sl_shard shard;
  for (size_t i = 0; i < SLI_COUNT(texts); i++)
    CHECK(!sli_part_parse(texts[i], &whole, &shard), "\"%s\" is no part of f32[4, 6]", texts[i]);
}

/* ---- checkpoints ----------------------------------------------------------------------- */

static char dir[64];

typedef struct stored {
  int count;
  sl_shard shards[16];
} stored;

/* Writes a checkpoint of w in these parts, each in a separate shard. */
static sli_checkpoint *store(const stored *s, const float *whole) {
  sli_checkpoints *c;
  sli_shard_file files[16];
  const sli_shard_file *list[16];
  CHECK(!sli_checkpoints_open(dir, 1, &c), "%s", sl_detail());
  for (int i = 0; i < s->count; i++) {
    sl_type type = sl_shard_type(&s->shards[i]);
    float *part = sli_calloc((size_t)sl_type_elements(&type) + 1, sizeof *part);
    sl_shard_take(&s->shards[i], whole, part);
    char *name = sli_part_format("w", &s->shards[i]);
    /* A neighbour whose name starts with the same letters. */
    sli_tensor_data tensors[] = {{name, type.ndim, type.dim, part, NULL},
                                 {"w[0]", 0, NULL, whole, NULL}};
    CHECK(!sli_checkpoints_write(c, 1, 0, i, tensors, 2, &files[i]), "%s", sl_detail());
    list[i] = &files[i];
    free(name);
    free(part);
  }
  cJSON *about = cJSON_CreateObject();
  CHECK(!sli_checkpoints_commit(c, 1, about, s->count, list), "%s", sl_detail());
  cJSON_Delete(about);
  sli_checkpoint *out;
  CHECK(!sli_checkpoints_find(c, &out) && out, "%s", sl_detail());
  sli_checkpoints_close(c);
  return out;
}

/* Cuts a shard in two at random, along one dim or over the flattened elements. */
static void halve(stored *s, int which, int level, sl_type *type) {
  sl_shard *a = &s->shards[which], *b = &s->shards[s->count];
  int axis = rand() % (type->ndim + 1) - 1;
  if (axis < 0) axis = SL_PART_FLAT;
  int64_t n = axis < 0 ? sl_type_elements(type) : type->dim[axis], at = rand() % (n + 1);
  *b = *a;
  a->parts[level] = range(axis, 0, at);
  b->parts[level] = range(axis, at, n);
  s->count++;
}

static stored cut(const sl_type *whole) {
  stored s = {.count = 1, .shards = {{*whole, SL_ALL_PARTS}}};
  sl_type type = *whole;
  halve(&s, 0, 0, &type);
  for (int i = 0; i < 2; i++) {
    if (rand() % 3 == 0) continue;
    type = sl_part_type(whole, &s.shards[i].parts[0]);
    halve(&s, i, 1, &type);
  }
  return s;
}

static void a_whole_comes_together_from_any_parts(void) {
  srand(7);
  for (int round = 0; round < 60 * (int)seeds_times(); round++) {
    sl_type whole = {.dtype = SL_F32, .ndim = 1 + rand() % 4};
    for (int d = 0; d < whole.ndim; d++) whole.dim[d] = 1 + rand() % 6;
    size_t n = (size_t)sl_type_elements(&whole);
    float *values = sli_calloc(n, sizeof *values), *back = sli_calloc(n, sizeof *back);
    for (size_t i = 0; i < n; i++) values[i] = (float)i - 3;
    stored s = cut(&whole);
    sli_checkpoint *c = store(&s, values);
    sl_status status = sli_parts_assemble(c, "w", &whole, back);
    CHECK(!status, "round %d of seed 7: %s", round, sl_detail());
    CHECK(!memcmp(values, back, n * sizeof *back), "round %d of seed 7: the values", round);
    sli_checkpoint_close(c);
    free(values);
    free(back);
  }
}

static void refused(const stored *s, const char *word) {
  float values[24] = {0}, back[24];
  sl_type whole = SL_TYPE(SL_F32, 4, 6);
  sli_checkpoint *c = store(s, values);
  CHECK(sli_parts_assemble(c, "w", &whole, back) == SL_E_INPUT && strstr(sl_detail(), word) &&
            strstr(sl_detail(), dir),
        "\"%s\" is said: %s", word, sl_detail());
  sli_checkpoint_close(c);
}

static void what_is_missing_or_doubled_is_named(void) {
  const sl_type type = SL_TYPE(SL_F32, 4, 6), other = SL_TYPE(SL_F32, 6, 4);
  stored s = {2, {{type, {range(0, 0, 1), all, all}}, {type, {range(0, 2, 4), all, all}}}};
  refused(&s, "has only parts of tensor w, f32[4, 6]: w[flat 6:12] is missing");
  s = (stored){1, {{type, {range(1, 0, 3), all, all}}}};
  refused(&s, "w[flat 3:6] is missing");
  s = (stored){2, {{type, {range(0, 0, 3), all, all}}, {type, {range(0, 2, 4), all, all}}}};
  refused(&s, "parts of tensor w, f32[4, 6], overlap");
  s = (stored){1, {{other, {range(0, 0, 3), all, all}}}};
  refused(&s, "has no tensor w, which the model needs as f32[4, 6]");
}

int main(void) {
  RUN(names_say_which_part_it_is);
  RUN(other_names_are_no_parts);
  const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; /* the faster one */
  snprintf(dir, sizeof dir, "%s/sluice-parts-XXXXXX", folder);
  CHECK(mkdtemp(dir), "%s", dir);
  RUN(a_whole_comes_together_from_any_parts);
  RUN(what_is_missing_or_doubled_is_named);
  char *command = sli_format("rm -rf '%s'", dir);
  CHECK(!system(command), "%s", command);
  free(command);
  return 0;
}
