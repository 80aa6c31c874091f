/* SPDX-License-Identifier: Apache-2.0 */
/* Pass 2, training: from gradient rules to backward and update nodes.
 *
 * Reverse accumulation over the forward nodes, last to first. A node whose outputs have a gradient
 * runs its rules; each rule's outputs are contributions to the gradients of the node's inputs. The
 * first contribution to a tensor is its gradient so far. Every later one immediately adds a sum
 * node, so that the sum is in the block of the last contributing consumer. Only one gradient passes
 * from block to block, however many readers a tensor has.
 *
 * Parameters differ: each use has a separate gradient tensor, summed in place over the step's
 * ticks. If a parameter is used twice (a tied embedding), the uses may be on different stages, and
 * adding them tick by tick would couple these stages. They meet only in the update, in the order of
 * use, so the result does not depend on where the pipeline is cut.
 *
 * The gradient of the loss itself need not wait for the backward pass: its input is a known
 * constant. If the rule allows it (SL_CLASS_F), that gradient is computed right after the loss, and
 * the logits need not be kept. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"

#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"

/* Gradient of a parameter, and the forward use it comes from. */
typedef struct use {
  sl_tensor *param, *grad;
  int node, input;
} use;

typedef struct pass {
  sl_graph *g;
  int64_t microbatches; /* exact: those that the gradients of means divide by */
  int nuses;
  size_t use_capacity;
  use *uses;
} pass;

static bool wanted(const sli_node *n, int i) {
  return i < n->nin && n->in[i] && n->in[i]->needs_grad &&
         !sli_bit_on(sli_op_memory(n->op)->unread, i);
}

static sl_tensor *output_grad(const sli_node *n, int o) {
  return o < n->nout && n->out[o] ? n->out[o]->grad : NULL;
}

static sl_status misfit(sl_graph *g, const sli_node *forward, const sl_op *op, const char *text) {
  return sli_graph_fail_at(g, forward->at, SL_E_SHAPE, "gradient of op %s (%s): %s: %s",
                           forward->name, forward->op->name, op->name, text);
}

/* Adds a backward node with one output, whose op takes no more than its inputs. */
static sl_status add_simple(pass *p, const sli_node *at, const sl_op *op, const char *name,
                            const sl_attrs *attrs, sl_class cls, int nin, sl_tensor *const *in,
                            sli_node **out) {
  sli_node *n = sli_graph_node(p->g, op, name, attrs, cls, at->block, nin, in, 1);
  n->at = at->at;
  if (sli_node_infer(n)) return misfit(p->g, at, op, sl_detail());
  sli_node_output(p->g, n, 0, name);
  *out = n;
  return SL_OK;
}

/* Adds a constant gradient: the seed, or zeros. */
static sl_status add_constant(pass *p, const sli_node *at, const sl_tensor *like, float value,
                              const char *name, sl_tensor **out) {
  sl_type *type = sli_arena_alloc(&p->g->arena, sizeof *type);
  *type = like->type;
  type->dtype = SL_F32;
  const sl_attrs attrs = {.fill.value = value, .user = type};
  sli_node *n = NULL;
  sl_status status = add_simple(p, at, &sl_op_fill, name, &attrs, SL_CLASS_B, 0, NULL, &n);
  if (status) return status;
  n->like = like;
  *out = n->out[0];
  return SL_OK;
}

static sl_status contribute(pass *p, const sli_node *from, sl_tensor *t, sl_tensor *grad) {
  if (!t->grad) {
    t->grad = grad;
    return SL_OK;
  }
  bool sums = t->grad->type.dtype == SL_F64;
  if (sums != (grad->type.dtype == SL_F64))
    return sli_graph_fail_at(p->g, from->at, SL_E_UNSUPPORTED,
                             "numbers.exact: the gradient of %s by op %s is one sum over all rows "
                             "of a microbatch",
                             t->name, from->name);
  const char *name = t->nsums++ ? sli_arena_format(&p->g->arena, "%s:%d:sum", t->name, t->nsums)
                                : sli_arena_format(&p->g->arena, "%s:sum", t->name);
  sli_node *sum = NULL;
  sl_status status = add_simple(p, from, sums ? &sl_op_sum : &sl_op_add, name, NULL, SL_CLASS_B, 2,
                                (sl_tensor *[]){t->grad, grad}, &sum);
  if (!status) t->grad = sum->out[0];
  return status;
}

