/* SPDX-License-Identifier: Apache-2.0 */
/* Options: one table gives the parser, the checks, the help and suggestions for mistyped names. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/model.h>

#include "base/base.h"
#include "graph/build/build.h"

/* Values given for an option, in order. */
typedef struct values {
  int count;
  size_t capacity;
  char **texts;
  char *all;      /* for a list: all values, one per line */
  bool described; /* the values are a file's, not the user's */
} values;

struct sl_args {
  const sl_option *options;
  int count;
  values *given; /* [count] */
  char **misuse; /* first undeclared option that the model reads; NULL: none */
};

static int count_options(const sl_option *options) {
  int n = 0;
  while (options && options[n].name) n++;
  return n;
}

static int args_find(const sl_args *args, const char *name, size_t length) {
  for (int i = 0; i < args->count; i++)
    if (strlen(args->options[i].name) == length && !memcmp(args->options[i].name, name, length))
      return i;
  return -1;
}

/* ---- checking ------------------------------------------------------------------ */

static sl_status check_range(const sl_option *option, const char *text, double value) {
  if (option->min == option->max || (value >= option->min && value <= option->max)) return SL_OK;
  return sl_fail(SL_E_USAGE, "--%s %s: must be between %.15g and %.15g", option->name, text,
                 option->min, option->max);
}

static sl_status check_value(const sl_option *option, const char *text) {
  char *end;
  errno = 0;
  switch (option->kind) {
  case SL_OPTION_INT: {
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || errno)
      return sl_fail(SL_E_USAGE, "--%s %s: not a whole number", option->name, text);
    return check_range(option, text, (double)v);
  }
  case SL_OPTION_FLOAT: {
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v))
      return sl_fail(SL_E_USAGE, "--%s %s: not a number", option->name, text);
    return check_range(option, text, v);
  }
  case SL_OPTION_FLAG:
    if (strcmp(text, "0") && strcmp(text, "1"))
      return sl_fail(SL_E_USAGE, "--%s=%s: must be 0 or 1", option->name, text);
    return SL_OK;
  case SL_OPTION_TEXT:
  case SL_OPTION_LIST: return SL_OK;
  }
  return sl_fail(SL_E_USAGE, "--%s: the model declares an unknown kind of option, %d", option->name,
                 (int)option->kind);
}

/* ---- setting values ---------------------------------------------------------------- */

sl_status sl_args_create(const sl_option *options, sl_args **out) {
  sl_args *args = sli_calloc(1, sizeof *args);
  args->options = options;
  args->count = count_options(options);
  args->given = sli_calloc((size_t)args->count, sizeof *args->given);
  args->misuse = sli_calloc(1, sizeof *args->misuse);
  for (int i = 0; i < args->count; i++) {
    sl_status status = options[i].value ? check_value(&options[i], options[i].value) : SL_OK;
    if (status) {
      sl_args_destroy(args);
      return status;
    }
  }
  *out = args;
  return SL_OK;
}

void sl_args_destroy(sl_args *args) {
  if (!args) return;
  for (int i = 0; i < args->count; i++) {
    for (int k = 0; k < args->given[i].count; k++) free(args->given[i].texts[k]);
    free(args->given[i].texts);
    free(args->given[i].all);
  }
  free(args->given);
  free(*args->misuse);
  free(args->misuse);
  free(args);
}

static void add_line(values *v, const char *text) {
  char *longer = v->all ? sli_format("%s\n%s", v->all, text) : sli_strdup(text);
  free(v->all);
  v->all = longer;
}

static sl_status give(sl_args *args, int index, const char *text) {
  sl_status status = check_value(&args->options[index], text);
  if (status) return status;
  values *v = &args->given[index];
  if (args->options[index].kind == SL_OPTION_LIST) add_line(v, text);
  SLI_GROW(v->texts, (size_t)v->count, v->capacity);
  v->texts[v->count++] = sli_strdup(text);
  return SL_OK;
}

sl_status sl_args_set(sl_args *args, const char *name, const char *value) {
  int index = args_find(args, name, strlen(name));
  if (index < 0) return sl_fail(SL_E_USAGE, "unknown option --%s", name);
  args->given[index].described = false;
  return give(args, index, value);
}

