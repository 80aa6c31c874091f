/* Links that lead from a GPU to one of another process: which there are in a plan, and
 * how their messages find their way. Everything may be called with NULL, where there
 * are none. */
#ifndef SLUICE_COMM_JOB_CHANNELS_H
#define SLUICE_COMM_JOB_CHANNELS_H

#include <sluice/runtime.h>

#include "comm/nccl/nccl.h"
#include "comm/net/net.h"

typedef struct sli_channels sli_channels;

typedef struct sli_channels_events {
  void *ctx;
  /* For sli_channels_hear there. */
  void (*say)(void *ctx, int process, const void *data, size_t bytes);
  void (*lost)(void *ctx, const char *text); /* the job cannot go on */
} sli_channels_events;

/* NULL if no link of the plan leads from GPU to GPU. */
sl_status sli_channels_open(const sl_plan *plan, sl_runtime *rt, int self, sli_net *net,
                            const sli_channels_events *events, sli_channels **out);
void sli_channels_close(sli_channels *c);
/* When all have opened theirs: again and again until *ready. */
sl_status sli_channels_connect(sli_channels *c, bool *ready);
/* What `say` sent. Any thread. */
sl_status sli_channels_hear(sli_channels *c, int from, const void *data, size_t bytes);

/* Takes a message of a link and its data, if the link is one of these. */
bool sli_channels_send(sli_channels *c, int process, const void *message, const void *data,
                       uint64_t *fence);
/* Fences of these are odd; those of the net are addresses. */
bool sli_channels_own(uint64_t fence);
bool sli_channels_done(sli_channels *c, uint64_t fence);
/* A message without data has come: of these, its data is on its way, and the runtime hears
 * when it is there. SL_E_INPUT: no process says that. */
sl_status sli_channels_hear_of(sli_channels *c, int from, const void *message, bool *announced);

bool sli_channels_progress(sli_channels *c);
uint64_t sli_channels_patience_ns(sli_channels *c);
sli_nccl_traffic sli_channels_count(const sli_channels *c);

#endif