/* Returns the parameter whose gradient equals that of t: t itself, or the parameter from which
 * straight-through ops compute it, as for a rounded weight. NULL if there is none. */
static sl_tensor *param_of(sl_tensor *t) {
  while (!t->param && t->producer && t == t->producer->out[0] && sli_passes_straight(t->producer))
    t = t->producer->in[0];
  return t->param ? t : NULL;
}

static void add_use(pass *p, const sli_node *from, int input, sl_tensor *grad) {
  SLI_GROW(p->uses, (size_t)p->nuses, p->use_capacity);
  p->uses[p->nuses++] = (use){param_of(from->in[input]), grad, from->id, input};
}

/* ---- sums over the step ----------------------------------------------------------- */

/* True if an argument of a rule has a row for each row of the data. */
static bool has_rows(const pass *p, const sli_node *n, sl_grad_arg arg) {
  const sl_tensor *t = sli_argument_tensor(n, arg);
  return t && p->g->exact.rows[t->id];
}

/* Returns the inputs of a rule's node that have a row for each row of the data. */
static uint32_t leaf_inputs(const pass *p, const sli_node *n, const sli_node *maker) {
  uint32_t leaves = 0;
  for (int a = 0; a < maker->nin; a++)
    if (maker->in[a] && has_rows(p, n, sli_rule_argument(maker->rule, n->nin, n->nout, a)))
      leaves |= 1u << a;
  return leaves;
}

static sl_status refuse_sum(pass *p, const sli_node *from, int input, const sli_node *maker,
                            const char *why) {
  return sli_graph_fail_at(p->g, from->at, SL_E_UNSUPPORTED,
                           "numbers.exact: the gradient of %s by op %s (%s) %s",
                           from->in[input]->name, from->name, maker->op->name, why);
}

/* Finds the leaves of a node that also end within a sequence. Returns an error text, or NULL. */
static const char *cut_leaves(const pass *p, const sli_node *n, sli_node *maker) {
  uint32_t leaves = p->g->exact.positions ? maker->attrs.numbers.leaves : 0;
  for (int a = 0; a < maker->nin; a++) {
    if (!sli_bit(leaves, a)) continue;
    sl_grad_arg arg = sli_rule_argument(maker->rule, n->nin, n->nout, a);
    int dim = p->g->exact.positions[sli_argument_tensor(n, arg)->id];
    if (dim > 1) return "sums over sequences that are not along dim 1 (numbers.leaf)";
    if (dim == 1) maker->attrs.numbers.positions |= 1u << a;
  }
  maker->attrs.numbers.leaf = maker->attrs.numbers.positions ? p->g->exact.leaf : 0;
  return NULL;
}

static bool is_sum(const sl_tensor *t) { return t && t->type.dtype == SL_F64; }

/* Makes output o of a node a sum over rows in f64, row by row or leaf by leaf. */
static sl_status sum_exactly(pass *p, const sli_node *from, int input, sli_node *maker, int o) {
  if (is_sum(maker->out[o])) return SL_OK; /* made of such sums */
  uint32_t leaves = maker->rule ? leaf_inputs(p, from, maker) : 0;
  bool scatters = leaves && sli_op_exact(maker->op)->scatters;
  if (!leaves && sli_is_one_tick(p->g)) return SL_OK; /* a value of the whole microbatch */
  if (!scatters && (!leaves || sli_op_is(maker->op, SL_OP_LOCATED)))
    return refuse_sum(p, from, input, maker, "is one sum over all rows of a microbatch");
  maker->attrs.numbers.leaves = scatters ? 0 : leaves;
  const char *bad = cut_leaves(p, from, maker);
  if (bad) return refuse_sum(p, from, input, maker, bad);
  maker->out_type[o].dtype = maker->out[o]->type.dtype = SL_F64;
  return SL_OK;
}

