/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a tokenizer.json. Every value is checked before it is used. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "io/file.h"
#include "io/gguf/gguf.h"
#include "text/tokenizer/tokenizer_inner.h"

/* ---- vocabulary ----------------------------------------------------------------------------- */

static sl_status add_token(model *m, const cJSON *item) {
  double number = cJSON_IsNumber(item) ? item->valuedouble : -1;
  if (!(number >= 0 && number < SLI_MOST_TOKENS) || number != (double)(int32_t)number)
    return sl_fail(SL_E_INPUT, "token \"%.40s\" has no number that can be", item->string);
  span text = {item->string, strlen(item->string)};
  if (m->byte_level) {
    char *bytes = sli_calloc(1, text.bytes + 1);
    size_t n;
    bool plain = sli_bytes_of_text(text, bytes, &n);
    sli_vocab_add(&m->vocab, plain ? (span){bytes, n} : text, (int32_t)number, plain);
    free(bytes);
  } else {
    sli_vocab_add(&m->vocab, text, (int32_t)number, true);
  }
  return SL_OK;
}

static sl_status read_vocabulary(model *m, const cJSON *from) {
  const cJSON *all = cJSON_GetObjectItemCaseSensitive(from, "vocab"), *item;
  if (!cJSON_IsObject(all)) return sl_fail(SL_E_INPUT, "model.vocab is not an object");
  sli_vocab_create(&m->vocab, (size_t)cJSON_GetArraySize(all));
  sl_status status = SL_OK;
  cJSON_ArrayForEach(item, all) if (!status) status = add_token(m, item);
  return status;
}

static int32_t token_of_byte(const model *m, int byte) {
  char text[8];
  size_t n = m->byte_level ? 1 : (size_t)snprintf(text, sizeof text, "<0x%02X>", byte);
  if (m->byte_level) text[0] = (char)byte;
  return sli_vocab_find(&m->vocab, (span){text, n});
}

/* ---- merges ---------------------------------------------------------------------------------- */

/* Finds a side of a merge in the vocabulary. */
static int32_t find_side(const model *m, span text) {
  if (!m->byte_level) return sli_vocab_find(&m->vocab, text);
  char *bytes = sli_calloc(1, text.bytes + 1);
  size_t n;
  int32_t token = sli_bytes_of_text(text, bytes, &n) ? sli_vocab_find(&m->vocab, (span){bytes, n})
                                                     : SLI_NO_TOKEN;
  free(bytes);
  return token;
}

/* Splits a merge: "a b", or ["a", "b"]. */
static bool cut_merge(const cJSON *item, span *left, span *right) {
  const cJSON *first = item->child, *second = first ? first->next : NULL;
  if (cJSON_IsString(first) && cJSON_IsString(second) && !second->next) {
    *left = (span){first->valuestring, strlen(first->valuestring)};
    *right = (span){second->valuestring, strlen(second->valuestring)};
    return true;
  }
  const char *text = cJSON_IsString(item) ? item->valuestring : "", *space = strchr(text, ' ');
  if (!space || strchr(space + 1, ' ')) return false;
  *left = (span){text, (size_t)(space - text)};
  *right = (span){space + 1, strlen(space + 1)};
  return true;
}

static sl_status add_merge(model *m, const cJSON *item, int number) {
  span left, right;
  if (!cut_merge(item, &left, &right))
    return sl_fail(SL_E_INPUT, "merge %d is not a pair of strings", number);
  int32_t a = find_side(m, left), b = find_side(m, right), c = SLI_NO_TOKEN;
  if (a != SLI_NO_TOKEN && b != SLI_NO_TOKEN) {
    text_row joint = {0};
    sli_text_add(&joint, m->vocab.texts[a].at, m->vocab.texts[a].bytes);
    sli_text_add(&joint, m->vocab.texts[b].at, m->vocab.texts[b].bytes);
    c = sli_vocab_find(&m->vocab, (span){joint.items, joint.count});
    free(joint.items);
  }
  if (c == SLI_NO_TOKEN)
    return sl_fail(SL_E_INPUT,
                   "merge %d, \"%.*s\" and \"%.*s\": the vocabulary has not both of "
                   "them and what they make",
                   number, (int)SLI_MIN(left.bytes, (size_t)40), left.at,
                   (int)SLI_MIN(right.bytes, (size_t)40), right.at);
  sli_merges_add(m->merges, a, b, c);
  return SL_OK;
}

static sl_status read_merges(model *m, const cJSON *from) {
  const cJSON *all = cJSON_GetObjectItemCaseSensitive(from, "merges"), *item;
  if (!cJSON_IsArray(all)) return sl_fail(SL_E_INPUT, "model.merges is not an array");
  m->merges = sli_merges_create((size_t)cJSON_GetArraySize(all));
  sl_status status = SL_OK;
  int number = 0;
  cJSON_ArrayForEach(item, all) if (!status) status = add_merge(m, item, number++);
  return status;
}

