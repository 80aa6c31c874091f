/* SPDX-License-Identifier: Apache-2.0 */
/* Answers are parsed into content, reasoning and tool calls, in each format and wherever the text
 * is split. Randomly generated calls survive a round trip.
 *
 *   test_tools_answer [SEED [COUNT]]
 * labels: random smoke
 * needs: libevent */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tests/support/processor_time.h"
#include "tests/support/rng.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"
#include "tools/actorserve/answer/answer.h"

/* ---- one answer ------------------------------------------------------------------------------ */

typedef struct texts {
  FILE *content, *reasoning, *calls;
  char *text[3];
  size_t bytes[3];
} texts;

static void take_all(answer_parser *p, texts *t) {
  answer_piece piece;
  while (answer_parser_next(p, &piece)) {
    CHECK(piece.bytes, "a piece has text");
    FILE *to = piece.kind == ANSWER_CONTENT     ? t->content
               : piece.kind == ANSWER_REASONING ? t->reasoning
                                                : t->calls;
    if (piece.kind == ANSWER_CALL) fprintf(to, "%d:", piece.call);
    fwrite(piece.text, 1, piece.bytes, to);
    if (piece.kind == ANSWER_CALL) fprintf(to, " ");
  }
}

/* Returns "CONTENT~REASONING~CALLS" of a text that arrives in pieces. `cut` says after which bytes
 * a piece ends; NULL: after each byte. */
static char *parse(const answer_settings *how, const char *text, size_t bytes, const bool *cut) {
  texts t;
  t.content = open_memstream(&t.text[0], &t.bytes[0]);
  t.reasoning = open_memstream(&t.text[1], &t.bytes[1]);
  t.calls = open_memstream(&t.text[2], &t.bytes[2]);
  answer_parser *p = answer_parser_create(how);
  size_t from = 0;
  for (size_t i = 1; i <= bytes; i++) {
    if (i < bytes && cut && !cut[i]) continue;
    char *piece = malloc(i - from); /* separately allocated: a read past its end is detected */
    memcpy(piece, text + from, i - from);
    answer_parser_add(p, piece, i - from);
    free(piece);
    take_all(p, &t);
    from = i;
  }
  answer_parser_end(p);
  take_all(p, &t);
  answer_parser_destroy(p);
  fclose(t.content), fclose(t.reasoning), fclose(t.calls);
  char *out = sli_format("%s~%s~%s", t.text[0], t.text[1], t.text[2]);
  for (int i = 0; i < 3; i++) free(t.text[i]);
  return out;
}

static void check(const answer_settings *how, const char *text, const bool *cut, const char *want) {
  char *got = parse(how, text, strlen(text), cut);
  CHECK(!strcmp(got, want), "%s: %s\n  comes to %s\n  and not %s",
        how->format ? how->format->name : "no format", text, got, want);
  free(got);
}

/* Checks a text in one piece, split once at each byte, and split at all bytes. */
static void check_cuts(const answer_settings *how, const char *text, const char *want) {
  size_t bytes = strlen(text);
  bool *cut = sli_calloc(bytes + 1, 1);
  for (size_t i = 0; i < bytes; i++) {
    cut[i] = true;
    check(how, text, cut, want);
    cut[i] = false;
  }
  check(how, text, cut, want);
  check(how, text, NULL, want);
  free(cut);
}

/* ---- a table of answers ---------------------------------------------------------------------- */

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"zip\":{\"type\":[\"string\","
    "\"null\"]},\"more\":{\"type\":\"object\"}}}}},{\"type\":\"function\",\"function\":{\"name\":\"now\"}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"typed\",\"parameters\":{\"allOf\":[{\"properties\":{"
    "\"any\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},\"ref\":{\"$ref\":\"#/$defs/S~1T\"},"
    "\"unit\":{\"enum\":[\"1\",\"2\"]},\"five\":{\"const\":\"5\"},\"mixed\":{\"enum\":[\"1\",2]},"
    "\"list\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\"}]},\"both\":{\"type\":[\"integer\","
    "\"string\"]},\"loop\":{\"$ref\":\"#/$defs/L\"},\"all\":{\"allOf\":[{},{\"type\":\"string\"}]}}}],"
    "\"additionalProperties\":{\"type\":\"string\"},\"$defs\":{\"S/T\":{\"type\":\"string\"},"
    "\"L\":{\"anyOf\":[{\"$ref\":\"#/$defs/L\"},{\"$ref\":\"#/$defs/L\"}]}}}}}]";