/* Sums output o of a node, the gradient of an input, over the ticks of a step. */
static sl_status sum_over_step(pass *p, const sli_node *from, int input, sli_node *maker, int o) {
  maker->accumulate_span |= 1u << o;
  return sli_is_exact(p->g) ? sum_exactly(p, from, input, maker, o) : SL_OK;
}

/* Adds a node that copies the gradient of an input. */
static sl_status add_copy(pass *p, const sli_node *from, int input, sl_class cls, sl_tensor *grad,
                          sli_node **out) {
  const char *name = sli_arena_format(&p->g->arena, "%s:copy.%d", from->name, input);
  const sl_op *op = is_sum(grad) ? &sl_op_sum : &sl_op_copy;
  return add_simple(p, from, op, name, NULL, cls, 1, &grad, out);
}

/* Adds a copy that sums a parameter's gradient, if its op cannot sum in place. */
static sl_status add_copied_use(pass *p, const sli_node *from, int input, sl_tensor *grad) {
  sli_node *copy = NULL;
  SLI_TRY(add_copy(p, from, input, SL_CLASS_W, grad, &copy));
  add_use(p, from, input, copy->out[0]);
  return sum_over_step(p, from, input, copy, 0);
}

/* ---- tensors of the step ----------------------------------------------------------
 *
 * A tensor that depends on parameters alone is the same in every tick, like a parameter. Its exact
 * gradient is a sum over rows too, in f64, which flows on to the parameters through ops that only
 * move and add numbers (sl_op_exact.moves). */

static bool is_step_value(const pass *p, const sl_tensor *t) {
  return sli_is_exact(p->g) && !p->g->exact.fed[t->id];
}

/* True if an output of a node depends on data. */
static bool reads_fed(const pass *p, const sli_node *n) {
  for (int o = 0; o < n->nout; o++)
    if (n->out[o] && p->g->exact.fed[n->out[o]->id]) return true;
  return false;
}

static bool takes_sums(const sl_op *op) {
  return sli_op_exact(op)->moves || sli_op_exact(op)->scatters;
}

/* Rounds the exact gradient of a tensor to f32 for a rule that cannot read sums, if a tick's sum is
 * that of the step. */
static sl_status round_sum(pass *p, const sli_node *n, sl_tensor *y) {
  sl_graph *g = p->g;
  if (!sli_is_one_tick(g))
    return sli_graph_fail_at(
        g, n->at, SL_E_UNSUPPORTED,
        "numbers.exact: op %s (%s) computes %s from parameters alone, and its gradient needs the "
        "sum over the whole step: supported with one microbatch and without --pieces",
        n->name, n->op->name, y->name);
  const sl_attrs attrs = {.numbers.exact = true};
  const char *name = sli_arena_format(&g->arena, "%s:rounded", y->grad->name);
  sli_node *rounded = NULL;
  sl_status status =
      add_simple(p, n, &sl_op_to_f32, name, &attrs, SL_CLASS_B, 1, &y->grad, &rounded);
  if (!status) y->grad = rounded->out[0];
  return status;
}

/* Delivers a gradient to input i of a forward node. maker: the node that computes it, as output o,
 * for this use only; NULL if other uses read it too. */
static sl_status deliver(pass *p, const sli_node *from, int i, sl_tensor *grad, sli_node *maker,
                         int o) {
  if (!param_of(from->in[i])) {
    sl_status status = is_step_value(p, from->in[i]) && maker && reads_fed(p, from)
                           ? sum_exactly(p, from, i, maker, o)
                           : SL_OK;
    return status ? status : contribute(p, from, from->in[i], grad);
  }
  if (!maker || !sli_bit(maker->op->accumulates, o)) {
    if (maker && sli_is_exact(p->g)) SLI_TRY(sum_exactly(p, from, i, maker, o));
    return add_copied_use(p, from, i, grad);
  }
  add_use(p, from, i, grad);
  return sum_over_step(p, from, i, maker, o);
}

/* True if a parameter, or (params false) a tensor computed from parameters, needs the gradient. */
static bool is_wanted_by(const sli_node *n, const sl_grad_rule *rule, bool params) {
  for (int j = 0; j < sli_rule_gradients(rule, n->nin); j++) {
    int i = sli_rule_of(rule, j);
    if (wanted(n, i) && !!param_of(n->in[i]) == params) return true;
  }
  return false;
}

