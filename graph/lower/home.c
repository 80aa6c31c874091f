/* Where registers live.
 *
 * What a block makes on the way forth for its way back is read late, and lies idle until then. It
 * can live elsewhere meanwhile: on disk, or beside a GPU in the host's memory. Then the bundle
 * that the block makes is only where it is made, one of few that take turns in the same slots; a
 * hop `spill` brings it to where it lives, with as many slots there as the schedule wants of it,
 * and for each group of the way back that reads it a hop `fill` brings it back, in the order of
 * the way back, as many ahead of their readers as `fill` has slots. Who reads it on the way forth,
 * the next block, reads it where it was made.
 *
 * The optimizer's state lives elsewhere from one step to the next: its update reads what has been
 * filled, writes what will be spilled, and where it lives the first step's is there at the start.
 *
 * What is read as soon as it is made stays: that of the groups from which the way back begins,
 * where no other microbatch comes between. */
#include "graph/build/build.h"
#include "graph/lower/ir.h"
#include "kernels/disk/disk.h"

#include <string.h>

#include "base/number.h"

enum { MOST_BLOCKS = 1 << 20 };

/* ---- text ------------------------------------------------------------------------------ */

/* "disk" */
static bool find_space(const char *text, sl_space *out) {
  for (int s = 0; s < SL_SPACE_COUNT; s++)
    if (!strcmp(sl_space_name((sl_space)s), text)) {
      *out = (sl_space)s;
      return true;
    }
  return false;
}

sl_status sli_home_read(const char *text, sli_arena *arena, sl_home *out) {
  const char *equals = strrchr(text, '=');
  size_t length = strcspn(text, "@=");
  if (!equals || !length || (text[length] == '@' && equals == text + length + 1))
    return sl_fail(SL_E_USAGE, "home %s: not NAME=HOME or NAME@BLOCK=HOME", text);
  if (!find_space(equals + 1, &out->space))
    return sl_fail(SL_E_USAGE, "home %s: device, host and disk are homes, '%s' is not", text,
                   equals + 1);
  out->name = sli_arena_format(arena, "%.*s", (int)length, text);
  out->block = text[length] == '@' ? sli_arena_format(arena, "%.*s",
                                                      (int)(equals - text - (long)length - 1),
                                                      text + length + 1)
                                   : NULL;
  return SL_OK;
}

/* ---- what is asked for ------------------------------------------------------------------ */

static bool names_movable(const sl_home *h) {
  sl_quota q = {.name = h->name, .stage = SL_NONE};
  for (int r = 0; r < SLI_ROLES; r++)
    if (sli_roles[r].movable && sli_quota_names(&q, sli_roles[r].name, 0)) return true;
  return false;
}

static bool finds_block(const sl_graph *g, const sl_home *h) {
  for (int b = 0; b < g->nblocks; b++)
    if (sli_pattern_finds(h->block, g->blocks[b].name)) return true;
  return false;
}

/* "h.31", as in what the option says. */
static sl_status check(const sli_inputs *in, const sl_home *h) {
  const sl_graph *g = in->g;
  const char *space = sl_space_name(h->space);
  if (!names_movable(h))
    return sl_fail(SL_E_USAGE, "home %s=%s: only act, act.b, act.w and state can live elsewhere",
                   h->name, space);
  if (h->block && !finds_block(g, h))
    return sl_fail(SL_E_USAGE, "home %s@%s=%s: the model has no block of that name; its last is %s",
                   h->name, h->block, space, g->blocks[g->nblocks - 1].name);
  if (h->space != SL_SPACE_DEVICE && !in->kind->move[h->space])
    return sl_fail(SL_E_USAGE, "home %s=%s: of %s devices nothing can live there%s", h->name, space,
                   in->kind->name, h->space == SL_SPACE_HOST
                                       ? ": their memory is the host's" : "");
  return SL_OK;
}

