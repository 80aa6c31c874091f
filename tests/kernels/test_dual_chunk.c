/* SPDX-License-Identifier: Apache-2.0 */
/* Dual-chunk attention matches its definition, score by score (reference/dual_chunk.txt), and texts
 * that describe no chunks are refused.
 * labels: unthreaded */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/attention.h>

#include "base/base.h"
#include "ops/layout.h"
#include "ops/ops.h"
#include "tests/support/kernel_call.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/reference_file.h"

/* A case of the file, and the call computed from it. */
static struct setting {
  double chunk, local, original, theta;
  int64_t length, heads, kv_heads, dim;
} now;
static kernel dual;
static bool made;

/* Fills an array with the reference file's formula, from the n-th number on. */
static void fill_sines(float *to, int64_t count, int64_t n) {
  for (int64_t i = 0; i < count; i++, n++)
    to[i] = (float)sin(0.37 * (double)n + 1 / ((double)n + 1));
}

/* Rotates an array by a form of the positions. */
static void turn(float *to, const float *from, const sl_type *type, int64_t heads,
                 sl_rope_form form) {
  const sl_rope rope = {.kind = SL_ROPE_DUAL_CHUNK,
                        .chunk = now.chunk,
                        .local = now.local,
                        .original = now.original,
                        .part = 1,
                        .form = form};
  sl_attrs attrs = {.rotary.heads = (int)heads, .rotary.theta = (float)now.theta, .user = &rope};
  kernel k = kernel_create(&sl_op_rotary, attrs, 1, type, 1);
  memcpy(k.in[0], from, sl_type_bytes(type));
  kernel_run(&k, NULL);
  memcpy(to, k.out[0], sl_type_bytes(type));
  kernel_destroy(&k);
}

static void compute(void) {
  sl_type q = SL_TYPE(SL_F32, 1, now.length, now.heads * now.dim),
          kv = SL_TYPE(SL_F32, 1, now.length, now.kv_heads * now.dim);
  const sl_type in[] = {q, kv, kv, q, q};
  int64_t queries = sl_type_elements(&q), keys = sl_type_elements(&kv);
  float *x = array_create(&q), *y = array_create(&kv);
  if (made) kernel_destroy(&dual);
  made = true;
  sl_attrs attrs = {.attention.heads = (int)now.heads,
                    .attention.kv_heads = (int)now.kv_heads,
                    .attention.chunk = (int64_t)(now.chunk - now.local)};
  dual = kernel_create(&sl_op_attention_dual, attrs, 5, in, 2);
  fill_sines(x, queries, 0);
  fill_sines(y, keys, queries);
  fill_sines(dual.in[2], keys, queries + keys);
  turn(dual.in[0], x, &q, now.heads, SL_ROPE_OWN);
  turn(dual.in[1], y, &kv, now.kv_heads, SL_ROPE_KEYS);
  turn(dual.in[3], x, &q, now.heads, SL_ROPE_NEXT);
  turn(dual.in[4], x, &q, now.heads, SL_ROPE_FAR);
  kernel_run(&dual, NULL);
  free(x);
  free(y);
}

static double next_number(char **at) {
  char *end;
  double value = strtod(*at, &end);
  CHECK(end > *at, "a number is missing before \"%.20s\"", *at);
  *at = end;
  return value;
}

static void check_line(char *line) {
  struct setting s = {0};
  double *const reals[] = {&s.chunk, &s.local, &s.original, &s.theta};
  int64_t *const whole[] = {&s.length, &s.heads, &s.kv_heads, &s.dim};
  for (int i = 0; i < 4; i++) *reals[i] = next_number(&line);
  for (int i = 0; i < 4; i++) *whole[i] = (int64_t)next_number(&line);
  if (!made || memcmp(&s, &now, sizeof s)) {
    now = s;
    compute();
  }
  int64_t at = (int64_t)next_number(&line), width = s.heads * s.dim;
  for (int64_t i = 0; i < width; i++) {
    double want = next_number(&line), got = (double)((float *)dual.out[0])[at * width + i];
    CHECK(fabs(got - want) < 2e-6,
          "chunks of %g - %g: number %lld of position %lld is %.9g, not %.9g", s.chunk, s.local,
          (long long)i, (long long)at, got, want);
  }
}

static void check_figures(uint64_t seed) {
  (void)seed;
  const char *source = getenv("SLUICE_SOURCE");
  char *path = sli_format("%s/tests/reference/dual_chunk.txt", source ? source : ".");
  CHECK(reference_lines(path, check_line) == 31, "all lines are there");
  free(path);
  kernel_destroy(&dual);
  made = false;
}

static void check_refusals(void) {
  static const struct {
    const char *text, *named;
  } bad[] = {{"dual-chunk", "chunk_size"},
             {"dual-chunk:chunk_size=100", "local_size"},
             {"dual-chunk:chunk_size=100,local_size=30", "multiple of 64"},
             {"dual-chunk:chunk_size=64,local_size=64", "multiple of 64"},
             {"dual-chunk:chunk_size=64,local_size=128", "multiple of 64"},
             {"dual-chunk:chunk_size=96.5,local_size=32.5", "multiple of 64"},
             {"dual-chunk:chunk_size=96,local_size=32,factor=2", "factor"}};
  for (size_t i = 0; i < SLI_COUNT(bad); i++) {
    sl_rope rope;
    CHECK(sl_rope_parse(bad[i].text, &rope) == SL_E_USAGE, "%s is refused", bad[i].text);
    CHECK(strstr(sl_detail(), bad[i].named), "%s: \"%s\" names %s", bad[i].text, sl_detail(),
          bad[i].named);
  }
}

int main(void) {
  RUN_AS("check_figures", on_every_level(check_figures, 1));
  RUN(check_refusals);
  return 0;
}
