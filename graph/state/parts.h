/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in files, whole or in parts.
 *
 * If several devices hold parts of a tensor, the parts are stored separately. The name of a part
 * consists of the tensor's name, the shape of the whole, and the slices.
 *
 *     wte.weight[256,64][0:128,:]                     the first half of the rows
 *     c_attn.weight:m[64,192][:,0:32+64:96+128:160]   three ranges of the columns
 *     wte.weight[256,64][0:128,:][64:128,:]           half of that half
 *     c_fc.bias[256][flat 0:100]                      elements, in order
 *
 * A reader need not use the same parts: it assembles the whole tensor. */
#ifndef SLUICE_GRAPH_STATE_PARTS_H
#define SLUICE_GRAPH_STATE_PARTS_H

#include <stdbool.h>

#include <sluice/op.h>

#include "io/checkpoint.h"

/* Returns SL_OK if a stored tensor exists (not NULL) and has the type's shape; `name` is the name
 * that was searched in `path`. */
sl_status sli_stored_check(const char *path, const char *name, const sl_type *type,
                           const sli_stored_tensor *t);

/* Returns the name of a part; the caller frees it. */
char *sli_part_format(const char *name, const sl_shard *shard);
/* Parses the text after the tensor's name. Returns false if it does not describe a part of
 * `whole`. */
bool sli_part_parse(const char *text, const sl_type *whole, sl_shard *out);

/* Reads a whole tensor from a checkpoint that stores it whole or in parts. SL_E_INPUT: the error
 * names what is missing. */
sl_status sli_parts_assemble(const sli_checkpoint *checkpoint, const char *name,
                             const sl_type *whole, float *out);

/* True if no number is infinite or NaN. */
bool sli_all_finite(const void *values, int64_t count);

#endif