/* "device", "host", "every:4" */
sl_status sli_lower_read_update(sli_inputs *in) {
  const char *text = in->options->homes.update;
  in->update_every = 1;
  if (!text || !strcmp(text, "device")) return SL_OK;
  const char *at = text + strlen("every:");
  bool every = !strncmp(text, "every:", strlen("every:")) &&
               sli_number_read(&at, 1, MOST_BLOCKS, &in->update_every) && !*at;
  if (!every && strcmp(text, "host"))
    return sl_fail(SL_E_USAGE, "update %s: not device, host or every:K", text);
  if (!every) in->update_every = 0;
  if (in->kind->hosted) in->kind = in->kind->hosted;
  if (in->kind->copy) return SL_OK;
  return sl_fail(SL_E_USAGE, "update %s: %s devices have no host beside them that could", text,
                 in->kind->name);
}

sl_status sli_lower_check_homes(const sli_inputs *in) {
  sl_status status = SL_OK;
  for (int i = 0; i < in->options->homes.count && !status; i++)
    status = check(in, &in->options->homes.of[i]);
  return status;
}

/* Does the user say of anything that it is to live elsewhere? */
bool sli_lower_moves(const sl_lower_options *o) {
  for (int i = 0; i < o->homes.count; i++)
    if (o->homes.of[i].space != SL_SPACE_DEVICE) return true;
  return false;
}

static const char *block_of(const sli_lowering *l, const sli_group *g) {
  int block = g->nnodes ? g->nodes[0]->block : SL_NONE;
  return block < 0 ? "" : l->in->g->blocks[block].name;
}

static sl_space wanted(const sli_lowering *l, const sli_bundle *b) {
  const sli_group *from = &l->groups[b->producer];
  sl_space space = SL_SPACE_DEVICE;
  for (int i = 0; i < l->in->options->homes.count; i++) {
    const sl_home *h = &l->in->options->homes.of[i];
    sl_quota q = {.name = h->name, .stage = SL_NONE};
    bool meant = sli_quota_names(&q, sli_roles[b->role].name, from->stage);
    if (meant && (!h->block || sli_pattern_finds(h->block, block_of(l, from)))) space = h->space;
  }
  return space;
}

/* ---- who reads it ------------------------------------------------------------------------- */

bool sli_reads_late(const sli_lowering *l, const sli_bundle *b, const sli_group *g) {
  return g->back && !l->groups[b->producer].back;
}

/* Does the way back begin with this group? It reads nothing that another one of it has made. */
static bool begins_way_back(const sli_lowering *l, const sli_group *g) {
  for (int i = 0; i < g->ninputs; i++) {
    const sli_bundle *b = &l->bundles[g->inputs[i]];
    if (b->producer != SL_NONE && l->groups[b->producer].back) return false;
  }
  return true;
}

/* Does somebody read it some time after it was made? */
static bool is_idle(const sli_lowering *l, const sli_bundle *b) {
  int stage = l->groups[b->producer].stage;
  bool several = SLI_MAX(l->act_b[stage], l->act_w[stage]) > 1, idle = false;
  for (int i = 0; i < b->nconsumers; i++) {
    const sli_group *g = &l->groups[b->consumers[i]];
    if (!sli_reads_late(l, b, g)) continue;
    if (!several && begins_way_back(l, g)) return false;
    idle = true;
  }
  return idle;
}

/* What an update alone has is idle from one step to the next. */
static bool can_move(const sli_lowering *l, const sli_bundle *b) {
  return sli_roles[b->role].movable && b->bytes && !b->eval && b->over == SL_NONE &&
         (b->held || is_idle(l, b));
}

/* ---- is it worth it? ------------------------------------------------------------------------ */

enum { MOST_LANES = 16 };

/* What a stage's bundles take on one of its devices: kept, or passing through. */
typedef struct weight {
  size_t kept, staging;
} weight;

/* The largest of those that come number `nth` among what a group makes, or reads late. */
typedef struct widest {
  size_t made[MOST_LANES], read[MOST_LANES];
} widest;

