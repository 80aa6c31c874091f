/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/formats/gguf_config.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/ops.h>

#include "io/rows.h"
#include "ops/layout.h"
#include "tools/formats/config.h"

typedef struct making {
  const char *path, *prefix; /* prefix: the architecture and a dot */
  const sli_gguf *file;
  const cJSON *row;
  cJSON *own;   /* the architecture's keys without the prefix, with arrays */
  cJSON *out;   /* config.json */
  cJSON *names; /* the file's keys by those of config.json */
} making;

/* ---- keys ------------------------------------------------------------------------------------ */

/* Collects the architecture's keys. */
static void collect(making *m) {
  size_t n = strlen(m->prefix);
  const cJSON *item;
  const char *key;
  cJSON_ArrayForEach(item, sli_gguf_metadata(m->file)) if (!strncmp(item->string, m->prefix, n))
      cJSON_AddItemToObject(m->own, item->string + n, cJSON_Duplicate(item, true));
  for (size_t i = 0; (key = sli_gguf_array_key(m->file, i)); i++)
    if (!strncmp(key, m->prefix, n))
      cJSON_AddItemToObject(m->own, key + n, sli_gguf_array(m->file, key));
}

/* Puts a value at a key of config.json, or at "KEY.KEY..." inside of objects. Takes ownership. */
static void put_at(making *m, const char *key, cJSON *value) {
  cJSON *object = m->out;
  for (const char *dot; (dot = strchr(key, '.')); key = dot + 1) {
    char *outer = sli_format("%.*s", (int)(dot - key), key);
    cJSON *inner = cJSON_GetObjectItemCaseSensitive(object, outer);
    object = inner ? inner : cJSON_AddObjectToObject(object, outer);
    free(outer);
  }
  config_put(object, key, value);
}

static void put(making *m, const char *key, const char *own, cJSON *value) {
  char *name = sli_format("%s%s", m->prefix, own);
  const char *last = strrchr(key, '.');
  put_at(m, key, value);
  config_put(m->names, last ? last + 1 : key, cJSON_CreateString(name));
  free(name);
}

/* Returns the text by which a value is listed among words. */
static char *text_of(const cJSON *value) {
  return cJSON_IsString(value) ? sli_strdup(value->valuestring) : cJSON_PrintUnformatted(value);
}

static sl_status unsupported(const making *m, const cJSON *item) {
  char *text = cJSON_IsArray(item) ? sli_strdup("an array") : text_of(item);
  sl_fail(SL_E_INPUT, "%s: %s%s is %.80s, which is not supported", m->path, m->prefix, item->string,
          text);
  free(text);
  return SL_E_INPUT;
}

/* Returns the one number other than 0 of a list by layers. NULL: there are several. */
static const cJSON *only_of(const cJSON *list) {
  const cJSON *item, *found = list->child;
  cJSON_ArrayForEach(item, list) {
    if (!cJSON_IsNumber(item)) return NULL;
    if (found->valuedouble == 0) found = item;
    if (item->valuedouble != 0 && item->valuedouble != found->valuedouble) return NULL;
  }
  return found;
}

static sl_status check_value(const making *m, const cJSON *item, const cJSON *accepted) {
  const cJSON *value;
  if (!accepted->child) return SL_OK;
  cJSON_ArrayForEach(value, accepted) if (cJSON_Compare(item, value, true)) return SL_OK;
  return unsupported(m, item);
}

/* Puts the word that stands for a value. */
static sl_status put_word(making *m, const cJSON *item, const cJSON *entry) {
  char *text = text_of(item);
  const cJSON *word = config_at(config_at(entry, "words"), text);
  free(text);
  if (!word) return unsupported(m, item);
  put(m, config_at(entry, "to")->valuestring, item->string, cJSON_Duplicate(word, false));
  return SL_OK;
}

/* Puts the number of the layers where another key's list says no, and that of the others. */
static sl_status put_split(making *m, const cJSON *item, const cJSON *entry) {
  const cJSON *by = config_at(m->own, config_at(entry, "by")->valuestring), *of[2] = {NULL}, *value;
  int i = 0;
  if (!cJSON_IsArray(by)) return unsupported(m, item);
  cJSON_ArrayForEach(value, by) {
    const cJSON *own = cJSON_IsArray(item) ? cJSON_GetArrayItem(item, i) : item;
    bool is = cJSON_IsTrue(value) || value->valuedouble != 0;
    i++;
    if (!own || (of[is] && of[is]->valuedouble != own->valuedouble)) return unsupported(m, item);
    of[is] = own;
  }
  for (i = 0; i < 2; i++)
    if (of[i])
      put(m, cJSON_GetArrayItem(config_at(entry, "split"), i)->valuestring, item->string,
          cJSON_Duplicate(of[i], false));
  return SL_OK;
}

