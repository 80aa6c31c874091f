/* SPDX-License-Identifier: Apache-2.0 */
/* Options for several devices per stage, and the passes that carry them out. */
#include <stdlib.h>
#include <string.h>

#include "graph/passes/passes.h"
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

static sl_status find_exchange(const char *how, bool *in_line) {
  *in_line = how && !strcmp(how, "inline");
  if (!how || *in_line || !strcmp(how, "beside")) return SL_OK;
  return sl_fail(SL_E_USAGE, "unknown exchange '%s': inline and beside are known", how);
}

/* Requires tasks by block, for the given reason. */
static sl_status want_blocks(sli_inputs *in, const char *why) {
  const char *grain = in->options->schedule.grain;
  if (grain && !in->by_block)
    return sl_fail(SL_E_USAGE, "grain %s: %s, which needs grain layer", grain, why);
  in->by_block = true;
  return SL_OK;
}

/* Reads the order of pieces: "tokens" or "layers". */
static sl_status find_piece_order(sli_inputs *in) {
  const char *order = in->options->schedule.piece_order;
  if (!order || !strcmp(order, "tokens")) return SL_OK;
  if (strcmp(order, "layers"))
    return sl_fail(SL_E_USAGE, "unknown piece order '%s': tokens and layers are known", order);
  if (in->k == 1)
    return sl_fail(SL_E_USAGE, "piece order layers: sequences are not cut in pieces (--pieces K)");
  in->layers = true;
  return want_blocks(in, "with piece order layers pieces go on block by block");
}

/* Checks that experts divide the devices of the data axis, or of the data and tensor axes. */
static sl_status check_experts(const sl_lower_options *o) {
  int data = SLI_MAX(o->parallel.data, 1), tensor = SLI_MAX(o->parallel.tensor, 1), experts = SLI_MAX(o->experts.parallel, 1);
  if (data * tensor % experts && tensor == 1)
    return sl_fail(SL_E_USAGE, "--expert-parallel %d does not divide --data-parallel %d: which devices would have "
                   "which experts?", experts, data);
  if (data * tensor % experts)
    return sl_fail(SL_E_USAGE, "--expert-parallel %d does not divide the %d devices of --data-parallel %d and --tensor %d: "
                   "which would have which experts?", experts, data * tensor, data, tensor);
  if (o->experts.tensor > 1 && (o->experts.tensor != tensor || data % experts))
    return sl_fail(SL_E_USAGE, "--expert-tensor %d: an expert lies on one device (1); or, where --expert-parallel divides "
                   "--data-parallel, on all %d of --tensor", o->experts.tensor, tensor);
  if (o->parallel.free_data && (data % experts || o->experts.tensor))
    return sl_fail(SL_E_USAGE, "--expert-parallel %d: --parallel %d leaves open what devices share; --data-parallel and "
                   "--tensor say", experts, tensor);
  if (o->experts.rows && !(o->experts.rows >= 1))
    return sl_fail(SL_E_USAGE, "--expert-rows %g is less than an even share of the rows, which is 1", o->experts.rows);
  if (o->experts.rows && experts == 1)
    return sl_fail(SL_E_USAGE, "--expert-rows %g: on which devices? --expert-parallel says", o->experts.rows);
  return SL_OK;
}

/* Reads the expected routing of rows. It applies to devices that shard the experts and hold no
 * values. */
static sl_status read_routing(sli_inputs *in) {
  const sl_lower_options *o = in->options;
  const sli_loads *loads;
  sl_status status = sli_loads_read(o->experts.routing, &in->g->arena, &loads);
  if (status || !o->experts.routing || !strcmp(o->experts.routing, "learned")) return status;
  if (!in->kind->modelled)
    return sl_fail(SL_E_USAGE, "routing %s: on %s devices rows go where the model sends them; timed ones it can be "
                   "said of", o->experts.routing, in->kind->name);
  if (o->experts.parallel < 2)
    return sl_fail(SL_E_USAGE, "routing %s: to which devices? --expert-parallel says", o->experts.routing);
  in->grid.loads = loads;
  return SL_OK;
}

/* Reads the barriers of a vocabulary sharded over all stages; a single stage waits for no other. */
static sl_status read_barriers(sli_inputs *in) {
  const sl_lower_options *o = in->options;
  enum { MOST = 2 };
  if (o->vocabulary.barriers < 0 || o->vocabulary.barriers > MOST)
    return sl_fail(SL_E_USAGE, "--vocab-barriers %d: a microbatch waits for all stages once or twice",
                   o->vocabulary.barriers);
  if (o->vocabulary.barriers && !o->vocabulary.parallel)
    return sl_fail(SL_E_USAGE, "--vocab-barriers %d: without --vocab-parallel no stage waits for the others",
                   o->vocabulary.barriers);
  if (o->vocabulary.parallel && in->p > 1) in->barriers = o->vocabulary.barriers ? o->vocabulary.barriers : MOST;
  return SL_OK;
}

