/* SPDX-License-Identifier: Apache-2.0 */
/* External JSON is parsed strictly: invalid text is refused with its line and column, and a value
 * of a wrong kind or size with its path.
 * labels: unthreaded smoke */
#include "base/json.h"

#include <string.h>

#include "tests/support/test.h"

static sl_status read_text(const char *text, sli_json *out) {
  return sli_json_read("a.json", text, strlen(text), 0, out);
}

/* ---- texts ---------------------------------------------------------------------------------- */

static void taken(const char *text) {
  sli_json doc;
  CHECK(!read_text(text, &doc), "'%s' is JSON: %s", text, sl_detail());
  sli_json_fini(&doc);
}

static void refused(const char *text, size_t bytes, const char *says) {
  sli_json doc;
  char *exact = malloc(bytes ? bytes : 1); /* exact size: reads past the end are detected */
  memcpy(exact, text, bytes);
  CHECK(sli_json_read("a.json", exact, bytes, 0, &doc) == SL_E_INPUT, "'%s' is not JSON", text);
  CHECK(!strncmp(sl_detail(), "a.json: ", 8) && strstr(sl_detail(), says),
        "of '%s' it says '%s', not '%s'", text, sl_detail(), says);
  free(exact);
}

static void what_is_json_is_taken(void) {
  static const char *const good[] = {"0",
                                     "-0.5e-3",
                                     "1E+3",
                                     "null",
                                     " [ ] ",
                                     "{}",
                                     "\t{\"a\":\r\n[1,2,{\"b\":true}],\"A\":false}",
                                     "\"\\u00e4\\ud83d\\ude00\\/\\\"\"",
                                     "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\x7f\"",
                                     "\xef\xbb\xbf{}",
                                     "1e308",
                                     "123456789012345678901234567890"};
  for (size_t i = 0; i < SLI_COUNT(good); i++) taken(good[i]);
}

static void what_is_none_is_refused(void) {
  static const struct {
    const char *text, *says;
  } rows[] = {{"", "line 1, column 1: expected a value, found the end"},
              {"  \n x", "line 2, column 2: expected a value, found x"},
              {"{\"a\": NaN}", "line 1, column 7: expected a value, found N"},
              {"[-Infinity]", "expected a digit, found I"},
              {"[1,]", "expected a value, found ]"},
              {"{\"a\":1,}", "expected a key in quotes"},
              {"{a:1}", "expected a key"},
              {"{\"a\" 1}", "expected a colon"},
              {"[1 2]", "expected a comma or ]"},
              {"{\"a\":1 \"b\":2}", "expected a comma or }"},
              {"1 2", "more than one value, found 2"},
              {"{}}", "more than one value"},
              {"01", "more than one value"},
              {"1.", "expected a digit"},
              {".5", "expected a value"},
              {"+1", "expected a value"},
              {"1e", "expected a digit"},
              {"-", "expected a digit"},
              {"tru", "expected a value"},
              {"nul", "expected a value"},
              {"'a'", "expected a value"},
              {"[1] // one", "more than one value"},
              {"\"a", "unterminated string"},
              {"\"a\nb\"", "control character in a string"},
              {"\"\\x41\"", "invalid escape"},
              {"\"\\u12", "four hexadecimal digits"},
              {"\"\\u12g4\"", "four hexadecimal digits"},
              {"\"\\u0000\"", "a zero character"},
              {"\"\\ud800\"", "unpaired surrogate"},
              {"\"\\udc00\"", "unpaired surrogate"},
              {"\"\\ud800\\u0041\"", "unpaired surrogate"},
              {"\"\\", "invalid escape"},
              {"\"\xff\"", "invalid UTF-8"},
              {"\"\xc3\"", "invalid UTF-8"},
              {"\"\xc0\x80\"", "invalid UTF-8"},
              {"\"\xed\xa0\x80\"", "invalid UTF-8"},
              {"\"\xf4\x90\x80\x80\"", "invalid UTF-8"},
              {"\"\xe2\x82", "invalid UTF-8"},
              {"1e999", "number beyond"},
              {"{\"a\": [0, -1e400]}", "a.json: a[1]: number beyond"},
              {"{\"a\": 1, \"b\": 2, \"a\": 3}", "a.json: a: duplicate key"},
              {"[{\"x\": {\"\\u0061\": 1, \"a\": 2}}]", "a.json: [0].x.a: duplicate key"},
              {"0.0000000000000000000000000000000000000000000000000000000000000001",
               "number longer than 63 characters"}};
  for (size_t i = 0; i < SLI_COUNT(rows); i++)
    refused(rows[i].text, strlen(rows[i].text), rows[i].says);
  refused("[1]\0", 4, "more than one value");
  refused("\"a\0\"", 4, "control character");
}

static void levels_and_values_have_a_bound(void) {
  char deep[2 * SLI_JSON_DEPTH + 3];
  for (int n = SLI_JSON_DEPTH; n <= SLI_JSON_DEPTH + 1; n++) {
    memset(deep, '[', (size_t)n);
    memset(deep + n, ']', (size_t)n);
    deep[2 * n] = 0;
    if (n == SLI_JSON_DEPTH) taken(deep);
    else refused(deep, strlen(deep), "nested too deeply");
  }
  static char open[1 << 20];
  memset(open, '[', sizeof open);
  refused(open, sizeof open, "nested too deeply");
  sli_json doc;
  CHECK(!sli_json_read("a", "[1,2,3]", 7, 4, &doc), "four values are four");
  sli_json_fini(&doc);
  CHECK(sli_json_read("a", "[1,2,3]", 7, 3, &doc) && strstr(sl_detail(), "too many values"),
        "it says '%s'", sl_detail());
}

