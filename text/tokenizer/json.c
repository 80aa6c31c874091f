/* SPDX-License-Identifier: Apache-2.0 */
/* Access to fields of a tokenizer.json. */
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer/tokenizer_inner.h"

const char *sli_json_text(const cJSON *item, const char *name) {
  const cJSON *text = cJSON_GetObjectItemCaseSensitive(item, name);
  return cJSON_IsString(text) ? text->valuestring : NULL;
}

bool sli_json_flag(const cJSON *item, const char *name, bool otherwise) {
  const cJSON *flag = cJSON_GetObjectItemCaseSensitive(item, name);
  return cJSON_IsBool(flag) ? cJSON_IsTrue(flag) : otherwise;
}

span sli_json_character(const cJSON *item, const char *name) {
  const char *text = sli_json_text(item, name);
  span all = {text, text ? strlen(text) : 0};
  bool good = false;
  bool one = all.bytes && sli_utf8_next(text, all.bytes, &good) == all.bytes;
  return one && good ? all : (span){NULL, 0};
}
