/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/planner/choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/devices/devices.h"
#include "graph/graph.h"
#include "tools/cli/cli.h"
#include "tools/planner/plan.h"

static const char none[] = "none", selective[] = "selective", full[] = "full";

/* ---- the choices ---------------------------------------------------------------------------- */

static void add_way(choices *c, const char *again, sl_space space) {
  c->ways[c->nways++] = (choice_way){again, space};
}

/* Lists the ways to treat a block's activations. Recompute modes are tried only if the user gave no
 * --recompute. */
static void find_ways(choices *c, const sli_kind *kind) {
  bool free = !sl_arg_given(c->s->run, "recompute", 0);
  add_way(c, none, SL_SPACE_DEVICE);
  if (free) add_way(c, full, SL_SPACE_DEVICE);
  for (int space = 0; space < SL_SPACE_COUNT; space++)
    if (space != SL_SPACE_DEVICE && kind->move[space]) add_way(c, none, (sl_space)space);
  if (free) add_way(c, selective, SL_SPACE_DEVICE);
  for (int space = 0; space < SL_SPACE_COUNT && free; space++)
    if (space != SL_SPACE_DEVICE && kind->move[space]) add_way(c, full, (sl_space)space);
}

static void find_states(choices *c, const sli_kind *kind) {
  c->states[c->nstates++] = SL_SPACE_DEVICE;
  for (int space = 0; space < SL_SPACE_COUNT; space++)
    if (space != SL_SPACE_DEVICE && kind->move[space]) c->states[c->nstates++] = (sl_space)space;
}

static void find_shards(choices *c) {
  const char *const *words = options_words("shard");
  while (strcmp(words[c->shard], c->s->lower.memory.shard)) c->shard++;
  c->nshards = c->shard + 1;
  bool open = c->s->lower.parallel.data * c->s->lower.parallel.sequence > 1 &&
              !sl_arg_given(c->s->run, "shard", 0);
  while (open && words[c->nshards]) c->nshards++;
}

/* Makes a plan once, to learn the names of blocks and the paths of --skip. */
static sl_status find_blocks(choices *c, const sl_lower_options *run) {
  planned p;
  settings alone = *c->s;
  alone.lower.devices.budget_bytes = 0;
  sl_status status = plan_make(&alone, run, &p);
  if (status) return status;
  c->nblocks = SLI_MIN(p.graph->nblocks, CHOICE_BLOCKS);
  c->names = sli_arena_alloc(&c->arena, (size_t)c->nblocks * sizeof *c->names);
  for (int b = 0; b < c->nblocks; b++)
    c->names[b] = sli_arena_strdup(&c->arena, p.graph->blocks[b].name);
  c->chosen = sli_arena_strdup(&c->arena, sl_lowered_chosen(p.lowered));
  plan_free(&p);
  return SL_OK;
}

sl_status choices_init(choices *c, const settings *s, const sl_lower_options *run) {
  const sli_kind *kind = sli_kind_find(s->lower.devices.kind);
  *c = (choices){.s = s};
  find_ways(c, kind);
  find_states(c, kind);
  find_shards(c);
  return find_blocks(c, run);
}

void choices_fini(choices *c) { sli_arena_fini(&c->arena); }

choice choice_none(const choices *c) { return (choice){.shard = c->shard}; }

/* ---- short wording --------------------------------------------------------------------------- */

/* A treatment of all blocks in the fewest words: the most common word for all, then the
 * exceptions. */
typedef struct saying {
  const char *all; /* default for all blocks; NULL: the option's own default, not printed */
  int count;       /* number of exceptions */
  const char *words[CHOICE_BLOCKS];
  const char *blocks[CHOICE_BLOCKS];
} saying;

static const char *commonest(const char *const *words, int n) {
  const char *best = words[0];
  for (int i = 0, most = 0; i < n; i++) {
    int same = 0;
    for (int k = 0; k < n; k++) same += words[k] == words[i];
    if (same > most) best = words[i], most = same;
  }
  return best;
}

static void say_words(const choices *c, const char *const *words, const char *usual, saying *out) {
  const char *all = commonest(words, c->nblocks);
  *out = (saying){.all = all == usual ? NULL : all};
  for (int b = 0; b < c->nblocks; b++) {
    if (words[b] == all) continue;
    out->words[out->count] = words[b];
    out->blocks[out->count++] = c->names[b];
  }
}

