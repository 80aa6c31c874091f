/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a register on disk. An actor's output is spilled and filled back for its reader, in any
 * order of keys, with as few as one slot per register, and arrives unchanged. A disk error ends the
 * run with a message that names the cause. */
#include <inttypes.h>
#include <linux/magic.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <sluice/ops.h>
#include <sluice/runtime.h>
#include <sluice/trace.h>

#include "actors/plan/plan.h"
#include "base/base.h"
#include "kernels/disk/disk.h"
#include "tests/support/nameless.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { MICROBATCHES = 4, MADE = 0, HOME, BACK, REGISTERS };

typedef struct shape {
  int64_t numbers; /* per slot */
  int quota[REGISTERS];
  bool reversed; /* the last value written is used first */
  bool modelled; /* timing only, no data is moved */
  bool rows;     /* each value is a row, and only some rows are valid */
} shape;

static _Atomic int64_t uses, break_at = -1;
/* The file that replaces the disk file at use number break_at; NULL: its writes fail from then on.
 */
static const char *replacement;

static float value_of(const sl_tick *tick, int64_t i) {
  return (float)(tick->number * 7919 + i % 4093);
}

/* Returns the valid rows of a slot: none in every third tick, otherwise any number. */
static int64_t rows_in(int64_t tick, int64_t all) {
  return tick % 3 == 1 ? 0 : tick * 611 % (all + 1);
}

static int64_t rows_of(const sl_call *call, const int32_t *lengths, const sl_type *type) {
  return lengths ? rows_in(call->tick.number, type->dim[0]) : type->dim[0];
}

static void make_op(const sl_call *call) {
  float *out = call->out[0];
  int64_t rows = rows_of(call, call->out_rows, &call->out_type[0]);
  for (int64_t i = 0; i < rows; i++) out[i] = value_of(&call->tick, i);
  sl_call_fill(call, 0, rows);
}

/* Checks its input and poisons it afterwards: nobody may read it again. */
static void use_op(const sl_call *call) {
  float *in = (float *)call->in[0];
  int64_t nth = atomic_fetch_add(&uses, 1), last = atomic_load(&break_at);
  if (last >= 0 && nth > last) return;
  int64_t rows = sl_call_rows(call, 0, call->in_type[0].dim[0]);
  CHECK(rows == rows_of(call, call->in_rows, &call->in_type[0]),
        "tick %" PRId64 ": %" PRId64 " rows", call->tick.number, rows);
  for (int64_t i = 0; i < rows; i++) {
    CHECK(in[i] == value_of(&call->tick, i),
          "tick %" PRId64 ": number %" PRId64 " is %g and not %g", call->tick.number, i,
          (double)in[i], (double)value_of(&call->tick, i));
    in[i] = NAN;
  }
  if (nth != last) return;
  if (replacement) nameless_replace(replacement);
  else nameless_close_to_writes();
}

static const sl_op make_row = {.name = "make",
                               .nout = 1,
                               .kernels = SL_CPU_KERNEL(make_op),
                               .rows = &(const sl_op_rows){.fills = 1}};
static const sl_op use_row = {.name = "use",
                              .max_in = 1,
                              .kernels = SL_CPU_KERNEL(use_op),
                              .rows = &(const sl_op_rows){.looks = 1}};

/* A program of one call, which reads base 0 if it has an input and writes the next base. */
static sl_program *make_program(sl_plan *plan, const shape *s, const sl_op *op, int nin, int nout,
                                const char *name) {
  sl_program *program = sl_plan_alloc(plan, sizeof *program);
  sl_program_call *call = sl_plan_alloc(plan, sizeof *call);
  sl_type *type = sl_plan_alloc(plan, sizeof *type);
  sl_place *places = sl_plan_alloc(plan, 2 * sizeof *places);
  *type = (sl_type){.dtype = SL_F32, .ndim = 1, .dim = {s->numbers}};
  places[0].base = 0, places[1].base = nin;
  *call = (sl_program_call){.op = op,
                            .name = name,
                            .nin = nin,
                            .nout = nout,
                            .in_type = type,
                            .out_type = type,
                            .in = places,
                            .out = places + 1};
  *program = (sl_program){.ncalls = 1, .calls = call, .nbases = nin + nout + 1};
  if (!s->rows) return program;
  static const int16_t first[] = {0, 0, SL_NONE};
  int32_t *rows = sl_plan_alloc(plan, sizeof *rows);
  *rows = (int32_t)s->numbers;
  program->nlengths = 1, program->nread = nin;
  program->length_rows = rows;
  program->base_length = first;
  call->in_length = call->out_length = first;
  return program;
}