enum { THINKS = 1, WITHIN = 2, ONE = 4 };

static const struct row {
  const char *format;
  int how;
  const char *text, *want;
} rows[] = {
    /* Hermes and Qwen */
    {"hermes", 0, "", "~~"},
    {"hermes", 0, "Hello.\n", "Hello.\n~~"},
    {"hermes", 0,
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bonn\"}}\n</tool_call>",
     "~~0:get_weather {\"city\": \"Bonn\"}"},
    {"hermes", 0,
     "I look.\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", "
     "\"arguments\": {\"a\": [1, {\"b\": \"}]\\\"</tool_call>\"}]}}\n</tool_call>\n",
     "I look.~~0:f {}1:g {\"a\": [1, {\"b\": \"}]\\\"</tool_call>\"}]}"},
    {"hermes", 0, "<tool_call>{\"name\": \"f\", \"arguments\": \"\"}</tool_call>", "~~0:f {}"},
    {"hermes", 0, "<tool_call>{\"arguments\": {\"x\": 1}, \"name\": \"f\"}</tool_call>",
     "~~0:f {\"x\": 1}"},
    {"hermes", 0, "<tool_call>{\"name\": \"f\"}</tool_call>", "~~0:f {}"},
    {"hermes", 0, "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", "~~0:f {}"},
    {"hermes", 0,
     "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": \\\"\\u00e4\\\"}\"}</tool_call>",
     "~~0:f {\"x\": \"\u00e4\"}"},
    {"hermes", 0,
     "<tool_call>{\"id\": 7, \"name\": \"f\\u00e4\", \"arguments\": {\"x\": 1}, \"y\": [1]}</tool_call> Done.",
     "Done.~~0:f\u00e4 {\"x\": 1}"},
    {"hermes", 0,
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}</tool_call><tool_call>{\"name\": \"g\"}</tool_call>",
     "~~0:f {\"x\": 1}1:g {}"},
    {"hermes", 0,
     "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\", \"arguments\": {}}</tool_call>",
     "~~0:f {}1:g {}"},
    {"hermes", 0,
     "<tool_call>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\"}]</tool_call>",
     "~~0:f {}1:g {}"},
    {"hermes", 0, "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"ab", "~~0:f {\"x\": \"ab"},
    {"hermes", 0, "<tool_call>{\"name\": \"f\", \"argum", "<tool_call>{\"name\": \"f\", \"argum~~"},
    {"hermes", 0, "a <tool_call> tag", "a <tool_call> tag~~"},
    {"hermes", 0, "a <tool_call", "a <tool_call~~"},
    {"hermes", 0, "a <tool_calls> <b", "a <tool_calls> <b~~"},
    {"hermes", 0, "<tool_call>\n<tool_call>\n{\"name\": \"f\"}</tool_call>",
     "<tool_call>\n~~0:f {}"},
    {"hermes", 0, "<tool_call>{\"x\": 1}</tool_call>", "<tool_call>{\"x\": 1}</tool_call>~~"},
    {"hermes", 0, "<tool_call>{'name': 'f'}</tool_call>", "<tool_call>{'name': 'f'}</tool_call>~~"},
    {"hermes", 0, "<tool_call>{\"name\": 3}</tool_call>", "<tool_call>{\"name\": 3}</tool_call>~~"},
    {"hermes", 0, "<tool_call>{\"name\": \"\"}</tool_call>",
     "<tool_call>{\"name\": \"\"}</tool_call>~~"},
    {"hermes", 0, "{\"name\": \"now\", \"arguments\": {}}",
     "{\"name\": \"now\", \"arguments\": {}}~~"},
    {"hermes", ONE,
     "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call><tool_call>{\"name\": \"g\"}</tool_call>a",
     "~~0:f {}"},
    {"hermes", ONE, "<tool_call>{\"name\": \"f\"}</tool_call>a", "~~0:f {}"},
    {"hermes", ONE, "a", "a~~"},
    /* reasoning */
    {"hermes", THINKS, "<think>\nHm, <b>.\n\nYes.\n</think>\n\nHello", "Hello~Hm, <b>.\n\nYes.~"},
    {"hermes", THINKS, "<think>\n\n</think>\n\nHello <think>x</think>", "Hello <think>x</think>~~"},
    {"hermes", THINKS, "<think>a</think>\n<tool_call>{\"name\": \"f\"}</tool_call>", "~a~0:f {}"},
    {"hermes", THINKS, "<think>a <tool_call> b", "~a <tool_call> b~"},
    {"hermes", THINKS | WITHIN, "\nHm.\n</think>\nHi", "Hi~Hm.~"},
    {"hermes", THINKS | WITHIN, "Hm. </thin", "~Hm. </thin~"},
    {NULL, THINKS, " <think>a</think>b<tool_call>", "b<tool_call>~a~"},
    {NULL, THINKS, "<thinking>", "<thinking>~~"},
    /* Qwen3-Coder */
    {"qwen3-coder", 0,
     "Now.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nBonn \"a\"\n</parameter>\n<parameter=days>\n3\n"
     "</parameter>\n</function>\n</tool_call>",
     "Now.~~0:get_weather {\"city\": \"Bonn \\\"a\\\"\", \"days\": 3}"},
    {"qwen3-coder", 0,
     "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\nmany\n</parameter>\n"
     "<parameter=zip>53111</parameter><parameter=more>\n{\"a\": [1, null]}\n</parameter>\n<parameter=x>True</parameter>"
     "<parameter=y>\n01\n</parameter>\n</function>\n</tool_call>",
     "~~0:get_weather {\"city\": \"12\", \"days\": \"many\", \"zip\": \"53111\", \"more\": {\"a\": [1, null]}, \"x\": true, "
     "\"y\": \"01\"}"},
    {"qwen3-coder", 0,
     "<tool_call><function=now></function></tool_call><tool_call>\n<function=now>\n</function>\n</tool_call>",
     "~~0:now {}1:now {}"},
    {"qwen3-coder", 0,
     "<function=now>\n<parameter=a>\n\n<b>\n\n</parameter>\n</function>\n</tool_call> ok",
     "ok~~0:now {\"a\": \"\\n<b>\\n\"}"},
    {"qwen3-coder", 0, "<tool_call><function=now><parameter=a>1</parameter></tool_call>",
     "~~0:now {\"a\": 1}"},
    {"qwen3-coder", 0, "<tool_call><function=now><parameter=a>1</parame", "~~0:now "},
    {"qwen3-coder", 0, "<tool_call><function=no", "<tool_call><function=no~~"},
    /* Values of parameters under anyOf, $ref, enum, const, lists of types, and other names */
    {"qwen3-coder", 0,
     "<tool_call>\n<function=typed>\n<parameter=any>\n12345\n</parameter>\n<parameter=ref>\n77\n</parameter>\n"
     "<parameter=unit>\n1\n</parameter>\n<parameter=five>\n5\n</parameter>\n<parameter=mixed>\n2\n</parameter>\n"
     "<parameter=other>\ntrue\n</parameter>\n</function>\n</tool_call>",
     "~~0:typed {\"any\": \"12345\", \"ref\": \"77\", \"unit\": \"1\", \"five\": \"5\", \"mixed\": 2, \"other\": "
     "\"true\"}"},
    {"qwen3-coder", 0,
     "<tool_call>\n<function=typed>\n<parameter=any>\nNone\n</parameter>\n<parameter=mixed>\n1\n</parameter>\n"
     "<parameter=list>\n[\"a\"]\n</parameter>\n<parameter=both>\n3\n</parameter>\n<parameter=loop>\n3\n</parameter>\n"
     "<parameter=all>\n4.5\n</parameter>\n</function>\n</tool_call>",
     "~~0:typed {\"any\": null, \"mixed\": \"1\", \"list\": [\"a\"], \"both\": 3, \"loop\": 3, \"all\": \"4.5\"}"},
    /* Closing tags that are missing, and tags that are part of a value */
    {"qwen3-coder", 0,
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</function>\n</tool_call>",
     "~~0:get_weather {\"city\": \"Oslo\"}"},
    {"qwen3-coder", 0,
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n<parameter=days>\n3\n</tool_call>\n<tool_call>\n"
     "<function=now>\n</function>\n</tool_call>",
     "~~0:get_weather {\"city\": \"Oslo\", \"days\": 3}1:now {}"},
    {"qwen3-coder", 0,
     "<function=get_weather>\n<parameter=city>\na\n<parameter=b>\n</function>\n</tool_call>c\n</parameter>\n</function>",
     "c\n</parameter>\n</function>~~0:get_weather {\"city\": \"a\\n<parameter=b>\"}"},
    {"qwen3-coder", 0,
     "<function=get_weather>\n<parameter=city>\na </function> b </tool_call> c\n</parameter>\n</function>",
     "~~0:get_weather {\"city\": \"a </function> b </tool_call> c\"}"},
    {"qwen3-coder", 0, "<function=a <b", "<function=a <b~~"},
    {"qwen3-coder", 0, "<tool_call>{\"name\": \"now\"}</tool_call>", "~~0:now {}"},
    /* Llama 3 */
    {"llama3", 0, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bonn\"}}",
     "~~0:get_weather {\"city\": \"Bonn\"}"},
    {"llama3", 0,
     "<|python_tag|>{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\", \"parameters\": {\"a\": 1}}",
     "~~0:now {}1:now {\"a\": 1}"},
    {"llama3", 0, "\n{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}\n",
     "~~0:now {}"},
    {"llama3", 0, "{\"name\": \"Ann\", \"age\": 3}", "{\"name\": \"Ann\", \"age\": 3}~~"},
    {"llama3", 0, "{\"age\": 3}", "{\"age\": 3}~~"},
    {"llama3", 0, "  {", "  {~~"},
    {"llama3", 0, "Say {\"name\": \"now\", \"parameters\": {}}",
     "Say {\"name\": \"now\", \"parameters\": {}}~~"},
    {"llama3", 0, "<|python_tag|>print(1)", "<|python_tag|>print(1)~~"},
    {"llama3", 0, "So: <|python_tag|>{\"name\": \"now\", \"parameters\": {}}", "So:~~0:now {}"},
    /* Mistral */
    {"mistral", 0,
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"x\": [1]}}, {\"name\": \"g\", \"arguments\": {}, \"id\": \"ABCdef123\"}]",
     "~~0:f {\"x\": [1]}1:g {}"},
    {"mistral", 0, "Yes. [TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]", "Yes.~~0:f {}"},
    {"mistral", 0, "[TOOL_CALLS]f{\"x\": 1}[TOOL_CALLS]g[ARGS]{\"y\": {}}",
     "~~0:f {\"x\": 1}1:g {\"y\": {}}"},
    {"mistral", 0, "[TOOL_CALLS]f_1[CALL_ID]abc[ARGS]{\"x\": 1}", "~~0:f_1 {\"x\": 1}"},
    {"mistral", 0, "[TOOL_CALLS] is a mark {", "[TOOL_CALLS] is a mark {~~"},
    {"mistral", 0, "[TOOL_CALLS] [1, 2]", "[TOOL_CALLS] [1, 2]~~"},
    {"mistral", 0, "[TOOL_CALLS] [", "[TOOL_CALLS] [~~"},
    {"mistral", 0, "[TOOL", "[TOOL~~"},
    /* gpt-oss */
    {"gpt-oss", 0,
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
     "<|constrain|>json<|message|>{\"city\":\"Bonn\"}<|call|>",
     "~Hm.~0:get_weather {\"city\":\"Bonn\"}"},
    {"gpt-oss", 0,
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}",
     "~Hm.~0:now {}"},
    {"gpt-oss", 0,
     "<|channel|>analysis<|message|>a < b<|end|><|start|>assistant<|channel|>final<|message|>Hi <|x.<|return|>",
     "Hi <|x.~a < b~"},
    {"gpt-oss", 0,
     "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.now<|message|><|call|>",
     "I look.~~0:now {}"},
    {"gpt-oss", 0, "<|channel|>commentary to=functions.now<|message|>", "~~0:now {}"},
    {"gpt-oss", 0,
     " to=functions.now<|channel|>commentary <|constrain|>json<|message|>{\"a\": 1}<|call|>",
     "~~0:now {\"a\": 1}"},
    {"gpt-oss", 0, " to=functions.now<|channel|>commentary<|message|><|call|>", "~~0:now {}"},
    {"gpt-oss", 0,
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.now<|channel|>commentary "
     "<|constrain|>json<|message|>{\"a\": 1}<|call|>",
     "~Hm.~0:now {\"a\": 1}"},
    {"gpt-oss", 0, "to=be or not", "to=be or not~~"},
    {"gpt-oss", 0, "<|channel|>commentary to=functions.f<|message|>{\"a\": 1", "~~0:f {\"a\": 1"},
    {"gpt-oss", 0, "<|channel|>final<|message|>Hi", "Hi~~"},
    {"gpt-oss", 0, "Hi <|channel|>", "Hi <|channel|>~~"},
    {"gpt-oss", 0, "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|chan", "~a~"},
    {"gpt-oss", ONE,
     "<|channel|>commentary to=functions.f<|message|>{}<|call|><|start|>assistant to=functions.g<|channel|>x<|message|>{}",
     "~~0:f {}"}};

