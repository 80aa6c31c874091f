/* Memory on disk and the queue that copies to and from there: what comes back is what went, at
 * any place and of any length, and nothing beside it changes. */
#include <sluice/ops.h>
#include <sluice/program.h>

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/support/dice.h"
#include "tests/support/test.h"

enum { SLOTS = 100, PAGE = 4096, MOST = 4 * PAGE, BIG = 5 << 20, BYTES = SLOTS * MOST + BIG };

static char *folder; /* NULL: the usual one */

static char *disk_create(size_t bytes) {
  void *memory;
  CHECK(!sl_memory_disk.create(&(sl_memory_config){.path = folder}, bytes, &memory), "%s",
        sl_detail());
  return memory;
}

static void *queue_open(void) {
  void *queue;
  CHECK(!sl_queue_disk.open(&(sl_queue_config){.threads = 1}, &queue), "%s", sl_detail());
  return queue;
}

/* Copies n of so many floats each, from base 0 to base 1 + c. */
enum { CALLS = 3 };
typedef struct copies {
  sl_program program;
  sl_program_call calls[CALLS];
  sl_type types[CALLS];
  sl_place in[CALLS], out[CALLS];
  void *bases[2];
  uint8_t first[2];
} copies;

static void add_copy(copies *c, size_t to, size_t from, size_t bytes) {
  int n = c->program.ncalls++;
  c->types[n] = (sl_type){.dtype = SL_F32, .ndim = 1, .dim = {(int64_t)bytes / 4}};
  c->in[n] = (sl_place){0, from};
  c->out[n] = (sl_place){1, to};
  c->calls[n] = (sl_program_call){.op = &sl_op_copy, .name = "act.b", .nin = 1, .nout = 1,
                                  .in_type = &c->types[n], .out_type = &c->types[n],
                                  .in = &c->in[n], .out = &c->out[n]};
  c->program.calls = c->calls;
  c->program.nbases = 2;
}

static bool run(void *queue, copies *c, void *to, void *from) {
  uint64_t fence;
  CHECK(!sl_queue_disk.prepare(&c->program, 0), "%s", sl_detail());
  c->bases[0] = from, c->bases[1] = to;
  sl_firing firing = {.tick = {.step = 3, .microbatch = 1}, .name = "spill", .bases = c->bases,
                      .first = c->first};
  bool complete = sl_queue_disk.launch(queue, &c->program, &firing, 0, 0, &fence);
  sl_queue_disk.release(&c->program);
  return complete;
}

typedef struct both {
  char *disk, *want, *memory; /* what should be there, and what is copied from and to */
  void *queue;
} both;

/* A piece of it all: of any bytes, or of whole pages. */
static size_t pick(dice *d, size_t *bytes) {
  bool whole = roll(d, 4) > 0;
  size_t unit = whole ? PAGE : 4, slot = roll(d, SLOTS);
  size_t at = roll(d, (uint32_t)(MOST / unit)) * unit;
  *bytes = (1 + roll(d, (uint32_t)((MOST - at) / unit))) * unit;
  if (roll(d, 20) == 0) at = 0, slot = SLOTS, *bytes = roll(d, BIG / PAGE - 1) * PAGE + unit;
  return slot * MOST + at;
}

static void fill(dice *d, char *memory, size_t bytes) {
  uint32_t seed = roll(d, UINT32_MAX);
  for (size_t i = 0; i < bytes; i++) memory[i] = (char)((seed += 2654435761u) >> 24);
}

static void write_some(both *b, dice *d) {
  copies c = {0};
  size_t at[CALLS], bytes;
  int n = 1 + (int)roll(d, CALLS);
  for (int i = 0; i < n; i++) {
    at[i] = pick(d, &bytes);
    fill(d, b->memory + at[i], bytes);
    add_copy(&c, at[i], at[i], bytes);
  }
  CHECK(run(b->queue, &c, b->disk, b->memory), "%s", sl_queue_disk.failure(b->queue));
  for (int i = 0; i < n; i++) /* those before have what is written over them */
    memcpy(b->want + at[i], b->memory + at[i], (size_t)c.types[i].dim[0] * 4);
}

static void read_some(both *b, dice *d) {
  copies c = {0};
  size_t bytes, at = pick(d, &bytes), end = at + bytes;
  memset(b->memory, 0x5a, BYTES);
  add_copy(&c, at, at, bytes);
  CHECK(run(b->queue, &c, b->memory, b->disk), "%s", sl_queue_disk.failure(b->queue));
  CHECK(!memcmp(b->memory + at, b->want + at, bytes), "%zu bytes at %zu came otherwise", bytes, at);
  for (size_t i = 0; i < BYTES; i++)
    CHECK((i >= at && i < end) || b->memory[i] == 0x5a, "byte %zu was touched", i);
}

static void check_round_trips(const char *how, int times) {
  setenv("SLUICE_DISK", how, 1);
  dice d = {.key = 7};
  both b = {.disk = disk_create(BYTES), .want = calloc(1, BYTES), .queue = queue_open()};
  b.memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < times; i++) {
    write_some(&b, &d);
    if (i % 8 == 0) read_some(&b, &d);
  }
  CHECK(!sl_memory_disk.copy(b.memory, b.disk, BYTES), "%s", sl_detail());
  CHECK(!memcmp(b.memory, b.want, BYTES), "%s: what was written is not what is there", how);
  sl_queue_disk.close(b.queue);
  sl_memory_disk.destroy(b.disk, BYTES);
  munmap(b.memory, BYTES);
  free(b.want);
}

int main(void) {
  static const char *const ways[] = {"", "plain", "cached", "plain cached"};
  for (int i = 0; i < 4; i++) check_round_trips(ways[i], 100);
  return 0;
}
