/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/formats/rope.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading --------------------------------------------------------------------------------- */

/* Returns whether a family's rope_parameters have a key of their own. */
static bool has_rope_key(const family *f, const char *key) {
  const sli_key *k = f->rope_keys;
  while (k->name && strcmp(k->name, key)) k++;
  return k->name;
}

/* Joins a list of numbers by slashes. Returns NULL if it is none. */
static char *list_text(const cJSON *list) {
  const cJSON *item;
  if (!cJSON_IsArray(list)) return NULL;
  char *out = sli_strdup("");
  cJSON_ArrayForEach(item, list) {
    char *number = cJSON_IsNumber(item) ? config_option_text(item) : NULL;
    char *more = number ? sli_format("%s%s%s", out, *out ? "/" : "", number) : NULL;
    free(number);
    free(out);
    if (!(out = more)) return NULL;
  }
  return out;
}

/* Formats numbers of rope_parameters for --rope. *out is NULL for keys that --rope does not
 * have. */
static sl_status rope_number(const config *c, const char *kind, const cJSON *item, char **out) {
  static const char *const others[] = {
      "rope_type", "type",      "rope_theta", "partial_rotary_factor",
      "truncate",  "finetuned", "mscale",     "mscale_all_dim"};
  *out = NULL;
  for (size_t i = 0; i < SLI_COUNT(others); i++)
    if (!strcmp(item->string, others[i])) return SL_OK;
  if (!strcmp(kind, "none") || sli_key_off(item)) return SL_OK;
  char *value = cJSON_IsNumber(item) ? config_option_text(item) : list_text(item);
  if (!value)
    return sl_fail(SL_E_INPUT, "%s: %s is neither a number nor a list of numbers", c->path,
                   item->string);
  *out = sli_format("%s=%s", item->string, value);
  free(value);
  return SL_OK;
}

/* Appends "KEY=VALUE". Takes ownership of `more`. */
static void add_to_rope(char **text, char *more) {
  char *longer = sli_format("%s%s%s", *text, strchr(*text, ':') ? "," : ":", more);
  free(*text);
  free(more);
  *text = longer;
}

/* Refuses an unsupported rope type first, before its specific keys are refused. */
static sl_status check_rope_type(const config *c, const char *kind) {
  static const char *const known[] = {"none", "linear",   "llama3",
                                      "yarn", "longrope", "proportional"};
  for (size_t i = 0; i < SLI_COUNT(known); i++)
    if (!strcmp(known[i], kind)) return SL_OK;
  return sl_fail(
      SL_E_INPUT,
      "%s: rope_type %.40s is not supported; supported: default, linear, llama3, yarn, longrope and "
      "proportional",
      c->path, kind);
}

/* Finds the fraction of a head that is rotated, under any of its names. */
static const cJSON *find_part(const config *c, const cJSON *rope) {
  static const char *const names[] = {"partial_rotary_factor", "rope_pct", "rope_percent",
                                      "rope_percentage"};
  const cJSON *found = config_at(rope, names[0]);
  for (size_t i = 0; i < SLI_COUNT(names) && !found; i++) found = config_at(c->root, names[i]);
  return found;
}

/* Appends partial_rotary_factor: the fraction of a head that is rotated. */
static sl_status add_part(const config *c, const family *f, const cJSON *rope, char **text) {
  static const char key[] = "partial_rotary_factor";
  const cJSON *said = find_part(c, rope), *numbers = config_at(c->root, "rotary_dim");
  char *value = said ? config_option_text(said) : sli_strdup(f->part ? f->part : "1");
  if (!said && cJSON_IsNumber(numbers)) {
    free(value);
    value =
        sli_format("%.15g", numbers->valuedouble / (double)sl_arg_int(c->target->args, "head-dim"));
  }
  if (!value || cJSON_IsBool(said)) {
    free(value);
    return sl_fail(SL_E_INPUT, "%s: %s is not a number", c->path, key);
  }
  add_to_rope(text, sli_format("%s=%s", key, value));
  free(value);
  return SL_OK;
}

