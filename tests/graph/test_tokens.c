/* SPDX-License-Identifier: Apache-2.0 */
/* Tests token files: sequences come out in order, and bad files are reported.
 * labels: unthreaded */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sluice/sluice.h>

#include "graph/graph.h"
#include "text/tokens/tokens.h"
#include "tests/support/test.h"

static char folder[] = "tokens_XXXXXX";

static const char *write_file(const char *name, const void *bytes, size_t count) {
  static char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(bytes, 1, count, file) == count, "cannot write %s", path);
  fclose(file);
  return path;
}

static sl_status open_tokens(const char *paths, int64_t context, int64_t vocab, sli_tokens **out) {
  return sli_tokens_open(&(sli_tokens_options){.paths = paths, .context = context, .vocab = vocab},
                         out);
}

static void fails(const char *path, int64_t context, int64_t vocab, sl_status status,
                  const char *text) {
  sli_tokens *tokens = NULL;
  sl_status found = open_tokens(path, context, vocab, &tokens);
  CHECK(found == status && !tokens, "%s: status %d, wanted %d", path, found, status);
  CHECK(strstr(sl_detail(), path) && strstr(sl_detail(), text), "no \"%s\" in: %s", text,
        sl_detail());
}

static void bad_files_are_told(void) {
  fails("no/such/file.txt", 4, 256, SL_E_INPUT, "No such file");
  fails(folder, 4, 256, SL_E_INPUT, "is a directory without token files");
  fails("/dev/null", 4, 256, SL_E_INPUT, "not a regular file");
  fails(write_file("empty.txt", "", 0), 4, 256, SL_E_INPUT, "is empty");
  fails(write_file("odd.u16", "\1\0\2", 3), 4, 256, SL_E_INPUT, "has 3 bytes, no multiple of 2");
  fails(write_file("odd.bin", "\1\0\2", 3), 1, 256, SL_E_INPUT, "has 3 bytes, no multiple of 2");
  fails(write_file("short.txt", "abcd", 4), 4, 256, SL_E_INPUT, "has 4 tokens");
  fails(write_file("short.u16", "\1\0\2\0\3\0\4\0", 8), 4, 256, SL_E_INPUT, "needs 5");
}

static void large_tokens_are_told_with_position_and_value(void) {
  fails(write_file("low.txt", "\1\2\3\4\5", 5), 4, 5, SL_E_INPUT, "token 4 is 5");
  static uint16_t many[100000];
  for (int i = 0; i < 100000; i++) many[i] = (uint16_t)(i % 50000);
  many[70001] = 50257;
  const char *path = write_file("many.bin", many, sizeof many);
  fails(path, 1024, 50257, SL_E_INPUT, "token 70001 is 50257, but the vocabulary has 50257 tokens");
  sli_tokens *tokens;
  CHECK(!open_tokens(path, 1024, 50258, &tokens), "one more is enough: %s", sl_detail());
  sli_tokens_close(tokens);
}

/* For any context and file length, sequence i starts at (i mod n) * context. */
static void sequences_follow_one_another(void) {
  uint16_t words[300];
  uint8_t bytes[300];
  for (int i = 0; i < 300; i++) bytes[i] = (uint8_t)(words[i] = (uint16_t)(7 * i % 251));
  for (int context = 1; context < 40; context += 6)
    for (int count = context + 1; count < 300; count += 53) {
      sli_tokens *files[2];
      CHECK(!open_tokens(write_file("a.txt", bytes, (size_t)count), context, 256, &files[0]), "%s",
            sl_detail());
      CHECK(!open_tokens(write_file("a.u16", words, 2 * (size_t)count), context, 256, &files[1]),
            "%s", sl_detail());
      for (int f = 0; f < 2; f++) {
        int64_t n = sli_tokens_sequences(files[f]);
        CHECK(n == (count - 1) / context, "%d tokens, context %d: %lld sequences", count, context,
              (long long)n);
        for (int64_t i = 0; i < 2 * n + 1; i++) {
          int32_t out[40], targets[40];
          sli_tokens_read(files[f], i, 0, context,
                          &(sli_tokens_out){.tokens = out, .targets = targets});
          for (int j = 0; j < context; j++) {
            int64_t at = i % n * context + j;
            CHECK(out[j] == words[at] && targets[j] == words[at + 1], "sequence %lld, token %d",
                  (long long)i, j);
          }
        }
        sli_tokens_close(files[f]);
      }
    }
}

