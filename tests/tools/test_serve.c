/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to actorserve are accepted or rejected with an error that names the fault: HTTP heads
 * and bodies, JSON, and request fields, both well-formed and damaged. The text of an answer does
 * not depend on how its tokens are split.
 *
 *   test_tools_serve [SEED [COUNT]]
 * labels: random
 * needs: libevent */
#include <ctype.h>
#include <poll.h>
#include <sched.h>
#include <string.h>

#include "base/base.h"
#include "base/utf8.h"
#include "tests/support/processor_time.h"
#include "tests/support/rng.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"
#include "tools/actorserve/request_params.h"
#include "tools/actorserve/budget.h"
#include "tools/actorserve/http/parse.h"
#include "tools/actorserve/json.h"
#include "tools/actorserve/reply.h"
#include "tools/actorserve/serve.h"
#include "tools/actorserve/stream_text.h"
#include "tools/actorserve/worker.h"

/* ---- heads ----------------------------------------------------------------------------------- */

static http_fault parse(const char *text, http_head *out, char **bytes) {
  size_t n = strlen(text), length = http_head_length(text, n, 0);
  CHECK(length == n, "the head ends where the text does: %s", text);
  *bytes = sli_strdup(text);
  return http_head_parse(*bytes, n, out);
}

static void heads_that_are_good(void) {
  http_head h;
  char *bytes;
  http_fault fault = parse(
      "POST /v1/x?y=1 HTTP/1.1\r\nHost: a\r\nContent-LENGTH:  12 \r\nExpect: 100-continue\r\n"
      "Authorization: Bearer k\r\n\r\n",
      &h, &bytes);
  CHECK(!fault.status && h.length == 12 && h.keep && h.expects && !h.chunked, "%s", fault.text);
  CHECK(!strcmp(h.method, "POST") && !strcmp(h.target, "/v1/x"), "%s %s", h.method, h.target);
  CHECK(!strcmp(http_head_field(&h, "authorization"), "Bearer k"), "fields");
  free(bytes);
  fault = parse("GET / HTTP/1.0\r\n\r\n", &h, &bytes);
  CHECK(!fault.status && !h.keep, "HTTP/1.0 closes");
  free(bytes);
  fault = parse(
      "GET / HTTP/1.1\r\nhost: a\r\nConnection: x, Close\r\nTransfer-Encoding: chunked\r\n\r\n", &h,
      &bytes);
  CHECK(!fault.status && !h.keep && h.chunked, "%s", fault.text);
  free(bytes);
  CHECK(!http_head_length("GET / HTTP/1.1\r\nHost: a\r\n", 25, 0), "a head that is not whole");
}

static void targets_are_paths(void) {
  static const char *const rows[][3] = {{"GET", "/a?b=c%zz", "/a"},
                                        {"GET", "http://h:80/v1/models", "/v1/models"},
                                        {"GET", "HTTPS://h/x?y", "/x"},
                                        {"GET", "http://h", "/"},
                                        {"GET", "http://h?q", "/"},
                                        {"GET", "/%76%31/x", "/v1/x"},
                                        {"GET", "/a%2Fb%3Fc", "/a%2Fb?c"},
                                        {"GET", "/%C3%a4", "/\u00e4"},
                                        {"OPTIONS", "*", "*"},
                                        {"GET", "*", NULL},
                                        {"GET", "http:///x", NULL},
                                        {"GET", "ftp://h/x", NULL},
                                        {"GET", "/%4", NULL},
                                        {"GET", "/%", NULL},
                                        {"GET", "/%g0", NULL},
                                        {"GET", "/%00", NULL},
                                        {"GET", "/%0a", NULL},
                                        {"GET", "/a#b", NULL},
                                        {"GET", "h:80", NULL}};
  for (size_t i = 0; i < SLI_COUNT(rows); i++) {
    http_head h;
    char *bytes, *text = sli_format("%s %s HTTP/1.1\r\nHost: a\r\n\r\n", rows[i][0], rows[i][1]);
    http_fault fault = parse(text, &h, &bytes);
    CHECK(!fault.status == !!rows[i][2] && (fault.status || !strcmp(h.target, rows[i][2])),
          "%s: %d %s", rows[i][1], fault.status, fault.status ? fault.text : h.target);
    free(bytes);
    free(text);
  }
}

