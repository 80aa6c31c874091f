/* SPDX-License-Identifier: Apache-2.0 */
/* Output of several processes, line by line, on one terminal or in one file.
 *
 * Each line is written in one piece, so lines never interleave. The first process speaks for the
 * job, and its lines are unchanged; lines of other processes are prefixed with their number. If the
 * first process has a terminal as its standard output, it writes there itself, redrawing a live
 * line. Lines of other processes replace that line, and the next redraw appears below.
 *
 * A failing process states the reason in a line "TOOL: ...". Often several state the same reason: a
 * file that all of them need is missing, or all notice a lost process. These lines are therefore
 * held until the end, and each text is shown once. */
#include "tools/launch/lines.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

enum { LONGEST = 1 << 16 }; /* longer lines are cut */

void lines_init(lines *l, const char *tool, int quiet) {
  *l = (lines){.tool = tool, .quiet = quiet, .live = isatty(STDOUT_FILENO)};
}

void lines_fini(lines *l) {
  for (size_t i = 0; i < l->count; i++) free(l->kept[i].text);
  free(l->kept);
  *l = (lines){0};
}

/* Writes all bytes. If a non-blocking pipe is full, waits for it. */
static int write_all(int fd, const char *text, size_t n) {
  while (n) {
    ssize_t done = write(fd, text, n);
    if (done < 0 && errno == EAGAIN) poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
    else if (done < 0 && errno != EINTR) return errno; /* the reader is gone, or the disk is full */
    else if (done > 0) text += done, n -= (size_t)done;
  }
  return 0;
}

/* Writes "[1,3] text\n", or "text\n" if `who` is empty. */
static void write_line(lines *l, int to, const char *who, const char *text, size_t n, bool whole) {
  const char *clear = l->live && isatty(to) ? "\r\033[K" : "";
  char *line = sli_format("%s%s%s%s", *who ? clear : "", *who ? "[" : "", who, *who ? "] " : "");
  size_t head = strlen(line);
  line = sli_realloc(line, head + n + 1, 1);
  memcpy(line + head, text, n);
  line[head + n] = '\n';
  int lost = write_all(to, line, head + n + whole);
  if (lost && to == STDOUT_FILENO && !l->lost) l->lost = lost;
  free(line);
}

static void keep(lines *l, int process, const char *text, size_t n) {
  SLI_GROW(l->kept, l->count, l->capacity);
  l->kept[l->count++] = (kept_line){process, sli_format("%.*s", (int)n, text)};
}

/* Returns whether a line reports a failure: "TOOL: ...". */
static bool is_failure(const lines *l, const char *text, size_t n) {
  size_t name = strlen(l->tool);
  return n >= name + 2 && !memcmp(text, l->tool, name) && !memcmp(text + name, ": ", 2);
}

/* Passes on one line. `whole`: it ended with a newline, which is not part of the text. */
static void pass_line(const stream *s, lines *l, const char *text, size_t n, bool whole) {
  if (s->errors && is_failure(l, text, n)) {
    keep(l, s->process, text, n);
    return;
  }
  char who[16] = "";
  if (s->process != l->quiet) snprintf(who, sizeof who, "%d", s->process);
  write_line(l, s->to, who, text, n, whole || *who);
}

static void pass_lines(stream *s, lines *l) {
  size_t from = 0;
  for (char *end; (end = memchr(s->text + from, '\n', s->count - from));) {
    size_t n = (size_t)(end - s->text) - from;
    pass_line(s, l, s->text + from, n, true);
    from += n + 1;
  }
  s->count -= from;
  memmove(s->text, s->text + from, s->count);
  if (s->count < LONGEST) return;
  pass_line(s, l, s->text, s->count, false);
  s->count = 0;
}

/* Reads what is available. Returns false at the end of the stream, or if nothing is available
 * now. */
static bool read_some(stream *s) {
  if (!s->text) s->text = sli_calloc(1, s->capacity = 2 * LONGEST);
  ssize_t n;
  do n = read(s->from, s->text + s->count, s->capacity - s->count);
  while (n < 0 && errno == EINTR);
  if (n > 0) s->count += (size_t)n;
  else if (!(n < 0 && errno == EAGAIN)) close(s->from), s->from = -1;
  return n > 0;
}

void stream_pass(stream *s, lines *l) {
  if (s->from < 0) return;
  if (read_some(s)) pass_lines(s, l);
  else if (s->from < 0) stream_end(s, l);
}

void stream_end(stream *s, lines *l) {
  while (s->from >= 0 && read_some(s)) pass_lines(s, l);
  if (s->from >= 0) close(s->from);
  s->from = -1;
  if (s->count) pass_line(s, l, s->text, s->count, false);
  free(s->text);
  s->text = NULL;
  s->count = s->capacity = 0;
}

/* Lists the processes that wrote the same line as line i, "0,2"; empty if the quiet process is
 * among them. Returns false if an earlier line has already shown the text. */
static bool tell_who(const lines *l, size_t i, char *who, size_t size) {
  size_t used = 0;
  bool quiet = false;
  *who = 0;
  for (size_t k = 0; k < i; k++)
    if (!strcmp(l->kept[k].text, l->kept[i].text)) return false;
  for (size_t k = i; k < l->count; k++) {
    if (strcmp(l->kept[k].text, l->kept[i].text)) continue;
    quiet |= l->kept[k].process == l->quiet;
    if (used < size)
      used +=
          (size_t)snprintf(who + used, size - used, "%s%d", used ? "," : "", l->kept[k].process);
  }
  if (quiet) *who = 0;
  return true;
}

void lines_show(lines *l) {
  char who[128];
  for (size_t i = 0; i < l->count; i++)
    if (tell_who(l, i, who, sizeof who))
      write_line(l, STDERR_FILENO, who, l->kept[i].text, strlen(l->kept[i].text), true);
}

bool lines_shared(const lines *l, int process) {
  for (size_t i = 0; i < l->count; i++)
    for (size_t k = 0; k < l->count && l->kept[i].process == process; k++)
      if (l->kept[k].process != process && !strcmp(l->kept[k].text, l->kept[i].text)) return true;
  return false;
}
