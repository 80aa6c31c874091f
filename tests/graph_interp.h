/* Runs a lowered-to-nodes graph in the plainest way there is: every tensor has
 * memory of its own for ever, and the nodes run in their order, tick after tick.
 * What the actors compute must have the same bits. Training graphs come from
 * sli_pass_gradients, inference graphs from sli_pass_outputs. */
#ifndef SLUICE_TESTS_GRAPH_INTERP_H
#define SLUICE_TESTS_GRAPH_INTERP_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "tests/test.h"

typedef struct interp {
  sl_graph *g;
  void **data;   /* [ntensors] */
  void **state;  /* [nnodes], of op->prepare */
  void *scratch; /* large enough for every node */
} interp;

static inline void *interp_memory(size_t bytes) {
  bytes = (SLI_MAX(bytes, (size_t)1) + 63) / 64 * 64;
  void *p = aligned_alloc(64, bytes);
  CHECK(p, "no memory for %zu bytes", bytes);
  return memset(p, 0, bytes);
}

static inline sl_call interp_call(const interp *in, const sli_node *n, sl_tick tick,
                                  const void **ins, void **outs) {
  for (int i = 0; i < n->nin; i++) ins[i] = n->in[i] ? in->data[n->in[i]->id] : NULL;
  for (int o = 0; o < n->nout; o++) outs[o] = n->out[o] ? in->data[n->out[o]->id] : NULL;
  return (sl_call){.op = n->op, .attrs = &n->attrs, .nin = n->nin, .nout = n->nout,
                   .in_type = n->in_type, .out_type = n->out_type, .in = ins, .out = outs,
                   .accumulate = tick.microbatch ? n->accumulate_span : 0,
                   .state = in->state[n->id], .scratch = in->scratch, .tick = tick};
}

/* Room for every tensor, state for every node; parameters by their init rules. */
static inline interp interp_create(sl_graph *g, uint64_t seed) {
  CHECK(g->options.pieces == 1, "the interpreter runs whole microbatches only");
  interp in = {.g = g, .data = calloc((size_t)g->ntensors + 1, sizeof(void *)),
               .state = calloc((size_t)g->nnodes + 1, sizeof(void *))};
  for (int t = 0; t < g->ntensors; t++)
    in.data[t] = interp_memory(sl_type_bytes(&g->tensors[t]->type));
  for (int p = 0; p < g->nparams; p++)
    sli_init_values(&g->params[p]->type, g->params[p]->init, g->params[p]->name, seed,
                    in.data[g->params[p]->id]);
  size_t scratch = 0;
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    const void *ins[n->nin + 1];
    void *outs[n->nout + 1];
    CHECK(n->op->cpu, "node %s has no CPU kernel", n->name);
    sl_call call = interp_call(&in, n, (sl_tick){0}, ins, outs);
    if (n->op->prepare) {
      sl_status status = n->op->prepare(&call, &in.state[i]);
      CHECK(!status, "node %s: %s", n->name, sl_detail());
    }
    call.state = in.state[i];
    if (n->op->scratch) scratch = SLI_MAX(scratch, n->op->scratch(&call, 1));
  }
  in.scratch = interp_memory(scratch);
  return in;
}

static inline void interp_destroy(interp *in) {
  for (int t = 0; t < in->g->ntensors; t++) free(in->data[t]);
  for (int n = 0; n < in->g->nnodes; n++)
    if (in->g->nodes[n]->op->release) in->g->nodes[n]->op->release(in->state[n]);
  free(in->data);
  free(in->state);
  free(in->scratch);
}

static inline void interp_node(interp *in, int i, sl_tick tick) {
  const sli_node *n = in->g->nodes[i];
  const void *ins[n->nin + 1];
  void *outs[n->nout + 1];
  sl_call call = interp_call(in, n, tick, ins, outs);
  n->op->cpu(&call);
}

/* The values of a tensor, as the last node that wrote them left them. */
static inline void *interp_data(const interp *in, const sl_tensor *t) { return in->data[t->id]; }

static inline sl_tick interp_tick(const interp *in, int64_t step, int microbatch) {
  return (sl_tick){.number = step * in->g->options.microbatches + microbatch, .step = step,
                   .microbatch = microbatch};
}

/* The loss of the last tick. */
static inline double interp_tick_loss(const interp *in) {
  const void *loss = interp_data(in, in->g->loss);
  return in->g->loss->type.dtype == SL_F64 ? *(const double *)loss : *(const float *)loss;
}

/* All nodes of one tick. */
static inline void interp_run_tick(interp *in, int64_t step, int microbatch) {
  for (int i = 0; i < in->g->nnodes; i++)
    if (!in->g->nodes[i]->per_step) interp_node(in, i, interp_tick(in, step, microbatch));
}

/* Forward and backward of a step: gradients are complete, nothing is updated.
 * Returns the mean loss over the microbatches, summed in order. */
static inline double interp_backward(interp *in, int64_t step) {
  int M = in->g->options.microbatches;
  double sum = 0;
  for (int m = 0; m < M; m++) {
    interp_run_tick(in, step, m);
    sum += interp_tick_loss(in);
  }
  return sum / M;
}

/* A whole step of training. */
static inline double interp_step(interp *in, int64_t step) {
  double loss = interp_backward(in, step);
  for (int i = 0; i < in->g->nnodes; i++)
    if (in->g->nodes[i]->per_step)
      interp_node(in, i, interp_tick(in, step, in->g->options.microbatches - 1));
  return loss;
}

/* Forward nodes alone: the mean loss of a step with the values as they are. */
static inline double interp_forward(interp *in, int64_t step) {
  int M = in->g->options.microbatches;
  double sum = 0;
  for (int m = 0; m < M; m++) {
    for (int i = 0; i < in->g->nnodes; i++) {
      sl_class cls = in->g->nodes[i]->cls;
      if (cls == SL_CLASS_F || cls == SL_CLASS_L) interp_node(in, i, interp_tick(in, step, m));
    }
    sum += interp_tick_loss(in);
  }
  return sum / M;
}

#endif
