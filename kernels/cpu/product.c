/* Matrix products by oneDNN's matmul primitive; by OpenBLAS where that is faster and installed, in f32 with AVX2 and
 * no more; by tiles.c where the processor has tiles, in bf16. What follows is of the first.
 *
 * A product is cut along the rows of C into chunks of equal height (and a last
 * one of the rest), each one call of the library on one thread. The height
 * follows from the shape alone, so the sums do not depend on the team; tall
 * products make eight chunks or more, short ones fewer but not an odd number, because
 * below 128 rows the library's copying of B begins to cost (tests/bench/bench_gemm.c).
 *
 * Primitives are made once, in prepare(), and shared by all threads. What a call
 * of the library needs besides belongs to the calling thread: a stream, some
 * scratch (half a megabyte for usual shapes), and memory objects that wrap the
 * pointers, of which each thread keeps those of the primitives it ran last in a
 * small table keyed by the primitive's number. So a run allocates nothing once
 * the thread is warm.
 *
 * For products in bf16 each thread rounds the chunk of A it is about to multiply
 * into a buffer of its own, small enough to stay in its cache; a transposed one is
 * turned beforehand, for the library is slow where A is read against the grain.
 * B is rounded and brought into the library's own order by sli_pack_run, beforehand as well. */
#include "kernels/cpu/product.h"

#include <dnnl.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/openblas.h"
#include "kernels/cpu/tiles.h"
#include "kernels/kernels.h"

enum { BF16_BYTES = 2 };
enum { SHORT_CHUNK = 128, TALL_CHUNK = 256, CHUNKS = 8, MULTIPLE = 64, FINE = 8 };
enum { A, B, C, BIAS, SCRATCH, OPERANDS };

static const int argument_of[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                          DNNL_ARG_BIAS, DNNL_ARG_SCRATCHPAD};

/* One primitive: a chunk of `rows` rows, overwriting C or adding to it. */
struct kernel {
  uint64_t number; /* unique in the process; 0: there is none */
  dnnl_primitive_t primitive;
  const dnnl_memory_desc_t *desc[OPERANDS]; /* the primitive's; NULL: it has no such operand */
};

struct sli_product {
  sli_product_shape shape;
  bool tiles;             /* all is tiles.c's, and there is nothing else here */
  bool openblas;          /* chunks are its, and there are no kernels */
  sli_pack *pack;         /* of B, by each run; NULL: it lies as the kernels read it */
  int64_t height;         /* rows of a chunk */
  struct kernel whole[2]; /* chunks of full height; [1] adds */
  struct kernel rest[2];  /* the last chunk */
};

static dnnl_engine_t engine; /* written once, under engine_once */
static pthread_once_t engine_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;

/* ---- what belongs to a thread ------------------------------------------------- */

enum { TABLE = 64 };

struct thread {
  dnnl_stream_t stream;
  struct buffer {
    void *data;
    size_t bytes;
  } scratch, rounded, /* the library's; the chunk of A in bf16 */
      rooms[SLI_PRODUCT_ROOMS];
  struct {
    uint64_t number;
    dnnl_memory_t memory[OPERANDS];
  } table[TABLE];
};

static void forget(dnnl_memory_t *memory) {
  for (int i = 0; i < OPERANDS; i++)
    if (memory[i]) dnnl_memory_destroy(memory[i]);
}

static void thread_end(void *arg) {
  struct thread *thread = arg;
  for (int i = 0; i < TABLE; i++) forget(thread->table[i].memory);
  dnnl_stream_destroy(thread->stream);
  free(thread->scratch.data);
  free(thread->rounded.data);
  for (int i = 0; i < SLI_PRODUCT_ROOMS; i++) free(thread->rooms[i].data);
  free(thread);
}

static void make_engine(void) {
  dnnl_status_t status = dnnl_engine_create(&engine, dnnl_cpu, 0);
  SLI_CHECK(status == dnnl_success, "oneDNN has no CPU engine: status %d", status);
  SLI_CHECK(!pthread_key_create(&thread_key, thread_end), "no thread key left");
}

/* The library runs OpenMP loops, and the thread of a team must stay one. */
static struct thread *this_thread(void) {
  static _Thread_local struct thread *known;
  if (known) return known;
  omp_set_num_threads(1);
  known = sli_calloc(1, sizeof *known);
  dnnl_status_t status = dnnl_stream_create(&known->stream, engine, dnnl_stream_default_flags);
  SLI_CHECK(status == dnnl_success, "oneDNN gave no stream: status %d", status);
  pthread_setspecific(thread_key, known);
  return known;
}

