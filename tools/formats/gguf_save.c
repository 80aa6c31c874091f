/* SPDX-License-Identifier: Apache-2.0 */
/* Saves a model as a GGUF file, with keys for its options and its tokenizer. */
#include "tools/formats/gguf_save.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/state/state.h"
#include "text/chats/chats.h"
#include "io/gguf/gguf.h"
#include "io/json.h"
#include "text/tokenizer/tokenizer.h"
#include "ops/layout.h"
#include "tools/formats/config.h"
#include "tools/formats/gguf_config.h"
#include "tools/formats/huggingface.h"
#include "tools/formats/writing.h"

/* ---- "FILE.gguf:TYPE" -------------------------------------------------------------------- */

static const char suffix[] = ".gguf";

/* Returns the type in "FILE.gguf:TYPE", or the end of "FILE.gguf". Returns NULL for any other
 * file. */
static const char *type_in(const char *path) {
  const char *colon = strrchr(path, ':'), *end = colon ? colon : path + strlen(path);
  bool gguf = end - path > (ptrdiff_t)strlen(suffix) &&
              !strncmp(end - strlen(suffix), suffix, strlen(suffix));
  return !gguf ? NULL : colon ? colon + 1 : end;
}

bool gguf_is_wanted(const char *path) { return type_in(path); }

char *gguf_file_of(const char *path) {
  const char *type = type_in(path);
  return sli_format("%.*s", (int)(type - path) - (*type ? 1 : 0), path);
}

/* Returns the type in upper case; the caller frees it. */
static char *type_of(const char *path) {
  const char *type = type_in(path);
  char *out = sli_strdup(*type ? type : "F32");
  for (char *c = out; *c; c++) *c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
  return out;
}

/* ---- tokens --------------------------------------------------------------------------------- */

static const cJSON *at(const cJSON *from, const char *key) {
  return cJSON_GetObjectItemCaseSensitive(from, key);
}

static const char *text_at(const cJSON *from, const char *key) {
  const cJSON *item = at(from, key);
  return cJSON_IsString(item) ? item->valuestring : NULL;
}

static bool is_of_tokenizer(const char *key) { return !strncmp(key, "tokenizer.", 10); }

/* Copies the tokenizer keys of a GGUF file. */
static sl_status copy_tokenizer(const char *path, sli_gguf_keys *keys) {
  sli_gguf *file;
  SLI_TRY(sli_gguf_open(path, &file));
  const cJSON *item;
  const char *key;
  cJSON_ArrayForEach(item, sli_gguf_metadata(file)) {
    if (!is_of_tokenizer(item->string)) continue;
    if (cJSON_IsString(item)) sli_gguf_put_text(keys, item->string, item->valuestring);
    else if (cJSON_IsBool(item)) sli_gguf_put_flag(keys, item->string, cJSON_IsTrue(item));
    else if (cJSON_IsNumber(item)) sli_gguf_put_count(keys, item->string, item->valueint);
  }
  for (size_t i = 0; (key = sli_gguf_array_key(file, i)); i++) {
    cJSON *all = is_of_tokenizer(key) ? sli_gguf_array(file, key) : NULL;
    if (all && cJSON_IsString(all->child)) sli_gguf_put_texts(keys, key, all);
    else if (all && strstr(key, "scores")) sli_gguf_put_numbers(keys, key, all);
    else if (all) sli_gguf_put_integers(keys, key, all);
    cJSON_Delete(all);
  }
  sli_gguf_close(file);
  return SL_OK;
}

/* GGUF token types. */
enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 };

/* Tokens by number: texts, owned by a tokenizer.json, and types. */
typedef struct tokens {
  int64_t count;
  const char **texts;
  int *kinds;
} tokens;

static void set_token(tokens *t, const char *text, const cJSON *number, int kind) {
  if (!cJSON_IsNumber(number) || number->valueint < 0 || number->valueint >= t->count) return;
  t->texts[number->valueint] = text;
  t->kinds[number->valueint] = kind;
}

static tokens read_tokens(const cJSON *root, int64_t vocab) {
  tokens t = {vocab, sli_calloc((size_t)vocab + 1, sizeof *t.texts),
              sli_calloc((size_t)vocab + 1, sizeof *t.kinds)};
  const cJSON *item;
  cJSON_ArrayForEach(item, at(at(root, "model"), "vocab"))
      set_token(&t, item->string, item, NORMAL);
  cJSON_ArrayForEach(item, at(root, "added_tokens"))
      set_token(&t, text_at(item, "content"), at(item, "id"),
                cJSON_IsTrue(at(item, "special")) ? CONTROL : USER_DEFINED);
  return t;
}

