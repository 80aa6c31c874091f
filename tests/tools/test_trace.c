/* SPDX-License-Identifier: Apache-2.0 */
/* Trace files: a recorded run reads back completely. Foreign, newer, damaged and truncated files
 * are told apart and never crash the reader. Every flipped bit is detected, and running crafted
 * plans terminates.
 *
 *   test_tools_trace [SEED]
 * labels: random unthreaded */
#include <sluice/sluice.h>

#include <string.h>
#include <unistd.h>

#include "tests/support/actors_plans.h"
#include "tests/support/seeds.h"
#include "base/base.h"
#include "models/models.h"
#include "tests/support/test.h"
#include "tests/support/trace_file.h"

enum { STEPS = 3, MICROBATCHES = 2 };

static char path[64];

/* ---- the traced run: a small pipeline that computes nothing -------------------------- */

static sl_args *args;
static sl_graph *graph;
static sl_lowered *lowered;
static sl_runtime *rt;
static const sl_plan *plan;

static void make_run(void) {
  char *words[] = {"--layers=2", "--width=32", "--heads=2", "--context=32",
                   "--batch=2",  "--data",     NULL};
  const char *source = getenv("SLUICE_SOURCE");
  char *data = sli_format("%s/tests/reference/tokens.u16", source ? source : ".");
  CHECK(!sl_args_create(sli_models[0]->options, &args), "%s", sl_detail());
  for (int i = 0, used; i < 5; i++) CHECK(!sl_args_take(args, 1, words + i, &used), "%s", words[i]);
  CHECK(!sl_args_set(args, "data", data), "%s", sl_detail());
  graph = sl_graph_create(&(sl_graph_options){.microbatches = MICROBATCHES, .pieces = 1});
  CHECK(!sli_models[0]->build(graph, args), "%s", sl_detail());
  sl_lower_options options = {.parallel.stages = 2,
                              .schedule.chunks = 1,
                              .devices = {.kind = "timed"},
                              .simulation.cost = {.F = 1, .B = 2}};
  CHECK(!sl_lower(graph, &options, &lowered), "%s", sl_detail());
  plan = sl_lowered_plan(lowered);
  sl_runtime_options run = {.clock = SL_CLOCK_VIRTUAL, .no_data = true};
  CHECK(!sl_runtime_create(plan, &run, &rt), "%s", sl_detail());
  CHECK(!sl_runtime_run(rt, STEPS), "%s", sl_detail());
  free(data);
}

static void end_run(void) {
  sl_runtime_destroy(rt);
  sl_lowered_destroy(lowered);
  sl_graph_destroy(graph);
  sl_args_destroy(args);
}

/* ---- claims ------------------------------------------------------------------------------ */

/* Returns the plan as text, without its programs. */
static char *plan_text(const sl_plan *from) {
  sl_plan p = *from;
  p.actors = memcpy(sli_calloc((size_t)p.nactors, sizeof *p.actors), from->actors,
                    (size_t)p.nactors * sizeof *p.actors);
  for (int32_t i = 0; i < p.nactors; i++) p.actors[i].program = NULL;
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  sl_plan_print(&p, out);
  fclose(out);
  free(p.actors);
  return text;
}

static void check_plan(const sl_plan *ran, const sl_plan *read) {
  char *a = plan_text(ran), *b = plan_text(read);
  CHECK(!strcmp(a, b), "the plan in the file is the one that ran:\n%s\n%s", a, b);
  free(a);
  free(b);
  for (int32_t i = 0; i < ran->nregs; i++) {
    const sl_register *x = &ran->regs[i], *y = &read->regs[i];
    CHECK(x->kept == y->kept && x->quota_most == y->quota_most && x->activation == y->activation &&
              x->producer == y->producer && x->nconsumers == y->nconsumers &&
              x->slot_stride == y->slot_stride && x->shares == y->shares &&
              x->aliases == y->aliases,
          "register %s", x->name);
  }
  for (int32_t i = 0; i < ran->nactors; i++)
    CHECK(ran->actors[i].seconds == read->actors[i].seconds, "actor %s", ran->actors[i].name);
}

