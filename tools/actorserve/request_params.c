/* SPDX-License-Identifier: Apache-2.0 */
/* Request parameters. A table lists each field with its reader, its range, and its
 * destination. Fields for unsupported features are accepted only with a value that has no
 * effect. */
#include "tools/actorserve/request_params.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/actorserve/json.h"

enum {
  IN_TEXTS = 1,
  IN_CHATS = 2,
  IN_BOTH = 3,
  IN_TOKENIZE = 4,
  IN_DETOKENIZE = 8,
  IN_LOAD = 16,
  IN_UNLOAD = 32,
  IN_EMBED = 64,
  IN_RERANK = 128,
  IN_SCORE = 256
};

typedef struct field {
  const char *name;
  sl_status (*read)(const struct field *f, const cJSON *item, request_params *out);
  unsigned where;     /* IN_TEXTS and other bits */
  size_t place;       /* offset in the parameters */
  double least, most; /* range of numbers */
} field;

static sl_status no_room(const field *f) {
  return sl_fail(SL_E_MEMORY, "there is no memory for %s", f->name);
}

/* ---- scalar values --------------------------------------------------------------------------- */

static sl_status wrong(const field *f, const char *what) {
  return sl_fail(SL_E_USAGE, "%s must be %s", f->name, what);
}

static sl_status check_range(const field *f, const cJSON *item) {
  if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble)) return wrong(f, "a number");
  if (item->valuedouble >= f->least && item->valuedouble <= f->most) return SL_OK;
  return sl_fail(SL_E_USAGE, "%s is %.9g: it must be from %.9g to %.9g", f->name, item->valuedouble,
                 f->least, f->most);
}

static sl_status read_real(const field *f, const cJSON *item, request_params *out) {
  sl_status status = check_range(f, item);
  if (!status) *(double *)((char *)out + f->place) = item->valuedouble;
  return status;
}

static sl_status check_whole(const field *f, const cJSON *item) {
  sl_status status = check_range(f, item);
  return !status && item->valuedouble != floor(item->valuedouble) ? wrong(f, "a whole number")
                                                                  : status;
}

static sl_status read_whole(const field *f, const cJSON *item, request_params *out) {
  sl_status status = check_whole(f, item);
  if (!status) *(int64_t *)((char *)out + f->place) = (int64_t)item->valuedouble;
  return status;
}

static sl_status read_seed(const field *f, const cJSON *item, request_params *out) {
  sl_status status = check_whole(f, item);
  return status ? status : read_real(f, item, out);
}

static sl_status read_flag(const field *f, const cJSON *item, request_params *out) {
  if (!cJSON_IsBool(item)) return wrong(f, "true or false");
  *(bool *)((char *)out + f->place) = cJSON_IsTrue(item);
  return SL_OK;
}

static sl_status read_text(const field *f, const cJSON *item, request_params *out) {
  if (!cJSON_IsString(item)) return wrong(f, "a text");
  *(const char **)((char *)out + f->place) = item->valuestring;
  return SL_OK;
}

/* Reads max_tokens of completions, which may be 0 if the prompt is echoed. */
static sl_status read_most(const field *f, const cJSON *item, request_params *out) {
  sl_status status = read_whole(f, item, out);
  out->answers.none = !status && !out->end.max_tokens;
  return status;
}

/* Reads logprobs of completions: the number of alternatives. */
static sl_status read_logprobs(const field *f, const cJSON *item, request_params *out) {
  out->answers.wants_logprobs = true;
  return read_whole(f, item, out);
}

/* ---- stops ----------------------------------------------------------------------------------- */

static sl_status add_stop(const field *f, const cJSON *item, request_params *out) {
  if (!cJSON_IsString(item) || !*item->valuestring)
    return wrong(f, "a text, or several, none of them empty");
  if (out->end.nstop == PARAMS_MOST_STOPS)
    return sl_fail(SL_E_USAGE, "%s has more than %d texts", f->name, PARAMS_MOST_STOPS);
  if (strlen(item->valuestring) > PARAMS_LONGEST_STOP)
    return sl_fail(SL_E_USAGE, "%s has a text of more than %d bytes", f->name, PARAMS_LONGEST_STOP);
  out->end.stop[out->end.nstop++] = item->valuestring;
  return SL_OK;
}

static sl_status read_stop(const field *f, const cJSON *item, request_params *out) {
  const cJSON *each;
  sl_status status = SL_OK;
  if (!cJSON_IsArray(item)) return add_stop(f, item, out);
  cJSON_ArrayForEach(each, item) if (!status) status = add_stop(f, each, out);
  return status;
}

/* Returns whether a JSON number can be a token of any vocabulary. */
static bool is_token(const cJSON *item) {
  return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble <= INT32_MAX &&
         item->valuedouble == floor(item->valuedouble);
}

static sl_status read_stop_tokens(const field *f, const cJSON *item, request_params *out) {
  const cJSON *each;
  if (!cJSON_IsArray(item)) return wrong(f, "an array of tokens");
  cJSON_ArrayForEach(each, item) {
    if (!is_token(each)) return wrong(f, "an array of tokens");
    if (out->end.ntokens == PARAMS_MOST_STOP_TOKENS)
      return sl_fail(SL_E_USAGE, "%s has more than %d tokens", f->name, PARAMS_MOST_STOP_TOKENS);
    out->end.tokens[out->end.ntokens++] = (int32_t)each->valuedouble;
  }
  return SL_OK;
}

