/* SPDX-License-Identifier: Apache-2.0 */
/* Debug tags: slots that record their contents, to find faults (sl_runtime_options.check).
 *
 * Each slot has a tag: the key and register it holds, whether it is complete, how many rows were
 * valid when it was announced, and the range of ticks of the firings that wrote it. Copies pass
 * this range on, so offloaded data returns with its original ticks, whatever keys the plan's maps
 * gave it on the way.
 *
 * A reader checks that it finds the key of its port's map and the announced number of rows. If each
 * firing takes its own slot, the reader also checks that the data was made in the same tick. Free
 * slots and the room after valid rows hold poison, which is neither a valid number nor a valid id.
 * The address sanitizer also forbids access to free slots.
 *
 * A tag belongs to the owner of its slot. */
#ifndef SLUICE_ACTORS_RUN_TAGS_H
#define SLUICE_ACTORS_RUN_TAGS_H

#include "actors/run/poison.h"
#include "actors/run/ready.h"

static inline const char *register_name(const reg *r) {
  return r->contents.named->regs[r->id].name;
}

/* Formats a tag: "key 3 of register act.b@0". */
enum { TAG_TEXT = 128 };
static inline const char *tag_format(char text[TAG_TEXT], const reg *r, const slot_tag *t) {
  if (t->reg == SL_NONE) snprintf(text, TAG_TEXT, "nothing");
  else
    snprintf(text, TAG_TEXT, "key %lld of register %s%s", (long long)t->key,
             r->contents.named->regs[t->reg].name, t->ready ? "" : ", which is incomplete");
  return text;
}

/* ---- writers ------------------------------------------------------------------------ */

/* Tags a slot that is taken, and checks that it was free. On the producer's worker. */
static NOINLINE void tag_taken(reg *r) {
  const out_port *p = r->producer;
  slot_tag *t = &r->contents.tags[p->slot];
  char text[TAG_TEXT];
  SLI_CHECK(t->reg == SL_NONE,
            "actor %s takes slot %d of register %s for key %lld, but it holds %s",
            p->actor->plan->name, p->slot, register_name(r), (long long)p->at.key,
            tag_format(text, r, t));
  *t = (slot_tag){.key = p->at.key, .reg = r->id, .rows = -1, .from = -1, .to = -1};
  if (r->contents.owner) *r->contents.owner = r->id;
  if (r->contents.closed) ASAN_UNPOISON_MEMORY_REGION(slot_address(r, p->slot), r->stride);
}

/* Tag of the input that a copy passes on: its one input with bytes. NULL for other actors, whose
 * output belongs to their own tick. */
static inline const slot_tag *copied_tag(const actor *a) {
  const slot_tag *from = NULL;
  for (const in_port *p = a->in; p < a->in_end && a->bound.checks.copies; p++)
    if (!(p->at.now->flags & SL_SKIP) && p->reg->stride)
      from = &p->reg->contents.tags[*p->entry - 1];
  return from;
}

/* Adds the firing's tick to the tags of its outputs. */
static NOINLINE void tag_outputs(const actor *a) {
  const slot_tag *copied = copied_tag(a);
  for (const out_port *p = a->out; p < a->out_end; p++) {
    if (p->at.now->flags & SL_SKIP || p->reg->carried) continue;
    slot_tag *t = &p->reg->contents.tags[p->slot];
    int64_t from = copied ? copied->from : a->tick_number,
            to = copied ? copied->to : a->tick_number;
    bool first = p->at.now->flags & SL_FIRST;
    t->from = first ? from : SLI_MIN(t->from, from);
    t->to = first ? to : SLI_MAX(t->to, to);
    t->moved = copied && p->reg->contents.lengths ? copied->rows : -1;
  }
}

/* Tags a slot as complete. `known`: the firing is complete as well, so the number of its rows is
 * known. */
static NOINLINE void tag_ready(const out_port *p, bool known) {
  const reg *r = p->reg;
  if (r->carried) return;
  slot_tag *t = &r->contents.tags[p->slot];
  t->ready = true;
  t->rows = known && r->contents.lengths ? r->contents.lengths[p->slot] : -1;
  SLI_CHECK(t->moved < 0 || t->rows < 0 || t->moved == t->rows,
            "actor %s delivers %d of the %d rows that key %lld of register %s has",
            p->actor->plan->name, t->rows, t->moved, (long long)t->key, register_name(r));
}

/* Tags a slot as free after its last reader. */
static NOINLINE void tag_free(reg *r, int32_t slot) {
  r->contents.tags[slot].reg = SL_NONE;
  close_slot(r, slot);
}

/* ---- readers ------------------------------------------------------------------------ */

static void check_tick(const actor *a, const in_port *p, const slot_tag *t) {
  bool whole = p->reg->contents.named->ticked && (p->at.now->flags & SL_FIRST) &&
               (p->at.now->flags & SL_LAST);
  if (!whole || t->from < 0 || t->from != t->to || p->reg->contents.lags ||
      a->bound.checks.copies || a->bound.checks.repeats)
    return;
  SLI_CHECK(t->from == a->tick_number,
            "actor %s reads key %lld of register %s in tick %lld, but it was made in tick %lld",
            a->plan->name, (long long)t->key, register_name(p->reg), (long long)a->tick_number,
            (long long)t->from);
}

static void check_input(const actor *a, const in_port *p) {
  const reg *r = p->reg;
  int32_t slot = *p->entry - 1;
  const slot_tag *t = &r->contents.tags[slot];
  char text[TAG_TEXT];
  SLI_CHECK(t->reg == r->id && t->key == p->at.key && t->ready,
            "actor %s reads key %lld of register %s in slot %d, but that holds %s", a->plan->name,
            (long long)p->at.key, register_name(r), slot, tag_format(text, r, t));
  SLI_CHECK(!r->contents.owner || *r->contents.owner == r->id,
            "actor %s reads key %lld of register %s, which register %s has overwritten",
            a->plan->name, (long long)p->at.key, register_name(r),
            r->contents.named->regs[*r->contents.owner].name);
  SLI_CHECK(t->rows < 0 || t->rows == r->contents.lengths[slot],
            "actor %s reads %d rows of key %lld of register %s, but %d are valid", a->plan->name,
            r->contents.lengths[slot], (long long)p->at.key, register_name(r), t->rows);
  check_tick(a, p, t);
}

static NOINLINE void check_inputs(const actor *a) {
  for (const in_port *p = a->in; p < a->in_end; p++)
    if (!(p->at.now->flags & SL_SKIP)) check_input(a, p);
}

#endif
