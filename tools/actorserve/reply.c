#include "tools/actorserve/reply.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/actorserve/json.h"

static char *print(cJSON *root) {
  char *text = cJSON_PrintUnformatted(root);
  SLI_CHECK(text, "no memory for an answer");
  cJSON_Delete(root);
  return text;
}

static char *event(cJSON *root) {
  char *text = print(root), *event = sli_format("data: %s\n\n", text);
  free(text);
  return event;
}

static void add_text_or_null(cJSON *to, const char *name, const char *text) {
  cJSON_AddItemToObject(to, name, text ? cJSON_CreateString(text) : cJSON_CreateNull());
}

/* ---- errors, models ------------------------------------------------------------------------------- */

static cJSON *error_json(int status, const char *param, const char *code, const char *text) {
  cJSON *root = cJSON_CreateObject(), *error = cJSON_AddObjectToObject(root, "error");
  char plain[1024];
  cJSON_AddStringToObject(error, "message", sli_escape(plain, sizeof plain, text));
  cJSON_AddStringToObject(error, "type", status < 500 ? "invalid_request_error" : "server_error");
  add_text_or_null(error, "param", param);
  add_text_or_null(error, "code", code);
  return root;
}

char *reply_error(int status, const char *param, const char *code, const char *text) {
  return print(error_json(status, param, code, text));
}

char *reply_event_error(const char *text) { return event(error_json(500, NULL, NULL, text)); }

static cJSON *model_json(const char *model) {
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "id", model);
  cJSON_AddStringToObject(root, "object", "model");
  cJSON_AddNumberToObject(root, "created", 0);
  cJSON_AddStringToObject(root, "owned_by", "sluice");
  return root;
}

char *reply_models(const char *model, bool list) {
  if (!list) return print(model_json(model));
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "object", "list");
  cJSON_AddItemToArray(cJSON_AddArrayToObject(root, "data"), model_json(model));
  return print(root);
}

/* ---- tokens and their probabilities --------------------------------------------------------------------- */

/* The words that begin before `end`, taken from the choice. */
static cJSON *take_words(choice *c, size_t end) {
  cJSON *words = cJSON_CreateArray();
  for (cJSON *word; (word = c->words->child);) {
    if (cJSON_GetObjectItemCaseSensitive(word, "place")->valuedouble >= (double)end) break;
    cJSON_AddItemToArray(words, cJSON_DetachItemViaPointer(c->words, word));
  }
  return words;
}

static void move(cJSON *word, const char *name, cJSON *to) {
  cJSON_AddItemToArray(to, cJSON_DetachItemFromObjectCaseSensitive(word, name));
}

/* {" the": -0.5, ...} */
static cJSON *top_json(const cJSON *word) {
  const cJSON *each;
  cJSON *root = cJSON_CreateObject();
  cJSON_ArrayForEach(each, cJSON_GetObjectItemCaseSensitive(word, "top_logprobs"))
    cJSON_AddNumberToObject(root, cJSON_GetObjectItemCaseSensitive(each, "token")->valuestring,
                            cJSON_GetObjectItemCaseSensitive(each, "logprob")->valuedouble);
  return root;
}

/* As completions have them: a row for each field. Takes the words over. */
static cJSON *rows_json(cJSON *words) {
  cJSON *root = cJSON_CreateObject(), *tokens = cJSON_AddArrayToObject(root, "tokens");
  cJSON *logprobs = cJSON_AddArrayToObject(root, "token_logprobs");
  cJSON *top = cJSON_AddArrayToObject(root, "top_logprobs"), *word;
  cJSON *places = cJSON_AddArrayToObject(root, "text_offset");
  cJSON_ArrayForEach(word, words) {
    cJSON_AddItemToArray(top, top_json(word));
    move(word, "token", tokens);
    move(word, "logprob", logprobs);
    move(word, "place", places);
  }
  cJSON_Delete(words);
  return root;
}

static cJSON *words_json(cJSON *words) {
  cJSON *root = cJSON_CreateObject(), *word;
  cJSON_ArrayForEach(word, words) cJSON_DeleteItemFromObjectCaseSensitive(word, "place");
  cJSON_AddItemToObject(root, "content", words);
  return root;
}

