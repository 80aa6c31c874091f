/* SPDX-License-Identifier: Apache-2.0 */
/* Benchmarks the cost of a firing whose body is empty.
 *
 *   bench_actors [CASE]          runs all cases, or CASE only
 *   bench_actors CASE STEPS      runs CASE once for STEPS steps (for instructions.sh)
 *
 * Every case runs real queues, programs with no calls, slots backed by memory, and the trace ring:
 * everything a firing does except its kernels. */
#include <stdatomic.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/runtime.h>

#include "base/base.h"
#include "tests/support/test.h"

enum { SLOT_BYTES = 64 };

/* ---- plans ----------------------------------------------------------------------- */

static int32_t add_device(sl_plan *plan, const sl_queue_ops *ops) {
  char name[32];
  snprintf(name, sizeof name, "device%d", plan->ndevices);
  int32_t device = sl_plan_add_device(plan, (sl_device){.name = name, .kind = "cpu", .threads = 1});
  return sl_plan_add_queue(
      plan, (sl_queue){.name = name,
                       .device = device,
                       .ops = ops,
                       .run_ahead = 2,
                       .class_order = {[SL_CLASS_F] = 0, [SL_CLASS_B] = 1, [SL_CLASS_W] = 2}});
}

static int32_t add_register(sl_plan *plan, const char *name, int32_t device, int32_t quota,
                            int32_t initial) {
  return sl_plan_add_register(plan, (sl_register){.name = name,
                                                  .quota_name = name,
                                                  .quota = quota,
                                                  .pool = SL_NONE,
                                                  .initial = initial,
                                                  .device = device,
                                                  .memory = SL_MEMORY_ACTIVATIONS,
                                                  .slot_bytes = SLOT_BYTES});
}

static sl_program *empty_program(sl_plan *plan, int32_t ports) {
  sl_program *program = sl_plan_alloc(plan, sizeof *program);
  program->nbases = ports + 1;
  return program;
}

/* Adds an actor that fires once per tick; all ports take one slot per firing. */
static void add_actor(sl_plan *plan, const char *name, sl_class cls, int32_t queue, int nin,
                      const int32_t *in, int nout, const int32_t *out) {
  sl_port ports[2][10];
  int32_t each = sl_plan_map_each(plan);
  for (int i = 0; i < nin; i++) ports[0][i] = (sl_port){in[i], each};
  for (int i = 0; i < nout; i++) ports[1][i] = (sl_port){out[i], each};
  sl_plan_add_actor(plan, (sl_actor){.name = name,
                                     .cls = cls,
                                     .queue = queue,
                                     .stage = SL_NONE,
                                     .chunk = SL_NONE,
                                     .ticks = each,
                                     .firings_per_step = plan->microbatches,
                                     .source = !nin,
                                     .nin = nin,
                                     .nout = nout,
                                     .in = ports[0],
                                     .out = ports[1],
                                     .program = empty_program(plan, nin + nout),
                                     .seconds = 1e-6});
}

/* Makes a chain of 8 actors; the first half runs on the first queue. */
static sl_plan *chain(int32_t queues) {
  enum { LENGTH = 8, QUOTA = 8 };
  sl_plan *plan = sl_plan_create(64, 1);
  for (int32_t q = 0; q < queues; q++) add_device(plan, &sl_queue_cpu);
  int32_t last = SL_NONE;
  for (int32_t i = 0; i < LENGTH; i++) {
    int32_t queue = i * queues / LENGTH;
    int32_t out = i + 1 < LENGTH ? add_register(plan, "link", queue, QUOTA, 0) : SL_NONE;
    add_actor(plan, "operator", SL_CLASS_F, queue, i > 0, &last, out != SL_NONE, &out);
    last = out;
  }
  return plan;
}
static sl_plan *chain1(void) { return chain(1); }
static sl_plan *chain2(void) { return chain(2); }

/* Makes a plan in which one token travels back and forth between two queues. */
static sl_plan *pingpong(void) {
  sl_plan *plan = sl_plan_create(64, 1);
  int32_t there = add_device(plan, &sl_queue_cpu), back = add_device(plan, &sl_queue_cpu);
  int32_t ping = add_register(plan, "ping", there, 2, 0),
          pong = add_register(plan, "pong", back, 2, 1);
  int32_t each = sl_plan_map_each(plan), later = sl_plan_map_lag(plan, 1, 1);
  sl_plan_add_actor(plan, (sl_actor){.name = "there",
                                     .queue = there,
                                     .ticks = each,
                                     .firings_per_step = 64,
                                     .nin = 1,
                                     .nout = 1,
                                     .in = &(sl_port){pong, each},
                                     .out = &(sl_port){ping, each},
                                     .program = empty_program(plan, 2)});
  sl_plan_add_actor(plan, (sl_actor){.name = "back",
                                     .queue = back,
                                     .ticks = each,
                                     .firings_per_step = 64,
                                     .nin = 1,
                                     .nout = 1,
                                     .in = &(sl_port){ping, each},
                                     .out = &(sl_port){pong, later},
                                     .program = empty_program(plan, 2)});
  return plan;
}

