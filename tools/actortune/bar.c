/* SPDX-License-Identifier: Apache-2.0 */
/* Progress bar on the standard error, shown only on a terminal. */
#include "tools/actortune/actortune.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int terminal_width(void) {
  struct winsize size;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

/* Draws "[======      ] 412/1000 plans, 3 s left, 2.1 MiB .. 3.4 MiB, best 43 ms". */
void bar_draw(const char *what, size_t done, size_t all, double seconds, const char *tail) {
  enum { BAR = 20 };
  static uint64_t drawn;
  uint64_t now = sli_now_ns();
  if (now - drawn < 100000000) return;
  drawn = now;
  char bar[BAR + 1], line[512];
  size_t full = all ? done * BAR / all : 0;
  for (size_t i = 0; i < BAR; i++) bar[i] = i < full ? '=' : ' ';
  bar[BAR] = 0;
  int n = snprintf(line, sizeof line, "[%s] %zu/%zu %s, %.0f s left%s%s", bar, done, all, what,
                   seconds, *tail ? "; " : "", tail);
  fprintf(stderr, "\r%.*s\033[K", SLI_MIN(n, terminal_width() - 1), line);
  fflush(stderr);
}

void bar_clear(void) {
  fprintf(stderr, "\r\033[K");
  fflush(stderr);
}
