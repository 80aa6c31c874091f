/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers match PyTorch's (reference/optimizers.txt) on every CPU level. Open settings take
 * their defaults, the rate of a step follows its schedule, and the hash of a plan covers every
 * setting.
 * labels: unthreaded */
#include <stdlib.h>

#include "base/base.h"
#include "tests/support/kernel_call.h"
#include "tests/support/kernel_levels.h"

enum { SIZE = 5, MOST_STATES = 2 };

static void check_near(double got, double want, const char *what) {
  CHECK(fabs(got - want) <= 1e-6 * (1 + fabs(want)), "%s is %.12g, should be %.12g", what, got,
        want);
}

/* ---- against PyTorch -------------------------------------------------------------------- */

static float *field(sl_optimizer *o, const char *name) {
  if (!strcmp(name, "lr")) return &o->lr;
  if (!strcmp(name, "beta1")) return &o->beta1;
  if (!strcmp(name, "beta2")) return &o->beta2;
  if (!strcmp(name, "eps")) return &o->eps;
  if (!strcmp(name, "momentum")) return &o->momentum;
  CHECK(!strcmp(name, "weight_decay"), "what is %s?", name);
  return &o->weight_decay;
}

/* Reads "case NAME key=value ...". */
static void read_case(char *line, sl_optimizer *o) {
  strtok(line, " \n");
  const char *name = strtok(NULL, " \n");
  *o = (sl_optimizer){.rule = sl_op_find(name)};
  CHECK(o->rule && o->rule->update, "%s is no optimizer", name);
  for (char *word; (word = strtok(NULL, " \n"));) {
    char *equals = strchr(word, '=');
    *equals = 0;
    double value = strtod(equals + 1, NULL);
    if (!strcmp(word, "nesterov")) o->nesterov = value != 0;
    else *field(o, word) = value == 0 ? SL_OFF : (float)value;
  }
  *o = sl_optimizer_defaults(o);
}

static void read_numbers(char *text, double *out) {
  for (int i = 0; i < SIZE; i++) out[i] = strtod(text, &text);
}

typedef struct one {
  sl_optimizer o;
  kernel k;
} one;

/* All values appear twice: only arrays of two dims decay. The gradient comes in two parts, scaled
 * by 2. */
static void begin(one *x, char *line) {
  double from[SIZE];
  sl_type type = SL_TYPE(SL_F32, 1, SIZE), types[] = {SL_SCALAR(SL_F32), type, type};
  x->k = kernel_create(x->o.rule, (sl_attrs){.user = &x->o}, 3, types, x->o.rule->nout);
  *(float *)x->k.in[0] = 2;
  read_numbers(line + strlen("from"), from);
  for (int i = 0; i < SIZE; i++) ((float *)x->k.out[0])[i] = (float)from[i];
  const sl_update *u = x->o.rule->update;
  for (int s = 0; s < u->nstates; s++) memset(x->k.out[1 + s], 0, sl_type_bytes(&type));
  for (int s = u->needs ? u->needs(&x->o) : u->nstates; s < u->nstates; s++) {
    free(x->k.out[1 + s]);
    x->k.out[1 + s] = NULL;
  }
}

static void step(one *x, char *line) {
  double g[SIZE], want[SIZE];
  read_numbers(line + strlen("step"), g);
  read_numbers(strchr(line, '|') + 1, want);
  for (int i = 0; i < SIZE; i++)
    for (int part = 0; part < 2; part++) ((float *)x->k.in[1 + part])[i] = (float)g[i] / 4;
  kernel_run(&x->k, NULL);
  x->k.tick.step++;
  for (int i = 0; i < SIZE; i++)
    check_near((double)((float *)x->k.out[0])[i], want[i], x->o.rule->name);
}

static void check_all(uint64_t seed) {
  (void)seed;
  const char *source = getenv("SLUICE_SOURCE");
  char path[4096], line[4096];
  snprintf(path, sizeof path, "%s/tests/reference/optimizers.txt", source ? source : ".");
  FILE *file = fopen(path, "r");
  CHECK(file, "cannot open %s", path);
  one x = {0};
  int cases = 0;
  while (fgets(line, sizeof line, file)) {
    if (!strncmp(line, "case", 4)) {
      if (cases++) kernel_destroy(&x.k);
      read_case(line, &x.o);
    } else if (!strncmp(line, "from", 4)) begin(&x, line);
    else step(&x, line);
  }
  kernel_destroy(&x.k);
  fclose(file);
  CHECK(cases == 7, "%d cases", cases);
}

