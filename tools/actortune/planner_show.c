/* SPDX-License-Identifier: Apache-2.0 */
/* Output of actortune plan: the best plans as a table, the cost of each dimension's second
 * choice, and each plan's command; and as JSON. */
#include "tools/actortune/planner_show.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "io/atomic.h"
#include "io/json.h"
#include "tools/actortune/actortune.h"

size_t planner_shown(const planner *p) {
  size_t shown = 0;
  while (shown < (size_t)p->points && shown < p->tried && p->choices[shown].seconds < INFINITY)
    shown++;
  return shown;
}

bool planner_varies(const planner *p, plan_dim dim) {
  bool varies = false;
  for (size_t i = 1; i < p->count; i++) varies |= p->choices[i].at[dim] != p->choices[0].at[dim];
  return varies;
}

const char *planner_value(const plan_choice *choice, plan_dim dim, char text[32]) {
  const char *word = planner_word(dim, choice->at[dim]);
  if (!word) snprintf(text, 32, "%d", choice->at[dim]);
  return word ? word : text;
}

/* ---- the table ------------------------------------------------------------------------------- */

static int width_of(plan_dim dim) {
  int width = (int)strlen(plan_dims[dim].name);
  for (int w = 0; w < plan_dims[dim].count; w++)
    width = SLI_MAX(width, (int)strlen(plan_dims[dim].words[w]));
  return width;
}

/* Prints a cell: words aligned left, numbers right. */
static void show_cell(FILE *out, plan_dim dim, const char *text) {
  fprintf(out, plan_dims[dim].count ? "  %-*s" : "  %*s", width_of(dim), text);
}

static void show_head(const planner *p, FILE *out) {
  fprintf(out, " #       step      memory");
  for (int d = 0; d < PLAN_DIMS; d++)
    if (planner_varies(p, (plan_dim)d)) show_cell(out, (plan_dim)d, plan_dims[d].name);
  fprintf(out, "\n");
}

static void show_row(const planner *p, size_t i, FILE *out) {
  const plan_choice *c = &p->choices[i];
  char memory[32], step[32], value[32];
  fprintf(out, "%2zu  %9s  %10s", i + 1, sli_format_seconds(step, c->seconds),
          sli_format_bytes(memory, (double)c->bytes));
  for (int d = 0; d < PLAN_DIMS; d++)
    if (planner_varies(p, (plan_dim)d))
      show_cell(out, (plan_dim)d, planner_value(c, (plan_dim)d, value));
  fprintf(out, "\n");
}

static void show_second(const planner *p, plan_dim dim, FILE *out) {
  const plan_choice *second = planner_second(p, dim), *best = &p->choices[0];
  char other[32], own[32];
  if (second)
    fprintf(out, "  %-13s %s instead of %s: %+.1f %%\n", plan_dims[dim].name,
            planner_value(second, dim, other), planner_value(best, dim, own),
            100 * (second->seconds / best->seconds - 1));
  if (second || !(second = planner_second_estimate(p, dim))) return;
  fprintf(out, "  %-13s %s instead of %s: about %+.0f %%\n", plan_dims[dim].name,
          planner_value(second, dim, other), planner_value(best, dim, own),
          100 * (second->estimate / best->seconds - 1));
}

/* Makes the command, without the options of the search. */
static void command_of(const planner *p, const plan_choice *choice, words *to) {
  static const char *const own[] = {"fix",  "effort", "memory",  "points", "threads",
                                    "json", "svg",    "version", "help",   NULL};
  planner_words(p, choice, own, to);
}

static void show_command(const planner *p, size_t i, FILE *out) {
  words w = {0};
  command_of(p, &p->choices[i], &w);
  char *line = words_line(&w);
  fprintf(out, "%2zu  %s\n", i + 1, line);
  free(line);
  words_fini(&w);
}

/* Prints how the search went: what was estimated, by what, and why the rest was not. */
static void show_search(const planner *p, FILE *out) {
  size_t slower = p->count - p->left_out - p->estimated;
  if (!p->estimated) return;
  fprintf(out,
          "%zu estimated from %zu samples of %d layers, %zu of them on skeletons; %zu proved\n",
          p->estimated, p->nsamples, planner_sample_layers(p), p->refined, p->tried);
  fprintf(out, "left out: %zu too large, %zu slower than the best by a lower bound\n", p->left_out,
          slower);
}

void planner_show(const planner *p, FILE *out) {
  size_t shown = planner_shown(p);
  fprintf(out, "%s%zu plans of %zu tried in %.1f s\n", interrupted() ? "stopped: " : "", p->tried,
          p->count, p->seconds);
  show_search(p, out);
  fprintf(out, "\n");
  show_head(p, out);
  for (size_t i = 0; i < shown; i++) show_row(p, i, out);
  fprintf(out, "\nwith another choice of\n");
  for (int d = 0; d < PLAN_DIMS; d++) show_second(p, (plan_dim)d, out);
  fprintf(out, "\n");
  for (size_t i = 0; i < shown; i++) show_command(p, i, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void add_value(cJSON *to, const plan_choice *choice, plan_dim dim) {
  const char *word = planner_word(dim, choice->at[dim]);
  if (word) cJSON_AddStringToObject(to, plan_dims[dim].name, word);
  else cJSON_AddNumberToObject(to, plan_dims[dim].name, choice->at[dim]);
}

static cJSON *plan_json(const planner *p, const plan_choice *choice) {
  cJSON *o = cJSON_CreateObject();
  char hash[32];
  words w = {0};
  cJSON_AddNumberToObject(o, "step_seconds", choice->seconds);
  cJSON_AddNumberToObject(o, "memory_bytes", (double)choice->bytes);
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)choice->hash);
  if (choice->exact) cJSON_AddStringToObject(o, "plan_hash", hash);
  for (int d = 0; d < PLAN_DIMS; d++) add_value(o, choice, (plan_dim)d);
  command_of(p, choice, &w);
  cJSON *list = cJSON_AddArrayToObject(o, "words");
  for (size_t i = 0; i < w.count; i++) cJSON_AddItemToArray(list, cJSON_CreateString(w.items[i]));
  words_fini(&w);
  return o;
}

static void add_search(cJSON *root, const planner *p) {
  const struct {
    const char *name;
    size_t count;
  } counts[] = {{"choices", p->count},    {"too_large", p->left_out}, {"estimated", p->estimated},
                {"samples", p->nsamples}, {"skeletons", p->refined},  {"proved", p->tried}};
  cJSON *search = cJSON_AddObjectToObject(root, "search");
  for (size_t i = 0; i < SLI_COUNT(counts); i++)
    cJSON_AddNumberToObject(search, counts[i].name, (double)counts[i].count);
}

sl_status planner_json_write(const planner *p, const char *path) {
  cJSON *root = cJSON_CreateObject(), *plans = cJSON_AddArrayToObject(root, "plans");
  for (size_t i = 0; i < planner_shown(p); i++)
    cJSON_AddItemToArray(plans, plan_json(p, &p->choices[i]));
  cJSON *seconds = cJSON_AddObjectToObject(root, "second");
  for (int d = 0; d < PLAN_DIMS; d++)
    if (planner_second(p, (plan_dim)d))
      cJSON_AddItemToObject(seconds, plan_dims[d].name,
                            plan_json(p, planner_second(p, (plan_dim)d)));
  add_search(root, p);
  return sli_json_write(path, root);
}
