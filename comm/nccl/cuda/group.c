/* SPDX-License-Identifier: Apache-2.0 */
/* Queues of collectives: a member of a group, its communicator and its stream. Only the worker of
 * the queue calls, once the group is connected; abort() is called for all members first, because
 * aborting one may wait for operations of others on its device. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sluice/cuda.h>

#include "comm/nccl/cuda/channel.h"
#include "comm/nccl/nccl.h"
#include "kernels/bind.h"
#include "kernels/cuda/cuda.h"
#include "ops/collective.h"

enum {
  BLOCKS_MOST = 32, /* per operation: the library's own limit */
  GREETING_NUMBERS = 64,
  GAP_NS = 100 * 1000 * 1000, /* a longer one between two looks: this process was asleep */
  ABORT_SECONDS = 3,
};

typedef struct member {
  sli_channel channel;
  const sl_group *group;
  enum { MEETING, GREETING, OPEN } state;
  void *greeting;    /* device memory */
  uint64_t launched; /* last fence */
  uint64_t silent_ns, looked_ns;
  uint64_t patience_ns;
  pthread_t aborter;
  bool aborts;
  char *why; /* failure, or NULL */
} member;

/* ---- failures ------------------------------------------------------------------------- */

/* Keeps the first failure, with the names of the group's devices. */
static void keep_failure(member *m) {
  if (!m->why)
    m->why =
        sli_format("NCCL among %s, at GPU %d: %s", m->group->name, m->channel.device, sl_detail());
}

static sl_status fail_named(member *m, sl_status status) {
  keep_failure(m);
  return sl_fail(status, "%s", m->why);
}

/* Fails if nothing has moved for too long. */
static sl_status look(member *m, bool moved) {
  uint64_t now = sli_now_ns(), gap = SLI_MIN(now - m->looked_ns, (uint64_t)GAP_NS);
  m->looked_ns = now;
  m->silent_ns = moved ? 0 : m->silent_ns + gap;
  if (m->silent_ns <= m->patience_ns) return SL_OK;
  return sl_fail(SL_E_PEER, "another member has not come for %g s", (double)m->patience_ns * 1e-9);
}

/* ---- opening and closing ---------------------------------------------------------------- */

static sl_status nccl_identify(unsigned char id[SL_GROUP_ID_BYTES]) {
  _Static_assert(sizeof(ncclUniqueId) <= SL_GROUP_ID_BYTES, "an id has room for the library's");
  const sli_nccl_library *nccl;
  ncclUniqueId made;
  SLI_TRY(sli_nccl_load(&nccl));
  if (nccl->ncclGetUniqueId(&made))
    return sl_fail(SL_E_DEVICE, "cannot create a group's id: %s", nccl->ncclGetLastError(NULL));
  memcpy(id, &made, sizeof made);
  return SL_OK;
}

static void *abort_member(void *m) {
  sli_channel_abort(&((member *)m)->channel);
  return NULL;
}

static void nccl_abort(void *queue) {
  member *m = queue;
  bool at_rest = m->state == OPEN && m->channel.state == SLI_CHANNEL_FREE;
  m->aborts = m->channel.comm && !at_rest && !pthread_create(&m->aborter, NULL, abort_member, m);
}

/* Closes a member. One that does not end is left alone, because freeing would wait for it. */
static void nccl_close(void *queue) {
  member *m = queue;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += ABORT_SECONDS;
  if (m->aborts && pthread_timedjoin_np(m->aborter, NULL, &until)) {
    pthread_detach(m->aborter);
    return;
  }
  sli_channel_close(&m->channel);
  sl_cuda_memory_destroy(m->greeting);
  free(m->why);
  free(m);
}

/* Chooses the blocks so that all groups of the device together take a quarter of it, or one each.
 */
static sl_status share_of_blocks(const sl_queue_config *config, int *blocks) {
  sl_cuda_device device;
  SLI_TRY(sl_cuda_describe(config->device, &device));
  int share = device.multiprocessors / 4 / config->beside;
  *blocks = SLI_MIN(SLI_MAX(share, 1), (int)BLOCKS_MOST);
  return SL_OK;
}

static sl_status open_member(member *m, const sl_queue_config *config) {
  ncclUniqueId id;
  int blocks;
  memcpy(&id, config->group->id, sizeof id);
  SLI_TRY(sli_nccl_load(&m->channel.nccl));
  SLI_TRY(share_of_blocks(config, &blocks));
  SLI_TRY(sl_cuda_memory_create(config->device, GREETING_NUMBERS * sizeof(float), &m->greeting));
  return sli_channel_open(&m->channel, &id, blocks);
}

