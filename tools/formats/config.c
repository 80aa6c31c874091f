/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata fields as options of a model. */
#include "tools/formats/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/ops.h>

#include "base/json_text.h"
#include "io/atomic.h"
#include "models/models.h"

const cJSON *config_at(const cJSON *from, const char *key) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(from, key);
  return item && !cJSON_IsNull(item) ? item : NULL;
}

/* Returns what a key is called in the file. */
static const char *name_of(const config *c, const char *key) {
  const cJSON *name = config_at(c->names, key);
  return name ? name->valuestring : key;
}

static char *number_text(double value) {
  if (value == floor(value) && fabs(value) < 1e15) return sli_format("%.0f", value);
  char *text = sli_format("%.15g", value);
  if (strtod(text, NULL) == value) return text;
  free(text);
  return sli_format("%.17g", value);
}

char *config_option_text(const cJSON *item) {
  if (cJSON_IsNumber(item)) return number_text(item->valuedouble);
  return cJSON_IsBool(item) ? sli_strdup(cJSON_IsTrue(item) ? "1" : "0") : NULL;
}

bool config_near(double a, double b) { return fabs(a - b) <= 1e-6 * fabs(a); }

static bool same_factors(const float *a, const float *b, int pairs) {
  int i = 0;
  while (i < pairs && config_near((double)a[i], (double)b[i])) i++;
  return i == pairs;
}

static bool same_rope(const sl_rope *a, const sl_rope *b) {
  return a->kind == b->kind && config_near(a->factor, b->factor) &&
         config_near(a->original, b->original) && config_near(a->low, b->low) &&
         config_near(a->high, b->high) && config_near(a->scale, b->scale) &&
         config_near(a->part, b->part) && config_near(a->turning, b->turning) &&
         a->chunk == b->chunk && a->local == b->local && a->pairs == b->pairs &&
         same_factors(a->shorter, b->shorter, a->pairs) &&
         same_factors(a->longer, b->longer, a->pairs);
}

bool config_same(const char *option, const char *a, const char *b) {
  sl_rope x, y;
  if (!strcmp(option, "rope"))
    return !sl_rope_parse(a, &x) && !sl_rope_parse(b, &y) && same_rope(&x, &y);
  char *end_a, *end_b;
  float p = strtof(a, &end_a), q = strtof(b, &end_b);
  return *end_a || *end_b ? !strcmp(a, b) : p == q;
}

/* Reports a bad value as the file's fault. */
static sl_status blame(const config *c, sl_status status) {
  if (!status) return SL_OK;
  char *why = sli_strdup(sl_detail());
  sl_fail(SL_E_INPUT, "%s: %s", c->path, why);
  free(why);
  return SL_E_INPUT;
}

sl_status config_set(const config *c, const char *key, const char *option, const char *value) {
  const char *given = NULL;
  for (int i = 0; sl_arg_given(c->target->args, option, i); i++)
    given = sl_arg_given(c->target->args, option, i);
  if (!given) return blame(c, sl_args_describe(c->target->args, option, value));
  if (config_same(option, given, value)) return SL_OK;
  return sl_fail(SL_E_USAGE, "--%s %s contradicts %s, which says %s (%s)", option, given, c->path,
                 value, name_of(c, key));
}

static sl_status set_number(const config *c, const char *key, const char *option,
                            const cJSON *item) {
  char *value = config_option_text(item);
  sl_status status = value ? config_set(c, key, option, value)
                           : sl_fail(SL_E_INPUT, "%s: %s is not a number", c->path, key);
  free(value);
  return status;
}

/* Sets an option by the word that stands for the key's value. */
static sl_status set_word(const config *c, const config_field *f, const cJSON *item) {
  char *text = cJSON_IsString(item) ? sli_strdup(item->valuestring) : cJSON_PrintUnformatted(item);
  const cJSON *word = config_at(f->words, text);
  sl_status status =
      word ? config_set(c, f->key, f->option, word->valuestring)
           : sl_fail(SL_E_INPUT, "%s: %s is %.80s, which is not supported", c->path, f->key, text);
  free(text);
  return status;
}

/* Returns the option's value for a key that is null: what the row says, or off. Returns NULL if
 * neither is known. */
static const char *value_of_null(const config *c, const config_field *f) {
  if (f->null) return f->null;
  const sl_option *o = sl_options_find(c->target->model->options, f->option);
  bool off = (o && o->kind == SL_OPTION_FLAG) || (f->missing && !strcmp(f->missing, "0"));
  return off ? "0" : NULL;
}