/* Writes token texts and types. Numbers without a token are marked as unused. */
static void put_tokens(const tokens *t, sli_gguf_keys *keys) {
  cJSON *texts = cJSON_CreateArray(), *kinds = cJSON_CreateArray();
  for (int64_t i = 0; i < t->count; i++) {
    char *unused = t->texts[i] ? NULL : sli_format("[PAD%lld]", (long long)i);
    cJSON_AddItemToArray(texts, cJSON_CreateString(unused ? unused : t->texts[i]));
    cJSON_AddItemToArray(kinds, cJSON_CreateNumber(unused ? UNUSED : t->kinds[i]));
    free(unused);
  }
  sli_gguf_put_texts(keys, "tokenizer.ggml.tokens", texts);
  sli_gguf_put_integers(keys, "tokenizer.ggml.token_type", kinds);
  cJSON_Delete(texts);
  cJSON_Delete(kinds);
}

/* Writes merges as texts with a space between the two parts; newer files store pairs. */
static void put_merges(const cJSON *root, sli_gguf_keys *keys) {
  cJSON *out = cJSON_CreateArray();
  const cJSON *item;
  cJSON_ArrayForEach(item, at(at(root, "model"), "merges")) {
    bool pair = cJSON_GetArraySize(item) == 2;
    char *text = pair
                     ? sli_format("%s %s", item->child->valuestring, item->child->next->valuestring)
                     : sli_strdup(cJSON_IsString(item) ? item->valuestring : "");
    cJSON_AddItemToArray(out, cJSON_CreateString(text));
    free(text);
  }
  sli_gguf_put_texts(keys, "tokenizer.ggml.merges", out);
  cJSON_Delete(out);
}

static void put_mark(const tokens *t, const char *which, const char *text, sli_gguf_keys *keys) {
  char *key = sli_format("tokenizer.ggml.%s_token_id", which);
  for (int64_t i = 0; i < t->count && text; i++)
    if (t->texts[i] && !strcmp(t->texts[i], text)) {
      sli_gguf_put_count(keys, key, i);
      break;
    }
  free(key);
}

/* Tokens that a tokenizer puts around a text, -1 if none. */
typedef struct around {
  int32_t before, after;
} around;

/* Finds the tokens around a text. GGUF has room for one on each side. */
static sl_status find_around(const char *path, around *out) {
  sli_tokenizer *t;
  sli_token_row plain = {0}, whole = {0};
  SLI_TRY(sli_tokenizer_open(path, &t));
  sl_status status = sli_tokenizer_encode(t, "a", 1, false, &plain);
  if (!status) status = sli_tokenizer_encode(t, "a", 1, true, &whole);
  size_t extra = whole.count - plain.count, before = 0;
  while (before < extra && !status &&
         memcmp(whole.items + before, plain.items, plain.count * sizeof *plain.items))
    before++;
  *out = (around){before ? whole.items[0] : -1, extra > before ? whole.items[whole.count - 1] : -1};
  if (!status && (before > 1 || extra - before > 1))
    status = sl_fail(SL_E_UNSUPPORTED,
                     "%s: the tokenizer puts %zu tokens before a text and %zu behind it; a GGUF "
                     "file has room for one each",
                     path, before, extra - before);
  free(plain.items);
  free(whole.items);
  sli_tokenizer_close(t);
  return status;
}

/* Writes whether a token is put on one side of texts. That token is the one with the key
 * bos_token_id or eos_token_id. */
static sl_status put_side(const char *path, const tokens *t, const char *which, int32_t token,
                          const char *mark, sli_gguf_keys *keys) {
  const char *text = token >= 0 && token < t->count ? t->texts[token] : NULL;
  char *key = sli_format("tokenizer.ggml.add_%s_token", which);
  sl_status status = SL_OK;
  sli_gguf_put_flag(keys, key, token >= 0);
  if (token >= 0 && !mark) put_mark(t, which, text, keys);
  if (token >= 0 && mark && (!text || strcmp(text, mark)))
    status = sl_fail(
        SL_E_UNSUPPORTED,
        "%s: the tokenizer puts the token %s around texts, but its %s_token is %s; a GGUF file has "
        "one token for both",
        path, text ? text : "(unknown)", which, mark);
  free(key);
  return status;
}

