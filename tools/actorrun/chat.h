/* SPDX-License-Identifier: Apache-2.0 */
/* --chat: messages to a model, formatted by its chat template. */
#ifndef SLUICE_TOOLS_ACTORRUN_CHAT_H
#define SLUICE_TOOLS_ACTORRUN_CHAT_H

#include "text/chats/chats.h"
#include "tools/cli/cli.h"

/* Checks that --chat and related options are compatible with all other options. SL_E_USAGE states
 * the conflict. */
sl_status chat_check(const settings *s);

/* Returns the text for the model to continue, and the text of the token that ends its answer, or
 * NULL. The caller frees both. The template is that of --chat-template, or the tokenizer's.
 * SL_E_USAGE names what is unknown. */
sl_status chat_prompt(const settings *s, char **prompt, char **end);

#endif
