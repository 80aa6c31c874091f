/* SPDX-License-Identifier: Apache-2.0 */
/* State that a runtime holds between runs and that outlives it: parameters, quotas, weight files,
 * checkpoints. Programs use sluice/state.h and sluice/lower.h; the rest is for the tools. */
#ifndef SLUICE_GRAPH_STATE_STATE_H
#define SLUICE_GRAPH_STATE_STATE_H

#include <sluice/state.h>

#include "io/safetensors.h"

struct cJSON;
struct sli_shards;

/* Passes all parameters, with adapters merged, to a file writer, which requests the values tensor
 * by tensor. This process must have all parameters. raw: experts in one tensor, with a star in its
 * name, and turned parameters, with ' behind it, as they are in memory; otherwise as folders have
 * them. `path` is used in messages. */
typedef sl_status sli_weights_writer(void *ctx, const sli_tensor_data *tensors, int count,
                                     sli_tensor_values *values, void *of_values);
sl_status sli_weights_write(const char *path, const sl_lowered *lowered, sl_runtime *rt, bool raw,
                            sli_weights_writer *write, void *ctx);

/* Returns the format in which memory stores a parameter of these weight files, or f32 if the files
 * lack it or mix formats. `packed`: the format of experts that a folder has in MXFP4, either bf16,
 * which holds their numbers, or MXFP4. */
sl_storage sli_weights_storage(const struct sli_shards *from, const char *param, sl_storage packed);

/* Checks that all processes of a job see the same folder. Each process writes a small file, process
 * 0 looks for all of them, and the files are removed. All processes must call it after sl_job_join.
 * `what` is the folder's option, such as "--checkpoint DIR". SL_E_USAGE: the error names a process
 * that writes elsewhere or cannot write. Does nothing in a job of one process. */
sl_status sli_shared_folder(const char *what, const char *folder, sl_job *job);

/* Returns the record stored with each checkpoint, to which callers may add information. */
struct cJSON *sli_checkpoints_about(sl_checkpoints *c);
/* Returns the record of the checkpoint that a run resumes from, or NULL if none. */
const struct cJSON *sli_checkpoints_origin(const sl_checkpoints *c);

/* Parameters that a weight file may lack. Missing parameters that match one of the comma-separated
 * patterns `fresh` keep their values; NULL: no patterns. A pattern that matches no parameter is an
 * error. If `upcycled` is not 0, missing experts start from the weights of the dense feed-forward
 * half, times `upcycled`. */
typedef struct sli_weights_lacks {
  const char *fresh;
  float upcycled;
} sli_weights_lacks;

/* Loads weights like sl_weights_load(). whole: the file holds only the model, so an unused tensor
 * of one of its layers is an error. lacks NULL: only adapters may be missing. */
sl_status sli_weights_load(const char *path, const sl_lowered *lowered, sl_runtime *rt, bool whole,
                           const sli_weights_lacks *lacks);
/* Reloads the parameters that stay in the file's storage format, which checkpoints do not
 * contain. */
sl_status sli_weights_load_stored(const char *path, const sl_lowered *lowered, sl_runtime *rt);
/* Loads the weights of a teacher (objective.h) that is a shipped model. */
sl_status sli_weights_load_teacher(const char *path, const sl_lowered *lowered, sl_runtime *rt);

#endif
