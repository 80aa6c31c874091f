/* Templates as rows of patterns. In a pattern {begin} and {end} are the tokenizer's marks, {text} is the
 * message's, and {system} what the system says where it has no message of its own. */
#include "io/chat.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

struct sli_chat {
  const char *name;
  const char *has[2], *also, *lacks[2]; /* pieces of a model's template: all of the first, none of the last */
  const char *start;             /* before all messages */
  const char *said[3];           /* a message, by role; NULL: no such messages */
  const char *folded;            /* the first user's text, where the system's is part of it */
  const char *standard;          /* what the system says if nobody has it say anything; NULL: nothing */
  const char *answer;            /* behind all messages: the assistant's turn */
  const char *end;               /* of an answer; NULL: the tokenizer's */
  bool trims;                    /* white space around texts goes */
  bool turns;                    /* user and assistant speak in turn */
};

/* What a template is told by, as normal_text() has it, and what it comes to. */
#define CHATML                                                                                       \
  .has = {"'<|im_start|>'+message.role+'\n'+message.content+'<|im_end|>"},                           \
  .said = {"<|im_start|>system\n{text}<|im_end|>\n", "<|im_start|>user\n{text}<|im_end|>\n",         \
           "<|im_start|>assistant\n{text}<|im_end|>\n"},                                             \
  .answer = "<|im_start|>assistant\n", .end = "<|im_end|>"
#define CHATML_SYSTEM(text) .also = "'<|im_start|>system\n" text "<|im_end|>\n'", .standard = text

#define LLAMA3_SAID(role, more) "<|start_header_id|>" role "<|end_header_id|>\n\n" more "{text}<|eot_id|>"
#define LLAMA3                                                                                       \
  .has = {"'<|start_header_id|>'+message.role+'<|end_header_id|>\n\n'+message.content|trim+'<|eot_id|>'", \
          "bos_token"},                                                                              \
  .start = "{begin}", .trims = true, .end = "<|eot_id|>",                                            \
  .answer = "<|start_header_id|>assistant<|end_header_id|>\n\n"
#define LLAMA31_DATES "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"

static const sli_chat chats[] = {
    {.name = "chatml", CHATML, .lacks = {"system", "<think>"}},
    {.name = "smollm2", CHATML, .lacks = {"<think>"},
     CHATML_SYSTEM("You are a helpful AI assistant named SmolLM, trained by Hugging Face")},
    {.name = "qwen2", CHATML, .lacks = {"<think>", "Qwen, created"},
     CHATML_SYSTEM("You are a helpful assistant.")},
    {.name = "qwen2.5", CHATML, .lacks = {"<think>"},
     CHATML_SYSTEM("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.")},
    {.name = "llama2", .has = {"bos_token+'[INST] '+content.strip()+' [/INST]'", "' '+content.strip()+' '+eos_token"},
     .also = "'<<SYS>>\n'+system_message+'\n<</SYS>>\n\n'+message.content",
     .lacks = {"You are", "DEFAULT"}, .folded = "<<SYS>>\n{system}\n<</SYS>>\n\n{text}",
     .said = {"", "{begin}[INST] {text} [/INST]", " {text} {end}"}, .trims = true, .turns = true},
    {.name = "llama3", LLAMA3, .lacks = {"Knowledge", "You are"},
     .said = {LLAMA3_SAID("system", ""), LLAMA3_SAID("user", ""), LLAMA3_SAID("assistant", "")}},
    {.name = "llama3.1", LLAMA3, .also = "Cutting Knowledge Date: December 2023\n", .lacks = {"strftime_now"},
     .standard = "",
     .said = {LLAMA3_SAID("system", LLAMA31_DATES), LLAMA3_SAID("user", ""), LLAMA3_SAID("assistant", "")}},
    {.name = "mistral", .has = {"'[INST] '+message.content+' [/INST]'", "{{message.content+eos_token}}"},
     .also = "{{bos_token}}", .lacks = {"system"}, .start = "{begin}",
     .said = {NULL, "[INST] {text} [/INST]", "{text}{end}"}, .turns = true},
    {.name = "zephyr", .has = {"'<|user|>\n'+message.content+eos_token}}\n",
                               "'<|assistant|>\n'+message.content+eos_token}}\n"},
     .also = "'<|system|>\n'+message.content+eos_token}}\n", .lacks = {"bos_token"},
     .said = {"<|system|>\n{text}{end}\n", "<|user|>\n{text}{end}\n", "<|assistant|>\n{text}{end}\n"},
     .answer = "<|assistant|>\n"}};

