/* SPDX-License-Identifier: Apache-2.0 */
/* Table rows of the device kinds, each in a file with its functions. */
#ifndef SLUICE_GRAPH_DEVICES_KINDS_H
#define SLUICE_GRAPH_DEVICES_KINDS_H

#include "graph/devices/devices.h"

extern const sli_kind sli_kind_cpu, sli_kind_cuda, sli_kind_timed, sli_kind_null;

enum { SLI_MOST_DEVICES = 1 << 20 }; /* limit of devices, threads and numbers in a SPEC */

#endif
