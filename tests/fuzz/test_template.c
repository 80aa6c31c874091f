/* SPDX-License-Identifier: Apache-2.0 */
/* An untrusted chat template is read or refused, and run on messages and on a chat with tools,
 * within its bounds and without harm.
 * labels: random unthreaded */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/chat.h"
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
                                  "call(x) f()",
                                  "endcall",
                                  "with a = 1",
                                  "endwith",
                                  "for a, (b, c) in ",
                                  " recursive",
                                  "loop(messages)",
                                  "loop.changed(1)",
                                  "caller()",
                                  "varargs",
                                  "*messages",
                                  "**tools[0]",
                                  "generation",
                                  "endgeneration",
                                  "tools",
                                  "messages[1].tool_calls",
                                  "|items",
                                  "|sort",
                                  "|sort(attribute='role')",
                                  "|dictsort",
                                  "|unique",
                                  "|batch(2)",
                                  "|sum",
                                  "|max",
                                  "|round(1)",
                                  "|int",
                                  "|float",
                                  "|indent(2)",
                                  "|center(9)",
                                  "|reverse",
                                  "|title",
                                  "|format(1)",
                                  "|tojson(indent=2)",
                                  "'%s %d %.2f' % ",
                                  "'{} {0} {a}'.format(1)",
                                  ".splitlines()",
                                  ".rsplit('e', 1)",
                                  ".partition('e')",
                                  ".find('e', -2)",
                                  ".zfill(9)",
                                  ".keys()",
                                  ".get('role')",
                                  "dict(a=1)",
                                  "9223372036854775807",
                                  "1e308",
                                  NULL};

static const char chat_messages[] =
    "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":null,"
    "\"tool_calls\":[{\"id\":\"x\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"b\\\": [1.5, null]}\"}}]},"
    "{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"7\"}]}]";
static const char chat_tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"b\":{\"type\":\"array\",\"items\":{\"type\":\"number\"}}}}}}]";

/* Renders a chat with a tool call. */
static void render_tools(const sli_chat *chat, const sli_chat_marks *marks) {
  const sli_chat_json in = {.messages = chat_messages,
                            .messages_bytes = sizeof chat_messages - 1,
                            .tools = chat_tools,
                            .tools_bytes = sizeof chat_tools - 1};
  char *out;
  if (!sli_chat_render_json(chat, marks, &in, NULL, &out)) free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  static const sli_chat_message messages[] = {{SLI_CHAT_SYSTEM, " be\nbrief "},
                                              {SLI_CHAT_USER, "Hi \u4e2d\U0001f600"},
                                              {SLI_CHAT_ASSISTANT, "<think>x</think> 'y' \"z\""},
                                              {SLI_CHAT_USER, ""}};
  static const sli_chat_marks marks = {.begin = "<s>", .end = "</s>"};
  char *text = sli_calloc(1, count + 1), *out;
  memcpy(text, bytes, count);
  const sli_chat *chat = sli_chat_of_template(text, NULL);
  free(text);
  if (!chat) return 0;
  for (int n = 2; n <= 4; n++)
    if (!sli_chat_render(chat, &marks, messages, n, &out)) free(out);
  render_tools(chat, &marks);
  sli_chat_end(chat, &marks);
  sli_chat_free(chat);
  return 0;
}
