/* SPDX-License-Identifier: Apache-2.0 */
/* Ops for prompts with frames that models do not call directly. */
#ifndef SLUICE_OPS_SPLICE_H
#define SLUICE_OPS_SPLICE_H

#include <sluice/frames.h>

/* splice_served(x, [rows], -, batch) -> x with rows in the places that the batch names. If rows is
 * absent, the batch supplies them. */
extern const sl_op sl_op_splice_served;

/* span(x) -> record [attrs.shape.dims]: the encoder rows of all prompts of a step; each tick adds
 * those of its prompt. Until graph/passes/spans.c gives its graph the encoder passes, its inputs
 * are the encoder's parameters, and it is not called. */
extern const sl_op sl_op_span;

#endif
