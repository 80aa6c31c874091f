/* SPDX-License-Identifier: Apache-2.0 */
/* actortrace svg: one or several steps as a figure for a paper or a page.
 *
 * The background is white, classes have letters as well as colours, later chunks of a device are
 * lighter than its first, and there are only rectangles, lines and text. The figure prints well,
 * scales, and can be edited by hand. */
#include "tools/actortrace/actortrace.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "actors/plan/plan.h"
#include "tools/svg/svg.h"

enum {
  WIDTH = 960,
  LEFT = 84,
  RIGHT = 16,
  TOP = 12,
  LANE = 26,
  ROWS = 24,
  MEMORY = 22,
  QUEUE = 11,
  GAP = 8
};

static const struct ink {
  const char *fill, *text, *name;
} inks[SL_CLASS_COUNT] = {[SL_CLASS_F] = {"#0072b2", "#fff", "forward"},
                          [SL_CLASS_B] = {"#e69f00", "#000", "input gradient"},
                          [SL_CLASS_W] = {"#009e73", "#000", "weight gradient"},
                          [SL_CLASS_U] = {"#cc79a7", "#000", "update"},
                          [SL_CLASS_C] = {"#a0a0a0", "#000", "communicate"},
                          [SL_CLASS_L] = {"#f0e442", "#000", "load"}};

/* Mixes a colour with white: 0 leaves it unchanged, 1 is white. */
static const char *lighten(char out[8], const char *fill, double share) {
  unsigned long rgb = strtoul(fill + 1, NULL, 16);
  unsigned mixed[3];
  for (int i = 0; i < 3; i++) {
    double from = (double)(rgb >> (16 - 8 * i) & 255);
    mixed[i] = (unsigned)lround(from + share * (255 - from));
  }
  snprintf(out, 8, "#%02x%02x%02x", mixed[0] & 255, mixed[1] & 255, mixed[2] & 255);
  return out;
}

typedef struct figure {
  const analysis *a;
  FILE *out;
  uint64_t from, to;
  step_range steps;
  int32_t most_rows; /* most valid rows of a visible firing; SL_NONE if none has rows */
  bool queues;
  int chunks; /* the most chunks of the model on one device */
  double y;
} figure;

/* Returns the colours of a pass: the last chunk is the lightest. */
static struct ink ink_of(const figure *figure, const sl_actor *a, char fill[8]) {
  enum { SPLIT = 2 };
  static const double palest = 0.6;
  struct ink ink = inks[a->cls];
  if (a->chunk > 0 && figure->chunks >= SPLIT) {
    ink.fill = lighten(fill, ink.fill, palest * a->chunk / (figure->chunks - 1));
    ink.text = "#000";
  }
  return ink;
}

/* Writes text in the middle of a box. */
static void text_in(const figure *figure, double x, double y, const char *fill, const char *text) {
  char attributes[64];
  snprintf(attributes, sizeof attributes, "fill=\"%s\" text-anchor=\"middle\"", fill);
  svg_text(figure->out, x, y, attributes, "%s", text);
}

static void box_at(const figure *figure, double x, double y, double w, double h, const char *fill) {
  char attributes[32];
  snprintf(attributes, sizeof attributes, "fill=\"%s\"", fill);
  svg_rect(figure->out, x, y, w, h, attributes);
}

/* Draws a firing with a gap behind it if it is wide enough. */
static void firing_at(const figure *figure, double x, double y, double w, double h,
                      const char *fill) {
  box_at(figure, x, y, w > 3 ? w - 0.6 : w, h, fill);
}

/* Names a row, left of it. */
static void name_at(const figure *figure, double y, const char *name) {
  svg_text(figure->out, LEFT - 6, y, "fill=\"#666\" text-anchor=\"end\"", "%s", name);
}

static double at_x(const figure *figure, uint64_t ns) {
  double share = ((double)ns - (double)figure->from) / (double)(figure->to - figure->from);
  return LEFT + share * (WIDTH - LEFT - RIGHT);
}

static void draw_firing(const figure *figure, const piece *p, double x, double w) {
  const sl_trace_firing *f = &figure->a->firings[p->firing];
  const sl_actor *a = &figure->a->plan->actors[f->record.actor];
  sl_class cls = a->cls;
  char text[32], fill[8];
  struct ink ink = ink_of(figure, a, fill);
  firing_at(figure, x, figure->y, w, LANE, ink.fill);
  int n = snprintf(text, sizeof text, "%c%d", sl_class_letter(cls), f->tick.microbatch);
  if (w < 6.5 * n + 2) n = snprintf(text, sizeof text, "%c", sl_class_letter(cls));
  if (w < 6.5 * n + 2) return;
  text_in(figure, x + w / 2, figure->y + LANE / 2.0 + 3.7, ink.text, text);
}