static sl_status read_field(const config *c, const config_field *f) {
  const cJSON *item = config_at(c->root, f->key);
  if (!item && f->also) item = config_at(c->root, f->also);
  bool null = f->missing && !item && cJSON_GetObjectItemCaseSensitive(c->root, f->key);
  const char *missing = null ? value_of_null(c, f) : f->missing;
  if (null && !missing)
    return sl_fail(SL_E_INPUT, "%s: %s is null, which is not supported", c->path, f->key);
  if (!item && !missing) return sl_fail(SL_E_INPUT, "%s has no %s", c->path, name_of(c, f->key));
  if (item && f->second) SLI_TRY(set_number(c, f->key, f->second, item));
  if (!item && f->second_missing) SLI_TRY(config_set(c, f->key, f->second, f->second_missing));
  if (item && f->words) return set_word(c, f, item);
  char *value = item ? config_option_text(item) : sli_strdup(missing);
  sl_status status = value ? config_set(c, f->key, f->option, value)
                           : sl_fail(SL_E_INPUT, "%s: %s is not a number", c->path, f->key);
  free(value);
  return status;
}

sl_status config_check_keys(const config *c, const config_field *fields,
                            const sli_key *const *tables) {
  enum { MOST_TABLES = 8 };
  size_t n = 0, ntables = 0;
  while (fields[n].key) n++;
  sli_key read[2 * n + 1];
  const sli_key *all[MOST_TABLES + 1] = {read};
  for (size_t i = 0; i < n; i++) {
    read[2 * i] = (sli_key){.name = fields[i].key};
    read[2 * i + 1] = (sli_key){.name = fields[i].also ? fields[i].also : fields[i].key};
  }
  read[2 * n] = (sli_key){0};
  for (; tables[ntables]; ntables++) all[1 + ntables] = tables[ntables];
  SLI_CHECK(ntables < MOST_TABLES, "more tables of keys");
  return sli_keys_check(c->path, c->root, all);
}

/* Refuses rows longer than the context the model was made for. */
static sl_status limit_context(const config *c) {
  const sl_args *args = c->target->args;
  if (!sl_options_find(c->target->model->options, "positions")) return SL_OK;
  int64_t positions = sl_arg_int(args, "positions");
  if (sl_arg_given(args, "context", 0) || positions >= sl_arg_int(args, "context")) return SL_OK;
  char *value = sli_format("%lld", (long long)positions);
  sl_status status = blame(c, sl_args_describe(c->target->args, "context", value));
  free(value);
  return status;
}

sl_status config_apply(const config *c, const config_field *fields) {
  sl_status status = SL_OK;
  for (const config_field *f = fields; f->key && !status; f++) status = read_field(c, f);
  return status ? status : limit_context(c);
}

sl_status config_check_rope(const config *c, const char *text) {
  sl_rope rope;
  return sl_rope_parse(text, &rope) ? blame(c, SL_E_INPUT) : SL_OK;
}

bool config_is_shipped(const sl_model *model) {
  for (const sl_model *const *m = sli_models; *m; m++)
    if (*m == model) return true;
  return false;
}

/* ---- numbers --------------------------------------------------------------------------------- */

cJSON *config_real(double value) {
  for (int digits = 1; digits <= 17; digits++) {
    char text[40];
    snprintf(text, sizeof text - 2, "%.*g", digits, value);
    if (strtod(text, NULL) != value && digits < 17) continue;
    if (!strpbrk(text, ".en")) strcat(text, ".0");
    return cJSON_CreateRaw(text);
  }
  return NULL;
}

/* Moves to the next number of a JSON text, outside of strings, and returns its length. */
static size_t next_number(const char **at) {
  for (bool quoted = false; **at; ++*at) {
    if (**at == '\\' && quoted && (*at)[1]) ++*at;
    else if (**at == '"') quoted = !quoted;
    else if (!quoted && strchr("-0123456789", **at)) return strspn(*at, "+-.0123456789eE");
  }
  return 0;
}

static void keep_reals(cJSON *item, const char **at) {
  for (; item; item = item->next) {
    keep_reals(item->child, at);
    size_t bytes = cJSON_IsNumber(item) ? next_number(at) : 0;
    if (bytes && strcspn(*at, ".eE") < bytes) {
      item->valuestring = sli_format("%.*s", (int)bytes, *at);
      item->type = cJSON_Raw;
    }
    *at += bytes;
  }
}

void config_keep_reals(cJSON *root, const char *text) { keep_reals(root->child, &text); }

void config_put(cJSON *root, const char *key, cJSON *value) {
  if (!cJSON_ReplaceItemInObjectCaseSensitive(root, key, value))
    cJSON_AddItemToObject(root, key, value);
}

sl_status config_write(const char *path, const cJSON *root) {
  char *text = sli_json_mend(cJSON_Print(root));
  SLI_CHECK(text, "no memory for %s", path);
  sl_status status = sli_atomic_text(path, text);
  cJSON_free(text);
  return status;
}
