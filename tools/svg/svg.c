/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/svg/svg.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

static void write_escaped(FILE *out, const char *text) {
  for (; *text; text++)
    if (*text == '&') fputs("&amp;", out);
    else if (*text == '<') fputs("&lt;", out);
    else if (*text == '>') fputs("&gt;", out);
    else if ((unsigned char)*text >= ' ') fputc(*text, out);
}

void svg_begin(FILE *out, double width, double height, const char *attributes, const char *title,
               const char *inside) {
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
          "viewBox=\"0 0 %.0f %.0f\" role=\"img\"%s%s>\n<title>",
          width, height, width, height, *attributes ? " " : "", attributes);
  write_escaped(out, title);
  fprintf(out, "</title>\n%s<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", inside);
}

double svg_tick_step(double range, double count) {
  double rough = range / count, power = pow(10, floor(log10(rough))), share = rough / power;
  return power * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
}

void svg_end(FILE *out) { fputs("</svg>\n", out); }

void svg_text(FILE *out, double x, double y, const char *attributes, const char *format, ...) {
  va_list list;
  va_start(list, format);
  char *text = sli_format_list(NULL, format, list);
  va_end(list);
  fprintf(out, "<text x=\"%.2f\" y=\"%.1f\" %s>", x, y, attributes);
  write_escaped(out, text);
  fputs("</text>\n", out);
  free(text);
}

void svg_rect(FILE *out, double x, double y, double width, double height, const char *attributes) {
  fprintf(out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.4g\" %s/>\n", x, y, width,
          height, attributes);
}

void svg_circle(FILE *out, double x, double y, double radius, const char *attributes) {
  fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.3g\" %s/>\n", x, y, radius, attributes);
}