/* Puts the least number of a list, and whether other layers have twice as much. */
static sl_status put_twice(making *m, const cJSON *item, const cJSON *entry) {
  const cJSON *value, *least = cJSON_IsArray(item) ? item->child : item;
  bool twice = false;
  cJSON_ArrayForEach(value, item) if (value->valuedouble < least->valuedouble) least = value;
  if (!cJSON_IsNumber(least)) return unsupported(m, item);
  cJSON_ArrayForEach(value, item) {
    if (value->valuedouble == 2 * least->valuedouble) twice = true;
    else if (value->valuedouble != least->valuedouble) return unsupported(m, item);
  }
  put(m, config_at(entry, "to")->valuestring, item->string, cJSON_Duplicate(least, false));
  put_at(m, config_at(entry, "twice")->valuestring, cJSON_CreateBool(twice));
  return SL_OK;
}

static sl_status take_key(making *m, const cJSON *item) {
  const cJSON *entry = config_at(config_at(m->row, "keys"), item->string);
  if (!entry && sli_key_off(item)) return SL_OK;
  if (!entry)
    return sl_fail(SL_E_INPUT, "%s: %s%s is not understood", m->path, m->prefix, item->string);
  if (cJSON_IsArray(entry)) return check_value(m, item, entry);
  if (config_at(entry, "split")) return put_split(m, item, entry);
  if (config_at(entry, "twice")) return put_twice(m, item, entry);
  if (cJSON_IsObject(entry)) return put_word(m, item, entry);
  const cJSON *value = cJSON_IsArray(item) ? only_of(item) : item;
  if (!value) return unsupported(m, item);
  put(m, entry->valuestring, item->string, cJSON_Duplicate(value, true));
  return SL_OK;
}

/* ---- what no single key says ----------------------------------------------------------------- */

static sl_status formula(const making *m, const char *text, double *out) {
  return sli_formula(&(sli_formula_keys){m->path, m->own, ""}, text, out);
}

const cJSON *gguf_formula(const cJSON *entry, const sli_formula_keys *keys, double *out) {
  const cJSON *by = config_at(entry, "by");
  if (by) {
    const cJSON *value = config_at(keys->root, by->valuestring), *words = config_at(entry, "words");
    char *text = value ? text_of(value) : sli_strdup("*");
    const cJSON *chosen = config_at(words, text);
    free(text);
    entry = chosen ? chosen : config_at(words, "*");
  }
  const cJSON *item = cJSON_IsArray(entry) ? entry->child : entry;
  for (; item; item = cJSON_IsArray(entry) ? item->next : NULL)
    if (!sli_formula(keys, item->valuestring, out)) return item;
  return NULL;
}

static void take_formula(making *m, const cJSON *entry) {
  double value = 0;
  const cJSON *used = gguf_formula(entry, &(sli_formula_keys){m->path, m->own, ""}, &value);
  if (used) put(m, entry->string, used->valuestring, cJSON_CreateNumber(value));
}

/* Checks an equation, or of a list the first, whose keys are there. */
static sl_status check_equation(const making *m, const cJSON *entry) {
  const cJSON *item = cJSON_IsArray(entry) ? entry->child : entry;
  for (; item; item = cJSON_IsArray(entry) ? item->next : NULL) {
    const char *equation = item->valuestring;
    double left = 0, right = 0;
    if (formula(m, equation, &left) || formula(m, strchr(equation, '=') + 1, &right)) continue;
    if (left == right) return SL_OK;
    return sl_fail(SL_E_INPUT, "%s: %s%s is required, and %g is not %g", m->path, m->prefix,
                   equation, left, right);
  }
  return SL_OK;
}

static bool has_tensor(const making *m, const char *pattern) {
  for (int i = 0; i < sli_gguf_count(m->file); i++)
    if (!fnmatch(pattern, sli_gguf_at(m->file, i)->name, 0)) return true;
  return false;
}

