/* SPDX-License-Identifier: Apache-2.0 */
/* Chats become the same tokens and masks as with transformers and TRL
 * (tests/reference/chat_masks.json); invalid lines are refused with their position.
 * labels: unthreaded
 * needs: pcre2 utf8proc */
#include "text/chats/chats.h"

#include <cjson/cJSON.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "io/file.h"
#include "tests/support/test.h"

static char folder[] = "chats_XXXXXX";

/* Returns the path of a reference file, which the caller frees. */
static char *reference_path(const char *name) {
  const char *source = getenv("SLUICE_SOURCE");
  return sli_format("%s/tests/reference/%s", source ? source : ".", name);
}

static const char *text_at(const cJSON *from, const char *key) {
  const cJSON *item = cJSON_GetObjectItem(from, key);
  return cJSON_IsString(item) ? item->valuestring : NULL;
}

static char *path_of(const char *name) { return sli_format("%s/%s", folder, name); }

static void write_text(const char *name, const char *text) {
  char *path = path_of(name);
  FILE *file = fopen(path, "w");
  CHECK(file && fputs(text, file) >= 0, "cannot write %s", path);
  fclose(file);
  free(path);
}

static void write_json(const char *name, cJSON *root) {
  char *text = cJSON_PrintUnformatted(root);
  write_text(name, text);
  cJSON_free(text);
  cJSON_Delete(root);
}

/* Writes a copy of a reference tokenizer with added tokens. */
static void write_tokenizer(const char *name, const cJSON *added) {
  char *file = sli_format("tokenizers/%s.json", name), *path = reference_path(file), *text;
  CHECK(!sli_file_read(path, &text), "%s", sl_detail());
  cJSON *root = cJSON_Parse(text), *all = cJSON_GetObjectItem(root, "added_tokens");
  const cJSON *each;
  cJSON_ArrayForEach(each, added) {
    cJSON *token = cJSON_CreateObject();
    cJSON_AddNumberToObject(token, "id", each->valuedouble);
    cJSON_AddStringToObject(token, "content", each->string);
    cJSON_AddBoolToObject(token, "special", true);
    cJSON_AddBoolToObject(token, "normalized", false);
    cJSON_AddItemToArray(all, token);
  }
  write_json("tokenizer.json", root);
  free(text);
  free(path);
  free(file);
}

static void write_config(const char *template, const char *begin, const char *end) {
  cJSON *root = cJSON_CreateObject();
  if (begin) cJSON_AddStringToObject(root, "bos_token", begin);
  if (end) cJSON_AddStringToObject(root, "eos_token", end);
  if (template) cJSON_AddStringToObject(root, "chat_template", template);
  write_json("tokenizer_config.json", root);
}

static sli_chats *open_chats(bool all, int64_t vocab) {
  char *path = path_of("tokenizer.json");
  sli_chats *c;
  CHECK(!sli_chats_open(&(sli_chats_options){path, NULL, all, vocab}, &c), "%s", sl_detail());
  free(path);
  return c;
}

/* ---- reference ------------------------------------------------------------------------------- */

static void check_row(const char *name, const char *line, const sli_token_row *row,
                      const cJSON *ids, const cJSON *mask) {
  int n = cJSON_GetArraySize(ids), at = 0;
  CHECK((int)row->count == n + 1 && row->items[0] == n, "%s: %s: %zu tokens, not %d", name, line,
        row->count - 1, n);
  for (const cJSON *id = ids->child, *m = mask->child; id; id = id->next, m = m->next, at++) {
    int32_t token = row->items[at + 1];
    CHECK((token & INT32_MAX) == id->valueint, "%s: %s: token %d is %d, not %d", name, line, at,
          token & INT32_MAX, id->valueint);
    CHECK((token < 0) == m->valueint, "%s: %s: token %d, %d, is %slearned", name, line, at,
          id->valueint, token < 0 ? "" : "not ");
  }
}

