/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/manual.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/version.h>

#include "graph/build/build.h"
#include "models/models.h"
#include "tools/cli/help.h"

/* ---- man pages ------------------------------------------------------------------------ */

/* Prints text with all characters escaped that roff would interpret. */
static void print_roff(const char *text, size_t bytes) {
  bool begins = true;
  for (size_t i = 0; i < bytes; i++) {
    char c = text[i];
    if (begins && (c == '.' || c == '\'')) printf("\\&");
    if (c == '\\') printf("\\e");
    else if (c == '-') printf("\\-");
    else putchar(c);
    begins = c == '\n';
  }
}

static void print_upper(const char *text) {
  for (; *text; text++) putchar(toupper((unsigned char)*text));
}

/* Returns the length of the first sentence, without its full stop. */
static size_t sentence(const char *text) {
  const char *stop = text;
  while (*stop && !(*stop == '.' && (!stop[1] || isspace((unsigned char)stop[1])))) stop++;
  return (size_t)(stop - text);
}

void manual_section(const char *title) {
  printf(".SH \"");
  print_upper(title);
  printf("\"\n");
}

static void print_synopsis(const char *usage) {
  printf(".nf\n");
  while (*usage) {
    size_t line = strcspn(usage, "\n");
    size_t space = strspn(usage, " ");
    print_roff(usage + space, line - space);
    printf("\n");
    usage += line + (usage[line] == '\n');
  }
  printf(".fi\n");
}

void manual_begin(const char *tool, const char *purpose, const char *usage) {
  printf(".TH ");
  print_upper(tool);
  printf(" 1 \"\" \"Sluice %s\" \"Sluice\"\n.ad l\n.nh\n.SH NAME\n%s \\- %c", sl_version(), tool,
         tolower((unsigned char)*purpose));
  for (size_t i = 1, n = sentence(purpose); i < n; i++)
    putchar(purpose[i] == '\n' ? ' ' : purpose[i]);
  printf("\n.SH SYNOPSIS\n");
  print_synopsis(usage);
  printf(".SH DESCRIPTION\n");
  print_roff(purpose, strlen(purpose));
  printf("\n");
}

void manual_row(const char *name, const char *text) {
  printf(".TP\n.B ");
  print_roff(name, strlen(name));
  printf("\n");
  print_roff(text, strlen(text));
  printf("\n");
}

void manual_options(const sl_option *options) {
  for (const sl_option *o = options; o->name; o++) {
    char word[32];
    sli_option_word(o, word, sizeof word);
    printf(".TP\n.BI \\-\\-");
    print_roff(o->name, strlen(o->name));
    if (*word) printf(" \" %s\"", word);
    printf("\n");
    char *text = sli_option_text(o);
    print_roff(text, strlen(text));
    printf("\n");
    free(text);
  }
}

static void print_groups(const settings *s) {
  for (int g = 0; g < OPTION_GROUPS; g++) {
    sl_option *of = help_options(s, g);
    if (of->name) {
      printf(".SS \"%s: %s\"\n", help_groups[g].name, help_groups[g].help);
      manual_options(of);
    }
    free(of);
  }
}

static void print_models(void) {
  manual_section("Models");
  printf("MODEL is one of these, a shared object (FILE.so) or a C file (FILE.c).\n");
  for (const sl_model *const *m = sli_models; *m; m++) manual_row((*m)->name, (*m)->summary);
  for (const sl_model *const *m = sli_models; *m; m++) {
    printf(".SS \"Options of %s\"\n", (*m)->name);
    manual_options((*m)->options);
  }
}

static char *usage_of(const tool *t) {
  return sli_format("%s [options]%s\n%s", t->name, t->no_model ? "" : " MODEL [model options]",
                    t->usage ? t->usage : "");
}

/* Prints the sections of a page other than its options. */
static void print_rest(const settings *s) {
  if (!s->tool->no_model) print_models();
  if (!s->tool->shared) {
    manual_section("Schedules");
    for (const char *const *name = sl_schedule_names(); *name; name++)
      manual_row(*name, sl_schedule_summary(*name));
  }
  manual_section("Exit status");
  static const char *const statuses[] = {"done", "the run failed or was stopped",
                                         "the command line or an input is wrong",
                                         "the plan cannot finish or does not fit in memory"};
  for (int i = 0; i < (int)SLI_COUNT(statuses); i++)
    manual_row((char[]){(char)('0' + i), 0}, statuses[i]);
}

static void print_manual(const settings *s) {
  bool command = strchr(s->tool->name, ' ');
  char *usage = usage_of(s->tool);
  if (command) {
    manual_section(s->tool->name);
    print_synopsis(usage);
    print_roff(s->tool->purpose, strlen(s->tool->purpose));
    printf("\n");
  } else {
    manual_begin(s->tool->name, s->tool->purpose, usage);
    manual_section("Options");
  }
  print_groups(s);
  if (!command) print_rest(s);
  free(usage);
}

/* ---- completion -------------------------------------------------------------------------- */

