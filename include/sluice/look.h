/* SPDX-License-Identifier: Apache-2.0 */
/* Former name of run_status.h, kept for one version. */
#ifndef SLUICE_LOOK_H
#define SLUICE_LOOK_H
#include <sluice/run_status.h>
#endif
