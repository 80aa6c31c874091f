/* SPDX-License-Identifier: Apache-2.0 */
/* Tests disk memory and the queue that copies to and from it: data of any length at any offset
 * comes back unchanged, and neighbouring bytes stay intact. */
#include <sluice/ops.h>
#include <sluice/program.h>

#include <linux/magic.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/rng.h"
#include "tests/support/nameless.h"
#include "tests/support/test.h"

enum { SLOTS = 100, PAGE = 4096, MOST = 4 * PAGE, BIG = 5 << 20, BYTES = SLOTS * MOST + BIG };

static const char *folder = ".";

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

/* Copies of n floats each, from base 0 to base 1 + c. */
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
  c->calls[n] = (sl_program_call){.op = &sl_op_copy,
                                  .name = "act.b",
                                  .nin = 1,
                                  .nout = 1,
                                  .in_type = &c->types[n],
                                  .out_type = &c->types[n],
                                  .in = &c->in[n],
                                  .out = &c->out[n]};
  c->program.calls = c->calls;
  c->program.nbases = 2;
}

static bool run(void *queue, copies *c, void *to, void *from) {
  uint64_t fence;
  CHECK(!sl_queue_disk.prepare(&c->program, 0), "%s", sl_detail());
  c->bases[0] = from, c->bases[1] = to;
  sl_firing firing = {
      .tick = {.step = 3, .microbatch = 1}, .name = "spill", .bases = c->bases, .first = c->first};
  bool complete = sl_queue_disk.launch(queue, &c->program, &firing, 0, 0, &fence);
  sl_queue_disk.release(&c->program);
  return complete;
}

typedef struct both {
  char *disk, *memory;
  char *want, *poison; /* the expected disk contents; the bytes that no copy wrote */
  void *queue;
} both;

/* Picks a random range: any number of bytes, or whole pages. */
static size_t pick(rng *d, size_t *bytes) {
  bool whole = rng_below(d, 4) > 0;
  size_t unit = whole ? PAGE : 4, slot = rng_below(d, SLOTS);
  size_t at = rng_below(d, (uint32_t)(MOST / unit)) * unit;
  *bytes = (1 + rng_below(d, (uint32_t)((MOST - at) / unit))) * unit;
  if (rng_below(d, 20) == 0)
    at = 0, slot = SLOTS, *bytes = rng_below(d, BIG / PAGE - 1) * PAGE + unit;
  return slot * MOST + at;
}

static void fill(rng *d, char *memory, size_t bytes) {
  uint32_t seed = rng_below(d, UINT32_MAX);
  for (size_t i = 0; i < bytes; i++) memory[i] = (char)((seed += 2654435761u) >> 24);
}

static void write_some(both *b, rng *d) {
  copies c = {0};
  size_t at[CALLS], bytes;
  int n = 1 + (int)rng_below(d, CALLS);
  for (int i = 0; i < n; i++) {
    at[i] = pick(d, &bytes);
    fill(d, b->memory + at[i], bytes);
    add_copy(&c, at[i], at[i], bytes);
  }
  CHECK(run(b->queue, &c, b->disk, b->memory), "%s", sl_queue_disk.failure(b->queue));
  for (int i = 0; i < n; i++) /* later copies overwrite earlier ones */
    memcpy(b->want + at[i], b->memory + at[i], (size_t)c.types[i].dim[0] * 4);
}

static void read_some(both *b, rng *d) {
  copies c = {0};
  size_t at[CALLS], bytes[CALLS];
  int n = 1 + (int)rng_below(d, CALLS);
  memset(b->memory, 0x5a, BYTES);
  for (int i = 0; i < n; i++) {
    at[i] = pick(d, &bytes[i]);
    add_copy(&c, at[i], at[i], bytes[i]);
  }
  CHECK(run(b->queue, &c, b->memory, b->disk), "%s", sl_queue_disk.failure(b->queue));
  for (int i = 0; i < n; i++)
    CHECK(!memcmp(b->memory + at[i], b->want + at[i], bytes[i]), "%zu bytes at %zu came otherwise",
          bytes[i], at[i]);
  for (int i = 0; i < n; i++) memset(b->memory + at[i], 0x5a, bytes[i]);
  CHECK(!memcmp(b->memory, b->poison, BYTES), "what was not asked for was touched");
}

