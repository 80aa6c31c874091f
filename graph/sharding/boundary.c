/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that cross a stage boundary in parts (--boundary scattered).
 *
 * All devices of the tensor axis have such a tensor, and each would send all of it to the device of
 * its rank in the next stage. Instead, each device sends one part, and the receivers gather the
 * parts from each other (Narayanan et al., arXiv 2104.04473, section 4.1): a slice with the pass
 * that makes the tensor, a copy where the part arrives, and a join of the copies. All passes of the
 * receiving stage read the joined tensor, which is never recomputed.
 *
 * Tensors that lie in parts before the boundary and are made whole behind it are joined in the same
 * way, from copies that have arrived. */
#include "graph/sharding/box.h"

enum { SMALL_BYTES = 4096 }; /* not worth an exchange */

static int place_at(const sli_expansion *x, const sli_moment *at) {
  bool passes = at->block >= 0 && at->phase == SLI_PHASE_MAIN && !at->sharded;
  return passes && at->cls != SL_CLASS_L ? x->grid->place_of[at->block] : SL_NONE;
}

static bool is_forward(sl_class cls) { return cls == SL_CLASS_F || cls == SL_CLASS_L; }

bool sli_box_crosses(const sli_boxing *b) {
  const sli_expansion *x = b->x;
  if (!x->grid->place_of || b->along != sli_axis_factors(SLI_AXIS_TENSOR)) return false;
  int from = place_at(x, &b->from->made), to = place_at(x, &b->to->made);
  return from != SL_NONE && to != SL_NONE && from != to;
}

static bool is_replicated(const sli_layout *layout) {
  bool all = true;
  for (int a = 0; a < SLI_AXES; a++)
    all &= !(sli_axis_factors(SLI_AXIS_TENSOR) >> a & 1) || layout->axis[a].kind == SL_BROADCAST;
  return all;
}

bool sli_is_scattered(const sli_expansion *x, const sl_tensor *t, const sli_layout *want,
                      const sli_moment *at) {
  const sli_array *have = x->arrays[t->id];
  if (!x->grid->place_of || t->param || sli_choice_size(x->grid, SLI_AXIS_TENSOR) < 2) return false;
  int from = place_at(x, &have->made), to = place_at(x, at);
  return from != SL_NONE && to != SL_NONE && from != to && is_replicated(want) &&
         sli_layout_equal(&have->layout, want) &&
         sl_type_bytes(sli_expand_type(x, have->on[0], 0)) > SMALL_BYTES;
}

sli_array *sli_find_gathered(const sli_expansion *x, const sl_tensor *t, const sli_moment *at) {
  for (sli_array *a = x->arrays[t->id]->next; a; a = a->next)
    if (a->gathered && place_at(x, &a->made) == place_at(x, at) &&
        (a->kept || is_forward(a->made.cls) == is_forward(at->cls)))
      return a;
  return NULL;
}

sl_status sli_box_arrive(sli_boxing *b, sl_tensor *const *sent, sl_tensor **out) {
  sl_attrs *attrs = sli_arena_alloc(&b->x->g->arena, (size_t)b->x->nvariants * sizeof *attrs);
  for (int r = 0; r < b->ranks; r++) {
    sli_node *n;
    const sli_box_making m = {&sl_op_copy, "arrive", SL_CLASS_C, false, r,
                              1,           &sent[r], attrs,      NULL};
    SLI_TRY(sli_box_node(b, &m, &n, &out[r]));
    n->arrives = true;
  }
  return SL_OK;
}
