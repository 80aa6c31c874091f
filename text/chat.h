/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates turn messages of system, user and assistant into the text that a model continues.
 * A model comes with its template as a Jinja program, which is evaluated. Common templates also
 * have names. */
#ifndef SLUICE_TEXT_CHAT_H
#define SLUICE_TEXT_CHAT_H

#include "base/allowance.h"
#include "text/spans.h"
#include "text/template/template.h"

typedef struct sli_chat sli_chat;

/* Find or parse a template. Return NULL, with the reason in sl_detail(), if the name is unknown or
 * the model's template uses an unknown feature. for_tools is the template for chats with tools;
 * NULL if it is the same. */
const sli_chat *sli_chat_named(const char *name);
const sli_chat *sli_chat_of_template(const char *text, const char *for_tools);
void sli_chat_free(const sli_chat *chat);
const char *sli_chat_name(const sli_chat *chat);
/* Returns the source of the template, or if there is a separate template for chats with tools, of
 * that one. */
const char *sli_chat_text(const sli_chat *chat);
/* Hashes the source texts of the templates. */
uint64_t sli_chat_hash(const sli_chat *chat);
/* Returns the list of names, "chatml, llama2, ..."; the caller frees it. */
char *sli_chat_names(void);

/* Texts of the tokenizer's special tokens; NULL if there is none. Templates see them as bos_token,
 * eos_token, unk_token, pad_token, sep_token, cls_token and mask_token. */
typedef struct sli_chat_marks {
  const char *begin, *end, *unknown, *pad, *separator, *classifier, *mask;
} sli_chat_marks;

typedef struct sli_chat_message {
  enum { SLI_CHAT_SYSTEM, SLI_CHAT_USER, SLI_CHAT_ASSISTANT } role;
  const char *text;
} sli_chat_message;

/* Renders messages up to where the assistant's answer begins; the caller frees the text. Special
 * tokens appear in it as text, which a tokenizer recognizes; it must not add others around it.
 * SL_E_USAGE: the template rejects the messages, or fails on them. */
sl_status sli_chat_render(const sli_chat *chat, const sli_chat_marks *marks,
                          const sli_chat_message *messages, int count, char **out);

/* A chat in OpenAI's format, as JSON texts that need not end with a zero; NULL if not given. */
typedef struct sli_chat_json {
  const char *messages, *tools, *documents, *variables;
  size_t messages_bytes, tools_bytes, documents_bytes, variables_bytes;
  const char *effort; /* the variable reasoning_effort, as plain text */
} sli_chat_json;

/* Renders within an allowance (NULL: unlimited), which the text remains charged to. `variables` are
 * additional ones for the template. SL_E_USAGE: as above. SL_E_MEMORY: the allowance does not
 * suffice. */
sl_status sli_chat_render_json(const sli_chat *chat, const sli_chat_marks *marks,
                               const sli_chat_json *in, const sli_allowance *allowance, char **out);

/* Messages as values, so that several prefixes of a chat can be rendered. `tools` and `variables`
 * may be none. */
typedef struct sli_chat_values {
  sli_value messages, tools, variables;
} sli_chat_values;

/* Renders a complete chat if `answered`, otherwise up to where the next answer begins. Parts that
 * the template marks as answers are added to `answers` (may be NULL). */
sl_status sli_chat_render_values(const sli_chat *chat, const sli_chat_marks *marks, sli_values *v,
                                 const sli_chat_values *in, bool answered, sli_text_spans *answers,
                                 char **out);
/* Returns whether the template marks answers, in chats with or without tools. */
bool sli_chat_marks_answers(const sli_chat *chat, bool tools);

/* Returns the text of the token that ends an answer: the one that the template puts after an
 * answer, otherwise the tokenizer's end token. Returns NULL if neither has one. Valid as long as
 * the chat. */
const char *sli_chat_end(const sli_chat *chat, const sli_chat_marks *marks);

#endif
