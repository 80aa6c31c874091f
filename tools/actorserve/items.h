/* SPDX-License-Identifier: Apache-2.0 */
/* Items of an answer, in order: texts, reasoning and calls. */
#ifndef SLUICE_TOOLS_ACTORSERVE_ITEMS_H
#define SLUICE_TOOLS_ACTORSERVE_ITEMS_H

#include "tools/actorserve/request.h"

typedef struct response_item {
  answer_kind kind; /* CONTENT, REASONING or CALL */
  size_t begin; /* offset of its text in the choice's content or reasoning, or index of its call */
  size_t end;
} response_item;

typedef struct response {
  response_item *items;
  size_t count, room;
  int events; /* number of events so far */
} response;

response *response_create(void);
void response_destroy(response *x);
/* Handles a piece, which the choice has kept. Returns whether it begins an item. */
bool response_note(choice *c, const answer_piece *piece);
/* Returns the text of an item: of a call its arguments. */
const char *response_item_text(const choice *c, const response_item *x, size_t *bytes);

#endif
