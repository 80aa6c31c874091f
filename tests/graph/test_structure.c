/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the nodes that the passes leave, with their class, block and order.
 * labels: unthreaded smoke */
#include <string.h>

#include <sluice/sluice.h>

#include "graph/passes/passes.h"
#include "tests/support/test.h"

static void nothing(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx, (void)tick, (void)out;
}
static const sl_type types[] = {{SL_I32, 2, {2, 4}}, {SL_I32, 2, {2, 4}}};
static const sl_source source = {.nout = 2, .types = types, .fill = nothing};

enum { WIDTH = 8, VOCAB = 16 };

static sl_tensor *param(sl_graph *g, const char *name, int64_t rows, int64_t columns) {
  return sl_param(g, SL_TYPE(SL_F32, rows, columns), SL_NORMAL(1), "%s", name);
}

/* An embedding, two residual blocks, a classifier tied to the embedding, and unused nodes. */
static sl_graph *tied_model(void) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = 4});
  sl_tensor *ids[2];
  sl_data(g, &source, ids);
  sl_block(g, "embedding");
  sl_tensor *table = param(g, "table", VOCAB, WIDTH), *x = sl_embedding(g, ids[0], table);
  for (int i = 0; i < 2; i++) {
    sl_block(g, "h.%d", i);
    sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, WIDTH, WIDTH), SL_NORMAL(1), "h.%d.w", i);
    sl_tensor *gain = sl_param(g, SL_TYPE(SL_F32, WIDTH), SL_CONSTANT(1), "h.%d.gain", i);
    x = sl_add(g, x, sl_tanh(g, sl_linear(g, sl_rmsnorm(g, x, gain, 1e-5f), w, NULL)));
    sl_gelu(g, x);
  }
  sl_block(g, "unused");
  sl_relu(g, x);
  sl_block(g, "head");
  sl_tensor *logits = sl_linear(g, x, table, NULL);
  sl_train(g, sl_cross_entropy(g, logits, ids[1]), &(sl_optimizer){.lr = 1});
  CHECK(!sli_pass_gradients(g), "%s", sl_detail());
  sli_graph_check(g);
  return g;
}

static const sli_node *find(const sl_graph *g, const char *name) {
  for (int i = 0; i < g->nnodes; i++)
    if (!strcmp(g->nodes[i]->name, name)) return g->nodes[i];
  return NULL;
}

static const sli_node *need(const sl_graph *g, const char *name, sl_class cls, int block) {
  const sli_node *n = find(g, name);
  CHECK(n, "there is no node %s", name);
  CHECK(n->cls == cls && n->block == block, "node %s: class %c in block %d", name,
        sl_class_letter(n->cls), n->block);
  return n;
}

static void unneeded_nodes_are_left_out(const sl_graph *g) {
  CHECK(!find(g, "h.0/gelu.1") && !find(g, "unused/relu.1"), "nobody needs them");
  CHECK(g->nblocks == 4 && !strcmp(g->blocks[3].name, "head"), "the block unused is gone");
  const sli_node *norm = need(g, "h.0/rmsnorm.1", SL_CLASS_F, 1);
  CHECK(norm->out[1], "its backward reads the row's factor");
  CHECK(!find(g, "embedding/embedding.1:embedding_b"), "nobody wants a gradient of tokens");
}

static void a_source_stands_where_it_is_first_read(const sl_graph *g) {
  need(g, "source.1", SL_CLASS_L, 0);
}

static void input_and_weight_gradients_are_apart(const sl_graph *g) {
  const sli_node *b = need(g, "h.1/linear.1:linear_b", SL_CLASS_B, 2);
  const sli_node *w = need(g, "h.1/linear.1:linear_w", SL_CLASS_W, 2);
  CHECK(!b->accumulate_span && w->accumulate_span == 1, "weight gradients are summed in place");
}