/* Returns whether some layer has a tensor of one name, without its layer, and none of another. */
static bool lacks_tensor(const making *m, const char *has, const char *lacks) {
  for (int i = 0; i < sli_gguf_count(m->file); i++) {
    const char *name = sli_gguf_at(m->file, i)->name, *at = strstr(name, has);
    if (!at || strcmp(at, has)) continue;
    char *other = sli_format("%.*s%s", (int)(at - name), name, lacks);
    bool found = sli_gguf_find(m->file, other);
    free(other);
    if (!found) return true;
  }
  return false;
}

/* Gives layers a word. Words by values of an array that are null change nothing. */
static sl_status run_step(const making *m, const cJSON *step, int layers, cJSON *list) {
  const cJSON *all = config_at(step, "all"), *key = config_at(step, "key"),
              *words = config_at(step, "words");
  for (int i = 0; i < layers && all; i++) cJSON_AddItemToArray(list, cJSON_Duplicate(all, false));
  if (!key) return SL_OK;
  const cJSON *values = config_at(m->own, key->valuestring);
  if (!values) return sl_fail(SL_E_INPUT, "%s has no %s%s", m->path, m->prefix, key->valuestring);
  if (cJSON_IsArray(values) && cJSON_GetArraySize(values) < layers) return unsupported(m, values);
  for (int i = 0; i < layers; i++) {
    const cJSON *value = cJSON_IsArray(values) ? cJSON_GetArrayItem(values, i) : values;
    char *text = text_of(value);
    const cJSON *word = cJSON_GetObjectItemCaseSensitive(words, text);
    if (!word) word = cJSON_GetObjectItemCaseSensitive(words, "*");
    if (cJSON_IsString(word)) cJSON_ReplaceItemInArray(list, i, cJSON_Duplicate(word, false));
    free(text);
  }
  return SL_OK;
}

static sl_status take_list(making *m, const cJSON *steps) {
  double layers = 0;
  const cJSON *step;
  SLI_TRY(formula(m, "block_count - nextn_predict_layers:0", &layers));
  if (layers < 0 || layers > 1 << 16)
    return sl_fail(SL_E_INPUT, "%s: %sblock_count is %g", m->path, m->prefix, layers);
  cJSON *list = cJSON_CreateArray();
  config_put(m->out, steps->string, list);
  cJSON_ArrayForEach(step, steps) SLI_TRY(run_step(m, step, (int)layers, list));
  return SL_OK;
}

/* Adds what is the same in all families: the size of the vocabulary, and whether the classifier has
 * a table of its own. */
static sl_status take_tables(making *m) {
  const sli_stored_tensor *t = NULL;
  for (int i = 0; i < sli_gguf_count(m->file) && !t; i++) {
    const sli_stored_tensor *each = sli_gguf_at(m->file, i);
    if (!fnmatch("*.embed*", each->name, 0) && !strstr(each->name, "_per_layer")) t = each;
  }
  if (!t || !strstr(t->name, ".weight"))
    return sl_fail(SL_E_INPUT, "%s has no tensor token_embd.weight", m->path);
  put(m, "vocab_size", "vocab_size", cJSON_CreateNumber((double)t->dim[0]));
  put(m, "tie_word_embeddings", "output.weight",
      cJSON_CreateBool(!sli_gguf_find(m->file, "lm_head.weight")));
  const cJSON *size;
  cJSON_ArrayForEach(size, config_at(m->row, "sizes")) {
    t = sli_gguf_find(m->file, size->valuestring);
    if (t) put_at(m, size->string, cJSON_CreateNumber((double)t->dim[0]));
  }
  return SL_OK;
}

/* ---- rotary angles --------------------------------------------------------------------------- */

double *gguf_rope_factors(const sl_rope *rope, double theta, int64_t pairs) {
  double *plain = sli_calloc((size_t)pairs, sizeof *plain),
         *factors = sli_calloc((size_t)pairs, sizeof *factors);
  sli_rope_frequencies(&(sl_attrs){.rotary.theta = (float)theta}, pairs, plain);
  sli_rope_frequencies(&(sl_attrs){.rotary.theta = (float)theta, .user = rope}, pairs, factors);
  for (int64_t j = 0; j < pairs; j++) factors[j] = plain[j] / factors[j];
  free(plain);
  return factors;
}

