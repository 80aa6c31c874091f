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

static double x_of(const figure *g, double bytes) {
  return LEFT + PLOT_WIDTH * (bytes - g->least_x) / (g->most_x - g->least_x);
}

static double y_of(const figure *g, double seconds) {
  return TOP + PLOT_HEIGHT * (1 - (seconds - g->least_y) / (g->most_y - g->least_y));
}

static bool is_near(const figure *g, const point *p) {
  return p->published && !p->status && p->seconds > 0 && (double)p->published_bytes <= g->most_x &&
         p->scaled <= g->most_y;
}

static void include(figure *g, double bytes, double seconds) {
  g->least_x = SLI_MIN(g->least_x, bytes);
  g->most_x = SLI_MAX(g->most_x, bytes);
  g->least_y = SLI_MIN(g->least_y, seconds);
  g->most_y = SLI_MAX(g->most_y, seconds);
}

/* Sets the range to the frontier with a margin, and published schedules nearby. */
static void set_range(figure *g) {
  const frontier *f = g->f;
  const point *first = &f->points[0], *last = &f->points[f->count - 1];
  double far = 1.6 * (double)last->bytes, slow = 1.25 * first->scaled;
  g->least_x = g->least_y = 1e300;
  for (size_t i = 0; i < f->count; i++) include(g, (double)f->points[i].bytes, f->points[i].scaled);
  for (size_t i = 0; i < g->t->npoints; i++) {
    const point *p = &g->t->points[i];
    if (p->published && !p->status && p->seconds > 0 && (double)p->published_bytes <= far &&
        p->scaled <= slow)
      include(g, (double)p->published_bytes, p->scaled);
  }
  double wide = SLI_MAX(g->most_x - g->least_x, 0.1 * g->most_x);
  double high = SLI_MAX(g->most_y - g->least_y, 0.1 * g->most_y);
  g->least_x -= 0.06 * wide;
  g->most_x += 0.10 * wide;
  g->least_y -= 0.08 * high;
  g->most_y += 0.08 * high;
}

/* Returns 1, 2 or 5 times a power of ten (of two for bytes, by unit), so that about six ticks
 * fit. */
static double tick_step(double range, double unit) {
  double rough = range / unit / 6, power = pow(10, floor(log10(rough))), share = rough / power;
  return unit * power * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
}

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

static void print_escaped(FILE *out, const char *text) {
  for (const char *at = text; *at; at++)
    if (*at == '&') fputs("&amp;", out);
    else if (*at == '<') fputs("&lt;", out);
    else if (*at == '>') fputs("&gt;", out);
    else fputc(*at, out);
}

static void text_at(const figure *g, double x, double y, const char *class_name, const char *text) {
  fprintf(g->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class_name);
  print_escaped(g->out, text);
  fputs("</text>\n", g->out);
}

/* ---- axes -------------------------------------------------------------------------- */

static void draw_axes(const figure *g) {
  const char *bytes_name, *time_name;
  double bytes = byte_unit(g->most_x, &bytes_name), seconds = time_unit(g->most_y, &time_name);
  double dx = tick_step(g->most_x - g->least_x, bytes);
  double dy = tick_step(g->most_y - g->least_y, seconds);
  char text[96];
  for (double v = ceil(g->least_x / dx) * dx; v <= g->most_x; v += dx) {
    fprintf(g->out, "<path class=\"grid\" d=\"M%.1f %dv%d\"/>\n", x_of(g, v), TOP, PLOT_HEIGHT);
    snprintf(text, sizeof text, "%.10g", round(v / bytes * 1e6) / 1e6);
    text_at(g, x_of(g, v), TOP + PLOT_HEIGHT + 18, "tick middle", text);
  }
  for (double v = ceil(g->least_y / dy) * dy; v <= g->most_y; v += dy) {
    fprintf(g->out, "<path class=\"grid\" d=\"M%d %.1fh%d\"/>\n", LEFT, y_of(g, v), PLOT_WIDTH);
    snprintf(text, sizeof text, "%.10g", round(v / seconds * 1e6) / 1e6);
    text_at(g, LEFT - 8, y_of(g, v) + 4, "tick end", text);
  }
  fprintf(g->out, "<rect class=\"frame\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", LEFT,
          TOP, PLOT_WIDTH, PLOT_HEIGHT);
  snprintf(text, sizeof text, "memory of the largest device, %s", bytes_name);
  text_at(g, LEFT + PLOT_WIDTH / 2.0, TOP + PLOT_HEIGHT + 40, "name middle", text);
  if (g->t->same_items) snprintf(text, sizeof text, "step time, %s", time_name);
  else
    snprintf(text, sizeof text, "time of %lld %s, %s", (long long)g->t->reference->items,
             g->t->reference->word, time_name);
  fprintf(g->out, "<g transform=\"translate(22 %.1f) rotate(-90)\">", TOP + PLOT_HEIGHT / 2.0);
  text_at(g, 0, 0, "name middle", text);
  fputs("</g>\n", g->out);
}

