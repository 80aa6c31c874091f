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
  bool begun;           /* has been let in before */
  int64_t nprompt, most; /* tokens of the prompt; of the whole, at most */
  int64_t count;
  size_t capacity;
  int32_t *tokens;      /* [count] prompt, then the answer so far */
  int64_t fed;          /* of these, in ticks so far; */
  int64_t computed;     /* the most that ever were */
  int ticks;            /* under way that have rows of it */
  int64_t npages;
  int32_t *pages;       /* [pages of `most`] */
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

/* A tick under way. */
typedef struct tick {
  int count;
  part *parts;          /* [sequences] */
} tick;

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
  long long number;     /* of the line, from 1 */
  bool pending, yielded; /* the line's tick is yet to be taken; those that yield have */
} sli_session_log;

typedef struct sli_log_entry {
  uint64_t id;
  bool yields;          /* else rows of it */
  int64_t from, rows;
} sli_log_entry;

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
  int64_t nfree;
  int32_t *free_pages;  /* [nfree] */
  sli_session_log log;
};

/* All of these under the lock. */

/* requests.c: its END; it is no longer among the requests, and its pages are free. */
void sli_session_finish(sl_session *s, request *r, sl_end end);
/* A token of its answer: tells it, and ends the request where that ends with it. Has it ended? */
bool sli_session_answer(sl_session *s, request *r, sl_session_event event);
/* All that have not ended, as cancelled or failed. */
void sli_session_finish_all(sl_session *s, sl_end end);

/* pages.c */
void sli_pages_init(sl_session *s);
void sli_pages_fini(sl_session *s);
int64_t sli_pages_of(int64_t positions);
/* Gives a request pages for so many positions, if there are: all, or none. */
bool sli_pages_take(sl_session *s, request *r, int64_t positions);
void sli_pages_free(sl_session *s, request *r);

/* choose.c: the fill of sl_serving: waits for something to do, and says what a tick does. */
void sli_session_choose(void *ctx, const sl_tick *at, int32_t *tokens, sl_batch *batch);

/* log.c */
sl_status sli_log_open(sl_session *s);
void sli_log_close(sl_session *s);
void sli_log_yield(sl_session *s, const request *r);
void sli_log_tick(sl_session *s, const tick *t);
/* Is there a tick in the file that is to be followed? Its line is log.line until log.pending is reset. */
bool sli_log_next(sl_session *s);
/* Reads a word of a line; where the next one begins, or NULL: there is none. */
const char *sli_log_word(const char *at, sli_log_entry *out);

/* take.c: the on_output of sl_lower_options: what a tick gave. */
void sli_session_take(void *ctx, const char *name, const sl_type *type, const void *data);

#endif
