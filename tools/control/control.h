/* SPDX-License-Identifier: Apache-2.0 */
/* Control of a running job: queries and changes by its user, over a Unix socket of this machine,
 * and by the other processes of the job. */
#ifndef SLUICE_TOOLS_CONTROL_CONTROL_H
#define SLUICE_TOOLS_CONTROL_CONTROL_H

#include <stdio.h>
#include <sys/types.h>

#include <sluice/run_status.h>
#include <sluice/lower.h>

#include "comm/job/job.h"

struct cJSON;

/* The run under control, and the owner's callbacks that add to its answers. */
typedef struct subject {
  sl_job *processes; /* the job, which knows the number of this process */
  const sl_plan *plan;
  const sl_lowered *lowered;
  sl_runtime *rt;
  const char *model;
  void *ctx;        /* context of the owner's callbacks */
  size_t own_bytes; /* bytes of plain data the owner sends for each process, written by tell */
  void (*tell)(void *ctx, void *own);
  /* Adds the owner's data of all processes to the answer: own[processes], NULL for one that did
   * not answer. */
  void (*describe)(void *ctx, const sl_run_status *rs, const void *const *own, struct cJSON *to);
} subject;

typedef struct control control;
struct topic;

/* Starts the thread that answers other processes. `topics` ends with one that has no question.
 * The subject must outlive the control. */
sl_status control_open(const subject *s, const struct topic *topics, control **out);
/* Starts answering the user. Call it once all processes have a control. */
sl_status control_listen(control *c);
void control_close(control *c);

/* A question that each process of the job answers on its control thread. All processes see
 * questions in the same order. The text written to `out` is the answer. */
typedef struct question {
  const char *word; /* up to 15 characters */
  void (*answer)(control *c, const subject *s, const void *data, size_t bytes, FILE *out);
} question;

/* Asks all processes of the job and waits for their answers, at most `ms`. Returns [processes]
 * blobs; the caller frees the array and each blob's data. NULL data: no answer. Call it within a
 * request, on the control thread. */
sl_blob *control_ask(control *c, const question *q, const void *data, size_t bytes, int ms);

/* State of a trace that is being recorded, on the control thread. */
typedef struct tracing {
  char *path;               /* owned by the control; NULL: tracing is off */
  uint64_t since_ns, fired; /* when tracing started, and firings completed here before that */
} tracing;
tracing *control_tracing(control *c);

/* ---- requests --------------------------------------------------------------------------- */

/* A user's request and the question to all processes that it leads to. `text` follows the
 * request's word; `out` gets the answer. On failure the text is sl_detail(). */
typedef struct topic {
  const question *question;
  const char *word;
  sl_status (*request)(control *c, const subject *s, const char *text, FILE *out);
} topic;

/* The built-in questions: the status of the run, showing and changing register quotas, and writing
 * a trace of the run to a file. */
extern const question question_status, question_quota, question_trace;
sl_status request_status(control *c, const subject *s, const char *text, FILE *out);
sl_status request_quota(control *c, const subject *s, const char *text, FILE *out);
sl_status request_trace(control *c, const subject *s, const char *text, FILE *out);

/* ---- for clients ------------------------------------------------------------------------ */

/* Connects to the socket of another process of this user. Returns SL_E_INPUT if it has none. */
sl_status socket_connect(pid_t pid, int *out);
/* Lists the processes that have a socket, in order, and removes sockets of dead processes. The
 * caller frees *out. */
size_t socket_list(pid_t **out);

#endif