/* ---- the frontier ------------------------------------------------------------------ */

static void print_stair(const figure *g) {
  const frontier *f = g->f;
  for (size_t i = 0; i < f->count; i++) {
    const point *p = &f->points[i];
    double x = x_of(g, (double)p->bytes), y = y_of(g, p->scaled);
    if (i) fprintf(g->out, "H%.1fV%.1f", x, y);
    else fprintf(g->out, "M%.1f %.1f", x, y);
  }
  fprintf(g->out, "H%d", LEFT + PLOT_WIDTH);
}

static void draw_frontier(figure *g) {
  const frontier *f = g->f;
  double first_x = x_of(g, (double)f->points[0].bytes);
  fputs("<path class=\"reach\" d=\"", g->out);
  print_stair(g);
  fprintf(g->out, "V%dH%.1fZ\"/>\n<path class=\"stair\" d=\"", TOP, first_x);
  print_stair(g);
  fputs("\"/>\n", g->out);
}

static void keep_box(figure *g, box b) {
  if (g->nboxes < MOST_LABELS) g->boxes[g->nboxes++] = b;
}

static void draw_points(figure *g) {
  for (size_t i = g->f->count; i-- > 0;) {
    const point *p = &g->f->points[i];
    double x = x_of(g, (double)p->bytes), y = y_of(g, p->scaled);
    char number[24];
    snprintf(number, sizeof number, "%zu", i + 1);
    fprintf(g->out, "<circle class=\"point\" cx=\"%.1f\" cy=\"%.1f\" r=\"9\"/>\n", x, y);
    text_at(g, x, y + 4, "number middle", number);
  }
}

static bool is_free(const figure *g, const box *b) {
  for (int i = 0; i < g->nboxes; i++) {
    const box *o = &g->boxes[i];
    if (b->x < o->x + o->width && o->x < b->x + b->width && b->y < o->y + o->height &&
        o->y < b->y + b->height)
      return false;
  }
  return b->x >= LEFT && b->x + b->width <= LEFT + PLOT_WIDTH && b->y >= TOP &&
         b->y + b->height <= TOP + PLOT_HEIGHT;
}

/* Returns a point's name, "zb-v v2 m32": the schedule and what the search varied. */
static char *point_name(const figure *g, const point *p) {
  const tuning *t = g->t;
  const settings *s = &t->configs[p->config].settings;
  char chunks[24] = "", m[24] = "", k[24] = "";
  if (s->lower.schedule.chunks != sl_schedule_chunks(s->lower.schedule.name))
    snprintf(chunks, sizeof chunks, " v%d", s->lower.schedule.chunks);
  if (t->sweep.microbatches.count > 1) snprintf(m, sizeof m, " m%d", s->microbatches);
  if (t->sweep.pieces.count > 1) snprintf(k, sizeof k, " k%d", s->pieces);
  return sli_format("%s%s%s%s", s->lower.schedule.name, chunks, m, k);
}

/* Finds free space for a name of the given width around a mark: beside it, or further away. */
static box find_place(const figure *g, double x, double y, double r, double width) {
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
      if (is_free(g, &places[i])) return places[i];
  }
  return (box){x + r + 3, y - HEIGHT / 2.0, width, HEIGHT};
}

/* Draws a name beside its mark, connected by a line if it does not fit next to it. */
static void draw_name(figure *g, const point *p, const char *class_name, double x, double y,
                      double r) {
  char *name = point_name(g, p);
  double width = 6.4 * (double)strlen(name);
  box b = find_place(g, x, y, r, width);
  double to_x = SLI_MAX(b.x, SLI_MIN(x, b.x + b.width)),
         to_y = SLI_MAX(b.y + 2, SLI_MIN(y, b.y + b.height)), far = hypot(to_x - x, to_y - y);
  keep_box(g, b);
  if (far > r + 8)
    fprintf(g->out, "<path class=\"lead\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", x + (to_x - x) * r / far,
            y + (to_y - y) * r / far, to_x, to_y);
  text_at(g, b.x, b.y + 11, class_name, name);
  free(name);
}