static void heads_that_are_not(void) {
  static const struct {
    int status;
    const char *head, *says;
  } rows[] = {
      {400, "GET /\r\n\r\n", "METHOD"},
      {400, "\r\n\r\n", "METHOD"},
      {505, "GET / HTTP/2.0\r\n\r\n", "version"},
      {400, "GET / HTP/1.1\r\n\r\n", "METHOD"},
      {400, "G@T / HTTP/1.1\r\n\r\n", "METHOD"},
      {400, "GET x HTTP/1.1\r\n\r\n", "METHOD"},
      {400, "GET / HTTP/1.1\r\n\r\n", "host"},
      {400, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "host"},
      {400, "GET / HTTP/1.1\r\nHost: a\r\n more\r\n\r\n", "second line"},
      {400, "GET / HTTP/1.1\r\nHost : a\r\n\r\n", "name"},
      {400, "GET / HTTP/1.1\r\nnothing\r\n\r\n", "NAME: VALUE"},
      {400, "GET / HTTP/1.1\r\nHost: a\nb\r\n\r\n", "control"},
      {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
       "more than once"},
      {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
       "more than once"},
      {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", "content-length"},
      {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1x\r\n\r\n", "content-length"},
      {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
       "content-length"},
      {501, "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", "transfer-encoding"},
      {417, "GET / HTTP/1.1\r\nHost: a\r\nExpect: rain\r\n\r\n", "expects"}};
  for (size_t i = 0; i < SLI_COUNT(rows); i++) {
    http_head h;
    char *bytes;
    http_fault fault = parse(rows[i].head, &h, &bytes);
    CHECK(fault.status == rows[i].status && strstr(fault.text, rows[i].says), "%s: %d %s",
          rows[i].head, fault.status, fault.text ? fault.text : "");
    free(bytes);
  }
}

/* ---- bodies ---------------------------------------------------------------------------------- */

/* Returns the data of a body whose bytes arrive `step` at a time, or "!" and the error. */
static char *take_body(const http_head *h, const char *bytes, size_t count, size_t step) {
  http_body b;
  size_t at = 0, used, n = 0;
  char *out = sli_calloc(count + 128, 1);
  http_body_begin(&b, h);
  for (size_t have = 0; b.at != HTTP_BODY_DONE && have < count;) {
    have = SLI_MIN(have + step, count);
    do {
      bool data;
      http_fault fault = http_body_next(&b, bytes + at, have - at, &used, &data);
      if (fault.status) {
        snprintf(out, count + 128, "!%s", fault.text);
        return out;
      }
      if (data) memcpy(out + n, bytes + at, used), n += used;
      at += used;
    } while (used);
  }
  if (b.at != HTTP_BODY_DONE) strcpy(out, "...");
  return out;
}

static void check_chunks(const char *bytes, const char *want) {
  const http_head h = {.chunked = true, .minor = 1};
  for (size_t step = 1; step < 9; step++) {
    char *got = take_body(&h, bytes, strlen(bytes), step);
    CHECK(*want == '!' ? *got == '!' && strstr(got, want + 1) : !strcmp(got, want),
          "%s comes to %s", bytes, got);
    free(got);
  }
}

/* Checks that chunk extensions and trailers are bounded. */
static void chunks_say_only_so_much(void) {
  enum { ROOM = 1 << 16 };
  char *text = sli_calloc(ROOM + 512, 1);
  size_t at = 0;
  while (at < ROOM) at += (size_t)sprintf(text + at, "1;%0200d\r\na\r\n", 7);
  check_chunks(text, "!extensions");
  at = (size_t)sprintf(text, "0\r\n");
  while (at < ROOM) at += (size_t)sprintf(text + at, "A: %0200d\r\n", 7);
  check_chunks(text, "!behind the body");
  free(text);
}

static void bodies_come_in_chunks(void) {
  check_chunks("4\r\nabcd\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n", "abcd0123456789");
  check_chunks("0\r\nTrailer: x\r\n\r\n", "");
  check_chunks("4\r\nab", "...");
  check_chunks("x\r\n", "!size of a chunk");
  check_chunks("-4\r\nabcd\r\n", "!size of a chunk");
  check_chunks("4\r\nabcde\r\n", "!longer than its size");
  check_chunks("ffffffffffffffffff\r\n", "!size of a chunk");
  check_chunks("4 \t;x\r\nabcd\r\n0\r\n\r\n", "abcd");
  check_chunks("4 x\r\nabcd\r\n0\r\n\r\n", "!size of a chunk");
  check_chunks("4;x\nabcd\r\n0\r\n\r\n", "!CR LF");
  check_chunks("4;a=\nGET / HTTP/1.1\r\nabcd\r\n0\r\n\r\n", "!CR LF");
  check_chunks("4;a\rb\r\nabcd\r\n0\r\n\r\n", "!control");
  check_chunks("4\r\nabcd\n0\r\n\r\n", "!CR LF");
  check_chunks("4\r\nabcd\r\n0\r\nA: b\n\r\n\r\n", "!CR LF");
  check_chunks("4\r\nabcd\r\n0\r\nA: b\rc\r\n\r\n", "!control");
  check_chunks("4\r\nabcd\r\n0\r\nnothing\r\n\r\n", "!NAME: VALUE");
  check_chunks("4\r\nabcd\r\n0\r\n A: b\r\n\r\n", "!second line");
  check_chunks("0\n\r\n", "!CR LF");
  char *got = take_body(&(http_head){.length = 3}, "abcdef", 6, 2);
  CHECK(!strcmp(got, "abc"), "%s", got);
  free(got);
}

/* ---- requests -------------------------------------------------------------------------------- */

static const char chat_body[] =
    "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"be \\u00e4\\ud83d\\ude00\"},{\"role\":\"user\","
    "\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}],\"n\":2,\"max_tokens\":7,"
    "\"temperature\":0.5,\"top_p\":0.9,\"top_k\":5,\"seed\":-3,\"stop\":[\"x\",\"yy\"],\"logprobs\":true,"
    "\"top_logprobs\":3,\"stream\":true,\"stream_options\":{\"include_usage\":true},\"user\":\"u\","
    "\"frequency_penalty\":0,\"logit_bias\":null,\"response_format\":{\"type\":\"text\"}}";

/* Returns the chat of a request as a template renders it. */
static char *rendered(const request_params *a, const char *template) {
  const sli_chat *chat = sli_chat_of_template(template, NULL);
  char *out = NULL;
  CHECK(chat && !sli_chat_render_json(chat, &(sli_chat_marks){NULL}, &a->chat_texts, NULL, &out),
        "%s", sl_detail());
  sli_chat_free(chat);
  return out;
}

static void a_request_is_read(void) {
  request_params a;
  const char *param;
  CHECK(!request_params_read(chat_body, sizeof chat_body - 1, true, NULL, &a, &param), "%s",
        sl_detail());
  CHECK(a.answers.n == 2 && a.end.max_tokens == 7 && a.sampling.temperature == .5 &&
            a.sampling.top_p == .9 && a.sampling.top_k == 5 && a.sampling.seed == -3,
        "numbers");
  CHECK(a.end.nstop == 2 && !strcmp(a.end.stop[1], "yy") && a.answers.wants_logprobs &&
            a.answers.top_logprobs == 3 && a.answers.stream && a.answers.usage,
        "the rest");
  char *text = rendered(&a, "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}");
  CHECK(a.nmessages == 2 && a.content_bytes == 11 &&
            !strcmp(text, "system=be \u00e4\U0001f600;user=ab;"),
        "messages: %s", text);
  free(text);
  request_params_fini(&a);
  static const char texts[] =
      "{\"prompt\":[[1,2],[3]],\"logprobs\":0,\"n\":3,\"best_of\":5,"
      "\"min_p\":0.25,\"presence_penalty\":-1,\"frequency_penalty\":2,\"repetition_penalty\":1.5,"
      "\"logit_bias\":{\"7\":-100,\"0\":2},\"min_tokens\":3,\"ignore_eos\":true,\"stop_token_ids\":[5,6],"
      "\"store\":true,\"service_tier\":\"auto\",\"skip_special_tokens\":true}";
  CHECK(!request_params_read(texts, sizeof texts - 1, false, NULL, &a, &param), "%s", sl_detail());
  CHECK(a.nprompts == 2 && a.prompts[0].count == 2 && a.prompts[1].tokens[0] == 3 &&
            a.answers.wants_logprobs,
        "prompts");
  CHECK(a.answers.best_of == 5 && a.sampling.min_p == .25 && a.sampling.presence_penalty == -1 &&
            a.sampling.frequency_penalty == 2 && a.sampling.repetition_penalty == 1.5 &&
            a.end.min_tokens == 3 && a.end.ignore_eos && a.end.ntokens == 2 &&
            a.end.tokens[1] == 6 && cJSON_GetArraySize(a.sampling.logit_bias) == 2,
        "sampling");
  request_params_fini(&a);
}

static void requests_that_are_wrong(void) {
#define SAY "\"prompt\":\"a\""
  static const struct {
    const char *body, *param, *says;
  } rows[] = {
      {"", NULL, "not JSON"},
      {"[1]", NULL, "not an object"},
      {"{" SAY, NULL, "not JSON at its end"},
      {"{" SAY ",}", NULL, "not JSON at its end"},
      {"{" SAY "} x", NULL, "not JSON near byte"},
      {"{" SAY ",\"temperature\":NaN}", NULL, "not JSON near byte 28: NaN"},
      {"{" SAY ",\"temperature\":1e999}", "temperature", "must be a number"},
      {"{" SAY ",\"temperature\":-1}", "temperature", "from 0 to"},
      {"{" SAY ",\"temperature\":\"hot\"}", "temperature", "must be a number"},
      {"{\"prompt\":\"\\ud800\"}", NULL, "not JSON"},
      {"{\"prompt\":\"\\udc00x\"}", NULL, "not JSON"},
      {"{\"prompt\":\"a\\u0000b\"}", NULL, "zero in it"},
      {"{\"prompt\":\"\xff\"}", NULL, "not UTF-8 at byte 11"},
      {"{\"prompt\":\"\xed\xa0\x80\"}", NULL, "not UTF-8"},
      {"{\"prompt\":7}", "prompt", "must be a text"},
      {"{\"prompt\":[]}", "prompt", "has 0 texts"},
      {"{\"prompt\":[1.5]}", "prompt", "must be a text"},
      {"{\"prompt\":[-1]}", "prompt", "must be a text"},
      {"{}", "prompt", "is missing"},
      {"{" SAY "," SAY "}", "prompt", "twice"},
      {"{" SAY ",\"n\":0}", "n", "from 1 to"},
      {"{" SAY ",\"n\":1.5}", "n", "whole"},
      {"{" SAY ",\"n\":129}", "n", "from 1 to"},
      {"{\"prompt\":[\"a\",\"b\"],\"n\":100}", "n", "more than 128"},
      {"{" SAY ",\"stop\":\"\"}", "stop", "empty"},
      {"{" SAY ",\"stop\":[1]}", "stop", "a text"},
      {"{" SAY ",\"stream\":1}", "stream", "true or false"},
      {"{" SAY ",\"echo\":1}", "echo", "true or false"},
      {"{" SAY ",\"echo\":true,\"logprobs\":1,\"guided_regex\":\"a\"}", "echo", "guided_regex"},
      {"{" SAY ",\"frequency_penalty\":2.5}", "frequency_penalty", "from -2 to 2"},
      {"{" SAY ",\"presence_penalty\":-3}", "presence_penalty", "from -2 to 2"},
      {"{" SAY ",\"repetition_penalty\":0}", "repetition_penalty", "from 0.01 to"},
      {"{" SAY ",\"min_p\":1.5}", "min_p", "from 0 to 1"},
      {"{" SAY ",\"min_tokens\":9,\"max_tokens\":8}", "min_tokens", "more than the 8"},
      {"{" SAY ",\"ignore_eos\":1}", "ignore_eos", "true or false"},
      {"{" SAY ",\"stop_token_ids\":[1.5]}", "stop_token_ids", "an array of tokens"},
      {"{" SAY ",\"stop_token_ids\":7}", "stop_token_ids", "an array of tokens"},
      {"{" SAY ",\"logit_bias\":[]}", "logit_bias", "an object"},
      {"{" SAY ",\"logit_bias\":{\"a\":1}}", "logit_bias", "logit_bias.a is of no token"},
      {"{" SAY ",\"logit_bias\":{\"0x10\":1}}", "logit_bias", "logit_bias.0x10 is of no token"},
      {"{" SAY ",\"logit_bias\":{\"1e2\":1}}", "logit_bias", "logit_bias.1e2 is of no token"},
      {"{" SAY ",\"logit_bias\":{\"-1\":1}}", "logit_bias", "is of no token"},
      {"{" SAY ",\"logit_bias\":{\"7\":101}}", "logit_bias", "from -100 to 100"},
      {"{" SAY ",\"logit_bias\":{\"7\":\"x\"}}", "logit_bias", "logit_bias.7 must be a number"},
      {"{" SAY ",\"best_of\":1,\"n\":2}", "best_of", "fewer than the 2 of n"},
      {"{" SAY ",\"best_of\":3,\"stream\":true}", "best_of", "in a stream"},
      {"{\"prompt\":[\"a\",\"b\"],\"best_of\":100}", "best_of", "more than 128"},
      {"{" SAY ",\"length_penalty\":2}", "length_penalty", "may be 1"},
      {"{" SAY ",\"colour\":1}", "colour", "unknown field colour"},
      {"{" SAY ",\"messages\":[]}", "messages", "unknown"},
      {"{" SAY ",\"stream_options\":{\"include_usage\":true}}", "stream_options", "needs stream"},
      {"{" SAY ",\"logprobs\":21}", "logprobs", "from 0 to 20"},
      {"{" SAY ",\"max_tokens\":0}", "max_tokens", "unless echo"}};
  for (size_t i = 0; i < SLI_COUNT(rows); i++) {
    request_params a;
    const char *param;
    sl_status status =
        request_params_read(rows[i].body, strlen(rows[i].body), false, NULL, &a, &param);
    CHECK(status && strstr(sl_detail(), rows[i].says), "%s: %s", rows[i].body,
          status ? sl_detail() : "is taken");
    CHECK(!rows[i].param == !param && (!param || !strcmp(param, rows[i].param)), "%s: param %s",
          rows[i].body, param);
    request_params_fini(&a);
  }
}

static void chats_that_are_wrong(void) {
  static const char *const rows[][2] = {
      {"{\"messages\":[]}", "at least one"},
      {"{\"messages\":[{\"content\":\"a\"}]}", "messages[0].role"},
      {"{\"messages\":[{\"role\":\"bot\",\"content\":\"a\"}]}", "messages[0].role"},
      {"{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
       "messages[0].content"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"tool_calls\":[1]}]}",
       "messages[0].tool_calls[0] is not an object"},
      {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{}}]}]}",
       "messages[0].tool_calls[0].function.name must be a text"},
      {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[]}]}", "messages[0].content"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"audio\":{}}]}",
       "messages[0].audio is not supported: it may be null"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"name\":7}]}",
       "messages[0].name must be a text"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"colour\":7}]}",
       "messages[0].colour is not supported"},
      {"{\"messages\":[{\"role\":\"user\",\"role\":\"system\",\"content\":\"a\"}]}",
       "messages[0].role is given twice"},
      {"{\"messages\":[7]}", "messages[0] is not an object"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"x\":1}]}]}",
       "messages[0].content[0].x is not"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":[7]}]}", "messages[0].content[0] must be"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"top_logprobs\":2}",
       "needs logprobs"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{}]}",
       "tools[0].function must be an object"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":\"x\"}]}",
       "tools[0].type must be \"function\""},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":{}}",
       "tools must be an array"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tool_choice\":\"required\"}",
       "tool_choice needs tools"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"documents\":[1]}",
       "documents must be an array of objects"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"chat_template_kwargs\":[]}",
       "chat_template_kwargs must be an object"}};
  for (size_t i = 0; i < SLI_COUNT(rows); i++) {
    request_params a;
    const char *param;
    CHECK(request_params_read(rows[i][0], strlen(rows[i][0]), true, NULL, &a, &param) &&
              strstr(sl_detail(), rows[i][1]),
          "%s: %s", rows[i][0], sl_detail());
    request_params_fini(&a);
  }
}

