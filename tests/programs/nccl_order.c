/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that the order in which processes issued NCCL operations cannot deadlock.
 *
 *     nccl_order RECORD...
 *
 * Each RECORD lists what one process issued, a line for each operation, tab-separated:
 *
 *     communicator rank device kind peer bytes sequence thread stream under_way
 *
 * The conditions are: the sequence numbers of each end count from 1. Send k meets a receive k of
 * the same size. A process issues in one thread, which may hand over to another for good. No end
 * uses two streams. No operation is issued while another one of its communicator is in progress.
 * Operations do not wait in a circle: each waits for the one before it in its stream, at both
 * ends. Prints the first violation and exits with 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

typedef struct operation {
  char *communicator, *stream;
  int process, rank, device, peer, under_way;
  bool sends;
  size_t bytes;
  unsigned long long sequence;
  long thread;
  int partner; /* the operation at the other end */
  int before;  /* the previous one in its stream, or -1 if none */
} operation;

static operation *all;
static size_t count, capacity;

static void wrong(const operation *o, const char *text) {
  printf("%s %llu of %zu bytes, rank %d of %s, process %d: %s\n", o->sends ? "send" : "receive",
         o->sequence, o->bytes, o->rank, o->communicator, o->process, text);
  exit(1);
}

static void read_record(const char *path, int process) {
  FILE *file = fopen(path, "r");
  operation o = {.process = process};
  char kind[8];
  if (!file) perror(path), exit(2);
  while (fscanf(file, "%ms %d %d %7s %d %zu %llu %ld %ms %d\n", &o.communicator, &o.rank, &o.device,
                kind, &o.peer, &o.bytes, &o.sequence, &o.thread, &o.stream, &o.under_way) == 10) {
    o.sends = !strcmp(kind, "send");
    SLI_GROW(all, count, capacity);
    all[count++] = o;
  }
  if (!feof(file)) fprintf(stderr, "%s: line %zu cannot be read\n", path, count + 1), exit(2);
  fclose(file);
}

static bool is_same_end(const operation *a, const operation *b) {
  return a->process == b->process && !strcmp(a->communicator, b->communicator);
}

/* Checks that a thread issues nothing after handing over. */
static void check_threads(void) {
  for (size_t i = 1; i < count; i++) {
    if (all[i].process != all[i - 1].process || all[i].thread == all[i - 1].thread) continue;
    for (size_t k = 0; k + 1 < i; k++)
      if (all[k].process == all[i].process && all[k].thread == all[i].thread)
        wrong(&all[i], "two threads issue");
  }
}

/* Checks the operations of one end: in order, in one stream, one at a time. */
static void check_ends(void) {
  for (size_t i = 0; i < count; i++) {
    operation *o = &all[i];
    unsigned long long before = 0;
    o->before = -1;
    for (size_t k = 0; k < i; k++) {
      if (all[k].process == o->process && !strcmp(all[k].stream, o->stream)) o->before = (int)k;
      if (!is_same_end(&all[k], o)) continue;
      if (strcmp(all[k].stream, o->stream)) wrong(o, "issued in another stream than those before");
      before += all[k].sends == o->sends;
    }
    if (o->sequence != before + 1) wrong(o, "not the next number");
    if (o->under_way) wrong(o, "issued while another one was under way");
  }
}

static void match(void) {
  for (size_t i = 0; i < count; i++) {
    operation *o = &all[i];
    o->partner = -1;
    for (size_t k = 0; k < count; k++) {
      const operation *p = &all[k];
      if (!strcmp(p->communicator, o->communicator) && p->rank == o->peer && p->sends != o->sends &&
          p->peer == o->rank && p->sequence == o->sequence)
        o->partner = (int)k;
    }
    if (o->partner < 0) wrong(o, "nobody meets it");
    if (all[o->partner].bytes != o->bytes) wrong(o, "it meets one of another size");
  }
}

/* Checks for circular waits. Operations complete in pairs, after those before both in their
 * streams; the rest waits in a circle. */
static void check_waits(void) {
  bool *complete = sli_calloc(count, sizeof *complete);
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < count; i++) {
      const operation *o = &all[i], *p = &all[o->partner];
      if (complete[i] || (o->before >= 0 && !complete[o->before]) ||
          (p->before >= 0 && !complete[p->before]))
        continue;
      complete[i] = complete[o->partner] = more = true;
    }
  }
  size_t first = 0;
  while (first < count && complete[first]) first++;
  free(complete);
  if (first < count) wrong(&all[first], "it waits in a circle");
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) read_record(argv[i], i);
  check_threads();
  check_ends();
  match();
  check_waits();
  printf("%zu operations in order\n", count);
  for (size_t i = 0; i < count; i++) free(all[i].communicator), free(all[i].stream);
  free(all);
  return count ? 0 : 1;
}
