/* SPDX-License-Identifier: Apache-2.0 */
/* The frontier as a figure. On the left are memory and step time, with a staircase of the best time
 * for each budget, numbered points and published schedules, each with its name. On the right are
 * the points' descriptions. Colours are those of Okabe and Ito, which colour-blind readers can tell
 * apart. */
#include "tools/actortune/actortune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/atomic.h"
#include "tools/svg/svg.h"

enum {
  LEFT = 76,
  TOP = 64,
  PLOT_WIDTH = 520,
  PLOT_HEIGHT = 360,
  PANEL = 640,
  LINE = 21,
  PANEL_WIDTH = 330,
  MOST_LABELS = 256
};

typedef struct box {
  double x, y, width, height;
} box;

typedef struct figure {
  const tuning *t;
  const frontier *f;
  FILE *out;
  double least_x, most_x, least_y, most_y; /* bytes, seconds */
  int nboxes;
  box boxes[MOST_LABELS]; /* areas already occupied */
} figure;

/* ---- scales ------------------------------------------------------------------------------- */

static double x_of(const figure *figure, double bytes) {
  return LEFT + PLOT_WIDTH * (bytes - figure->least_x) / (figure->most_x - figure->least_x);
}

static double y_of(const figure *figure, double seconds) {
  return TOP + PLOT_HEIGHT * (1 - (seconds - figure->least_y) / (figure->most_y - figure->least_y));
}

static bool is_near(const figure *figure, const point *p) {
  return p->published && !p->status && p->seconds > 0 &&
         (double)p->published_bytes <= figure->most_x && p->scaled <= figure->most_y;
}

static void include(figure *figure, double bytes, double seconds) {
  figure->least_x = SLI_MIN(figure->least_x, bytes);
  figure->most_x = SLI_MAX(figure->most_x, bytes);
  figure->least_y = SLI_MIN(figure->least_y, seconds);
  figure->most_y = SLI_MAX(figure->most_y, seconds);
}

/* Sets the range to the frontier with a margin, and published schedules nearby. */
static void set_range(figure *figure) {
  const frontier *f = figure->f;
  const point *first = &f->points[0], *last = &f->points[f->count - 1];
  double far = 1.6 * (double)last->bytes, slow = 1.25 * first->scaled;
  figure->least_x = figure->least_y = 1e300;
  for (size_t i = 0; i < f->count; i++)
    include(figure, (double)f->points[i].bytes, f->points[i].scaled);
  for (size_t i = 0; i < figure->t->npoints; i++) {
    const point *p = &figure->t->points[i];
    if (p->published && !p->status && p->seconds > 0 && (double)p->published_bytes <= far &&
        p->scaled <= slow)
      include(figure, (double)p->published_bytes, p->scaled);
  }
  double wide = SLI_MAX(figure->most_x - figure->least_x, 0.1 * figure->most_x);
  double high = SLI_MAX(figure->most_y - figure->least_y, 0.1 * figure->most_y);
  figure->least_x -= 0.06 * wide;
  figure->most_x += 0.10 * wide;
  figure->least_y -= 0.08 * high;
  figure->most_y += 0.08 * high;
}

/* Returns the step of about six ticks, in units. */
static double tick_step(double range, double unit) { return unit * svg_tick_step(range / unit, 6); }

static double byte_unit(double most, const char **name) {
  static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t i = 0;
  double unit = 1;
  while (i + 1 < SLI_COUNT(names) && most / unit >= 1024) unit *= 1024, i++;
  *name = names[i];
  return unit;
}

static double time_unit(double most, const char **name) {
  *name = most >= 1 ? "s" : most >= 1e-3 ? "ms" : "us";
  return most >= 1 ? 1 : most >= 1e-3 ? 1e-3 : 1e-6;
}

/* ---- text ----------------------------------------------------------------------------------- */

static void text_at(const figure *figure, double x, double y, const char *class_name,
                    const char *text) {
  char attributes[48];
  snprintf(attributes, sizeof attributes, "class=\"%s\"", class_name);
  svg_text(figure->out, x, y, attributes, "%s", text);
}

/* ---- axes -------------------------------------------------------------------------- */

