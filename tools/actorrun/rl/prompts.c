/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts: one JSON line each, with a text, tokens or messages; or one line of text each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "io/file.h"
#include "tools/actorrun/rl/rl.h"

typedef struct reader {
  const settings *s;
  rl_prompts *to;
  sli_chat_found found;
  const sli_chat *chat; /* NULL until needed */
  int64_t vocabulary;
} reader;

/* ---- tokens -------------------------------------------------------------------------------- */

static bool reads_bytes(const reader *r) { return !r->s->data.tokenizer; }

/* Tokenizes a text. Without a tokenizer the tokens are its bytes. */
static sl_status encode(const reader *r, const char *text, bool whole, sli_token_row *row) {
  if (!reads_bytes(r))
    return sli_tokenizer_encode(r->to->tokenizer, text, strlen(text), whole, row);
  for (const char *at = text; *at; at++) sli_token_row_add(row, (unsigned char)*at);
  r->to->bytes = true;
  return SL_OK;
}

static sl_status add_stop(reader *r, const char *text, const char *where) {
  sli_token_row row = {0};
  sl_status status = encode(r, text, false, &row);
  if (!status && row.count == 1) {
    rl_prompts *p = r->to;
    p->stop = sli_realloc(p->stop, (size_t)p->nstop + 1, sizeof *p->stop);
    p->stop[p->nstop++] = row.items[0];
  } else if (!status && where)
    status = sl_fail(SL_E_USAGE, "%s: \"%s\" is %zu tokens; it must be a single token", where, text,
                     row.count);
  free(row.items);
  return status;
}

/* Reads --stop, where \n stands for a newline. */
static sl_status read_stops(reader *r) {
  const char *text;
  sl_status status = SL_OK;
  for (int i = 0; !status && (text = sl_arg_given(r->s->run, "stop", i)); i++) {
    bool line = !strcmp(text, "\\n");
    status = add_stop(r, line ? "\n" : text, "--stop");
  }
  return status;
}

/* ---- chats --------------------------------------------------------------------------------- */

static sl_status need_chat(reader *r) {
  if (r->chat) return SL_OK;
  if (reads_bytes(r))
    return sl_fail(SL_E_USAGE, "messages need a tokenizer and its chat template: --tokenizer FILE");
  sl_status status = sli_chat_find(r->s->data.tokenizer, &r->found);
  if (!status)
    status = sli_chat_choose(&r->found, r->s->data.tokenizer, settings_text(r->s, "chat-template"),
                             &r->chat);
  if (status) return status;
  const char *end = sli_chat_end(r->chat, &r->found.marks);
  return end ? add_stop(r, end, NULL) : SL_OK;
}

static sl_status render(reader *r, const cJSON *messages, char **text) {
  sl_status status = need_chat(r);
  if (status) return status;
  char *json = cJSON_PrintUnformatted(messages);
  const sli_chat_json in = {.messages = json, .messages_bytes = strlen(json)};
  status = sli_chat_render_json(r->chat, &r->found.marks, &in, NULL, text);
  cJSON_free(json);
  return status;
}

/* ---- lines --------------------------------------------------------------------------------- */

static sl_status take_numbers(const cJSON *prompt, sli_token_row *row) {
  const cJSON *each;
  cJSON_ArrayForEach(each, prompt) {
    if (!cJSON_IsNumber(each) || each->valuedouble != each->valueint)
      return sl_fail(SL_E_INPUT, "\"prompt\" must be a string or an array of tokens");
    sli_token_row_add(row, each->valueint);
  }
  return SL_OK;
}