/* The firings of one step in the order of their use. */
static int32_t back_map(sl_plan *plan, const shape *s) {
  sl_map_entry entries[MICROBATCHES];
  for (int i = 0; i < MICROBATCHES; i++)
    entries[i] = (sl_map_entry){s->reversed ? MICROBATCHES - 1 - i : i, SL_FIRST | SL_LAST};
  return sl_plan_add_map(plan, MICROBATCHES, MICROBATCHES, entries);
}

static void add_registers(sl_plan *plan, const shape *s) {
  static const char *const names[REGISTERS] = {"act", "act@home", "act@back"};
  for (int r = 0; r < REGISTERS; r++)
    sl_plan_add_register(plan, (sl_register){.name = names[r],
                                             .quota_name = names[r],
                                             .quota = s->quota[r],
                                             .pool = SL_NONE,
                                             .space = r == HOME ? SL_SPACE_DISK : SL_SPACE_DEVICE,
                                             .memory = SL_MEMORY_ACTIVATIONS,
                                             .slot_bytes = (size_t)s->numbers * 4,
                                             .rows = s->rows ? (int32_t)s->numbers : 0});
}

typedef struct part {
  const char *name;
  const sl_op *op;
  int queue, in, out; /* SL_NONE if absent */
  int32_t in_map, ticks;
} part;

static void add_part(sl_plan *plan, const shape *s, part p, int32_t out_map) {
  sl_port in = {p.in, p.in_map}, out = {p.out, out_map};
  int nin = p.in != SL_NONE, nout = p.out != SL_NONE;
  sl_plan_add_actor(
      plan,
      (sl_actor){.name = p.name,
                 .cls = nin ? nout ? SL_CLASS_C : SL_CLASS_B : SL_CLASS_F,
                 .queue = p.queue,
                 .stage = SL_NONE,
                 .chunk = SL_NONE,
                 .ticks = p.ticks,
                 .firings_per_step = MICROBATCHES,
                 .nin = nin,
                 .nout = nout,
                 .in = &in,
                 .out = &out,
                 .program = s->modelled ? NULL : make_program(plan, s, p.op, nin, nout, "act"),
                 .seconds = s->modelled ? 1e-3 : 0});
}

/* make -> act -> spill -> act@home -> fill -> act@back -> use */
static sl_plan *plan_of(const shape *s, const char *folder) {
  sl_plan *plan = sl_plan_create(MICROBATCHES, 1);
  int32_t each = sl_plan_map_each(plan), back = back_map(plan, s);
  sl_device device = {
      .name = "cpu:0", .kind = "cpu", .threads = 1, .budget_bytes = (size_t)1 << 40};
  device.room[SL_SPACE_DISK].path = folder;
  sl_plan_add_device(plan, device);
  for (int q = 0; q < 3; q++)
    sl_plan_add_queue(plan, (sl_queue){.name = q ? q == 1 ? "spill" : "fill" : "cpu:0",
                                       .device = 0,
                                       .ops = s->modelled ? &sl_queue_timed
                                              : q         ? &sl_queue_disk
                                                          : &sl_queue_cpu,
                                       .run_ahead = 1,
                                       .class_order = {[SL_CLASS_F] = 1},
                                       .apart = q > 0});
  add_registers(plan, s);
  add_part(plan, s, (part){"make", &make_row, 0, SL_NONE, MADE, each, each}, each);
  add_part(plan, s, (part){"spill", &sl_op_copy, 1, MADE, HOME, each, each}, each);
  add_part(plan, s, (part){"fill", &sl_op_copy, 2, HOME, BACK, back, back}, each);
  add_part(plan, s, (part){"use", &use_row, 0, BACK, SL_NONE, each, back}, each);
  return plan;
}

static sl_plan *finished(const shape *s) {
  sl_plan *plan = plan_of(s, ".");
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  return plan;
}

static sl_runtime *start(const sl_plan *plan, uint64_t seed) {
  sl_runtime *rt;
  sl_runtime_options options = {
      .workers = 1, .trace_records = 1024, .jitter_seed = seed, .jitter_ns = 100000};
  CHECK(!sl_runtime_create(plan, &options, &rt), "%s", sl_detail());
  atomic_store(&uses, 0);
  return rt;
}

