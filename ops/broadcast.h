/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures of ops whose inputs broadcast. */
#ifndef SLUICE_OPS_BROADCAST_H
#define SLUICE_OPS_BROADCAST_H

#include <sluice/op.h>

/* Splits along each dim of the output. Inputs with the full dim are split; broadcast inputs are
 * replicated. Returns the number of signatures. */
int sli_broadcast_signatures(int nin, const sl_type *in, sl_signature *out);

#endif
