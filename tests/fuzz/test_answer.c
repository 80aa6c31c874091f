/* SPDX-License-Identifier: Apache-2.0 */
/* Any answer of a model is parsed, into the same pieces whole and byte by byte. The first byte
 * selects the format and the second the settings.
 * labels: random unthreaded
 * needs: libevent */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tests/fuzz/fuzz.h"
#include "tools/actorserve/answer/answer.h"

const char *const fuzz_words[] = {"<tool_call>",
                                  "</tool_call>",
                                  "<think>",
                                  "</think>",
                                  "<function=",
                                  "<function=now>",
                                  "</function>",
                                  "<parameter=",
                                  "<parameter=a>",
                                  "</parameter>",
                                  "<|python_tag|>",
                                  "[TOOL_CALLS]",
                                  "[ARGS]",
                                  "[CALL_ID]",
                                  "<|channel|>",
                                  "<|start|>assistant",
                                  "<|message|>",
                                  "<|end|>",
                                  "<|call|>",
                                  "<|return|>",
                                  "analysis",
                                  "final",
                                  "commentary to=functions.now ",
                                  "{\"name\": \"now\"",
                                  ", \"arguments\": {",
                                  "\"parameters\": ",
                                  "\"arguments\": \"{}\"",
                                  "\"type\":\"function\"",
                                  "\\\"",
                                  "\\u0000",
                                  "\"",
                                  "{",
                                  "}",
                                  "[",
                                  "]",
                                  ",",
                                  ";",
                                  ":",
                                  "\n",
                                  " ",
                                  "null",
                                  "True",
                                  NULL};

typedef struct heard {
  char *text[4]; /* by kind of piece */
  size_t bytes[4];
  FILE *to[4];
  int calls;
} heard;

static void take_all(answer_parser *p, heard *h) {
  answer_piece piece;
  while (answer_parser_next(p, &piece)) {
    bool of_call = piece.kind == ANSWER_CALL || piece.kind == ANSWER_ARGUMENTS;
    h->calls += piece.kind == ANSWER_CALL;
    if (!piece.bytes || (of_call && piece.call != h->calls - 1)) abort();
    if (piece.kind == ANSWER_CALL) fprintf(h->to[ANSWER_ARGUMENTS], "\n%d ", piece.call);
    fwrite(piece.text, 1, piece.bytes, h->to[piece.kind]);
  }
}

static heard hear(const answer_settings *how, const char *text, size_t bytes, size_t step) {
  heard h = {0};
  for (int i = 0; i < 4; i++) h.to[i] = open_memstream(&h.text[i], &h.bytes[i]);
  answer_parser *p = answer_parser_create(how);
  for (size_t at = 0; at < bytes; at += step) {
    answer_parser_add(p, text + at, SLI_MIN(step, bytes - at));
    take_all(p, &h);
  }
  answer_parser_end(p);
  take_all(p, &h);
  if (answer_parser_calls(p) != h.calls) abort();
  answer_parser_destroy(p);
  for (int i = 0; i < 4; i++) fclose(h.to[i]);
  return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  static const char *const names[] = {"hermes",  "qwen3-coder", "llama3",
                                      "mistral", "gpt-oss",     "none"};
  static const answer_function known[] = {{.name = "now"}};
  static const answer_functions functions = {1, (answer_function *)known};
  if (count < 2) return 0;
  const answer_settings how = {.format = answer_format_named(names[bytes[0] % SLI_COUNT(names)]),
                               .functions = bytes[1] & 1 ? &functions : NULL,
                               .thinks = bytes[1] & 2,
                               .within = bytes[1] & 4,
                               .most_calls = bytes[1] >> 3 & 1};
  const char *text = (const char *)bytes + 2;
  heard whole = hear(&how, text, count - 2, count);
  for (size_t step = 1; step < 4; step += 2) {
    heard cut = hear(&how, text, count - 2, step);
    for (int i = 0; i < 4; i++) {
      if (cut.bytes[i] != whole.bytes[i] || memcmp(cut.text[i], whole.text[i], cut.bytes[i]))
        abort();
      free(cut.text[i]);
    }
  }
  for (int i = 0; i < 4; i++) free(whole.text[i]);
  return 0;
}
