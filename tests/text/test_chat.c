/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates, those of models and the named ones, render chats as transformers does
 * (tests/reference/chats.json, templates.json, families.json). Unknown constructs in a template are
 * refused with an error that names them.
 *
 *   test_io_chat [FILE]
 * labels: unthreaded */
#include "text/chat.h"

#include <cjson/cJSON.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "text/template/template.h"
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
  CHECK(!sli_chat_render(chat, marks, messages, n, &text), "%s: %s", sli_chat_name(chat),
        sl_detail());
  CHECK(!strcmp(text, text_at(from, "text")), "%s: \"%s\" should be \"%s\"", sli_chat_name(chat),
        text, text_at(from, "text"));
  free(text);
}

static void check_as(const sli_chat *chat, const sli_chat_marks *marks, const cJSON *from) {
  CHECK(chat, "%s: %s", text_at(from, "name"), sl_detail());
  CHECK(!strcmp(sli_chat_end(chat, marks), marks->end), "%s ends an answer with %s, not %s",
        text_at(from, "name"), marks->end, sli_chat_end(chat, marks));
  const cJSON *each;
  cJSON_ArrayForEach(each, cJSON_GetObjectItem(from, "chats")) check_chat(chat, marks, each);
  sli_chat_free(chat);
}

static void check_template(const cJSON *from) {
  sli_chat_marks marks = {.begin = text_at(from, "begin"), .end = text_at(from, "end")};
  check_as(sli_chat_of_template(text_at(from, "template"), NULL), &marks, from);
  check_as(sli_chat_named(text_at(from, "name")), &marks, from);
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

/* Returns the rendered text of a template, or "!" and the error. */
static char *outcome(const char *template, const char *messages) {
  const sli_chat *chat = sli_chat_of_template(template, NULL);
  if (!chat) return sli_format("!%s", sl_detail());
  sli_chat_message all[MOST_MESSAGES];
  cJSON *from = cJSON_Parse(messages);
  int n = read_messages(from, all);
  char *text;
  if (sli_chat_render(chat, &(sli_chat_marks){.begin = "<s>", .end = "</s>"}, all, n, &text))
    text = sli_format("!%s", sl_detail());
  cJSON_Delete(from);
  sli_chat_free(chat);
  return text;
}

/* Each row has a template, messages, and Jinja's output, or null if Jinja fails. */
static void check_jinja(const char *path) {
  char *all;
  int n = 0;
  CHECK(!sli_file_read(path, &all), "%s", sl_detail());
  cJSON *root = cJSON_Parse(all), *each;
  cJSON_ArrayForEach(each, root) {
    const char *template = cJSON_GetArrayItem(each, 0)->valuestring;
    const cJSON *want = cJSON_GetArrayItem(each, 2);
    char *messages = cJSON_PrintUnformatted(cJSON_GetArrayItem(each, 1)),
         *got = outcome(template, messages);
    bool good = cJSON_IsString(want) ? !strcmp(got, want->valuestring) : *got == '!';
    CHECK(good, "%s of %s is \"%s\", not \"%s\"", template, messages, got,
          cJSON_IsString(want) ? want->valuestring : "an error");
    free(messages), free(got);
    n++;
  }
  CHECK(n > 150, "%d rows", n);
  cJSON_Delete(root);
  free(all);
}

/* ---- families -------------------------------------------------------------------------------- */

/* Replaces date formats between guillemets by today's date. */
static char *with_dates(const char *text) {
  static const char open[] = "\u00ab", close[] = "\u00bb";
  const char *begin = strstr(text, open), *end = begin ? strstr(begin, close) : NULL;
  if (!end) return sli_strdup(text);
  char date[64], *format = sli_format("%.*s", (int)(end - begin - 2), begin + 2);
  time_t now = time(NULL);
  strftime(date, sizeof date, format, localtime(&now));
  char *rest = with_dates(end + 2),
       *all = sli_format("%.*s%s%s", (int)(begin - text), text, date, rest);
  free(format), free(rest);
  return all;
}

static const char *part_of(const cJSON *chat, const char *key, size_t *bytes) {
  const char *text = text_at(chat, key);
  *bytes = text ? strlen(text) : 0;
  return text;
}

/* Renders a chat of families.json; returns "!" and the error if that fails. */
static char *family_outcome(const char *template, const cJSON *chat) {
  const sli_chat *of = sli_chat_of_template(template, NULL);
  sli_chat_json in = {NULL};
  char *text;
  if (!of) return sli_format("!%s", sl_detail());
  in.messages = part_of(chat, "messages", &in.messages_bytes);
  in.tools = part_of(chat, "tools", &in.tools_bytes);
  in.documents = part_of(chat, "documents", &in.documents_bytes);
  in.variables = part_of(chat, "variables", &in.variables_bytes);
  const sli_chat_marks marks = {.begin = "<s>", .end = "</s>", .pad = "<pad>"};
  if (sli_chat_render_json(of, &marks, &in, NULL, &text)) text = sli_format("!%s", sl_detail());
  sli_chat_free(of);
  return text;
}

static void check_family(const cJSON *root, const cJSON *row) {
  const char *name = cJSON_GetArrayItem(row, 0)->valuestring,
             *key = cJSON_GetArrayItem(row, 1)->valuestring;
  const cJSON *want = cJSON_GetArrayItem(row, 2);
  char *dated = cJSON_IsString(want) ? with_dates(want->valuestring) : NULL;
  char *got = family_outcome(text_at(cJSON_GetObjectItem(root, "templates"), name),
                             cJSON_GetObjectItem(cJSON_GetObjectItem(root, "chats"), key));
  CHECK(dated ? !strcmp(got, dated) : *got == '!', "%s of %s is \"%s\", not \"%s\"", name, key, got,
        dated ? dated : "an error");
  free(dated), free(got);
}

/* Renders templates in the style of public models, for chats with and without tools. */
static void check_families(const char *path) {
  char *all;
  CHECK(!sli_file_read(path, &all), "%s", sl_detail());
  cJSON *root = cJSON_Parse(all), *each;
  int n = cJSON_GetArraySize(cJSON_GetObjectItem(root, "templates"));
  CHECK(n >= 30, "%d templates", n);
  cJSON_ArrayForEach(each, cJSON_GetObjectItem(root, "rows")) check_family(root, each);
  cJSON_Delete(root);
  free(all);
}

/* A template that differs from a known one in one piece renders what it says. */
static void pieces_count(void) {
#define CHATML \
  "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
  static const char user[] = "[{\"role\":\"user\",\"content\":\"Hi\"}]";
  static const char later[] =
      "[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"system\",\"content\":\"s\"}]";
#define SAID "<|im_start|>user\nHi<|im_end|>\n"
  const char *const rows[][3] = {{CHATML, user, SAID},
                                 {"{{bos_token}}" CHATML, user, "<s>" SAID},
                                 {CHATML "{{ eos_token }}", user, SAID "</s>"},
                                 {CHATML, later, SAID "<|im_start|>system\ns<|im_end|>\n"},
                                 {"{# #}" CHATML, user, SAID},
                                 {"{% if false %}" CHATML "{% endif %}x", user, "x"}};
  for (size_t i = 0; i < SLI_COUNT(rows); i++) {
    char *got = outcome(rows[i][0], rows[i][1]);
    CHECK(!strcmp(got, rows[i][2]), "%s gives \"%s\"", rows[i][0], got);
    free(got);
  }
}

/* Checks that errors name unknown constructs with their line, and that time and memory are
 * bounded. */
static void what_is_not_known_is_refused(void) {
  static const char *const rows[][2] = {
      {"a\n{% include 'x' %}", "line 2 of the template: the tag \"include\""},
      {"{{ x | frob }}", "filter \"frob\""},
      {"{{ x is frob }}", "test \"frob\""},
      {"{{ bos_token.frob() }}", "a text has no method \"frob\""},
      {"{{ messages | groupby('role') }}", "filter \"groupby\""},
      {"{{ messages.append(1) }}", "must not change a list"},
      {"{{ frob() }}", "\"frob\" is undefined"},
      {"{{ f(*a) }}", "\"f\" is undefined"},
      {"{{ cycler(1, 2) }}", "\"cycler\" is not supported"},
      {"{% for x in [1] %}{{ loop([2]) }}{% endfor %}", "a loop was called that is not recursive"},
      {"{{ 'a", "string has no end"},
      {"{{ a", "a tag has no end"},
      {"{% if a %}", "ends before elif"},
      {"{{ a b }}", "\"b\""},
      {"{{ ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1)))))))))))))))))))))))))))))))))))))))))))))))))))))))) }}",
       "deeper"},
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
       "it takes too m"},
      {"{% set n = namespace(a='xxxxxxxx') %}{% for i in range(40) %}{% set n.a = n.a + n.a %}{% endfor %}",
       "memory"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "macros are nested"},
      {"{% set n = namespace(a=[]) %}{% for i in range(200) %}{% set n.a = [n.a] %}{% endfor %}{{ n.a }}",
       "deeper"},
      {"{{ '\u00e9' | upper }}", "beyond ASCII"},
      {"{{ 9223372036854775807 }}", "too large"},
      {"{{ 999999999999 ** 9 }}", "too large"}};
  for (size_t i = 0; i < SLI_COUNT(rows); i++) {
    char *got = outcome(rows[i][0], "[{\"role\":\"user\",\"content\":\"Hi\"}]");
    CHECK(*got == '!' && strstr(got, rows[i][1]), "%s: \"%s\" says %s", rows[i][0], got,
          rows[i][1]);
    free(got);
  }
  CHECK(!sli_chat_named("none") && !sli_chat_named(""), "nor are other names");
}

