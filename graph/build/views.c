/* Tensors put together and taken apart, as calls. */
#include "graph/build/build.h"

/* Bit d; where there is no such dim the shape rule has something to say. */
static uint32_t axis_bit(const sl_tensor *x, int dim) {
  if (x && dim < 0) dim += x->type.ndim;
  return dim >= 0 && dim < 32 ? 1u << dim : 0;
}

sl_tensor *sl_concat_at(sl_here at, sl_graph *g, int dim, int count, sl_tensor *const *tensors) {
  const sl_attrs attrs = {.axes = axis_bit(count > 0 ? tensors[0] : NULL, dim)};
  sl_tensor *out = NULL;
  sl_apply_at(at, g, &sl_op_concat, &attrs, count, tensors, 0, &out);
  return out;
}
