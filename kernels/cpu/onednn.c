/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN primitives for matrix products and for the packing of their operands.
 *
 * The library is loaded at run time, so that a program starts without it; its header decides at
 * compile time which version (2 or 3) is used. The versions differ in how they describe memory: by
 * a struct in version 2, by a handle that is created and destroyed in version 3.
 *
 * Primitives are created once, in prepare(), and shared by all threads. Everything else that a
 * library call needs belongs to the calling thread: a stream, scratch (half a megabyte for usual
 * shapes), and memory objects that wrap the pointers. A small table per thread, keyed by the
 * primitive's number, keeps the memory objects of recent primitives. A run therefore allocates
 * nothing once the thread is warm. */
#include "kernels/cpu/onednn.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/room.h"
#include "ops/ops.h"

#if defined(SLI_ONEDNN) /* name of its file */
#include <dnnl.h>

enum { A = SLI_ONEDNN_A, B, C, BIAS, SCRATCH, OPERANDS };

static const int argument_of[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                          DNNL_ARG_BIAS, DNNL_ARG_SCRATCHPAD};

/* ---- the library --------------------------------------------------------------- */

/* clang-format off */
#define FUNCTIONS(X)                                                                            \
  X(dnnl_version) X(dnnl_get_effective_cpu_isa) X(dnnl_engine_create)                           \
  X(dnnl_stream_create) X(dnnl_stream_destroy)                                                  \
  X(dnnl_memory_create) X(dnnl_memory_destroy) X(dnnl_memory_set_data_handle)                   \
  X(dnnl_memory_desc_get_size)                                                                  \
  X(dnnl_primitive_execute) X(dnnl_primitive_create) X(dnnl_primitive_destroy)                  \
  X(dnnl_primitive_get_primitive_desc) X(dnnl_primitive_desc_query_md)                          \
  X(dnnl_primitive_desc_destroy) X(dnnl_primitive_attr_create) X(dnnl_primitive_attr_destroy)   \
  X(dnnl_primitive_attr_set_scratchpad_mode) X(dnnl_primitive_attr_set_post_ops)                \
  X(dnnl_post_ops_create) X(dnnl_post_ops_append_sum) X(dnnl_post_ops_destroy)                  \
  X(dnnl_reorder_primitive_desc_create) VERSION_FUNCTIONS(X)
/* clang-format on */

#if DNNL_VERSION_MAJOR >= 3
/* clang-format off */
#define VERSION_FUNCTIONS(X)                                                                    \
  X(dnnl_memory_desc_create_with_strides) X(dnnl_memory_desc_create_with_tag)                   \
  X(dnnl_memory_desc_clone) X(dnnl_memory_desc_destroy) X(dnnl_memory_desc_query)               \
  X(dnnl_matmul_primitive_desc_create)
/* clang-format on */
#else
/* clang-format off */
#define VERSION_FUNCTIONS(X)                                                                    \
  X(dnnl_memory_desc_init_by_strides) X(dnnl_memory_desc_init_by_tag)                           \
  X(dnnl_matmul_desc_init) X(dnnl_primitive_desc_create)
/* clang-format on */
#endif

static struct {
#define X(name) __typeof__(name) *name;
  FUNCTIONS(X)
#undef X
} dnnl; /* written once, under load_once */

static bool loaded;
static char name[32];
static void (*limit_threads)(int);
static dnnl_engine_t engine;
static pthread_key_t thread_key;

static void thread_end(void *arg);

