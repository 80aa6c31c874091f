/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of the ops of spiking layers. */
#ifndef SLUICE_OPS_SPIKES_H
#define SLUICE_OPS_SPIKES_H

/* Bounds of a row's threshold, the divisor of mean|x| in it, and the number of counts per row. */
#define SLI_SPIKE_LEAST 1e-5f
#define SLI_SPIKE_MOST 1e4f
#define SLI_SPIKE_K 3.0f
enum { SLI_SPIKE_COUNTS = 3 };

/* Numbers per group that shares a scale, and the largest integer. */
enum { SLI_INT8_GROUP = 128, SLI_INT8_MOST = 127 };

#endif
