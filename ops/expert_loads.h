/* SPDX-License-Identifier: Apache-2.0 */
/* Experts of a served graph whose weights are on disk.
 *
 * Two ops take the place of a mixture's products. `load_experts` runs on the queue of loads: it
 * counts the rows of each expert and reads the parts that they want and that no slot of its cache
 * holds. `loaded_experts` computes the rows. Both fire attrs.experts.firings times in a tick; each
 * firing of the first lends some slots to the same firing of the second, through a register that
 * says which (sli_lent). The register has SLI_LENT slots, so with firing f all that was lent before
 * firing f - SLI_LENT + 1 has been returned, and its slots may be overwritten.
 *
 * With guessed ids as another input, load_experts has one more firing, before those of a tick. It
 * reads the guesses alone, and asks for what they want while earlier layers compute.
 *
 * A part of an expert holds the same piece of its three matrices. Whole experts have one part.
 * Experts in bit planes have `base` parts, which only together are of use, and one part for each
 * further bit: rows of level v need the first base + v parts (ops/planes.h). */
#ifndef SLUICE_OPS_EXPERT_LOADS_H
#define SLUICE_OPS_EXPERT_LOADS_H

#include <sluice/batch.h>
#include <sluice/graph.h>
#include <sluice/op.h>

enum { SLI_LENT = 2, SLI_MATRICES = 3 /* gate, up, down */, SLI_SLOT_MULTIPLE = 4096 };
enum { SLI_LOADS_GUESSED = 2 + SLI_MATRICES }; /* input of load_experts: guessed ids, or none */

/* Sizes that both ops share; attrs.user. */
typedef struct sli_expert_loads {
  int32_t experts, levels, base; /* parts of an expert: base + levels - 1 */
  int32_t wanted;                /* experts that a tick can have rows for, at most */
  int32_t slots, firings;
  double hits;    /* on modelled devices, fraction of the parts wanted that are held */
  bool ascending; /* loads by expert and level instead of by number of rows */
  bool planes;    /* experts in planes; otherwise whole */
  int32_t each;   /* experts of a token */
  sl_type matrix[SLI_MATRICES];     /* an expert's matrices: as stored, or for planes as f32 */
  sl_storage storage[SLI_MATRICES]; /* formats of `matrix` */
  size_t piece_bytes[SLI_MATRICES], part_bytes, slot_bytes;
  sl_expert_reads *reads; /* counters, or NULL */
} sli_expert_loads;

static inline int32_t sli_expert_parts(const sli_expert_loads *x) {
  return x->base + x->levels - 1;
}

/* A computation of rows: those of an expert and a level. `slot` has the expert's parts. */
typedef struct sli_lent_item {
  int32_t expert, level, slot[];
} sli_lent_item;

/* Slot of the register between the ops. */
typedef struct sli_lent {
  int32_t firing, count; /* firing of the tick, from 0; number of items */
  uint64_t cache;        /* address of the cache's first slot */
} sli_lent;

static inline size_t sli_lent_item_bytes(const sli_expert_loads *x) {
  return (size_t)(2 + sli_expert_parts(x)) * sizeof(int32_t);
}
static inline const sli_lent_item *sli_lent_item_at(const sli_expert_loads *x, const sli_lent *lent,
                                                    int i) {
  return (const sli_lent_item *)(const void *)((const char *)(lent + 1) +
                                               (size_t)i * sli_lent_item_bytes(x));
}

/* Returns the level of a row: by `levels`, or if that is NULL by the row's place among those of its
 * token: the most probable expert has the highest level and the least probable the lowest. */
static inline int32_t sli_expert_level(const sli_expert_loads *x, const int32_t *levels,
                                       int64_t row) {
  int32_t top = x->levels - 1, place = (int32_t)(row % x->each), last = x->each - 1;
  int32_t level = levels ? levels[row] : top - (last ? (2 * place * top + last) / (2 * last) : 0);
  return level < 0 ? 0 : level > top ? top : level;
}

/* Returns the slots with which a plan is sure to finish. */
static inline int32_t sli_expert_least_slots(const sli_expert_loads *x) {
  return SLI_LENT * sli_expert_parts(x);
}
/* Returns the whole experts that a firing is sure to be able to compute. */
static inline int32_t sli_expert_each(const sli_expert_loads *x) {
  return x->slots / SLI_LENT / sli_expert_parts(x);
}
/* Sets the firings of a tick that suffice for any choice of experts: one that computes what is held
 * while the first loads wait, SLI_LENT that may find slots lent, and those that finish. */
void sli_expert_loads_settle(sli_expert_loads *x);
/* Returns the bytes of what the loader knows about its slots (loads.h). */
size_t sli_loads_bytes(const sli_expert_loads *x);

/* load_experts(ids, levels, parts..., guessed) -> lent, cache, book. */
extern const sl_op sl_op_load_experts;

#endif
