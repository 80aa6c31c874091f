/* SPDX-License-Identifier: Apache-2.0 */
/* The op of tables on disk: it runs on the disk's queue in the place of embedding_served. */
#ifndef SLUICE_OPS_TABLE_LOADS_H
#define SLUICE_OPS_TABLE_LOADS_H

#include <sluice/op.h>

/* load_rows(ids, table, batch) -> the rows of the tick's ids. attrs.weight.width: the table's
 * width; attrs.user: an sl_serving. */
extern const sl_op sl_op_load_rows;

#endif
