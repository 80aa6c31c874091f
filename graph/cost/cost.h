/* How long things take on described hardware (sluice/hardware.h). Whoever weighs one way against
 * another, cuts a model or makes a plan asks here, so that all of them agree. */
#ifndef SLUICE_GRAPH_COST_H
#define SLUICE_GRAPH_COST_H

#include <sluice/hardware.h>
#include <sluice/op.h>
#include <sluice/program.h>

#include "graph/graph.h"

/* ---- calls ------------------------------------------------------------------------------- */

/* A call of an op on these types; ndim -1 where an input is absent. */
typedef struct sli_work {
  const sl_op *op;
  const sl_attrs *attrs;
  int nin;
  const sl_type *in; /* as many as the op can take */
  int nout;
  const sl_type *out;
  uint32_t left_out; /* bit o: output o is not wanted */
} sli_work;

sli_work sli_work_of_call(const sl_program_call *c);

/* On a device of this hardware; NULL: on one core of any machine. */
double sli_work_seconds(const sl_hardware *h, const sli_work *w);
/* The same of a call of a node on these types. */
void sli_call_cost(const sli_node *node, const sl_type *in, const sl_type *out, double *flops,
                   double *bytes);
double sli_call_seconds(const sl_hardware *h, const sli_node *node, const sl_type *in,
                        const sl_type *out);
/* What a row of a machine file may be for alone, said behind its name: "linear.transposed", of weights that lie
 * [in, out]; "linear_w.pages", of inputs whose rows are whole pages, for those fall on the same sets of a cache. */
typedef enum sli_trait { SLI_TRAIT_TRANSPOSED, SLI_TRAIT_PAGES, SLI_TRAITS } sli_trait;
extern const char *const sli_traits[SLI_TRAITS];
bool sli_work_has(const sli_work *w, sli_trait trait);
/* Of a call of a program, over the pieces that it is for, if it is for any: their mean. */
double sli_call_of_program_seconds(const sl_hardware *h, const sl_program *p, int pieces, int call);
/* Where the call stands on a curve's axis. */
double sli_work_along(const sl_hardware *h, const sli_work *w, sl_curve_axis axis);

/* Where a curve is at x[ndims]. */
double sli_curve_at(const sl_curve *curve, const double *x);

/* ---- exchanges --------------------------------------------------------------------------- */

/* What all devices of a row along an axis can do together. */
typedef struct sli_axis_link {
  double seconds, bytes_per_second; /* of an exchange among all, whatever its size; what each
                                       receives of it (0: that takes no time) */
  int size;                         /* of the row */
  const sl_curve *measured;         /* [SL_EXCHANGES] as they are known to take, or NULL */
} sli_axis_link;

/* An all-reduce is the first two, one after the other. */
typedef enum sli_half { SLI_REDUCE_SCATTER, SLI_ALL_GATHER, SLI_ALL_TO_ALL } sli_half;

/* Is all of its time, also that for a device's own memory, measured? */
bool sli_exchange_is_measured(const sli_axis_link *link, sli_half half);
/* Of which each receives so many bytes; with what each does in its own memory only if measured. */
double sli_exchange_seconds(const sli_axis_link *link, sli_half half, double received);
/* Of so many bytes that go from one process of a host to another. */
double sli_process_link_seconds(const sl_hardware *h, double bytes);

#endif
