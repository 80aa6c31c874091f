/* Patterns of a tokenizer.json are written for Oniguruma, which reads many of the same signs as PCRE2
 * does in another way. What is understood is said anew for PCRE2; the rest is refused by name. */
#ifndef SLUICE_IO_TOKENIZER_PATTERN_H
#define SLUICE_IO_TOKENIZER_PATTERN_H

#include <sluice/status.h>

/* A class of characters: what stands between brackets for PCRE2, and which of that it lacks, or NULL. */
typedef struct property {
  const char *name, *has, *lacks;
} property;
/* NULL for a name behind the last. Names of escapes begin with a backslash; "[\\w" is \w in brackets. */
extern const property sli_properties[];

/* The pattern for PCRE2, to be compiled with PCRE2_UTF alone; the caller's to free(). SL_E_INPUT names
 * the part that is not understood, and where it stands. */
sl_status sli_pattern_translate(const char *pattern, char **out);

#endif
