/* What the files of the control plane share. Everything here belongs to the
 * control thread, except what stands under `lock` and what is said to be atomic. */
#ifndef SLUICE_COMM_CONTROL_INNER_H
#define SLUICE_COMM_CONTROL_INNER_H

#include <pthread.h>
#include <stdatomic.h>
#include <zmq.h>

#include "comm/control/control.h"
#include "comm/control/address.h"
#include "comm/control/auth.h"
#include "comm/control/frame.h"
#include "comm/control/listen.h"

enum { SLI_ROUTE_BYTES = 16 };

/* Frames to a peer and from it, over one connection. */
typedef struct sli_way {
  void *socket; /* NULL: none */
  uint8_t route[SLI_ROUTE_BYTES];
  size_t route_bytes; /* at a ROUTER: which of its peers; else 0 */
  uint64_t sent, seen; /* sequence numbers of the last frames */
  uint64_t opened_ns;  /* by us; 0: by the other side */
  uint64_t heard_ns;   /* when the last one came; 0: never */
  bool closed;         /* the connection is known to be gone */
  int exchanges;       /* of clocks */
  int64_t offset_ns;
  uint64_t error_ns, measured_ns; /* of offset_ns: at most, and when */
} sli_way;

/* Long data that is being put together; one of each kind from each sender. */
typedef struct sli_assembly {
  uint8_t *data;
  uint64_t bytes, total_bytes; /* so far, in all */
} sli_assembly;

typedef struct sli_peer {
  bool here, left;
  uint64_t instance;
  char host[SLI_FRAME_NAME_CHARS], direct[SLI_FRAME_DIRECT_CHARS];
  sli_way hub; /* at process 0: to this process; elsewhere, of peers[0]: to process 0 */
  sli_way out; /* our DEALER to its ROUTER: our messages */
  sli_way in;  /* its DEALER to our ROUTER: its messages */
  sli_assembly parts[SLI_DATA_KINDS];
  int64_t from_hub_ns; /* its clock less that of process 0, as process 0 says */
} sli_peer;

/* Messages to one process that nobody has sent yet. */
typedef struct sli_batch {
  uint8_t *data;
  size_t count, capacity;
} sli_batch;

/* Data that waits to be sent, in order. */
typedef struct sli_order {
  struct sli_order *next;
  sli_data_kind kind;
  int target;
  char word[SLI_FRAME_WORD_CHARS];
  void *data;
  size_t bytes;
} sli_order;

/* A thread in sli_control_meet; lies on its stack. */
typedef struct sli_waiter {
  struct sli_waiter *next;
  const char *word;
  bool done;
  sli_control_blob *blobs;
} sli_waiter;

/* At process 0: who has come to a meeting. */
typedef struct sli_meeting {
  struct sli_meeting *next;
  char word[SLI_FRAME_WORD_CHARS];
  int count;
  bool shared; /* all get what they bring, not only process 0 */
  bool *came;
  sli_control_blob *blobs;
} sli_meeting;

/* How a frame came in. */
typedef enum sli_gate { SLI_AT_HUB, SLI_FROM_HUB, SLI_DIRECT_IN, SLI_DIRECT_OUT } sli_gate;

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

struct sli_control {
  int self, nprocesses, incarnation;
  uint64_t instance, plan_hash;
  char job[SLI_FRAME_NAME_CHARS], host[SLI_FRAME_NAME_CHARS];
  char hub_host[SLI_HOST_CHARS], hub_ip[SLI_IP_CHARS];
  char here[SLI_IP_CHARS]; /* where `direct` listens; set before joining */
  int hub_port;
  char endpoint[SLI_ENDPOINT_CHARS];
  sli_control_options options; /* for callbacks and times; pointers to data are not kept */
  sli_auth auth;