static void check_run(const shape *s, uint64_t seed, int64_t steps) {
  sl_plan *plan = finished(s);
  sl_runtime *rt = start(plan, seed);
  CHECK(!sl_runtime_run(rt, steps), "%s", sl_detail());
  CHECK(atomic_load(&uses) == steps * MICROBATCHES, "%d uses", (int)atomic_load(&uses));
  for (int r = 0; r < REGISTERS; r++)
    CHECK(sl_runtime_peak_slots(rt, r) <= s->quota[r], "register %d held more than its quota", r);
  uint64_t rows = 0, moved = sl_runtime_count(rt).moved_bytes[SL_TRAFFIC_DISK];
  for (int64_t t = 0; t < steps * MICROBATCHES; t++)
    rows += (uint64_t)(s->rows ? rows_in(t, s->numbers) : s->numbers);
  CHECK(moved == 2 * 4 * rows, "%" PRIu64 " bytes moved of %" PRIu64 " numbers", moved, rows);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
}

static void what_comes_back_is_what_went(void) {
  for (int i = 0; i < 9; i++) { /* each pair of the three slot counts meets once */
    shape s = {
        i % 2 ? 1024 : 2500, {1 + i % 3, 1 + i / 3, 1 + (i + i / 3) % 3}, false, false, false};
    check_run(&s, 0, 4);
  }
  check_run(&(shape){3 << 17, {1, 2, 2}, false, false, false}, 0, 2);
  check_run(&(shape){2048, {1, MICROBATCHES, 1}, true, false, false}, 0, 8);
}

static void only_what_is_valid_goes(void) {
  for (int i = 0; i < 4; i++)
    check_run(
        &(shape){i % 2 ? 1024 : 2500, {1 + i % 3, MICROBATCHES, 1 + i / 2}, i > 1, false, true}, 0,
        4);
}

static void no_race_shows(void) {
  for (int seed = 1; seed <= 4 * (int)seeds_times(); seed++) {
    shape s = {1024 * (1 + seed % 3),
               {1 + seed % 2, MICROBATCHES, 1 + seed / 2 % 2},
               seed % 2,
               false,
               false};
    check_run(&s, (uint64_t)seed, 6);
  }
}

/* Slots on disk, and slots copied to and from disk, are whole pages; a device's memory does not
 * include disks. */
static void slots_are_whole_pages(void) {
  shape s = {100, {2, 1000, 3}, false, false, false};
  sl_plan *plan = plan_of(&s, ".");
  int32_t other = sl_plan_add_register(plan, (sl_register){.name = "other",
                                                           .quota_name = "q",
                                                           .quota = 1,
                                                           .initial = 1,
                                                           .pool = SL_NONE,
                                                           .slot_bytes = 100});
  plan->devices[0].budget_bytes = 5 * SLI_DISK_PAGE + 128;
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  for (int r = 0; r < REGISTERS; r++)
    CHECK(plan->regs[r].slot_stride == SLI_DISK_PAGE && plan->regs[r].offset % SLI_DISK_PAGE == 0,
          "register %s: %zu bytes at %zu", plan->regs[r].name, plan->regs[r].slot_stride,
          plan->regs[r].offset);
  CHECK(plan->regs[other].slot_stride == 128, "a register of another kind grew");
  CHECK(sl_device_bytes(&plan->devices[0]) == 5 * SLI_DISK_PAGE + 128, "the device has %zu bytes",
        sl_device_bytes(&plan->devices[0]));
  CHECK(sl_plan_memory(plan, 0, SL_MEMORY_ACTIVATIONS) == 5 * SLI_DISK_PAGE, "disk was counted");
  CHECK(sli_plan_memory(plan, 0, SL_SPACE_DISK, SL_MEMORY_ACTIVATIONS) == 1000 * SLI_DISK_PAGE,
        "disk was not counted");
  sl_plan_destroy(plan);
}

/* Between runs, slots on disk are read and written like all others. */
static void slots_are_read_and_written(void) {
  shape s = {1024, {1, 2, 1}, false, false, false};
  sl_plan *plan = finished(&s);
  sl_runtime *rt = start(plan, 0);
  float back[500], values[500];
  for (int i = 0; i < 500; i++) values[i] = (float)i;
  CHECK(!sl_runtime_write(rt, HOME, 1, 1000, sizeof values, values), "%s", sl_detail());
  CHECK(!sl_runtime_read(rt, HOME, 1, 1000, sizeof back, back), "%s", sl_detail());
  CHECK(!memcmp(back, values, sizeof back), "a slot on disk was read otherwise");
  CHECK(!sl_runtime_run(rt, 1), "%s", sl_detail());
  CHECK(!sl_runtime_read(rt, HOME, sl_runtime_newest_slot(rt, HOME), 0, sizeof back, back), "%s",
        sl_detail());
  sl_tick last = {.number = MICROBATCHES - 1};
  CHECK(back[7] == value_of(&last, 7), "the newest slot holds %g", (double)back[7]);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
}

