/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/formats/layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/rows.h"

/* ---- formulas -------------------------------------------------------------------------------- */

static sl_status evaluate(const config *c, const char *formula, double *out) {
  return sli_formula(&(sli_formula_keys){c->path, c->root, ""}, formula, out);
}

static sl_status set_formula(const config *c, const char *option, const char *formula) {
  double value = 0;
  SLI_TRY(evaluate(c, formula, &value));
  char *text = sli_format("%.15g", value);
  sl_status status = isfinite(value) ? config_set(c, formula, option, text)
                                     : sl_fail(SL_E_INPUT, "%s: %s is %s", c->path, formula, text);
  free(text);
  return status;
}

/* Checks an equation "FORMULA = FORMULA". */
static sl_status check_equation(const config *c, const char *equation) {
  double left = 0, right = 0;
  SLI_TRY(evaluate(c, equation, &left));
  SLI_TRY(evaluate(c, strchr(equation, '=') + 1, &right));
  if (left == right) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s: %s is required, and %g is not %g", c->path, equation, left,
                 right);
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* A list's steps run in order. Each gives words to layers, if the file has its key or the step says
 * what an absent key means. A word "+x" is appended, "=x" is the value of formula x, and null
 * changes nothing. */

typedef struct list {
  const config *config;
  const char *key; /* of the last step that ran */
  int layers;
  char **words;
  sl_status status; /* of formulas */
} list;

static sl_status list_fail(const list *l, const char *key, const char *why) {
  return sl_fail(SL_E_INPUT, "%s: %s %s", l->config->path, key, why);
}

static void put_word(list *l, int layer, const cJSON *word) {
  if (!cJSON_IsString(word)) return;
  const char *text = word->valuestring;
  char *old = l->words[layer];
  double value = 0;
  if (*text == '=' && !l->status) l->status = evaluate(l->config, text + 1, &value);
  l->words[layer] = *text == '='   ? sli_format("%.15g", value)
                    : *text == '+' ? sli_format("%s%s", old, text + 1)
                                   : sli_strdup(text);
  free(old);
}

/* Gives a layer the word for a value. */
static sl_status put_value(list *l, const char *key, int layer, const cJSON *words,
                           const char *value) {
  const cJSON *word = cJSON_GetObjectItemCaseSensitive(words, value);
  if (!word) word = cJSON_GetObjectItemCaseSensitive(words, "*"); /* any other */
  if (!word)
    return sl_fail(SL_E_INPUT, "%s: %s: \"%.40s\" is not supported", l->config->path, key, value);
  put_word(l, layer, word);
  return SL_OK;
}

/* Values are items of an array. */
static sl_status step_list(list *l, const char *key, const cJSON *item, const cJSON *words) {
  int n = cJSON_GetArraySize(item);
  if (!cJSON_IsArray(item) || n < l->layers)
    return list_fail(l, key, "is not a list with an item per layer");
  for (int i = 0; i < l->layers; i++) {
    const cJSON *value = cJSON_GetArrayItem(item, i);
    char *text =
        cJSON_IsString(value) ? sli_strdup(value->valuestring) : cJSON_PrintUnformatted(value);
    sl_status status = put_value(l, key, i, words, text);
    free(text);
    if (status) return status;
  }
  return SL_OK;
}

/* Values are letters of a text. */
static sl_status step_letters(list *l, const char *key, const cJSON *item, const cJSON *words) {
  if (!cJSON_IsString(item) || (int)strlen(item->valuestring) != l->layers)
    return list_fail(l, key, "is not a text with a letter per layer");
  sl_status status = SL_OK;
  for (int i = 0; i < l->layers && !status; i++)
    status = put_value(l, key, i, words, (char[]){item->valuestring[i], 0});
  return status;
}

