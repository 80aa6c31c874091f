/* SPDX-License-Identifier: Apache-2.0 */
/* Output of a job's processes, passed on line by line. */
#ifndef SLUICE_TOOLS_LAUNCH_LINES_H
#define SLUICE_TOOLS_LAUNCH_LINES_H

#include <stdbool.h>
#include <stddef.h>

/* One standard stream of one process. */
typedef struct stream {
  int from, to; /* a non-blocking pipe, or -1; the descriptor that its output goes to */
  int process;
  bool errors; /* hold lines "TOOL: ...", which say why the process ended; see lines_show */
  size_t count, capacity;
  char *text; /* an incomplete line */
} stream;

/* A line held until the end. */
typedef struct kept_line {
  int process;
  char *text;
} kept_line;

typedef struct lines {
  const char *tool; /* tool whose failure lines are held */
  int quiet;        /* process whose lines get no "[N] " prefix */
  int lost;         /* errno of a failed write to standard output; 0 if none */
  bool live;        /* process `quiet` may have a live line on this terminal */
  size_t count, capacity;
  kept_line *kept;
} lines;

void lines_init(lines *l, const char *tool, int quiet);
void lines_fini(lines *l);

/* Passes on the available output; closes the stream at its end. */
void stream_pass(stream *s, lines *l);
/* Passes on the rest, including an incomplete line. */
void stream_end(stream *s, lines *l);

/* Shows the held lines, each text once, with all processes that wrote it. */
void lines_show(lines *l);
/* Returns whether a held line came both from this process and from another. */
bool lines_shared(const lines *l, int process);

#endif
