/* SPDX-License-Identifier: Apache-2.0 */
/* Integers and masks: i32 tensors with exact functions. */
#ifndef SLUICE_PYTORCH_WHOLE_H
#define SLUICE_PYTORCH_WHOLE_H

#include "ops/functions.h"
#include "pytorch/import.h"

/* Emits a call whose arguments are integers or masks. Returns false for other calls. */
bool sli_pt_emit_whole(sli_import *m, const sli_pt_node *n);
/* Finds both arguments as i32, if neither has a fraction. */
bool sli_pt_integers(sli_import *m, const sli_pt_node *n, const char *left, const char *right,
                     sl_tensor *out[2]);
/* Wraps integers around as a narrow type does. */
sl_tensor *sli_pt_wrapped(sli_import *m, sl_tensor *t, sli_pt_dtype dtype);
/* Adds the length of a dim to positions counted from its end. */
sl_tensor *sli_pt_from_end(sli_import *m, sl_tensor *t, int64_t length);
/* Returns 1 where a tensor of this type is not 0, else 0. */
sl_tensor *sli_pt_truth(sli_import *m, sl_tensor *t, sli_pt_dtype dtype);

#endif
