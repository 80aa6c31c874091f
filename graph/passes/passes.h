/* SPDX-License-Identifier: Apache-2.0 */
/* Passes over a graph. graph/compile/passes.c says which run, and in which order. */
#ifndef SLUICE_GRAPH_PASSES_H
#define SLUICE_GRAPH_PASSES_H

#include <sluice/hardware.h>

#include "graph/graph.h"

/* Appends the backward pass (classes B and W) by the ops' gradient rules, then the updates: norm,
 * clip, steps. Each use of a parameter has a gradient tensor of its own, accumulated over the step,
 * so sums are the same wherever the uses are placed. */
sl_status sli_pass_gradients(sl_graph *g);

/* Makes each loss a sum over parts, where microbatches are sharded or sequences cut. */
sl_status sli_pass_losses(sl_graph *g);
/* Whether a tensor is, where a microbatch is in parts, in each part a mean over the part's own
 * rows. */
bool sli_is_mean(const sl_tensor *t);

/* Repeats key and value heads before attention is sharded by heads over so many devices: those that
 * several query heads share, for as many devices, or for so many times as many where there are
 * enough heads. Runs before the gradients. */
typedef struct sli_heads sli_heads;
sli_heads *sli_pass_heads(sl_graph *g, int devices, int times_devices);
/* Undoes the pass; nothing may have been added since. */
void sli_heads_undo(sl_graph *g, const sli_heads *before);

/* Moves the products of the classifier's gradient into the forward pass, for a vocabulary on all
 * stages with one barrier. Runs after the gradients. Names an op that has no such form. */
sl_status sli_pass_ahead(sl_graph *g);

/* Adds the updates of all trained parameters, whose gradients exist. A replica's norm is another
 * device's. Part of sli_pass_gradients. */
void sli_graph_add_updates(sl_graph *g);

/* Cuts sequences into pieces. The first decides on lengths, for devices of this hardware (NULL: a
 * CPU core), and exchanges ops for those of pieces; it runs before the gradients. The second works
 * out shapes for each length, after them. */
sl_status sli_pass_cut(sl_graph *g, const sl_hardware *hardware);

/* Finds the dims along which the sequences lie (sl_graph.positions). */
sl_status sli_positions_find(sl_graph *g);
sl_status sli_pass_pieces(sl_graph *g);
/* Adds nodes that make keys and values of one piece (sl_op.parts). Part of sli_pass_cut. */
sl_status sli_pass_parts(sl_graph *g);
/* Whether the node reads earlier pieces one after another. */
bool sli_is_sweeping(const sl_graph *g, const sli_node *n);
/* Whether the node reads keys and values as one array with nothing else in it. */
bool sli_has_parts(const sl_graph *g, const sli_node *n);

/* Recomputes activations right before the backward pass reads them, instead of keeping them:
 * "none", "selective" or "full"; "full@h.3" for some blocks; several with commas. */
sl_status sli_pass_recompute(sl_graph *g, const char *what);
/* Recomputes everything but attention and exchanges. With `some`, in some pieces only: a recomputed
 * tensor names the kept one that the other pieces read. */
void sli_pass_offload(sl_graph *g, bool some);

/* Adds the forward pass over held-out data, up to the loss and the metrics: twins[1 + nmetrics] are
 * their means there. Settles options.eval_microbatches. SL_E_USAGE names a source without
 * held-out data. */
sl_status sli_pass_evaluate(sl_graph *g, sli_mean *twins);

/* Adds the logarithms of the probabilities of the loss's targets, as g->logprobs. */
sl_status sli_pass_logprobs(sl_graph *g);

/* Inference: drops nodes that no output needs. */
sl_status sli_pass_outputs(sl_graph *g);

/* Serving: the graph begins with a tick's rows and ends with tokens drawn from their logits. The
 * second half runs after sharding and exchanges ops on rows for those that read the batch.
 * SL_E_UNSUPPORTED names an op that cannot be served. */
sl_status sli_pass_serve(sl_graph *g);
sl_status sli_pass_serve_rows(sl_graph *g);

