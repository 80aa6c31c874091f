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

sl_status sli_lower_grid(sli_inputs *in) {
  const sl_lower_options *o = in->options;
  int data = SLI_MAX(o->data_parallel, 1), tensor = SLI_MAX(o->tensor, 1);
  in->grid = (sli_grid){.size = {data, tensor}, .alike = o->alike && data * tensor > 1};
  in->ranks = in->grid.alike ? 1 : data * tensor;
  in->tensor = in->grid.alike ? 1 : tensor;
  in->devices = in->p * in->ranks;
  in->two_exchanges = data > 1 && tensor > 1 && !in->kind->computes;
  sli_lower_axis_links(in);
  sl_status status = find_sharding(o->shard, &in->sharding);
  in->by_block = data > 1; /* what is exchanged goes on its way block by block */
  if (!status && o->grain) status = find_grain(o->grain, &in->by_block);
  if (!status && sli_lower_moves(o)) {
    if (o->grain && !in->by_block)
      return sl_fail(SL_E_USAGE, "grain %s: what lives elsewhere goes there block by block, which "
                     "needs grain layer", o->grain);
    in->by_block = true;
  }
  if (!status) status = sli_lower_read_update(in);
  in->by_block |= in->update_every != 1;
  return status;
}

sl_status sli_lower_share_out(const sli_inputs *in) {
  sl_graph *g = in->g;
  const sl_lower_options *o = in->options;
  const sli_grid *grid = &in->grid;
  sli_choice data = {0}, tensor = {0};
  sli_dim *dims = NULL;
  sl_status status = sli_dims_find(g, &dims);
  if (!status && grid->size[SLI_AXIS_DATA] > 1) status = sli_choose_data(g, dims, grid, &data);
  if (!status && data.of) status = sli_check_data(g, &data, o->ngiven, o->given);
  const sli_tensor_search search = {g, dims, grid, o->free_data, o->ngiven, o->given};
  if (!status && grid->size[SLI_AXIS_TENSOR] > 1) status = sli_choose_tensor(&search, &tensor);
  if (!status && tensor.of && o->sharing) status = sli_find_runner_up(&search, &tensor);
  if (!status && o->sharing) sli_choice_print(g, grid, &data, &tensor, o->sharing);
  if (!status) status = sli_pass_expand(g, dims, grid, &data, &tensor, in->sharding);
  sli_choice_free(&data);
  sli_choice_free(&tensor);
  free(dims);
  return status;
}

/* What is said of how tensors lie along an axis needs devices along that axis. */
sl_status sli_lower_check_given(const sl_lower_options *o) {
  static const char *const axes[SLI_AXES] = {"data axis (--data-parallel)",
                                             "tensor axis (--tensor)"};
  const int sizes[SLI_AXES] = {SLI_MAX(o->data_parallel, 1), SLI_MAX(o->tensor, 1)};
  for (int i = 0; i < o->ngiven; i++) {
    const sl_given_sbp *given = &o->given[i];
    char text[SLI_SBP_TEXT];
    if (sizes[given->axis] == 1 && given->sbp.kind != SL_BROADCAST)
      return sl_fail(SL_E_USAGE, "%s cannot lie as %s: stages have one device along the %s",
                     given->name, sli_sbp_format(text, given->sbp), axes[given->axis]);
  }
  return SL_OK;
}
