/* SPDX-License-Identifier: Apache-2.0 */
/* Channels between the GPUs of two processes carry everything in the order of its numbers, in
 * whatever order it is announced. Groups of two and three processes make collectives: their results
 * are right, and the same every time. A communicator of one rank is created and destroyed, and the
 * library's refusals are reported.
 *
 *   gpu_test_nccl [SEED] */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "comm/nccl/cuda/library.h"
#include "comm/nccl/nccl.h"
#include "ops/collective.h"
#include "tests/gpu/device_call.h"
#include "tests/support/processes.h"
#include "tests/support/seeds.h"

#ifdef SLUICE_EMULATED
extern int emulated_devices;
#endif

enum { MESSAGES = 40, MOST_BYTES = 1 << 20 };

static uint64_t seed = 1;

typedef struct side {
  process *process;
  sli_nccl *nccl;
  process_blob said; /* data for the other process, not delivered yet */
  char *out, *in;    /* device memory, MESSAGES * MOST_BYTES */
  uint32_t arrived;
} side;

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

/* Returns the size of message `number` from process `from`; sometimes 0. */
static size_t size_of(int from, uint32_t number) {
  uint64_t r = mix(seed + (uint64_t)from * 7919 + number);
  return r % 8 ? r / 8 % ((size_t)1 << (r / 64 % 21)) : 0;
}

static void fill(char *data, int from, uint32_t number) {
  for (size_t i = 0; i < size_of(from, number); i++)
    data[i] = (char)mix(seed ^ (uint64_t)from << 40 ^ (uint64_t)number << 24 ^ i);
}

/* ---- callbacks -------------------------------------------------------------------------- */

static void say(void *ctx, int to, const void *data, size_t bytes) {
  side *s = ctx;
  CHECK(to == 1 - s->process->self && !s->said.bytes, "one channel leads from here");
  s->said = (process_blob){malloc(bytes), bytes};
  memcpy(s->said.data, data, bytes);
}

static void arrived(void *ctx, int channel, const void *tag) {
  side *s = ctx;
  uint32_t number;
  memcpy(&number, tag, sizeof number);
  CHECK(number == ++s->arrived, "channel %d: message %u came as number %u", channel, number,
        s->arrived);
}

static void lost(void *ctx, const char *text) {
  (void)ctx;
  CHECK(false, "%s", text);
}

/* ---- two processes ------------------------------------------------------------------------ */

/* Delivers connection data until both sides are ready or one has failed. */
static sl_status connect_both(side *s) {
  process_blob all[PROCESSES_MOST];
  bool ready = false, both = false;
  sl_status status = SL_OK;
  while (!both) {
    status = sli_nccl_connect(s->nccl, &ready);
    uint8_t state[512] = {status ? 2 : ready};
    memcpy(state + 1, s->said.data ? s->said.data : "", s->said.bytes);
    process_exchange(s->process, state, 1 + s->said.bytes, all);
    free(s->said.data);
    s->said = (process_blob){0};
    const uint8_t *other = all[1 - s->process->self].data;
    size_t bytes = all[1 - s->process->self].bytes;
    if (!status && bytes && other[0] == 2) status = sl_fail(SL_E_PEER, "the other one failed");
    if (bytes > 1)
      CHECK(!sli_nccl_hear(s->nccl, 1 - s->process->self, other + 1, bytes - 1), "%s", sl_detail());
    both = status || (ready && bytes && other[0] == 1);
    for (int i = 0; i < s->process->n; i++) free(all[i].data);
  }
  return status;
}

static void announce_all(side *s) {
  uint32_t order[MESSAGES];
  for (uint32_t i = 0; i < MESSAGES; i++) {
    uint32_t k = (uint32_t)(mix(seed + 31 * i) % (i + 1));
    order[i] = order[k];
    order[k] = i + 1;
  }
  for (int i = 0; i < MESSAGES; i++) {
    uint32_t tag[SLI_NCCL_TAG_BYTES / 4] = {order[i]};
    sli_nccl_receive(s->nccl, s->process->self == 0, order[i],
                     s->in + (size_t)(order[i] - 1) * MOST_BYTES,
                     size_of(1 - s->process->self, order[i]), tag);
  }
}

