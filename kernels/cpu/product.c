/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products. If the processor has tiles, tiles.c computes bf16 products. Sluice's kernel
 * (vector/gemm.h) computes f32 products with a fixed summation order. Other f32 products are
 * computed on tiles, by this kernel or by oneDNN, as timing says (choice.h). The remaining products
 * go to oneDNN's matmul primitive, which the rest of this comment describes.
 *
 * A product is cut along the rows of C into chunks of equal height, plus a last one for the
 * remainder. Each chunk is one library call on one thread. The height follows from the shape alone,
 * so the sums do not depend on the team. Tall products have eight chunks or more. Short ones have
 * fewer, but an even number: below 128 rows the library's copying of B becomes significant
 * (tests/bench/bench_gemm.c). The shortest f32 products are cut along the columns of C instead, so
 * that no two threads copy the same part of B.
 *
 * The library is slow on a transposed A, so A is turned first. In f32 each thread turns the part it
 * is about to multiply, a stretch of its chunk along k, into a cache-sized buffer. In bf16 all of a
 * transposed A is turned beforehand; if A is not transposed, each thread rounds its rows into its
 * buffer. sli_pack_run rounds B into the library's order, also beforehand. */
#include "kernels/cpu/product.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/room.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/tiles.h"
#include "kernels/library.h"
#include "ops/linear.h"
#include "ops/ops.h"

enum { BF16_BYTES = 2 };
enum { SHORT_CHUNK = 128, TALL_CHUNK = 256, CHUNKS = 8, MULTIPLE = 64, FINE = 8 };
enum { STRETCH = 512 }; /* length along k of a turned stretch */
/* products cut along columns: maximum rows, and minimum columns per chunk */
enum { SHORT_ROWS = 256, NARROW_CHUNK = 256 };

struct sli_product {
  sli_product_shape shape;
  sli_family family;     /* on tiles, the fields below are unused; only the library has kernels */
  sli_pack *pack;        /* packing of B in each run; NULL: the kernels read B directly */
  int64_t height, width; /* rows and columns of a chunk; one of them covers all of C */
  int64_t stretch;       /* length along k of a stretch */
  struct {
    sli_onednn whole[2]; /* full-height chunks; [1] adds to C */
    sli_onednn rest[2];  /* the last chunk */
  } kernels[2];          /* for whole stretches; for the last stretch */
};

/* ---- products --------------------------------------------------------------------- */

static int64_t up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

/* Returns the rows of a chunk. Keeps small chunk counts even: an odd count would leave one of two
 * threads idle during the last chunk. */
static int64_t chunk_height(int64_t rows) {
  int64_t height = SLI_MIN(SLI_MAX(up(rows / CHUNKS, MULTIPLE), SHORT_CHUNK), TALL_CHUNK);
  int64_t count = up(rows, height) / height;
  bool odd = count % 2 && count > 1 && count < CHUNKS;
  return odd ? up((rows + count) / (count + 1), FINE) : SLI_MIN(rows, height);
}

/* Returns the columns of a chunk; the number of chunks is even. */
static int64_t chunk_width(const sli_product_shape *s) {
  int64_t count = SLI_MIN(s->n / NARROW_CHUNK, CHUNKS) / 2 * 2;
  bool cut = !s->bf16 && s->m <= SHORT_ROWS && count;
  return cut ? up((s->n + count - 1) / count, MULTIPLE) : s->n;
}

static size_t packed_bytes(const sli_product_shape *shape) {
  sl_type packed = sli_packed_type(shape->k, shape->n);
  return sl_type_bytes(&packed);
}

/* Returns true if a transposed A is turned into rows before it is multiplied. */
static bool turns(const sli_product *p) {
  return p->family == SLI_FAMILY_LIBRARY && sli_onednn_turned(&p->shape);
}

/* Creates the kernels that a stretch along k uses: the last stretch, which adds to those before it,
 * or any other. The library keeps about 100 kB for each. */