/* ---- as a source of a graph ---------------------------------------------------------- */

static void feed(void *ctx, const sl_tick *tick, int32_t *tokens, int64_t count) {
  for (int64_t i = 0; i < count; i++) tokens[i] = *(int *)ctx + (int32_t)(tick->step + i);
}

static const sl_source *source_of(const sl_graph *g) { return g->nodes[0]->attrs.user; }

static void rows_are_numbered_across_microbatches_and_steps(void) {
  enum { ROWS = 3, CONTEXT = 5, MICROBATCHES = 4 };
  uint8_t bytes[200];
  for (int i = 0; i < 200; i++) bytes[i] = (uint8_t)i;
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = MICROBATCHES});
  sl_tensor *targets;
  sl_tensor *tokens = sl_tokens(g, write_file("r.txt", bytes, 200), ROWS, CONTEXT, 200, &targets);
  CHECK(tokens && targets, "%s", sl_detail());
  int64_t i = 0, n = 199 / CONTEXT;
  for (int64_t step = 0; step < 8; step++)
    for (int32_t m = 0; m < MICROBATCHES; m++) {
      int32_t out[2][ROWS * CONTEXT];
      sl_tick tick = {.number = step * MICROBATCHES + m, .step = step, .microbatch = m};
      const sl_source *s = source_of(g);
      s->fill(s->ctx, &tick, (void *[]){out[0], out[1]});
      for (int row = 0; row < ROWS; row++, i++)
        for (int t = 0; t < CONTEXT; t++) {
          int32_t want = (int32_t)(i % n * CONTEXT + t);
          CHECK(out[0][row * CONTEXT + t] == want && out[1][row * CONTEXT + t] == want + 1,
                "step %lld microbatch %d row %d", (long long)step, m, row);
        }
      s->fill(s->ctx, &tick, (void *[]){NULL, out[1]}); /* an output without readers */
    }
  sl_graph_destroy(g);
}

static void inference_feeds_tokens(void) {
  int base = 40;
  sl_graph *g =
      sl_graph_create(&(sl_graph_options){.infer = true, .feed_tokens = feed, .feed_ctx = &base});
  sl_tensor *targets;
  CHECK(sl_tokens(g, "not opened", 1, 3, 64, &targets), "%s", sl_detail());
  int32_t out[2][3] = {{0}, {9, 9, 9}};
  const sl_source *s = source_of(g);
  s->fill(s->ctx, &(sl_tick){.step = 1}, (void *[]){out[0], out[1]});
  CHECK(out[0][0] == 41 && out[0][2] == 43, "tokens are the feed's");
  CHECK(!out[1][0] && !out[1][2], "targets are zeros");
  sl_graph_destroy(g);
}

static void the_graph_hands_file_errors_on(void) {
  sl_graph *g = sl_graph_create(NULL);
  sl_tensor *targets = (sl_tensor *)g;
  CHECK(!sl_tokens(g, "no/such/file", 1, 3, 64, &targets) && !targets, "nothing comes out");
  CHECK(sl_graph_status(g) == SL_E_INPUT && strstr(sl_detail(), "no/such/file"), "%s", sl_detail());
  sl_graph_destroy(g);
}

int main(void) {
  CHECK(mkdtemp(folder), "cannot make a folder");
  RUN(bad_files_are_told);
  RUN(large_tokens_are_told_with_position_and_value);
  RUN(sequences_follow_one_another);
  RUN(rows_are_numbered_across_microbatches_and_steps);
  RUN(inference_feeds_tokens);
  RUN(the_graph_hands_file_errors_on);
  char command[64];
  snprintf(command, sizeof command, "rm -r %s", folder);
  CHECK(!system(command), "%s", command);
  return 0;
}
