/* SPDX-License-Identifier: Apache-2.0 */
/* Token files of each type read back as written. Unreadable files and damaged NumPy headers are
 * refused with an error that names the file. Shuffled orders are permutations.
 * labels: random unthreaded */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sluice/status.h>

#include "base/base.h"
#include "io/npy.h"
#include "text/tokens/shuffle.h"
#include "text/tokens/tokens.h"
#include "tests/support/rng.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

static char folder[] = "token_files_XXXXXX";
enum { COUNT = 40, CONTEXT = 8, VOCAB = 70000 };

static const char *path_of(const char *name) {
  static char path[4][256];
  static int next;
  char *out = path[next++ % 4];
  snprintf(out, sizeof path[0], "%s/%s", folder, name);
  return out;
}

static const char *write_file(const char *name, const void *bytes, size_t count) {
  const char *path = path_of(name);
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(bytes, 1, count, file) == count, "cannot write %s", path);
  fclose(file);
  return path;
}

/* Writes tokens 1, 4, 7, ... of the given width behind a header. */
static const char *write_tokens(const char *name, const void *head, size_t head_bytes, int width) {
  uint8_t bytes[2048];
  memcpy(bytes, head, head_bytes);
  for (uint64_t i = 0; i < COUNT; i++) {
    uint64_t token = 1 + 3 * i;
    memcpy(bytes + head_bytes + i * (size_t)width, &token, (size_t)width);
  }
  return write_file(name, bytes, head_bytes + COUNT * (size_t)width);
}

static sl_status open_as(const char *paths, int64_t vocab, uint64_t shuffle, sli_tokens **out) {
  return sli_tokens_open(
      &(sli_tokens_options){.paths = paths, .context = CONTEXT, .vocab = vocab, .shuffle = shuffle},
      out);
}

static void holds(const char *paths) {
  sli_tokens *t;
  CHECK(!open_as(paths, VOCAB, 0, &t), "%s: %s", paths, sl_detail());
  CHECK(sli_tokens_sequences(t) == (COUNT - 1) / CONTEXT, "%s: sequences", paths);
  for (int i = 0; i < COUNT / CONTEXT - 1; i++) {
    int32_t out[CONTEXT], targets[CONTEXT];
    sli_tokens_read(t, i, 0, CONTEXT, &(sli_tokens_out){.tokens = out, .targets = targets});
    for (int j = 0; j < CONTEXT; j++)
      CHECK(out[j] == 1 + 3 * (i * CONTEXT + j) && targets[j] == out[j] + 3,
            "%s: sequence %d, token "
            "%d is %d",
            paths, i, j, out[j]);
  }
  sli_tokens_close(t);
}

static void refused(const char *paths, int64_t vocab, const char *text) {
  sli_tokens *t = NULL;
  sl_status status = open_as(paths, vocab, 0, &t);
  CHECK(status == SL_E_INPUT && !t, "%s: status %d", paths, status);
  CHECK(strstr(sl_detail(), text), "no \"%s\" in: %s", text, sl_detail());
}

static size_t npy_head(char *out, const char *dictionary) {
  size_t n = strlen(dictionary);
  memcpy(out, "\x93NUMPY\1\0", 8);
  out[8] = (char)(n & 255);
  out[9] = (char)(n >> 8);
  memcpy(out + 10, dictionary, n);
  return 10 + n;
}

static const char *write_npy(const char *name, const char *descr, const char *shape, int width) {
  char dictionary[200], head[256];
  snprintf(dictionary, sizeof dictionary,
           "{'descr': '%s', 'fortran_order': False, 'shape': %s, }    \n", descr, shape);
  return write_tokens(name, head, npy_head(head, dictionary), width);
}

/* ---- claims ---------------------------------------------------------------------------- */

static void each_suffix_says_a_type(void) {
  holds(write_tokens("a.txt", "", 0, 1));
  holds(write_tokens("a.unheard_of", "", 0, 1));
  holds(write_tokens("a.u16", "", 0, 2));
  holds(write_tokens("a.i16", "", 0, 2));
  holds(write_tokens("a.bin", "", 0, 2));
  holds(write_tokens("a.u32", "", 0, 4));
  holds(write_tokens("a.i64", "", 0, 8));
}

static void a_user_can_say_it(void) {
  char text[300];
  snprintf(text, sizeof text, "%s:u32", write_tokens("said.bin", "", 0, 4));
  holds(text);
  snprintf(text, sizeof text, "%s:i64", write_tokens("said.dat", "", 0, 8));
  holds(text);
  snprintf(text, sizeof text, "%s:u64", write_tokens("said:u16.dat", "", 0, 8));
  holds(text);
  holds(write_tokens("whole:u32", "", 0, 1)); /* a file name, not a type */
  snprintf(text, sizeof text, "%s:f32", path_of("said.bin"));
  refused(text, VOCAB, "f32 is not a token type; must be one of text, chats, u8");
  refused("no/such:u32", VOCAB, "no/such: No such file");
}