sl_status sli_lower_grid(sli_inputs *in) {
  const sl_lower_options *o = in->options;
  int axes = 0;
  sl_status status = check_experts(o);
  if (!status) status = read_routing(in);
  if (status) return status;
  in->grid.folded = sli_grid_sizes(o, in->grid.size);
  in->grid.expert_rows = o->experts.rows;
  for (int a = 0; a < SLI_AXES; a++) axes += in->grid.size[a] > 1;
  in->grid.alike = o->simulation.alike && axes && !o->vocabulary.parallel && !in->grid.loads;
  in->ranks = in->grid.alike ? 1 : sli_grid_ranks(&in->grid);
  in->devices = in->p * in->ranks;
  in->by_axis = axes > 1 && !in->kind->computes;
  status = read_barriers(in);
  if (!status) status = sli_lower_layout(in);
  if (status) return status;
  sli_lower_axis_links(in);
  status = sli_lower_read_sequence(in);
  if (!status) status = find_sharding(o->memory.shard, &in->sharding);
  if (!status) status = find_exchange(o->parallel.exchange, &in->in_line);
  /* exchanges start block by block */
  in->by_block = sli_grid_size(&in->grid, sli_grid_rows()) > 1;
  if (!status && o->schedule.grain) status = find_grain(o->schedule.grain, &in->by_block);
  if (!status && sli_lower_moves(o))
    status = want_blocks(in, "what lives elsewhere goes there block by block");
  if (!status) status = find_piece_order(in);
  in->by_block |= in->update_every != 1;
  return status;
}

static sl_status choose_rows(const sli_inputs *in, const sli_dim *dims, const sli_grid *grid, int axis,
                             sli_choice *out) {
  const sl_lower_options *o = in->options;
  sl_status status = sli_choose_rows(in->g, dims, grid, axis, out);
  if (!status && axis == SLI_AXIS_SEQUENCE && in->other) out->runner_up = sli_strdup(in->other);
  return status ? status : sli_check_rows(in->g, out, axis, o->parallel.ngiven, o->parallel.given);
}

static void print_sharing(const sli_inputs *in, const sli_grid *grid, const sli_choice *choice) {
  FILE *out = in->options->print.sharing;
  sli_choice_print(in->g, grid, choice, out);
  if (in->barriers)
    fprintf(out, "each stage has some of the words, and a microbatch waits for all stages %s\n",
            in->barriers == 1 ? "once: the products of the logits' gradient are made before the sums are known"
                              : "twice: for the sums, and for the products of the logits' gradient");
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
    if ((grid->size[a] > 1 && sli_axes[a].rows) || experts) status = choose_rows(in, dims, grid, a, &choice[a]);
  }
  if (!status && grid->folded) status = sli_choose_tokens(g, dims, &choice[SLI_AXIS_EXPERT], grid);
  const sli_tensor_search search = {g, dims, grid, o->parallel.free_data, o->parallel.ngiven, o->parallel.given, choice};
  if (!status && sli_choice_size(grid, SLI_AXIS_TENSOR) > 1) status = sli_choose_tensor(&search, tensor);
  if (!status && tensor->of && o->print.sharing) status = sli_find_runner_up(&search, tensor);
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
  if (!status && sli_grid_ranks(&in->grid) > 1) status = sli_lower_share_out(in);
  return status ? status : sli_pass_serve_rows(in->g);
}

/* Refuses a layout along an axis that has only one device. */
sl_status sli_lower_check_given(const sl_lower_options *o) {
  sli_grid grid = {0};
  sli_grid_sizes(o, grid.size);
  for (int i = 0; i < o->parallel.ngiven; i++) {
    const sl_given_sbp *given = &o->parallel.given[i];
    char text[SLI_SBP_TEXT];
    if (sli_choice_size(&grid, given->axis) == 1 && given->sbp.kind != SL_BROADCAST)
      return sl_fail(SL_E_USAGE, "%s cannot lie as %s: stages have one device along the %s axis (%s)",
                     given->name, sli_sbp_format(text, given->sbp), sli_axes[given->axis].name,
                     sli_axes[given->axis].option);
  }
  return SL_OK;
}