/* Values are bounded before a template runs, too, and JSON is parsed strictly. */
static void values_are_bounded(void) {
  static const char *const rows[][2] = {{"[\"0123456789\", \"0123456789\", \"0123456789\"]",
                                         "a value for the template: it takes too much memory"},
                                        {"[1, 02]", "a value: not JSON at line 1, column 6"},
                                        {"{\"a\": \"\\ud800\"}", "unpaired surrogate"}};
  for (size_t i = 0; i < SLI_COUNT(rows); i++) {
    sli_values *v = sli_values_create(200, NULL);
    sli_value_read(v, rows[i][0], strlen(rows[i][0]));
    CHECK(sli_values_status(v) == SL_E_INPUT && strstr(sl_detail(), rows[i][1]), "%s: %s",
          rows[i][0], sl_detail());
    sli_values_destroy(v);
  }
}

/* A template ends after a number of steps that counts the bytes which its methods, filters and
 * comparisons go through. */
static void work_is_bounded(void) {
  static const char *const work[] = {"t.startswith(t)",
                                     "t.endswith(('b', t))",
                                     "t == u",
                                     "t < u",
                                     "t.find(u)",
                                     "t.rfind('b' + t[:200000])",
                                     "t.count(t[:9])",
                                     "t.strip(u)",
                                     "t.removeprefix(t)",
                                     "t.partition('b')",
                                     "t.rsplit('b')",
                                     "t.replace('b', 'c')",
                                     "t.isalpha()",
                                     "t | length",
                                     "t | upper",
                                     "t | trim",
                                     "('b' + u) in t",
                                     "t is eq(u)"};
  static const char begin[] =
      "{% set t = 'a' * 400000 %}{% set u = 'a' * 399999 + 'a' %}"
      "{% for i in range(100000) %}{% for j in range(100000) %}{% if ";
  for (size_t i = 0; i < SLI_COUNT(work); i++) {
    char *text = sli_format("%s%s %%}{%% endif %%}{%% endfor %%}{%% endfor %%}", begin, work[i]);
    uint64_t since = sli_now_ns();
    char *got = outcome(text, "[{\"role\":\"user\",\"content\":\"Hi\"}]");
    double seconds = (double)(sli_now_ns() - since) * 1e-9;
    CHECK(*got == '!' && (strstr(got, "too many steps") || strstr(got, "too much memory")),
          "%s: %s", work[i], got);
    CHECK(seconds < 30, "%s takes %.1f s", work[i], seconds);
    printf("%.2f s: %s\n", seconds, work[i]);
    free(got);
    free(text);
  }
}

