/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/prepare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/actorserve/messages.h"
#include "tools/actorserve/responses.h"

/* Loads or unloads an adapter as requested by the body. */
static sl_status change_adapters(request *r) {
  const request_params *a = &r->params;
  adapters *all = r->serving->adapters;
  r->reading.param = a->adapter.path ? "lora_path" : "lora_name";
  r->reading.unknown_model = a->kind == PARAMS_UNLOAD && !adapters_find(all, a->adapter.name);
  if (chat_format_is(r->serving->chat_format, a->adapter.name))
    return sl_fail(SL_E_USAGE, "%s is the model itself", a->adapter.name);
  return a->kind == PARAMS_LOAD ? adapters_load(all, a->adapter.name, a->adapter.path)
                                : adapters_unload(all, a->adapter.name);
}

static sl_status check_embeddings(request *r) {
  int64_t width = r->serving->engine->width;
  r->reading.param = "dimensions";
  if (!params_embeds(r->params.kind)) return SL_OK;
  if (r->params.embedding.dimensions > width && width)
    return sl_fail(SL_E_USAGE, "dimensions is %lld: it must be %lld, the size of an embedding",
                   (long long)r->params.embedding.dimensions, (long long)width);
  r->reading.param = NULL;
  return width ? SL_OK : sl_fail(SL_E_USAGE, "the server has embeddings turned off (--pooling)");
}

static sl_status check_model(request *r) {
  const chat_format *v = r->serving->chat_format;
  r->reading.param = "model";
  bool own = !r->params.model || chat_format_is(v, r->params.model);
  r->adapter.number = own ? 0 : adapters_find(r->serving->adapters, r->params.model);
  if (r->adapter.number) snprintf(r->adapter.name, sizeof r->adapter.name, "%s", r->params.model);
  r->reading.unknown_model = !own && !r->adapter.number;
  if (!r->reading.unknown_model) return SL_OK;
  return sl_fail(SL_E_USAGE, "the model %.80s does not exist: it is %s", r->params.model, v->name);
}

static sl_status take_tokens(const request *r, const params_prompt *from, encoding *to) {
  int64_t vocabulary = r->serving->engine->vocabulary;
  if (from->count > (size_t)r->serving->engine->context)
    return sl_fail(SL_E_USAGE, "the prompt has %zu tokens: more than the context of %lld",
                   from->count, (long long)r->serving->engine->context);
  for (size_t i = 0; i < from->count; i++) {
    if (from->tokens[i] >= vocabulary)
      return sl_fail(SL_E_USAGE, "token %d is outside the vocabulary of %lld", from->tokens[i],
                     (long long)vocabulary);
    sli_token_row_add(&to->out, from->tokens[i]);
  }
  return to->out.refused ? sl_fail(SL_E_MEMORY, "there is no memory for the tokens") : SL_OK;
}

/* Refuses a text that would have more tokens than the context in any tokenization, without
 * tokenizing it. */
static sl_status check_bytes(const request *r, size_t bytes) {
  int64_t context = r->serving->engine->context;
  size_t longest = codec_longest(&r->serving->chat_format->codec);
  if (!longest || bytes / longest <= (size_t)context) return SL_OK;
  return sl_fail(
      SL_E_USAGE,
      "the prompt has %zu bytes, of which no token has more than %zu: more than the context of %lld tokens",
      bytes, longest, (long long)context);
}

/* Decides how the answer is parsed. */
static sl_status note_answers(request *r, const char *text) {
  const chat_format *v = r->serving->chat_format;
  const cJSON *tools = r->params.tools.none ? NULL : r->params.tools.list;
  size_t end = strlen(text), mark = strlen(ANSWER_THINK);
  while (end && strchr(" \n", text[end - 1])) end--;
  r->parts.within = v->thinks && end >= mark && !memcmp(text + end - mark, ANSWER_THINK, mark);
  r->parts.calls = v->answers && (tools || v->answers->always);
  return tools ? answer_functions_read(tools, &r->memory.lasting, &r->parts.functions) : SL_OK;
}

/* Renders the chat template. A chat that is too long is refused first, because rendering takes many
 * times its memory out of the request's account. */
static sl_status render(request *r, encoding *to) {
  const chat_format *v = r->serving->chat_format;
  if (!v->chat) return sl_fail(SL_E_USAGE, "%s", v->no_chat);
  sl_status status = check_bytes(r, r->params.content_bytes);
  if (status) return status;
  status = sli_chat_render_json(v->chat, v->marks, &r->params.chat_texts, &r->memory.allowance,
                                &to->text);
  return status ? status : note_answers(r, to->text);
}

