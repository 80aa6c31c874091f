/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars of schemas accept exactly the texts that jsonschema accepts (make_grammar.py);
 * unsupported keywords are refused with an error that names them.
 * labels: unthreaded */
#include <string.h>

#include "tests/support/grammars.h"
#include "tests/support/reference_file.h"

static int texts;

static void check_texts(sli_grammar *g, const char *schema, const cJSON *list, bool wanted) {
  const cJSON *each;
  cJSON_ArrayForEach(each, list) {
    bool got = grammar_has(g, each->valuestring);
    CHECK(got == wanted, "%s: %s %s", schema, each->valuestring, got ? "fits" : "does not fit");
    texts++;
  }
}

static void check_line(char *line) {
  cJSON *root = cJSON_Parse(line);
  const cJSON *schema = cJSON_GetObjectItem(root, "schema");
  char *text = cJSON_PrintUnformatted(schema);
  sli_grammar *g = sli_grammar_create(NULL);
  sl_status status = sli_grammar_seal(g, sli_grammar_schema(g, schema, "schema"), byte_tokens());
  const cJSON *valid = cJSON_GetObjectItem(root, "valid");
  CHECK(!status || !valid->child, "%s: %s", text, sl_detail());
  if (!status) {
    check_texts(g, text, valid, true);
    check_texts(g, text, cJSON_GetObjectItem(root, "invalid"), false);
  }
  sli_grammar_destroy(g);
  free(text);
  cJSON_Delete(root);
}

static void values_are_those_that_schemas_accept(void) {
  const char *source = getenv("SLUICE_SOURCE");
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/reference/grammar_schemas.txt", source ? source : ".");
  CHECK(reference_lines(path, check_line) >= 200, "there are 200 schemas");
  CHECK(texts > 3000, "%d texts", texts);
}

static void refuse(const char *schema, const char *why) {
  cJSON *root = cJSON_Parse(schema);
  CHECK(root, "%s", schema);
  sli_grammar *g = sli_grammar_create(NULL);
  sl_status status = sli_grammar_seal(g, sli_grammar_schema(g, root, "schema"), byte_tokens());
  CHECK(status == SL_E_USAGE && strstr(sl_detail(), why), "%s: %s", schema,
        status ? sl_detail() : "is taken");
  sli_grammar_destroy(g);
  cJSON_Delete(root);
}

static void what_is_not_supported_is_refused(void) {
  refuse("{\"properties\":{\"a\":{\"not\":{}}}}", "schema: properties.a.not: this keyword is not");
  refuse("{\"if\":{}}", "if: this keyword");
  refuse("{\"type\":\"strin\"}", "type: must be a type of JSON");
  refuse("{\"uniqueItems\":true}", "uniqueItems: is not supported");
  refuse("{\"$ref\":\"#/$defs/x\"}", "$ref: \"#/$defs/x\" is not a schema");
  refuse("{\"$ref\":\"http://x.org/y\"}", "$ref: \"http://x.org/y\" is not a schema");
  refuse("{\"format\":\"regex\"}", "format: \"regex\" is not a format");
  refuse("{\"pattern\":\"(?=a)\"}", "pattern: pattern (?=a): lookahead");
  refuse("{\"minLength\":-1}", "minLength: must be a whole number");
  refuse("{\"maxLength\":1000000}", "maxLength: 1000000 is more than");
  refuse("{\"minimum\":\"1\"}", "minimum: must be a number");
  refuse("{\"multipleOf\":0.3}", "multipleOf: may be a whole number");
  refuse("{\"items\":3}", "items: must be a schema");
  refuse("{\"required\":\"a\"}", "required: must be an array of texts");
  refuse("{\"anyOf\":[]}", "anyOf: must be an array");
  refuse("{\"type\":\"object\",\"minProperties\":2}", "minProperties above 1 needs");
  refuse("{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}",
         "oneOf: a value may satisfy number 1 and number 2");
  refuse("{\"type\":\"string\",\"enum\":[1]}", "no text matches");
  refuse("{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", "no text matches");
  refuse("false", "no text matches");
  refuse("3", "a schema is an object, true or false");
}

/* Numbers end after 32 characters, so that a model cannot go on forever. */
static void numbers_end(void) {
  static const char *const schemas[] = {"{\"type\":\"integer\"}", "{\"type\":\"number\"}",
                                        "{\"type\":\"integer\",\"minimum\":10}",
                                        "{\"type\":\"integer\",\"multipleOf\":3}", "{}"};
  static const char digits[] = "333333333333333333333333333333333";
  for (size_t i = 0; i < SLI_COUNT(schemas); i++) {
    cJSON *root = cJSON_Parse(schemas[i]);
    sli_grammar *g = sli_grammar_create(NULL);
    CHECK(!sli_grammar_seal(g, sli_grammar_schema(g, root, "schema"), byte_tokens()), "%s",
          sl_detail());
    CHECK(grammar_has(g, digits + 1), "%s: 32 digits", schemas[i]);
    CHECK(!grammar_has(g, digits), "%s: 33 digits", schemas[i]);
    sli_grammar_destroy(g);
    cJSON_Delete(root);
  }
}

int main(void) {
  RUN(values_are_those_that_schemas_accept);
  RUN(what_is_not_supported_is_refused);
  RUN(numbers_end);
  grammars_end();
  return 0;
}
