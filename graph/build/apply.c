/* SPDX-License-Identifier: Apache-2.0 */
/* Applies an op: checks arguments, infers shapes, adds a node. */
#include "graph/build/build.h"

#include <string.h>

#include "base/memory.h"
#include "ops/ops.h"

char *sli_graph_describe(sl_graph *g, int nin, sl_tensor *const *in) {
  char *text = sli_arena_strdup(&g->arena, nin ? "" : "none");
  for (int i = 0; i < nin; i++) {
    char type[SL_TYPE_TEXT];
    const char *comma = i ? ", " : "";
    text = in[i] ? sli_arena_format(&g->arena, "%s%s%s %s", text, comma, in[i]->name,
                                    sl_type_format(type, &in[i]->type))
                 : sli_arena_format(&g->arena, "%s%s-", text, comma);
  }
  return text;
}

/* True for a source. It gets no block here: it goes to the block of its first reader. */
/* Returns the next name, "h.3/linear.2": the second linear of block h.3. Opens a block if there
 * is none. */
static const char *next_name(sl_graph *g, const sl_op *op) {
  int block = g->nblocks - 1, n = 1;
  bool frozen =
      g->frozen.builds && !sli_op_is(op, SL_OP_SOURCE); /* both models read the same data */
  const char *of = frozen ? g->frozen.word : "", *dot = *of ? "." : "";
  for (int i = g->nnodes - 1; i >= g->frozen.nnodes && g->nodes[i]->block == block; i--)
    n += !strcmp(g->nodes[i]->op->name, op->name);
  if (block < 0) return sli_arena_format(&g->arena, "%s%s%s.%d", of, dot, op->name, n);
  return sli_arena_format(&g->arena, "%s%s%s/%s.%d", of, dot, g->blocks[block].name, op->name, n);
}

/* Returns the number of outputs; below 0: the op's record is missing. */
static int output_count(const sl_op *op, const sl_attrs *attrs, int nin) {
  return sli_op_outputs(op, attrs ? attrs : &(sl_attrs){0}, nin);
}

/* True if a rule names arguments and gradients that the op can have. */
static bool is_rule_possible(const sl_op *op, const sl_grad_rule *rule) {
  for (int a = 0; a < SL_GRAD_ARGS && rule->in[a].kind; a++) {
    bool of_in = rule->in[a].kind == SL_ARG_IN || rule->in[a].kind == SL_ARG_INS;
    int most = of_in ? op->max_in : op->nout, index = rule->in[a].index;
    if (index < 0 || (most >= 0 && index >= most && most + of_in)) return false;
  }
  for (int j = 0; j < rule->nwrt; j++)
    if (j >= SL_GRAD_OUTS || rule->wrt[j] < 0 || (op->max_in >= 0 && rule->wrt[j] >= op->max_in))
      return false;
  return true;
}

/* Returns what is missing in the op's row, or NULL if nothing. */
static const char *row_fault(sl_graph *g, const sl_op *op) {
  if (!op->infer) return "its row has no shape rule (sl_op.infer)";
  if (op->nout < 0 && !op->outputs)
    return "its row has a variable number of outputs but no rule for it (sl_op.outputs)";
  if (!op->nout)
    return "has no output, so no model would ever run it; name the results of a model with "
           "sl_output()";
  for (int r = 0; r < SL_GRAD_RULES && op->grad[r].nwrt; r++) {
    const sl_grad_rule *rule = &op->grad[r];
    if (!is_rule_possible(op, rule))
      return sli_arena_format(
          &g->arena,
          "gradient rule %d of its row names an input or output that the op does not have", r);
    if (rule->op && !rule->op->infer)
      return sli_arena_format(&g->arena,
                              "gradient rule %d of its row calls %s, whose row has no"
                              " shape rule (sl_op.infer)",
                              r, rule->op->name);
  }
  return NULL;
}

/* Returns what is wrong with the arguments, apart from their shapes, or NULL if nothing. */
static const char *misuse(sl_graph *g, const sl_op *op, const sl_attrs *attrs, int nin,
                          sl_tensor *const *in, uint32_t absent) {
  const char *fault = row_fault(g, op);
  if (fault) return fault;
  if (output_count(op, attrs, nin) < 0) return "attrs.user must point to its record";
  if (sli_op_memory(op)->updates) return "updates its outputs in place, so a model cannot apply it";
  if (nin < op->min_in || (op->max_in >= 0 && nin > op->max_in))
    return op->max_in < 0
               ? sli_arena_format(&g->arena, "takes at least %d inputs, got %d", op->min_in, nin)
           : op->max_in == op->min_in
               ? sli_arena_format(&g->arena, "takes %d inputs, got %d", op->min_in, nin)
               : sli_arena_format(&g->arena, "takes %d to %d inputs, got %d", op->min_in,
                                  op->max_in, nin);
  for (int i = 0; i < nin; i++) {
    bool optional = sli_bit(absent, i);
    if (!in[i] && (!optional || i < op->min_in))
      return sli_arena_format(&g->arena, "input %d is NULL", i);
    if (in[i] && (in[i]->id >= g->ntensors || g->tensors[in[i]->id] != in[i]))
      return sli_arena_format(&g->arena, "input %d is a tensor of a different graph", i);
  }
  return NULL;
}

static bool differentiable(const sl_type *type) { return type->dtype != SL_I32; }