static void what_ran_is_read_back(void) {
  const double sums[] = {7, 0, 9.5}, last[] = {2, 0, 3};
  CHECK(!sl_trace_write_counters(path, plan, rt, SL_CLOCK_VIRTUAL, 1,
                                 &(sl_trace_counter){"rows", 3, sums, last}),
        "%s", sl_detail());
  sl_trace *counted;
  CHECK(!sl_trace_read(path, &counted) && counted->ncounters == 1 && counted->counters[0].n == 3 &&
            !strcmp(counted->counters[0].name, "rows") &&
            !memcmp(counted->counters[0].sum, sums, sizeof sums) &&
            !memcmp(counted->counters[0].last, last, sizeof last),
        "what was counted comes back");
  sl_trace_destroy(counted);
  sl_trace *t;
  CHECK(!sl_trace_read(path, &t), "%s", sl_detail());
  CHECK(t->version == SL_TRACE_VERSION && t->plan_hash == plan->hash && t->steps == STEPS &&
            t->clock == SL_CLOCK_VIRTUAL && t->plan->microbatches == MICROBATCHES &&
            t->plan->pieces == 1 && !t->dropped && !t->truncated && !t->damaged,
        "the facts of the run");
  check_plan(plan, t->plan);
  CHECK(t->nsteps == STEPS, "it has the steps");
  uint64_t firings = 0;
  for (size_t i = 0; i < t->nsteps; i++) {
    CHECK(t->step[i].step == (int64_t)i && t->step[i].end_ns >= t->step[i].start_ns, "step %zu", i);
    firings += t->step[i].firings;
  }
  CHECK(firings == t->nfirings, "the steps have all firings");
  sl_trace_record *records;
  uint64_t dropped;
  size_t n = sl_runtime_trace(rt, &records, &dropped);
  CHECK(n && n == t->nfirings, "%zu firings, %zu in the file", n, t->nfirings);
  for (size_t i = 0; i < n; i++) {
    const sl_trace_record *a = &records[i], *b = &t->firings[i].record;
    CHECK(a->start_ns == b->start_ns && a->end_ns == b->end_ns && a->firing == b->firing &&
              a->actor == b->actor && a->wait == b->wait,
          "firing %zu", i);
    sl_tick tick = sl_plan_tick(plan, a->actor, a->firing);
    const sl_tick *got = &t->firings[i].tick;
    CHECK(tick.number == got->number && tick.step == got->step &&
              tick.microbatch == got->microbatch && tick.piece == got->piece,
          "its tick");
  }
  free(records);
  sl_trace_destroy(t);
}

static unsigned char *read_all(size_t *count) {
  FILE *file = fopen(path, "rb");
  unsigned char *bytes = sli_calloc(1 << 20, 1);
  *count = file ? fread(bytes, 1, 1 << 20, file) : 0;
  CHECK(*count > 64 && *count < 1 << 20 && fclose(file) == 0, "the file was read");
  return bytes;
}

static void write_all(const void *bytes, size_t count) {
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(bytes, 1, count, file) == count && fclose(file) == 0, "cannot write %s",
        path);
}

static void check_refused(const void *bytes, size_t count, const char *word) {
  write_all(bytes, count);
  sl_trace *t;
  CHECK(sl_trace_read(path, &t) == SL_E_INPUT, "%s: is refused", word);
  CHECK(strstr(sl_detail(), path) && strstr(sl_detail(), word), "%s: %s", word, sl_detail());
}

static void foreign_and_newer_files_are_told(const unsigned char *good, size_t count) {
  unsigned char *bad = memcpy(sli_calloc(count, 1), good, count);
  check_refused("", 0, "is not a Sluice trace");
  check_refused("{\"steps\": []}", 13, "is not a Sluice trace");
  bad[8] = 99; /* the version */
  char *versions =
      sli_format("has version 99; this program reads versions 3 to %d", SL_TRACE_VERSION);
  check_refused(bad, count, versions);
  free(versions);
  unlink(path);
  sl_trace *t;
  CHECK(sl_trace_read(path, &t) == SL_E_INPUT && strstr(sl_detail(), "No such file"), "missing");
  free(bad);
}

/* A truncated file is rejected if the cut is before the firings; otherwise it is read up to the
 * cut. */
static void a_cut_file_is_read_as_far_as_it_goes(const unsigned char *good, size_t count,
                                                 size_t firings) {
  size_t first, step = SLI_MAX(count / 500, (size_t)1);
  memcpy(&first, good + 64 + 11 * 32 + 16, 8); /* offset of the firings, which may be incomplete */
  for (size_t n = 8; n < count; n += step) {
    write_all(good, n);
    sl_trace *t = NULL;
    sl_status status = sl_trace_read(path, &t);
    CHECK(n >= first || status == SL_E_INPUT, "cut at %zu before the firings", n);
    CHECK(n >= first || strstr(sl_detail(), "truncated"), "it says so: %s", sl_detail());
    if (n < first) continue;
    CHECK(!status && t->truncated && t->nfirings == SLI_MIN(firings, (n - first) / 64),
          "cut at %zu", n);
    sl_trace_destroy(t);
  }
}