static void one_gradient_crosses_a_boundary(const sl_graph *g) {
  const sli_node *sum = need(g, "h.0/add.1:sum", SL_CLASS_B, 2);
  CHECK(sum->op == &sl_op_add, "contributions are added");
  int crossing = 0;
  for (int t = 0; t < g->ntensors; t++) {
    const sl_tensor *y = g->tensors[t];
    if (!y->producer || y->producer->cls != SL_CLASS_B || y->producer->block != 2) continue;
    bool crosses = false;
    for (int i = 0; i < g->nnodes; i++)
      for (int a = 0; a < g->nodes[i]->nin; a++)
        crosses |= g->nodes[i]->in[a] == y && g->nodes[i]->block == 1;
    crossing += crosses;
  }
  CHECK(crossing == 1, "%d gradients go from h.1 to h.0", crossing);
}

static void tied_uses_meet_in_the_update_in_order(const sl_graph *g) {
  const sl_tensor *table = g->params[0];
  CHECK(table->ngrads == 2 && table->home == 0, "two uses, at home with the first");
  CHECK(table->grads[0]->producer->block == 0 && table->grads[1]->producer->block == 3,
        "gradients in order of use");
  const sli_node *step = need(g, "table:adamw", SL_CLASS_U, 0);
  CHECK(step->nin == 3 && step->in[1] == table->grads[0] && step->in[2] == table->grads[1],
        "scale, then the gradients");
  CHECK(step->out[0] == table && !strcmp(step->out[1]->name, "table:m") &&
            !strcmp(step->out[2]->name, "table:v"),
        "parameter, m, v");
  CHECK(!table->producer, "a parameter has no producer");
}

static void updates_come_in_phases(const sl_graph *g) {
  const sli_node *clip = need(g, "clip", SL_CLASS_U, -1);
  CHECK(clip->nin == g->nparams && clip->out[1] == g->grad_norm, "one clip over all");
  for (int p = 0; p < g->nparams; p++) {
    char name[64];
    snprintf(name, sizeof name, "%s:norm", g->params[p]->name);
    const sli_node *norm = need(g, name, SL_CLASS_U, g->params[p]->home);
    CHECK(norm->phase == SLI_PHASE_NORM && norm->per_step && clip->in[p] == norm->out[0],
          "norms in order of the parameters");
  }
  CHECK(clip->attrs.user == &g->training.optimizer, "settings are the graph's");
  const sl_optimizer *o = &g->training.optimizer;
  CHECK(o->lr == 1 && o->beta2 == 0.95f && o->clip == 1, "what is not given has its default");
}

static void settings_with_eps_have_the_other_defaults(void) {
  sl_graph *g = sl_graph_create(NULL);
  sl_tensor *ids[2];
  sl_data(g, &source, ids);
  sl_tensor *table = param(g, "table", VOCAB, WIDTH);
  sl_tensor *logits = sl_linear(g, sl_embedding(g, ids[0], table), table, NULL);
  sl_train(g, sl_cross_entropy(g, logits, ids[1]), &(sl_optimizer){.eps = 1e-6f});
  const sl_optimizer *o = &g->training.optimizer;
  CHECK(o->lr == 1e-3f && o->beta1 == 0.9f && o->clip == 1 && o->weight_decay == 0.1f &&
            o->eps == 1e-6f,
        "eps is as given, the others are not 0");
  sl_graph_destroy(g);
}

static void names_given_twice_get_numbers(void) {
  sl_graph *g = sl_graph_create(NULL);
  for (int i = 0; i < 3; i++) sl_block(g, "layer");
  CHECK(!strcmp(g->blocks[0].name, "layer") && !strcmp(g->blocks[2].name, "layer.3"),
        "the third is %s", g->blocks[2].name);
  sl_graph_destroy(g);
}

int main(void) {
  sl_graph *g = tied_model();
  RUN(unneeded_nodes_are_left_out, g);
  RUN(a_source_stands_where_it_is_first_read, g);
  RUN(input_and_weight_gradients_are_apart, g);
  RUN(one_gradient_crosses_a_boundary, g);
  RUN(tied_uses_meet_in_the_update_in_order, g);
  RUN(updates_come_in_phases, g);
  sl_graph_destroy(g);
  RUN(settings_with_eps_have_the_other_defaults);
  RUN(names_given_twice_get_numbers);
  return 0;
}
