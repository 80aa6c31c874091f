/* SPDX-License-Identifier: Apache-2.0 */
/* State that lies in a runtime between runs and outlives it: parameters, quotas, weight files,
 * checkpoints. Programs use sluice/state.h and sluice/lower.h; the rest is for the tools. */
#ifndef SLUICE_GRAPH_STATE_H
#define SLUICE_GRAPH_STATE_H

#include <sluice/state.h>

#include "io/safetensors.h"

struct cJSON;
struct sli_shards;

/* Gives all parameters, adapters merged, to a writer of files, whose values are asked for one
 * tensor after another. This process has all of them. `path` is for messages. */
typedef sl_status sli_weights_writer(void *ctx, const sli_tensor_data *tensors, int count,
                                     sli_tensor_values *values, void *of_values);
sl_status sli_weights_write(const char *path, const sl_lowered *lowered, sl_runtime *rt,
                            sli_weights_writer *write, void *ctx);

/* Returns the storage format (rest) of a parameter in weight files, limited to formats that it
 * may be stored in; f32 if the files lack it. */
sl_storage sli_weights_storage(const struct sli_shards *from, const char *param);

/* Checks that all processes of a job see one folder. Each writes a small file, process 0 looks
 * for all of them, and they are removed. All processes call it after sl_job_join. `what` is the
 * user's name for it, "--checkpoint DIR". SL_E_USAGE names a process that writes somewhere else,
 * or cannot. A job of one process checks nothing. */
sl_status sli_shared_folder(const char *what, const char *folder, sl_job *job);

/* Returns the record stored beside each checkpoint, to which callers may add information. */
struct cJSON *sli_checkpoints_about(sl_checkpoints *c);
/* Returns the record of the checkpoint that a run resumes from; NULL: there is none. */
const struct cJSON *sli_checkpoints_origin(const sl_checkpoints *c);

/* Parameters that a weight file may lack. Those that match one of the patterns `fresh`, separated
 * by commas, keep their values then; NULL: none. A pattern that matches no parameter is an error.
 * upcycled: factor of the weights of a dense feed-forward half, which each of its experts begins
 * with; 0: experts are there. */
typedef struct sli_weights_lacks {
  const char *fresh;
  float upcycled;
} sli_weights_lacks;

/* Loads weights as sl_weights_load() does. whole: the file holds nothing but the model, so a
 * tensor of one of its layers that the model has no place for is an error. lacks NULL: nothing. */
sl_status sli_weights_load(const char *path, const sl_lowered *lowered, sl_runtime *rt, bool whole,
                           const sli_weights_lacks *lacks);
/* Loads again the parameters that stay in the storage format of a file, which checkpoints lack. */
sl_status sli_weights_load_stored(const char *path, const sl_lowered *lowered, sl_runtime *rt);
/* Loads the weights of a teacher (objective.h) of a shipped model. */
sl_status sli_weights_load_teacher(const char *path, const sl_lowered *lowered, sl_runtime *rt);

#endif
