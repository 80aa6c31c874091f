/* Trace files: what a run recorded is read back whole; foreign, newer, damaged
 * and cut files are told apart and never crash the reader. */
#include <sluice/sluice.h>

#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "models/models.h"
#include "test.h"

enum { STEPS = 3, MICROBATCHES = 2 };

static char path[64];

/* ---- a run to be traced: a small pipeline that computes nothing ---------------------- */

static sl_args *args;
static sl_graph *graph;
static sl_lowered *lowered;
static sl_runtime *rt;
static const sl_plan *plan;

static void make_run(void) {
  char *words[] = {"--layers=2", "--width=32", "--heads=2", "--context=32", "--batch=2", "--data",
                   NULL};
  const char *source = getenv("SLUICE_SOURCE");
  char *data = sli_format("%s/tests/reference/tokens.u16", source ? source : ".");
  CHECK(!sl_args_create(sli_models[0]->options, &args), "%s", sl_detail());
  for (int i = 0, used; i < 5; i++) CHECK(!sl_args_take(args, 1, words + i, &used), "%s", words[i]);
  CHECK(!sl_args_set(args, "data", data), "%s", sl_detail());
  graph = sl_graph_create(&(sl_graph_options){.microbatches = MICROBATCHES, .pieces = 1});
  CHECK(!sli_models[0]->build(graph, args), "%s", sl_detail());
  sl_lower_options options = {.stages = 2, .chunks = 1, .devices = {.kind = "timed"},
                              .cost = {.F = 1, .B = 2}};
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

static void check_tables(const sl_trace *t) {
  CHECK(t->nactors == plan->nactors && t->nregs == plan->nregs && t->nqueues == plan->nqueues &&
        t->ndevices == plan->ndevices, "the tables have the plan's sizes");
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_actor *a = &plan->actors[i];
    const sl_trace_actor *b = &t->actors[i];
    CHECK(!strcmp(a->name, b->name) && a->cls == b->cls && a->stage == b->stage &&
          a->chunk == b->chunk && a->queue == b->queue &&
          plan->queues[a->queue].device == b->device, "actor %s", a->name);
  }
  for (int32_t i = 0; i < plan->nregs; i++) {
    const sl_register *a = &plan->regs[i];
    const sl_trace_register *b = &t->regs[i];
    CHECK(!strcmp(a->name, b->name) && a->quota == b->quota && a->memory == b->memory &&
          a->producer == b->producer && a->slot_bytes == b->slot_bytes, "register %s", a->name);
  }
  for (int32_t i = 0; i < plan->ndevices; i++)
    CHECK(!strcmp(plan->devices[i].name, t->devices[i].name), "device %d", i);
}

static void what_ran_is_read_back(void) {
  CHECK(!sl_trace_write(path, plan, rt, SL_CLOCK_VIRTUAL), "%s", sl_detail());
  sl_trace *t;
  CHECK(!sl_trace_read(path, &t), "%s", sl_detail());
  CHECK(t->version == SL_TRACE_VERSION && t->plan_hash == plan->hash && t->steps == STEPS &&
        t->clock == SL_CLOCK_VIRTUAL && t->microbatches == MICROBATCHES && t->pieces == 1 &&
        !t->dropped && !t->truncated, "the facts of the run");
  check_tables(t);
  sl_trace_record *records;
  uint64_t dropped;
  size_t n = sl_runtime_trace(rt, &records, &dropped);
  CHECK(n && n == t->nfirings, "%zu firings, %zu in the file", n, t->nfirings);
  for (size_t i = 0; i < n; i++) {
    const sl_trace_record *a = &records[i], *b = &t->firings[i].record;
    CHECK(a->start_ns == b->start_ns && a->end_ns == b->end_ns && a->firing == b->firing &&
          a->actor == b->actor && a->wait == b->wait, "firing %zu", i);
    sl_tick tick = sl_plan_tick(plan, a->actor, a->firing);
    const sl_tick *got = &t->firings[i].tick;
    CHECK(tick.number == got->number && tick.step == got->step &&
          tick.microbatch == got->microbatch && tick.piece == got->piece, "its tick");
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
  check_refused(bad, count, "has version 99; this program reads up to version 1");
  unlink(path);
  sl_trace *t;
  CHECK(sl_trace_read(path, &t) == SL_E_INPUT && strstr(sl_detail(), "No such file"), "missing");
  free(bad);
}

/* Cut anywhere: refused until the firings begin, and from there on read as far
 * as it goes. */
static void a_cut_file_is_read_as_far_as_it_goes(const unsigned char *good, size_t count,
                                                 size_t firings) {
  size_t first = count - firings * 64, step = SLI_MAX(count / 500, (size_t)1);
  for (size_t n = 8; n < count; n += step) {
    write_all(good, n);
    sl_trace *t = NULL;
    sl_status status = sl_trace_read(path, &t);
    CHECK(n >= first || status == SL_E_INPUT, "cut at %zu before the firings", n);
    CHECK(n >= first || strstr(sl_detail(), "truncated"), "it says so: %s", sl_detail());
    if (n < first) continue;
    CHECK(!status && t->truncated && t->nfirings == (n - first) / 64, "cut at %zu", n);
    sl_trace_destroy(t);
  }
}

static void random_damage_never_crashes(const unsigned char *good, size_t count) {
  unsigned char *bad = sli_calloc(count, 1);
  int opened = 0, rounds = 3000;
  srand(1);
  for (int round = 0; round < rounds; round++) {
    memcpy(bad, good, count);
    size_t reach = rand() % 2 ? 300 : count;
    for (int k = rand() % 4; k >= 0; k--)
      bad[8 + (size_t)rand() % (reach - 8)] = (unsigned char)rand();
    write_all(bad, count);
    sl_trace *t;
    if (sl_trace_read(path, &t)) continue;
    opened++;
    for (size_t i = 0; i < t->nfirings; i++)
      CHECK(strlen(t->actors[t->firings[i].record.actor].name) < count, "a name ends");
    sl_trace_destroy(t);
  }
  CHECK(opened && opened < rounds, "some damage matters, some does not: %d", opened);
  free(bad);
}

int main(void) {
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
  foreign_and_newer_files_are_told(good, count);
  a_cut_file_is_read_as_far_as_it_goes(good, count, firings);
  random_damage_never_crashes(good, count);
  free(good);
  end_run();
  unlink(path);
  return 0;
}
