/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates of models, and chats as training data: one JSON line each, as tokens of which some
 * are learned, by default those of the answers. */
#ifndef SLUICE_TEXT_CHATS_CHATS_H
#define SLUICE_TEXT_CHATS_CHATS_H

#include <stdbool.h>

#include "text/chat.h"
#include "text/tokenizer/tokenizer.h"

/* ---- templates ------------------------------------------------------------------------------- */

/* The model's chat template, its template for chats with tools if that is different, and the texts
 * of its special tokens; NULL if not specified. */
typedef struct sli_chat_found {
  char *template, *for_tools;
  sli_chat_marks marks;
} sli_chat_found;

/* Finds the chat settings: for a tokenizer.json in the files beside it, for a GGUF file in its
 * keys. */
sl_status sli_chat_find(const char *tokenizer, sli_chat_found *out);
void sli_chat_found_fini(sli_chat_found *f);
/* Chooses the template called `name`, or the template in the file `name`. NULL chooses the model's
 * template. SL_E_USAGE: the template is unknown, or the model has none; the message names the
 * tokenizer and its templates. */
sl_status sli_chat_choose(const sli_chat_found *f, const char *tokenizer, const char *name,
                          const sli_chat **out);

/* ---- chats as training data ------------------------------------------------------------------ */

typedef struct sli_chats sli_chats;

typedef struct sli_chats_options {
  const char
      *tokenizer; /* a tokenizer.json or a GGUF file, with the model's template in or beside it */
  const char *template; /* name of another template, or a file; NULL: the model's template */
  bool all;             /* all tokens are learned, not only those of answers */
  int64_t vocab;        /* every token must be less */
} sli_chats_options;

/* Opens tokenizer and template. SL_E_INPUT states the reason; SL_E_USAGE: a template is missing. */
sl_status sli_chats_open(const sli_chats_options *options, sli_chats **out);
void sli_chats_close(sli_chats *c);
/* Hashes everything that tokens depend on, except the tokenizer's file. */
uint64_t sli_chats_hash(const sli_chats *c);

enum { SLI_CHATS_LEARNED = INT32_MIN }; /* set in a token that is learned */

/* Appends all chats of a text: for each the number of its tokens, then the tokens. Lines are
 *     {"messages": [{"role": ..., "content": ...}, ...], "tools": [...]}
 *     {"prompt": ..., "completion": ...}, both texts or both lists of messages
 *     {"conversations": [{"from": "human", "value": ...}, ...]}
 * and empty lines are skipped. A message with "weight": 0, "train": false and the like is not
 * learned; keys that neither the reader nor the template knows are refused. SL_E_INPUT names the
 * file, the line, and the reason. */
sl_status sli_chats_encode(sli_chats *c, const char *path, const char *text, size_t bytes,
                           sli_token_row *out);
/* Appends the tokens of a preference to messages, a line {"prompt", "chosen", "rejected"}: prompt
 * and answer as the template renders them. `answer` is "chosen" or "rejected". *prompt is the
 * number of tokens before the answer. */
sl_status sli_chats_preference(sli_chats *c, const char *place, const char *text,
                               const char *answer, sli_token_row *out, size_t *prompt);

#endif
