/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the product library on CPUs, which no plan accounts for, and the choice of products. */
#ifndef SLUICE_KERNELS_LIBRARY_H
#define SLUICE_KERNELS_LIBRARY_H

#include <stddef.h>

/* Returns the bytes that the library keeps for products prepared so far. */
size_t sli_library_bytes(void);

/* Returns why f32 products on this machine's CPU are computed as sl_cpu_products says. */
const char *sli_products_why(void);

#endif
