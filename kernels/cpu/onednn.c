/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN primitives for matrix products and for the packing of their operands.
 *
 * Primitives are created once, in prepare(), and shared by all threads. Everything else that a call
 * of the library needs belongs to the calling thread: a stream, scratch (half a megabyte for usual
 * shapes), and memory objects that wrap the pointers. A small table per thread, keyed by the
 * primitive's number, keeps the memory objects of recent primitives. A run therefore allocates
 * nothing once the thread is warm. */
#include "kernels/cpu/onednn.h"

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/room.h"
#include "ops/ops.h"

enum { A = SLI_ONEDNN_A, B, C, BIAS, SCRATCH, OPERANDS };

static const int argument_of[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                          DNNL_ARG_BIAS, DNNL_ARG_SCRATCHPAD};

static dnnl_engine_t engine; /* written once, under engine_once */
static pthread_once_t engine_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;

/* ---- per-thread state --------------------------------------------------------- */

enum { TABLE = 64 };

struct thread {
  dnnl_stream_t stream;
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
  free(thread);
}

static void make_engine(void) {
  dnnl_status_t status = dnnl_engine_create(&engine, dnnl_cpu, 0);
  SLI_CHECK(status == dnnl_success, "oneDNN has no CPU engine: status %d", status);
  SLI_CHECK(!pthread_key_create(&thread_key, thread_end), "no thread key left");
}

/* Returns the thread's state. Limits OpenMP to one thread: the library runs OpenMP loops, and a
 * team's thread must not start more. */
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