static sl_grad_arg argument(const sli_node *n, const sl_grad_rule *rule, int a) {
  return sli_rule_argument(rule, n->nin, n->nout, a);
}

/* True if the gradients that a rule reads are constants, created in the node's block. */
static bool is_known_forward(const sli_node *n, const sl_grad_rule *rule, sl_tensor *const *in) {
  for (int a = 0; argument(n, rule, a).kind; a++)
    if (argument(n, rule, a).kind == SL_ARG_DOUT &&
        (!in[a]->producer->like || in[a]->producer->block != n->block))
      return false;
  return true;
}

/* Returns the class of a rule's node: W only if nothing but parameters waits for it. A node that
 * moves to the forward pass takes its constants along. */
static sl_class rule_class(const sli_node *n, const sl_grad_rule *rule, sl_tensor *const *in) {
  bool inputs = is_wanted_by(n, rule, false);
  if (rule->cls != SL_CLASS_F) return inputs ? SL_CLASS_B : rule->cls;
  if (is_wanted_by(n, rule, true) || !is_known_forward(n, rule, in)) return SL_CLASS_B;
  for (int a = 0; argument(n, rule, a).kind; a++)
    if (argument(n, rule, a).kind == SL_ARG_DOUT) in[a]->producer->cls = SL_CLASS_F;
  return SL_CLASS_F;
}

static sl_status rule_argument(pass *p, const sli_node *n, const sl_op *op, sl_grad_arg arg,
                               sl_tensor **out) {
  *out = NULL;
  if (arg.kind == SL_ARG_IN && arg.index < n->nin) *out = n->in[arg.index];
  if (arg.kind == SL_ARG_OUT) *out = n->out[arg.index];
  if (arg.kind != SL_ARG_DOUT) return SL_OK;
  sl_tensor *y = n->out[arg.index];
  if (y->grad && is_sum(y->grad) && !takes_sums(op)) SLI_TRY(round_sum(p, n, y));
  if (y->grad) *out = y->grad;
  else {
    const char *name = sli_arena_format(&p->g->arena, "%s:zero", y->name);
    sl_status status = add_constant(p, n, y, 0, name, out);
    if (status) return status;
    y->grad = *out;
  }
  return SL_OK;
}

/* True if a gradient of this rule is needed, and one flows into it. */
static bool rule_runs(const sli_node *n, const sl_grad_rule *rule) {
  bool want = false, flows = false;
  sl_grad_arg arg;
  for (int j = 0; j < sli_rule_gradients(rule, n->nin); j++)
    want |= wanted(n, sli_rule_of(rule, j));
  for (int a = 0; (arg = argument(n, rule, a)).kind; a++)
    flows |= arg.kind == SL_ARG_DOUT && output_grad(n, arg.index);
  if (!rule->op) flows = output_grad(n, 0);
  return want && flows;
}

/* True if the gradient of a single row is passed on to a tensor of the step, as from the sum of a
 * row and a table of one row. */
static bool passes_row(const pass *p, const sli_node *n, int i) {
  const sl_type *type = &n->in[i]->type;
  return is_step_value(p, n->in[i]) && p->g->exact.rows[n->out[0]->id] && type->ndim &&
         type->dim[0] == 1;
}

/* Adds a copy that sums the gradient of a single row with those of other ticks, in f64. */
static sl_status add_row_sum(pass *p, const sli_node *n, int i, sli_node **out) {
  sl_class cls = param_of(n->in[i]) ? SL_CLASS_W : SL_CLASS_B;
  SLI_TRY(add_copy(p, n, i, cls, n->out[0]->grad, out));
  (*out)->attrs.numbers.leaves = 1;
  (*out)->out_type[0].dtype = (*out)->out[0]->type.dtype = SL_F64;
  return SL_OK;
}

static sl_status run_passthrough(pass *p, const sli_node *n, const sl_grad_rule *rule) {
  for (int j = 0; j < sli_rule_gradients(rule, n->nin); j++) {
    int i = sli_rule_of(rule, j);
    if (!wanted(n, i)) continue;
    sli_node *sum = NULL;
    if (passes_row(p, n, i)) SLI_TRY(add_row_sum(p, n, i, &sum));
    SLI_TRY(deliver(p, n, i, sum ? sum->out[0] : n->out[0]->grad, sum, 0));
  }
  return SL_OK;
}