static void *buffer_for(struct buffer *buffer, size_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  if (bytes <= buffer->bytes) return buffer->data;
  free(buffer->data);
  buffer->data = aligned_alloc(64, bytes);
  SLI_CHECK(buffer->data, "no memory for %zu bytes of scratch", bytes);
  buffer->bytes = bytes;
  return buffer->data;
}

float *sli_product_room(int which, size_t bytes) {
  return buffer_for(&this_thread()->rooms[which], bytes);
}

/* This thread's memory objects for a kernel. */
static dnnl_memory_t *memory_for(struct thread *thread, const struct kernel *kernel) {
  dnnl_memory_t *memory = thread->table[kernel->number % TABLE].memory;
  if (thread->table[kernel->number % TABLE].number == kernel->number) return memory;
  forget(memory);
  for (int i = 0; i < OPERANDS; i++) {
    memory[i] = NULL;
    if (!kernel->desc[i]) continue;
    dnnl_status_t status =
        dnnl_memory_create(&memory[i], kernel->desc[i], engine, DNNL_MEMORY_NONE);
    SLI_CHECK(status == dnnl_success, "oneDNN gave no memory object: status %d", status);
  }
  thread->table[kernel->number % TABLE].number = kernel->number;
  return memory;
}

static void kernel_run(const struct kernel *kernel, const void *a, const void *b,
                       const float *bias, void *c) {
  struct thread *thread = this_thread();
  const dnnl_memory_desc_t *scratch = kernel->desc[SCRATCH];
  size_t scratch_bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
  void *data[OPERANDS] = {[A] = (void *)a, [B] = (void *)b, [C] = c, [BIAS] = (void *)bias,
                          [SCRATCH] = buffer_for(&thread->scratch, scratch_bytes)};
  dnnl_memory_t *memory = memory_for(thread, kernel);
  dnnl_exec_arg_t args[OPERANDS];
  int n = 0;
  for (int i = 0; i < OPERANDS; i++) {
    if (!kernel->desc[i]) continue;
    dnnl_memory_set_data_handle(memory[i], data[i]);
    args[n++] = (dnnl_exec_arg_t){argument_of[i], memory[i]};
  }
  dnnl_status_t status = dnnl_primitive_execute(kernel->primitive, thread->stream, n, args);
  SLI_CHECK(status == dnnl_success, "oneDNN failed: status %d", status);
}

/* ---- making primitives ---------------------------------------------------------- */

/* rows x columns, stored row by row or (transposed) column by column. `row` is
 * the distance between stored rows. */
static dnnl_status_t describe(dnnl_memory_desc_t *desc, dnnl_data_type_t type, int64_t rows,
                              int64_t columns, bool transposed, int64_t row) {
  dnnl_dims_t dims = {rows, columns}, strides = {row, 1};
  if (transposed) strides[0] = 1, strides[1] = row;
  return dnnl_memory_desc_init_by_strides(desc, 2, dims, type, strides);
}

/* B as the caller has it. */
static dnnl_status_t describe_b(dnnl_memory_desc_t *desc, dnnl_data_type_t type,
                                const sli_product_shape *s) {
  return describe(desc, type, s->k, s->n, s->b_transposed, s->b_transposed ? s->k : s->n);
}

/* `rows` of A: as the caller has them, or as they are turned. */
static dnnl_status_t describe_a(dnnl_memory_desc_t *desc, dnnl_data_type_t type,
                                const sli_product_shape *s, int64_t rows) {
  if (!s->a_transposed) return describe(desc, type, rows, s->k, false, s->k);
  if (s->bf16) return describe(desc, type, rows, s->k, false, sli_turned_row(s->k));
  return describe(desc, type, rows, s->k, true, s->m);
}

/* packed: the order of a packed B; NULL: the library may choose. */
static dnnl_status_t describe_operands(dnnl_memory_desc_t *desc, const sli_product_shape *s,
                                       int64_t rows, const dnnl_memory_desc_t *packed) {
  dnnl_data_type_t type = s->bf16 ? dnnl_bf16 : dnnl_f32;
  dnnl_dims_t dims = {s->k, s->n};
  dnnl_status_t status = dnnl_success;
  if (packed) desc[B] = *packed;
  else if (s->bf16) status = dnnl_memory_desc_init_by_tag(&desc[B], 2, dims, type,
                                                            dnnl_format_tag_any);
  else status = describe_b(&desc[B], type, s);
  if (!status) status = describe_a(&desc[A], type, s, rows);
  if (!status) status = describe(&desc[C], dnnl_f32, rows, s->n, false, s->n);
  if (!status && s->bias) status = describe(&desc[BIAS], dnnl_f32, 1, s->n, false, s->n);
  return status;
}

