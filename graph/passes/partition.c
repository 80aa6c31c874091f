/* SPDX-License-Identifier: Apache-2.0 */
/* Pass 4: cuts the blocks into stages.
 *
 * Blocks stay whole and in order, so a cut is a list of positions. There are two dynamic programs.
 * The first finds the least possible cost of the most expensive stage, which sets the pipeline's
 * pace. The second finds, among all cuts with that cost, the one with the least sum of squares, so
 * that the other stages are balanced too. Ties go to the earlier cut. A block that is visited
 * several times is one block, with the cost of all visits. */
#include "graph/cost/cost.h"
#include "graph/passes/passes.h"

#include <math.h>
#include <stdlib.h>

static double node_seconds(const sl_hardware *h, const sli_node *node) {
  return sli_call_seconds(h, node, node->in_type, node->out_type);
}

/* Inputs of both programs: sums[b] is the cost of blocks 0..b-1. Each stage has at least one block,
 * so stage s ends after one of `ends` blocks, from s on. */
typedef struct cut {
  const sl_graph *g;
  const int *blocks; /* [nblocks] first visits */
  int stages, nblocks, ends;
  double *sums;
  const int *visits; /* [stages] times that a stage runs; NULL: equally often */
} cut;

static size_t cell(const cut *c, int s, int e) {
  return (size_t)s * (size_t)c->ends + (size_t)(e - s - 1);
}

double *sli_block_seconds(const sl_graph *g, const sl_hardware *h) {
  int nblocks = sli_blocks_in_line(g);
  double *seconds = sli_calloc((size_t)nblocks + 1, sizeof *seconds);
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    if (!sli_is_forward(n) || n->pace || n->block >= nblocks) continue;
    seconds[n->block] += node_seconds(h, n);
  }
  return seconds;
}

static double *cost_sums(const sl_graph *g, const double *seconds, const int *blocks, int count) {
  double *own = sli_calloc((size_t)g->nblocks + 1, sizeof *own),
         *sums = sli_calloc((size_t)count + 1, sizeof *sums);
  for (int b = 0; b < sli_blocks_in_line(g); b++) own[sli_block_first(g, b)] += seconds[b];
  for (int i = 0; i < count; i++) sums[i + 1] = sums[i] + own[blocks[i]];
  free(own);
  return sums;
}

/* True if block b may be on stage s. */
static bool allowed(const cut *c, int b, int s) {
  int forced = c->g->blocks[c->blocks[b]].stage;
  return forced < 0 || forced == s;
}

/* Fills best[s][e], the least price of blocks 0..e-1 on stages 0..s with each stage within `limit`,
 * and from[s][e], where stage s then begins. Stage prices combine as maximum or as sum of squares.
 * A longer stage always costs more. */
static void solve(const cut *c, double limit, bool squares, double *best, int *from) {
  for (int s = 0; s < c->stages; s++)
    for (int e = s + 1; e <= s + c->ends; e++) {
      double *price = &best[cell(c, s, e)];
      *price = INFINITY;
      for (int b = e - 1; b >= s && allowed(c, b, s); b--) {
        double before = s ? best[cell(c, s - 1, b)] : b ? INFINITY : 0;
        double length = (c->sums[e] - c->sums[b]) * (c->visits ? c->visits[s] : 1);
        double own = squares ? length * length : length;
        if (length > limit || own > *price) break;
        double joined = squares ? before + own : SLI_MAX(before, own);
        if (before == INFINITY || joined > *price) continue;
        *price = joined;
        from[cell(c, s, e)] = b;
      }
    }
}

static char *block_list(const sl_graph *g, const int *blocks, int nblocks) {
  char *text = sli_strdup("");
  for (int b = 0; b < nblocks; b++) {
    bool skip = nblocks > 12 && b >= 4 && b < nblocks - 1;
    if (skip && b > 4) continue;
    char *more =
        sli_format("%s%s%s", text, b ? ", " : "", skip ? "..." : g->blocks[blocks[b]].name);
    free(text);
    text = more;
  }
  return text;
}

static sl_status check_stages(const sl_graph *g, const int *blocks, int nblocks, int stages) {
  if (stages < 1) return sl_fail(SL_E_USAGE, "%d stages asked for, at least 1 is needed", stages);
  if (stages > nblocks) {
    char *list = block_list(g, blocks, nblocks);
    sl_fail(SL_E_USAGE, "%d stages asked for, but the model has only %d block%s (%s)", stages,
            nblocks, nblocks == 1 ? "" : "s", list);
    free(list);
    return SL_E_USAGE;
  }
  for (int i = 0; i < nblocks; i++)
    if (g->blocks[blocks[i]].stage >= stages)
      return sl_fail(SL_E_USAGE, "the model puts block %s on stage %d, but there are %d stages",
                     g->blocks[blocks[i]].name, g->blocks[blocks[i]].stage, stages);
  return SL_OK;
}

/* Cuts the first visits, blocks[n], into stages. */
static sl_status cut_line(const sl_graph *g, const double *seconds, const int *visits,
                          const int *blocks, int n, int stages, int *stage_of) {
  cut c = {g, blocks, stages, n, n - stages + 1, cost_sums(g, seconds, blocks, n), visits};
  size_t cells = (size_t)stages * (size_t)c.ends;
  double *best = sli_calloc(cells, sizeof *best);
  int *from = sli_calloc(cells, sizeof *from);
  sl_status status = SL_OK;
  solve(&c, INFINITY, false, best, from);
  double limit = best[cells - 1];
  if (limit == INFINITY) {
    status = sl_fail(
        SL_E_USAGE, "the model's stages for its blocks leave some of the %d stages without a block",
        stages);
  } else {
    solve(&c, limit, true, best, from);
    for (int s = stages - 1, e = n; s >= 0; s--) {
      int b = from[cell(&c, s, e)];
      while (e > b) stage_of[blocks[--e]] = s;
    }
  }
  free(c.sums);
  free(best);
  free(from);
  return status;
}

sl_status sli_pass_partition_by(const sl_graph *g, const double *seconds, const int *visits,
                                int stages, int *stage_of) {
  int all = sli_blocks_in_line(g), n = 0, *blocks = sli_calloc((size_t)all + 1, sizeof *blocks);
  for (int b = 0; b < all; b++)
    if (!g->blocks[b].visits) blocks[n++] = b;
  sl_status status = check_stages(g, blocks, n, stages);
  if (!status) status = cut_line(g, seconds, visits, blocks, n, stages, stage_of);
  for (int b = 0; b < all && !status; b++) stage_of[b] = stage_of[sli_block_first(g, b)];
  free(blocks);
  return status;
}

sl_status sli_pass_partition(const sl_graph *g, const sl_hardware *hardware, int stages,
                             int *stage_of) {
  double *seconds = sli_block_seconds(g, hardware);
  sl_status status = sli_pass_partition_by(g, seconds, NULL, stages, stage_of);
  free(seconds);
  return status;
}