static void check_round_trips(const char *how, int times) {
  setenv("SLUICE_DISK", how, 1);
  rng d = {.key = 7};
  both b = {.disk = disk_create(BYTES),
            .queue = queue_open(),
            .want = calloc(1, BYTES),
            .poison = malloc(BYTES)};
  b.memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(b.poison, 0x5a, BYTES);
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
  free(b.poison);
}

/* ---- copies without the queue ---------------------------------------------------------- */

/* Copies within disk memory, and between host memories. */
static void check_copies_within(void) {
  static char data[3 * PAGE], back[3 * PAGE];
  rng d = {.key = 9};
  void *queue = queue_open();
  char *a = disk_create(8 * PAGE), *b = disk_create(8 * PAGE);
  fill(&d, data, sizeof data);
  CHECK(!sl_memory_disk.copy(a + 100, data, sizeof data), "%s", sl_detail());
  copies c = {0};
  add_copy(&c, PAGE, 100, sizeof data);
  CHECK(run(queue, &c, b, a), "%s", sl_queue_disk.failure(queue));
  CHECK(!sl_memory_disk.copy(back, b + PAGE, sizeof back), "%s", sl_detail());
  CHECK(!memcmp(data, back, sizeof data), "from disk to disk it came otherwise");
  memset(back, 0, sizeof back);
  CHECK(!sl_memory_disk.copy(back, data, sizeof back), "%s", sl_detail());
  CHECK(!memcmp(data, back, sizeof data), "from memory to memory it came otherwise");
  sl_queue_disk.close(queue);
  sl_memory_disk.destroy(a, 8 * PAGE);
  sl_memory_disk.destroy(b, 8 * PAGE);
}

static void check_fresh_is_zero(void) {
  static char back[2 * PAGE], zero[2 * PAGE];
  char *memory = disk_create(100);
  CHECK(!sl_memory_disk.copy(back, memory, 100), "%s", sl_detail());
  CHECK(!memcmp(back, zero, sizeof back), "new memory on disk is not zero");
  sl_memory_disk.destroy(memory, 100);
  sl_memory_disk.destroy(NULL, 0);
}

static void check_refuses(sl_program_call call, const char *what) {
  sl_program program = {.ncalls = 1, .calls = &call};
  CHECK(sl_queue_disk.prepare(&program, 0) == SL_E_UNSUPPORTED, "%s", sl_detail());
  CHECK(strstr(sl_detail(), what), "%s", sl_detail());
}

static void only_copies_run_there(void) {
  sl_type f32 = {.dtype = SL_F32, .ndim = 1, .dim = {4}},
          bf16 = {.dtype = SL_BF16, .ndim = 1, .dim = {4}};
  sl_program_call call = {.op = &sl_op_copy,
                          .name = "x",
                          .nin = 1,
                          .nout = 1,
                          .in_type = &f32,
                          .out_type = &f32},
                  other = call;
  sl_program program = {.ncalls = 1, .calls = &call};
  CHECK(!sl_queue_disk.prepare(&program, 0), "%s", sl_detail());
  other.op = &sl_op_gelu;
  check_refuses(other, "op x (gelu)");
  other = call, other.accumulate = 1;
  check_refuses(other, "op x (copy)");
  other = call, other.accumulate_span = 1;
  check_refuses(other, "op x (copy)");
  other = call, other.out_type = &bf16;
  check_refuses(other, "op x (copy)");
}

/* ---- errors ---------------------------------------------------------------------------- */

static void check_says(sl_status got, sl_status want, const char *a, const char *b) {
  CHECK(got == want, "%s: %s", sl_status_text(got), sl_detail());
  CHECK(strstr(sl_detail(), a) && strstr(sl_detail(), b), "no \"%s\" or \"%s\" in: %s", a, b,
        sl_detail());
}

static sl_status create(const char *path, size_t bytes) {
  void *memory;
  return sl_memory_disk.create(&(sl_memory_config){.path = path}, bytes, &memory);
}

