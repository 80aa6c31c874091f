/* Several devices for a stage: what the user says of that, and the passes that carry it out. */
#include <stdlib.h>
#include <string.h>

#include "graph/share/share.h"
#include "graph/lower/ir.h"

static const struct sharding {
  const char *name;
  sli_sharding what;
} shardings[] = {{"nothing", SLI_SHARD_NOTHING},
                 {"optimizer", SLI_SHARD_OPTIMIZER},
                 {"gradients", SLI_SHARD_GRADIENTS},
                 {"parameters", SLI_SHARD_PARAMETERS}};

static sl_status find_sharding(const char *name, sli_sharding *out) {
  for (size_t i = 0; i < SLI_COUNT(shardings); i++)
    if (!name || !strcmp(shardings[i].name, name)) {
      *out = shardings[i].what;
      return SL_OK;
    }
  return sl_fail(SL_E_USAGE, "unknown shard '%s': nothing, optimizer, gradients and parameters are "
                 "known", name);
}

static const struct grain {
  const char *name;
  bool by_block;
} grains[] = {{"pass", false}, {"layer", true}};

static sl_status find_grain(const char *name, bool *by_block) {
  for (size_t i = 0; i < SLI_COUNT(grains); i++)
    if (!strcmp(grains[i].name, name)) {
      *by_block = grains[i].by_block;
      return SL_OK;
    }
  return sl_fail(SL_E_USAGE, "unknown grain '%s': pass and layer are known", name);
}

static void axis_sizes(const sl_lower_options *o, int size[SLI_AXES]) {
  const int given[SLI_AXES] = {[SLI_AXIS_DATA] = o->data_parallel, [SLI_AXIS_TENSOR] = o->tensor,
                               [SLI_AXIS_SEQUENCE] = o->sequence};
  for (int a = 0; a < SLI_AXES; a++) size[a] = SLI_MAX(given[a], 1);
}

/* Who has blocks one by one, for reasons of its own. */
static sl_status want_blocks(sli_inputs *in, const char *why) {
  const char *grain = in->options->grain;
  if (grain && !in->by_block)
    return sl_fail(SL_E_USAGE, "grain %s: %s, which needs grain layer", grain, why);
  in->by_block = true;
  return SL_OK;
}

/* "tokens", "layers" */
static sl_status find_piece_order(sli_inputs *in) {
  const char *order = in->options->piece_order;
  if (!order || !strcmp(order, "tokens")) return SL_OK;
  if (strcmp(order, "layers"))
    return sl_fail(SL_E_USAGE, "unknown piece order '%s': tokens and layers are known", order);
  if (in->k == 1)
    return sl_fail(SL_E_USAGE, "piece order layers: sequences are not cut in pieces (--pieces K)");
  in->layers = true;
  return want_blocks(in, "with piece order layers pieces go on block by block");
}

sl_status sli_lower_grid(sli_inputs *in) {
  const sl_lower_options *o = in->options;
  int axes = 0;
  axis_sizes(o, in->grid.size);
  for (int a = 0; a < SLI_AXES; a++) axes += in->grid.size[a] > 1;
  in->grid.alike = o->alike && axes && !o->vocab_parallel;
  in->spread = o->vocab_parallel && in->p > 1;
  in->ranks = in->grid.alike ? 1 : sli_grid_ranks(&in->grid);
  in->devices = in->p * in->ranks;
  in->by_axis = axes > 1 && !in->kind->computes;
  sli_lower_axis_links(in);
  sl_status status = find_sharding(o->shard, &in->sharding);
  /* what is exchanged goes on its way block by block */
  in->by_block = sli_grid_size(&in->grid, sli_grid_rows()) > 1;
  if (!status && o->grain) status = find_grain(o->grain, &in->by_block);
  if (!status && sli_lower_moves(o))
    status = want_blocks(in, "what lives elsewhere goes there block by block");
  if (!status) status = find_piece_order(in);
  in->by_block |= in->update_every != 1;
  return status;
}

sl_status sli_lower_share_out(const sli_inputs *in) {
  sl_graph *g = in->g;
  const sl_lower_options *o = in->options;
  const sli_grid *grid = &in->grid;
  sli_choice choice[SLI_AXES] = {0}, *tensor = &choice[SLI_AXIS_TENSOR];
  sli_dim *dims = NULL;
  sl_status status = sli_dims_find(g, &dims);
  for (int a = 0; a < SLI_AXES && !status; a++) {
    if (grid->size[a] < 2 || !sli_axes[a].rows) continue;
    status = sli_choose_rows(g, dims, grid, a, &choice[a]);
    if (!status) status = sli_check_rows(g, &choice[a], a, o->ngiven, o->given);
  }
  const sli_tensor_search search = {g, dims, grid, o->free_data, o->ngiven, o->given, choice};
  if (!status && grid->size[SLI_AXIS_TENSOR] > 1) status = sli_choose_tensor(&search, tensor);
  if (!status && tensor->of && o->sharing) status = sli_find_runner_up(&search, tensor);
  if (!status && o->sharing) sli_choice_print(g, grid, choice, o->sharing);
  sli_grid over = *grid;
  if (in->spread) over.size[SLI_AXIS_STAGES] = in->p;
  if (!status && in->spread)
    status = sli_choose_spread(g, dims, in->p, &choice[SLI_AXIS_STAGES]);
  if (!status) status = sli_pass_expand(g, dims, &over, choice, in->sharding);
  for (int a = 0; a < SLI_AXES; a++) sli_choice_free(&choice[a]);
  free(dims);
  return status;
}

/* What is said of how tensors lie along an axis needs devices along that axis. */
sl_status sli_lower_check_given(const sl_lower_options *o) {
  int sizes[SLI_AXES];
  axis_sizes(o, sizes);
  for (int i = 0; i < o->ngiven; i++) {
    const sl_given_sbp *given = &o->given[i];
    char text[SLI_SBP_TEXT];
    if (sizes[given->axis] == 1 && given->sbp.kind != SL_BROADCAST)
      return sl_fail(SL_E_USAGE, "%s cannot lie as %s: stages have one device along the %s axis (%s)",
                     given->name, sli_sbp_format(text, given->sbp), sli_axes[given->axis].name,
                     sli_axes[given->axis].option);
  }
  return SL_OK;
}
