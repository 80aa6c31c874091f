/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the library of products on CPUs, which no plan contains. */
#ifndef SLUICE_KERNELS_LIBRARY_H
#define SLUICE_KERNELS_LIBRARY_H

#include <stddef.h>

/* Returns the bytes that the library keeps for products prepared so far. */
size_t sli_library_bytes(void);

#endif
