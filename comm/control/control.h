/* The control plane: how the processes of a job find each other, agree that they
 * run the same plan, say words to each other, and notice that one of them is gone.
 *
 * Process 0 is the controller: it binds the job's endpoint, all others connect to
 * it, and processes that exchange data hear each other over direct links. Everything is
 * encrypted and authenticated with the job's key; who does not have it is not
 * heard. A process that is silent for longer than `lost_ms` is lost, and with it
 * the job: every process is told which one and why.
 *
 * Threads: a control has a thread of its own, which makes all callbacks. The
 * functions below may be called by any thread; those that block say so. */
#ifndef SLUICE_COMM_CONTROL_H
#define SLUICE_COMM_CONTROL_H

#include "base/base.h"

enum {
  SLI_CONTROL_KEY_CHARS = 40,
  SLI_CONTROL_HOST_CHARS = 256,
};

typedef struct sli_control_options {
  int process, nprocesses;
  const char *endpoint;    /* "HOST:PORT" of process 0; PORT 0 binds any (see _endpoint) */
  const char *job;         /* name of the job, equal in all its processes */
  const char *key;         /* the job's secret, Z85, SLI_CONTROL_KEY_CHARS characters */
  int incarnation;         /* counts restarts: what an earlier one sent is refused */
  int join_ms;             /* how long all may take to join; 0: 60,000 */
  int heartbeat_ms;        /* 0: 500 */
  int lost_ms;             /* 0: 1,500 */
  int strangers;           /* connections of theirs that may stand at each socket; 0: 256 */
  void *ctx;
  /* The job is over: by loss of a process, or by sli_control_abort somewhere.
   * Once; after it nothing else comes. `culprit` is the process, the same one
   * everywhere; text names it and says why. Not called if sli_control_join failed:
   * then that says so. */
  void (*on_abort)(void *ctx, int culprit, const char *text);
  /* What sli_control_say sent, also this process's own words. Perhaps before sli_control_join
   * has returned here. */
  void (*on_word)(void *ctx, int from, const char *word, const void *data, size_t bytes);
} sli_control_options;

typedef struct sli_control sli_control;

/* A fresh key for a job. */
void sli_control_make_key(char key[SLI_CONTROL_KEY_CHARS + 1]);
/* The same key wherever the same secret and job are given. */
void sli_control_derive_key(const void *secret, size_t bytes, const char *job,
                            char key[SLI_CONTROL_KEY_CHARS + 1]);

/* Binds or connects, and starts the thread. Does not wait for others. Callbacks
 * must not take long (hearts beat on the same thread), and must not join, meet or
 * close; watch, say and abort are welcome there. */
sl_status sli_control_open(const sli_control_options *options, sli_control **out);
/* Blocks until all processes have joined. Fails with who is missing (SL_E_PEER), who
 * speaks another version or expects another number (SL_E_INPUT), or why this process was refused
 * (also). */
sl_status sli_control_join(sli_control *c);
/* Says goodbye first; does not wait for others: see sli_control_meet. */
void sli_control_close(sli_control *c);

/* Where process 0 listens, the port filled in: "HOST:PORT". */
const char *sli_control_endpoint(const sli_control *c);
/* After join. Where this process listens for others, in numbers ("*": at all addresses of its
 * host); NULL for process 0, to which the others connect. And where another is, from here. */
const char *sli_control_here(const sli_control *c);
void sli_control_host_of(const sli_control *c, int process, char host[SLI_CONTROL_HOST_CHARS]);

/* After join. From now on the two hear each other's hearts over a link of their own, so each
 * notices if the way between them is cut. Once or more often. */
void sli_control_watch(sli_control *c, int process);

/* A word (up to 15 characters) with data, to one process, or to all (-1), itself
 * included. All words go through process 0: those to all come in the same order
 * everywhere. Long data is cut and put together again; SL_E_USAGE: more than 64 MiB. */
sl_status sli_control_say(sli_control *c, int process, const char *word, const void *data,
                          size_t bytes);

/* Blocks until all processes have called it with the same word; each brings data,
 * and process 0 gets everybody's: blobs[nprocesses], the caller's to free(), as
 * is each .data. Elsewhere blobs may be NULL; otherwise it is set to NULL there.
 * SL_E_USAGE: more than 64 MiB. If
 * the job ends meanwhile, or one of the processes has left: SL_E_PEER (or what the
 * end was), with the culprit's name. */
typedef struct sli_control_blob {
  void *data;
  size_t bytes;
} sli_control_blob;
sl_status sli_control_meet(sli_control *c, const char *word, const void *data, size_t bytes,
                           sli_control_blob **blobs);
/* The same, and all get everybody's. */
sl_status sli_control_share(sli_control *c, const char *word, const void *data, size_t bytes,
                            sli_control_blob **blobs);

/* Ends the job everywhere, with this process as the culprit. */
void sli_control_abort(sli_control *c, const char *text);

/* Clock of a process less this one's (CLOCK_MONOTONIC), in ns: the offset of the
 * exchange with the shortest round trip so far, where old ones count as worse by 15
 * ppm of their age (Mills, RFC 5905). 0 until there was one. Direct for process 0
 * and for those whom this process watches; others through process 0. */
int64_t sli_control_clock_offset(const sli_control *c, int process);

typedef struct sli_control_counts {
  uint64_t frames_sent, frames_received, bytes_sent, bytes_received;
  uint64_t refused; /* frames and connections that were not let in */
} sli_control_counts;
sli_control_counts sli_control_count(const sli_control *c);

#endif
