/* SPDX-License-Identifier: Apache-2.0 */
/* Delays in a graph: a node without inputs stands for the earlier value, and a node that copies the
 * value makes it. The edge from the second to the first leads back, so no node has it. */
#ifndef SLUICE_GRAPH_BUILD_DELAY_H
#define SLUICE_GRAPH_BUILD_DELAY_H

#include <sluice/delay.h>

#include "graph/graph.h"

typedef struct sli_delay {
  const char *name;
  sl_type type;
  int ticks;
  bool rows;                /* some rows may be invalid */
  const sl_delay_ticks *in; /* NULL: read and written in all ticks */
  sl_here at;               /* sl_delayed() */
  sl_tensor *next;          /* copy of the value that later ticks read; NULL before sl_delay() */
} sli_delay;

/* delayed() -> the earlier value; delay(value) -> its copy; attrs.user = sli_delay. */
extern const sl_op sli_op_delayed, sli_op_delayed_rows, sli_op_delay;

/* Returns the delay that an earlier value, or a copied one, belongs to, or NULL. */
const sli_delay *sli_delay_before(const sl_tensor *t);
const sli_delay *sli_delay_after(const sl_tensor *t);
/* Returns the most values that are written and not read, tick after tick; at least 1. */
int sli_delay_most(const sl_graph *g, const sli_delay *delay);
/* Checks that all delays have a value. */
sl_status sli_delays_check(sl_graph *g);
/* Returns the first delay of a graph, or NULL if it has none. */
const sli_delay *sli_delay_first(const sl_graph *g);

#endif
