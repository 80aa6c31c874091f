/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/translate.h"

#include <string.h>

#include "base/base.h"
#include "tools/actorserve/json.h"

/* ---- parts ----------------------------------------------------------------------------------- */

const cJSON *translate_member(const cJSON *object, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(object, name);
}

const char *translate_text(const cJSON *object, const char *name) {
  const cJSON *item = translate_member(object, name);
  return cJSON_IsString(item) ? item->valuestring : "";
}

void translate_refuse(translation *t, const char *why) {
  if (!t->status) t->status = sl_fail(SL_E_USAGE, "%s %s", t->field, why);
}

void translate_copy(cJSON *to, const char *name, const cJSON *item) {
  if (item) cJSON_AddItemToObject(to, name, cJSON_Duplicate(item, true));
}

cJSON *translate_message(translation *t, const char *role) {
  cJSON *message = cJSON_CreateObject();
  cJSON_AddStringToObject(message, "role", role);
  cJSON_AddItemToArray(t->messages, message);
  return message;
}

/* ---- fields ---------------------------------------------------------------------------------- */

void translate_most(translation *t, const cJSON *item) {
  translate_copy(t->chat, "max_completion_tokens", item);
}

void translate_ignore(translation *t, const cJSON *item) { (void)t, (void)item; }

/* Translates a field, or copies it for the parser of chat bodies. */
static void read_field(translation *t, const translated_field *fields, size_t count,
                       const cJSON *item) {
  if (cJSON_IsNull(item)) return;
  for (size_t i = 0; i < count; i++)
    if (!strcmp(item->string, fields[i].name)) {
      if (!t->status) t->field = fields[i].name;
      fields[i].read(t, item);
      return;
    }
  translate_copy(t->chat, item->string, item);
}

sl_status translate_body(const char *body, size_t bytes, const translated_field *fields,
                         size_t count, const char *needed, const sli_allowance *allowance,
                         char **out, const char **param) {
  sli_bounded memory = {.allowance = allowance};
  cJSON *root;
  const cJSON *item;
  sl_status status = json_read(body, bytes, &memory, &root);
  if (!status && !cJSON_IsObject(root)) status = sl_fail(SL_E_INPUT, "the body is not an object");
  translation t = {.chat = cJSON_CreateObject(), .messages = cJSON_CreateArray()};
  if (!status) cJSON_ArrayForEach(item, root) read_field(&t, fields, count, item);
  if (!status) status = t.status;
  if (!status && needed && !translate_member(root, needed)) {
    t.field = needed;
    status = sl_fail(SL_E_USAGE, "%s is missing", needed);
  }
  cJSON_AddItemToObject(t.chat, "messages", t.messages);
  if (!status) *out = cJSON_PrintUnformatted(t.chat);
  *param = t.field;
  cJSON_Delete(t.chat);
  sli_bounded_fini(&memory);
  return status;
}
