/* SPDX-License-Identifier: Apache-2.0 */
/* Rewrites the graph of one row of positions as the graph of a tick of a server. */
#ifndef SLUICE_PYTORCH_SERVED_H
#define SLUICE_PYTORCH_SERVED_H

#include "graph/graph.h"

typedef struct sli_served_how {
  /* Refuses a node of the graph that is rewritten: fails `to`, with the node's origin. */
  void (*refuse)(void *ctx, sl_graph *to, const sli_node *n, const char *why);
  void *ctx;
} sli_served_how;

/* Writes the nodes that `logits` needs into `to`. tokens, i32 [1, T], and logits, [.., T, .., V],
 * belong to `from`, which must outlive `to`; rows, i32 [1, R], belong to `to`. Returns the logits
 * of the rows, f32 [1, R, V], or NULL if `to` has failed. */
sl_tensor *sli_served_rewrite(const sli_served_how *how, sl_graph *from, const sl_tensor *tokens,
                              const sl_tensor *logits, sl_graph *to, sl_tensor *rows);
/* Refuses a node by which a row of the batch depends on another row, or on its place in the batch.
 * tokens, i32 [N, T], and logits belong to `from`; `to` is for the check only, and has rows, i32
 * [1, R, T]. */
void sli_served_check_batch(const sli_served_how *how, sl_graph *from, const sl_tensor *tokens,
                            const sl_tensor *logits, sl_graph *to, sl_tensor *rows);

#endif
