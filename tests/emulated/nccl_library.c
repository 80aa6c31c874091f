/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that comm/nccl/cuda/library.c finds in NCCL's library; none with
 * SLUICE_EMULATED_NCCL=off. */
#include <stdlib.h>

#include "comm/nccl/cuda/library.h"

sl_status sli_nccl_load(const sli_nccl_library **library) {
  static const sli_nccl_library all = {
#define X(name) .name = name,
      SLI_NCCL_FUNCTIONS(X)
#undef X
  };
  if (getenv("SLUICE_EMULATED_NCCL"))
    return sl_fail(SL_E_UNSUPPORTED, "libnccl.so.2 was not found");
  *library = &all;
  return SL_OK;
}
