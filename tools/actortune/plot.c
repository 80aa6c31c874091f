/* SPDX-License-Identifier: Apache-2.0 */
/* The frontier in the terminal: memory to the right, step time upwards. A staircase shows the best
 * step time for every budget, with the numbered points and the published schedules. */
#include "tools/actortune/actortune.h"

#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { HEIGHT = 16, MARGIN = 11, NARROWEST = 40, WIDEST = 120 };

typedef enum mark { NOTHING, ACROSS, DOWN, CORNER, INNER, PUBLISHED, POINT, MARKS } mark;

static const char *const unicode[MARKS] = {" ", "─", "│", "┐", "└", "○", "●"};
static const char *const ascii[MARKS] = {" ", "-", "|", "+", "+", "o", "*"};

typedef struct canvas {
  int width;
  mark marks[HEIGHT][WIDEST];
  char labels[HEIGHT][WIDEST]; /* digits of a point's number; 0 if none */
  double least_bytes, most_bytes, least_seconds, most_seconds;
} canvas;

static int terminal_width(void) {
  struct winsize size;
  bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col;
  return known ? size.ws_col : 80;
}

static int column(const canvas *c, double bytes) {
  double share = (bytes - c->least_bytes) / (c->most_bytes - c->least_bytes);
  return (int)(share * (c->width - 4) + 0.5);
}

static int row(const canvas *c, double seconds) {
  double share = (seconds - c->least_seconds) / (c->most_seconds - c->least_seconds);
  return HEIGHT - 1 - (int)(share * (HEIGHT - 1) + 0.5);
}

static bool is_shown(const canvas *c, const point *p) {
  return !p->status && p->seconds > 0 && p->published && p->scaled <= c->most_seconds &&
         (double)p->published_bytes <= c->most_bytes;
}

/* Sets the range to the frontier, with enough margin to show published schedules nearby. */
static void set_range(canvas *c, const tuning *t, const frontier *f) {
  const point *first = &f->points[0], *last = &f->points[f->count - 1];
  double bytes = (double)last->bytes * 1.5, seconds = first->scaled * 1.15;
  c->least_bytes = (double)first->bytes;
  c->most_bytes = (double)last->bytes;
  c->least_seconds = last->scaled;
  c->most_seconds = first->scaled;
  for (size_t i = 0; i < t->npoints; i++) {
    const point *p = &t->points[i];
    if (!p->published || p->status || !(p->seconds > 0)) continue;
    if ((double)p->published_bytes > bytes || p->scaled > seconds) continue;
    c->most_bytes = SLI_MAX(c->most_bytes, (double)p->published_bytes);
    c->most_seconds = SLI_MAX(c->most_seconds, p->scaled);
  }
  if (c->most_bytes <= c->least_bytes) c->most_bytes = c->least_bytes * 1.1 + 1;
  if (c->most_seconds <= c->least_seconds) c->most_seconds = c->least_seconds * 1.1;
}

static void draw_stair(canvas *c, const frontier *f) {
  for (size_t i = 0; i < f->count; i++) {
    const point *p = &f->points[i];
    int y = row(c, p->scaled), x = column(c, (double)p->bytes);
    int end = i + 1 < f->count ? column(c, (double)p[1].bytes) : c->width - 1;
    for (int at = x; at < end; at++) c->marks[y][at] = ACROSS;
    if (i + 1 == f->count || end == x) continue;
    int below = row(c, p[1].scaled);
    for (int at = y; at <= below; at++) c->marks[at][end] = DOWN;
    if (below > y) c->marks[y][end] = CORNER;
  }
}

static void draw_points(canvas *c, const tuning *t, const frontier *f) {
  for (size_t i = 0; i < t->npoints; i++)
    if (is_shown(c, &t->points[i]))
      c->marks[row(c, t->points[i].scaled)][column(c, (double)t->points[i].published_bytes)] =
          PUBLISHED;
  for (size_t i = f->count; i-- > 0;) {
    int y = row(c, f->points[i].scaled), x = column(c, (double)f->points[i].bytes);
    c->marks[y][x] = POINT;
    char number[12];
    int n = snprintf(number, sizeof number, "%zu", i + 1);
    for (int at = 0; at < n && x + 1 + at < c->width; at++) c->labels[y][x + 1 + at] = number[at];
  }
}

static void print_row(const canvas *c, int y, const char *const *signs, bool colour, FILE *out) {
  char label[32] = "";
  if (y == 0) sli_format_seconds(label, c->most_seconds);
  if (y == HEIGHT - 1) sli_format_seconds(label, c->least_seconds);
  fprintf(out, "%*s %s", MARGIN - 2, label, signs[DOWN]);
  for (int x = 0; x < c->width; x++) {
    mark m = c->marks[y][x];
    bool strong = colour && m == POINT;
    if (c->labels[y][x] && m != POINT) fputc(c->labels[y][x], out);
    else fprintf(out, "%s%s%s", strong ? "\033[1;34m" : "", signs[m], strong ? "\033[0m" : "");
  }
  fputc('\n', out);
}

static void print_axis(const canvas *c, const char *const *signs, FILE *out) {
  char left[32], right[32];
  format_memory(left, c->least_bytes);
  format_memory(right, c->most_bytes);
  fprintf(out, "%*s%s", MARGIN - 1, "", signs[INNER]);
  for (int x = 0; x < c->width; x++) fputs(signs[ACROSS], out);
  fprintf(out, "\n%*s%-*s%s\n", MARGIN, "", c->width - (int)strlen(right), left, right);
}

void plot_print(const tuning *t, const frontier *f, FILE *out) {
  canvas *c = sli_calloc(1, sizeof *c);
  c->width = SLI_MAX(NARROWEST, SLI_MIN(terminal_width() - MARGIN - 1, WIDEST));
  set_range(c, t, f);
  draw_stair(c, f);
  draw_points(c, t, f);
  setlocale(LC_CTYPE, "");
  bool wide = !strcmp(nl_langinfo(CODESET), "UTF-8");
  bool colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
  const char *const *signs = wide ? unicode : ascii;
  fprintf(out, "%s\n", t->same_items ? "step time" : "step time, for as many items a step");
  for (int y = 0; y < HEIGHT; y++) print_row(c, y, signs, colour, out);
  print_axis(c, signs, out);
  fprintf(out, "%*s%s plan below   %s schedule as published   memory of the largest device\n\n",
          MARGIN, "", signs[POINT], signs[PUBLISHED]);
  free(c);
}
