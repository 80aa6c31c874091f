/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch programs, as torch.export.save() writes them (.pt2): read without PyTorch, and built into
 * a graph like any model. docs/pytorch.md lists what is supported.
 *
 *     sl_exported *e;
 *     status = sl_exported_open("model.pt2", &e);
 *     if (!status) status = sl_model_build(sl_exported_model(e), g, args);
 *
 * Threads: one thread at a time. */
#ifndef SLUICE_PYTORCH_H
#define SLUICE_PYTORCH_H

#include <stdio.h>

#include <sluice/graph.h>
#include <sluice/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_exported sl_exported;

/* Opens an exported program. It must outlive all graphs and runs made from it. SL_E_INPUT names the
 * file and the problem. */
sl_status sl_exported_open(const char *path, sl_exported **out);
void sl_exported_close(sl_exported *e);

/* An argument of forward(): f32, or i32 for integers and booleans. */
typedef struct sl_exported_input {
  const char *name;
  sl_type type; /* as exported */
  bool rows;    /* dim 0 counts the rows of a batch */
} sl_exported_input;
/* Returns the number of inputs, and sets *out to the inputs, which the program owns. */
int sl_exported_inputs(const sl_exported *e, const sl_exported_input **out);
/* Returns the rows of the exported batch, or 0 if no input has rows. */
int64_t sl_exported_rows(const sl_exported *e);

/* Returns the program as a model that reads its data from files (--data, --input). The program owns
 * the model. */
const sl_model *sl_exported_model(const sl_exported *e);

/* Constants of a program that was exported without a symbolic batch dim, that may be its number of
 * rows, and that meet a sum over rows: `loss.sum() / 6`. */
typedef enum sl_rows_in_constants {
  SL_ROWS_ASK, /* refused, if a microbatch has another number of rows */
  SL_ROWS_NO,  /* plain numbers */
  SL_ROWS_YES  /* the number of rows, which becomes that of a microbatch */
} sl_rows_in_constants;

typedef struct sl_exported_options {
  sl_tensor *const *inputs;      /* [number of inputs] data, with the rows of a microbatch */
  const char *block;             /* pattern of modules to make blocks ("h.*"); NULL: found
                                    automatically */
  const sl_optimizer *optimizer; /* NULL: the default */
  FILE *show;                    /* receives a report of how each call was translated; may be
                                    NULL */
  sl_rows_in_constants rows_in_constants;
} sl_exported_options;
/* Builds the program into a graph, on the caller's data. A graph for inference has the output
 * "loss". Errors are recorded in the graph. */
sl_status sl_exported_build(const sl_exported *e, sl_graph *g, const sl_exported_options *options);

#ifdef __cplusplus
}
#endif
#endif
