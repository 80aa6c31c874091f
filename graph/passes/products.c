/* SPDX-License-Identifier: Apache-2.0 */
/* Pass 3: matrix products in bf16.
 *
 * A linear map and its input gradient read the same weight in every tick of a step, and the weight
 * changes once a step. A node that runs once a step therefore rounds and packs it for both; its
 * results are in registers whose slots cover a step. A weight with several uses (a tied embedding)
 * is packed at each use, possibly on another device. The weight itself stays an argument, for its
 * type.
 *
 * If a weight would be read only once, in a step of one tick, the product packs it on the fly
 * (attrs.numbers.bf16). This takes no longer, and nothing is kept for the step. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"

#include <string.h>

typedef struct packing {
  sli_node *node;
  const sl_tensor *weight;
  struct packing *next; /* next packing of the same weight */
} packing;

typedef struct pass {
  sl_graph *g;
  packing **packings; /* [ntensors] by weight */
  int npacks;
  int *reads[2]; /* [ntensors] linear maps and input gradients that read a weight in a step */
} pass;

static sli_node *find_pack(const pass *p, const sli_node *reader, const sl_attrs *attrs) {
  for (const packing *k = p->packings[reader->in[1]->id]; k; k = k->next)
    if (k->node->block == reader->block && k->node->attrs.product.rows == attrs->product.rows &&
        k->node->attrs.product.transposed == attrs->product.transposed)
      return k->node;
  return NULL;
}

static sli_node *add_pack(pass *p, const sli_node *reader, const sl_attrs *attrs) {
  sl_tensor *weight = reader->in[1];
  const char *name = sli_arena_format(&p->g->arena, "%s:pack.%d", weight->name, ++p->npacks);
  sli_node *n = sli_graph_node(p->g, &sl_op_pack, name, attrs, SL_CLASS_U, reader->block, 1,
                               &weight, sl_op_pack.nout);
  n->at = reader->at;
  n->rank = reader->rank;
  n->phase = SLI_PHASE_PACK;
  n->per_step = true;
  sl_status status = sli_node_infer(n);
  SLI_CHECK(!status, "pack node %s: %s", name, sl_detail());
  packing *k = sli_arena_alloc(&p->g->arena, sizeof *k);
  *k = (packing){n, weight, p->packings[weight->id]};
  p->packings[weight->id] = k;
  return n;
}

/* Makes output `which` of the weight's pack the reader's input `at`. */
static void read_packed(pass *p, sli_node *reader, int which, int at) {
  const sl_attrs attrs = {.product.transposed = reader->attrs.product.transposed,
                          .product.rows = sl_type_rows(&reader->in_type[0])};
  sli_node *pack = find_pack(p, reader, &attrs);
  if (!pack) pack = add_pack(p, reader, &attrs);
  if (!pack->out[which])
    sli_node_output(p->g, pack, which, sli_arena_format(&p->g->arena, "%s:%d", pack->name, which));
  sl_tensor **in = sli_arena_alloc(&p->g->arena, (size_t)(at + 1) * sizeof *in);
  memcpy(in, reader->in, (size_t)reader->nin * sizeof *in);
  in[at] = pack->out[which];
  reader->in = in;
  sli_node_own_types(p->g, reader);
  reader->in_type[at] = pack->out_type[which];
  reader->nin = at + 1;
}

/* Moves packing right after the node that computes the weight; parameters exist from the start. */
static void move_forward(sl_graph *g, int before) {
  int n = 0;
  sli_node **nodes = sli_arena_alloc(&g->arena, (size_t)g->nnodes * sizeof *nodes);
  for (int i = -1; i < before; i++) {
    const sli_node *maker = i < 0 ? NULL : (nodes[n++] = g->nodes[i]);
    for (int k = before; k < g->nnodes && (!maker || maker->phase == SLI_PHASE_PACK); k++)
      if (g->nodes[k]->in[0]->producer == maker) nodes[n++] = g->nodes[k];
  }
  sli_graph_reorder(g, nodes);
}

/* Ops that read packed weights: which result of a pack, as which argument. */
static const struct reader {
  const sl_op *op;
  int which, at;
} readers[] = {{&sl_op_linear, 0, 3}, {&sl_op_linear_b, 1, 2}};

static const struct reader *reader_of(const sli_node *n) {
  for (size_t i = 0; i < SLI_COUNT(readers); i++)
    if (n->op == readers[i].op && sli_stays(n->in[1])) return &readers[i];
  return NULL;
}

/* Returns the ticks of a step; evaluations have any number. */
static int ticks_of(const sl_graph *g) {
  return sli_evaluates(g) ? INT32_MAX : sli_weighed_microbatches(g) * g->options.pieces;
}

void sli_pass_products(sl_graph *g, bool as_they_go) {
  int before = g->nnodes;
  size_t ntensors = (size_t)g->ntensors;
  pass p = {.g = g, .packings = sli_arena_alloc(&g->arena, ntensors * sizeof(packing *))};
  for (int w = 0; w < 2; w++)
    p.reads[w] = sli_arena_alloc(&g->arena, ntensors * sizeof *p.reads[w]);
  for (int i = 0; i < before; i++) {
    const struct reader *r = reader_of(g->nodes[i]);
    if (r) p.reads[r->which][g->nodes[i]->in[1]->id]++;
  }
  for (int i = 0; i < before; i++) {
    sli_node *n = g->nodes[i];
    const struct reader *r = reader_of(n);
    bool once = r && as_they_go && ticks_of(g) == 1 && p.reads[r->which][n->in[1]->id] == 1;
    if (sli_op_narrow(n->op)->rounds || once) n->attrs.numbers.bf16 = true;
    if (r && !once) read_packed(&p, n, r->which, r->at);
  }
  move_forward(g, before);
}
