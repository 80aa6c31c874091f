/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions shared within the control plane. The control thread owns everything except `shared`,
 * which its lock protects, and the counts, which are atomic.
 *
 * Files call only files further down in this list:
 *
 *   control            API for other threads
 *   thread             the event loop; monitor events
 *   silence            heartbeats; silent peers
 *   receive            dispatch of checked frames
 *   join words         joining of the job; words to one or all
 *   meetings           barriers
 *   sockets            opening and closing of sockets
 *   end                verdict: which process is to blame
 *   parts clock        long data; clock offsets
 *   send               sending; refusals
 *   auth listen frame address */
#ifndef SLUICE_COMM_CONTROL_CONTROL_INNER_H
#define SLUICE_COMM_CONTROL_CONTROL_INNER_H

#include <pthread.h>
#include <stdatomic.h>
#include <zmq.h>

#include "comm/control/control.h"
#include "comm/control/address.h"
#include "comm/control/auth.h"
#include "comm/control/frame.h"
#include "comm/control/listen.h"

enum { SLI_ROUTE_BYTES = 16 };

/* A connection for frames to and from a peer. */
typedef struct sli_line {
  void *socket; /* NULL: no connection */
  uint8_t route[SLI_ROUTE_BYTES];
  size_t route_bytes;  /* ROUTER: length of the peer's routing id; otherwise 0 */
  uint64_t sent, seen; /* sequence numbers of the last frames */
  uint64_t opened_ns;  /* time this side opened it; 0: the other side did */
  uint64_t heard_ns;   /* arrival of the last frame, or 0 */
  bool closed;         /* the connection is known to be gone */
  int exchanges;       /* clock exchanges so far */
  int64_t offset_ns;
  uint64_t error_ns, measured_ns; /* bound on the error of offset_ns, and its time */
} sli_line;

/* Long data that is being reassembled; one per kind and sender. */
typedef struct sli_assembly {
  uint8_t *data;
  uint64_t bytes, total_bytes; /* received so far; in total */
} sli_assembly;

typedef struct sli_peer {
  bool here, left;
  uint64_t instance;
  char host[SLI_FRAME_NAME_CHARS], direct[SLI_FRAME_DIRECT_CHARS];
  sli_line hub; /* in process 0, its line to this peer; elsewhere only peers[0].hub is used, the
                   line to process 0 */
  sli_line out; /* this side's DEALER to the peer's ROUTER: this side watches it */
  sli_line in;  /* the peer's DEALER to this side's ROUTER: it watches this side */
  sli_assembly parts[SLI_DATA_KINDS];
} sli_peer;

/* Data that waits to be sent, in order. */
typedef struct sli_order {
  struct sli_order *next;
  sli_data_kind kind;
  int target;
  char word[SLI_FRAME_WORD_CHARS];
  void *data;
  size_t bytes;
} sli_order;

/* A thread in sli_control_meet, on its stack. */
typedef struct sli_waiter {
  struct sli_waiter *next;
  const char *word;
  bool done;
  sli_control_blob *blobs;
} sli_waiter;

/* A meeting, in process 0: the processes that have arrived so far. */
typedef struct sli_meeting {
  struct sli_meeting *next;
  char word[SLI_FRAME_WORD_CHARS];
  int count;
  bool shared; /* all get everybody's data, not only process 0 */
  bool *came;
  sli_control_blob *blobs;
} sli_meeting;

/* Connection on which a frame arrived. */
typedef enum sli_origin { SLI_AT_HUB, SLI_FROM_HUB, SLI_DIRECT_IN, SLI_DIRECT_OUT } sli_origin;

typedef enum sli_refusal {
  SLI_REFUSED_CONNECTION,
  SLI_REFUSED_KEY,
  SLI_REFUSED_MALFORMED,
  SLI_REFUSED_VERSION,
  SLI_REFUSED_JOB,
  SLI_REFUSED_INCARNATION,
  SLI_REFUSED_UNKNOWN,
  SLI_REFUSED_REPLAY,
  SLI_REFUSED_LATE,
  SLI_REFUSALS
} sli_refusal;

/* Process 0, as seen from here. */
typedef struct sli_hub {
  char host[SLI_HOST_CHARS], ip[SLI_IP_CHARS];
  int port;
  char endpoint[SLI_ENDPOINT_CHARS];
  /* Progress of the connection to it. */
  bool connected, shaken;
  uint64_t closed_ns; /* 0: not closed */
  char waiting_for[SLI_FRAME_TEXT_BYTES + 1];
} sli_hub;

typedef struct sli_sockets {
  void *context;
  void *zap; /* socket on which libzmq asks whether to admit a client */
  void *hub, *direct;
  void *hub_watch, *direct_watch; /* monitors */
  sli_listener hub_listener, direct_listener;
  char here[SLI_IP_CHARS]; /* numeric address of `direct`; set before joining */
  int wake_fd;
  zmq_pollitem_t *items;
} sli_sockets;

/* Times of the next periodic tasks. */
typedef struct sli_due {
  uint64_t beat_ns, look_ns, hello_ns, resolve_ns, probe_ns, tend_ns;
  uint64_t probe_until_ns;
} sli_due;

/* The verdict that this process has reported to process 0, and whose confirmation it awaits. */
typedef struct sli_verdict {
  uint64_t until_ns; /* end of the wait; 0: nothing reported */
  int suspect;
  sl_status status;
  char text[SLI_FRAME_TEXT_BYTES + 1];
} sli_verdict;

