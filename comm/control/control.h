/* SPDX-License-Identifier: Apache-2.0 */
/* The control plane, through which the processes of a job find each other, check that they run the
 * same plan, exchange words, and detect the loss of a process.
 *
 * Process 0 is the controller: it binds the job's endpoint, and all other processes connect to it.
 * Processes that exchange data also monitor each other over direct links. All traffic is encrypted
 * and authenticated with the job's key; a peer without the key is ignored. If a process is silent
 * for longer than `lost_ms`, it is lost and the job ends: every process is told which one was lost
 * and why.
 *
 * Threads: a control has its own thread, which makes all callbacks. Any thread may call the
 * functions below; the comments say which ones block. */
#ifndef SLUICE_COMM_CONTROL_CONTROL_H
#define SLUICE_COMM_CONTROL_CONTROL_H

#include "base/base.h"

enum {
  SLI_CONTROL_KEY_CHARS = 40,
  SLI_CONTROL_HOST_CHARS = 256,
};

typedef struct sli_control_options {
  int process, nprocesses;
  const char *endpoint; /* "HOST:PORT" of process 0; PORT 0 binds a free port (see _endpoint) */
  const char *job;      /* name of the job, equal in all its processes */
  const char *key;      /* the job's secret, Z85, SLI_CONTROL_KEY_CHARS characters */
  int incarnation;      /* counts restarts: frames of an earlier incarnation are refused */
  int join_ms;          /* time limit for all processes to join; 0: 60,000 */
  int heartbeat_ms;     /* 0: 500 */
  int lost_ms;          /* 0: 1,500 */
  int strangers;        /* most unauthenticated connections at each socket; 0: 256 */
  void *ctx;
  /* Reports the end of the job: a process was lost, or some process called sli_control_abort.
   * Called once, as the last callback. `culprit` is that process, the same one everywhere; text
   * names it and says why. Not called if sli_control_join failed, which itself returns the
   * reason. */
  void (*on_abort)(void *ctx, int culprit, const char *text);
  /* Receives words of sli_control_say, including this process's own. May be called before
   * sli_control_join has returned in this process. */
  void (*on_word)(void *ctx, int from, const char *word, const void *data, size_t bytes);
} sli_control_options;

typedef struct sli_control sli_control;

/* Makes a new random key for a job. A build without ZeroMQ cannot make keys. */
sl_status sli_control_make_key(char key[SLI_CONTROL_KEY_CHARS + 1]);
/* Derives a key from a secret and a job's name; equal inputs give the same key. */
sl_status sli_control_derive_key(const void *secret, size_t bytes, const char *job,
                                 char key[SLI_CONTROL_KEY_CHARS + 1]);

/* Binds or connects, and starts the thread. Does not wait for other processes. Callbacks must
 * return quickly (heartbeats use the same thread) and must not join, meet or close. They may watch,
 * say and abort. */
sl_status sli_control_open(const sli_control_options *options, sli_control **out);
/* Blocks until all processes have joined. SL_E_PEER names the missing processes. SL_E_INPUT
 * names a process with another version or process count, or says why this process was refused. */
sl_status sli_control_join(sli_control *c);
/* Says goodbye and closes the control plane, without waiting for other processes: see
 * sli_control_meet. */
void sli_control_close(sli_control *c);

/* Returns the endpoint of process 0, with its port filled in: "HOST:PORT". */
const char *sli_control_endpoint(const sli_control *c);
/* Addresses, after join. _here returns the numeric address at which this process listens ("*": all
 * addresses of its host); NULL in process 0, to which the other processes connect. _host_of returns
 * another process's address as seen from here. */
const char *sli_control_here(const sli_control *c);
void sli_control_host_of(const sli_control *c, int process, char host[SLI_CONTROL_HOST_CHARS]);

/* Starts mutual heartbeats with a process over a direct link, so that each notices if the
 * network between them fails. After join; may be repeated. */
void sli_control_watch(sli_control *c, int process);

/* Sends a word (up to 15 characters) with data to one process, or to all (-1), itself included. All
 * words go through process 0: words to all arrive in the same order everywhere. Long data is split
 * and reassembled. SL_E_USAGE: the data has more than 64 MiB. */
sl_status sli_control_say(sli_control *c, int process, const char *word, const void *data,
                          size_t bytes);

/* Blocks until all processes have called it with the same word (a barrier with a gather). Each
 * brings data, and process 0 gets everybody's in blobs[nprocesses]; the caller frees it and each
 * .data. In other processes blobs may be NULL; if not, *blobs is set to NULL. SL_E_USAGE: the data
 * has more than 64 MiB. SL_E_PEER (or the status of the job's end): the job ended meanwhile, or a
 * process has left; the error names the culprit. */
typedef struct sli_control_blob {
  void *data;
  size_t bytes;
} sli_control_blob;
sl_status sli_control_meet(sli_control *c, const char *word, const void *data, size_t bytes,
                           sli_control_blob **blobs);
/* Same as sli_control_meet, but every process gets everybody's data (an all-gather). */
sl_status sli_control_share(sli_control *c, const char *word, const void *data, size_t bytes,
                            sli_control_blob **blobs);

/* Ends the job everywhere, with this process as the culprit. */
void sli_control_abort(sli_control *c, const char *text);

/* Returns the clock of a process minus this one's (CLOCK_MONOTONIC), in ns. The value is the offset
 * from the exchange with the shortest round trip so far. Old exchanges count as longer, by 15 ppm
 * of their age (Mills, RFC 5905). 0 until the first exchange. Measured directly for process 0 and
 * for watched processes, through process 0 for others. */
int64_t sli_control_clock_offset(const sli_control *c, int process);

typedef struct sli_control_counts {
  uint64_t frames_sent, frames_received, bytes_sent, bytes_received;
  uint64_t refused; /* refused frames and connections */
} sli_control_counts;
sli_control_counts sli_control_count(const sli_control *c);

#endif