/* Checks one entry of logit_bias: "TOKEN": NUMBER. */
static sl_status check_bias(const field *f, const cJSON *item) {
  const double most = 100;
  char *end;
  double token = strtod(item->string, &end);
  bool digits = *item->string && !item->string[strspn(item->string, "0123456789")];
  bool good = digits && !*end && token <= INT32_MAX;
  if (!good) return sl_fail(SL_E_USAGE, "%s.%.40s is of no token", f->name, item->string);
  if (cJSON_IsNumber(item) && fabs(item->valuedouble) <= most) return SL_OK;
  return sl_fail(SL_E_USAGE, "%s.%.40s must be a number from -100 to 100", f->name, item->string);
}

static sl_status read_bias(const field *f, const cJSON *item, request_params *out) {
  const cJSON *each;
  int count = 0;
  if (!cJSON_IsObject(item)) return wrong(f, "an object");
  cJSON_ArrayForEach(each, item) {
    if (count++ == PARAMS_MOST_BIASES)
      return sl_fail(SL_E_USAGE, "%s has more than %d tokens", f->name, PARAMS_MOST_BIASES);
    sl_status status = check_bias(f, each);
    if (status) return status;
  }
  if (count) out->sampling.logit_bias = item;
  return SL_OK;
}

static sl_status read_stream_options(const field *f, const cJSON *item, request_params *out) {
  const cJSON *each;
  if (!cJSON_IsObject(item)) return wrong(f, "an object");
  cJSON_ArrayForEach(each, item) {
    bool usage = !strcmp(each->string, "include_usage");
    if (!usage && strcmp(each->string, "include_obfuscation"))
      return sl_fail(SL_E_USAGE, "%s has an unknown field %.40s", f->name, each->string);
    if (!cJSON_IsBool(each) || (!usage && cJSON_IsTrue(each)))
      return sl_fail(SL_E_USAGE, "%s.%s must be %s", f->name, each->string,
                     usage ? "true or false" : "false");
    if (usage) out->answers.usage = cJSON_IsTrue(each);
  }
  return SL_OK;
}

/* ---- prompts --------------------------------------------------------------------------------- */

static sl_status read_tokens(const field *f, const cJSON *item, sli_bounded *memory,
                             params_prompt *out) {
  const cJSON *each;
  out->tokens =
      sli_bounded_alloc(memory, ((size_t)cJSON_GetArraySize(item) + 1) * sizeof *out->tokens);
  if (!out->tokens) return no_room(f);
  cJSON_ArrayForEach(each, item) {
    if (!is_token(each))
      return wrong(f, "a text, tokens (whole numbers from 0 on), or several of either");
    out->tokens[out->count++] = (int32_t)each->valuedouble;
  }
  return SL_OK;
}

static sl_status add_prompt(const field *f, const cJSON *item, request_params *out) {
  params_prompt *p = &out->prompts[out->nprompts++];
  if (cJSON_IsArray(item)) return read_tokens(f, item, &out->memory, p);
  if (!cJSON_IsString(item))
    return wrong(f, "a text, tokens (whole numbers from 0 on), or several of either");
  p->text = item->valuestring;
  return SL_OK;
}

static sl_status read_prompt(const field *f, const cJSON *item, request_params *out) {
  const cJSON *each;
  bool several = cJSON_IsArray(item) && !cJSON_IsNumber(item->child);
  int count = several ? cJSON_GetArraySize(item) : 1;
  if (!count || count > PARAMS_MOST_CHOICES)
    return sl_fail(SL_E_USAGE, "%s has %d texts: it must have 1 to %d", f->name, count,
                   PARAMS_MOST_CHOICES);
  out->prompts = sli_bounded_alloc(&out->memory, (size_t)count * sizeof *out->prompts);
  if (!out->prompts) return no_room(f);
  if (!several) return add_prompt(f, item, out);
  sl_status status = SL_OK;
  cJSON_ArrayForEach(each, item) if (!status) status = add_prompt(f, each, out);
  return status;
}

static sl_status read_token_list(const field *f, const cJSON *item, request_params *out) {
  const cJSON *each;
  if (!cJSON_IsArray(item)) return wrong(f, "an array of tokens");
  cJSON_ArrayForEach(each, item) if (!is_token(each)) return wrong(f, "an array of tokens");
  out->prompts = sli_bounded_alloc(&out->memory, sizeof *out->prompts);
  if (!out->prompts) return no_room(f);
  out->nprompts = 1;
  return read_tokens(f, item, &out->memory, out->prompts);
}

static sl_status read_special(const field *f, const cJSON *item, request_params *out) {
  sl_status status = read_flag(f, item, out);
  out->tokenize.no_special = !status && cJSON_IsFalse(item);
  return status;
}

/* ---- embeddings ------------------------------------------------------------------------------ */

static sl_status read_encoding(const field *f, const cJSON *item, request_params *out) {
  const char *word = cJSON_IsString(item) ? item->valuestring : "";
  out->embedding.base64 = !strcmp(word, "base64");
  return out->embedding.base64 || !strcmp(word, "float") ? SL_OK
                                                         : wrong(f, "\"float\" or \"base64\"");
}

/* Returns a document's text: the document itself, or its "text". Returns NULL if it has none. */
static const char *text_of(const cJSON *item) {
  const cJSON *text = cJSON_IsObject(item) ? cJSON_GetObjectItemCaseSensitive(item, "text") : item;
  return cJSON_IsString(text) ? text->valuestring : NULL;
}

