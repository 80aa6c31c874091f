/* SPDX-License-Identifier: Apache-2.0 */
/* Parser of untrusted JSON. */
#ifndef SLUICE_TOOLS_ACTORSERVE_JSON_H
#define SLUICE_TOOLS_ACTORSERVE_JSON_H

#include <cjson/cJSON.h>
#include <stddef.h>

#include "base/allowance.h"

/* Parses one value with nothing after it, from zero-terminated text. The value is allocated in
 * `memory` and must not be deleted. SL_E_INPUT reports error and position: invalid UTF-8, invalid
 * JSON, a zero in a string, or more values than any request has. SL_E_MEMORY: the memory does not
 * suffice. */
sl_status json_read(const char *text, size_t bytes, sli_bounded *memory, cJSON **out);

/* Returns the text of member i of an object parsed by json_read(), and its length. */
const char *json_member(const char *object, int i, size_t *bytes);

#endif
