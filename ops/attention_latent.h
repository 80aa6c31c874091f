/* SPDX-License-Identifier: Apache-2.0 */
/* Latent attention before its graph is served, and its limits. */
#ifndef SLUICE_OPS_ATTENTION_LATENT_H
#define SLUICE_OPS_ATTENTION_LATENT_H

#include <sluice/op.h>

/* Placeholders for latent attention, and for its choice of tokens, until their graph is served;
 * they have no kernels. Their inputs are those of the served ops without the batch. */
extern const sl_op sl_op_attention_latent, sl_op_choose_tokens;

/* Maximum numbers kept per position. */
enum { SLI_MAX_LATENT = 1024 };

#endif
