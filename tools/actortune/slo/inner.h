/* What the files of slo/ share: service levels, and the servers that are compared by them. */
#ifndef SLUICE_TOOLS_ACTORTUNE_SLO_INNER_H
#define SLUICE_TOOLS_ACTORTUNE_SLO_INNER_H

#include <stdio.h>

#include "tools/actortune/actortune.h"

/* ---- levels.c ------------------------------------------------------------------------------- */

enum { LEVELS_MOST = 8 };

/* So many of the requests (`share`) are to have no more than these seconds. */
typedef struct level {
  char name[32];       /* "ttft@99" */
  bool between_tokens; /* else to the first one */
  double share, seconds;
} level;

typedef struct levels {
  int count;
  level of[LEVELS_MOST];
} levels;

/* "ttft=200ms,tpot@90=0.05". SL_E_USAGE names what is wrong with --slo. */
sl_status levels_read(const char *text, levels *out);
/* What they came to, [count]. How far off that is: the most that one takes, in parts of what it may; all are met up to 1. */
double levels_measure(const levels *l, const arrivals *came, const sl_answered *answered, double *seconds);

/* ---- space.c -------------------------------------------------------------------------------- */

typedef enum slo_dim { SLO_STAGES, SLO_GROUPS, SLO_ROWS, SLO_SEQUENCES, SLO_PAGES, SLO_ADMIT, SLO_DIMS } slo_dim;
extern const char *const slo_dims[SLO_DIMS];
extern const char *const slo_admits[]; /* by sl_admit; NULL-terminated */

/* One server. */
typedef struct server {
  int64_t at[SLO_DIMS];
  size_t bytes;    /* of the largest device; 0: it cannot be */
  bool tried;      /* it fits, and was run: */
  double rate;     /* with requests that come so many times as fast as the file says */
  double tokens;   /* a second */
  double seconds[LEVELS_MOST];
  double off;      /* see levels_measure() */
} server;

/* What there is to choose from: all combinations. */
typedef struct space {
  numbers stages, groups, rows, admits;
  numbers sequences; /* none: as space_sequences() says */
  numbers pages;   /* none: as space_pages() says */
} space;

typedef struct hunt {
  const settings *settings;
  arrivals came;
  levels levels;
  sl_tick_cost cost;   /* of --tick: what a tick takes where there is one stage; */
  bool costed, whole;  /* it is given; as a file. Else as --machine says */
  words model;         /* MODEL and its options */
  bool goodput;        /* the highest rate counts; else the tokens at this one */
  int points;
  size_t budget;       /* of a device; 0: any number of bytes */
  space space;
  size_t count, capacity;
  server *servers;     /* once they were searched: the best first */
  char *why;           /* what is wrong with the first of those that cannot be */
  sl_status wrong;
  double took;         /* seconds of the search */
} hunt;

sl_status space_read(hunt *h);
void space_fini(space *s);
/* Ticks under way at once that are worth a look on so many stages, at most SPACE_MOST. */
enum { SPACE_MOST = 24 };
int space_groups(const hunt *h, int64_t stages, int64_t *out);
/* Answers under way at once, where a tick has so many rows, at most SPACE_MOST: as many as ever can be, and a quarter of those
 * each time, who wait for less. */
int space_sequences(const hunt *h, int64_t rows, int64_t *out);
/* Numbers of pages, ascending, at most SPACE_MOST. From what one sequence needs on, twice as many each time, and the last
 * as many as can ever be used at once. */
int space_pages(const hunt *h, const sl_session_info *about, int64_t *out);

/* ---- search.c ------------------------------------------------------------------------------- */

/* Tries all. */
void hunt_search(hunt *h, int threads);
/* The session of a server; its cost is put into *cost. */
sl_session_options hunt_options(const hunt *h, const server *c, sl_tick_cost *cost);
/* The best that has another value of a dimension and meets the levels; NULL: none does. */
const server *hunt_second(const hunt *h, slo_dim dim);
bool hunt_fits(const hunt *h, const server *c);
void hunt_fini(hunt *h);

/* ---- show.c --------------------------------------------------------------------------------- */

/* SL_E_BUDGET: none fits, or none meets the levels, and which comes nearest. */
sl_status hunt_show(const hunt *h, FILE *out);

#endif
