/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a server that clients control. All that they make it hold or compute with comes
 * out of one budget: bodies, values, texts, tokens, answers, connections. */
#ifndef SLUICE_TOOLS_ACTORSERVE_BUDGET_H
#define SLUICE_TOOLS_ACTORSERVE_BUDGET_H

#include "base/allowance.h"

typedef struct budget budget;

/* Creates a budget of `most` bytes, for the thread of the event loop. */
sl_status budget_create(size_t most, budget **out);
void budget_destroy(budget *b);
size_t budget_most(const budget *b);
size_t budget_held(budget *b);
/* Counts memory that is held already, or not any more. */
void budget_count(budget *b, size_t more, size_t less);
/* Says whether so many more bytes fit. */
bool budget_fits(budget *b, size_t bytes);
/* Sets a function that ends what clients do not go on with, until so many bytes fit or nothing
 * is left. Called on the event loop's thread. */
void budget_set_maker(budget *b, void (*make_room)(void *ctx, size_t bytes), void *ctx);
/* Other threads wait for room until the event loop calls budget_answer, when the descriptor is
 * readable. */
int budget_fd(const budget *b);
void budget_answer(budget *b);
/* Lets no other thread wait any more. */
void budget_close(budget *b);

/* An account: a request's part of the budget. Zeroed, with budget and `most` set, it is empty. */
typedef struct account {
  budget *budget;
  size_t most, held; /* held: guarded by the budget's lock */
  bool over;         /* more than `most` was asked for */
} account;
/* Takes memory, on any thread; false: there is none. */
bool account_take(account *a, size_t bytes);
void account_give(account *a, size_t bytes);
void account_give_all(account *a);
/* Returns the account as an allowance, which lives as long. */
sli_allowance account_allowance(account *a);

#endif
