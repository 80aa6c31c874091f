/* Chats become the texts that transformers makes of them, by templates that are recognised however they
 * are written (tests/reference/chats.json); what a template has no place for is refused.
 *
 *   test_io_chat [FILE]
 * labels: unthreaded */
#include "io/chat.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "base/base.h"
#include "io/file.h"
#include "tests/support/test.h"

enum { MOST_MESSAGES = 16 };

static const char *text_at(const cJSON *from, const char *key) {
  const cJSON *item = cJSON_GetObjectItem(from, key);
  return cJSON_IsString(item) ? item->valuestring : NULL;
}

static int read_messages(const cJSON *from, sli_chat_message *out) {
  static const char *const roles[] = {"system", "user", "assistant"};
  const cJSON *item;
  int n = 0;
  cJSON_ArrayForEach(item, from) {
    CHECK(n < MOST_MESSAGES, "few messages");
    out[n].text = text_at(item, "content");
    for (int i = 0; i < 3; i++)
      if (!strcmp(roles[i], text_at(item, "role"))) out[n].role = i;
    n++;
  }
  return n;
}

static void check_chat(const sli_chat *chat, const sli_chat_marks *marks, const cJSON *from) {
  sli_chat_message messages[MOST_MESSAGES];
  int n = read_messages(cJSON_GetObjectItem(from, "messages"), messages);
  char *text;
  CHECK(!sli_chat_render(chat, marks, messages, n, &text), "%s: %s", sli_chat_name(chat), sl_detail());
  CHECK(!strcmp(text, text_at(from, "text")), "%s: \"%s\" should be \"%s\"", sli_chat_name(chat), text,
        text_at(from, "text"));
  free(text);
}

static void check_template(const cJSON *from) {
  const char *name = text_at(from, "name");
  const sli_chat *chat = sli_chat_of_template(text_at(from, "template"));
  CHECK(chat && !strcmp(sli_chat_name(chat), name), "%s is recognised as %s", name, chat ? sli_chat_name(chat) : "none");
  CHECK(chat == sli_chat_named(name), "%s has this name", name);
  sli_chat_marks marks = {text_at(from, "begin"), text_at(from, "end")};
  CHECK(!strcmp(sli_chat_end(chat, &marks), marks.end), "%s ends an answer with %s", name, marks.end);
  const cJSON *each;
  cJSON_ArrayForEach(each, cJSON_GetObjectItem(from, "chats")) check_chat(chat, &marks, each);
}

static int check_file(const char *path) {
  char *text;
  int n = 0;
  CHECK(!sli_file_read(path, &text), "%s", sl_detail());
  cJSON *root = cJSON_Parse(text), *each;
  CHECK(root, "%s is JSON", path);
  cJSON_ArrayForEach(each, cJSON_GetObjectItem(root, "templates")) check_template(each), n++;
  cJSON_Delete(root);
  free(text);
  return n;
}

/* Templates that are like one of ours, and give something else. */
static void others_are_not_known(void) {
  static const char *const others[] = {
      "", "{{ messages[0].content }}", "'", "['", "{{ \"\\",
      "{{'<|im_start|>' + message['role'] + '\n' + message['content'] | trim + '<|im_end|>\n'}}",
      "{{'<|im_start|>system\nYou are a pirate.<|im_end|>\n'}}"
      "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n'}}",
      "{{ bos_token }}{{ ' [INST] ' + message['content'] + ' [/INST]' }}{{ message['content'] + eos_token }}",
      "{{ bos_token }}{{ '[INST] ' + message['content'] + ' [/INST]' }}{{ message['content'] + eos_token + ' ' }}"};
  for (size_t i = 0; i < SLI_COUNT(others); i++)
    CHECK(!sli_chat_of_template(others[i]), "other %zu is not known", i);
  CHECK(!sli_chat_named("none") && !sli_chat_named(""), "nor are other names");
}

static void check_refused(const char *name, const sli_chat_message *messages, int count, const char *word) {
  char *text;
  CHECK(sli_chat_render(sli_chat_named(name), &(sli_chat_marks){"<s>", "</s>"}, messages, count, &text) ==
        SL_E_USAGE, "%s: %s is refused", name, word);
  CHECK(strstr(sl_detail(), word), "\"%s\" says %s", sl_detail(), word);
}

static void what_has_no_place_is_refused(void) {
  const sli_chat_message all[] = {{SLI_CHAT_SYSTEM, "s"}, {SLI_CHAT_USER, "u"}, {SLI_CHAT_USER, "v"},
                                  {SLI_CHAT_SYSTEM, "t"}};
  check_refused("mistral", all, 2, "mistral has no system messages");
  check_refused("llama2", all, 3, "message 2 is one of the user");
  check_refused("chatml", all + 1, 3, "message 2 is one of the system");
  check_refused("chatml", all, 1, "no message");
  check_refused("chatml", all, 0, "no message");
  char *text;
  CHECK(!sli_chat_render(sli_chat_named("chatml"), &(sli_chat_marks){NULL, NULL}, all, 3, &text), "%s", sl_detail());
  free(text);
}

int main(int argc, char **argv) {
  const char *source = getenv("SLUICE_SOURCE");
  char *path = sli_format("%s/tests/reference/chats.json", source ? source : ".");
  int n = check_file(argc > 1 ? argv[1] : path);
  char *names = sli_chat_names();
  CHECK(strstr(names, "chatml, ") && (argc > 1 || n == 9), "%s: all of them", names);
  others_are_not_known();
  what_has_no_place_is_refused();
  free(names);
  free(path);
  return 0;
}
