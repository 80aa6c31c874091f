/* What the processes of a job say, passed on line by line. */
#ifndef SLUICE_TOOLS_COMMON_LAUNCH_LINES_H
#define SLUICE_TOOLS_COMMON_LAUNCH_LINES_H

#include <stdbool.h>
#include <stddef.h>

/* One standard stream of one process. */
typedef struct stream {
  int from, to;    /* a pipe that does not block, or -1; where it is passed on to */
  int process;
  bool errors;     /* "TOOL: ..." is what ended the process; kept, see lines_show */
  size_t count, capacity;
  char *text;      /* a line that is not whole yet */
} stream;

/* What was kept. */
typedef struct kept_line {
  int process;
  char *text;
} kept_line;

typedef struct lines {
  const char *tool; /* whose failures are kept */
  int quiet;       /* the process whose lines get no "[N] " in front */
  int lost;        /* errno of what could not be written to the standard output; 0: all was */
  bool live;       /* process `quiet` may have a live line on our terminal */
  size_t count, capacity;
  kept_line *kept;
} lines;

void lines_init(lines *l, const char *tool, int quiet);
void lines_fini(lines *l);

/* Passes on what is there; closes the stream at its end. */
void stream_pass(stream *s, lines *l);
/* Passes on the rest, what is no whole line too. */
void stream_end(stream *s, lines *l);

/* Shows what was kept, each text once, with all who said it. */
void lines_show(lines *l);
/* Was something kept that this process said, and another one too? */
bool lines_shared(const lines *l, int process);

#endif
