/* How many files, sockets and the like this process may have open (ulimit -n). */
#ifndef SLUICE_BASE_DESCRIPTORS_H
#define SLUICE_BASE_DESCRIPTORS_H

#include "base/base.h"

/* Makes room for `need` more descriptors, and, where the system allows it, for `wish` on top:
 * raises the soft limit as far as that takes. *got is how much of the wish there is room for.
 * SL_E_UNSUPPORTED names the limit; it begins with `what`, which needs them. */
sl_status sli_descriptors_reserve(const char *what, size_t need, size_t wish, size_t *got);

#endif
