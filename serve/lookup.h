/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt lookup: guesses the next tokens of a text from what followed its newest ones before. */
#ifndef SLUICE_LOOKUP_H
#define SLUICE_LOOKUP_H

#include <stdint.h>

enum { SLI_LOOKUP_SHORTEST = 2, SLI_LOOKUP_LONGEST = 64 }; /* tokens of a match */

/* The pairs of tokens of a text that grows. */
typedef struct sli_lookup sli_lookup;

sli_lookup *sli_lookup_create(void);
void sli_lookup_destroy(sli_lookup *l);
/* Finds the longest earlier place whose tokens are the newest `*length` ones of the text, at least
 * `least`, and writes up to `most` tokens that followed there; of equally long ones the newest
 * place. Returns their number. A text may only grow from call to call. */
int sli_lookup_find(sli_lookup *l, const int32_t *tokens, int64_t count, int least, int most,
                    int32_t *out, int *length);

#endif