static sl_status copy_text(request *r, const char *text, encoding *to) {
  size_t bytes = strlen(text) + 1;
  if (!account_take(&r->memory.account, bytes))
    return sl_fail(SL_E_MEMORY, "there is no memory for a text of %zu bytes", bytes);
  to->text = strdup(text);
  if (!to->text) account_give(&r->memory.account, bytes);
  return to->text
             ? SL_OK
             : sl_fail(SL_E_MEMORY, "there is no memory for a text of %zu bytes", strlen(text));
}

static sl_status list_prompt(request *r, int i) {
  encoding *x = &r->prompts.items[i];
  const params_prompt *from = r->params.chat ? NULL : &r->params.prompts[i];
  if (from && !from->text) return take_tokens(r, from, x);
  sl_status status = from ? copy_text(r, from->text, x) : render(r, x);
  if (status) return status;
  x->work.bytes = strlen(x->text);
  return check_bytes(r, x->work.bytes);
}

static void encode(work *w) {
  encoding *x = (encoding *)w;
  const request *r = w->user;
  x->status =
      codec_encode(x->codec, x->text, w->bytes, x->whole, &w->stop, &r->memory.allowance, &x->out);
  if (x->status) x->failure = sli_strdup(sl_detail());
}

static sl_status list_prompts(request *r) {
  bool chat = r->params.chat;
  sl_status status = SL_OK;
  r->reading.param = chat ? "messages" : r->params.kind == PARAMS_DETOKENIZE ? "tokens" : "prompt";
  r->prompts.count = chat ? 1 : r->params.nprompts;
  r->prompts.items = sli_calloc((size_t)r->prompts.count, sizeof *r->prompts.items);
  for (int i = 0; i < r->prompts.count; i++)
    r->prompts.items[i] = (encoding){.work = {.run = encode, .user = r},
                                     .codec = &r->serving->chat_format->codec,
                                     .whole = !chat && !r->params.tokenize.no_special,
                                     .out.allowance = &r->memory.allowance};
  for (int i = 0; i < r->prompts.count && !status; i++) status = list_prompt(r, i);
  return status;
}

static sl_status check_token(const request *r, double token) {
  int64_t vocabulary = r->serving->engine->vocabulary;
  if (token < (double)vocabulary) return SL_OK;
  return sl_fail(SL_E_USAGE, "token %.0f of %s is outside the vocabulary of %lld", token,
                 r->reading.param, (long long)vocabulary);
}

/* Copies logit_bias. */
static sl_status list_biases(request *r) {
  const cJSON *each;
  sl_status status = SL_OK;
  r->reading.param = "logit_bias";
  if (!r->params.sampling.logit_bias) return SL_OK;
  size_t count = (size_t)cJSON_GetArraySize(r->params.sampling.logit_bias);
  r->limits.bias = sli_bounded_alloc(&r->memory.lasting, count * sizeof *r->limits.bias);
  if (!r->limits.bias) return sl_fail(SL_E_MEMORY, "there is no memory for logit_bias");
  cJSON_ArrayForEach(each, r->params.sampling.logit_bias) {
    double token = strtod(each->string, NULL);
    if (!status) status = check_token(r, token);
    r->limits.bias[r->limits.nbias++] = (sl_bias){(int32_t)token, (float)each->valuedouble};
  }
  return status;
}

/* Lists the tokens that end an answer: the model's, and those of the request. */
static sl_status list_ends(request *r) {
  const request_params *a = &r->params;
  const chat_format *v = r->serving->chat_format;
  sl_status status = SL_OK;
  int own = a->end.ignore_eos ? 0 : v->nends;
  r->reading.param = "stop_token_ids";
  r->limits.ends = sli_bounded_alloc(&r->memory.lasting,
                                     (size_t)(own + a->end.ntokens + 1) * sizeof *r->limits.ends);
  if (!r->limits.ends) return sl_fail(SL_E_MEMORY, "there is no memory for stop_token_ids");
  for (int i = 0; i < own; i++) r->limits.ends[r->limits.nends++] = v->ends[i];
  for (int i = 0; i < a->end.ntokens && !status; i++) {
    status = check_token(r, a->end.tokens[i]);
    r->limits.ends[r->limits.nends++] = a->end.tokens[i];
  }
  return status;
}

/* Derives a salt that clients cannot predict. */
static uint64_t salt_of(const serving *s, const char *text) {
  uint64_t hash = sli_hash_word(s->secret, strlen(text));
  for (; *text; text++) hash = sli_hash_word(hash, (unsigned char)*text);
  return SLI_MAX(sli_hash_word(hash, s->secret), 1);
}

static sli_term choice_term(sli_grammar *g, const cJSON *choices) {
  int n = 0;
  const cJSON *each;
  sli_term *terms = sli_calloc((size_t)cJSON_GetArraySize(choices), sizeof *terms);
  cJSON_ArrayForEach(each, choices) terms[n++] =
      sli_grammar_text(g, each->valuestring, strlen(each->valuestring));
  sli_term term = sli_grammar_either(g, n, terms);
  free(terms);
  return term;
}

