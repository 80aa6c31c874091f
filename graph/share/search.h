/* What finding dims, signatures and choices share. */
#ifndef SLUICE_GRAPH_SBP_SEARCH_H
#define SLUICE_GRAPH_SBP_SEARCH_H

#include "graph/share/share.h"

/* Is it one that signatures are for? */
static inline bool sli_is_shared(const sli_node *n) {
  return sli_is_forward(n) || n->op == &sl_op_source;
}

/* All ways to share such a node, whatever the size and the units of its dims; 0 for other
 * nodes. out[SLI_SIGNATURES_RAW]. */
enum { SLI_SIGNATURES_RAW = 1 + SL_MAX_DIMS + SL_SIGNATURES };
int sli_signatures_raw(const sli_node *node, sl_signature *out);

/* ---- rows that go where experts are: routed.c --------------------------------------- */

/* Of an axis of rows, as far as its pass has come. */
typedef struct sli_routes {
  const sl_sbp *lies;       /* [ntensors] */
  const sli_node **routers; /* [ntensors] see sli_choice; NULL: the axis has no experts */
  int size;                 /* devices that share these out */
} sli_routes;

/* Of a node's ways all[count] the one in which it runs where experts are, if it can; notes who says where
 * its rows are. */
bool sli_choose_routed(const sli_routes *r, const sli_node *node, const sl_signature *all, int count,
                       sl_signature *out);
/* Is there anything for so many devices? */
sl_status sli_check_routed(sl_graph *g, const sli_routes *r);

/* ---- costs ----------------------------------------------------------------------- */

/* What a choice for one axis is judged by. */
typedef struct sli_costs {
  const sl_graph *g;
  const sli_dim *dims;
  const sli_grid *grid;
  int axis, size;
  int share;      /* among how many rows of data are shared out along the other axis */
  const bool *chunked; /* [nnodes] attention that goes chunk by chunk; NULL: none */
  bool *has_rows; /* [ntensors] of data */
  const sli_choice *sequence; /* how sequences are shared out along another axis; NULL: they are not */
  const sli_choice *experts;  /* and experts */
  bool rows_last; /* where all else is the same, let rows be whole: the data axis has them */
} sli_costs;

void sli_costs_init(sli_costs *c, const sl_graph *g, const sli_dim *dims, const sli_grid *grid,
                    int axis);
void sli_costs_fini(sli_costs *c);

/* One device's; seconds and bytes of one microbatch, forward and back. */
typedef struct sli_cost {
  double compute_seconds, boxing_seconds, boxing_bytes;
  double memory_bytes; /* of what is kept */
} sli_cost;

static inline void sli_cost_add(sli_cost *sum, sli_cost more) {
  sum->compute_seconds += more.compute_seconds;
  sum->boxing_seconds += more.boxing_seconds;
  sum->boxing_bytes += more.boxing_bytes;
  sum->memory_bytes += more.memory_bytes;
}

/* What the search makes as small as possible: the time, and where that is the same, memory. */
double sli_cost_weight(const sli_costs *c, sli_cost cost);

/* Of a forward node's calls and those of its way back, and of keeping its outputs. */
sli_cost sli_cost_node(const sli_costs *c, const sli_node *node, const sl_signature *s);

/* Of a parameter's update and its memory. */
sli_cost sli_cost_update(const sli_costs *c, const sl_tensor *param, sl_sbp lies);

/* How readers of a tensor find it, as far as they have come: how it was made to lie, the
 * layouts it has been boxed into in this block, forward and (for what reads it again) back,
 * and those that gradients have come back in. Layouts are numbers: see sli_sbp_code. */
typedef struct sli_seen {
  uint16_t lies, forward, back, gradients;
} sli_seen;
_Static_assert(sizeof(sli_seen) == sizeof(uint64_t), "it is hashed and compared as one word");

enum { SLI_SBP_ROUTED = 2 + SL_MAX_DIMS, SLI_SBP_CODES };
static inline int sli_sbp_code(sl_sbp a) {
  if (a.kind == SL_ROUTED) return SLI_SBP_ROUTED;
  return a.kind == SL_SPLIT ? 2 + a.dim : a.kind == SL_PARTIAL;
}
static inline sl_sbp sli_code_sbp(int code) {
  if (code == SLI_SBP_ROUTED) return (sl_sbp){SL_ROUTED, 0};
  return code >= 2 ? (sl_sbp){SL_SPLIT, code - 2}
                   : (sl_sbp){code ? SL_PARTIAL : SL_BROADCAST, 0};
}

/* How a node wants one of its inputs, and how the gradient comes back. */
typedef struct sli_reading {
  uint8_t want, gradient; /* codes; SLI_SBP_CODES: no gradient */
  bool again;             /* the way back reads it too */
} sli_reading;

sli_reading sli_reading_of(const sli_costs *c, const sli_node *node, const sl_signature *s, int i);

/* How a parameter lies whose first reader wants it so. */
static inline uint8_t sli_param_lies(uint8_t want) { return want == 1 ? 0 : want; }

/* What one more reading costs in boxing, there and back; notes it in *seen. */
sli_cost sli_cost_reading(const sli_costs *c, const sl_tensor *t, sli_reading r, sli_seen *seen);

/* The whole of a choice whose signatures are set: params[] that are not fixed[] (NULL: none
 * are) are made to lie as their first readers want, and the figures filled in; each[nnodes],
 * unless NULL, takes what each node adds. Returns the weight of all. */
double sli_costs_sum(const sli_costs *c, const bool *fixed, sli_choice *choice, sli_cost *each);

/* ---- texts ------------------------------------------------------------------------ */

/* How a node has its inputs or its outputs: "B S1", "-" for what is absent. */
enum { SLI_SIGNATURE_TEXT = SL_SIGNATURE_ARGS * SLI_SBP_TEXT };
char *sli_signature_format(char out[SLI_SIGNATURE_TEXT], const sli_node *node,
                           const sl_signature *s, bool inputs);

/* "1.25 ms" */
enum { SLI_SECONDS_TEXT = 32 };
char *sli_seconds_format(char out[SLI_SECONDS_TEXT], double seconds);

#endif
