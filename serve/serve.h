/* What the files of serve/ share: a session and its requests.
 *
 * Three kinds of threads touch a session: the users', which submit, cancel and poll; the source's,
 * which takes what a tick computes (choose.c) and waits while there is nothing; and the one on which the
 * plan delivers what a tick gave (take.c). One lock guards all that they share. */
#ifndef SLUICE_SERVE_H
#define SLUICE_SERVE_H

#include <pthread.h>

#include <sluice/session.h>

#include "base/base.h"

typedef struct request request;
typedef struct sli_pages sli_pages; /* prefixes.h */

/* Where a request stands. */
typedef enum standing {
  QUEUED,   /* has no pages: is new, or has given them up */
  RUNNING,
  YIELDING  /* gives them up when its ticks are back */
} standing;

struct request {
  request *next;        /* in the order in which they came */
  uint64_t id;
  void *user;
  standing standing;
  bool cancelled;       /* asked for, and ticks of it are under way */
  bool unwanted;        /* cancelled where a log is followed: it ends where that says so, or when it is over */
  bool begun;           /* has been let in before */
  int64_t nprompt, most; /* tokens of the prompt; of the whole, at most */
  int64_t count, until; /* of a log that is followed: it was cancelled with so many tokens; else INT64_MAX */
  size_t capacity;
  int32_t *tokens;      /* [count] prompt, then the answer so far */
  int64_t fed;          /* of these, in ticks so far, or in pages that others have filled; */
  int64_t computed;     /* the most that ever were */
  int64_t cached;       /* of the prompt, in pages of others when it was let in */
  int ticks;            /* under way that have rows of it */
  uint64_t last_tick;   /* number of the last one that has, from 1 */
  int64_t npages;
  int32_t *pages;       /* [pages of `most`] */
  int64_t named;        /* pages that are full, and have names; */
  uint64_t name;        /* that of the last of them (prefixes.c) */
  double pace;          /* seconds that its chunks take where it is alone; 0: not known yet */
  sl_request how;       /* temperature, ...; its arrays are not used */
  int32_t *stop;        /* [how.nstop] */
};

typedef struct events {
  size_t count, capacity, first; /* those from `first` on have not been polled */
  sl_session_event *of;
} events;

/* Rows of one request in a tick. */
typedef struct part {
  request *of;
  int64_t from, rows;
  bool picked;          /* its token follows from the last of them */
} part;

/* What a tick computes, added up. */
typedef struct load {
  int64_t rows, picks, sequences;
  double positions, pairs; /* behind which its sequences' rows come; sum of 2 L x + x x of x rows behind L */
} load;

/* A tick under way. */
typedef struct tick {
  int count;
  part *parts;          /* [sequences] */
  load load;
} tick;

/* What ticks took, the newest of them. */
typedef struct fit {
  int64_t ticks;
  size_t count, capacity;
  struct fit_sample {
    double rows, positions, pairs, picks, seconds;
  } *of;
} fit;

typedef struct ticks {
  uint64_t begun, back; /* numbers of those that */
  int most;
  tick *of;             /* [most] by number */
} ticks;

/* What ticks took, and what they are to take. */
typedef struct sli_session_log {
  FILE *to, *from;      /* or NULL */
  char *line;           /* of `from` */
  size_t capacity;
  bool within;          /* a line of `to`: it has words */
  int error;            /* of writing it; 0: none */
  long long number;     /* of the line, from 1 */
  const char *at;       /* in the line, what is to be followed next; NULL: between lines */
  size_t nends, ends_capacity;
  struct sli_log_end {
    uint64_t id;
    int64_t count;
  } *ends;              /* [nends] all requests that are cancelled in `from`, and with how many tokens */
} sli_session_log;

typedef struct sli_log_entry {
  uint64_t id;
  enum { SLI_LOG_ROWS, SLI_LOG_YIELDS, SLI_LOG_CANCELS } kind;
  int64_t from, rows; /* from: of CANCELS, how many tokens it has */
} sli_log_entry;

/* On the virtual clock, in place of whoever submits and polls. */
typedef struct sli_play {
  /* Submits those who have come by now. When the next one does; UINT64_MAX: none will. Ends the run once all have
   * been answered. */
  uint64_t (*go_on)(struct sli_play *p, sl_session *s);
  void (*note)(struct sli_play *p, const sl_session *s, const sl_session_event *event);
  /* A stage's actor takes so long for a tick. */
  void (*compute)(struct sli_play *p, const sl_session *s, int32_t actor, double seconds);
} sli_play;