/* Copies a graph that is served (both halves of serving have run) into that of training, as passes
 * of a device of each stage, with the parameters of training. SL_E_UNSUPPORTED names a parameter or
 * block that is not the same in both. */
sl_status sli_pass_rollouts(sl_graph *g, sl_graph *from, int rank);
/* Drops nodes and their outputs, which nothing else may read. A node may be listed twice. */
void sli_graph_drop(sl_graph *g, int count, const sli_node *const *nodes);

/* Training: frozen weights stay in the storage format of their file, and their readers become ops
 * that read it. SL_E_UNSUPPORTED names a weight that the devices cut through its blocks. */
sl_status sli_pass_stored(sl_graph *g);
/* Puts a parameter, or a device's part of one, in a storage format. false: it does not fit. */
bool sli_store(sl_tensor *param, sl_storage storage);

/* Training with prompts that have frames: whether a graph has such; cuts their encoders out of it;
 * adds them again, when it is that of all devices of a stage, as passes that come before all others
 * of a step. SL_E_UNSUPPORTED names an op that several devices cannot share. */
bool sli_has_spans(const sl_graph *g);
sl_status sli_pass_spans(sl_graph *g);
sl_status sli_pass_encode(sl_graph *g, int ranks);

/* Makes stand-ins of parameters, such as rounded weights, once a step. */
void sli_pass_weights(sl_graph *g);
/* Whether the gradient of the output, the node's only one with a gradient, is that of the only
 * input. */
bool sli_passes_straight(const sli_node *n);
/* Whether a weight lasts a whole step: a parameter, or one made once, before everything else. */
bool sli_stays(const sl_tensor *weight);

/* Products in bf16: packs each weight once a step, on the block that uses it. With `as_they_go`,
 * weight gradients round their operands inside the product, and so do products with a weight that
 * a step reads once. */
void sli_pass_products(sl_graph *g, bool as_they_go);

/* Makes tensors that flow through the model bf16, on devices that compute on such tensors. Runs
 * when all nodes are there. The mark alone says which tensors those would be. */
void sli_pass_narrow(sl_graph *g);
void sli_narrow_mark(sl_graph *g);

/* True if an op works on each row by itself: row by row, element by element, or as a reshape that
 * keeps so many rows along dim 1. Signatures do not say so: some ops count along what they split.
 */
bool sli_keeps_rows(const sli_node *n, int64_t rows);

/* Finds tensors of which only the first rows are valid, in sets with the same valid length.
 * Names an op that cannot read such a tensor. The second returns the first tensor of a set, or
 * NULL. */
sl_status sli_pass_valid_lengths(sl_graph *g);
sl_tensor *sli_valid_length(sl_tensor *t);

/* Pads rows of logits to a length that products like. Runs after sli_pass_narrow. */
void sli_pass_pad(sl_graph *g);

/* Keeps the nodes that `roots` are computed from and drops the rest, with blocks left without
 * forward nodes; numbers everything anew; puts a source into the block of its first reader; finds
 * the parameters' blocks. Part of the gradients and of the outputs. */
void sli_graph_prune(sl_graph *g, int nroots, sl_tensor *const *roots);

/* Drops arguments that calls read for their types alone, so that activations are not kept and, with
 * `params`, parameters not fetched for them. Types must be known. */
void sli_graph_drop_unread(sl_graph *g, bool params);

/* Cuts blocks into `stages` contiguous runs of least maximal cost, honouring forced stages, into
 * stage_of[nblocks]. Fails where there are fewer blocks. Runs after the gradients, which settle the
 * blocks. */
sl_status sli_pass_partition(const sl_graph *g, const sl_hardware *hardware, int stages,
                             int *stage_of);
/* Cuts by given seconds of blocks. The second returns the forward seconds of each block, for
 * free(). */
sl_status sli_pass_partition_by(const sl_graph *g, const double *seconds, int stages,
                                int *stage_of);
double *sli_block_seconds(const sl_graph *g, const sl_hardware *hardware);

/* Asserts every invariant of the structure; names the culprit and aborts. */
void sli_graph_check(const sl_graph *g);

#endif