static dnnl_status_t make_attributes(dnnl_primitive_attr_t *attr, bool add) {
  dnnl_status_t status = dnnl_primitive_attr_create(attr);
  if (!status) status = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
  if (status || !add) return status;
  dnnl_post_ops_t then = NULL;
  status = dnnl_post_ops_create(&then);
  if (!status) status = dnnl_post_ops_append_sum(then, 1.0f);
  if (!status) status = dnnl_primitive_attr_set_post_ops(*attr, then);
  dnnl_post_ops_destroy(then);
  return status;
}

/* How the kernel has its operands: the primitive says so for as long as it lives. */
static void take_descriptions(struct kernel *kernel) {
  const_dnnl_primitive_desc_t desc;
  dnnl_primitive_get_primitive_desc(kernel->primitive, &desc);
  for (int i = 0; i < OPERANDS; i++) {
    const dnnl_memory_desc_t *md =
        dnnl_primitive_desc_query_md(desc, dnnl_query_exec_arg_md, argument_of[i]);
    kernel->desc[i] = md && md->ndims ? md : NULL;
  }
}

static dnnl_status_t make_primitive(struct kernel *kernel, dnnl_memory_desc_t *operands,
                                    dnnl_primitive_attr_t attr, bool bias) {
  dnnl_matmul_desc_t matmul;
  dnnl_primitive_desc_t desc = NULL;
  dnnl_status_t status = dnnl_matmul_desc_init(&matmul, &operands[A], &operands[B],
                                               bias ? &operands[BIAS] : NULL, &operands[C]);
  if (!status) status = dnnl_primitive_desc_create(&desc, &matmul, attr, engine, NULL);
  if (!status) status = dnnl_primitive_create(&kernel->primitive, desc);
  if (!status) take_descriptions(kernel);
  dnnl_primitive_desc_destroy(desc);
  return status;
}