/* Clients return messages that they have received. */
static void messages_that_come_back(void) {
  static const char *const rows[] = {"\"name\":\"bob\"",
                                     "\"tool_calls\":[]",
                                     "\"annotations\":[],\"refusal\":null",
                                     "\"refusal\":\"\"",
                                     "\"tool_calls\":null,\"function_call\":null,\"audio\":null",
                                     "\"reasoning_content\":\"\""};
  for (size_t i = 0; i < SLI_COUNT(rows); i++) {
    char *body =
        sli_format("{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",%s}]}", rows[i]);
    request_params a;
    const char *param;
    CHECK(!request_params_read(body, strlen(body), true, NULL, &a, &param), "%s: %s", rows[i],
          sl_detail());
    request_params_fini(&a);
    free(body);
  }
}

/* Checks the rest of a body after its messages, a template, and the rendered text. */
static void chats_reach_their_templates(void) {
#define CALL(arguments)                                                                                \
  "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":null,"     \
  "\"refusal\":null,\"tool_calls\":[{\"id\":\"x\",\"type\":\"function\",\"function\":{\"name\":\"f\"," \
  "\"arguments\":" arguments "}}]},{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"7\"}]}"
  static const char *const rows[][3] = {
      {CALL("\"{\\\"b\\\": 1.0, \\\"a\\\": [2]}\""), "{{ messages | tojson }}",
       "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": null, "
       "\"tool_calls\": [{\"id\": \"x\", \"type\": \"function\", \"function\": {\"name\": \"f\", "
       "\"arguments\": {\"b\": 1.0, \"a\": [2]}}}]}, {\"role\": \"tool\", \"tool_call_id\": \"x\", "
       "\"content\": \"7\"}]"},
      {CALL("\"no JSON\""), "{{ messages[1].tool_calls[0].function.arguments }}", "no JSON"},
      {CALL("\"\""), "{{ messages[1].tool_calls[0].function.arguments }}", "{}"},
      {CALL("{\"q\":2}"), "{{ messages[1].tool_calls[0].function.arguments }}", "{'q': 2}"},
      {"{\"tools\" : [ {\"type\":\"function\",\"function\":{\"name\":\"}],{\\\"\",\"p\":{\"max\":"
       "18446744073709551615,\"min\":0.0,\"e\":1E2}}} ] ,\"messages\":[{\"role\":\"developer\","
       "\"content\":\"s\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"b\"},"
       "{\"type\":\"text\",\"text\":\"c\"}]}],\"tool_choice\":\"auto\",\"reasoning_effort\":\"low\"}",
       "{{ messages[0].role }} {{ messages[1].content }} {{ tools[0].function | tojson }} "
       "{{ reasoning_effort }}",
       "system bc {\"name\": \"}],{\\\"\", \"p\": {\"max\": 18446744073709551615, \"min\": 0.0, "
       "\"e\": 100.0}} low"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"function\":{\"name\":\"f\"}}],"
       "\"tool_choice\":\"none\",\"chat_template_kwargs\":{\"enable_thinking\":false,\"n\":3},"
       "\"documents\":[{\"title\":\"t\"}]}",
       "{{ tools }} {{ enable_thinking }} {{ n + 1 }} {{ documents[0].title }} {{ x is defined }} "
       "{{ add_generation_prompt }}",
       "None False 4 t False True"}};
  for (size_t i = 0; i < SLI_COUNT(rows); i++) {
    request_params a;
    const char *param;
    CHECK(!request_params_read(rows[i][0], strlen(rows[i][0]), true, NULL, &a, &param), "%s: %s",
          rows[i][0], sl_detail());
    char *text = rendered(&a, rows[i][1]);
    CHECK(!strcmp(text, rows[i][2]), "%s: \"%s\", not \"%s\"", rows[i][0], text, rows[i][2]);
    free(text);
    request_params_fini(&a);
  }
#undef CALL
}

