/* What the files of serve/ share: a session and its requests.
 *
 * One lock guards all that several threads touch. The users' threads submit, cancel and poll; the
 * session's thread runs the plan. */
#ifndef SLUICE_SERVE_H
#define SLUICE_SERVE_H

#include <pthread.h>

#include <sluice/session.h>

#include "base/base.h"

typedef struct request request;

/* Where a request stands. */
typedef enum standing { QUEUED, RUNNING } standing;

struct request {
  request *next;        /* in the order in which they came */
  uint64_t id;
  void *user;
  standing standing;
  bool cancelled;       /* asked for, and not told yet */
  int64_t nprompt, most; /* tokens of the prompt; of the whole, at most */
  size_t count, capacity;
  int32_t *tokens;      /* prompt, then the answer so far */
  sl_request how;       /* temperature, ...; its arrays are not used */
  int32_t *stop;        /* [how.nstop] */
};

typedef struct events {
  size_t count, capacity, first; /* those from `first` on have not been polled */
  sl_session_event *of;
} events;

struct sl_session {
  sl_session_options options;
  sl_session_info about;
  sl_graph *graph;
  pthread_t thread;
  bool started;         /* the thread is there */
  /* under the lock: */
  pthread_mutex_t lock;
  pthread_cond_t work;  /* a request came, or the session is to end */
  pthread_cond_t idle;  /* the last request has ended, or the session has */
  request *requests;    /* those that have not ended, oldest first */
  uint64_t last_id;
  events events;
  int wake;             /* eventfd: 1 while there are events */
  bool draining, closing;
  sl_status status;     /* what has ended it */
  char *detail;
  sl_session_stats stats;
  /* of the session's thread: */
  struct served {
    request *of;        /* whose tick it is */
    int64_t row;        /* of the logits that follow its last token */
    float *logits;      /* [vocabulary] */
    bool answered;
  } served;
};

/* requests.c; all under the lock. */
/* Its END; it is no longer among the requests. */
void sli_session_finish(sl_session *s, request *r, sl_end end);
/* A token of its answer: tells it, and ends the request where that ends with it. */
void sli_session_answer(sl_session *s, request *r, const sl_session_event *event);
/* All that have not ended, as cancelled or failed. */
void sli_session_finish_all(sl_session *s, sl_end end);

/* sample.c: a token from its logits, by its request's settings. */
void sli_session_sample(const request *r, const float *logits, int64_t vocabulary,
                        sl_session_event *out);

#endif
