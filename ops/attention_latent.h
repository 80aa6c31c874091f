/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over latents before its graph is served, and its limits. */
#ifndef SLUICE_OPS_ATTENTION_LATENT_H
#define SLUICE_OPS_ATTENTION_LATENT_H

#include <sluice/op.h>

/* Stands for latent attention until its graph is served: it has no kernel. The inputs are those of
 * attention_latent_served but the batch. */
extern const sl_op sl_op_attention_latent;

/* Most numbers that a position keeps. */
enum { SLI_MAX_LATENT = 1024 };

#endif
