/* SPDX-License-Identifier: Apache-2.0 */
/* Writing of JSON strings. */
#ifndef SLUICE_BASE_JSON_TEXT_H
#define SLUICE_BASE_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>

typedef void sli_json_put(void *to, const char *text, size_t bytes);

/* Writes UTF-8 as a JSON string, with its quotes. Escapes control characters, including zero bytes;
 * with `ascii`, all characters beyond ASCII as well. */
void sli_json_string(const char *text, size_t bytes, bool ascii, sli_json_put *put, void *to);

/* Returns a printed JSON text, with U+FFFD for each byte that is not UTF-8: names of files have any
 * bytes, JSON has not. Takes the text, which may be NULL; the caller frees the result. */
char *sli_json_mend(char *text);

#endif
