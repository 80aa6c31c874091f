/* SPDX-License-Identifier: Apache-2.0 */
/* Call for cross entropy with weighted targets: computes the total weight of a microbatch's
 * targets, and divides the loss by it. */
#include <math.h>

#include "graph/build/build.h"

static sl_status loss_refuse(sl_here at, sl_graph *g, const char *text) {
  return sli_graph_fail_at(g, at, SL_E_USAGE, "sl_cross_entropy_with: %s", text);
}

static sl_status loss_check(sl_here at, sl_graph *g, const sl_loss *loss, int64_t classes) {
  if (!(loss->smoothing >= 0 && loss->smoothing <= 1))
    return loss_refuse(at, g,
                       sli_arena_format(&g->arena, "smoothing must be from 0 to 1, not %g",
                                        (double)loss->smoothing));
  for (int64_t c = 0; loss->weights && c < classes; c++)
    if (!(loss->weights[c] >= 0 && loss->weights[c] < INFINITY))
      return loss_refuse(
          at, g,
          sli_arena_format(&g->arena,
                           "class %lld has weight %g: weights must be finite and not negative",
                           (long long)c, (double)loss->weights[c]));
  return SL_OK;
}

sl_tensor *sl_cross_entropy_with_at(sl_here at, sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                                    const sl_loss *loss) {
  static const sl_loss plain;
  int64_t classes = sl_dim(logits, -1);
  if (sli_objective(g)) return sli_objective_loss(at, g, logits, targets);
  if (!loss) loss = &plain;
  if (!logits || !targets || loss_check(at, g, loss, classes)) return NULL;
  const sl_attrs attrs = {.loss.ignore = loss->ignore,
                          .loss.smoothing = loss->smoothing,
                          .loss.spread = loss->smoothing / (float)SLI_MAX(classes, 1)};
  const sl_attrs counted = {.loss.ignore = loss->ignore};
  sl_tensor *weights = NULL;
  if (loss->weights) weights = sl_constant_at(at, g, SL_TYPE(SL_F32, classes), loss->weights, NULL);
  int n = weights != NULL;
  sl_tensor *total = NULL, *out[2] = {NULL};
  sl_apply_at(at, g, &sl_op_target_weight, &counted, 1 + n, (sl_tensor *[]){targets, weights}, 0,
              &total);
  sl_apply_at(at, g, &sl_op_weighted_cross_entropy, &attrs, 3 + n,
              (sl_tensor *[]){logits, targets, total, weights}, 0, out);
  return out[0];
}

/* ---- loss of logits
 * --------------------------------------------------------------------------- */

static bool reads_classifier(const sli_node *n) {
  const sl_tensor *logits = n->nin && n->in[0] ? n->in[0] : NULL;
  return logits && logits->producer && sli_op_weight(logits->producer->op) == SL_WEIGHT_PRODUCT &&
         n->nin > 1;
}

/* Returns the first summand of a loss, or of a device's part of it, that reads a classifier's
 * logits, or NULL if none does. */
static const sli_node *summand_of_logits(const sli_node *n) {
  if (!n || reads_classifier(n)) return n;
  if (n->op == &sl_op_share) return summand_of_logits(n->in[0]->producer);
  if (n->op != &sl_op_add && n->op != &sl_op_add_broadcast) return NULL;
  const sli_node *of = summand_of_logits(n->in[0]->producer);
  return of ? of : summand_of_logits(n->in[1]->producer);
}

const sli_node *sli_loss_of_logits(const sl_graph *g) {
  const sli_node *of = summand_of_logits(g->loss.tensor->producer);
  return of ? of : g->loss.tensor->producer;
}
