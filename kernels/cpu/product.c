/* Matrix products by oneDNN's matmul primitive.
 *
 * A product is cut along the rows of C into chunks of equal height (and a last
 * one of the rest), each one call of the library on one thread. The height
 * follows from the shape alone, so the sums do not depend on the team; tall
 * products make eight chunks or more, short ones fewer, because below 128 rows
 * the library's copying of B begins to cost (tests/bench/bench_gemm.c).
 *
 * Primitives are made once, in prepare(), and shared by all threads. What a call
 * of the library needs besides belongs to the calling thread: a stream, some
 * scratch (half a megabyte for usual shapes), and memory objects that wrap the
 * pointers, of which each thread keeps those of the primitives it ran last in a
 * small table keyed by the primitive's number. So a run allocates nothing once
 * the thread is warm. */
#include "kernels/cpu/product.h"

#include <dnnl.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/base.h"

enum { SHORT_CHUNK = 128, TALL_CHUNK = 256, CHUNKS = 8, MULTIPLE = 64 };
enum { A, B, C, BIAS, SCRATCH, OPERANDS };

static const int argument_of[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                          DNNL_ARG_BIAS, DNNL_ARG_SCRATCHPAD};

/* One primitive: a chunk of `rows` rows, overwriting C or adding to it. */
struct kernel {
  uint64_t number; /* unique in the process; 0: there is none */
  dnnl_primitive_t primitive;
  dnnl_memory_desc_t desc[OPERANDS];
};

