/* SPDX-License-Identifier: Apache-2.0 */
/* Options for several devices per stage. */
#include "graph/compile/compile_inner.h"

#include <string.h>

/* ---- sequences ---------------------------------------------------------------------------- */

/* A way to compute over sharded positions: by heads, by the other method, or by either. */
typedef struct finding {
  const char *name;
  bool heads, other;
} finding;

enum { FINDINGS = 3 };
static const finding attentions[FINDINGS] = {
    {"auto", true, true}, {"heads", true, false}, {"ring", false, true}};
static const finding states[FINDINGS] = {
    {"auto", true, true}, {"heads", true, false}, {"exchange", false, true}};

static const struct positions_of {
  const char *name;
  bool zigzag;
} layouts[] = {{"contiguous", false}, {"zigzag", true}};

/* Finds one of `ways` by name; the default is the first. */
static sl_status find_way(const finding *ways, const char *of, const char *name, bool *heads,
                          bool *other) {
  for (int i = 0; i < FINDINGS; i++)
    if (!name || !strcmp(ways[i].name, name)) {
      *heads = ways[i].heads;
      *other = ways[i].other;
      return SL_OK;
    }
  return sl_fail(SL_E_USAGE, "unknown sequence %s '%s': must be %s, %s or %s", of, name,
                 ways[0].name, ways[1].name, ways[2].name);
}

static sl_status find_layout(const char *name, bool *zigzag) {
  for (size_t i = 0; i < SLI_COUNT(layouts); i++)
    if (!strcmp(layouts[i].name, name)) {
      *zigzag = layouts[i].zigzag;
      return SL_OK;
    }
  return sl_fail(SL_E_USAGE, "unknown sequence layout '%s': must be contiguous or zigzag", name);
}

/* Reads the method of attention across devices, and the positions of each device. */
static sl_status read_sequence(sli_inputs *in) {
  const sl_lower_options *o = in->options;
  sli_grid *grid = &in->grid;
  sl_status status = find_way(attentions, "attention", o->parallel.sequence_attention,
                              &in->by_heads, &in->by_ring);
  if (!status)
    status = find_way(states, "states", o->parallel.sequence_states, &in->states_by_heads,
                      &in->states_by_exchange);
  grid->zigzag = in->by_ring && !in->g->options.serve;
  if (!status && o->parallel.sequence_layout)
    status = find_layout(o->parallel.sequence_layout, &grid->zigzag);
  if (status) return status;
  if (in->by_heads && in->by_ring && o->parallel.sequence_layout) in->by_heads = !grid->zigzag;
  if (o->parallel.sequence_layout && grid->zigzag && !in->by_ring)
    return sl_fail(
        SL_E_USAGE,
        "sequence layout zigzag: needs parallel.sequence_attention ring, the only attention "
        "whose work it balances");
  return SL_OK;
}

/* ---- grids -------------------------------------------------------------------------------- */

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
  return sl_fail(SL_E_USAGE,
                 "unknown shard '%s': must be nothing, optimizer, gradients or parameters", name);
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
  return sl_fail(SL_E_USAGE, "unknown grain '%s': must be pass or layer", name);
}

static sl_status find_exchange(const char *how, bool *in_line) {
  *in_line = how && !strcmp(how, "inline");
  if (!how || *in_line || !strcmp(how, "beside")) return SL_OK;
  return sl_fail(SL_E_USAGE, "unknown exchange '%s': must be inline or beside", how);
}

static sl_status find_boundary(const sli_inputs *in, bool *scattered) {
  const char *how = in->options->parallel.boundary;
  *scattered = how && !strcmp(how, "scattered");
  if (how && !*scattered && strcmp(how, "whole"))
    return sl_fail(SL_E_USAGE, "unknown boundary '%s': must be whole or scattered", how);
  if (*scattered && (in->paths || in->options->schedule.skip > 0))
    return sl_fail(SL_E_UNSUPPORTED,
                   "boundary scattered: not supported with --paths or --skip, where a stage does "
                   "not always follow the same one");
  return SL_OK;
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
    return sl_fail(SL_E_USAGE, "unknown piece order '%s': must be tokens or layers", order);
  if (in->k == 1)
    return sl_fail(SL_E_USAGE, "piece order layers: needs sequences cut into pieces (--pieces K)");
  in->layers = true;
  return want_blocks(in, "piece order layers runs block by block");
}

/* Checks that experts divide the devices of the data axis, or of the data and tensor axes. */
static sl_status check_experts(const sl_lower_options *o) {
  int data = SLI_MAX(o->parallel.data, 1), tensor = SLI_MAX(o->parallel.tensor, 1),
      experts = SLI_MAX(o->experts.parallel, 1);
  if (data * tensor % experts && tensor == 1)
    return sl_fail(
        SL_E_USAGE,
        "experts.parallel %d: must divide parallel.data %d, so that devices split the experts "
        "evenly",
        experts, data);
  if (data * tensor % experts)
    return sl_fail(
        SL_E_USAGE,
        "experts.parallel %d: must divide the %d devices of parallel.data %d and parallel.tensor "
        "%d, so that they split the experts evenly",
        experts, data * tensor, data, tensor);
  if (o->experts.tensor > 1 && (o->experts.tensor != tensor || data % experts))
    return sl_fail(
        SL_E_USAGE,
        "experts.tensor %d: must be 1 (each expert on one device) or, if experts.parallel "
        "divides parallel.data, parallel.tensor (%d)",
        o->experts.tensor, tensor);
  if (o->parallel.free_data && (data % experts || o->experts.tensor))
    return sl_fail(
        SL_E_USAGE,
        "experts.parallel %d: not with parallel.free_data %d, which leaves the grid open; give "
        "parallel.data and parallel.tensor",
        experts, tensor);
  if (o->experts.rows && !(o->experts.rows >= 1))
    return sl_fail(SL_E_USAGE, "experts.rows %g: must be at least 1, an even share of the rows",
                   o->experts.rows);
  if (o->experts.rows && experts == 1)
    return sl_fail(SL_E_USAGE, "experts.rows %g: needs experts.parallel", o->experts.rows);
  return SL_OK;
}

