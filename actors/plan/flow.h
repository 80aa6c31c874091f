/* Token flow: from how often each actor has fired follows which keys are ready, which slots
 * are in use, and what any actor lacks for its next firing.
 *
 *   - A port's map says which key a firing takes there (FIRST) and gives up (LAST).
 *   - A key is ready once its producer has given it up. Keys below `initial` are so from the
 *     start, and so is what nobody writes.
 *   - A slot is in use from the start of the firing that takes it for a key until the key is
 *     ready and each reader has given it back. A reader owes an answer to every key from its
 *     map's first one on. Initial keys have slots from the start; those that no reader asks
 *     for are free at once, but for those of a pool.
 *   - A register may take a slot while fewer are in use than it has. Registers that share
 *     slots count as one; one that draws on a pool needs the pool's leave besides.
 *   - A pool admits a register that has fewer slots in use than are kept for it, and any other
 *     as long as the slots in use and those kept but not in use leave one over.
 *
 * The event loop keeps these facts as counters that messages move; everybody else asks here. */
#ifndef SLUICE_ACTORS_FLOW_H
#define SLUICE_ACTORS_FLOW_H

#include <sluice/plan.h>

#include "base/base.h"

/* ---- maps ------------------------------------------------------------------------- */

/* The key that firing n takes at a port, or -1: it takes none. Keys count from 0. */
int64_t sli_flow_taken(const sl_plan *plan, const sl_port *port, int64_t n);

/* ---- pools ------------------------------------------------------------------------- */

/* How full a pool is. */
typedef struct sli_level {
  int32_t quota;
  int32_t used; /* slots of all its registers in use */
  int32_t kept; /* slots kept for registers and not in use */
} sli_level;

/* A register with `used` slots in use, of which `kept` are kept for it, joins; may take one
 * more; takes one more; has got one back and has `used` now. */
static inline void sli_level_join(sli_level *l, int32_t used, int32_t kept) {
  l->used += used;
  l->kept += SLI_MAX(kept - used, 0);
}
static inline bool sli_level_admits(const sli_level *l, int32_t used, int32_t kept) {
  return used < kept || l->used + l->kept < l->quota;
}
static inline void sli_level_take(sli_level *l, int32_t used, int32_t kept) {
  l->used++;
  l->kept -= used < kept;
}
static inline void sli_level_free(sli_level *l, int32_t used, int32_t kept) {
  l->used--;
  l->kept += used < kept;
}

/* ---- a plan in flow ------------------------------------------------------------------ */

/* Who reads each register. Of a finished plan, which must outlive it. */
typedef struct sli_flow sli_flow;
sli_flow *sli_flow_create(const sl_plan *plan);
void sli_flow_destroy(sli_flow *flow);

/* How far a plan is. What is not known of an actor may be any number below 0. */
typedef struct sli_flow_state {
  const int64_t *fired; /* [nactors] firings complete */
  const int64_t *begun; /* [nactors] and begun; NULL: no other ones */
  const int32_t *slots; /* [nregs] slots there are; NULL, or not known: the quotas */
} sli_flow_state;

bool sli_flow_is_ready(const sli_flow *flow, const sli_flow_state *at, int32_t reg, int64_t key);

/* Slots of a register in use, with those it shares; *who: an actor that has the oldest,
 * SL_NONE if that is not known. */
int32_t sli_flow_used(const sli_flow *flow, const sli_flow_state *at, int32_t reg, int32_t *who);

/* Answers that a key gets in all before its slot is free. */
int32_t sli_flow_answers(const sli_flow *flow, int32_t reg, int64_t key);

sli_level sli_flow_level(const sli_flow *flow, const sli_flow_state *at, int32_t pool);

/* What a port lacks for the actor's next firing. */
typedef struct sli_lack {
  enum { SLI_LACKS_NOTHING, SLI_LACKS_INPUT, SLI_LACKS_SLOT, SLI_LACKS_POOL } what;
  int64_t key;
  int32_t reg;
  int32_t on; /* the actor that could help: who makes the key, or has the slot; SL_NONE */
} sli_lack;
sli_lack sli_flow_input(const sli_flow *flow, const sli_flow_state *at, int32_t actor, int32_t port);
/* Outputs take their slots one after another: those before it draw on the same pool. */
sli_lack sli_flow_output(const sli_flow *flow, const sli_flow_state *at, int32_t actor,
                         int32_t port);
/* The first that any of its ports lacks; inputs come first, but for those of which nobody
 * knows: what is made elsewhere may be here already. */
sli_lack sli_flow_lack(const sli_flow *flow, const sli_flow_state *at, int32_t actor);

#endif
