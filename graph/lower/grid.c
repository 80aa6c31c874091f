/* SPDX-License-Identifier: Apache-2.0 */
/* Passes for several devices per stage. */
#include <stdlib.h>
#include <string.h>

#include "graph/passes/passes.h"
#include "graph/sharding/sharding.h"
#include "graph/lower/ir.h"

static sl_status choose_rows(const sli_inputs *in, const sli_dim *dims, const sli_grid *grid,
                             int axis, sli_choice *out) {
  const sl_lower_options *o = in->options;
  if (in->g->options.serve) return sli_choose_ticks(in->g, dims, grid, out);
  sl_status status = sli_choose_rows(in->g, dims, grid, axis, out);
  if (!status && axis == SLI_AXIS_SEQUENCE && in->other) out->runner_up = sli_strdup(in->other);
  return status ? status : sli_check_rows(in->g, out, axis, o->parallel.ngiven, o->parallel.given);
}

static void print_sharing(const sli_inputs *in, const sli_grid *grid, const sli_choice *choice) {
  FILE *out = in->options->print.sharing;
  sli_choice_print(in->g, grid, choice, out);
  if (in->barriers)
    fprintf(out,
            "each stage holds part of the vocabulary, and a microbatch waits for all stages %s\n",
            in->barriers == 1
                ? "once: products with the logits' gradient are computed before the sums are known"
                : "twice: for the sums, and for products with the logits' gradient");
}

sl_status sli_lower_share_out(const sli_inputs *in) {
  sl_graph *g = in->g;
  const sl_lower_options *o = in->options;
  sli_grid over = in->grid, *grid = &over;
  sli_choice choice[SLI_AXES] = {0}, *tensor = &choice[SLI_AXIS_TENSOR];
  sli_dim *dims = NULL;
  sl_status status = sli_dims_find(g, &dims);
  for (int a = 0; a < SLI_AXES && !status; a++) {
    bool experts = a == SLI_AXIS_EXPERT && grid->folded;
    if ((grid->size[a] > 1 && sli_axes[a].rows) || experts)
      status = choose_rows(in, dims, grid, a, &choice[a]);
  }
  if (!status && grid->folded) status = sli_choose_tokens(g, dims, &choice[SLI_AXIS_EXPERT], grid);
  const sli_tensor_search search = {
      g, dims, grid, o->parallel.free_data, o->parallel.ngiven, o->parallel.given, choice};
  if (!status && sli_choice_size(grid, SLI_AXIS_TENSOR) > 1)
    status = sli_choose_tensor(&search, tensor);
  if (!status && tensor->signatures && o->print.sharing)
    status = sli_find_runner_up(&search, tensor);
  if (in->barriers) over.size[SLI_AXIS_STAGES] = in->p;
  if (!status && in->barriers)
    status = sli_choose_stage_sharding(g, dims, in->p, &choice[SLI_AXIS_STAGES]);
  if (!status && o->print.sharing) print_sharing(in, &over, choice);
  if (!status) status = sli_pass_expand(g, dims, &over, choice, in->sharding);
  for (int a = 0; a < SLI_AXES; a++) sli_choice_free(&choice[a]);
  free(dims);
  return status;
}

sl_status sli_lower_serve(const sli_inputs *in) {
  sl_status status = sli_lower_check_homes(in);
  if (!status) status = sli_pass_serve(in->g);
  if (!status && in->options->numbers.exact) status = sli_groups_set(in->g);
  if (!status && sli_grid_ranks(&in->grid) > 1) status = sli_lower_share_out(in);
  return status ? status : sli_pass_serve_rows(in->g, SLI_MAX(in->grid.size[SLI_AXIS_SEQUENCE], 1));
}

/* Rejects a distribution along an axis that has only one device. */
sl_status sli_lower_check_given(const sl_lower_options *o) {
  sli_grid grid = {0};
  sli_grid_sizes(o, grid.size);
  for (int i = 0; i < o->parallel.ngiven; i++) {
    const sl_given_sbp *given = &o->parallel.given[i];
    char text[SLI_SBP_TEXT];
    if (sli_choice_size(&grid, given->axis) == 1 && given->sbp.kind != SL_BROADCAST)
      return sl_fail(SL_E_USAGE,
                     "%s cannot lie as %s: a stage has one device along the %s axis (%s)",
                     given->name, sli_sbp_format(text, given->sbp), sli_axes[given->axis].name,
                     sli_axes[given->axis].option);
  }
  return SL_OK;
}