static void draw_axes(const figure *figure) {
  const char *bytes_name, *time_name;
  double bytes = byte_unit(figure->most_x, &bytes_name),
         seconds = time_unit(figure->most_y, &time_name);
  double dx = tick_step(figure->most_x - figure->least_x, bytes);
  double dy = tick_step(figure->most_y - figure->least_y, seconds);
  char text[96];
  for (double v = ceil(figure->least_x / dx) * dx; v <= figure->most_x; v += dx) {
    fprintf(figure->out, "<path class=\"grid\" d=\"M%.1f %dv%d\"/>\n", x_of(figure, v), TOP,
            PLOT_HEIGHT);
    snprintf(text, sizeof text, "%.10g", round(v / bytes * 1e6) / 1e6);
    text_at(figure, x_of(figure, v), TOP + PLOT_HEIGHT + 18, "tick middle", text);
  }
  for (double v = ceil(figure->least_y / dy) * dy; v <= figure->most_y; v += dy) {
    fprintf(figure->out, "<path class=\"grid\" d=\"M%d %.1fh%d\"/>\n", LEFT, y_of(figure, v),
            PLOT_WIDTH);
    snprintf(text, sizeof text, "%.10g", round(v / seconds * 1e6) / 1e6);
    text_at(figure, LEFT - 8, y_of(figure, v) + 4, "tick end", text);
  }
  svg_rect(figure->out, LEFT, TOP, PLOT_WIDTH, PLOT_HEIGHT, "class=\"frame\"");
  snprintf(text, sizeof text, "memory of the largest device, %s", bytes_name);
  text_at(figure, LEFT + PLOT_WIDTH / 2.0, TOP + PLOT_HEIGHT + 40, "name middle", text);
  if (figure->t->same_items) snprintf(text, sizeof text, "step time, %s", time_name);
  else
    snprintf(text, sizeof text, "time of %lld %s, %s", (long long)figure->t->reference->items,
             figure->t->reference->word, time_name);
  fprintf(figure->out, "<g transform=\"translate(22 %.1f) rotate(-90)\">", TOP + PLOT_HEIGHT / 2.0);
  text_at(figure, 0, 0, "name middle", text);
  fputs("</g>\n", figure->out);
}

/* ---- the frontier ------------------------------------------------------------------ */

static void print_stair(const figure *figure) {
  const frontier *f = figure->f;
  for (size_t i = 0; i < f->count; i++) {
    const point *p = &f->points[i];
    double x = x_of(figure, (double)p->bytes), y = y_of(figure, p->scaled);
    if (i) fprintf(figure->out, "H%.1fV%.1f", x, y);
    else fprintf(figure->out, "M%.1f %.1f", x, y);
  }
  fprintf(figure->out, "H%d", LEFT + PLOT_WIDTH);
}

static void draw_frontier(figure *figure) {
  const frontier *f = figure->f;
  double first_x = x_of(figure, (double)f->points[0].bytes);
  fputs("<path class=\"reach\" d=\"", figure->out);
  print_stair(figure);
  fprintf(figure->out, "V%dH%.1fZ\"/>\n<path class=\"stair\" d=\"", TOP, first_x);
  print_stair(figure);
  fputs("\"/>\n", figure->out);
}

static void keep_box(figure *figure, box b) {
  if (figure->nboxes < MOST_LABELS) figure->boxes[figure->nboxes++] = b;
}

static void draw_points(figure *figure) {
  for (size_t i = figure->f->count; i-- > 0;) {
    const point *p = &figure->f->points[i];
    double x = x_of(figure, (double)p->bytes), y = y_of(figure, p->scaled);
    char number[24];
    snprintf(number, sizeof number, "%zu", i + 1);
    svg_circle(figure->out, x, y, 9, "class=\"point\"");
    text_at(figure, x, y + 4, "number middle", number);
  }
}

static bool is_free(const figure *figure, const box *b) {
  for (int i = 0; i < figure->nboxes; i++) {
    const box *o = &figure->boxes[i];
    if (b->x < o->x + o->width && o->x < b->x + b->width && b->y < o->y + o->height &&
        o->y < b->y + b->height)
      return false;
  }
  return b->x >= LEFT && b->x + b->width <= LEFT + PLOT_WIDTH && b->y >= TOP &&
         b->y + b->height <= TOP + PLOT_HEIGHT;
}

