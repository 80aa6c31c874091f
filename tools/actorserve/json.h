/* SPDX-License-Identifier: Apache-2.0 */
/* Parser of untrusted JSON. */
#ifndef SLUICE_TOOLS_ACTORSERVE_JSON_H
#define SLUICE_TOOLS_ACTORSERVE_JSON_H

#include <cjson/cJSON.h>
#include <stddef.h>

#include "base/allowance.h"

/* Parses one value with nothing after it, from zero-terminated text. The value lies in `memory`,
 * and is not to be deleted. SL_E_INPUT gives error and position: no UTF-8, no JSON, a text with a
 * zero in it, or more values than any request has. SL_E_MEMORY: the memory does not suffice. */
sl_status json_read(const char *text, size_t bytes, sli_bounded *memory, cJSON **out);

/* Returns the text of member i of an object that json_read() has parsed, and its length. */
const char *json_member(const char *object, int i, size_t *bytes);

#endif
