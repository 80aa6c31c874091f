/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorrun/chat.h"

#include <stdlib.h>
#include <string.h>

#include "text/tokens/tokens.h"

/* Returns whether the data may be chats. */
static bool has_chats(const settings *s) {
  return s->model && sl_options_find(s->model->options, "data") &&
         sli_tokens_may_be_chats(sl_arg_text(s->model_args, "data"));
}

sl_status chat_check(const settings *s) {
  static const char *const of_data[] = {"chat-template", "learn", "long-chats", "show-data"};
  bool chat = sl_arg_given(s->run, "chat", 0), data = has_chats(s);
  bool other = chat || settings_text(s, "prompts") || sl_arg_given(s->run, "preferences", 0);
  if (settings_text(s, "rl") && !chat && !settings_text(s, "chat-system")) return SL_OK;
  if (sl_arg_given(s->run, "chat-system", 0) && !chat)
    return sl_fail(SL_E_USAGE, "--chat-system: needs --chat TEXT");
  for (size_t i = 0; i < SLI_COUNT(of_data) && !data; i++)
    if (sl_arg_given(s->run, of_data[i], 0) && (i || !other))
      return sl_fail(SL_E_USAGE, "--%s: needs chats: %s", of_data[i],
                     i ? "--data FILE.jsonl" : "--chat TEXT or --data FILE.jsonl");
  if (!chat) return SL_OK;
  if (sl_arg_given(s->run, "prompt", 0))
    return sl_fail(SL_E_USAGE, "--prompt: cannot be combined with --chat");
  if (!sl_arg_int(s->run, "generate"))
    return sl_fail(SL_E_USAGE, "--chat: needs --generate N, the maximum length of the answer");
  if (!s->data.tokenizer)
    return sl_fail(SL_E_USAGE, "--chat: the model has no tokenizer; give --tokenizer FILE");
  return SL_OK;
}

/* ---- the prompt ------------------------------------------------------------------------------ */

/* Lists the system message, if there is one, and then the turns of user and assistant. */
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

static sl_status render(const settings *s, const sli_chat_found *f, char **prompt, char **end) {
  const sli_chat *chat;
  sl_status status =
      sli_chat_choose(f, s->data.tokenizer, settings_text(s, "chat-template"), &chat);
  if (status) return status;
  int count;
  sli_chat_message *messages = list_messages(s, &count);
  status = sli_chat_render(chat, &f->marks, messages, count, prompt);
  const char *mark = sli_chat_end(chat, &f->marks);
  if (!status) *end = mark ? sli_strdup(mark) : NULL;
  free(messages);
  sli_chat_free(chat);
  return status;
}

sl_status chat_prompt(const settings *s, char **prompt, char **end) {
  sli_chat_found f;
  sl_status status = sli_chat_find(s->data.tokenizer, &f);
  if (!status) status = render(s, &f, prompt, end);
  sli_chat_found_fini(&f);
  return status;
}