/* Checks that the reader reports damage or reads the same data as before. */
static void check_flip(const sl_trace *good, const char *what, size_t bit) {
  sl_trace *t = NULL;
  if (sl_trace_read(path, &t)) {
    CHECK(strstr(sl_detail(), path), "bit %zu of the %s: %s", bit, what, sl_detail());
    return;
  }
  bool same = t->nfirings == good->nfirings && t->steps == good->steps &&
              t->plan_hash == good->plan_hash && t->dropped == good->dropped &&
              t->clock == good->clock && t->plan->hash == good->plan->hash &&
              !memcmp(t->firings, good->firings, good->nfirings * sizeof *good->firings);
  CHECK(same || t->damaged || t->truncated, "bit %zu of the %s is read as if it were right", bit,
        what);
  sl_trace_destroy(t);
}

/* Flips each bit of the head and random other bits; no flip goes undetected. */
static void no_flipped_bit_goes_unnoticed(const unsigned char *good, size_t count, uint64_t seed) {
  unsigned char *bad = memcpy(sli_calloc(count, 1), good, count);
  sl_trace *t;
  write_all(good, count);
  CHECK(!sl_trace_read(path, &t), "%s", sl_detail());
  for (size_t i = 0; i < 512 + 1500; i++) {
    size_t bit = i < 512 ? i : 512 + random_next(&seed) % (8 * count - 512);
    bad[bit / 8] ^= (unsigned char)(1u << bit % 8);
    write_all(bad, count);
    check_flip(t, i < 512 ? "head" : "rest", bit);
    if (i < 512) CHECK(sl_trace_read(path, &(sl_trace *){NULL}), "bit %zu of the head", bit);
    bad[bit / 8] = good[bit / 8];
  }
  sl_trace_destroy(t);
  free(bad);
}

/* A crafted plan is rejected, deadlocks or runs, but the runtime always ends. Random words of the
 * plan's sections are replaced by numbers that are often invalid. */
static void crafted_plans_are_run_or_refused(const unsigned char *good, size_t count,
                                             uint64_t seed) {
  static const uint32_t numbers[] = {0,        1,         2,        3,          4,
                                     7,        64,        255,      65536,      1u << 24,
                                     1u << 30, INT32_MAX, 1u << 31, UINT32_MAX, UINT32_MAX - 1};
  unsigned char *bad = sli_calloc(count, 1);
  uint64_t first, last;
  memcpy(&first, good + 64 + 32 + 16, 8);     /* offset of the devices */
  memcpy(&last, good + 64 + 11 * 32 + 16, 8); /* offset of the firings */
  int opened = 0, ran = 0;
  for (int round = 0; round < 4000; round++) {
    memcpy(bad, good, count);
    for (int k = random_below(&seed, 3); k >= 0; k--) {
      size_t at = first + 4 * (random_next(&seed) % ((last - first) / 4));
      uint32_t number = numbers[random_below(&seed, (int)SLI_COUNT(numbers))];
      if (random_below(&seed, 6) == 0) at = 36 + 4 * (size_t)random_below(&seed, 2); /* M, K */
      if (random_below(&seed, 2))
        memcpy(&number, bad + at, 4), number += random_below(&seed, 2) ? 1 : UINT32_MAX;
      memcpy(bad + at, &number, 4);
    }
    trace_rehash(bad, count);
    write_all(bad, count);
    sl_trace *t;
    sl_statistics f;
    if (sl_trace_read(path, &t)) continue;
    opened++;
    if (!sl_plan_predict(t->plan, NULL, &f)) ran++, free(f.devices);
    sl_trace_destroy(t);
  }
  printf("%d crafted plans can be read, %d run\n", opened, ran);
  CHECK(opened > 100 && ran > 50, "hardly any crafted plan runs");
  free(bad);
}

/* Files written before the head had a checksum. */
static void older_files_are_read(void) {
  const char *source = getenv("SLUICE_SOURCE");
  char *old = sli_format("%s/tests/reference/version3.trace", source ? source : ".");
  sl_trace *t;
  CHECK(!sl_trace_read(old, &t), "%s", sl_detail());
  CHECK(t->version == 3 && t->nfirings == 66 && t->nsteps == 2 && t->plan->ndevices == 2 &&
            !t->damaged && !t->truncated,
        "%zu firings", t->nfirings);
  sl_trace_destroy(t);
  free(old);
}