static sl_status stretch_create(sli_product *p, bool last, const sli_onednn_order *packed) {
  sli_product_shape shape = p->shape;
  int64_t rows = shape.m % p->height, columns = shape.n % p->width;
  bool adds = last || shape.add || shape.k >= 2 * p->stretch;
  sl_status status = SL_OK;
  shape.k = last ? shape.k % p->stretch : p->stretch;
  for (int add = last; !status && add <= adds; add++) {
    status =
        sli_onednn_create(&p->kernels[last].whole[add], &shape, p->height, p->width, add, packed);
    if (!status && (rows || columns))
      status = sli_onednn_create(&p->kernels[last].rest[add], &shape, rows ? rows : p->height,
                                 columns ? columns : p->width, add, packed);
  }
  return status;
}

static sl_status kernels_create(sli_product *p, const sli_onednn_order *packed) {
  sl_status status = stretch_create(p, false, packed);
  return !status && p->shape.k % p->stretch ? stretch_create(p, true, packed) : status;
}

/* Checks that the groups of a product with a fixed summation order divide the parts of k evenly. */
static sl_status check_order(const sli_product_shape *s) {
  if (!s->chunk) return SL_OK;
  if (s->bf16) return sl_fail(SL_E_DEVICE, "bf16 products do not sum in a fixed order");
  if (s->chunk < 0)
    return sl_fail(SL_E_SHAPE, "groups of %lld steps of k: must not be negative",
                   (long long)s->chunk);
  if (!s->part[0]) return SL_OK;
  int64_t groups = s->k / s->chunk, sum = 0, rest = s->k % s->chunk;
  for (int p = 0; p < SL_PART_RANGES; p++) {
    sum += s->part[p];
    rest += groups ? s->part[p] % groups : 1;
  }
  return sum == s->k && !rest
             ? SL_OK
             : sl_fail(SL_E_SHAPE,
                       "parts of %lld, %lld and %lld of k = %lld do not fill groups of %lld steps",
                       (long long)s->part[0], (long long)s->part[1], (long long)s->part[2],
                       (long long)s->k, (long long)s->chunk);
}

static sli_family chosen_for(int class);

/* Returns the family that multiplies. */
static sli_family family_for(const sli_product_shape *s) {
  bool wide = s->m >= SLI_STRIP && s->n >= SLI_STRIP; /* otherwise tiles would be mostly zeros */
  if (s->bf16) return sli_has_tiles() ? SLI_FAMILY_TILES : SLI_FAMILY_LIBRARY;
  if (s->chunk) return SLI_FAMILY_VECTORS;
  if (s->family) return s->family;
  if (sli_cpu_is_set("SLUICE_CPU_FP32", "tiles")) return SLI_FAMILY_TILES;
  return chosen_for(wide ? SLI_WIDE : SLI_NARROW);
}

static sl_status choose_family(sli_product *p) {
  p->family = family_for(&p->shape);
  if (p->family != SLI_FAMILY_LIBRARY || sli_onednn_loads()) return SL_OK;
  p->family = SLI_FAMILY_VECTORS;
  return p->shape.bf16 ? sl_fail(SL_E_DEVICE,
                                 "bf16 products need oneDNN, which cannot be loaded, or a "
                                 "processor with AMX or ARM64's BF16")
                       : SL_OK;
}

static sl_status onednn_create(sli_product *p) {
  sli_onednn_order *order = NULL;
  SLI_TRY(sli_onednn_start());
  if (p->shape.bf16) SLI_TRY(sli_onednn_order_create(&p->shape, p->height, &order));
  sl_status status = kernels_create(p, order);
  sli_onednn_order_destroy(order);
  return status;
}

static sl_status library_create(sli_product *p) {
  const sli_product_shape *shape = &p->shape;
  p->width = chunk_width(shape);
  p->height = p->width < shape->n ? shape->m : chunk_height(shape->m);
  p->stretch = turns(p) && !shape->bf16 ? SLI_MIN(shape->k, STRETCH) : shape->k;
  if (p->family == SLI_FAMILY_LIBRARY) SLI_TRY(onednn_create(p));
  return shape->bf16 && !shape->b_packed ? sli_pack_create(shape, packed_bytes(shape), &p->pack)
                                         : SL_OK;
}

