/* SPDX-License-Identifier: Apache-2.0 */
/* A step as a picture in the terminal. */
#include "tools/actortrace/show.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- colours ----------------------------------------------------------------------- */

/* Colours that people with red-green colour blindness can tell apart, as 256-colour numbers. */
static const struct paint {
  int back, text;
} paints[SL_CLASS_COUNT] = {
    [SL_CLASS_F] = {25, 231}, [SL_CLASS_B] = {214, 16}, [SL_CLASS_W] = {36, 16},
    [SL_CLASS_U] = {175, 16}, [SL_CLASS_C] = {246, 16}, [SL_CLASS_L] = {228, 16}};

static void paint_class(const shower *s, sl_class cls) {
  if (s->color) fprintf(s->out, "\033[48;5;%d;38;5;%dm", paints[cls].back, paints[cls].text);
}
static void paint_faint(const shower *s) {
  if (s->color) fputs("\033[2m", s->out);
}
static void paint_bold(const shower *s) {
  if (s->color) fputs("\033[1m", s->out);
}
static void paint_nothing(const shower *s) {
  if (s->color) fputs("\033[0m", s->out);
}

void show_heading(const shower *s, const char *text) {
  fputc('\n', s->out);
  paint_bold(s);
  fputs(text, s->out);
  paint_nothing(s);
  fputc('\n', s->out);
}

/* ---- the picture ------------------------------------------------------------------- */

static const char wait_marks[SL_WAIT_COUNT] = {[SL_WAIT_INPUT] = '.',
                                               [SL_WAIT_CREDIT] = 'c',
                                               [SL_WAIT_DEVICE] = 'd',
                                               [SL_WAIT_POLICY] = 'p',
                                               [SL_WAIT_START] = 's'};

/* Finds for each column of a line the piece that fills most of it, or -1. */
static void fill_columns(const line *l, uint64_t from, uint64_t to, int columns, int64_t *out) {
  size_t at = 0;
  for (int c = 0; c < columns; c++) {
    uint64_t begin = from + (to - from) / (uint64_t)columns * (uint64_t)c +
                     (to - from) % (uint64_t)columns * (uint64_t)c / (uint64_t)columns;
    uint64_t end = from + (to - from) / (uint64_t)columns * (uint64_t)(c + 1) +
                   (to - from) % (uint64_t)columns * (uint64_t)(c + 1) / (uint64_t)columns;
    uint64_t most = 0;
    out[c] = -1;
    while (at < l->count && l->pieces[at].to_ns <= begin) at++;
    for (size_t i = at; i < l->count && l->pieces[i].from_ns < end; i++) {
      uint64_t ns = SLI_MIN(l->pieces[i].to_ns, end) - SLI_MAX(l->pieces[i].from_ns, begin);
      if (ns > most) most = ns, out[c] = (int64_t)i;
    }
  }
}

/* Draws a firing in `columns` columns: as much of "F12" as fits, then a bar. */
static void draw_run(const shower *s, const sl_trace_firing *f, int columns) {
  sl_class cls = s->plan->actors[f->record.actor].cls;
  char text[32];
  int n = snprintf(text, sizeof text, "%c%d", sl_class_letter(cls), f->tick.microbatch);
  if (s->plan->pieces > 1 && n + 3 < columns)
    n += snprintf(text + n, sizeof text - (size_t)n, ".%d", f->tick.piece);
  if (n > columns || (n == columns && columns > 1 && !s->color)) n = 1;
  paint_class(s, cls);
  fprintf(s->out, "%.*s", n, text);
  for (int i = n; i < columns; i++) fputs(s->color ? " " : "\xe2\x94\x80", s->out); /* ─ */
  paint_nothing(s);
}

static void draw_lane(const shower *s, const line *l, uint64_t from, uint64_t to, int columns) {
  int64_t *at = sli_calloc((size_t)columns + 1, sizeof *at);
  fill_columns(l, from, to, columns, at);
  for (int c = 0, end; c < columns; c = end) {
    for (end = c + 1; end < columns && at[end] == at[c]; end++) {}
    const piece *p = at[c] >= 0 ? &l->pieces[at[c]] : NULL;
    if (p && p->wait == SL_WAIT_NONE) {
      draw_run(s, &s->a->firings[p->firing], end - c);
      continue;
    }
    paint_faint(s);
    for (int i = c; i < end; i++) {
      if (p && p->wait == SL_WAIT_INPUT) fputs("\xc2\xb7", s->out); /* · */
      else fputc(p ? wait_marks[p->wait] : ' ', s->out);
    }
    paint_nothing(s);
  }
  fputc('\n', s->out);
  free(at);
}