static uint64_t next_number(void) {
  static atomic_uint_fast64_t last;
  return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

static sl_status kernel_create(struct kernel *kernel, const sli_product_shape *shape, int64_t rows,
                               bool add, const dnnl_memory_desc_t *packed) {
  dnnl_primitive_attr_t attr = NULL;
  dnnl_memory_desc_t operands[OPERANDS];
  dnnl_status_t status = describe_operands(operands, shape, rows, packed);
  if (!status) status = make_attributes(&attr, add);
  if (!status) status = make_primitive(kernel, operands, attr, shape->bias);
  dnnl_primitive_attr_destroy(attr);
  if (status)
    return sl_fail(SL_E_DEVICE, "oneDNN cannot multiply [%lld, %lld] by [%lld, %lld]: status %d",
                   (long long)rows, (long long)shape->k, (long long)shape->k, (long long)shape->n,
                   status);
  kernel->number = next_number();
  return SL_OK;
}

/* ---- products --------------------------------------------------------------------- */

static int64_t up(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

/* Of few chunks, an odd number would leave one of two threads idle while the last one runs. */
static int64_t chunk_height(int64_t rows) {
  int64_t height = SLI_MIN(SLI_MAX(up(rows / CHUNKS, MULTIPLE), SHORT_CHUNK), TALL_CHUNK);
  int64_t count = up(rows, height) / height;
  bool odd = count % 2 && count > 1 && count < CHUNKS;
  return odd ? up((rows + count) / (count + 1), FINE) : SLI_MIN(rows, height);
}

/* The order in which products of this shape read a packed B: what the library
 * chooses for the plainest of them, so that all agree on it. */
static sl_status choose_order(const sli_product_shape *shape, dnnl_memory_desc_t *order) {
  sli_product_shape plain = *shape;
  plain.bias = plain.add = false;
  struct kernel kernel = {0};
  sl_status status = kernel_create(&kernel, &plain, chunk_height(shape->m), false, NULL);
  if (status) return status;
  *order = *kernel.desc[B];
  dnnl_primitive_destroy(kernel.primitive);
  return SL_OK;
}

sl_type sli_packed_type(int64_t k, int64_t n) {
  return SL_TYPE(SL_BF16, up(k, 64), up(n, 64));
}

static size_t packed_bytes(const sli_product_shape *shape) {
  sl_type packed = sli_packed_type(shape->k, shape->n);
  return sl_type_bytes(&packed);
}

static sl_status start_library(void) {
  SLI_TRY(sli_address_room(SLI_LIBRARY_BYTES, "the library of products"));
  pthread_once(&engine_once, make_engine);
  this_thread();
  return SL_OK;
}

static sl_status kernels_create(sli_product *p, const dnnl_memory_desc_t *packed) {
  const sli_product_shape *shape = &p->shape;
  int64_t rest = shape->m % p->height;
  sl_status status = SL_OK;
  for (int add = 0; !status && add <= (shape->add ? 1 : 0); add++) {
    status = kernel_create(&p->whole[add], shape, p->height, add, packed);
    if (!status && rest) status = kernel_create(&p->rest[add], shape, rest, add, packed);
  }
  return status;
}

sl_status sli_product_create(const sli_product_shape *shape, sli_product **product) {
  dnnl_memory_desc_t order, *packed = shape->bf16 ? &order : NULL;
  bool tiles = shape->bf16 && sli_has_tiles();
  SLI_TRY(start_library());
  if (packed && !tiles) SLI_TRY(choose_order(shape, packed));
  sli_product *p = sli_calloc(1, sizeof *p);
  p->shape = *shape;
  p->tiles = tiles;
  p->openblas = !shape->bf16 && sli_cpu()->openblas && sli_openblas();
  p->height = chunk_height(shape->m);
  sl_status status = tiles || p->openblas ? SL_OK : kernels_create(p, packed);
  if (!status && packed && !tiles && !shape->b_packed) status = sli_pack_create(shape, packed_bytes(shape), &p->pack);
  if (status) sli_product_destroy(p);
  else *product = p;
  return status;
}

void sli_product_destroy(sli_product *product) {
  if (!product) return;
  sli_pack_destroy(product->pack);
  for (int add = 0; add < 2; add++) {
    if (product->whole[add].primitive) dnnl_primitive_destroy(product->whole[add].primitive);
    if (product->rest[add].primitive) dnnl_primitive_destroy(product->rest[add].primitive);
  }
  free(product);
}

static int chunk_count(const sli_product *p, int64_t rows) {
  return (int)((rows + p->height - 1) / p->height);
}

int sli_product_chunks(const sli_product *p) {
  return chunk_count(p, p->shape.m);
}

struct run {
  const sli_product *product;
  bool add;
  const void *a, *b;
  const float *bias;
  float *c;
};

/* Some rows of A in bf16, in this thread's buffer. */
static const void *round_rows(const float *a, int64_t count) {
  sli_rounding r = {a, buffer_for(&this_thread()->rounded, (size_t)count * BF16_BYTES), count};
  for (int i = 0; i < sli_chunk_count(count, SLI_CHUNK_ELEMENTS); i++) sli_cpu()->round_bf16(&r, i);
  return r.to;
}

/* A from a row of C on, `rows` of them. */
static const void *operand_rows(const struct run *run, int64_t row, int64_t rows) {
  const sli_product_shape *s = &run->product->shape;
  if (s->a_transposed && s->bf16) return (const uint16_t *)run->a + row * sli_turned_row(s->k);
  if (s->a_transposed) return (const float *)run->a + row;
  const float *a = (const float *)run->a + row * s->k;
  return s->bf16 ? round_rows(a, rows * s->k) : a;
}

/* The same by OpenBLAS, which has no bias. */
static void multiply_rows(const struct run *run, int64_t row, int64_t rows) {
  const sli_product_shape *s = &run->product->shape;
  float *c = run->c + row * s->n;
  for (int64_t r = 0; r < rows && run->bias; r++)
    for (int64_t i = 0; i < s->n; i++) c[r * s->n + i] = run->bias[i] + (run->add ? c[r * s->n + i] : 0);
  sli_openblas_multiply(&(sli_sgemm){
      .m = rows, .n = s->n, .k = s->k, .a_transposed = s->a_transposed, .b_transposed = s->b_transposed,
      .add = run->add || run->bias, .a = operand_rows(run, row, rows), .a_row = s->a_transposed ? s->m : s->k,
      .b = run->b, .b_row = s->b_transposed ? s->k : s->n, .c = c});
}

static void run_chunk(void *arg, int i) {
  const struct run *run = arg;
  const sli_product *p = run->product;
  const sli_product_shape *s = &p->shape;
  int64_t row = i * p->height;
  int64_t rows = SLI_MIN(p->height, s->m - row);
  if (p->openblas)
    multiply_rows(run, row, rows);
  else
    kernel_run(rows == p->height ? &p->whole[run->add] : &p->rest[run->add], operand_rows(run, row, rows), run->b,
               run->bias, run->c + row * s->n);
}

/* A that is transposed, turned. */
static size_t turned_bytes(const sli_product_shape *s) {
  return s->a_transposed ? (size_t)(s->m * sli_turned_row(s->k)) * BF16_BYTES : 0;
}

size_t sli_product_scratch(const sli_product_shape *s) {
  if (!s->bf16) return 0;
  if (sli_has_tiles()) return sli_tiles_scratch(s);
  return turned_bytes(s) + (s->b_packed ? 0 : packed_bytes(s));
}

/* Brings both operands of a product in bf16 into the orders that its kernels read. */
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
  run_chunk(&run, chunk);
}

/* ---- packing ---------------------------------------------------------------------- */

struct sli_pack {
  sli_turning turning;  /* block 0: the order is none of ours */
  struct kernel kernel; /* then, of a reorder, from A to C */
};

/* The library calls what it reads and writes here A and C as well. */
_Static_assert(DNNL_ARG_FROM == DNNL_ARG_SRC && DNNL_ARG_TO == DNNL_ARG_DST, "a reorder's operands");

static dnnl_status_t make_reorder(struct kernel *kernel, const dnnl_memory_desc_t *from,
                                  const dnnl_memory_desc_t *to) {
  dnnl_primitive_attr_t attr = NULL;
  dnnl_primitive_desc_t desc = NULL;
  dnnl_status_t status = make_attributes(&attr, false);
  if (!status)
    status = dnnl_reorder_primitive_desc_create(&desc, from, engine, to, engine, attr);
  if (!status) status = dnnl_primitive_create(&kernel->primitive, desc);
  if (!status) take_descriptions(kernel);
  dnnl_primitive_desc_destroy(desc);
  dnnl_primitive_attr_destroy(attr);
  return status;
}

/* The columns of a block where the order is pack_bf16's; else 0. */
static int64_t packed_block(const dnnl_memory_desc_t *order, int64_t k) {
  const dnnl_blocking_desc_t *b = &order->format_desc.blocking;
  bool three = order->format_kind == dnnl_blocked && b->inner_nblks == 3;
  if (!three || b->inner_idxs[0] || b->inner_idxs[1] != 1 || b->inner_idxs[2]) return 0;
  int64_t block = b->inner_blks[1];
  bool ours = b->inner_blks[0] == 16 && b->inner_blks[2] == 2 && block % 16 == 0 &&
              b->strides[0] == 32 * block && b->strides[1] == sli_turned_row(k) * block;
  return ours ? block : 0;
}

static sl_status pack_by_library(const sli_product_shape *shape, const dnnl_memory_desc_t *order,
                                 struct kernel *kernel) {
  dnnl_memory_desc_t plain;
  kernel->number = next_number();
  dnnl_status_t status = describe_b(&plain, dnnl_f32, shape);
  if (!status) status = make_reorder(kernel, &plain, order);
  if (!status) return SL_OK;
  return sl_fail(SL_E_DEVICE, "oneDNN cannot pack [%lld, %lld]: status %d", (long long)shape->k,
                 (long long)shape->n, status);
}

static sl_status pack_for_library(const sli_product_shape *shape, size_t room, sli_pack *p) {
  dnnl_memory_desc_t order;
  SLI_TRY(start_library());
  SLI_TRY(choose_order(shape, &order));
  size_t bytes = dnnl_memory_desc_get_size(&order);
  if (bytes > room)
    return sl_fail(SL_E_DEVICE, "oneDNN packs [%lld, %lld] into %zu bytes; there is room for %zu",
                   (long long)shape->k, (long long)shape->n, bytes, room);
  p->turning.block = packed_block(&order, shape->k);
  return p->turning.block ? SL_OK : pack_by_library(shape, &order, &p->kernel);
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
  else kernel_run(&pack->kernel, b, NULL, NULL, packed);
}

/* ---- bf16 ------------------------------------------------------------------------- */

/* The library has looked at the processor, at what the system allows, and at
 * the user's own limit (ONEDNN_MAX_CPU_ISA). */
const char *sl_cpu_bf16(void) {
  unsigned isa = dnnl_get_effective_cpu_isa();
  if (sli_has_tiles()) return sli_cpu()->tiles ? "amx-bf16" : "emulated";
  if ((isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx) return "amx-bf16";
  if ((isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16) return "avx512-bf16";
  const char *emulate = getenv("SLUICE_CPU_BF16"); /* see also sli_has_tiles */
  bool can = (isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
  return can && emulate && !strcmp(emulate, "1") ? "emulated" : NULL;
}