static sl_status put_chat(const char *path, const tokens *t, sli_gguf_keys *keys) {
  sli_chat_found found;
  around around;
  SLI_TRY(find_around(path, &around));
  SLI_TRY(sli_chat_find(path, &found));
  put_mark(t, "bos", found.marks.begin, keys);
  put_mark(t, "eos", found.marks.end, keys);
  put_mark(t, "unknown", found.marks.unknown, keys);
  put_mark(t, "padding", found.marks.pad, keys);
  if (found.template) sli_gguf_put_text(keys, "tokenizer.chat_template", found.template);
  if (found.for_tools) sli_gguf_put_text(keys, "tokenizer.chat_template.tool_use", found.for_tools);
  sl_status status = put_side(path, t, "bos", around.before, found.marks.begin, keys);
  if (!status) status = put_side(path, t, "eos", around.after, found.marks.end, keys);
  sli_chat_found_fini(&found);
  return status;
}

static sl_status put_json_tokenizer(const char *path, const cJSON *root, int64_t vocab,
                                    sli_gguf_keys *keys) {
  const char *name = sli_tokenizer_gguf_name(root);
  if (!name)
    return sl_fail(
        SL_E_UNSUPPORTED,
        "%s: this tokenizer has no GGUF name; only byte-level BPE that splits text like GPT-2, SmolLM, LLaMA 3 or Qwen 2 can be written",
        path);
  tokens t = read_tokens(root, vocab);
  sli_gguf_put_text(keys, "tokenizer.ggml.model", "gpt2");
  sli_gguf_put_text(keys, "tokenizer.ggml.pre", name);
  put_tokens(&t, keys);
  put_merges(root, keys);
  sl_status status = put_chat(path, &t, keys);
  free(t.texts);
  free(t.kinds);
  return status;
}

static sl_status put_tokenizer(const pretrained *p, int64_t vocab, sli_gguf_keys *keys) {
  const char *path = p->tokenizer;
  if (!path) return SL_OK;
  if (sli_gguf_is(path)) return copy_tokenizer(path, keys);
  sli_json doc;
  SLI_TRY(sli_json_open(path, &doc));
  sl_status status = put_json_tokenizer(path, doc.root, vocab, keys);
  sli_json_fini(&doc);
  return status;
}

/* ---- the model ------------------------------------------------------------------------------- */

typedef struct saving {
  const pretrained *target;
  const char *path, *type;
  const cJSON *row; /* of the architecture */
  cJSON *root;      /* config.json */
  cJSON *own;       /* numbers of the architecture's keys, without the prefix */
  sli_gguf_keys *keys;
  float *factors; /* of rotary angles; NULL if none */
  int64_t pairs;
  bool checks; /* nothing is written */
} saving;

static const char *own_key(const saving *saving, const char *key) {
  return sli_arena_format(saving->target->arena, "%s.%s", text_at(saving->row, "name"), key);
}

/* Writes a number, as a real if the row says that the key has one. */
static void put_value(const saving *saving, const char *key, double value) {
  const cJSON *real;
  const char *name = own_key(saving, key);
  bool is = false;
  cJSON_ArrayForEach(real, at(saving->row, "reals")) is |= !strcmp(real->valuestring, key);
  if (is) sli_gguf_put_number(saving->keys, name, value);
  else sli_gguf_put_count(saving->keys, name, (int64_t)value);
  cJSON_AddNumberToObject(saving->own, key, value);
}

static void put_flag(const saving *saving, const char *key, bool value) {
  sli_gguf_put_flag(saving->keys, own_key(saving, key), value);
  cJSON_AddBoolToObject(saving->own, key, value);
}

/* ---- rotary angles --------------------------------------------------------------------------- */

/* Computes the frequency factors of a head's pairs, because GGUF has no keys for LLaMA 3's rope. */
static void make_factors(saving *saving, const sl_rope *rope, double theta) {
  double *factors = gguf_rope_factors(rope, theta, saving->pairs);
  saving->factors = sli_calloc((size_t)saving->pairs, sizeof *saving->factors);
  for (int64_t j = 0; j < saving->pairs; j++) saving->factors[j] = (float)factors[j];
  free(factors);
}

/* Makes what no key of config.json says: LLaMA 3's factors, and the factor of scores for YaRN, of
 * which llama.cpp itself derives a part from the stretching. */