static int check_case(const cJSON *one) {
  const char *name = text_at(one, "name");
  const cJSON *each;
  int n = 0;
  write_tokenizer(text_at(one, "tokenizer"), cJSON_GetObjectItem(one, "added"));
  write_config(text_at(one, "template"), text_at(one, "begin"), text_at(one, "end"));
  sli_chats *c = open_chats(false, 1 << 20);
  cJSON_ArrayForEach(each, cJSON_GetObjectItem(one, "rows")) {
    const char *line = text_at(each, "line");
    sli_token_row row = {0};
    CHECK(!sli_chats_encode(c, "chats.jsonl", line, strlen(line), &row), "%s: %s: %s", name, line,
          sl_detail());
    check_row(name, line, &row, cJSON_GetObjectItem(each, "ids"),
              cJSON_GetObjectItem(each, "mask"));
    free(row.items);
    n++;
  }
  sli_chats_close(c);
  return n;
}

static void masks_are_those_of_transformers_and_trl(void) {
  char *path = reference_path("chat_masks.json"), *text;
  int cases = 0, rows = 0;
  CHECK(!sli_file_read(path, &text), "%s", sl_detail());
  cJSON *root = cJSON_Parse(text);
  const cJSON *each;
  cJSON_ArrayForEach(each, root) rows += check_case(each), cases++;
  CHECK(cases >= 16 && rows >= 120, "%d cases, %d rows", cases, rows);
  cJSON_Delete(root);
  free(text);
  free(path);
}

/* ---- lines ----------------------------------------------------------------------------------- */

#define CHAT \
  "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n"
static const char chatml[] =
    "{% for m in messages %}{% if m.content == 'boom' %}{{ raise_exception('no such talk') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

static sl_status encode(const char *template, bool all, const char *text, sli_token_row *row) {
  write_config(template, NULL, "<|im_end|>");
  sli_chats *c = open_chats(all, 1 << 20);
  sl_status status = sli_chats_encode(c, "chats.jsonl", text, strlen(text), row);
  sli_chats_close(c);
  return status;
}

static void refused_by(const char *template, const char *text, const char *why) {
  sli_token_row row = {0};
  sl_status status = encode(template, false, text, &row);
  CHECK(status, "refused: %s", text);
  CHECK(strstr(sl_detail(), why), "%s: no \"%s\" in: %s", text, why, sl_detail());
  free(row.items);
}

static void refused(const char *text, const char *why) { refused_by(chatml, text, why); }

static void bad_lines_are_told_with_their_place(void) {
  write_tokenizer("qwen2", NULL);
  refused("", "chats.jsonl has no chats");
  refused("\n \n", "chats.jsonl has no chats");
  refused(CHAT "\n{\"messages\": [}\n", "chats.jsonl:3: ");
  refused(CHAT "[1]\n", "chats.jsonl:2: no chat: each line must be an object, but this is a list");
  refused("{\"instruction\": \"a\", \"output\": \"b\"}",
          "chats.jsonl:1: no chat: it has \"instruction\", \"output\", and neither");
  refused("{\"messages\": {}}",
          "chats.jsonl:1: messages: must be a list of messages, but is an object");
  refused("{\"messages\": []}", "chats.jsonl:1: messages: it is empty");
  refused("{\"messages\": [7]}", "messages[0]: must be an object with role and content");
  refused("{\"messages\": [{\"content\": \"a\"}]}", "messages[0]: it has no \"role\"");
  refused(
      CHAT
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"asistant\", \"content\": \"b\"}]}",
      "chats.jsonl:2: messages[1]: unknown role \"asistant\"");
  refused("{\"messages\": [{\"role\": \"user\"}]}", "messages[0]: it has no \"content\"");
  refused(
      "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"url\": \"x\"}]}]}",
      "messages[0]: a part of its content is not text");
  refused(
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"\"}]}",
      "messages[1]: the answer is empty");
  refused("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
          "chats.jsonl:1: nothing to learn: none of its messages");
  refused("{\"prompt\": \"a\", \"completion\": \"\"}", "chats.jsonl:1: completion: it is empty");
  refused("{\"prompt\": \"a\", \"completion\": []}", "prompt is a text and completion a list");
  refused("{\"prompt\": \"a\"}", "it has \"prompt\", and neither");
  refused(
      "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"narrator\", \"value\": \"b\"}]}",
      "conversations[1]: unknown role \"narrator\"");
  refused("{\"tools\": 7, \"messages\": []}", "tools: must be a list, but is a number");
  refused("{\"tools\": \"[1\", \"messages\": []}", "chats.jsonl:1: tools");
  refused(
      CHAT CHAT
      "{\"messages\": [{\"role\": \"user\", \"content\": \"boom\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}",
      "chats.jsonl:3: chat template of the model: it says: no such talk");
  refused("{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\"}]}", "chats.jsonl:1");
}