/* ---- which one ------------------------------------------------------------------------------ */

const sli_chat *sli_chat_named(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(chats); i++)
    if (!strcmp(chats[i].name, name)) return &chats[i];
  return NULL;
}

const char *sli_chat_name(const sli_chat *chat) { return chat->name; }

char *sli_chat_names(void) {
  char *names = NULL;
  size_t bytes;
  FILE *out = open_memstream(&names, &bytes);
  SLI_CHECK(out, "no memory for names");
  for (size_t i = 0; i < SLI_COUNT(chats); i++) fprintf(out, "%s%s", i ? ", " : "", chats[i].name);
  fclose(out);
  return names;
}

static bool fits(const sli_chat *c, const char *text) {
  bool good = !c->also || strstr(text, c->also);
  for (size_t i = 0; i < SLI_COUNT(c->has); i++) good &= !c->has[i] || strstr(text, c->has[i]);
  for (size_t i = 0; i < SLI_COUNT(c->lacks); i++) good &= !c->lacks[i] || !strstr(text, c->lacks[i]);
  return good;
}

/* The length of ['word'], which may as well be written .word; 0: something else stands here. */
static size_t subscript(const char *at) {
  if (at[0] != '[' || (at[1] != '\'' && at[1] != '"')) return 0;
  size_t n = strspn(at + 2, "abcdefghijklmnopqrstuvwxyz_");
  return n && at[2 + n] == at[1] && at[3 + n] == ']' ? n + 4 : 0;
}

/* What stands between quotes: \n is an end of line. Returns what is behind them. */
static const char *copy_quoted(const char *at, char **to) {
  char quote = *at++;
  *(*to)++ = '\'';
  while (*at && *at != quote) {
    bool escape = at[0] == '\\' && at[1];
    at += escape;
    *(*to)++ = escape && *at == 'n' ? '\n' : *at;
    at++;
  }
  *(*to)++ = '\'';
  return at + (*at == quote);
}

/* A template in which whatever can be written in several ways is written in one: no spaces but in
 * texts, texts between single quotes, message.role for message['role']. */
static char *normal_text(const char *text) {
  char *normal = sli_calloc(1, strlen(text) + 3), *to = normal;
  for (const char *at = text; *at;) {
    size_t word = subscript(at);
    if (word) *to++ = '.', memcpy(to, at + 2, word - 4), to += word - 4, at += word;
    else if (*at == '\'' || *at == '"') at = copy_quoted(at, &to);
    else if (*at == ' ' || *at == '\t' || *at == '\r') at++;
    else *to++ = *at++;
  }
  return normal;
}

const sli_chat *sli_chat_of_template(const char *text) {
  const sli_chat *found = NULL;
  char *normal = normal_text(text);
  for (size_t i = 0; i < SLI_COUNT(chats) && !found; i++)
    if (fits(&chats[i], normal)) found = &chats[i];
  free(normal);
  return found;
}

/* ---- texts ----------------------------------------------------------------------------------- */

typedef struct values {
  const char *begin, *end, *system, *text;
} values;

