#include "tools/actorrun/chat.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/chat.h"
#include "io/file.h"
#include "io/gguf/gguf.h"

sl_status chat_check(const settings *s) {
  static const char *const of_chats[] = {"chat-system", "chat-template"};
  bool chat = sl_arg_given(s->run, "chat", 0);
  for (size_t i = 0; i < SLI_COUNT(of_chats) && !chat; i++)
    if (sl_arg_given(s->run, of_chats[i], 0))
      return sl_fail(SL_E_USAGE, "--%s: of which chat? --chat TEXT says", of_chats[i]);
  if (!chat) return SL_OK;
  if (sl_arg_given(s->run, "prompt", 0)) return sl_fail(SL_E_USAGE, "--prompt: not with --chat");
  if (!sl_arg_int(s->run, "generate"))
    return sl_fail(SL_E_USAGE, "--chat: how long may the answer be? --generate N says");
  if (!s->data.tokenizer)
    return sl_fail(SL_E_USAGE, "--chat: the model has no tokenizer, --tokenizer FILE names one");
  return SL_OK;
}

/* ---- what lies with the tokenizer --------------------------------------------------------------- */

typedef struct found {
  char *template, *begin, *end; /* NULL: it says nothing */
} found;

static void found_fini(found *f) {
  free(f->template);
  free(f->begin);
  free(f->end);
}

static char *copy_text(const cJSON *item) { return cJSON_IsString(item) ? sli_strdup(item->valuestring) : NULL; }

static char *token_text(const cJSON *keys, const cJSON *tokens, const char *which) {
  const cJSON *number = cJSON_GetObjectItemCaseSensitive(keys, which);
  return cJSON_IsNumber(number) ? copy_text(cJSON_GetArrayItem(tokens, number->valueint)) : NULL;
}

static sl_status find_in_gguf(const char *path, found *out) {
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

/* The template, or the one of several that is called default. */
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

/* A file beside another, whole; NULL: there is none. The caller's to free(). */
static sl_status read_beside(const char *path, const char *name, char **out) {
  const char *slash = strrchr(path, '/');
  char *beside = sli_format("%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
  *out = NULL;
  sl_status status = access(beside, F_OK) ? SL_OK : sli_file_read(beside, out);
  free(beside);
  return status;
}

static sl_status find_beside(const char *path, found *out) {
  char *config, *template;
  sl_status status = read_beside(path, "tokenizer_config.json", &config);
  if (status) return status;
  cJSON *root = config ? cJSON_Parse(config) : NULL;
  *out = (found){template_text(root), mark_text(root, "bos_token"), mark_text(root, "eos_token")};
  cJSON_Delete(root);
  free(config);
  status = read_beside(path, "chat_template.jinja", &template);
  if (template) {
    free(out->template);
    out->template = template;
  }
  return status;
}

/* ---- the prompt ----------------------------------------------------------------------------------- */

static sl_status unknown(const char *format, const char *what) {
  char *names = sli_chat_names();
  sl_fail(SL_E_USAGE, format, what, names);
  free(names);
  return SL_E_USAGE;
}

static sl_status choose(const settings *s, const found *f, const sli_chat **out) {
  const char *name = settings_text(s, "chat-template");
  *out = name ? sli_chat_named(name) : f->template ? sli_chat_of_template(f->template) : NULL;
  if (*out) return SL_OK;
  if (name) return unknown("--chat-template %s: it is one of %s", name);
  return f->template ? unknown("%s has a chat template that is not known; --chat-template NAME says which "
                               "one to use, of %s", s->data.tokenizer)
                     : unknown("%s has no chat template; --chat-template NAME says which one to use, of %s",
                               s->data.tokenizer);
}

/* The system's message, if there is one, then what user and assistant said in turn. */
static sli_chat_message *list_messages(const settings *s, int *count) {
  const char *system = settings_text(s, "chat-system"), *text;
  int n = 0, first = system != NULL;
  while (sl_arg_given(s->run, "chat", n)) n++;
  sli_chat_message *all = sli_calloc((size_t)n + 1, sizeof *all);
  if (system) all[0] = (sli_chat_message){SLI_CHAT_SYSTEM, system};
  for (int i = 0; (text = sl_arg_given(s->run, "chat", i)); i++)
    all[first + i] = (sli_chat_message){i % 2 ? SLI_CHAT_ASSISTANT : SLI_CHAT_USER, text};
  *count = first + n;
  return all;
}

static sl_status render(const settings *s, const found *f, char **prompt, char **end) {
  const sli_chat *chat;
  sl_status status = choose(s, f, &chat);
  if (status) return status;
  int count;
  sli_chat_marks marks = {f->begin, f->end};
  sli_chat_message *messages = list_messages(s, &count);
  status = sli_chat_render(chat, &marks, messages, count, prompt);
  const char *mark = sli_chat_end(chat, &marks);
  if (!status) *end = mark ? sli_strdup(mark) : NULL;
  free(messages);
  return status;
}

sl_status chat_prompt(const settings *s, char **prompt, char **end) {
  found f = {0};
  const char *path = s->data.tokenizer;
  sl_status status = sli_gguf_is(path) ? find_in_gguf(path, &f) : find_beside(path, &f);
  if (!status) status = render(s, &f, prompt, end);
  found_fini(&f);
  return status;
}