static sli_term any_object(sli_grammar *g) {
  cJSON schema = {.type = cJSON_Object}, type = {.type = cJSON_String};
  type.string = (char[]){"type"};
  type.valuestring = (char[]){"object"};
  schema.child = &type;
  return sli_grammar_schema(g, &schema, "json_object");
}

static sli_term guided_term(const request_params *params, sli_grammar *g) {
  switch (params->guided.kind) {
  case GUIDED_BY_REGEX: return sli_grammar_regex(g, params->guided.value->valuestring);
  case GUIDED_BY_GRAMMAR: return sli_grammar_gbnf(g, params->guided.value->valuestring);
  case GUIDED_BY_CHOICE: return choice_term(g, params->guided.value);
  case GUIDED_BY_OBJECT: return any_object(g);
  default: return sli_grammar_schema(g, params->guided.value, "schema");
  }
}

/* Makes the grammar of answers that consist of tool calls. */
static sl_status make_calls(request *r, const sli_token_trie *tokens) {
  const chat_format *v = r->serving->chat_format;
  const answer_calls how = {
      .format = v->answers,
      .tokens = tokens,
      .tools = r->params.tools.list,
      .only = r->params.tools.only,
      .several = !r->params.tools.one_call && !r->params.tools.only && r->limits.nends,
      .thinks = v->thinks,
      .within = r->parts.within};
  if (!v->answers)
    return sl_fail(SL_E_USAGE,
                   "tool_choice: the model's tool call format is not known (--tool-parser)");
  sl_status status = answer_calls_check(&how);
  r->reading.param = "tools";
  return status ? status
                : sli_grammar_seal(r->limits.grammar, answer_calls_term(r->limits.grammar, &how),
                                   tokens);
}

/* Makes the grammar of the answers. */
static sl_status make_grammar(request *r) {
  const sli_token_trie *tokens = r->serving->chat_format->codec.tokens;
  if (!r->params.guided.kind && !r->params.tools.must_call) return SL_OK;
  r->reading.param = r->params.guided.kind ? r->params.guided.field : "tool_choice";
  if (!tokens) return sl_fail(SL_E_USAGE, "the model has no tokenizer: its tokens have no text");
  r->limits.grammar = sli_grammar_create(&r->memory.allowance);
  sli_grammar_stop_at(r->limits.grammar, &r->reading.work.stop);
  if (r->params.tools.must_call) return make_calls(r, tokens);
  SLI_TRY(sli_grammar_seal(r->limits.grammar, guided_term(&r->params, r->limits.grammar), tokens));
  if (sli_grammar_has_text(r->limits.grammar)) return SL_OK;
  return sl_fail(SL_E_USAGE, "%s: only the empty text matches the grammar", r->reading.param);
}

/* Copies what is needed after the body is gone, and frees the rest. */
static void settle(request *r) {
  stops_init(&r->limits.stops, r->params.end.nstop, r->params.end.stop);
  r->salt = r->params.cache_salt ? salt_of(r->serving, r->params.cache_salt) : 0;
  request_params_fini(&r->params);
}

static sl_status end_prepared(request *r, sl_status status) {
  snprintf(r->reading.wrong, sizeof r->reading.wrong, "%s",
           r->reading.param ? r->reading.param : "");
  r->reading.param =
      r->reading.param ? r->reading.wrong : NULL; /* the old text was part of the body */
  settle(r);
  free(r->reading.chat);
  r->reading.chat = NULL;
  return status;
}

/* Translates a body in another format to the one of a chat. */
static sl_status translate(request *r, const char *body, size_t bytes) {
  switch (r->params.kind) {
  case PARAMS_RESPONSES:
    return responses_translate(body, bytes, &r->memory.allowance, &r->reading.chat,
                               &r->reading.param);
  case PARAMS_MESSAGES:
  case PARAMS_COUNT:
    return messages_translate(body, bytes, r->params.kind == PARAMS_COUNT, &r->memory.allowance,
                              &r->reading.chat, &r->reading.param);
  default: return SL_OK;
  }
}

sl_status request_prepare(request *r, const char *body, size_t bytes) {
  sl_status status = translate(r, body, bytes);
  if (!status)
    status = request_params_read(r->reading.chat ? r->reading.chat : body,
                                 r->reading.chat ? strlen(r->reading.chat) : bytes, r->params.kind,
                                 &r->memory.allowance, &r->params, &r->reading.param);
  if (!status && r->params.kind >= PARAMS_LOAD) return end_prepared(r, change_adapters(r));
  if (!status) status = check_model(r);
  if (!status) status = check_embeddings(r);
  r->memory.lasting.allowance = &r->memory.allowance;
  if (!status) status = list_biases(r);
  if (!status) status = list_ends(r);
  if (!status) status = list_prompts(r);
  if (!status) status = make_grammar(r);
  return end_prepared(r, status);
}