static void what_is_not_understood_is_refused(void) {
  refused(write_tokens("b.bin", "", 0, 4), VOCAB, "say which with");
  refused(write_tokens("b.ndjson", "{\"messages\":[]}\n", 16, 1), VOCAB,
          "b.ndjson is not plain text by its name, and .ndjson files are not read");
  refused(write_tokens("b.dat", "", 0, 4), VOCAB, "b.dat is not text, and its name does not say");
  refused(write_tokens("b.u32", "", 0, 2), 100, "b.u32: token 0 is 262145");
  refused(write_file("c.u32", "\1\0\0\0\1\0", 6), VOCAB, "has 6 bytes, no multiple of 4");
  refused(write_file("neg.i32", "\1\0\0\0\xff\xff\xff\xff", 8), VOCAB, "token 1 is -1");
  refused(write_file("neg.u64", "\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x80", 16), VOCAB, "token 1 is -");
  uint16_t odd[COUNT] = {7, 50257, 9};
  refused(write_file("large.bin", odd, sizeof odd), 50257,
          "token 1 is 50257, but the vocabulary has 50257 tokens (read as u16; FILE:TYPE");
}

static void headers_of_others_are_read(void) {
  int32_t head[256] = {20240520, 1, COUNT};
  holds(write_tokens("gpt2.bin", head, sizeof head, 2));
  memcpy(head, (int32_t[]){20240801, 7, COUNT}, 12);
  holds(write_tokens("llama3.bin", head, sizeof head, 4));
  head[2] = COUNT + 1;
  refused(write_tokens("cut.bin", head, sizeof head, 4), VOCAB,
          "its header says 41 tokens, but 160");
  write_file("meg.idx", "MMIDIDX\0\0\1\0\0\0\0\0\0\0\4 and more", 27);
  holds(write_tokens("meg.bin", "", 0, 4));
  write_file("meg.idx", "MMIDIDX\0\0\1\0\0\0\0\0\0\0\7 and more", 27);
  refused(path_of("meg.bin"), VOCAB, "meg.idx: type 7 is none of tokens");
}

static void numpy_arrays_are_read(void) {
  holds(write_npy("1.npy", "|u1", "(40,)", 1));
  holds(write_npy("2.npy", "<u2", "(40,)", 2));
  holds(write_npy("4.npy", "<u4", "(40,)", 4));
  holds(write_npy("5.npy", "<i4", "(5, 8)", 4));
  holds(write_npy("8.npy", "<i8", "(2, 4, 5)", 8));
  refused(write_npy("f.npy", "<f4", "(40,)", 4), VOCAB,
          "f.npy: its elements are '<f4'; tokens are");
  refused(write_npy("b.npy", ">u2", "(40,)", 2), VOCAB, "its elements are '>u2'");
  refused(write_npy("s.npy", "<u2", "(41,)", 2), VOCAB, "more elements than the 40 in the file");
  refused(write_npy("o.npy", "<u2", "(9223372036854775807, 9)", 2), VOCAB, "more elements than");
  refused(write_file("text.npy", "tokens", 6), VOCAB, "its header is not that of a NumPy array");
  char head[256];
  size_t n = npy_head(head, "{'descr': '<u2', 'fortran_order': True, 'shape': (5, 8)}");
  refused(write_tokens("c.npy", head, n, 2), VOCAB, "its columns come first");
}

/* Any header is either refused with an error that names the file, or describes data within the
 * file. */
static void damaged_headers_are_harmless(seeds s) {
  static const char *const parts[] = {"{",
                                      "}",
                                      "'descr'",
                                      "'<u2'",
                                      "'|u1'",
                                      ":",
                                      ",",
                                      "(",
                                      ")",
                                      "3",
                                      "'shape'",
                                      "'fortran_order'",
                                      "True",
                                      "False",
                                      "'",
                                      "\"",
                                      " ",
                                      "99999999999999999999",
                                      "-1",
                                      ("{'descr': '<u2', 'fortran_order': "
                                       "False, 'shape': (3,), }"),
                                      "\n",
                                      "\0"};
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    rng d = {.key = seed};
    char text[600] = "", head[800];
    for (uint32_t n = rng_below(&d, 14); n; n--)
      strcat(text, parts[rng_below(&d, SLI_COUNT(parts))]);
    if (rng_below(&d, 3) == 0)
      strcpy(text, "{'descr': '<u2', 'fortran_order': False, 'shape': (5, 8), }");
    size_t size = npy_head(head, text);
    for (uint32_t n = rng_below(&d, 4); n; n--)
      head[rng_below(&d, (uint32_t)size)] = (char)rng_below(&d, 256);
    size = rng_below(&d, 4) ? size : rng_below(&d, (uint32_t)size);
    char *exact = memcpy(sli_calloc(size + 1, 1), head, size); /* sanitizers see a read past it */
    exact = sli_realloc(exact, size ? size : 1, 1);
    sli_npy out;
    sl_status status = sli_npy_read_integers("FILE", exact, size, &out);
    if (status)
      CHECK(status == SL_E_INPUT && !strncmp(sl_detail(), "FILE: ", 6), "seed %llu: %s",
            (unsigned long long)seed, sl_detail());
    else
      CHECK(out.offset + (size_t)out.count * (size_t)out.width <= size, "seed %llu: beyond the end",
            (unsigned long long)seed);
    free(exact);
  }
}

