/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the cheapest choice for the tensor axis. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/share/ways.h"

/* Runs the search; sets *out only if *found. */
static sl_status tensor_choose(const sli_tensor_search *s, sli_choice *out, bool *found) {
  sli_ways w;
  sl_status status = sli_ways_init(&w, s);
  if (status) return status;
  uint32_t *allowed = sli_calloc((size_t)w.count + 1, sizeof *allowed);
  int *way = sli_calloc((size_t)w.count + 1, sizeof *way);
  for (int k = 0; k < w.count; k++) allowed[k] = UINT32_MAX;
  *found = sli_ways_search(&w, allowed, INFINITY, way) < INFINITY;
  if (*found) sli_ways_take(&w, way, out);
  free(allowed);
  free(way);
  sli_ways_fini(&w);
  return SL_OK;
}

/* True if a choice exists without this one of the given layouts. */
static bool is_in_the_way(const sli_tensor_search *s, int given) {
  sl_given_sbp *rest = sli_calloc((size_t)s->ngiven, sizeof *rest);
  memcpy(rest, s->given, (size_t)given * sizeof *rest);
  memcpy(rest + given, s->given + given + 1, (size_t)(s->ngiven - given - 1) * sizeof *rest);
  sli_tensor_search without = *s;
  without.given = rest;
  without.ngiven--;
  sli_choice choice;
  bool found = false;
  if (!tensor_choose(&without, &choice, &found) && found) sli_choice_free(&choice);
  free(rest);
  return found;
}

/* Fails with an error that names a conflicting given layout. Private tensors must be read in their
 * original layout (sl_op.own), so layouts may each be possible, but not all together. */
static sl_status tensor_refuse(const sli_tensor_search *s) {
  int last = s->ngiven - 1;
  while (last >= 0 && !is_in_the_way(s, last)) last--;
  if (last < 0)
    return sl_fail(
        SL_E_UNSUPPORTED,
        "the tensors cannot be split with all given layouts at once: data that differs between "
        "devices must be read as it is made");
  char sbp[SLI_SBP_TEXT];
  return sl_fail(
      SL_E_USAGE,
      "%s cannot lie as %s along the tensor axis together with the other layouts: data that "
      "differs between devices must be read as it is made",
      s->given[last].name, sli_sbp_format(sbp, s->given[last].sbp));
}

sl_status sli_choose_tensor(const sli_tensor_search *s, sli_choice *out) {
  bool found = false;
  sl_status status = tensor_choose(s, out, &found);
  return status || found ? status : tensor_refuse(s);
}
