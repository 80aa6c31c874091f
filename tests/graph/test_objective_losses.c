/* SPDX-License-Identifier: Apache-2.0 */
/* Preference losses and losses of sampled answers match TRL on the same numbers
 * (reference/objectives.txt), and so do their gradients. Finite differences confirm the gradients.
 * labels: unthreaded */
#include <math.h>
#include <string.h>

#include <sluice/sluice.h>

#include "tests/support/graph_interp.h"
#include "tests/support/reference_file.h"
#include "tests/support/rng.h"

enum { ROWS = 4, CONTEXT = 5, CLASSES = 7, AT = ROWS * CONTEXT, ALL = AT * CLASSES };

/* The numbers of a case, which the source hands out. */
typedef struct trl_case {
  char kind[16], name[32];
  bool grpo;
  sl_dpo dpo;
  sl_grpo policy;
  float logits[ALL], weights[AT], reference[AT], old[AT], advantages[ROWS];
  int32_t targets[AT];
  double loss, grad[ALL];
} trl_case;

static const sl_type types[] = {{SL_I32, 2, {ROWS, CONTEXT}},
                                {SL_F32, 2, {ROWS, CONTEXT}},
                                {SL_F32, 2, {ROWS, CONTEXT}},
                                {SL_F32, 2, {ROWS, CONTEXT}},
                                {SL_F32, 2, {ROWS, 1}}};
enum { TARGETS, WEIGHTS, REFERENCE, OLD, ADVANTAGES, SOURCES };

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  const trl_case *c = ctx;
  const void *from[SOURCES] = {c->targets, c->weights, c->reference, c->old, c->advantages};
  (void)tick;
  for (int o = 0; o < SOURCES; o++)
    if (out[o]) memcpy(out[o], from[o], sl_type_bytes(&types[o]));
}

/* A graph whose logits are a parameter, so that the parameter's gradient is the loss's gradient. */
typedef struct made {
  sl_source source;
  sl_graph *g;
  sl_tensor *logits;
  interp in;
} made;

static void make(made *m, trl_case *c) {
  m->source = (sl_source){.nout = SOURCES, .types = types, .fill = fill, .ctx = c};
  m->g = sl_graph_create(NULL);
  sl_tensor *of[SOURCES], *loss;
  m->logits = sl_param(m->g, SL_TYPE(SL_F32, ROWS, CONTEXT, CLASSES), SL_CONSTANT(0), "logits");
  sl_data(m->g, &m->source, of);
  if (c->grpo) {
    loss = sl_grpo_loss(m->g, m->logits, of[TARGETS], of[OLD], of[ADVANTAGES], of[WEIGHTS],
                        of[REFERENCE], &c->policy);
  } else {
    sl_tensor *each = sl_mul(m->g, of[REFERENCE], of[WEIGHTS]);
    loss = sl_dpo_loss(m->g, sl_answer_logprobs(m->g, m->logits, of[TARGETS], of[WEIGHTS]),
                       sl_sum(m->g, each, SL_DIM(1), false), &c->dpo);
  }
  sl_train(m->g, loss, NULL);
  CHECK(!sl_graph_status(m->g) && !sli_pass_gradients(m->g), "%s: %s", c->name, sl_detail());
  m->in = interp_create(m->g, 3);
  memcpy(interp_data(&m->in, m->logits), c->logits, sizeof c->logits);
}

static void unmake(made *m) {
  interp_destroy(&m->in);
  sl_graph_destroy(m->g);
}

/* ---- TRL's figures -------------------------------------------------------------------------- */

static double next(char **at) { return strtod(*at, at); }

static void read_floats(char **at, int count, float *to) {
  for (int i = 0; i < count; i++) to[i] = (float)next(at);
}

static float or_off(double x) { return x != 0 ? (float)x : SL_OFF; }

/* Reads a case. TRL's loss is the mean over answer tokens; here the loss is over all tokens and the
 * weights select the answers. */
static void read_case(char *line, trl_case *c) {
  int skip = 0;
  *c = (trl_case){.grpo = false};
  CHECK(sscanf(line, "%15s %31s %n", c->kind, c->name, &skip) == 2, "a line without a name");
  char *at = line + skip;
  CHECK(next(&at) == ROWS && next(&at) == CONTEXT && next(&at) == CLASSES, "sizes");
  c->grpo = !strcmp(c->kind, "grpo");
  if (c->grpo) {
    c->policy.clip_low = (float)next(&at), c->policy.clip_high = (float)next(&at);
    c->policy.bound = or_off(next(&at)), c->policy.kl = (float)next(&at);
  } else c->dpo.beta = (float)next(&at);
  read_floats(&at, ALL, c->logits);
  for (int i = 0; i < AT; i++) c->targets[i] = (int32_t)next(&at);
  read_floats(&at, AT, c->weights);
  read_floats(&at, AT, c->reference);
  if (c->grpo) read_floats(&at, AT, c->old), read_floats(&at, ROWS, c->advantages);
  c->loss = next(&at);
  for (int i = 0; i < ALL; i++) c->grad[i] = next(&at);
  float sum = 0;
  for (int i = 0; i < AT; i++) sum += c->weights[i];
  for (int i = 0; i < AT && c->grpo; i++) c->weights[i] *= AT / sum;
}