static void random_damage_never_crashes(const unsigned char *good, size_t count, bool hidden) {
  unsigned char *bad = sli_calloc(count, 1);
  int opened = 0, noticed = 0, rounds = 3000 * (int)seeds_times();
  srand(1);
  for (int round = 0; round < rounds; round++) {
    memcpy(bad, good, count);
    size_t reach = rand() % 2 ? 600 : count;
    for (int k = rand() % 4; k >= 0; k--)
      bad[8 + (size_t)rand() % (reach - 8)] = (unsigned char)rand();
    if (hidden) trace_rehash(bad, count);
    write_all(bad, count);
    sl_trace *t;
    if (sl_trace_read(path, &t)) continue;
    opened++;
    noticed += t->damaged || t->truncated;
    for (size_t i = 0; i < t->nfirings; i++)
      CHECK(strlen(t->plan->actors[t->firings[i].record.actor].name) < count, "a name ends");
    sl_trace_destroy(t);
  }
  CHECK(opened && opened < rounds, "some damage matters, some does not: %d", opened);
  CHECK(hidden || noticed, "damage to firings is noticed");
  free(bad);
}

/* Every flipped byte of the plan or the firings is detected. */
static void no_damage_goes_unnoticed(const unsigned char *good, size_t count) {
  unsigned char *bad = memcpy(sli_calloc(count, 1), good, count);
  uint64_t first;
  memcpy(&first, good + 64 + 16, 8); /* offset of the first section, the strings */
  for (size_t at = first; at < count; at += 1 + count / 700) {
    bad[at] ^= 0x10;
    write_all(bad, count);
    sl_trace *t = NULL;
    sl_status status = sl_trace_read(path, &t);
    CHECK(status || t->damaged || good[at] == 0, "byte %zu", at);
    if (!status) sl_trace_destroy(t);
    bad[at] ^= 0x10;
  }
  free(bad);
}

/* Plans of every kind survive a round trip through a file, with slots of any modelled size too. */
static void random_plans_are_read_back(void) {
  for (uint64_t seed = 1; seed <= 40 * seeds_times(); seed++) {
    random_plan *r = random_plan_create(seed, seed, QUEUES_TIMED);
    const sl_plan *p = random_plan_get(r);
    bool large = seed % 4 == 0 && p->nregs;
    if (large) p->regs[0].slot_bytes = (size_t)3 << 40;
    if (sl_plan_prove(p)) { /* some cannot finish */
      random_plan_destroy(r);
      continue;
    }
    sl_runtime *run;
    sl_runtime_options options = {.clock = SL_CLOCK_VIRTUAL, .no_data = true, .trace_records = 16};
    CHECK(!sl_runtime_create(p, &options, &run) && !sl_runtime_run(run, 2), "%s", sl_detail());
    CHECK(!sl_trace_write(path, p, run, SL_CLOCK_VIRTUAL), "%s", sl_detail());
    sl_trace *t;
    CHECK(!sl_trace_read(path, &t), "%s", sl_detail());
    if (large) CHECK(t->plan->regs[0].slot_bytes == p->regs[0].slot_bytes, "3 TiB");
    else check_plan(p, t->plan);
    CHECK(t->nfirings <= 16 && t->nfirings + t->dropped == sl_runtime_count(run).firings &&
              !t->damaged,
          "the newest firings are there, and the others are counted");
    sl_trace_destroy(t);
    sl_runtime_destroy(run);
    random_plan_destroy(r);
  }
}

int main(int argc, char **argv) {
  uint64_t seed = seed_of(argc, argv, 1);
  const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; /* the faster one */
  snprintf(path, sizeof path, "%s/sluice-test-%ld.trace", folder, (long)getpid());
  make_run();
  what_ran_is_read_back();
  size_t count;
  unsigned char *good = read_all(&count);
  sl_trace *t;
  CHECK(!sl_trace_read(path, &t), "%s", sl_detail());
  size_t firings = t->nfirings;
  sl_trace_destroy(t);
  RUN(foreign_and_newer_files_are_told, good, count);
  RUN(a_cut_file_is_read_as_far_as_it_goes, good, count, firings);
  RUN(random_damage_never_crashes, good, count, false);
  RUN(random_damage_never_crashes, good, count, true);
  RUN(no_damage_goes_unnoticed, good, count);
  RUN(no_flipped_bit_goes_unnoticed, good, count, seed);
  RUN(crafted_plans_are_run_or_refused, good, count, seed);
  RUN(older_files_are_read);
  RUN(random_plans_are_read_back);
  free(good);
  end_run();
  unlink(path);
  return 0;
}
