/* Command lines of actorrun, word by word. */
#ifndef SLUICE_TOOLS_COMMON_WORDS_H
#define SLUICE_TOOLS_COMMON_WORDS_H

#include "tools/common/settings.h"

/* A row of words, with a NULL behind the last. */
typedef struct words {
  size_t count, capacity;
  char **items;
} words;

void words_add(words *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void words_fini(words *w);

/* Every value that was given for an option, as it was given. */
void words_given(const sl_option *o, const sl_args *args, words *to);
/* The model and its options. */
void words_model(const settings *s, words *to);

/* "actorrun" and these, quoted for a shell, on one line; the caller's to free(). */
char *words_line(const words *w);
/* The same of another tool. */
char *words_line_of(const char *tool, const words *w);

#endif
