/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions shared by the files of chats/. */
#ifndef SLUICE_TEXT_CHATS_CHATS_INNER_H
#define SLUICE_TEXT_CHATS_CHATS_INNER_H

#include "text/chats/chats.h"

struct sli_chats {
  sli_chats_options options;
  sli_tokenizer *tokenizer;
  sli_chat_found found;
  const sli_chat *chat; /* NULL: the model has none, and only plain texts can be read */
  char *why;            /* the reason for that */
};

/* ---- lines (line.c) -------------------------------------------------------------------------- */

/* A line, and its location for messages: "chats.jsonl:7". */
typedef struct chats_line {
  const char *place, *text;
  size_t bytes;
  const char
      *answer; /* key of the answer beside "prompt", "chosen" or "rejected"; NULL: any form */
  const char *template; /* source of the chat template; NULL if there is none */
  bool all;             /* all tokens are learned */
} chats_line;

/* Values of a line. */
typedef struct chats_values {
  sli_chat_values values;
  sli_value learned; /* for each message whether it is learned */
  size_t first;      /* messages before this one are a prompt, from which nothing is learned */
  bool plain;        /* two texts instead of messages */
  sli_value prompt, completion;
} chats_values;

/* Makes room for the values of a line, which each rendering allocates anew. */
sli_values *sli_chats_room(const chats_line *line);
/* Reads a line whose JSON is well-formed. SL_E_INPUT names its location and what is wrong. */
sl_status sli_chats_line(const chats_line *line, sli_values *v, chats_values *out);
/* Puts the place before what went wrong. */
sl_status sli_chats_fail(const chats_line *line, sl_status status);

/* ---- messages (messages.c) ------------------------------------------------------------------- */

/* A list of messages in a line, with its key. */
typedef struct chats_list {
  const chats_line *line;
  const char *name;
  bool context; /* nothing in it is learned */
} chats_list;

/* Adds messages in the form that templates get. SL_E_INPUT: a message is not understood. */
sl_status sli_chats_messages(const chats_list *list, sli_values *v, sli_value from,
                             chats_values *out);
/* Returns words for the kind of a value, and the error for a value of the wrong kind. */
const char *sli_chats_kind(sli_value value);
sl_status sli_chats_wanted(const chats_line *line, const char *at, const char *what,
                           sli_value found);
/* Returns whether a message is an answer. */
bool sli_chats_is_answer(sli_values *v, sli_value message);

/* ---- answers (answers.c) --------------------------------------------------------------------- */

/* The tokens of a chat, and for each 1 if it belongs to an answer, otherwise 0. */
typedef struct chats_tokens {
  sli_token_row tokens, marks;
} chats_tokens;
sl_status sli_chats_tokens(sli_chats *c, const chats_line *line, chats_tokens *out);
void sli_chats_tokens_fini(chats_tokens *t);

#endif