static void a_body_has_only_so_many_values(void) {
  enum { COUNT = 1 << 19 };
  char *body = sli_calloc(COUNT + 1, 1);
  const char *param;
  request_params a;
  memset(body, '[', COUNT);
  CHECK(request_params_read(body, COUNT, false, NULL, &a, &param) && strstr(sl_detail(), "values"),
        "%s", sl_detail());
  request_params_fini(&a);
  free(body);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Returns a body of about 4 MiB: `begin`, up to `most` times `unit`, in which %d counts, and
 * `end`. */
static char *long_body(const char *begin, const char *unit, const char *end, int most) {
  enum { BYTES = 4 << 20 };
  char *body = sli_calloc(BYTES + 256, 1);
  size_t at = (size_t)sprintf(body, "%s", begin), room = BYTES - strlen(unit) - strlen(end) - 64;
  for (int i = 0; i < most && at < room; i++) at += (size_t)sprintf(body + at, unit, i);
  strcpy(body + at, end);
  return body;
}

/* Bodies that are long in any way are read or rejected in about ten times the time of a copy, not
 * in quadratic time. */
static void bodies_take_time_in_proportion(void) {
  enum { ANY = 1 << 30, VALUES = 80000 };
  static const struct {
    const char *begin, *unit, *end;
    int most;
  } rows[] = {
      {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}",
       ",{\"type\":\"text\",\"text\":\"%05d\"}", "]}]}", VALUES},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}",
       ",{\"role\":\"user\",\"content\":\"%d\"}", "]}", VALUES},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"", ",\"k%d\":null", "}]}", VALUES},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"", ",\"name\":null", "}]}", VALUES},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"", "\\u00e4%d", "\"}]}", ANY},
      {"{\"messages\":[1", ",%d", "]}", ANY},
      {"{\"messages\":", "[", "", ANY},
      {"{\"messages\":", "{\"a\":", "", ANY},
      {"{\"k\":null", ",\"k%d\":null", "}", VALUES},
      {"{\"k\":null", ",\"k\":null", "}", VALUES},
      {"{\"logit_bias\":{\"a\":1", ",\"%d\":1", "}}", VALUES},
      {"{\"metadata\":{\"a\":1", ",\"a\":1", "}}", VALUES},
      {"{\"response_format\":{\"type\":\"text\"", ",\"type\":\"text\"", "}}", VALUES},
      {"{\"stream_options\":{\"include_usage\":true", ",\"include_usage\":true", "}}", VALUES},
      {"{\"tools\":[{}", ",{\"a%d\":[]}", "]}", VALUES},
      {"{\"stop\":[\"a\"", ",\"%d\"", "]}", VALUES},
      {"{\"stop\":\"", "aaaaaaaaaaaaaaaaaaaaaaaaa", "b\"}", ANY},
      {"{\"user\":\"", "aaaaaaaaaaaaaaaaaaaaaaaaa", "b\"}", ANY},
      {"{\"max_tokens\":1", "0000000000000000000000000", "}", ANY},
      {"{\"a", "aaaaaaaaaaaaaaaaaaaaaaaaa", "\":1}", ANY},
      {"{", "\\", "}", ANY},
      {"", "\"", "", ANY},
      {"", " ", "", ANY},
      {"{\"modalities\":[\"text\"", ",\"text\"", "]}", VALUES}};
  for (size_t i = 0; i < SLI_COUNT(rows); i++) {
    char *body = long_body(rows[i].begin, rows[i].unit, rows[i].end, rows[i].most);
    double begin = thread_seconds();
    request_params a;
    const char *param;
    sl_status status = request_params_read(body, strlen(body), true, NULL, &a, &param);
    double seconds = thread_seconds() - begin;
    request_params_fini(&a);
    CHECK(seconds < 4, "%.40s%s...: %.2f s, %s", rows[i].begin, rows[i].unit, seconds,
          status ? sl_detail() : "read");
    if (getenv("SLUICE_SHOW"))
      printf("%.3f s %.50s%s: %s\n", seconds, rows[i].begin, rows[i].unit,
             status ? sl_detail() : "read");
    free(body);
  }
}

