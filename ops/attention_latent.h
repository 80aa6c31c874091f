/* SPDX-License-Identifier: Apache-2.0 */
/* Latent attention before its graph is served, and its limits. */
#ifndef SLUICE_OPS_ATTENTION_LATENT_H
#define SLUICE_OPS_ATTENTION_LATENT_H

#include <sluice/op.h>

/* Placeholder for latent attention until its graph is served; it has no kernel. Its inputs are
 * those of the served op without the batch. */
extern const sl_op sl_op_attention_latent;

/* Maximum numbers kept per position. */
enum { SLI_MAX_LATENT = 1024 };

#endif
