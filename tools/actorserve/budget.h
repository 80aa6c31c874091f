/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a server that clients control. Everything that they make it hold or compute with counts
 * against one budget: bodies, values, texts, tokens, answers, connections. */
#ifndef SLUICE_TOOLS_ACTORSERVE_BUDGET_H
#define SLUICE_TOOLS_ACTORSERVE_BUDGET_H

#include "base/allowance.h"

typedef struct budget budget;

/* Creates a budget of `most` bytes. The calling thread is the event loop's. */
sl_status budget_create(size_t most, budget **out);
void budget_destroy(budget *b);
size_t budget_most(const budget *b);
size_t budget_held(budget *b);
/* Adjusts the count for memory that was already allocated or freed. */
void budget_count(budget *b, size_t more, size_t less);
/* Returns whether `bytes` more bytes fit. */
bool budget_fits(budget *b, size_t bytes);
/* Sets a function that ends what clients have abandoned, until `bytes` bytes fit or nothing is
 * left. It is called on the event loop's thread. */
void budget_set_maker(budget *b, void (*make_room)(void *ctx, size_t bytes), void *ctx);
/* Returns a descriptor. Threads other than the event loop's wait for room until the event loop
 * calls budget_answer(), when the descriptor is readable. */
int budget_fd(const budget *b);
void budget_answer(budget *b);
/* Ends all waiting, now and later. */
void budget_close(budget *b);

/* An account: a request's part of the budget. Zeroed, with budget and `most` set, it is empty. */
typedef struct account {
  budget *budget;
  size_t most, held; /* held: guarded by the budget's lock */
  bool over;         /* more than `most` was requested */
} account;
/* Reserves memory, on any thread. Returns false if there is not enough. */
bool account_take(account *a, size_t bytes);
void account_give(account *a, size_t bytes);
void account_give_all(account *a);
/* Returns the account as an allowance, valid as long as the account. */
sli_allowance account_allowance(account *a);

#endif