/* Reads how experts are placed on devices, by the rows that are expected for them. */
static sl_status read_placement(const sli_inputs *in, sli_loads *loads) {
  const sl_expert_options *o = &in->options->experts;
  bool placed = o->placement && strcmp(o->placement, "order");
  if (o->replicas < 0)
    return sl_fail(SL_E_USAGE, "experts.replicas %d: must be positive", o->replicas);
  if (placed && strcmp(o->placement, "load"))
    return sl_fail(SL_E_USAGE, "experts.placement %s: must be order or load", o->placement);
  if (o->replicas && !placed)
    return sl_fail(SL_E_USAGE, "experts.replicas %d: needs experts.placement load", o->replicas);
  if (!placed) return SL_OK;
  if (!in->kind->modelled)
    return sl_fail(SL_E_USAGE,
                   "experts.placement load: %s devices have experts in their order; only timed "
                   "devices take this option",
                   in->kind->name);
  if (!loads)
    return sl_fail(SL_E_USAGE,
                   "experts.placement load: needs experts.routing, zipf:S or a file, which says "
                   "how many rows each expert gets");
  loads->placed = true;
  loads->replicas = o->replicas;
  return SL_OK;
}

/* Reads the expected routing of rows. It applies to devices that shard the experts and hold no
 * values. */
static sl_status read_routing(sli_inputs *in) {
  const sl_lower_options *o = in->options;
  sli_loads *loads;
  sl_status status = sli_loads_read(o->experts.routing, &in->g->arena, &loads);
  if (!status) status = read_placement(in, loads);
  if (status || !o->experts.routing || !strcmp(o->experts.routing, "learned")) return status;
  if (!in->kind->modelled)
    return sl_fail(
        SL_E_USAGE,
        "experts.routing %s: on %s devices the model routes the rows; only timed devices take "
        "this option",
        o->experts.routing, in->kind->name);
  if (o->experts.parallel < 2)
    return sl_fail(SL_E_USAGE, "experts.routing %s: needs experts.parallel", o->experts.routing);
  in->grid.loads = loads;
  return SL_OK;
}

/* Reads the barriers of a vocabulary sharded over all stages; a single stage needs none. */
static sl_status read_barriers(sli_inputs *in) {
  const sl_lower_options *o = in->options;
  enum { MOST = 2 };
  if (o->vocabulary.barriers < 0 || o->vocabulary.barriers > MOST)
    return sl_fail(SL_E_USAGE, "vocabulary.barriers %d: must be 1 or 2", o->vocabulary.barriers);
  if (o->vocabulary.barriers && !o->vocabulary.parallel)
    return sl_fail(SL_E_USAGE, "vocabulary.barriers %d: needs vocabulary.parallel",
                   o->vocabulary.barriers);
  if (o->vocabulary.parallel && in->p > 1)
    in->barriers = o->vocabulary.barriers ? o->vocabulary.barriers : MOST;
  return SL_OK;
}

/* True if the devices of each stage have different numbers, as members of a group must. */
static bool have_numbers(const sli_inputs *in) {
  bool differ = true;
  for (int d = 0; d < in->devices; d++)
    for (int e = 0; e < d; e++)
      differ &= sli_along_of(in, d) != sli_along_of(in, e) ||
                sli_lower_number(in, d) != sli_lower_number(in, e);
  return differ;
}

/* True if devices may exchange by collectives, which cannot take turns on the passes' queue. */
static bool may_collect(const sli_inputs *in) {
  const char *exchange = in->options->parallel.exchange;
  bool in_line = exchange && !strcmp(exchange, "inline");
  return !in_line &&
         (in->kind->modelled || in->options->devices.links == SL_LINKS_DIRECT || have_numbers(in));
}

sl_status sli_compile_grid(sli_inputs *in) {
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
  in->grid.collectives = in->grid.collectives && may_collect(in);
  status = read_sequence(in);
  if (!status) status = find_sharding(o->memory.shard, &in->sharding);
  if (!status) status = find_exchange(o->parallel.exchange, &in->in_line);
  if (!status) status = find_boundary(in, &in->scattered);
  /* exchanges start block by block */
  in->by_block = sli_grid_size(&in->grid, sli_grid_rows()) > 1;
  if (!status && o->schedule.grain) status = find_grain(o->schedule.grain, &in->by_block);
  if (!status && sli_lower_moves(o))
    status = want_blocks(in, "offloaded data moves block by block");
  if (!status) status = find_piece_order(in);
  in->by_block |= in->update_every != 1;
  return status;
}
