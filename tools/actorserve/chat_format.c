/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizer and chat template: the model's name, tokenizer, template, and end tokens. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/file.h"
#include "tools/actorserve/actorserve.h"

/* Returns the last part of a path, without .gguf, .pt2 or .safetensors. */
static char *name_of(const char *path) {
  size_t end = strlen(path);
  while (end > 1 && path[end - 1] == '/') end--;
  size_t begin = end;
  while (begin && path[begin - 1] != '/') begin--;
  char *name = sli_format("%.*s", (int)(end - begin), path + begin), *dot = strrchr(name, '.');
  if (dot && (!strcmp(dot, ".gguf") || !strcmp(dot, ".pt2") || !strcmp(dot, ".safetensors")))
    *dot = 0;
  return name;
}

/* Takes the names of --served-model-name. Returns false if one is empty. */
static bool take_names(served *served) {
  int count = 1;
  for (const char *at = served->name; (at = strchr(at, ',')); at++) count++;
  served->aliases = sli_calloc((size_t)count, sizeof *served->aliases);
  served->chat_format.aliases = served->aliases;
  bool good = *served->name && *served->name != ',';
  for (char *at = served->name; (at = strchr(at, ','));) {
    *at++ = 0;
    good &= *at && *at != ',';
    served->aliases[served->chat_format.naliases++] = at;
  }
  return good;
}

/* ---- end tokens
 * ------------------------------------------------------------------------------- */

static void add_end(served *served, int64_t token) {
  bool good = token >= 0 && token < served->chat_format.codec.vocabulary;
  for (int i = 0; i < served->chat_format.nends && good; i++) good = served->ends[i] != token;
  if (!good) return;
  served->ends =
      sli_realloc(served->ends, (size_t)served->chat_format.nends + 1, sizeof *served->ends);
  served->ends[served->chat_format.nends++] = (int32_t)token;
  served->chat_format.ends = served->ends;
}

/* Adds a special token that ends an answer, if the text is a single token. */
static void add_mark(served *served, const char *text) {
  const answer_format *f = served->chat_format.answers;
  if (!text || (f && f->no_end && !strcmp(text, f->no_end))) return;
  sli_token_row row = {0};
  sl_status status =
      codec_encode(&served->chat_format.codec, text, strlen(text), false, NULL, NULL, &row);
  if (!status && row.count == 1) add_end(served, row.items[0]);
  free(row.items);
}

/* Adds the "eos_token_id" of a file in the folder: one number or several. */
static void add_ends_of(served *served, const char *folder, const char *file) {
  char *path = huggingface_file(folder, file), *text = NULL;
  if (!access(path, R_OK) && !sli_file_read(path, &text)) {
    cJSON *root = cJSON_Parse(text);
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, "eos_token_id"), *each;
    if (cJSON_IsNumber(item)) add_end(served, item->valueint);
    cJSON_ArrayForEach(each, item) if (cJSON_IsNumber(each)) add_end(served, each->valueint);
    cJSON_Delete(root);
  }
  free(text);
  free(path);
}

/* ---- chats ----------------------------------------------------------------------------------- */

/* Chooses the chat template. Without one the model can still complete texts, unless the user asked
 * for a template. */
static sl_status choose_chat(const settings *s, const sli_chat_found *f, chat_format *v,
                             char **why) {
  const char *name = settings_text(s, "chat-template");
  sl_status status = sli_chat_choose(f, s->data.tokenizer, name, &v->chat);
  if (status && !name) *why = sli_strdup(sl_detail());
  return name ? status : SL_OK;
}

/* Chooses how calls and reasoning are recognized in an answer, by the options or by the
 * template. */
static void choose_answers(const settings *s, chat_format *v) {
  const char *name = sl_arg_text(s->run, "tool-parser"),
             *reasoning = sl_arg_text(s->run, "reasoning-parser"),
             *text = v->chat ? sli_chat_text(v->chat) : "";
  v->answers = strcmp(name, "auto") ? answer_format_named(name) : answer_format_of(text);
  v->thinks = strcmp(reasoning, "auto") ? !strcmp(reasoning, "think") : answer_format_thinks(text);
}

static sl_status read_chat(const settings *s, served *served) {
  chat_format *v = &served->chat_format;
  sl_status status = sli_chat_find(s->data.tokenizer, &served->found);
  if (!status) status = choose_chat(s, &served->found, v, &served->no_chat);
  v->marks = &served->found.marks;
  v->no_chat = served->no_chat;
  if (status) return status;
  choose_answers(s, v);
  for (int i = 0; v->answers && i < ANSWER_ENDS; i++) add_mark(served, v->answers->ends[i]);
  add_mark(served, v->marks->end);
  if (v->chat) add_mark(served, sli_chat_end(v->chat, v->marks));
  return SL_OK;
}

sl_status chat_format_open(const settings *s, int64_t vocabulary, served *served) {
  const char *init = settings_text(s, "init");
  if (!init) init = s->model_word;
  const char *names = settings_text(s, "served-model-name");
  served->name = names ? sli_strdup(names) : name_of(init);
  served->chat_format =
      (chat_format){.name = served->name,
                    .no_chat =
                        "the model has no tokenizer, which chats need (--tokenizer FILE); "
                        "/v1/completions takes a prompt without one"};
  served->chat_format.adapters = (const char *const *)s->adapters.names;
  served->chat_format.nadapters = s->adapters.count;
  if (names && !take_names(served))
    return sl_fail(SL_E_USAGE, "--served-model-name %s: a name is empty", names);
  sl_status status = codec_open(s->data.tokenizer, vocabulary, &served->chat_format.codec);
  if (status) return status;
  if (huggingface_is_folder(init) || model_has_weights(init)) {
    const char *slash = huggingface_is_folder(init) ? NULL : strrchr(init, '/');
    char *folder = huggingface_is_folder(init) ? sli_strdup(init)
                   : slash                     ? sli_format("%.*s", (int)(slash - init), init)
                                               : sli_strdup(".");
    add_ends_of(served, folder, "generation_config.json");
    add_ends_of(served, folder, "config.json");
    free(folder);
  }
  if (s->data.tokenizer) return read_chat(s, served);
  if (!settings_text(s, "chat-template")) return SL_OK;
  return sl_fail(SL_E_USAGE, "--chat-template: the model has no tokenizer; give --tokenizer FILE");
}

void chat_format_close(served *served) {
  codec_close(&served->chat_format.codec);
  sli_chat_free(served->chat_format.chat);
  free(served->ends);
  free(served->name);
  free(served->aliases);
  free(served->no_chat);
  sli_chat_found_fini(&served->found);
}
