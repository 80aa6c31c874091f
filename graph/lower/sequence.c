/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over sharded sequences: the method by which devices get each other's positions, chosen
 * by the user or by cost.
 *
 * By heads, each device has some of the heads for all positions. If there are fewer key and value
 * heads than devices, they are repeated (passes/heads.c), and more data is exchanged. By ring,
 * queries stay and keys and values go around. The cost model compares both before sequences are
 * cut, each on a separate version of the graph, because the inputs of attention depend on the
 * choice. Exact sums use the ring if heads are too few: gradients of repeated heads would be added
 * in the order of devices.
 *
 * Linear attention works by heads, or devices exchange states (share/states.c). Exchanging states
 * needs one contiguous run of positions per device, while a ring prefers two. So each method of
 * attention is compared with both. Exact sums use heads: combined states have different bits. */
#include <stdlib.h>
#include <string.h>

#include "graph/passes/passes.h"
#include "graph/lower/ir.h"

/* ---- cost of each way ------------------------------------------------------------------------ */

/* Cost of one method, or the reason why it is impossible. */
typedef struct way {
  sl_status status;
  double seconds, bytes;
  const char *why;
  bool zigzag, states;
} way;

static way try_with(const sli_inputs *in, bool ring, bool zigzag, bool states) {
  sl_graph *g = in->g;
  sli_grid as = in->grid;
  sli_dim *dims = NULL;
  sli_choice choice = {0};
  way w = {.zigzag = zigzag, .states = states};
  as.ring = ring;
  as.zigzag = zigzag;
  as.states = states;
  w.status = sli_dims_find(g, &dims);
  if (!w.status) w.status = sli_choose_rows(g, dims, &as, SLI_AXIS_SEQUENCE, &choice);
  if (w.status) w.why = sli_arena_format(&g->arena, "%s", sl_detail());
  g->status = SL_OK;
  w.seconds = choice.seconds;
  w.bytes = choice.boxing_bytes;
  sli_choice_free(&choice);
  free(dims);
  return w;
}

/* Tries a method of attention with the allowed methods for states. */
static way try_way(const sli_inputs *in, bool ring) {
  bool zigzag = in->grid.zigzag && ring, given = in->options->parallel.sequence_layout;
  way best = {.status = SL_E_USAGE};
  if (in->states_by_heads) best = try_with(in, ring, zigzag, false);
  if (!in->states_by_exchange || (zigzag && given)) return best;
  way other = try_with(in, ring, false, true);
  bool better = !other.status && other.seconds < best.seconds;
  return best.status || better ? other : best;
}

/* True if keys and values are offloaded; with heads, each device moves fewer of them. */
static bool are_keys_away(const sl_graph *g) {
  bool any = false;
  for (int b = 0; b < g->nblocks; b++) any |= g->blocks[b].swept;
  return any;
}

/* Describes the cost of the method that was not chosen, for reports. */
static const char *sequence_describe(sl_graph *g, const way ways[2], bool ring) {
  const way *gone = &ways[ring], *other = &ways[!ring];
  const char *name = ring ? "heads" : "ring";
  if (other->status)
    return sli_arena_format(&g->arena, "attention by %s, which is not possible: %s", name,
                            other->why);
  return sli_arena_format(
      &g->arena,
      "attention by %s: %.3g ms instead of %.3g ms, and %.3g MB received instead "
      "of %.3g MB",
      name, 1e3 * other->seconds, 1e3 * gone->seconds, 1e-6 * other->bytes, 1e-6 * gone->bytes);
}

static sl_status weigh(sli_inputs *in) {
  sl_graph *g = in->g;
  const int *size = in->grid.size;
  bool open = in->by_heads && in->by_ring, ring = in->by_ring;
  way ways[2] = {[true] = try_way(in, true)};
  sli_heads *before =
      sli_pass_heads(g, size[SLI_AXIS_SEQUENCE], sli_choice_size(&in->grid, SLI_AXIS_TENSOR));
  ways[false] = try_way(in, false);
  const way *heads = &ways[false], *around = &ways[true];
  if (open && heads->status && around->status) return sl_fail(heads->status, "%s", heads->why);
  if (open && in->options->numbers.exact) ring = heads->status || g->repeats_heads;
  else if (open)
    ring =
        heads->status || (!around->status && !are_keys_away(g) && around->seconds < heads->seconds);
  if (ring) sli_heads_undo(g, before);
  in->by_ring = ring;
  in->by_heads = !ring;
  in->grid.zigzag = ways[ring].zigzag;
  in->grid.states = ways[ring].states;
  if (in->options->print.sharing) in->other = sequence_describe(g, ways, ring);
  return SL_OK;
}

/* Chooses heads for models without states, and for exact sums unless the user says otherwise. */
static sl_status settle_states(sli_inputs *in) {
  const sl_lower_options *o = in->options;
  bool any = false;
  for (int i = 0; i < in->g->nnodes; i++) any |= sli_has_states(in->g->nodes[i]);
  if (!any || (o->numbers.exact && in->states_by_heads)) {
    in->states_by_heads = true;
    in->states_by_exchange = false;
  }
  if (in->states_by_heads || !in->grid.zigzag || !o->parallel.sequence_layout) return SL_OK;
  return sl_fail(SL_E_USAGE,
                 "parallel.sequence_states exchange: needs one run of positions per device, but "
                 "parallel.sequence_layout zigzag makes two");
}

sl_status sli_lower_attention(sli_inputs *in) {
  const int *size = in->grid.size;
  SLI_TRY(settle_states(in));
  bool shared = size[SLI_AXIS_SEQUENCE] > 1, open = in->by_heads && in->by_ring;
  bool states_open = in->states_by_heads && in->states_by_exchange;
  sl_status status = SL_OK;
  in->grid.states = shared && !in->states_by_heads;
  in->grid.zigzag &= !in->grid.states;
  if (shared && (open || states_open || in->options->print.sharing)) status = weigh(in);
  else if (in->by_heads)
    sli_pass_heads(in->g, size[SLI_AXIS_SEQUENCE], sli_choice_size(&in->grid, SLI_AXIS_TENSOR));
  in->grid.ring = shared && in->by_ring;
  in->grid.zigzag &= in->grid.ring;
  for (int b = 0; b < in->g->nblocks; b++) in->g->blocks[b].gathers = in->grid.ring && in->k > 1;
  return status;
}
