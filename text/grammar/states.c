/* SPDX-License-Identifier: Apache-2.0 */
/* States of a grammar in use. A state is a set of configurations: a node, and where the texts of
 * the enclosing rules continue (frames). Calls of one rule at one byte share a frame, so the number
 * of configurations is bounded by the grammar, not by the number of ways to read a text. States and
 * frames are looked up by content. When they fill their memory, those that no root reaches are
 * dropped. */
#include <stdlib.h>
#include <string.h>

#include "text/grammar/grammar_inner.h"

enum { SEEN_SLOTS = 4 * SLI_MOST_CONFIGS };

/* ---- memory ---------------------------------------------------------------------------------- */

/* Reserves twice as much: old and new states coexist while memory is collected. */
static bool take_run(void *ctx, size_t bytes) {
  sli_states *s = ctx;
  s->taken += bytes;
  return true;
}

static void give_run(void *ctx, size_t bytes) {
  sli_states *s = ctx;
  s->taken -= bytes;
}

void *sli_states_alloc(sli_grammar *g, size_t bytes) {
  return sli_bounded_alloc(&g->states.memory, bytes);
}

/* ---- roots ----------------------------------------------------------------------------------- */

void sli_root_add(sli_grammar *g, sli_root *root, sli_state *state) {
  *root = (sli_root){state, g->states.roots, &g->states.roots};
  if (root->next) root->next->link = &root->next;
  g->states.roots = root;
}