/* The value lists the layers that get words[1]; `first` is the number of the first layer. */
static sl_status give_listed(list *l, const char *key, const cJSON *item, const cJSON *words,
                             int first) {
  const cJSON *index;
  if (!cJSON_IsArray(item)) return list_fail(l, key, "is not a list of layers");
  cJSON_ArrayForEach(
      index, item) if (!cJSON_IsNumber(index) || index->valueint < first ||
                       index->valueint >= l->layers + first ||
                       index->valuedouble !=
                           index->valueint) return list_fail(l, key, "is not a list of layers");
  for (int i = 0; i < l->layers; i++) {
    bool listed = false;
    cJSON_ArrayForEach(index, item) listed |= index->valueint == i + first;
    put_word(l, i, cJSON_GetArrayItem(words, listed));
  }
  return SL_OK;
}

static sl_status step_indices(list *l, const char *key, const cJSON *item, const cJSON *words) {
  return give_listed(l, key, item, words, 0);
}

static sl_status step_numbers(list *l, const char *key, const cJSON *item, const cJSON *words) {
  return give_listed(l, key, item, words, 1);
}

/* Returns N, or the letters of a text such as "LLLG", whose last one differs from the others. */
static int interval_of(const cJSON *item) {
  const char *text = cJSON_IsString(item) ? item->valuestring : "";
  int n = (int)strlen(text);
  if (cJSON_IsNumber(item)) return item->valueint;
  return n > 1 && (int)strspn(text, (char[]){*text, 0}) == n - 1 ? n : -1;
}

/* Every N-th layer gets words[1]; N 0: none. */
static sl_status step_every(list *l, const char *key, const cJSON *item, const cJSON *words) {
  int every = interval_of(item);
  if (every < 0) return list_fail(l, key, "is not a count");
  for (int i = 0; i < l->layers; i++)
    put_word(l, i, cJSON_GetArrayItem(words, every && (i + 1) % every == 0));
  return SL_OK;
}

/* The first N layers get words[0]. */
static sl_status step_first(list *l, const char *key, const cJSON *item, const cJSON *words) {
  if (!cJSON_IsNumber(item)) return list_fail(l, key, "is not a count");
  for (int i = 0; i < l->layers; i++)
    put_word(l, i, cJSON_GetArrayItem(words, i >= item->valueint));
  return SL_OK;
}

/* The last N layers get words[1]. */
static sl_status step_last(list *l, const char *key, const cJSON *item, const cJSON *words) {
  if (!cJSON_IsNumber(item) || item->valueint < 0 || item->valueint > l->layers)
    return list_fail(l, key, "is not a count of layers");
  for (int i = 0; i < l->layers; i++)
    put_word(l, i, cJSON_GetArrayItem(words, i >= l->layers - item->valueint));
  return SL_OK;
}

/* Reads what an object holds for one layer: of members whose word is "=", the number. */
static sl_status read_entry(list *l, const char *key, const cJSON *entry, const cJSON *words) {
  char *end;
  const cJSON *value;
  long layer = strtol(entry->string, &end, 10);
  if (!*entry->string || *end || layer < 0 || layer >= l->layers || !cJSON_IsObject(entry))
    return list_fail(l, key, "is not an object of layers by their numbers");
  cJSON_ArrayForEach(value, entry) {
    const cJSON *word = cJSON_GetObjectItemCaseSensitive(words, value->string);
    if (!word || (cJSON_IsString(word) && !cJSON_IsNumber(value)))
      return sl_fail(SL_E_INPUT, "%s: %s: %s of layer %ld is not supported", l->config->path, key,
                     value->string, layer);
    if (!cJSON_IsString(word)) continue;
    free(l->words[layer]);
    l->words[layer] = config_option_text(value);
  }
  return SL_OK;
}

/* The value is an object with an object for each layer that differs from the others. */
static sl_status step_each(list *l, const char *key, const cJSON *item, const cJSON *words) {
  const cJSON *entry;
  if (!cJSON_IsObject(item))
    return list_fail(l, key, "is not an object of layers by their numbers");
  cJSON_ArrayForEach(entry, item) SLI_TRY(read_entry(l, key, entry, words));
  return SL_OK;
}

