/* SPDX-License-Identifier: Apache-2.0 */
/* The limit on open files and sockets of this process (ulimit -n). */
#ifndef SLUICE_BASE_DESCRIPTORS_H
#define SLUICE_BASE_DESCRIPTORS_H

#include "base/base.h"

/* Makes room for `need` more descriptors, and, where the system allows it, for `wish` more:
 * raises the soft limit as far as needed. *got is the part of the wish that fits.
 * SL_E_UNSUPPORTED names the limit; the message begins with `what`, which needs them. */
sl_status sli_descriptors_reserve(const char *what, size_t need, size_t wish, size_t *got);

#endif