/* Reads "frames": indices of frames in the model's file. */
static sl_status take_frames(const cJSON *line, sl_framed *out) {
  const cJSON *frames = cJSON_GetObjectItemCaseSensitive(line, "frames"), *each;
  int n = frames ? cJSON_GetArraySize(frames) : 0;
  int64_t *all = n ? sli_calloc((size_t)n, sizeof *all) : NULL;
  *out = (sl_framed){.frames = all};
  bool good = !frames || cJSON_IsArray(frames);
  cJSON_ArrayForEach(each, frames) {
    good &= cJSON_IsNumber(each) && each->valuedouble == each->valueint && each->valueint >= 0;
    if (good) all[out->count++] = each->valueint;
  }
  return good ? SL_OK : sl_fail(SL_E_INPUT, "\"frames\" must be an array of frame numbers");
}

static void add(rl_prompts *p, rl_prompt prompt, const sli_token_row *row, sl_framed frames) {
  SLI_GROW(p->prompts, (size_t)p->count, p->capacity);
  p->tokens = sli_realloc(p->tokens, p->capacity, sizeof *p->tokens);
  p->frames = sli_realloc(p->frames, p->capacity, sizeof *p->frames);
  p->tokens[p->count] = (sl_prompt){row->items, (int64_t)row->count};
  p->frames[p->count] = frames;
  p->prompts[p->count++] = prompt;
}

static char *text_of(const cJSON *of, const char *key) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(of, key);
  if (cJSON_IsString(item)) return sli_strdup(item->valuestring);
  if (!item || cJSON_IsNull(item)) return NULL;
  char *json = cJSON_PrintUnformatted(item), *copy = sli_strdup(json);
  cJSON_free(json);
  return copy;
}

static char *json_of(const cJSON *of, const char *key) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(of, key);
  char *json = item ? cJSON_PrintUnformatted(item) : NULL, *copy = json ? sli_strdup(json) : NULL;
  cJSON_free(json);
  return copy;
}

static sl_status take_object(reader *r, const cJSON *line) {
  const cJSON *prompt = cJSON_GetObjectItemCaseSensitive(line, "prompt"),
              *messages = cJSON_GetObjectItemCaseSensitive(line, "messages");
  rl_prompt p = {0};
  sl_framed frames = {0};
  sli_token_row row = {0};
  sl_status status = SL_OK;
  if (!cJSON_IsObject(line) || !prompt == !messages)
    return sl_fail(SL_E_INPUT, "a line must be an object with \"prompt\" or \"messages\"");
  if (cJSON_IsArray(messages)) {
    status = render(r, messages, &p.text);
    if (!status) status = encode(r, p.text, false, &row);
  } else if (cJSON_IsString(prompt)) {
    p.text = sli_strdup(prompt->valuestring);
    status = encode(r, p.text, true, &row);
  } else if (cJSON_IsArray(prompt)) status = take_numbers(prompt, &row);
  else status = sl_fail(SL_E_INPUT, "\"%s\" has the wrong type", prompt ? "prompt" : "messages");
  if (!status && !row.count) status = sl_fail(SL_E_INPUT, "the prompt is empty");
  if (!status) status = take_frames(line, &frames);
  if (status) {
    free((void *)frames.frames);
    free(row.items);
    free(p.text);
    return status;
  }
  p.answer = text_of(line, "answer");
  r->to->bytes |= p.answer != NULL;
  p.data = json_of(line, "data");
  add(r->to, p, &row, frames);
  return SL_OK;
}

static sl_status take_text(reader *r, const char *line) {
  sli_token_row row = {0};
  sl_status status = encode(r, line, true, &row);
  if (!status) add(r->to, (rl_prompt){.text = sli_strdup(line)}, &row, (sl_framed){0});
  return status;
}

static sl_status take_line(reader *r, const char *path, int64_t number, char *line, bool json) {
  if (!*line) return SL_OK;
  char *where = sli_format("%s:%lld", path, (long long)number);
  sli_json doc = {0};
  sl_status status = json ? sli_json_read(where, line, strlen(line), 0, &doc) : SL_OK;
  if (!status) {
    status = json ? take_object(r, doc.root) : take_text(r, line);
    if (status) sl_fail(status, "--prompts %s: %s", where, sl_detail());
  }
  sli_json_fini(&doc);
  free(where);
  return status;
}

