/* SPDX-License-Identifier: Apache-2.0 */
/* Placement of everything in a plan, block by block: a choice, and its form as command line
 * options. */
#ifndef SLUICE_TOOLS_PLANNER_CHOICE_H
#define SLUICE_TOOLS_PLANNER_CHOICE_H

#include "tools/cli/cli.h"

enum { CHOICE_BLOCKS = 512 }; /* blocks that can differ; later blocks follow the last one */

/* Treatment of a block's activations for the backward pass: whether they are recomputed, and
 * where they are kept. */
typedef struct choice_way {
  const char *again; /* "none", "selective", "full" */
  sl_space space;
} choice_way;

typedef struct choice {
  int shard;                    /* index into options_words("shard") */
  uint8_t way[CHOICE_BLOCKS];   /* index into the ways, for each block */
  uint8_t state[CHOICE_BLOCKS]; /* sl_space of the block's optimizer state */
} choice;

/* The options to choose from, on these devices and within what the user fixed. */
typedef struct choices {
  const settings *s;
  int nblocks;
  const char **names; /* [nblocks] */
  int nways;
  choice_way ways[8]; /* the first one keeps everything */
  int nstates;
  sl_space states[SL_SPACE_COUNT];
  int shard, nshards; /* index of the user's value, and end of the values worth trying */
  const char *chosen; /* paths found by --skip, shared by all choices (sl_lower_options.chosen) */
  sli_arena arena;
} choices;

/* `run` provides the paths of --skip. */
sl_status choices_init(choices *c, const settings *s, const sl_lower_options *run);
void choices_fini(choices *c);

/* Returns the choice that keeps everything on its device, with the user's sharding. */
choice choice_none(const choices *c);
/* Makes the settings express a choice. Pointers stored there are into the arena. */
void choice_apply(const choices *c, const choice *x, sli_arena *arena, settings *to);
/* Formats a choice as command line options, "--home act=disk --home act@h.3=device". The caller
 * frees it. */
char *choice_format(const choices *c, const choice *x);

#endif