/* Returns whether no token has a space mark after another character, so that merges never cross
 * one. */
static bool splits_at_marks(const model *m) {
  if (m->byte_level || m->whole_words) return false;
  for (int64_t i = 0; i < m->vocab.count; i++) {
    span text = m->vocab.texts[i];
    for (size_t at = 3; at + 3 <= text.bytes; at++)
      if (!memcmp(text.at + at, "\u2581", 3) && memcmp(text.at + at - 3, "\u2581", 3)) return false;
    for (size_t at = 1; at < 3 && at + 3 <= text.bytes; at++)
      if (!memcmp(text.at + at, "\u2581", 3)) return false;
  }
  return true;
}

/* ---- model ----------------------------------------------------------------------------------- */

static sl_status refuse_variants(const cJSON *from) {
  static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  for (size_t i = 0; i < SLI_COUNT(affixes); i++) {
    const char *affix = sli_json_text(from, affixes[i]);
    if (affix && *affix) return sl_fail(SL_E_INPUT, "model.%s is not supported", affixes[i]);
  }
  const cJSON *dropout = cJSON_GetObjectItemCaseSensitive(from, "dropout");
  if (cJSON_IsNumber(dropout) && dropout->valuedouble > 0)
    return sl_fail(SL_E_INPUT, "model.dropout is not supported");
  return SL_OK;
}

static sl_status read_unknown(model *m, const cJSON *from) {
  const char *unknown = sli_json_text(from, "unk_token");
  m->unknown = SLI_NO_TOKEN;
  if (!unknown) return SL_OK;
  m->unknown = find_side(m, (span){unknown, strlen(unknown)});
  if (m->unknown != SLI_NO_TOKEN) return SL_OK;
  return sl_fail(SL_E_INPUT, "model.unk_token \"%.40s\" is not in the vocabulary", unknown);
}

static sl_status read_bpe(model *m, const cJSON *from) {
  m->whole_words = sli_json_flag(from, "ignore_merges", false);
  m->fuse_unknown = sli_json_flag(from, "fuse_unk", false);
  sl_status status = refuse_variants(from);
  if (!status) status = read_vocabulary(m, from);
  if (!status) status = read_merges(m, from);
  if (!status) status = read_unknown(m, from);
  m->splits_at_marks = splits_at_marks(m);
  return status;
}

static sl_status read_wordpiece(model *m, const cJSON *from) {
  sl_status status = read_vocabulary(m, from);
  if (!status) status = read_unknown(m, from);
  return status ? status : sli_wordpiece_read(m, from);
}

static sl_status read_kind(model *m, const cJSON *from) {
  static const struct {
    const char *type;
    sl_status (*read)(model *m, const cJSON *from);
  } kinds[] = {{"BPE", read_bpe}, {"Unigram", sli_unigram_read}, {"WordPiece", read_wordpiece}};
  const char *type = sli_json_text(from, "type");
  if (!type) type = "BPE";
  for (size_t i = 0; i < SLI_COUNT(kinds); i++)
    if (!strcmp(type, kinds[i].type)) return kinds[i].read(m, from);
  return sl_fail(SL_E_INPUT, "model \"%.40s\" is not known: it must be BPE, Unigram or WordPiece",
                 type);
}

static sl_status read_model(model *m, const cJSON *from) {
  if (!cJSON_IsObject(from)) return sl_fail(SL_E_INPUT, "there is no model");
  m->byte_fallback = sli_json_flag(from, "byte_fallback", false);
  sl_status status = read_kind(m, from);
  if (status) return status;
  for (int byte = 0; byte < 256; byte++) m->bytes[byte] = token_of_byte(m, byte);
  return SL_OK;
}

/* ---- post-processor -------------------------------------------------------------------------- */

static sl_status add_marks(const cJSON *marks, const char *name, sli_token_row *out) {
  const cJSON *mark = name ? cJSON_GetObjectItemCaseSensitive(marks, name) : NULL, *number;
  const cJSON *ids = cJSON_GetObjectItemCaseSensitive(mark, "ids");
  if (!cJSON_IsArray(ids))
    return sl_fail(SL_E_INPUT, "post_processor: special token \"%.40s\" has no ids",
                   name ? name : "");
  cJSON_ArrayForEach(number, ids) {
    double value = cJSON_IsNumber(number) ? number->valuedouble : -1;
    if (!(value >= 0 && value < SLI_MOST_TOKENS))
      return sl_fail(SL_E_INPUT, "post_processor: special token \"%.40s\" has an impossible id",
                     name);
    SLI_GROW(out->items, out->count, out->capacity);
    out->items[out->count++] = (int32_t)value;
  }
  return SL_OK;
}

static sl_status read_template(sli_tokenizer *t, const cJSON *item) {
  const cJSON *marks = cJSON_GetObjectItemCaseSensitive(item, "special_tokens"), *part;
  sli_token_row *side = &t->before;
  cJSON_ArrayForEach(part, cJSON_GetObjectItemCaseSensitive(item, "single")) {
    const cJSON *mark = cJSON_GetObjectItemCaseSensitive(part, "SpecialToken");
    sl_status status = mark ? add_marks(marks, sli_json_text(mark, "id"), side) : SL_OK;
    if (status) return status;
    if (!mark) side = &t->after;
  }
  return SL_OK;
}

