/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: `TOOL [options] MODEL [model options]`.
 *
 * One table of options defines the parser, the help and the report. After MODEL, the model's
 * options are known as well and take precedence. */
#include "tools/cli/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sluice/version.h>

#include "io/shards/shards.h"
#include "tools/cli/config_file.h"
#include "tools/cli/help.h"
#include "tools/cli/manual.h"
#include "tools/cli/model.h"
#include "tools/cli/options.h"
#include "tools/cli/texts.h"

/* ---- words --------------------------------------------------------------------------- */

static sl_status unknown_option(const settings *s, const char *word) {
  char name[64];
  snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
  const char *bare = name + strspn(name, "-");
  const char *near = s->model ? sl_options_nearest(s->model->options, bare) : NULL;
  if (!near) near = sl_options_nearest(s->offered, bare);
  if (near) return sl_fail(SL_E_USAGE, "unknown option %s; did you mean --%s?", name, near);
  return sl_fail(SL_E_USAGE, "unknown option %s; %s --help lists them", name, s->tool->name);
}

static bool is_offered(const settings *s, const char *word) {
  if (strncmp(word, "--", 2)) return false;
  size_t length = strcspn(word + 2, "=");
  for (const sl_option *o = s->offered; o->name; o++)
    if (strlen(o->name) == length && !memcmp(o->name, word + 2, length)) return true;
  return false;
}

/* Returns the full name of a one-letter option, or NULL if the tool has no such option. */
static char *full_name(const settings *s, const char *word) {
  static char help[] = "--help", processes[] = "--processes", output[] = "--output";
  char *full = !strcmp(word, "-h")   ? help
               : !strcmp(word, "-n") ? processes
               : !strcmp(word, "-o") ? output
                                     : NULL;
  return full && is_offered(s, full) ? full : NULL;
}

/* Returns whether the word after --help may be a model: a built-in one, or a path. */
static bool may_be_model(const settings *s, const char *word) {
  return !s->model && !s->tool->no_model &&
         (model_is_shipped(word) || strpbrk(word, "./") || !access(word, F_OK));
}

/* Takes --help from the front of the words, with the group after it. */
static sl_status take_help(settings *s, int nwords, char **words, int *used) {
  const char *inside = strchr(words[0], '='), *group = inside ? inside + 1
                                                       : nwords > 1 && words[1][0] != '-' ? words[1]
                                                                                          : NULL;
  *used = 1;
  if (group && help_has_group(s, group)) s->help_group = group, *used = inside ? 1 : 2;
  else if (group && (inside || !may_be_model(s, group))) return help_refuse_group(s, group);
  return sl_args_set(s->run, "help", "1");
}

/* Takes --config from the front of the words. It is not stored among the options, which may be
 * passed on to other processes. */
static sl_status take_config(settings *s, int nwords, char **words, int *used) {
  const char *inside = strchr(words[0], '=');
  if (!inside && nwords < 2) return sl_fail(SL_E_USAGE, "--config needs a value");
  if (s->config.path)
    return sl_fail(SL_E_USAGE, "--config %s: only one file is allowed, and %s was given first",
                   inside ? inside + 1 : words[1], s->config.path);
  s->config.path = inside ? inside + 1 : words[1];
  *used = inside ? 1 : 2;
  return SL_OK;
}

static bool is_called(const char *word, const char *option) {
  size_t length = strlen(option);
  return !strncmp(word, option, length) && (!word[length] || word[length] == '=');
}

/* Takes one option from the front of the words. */
static sl_status take_option(settings *s, int nwords, char **words, int *used) {
  char *full = full_name(s, words[0]);
  sl_status status = SL_OK;
  *used = 0;
  if (is_called(full ? full : words[0], "--help")) status = take_help(s, nwords, words, used);
  else if (is_called(words[0], "--config")) status = take_config(s, nwords, words, used);
  else if (!strcmp(words[0], "--print-config")) s->config.print = true, *used = 1;
  else if (full)
    status = sl_args_take(s->run, nwords, (char *[]){full, nwords > 1 ? words[1] : NULL}, used);
  else if (s->model) status = sl_args_take(s->model_args, nwords, words, used);
  if (!full && !status && !*used && is_offered(s, words[0]))
    status = sl_args_take(s->run, nwords, words, used);
  if (!status && !*used) status = unknown_option(s, words[0]);
  return status;
}