/* Gives all layers one word, by the value. */
static sl_status step_value(list *l, const char *key, const cJSON *item, const cJSON *words) {
  char *text = cJSON_IsString(item) ? sli_strdup(item->valuestring) : cJSON_PrintUnformatted(item);
  sl_status status = SL_OK;
  for (int i = 0; i < l->layers && !status; i++) status = put_value(l, key, i, words, text);
  free(text);
  return status;
}

static const struct step {
  const char *name;
  sl_status (*run)(list *l, const char *key, const cJSON *item, const cJSON *words);
} steps[] = {{"list", step_list},       {"letters", step_letters}, {"indices", step_indices},
             {"numbers", step_numbers}, {"every", step_every},     {"first", step_first},
             {"last", step_last},       {"each", step_each},       {"value", step_value}};

static sl_status run_step(list *l, const cJSON *step) {
  const cJSON *all = config_at(step, "all"), *absent = config_at(step, "absent"),
              *set = config_at(step, "if");
  if (absent && config_at(l->config->root, absent->valuestring)) return SL_OK;
  if (set && !cJSON_IsTrue(config_at(l->config->root, set->valuestring))) return SL_OK;
  for (int i = 0; i < l->layers && all; i++) put_word(l, i, all);
  for (size_t s = 0; s < SLI_COUNT(steps); s++) {
    const cJSON *key = config_at(step, steps[s].name);
    if (!key) continue;
    const cJSON *item = config_at(l->config->root, key->valuestring);
    if (item || !l->key) l->key = key->valuestring;
    if (!item) item = config_at(step, "missing");
    return item ? steps[s].run(l, key->valuestring, item, config_at(step, "words")) : SL_OK;
  }
  return SL_OK;
}

/* Returns the length of the shortest run of words that, repeated, gives all of them. */
static int period_of(const list *l) {
  for (int n = 1; n < l->layers; n++) {
    int i = n;
    while (i < l->layers && !strcmp(l->words[i], l->words[i - n])) i++;
    if (i == l->layers) return n;
  }
  return l->layers;
}

static char *joined(const list *l) {
  char *out = sli_strdup("");
  for (int i = 0; i < period_of(l); i++) {
    char *more = sli_format("%s%s%s", out, i ? "," : "", l->words[i]);
    free(out);
    out = more;
  }
  return out;
}

static sl_status set_list(const config *c, const char *option, const cJSON *steps_of) {
  list l = {.config = c, .layers = (int)sl_arg_int(c->target->args, "layers")};
  l.words = sli_calloc((size_t)l.layers + 1, sizeof *l.words);
  for (int i = 0; i < l.layers; i++) l.words[i] = sli_strdup("");
  const cJSON *step;
  sl_status status = SL_OK;
  cJSON_ArrayForEach(step, steps_of) if (!status && !(status = run_step(&l, step))) status =
      l.status;
  for (int i = 0; i < l.layers && !status; i++)
    if (!*l.words[i])
      status = sl_fail(SL_E_INPUT, "%s: no kind of layer %d: %s %s", c->path, i, l.key,
                       config_at(c->root, l.key) ? "lacks it" : "is absent");
  char *text = joined(&l);
  if (!status) status = config_set(c, l.key ? l.key : "model_type", option, text);
  free(text);
  for (int i = 0; i < l.layers; i++) free(l.words[i]);
  free(l.words);
  return status;
}

/* ---- rows ------------------------------------------------------------------------------------ */

sl_status layers_read(const config *c, const family *f) {
  const cJSON *item;
  sl_status status = SL_OK;
  cJSON_ArrayForEach(item, config_at(f->row, "formulas")) if (!status) status =
      set_formula(c, item->string, item->valuestring);
  cJSON_ArrayForEach(item, config_at(f->row, "checks")) if (!status) status =
      check_equation(c, item->valuestring);
  cJSON_ArrayForEach(item, config_at(f->row, "lists")) if (!status) status =
      set_list(c, item->string, item);
  return status;
}

bool layers_set(const family *f, const char *option) {
  return config_at(config_at(f->row, "formulas"), option) ||
         config_at(config_at(f->row, "lists"), option);
}
