/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN primitives for matrix products, in versions 2 and 3 of the library. A call multiplies on
 * the calling thread. The library is loaded when it is first needed. Without it, or in a build
 * without its headers, Sluice's kernels multiply in f32, and bf16 needs tiles. */
#ifndef SLUICE_KERNELS_CPU_ONEDNN_H
#define SLUICE_KERNELS_CPU_ONEDNN_H

#include "kernels/cpu/product.h"

/* Operand numbers. */
enum {
  SLI_ONEDNN_A,
  SLI_ONEDNN_B,
  SLI_ONEDNN_C,
  SLI_ONEDNN_BIAS,
  SLI_ONEDNN_SCRATCH,
  SLI_ONEDNN_OPERANDS
};

/* Order in memory of a packed B. */
typedef struct sli_onednn_order sli_onednn_order;

/* A primitive: a product of some rows, which overwrites C or adds to it; or a packing, from A to
 * C. */
typedef struct sli_onednn {
  uint64_t number; /* unique in the process; 0: none */
  void *primitive;
  /* owned by the primitive; NULL if the operand is absent */
  const void *desc[SLI_ONEDNN_OPERANDS];
} sli_onednn;

/* Loads the library. Returns false, with a note in the log, if it is missing. Callable from any
 * thread. */
bool sli_onednn_loads(void);
/* Prepares the calling thread. Callable from any thread; must precede all calls below. */
sl_status sli_onednn_start(void);
/* Returns "oneDNN 2.6.0". */
const char *sli_onednn_name(void);
/* Returns the bytes that the library has allocated for primitives. Version 3 keeps about 120 kB for
 * each. */
size_t sli_onednn_bytes(void);
/* Returns "amx-bf16", "avx512-bf16", or "avx512" if bf16 is emulated; NULL if the library has no
 * bf16 here. The library has checked the processor, the system's permission and the user's limit
 * (ONEDNN_MAX_CPU_ISA). */
const char *sli_onednn_bf16(void);

/* Returns true if a transposed A must be turned before the kernels of this shape can read it. */
bool sli_onednn_turned(const sli_product_shape *shape);
/* Returns the row stride, in numbers, of turned f32 rows of `k`. The stride is an odd number of
 * cache lines, or many rows would map to few cache sets. */
int64_t sli_onednn_turned_row(int64_t k);

/* Creates the product of `rows` rows of this shape, with all columns or, in f32, some. `packed`:
 * order of a packed B; NULL if the library may choose. */
sl_status sli_onednn_create(sli_onednn *kernel, const sli_product_shape *shape, int64_t rows,
                            int64_t columns, bool add, const sli_onednn_order *packed);
void sli_onednn_destroy(sli_onednn *kernel);

/* Sets *order to the order that the library wants for B in products of this shape and height. */
sl_status sli_onednn_order_create(const sli_product_shape *shape, int64_t rows,
                                  sli_onednn_order **order);
void sli_onednn_order_destroy(sli_onednn_order *order);
size_t sli_onednn_order_bytes(const sli_onednn_order *order);
/* Returns the columns per block if the order is that of pack_bf16 (chunk.h), otherwise 0. */
int64_t sli_onednn_order_block(const sli_onednn_order *order, int64_t k);

/* Creates the packing of an f32 B into this order. */
sl_status sli_onednn_packs(const sli_product_shape *shape, const sli_onednn_order *order,
                           sli_onednn *kernel);

/* Runs a primitive. Several threads may call it concurrently. Operands that the primitive lacks may
 * be NULL. */
void sli_onednn_run(const sli_onednn *kernel, const void *a, const void *b, const float *bias,
                    void *c);

#endif