static void is_near(const trl_case *c, const char *what, double got, double want) {
  CHECK(fabs(got - want) <= 2e-6 * (1e-1 + fabs(want)), "%s %s: %s is %.9g, of TRL %.9g", c->kind,
        c->name, what, got, want);
}

static void check_case(char *line) {
  trl_case c;
  made m;
  read_case(line, &c);
  make(&m, &c);
  is_near(&c, "the loss", interp_backward(&m.in, 0), c.loss);
  const float *grad = interp_data(&m.in, m.logits->grads[0]);
  for (int i = 0; i < ALL; i++) is_near(&c, "a gradient", (double)grad[i], c.grad[i]);
  unmake(&m);
}

static void they_are_what_trl_finds(void) {
  char path[512];
  const char *source = getenv("SLUICE_SOURCE");
  snprintf(path, sizeof path, "%s/tests/reference/objectives.txt", source ? source : ".");
  CHECK(reference_lines(path, check_case) == 6, "a line a case");
}

/* ---- finite differences -------------------------------------------------------------------- */

static float draw(rng *d, float scale) { return scale * ((float)(rng_below(d, 2001)) / 1000 - 1); }

static void draw_case(trl_case *c, rng *d, bool grpo) {
  *c = (trl_case){.grpo = grpo, .dpo = {1.5f, 0.25f}, .policy = {.kl = 0.5f, .bound = 1.5f}};
  strcpy(c->name, "drawn");
  for (int i = 0; i < ALL; i++) c->logits[i] = draw(d, 2);
  for (int i = 0; i < AT; i++) {
    c->targets[i] = (int32_t)(rng_below(d, CLASSES));
    c->weights[i] = rng_below(d, 3) ? 1.5f : 0;
    c->reference[i] = -2 + draw(d, 0.5f);
    c->old[i] = -2 + draw(d, 1);
  }
  for (int i = 0; i < ROWS; i++) c->advantages[i] = draw(d, 2);
}

/* At the kinks of the clips a finite difference matches neither side: a few elements may be off. */
static void gradients_are_slopes(void) {
  enum { CASES = 6, MOST_AT_KINKS = 12 };
  const float step = 1.0f / 128;
  rng d = {7, 0};
  int off = 0;
  for (int k = 0; k < CASES; k++) {
    trl_case c;
    made m;
    draw_case(&c, &d, k % 2);
    make(&m, &c);
    interp_backward(&m.in, 0);
    float *logits = interp_data(&m.in, m.logits), grad[ALL];
    memcpy(grad, interp_data(&m.in, m.logits->grads[0]), sizeof grad);
    for (int i = 0; i < ALL; i++) {
      float x = logits[i];
      logits[i] = x + step;
      double above = interp_forward(&m.in, 0);
      logits[i] = x - step;
      double below = interp_forward(&m.in, 0), slope = (above - below) / (2 * (double)step);
      logits[i] = x;
      if (fabs(slope - (double)grad[i]) <= 2e-4 + 5e-3 * fabs(slope)) continue;
      CHECK(c.grpo, "dpo: gradient %d is %g, the slope %g", i, (double)grad[i], slope);
      off++;
    }
    unmake(&m);
  }
  CHECK(off <= MOST_AT_KINKS, "%d gradients of %d are no slopes", off, CASES / 2 * ALL);
}

/* ---- numbers by hand --------------------------------------------------------------------------
 */