static const char *find_functions(void *library) {
#define X(function)                                     \
  *(void **)&dnnl.function = dlsym(library, #function); \
  if (!dnnl.function) return "it has no " #function;
  FUNCTIONS(X)
#undef X
  *(void **)&limit_threads = dlsym(library, "omp_set_num_threads");
  return NULL;
}

/* Loads the library and returns NULL, or the reason why it cannot be used. */
static const char *open_library(void) {
  if (sli_address_room(SLI_LIBRARY_BYTES, "the library of products")) return sl_detail();
  void *library = dlopen(SLI_ONEDNN, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  const char *why = library ? find_functions(library) : dlerror();
  if (why) return why;
  const dnnl_version_t *v = dnnl.dnnl_version();
  snprintf(name, sizeof name, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
  if (dnnl.dnnl_engine_create(&engine, dnnl_cpu, 0)) return "it does not support this processor";
  SLI_CHECK(!pthread_key_create(&thread_key, thread_end), "out of thread-specific data keys");
  return NULL;
}

static void onednn_load(void) {
  const char *why = open_library();
  loaded = !why;
  if (why)
    sli_log(
        "note: no oneDNN (%s): Sluice's own kernels multiply instead, more slowly and with "
        "different bits",
        why);
}

bool sli_onednn_loads(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, onednn_load);
  return loaded;
}

const char *sli_onednn_name(void) { return name; }

/* The names are those of x86-64's extensions. On other processors the library multiplies bf16 in
 * plain loops. */
const char *sli_onednn_bf16(void) {
#if !defined(__x86_64__)
  return NULL;
#endif
  if (!sli_onednn_loads()) return NULL;
  unsigned isa = dnnl.dnnl_get_effective_cpu_isa();
  if ((isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx) return "amx-bf16";
  if ((isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16) return "avx512-bf16";
  return (isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core ? "avx512" : NULL;
}

/* ---- descriptions of memory ------------------------------------------------------ */

#if DNNL_VERSION_MAJOR >= 3

typedef dnnl_memory_desc_t description; /* a handle */
typedef const_dnnl_memory_desc_t known_description;

static known_description known(const description *d) { return *d; }

static void forget_description(description *d) {
  if (*d) dnnl.dnnl_memory_desc_destroy(*d);
  *d = NULL;
}

static dnnl_status_t copy_description(description *d, known_description from) {
  return dnnl.dnnl_memory_desc_clone(d, from);
}

static dnnl_status_t describe_by_strides(description *d, dnnl_dims_t dims, dnnl_data_type_t type,
                                         dnnl_dims_t strides) {
  return dnnl.dnnl_memory_desc_create_with_strides(d, 2, dims, type, strides);
}

static dnnl_status_t describe_for_library(description *d, dnnl_dims_t dims, dnnl_data_type_t type) {
  return dnnl.dnnl_memory_desc_create_with_tag(d, 2, dims, type, dnnl_format_tag_any);
}

static bool is_there(known_description d) {
  int dims = 0;
  return d && !dnnl.dnnl_memory_desc_query(d, dnnl_query_ndims_s32, &dims) && dims;
}

typedef struct blocking {
  int count;
  dnnl_dims_t blocks, indices, strides;
} blocking;

static bool read_blocking(known_description d, blocking *b) {
  dnnl_format_kind_t kind;
  const dnnl_dims_t *blocks, *indices, *strides;
  if (dnnl.dnnl_memory_desc_query(d, dnnl_query_format_kind, &kind) || kind != dnnl_blocked ||
      dnnl.dnnl_memory_desc_query(d, dnnl_query_inner_nblks_s32, &b->count) ||
      dnnl.dnnl_memory_desc_query(d, dnnl_query_inner_blks, &blocks) ||
      dnnl.dnnl_memory_desc_query(d, dnnl_query_inner_idxs, &indices) ||
      dnnl.dnnl_memory_desc_query(d, dnnl_query_strides, &strides))
    return false;
  memcpy(b->blocks, *blocks, sizeof b->blocks);
  memcpy(b->indices, *indices, sizeof b->indices);
  memcpy(b->strides, *strides, sizeof b->strides);
  return true;
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *desc, description *d, bool bias,
                                      dnnl_primitive_attr_t attr) {
  return dnnl.dnnl_matmul_primitive_desc_create(desc, engine, d[A], d[B], bias ? d[BIAS] : NULL,
                                                d[C], attr);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) {
  return dnnl.dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}

#else

typedef dnnl_memory_desc_t description;
typedef const dnnl_memory_desc_t *known_description;

static known_description known(const description *d) { return d; }

static void forget_description(description *d) { (void)d; }

static dnnl_status_t copy_description(description *d, known_description from) {
  *d = *from;
  return dnnl_success;
}

static dnnl_status_t describe_by_strides(description *d, dnnl_dims_t dims, dnnl_data_type_t type,
                                         dnnl_dims_t strides) {
  return dnnl.dnnl_memory_desc_init_by_strides(d, 2, dims, type, strides);
}

static dnnl_status_t describe_for_library(description *d, dnnl_dims_t dims, dnnl_data_type_t type) {
  return dnnl.dnnl_memory_desc_init_by_tag(d, 2, dims, type, dnnl_format_tag_any);
}

static bool is_there(known_description d) { return d && d->ndims; }

typedef struct blocking {
  int count;
  dnnl_dims_t blocks, indices, strides;
} blocking;

static bool read_blocking(known_description d, blocking *b) {
  const dnnl_blocking_desc_t *from = &d->format_desc.blocking;
  if (d->format_kind != dnnl_blocked) return false;
  b->count = from->inner_nblks;
  memcpy(b->blocks, from->inner_blks, sizeof b->blocks);
  memcpy(b->indices, from->inner_idxs, sizeof b->indices);
  memcpy(b->strides, from->strides, sizeof b->strides);
  return true;
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *desc, description *d, bool bias,
                                      dnnl_primitive_attr_t attr) {
  dnnl_matmul_desc_t matmul;
  dnnl_status_t status =
      dnnl.dnnl_matmul_desc_init(&matmul, &d[A], &d[B], bias ? &d[BIAS] : NULL, &d[C]);
  return status ? status : dnnl.dnnl_primitive_desc_create(desc, &matmul, attr, engine, NULL);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) {
  return dnnl.dnnl_post_ops_append_sum(ops, 1.0f);
}

#endif

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
    if (memory[i]) dnnl.dnnl_memory_destroy(memory[i]);
}

static void thread_end(void *arg) {
  struct thread *thread = arg;
  for (int i = 0; i < TABLE; i++) forget(thread->table[i].memory);
  dnnl.dnnl_stream_destroy(thread->stream);
  free(thread);
}

/* Returns the thread's state. Limits OpenMP to one thread: the library runs OpenMP loops, and a
 * thread of a team must not start more threads. */
static struct thread *this_thread(void) {
  static _Thread_local struct thread *known;
  if (known) return known;
  if (limit_threads) limit_threads(1);
  known = sli_calloc(1, sizeof *known);
  dnnl_status_t status = dnnl.dnnl_stream_create(&known->stream, engine, dnnl_stream_default_flags);
  SLI_CHECK(status == dnnl_success, "oneDNN cannot create a stream: status %d", status);
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
        dnnl.dnnl_memory_create(&memory[i], kernel->desc[i], engine, DNNL_MEMORY_NONE);
    SLI_CHECK(status == dnnl_success, "oneDNN cannot create a memory object: status %d", status);
  }
  thread->table[kernel->number % TABLE].number = kernel->number;
  return memory;
}

void sli_onednn_run(const sli_onednn *kernel, const void *a, const void *b, const float *bias,
                    void *c) {
  struct thread *thread = this_thread();
  known_description scratch = kernel->desc[SCRATCH];
  size_t scratch_bytes = scratch ? dnnl.dnnl_memory_desc_get_size(scratch) : 0;
  void *data[OPERANDS] = {[A] = (void *)a,
                          [B] = (void *)b,
                          [C] = c,
                          [BIAS] = (void *)bias,
                          [SCRATCH] = sli_room(SLI_ROOM_LIBRARY, scratch_bytes)};
  dnnl_memory_t *memory = memory_for(thread, kernel);
  dnnl_exec_arg_t args[OPERANDS];
  int n = 0;
  for (int i = 0; i < OPERANDS; i++) {
    if (!kernel->desc[i]) continue;
    dnnl.dnnl_memory_set_data_handle(memory[i], data[i]);
    args[n++] = (dnnl_exec_arg_t){argument_of[i], memory[i]};
  }
  dnnl_status_t status = dnnl.dnnl_primitive_execute(kernel->primitive, thread->stream, n, args);
  SLI_CHECK(status == dnnl_success, "oneDNN failed: status %d", status);
}

/* ---- primitives ----------------------------------------------------------------- */

struct sli_onednn_order {
  description description;
};

/* Describes a matrix rows x columns, stored row-major or (transposed) column-major. `row` is the
 * distance between stored rows. */
static dnnl_status_t onednn_describe(description *desc, dnnl_data_type_t type, int64_t rows,
                                     int64_t columns, bool transposed, int64_t row) {
  dnnl_dims_t dims = {rows, columns}, strides = {row, 1};
  if (transposed) strides[0] = 1, strides[1] = row;
  return describe_by_strides(desc, dims, type, strides);
}

/* Describes `columns` columns of B as the caller stores them. */
static dnnl_status_t describe_b(description *desc, dnnl_data_type_t type,
                                const sli_product_shape *s, int64_t columns) {
  return onednn_describe(desc, type, s->k, columns, s->b_transposed, s->b_transposed ? s->k : s->n);
}

/* Describes `rows` rows of A, as the caller stores them or turned. */
static dnnl_status_t describe_a(description *desc, dnnl_data_type_t type,
                                const sli_product_shape *s, int64_t rows) {
  if (!s->a_transposed) return onednn_describe(desc, type, rows, s->k, false, s->k);
  if (!sli_onednn_turned(s)) return onednn_describe(desc, type, rows, s->k, true, s->m);
  return onednn_describe(desc, type, rows, s->k, false,
                         s->bf16 ? sli_turned_row(s->k) : sli_onednn_turned_row(s->k));
}

/* Describes the operands. `packed`: order of a packed B; NULL if the library may choose. */
static dnnl_status_t describe_operands(description *desc, const sli_product_shape *s, int64_t rows,
                                       int64_t columns, const sli_onednn_order *packed) {
  dnnl_data_type_t type = s->bf16 ? dnnl_bf16 : dnnl_f32;
  dnnl_dims_t dims = {s->k, s->n};
  dnnl_status_t status = dnnl_success;
  if (packed) status = copy_description(&desc[B], known(&packed->description));
  else if (s->bf16) status = describe_for_library(&desc[B], dims, type);
  else status = describe_b(&desc[B], type, s, columns);
  if (!status) status = describe_a(&desc[A], type, s, rows);
  if (!status) status = onednn_describe(&desc[C], dnnl_f32, rows, columns, false, s->n);
  if (!status && s->bias)
    status = onednn_describe(&desc[BIAS], dnnl_f32, 1, columns, false, columns);
  return status;
}

static dnnl_status_t make_attributes(dnnl_primitive_attr_t *attr, bool add) {
  dnnl_status_t status = dnnl.dnnl_primitive_attr_create(attr);
  if (!status)
    status = dnnl.dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
  if (status || !add) return status;
  dnnl_post_ops_t then = NULL;
  status = dnnl.dnnl_post_ops_create(&then);
  if (!status) status = append_sum(then);
  if (!status) status = dnnl.dnnl_primitive_attr_set_post_ops(*attr, then);
  dnnl.dnnl_post_ops_destroy(then);
  return status;
}

/* Reads the layout of the operands from the primitive, which owns the descriptions. */
static void take_descriptions(sli_onednn *kernel) {
  const_dnnl_primitive_desc_t desc;
  dnnl.dnnl_primitive_get_primitive_desc(kernel->primitive, &desc);
  for (int i = 0; i < OPERANDS; i++) {
    known_description md =
        dnnl.dnnl_primitive_desc_query_md(desc, dnnl_query_exec_arg_md, argument_of[i]);
    kernel->desc[i] = is_there(md) ? md : NULL;
  }
}

/* Returns the bytes that the process has allocated. */
static size_t allocated(void) {
  struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

static atomic_size_t kept_bytes;

size_t sli_onednn_bytes(void) { return atomic_load_explicit(&kept_bytes, memory_order_relaxed); }

/* Creates the primitive of a description, and destroys the description. Counts the library's
 * allocations; the library returns an existing primitive for an equal description. */
static dnnl_status_t make_primitive(sli_onednn *kernel, dnnl_primitive_desc_t desc) {
  dnnl_primitive_t primitive = NULL;
  size_t before = allocated();
  dnnl_status_t status = dnnl.dnnl_primitive_create(&primitive, desc);
  size_t after = allocated();
  if (after > before) atomic_fetch_add_explicit(&kept_bytes, after - before, memory_order_relaxed);
  kernel->primitive = primitive;
  if (!status) take_descriptions(kernel);
  dnnl.dnnl_primitive_desc_destroy(desc);
  return status;
}

static dnnl_status_t make_product(sli_onednn *kernel, description *operands,
                                  dnnl_primitive_attr_t attr, bool bias) {
  dnnl_primitive_desc_t desc = NULL;
  dnnl_status_t status = describe_product(&desc, operands, bias, attr);
  return status ? status : make_primitive(kernel, desc);
}

static uint64_t next_number(void) {
  static atomic_uint_fast64_t last;
  return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

sl_status sli_onednn_create(sli_onednn *kernel, const sli_product_shape *shape, int64_t rows,
                            int64_t columns, bool add, const sli_onednn_order *packed) {
  dnnl_primitive_attr_t attr = NULL;
  description operands[OPERANDS] = {0};
  dnnl_status_t status = describe_operands(operands, shape, rows, columns, packed);
  if (!status) status = make_attributes(&attr, add);
  if (!status) status = make_product(kernel, operands, attr, shape->bias);
  if (attr) dnnl.dnnl_primitive_attr_destroy(attr);
  for (int i = 0; i < OPERANDS; i++) forget_description(&operands[i]);
  if (status)
    return sl_fail(SL_E_DEVICE, "oneDNN cannot multiply [%lld, %lld] by [%lld, %lld]: status %d",
                   (long long)rows, (long long)shape->k, (long long)shape->k, (long long)columns,
                   status);
  kernel->number = next_number();
  return SL_OK;
}

void sli_onednn_destroy(sli_onednn *kernel) {
  if (kernel->primitive) dnnl.dnnl_primitive_destroy(kernel->primitive);
  kernel->primitive = NULL;
}

/* ---- packing ---------------------------------------------------------------------- */

/* The library's argument numbers of a reorder's input and output equal those of A and C. */
_Static_assert(DNNL_ARG_FROM == DNNL_ARG_SRC && DNNL_ARG_TO == DNNL_ARG_DST,
               "a reorder's operands");

static dnnl_status_t make_reorder(sli_onednn *kernel, known_description from,
                                  known_description to) {
  dnnl_primitive_attr_t attr = NULL;
  dnnl_primitive_desc_t desc = NULL;
  dnnl_status_t status = make_attributes(&attr, false);
  if (!status)
    status = dnnl.dnnl_reorder_primitive_desc_create(&desc, from, engine, to, engine, attr);
  if (!status) status = make_primitive(kernel, desc);
  if (attr) dnnl.dnnl_primitive_attr_destroy(attr);
  return status;
}

sl_status sli_onednn_packs(const sli_product_shape *shape, const sli_onednn_order *order,
                           sli_onednn *kernel) {
  description plain = {0};
  kernel->number = next_number();
  dnnl_status_t status = describe_b(&plain, dnnl_f32, shape, shape->n);
  if (!status) status = make_reorder(kernel, known(&plain), known(&order->description));
  forget_description(&plain);
  if (!status) return SL_OK;
  return sl_fail(SL_E_DEVICE, "oneDNN cannot pack [%lld, %lld]: status %d", (long long)shape->k,
                 (long long)shape->n, status);
}

/* Queries the order for the plainest of the products, so that all of them agree. */
sl_status sli_onednn_order_create(const sli_product_shape *shape, int64_t rows,
                                  sli_onednn_order **order) {
  sli_product_shape plain = *shape;
  plain.bias = plain.add = false;
  sli_onednn kernel = {0};
  SLI_TRY(sli_onednn_create(&kernel, &plain, rows, shape->n, false, NULL));
  *order = sli_calloc(1, sizeof **order);
  dnnl_status_t status = copy_description(&(*order)->description, kernel.desc[B]);
  sli_onednn_destroy(&kernel);
  SLI_CHECK(status == dnnl_success, "oneDNN cannot copy a memory descriptor: status %d", status);
  return SL_OK;
}

void sli_onednn_order_destroy(sli_onednn_order *order) {
  if (!order) return;
  forget_description(&order->description);
  free(order);
}

size_t sli_onednn_order_bytes(const sli_onednn_order *order) {
  return dnnl.dnnl_memory_desc_get_size(known(&order->description));
}

int64_t sli_onednn_order_block(const sli_onednn_order *order, int64_t k) {
  blocking b;
  if (!read_blocking(known(&order->description), &b) || b.count != 3) return 0;
  if (b.indices[0] || b.indices[1] != 1 || b.indices[2]) return 0;
  int64_t block = b.blocks[1];
  bool ours = b.blocks[0] == 16 && b.blocks[2] == 2 && block % 16 == 0 &&
              b.strides[0] == 32 * block && b.strides[1] == sli_turned_row(k) * block;
  return ours ? block : 0;
}

sl_status sli_onednn_start(void) {
  if (!sli_onednn_loads()) return sl_fail(SL_E_DEVICE, "oneDNN cannot be loaded");
  this_thread();
  return SL_OK;
}

#else /* built without oneDNN's header */

bool sli_onednn_loads(void) { return false; }
const char *sli_onednn_name(void) { return ""; }
size_t sli_onednn_bytes(void) { return 0; }
const char *sli_onednn_bf16(void) { return NULL; }
sl_status sli_onednn_start(void) {
  return sl_fail(SL_E_DEVICE, "this build of Sluice has no oneDNN");
}
sl_status sli_onednn_create(sli_onednn *kernel, const sli_product_shape *shape, int64_t rows,
                            int64_t columns, bool add, const sli_onednn_order *packed) {
  (void)kernel, (void)shape, (void)rows, (void)columns, (void)add, (void)packed;
  return sli_onednn_start();
}
void sli_onednn_destroy(sli_onednn *kernel) { (void)kernel; }
sl_status sli_onednn_order_create(const sli_product_shape *shape, int64_t rows,
                                  sli_onednn_order **order) {
  (void)shape, (void)rows, (void)order;
  return sli_onednn_start();
}
void sli_onednn_order_destroy(sli_onednn_order *order) { (void)order; }
size_t sli_onednn_order_bytes(const sli_onednn_order *order) { return (void)order, 0; }
int64_t sli_onednn_order_block(const sli_onednn_order *order, int64_t k) {
  return (void)order, (void)k, 0;
}
sl_status sli_onednn_packs(const sli_product_shape *shape, const sli_onednn_order *order,
                           sli_onednn *kernel) {
  (void)shape, (void)order, (void)kernel;
  return sli_onednn_start();
}
void sli_onednn_run(const sli_onednn *kernel, const void *a, const void *b, const float *bias,
                    void *c) {
  (void)kernel, (void)a, (void)b, (void)bias, (void)c;
}

#endif

/* ---- shapes ---------------------------------------------------------------------- */

/* A transposed A is turned for bf16, and for f32 if B is one matrix along k and no bias is added,
 * because f32 products go along k in stretches. */
bool sli_onednn_turned(const sli_product_shape *s) {
  return s->a_transposed && (s->bf16 || (!s->b_transposed && !s->bias));
}

int64_t sli_onednn_turned_row(int64_t k) {
  enum { LINE = 16 }; /* floats per cache line */
  return ((k + LINE - 1) / LINE | 1) * LINE;
}
