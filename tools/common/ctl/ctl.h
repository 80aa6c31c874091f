/* How a run is asked and steered from outside while it goes on: by its user, over a
 * socket of the machine it runs on, and by the other processes of its job. */
#ifndef SLUICE_TOOLS_COMMON_CTL_H
#define SLUICE_TOOLS_COMMON_CTL_H

#include <stdio.h>
#include <sys/types.h>

#include <sluice/look.h>
#include <sluice/lower.h>

#include "comm/job/job.h"

struct cJSON;

/* What is asked: a run, and what its owner tells of it besides. */
typedef struct subject {
  sl_job *processes;     /* this one among the others */
  const sl_plan *plan;
  const sl_lowered *lowered;
  sl_runtime *rt;
  const char *model;
  void *ctx;             /* the owner's */
  size_t own_bytes;      /* that it tells of each process: plain data, written by tell */
  void (*tell)(void *ctx, void *own);
  /* Adds to the answer what all have told: own[processes], NULL of one that is silent. */
  void (*describe)(void *ctx, const sl_look *look, const void *const *own, struct cJSON *to);
} subject;

typedef struct control control;
struct topic;

/* Starts the thread that answers other processes, about the topics up to one without a
 * question. The subject outlives it. */
sl_status control_open(const subject *s, const struct topic *topics, control **out);
/* From here on the user is answered too. Once all processes have a control. */
sl_status control_listen(control *c);
void control_close(control *c);

/* A question that each process of the job answers on its control's thread, all
 * questions in the same order. What it writes to `out` is the answer. */
typedef struct question {
  const char *word; /* up to 15 characters */
  void (*answer)(control *c, const subject *s, const void *data, size_t bytes, FILE *out);
} question;

/* Puts a question to all processes of the job and waits until they have answered, or
 * as many as have by the end of the time. [processes], each and all the caller's to
 * free(); data is NULL for one that is silent. Within a request, on control's thread. */
sl_blob *control_ask(control *c, const question *q, const void *data, size_t bytes, int ms);

/* What is kept of a trace that was switched on, on control's thread. */
typedef struct tracing {
  char *path; /* free() of it is control's; NULL: it is off */
  uint64_t since_ns, fired; /* when it was, and firings that had ended here by then */
} tracing;
tracing *control_tracing(control *c);

/* ---- what can be asked ------------------------------------------------------------------ */

/* A request of the user, and the question to all processes that it leads to. `text` is what
 * follows the word, `out` gets the answer. A failure's text is sl_detail(). */
typedef struct topic {
  const question *question;
  const char *word;
  sl_status (*request)(control *c, const subject *s, const char *text, FILE *out);
} topic;

/* How the run is; the quotas of its registers, shown and changed; what it does from here on, as a file. */
extern const question question_look, question_quota, question_trace;
sl_status request_status(control *c, const subject *s, const char *text, FILE *out);
sl_status request_quota(control *c, const subject *s, const char *text, FILE *out);
sl_status request_trace(control *c, const subject *s, const char *text, FILE *out);

/* ---- for those who ask ------------------------------------------------------------------ */

/* The socket of another process of this user; SL_E_INPUT: there is none. */
sl_status socket_connect(pid_t pid, int *out);
/* All there are, in order; those of processes that are gone are removed. free(*out). */
size_t socket_list(pid_t **out);

#endif
