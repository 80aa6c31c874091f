/* SPDX-License-Identifier: Apache-2.0 */
/* Repetition of key and value heads, for more devices than the model has such heads.
 *
 * If several query heads read one head of keys and values (grouped-query attention), several
 * devices can have that head only if it exists several times. Each head is therefore repeated
 * before it is exchanged, as often as needed and as evenly as the query heads allow. The copies are
 * ordinary heads, which attention shards. The gradients of the copies are added up at the
 * repetition. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"
#include "ops/heads.h"

/* Returns how often to repeat each head to get at least `least` heads: the smallest factor that
 * divides evenly, or 0 if none does. */
static int times_for(const sl_attrs *attrs, int least) {
  int kv_heads = sli_key_heads(attrs), group = attrs->attention.heads / kv_heads;
  for (int times = 1; times <= group; times++)
    if (group % times == 0 && kv_heads * times >= least) return times;
  return 0;
}

/* True for attention on whole sequences whose keys are apart from its queries. */
static bool has_keys(const sli_node *n) {
  const sl_op_shard *shard = sli_op_shard(n->op);
  return shard->heads == SL_HEADS_SEPARATE && !shard->joins && !sli_op_keeps_record(n->op);
}

/* Returns how often to repeat heads for `devices`, and if possible for tensor-axis devices too. */
static int times_of(const sli_node *n, int devices, int times_devices) {
  if (!has_keys(n) || sli_key_heads(&n->attrs) >= devices) return 1;
  int times = times_for(&n->attrs, devices * times_devices);
  return times ? times : times_for(&n->attrs, devices);
}

/* Adds a call in front of n. */
static sl_tensor *call(sl_graph *g, const sli_node *n, const sl_op *op, const sl_attrs *attrs,
                       int nin, sl_tensor *const *in, sli_node **order, int *count) {
  const char *name = sli_arena_format(&g->arena, "%s:heads.%d", n->name, g->nnodes);
  sli_node *made = order[(*count)++] =
      sli_graph_node(g, op, name, attrs, n->cls, n->block, nin, in, 1);
  made->at = n->at;
  SLI_CHECK(!sli_node_infer(made), "%s: %s", name, sl_detail());
  sl_tensor *t = sli_node_output(g, made, 0, name);
  t->needs_grad = in[0]->needs_grad;
  return t;
}

static sl_tensor *repeat_heads(sl_graph *g, const sli_node *n, sl_tensor *t, int heads, int times,
                               sli_node **order, int *count) {
  sl_tensor *parts[heads * times];
  int dim = t->type.ndim - 1;
  int64_t width = t->type.dim[dim] / heads;
  for (int h = 0; h < heads; h++) {
    sl_part *part = sli_arena_alloc(&g->arena, sizeof *part);
    *part = (sl_part){.axis = dim, .nranges = 1, .begin = {h * width}, .count = {width}};
    sl_tensor *one =
        heads == 1 ? t : call(g, n, &sl_op_slice, &(sl_attrs){.user = part}, 1, &t, order, count);
    for (int i = 0; i < times; i++) parts[h * times + i] = one;
  }
  return call(g, n, &sl_op_concat, &(sl_attrs){.along.axes = 1u << dim}, heads * times, parts,
              order, count);
}

/* Repeats the heads of an attention that reads keys and values separately from queries. */
static void give_heads(sl_graph *g, sli_node *n, int times, sli_node **order, int *count) {
  int heads = sli_key_heads(&n->attrs);
  for (int i = 1; i < 3; i++) {
    n->in[i] = repeat_heads(g, n, n->in[i], heads, times, order, count);
    n->in_type[i] = n->in[i]->type;
  }
  n->attrs.attention.kv_heads = heads * times;
}

/* State that undoes the pass. */
struct sli_heads {
  int nnodes, ntensors;
  sli_node **nodes;      /* [nnodes] in order */
  sli_node *were;        /* [nnodes] their previous contents */
  sl_tensor *(*keys)[2]; /* [nnodes] previous inputs of attention */
};

static sli_heads *remember(sl_graph *g) {
  size_t n = (size_t)g->nnodes;
  sli_heads *b = sli_arena_alloc(&g->arena, sizeof *b);
  *b = (sli_heads){g->nnodes, g->ntensors, sli_arena_alloc(&g->arena, n * sizeof *b->nodes),
                   sli_arena_alloc(&g->arena, n * sizeof *b->were),
                   sli_arena_alloc(&g->arena, n * sizeof *b->keys)};
  for (int i = 0; i < g->nnodes; i++) {
    sli_node *node = b->nodes[i] = g->nodes[i];
    b->were[i] = *node;
    for (int k = 0; k < 2 && has_keys(node); k++) b->keys[i][k] = node->in[1 + k];
  }
  return b;
}

void sli_heads_undo(sl_graph *g, const sli_heads *before) {
  g->repeats_heads = false;
  g->nnodes = before->nnodes;
  g->ntensors = before->ntensors;
  for (int i = 0; i < before->nnodes; i++) {
    sli_node *n = before->nodes[i];
    *n = before->were[i];
    for (int k = 0; k < 2 && has_keys(n); k++) {
      n->in[1 + k] = before->keys[i][k];
      n->in_type[1 + k] = n->in[1 + k]->type;
    }
  }
  sli_graph_reorder(g, before->nodes);
}

sli_heads *sli_pass_heads(sl_graph *g, int devices, int times_devices) {
  int before = g->nnodes, count = 0;
  sli_heads *undo = remember(g);
  size_t most = (size_t)before;
  for (int i = 0; i < before; i++)
    if (has_keys(g->nodes[i])) most += 2 * (size_t)g->nodes[i]->attrs.attention.heads + 2;
  sli_node **order = sli_arena_alloc(&g->arena, most * sizeof *order);
  for (int i = 0; i < before; i++) {
    sli_node *n = g->nodes[i];
    int times = times_of(n, devices, times_devices);
    if (times > 1) give_heads(g, n, times, order, &count);
    order[count++] = n;
  }
  if (g->nnodes > before) sli_graph_reorder(g, order);
  g->repeats_heads = g->nnodes > before;
  return undo;
}
