/* SPDX-License-Identifier: Apache-2.0 */
/* Axes of a grid, and the positions of devices along them. */
#include "graph/sharding/sharding.h"

#include <string.h>

const sli_axis sli_axes[SLI_AXES] = {
    [SLI_AXIS_DATA] = {"data",
                       "parallel.data",
                       true,
                       SLI_AXIS_DATA,
                       SLI_AXIS_DATA,
                       SL_AT_DATA,
                       SL_TRAFFIC_DATA,
                       {"cut into rows along dim 0", "no rows", "too few rows", "rows",
                        "data cut into rows is also split into rows"}},
    [SLI_AXIS_EXPERT] = {"expert",
                         "experts.parallel",
                         true,
                         SLI_AXIS_EXPERT,
                         SLI_AXIS_EXPERT,
                         SL_AT_EXPERT,
                         SL_TRAFFIC_EXPERT,
                         {"cut into rows along dim 0", "no rows", "too few rows", "rows",
                          "data cut into rows is also split into rows"}},
    [SLI_AXIS_TENSOR] = {"tensor",
                         "parallel.tensor",
                         false,
                         SLI_AXIS_TENSOR,
                         SLI_AXIS_TENSOR,
                         SL_AT_TENSOR,
                         SL_TRAFFIC_TENSOR,
                         {0}},
    [SLI_AXIS_TENSOR_EXPERT] = {"tensor",
                                "parallel.tensor",
                                false,
                                SLI_AXIS_TENSOR,
                                SLI_AXIS_EXPERT,
                                SL_AT_TENSOR,
                                SL_TRAFFIC_TENSOR,
                                {0}},
    [SLI_AXIS_SEQUENCE] = {"sequence",
                           "parallel.sequence",
                           true,
                           SLI_AXIS_SEQUENCE,
                           SLI_AXIS_SEQUENCE,
                           SL_AT_SEQUENCE,
                           SL_TRAFFIC_SEQUENCE,
                           {"cut along sequences (sl_source.cut)", "no positions",
                            "too few positions", "positions",
                            "data cut along sequences is also split into positions"}},
    [SLI_AXIS_STAGES] = {"stage",
                         "parallel.stages",
                         false,
                         SLI_AXIS_STAGES,
                         SLI_AXIS_STAGES,
                         SL_AT_STAGE,
                         SL_TRAFFIC_PIPELINE,
                         {0}},
};

const int sli_nesting[SLI_AXES] = {SLI_AXIS_STAGES,   SLI_AXIS_DATA,   SLI_AXIS_EXPERT,
                                   SLI_AXIS_SEQUENCE, SLI_AXIS_TENSOR, SLI_AXIS_TENSOR_EXPERT};
const int sli_splitting[SLI_AXES] = {SLI_AXIS_DATA,   SLI_AXIS_EXPERT, SLI_AXIS_SEQUENCE,
                                     SLI_AXIS_STAGES, SLI_AXIS_TENSOR, SLI_AXIS_TENSOR_EXPERT};
const sli_along sli_along_data = 1u << SLI_AXIS_DATA | 1u << SLI_AXIS_EXPERT;

static bool has(sli_along along, int axis) { return along >> axis & 1; }

static int size_of(const sli_grid *grid, int axis) { return SLI_MAX(grid->size[axis], 1); }

int sli_grid_size(const sli_grid *grid, sli_along along) {
  int size = 1;
  for (int a = 0; a < SLI_AXES; a++)
    if (has(along, a)) size *= size_of(grid, a);
  return size;
}

/* Spreads experts over as many tensor-axis devices as possible, and over the data axis for the
 * rest. */
bool sli_grid_sizes(const sl_lower_options *o, int size[SLI_AXES]) {
  int D = SLI_MAX(o->parallel.data, 1), T = SLI_MAX(o->parallel.tensor, 1),
      EP = SLI_MAX(o->experts.parallel, 1);
  bool folded = T > 1 && (o->experts.tensor == 1 || (!o->experts.tensor && D % EP));
  int of_tensors = folded ? (int)sli_common_divisor(EP, T) : 1, of_data = EP / of_tensors;
  for (int a = 0; a < SLI_AXES; a++) size[a] = 1;
  size[SLI_AXIS_SEQUENCE] = SLI_MAX(o->parallel.sequence, 1);
  size[SLI_AXIS_DATA] = D / of_data;
  size[SLI_AXIS_EXPERT] = of_data;
  size[SLI_AXIS_TENSOR] = T / of_tensors;
  size[SLI_AXIS_TENSOR_EXPERT] = of_tensors;
  return folded;
}

int sli_grid_nested_stride(const sli_grid *grid, const int nesting[SLI_AXES], int axis) {
  int stride = 1;
  for (int i = SLI_AXES - 1; nesting[i] != axis; i--) stride *= size_of(grid, nesting[i]);
  return stride;
}

static int stride_of(const sli_grid *grid, int axis) {
  return sli_grid_nested_stride(grid, sli_nesting, axis);
}

int sli_rank_member(const sli_grid *grid, int rank, sli_along along) {
  int member = 0;
  for (int i = 0; i < SLI_AXES; i++) {
    int a = sli_nesting[i];
    if (has(along, a))
      member = member * size_of(grid, a) + rank / stride_of(grid, a) % size_of(grid, a);
  }
  return member;
}

int sli_rank_at(const sli_grid *grid, int rank, sli_along along, int member) {
  if (grid->alike) return rank;
  for (int i = SLI_AXES - 1; i >= 0; i--) {
    int a = sli_nesting[i], size = size_of(grid, a), stride = stride_of(grid, a);
    if (!has(along, a)) continue;
    rank += (member % size - rank / stride % size) * stride;
    member /= size;
  }
  return rank;
}

int sli_rank_share(const sli_grid *grid, int rank, sli_along along) {
  return grid->alike ? sli_grid_size(grid, along) - 1 : sli_rank_member(grid, rank, along);
}

sli_along sli_grid_rows(void) {
  sli_along along = 0;
  for (int a = 0; a < SLI_AXES; a++) along |= (sli_along)sli_axes[a].rows << a;
  return along;
}

sli_along sli_axis_factors(int axis) {
  sli_along along = 0;
  for (int a = 0; a < SLI_AXES; a++)
    along |= (sli_along)(sli_axes[a].parent == sli_axes[axis].parent) << a;
  return along;
}

sli_along sli_grid_experts(void) {
  sli_along along = 0;
  for (int a = 0; a < SLI_AXES; a++)
    along |= (sli_along)(sli_axes[a].at_experts == SLI_AXIS_EXPERT) << a;
  return along;
}

sli_along sli_row_of(int axis) {
  if (axis == SLI_AXIS_DATA) return sli_grid_rows();
  return axis == SLI_AXIS_EXPERT ? sli_grid_experts() : sli_axis_factors(axis);
}

int sli_choice_size(const sli_grid *grid, int axis) {
  return sli_grid_size(grid, axis == SLI_AXIS_DATA ? 1u << axis : sli_row_of(axis));
}
