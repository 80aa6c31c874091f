/* SPDX-License-Identifier: Apache-2.0 */
/* Advancing an actor: the consequences of a firing, before its next one.
 *
 * Every port moves one step along its key map. At the end of a key, an output announces its
 * complete slot and an input gives its slot back. The port then checks whether the next firing has
 * what it needs. The actor's tick advances as well; at the end of a step the gate decides whether
 * the next one begins. */
#ifndef SLUICE_ACTORS_RUN_ADVANCE_H
#define SLUICE_ACTORS_RUN_ADVANCE_H

#include "actors/run/tell.h"

/* Asks for the next step. An actor that does not fire in every step does not ask: its inputs
 * trigger it, and it must not begin the steps up to its own. */
static void ask_gate(worker *w, actor *a) {
  a->gated = a->every == 1 && !gate_begin(&w->rt->gate, a->step);
  a->missing += a->gated;
}

static inline void next_tick(worker *w, actor *a) {
  const tick_step *t = a->tick;
  a->fired++;
  a->tick_number += t->delta;
  a->tick = t->next;
  if (LIKELY(!t->turns)) return;
  look_at_tick(w->rt, a);
  if (!t->last) return;
  a->step += a->every;
  ask_gate(w, a);
}

static inline void look_at_input(in_port *p) {
  p->entry = &p->ready[p->at.key & p->mask];
  if ((p->at.now->flags & SL_FIRST) && !*p->entry) {
    p->waiting = true;
    p->actor->missing++;
  }
}

static inline void look_at_output(out_port *p) {
  if ((p->at.now->flags & SL_FIRST) && !p->reg->nfree) {
    p->waiting = true;
    p->actor->missing++;
  }
}

static inline void note(flight *f, sli_message_kind kind, reg *r, int64_t key, int32_t slot) {
  *f->end++ = (notice){r, key, slot, kind};
}

/* Announces an output's complete slot. If the firing is complete (no flight), all consumers are
 * notified now. Otherwise only those behind it on its queue and fenced ones are, and the flight
 * notes the rest. */
static inline void announce(worker *w, out_port *p, flight *f) {
  reg *r = p->reg;
  int32_t slot = p->slot;
  if (LIKELY(r->only && (!f || r->nsame))) {
    slot_ready(w, r->only, p->at.key, slot);
    return;
  }
  if (r->only && !r->fences) {
    note(f, SLI_READY, r, p->at.key, slot);
    return;
  }
  r->pending[slot] = r->nconsumers;
  if (UNLIKELY(r->contents.tags != NULL)) tag_ready(p, !f);
  if (!r->nconsumers) {
    r->pending[slot] = 1;
    slot_free(w, r, slot);
  } else if (!f) {
    tell_ready(w, r, p->at.key, slot);
  } else if (LIKELY(!r->fences)) {
    for (int32_t i = 0; i < r->nsame; i++) slot_ready(w, r->consumers[i], p->at.key, slot);
    if (r->nsame < r->nconsumers) note(f, SLI_READY, r, p->at.key, slot);
  } else if (tell_ready_early(w, r, p->at.key, slot, f->fence)) {
    note(f, SLI_READY, r, p->at.key, slot);
  }
}

static inline void give_back(worker *w, in_port *p, flight *f) {
  int32_t slot = *p->entry - 1;
  *p->entry = 0;
  if (LIKELY(p->reg->only && (!f || p->early))) add_free(w, p->reg, slot);
  else if (!f || p->early) tell_free(w, p->reg, p->at.key, slot);
  else if (p->fenced) tell_free_early(w, p, p->at.key, slot, f->fence);
  else note(f, SLI_FREE, p->reg, p->at.key, slot);
}

/* Moves every port one step on and sends the resulting notifications. Outputs go first, because
 * consumers wait for them. */
static ALWAYS_INLINE void advance(worker *w, actor *a, flight *f, bool plain) {
  a->missing = 1; /* keeps the actor from becoming runnable before every port has been checked */
  for (out_port *p = a->out; p < a->out_end; p++) {
    if (p->at.now->flags & SL_LAST) announce(w, p, f);
    walk_next(&p->at);
    look_at_output(p);
  }
  for (in_port *p = a->in; p < a->in_end; p++) {
    if (p->at.now->flags & SL_LAST) give_back(w, p, f);
    walk_next(&p->at);
    look_at_input(p);
  }
  next_tick(w, a);
  if (!plain && UNLIKELY(a->notifies)) notify_lazy(w, a);
  if (LIKELY(--a->missing)) return;
  a->cause = SL_WAIT_NONE;
  make_runnable(w, a);
}

#endif
