/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions and pools match PyTorch (tests/reference/images.txt), and so do their gradients.
 * Windows that do not fit are refused.
 * labels: unthreaded */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/claims.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/reference_file.h"

/* ---- the cases of make_images.py ------------------------------------------------------------ */

static const sl_window torch_strided = {.stride = {2, 3}, .pad = {1, 2}, .dilation = {2, 1}};

static const struct torch_case {
  const char *name;
  math_claim of;
} cases[] = {
    {"conv", {&sl_op_conv, NULL, {0}, 3, {F32(2, 3, 5, 4), F32(4, 3, 3, 2), F32(4)}, 0, 0}},
    {"conv_strided",
     {&sl_op_conv,
      NULL,
      {.user = &torch_strided},
      3,
      {F32(2, 2, 7, 6), F32(3, 2, 3, 3), F32(3)},
      0,
      0}},
    {"conv_groups",
     {&sl_op_conv, NULL, {.user = &grouped}, 2, {F32(1, 4, 4, 5), F32(6, 2, 3, 3)}, 0, 0}},
    {"conv_along",
     {&sl_op_conv, NULL, {.user = &along}, 3, {F32(2, 3, 11), F32(4, 3, 3), F32(4)}, 0, 0}},
    {"max_pool", {&sl_op_max_pool, NULL, {.user = &pool_of_3}, 1, {F32(2, 2, 7, 5)}, 0, 0}},
    {"max_pool_along", {&sl_op_max_pool, NULL, {.user = &pool_along}, 1, {F32(2, 2, 9)}, 0, 0}},
    {"mean_pool", {&sl_op_mean_pool, NULL, {.user = &pool_of_3}, 1, {F32(2, 2, 7, 5)}, 0, 0}},
    {"mean_pool_global", {&sl_op_mean_pool, NULL, {0}, 1, {F32(2, 3, 4, 5)}, 0, 0}},
};

enum { DY = 9 }; /* the number of the incoming gradient */

static void fill(float *x, const sl_type *type, int which) {
  for (int64_t i = 0; i < sl_type_elements(type); i++)
    x[i] = (float)((double)((i * 7919 + which * 104729 + 31) % 2003) / 1001.5 - 1);
}

static kernel case_create(const math_claim *c) {
  kernel k = kernel_create(c->op, c->attrs, c->nin, c->in, c->op->nout);
  for (int i = 0; i < c->nin; i++) fill(k.in[i], &c->in[i], i);
  kernel_run(&k, NULL);
  return k;
}

/* ---- comparison with the file ---------------------------------------------------------------- */

static void check_numbers(const char *what, const float *got, const sl_type *type, char *line) {
  for (int64_t i = 0; i < sl_type_elements(type); i++) {
    char *end;
    double want = strtod(line, &end);
    CHECK(end > line, "%s: number %d is missing", what, (int)i);
    CHECK(fabs((double)got[i] - want) <= 1e-6 * fmax(1, fabs(want)),
          "%s: number %d is %.9g, PyTorch's %.9g", what, (int)i, (double)got[i], want);
    line = end;
  }
}

/* Checks the rule that gives the gradient of this input. */
static void check_gradient(const kernel *k, int input, const char *what, char *line) {
  for (const sl_grad_rule *rule = k->op->grad; rule->nwrt; rule++)
    for (int j = 0; j < rule->nwrt; j++) {
      if (rule->wrt[j] != input) continue;
      kernel back = claim_rule(k, rule);
      for (int a = 0; rule->in[a].kind != SL_ARG_NONE; a++)
        if (rule->in[a].kind == SL_ARG_DOUT) fill(back.in[a], &back.in_type[a], DY);
      kernel_run(&back, NULL);
      check_numbers(what, back.out[j], &back.out_type[j], line);
      kernel_destroy(&back);
      return;
    }
  CHECK(false, "%s has no gradient", what);
}

