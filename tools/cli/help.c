/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/models.h"

const help_group help_groups[OPTION_GROUPS] = {
    [GROUP_PARALLEL] = {"parallel", "devices, stages, sharding, processes and hosts"},
    [GROUP_MEMORY] = {"memory", "budgets, recompute, offload, storage formats"},
    [GROUP_SCHEDULE] = {"schedule", "schedules, microbatches, pieces, costs"},
    [GROUP_TRAINING] = {"training", "steps, optimizer, LoRA, evaluation, checkpoints"},
    [GROUP_DATA] = {"data", "data and tokenizer, generation, chat"},
    [GROUP_OUTPUT] = {"output", "logs, reports, traces, dry runs, watching a run"},
    [GROUP_SERVING] = {"serving", "listening, requests, ticks, pages, replays"},
    [GROUP_SEARCH] = {"search", "goals and limits of a search"}};

/* ---- groups ---------------------------------------------------------------------- */

static bool is_in(const settings *s, const sl_option *o, int group) {
  return options_group(s->tool->options, o->name) == (option_group)group;
}

sl_option *help_options(const settings *s, int group) {
  size_t n = 0, count = 0;
  while (s->offered[count].name) count++;
  sl_option *of = sli_calloc(count + 1, sizeof *of);
  for (const sl_option *o = s->offered; o->name; o++)
    if (is_in(s, o, group)) of[n++] = *o;
  return of;
}

static bool has_group(const settings *s, int group) {
  for (const sl_option *o = s->offered; o->name; o++)
    if (is_in(s, o, group)) return true;
  return false;
}

void help_group_names(const settings *s, const char *names[OPTION_GROUPS + 2]) {
  int n = 0;
  for (int g = 0; g < OPTION_GROUPS; g++)
    if (has_group(s, g)) names[n++] = help_groups[g].name;
  names[n++] = "all";
  names[n] = NULL;
}

bool help_has_group(const settings *s, const char *word) {
  for (int g = 0; g < OPTION_GROUPS; g++)
    if (!strcmp(help_groups[g].name, word)) return has_group(s, g);
  return !strcmp(word, "all");
}

sl_status help_refuse_group(const settings *s, const char *word) {
  const char *names[OPTION_GROUPS + 2];
  char list[256] = "";
  help_group_names(s, names);
  for (int i = 0; names[i]; i++) {
    size_t at = strlen(list);
    snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", names[i]);
  }
  return sl_fail(SL_E_USAGE, "--help %s: unknown group of options%s; must be one of %s", word,
                 s->tool->no_model || s->model ? "" : " or model", list);
}

/* ---- parts of a text --------------------------------------------------------------- */

/* Prints a row of two columns, the second one wrapped at 80 characters. */
static void print_row(const char *name, const char *text) {
  enum { COLUMN = 24, WIDTH = 80 };
  int at = printf("  %-*s", COLUMN - 2, name);
  for (int word; *text; text += word + (text[word] == ' ')) {
    word = (int)strcspn(text, " ");
    if (at > COLUMN && at + 1 + word > WIDTH) at = printf("\n%*s", COLUMN, "") - 1;
    else if (at > COLUMN) at += printf(" ");
    at += printf("%.*s", word, text);
  }
  printf("\n");
}

static void print_usage(const settings *s) {
  printf("Usage: %s [options]%s\n%s\n%s\n", s->tool->name,
         s->tool->no_model ? "" : " MODEL [model options]", s->tool->usage ? s->tool->usage : "",
         s->tool->purpose);
}

static void print_models(void) {
  printf(
      "MODEL is one of these, a shared object (FILE.so) or a C file (FILE.c), which is\n"
      "compiled on the spot:\n");
  for (const sl_model *const *m = sli_models; *m; m++) print_row((*m)->name, (*m)->summary);
}

static void print_schedules(void) {
  printf("\nSchedules:\n");
  for (const char *const *name = sl_schedule_names(); *name; name++)
    print_row(*name, sl_schedule_summary(*name));
}

static void print_statuses(void) {
  printf(
      "\nExit status: 0 done; 1 the run failed or was stopped; 2 the command line or an\n"
      "input is wrong; 3 the plan cannot finish or does not fit in memory.\n");
}

/* ---- texts --------------------------------------------------------------------------- */

static void print_all(const settings *s) {
  print_usage(s);
  if (!s->tool->no_model) print_models();
  printf("\nOptions:\n");
  sl_options_print(s->offered, stdout);
  if (s->tool->no_model) return;
  if (!s->tool->shared) print_schedules();
  print_statuses();
}

static void print_group(const settings *s, int group) {
  sl_option *shown = help_options(s, group);
  printf("%s: %s\n\n", help_groups[group].name, help_groups[group].help);
  sl_options_print(shown, stdout);
  if (group == GROUP_SCHEDULE && !s->tool->shared) print_schedules();
  free(shown);
}

/* Prints the options of a first run with their short texts, without defaults. */
static void print_first_options(const settings *s) {
  for (const first_option *f = s->tool->first; f->name; f++) {
    const sl_option *o = sl_options_find(s->offered, f->name);
    SLI_CHECK(o, "there is no option --%s", f->name);
    sl_options_print((sl_option[]){{o->name, o->kind, "", f->help, 0, 0}, {0}}, stdout);
  }
}

/* Lists the models, each followed by a comma, in lines of at most 80 columns. Returns the column
 * reached. */
static int print_model_names(void) {
  int column = printf("MODEL is");
  for (const sl_model *const *m = sli_models; *m; m++) {
    if (column + (int)strlen((*m)->name) + 2 > 80) column = printf("\n") - 1;
    column += printf("%s%s,", column ? " " : "", (*m)->name);
  }
  return column;
}

static void print_first(const settings *s) {
  print_usage(s);
  static const char files[] = "FILE.so or FILE.c; see MODEL --help.";
  bool fits = print_model_names() + (int)sizeof files <= 80;
  printf("%c%s\n\nOptions of a first run:\n", fits ? ' ' : '\n', files);
  print_first_options(s);
  printf("\nMore, by %s --help GROUP:\n", s->tool->name);
  for (int g = 0; g < OPTION_GROUPS; g++)
    if (has_group(s, g)) print_row(help_groups[g].name, help_groups[g].help);
  print_row("all", "every option, the models and the exit statuses");
}

static void print_model(const settings *s) {
  printf("Usage: %s [options] %s [model options]\n\n%s\n\nModel options:\n", s->tool->name,
         s->model->name, s->model->summary);
  sl_options_print(s->model->options, stdout);
}

void help_print(const settings *s) {
  for (int g = 0; g < OPTION_GROUPS && s->help_group; g++)
    if (!strcmp(help_groups[g].name, s->help_group)) {
      print_group(s, g);
      return;
    }
  if (s->model && !s->help_group) print_model(s);
  else if (s->tool->first && !s->help_group) print_first(s);
  else print_all(s);
}
