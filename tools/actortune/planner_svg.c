/* SPDX-License-Identifier: Apache-2.0 */
/* The best plans as a figure, with bars for step time and memory and a description of each.
 * Below, the slowdown of each dimension's second choice. Colours are those of Okabe and Ito. */
#include "tools/actortune/planner_show.h"

#include <stdlib.h>
#include <string.h>

#include "io/atomic.h"
#include "tools/svg/svg.h"

enum {
  LEFT = 40,
  BAR = 420,
  MEMORY = 500,
  MEMORY_WIDTH = 180,
  WIDTH = 860,
  LINE = 44,
  SECOND = 24,
  TOP = 92,
  MOST_TEXT = 256,
  NAMES = 240,
  PERCENT_WIDTH = 360
};

static const char style[] =
    "<style>text{font-family:system-ui,sans-serif;font-size:13px;fill:#222}.title{font-size:17px;font-weight:600}"
    ".sub{font-size:12px;fill:#666}.end{text-anchor:end}.step{fill:#0072b2}.memory{fill:#e69f00}.second{fill:#d55e00}"
    ".room{fill:#f0f0f0}</style>\n";

static void text_at(FILE *out, double x, double y, const char *class_name, const char *text) {
  char attributes[48];
  snprintf(attributes, sizeof attributes, "class=\"%s\"", class_name);
  svg_text(out, x, y, attributes, "%s", text);
}

static void bar_at(FILE *out, double x, double y, double width, const char *class_name) {
  char attributes[48];
  snprintf(attributes, sizeof attributes, "rx=\"2\" class=\"%s\"", class_name);
  svg_rect(out, x, y, SLI_MAX(width, 1), 12, attributes);
}

/* Describes a plan, "stages 4, tensor 2, schedule zb-h1": the dimensions that vary, without
 * implied values. */
static void planner_svg_describe(const planner *p, const plan_choice *choice,
                                 char text[MOST_TEXT]) {
  char value[32];
  *text = 0;
  for (int d = 0; d < PLAN_DIMS; d++) {
    const char *own = planner_value(choice, (plan_dim)d, value);
    size_t at = strlen(text);
    bool usual = plan_dims[d].count ? !choice->at[d] && d != PLAN_SCHEDULE : choice->at[d] == 1;
    if (planner_varies(p, (plan_dim)d) && !usual)
      snprintf(text + at, MOST_TEXT - at, "%s%s %s", at ? ", " : "", plan_dims[d].name, own);
  }
}

/* Returns the budget, or the largest memory shown. */
static double most_bytes(const planner *p) {
  double most = (double)p->budget;
  for (size_t i = 0; i < planner_shown(p) && !p->budget; i++)
    most = SLI_MAX(most, (double)p->choices[i].bytes);
  return most;
}

static void draw_plan(const planner *p, size_t i, double y, FILE *out) {
  const plan_choice *c = &p->choices[i], *slowest = &p->choices[planner_shown(p) - 1];
  char text[MOST_TEXT], figure[32];
  planner_svg_describe(p, c, text);
  snprintf(figure, sizeof figure, "%zu", i + 1);
  text_at(out, LEFT - 10, y + 11, "end", figure);
  bar_at(out, LEFT, y, 0.8 * BAR * c->seconds / slowest->seconds, "step");
  text_at(out, LEFT + 0.8 * BAR * c->seconds / slowest->seconds + 6, y + 11, "",
          sli_format_seconds(figure, c->seconds));
  if (p->budget) bar_at(out, MEMORY, y, MEMORY_WIDTH, "room");
  bar_at(out, MEMORY, y, MEMORY_WIDTH * (double)c->bytes / most_bytes(p), "memory");
  text_at(out, MEMORY + MEMORY_WIDTH + 6, y + 11, "", sli_format_bytes(figure, (double)c->bytes));
  text_at(out, LEFT, y + 28, "sub", text);
}

static double percent(const planner *p, plan_dim dim) {
  return 100 * (planner_second(p, dim)->seconds / p->choices[0].seconds - 1);
}

/* Draws the runner-up of a dimension. Bars are truncated at the largest value shown, with the
 * number beside them. */
static void draw_second(const planner *p, plan_dim dim, double most, double y, FILE *out) {
  char text[MOST_TEXT], other[32], own[32];
  const plan_choice *second = planner_second(p, dim);
  snprintf(text, sizeof text, "%s: %s instead of %s", plan_dims[dim].name,
           planner_value(second, dim, other), planner_value(&p->choices[0], dim, own));
  text_at(out, LEFT + NAMES - 10, y + 11, "end", text);
  double width = PERCENT_WIDTH * SLI_MIN(percent(p, dim) / most, 1);
  bar_at(out, LEFT + NAMES, y, width, "second");
  snprintf(text, sizeof text, "%+.1f %%", percent(p, dim));
  text_at(out, LEFT + NAMES + SLI_MAX(width, 1) + 6, y + 11, "", text);
}

static int count_seconds(const planner *p, double *most) {
  enum { FARTHEST = 50 };
  int n = 0;
  *most = 1;
  for (int d = 0; d < PLAN_DIMS; d++)
    if (planner_second(p, (plan_dim)d))
      *most = SLI_MAX(*most, SLI_MIN(percent(p, (plan_dim)d), FARTHEST)), n++;
  return n;
}

static void draw_heads(const planner *p, FILE *out) {
  char text[MOST_TEXT], size[32];
  snprintf(text, sizeof text, "%s on %d devices: the best plans", p->settings->model->name,
           p->devices);
  text_at(out, LEFT, 30, "title", text);
  snprintf(text, sizeof text, "%zu of %zu choices made as plans and run on the virtual clock",
           p->tried, p->count);
  text_at(out, LEFT, 50, "sub", text);
  text_at(out, LEFT, TOP - 12, "sub", "a step");
  if (p->budget)
    snprintf(text, sizeof text, "memory of the largest device, of %s",
             sli_format_bytes(size, (double)p->budget));
  else snprintf(text, sizeof text, "memory of the largest device");
  text_at(out, MEMORY, TOP - 12, "sub", text);
}

static void draw(const planner *p, FILE *out) {
  double most, y = TOP;
  int seconds = count_seconds(p, &most),
      height = TOP + LINE * (int)planner_shown(p) + 40 + SECOND * seconds;
  svg_begin(out, WIDTH, height, "", "The best plans", style);
  draw_heads(p, out);
  for (size_t i = 0; i < planner_shown(p); i++, y += LINE) draw_plan(p, i, y, out);
  if (seconds)
    text_at(out, LEFT, y + 12, "sub", "how much slower the best plan with another choice is");
  y += SECOND;
  for (int d = 0; d < PLAN_DIMS; d++)
    if (planner_second(p, (plan_dim)d)) draw_second(p, (plan_dim)d, most, y, out), y += SECOND;
  svg_end(out);
}

sl_status planner_svg_write(const planner *p, const char *path) {
  sli_atomic_file file;
  sl_status status = sli_atomic_open(path, &file);
  if (status) return status;
  draw(p, file.stream);
  return sli_atomic_commit(&file);
}