/* State shared between the control thread and other threads, protected by the lock. */
typedef struct sli_shared {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool awake, closing, joined, ended, aborting;
  int *watched, nwatched; /* peers to monitor; entries are only added */
  sli_order *orders, **orders_end;
  sli_waiter *waiters;
  int culprit;
  sl_status end_status;
  char end_text[SLI_FRAME_TEXT_BYTES + 1], abort_text[SLI_FRAME_TEXT_BYTES + 1];
  int64_t *offsets;
} sli_shared;

/* Statistics: relaxed, read by any thread. */
typedef struct sli_counts {
  _Atomic uint64_t frames_sent, frames_received, bytes_sent, bytes_received, refused;
} sli_counts;

struct sli_control {
  int self, nprocesses, incarnation;
  uint64_t instance;
  char job[SLI_FRAME_NAME_CHARS], host[SLI_FRAME_NAME_CHARS];
  sli_control_options options; /* callbacks and times; pointers to data are not kept */
  sli_auth auth;
  pthread_t thread;
  uint64_t opened_ns;
  sli_hub hub;
  sli_sockets sockets;
  sli_peer *peers;
  int nhere, nouts, *outs; /* peers whose `out` is open */
  int nwatching;           /* entries of shared.watched handled so far */
  sli_meeting *meetings;
  bool logged[SLI_REFUSALS];
  int beats;
  sli_due due;
  sli_verdict verdict;
  sli_shared shared;
  sli_counts counts;
};

/* Rate limit of connections to process 0 once the job runs, when nobody needs to connect. */
enum { SLI_LATE_PER_SECOND = 100 };

static inline bool sli_is_hub(const sli_control *c) { return c->self == 0; }

/* thread.c */
void *sli_control_run(void *control);

/* sockets.c */
sl_status sli_sockets_bind(sli_control *c); /* before the thread runs */
void sli_sockets_close(sli_control *c);
/* Connects to process 0 as soon as its name is resolved. */
void sli_sockets_connect(sli_control *c);
void sli_sockets_watch(sli_control *c, int process); /* opens a direct link, if there is none */

/* send.c */
bool sli_line_send(sli_control *c, sli_line *line, sli_frame *frame);
void sli_refuse(sli_control *c, sli_refusal kind, const char *sender, const char *why);

/* receive.c: takes a limited number of frames, so that other sockets get their turn. Returns
 * whether there may be more. */
bool sli_receive(sli_control *c, void *socket, sli_origin origin, int process);

/* silence.c */
void sli_beat(sli_control *c);                           /* sends PING to every peer */
void sli_check_silence(sli_control *c, uint64_t now_ns); /* reports silent peers */

/* clock.c */
void sli_clock_ask(sli_control *c, sli_line *line);
void sli_clock_answer(sli_control *c, sli_line *line, const sli_frame *frame);
void sli_clock_take(sli_control *c, int process, sli_line *line, const sli_frame *frame);
void sli_clocks_send(sli_control *c);
void sli_clocks_take(sli_control *c, const sli_frame *frame);

/* join.c */
void sli_hello_send(sli_control *c);
void sli_hello_take(sli_control *c, const sli_frame *frame, const uint8_t *route,
                    size_t route_bytes, const char *sender);
void sli_join_answer(sli_control *c, const sli_frame *frame); /* WAIT, REFUSE */
void sli_table_take(sli_control *c, const uint8_t *data, size_t bytes);
void sli_join_overdue(sli_control *c);
void sli_join_complete(sli_control *c);

/* parts.c: long data is sent in parts, in order on each line. */
void sli_data_send(sli_control *c, sli_line *line, sli_data_kind kind, int from, int target,
                   const char *word, const void *data, size_t bytes);
typedef enum sli_part { SLI_PART_REFUSED, SLI_PART_TAKEN, SLI_PART_LAST } sli_part;
/* Takes a part. After the last one, *data is the whole; the caller frees it with free(). */
sli_part sli_part_take(sli_control *c, int process, const sli_frame *frame, uint8_t **data,
                       size_t *bytes);
void sli_parts_fini(sli_control *c);

/* words.c */
void sli_word_pass_on(sli_control *c, const sli_frame *frame); /* forwards a word; at process 0 */
void sli_word_take(sli_control *c, int from, const char *word, const void *data, size_t bytes);
void sli_order_carry_out(sli_control *c, sli_order *order);

/* meetings.c */
void sli_blobs_free(sli_control_blob *blobs, int count);
/* Adds process `from` and its data, whose ownership passes to the meeting. target -1: all processes
 * get the data. */
void sli_meeting_come(sli_control *c, int from, int target, const char *word, void *data,
                      size_t bytes);
void sli_meeting_release(sli_control *c, const char *word, const uint8_t *data, size_t bytes);
void sli_meetings_check(sli_control *c); /* ends meetings that wait for a process that has left */
void sli_meetings_fini(sli_control *c);

/* end.c: the end of a job. `culprit` is to blame, regardless of which process detects it. */
void sli_blame(sli_control *c, sl_status status, int culprit, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void sli_verdict_take(sli_control *c, const sli_frame *frame);
void sli_verdict_overdue(sli_control *c);
void sli_end(sli_control *c, sl_status status, int culprit, const char *text);
/* "process 3 on host n2" */
const char *sli_peer_name(const sli_control *c, int process, char out[128]);

#endif