static void draw_names(figure *g) {
  for (size_t i = 0; i < g->f->count; i++) {
    const point *p = &g->f->points[i];
    draw_name(g, p, "best", x_of(g, (double)p->bytes), y_of(g, p->scaled), 9);
  }
  for (size_t i = 0; i < g->t->npoints; i++) {
    const point *p = &g->t->points[i];
    if (is_near(g, p))
      draw_name(g, p, "published", x_of(g, (double)p->published_bytes), y_of(g, p->scaled), 5);
  }
}

/* Keeps names off the points and the staircase. */
static void keep_points(figure *g) {
  for (size_t i = 0; i < g->f->count; i++) {
    const point *p = &g->f->points[i];
    double x = x_of(g, (double)p->bytes), y = y_of(g, p->scaled);
    bool last = i + 1 == g->f->count;
    double end = last ? LEFT + PLOT_WIDTH : x_of(g, (double)p[1].bytes);
    keep_box(g, (box){x - 9, y - 9, 18, 18});
    keep_box(g, (box){x, y - 2, end - x, 4});
    if (!last) keep_box(g, (box){end - 2, y, 4, y_of(g, p[1].scaled) - y});
  }
}

static void draw_published(figure *g) {
  for (size_t i = 0; i < g->t->npoints; i++) {
    const point *p = &g->t->points[i];
    if (!is_near(g, p)) continue;
    double x = x_of(g, (double)p->published_bytes), y = y_of(g, p->scaled);
    keep_box(g, (box){x - 6, y - 6, 12, 12});
    fprintf(g->out, "<circle class=\"ring\" cx=\"%.1f\" cy=\"%.1f\" r=\"5\"/>\n", x, y);
  }
}

/* ---- the panel --------------------------------------------------------------------- */

static void draw_panel_line(const figure *g, size_t i, double y) {
  const point *p = &g->f->points[i];
  const settings *s = &g->t->configs[p->config].settings;
  char number[24], bytes[32], seconds[32], what[96];
  snprintf(number, sizeof number, "%zu", i + 1);
  int n = snprintf(what, sizeof what, "%s", s->lower.schedule.name);
  if (s->lower.schedule.chunks > 1)
    n += snprintf(what + n, sizeof what - (size_t)n, ", %d chunks", s->lower.schedule.chunks);
  if (g->t->sweep.microbatches.count > 1)
    n += snprintf(what + n, sizeof what - (size_t)n, ", m %d", s->microbatches);
  if (g->t->sweep.pieces.count > 1)
    snprintf(what + n, sizeof what - (size_t)n, ", k %d", s->pieces);
  fprintf(g->out, "<circle class=\"point\" cx=\"%d\" cy=\"%.1f\" r=\"9\"/>\n", PANEL + 9, y - 4);
  text_at(g, PANEL + 9, y, "number middle", number);
  text_at(g, PANEL + 92, y, "cell end", format_memory(bytes, (double)p->bytes));
  text_at(g, PANEL + 166, y, "cell end", sli_format_seconds(seconds, p->seconds));
  text_at(g, PANEL + 182, y, "cell", what);
}

static void draw_panel(const figure *g) {
  text_at(g, PANEL + 92, TOP + 12, "head end", "memory");
  text_at(g, PANEL + 166, TOP + 12, "head end", "step");
  text_at(g, PANEL + 182, TOP + 12, "head", "schedule");
  double y = TOP + 12;
  for (size_t i = 0; i < g->f->count; i++) draw_panel_line(g, i, y += LINE);
  y += LINE + 6;
  fprintf(g->out, "<circle class=\"ring\" cx=\"%d\" cy=\"%.1f\" r=\"5\"/>\n", PANEL + 9, y - 4);
  text_at(g, PANEL + 24, y, "cell", "a schedule as published");
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

static void draw(figure *g) {
  int width = PANEL + PANEL_WIDTH, lines = (int)g->f->count + 3;
  int height = SLI_MAX(TOP + PLOT_HEIGHT + 60, TOP + 20 + lines * LINE);
  fprintf(g->out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
          "viewBox=\"0 0 %d %d\" role=\"img\">\n<title>Step time against memory</title>\n%s"
          "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
          width, height, width, height, style);
  char text[160];
  const settings *s = g->t->settings;
  snprintf(text, sizeof text, "%s on %d devices: what memory buys", s->model->name,
           s->lower.parallel.stages);
  text_at(g, LEFT, 28, "title", text);
  snprintf(text, sizeof text,
           "best of %zu plans on the virtual clock; every point is an actorrun "
           "command",
           g->t->npoints);
  text_at(g, LEFT, 48, "sub", text);
  draw_axes(g);
  draw_frontier(g);
  keep_points(g);
  draw_published(g);
  draw_names(g);
  draw_points(g);
  draw_panel(g);
  fputs("</svg>\n", g->out);
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
