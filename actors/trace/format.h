/* SPDX-License-Identifier: Apache-2.0 */
/* The trace file, version 4. All numbers little-endian.
 *
 *     head      struct head, 64 bytes: magic, version, sizes, facts of the run
 *     sections  head.nsections times struct section: the section table
 *     data      each section an array of equal items
 *
 * There is a section of strings (bytes, each string ended by a zero), one for each part of the plan
 * (devices, queues, pools, registers, actors, ports, maps and their entries), one of steps, and the
 * firings; names are offsets into the strings. The firings come last, except for optional sections.
 * A file cut short, for example by a full disk during a copy, loses only its newest firings.
 *
 * A section gives the size of its items. Later files may have longer items and more sections: a
 * reader uses the part of an item that it knows and skips unknown sections. Any other change
 * increments the version.
 *
 * Readers check everything. The head has a checksum of itself and the section table; each section
 * has a hash of its bytes. Every offset is within the file, every name within the strings, every
 * index within its table, and no count exceeds the file's items. Version 3 is the same without the
 * checksum. */
#ifndef SLUICE_ACTORS_TRACE_FORMAT_H
#define SLUICE_ACTORS_TRACE_FORMAT_H

#include <sluice/trace.h>

#include "base/base.h"

enum { TRACE_OLDEST = 3 }; /* oldest version that can be read */

static const char trace_magic[8] = {'S', 'L', 'T', 'R', 'A', 'C', 'E', '\n'};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is laid out by memcpy");

/*  id           item                name
 * In the order of the file. */
/* clang-format off */
#define SECTION_TABLE(X)                                                       \
  X(STRINGS, char, "strings")                                                  \
  X(DEVICES, struct device_item, "devices")                                    \
  X(QUEUES, struct queue_item, "queues")                                       \
  X(ORDERS, int32_t, "fixed orders")                                           \
  X(POOLS, struct pool_item, "pools")                                          \
  X(MAPS, struct map_item, "maps")                                             \
  X(ENTRIES, struct entry_item, "map entries")                                 \
  X(REGISTERS, struct register_item, "registers")                              \
  X(PORTS, struct port_item, "ports")                                          \
  X(ACTORS, struct actor_item, "actors")                                       \
  X(STEPS, struct step_item, "steps")                                          \
  X(FIRINGS, struct firing_item, "firings")                                    \
  X(CORES, struct cores_item, "time on cores")                                 \
  X(COUNTERS, struct counter_item, "tallies")                                     \
  X(COUNTS, double, "counts")                                                  \
  X(LANES, struct lane_item, "lanes")                                          \
  X(SHARES, struct share_item, "shares")
/* clang-format on */

enum section_id {
  NO_SECTION,
#define X(id, item, name) id,
  SECTION_TABLE(X)
#undef X
      SECTIONS
};

struct head {
  char magic[8];
  uint32_t version, head_bytes;
  uint32_t nsections, section_bytes;
  uint64_t plan_hash;
  uint32_t clock;
  int32_t microbatches, pieces;
  uint32_t checksum; /* hash of the head, with 0 in this field, and of the section table after it */
  int64_t steps;
  uint64_t dropped;
};
_Static_assert(sizeof(struct head) == 64, "no padding");

struct section {
  uint32_t id, item_bytes;
  uint64_t count, offset; /* offset: from the start of the file */
  uint64_t hash;          /* hash of the section's bytes */
};
_Static_assert(sizeof(struct section) == 32, "no padding");

struct device_item {
  uint32_t name, kind;
  int32_t threads;
  uint32_t reserved;
  uint64_t workspace_bytes;
};

struct queue_item {
  uint32_t name, ops; /* "cpu", "timed", ... */
  int32_t device, threads, run_ahead, lazy_w, watermark;
  uint8_t class_order[8];
  int32_t norder;
  uint32_t first_order, apart;
  double look_ahead;
};
_Static_assert(sizeof(struct queue_item) == 56, "no padding");

struct pool_item {
  uint32_t name;
  int32_t quota;
};

struct map_item {
  uint32_t period, first_entry;
  int64_t stride;
};

struct entry_item {
  int32_t offset;
  uint32_t flags;
};

struct register_item {
  uint32_t name, quota_name;
  int32_t quota, pool, kept, initial, held, device;
  uint16_t memory, space;
  int32_t quota_most;
  int32_t shares, over;
  uint64_t slot_bytes;
  double activation;
};
_Static_assert(sizeof(struct register_item) == 64, "no padding");

struct port_item {
  int32_t reg, map;
};

struct actor_item {
  uint32_t name, cls;
  int32_t queue, stage, chunk, ticks, firings_per_step;
  int32_t marks; /* 1: a source, 2: urgent; plus 4 * own_ticks */
  int32_t rank, rank_group, rank_stride, rank_shift;
  int32_t nin, nout;
  uint32_t first_port; /* inputs, then outputs */
  int32_t every;
  double seconds;
};
_Static_assert(sizeof(struct actor_item) == 72, "no padding");

struct step_item {
  int64_t step;
  uint64_t start_ns, end_ns, firings;
};

struct firing_item {
  uint64_t start_ns, end_ns;
  int64_t firing, tick, step;
  int32_t actor, microbatch, piece;
  int32_t reg; /* register that the queue waited for, or SL_NONE */
  uint32_t wait;
  uint32_t rows; /* 1 + valid rows that it filled or read; 0 if unknown or none */
};
_Static_assert(sizeof(struct firing_item) == 64, "no padding");

/* Core time of all workers together: one item, or none if the system did not report it. */
struct cores_item {
  uint64_t ran_ns, coreless_ns;
};

/* A counter. The counts section holds its sums, followed by its values in the last step. */
struct counter_item {
  uint32_t name, n, first, reserved;
};

/* A queue that is a lane of its device. */
struct lane_item {
  int32_t queue;
  uint32_t name;
};

/* Shares of one actor follow each other, tick by tick. */
struct share_item {
  int32_t actor, reserved;
  double part, rate;
};

/* 32-bit checksum of the head and of the section table, which is `bytes` long. Detects any single
 * flipped bit. */
static inline uint32_t trace_checksum(const struct head *head, const void *table, size_t bytes) {
  struct head plain = *head;
  plain.checksum = 0;
  return (uint32_t)sli_hash(sli_hash(SLI_HASH_SEED, &plain, sizeof plain), table, bytes);
}

static const uint32_t item_bytes[SECTIONS] = {
#define X(id, item, name) [id] = sizeof(item),
    SECTION_TABLE(X)
#undef X
};

/* True for sections after the firings, which may be missing or cut off. */
static inline bool section_optional(uint32_t id) { return id > FIRINGS; }

static const char *const section_names[SECTIONS] = {
#define X(id, item, name) [id] = name,
    SECTION_TABLE(X)
#undef X
};

#endif
