/* SPDX-License-Identifier: Apache-2.0 */
/* The data plane between GPUs of different processes: channels, over NCCL.
 *
 * A channel connects one GPU to one of another process, in one direction: a communicator of the
 * two, and at each end a stream of its own. Its messages are numbered 1, 2, 3, ... The sender
 * issues its sends in that order, as they are handed over. Each is announced to the receiver
 * over the data plane between hosts, whose messages may overtake each other. The receiver puts
 * announcements back in order and issues its receives in that order.
 *
 * Channels cannot deadlock, whatever the timing:
 *
 *   - Send k of a channel meets receive k, as both ends count alike, and has its size.
 *   - When data is handed over here, the source is complete, and the destination is free and no
 *     longer read. So nothing in a channel's stream waits for another stream.
 *   - Each end has at most one operation of a channel on its device; the host issues the next
 *     when that is complete. So an operation stands behind no other of its stream. While there
 *     are no more streams than hardware queues (CUDA_DEVICE_MAX_CONNECTIONS, which actorrun sets
 *     to the maximum, 32), it stands behind no operation at all. It can start as soon as there
 *     is room for its blocks. All channels of a device together take no more than half of its
 *     multiprocessors, or one each, and compute kernels end by themselves.
 *   - By induction over k: both ends have completed k - 1, so both issue k, both start, and
 *     k completes. No other channel is involved.
 *   - The first operation of a channel sets up buffers, which may wait for all kernels of a
 *     device. It is therefore a greeting, before anything else. Each process greets on one
 *     channel at a time, in the order of ids: of the channels not greeted yet, the one with
 *     the lowest id is next at both ends.
 *
 * Initialisation does not block. A channel that makes no progress for too long, or on which NCCL
 * reports an error, ends the job with the name of the other process. */
#ifndef SLUICE_COMM_NCCL_H
#define SLUICE_COMM_NCCL_H

#include "base/base.h"

/* Checks whether channels are possible. SL_E_UNSUPPORTED: this build was made without NCCL, or
 * the library is not found. Any thread. */
sl_status sli_nccl_find(void);

enum { SLI_NCCL_TAG_BYTES = 32 };

/* One end of a channel. */
typedef struct sli_nccl_channel {
  int id;                   /* unique; equal at both ends */
  int process;              /* process at the other end */
  int device, other_device; /* GPUs: the local one, and the remote one for messages */
  bool sends;
} sli_nccl_channel;

typedef struct sli_nccl_options {
  int self; /* this process */
  int nchannels;
  const sli_nccl_channel *channels; /* sorted by id */
  int silence_ms;                   /* longest time without progress on a channel; 0: 20,000 */
  void *ctx;
  /* Delivers `data` to sli_nccl_hear of that process, by the control plane if need be. */
  void (*say)(void *ctx, int process, const void *data, size_t bytes);
  /* Reports that the message announced with this tag has been received. */
  void (*arrived)(void *ctx, int channel, const void *tag);
  /* Reports that the job cannot go on; once. `text` names the process. */
  void (*lost)(void *ctx, const char *text);
} sli_nccl_options;

/* The channels of a process, named by their index in options->channels. One thread at a time
 * calls everything but _hear; callbacks come from _connect and _progress. Nothing blocks. */
typedef struct sli_nccl sli_nccl;

sl_status sli_nccl_open(const sli_nccl_options *options, sli_nccl **out);
/* Ends operations under way; waits for no other process, and for GPUs three seconds at most. */
void sli_nccl_close(sli_nccl *n);
/* Receives data from `say`. Any thread. SL_E_INPUT: no process sends that. */
sl_status sli_nccl_hear(sli_nccl *n, int from, const void *data, size_t bytes);
/* Connects: call repeatedly until *ready. SL_E_PEER or SL_E_DEVICE: no channel from A to B, and
 * why. */
sl_status sli_nccl_connect(sli_nccl *n, bool *ready);

/* Sends data on the channel's device, which must stay valid until _done. Returns its number. */
uint32_t sli_nccl_send(sli_nccl *n, int channel, const void *data, size_t bytes);
bool sli_nccl_done(const sli_nccl *n, int channel, uint32_t number);
/* Receives an announced message; `place` is on the channel's device. */
void sli_nccl_receive(sli_nccl *n, int channel, uint32_t number, void *place, size_t bytes,
                      const void *tag);

/* Makes progress; returns whether anything happened. */
bool sli_nccl_progress(sli_nccl *n);
/* Returns how long the caller may wait until the next call; UINT64_MAX: nothing is under way. */
uint64_t sli_nccl_patience_ns(sli_nccl *n);

typedef struct sli_nccl_traffic {
  uint64_t sent_bytes, received_bytes;
} sli_nccl_traffic;
/* Traffic of all channels so far. Any thread. */
sli_nccl_traffic sli_nccl_count(const sli_nccl *n);

#endif
