/* SPDX-License-Identifier: Apache-2.0 */
/* The memory table is complete. A run's resident memory beyond the table and the matrix-product
 * library equals that of a tiny run with the same options, within 2 MiB. It does not depend on the
 * length of sequences, pieces or the number of layers.
 * labels: outside numbers */
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/support/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* TINY: the smallest context with which the products of pieces load the whole matrix-product
 * library. With fewer rows the library needs 6 MiB less. */
enum { MOST_WORDS = 32, TINY = 128, MIB = 1 << 20, TOLERANCE = 2 * MIB };

extern char **environ;

static char folder[] = "/tmp/test_tools_resident.XXXXXX";

static const char *in_folder(const char *name) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

/* Writes training data, longer than any sequence. */
static void write_data(const char *path) {
  FILE *f = fopen(path, "w");
  CHECK(f, "%s cannot be written", path);
  for (int i = 0; i < 1 << 16; i++) fputc('a' + i * 7 % 26, f);
  fclose(f);
}

/* Returns the bytes of the plan and of the matrix-product library, from the report. */
static double known_bytes(const char *report) {
  static char text[1 << 20];
  FILE *f = fopen(report, "r");
  CHECK(f, "there is no report %s", report);
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  fclose(f);
  cJSON *json = cJSON_Parse(text), *device;
  CHECK(json, "%s is no JSON", report);
  double bytes = 0;
  cJSON_ArrayForEach(device, cJSON_GetObjectItem(json, "devices")) bytes +=
      cJSON_GetObjectItem(cJSON_GetObjectItem(device, "peak_bytes"), "total")->valuedouble;
  const cJSON *library = cJSON_GetObjectItem(json, "products_library_bytes");
  if (library) bytes += library->valuedouble;
  cJSON_Delete(json);
  return bytes;
}

typedef struct claim {
  const char *options, *model; /* words separated by spaces */
  int layers, context;
} claim;

static int add_words(char **words, int n, char *text) {
  for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) words[n++] = word;
  return n;
}

/* Returns the peak resident bytes of a run, minus known_bytes(). */
static double beyond_the_known(const claim *c, int layers, int context) {
  char actorrun[256], text[512], data[128], report[128];
  snprintf(actorrun, sizeof actorrun, "%s/bin/actorrun", getenv("SLUICE_BUILD"));
  snprintf(data, sizeof data, "%s", in_folder("data.txt"));
  snprintf(report, sizeof report, "%s", in_folder("report.json"));
  snprintf(text, sizeof text,
           "--steps 1 --stages 2 --microbatches 2 --report %s %s %s --data %s "
           "--layers %d --width 64 --heads 4 --context %d --batch 2",
           report, c->options, c->model, data, layers, context);
  char *words[MOST_WORDS] = {actorrun};
  add_words(words, 1, text);
  pid_t pid;
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  CHECK(!posix_spawn(&pid, actorrun, &quiet, NULL, words, environ), "%s does not start", actorrun);
  posix_spawn_file_actions_destroy(&quiet);
  int status;
  struct rusage usage;
  CHECK(wait4(pid, &status, 0, &usage) == pid && !status, "%s %s fails", c->model, c->options);
  return (double)usage.ru_maxrss * 1024 - known_bytes(report);
}

static void check_claim(const claim *c) {
  double more = beyond_the_known(c, c->layers, c->context) - beyond_the_known(c, 2, TINY);
  printf("%s %s, %d layers, context %d: %.2f MiB\n", c->model, c->options, c->layers, c->context,
         more / MIB);
  fflush(stdout);
  CHECK(more < TOLERANCE, "%s %s, %d layers, context %d: %.2f MiB are in no table", c->model,
        c->options, c->layers, c->context, more / MIB);
}

int main(void) {
  static const claim claims[] = {
      {"", "gpt", 2, 1024},
      {"", "llama", 2, 1024},
      {"", "llama", 2, 4096},
      {"", "llama", 8, 1024},
      {"--pieces 4", "gpt", 2, 2048},
      {"--pieces 4", "llama", 2, 4096},
      {"--pieces 4 --cut balanced", "llama", 2, 4096},
      {"--pieces 4 --recompute full", "llama", 4, 2048},
      {"--schedule zb-h1", "gpt", 2, 2048},
  };
  if (SANITIZED || !getenv("SLUICE_BUILD")) {
    printf("skipped: sanitizers take memory of their own, and actorrun has to be found\n");
    return 77;
  }
  CHECK(mkdtemp(folder), "%s cannot be made", folder);
  write_data(in_folder("data.txt"));
  for (size_t i = 0; i < SLI_COUNT(claims); i++) RUN(check_claim, &claims[i]);
  unlink(in_folder("data.txt"));
  unlink(in_folder("report.json"));
  rmdir(folder);
  return 0;
}
