/* --generate: the model is built a second time, for inference, takes over the
 * values, and is asked for one token after another. */
#include "tools/actorrun/actorrun.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "io/tokenizer/tokenizer.h"
#include "tools/actorrun/chat.h"

typedef struct writer {
  size_t count, capacity;
  int32_t *tokens;   /* prompt, then what was written */
  int64_t vocab, rows; /* sizes of the logits: one row for each token that is seen */
  bool bytes;        /* tokens are bytes of text */
  sli_tokenizer *tokenizer; /* or what makes text of them, or NULL */
  size_t shown;      /* bytes of that text that were printed */
  int32_t end;       /* the token that ends what is written; -1: none does */
  double temperature;
  uint64_t seed;
  int64_t row;       /* of the logits that follow the last token */
  float *logits;     /* [vocab] */
  bool answered;
} writer;

static void add_token(writer *w, int32_t token) {
  SLI_GROW(w->tokens, w->count, w->capacity);
  w->tokens[w->count++] = token;
}

/* Fills the window with the newest tokens, from its start; what stands behind
 * the last one cannot be seen from there. */
static void feed(void *ctx, const sl_tick *tick, int32_t *tokens, int64_t count) {
  (void)tick;
  writer *w = ctx;
  size_t n = SLI_MIN(w->count, (size_t)count);
  memset(tokens, 0, (size_t)count * sizeof *tokens);
  memcpy(tokens, w->tokens + (w->count - n), n * sizeof *tokens);
  w->row = (int64_t)n - 1;
}

static void take_output(void *ctx, const char *name, const sl_type *type, const void *data) {
  writer *w = ctx;
  if (strcmp(name, "logits") || w->row >= sl_type_rows(type)) return;
  memcpy(w->logits, (const float *)data + w->row * w->vocab, (size_t)w->vocab * sizeof(float));
  w->answered = true;
}