static void make_outputs(sl_graph *g, sli_node *node) {
  bool needs_grad = false;
  for (int i = 0; i < node->nin; i++)
    needs_grad |=
        node->in[i] && node->in[i]->needs_grad && !sli_bit_on(sli_op_memory(node->op)->unread, i);
  for (int o = 0; o < node->nout; o++) {
    const char *name = o ? sli_arena_format(&g->arena, "%s:%d", node->name, o) : node->name;
    sl_tensor *t = sli_node_output(g, node, o, name);
    t->needs_grad = needs_grad && !sli_op_is(node->op, SL_OP_DETACHED) && differentiable(&t->type);
  }
}

uint32_t sli_graph_dim(sl_graph *g, sl_here at, const char *call, sl_tensor *x, int dim) {
  if (!x || g->status) return 0;
  int from_start = dim < 0 ? dim + x->type.ndim : dim;
  if (from_start >= 0 && from_start < x->type.ndim) return SL_DIM(from_start);
  sli_graph_fail_at(g, at, SL_E_SHAPE, "%s: %s has no dim %d", call, sli_graph_describe(g, 1, &x),
                    dim);
  return 0;
}

/* Infers the output types by the op's shape rule. Source records and users' ops may return
 * impossible types. */
static sl_status infer(sl_here at, sl_graph *g, sli_node *node) {
  sl_status status = sli_node_infer(node);
  if (status) {
    const char *text = sli_arena_strdup(&g->arena, sl_detail());
    return sli_graph_fail_at(g, at, status, "op %s (%s): %s; inputs %s", node->name, node->op->name,
                             text, sli_graph_describe(g, node->nin, node->in));
  }
  for (int o = 0; o < node->nout; o++) {
    char text[SL_TYPE_TEXT];
    if (!sli_type_possible(&node->out_type[o]))
      return sli_graph_fail_at(
          g, at, SL_E_SHAPE, "op %s (%s): output %d would be %s, which is not a possible shape",
          node->name, node->op->name, o, sli_type_text(text, &node->out_type[o]));
  }
  return SL_OK;
}

static bool lies_possibly(sl_sbp sbp, int count, int i, const sl_type *types) {
  if (sbp.kind != SL_SPLIT && sbp.kind != SL_DISPATCHED)
    return sbp.kind == SL_BROADCAST || sbp.kind == SL_PARTIAL;
  return i < count && sbp.dim >= 0 && sbp.dim < types[i].ndim;
}

/* Checks that the op's signatures name existing arguments and dims. */
static sl_status check_signatures(sl_here at, sl_graph *g, const sli_node *n) {
  sl_signature all[SL_SIGNATURES];
  memset(all, 0, sizeof all);
  int count = sli_op_signatures(n->op, &n->attrs, n->nin, n->in_type, all);
  if (count < 0 || count > SL_SIGNATURES)
    return sli_graph_fail_at(g, at, SL_E_USAGE,
                             "op %s (%s): its row has %d signatures, must be 0 to %d", n->name,
                             n->op->name, count, SL_SIGNATURES);
  for (int s = 0; s < count; s++)
    for (int i = 0; i < SL_SIGNATURE_ARGS; i++) {
      bool in = lies_possibly(all[s].in[i], n->nin, i, n->in_type);
      if (in && lies_possibly(all[s].out[i], n->nout, i, n->out_type)) continue;
      return sli_graph_fail_at(
          g, at, SL_E_USAGE,
          "op %s (%s): signature %d of its row (sl_op_shard.signatures) splits %s %d along dim %d, "
          "which does not exist; inputs %s",
          n->name, n->op->name, s, in ? "output" : "input", i,
          in ? all[s].out[i].dim : all[s].in[i].dim, sli_graph_describe(g, n->nin, n->in));
    }
  return SL_OK;
}

/* Adds a node; returns NULL after an earlier or a new error. */
static sli_node *add_node(sl_here at, sl_graph *g, const sl_op *op, const sl_attrs *attrs, int nin,
                          sl_tensor *const *ins, uint32_t absent) {
  if (sli_memory_check()) sli_graph_fail_at(g, at, SL_E_MEMORY, "%s", sl_detail());
  if (g->status) return NULL;
  if (!g->nblocks && !sli_op_is(op, SL_OP_SOURCE)) sl_block(g, "main");
  const char *wrong = misuse(g, op, attrs, nin, ins, absent);
  if (wrong) {
    sli_graph_fail_at(g, at, SL_E_USAGE, "op %s (%s): %s", next_name(g, op), op->name, wrong);
    return NULL;
  }
  sli_node *node = sli_graph_node(g, op, next_name(g, op), attrs,
                                  sli_op_is(op, SL_OP_SOURCE) ? SL_CLASS_L : SL_CLASS_F,
                                  g->nblocks - 1, nin, ins, output_count(op, attrs, nin));
  node->at = at;
  if (sli_op_is(op, SL_OP_LOCATED) && !node->attrs.random.key)
    node->attrs.random.key = sli_hash(SLI_HASH_SEED, node->name, strlen(node->name));
  if (sli_attrs_check(op, &node->attrs)) {
    sli_graph_fail_at(g, at, SL_E_USAGE, "op %s (%s): %s", node->name, op->name, sl_detail());
    return NULL;
  }
  if (infer(at, g, node) || check_signatures(at, g, node)) return NULL;
  make_outputs(g, node);
  return node;
}

/* Applies an op; outs may be the same array as ins, because outs is written last. */
void sl_apply_at(sl_here at, sl_graph *g, const sl_op *op, const sl_attrs *attrs, int nin,
                 sl_tensor *const *ins, uint32_t absent, sl_tensor **outs) {
  const sli_node *node = add_node(at, g, op, attrs, nin, ins, absent);
  for (int o = 0; o < output_count(op, attrs, nin); o++) outs[o] = node ? node->out[o] : NULL;
}
