/* SPDX-License-Identifier: Apache-2.0 */
#include "text/chats/chats.h"

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "io/file.h"
#include "io/gguf/gguf.h"

static char *copy_text(const cJSON *item) {
  return cJSON_IsString(item) ? sli_strdup(item->valuestring) : NULL;
}

static char *token_text(const cJSON *keys, const cJSON *texts, const char *which) {
  char *key = sli_format("tokenizer.ggml.%s_token_id", which);
  const cJSON *number = cJSON_GetObjectItemCaseSensitive(keys, key);
  free(key);
  return cJSON_IsNumber(number) ? copy_text(cJSON_GetArrayItem(texts, number->valueint)) : NULL;
}

/* Names of the special tokens, in tokenizer_config.json and in GGUF files. */
static const struct {
  const char *name, *in_gguf;
  size_t place; /* offset in the marks */
} tokens[] = {
    {"bos_token", "bos", offsetof(sli_chat_marks, begin)},
    {"eos_token", "eos", offsetof(sli_chat_marks, end)},
    {"unk_token", "unknown", offsetof(sli_chat_marks, unknown)},
    {"pad_token", "padding", offsetof(sli_chat_marks, pad)},
    {"sep_token", "seperator", offsetof(sli_chat_marks, separator)}, /* the spelling in GGUF */
    {"cls_token", "cls", offsetof(sli_chat_marks, classifier)},
    {"mask_token", "mask", offsetof(sli_chat_marks, mask)}};

static const char **mark_of(sli_chat_marks *marks, size_t i) {
  return (const char **)((char *)marks + tokens[i].place);
}

static sl_status find_in_gguf(const char *path, sli_chat_found *out) {
  sli_gguf *file;
  sl_status status = sli_gguf_open(path, &file);
  if (status) return status;
  const cJSON *keys = sli_gguf_metadata(file);
  cJSON *texts = sli_gguf_array(file, "tokenizer.ggml.tokens");
  out->template = copy_text(cJSON_GetObjectItemCaseSensitive(keys, "tokenizer.chat_template"));
  out->for_tools =
      copy_text(cJSON_GetObjectItemCaseSensitive(keys, "tokenizer.chat_template.tool_use"));
  for (size_t i = 0; i < SLI_COUNT(tokens); i++)
    *mark_of(&out->marks, i) = token_text(keys, texts, tokens[i].in_gguf);
  cJSON_Delete(texts);
  sli_gguf_close(file);
  return SL_OK;
}

/* Returns the text of a mark: "<s>", or {"content": "<s>", ...}. */
static char *mark_text(const cJSON *root, const char *name) {
  const cJSON *mark = cJSON_GetObjectItemCaseSensitive(root, name);
  return copy_text(cJSON_IsObject(mark) ? cJSON_GetObjectItemCaseSensitive(mark, "content") : mark);
}

/* Returns the chat template, or one of several by its name. */
static char *template_text(const cJSON *root, const char *which) {
  const cJSON *all = cJSON_GetObjectItemCaseSensitive(root, "chat_template"), *each;
  if (!cJSON_IsArray(all)) return strcmp(which, "default") ? NULL : copy_text(all);
  cJSON_ArrayForEach(each, all) {
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(each, "name");
    if (cJSON_IsString(name) && !strcmp(name->valuestring, which))
      return copy_text(cJSON_GetObjectItemCaseSensitive(each, "template"));
  }
  return NULL;
}

/* Reads a whole file from the folder of another one. *out is NULL if it does not exist. The caller
 * frees it. */
static sl_status read_beside(const char *path, const char *name, char **out) {
  const char *slash = strrchr(path, '/');
  char *beside = sli_format("%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
  *out = NULL;
  sl_status status = access(beside, F_OK) ? SL_OK : sli_file_read(beside, out);
  free(beside);
  return status;
}

/* Replaces a template by that of a separate file, if it exists. */
static sl_status prefer_file(const char *path, const char *name, char **template) {
  char *text;
  sl_status status = read_beside(path, name, &text);
  if (!text) return status;
  free(*template);
  *template = text;
  return status;
}

static sl_status find_beside(const char *path, sli_chat_found *out) {
  char *config;
  sl_status status = read_beside(path, "tokenizer_config.json", &config);
  if (status) return status;
  cJSON *root = config ? cJSON_Parse(config) : NULL;
  out->template = template_text(root, "default");
  out->for_tools = template_text(root, "tool_use");
  for (size_t i = 0; i < SLI_COUNT(tokens); i++)
    *mark_of(&out->marks, i) = mark_text(root, tokens[i].name);
  cJSON_Delete(root);
  free(config);
  status = prefer_file(path, "chat_template.jinja", &out->template);
  return status ? status
                : prefer_file(path, "additional_chat_templates/tool_use.jinja", &out->for_tools);
}

sl_status sli_chat_find(const char *tokenizer, sli_chat_found *out) {
  *out = (sli_chat_found){0};
  return sli_gguf_is(tokenizer) ? find_in_gguf(tokenizer, out) : find_beside(tokenizer, out);
}

void sli_chat_found_fini(sli_chat_found *f) {
  free(f->template);
  free(f->for_tools);
  for (size_t i = 0; i < SLI_COUNT(tokens); i++) free((char *)*mark_of(&f->marks, i));
}

/* ---- choice of a template ------------------------------------------------------------------- */

static sl_status unknown(const char *format, const char *what) {
  char *names = sli_chat_names();
  sl_fail(SL_E_USAGE, format, what, names);
  free(names);
  return SL_E_USAGE;
}

/* Parses the template in a file. */
static sl_status choose_file(const char *path, const sli_chat **out) {
  char *text;
  sl_status status = sli_file_read(path, &text);
  if (status) return status;
  *out = sli_chat_of_template(text, NULL);
  free(text);
  return *out ? SL_OK : sl_fail(SL_E_USAGE, "--chat-template %s: %s", path, sl_detail());
}

sl_status sli_chat_choose(const sli_chat_found *f, const char *tokenizer, const char *name,
                          const sli_chat **out) {
  *out = name          ? sli_chat_named(name)
         : f->template ? sli_chat_of_template(f->template, f->for_tools)
                       : NULL;
  if (*out) return SL_OK;
  if (name && !access(name, R_OK)) return choose_file(name, out);
  if (name) return unknown("--chat-template %s: must be a file, or one of %s", name);
  if (!f->template)
    return unknown("%s has no chat template; --chat-template NAME says which one to use, of %s",
                   tokenizer);
  char *what =
      sli_format("%s has a chat template that is not understood, %s", tokenizer, sl_detail());
  sl_status status = unknown("%s; --chat-template NAME says which one to use instead, of %s", what);
  free(what);
  return status;
}
