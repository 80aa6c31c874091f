/* SPDX-License-Identifier: Apache-2.0 */
/* A certificate is a file of lines, one JSON object each:
 *
 *     {"step": 3, "loss": "0x1.5a8f3cp+2", "parameters": "9c0e...", "state": "01fe...",
 *      "of": {"wte.weight": "77a1...", "wte.weight:m": "..."}}
 *
 * `parameters` and `state` are the sums of the hashes in `of`. */
#include "tools/actorrun/certify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "io/file.h"
#include "io/journal.h"
#include "io/json.h"

/* A step's hashes by name, of all processes. */
typedef struct certificate {
  int64_t step;
  double loss;
  int count;
  size_t capacity;
  struct named_hash {
    char *name;
    uint64_t hash;
  } * items;
} certificate;

static void certificate_fini(certificate *c) {
  for (int i = 0; i < c->count; i++) free(c->items[i].name);
  free(c->items);
}

static void add_hash(certificate *c, const char *name, size_t length, uint64_t hash) {
  for (int i = 0; i < c->count; i++)
    if (strlen(c->items[i].name) == length && !memcmp(c->items[i].name, name, length)) {
      c->items[i].hash += hash;
      return;
    }
  SLI_GROW(c->items, (size_t)c->count, c->capacity);
  c->items[c->count++] = (struct named_hash){sli_format("%.*s", (int)length, name), hash};
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const struct named_hash *)a)->name, ((const struct named_hash *)b)->name);
}

/* ---- collecting ----------------------------------------------------------------------------- */

/* Lists the hashes of this process, "NAME HASH" per line; the caller frees the text. */
static sl_status list_hashes(const job *j, char **text, size_t *bytes) {
  sl_state_hash *hashes;
  int count;
  sl_status status = sl_state_hashes(j->lowered, j->rt, &hashes, &count);
  FILE *out = sli_memory_stream(text, bytes);
  for (int i = 0; i < count && !status; i++)
    fprintf(out, "%s %016" PRIx64 "\n", hashes[i].name, hashes[i].hash);
  fclose(out);
  free(hashes);
  return status;
}

static void add_list(certificate *c, const char *text, size_t bytes) {
  const char *end = text + bytes;
  while (text < end) {
    const char *newline = memchr(text, '\n', (size_t)(end - text));
    const char *space = newline ? memrchr(text, ' ', (size_t)(newline - text)) : NULL;
    if (!space) return;
    add_hash(c, text, (size_t)(space - text), strtoull(space + 1, NULL, 16));
    text = newline + 1;
  }
}

/* Collects the hashes of all processes in process 0. */
static sl_status collect(job *j, certificate *c) {
  char *text = NULL;
  size_t bytes = 0;
  sl_blob *blobs = NULL;
  sl_status status = list_hashes(j, &text, &bytes);
  int processes = sl_job_processes(j->processes);
  if (!status && processes == 1) add_list(c, text, bytes);
  else if (!status) status = sl_job_meet(j->processes, "certify", text, bytes, &blobs);
  for (int p = 0; blobs && p < processes; p++) {
    add_list(c, blobs[p].data, blobs[p].bytes);
    free(blobs[p].data);
  }
  free(blobs);
  free(text);
  if (c->count) qsort(c->items, (size_t)c->count, sizeof *c->items, by_name);
  return status;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* Returns whether a hash belongs to the optimizer state. */
static bool is_state(const char *name) { return strchr(name, ':') != NULL; }

static uint64_t sum_of(const certificate *c, bool state) {
  uint64_t sum = 0;
  for (int i = 0; i < c->count; i++)
    if (is_state(c->items[i].name) == state) sum += c->items[i].hash;
  return sum;
}

static void write_line(FILE *out, const certificate *c) {
  fprintf(out,
          "{\"step\": %" PRId64 ", \"loss\": \"%a\", \"parameters\": \"%016" PRIx64
          "\", \"state\": \"%016" PRIx64 "\", \"of\": {",
          c->step, c->loss, sum_of(c, false), sum_of(c, true));
  for (int i = 0; i < c->count; i++) {
    cJSON *name = cJSON_CreateString(c->items[i].name);
    char *text = cJSON_PrintUnformatted(name);
    fprintf(out, "%s%s: \"%016" PRIx64 "\"", i ? ", " : "", text, c->items[i].hash);
    cJSON_free(text);
    cJSON_Delete(name);
  }
  fputs("}}\n", out);
}

/* ---- comparing ------------------------------------------------------------------------------ */

/* The line of a step in a file, if it was found. */
typedef struct wanted {
  const char *path;
  int64_t step;
  bool found;
  sli_json doc;
} wanted;

/* Reads the step of a line, and the whole line unless `doc` is NULL. */
static sl_status read_step(const char *path, int line, const char *text, size_t length,
                           int64_t *step, sli_json *doc) {
  sli_json read = {0};
  char *name = sli_format("%s:%d", path, line);
  sl_status status = sli_json_read(name, text, length, 0, &read);
  free(name);
  const sli_json_field field = {"step",     SLI_JSON_WHOLE, step,
                                .least = 0, .most = 1e15,   .needed = true};
  if (!status) status = sli_json_pick(&read, read.root, &field, 1);
  if (doc && !status) *doc = read;
  else sli_json_fini(&read);
  return status;
}

static sl_status read_line(void *ctx, int line, char *text, size_t length) {
  wanted *w = ctx;
  int64_t step;
  if (w->found) return SL_OK;
  SLI_TRY(read_step(w->path, line, text, length, &step, &w->doc));
  w->found = step == w->step;
  if (!w->found) sli_json_fini(&w->doc);
  return SL_OK;
}

static const char *text_of(const cJSON *of, const char *key) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(of, key);
  return cJSON_IsString(item) ? item->valuestring : "";
}

