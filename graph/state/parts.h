/* Tensors in files, whole or in parts.
 *
 * What several devices have of one tensor is stored in parts, each under a name that says
 * which it is: the tensor's, the shape of the whole, and slices of it.
 *
 *     wte.weight[256,64][0:128,:]                     the first half of the rows
 *     c_attn.weight:m[64,192][:,0:32+64:96+128:160]   three ranges of the columns
 *     wte.weight[256,64][0:128,:][64:128,:]           half of that half
 *     c_fc.bias[256][flat 0:100]                      elements, in order
 *
 * A reader needs no part to be as it was written: it puts all together. */
#ifndef SLUICE_GRAPH_STATE_PARTS_H
#define SLUICE_GRAPH_STATE_PARTS_H

#include <stdbool.h>

#include <sluice/op.h>

#include "io/checkpoint.h"

/* SL_OK if a stored tensor, NULL if there is none, has this type's shape; `name` is what
 * was looked for in `path`. */
sl_status sli_stored_check(const char *path, const char *name, const sl_type *type,
                       const sli_stored_tensor *t);

/* The name of a part; the caller's to free(). */
char *sli_part_format(const char *name, const sl_shard *shard);
/* Reads what stands behind the tensor's name; false if that is not a part of such a whole. */
bool sli_part_parse(const char *text, const sl_type *whole, sl_shard *out);

/* Reads all of a tensor from a checkpoint, however it is stored there. SL_E_INPUT names
 * what is missing. */
sl_status sli_parts_assemble(const sli_checkpoint *checkpoint, const char *name, const sl_type *whole,
                         float *out);

/* Are all of these numbers neither infinite nor NaN? */
bool sli_all_finite(const void *values, int64_t count);

#endif
