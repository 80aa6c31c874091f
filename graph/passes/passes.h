/* SPDX-License-Identifier: Apache-2.0 */
/* Passes over a graph. graph/compile/passes.c lists them in execution order. */
#ifndef SLUICE_GRAPH_PASSES_PASSES_H
#define SLUICE_GRAPH_PASSES_PASSES_H

#include <sluice/hardware.h>

#include "graph/graph.h"

/* Appends the backward pass (classes B and W) by the ops' gradient rules, then the updates: norm,
 * clip, steps. Each use of a parameter has a separate gradient tensor, accumulated over the step,
 * so sums do not depend on where the uses are placed. */
sl_status sli_pass_gradients(sl_graph *g);

/* Makes each loss a sum over parts, if microbatches are sharded or sequences cut. */
sl_status sli_pass_losses(sl_graph *g);
/* Adds so many experts to each mixture, on devices that hold no values. */
sl_status sli_pass_replicas(sl_graph *g, int replicas);
/* Returns true if, when a microbatch is computed in parts, each part's tensor is a mean over the
 * rows of that part. */
bool sli_is_mean(const sl_tensor *t);
/* Returns the number of summands of a node's mean over a microbatch (sl_op_exact.total), or 0 if
 * the op does not declare them. */
int64_t sli_mean_summands(const sli_node *n);

/* Repeats key and value heads that several query heads share, before attention is sharded by heads
 * over `devices` devices; if there are enough heads, for `times_devices` times as many devices.
 * Runs before the gradients. */
typedef struct sli_heads sli_heads;
sli_heads *sli_pass_heads(sl_graph *g, int devices, int times_devices);
/* Undoes the pass; nothing may have been added to the graph since. */
void sli_heads_undo(sl_graph *g, const sli_heads *before);

/* Checks that every sum over rows of an exact graph has a declared order. SL_E_UNSUPPORTED names an
 * op with another sum. Part of sli_pass_gradients. */
sl_status sli_graph_check_sums(sl_graph *g);

/* Moves the products of the classifier's gradient into the forward pass, for a vocabulary on all
 * stages with one barrier. Runs after the gradients. Fails with an error that names an op without
 * such a form. */
sl_status sli_pass_ahead(sl_graph *g);

/* Adds the updates of all trained parameters, whose gradients must exist. Another device computes a
 * replica's norm. Part of sli_pass_gradients. */
void sli_graph_add_updates(sl_graph *g);

/* Cut sequences into pieces. sli_pass_cut runs before the gradients: it chooses lengths, for
 * devices of this hardware (NULL: a CPU core), and replaces ops by their versions for pieces.
 * sli_pass_pieces runs after the gradients and computes the shapes for each length. */
sl_status sli_pass_cut(sl_graph *g, const sl_hardware *hardware);

/* Finds the sequence dims of tensors (sl_graph.positions). */
sl_status sli_positions_find(sl_graph *g);
sl_status sli_pass_pieces(sl_graph *g);
/* Adds nodes that compute keys and values of one piece (sl_op_cut.parts). Part of sli_pass_cut. */
sl_status sli_pass_parts(sl_graph *g);
/* Returns true if the node reads earlier pieces one at a time. */
bool sli_is_sweeping(const sl_graph *g, const sli_node *n);
/* Returns true if the node reads keys and values as one array that contains nothing else. */
bool sli_has_parts(const sl_graph *g, const sli_node *n);

/* Recomputes activations right before the backward pass reads them, instead of keeping them:
 * "none", "selective" or "full"; "full@h.3" for some blocks; several separated by commas. */
sl_status sli_pass_recompute(sl_graph *g, const char *what);
/* Recomputes everything except attention and exchanges. With `some`, only in some pieces: a
 * recomputed tensor then refers to the kept tensor, which the other pieces read. */
void sli_pass_offload(sl_graph *g, bool some);

/* Adds the forward pass over held-out data, up to the loss and the metrics, whose means are twins[1
 * + nmetrics]. Determines the number of microbatches of an evaluation. SL_E_USAGE names a source
 * without held-out data. */
sl_status sli_pass_evaluate(sl_graph *g, sli_mean *twins);

/* Adds the log-probabilities of the loss's targets, as g->logprobs. */
sl_status sli_pass_logprobs(sl_graph *g);

/* Inference: drops nodes that no output needs. */
sl_status sli_pass_outputs(sl_graph *g);

/* Serving. The first half makes the graph begin with a tick's rows and end with tokens sampled from
 * their logits. The second half runs after sharding and replaces ops by the ops that read the
 * batch; so many devices share a tick's rows. SL_E_UNSUPPORTED names an op that cannot be
 * served. */
sl_status sli_pass_serve(sl_graph *g);
sl_status sli_pass_serve_rows(sl_graph *g, int sharers);

/* Serving: reads the weights of experts from disk in the order that a tick's rows want them, in
 * blocks that on_disk[nblocks] names. asked: the user gives experts that home, so a graph without
 * such experts is refused. */
