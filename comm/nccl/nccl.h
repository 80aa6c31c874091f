/* The data plane between GPUs of different processes: channels, over NCCL.
 *
 * A channel leads from one GPU to one of another process, in that direction alone: a
 * communicator of the two, and at each end a stream that nothing else uses. What goes over
 * it has a number, 1, 2, 3, ... The sender issues its sends in that order, as they are
 * handed over. Each is announced to the receiver by other means (the data plane between
 * hosts, whose messages may overtake each other); the receiver puts announcements back
 * in order and issues its receives in the same one.
 *
 * This never waits in a circle, whatever the timing:
 *
 *   - Send k of a channel meets receive k, as both ends count alike, and has its size.
 *   - What is sent is complete, and where it goes is free and no longer read, when it is
 *     handed over here. So nothing in a channel's stream waits for another stream.
 *   - Each end has at most one operation of a channel on its device; the host issues the next
 *     when that is complete. So an operation stands behind no other of its stream, and while
 *     there are no more streams than queues of the hardware (CUDA_DEVICE_MAX_CONNECTIONS,
 *     which actorrun sets to the most, 32) behind none at all: it can start as soon as there
 *     is room for its blocks; and all channels of a device together take no more than half of
 *     its multiprocessors, or one each. Kernels that compute come to an end by themselves.
 *   - By induction over k: both ends have completed k - 1, so both issue k, both start, and
 *     k completes. Other channels do not come into it.
 *   - Buffers are set up by the first operation of a channel, and that may wait for all kernels
 *     of a device. So it is a greeting, before anything else, and each process greets on
 *     one channel at a time, in the order of ids: of the channels not greeted yet, the one with
 *     the lowest id is next at both ends.
 *
 * Initialisation does not block; a channel where nothing moves for too long, or where NCCL
 * reports an error, ends the job with the name of the other process. */
#ifndef SLUICE_COMM_NCCL_H
#define SLUICE_COMM_NCCL_H

#include "base/base.h"

/* Can there be channels? SL_E_UNSUPPORTED: this build was made without NCCL, or the library is
 * not found. Any thread. */
sl_status sli_nccl_find(void);

enum { SLI_NCCL_TAG_BYTES = 32 };

/* One end of a channel. */
typedef struct sli_nccl_channel {
  int id;      /* the same at both ends, and no other channel's */
  int process; /* at the other end */
  int device, other_device; /* GPUs: here, and for messages there */
  bool sends;
} sli_nccl_channel;

typedef struct sli_nccl_options {
  int self; /* this process */
  int nchannels;
  const sli_nccl_channel *channels; /* in order of id */
  int silence_ms;             /* how long nothing may move on a channel; 0: 20,000 */
  void *ctx;
  /* Brings `data` to sli_nccl_hear of that process, if need be by the control plane. */
  void (*say)(void *ctx, int process, const void *data, size_t bytes);
  /* What was announced with this tag has been received. */
  void (*arrived)(void *ctx, int channel, const void *tag);
  /* The job cannot go on; once. `text` names the process. */
  void (*lost)(void *ctx, const char *text);
} sli_nccl_options;

/* Channels are named by their index in options->channels. One thread at a time calls everything
 * but _hear; callbacks come from _connect and _progress. Nothing blocks. */
typedef struct sli_nccl sli_nccl;

sl_status sli_nccl_open(const sli_nccl_options *options, sli_nccl **out);
/* Ends what is under way; waits for no other process, and three seconds at most for GPUs. */
void sli_nccl_close(sli_nccl *n);
/* Any thread. SL_E_INPUT: no process says that. */
sl_status sli_nccl_hear(sli_nccl *n, int from, const void *data, size_t bytes);
/* Again and again until *ready. SL_E_PEER or SL_E_DEVICE: no channel from A to B, and why. */
sl_status sli_nccl_connect(sli_nccl *n, bool *ready);

/* Data on the channel's device, which must stay until _done. Returns its number. */
uint32_t sli_nccl_send(sli_nccl *n, int channel, const void *data, size_t bytes);
bool sli_nccl_done(const sli_nccl *n, int channel, uint32_t number);
/* What has been announced: the place is on the channel's device. */
void sli_nccl_receive(sli_nccl *n, int channel, uint32_t number, void *place, size_t bytes,
                      const void *tag);

/* Moves things on; returns whether anything happened. */
bool sli_nccl_progress(sli_nccl *n);
/* How long it may be left alone from now on; UINT64_MAX: nothing is under way. */
uint64_t sli_nccl_patience_ns(sli_nccl *n);

typedef struct sli_nccl_traffic {
  uint64_t sent_bytes, received_bytes;
} sli_nccl_traffic;
/* Of all channels so far. Any thread. */
sli_nccl_traffic sli_nccl_count(const sli_nccl *n);

#endif