bool gguf_is_llama3(double theta, const float *factors, int64_t pairs, double *factor) {
  const sl_rope rope = {.kind = SL_ROPE_LLAMA3,
                        .factor = pairs ? factors[pairs - 1] : 1,
                        .low = 1,
                        .high = 4,
                        .original = 8192};
  double *own = gguf_rope_factors(&rope, theta, pairs);
  bool good = true;
  for (int64_t j = 0; j < pairs; j++)
    good &= fabs(own[j] - (double)factors[j]) < 1e-4 * (double)factors[j];
  free(own);
  *factor = (double)rope.factor;
  return good;
}

/* Reads the factors of a tensor by pairs; the caller frees them. */
static sl_status read_factors(const making *m, const sli_stored_tensor *t, int64_t pairs,
                              float **out) {
  *out = NULL;
  if ((int64_t)t->elements != pairs || !pairs)
    return sl_fail(SL_E_INPUT, "%s: %s has %zu factors, not %lld", m->path, t->name, t->elements,
                   (long long)pairs);
  *out = sli_calloc(t->elements, sizeof **out);
  return sli_gguf_read(m->file, t, *out);
}

/* Puts the rope of LLaMA 3, of which converters store only the factors by pairs. */
static sl_status take_factors(const making *m, const sli_stored_tensor *t) {
  const cJSON *head = config_at(m->out, "head_dim"), *theta = config_at(m->out, "rope_theta");
  int64_t pairs = head ? head->valueint / 2 : 0;
  float *factors;
  sl_status status = read_factors(m, t, pairs, &factors);
  double factor = 1;
  if (!status && !gguf_is_llama3(theta ? theta->valuedouble : 10000, factors, pairs, &factor))
    status =
        sl_fail(SL_E_INPUT, "%s: rope_freqs.weight has factors that are not LLaMA 3's", m->path);
  cJSON *out = cJSON_CreateObject();
  cJSON_AddStringToObject(out, "rope_type", "llama3");
  cJSON_AddNumberToObject(out, "factor", factor);
  cJSON_AddNumberToObject(out, "low_freq_factor", 1);
  cJSON_AddNumberToObject(out, "high_freq_factor", 4);
  cJSON_AddNumberToObject(out, "original_max_position_embeddings", 8192);
  config_put(m->out, "rope_scaling", out);
  free(factors);
  return status;
}

static double number_at(const making *m, const char *key) {
  const cJSON *item = config_at(m->own, key);
  return cJSON_IsNumber(item) ? item->valuedouble : 1;
}

/* Puts proportional angles: pairs turn whose factor is 1, and those after them, whose factor is
 * huge, do not. */
static sl_status take_proportional(making *m) {
  const sli_stored_tensor *t = sli_gguf_find(m->file, "rope_freqs.weight");
  int64_t pairs = (int64_t)number_at(m, "attention.key_length") / 2, n = 0;
  float *factors = NULL;
  if (!t) return sl_fail(SL_E_INPUT, "%s has no tensor rope_freqs.weight", m->path);
  sl_status status = read_factors(m, t, pairs, &factors);
  while (!status && n < pairs && factors[n] == 1) n++;
  for (int64_t j = n; j < pairs && !status; j++)
    if (factors[j] < 1e20f)
      status = sl_fail(SL_E_INPUT, "%s: rope_freqs.weight has factors that are neither 1 nor huge",
                       m->path);
  double part = (double)n / (double)pairs;
  if ((int64_t)(part * (double)pairs) != n) part = ((double)n + 0.5) / (double)pairs;
  put_at(m, "rope_parameters.full_attention.partial_rotary_factor", cJSON_CreateNumber(part));
  free(factors);
  return status;
}

/* Puts the factors of a tensor as a list of LongRoPE. */
static sl_status put_factors(making *m, const char *name, const char *key) {
  const sli_stored_tensor *t = sli_gguf_find(m->file, name);
  float *factors = NULL;
  if (!t) return sl_fail(SL_E_INPUT, "%s has no tensor %s", m->path, name);
  sl_status status =
      read_factors(m, t, (int64_t)number_at(m, "rope.dimension_count") / 2, &factors);
  cJSON *list = cJSON_CreateArray();
  for (size_t j = 0; j < t->elements && !status; j++)
    cJSON_AddItemToArray(list, cJSON_CreateNumber((double)factors[j]));
  put_at(m, key, list);
  free(factors);
  return status;
}

