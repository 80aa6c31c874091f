/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the version before, which stay for one version. SLUICE_NO_OLD_NAMES leaves them out. */
#ifndef SLUICE_RENAMED_H
#define SLUICE_RENAMED_H

/* Declares a field under its name and the one before. */
#ifdef SLUICE_NO_OLD_NAMES
#define SL_RENAMED(now, before) now;
#else
#define SL_RENAMED(now, before) union { now; before; };
#endif

#ifndef SLUICE_NO_OLD_NAMES

/* ---- operators, programs and plans ------------------------------------------------------- */

#define sl_rest sl_storage
#define SL_REST_F32 SL_STORAGE_F32
#define SL_REST_BF16 SL_STORAGE_BF16
#define SL_REST_Q8_0 SL_STORAGE_Q8_0
#define SL_REST_Q4_1 SL_STORAGE_Q4_1
#define SL_OVERS SL_IN_PLACE_OUTPUTS
#define SL_ROUTED SL_DISPATCHED

#endif
#endif
