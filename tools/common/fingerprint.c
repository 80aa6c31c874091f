/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/fingerprint.h"

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

void fingerprint_add(fingerprint *t, char *name, char *value, char *usual) {
  SLI_GROW(t->usual, t->count, t->usual_capacity);
  t->usual[t->count] = usual;
  SLI_GROW(t->items, t->count, t->capacity);
  t->items[t->count++] = (sl_fingerprint_item){name, value};
}

bool fingerprint_have(const fingerprint *t, const char *name) {
  for (size_t i = 0; i < t->count; i++)
    if (!strcmp(t->items[i].name, name)) return true;
  return false;
}

void fingerprint_fini(fingerprint *t) {
  for (size_t i = 0; i < t->count; i++) {
    free((char *)t->items[i].name);
    free((char *)t->items[i].value);
    free((char *)t->usual[i]);
  }
  free(t->items);
  free(t->usual);
}

void fingerprint_add_option(fingerprint *t, const char *prefix, const sl_option *option,
                            const sl_args *args) {
  fingerprint_add(t, sli_format("%s%s", prefix, option->name), value_text(args, option),
                  usual_text(option));
}

void fingerprint_add_options(fingerprint *t, const sl_option *options, const sl_args *args,
                             bool (*apart)(const char *name)) {
  for (const sl_option *o = options; o && o->name; o++) {
    if (apart(o->name)) continue;
    char *name = sli_format("--%s", o->name);
    fingerprint_add(
        t, fingerprint_have(t, name) ? sli_format("the tool's %s", name) : sli_strdup(name),
        value_text(args, o), usual_text(o));
    free(name);
  }
}

/* ---- files ------------------------------------------------------------------------------- */

sl_status fingerprint_add_file(fingerprint *t, const char *path) {
  uint64_t bytes, hash;
  sl_status status = sli_file_fingerprint(path, &bytes, &hash);
  if (status) return status;
  fingerprint_add(t, sli_strdup(path),
                  sli_format("with %" PRIu64 " bytes, hash %016" PRIx64, bytes, hash), NULL);
  return SL_OK;
}

sl_status fingerprint_add_weights(fingerprint *t, const char *path) {
  sli_shards *from;
  sl_status status = sli_shards_open(path, &from);
  if (status) return status;
  for (int i = 0; i < sli_shards_count(from) && !status; i++)
    status = fingerprint_add_file(t, sli_shards_path(from, i));
  sli_shards_close(from);
  return status;
}

sl_status fingerprint_add_adapter(fingerprint *t, const char *dir) {
  static const char *const files[] = {"adapter_config.json", "adapter_model.safetensors"};
  sl_status status = SL_OK;
  for (size_t i = 0; i < SLI_COUNT(files) && !status; i++) {
    char *path = sli_format("%s/%s", dir, files[i]);
    status = fingerprint_add_file(t, path);
    free(path);
  }
  return status;
}