static bool moves(const sli_bundle *b) { return b->stay != SL_SPACE_DEVICE; }

sli_role sli_staging_role(const sli_lowering *l, const sli_bundle *b) {
  return l->in->layers && sli_leaves_block(l, b) ? SLI_ROLE_BETWEEN : SLI_ROLE_SPILL;
}

static int staging_slots(const sli_lowering *l, sli_role role, int stage) {
  int given = sli_lower_given(l, role, stage);
  if (given) return given;
  return role == SLI_ROLE_BETWEEN ? l->in->k + 1 : 2;
}

static void widen(const sli_lowering *l, size_t lanes[MOST_LANES], int nth, const sli_bundle *b,
                  sli_role role) {
  size_t *lane = &lanes[SLI_MIN(nth, MOST_LANES - 1)];
  int stage = l->groups[b->producer].stage;
  *lane = SLI_MAX(*lane, (size_t)staging_slots(l, role, stage) * b->bytes);
}

static void count_group(const sli_lowering *l, const sli_group *g, widest *w) {
  int made = 0, read = 0;
  for (int i = 0; i < g->noutputs; i++) {
    const sli_bundle *b = &l->bundles[g->outputs[i]];
    if (!moves(b)) continue;
    widen(l, w->made, made++, b, sli_staging_role(l, b));
    if (b->held) widen(l, w->read, 0, b, SLI_ROLE_FILL); /* who updates it reads it, too */
  }
  for (int i = 0; i < g->ninputs; i++) {
    const sli_bundle *b = &l->bundles[g->inputs[i]];
    if (moves(b) && sli_reads_late(l, b, g)) widen(l, w->read, read++, b, SLI_ROLE_FILL);
  }
}

/* Of groups of one class, and one section of their blocks. */
static size_t lanes_bytes(const sli_lowering *l, int stage, int rank, sl_class cls, int section) {
  widest w = {0};
  size_t sum = 0;
  for (int i = 0; i < l->ngroups; i++) {
    const sli_group *g = &l->groups[i];
    if (g->stage != stage || g->rank != rank || g->cls != cls) continue;
    if (sli_lower_section(l, i) == section) count_group(l, g, &w);
  }
  for (int n = 0; n < MOST_LANES; n++) sum += w.made[n] + w.read[n];
  return sum;
}

/* Groups of one class take turns; B and W have lanes of their own. */
static size_t staging_bytes(const sli_lowering *l, int stage, int rank) {
  int sections = 1;
  size_t sum = 0;
  for (int i = 0; i < l->nsections; i++) sections = SLI_MAX(sections, 1 + l->sections[i]);
  for (int c = 0; c < SL_CLASS_COUNT; c++)
    for (int s = 0; s < sections; s++) sum += lanes_bytes(l, stage, rank, (sl_class)c, s);
  return sum;
}

static bool is_of(const sli_lowering *l, const sli_bundle *b, int stage, int rank) {
  return moves(b) && l->groups[b->producer].stage == stage && l->groups[b->producer].rank == rank;
}

/* Where passing through takes as much as keeping, everything stays. */
static weight weigh(sli_lowering *l, int stage, int rank) {
  weight w = {.staging = staging_bytes(l, stage, rank)};
  for (int i = 0; i < l->nbundles; i++) {
    const sli_bundle *b = &l->bundles[i];
    int slots = b->held ? 1 : b->role == SLI_ROLE_ACT_W ? l->act_w[stage] : l->act_b[stage];
    if (is_of(l, b, stage, rank)) w.kept += (size_t)slots * b->bytes;
  }
  for (int i = 0; i < l->nbundles && w.staging >= w.kept; i++)
    if (is_of(l, &l->bundles[i], stage, rank)) l->bundles[i].stay = SL_SPACE_DEVICE;
  return w;
}

/* ---- the pass ------------------------------------------------------------------------------ */

