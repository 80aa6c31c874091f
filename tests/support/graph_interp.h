/* SPDX-License-Identifier: Apache-2.0 */
/* Reference interpreter of a graph of nodes. Every tensor has separate memory for each piece of the
 * sequences, which is never reused, and the nodes run in order, tick after tick. The actors must
 * compute the same bits. Training graphs come from sli_pass_gradients (after sli_pass_cut and
 * before sli_pass_pieces if sequences are split into pieces), inference graphs from
 * sli_pass_outputs. */
#ifndef SLUICE_TESTS_SUPPORT_GRAPH_INTERP_H
#define SLUICE_TESTS_SUPPORT_GRAPH_INTERP_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/build/build.h"
#include "graph/passes/passes.h"
#include "kernels/cpu/kernels.h"
#include "tests/support/test.h"

typedef struct interp {
  sl_graph *g;
  int pieces, variants;
  void **data;   /* [pieces][ntensors] */
  void **state;  /* [variants][nnodes], from the kernel's prepare() */
  void *scratch; /* large enough for every node */
  bool *back;    /* [nnodes] part of the backward pass */
} interp;

static inline void *interp_memory(size_t bytes) {
  bytes = (SLI_MAX(bytes, (size_t)1) + 63) / 64 * 64;
  void *p = aligned_alloc(64, bytes);
  CHECK(p, "no memory for %zu bytes", bytes);
  return memset(p, 0, bytes);
}

/* Returns the index of a piece's length among the different lengths. */
static inline int interp_variant(const interp *in, int piece) {
  int v = 0;
  while (in->variants > 1 && in->g->cut.variant_lengths[v] != in->g->cut.lengths[piece]) v++;
  return v;
}

static inline void *interp_place(const interp *in, const sl_tensor *t, int piece) {
  return t ? in->data[piece * in->g->ntensors + t->id] : NULL;
}

/* Makes a node's call. Sums over the step restart in the step's first backward pass, that of the
 * last piece. */
static inline sl_call interp_call(const interp *in, const sli_node *n, sl_tick tick,
                                  const void **ins, void **outs) {
  int v = interp_variant(in, tick.piece);
  for (int i = 0; i < n->nin; i++) ins[i] = interp_place(in, n->in[i], tick.piece);
  for (int o = 0; o < n->nout; o++) outs[o] = interp_place(in, n->out[o], tick.piece);
  bool adds = tick.microbatch || tick.piece + 1 < in->pieces;
  return (sl_call){.op = n->op,
                   .attrs = n->shapes ? &n->shapes[v].attrs : &n->attrs,
                   .nin = n->nin,
                   .nout = n->nout,
                   .in_type = n->shapes ? n->shapes[v].in : n->in_type,
                   .out_type = n->shapes ? n->shapes[v].out : n->out_type,
                   .in = ins,
                   .out = outs,
                   .accumulate = adds ? n->accumulate_span : 0,
                   .state = in->state[v * in->g->nnodes + n->id],
                   .scratch = in->scratch,
                   .tick = tick};
}

/* Returns whether all pieces share a tensor: parameters, records, and tensors that are summed or
 * made once per step. */
static inline bool interp_shared(const sl_tensor *t) {
  const sli_node *n = t->producer;
  return !n || n->per_step || sli_bit(sli_op_memory(n->op)->updates, t->output) ||
         sli_bit(n->accumulate_span, t->output);
}

static inline void interp_prepare(interp *in, const sli_node *n, int piece, size_t *scratch) {
  const void *ins[n->nin + 1];
  void *outs[n->nout + 1], **state = &in->state[interp_variant(in, piece) * in->g->nnodes + n->id];
  const sl_kernel *kernel = sli_cpu_kernel(n->op);
  CHECK(kernel, "node %s has no CPU kernel", n->name);
  sl_call call = interp_call(in, n, (sl_tick){.piece = piece}, ins, outs);
  if (kernel->prepare && !*state) {
    sl_status status = kernel->prepare(&call, state);
    CHECK(!status, "node %s: %s", n->name, sl_detail());
  }
  call.state = *state;
  if (kernel->scratch) *scratch = SLI_MAX(*scratch, kernel->scratch(&call, 1));
}

/* Marks the nodes of the backward pass: its passes, and exchanges of tensors that they make or
 * read. */
static inline void interp_find_ways(interp *in) {
  const sl_graph *g = in->g;
  in->back = calloc((size_t)g->nnodes + 1, 1);
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    in->back[i] = n->cls == SL_CLASS_B || n->cls == SL_CLASS_W;
    for (int a = 0; a < n->nin && n->cls == SL_CLASS_C; a++)
      in->back[i] |= n->in[a]->producer && in->back[n->in[a]->producer->id];
  }
  for (int i = g->nnodes - 1; i >= 0; i--)
    for (int a = 0; a < g->nodes[i]->nin && in->back[i]; a++) {
      const sl_tensor *t = g->nodes[i]->in[a];
      if (t && t->producer && t->producer->cls == SL_CLASS_C) in->back[t->producer->id] = true;
    }
}

/* Allocates every tensor and every node's state, and initializes parameters by their rules. */
static inline interp interp_create(sl_graph *g, uint64_t seed) {
  interp in = {.g = g, .pieces = g->options.pieces, .variants = SLI_MAX(g->cut.nvariants, 1)};
  CHECK(in.pieces == 1 || g->cut.nvariants, "the graph has not been cut");
  in.data = calloc((size_t)(in.pieces * g->ntensors) + 1, sizeof(void *));
  in.state = calloc((size_t)(in.variants * g->nnodes) + 1, sizeof(void *));
  for (int k = 0; k < in.pieces; k++)
    for (int t = 0; t < g->ntensors; t++)
      in.data[k * g->ntensors + t] = k && interp_shared(g->tensors[t])
                                         ? in.data[t]
                                         : interp_memory(sl_type_bytes(&g->tensors[t]->type));
  for (int p = 0; p < g->nparams; p++)
    sli_init_values(&g->params[p]->type, g->params[p]->init, g->params[p]->name, seed,
                    in.data[g->params[p]->id]);
  size_t scratch = 0;
  for (int k = 0; k < in.pieces; k++)
    for (int i = 0; i < g->nnodes; i++) interp_prepare(&in, g->nodes[i], k, &scratch);
  in.scratch = interp_memory(scratch);
  interp_find_ways(&in);
  return in;
}

