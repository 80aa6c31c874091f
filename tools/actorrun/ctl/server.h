/* How a run is asked and steered from outside while it goes on: by its user, over a
 * socket of the machine it runs on, and by the other processes of its job. */
#ifndef SLUICE_TOOLS_ACTORRUN_CONTROL_H
#define SLUICE_TOOLS_ACTORRUN_CONTROL_H

#include <stdio.h>

#include "tools/actorrun/actorrun.h"

struct topic;

/* Starts the thread that answers other processes, about the topics up to one without a
 * question. The job outlives it. */
sl_status control_open(job *j, const struct topic *topics, control **out);
/* From here on the user is answered too. Once all processes have a control. */
sl_status control_listen(control *c);
void control_close(control *c);

/* A question that each process of the job answers on its control's thread, all
 * questions in the same order. What it writes to `out` is the answer. */
typedef struct question {
  const char *word; /* up to 15 characters */
  void (*answer)(job *j, const void *data, size_t bytes, FILE *out);
} question;

/* Puts a question to all processes of the job and waits until they have answered, or
 * as many as have by the end of the time. [processes], each and all the caller's to
 * free(); data is NULL for one that is silent. Within a request, on control's thread. */
sl_blob *control_ask(control *c, const question *q, const void *data, size_t bytes, int ms);
int control_processes(const job *j);

/* ---- what can be asked ------------------------------------------------------------------ */

/* A request of the user, and the question to all processes that it leads to. `text` is what
 * follows the word, `out` gets the answer. A failure's text is sl_detail(). */
typedef struct topic {
  const question *question;
  const char *word;
  sl_status (*request)(control *c, job *j, const char *text, FILE *out);
} topic;

extern const topic control_topics[]; /* all there are */

extern const question question_look, question_quota;
sl_status request_quota(control *c, job *j, const char *text, FILE *out);
sl_status request_status(control *c, job *j, const char *text, FILE *out);

#endif