static void answers_are_taken_apart(void) {
  cJSON *json = cJSON_Parse(tools);
  sli_bounded memory = {0};
  answer_functions functions;
  CHECK(!answer_functions_read(json, &memory, &functions) && functions.count == 3, "tools");
  for (size_t i = 0; i < SLI_COUNT(rows); i++) {
    const struct row *r = &rows[i];
    const answer_settings how = {.format = r->format ? answer_format_named(r->format) : NULL,
                                 .functions = &functions,
                                 .thinks = r->how & THINKS,
                                 .within = r->how & WITHIN,
                                 .most_calls = r->how & ONE ? 1 : 0};
    CHECK(!r->format || how.format, "%s", r->format);
    check_cuts(&how, r->text, r->want);
  }
  sli_bounded_fini(&memory);
  cJSON_Delete(json);
}

/* A template's marks identify its format. */
static void templates_show_their_format(void) {
  static const char *const texts[][2] = {
      {"{{ '<|im_start|>' }}\n<tool_call>\n{\"name\": <function-name>}", "hermes"},
      {"<tool_call>\n<function=example_function_name>", "qwen3-coder"},
      {"{{ \"[TOOL_CALLS] [\" }}", "mistral"},
      {"{{ \"<|python_tag|>\" + x }}", "llama3"},
      {"<|start|>assistant<|channel|>final<|message|>", "gpt-oss"},
      {"{{ messages }}", NULL}};
  for (size_t i = 0; i < SLI_COUNT(texts); i++) {
    const answer_format *f = answer_format_of(texts[i][0]);
    CHECK(texts[i][1] ? f && !strcmp(f->name, texts[i][1]) : !f, "%s is %s", texts[i][0],
          f ? f->name : "unknown");
  }
  CHECK(answer_format_thinks("a<think>") && !answer_format_thinks("a"), "reasoning");
  char *names = answer_format_names();
  CHECK(strstr(names, "hermes, mistral"), "%s", names);
  free(names);
}

