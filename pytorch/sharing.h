/* SPDX-License-Identifier: Apache-2.0 */
/* Calls whose results share elements with an argument, and how a write into such a result changes
 * that argument. */
#ifndef SLUICE_PYTORCH_SHARING_H
#define SLUICE_PYTORCH_SHARING_H

#include "pytorch/program.h"

typedef enum sli_pt_sharing {
  SLI_PT_UNCERTAIN, /* results may share elements with any argument */
  SLI_PT_FRESH,     /* results have elements of their own */
  SLI_PT_VIEW       /* results show elements of the first argument */
} sli_pt_sharing;

sli_pt_sharing sli_pt_sharing_of(const sli_pt_node *n);
/* Makes the call that computes the new contents of a whole from the new contents of a view of it.
 * Sets the target and the arguments, and returns true; or false if that is not supported. */
bool sli_pt_write_through(sli_arena *arena, const sli_pt_value *view, sli_pt_value *whole,
                          sli_pt_value *contents, sli_pt_node *out);
/* Returns whether the call may write into its arguments in a way that is not known. */
bool sli_pt_writes_unseen(const sli_pt_node *n);
/* Returns true for calls that write into their first argument: "aten.copy_.default". */
bool sli_pt_writes_in_place(const sli_pt_node *n);
/* Returns the name of the call that computes the result of a call in place, or the same name if the
 * table has none. */
const char *sli_pt_out_of_place(sli_arena *arena, const char *target);

#endif