sl_status sli_product_create(const sli_product_shape *shape, sli_product **product) {
  sli_product *p = sli_calloc(1, sizeof *p);
  p->shape = *shape;
  sl_status status = check_order(shape);
  if (!status) status = choose_family(p);
  if (!status && p->family != SLI_FAMILY_TILES) status = library_create(p);
  if (status) sli_product_destroy(p);
  else *product = p;
  return status;
}

void sli_product_destroy(sli_product *product) {
  if (!product) return;
  sli_pack_destroy(product->pack);
  for (int i = 0; i < 4; i++) {
    sli_onednn_destroy(&product->kernels[i / 2].whole[i % 2]);
    sli_onednn_destroy(&product->kernels[i / 2].rest[i % 2]);
  }
  free(product);
}

/* Returns the number of chunks across C. */
static int chunks_across(const sli_product *p) {
  return (int)(up(p->shape.n, p->width) / p->width);
}

static int chunk_count(const sli_product *p, int64_t height, int64_t rows) {
  return (int)(up(rows, height) / height) * chunks_across(p);
}

int sli_product_chunks(const sli_product *p) {
  return p->family == SLI_FAMILY_TILES ? sli_tiles_chunks(&p->shape)
                                       : chunk_count(p, p->height, p->shape.m);
}

static sli_product_part part_of(const sli_product *p, int64_t height, int chunk) {
  sli_product_part part = {.row = chunk / chunks_across(p) * height,
                           .column = chunk % chunks_across(p) * p->width};
  part.rows = SLI_MIN(height, p->shape.m - part.row);
  part.columns = SLI_MIN(p->width, p->shape.n - part.column);
  return part;
}

sli_product_part sli_product_part_of(const sli_product *p, int chunk) {
  return part_of(p, p->height, chunk);
}

/* Returns the rows per chunk for a team. Sluice's kernel packs B in each chunk, and its sums do not
 * depend on the cut, so each thread gets two chunks unless they would be short. */
static int64_t height_for(const sli_product *p, const struct sl_team *team, int64_t rows) {
  int64_t threads = sli_team_threads(team);
  if (p->family != SLI_FAMILY_VECTORS || p->width < p->shape.n) return p->height;
  int64_t share = SLI_MAX((rows + threads - 1) / threads, 1);
  return SLI_MAX((share + 1) / 2, SLI_MIN(share, (int64_t)TALL_CHUNK));
}

struct run {
  const sli_product *product;
  int64_t height; /* rows of a chunk */
  int64_t steps;  /* steps of k */
  bool add;
  const void *a, *b;
  const float *bias;
  float *c;
  double *leaves; /* C in f64, if groups are leaves; otherwise NULL */
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
  sli_turn t = {
      a, row, steps, count, sli_room(SLI_ROOM_ROWS, (size_t)(count * to_row) * sizeof *a), to_row};
  sli_cpu()->turn(&t, 0);
  return t.to;
}

/* Returns `rows` rows of A over some steps of k, in the form that the library reads. */
static const void *operand_rows(const struct run *run, int64_t row, int64_t rows, int64_t k,
                                int64_t steps) {
  const sli_product_shape *s = &run->product->shape;
  if (s->a_transposed && s->bf16) return (const uint16_t *)run->a + row * sli_turned_row(s->k);
  if (s->a_transposed) {
    const float *from = (const float *)run->a + k * s->m + row;
    return turns(run->product) ? turn_rows(from, s->m, steps, rows) : from;
  }
  const float *a = (const float *)run->a + row * s->k;
  return s->bf16 ? round_rows(a, rows * s->k) : a;
}

/* A chunk of C, and the stretch of k to add to it. */
struct chunk {
  sli_product_part part;
  int64_t k, steps;
};