/* ---- schemas --------------------------------------------------------------------------------- */

/* Reads a function f with these parameters, which this frees. */
static sl_status read_schema(char *parameters, sli_bounded *memory, answer_functions *out) {
  char *text = sli_format("[{\"function\":{\"name\":\"f\",\"parameters\":%s}}]", parameters);
  cJSON *json = cJSON_Parse(text);
  CHECK(json, "%s", text);
  sl_status status = answer_functions_read(json, memory, out);
  cJSON_Delete(json);
  free(text);
  free(parameters);
  return status;
}

/* Returns a text with numbered parts, each a number between two texts. */
static char *numbered(const char *begin, const char *before, const char *after, int count,
                      const char *end) {
  char *text;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  fputs(begin, out);
  for (int i = 0; i < count; i++) fprintf(out, "%s%s%d%s", i ? "," : "", before, i, after);
  fputs(end, out);
  fclose(out);
  return text;
}

/* Calls f with a value of a parameter, and compares its JSON. */
static void takes(char *parameters, const char *name, const char *value, const char *want) {
  sli_bounded memory = {0};
  answer_functions functions;
  CHECK(!read_schema(parameters, &memory, &functions), "%s", sl_detail());
  const answer_settings how = {.format = answer_format_named("qwen3-coder"),
                               .functions = &functions};
  char *text = sli_format(
      "<tool_call>\n<function=f>\n<parameter=%s>\n%s\n</parameter>\n</function>\n</tool_call>",
      name, value);
  char *all = sli_format("~~0:f {\"%s\": %s}", name, want);
  check_cuts(&how, text, all);
  sli_bounded_fini(&memory);
  free(text);
  free(all);
}

