/* SPDX-License-Identifier: Apache-2.0 */
/* Ring attention: the chunks of keys and values on each device, and the nodes from which both
 * orders of steps are built (ring.c, ring_walk.c). */
#ifndef SLUICE_GRAPH_SHARDING_RING_H
#define SLUICE_GRAPH_SHARDING_RING_H

#include "graph/sharding/expand.h"
#include "ops/mask.h"

enum { SLI_RUNS = 2 }; /* maximum runs of positions per device */

/* Tensors of one call that the backward pass rereads. */
struct sli_round {
  sl_tensor **q;               /* [ranks] */
  sl_tensor *(*own)[SLI_RUNS]; /* [ranks] keys and values of each run */
};

typedef struct sli_chunk_ring {
  sli_expansion *x;
  const sli_node *n; /* forward call */
  const char *name;
  sli_moment at;
  int members;
  struct sli_round *kept;
  sl_tensor *(*given)[SLI_RUNS]; /* [ranks] own chunks in the form that other devices read */
} sli_chunk_ring;

sli_chunk_ring sli_ring_of(sli_expansion *x, const sli_node *n, const char *name, sli_moment at,
                           struct sli_round *kept);
struct sli_round *sli_ring_keep(sli_expansion *x, const sli_node *n);

/* ---- positions ------------------------------------------------------------------------------- */

/* Returns the runs of positions of a member. */
sl_part sli_ring_runs(const sli_chunk_ring *ring, int member);
int sli_ring_member(const sli_chunk_ring *ring, int rank);
int sli_ring_rank(const sli_chunk_ring *ring, int rank, int member);
int64_t sli_ring_length(const sli_chunk_ring *ring);
/* True if a query of run i may see a key of run j, or of a tile of `tile` keys that begins within
 * that run. */
bool sli_ring_sees(const sli_chunk_ring *ring, const sl_part *q, int i, const sl_part *k, int j,
                   int64_t tile);
/* Adds the pair of query run i and the first `keys` keys of chunk j. */
sli_span *sli_ring_add_span(sli_spans *to, const sl_part *q, int i, const sl_part *k, int j,
                            int64_t keys);

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Adds a node with outputs out[nout]. */
sl_status sli_ring_add(const sli_chunk_ring *ring, const sl_op *op, const char *what, sl_class cls,
                       int rank, int nin, sl_tensor *const *in, const sl_attrs *attrs, int nout,
                       sl_tensor **out);
sl_status sli_ring_slice(const sli_chunk_ring *ring, const char *what, int rank, sl_tensor *t,
                         sl_part part, sl_tensor **out);
/* Copies a tensor to a device. */
sl_status sli_ring_copy(const sli_chunk_ring *ring, const char *what, int rank, sl_tensor *t,
                        sl_tensor **out);
/* Cuts a device's inputs of the call into queries and chunks. */
sl_status sli_ring_cut(const sli_chunk_ring *ring, int rank, sl_tensor *const *in);
/* Sends chunks again for the backward pass if devices have separate memories; otherwise the forward
 * pass's copies would have to be kept. */
sl_status sli_ring_give_again(sli_chunk_ring *ring);
/* Assembles the gradients of queries and chunks into gradients of the call's inputs. */
sl_status sli_ring_put_together(const sli_chunk_ring *ring, int rank, sl_tensor *dq,
                                sl_tensor *const *own, sli_array *const *out);

/* ---- inputs ---------------------------------------------------------------------------------- */

enum { SLI_RING_INPUTS = 3 }; /* maximum number of inputs before the ids */

/* Returns a device's tensor for input i of a call, or NULL if absent. */
static inline sl_tensor *sli_ring_on(sli_array *const *in, int nin, int i, int rank) {
  return i < nin && in[i] ? in[i]->on[rank] : NULL;
}

/* Returns the index of the ids among the inputs. */
int sli_ring_ids(const sli_node *forward);

/* Inputs of a device's backward pass. */
typedef struct sli_ring_back {
  sl_tensor *o, *lse, *dout, *ids;
} sli_ring_back;
sli_ring_back sli_ring_back_of(const sli_chunk_ring *ring, sli_array *const *in, int nin, int rank);

/* ---- steps in the order of positions: ring_walk.c -------------------------------------------- */

sl_status sli_ring_walk(const sli_chunk_ring *ring, sli_array *const *in, int nin,
                        sli_array *const *out);
sl_status sli_ring_walk_back(const sli_chunk_ring *ring, sli_array *const *in, int nin,
                             sli_array *const *out);

#endif