static void print_names(const char *table, const char *key, const sl_option *options, bool flags) {
  printf("%s[\"%s\"]+=\"", table, key);
  for (const sl_option *o = options; o->name; o++)
    if (!flags || o->kind == SL_OPTION_FLAG) printf(" --%s", o->name);
  printf(" \"\n");
}

static void print_values(const char *key, const char *option, const char *const *words) {
  printf("_sluice_values[\"%s --%s\"]=\"", key, option);
  for (; *words; words++)
    if (**words) printf(" %s", *words);
  printf("\"\n");
}

void completion_options(const char *key, const sl_option *options) {
  printf("declare -gA _sluice_options _sluice_flags _sluice_values _sluice_commands\n");
  print_names("_sluice_options", key, options, false);
  print_names("_sluice_flags", key, options, true);
}

void completion_commands(const char *key, const char *words) {
  printf("_sluice_commands[\"%s\"]=\"%s\"\n", key, words);
}

void completion_end(const char *tool) {
  fputs(
      "_sluice() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} key=${COMP_WORDS[0]##*/} at words=\n"
      "  [[ $word != = ]] || word=\n"
      "  [[ $before != = ]] || before=${COMP_WORDS[COMP_CWORD-2]}\n"
      "  [[ -z ${_sluice_options[$key ${COMP_WORDS[1]-}]-} ]] || key+=\" ${COMP_WORDS[1]}\"\n"
      "  COMPREPLY=()\n"
      "  for at in \"${COMP_WORDS[@]:0:COMP_CWORD}\"; do\n"
      "    [[ -z $at || -z ${_sluice_options[model $at]-} ]] || words+=${_sluice_options[model $at]}\n"
      "  done\n"
      "  if [[ -n ${_sluice_values[$key $before]-} ]]; then\n"
      "    words=${_sluice_values[$key $before]}\n"
      "  elif [[ $before == --* && \"${_sluice_options[$key]-}$words \" == *\" $before \"* &&\n"
      "          ${_sluice_flags[$key]-} != *\" $before \"* ]]; then\n"
      "    return # a file, or what only the user knows\n"
      "  elif [[ $word == -* ]]; then\n"
      "    words+=${_sluice_options[$key]-}\n"
      "  else\n"
      "    words=${_sluice_commands[$key]-}\n"
      "  fi\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
      "}\n",
      stdout);
  printf("complete -o bashdefault -o default -F _sluice %s\n", tool);
}

/* Prints the options for completion, keyed by the tool, or by tool and subcommand. A subcommand
 * that is an option uses the tool's key. */
static void print_completion(const settings *s) {
  const char *name = s->tool->name, *option = strstr(name, " --");
  char *key = option ? sli_format("%.*s", (int)(option - name), name) : sli_strdup(name);
  completion_options(key, s->offered);
  for (const sl_option *o = s->offered; o->name; o++) {
    const char *const *words = options_completed(s->tool->options, o->name);
    if (words) print_values(key, o->name, words);
  }
  const char *groups[OPTION_GROUPS + 2] = {NULL};
  help_group_names(s, groups);
  print_values(key, "help", groups);
  if (!strchr(name, ' ')) {
    printf("_sluice_commands[\"%s\"]=\"%s", key, s->tool->commands ? s->tool->commands : "");
    for (const sl_model *const *m = sli_models; *m; m++) printf(" %s", (*m)->name);
    printf("\"\n");
    for (const sl_model *const *m = sli_models; *m; m++) {
      char *model = sli_format("model %s", (*m)->name);
      printf("_sluice_options[\"%s\"]=\n_sluice_flags[\"%s\"]=\n", model, model);
      completion_options(model, (*m)->options);
      free(model);
    }
    completion_end(name);
  }
  free(key);
}

/* ---- commands without settings -------------------------------------------------------------- */

static void print_section(const manual_command *c) {
  manual_section(c->name);
  print_synopsis(c->usage);
  print_roff(c->purpose, strlen(c->purpose));
  printf("\n");
  manual_options(c->options);
}

bool manual_command_asked(const manual_command *c, int argc, char **argv) {
  const char *word = argc == 1 ? argv[0] : "";
  if (!strcmp(word, "--print-man")) print_section(c);
  else if (!strcmp(word, "--print-completion"))
    completion_options(c->name, c->options), completion_commands(c->name, c->words);
  else return false;
  return true;
}

void manual_command_help(const manual_command *c, FILE *out) {
  const char *indent = "Usage: ";
  for (const char *line = c->usage; *line; line += *line == '\n') {
    size_t length = strcspn(line, "\n");
    fprintf(out, "%s%.*s\n", indent, (int)length, line);
    line += length;
    indent = "       ";
  }
  fprintf(out, "\n%s\n\nOptions:\n", c->purpose);
  sl_options_print(c->options, out);
}

/* ---- both --------------------------------------------------------------------------------- */

bool manual_asked(const settings *s, int argc, char **argv) {
  bool alone = argc == 2 || (argc == 3 && strchr(argv[1], '='));
  const char *word = alone ? argv[argc - 1] : "";
  if (!strcmp(word, "--print-man")) print_manual(s);
  else if (!strcmp(word, "--print-completion")) print_completion(s);
  else return false;
  return true;
}
