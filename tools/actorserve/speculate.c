/* SPDX-License-Identifier: Apache-2.0 */
/* The option --speculate: ngram[:tokens=G][,match=N][,always]. */
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "tools/actorserve/actorserve.h"

enum { USUAL_TOKENS = 6, MOST_MATCH = 64 };

static sl_status refuse_speculation(const char *text, const char *why) {
  return sl_fail(SL_E_USAGE, "--speculate %s: %s", text, why);
}

/* Reads NAME=N, from 1 to `most`. */
static bool read_word(const char *word, const char *name, int most, int *out) {
  size_t n = strlen(name);
  const char *at = word + n + 1;
  if (strncmp(word, name, n) || word[n] != '=') return false;
  return sli_number_read(&at, 1, most, out) && !*at;
}

static sl_status read_words(const char *text, char *words, sl_speculation *out) {
  for (char *word; (word = strsep(&words, ","));) {
    bool always = !strcmp(word, "always");
    out->always |= always;
    if (always || read_word(word, "tokens", SL_SESSION_DRAFTED, &out->tokens) ||
        read_word(word, "match", MOST_MATCH, &out->match))
      continue;
    return refuse_speculation(text,
                              "ngram:tokens=G,match=N,always has G from 1 to 16, N from 1 to 64");
  }
  return SL_OK;
}

sl_status speculate_read(const settings *s, sl_speculation *out) {
  const char *text = settings_text(s, "speculate");
  *out = (sl_speculation){0};
  if (!text) return SL_OK;
  size_t name = strcspn(text, ":");
  if (name != 5 || strncmp(text, "ngram", name))
    return refuse_speculation(text, "drafts are of ngram: of what was there before");
  out->tokens = USUAL_TOKENS;
  if (!text[name]) return SL_OK;
  char *words = sli_strdup(text + name + 1);
  sl_status status = read_words(text, words, out);
  free(words);
  return status;
}