static void check_data(const side *s) {
  int from = 1 - s->process->self;
  char *want = malloc(MOST_BYTES), *got = malloc(MOST_BYTES);
  for (uint32_t n = 1; n <= MESSAGES; n++) {
    size_t bytes = size_of(from, n);
    fill(want, from, n);
    if (bytes)
      CHECK(!sl_cuda_copy(got, s->in + (size_t)(n - 1) * MOST_BYTES, bytes), "%s", sl_detail());
    CHECK(!memcmp(want, got, bytes), "message %u of process %d is another", n, from);
  }
  free(want);
  free(got);
}

static void exchange_messages(side *s) {
  int self = s->process->self, out = self != 0;
  char *data = malloc(MOST_BYTES);
  size_t total = 0;
  for (uint32_t n = 1; n <= MESSAGES; n++) {
    char *to = s->out + (size_t)(n - 1) * MOST_BYTES;
    fill(data, self, n);
    if (size_of(self, n)) CHECK(!sl_cuda_copy(to, data, size_of(self, n)), "%s", sl_detail());
    CHECK(sli_nccl_send(s->nccl, out, to, size_of(self, n)) == n, "messages have numbers");
    total += size_of(self, n);
  }
  free(data);
  announce_all(s);
  while (s->arrived < MESSAGES || !sli_nccl_done(s->nccl, out, MESSAGES)) {
    sli_nccl_progress(s->nccl);
    uint64_t ns = sli_nccl_patience_ns(s->nccl);
    if (ns != UINT64_MAX) usleep((unsigned)(ns / 1000));
  }
  CHECK(sli_nccl_count(s->nccl).sent_bytes == total, "what is sent is counted");
  CHECK(sli_nccl_patience_ns(s->nccl) == UINT64_MAX, "nothing is under way");
  check_data(s);
}

static void open_side(side *s, int gpus) {
  int self = s->process->self, here = self % gpus, there = (1 - self) % gpus;
  sli_nccl_channel channels[2] = {{.id = 3}, {.id = 8}};
  for (int i = 0; i < 2; i++)
    channels[i] = (sli_nccl_channel){channels[i].id, 1 - self, here, there, i == self};
  sli_nccl_options options = {.self = self,
                              .nchannels = 2,
                              .channels = channels,
                              .ctx = s,
                              .say = say,
                              .arrived = arrived,
                              .lost = lost};
  void *memory[2];
  for (int i = 0; i < 2; i++)
    CHECK(!sl_cuda_memory_create(here, (size_t)MESSAGES * MOST_BYTES, &memory[i]), "%s",
          sl_detail());
  s->out = memory[0];
  s->in = memory[1];
  CHECK(!sli_nccl_open(&options, &s->nccl), "%s", sl_detail());
}

/* A send without a receiver and a receive without a sender, on two channels of one device: closing
 * ends both without waiting. */
static void close_in_the_middle(side *s) {
  uint32_t tag[SLI_NCCL_TAG_BYTES / 4] = {MESSAGES + 1};
  uint64_t begun_ns = sli_now_ns();
  if (!s->process->self) {
    sli_nccl_send(s->nccl, 0, s->out, MOST_BYTES);
    sli_nccl_receive(s->nccl, 1, MESSAGES + 1, s->in, MOST_BYTES, tag);
    while (sli_now_ns() < begun_ns + 50000000) sli_nccl_progress(s->nccl);
  }
  begun_ns = sli_now_ns();
  sli_nccl_close(s->nccl);
  double seconds = (double)(sli_now_ns() - begun_ns) * 1e-9;
  CHECK(seconds < 2.5, "closing channels in the middle takes %.1f s", seconds);
}

/* One GPU can be both ends only if the library takes the processes for two hosts (NCCL_HOSTID);
 * then it uses sockets. */