/* Compares a step with its line: first the tensors by name, then the loss. */
static sl_status compare(const wanted *w, const certificate *c) {
  const cJSON *of = cJSON_GetObjectItemCaseSensitive(w->doc.root, "of");
  int differ = 0;
  const char *first = NULL;
  for (int i = 0; i < c->count; i++) {
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, c->items[i].hash);
    if (!strcmp(text_of(of, c->items[i].name), hash)) continue;
    /* A parameter is reported before its optimizer state. */
    if (!first || (is_state(first) && !is_state(c->items[i].name))) first = c->items[i].name;
    differ++;
  }
  if (first)
    return sl_fail(SL_E_INPUT, "step %" PRId64 ": %s differs from %s, and %d more of %d tensors",
                   c->step, first, w->path, differ - 1, c->count);
  double loss = strtod(text_of(w->doc.root, "loss"), NULL);
  if (loss == c->loss) return SL_OK;
  return sl_fail(SL_E_INPUT, "step %" PRId64 ": the loss is %a and not %a as in %s", c->step,
                 c->loss, loss, w->path);
}

static sl_status recheck(const char *path, const certificate *c) {
  wanted w = {.path = path, .step = c->step};
  sl_status status = sli_file_lines(path, read_line, &w);
  if (!status && !w.found) status = sl_fail(SL_E_INPUT, "%s: has no step %" PRId64, path, c->step);
  if (!status) status = compare(&w, c);
  if (w.found) sli_json_fini(&w.doc);
  return status;
}

/* ---- steps ---------------------------------------------------------------------------------- */

bool certify_wanted(const settings *s) {
  return settings_text(s, "certify") || settings_text(s, "recheck");
}

sl_status certify_check(const settings *s) {
  const char *out = settings_text(s, "certify"), *in = settings_text(s, "recheck");
  if (!certify_wanted(s)) return SL_OK;
  if (!sl_device_computes(s->lower.devices.kind))
    return sl_fail(SL_E_USAGE, "--%s: %s devices hold no values", out ? "certify" : "recheck",
                   s->lower.devices.kind);
  uint64_t bytes, hash;
  return in ? sli_file_fingerprint(in, &bytes, &hash) : SL_OK;
}

static sl_status certify_step(job *j, sli_journal *out) {
  certificate c = {.step = -1};
  sl_status status = collect(j, &c);
  if (!status && !j->settings->process && j->progress.count) {
    const sl_step_report *last = &j->progress.records[j->progress.count - 1].report;
    const char *in = settings_text(j->settings, "recheck");
    c.step = last->step + 1, c.loss = last->loss;
    if (out) write_line(sli_journal_stream(out), &c), status = sli_journal_end(out);
    if (in && !status) status = recheck(in, &c);
  }
  certificate_fini(&c);
  return status;
}

/* ---- continuing ----------------------------------------------------------------------------- */

/* Finds the end of the last line up to step `first` of an earlier run's certificate. A line that a
 * killed process cut is left out, and so are steps that this run repeats. */
static sl_status find_end(const char *path, const char *text, size_t size, int64_t first,
                          int64_t *bytes) {
  int64_t step = first;
  const char *at = text, *end = text + size, *newline;
  for (int line = 1; at < end && (newline = memchr(at, '\n', (size_t)(end - at))); line++) {
    int64_t of_line;
    SLI_TRY(read_step(path, line, at, (size_t)(newline - at), &of_line, NULL));
    if (of_line > first) break;
    step = of_line;
    at = newline + 1;
  }
  *bytes = at - text;
  if (step == first) return SL_OK;
  return sl_fail(SL_E_USAGE,
                 "%s ends at step %" PRId64 ", but the run continues at step %" PRId64
                 "; name another file",
                 path, step, first + 1);
}

static sl_status continue_file(const char *path, int64_t first, sli_journal **out) {
  void *map = NULL;
  size_t size = 0;
  int64_t bytes = 0;
  if (access(path, F_OK)) return sli_journal_create(path, out);
  SLI_TRY(sli_file_map(path, &map, &size));
  sl_status status = map ? find_end(path, map, size, first, &bytes) : SL_OK;
  if (map) munmap(map, size);
  return status ? status : sli_journal_continue(path, bytes, out);
}

static sl_status open_certificate(const job *j, sli_journal **out) {
  const char *path = settings_text(j->settings, "certify");
  int64_t first = sl_checkpoints_start(j->checkpoints);
  *out = NULL;
  if (!path || j->settings->process) return SL_OK;
  sl_status status = first ? continue_file(path, first, out) : sli_journal_create(path, out);
  return status ? sl_fail(SL_E_USAGE, "--certify: %s", sl_detail()) : SL_OK;
}

sl_status certify_run(job *j, int64_t steps) {
  sli_journal *out;
  sl_status status = open_certificate(j, &out);
  for (int64_t i = 0; i < steps && !status; i++) {
    status = sl_job_run(j->processes, 1);
    if (!status) status = certify_step(j, out);
  }
  return sli_journal_finish(out, "certify", status);
}
