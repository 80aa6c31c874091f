/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars of regular expressions accept the texts that Python's re accepts (make_grammar.py), byte
 * by byte; unsupported constructs are refused with an error that names them.
 * labels: unthreaded */
#include <string.h>

#include "text/grammar/grammar.h"
#include "tests/support/grammars.h"
#include "tests/support/reference_file.h"

static void check_texts(const sli_grammar *g, const char *pattern, const cJSON *texts,
                        bool wanted) {
  const cJSON *each;
  cJSON_ArrayForEach(each, texts) {
    bool got = grammar_has((sli_grammar *)g, each->valuestring);
    CHECK(got == wanted, "%s: \"%s\" %s", pattern, each->valuestring, got ? "fits" : "does not");
  }
}

static void check_line(char *line) {
  cJSON *root = cJSON_Parse(line);
  const char *pattern = cJSON_GetObjectItem(root, "pattern")->valuestring;
  char within[4096];
  bool whole = cJSON_IsTrue(cJSON_GetObjectItem(root, "whole"));
  snprintf(within, sizeof within, whole ? "%s" : "[^]*(?:%s)[^]*", pattern);
  sli_grammar *g = sli_grammar_create(NULL);
  sl_status status = sli_grammar_seal(g, sli_grammar_regex(g, within), byte_tokens());
  bool none = !cJSON_GetObjectItem(root, "yes")->child;
  CHECK(!status || none, "%s: %s", pattern, sl_detail());
  if (!status) {
    check_texts(g, pattern, cJSON_GetObjectItem(root, "yes"), true);
    check_texts(g, pattern, cJSON_GetObjectItem(root, "no"), false);
  }
  sli_grammar_destroy(g);
  cJSON_Delete(root);
}

static void texts_are_those_that_match(void) {
  const char *source = getenv("SLUICE_SOURCE");
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/reference/grammar_regex.txt", source ? source : ".");
  CHECK(reference_lines(path, check_line) > 100, "there are many");
}

static void refuse(const char *pattern, const char *why) {
  sli_grammar *g = sli_grammar_create(NULL);
  sl_status status = sli_grammar_seal(g, sli_grammar_regex(g, pattern), byte_tokens());
  CHECK(status == SL_E_USAGE && strstr(sl_detail(), why), "%s: %s", pattern, sl_detail());
  sli_grammar_destroy(g);
}

static void what_is_not_supported_is_refused(void) {
  refuse("a(?=b)", "lookahead");
  refuse("(?<!a)b", "lookbehind");
  refuse("(a)\\1", "backreferences");
  refuse("\\bword", "word boundaries");
  refuse("\\p{Lu}", "classes \\p");
  refuse("a++", "possessive");
  refuse("(a", "a ( without its )");
  refuse("a)", "a ) without its (");
  refuse("[a", "a [ without its ]");
  refuse("*a", "nothing to repeat");
  refuse("a{3,2}", "the minimum is greater");
  refuse("a{99999}", "too many repetitions");
  refuse("[z-a]", "a range");
  refuse("a\\", "a backslash at the end");
  refuse("\\q", "the escape \\q");
  refuse("a$b", "no text matches");
  refuse("((a{99}){99}){99}", "too large");
  refuse("[ab]*a[ab]{40}", "too large");
}

int main(void) {
  RUN(texts_are_those_that_match);
  RUN(what_is_not_supported_is_refused);
  grammars_end();
  return 0;
}
