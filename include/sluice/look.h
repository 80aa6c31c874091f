/* SPDX-License-Identifier: Apache-2.0 */
/* The former name of run_status.h. It works for one version. */
#ifndef SLUICE_LOOK_H
#define SLUICE_LOOK_H
#include <sluice/run_status.h>
#endif