/* Returns a point's name, "zb-v v2 m32": the schedule and what the search varied. */
static char *point_name(const figure *figure, const point *p) {
  const tuning *t = figure->t;
  const settings *s = &t->configs[p->config].settings;
  char chunks[24] = "", m[24] = "", k[24] = "";
  if (s->lower.schedule.chunks != sl_schedule_chunks(s->lower.schedule.name))
    snprintf(chunks, sizeof chunks, " v%d", s->lower.schedule.chunks);
  if (t->sweep.microbatches.count > 1) snprintf(m, sizeof m, " m%d", s->microbatches);
  if (t->sweep.pieces.count > 1) snprintf(k, sizeof k, " k%d", s->pieces);
  return sli_format("%s%s%s%s", s->lower.schedule.name, chunks, m, k);
}

/* Finds free space for a name of the given width around a mark: beside it, or further away. */
static box find_place(const figure *figure, double x, double y, double r, double width) {
  enum { HEIGHT = 14, RINGS = 12, STEP = 12 };
  for (int ring = 0; ring < RINGS; ring++) {
    double far = r + 3 + STEP * ring, near = ring ? far * 0.7 : far;
    const box places[] = {{x + far, y - HEIGHT / 2.0, width, HEIGHT},
                          {x + near, y - near - HEIGHT, width, HEIGHT},
                          {x - width / 2, y - far - HEIGHT, width, HEIGHT},
                          {x - width / 2, y + far, width, HEIGHT},
                          {x + near, y + near, width, HEIGHT},
                          {x - far - width, y - HEIGHT / 2.0, width, HEIGHT},
                          {x - near - width, y + near, width, HEIGHT},
                          {x - near - width, y - near - HEIGHT, width, HEIGHT}};
    for (size_t i = 0; i < SLI_COUNT(places); i++)
      if (is_free(figure, &places[i])) return places[i];
  }
  return (box){x + r + 3, y - HEIGHT / 2.0, width, HEIGHT};
}

/* Draws a name beside its mark, connected by a line if it does not fit next to it. */
static void draw_name(figure *figure, const point *p, const char *class_name, double x, double y,
                      double r) {
  char *name = point_name(figure, p);
  double width = 6.4 * (double)strlen(name);
  box b = find_place(figure, x, y, r, width);
  double to_x = SLI_MAX(b.x, SLI_MIN(x, b.x + b.width)),
         to_y = SLI_MAX(b.y + 2, SLI_MIN(y, b.y + b.height)), far = hypot(to_x - x, to_y - y);
  keep_box(figure, b);
  if (far > r + 8)
    fprintf(figure->out, "<path class=\"lead\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n",
            x + (to_x - x) * r / far, y + (to_y - y) * r / far, to_x, to_y);
  text_at(figure, b.x, b.y + 11, class_name, name);
  free(name);
}

static void draw_names(figure *figure) {
  for (size_t i = 0; i < figure->f->count; i++) {
    const point *p = &figure->f->points[i];
    draw_name(figure, p, "best", x_of(figure, (double)p->bytes), y_of(figure, p->scaled), 9);
  }
  for (size_t i = 0; i < figure->t->npoints; i++) {
    const point *p = &figure->t->points[i];
    if (is_near(figure, p))
      draw_name(figure, p, "published", x_of(figure, (double)p->published_bytes),
                y_of(figure, p->scaled), 5);
  }
}

/* Keeps names off the points and the staircase. */
static void keep_points(figure *figure) {
  for (size_t i = 0; i < figure->f->count; i++) {
    const point *p = &figure->f->points[i];
    double x = x_of(figure, (double)p->bytes), y = y_of(figure, p->scaled);
    bool last = i + 1 == figure->f->count;
    double end = last ? LEFT + PLOT_WIDTH : x_of(figure, (double)p[1].bytes);
    keep_box(figure, (box){x - 9, y - 9, 18, 18});
    keep_box(figure, (box){x, y - 2, end - x, 4});
    if (!last) keep_box(figure, (box){end - 2, y, 4, y_of(figure, p[1].scaled) - y});
  }
}

static void draw_published(figure *figure) {
  for (size_t i = 0; i < figure->t->npoints; i++) {
    const point *p = &figure->t->points[i];
    if (!is_near(figure, p)) continue;
    double x = x_of(figure, (double)p->published_bytes), y = y_of(figure, p->scaled);
    keep_box(figure, (box){x - 6, y - 6, 12, 12});
    svg_circle(figure->out, x, y, 5, "class=\"ring\"");
  }
}

