/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of prompts with frames that models do not call. */
#ifndef SLUICE_OPS_SPLICE_H
#define SLUICE_OPS_SPLICE_H

#include <sluice/frames.h>

/* splice_served(x, [rows], -, batch) -> x with rows in the places that the batch names; rows
 * absent: those of the batch. */
extern const sl_op sl_op_splice_served;

/* span(x) -> record [attrs.dims]: the rows of a step's prompts, of which a tick adds those of its
 * prompt. Before its graph has passes of the encoder (graph/passes/spans.c) its inputs are the
 * encoder's parameters, and it is not called. */
extern const sl_op sl_op_span;

#endif
