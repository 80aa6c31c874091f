/* SPDX-License-Identifier: Apache-2.0 */
/* Chats packed into sequences. Each chat goes where it leaves the least room, among the sequences
 * begun last. They therefore stay nearly in order, and little is left empty. */
#ifndef SLUICE_TEXT_TOKENS_PACKING_H
#define SLUICE_TEXT_TOKENS_PACKING_H

#include "text/tokens/token_file.h"
#include "text/tokens/tokens.h"

typedef struct sli_packing sli_packing;

/* Creates a packing. It keeps no strings of the options. */
sli_packing *sli_packing_create(const sli_tokens_options *options);
void sli_packing_destroy(sli_packing *p);
/* Packs the chats of an encoded file, which must stay open. SL_E_INPUT: a chat is too long, and the
 * options refuse such chats. */
sl_status sli_packing_add(sli_packing *p, const sli_token_file *file);
int64_t sli_packing_rows(const sli_packing *p);
sli_tokens_chats sli_packing_numbers(const sli_packing *p);
/* Returns how many tokens of a row are learned. */
int64_t sli_packing_learned(const sli_packing *p, int64_t row);
void sli_packing_read(const sli_packing *p, int64_t row, int64_t first, int64_t count,
                      const sli_tokens_out *out);

#endif