/* Makes a plan with one writer, eight readers and one collector. */
static sl_plan *fanout(void) {
  enum { WIDTH = 8 };
  sl_plan *plan = sl_plan_create(64, 1);
  int32_t queue = add_device(plan, &sl_queue_cpu);
  int32_t spread = add_register(plan, "spread", 0, 2, 0), collect[WIDTH];
  add_actor(plan, "source", SL_CLASS_F, queue, 0, NULL, 1, &spread);
  for (int i = 0; i < WIDTH; i++) {
    collect[i] = add_register(plan, "collect", 0, 2, 0);
    add_actor(plan, "reader", SL_CLASS_F, queue, 1, &spread, 1, &collect[i]);
  }
  add_actor(plan, "sink", SL_CLASS_F, queue, WIDTH, collect, 0, NULL);
  return plan;
}

/* Makes F, B and W actors on every stage, under 1F1B quotas. F writes one activation for B and one
 * for W. B sends one gradient to the previous stage and one to W. */
static sl_plan *stages(int32_t p, int32_t microbatches, const sl_queue_ops *ops) {
  sl_plan *plan = sl_plan_create(microbatches, 1);
  int32_t *forward = sli_calloc((size_t)p, sizeof *forward),
          *backward = sli_calloc((size_t)p, sizeof *backward);
  for (int32_t s = 0; s < p; s++) {
    add_device(plan, ops);
    forward[s] = s + 1 < p ? add_register(plan, "y", s, 2, 0) : SL_NONE;
    backward[s] = s > 0 ? add_register(plan, "dx", s, 2, 0) : SL_NONE;
  }
  for (int32_t s = 0; s < p; s++) {
    bool first = s == 0, last = s + 1 == p;
    int32_t b = add_register(plan, "act.b", s, p - s, 0),
            w = add_register(plan, "act.w", s, p - s, 0), dw = add_register(plan, "dw", s, 2, 0);
    add_actor(plan, "F", SL_CLASS_F, s, !first, first ? NULL : &forward[s - 1], 2 + !last,
              (int32_t[]){b, w, forward[s]});
    add_actor(plan, "B", SL_CLASS_B, s, 1 + !last, (int32_t[]){b, last ? SL_NONE : backward[s + 1]},
              1 + !first, (int32_t[]){dw, backward[s]});
    add_actor(plan, "W", SL_CLASS_W, s, 2, (int32_t[]){w, dw}, 0, NULL);
  }
  free(forward);
  free(backward);
  return plan;
}
static sl_plan *pipeline(void) { return stages(8, 64, &sl_queue_cpu); }
static sl_plan *large(void) { return stages(1024, 128, &sl_queue_timed); }

/* ---- measuring -------------------------------------------------------------------- */

/* Duration of a measurement. Other load on the machine disturbs it, and two workers that wait for
 * each other need a core each at the same moment. A case therefore runs for a while, and its
 * fastest stretch of WINDOW firings (or round trips) is the result. */
enum { WINDOW = 1024, PATIENCE_NS = 1500000000 };

typedef struct bench {
  const char *name, *unit;
  sl_plan *(*make)(void);
  int workers;
  int64_t steps;   /* steps of one run */
  double per_unit; /* firings per unit */
  sl_clock clock;
} bench;

static const bench benches[] = {
    {"chain1", "ns/firing", chain1, 1, 40, 1, SL_CLOCK_REAL},
    {"chain2", "ns/firing", chain2, 2, 100, 1, SL_CLOCK_REAL},
    {"fanout", "ns/firing", fanout, 1, 30, 1, SL_CLOCK_REAL},
    {"pipeline", "ns/firing", pipeline, 1, 12, 1, SL_CLOCK_REAL},
    {"virtual", "ns/firing", large, 1, 1, 1, SL_CLOCK_VIRTUAL},
};

/* Returns nanoseconds per firing of the fastest stretch in the trace. */
static double fastest_stretch(const sl_runtime *rt) {
  sl_trace_record *records;
  size_t n = sl_runtime_trace(rt, &records, NULL);
  uint64_t best = UINT64_MAX;
  for (size_t i = WINDOW; i < n; i++)
    best = SLI_MIN(best, records[i].start_ns - records[i - WINDOW].start_ns);
  free(records);
  return (double)best / WINDOW;
}

/* Returns nanoseconds per firing of a whole run on the virtual clock. */
static double whole_run(uint64_t start, uint64_t firings) {
  return (double)(sli_now_ns() - start) / (double)firings;
}

