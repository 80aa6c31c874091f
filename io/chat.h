/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: they turn messages of system, user and assistant into the text that a model
 * continues. A model brings its template as a Jinja program, which is evaluated; common
 * templates also have names. */
#ifndef SLUICE_IO_CHAT_H
#define SLUICE_IO_CHAT_H

#include "base/allowance.h"

typedef struct sli_chat sli_chat;

/* Find or parse a template. NULL, with the reason in sl_detail(): unknown name, or an unknown
 * feature in the model's template. */
const sli_chat *sli_chat_named(const char *name);
const sli_chat *sli_chat_of_template(const char *text);
void sli_chat_free(const sli_chat *chat);
const char *sli_chat_name(const sli_chat *chat);
/* Lists the names: "chatml, llama2, ..."; the caller's to free(). */
char *sli_chat_names(void);

/* Texts of the tokenizer's begin and end tokens; NULL: none. */
typedef struct sli_chat_marks {
  const char *begin, *end;
} sli_chat_marks;

typedef struct sli_chat_message {
  enum { SLI_CHAT_SYSTEM, SLI_CHAT_USER, SLI_CHAT_ASSISTANT } role;
  const char *text;
} sli_chat_message;

/* Renders messages up to where the assistant's answer begins; the caller frees the text. Special
 * tokens appear in it as text, and a tokenizer recognizes them; it must add no others around it.
 * SL_E_USAGE: the template rejects the messages, or fails on them. */
sl_status sli_chat_render(const sli_chat *chat, const sli_chat_marks *marks,
                          const sli_chat_message *messages, int count, char **out);
/* Renders within an allowance, from which the text stays taken. SL_E_MEMORY: it does not suffice.
 */
sl_status sli_chat_render_within(const sli_chat *chat, const sli_chat_marks *marks,
                                 const sli_chat_message *messages, int count,
                                 const sli_allowance *allowance, char **out);

/* Returns the text of the token that ends an answer: the one that the template puts after an
 * answer, or else the tokenizer's; NULL if neither has one. Lives as long as the chat. */
const char *sli_chat_end(const sli_chat *chat, const sli_chat_marks *marks);

#endif
