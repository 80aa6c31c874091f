/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products. tiles.c computes them if the processor has tiles, except short or narrow f32
 * products. Others go to oneDNN's matmul primitive, or to OpenBLAS if it is installed and faster:
 * in f32 on processors limited to AVX2. The following is about oneDNN.
 *
 * A product is cut along the rows of C into chunks of equal height, plus a last one for the
 * remainder. Each chunk is one call of the library on one thread. The height follows from the shape
 * alone, so the sums do not depend on the team. Tall products have eight chunks or more. Short ones
 * have fewer but not an odd number: below 128 rows the library's copying of B becomes significant
 * (tests/bench/bench_gemm.c). The shortest f32 products are cut along the columns of C instead, so
 * that no two threads copy the same part of B.
 *
 * The library is slow on a transposed A, so A is turned first. In f32 each thread turns the part it
 * is about to multiply, a stretch of its chunk along k, into its own cache-sized buffer. In bf16
 * all of a transposed A is turned beforehand; an A that is not transposed is rounded by each thread
 * into its buffer. sli_pack_run rounds B and brings it into the library's order, also
 * beforehand. */
#include "kernels/cpu/product.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/openblas.h"
#include "kernels/cpu/room.h"
#include "kernels/cpu/tiles.h"
#include "ops/linear.h"
#include "ops/ops.h"

enum { BF16_BYTES = 2 };
enum { SHORT_CHUNK = 128, TALL_CHUNK = 256, CHUNKS = 8, MULTIPLE = 64, FINE = 8 };
enum { STRETCH = 512 }; /* length along k of a turned stretch */
/* products cut along columns: most rows, and least columns per chunk */
enum { SHORT_ROWS = 256, NARROW_CHUNK = 256 };

struct sli_product {
  sli_product_shape shape;
  bool tiles;             /* computed by tiles.c; the fields below are unused */
  bool openblas;          /* chunks go to OpenBLAS; there are no kernels */
  sli_pack *pack;         /* packing of B in each run; NULL: the kernels read B as it is */
  int64_t height, width;  /* rows and columns of a chunk, one of which is all */
  int64_t stretch;        /* length along k of a stretch */
  struct {
    sli_onednn whole[2]; /* full-height chunks; [1] adds to C */
    sli_onednn rest[2];  /* the last chunk */
  } kernels[2];          /* for whole stretches; for the last one */
};

/* ---- products --------------------------------------------------------------------- */

