/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants of a graph after each pass. */
#include "graph/passes/passes.h"

#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"

static void check_tensor(const sl_graph *g, int id) {
  const sl_tensor *t = g->tensors[id];
  SLI_CHECK(t->id == id, "tensor %s has number %d, stands at %d", t->name, t->id, id);
  SLI_CHECK(t->type.ndim >= 0 && t->type.ndim <= SL_MAX_DIMS, "tensor %s has %d dims", t->name,
            t->type.ndim);
  if (t->param) {
    SLI_CHECK(!t->producer, "parameter %s has a producer", t->name);
    SLI_CHECK(g->params[t->param_index] == t, "parameter %s is not number %d", t->name,
              t->param_index);
    SLI_CHECK(t->home >= -1 && t->home < g->nblocks, "parameter %s is at home in block %d", t->name,
              t->home);
  } else {
    SLI_CHECK(t->producer, "tensor %s has no producer", t->name);
    SLI_CHECK(t->producer->out[t->output] == t, "tensor %s is not output %d of %s", t->name,
              t->output, t->producer->name);
    SLI_CHECK(g->nodes[t->producer->id] == t->producer, "tensor %s is made by %s, which is gone",
              t->name, t->producer->name);
  }
}

static bool is_backward(const sli_node *n) {
  return n && (n->cls == SL_CLASS_B || n->cls == SL_CLASS_W);
}

static void check_inputs(const sl_graph *g, const sli_node *n) {
  SLI_CHECK(n->nin >= n->op->min_in && (n->op->max_in < 0 || n->nin <= n->op->max_in),
            "node %s has %d inputs", n->name, n->nin);
  for (int i = 0; i < n->nin; i++) {
    const sl_tensor *t = n->in[i];
    if (!t) continue;
    SLI_CHECK(t->id < g->ntensors && g->tensors[t->id] == t, "node %s reads %s, which is gone",
              n->name, t->name);
    SLI_CHECK(!t->producer || t->producer->id < n->id, "node %s reads %s before it is made",
              n->name, t->name);
    SLI_CHECK(sl_type_equal(&t->type, &n->in_type[i]), "node %s: input %d has another type",
              n->name, i);
    SLI_CHECK(!t->producer || n->per_step || n->pace || !t->producer->per_step ||
                  t->producer->phase == SLI_PHASE_PACK,
              "node %s, of every tick, reads %s, of every step", n->name, t->name);
    SLI_CHECK(n->cls != SL_CLASS_F || !is_backward(t->producer),
              "node %s, of the way forward, reads %s, of the way back", n->name, t->name);
  }
}

static void check_outputs(const sl_graph *g, const sli_node *n) {
  SLI_CHECK(!(n->accumulate_span & ~n->op->accumulates), "node %s cannot sum outputs %x", n->name,
            n->accumulate_span & ~n->op->accumulates);
  bool any = n->nout == 0;
  for (int o = 0; o < n->nout; o++) {
    const sl_tensor *t = n->out[o];
    if (!t) continue;
    any = true;
    bool in_place = sli_bit(sli_op_memory(n->op)->updates, o);
    SLI_CHECK(o >= SL_IN_PLACE_OUTPUTS || !sli_op_memory(n->op)->in_place[o] ||
                  !sli_bit(sli_op_memory(n->op)->updates | n->op->accumulates, o),
              "op %s: output %d may lie over an input and adds to what is there", n->op->name, o);
    SLI_CHECK(t->id < g->ntensors && g->tensors[t->id] == t, "node %s makes %s, which is gone",
              n->name, t->name);
    SLI_CHECK(sl_type_equal(&t->type, &n->out_type[o]), "node %s: output %d has another type",
              n->name, o);
    SLI_CHECK(in_place || t->producer == n, "node %s does not make %s alone", n->name, t->name);
  }
  SLI_CHECK(any, "node %s makes nothing", n->name);
}

