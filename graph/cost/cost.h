/* SPDX-License-Identifier: Apache-2.0 */
/* Durations on described hardware (sluice/hardware.h). Searches, the division of the model into
 * stages and the planner all use these functions, so that they agree. */
#ifndef SLUICE_GRAPH_COST_COST_H
#define SLUICE_GRAPH_COST_COST_H

#include <sluice/hardware.h>
#include <sluice/op.h>
#include <sluice/program.h>

#include "graph/graph.h"

/* ---- calls ------------------------------------------------------------------------------- */

/* Call of an op on given types; an absent input has ndim -1. */
typedef struct sli_work {
  const sl_op *op;
  const sl_attrs *attrs;
  int nin;
  const sl_type *in; /* [op->max_in] */
  int nout;
  const sl_type *out;
  uint32_t left_out; /* bit o: output o is unused */
} sli_work;

sli_work sli_work_of_call(const sl_program_call *c);

/* Returns the seconds on a device of this hardware, or on a default CPU core if h is NULL. */
double sli_work_seconds(const sl_hardware *h, const sli_work *w);
/* Rows of one sequence in a call of attention to pages: `rows` rows after `before` positions. */
typedef struct sli_paged_rows {
  int64_t before, rows;
} sli_paged_rows;
/* Returns the seconds of a call of an op that keeps pages or states (sl_op_memory.updates), on
 * these sequences. */
double sli_paged_seconds(const sl_hardware *h, const sli_work *w, int n,
                         const sli_paged_rows *spans);
/* Return the cost and the seconds of a node's call on given types. */
void sli_call_cost(const sli_node *node, const sl_type *in, const sl_type *out, double *flops,
                   double *bytes);
double sli_call_seconds(const sl_hardware *h, const sli_node *node, const sl_type *in,
                        const sl_type *out);
/* Traits that restrict a row of a machine file, written after the op's name. "linear.transposed":
 * weights stored [in, out]. "linear_w.pages": inputs whose rows are whole pages, which fall on the
 * same sets of a cache. "linear_served.Q4_1": the storage format of a served product's weights. */
typedef enum sli_trait {
  SLI_TRAIT_TRANSPOSED,
  SLI_TRAIT_PAGES,
  SLI_TRAIT_BF16,
  SLI_TRAIT_Q8_0,
  SLI_TRAIT_Q4_1,
  SLI_TRAITS
} sli_trait;
extern const char *const sli_traits[SLI_TRAITS];
bool sli_work_has(const sli_work *w, sli_trait trait);
/* Returns the seconds of a program's call, averaged over the pieces if the program has pieces. */
double sli_call_of_program_seconds(const sl_hardware *h, const sl_program *p, int pieces, int call);
/* Returns the row that applies to the call, or NULL. */
const sl_hardware_row *sli_work_row(const sl_hardware *h, const sli_work *w);
/* Returns the seconds of a call by its arithmetic and traffic, at the rate of row r, or at the
 * general rate if r is NULL. */
double sli_roofline_seconds(const sl_hardware *h, const sl_hardware_row *r, double flops,
                            double bytes);
/* Hardware used where none is given. */
extern const sl_hardware sli_default_core;
/* Returns the call's position on a curve's axis. */
double sli_work_along(const sl_hardware *h, const sli_work *w, sl_curve_axis axis);

/* Names of the axes in machine files. */
extern const char *const sli_curve_axes[SL_CURVE_AXES];
/* Returns the curve's value at x[ndims]. */
double sli_curve_at(const sl_curve *curve, const double *x);

/* ---- exchanges --------------------------------------------------------------------------- */

/* Links among the devices of a row along an axis. */
typedef struct sli_axis_link {
  double seconds, bytes_per_second; /* latency of an exchange among all devices; bandwidth at which
                                       each receives (0: no time) */
  int size;                         /* number of devices in the row */
  const sl_curve *measured;         /* [SL_EXCHANGES] measured times, or NULL */
} sli_axis_link;

/* Halves of a collective: an all-reduce is a reduce-scatter and an all-gather. */
typedef enum sli_half { SLI_REDUCE_SCATTER, SLI_ALL_GATHER, SLI_ALL_TO_ALL } sli_half;

/* Returns whether the measured time covers the whole exchange, including work in a device's own
 * memory. */
bool sli_exchange_is_measured(const sli_axis_link *link, sli_half half);
/* Returns the seconds of an exchange in which each device receives `received` bytes. Work in the
 * device's own memory is included only if measured. */
double sli_exchange_seconds(const sli_axis_link *link, sli_half half, double received);
/* Returns the seconds to move `bytes` bytes between two processes of a host. */
double sli_process_link_seconds(const sl_hardware *h, double bytes);

#endif
