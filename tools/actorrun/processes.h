/* One process of a job among the others: both planes, and what the processes do
 * together besides running the plan. */
#ifndef SLUICE_TOOLS_ACTORRUN_PROCESSES_H
#define SLUICE_TOOLS_ACTORRUN_PROCESSES_H

#include <sluice/sluice.h>

#include "comm/start/cluster.h"
#include "comm/control/control.h"

typedef struct processes processes;

/* Meets the others, who must have the same plan. Blocks until all are there; the
 * error says who is missing or different. From then on whoever is silent for `lost_ms`
 * is lost. */
sl_status processes_open(const sli_cluster *cluster, const sl_plan *plan, int lost_ms,
                         processes **out);
void processes_close(processes *p);
int processes_self(const processes *p);
int processes_count(const processes *p);

/* For the runtime's options; ready once the runtime is attached. */
const sl_peers *processes_peers(processes *p);
/* From here on what arrives goes to this runtime. Blocks until all have one, which
 * begins with the same step. */
sl_status processes_attach(processes *p, sl_runtime *rt, int64_t first_step);

/* A run, as sl_runtime_run, that ends at the same step in all processes: where one
 * of them is interrupted or fails, all stop. SL_E_PEER names a process that was
 * lost. After it data goes on arriving elsewhere until processes_close. */
sl_status processes_run(processes *p, int64_t steps);

/* All processes tell process 0 of their part, so that figures and trace there are
 * the whole job's. */
sl_status processes_gather(processes *p);

/* Blocks until all have come here, with the same word. Process 0 gets what they
 * bring: (*blobs)[n], each and all the caller's to free(); NULL elsewhere. */
sl_status processes_meet(processes *p, const char *word, const void *data, size_t bytes,
                         sli_control_blob **blobs);

/* Words between processes, as sli_control_say. The listener is called on the control
 * plane's thread, which must not wait, and returns whether the word is one of its own.
 * NULL: no more calls once this has returned. */
typedef bool processes_listener(void *ctx, int from, const char *word, const void *data,
                                size_t bytes);
void processes_listen(processes *p, processes_listener *listener, void *ctx);
void processes_say(processes *p, int process, const char *word, const void *data, size_t bytes);

/* What this process has exchanged with all others so far. Any thread. */
typedef struct processes_traffic {
  uint64_t sent_bytes, received_bytes;     /* of the data plane */
  uint64_t control_sent, control_received; /* messages between actors */
} processes_traffic;
processes_traffic processes_count_traffic(const processes *p);

/* The end of this process's part, which was `status` (text in sl_detail): after a
 * failure of its own it ends the job everywhere; else it blocks until all are here.
 * Returns what the job's end was. */
sl_status processes_end(processes *p, sl_status status);

#endif
