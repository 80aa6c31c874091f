/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars of tool calls accept the answers that each format writes, with reasoning in front of
 * them and with marks as special tokens, and reject all others.
 * labels: smoke
 * needs: libevent */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tests/support/test.h"
#include "tools/actorserve/answer/calls_grammar.h"

enum { BYTES = 256 };
static const char *const marks[] = {"<tool_call>", "</tool_call>", "</think>",    "[TOOL_CALLS]",
                                    "[ARGS]",      "<|channel|>",  "<|message|>", "<|constrain|>",
                                    "<|end|>",     "<|start|>"};

/* Names the first 256 tokens after bytes and `count` more after marks. */
static const char *name_of(void *ctx, int32_t token, size_t *bytes) {
  static char text[64];
  (void)ctx;
  text[0] = token < BYTES ? (char)token : (char)SLI_TOKEN_MARK;
  text[1] = 0;
  if (token >= BYTES) strcpy(text + 1, marks[token - BYTES]);
  *bytes = 1 + strlen(text + 1);
  return text;
}

/* Returns the token at the start of a text: a mark, if there are marks and one matches, or a
 * byte. */
static int32_t token_at(const char **text, bool marked) {
  for (size_t i = 0; i < SLI_COUNT(marks) && marked; i++) {
    size_t n = strlen(marks[i]);
    if (strncmp(*text, marks[i], n)) continue;
    *text += n;
    return BYTES + (int32_t)i;
  }
  return (unsigned char)*(*text)++;
}

static bool has(const uint32_t *bits, int32_t token) { return bits[token / 32] >> token % 32 & 1; }

/* Returns whether a grammar accepts an entire text. */
static bool takes(sli_grammar *g, const char *text, bool marked) {
  enum { END = 0, WORDS = (BYTES + SLI_COUNT(marks) + 31) / 32 };
  uint32_t bits[WORDS];
  sli_guide *guide = sli_guide_create(g, &(int32_t){END}, 1);
  bool good = true, over = false;
  while (good && *text) {
    memset(bits, 0, sizeof bits);
    good = !over && sli_guide_allow(guide, bits);
    int32_t token = token_at(&text, marked);
    good = good && has(bits, token);
    if (good) over = sli_guide_take(guide, token);
  }
  memset(bits, 0, sizeof bits);
  good = good && (over || (sli_guide_allow(guide, bits) && has(bits, END)));
  sli_guide_destroy(guide);
  return good;
}

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{\"n\":{\"type\":\"integer\"},\"s\":{\"type\":\"string\"}},\"required\":[\"n\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]";

#define HERMES(name, arguments) \
  "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"

static const struct {
  const char *format, *text;
  bool marked, thinks, within, several, takes;
} table[] = {
    {"hermes", HERMES("f", "{\"n\": 1}"), false, false, false, true, true},
    {"hermes", HERMES("f", "{\"n\": 1, \"s\": \"a\"}"), true, false, false, true, true},
    {"hermes", HERMES("f", "{\"n\": 1, \"x\": 2}"), false, false, false, true, false},
    {"hermes", HERMES("f", "{\"s\": \"a\"}"), false, false, false, true, false},
    {"hermes", HERMES("h", "{}"), false, false, false, true, false},
    {"hermes", HERMES("g", "{}") "\n" HERMES("g", "{}"), false, false, false, true, true},
    {"hermes", HERMES("g", "{}") "\n" HERMES("g", "{}"), false, false, false, false, false},
    {"hermes", "Well: " HERMES("g", "{}"), false, true, false, true, false},
    {"hermes", "<think>\na < b </thin</think>\n\n" HERMES("g", "{}"), false, true, false, true,
     true},
    {"hermes", "<think>\na < b</think>\n\n" HERMES("g", "{}"), true, true, false, true, true},
    {"hermes", "a <</think>\n\n" HERMES("g", "{}"), false, true, true, true, true},
    {"hermes", "a </think>\n\n" HERMES("g", "{}"), true, true, true, true, true},
    {"hermes", HERMES("g", "{}"), true, true, true, true, false},
    {"qwen3-coder",
     "<tool_call>\n<function=f>\n<parameter=n>\n3\n</parameter>\n<parameter=s>\na\n<b> </param\n</parameter>\n"
     "</function>\n</tool_call>",
     false, false, false, true, true},
    {"qwen3-coder", "<tool_call>\n<function=g>\n</function>\n</tool_call>", true, false, false,
     true, true},
    {"qwen3-coder", "<tool_call>\n<function=f>\n</function>\n</tool_call>", true, false, false,
     true, false},
    {"llama3",
     "{\"name\": \"f\", \"parameters\": {\"n\": 1}}; {\"name\": \"g\", \"parameters\": {}}", false,
     false, false, true, true},
    {"mistral",
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"n\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
     false, false, false, true, true},
    {"mistral", "[TOOL_CALLS]f[ARGS]{\"n\": 1}[TOOL_CALLS]g[ARGS]{}", true, false, false, true,
     true},
    {"mistral", "[TOOL_CALLS] [{\"name\": \"g\", \"arguments\": {}}", false, false, false, true,
     false},
    {"gpt-oss", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"n\": 1}", true,
     false, false, true, true},
    {"gpt-oss",
     "<|channel|>analysis<|message|>a<b<|end|><|start|>assistant<|channel|>commentary to=functions.g "
     "<|constrain|>json<|message|>{}",
     true, false, false, true, true},
    {"gpt-oss", "<|channel|>final<|message|>No.", true, false, false, true, false}};

int main(void) {
  sli_token_trie *plain = sli_token_trie_create(BYTES, name_of, NULL),
                 *marked = sli_token_trie_create(BYTES + SLI_COUNT(marks), name_of, NULL);
  cJSON *root = cJSON_Parse(tools);
  for (size_t i = 0; i < SLI_COUNT(table); i++) {
    const answer_calls how = {.format = answer_format_named(table[i].format),
                              .tokens = table[i].marked ? marked : plain,
                              .tools = root,
                              .several = table[i].several,
                              .thinks = table[i].thinks,
                              .within = table[i].within};
    sli_grammar *g = sli_grammar_create(NULL);
    sl_status status = sli_grammar_seal(g, answer_calls_term(g, &how), how.tokens);
    CHECK(!status, "%s: %s", table[i].format, sl_detail());
    CHECK(takes(g, table[i].text, table[i].marked) == table[i].takes, "%s %s: %s", table[i].format,
          table[i].takes ? "does not take" : "takes", table[i].text);
    sli_grammar_destroy(g);
  }
  cJSON_Delete(root);
  sli_token_trie_destroy(plain);
  sli_token_trie_destroy(marked);
  return 0;
}
