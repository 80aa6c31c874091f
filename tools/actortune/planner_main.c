/* actortune plan: its command line, and what it shows. */
#include "tools/actortune/planner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/number.h"
#include "graph/devices/devices.h"
#include "graph/lower/lower.h"

static const sl_option options[] = {
    {"fix", SL_OPTION_TEXT, "", "`LIST` of what is given, such as stages=8,recompute=full: stages, tensor, data, "
     "microbatches, chunks, schedule, recompute, shard", 0, 0},
    {"effort", SL_OPTION_TEXT, "quick", "`HOW` much is looked at: quick, full (more schedules and ways to keep "
     "less), all (full, and nothing is left out for its bound)", 0, 0},
    {"memory", SL_OPTION_TEXT, "", "budget of each device, a `SIZE` such as 76G; the machine's if not given", 0, 0},
    {"points", SL_OPTION_INT, "5", "plans to show at most", 1, 1000},
    {"threads", SL_OPTION_INT, "0", "cores to search with; 0: all", 0, 4096},
    {0}};

/* What a plan is to be had of: devices that are described, or that were measured. */
static sl_status read_settings(settings *s) {
  const sli_kind *kind = sli_kind_find(s->devices.kind);
  bool known = sli_cost_is_given(&s->modelled.cost) || s->profile || s->modelled.hardware.flops_per_second > 0;
  if (!known && !kind->modelled)
    return sl_fail(SL_E_USAGE, "plan on %s devices: how long anything takes there is not known; --machine FILE "
                   "says, or --profile REPORT of an earlier run", kind->name);
  if (kind->modelled) s->clock = SL_CLOCK_VIRTUAL;
  return settings_read_budget(s);
}

static const tool planner_tool = {
    .name = "actortune plan",
    .purpose = "Chooses stages, devices that share tensors and rows, microbatches, chunks, a schedule,\n"
               "what is computed again and what is sharded, within the memory of the devices.",
    .options = options,
    .read = read_settings};

/* ---- showing ---------------------------------------------------------------------------------- */

static void choice_words(const planner *p, const plan_choice *c, words *to) {
  static const char *const said[PLAN_DIMS] = {"stages", "tensor", "data-parallel", "microbatches",
                                              "chunks", "schedule", "recompute", "shard"};
  static const char *const own[] = {"fix", "effort", "memory", "points", "threads", "devices", "version", "help"};
  const settings *s = p->settings;
  words_add(to, "--devices"), words_add(to, "%s:%d", s->devices.kind, p->devices);
  for (const sl_option *o = s->options; o->name; o++) {
    bool apart = false;
    for (size_t i = 0; i < SLI_COUNT(own); i++) apart |= !strcmp(own[i], o->name);
    for (int d = 0; d < PLAN_DIMS; d++) apart |= !strcmp(said[d], o->name);
    if (!apart) words_given(o, s->run, to);
  }
  for (int d = 0; d < PLAN_DIMS; d++) {
    const char *word = plan_word((plan_dim)d, c->at[d]);
    if (d == PLAN_CHUNKS && c->at[d] == sl_schedule_chunks(plan_word(PLAN_SCHEDULE, c->at[PLAN_SCHEDULE]))) continue;
    words_add(to, "--%s", said[d]);
    if (word) words_add(to, "%s", word);
    else words_add(to, "%d", c->at[d]);
  }
  words_model(s, to);
}

static void show_value(FILE *out, const plan_choice *c, plan_dim dim, int width) {
  const char *word = plan_word(dim, c->at[dim]);
  if (word) fprintf(out, "  %-*s", width, word);
  else fprintf(out, "  %*d", width, c->at[dim]);
}

static void show_row(FILE *out, int number, const plan_choice *c) {
  static const int widths[PLAN_DIMS] = {6, 6, 4, 12, 6, 11, 9, 10};
  char memory[32], step[32];
  fprintf(out, "%2d  %9s  %10s", number, sli_format_seconds(step, c->seconds),
          sli_format_bytes(memory, (double)c->bytes));
  for (int d = 0; d < PLAN_DIMS; d++) show_value(out, c, (plan_dim)d, widths[d]);
  fprintf(out, "\n");
}

/* The best plan that has another value of a dimension. */
static void show_second(const planner *p, plan_dim dim, FILE *out) {
  static const char *const names[PLAN_DIMS] = {"stages", "tensor", "data", "microbatches",
                                               "chunks", "schedule", "recompute", "shard"};
  const plan_choice *best = &p->choices[0];
  for (size_t i = 1; i < p->count; i++) {
    const plan_choice *c = &p->choices[i];
    if (c->at[dim] == best->at[dim] || !(c->seconds < INFINITY)) continue;
    fprintf(out, "  %-12s", names[dim]);
    show_value(out, c, dim, 1);
    fprintf(out, " instead of");
    show_value(out, best, dim, 1);
    fprintf(out, ": %+.1f %%\n", 100 * (c->seconds / best->seconds - 1));
    return;
  }
}

void planner_show(const planner *p, int most, FILE *out) {
  fprintf(out, "%s%zu plans of %zu tried in %.1f s\n\n", p->interrupted ? "stopped: " : "", p->tried, p->count,
          p->seconds);
  fprintf(out, " #       step      memory  stages  tensor  data  microbatches  chunks  schedule     recompute  shard\n");
  for (int i = 0; i < most && (size_t)i < p->count && p->choices[i].seconds < INFINITY; i++)
    show_row(out, i + 1, &p->choices[i]);
  fprintf(out, "\nwith another choice of\n");
  for (int d = 0; d < PLAN_DIMS; d++) show_second(p, (plan_dim)d, out);
  fprintf(out, "\n");
  for (int i = 0; i < most && (size_t)i < p->count && p->choices[i].seconds < INFINITY; i++) {
    words w = {0};
    choice_words(p, &p->choices[i], &w);
    char *line = words_line(&w);
    fprintf(out, "%2d  %s\n", i + 1, line);
    free(line);
    words_fini(&w);
  }
}

/* ---- from the command line ---------------------------------------------------------------------- */

static sl_status read_effort(const settings *s, planner *p) {
  static const char *const words[] = {"quick", "full", "all", NULL};
  const char *text = sl_arg_text(s->run, "effort");
  p->effort = strcmp(text, "quick") != 0;
  p->all = !strcmp(text, "all");
  return options_check_word("effort", text, words);
}

static int batch_of(const settings *s) {
  for (const sl_option *o = s->model->options; o && o->name; o++)
    if (!strcmp(o->name, "batch") && o->kind == SL_OPTION_INT) return (int)sl_arg_int(s->model_args, "batch");
  return 0;
}

static sl_status plan(const settings *s) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int threads = (int)sl_arg_int(s->run, "threads");
  planner p = {.settings = s, .devices = SLI_MAX(s->devices.count, 1), .batch = batch_of(s),
               .threads = threads ? threads : (int)SLI_MAX(cores, 1)};
  p.budget = settings_text(s, "memory") ? s->devices.budget_bytes : s->modelled.hardware.memory_bytes;
  sl_status status = read_effort(s, &p);
  if (!status) status = planner_fix(&p, sl_arg_text(s->run, "fix"));
  if (!status) status = planner_list(&p);
  if (!status) status = planner_search(&p);
  if (!status) planner_show(&p, (int)sl_arg_int(s->run, "points"), stdout);
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
