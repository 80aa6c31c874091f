/* The axes of a grid, and where its devices are along them. */
#include "graph/share/share.h"

const sli_axis sli_axes[SLI_AXES] = {
    [SLI_AXIS_DATA] = {"data", "--data-parallel", .rows = true},
    [SLI_AXIS_TENSOR] = {"tensor", "--tensor", .rows = false},
    [SLI_AXIS_SEQUENCE] = {"sequence", "--sequence", .rows = true},
    [SLI_AXIS_STAGES] = {"stages", "--vocab-parallel", .rows = false},
};

const int sli_nesting[SLI_AXES] = {SLI_AXIS_STAGES, SLI_AXIS_DATA, SLI_AXIS_SEQUENCE, SLI_AXIS_TENSOR};
const int sli_splitting[SLI_AXES] = {SLI_AXIS_DATA, SLI_AXIS_SEQUENCE, SLI_AXIS_STAGES, SLI_AXIS_TENSOR};

static bool has(sli_along along, int axis) { return along >> axis & 1; }

static int size_of(const sli_grid *grid, int axis) { return SLI_MAX(grid->size[axis], 1); }

int sli_grid_size(const sli_grid *grid, sli_along along) {
  int size = 1;
  for (int a = 0; a < SLI_AXES; a++)
    if (has(along, a)) size *= size_of(grid, a);
  return size;
}

int sli_grid_stride(const sli_grid *grid, int axis) {
  int stride = 1;
  for (int i = SLI_AXES - 1; sli_nesting[i] != axis; i--) stride *= size_of(grid, sli_nesting[i]);
  return stride;
}

int sli_rank_member(const sli_grid *grid, int rank, sli_along along) {
  int member = 0;
  for (int i = 0; i < SLI_AXES; i++) {
    int a = sli_nesting[i];
    if (has(along, a))
      member = member * size_of(grid, a) + rank / sli_grid_stride(grid, a) % size_of(grid, a);
  }
  return member;
}

int sli_rank_at(const sli_grid *grid, int rank, sli_along along, int member) {
  if (grid->alike) return rank;
  for (int i = SLI_AXES - 1; i >= 0; i--) {
    int a = sli_nesting[i], size = size_of(grid, a), stride = sli_grid_stride(grid, a);
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
