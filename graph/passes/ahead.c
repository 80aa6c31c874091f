/* SPDX-License-Identifier: Apache-2.0 */
/* One barrier instead of two, if the vocabulary is sharded over all stages (--vocab-barriers 1).
 *
 * The gradient of the classifier's input comes from all stages, and a microbatch waits for all of
 * them twice: for the sums of the softmax, and for the products of its gradient with each stage's
 * words. These products need not wait for the sums (Vocabulary Parallelism: Yeung et al., arXiv
 * 2411.05288, its second algorithm). From the softmax over its own words only, soft_d, and the
 * targets' rows of its words, a stage computes in the forward pass
 *
 *     ahead_d = soft_d W_d       taken_d = G_d W_d
 *
 * and once the lse of all words is known the gradient is the sum of
 *
 *     exp(own_d - lse) ahead_d - taken_d
 *
 * over the stages: a few numbers per token, computed alongside the passes. Only the gradients of
 * W_d are left for the backward pass, and no stage waits for them.
 *
 * The pass therefore adds three calls after the classifier, and turns the product that computed its
 * input's gradient into a rescaling. The signatures of these ops determine the words of each stage
 * and the sums. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"
#include "ops/ops.h"

typedef struct pass {
  sl_graph *g;
  sli_node *classifier, *loss;
  sli_node *gradient, *backward; /* nodes for the gradients of the logits and of the classifier's
                                    input; NULL if none */
  int nmade;
  sli_node *made[3];
} pass;

static sl_status ahead_refuse(const pass *p, const sli_node *n, const char *why) {
  return sli_graph_fail_at(p->g, n->at, SL_E_UNSUPPORTED,
                           "vocabulary.barriers 1: op %s (%s) %s; use vocabulary.barriers 2",
                           n->name, n->op->name, why);
}

/* Returns the node with `op` that a rule has made for a forward node, or NULL if there is none. */
static sli_node *rule_of(const pass *p, const sli_node *about, const sl_op *op) {
  for (int i = 0; i < p->g->nnodes; i++)
    if (p->g->nodes[i]->about == about && p->g->nodes[i]->op == op) return p->g->nodes[i];
  return NULL;
}

static sl_status ahead_find(pass *p) {
  p->loss = p->g->nodes[sli_loss_of_logits(p->g)->id];
  if (p->loss->op != &sl_op_cross_entropy)
    return ahead_refuse(p, p->loss, "is not a cross entropy that weights all rows equally");
  p->classifier = p->loss->in[0]->producer;
  if (!p->classifier || sli_op_weight(p->classifier->op) != SL_WEIGHT_PRODUCT)
    return ahead_refuse(p, p->loss, "does not read the result of a linear map");
  if (p->classifier->attrs.product.transposed)
    return ahead_refuse(p, p->classifier,
                        "stores its weight with a column per token instead of a row");
  p->gradient = rule_of(p, p->loss, &sl_op_cross_entropy_b);
  p->backward = rule_of(p, p->classifier, &sl_op_linear_b);
  if (p->backward && (!p->gradient || p->backward->in[0] != p->gradient->out[0]))
    return ahead_refuse(p, p->classifier, "makes logits that are read by more than the loss");
  return SL_OK;
}

/* Adds a call after the classifier; returns its first output. */
static sl_tensor *ahead_add(pass *p, const sl_op *op, const char *what, int nin,
                            sl_tensor *const *in) {
  sl_graph *g = p->g;
  const char *name = sli_arena_format(&g->arena, "%s:%s", p->classifier->name, what);
  sli_node *n =
      sli_graph_node(g, op, name, NULL, SL_CLASS_F, p->classifier->block, nin, in, op->nout);
  n->at = p->classifier->at;
  SLI_CHECK(!sli_node_infer(n), "%s: %s", name, sl_detail());
  for (int o = 0; o < op->nout; o++)
    sli_node_output(g, n, o, o ? sli_arena_format(&g->arena, "%s:%d", name, o) : name);
  p->made[p->nmade++] = n;
  return n->out[0];
}

/* Turns the product into a rescaling of the products computed ahead; its output tensor stays the
 * same. */
static void rescale(pass *p, sl_tensor *ahead, sl_tensor *taken, sl_tensor *own) {
  sli_node *n = p->backward;
  sl_tensor *const in[] = {ahead, taken, own, p->gradient->in[2], p->gradient->in[3]};
  n->op = &sl_op_softmax_rescale;
  n->name = sli_arena_format(&p->g->arena, "%s:rescale", p->classifier->name);
  n->cls = SL_CLASS_C;
  n->beside = true;
  n->rule = NULL;
  n->about = NULL;
  n->nin = SLI_COUNT(in);
  n->in = sli_arena_alloc(&p->g->arena, sizeof in);
  n->in_type = sli_arena_alloc(&p->g->arena, SLI_COUNT(in) * sizeof *n->in_type);
  for (int i = 0; i < n->nin; i++) {
    n->in[i] = in[i];
    n->in_type[i] = in[i]->type;
  }
  SLI_CHECK(!sli_node_infer(n), "%s: %s", n->name, sl_detail());
}

static void put_behind_classifier(const pass *p) {
  sl_graph *g = p->g;
  int count = 0;
  sli_node **order = sli_arena_alloc(&g->arena, (size_t)g->nnodes * sizeof *order);
  for (int i = 0; i < g->nnodes - p->nmade; i++) {
    order[count++] = g->nodes[i];
    for (int k = 0; k < p->nmade && g->nodes[i] == p->classifier; k++) order[count++] = p->made[k];
  }
  sli_graph_reorder(g, order);
}

sl_status sli_pass_ahead(sl_graph *g) {
  pass p = {.g = g};
  sl_status status = ahead_find(&p);
  if (status) return status;
  if (p.gradient) p.gradient->cls = SL_CLASS_W;
  p.loss->beside = true;
  if (!p.backward) return SL_OK;
  sl_tensor *table = p.classifier->in[1], *targets = p.loss->in[1];
  sl_tensor *soft = ahead_add(&p, &sl_op_softmax_part, "soft", 1, &p.loss->in[0]);
  sl_tensor *ahead = ahead_add(&p, &sl_op_linear_b, "ahead", 2, (sl_tensor *[]){soft, table});
  sl_tensor *taken = ahead_add(&p, &sl_op_embedding, "taken", 2, (sl_tensor *[]){targets, table});
  rescale(&p, ahead, taken, soft->producer->out[1]);
  put_behind_classifier(&p);
  return SL_OK;
}
