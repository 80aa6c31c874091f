/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a text, in order, as byte ranges. */
#ifndef SLUICE_TEXT_SPANS_H
#define SLUICE_TEXT_SPANS_H

#include <stddef.h>

typedef struct sli_text_span {
  size_t begin, end;
} sli_text_span;

/* A growing list. A zeroed one is empty. The owner frees `items`. */
typedef struct sli_text_spans {
  sli_text_span *items;
  size_t count, capacity;
} sli_text_spans;

#endif