static void draw_idle(const figure *figure, const piece *p, double x, double w) {
  bool credit = p->wait == SL_WAIT_CREDIT;
  const char letter[] = {sl_wait_name((sl_wait)p->wait)[0], 0};
  box_at(figure, x, figure->y + 6, w, LANE - 12, credit ? "#f3d9d0" : "#ececec");
  if (w >= 10) text_in(figure, x + w / 2, figure->y + LANE / 2.0 + 3.7, "#767676", letter);
}

/* Returns a device's time over the steps, from the first start of its work to the last end. */
static account steps_account(const figure *figure, int32_t device) {
  const sl_trace *t = figure->a->trace;
  account sum = {0};
  for (size_t i = next_step(t, figure->steps, 0); i < t->nsteps;
       i = next_step(t, figure->steps, i + 1)) {
    account x = account_make(figure->a, device, t->step[i].step);
    if (!account_span(&x)) continue;
    sum.from_ns = account_span(&sum) ? SLI_MIN(sum.from_ns, x.from_ns) : x.from_ns;
    sum.to_ns = SLI_MAX(sum.to_ns, x.to_ns);
    sum.busy_ns += x.busy_ns;
  }
  return sum;
}

static void draw_lane(const figure *figure, int32_t device) {
  const line *l = &figure->a->lines[device];
  account x = steps_account(figure, device);
  for (size_t i = 0; i < l->count; i++) {
    const piece *p = &l->pieces[i];
    if (p->to_ns <= figure->from || p->from_ns >= figure->to) continue;
    /* idle time outside the device's span does not count */
    bool busy = p->wait == SL_WAIT_NONE;
    uint64_t from = SLI_MAX(p->from_ns, busy ? figure->from : x.from_ns);
    uint64_t to = SLI_MIN(p->to_ns, busy ? figure->to : x.to_ns);
    if (from >= to) continue;
    double left = at_x(figure, from), w = at_x(figure, to) - left;
    if (busy) draw_firing(figure, p, left, w);
    else draw_idle(figure, p, left, w);
  }
}

/* ---- lanes ---------------------------------------------------------------------------------- */

/* Returns the number of lanes of a device. */
static int count_lanes(const figure *figure, int32_t device) {
  const sl_plan *plan = figure->a->plan;
  int n = 0;
  for (int32_t q = 0; q < plan->nqueues; q++)
    n += plan->queues[q].lane && plan->queues[q].device == device;
  return n;
}

/* Draws a firing on a lane, as high as its share of the device. */
static void draw_shared(const figure *figure, const sl_trace_firing *f, int number) {
  static const sl_class colors[] = {SL_CLASS_F, SL_CLASS_B, SL_CLASS_W, SL_CLASS_U};
  const sl_actor *a = &figure->a->plan->actors[f->record.actor];
  bool pass = a->stage != SL_NONE;
  char fill[8], text[64];
  struct ink ink = ink_of(
      figure, &(sl_actor){.cls = pass ? a->cls : colors[number % 4], .chunk = a->chunk}, fill);
  double x = at_x(figure, SLI_MAX(f->record.start_ns, figure->from)),
         w = at_x(figure, SLI_MIN(f->record.end_ns, figure->to)) - x,
         h = LANE * SLI_MIN(sli_share_of(a, f->tick.number).part, 1);
  firing_at(figure, x, figure->y + LANE - h, w, h, ink.fill);
  int n = pass ? snprintf(text, sizeof text, "%c%d", sl_class_letter(a->cls), f->tick.microbatch)
               : snprintf(text, sizeof text, "%s", a->name);
  if (w < 5.6 * n + 2 || h < 8) return;
  text_in(figure, x + w / 2, figure->y + LANE - h / 2 + 3.7, ink.text, text);
}