/* Parameters of many joined schemas are all known, and strings count that any part lists. */
static void schemas_are_followed(void) {
  static const char listed[] =
      "{\"properties\":{\"a\":{\"anyOf\":[{\"enum\":[\"5\"]},{\"type\":\"integer\"}]}}}";
  takes(sli_strdup(listed), "a", "5", "\"5\"");
  takes(sli_strdup(listed), "a", "6", "6");
  for (int i = 0; i < 60; i += 59) {
    char name[8];
    snprintf(name, sizeof name, "p%d", i);
    takes(numbered("{\"allOf\":[", "{\"properties\":{\"p", "\":{\"type\":\"string\"}}}", 60, "]}"),
          name, "7", "\"7\"");
  }
}

/* References among many names are refused before they take long. */
static void long_schemas_are_refused(void) {
  sli_bounded memory = {0};
  answer_functions functions;
  char *uses = numbered("{\"properties\":{", "\"p", "\":{\"$ref\":\"#/$defs/last\"}", 2000, "}");
  char *names =
      numbered(",\"$defs\":{", "\"d", "\":{}", 30000, ",\"last\":{\"type\":\"string\"}}}");
  double begin = thread_seconds();
  sl_status status = read_schema(sli_format("%s%s", uses, names), &memory, &functions);
  double seconds = thread_seconds() - begin;
  CHECK(status == SL_E_USAGE && strstr(sl_detail(), "tools: the parameters take more than"), "%s",
        sl_detail());
  CHECK(TEST_SANITIZED || seconds < 1, "%g s", seconds);
  sli_bounded_fini(&memory);
  free(uses);
  free(names);
}