  void *context, *door, *hub, *direct;
  void *hub_watch, *direct_watch; /* monitors */
  sli_listener hub_listener, direct_listener;
  int strangers; /* connections of theirs that may stand at each */
  int wake_fd;
  pthread_t thread;
  sli_peer *peers;
  int nhere, nouts, *outs; /* peers whose `out` is open */
  zmq_pollitem_t *items;
  sli_meeting *meetings;
  bool bye_said;
  bool logged[SLI_REFUSALS];
  /* The connection to process 0, as far as it has come. */
  bool connected, shaken;
  char waiting_for[SLI_FRAME_TEXT_BYTES + 1];

  uint64_t opened_ns, hub_closed_ns, probe_until_ns;
  uint64_t beat_ns, look_ns, hello_ns, resolve_ns, probe_ns, tend_ns; /* when next */
  int beats;
  /* We have told process 0 who is to blame, and wait for its word until then. */
  uint64_t verdict_ns;
  int suspect;
  sl_status suspect_status;
  char suspect_text[SLI_FRAME_TEXT_BYTES + 1];

  pthread_mutex_t lock;
  pthread_cond_t changed;
  /* Under the lock: */
  bool awake, closing, joined, ended, aborting;
  sli_batch *waiting, *sending; /* per peer; `sending` is the control thread's */
  int *dirty, ndirty;
  sli_order *orders, **orders_end;
  sli_waiter *waiters;
  int culprit;
  sl_status end_status;
  char end_text[SLI_FRAME_TEXT_BYTES + 1], abort_text[SLI_FRAME_TEXT_BYTES + 1];
  int64_t *offsets;

  /* Relaxed: statistics, read by any thread. */
  _Atomic uint64_t sent, received, frames_sent, frames_received, bytes_sent, bytes_received,
      refused;
};

/* Once the job runs nobody needs to come to process 0. */
enum { SLI_LATE_PER_SECOND = 100 };

static inline bool sli_is_hub(const sli_control *c) { return c->self == 0; }

/* control_thread.c */
void *sli_control_run(void *control);
sl_status sli_control_bind(sli_control *c); /* before the thread runs */
void sli_control_close_sockets(sli_control *c);
sli_way *sli_way_to(sli_control *c, int process); /* for messages; NULL: it has left */

/* control_link.c */
bool sli_way_send(sli_control *c, sli_way *way, sli_frame *frame);
/* Takes some frames, so that others get their turn; whether there may be more. */
bool sli_gate_receive(sli_control *c, void *socket, sli_gate gate, int process);
void sli_refuse(sli_control *c, sli_refusal kind, const char *who, const char *why);
void sli_beat(sli_control *c, uint64_t now_ns); /* PINGs to everybody */
void sli_look(sli_control *c, uint64_t now_ns); /* who is silent? */

/* control_join.c */
void sli_hello_send(sli_control *c);
void sli_hello_take(sli_control *c, const sli_frame *frame, const uint8_t *route,
                    size_t route_bytes, const char *who);
void sli_join_answer(sli_control *c, const sli_frame *frame); /* WAIT, REFUSE */
void sli_table_take(sli_control *c, const uint8_t *data, size_t bytes);
void sli_join_overdue(sli_control *c);
void sli_join_complete(sli_control *c);

/* control_words.c */
void sli_data_take(sli_control *c, int process, const sli_frame *frame);
void sli_data_send(sli_control *c, sli_way *way, sli_data_kind kind, int from, int target,
                   const char *word, const void *data, size_t bytes);
void sli_order_carry_out(sli_control *c, sli_order *order);
void sli_meetings_check(sli_control *c); /* nobody who has left may be missed */
void sli_words_fini(sli_control *c);

/* control_end.c: the end of a job. `culprit` is to blame, whoever finds that out. */
void sli_blame(sli_control *c, sl_status status, int culprit, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void sli_verdict_take(sli_control *c, const sli_frame *frame);
void sli_verdict_overdue(sli_control *c);
void sli_end(sli_control *c, sl_status status, int culprit, const char *text);
/* "process 3 on host n2" */
const char *sli_peer_name(const sli_control *c, int process, char out[128]);

#endif