/* Draws a row for each lane of a device, and moves below them. */
static void draw_lanes(figure *figure, int32_t device) {
  const sl_plan *plan = figure->a->plan;
  int number = 0;
  for (int32_t q = 0; q < plan->nqueues; q++) {
    if (!plan->queues[q].lane || plan->queues[q].device != device) continue;
    name_at(figure, figure->y + LANE / 2.0 + 3.7, plan->queues[q].lane);
    fprintf(figure->out, "<path stroke=\"#ddd\" stroke-width=\"0.7\" d=\"M%d %.1fH%d\"/>\n", LEFT,
            figure->y + LANE, WIDTH - RIGHT);
    for (size_t i = 0; i < figure->a->nfirings; i++) {
      const sl_trace_firing *f = &figure->a->firings[i];
      if (plan->actors[f->record.actor].queue == q && f->record.end_ns > figure->from &&
          f->record.start_ns < figure->to && f->record.end_ns > f->record.start_ns)
        draw_shared(figure, f, number);
    }
    figure->y += LANE + 3;
    number++;
  }
}

/* ---- valid rows ----------------------------------------------------------------------------- */

/* Returns the most rows of a visible pass of the device, or SL_NONE. */
static int32_t rows_most(const figure *figure, int32_t device) {
  const line *l = &figure->a->lines[device];
  int32_t most = SL_NONE;
  for (size_t i = 0; i < l->count; i++) {
    const piece *p = &l->pieces[i];
    if (p->wait == SL_WAIT_NONE && p->to_ns > figure->from && p->from_ns < figure->to)
      most = SLI_MAX(most, figure->a->firings[p->firing].rows);
  }
  return most;
}

/* Draws a bar whose height is the firing's rows relative to the most rows, with the number above
 * it. */
static void draw_bar(const figure *figure, const piece *p) {
  const sl_trace_firing *f = &figure->a->firings[p->firing];
  double x = at_x(figure, SLI_MAX(p->from_ns, figure->from)),
         w = at_x(figure, SLI_MIN(p->to_ns, figure->to)) - x;
  double h = (ROWS - 11.0) * f->rows / SLI_MAX(figure->most_rows, 1), top = figure->y + ROWS - h;
  fprintf(figure->out,
          "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" "
          "fill-opacity=\"0.5\"/>\n",
          x, top, w > 3 ? w - 0.6 : w, h, inks[figure->a->plan->actors[f->record.actor].cls].fill);
  char text[16];
  if (w < 5.9 * snprintf(text, sizeof text, "%d", f->rows) + 1) return;
  text_in(figure, x + w / 2, top - 1.5, "#222", text);
}

/* Draws the rows under a device's passes, if any of them has rows. */
static void draw_rows(figure *figure, int32_t device) {
  if (rows_most(figure, device) < 0) return;
  char name[32];
  snprintf(name, sizeof name, "rows, max %d", figure->most_rows);
  name_at(figure, figure->y + ROWS - 2.0, name);
  const line *l = &figure->a->lines[device];
  for (size_t i = 0; i < l->count; i++) {
    const piece *p = &l->pieces[i];
    if (p->wait == SL_WAIT_NONE && p->to_ns > figure->from && p->from_ns < figure->to &&
        figure->a->firings[p->firing].rows >= 0)
      draw_bar(figure, p);
  }
  figure->y += ROWS + 3;
}

/* ---- other queues -------------------------------------------------------------------------- */

static bool is_seen(const figure *figure, const sl_trace_firing *f) {
  return f->record.end_ns > figure->from && f->record.start_ns < figure->to;
}

static int32_t queue_of(const figure *figure, const sl_trace_firing *f) {
  return figure->a->plan->actors[f->record.actor].queue;
}

/* Returns whether a queue beside a device's passes has anything to show. */
static bool is_queue_seen(const figure *figure, int32_t q) {
  if (!figure->queues || figure->a->work_queue[q] || figure->a->plan->queues[q].lane) return false;
  for (size_t i = 0; i < figure->a->nfirings; i++) {
    const sl_trace_firing *f = &figure->a->firings[i];
    if (queue_of(figure, f) == q && is_seen(figure, f) && f->record.end_ns > f->record.start_ns)
      return true;
  }
  return false;
}

static int queues_seen(const figure *figure, int32_t device) {
  int n = 0;
  for (int32_t q = 0; q < figure->a->plan->nqueues; q++)
    n += figure->a->plan->queues[q].device == device && is_queue_seen(figure, q);
  return n;
}

static void draw_queue(const figure *figure, int32_t q) {
  char name[64];
  const char *whole = figure->a->plan->queues[q].name;
  snprintf(name, sizeof name, "%.*s", (int)strcspn(whole, "@"), whole);
  name_at(figure, figure->y + QUEUE - 2.0, name);
  for (size_t i = 0; i < figure->a->nfirings; i++) {
    const sl_trace_firing *f = &figure->a->firings[i];
    if (queue_of(figure, f) != q || !is_seen(figure, f)) continue;
    double x = at_x(figure, SLI_MAX(f->record.start_ns, figure->from));
    double w = at_x(figure, SLI_MIN(f->record.end_ns, figure->to)) - x;
    firing_at(figure, x, figure->y + 1, w, QUEUE - 2,
              inks[figure->a->plan->actors[f->record.actor].cls].fill);
  }
}

