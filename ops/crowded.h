/* SPDX-License-Identifier: Apache-2.0 */
/* Error of own_ids when a device receives more rows for its experts than it has room for, for CPU
 * and CUDA. */
#ifndef SLUICE_OPS_CROWDED_H
#define SLUICE_OPS_CROWDED_H

#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Fails with a message that `rows` rows are more than the own_ids call has room for. Uses only the
 * call's types and attrs. */
sl_status sli_own_ids_crowded(const sl_call *call, int64_t rows);

#ifdef __cplusplus
}
#endif
#endif
