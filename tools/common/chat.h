/* How a model is talked to: what lies with its tokenizer of chats. */
#ifndef SLUICE_TOOLS_COMMON_CHAT_H
#define SLUICE_TOOLS_COMMON_CHAT_H

#include "io/chat.h"

/* Its chat template and the texts of its marks; NULL: it says nothing. */
typedef struct chat_found {
  char *template, *begin, *end;
} chat_found;

/* Of a tokenizer.json, what the files beside it say; of a GGUF file, its keys. */
sl_status chat_find(const char *tokenizer, chat_found *out);
void chat_found_fini(chat_found *f);
/* The template of that name, or, if that is NULL, the model's own. SL_E_USAGE: it is not known, or
 * there is none; it names the tokenizer, and the templates there are. */
sl_status chat_choose(const chat_found *f, const char *tokenizer, const char *name, const sli_chat **out);

#endif