static void check_node(const sl_graph *g, int id) {
  const sli_node *n = g->nodes[id];
  SLI_CHECK(n->id == id, "node %s has number %d, stands at %d", n->name, n->id, id);
  SLI_CHECK(!sli_attrs_check(n->op, &n->attrs), "node %s, op %s: %s", n->name, n->op->name,
            sl_detail());
  if (n->cls == SL_CLASS_L && n->block < 0) { /* reports, which belong to no block */
    check_inputs(g, n);
    check_outputs(g, n);
    return;
  }
  SLI_CHECK(n->block < g->nblocks && (n->block >= 0 || n->phase == SLI_PHASE_CLIP),
            "node %s is in block %d of %d", n->name, n->block, g->nblocks);
  bool beside = n->phase >= SLI_PHASE_EVAL, update = n->phase != SLI_PHASE_MAIN;
  bool fits = (n->cls == SL_CLASS_U) <= update && n->per_step == update &&
              (!update || n->cls == SL_CLASS_U || n->cls == SL_CLASS_C);
  SLI_CHECK(beside ? n->pace && !is_backward(n) : fits, "node %s: class %c in phase %d", n->name,
            sl_class_letter(n->cls), n->phase);
  check_inputs(g, n);
  check_outputs(g, n);
}

/* Checks the order: forward along the blocks, then backward against them, then phase by phase.
 * Packing may be anywhere before its readers, and gradients of the forward pass anywhere after the
 * forward nodes. Evaluations are exempt, and so are blocks sharded over the stages, which run where
 * they are read. */
static void check_order(const sl_graph *g) {
  const sli_node *forward = NULL, *backward = NULL, *update = NULL;
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    if (n->pace || (n->block >= 0 && g->blocks[n->block].sharded)) continue;
    if (n->cls == SL_CLASS_F) {
      bool made = !sli_is_forward(n);
      SLI_CHECK((made || !backward) && !update && (!forward || forward->block <= n->block),
                "forward node %s comes too late", n->name);
      forward = n;
    } else if (is_backward(n)) {
      SLI_CHECK(!update && (!backward || backward->block >= n->block),
                "backward node %s comes too late", n->name);
      backward = n;
    } else if (n->cls == SL_CLASS_U && n->phase != SLI_PHASE_PACK) {
      SLI_CHECK(!update || update->phase <= n->phase, "update node %s comes too late", n->name);
      update = n;
    }
  }
}

static int by_name(const void *a, const void *b) {
  return strcmp((*(sli_node *const *)a)->name, (*(sli_node *const *)b)->name);
}

static void check_names(const sl_graph *g) {
  sli_node **sorted = sli_calloc((size_t)g->nnodes, sizeof *sorted);
  memcpy(sorted, g->nodes, (size_t)g->nnodes * sizeof *sorted);
  qsort(sorted, (size_t)g->nnodes, sizeof *sorted, by_name);
  for (int i = 1; i < g->nnodes; i++)
    SLI_CHECK(strcmp(sorted[i - 1]->name, sorted[i]->name), "two nodes are named %s",
              sorted[i]->name);
  free(sorted);
}

static void check_training(const sl_graph *g) {
  for (int i = 0; i < g->nparams; i++) {
    const sl_tensor *p = g->params[i];
    SLI_CHECK((p->ngrads > 0) == (p->update != NULL), "parameter %s is %s", p->name,
              p->update ? "not trained" : "frozen and has a gradient");
    SLI_CHECK(!p->update || p->home >= 0, "parameter %s has no home", p->name);
    for (int u = 0; u < p->ngrads; u++) {
      const sli_node *n = p->grads[u]->producer;
      SLI_CHECK(n->per_step || n->accumulate_span >> p->grads[u]->output & 1,
                "gradient %s is not summed over the step", p->grads[u]->name);
    }
  }
}

void sli_graph_check(const sl_graph *g) {
  for (int t = 0; t < g->ntensors; t++) check_tensor(g, t);
  for (int n = 0; n < g->nnodes; n++) check_node(g, n);
  for (int i = 0; i < g->nparams; i++)
    SLI_CHECK(g->params[i]->param_index == i, "parameter %s is out of order", g->params[i]->name);
  check_order(g);
  check_names(g);
  if (g->grad_norm) check_training(g);
}
