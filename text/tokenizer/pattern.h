/* SPDX-License-Identifier: Apache-2.0 */
/* Translates regular expressions from Oniguruma, as used in a tokenizer.json, to PCRE2. The two
 * interpret many of the same symbols differently. Supported syntax is rewritten for PCRE2; any
 * other is rejected with an error that names it. */
#ifndef SLUICE_TEXT_TOKENIZER_PATTERN_H
#define SLUICE_TEXT_TOKENIZER_PATTERN_H

#include <sluice/status.h>

/* A character class: its members in PCRE2's bracket syntax, and those missing from Oniguruma's
 * class, or NULL. */
typedef struct property {
  const char *name, *has, *lacks;
} property;
/* All properties; a NULL name ends the table. Names of escapes begin with a backslash; "[\\w" is
 * \w in brackets. */
extern const property sli_properties[];

/* Translates a pattern. Compile the result with PCRE2_UTF only; the caller frees it. SL_E_INPUT
 * names the unsupported part and its position. */
sl_status sli_pattern_translate(const char *pattern, char **out);

#endif