static int64_t up(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

/* Returns the rows of a chunk. Keeps small chunk counts even: an odd count would leave one of two
 * threads idle during the last chunk. */
static int64_t chunk_height(int64_t rows) {
  int64_t height = SLI_MIN(SLI_MAX(up(rows / CHUNKS, MULTIPLE), SHORT_CHUNK), TALL_CHUNK);
  int64_t count = up(rows, height) / height;
  bool odd = count % 2 && count > 1 && count < CHUNKS;
  return odd ? up((rows + count) / (count + 1), FINE) : SLI_MIN(rows, height);
}

/* Returns the columns of a chunk, for an even number of chunks. */
static int64_t chunk_width(const sli_product_shape *s) {
  int64_t count = SLI_MIN(s->n / NARROW_CHUNK, CHUNKS) / 2 * 2;
  bool cut = !s->bf16 && s->m <= SHORT_ROWS && count;
  return cut ? up((s->n + count - 1) / count, MULTIPLE) : s->n;
}

/* Sets the order in which products of this shape read a packed B: the library's choice for the
 * plainest of them, so that all agree. */
static sl_status choose_order(const sli_product_shape *shape, dnnl_memory_desc_t *order) {
  sli_product_shape plain = *shape;
  plain.bias = plain.add = false;
  sli_onednn kernel = {0};
  sl_status status = sli_onednn_create(&kernel, &plain, chunk_height(shape->m), shape->n, false, NULL);
  if (status) return status;
  *order = *kernel.desc[SLI_ONEDNN_B];
  dnnl_primitive_destroy(kernel.primitive);
  return SL_OK;
}

static size_t packed_bytes(const sli_product_shape *shape) {
  sl_type packed = sli_packed_type(shape->k, shape->n);
  return sl_type_bytes(&packed);
}

/* Creates the kernels of a stretch along k: the last one, or any other. */
static sl_status stretch_create(sli_product *p, bool last, const dnnl_memory_desc_t *packed) {
  sli_product_shape shape = p->shape;
  int64_t rows = shape.m % p->height, columns = shape.n % p->width;
  bool adds = shape.add || p->stretch < shape.k;
  sl_status status = SL_OK;
  shape.k = last ? shape.k % p->stretch : p->stretch;
  for (int add = 0; !status && add <= adds; add++) {
    status = sli_onednn_create(&p->kernels[last].whole[add], &shape, p->height, p->width, add, packed);
    if (!status && (rows || columns))
      status = sli_onednn_create(&p->kernels[last].rest[add], &shape, rows ? rows : p->height,
                                 columns ? columns : p->width, add, packed);
  }
  return status;
}

static sl_status kernels_create(sli_product *p, const dnnl_memory_desc_t *packed) {
  sl_status status = stretch_create(p, false, packed);
  return !status && p->shape.k % p->stretch ? stretch_create(p, true, packed) : status;
}

static sl_status library_create(sli_product *p) {
  const sli_product_shape *shape = &p->shape;
  dnnl_memory_desc_t order, *packed = shape->bf16 ? &order : NULL;
  SLI_TRY(sli_onednn_start());
  if (packed) SLI_TRY(choose_order(shape, packed));
  p->openblas = !shape->bf16 && sli_cpu()->openblas && sli_openblas();
  p->width = p->openblas ? shape->n : chunk_width(shape);
  p->height = p->width < shape->n ? shape->m : chunk_height(shape->m);
  p->stretch = sli_onednn_turned(shape) && !shape->bf16 ? SLI_MIN(shape->k, STRETCH) : shape->k;
  if (!p->openblas) SLI_TRY(kernels_create(p, packed));
  return packed && !shape->b_packed ? sli_pack_create(shape, packed_bytes(shape), &p->pack) : SL_OK;
}

sl_status sli_product_create(const sli_product_shape *shape, sli_product **product) {
  sli_product *p = sli_calloc(1, sizeof *p);
  p->shape = *shape;
  p->tiles = sli_tiles_take(shape);
  sl_status status = p->tiles ? SL_OK : library_create(p);
  if (status) sli_product_destroy(p);
  else *product = p;
  return status;
}

void sli_product_destroy(sli_product *product) {
  if (!product) return;
  sli_pack_destroy(product->pack);
  for (int i = 0; i < 4; i++) {
    const sli_onednn *whole = &product->kernels[i / 2].whole[i % 2], *rest = &product->kernels[i / 2].rest[i % 2];
    if (whole->primitive) dnnl_primitive_destroy(whole->primitive);
    if (rest->primitive) dnnl_primitive_destroy(rest->primitive);
  }
  free(product);
}

/* Returns the number of chunks across C. */
static int chunks_across(const sli_product *p) {
  return (int)(up(p->shape.n, p->width) / p->width);
}

static int chunk_count(const sli_product *p, int64_t rows) {
  return (int)(up(rows, p->height) / p->height) * chunks_across(p);
}

int sli_product_chunks(const sli_product *p) {
  return p->tiles ? sli_tiles_chunks(&p->shape) : chunk_count(p, p->shape.m);
}

struct run {
  const sli_product *product;
  bool add;
  const void *a, *b;
  const float *bias;
  float *c;
};

/* Rounds some rows of A to bf16, into this thread's buffer. */
static const void *round_rows(const float *a, int64_t count) {
  sli_rounding r = {a, sli_room(SLI_ROOM_ROWS, (size_t)count * BF16_BYTES), count};
  for (int i = 0; i < sli_chunk_count(count, SLI_CHUNK_ELEMENTS); i++) sli_cpu()->round_bf16(&r, i);
  return r.to;
}

/* Turns some columns of A into rows, in the same buffer. */
static const void *turn_rows(const float *a, int64_t row, int64_t steps, int64_t count) {
  int64_t to_row = sli_onednn_turned_row(steps);
  sli_turn t = {a, row, steps, count, sli_room(SLI_ROOM_ROWS, (size_t)(count * to_row) * sizeof *a), to_row};
  sli_cpu()->turn(&t, 0);
  return t.to;
}

/* Returns `rows` rows of A and some steps of k in the form that the library reads. */
static const void *operand_rows(const struct run *run, int64_t row, int64_t rows, int64_t k, int64_t steps) {
  const sli_product_shape *s = &run->product->shape;
  if (s->a_transposed && s->bf16) return (const uint16_t *)run->a + row * sli_turned_row(s->k);
  if (s->a_transposed) {
    const float *from = (const float *)run->a + k * s->m + row;
    return sli_onednn_turned(s) ? turn_rows(from, s->m, steps, rows) : from;
  }
  const float *a = (const float *)run->a + row * s->k;
  return s->bf16 ? round_rows(a, rows * s->k) : a;
}

/* Multiplies by OpenBLAS, which has no bias. */
static void multiply_rows(const struct run *run, int64_t row, int64_t rows) {
  const sli_product_shape *s = &run->product->shape;
  float *c = run->c + row * s->n;
  for (int64_t r = 0; r < rows && run->bias; r++)
    for (int64_t i = 0; i < s->n; i++) c[r * s->n + i] = run->bias[i] + (run->add ? c[r * s->n + i] : 0);
  sli_openblas_multiply(&(sli_sgemm){
      .m = rows, .n = s->n, .k = s->k, .a_transposed = s->a_transposed, .b_transposed = s->b_transposed,
      .add = run->add || run->bias, .a = (const float *)run->a + (s->a_transposed ? row : row * s->k),
      .a_row = s->a_transposed ? s->m : s->k,
      .b = run->b, .b_row = s->b_transposed ? s->k : s->n, .c = c});
}

static void run_chunk(void *arg, int i) {
  const struct run *run = arg;
  const sli_product *p = run->product;
  const sli_product_shape *s = &p->shape;
  int64_t row = i / chunks_across(p) * p->height, column = i % chunks_across(p) * p->width;
  int64_t rows = SLI_MIN(p->height, s->m - row), columns = SLI_MIN(p->width, s->n - column);
  if (p->openblas) {
    multiply_rows(run, row, rows);
    return;
  }
  bool whole = rows == p->height && columns == p->width;
  for (int64_t k = 0, steps; k < s->k; k += steps) {
    steps = SLI_MIN(p->stretch, s->k - k);
    bool last = steps < p->stretch;
    const sli_onednn *kernel = whole ? p->kernels[last].whole : p->kernels[last].rest;
    /* bf16: k from 0 */
    const float *b = (const float *)run->b + (s->b_transposed ? column * s->k : k * s->n + column);
    sli_onednn_run(&kernel[run->add || k], operand_rows(run, row, rows, k, steps), b,
                   run->bias ? run->bias + column : NULL, run->c + row * s->n + column);
  }
}

/* Bytes of a turned A, if A is transposed. */
static size_t turned_bytes(const sli_product_shape *s) {
  return s->a_transposed ? (size_t)(s->m * sli_turned_row(s->k)) * BF16_BYTES : 0;
}

size_t sli_product_scratch(const sli_product_shape *s) {
  if (!s->bf16) return 0;
  if (sli_has_tiles()) return sli_tiles_scratch(s);
  return turned_bytes(s) + (s->b_packed ? 0 : packed_bytes(s));
}

/* Reorders both operands of a bf16 product for its kernels. */
static void order_operands(struct run *run, struct sl_team *team, void *scratch) {
  const sli_product_shape *s = &run->product->shape;
  sli_turning t = {.from = run->a, .row = s->m, .k = s->k, .n = s->m, .block = 16, .to = scratch};
  if (s->a_transposed) {
    sl_team_for(team, sli_turn_chunks(&t), sli_cpu()->turn_bf16, &t);
    run->a = scratch;
  }
  if (!run->product->pack) return;
  void *packed = (char *)scratch + turned_bytes(s);
  sli_pack_run(run->product->pack, team, run->b, packed);
  run->b = packed;
}

static void run_rows(const sli_product *p, struct sl_team *team, int64_t rows, bool add, const float *a,
                     const void *b, const float *bias, float *c, void *scratch) {
  struct run run = {p, add, a, b, bias, c};
  if (p->tiles) {
    sli_tiles_multiply(&p->shape, team, rows, add, a, b, bias, c, scratch);
    return;
  }
  if (p->shape.bf16) order_operands(&run, team, scratch);
  sl_team_for(team, chunk_count(p, rows), run_chunk, &run);
}

void sli_product_run(const sli_product *product, struct sl_team *team, bool add, const float *a,
                     const void *b, const float *bias, float *c, void *scratch) {
  run_rows(product, team, product->shape.m, add, a, b, bias, c, scratch);
}

void sli_product_run_rows(const sli_product *product, struct sl_team *team, int64_t rows,
                          const float *a, const void *b, const float *bias, float *c, void *scratch) {
  run_rows(product, team, rows, false, a, b, bias, c, scratch);
}

void sli_product_run_chunk(const sli_product *product, bool add, const void *a, const void *b,
                           const float *bias, float *c, int chunk) {
  struct run run = {product, add, a, b, bias, c};
  if (product->tiles) sli_tiles_multiply_chunk(&product->shape, add, a, b, bias, c, chunk);
  else run_chunk(&run, chunk);
}

/* ---- packing ---------------------------------------------------------------------- */

struct sli_pack {
  sli_turning turning;  /* block 0: the library's order, not one of ours */
  sli_onednn kernel; /* then: a reorder, from A to C */
};

/* Returns the columns per block if the order is that of pack_bf16, else 0. */
static int64_t packed_block(const dnnl_memory_desc_t *order, int64_t k) {
  const dnnl_blocking_desc_t *b = &order->format_desc.blocking;
  bool three = order->format_kind == dnnl_blocked && b->inner_nblks == 3;
  if (!three || b->inner_idxs[0] || b->inner_idxs[1] != 1 || b->inner_idxs[2]) return 0;
  int64_t block = b->inner_blks[1];
  bool ours = b->inner_blks[0] == 16 && b->inner_blks[2] == 2 && block % 16 == 0 &&
              b->strides[0] == 32 * block && b->strides[1] == sli_turned_row(k) * block;
  return ours ? block : 0;
}

static sl_status pack_for_library(const sli_product_shape *shape, size_t room, sli_pack *p) {
  dnnl_memory_desc_t order;
  SLI_TRY(sli_onednn_start());
  SLI_TRY(choose_order(shape, &order));
  size_t bytes = dnnl_memory_desc_get_size(&order);
  if (bytes > room)
    return sl_fail(SL_E_DEVICE, "oneDNN packs [%lld, %lld] into %zu bytes; there is room for %zu",
                   (long long)shape->k, (long long)shape->n, bytes, room);
  p->turning.block = packed_block(&order, shape->k);
  return p->turning.block ? SL_OK : sli_onednn_packs(shape, &order, &p->kernel);
}

sl_status sli_pack_create(const sli_product_shape *shape, size_t room, sli_pack **pack) {
  sli_pack *p = sli_calloc(1, sizeof *p);
  p->turning = (sli_turning){.row = shape->b_transposed ? shape->k : shape->n, .k = shape->k, .n = shape->n,
                             .block = SLI_STRIP, .turned = shape->b_transposed};
  sl_status status = sli_has_tiles() ? SL_OK : pack_for_library(shape, room, p);
  if (status) sli_pack_destroy(p);
  else *pack = p;
  return status;
}

void sli_pack_destroy(sli_pack *pack) {
  if (!pack) return;
  if (pack->kernel.primitive) dnnl_primitive_destroy(pack->kernel.primitive);
  free(pack);
}

void sli_pack_run(const sli_pack *pack, struct sl_team *team, const float *b, void *packed) {
  sli_turning t = pack->turning;
  t.from = b;
  t.to = packed;
  if (t.block) sl_team_for(team, sli_turn_chunks(&t), sli_cpu()->pack_bf16, &t);
  else sli_onednn_run(&pack->kernel, b, NULL, NULL, packed);
}

/* ---- bf16 ------------------------------------------------------------------------- */

/* Asks the library, which has checked the processor, the system's permission and the user's limit
 * (ONEDNN_MAX_CPU_ISA). */
const char *sl_cpu_bf16(void) {
  unsigned isa = dnnl_get_effective_cpu_isa();
  if (sli_has_tiles()) return sli_cpu()->tiles ? "amx-bf16" : "emulated";
  if ((isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx) return "amx-bf16";
  if ((isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16) return "avx512-bf16";
  const char *emulate = getenv("SLUICE_CPU_BF16"); /* see also sli_has_tiles */
  bool can = (isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
  return can && emulate && !strcmp(emulate, "1") ? "emulated" : NULL;
}

/* Names the library of the products. With tiles, it still computes short and narrow f32
 * products. */
const char *sl_cpu_products(bool bf16) {
  static __thread char text[128];
  const dnnl_version_t *v = dnnl_version();
  bool openblas = !bf16 && sli_cpu()->openblas && sli_openblas();
  if (bf16 && sli_has_tiles()) return "tiles";
  int n = snprintf(text, sizeof text, "%s", sli_has_tiles() ? "tiles and " : "");
  if (openblas) snprintf(text + n, sizeof text - (size_t)n, "%s", sli_openblas_name());
  else snprintf(text + n, sizeof text - (size_t)n, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
  return text;
}