static sl_status put_rope(saving *saving) {
  const sl_args *args = saving->target->args;
  const char *text = sl_arg_text(args, "rope");
  sl_rope rope;
  SLI_TRY(sl_rope_parse(text, &rope));
  int64_t dim = sl_arg_int(args, "head-dim");
  if (!dim) dim = sl_arg_int(args, "width") / sl_arg_int(args, "heads");
  saving->pairs = dim / 2;
  bool angles = at(saving->row, "angles");
  if (angles && rope.part > 0 && rope.part < 1)
    return sl_fail(SL_E_UNSUPPORTED,
                   "--save %s: --rope %s: GGUF files need rotary positions over whole heads",
                   saving->path, text);
  if (rope.kind > SL_ROPE_YARN_UNTRUNCATED)
    return sl_fail(
        SL_E_UNSUPPORTED,
        "--save %s: --rope %s: GGUF files are written with none, linear, llama3 and yarn",
        saving->path, text);
  double derived = rope.factor > 1 ? 0.1 * log(rope.factor) + 1 : 1;
  if (angles && rope.kind == SL_ROPE_YARN && rope.scale > 0 &&
      fabs(rope.scale / derived - 1) > 1e-6)
    put_value(saving, "rope.scaling.attn_factor", rope.scale / derived);
  if (!angles || rope.kind != SL_ROPE_LLAMA3) return SL_OK;
  double theta = sl_arg_float(args, "theta"), factor;
  make_factors(saving, &rope, theta);
  if (!gguf_is_llama3(theta, saving->factors, saving->pairs, &factor))
    return sl_fail(
        SL_E_UNSUPPORTED,
        "--save %s: --rope %s: GGUF files keep its factors alone, which readers take for "
        "low_freq_factor 1, high_freq_factor 4 and 8192 original positions",
        saving->path, text);
  cJSON_DeleteItemFromObjectCaseSensitive(saving->root, "rope_scaling");
  return SL_OK;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Returns the value at KEY or KEY.KEY of config.json. */
static const cJSON *value_at(const cJSON *root, const char *key) {
  const char *dot = strchr(key, '.');
  if (!dot) return config_at(root, key);
  char *outer = sli_format("%.*s", (int)(dot - key), key);
  const cJSON *object = config_at(root, outer);
  free(outer);
  return config_at(object, dot + 1);
}

/* Returns a number of config.json, which may have kept the text of a real. */
static bool number_of(const cJSON *item, double *out) {
  if (cJSON_IsNumber(item)) *out = item->valuedouble;
  else if (cJSON_IsRaw(item)) *out = strtod(item->valuestring, NULL);
  else return false;
  return true;
}

/* Writes a word as what it is: a number, a flag or a text. */
static void put_word(const saving *saving, const char *key, const char *word) {
  char *end;
  double number = strtod(word, &end);
  bool flag = !strcmp(word, "true") || !strcmp(word, "false");
  if (*word && !*end) put_value(saving, key, number);
  else if (flag) put_flag(saving, key, *word == 't');
  else {
    sli_gguf_put_text(saving->keys, own_key(saving, key), word);
    cJSON_AddStringToObject(saving->own, key, word);
  }
}

/* Writes a key from the value of config.json that it stands for. */
static void put_entry(const saving *saving, const cJSON *entry) {
  const cJSON *value, *word;
  double number = 0;
  if (at(saving->own, entry->string)) return; /* by layers */
  if (cJSON_IsString(entry) && (value = value_at(saving->root, entry->valuestring))) {
    if (number_of(value, &number)) put_value(saving, entry->string, number);
    if (cJSON_IsBool(value)) put_flag(saving, entry->string, cJSON_IsTrue(value));
  }
  if (!cJSON_IsObject(entry) || !(value = value_at(saving->root, text_at(entry, "to")))) return;
  cJSON_ArrayForEach(word, at(entry, "words")) if (cJSON_IsString(value) &&
                                                   !strcmp(word->valuestring, value->valuestring)) {
    put_word(saving, entry->string, word->string);
    return;
  }
}

/* Returns the number of a layer of this kind in an array by layers: what a word of that kind stands
 * for, or `number`, unless a word stands for all other numbers. */
static double number_by_kind(const cJSON *words, const char *kind, double number) {
  const cJSON *word, *others = at(words, "*");
  cJSON_ArrayForEach(word, words) if (strcmp(word->string, "*") && cJSON_IsString(word) &&
                                      !strcmp(word->valuestring, kind)) return atof(word->string);
  return cJSON_IsString(others) && strcmp(others->valuestring, kind) != 0 ? 0 : number;
}

/* Writes the arrays by which readers tell kinds of layers apart. */
static void put_lists(const saving *saving) {
  const cJSON *steps, *step, *kind;
  cJSON_ArrayForEach(steps, at(saving->row, "lists")) cJSON_ArrayForEach(step, steps) {
    const char *key = text_at(step, "key"),
               *to = key ? text_at(at(saving->row, "keys"), key) : NULL;
    const cJSON *kinds = config_at(saving->root, steps->string);
    double number = 0;
    if (!to || !cJSON_IsArray(kinds) || !number_of(value_at(saving->root, to), &number)) continue;
    cJSON *all = cJSON_CreateArray();
    cJSON_ArrayForEach(kind, kinds) {
      const char *text = cJSON_IsString(kind) ? kind->valuestring : "",
                 *other = text_at(at(saving->row, "alias"), text);
      cJSON_AddItemToArray(
          all, cJSON_CreateNumber(number_by_kind(at(step, "words"), other ? other : text, number)));
    }
    sli_gguf_put_integers(saving->keys, own_key(saving, key), all);
    cJSON_AddItemToObject(saving->own, key, all);
  }
}

/* Writes arrays of config.json as arrays of four numbers, with zeros behind them. */
static void put_fours(const saving *saving) {
  const cJSON *entry;
  cJSON_ArrayForEach(entry, at(saving->row, "fours")) {
    const cJSON *list = value_at(saving->root, entry->valuestring);
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > 4) continue;
    cJSON *all = cJSON_CreateArray();
    for (int i = 0; i < 4; i++) {
      double number = 0;
      number_of(cJSON_GetArrayItem(list, i), &number);
      cJSON_AddItemToArray(all, cJSON_CreateNumber(number));
    }
    sli_gguf_put_integers(saving->keys, own_key(saving, entry->string), all);
    cJSON_AddItemToObject(saving->own, entry->string, all);
  }
}