static void a_full_disk_is_named(void) {
  check_says(create(".", (size_t)1 << 60), SL_E_MEMORY,
             "no room for 1048576 TiB in .: ", " are available");
  struct rlimit had, little;
  CHECK(!getrlimit(RLIMIT_FSIZE, &had), "no limits");
  little = had, little.rlim_cur = 1 << 20;
  CHECK(!setrlimit(RLIMIT_FSIZE, &little), "no limit can be set");
  check_says(create(".", 3 << 20), SL_E_MEMORY, "no room for 3.0 MiB in .: 1.0 MiB", "ulimit -f");
  CHECK(!setrlimit(RLIMIT_FSIZE, &had), "the limit stays");
}

static bool lies_in_memory(const char *path) {
  struct statfs s;
  return !statfs(path, &s) && s.f_type == TMPFS_MAGIC;
}

static void a_wrong_folder_is_named(void) {
  check_says(create("/there/is/none", PAGE), SL_E_INPUT, "/there/is/none", "No such file");
  check_says(create("/dev/null", PAGE), SL_E_INPUT, "/dev/null", "Not a directory");
  if (lies_in_memory("/dev/shm"))
    check_says(create("/dev/shm", PAGE), SL_E_INPUT, "/dev/shm is in memory", "tmpfs");
  CHECK(!setenv("TMPDIR", "/there/is/none", 1), "no environment");
  check_says(create(NULL, PAGE), SL_E_INPUT, "/there/is/none", "No such file");
  unsetenv("TMPDIR");
}

/* Replaces the file by one that fails. */
static void check_breaks(const char *how, const char *other, bool out, const char *why) {
  setenv("SLUICE_DISK", how, 1);
  copies c = {0};
  char *disk = disk_create(64 * PAGE), *memory = aligned_alloc(PAGE, 64 * PAGE);
  void *queue = queue_open();
  memset(memory, 1, 64 * PAGE);
  nameless_replace(other);
  add_copy(&c, 8 * PAGE, 8 * PAGE, 2 * PAGE);
  add_copy(&c, 32 * PAGE, 32 * PAGE, PAGE);
  CHECK(!run(queue, &c, out ? disk : memory, out ? memory : disk), "%s: it broke unseen", other);
  const char *text = sl_queue_disk.failure(queue), *verb = out ? "writing" : "reading";
  CHECK(text && strstr(text, "step 3, microbatch 1: ") && strstr(text, verb) && strstr(text, why) &&
            strstr(text, " act.b: ") && strstr(text, " of a file in ."),
        "%s: %s", other, text);
  CHECK(!run(queue, &c, disk, memory), "it goes on after a failure");
  CHECK(sl_memory_disk.copy(out ? disk : memory, out ? memory : disk, 100) == SL_E_IO,
        "a copy broke unseen");
  sl_queue_disk.close(queue);
  sl_memory_disk.destroy(disk, 64 * PAGE);
  free(memory);
}

static void what_breaks_is_named(const char *how) {
  check_breaks(how, "/proc/self/mem", false, "Input/output error");
  check_breaks(how, "/proc/self/mem", true, "Input/output error");
  check_breaks(how, "/dev/full", true, "No space left on device");
  check_breaks(how, "/dev/null", false, "unexpected end of file");
}

/* Bits that flip on disk are found when they are read, by the ring, by single transfers, and by
 * those of parts of pages. */
static void flipped_bits_are_found(const char *how) {
  enum { PAGES = 300 }; /* more than one piece of the ring */
  static _Alignas(PAGE) char data[PAGES * PAGE];
  setenv("SLUICE_DISK", how, 1);
  char *disk = disk_create(2 * sizeof data);
  copies c = {0};
  void *queue = queue_open();
  add_copy(&c, 0, 0, sizeof data);
  CHECK(run(queue, &c, disk, data) && run(queue, &c, data, disk), "%s",
        sl_queue_disk.failure(queue));
  nameless_flip();
  CHECK(!run(queue, &c, data, disk), "%s: flipped bits are read", how);
  CHECK(strstr(sl_queue_disk.failure(queue), "act.b: the page at 0 of a file in . is damaged"),
        "%s", sl_queue_disk.failure(queue));
  CHECK(sl_memory_disk.copy(data, disk + 3 * PAGE + 8, 100) == SL_E_IO, "%s: part of a page", how);
  CHECK(sl_memory_disk.copy(disk + 10, data, 100) == SL_E_IO, "%s: a page around it", how);
  CHECK(!sl_memory_disk.copy(disk, data, PAGE) && !sl_memory_disk.copy(data, disk, PAGE),
        "%s: a page written anew", how);
  sl_queue_disk.close(queue);
  sl_memory_disk.destroy(disk, 2 * sizeof data);
}

