/* SPDX-License-Identifier: Apache-2.0 */
/* Strings of JSON that we write. */
#ifndef SLUICE_BASE_JSON_TEXT_H
#define SLUICE_BASE_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>

typedef void sli_json_put(void *to, const char *text, size_t bytes);

/* Writes UTF-8 as a JSON string, with its quotes. Control characters are escaped, zero bytes among
 * them; with `ascii` all characters beyond ASCII as well. */
void sli_json_string(const char *text, size_t bytes, bool ascii, sli_json_put *put, void *to);

#endif