static inline void interp_destroy(interp *in) {
  sl_graph *g = in->g;
  for (int k = 0; k < in->pieces; k++)
    for (int t = 0; t < g->ntensors; t++)
      if (!k || !interp_shared(g->tensors[t])) free(in->data[k * g->ntensors + t]);
  for (int v = 0; v < in->variants; v++)
    for (int n = 0; n < g->nnodes; n++) {
      const sl_kernel *kernel = sli_cpu_kernel(g->nodes[n]->op);
      if (kernel->release) kernel->release(in->state[v * g->nnodes + n]);
    }
  free(in->data);
  free(in->state);
  free(in->scratch);
  free(in->back);
}

static inline void interp_node(interp *in, int i, sl_tick tick) {
  const sli_node *n = in->g->nodes[i];
  const void *ins[n->nin + 1];
  void *outs[n->nout + 1];
  sl_call call = interp_call(in, n, tick, ins, outs);
  sli_cpu_kernel(n->op)->run(&call);
}

/* Returns the values of a tensor (the first piece, if it is cut) as the last node wrote them. */
static inline void *interp_data(const interp *in, const sl_tensor *t) { return in->data[t->id]; }

static inline sl_tick interp_tick(const interp *in, int64_t step, int microbatch, int piece) {
  sl_tick tick = {.number = (step * in->g->options.microbatches + microbatch) * in->pieces + piece,
                  .step = step,
                  .microbatch = microbatch,
                  .piece = piece};
  if (in->pieces == 1) return tick;
  for (int k = 0; k < piece; k++) tick.row += in->g->cut.lengths[k];
  tick.rows = in->g->cut.lengths[piece];
  return tick;
}

static inline double interp_scalar(const interp *in, const sl_tensor *t, int piece) {
  const void *p = interp_place(in, t, piece);
  return t->type.dtype == SL_F64 ? *(const double *)p : (double)*(const float *)p;
}

/* Adds the loss of a microbatch, weighted by each piece's share of the positions and each
 * device's share of the rows. */
static inline void interp_add_loss(const interp *in, double *sum) {
  const sl_graph *g = in->g;
  for (int k = 0; k < in->pieces; k++) {
    bool whole = in->pieces == 1 || g->loss.adds;
    double share = whole ? 1 : (double)g->cut.lengths[k] / (double)g->cut.length;
    int v = 0;
    while (v < g->cut.nvariants && g->cut.variant_lengths[v] != g->cut.lengths[k]) v++;
    for (int i = 0; i < g->loss.nparts; i++) {
      const double *part = g->loss.parts[i].share;
      *sum += share * (part ? part[v] : 1) * interp_scalar(in, g->loss.parts[i].tensor, k);
    }
  }
}

static inline void interp_way(interp *in, int64_t step, int microbatch, int piece, bool back) {
  for (int i = 0; i < in->g->nnodes; i++)
    if (!in->g->nodes[i]->per_step && in->back[i] == back)
      interp_node(in, i, interp_tick(in, step, microbatch, piece));
}

/* Parts that run once per step: before the passes, completing the gradients, and the update. */
typedef enum interp_part { INTERP_BEFORE, INTERP_WHOLE, INTERP_UPDATE } interp_part;

static inline void interp_once(interp *in, int64_t step, interp_part part) {
  sl_tick tick = interp_tick(in, step, in->g->options.microbatches - 1, in->pieces - 1);
  for (int i = 0; i < in->g->nnodes; i++) {
    const sli_node *n = in->g->nodes[i];
    interp_part is = n->phase == SLI_PHASE_PACK ? INTERP_BEFORE
                     : n->cls == SL_CLASS_C     ? INTERP_WHOLE
                                                : INTERP_UPDATE;
    if (n->per_step && is == part) interp_node(in, i, tick);
  }
}

/* Runs only forward nodes and returns the mean loss of a step with the current values. */
static inline double interp_forward(interp *in, int64_t step) {
  int M = in->g->options.microbatches;
  double sum = 0;
  interp_once(in, step, INTERP_BEFORE);
  for (int m = 0; m < M; m++) {
    for (int k = 0; k < in->pieces; k++) interp_way(in, step, m, k, false);
    interp_add_loss(in, &sum);
  }
  return sum / M;
}

/* Runs the forward and backward passes of a step: gradients are complete, nothing is updated.
 * Returns the mean loss over the microbatches, summed in order. */
static inline double interp_backward(interp *in, int64_t step) {
  int M = in->g->options.microbatches;
  double sum = 0;
  interp_once(in, step, INTERP_BEFORE);
  for (int m = 0; m < M; m++) {
    for (int k = 0; k < in->pieces; k++) interp_way(in, step, m, k, false);
    for (int k = in->pieces - 1; k >= 0; k--) interp_way(in, step, m, k, true);
    interp_add_loss(in, &sum);
  }
  interp_once(in, step, INTERP_WHOLE);
  return sum / M;
}

/* Runs a whole training step. */
static inline double interp_step(interp *in, int64_t step) {
  double loss = interp_backward(in, step);
  interp_once(in, step, INTERP_UPDATE);
  return loss;
}

#endif