struct sl_session {
  sl_session_options options;
  sl_session_info about;
  sl_serving serving;
  struct sli_shards *stored; /* while the graph is built; NULL: weights lie as the dtype says */
  sl_graph *graph;
  pthread_t thread;
  bool started, ran;    /* the thread is there; it was */
  /* under the lock: */
  pthread_mutex_t lock;
  pthread_cond_t work;  /* there may be something to compute, or the session is to end */
  pthread_cond_t idle;  /* the last request has ended, or the session has */
  request *requests;    /* those that have not ended, oldest first */
  uint64_t last_id;
  events events;
  int wake;             /* eventfd: 1 while there are events */
  bool draining, closing;
  sl_status status;     /* what has ended it */
  char *detail;
  sl_session_stats stats;
  ticks ticks;
  sli_pages *pages;
  sli_session_log log;
  double *shares;       /* [plan->nactors] of its stage's time for a tick; 0: it takes none, or the plan's */
  fit fit;              /* of ticks that are alone: of one stage, one after another */
  sli_play *play;       /* NULL: on the real clock */
};

/* All of these under the lock. */

/* requests.c: its END; it is no longer among the requests, and its pages are free. */
void sli_session_finish(sl_session *s, request *r, sl_end end);
/* A token of its answer: tells it, and ends the request where that ends with it. Has it ended? */
bool sli_session_answer(sl_session *s, request *r, sl_session_event event);
/* Nobody wants it any more: it ends now, or when its ticks are back. */
void sli_session_hang_up(sl_session *s, request *r);
/* Those that are unwanted. */
void sli_session_end_unwanted(sl_session *s);
/* So many events have not been polled that ticks wait. */
bool sli_session_is_behind(const sl_session *s);
/* All that have not ended, as cancelled or failed. */
void sli_session_finish_all(sl_session *s, sl_end end);

/* pages.c */
void sli_pages_init(sl_session *s);
void sli_pages_fini(sl_session *s);
int64_t sli_pages_of(int64_t positions);
/* Gives a request pages for so many positions, if there are: all, or none. */
bool sli_pages_take(sl_session *s, request *r, int64_t positions);
/* Lets a request in that has none: shares the first `shared` of those that are in r->pages and takes the others. */
bool sli_pages_let_in(sl_session *s, request *r, int64_t positions, int64_t shared);
void sli_pages_free(sl_session *s, request *r);

/* prefixes.c: how many pages hold what it begins with; r->pages says which. Its last token is in none of them, so
 * that there is something to compute. */
int64_t sli_prefixes_find(const sl_session *s, request *r);
/* A tick takes rows of it: its full pages can be found from now on. */
void sli_prefixes_note(sl_session *s, request *r);

/* requests.c: SL_E_USAGE says what is wrong with a request. */
sl_status sli_session_check(const sl_session *s, const sl_request *q);
/* Takes one in. SL_E_BUSY: too many wait; ... */
sl_status sli_session_enter(sl_session *s, const sl_request *q, uint64_t *id);

/* chunks.c: rows of a prompt's next chunk, of `most` that there is room for. */
int64_t sli_chunk_rows(sl_session *s, request *r, int64_t most);

/* price.c: on timed devices, how long an actor's firing takes; and a tick in the mean. */
void sli_price_init(sl_session *s);
double sli_price_tick(const sl_tick_cost *cost, const load *of);
uint64_t sli_price_firing(void *session, int32_t actor, int64_t tick); /* sl_runtime_options.duration */

/* fit.c */
void sli_fit_note(fit *f, const load *of, double seconds);
/* With corners and a spread, or without. */
sl_tick_cost sli_fit_cost(const fit *f, bool corners);
void sli_fit_fini(fit *f);

/* choose.c: the fill of sl_serving: waits for something to do, and says what a tick does. */
void sli_session_choose(void *ctx, const sl_tick *at, int32_t *tokens, sl_batch *batch);
/* On devices that hold no values: its await. */
uint64_t sli_session_await(void *ctx, const sl_tick *at);

/* log.c */
sl_status sli_log_open(sl_session *s);
sl_status sli_log_close(sl_session *s); /* SL_E_IO: not all of it was written */
void sli_log_yield(sl_session *s, const request *r);
void sli_log_cancel(sl_session *s, const request *r);
void sli_log_part(sl_session *s, const request *r, int64_t rows); /* those that are next */
void sli_log_tick(sl_session *s, const tick *t);
/* With how many tokens a request is cancelled in the file that is followed; INT64_MAX: not there. */
int64_t sli_log_until(const sl_session *s, uint64_t id);
/* Is there a tick in the file that is to be followed? Its words are at log.at, until that is NULL again. */
bool sli_log_next(sl_session *s);
/* Reads a word of a line; where the next one begins, or NULL: there is none. */
const char *sli_log_word(const char *at, sli_log_entry *out);

/* session.c: all but its thread; and all of it, but that it may not have been begun. */
sl_status sli_session_open(const sl_session_options *options, sli_play *play, sl_session **out);
/* Runs its plan, in the calling thread, to its end. */
void sli_session_run(sl_session *s);

/* take.c: the on_output of sl_lower_options: what a tick gave. */
void sli_session_take(void *ctx, const char *name, const sl_type *type, const void *data);

#endif
