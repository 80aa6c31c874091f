/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorrun/samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/build/build.h"
#include "text/chats/chats.h"

enum { SAMPLES = 3, MOST_TOKENS = 400, WIDTH = 72 };

char *samples_grouped(char out[32], double number) {
  char digits[32];
  int n = snprintf(digits, sizeof digits, "%.0f", number), at = 0;
  for (int i = 0; i < n && at + 2 < 32; i++) {
    if (i && (n - i) % 3 == 0) out[at++] = ',';
    out[at++] = digits[i];
  }
  out[at] = 0;
  return out;
}

/* Prints "1,204 chats". */
static void print_number(const char *before, int64_t number, const char *what) {
  char text[32];
  printf("%s%s %s%s", before, samples_grouped(text, (double)number), what,
         number == 1 || !strcmp(what, "learned") ? "" : "s");
}

void samples_count(const sli_tokens *tokens, int64_t context) {
  sli_tokens_chats n;
  int64_t rows = sli_tokens_sequences(tokens);
  if (!sli_tokens_are_chats(tokens, &n)) return;
  print_number("; ", n.chats, "chat");
  print_number(" of ", n.tokens, "token");
  print_number(", ", n.learned, "learned");
  if (n.cut) print_number("; ", n.cut, "chat"), printf(" longer than --context cut");
  if (n.dropped) print_number("; ", n.dropped, "chat"), printf(" left out");
  print_number("; ", rows, "row");
  printf(" of %lld, %.0f %% full, ", (long long)context,
         100 * (double)(n.tokens - (n.chats - n.dropped)) / (double)(rows * context));
}

/* ---- samples --------------------------------------------------------------------------------- */

typedef struct sample {
  const sli_tokenizer *tokenizer;
  const uint32_t *words;
  int64_t count, shown;
  bool color;
} sample;

static bool is_learned(const sample *s, int64_t i) { return i && s->words[i] >> 31; }

/* Prints a run of tokens that are all learned, or all not learned. */
static void print_run(const sample *s, int64_t begin, int64_t end) {
  bool learned = is_learned(s, begin);
  int32_t *tokens = sli_calloc((size_t)(end - begin), sizeof *tokens);
  for (int64_t i = begin; i < end; i++) tokens[i - begin] = (int32_t)(s->words[i] & INT32_MAX);
  size_t bytes;
  char *text = sli_tokenizer_decode(s->tokenizer, tokens, (size_t)(end - begin), true, &bytes);
  size_t room = 4 * bytes + 8;
  char *safe = sli_calloc(room, 1);
  fputs(s->color ? (learned ? "\033[1;32m" : "\033[2m") : learned ? "\u27e6" : "", stdout);
  fputs(sli_escape(safe, room, text), stdout);
  fputs(s->color ? "\033[0m" : learned ? "\u27e7" : "", stdout);
  free(safe);
  free(text);
  free(tokens);
}

static void print_sample(const sample *s, int64_t number) {
  char head[64], text[32];
  int64_t learned = 0;
  for (int64_t i = 0; i < s->count; i++) learned += is_learned(s, i);
  int n = snprintf(head, sizeof head, " chat %lld: %s tokens, ", (long long)number,
                   samples_grouped(text, (double)s->count));
  n += snprintf(head + n, sizeof head - (size_t)n, "%s learned ",
                samples_grouped(text, (double)learned));
  printf("\n\u2500\u2500%s", head);
  for (int i = n + 2; i < WIDTH; i++) printf("\u2500");
  printf("\n");
  for (int64_t i = 0, end; i < s->shown; i = end) {
    for (end = i + 1; end < s->shown && is_learned(s, end) == is_learned(s, i);) end++;
    print_run(s, i, end);
  }
  if (s->shown < s->count) print_number("\n\u2026 ", s->count - s->shown, "more token");
  printf("\n");
}

static sl_status print_samples(const settings *s, const sli_tokens *tokens, int64_t context) {
  sli_tokenizer *tokenizer;
  sl_status status = sli_tokenizer_open(s->data.tokenizer, &tokenizer);
  if (status) return status;
  sample one = {.tokenizer = tokenizer, .color = isatty(STDOUT_FILENO) && !getenv("NO_COLOR")};
  printf("%s", s->model->name);
  samples_count(tokens, context);
  printf("%s is learned\n", one.color ? "\033[1;32mgreen\033[0m" : "what stands in \u27e6\u27e7");
  for (int64_t i = 0; i < SAMPLES && (one.words = sli_tokens_chat(tokens, i, &one.count)); i++) {
    one.shown = SLI_MIN(SLI_MIN(one.count, context + 1), (int64_t)MOST_TOKENS);
    print_sample(&one, i + 1);
  }
  sli_tokenizer_close(tokenizer);
  return SL_OK;
}

sl_status samples_show(const settings *s) {
  sl_graph *g;
  int64_t context, batch;
  sl_status status = plan_data(s, &g);
  const sli_tokens *tokens = status ? NULL : sli_graph_tokens(g, &context, &batch);
  if (!status && (!tokens || !sli_tokens_are_chats(tokens, NULL)))
    status = sl_fail(SL_E_USAGE, "--show-data: --data has no chats (.jsonl) to show");
  if (!status) status = print_samples(s, tokens, context);
  sl_graph_destroy(g);
  return status;
}
