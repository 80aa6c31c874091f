/* The learning rate of a step. */
#include <sluice/optimizer.h>

#include <math.h>

float sl_optimizer_lr(const sl_optimizer *o, int64_t step) {
  if (step < o->warmup) return o->lr * (float)(step + 1) / (float)o->warmup;
  if (o->decay_steps <= 0) return o->lr;
  if (step >= o->decay_steps) return o->min_lr;
  double done = (double)(step - o->warmup) / (double)(o->decay_steps - o->warmup);
  return (float)(o->min_lr + 0.5 * (1.0 + cos(M_PI * done)) * ((double)o->lr - o->min_lr));
}
