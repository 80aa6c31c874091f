#include "tools/common/words.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

void words_add(words *w, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = NULL;
  SLI_CHECK(vasprintf(&text, format, args) >= 0, "no memory for a word");
  va_end(args);
  SLI_GROW(w->items, w->count + 1, w->capacity); /* and a NULL behind them */
  w->items[w->count++] = text;
}

void words_fini(words *w) {
  for (size_t i = 0; i < w->count; i++) free(w->items[i]);
  free(w->items);
  *w = (words){0};
}

void words_given(const sl_option *o, const sl_args *args, words *to) {
  const char *value;
  for (int i = 0; (value = sl_arg_given(args, o->name, i)); i++) {
    if (o->kind == SL_OPTION_FLAG && !sl_arg_flag(args, o->name)) continue;
    words_add(to, "--%s", o->name);
    if (o->kind != SL_OPTION_FLAG) words_add(to, "%s", value);
  }
}

void words_model(const settings *s, words *to) {
  words_add(to, "%s", s->model_word);
  for (const sl_option *o = s->model->options; o && o->name; o++)
    words_given(o, s->model_args, to);
}
