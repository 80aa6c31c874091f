/* SPDX-License-Identifier: Apache-2.0 */
/* Delay edges: tensors of earlier ticks, and with them loops.
 *
 *     sl_tensor *before = sl_delayed(g, SL_TYPE(SL_F32, 4, 16), 3, "state"); // of 3 ticks ago
 *     sl_tensor *now = sl_add(g, before, x);
 *     sl_delay(g, before, now);
 *
 * In a plan a delay is a register that leads back to an earlier actor, `ticks` of whose slots are
 * full at the start, with zeros. The proof counts these slots: a loop needs at least one. No
 * gradient flows through a delay. A tick is a microbatch; ticks of one step follow those of the
 * step before. */
#ifndef SLUICE_DELAY_H
#define SLUICE_DELAY_H

#include <sluice/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the value that a tensor of this type had `ticks` >= 1 ticks ago; zeros in the first
 * ticks. `name` is its name in plans and messages, and is copied. sl_delay() must follow. */
#define sl_delayed(g, type, ticks, name) sl_delayed_at(SL_HERE, g, type, ticks, false, name)
/* Like sl_delayed(), for a tensor of which only the first rows may be valid (sl_op_rows): the value
 * comes with the number of valid rows that it had. In the first ticks all rows are valid. */
#define sl_delayed_rows(g, type, ticks, name) sl_delayed_at(SL_HERE, g, type, ticks, true, name)
sl_tensor *sl_delayed_at(sl_here at, sl_graph *g, sl_type type, int ticks, bool rows,
                         const char *name);
/* Ticks of a step in which a delay is read, and those in which it is written, [microbatches] each,
 * equally often. Values come in the order in which they are written. Such a delay may have no full
 * slots: `ticks` 0, if it is written before it is read. */
typedef struct sl_delay_ticks {
  const bool *reads, *writes;
} sl_delay_ticks;
#define sl_delayed_in(g, type, ticks, in, name) \
  sl_delayed_in_at(SL_HERE, g, type, ticks, true, in, name)
sl_tensor *sl_delayed_in_at(sl_here at, sl_graph *g, sl_type type, int ticks, bool rows,
                            const sl_delay_ticks *in, const char *name);
/* Says which tensor an sl_delayed() is a value of. It may be in any block, earlier or later. */
#define sl_delay(g, delayed, value) sl_delay_at(SL_HERE, g, delayed, value)
void sl_delay_at(sl_here at, sl_graph *g, sl_tensor *delayed, sl_tensor *value);

#ifdef __cplusplus
}
#endif
#endif