static void texts_that_end_early_are_refused(void) {
  static const char good[] = "{\"a\": [1.5e3, \"\\u00e4\xc3\xa4\", true, {\"b\": null}]}";
  taken(good);
  for (size_t n = 0; n < strlen(good); n++) refused(good, n, "not JSON at line 1");
}

/* ---- values ---------------------------------------------------------------------------------- */

typedef struct values {
  double number;
  int64_t whole;
  bool flag;
  const char *text;
  const cJSON *object, *array;
} values;

static sl_status take(const sli_json *doc, values *v) {
  const sli_json_field fields[] = {{"number", SLI_JSON_NUMBER, &v->number, 0, 10, true},
                                   {"whole", SLI_JSON_WHOLE, &v->whole, -5, 1e18, false},
                                   {"flag", SLI_JSON_FLAG, &v->flag, 0, 0, false},
                                   {"text", SLI_JSON_TEXT, &v->text, 0, 0, false},
                                   {"object", SLI_JSON_OBJECT, &v->object, 0, 0, false},
                                   {"array", SLI_JSON_ARRAY, &v->array, 0, 0, false},
                                   {"note", SLI_JSON_ANY, NULL, 0, 0, false}};
  return sli_json_take(doc, doc->root, fields, SLI_COUNT(fields));
}

static void a_table_takes_what_it_has(void) {
  sli_json doc;
  values v = {.whole = 7};
  CHECK(
      !read_text(
          "{\"number\": 2.5, \"flag\": true, \"text\": \"t\", \"object\": {}, \"array\": [1], \"note\": null}",
          &doc),
      "it is JSON");
  CHECK(!take(&doc, &v), "all is as wanted: %s", sl_detail());
  CHECK(v.number == 2.5 && v.whole == 7 && v.flag && !strcmp(v.text, "t") && v.object &&
            sli_json_count(v.array) == 1,
        "and taken");
  sli_json_fini(&doc);
}

static void values_of_other_kinds_are_named(void) {
  static const char *const rows[][2] = {
      {"[]", "a.json: expected an object, found an array"},
      {"3", "a.json: expected an object, found 3"},
      {"{}", "a.json: number is missing"},
      {"{\"number\": \"2\"}", "a.json: number: expected a number from 0 to 10, found a string"},
      {"{\"number\": -1}", "number: expected a number from 0 to 10, found -1"},
      {"{\"number\": null}", "found null"},
      {"{\"number\": 1, \"whole\": 1.5}",
       "whole: expected a whole number from -5 to 9.00719925e+15, found 1.5"},
      {"{\"number\": 1, \"whole\": 1e17}", "found 1e+17"},
      {"{\"number\": 1, \"whole\": []}", "found an array"},
      {"{\"number\": 1, \"flag\": 1}", "flag: expected true or false, found 1"},
      {"{\"number\": 1, \"text\": {}}", "text: expected a string, found an object"},
      {"{\"number\": 1, \"object\": [1]}", "object: expected an object, found an array"},
      {"{\"number\": 1, \"array\": {\"a\": 1}}", "array: expected an array, found an object"},
      {"{\"number\": 1, \"numbr\": 1}",
       "a.json: numbr: unknown key; the keys are number, whole, flag, text, object, array, note"},
      {"{\"number\": 1, \"\\u001b[2J\\n\": 1}", "a.json: \\x1b[2J : unknown key"}};
  for (size_t i = 0; i < SLI_COUNT(rows); i++) {
    sli_json doc;
    values v = {0};
    CHECK(!read_text(rows[i][0], &doc), "'%s' is JSON: %s", rows[i][0], sl_detail());
    CHECK(take(&doc, &v) == SL_E_INPUT && strstr(sl_detail(), rows[i][1]),
          "of '%s' it says '%s', not '%s'", rows[i][0], sl_detail(), rows[i][1]);
    sli_json_fini(&doc);
  }
}

static void paths_lead_to_the_culprit(void) {
  sli_json doc;
  CHECK(!read_text("{\"a\": [0, {\"b c\": [[1, 2], [3]]}], \"d\": 1}", &doc), "it is JSON");
  const cJSON *deep = doc.root->child->child->next->child->child->next->child;
  CHECK(deep->valuedouble == 3, "it is the 3");
  int64_t whole = 0;
  CHECK(!sli_json_whole(&doc, deep, 3, INT64_MAX, &whole) && whole == 3,
        "3 is one of the whole numbers");
  CHECK(sli_json_whole(&doc, deep, INT64_MIN, 2, &whole) &&
            strstr(sl_detail(), "from -9.00719925e+15 to 2, found 3"),
        "it says '%s'", sl_detail());
  sli_json_fail(&doc, deep, "is %d", 3);
  CHECK(!strcmp(sl_detail(), "a.json: a[1].b c[1][0]: is 3"), "it says '%s'", sl_detail());
  const cJSON *none;
  CHECK(sli_json_member(&doc, doc.root->child->child->next, "x", SLI_JSON_ANY, true, &none),
        "it has no x");
  CHECK(!strcmp(sl_detail(), "a.json: a[1].x is missing"), "it says '%s'", sl_detail());
  CHECK(!sli_json_member(&doc, doc.root, "x", SLI_JSON_ANY, false, &none) && !none,
        "it need not have one");
  sli_json_fini(&doc);
}

int main(void) {
  RUN(what_is_json_is_taken);
  RUN(what_is_none_is_refused);
  RUN(levels_and_values_have_a_bound);
  RUN(texts_that_end_early_are_refused);
  RUN(a_table_takes_what_it_has);
  RUN(values_of_other_kinds_are_named);
  RUN(paths_lead_to_the_culprit);
}
