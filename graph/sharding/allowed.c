/* SPDX-License-Identifier: Apache-2.0 */
/* Filters the ways of an op by the number of devices: each device must get units of every split
 * dim, and exact sums must stay exact. */
#include "graph/sharding/search.h"

static const sl_sbp broadcast = {SL_BROADCAST, 0};

/* Devices that shard a call. */
typedef struct sharers {
  const sli_dim *dims;
  int axis, size;
} sharers;

/* True if each device gets a part of this argument. */
static bool enough(const sharers *x, sl_sbp sbp, const sl_type *type, const sl_tensor *t) {
  if (sbp.kind != SL_SPLIT) return true;
  const sli_dim *dim = t ? &x->dims[t->id * SL_MAX_DIMS + sbp.dim] : NULL;
  bool positions = !dim || (dim->cut && sli_axes[x->axis].rows);
  return (positions ? type->dim[sbp.dim] : dim->units) >= x->size;
}

static bool possible(const sharers *x, const sli_node *n, sl_signature *s) {
  if (s->out[0].kind == SL_DISPATCHED && x->axis != SLI_AXIS_EXPERT) return false;
  for (int i = 0; i < n->nin; i++) {
    const sl_tensor *t = n->in[i];
    if (!t && i < SL_SIGNATURE_ARGS) s->in[i] = broadcast;
    else if (t && !enough(x, sli_signature_in(s, i), &n->in_type[i], t)) return false;
  }
  for (int o = 0; o < n->nout; o++)
    if (!enough(x, sli_signature_out(s, o), &n->out_type[o], n->out[o])) return false;
  bool rows = sli_axes[x->axis].rows;
  return rows || !n->attrs.numbers.exact || sli_is_way_exact(x->dims, n, s, x->size);
}

int sli_signatures(const sli_dim *dims, const sli_node *node, int axis, int size,
                   sl_signature *out) {
  sl_signature all[SLI_SIGNATURES_RAW];
  const sharers x = {dims, axis, size};
  int raw = sli_signatures_raw(node, all), count = 0;
  for (int i = 0; i < raw && count < SL_SIGNATURES; i++)
    if (possible(&x, node, &all[i])) out[count++] = all[i];
  return count;
}
