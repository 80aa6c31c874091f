/* SPDX-License-Identifier: Apache-2.0 */
/* Progress on standard output: a single redrawn line on a terminal, otherwise an occasional
 * line. */
#include "tools/actorrun/actorrun.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* lines of a whole run, without a terminal */
enum { LINES = 20 };
static const uint64_t redraw_ns = 50000000;               /* interval on a terminal */
static const uint64_t silence_ns = UINT64_C(20000000000); /* longest interval, without a terminal */

void progress_init(progress *p, int64_t steps, bool quiet) {
  *p = (progress){.steps = steps,
                  .quiet = quiet,
                  .terminal = isatty(STDOUT_FILENO),
                  .lock = PTHREAD_MUTEX_INITIALIZER};
}

void progress_fini(progress *p) {
  free(p->records);
  *p = (progress){0};
}

static uint64_t cpu_now_ns(void) {
  struct timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

void progress_start(progress *p) {
  pthread_mutex_lock(&p->lock);
  p->start_ns = p->drawn_ns = sli_now_ns();
  p->start_cpu_ns = cpu_now_ns();
  pthread_mutex_unlock(&p->lock);
}

double progress_step_seconds(const progress *p, size_t index) {
  uint64_t before = index ? p->records[index - 1].end_ns : p->start_ns;
  return (double)(p->records[index].end_ns - before) * 1e-9;
}

double progress_step_cpu_seconds(const progress *p, size_t index) {
  uint64_t before = index ? p->records[index - 1].cpu_ns : p->start_cpu_ns;
  return (double)(p->records[index].cpu_ns - before) * 1e-9;
}

/* Returns the first of the recent steps: at least the last ten and the last two seconds, if there
 * are that many. The first step, a warm-up, counts only while it is the only one. */
static size_t recent_first(const progress *p) {
  size_t last = p->count - 1, first = last;
  uint64_t end = p->records[last].end_ns;
  while (first > 1 && (last - first < 10 || end - p->records[first - 1].end_ns < 2000000000u))
    first--;
  return first;
}

static uint64_t begin_of(const progress *p, size_t step) {
  return step ? p->records[step - 1].end_ns : p->start_ns;
}

/* Returns the mean seconds of a recent step. */
static double recent_step(const progress *p) {
  size_t last = p->count - 1, first = recent_first(p);
  return (double)(p->records[last].end_ns - begin_of(p, first)) * 1e-9 / (double)(last - first + 1);
}

static double recent_rate(const progress *p) {
  double seconds = recent_step(p);
  return seconds > 0 ? (double)p->items / seconds : 0;
}

progress_status progress_now(progress *p) {
  progress_status now = {.steps = p->steps, .done = -1};
  pthread_mutex_lock(&p->lock);
  if (p->start_ns) now.elapsed_seconds = (double)(sli_now_ns() - p->start_ns) * 1e-9;
  if (p->count) {
    const step_record *last = &p->records[p->count - 1];
    now.done = last->report.step + 1;
    now.loss = last->report.loss;
    now.step_seconds = recent_step(p);
    now.rate = recent_rate(p);
  }
  pthread_mutex_unlock(&p->lock);
  return now;
}

/* Formats "2h05m", "3m20s" or "8s". */
static void format_left(double seconds, char out[24]) {
  long long s = (long long)(seconds + 0.5);
  if (s >= 3600) snprintf(out, 24, "%lldh%02lldm", s / 3600, s / 60 % 60);
  else if (s >= 60) snprintf(out, 24, "%lldm%02llds", s / 60, s % 60);
  else snprintf(out, 24, "%llds", s);
}

/* Formats the time left, "  3m20s left"; nothing at the end. */
static void format_rest(const progress *p, char out[40]) {
  char left[24];
  int64_t steps = p->steps - p->records[p->count - 1].report.step - 1;
  *out = 0;
  if (steps <= 0 || p->count < 2) return; /* the first step is a warm-up */
  format_left((double)steps * recent_step(p), left);
  snprintf(out, 40, "  %s left", left);
}

static int format_line(const progress *p, char *out, size_t bytes) {
  const sl_step_report *r = &p->records[p->count - 1].report;
  char memory[32], rest[40], bubble[96] = "", own[64] = "";
  if (p->figure) snprintf(own, sizeof own, "  %s %.4g", p->figure, p->records[p->count - 1].figure);
  format_rest(p, rest);
  sli_format_bytes(memory, (double)p->memory_bytes);
  if (p->devices > 1) {
    double share = p->rt ? sl_runtime_live_bubble(p->rt, begin_of(p, recent_first(p))) : -1;
    if (share >= 0) snprintf(bubble, sizeof bubble, "  bubble %.0f %%%s", 100 * share, p->where);
  }
  return snprintf(out, bytes, "step %lld/%lld%s  loss %.4f%s  norm %.3f  lr %.2e  %.0f %s/s%s  %s",
                  (long long)r->step + 1, (long long)p->steps, own, r->loss, rest, r->grad_norm,
                  (double)r->lr, recent_rate(p), p->word, bubble, memory);
}

/* Returns how much of a line fits into `columns` columns, cut between values. */
static int fit_figures(const char *line, int n, int columns) {
  if (n <= columns) return n;
  for (int end = columns; end > 0; end--)
    if (!strncmp(line + end, "  ", 2)) return end;
  return columns;
}

/* Draws the line, never wider than the terminal: a wrapped line cannot be redrawn. */
static void draw_terminal(progress *p) {
  char line[256];
  struct winsize size;
  int width = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
  int n = format_line(p, line, sizeof line);
  printf("\r%.*s\033[K", fit_figures(line, n, width - 1), line);
  fflush(stdout);
  p->line_open = true;
}

static void draw_plain(progress *p) {
  char line[256];
  format_line(p, line, sizeof line);
  printf("%s\n", line);
  fflush(stdout);
}

static bool plain_line_due(const progress *p, int64_t step, uint64_t now) {
  int64_t every = SLI_MAX(p->steps / LINES, 1);
  return p->count == 1 || step + 1 == p->steps || (step + 1) % every == 0 ||
         now - p->drawn_ns > silence_ns;
}

void progress_step(progress *p, const sl_step_report *report, double figure) {
  uint64_t now = sli_now_ns();
  pthread_mutex_lock(&p->lock);
  SLI_GROW(p->records, p->count, p->capacity);
  p->records[p->count++] = (step_record){*report, now, cpu_now_ns(), figure};
  pthread_mutex_unlock(&p->lock);
  if (p->quiet) return;
  bool due = p->terminal ? now - p->drawn_ns > redraw_ns || report->step + 1 == p->steps
                         : plain_line_due(p, report->step, now);
  if (!due) return;
  p->drawn_ns = now;
  p->terminal ? draw_terminal(p) : draw_plain(p);
}

void progress_close(progress *p) {
  if (p->line_open) printf("\n");
  p->line_open = false;
  fflush(stdout);
}

/* ---- the history --------------------------------------------------------------------------- */

/* Returns the mean of the losses that one bar represents. */
static double bar_mean(const progress *p, int bar, int bars) {
  size_t first = p->count * (size_t)bar / (size_t)bars;
  size_t end = p->count * (size_t)(bar + 1) / (size_t)bars;
  double sum = 0;
  for (size_t i = first; i < end; i++) sum += p->records[i].report.loss;
  return sum / (double)(end - first);
}

char *progress_history(const progress *p, int width) {
  static const char *const levels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  int bars = (int)SLI_MIN(p->count, (size_t)width), top = (int)SLI_COUNT(levels) - 1;
  double least = INFINITY, most = -INFINITY;
  for (int b = 0; b < bars; b++) {
    least = fmin(least, bar_mean(p, b, bars));
    most = fmax(most, bar_mean(p, b, bars));
  }
  char *line = sli_calloc((size_t)bars + 1, strlen(levels[0])), *at = line;
  for (int b = 0; b < bars; b++) {
    double share = most > least ? (bar_mean(p, b, bars) - least) / (most - least) : 0;
    int level = share >= 0 && share <= 1 ? (int)lround(share * top) : top;
    at = stpcpy(at, levels[level]);
  }
  return line;
}