/* Resolves MODEL: the word itself, or the model of the weights it names. */
static sl_status name_model(settings *s, const char *word, const char **out) {
  const char *model = NULL;
  *out = word;
  sl_status status =
      s->tool->takes_weights && !model_is_shipped(word) ? pretrained_model(word, &model) : SL_OK;
  if (status || !model) return status;
  if (settings_text(s, "init"))
    return sl_fail(SL_E_USAGE, "--init %s: %s has weights of its own", settings_text(s, "init"),
                   word);
  *out = model;
  return sl_args_set(s->run, "init", word);
}

static sl_status take_model(settings *s, const char *word) {
  const char *name;
  s->model_word = word;
  sl_status status = name_model(s, word, &name);
  if (!status) status = model_find(name, s->tool->commands, &s->model);
  return status ? status : sl_args_create(s->model->options, &s->model_args);
}

static bool is_option(const char *word) { return word[0] == '-' && word[1]; }

/* Returns how many words an option takes that comes before MODEL and is unknown to the tool. It may
 * be the model's, so the words are kept until the model is known. The option is assumed to have a
 * value. */
static int early_words(int nwords, char **words) {
  bool value = !strchr(words[0], '=') && nwords > 1 && !is_option(words[1]);
  return value ? 2 : 1;
}

static bool is_early(const settings *s, const char *word) {
  return !s->model && !strncmp(word, "--", 2) && !is_offered(s, word);
}

static sl_status take_early(settings *s, int nwords, char **words) {
  int used, kept = early_words(nwords, words);
  sl_status status = sl_args_take(s->model_args, nwords, words, &used);
  if (status || used == kept) return status;
  if (used)
    return sl_fail(SL_E_USAGE, "%s must come after %s: it is the model's option", words[0],
                   s->model_word);
  const sl_model *model = s->model;
  if (sl_options_nearest(s->offered, words[0] + 2))
    s->model = NULL; /* more likely a mistyped option of the tool */
  status = unknown_option(s, words[0]);
  s->model = model;
  return status;
}

/* Takes MODEL, and then the options that came before it. */
static sl_status take_model_and(settings *s, char **words, int at, const int *early, int count) {
  sl_status status = take_model(s, words[at]);
  for (int e = 0; e < count && !status; e++)
    status = take_early(s, at - early[e], words + early[e]);
  return status;
}

/* If no MODEL is given, takes the model that the weights of --init belong to. */
static sl_status take_init(settings *s, int nwords, char **words, const int *early, int count) {
  const char *init = s->model || !s->tool->takes_weights ? NULL : settings_text(s, "init"),
             *model = NULL;
  if (init && access(init, F_OK)) return sl_fail(SL_E_INPUT, "--init %s: no such file", init);
  sl_status status = init ? pretrained_model(init, &model) : SL_OK;
  if (status || !model) return status;
  s->model_word = model;
  status = model_find(model, NULL, &s->model);
  if (!status) status = sl_args_create(s->model->options, &s->model_args);
  for (int e = 0; e < count && !status; e++)
    status = take_early(s, nwords - early[e], words + early[e]);
  return status;
}

/* Takes the --config file, and the MODEL it names if the command line has none. */
static sl_status take_file(settings *s, int nwords, char **words, const int *early, int count) {
  const char *model;
  sl_status status = config_file_read(s, &model);
  if (status || !model || s->model || s->tool->no_model) return status;
  status = take_model(s, model);
  for (int e = 0; e < count && !status; e++)
    status = take_early(s, nwords - early[e], words + early[e]);
  return status;
}

