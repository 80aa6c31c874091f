/* SPDX-License-Identifier: Apache-2.0 */
/* Code shared by the search for dims, signatures and choices. */
#ifndef SLUICE_GRAPH_SHARDING_SEARCH_H
#define SLUICE_GRAPH_SHARDING_SEARCH_H

#include "graph/sharding/sharding.h"

/* True if the node has signatures. */
static inline bool sli_is_shared(const sli_node *n) {
  return sli_is_forward(n) || sli_op_is(n->op, SL_OP_SOURCE);
}

/* Lists the ways to shard a node, ignoring the size and the units of its dims, in
 * out[SLI_SIGNATURES_RAW]. Returns their number, 0 for nodes without signatures. */
enum { SLI_SIGNATURES_RAW = 1 + SL_MAX_DIMS + SL_SIGNATURES };
int sli_signatures_raw(const sli_node *node, sl_signature *out);

/* Returns how many dims of an input are rows; for ids, all of them may be. */
static inline int sli_row_dims(const sl_type *type) {
  return type->dtype == SL_I32 ? type->ndim : type->ndim - 1;
}

/* ---- exact sums: groups.c ------------------------------------------------------------------- */

/* True if a way to shard a call over `size` devices of an axis that does not shard rows keeps all
 * sums bitwise identical. */
bool sli_is_way_exact(const sli_dim *dims, const sli_node *n, const sl_signature *s, int size);

/* ---- dispatch of rows to experts: dispatched.c ------------------------------------------ */

/* Progress of the pass over an axis of rows. */
typedef struct sli_dispatching {
  const sl_sbp *layouts;    /* [ntensors] */
  const sli_node **routers; /* [ntensors] see sli_choice; NULL: the axis has no experts */
  int size;                 /* devices that share the experts */
} sli_dispatching;

/* Picks from a node's ways all[count] the one that runs at the experts, if any. Records the call
 * that routed its rows. */
bool sli_choose_dispatched(const sli_dispatching *r, const sli_node *node, const sl_signature *all,
                           int count, sl_signature *out);
/* Rejects an axis of experts if the model has no experts or too few. */
sl_status sli_check_dispatched(sl_graph *g, const sli_dispatching *r);

/* ---- costs ----------------------------------------------------------------------- */

/* Context in which a choice for one axis is priced. */
typedef struct sli_costs {
  const sl_graph *g;
  const sli_dim *dims;
  const sli_grid *grid;
  int axis, size;
  int share;                  /* number of devices that shard the data rows along the other axis */
  const bool *chunked;        /* [nnodes] call runs as ring attention; NULL: none does */
  bool *has_rows;             /* [ntensors] tensor depends on data rows */
  const sli_choice *sequence; /* how another axis shards sequences; NULL: none does */
  const sli_choice *experts;  /* how another axis shards experts; NULL: none does */
  bool rows_last;             /* break ties by keeping rows whole: the data axis shards them */
} sli_costs;

void sli_costs_init(sli_costs *c, const sl_graph *g, const sli_dim *dims, const sli_grid *grid,
                    int axis);
void sli_costs_fini(sli_costs *c);

/* Cost on one device: seconds and bytes of one microbatch, forward and backward. */
typedef struct sli_cost {
  double compute_seconds, boxing_seconds, boxing_bytes;
  double memory_bytes; /* bytes of stored tensors */
} sli_cost;

static inline void sli_cost_add(sli_cost *sum, sli_cost more) {
  sum->compute_seconds += more.compute_seconds;
  sum->boxing_seconds += more.boxing_seconds;
  sum->boxing_bytes += more.boxing_bytes;
  sum->memory_bytes += more.memory_bytes;
}

/* Returns the quantity that the search minimizes: the time, with memory as a tie-breaker. */
double sli_cost_weight(const sli_costs *c, sli_cost cost);

/* Returns the cost of a node's forward and backward calls, and of keeping its outputs. */
sli_cost sli_cost_node(const sli_costs *c, const sli_node *node, const sl_signature *s);

/* Returns the cost of a parameter's update and memory. */
sli_cost sli_cost_update(const sli_costs *c, const sl_tensor *param, sl_sbp lies);

/* Layouts of a tensor so far: its original layout; those it was boxed into within this block,
 * forward and, for rereads, backward; and those of its incoming gradients. Layouts are codes: see
 * sli_sbp_code. */
typedef struct sli_seen {
  uint16_t layout, forward, backward, gradients;
} sli_seen;
_Static_assert(sizeof(sli_seen) == sizeof(uint64_t), "it is hashed and compared as one word");

enum { SLI_SBP_DISPATCHED = 2 + SL_MAX_DIMS, SLI_SBP_CODES };
static inline int sli_sbp_code(sl_sbp a) {
  if (a.kind == SL_DISPATCHED) return SLI_SBP_DISPATCHED;
  return a.kind == SL_SPLIT ? 2 + a.dim : a.kind == SL_PARTIAL;
}
static inline sl_sbp sli_code_sbp(int code) {
  if (code == SLI_SBP_DISPATCHED) return (sl_sbp){SL_DISPATCHED, 0};
  return code >= 2 ? (sl_sbp){SL_SPLIT, code - 2} : (sl_sbp){code ? SL_PARTIAL : SL_BROADCAST, 0};
}

/* Layout in which a node wants one of its inputs, and layout of the gradient that it returns. */
typedef struct sli_reading {
  uint8_t want, gradient; /* codes; SLI_SBP_CODES: no gradient */
  bool again;             /* the backward pass reads it too */
} sli_reading;

sli_reading sli_reading_of(const sli_costs *c, const sli_node *node, const sl_signature *s, int i);

/* Returns the layout of a parameter whose first reader wants this one. */
static inline uint8_t sli_param_lies(uint8_t want) { return want == 1 ? 0 : want; }

/* Returns the boxing cost of one more read, forward and backward, and records it in *seen. */
sli_cost sli_cost_reading(const sli_costs *c, const sl_tensor *t, sli_reading r, sli_seen *seen);

/* Prices a choice whose signatures are set. Gives params[] that are not fixed[] (NULL: none is) the
 * layouts that their first readers want, and fills in the figures. Writes what each node adds to
 * each[nnodes], unless NULL. Returns the total weight. */
double sli_costs_sum(const sli_costs *c, const bool *fixed, sli_choice *choice, sli_cost *each);

/* ---- texts ------------------------------------------------------------------------ */

/* Formats the layouts of a node's inputs or outputs: "B S1", "-" for absent ones. */
enum { SLI_SIGNATURE_TEXT = SL_SIGNATURE_ARGS * SLI_SBP_TEXT };
char *sli_signature_format(char out[SLI_SIGNATURE_TEXT], const sli_node *node,
                           const sl_signature *s, bool inputs);

/* "1.25 ms" */
enum { SLI_SECONDS_TEXT = 32 };
char *sli_seconds_format(char out[SLI_SECONDS_TEXT], double seconds);

#endif