/* Appends the attention factor, the quotient of DeepSeek's two scales. */
static void add_scale(const family *f, const cJSON *from, char **text) {
  const cJSON *own = config_at(from, "mscale"), *all = config_at(from, "mscale_all_dim"),
              *factor = config_at(from, "factor");
  if (!has_rope_key(f, "mscale") || !cJSON_IsNumber(own) || !cJSON_IsNumber(all) ||
      !cJSON_IsNumber(factor) || config_at(from, "attention_factor") || own->valuedouble == 0 ||
      all->valuedouble == 0)
    return;
  double turn = factor->valuedouble > 1 ? 0.1 * log(factor->valuedouble) : 0;
  add_to_rope(text, sli_format("attention_factor=%.17g",
                               (turn * own->valuedouble + 1) / (turn * all->valuedouble + 1)));
}

/* Appends what a kind needs and the rope does not say: the original context, which counts from the
 * beginning of a family's file, and the factor of LongRoPE, the quotient of both contexts. */
static void add_contexts(const config *c, const family *f, const char *kind, const cJSON *from,
                         char **text) {
  static const char key[] = "original_max_position_embeddings";
  bool longrope = !strcmp(kind, "longrope"), yarn = !strcmp(kind, "yarn");
  double positions = (double)sl_arg_int(c->target->args, "positions"), original = positions;
  const cJSON *said = config_at(f->original ? c->root : from, key);
  if (cJSON_IsNumber(said)) original = said->valuedouble;
  else if (f->original) original = strtod(f->original, NULL);
  if (f->original ? strcmp(kind, "none") && strcmp(kind, "linear") : (longrope || yarn) && !said)
    add_to_rope(text, sli_format("%s=%.15g", key, original));
  if (longrope && !config_at(from, "factor"))
    add_to_rope(text, sli_format("factor=%.17g", positions / original));
}

/* Returns the kind of a rope, as --rope calls it, with the names that only the family has. */
static const char *kind_of(const family *f, const cJSON *type) {
  const char *kind = cJSON_IsString(type) ? type->valuestring : "default";
  const cJSON *known = config_at(config_at(config_at(f->row, "rope"), "types"), kind);
  if (known) return known->valuestring;
  return strcmp(kind, "default") ? kind : "none";
}

/* Formats rope_parameters (formerly rope_scaling) as "yarn:factor=4,...", without keys that
 * repeat other fields of config.json. */
static sl_status rope_text(const config *c, const family *f, const cJSON *from, char **out) {
  const cJSON *type = config_at(from, "rope_type"), *item;
  if (!type) type = config_at(from, "type");
  const char *kind = kind_of(f, type);
  bool partial = f->part || !strcmp(kind, "proportional");
  bool whole = strcmp(kind, "yarn") != 0 || !cJSON_IsFalse(config_at(from, "truncate"));
  *out = sli_strdup(whole ? kind : "yarn-untruncated");
  sl_status status = check_rope_type(c, kind);
  if (!status)
    status =
        sli_keys_check(c->path, from,
                       (const sli_key *const[]){family_keys("rope"),
                                                family_keys(partial ? "rope-part" : "rope-whole"),
                                                f->rope_keys, NULL});
  if (!status && type && !cJSON_IsString(type))
    status = sl_fail(SL_E_INPUT, "%s: %s is not a string", c->path, type->string);
  char *more = NULL;
  cJSON_ArrayForEach(item, from) {
    bool above = f->original && !strcmp(item->string, "original_max_position_embeddings");
    if (has_rope_key(f, item->string) || above) continue;
    if (!status) status = rope_number(c, kind, item, &more);
    if (!status && more) add_to_rope(out, more);
  }
  if (!status) add_contexts(c, f, kind, from, out);
  if (!status && !strncmp(kind, "yarn", 4)) add_scale(f, from, out);
  if (!status && partial) status = add_part(c, f, from, out);
  return status ? status : config_check_rope(c, *out);
}

const char rope_chunks_key[] = "dual_chunk_attention_config";

/* Finds the rope under its new or old key. If both are present they must agree. */
sl_status rope_find(const config *c, const cJSON **out) {
  const cJSON *now = config_at(c->root, "rope_parameters"),
              *before = config_at(c->root, "rope_scaling");
  *out = now ? now : before;
  if (*out && !cJSON_IsObject(*out))
    return sl_fail(SL_E_INPUT, "%s: %s is not a JSON object", c->path, (*out)->string);
  if (!now || !before || cJSON_Compare(now, before, true)) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s: rope_parameters and rope_scaling differ", c->path);
}

