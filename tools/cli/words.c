/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/words.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void words_add(words *w, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = sli_format_list(NULL, format, args);
  va_end(args);
  SLI_GROW(w->items, w->count + 1, w->capacity); /* room for the terminating NULL */
  w->items[w->count++] = text;
}

void words_fini(words *w) {
  for (size_t i = 0; i < w->count; i++) free(w->items[i]);
  free(w->items);
  *w = (words){0};
}

void words_given(const sl_option *o, const sl_args *args, words *to) {
  const char *value;
  if (!sl_arg_chosen(args, o->name)) return;
  for (int i = 0; (value = sl_arg_given(args, o->name, i)); i++) {
    if (o->kind == SL_OPTION_FLAG && !sl_arg_flag(args, o->name)) continue;
    words_add(to, "--%s", o->name);
    if (o->kind != SL_OPTION_FLAG) words_add(to, "%s", value);
  }
}

void words_run(const settings *s, const sl_option *o, words *to) {
  const char *init = strcmp(o->name, "init") ? NULL : settings_text(s, "init");
  if (!init || strcmp(init, s->model_word) != 0) words_given(o, s->run, to);
}

void words_model(const settings *s, words *to) {
  words_add(to, "%s", s->model_word);
  for (const sl_option *o = s->model->options; o && o->name; o++) words_given(o, s->model_args, to);
}

/* ---- command lines ------------------------------------------------------------------------- */

static bool is_plain(const char *word) {
  static const char plain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
      "%+,-./:=@_^";
  return *word && !word[strspn(word, plain)];
}

static bool has_controls(const char *word) {
  while (*word && !iscntrl((unsigned char)*word)) word++;
  return *word;
}

/* Prints $'...', with control characters written as \NNN so that a terminal does not act on
 * them. */
static void print_controls(const char *word, FILE *out) {
  fputs("$'", out);
  for (const char *at = word; *at; at++)
    if (iscntrl((unsigned char)*at)) fprintf(out, "\\%03o", (unsigned char)*at);
    else if (strchr("'\\", *at)) fprintf(out, "\\%c", *at);
    else fputc(*at, out);
  fputc('\'', out);
}

static void print_word(const char *word, FILE *out) {
  if (is_plain(word)) {
    fputs(word, out);
    return;
  }
  if (has_controls(word)) {
    print_controls(word, out);
    return;
  }
  fputc('\'', out);
  for (const char *at = word; *at; at++)
    if (*at == '\'') fputs("'\\''", out);
    else fputc(*at, out);
  fputc('\'', out);
}

char *words_line_of(const char *tool, const words *w) {
  char *text = NULL;
  size_t bytes;
  FILE *out = sli_memory_stream(&text, &bytes);
  fputs(tool, out);
  for (size_t i = 0; i < w->count; i++) {
    fputc(' ', out);
    print_word(w->items[i], out);
  }
  fclose(out);
  return text;
}

char *words_line(const words *w) { return words_line_of("actorrun", w); }
