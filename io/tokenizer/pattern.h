/* SPDX-License-Identifier: Apache-2.0 */
/* Translation of regular expressions from Oniguruma, as in a tokenizer.json, to PCRE2. The two
 * interpret many of the same signs differently. Supported syntax is rewritten for PCRE2; the
 * rest is rejected by name. */
#ifndef SLUICE_IO_TOKENIZER_PATTERN_H
#define SLUICE_IO_TOKENIZER_PATTERN_H

#include <sluice/status.h>

/* A class of characters: its members in PCRE2's bracket syntax, and those of them that
 * Oniguruma's class lacks, or NULL. */
typedef struct property {
  const char *name, *has, *lacks;
} property;
/* All properties; a NULL name ends the table. Names of escapes begin with a backslash; "[\\w" is
 * \w in brackets. */
extern const property sli_properties[];

/* Translates a pattern; compile it with PCRE2_UTF alone; the caller's to free(). SL_E_INPUT
 * names the unsupported part and its place. */
sl_status sli_pattern_translate(const char *pattern, char **out);

#endif
