/* --chat: what is said to a model, as its chat template puts it. */
#ifndef SLUICE_TOOLS_ACTORRUN_CHAT_H
#define SLUICE_TOOLS_ACTORRUN_CHAT_H

#include "tools/common/common.h"

/* Do --chat and its options go with the others? SL_E_USAGE says why not. */
sl_status chat_check(const settings *s);

/* The text for the model to go on with, and that of the mark that ends its answer, or NULL; both the
 * caller's to free(). The template is --chat-template's, or the one that lies with the tokenizer.
 * SL_E_USAGE names what is unknown. */
sl_status chat_prompt(const settings *s, char **prompt, char **end);

#endif
