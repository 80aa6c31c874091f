/* SPDX-License-Identifier: Apache-2.0 */
/* Options as config.json of the family that has them: the keys of a row in the other direction, and
 * what the row says of others. */
#include "tools/formats/writing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/rows.h"
#include "models/models.h"
#include "tools/formats/reading.h"
#include "tools/formats/rope.h"

/* ---- values of options ----------------------------------------------------------------------- */

static bool evaluate(const cJSON *values, const char *formula, double *out) {
  return !sli_formula(&(sli_formula_keys){"options", values, ""}, formula, out);
}

/* Returns the words of a list that is repeated over the blocks, one per block. */
static cJSON *words_of(const char *list, int64_t blocks) {
  cJSON *out = cJSON_CreateArray();
  const char *at = list;
  for (int64_t i = 0; i < blocks; i++) {
    size_t n = strcspn(at, ",");
    char *word = sli_format("%.*s", (int)n, at);
    cJSON_AddItemToArray(out, cJSON_CreateString(word));
    free(word);
    at = at[n] ? at + n + 1 : list;
  }
  return out;
}

static bool is_of_blocks(const char *option) {
  const cJSON *item;
  cJSON_ArrayForEach(item,
                     family_common("by_block")) if (!strcmp(item->valuestring, option)) return true;
  return false;
}

static cJSON *value_of(const sl_option *o, const sl_args *args) {
  switch (o->kind) {
  case SL_OPTION_INT: return cJSON_CreateNumber((double)sl_arg_int(args, o->name));
  case SL_OPTION_FLOAT: return cJSON_CreateNumber(sl_arg_float(args, o->name));
  case SL_OPTION_FLAG: return cJSON_CreateNumber(sl_arg_flag(args, o->name));
  default: break;
  }
  const char *text = sl_arg_text(args, o->name);
  return is_of_blocks(o->name) ? words_of(text, sl_arg_int(args, "layers"))
                               : cJSON_CreateString(text);
}

/* Adds numbers that formulas may use besides options. */
static void add_others(cJSON *values, const sl_args *args) {
  const cJSON *width = config_at(values, "width"), *feed;
  int experts = 0;
  cJSON_ArrayForEach(feed, config_at(values, "feeds")) experts +=
      !strncmp(feed->valuestring, "experts", 7) || !strncmp(feed->valuestring, "both", 4);
  if (config_at(values, "feeds")) cJSON_AddNumberToObject(values, "expert-blocks", experts);
  sl_rope rope = {0};
  if (width) cJSON_AddNumberToObject(values, "usual-ffn", (width->valueint * 8 / 3 + 63) / 64 * 64);
  if (!config_at(values, "rope") || sl_rope_parse(sl_arg_text(args, "rope"), &rope)) return;
  cJSON_AddNumberToObject(values, "rope-part", rope.part > 0 ? rope.part : 1);
  cJSON_AddNumberToObject(values, "rope-original", rope.original);
  cJSON_AddNumberToObject(values, "rope-plain", rope.kind == SL_ROPE_PLAIN);
}

/* Replaces a 0 that stands for a value that follows from others: of a list of formulas, the first
 * that gives a whole number. */
static void put_usual(cJSON *values, const cJSON *entry) {
  const cJSON *item = config_at(values, entry->string);
  double value = 0.5;
  if (!cJSON_IsNumber(item) || item->valuedouble != 0) return;
  const cJSON *formula = cJSON_IsArray(entry) ? entry->child : entry;
  for (; formula && value != floor(value); formula = cJSON_IsArray(entry) ? formula->next : NULL)
    if (!evaluate(values, formula->valuestring, &value)) return;
  config_put(values, entry->string, cJSON_CreateNumber(value));
}

/* Gives options that nothing reads where a formula is 0 one value each. */
static void put_idle(cJSON *values, const cJSON *entry) {
  double by = 1;
  const cJSON *item;
  if (!evaluate(values, entry->child->valuestring, &by) || by != 0) return;
  cJSON_ArrayForEach(item, entry->child->next) if (config_at(values, item->string))
      config_put(values, item->string, cJSON_Duplicate(item, false));
}

