/* SPDX-License-Identifier: Apache-2.0 */
/* Words. All words go through process 0, which forwards them in order of arrival, so words to all
 * processes arrive in the same order everywhere. */
#include "comm/control/control_inner.h"

void sli_word_take(sli_control *c, int from, const char *word, const void *data, size_t bytes) {
  if (c->options.on_word && !c->shared.ended)
    c->options.on_word(c->options.ctx, from, word, data, bytes);
}

/* Forwards a frame unchanged to its target, or to all. */
void sli_word_pass_on(sli_control *c, const sli_frame *frame) {
  for (int k = 1; k < c->nprocesses; k++) {
    sli_frame copy = *frame;
    if (frame->data.target == -1 || frame->data.target == k)
      sli_line_send(c, &c->peers[k].hub, &copy);
  }
}

void sli_order_carry_out(sli_control *c, sli_order *order) {
  if (!sli_is_hub(c)) {
    sli_data_send(c, &c->peers[0].hub, order->kind, c->self, order->target, order->word,
                  order->data, order->bytes);
    sli_meetings_check(c);
  } else if (order->kind == SLI_DATA_MEET) {
    sli_meeting_come(c, 0, order->target, order->word, order->data, order->bytes);
    order->data = NULL;
  } else {
    for (int k = 1; k < c->nprocesses; k++)
      if (order->target == -1 || order->target == k)
        sli_data_send(c, &c->peers[k].hub, SLI_DATA_WORD, 0, order->target, order->word,
                      order->data, order->bytes);
    if (order->target <= 0) sli_word_take(c, 0, order->word, order->data, order->bytes);
  }
}
