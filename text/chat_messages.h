/* SPDX-License-Identifier: Apache-2.0 */
/* Messages in OpenAI's format, converted to what chat templates expect. */
#ifndef SLUICE_TEXT_CHAT_MESSAGES_H
#define SLUICE_TEXT_CHAT_MESSAGES_H

#include "text/template/template.h"

/* Reads messages from JSON. Parts of a content are joined, and the role developer becomes system.
 * Arguments of tool calls that are JSON in a string become dicts, and members without information
 * are left out. */
sli_value sli_chat_messages(sli_values *v, const char *json, size_t bytes);
/* Reads a single message from a dict. */
sli_value sli_chat_message_value(sli_values *v, sli_value from);

#endif