/* Returns the values of a model's options: numbers, texts, and lists with a word per block. */
static cJSON *values_of(const sl_model *model, const sl_args *args) {
  cJSON *out = cJSON_CreateObject();
  const cJSON *entry;
  for (const sl_option *o = model->options; o->name; o++)
    cJSON_AddItemToObject(out, o->name, value_of(o, args));
  add_others(out, args);
  cJSON_ArrayForEach(entry, family_common("idle")) put_idle(out, entry);
  cJSON_ArrayForEach(entry, family_common("usual")) put_usual(out, entry);
  return out;
}

static bool same(const char *option, const cJSON *a, const cJSON *b) {
  if (cJSON_IsString(a)) return config_same(option, a->valuestring, b->valuestring);
  if (cJSON_IsNumber(a)) return config_near(a->valuedouble, b->valuedouble);
  return cJSON_Compare(a, b, true);
}

const char *family_differs(const sl_model *model, const sl_args *a, const sl_args *b) {
  cJSON *one = values_of(model, a), *two = values_of(model, b);
  const char *found = NULL;
  for (const sl_option *o = model->options; o->name && !found; o++) {
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, family_common("runs")) if (!strcmp(item->valuestring, o->name)) break;
    if (!item && !same(o->name, config_at(one, o->name), config_at(two, o->name))) found = o->name;
  }
  cJSON_Delete(one);
  cJSON_Delete(two);
  return found;
}

/* ---- config.json ----------------------------------------------------------------------------- */

typedef struct writing {
  const pretrained *target;
  const cJSON *values; /* of options */
  cJSON *root;
  bool failed; /* some number has no form in config.json */
} writing;

/* Computes a number; a key of type int needs a whole one. */
static double number_of(writing *w, const char *formula, bool whole) {
  double value = 0;
  if (!evaluate(w->values, formula, &value) || (whole && value != floor(value))) w->failed = true;
  return value;
}

/* Returns a word for each block of a list, or by "every" for each N-th and the rest. */
static cJSON *list_json(writing *w, const cJSON *how) {
  cJSON *out = cJSON_CreateArray();
  const cJSON *list = config_at(how, "list"), *every = config_at(how, "every"), *item,
              *words = config_at(how, "words");
  double n = every ? number_of(w, every->valuestring, true) : 0;
  for (int i = 0; i < (int)number_of(w, "layers", true) && every; i++)
    cJSON_AddItemToArray(
        out, cJSON_Duplicate(cJSON_GetArrayItem(words, n != 0 && fmod(i + 1, n) == 0), false));
  const cJSON *all = list ? config_at(w->values, list->valuestring) : NULL;
  cJSON_ArrayForEach(item, all) {
    const cJSON *word = config_at(words, item->valuestring);
    w->failed |= !word;
    if (word) cJSON_AddItemToArray(out, cJSON_Duplicate(word, false));
  }
  return out;
}

/* Returns the numbers of the blocks that have a word. */
static cJSON *blocks_json(writing *w, const cJSON *how) {
  cJSON *out = cJSON_CreateArray();
  const cJSON *item;
  int i = 0;
  cJSON_ArrayForEach(item, config_at(w->values, config_at(how, "blocks")->valuestring)) {
    if (!strcmp(item->valuestring, config_at(how, "word")->valuestring))
      cJSON_AddItemToArray(out, cJSON_CreateNumber(i));
    i++;
  }
  return out;
}

