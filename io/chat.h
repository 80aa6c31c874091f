/* Chat templates: how messages of a system, a user and an assistant become one text that a model goes on
 * with. A model brings a program for it, in the language of Jinja, which is run; some that are common
 * have names. */
#ifndef SLUICE_IO_CHAT_H
#define SLUICE_IO_CHAT_H

#include <sluice/status.h>

typedef struct sli_chat sli_chat;

/* NULL, with the reason in sl_detail(), if there is none of that name, or something in a model's template is
 * not known. */
const sli_chat *sli_chat_named(const char *name);
const sli_chat *sli_chat_of_template(const char *text);
void sli_chat_free(const sli_chat *chat);
const char *sli_chat_name(const sli_chat *chat);
/* "chatml, llama2, ..."; the caller's to free(). */
char *sli_chat_names(void);

/* The texts of a tokenizer's marks for the begin and the end of a text; NULL: it has none. */
typedef struct sli_chat_marks {
  const char *begin, *end;
} sli_chat_marks;

typedef struct sli_chat_message {
  enum { SLI_CHAT_SYSTEM, SLI_CHAT_USER, SLI_CHAT_ASSISTANT } role;
  const char *text;
} sli_chat_message;

/* The text up to where the assistant begins to speak; the caller's to free(). Marks are in it as texts,
 * which a tokenizer takes for the tokens that they are; it adds no others around it. SL_E_USAGE: the
 * template refuses such messages, or goes wrong with them. */
sl_status sli_chat_render(const sli_chat *chat, const sli_chat_marks *marks,
                          const sli_chat_message *messages, int count, char **out);

/* The text of the mark that ends what the assistant says: what the template puts behind an answer, or else the
 * tokenizer's; NULL if neither has one. Lives as long as the chat. */
const char *sli_chat_end(const sli_chat *chat, const sli_chat_marks *marks);

#endif
