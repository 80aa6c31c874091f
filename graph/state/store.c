/* SPDX-License-Identifier: Apache-2.0 */
/* Writes checkpoints: one shard per device, on the thread of its store actor or between runs, and
 * the record once all shards exist. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/state/checkpoint.h"
#include "graph/state/parts.h"

_Static_assert(sizeof(sli_shard_file) <= SL_MANIFEST_ENTRY_BYTES,
               "an entry holds what a manifest says");

/* Rejects values that are not finite: their checkpoint would displace good ones. */
static sl_status check_finite(const sl_stage_state *state, const sl_state_tensor *t) {
  if (sli_all_finite(t->data, sl_type_elements(&t->type))) return SL_OK;
  return sl_fail(SL_E_NUMERIC, "tensor %s is not finite after %lld steps: no checkpoint is written",
                 t->name, (long long)state->steps);
}

static sl_status write_shard(sl_checkpoints *c, const sl_stage_state *state, int rank,
                             void *entry) {
  int n = state->ntensors;
  sli_tensor_data *tensors = sli_calloc((size_t)n, sizeof *tensors);
  char **names = sli_calloc((size_t)n, sizeof *names);
  for (int i = 0; i < n; i++) {
    const sl_state_tensor *t = &state->tensors[i];
    names[i] = t->shard ? sli_part_format(t->name, t->shard) : NULL;
    tensors[i] = (sli_tensor_data){.name = names[i] ? names[i] : t->name,
                                   .ndim = t->type.ndim,
                                   .dim = t->type.dim,
                                   .data = t->data};
  }
  sli_shard_file shard;
  sl_status status =
      sli_checkpoints_write(c->files, state->steps, state->stage, rank, tensors, n, &shard);
  if (!status) memcpy(entry, &shard, sizeof shard);
  for (int i = 0; i < n; i++) free(names[i]);
  free(names);
  free(tensors);
  return status;
}

sl_status sli_checkpoints_store(void *ctx, const sl_stage_state *state, void *entry) {
  sl_checkpoints *c = ctx;
  sl_status status = SL_OK;
  for (int i = 0; i < state->ntensors && !status; i++) {
    const sl_state_tensor *t = &state->tensors[i];
    SLI_CHECK(t->type.dtype == SL_F32, "%s is not kept as f32", t->name);
    status = check_finite(state, t);
  }
  return status ? status : write_shard(c, state, c->ranks > 1 ? state->rank : -1, entry);
}

sl_status sli_checkpoints_stored(void *ctx, int64_t steps, int nentries,
                                 const void *const *entries) {
  sl_checkpoints *c = ctx;
  sl_status same = c->graph ? sl_graph_check_files(c->graph) : SL_OK;
  if (same) return same;
  const sli_shard_file **shards = sli_calloc((size_t)nentries, sizeof *shards);
  for (int i = 0; i < nentries; i++) shards[i] = entries[i];
  sl_status status = sli_checkpoints_commit(c->files, steps, c->about, nentries, shards);
  free(shards);
  if (!status) atomic_store_explicit(&c->newest, steps, memory_order_relaxed);
  return status;
}

/* Reads a device's state, excluding replicas, even from memory that the host cannot address. The
 * caller frees *copies. */
static sl_status read_state(sl_runtime *rt, const sl_state_tensor *tensors, int n,
                            sl_state_tensor *own, int *nown, char **copies) {
  size_t bytes = 0, at = 0;
  for (int i = 0; i < n; i++)
    if (!tensors[i].replica && !tensors[i].data) bytes += sl_type_bytes(&tensors[i].type);
  sl_status status =
      bytes ? SLI_ALLOCATE(*copies, bytes, "a checkpoint's copy of the state") : SL_OK;
  for (int i = 0; i < n && !status; i++) {
    if (tensors[i].replica) continue;
    sl_state_tensor *t = &own[(*nown)++];
    *t = tensors[i];
    if (t->data) continue;
    t->data = *copies + at;
    status = sl_runtime_read(rt, t->reg, t->slot, t->offset, sl_type_bytes(&t->type), *copies + at);
    at += sl_type_bytes(&t->type);
  }
  return status;
}

static sl_status store_device(sl_checkpoints *c, const sl_lowered *lowered, sl_runtime *rt,
                              int device, char (*entries)[SL_MANIFEST_ENTRY_BYTES], int *n) {
  sl_stage_state state = {
      .steps = sl_runtime_steps(rt), .stage = device / c->ranks, .rank = device % c->ranks};
  const sl_state_tensor *tensors;
  int count = sl_lowered_state(lowered, rt, state.stage, state.rank, &tensors);
  sl_state_tensor *own = sli_calloc((size_t)count, sizeof *own);
  char *copies = NULL;
  sl_status status = read_state(rt, tensors, count, own, &state.ntensors, &copies);
  state.tensors = own;
  if (!status && state.ntensors) status = sli_checkpoints_store(c, &state, entries[(*n)++]);
  free(copies);
  free(own);
  return status;
}

/* Stores the devices of this process and adds their *n manifest entries. */
static sl_status store_here(sl_checkpoints *c, const sl_lowered *lowered, sl_runtime *rt,
                            char (*entries)[SL_MANIFEST_ENTRY_BYTES], int *n) {
  sl_status status = SL_OK;
  for (int d = 0; d < sl_lowered_stages(lowered) * c->ranks && !status; d++)
    status = store_device(c, lowered, rt, d, entries, n);
  return status;
}

static int by_stage(const void *a, const void *b) {
  const sli_shard_file *const *x = a, *const *y = b;
  return (*x)->stage != (*y)->stage ? (*x)->stage - (*y)->stage : (*x)->rank - (*y)->rank;
}

/* Sends all manifest entries to process 0. */
static sl_status collect(sl_job *job, int most, char (*entries)[SL_MANIFEST_ENTRY_BYTES], int *n) {
  sl_blob *blobs = NULL;
  sl_status status = sl_job_meet(job, "stored", entries, (size_t)*n * sizeof *entries, &blobs);
  if (!blobs) return status;
  *n = 0;
  for (int i = 0; i < sl_job_processes(job); i++) {
    size_t count = SLI_MIN(blobs[i].bytes / sizeof *entries, (size_t)(most - *n));
    memcpy(entries[*n], blobs[i].data, count * sizeof *entries);
    *n += (int)count;
    free(blobs[i].data);
  }
  free(blobs);
  return status;
}

sl_status sl_checkpoints_finish(sl_checkpoints *c, const sl_lowered *lowered, sl_runtime *rt,
                                sl_job *job) {
  int64_t steps = sl_runtime_steps(rt);
  if (!c || steps <= SLI_MAX(c->first, steps - steps % c->every)) return SL_OK;
  int most = sl_lowered_stages(lowered) * c->ranks, n = 0;
  char(*entries)[SL_MANIFEST_ENTRY_BYTES] = sli_calloc((size_t)most, sizeof *entries);
  sl_status status = store_here(c, lowered, rt, entries, &n);
  if (!status) status = collect(job, most, entries, &n);
  if (!status && !sl_job_process(job)) {
    const void **list = sli_calloc((size_t)most, sizeof *list);
    for (int i = 0; i < n; i++) list[i] = entries[i];
    qsort(list, (size_t)n, sizeof *list, by_stage);
    status = sli_checkpoints_stored(c, steps, n, list);
    free(list);
  }
  free(entries);
  return status;
}