/* Begins to connect; the other members need not be there yet. */
static sl_status nccl_open(const sl_queue_config *config, void **queue) {
  if (config->bind) config->bind(config->bind_arg, 0);
  member *m = sli_calloc(1, sizeof *m);
  m->group = config->group;
  m->channel.device = config->device;
  m->channel.rank = config->rank;
  m->channel.ranks = config->group->members;
  m->patience_ns = (uint64_t)sli_nccl_silence_ms() * 1000000;
  sl_status status = open_member(m, config);
  if (status) {
    fail_named(m, status);
    nccl_abort(m);
    nccl_close(m);
    return status;
  }
  *queue = m;
  return SL_OK;
}

/* ---- connecting ------------------------------------------------------------------------ */

static sl_status greet(member *m) {
  const sli_channel_call call = {.kind = SLI_ALL_REDUCE,
                                 .in = m->greeting,
                                 .out = m->greeting,
                                 .count = GREETING_NUMBERS,
                                 .type = ncclFloat};
  m->state = GREETING;
  return sli_channel_issue(&m->channel, 1, &call);
}

static sl_status move_on(member *m) {
  bool done = false;
  if (m->state == MEETING) {
    SLI_TRY(sli_channel_meet(&m->channel, &done));
    return done ? greet(m) : SL_OK;
  }
  SLI_TRY(sli_channel_poll(&m->channel, &done));
  if (done) m->state = OPEN;
  return SL_OK;
}

static sl_status nccl_connect(void *queue, bool *ready) {
  member *m = queue;
  int before = (int)m->state;
  if (!m->looked_ns) m->looked_ns = sli_now_ns();
  sl_status status = m->state == OPEN ? SL_OK : move_on(m);
  if (!status) status = look(m, before != (int)m->state || m->state == OPEN);
  *ready = m->state == OPEN;
  return status ? fail_named(m, status) : SL_OK;
}

/* ---- firings --------------------------------------------------------------------------- */

static ncclDataType_t type_of(sl_dtype dtype) {
  static const ncclDataType_t types[SL_DTYPE_COUNT] = {
      [SL_F32] = ncclFloat, [SL_BF16] = ncclBfloat16, [SL_F64] = ncclDouble, [SL_I32] = ncclInt32};
  return types[dtype];
}

/* Lists the library's calls for an all-to-all: a transfer to each other member and one from it, and
 * one from this device to itself. */
static int list_transfers(const sl_call *call, sli_channel_call *to) {
  int count = 0;
  for (int m = 0; m < call->nin; m++) {
    ncclDataType_t type = type_of(call->in_type[m].dtype);
    to[count++] = (sli_channel_call){.kind = SLI_SEND,
                                     .in = call->in[m],
                                     .count = (size_t)sl_type_elements(&call->in_type[m]),
                                     .type = type,
                                     .peer = m};
    to[count++] = (sli_channel_call){.kind = SLI_RECEIVE,
                                     .out = call->out[m],
                                     .count = (size_t)sl_type_elements(&call->out_type[m]),
                                     .type = type,
                                     .peer = m};
  }
  return count;
}

/* Lists the library's calls for parts of unequal size: for each row of the whole, and for each
 * member's part of it, a broadcast of the part or a sum that its member gets. */
static int list_parts(const sl_call *call, int64_t rows, sli_channel_call *to) {
  bool gathers = call->op == &sl_op_all_gather;
  const sl_type *whole = gathers ? &call->out_type[0] : &call->in_type[0];
  size_t own = sl_type_bytes(gathers ? &call->in_type[0] : &call->out_type[0]) / (size_t)rows,
         all = sl_type_bytes(whole) / (size_t)rows;
  int64_t length = whole->dim[__builtin_ctz(call->attrs->members.axes)], begin;
  size_t inner = (size_t)(sl_type_elements(whole) / rows / length),
         size = sl_dtype_bytes(whole->dtype);
  int count = 0;
  for (int64_t i = 0; i < rows; i++)
    for (int m = 0; m < (int)call->attrs->members.count; m++) {
      int64_t part = sli_collective_part(call->attrs, whole, m, &begin);
      size_t at = (size_t)i * all + (size_t)begin * inner * size, here = (size_t)i * own;
      to[count++] = (sli_channel_call){.kind = gathers ? SLI_BROADCAST : SLI_REDUCE,
                                       .in = (const char *)call->in[0] + (gathers ? here : at),
                                       .out = (char *)call->out[0] + (gathers ? at : here),
                                       .count = (size_t)part * inner,
                                       .type = type_of(whole->dtype),
                                       .peer = m};
    }
  return count;
}

