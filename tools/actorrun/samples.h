/* SPDX-License-Identifier: Apache-2.0 */
/* Chats used for training: their number, and the first ones with the learned tokens marked. */
#ifndef SLUICE_TOOLS_ACTORRUN_SAMPLES_H
#define SLUICE_TOOLS_ACTORRUN_SAMPLES_H

#include "text/tokens/tokens.h"
#include "tools/cli/cli.h"
#include "tools/planner/planner.h"

/* Prints "; 200 chats, 51,234 tokens, 23,111 of them learned, ". */
void samples_count(const sli_tokens *tokens, int64_t context);
/* --show-data: prints the first chats of --data, with marks on the tokens that are learned. */
sl_status samples_show(const settings *s);
/* Formats "1,234,567". */
char *samples_grouped(char out[32], double number);

#endif
