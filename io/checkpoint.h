/* Checkpoints: a directory of directories, each the state of a run after a step.
 *
 *     DIR/step-200/stage-000.safetensors   one shard per stage of the pipeline, or per
 *                                          device of each: stage-000.rank-001.safetensors
 *     DIR/step-200/manifest.json           what run it is, and the shards' checksums
 *     DIR/latest                           the name of the newest, for people
 *
 * A checkpoint is made in DIR/step-200.tmp, synced, and gets its name when all
 * of it is there; the manifest is its last file. So whatever ends a run, and
 * whenever, a directory called step-N is whole as far as the file system is
 * sound, and checksums tell whether that was so. Tensors are found by name,
 * whichever shard they lie in: a reader need not have the writer's stages. */
#ifndef SLUICE_IO_CHECKPOINT_H
#define SLUICE_IO_CHECKPOINT_H

#include <stdint.h>

#include <sluice/status.h>

#include "io/safetensors.h"

struct cJSON;

/* ---- writing ---------------------------------------------------------------- */

/* A directory that one process at a time writes checkpoints to. */
typedef struct sli_checkpoints sli_checkpoints;

/* Makes DIR if need be, locks it, and removes what a run that died has left half
 * made. The newest `keep` checkpoints are kept. SL_E_USAGE names DIR if it cannot
 * be written to, or another run does. */
sl_status sli_checkpoints_open(const char *dir, int keep, sli_checkpoints **out);
/* The same directory, for the other processes of the run that has it open: they
 * write shards and read. */
sl_status sli_checkpoints_share(const char *dir, sli_checkpoints **out);
void sli_checkpoints_close(sli_checkpoints *c);
/* The newest checkpoint's step, whole or not; -1: there is none. */
int64_t sli_checkpoints_newest(const sli_checkpoints *c);

/* Plain data: it travels from who wrote the shard to who writes the manifest. */
typedef struct sli_shard_file {
  int64_t step;
  int32_t stage, rank, tensors; /* rank -1: the stage has one device */
  uint64_t bytes, checksum; /* of the file, FNV-1a */
} sli_shard_file;

/* Writes one shard of the checkpoint after `step` steps. Any thread, different
 * stages and ranks at once. SL_E_IO names the file; what is half made, by others maybe, goes
 * when the directory is closed. */
sl_status sli_checkpoints_write(sli_checkpoints *c, int64_t step, int stage, int rank,
                                const sli_tensor_data *tensors, int count, sli_shard_file *out);
/* All shards are written: the manifest, with `about` under "about" (which stays
 * the caller's), the name, and the removal of what is older than the newest K.
 * After an error the older ones are untouched. */
sl_status sli_checkpoints_commit(sli_checkpoints *c, int64_t step, const struct cJSON *about,
                                 int nshards, const sli_shard_file *const *shards);

/* ---- reading ---------------------------------------------------------------- */

typedef struct sli_checkpoint sli_checkpoint;

/* The newest checkpoint that is whole, *out NULL if there has never been one. A
 * damaged one is named on stderr, with what is wrong with it, set aside as
 * step-N.damaged, and the one before it is tried; SL_E_INPUT if all are damaged. The
 * writer of the directory also removes what a run that was killed had not removed yet. */
sl_status sli_checkpoints_find(sli_checkpoints *c, sli_checkpoint **out);
/* One checkpoint by the path of its directory; SL_E_INPUT says what is wrong. */
sl_status sli_checkpoint_open(const char *path, sli_checkpoint **out);
void sli_checkpoint_close(sli_checkpoint *checkpoint);

const char *sli_checkpoint_path(const sli_checkpoint *checkpoint);
int64_t sli_checkpoint_step(const sli_checkpoint *checkpoint);
int sli_checkpoint_shards(const sli_checkpoint *checkpoint);
const sli_safetensors *sli_checkpoint_shard(const sli_checkpoint *checkpoint, int index);
const struct cJSON *sli_checkpoint_about(const sli_checkpoint *checkpoint);
/* The tensor of this name and the file it lies in; NULL if there is none. */
const sli_stored_tensor *sli_checkpoint_tensor(const sli_checkpoint *checkpoint, const char *name,
                                               const sli_safetensors **file);

#endif
