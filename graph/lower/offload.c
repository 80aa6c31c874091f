/* Pieces whose activations leave (--offload).
 *
 * Where sequences are cut in pieces, what a block makes for itself of a piece can be moved to where
 * activations live, or computed again, piece by piece: some pieces leave as far as the way to there
 * carries, the others take time instead (MEMO: Zhao et al., arXiv 2407.12117). What a block begins
 * with, what attention has made and what devices exchange leave of all pieces.
 *
 * So what is made of a piece goes where it would, but its spill writes some of them only, and a fill
 * has those only: it fires as often, and the port of who reads it sits the others out. Its program
 * has a variant for each kind of piece (programs.c). The pieces that leave are spread evenly, from
 * the first on, for the way to be as busy all the time. */
#include "graph/lower/ir.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* "activations=0.6" */
sl_status sli_lower_read_offload(sli_inputs *in) {
  const char *text = in->options->homes.offload, *name = "activations=";
  in->leaving = SL_NONE;
  if (!text) return SL_OK;
  char *end = NULL;
  bool named = !strncmp(text, name, strlen(name)) && text[strlen(name)];
  double share = named ? strtod(text + strlen(name), &end) : -1;
  if (!named || *end || !(share >= 0 && share <= 1))
    return sl_fail(SL_E_USAGE, "offload %s: not activations=SHARE, from 0 to 1", text);
  if (in->k == 1)
    return sl_fail(SL_E_USAGE, "offload %s: sequences are not cut in pieces (--pieces K)", text);
  if (!sli_home_given(in->options, SLI_ROLE_ACT_B))
    return sl_fail(SL_E_USAGE, "offload %s: nothing says where to (--home act=HOME)", text);
  const char *again = in->options->recompute;
  if (again && strcmp(again, "none"))
    return sl_fail(SL_E_USAGE, "offload %s: what does not leave is computed again; recompute %s is "
                   "another way", text, again);
  in->leaving = (int)lround(share * in->k);
  return SL_OK;
}

/* How many of the pieces before this one leave. */
static int leaving_before(const sli_lowering *l, int piece) {
  return (piece * l->in->leaving + l->in->k - 1) / l->in->k;
}

bool sli_lower_leaves(const sli_lowering *l, int piece) {
  return leaving_before(l, piece + 1) > leaving_before(l, piece);
}

/* What leaves has keys of its own, without a gap. Who fires for every piece sits the others out. */
static int32_t map_all(sli_lowering *l, bool back) {
  int k = l->in->k;
  sl_map_entry entries[k];
  for (int i = 0; i < k; i++) {
    int piece = back ? k - 1 - i : i;
    entries[i] = sli_lower_leaves(l, piece)
                     ? (sl_map_entry){leaving_before(l, piece), SL_FIRST | SL_LAST}
                     : (sl_map_entry){0, SL_SKIP};
  }
  return sl_plan_add_map(l->plan, (uint32_t)k, l->in->leaving, entries);
}

int32_t sli_lower_leaving_map(sli_lowering *l, const sli_group *g) {
  if (g->rate != SLI_PER_LEAVING) return map_all(l, g->back);
  int n = l->in->leaving;
  sl_map_entry entries[n];
  for (int i = 0; i < n; i++)
    entries[i] = (sl_map_entry){g->back ? n - 1 - i : i, SL_FIRST | SL_LAST};
  return sl_plan_add_map(l->plan, (uint32_t)n, n, entries);
}

int32_t sli_lower_leaving_ticks(sli_lowering *l, const sli_group *g) {
  int n = l->in->leaving, at = 0;
  sl_map_entry entries[n];
  for (int piece = 0; piece < l->in->k; piece++)
    if (sli_lower_leaves(l, piece)) {
      int i = g->back ? n - 1 - at : at;
      entries[i] = (sl_map_entry){piece, SL_FIRST | SL_LAST};
      at++;
    }
  return sl_plan_add_map(l->plan, (uint32_t)n, l->in->k, entries);
}

double sli_lower_again(const sli_lowering *l) {
  return l->in->leaving == SL_NONE ? 1 : 1 - (double)l->in->leaving / l->in->k;
}

/* ---- who has both --------------------------------------------------------------------------- */

static bool reads_kept(const sli_node *n) {
  bool reads = false;
  for (int a = 0; a < n->nin && !n->again; a++) reads |= n->in[a] && n->in[a]->kept;
  return reads;
}

bool sli_lower_reads_leaving(const sli_group *g) {
  bool reads = false;
  for (int i = 0; i < g->nnodes; i++) reads |= reads_kept(g->nodes[i]);
  return reads;
}