/* Puts the lists of LongRoPE. */
static sl_status take_longrope(making *m) {
  const cJSON *scores = config_at(m->own, "rope.scaling.attn_factor");
  put_at(m, "rope_scaling.rope_type", cJSON_CreateString("longrope"));
  if (scores) put_at(m, "rope_scaling.attention_factor", cJSON_CreateNumber(scores->valuedouble));
  SLI_TRY(put_factors(m, "rope_factors_short.weight", "rope_scaling.short_factor"));
  return put_factors(m, "rope_factors_long.weight", "rope_scaling.long_factor");
}

/* Takes what stretches rotary angles: factors of pairs, the older key of linear scaling, or YaRN's
 * factor of scores, which multiplies the one that follows from the stretching. Refuses
 * contradictions. */
static sl_status take_angles(making *m) {
  if (m->file && sli_gguf_find(m->file, "rope_factors_long.weight")) return take_longrope(m);
  const cJSON *item = config_at(m->own, "rope.scaling.type");
  const sli_stored_tensor *factors = m->file ? sli_gguf_find(m->file, "rope_freqs.weight") : NULL;
  const char *type = cJSON_IsString(item) ? item->valuestring : "";
  double factor = number_at(m, "rope.scaling.factor"), older = number_at(m, "rope.scale_linear"),
         scores = number_at(m, "rope.scaling.attn_factor");
  bool none = !*type || !strcmp(type, "none"), yarn = !strcmp(type, "yarn");
  if (factors && (!none || factor != 1))
    return sl_fail(SL_E_INPUT,
                   "%s: rope_freqs.weight and %srope.scaling.%s both scale the rotary positions",
                   m->path, m->prefix, none ? "factor" : "type");
  if (scores != 1 && !yarn)
    return sl_fail(SL_E_INPUT,
                   "%s: %srope.scaling.attn_factor is %g, which is supported only for yarn",
                   m->path, m->prefix, scores);
  if (*type && none && factor != 1)
    return sl_fail(SL_E_INPUT, "%s: %srope.scaling.factor is %g, but %srope.scaling.type is none",
                   m->path, m->prefix, factor, m->prefix);
  if (factors) return take_factors(m, factors);
  if (!*type && factor * older != 1) {
    put_at(m, "rope_scaling.rope_type", cJSON_CreateString("linear"));
    put_at(m, "rope_scaling.factor", cJSON_CreateNumber(factor != 1 ? factor : older));
  }
  if (yarn && scores != 1)
    put_at(m, "rope_scaling.attention_factor",
           cJSON_CreateNumber(scores * (factor > 1 ? 0.1 * log(factor) + 1 : 1)));
  return SL_OK;
}

/* ---- the whole file -------------------------------------------------------------------------- */

/* Returns a member of the row, or of what it says of files with one of its keys. */
static const cJSON *member_of(const making *m, const char *name) {
  const cJSON *entry;
  cJSON_ArrayForEach(entry, config_at(m->row, "with")) {
    const cJSON *value = config_at(m->own, entry->string);
    if (value && value->valuedouble != 0 && config_at(entry, name)) return config_at(entry, name);
  }
  return config_at(m->row, name);
}

static sl_status check_required(const making *m) {
  const cJSON *item;
  cJSON_ArrayForEach(
      item,
      config_at(m->row,
                "required")) if (!config_at(m->own,
                                            item->valuestring)) return sl_fail(SL_E_INPUT,
                                                                               "%s has no %s%s",
                                                                               m->path, m->prefix,
                                                                               item->valuestring);
  cJSON_ArrayForEach(item, config_at(m->row, "checks")) SLI_TRY(check_equation(m, item));
  return SL_OK;
}

/* Refuses what general.type and factors of rotary angles say, which no row knows. */
static sl_status check_general(const making *m) {
  const cJSON *type = config_at(sli_gguf_metadata(m->file), "general.type");
  if (type && (!cJSON_IsString(type) || strcmp(type->valuestring, "model")))
    return sl_fail(SL_E_INPUT, "%s: general.type is not \"model\"", m->path);
  static const char *const factors[] = {"rope_freqs.weight", "rope_factors_long.weight"};
  const cJSON *angles = config_at(m->row, "angles");
  for (int i = 0; i < 2; i++) {
    bool read = i ? cJSON_IsTrue(angles) : !strcmp(m->prefix, "llama.") || cJSON_IsString(angles);
    if (sli_gguf_find(m->file, factors[i]) && !read)
      return sl_fail(SL_E_INPUT, "%s: tensor %s is not supported for %.*s", m->path, factors[i],
                     (int)strlen(m->prefix) - 1, m->prefix);
  }
  return SL_OK;
}

