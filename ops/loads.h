/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which the parts of experts are loaded, and the slots that take them.
 *
 * A tick has rows for each expert and level. Firing by firing, sli_loads_next() says which parts to
 * read into which slots, and which rows can then be computed. The first firing computes what is in
 * memory, and begins to read as much as has free slots; the next ones compute what comes, in the
 * order of the reads. Parts are read in the order HEBF: of
 * each expert's lowest missing level, the one that most rows want (ties: lowest expert). An expert
 * is begun only if all parts that its rows want fit beside those of the experts already begun and
 * of what is lent, so every tick ends with any number of slots from sli_expert_least_slots() on.
 * The part that loses its slot is the one wanted in the fewest ticks of late.
 *
 * Before a tick's rows are known, sli_loads_guess() may plan reads of what they will probably want.
 * They take slots that are not lent and hold nothing of what is guessed. Guesses of parts that are
 * not held are compared with what ticks want, and are read only while at least half of them are
 * right. */
#ifndef SLUICE_OPS_LOADS_H
#define SLUICE_OPS_LOADS_H

#include "ops/expert_loads.h"

/* A part to read. */
typedef struct sli_load {
  int32_t expert, part, slot;
} sli_load;

typedef struct sli_part_loads {
  const sli_expert_loads *shape;
  struct sli_loads_state {
    int64_t tick;    /* 1 + the tick's number; 0: none yet */
    int64_t firing;  /* all firings so far */
    int64_t guessed; /* 1 + the number of the last tick that was guessed; 0: none yet */
    int32_t nth;     /* firings of the tick so far */
    int32_t waiting; /* loads left in this tick */
    int32_t asked;   /* parts that come during this tick: asked for so far ... */
    int32_t arrived; /* ... and those of them that firings so far could compute */
    float doubt;     /* mean of recent guesses that were wrong */
  } * state;
  int32_t *slot_of; /* [experts][parts] 1 + slot; 0: not held */
  int32_t *part_in; /* [slots] 1 + expert * parts + part; 0: empty */
  int64_t *lent;    /* [slots] the last firing that used it */
  float *heat;      /* [experts][parts] fraction of recent ticks that wanted it */
  int32_t *rows;    /* [experts][levels] rows left to compute */
  int32_t *most;    /* [experts] parts wanted in this tick */
  int32_t *begun;   /* [experts] 1: a part was read for it in this tick, and rows are left */
  int32_t *hoped;   /* [experts][parts] 1: guessed for this tick, and not held before */
  int32_t *late;    /* [slots] which of the parts that come during this tick, from 1 on; 0: none */
  uint64_t *read; /* [slots] the loader's: number of the read that fills it; of a guess: its mark */
} sli_part_loads;

/* Returns a view of zeroed memory of sli_loads_bytes(). */
sli_part_loads sli_loads_view(const sli_expert_loads *shape, void *memory);
/* Plans reads for the next tick, for which rows[experts][levels] are guessed. Fills loads[slots]
 * and returns their number. */
int sli_loads_guess(sli_part_loads *x, int64_t tick, const int32_t *rows, sli_load *loads);
/* True if the tick's rows want what a slot holds. */
bool sli_loads_wants(const sli_part_loads *x, int32_t slot);
/* Forgets what a slot holds: a guess that was wrong, and has not been read to its end. */
void sli_loads_forget(sli_part_loads *x, int32_t slot);
/* Begins a tick with rows[experts][levels]. Returns the number of parts that it wants. */
int64_t sli_loads_begin(sli_part_loads *x, int64_t tick, const int32_t *rows);
/* Plans the next firing. Fills loads[slots], and items[experts * levels][2] with experts and levels
 * whose rows are computed; returns the numbers of both. */
int sli_loads_next(sli_part_loads *x, sli_load *loads, int32_t (*items)[2], int *nitems);

#endif