/* A pair with log-probabilities -10 and -12; the reference has -11 and -12.5. */
static void a_pair_has_the_loss_of_the_paper(void) {
  sl_graph *g = sl_graph_create(NULL);
  sl_tensor *own = sl_param(g, SL_TYPE(SL_F32, 2), SL_CONSTANT(0), "own");
  sl_tensor *reference = sl_constant(g, SL_TYPE(SL_F32, 2), ((const float[]){-11, -12.5f}), own);
  sl_train(g, sl_dpo_loss(g, own, reference, NULL), NULL);
  CHECK(!sl_graph_status(g) && !sli_pass_gradients(g), "%s", sl_detail());
  interp in = interp_create(g, 3);
  memcpy(interp_data(&in, own), (const float[]){-10, -12}, 2 * sizeof(float));
  double loss = interp_backward(&in, 0);
  CHECK(fabs(loss - 0.668460) < 5e-7, "the loss is %.9f", loss);
  const float *grad = interp_data(&in, own->grads[0]);
  double slope = -0.1 / (1 + exp(0.05)); /* -beta sigmoid(-margin) */
  CHECK(fabs((double)grad[0] - slope) < 1e-7 && fabs((double)grad[1] + slope) < 1e-7,
        "gradients %g and %g, not %g", (double)grad[0], (double)grad[1], slope);
  interp_destroy(&in);
  sl_graph_destroy(g);
}

static void advantages_are_of_the_group(void) {
  const double rewards[] = {1, 0, 0, 1, 0.1};
  const double wanted[] = {1.09220, -0.79090, -0.79090, 1.09220, -0.60259};
  const double dropped[] = {1, NAN, 0, 0, 1, 0.1};
  double found[6], alone, same[2];
  CHECK(fabs(sl_grpo_advantages(5, rewards, found) - 0.531037) < 1e-6, "the deviation");
  for (int i = 0; i < 5; i++)
    CHECK(fabs(found[i] - wanted[i]) < 6e-6, "advantage %d is %g", i, found[i]);
  sl_grpo_advantages(6, dropped, found);
  CHECK(isnan(found[1]) && fabs(found[2] - wanted[1]) < 6e-6, "a reward that is none counts");
  sl_grpo_advantages(1, rewards, &alone);
  sl_grpo_advantages(2, (const double[]){3, 3}, same);
  CHECK(alone == 0 && same[0] == 0 && same[1] == 0, "no advantage over oneself, or the like");
}

/* On policy every ratio is 1, the kink of the clips. The gradient must still be that of -A lp. */
static void the_first_update_has_the_gradient_of_the_policy(void) {
  trl_case c;
  made m;
  rng d = {11, 0};
  draw_case(&c, &d, true);
  c.policy = (sl_grpo){.kl = SL_OFF};
  for (int i = 0; i < AT; i++) {
    double sum = 0;
    for (int v = 0; v < CLASSES; v++) sum += exp((double)c.logits[i * CLASSES + v]);
    c.old[i] = (float)((double)c.logits[i * CLASSES + c.targets[i]] - log(sum));
  }
  make(&m, &c);
  interp_backward(&m.in, 0);
  const float *grad = interp_data(&m.in, m.logits->grads[0]);
  for (int i = 0; i < AT; i++) {
    double sum = 0, scale = -(double)c.weights[i] / AT * (double)c.advantages[i / CONTEXT];
    for (int v = 0; v < CLASSES; v++) sum += exp((double)c.logits[i * CLASSES + v]);
    for (int v = 0; v < CLASSES; v++) {
      double p = exp((double)c.logits[i * CLASSES + v]) / sum;
      double wanted = scale * ((v == c.targets[i]) - p);
      CHECK(fabs((double)grad[i * CLASSES + v] - wanted) < 1e-6, "position %d: %g, not %g", i,
            (double)grad[i * CLASSES + v], wanted);
    }
  }
  unmake(&m);
}

/* ---- distillation ---------------------------------------------------------------------------- */

static double log_sum(const float *x, const bool *among, double temperature) {
  double sum = 0;
  for (int v = 0; v < CLASSES; v++)
    if (!among || among[v]) sum += exp((double)x[v] / temperature);
  return log(sum);
}

/* The divergence from the teacher's `top` most likely tokens, in double precision. */
static double divergence(const float *teacher, const float *own, int top, double t) {
  bool among[CLASSES];
  double sum = 0;
  for (int v = 0; v < CLASSES; v++) {
    int before = 0;
    for (int w = 0; w < CLASSES; w++)
      before += teacher[w] > teacher[v] || (teacher[w] == teacher[v] && w < v);
    among[v] = before < top;
  }
  double norm = log_sum(teacher, among, t), own_norm = log_sum(own, NULL, t);
  for (int v = 0; v < CLASSES; v++) {
    double p = (double)teacher[v] / t - norm;
    if (among[v]) sum += exp(p) * (p - ((double)own[v] / t - own_norm));
  }
  return sum;
}

static double wanted_of(const sl_distill *s, const trl_case *c, const float *teacher,
                        bool weighted) {
  double sum = 0, t = (double)s->temperature;
  for (int i = 0; i < AT; i++) {
    const float *x = c->logits + (size_t)i * CLASSES;
    double kl = divergence(teacher + (size_t)i * CLASSES, x, s->top ? s->top : CLASSES, t);
    if (weighted) kl *= (double)c->weights[i];
    double data = weighted ? 0 : log_sum(x, NULL, 1) - (double)x[c->targets[i]];
    sum += ((1 - (double)s->data) * t * t * kl + (double)s->data * data) / AT;
  }
  return sum;
}