/* ---- traces left behind ---------------------------------------------------------------- */

static void write_all(const char *how, char *disk) {
  static _Alignas(PAGE) char data[64 * PAGE];
  setenv("SLUICE_DISK", how, 1);
  copies c = {0};
  void *queue = queue_open();
  add_copy(&c, 0, 0, sizeof data);
  CHECK(run(queue, &c, disk, data), "%s", sl_queue_disk.failure(queue));
  CHECK(run(queue, &c, data, disk), "%s", sl_queue_disk.failure(queue));
  CHECK(!sl_memory_disk.copy(disk + 10, data, 1000), "%s", sl_detail());
  sl_queue_disk.close(queue);
}

enum { SEEN = 64 }; /* pages */

static int count_cached(char *seen) {
  unsigned char in_core[SEEN];
  CHECK(!mincore(seen, SEEN * PAGE, in_core), "the page cache is not seen");
  int cached = 0;
  for (int i = 0; i < SEEN; i++) cached += in_core[i] & 1;
  return cached;
}

/* Nothing read or written stays in the page cache. This is checked only if the unwritten file shows
 * no cached pages. */
static void the_page_cache_stays_empty(const char *how) {
  setenv("SLUICE_DISK", how, 1);
  char *disk = disk_create(SEEN * PAGE);
  char *seen = mmap(NULL, SEEN * PAGE, PROT_READ, MAP_SHARED, nameless_number(), 0);
  CHECK(seen != MAP_FAILED, "the file cannot be mapped");
  bool sees = !count_cached(seen);
  write_all(how, disk);
  CHECK(!sees || !count_cached(seen), "%s: %d pages of %d stay in the page cache", how,
        count_cached(seen), SEEN);
  munmap(seen, SEEN * PAGE);
  sl_memory_disk.destroy(disk, SEEN * PAGE);
}

/* No file is left, however a process ends. */
static void a_kill_leaves_no_file(const char *how) {
  char path[] = "./disk-XXXXXX";
  CHECK(mkdtemp(path), "no folder");
  setenv("SLUICE_DISK", how, 1);
  pid_t child = fork();
  if (!child) {
    folder = path;
    write_all(how, disk_create(64 * PAGE));
    raise(SIGKILL);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status), "the child was not killed");
  CHECK(!rmdir(path), "%s: the killed process left a file in %s", how, path);
}

/* An address in disk memory only counts positions: reading through it faults. */
static void an_address_is_no_memory(void) {
  char *disk = disk_create(PAGE);
  pid_t child = fork();
  if (!child) {
    signal(SIGSEGV, SIG_DFL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    _exit(*(volatile char *)disk);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status), "disk memory was read");
  sl_memory_disk.destroy(disk, PAGE);
}

int main(void) {
  static const char *const ways[] = {"", "plain", "cached", "plain cached", "named"};
  if (lies_in_memory(".")) {
    printf("skipped: the tests' folder lies in memory\n");
    return 77;
  }
  RUN(only_copies_run_there);
  RUN(a_full_disk_is_named);
  RUN(a_wrong_folder_is_named);
  RUN(an_address_is_no_memory);
  for (int i = 0; i < 5; i++) {
    RUN(check_round_trips, ways[i], i < 2 ? 60 : 16);
    RUN(check_fresh_is_zero);
    RUN(check_copies_within);
    RUN(what_breaks_is_named, ways[i]);
    RUN(flipped_bits_are_found, ways[i]);
    RUN(the_page_cache_stays_empty, ways[i]);
    RUN(a_kill_leaves_no_file, ways[i]);
  }
  return 0;
}
