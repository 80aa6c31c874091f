/* What a program's calls read and write, and which of them may change places. */
#ifndef SLUICE_CUDA_ORDER_H
#define SLUICE_CUDA_ORDER_H

#include <sluice/program.h>

/* Bytes of a base; base -1: none. */
typedef struct sli_span {
  int32_t base;
  size_t begin, end;
} sli_span;

sli_span sli_input_span(const sl_program_call *c, int i);
sli_span sli_output_span(const sl_program_call *c, int o);
bool sli_spans_overlap(sli_span a, sli_span b);

/* Is any byte of it read: as an input, or because an output is added to or updated? */
bool sli_call_reads(const sl_program_call *c, sli_span span);
bool sli_call_writes(const sl_program_call *c, sli_span span);

/* Does the program do the same whichever of the two comes first? */
bool sli_calls_commute(const sl_program_call *a, const sl_program_call *b);

#endif