static void check_line(char *line) {
  char what[64], *name = strsep(&line, " "), *array = strsep(&line, " ");
  snprintf(what, sizeof what, "%s %s", name, array);
  for (size_t i = 0; i < SLI_COUNT(cases); i++) {
    if (strcmp(cases[i].name, name)) continue;
    kernel k = case_create(&cases[i].of);
    if (*array == 'y') check_numbers(what, k.out[0], &k.out_type[0], line);
    else check_gradient(&k, array[1] - '0', what, line);
    kernel_destroy(&k);
    return;
  }
  CHECK(false, "%s is no case", name);
}

/* ---- windows that do not fit ----------------------------------------------------------------- */

static void check_refusals(void) {
  static const sl_window big = {.size = {2, 6}}, padded = {.size = {2, 2}, .pad = {0, 2}},
                         dilated = {.size = {2, 2}, .dilation = {2, 2}}, thirds = {.groups = 3},
                         backwards = {.stride = {-1, 1}}, high = {.stride = {2, 2}},
                         sized = {.size = {3, 3}};
  const struct {
    const sl_op *op;
    const sl_window *window;
    int nin;
    sl_type in[3];
    const char *text;
  } bad[] = {
      {&sl_op_max_pool, NULL, 1, {F32(2, 3)}, "x must be f32[n, c, h, w] or f32[n, c, w]"},
      {&sl_op_max_pool, &big, 1, {F32(2, 3, 5, 5)}, "a window of 6 does not fit into 5 positions"},
      {&sl_op_mean_pool, &padded, 1, {F32(2, 3, 5, 5)}, "at most half its size 2, got 2"},
      {&sl_op_mean_pool, &dilated, 1, {F32(2, 3, 5, 5)}, "does not take groups or dilation"},
      {&sl_op_max_pool, &high, 1, {F32(2, 3, 5)}, "stride[0] must be 0 for sequences"},
      {&sl_op_conv, NULL, 2, {F32(2, 3, 5, 5), F32(4, 2, 3, 3)}, "weight must be f32[o, 3, ...]"},
      {&sl_op_conv, &thirds, 2, {F32(2, 4, 5, 5), F32(3, 1, 3, 3)}, "channels in 3 equal groups"},
      {&sl_op_conv, &thirds, 2, {F32(2, 3, 5, 5), F32(4, 1, 3, 3)}, "outputs in 3 equal groups"},
      {&sl_op_conv, &backwards, 2, {F32(2, 3, 5, 5), F32(4, 3, 3, 3)}, "stride must be from 0"},
      {&sl_op_conv, &sized, 2, {F32(2, 3, 5, 5), F32(4, 3, 3, 3)}, "size is for pools only"},
      {&sl_op_conv, NULL, 2, {F32(2, 3, 5, 5), F32(4, 3, 6, 3)}, "a window of 6 does not fit"},
      {&sl_op_conv, NULL, 3, {F32(2, 3, 5, 5), F32(4, 3, 3, 3), F32(3)}, "bias must be f32[4]"},
  };
  for (size_t i = 0; i < SLI_COUNT(bad); i++) {
    sl_type out;
    sl_attrs attrs = {.user = bad[i].window};
    CHECK(bad[i].op->infer(&attrs, bad[i].nin, bad[i].in, &out) == SL_E_SHAPE,
          "misfit %d is refused", (int)i);
    CHECK(strstr(sl_detail(), bad[i].text), "misfit %d: \"%s\" says %s", (int)i, sl_detail(),
          bad[i].text);
  }
}

static void check_all(uint64_t seed) {
  (void)seed;
  const char *source = getenv("SLUICE_SOURCE");
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/reference/images.txt", source ? source : ".");
  CHECK(reference_lines(path, check_line) == 23, "all cases are there");
}

int main(void) {
  RUN_AS("check_all", on_every_level(check_all, 1));
  RUN(check_refusals);
  return 0;
}
