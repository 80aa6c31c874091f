/* SPDX-License-Identifier: Apache-2.0 */
/* The option --speculate: ngram[:tokens=G][,match=N][,always], draft:PATH[:tokens=G][,always], or
 * ahead[:tokens=G][,always]. */
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

static bool read_words(char *words, bool matches, sl_speculation *out) {
  for (char *word; (word = strsep(&words, ","));) {
    bool always = !strcmp(word, "always");
    out->always |= always;
    if (!always && !read_word(word, "tokens", SL_SESSION_DRAFTED, &out->tokens) &&
        !(matches && read_word(word, "match", MOST_MATCH, &out->match)))
      return false;
  }
  return true;
}

static sl_status read_ngram(const char *text, char *words, sl_speculation *out) {
  return !words || read_words(words, true, out)
             ? SL_OK
             : refuse_speculation(
                   text, "in ngram:tokens=G,match=N,always G must be 1 to 16, and N 1 to 64");
}

/* Returns the words after a path, which may itself contain colons, or NULL if there are none. */
static char *words_behind(char *path) {
  char *colon = strrchr(path, ':');
  if (!colon || !(colon[1 + strcspn(colon + 1, "=,/.")] == '=' || !strcmp(colon, ":always")))
    return NULL;
  *colon = 0;
  return colon + 1;
}

static sl_status read_draft(const char *text, char *path, sl_speculation *out) {
  char *words = path ? words_behind(path) : NULL;
  if (!path || !*path) return refuse_speculation(text, "draft:PATH names the draft model");
  return !words || read_words(words, false, out)
             ? SL_OK
             : refuse_speculation(text, "in draft:PATH:tokens=G,always G must be 1 to 16");
}

/* Reads drafts of the block that predicts ahead, whose weights are beside those of the model. */
static sl_status read_ahead(const settings *s, const char *text, char *words, speculate *out) {
  const char *init = settings_text(s, "init"), *model = NULL;
  out->how.hidden = true;
  if (init) SLI_TRY(pretrained_model(init, &model));
  if (!model)
    return refuse_speculation(text, "needs the folder or GGUF file of a model with such a block");
  out->path = sli_strdup(init);
  return !words || read_words(words, false, &out->how)
             ? SL_OK
             : refuse_speculation(text, "in ahead:tokens=G,always G must be 1 to 16");
}

sl_status speculate_read(const settings *s, speculate *out) {
  const char *text = settings_text(s, "speculate");
  *out = (speculate){0};
  if (!text) return SL_OK;
  out->how.tokens = USUAL_TOKENS;
  char *name = sli_strdup(text), *rest = strchr(name, ':');
  if (rest) *rest++ = 0;
  bool drafts = !strcmp(name, "draft");
  sl_status status;
  if (drafts) status = read_draft(text, rest, &out->how);
  else if (!strcmp(name, "ngram")) status = read_ngram(text, rest, &out->how);
  else if (!strcmp(name, "ahead")) status = read_ahead(s, text, rest, out);
  else status = refuse_speculation(text, "must begin with ngram, ahead or draft:PATH");
  if (!status && drafts) out->path = sli_strdup(rest);
  free(name);
  return status;
}
