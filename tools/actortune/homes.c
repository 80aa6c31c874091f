/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations for --home auto. Each configuration is added with part of its data offloaded or
 * recomputed: for every other block or for all blocks, and with the optimizer state on the device
 * or offloaded. */
#include "tools/actortune/actortune.h"

#include <stdlib.h>
#include <string.h>

static void add_choice(tuning *t, const choices *all, int like, const choice *c) {
  t->configs = sli_realloc(t->configs, (size_t)t->nconfigs + 1, sizeof *t->configs);
  config *to = &t->configs[t->nconfigs++];
  *to = t->configs[like];
  to->tried = true;
  choice_apply(all, c, &t->arena, &to->settings);
  char *said = choice_format(all, c);
  to->homes = sli_arena_strdup(&t->arena, said);
  free(said);
}

/* Treats every n-th block one way. */
static choice homes_choose(const choices *all, int way, int every, sl_space state) {
  choice c = choice_none(all);
  for (int b = 0; b < all->nblocks; b += every) c.way[b] = (uint8_t)way;
  memset(c.state, (int)state, (size_t)all->nblocks);
  return c;
}

static void add_choices(tuning *t, const choices *all, int like, sl_space state) {
  for (int way = 1; way < all->nways; way++)
    for (int every = 2; every >= 1; every--) {
      choice c = homes_choose(all, way, every, state);
      add_choice(t, all, like, &c);
    }
  if (state == SL_SPACE_DEVICE) return;
  choice c = homes_choose(all, 0, 1, state);
  add_choice(t, all, like, &c);
}

/* Uses the first space other than the device as offload target of the optimizer state: it is the
 * nearest. */
sl_status configs_add_homes(tuning *t) {
  choices all;
  const settings like = t->configs[0].settings;
  if (!like.choose_homes) return SL_OK;
  sl_status status = choices_init(&all, &like, &(sl_lower_options){.schedule.skip_in_turn = true});
  for (int i = 0, n = t->nconfigs; i < n && !status; i++)
    for (int s = 0; s < SLI_MIN(all.nstates, 2); s++) add_choices(t, &all, i, all.states[s]);
  choices_fini(&all);
  return status;
}