static double measure(const bench *b, int64_t steps, bool once) {
  sl_plan *plan = b->make();
  sl_runtime_options options = {.clock = b->clock,
                                .workers = b->workers,
                                .trace_records = 1 << 14,
                                .no_data = b->clock == SL_CLOCK_VIRTUAL};
  sl_runtime *rt = NULL;
  double best = 1e30;
  CHECK(!sl_plan_finish(plan), "%s: %s", b->name, sl_detail());
  CHECK(!sl_runtime_create(plan, &options, &rt), "%s: %s", b->name, sl_detail());
  uint64_t begin = sli_now_ns();
  do {
    uint64_t before = sl_runtime_count(rt).firings, start = sli_now_ns();
    CHECK(!sl_runtime_run(rt, steps), "%s: %s", b->name, sl_detail());
    uint64_t firings = sl_runtime_count(rt).firings - before;
    double ns = once                        ? 0
                : b->clock == SL_CLOCK_REAL ? fastest_stretch(rt)
                                            : whole_run(start, firings);
    best = SLI_MIN(best, ns * b->per_unit);
  } while (!once && sli_now_ns() - begin < PATIENCE_NS);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
  return best;
}

/* ---- lower bound: one cache line each way -------------------------------------------- */

enum { BARE_TRIPS = 10000, BARE_SETTLED = 1000, TRIP_STEPS = 100, PAIRS = 101 };
static struct {
  _Alignas(SLI_LINE_PAIR) _Atomic uint32_t there;
  _Alignas(SLI_LINE_PAIR) _Atomic uint32_t back;
} bare;

static void *bare_peer(void *arg) {
  (void)arg;
  for (uint32_t i = 1; i <= BARE_TRIPS; i++) {
    while (atomic_load_explicit(&bare.there, memory_order_acquire) != i) {}
    atomic_store_explicit(&bare.back, i, memory_order_release);
  }
  return NULL;
}

/* Returns the mean nanoseconds of one round trip. */
static double bare_round_trip(void) {
  atomic_store(&bare.there, 0);
  atomic_store(&bare.back, 0);
  pthread_t peer;
  CHECK(!pthread_create(&peer, NULL, bare_peer, NULL), "no second thread");
  uint64_t since = 0;
  for (uint32_t i = 1; i <= BARE_TRIPS; i++) {
    if (i == BARE_SETTLED) since = sli_now_ns();
    atomic_store_explicit(&bare.there, i, memory_order_release);
    while (atomic_load_explicit(&bare.back, memory_order_acquire) != i) {}
  }
  uint64_t end = sli_now_ns();
  pthread_join(peer, NULL);
  return (double)(end - since) / (BARE_TRIPS - BARE_SETTLED);
}

/* Returns the round trip time through actors: the mean of the last trips in the trace of a run. */
static double actors_round_trip(sl_runtime *rt) {
  sl_trace_record *records;
  CHECK(!sl_runtime_run(rt, TRIP_STEPS), "pingpong: %s", sl_detail());
  size_t n = sl_runtime_trace(rt, &records, NULL), trips = TRIP_STEPS * 64 / 2;
  uint64_t ns = records[n - 1].start_ns - records[n - 1 - 2 * trips].start_ns;
  free(records);
  return (double)ns / (double)trips;
}

static int ascending(const void *a, const void *b) {
  const double *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

static double median(double *values, int n) {
  qsort(values, (size_t)n, sizeof *values, ascending);
  return values[n / 2];
}

/* Measures both alternately: the cores that run the two threads change, and so does the distance
 * between them. */
static void compare_round_trips(void) {
  sl_plan *plan = pingpong();
  sl_runtime_options options = {.workers = 2, .trace_records = 1 << 14};
  sl_runtime *rt = NULL;
  double actors[PAIRS], limit[PAIRS], ratio[PAIRS];
  CHECK(!sl_plan_finish(plan), "pingpong: %s", sl_detail());
  CHECK(!sl_runtime_create(plan, &options, &rt), "pingpong: %s", sl_detail());
  for (int i = 0; i < PAIRS; i++) {
    limit[i] = bare_round_trip();
    actors[i] = actors_round_trip(rt);
    ratio[i] = actors[i] / ((limit[i] + bare_round_trip()) / 2);
  }
  printf("pingpong\t%.1f\tns/round trip, median\n", median(actors, PAIRS));
  printf("limit\t%.1f\tns/round trip, median\n", median(limit, PAIRS));
  double middle = median(ratio, PAIRS);
  printf("ratio\t%.2f\tpingpong to limit, median of %d pairs (quarters %.2f, %.2f)\n", middle,
         PAIRS, ratio[PAIRS / 4], ratio[3 * PAIRS / 4]);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
}

int main(int argc, char **argv) {
  for (size_t i = 0; i < SLI_COUNT(benches); i++) {
    const bench *b = &benches[i];
    if (argc > 1 && strcmp(argv[1], b->name)) continue;
    double ns =
        argc == 3 ? measure(b, strtoll(argv[2], NULL, 10), true) : measure(b, b->steps, false);
    printf("%s\t%.1f\t%s\n", b->name, ns, b->unit);
    fflush(stdout);
    if (argc > 1) return 0;
  }
  CHECK(argc == 1 || (argc == 2 && !strcmp(argv[1], "pingpong")), "no case %s", argv[1]);
  compare_round_trips();
  return 0;
}
