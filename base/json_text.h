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

#endif