/* Sets the base of rotary angles from the rope, or from `key` of the whole file. */
static sl_status set_theta(const config *c, const cJSON *rope, const char *key, const char *option,
                           const char *missing) {
  const cJSON *theta = config_at(rope, "rope_theta");
  if (!theta) theta = config_at(c->root, key);
  char *value = theta ? config_option_text(theta) : sli_strdup(missing);
  sl_status status = value ? config_set(c, key, option, value)
                           : sl_fail(SL_E_INPUT, "%s: %s is not a number", c->path, key);
  free(value);
  return status;
}

/* Sets --theta and --rope from a rope of config.json. */
sl_status rope_set(const config *c, const family *f, const cJSON *rope) {
  char *text = NULL;
  sl_status status = set_theta(c, rope, "rope_theta", "theta", f->theta);
  if (!status) status = rope_text(c, f, rope, &text);
  if (!status) status = config_set(c, "rope_parameters", "rope", text);
  free(text);
  return status;
}

sl_status rope_read(const config *c, const family *f) {
  const cJSON *rope = NULL;
  sl_status status = rope_find(c, &rope);
  return status ? status : rope_set(c, f, rope);
}

/* Formats dual chunk attention as "dual-chunk:chunk_size=...". */
static sl_status chunks_text(const config *c, const cJSON *chunks, char **out) {
  const cJSON *item;
  *out = sli_strdup("dual-chunk");
  sl_status status =
      sli_keys_check(c->path, chunks, (const sli_key *const[]){family_keys("dual-chunk"), NULL});
  cJSON_ArrayForEach(item, chunks) {
    char *more = NULL;
    if (!status && strncmp(item->string, "sparse_", 7)) status = rope_number(c, "", item, &more);
    if (more) add_to_rope(out, more);
  }
  return status ? status : config_check_rope(c, *out);
}

/* Sets dual chunk attention, which excludes any other stretching of angles. */
sl_status rope_read_chunks(const config *c, const family *f, const cJSON *chunks) {
  const cJSON *rope = NULL;
  char *text = NULL, *other = NULL;
  sl_status status = rope_find(c, &rope);
  if (!status) status = set_theta(c, rope, "rope_theta", "theta", f->theta);
  if (!status) status = rope_text(c, f, rope, &other);
  if (!status && strcmp(other, "none"))
    status = sl_fail(SL_E_INPUT, "%s: %s cannot be used with rope_type %s", c->path,
                     rope_chunks_key, other);
  if (!status) status = chunks_text(c, chunks, &text);
  if (!status) status = config_set(c, rope_chunks_key, "rope", text);
  free(text);
  free(other);
  return status;
}

/* Sets the angles of windowed layers, which are not stretched. */
static sl_status read_local_rope(const config *c, const family *f, const cJSON *rope) {
  const cJSON *type = config_at(rope, "rope_type");
  if (type && (!cJSON_IsString(type) || strcmp(type->valuestring, "default")))
    return sl_fail(SL_E_INPUT, "%s: scaled rotary positions in sliding_attention are not supported",
                   c->path);
  return set_theta(c, rope, "rope_local_base_freq", "local-theta", f->local_theta);
}

/* Sets the angles of both kinds of layers, from rope_parameters by kind or from older keys. */
sl_status rope_read_kinds(const config *c, const family *f) {
  static const sli_key kinds[] = {{"full_attention", {0}}, {"sliding_attention", {0}}, {0}};
  const cJSON *both = config_at(c->root, "rope_parameters");
  const cJSON *full = both ? config_at(both, "full_attention") : config_at(c->root, "rope_scaling");
  sl_status status = SL_OK;
  if (both) status = sli_keys_check(c->path, both, (const sli_key *const[]){kinds, NULL});
  if (both && !full && !status)
    status = sl_fail(SL_E_INPUT, "%s: rope_parameters has no full_attention", c->path);
  if (!full && !both) full = config_at(config_at(f->row, "rope"), "usual");
  if (!status) status = rope_set(c, f, full);
  return status ? status : read_local_rope(c, f, config_at(both, "sliding_attention"));
}

/* Returns how much YaRN scales by a setting: 0.1 mscale ln(factor) + 1. */
static double scale_of(double factor, double mscale) {
  return factor > 1 ? 0.1 * mscale * log(factor) + 1 : 1;
}