static void mark(sli_lowering *l) {
  for (int i = 0; i < l->nbundles; i++) {
    sli_bundle *b = &l->bundles[i];
    if (b->producer == SL_NONE || !can_move(l, b)) continue;
    sl_space home = wanted(l, b);
    if (home != b->home) b->stay = home;
  }
}

/* A stage's credit is taken and given back by its passes: where it was the slots of what moves now,
 * a register of no bytes carries it. */
static void keep_credit(sli_lowering *l, int bundle) {
  const sli_bundle b = l->bundles[bundle];
  int *late = sli_arena_alloc(&l->arena, (size_t)b.nconsumers * sizeof *late), n = 0;
  for (int i = 0; i < b.nconsumers; i++)
    if (sli_reads_late(l, &b, &l->groups[b.consumers[i]])) late[n++] = b.consumers[i];
  l->bundles[bundle].credit = false;
  sli_add_bundle(l, (sli_bundle){.name = sli_arena_format(&l->arena, "%s:credit", b.name),
                                 .role = b.role, .producer = b.producer, .nconsumers = n,
                                 .consumers = late, .rate = b.rate, .memory = b.memory,
                                 .device = b.device, .over = SL_NONE, .credit = true});
}

static void keep_credits(sli_lowering *l) {
  for (int i = 0, n = l->nbundles; i < n; i++)
    if (moves(&l->bundles[i]) && l->bundles[i].credit) keep_credit(l, i);
}

/* What a block hands to the next of the same way: where blocks take turns with what they keep, they
 * do so with that, too. */
static bool is_between(const sli_lowering *l, const sli_bundle *b) {
  if (b->role != SLI_ROLE_INNER || b->rate != SLI_PER_TICK || b->eval || !b->nconsumers) return false;
  const sli_group *from = &l->groups[b->producer];
  for (int i = 0; i < b->nconsumers; i++) {
    const sli_group *to = &l->groups[b->consumers[i]];
    if (to->cls != from->cls || to->device != from->device || to->cls == SL_CLASS_C) return false;
    if (to->part != from->part + (from->back ? -1 : 1)) return false;
  }
  return !sli_lower_given(l, SLI_ROLE_INNER, from->stage);
}

static void take_turns(sli_lowering *l) {
  for (int i = 0; i < l->nbundles; i++) {
    sli_bundle *b = &l->bundles[i];
    if (b->producer == SL_NONE || !is_between(l, b)) continue;
    b->role = SLI_ROLE_BETWEEN;
    b->transient = true;
  }
}

/* Disks have whole pages. */
static void round_up(sli_lowering *l) {
  for (int i = 0; i < l->nbundles; i++) {
    sli_bundle *b = &l->bundles[i];
    if (b->stay != SL_SPACE_DISK) continue;
    b->bytes = (b->bytes + SLI_DISK_PAGE - 1) / SLI_DISK_PAGE * SLI_DISK_PAGE;
    b->payload_bytes = b->bytes;
  }
}

sl_status sli_lower_homes(sli_lowering *l) {
  if (l->in->layers) take_turns(l);
  if (!sli_lower_moves(l->in->options)) return SL_OK;
  weight most = {0};
  bool any = false;
  mark(l);
  for (int s = 0; s < l->stages; s++)
    for (int r = 0; r < l->in->ranks; r++) {
      weight w = weigh(l, s, r);
      any |= w.staging < w.kept;
      if (w.kept > most.kept) most = w;
    }
  keep_credits(l);
  if (!l->in->layers) take_turns(l);
  round_up(l);
  if (any) return SL_OK;
  char staging[32], kept[32];
  return sl_fail(SL_E_USAGE, "home %s: it saves nothing here: to keep it takes %s of a device, to "
                 "bring it there and back %s (--quota spill=N, --quota fill=N)",
                 l->in->options->homes.of[0].name, sli_format_bytes(kept, (double)most.kept),
                 sli_format_bytes(staging, (double)most.staging));
}