static bool fits_input(const sl_type *grad, const sl_type *in) {
  sl_type want = *in;
  want.dtype = sli_sum_dtype(grad);
  return sl_type_equal(grad, &want);
}

/* Names a rule's node, "h.3/linear.2:linear_w"; an op may call the same op in several rules. */
static const char *rule_name(sl_graph *g, const sli_node *n, const sl_grad_rule *rule) {
  int same = 1;
  for (const sl_grad_rule *r = n->op->grad; r < rule; r++) same += r->op == rule->op;
  if (same == 1) return sli_arena_format(&g->arena, "%s:%s", n->name, rule->op->name);
  return sli_arena_format(&g->arena, "%s:%s.%d", n->name, rule->op->name, same);
}

/* Adds records as outputs, whether or not they are read; the op updates them in place. */
static void add_records(sl_graph *g, sli_node *node, int from) {
  for (int o = from; o < node->nout; o++)
    if (sli_bit(sli_op_memory(node->op)->updates, o))
      sli_node_output(g, node, o, sli_arena_format(&g->arena, "%s:%d", node->name, o));
}

static sl_status run_rule(pass *p, const sli_node *n, const sl_grad_rule *rule) {
  sl_graph *g = p->g;
  int nin = sli_rule_arguments(rule, n->nin, n->nout);
  sl_tensor *in[nin + 1];
  for (int a = 0; a < nin; a++) {
    sl_status status = rule_argument(p, n, rule->op, argument(n, rule, a), &in[a]);
    if (status) return status;
  }
  const char *name = rule_name(g, n, rule);
  sli_node *node = sli_graph_node(g, rule->op, name, &n->attrs, rule_class(n, rule, in), n->block,
                                  nin, in, sli_op_outputs(rule->op, &n->attrs, nin));
  node->at = n->at;
  node->rule = rule;
  node->about = n;
  if (sli_is_exact(g)) node->attrs.numbers.summands = sli_mean_summands(n) * p->microbatches;
  if (sli_node_infer(node)) return misfit(g, n, rule->op, sl_detail());
  int ngradients = sli_rule_gradients(rule, n->nin);
  for (int j = 0; j < ngradients; j++) {
    int i = sli_rule_of(rule, j);
    if (!wanted(n, i)) continue;
    if (!fits_input(&node->out_type[j], &n->in[i]->type)) {
      char text[SL_TYPE_TEXT];
      return misfit(
          g, n, rule->op,
          sli_arena_format(
              &g->arena, "its output %d, %s, does not have the shape of the gradient of %s", j,
              sl_type_format(text, &node->out_type[j]), sli_graph_describe(g, 1, &n->in[i])));
    }
    const char *out = j ? sli_arena_format(&g->arena, "%s:%d", name, j) : name;
    sl_status status = deliver(p, n, i, sli_node_output(g, node, j, out), node, j);
    if (status) return status;
  }
  add_records(g, node, ngradients);
  return SL_OK;
}

static int rule_count(const sl_op *op) {
  int n = 0;
  while (n < SL_GRAD_RULES && op->grad[n].nwrt) n++;
  return n;
}

/* Checks that no gradient is lost in an op without a rule for it: training would be silently
 * wrong. */
