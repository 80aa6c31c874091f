/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 decoding. */
#ifndef SLUICE_BASE_UTF8_H
#define SLUICE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Returns the length of the character at the beginning of a text of at least one byte. *good is
 * false if the bytes are malformed; the length is then the number of bytes to skip. */
size_t sli_utf8_next(const char *text, size_t bytes, bool *good);
/* Returns the length of the prefix that is valid UTF-8. */
size_t sli_utf8_good(const char *text, size_t bytes);
/* Returns the code point of the character at `at`, which must be valid UTF-8. */
int32_t sli_utf8_character(const char *at);
/* Prints the text with U+FFFD for each byte that is not UTF-8. */
void sli_utf8_print(FILE *out, const char *text, size_t bytes);

#endif