/* ---- the panel --------------------------------------------------------------------- */

static void draw_panel_line(const figure *figure, size_t i, double y) {
  const point *p = &figure->f->points[i];
  const settings *s = &figure->t->configs[p->config].settings;
  char number[24], bytes[32], seconds[32], what[96];
  snprintf(number, sizeof number, "%zu", i + 1);
  int n = snprintf(what, sizeof what, "%s", s->lower.schedule.name);
  if (s->lower.schedule.chunks > 1)
    n += snprintf(what + n, sizeof what - (size_t)n, ", %d chunks", s->lower.schedule.chunks);
  if (figure->t->sweep.microbatches.count > 1)
    n += snprintf(what + n, sizeof what - (size_t)n, ", m %d", s->microbatches);
  if (figure->t->sweep.pieces.count > 1)
    snprintf(what + n, sizeof what - (size_t)n, ", k %d", s->pieces);
  svg_circle(figure->out, PANEL + 9, y - 4, 9, "class=\"point\"");
  text_at(figure, PANEL + 9, y, "number middle", number);
  text_at(figure, PANEL + 92, y, "cell end", format_memory(bytes, (double)p->bytes));
  text_at(figure, PANEL + 166, y, "cell end", sli_format_seconds(seconds, p->seconds));
  text_at(figure, PANEL + 182, y, "cell", what);
}

static void draw_panel(const figure *figure) {
  text_at(figure, PANEL + 92, TOP + 12, "head end", "memory");
  text_at(figure, PANEL + 166, TOP + 12, "head end", "step");
  text_at(figure, PANEL + 182, TOP + 12, "head", "schedule");
  double y = TOP + 12;
  for (size_t i = 0; i < figure->f->count; i++) draw_panel_line(figure, i, y += LINE);
  y += LINE + 6;
  svg_circle(figure->out, PANEL + 9, y - 4, 5, "class=\"ring\"");
  text_at(figure, PANEL + 24, y, "cell", "a schedule as published");
}

/* ---- the figure -------------------------------------------------------------------- */

static const char style[] =
    "<style>text{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#222}"
    ".title{font-size:16px;font-weight:600}.sub{fill:#555}.tick{fill:#555}.name{font-size:13px}"
    ".middle{text-anchor:middle}.end{text-anchor:end}.head{fill:#555}"
    ".number{font-size:11px;font-weight:600;fill:#fff}.published{fill:#8a4200}"
    ".best{fill:#004f7c}.lead{stroke:#999;stroke-width:.8;fill:none}"
    ".grid{stroke:#e6e6e6;fill:none}.frame{fill:none;stroke:#999}"
    ".reach{fill:#0072b2;fill-opacity:.07}.stair{fill:none;stroke:#0072b2;stroke-width:2}"
    ".point{fill:#0072b2;stroke:#fff;stroke-width:1.5}"
    ".ring{fill:#fff;stroke:#d55e00;stroke-width:2}</style>\n";

static void draw(figure *figure) {
  int width = PANEL + PANEL_WIDTH, lines = (int)figure->f->count + 3;
  int height = SLI_MAX(TOP + PLOT_HEIGHT + 60, TOP + 20 + lines * LINE);
  svg_begin(figure->out, width, height, "", "Step time against memory", style);
  char text[160];
  const settings *s = figure->t->settings;
  snprintf(text, sizeof text, "%s on %d devices: what memory buys", s->model->name,
           s->lower.parallel.stages);
  text_at(figure, LEFT, 28, "title", text);
  snprintf(text, sizeof text,
           "best of %zu plans on the virtual clock; every point is an actorrun "
           "command",
           figure->t->npoints);
  text_at(figure, LEFT, 48, "sub", text);
  draw_axes(figure);
  draw_frontier(figure);
  keep_points(figure);
  draw_published(figure);
  draw_names(figure);
  draw_points(figure);
  draw_panel(figure);
  svg_end(figure->out);
}

sl_status svg_write(const char *path, const tuning *t, const frontier *f) {
  sli_atomic_file file;
  sl_status status = sli_atomic_open(path, &file);
  if (status) return status;
  figure *g = sli_calloc(1, sizeof *g);
  *g = (figure){.t = t, .f = f, .out = file.stream};
  set_range(g);
  draw(g);
  free(g);
  return sli_atomic_commit(&file);
}