/* ---- settings ------------------------------------------------------------------------- */

static void what_is_left_open_has_its_default(void) {
  sl_optimizer o = sl_optimizer_defaults(&(sl_optimizer){.eps = 1e-6f});
  CHECK(o.rule == &sl_op_adamw && o.lr == 1e-3f && o.min_lr == 1e-3f / 10 && o.beta1 == 0.9f &&
            o.beta2 == 0.95f && o.eps == 1e-6f && o.weight_decay == 0.1f && o.clip == 1,
        "with eps alone");
  o = sl_optimizer_defaults(&(sl_optimizer){.rule = &sl_op_lion, .weight_decay = SL_OFF});
  CHECK(o.beta2 == 0.99f && o.weight_decay == 0 && o.clip == 1, "Lion's");
  o = sl_optimizer_defaults(&(sl_optimizer){.beta1 = SL_OFF, .clip = SL_OFF, .lr = SL_OFF});
  CHECK(o.beta1 == 0 && o.clip == 0 && o.lr == 0, "SL_OFF is 0");
  CHECK(sl_optimizer_decay(&(sl_optimizer){.weight_decay = 1}, 1) == 0, "a bias");
  CHECK(sl_optimizer_decay(&(sl_optimizer){.weight_decay = 1, .decay_all = true}, 1) == 1, "all");
}

static float halved(const sl_optimizer *o, int64_t step) {
  return o->lr / (float)(1 << SLI_MIN(step, 20));
}

static void the_rate_follows_its_schedule(void) {
  sl_optimizer o = {
      .lr = 1, .min_lr = 0.2f, .warmup = 4, .decay_steps = 24, .schedule = SL_RATE_LINEAR};
  check_near((double)sl_optimizer_lr(&o, 1), 0.5, "warm-up");
  check_near((double)sl_optimizer_lr(&o, 14), 0.6, "linear, half way");
  check_near((double)sl_optimizer_lr(&o, 24), 0.2, "linear, at its end");
  o.schedule = SL_RATE_WSD, o.decay_begin = 20;
  check_near((double)sl_optimizer_lr(&o, 20), 1, "wsd where it begins to decay");
  check_near((double)sl_optimizer_lr(&o, 22), 0.6, "wsd half way down");
  check_near((double)sl_optimizer_lr(&o, 99), 0.2, "wsd ever after");
  o.schedule = SL_RATE_CONSTANT;
  check_near((double)sl_optimizer_lr(&o, 99), 1, "constant, whatever decay_steps says");
  o.schedule = SL_RATE_COSINE, o.lr_scale = 0.5f;
  check_near((double)sl_optimizer_lr(&o, 14), 0.3, "half of a cosine, half way");
  o.rate = halved;
  check_near((double)sl_optimizer_lr(&o, 3), 0.5 / 8, "the user's own");
}

static void every_setting_is_in_the_hash(void) {
  const sl_optimizer all[] = {{.lr = 1},
                              {.lr = 2},
                              {.momentum = 0.9f},
                              {.momentum = 0.8f},
                              {.momentum = 0.9f, .nesterov = true},
                              {.schedule = SL_RATE_LINEAR, .decay_steps = 9},
                              {.schedule = SL_RATE_WSD, .decay_steps = 9},
                              {.decay_steps = 9},
                              {.schedule = SL_RATE_WSD, .decay_steps = 9, .decay_begin = 3},
                              {.schedule = SL_RATE_CONSTANT, .decay_steps = 9},
                              {.decay_all = true},
                              {.lr_scale = 2},
                              {.lr_scale = 3},
                              {.rate = halved, .lr = 1},
                              {.rate = halved, .lr = 3}};
  uint64_t seen[SLI_COUNT(all)];
  for (size_t i = 0; i < SLI_COUNT(all); i++) {
    sl_optimizer o = sl_optimizer_defaults(&all[i]);
    seen[i] = sl_optimizer_hash(1, &(sl_attrs){.user = &o}, 0);
    for (size_t k = 0; k < i; k++) CHECK(seen[k] != seen[i], "settings %zu and %zu", k, i);
  }
}

int main(void) {
  RUN_AS("check_all", on_every_level(check_all, 1));
  RUN(what_is_left_open_has_its_default);
  RUN(the_rate_follows_its_schedule);
  RUN(every_setting_is_in_the_hash);
  return 0;
}
