/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt lookup: drafts the next tokens of a text from what followed an earlier occurrence of its
 * newest tokens. */
#ifndef SLUICE_SERVE_LOOKUP_H
#define SLUICE_SERVE_LOOKUP_H

#include <stdint.h>

enum { SLI_LOOKUP_SHORTEST = 2, SLI_LOOKUP_LONGEST = 64 }; /* match length in tokens */

/* Index of the token pairs of a growing text. */
typedef struct sli_lookup sli_lookup;

sli_lookup *sli_lookup_create(void);
void sli_lookup_destroy(sli_lookup *l);
/* Finds the longest earlier match of the text's newest tokens and writes up to `most` tokens that
 * followed it to `out`. The newest of equally long matches wins. Sets *length to the match length.
 * Returns the number of tokens written, 0 if the match is shorter than `least`. The text may only
 * grow between calls. */
int sli_lookup_find(sli_lookup *l, const int32_t *tokens, int64_t count, int least, int most,
                    int32_t *out, int *length);

#endif
