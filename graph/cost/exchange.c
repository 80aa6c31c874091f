/* SPDX-License-Identifier: Apache-2.0 */
/* Duration of an exchange: from measurements, else from latency and bytes received. */
#include "graph/cost/cost.h"

#include "base/base.h"

bool sli_exchange_is_measured(const sli_axis_link *link, sli_half half) {
  if (!link->measured) return false;
  bool whole = link->measured[SL_EXCHANGE_ALL_REDUCE].seconds;
  if (half == SLI_ALL_TO_ALL) return link->measured[SL_EXCHANGE_ALL_TO_ALL].seconds;
  return half == SLI_ALL_GATHER ? whole || link->measured[SL_EXCHANGE_ALL_GATHER].seconds : whole;
}

static double measured(const sli_axis_link *link, sl_exchange what, double bytes) {
  const sl_curve *c = &link->measured[what];
  double x[SL_CURVE_DIMS];
  for (int d = 0; d < c->ndims; d++) x[d] = c->axis[d] == SL_CURVE_DEVICES ? link->size : bytes;
  return sli_curve_at(c, x);
}

/* An all-gather takes its measured time, and a reduce-scatter the remainder of an all-reduce. */
static double measured_seconds(const sli_axis_link *link, sli_half half, double bytes) {
  if (half == SLI_ALL_TO_ALL) return measured(link, SL_EXCHANGE_ALL_TO_ALL, bytes);
  bool joins = link->measured[SL_EXCHANGE_ALL_GATHER].seconds;
  if (half == SLI_ALL_GATHER && joins) return measured(link, SL_EXCHANGE_ALL_GATHER, bytes);
  double whole = measured(link, SL_EXCHANGE_ALL_REDUCE, bytes);
  double rest = joins ? whole - measured(link, SL_EXCHANGE_ALL_GATHER, bytes) : whole / 2;
  return SLI_MAX(rest, 0);
}

double sli_process_link_seconds(const sl_hardware *h, double bytes) {
  const sl_curve *c = &h->process_link;
  double x[SL_CURVE_DIMS];
  if (!c->seconds) return 0;
  for (int d = 0; d < c->ndims; d++)
    x[d] = SLI_MAX(c->axis[d] == SL_CURVE_DEVICES ? h->busy : bytes, 1);
  return sli_curve_at(c, x);
}

double sli_exchange_seconds(const sli_axis_link *link, sli_half half, double received) {
  if (received <= 0) return 0;
  if (sli_exchange_is_measured(link, half) && link->size > 1)
    return measured_seconds(link, half, received * link->size / (link->size - 1));
  double wire = link->bytes_per_second > 0 ? received / link->bytes_per_second : 0;
  return link->seconds + wire;
}
