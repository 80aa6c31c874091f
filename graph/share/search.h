/* SPDX-License-Identifier: Apache-2.0 */
/* Code shared by the search for dims, signatures and choices. */
#ifndef SLUICE_GRAPH_SBP_SEARCH_H
#define SLUICE_GRAPH_SBP_SEARCH_H

#include "graph/share/share.h"

/* True if the node has signatures. */
static inline bool sli_is_shared(const sli_node *n) {
  return sli_is_forward(n) || n->op == &sl_op_source;
}

/* Lists the ways to shard a node, whatever the size and the units of its dims. Returns 0 for
 * nodes without signatures. out[SLI_SIGNATURES_RAW]. */
enum { SLI_SIGNATURES_RAW = 1 + SL_MAX_DIMS + SL_SIGNATURES };
int sli_signatures_raw(const sli_node *node, sl_signature *out);

/* Returns how many dims of an input are rows; for ids, all of them may be. */
static inline int sli_row_dims(const sl_type *type) {
  return type->dtype == SL_I32 ? type->ndim : type->ndim - 1;
}

/* ---- exact sums: groups.c ------------------------------------------------------------------- */

/* True if a way to share a call over `size` devices of an axis that does not share rows keeps the
 * bits of all sums. */
bool sli_is_way_exact(const sli_dim *dims, const sli_node *n, const sl_signature *s, int size);

/* ---- dispatch of rows to experts: dispatched.c ------------------------------------------ */

/* Progress of the pass over an axis of rows. */
typedef struct sli_dispatching {
  const sl_sbp *lies;       /* [ntensors] */
  const sli_node **routers; /* [ntensors] see sli_choice; NULL: the axis has no experts */
  int size;                 /* devices that share the experts */
} sli_dispatching;

/* Picks, from a node's ways all[count], the one that runs at the experts, if there is one. Notes
 * the call that says where its rows are. */
bool sli_choose_dispatched(const sli_dispatching *r, const sli_node *node, const sl_signature *all,
                           int count, sl_signature *out);
/* Refuses an axis of experts that the model has no use for, or not enough experts for. */
sl_status sli_check_dispatched(sl_graph *g, const sli_dispatching *r);

/* ---- costs ----------------------------------------------------------------------- */

/* Context in which a choice for one axis is priced. */
typedef struct sli_costs {
  const sl_graph *g;
  const sli_dim *dims;
  const sli_grid *grid;
  int axis, size;
  int share;           /* number of devices that share the rows of data along the other axis */
  const bool *chunked; /* [nnodes] ring attention, chunk by chunk; NULL: none */
  bool *has_rows;      /* [ntensors] tensor has rows of data */
  const sli_choice *sequence; /* how sequences are sharded along another axis; NULL: they are not */
  const sli_choice *experts;  /* the same for experts */
  bool rows_last;             /* break ties by keeping rows whole: the data axis shards them */
} sli_costs;

void sli_costs_init(sli_costs *c, const sl_graph *g, const sli_dim *dims, const sli_grid *grid,
                    int axis);
void sli_costs_fini(sli_costs *c);

/* Cost of one device: seconds and bytes of one microbatch, forward and backward. */
typedef struct sli_cost {
  double compute_seconds, boxing_seconds, boxing_bytes;
  double memory_bytes; /* of stored tensors */
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

/* Layouts of a tensor so far: as it was made; those it has been boxed into in this block,
 * forward and (for what reads it again) backward; and those that gradients have come back in.
 * Layouts are codes: see sli_sbp_code. */
typedef struct sli_seen {
  uint16_t lies, forward, backward, gradients;
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

/* Layout in which a node wants one of its inputs, and in which the gradient comes back. */
typedef struct sli_reading {
  uint8_t want, gradient; /* codes; SLI_SBP_CODES: no gradient */
  bool again;             /* the backward pass reads it too */
} sli_reading;

sli_reading sli_reading_of(const sli_costs *c, const sli_node *node, const sl_signature *s, int i);

/* Returns the layout of a parameter whose first reader wants this one. */
static inline uint8_t sli_param_lies(uint8_t want) { return want == 1 ? 0 : want; }

/* Returns the boxing cost of one more read, forward and backward; notes it in *seen. */
sli_cost sli_cost_reading(const sli_costs *c, const sl_tensor *t, sli_reading r, sli_seen *seen);

/* Prices a choice whose signatures are set. Lays out params[] that are not fixed[] (NULL: none
 * are) as their first readers want, and fills in the figures. each[nnodes], unless NULL, gets
 * what each node adds. Returns the total weight. */
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
