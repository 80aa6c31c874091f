/* SPDX-License-Identifier: Apache-2.0 */
/* Reads behind a queue: when a number has passed, all sure reads up to it have filled their slots,
 * whatever was guessed, made sure or dropped meanwhile. Guesses that are dropped write nothing
 * after a later read of their slot.
 * labels: random */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sluice/program.h>

#include "base/base.h"
#include "kernels/disk/reads.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { PARTS = 12, SLOTS = 5, PIECES = 2, MOST = 3 << 19 /* longer than a piece of a guess */ };

static uint64_t state;
static int any(int most) { /* from 0 to most */
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int)((state >> 33) % (uint64_t)(most + 1));
}

/* A slot: the part that it holds or waits for, and the read that fills it. */
typedef struct slot {
  int part; /* -1: none */
  uint64_t number, mark;
} slot;

typedef struct bench {
  sli_disk_reads *reads;
  char *disk, *memory;
  size_t bytes; /* of a piece */
  slot slots[SLOTS];
  uint64_t guessed_bytes;
} bench;

static char byte_of(int part, size_t i) { return (char)(31 * part + (int)(i % 251)); }

static void make(bench *b) {
  void *memory;
  b->bytes = (size_t)(any(1) ? 4096 * (1 + any(MOST / 4096 - 1)) : 1 + any(9000));
  size_t part = PIECES * b->bytes;
  CHECK(!sl_memory_disk.create(&(sl_memory_config){.path = "."}, PARTS * part, &memory), "%s",
        sl_detail());
  b->disk = memory;
  char *values = sli_calloc(1, part);
  for (int p = 0; p < PARTS; p++) {
    for (size_t i = 0; i < part; i++) values[i] = byte_of(p, i);
    CHECK(!sl_memory_disk.copy(b->disk + (size_t)p * part, values, part), "%s", sl_detail());
  }
  free(values);
  b->memory = aligned_alloc(4096, (SLOTS * part + 4095) / 4096 * 4096);
  for (int s = 0; s < SLOTS; s++) b->slots[s] = (slot){.part = -1};
  b->reads = sli_disk_reads_open((sli_disk_far){0});
}

static void list(const bench *b, int s, int part, sli_disk_way *ways) {
  size_t all = PIECES * b->bytes;
  for (size_t i = 0; i < PIECES; i++)
    ways[i] = sli_disk_way_of(b->memory + (size_t)s * all + i * b->bytes,
                              b->disk + (size_t)part * all + i * b->bytes, b->bytes);
}

static void ask(bench *b, int s) {
  sli_disk_way ways[PIECES];
  slot *x = &b->slots[s];
  if (x->mark) return;
  list(b, s, x->part = any(PARTS - 1), ways);
  x->number = sli_disk_reads_ask(b->reads, ways, PIECES);
}

static void guess(bench *b, int s) {
  sli_disk_way ways[PIECES];
  slot *x = &b->slots[s];
  if (x->mark) return;
  list(b, s, x->part = any(PARTS - 1), ways);
  x->mark = sli_disk_reads_guess(b->reads, ways, PIECES, &b->guessed_bytes);
}

static void settle(bench *b, int s) {
  slot *x = &b->slots[s];
  bool there, wanted = any(1);
  if (!x->mark) return;
  x->number = sli_disk_reads_settle(b->reads, x->mark, wanted, &there);
  if (!wanted && !there) x->part = -1;
  x->mark = 0;
}

static void check(const bench *b) {
  uint64_t passed = sli_disk_reads_passed(b->reads);
  size_t all = PIECES * b->bytes;
  CHECK(!sli_disk_reads_failure(b->reads), "%s", sli_disk_reads_failure(b->reads));
  for (int s = 0; s < SLOTS; s++) {
    const slot *x = &b->slots[s];
    if (x->part < 0 || x->mark || x->number > passed) continue;
    for (size_t i = 0; i < all; i += i % 4096 ? 1 : 509)
      CHECK(b->memory[(size_t)s * all + i] == byte_of(x->part, i),
            "slot %d: byte %zu is not that of part %d, but read %llu has passed", s, i, x->part,
            (unsigned long long)x->number);
  }
}

static void run(uint64_t seed) {
  state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
  bench b = {0};
  make(&b);
  for (int turn = 0; turn < 60; turn++) {
    int s = any(SLOTS - 1), what = any(4);
    if (what < 2) guess(&b, s);
    else if (what < 4) settle(&b, s);
    else ask(&b, s);
    if (!any(3)) usleep((unsigned)any(300));
    check(&b);
  }
  for (int s = 0; s < SLOTS; s++) settle(&b, s);
  uint64_t last = 0;
  for (int s = 0; s < SLOTS; s++) last = SLI_MAX(last, b.slots[s].number);
  while (sli_disk_reads_passed(b.reads) < last) usleep(10);
  check(&b);
  sli_disk_reads_close(b.reads);
  sl_memory_disk.destroy(b.disk, PARTS * PIECES * b.bytes);
  free(b.memory);
}

static void numbers_pass_when_slots_are_filled(seeds s) {
  for (uint64_t seed = s.first; seed < s.end; seed++) run(seed);
  printf("%llu seeds from %llu on\n", (unsigned long long)seeds_count(s),
         (unsigned long long)s.first);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 30);
  RUN(numbers_pass_when_slots_are_filled, s);
  return 0;
}