/* What stands for a word in braces; *bytes is the length of both braces and the word, 0 if it is none. */
static const char *value_of(const values *v, const char *at, size_t *bytes) {
  const struct {
    const char *word, *value;
  } all[] = {{"{begin}", v->begin}, {"{end}", v->end}, {"{system}", v->system}, {"{text}", v->text}};
  for (size_t i = 0; i < SLI_COUNT(all); i++) {
    *bytes = strlen(all[i].word);
    if (!strncmp(at, all[i].word, *bytes)) return all[i].value ? all[i].value : "";
  }
  *bytes = 0;
  return NULL;
}

static void print(FILE *out, const char *pattern, const values *v) {
  for (const char *at = pattern; at && *at;) {
    size_t bytes;
    const char *value = value_of(v, at, &bytes);
    if (bytes) fputs(value, out);
    else fputc(*at, out);
    at += bytes ? bytes : 1;
  }
}

static char *format(const char *pattern, const values *v) {
  char *text = NULL;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  SLI_CHECK(out, "no memory for a text");
  print(out, pattern, v);
  fclose(out);
  return text;
}

static void trim(char *text) {
  size_t from = 0, end = strlen(text);
  while (end && isspace((unsigned char)text[end - 1])) end--;
  while (from < end && isspace((unsigned char)text[from])) from++;
  memmove(text, text + from, end - from);
  text[end - from] = 0;
}

/* ---- messages ---------------------------------------------------------------------------------- */

static const char *const roles[] = {"system", "user", "assistant"};

/* The system speaks first, if at all; then, where they must, user and assistant in turn. */
static sl_status check(const sli_chat *c, const sli_chat_message *messages, int count) {
  int first = count && messages[0].role == SLI_CHAT_SYSTEM;
  if (first && !c->said[SLI_CHAT_SYSTEM])
    return sl_fail(SL_E_USAGE, "chat template %s has no system messages", sli_chat_name(c));
  for (int i = first; i < count; i++) {
    bool turn = (int)messages[i].role == ((i - first) % 2 ? SLI_CHAT_ASSISTANT : SLI_CHAT_USER);
    if (messages[i].role == SLI_CHAT_SYSTEM || (c->turns && !turn))
      return sl_fail(SL_E_USAGE, "message %d is one of the %s, which chat template %s has no place for there",
                     i, roles[messages[i].role], sli_chat_name(c));
  }
  if (first == count) return sl_fail(SL_E_USAGE, "no message is there to answer");
  return SL_OK;
}

static void print_message(FILE *out, const sli_chat *c, const sli_chat_message *m, values v) {
  bool folded = v.system && m->role == SLI_CHAT_USER;
  char *text = folded ? format(c->folded, &(values){.system = v.system, .text = m->text}) : sli_strdup(m->text);
  if (c->trims) trim(text);
  v.text = text;
  print(out, c->said[m->role], &v);
  free(text);
}

static void print_all(FILE *out, const sli_chat *c, values v, const sli_chat_message *messages, int count) {
  bool has = messages[0].role == SLI_CHAT_SYSTEM;
  sli_chat_message standard = {SLI_CHAT_SYSTEM, c->standard};
  print(out, c->start, &v);
  if (!has && c->standard) print_message(out, c, &standard, v);
  v.system = has && c->folded ? messages[0].text : NULL;
  for (int i = has && c->folded; i < count; i++) {
    print_message(out, c, &messages[i], v);
    v.system = NULL;
  }
  print(out, c->answer, &v);
}

sl_status sli_chat_render(const sli_chat *chat, const sli_chat_marks *marks,
                          const sli_chat_message *messages, int count, char **out) {
  sl_status status = check(chat, messages, count);
  if (status) return status;
  size_t bytes;
  FILE *file = open_memstream(out, &bytes);
  SLI_CHECK(file, "no memory for a chat");
  print_all(file, chat, (values){.begin = marks->begin, .end = marks->end}, messages, count);
  fclose(file);
  return SL_OK;
}

const char *sli_chat_end(const sli_chat *chat, const sli_chat_marks *marks) {
  return chat->end ? chat->end : marks->end;
}
