/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines as lists of words. */
#ifndef SLUICE_TOOLS_CLI_WORDS_H
#define SLUICE_TOOLS_CLI_WORDS_H

#include "tools/cli/settings.h"

/* A list of words, terminated by NULL. */
typedef struct words {
  size_t count, capacity;
  char **items;
} words;

void words_add(words *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void words_fini(words *w);

/* Adds every value of an option as the user gave it; values that a file gave are not the user's. */
void words_given(const sl_option *o, const sl_args *args, words *to);
/* Adds an option of the run as the user gave it, unless MODEL implies it: a folder of weights given
 * as MODEL is also its --init. */
void words_run(const settings *s, const sl_option *o, words *to);
/* Adds the model and its options. */
void words_model(const settings *s, words *to);

/* Returns "actorrun" and the words on one line, quoted for a shell; the caller frees it. */
char *words_line(const words *w);
/* Returns the line for another tool. */
char *words_line_of(const char *tool, const words *w);

#endif