/* ---- damage ---------------------------------------------------------------------------------- */

static size_t damage(char *bytes, size_t count, size_t room, rng *d) {
  static const char *const pieces[] = {"\"", "{",    "]", "\\u",  "\\ud800", "1e999",
                                       "-",  "\r\n", ":", "\xc3", "null",    ","};
  for (uint32_t n = rng_below(d, 4) + 1; n; n--) {
    size_t at = rng_below(d, (uint32_t)count);
    const char *piece = pieces[rng_below(d, SLI_COUNT(pieces))];
    size_t more = strlen(piece), gone = rng_below(d, 6);
    gone = SLI_MIN(gone, count - at);
    if (rng_below(d, 3) == 0) bytes[at] = (char)(rng_below(d, 255) + 1);
    else if (count + more - gone < room) {
      memmove(bytes + at + more, bytes + at + gone, count - at - gone);
      memcpy(bytes + at, piece, more);
      count += more - gone;
    }
    if (!count) return 0;
  }
  return count;
}

/* Renders a damaged chat that was accepted. The stricter parser may reject its JSON with an
 * error. */
static void damaged_chat(const request_params *a) {
  const sli_chat *chat = sli_chat_of_template("{{ messages }}", NULL);
  char *out = NULL;
  sl_status status =
      sli_chat_render_json(chat, &(sli_chat_marks){NULL}, &a->chat_texts, NULL, &out);
  CHECK(status ? *sl_detail() != 0 : sli_utf8_good(out, strlen(out)) == strlen(out), "%s", out);
  free(out);
  sli_chat_free(chat);
}

