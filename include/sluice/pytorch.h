/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of PyTorch, as torch.export.save() writes them (.pt2): read without PyTorch, and built
 * into a graph like any model. docs/pytorch.md says what is understood.
 *
 *     sl_exported *e;
 *     status = sl_exported_open("model.pt2", &e);
 *     if (!status) status = sl_model_build(sl_exported_model(e), g, args);
 *
 * Threads: one at a time. */
#ifndef SLUICE_PYTORCH_H
#define SLUICE_PYTORCH_H

#include <stdio.h>

#include <sluice/graph.h>
#include <sluice/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_exported sl_exported;

/* Opens an exported program. It must outlive graphs and runs made of it. SL_E_INPUT names the file
 * and what is wrong with it. */
sl_status sl_exported_open(const char *path, sl_exported **out);
void sl_exported_close(sl_exported *e);

/* An argument of forward(): f32, or i32 for whole numbers and flags. */
typedef struct sl_exported_input {
  const char *name;
  sl_type type; /* as exported */
  bool rows;    /* dim 0 counts the rows of a batch */
} sl_exported_input;
/* Returns the number of inputs, and sets *out to them, which the program owns. */
int sl_exported_inputs(const sl_exported *e, const sl_exported_input **out);
/* Returns the rows of the exported batch; 0: no input has rows. */
int64_t sl_exported_rows(const sl_exported *e);

/* Returns the program as a model whose data are files (--data, --input). The program owns it. */
const sl_model *sl_exported_model(const sl_exported *e);

typedef struct sl_exported_options {
  sl_tensor *const *inputs;      /* [inputs of the program] data, with the rows of a microbatch */
  const char *block;             /* pattern of the modules that are blocks ("h.*"); NULL: found */
  const sl_optimizer *optimizer; /* NULL: the default */
  FILE *show;                    /* prints what became of each call there; or NULL */
} sl_exported_options;
/* Builds the program into a graph, on data of one's own. A graph for inference has the output
 * "loss". Errors are the graph's. */
sl_status sl_exported_build(const sl_exported *e, sl_graph *g, const sl_exported_options *options);

#ifdef __cplusplus
}
#endif
#endif