static const choice_way *way_of(const choices *c, const choice *x, int block) {
  return &c->ways[x->way[block]];
}

static void say_homes(const choices *c, const choice *x, bool states, saying *out) {
  const char *words[CHOICE_BLOCKS];
  for (int b = 0; b < c->nblocks; b++)
    words[b] = sl_space_name(states ? (sl_space)x->state[b] : way_of(c, x, b)->space);
  say_words(c, words, sl_space_name(SL_SPACE_DEVICE), out);
}

static void say_recompute(const choices *c, const choice *x, saying *out) {
  const char *words[CHOICE_BLOCKS];
  for (int b = 0; b < c->nblocks; b++) words[b] = way_of(c, x, b)->again;
  say_words(c, words, c->ways[0].again, out);
}

/* ---- as settings ----------------------------------------------------------------------------- */

static sl_space space_of(const char *word) {
  int space = 0;
  while (strcmp(sl_space_name((sl_space)space), word)) space++;
  return (sl_space)space;
}

static int add_homes(const saying *said, const char *name, sli_arena *arena, sl_home *to) {
  int n = 0;
  if (said->all) to[n++] = (sl_home){.name = name, .space = space_of(said->all)};
  for (int i = 0; i < said->count; i++)
    to[n++] = (sl_home){.name = name,
                        .block = sli_arena_strdup(arena, said->blocks[i]),
                        .space = space_of(said->words[i])};
  return n;
}

/* Applies the placements of a choice. The user's own options come last, so they win. */
static void apply_homes(const choices *c, const choice *x, sli_arena *arena, settings *to) {
  const sl_home_options *given = &c->s->lower.memory.homes;
  size_t most = 2 * (size_t)c->nblocks + 2 + (size_t)given->count;
  sl_home *all = sli_arena_alloc(arena, most * sizeof *all);
  saying said;
  say_homes(c, x, false, &said);
  int n = add_homes(&said, "act", arena, all);
  say_homes(c, x, true, &said);
  n += add_homes(&said, "state", arena, all + n);
  if (given->count) memcpy(all + n, given->homes, (size_t)given->count * sizeof *all);
  to->lower.memory.homes.homes = all;
  to->lower.memory.homes.count = n + given->count;
}

static void apply_recompute(const choices *c, const choice *x, sli_arena *arena, settings *to) {
  saying said;
  say_recompute(c, x, &said);
  if (!said.all && !said.count) return;
  to->lower.memory.recompute = said.all ? said.all : "none";
  for (int i = 0; i < said.count; i++)
    to->lower.memory.recompute = sli_arena_format(arena, "%s,%s@%s", to->lower.memory.recompute,
                                                  said.words[i], said.blocks[i]);
}

void choice_apply(const choices *c, const choice *x, sli_arena *arena, settings *to) {
  apply_homes(c, x, arena, to);
  apply_recompute(c, x, arena, to);
  to->lower.memory.shard = options_words("shard")[x->shard];
}

/* ---- as text --------------------------------------------------------------------------------- */

/* "--home act=disk --home act@h.3=device", "--recompute full --recompute none@h.3" */
static void print(FILE *to, const saying *said, const char *option, const char *name) {
  const char *equals = *name ? "=" : "";
  if (said->all) fprintf(to, " --%s %s%s%s", option, name, equals, said->all);
  for (int i = 0; i < said->count; i++)
    if (*name) fprintf(to, " --%s %s@%s=%s", option, name, said->blocks[i], said->words[i]);
    else fprintf(to, " --%s %s@%s", option, said->words[i], said->blocks[i]);
}

char *choice_format(const choices *c, const choice *x) {
  char *text = NULL;
  size_t size;
  FILE *to = sli_memory_stream(&text, &size);
  saying said;
  say_homes(c, x, false, &said);
  print(to, &said, "home", "act");
  say_homes(c, x, true, &said);
  print(to, &said, "home", "state");
  say_recompute(c, x, &said);
  print(to, &said, "recompute", "");
  if (x->shard != c->shard) fprintf(to, " --shard %s", options_words("shard")[x->shard]);
  fclose(to);
  if (*text) memmove(text, text + 1, strlen(text));
  return text;
}
