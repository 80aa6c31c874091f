/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that a program's calls read and write, and which calls commute. */
#ifndef SLUICE_KERNELS_CUDA_ORDER_H
#define SLUICE_KERNELS_CUDA_ORDER_H

#include <sluice/program.h>

/* Byte range of a base; base -1 means none. */
typedef struct sli_span {
  int32_t base;
  size_t begin, end;
} sli_span;

sli_span sli_input_span(const sl_program_call *c, int i);
sli_span sli_output_span(const sl_program_call *c, int o);
bool sli_spans_overlap(sli_span a, sli_span b);

/* Return true if the call reads any byte of the span (as an input, or by adding to or updating an
 * output), or writes one. */
bool sli_call_reads(const sl_program_call *c, sli_span span);
bool sli_call_writes(const sl_program_call *c, sli_span span);

/* Returns true if the program gives the same result with the two calls in either order. */
bool sli_calls_commute(const sl_program_call *a, const sl_program_call *b);

#endif
