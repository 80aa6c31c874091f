/* Regular expressions of others' files, as Python reads them. */
#ifndef SLUICE_IO_REGEX_H
#define SLUICE_IO_REGEX_H

#include <stdbool.h>

#include "base/base.h"

/* Is all of the text what the expression says? SL_E_INPUT names `where` and the expression if it is none, has parts
 * that are read otherwise here, or the matcher gives up. */
sl_status sli_regex_is(const char *where, const char *expression, const char *text, bool *out);

#endif
