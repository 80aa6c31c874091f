/* SPDX-License-Identifier: Apache-2.0 */
/* Token flow: derives from the number of each actor's firings which keys are ready, which slots are
 * in use, and what each actor lacks for its next firing.
 *
 *   - A port's map gives the key that a firing takes there (FIRST) and releases (LAST).
 *   - A key is ready once its producer has released it. Keys below `initial` are ready from the
 *     start, and so are all keys of a register without a producer.
 *   - A slot is in use from the start of the firing that takes it for a key until the key is
 *     ready and each reader has given it back. A reader must give back every key from its
 *     map's first one on. Initial keys have slots from the start; those that no reader
 *     takes are free immediately, except in a pool.
 *   - A register may take a slot while fewer are in use than it has. Registers that share
 *     slots count as one; a register in a pool also needs the pool's permission.
 *   - A pool admits a register that uses fewer slots than are reserved for it. It admits any other
 *     if slots in use and unused reserved slots leave one over.
 *
 * The event loop keeps these facts as counters that messages update. All other code uses this
 * file. */
#ifndef SLUICE_ACTORS_PLAN_FLOW_H
#define SLUICE_ACTORS_PLAN_FLOW_H

#include <sluice/plan.h>

#include "base/base.h"

/* ---- maps ------------------------------------------------------------------------- */

/* Key that firing n takes at a port, or -1 if it takes none. Keys count from 0. */
int64_t sli_flow_taken(const sl_plan *plan, const sl_port *port, int64_t n);

/* ---- pools ------------------------------------------------------------------------- */

/* Fill level of a pool. */
typedef struct sli_level {
  int32_t quota;
  int32_t used; /* slots of all its registers in use */
  int32_t kept; /* slots reserved for registers and not in use */
} sli_level;

/* Operations for a register with `used` slots in use and `kept` reserved. It joins the pool, asks
 * for one more slot, takes one, or has freed one and now uses `used`. */
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

/* Index of each register's readers. The plan must be finished and outlive the index. */
typedef struct sli_flow sli_flow;
sli_flow *sli_flow_create(const sl_plan *plan);
void sli_flow_destroy(sli_flow *flow);

/* A register's readers [*count], in the order of actors and their ports. */
typedef struct sli_reader {
  int32_t actor, map;
  int64_t first_key; /* first key that it must give back */
} sli_reader;
const sli_reader *sli_flow_readers(const sli_flow *flow, int32_t reg, int32_t *count);

/* Progress of a plan. Any negative number means unknown. */
typedef struct sli_flow_state {
  const int64_t *fired; /* [nactors] firings completed */
  const int64_t *begun; /* [nactors] firings begun; NULL: only those completed */
  const int32_t *slots; /* [nregs] slots that exist; NULL, or unknown: the quotas */
} sli_flow_state;

bool sli_flow_is_ready(const sli_flow *flow, const sli_flow_state *at, int32_t reg, int64_t key);

/* Slots of a register in use, including those of registers that share them. *holder: an actor that
 * holds the oldest, SL_NONE if unknown. */
int32_t sli_flow_used(const sli_flow *flow, const sli_flow_state *at, int32_t reg, int32_t *holder);

/* Number of readers that must give a key back before its slot is free. */
int32_t sli_flow_answers(const sli_flow *flow, int32_t reg, int64_t key);

sli_level sli_flow_level(const sli_flow *flow, const sli_flow_state *at, int32_t pool);

/* Missing input, slot or pool credit of a port for the actor's next firing. */
typedef struct sli_lack {
  enum { SLI_LACKS_NOTHING, SLI_LACKS_INPUT, SLI_LACKS_SLOT, SLI_LACKS_POOL } what;
  int64_t key;
  int32_t reg;
  int32_t on; /* actor that makes the key or holds the slot; SL_NONE if unknown */
} sli_lack;
sli_lack sli_flow_input(const sli_flow *flow, const sli_flow_state *at, int32_t actor,
                        int32_t port);
/* Outputs take their slots in order: earlier ones draw on the same pool first. */
sli_lack sli_flow_output(const sli_flow *flow, const sli_flow_state *at, int32_t actor,
                         int32_t port);
/* First thing that any of its ports lacks. Inputs come first, except those with an unknown
 * producer: data made in another process may be here already. */
sli_lack sli_flow_lack(const sli_flow *flow, const sli_flow_state *at, int32_t actor);

#endif
