/* SPDX-License-Identifier: Apache-2.0 */
/* Factors of dims with rows. A view splits the dims of a tensor into factors, and gives each of
 * them to one of its own dims. */
#ifndef SLUICE_PYTORCH_ROW_FACTORS_H
#define SLUICE_PYTORCH_ROW_FACTORS_H

#include "pytorch/rows.h"

enum { SLI_MOST_FACTORS = 3 * SL_MAX_DIMS + SLI_PT_DIMS };

/* A factor of a dim. */
typedef struct sli_factor {
  int64_t size;       /* the length that is shared out; 1 only for rows */
  int64_t actual;     /* its length in the tensor */
  bool rows, repeats; /* the rows; or the same for all of its positions, and 1 in the tensor */
  bool alone;         /* the rows are a whole dim */
  int ones, run;      /* for alone rows of size 1: dims of length 1 before it, and in its run */
  int place;          /* place in memory order; parts of one factor have the same */
  int from, to;       /* old and new dim */
} sli_factor;

typedef struct sli_factors {
  sli_factor of[SLI_MOST_FACTORS];
  int count, places;
} sli_factors;

/* Finds the factors of a tensor's dims, by exported lengths, or by the actual ones if `exported` is
 * NULL. Returns false if the lengths disagree. */
bool sli_factors_find(sli_import *m, const sl_type *x, const sli_rows *rows,
                      const sli_pt_type *exported, sli_factors *f);
/* Gives each factor a new dim. Returns false if that would divide the rows. */
bool sli_factors_share(sli_factors *f, const int64_t *to, int ndim);
/* Finds the new actual dims, and the rows in them. Returns false if a dim would have rows twice, or
 * repeated positions beside others. */
bool sli_factors_dims(const sli_factors *f, sl_type *out, sli_rows *rows);

#endif
