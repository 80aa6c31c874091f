/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/answer/formats.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* Formats, in the order in which templates are searched for them. */
static const answer_format formats[] = {
    {.name = "gpt-oss",
     .found = "<|channel|>",
     .marks =
         {{"<|channel|>", ANSWER_AT_START, ANSWER_HEADS, true},
          {"to=", ANSWER_AT_START, ANSWER_HEADS, true}, /* the header continues the prompt's role */
          {"<|start|>", ANSWER_IN_TEXT | ANSWER_IN_THOUGHT | ANSWER_IN_RAW, ANSWER_HEADS, true},
          {"<|end|>", ANSWER_IN_TEXT | ANSWER_IN_THOUGHT | ANSWER_IN_RAW, ANSWER_DROPS, false},
          {"<|call|>", ANSWER_IN_TEXT | ANSWER_IN_THOUGHT | ANSWER_IN_RAW, ANSWER_DROPS, false},
          {"<|return|>", ANSWER_IN_TEXT | ANSWER_IN_THOUGHT | ANSWER_IN_RAW, ANSWER_DROPS, false}},
     .always = true,
     .id_letters = ANSWER_ID_LONG,
     .ends = {"<|call|>", "<|return|>"},
     .no_end = "<|end|>",
     .calls = {"", "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "", NULL,
               ""},
     .thought = {"<|channel|>analysis<|message|>", "<|end|><|start|>assistant"}},
    {.name = "qwen3-coder",
     .found = "<function=",
     .marks = {{"<tool_call>", ANSWER_IN_TEXT, ANSWER_CALLS, false},
               {"<function=", ANSWER_IN_TEXT, ANSWER_CALLS, true},
               {"</tool_call>", ANSWER_AFTER_CALL, ANSWER_DROPS, false}},
     .close = "</tool_call>",
     .id_letters = ANSWER_ID_LONG,
     .calls = {"", "<tool_call>\n<function=", ">\n", "</function>\n</tool_call>", "\n", ""},
     .tagged = true},
    {.name = "hermes",
     .found = "<tool_call>",
     .marks = {{"<tool_call>", ANSWER_IN_TEXT, ANSWER_CALLS, false},
               {"</tool_call>", ANSWER_AFTER_CALL, ANSWER_DROPS, false}},
     .close = "</tool_call>",
     .id_letters = ANSWER_ID_LONG,
     .calls = {"", "<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>", "\n",
               ""}},
    {.name = "mistral",
     .found = "[TOOL_CALLS]",
     .marks = {{"[TOOL_CALLS]", ANSWER_IN_TEXT, ANSWER_CALLS, false}},
     .named = true,
     .id_letters = ANSWER_ID_SHORT,
     .calls = {"[TOOL_CALLS] [", "{\"name\": \"", "\", \"arguments\": ", "}", ", ", "]"},
     .other_mark = "[ARGS]",
     .others = {"", "[TOOL_CALLS]", "[ARGS]", "", "", ""}},
    {.name = "llama3",
     .found = "<|python_tag|>",
     .marks = {{"<|python_tag|>", ANSWER_IN_TEXT, ANSWER_CALLS, false},
               {"{", ANSWER_AT_START, ANSWER_CALLS, true}},
     .bare = true,
     .id_letters = ANSWER_ID_LONG,
     .ends = {"<|eom_id|>"},
     .calls = {"", "{\"name\": \"", "\", \"parameters\": ", "}", "; ", ""}}};

const answer_format *answer_format_named(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(formats); i++)
    if (!strcmp(formats[i].name, name)) return &formats[i];
  return NULL;
}

const answer_format *answer_format_of(const char *chat_template) {
  for (size_t i = 0; i < SLI_COUNT(formats); i++)
    if (strstr(chat_template, formats[i].found)) return &formats[i];
  return NULL;
}

bool answer_format_thinks(const char *chat_template) { return strstr(chat_template, ANSWER_THINK); }

char *answer_format_names(void) {
  char *names = sli_strdup(formats[0].name);
  for (size_t i = 1; i < SLI_COUNT(formats); i++) {
    char *more = sli_format("%s, %s", names, formats[i].name);
    free(names);
    names = more;
  }
  return names;
}