/* Returns what a key has, as a row's "write" says; NULL: nothing. */
static cJSON *entry_json(writing *w, const cJSON *how) {
  const cJSON *when = config_at(how, "if"), *item;
  if (cJSON_IsArray(how)) return cJSON_Duplicate(how->child, true);
  if (cJSON_IsString(how)) return cJSON_CreateNumber(number_of(w, how->valuestring, true));
  if (when) {
    item = config_at(how, number_of(w, when->valuestring, false) != 0 ? "then" : "else");
    return item ? entry_json(w, item) : NULL;
  }
  if ((item = config_at(how, "number")))
    return cJSON_CreateNumber(number_of(w, item->valuestring, false));
  if ((item = config_at(how, "real"))) return config_real(number_of(w, item->valuestring, false));
  if ((item = config_at(how, "flag")))
    return cJSON_CreateBool(number_of(w, item->valuestring, false) != 0);
  if ((item = config_at(how, "option")))
    return cJSON_CreateBool(
        cJSON_Compare(config_at(w->values, item->valuestring), config_at(how, "is"), true));
  return config_at(how, "blocks") ? blocks_json(w, how) : list_json(w, how);
}

/* Returns the value of a field's key. */
static cJSON *field_json(writing *w, const config_field *f) {
  const sl_option *o = sl_options_find(w->target->model->options, f->option);
  const cJSON *item = config_at(w->values, f->option), *word;
  char *text = cJSON_IsNumber(item) ? config_option_text(item) : sli_strdup(item->valuestring);
  cJSON *out = NULL;
  cJSON_ArrayForEach(
      word, f->words) if (!out && cJSON_IsString(word) && !strcmp(word->valuestring, text)) out =
      cJSON_Parse(word->string);
  free(text);
  if (out) return out;
  if (o->kind == SL_OPTION_FLAG) return cJSON_CreateBool(item->valuedouble != 0);
  return o->kind == SL_OPTION_FLOAT ? config_real(item->valuedouble)
                                    : cJSON_CreateNumber(number_of(w, f->option, true));
}

/* Returns config.json, or NULL if it cannot express the options. */
static cJSON *family_write(const family *f, const pretrained *p) {
  static const char *const marks[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
  cJSON *values = values_of(p->model, p->args), *root = cJSON_CreateObject();
  const cJSON *how;
  writing w = {p, values, root, false};
  cJSON_AddItemToArray(cJSON_AddArrayToObject(root, "architectures"),
                       cJSON_CreateString(f->architecture));
  cJSON_AddStringToObject(root, "model_type", f->type);
  for (const config_field *x = f->fields; x->key; x++)
    cJSON_AddItemToObject(root, x->key, field_json(&w, x));
  cJSON_ArrayForEach(how, config_at(f->row, "write")) {
    if (config_at(how, "rope")) rope_put(root, how->string, p);
    cJSON *value = cJSON_IsNull(how) || config_at(how, "rope") ? NULL : entry_json(&w, how);
    if (value) config_put(root, how->string, value);
  }
  for (size_t i = 0; i < SLI_COUNT(marks); i++) cJSON_AddNullToObject(root, marks[i]);
  cJSON_AddStringToObject(root, "torch_dtype", "float32");
  cJSON_Delete(values);
  if (!w.failed) return root;
  cJSON_Delete(root);
  return NULL;
}

/* ---- questions ------------------------------------------------------------------------------- */

/* Returns whether a config.json of the family gives the model's options. */
static bool expresses(const family *f, const pretrained *p, const cJSON *written) {
  pretrained again = *p;
  char *text = cJSON_PrintUnformatted(written), *context = NULL; /* reals are texts in `written` */
  cJSON *root = cJSON_Parse(text);
  bool good = !sl_args_create(p->model->options, &again.args);
  if (good && sl_options_find(p->model->options, "context")) {
    context = sli_format("%lld", (long long)sl_arg_int(p->args, "context"));
    good = !sl_args_set(again.args, "context", context);
  }
  good = good && !family_read(f, &(config){"config.json", root, &again, NULL}) &&
         !family_differs(p->model, p->args, again.args);
  sl_args_destroy(again.args);
  cJSON_Delete(root);
  free(context);
  free(text);
  return good;
}

cJSON *family_config(const pretrained *p) {
  const family *f;
  for (int i = 0; config_is_shipped(p->model) && (f = family_at(i)); i++) {
    if (strcmp(f->model, p->model->name) || !config_at(f->row, "write")) continue;
    cJSON *root = family_write(f, p);
    if (root && expresses(f, p, root)) return root;
    cJSON_Delete(root);
  }
  return NULL;
}
