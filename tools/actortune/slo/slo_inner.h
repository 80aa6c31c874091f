/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface of slo/: service levels, and the servers compared by them. */
#ifndef SLUICE_TOOLS_ACTORTUNE_SLO_SLO_INNER_H
#define SLUICE_TOOLS_ACTORTUNE_SLO_SLO_INNER_H

#include <pthread.h>
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
  bool energy; /* the least energy for a token is the best */
} levels;

/* Parses "ttft=200ms,tpot@90=0.05,energy". SL_E_USAGE names the error in --slo. */
sl_status levels_read(const char *text, levels *out);
/* Measures the levels into seconds[count]. Returns the largest ratio of a measured to an allowed
 * time: if it is at most 1, all levels are met. */
double levels_measure(const levels *l, const arrivals *came, const sl_answered *answered,
                      double *seconds);

/* ---- space.c -------------------------------------------------------------------------------- */

typedef enum slo_dim {
  SLO_STAGES,
  SLO_TENSOR,
  SLO_REPLICAS,
  SLO_PREFILL,        /* number of servers for prompts; 0: prompts and answers together */
  SLO_PREFILL_TENSOR, /* devices of each of these */
  SLO_GROUPS,
  SLO_ROWS,
  SLO_SEQUENCES,
  SLO_PAGES,
  SLO_ADMIT,
  SLO_DTYPE, /* index of a type of weights (hunt_format), and of keys and values */
  SLO_KV,
  SLO_DIMS
} slo_dim;
extern const char *const slo_dims[SLO_DIMS];
extern const char *const slo_admits[]; /* words by sl_admit; NULL-terminated */

/* One server configuration and its results. */
typedef struct server {
  int64_t at[SLO_DIMS]; /* pages 0: as many as are used, and fit */
  int devices;          /* of all servers */
  bool hopeful;         /* it may meet the levels */
  double most, guess;   /* upper bound of its score, and what it may reach */
  size_t bytes;         /* bytes of the largest device; 0 if impossible */
  bool tried;           /* it fits and was simulated */
  bool exact;           /* with its own plan */
  double rate;          /* factor by which arrivals are faster than in the file */
  double tokens;        /* tokens per second */
  double joules;        /* per token; 0 if not known */
  double seconds[LEVELS_MOST];
  double off;   /* result of levels_measure() */
  double score; /* what is searched: more is better */
} server;

/* Types of weights or of keys and values to choose from. */
typedef struct formats {
  int count;
  char **words; /* [count] */
} formats;

/* Stages and devices that share them, and formats: one plan, whose ticks are priced once. */
typedef struct shape {
  int stages, tensor, format;
  sl_session_prices *prices; /* NULL: impossible */
  double page_bytes;         /* of the largest device, for each page */
  sl_status wrong;           /* why it is impossible */
  char *why;
} shape;

/* The configurations to choose from. */
typedef struct space {
  numbers stages, tensor, rows, admits;
  numbers replicas;  /* empty: see space_replicas() */
  numbers prefill;   /* empty: see space_prefill() */
  numbers groups;    /* empty: see space_groups() */
  numbers sequences; /* empty: see space_sequences() */
  numbers pages;     /* empty: see space_pages() */
} space;

/* Bytes of devices that are known, by stages, tensor, rows, sequences, groups and formats. */
typedef struct hunt_bytes {
  pthread_mutex_t lock;
  size_t count, capacity;
  struct hunt_known {
    int64_t key[6];
    size_t bytes;
  } * items; /* [count] */
} hunt_bytes;

typedef struct hunt {
  const settings *settings; /* with the first formats */
  formats dtypes, kvs;
  settings *of_formats; /* [dtypes.count][kvs.count] */
  arrivals came;
  levels levels;
  sl_tick_cost cost; /* --tick: the cost of a tick with one stage */
  /* costed: --tick is given; whole: as a file. Otherwise the machine file gives the cost. */
  bool costed, whole;
  bool all;     /* try all servers, without bounds */
  words model;  /* MODEL and its options */
  bool goodput; /* the highest rate wins; otherwise the most tokens at the given rate */
  int points, devices;
  int64_t least_pages; /* of one sequence */
  size_t budget;       /* bytes of a device; 0 if unlimited */
  space space;
  size_t nshapes;
  shape *shapes;
  hunt_bytes *bytes;
  size_t count, capacity;
  server *servers; /* sorted after the search, best first */
  size_t tried;    /* simulated servers */
  double best;     /* best score of a server that meets the levels */
  char *why;       /* error of the first impossible server */
  sl_status wrong;
  double took; /* duration of the search in seconds */
} hunt;

sl_status space_read(hunt *h);
void space_fini(space *s);
/* Returns the index of a server's formats in of_formats. */
static inline int hunt_format(const hunt *h, const server *c) {
  return (int)c->at[SLO_DTYPE] * h->kvs.count + (int)c->at[SLO_KV];
}
/* Return the shape of a server, and of the servers for its prompts, or NULL. */
const shape *hunt_shape(const hunt *h, const server *c);
const shape *hunt_prompts_shape(const hunt *h, const server *c);
/* Lists all configurations of the space into h->servers, and their shapes. */
void space_list(hunt *h);
/* Returns the most pages that can be in use at once. */
int64_t space_most_pages(const hunt *h, int64_t sequences);

/* ---- servers.c ------------------------------------------------------------------------------ */

/* The servers of a configuration, for a simulation. */
typedef struct made {
  sl_session_options options, prefill;
  sl_tick_cost cost;
  sl_fleet fleet;
} made;

void server_make(const hunt *h, const server *c, made *out);
/* Prices the ticks of all shapes. */
void hunt_price(hunt *h, int threads);
/* Sets the bounds of a server. */
void server_bound(const hunt *h, server *c);
/* Simulates a server and sets its results. `exact`: with its own plan, as actorserve does,
 * otherwise with the prices of its shape. The arrivals are a copy for the rates tried. A failure is
 * in *why, which the caller frees. */
sl_status server_try(const hunt *h, server *c, sl_arrival *arrivals, bool exact, char **why);
bool hunt_fits(const hunt *h, const server *c);

/* ---- search.c ------------------------------------------------------------------------------- */

/* Tries servers, best first by their bounds. */
void hunt_search(hunt *h, int threads);
/* Sets the best servers that meet the levels, at most h->points, without those that are like a
 * better one. Returns their number. */
int hunt_best(const hunt *h, server **out);
/* Returns the best server with another value of a dimension that meets the levels, or NULL if there
 * is none. */
const server *hunt_second(const hunt *h, slo_dim dim);
void hunt_fini(hunt *h);

/* ---- show.c --------------------------------------------------------------------------------- */

/* Prints the results. SL_E_BUDGET: no server fits, or none meets the levels; the message names the
 * closest. */
sl_status hunt_show(const hunt *h, FILE *out);

#endif