static void multiply_by_own(const struct run *run, const struct chunk *at) {
  const sli_product_shape *s = &run->product->shape;
  sli_gemm g = {.rows = at->part.rows,
                .columns = at->part.columns,
                .k = run->steps,
                .a = (const float *)run->a + at->part.row * (s->a_transposed ? 1 : s->k),
                .a_row = s->a_transposed ? s->m : s->k,
                .a_transposed = s->a_transposed,
                .b = (const float *)run->b + at->part.column * (s->b_transposed ? s->k : 1),
                .b_row = s->b_transposed ? s->k : s->n,
                .b_transposed = s->b_transposed,
                .bias = run->bias ? run->bias + at->part.column : NULL,
                .c_row = s->n,
                .add = run->add,
                .chunk = s->chunk ? s->chunk : s->k};
  int64_t to = at->part.row * s->n + at->part.column;
  if (run->leaves) g.leaves = run->leaves + to;
  else g.c = run->c + to;
  memcpy(g.part, s->part, sizeof g.part);
  sli_cpu()->gemm(&g, 0);
}

static void multiply_by_onednn(const struct run *run, const struct chunk *at) {
  const sli_product *p = run->product;
  const sli_product_shape *s = &p->shape;
  bool whole = at->part.rows == p->height && at->part.columns == p->width,
       last = at->steps < p->stretch;
  const sli_onednn *kernel = whole ? p->kernels[last].whole : p->kernels[last].rest;
  /* bf16 products start at k = 0 */
  const float *b = (const float *)run->b +
                   (s->b_transposed ? at->part.column * s->k : at->k * s->n + at->part.column);
  sli_onednn_run(&kernel[run->add || at->k],
                 operand_rows(run, at->part.row, at->part.rows, at->k, at->steps), b,
                 run->bias ? run->bias + at->part.column : NULL,
                 run->c + at->part.row * s->n + at->part.column);
}