static void draw_queues(figure *figure, int32_t device) {
  for (int32_t q = 0; q < figure->a->plan->nqueues; q++) {
    if (figure->a->plan->queues[q].device != device || !is_queue_seen(figure, q)) continue;
    draw_queue(figure, q);
    figure->y += QUEUE;
  }
}

/* ---- memory ------------------------------------------------------------------------- */

static void draw_memory(const figure *figure, int32_t device) {
  size_t count;
  sample *all = bytes_curve(figure->a, device, &count);
  int64_t most = SLI_MAX((int64_t)peak_bytes(figure->a, device), 1);
  double base = figure->y + MEMORY, last = base;
  fprintf(figure->out,
          "<path fill=\"#0072b2\" fill-opacity=\"0.18\" stroke=\"#0072b2\" "
          "stroke-width=\"0.8\" d=\"M%d %.1f",
          LEFT, base);
  for (size_t i = 0; i < count && all[i].ns < figure->to; i++) {
    if (i + 1 < count && all[i + 1].ns <= figure->from) continue;
    double y = base - (MEMORY - 3) * (double)all[i].value / (double)most;
    double x = all[i].ns <= figure->from ? LEFT : at_x(figure, all[i].ns);
    if (all[i].ns > figure->from) fprintf(figure->out, "L%.1f %.1f", x, last);
    fprintf(figure->out, "L%.1f %.1f", x, y);
    last = y;
  }
  fprintf(figure->out, "L%d %.1fL%d %.1fZ\"/>\n", WIDTH - RIGHT, last, WIDTH - RIGHT, base);
  char bytes[32], name[48];
  snprintf(name, sizeof name, "max %s", sli_format_bytes(bytes, (double)most));
  name_at(figure, figure->y + MEMORY - 5.0, name);
  free(all);
}

/* ---- the figure ---------------------------------------------------------------------- */

static void draw_axis(const figure *figure, double bottom) {
  double span = (double)(figure->to - figure->from), tick = svg_tick_step(span, 6);
  for (int k = 0; k * tick <= span * 1.0001; k++) {
    double x = at_x(figure, figure->from + (uint64_t)(k * tick));
    char text[32];
    fprintf(figure->out, "<path stroke=\"#ccc\" stroke-width=\"0.7\" d=\"M%.2f %dV%.1f\"/>\n", x,
            TOP - 4, bottom + 4);
    svg_text(figure->out, x, bottom + 15,
             k ? "fill=\"#555\" text-anchor=\"middle\"" : "fill=\"#555\" text-anchor=\"start\"",
             "%s", k ? format_ns(text, k * tick) : "0");
  }
  text_in(figure, (LEFT + WIDTH - RIGHT) / 2.0, bottom + 31, "#222",
          "time since the first pass began; the curve under a device is its memory in use");
}

/* Draws a class's box and name, and its second shade. Returns the x after it. */
static double draw_class(const figure *figure, int c, double x, double y) {
  bool shades = figure->chunks > 1 && is_work((sl_class)c);
  char fill[8];
  const char letter[] = {sl_class_letter((sl_class)c), 0};
  if (shades)
    box_at(figure, x + 16, y, 16, 14,
           ink_of(figure, &(sl_actor){.cls = (sl_class)c, .chunk = figure->chunks - 1}, fill).fill);
  double name = x + (shades ? 37 : 21);
  box_at(figure, x, y, 16, 14, inks[c].fill);
  text_in(figure, x + 8, y + 10.8, inks[c].text, letter);
  svg_text(figure->out, name, y + 10.8, "fill=\"#222\"", "%s", inks[c].name);
  return name + 13 + 6.2 * (double)strlen(inks[c].name);
}

