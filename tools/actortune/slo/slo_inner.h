/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface of slo/: service levels, and the servers compared by them. */
#ifndef SLUICE_TOOLS_ACTORTUNE_SLO_SLO_INNER_H
#define SLUICE_TOOLS_ACTORTUNE_SLO_SLO_INNER_H

#include <stdio.h>

#include "tools/actortune/actortune.h"

/* ---- levels.c ------------------------------------------------------------------------------- */

enum { LEVELS_MOST = 8 };

/* One service level: the fraction `share` of the requests must stay within these seconds. */
typedef struct level {
  char name[32];       /* "ttft@99" */
  bool between_tokens; /* otherwise to the first token */
  double share, seconds;
} level;

typedef struct levels {
  int count;
  level items[LEVELS_MOST];
} levels;

/* Parses "ttft=200ms,tpot@90=0.05". SL_E_USAGE names the error in --slo. */
sl_status levels_read(const char *text, levels *out);
/* Measures the levels into seconds[count]. Returns the largest ratio of a measured to an allowed
 * time: if it is at most 1, all levels are met. */
double levels_measure(const levels *l, const arrivals *came, const sl_answered *answered,
                      double *seconds);

/* ---- space.c -------------------------------------------------------------------------------- */

typedef enum slo_dim {
  SLO_STAGES,
  SLO_GROUPS,
  SLO_ROWS,
  SLO_SEQUENCES,
  SLO_PAGES,
  SLO_ADMIT,
  SLO_DIMS
} slo_dim;
extern const char *const slo_dims[SLO_DIMS];
extern const char *const slo_admits[]; /* words by sl_admit; NULL-terminated */

/* One server configuration and its results. */
typedef struct server {
  int64_t at[SLO_DIMS];
  size_t bytes;  /* bytes of the largest device; 0 if impossible */
  bool tried;    /* it fits and was simulated */
  double rate;   /* factor by which arrivals are faster than in the file */
  double tokens; /* tokens per second */
  double seconds[LEVELS_MOST];
  double off; /* result of levels_measure() */
} server;

/* The configurations to choose from: all combinations. */
typedef struct space {
  numbers stages, groups, rows, admits;
  numbers sequences; /* empty: see space_sequences() */
  numbers pages;     /* empty: see space_pages() */
} space;

typedef struct hunt {
  const settings *settings;
  arrivals came;
  levels levels;
  sl_tick_cost cost; /* --tick: the cost of a tick with one stage */
  /* costed: --tick is given; whole: as a file. Otherwise the machine file gives the cost. */
  bool costed, whole;
  words model;  /* MODEL and its options */
  bool goodput; /* the highest rate wins; otherwise the most tokens at the given rate */
  int points;
  size_t budget; /* bytes of a device; 0 if unlimited */
  space space;
  size_t count, capacity;
  server *servers; /* sorted after the search, best first */
  char *why;       /* error of the first impossible server */
  sl_status wrong;
  double took; /* duration of the search in seconds */
} hunt;

sl_status space_read(hunt *h);
void space_fini(space *s);
/* Lists numbers of concurrent ticks worth trying with `stages` stages, at most SPACE_MOST. */
enum { SPACE_MOST = 24 };
int space_groups(const hunt *h, int64_t stages, int64_t *out);
/* Lists numbers of concurrent answers for ticks of `rows` rows, at most SPACE_MOST: the largest
 * possible number, then a quarter of the previous one each time, which makes requests wait less. */
int space_sequences(const hunt *h, int64_t rows, int64_t *out);
/* Lists numbers of pages, ascending, at most SPACE_MOST: from what one sequence needs, doubling, up
 * to the most that can ever be in use. */
int space_pages(const hunt *h, const sl_session_info *about, int64_t *out);

/* ---- search.c ------------------------------------------------------------------------------- */

/* Tries all servers. */
void hunt_search(hunt *h, int threads);
/* Makes the session options of a server; its cost goes to *cost. */
sl_session_options hunt_options(const hunt *h, const server *server, sl_tick_cost *cost);
/* Returns the best server with another value of a dimension that meets the levels, or NULL if there
 * is none. */
const server *hunt_second(const hunt *h, slo_dim dim);
bool hunt_fits(const hunt *h, const server *server);
void hunt_fini(hunt *h);

/* ---- show.c --------------------------------------------------------------------------------- */

/* Prints the results. SL_E_BUDGET: no server fits, or none meets the levels; the message names the
 * closest. */
sl_status hunt_show(const hunt *h, FILE *out);

#endif