/* actortrace does not count disk slots as device memory. */
static void a_trace_shows_the_devices_memory(void) {
  const char *build = getenv("SLUICE_BUILD");
  shape s = {1 << 18, {1, MICROBATCHES, 1}, true, true, false};
  sl_plan *plan = finished(&s);
  sl_runtime *rt;
  sl_runtime_options options = {.clock = SL_CLOCK_VIRTUAL, .no_data = true};
  CHECK(!sl_runtime_create(plan, &options, &rt) && !sl_runtime_run(rt, 2), "%s", sl_detail());
  CHECK(!sl_trace_write("actors_disk.trace", plan, rt, SL_CLOCK_VIRTUAL), "%s", sl_detail());
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
  char *command =
      sli_format("%s/bin/actortrace show --width 200 actors_disk.trace", build ? build : "..");
  char line[1024];
  bool seen = false;
  FILE *out = popen(command, "r");
  while (out && fgets(line, sizeof line, out)) seen |= strstr(line, "2.0 MiB of 2.0 MiB") != NULL;
  CHECK(out && !pclose(out) && seen, "%s: no line says 2.0 MiB of 2.0 MiB", command);
  free(command);
  unlink("actors_disk.trace");
}

/* ---- errors ---------------------------------------------------------------------------- */

static void check_breaks(const char *with, const char *who, const char *why) {
  shape s = {1024, {2, 2, 2}, false, false, false};
  sl_plan *plan = finished(&s);
  sl_runtime *rt = start(plan, 0);
  replacement = with;
  atomic_store(&break_at, 2 * MICROBATCHES);
  sl_status status = sl_runtime_run(rt, 1000);
  atomic_store(&break_at, -1);
  with = with ? with : "no writes";
  CHECK(status == SL_E_DEVICE, "%s: %s: %s", with, sl_status_text(status), sl_detail());
  CHECK(strstr(sl_detail(), who) && strstr(sl_detail(), why) &&
            strstr(sl_detail(), ", microbatch ") && strstr(sl_detail(), " act: 4096 bytes at ") &&
            strstr(sl_detail(), " of a file in ."),
        "%s: %s", with, sl_detail());
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
}

static void what_breaks_ends_the_run(void) {
  check_breaks(NULL, "actor spill on cpu:0: step ", "Bad file descriptor");
  check_breaks("/dev/null", "actor fill on cpu:0: step 2, microbatch ", "unexpected end of file");
  check_breaks("/proc/self/mem", " on cpu:0: step ", "Input/output error");
}

static void check_refused(const char *folder, int64_t numbers, const char *why) {
  sl_runtime *rt;
  sl_plan *plan = plan_of(&(shape){numbers, {1, 1 << 16, 1}, false, false, false}, folder);
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  sl_status status = sl_runtime_create(plan, &(sl_runtime_options){.workers = 1}, &rt);
  CHECK(status, "%s: it was taken", folder);
  CHECK(strstr(sl_detail(), "device cpu:0, disk memory: ") && strstr(sl_detail(), why), "%s",
        sl_detail());
  sl_plan_destroy(plan);
}

int main(void) {
  struct statfs folder;
  if (!statfs(".", &folder) && folder.f_type == TMPFS_MAGIC) {
    printf("skipped: the tests' folder lies in memory\n");
    return 77;
  }
  RUN(slots_are_whole_pages);
  RUN(slots_are_read_and_written);
  RUN(a_trace_shows_the_devices_memory);
  for (int plain = 0; plain < 2; plain++) {
    setenv("SLUICE_DISK", plain ? "plain" : "", 1);
    RUN(what_comes_back_is_what_went);
    RUN(only_what_is_valid_goes);
    RUN(no_race_shows);
    RUN(what_breaks_ends_the_run);
  }
  RUN(check_refused, "/there/is/none", 16, "folder /there/is/none: No such file or directory");
  RUN(check_refused, ".", 1 << 28, "no room for ");
  return 0;
}
