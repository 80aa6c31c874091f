/* Modelled durations: given, measured, or estimated by what ops cost. */
#include "graph/lower/ir.h"
#include "graph/passes/passes.h"

/* Of one call with these types, by the op's cost. */
static double estimated_seconds(const sli_lowering *l, const sli_node *n, const sl_type *in,
                                const sl_type *out) {
  const sl_hardware *hardware = l->in->options->hardware;
  if (!hardware) return sli_call_seconds(n, in, out);
  double flops, bytes;
  sli_call_cost(n, in, out, &flops, &bytes);
  return SLI_MAX(flops / hardware->flops_per_second, bytes / hardware->bytes_per_second) +
         hardware->op_seconds;
}

/* Of one node: as measured by an earlier run, or as its op's cost says; where
 * pieces differ, their mean. */
static double node_seconds(const sli_lowering *l, const sli_node *n) {
  const sl_lower_options *o = l->in->options;
  double seconds = o->op_seconds ? o->op_seconds(o->op_seconds_ctx, n->name) : -1, sum = 0;
  if (seconds >= 0) return seconds;
  if (!n->shapes) return estimated_seconds(l, n, n->in_type, n->out_type);
  for (int k = 0; k < l->in->k; k++) {
    const sli_shapes *shapes = &n->shapes[l->pieces[k].variant];
    sum += estimated_seconds(l, n, shapes->in, shapes->out);
  }
  return sum / l->in->k;
}

double sli_lower_seconds(const sli_lowering *l, const sli_group *g) {
  const sl_cost *c = &l->in->options->cost;
  if (c->F > 0 || c->B > 0 || c->W > 0) {
    double share = l->in->options->chunks ? 1 : 1.0 / l->pick.v; /* costs of a device's share */
    share /= l->in->k;                                      /* and of a whole microbatch */
    if (g->cls == SL_CLASS_F) return share * c->F;
    if (g->cls == SL_CLASS_B) return share * (l->pick.split ? c->B : c->B + c->W);
    return g->cls == SL_CLASS_W ? share * c->W : 0;
  }
  double seconds = 0;
  for (int i = 0; i < g->nnodes && !g->host; i++) seconds += node_seconds(l, g->nodes[i]);
  return g->cls == SL_CLASS_C ? seconds + sli_lower_exchange_seconds(l, g) : seconds;
}
