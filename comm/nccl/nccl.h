/* SPDX-License-Identifier: Apache-2.0 */
/* The data plane between GPUs of different processes: channels over NCCL.
 *
 * A channel connects one GPU to a GPU of another process, in one direction. It has a communicator
 * of the two, and its own stream at each end. Its messages are numbered 1, 2, 3, ... in the order
 * in which they are handed over, and the sender issues its sends in that order. Each is announced
 * to the receiver over the data plane between hosts, whose messages may overtake each other. The
 * receiver puts announcements back in order and issues its receives in that order.
 *
 * Channels cannot deadlock, whatever the timing:
 *
 *   - Send k of a channel meets receive k, because both ends count alike, and has the same size.
 *   - When data is handed over here, the source is complete, and the destination is free and no
 *     longer read. Nothing in a channel's stream therefore waits for another stream.
 *   - Each end has at most one operation of a channel on its device; the host issues the next
 *     when that is complete. An operation is therefore never queued behind another one of its
 *     stream. While there are no more streams than hardware queues (CUDA_DEVICE_MAX_CONNECTIONS,
 *     which actorrun sets to the maximum, 32), it is queued behind no operation at all. It can
 *     start as soon as there is room for its blocks. All channels of a device together take no
 *     more than half of its multiprocessors, or one each, and compute kernels end by themselves.
 *   - By induction over k: both ends have completed k - 1, so both issue k, both start, and
 *     k completes. No other channel is involved.
 *   - The first operation of a channel sets up buffers, which may wait for all kernels of a
 *     device. It is therefore a greeting, sent before any data. Each process greets on one
 *     channel at a time, in the order of ids: of the channels not greeted yet, the one with
 *     the lowest id is next at both ends.
 *
 * Initialisation does not block. If a channel makes no progress for too long, or NCCL reports an
 * error on it, the job ends with an error that names the other process. */
#ifndef SLUICE_COMM_NCCL_NCCL_H
#define SLUICE_COMM_NCCL_NCCL_H

#include <sluice/program.h>

#include "base/base.h"

/* ---- collectives --------------------------------------------------------------------
 *
 * A queue of a group (sl_queue.group) has a communicator of the group's GPUs, in one process or in
 * several, and a stream of its own. A firing issues the calls of its program as one operation.
 *
 * Collectives cannot deadlock either:
 *
 *   - All members of a group fire in the same fixed order, one firing at a time: their n-th firings
 *     are one collective. With the firings of a group as one actor, the plan is a Kahn network that
 *     has been proved to finish (sl_queue_group), so every member comes to launch firing n.
 *   - The plan's readers and writers of a queue of this kind are notified at completion, never at
 *     launch. When a firing is launched, its inputs are complete and its outputs are free: nothing
 *     in a group's stream waits for another stream.
 *   - Operations of different groups are in different streams. All groups of a device together take
 *     at most a quarter of its multiprocessors, or one each, beside the half that channels take, so
 *     an operation that waits for a member keeps no other one from starting.
 *   - Groups connect one after another before the first run, each with a first operation that sets
 *     up its buffers.
 *
 * Results depend on the group, the sizes and the library alone, not on timing. */

/* Queue of collectives; fails where sli_nccl_find does. */
extern const sl_queue_ops sl_queue_nccl;

/* Returns the longest time without progress in ms: SLUICE_NCCL_SECONDS, or 20,000. */
int sli_nccl_silence_ms(void);

/* ---- channels ---------------------------------------------------------------------- */

/* Checks whether channels are possible. SL_E_UNSUPPORTED: this build lacks NCCL, or the library is
 * not found. Any thread. */
sl_status sli_nccl_find(void);

enum { SLI_NCCL_TAG_BYTES = 32 };

/* One end of a channel. */
typedef struct sli_nccl_channel {
  int id;                   /* unique; equal at both ends */
  int process;              /* process at the other end */
  int device, other_device; /* GPUs: the local one, and the remote one, for error messages */
  bool sends;
} sli_nccl_channel;

typedef struct sli_nccl_options {
  int self; /* this process */
  int nchannels;
  const sli_nccl_channel *channels; /* sorted by id */
  int silence_ms;                   /* longest time without progress on a channel; 0: 20,000 */
  void *ctx;
  /* Delivers `data` to sli_nccl_hear in that process, for example over the control plane. */
  void (*say)(void *ctx, int process, const void *data, size_t bytes);
  /* Reports that the message announced with this tag has been received. */
  void (*arrived)(void *ctx, int channel, const void *tag);
  /* Reports, once, that the job cannot continue. `text` names the process. */
  void (*lost)(void *ctx, const char *text);
} sli_nccl_options;

/* The channels of a process, identified by their index in options->channels. Only one thread at a
 * time may call the functions other than _hear. Callbacks are made in _connect and _progress. No
 * function but _close blocks. */
typedef struct sli_nccl sli_nccl;

sl_status sli_nccl_open(const sli_nccl_options *options, sli_nccl **out);
/* Aborts operations in flight. Does not wait for other processes, and for GPUs three seconds at
 * most. */
void sli_nccl_close(sli_nccl *n);
/* Receives data from `say`. Any thread. SL_E_INPUT: the data is invalid. */
sl_status sli_nccl_hear(sli_nccl *n, int from, const void *data, size_t bytes);
/* Connects. Call repeatedly until *ready. SL_E_PEER or SL_E_DEVICE: a channel failed; the error
 * names its ends and the reason. */
sl_status sli_nccl_connect(sli_nccl *n, bool *ready);

/* Sends data that is on the channel's device and must stay valid until _done. Returns the message's
 * number. */
uint32_t sli_nccl_send(sli_nccl *n, int channel, const void *data, size_t bytes);
bool sli_nccl_done(const sli_nccl *n, int channel, uint32_t number);
/* Receives an announced message; `place` is on the channel's device. */
void sli_nccl_receive(sli_nccl *n, int channel, uint32_t number, void *place, size_t bytes,
                      const void *tag);

/* Makes progress; returns whether anything happened. */
bool sli_nccl_progress(sli_nccl *n);
/* Returns how long the caller may wait before the next call, or UINT64_MAX if nothing is in
 * flight. */
uint64_t sli_nccl_patience_ns(sli_nccl *n);

typedef struct sli_nccl_traffic {
  uint64_t sent_bytes, received_bytes;
} sli_nccl_traffic;
/* Traffic of all channels so far. Any thread. */
sli_nccl_traffic sli_nccl_count(const sli_nccl *n);

#endif