static sl_status check_rules(pass *p, const sli_node *n) {
  bool from[n->nout + 1], to[n->nin + 1];
  memset(from, 0, sizeof from);
  memset(to, 0, sizeof to);
  for (int r = 0; r < rule_count(n->op); r++) {
    const sl_grad_rule *rule = &n->op->grad[r];
    sl_grad_arg arg;
    for (int a = 0; (arg = argument(n, rule, a)).kind; a++)
      if (arg.kind == SL_ARG_DOUT) from[arg.index] = true;
    if (!rule->op) from[0] = true;
    for (int j = 0; j < sli_rule_gradients(rule, n->nin); j++)
      if (sli_rule_of(rule, j) < n->nin) to[sli_rule_of(rule, j)] = true;
  }
  for (int o = 0; o < n->nout; o++)
    if (output_grad(n, o) && !from[o])
      return sli_graph_fail_at(p->g, n->at, SL_E_UNSUPPORTED,
                               "op %s (%s) has no gradient rule for its output %d, which the loss "
                               "depends on",
                               n->name, n->op->name, o);
  for (int i = 0; i < n->nin; i++)
    if (wanted(n, i) && !to[i])
      return sli_graph_fail_at(p->g, n->at, SL_E_UNSUPPORTED,
                               "op %s (%s) has no gradient rule for its input %d, %s, which "
                               "depends on a parameter",
                               n->name, n->op->name, i, n->in[i]->name);
  return SL_OK;
}

static sl_status differentiate(pass *p, const sli_node *n) {
  bool flows = false, wants = false;
  for (int o = 0; o < n->nout; o++) flows |= output_grad(n, o) != NULL;
  for (int i = 0; i < n->nin; i++) wants |= wanted(n, i);
  if (!flows || !wants) return SL_OK;
  sl_status status = check_rules(p, n);
  for (int r = 0; r < rule_count(n->op) && !status; r++) {
    const sl_grad_rule *rule = &n->op->grad[r];
    if (!rule_runs(n, rule)) continue;
    status = rule->op ? run_rule(p, n, rule) : run_passthrough(p, n, rule);
  }
  return status;
}

static int by_param_and_use(const void *a, const void *b) {
  const use *x = a, *y = b;
  if (x->param != y->param) return x->param->param_index - y->param->param_index;
  if (x->node != y->node) return x->node - y->node;
  return x->input - y->input;
}

/* Gives each parameter its gradients, in order of use. */
static void collect_uses(pass *p) {
  qsort(p->uses, (size_t)p->nuses, sizeof *p->uses, by_param_and_use);
  for (int u = 0, n; u < p->nuses; u += n) {
    sl_tensor *param = p->uses[u].param;
    for (n = 1; u + n < p->nuses && p->uses[u + n].param == param; n++) {}
    param->ngrads = n;
    param->grads = sli_arena_alloc(&p->g->arena, (size_t)n * sizeof *param->grads);
    for (int i = 0; i < n; i++) param->grads[i] = p->uses[u + i].grad;
  }
}

static sl_status check_params(sl_graph *g, int nforward) {
  for (int i = 0; i < g->nparams; i++) {
    const sl_tensor *param = g->params[i];
    if (param->ngrads || !param->update) continue;
    bool read = false;
    for (int n = 0; n < nforward; n++)
      for (int a = 0; a < g->nodes[n]->nin; a++) read |= g->nodes[n]->in[a] == param;
    return sli_graph_fail_at(g, param->at, SL_E_USAGE, "parameter %s is %s", param->name,
                             read ? "used, but the loss does not depend on it" : "never used");
  }
  return SL_OK;
}

/* ---- running statistics ---------------------------------------------------------- */

/* Adds a microbatch's contribution to a statistic: a sum over the step, like weight gradients. */
static sl_status add_running(sl_graph *g, sl_tensor *param) {
  const sli_running *running = param->running;
  sl_tensor *value = running->value;
  if (g->options.pieces > 1)
    return sli_graph_fail_at(
        g, running->at, SL_E_UNSUPPORTED,
        "sl_running: %s follows a value of whole microbatches, which is not supported with "
        "--pieces",
        param->name);
  const char *name = sli_arena_format(&g->arena, "%s:part", param->name);
  const sl_attrs attrs = {.running.momentum = running->momentum,
                          .running.microbatches = g->options.microbatches};
  sli_node *n = sli_graph_node(g, &sl_op_running_part, name, &attrs, SL_CLASS_W,
                               value->producer->block, 1, &value, 1);
  n->at = running->at;
  n->accumulate_span = 1;
  if (sli_node_infer(n))
    return sli_graph_fail_at(g, n->at, SL_E_SHAPE, "sl_running: %s", sl_detail());
  param->ngrads = 1;
  param->grads = sli_arena_alloc(&g->arena, sizeof *param->grads);
  param->grads[0] = sli_node_output(g, n, 0, name);
  return SL_OK;
}

