/* SPDX-License-Identifier: Apache-2.0 */
/* Storage for the record of the call that a thread runs. */
#include "kernels/current_call.h"

__thread const sli_current_call *sli_thread_call;
