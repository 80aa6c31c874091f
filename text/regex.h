/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions in foreign files, with Python's semantics. */
#ifndef SLUICE_TEXT_REGEX_H
#define SLUICE_TEXT_REGEX_H

#include <stdbool.h>

#include "base/base.h"

/* Tests whether the expression matches the whole text. SL_E_INPUT names `where` and the
 * expression if it is malformed, uses syntax that PCRE2 interprets differently, or exceeds the
 * matcher's limits. */
sl_status sli_regex_is(const char *where, const char *expression, const char *text, bool *out);

#endif