/* Adds the contributions to statistics that average an output of this node. */
static sl_status add_followers(sl_graph *g, const sli_node *n) {
  sl_status status = SL_OK;
  for (int i = 0; i < g->nparams && !status; i++) {
    const sli_running *running = g->params[i]->running;
    if (running && running->value->producer == n) status = add_running(g, g->params[i]);
  }
  return status;
}

/* ---- the pass ----------------------------------------------------------------- */

static sl_status check_goal(sl_graph *g) {
  if (!g->loss.tensor)
    return sl_graph_fail(g, SL_E_USAGE, "the model never calls sl_train: nothing to train for");
  bool frozen = g->nparams > 0;
  for (int i = 0; i < g->nparams; i++) frozen &= !g->params[i]->update || g->params[i]->running;
  if (frozen) return sl_graph_fail(g, SL_E_USAGE, "every parameter is frozen: nothing to train");
  if (!g->loss.tensor->needs_grad)
    return sli_graph_fail_at(g, g->loss.tensor->at, SL_E_USAGE,
                             "the loss %s does not depend on any parameter", g->loss.tensor->name);
  return SL_OK;
}

/* True if a scalar is computed from parameters only through means over rows. */
static bool sums_means(const sl_tensor *t) {
  if (!t->needs_grad || (t->producer && sli_mean_summands(t->producer))) return true;
  if (!t->producer || t->type.ndim) return false;
  for (int i = 0; i < t->producer->nin; i++)
    if (t->producer->in[i] && !sums_means(t->producer->in[i])) return false;
  return true;
}

/* Adds the loss's gradient, a microbatch's weight in the step. If exact gradients of means divide
 * by the rows of the whole step, the weight is 1, so that one rounding remains. */
static sl_status add_seed(pass *p) {
  sl_graph *g = p->g;
  bool means = sli_is_exact(g) && sums_means(g->loss.tensor);
  p->microbatches = means ? g->options.microbatches : 1;
  float weight = means ? 1 : 1.0f / (float)g->options.microbatches;
  const char *name = sli_arena_format(&g->arena, "%s:seed", g->loss.tensor->name);
  return add_constant(p, g->loss.tensor->producer, g->loss.tensor, weight, name,
                      &g->loss.tensor->grad);
}

static sl_status add_backward(pass *p, int nforward) {
  sl_graph *g = p->g;
  sl_status status = add_seed(p);
  for (int n = nforward - 1; n >= 0 && !status; n--) {
    status = differentiate(p, g->nodes[n]);
    if (!status) status = add_followers(g, g->nodes[n]);
  }
  if (!status) collect_uses(p);
  return status;
}

/* Keeps the nodes that the loss, metrics, counters and the parameters' gradients are computed
 * from. */
static void prune(sl_graph *g) {
  int nroots = sli_graph_kept(g), n = 0;
  for (int i = 0; i < g->nparams; i++) nroots += g->params[i]->ngrads;
  sl_tensor **roots = sli_arena_alloc(&g->arena, (size_t)nroots * sizeof *roots);
  for (int i = 0; i < sli_graph_kept(g); i++) roots[n++] = sli_graph_keep(g, i)->tensor;
  for (int i = 0; i < g->nparams; i++)
    for (int u = 0; u < g->params[i]->ngrads; u++) roots[n++] = g->params[i]->grads[u];
  sli_graph_prune(g, nroots, roots);
}

sl_status sli_pass_gradients(sl_graph *g) {
  if (g->status) return sl_graph_status(g);
  SLI_CHECK(!g->options.infer && !g->grad_norm, "gradients are derived once, for training");
  pass p = {.g = g};
  int nforward = g->nnodes;
  sl_status status = sli_training_settle(g);
  if (!status) status = check_goal(g);
  if (!status) status = add_backward(&p, nforward);
  if (!status) status = check_params(g, nforward);
  if (!status && sli_is_exact(g)) status = sli_graph_check_sums(g);
  free(p.uses);
  if (status) return status;
  g->noutputs = 0; /* used by inference only */
  prune(g);
  sli_graph_add_updates(g);
  return SL_OK;
}