sl_status sli_pass_experts(sl_graph *g, const bool *on_disk, bool asked);
/* Serving: reads the rows of tables from disk that a tick looks up, in blocks that
 * on_disk[nblocks] names. A graph without such tables is refused. */
sl_status sli_pass_tables(sl_graph *g, const bool *on_disk);

/* Copies a served graph, after both halves of serving, into the training graph, as passes of one
 * device of each stage that read the training parameters. SL_E_UNSUPPORTED names a parameter or
 * block that differs between the two. */
sl_status sli_pass_rollouts(sl_graph *g, sl_graph *from, int rank);
/* Drops nodes and their outputs, which nothing else may read. A node may be listed twice. */
void sli_graph_drop(sl_graph *g, int count, const sli_node *const *nodes);

/* Training: keeps frozen weights in the storage format of their file, and replaces their readers by
 * ops that read that format. SL_E_UNSUPPORTED names a weight whose sharding cuts through its
 * storage blocks. */
sl_status sli_pass_stored(sl_graph *g);
/* Converts a parameter, or a device's part of one, to a storage format. Returns false if the format
 * does not fit. */
bool sli_store(sl_tensor *param, sl_storage storage);
/* Fails because shards of a parameter would cut blocks. */
sl_status sli_refuse_cut(const sl_tensor *param);

/* Training with frames of prompts. sli_has_spans: returns true if the graph has them.
 * sli_pass_spans: cuts out their encoders. sli_pass_encode: adds the encoders again once the graph
 * covers all devices of a stage, as passes before all other passes of a step. SL_E_UNSUPPORTED
 * names an op that several devices cannot share. */
bool sli_has_spans(const sl_graph *g);
sl_status sli_pass_spans(sl_graph *g);
sl_status sli_pass_encode(sl_graph *g, int ranks);

/* Computes values that stand in for parameters, such as rounded weights, once a step. */
void sli_pass_weights(sl_graph *g);
/* Returns true if the gradient of the node's only differentiable output is passed unchanged to its
 * only input. */
bool sli_passes_straight(const sli_node *n);
/* Returns true if a weight is constant for a whole step: a parameter, or a value computed once,
 * before everything else. */
bool sli_stays(const sl_tensor *weight);

/* Products in bf16: packs each weight once a step, on the block that uses it. With `as_they_go`,
 * weight gradients, and products with a weight that a step reads once, round their operands inside
 * the product. */
void sli_pass_products(sl_graph *g, bool as_they_go);

/* Makes tensors that flow through the model bf16, on devices that compute on bf16 tensors. Runs
 * when all nodes exist. sli_narrow_mark only marks these tensors. */
void sli_pass_narrow(sl_graph *g);
void sli_narrow_mark(sl_graph *g);

/* True if an op works on each row independently: row by row, element by element, or as a reshape
 * that keeps `rows` rows along dim 1. Signatures do not tell: some ops count positions along the
 * dim that they split. */
bool sli_keeps_rows(const sli_node *n, int64_t rows);

/* Finds tensors with only their first rows valid, as sets with the same valid length. Fails with an
 * error that names an op that cannot read such a tensor. sli_valid_length returns the first tensor
 * of a tensor's set, or NULL. */
sl_status sli_pass_valid_lengths(sl_graph *g);
sl_tensor *sli_valid_length(sl_tensor *t);

/* Pads rows of logits to a length that is fast to multiply. Runs after sli_pass_narrow. */
void sli_pass_pad(sl_graph *g);

/* Keeps the nodes that `roots` depend on and drops the rest, including blocks left without forward
 * nodes; renumbers everything; moves each source to the block of its first reader; finds the
 * parameters' blocks. Part of the passes for gradients and outputs. */
void sli_graph_prune(sl_graph *g, int nroots, sl_tensor *const *roots);

/* Drops arguments of which calls read only the type, so that activations are not kept, and with
 * `params`, parameters are not fetched for them. Types must be known. */
void sli_graph_drop_unread(sl_graph *g, bool params);

/* Cuts blocks into `stages` contiguous runs that minimise the maximum cost, honouring forced
 * stages, and fills stage_of[nblocks]. Fails if there are fewer blocks than stages. Runs after the
 * gradients, which determine the blocks. */
sl_status sli_pass_partition(const sl_graph *g, const sl_hardware *hardware, int stages,
                             int *stage_of);
/* sli_pass_partition_by cuts by given seconds per block, times the visits[stages] of its stage in a
 * step (NULL: equally many). sli_block_seconds returns the forward seconds of each block; the
 * caller frees them with free(). */
sl_status sli_pass_partition_by(const sl_graph *g, const double *seconds, const int *visits,
                                int stages, int *stage_of);
double *sli_block_seconds(const sl_graph *g, const sl_hardware *hardware);

/* Checks all structural invariants; names the offender and aborts. */
void sli_graph_check(const sl_graph *g);

#endif
