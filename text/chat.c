/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates, evaluated by text/template/template.h. Named templates are Jinja programs too. */
#include "text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/template/template.h"
#include "text/chat_messages.h"
#include "io/file.h"

struct sli_chat {
  const char *name;
  uint64_t hash;
  sli_template *template, *for_tools; /* for_tools NULL: same as template */
  char **end;                         /* text that ends an answer, once it was determined */
  char *text; /* source of the template, or of for_tools if that is separate */
};

static const struct {
  const char *name, *template;
} known[] = {
    {"chatml",
     "{% for message in messages %}"
     "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"},
    {"smollm2",
     "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
     "{{ '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
     "Face<|im_end|>\\n' }}{% endif %}"
     "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"},
    {"qwen2",
     "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
     "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}"
     "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"},
    {"qwen2.5",
     "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
     "{{ '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
     "assistant.<|im_end|>\\n' }}{% endif %}"
     "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"},
    {"llama2",
     "{% if messages[0].role == 'system' %}{% set system_message = messages[0].content %}"
     "{% set said = messages[1:] %}{% else %}{% set said = messages %}{% endif %}{% for message in said %}"
     "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
     "{{ raise_exception('not in turn') }}{% endif %}{% if loop.first and system_message is defined %}"
     "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message.content %}{% else %}"
     "{% set content = message.content %}{% endif %}{% if message.role == 'user' %}"
     "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% else %}"
     "{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"},
    {"llama3",
     "{{ bos_token }}{% for message in messages %}"
     "{{ '<|start_header_id|>' + message['role'] + \"<|end_header_id|>\\n\\n\" + message['content'] | trim + "
     "'<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
     "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"},
    {"llama3.1",
     "{{ bos_token }}{% if messages[0].role == 'system' %}"
     "{% set system_message = messages[0].content | trim %}{% set said = messages[1:] %}{% else %}"
     "{% set system_message = '' %}{% set said = messages %}{% endif %}"
     "{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}{{- \"Cutting Knowledge Date: December "
     "2023\\n\" }}{{- 'Today Date: ' + '26 Jul 2024' + '\\n\\n' + system_message + '<|eot_id|>' }}{% for "
     "message in said %}"
     "{{ '<|start_header_id|>' + message['role'] + \"<|end_header_id|>\\n\\n\" + message['content'] | trim + "
     "'<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
     "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"},
    {"mistral",
     "{{ bos_token }}{% for message in messages %}"
     "{% if message['role'] == 'system' %}{{ raise_exception('it has no system messages') }}{% endif %}"
     "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('not in turn') }}{% endif %}"
     "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
     "{% else %}{{ message['content'] + eos_token}}{% endif %}{% endfor %}"},
    {"zephyr",
     "{% for message in messages %}\n{% if message['role'] == 'user' %}"
     "\n{{ '<|user|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}"
     "\n{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}"
     "\n{{ '<|assistant|>\n' + message['content'] + eos_token }}\n{% endif %}"
     "\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"}};

/* ---- lookup --------------------------------------------------------------------------------- */

static uint64_t hash_of(const char *text) { return sli_hash_samples(text, strlen(text)); }

static const sli_chat *open_template(const char *name, const char *text, const char *for_tools) {
  sli_template *template, *other = NULL;
  if (sli_template_read(text, &template)) return NULL;
  if (for_tools && sli_template_read(for_tools, &other)) return sli_template_free(template), NULL;
  sli_chat *chat = sli_calloc(1, sizeof *chat);
  *chat = (sli_chat){name,
                     sli_hash_word(hash_of(text), for_tools ? hash_of(for_tools) : 0),
                     template,
                     other,
                     sli_calloc(1, sizeof(char *)),
                     sli_strdup(for_tools ? for_tools : text)};
  return chat;
}

const sli_chat *sli_chat_named(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(known); i++)
    if (!strcmp(known[i].name, name)) return open_template(name, known[i].template, NULL);
  sl_fail(SL_E_USAGE, "no chat template is called %s", name);
  return NULL;
}

const sli_chat *sli_chat_of_template(const char *text, const char *for_tools) {
  return open_template("of the model", text, for_tools);
}

void sli_chat_free(const sli_chat *chat) {
  if (!chat) return;
  sli_template_free(chat->template);
  sli_template_free(chat->for_tools);
  free(*chat->end);
  free(chat->end);
  free(chat->text);
  free((void *)chat);
}

const char *sli_chat_name(const sli_chat *chat) { return chat->name; }

const char *sli_chat_text(const sli_chat *chat) { return chat->text; }