static void run_chunk(void *arg, int i) {
  const struct run *run = arg;
  const sli_product *p = run->product;
  const sli_product_shape *s = &p->shape;
  struct chunk at = {.part = part_of(p, run->height, i)};
  if (p->family == SLI_FAMILY_VECTORS) {
    multiply_by_own(run, &at);
    return;
  }
  for (; at.k < s->k; at.k += at.steps) {
    at.steps = SLI_MIN(p->stretch, s->k - at.k);
    multiply_by_onednn(run, &at);
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

static void run_rows(const sli_product *p, struct sl_team *team, int64_t rows, int64_t steps,
                     bool add, const float *a, const void *b, const float *bias, float *c,
                     void *scratch) {
  struct run run = {p, height_for(p, team, rows), steps, add, a, b, bias, c, NULL};
  if (p->family == SLI_FAMILY_TILES) {
    sli_tiles_multiply(&p->shape, team, rows, add, a, b, bias, c, scratch);
    return;
  }
  if (p->shape.bf16) order_operands(&run, team, scratch);
  sl_team_for(team, chunk_count(p, run.height, rows), run_chunk, &run);
}

void sli_product_run(const sli_product *product, struct sl_team *team, bool add, const float *a,
                     const void *b, const float *bias, float *c, void *scratch) {
  run_rows(product, team, product->shape.m, product->shape.k, add, a, b, bias, c, scratch);
}

void sli_product_run_rows(const sli_product *product, struct sl_team *team, int64_t rows,
                          const float *a, const void *b, const float *bias, float *c,
                          void *scratch) {
  run_rows(product, team, rows, product->shape.k, false, a, b, bias, c, scratch);
}

void sli_product_run_steps(const sli_product *product, struct sl_team *team, int64_t steps,
                           bool add, const float *a, const float *b, float *c) {
  run_rows(product, team, product->shape.m, steps, add, a, b, NULL, c, NULL);
}

void sli_product_run_leaves(const sli_product *product, struct sl_team *team, int64_t steps,
                            bool add, const float *a, const float *b, double *c) {
  int64_t rows = product->shape.m, height = height_for(product, team, rows);
  struct run run = {product, height, steps, add, a, b, NULL, NULL, c};
  sl_team_for(team, chunk_count(product, height, rows), run_chunk, &run);
}

void sli_product_run_chunk(const sli_product *product, bool add, const void *a, const void *b,
                           const float *bias, float *c, int chunk) {
  struct run run = {product, product->height, product->shape.k, add, a, b, bias, c, NULL};
  if (product->family == SLI_FAMILY_TILES)
    sli_tiles_multiply_chunk(&product->shape, add, a, b, bias, c, chunk);
  else run_chunk(&run, chunk);
}

/* ---- packing ---------------------------------------------------------------------- */

struct sli_pack {
  sli_turning turning; /* block 0: the library's order, not one of Sluice's */
  sli_onednn kernel;   /* reorder from A to C, for the library's order */
};

static sl_status pack_for_library(const sli_product_shape *shape, size_t room, sli_pack *p) {
  sli_onednn_order *order;
  SLI_TRY(sli_onednn_start());
  SLI_TRY(sli_onednn_order_create(shape, chunk_height(shape->m), &order));
  size_t bytes = sli_onednn_order_bytes(order);
  sl_status status = SL_OK;
  p->turning.block = sli_onednn_order_block(order, shape->k);
  if (bytes > room)
    status = sl_fail(SL_E_DEVICE, "oneDNN packs [%lld, %lld] into %zu bytes; there is room for %zu",
                     (long long)shape->k, (long long)shape->n, bytes, room);
  else if (!p->turning.block) status = sli_onednn_packs(shape, order, &p->kernel);
  sli_onednn_order_destroy(order);
  return status;
}

sl_status sli_pack_create(const sli_product_shape *shape, size_t room, sli_pack **pack) {
  sli_pack *p = sli_calloc(1, sizeof *p);
  p->turning = (sli_turning){.row = shape->b_transposed ? shape->k : shape->n,
                             .k = shape->k,
                             .n = shape->n,
                             .block = SLI_STRIP,
                             .turned = shape->b_transposed};
  sl_status status = sli_has_tiles() ? SL_OK : pack_for_library(shape, room, p);
  if (status) sli_pack_destroy(p);
  else *pack = p;
  return status;
}

void sli_pack_destroy(sli_pack *pack) {
  if (!pack) return;
  sli_onednn_destroy(&pack->kernel);
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

const char *sl_cpu_bf16(void) {
  const char *library = sli_onednn_bf16();
  if (sli_has_tiles()) return sli_cpu()->bf16 ? sli_cpu()->bf16 : "emulated";
  if (library && strcmp(library, "avx512")) return library;
  return library && sli_cpu_is_set("SLUICE_CPU_BF16", "1") ? "emulated"
                                                           : NULL; /* see also sli_has_tiles */
}

size_t sli_library_bytes(void) { return sli_onednn_bytes(); }

/* ---- the choice of families ------------------------------------------------------- */

enum {
  TIMED_ROUNDS = 3,
  MOST_TIMED_THREADS = 16,
  FORMS = 3,
  TIMED_WIDTH = 1536,
  TIMED_DEPTH = 384
};

/* Products of a layer and of its gradients, on all cores at once. */
typedef struct timing {
  const sli_product *product;
  const float *operands;
  float *results; /* of all threads */
  int64_t each;   /* numbers of a thread's result */
  _Atomic uint64_t nanoseconds;
} timing;

static uint64_t own_nanoseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void time_thread(void *arg, int i) {
  timing *t = arg;
  uint64_t start = own_nanoseconds();
  sli_product_run(t->product, NULL, false, t->operands, t->operands, NULL, t->results + i * t->each,
                  NULL);
  t->nanoseconds += own_nanoseconds() - start;
}

/* Returns the processor time of a thread's product, the least of some rounds. */
static double time_product(const sli_product_shape *shape, struct sl_team *team, timing *t) {
  sli_product *product;
  int threads = sli_team_threads(team);
  double least = 0;
  if (sli_product_create(shape, &product)) return 0;
  t->product = product;
  for (int r = 0; r <= TIMED_ROUNDS; r++) { /* the first one warms up */
    t->nanoseconds = 0;
    sl_team_for(team, threads, time_thread, t);
    double took = 1e-9 * (double)t->nanoseconds / threads;
    least = r <= 1 || took < least ? took : least;
  }
  sli_product_destroy(product);
  return least;
}

static bool has_family(int family, int class) {
  if (family == SLI_FAMILY_TILES) return class == SLI_WIDE && sli_cpu()->splits;
  return family == SLI_FAMILY_VECTORS || sli_onednn_loads();
}

static int timed_threads(void) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return (int)SLI_MAX(SLI_MIN(cores, MOST_TIMED_THREADS), 1);
}

static void time_families(sli_family_times *times) {
  static const int64_t rows[SLI_CLASSES] = {[SLI_WIDE] = 256, [SLI_NARROW] = 16};
  int threads = timed_threads();
  struct sl_team *team = sli_team_create(threads, NULL, NULL);
  int64_t most = TIMED_WIDTH * TIMED_DEPTH;
  float *numbers = sli_calloc((size_t)(most * (threads + 1)), sizeof *numbers);
  for (int64_t i = 0; i < most; i++) numbers[i] = (float)(i % 17) * 0.1f;
  for (int i = 0; i < SLI_CLASSES * SLI_FAMILIES * FORMS; i++) {
    int class = i / FORMS / SLI_FAMILIES, family = i / FORMS % SLI_FAMILIES;
    const sli_product_shape forms[FORMS] = {
        {.m = rows[class], .n = TIMED_WIDTH, .k = TIMED_DEPTH, .b_transposed = true},
        {.m = rows[class], .n = TIMED_DEPTH, .k = TIMED_WIDTH},
        {.m = TIMED_WIDTH, .n = TIMED_DEPTH, .k = rows[class], .a_transposed = true}};
    sli_product_shape shape = forms[i % FORMS];
    shape.family = (sli_family)family;
    timing t = {.operands = numbers, .results = numbers + most, .each = most};
    if (family && has_family(family, class))
      times[class].seconds[family] += time_product(&shape, team, &t);
  }
  free(numbers);
  if (team) sli_team_destroy(team);
}

static sli_family usual_for(int class) {
  if (class == SLI_WIDE && sli_cpu()->splits) return SLI_FAMILY_TILES;
  return sli_cpu()->multiplies ? SLI_FAMILY_VECTORS : SLI_FAMILY_LIBRARY;
}

static sli_family_choice timed;

static void choose_once(void) {
  sli_family usual[SLI_CLASSES] = {usual_for(SLI_WIDE), usual_for(SLI_NARROW)};
  char machine[512];
  sli_processor_name(machine, sizeof machine - 128);
  size_t at = strlen(machine);
  snprintf(machine + at, sizeof machine - at, ", level %d, %d cores, %s", sli_cpu_level(),
           timed_threads(), sli_onednn_loads() ? sli_onednn_name() : "no library");
  timed = sli_choice_make(machine, usual, time_families);
}

/* Returns the variable that chooses a family, or NULL. */
static const char *overriding(void) {
  static const char *const variables[] = {"SLUICE_CPU_FP32", "SLUICE_CPU_LEVEL"};
  for (int i = 0; i < (int)SLI_COUNT(variables); i++)
    if (getenv(variables[i])) return variables[i];
  return NULL;
}

static sli_family chosen_for(int class) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (sli_cpu_is_set("SLUICE_CPU_FP32", "library")) return SLI_FAMILY_LIBRARY;
  if (sli_cpu_is_set("SLUICE_CPU_FP32", "own")) return SLI_FAMILY_VECTORS;
  if (overriding()) return usual_for(class);
  pthread_once(&once, choose_once);
  return timed.family[class];
}

const char *sli_products_why(void) {
  static __thread char text[64];
  chosen_for(SLI_WIDE);
  if (!overriding()) return timed.why;
  snprintf(text, sizeof text, "%s is set", overriding());
  return text;
}

/* Returns the name of a family. */
static const char *family_name(sli_family family) {
  if (family == SLI_FAMILY_TILES) return "tiles";
  if (family == SLI_FAMILY_LIBRARY && sli_onednn_loads()) return sli_onednn_name();
  return "vectors";
}

const char *sl_cpu_products(bool bf16) {
  static __thread char text[128];
  if (bf16) return sli_has_tiles() ? "tiles" : sli_onednn_loads() ? sli_onednn_name() : "nothing";
  const char *wide = family_name(chosen_for(SLI_WIDE)),
             *narrow = family_name(chosen_for(SLI_NARROW));
  bool alike = !strcmp(wide, narrow);
  snprintf(text, sizeof text, "%s%s%s", wide, alike ? "" : " and ", alike ? "" : narrow);
  return text;
}
