/* SPDX-License-Identifier: Apache-2.0 */
/* Muon updates matrices as PyTorch does (reference/muon.txt), for any shape and on every CPU level.
 * A 2 x 2 matrix has the direction worked out by hand, and a large matrix ends with singular values
 * near one.
 * labels: unthreaded */
#include <stdlib.h>

#include "base/base.h"
#include "tests/support/kernel_call.h"
#include "tests/support/kernel_levels.h"

enum { MOST = 64 };

static kernel muon(const sl_optimizer *o, int64_t rows, int64_t columns, int parts) {
  sl_type matrix = SL_TYPE(SL_F32, rows, columns);
  sl_type types[] = {SL_SCALAR(SL_F32), matrix, matrix};
  kernel k = kernel_create(&sl_op_muon, (sl_attrs){.user = o}, 1 + parts, types, 2);
  *(float *)k.in[0] = 1;
  for (int i = 0; i < 2; i++) memset(k.out[i], 0, sl_type_bytes(&matrix));
  return k;
}

static void check_near(double got, double want, double tolerance, const char *what) {
  CHECK(fabs(got - want) <= tolerance * (1 + fabs(want)), "%s is %.9g, should be %.9g", what, got,
        want);
}

/* ---- by hand ----------------------------------------------------------------------- */

static void check_four(uint64_t seed) {
  (void)seed;
  static const float want[] = {-.680661f, .825540f, .741295f, .259440f};
  sl_optimizer o =
      sl_optimizer_defaults(&(sl_optimizer){.rule = &sl_op_muon, .lr = 1, .weight_decay = SL_OFF});
  kernel k = muon(&o, 2, 2, 1);
  for (int i = 0; i < 4; i++) ((float *)k.in[1])[i] = (float)(i + 1);
  kernel_run(&k, NULL);
  for (int i = 0; i < 4; i++)
    check_near(-(double)((float *)k.out[0])[i], (double)want[i], 2e-6, "a direction");
  kernel_destroy(&k);
}

/* ---- against PyTorch ----------------------------------------------------------------- */

static float *field(sl_optimizer *o, const char *name) {
  if (!strcmp(name, "lr")) return &o->lr;
  if (!strcmp(name, "momentum")) return &o->momentum;
  CHECK(!strcmp(name, "weight_decay"), "what is %s?", name);
  return &o->weight_decay;
}

static void read_case(char *line, sl_optimizer *o, int64_t dims[2]) {
  strtok(line, " \n");
  for (int i = 0; i < 2; i++) dims[i] = strtoll(strtok(NULL, " "), NULL, 10);
  *o = (sl_optimizer){.rule = &sl_op_muon};
  for (char *word; (word = strtok(NULL, " \n"));) {
    char *equals = strchr(word, '=');
    *equals = 0;
    double value = strtod(equals + 1, NULL);
    *field(o, word) = value == 0 ? SL_OFF : (float)value;
  }
  *o = sl_optimizer_defaults(o);
}

static void read_numbers(char *text, int64_t n, double *out) {
  for (int64_t i = 0; i < n; i++) out[i] = strtod(text, &text);
}

/* The gradient comes in two parts, scaled by 2. */
static void step(kernel *k, char *line, int64_t n) {
  double g[MOST], want[MOST];
  read_numbers(line + strlen("step"), n, g);
  read_numbers(strchr(line, '|') + 1, n, want);
  *(float *)k->in[0] = 2;
  for (int64_t i = 0; i < n; i++)
    for (int part = 0; part < 2; part++) ((float *)k->in[1 + part])[i] = (float)g[i] / 4;
  kernel_run(k, NULL);
  k->tick.step++;
  for (int64_t i = 0; i < n; i++)
    check_near((double)((float *)k->out[0])[i], want[i], 2e-6, "an element");
}

static void check_reference(uint64_t seed) {
  (void)seed;
  const char *source = getenv("SLUICE_SOURCE");
  char path[4096], line[8192];
  snprintf(path, sizeof path, "%s/tests/reference/muon.txt", source ? source : ".");
  FILE *file = fopen(path, "r");
  CHECK(file, "cannot open %s", path);
  sl_optimizer o;
  kernel k;
  int64_t dims[2] = {0};
  double from[MOST];
  int cases = 0;
  while (fgets(line, sizeof line, file)) {
    int64_t n = dims[0] * dims[1];
    if (!strncmp(line, "case", 4)) {
      if (cases++) kernel_destroy(&k);
      read_case(line, &o, dims);
      k = muon(&o, dims[0], dims[1], 2);
    } else if (!strncmp(line, "from", 4)) {
      read_numbers(line + strlen("from"), n, from);
      for (int64_t i = 0; i < n; i++) ((float *)k.out[0])[i] = (float)from[i];
    } else step(&k, line, n);
  }
  kernel_destroy(&k);
  fclose(file);
  CHECK(cases == 5, "%d cases", cases);
}

/* ---- a large matrix ------------------------------------------------------------------- */

/* Checks that X^T X (or X X^T for a wide matrix) has the trace of singular values from 0.5 to 1.5:
 * the steps leave them there unless one was tiny. */
static void check_singular_values(uint64_t seed) {
  enum { ROWS = 300, COLUMNS = 40 };
  sl_optimizer o =
      sl_optimizer_defaults(&(sl_optimizer){.rule = &sl_op_muon, .lr = 1, .weight_decay = SL_OFF});
  seed_random(seed + 1);
  for (int wide = 0; wide < 2; wide++) {
    int rows = wide ? COLUMNS : ROWS, columns = wide ? ROWS : COLUMNS;
    kernel k = muon(&o, rows, columns, 1);
    array_random(k.in[1], &k.in_type[1], 0);
    kernel_run(&k, NULL);
    double trace = 0, factor = sqrt(fmax(1, (double)rows / columns));
    for (int i = 0; i < rows * columns; i++)
      trace += pow((double)((float *)k.out[0])[i] / factor, 2);
    CHECK(trace > 0.5 * 0.5 * COLUMNS && trace < 1.5 * 1.5 * COLUMNS,
          "%d x %d: the squares of %d singular values add up to %g", rows, columns, COLUMNS, trace);
    kernel_destroy(&k);
  }
}

static void refuses_what_is_no_matrix(void) {
  sl_optimizer o = sl_optimizer_defaults(&(sl_optimizer){.rule = &sl_op_muon});
  sl_attrs attrs = {.user = &o};
  sl_type in[] = {SL_SCALAR(SL_F32), SL_TYPE(SL_F32, 5)}, out[2];
  CHECK(sl_op_muon.infer(&attrs, 2, in, out) == SL_E_SHAPE && strstr(sl_detail(), "matrices"),
        "a vector is refused: %s", sl_detail());
}

int main(void) {
  RUN(refuses_what_is_no_matrix);
  RUN_AS("four numbers", on_every_level(check_four, 0));
  RUN_AS("as PyTorch", on_every_level(check_reference, 0));
  RUN_AS("singular values", on_every_level(check_singular_values, 0));
  return 0;
}
