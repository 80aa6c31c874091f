/* actortune plan: its command line, and what it shows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/devices/devices.h"
#include "tools/actortune/actortune.h"

static const sl_option options[] = {
    {"fix", SL_OPTION_TEXT, "", "`LIST` of what is given, such as stages=8,recompute=full: stages, tensor, data, "
     "sequence, experts, expert-tensor, "
     "microbatches, pieces, chunks, schedule, recompute, quotas=own, home, shard", 0, 0},
    {"effort", SL_OPTION_TEXT, "quick", "`HOW` much is looked at: quick, full (more schedules and ways to keep "
     "less, --sequence and --pieces), all (full, and nothing is left out for its bound)", 0, 0},
    {"memory", SL_OPTION_TEXT, "", "budget of each device, a `SIZE` such as 76G; the machine's if not given", 0, 0},
    {"points", SL_OPTION_INT, "5", "plans to show at most", 1, 1000},
    {"threads", SL_OPTION_INT, "0", "cores to search with; 0: all", 0, 4096},
    {0}};

static sl_status read_settings(settings *s) {
  if (sli_kind_find(s->devices.kind)->modelled) s->clock = SL_CLOCK_VIRTUAL;
  return settings_read_budget(s);
}

static const tool planner_tool = {
    .name = "actortune plan",
    .purpose = "Chooses stages, devices that share tensors, sequences, experts and rows, microbatches, chunks, a\n"
               "schedule, what is computed again, what lives elsewhere and what is sharded, within the memory of the\n"
               "devices.",
    .options = options,
    .read = read_settings};

/* ---- showing ---------------------------------------------------------------------------------- */

static int width_of(plan_dim dim) {
  int width = (int)strlen(plan_dims[dim].name);
  for (int w = 0; w < plan_dims[dim].count; w++) width = SLI_MAX(width, (int)strlen(plan_dims[dim].words[w]));
  return width;
}

static void show_value(FILE *out, const plan_choice *c, plan_dim dim, int width) {
  const char *word = planner_word(dim, c->at[dim]);
  if (word) fprintf(out, "  %-*s", width, word);
  else fprintf(out, "  %*d", width, c->at[dim]);
}

static void show_head(FILE *out) {
  fprintf(out, " #       step      memory");
  for (int d = 0; d < PLAN_DIMS; d++)
    fprintf(out, plan_dims[d].count ? "  %-*s" : "  %*s", width_of((plan_dim)d), plan_dims[d].name);
  fprintf(out, "\n");
}

static void show_row(FILE *out, int number, const plan_choice *c) {
  char memory[32], step[32];
  fprintf(out, "%2d  %9s  %10s", number, sli_format_seconds(step, c->seconds),
          sli_format_bytes(memory, (double)c->bytes));
  for (int d = 0; d < PLAN_DIMS; d++) show_value(out, c, (plan_dim)d, width_of((plan_dim)d));
  fprintf(out, "\n");
}

static void show_second(const planner *p, plan_dim dim, FILE *out) {
  const plan_choice *second = planner_second(p, dim);
  if (!second) return;
  fprintf(out, "  %-12s", plan_dims[dim].name);
  show_value(out, second, dim, 1);
  fprintf(out, " instead of");
  show_value(out, &p->choices[0], dim, 1);
  fprintf(out, ": %+.1f %%\n", 100 * (second->seconds / p->choices[0].seconds - 1));
}

static void show_command(const planner *p, int number, const plan_choice *c, FILE *out) {
  static const char *const own[] = {"fix", "effort", "memory", "points", "threads", "version", "help", NULL};
  words w = {0};
  planner_words(p, c, own, &w);
  char *line = words_line(&w);
  fprintf(out, "%2d  %s\n", number, line);
  free(line);
  words_fini(&w);
}

static void show(const planner *p, FILE *out) {
  int shown = 0;
  while (shown < p->points && (size_t)shown < p->tried && p->choices[shown].seconds < INFINITY) shown++;
  fprintf(out, "%s%zu plans of %zu tried in %.1f s\n\n", interrupted() ? "stopped: " : "", p->tried, p->count,
          p->seconds);
  show_head(out);
  for (int i = 0; i < shown; i++) show_row(out, i + 1, &p->choices[i]);
  fprintf(out, "\nwith another choice of\n");
  for (int d = 0; d < PLAN_DIMS; d++) show_second(p, (plan_dim)d, out);
  fprintf(out, "\n");
  for (int i = 0; i < shown; i++) show_command(p, i + 1, &p->choices[i], out);
}

/* ---- from the command line ---------------------------------------------------------------------- */

static sl_status read_effort(const settings *s, planner *p) {
  static const char *const words[] = {"quick", "full", "all", NULL};
  const char *text = sl_arg_text(s->run, "effort");
  p->effort = p->away = strcmp(text, "quick") != 0;
  p->all = !strcmp(text, "all");
  return options_check_word("effort", text, words);
}

static sl_status plan(const settings *s) {
  planner p;
  int threads = (int)sl_arg_int(s->run, "threads");
  sl_status status = planner_init(&p, s);
  p.points = (int)sl_arg_int(s->run, "points");
  p.interrupted = interrupted;
  if (threads) p.threads = threads;
  if (!status) status = read_effort(s, &p);
  if (!status) status = planner_fix(&p, sl_arg_text(s->run, "fix"));
  if (!status) status = planner_search(&p);
  if (!status) show(&p, stdout);
  planner_fini(&p);
  return status;
}

int planner_main(int argc, char **argv) {
  settings s;
  interrupt_catch();
  sl_status status = settings_read(&planner_tool, argc, argv, &s);
  if (!status && !s.done) status = plan(&s);
  if (status) fprintf(stderr, "actortune plan: %s\n", sl_detail());
  settings_fini(&s);
  return sl_status_exit(status);
}
