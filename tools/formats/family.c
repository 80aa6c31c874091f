/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/formats/family.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "io/rows.h"
#include "models/models.h"

extern const char families_json[]; /* families.json */

enum { MOST_TABLES = 8 };

static struct {
  pthread_once_t once;
  family *rows; /* ends with {0} */
  struct {
    const char *name;
    sli_key *keys;
  } keys[MOST_TABLES + 1]; /* keys that are known in all families; ends with {0} */
  cJSON *common;           /* the first row */
} table = {.once = PTHREAD_ONCE_INIT};

/* ---- rows ------------------------------------------------------------------------------------ */

static const char *text_at(const cJSON *from, const char *key) {
  const cJSON *item = config_at(from, key);
  if (cJSON_IsString(item)) return item->valuestring;
  return item ? config_option_text(item) : NULL;
}

/* Removes the keys that a row lacks. */
static void remove_keys(cJSON *row) {
  const cJSON *key;
  cJSON_ArrayForEach(key, config_at(row, "without"))
      cJSON_DeleteItemFromObjectCaseSensitive(cJSON_GetObjectItem(row, "keys"), key->valuestring);
}

/* A field is "option", ["option", missing, null], or an object with these keys. */
static config_field read_field(const cJSON *item) {
  config_field f = {.key = item->string};
  if (cJSON_IsString(item)) f.option = item->valuestring;
  else if (cJSON_IsArray(item)) {
    const cJSON *missing = cJSON_GetArrayItem(item, 1), *null = cJSON_GetArrayItem(item, 2);
    f.option = cJSON_GetArrayItem(item, 0)->valuestring;
    f.missing = cJSON_IsString(missing) ? missing->valuestring : config_option_text(missing);
    if (null) f.null = config_option_text(null);
  } else {
    f.option = text_at(item, "option");
    f.missing = text_at(item, "missing");
    f.null = text_at(item, "null");
    f.also = text_at(item, "also");
    f.words = config_at(item, "words");
    f.second = text_at(item, "and");
    f.second_missing = text_at(item, "and_missing");
  }
  return f;
}

static config_field *read_fields(const cJSON *fields) {
  config_field *out = sli_calloc((size_t)cJSON_GetArraySize(fields) + 1, sizeof *out);
  int n = 0;
  const cJSON *item;
  cJSON_ArrayForEach(item, fields) if (!cJSON_IsNull(item)) out[n++] = read_field(item);
  return out;
}

/* A key is [accepted value, ...]. */
static sli_key *read_keys(const cJSON *keys) {
  sli_key *out = sli_calloc((size_t)cJSON_GetArraySize(keys) + 1, sizeof *out);
  int n = 0;
  const cJSON *item, *value;
  cJSON_ArrayForEach(item, keys) {
    int i = 0;
    out[n].name = item->string;
    SLI_CHECK(cJSON_GetArraySize(item) < (int)SLI_COUNT(out[n].values), "%s: more values",
              item->string);
    cJSON_ArrayForEach(value, item) out[n].values[i++] = cJSON_PrintUnformatted(value);
    n++;
  }
  return out;
}

static fixed_option *read_fixed(const cJSON *options) {
  fixed_option *out = sli_calloc((size_t)cJSON_GetArraySize(options) + 1, sizeof *out);
  int n = 0;
  const cJSON *item;
  cJSON_ArrayForEach(item, options) out[n++] =
      (fixed_option){item->string, text_at(options, item->string)};
  return out;
}

static family read_row(const cJSON *row) {
  const cJSON *rope = config_at(row, "rope"), *every = config_at(row, "full_every");
  return (family){.type = text_at(row, "type"),
                  .architecture = text_at(row, "architecture"),
                  .model = text_at(row, "model"),
                  .other = text_at(row, "other"),
                  .inside = text_at(row, "inside"),
                  .bias = text_at(row, "bias"),
                  .theta = text_at(rope, "theta"),
                  .local_theta = text_at(rope, "local_theta"),
                  .original = text_at(rope, "original"),
                  .part = text_at(rope, "part"),
                  .window = text_at(row, "window"),
                  .switched = cJSON_IsTrue(config_at(row, "switched")),
                  .full_every = every ? every->valueint : 0,
                  .fields = read_fields(config_at(row, "fields")),
                  .keys = read_keys(config_at(row, "keys")),
                  .rope_keys = read_keys(config_at(rope, "keys")),
                  .fixed = read_fixed(config_at(row, "options")),
                  .row = row};
}