void sli_root_remove(sli_root *root) {
  *root->link = root->next;
  if (root->next) root->next->link = root->link;
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Grows an array of the states' memory. */
static bool grow(sli_grammar *g, void *array, size_t count, size_t *room, size_t size) {
  void **at = array;
  if (count < *room) return true;
  size_t more = SLI_MAX(2 * *room, (size_t)64);
  void *out = sli_states_alloc(g, more * size);
  if (!out) return false;
  if (count) memcpy(out, *at, count * size);
  *at = out;
  *room = more;
  return true;
}
#define GROW(g, array, count, room) grow((g), &(array), (count), &(room), sizeof *(array))

static sli_state **state_slot(const sli_states *s, uint64_t hash, int32_t count,
                              const sli_config *configs, bool accepts) {
  for (size_t at = hash & (s->states_room - 1);; at = (at + 1) & (s->states_room - 1)) {
    sli_state *x = s->table[at];
    if (!x || (x->hash == hash && x->count == count && x->accepts == accepts &&
               !memcmp(x->configs, configs, (size_t)count * sizeof *configs)))
      return &s->table[at];
  }
}

static sli_grammar_frame **frame_slot(const sli_states *s, uint64_t hash, int32_t count,
                                      const struct sli_return *of) {
  for (size_t at = hash & (s->frames_room - 1);; at = (at + 1) & (s->frames_room - 1)) {
    sli_grammar_frame *x = s->frames[at];
    if (!x ||
        (x->hash == hash && x->count == count && !memcmp(x->of, of, (size_t)count * sizeof *of)))
      return &s->frames[at];
  }
}

/* Keeps half of the tables empty. */
static bool grow_states(sli_grammar *g) {
  sli_states *s = &g->states;
  if (2 * (s->nstates + 1) < s->states_room) return true;
  sli_state **old = s->table;
  size_t had = s->states_room;
  s->states_room = SLI_MAX(2 * had, (size_t)64);
  s->table = sli_states_alloc(g, s->states_room * sizeof *s->table);
  for (size_t i = 0; s->table && i < had; i++)
    if (old[i])
      *state_slot(s, old[i]->hash, old[i]->count, old[i]->configs, old[i]->accepts) = old[i];
  return s->table;
}

static bool grow_frames(sli_grammar *g) {
  sli_states *s = &g->states;
  if (!GROW(g, s->all, s->nframes, s->all_room)) return false;
  if (2 * (s->nframes + 1) < s->frames_room) return true;
  s->frames_room = SLI_MAX(2 * s->frames_room, (size_t)64);
  s->frames = sli_states_alloc(g, s->frames_room * sizeof *s->frames);
  for (size_t i = 0; s->frames && i < s->nframes; i++)
    *frame_slot(s, s->all[i]->hash, s->all[i]->count, s->all[i]->of) = s->all[i];
  return s->frames;
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* Returns the frame with these sorted returns. NULL: there is no memory. */
static sli_grammar_frame *frame_of(sli_grammar *g, int32_t count, const struct sli_return *of) {
  sli_states *s = &g->states;
  uint64_t hash = sli_hash_word(SLI_HASH_SEED, (uint64_t)count);
  for (int32_t i = 0; i < count; i++)
    hash = sli_hash_word(sli_hash_word(hash, (uint64_t)of[i].node), of[i].frame->hash);
  if (!grow_frames(g)) return NULL;
  sli_grammar_frame **slot = frame_slot(s, hash, count, of);
  if (*slot) return *slot;
  sli_grammar_frame *x = sli_states_alloc(g, sizeof *x + (size_t)count * sizeof *of);
  if (!x) return NULL;
  *x = (sli_grammar_frame){.hash = hash, .count = count, .number = (int32_t)s->nframes};
  if (count) memcpy(x->of, of, (size_t)count * sizeof *of);
  s->all[s->nframes++] = x;
  return *slot = x;
}

/* ---- states ---------------------------------------------------------------------------------- */

static int by_config(const void *a, const void *b) {
  const sli_config *x = a, *y = b;
  if (x->node != y->node) return x->node < y->node ? -1 : 1;
  return x->frame->number < y->frame->number ? -1 : x->frame->number > y->frame->number;
}

static sli_state *state_of(sli_grammar *g, int32_t count, const sli_config *configs, bool accepts) {
  sli_states *s = &g->states;
  uint64_t hash = sli_hash_word(SLI_HASH_SEED, (uint64_t)count << 1 | accepts);
  for (int32_t i = 0; i < count; i++)
    hash = sli_hash_word(sli_hash_word(hash, (uint64_t)configs[i].node), configs[i].frame->hash);
  if (!grow_states(g)) return NULL;
  sli_state **slot = state_slot(s, hash, count, configs, accepts);
  if (*slot) return *slot;
  sli_state *x = sli_states_alloc(g, sizeof *x + (size_t)count * sizeof *configs);
  if (!x) return NULL;
  *x = (sli_state){.hash = hash, .count = count, .accepts = accepts};
  if (count) memcpy(x->configs, configs, (size_t)count * sizeof *configs);
  s->nstates++;
  return *slot = x;
}

/* ---- one step -------------------------------------------------------------------------------- */

/* Configurations that a step reaches. */
typedef struct reached {
  sli_grammar *g;
  bool accepts;
} reached;

/* Records a configuration. Returns false if it was recorded before, or a limit is exceeded. */
static bool note(reached *r, int32_t node, const sli_grammar_frame *frame) {
  sli_states *s = &r->g->states;
  uint64_t key = (uint64_t)node << 32 | (uint32_t)(frame->number + 1);
  size_t at = sli_hash_word(SLI_HASH_SEED, key) & (SEEN_SLOTS - 1);
  while (s->seen[at] && s->seen[at] != key) at = (at + 1) & (SEEN_SLOTS - 1);
  if (s->seen[at]) return false;
  s->over |= s->nconfigs >= SLI_MOST_CONFIGS || ++s->work > SLI_MOST_WORK;
  if (s->over) return false;
  s->seen[at] = key;
  s->seen_at[s->nconfigs] = (uint32_t)at;
  return true;
}

static void forget_seen(sli_states *s) {
  for (size_t i = 0; i < s->nconfigs; i++) s->seen[s->seen_at[i]] = 0;
}

/* Adds a configuration. What it leads to without a byte is added when it is examined. */
static void reach(reached *r, int32_t node, sli_grammar_frame *frame) {
  sli_states *s = &r->g->states;
  if (!note(r, node, frame)) return;
  s->configs[s->nconfigs++] = (sli_config){node, frame};
}

static void await_at(reached *r, int32_t rule, struct sli_return to) {
  sli_states *s = &r->g->states;
  s->over |= s->npending >= s->pending_room;
  if (!s->over) s->pending[s->npending++] = (struct sli_pending){rule, to};
}

/* Records that a text of a rule is expected, followed by a configuration. If only the end of the
 * enclosing rule follows, the text continues after that rule instead, so that sequences of rules do
 * not accumulate frames. */
static void await(reached *r, int32_t rule, int32_t node, sli_grammar_frame *frame) {
  const sli_node_of *n = &r->g->nodes[node];
  bool last = n->rule >= 0 && n->edges < 0 && frame->count;
  if (!last) await_at(r, rule, (struct sli_return){node, frame});
  for (int32_t i = 0; last && i < frame->count; i++) await_at(r, rule, frame->of[i]);
}

/* Examines a configuration: where it leads without a byte, and which rules begin there. */
static void look(reached *r, sli_config c) {
  const sli_grammar *g = r->g;
  const sli_node_of *n = &g->nodes[c.node];
  if (n->rule >= 0 && !c.frame->count) r->accepts = true;
  for (int32_t i = 0; n->rule >= 0 && i < c.frame->count; i++)
    reach(r, (int32_t)c.frame->of[i].node, c.frame->of[i].frame);
  for (int32_t i = n->edges; i >= 0; i = g->edges[i].next) {
    const sli_edge *e = &g->edges[i];
    r->g->states.work++;
    if (e->kind == SLI_EDGE_FREE) reach(r, e->to, c.frame);
    if (e->kind == SLI_EDGE_RULE) await(r, e->rule, e->to, c.frame);
  }
}

static int by_return(const void *a, const void *b) {
  const struct sli_return *x = a, *y = b;
  if (x->node != y->node) return x->node < y->node ? -1 : 1;
  return x->frame->number < y->frame->number ? -1 : x->frame->number > y->frame->number;
}

/* Begins the next rule, for all configurations that wait for it. Rules that it may begin with come
 * later. */
static void begin_rule(reached *r) {
  sli_states *s = &r->g->states;
  const sli_rule *rules = r->g->rules;
  int32_t rule = s->pending[0].rule;
  for (size_t i = 1; i < s->npending; i++)
    if (rules[s->pending[i].rule].order < rules[rule].order) rule = s->pending[i].rule;
  struct sli_return *of = malloc(s->npending * sizeof *of);
  SLI_CHECK(of, "no memory for places of a grammar");
  size_t n = 0, left = 0, kept = 0;
  for (size_t i = 0; i < s->npending; i++)
    if (s->pending[i].rule == rule) of[n++] = s->pending[i].to;
    else s->pending[left++] = s->pending[i];
  s->npending = left;
  qsort(of, n, sizeof *of, by_return);
  for (size_t i = 0; i < n; i++)
    if (!kept || by_return(&of[i], &of[kept - 1])) of[kept++] = of[i];
  sli_grammar_frame *frame = frame_of(r->g, (int32_t)kept, of);
  free(of);
  s->over |= !frame;
  if (frame) reach(r, rules[rule].begin, frame);
}

static bool has_bytes(const sli_grammar *g, int32_t node) {
  for (int32_t i = g->nodes[node].edges; i >= 0; i = g->edges[i].next)
    if (g->edges[i].kind == SLI_EDGE_BYTES) return true;
  return false;
}

/* Completes the reached configurations, and returns their state. */
static sli_state *complete(reached *r) {
  sli_states *s = &r->g->states;
  for (size_t i = 0; !s->over && (i < s->nconfigs || s->npending);)
    if (i < s->nconfigs) look(r, s->configs[i++]);
    else begin_rule(r);
  forget_seen(s);
  s->npending = 0;
  size_t n = 0;
  for (size_t i = 0; i < s->nconfigs; i++)
    if (has_bytes(r->g, (int32_t)s->configs[i].node)) s->configs[n++] = s->configs[i];
  s->nconfigs = 0;
  if (s->over) return NULL;
  if (!n && !r->accepts) return s->dead;
  qsort(s->configs, n, sizeof *s->configs, by_config);
  return state_of(r->g, (int32_t)n, s->configs, r->accepts);
}

/* ---- collecting memory ----------------------------------------------------------------------- */

static void mark_frames(sli_states *s) {
  for (const sli_root *root = s->roots; root; root = root->next)
    for (int32_t i = 0; root->state && i < root->state->count; i++)
      root->state->configs[i].frame->moved = s->dead->configs[0].frame; /* any: it is needed */
  for (size_t k = s->nframes; k-- > 0;)
    for (int32_t i = 0; s->all[k]->moved && i < s->all[k]->count; i++)
      s->all[k]->of[i].frame->moved = s->all[k]->moved;
}

/* Copies the frames that are needed. A frame comes after the frames that it refers to. */
static bool move_frames(sli_grammar *g, sli_grammar_frame **all, size_t count) {
  bool good = true;
  for (size_t k = 0; k < count && good; k++) {
    if (!all[k]->moved) continue;
    for (int32_t i = 0; i < all[k]->count; i++) all[k]->of[i].frame = all[k]->of[i].frame->moved;
    all[k]->moved = frame_of(g, all[k]->count, all[k]->of);
    good = all[k]->moved;
  }
  return good;
}

static bool move_root(sli_grammar *g, sli_root *root, const sli_state *dead) {
  sli_state *x = root->state;
  if (!x) return true;
  if (x == dead) return root->state = g->states.dead, true;
  if (!x->moved) {
    for (int32_t i = 0; i < x->count; i++) x->configs[i].frame = x->configs[i].frame->moved;
    x->moved = state_of(g, x->count, x->configs, x->accepts);
  }
  root->state = x->moved;
  return x->moved;
}

static bool make_tables(sli_grammar *g) {
  sli_states *s = &g->states;
  s->table = NULL, s->frames = NULL, s->all = NULL;
  s->nstates = s->states_room = s->nframes = s->frames_room = s->all_room = 0;
  sli_grammar_frame *bottom = frame_of(g, 0, NULL);
  s->dead = bottom ? sli_states_alloc(g, sizeof *s->dead + sizeof(sli_config)) : NULL;
  if (s->dead) s->dead->configs[0].frame = bottom;
  return s->dead;
}

/* Drops everything that no root reaches. */
static void collect(sli_grammar *g) {
  sli_states *s = &g->states;
  sli_bounded old = s->memory;
  sli_grammar_frame **all = s->all;
  size_t count = s->nframes;
  const sli_state *dead = s->dead;
  mark_frames(s);
  s->memory = (sli_bounded){.allowance = &s->allowance};
  bool good = make_tables(g) && move_frames(g, all, count);
  for (sli_root *root = s->roots; root; root = root->next) good = good && move_root(g, root, dead);
  SLI_CHECK(good, "no memory for states of a grammar");
  sli_bounded_fini(&old);
  s->over |= s->taken > SLI_RUN_BYTES / 2;
}

/* ---- interface ------------------------------------------------------------------------------- */

sl_status sli_states_begin(sli_grammar *g) {
  sli_states *s = &g->states;
  s->allowance = (sli_allowance){take_run, give_run, s};
  s->memory.allowance = &s->allowance;
  s->pending_room = SLI_MOST_CONFIGS;
  s->pending = sli_grammar_alloc(g, s->pending_room * sizeof *s->pending);
  s->configs = sli_grammar_alloc(g, (SLI_MOST_CONFIGS + 1) * sizeof *s->configs);
  s->seen_at = sli_grammar_alloc(g, (SLI_MOST_CONFIGS + 1) * sizeof *s->seen_at);
  s->seen = sli_grammar_alloc(g, SEEN_SLOTS * sizeof *s->seen);
  if (!s->seen) return g->status;
  if (make_tables(g)) return SL_OK;
  sli_grammar_fail(g, SL_E_MEMORY, "there is no memory for a grammar");
  return g->status;
}

void sli_states_end(sli_grammar *g) { sli_bounded_fini(&g->states.memory); }

void sli_states_allow_work(sli_grammar *g) {
  g->states.work = 0;
  g->states.over = false;
}

sli_state *sli_states_first(sli_grammar *g) {
  sli_states *s = &g->states;
  reached r = {.g = g};
  sli_states_allow_work(g);
  reach(&r, g->rules[g->nrules - 1].begin, s->dead->configs[0].frame);
  return complete(&r);
}

/* Makes the state after a class of bytes. */
static sli_state *make_next(sli_grammar *g, const sli_state *from, int32_t class) {
  reached r = {.g = g};
  uint8_t byte = g->example[class];
  for (int32_t i = 0; i < from->count; i++)
    for (int32_t k = g->nodes[from->configs[i].node].edges; k >= 0; k = g->edges[k].next) {
      const sli_edge *e = &g->edges[k];
      g->states.work++;
      if (e->kind == SLI_EDGE_BYTES && byte >= e->low && byte <= e->high)
        reach(&r, e->to, from->configs[i].frame);
    }
  return complete(&r);
}

sli_state *sli_states_next(sli_grammar *g, const sli_root *from, uint8_t byte) {
  sli_states *s = &g->states;
  int32_t class = g->class_of[byte];
  sli_state *x = from->state, *next = x->next ? x->next[class] : NULL;
  if (next || x == s->dead) return next ? next : s->dead;
  if (s->taken > SLI_RUN_BYTES - SLI_RUN_BYTES / 8) collect(g);
  if (s->over) return NULL;
  x = from->state;
  if (!x->next) x->next = sli_states_alloc(g, (size_t)g->nclasses * sizeof *x->next);
  next = x->next ? make_next(g, x, class) : NULL;
  s->over |= !next;
  if (next) x->next[class] = next;
  return next;
}
