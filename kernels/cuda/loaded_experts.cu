/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that are lent by the disk's queue (ops/expert_loads.h). The queue fills slots in device
 * memory, and writes which of them it lends into host memory, which the device reads where it is.
 * Products are those of experts in memory, so a row's bits do not depend on when its expert
 * arrives. */
#include "kernels/cuda/loaded.cuh"
#include "kernels/cuda/math.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/served.cuh"
#include "kernels/cuda/stored_planes.cuh"
#include "ops/place.h"

namespace {

using namespace sli;

enum { GATE, UP, DOWN };

/* A firing's rows and what it lends. An item is an expert and a level. */
struct lending {
  sli_expert_loads shape;
  const sli_lent *lent;
  const int32_t *ids, *levels; /* [places]; levels may be NULL */
  int64_t places, items, width;
  uint64_t
      *weights; /* [SLI_MATRICES][items] address of the matrix, or of its planes; 0: not lent */
  planes_place *planes; /* [SLI_MATRICES][items], or NULL */
  int32_t *numbers;     /* [places] item, or -1 */
  uint64_t *keys;       /* [2][places] */
  float *inner[2];      /* [places][inner width]: gate and up */
  void *split;
};

__device__ inline int64_t item_at(const lending &l, int64_t place) {
  int32_t id = l.ids[place];
  if (id < 0 || id >= l.shape.experts) return -1;
  int64_t item = id * l.shape.levels + sli_expert_level(&l.shape, l.levels, place);
  return l.weights[item] ? item : -1;
}

/* Addresses of what is lent. One block. */
__global__ void take_loans(lending l) {
  for (int64_t i = threadIdx.x; i < SLI_MATRICES * l.items; i += BLOCK) l.weights[i] = 0;
  __syncthreads();
  for (int32_t i = (int32_t)threadIdx.x; i < l.lent->count; i += BLOCK) {
    const sli_lent_item *item = sli_lent_item_at(&l.shape, l.lent, i);
    int64_t number = item->expert * l.shape.levels + item->level;
    size_t piece = 0;
    for (int m = GATE; m <= DOWN; piece += l.shape.piece_bytes[m++]) {
      const auto address = [&](int part) {
        return l.lent->cache + (uint64_t)item->slot[part] * l.shape.slot_bytes + piece;
      };
      uint64_t to = address(0);
      if (l.planes) {
        planes_place *p = &l.planes[m * l.items + number];
        p->base = l.shape.base;
        p->width = l.shape.base + item->level;
        for (int part = 0; part < p->width; part++)
          p->planes[part] = (const uint32_t *)address(part);
        to = (uint64_t)p;
      }
      l.weights[m * l.items + number] = to;
    }
  }
}

__global__ void number_places(lending l) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i < l.places) l.numbers[i] = (int32_t)item_at(l, i);
}

/* Clears the rows of places without an expert. */
__global__ void clear_others(lending l, float *y) {
  int32_t id = l.ids[blockIdx.x];
  if (id >= 0 && id < l.shape.experts) return;
  for (int64_t c = threadIdx.x; c < l.width; c += blockDim.x) y[blockIdx.x * l.width + c] = 0;
}

/* Activates the rows of what is lent. */
__global__ void activate(lending l, int64_t width) {
  if (l.numbers[blockIdx.x] < 0) return;
  float *gate = l.inner[GATE] + blockIdx.x * width;
  const float *up = l.inner[UP] + blockIdx.x * width;
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x) gate[c] = sli_swiglu(gate[c], up[c]);
}

/* Lays out the scratch of a call; returns its bytes. */
size_t lay_out(const sl_call *call, char *scratch, lending *l) {
  const sli_expert_loads *s = (const sli_expert_loads *)call->attrs->user;
  int64_t most = sl_type_elements(&call->in_type[1]), k = sl_type_last(&call->in_type[0]);
  size_t at = 0, split = 0;
  l->shape = *s;
  l->items = (int64_t)s->experts * s->levels;
  l->width = s->matrix[DOWN].dim[0];
  const auto place = [&](int64_t count, size_t bytes) {
    return sli_place(scratch, &at, count, bytes);
  };
  l->weights = (uint64_t *)place(SLI_MATRICES * l->items, sizeof *l->weights);
  l->planes = (planes_place *)place(s->planes ? SLI_MATRICES * l->items : 0, sizeof *l->planes);
  if (!s->planes) l->planes = nullptr;
  l->keys = (uint64_t *)place(2 * most, sizeof *l->keys);
  l->numbers = (int32_t *)place(most, sizeof *l->numbers);
  for (int m = GATE; m <= UP; m++)
    l->inner[m] = (float *)place(most * s->matrix[m].dim[0], sizeof(float));
  for (int m = GATE; m <= DOWN; m++) {
    size_t bytes = split_product_bytes(s->storage[m], most, m == DOWN ? s->matrix[GATE].dim[0] : k);
    if (bytes > split) split = bytes;
  }
  l->split = place((int64_t)split, 1);
  return at;
}

/* Multiplies the rows of what is lent, sorted by item, by their matrices m. */
void multiply_lent(const lending &l, int m, product p, void *stream) {
  const sl_type *matrix = &l.shape.matrix[m];
  p.w.n = matrix->dim[0];
  p.rows = l.places;
  p.packed = p.w.k % 4 == 0;
  p.experts = l.items;
  p.addresses = l.weights + m * l.items;
  if (l.planes) multiply_all<stored_planes>(p, stream);
  else multiply_stored(l.shape.storage[m], p, l.split, stream);
}

} // namespace

size_t sli_cuda_loaded_experts_scratch(const sl_call *call) {
  lending l = {};
  return lay_out(call, nullptr, &l);
}

void sli_cuda_loaded_experts(const sl_call *call, void *stream) {
  const sl_type *x = &call->in_type[0], *ids = &call->in_type[1];
  lending l = {};
  lay_out(call, (char *)call->scratch, &l);
  l.lent = (const sli_lent *)call->in[3];
  l.ids = (const int32_t *)call->in[1];
  l.levels = (const int32_t *)call->in[2];
  l.places = valid_ids(call);
  float *y = (float *)call->out[0];
  if (!l.places) return;
  if (!l.lent->firing)
    launch(stream, grid_of(l.places), threads_for(l.width), 0, clear_others, l, y);
  if (!l.lent->count) return;
  launch(stream, grid_of(1), BLOCK, 0, take_loans, l);
  launch(stream, grid_of(chunks(l.places, BLOCK)), BLOCK, 0, number_places, l);
  product p = {};
  p.keys =
      sort_places(l.numbers, l.places, l.keys, l.keys + l.places, id_in_table{0, l.items}, stream);
  p.w.k = sl_type_last(x);
  p.x = (const float *)call->in[0];
  p.each = x->ndim == ids->ndim ? sl_type_last(ids) : 1;
  for (int m = GATE; m <= UP; m++) {
    p.y = l.inner[m];
    multiply_lent(l, m, p, stream);
  }
  int64_t inner = l.shape.matrix[GATE].dim[0];
  launch(stream, grid_of(l.places), threads_for(inner), 0, activate, l, inner);
  p.w.k = inner;
  p.x = l.inner[GATE];
  p.each = 1;
  p.y = y;
  multiply_lent(l, DOWN, p, stream);
}
