/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/items.h"

#include <stdlib.h>

#include "base/base.h"

response *response_create(void) { return sli_calloc(1, sizeof(response)); }

void response_destroy(response *x) {
  if (!x) return;
  free(x->items);
  free(x);
}

bool response_note(choice *c, const answer_piece *piece) {
  response *x = c->response;
  response_item *last = x->count ? &x->items[x->count - 1] : NULL;
  if (piece->kind == ANSWER_ARGUMENTS) return false;
  const kept_text *text = piece->kind == ANSWER_REASONING ? &c->reasoning : &c->content;
  bool begins = !last || last->kind != piece->kind || piece->kind == ANSWER_CALL;
  if (begins) {
    bool call = piece->kind == ANSWER_CALL;
    SLI_GROW(x->items, x->count, x->room);
    last = &x->items[x->count++];
    *last = (response_item){piece->kind, call ? c->ncalls - 1 : text->bytes - piece->bytes, 0};
  }
  last->end = text->bytes;
  return begins;
}

const char *response_item_text(const choice *c, const response_item *x, size_t *bytes) {
  const kept_text *from = x->kind == ANSWER_REASONING ? &c->reasoning : &c->content;
  bool call = x->kind == ANSWER_CALL;
  if (call) from = &c->calls[x->begin].arguments;
  *bytes = call ? from->bytes : x->end - x->begin;
  return from->text ? from->text + (call ? 0 : x->begin) : "";
}
