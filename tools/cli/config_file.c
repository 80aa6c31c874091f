/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/config_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "io/file.h"
#include "tools/cli/toml.h"

/* Options not allowed in a file, because they ask for something other than a run. */
static bool is_of_line(const char *name) {
  static const char *const names[] = {"config", "print-config", "help", "version"};
  for (size_t i = 0; i < SLI_COUNT(names); i++)
    if (!strcmp(names[i], name)) return true;
  return false;
}

/* ---- reading ------------------------------------------------------------------------ */

/* State while one table of the file is read. */
typedef struct reading {
  settings *s;
  const sl_option *options;
  sl_args *args;
  bool *given; /* options already given on the command line, by index */
  bool of_model;
} reading;

static const char *wanted(sl_option_kind kind, const toml_value *v) {
  switch (kind) {
  case SL_OPTION_INT: return v->kind == TOML_INT && !v->listed ? NULL : "a whole number";
  case SL_OPTION_FLOAT:
    return (v->kind == TOML_INT || v->kind == TOML_FLOAT) && !v->listed ? NULL : "a number";
  case SL_OPTION_FLAG: return v->kind == TOML_FLAG && !v->listed ? NULL : "true or false";
  case SL_OPTION_TEXT:
  case SL_OPTION_LIST: break;
  }
  return v->kind == TOML_TEXT ? NULL : "a string, or an array of strings";
}

static sl_status config_file_refuse(const settings *s, const toml_value *v, const char *why) {
  char *text = sli_strdup(why);
  sl_fail(SL_E_USAGE, "%s:%d: %s%s%s: %s", s->config.path, v->line, v->table ? v->table : "",
          v->table ? "." : "", v->key, text);
  free(text);
  return SL_E_USAGE;
}

static sl_status refuse_unknown(const reading *r, const toml_value *v) {
  const char *near = sl_options_nearest(r->options, v->key);
  char *why =
      near ? sli_format("unknown option; did you mean %s?", near) : sli_strdup("unknown option");
  sl_status status = config_file_refuse(r->s, v, why);
  free(why);
  return status;
}

static sl_status take_value(reading *r, const toml_value *v) {
  if (!r->options)
    return config_file_refuse(r->s, v, "unknown option, and no MODEL is named that could have it");
  int i = 0;
  while (r->options[i].name && strcmp(r->options[i].name, v->key)) i++;
  if (!r->options[i].name) return refuse_unknown(r, v);
  if (!r->of_model && is_of_line(v->key))
    return config_file_refuse(r->s, v, "allowed only on the command line");
  const char *kind = wanted(r->options[i].kind, v);
  if (kind) {
    char *why = sli_format("must be %s", kind);
    sl_status status = config_file_refuse(r->s, v, why);
    free(why);
    return status;
  }
  if (r->given[i]) return SL_OK;
  return sl_args_set(r->args, v->key, v->text) ? config_file_refuse(r->s, v, sl_detail()) : SL_OK;
}

/* Sets the option of one value if it is in the table being read. Values elsewhere are only checked
 * for a known table. */
static sl_status read_value(void *ctx, const toml_value *v) {
  reading *r = ctx;
  bool of_model = v->table && !strcmp(v->table, "model"),
       name = of_model && !strcmp(v->key, "name");
  if (v->table && !of_model)
    return config_file_refuse(r->s, v, "unknown table; the only table is [model]");
  if (name && (v->kind != TOML_TEXT || v->listed))
    return config_file_refuse(r->s, v, "must be a string");
  if (name && !r->of_model) r->s->config.model = sli_arena_strdup(&r->s->arena, v->text);
  return name || of_model != r->of_model ? SL_OK : take_value(r, v);
}

static sl_status read_table(settings *s, const sl_option *options, sl_args *args, bool of_model) {
  size_t count = 0;
  while (options && options[count].name) count++;
  reading r = {s, options, args, sli_calloc(count + 1, sizeof(bool)), of_model};
  for (size_t i = 0; i < count; i++) r.given[i] = sl_arg_given(args, options[i].name, 0);
  sl_status status = toml_read(s->config.path, s->config.text, s->config.bytes, read_value, &r);
  free(r.given);
  return status;
}

sl_status config_file_read(settings *s, const char **model) {
  *model = NULL;
  if (!s->config.path) return SL_OK;
  if (sli_file_read_bytes(s->config.path, &s->config.text, &s->config.bytes)) {
    char *why = sli_strdup(sl_detail());
    sl_fail(SL_E_USAGE, "--config %s: %s", s->config.path, why);
    free(why);
    return SL_E_USAGE;
  }
  sl_status status = read_table(s, s->offered, s->run, false);
  *model = s->config.model;
  return status;
}

sl_status config_file_model(settings *s) {
  if (!s->config.path) return SL_OK;
  return read_table(s, s->model ? s->model->options : NULL, s->model_args, true);
}

/* ---- writing -------------------------------------------------------------------------- */

static void write_string(FILE *out, const char *text) {
  fputc('"', out);
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') fprintf(out, "\\%c", c);
    else if (c < 0x20 || c == 0x7f) fprintf(out, "\\u%04x", c);
    else fputc(c, out);
  }
  fputc('"', out);
}

static void write_number(FILE *out, double value) {
  char text[40];
  snprintf(text, sizeof text, "%.15g", value);
  if (strtod(text, NULL) != value) snprintf(text, sizeof text, "%.17g", value);
  fputs(text, out);
}

static void write_texts(FILE *out, const sl_option *o, const sl_args *args) {
  bool several = sl_arg_given(args, o->name, 1);
  if (several) fputc('[', out);
  const char *text;
  for (int i = 0; (text = sl_arg_given(args, o->name, i)); i++) {
    if (i) fputs(", ", out);
    write_string(out, text);
  }
  if (several) fputc(']', out);
}

static void write_option(FILE *out, const sl_option *o, const sl_args *args) {
  if (!sl_arg_given(args, o->name, 0)) return;
  fprintf(out, "%s = ", o->name);
  if (o->kind == SL_OPTION_FLAG) fputs(sl_arg_flag(args, o->name) ? "true" : "false", out);
  else if (o->kind == SL_OPTION_INT) fprintf(out, "%lld", (long long)sl_arg_int(args, o->name));
  else if (o->kind == SL_OPTION_FLOAT) write_number(out, sl_arg_float(args, o->name));
  else write_texts(out, o, args);
  fputc('\n', out);
}

/* Returns whether MODEL implies the option: a folder of weights given as MODEL is also its
 * --init. */
static bool is_said_by_model(const settings *s, const char *name) {
  const char *text = strcmp(name, "init") ? NULL : settings_text(s, name);
  return text && s->model && !strcmp(text, s->model_word);
}

static void write_all(FILE *out, const settings *s) {
  for (const sl_option *o = s->offered; o->name; o++)
    if (!is_of_line(o->name) && !is_said_by_model(s, o->name)) write_option(out, o, s->run);
  if (!s->model) return;
  fputs("\n[model]\nname = ", out);
  write_string(out, s->model_word);
  fputc('\n', out);
  for (const sl_option *o = s->model->options; o && o->name; o++)
    write_option(out, o, s->model_args);
}

static sl_status no_reader(void *ctx, const toml_value *value) {
  (void)ctx;
  (void)value;
  return SL_OK;
}

sl_status config_file_print(const settings *s) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = sli_memory_stream(&text, &bytes);
  write_all(out, s);
  fclose(out);
  sl_status status = toml_read("--print-config", text, bytes, no_reader, NULL);
  if (!status) fwrite(text, 1, bytes, stdout);
  free(text);
  return status;
}
