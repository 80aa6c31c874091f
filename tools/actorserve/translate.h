/* SPDX-License-Identifier: Apache-2.0 */
/* Translation of bodies in other formats to those of /v1/chat/completions, field by field. */
#ifndef SLUICE_TOOLS_ACTORSERVE_TRANSLATE_H
#define SLUICE_TOOLS_ACTORSERVE_TRANSLATE_H

#include <cjson/cJSON.h>

#include <sluice/status.h>

#include "base/allowance.h"

typedef struct translation {
  cJSON *chat, *messages;
  sl_status status;
  const char *field; /* the field being read */
} translation;

typedef struct translated_field {
  const char *name;
  void (*read)(translation *t, const cJSON *item);
} translated_field;

const cJSON *translate_member(const cJSON *object, const char *name);
/* Returns a member that is a text, otherwise "". */
const char *translate_text(const cJSON *object, const char *name);
/* Records an error about the field; the first one counts. */
void translate_refuse(translation *t, const char *why);
/* Adds a copy of an item, unless it is NULL. */
void translate_copy(cJSON *to, const char *name, const cJSON *item);
/* Appends a message to the chat. */
cJSON *translate_message(translation *t, const char *role);

/* Readers of fields: the most tokens of an answer, and a field without an effect. */
void translate_most(translation *t, const cJSON *item);
void translate_ignore(translation *t, const cJSON *item);

/* Translates a body; the caller frees *out. Other fields than those are copied, and `needed`,
 * unless NULL, must be there. SL_E_USAGE names a field that is wrong or not supported; *param is
 * then its name, or NULL. */
sl_status translate_body(const char *body, size_t bytes, const translated_field *fields,
                         size_t count, const char *needed, const sli_allowance *allowance,
                         char **out, const char **param);

#endif
