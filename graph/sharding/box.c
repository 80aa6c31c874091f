/* SPDX-License-Identifier: Apache-2.0 */
/* Creates the nodes that convert a tensor between layouts: places them and records their reads from
 * other devices. */
#include "graph/sharding/box.h"
#include "ops/collective.h"

static sli_moment moment_of(const sli_boxing *b, bool near) {
  sli_moment at = b->to->made;
  if (near && at.phase == SLI_PHASE_MAIN) at.block = b->from->made.block;
  at.sharded = b->to->sharded;
  return at;
}

int sli_box_axis(sli_along along) {
  int i = 0;
  while (!(along >> sli_splitting[i] & 1)) i++;
  return sli_splitting[i];
}

sl_class sli_box_class(const sli_boxing *b) {
  return b->to->made.phase == SLI_PHASE_MAIN ? b->to->made.cls : SL_CLASS_C;
}

/* Returns the bytes that a call reads from other devices of its stage: for a join everything except
 * its own part, for a sum its part of each remote summand. */
static double remote_bytes(const sli_boxing *b, const sli_node *n, const sl_attrs *attrs,
                           const sl_type *in, const sl_type *out) {
  if (sli_is_collective(n->op)) return sli_collective_received(n->op, attrs, in, out);
  if (n->nin != b->members || n->cls != SL_CLASS_C || sli_box_between_stages(b)) return 0;
  if (n->in[0]->producer && n->in[0]->producer->op == &sl_op_all_to_all)
    return 0; /* here already */
  int own = sli_rank_share(b->x->grid, n->rank, b->along);
  if (n->op == &sl_op_join || n->op == &sl_op_join_rows)
    return (double)(sl_type_bytes(out) - sl_type_bytes(&in[own]));
  return (double)(n->nin - 1) * (double)sl_type_bytes(out);
}

/* Returns the axis that an exchange counts under. Exchanges of parameters and their gradients along
 * row axes all count under the data axis. Other exchanges among experts' devices count under the
 * data axis if these devices shard the data, else under the tensor axis. */
int sli_box_link(const sli_boxing *b) {
  int axis = sli_box_axis(b->along);
  const sli_array *subject = b->x->arrays[b->x->shaped[b->from->tensor->id]];
  bool param = sli_axes[axis].rows && subject && subject->tensor->param;
  if (!param && axis != SLI_AXIS_EXPERT) return sli_axes[axis].parent;
  bool rows = !b->x->grid->folded || sli_grid_size(b->x->grid, b->along & sli_grid_rows()) > 1;
  return rows ? SLI_AXIS_DATA : SLI_AXIS_TENSOR;
}

const sl_part *sli_box_parts(const sli_boxing *b, int rank, int dim, int member) {
  sli_expansion *x = b->x;
  sl_part *parts = sli_arena_alloc(&x->g->arena, (size_t)x->nvariants * sizeof *parts);
  for (int v = 0; v < x->nvariants; v++) {
    sli_layout lies = b->to->layout;
    for (int a = 0; a < SLI_AXES; a++)
      if (b->along >> a & 1) lies.axis[a] = (sl_sbp){SL_BROADCAST, 0};
    sl_type base = sli_local_type(x, b->from->tensor, lies, rank, v);
    if (dim >= 0) {
      parts[v] = sli_cut_part(x, b->from->tensor, (sli_cutting){b->along, dim}, member, &base);
      continue;
    }
    int64_t n = sl_type_elements(&base), begin = n * member / b->members;
    parts[v] = (sl_part){SL_PART_FLAT, 1, {begin}, {n * (member + 1) / b->members - begin}};
  }
  return parts;
}

static void note_remote(const sli_boxing *b, sli_node *n) {
  n->remote_axis = sli_box_between_stages(b) ? 0 : sli_box_link(b);
  n->remote_bytes = remote_bytes(b, n, &n->attrs, n->in_type, n->out_type);
  for (int v = 0; v < b->x->nvariants && n->shapes; v++) {
    sli_shapes *s = &n->shapes[v];
    s->remote_bytes = remote_bytes(b, n, &s->attrs, s->in, s->out);
  }
}

sl_status sli_box_node(const sli_boxing *b, const sli_box_making *m, sli_node **node,
                       sl_tensor **out) {
  sli_expansion *x = b->x;
  const char *name =
      sli_arena_format(&x->g->arena, "%s:%s.%d", b->from->tensor->name, m->what, x->nboxes);
  const sli_making making = {.op = m->op,
                             .name = name,
                             .at = moment_of(b, m->near),
                             .cls = m->cls,
                             .rank = m->rank,
                             .nin = m->nin,
                             .nout = m->op->nout < 0 ? m->op->outputs(m->attrs, m->nin) : 1,
                             .in = m->in,
                             .attrs = m->attrs,
                             .out = m->type,
                             .where = b->from->tensor->at};
  sli_node *n;
  sl_status status = sli_expand_node(x, &making, &n);
  if (status) return status;
  note_remote(b, n);
  n->repeats = b->to->kept && m->cls == SL_CLASS_C;
  *node = n;
  bool transient = false;
  for (int i = 0; i < m->nin; i++)
    transient |= m->in[i]->transient || (m->in[i]->param && making.at.phase == SLI_PHASE_MAIN);
  for (int o = 0; o < making.nout; o++) {
    const char *as = o ? sli_arena_format(&x->g->arena, "%s:%d", name, o) : name;
    out[o] = sli_expand_output(x, n, o, sli_expand_name(x, as, m->rank));
    out[o]->transient |= transient;
    if (x->g->skips) /* also for the slices that devices send each other */
      out[o]->layout = sli_arena_format(&x->g->arena, "%s of %s -> %s", m->what,
                                        sli_layout_format(x, &b->from->layout),
                                        sli_layout_format(x, &b->to->layout));
  }
  return SL_OK;
}