struct sli_product {
  sli_product_shape shape;
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
  void *scratch;
  size_t scratch_bytes;
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
  free(thread->scratch);
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

static void *scratch_for(struct thread *thread, const struct kernel *kernel) {
  size_t bytes = (dnnl_memory_desc_get_size(&kernel->desc[SCRATCH]) + 63) / 64 * 64;
  if (bytes <= thread->scratch_bytes) return thread->scratch;
  free(thread->scratch);
  thread->scratch = aligned_alloc(64, bytes);
  SLI_CHECK(thread->scratch, "no memory for %zu bytes of scratch", bytes);
  thread->scratch_bytes = bytes;
  return thread->scratch;
}

/* This thread's memory objects for a kernel. */
static dnnl_memory_t *memory_for(struct thread *thread, const struct kernel *kernel) {
  dnnl_memory_t *memory = thread->table[kernel->number % TABLE].memory;
  if (thread->table[kernel->number % TABLE].number == kernel->number) return memory;
  forget(memory);
  for (int i = 0; i < OPERANDS; i++) {
    dnnl_status_t status =
        dnnl_memory_create(&memory[i], &kernel->desc[i], engine, DNNL_MEMORY_NONE);
    SLI_CHECK(status == dnnl_success, "oneDNN gave no memory object: status %d", status);
  }
  thread->table[kernel->number % TABLE].number = kernel->number;
  return memory;
}

static void kernel_run(const struct kernel *kernel, const float *a, const float *b,
                       const float *bias, float *c) {
  struct thread *thread = this_thread();
  void *data[OPERANDS] = {[A] = (void *)a, [B] = (void *)b, [C] = c, [BIAS] = (void *)bias,
                          [SCRATCH] = scratch_for(thread, kernel)};
  dnnl_memory_t *memory = memory_for(thread, kernel);
  dnnl_exec_arg_t args[OPERANDS];
  int n = 0;
  for (int i = 0; i < OPERANDS; i++) {
    if (!kernel->desc[i].ndims) continue;
    dnnl_memory_set_data_handle(memory[i], data[i]);
    args[n++] = (dnnl_exec_arg_t){argument_of[i], memory[i]};
  }
  dnnl_status_t status = dnnl_primitive_execute(kernel->primitive, thread->stream, n, args);
  SLI_CHECK(status == dnnl_success, "oneDNN failed in a product: status %d", status);
}

/* ---- making primitives ---------------------------------------------------------- */

/* rows x columns, stored row by row or (transposed) column by column. `row` is
 * the distance between stored rows. */
static dnnl_status_t describe(dnnl_memory_desc_t *desc, int64_t rows, int64_t columns,
                              bool transposed, int64_t row) {
  dnnl_dims_t dims = {rows, columns}, strides = {row, 1};
  if (transposed) strides[0] = 1, strides[1] = row;
  return dnnl_memory_desc_init_by_strides(desc, 2, dims, dnnl_f32, strides);
}

static dnnl_status_t describe_operands(dnnl_memory_desc_t *desc, const sli_product_shape *s,
                                       int64_t rows) {
  dnnl_status_t status =
      describe(&desc[A], rows, s->k, s->a_transposed, s->a_transposed ? s->m : s->k);
  if (!status)
    status = describe(&desc[B], s->k, s->n, s->b_transposed, s->b_transposed ? s->k : s->n);
  if (!status) status = describe(&desc[C], rows, s->n, false, s->n);
  if (!status && s->bias) status = describe(&desc[BIAS], 1, s->n, false, s->n);
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

static dnnl_status_t make_primitive(struct kernel *kernel, dnnl_primitive_attr_t attr, bool bias) {
  dnnl_matmul_desc_t matmul;
  dnnl_primitive_desc_t desc = NULL;
  dnnl_status_t status = dnnl_matmul_desc_init(&matmul, &kernel->desc[A], &kernel->desc[B],
                                               bias ? &kernel->desc[BIAS] : NULL, &kernel->desc[C]);
  if (!status) status = dnnl_primitive_desc_create(&desc, &matmul, attr, engine, NULL);
  if (!status) status = dnnl_primitive_create(&kernel->primitive, desc);
  if (!status)
    kernel->desc[SCRATCH] = *dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
  dnnl_primitive_desc_destroy(desc);
  return status;
}

static sl_status kernel_create(struct kernel *kernel, const sli_product_shape *shape, int64_t rows,
                               bool add) {
  static atomic_uint_fast64_t last;
  dnnl_primitive_attr_t attr = NULL;
  dnnl_status_t status = describe_operands(kernel->desc, shape, rows);
  if (!status) status = make_attributes(&attr, add);
  if (!status) status = make_primitive(kernel, attr, shape->bias);
  dnnl_primitive_attr_destroy(attr);
  if (status)
    return sl_fail(SL_E_DEVICE, "oneDNN cannot multiply [%lld, %lld] by [%lld, %lld]: status %d",
                   (long long)rows, (long long)shape->k, (long long)shape->k, (long long)shape->n,
                   status);
  kernel->number = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
  return SL_OK;
}

/* ---- products --------------------------------------------------------------------- */

static int64_t chunk_height(int64_t rows) {
  int64_t height = (rows / CHUNKS + MULTIPLE - 1) / MULTIPLE * MULTIPLE;
  return SLI_MIN(rows, SLI_MIN(SLI_MAX(height, SHORT_CHUNK), TALL_CHUNK));
}

sl_status sli_product_create(const sli_product_shape *shape, sli_product **product) {
  pthread_once(&engine_once, make_engine);
  this_thread();
  sli_product *p = sli_calloc(1, sizeof *p);
  p->shape = *shape;
  p->height = chunk_height(shape->m);
  int64_t rest = shape->m % p->height;
  sl_status status = SL_OK;
  for (int add = 0; !status && add <= (shape->add ? 1 : 0); add++) {
    status = kernel_create(&p->whole[add], shape, p->height, add);
    if (!status && rest) status = kernel_create(&p->rest[add], shape, rest, add);
  }
  if (status) sli_product_destroy(p);
  else *product = p;
  return status;
}

void sli_product_destroy(sli_product *product) {
  if (!product) return;
  for (int add = 0; add < 2; add++) {
    if (product->whole[add].primitive) dnnl_primitive_destroy(product->whole[add].primitive);
    if (product->rest[add].primitive) dnnl_primitive_destroy(product->rest[add].primitive);
  }
  free(product);
}

static int chunk_count(const sli_product *p) {
  return (int)((p->shape.m + p->height - 1) / p->height);
}

struct run {
  const sli_product *product;
  bool add;
  const float *a, *b, *bias;
  float *c;
};

static void run_chunk(void *arg, int i) {
  const struct run *run = arg;
  const sli_product *p = run->product;
  const sli_product_shape *s = &p->shape;
  int64_t row = i * p->height;
  const struct kernel *kernel = row + p->height <= s->m ? &p->whole[run->add] : &p->rest[run->add];
  kernel_run(kernel, run->a + row * (s->a_transposed ? 1 : s->k), run->b, run->bias,
             run->c + row * s->n);
}

void sli_product_run(const sli_product *product, struct sl_team *team, bool add, const float *a,
                     const float *b, const float *bias, float *c) {
  struct run run = {product, add, a, b, bias, c};
  sl_team_for(team, chunk_count(product), run_chunk, &run);
}