static void check_refused(const char *name, const sli_chat_message *messages, int count,
                          const char *word) {
  char *text;
  const sli_chat *chat = sli_chat_named(name);
  CHECK(sli_chat_render(chat, &(sli_chat_marks){.begin = "<s>", .end = "</s>"}, messages, count,
                        &text) == SL_E_USAGE,
        "%s: %s is refused", name, word);
  CHECK(strstr(sl_detail(), word), "\"%s\" says %s", sl_detail(), word);
  sli_chat_free(chat);
}

static void what_has_no_place_is_refused(void) {
  const sli_chat_message all[] = {
      {SLI_CHAT_SYSTEM, "s"}, {SLI_CHAT_USER, "u"}, {SLI_CHAT_USER, "v"}};
  check_refused("mistral", all, 2, "mistral: it says: it has no system messages");
  check_refused("llama2", all, 3, "llama2: it says: not in turn");
  check_refused("chatml", all, 1, "no message");
  check_refused("chatml", all, 0, "no message");
}

int main(int argc, char **argv) {
  const char *source = getenv("SLUICE_SOURCE");
  char *path = sli_format("%s/tests/reference/chats.json", source ? source : ".");
  char **words;
  bool others = test_words(argc, argv, &words) > 0;
  int n = 0;
  RUN_AS("templates", n = check_file(others ? words[0] : path));
  char *names = sli_chat_names();
  CHECK(strstr(names, "chatml, ") && (others || !test_whole() || n == 9), "%s: all of them", names);
  RUN(pieces_count);
  RUN(what_is_not_known_is_refused);
  RUN(values_are_bounded);
  RUN(work_is_bounded);
  RUN(what_has_no_place_is_refused);
  char *rows = sli_format("%s/tests/reference/templates.json", source ? source : ".");
  RUN(check_jinja, rows);
  free(rows);
  rows = sli_format("%s/tests/reference/families.json", source ? source : ".");
  RUN(check_families, rows);
  free(rows);
  free(names);
  free(path);
  return 0;
}