/* Returns the numbers of config.json by KEY, and by KEY.KEY, for formulas. */
static cJSON *numbers_of(const cJSON *root) {
  cJSON *out = cJSON_CreateObject();
  const cJSON *item, *inner;
  double number;
  cJSON_ArrayForEach(item, root) {
    if (number_of(item, &number)) cJSON_AddNumberToObject(out, item->string, number);
    if (!cJSON_IsObject(item)) continue;
    cJSON_ArrayForEach(inner, item) if (number_of(inner, &number)) {
      char *key = sli_format("%s.%s", item->string, inner->string);
      cJSON_AddNumberToObject(out, key, number);
      free(key);
    }
  }
  return out;
}

/* Writes keys whose values follow from others of config.json. */
static void put_derived(const saving *saving) {
  const cJSON *entry;
  cJSON *numbers = numbers_of(saving->root);
  const sli_formula_keys keys = {saving->path, numbers, ""};
  double number = 0;
  cJSON_ArrayForEach(entry, at(saving->row, "derived")) if (!at(saving->own, entry->string) &&
                                                            gguf_formula(entry, &keys, &number))
      put_value(saving, entry->string, number);
  cJSON_Delete(numbers);
}

static const char *text_of(const sl_model *model, const sl_args *args, const char *option) {
  const char *given = sl_arg_given(args, option, 0);
  return given ? given : sl_options_find(model->options, option)->value;
}

/* Checks that readers of the file get the options of config.json. */
static sl_status check_options(const saving *saving) {
  const pretrained *p = saving->target;
  pretrained folder = *p, file = *p;
  char *text = cJSON_PrintUnformatted(saving->root); /* reals are kept as texts there */
  cJSON *root = cJSON_Parse(text), *again = NULL;
  free(text);
  SLI_TRY(sl_args_create(p->model->options, &folder.args));
  SLI_TRY(sl_args_create(p->model->options, &file.args));
  sl_status status = gguf_config_again(saving->path, saving->row, saving->own, root, &again);
  if (!status) status = huggingface_read_config(saving->path, root, NULL, &folder);
  if (!status) status = huggingface_read_config(saving->path, again, NULL, &file);
  const char *option = status ? NULL : family_differs(p->model, folder.args, file.args);
  if (option)
    status = sl_fail(SL_E_UNSUPPORTED,
                     "--save %s: --%s is %s, but readers of a GGUF file of %s use %s; save to a "
                     "folder or FILE.safetensors",
                     saving->path, option, text_of(p->model, folder.args, option),
                     text_at(saving->row, "name"), text_of(p->model, file.args, option));
  sl_args_destroy(folder.args);
  sl_args_destroy(file.args);
  cJSON_Delete(root);
  cJSON_Delete(again);
  return status;
}