static sl_status take_words(settings *s, int nwords, char **words) {
  int early[nwords + 1], count = 0;
  for (int i = 0, used; i < nwords; i += used) {
    sl_status status = SL_OK;
    used = 1;
    if (is_option(words[i]) && is_early(s, words[i])) {
      early[count++] = i;
      used = early_words(nwords - i, words + i);
    } else if (is_option(words[i])) status = take_option(s, nwords - i, words + i, &used);
    else if (s->tool->no_model)
      status = sl_fail(SL_E_USAGE, "%s: %s takes options only", words[i], s->tool->name);
    else if (!s->model) status = take_model_and(s, words, i, early, count);
    else
      status =
          sl_fail(SL_E_USAGE, "%s: only one model is allowed, and this is not an option", words[i]);
    if (status) return status;
  }
  sl_status status = take_file(s, nwords, words, early, count);
  if (!status) status = take_init(s, nwords, words, early, count);
  if (!status) status = config_file_model(s);
  if (status || s->model || !count) return status;
  if (s->tool->takes_weights && settings_text(s, "init"))
    return sl_fail(SL_E_USAGE,
                   "unknown option %s, and no MODEL was given that could have it; see %s --help",
                   words[early[0]], s->tool->name);
  return unknown_option(s, words[early[0]]);
}

sl_status settings_read(const tool *tool, int argc, char **argv, settings *out) {
  *out = (settings){.tool = tool, .options = options_table(tool->options)};
  out->offered = options_offered(out->options, tool->options, tool->shared);
  sl_status status = sl_args_create(out->options, &out->run);
  if (!status && manual_asked(out, argc, argv)) return out->done = true, SL_OK;
  if (!status) status = take_words(out, argc - 1, argv + 1);
  if (status) return status;
  out->done = true;
  if (sl_arg_flag(out->run, "help")) {
    help_print(out);
    return SL_OK;
  }
  if (sl_arg_flag(out->run, "version")) {
    printf("%s %s\n", tool->name, sl_version());
    return SL_OK;
  }
  if (sl_options_find(out->options, "families") && sl_arg_flag(out->run, "families")) {
    huggingface_print_families();
    return SL_OK;
  }
  out->done = false;
  bool needed =
      !tool->no_model && (!tool->without_model || !sl_arg_flag(out->run, tool->without_model));
  if (!out->model && needed)
    return sl_fail(SL_E_USAGE, "no MODEL was given; see %s --help", tool->name);
  if (out->model && (status = sl_args_complete(out->model_args))) return status;
  if (out->config.print) return out->done = true, config_file_print(out);
  status = texts_read(out);
  return status ? status : tool->read(out);
}

pretrained settings_pretrained(const settings *s) {
  return (pretrained){.model = s->model,
                      .args = s->model_args,
                      .init = settings_text(s, "init"),
                      .adapter = s->adapter,
                      .tokenizer = s->data.tokenizer,
                      .arena = (sli_arena *)&s->arena};
}

/* Returns the tokenizer.json beside a file with a model and its weights, or NULL. */
static char *tokenizer_beside(settings *s) {
  const char *slash = strrchr(s->model_word, '/');
  int folder = slash ? (int)(slash + 1 - s->model_word) : 0;
  char *path = sli_arena_format(&s->arena, "%.*stokenizer.json", folder, s->model_word);
  return model_has_weights(s->model_word) && !access(path, F_OK) ? path : NULL;
}

sl_status settings_read_pretrained(settings *s) {
  pretrained p = settings_pretrained(s);
  p.tokenizer = settings_text(s, "tokenizer");
  if (!p.tokenizer && s->model_word) p.tokenizer = tokenizer_beside(s);
  sl_status status = pretrained_read(&p);
  s->data.tokenizer = p.tokenizer;
  return status;
}

void settings_fini(settings *s) {
  profile_destroy(s->profile);
  sli_shards_close(s->frozen);
  sl_args_destroy(s->run);
  sl_args_destroy(s->model_args);
  sli_arena_fini(&s->arena);
  free(s->config.text);
  free(s->options);
  free(s->offered);
}