/* Reads what all families share, from the first row. */
static void read_common(void) {
  cJSON *all = cJSON_Parse(families_json);
  const cJSON *item;
  int n = 0;
  table.common = cJSON_DetachItemFromArray(all, 0);
  cJSON_ArrayForEach(item, table.common) {
    if (!cJSON_IsObject(item) || !cJSON_IsArray(item->child)) continue;
    SLI_CHECK(n < MOST_TABLES, "more tables of keys");
    table.keys[n].name = item->string;
    table.keys[n++].keys = read_keys(item);
  }
  cJSON_Delete(all);
}

static void read_table(void) {
  static const char *const own[] = {"other", "also", NULL};
  cJSON *rows = sli_rows_parse(families_json, "type", own), *row;
  int n = 0;
  read_common();
  table.rows = sli_calloc((size_t)cJSON_GetArraySize(rows) + 1, sizeof *table.rows);
  while ((row = cJSON_DetachItemFromArray(rows, 0))) {
    remove_keys(row);
    table.rows[n++] = read_row(row);
  }
  cJSON_Delete(rows);
}

/* ---- questions ------------------------------------------------------------------------------- */

const family *family_at(int i) {
  pthread_once(&table.once, read_table);
  return table.rows[i].type ? &table.rows[i] : NULL;
}

const sli_key *family_keys(const char *name) {
  int i = 0;
  pthread_once(&table.once, read_table);
  while (table.keys[i].name && strcmp(table.keys[i].name, name)) i++;
  SLI_CHECK(table.keys[i].name, "families.json: no keys %s", name);
  return table.keys[i].keys;
}

const cJSON *family_common(const char *key) {
  pthread_once(&table.once, read_table);
  return config_at(table.common, key);
}

const family *family_find(const char *type) {
  const family *f;
  for (int i = 0; (f = family_at(i)); i++)
    if (!strcmp(f->type, type)) return f;
  return NULL;
}

bool family_says(const family *f, const char *key, const char *word) {
  const cJSON *item;
  cJSON_ArrayForEach(item,
                     config_at(f->row, key)) if (!strcmp(item->valuestring, word)) return true;
  return false;
}

const char *family_fixes(const family *f, const char *option) {
  for (const fixed_option *o = f->fixed; o->option; o++)
    if (!strcmp(o->option, option)) return o->value;
  return NULL;
}

char *family_types(void) {
  char *out = sli_strdup("");
  const family *f;
  for (int i = 0; (f = family_at(i)); i++) {
    char *more = sli_format("%s%s%s", out, i ? ", " : "", f->type);
    free(out);
    out = more;
  }
  return out;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void print_option(FILE *out, const sl_option *o, const char *value) {
  if (!o || !strcmp(o->name, "names") || !strcmp(o->value, value)) return;
  fprintf(out, o->kind == SL_OPTION_FLAG ? " `--%s`" : " `--%s %s`", o->name, value);
}

static const sl_option *option_of(const family *f, const char *name) {
  for (const sl_model *const *m = sli_models; *m; m++)
    if (!strcmp((*m)->name, f->model)) return sl_options_find((*m)->options, name);
  return NULL;
}

/* Prints the words that a list of the row gives to blocks. */
static void print_list(FILE *out, const family *f, const char *name) {
  const cJSON *steps = config_at(config_at(f->row, "lists"), name), *step, *word;
  char *seen = sli_strdup(",");
  cJSON_ArrayForEach(step, steps) cJSON_ArrayForEach(word, config_at(step, "words")) {
    const char *text = cJSON_IsString(word) ? word->valuestring : "";
    text += *text == '+';
    char *mark = sli_format(",%s,", text);
    if (*text && !strstr(seen, mark)) {
      char *more = sli_format("%s%s,", seen, text);
      free(seen);
      seen = more;
    }
    free(mark);
  }
  if (seen[1]) fprintf(out, " %s: %.*s;", name, (int)strlen(seen) - 2, seen + 1);
  free(seen);
}

void family_print(FILE *out) {
  const family *f;
  fprintf(out,
          "| model_type | class | model | options | per block, and remarks |\n"
          "| --- | --- | --- | --- | --- |\n");
  for (int i = 0; (f = family_at(i)); i++) {
    const char *about = text_at(f->row, "about");
    fprintf(out, "| `%s` | %s | `%s` |", f->type, f->architecture, f->model);
    for (const fixed_option *o = f->fixed; o->option; o++)
      print_option(out, option_of(f, o->option), o->value);
    fprintf(out, " |");
    print_list(out, f, "mixers");
    print_list(out, f, "feeds");
    fprintf(out, "%s%s |\n", about ? " " : "", about ? about : "");
  }
}
