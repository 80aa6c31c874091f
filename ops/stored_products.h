/* SPDX-License-Identifier: Apache-2.0 */
/* Storage formats that served products read in another format with the same values. */
#ifndef SLUICE_OPS_STORED_PRODUCTS_H
#define SLUICE_OPS_STORED_PRODUCTS_H

#include <sluice/batch.h>

/* Returns the format in which served products read weights that a file has in `storage`: MXFP4 as
 * Q8_0, whose numbers are doubled and whose scales are halved. */
sl_storage sli_storage_for_products(sl_storage storage);

#endif