static sl_status take_lines(reader *r, const char *path, char *text) {
  size_t n = strlen(path);
  bool json = n > 6 && !strcmp(path + n - 6, ".jsonl");
  sl_status status = SL_OK;
  int64_t number = 1;
  for (char *line = text, *next; line && !status; line = next, number++) {
    next = strchr(line, '\n');
    if (next) *next++ = 0;
    line[strcspn(line, "\r")] = 0;
    status = take_line(r, path, number, line, json);
  }
  if (!status && !r->to->count)
    status = sl_fail(SL_E_INPUT, "--prompts %s: the file is empty", path);
  return status;
}

/* Writes the texts of prompts given as arrays of tokens, once all lines have been read. */
static void name_prompts(rl_prompts *p) {
  for (int64_t i = 0; i < p->count; i++)
    if (!p->prompts[i].text)
      p->prompts[i].text = rl_prompts_text(p, p->tokens[i].tokens, p->tokens[i].count);
}

/* ---- interface ----------------------------------------------------------------------------- */

sl_status rl_prompts_read(const settings *s, rl_prompts *out) {
  const char *path = settings_text(s, "prompts");
  reader r = {.s = s, .to = out};
  char *text = NULL;
  *out = (rl_prompts){0};
  sl_status status = sli_file_read(path, &text);
  if (!status && s->data.tokenizer) status = sli_tokenizer_open(s->data.tokenizer, &out->tokenizer);
  if (!status) status = read_stops(&r);
  if (!status) status = take_lines(&r, path, text);
  if (!status) name_prompts(out);
  sli_chat_free(r.chat);
  sli_chat_found_fini(&r.found);
  free(text);
  if (status) rl_prompts_free(out);
  return status;
}

void rl_prompts_free(rl_prompts *p) {
  for (int64_t i = 0; i < p->count; i++) {
    free(p->prompts[i].text);
    free(p->prompts[i].answer);
    free(p->prompts[i].data);
    free((void *)p->tokens[i].tokens);
    free((void *)p->frames[i].frames);
  }
  free(p->prompts);
  free(p->tokens);
  free(p->frames);
  free(p->stop);
  sli_tokenizer_close(p->tokenizer);
  *p = (rl_prompts){0};
}

static bool ends(const rl_prompts *p, int32_t token) {
  for (int i = 0; i < p->nstop; i++)
    if (p->stop[i] == token) return true;
  return false;
}

static void print_numbers(FILE *out, const int32_t *tokens, int64_t count) {
  for (int64_t i = 0; i < count; i++) fprintf(out, i ? " %d" : "%d", tokens[i]);
}

/* Prints bytes as UTF-8. A zero, which would end the text, or a token above 255 becomes U+FFFD. */
static void print_bytes(FILE *out, const int32_t *tokens, int64_t count) {
  const char malformed = (char)0xff;
  char *text = sli_calloc((size_t)count + 1, 1);
  for (int64_t i = 0; i < count; i++)
    text[i] = tokens[i] > 0 && tokens[i] < 256 ? (char)tokens[i] : malformed;
  sli_utf8_print(out, text, (size_t)count);
  free(text);
}

char *rl_prompts_text(const rl_prompts *p, const int32_t *tokens, int64_t count) {
  size_t bytes;
  if (p->tokenizer) return sli_tokenizer_decode(p->tokenizer, tokens, (size_t)count, false, &bytes);
  char *text;
  FILE *out = sli_memory_stream(&text, &bytes);
  (p->bytes ? print_bytes : print_numbers)(out, tokens, count);
  fclose(out);
  return text;
}

char *rl_answer_text(const rl_prompts *p, const sl_answer *answer) {
  int64_t count = answer->count;
  if (count && ends(p, answer->tokens[count - 1])) count--;
  return rl_prompts_text(p, answer->tokens, count);
}
