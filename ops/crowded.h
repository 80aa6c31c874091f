/* What rows that go to experts' devices say of themselves, for CPU and CUDA. */
#ifndef SLUICE_OPS_CROWDED_H
#define SLUICE_OPS_CROWDED_H

#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Fails, for a call of own_ids to which so many rows come, which are more than it has room for. From
 * types and attrs. */
sl_status sli_own_ids_crowded(const sl_call *call, int64_t rows);

#ifdef __cplusplus
}
#endif
#endif