sl_status sl_args_describe(sl_args *args, const char *name, const char *value) {
  SLI_TRY(sl_args_set(args, name, value));
  args->given[args_find(args, name, strlen(name))].described = true;
  return SL_OK;
}

sl_status sl_args_take(sl_args *args, int nwords, char *const *words, int *used) {
  *used = 0;
  if (nwords < 1 || strncmp(words[0], "--", 2)) return SL_OK;
  const char *name = words[0] + 2, *equals = strchr(name, '=');
  int index = args_find(args, name, equals ? (size_t)(equals - name) : strlen(name));
  if (index < 0) return SL_OK;
  const sl_option *option = &args->options[index];
  bool flag = option->kind == SL_OPTION_FLAG;
  if (!equals && !flag && nwords < 2)
    return sl_fail(SL_E_USAGE, "--%s needs a value", option->name);
  const char *value = equals ? equals + 1 : flag ? "1" : words[1];
  sl_status status = give(args, index, value);
  if (!status) *used = equals || flag ? 1 : 2;
  return status;
}

sl_status sl_args_complete(const sl_args *args) {
  for (int i = 0; i < args->count; i++)
    if (!args->options[i].value && !args->given[i].count)
      return sl_fail(SL_E_USAGE, "--%s is required: %s", args->options[i].name,
                     args->options[i].help ? args->options[i].help : "it has no default");
  return SL_OK;
}

/* ---- reading values ---------------------------------------------------------------- */

/* Records the first misuse. */
static void note_misuse(const sl_args *args, const char *name, const char *what) {
  if (!*args->misuse) *args->misuse = sli_format("the model reads option --%s, %s", name, what);
}

static const char undeclared[] = "which its table of options does not declare";

sl_status sl_args_status(const sl_args *args) {
  return *args->misuse ? sl_fail(SL_E_USAGE, "%s", *args->misuse) : SL_OK;
}

static bool is_kind(const sl_option *option, sl_option_kind kind) {
  return option->kind == kind || (kind == SL_OPTION_TEXT && option->kind == SL_OPTION_LIST);
}

/* Returns the text of an option's value. If the model misuses the option, records this and returns
 * "0", or "" for texts. */
static const char *value_of(const sl_args *args, const char *name, sl_option_kind kind) {
  int i = args_find(args, name, strlen(name));
  const char *text = NULL;
  if (i < 0) note_misuse(args, name, undeclared);
  else if (!is_kind(&args->options[i], kind))
    note_misuse(args, name, "which its table of options declares with a different type");
  else {
    const values *v = &args->given[i];
    text = v->all ? v->all : v->count ? v->texts[v->count - 1] : args->options[i].value;
    if (!text) note_misuse(args, name, "which has no value");
  }
  return text ? text : kind == SL_OPTION_TEXT ? "" : "0";
}

int64_t sl_arg_int(const sl_args *args, const char *name) {
  return strtoll(value_of(args, name, SL_OPTION_INT), NULL, 10);
}

double sl_arg_float(const sl_args *args, const char *name) {
  return strtod(value_of(args, name, SL_OPTION_FLOAT), NULL);
}

const char *sl_arg_text(const sl_args *args, const char *name) {
  return value_of(args, name, SL_OPTION_TEXT);
}

bool sl_arg_flag(const sl_args *args, const char *name) {
  return value_of(args, name, SL_OPTION_FLAG)[0] == '1';
}

const char *sl_arg_given(const sl_args *args, const char *name, int i) {
  int index = args_find(args, name, strlen(name));
  if (index < 0) note_misuse(args, name, undeclared);
  if (index < 0) return NULL;
  const values *v = &args->given[index];
  return i < v->count ? v->texts[i] : NULL;
}

bool sl_arg_chosen(const sl_args *args, const char *name) {
  return sl_arg_given(args, name, 0) && !args->given[args_find(args, name, strlen(name))].described;
}

/* Returns a setting of the optimizer. A value from the user applies, even 0. A default of the table
 * applies unless it equals AdamW's default; then the setting is 0, and the op's default applies. */
static float setting(const sl_args *args, const char *name, float adamws) {
  float value = (float)sl_arg_float(args, name);
  if (value == adamws && !sl_arg_given(args, name, 0)) return 0;
  return value == 0 ? SL_OFF : value;
}