/* Returns this thread's memory objects for a kernel. */
static dnnl_memory_t *memory_for(struct thread *thread, const sli_onednn *kernel) {
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

void sli_onednn_run(const sli_onednn *kernel, const void *a, const void *b,
                       const float *bias, void *c) {
  struct thread *thread = this_thread();
  const dnnl_memory_desc_t *scratch = kernel->desc[SCRATCH];
  size_t scratch_bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
  void *data[OPERANDS] = {[A] = (void *)a, [B] = (void *)b, [C] = c, [BIAS] = (void *)bias,
                          [SCRATCH] = sli_room(SLI_ROOM_LIBRARY, scratch_bytes)};
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

/* ---- primitives ----------------------------------------------------------------- */

/* Describes a matrix rows x columns, stored row-major or (transposed) column-major. `row` is the
 * distance between stored rows. */
static dnnl_status_t describe(dnnl_memory_desc_t *desc, dnnl_data_type_t type, int64_t rows,
                              int64_t columns, bool transposed, int64_t row) {
  dnnl_dims_t dims = {rows, columns}, strides = {row, 1};
  if (transposed) strides[0] = 1, strides[1] = row;
  return dnnl_memory_desc_init_by_strides(desc, 2, dims, type, strides);
}

/* Describes `columns` columns of B as the caller stores them. */
static dnnl_status_t describe_b(dnnl_memory_desc_t *desc, dnnl_data_type_t type,
                                const sli_product_shape *s, int64_t columns) {
  return describe(desc, type, s->k, columns, s->b_transposed, s->b_transposed ? s->k : s->n);
}

/* A transposed A is turned for bf16, and for f32 if B is one matrix along k and no bias is added,
 * because f32 products go along k in stretches. */
bool sli_onednn_turned(const sli_product_shape *s) {
  return s->a_transposed && (s->bf16 || (!s->b_transposed && !s->bias));
}

int64_t sli_onednn_turned_row(int64_t k) {
  enum { LINE = 16 }; /* floats per cache line */
  return ((k + LINE - 1) / LINE | 1) * LINE;
}

/* Describes `rows` rows of A: as the caller stores them, or turned. */
static dnnl_status_t describe_a(dnnl_memory_desc_t *desc, dnnl_data_type_t type, const sli_product_shape *s,
                                int64_t rows) {
  if (!s->a_transposed) return describe(desc, type, rows, s->k, false, s->k);
  if (!sli_onednn_turned(s)) return describe(desc, type, rows, s->k, true, s->m);
  return describe(desc, type, rows, s->k, false, s->bf16 ? sli_turned_row(s->k) : sli_onednn_turned_row(s->k));
}

/* packed: order of a packed B; NULL: the library may choose. */
static dnnl_status_t describe_operands(dnnl_memory_desc_t *desc, const sli_product_shape *s,
                                       int64_t rows, int64_t columns,
                                       const dnnl_memory_desc_t *packed) {
  dnnl_data_type_t type = s->bf16 ? dnnl_bf16 : dnnl_f32;
  dnnl_dims_t dims = {s->k, s->n};
  dnnl_status_t status = dnnl_success;
  if (packed) desc[B] = *packed;
  else if (s->bf16) status = dnnl_memory_desc_init_by_tag(&desc[B], 2, dims, type,
                                                            dnnl_format_tag_any);
  else status = describe_b(&desc[B], type, s, columns);
  if (!status) status = describe_a(&desc[A], type, s, rows);
  if (!status) status = describe(&desc[C], dnnl_f32, rows, columns, false, s->n);
  if (!status && s->bias) status = describe(&desc[BIAS], dnnl_f32, 1, columns, false, columns);
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

/* Reads the layout of the operands from the primitive, which owns the descriptions. */
static void take_descriptions(sli_onednn *kernel) {
  const_dnnl_primitive_desc_t desc;
  dnnl_primitive_get_primitive_desc(kernel->primitive, &desc);
  for (int i = 0; i < OPERANDS; i++) {
    const dnnl_memory_desc_t *md =
        dnnl_primitive_desc_query_md(desc, dnnl_query_exec_arg_md, argument_of[i]);
    kernel->desc[i] = md && md->ndims ? md : NULL;
  }
}

static dnnl_status_t make_primitive(sli_onednn *kernel, dnnl_memory_desc_t *operands,
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

sl_status sli_onednn_create(sli_onednn *kernel, const sli_product_shape *shape, int64_t rows,
                            int64_t columns, bool add, const dnnl_memory_desc_t *packed) {
  dnnl_primitive_attr_t attr = NULL;
  dnnl_memory_desc_t operands[OPERANDS];
  dnnl_status_t status = describe_operands(operands, shape, rows, columns, packed);
  if (!status) status = make_attributes(&attr, add);
  if (!status) status = make_primitive(kernel, operands, attr, shape->bias);
  dnnl_primitive_attr_destroy(attr);
  if (status)
    return sl_fail(SL_E_DEVICE, "oneDNN cannot multiply [%lld, %lld] by [%lld, %lld]: status %d",
                   (long long)rows, (long long)shape->k, (long long)shape->k, (long long)columns,
                   status);
  kernel->number = next_number();
  return SL_OK;
}

/* ---- packing ---------------------------------------------------------------------- */

/* The library's names for a reorder's input and output are those of A and C. */
_Static_assert(DNNL_ARG_FROM == DNNL_ARG_SRC && DNNL_ARG_TO == DNNL_ARG_DST, "a reorder's operands");

static dnnl_status_t make_reorder(sli_onednn *kernel, const dnnl_memory_desc_t *from,
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

sl_status sli_onednn_packs(const sli_product_shape *shape, const dnnl_memory_desc_t *order,
                                 sli_onednn *kernel) {
  dnnl_memory_desc_t plain;
  kernel->number = next_number();
  dnnl_status_t status = describe_b(&plain, dnnl_f32, shape, shape->n);
  if (!status) status = make_reorder(kernel, &plain, order);
  if (!status) return SL_OK;
  return sl_fail(SL_E_DEVICE, "oneDNN cannot pack [%lld, %lld]: status %d", (long long)shape->k,
                 (long long)shape->n, status);
}

sl_status sli_onednn_start(void) {
  SLI_TRY(sli_address_room(SLI_LIBRARY_BYTES, "the library of products"));
  pthread_once(&engine_once, make_engine);
  this_thread();
  return SL_OK;
}
