/* The passes over a graph, in the order in which lowering runs them, and what others ask of them. */
#ifndef SLUICE_GRAPH_PASSES_H
#define SLUICE_GRAPH_PASSES_H

#include <sluice/hardware.h>

#include "graph/graph.h"

/* Pass 2, training: appends backward nodes (B, W) from the ops' gradient rules
 * and the update nodes (norm, clip, steps), and checks the result. Each
 * parameter gets one gradient tensor per use, accumulated over the step, so
 * that the sums are the same wherever the uses are placed. */
sl_status sli_pass_gradients(sl_graph *g);

/* Before all, where rows are shared out or sequences cut: a loss becomes a sum of what the parts
 * bring. */
sl_status sli_pass_losses(sl_graph *g);
/* Of a tensor of any graph: where a microbatch is in parts, is each part's a mean over its own rows? */
bool sli_is_mean(const sl_tensor *t);

/* Before the gradients, where attention is to be shared out by heads among so many devices: where there
 * are fewer heads of keys and values, those that several queries' heads share are repeated for as many,
 * or for so many times as many, if there are enough of those. */
typedef struct sli_heads sli_heads;
sli_heads *sli_pass_heads(sl_graph *g, int devices, int times_devices);
/* As it was before that; nothing else may have been added. */
void sli_heads_undo(sl_graph *g, const sli_heads *before);

/* After them, where the vocabulary lies on all stages and a microbatch is to wait for all of them once: the
 * products that its gradient needs are made on the way there. Names what has no such form. */
sl_status sli_pass_ahead(sl_graph *g);

/* Part of the gradients: the update nodes of all parameters that are trained, each of which has its
 * gradients. A replica's norm is another device's. */
void sli_graph_add_updates(sl_graph *g);

/* Before and after the gradients where sequences are cut in pieces: decides the
 * lengths (for devices of this hardware; NULL: any core) and exchanges rows; works out the shapes of each
 * length. */
sl_status sli_pass_cut(sl_graph *g, const sl_hardware *hardware);
/* Is it one to which what it looks back to comes piece by piece? For those the pass, a part of the one
 * above, adds nodes that make what they read (sl_op.parts). */
bool sli_is_sweeping(const sl_graph *g, const sli_node *n);
/* Does it read keys and values as one array that has nothing else? */
bool sli_has_parts(const sl_graph *g, const sli_node *n);
sl_status sli_pass_parts(sl_graph *g);
sl_status sli_pass_pieces(sl_graph *g);

/* Has forward calls made again, right before the way back reads their results, instead of
 * keeping these: "none", "selective" or "full", "full@h.3" of some blocks, several with commas. */
sl_status sli_pass_recompute(sl_graph *g, const char *what);
/* The same of all blocks, but of attention and of what devices exchange. `some`: of some pieces; what
 * is made again says what the others have in its place. */
void sli_pass_offload(sl_graph *g, bool some);

/* The way forward to the loss and the metrics once more, for evaluation: twins[1 + nmetrics] stand
 * there for these. Settles how much is evaluated. SL_E_USAGE names what has no held-out data. */
sl_status sli_pass_evaluate(sl_graph *g, sli_mean *twins);

/* Pass 2, inference: drops nodes that no output needs. */
sl_status sli_pass_outputs(sl_graph *g);

/* The same of a graph that is served: has it begin with a tick's rows, and end with what is drawn from their
 * logits. And, when stages have been shared out, the rest: exchanges rows that look at other positions for those
 * that read the batch. SL_E_UNSUPPORTED names what cannot be served. */
sl_status sli_pass_serve(sl_graph *g);
sl_status sli_pass_serve_rows(sl_graph *g);

/* Pass 3, where products are to be in bf16: has each product with a weight that is
 * a parameter read it packed, and packs it once a step on the block that uses
 * it; weight gradients round their operands as they go, and so do products with weights that
 * a step reads once, where devices can (`as_they_go`). */
void sli_pass_products(sl_graph *g, bool as_they_go);

/* Pass 4, for devices that compute on bf16 tensors where products are to be in bf16: those
 * that flow through the model become bf16. Comes when all nodes are there. Alone, the first
 * half of it: says which they would be. */
void sli_pass_narrow(sl_graph *g);
void sli_narrow_mark(sl_graph *g);

/* Last but for these: which tensors have rows that need not be valid, and which of them have as many
 * valid ones. Names the op that cannot read such. The first tensor of those, or NULL. */
sl_status sli_pass_extents(sl_graph *g);
sl_tensor *sli_tensor_extent(sl_tensor *t);

/* With it: rows of logits become as long as products like them, where nobody minds. */
void sli_pass_pad(sl_graph *g);

/* Part of both: keeps the nodes that `roots` are computed from, drops the rest,
 * and blocks left without forward nodes; numbers everything anew; puts a source
 * into the block of its first reader; finds the parameters' homes. */
void sli_graph_prune(sl_graph *g, int nroots, sl_tensor *const *roots);

/* Activations that a call takes for their types only are not kept for it, and parameters not brought
 * to it, where that would be work. When all types are known. */
void sli_graph_drop_unread(sl_graph *g, bool params);

/* Cuts blocks into `stages` contiguous runs, least maximal cost first, honouring
 * forced stages. stage_of[nblocks]. Fails if there are fewer blocks. Comes after
 * pass 2, which settles what the blocks are. */
sl_status sli_pass_partition(const sl_graph *g, const sl_hardware *hardware, int stages, int *stage_of);
/* The same, by seconds of blocks; and those that their calls take forward, for free(). */
sl_status sli_pass_partition_by(const sl_graph *g, const double *seconds, int stages, int *stage_of);
double *sli_block_seconds(const sl_graph *g, const sl_hardware *hardware);

/* Asserts every invariant of the structure; names the culprit and aborts. */
void sli_graph_check(const sl_graph *g);

#endif
