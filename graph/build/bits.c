/* SPDX-License-Identifier: Apache-2.0 */
/* Bit routers (objective.h): each row of a mixture is multiplied with the planes that the bit
 * router of its expert chooses. All widths are computed, so that the choice has a gradient. */
#define SL_MODEL_BUILTIN /* errors must not name lines of this file */
#include "graph/build/build.h"

#include <stdlib.h>
#include <string.h>

#include <sluice/objective.h>

#include "ops/ops.h"
#include "ops/planes.h"

static const char star[] = ".experts.*.", ending[] = ".experts.*.bits.weight";

/* True for the name of bit routers. */
static bool is_router(const char *param) {
  size_t n = strlen(param), end = strlen(ending);
  return n > end && !strcmp(param + n - end, ending);
}

sl_tensor *sli_bits_router(sl_here at, sl_graph *g, const sl_tensor *matrix, int64_t experts,
                           int64_t widths, int64_t k) {
  const char *found = strstr(matrix->name, star);
  if (!found) {
    sli_graph_fail_at(g, at, SL_E_UNSUPPORTED,
                      "experts in planes: %s names no experts (%s), so bit routers have no name",
                      matrix->name, star);
    return NULL;
  }
  return sl_param_at(at, g, SL_TYPE(SL_F32, experts, widths, k), SL_NORMAL(0.02f), "%.*s%s",
                     (int)(found - matrix->name), matrix->name, ending);
}

/* ---- a mixture ------------------------------------------------------------------------------ */

/* The products of a mixture, of which the last is about to be built. */
typedef struct mixture {
  sl_here at;
  sl_graph *g;
  const sl_bits *bits;
  sl_tensor *x, *ids, *w[3]; /* gate, up, down */
} mixture;

static sli_node *maker_of(const sl_tensor *t, const sl_op *op) {
  return t && t->producer && t->producer->op == op ? t->producer : NULL;
}

static bool find_mixture(mixture *m, const sl_tensor *inner, const sl_tensor *ids, sl_tensor *w) {
  const sli_node *activation = maker_of(inner, &sl_op_swiglu), *in[2];
  for (int i = 0; i < 2; i++) {
    in[i] = activation ? maker_of(activation->in[i], &sl_op_grouped_linear) : NULL;
    if (!in[i] || in[i]->in[1] != ids || !in[i]->in[2]->param) return false;
    m->w[i] = in[i]->in[2];
  }
  m->x = in[0]->in[0];
  m->w[2] = w;
  return in[0] != in[1] && in[1]->in[0] == m->x && w && w->param;
}

/* The numbers of a matrix in planes of so many bits. */
static sl_tensor *values_of(const mixture *m, int i, int width) {
  const sl_attrs attrs = {.planes.base = m->bits->base, .planes.width = width};
  return sl_op1_at(m->at, m->g, &sl_op_plane_values, &attrs, m->w[i]);
}

static sl_tensor *product(const mixture *m, sl_tensor *x, int i, int width) {
  const sl_attrs attrs = {.place.whole = sl_dim(m->w[i], 0)};
  return sl_op3_at(m->at, m->g, &sl_op_grouped_linear, &attrs, x, m->ids, values_of(m, i, width));
}

/* Returns what the last product reads. Nodes of the mixture as written compute the first width. */
static sl_tensor *inner_of(const mixture *m, sl_tensor *inner, int width) {
  if (width > m->bits->base) {
    sl_tensor *gate = product(m, m->x, 0, width), *up = product(m, m->x, 1, width);
    return sl_op2_at(m->at, m->g, &sl_op_swiglu, NULL, gate, up);
  }
  for (int i = 0; i < 2; i++) {
    sli_node *n = inner->producer->in[i]->producer;
    sl_tensor *values = values_of(m, i, width);
    if (!values) return NULL;
    sli_graph_move_before(m->g, n);
    n->in[2] = values;
  }
  return inner;
}

/* Returns the results of all widths, [..., k, V, N]. */
static sl_tensor *all_widths(const mixture *m, sl_tensor *inner) {
  int count = m->bits->width - m->bits->base + 1;
  sl_tensor *y[SL_BITS_WIDTHS];
  for (int v = 0; v < count; v++) {
    int width = m->bits->base + v;
    y[v] = product(m, inner_of(m, inner, width), 2, width);
    if (!y[v]) return NULL;
    sl_type apart = y[v]->type;
    apart.dim[apart.ndim] = apart.dim[apart.ndim - 1];
    apart.dim[apart.ndim++ - 1] = 1;
    y[v] = sl_reshape_at(m->at, m->g, y[v], apart);
  }
  return sl_concat_at(m->at, m->g, -2, count, y);
}

