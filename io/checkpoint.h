/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: a directory of directories, each the state of a run after a step.
 *
 *     DIR/step-200/stage-000.safetensors   one shard per stage of the pipeline, or per
 *                                          device of each: stage-000.rank-001.safetensors
 *     DIR/step-200/manifest.json           description of the run, and the shards' checksums
 *     DIR/latest                           the name of the newest, for people
 *
 * A checkpoint is written to DIR/step-200.tmp, synced, and renamed once it is complete; the
 * manifest is its last file. However a run ends, a directory called step-N is therefore complete
 * as far as the file system is sound, and checksums verify that. Tensors are found by name in
 * any shard: a reader need not have the writer's stages. */
#ifndef SLUICE_IO_CHECKPOINT_H
#define SLUICE_IO_CHECKPOINT_H

#include <stdint.h>

#include <sluice/status.h>

#include "io/safetensors.h"

struct cJSON;

/* ---- writing ---------------------------------------------------------------- */

/* A directory to which one process at a time writes checkpoints. */
typedef struct sli_checkpoints sli_checkpoints;

/* Creates DIR if needed, locks it, and removes incomplete files of a run that was killed. The
 * newest `keep` checkpoints are kept. SL_E_USAGE names DIR if it cannot be written, or if another
 * run uses it. */
sl_status sli_checkpoints_open(const char *dir, int keep, sli_checkpoints **out);
/* Opens the directory in the other processes of the run that has it open. They write shards and
 * read. */
sl_status sli_checkpoints_share(const char *dir, sli_checkpoints **out);
void sli_checkpoints_close(sli_checkpoints *c);
/* Returns the step of the newest checkpoint, complete or not, or -1 if there is none. */
int64_t sli_checkpoints_newest(const sli_checkpoints *c);

/* A manifest entry. It is plain data, because the shard's writer sends it to the manifest's
 * writer. */
typedef struct sli_shard_file {
  int64_t step;
  int32_t stage, rank, tensors; /* rank -1 if the stage has one device */
  uint64_t bytes, checksum;     /* size and FNV-1a hash of the file */
} sli_shard_file;

/* Writes one shard of the checkpoint after `step` steps. Any thread; different stages and ranks may
 * be written concurrently. SL_E_IO names the file. Incomplete files, possibly including those of
 * other processes, are removed when the directory is closed. */
sl_status sli_checkpoints_write(sli_checkpoints *c, int64_t step, int stage, int rank,
                                const sli_tensor_data *tensors, int count, sli_shard_file *out);
/* Commits a checkpoint once all shards are written. Writes the manifest, with `about` (still owned
 * by the caller) under "about", renames the directory, and removes all but the newest K. After an
 * error the older checkpoints are untouched. */
sl_status sli_checkpoints_commit(sli_checkpoints *c, int64_t step, const struct cJSON *about,
                                 int nshards, const sli_shard_file *const *shards);

/* ---- reading ---------------------------------------------------------------- */

typedef struct sli_checkpoint sli_checkpoint;

/* Opens the newest complete checkpoint; *out is NULL if there is none. A damaged checkpoint is
 * reported on stderr with its error and renamed to step-N.damaged, and the previous one is tried.
 * SL_E_INPUT: all are damaged. The directory's writer also removes what a killed run left
 * behind. */
sl_status sli_checkpoints_find(sli_checkpoints *c, sli_checkpoint **out);
/* Opens one checkpoint by the path of its directory. SL_E_INPUT says what is wrong. */
sl_status sli_checkpoint_open(const char *path, sli_checkpoint **out);
void sli_checkpoint_close(sli_checkpoint *checkpoint);

const char *sli_checkpoint_path(const sli_checkpoint *checkpoint);
int64_t sli_checkpoint_step(const sli_checkpoint *checkpoint);
int sli_checkpoint_shards(const sli_checkpoint *checkpoint);
const sli_safetensors *sli_checkpoint_shard(const sli_checkpoint *checkpoint, int index);
const struct cJSON *sli_checkpoint_about(const sli_checkpoint *checkpoint);
/* Returns the tensor of this name and the file that holds it, or NULL if there is none. */
const sli_stored_tensor *sli_checkpoint_tensor(const sli_checkpoint *checkpoint, const char *name,
                                               const sli_safetensors **file);

#endif