/* A number in [0, 1) for each place in the text (splitmix64). */
static double draw(uint64_t seed, uint64_t place) {
  uint64_t z = seed * UINT64_C(0xd1342543de82ef95) + (place + 1) * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static int32_t likeliest(const writer *w) {
  int32_t best = 0;
  for (int32_t v = 1; v < w->vocab; v++)
    if (w->logits[v] > w->logits[best]) best = v;
  return best;
}

static int32_t sample(const writer *w) {
  int32_t best = likeliest(w);
  if (w->temperature == 0) return best;
  double sum = 0, top = w->logits[best];
  for (int64_t v = 0; v < w->vocab; v++) sum += exp((w->logits[v] - top) / w->temperature);
  double left = draw(w->seed, w->count) * sum;
  for (int32_t v = 0; v < w->vocab; v++)
    if ((left -= exp((w->logits[v] - top) / w->temperature)) < 0) return v;
  return best;
}

/* ---- the prompt ------------------------------------------------------------------------ */

static sl_status read_numbers(writer *w, const char *text) {
  for (const char *at = text + strspn(text, " ,\n"); *at; at += strspn(at, " ,\n")) {
    char *end;
    long long v = strtoll(at, &end, 10);
    if (end == at || v < 0 || v >= w->vocab)
      return sl_fail(SL_E_USAGE, "--prompt: with a vocabulary of %lld it is a list of numbers "
                     "below that, not \"%.20s\"", (long long)w->vocab, at);
    add_token(w, (int32_t)v);
    at = end;
  }
  if (!w->count) add_token(w, 0);
  return SL_OK;
}

static sl_status read_text(writer *w, const char *text, bool whole) {
  sli_token_row row = {0};
  sl_status status = sli_tokenizer_encode(w->tokenizer, text, strlen(text), whole, &row);
  if (!status && !row.count) status = sli_tokenizer_encode(w->tokenizer, "\n", 1, true, &row);
  for (size_t i = 0; i < row.count && !status; i++) {
    if (row.items[i] >= w->vocab)
      status = sl_fail(SL_E_USAGE, "--prompt: token %d is outside the vocabulary of %lld",
                       row.items[i], (long long)w->vocab);
    add_token(w, row.items[i]);
  }
  free(row.items);
  return status;
}

/* The token that a mark is; -1: it is none. */
static int32_t token_of(const writer *w, const char *mark) {
  sli_token_row row = {0};
  sl_status status = mark ? sli_tokenizer_encode(w->tokenizer, mark, strlen(mark), false, &row) : SL_OK;
  int32_t token = !status && row.count == 1 ? row.items[0] : -1;
  free(row.items);
  return token;
}

/* What is said to the model; of the text, only its answer is printed. */
static sl_status read_chat(writer *w, const settings *s) {
  char *prompt = NULL, *end = NULL;
  sl_status status = chat_prompt(s, &prompt, &end);
  if (!status) status = read_text(w, prompt, false);
  if (!status && (int64_t)w->count >= w->rows)
    status = sl_fail(SL_E_USAGE, "--chat: its %zu tokens leave no room for an answer in a context of %lld",
                     w->count, (long long)w->rows);
  if (!status) {
    w->end = token_of(w, end);
    free(sli_tokenizer_decode(w->tokenizer, w->tokens, w->count, false, &w->shown));
  }
  free(prompt);
  free(end);
  return status;
}

static sl_status read_prompt(writer *w, const settings *s) {
  const char *text = sl_arg_text(s->run, "prompt");
  if (sl_arg_given(s->run, "chat", 0)) return read_chat(w, s);
  if (w->tokenizer) return read_text(w, text, true);
  if (!w->bytes) return read_numbers(w, text);
  if (!*text) text = "\n";
  for (const char *at = text; *at; at++) {
    unsigned char byte = (unsigned char)*at;
    if (byte >= w->vocab)
      return sl_fail(SL_E_USAGE, "--prompt: byte %d is outside the vocabulary of %lld", byte,
                     (long long)w->vocab);
    add_token(w, byte);
  }
  return SL_OK;
}

/* What the tokens so far have become, but for the half of a character at its end. */
static void print_text(writer *w) {
  size_t bytes;
  char *text = sli_tokenizer_decode(w->tokenizer, w->tokens, w->count, false, &bytes);
  while (bytes >= 3 && !memcmp(text + bytes - 3, "\ufffd", 3)) bytes -= 3;
  if (bytes > w->shown) fwrite(text + w->shown, 1, bytes - w->shown, stdout);
  w->shown = SLI_MAX(w->shown, bytes);
  free(text);
}

static void print_token(writer *w, int32_t token) {
  if (w->tokenizer)
    print_text(w);
  else if (w->bytes)
    putchar(token);
  else
    printf("%d ", token);
  fflush(stdout);
}

/* ---- the model ------------------------------------------------------------------------- */

/* Sizes of the "logits" that the model promises. */
static sl_status find_vocabulary(writer *w, const sl_graph *g, const char *model) {
  for (int i = 0; i < g->noutputs; i++) {
    const sl_type *type = &g->outputs[i].tensor->type;
    if (strcmp(g->outputs[i].name, "logits") || type->dtype != SL_F32 || type->ndim < 2) continue;
    w->vocab = sl_type_last(type);
    w->rows = sl_type_rows(type);
    w->bytes = w->vocab <= 256;
    w->logits = sli_calloc((size_t)w->vocab, sizeof *w->logits);
    return SL_OK;
  }
  return sl_fail(SL_E_UNSUPPORTED, "--generate: model %s has no f32 output \"logits\"", model);
}

static sl_status write_tokens(writer *w, sl_runtime *rt, int64_t count) {
  for (size_t i = 0; i < w->count && !w->tokenizer; i++) print_token(w, w->tokens[i]);
  for (int64_t n = 0; n < count; n++) {
    w->answered = false;
    sl_status status = sl_runtime_run(rt, 1);
    if (status) return status;
    if (!w->answered)
      return sl_fail(SL_E_UNSUPPORTED, "--generate: the model's logits have no row per token");
    for (int64_t v = 0; v < w->vocab; v++)
      if (!isfinite(w->logits[v]))
        return sl_fail(SL_E_NUMERIC, "--generate: logit %lld is not finite", (long long)v);
    int32_t token = sample(w);
    if (token == w->end) break;
    add_token(w, token);
    print_token(w, w->tokens[w->count - 1]);
  }
  printf("\n");
  return SL_OK;
}

/* One CPU device with all the threads of the training devices together, or where those
 * are no CPUs with all cores. */
static sl_status write_with(writer *w, sl_graph *g, const job *j) {
  const settings *s = j->settings;
  int threads = s->devices.threads ? s->devices.threads * s->devices.count
                                   : sl_placement_default(j->machine.machine, 1);
  sl_lower_options options = {.stages = 1, .chunks = 1,
                              .devices = {.kind = "cpu", .count = 1, .threads = threads},
                              .seed = w->seed, .on_output = take_output, .ctx = w};
  sl_lowered *lowered = NULL;
  sl_runtime *rt = NULL;
  sl_placement *placement = NULL;
  sl_status status = sl_placement_create(j->machine.machine, 1, threads, &placement);
  if (!status) status = sl_lower(g, &options, &lowered);
  sl_runtime_options run = {.workers = 1, .bind = sl_placement_bind, .bind_arg = placement};
  if (!status) status = sl_runtime_create(sl_lowered_plan(lowered), &run, &rt);
  if (!status) {
    sl_lowered_attach(lowered, rt);
    status = sl_weights_copy(j->lowered, j->rt, lowered, rt);
    if (!status) status = write_tokens(w, rt, sl_arg_int(s->run, "generate"));
  }
  sl_runtime_destroy(rt);
  sl_lowered_destroy(lowered);
  sl_placement_destroy(placement);
  return status;
}

/* The graph and the prompt, before anything is computed. */
static sl_status open_writer(writer *w, const settings *s, sl_graph **g) {
  *w = (writer){.temperature = sl_arg_float(s->run, "temperature"),
                .seed = (uint64_t)sl_arg_int(s->run, "seed"), .end = -1};
  *g = sl_graph_create(&(sl_graph_options){
      .microbatches = 1, .pieces = 1, .infer = true, .training = &s->training,
      .feed_tokens = feed, .feed_ctx = w});
  sl_status status = plan_build(s, *g);
  if (!status) status = find_vocabulary(w, *g, s->model->name);
  if (!status && s->data.tokenizer) status = sli_tokenizer_open(s->data.tokenizer, &w->tokenizer);
  return status ? status : read_prompt(w, s);
}

static void close_writer(writer *w, sl_graph *g) {
  sl_graph_destroy(g);
  sli_tokenizer_close(w->tokenizer);
  free(w->tokens);
  free(w->logits);
}

sl_status generate_check(const settings *s) {
  writer w;
  sl_graph *g;
  if (!sl_arg_int(s->run, "generate")) return SL_OK;
  sl_status status = open_writer(&w, s, &g);
  close_writer(&w, g);
  return status;
}

sl_status generate(const job *j) {
  writer w;
  sl_graph *g;
  sl_status status = open_writer(&w, j->settings, &g);
  if (!status) status = write_with(&w, g, j);
  close_writer(&w, g);
  return status;
}
