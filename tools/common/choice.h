/* Where everything of a plan lives, block by block: one of many choices, and how it is said. */
#ifndef SLUICE_TOOLS_COMMON_CHOICE_H
#define SLUICE_TOOLS_COMMON_CHOICE_H

#include "tools/common/settings.h"

enum { CHOICE_BLOCKS = 512 }; /* that can differ; those behind go with the most of these */

/* What can become of what a block makes for its way back: computed again, and kept somewhere. */
typedef struct choice_way {
  const char *again; /* "none", "selective", "full" */
  sl_space space;
} choice_way;

typedef struct choice {
  int shard;                      /* place among options_words("shard") */
  uint8_t way[CHOICE_BLOCKS];     /* of each block, among the ways there are */
  uint8_t state[CHOICE_BLOCKS];   /* sl_space of its optimizer's state */
} choice;

/* What there is to choose from, on these devices and beside what the user says. */
typedef struct choices {
  const settings *s;
  int nblocks;
  const char **names;  /* [nblocks] */
  int nways;
  choice_way ways[8];  /* the first keeps everything */
  int nstates;
  sl_space states[SL_SPACE_COUNT];
  int shard, nshards;  /* the user's, and one behind the last that is worth a try */
  sli_arena arena;
} choices;

sl_status choices_init(choices *c, const settings *s);
void choices_fini(choices *c);

/* Everything where it is made, kept as the user says. */
choice choice_none(const choices *c);
/* Makes the settings say so. What they point to then is the arena's. */
void choice_apply(const choices *c, const choice *x, sli_arena *arena, settings *to);
/* "--home act=disk --home act@h.3=device": what the command line would have to say. The caller's to
 * free(). */
char *choice_format(const choices *c, const choice *x);

#endif
