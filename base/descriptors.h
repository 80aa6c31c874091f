/* SPDX-License-Identifier: Apache-2.0 */
/* The limit on open files and sockets of this process (ulimit -n). */
#ifndef SLUICE_BASE_DESCRIPTORS_H
#define SLUICE_BASE_DESCRIPTORS_H

#include "base/base.h"

/* Makes room for `need` more descriptors, and for another `wish` if the system allows it: raises
 * the soft limit as far as needed. *got is the part of `wish` that fits. The SL_E_UNSUPPORTED error
 * names the limit; its message begins with `what`, which needs the descriptors. */
sl_status sli_descriptors_reserve(const char *what, size_t need, size_t wish, size_t *got);

#endif