/* Tests templates whose answers cannot be located, without and with generation marks. */
static void answers_that_cannot_be_found_are_told(void) {
  static const char turns[] =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"},"
      "{\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", \"content\": \"d\"}]}";
  refused_by(
      "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}", turns,
      "chats.jsonl:1: the answer in message 1 cannot be found: with the chat template of the model, what stands "
      "before it");
  refused_by(
      "{% for m in messages %}{{ m.role }}{% if m.role == 'user' or loop.last %}{{ m.content }}{% endif %}!{% endfor %}"
      "{% if add_generation_prompt %}assistant{% endif %}",
      turns,
      "the answer in message 1 cannot be found: with the chat template of the model, what ends with it");
  refused_by(
      "{% macro say(m) %}{% generation %}{{ m.content }}{% endgeneration %}{% endmacro %}"
      "{% for m in messages %}{{ say(m) }}{% endfor %}",
      turns, "a generation block must not be in a macro");
  refused_by("{% generation %}{% endgeneration %}x", turns, "nothing to learn");
  refused_by(NULL, turns, "has no chat template; --chat-template NAME");
  sli_token_row row = {0};
  CHECK(!encode(NULL, false, "{\"prompt\": \"a\", \"completion\": \"b\"}", &row),
        "texts need no template: %s", sl_detail());
  free(row.items);
}

static void same(const char *one, const char *other) {
  sli_token_row a = {0}, b = {0};
  CHECK(!encode(chatml, false, one, &a) && !encode(chatml, false, other, &b), "%s", sl_detail());
  CHECK(a.count == b.count && !memcmp(a.items, b.items, a.count * sizeof *a.items), "%s and %s",
        one, other);
  free(a.items);
  free(b.items);
}

static void forms_are_the_same_chat(void) {
  write_tokenizer("qwen2", NULL);
  same(
      CHAT,
      "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", \"value\": \"b\"}], \"id\": 7}");
  same(CHAT,
       "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}],"
       " \"completion\": [{\"role\": \"assistant\", \"content\": \"b\"}]}\r\n\r\n");
  same(CHAT,
       "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]},"
       " {\"role\": \"assistant\", \"content\": \"b\"}], \"tools\": null}");
}

/* ---- keys of messages ------------------------------------------------------------------------ */

#define TURNS(key)                                            \
  "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}," \
  "{\"role\": \"assistant\", \"content\": \"BAD\"" key        \
  "}, {\"role\": \"user\", \"content\": \"c\"},"              \
  "{\"role\": \"assistant\", \"content\": \"GOOD\"}]}\n"