uint64_t sli_chat_hash(const sli_chat *chat) { return chat->hash; }

char *sli_chat_names(void) {
  char *names = NULL;
  size_t bytes;
  FILE *out = sli_memory_stream(&names, &bytes);
  for (size_t i = 0; i < SLI_COUNT(known); i++) fprintf(out, "%s%s", i ? ", " : "", known[i].name);
  fclose(out);
  return names;
}

/* ---- rendering ------------------------------------------------------------------------------- */

static sli_value list_messages(sli_values *v, const sli_chat_message *messages, int count) {
  static const char *const roles[] = {"system", "user", "assistant"};
  sli_value all = sli_value_list(v);
  for (int i = 0; i < count; i++) {
    sli_value one = sli_value_dict(v);
    sli_value_set(v, one, "role", sli_value_text(v, roles[messages[i].role]));
    sli_value_set(v, one, "content", sli_value_text(v, messages[i].text));
    sli_value_add(v, all, one);
  }
  return all;
}

/* Sets the variables that transformers passes to templates. A special token that the tokenizer
 * lacks is undefined. */
static sli_value names_of(sli_values *v, const sli_chat_marks *marks, bool answered) {
  const char *const tokens[][2] = {
      {"bos_token", marks->begin},     {"eos_token", marks->end},
      {"unk_token", marks->unknown},   {"pad_token", marks->pad},
      {"sep_token", marks->separator}, {"cls_token", marks->classifier},
      {"mask_token", marks->mask}};
  sli_value names = sli_value_dict(v), none = {.kind = SLI_NONE};
  sli_value_set(v, names, "tools", none);
  sli_value_set(v, names, "documents", none);
  sli_value_set(v, names, "add_generation_prompt",
                (sli_value){.kind = SLI_BOOL, .truth = !answered});
  for (size_t i = 0; i < SLI_COUNT(tokens); i++)
    if (tokens[i][1]) sli_value_set(v, names, tokens[i][0], sli_value_text(v, tokens[i][1]));
  return names;
}

/* Makes room for the values of messages of `bytes` bytes. */
static sli_values *values_for(size_t bytes, const sli_allowance *allowance) {
  enum { LEAST_ROOM = 64 << 20, TIMES = 64 };
  return sli_values_create(LEAST_ROOM + TIMES * bytes, allowance);
}

static sl_status chat_run(const sli_chat *chat, const sli_chat_marks *marks,
                          const sli_chat_message *messages, int count, bool answered, char **out) {
  enum { OTHERS = 64 };
  size_t bytes = 0;
  for (int i = 0; i < count; i++) bytes += strlen(messages[i].text) + OTHERS;
  sli_values *v = values_for(bytes, NULL);
  sli_value names = names_of(v, marks, answered);
  sli_value_set(v, names, "messages", list_messages(v, messages, count));
  sl_status status = sli_template_run(chat->template, v, names, NULL, out);
  sli_values_destroy(v);
  return status;
}

/* Adds the template's name to an error. */
static sl_status name_failure(const sli_chat *chat, sl_status status) {
  if (!status || status == SL_E_MEMORY) return status;
  return sl_fail(SL_E_USAGE, "chat template %s: %s", sli_chat_name(chat), sl_detail());
}

static sl_status nothing_to_answer(void) {
  return sl_fail(SL_E_USAGE, "there is no message to answer");
}

sl_status sli_chat_render(const sli_chat *chat, const sli_chat_marks *marks,
                          const sli_chat_message *messages, int count, char **out) {
  bool asks = false;
  for (int i = 0; i < count; i++) asks |= messages[i].role != SLI_CHAT_SYSTEM;
  if (!asks) return nothing_to_answer();
  return name_failure(chat, chat_run(chat, marks, messages, count, false, out));
}

/* ---- chats as JSON --------------------------------------------------------------------------- */

static bool all_are_system(sli_values *v, sli_value messages) {
  for (size_t i = 0; i < sli_value_count(messages); i++) {
    sli_value role = sli_value_get(v, sli_value_item(messages, i), "role");
    if (role.kind != SLI_TEXT || strcmp(role.text.at, "system")) return false;
  }
  return true;
}

/* Adds further variables, which cannot replace those of the chat. */
static sl_status add_variables(sli_values *v, sli_value names, sli_value more) {
  static const char *const taken[] = {"messages", "tools", "documents"};
  for (size_t i = 0; i < sli_value_count(more); i++) {
    const char *key = sli_value_key(more, i).text.at;
    for (size_t k = 0; k < SLI_COUNT(taken); k++)
      if (!strcmp(key, taken[k]))
        return sl_fail(SL_E_USAGE, "chat_template_kwargs.%s: it is given beside them", key);
    sli_value_set(v, names, key, sli_value_item(more, i));
  }
  return SL_OK;
}