static bool damaged_request(rng *d) {
  enum { ROOM = 2 * sizeof chat_body };
  char body[ROOM + 1] = {0};
  request_params a;
  const char *param;
  size_t count = sizeof chat_body - 1;
  memcpy(body, chat_body, count);
  count = damage(body, count, ROOM, d);
  body[count] = 0;
  bool taken = !request_params_read(body, strlen(body), true, NULL, &a, &param);
  CHECK(taken || *sl_detail(), "%s: it says why", body);
  if (taken) damaged_chat(&a);
  request_params_fini(&a);
  return taken;
}

static bool damaged_head(rng *d) {
  static const char good[] =
      "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\nExpect: 100-continue\r\n"
      "Connection: keep-alive\r\n\r\n";
  char bytes[2 * sizeof good] = {0};
  http_head h;
  size_t count = sizeof good - 1;
  memcpy(bytes, good, count);
  count = damage(bytes, count, sizeof bytes - 1, d);
  size_t length = http_head_length(bytes, count, 0);
  if (!length) return false;
  http_fault fault = http_head_parse(bytes, length, &h);
  CHECK(!fault.status || (fault.status >= 400 && fault.text), "a status and a text");
  return !fault.status;
}

static bool damaged_body(rng *d) {
  static const char good[] = "4\r\nabcd\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: a\r\n\r\n";
  char bytes[2 * sizeof good] = {0};
  const http_head h = {.chunked = true, .minor = 1};
  size_t count = sizeof good - 1;
  memcpy(bytes, good, count);
  count = damage(bytes, count, sizeof bytes - 1, d);
  char *at_once = take_body(&h, bytes, count, count ? count : 1);
  char *slowly = take_body(&h, bytes, count, 1 + rng_below(d, 7));
  CHECK(!strcmp(at_once, slowly) || *slowly == '!' || *at_once == '!',
        "the same however it comes: %s, %s", at_once, slowly);
  bool taken = *at_once != '!';
  free(at_once);
  free(slowly);
  return taken;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Writes random bytes that mostly form whole characters. */
static size_t write_bytes(rng *d, int32_t *tokens, size_t room) {
  static const char *const words[] = {"a",      "stop",       "st",       "o",    "\u00e4",
                                      "\u20ac", "\U0001f600", "\xe2\x82", "\xff", "\n"};
  size_t n = 0;
  for (uint32_t count = rng_below(d, 40); count; count--) {
    const char *word = words[rng_below(d, SLI_COUNT(words))];
    for (; *word && n < room; word++) tokens[n++] = (unsigned char)*word;
  }
  return n;
}

static void texts_come_the_same(rng *d) {
  static const char *const ends[] = {"stop", "to\u20ac", "\U0001f600\u00e4"};
  const codec c = {.vocabulary = 256};
  int32_t tokens[256];
  size_t n = write_bytes(d, tokens, SLI_COUNT(tokens)), bytes, got = 0;
  char *whole = codec_decode(&c, tokens, n, false, &bytes), *text = sli_calloc(bytes + 1, 1);
  stops all;
  stops_init(&all, (int)rng_below(d, 4), ends);
  stream_text t = {.codec = &c, .stops = &all};
  size_t end = bytes;
  for (int i = 0; i < all.count; i++) {
    const char *at = strstr(whole, ends[i]);
    if (at) end = SLI_MIN(end, (size_t)(at - whole));
  }
  for (size_t i = 0; i <= n && !t.stopped; i++) {
    if (i < n) stream_text_add(&t, tokens[i]);
    size_t ready = stream_text_ready(&t, i == n);
    CHECK(got + ready <= bytes, "no more than there is");
    if (ready) memcpy(text + got, t.text, ready);
    CHECK(sli_utf8_good(text + got, ready) == ready, "whole characters");
    got += ready;
    stream_text_take(&t, ready);
  }
  CHECK(got == end && !memcmp(text, whole, got), "\"%s\" up to a stop, not \"%s\"", whole, text);
  stream_text_fini(&t);
  stops_fini(&all);
  free(whole);
  free(text);
}

/* Among overlapping stop strings the one that ends first counts, and among these the longest,
 * however the tokens are split. */
static void stops_overlap(void) {
  static const char *const ends[] = {"abcd", "bc", "xabc", "aab"};
  static const char *const rows[][2] = {
      {"zabcd", "za"}, {"xabcd", ""}, {"xaxabc", "xa"}, {"aaab", "a"}, {"abxbb", "abxbb"}};
  const codec c = {.vocabulary = 256};
  stops all;
  stops_init(&all, SLI_COUNT(ends), ends);
  for (size_t i = 0; i < SLI_COUNT(rows); i++) {
    stream_text t = {.codec = &c, .stops = &all};
    for (const char *at = rows[i][0]; *at && !t.stopped; at++) stream_text_add(&t, *at);
    size_t ready = stream_text_ready(&t, true);
    CHECK(ready == strlen(rows[i][1]) && !memcmp(t.text ? t.text : "", rows[i][1], ready),
          "%s comes to %.*s", rows[i][0], (int)ready, t.text);
    stream_text_fini(&t);
  }
  stops_fini(&all);
}

/* ---- background work ------------------------------------------------------------------------- */

static atomic_int ran[4];

static void run_until_stopped(work *w) {
  while (!atomic_load(&w->stop)) sched_yield();
  atomic_store(&ran[0], 1);
}

static void note_turn(work *w) {
  static atomic_int turns;
  atomic_store((atomic_int *)w->user, 1 + atomic_fetch_add(&turns, 1));
}

static work *wait_for_done(worker *w) {
  struct pollfd fd = {.fd = worker_fd(w), .events = POLLIN};
  CHECK(poll(&fd, 1, 60000) == 1, "something is done within a minute");
  work *x = worker_take(w);
  CHECK(x, "it can be taken");
  return x;
}

/* Work that never ends can be stopped. Other work takes turns, short work first, and work that is
 * stopped before its turn does not run. */
static void work_can_be_stopped(void) {
  worker *w;
  CHECK(!worker_create(&w), "%s", sl_detail());
  work endless = {.run = run_until_stopped}, rest[3];
  for (int i = 0; i < 3; i++)
    rest[i] = (work){.run = note_turn, .user = &ran[i + 1], .bytes = (size_t)(3 - i) << 30};
  worker_put(w, &endless);
  while (worker_seconds(w) < .01) sched_yield();
  for (int i = 0; i < 3; i++) worker_put(w, &rest[i]);
  worker_stop(w, &rest[1]);
  CHECK(wait_for_done(w) == &rest[1] && !worker_take(w), "the one that nobody wants is back");
  worker_stop(w, &endless);
  CHECK(wait_for_done(w) == &endless && ran[0], "so is the one under way");
  CHECK(wait_for_done(w) == &rest[2] && wait_for_done(w) == &rest[0], "short ones go first");
  CHECK(ran[1] == 2 && !ran[2] && ran[3] == 1, "%d %d %d", ran[1], ran[2], ran[3]);
  endless.stop = false;
  worker_put(w, &endless);
  while (worker_seconds(w) < .01) sched_yield();
  worker_destroy(w); /* returns although endless work is running */
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The values of a body are charged to its memory account and released with it. */
static void bodies_take_of_an_account(void) {
  enum { COUNT = 50000, MOST = 1 << 20 };
  budget *b;
  CHECK(!budget_create(2 * MOST, &b), "%s", sl_detail());
  account one = {.budget = b, .most = MOST};
  const sli_allowance allowance = account_allowance(&one);
  char *body = sli_calloc(3 * COUNT + 32, 1), *at = stpcpy(body, "{\"prompt\":[");
  const char *param;
  request_params a;
  for (int i = 0; i < COUNT; i++) at = stpcpy(at, "1,");
  strcpy(at, "1]}");
  CHECK(request_params_read(body, strlen(body), false, &allowance, &a, &param) == SL_E_MEMORY &&
            one.over,
        "%s", sl_detail());
  request_params_fini(&a);
  CHECK(!one.held && !budget_held(b), "%zu bytes are left", budget_held(b));
  CHECK(!request_params_read(chat_body, sizeof chat_body - 1, true, &allowance, &a, &param), "%s",
        sl_detail());
  CHECK(one.held > sizeof chat_body && one.held == budget_held(b), "it holds %zu bytes", one.held);
  request_params_fini(&a);
  CHECK(!one.held && !budget_held(b), "%zu bytes are left", budget_held(b));
  free(body);
  budget_destroy(b);
}

typedef struct wants {
  work work;
  account account;
  bool got;
} wants;

static void take_one(work *w) {
  wants *x = (wants *)w;
  x->got = account_take(&x->account, 1000);
}

static account *full;

static void make_room(void *ctx, size_t bytes) {
  (void)ctx;
  account_give(full, bytes);
}

/* A thread that needs memory waits until the event loop has made room or has ended. */
static void threads_wait_for_room(void) {
  budget *b;
  worker *w;
  CHECK(!budget_create(5000, &b) && !worker_create(&w), "%s", sl_detail());
  account all = {.budget = b, .most = 5000};
  wants first = {.work.run = take_one, .account = {.budget = b, .most = 3000}}, second = first;
  full = &all;
  CHECK(account_take(&all, 5000) && !account_take(&all, 1) && all.over, "all is taken");
  budget_set_maker(b, make_room, NULL);
  worker_put(w, &first.work);
  struct pollfd fd = {.fd = budget_fd(b), .events = POLLIN};
  CHECK(poll(&fd, 1, 60000) == 1 && !worker_take(w), "it waits");
  budget_answer(b);
  CHECK(wait_for_done(w) == &first.work && first.got && all.held == 4000 && budget_held(b) == 5000,
        "it has what was given up");
  worker_put(w, &second.work);
  CHECK(poll(&fd, 1, 60000) == 1, "it waits again");
  budget_close(b);
  CHECK(wait_for_done(w) == &second.work && !second.got, "it does not wait for ever");
  worker_destroy(w);
  account_give_all(&all);
  account_give_all(&first.account);
  CHECK(!budget_held(b), "%zu bytes are left", budget_held(b));
  budget_destroy(b);
}

/* The answer of a byte model may contain zeros, which do not end the text. */
static void answers_have_all_of_their_bytes(void) {
  static const chat_format format = {.name = "m"};
  static char text[] = "a\0b\"\\\n\x01\0\0c";
  serving s = {.chat_format = &format};
  request r = {.serving = &s, .answers.count = 1, .answers.shown = 1};
  choice c = {.request = &r, .content = {text, sizeof text - 1, 0}, .finish = "stop"};
  r.answers.items = &c;
  struct evbuffer *out = evbuffer_new();
  CHECK(reply_whole(&r, out) && !evbuffer_add(out, "", 1), "an answer");
  static const char want[] = "\"text\":\"a\\u0000b\\\"\\\\\\n\\u0001\\u0000\\u0000c\",";
  const char *found = (const char *)evbuffer_pullup(out, -1);
  CHECK(strstr(found, want), "%s has %s", found, want);
  evbuffer_free(out);
}

int main(int argc, char **argv) {
  RUN(answers_have_all_of_their_bytes);
  RUN(heads_that_are_good);
  RUN(targets_are_paths);
  RUN(heads_that_are_not);
  RUN(bodies_come_in_chunks);
  RUN(chunks_say_only_so_much);
  RUN(a_request_is_read);
  RUN(requests_that_are_wrong);
  RUN(chats_that_are_wrong);
  RUN(messages_that_come_back);
  RUN(chats_reach_their_templates);
  RUN(a_body_has_only_so_many_values);
  RUN(bodies_take_time_in_proportion);
  RUN(stops_overlap);
  RUN(work_can_be_stopped);
  RUN(bodies_take_of_an_account);
  RUN(threads_wait_for_room);
  seeds s = seeds_of(argc, argv, 1, TEST_SANITIZED ? 1000 : 3000);
  int taken = 0;
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    rng d = {.key = seed};
    taken += damaged_request(&d) + damaged_head(&d) + damaged_body(&d);
    RUN(texts_come_the_same, &d);
  }
  printf("%d of damaged ones taken\n", taken);
  CHECK(seeds_count(s) < 1000 || taken > (int)seeds_count(s) / 80, "some do no harm");
  return 0;
}
