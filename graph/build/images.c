/* SPDX-License-Identifier: Apache-2.0 */
/* Calls for image ops. */
#include "graph/build/build.h"

static sl_attrs attrs_of(sl_graph *g, const sl_window *window) {
  sl_window *copy = window ? sl_graph_alloc(g, sizeof *copy) : NULL;
  if (copy) *copy = *window;
  return (sl_attrs){.user = copy};
}

sl_tensor *sl_conv_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *w, sl_tensor *b,
                      const sl_window *window) {
  const sl_attrs attrs = attrs_of(g, window);
  return b ? sl_op3_at(at, g, &sl_op_conv, &attrs, x, w, b)
           : sl_op2_at(at, g, &sl_op_conv, &attrs, x, w);
}

sl_tensor *sl_max_pool_at(sl_here at, sl_graph *g, sl_tensor *x, const sl_window *window) {
  const sl_attrs attrs = attrs_of(g, window);
  return sl_op1_at(at, g, &sl_op_max_pool, &attrs, x);
}

sl_tensor *sl_mean_pool_at(sl_here at, sl_graph *g, sl_tensor *x, const sl_window *window) {
  const sl_attrs attrs = attrs_of(g, window);
  return sl_op1_at(at, g, &sl_op_mean_pool, &attrs, x);
}
