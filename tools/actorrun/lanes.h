/* Links that lead from a GPU to one of another process: which there are in a plan, and
 * how their messages find their way. Everything may be called with NULL, where there
 * are none. */
#ifndef SLUICE_TOOLS_ACTORRUN_LANES_H
#define SLUICE_TOOLS_ACTORRUN_LANES_H

#include <sluice/sluice.h>

#include "comm/nccl/nccl.h"
#include "comm/net/net.h"
#include "tools/common/settings.h"

typedef struct lanes lanes;

typedef struct lanes_events {
  void *ctx;
  void (*say)(void *ctx, int process, const void *data, size_t bytes); /* for lanes_hear there */
  void (*lost)(void *ctx, const char *text); /* the job cannot go on */
} lanes_events;

/* Before anything else of GPUs is called: all kernels are to be loaded at the start. To load
 * one may mean to wait for those that run, and what a lane issued may wait for the other
 * end, which may be loading one too. */
void lanes_prepare(const settings *s);

/* NULL if no link of the plan leads from GPU to GPU. */
sl_status lanes_open(const sl_plan *plan, sl_runtime *rt, int self, sli_net *net,
                     const lanes_events *events, lanes **out);
void lanes_close(lanes *l);
/* When all have opened theirs: again and again until *ready. */
sl_status lanes_connect(lanes *l, bool *ready);
/* What `say` sent. Any thread. */
sl_status lanes_hear(lanes *l, int from, const void *data, size_t bytes);

/* Takes a message of a link and its data, if the link is one of these. */
bool lanes_send(lanes *l, int process, const void *message, const void *data, uint64_t *fence);
/* Fences of these are odd; those of the net are addresses. */
bool lanes_own(uint64_t fence);
bool lanes_done(lanes *l, uint64_t fence);
/* A message without data has come: of these, its data is on its way, and the runtime hears
 * when it is there. SL_E_INPUT: no process says that. */
sl_status lanes_hear_of(lanes *l, int from, const void *message, bool *announced);

bool lanes_progress(lanes *l);
uint64_t lanes_patience_ns(lanes *l);
sli_nccl_traffic lanes_count_traffic(const lanes *l);

#endif