/* Makes a line from the firings of one queue. */
static line queue_line(const analysis *a, int32_t queue, uint64_t from, uint64_t to) {
  line l = {0};
  size_t capacity = 0;
  uint64_t end = 0;
  for (size_t i = 0; i < a->nfirings; i++) {
    const sl_trace_record *f = &a->firings[i].record;
    if (a->plan->actors[f->actor].queue != queue || f->end_ns <= from || f->start_ns >= to)
      continue;
    SLI_GROW(l.pieces, l.count, capacity);
    uint64_t start = SLI_MAX(f->start_ns, end);
    if (start >= f->end_ns) continue;
    l.pieces[l.count++] = (piece){start, f->end_ns, (int64_t)i, SL_NONE, SL_WAIT_NONE};
    end = f->end_ns;
  }
  return l;
}

int name_width(const shower *s) {
  size_t most = 6;
  for (int32_t d = 0; d < s->plan->ndevices; d++)
    most = SLI_MAX(most, strlen(s->plan->devices[d].name));
  for (int32_t q = 0; q < s->plan->nqueues && s->queues; q++)
    most = SLI_MAX(most, strlen(s->plan->queues[q].name) + 2);
  return (int)SLI_MIN(most, (size_t)24);
}

static void draw_axis(const shower *s, int names, uint64_t span_ns, int columns) {
  char text[32];
  fprintf(s->out, "%-*s ", names, "");
  for (int c = 0; c < columns;) {
    double ns = (double)span_ns * c / columns;
    int n = snprintf(text, sizeof text, "|%s", c ? format_ns((char[32]){0}, ns) : "0");
    if (c + n > columns) break;
    fputs(text, s->out);
    for (c += n; c % 16 && c < columns; c++) fputc(' ', s->out);
  }
  fputc('\n', s->out);
}

/* Draws the key: the classes of the plan's work, and the reasons of idle time. */
static void draw_key(const shower *s) {
  bool has[SL_CLASS_COUNT] = {0};
  for (int32_t i = 0; i < s->plan->nactors; i++) has[s->plan->actors[i].cls] = true;
  char text[256];
  int n = 0;
  for (int c = 0; c < SL_CLASS_COUNT; c++)
    if (has[c] && is_work((sl_class)c))
      n += snprintf(text + n, sizeof text - (size_t)n, "%c %s, ", sl_class_letter((sl_class)c),
                    class_label(s->plan, (sl_class)c));
  fputc('\n', s->out);
  print_wrapped(s->out, s->width, 0,
                "%swith the microbatch. Idle: \xc2\xb7 waits for an input, "
                "c credit (a free slot), d device (its worker), p policy (held back), s start.",
                n ? text : "");
}

void draw_step(const shower *s) {
  uint64_t from, to; /* the update comes after the work */
  if (!work_window(s->a, s->step, &from, &to)) return;
  char text[32];
  char title[96];
  snprintf(title, sizeof title, "Step %" PRId64 ", %s from its first start to its last end",
           s->step, format_ns(text, (double)(to - from)));
  show_heading(s, title);
  fputc('\n', s->out);
  int names = name_width(s), columns = SLI_MAX(s->width - names - 1, 16);
  for (int32_t d = 0; d < s->plan->ndevices; d++) {
    if (s->device >= 0 && d != s->device) continue;
    fprintf(s->out, "%-*.*s ", names, names, s->plan->devices[d].name);
    draw_lane(s, &s->a->lines[d], from, to, columns);
    for (int32_t q = 0; q < s->plan->nqueues && s->queues; q++) {
      if (s->plan->queues[q].device != d || s->a->work_queue[q]) continue;
      line l = queue_line(s->a, q, from, to);
      fprintf(s->out, "  %-*.*s ", names - 2, names - 2, s->plan->queues[q].name);
      draw_lane(s, &l, from, to, columns);
      free(l.pieces);
    }
  }
  draw_axis(s, names, to - from, columns);
  draw_key(s);
}
