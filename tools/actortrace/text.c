/* SPDX-License-Identifier: Apache-2.0 */
/* Names as text, and lines that fit the terminal. */
#include "tools/actortrace/actortrace.h"

#include <stdarg.h>
#include <string.h>

void put_json(FILE *out, const char *text) {
  fputc('"', out);
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if (*c == '"' || *c == '\\') fprintf(out, "\\%c", *c);
    else if (*c < 0x20 || *c == '<' || *c == '>' || *c == '&' || *c == 0x7f)
      fprintf(out, "\\u%04x", *c);
    else fputc(*c, out);
  }
  fputc('"', out);
}

const char *class_label(const sl_plan *plan, sl_class cls) {
  bool splits = false;
  for (int32_t i = 0; i < plan->nactors; i++) splits |= plan->actors[i].cls == SL_CLASS_W;
  return cls == SL_CLASS_B && !splits ? "backward" : sl_class_name(cls);
}

/* ---- lines no wider than the terminal ------------------------------------------------- */

/* Counts the columns of UTF-8 text, if each character takes one column. */
static int columns_of(const char *text, size_t bytes) {
  int n = 0;
  for (size_t i = 0; i < bytes; i++) n += ((unsigned char)text[i] & 0xc0) != 0x80;
  return n;
}

void wrap_words(wrap *w, const char *text) {
  while (*text) {
    size_t bytes = strcspn(text, " ");
    int columns = columns_of(text, bytes);
    if (w->column > w->indent && w->column + 1 + columns > w->width) {
      fprintf(w->out, "\n%*s", w->indent, "");
      w->column = w->indent;
    } else if (w->column > w->indent) {
      fputc(' ', w->out);
      w->column++;
    }
    fwrite(text, 1, bytes, w->out);
    w->column += columns;
    text += bytes + (text[bytes] == ' ');
  }
}

void print_wrapped(FILE *out, int width, int indent, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  wrap w = {.out = out, .width = width, .indent = indent, .column = indent};
  wrap_words(&w, text);
  fputc('\n', out);
}