/* Lists the library's calls for a call of a program, one for each row; returns their number. */
static int list_calls(const sl_call *call, sli_channel_call *to) {
  if (call->op == &sl_op_all_to_all) return list_transfers(call, to);
  bool gathers = call->op == &sl_op_all_gather, reduces = call->op == &sl_op_all_reduce;
  const sl_type *part = gathers ? &call->in_type[0] : &call->out_type[0];
  int64_t rows = sli_collective_rows(call->op, call->attrs, part);
  if (call->attrs->user) return list_parts(call, rows, to);
  size_t in = sl_type_bytes(&call->in_type[0]) / (size_t)rows,
         out = sl_type_bytes(&call->out_type[0]) / (size_t)rows;
  for (int64_t i = 0; i < rows; i++)
    to[i] = (sli_channel_call){.kind = reduces   ? SLI_ALL_REDUCE
                                       : gathers ? SLI_ALL_GATHER
                                                 : SLI_REDUCE_SCATTER,
                               .in = (const char *)call->in[0] + (size_t)i * in,
                               .out = (char *)call->out[0] + (size_t)i * out,
                               .count = (size_t)(sl_type_elements(part) / rows),
                               .type = type_of(part->dtype)};
  return (int)rows;
}

/* Returns the library's calls that the calls of a program are at most. */
static int64_t most_calls(const sl_program_call *calls, int count) {
  int64_t most = 0;
  for (int i = 0; i < count; i++)
    most += 2 * calls[i].attrs.members.count *
            sli_collective_rows(calls[i].op, &calls[i].attrs, &calls[i].in_type[0]);
  return most;
}

/* Returns the most arguments that a call of a program has. */
static int most_arguments(const sl_program_call *calls, int count) {
  int most = 1;
  for (int i = 0; i < count; i++) most = SLI_MAX(most, calls[i].nin);
  return most;
}

static bool nccl_launch(void *queue, const sl_program *program, const sl_firing *firing,
                        uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)now_ns, (void)duration_ns;
  member *m = queue;
  sl_tick tick;
  const sl_program_call *calls = sli_program_calls(program, firing, &tick);
  sli_channel_call issued[most_calls(calls, program->ncalls)];
  int count = 0, arguments = most_arguments(calls, program->ncalls);
  for (int i = 0; i < program->ncalls; i++) {
    const void *in[arguments];
    void *out[arguments];
    sl_call call;
    if (sli_call_bind(&calls[i], firing, &tick, in, out, &call))
      count += list_calls(&call, &issued[count]);
  }
  *fence = ++m->launched;
  m->looked_ns = sli_now_ns();
  m->silent_ns = 0;
  if (!count) return true;
  if (!m->why && sli_channel_issue(&m->channel, count, issued)) keep_failure(m);
  return false;
}

static bool nccl_done(void *queue, uint64_t fence, uint64_t now_ns) {
  (void)fence, (void)now_ns;
  member *m = queue;
  bool complete = false;
  if (m->why) return false;
  sl_status status = sli_channel_poll(&m->channel, &complete);
  if (!status && !complete) status = look(m, false);
  if (status) keep_failure(m);
  return complete;
}

static uint64_t nccl_due(void *queue, uint64_t fence) {
  (void)queue, (void)fence;
  return UINT64_MAX;
}

static const char *nccl_failure(void *queue) { return ((const member *)queue)->why; }

/* Programs have no state: the library knows these ops. */
static sl_status prepare_nothing(sl_program *program, int device) {
  (void)program, (void)device;
  return SL_OK;
}

static void release_nothing(sl_program *program) { (void)program; }

static size_t no_scratch(const sl_program *program, int threads) {
  (void)program, (void)threads;
  return 0;
}

const sl_queue_ops sl_queue_nccl = {.name = "nccl",
                                    .open = nccl_open,
                                    .close = nccl_close,
                                    .launch = nccl_launch,
                                    .done = nccl_done,
                                    .due = nccl_due,
                                    .failure = nccl_failure,
                                    .identify = nccl_identify,
                                    .connect = nccl_connect,
                                    .abort = nccl_abort,
                                    .prepare = prepare_nothing,
                                    .release = release_nothing,
                                    .scratch = no_scratch};