sl_optimizer sl_arg_optimizer(const sl_args *args) {
  float lr = (float)sl_arg_float(args, "lr"), min_lr = (float)sl_arg_float(args, "min-lr");
  float clip = (float)sl_arg_float(args, "clip");
  return (sl_optimizer){.lr = lr == 0 ? SL_OFF : lr,
                        .min_lr = min_lr == 0 ? SL_OFF : min_lr,
                        .warmup = sl_arg_int(args, "warmup"),
                        .decay_steps = sl_arg_int(args, "decay-steps"),
                        .beta1 = setting(args, "beta1", 0.9f),
                        .beta2 = setting(args, "beta2", 0.95f),
                        .weight_decay = setting(args, "weight-decay", 0.1f),
                        .clip = clip == 0 ? SL_OFF : clip};
}

/* ---- help ------------------------------------------------------------------------ */

void sli_option_word(const sl_option *option, char *out, size_t bytes) {
  static const char *const words[] = {[SL_OPTION_INT] = "N",
                                      [SL_OPTION_FLOAT] = "X",
                                      [SL_OPTION_TEXT] = "TEXT",
                                      [SL_OPTION_LIST] = "TEXT",
                                      [SL_OPTION_FLAG] = ""};
  const char *open = option->help ? strchr(option->help, '`') : NULL;
  const char *close = open ? strchr(open + 1, '`') : NULL;
  if (close) snprintf(out, bytes, "%.*s", (int)(close - open - 1), open + 1);
  else snprintf(out, bytes, "%s", words[option->kind]);
}

/* Returns a help text after the placeholder that it may begin with, which stands before it. */
static const char *after_word(const char *help) {
  const char *close = *help == '`' ? strchr(help + 1, '`') : NULL;
  return close ? close + 1 + strspn(close + 1, ":, ") : help;
}

char *sli_option_text(const sl_option *option) {
  char *text = sli_format("%s", option->help ? after_word(option->help) : "");
  size_t n = 0;
  for (const char *p = text; *p; p++)
    if (*p != '`') text[n++] = *p;
  text[n] = 0;
  char *full;
  if (option->kind == SL_OPTION_FLAG || (option->value && !*option->value))
    full = sli_format("%s", text);
  else if (option->value) full = sli_format("%s [%s]", text, option->value);
  else full = sli_format("%s (needed)", text);
  free(text);
  return full;
}

/* Prints words from column `from` to `to`, wrapped; `at` is the current column. */
static void print_wrapped(const char *text, int at, int from, int to, FILE *out) {
  while (*text) {
    int word = (int)strcspn(text, " ");
    if (at > from && at + 1 + word > to) {
      fprintf(out, "\n%*s", from, "");
      at = from;
    } else if (at > from) {
      fputc(' ', out), at++;
    }
    fprintf(out, "%.*s", word, text);
    at += word;
    text += word + (text[word] == ' ');
  }
  fputc('\n', out);
}

void sl_options_print(const sl_option *options, FILE *out) {
  enum { COLUMN = 24, WIDTH = 80 };
  for (const sl_option *o = options; o && o->name; o++) {
    char word[32];
    sli_option_word(o, word, sizeof word);
    int at = fprintf(out, "  --%s%s%s", o->name, *word ? " " : "", word);
    if (at >= COLUMN) {
      fputc('\n', out);
      at = 0;
    }
    fprintf(out, "%*s", COLUMN - at, "");
    char *text = sli_option_text(o);
    print_wrapped(text, COLUMN, COLUMN, WIDTH, out);
    free(text);
  }
}

const sl_option *sl_options_find(const sl_option *options, const char *name) {
  for (; options && options->name; options++)
    if (!strcmp(options->name, name)) return options;
  return NULL;
}

const char *sl_options_nearest(const sl_option *options, const char *name) {
  size_t n = 0;
  while (options && options[n].name) n++;
  const char **names = sli_calloc(n + 1, sizeof *names);
  for (size_t i = 0; i < n; i++) names[i] = options[i].name;
  const char *near = sli_nearest(names, name);
  free(names);
  return near;
}
