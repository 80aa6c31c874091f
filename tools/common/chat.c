/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/chat.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "io/file.h"
#include "io/gguf/gguf.h"

static char *copy_text(const cJSON *item) {
  return cJSON_IsString(item) ? sli_strdup(item->valuestring) : NULL;
}

static char *token_text(const cJSON *keys, const cJSON *tokens, const char *which) {
  const cJSON *number = cJSON_GetObjectItemCaseSensitive(keys, which);
  return cJSON_IsNumber(number) ? copy_text(cJSON_GetArrayItem(tokens, number->valueint)) : NULL;
}

static sl_status find_in_gguf(const char *path, chat_found *out) {
  sli_gguf *file;
  sl_status status = sli_gguf_open(path, &file);
  if (status) return status;
  const cJSON *keys = sli_gguf_metadata(file);
  cJSON *tokens = sli_gguf_array(file, "tokenizer.ggml.tokens");
  out->template = copy_text(cJSON_GetObjectItemCaseSensitive(keys, "tokenizer.chat_template"));
  out->begin = token_text(keys, tokens, "tokenizer.ggml.bos_token_id");
  out->end = token_text(keys, tokens, "tokenizer.ggml.eos_token_id");
  cJSON_Delete(tokens);
  sli_gguf_close(file);
  return SL_OK;
}

/* "<s>", or {"content": "<s>", ...} */
static char *mark_text(const cJSON *root, const char *name) {
  const cJSON *mark = cJSON_GetObjectItemCaseSensitive(root, name);
  return copy_text(cJSON_IsObject(mark) ? cJSON_GetObjectItemCaseSensitive(mark, "content") : mark);
}

/* Returns the chat template, or the one named "default" among several. */
static char *template_text(const cJSON *root) {
  const cJSON *all = cJSON_GetObjectItemCaseSensitive(root, "chat_template"), *each;
  if (!cJSON_IsArray(all)) return copy_text(all);
  cJSON_ArrayForEach(each, all) {
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(each, "name");
    if (cJSON_IsString(name) && !strcmp(name->valuestring, "default"))
      return copy_text(cJSON_GetObjectItemCaseSensitive(each, "template"));
  }
  return NULL;
}

/* Reads a whole file from the folder of another one; NULL: it does not exist. The caller frees
 * it. */
static sl_status read_beside(const char *path, const char *name, char **out) {
  const char *slash = strrchr(path, '/');
  char *beside = sli_format("%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
  *out = NULL;
  sl_status status = access(beside, F_OK) ? SL_OK : sli_file_read(beside, out);
  free(beside);
  return status;
}

static sl_status find_beside(const char *path, chat_found *out) {
  char *config, *template;
  sl_status status = read_beside(path, "tokenizer_config.json", &config);
  if (status) return status;
  cJSON *root = config ? cJSON_Parse(config) : NULL;
  *out =
      (chat_found){template_text(root), mark_text(root, "bos_token"), mark_text(root, "eos_token")};
  cJSON_Delete(root);
  free(config);
  status = read_beside(path, "chat_template.jinja", &template);
  if (template) {
    free(out->template);
    out->template = template;
  }
  return status;
}

sl_status chat_find(const char *tokenizer, chat_found *out) {
  *out = (chat_found){0};
  return sli_gguf_is(tokenizer) ? find_in_gguf(tokenizer, out) : find_beside(tokenizer, out);
}

void chat_found_fini(chat_found *f) {
  free(f->template);
  free(f->begin);
  free(f->end);
}

/* ---- choice of a template ------------------------------------------------------------------- */

static sl_status unknown(const char *format, const char *what) {
  char *names = sli_chat_names();
  sl_fail(SL_E_USAGE, format, what, names);
  free(names);
  return SL_E_USAGE;
}

sl_status chat_choose(const chat_found *f, const char *tokenizer, const char *name,
                      const sli_chat **out) {
  *out = name ? sli_chat_named(name) : f->template ? sli_chat_of_template(f->template) : NULL;
  if (*out) return SL_OK;
  if (name) return unknown("--chat-template %s: it is one of %s", name);
  if (!f->template)
    return unknown("%s has no chat template; --chat-template NAME says which one to use, of %s",
                   tokenizer);
  char *what =
      sli_format("%s has a chat template that is not understood, %s", tokenizer, sl_detail());
  sl_status status = unknown("%s; --chat-template NAME says which one to use instead, of %s", what);
  free(what);
  return status;
}
