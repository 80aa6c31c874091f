/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of microbatches that skip stages (SkipPipe: Blagoev et al., arXiv 2502.19913).
 *
 * The file has a line for each microbatch of a step, `3: 0 2 5 7`: the stages that it visits, in
 * order. Every path begins with the first stage and ends with the last. In between it may skip
 * stages or visit them in another order. Empty lines and text after a # are ignored. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/schedule/schedule.h"
#include "io/file.h"

/* ---- reading ------------------------------------------------------------------------- */

enum { MOST_NUMBER = 1 << 20 };

/* Reads a number and advances `at` past it. */
static bool read_number(const char **at, int *out) {
  const char *from = *at + strspn(*at, " \t\r\n");
  char *end;
  errno = 0;
  long number = strtol(from, &end, 10);
  if (end == from || *from < '0' || *from > '9' || errno || number > MOST_NUMBER) return false;
  *at = end;
  *out = (int)number;
  return true;
}

static sl_status wrong_line(const sli_paths *paths, int line) {
  return sl_fail(SL_E_INPUT, "%s:%d: must be MICROBATCH: STAGE STAGE ...", paths->file, line);
}

static sl_status check_microbatch(const sli_paths *paths, int line, int microbatch) {
  if (microbatch >= paths->microbatches)
    return sl_fail(SL_E_INPUT, "%s:%d: no microbatch %d; a step has %d, 0 to %d", paths->file, line,
                   microbatch, paths->microbatches, paths->microbatches - 1);
  if (paths->items[microbatch].line)
    return sl_fail(SL_E_INPUT, "%s:%d: microbatch %d already has a path, in line %d", paths->file,
                   line, microbatch, paths->items[microbatch].line);
  return SL_OK;
}

/* Reads the stages after the colon. */
static bool read_stages(const char *at, sli_arena *arena, sli_path *out) {
  size_t most = strlen(at) / 2 + 1; /* each takes at least a digit and a space */
  out->stage = sli_arena_alloc(arena, most * sizeof *out->stage);
  while (at[strspn(at, " \t\r\n")]) {
    bool apart = !out->length || strspn(at, " \t") > 0;
    if (!apart || !read_number(&at, &out->stage[out->length])) return false;
    out->length++;
  }
  return out->length > 0;
}

static sl_status read_line(sli_paths *paths, int line, char *text, sli_arena *arena) {
  text[strcspn(text, "#")] = 0;
  const char *at = text;
  int microbatch;
  if (!text[strspn(text, " \t\r\n")]) return SL_OK;
  if (!read_number(&at, &microbatch) || *at++ != ':') return wrong_line(paths, line);
  sl_status status = check_microbatch(paths, line, microbatch);
  if (status) return status;
  paths->items[microbatch].line = line;
  return read_stages(at, arena, &paths->items[microbatch]) ? SL_OK : wrong_line(paths, line);
}

typedef struct reading {
  sli_paths *paths;
  sli_arena *arena;
} reading;

static sl_status take_line(void *ctx, int line, char *text, size_t length) {
  const reading *r = ctx;
  return strlen(text) == length ? read_line(r->paths, line, text, r->arena)
                                : wrong_line(r->paths, line);
}

static sl_status check_all_there(const sli_paths *paths) {
  for (int i = 0; i < paths->microbatches; i++)
    if (!paths->items[i].line)
      return sl_fail(SL_E_INPUT, "%s: microbatch %d has no path; a step has %d microbatches",
                     paths->file, i, paths->microbatches);
  return SL_OK;
}

sl_status sli_paths_read(const char *name, int microbatches, sli_arena *arena,
                         const sli_paths **out) {
  sli_paths *paths = sli_arena_alloc(arena, sizeof *paths);
  *paths =
      (sli_paths){.file = sli_arena_format(arena, "paths %s", name), .microbatches = microbatches};
  paths->items = sli_arena_alloc(arena, (size_t)microbatches * sizeof *paths->items);
  reading r = {paths, arena};
  sl_status status = sli_file_lines(name, take_line, &r);
  if (status && strncmp(sl_detail(), "paths ", 6))
    return sl_fail(status, "paths %s: %s", name, sl_detail());
  if (!status) status = check_all_there(paths);
  if (!status) *out = paths;
  return status;
}

/* ---- checking ------------------------------------------------------------------------- */

/* Checks one path and counts its visits. */
static sl_status check_path(const sli_paths *paths, int microbatch, int stages, int *visits) {
  const sli_path *p = &paths->items[microbatch];
  bool seen[stages];
  memset(seen, 0, sizeof seen);
  for (int n = 0; n < p->length; n++) {
    int s = p->stage[n];
    if (s >= stages)
      return sl_fail(SL_E_INPUT, "%s:%d: no stage %d; there are %d, 0 to %d", paths->file, p->line,
                     s, stages, stages - 1);
    if (seen[s])
      return sl_fail(SL_E_INPUT, "%s:%d: microbatch %d visits stage %d twice", paths->file, p->line,
                     microbatch, s);
    seen[s] = true;
    visits[s]++;
  }
  if (!p->stage[0] && p->stage[p->length - 1] == stages - 1) return SL_OK;
  return sl_fail(
      SL_E_INPUT,
      "%s:%d: microbatch %d goes from stage %d to stage %d, but must begin with stage 0 and "
      "end with stage %d",
      paths->file, p->line, microbatch, p->stage[0], p->stage[p->length - 1], stages - 1);
}

sl_status sli_paths_check(const sli_paths *paths, int stages, int *visits) {
  sl_status status = SL_OK;
  memset(visits, 0, (size_t)stages * sizeof *visits);
  for (int i = 0; i < paths->microbatches && !status; i++)
    status = check_path(paths, i, stages, visits);
  for (int s = 0; s < stages && !status; s++)
    if (!visits[s])
      status = sl_fail(SL_E_INPUT, "%s: no microbatch visits stage %d", paths->file, s);
  return status;
}

/* ---- writing ---------------------------------------------------------------------------- */

char *sli_paths_format(const sli_paths *paths) {
  char *text = NULL;
  size_t bytes;
  FILE *out = sli_memory_stream(&text, &bytes);
  for (int i = 0; i < paths->microbatches; i++) {
    fprintf(out, "%d:", i);
    for (int n = 0; n < paths->items[i].length; n++) fprintf(out, " %d", paths->items[i].stage[n]);
    fputc('\n', out);
  }
  fclose(out);
  return text;
}
