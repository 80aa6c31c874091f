/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the graph of an exported program. */
#ifndef SLUICE_PYTORCH_BUILD_H
#define SLUICE_PYTORCH_BUILD_H

#include <stdio.h>

#include <sluice/graph.h>
#include <sluice/pytorch.h>

#include "pytorch/program.h"

typedef struct sli_pt_use {
  sli_pt_program *program; /* functional; outlives the graph */
  int64_t exported, rows;  /* rows of the exported batch (0 if none), and of a microbatch */
  int ninputs;
  sli_pt_input *const *inputs; /* [ninputs] inputs of the user */
  sl_tensor *const *tensors;   /* [ninputs] their data */
  const bool *counts;          /* [ninputs] dim 0 counts the rows */
  const char *block;           /* module pattern of blocks, or NULL */
  const sl_optimizer *optimizer;
  FILE *show; /* receives what became of each call; or NULL */
  sl_rows_in_constants constants;
} sli_pt_use;

/* Builds the graph. Errors are recorded in it, and its status is returned. */
sl_status sli_pt_build(sl_graph *g, const sli_pt_use *of);
/* Builds the graph of a tick of a server, with the output "logits". Input `ids` is tokens [rows,
 * T], `logits` a result for all of their positions, and rows, i32 [1, R], the tokens of a tick. */
sl_status sli_pt_serve(sl_graph *g, const sli_pt_use *of, int ids, sli_pt_value *logits,
                       sl_tensor *rows);

#endif
