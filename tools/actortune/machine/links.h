/* SPDX-License-Identifier: Apache-2.0 */
/* Durations of messages between processes of this host. */
#ifndef SLUICE_TOOLS_ACTORTUNE_MACHINE_LINKS_H
#define SLUICE_TOOLS_ACTORTUNE_MACHINE_LINKS_H

#include <sluice/sluice.h>

enum { LINK_SIZES = 4 };
extern const double link_sizes[LINK_SIZES]; /* bytes */

/* Measures the data plane as used by `-n 2`: seconds of a message of each size, idle and with
 * `devices` cores busy. The process must not have other threads meanwhile. */
sl_status links_measure(int devices, double seconds[LINK_SIZES][2]);

#endif