/* Returns the numbers of a key of latent attention. */
static double key_numbers(const sl_args *args) {
  return (double)(sl_arg_int(args, "nope-dim") + sl_arg_int(args, "rope-dim"));
}

sl_status rope_read_mscale(const config *c, const family *f) {
  const cJSON *rope = NULL;
  SLI_TRY(rope_find(c, &rope));
  SLI_TRY(rope_set(c, f, rope));
  const cJSON *all = config_at(rope, "mscale_all_dim"), *factor = config_at(rope, "factor");
  double by = all && factor ? scale_of(factor->valuedouble, all->valuedouble) : 1;
  if (by == 1) return SL_OK;
  char *text = sli_format("%.9g", key_numbers(c->target->args) / pow(by, 4));
  sl_status status = config_set(c, "mscale_all_dim", "query-scalar", text);
  free(text);
  return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool rope_is_chunked(const char *rope) { return !strncmp(rope, "dual-chunk", 10); }

/* Returns the numbers of a text that slashes join. */
static cJSON *list_json(const char *text) {
  cJSON *out = cJSON_CreateArray();
  char *end;
  for (; *text; text = end + (*end == '/'))
    cJSON_AddItemToArray(out, config_real(strtod(text, &end)));
  return out;
}

/* Returns a text of --rope as an object, or as null if nothing is stretched. */
static cJSON *rope_json(const char *text) {
  size_t n = strcspn(text, ":");
  if (!n || !strncmp(text, "none", n)) return cJSON_CreateNull();
  cJSON *out = cJSON_CreateObject();
  char *copy = sli_strdup(text), *rest = copy + n + (text[n] == ':'), *word;
  copy[n] = 0;
  bool whole = strcmp(copy, "yarn-untruncated") != 0;
  cJSON_AddStringToObject(out, "rope_type", whole ? copy : "yarn");
  if (!whole) cJSON_AddFalseToObject(out, "truncate");
  while ((word = strsep(&rest, ",")) && *word) {
    char *equals = strchr(word, '=');
    *equals = 0; /* always found: the text was parsed before */
    double value = strtod(equals + 1, NULL);
    bool list = !strcmp(word, "short_factor") || !strcmp(word, "long_factor");
    bool count = !strcmp(word, "original_max_position_embeddings") || rope_is_chunked(text);
    cJSON_AddItemToObject(out, word,
                          list    ? list_json(equals + 1)
                          : count ? cJSON_CreateNumber(value)
                                  : config_real(value));
  }
  free(copy);
  return out;
}

/* Writes rope_scaling, or dual chunk attention. */
static void put_scaling(cJSON *root, const char *text) {
  cJSON *rope = rope_json(text);
  bool chunks = rope_is_chunked(text);
  if (chunks) cJSON_DeleteItemFromObjectCaseSensitive(rope, "rope_type");
  config_put(root, chunks ? rope_chunks_key : "rope_scaling", rope);
}

/* Returns the mscale_all_dim that yields the query scalar, or 0; the inverse of reading. */
static double mscale_all(const sl_args *args) {
  sl_rope rope;
  double scalar = sl_arg_float(args, "query-scalar");
  if (scalar <= 0 || sl_rope_parse(sl_arg_text(args, "rope"), &rope) || rope.factor <= 1) return 0;
  return (pow(key_numbers(args) / scalar, 0.25) - 1) / (0.1 * log(rope.factor));
}

void rope_put(cJSON *root, const char *key, const pretrained *p) {
  const char *text = sl_arg_text(p->args, "rope");
  if (!strcmp(key, "rope_scaling")) {
    put_scaling(root, text);
    return;
  }
  cJSON *rope = rope_json(text);
  if (!cJSON_IsObject(rope)) {
    cJSON_Delete(rope);
    rope = cJSON_CreateObject();
    cJSON_AddStringToObject(rope, "rope_type", "default");
  }
  config_put(rope, "rope_theta", config_real(sl_arg_float(p->args, "theta")));
  if (sl_options_find(p->model->options, "nope-dim") && mscale_all(p->args) != 0)
    config_put(rope, "mscale_all_dim", config_real(mscale_all(p->args)));
  config_put(root, key, rope);
}
