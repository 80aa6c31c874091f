/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that the order in which processes issued NCCL operations cannot deadlock.
 *
 *     nccl_order RECORD...
 *
 * Each RECORD lists what one process issued, a line for each operation, tab-separated:
 *
 *     communicator rank device kind peer bytes sequence thread stream under_way
 *
 * The kinds are send and recv, and those of collectives (reduce, scatter, gather, part, broadcast,
 * swap), whose peer is the number of ranks. The conditions are: the sequence numbers of each end
 * count from 1. Send k meets a receive k of the same size; collective k meets one of its kind and
 * size on every other rank. An
 * end is used by one thread, which may hand over to another for good. No end uses two streams. No
 * operation is issued while another one of its end is in progress. Operations do not wait in a
 * circle: each waits for the one before it in its stream, at all ends. Prints the first violation
 * and exits with 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

typedef struct operation {
  char *communicator, *stream, kind[12];
  int process, rank, device, peer, under_way;
  size_t bytes;
  unsigned long long sequence;
  long thread;
  int before; /* the previous one in its stream, or -1 if none */
} operation;

static operation *all;
static size_t count, capacity;

static void wrong(const operation *o, const char *text) {
  printf("%s %llu of %zu bytes, rank %d of %s, process %d: %s\n", o->kind, o->sequence, o->bytes,
         o->rank, o->communicator, o->process, text);
  exit(1);
}

static void read_record(const char *path, int process) {
  FILE *file = fopen(path, "r");
  operation o = {.process = process};
  if (!file) perror(path), exit(2);
  while (fscanf(file, "%ms %d %d %11s %d %zu %llu %ld %ms %d\n", &o.communicator, &o.rank,
                &o.device, o.kind, &o.peer, &o.bytes, &o.sequence, &o.thread, &o.stream,
                &o.under_way) == 10) {
    SLI_GROW(all, count, capacity);
    all[count++] = o;
  }
  if (!feof(file)) fprintf(stderr, "%s: line %zu cannot be read\n", path, count + 1), exit(2);
  fclose(file);
}

static bool is_same_end(const operation *a, const operation *b) {
  return a->process == b->process && a->rank == b->rank &&
         !strcmp(a->communicator, b->communicator);
}

/* Direction in which operations of an end are counted: sent, received, or collective. */
static int way_of(const operation *o) {
  return !strcmp(o->kind, "send") ? 0 : !strcmp(o->kind, "recv") ? 1 : 2;
}

/* True if `p` is the operation at another end that `o` waits for, whatever its size. */
static bool meets(const operation *o, const operation *p) {
  bool same = !strcmp(p->communicator, o->communicator) && p->sequence == o->sequence;
  if (way_of(o) == 2) return same && way_of(p) == 2 && p->rank != o->rank;
  return same && way_of(p) == 1 - way_of(o) && p->rank == o->peer && p->peer == o->rank;
}

/* Checks that a thread issues nothing at an end after handing over. */
static void check_threads(void) {
  for (size_t i = 0; i < count; i++) {
    bool changed = false; /* since an operation of this thread, another has issued */
    for (size_t k = i + 1; k < count; k++) {
      if (!is_same_end(&all[i], &all[k])) continue;
      changed |= all[k].thread != all[i].thread;
      if (changed && all[k].thread == all[i].thread) wrong(&all[k], "two threads issue");
    }
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
      before += way_of(&all[k]) == way_of(o);
    }
    if (o->sequence != before + 1) wrong(o, "not the next number");
    if (o->under_way) wrong(o, "issued while another one was under way");
  }
}

/* Checks that each operation meets one at each other end. */
static void match(void) {
  for (size_t i = 0; i < count; i++) {
    const operation *o = &all[i];
    int met = 0, ends = way_of(o) == 2 ? o->peer - 1 : 1;
    for (size_t k = 0; k < count; k++) {
      if (!meets(o, &all[k])) continue;
      met++;
      if (all[k].bytes != o->bytes) wrong(o, "it meets one of another size");
      if (way_of(o) == 2 && strcmp(all[k].kind, o->kind)) wrong(o, "it meets one of another kind");
    }
    if (met < ends) wrong(o, "nobody meets it");
  }
}

/* True if everything before an operation in its stream is complete. */
static bool is_first(const operation *o, const bool *complete) {
  return o->before < 0 || complete[o->before];
}

/* Checks for circular waits. Operations that meet complete together, after those before them in
 * their streams; the rest waits in a circle. */
static void check_waits(void) {
  bool *complete = sli_calloc(count, sizeof *complete);
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < count; i++) {
      bool due = !complete[i] && is_first(&all[i], complete);
      for (size_t k = 0; due && k < count; k++)
        due = !meets(&all[i], &all[k]) || complete[k] || is_first(&all[k], complete);
      if (due) complete[i] = more = true;
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
