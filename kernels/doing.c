/* SPDX-License-Identifier: Apache-2.0 */
/* Storage of the record of the call that a thread runs. */
#include "kernels/doing.h"

__thread const sli_doing *sli_doing_now;