/* Makes what follows from the architecture's keys alone. */
static sl_status make_of_keys(making *m) {
  const cJSON *item;
  SLI_TRY(check_required(m));
  cJSON_AddItemToArray(cJSON_AddArrayToObject(m->out, "architectures"),
                       cJSON_CreateString(member_of(m, "class")->valuestring));
  config_put(m->out, "model_type", cJSON_Duplicate(member_of(m, "type"), false));
  cJSON_ArrayForEach(item, config_at(m->row, "values")) if (!cJSON_IsNull(item))
      put_at(m, item->string, cJSON_Duplicate(item, true));
  cJSON_ArrayForEach(item, config_at(m->row, "formulas")) take_formula(m, item);
  cJSON_ArrayForEach(item, m->own) SLI_TRY(take_key(m, item));
  cJSON_ArrayForEach(item, config_at(m->row, "lists")) SLI_TRY(take_list(m, item));
  return SL_OK;
}

static sl_status make(making *m) {
  const cJSON *item;
  collect(m);
  SLI_TRY(check_general(m));
  SLI_TRY(make_of_keys(m));
  cJSON_ArrayForEach(item, config_at(m->row, "said")) {
    const cJSON *has = config_at(item, "has");
    put_at(m, item->string,
           cJSON_CreateBool(
               has ? lacks_tensor(m, has->valuestring, config_at(item, "lacks")->valuestring)
                   : has_tensor(m, item->valuestring)));
  }
  const cJSON *angles = config_at(m->row, "angles");
  if (angles) SLI_TRY((cJSON_IsString(angles) ? take_proportional : take_angles)(m));
  return take_tables(m);
}

sl_status gguf_config_again(const char *path, const cJSON *row, const cJSON *own, const cJSON *root,
                            cJSON **out) {
  static const char *const tables[] = {"vocab_size", "tie_word_embeddings"};
  const cJSON *item;
  char *prefix = sli_format("%s.", config_at(row, "name")->valuestring);
  making m = {.path = path,
              .prefix = prefix,
              .row = row,
              .own = (cJSON *)own,
              .out = cJSON_CreateObject(),
              .names = cJSON_CreateObject()};
  sl_status status = make_of_keys(&m);
  if (!status && cJSON_IsTrue(config_at(row, "angles"))) status = take_angles(&m);
  cJSON_ArrayForEach(item, config_at(row, "said")) if (config_at(root, item->string))
      config_put(m.out, item->string, cJSON_Duplicate(config_at(root, item->string), true));
  for (size_t i = 0; i < SLI_COUNT(tables); i++)
    if (config_at(root, tables[i]))
      config_put(m.out, tables[i], cJSON_Duplicate(config_at(root, tables[i]), true));
  cJSON_Delete(m.names);
  free(prefix);
  *out = m.out;
  return status;
}

sl_status gguf_config(const char *path, const sli_gguf *file, cJSON **out, cJSON **names) {
  const cJSON *name = config_at(sli_gguf_metadata(file), "general.architecture");
  making m = {.path = path, .file = file};
  m.row = cJSON_IsString(name) ? sli_gguf_architecture(name->valuestring) : NULL;
  *out = NULL;
  if (names) *names = NULL;
  if (!m.row) return SL_OK;
  char *prefix = sli_format("%s.", name->valuestring);
  m.prefix = prefix;
  m.own = cJSON_CreateObject(), m.out = cJSON_CreateObject(), m.names = cJSON_CreateObject();
  sl_status status = make(&m);
  if (status) cJSON_Delete(m.out), m.out = NULL;
  *out = m.out;
  if (names && !status) *names = m.names;
  else cJSON_Delete(m.names);
  cJSON_Delete(m.own);
  free(prefix);
  return status;
}

sl_status gguf_config_of(const char *path, cJSON **out) {
  sli_gguf *file;
  *out = NULL;
  if (!sli_gguf_is(path)) return SL_OK;
  SLI_TRY(sli_gguf_open(path, &file));
  sl_status status = gguf_config(path, file, out, NULL);
  sli_gguf_close(file);
  return status;
}
