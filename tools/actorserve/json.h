/* JSON of strangers. */
#ifndef SLUICE_TOOLS_ACTORSERVE_JSON_H
#define SLUICE_TOOLS_ACTORSERVE_JSON_H

#include <cjson/cJSON.h>
#include <stddef.h>

#include <sluice/status.h>

/* One value, and nothing behind it; the text has a zero at its end. SL_E_INPUT says what is wrong, and
 * about where: no UTF-8, no JSON, a text with a zero in it, or more values than any request has. */
sl_status json_read(const char *text, size_t bytes, cJSON **out);

/* Bytes that are UTF-8 from the begin on. */
size_t utf8_good(const char *text, size_t bytes);

#endif