/* ---- random calls ---------------------------------------------------------------------------- */

static const char *pick_word(rng *d) {
  static const char *const words[] = {
      "a", "city", "\u00e4", "{", "}",  "[",  "]",         "\\\"",       "\\\\", ",", ":",
      " ", "\\n",  "<",      ">", "</", "<|", "tool_call", "TOOL_CALLS", "null", "1"};
  return words[rng_below(d, SLI_COUNT(words))];
}

static void write_string(FILE *out, rng *d) {
  fprintf(out, "\"");
  for (uint32_t n = rng_below(d, 6); n; n--) fprintf(out, "%s", pick_word(d));
  fprintf(out, "\"");
}

static void write_value(FILE *out, rng *d, int depth) {
  uint32_t kind = rng_below(d, depth ? 6 : 4), n = rng_below(d, 3);
  if (kind == 0) fprintf(out, "%d", (int)rng_below(d, 2000) - 1000);
  else if (kind == 1) fprintf(out, "true");
  else if (kind < 4) write_string(out, d);
  else {
    fprintf(out, kind == 4 ? "[" : "{");
    for (uint32_t i = 0; i <= n; i++) {
      fprintf(out, i ? ", " : "");
      if (kind == 5) write_string(out, d), fprintf(out, ": ");
      write_value(out, d, depth - 1);
    }
    fprintf(out, kind == 4 ? "]" : "}");
  }
}

static char *arguments_at_random(rng *d) {
  char *text;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  fprintf(out, "{");
  for (uint32_t i = 0, n = rng_below(d, 4); i < n; i++) {
    fprintf(out, "%s\"k%u\": ", i ? ", " : "", i);
    write_value(out, d, 3);
  }
  fprintf(out, "}");
  fclose(out);
  return text;
}