static int find_gpus(const process *p) {
  int gpus;
#ifdef SLUICE_EMULATED
  emulated_devices = 2;
#endif
  if (sl_cuda_count(&gpus)) exit(0);
  if (gpus == 1) {
    setenv("NCCL_HOSTID", p->self ? "b" : "a", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  }
  return gpus;
}

static void run_side(process *p) {
  int gpus = find_gpus(p);
  side s = {.process = p};
  open_side(&s, gpus);
  sl_status status = connect_both(&s);
  CHECK(!status, "%s", sl_detail());
  exchange_messages(&s);
  process_meet(p, NULL, NULL);
  close_in_the_middle(&s);
  sl_cuda_memory_destroy(s.out);
  sl_cuda_memory_destroy(s.in);
}

/* On one GPU and one host, the library says why it refuses, unless ranks may share a GPU (NCCL 2.30
 * with NCCL_MULTI_RANK_GPU_ENABLE). */
static void run_refused(process *p) {
  int gpus;
  if (sl_cuda_count(&gpus) || gpus > 1 || getenv("NCCL_MULTI_RANK_GPU_ENABLE")) return;
  side s = {.process = p};
  open_side(&s, gpus);
  CHECK(connect_both(&s), "one GPU was both ends of a channel");
  if (!p->self) printf("two processes on one GPU: %s\n", sl_detail());
  sli_nccl_close(s.nccl);
  sl_cuda_memory_destroy(s.out);
  sl_cuda_memory_destroy(s.in);
}

/* ---- one rank --------------------------------------------------------------------------- */

static void run_alone(process *p) {
  const sli_nccl_library *nccl;
  ncclUniqueId id;
  ncclComm_t comm;
  ncclResult_t result = ncclInProgress;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  (void)p;
  need_gpu();
  config.blocking = 0;
  config.maxCTAs = 1;
  CHECK(!sli_nccl_load(&nccl), "%s", sl_detail());
  CHECK(!nccl->ncclGetUniqueId(&id), "a name");
  result = nccl->ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  CHECK(result == ncclInProgress || !result, "one rank: %s", nccl->ncclGetErrorString(result));
  for (result = ncclInProgress; result == ncclInProgress; usleep(1000))
    CHECK(!nccl->ncclCommGetAsyncError(comm, &result), "it can be asked");
  CHECK(!result, "one rank: %s", nccl->ncclGetLastError(comm));
  nccl->ncclCommFinalize(comm);
  for (result = ncclInProgress; result == ncclInProgress; usleep(1000))
    CHECK(!nccl->ncclCommGetAsyncError(comm, &result), "it can be asked");
  CHECK(!nccl->ncclCommDestroy(comm), "it goes");
}

/* ---- collectives ------------------------------------------------------------------------ */

enum { ROUNDS = 6, PART = 12 * 1024, MOST_MEMBERS = 3 };

/* A member of a group, and its memory: what it gives, and what it gets of each call. */
typedef struct group_side {
  process *process;
  int device;
  void *queue;
  sl_group group;
  char *given, *summed, *part, *gathered, *swapped;
} group_side;

/* Two rounds have the same arrays: whole numbers, then fractions, and so on. */
static bool is_whole(int round) { return round / 2 % 2 == 0; }

/* Returns the element of a member's array in a round. Sums of whole numbers are exact in any order.
 */
static float element_of(int member, int round, int64_t e) {
  uint64_t r = mix(seed + (uint64_t)member * 131 + (uint64_t)(round / 2) * 7919 + (uint64_t)e);
  return is_whole(round) ? (float)(r % 1024) : (float)(r % 1000003) / 1000003;
}

static int64_t whole_of(const group_side *s) { return (int64_t)PART * s->process->n; }

/* One GPU can have several ranks if the library allows it, from 2.30 on. */
static int find_shared_gpus(int members) {
  const sli_nccl_library *nccl;
  int gpus, version = 0;
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
#ifdef SLUICE_EMULATED
  emulated_devices = MOST_MEMBERS;
#endif
  if (sl_cuda_count(&gpus) || sli_nccl_load(&nccl)) exit(0);
  nccl->ncclGetVersion(&version);
  if (gpus >= members || version >= 23000) return gpus;
  printf("%d members are not tried: %d GPU, and the library's version is %d\n", members, gpus,
         version);
  exit(0);
}

static void join_group(group_side *s) {
  process *p = s->process;
  process_blob all[PROCESSES_MOST];
  bool ready = false;
  s->group = (sl_group){.members = p->n, .name = "the test's processes"};
  if (!p->self) CHECK(!sl_queue_nccl.identify(s->group.id), "%s", sl_detail());
  process_exchange(p, s->group.id, sizeof s->group.id, all);
  memcpy(s->group.id, all[0].data, sizeof s->group.id);
  for (int i = 0; i < p->n; i++) free(all[i].data);
  sl_queue_config config = {
      .device = s->device, .group = &s->group, .rank = p->self, .beside = p->n};
  CHECK(!sl_queue_nccl.open(&config, &s->queue), "%s", sl_detail());
  while (!ready) {
    CHECK(!sl_queue_nccl.connect(s->queue, &ready), "%s", sl_detail());
    usleep(200);
  }
}

/* Runs a program of one call. */
static void fire(group_side *s, sl_program_call *call) {
  void *bases[] = {s->given, s->summed, s->part, s->gathered, s->swapped, NULL};
  const uint8_t first[6] = {0};
  sl_firing firing = {.name = "collectives", .bases = bases, .first = first};
  sl_program program = {.ncalls = 1, .calls = call, .nbases = 6};
  uint64_t fence;
  bool complete = sl_queue_nccl.launch(s->queue, &program, &firing, 0, 0, &fence);
  while (!complete && !sl_queue_nccl.failure(s->queue))
    complete = sl_queue_nccl.done(s->queue, fence, 0);
  CHECK(complete, "%s", sl_queue_nccl.failure(s->queue));
}

enum { RANGE = 12 }; /* numbers of dim 1 for each member */

/* Makes sums and gathers of this round's arrays, with parts that are ranges of dim 1. In every
 * second round the first member has one less, and the last one more. */
static void make_collectives(group_side *s, int round) {
  static const sl_op *const ops[] = {&sl_op_all_reduce, &sl_op_reduce_scatter, &sl_op_all_gather};
  int members = s->process->n, self = s->process->self;
  const sl_type whole = SL_TYPE(SL_F32, 4, RANGE * members, PART / 4 / RANGE);
  sl_part parts[MOST_MEMBERS];
  for (int64_t m = 0, end = 0; m < members; m++, end += parts[m - 1].count[0])
    parts[m] =
        (sl_part){1, 1, {end}, {RANGE - (round % 2 && !m) + (round % 2 && m == members - 1)}};
  const sl_joint joint = {whole, parts};
  sl_type part = whole;
  part.dim[1] = parts[self].count[0];
  const sl_type *in[] = {&whole, &whole, &part}, *out[] = {&whole, &part, &whole};
  const sl_place from[] = {{0, 0}, {0, 0}, {2, 0}}, to[] = {{1, 0}, {2, 0}, {3, 0}};
  for (int i = 0; i < 3; i++) {
    sl_program_call call = {.op = ops[i],
                            .name = ops[i]->name,
                            .attrs = {.members.count = members,
                                      .members.own = self,
                                      .members.axes = 1u << 1,
                                      .user = i && round % 2 ? (void *)&joint : NULL},
                            .nin = 1,
                            .nout = 1,
                            .in_type = in[i],
                            .out_type = out[i],
                            .in = &from[i],
                            .out = &to[i]};
    fire(s, &call);
  }
}

/* Sends each member its piece of this one's array, and checks what came. */
static void swap_pieces(group_side *s, int round) {
  int members = s->process->n;
  size_t bytes = (size_t)whole_of(s) * sizeof(float);
  sl_type types[MOST_MEMBERS];
  sl_place from[MOST_MEMBERS], to[MOST_MEMBERS];
  for (int m = 0; m < members; m++) {
    types[m] = SL_TYPE(SL_F32, PART);
    from[m] = (sl_place){0, (size_t)m * PART * sizeof(float)};
    to[m] = (sl_place){4, (size_t)m * PART * sizeof(float)};
  }
  sl_program_call call = {
      .op = &sl_op_all_to_all,
      .name = "all_to_all",
      .attrs = {.members.count = members, .members.own = s->process->self, .user = types},
      .nin = members,
      .nout = members,
      .in_type = types,
      .out_type = types,
      .in = from,
      .out = to};
  fire(s, &call);
  float *got = malloc(bytes);
  CHECK(!sl_cuda_copy(got, s->swapped, bytes), "%s", sl_detail());
  for (int64_t e = 0; e < whole_of(s); e++) {
    float want = element_of((int)(e / PART), round, (int64_t)s->process->self * PART + e % PART);
    CHECK(got[e] == want, "from member %lld: %.9g, not %.9g", (long long)(e / PART), (double)got[e],
          (double)want);
  }
  free(got);
}

/* Checks sums and what was gathered of them; `before`: the sums of the same arrays, or NULL. */
static void check_sums(const group_side *s, int round, const float *before, float *sums) {
  size_t bytes = (size_t)whole_of(s) * sizeof(float);
  float *gathered = malloc(bytes);
  CHECK(!sl_cuda_copy(sums, s->summed, bytes) && !sl_cuda_copy(gathered, s->gathered, bytes), "%s",
        sl_detail());
  for (int64_t e = 0; e < whole_of(s); e++) {
    double want = 0, error = is_whole(round) ? 0 : 1e-6;
    for (int m = 0; m < s->process->n; m++) want += (double)element_of(m, round, e);
    CHECK(fabs((double)sums[e] - want) <= error * want, "element %lld: %.9g, not %.9g",
          (long long)e, (double)sums[e], want);
    CHECK(fabs((double)gathered[e] - want) <= error * want, "gathered %lld: %.9g, not %.9g",
          (long long)e, (double)gathered[e], want);
  }
  CHECK(!before || !memcmp(before, sums, bytes), "the same sums have other bits");
  free(gathered);
}

static void run_group(process *p) {
  int gpus = find_shared_gpus(p->n);
  group_side s = {.process = p, .device = p->self % gpus};
  size_t bytes = (size_t)whole_of(&s) * sizeof(float);
  char **const memory[] = {&s.given, &s.summed, &s.part, &s.gathered, &s.swapped};
  float *data = malloc(bytes), *sums[2] = {malloc(bytes), malloc(bytes)};
  for (int i = 0; i < 5; i++) {
    void *made;
    CHECK(!sl_cuda_memory_create(s.device, bytes, &made), "%s", sl_detail());
    *memory[i] = made;
  }
  join_group(&s);
  for (int round = 0; round < ROUNDS; round++) {
    for (int64_t e = 0; e < whole_of(&s); e++) data[e] = element_of(p->self, round, e);
    CHECK(!sl_cuda_copy(s.given, data, bytes), "%s", sl_detail());
    make_collectives(&s, round);
    swap_pieces(&s, round);
    check_sums(&s, round, round % 2 ? sums[0] : NULL, sums[round % 2]);
  }
  if (!p->self) printf("%d members on %d GPUs: %d rounds of collectives\n", p->n, gpus, ROUNDS);
  process_meet(p, NULL, NULL);
  sl_queue_nccl.abort(s.queue);
  sl_queue_nccl.close(s.queue);
  for (int i = 0; i < 5; i++) sl_cuda_memory_destroy(*memory[i]);
  free(data);
  free(sums[0]);
  free(sums[1]);
}

/* CUDA does not survive a fork, so this process does not touch it. */
int main(int argc, char **argv) {
  seed = seed_of(argc, argv, 1);
  if (sli_nccl_find()) {
    printf("skipped: %s\n", sl_detail());
    return 77;
  }
  CHECK(processes_run(1, run_alone), "a communicator of one rank");
  CHECK(processes_run(2, run_side), "two processes");
  CHECK(processes_run(2, run_refused), "two processes on one GPU");
  CHECK(processes_run(2, run_group), "a group of two processes");
  CHECK(processes_run(MOST_MEMBERS, run_group), "a group of three processes");
  return 0;
}
