/* SPDX-License-Identifier: Apache-2.0 */
/* A chat template of a stranger's is read or refused, and run over messages: within its bounds,
 * without harm.
 * labels: random unthreaded */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/chat.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_words[] = {"{% ",
                                  " %}",
                                  "{{ ",
                                  " }}",
                                  "{%- ",
                                  " -%}",
                                  "{#",
                                  "#}",
                                  "if ",
                                  "elif ",
                                  "else",
                                  "endif",
                                  "for m in messages",
                                  "endfor",
                                  "set x = ",
                                  "set ",
                                  "endset",
                                  "namespace(a=1)",
                                  "macro f(a, b='x')",
                                  "endmacro",
                                  "f(1)",
                                  "filter upper",
                                  "endfilter",
                                  "raw",
                                  "endraw",
                                  "break",
                                  "continue",
                                  "messages",
                                  "[0]",
                                  "[1:-1]",
                                  "[::-1]",
                                  ".role",
                                  ".content",
                                  "loop.",
                                  "index0",
                                  "first",
                                  "last",
                                  " is ",
                                  " not ",
                                  " in ",
                                  "defined",
                                  "none",
                                  "true",
                                  "string",
                                  " and ",
                                  " or ",
                                  "|trim",
                                  "|tojson",
                                  "|length",
                                  "|join(', ')",
                                  "|map(attribute='role')",
                                  "|selectattr('role', 'equalto', 'user')",
                                  "|list",
                                  "|default('')",
                                  ".split(' ')",
                                  ".strip()",
                                  ".items()",
                                  ".replace('a','b')",
                                  "range(3)",
                                  "raise_exception('x')",
                                  "bos_token",
                                  "eos_token",
                                  "'",
                                  "\"",
                                  "\\",
                                  "~",
                                  "+",
                                  "-",
                                  "*",
                                  "**",
                                  "/",
                                  "//",
                                  "%",
                                  "(",
                                  ")",
                                  "[",
                                  "]",
                                  "{",
                                  "}",
                                  ":",
                                  ",",
                                  "=",
                                  "==",
                                  "<",
                                  "9223372036854775807",
                                  "1e308",
                                  NULL};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  static const sli_chat_message messages[] = {{SLI_CHAT_SYSTEM, " be\nbrief "},
                                              {SLI_CHAT_USER, "Hi \u4e2d\U0001f600"},
                                              {SLI_CHAT_ASSISTANT, "<think>x</think> 'y' \"z\""},
                                              {SLI_CHAT_USER, ""}};
  static const sli_chat_marks marks = {"<s>", "</s>"};
  char *text = sli_calloc(1, count + 1), *out;
  memcpy(text, bytes, count);
  const sli_chat *chat = sli_chat_of_template(text);
  free(text);
  if (!chat) return 0;
  for (int n = 2; n <= 4; n++)
    if (!sli_chat_render(chat, &marks, messages, n, &out)) free(out);
  sli_chat_end(chat, &marks);
  sli_chat_free(chat);
  return 0;
}
