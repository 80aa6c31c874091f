/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of OpenAI's form as chat templates want them. */
#ifndef SLUICE_IO_CHAT_MESSAGES_H
#define SLUICE_IO_CHAT_MESSAGES_H

#include "base/template/template.h"

/* Reads messages from JSON. Parts of a content are joined, a developer is the system, arguments of
 * tool calls that are JSON in a text become dicts, and members that say nothing are left out. */
sli_value sli_chat_messages(sli_values *v, const char *json, size_t bytes);
/* Reads one of them from a dict. */
sli_value sli_chat_message_value(sli_values *v, sli_value from);

#endif
