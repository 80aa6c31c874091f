/* What both cross entropies share. A chunk of rows leaves its sum in the scratch. */
#ifndef SLUICE_LOSS_H
#define SLUICE_LOSS_H

#include <sluice/op.h>

size_t sli_loss_scratch(const sl_call *call, int threads);
/* The sum over the rows of the first input, chunk by chunk in order. */
double sli_loss_sum(const sl_call *call);
/* Joins rows of parts, of so many numbers each, and leaves their lse where that is asked for. */
void sli_loss_join(const sl_call *call, int part);

#endif