static sl_status put_keys(saving *saving) {
  const cJSON *entry;
  double number = 0;
  sli_gguf_put_text(saving->keys, "general.architecture", text_at(saving->row, "name"));
  SLI_TRY(put_rope(saving));
  put_lists(saving);
  put_fours(saving);
  cJSON_ArrayForEach(entry, at(saving->row, "settings")) put_value(
      saving, entry->string, (double)sl_arg_int(saving->target->args, entry->valuestring));
  cJSON_ArrayForEach(entry, at(saving->row, "keys")) put_entry(saving, entry);
  put_derived(saving);
  SLI_TRY(check_options(saving));
  if (saving->checks) return SL_OK;
  number_of(at(saving->root, "vocab_size"), &number);
  return put_tokenizer(saving->target, (int64_t)number, saving->keys);
}

/* Returns the row of the architecture that files of a model_type have, or NULL if none is
 * written. */
static const cJSON *row_of(const char *type) {
  const cJSON *row, *written;
  cJSON_ArrayForEach(row, sli_gguf_architectures()) cJSON_ArrayForEach(
      written, at(row, "written")) if (type && !strcmp(written->valuestring, type)) return row;
  return NULL;
}

/* Makes config.json, and finds the row of its architecture. */
static sl_status find_row(saving *saving) {
  SLI_TRY(huggingface_described(saving->target, &saving->root));
  saving->row = row_of(text_at(saving->root, "model_type"));
  return saving->row
             ? SL_OK
             : sl_fail(SL_E_USAGE,
                       "--save %s: %s with these options cannot be written as GGUF; save to a "
                       "folder or FILE.safetensors",
                       saving->path, saving->target->model->name);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Writes the tensors, followed by the frequency factors. */
static sl_status write_tensors(void *ctx, const sli_tensor_data *tensors, int count,
                               sli_tensor_values *values, void *of_values) {
  const saving *v = ctx;
  sli_tensor_data *all = sli_calloc((size_t)count + 1, sizeof *all);
  bool tied = true;
  for (int i = 0; i < count; i++) {
    all[i] = tensors[i];
    tied &= strcmp(tensors[i].name, "lm_head.weight") != 0;
  }
  all[count] = (sli_tensor_data){"rope_freqs.weight", 1, &v->pairs, v->factors, NULL};
  const sli_gguf_content content = {
      .keys = v->keys,
      .type = v->type,
      .predicts = tied ? "model.embed_tokens.weight" : "lm_head.weight",
      .tensors = all,
      .count = count + (v->factors != NULL),
      .values = values,
      .ctx = of_values};
  sl_status status = sli_gguf_write(v->path, &content);
  free(all);
  return status;
}

static saving begin(const pretrained *p, const char *path, const char *type) {
  return (saving){.target = p,
                  .path = path,
                  .type = type,
                  .own = cJSON_CreateObject(),
                  .keys = sli_gguf_keys_create()};
}

static void end(saving *v) {
  sli_gguf_keys_destroy(v->keys);
  cJSON_Delete(v->own);
  cJSON_Delete(v->root);
  free(v->factors);
}

sl_status gguf_check(const char *path, const pretrained *p, int processes) {
  char *type = type_of(path);
  saving v = begin(p, path, type);
  sl_status status = SL_OK;
  v.checks = true;
  if (!sli_gguf_writes(type))
    status =
        sl_fail(SL_E_USAGE, "--save %s: the type must be f32, f16, bf16, q8_0, q4_0 or q4_k", path);
  else if (processes > 1)
    status = sl_fail(SL_E_USAGE,
                     "--save %s: only a run of one process can write a GGUF file; save to a folder",
                     path);
  else status = find_row(&v);
  if (!status) status = put_keys(&v);
  end(&v);
  free(type);
  return status;
}

sl_status gguf_save(const char *path, const pretrained *p, const sl_lowered *lowered,
                    sl_runtime *rt) {
  char *file = gguf_file_of(path), *type = type_of(path);
  saving v = begin(p, file, type);
  sl_status status = find_row(&v);
  if (!status) status = put_keys(&v);
  if (!status) status = sli_weights_write(file, lowered, rt, true, write_tensors, &v);
  end(&v);
  free(type);
  free(file);
  return status;
}
