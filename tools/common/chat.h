/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: how a model expects conversations to be formatted. */
#ifndef SLUICE_TOOLS_COMMON_CHAT_H
#define SLUICE_TOOLS_COMMON_CHAT_H

#include "io/chat.h"

/* The model's chat template, the one for chats with tools if that is another, and the texts of its
 * special tokens; NULL: not specified. */
typedef struct chat_found {
  char *template, *for_tools;
  sli_chat_marks marks;
} chat_found;

/* Finds the chat settings: for a tokenizer.json in the files beside it, for a GGUF file in its
 * keys. */
sl_status chat_find(const char *tokenizer, chat_found *out);
void chat_found_fini(chat_found *f);
/* Chooses the template called `name`, or that of the file `name`; the model's own if `name` is
 * NULL. SL_E_USAGE: it is unknown, or there is none; the message names the tokenizer and its
 * templates. */
sl_status chat_choose(const chat_found *f, const char *tokenizer, const char *name,
                      const sli_chat **out);

#endif
