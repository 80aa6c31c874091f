/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/fingerprint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/file.h"
#include "io/shards/shards.h"

/* ---- values as text ---------------------------------------------------------------------- */

/* Formats a number with the fewest digits that read back the same. */
static char *number_text(double value) {
  if (value == (double)(int)value) return sli_format("%d", (int)value);
  char *text = sli_format("%1.15g", value);
  if (strtod(text, NULL) == value) return text;
  free(text);
  return sli_format("%1.17g", value);
}

char *fingerprint_given(const sl_args *args, const char *name) {
  char *text = sli_strdup("");
  for (int i = 0; sl_arg_given(args, name, i); i++) {
    char *longer = sli_format("%s%s%s", text, i ? " " : "", sl_arg_given(args, name, i));
    free(text);
    text = longer;
  }
  return text;
}

static char *value_text(const sl_args *args, const sl_option *o) {
  bool given = sl_arg_given(args, o->name, 0);
  if (!o->value && !given) return sli_strdup("none");
  switch (o->kind) {
  case SL_OPTION_INT: return number_text((double)sl_arg_int(args, o->name));
  case SL_OPTION_FLOAT: return number_text(sl_arg_float(args, o->name));
  case SL_OPTION_FLAG: return sli_strdup(sl_arg_flag(args, o->name) ? "true" : "false");
  case SL_OPTION_LIST:
  case SL_OPTION_TEXT: break;
  }
  return given ? fingerprint_given(args, o->name) : sli_strdup(o->value);
}

/* Formats an option's default, or returns NULL if it has none. */
static char *usual_text(const sl_option *o) {
  if (!o->value) return NULL;
  switch (o->kind) {
  case SL_OPTION_INT:
  case SL_OPTION_FLOAT: return number_text(strtod(o->value, NULL));
  case SL_OPTION_FLAG: return sli_strdup("false");
  case SL_OPTION_LIST:
  case SL_OPTION_TEXT: break;
  }
  return sli_strdup(o->value);
}

/* ---- fingerprint ------------------------------------------------------------------------- */

void fingerprint_add(fingerprint *fingerprint, char *name, char *value, char *usual) {
  SLI_GROW(fingerprint->usual, fingerprint->count, fingerprint->usual_capacity);
  fingerprint->usual[fingerprint->count] = usual;
  SLI_GROW(fingerprint->items, fingerprint->count, fingerprint->capacity);
  fingerprint->items[fingerprint->count++] = (sl_fingerprint_item){name, value};
}

bool fingerprint_have(const fingerprint *fingerprint, const char *name) {
  for (size_t i = 0; i < fingerprint->count; i++)
    if (!strcmp(fingerprint->items[i].name, name)) return true;
  return false;
}

void fingerprint_fini(fingerprint *fingerprint) {
  for (size_t i = 0; i < fingerprint->count; i++) {
    free((char *)fingerprint->items[i].name);
    free((char *)fingerprint->items[i].value);
    free((char *)fingerprint->usual[i]);
  }
  free(fingerprint->items);
  free(fingerprint->usual);
}

void fingerprint_add_option(fingerprint *fingerprint, const char *prefix, const sl_option *option,
                            const sl_args *args) {
  fingerprint_add(fingerprint, sli_format("%s%s", prefix, option->name), value_text(args, option),
                  usual_text(option));
}

void fingerprint_add_options(fingerprint *fingerprint, const sl_option *options,
                             const sl_args *args, bool (*apart)(const char *name)) {
  for (const sl_option *o = options; o && o->name; o++) {
    if (apart(o->name)) continue;
    char *name = sli_format("--%s", o->name);
    fingerprint_add(
        fingerprint,
        fingerprint_have(fingerprint, name) ? sli_format("the tool's %s", name) : sli_strdup(name),
        value_text(args, o), usual_text(o));
    free(name);
  }
}

/* ---- files ------------------------------------------------------------------------------- */

sl_status fingerprint_add_file(fingerprint *fingerprint, const char *path) {
  uint64_t bytes, hash;
  sl_status status = sli_file_fingerprint(path, &bytes, &hash);
  if (status) return status;
  fingerprint_add(fingerprint, sli_strdup(path),
                  sli_format("with %" PRIu64 " bytes, hash %016" PRIx64, bytes, hash), NULL);
  return SL_OK;
}

sl_status fingerprint_add_weights(fingerprint *fingerprint, const char *path) {
  sli_shards *from;
  sl_status status = sli_shards_open(path, &from);
  if (status) return status;
  for (int i = 0; i < sli_shards_count(from) && !status; i++)
    status = fingerprint_add_file(fingerprint, sli_shards_path(from, i));
  sli_shards_close(from);
  return status;
}

sl_status fingerprint_add_adapter(fingerprint *fingerprint, const char *dir) {
  static const char *const files[] = {"adapter_config.json", "adapter_model.safetensors"};
  sl_status status = SL_OK;
  for (size_t i = 0; i < SLI_COUNT(files) && !status; i++) {
    char *path = sli_format("%s/%s", dir, files[i]);
    status = fingerprint_add_file(fingerprint, path);
    free(path);
  }
  return status;
}