static void draw_legend(const figure *figure, double y) {
  bool used[SL_CLASS_COUNT] = {false};
  for (int32_t d = 0; d < figure->a->plan->ndevices; d++)
    for (size_t i = 0; i < figure->a->lines[d].count; i++) {
      const piece *p = &figure->a->lines[d].pieces[i];
      if (p->wait == SL_WAIT_NONE && p->to_ns > figure->from && p->from_ns < figure->to)
        used[figure->a->plan->actors[figure->a->firings[p->firing].record.actor].cls] = true;
    }
  double x = LEFT;
  for (int c = 0; c < SL_CLASS_COUNT; c++)
    if (used[c] && inks[c].name) x = draw_class(figure, c, x, y);
  if (figure->chunks > 1) {
    static const char lighter[] = "lighter: a device's later chunk";
    svg_text(figure->out, x, y + 10.8, "fill=\"#222\"", "%s", lighter);
    x += 13 + 5.6 * (double)strlen(lighter);
  }
  box_at(figure, x, y, 16, 14, "#ececec");
  fprintf(figure->out,
          "<text x=\"%.1f\" y=\"%.1f\" fill=\"#222\">idle for want of <tspan "
          "font-weight=\"bold\">i</tspan>nput, <tspan font-weight=\"bold\">c</tspan>redit, "
          "<tspan font-weight=\"bold\">d</tspan>evice</text>\n",
          x + 21, y + 10.8);
}

static void draw_device(figure *figure, int32_t device) {
  account x = steps_account(figure, device);
  svg_text(figure->out, LEFT - 6, figure->y + LANE / 2.0 - 0.5,
           "text-anchor=\"end\" font-weight=\"bold\"", "%s", figure->a->plan->devices[device].name);
  if (account_span(&x)) {
    char busy[32];
    snprintf(busy, sizeof busy, "busy %.0f %%", 100 * (double)x.busy_ns / (double)account_span(&x));
    name_at(figure, figure->y + LANE / 2.0 + 11, busy);
  }
  if (count_lanes(figure, device)) figure->y += LANE + 3, draw_lanes(figure, device);
  else draw_lane(figure, device), figure->y += LANE + 3;
  draw_rows(figure, device);
  draw_queues(figure, device);
  draw_memory(figure, device);
  figure->y += MEMORY + GAP;
}

/* Finds the window from the first start to the last end of the devices' work in the steps. */
static bool find_window(figure *figure) {
  const sl_trace *t = figure->a->trace;
  figure->from = UINT64_MAX;
  for (size_t i = next_step(t, figure->steps, 0); i < t->nsteps;
       i = next_step(t, figure->steps, i + 1)) {
    uint64_t from, to;
    if (!work_window(figure->a, t->step[i].step, &from, &to)) continue;
    figure->from = SLI_MIN(figure->from, from);
    figure->to = SLI_MAX(figure->to, to);
  }
  return figure->from < figure->to;
}

static double device_height(const figure *figure, int32_t device) {
  return (LANE + 3) * (1 + count_lanes(figure, device)) +
         (rows_most(figure, device) < 0 ? 0 : ROWS + 3) + QUEUE * queues_seen(figure, device) +
         MEMORY + GAP;
}

static void draw_figure(figure *figure, const options *o) {
  double bottom = TOP - GAP;
  figure->most_rows = SL_NONE;
  for (int32_t d = 0; d < figure->a->plan->ndevices; d++) {
    if (o->device >= 0 && o->device != d) continue;
    bottom += device_height(figure, d);
    figure->most_rows = SLI_MAX(figure->most_rows, rows_most(figure, d));
  }
  int64_t first = figure->steps.first, last = figure->steps.last;
  char *title = last > first ? sli_format("%s, step %" PRId64 " to %" PRId64, o->path, first, last)
                             : sli_format("%s, step %" PRId64, o->path, first);
  svg_begin(figure->out, WIDTH, bottom + 62,
            "font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" font-size=\"10.5\"", title,
            "");
  free(title);
  draw_axis(figure, bottom);
  for (int32_t d = 0; d < figure->a->plan->ndevices; d++)
    if (o->device < 0 || o->device == d) draw_device(figure, d);
  draw_legend(figure, bottom + 40);
  svg_end(figure->out);
}

sl_status command_svg(const sl_trace *t, const options *o, FILE *out) {
  analysis *a = analysis_create(t);
  int64_t step = o->step >= 0 ? o->step : typical_step(a);
  int64_t more = SLI_MIN(SLI_MAX(o->steps, 1) - 1, INT64_MAX - step);
  figure g = {.a = a, .out = out, .queues = o->queues, .steps = {step, step + more}, .y = TOP};
  for (int32_t i = 0; i < t->plan->nactors; i++)
    g.chunks = SLI_MAX(g.chunks, t->plan->actors[i].chunk + 1);
  bool found = find_step(t, step) && find_window(&g);
  if (found) draw_figure(&g, o);
  analysis_destroy(a);
  return found ? SL_OK : sl_fail(SL_E_USAGE, "step %" PRId64 " is not in %s", step, o->path);
}