/* Of a text up to `end`; at the last, also what has no text, but not what is behind a stop. */
static void add_logprobs(cJSON *to, choice *c, size_t end, bool last) {
  if (last && !c->told.stopped) end = SIZE_MAX;
  cJSON *words = c->words ? take_words(c, end) : NULL;
  bool chat = c->of->asked.chat;
  if (words && !words->child) cJSON_Delete(words), words = NULL;
  cJSON *json = !words ? cJSON_CreateNull() : chat ? words_json(words) : rows_json(words);
  cJSON_AddItemToObject(to, "logprobs", json);
}

/* ---- answers ------------------------------------------------------------------------------------------------ */

static cJSON *head_json(const request *r, bool piece) {
  cJSON *root = cJSON_CreateObject();
  const char *object = !r->asked.chat ? "text_completion" : piece ? "chat.completion.chunk" : "chat.completion";
  cJSON_AddStringToObject(root, "id", r->id);
  cJSON_AddStringToObject(root, "object", object);
  cJSON_AddNumberToObject(root, "created", (double)r->created);
  cJSON_AddStringToObject(root, "model", r->serving->voice->name);
  return root;
}

static void add_usage(cJSON *to, const request *r) {
  cJSON *usage = cJSON_AddObjectToObject(to, "usage");
  cJSON_AddNumberToObject(usage, "prompt_tokens", (double)r->prompt_tokens);
  cJSON_AddNumberToObject(usage, "completion_tokens", (double)r->answer_tokens);
  cJSON_AddNumberToObject(usage, "total_tokens", (double)(r->prompt_tokens + r->answer_tokens));
  cJSON *details = cJSON_AddObjectToObject(usage, "prompt_tokens_details");
  cJSON_AddNumberToObject(details, "cached_tokens", (double)r->cached_tokens);
}

static cJSON *choice_json(const choice *c) {
  cJSON *root = cJSON_CreateObject();
  cJSON_AddNumberToObject(root, "index", c->index);
  return root;
}

static cJSON *whole_choice(choice *c) {
  cJSON *root = choice_json(c), *to = root;
  if (c->of->asked.chat) {
    to = cJSON_AddObjectToObject(root, "message");
    cJSON_AddStringToObject(to, "role", "assistant");
  }
  json_add_text(to, to == root ? "text" : "content", c->text, c->bytes);
  add_logprobs(root, c, c->bytes, true);
  cJSON_AddStringToObject(root, "finish_reason", c->finish);
  return root;
}

char *reply_whole(const request *r) {
  cJSON *root = head_json(r, false), *choices = cJSON_AddArrayToObject(root, "choices");
  for (int i = 0; i < r->nchoices; i++) cJSON_AddItemToArray(choices, whole_choice(&r->choices[i]));
  add_usage(root, r);
  return print(root);
}

/* The event of one choice, or of none. */
static char *piece_event(const request *r, cJSON *choice) {
  cJSON *root = head_json(r, true), *choices = cJSON_AddArrayToObject(root, "choices");
  if (choice) cJSON_AddItemToArray(choices, choice);
  else add_usage(root, r);
  return event(root);
}

char *reply_piece(choice *c, const char *text, size_t bytes, const char *finish) {
  cJSON *root = choice_json(c), *to = root;
  bool chat = c->of->asked.chat;
  if (chat) to = cJSON_AddObjectToObject(root, "delta");
  if (!chat || bytes) json_add_text(to, chat ? "content" : "text", text, bytes);
  add_logprobs(root, c, c->told.before + bytes, finish);
  add_text_or_null(root, "finish_reason", finish);
  return piece_event(c->of, root);
}

char *reply_role(const choice *c) {
  cJSON *root = choice_json(c), *delta = cJSON_AddObjectToObject(root, "delta");
  cJSON_AddStringToObject(delta, "role", "assistant");
  cJSON_AddStringToObject(delta, "content", "");
  cJSON_AddNullToObject(root, "logprobs");
  cJSON_AddNullToObject(root, "finish_reason");
  return piece_event(c->of, root);
}

char *reply_usage(const request *r) { return piece_event(r, NULL); }