/* Reads a mark in the form of BERT's processor: a text and its number. */
static sl_status add_pair(const cJSON *item, const char *name, sli_token_row *out) {
  const cJSON *pair = cJSON_GetObjectItemCaseSensitive(item, name);
  const cJSON *number = pair && pair->child ? pair->child->next : NULL;
  double value = cJSON_IsNumber(number) ? number->valuedouble : -1;
  if (!(value >= 0 && value < SLI_MOST_TOKENS))
    return sl_fail(SL_E_INPUT, "post_processor: %s is not a string with a number", name);
  sli_token_row_add(out, (int32_t)value);
  return SL_OK;
}

static sl_status read_bert(sli_tokenizer *t, const cJSON *item) {
  sl_status status = add_pair(item, "cls", &t->before);
  return status ? status : add_pair(item, "sep", &t->after);
}

static sl_status read_around(sli_tokenizer *t, const cJSON *item) {
  if (!item || cJSON_IsNull(item)) return SL_OK;
  const char *type = sli_json_text(item, "type");
  if (type && !strcmp(type, "ByteLevel")) return SL_OK; /* affects offsets only */
  if (type && !strcmp(type, "TemplateProcessing")) return read_template(t, item);
  if (type && (!strcmp(type, "BertProcessing") || !strcmp(type, "RobertaProcessing")))
    return read_bert(t, item);
  if (!type || strcmp(type, "Sequence"))
    return sl_fail(SL_E_INPUT, "post_processor \"%.40s\" is not known", type ? type : "");
  const cJSON *each;
  sl_status status = SL_OK;
  cJSON_ArrayForEach(each, cJSON_GetObjectItemCaseSensitive(item, "processors")) if (!status)
      status = read_around(t, each);
  return status;
}

/* ---- entry point ----------------------------------------------------------------------------- */

static sl_status read_added(sli_tokenizer *t, const cJSON *all) {
  const cJSON *item;
  sl_status status = SL_OK;
  cJSON_ArrayForEach(item, all) if (!status) status = sli_added_read(t->added, item, t->normalizer);
  sli_added_sort(t->added);
  return status;
}

static sl_status read_parts(sli_tokenizer *t, const cJSON *root) {
#define PART(name) cJSON_GetObjectItemCaseSensitive(root, name)
  sl_status status = sli_splitter_read(t->splitter, PART("pre_tokenizer"), &t->model.byte_level);
  if (!status) status = read_model(&t->model, PART("model"));
  if (!status) status = sli_normalizer_read(t->normalizer, PART("normalizer"));
  if (!status) status = read_added(t, PART("added_tokens"));
  if (!status) status = read_around(t, PART("post_processor"));
  if (!status) status = sli_decoder_read(t->decoder, PART("decoder"));
  if (!status) status = sli_memory_check();
#undef PART
  return status;
}

static sl_status parse(const char *path, cJSON **out) {
  char *text;
  const char *end = NULL;
  sl_status status = sli_file_read(path, &text);
  if (status) return status;
  *out = cJSON_ParseWithOpts(text, &end, false);
  if (!*out) status = sli_memory_for_json(strlen(text), path);
  if (!*out && !status)
    status = sl_fail(SL_E_INPUT, "%s is not JSON (near byte %lld)", path,
                     (long long)(end ? end - text : 0));
  free(text);
  return status;
}

static sl_status read_root(sli_tokenizer *t, const cJSON *root) {
  sl_status status = read_parts(t, root);
  return status ? sl_fail(status, "%s: %s", t->path, sl_detail()) : SL_OK;
}

sl_status sli_tokenizer_open(const char *path, sli_tokenizer **out) {
  cJSON *root = NULL;
  sl_status status = sli_gguf_is(path) ? sli_tokenizer_of_gguf(path, &root) : parse(path, &root);
  if (status) return status;
  sli_tokenizer *t = sli_calloc(1, sizeof *t);
  *t = (sli_tokenizer){.path = sli_strdup(path),
                       .splitter = sli_splitter_create(),
                       .normalizer = sli_normalizer_create(),
                       .added = sli_added_create(),
                       .decoder = sli_decoder_create()};
  status = read_root(t, root);
  cJSON_Delete(root);
  if (status) sli_tokenizer_close(t);
  else *out = t;
  return status;
}

void sli_tokenizer_close(sli_tokenizer *t) {
  if (!t) return;
  sli_model_fini(&t->model);
  sli_splitter_destroy(t->splitter);
  sli_normalizer_destroy(t->normalizer);
  sli_added_destroy(t->added);
  sli_decoder_destroy(t->decoder);
  free(t->before.items);
  free(t->after.items);
  free(t->path);
  free(t);
}