/* Writes call i of `count`, with its name and arguments, as a format does. */
static void write_call(FILE *out, const char *format, int i, int count, const char *name,
                       const char *arguments) {
  bool mistral = !strcmp(format, "mistral"), llama = !strcmp(format, "llama3");
  if (!strcmp(format, "gpt-oss"))
    fprintf(out, "%s<|channel|>commentary to=functions.%s <|constrain|>json<|message|>%s<|call|>",
            i ? "<|start|>assistant" : "", name, arguments);
  else if (mistral)
    fprintf(out, "%s{\"name\": \"%s\", \"arguments\": %s}%s", i ? ", " : "[TOOL_CALLS][", name,
            arguments, i + 1 == count ? "]" : "");
  else if (llama)
    fprintf(out, "%s{\"name\": \"%s\", \"parameters\": %s}", i ? "; " : "", name, arguments);
  else
    fprintf(out, "\n<tool_call>\n{\"name\": \"%s\", \"arguments\": %s}\n</tool_call>", name,
            arguments);
}

static void calls_at_random_come_back(rng *d, const answer_functions *functions) {
  static const char *const formats[] = {"hermes", "qwen3-coder", "mistral", "llama3", "gpt-oss"};
  const char *format = formats[rng_below(d, SLI_COUNT(formats))];
  int count = 1 + (int)rng_below(d, 3);
  char *text, *want;
  size_t bytes, want_bytes;
  FILE *out = open_memstream(&text, &bytes), *wanted = open_memstream(&want, &want_bytes);
  fprintf(wanted, "~~");
  for (int i = 0; i < count; i++) {
    const char *name = rng_below(d, 2) ? "get_weather" : "now";
    char *arguments = arguments_at_random(d);
    write_call(out, format, i, count, name, arguments);
    fprintf(wanted, "%d:%s %s", i, name, arguments);
    free(arguments);
  }
  fclose(out), fclose(wanted);
  bool *cut = sli_calloc(bytes + 1, 1);
  uint32_t often = 1 + rng_below(d, 20);
  for (size_t i = 0; i < bytes; i++) cut[i] = !rng_below(d, often);
  check(&(answer_settings){.format = answer_format_named(format), .functions = functions}, text,
        cut, want);
  free(cut);
  free(text);
  free(want);
}

/* ---- long answers ---------------------------------------------------------------------------- */

/* Answers built to be held back take time proportional to their length. */
static void long_answers_take_no_longer(void) {
  static const char *const units[][2] = {
      {"hermes", "<tool_call>{\"a\":["},
      {"hermes", "<tool_call>"},
      {"hermes", "\n"},
      {"hermes", "<tool_call>{\"name\":\""},
      {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":["},
      {"qwen3-coder", "<function=f><parameter=a>"},
      {"qwen3-coder", "<parameter=a>1"},
      {"qwen3-coder", "<function="},
      {"mistral", "[TOOL_CALLS]a"},
      {"mistral", "[TOOL_CALLS][["},
      {"llama3", "{\"name\":"},
      {"llama3", "<|python_tag|>{"},
      {"gpt-oss", "<|start|>"},
      {"gpt-oss", "<|channel|>"},
      {"gpt-oss", "<|end|>"}};
  enum { COUNT = 20000 };
  for (size_t i = 0; i < SLI_COUNT(units); i++) {
    const answer_settings how = {.format = answer_format_named(units[i][0]), .thinks = true};
    size_t n = strlen(units[i][1]);
    char *text = sli_calloc(n * COUNT + 1, 1);
    for (size_t k = 0; k < COUNT; k++) memcpy(text + k * n, units[i][1], n);
    double begin = thread_seconds();
    char *got = parse(&how, text, n * COUNT, NULL);
    double seconds = thread_seconds() - begin;
    CHECK(seconds < 4, "%s again and again: %.2f s", units[i][1], seconds);
    if (getenv("SLUICE_SHOW")) printf("%.3f s %s\n", seconds, units[i][1]);
    free(got);
    free(text);
  }
}

int main(int argc, char **argv) {
  RUN(answers_are_taken_apart);
  RUN(templates_show_their_format);
  RUN(schemas_are_followed);
  RUN(long_schemas_are_refused);
  RUN(long_answers_take_no_longer);
  cJSON *json = cJSON_Parse(tools);
  sli_bounded memory = {0};
  answer_functions functions;
  CHECK(!answer_functions_read(json, &memory, &functions), "tools");
  seeds s = seeds_of(argc, argv, 1, TEST_SANITIZED ? 500 : 2000);
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    rng d = {.key = seed};
    RUN(calls_at_random_come_back, &d, &functions);
  }
  sli_bounded_fini(&memory);
  cJSON_Delete(json);
  return 0;
}
