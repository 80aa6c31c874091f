/* SPDX-License-Identifier: Apache-2.0 */
/* Converts the tokenizer of a GGUF file to a tokenizer.json. For byte-level BPE, the file has
 * tokens, merges and the name of a pre-tokenizer, which a table maps to its pattern. For
 * SentencePiece's BPE, the file has pieces with scores, or with merges (Gemma 4), and spaces are
 * marks. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/gguf/gguf.h"
#include "text/tokenizer/tokenizer_inner.h"

/* Token types of tokenizer.ggml.token_type. */
enum { CONTROL = 3, USER_DEFINED = 4 };

static const char llama3_words[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char qwen2_words[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* Marks belong to letters (Qwen 3.5). */
static const char qwen35_words[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
/* Words in mixed case are cut before capitals (o200k: gpt-oss; MiniMax M2). */
#define CASED(ends, numbers)                                                                        \
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" ends  \
  "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" ends \
  "|" numbers "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const char o200k_words[] = CASED("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "\\p{N}{1,3}"),
                  tekken_words[] = CASED("", "\\p{N}");
static const char seed_words[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
/* DeepSeek-V3 cuts numbers, then Chinese and Japanese, then words. */
static const char numbers[] = "\\p{N}{1,3}", cjk[] = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                  deepseek_words[] =
                      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
                      "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|"
                      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* Pre-tokenizer, by the name in tokenizer.ggml.pre. */
typedef struct cut {
  const char *name;
  bool pieces;            /* SentencePiece; the fields from `words` up to `begins` are unused */
  bool merged;            /* pieces have merges, not scores, and no mark begins a text */
  const char *words;      /* pattern; NULL: the pattern of GPT-2 */
  const char *before[2];  /* patterns that cut first; NULL if none */
  bool digits;            /* each digit is a word */
  const char *normalizer; /* NULL if none */
  bool ignore_merges;     /* a word that is a token is not merged */
  bool begins;            /* a text begins with a special token, unless the file says otherwise */
} cut;

static const cut cuts[] = {
    {.name = "gpt-2"},
    {.name = "olmo"},
    {.name = "smollm", .digits = true},
    {.name = "starcoder", .digits = true},
    {.name = "dbrx", .words = llama3_words},
    {.name = "smaug-bpe", .words = llama3_words},
    {.name = "llama-bpe", .words = llama3_words, .ignore_merges = true, .begins = true},
    {.name = "llama3", .words = llama3_words, .ignore_merges = true, .begins = true},
    {.name = "qwen2", .words = qwen2_words, .normalizer = "NFC"},
    {.name = "deepseek-r1-qwen", .words = qwen2_words, .normalizer = "NFC"},
    {.name = "qwen35", .words = qwen35_words, .normalizer = "NFC"},
    {.name = "refact", .digits = true},
    {.name = "chatglm-bpe", .words = llama3_words},
    {.name = "glm4", .words = llama3_words},
    {.name = "lfm2", .words = llama3_words, .ignore_merges = true, .begins = true},
    {.name = "gpt-4o", .words = o200k_words},
    {.name = "minimax-m2", .words = o200k_words},
    {.name = "tekken", .words = tekken_words, .ignore_merges = true, .begins = true},
    {.name = "seed-coder", .words = seed_words},
    {.name = "deepseek-v3", .words = deepseek_words, .before = {numbers, cjk}}};

static const cut pieces = {.pieces = true, .begins = true},
                 merged = {.pieces = true, .merged = true, .begins = true};

static const cJSON *field(const cJSON *keys, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(keys, name);
}

static sl_status find_cut(const char *path, const cJSON *keys, const cut **out) {
  const char *model = sli_json_text(keys, "tokenizer.ggml.model"),
             *pre = sli_json_text(keys, "tokenizer.ggml.pre");
  bool list = model && !strcmp(model, "gemma4"), scores = model && !strcmp(model, "llama");
  if (!list && !scores && !(model && !strcmp(model, "gpt2")))
    return sl_fail(
        SL_E_INPUT,
        "%s: tokenizer.ggml.model \"%.40s\" is not known: it must be gpt2, llama or gemma4; "
        "--tokenizer FILE names another tokenizer",
        path, model ? model : "");
  *out = list ? &merged : &pieces;
  if (list || scores) return SL_OK;
  for (size_t i = 0; i < SLI_COUNT(cuts); i++)
    if (pre && !strcmp(cuts[i].name, pre)) {
      *out = &cuts[i];
      return SL_OK;
    }
  return sl_fail(SL_E_INPUT,
                 "%s: tokenizer.ggml.pre \"%.40s\" is not known; --tokenizer FILE names another "
                 "tokenizer",
                 path, pre ? pre : "");
}

/* ---- parts -------------------------------------------------------------------------------- */

static cJSON *typed(const char *type) {
  cJSON *item = cJSON_CreateObject();
  cJSON_AddStringToObject(item, "type", type);
  return item;
}

static cJSON *byte_level(bool words) {
  cJSON *item = typed("ByteLevel");
  cJSON_AddFalseToObject(item, "add_prefix_space");
  cJSON_AddTrueToObject(item, "trim_offsets");
  cJSON_AddBoolToObject(item, "use_regex", words);
  return item;
}

static cJSON *pre_tokenizer(const cut *c) {
  if (c->pieces) return cJSON_CreateNull();
  cJSON *all = typed("Sequence"), *steps = cJSON_AddArrayToObject(all, "pretokenizers");
  if (c->digits) {
    cJSON *digits = typed("Digits");
    cJSON_AddTrueToObject(digits, "individual_digits");
    cJSON_AddItemToArray(steps, digits);
  }
  const char *const patterns[] = {c->before[0], c->before[1], c->words};
  for (size_t i = 0; i < SLI_COUNT(patterns); i++) {
    if (!patterns[i]) continue;
    cJSON *split = typed("Split");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(split, "pattern"), "Regex", patterns[i]);
    cJSON_AddStringToObject(split, "behavior", "Isolated");
    cJSON_AddFalseToObject(split, "invert");
    cJSON_AddItemToArray(steps, split);
  }
  cJSON_AddItemToArray(steps, byte_level(!c->words));
  return all;
}

/* Returns whether a step of the tokenizer equals the wanted one, alone or as the only step of a
 * sequence. */
static bool is_step(const cJSON *step, const cJSON *wanted) {
  const cJSON *all = cJSON_GetObjectItemCaseSensitive(wanted, "pretokenizers");
  bool only = cJSON_GetArraySize(all) == 1 && cJSON_Compare(step, all->child, true);
  return only || cJSON_Compare(step, wanted, true);
}

static bool is_cut(const cut *c, const cJSON *root, const cJSON *model) {
  const char *kind = sli_json_text(field(root, "normalizer"), "type");
  cJSON *words = pre_tokenizer(c);
  bool same = is_step(field(root, "pre_tokenizer"), words) &&
              sli_json_flag(model, "ignore_merges", false) == c->ignore_merges &&
              (c->normalizer ? kind && !strcmp(kind, c->normalizer) : !kind);
  cJSON_Delete(words);
  return same;
}

const char *sli_tokenizer_gguf_name(const cJSON *tokenizer) {
  const cJSON *model = field(tokenizer, "model");
  const char *kind = sli_json_text(model, "type");
  if ((kind && strcmp(kind, "BPE")) || sli_json_flag(model, "byte_fallback", false)) return NULL;
  for (size_t i = 0; i < SLI_COUNT(cuts); i++)
    if (is_cut(&cuts[i], tokenizer, model)) return cuts[i].name;
  return NULL;
}

static cJSON *add_step(cJSON *steps, const char *type) {
  cJSON *step = typed(type);
  cJSON_AddItemToArray(steps, step);
  return step;
}

static void add_replacement(cJSON *steps, const char *what, const char *with) {
  cJSON *step = add_step(steps, "Replace");
  cJSON_AddStringToObject(cJSON_AddObjectToObject(step, "pattern"), "String", what);
  cJSON_AddStringToObject(step, "content", with);
}

/* Normalizer: spaces become marks, and a mark is prepended to the text if `prefix`. */
static cJSON *normalizer_json(const cut *c, bool prefix) {
  if (!c->pieces) return c->normalizer ? typed(c->normalizer) : cJSON_CreateNull();
  cJSON *all = typed("Sequence"), *steps = cJSON_AddArrayToObject(all, "normalizers");
  if (prefix) cJSON_AddStringToObject(add_step(steps, "Prepend"), "prepend", "\u2581");
  add_replacement(steps, " ", "\u2581");
  return all;
}

/* Decoder: the inverse of the normalizer. */
static cJSON *decoder_json(const cut *c, bool prefix) {
  if (!c->pieces) return byte_level(true);
  cJSON *all = typed("Sequence"), *steps = cJSON_AddArrayToObject(all, "decoders");
  add_replacement(steps, "\u2581", " ");
  add_step(steps, "ByteFallback");
  add_step(steps, "Fuse");
  if (!prefix) return all;
  cJSON *strip = add_step(steps, "Strip");
  cJSON_AddStringToObject(strip, "content", " ");
  cJSON_AddNumberToObject(strip, "start", 1);
  cJSON_AddNumberToObject(strip, "stop", 0);
  return all;
}

static void add_text(cJSON *to, const char *name, const char *text) {
  cJSON_AddItemToObject(to, name, text ? cJSON_CreateString(text) : cJSON_CreateNull());
}

/* Makes the model. Takes ownership of `merges`. */
static cJSON *model_json(const cut *c, const cJSON *tokens, const char *unknown, cJSON *merges) {
  static const char *const none[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
  cJSON *model = typed("BPE"), *vocab = cJSON_CreateObject();
  const cJSON *token;
  int number = 0;
  for (size_t i = 0; i < SLI_COUNT(none); i++) cJSON_AddNullToObject(model, none[i]);
  add_text(model, "unk_token", unknown);
  cJSON_AddBoolToObject(model, "fuse_unk", c->pieces);
  cJSON_AddBoolToObject(model, "byte_fallback", c->pieces);
  cJSON_AddBoolToObject(model, "ignore_merges", c->ignore_merges);
  cJSON_ArrayForEach(token, tokens) cJSON_AddNumberToObject(vocab, token->valuestring, number++);
  cJSON_AddItemToObject(model, "vocab", vocab);
  cJSON_AddItemToObject(model, "merges", merges);
  return model;
}

static cJSON *added_token(const char *text, int number, bool special) {
  static const char *const no[] = {"single_word", "lstrip", "rstrip", "normalized"};
  cJSON *item = cJSON_CreateObject();
  cJSON_AddNumberToObject(item, "id", number);
  cJSON_AddStringToObject(item, "content", text);
  for (size_t i = 0; i < SLI_COUNT(no); i++) cJSON_AddFalseToObject(item, no[i]);
  cJSON_AddBoolToObject(item, "special", special);
  return item;
}

static cJSON *added_tokens(const cJSON *tokens, const cJSON *types) {
  cJSON *all = cJSON_CreateArray();
  const cJSON *token = tokens->child, *type = types ? types->child : NULL;
  for (int number = 0; token && type; number++, token = token->next, type = type->next)
    if (type->valuedouble == CONTROL || type->valuedouble == USER_DEFINED)
      cJSON_AddItemToArray(all,
                           added_token(token->valuestring, number, type->valuedouble == CONTROL));
  return all;
}

/* ---- special tokens around a text ------------------------------------------------------------ */

typedef struct mark {
  const char *text; /* NULL if none */
  int number;
} mark;

static sl_status find_mark(const char *path, const cJSON *keys, const cJSON *tokens,
                           const char *which, bool otherwise, mark *out) {
  char *wanted = sli_format("tokenizer.ggml.add_%s_token", which);
  char *key = sli_format("tokenizer.ggml.%s_token_id", which);
  const cJSON *number = field(keys, key);
  bool is_wanted = sli_json_flag(keys, wanted, otherwise && number);
  int at =
      cJSON_IsNumber(number) && number->valuedouble == number->valueint ? number->valueint : -1;
  const cJSON *token = is_wanted && at >= 0 ? cJSON_GetArrayItem(tokens, at) : NULL;
  sl_status status = SL_OK;
  if (token) *out = (mark){token->valuestring, at};
  else if (is_wanted) status = sl_fail(SL_E_INPUT, "%s: %s is not a token number", path, key);
  free(wanted);
  free(key);
  return status;
}

static cJSON *piece(const char *kind, const char *id) {
  cJSON *item = cJSON_CreateObject(), *inner = cJSON_AddObjectToObject(item, kind);
  cJSON_AddStringToObject(inner, "id", id);
  cJSON_AddNumberToObject(inner, "type_id", 0);
  return item;
}

static cJSON *row_of(const mark marks[2], const char *texts) {
  cJSON *row = cJSON_CreateArray();
  if (marks[0].text) cJSON_AddItemToArray(row, piece("SpecialToken", marks[0].text));
  for (; *texts; texts++) cJSON_AddItemToArray(row, piece("Sequence", (char[]){*texts, 0}));
  if (marks[1].text) cJSON_AddItemToArray(row, piece("SpecialToken", marks[1].text));
  return row;
}

static cJSON *post_processor(const mark marks[2]) {
  if (!marks[0].text && !marks[1].text) return byte_level(true);
  cJSON *item = typed("TemplateProcessing");
  cJSON_AddItemToObject(item, "single", row_of(marks, "A"));
  cJSON_AddItemToObject(item, "pair", row_of(marks, "AB"));
  cJSON *all = cJSON_AddObjectToObject(item, "special_tokens");
  for (int i = 0; i < 2; i++) {
    if (!marks[i].text || cJSON_HasObjectItem(all, marks[i].text)) continue;
    cJSON *one = cJSON_AddObjectToObject(all, marks[i].text);
    cJSON_AddStringToObject(one, "id", marks[i].text);
    cJSON_AddItemToObject(one, "ids", cJSON_CreateIntArray(&marks[i].number, 1));
    cJSON_AddItemToObject(one, "tokens", cJSON_CreateStringArray(&marks[i].text, 1));
  }
  return item;
}

/* Returns the unknown token's text. Byte-level BPE has none. */
static const char *unknown_text(const cut *c, const cJSON *keys, const cJSON *tokens) {
  const cJSON *number = field(keys, "tokenizer.ggml.unknown_token_id");
  const cJSON *token =
      c->pieces && cJSON_IsNumber(number) ? cJSON_GetArrayItem(tokens, number->valueint) : NULL;
  return token ? token->valuestring : NULL;
}

/* ---- conversion ------------------------------------------------------------------------------ */

static bool is_texts(const cJSON *array) {
  return array && (!array->child || cJSON_IsString(array->child));
}

/* The tokenizer's data in the file. */
typedef struct parts {
  const char *path;
  const cJSON *keys;
  cJSON *tokens, *types, *merges, *scores;
  mark marks[2]; /* before and after a text */
} parts;

static void read_arrays(parts *p, const sli_gguf *file) {
  p->keys = sli_gguf_metadata(file);
  p->tokens = sli_gguf_array(file, "tokenizer.ggml.tokens");
  p->types = sli_gguf_array(file, "tokenizer.ggml.token_type");
  p->merges = sli_gguf_array(file, "tokenizer.ggml.merges");
  p->scores = sli_gguf_array(file, "tokenizer.ggml.scores");
}

static void parts_fini(parts *p) {
  cJSON_Delete(p->tokens);
  cJSON_Delete(p->types);
  cJSON_Delete(p->merges);
  cJSON_Delete(p->scores);
}

static bool is_numbers(const cJSON *array) {
  return array && (!array->child || cJSON_IsNumber(array->child));
}

static sl_status no_array(const parts *p, const char *name, const char *of) {
  return sl_fail(SL_E_INPUT, "%s: tokenizer.ggml.%s is not an array of %s", p->path, name, of);
}

static sl_status check_arrays(const parts *p, const cut *c) {
  if (!is_texts(p->tokens)) return no_array(p, "tokens", "texts");
  if (p->types && !is_numbers(p->types)) return no_array(p, "token_type", "numbers");
  bool scored = c->pieces && !c->merged;
  if (!scored && !is_texts(p->merges)) return no_array(p, "merges", "texts");
  if (c->pieces && !p->types) return no_array(p, "token_type", "numbers");
  return !scored || is_numbers(p->scores) ? SL_OK : no_array(p, "scores", "numbers");
}

static cJSON *put_together(const cut *c, const parts *p, cJSON *merges) {
  bool prefix = sli_json_flag(p->keys, "tokenizer.ggml.add_space_prefix", !c->merged);
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "version", "1.0");
  cJSON_AddNullToObject(root, "truncation");
  cJSON_AddNullToObject(root, "padding");
  cJSON_AddItemToObject(root, "added_tokens", added_tokens(p->tokens, p->types));
  cJSON_AddItemToObject(root, "normalizer", normalizer_json(c, prefix));
  cJSON_AddItemToObject(root, "pre_tokenizer", pre_tokenizer(c));
  cJSON_AddItemToObject(root, "post_processor",
                        c->pieces && !p->marks[0].text && !p->marks[1].text
                            ? cJSON_CreateNull()
                            : post_processor(p->marks));
  cJSON_AddItemToObject(root, "decoder", decoder_json(c, prefix));
  cJSON_AddItemToObject(root, "model",
                        model_json(c, p->tokens, unknown_text(c, p->keys, p->tokens), merges));
  return root;
}

static sl_status make(parts *p, const cut *c, cJSON **out) {
  sl_status status = check_arrays(p, c);
  if (!status) status = find_mark(p->path, p->keys, p->tokens, "bos", c->begins, &p->marks[0]);
  if (!status) status = find_mark(p->path, p->keys, p->tokens, "eos", false, &p->marks[1]);
  if (status) return status;
  bool scored = c->pieces && !c->merged;
  cJSON *merges = scored ? sli_pieces_merges(p->tokens, p->types, p->scores) : p->merges;
  if (!scored) p->merges = NULL;
  *out = put_together(c, p, merges);
  return SL_OK;
}

sl_status sli_tokenizer_of_gguf(const char *path, cJSON **out) {
  sli_gguf *file;
  const cut *c = NULL;
  sl_status status = sli_gguf_open(path, &file);
  if (status) return status;
  parts p = {.path = path};
  status = find_cut(path, sli_gguf_metadata(file), &c);
  if (!status) read_arrays(&p, file), status = make(&p, c, out);
  parts_fini(&p);
  sli_gguf_close(file);
  return status;
}
