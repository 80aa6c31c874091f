/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions by Winograd's method. Rows of tiles are computed in blocks that stay in a shared
 * cache: all channels of a block are transformed, then each of the 16 positions of a tile is a
 * product of matrices, then the outputs are transformed back. Blocks follow from the shape alone,
 * so bits do not depend on the team. */
#include "kernels/cpu/winograd.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/product.h"

enum { POSITIONS = 16, KERNEL = 3, LEAST_CHANNELS = 16, LINE = 16, SLACK = 64 };
enum { BLOCK_NUMBERS = 1 << 20 }; /* of transformed inputs and outputs */

struct sli_winograd_plan {
  sli_winograd_shape shape;
  sli_product *product;
  int64_t rows; /* rows of tiles per block */
};

bool sli_winograd_takes(const sl_attrs *attrs, const sli_window *w, int64_t outputs) {
  bool fits = w->groups == 1 && w->channels >= LEAST_CHANNELS && outputs >= LEAST_CHANNELS;
  for (int a = 0; a < 2; a++)
    fits &= w->size[a] == KERNEL && w->stride[a] == 1 && w->dilation[a] == 1 && w->pad[a] < KERNEL;
  return fits && !attrs->numbers.exact;
}

/* Returns the convolution that computes y or dx, whose input is dy. */
static sli_winograd geometry(const sli_winograd_shape *s) {
  const sli_window *w = &s->window;
  bool back = s->of == SLI_WINOGRAD_X;
  sli_winograd g = {.turned = back,
                    .channels = back ? s->outputs : w->channels,
                    .outputs = back ? w->channels : s->outputs};
  for (int a = 0; a < 2; a++) {
    g.in[a] = back ? w->out[a] : w->in[a];
    g.out[a] = back ? w->in[a] : w->out[a];
    g.pad[a] = back ? KERNEL - 1 - w->pad[a] : w->pad[a];
  }
  g.down = (g.out[0] + 1) / 2;
  g.across = (g.out[1] + 1) / 2;
  return g;
}

static int64_t rows_of(const sli_winograd_shape *s) {
  sli_winograd g = geometry(s);
  int64_t row = POSITIONS * (g.channels + g.outputs) * g.across, all = s->window.images * g.down;
  int64_t most = SLI_MAX(BLOCK_NUMBERS / row, 1), blocks = (all + most - 1) / most;
  return (all + blocks - 1) / blocks;
}

/* Lays the transformed arrays out in the scratch. Planes are an odd number of cache lines apart. */
static int64_t lay_out(const sli_winograd_shape *s, int64_t rows, float *scratch, sli_winograd *g) {
  *g = geometry(s);
  g->tiles = rows * g->across;
  int64_t *const planes[] = {&g->u_plane, &g->v_plane, &g->m_plane};
  int64_t numbers[] = {g->outputs * g->channels, g->channels * g->tiles, g->outputs * g->tiles};
  float **const arrays[] = {&g->u, &g->v, &g->m};
  int64_t at = 0;
  for (int i = 0; i < 3; i++) {
    *planes[i] = ((numbers[i] + LINE - 1) / LINE | 1) * LINE;
    if (scratch) *arrays[i] = scratch + at;
    at += POSITIONS * *planes[i];
  }
  return at + SLACK;
}

size_t sli_winograd_scratch(const sli_winograd_shape *shape) {
  sli_winograd g;
  return (size_t)lay_out(shape, rows_of(shape), NULL, &g) * sizeof(float);
}

sl_status sli_winograd_create(const sli_winograd_shape *shape, sli_winograd_plan **plan) {
  sli_winograd_plan *p = sli_calloc(1, sizeof *p);
  sli_winograd g = geometry(shape);
  p->shape = *shape;
  p->rows = rows_of(shape);
  int64_t tiles = p->rows * g.across;
  sli_product_shape product = {.m = g.outputs, .n = tiles, .k = g.channels};
  if (shape->of == SLI_WINOGRAD_W)
    product = (sli_product_shape){
        .m = g.outputs, .n = g.channels, .k = tiles, .b_transposed = true, .add = true};
  sl_status status = sli_product_create(&product, &p->product);
  if (status) sli_winograd_destroy(p);
  else *plan = p;
  return status;
}

void sli_winograd_destroy(sli_winograd_plan *plan) {
  if (!plan) return;
  sli_product_destroy(plan->product);
  free(plan);
}

typedef struct block {
  const sli_winograd_plan *plan;
  sli_winograd g;
} block;

/* Multiplies one position of all tiles, or a chunk of it. */
static void multiply(void *arg, int i) {
  const block *b = arg;
  const sli_winograd *g = &b->g;
  int chunks = sli_product_chunks(b->plan->product), at = i / chunks;
  float *u = g->u + at * g->u_plane, *v = g->v + at * g->v_plane, *m = g->m + at * g->m_plane;
  bool weights = b->plan->shape.of == SLI_WINOGRAD_W;
  sli_product_run_chunk(b->plan->product, weights && g->first, weights ? m : u, v, NULL,
                        weights ? u : m, i % chunks);
}

/* Clears the tiles that a last, shorter block lacks: sums over tiles read them. */
static void clear_rest(sli_winograd *g) {
  int64_t used = g->rows * g->across, rest = g->tiles - used;
  for (int64_t p = 0; p < POSITIONS && rest; p++) {
    for (int64_t c = 0; c < g->channels; c++)
      memset(g->v + p * g->v_plane + c * g->tiles + used, 0, (size_t)rest * sizeof(float));
    for (int64_t o = 0; o < g->outputs; o++)
      memset(g->m + p * g->m_plane + o * g->tiles + used, 0, (size_t)rest * sizeof(float));
  }
}

static void run_block(block *b, struct sl_team *team) {
  sli_winograd *g = &b->g;
  bool weights = b->plan->shape.of == SLI_WINOGRAD_W;
  sl_team_for(team, (int)g->channels, sli_cpu()->winograd_tiles, g);
  if (weights) {
    sl_team_for(team, (int)g->outputs, sli_cpu()->winograd_spread, g);
    clear_rest(g);
  }
  sl_team_for(team, POSITIONS * sli_product_chunks(b->plan->product), multiply, b);
  if (!weights) sl_team_for(team, (int)g->outputs, sli_cpu()->winograd_sums, g);
}

void sli_winograd_run(const sli_winograd_plan *plan, struct sl_team *team, int64_t images,
                      const float *from, const float *w, const float *bias, bool adds, float *to,
                      void *scratch) {
  bool weights = plan->shape.of == SLI_WINOGRAD_W;
  block b = {.plan = plan};
  lay_out(&plan->shape, plan->rows, scratch, &b.g);
  b.g.x = from;
  b.g.w = b.g.dy = w;
  b.g.bias = bias;
  b.g.y = b.g.dw = to;
  b.g.adds = adds;
  if (!weights) sl_team_for(team, (int)b.g.outputs, sli_cpu()->winograd_kernels, &b.g);
  int64_t all = images * b.g.down;
  for (b.g.first = 0; b.g.first < all; b.g.first += plan->rows) {
    b.g.rows = SLI_MIN(plan->rows, all - b.g.first);
    run_block(&b, team);
  }
  if (weights) sl_team_for(team, (int)b.g.outputs, sli_cpu()->winograd_kernels_b, &b.g);
}