static double found_of(const sl_distill *s, trl_case *c, const float *teacher, bool weighted) {
  sl_objective *o = sl_distill_create(NULL, NULL, s);
  const sl_source source = {.nout = SOURCES, .types = types, .fill = fill, .ctx = c};
  sl_type type = SL_TYPE(SL_F32, ROWS, CONTEXT, CLASSES);
  sl_graph *g = sl_graph_create(NULL);
  sl_tensor *own = sl_param(g, type, SL_CONSTANT(0), "own"), *of[SOURCES],
            *frozen[SL_FROZEN_MOST] = {NULL};
  sl_data(g, &source, of);
  o->frozen(o->ctx, g, sl_constant(g, type, teacher, own), of[TARGETS], frozen);
  sl_train(g,
           weighted ? sl_distill_loss(g, own, frozen, of[WEIGHTS], s)
                    : o->loss(o->ctx, g, own, of[TARGETS], frozen),
           NULL);
  CHECK(!sl_graph_status(g) && !sli_pass_gradients(g), "%s", sl_detail());
  interp in = interp_create(g, 3);
  memcpy(interp_data(&in, own), c->logits, sizeof c->logits);
  double loss = interp_backward(&in, 0);
  interp_destroy(&in);
  sl_graph_destroy(g);
  sl_distill_destroy(o);
  return loss;
}

static void distillation_is_the_divergence_of_the_likeliest(void) {
  static const sl_distill all[] = {{0, 1, 0}, {3, 1, 0}, {CLASSES, 2, 0}, {2, 0.5f, 0.25f}};
  rng d = {3, 0};
  float teacher[ALL];
  trl_case c;
  draw_case(&c, &d, false);
  for (int i = 0; i < ALL; i++) teacher[i] = draw(&d, 2);
  for (size_t k = 0; k < 2 * SLI_COUNT(all); k++) {
    const sl_distill *s = &all[k / 2];
    double found = found_of(s, &c, teacher, k % 2), wanted = wanted_of(s, &c, teacher, k % 2);
    CHECK(fabs(found - wanted) < 2e-6 * (1 + wanted), "case %zu: %.9g, not %.9g", k, found, wanted);
  }
}

/* ---- refused losses ------------------------------------------------------------------------- */

static void odd_shapes_are_refused(void) {
  sl_graph *g = sl_graph_create(NULL);
  sl_tensor *own = sl_param(g, SL_TYPE(SL_F32, 3), SL_CONSTANT(0), "own");
  CHECK(!sl_dpo_loss(g, own, own, NULL) && strstr(sl_detail(), "dpo: 3 rows in a microbatch"), "%s",
        sl_detail());
  sl_graph_destroy(g);
  g = sl_graph_create(NULL);
  own = sl_param(g, SL_TYPE(SL_F32, 2), SL_CONSTANT(0), "own");
  CHECK(!sl_dpo_loss(g, own, own, &(sl_dpo){.smoothing = 0.5f}) &&
            strstr(sl_detail(), "smoothing is 0.5, must be from 0 to less than 0.5"),
        "%s", sl_detail());
  sl_graph_destroy(g);
  trl_case c = {.grpo = true};
  const sl_source source = {.nout = SOURCES, .types = types, .fill = fill, .ctx = &c};
  sl_tensor *of[SOURCES];
  g = sl_graph_create(NULL);
  sl_tensor *logits =
      sl_param(g, SL_TYPE(SL_F32, ROWS, CONTEXT, CLASSES), SL_CONSTANT(0), "logits");
  sl_data(g, &source, of);
  CHECK(!sl_grpo_loss(g, logits, of[TARGETS], of[ADVANTAGES], of[ADVANTAGES], of[WEIGHTS], NULL,
                      NULL) &&
            strstr(sl_detail(), "grpo: old log-probabilities must be f32[4, 5], got f32[4, 1]"),
        "%s", sl_detail());
  sl_graph_destroy(g);
}

int main(void) {
  RUN(they_are_what_trl_finds);
  RUN(gradients_are_slopes);
  RUN(a_pair_has_the_loss_of_the_paper);
  RUN(advantages_are_of_the_group);
  RUN(the_first_update_has_the_gradient_of_the_policy);
  RUN(distillation_is_the_divergence_of_the_likeliest);
  RUN(odd_shapes_are_refused);
  return 0;
}