static sl_status names_of_json(sli_values *v, const sli_chat_json *in, sli_value names) {
  sli_value messages = sli_chat_messages(v, in->messages, in->messages_bytes);
  if (sli_values_status(v)) return sli_values_status(v);
  if (all_are_system(v, messages)) return nothing_to_answer();
  sli_value_set(v, names, "messages", messages);
  if (in->tools) sli_value_set(v, names, "tools", sli_value_read(v, in->tools, in->tools_bytes));
  if (in->documents)
    sli_value_set(v, names, "documents", sli_value_read(v, in->documents, in->documents_bytes));
  if (in->effort) sli_value_set(v, names, "reasoning_effort", sli_value_text(v, in->effort));
  if (!in->variables) return SL_OK;
  return add_variables(v, names, sli_value_read(v, in->variables, in->variables_bytes));
}

static const sli_template *template_for(const sli_chat *chat, bool tools) {
  return tools && chat->for_tools ? chat->for_tools : chat->template;
}

bool sli_chat_marks_answers(const sli_chat *chat, bool tools) {
  return sli_template_marks(template_for(chat, tools));
}

sl_status sli_chat_render_values(const sli_chat *chat, const sli_chat_marks *marks, sli_values *v,
                                 const sli_chat_values *in, bool answered, sli_text_spans *answers,
                                 char **out) {
  sli_value names = names_of(v, marks, answered);
  bool tools = in->tools.kind != SLI_NONE;
  sli_value_set(v, names, "messages", in->messages);
  if (tools) sli_value_set(v, names, "tools", in->tools);
  sl_status status =
      in->variables.kind == SLI_NONE ? SL_OK : add_variables(v, names, in->variables);
  if (!status) status = sli_values_status(v);
  if (status) return status;
  return name_failure(chat, sli_template_run(template_for(chat, tools), v, names, answers, out));
}

sl_status sli_chat_render_json(const sli_chat *chat, const sli_chat_marks *marks,
                               const sli_chat_json *in, const sli_allowance *allowance,
                               char **out) {
  size_t bytes = in->messages_bytes + in->tools_bytes + in->documents_bytes + in->variables_bytes;
  sli_values *v = values_for(bytes, allowance);
  sli_value names = names_of(v, marks, false);
  sl_status status = names_of_json(v, in, names);
  const sli_template *template = template_for(chat, in->tools);
  if (!status) status = name_failure(chat, sli_template_run(template, v, names, NULL, out));
  sli_values_destroy(v);
  return status;
}

/* ---- end of an answer ------------------------------------------------------------------------ */

/* Returns the special token at the beginning of a text, recognized by its spelling, or NULL if
 * there is none. The caller frees it. */
static char *mark_at(const char *text, const char *likely) {
  static const char *const begins[] = {"<|", "<\uff5c", "</s>", "<end_of_", "<eos>"};
  enum { MOST = 64 };
  bool mark = false;
  text += strspn(text, " \n");
  if (likely && *likely && !strncmp(text, likely, strlen(likely))) return sli_strdup(likely);
  for (size_t i = 0; i < SLI_COUNT(begins); i++)
    mark |= !strncmp(text, begins[i], strlen(begins[i]));
  const char *end = mark ? strpbrk(text, "> \n") : NULL;
  return end && *end == '>' && end - text < MOST ? sli_format("%.*s", (int)(end + 1 - text), text)
                                                 : NULL;
}

/* Finds the text that a template puts after an answer inside a chat. */
static char *find_end(const sli_chat *chat, const sli_chat_marks *marks) {
  static const char answer[] = "SluiceAnswer";
  const sli_chat_message chats[] = {
      {SLI_CHAT_USER, "a"}, {SLI_CHAT_ASSISTANT, answer}, {SLI_CHAT_USER, "b"}};
  char *text, *mark = NULL;
  for (int count = 3; count > 1 && !mark; count--) {
    if (chat_run(chat, marks, chats, count, true, &text)) continue;
    for (const char *at = text; (at = strstr(at, answer)); at += strlen(answer)) {
      free(mark);
      mark = mark_at(at + strlen(answer), marks->end);
    }
    free(text);
  }
  return mark ? mark : marks->end ? sli_strdup(marks->end) : NULL;
}

const char *sli_chat_end(const sli_chat *chat, const sli_chat_marks *marks) {
  if (!*chat->end) *chat->end = find_end(chat, marks);
  return *chat->end;
}
