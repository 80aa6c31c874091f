/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files as models, and their tokenizers as files of a folder. */
#include "tools/formats/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "io/gguf/gguf.h"
#include "text/tokenizer/tokenizer.h"
#include "tools/formats/config.h"
#include "tools/formats/gguf_config.h"
#include "tools/formats/huggingface.h"

/* Refuses one part of a split model, which is incomplete without the other files. */
static sl_status check_whole(const char *path, const cJSON *keys) {
  const cJSON *files = config_at(keys, "split.count");
  if (!cJSON_IsNumber(files) || files->valuedouble <= 1) return SL_OK;
  return sl_fail(
      SL_E_INPUT,
      "%s is one of %d split files of a model, and only a single file can be read (llama-gguf-split --merge makes one)",
      path, files->valueint);
}

static sl_status unknown_architecture(const char *path, const cJSON *keys) {
  const cJSON *type = config_at(keys, "general.architecture");
  const char *name = cJSON_IsString(type) ? type->valuestring : "";
  char *known = sli_strdup("");
  const cJSON *row;
  cJSON_ArrayForEach(row, sli_gguf_architectures()) {
    char *more =
        sli_format("%s%s%s", known, *known ? ", " : "", config_at(row, "name")->valuestring);
    free(known);
    known = more;
  }
  sl_fail(SL_E_INPUT, "%s: unknown architecture \"%.40s\"; known: %s", path, name, known);
  free(known);
  return SL_E_INPUT;
}

/* Sets the options from the file's keys. A user's own model is not checked, because it reads
 * tensors by name. */
static sl_status match(const char *path, const sli_gguf *file, const pretrained *p) {
  cJSON *root = NULL, *names = NULL;
  if (!config_is_shipped(p->model)) return SL_OK;
  SLI_TRY(gguf_config(path, file, &root, &names));
  sl_status status = root ? huggingface_read_config(path, root, names, p)
                          : unknown_architecture(path, sli_gguf_metadata(file));
  cJSON_Delete(names);
  cJSON_Delete(root);
  return status;
}

sl_status gguf_read(const char *path, pretrained *p) {
  sli_gguf *file;
  SLI_TRY(sli_gguf_open(path, &file));
  const cJSON *keys = sli_gguf_metadata(file);
  sl_status status = check_whole(path, keys);
  if (!status) status = match(path, file, p);
  if (!p->tokenizer && config_at(keys, "tokenizer.ggml.model"))
    p->tokenizer = sli_arena_strdup(p->arena, path);
  sli_gguf_close(file);
  return status;
}

sl_status gguf_model(const char *path, const char **out) {
  sli_gguf *file;
  cJSON *root = NULL;
  SLI_TRY(sli_gguf_open(path, &file));
  const cJSON *keys = sli_gguf_metadata(file);
  sl_status status = check_whole(path, keys);
  if (!status) status = gguf_config(path, file, &root, NULL);
  if (!status)
    status = root ? huggingface_model_of(path, root, out) : unknown_architecture(path, keys);
  cJSON_Delete(root);
  sli_gguf_close(file);
  return status;
}

/* ---- saving the tokenizer -------------------------------------------------------------------- */

typedef struct saving {
  const cJSON *keys;
  const cJSON *tokens;
  const char *folder;
} saving;

/* Writes JSON beside the weights. Takes ownership of `root`. */
static sl_status write_beside(const saving *s, const char *name, cJSON *root) {
  char *path = huggingface_file(s->folder, name);
  sl_status status = config_write(path, root);
  free(path);
  cJSON_Delete(root);
  return status;
}

/* Adds a special token's number and text. */
static void add_mark(const saving *s, const char *which, cJSON *numbers, cJSON *texts) {
  char *key = sli_format("tokenizer.ggml.%s_token_id", which);
  char *number = sli_format("%s_token_id", which), *text = sli_format("%s_token", which);
  const cJSON *found = config_at(s->keys, key);
  const cJSON *token =
      cJSON_IsNumber(found) ? cJSON_GetArrayItem(s->tokens, found->valueint) : NULL;
  if (cJSON_IsString(token)) cJSON_AddNumberToObject(numbers, number, found->valueint);
  if (cJSON_IsString(token)) cJSON_AddStringToObject(texts, text, token->valuestring);
  free(key);
  free(number);
  free(text);
}

static void add_named_template(cJSON *all, const char *name, const cJSON *template) {
  cJSON *one = cJSON_CreateObject();
  cJSON_AddStringToObject(one, "name", name);
  cJSON_AddStringToObject(one, "template", template->valuestring);
  cJSON_AddItemToArray(all, one);
}

/* Adds the chat template. If the file also has a template for tools, adds both as a list with
 * names. */
static void add_templates(cJSON *texts, const cJSON *chat, const cJSON *for_tools) {
  if (!cJSON_IsString(chat)) return;
  if (!cJSON_IsString(for_tools)) {
    cJSON_AddStringToObject(texts, "chat_template", chat->valuestring);
    return;
  }
  cJSON *all = cJSON_AddArrayToObject(texts, "chat_template");
  add_named_template(all, "default", chat);
  add_named_template(all, "tool_use", for_tools);
}

static sl_status write_configs(const saving *s) {
  const cJSON *chat = config_at(s->keys, "tokenizer.chat_template");
  cJSON *numbers = cJSON_CreateObject(), *texts = cJSON_CreateObject();
  cJSON_AddStringToObject(texts, "tokenizer_class", "PreTrainedTokenizerFast");
  add_mark(s, "bos", numbers, texts);
  add_mark(s, "eos", numbers, texts);
  add_templates(texts, chat, config_at(s->keys, "tokenizer.chat_template.tool_use"));
  sl_status status = write_beside(s, "tokenizer_config.json", texts);
  sl_status other = write_beside(s, "generation_config.json", numbers);
  return status ? status : other;
}

sl_status gguf_save_tokenizer(const char *path, const char *folder) {
  sli_gguf *file;
  cJSON *root = NULL;
  if (sli_tokenizer_of_gguf(path, &root)) return SL_OK; /* an unknown tokenizer is not exported */
  saving s = {.folder = folder};
  sl_status status = write_beside(&s, "tokenizer.json", root);
  if (!status) status = sli_gguf_open(path, &file);
  if (status) return status;
  cJSON *tokens = sli_gguf_array(file, "tokenizer.ggml.tokens");
  s.keys = sli_gguf_metadata(file);
  s.tokens = tokens;
  status = write_configs(&s);
  cJSON_Delete(tokens);
  sli_gguf_close(file);
  return status;
}