static void several_files_are_one(void) {
  uint8_t bytes[COUNT];
  for (int i = 0; i < COUNT; i++) bytes[i] = (uint8_t)(1 + 3 * i);
  uint32_t words[COUNT];
  for (int i = 0; i < COUNT; i++) words[i] = bytes[i];
  CHECK(!mkdir(path_of("many"), 0700) && !mkdir(path_of("none"), 0700), "no folder");
  write_file("many/b.u32", words + 9, 4 * 20); /* sequences span files */
  write_file("many/a.txt", bytes, 9);
  write_file("many/c.txt", bytes + 29, 11);
  write_file("many/README.md", "not read", 8);
  write_file("many/.hidden.txt", "not read", 8);
  write_file("none/README.md", "not read", 8);
  holds(path_of("many"));
  char text[900];
  snprintf(text, sizeof text, "%s\n%s\n%s", path_of("many/a.txt"), path_of("many/b.u32"),
           path_of("many/c.txt"));
  holds(text);
  refused(path_of("none"), VOCAB, "none is a directory without token files");
  snprintf(text, sizeof text, "%s\n%s", path_of("many/a.txt"), path_of("no.txt"));
  refused(text, VOCAB, "no.txt: No such file");
  sli_tokens *t;
  CHECK(!open_as(path_of("many"), VOCAB, 0, &t), "%s", sl_detail());
  CHECK(sli_tokens_files(t) == 3 && strstr(sli_tokens_path(t, 1), "b.u32"), "its files");
  sli_tokens_close(t);
}

static void shuffled_orders_are_permutations(void) {
  static const int64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 255, 256, 257, 1000, 65537};
  for (size_t s = 0; s < SLI_COUNT(sizes); s++) {
    int64_t n = sizes[s], same = 0, stay = 0;
    char *seen = sli_calloc((size_t)n, 1);
    for (int64_t i = 0; i < n; i++) {
      int64_t to = sli_shuffle(7, 3, i, n);
      CHECK(to >= 0 && to < n && !seen[to], "%lld of %lld is a second time", (long long)to,
            (long long)n);
      seen[to] = 1;
      stay += to == i;
      same += to == sli_shuffle(7, 4, i, n);
    }
    CHECK(n < 100 || (stay < 10 && same < 10), "%lld stay, %lld are as in the next epoch",
          (long long)stay, (long long)same);
    free(seen);
  }
  int64_t huge = INT64_C(1) << 40;
  CHECK(sli_shuffle(1, 0, huge - 1, huge) < huge, "large orders are in range");
  CHECK(sli_shuffle(1, 0, 5, 1000) == 992 && sli_shuffle(1, 1, 5, 1000) == 473,
        "are %lld, %lld: a run "
        "that goes on needs them to stay as they are",
        (long long)sli_shuffle(1, 0, 5, 1000), (long long)sli_shuffle(1, 1, 5, 1000));
}

static void each_epoch_has_every_sequence_once(void) {
  const char *path = write_tokens("shuffled.u16", "", 0, 2);
  sli_tokens *t;
  CHECK(!open_as(path, VOCAB, 11, &t), "%s", sl_detail());
  int64_t n = sli_tokens_sequences(t);
  for (int64_t epoch = 0; epoch < 5; epoch++) {
    int32_t sum = 0, want = 0;
    for (int64_t i = 0; i < n; i++) {
      int32_t out[CONTEXT], last;
      sli_tokens_read(t, epoch * n + i, 0, CONTEXT, &(sli_tokens_out){.tokens = out});
      sli_tokens_read(t, epoch * n + i, CONTEXT - 1, 1, &(sli_tokens_out){.targets = &last});
      CHECK(last == out[0] + 3 * CONTEXT, "targets go with their tokens");
      sum += out[0];
      want += 1 + 3 * (int32_t)i * CONTEXT;
    }
    CHECK(sum == want, "epoch %lld", (long long)epoch);
  }
  sli_tokens_close(t);
}

int main(int argc, char **argv) {
  CHECK(mkdtemp(folder), "cannot make a folder");
  RUN(each_suffix_says_a_type);
  RUN(a_user_can_say_it);
  RUN(what_is_not_understood_is_refused);
  RUN(headers_of_others_are_read);
  RUN(numpy_arrays_are_read);
  RUN(damaged_headers_are_harmless, seeds_of(argc, argv, 1, 20000));
  RUN(several_files_are_one);
  RUN(shuffled_orders_are_permutations);
  RUN(each_epoch_has_every_sequence_once);
  char command[64];
  snprintf(command, sizeof command, "rm -r %s", folder);
  CHECK(!system(command), "%s", command);
  return 0;
}