/* Adds the bits of each row, by the weights [..., k, V] of widths, to a sum over mixtures. */
static void add_bits(const mixture *m, sl_tensor *weights, sl_tensor **sum) {
  int count = m->bits->width - m->bits->base + 1;
  float widths[SL_BITS_WIDTHS];
  for (int v = 0; v < count; v++) widths[v] = (float)(m->bits->base + v);
  sl_tensor *b = sl_constant_at(m->at, m->g, SL_TYPE(SL_F32, count), widths, NULL);
  sl_tensor *bits = sl_sum_at(m->at, m->g, sl_mul_at(m->at, m->g, weights, b),
                              weights ? SL_DIM(weights->type.ndim - 1) : 0, false);
  *sum = *sum ? sl_op2_at(m->at, m->g, &sl_op_add, NULL, *sum, bits) : bits;
}

static sl_tensor *choose(const mixture *m, sl_tensor *p) {
  int count = m->bits->width - m->bits->base + 1;
  sl_attrs attrs = {.experts.count = sl_dim(m->w[0], 0)};
  for (int v = 0; v < count; v++) {
    attrs.experts.capacity[v] = (int64_t)((double)m->bits->capacity[v] * SLI_BITS_ALL + 0.5);
    if (attrs.experts.capacity[v]) attrs.experts.ncapacities = count;
  }
  return sl_op2_at(m->at, m->g, &sl_op_bit_choice, &attrs, p, m->ids);
}

sl_tensor *sli_bits_mixture(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *ids, sl_tensor *w) {
  const sl_objective *o = sli_objective(g);
  if (!o || !o->bits || g->status || g->frozen.builds) return NULL;
  mixture m = {.at = at, .g = g, .bits = o->bits, .ids = ids};
  if (!find_mixture(&m, x, ids, w)) return NULL;
  int64_t experts = sl_dim(w, 0), widths = o->bits->width - o->bits->base + 1;
  sl_tensor *router = sli_bits_router(at, g, w, experts, widths, sl_dim(m.w[0], 2));
  const sl_attrs attrs = {.place.whole = experts};
  sl_tensor *logits = sl_op3_at(at, g, &sl_op_grouped_linear, &attrs, m.x, ids, router);
  sl_tensor *p = sl_softmax_at(at, g, logits, -1, false), *hard = choose(&m, p);
  sl_tensor *y = all_widths(&m, x);
  add_bits(&m, p, &g->bits.expected);
  add_bits(&m, hard, &g->bits.chosen);
  g->bits.count++;
  /* the value of `hard` with the gradient of p */
  sl_tensor *rest = sl_detach(g, sl_sub(g, hard, p));
  return sl_op2_at(at, g, &sl_op_combine, NULL, y, sl_add(g, p, rest));
}

/* ---- training ------------------------------------------------------------------------------- */

sl_status sli_bits_settle(sl_graph *g) {
  const sl_objective *o = sli_objective(g);
  if (!o || !o->bits || g->status) return g->status;
  if (g->training.adapters.nrules)
    return sl_graph_fail(g, SL_E_USAGE,
                         "lora %s: cannot be combined with bit routers, which are trained alone",
                         g->training.adapters.rules[0].pattern);
  for (int i = 0; i < g->nparams; i++)
    if (!is_router(g->params[i]->name))
      g->params[i]->needs_grad = false, g->params[i]->running = NULL;
  return SL_OK;
}

static void make_frozen(void *ctx, sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                        sl_tensor **frozen) {
  (void)ctx, (void)targets;
  frozen[0] = sl_softmax(g, logits, -1);
}

static sl_tensor *make_loss(void *ctx, sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                            sl_tensor *const *frozen) {
  const sl_bits *bits = ((const sl_objective *)ctx)->bits;
  (void)targets;
  if (!g->bits.count) {
    sl_graph_fail(g, SL_E_UNSUPPORTED,
                  "bit routers: the model has no mixtures of gate, up and down with SwiGLU");
    return NULL;
  }
  float each = 1 / (float)g->bits.count;
  /* [B, T, V]; the factor makes a sum of the mean over V */
  sl_tensor *ce = sl_mul(g, frozen[0], sl_log_softmax(g, logits, -1));
  ce = sl_scale(g, ce, -(float)sl_dim(ce, -1));
  sl_step_value(g, "bits", sl_scale(g, g->bits.chosen, each), SL_OVER_MEAN);
  sl_tensor *loss = sl_mean(g, ce, 0, false);
  if (!(bits->alpha > 0)) return loss;
  sl_tensor *mean = sl_mean(g, sl_scale(g, g->bits.expected, bits->alpha * each), 0, false);
  return sl_add(g, loss, mean);
}

typedef struct routing {
  sl_objective objective;
  sl_bits settings;
} routing;

sl_objective *sl_bits_create(const sl_bits *settings) {
  routing *r = sli_calloc(1, sizeof *r);
  r->settings = *settings;
  r->objective = (sl_objective){.name = "bit routers",
                                .loss = make_loss,
                                .frozen = make_frozen,
                                .bits = &r->settings,
                                .ctx = &r->objective};
  return &r->objective;
}

void sl_bits_destroy(sl_objective *objective) { free(objective); }
