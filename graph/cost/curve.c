/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates curves by log-log interpolation between neighbouring grid points. */
#include "graph/cost/cost.h"

const char *sl_resource_name(sl_resource resource) {
  static const char *const names[SL_RESOURCES] = {
#define X(name, text) [SL_RESOURCE_##name] = text,
      SL_RESOURCE_TABLE(X)
#undef X
  };
  return (unsigned)resource < SL_RESOURCES ? names[resource] : "?";
}

double sl_share_rate(const sl_share_curve *curve, double part) {
  if (!curve->count) return part;
  int i = 1;
  while (i + 1 < curve->count && curve->parts[i] < part) i++;
  double low = curve->parts[i - 1], high = curve->parts[i], along = (part - low) / (high - low);
  return curve->rates[i - 1] + along * (curve->rates[i] - curve->rates[i - 1]);
}

#include <math.h>

#include "base/base.h"

const char *const sli_curve_axes[SL_CURVE_AXES] = {[SL_CURVE_M] = "m",
                                                   [SL_CURVE_N] = "n",
                                                   [SL_CURVE_K] = "k",
                                                   [SL_CURVE_BYTES] = "bytes",
                                                   [SL_CURVE_FLOPS] = "flops",
                                                   [SL_CURVE_POSITIONS] = "positions",
                                                   [SL_CURVE_HEAD] = "head",
                                                   [SL_CURVE_DEVICES] = "devices",
                                                   [SL_CURVE_SEQUENCES] = "sequences",
                                                   [SL_CURVE_HEADS] = "heads",
                                                   [SL_CURVE_KEY_HEADS] = "key_heads",
                                                   [SL_CURVE_EXPERTS] = "experts"};

/* Position of x along a dim: the two points around it, and the fraction of the way from the first
 * to the second. If the dim has only one point, `more` is added to the logarithm instead: time then
 * grows in proportion to x, but not with the number of devices. */
typedef struct place {
  int low, high;
  double share, more;
} place;

static place curve_find(const sl_curve *c, int dim, double x) {
  const double *at = c->at[dim];
  if (c->count[dim] == 1)
    return (place){.more = c->axis[dim] == SL_CURVE_DEVICES ? 0 : log(x / at[0])};
  int i = 0;
  while (i + 2 < c->count[dim] && at[i + 1] <= x) i++;
  return (place){i, i + 1, log(x / at[i]) / log(at[i + 1] / at[i]), 0};
}

double sli_curve_at(const sl_curve *c, const double *x) {
  place p[SL_CURVE_DIMS] = {0};
  double sum = 0;
  int ndims = SLI_MIN(c->ndims, SL_CURVE_DIMS);
  for (int d = 0; d < ndims; d++) p[d] = curve_find(c, d, x[d]), sum += p[d].more;
  for (int corner = 0; corner < 1 << ndims; corner++) {
    int at = 0;
    double weight = 1;
    for (int d = 0; d < ndims; d++) {
      bool high = corner >> d & 1;
      at = at * c->count[d] + (high ? p[d].high : p[d].low);
      weight *= high ? p[d].share : 1 - p[d].share;
    }
    if (weight < 0 || weight > 0) sum += weight * log(c->seconds[at]);
  }
  return exp(sum);
}
