/* SPDX-License-Identifier: Apache-2.0 */
/* Default values of optimizer settings. */
#include <sluice/ops.h>
#include <sluice/optimizer.h>

/* Returns the first value that is not 0: the given one, the op's default, or the general default.
 * SL_OFF gives 0. */
static float chosen(float given, float rows, float otherwise) {
  float value = given != 0 ? given : rows != 0 ? rows : otherwise;
  return value == SL_OFF ? 0 : value;
}

sl_optimizer sl_optimizer_defaults(const sl_optimizer *given) {
  sl_optimizer o = given ? *given : (sl_optimizer){0};
  if (!o.rule) o.rule = &sl_op_adamw;
  const sl_optimizer none = {0}, *rows = o.rule->update ? &o.rule->update->defaults : &none;
  o.lr = chosen(o.lr, rows->lr, 1e-3f);
  o.min_lr = chosen(o.min_lr, rows->min_lr, o.lr / 10);
  o.beta1 = chosen(o.beta1, rows->beta1, 0.9f);
  o.beta2 = chosen(o.beta2, rows->beta2, 0.95f);
  o.eps = chosen(o.eps, rows->eps, 1e-8f);
  o.weight_decay = chosen(o.weight_decay, rows->weight_decay, 0);
  o.clip = chosen(o.clip, rows->clip, 1);
  o.momentum = chosen(o.momentum, rows->momentum, 0);
  o.nesterov |= rows->nesterov;
  o.adamw_lr = chosen(o.adamw_lr, rows->adamw_lr, 1e-3f);
  o.lr_scale = chosen(o.lr_scale, rows->lr_scale, 1);
  if (o.schedule == SL_RATE_DEFAULT)
    o.schedule = o.decay_steps > 0 ? SL_RATE_COSINE : SL_RATE_CONSTANT;
  if (!o.decay_begin) o.decay_begin = o.decay_steps - o.decay_steps / 10;
  return o;
}