static sl_status read_compared(const field *f, const cJSON *item, request_params *out) {
  const cJSON *each;
  bool good = cJSON_IsArray(item) ? item->child != NULL : text_of(item) != NULL;
  if (cJSON_IsArray(item)) cJSON_ArrayForEach(each, item) good &= text_of(each) != NULL;
  *(const cJSON **)((char *)out + f->place) = item;
  return good ? SL_OK : wrong(f, "a text, or an array of texts");
}

static int count_texts(const cJSON *item) {
  return cJSON_IsArray(item) ? cJSON_GetArraySize(item) : 1;
}

static void add_texts(const cJSON *item, request_params *out) {
  const cJSON *each;
  if (!cJSON_IsArray(item)) out->prompts[out->nprompts++].text = text_of(item);
  else cJSON_ArrayForEach(each, item) out->prompts[out->nprompts++].text = text_of(each);
}

/* Makes prompts of the texts to be compared. */
static sl_status list_compared(request_params *out, const char **param) {
  bool ranks = out->kind == PARAMS_RERANK;
  *param = out->compared.first ? ranks ? "documents" : "text_2" : ranks ? "query" : "text_1";
  if (!out->compared.first || !out->compared.second)
    return sl_fail(SL_E_USAGE, "%s is missing", *param);
  int first = count_texts(out->compared.first), second = count_texts(out->compared.second);
  if (first != 1 && (ranks || first != second))
    return sl_fail(SL_E_USAGE, ranks ? "query must be a text"
                                     : "text_1 must be a text, or as many as text_2 has");
  if (first + second > 8 * PARAMS_MOST_CHOICES)
    return sl_fail(SL_E_USAGE, "%s has too many texts: at most %d", *param,
                   8 * PARAMS_MOST_CHOICES);
  out->prompts = sli_bounded_alloc(&out->memory, (size_t)(first + second) * sizeof *out->prompts);
  if (!out->prompts) return sl_fail(SL_E_MEMORY, "there is no memory for %s", *param);
  memset(out->prompts, 0, (size_t)(first + second) * sizeof *out->prompts);
  add_texts(out->compared.first, out);
  add_texts(out->compared.second, out);
  out->compared.nfirst = first;
  out->answers.echo = out->compared.returns_documents; /* texts are kept */
  return SL_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* A key that an object may have. */
typedef struct key {
  const char *name;
  /* READ: the value is used. Otherwise it is ignored if it is a text; [], {} or ""; null; or
   * anything. */
  enum { KEY_READ, KEY_TEXT, KEY_EMPTY, KEY_NULL, KEY_ANY } takes;
} key;

static bool is_empty(const cJSON *item) {
  if (cJSON_IsString(item)) return !*item->valuestring;
  return (cJSON_IsArray(item) || cJSON_IsObject(item)) && !item->child;
}

/* Checks an object's keys. A duplicate key is ambiguous and refused. */
static sl_status check_keys(const char *where, const cJSON *object, const key *keys, int count) {
  const cJSON *each;
  uint32_t seen = 0;
  if (cJSON_IsArray(object)) return sl_fail(SL_E_USAGE, "%s must be an object", where);
  cJSON_ArrayForEach(each, object) {
    int k = 0;
    while (k < count && strcmp(each->string, keys[k].name)) k++;
    if (k < count && seen >> k & 1)
      return sl_fail(SL_E_USAGE, "%s.%.40s is given twice", where, each->string);
    bool takes_text = k < count && keys[k].takes == KEY_TEXT,
         read = k < count && keys[k].takes == KEY_READ;
    bool good = read || cJSON_IsNull(each) || (k < count && keys[k].takes == KEY_ANY) ||
                (takes_text && cJSON_IsString(each)) ||
                (k < count && keys[k].takes == KEY_EMPTY && is_empty(each));
    if (!good && takes_text)
      return sl_fail(SL_E_USAGE, "%s.%.40s must be a text", where, each->string);
    if (!good && k < count)
      return sl_fail(SL_E_USAGE, "%s.%.40s is not supported: it may be %s", where, each->string,
                     keys[k].takes == KEY_EMPTY ? "empty, or null" : "null");
    if (!good) return sl_fail(SL_E_USAGE, "%s.%.40s is not supported", where, each->string);
    if (k < count) seen |= 1u << k;
  }
  return SL_OK;
}

/* Checks a content part, and returns the text of {"type": "text", "text": "..."}. */
static sl_status read_part(const char *where, const cJSON *part, const char **out) {
  static const key keys[] = {{"type", KEY_READ},
                             {"text", KEY_READ},
                             {"annotations", KEY_EMPTY},
                             {"cache_control", KEY_ANY}};
  sl_status status = check_keys(where, part, keys, SLI_COUNT(keys));
  if (status) return status;
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(part, "type");
  const cJSON *text = cJSON_GetObjectItemCaseSensitive(part, "text");
  bool good = cJSON_IsObject(part) && cJSON_IsString(type) && !strcmp(type->valuestring, "text") &&
              cJSON_IsString(text);
  if (good) *out = text->valuestring;
  return good ? SL_OK : sl_fail(SL_E_USAGE, "%s must be a part of type text, with a text", where);
}

static sl_status read_parts(int i, const cJSON *parts, request_params *out) {
  const cJSON *each;
  sl_status status = SL_OK;
  int at = 0;
  cJSON_ArrayForEach(each, parts) {
    char where[64];
    const char *text = "";
    snprintf(where, sizeof where, "messages[%d].content[%d]", i, at++);
    if (!status) status = read_part(where, each, &text);
    out->content_bytes += strlen(text);
  }
  return status;
}

/* ---- tools ----------------------------------------------------------------------------------- */

/* Checks the parts of a function or a call that a template shows. */
static sl_status check_function_parts(const char *where, const cJSON *function) {
  const cJSON *parameters = cJSON_GetObjectItemCaseSensitive(function, "parameters"),
              *description = cJSON_GetObjectItemCaseSensitive(function, "description"),
              *arguments = cJSON_GetObjectItemCaseSensitive(function, "arguments");
  if (parameters && !cJSON_IsNull(parameters) && !cJSON_IsObject(parameters))
    return sl_fail(SL_E_USAGE, "%s.function.parameters must be an object", where);
  if (description && !cJSON_IsNull(description) && !cJSON_IsString(description))
    return sl_fail(SL_E_USAGE, "%s.function.description must be a text", where);
  if (arguments && !cJSON_IsNull(arguments) && !cJSON_IsString(arguments) &&
      !cJSON_IsObject(arguments))
    return sl_fail(SL_E_USAGE, "%s.function.arguments must be a text, or an object", where);
  return SL_OK;
}

/* Checks that an object is of type "function", and has a function with a name. */
static sl_status check_function(const char *where, const cJSON *object) {
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(object, "type"),
              *function = cJSON_GetObjectItemCaseSensitive(object, "function"),
              *name = cJSON_GetObjectItemCaseSensitive(function, "name");
  if (!cJSON_IsObject(object)) return sl_fail(SL_E_USAGE, "%s is not an object", where);
  if (type && (!cJSON_IsString(type) || strcmp(type->valuestring, "function")))
    return sl_fail(SL_E_USAGE, "%s.type must be \"function\"", where);
  if (!cJSON_IsObject(function)) return sl_fail(SL_E_USAGE, "%s.function must be an object", where);
  if (!cJSON_IsString(name) || !*name->valuestring)
    return sl_fail(SL_E_USAGE, "%s.function.name must be a text, and not empty", where);
  return check_function_parts(where, function);
}

static sl_status check_functions(const char *what, const cJSON *all) {
  const cJSON *each;
  sl_status status = SL_OK;
  int i = 0;
  if (!cJSON_IsArray(all)) return sl_fail(SL_E_USAGE, "%s must be an array", what);
  cJSON_ArrayForEach(each, all) {
    char where[80];
    snprintf(where, sizeof where, "%s[%d]", what, i++);
    if (!status) status = check_function(where, each);
  }
  return status;
}

static sl_status read_tools(const field *f, const cJSON *item, request_params *out) {
  if (item->child) out->chat_texts.tools = item->string; /* replaced by its JSON text later */
  if (item->child) out->tools.list = item;
  return check_functions(f->name, item);
}

static sl_status read_tool_choice(const field *f, const cJSON *item, request_params *out) {
  const char *word = cJSON_IsString(item) ? item->valuestring : "";
  bool named = cJSON_IsObject(item);
  out->tools.none = !strcmp(word, "none");
  out->tools.must_call = named || !strcmp(word, "required");
  if (!out->tools.none && !out->tools.must_call && strcmp(word, "auto") != 0)
    return wrong(f, "\"auto\", \"none\", \"required\", or an object that names a function");
  sl_status status = named ? check_function(f->name, item) : SL_OK;
  if (status || !named) return status;
  const cJSON *function = cJSON_GetObjectItemCaseSensitive(item, "function");
  out->tools.only = cJSON_GetObjectItemCaseSensitive(function, "name")->valuestring;
  return SL_OK;
}

static sl_status read_parallel(const field *f, const cJSON *item, request_params *out) {
  if (!cJSON_IsBool(item)) return wrong(f, "true or false");
  out->tools.one_call = cJSON_IsFalse(item);
  return SL_OK;
}

/* ---- the chat for its template --------------------------------------------------------------- */

static bool is_word(const cJSON *item, const char *const *words) {
  for (; *words; words++)
    if (cJSON_IsString(item) && !strcmp(item->valuestring, *words)) return true;
  return false;
}

/* Checks a message's members. Clients send back what they received, so fields without effect are
 * ignored. */
static sl_status check_message(const char *where, const cJSON *item) {
  static const key keys[] = {
      {"role", KEY_READ},         {"content", KEY_READ},       {"name", KEY_TEXT},
      {"refusal", KEY_EMPTY},     {"annotations", KEY_EMPTY},  {"tool_calls", KEY_READ},
      {"tool_call_id", KEY_TEXT}, {"function_call", KEY_NULL}, {"audio", KEY_NULL},
      {"reasoning", KEY_TEXT},    {"thinking", KEY_TEXT},      {"reasoning_content", KEY_TEXT}};
  if (!cJSON_IsObject(item)) return sl_fail(SL_E_USAGE, "%s is not an object", where);
  return check_keys(where, item, keys, SLI_COUNT(keys));
}

/* Reads a message's content; an assistant message with tool calls needs none. */
static sl_status read_content(int i, const cJSON *message, bool calls, request_params *out) {
  const cJSON *content = cJSON_GetObjectItemCaseSensitive(message, "content");
  if (cJSON_IsArray(content)) return read_parts(i, content, out);
  if (cJSON_IsString(content)) out->content_bytes += strlen(content->valuestring);
  bool none = !content || cJSON_IsNull(content);
  if (cJSON_IsString(content) || (none && calls)) return SL_OK;
  return sl_fail(SL_E_USAGE, "messages[%d].content must be a text, or parts of type text", i);
}

static sl_status read_message(const cJSON *item, request_params *out) {
  static const char *const roles[] = {"system", "user", "assistant", "developer", "tool", NULL};
  int i = out->nmessages++;
  char where[48];
  snprintf(where, sizeof where, "messages[%d]", i);
  sl_status status = check_message(where, item);
  if (status) return status;
  if (!is_word(cJSON_GetObjectItemCaseSensitive(item, "role"), roles))
    return sl_fail(SL_E_USAGE, "%s.role must be system, developer, user, assistant or tool", where);
  const cJSON *calls = cJSON_GetObjectItemCaseSensitive(item, "tool_calls");
  snprintf(where, sizeof where, "messages[%d].tool_calls", i);
  if (calls && !cJSON_IsNull(calls)) status = check_functions(where, calls);
  return status ? status : read_content(i, item, calls && calls->child, out);
}

static sl_status read_messages(const field *f, const cJSON *item, request_params *out) {
  const cJSON *each;
  if (!cJSON_IsArray(item) || !item->child) return wrong(f, "an array of at least one message");
  out->chat_texts.messages = item->string; /* replaced by its JSON text later */
  sl_status status = SL_OK;
  cJSON_ArrayForEach(each, item) if (!status) status = read_message(each, out);
  return status;
}

static sl_status read_documents(const field *f, const cJSON *item, request_params *out) {
  const cJSON *each;
  if (!cJSON_IsArray(item)) return wrong(f, "an array of objects");
  cJSON_ArrayForEach(each, item) if (!cJSON_IsObject(each)) return wrong(f, "an array of objects");
  if (item->child) out->chat_texts.documents = item->string;
  return SL_OK;
}

static sl_status read_variables(const field *f, const cJSON *item, request_params *out) {
  if (!cJSON_IsObject(item)) return wrong(f, "an object");
  out->chat_texts.variables = item->string;
  return SL_OK;
}

/* Finds the JSON texts of a chat's parts in the body. Until now, parts that are present hold their
 * names. */
static void find_texts(const char *body, const cJSON *root, request_params *out) {
  sli_chat_json *c = &out->chat_texts;
  const char **const places[] = {&c->messages, &c->tools, &c->documents, &c->variables};
  size_t *const bytes[] = {&c->messages_bytes, &c->tools_bytes, &c->documents_bytes,
                           &c->variables_bytes};
  const cJSON *item;
  int i = 0;
  if (out->tools.none) c->tools = NULL;
  cJSON_ArrayForEach(item, root) {
    for (size_t k = 0; k < SLI_COUNT(places); k++)
      if (*places[k] == item->string) *places[k] = json_member(body, i, bytes[k]);
    i++;
  }
}

/* ---- constraints on an answer ---------------------------------------------------------------- */

static sl_status guide_by(const field *f, params_guided kind, const cJSON *value,
                          request_params *out) {
  if (out->guided.kind)
    return sl_fail(SL_E_USAGE, "%s and %s: an answer can be guided by one of them",
                   out->guided.field, f->name);
  out->guided.kind = kind;
  out->guided.field = f->name;
  out->guided.value = value;
  return SL_OK;
}

static sl_status read_guided_regex(const field *f, const cJSON *item, request_params *out) {
  return cJSON_IsString(item) ? guide_by(f, GUIDED_BY_REGEX, item, out) : wrong(f, "a text");
}

static sl_status read_guided_grammar(const field *f, const cJSON *item, request_params *out) {
  return cJSON_IsString(item) ? guide_by(f, GUIDED_BY_GRAMMAR, item, out) : wrong(f, "a text");
}

static sl_status read_guided_choice(const field *f, const cJSON *item, request_params *out) {
  const cJSON *each;
  bool good = cJSON_IsArray(item) && item->child;
  cJSON_ArrayForEach(each, item) good &= cJSON_IsString(each) && *each->valuestring;
  return good ? guide_by(f, GUIDED_BY_CHOICE, item, out)
              : wrong(f, "an array of texts that are not empty");
}

static bool is_schema(const cJSON *item) { return cJSON_IsObject(item) || cJSON_IsBool(item); }

static sl_status read_guided_json(const field *f, const cJSON *item, request_params *out) {
  return is_schema(item) ? guide_by(f, GUIDED_BY_SCHEMA, item, out)
                         : wrong(f, "a schema: an object, true or false");
}

/* Reads {"type": "json_schema", "json_schema": {"name": ..., "schema": {...}}}. */
static sl_status read_json_schema(const field *f, const cJSON *item, request_params *out) {
  static const key keys[] = {
      {"name", KEY_TEXT}, {"description", KEY_TEXT}, {"strict", KEY_ANY}, {"schema", KEY_READ}};
  if (!cJSON_IsObject(item))
    return sl_fail(SL_E_USAGE, "%s.json_schema must be an object", f->name);
  sl_status status = check_keys("response_format.json_schema", item, keys, SLI_COUNT(keys));
  const cJSON *schema = cJSON_GetObjectItemCaseSensitive(item, "schema");
  if (status) return status;
  return is_schema(schema)
             ? guide_by(f, GUIDED_BY_SCHEMA, schema, out)
             : sl_fail(SL_E_USAGE, "%s.json_schema.schema must be an object", f->name);
}

static sl_status read_response_format(const field *f, const cJSON *item, request_params *out) {
  static const key keys[] = {{"type", KEY_READ}, {"json_schema", KEY_READ}};
  if (!cJSON_IsObject(item)) return wrong(f, "an object with a type");
  sl_status status = check_keys(f->name, item, keys, SLI_COUNT(keys));
  if (status) return status;
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(item, "type"),
              *schema = cJSON_GetObjectItemCaseSensitive(item, "json_schema");
  const char *name = cJSON_IsString(type) ? type->valuestring : "";
  if (!strcmp(name, "json_schema")) return read_json_schema(f, schema, out);
  if (schema && !cJSON_IsNull(schema))
    return sl_fail(SL_E_USAGE, "%s.json_schema needs the type json_schema", f->name);
  if (!strcmp(name, "json_object")) return guide_by(f, GUIDED_BY_OBJECT, item, out);
  if (!strcmp(name, "text")) return SL_OK;
  return sl_fail(SL_E_USAGE, "%s.type must be \"text\", \"json_object\" or \"json_schema\"",
                 f->name);
}

/* ---- table of fields ------------------------------------------------------------------------- */

#define AT(name) offsetof(request_params, name)
static const field fields[] = {
    {"model", read_text, IN_BOTH | IN_DETOKENIZE | IN_EMBED | IN_RERANK | IN_SCORE, AT(model), 0,
     0},
    {"lora_name", read_text, IN_LOAD | IN_UNLOAD, AT(adapter.name), 0, 0},
    {"lora_path", read_text, IN_LOAD, AT(adapter.path), 0, 0},
    {"lora_int_id", read_whole, IN_LOAD | IN_UNLOAD, AT(compared.top_n), 0, 1e9},
    {"input", read_prompt, IN_EMBED, 0, 0, 0},
    {"dimensions", read_whole, IN_EMBED, AT(embedding.dimensions), 1, 1e9},
    {"encoding_format", read_encoding, IN_EMBED, 0, 0, 0},
    {"query", read_compared, IN_RERANK, AT(compared.first), 0, 0},
    {"documents", read_compared, IN_RERANK, AT(compared.second), 0, 0},
    {"top_n", read_whole, IN_RERANK, AT(compared.top_n), 0, 1e9},
    {"return_documents", read_flag, IN_RERANK, AT(compared.returns_documents), 0, 0},
    {"text_1", read_compared, IN_SCORE, AT(compared.first), 0, 0},
    {"text_2", read_compared, IN_SCORE, AT(compared.second), 0, 0},
    {"tokens", read_token_list, IN_DETOKENIZE, 0, 0, 0},
    {"add_special_tokens", read_special, IN_TOKENIZE, AT(tokenize.no_special), 0, 0},
    {"return_token_strs", read_flag, IN_TOKENIZE, AT(tokenize.wants_texts), 0, 0},
    {"prompt", read_prompt, IN_TEXTS, 0, 0, 0},
    {"messages", read_messages, IN_CHATS, 0, 0, 0},
    {"tools", read_tools, IN_CHATS, 0, 0, 0},
    {"tool_choice", read_tool_choice, IN_CHATS, 0, 0, 0},
    {"parallel_tool_calls", read_parallel, IN_CHATS, 0, 0, 0},
    {"documents", read_documents, IN_CHATS, 0, 0, 0},
    {"chat_template_kwargs", read_variables, IN_CHATS, 0, 0, 0},
    {"reasoning_effort", read_text, IN_CHATS, AT(chat_texts.effort), 0, 0},
    {"stream", read_flag, IN_BOTH, AT(answers.stream), 0, 0},
    {"stream_options", read_stream_options, IN_BOTH, 0, 0, 0},
    {"n", read_whole, IN_BOTH, AT(answers.n), 1, PARAMS_MOST_CHOICES},
    {"max_tokens", read_most, IN_TEXTS, AT(end.max_tokens), 0, 1e9},
    {"max_tokens", read_whole, IN_CHATS, AT(end.max_tokens), 1, 1e9},
    {"max_completion_tokens", read_whole, IN_CHATS, AT(end.max_tokens), 1, 1e9},
    {"temperature", read_real, IN_BOTH, AT(sampling.temperature), 0, 100},
    {"top_p", read_real, IN_BOTH, AT(sampling.top_p), 0, 1},
    {"top_k", read_whole, IN_BOTH, AT(sampling.top_k), 0, 1e9},
    {"min_p", read_real, IN_BOTH, AT(sampling.min_p), 0, 1},
    {"presence_penalty", read_real, IN_BOTH, AT(sampling.presence_penalty), -2, 2},
    {"frequency_penalty", read_real, IN_BOTH, AT(sampling.frequency_penalty), -2, 2},
    {"repetition_penalty", read_real, IN_BOTH, AT(sampling.repetition_penalty), 0.01, 100},
    {"logit_bias", read_bias, IN_BOTH, 0, 0, 0},
    {"min_tokens", read_whole, IN_BOTH, AT(end.min_tokens), 0, 1e9},
    {"ignore_eos", read_flag, IN_BOTH, AT(end.ignore_eos), 0, 0},
    {"stop_token_ids", read_stop_tokens, IN_BOTH, 0, 0, 0},
    {"best_of", read_whole, IN_TEXTS, AT(answers.best_of), 1, PARAMS_MOST_CHOICES},
    {"echo", read_flag, IN_TEXTS, AT(answers.echo), 0, 0},
    {"seed", read_seed, IN_BOTH, AT(sampling.seed), -0x1p63, 0x1p62},
    {"stop", read_stop, IN_BOTH, 0, 0, 0},
    {"response_format", read_response_format, IN_BOTH, 0, 0, 0},
    {"guided_regex", read_guided_regex, IN_BOTH, 0, 0, 0},
    {"guided_choice", read_guided_choice, IN_BOTH, 0, 0, 0},
    {"guided_grammar", read_guided_grammar, IN_BOTH, 0, 0, 0},
    {"guided_json", read_guided_json, IN_BOTH, 0, 0, 0},
    {"cache_salt", read_text, IN_BOTH, AT(cache_salt), 0, 0},
    {"logprobs", read_logprobs, IN_TEXTS, AT(answers.top_logprobs), 0, 20},
    {"logprobs", read_flag, IN_CHATS, AT(answers.wants_logprobs), 0, 0},
    {"top_logprobs", read_whole, IN_CHATS, AT(answers.top_logprobs), 0, 20}};

/* OpenAI's fields that are not supported, and the only JSON value that is accepted. NULL accepts
 * any value, because the field does not affect the answer. */
static const struct {
  const char *name, *value;
} others[] = {{"user", NULL},
              {"metadata", NULL},
              {"safety_identifier", NULL},
              {"prompt_cache_key", NULL},
              {"service_tier", NULL},
              {"store", NULL},
              {"prompt_cache_retention", NULL},
              {"verbosity", NULL},
              {"best_of", "1"},
              {"echo", "false"},
              {"suffix", "\"\""},
              {"add_generation_prompt", "true"},
              {"skip_special_tokens", "true"},
              {"spaces_between_special_tokens", "true"},
              {"include_stop_str_in_output", "false"},
              {"use_beam_search", "false"},
              {"length_penalty", "1"},
              {"tools", "[]"},
              {"tool_choice", "\"none\""},
              {"parallel_tool_calls", "true"},
              {"modalities", "[\"text\"]"}};

static sl_status check_other(const cJSON *item) {
  for (size_t i = 0; i < SLI_COUNT(others); i++) {
    if (strcmp(item->string, others[i].name)) continue;
    cJSON *value = others[i].value ? cJSON_Parse(others[i].value) : NULL;
    bool good = !others[i].value || cJSON_Compare(item, value, true);
    cJSON_Delete(value);
    if (good) return SL_OK;
    return sl_fail(SL_E_USAGE, "%s is not supported: it may be %s", item->string, others[i].value);
  }
  return sl_fail(SL_E_USAGE, "unknown field %.40s", item->string);
}

static sl_status read_item(const cJSON *item, request_params *out) {
  static const unsigned places[] = {
      [PARAMS_DETOKENIZE] = IN_DETOKENIZE, [PARAMS_LOAD] = IN_LOAD,     [PARAMS_UNLOAD] = IN_UNLOAD,
      [PARAMS_EMBED] = IN_EMBED,           [PARAMS_RERANK] = IN_RERANK, [PARAMS_SCORE] = IN_SCORE};
  unsigned own = out->kind < SLI_COUNT(places) ? places[out->kind] : 0, here = own ? own
                                                                               : out->chat
                                                                                   ? IN_CHATS
                                                                                   : IN_TEXTS;
  if (out->kind == PARAMS_TOKENIZE) here |= IN_TOKENIZE;
  if (cJSON_IsNull(item)) return SL_OK; /* null counts as absent */
  for (size_t i = 0; i < SLI_COUNT(fields); i++)
    if (fields[i].where & here && !strcmp(item->string, fields[i].name))
      return fields[i].read(&fields[i], item, out);
  return check_other(item);
}

/* Refuses a duplicate field, which is ambiguous. */
static sl_status check_once(const cJSON *item) {
  for (const cJSON *other = item->next; other; other = other->next)
    if (!strcmp(item->string, other->string))
      return sl_fail(SL_E_USAGE, "field %.40s is given twice", item->string);
  return SL_OK;
}

static sl_status check_best(const request_params *params, const char **param) {
  *param = "best_of";
  if (params->answers.best_of && params->answers.best_of < params->answers.n)
    return sl_fail(SL_E_USAGE, "best_of is %lld: fewer than the %lld of n",
                   (long long)params->answers.best_of, (long long)params->answers.n);
  if (params->answers.best_of * SLI_MAX(params->nprompts, 1) > PARAMS_MOST_CHOICES)
    return sl_fail(SL_E_USAGE, "best_of for each of %d prompts makes more than %d answers",
                   params->nprompts, PARAMS_MOST_CHOICES);
  if (params->answers.best_of > params->answers.n && params->answers.stream)
    return sl_fail(SL_E_USAGE, "best_of is not possible in a stream: the best is known at the end");
  *param = "max_tokens";
  if (params->answers.none && !params->answers.echo && params->kind == PARAMS_TEXTS)
    return sl_fail(SL_E_USAGE, "max_tokens is 0: it must be positive, unless echo is true");
  *param = "echo";
  if (params->answers.echo && params->answers.wants_logprobs && params->guided.kind)
    return sl_fail(SL_E_USAGE, "echo with logprobs and %s: they cannot be combined",
                   params->guided.field);
  return SL_OK;
}

static bool has_tool(const request_params *params, const char *name) {
  const cJSON *each;
  cJSON_ArrayForEach(each, params->tools.list) {
    const cJSON *function = cJSON_GetObjectItemCaseSensitive(each, "function");
    if (!strcmp(cJSON_GetObjectItemCaseSensitive(function, "name")->valuestring, name)) return true;
  }
  return false;
}

static sl_status check_tools(const request_params *params) {
  if (!params->tools.must_call) return SL_OK;
  if (!params->tools.list) return sl_fail(SL_E_USAGE, "tool_choice needs tools");
  if (params->guided.kind)
    return sl_fail(SL_E_USAGE, "tool_choice and %s: an answer can be guided by one of them",
                   params->guided.field);
  if (!params->tools.only || has_tool(params, params->tools.only)) return SL_OK;
  return sl_fail(SL_E_USAGE, "tool_choice names %.80s, which is none of the tools",
                 params->tools.only);
}

static sl_status check_adapter(const request_params *params, const char **param) {
  *param = params->adapter.name ? "lora_path" : "lora_name";
  if (params->adapter.name && (params->adapter.path || params->kind == PARAMS_UNLOAD)) return SL_OK;
  return sl_fail(SL_E_USAGE, "%s is missing", *param);
}

static sl_status check_together(const request_params *params, const char **param) {
  if (params->kind >= PARAMS_LOAD) return check_adapter(params, param);
  *param = params->chat                        ? "messages"
           : params->kind == PARAMS_DETOKENIZE ? "tokens"
           : params->kind == PARAMS_EMBED      ? "input"
                                               : "prompt";
  if (params->chat ? !params->nmessages : !params->nprompts)
    return sl_fail(SL_E_USAGE, "%s is missing", *param);
  if (params->kind == PARAMS_TOKENIZE && !params->chat &&
      (params->nprompts > 1 || !params->prompts->text))
    return sl_fail(SL_E_USAGE, "prompt must be a text");
  *param = "n";
  if (params->answers.n * SLI_MAX(params->nprompts, 1) > PARAMS_MOST_CHOICES)
    return sl_fail(SL_E_USAGE, "n for each of %d prompts makes more than %d answers",
                   params->nprompts, PARAMS_MOST_CHOICES);
  sl_status status = check_best(params, param);
  if (status) return status;
  *param = "tool_choice";
  status = check_tools(params);
  if (status) return status;
  *param = "min_tokens";
  if (params->end.max_tokens && params->end.min_tokens > params->end.max_tokens)
    return sl_fail(SL_E_USAGE, "min_tokens is %lld: more than the %lld of max_tokens",
                   (long long)params->end.min_tokens, (long long)params->end.max_tokens);
  *param = "top_logprobs";
  if (params->chat && params->answers.top_logprobs && !params->answers.wants_logprobs)
    return sl_fail(SL_E_USAGE, "top_logprobs needs logprobs to be true");
  *param = "stream_options";
  if (params->answers.usage && !params->answers.stream)
    return sl_fail(SL_E_USAGE, "stream_options needs stream to be true");
  *param = NULL;
  return SL_OK;
}

enum { MOST_FIELDS = 64 };

sl_status request_params_read(const char *body, size_t bytes, params_kind kind,
                              const sli_allowance *allowance, request_params *out,
                              const char **param) {
  cJSON *root, *item;
  *out = (request_params){.kind = kind,
                          .chat = kind == PARAMS_CHAT || kind == PARAMS_RESPONSES ||
                                  kind == PARAMS_MESSAGES || kind == PARAMS_COUNT,
                          .answers.n = 1,
                          .sampling.temperature = 1,
                          .sampling.top_p = 1,
                          .sampling.repetition_penalty = 1,
                          .sampling.seed = NAN,
                          .memory.allowance = allowance};
  *param = NULL;
  sl_status status = json_read(body, bytes, &out->memory, &root);
  if (status) return status;
  if (!cJSON_IsObject(root)) return sl_fail(SL_E_INPUT, "the body is not an object");
  if (kind == PARAMS_TOKENIZE) out->chat = cJSON_HasObjectItem(root, "messages");
  if (cJSON_GetArraySize(root) > MOST_FIELDS)
    return sl_fail(SL_E_INPUT, "the body has more than %d fields", MOST_FIELDS);
  cJSON_ArrayForEach(item, root) {
    *param = item->string;
    status = check_once(item);
    if (!status) status = read_item(item, out);
    if (status) return status;
  }
  if (kind == PARAMS_RERANK || kind == PARAMS_SCORE) status = list_compared(out, param);
  if (!status) status = check_together(out, param);
  if (!status && out->chat) find_texts(body, root, out);
  return status;
}

void request_params_fini(request_params *params) {
  sli_bounded_fini(&params->memory);
  params->prompts = NULL;
  params->tools.list = params->sampling.logit_bias = NULL;
  params->chat_texts = (sli_chat_json){NULL};
  params->guided.value = NULL;
  params->model = params->cache_salt = params->tools.only = params->adapter.name =
      params->adapter.path = NULL;
  params->compared.first = params->compared.second = NULL;
  params->nprompts = params->nmessages = params->end.nstop = 0;
}
