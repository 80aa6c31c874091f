/* SPDX-License-Identifier: Apache-2.0 */
/* An untrusted body is parsed as a completion request and as a chat request, or refused with a
 * message.
 * labels: random unthreaded
 * needs: libevent */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/template/template.h"
#include "base/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tools/actorserve/request_params.h"
#include "tools/actorserve/json.h"

const char *const fuzz_words[] = {"\"model\":",
                                  "\"prompt\":",
                                  "\"messages\":",
                                  "\"role\":\"user\"",
                                  "\"role\":\"system\"",
                                  "\"content\":",
                                  "\"type\":\"text\"",
                                  "\"text\":",
                                  "\"stream\":true",
                                  "\"stream_options\":{\"include_usage\":true}",
                                  "\"n\":3",
                                  "\"max_tokens\":",
                                  "\"temperature\":0.5",
                                  "\"top_p\":1",
                                  "\"top_k\":5",
                                  "\"seed\":-3",
                                  "\"stop\":[",
                                  "\"logprobs\":true",
                                  "\"logprobs\":2",
                                  "\"top_logprobs\":3",
                                  "\"cache_salt\":\"a\"",
                                  "\"tool_calls\":[]",
                                  "\"tools\":[",
                                  "\"tool_choice\":\"none\"",
                                  "\"chat_template_kwargs\":{",
                                  "\"documents\":[{",
                                  "\"type\":\"function\"",
                                  "\"function\":{\"name\":\"f\"}",
                                  "\"role\":\"tool\"",
                                  "\"name\":\"b\"",
                                  "\"refusal\":null",
                                  "\"annotations\":[]",
                                  "\"logit_bias\":{\"7\":",
                                  "\"stop_token_ids\":[1,",
                                  "\"min_tokens\":3",
                                  "\"min_p\":0.5",
                                  "\"presence_penalty\":-1",
                                  "\"repetition_penalty\":1.5",
                                  "\"best_of\":3",
                                  "\"echo\":true",
                                  "\"ignore_eos\":true",
                                  "\"parallel_tool_calls\":false",
                                  "\"response_format\":{\"type\":\"text\"}",
                                  "1e999",
                                  "-0",
                                  "0.5",
                                  "[[1,2],[3]]",
                                  "\\ud800",
                                  "\\udc00",
                                  "\\u0000",
                                  "\\u00e4",
                                  "null",
                                  "[",
                                  "]",
                                  "{",
                                  "}",
                                  ",",
                                  ":",
                                  NULL};

static void check_text(const char *text) {
  if (!text || sli_utf8_good(text, strlen(text)) != strlen(text)) abort();
}

/* Checks that the texts of a chat are values of the expected kind. */
static void check_json(const char *text, size_t bytes, char first) {
  if (!text) return;
  const char *at = text + strspn(text, " \t\r\n");
  if (*at != first || at >= text + bytes) abort();
  sli_values *v = sli_values_create(64 << 20, NULL);
  sli_value_read(v, text, bytes);
  sli_values_destroy(v);
}

static void check_chat(const sli_chat_json *c) {
  check_json(c->messages, c->messages_bytes, '[');
  check_json(c->tools, c->tools_bytes, '[');
  check_json(c->documents, c->documents_bytes, '[');
  check_json(c->variables, c->variables_bytes, '{');
}

/* Checks that every parsed field has a valid value. */
static void check(const request_params *a) {
  if (a->answers.n < 1 || a->answers.n * SLI_MAX(a->nprompts, 1) > PARAMS_MOST_CHOICES ||
      a->end.max_tokens < 0 || a->sampling.top_k < 0)
    abort();
  if (!(a->sampling.temperature >= 0 && isfinite(a->sampling.temperature)) ||
      !(a->sampling.top_p >= 0 && a->sampling.top_p <= 1))
    abort();
  if (a->end.nstop < 0 || a->end.nstop > PARAMS_MOST_STOPS || a->answers.top_logprobs < 0 ||
      a->answers.top_logprobs > 20)
    abort();
  if (a->chat ? !a->nmessages : !a->nprompts) abort();
  if (!(a->sampling.min_p >= 0 && a->sampling.min_p <= 1) ||
      !(a->sampling.repetition_penalty > 0) || a->end.min_tokens < 0 || a->end.ntokens < 0 ||
      a->end.ntokens > PARAMS_MOST_STOP_TOKENS || !(fabs(a->sampling.presence_penalty) <= 2) ||
      !(fabs(a->sampling.frequency_penalty) <= 2))
    abort();
  for (int i = 0; i < a->end.nstop; i++) check_text(a->end.stop[i]);
  if (a->chat) check_chat(&a->chat_texts);
  for (int i = 0; i < a->nprompts; i++) {
    if (a->prompts[i].text) check_text(a->prompts[i].text);
    for (size_t k = 0; k < a->prompts[i].count; k++)
      if (a->prompts[i].tokens[k] < 0) abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  for (int chat = 0; chat < 2; chat++) {
    char *body = malloc(count + 1); /* separate, so that reads past the end are detected */
    request_params a;
    const char *param;
    if (count) memcpy(body, bytes, count);
    body[count] = 0;
    sl_status status = request_params_read(body, count, chat, NULL, &a, &param);
    if (status && !*sl_detail()) abort();
    if (!status) check(&a);
    request_params_fini(&a);
    request_params_fini(&a);
    free(body);
  }
  return 0;
}