static const char marked[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/* Counts the learned tokens of a single chat. */
static size_t count_learned(const char *template, const char *text) {
  sli_token_row row = {0};
  size_t learned = 0;
  CHECK(!encode(template, false, text, &row), "%s", sl_detail());
  for (size_t i = 1; i < row.count; i++) learned += row.items[i] < 0;
  free(row.items);
  return learned;
}

static void messages_say_whether_they_are_learned(void) {
  static const char *const off[] = {TURNS(", \"weight\": 0"),
                                    TURNS(", \"weight\": 0.0"),
                                    TURNS(", \"train\": false"),
                                    TURNS(", \"trainable\": false"),
                                    TURNS(", \"loss_mask\": 0"),
                                    TURNS(", \"loss\": false"),
                                    TURNS(", \"weight\": 1, \"train\": false")};
  static const char *const on[] = {TURNS(""), TURNS(", \"weight\": 1"), TURNS(", \"train\": null"),
                                   TURNS(", \"tool_calls\": [], \"refusal\": null")};
  static const char *const templates[] = {chatml, marked};
  write_tokenizer("qwen2", NULL);
  for (size_t t = 0; t < SLI_COUNT(templates); t++) {
    size_t both = count_learned(templates[t], TURNS("")), one = count_learned(templates[t], off[0]);
    CHECK(one > 1 && one < both, "%zu and %zu tokens", one, both);
    for (size_t i = 0; i < SLI_COUNT(off); i++)
      CHECK(count_learned(templates[t], off[i]) == one, "%s", off[i]);
    for (size_t i = 0; i < SLI_COUNT(on); i++)
      CHECK(count_learned(templates[t], on[i]) == both, "%s", on[i]);
  }
}

static void keys_that_nobody_reads_are_refused(void) {
  sli_token_row row = {0};
  refused(TURNS(", \"weight\": 0.5"), "chats.jsonl:1: messages[1].weight: must be 0 or 1");
  refused(TURNS(", \"train\": \"no\""), "messages[1].train: must be 0 or 1");
  refused(TURNS(", \"masked\": true"), "messages[1]: the key \"masked\" is not understood");
  refused(TURNS(", \"training\": false"), "messages[1]: the key \"training\" is not understood");
  refused(TURNS(", \"function_call\": {\"name\": \"f\"}"), "the key \"function_call\"");
  refused(TURNS("}, {\"role\": \"user\", \"content\": \"b\", \"weight\": 1"),
          "messages[2].weight: is 1, but only answers are learned");
  refused("{\"system\": \"s\", \"conversations\": [{\"from\": \"human\", \"value\": \"a\"}]}",
          "chats.jsonl:1: the key \"system\" is not understood here");
  refused("{\"messages\": [{\"role\": \"user\", \"content\": [{\"text\": \"a\", \"weight\": 0}]}]}",
          "messages[0]: the key \"weight\" is not understood");
  CHECK(encode(chatml, true, TURNS(", \"weight\": 0"), &row) && strstr(sl_detail(), "--learn all"),
        "%s", sl_detail());
  CHECK(!encode("{# thinking #}{% for m in messages %}{{ m.content }}{% endfor %}", true,
                TURNS(", \"thinking\": \"x\""), &row),
        "the template's own key: %s", sl_detail());
  free(row.items);
}

static void all_tokens_are_learned_where_asked(void) {
  sli_token_row row = {0};
  CHECK(!encode(chatml, true, CHAT "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
                &row),
        "%s", sl_detail());
  for (size_t i = 0; i < row.count; i += 1 + (size_t)row.items[i])
    for (int32_t k = 1; k <= row.items[i]; k++)
      CHECK(row.items[i + (size_t)k] < 0, "token %d of the chat at %zu", k, i);
  free(row.items);
}

static void tokens_beyond_the_vocabulary_are_told(void) {
  write_config(chatml, NULL, "<|im_end|>");
  sli_chats *c = open_chats(false, 20);
  sli_token_row row = {0};
  CHECK(sli_chats_encode(c, "chats.jsonl", CHAT, strlen(CHAT), &row) == SL_E_INPUT, "refused");
  CHECK(strstr(sl_detail(), "chats.jsonl:1: token ") &&
            strstr(sl_detail(), "the vocabulary has 20 tokens"),
        "%s", sl_detail());
  free(row.items);
  sli_chats_close(c);
}

int main(void) {
  CHECK(mkdtemp(folder), "a folder");
  RUN(masks_are_those_of_transformers_and_trl);
  RUN(bad_lines_are_told_with_their_place);
  RUN(answers_that_cannot_be_found_are_told);
  RUN(forms_are_the_same_chat);
  RUN(messages_say_whether_they_are_learned);
  RUN(keys_that_nobody_reads_are_refused);
  RUN(all_tokens_are_learned_where_asked);
  RUN(tokens_beyond_the_vocabulary_are_told);
  char *all[] = {path_of("tokenizer.json"), path_of("tokenizer_config.json")};
  for (size_t i = 0; i < SLI_COUNT(all); i++) unlink(all[i]), free(all[i]);
  rmdir(folder);
  return 0;
}
