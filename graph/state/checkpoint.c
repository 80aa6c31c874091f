/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: saving the state of a run, and resuming from it.
 *
 * The plan's store actors write checkpoints on separate threads while training continues. The last
 * checkpoint, after the final step or the step that a stop lets finish, is written between runs.
 * Both use the same writer for the same tensors (store.c). A run resumes only if everything that
 * affects its results is unchanged, according to the fingerprint recorded in the checkpoint. The
 * number of stages, and everything else that only moves work, may change. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "actors/plan/plan.h"
#include "base/memory.h"
#include "graph/state/checkpoint.h"
#include "graph/state/parts.h"
#include "graph/state/state.h"

/* ---- opening ------------------------------------------------------------------------- */

static sl_status find_start(sl_checkpoints *c, const sl_checkpoint_options *o) {
  int64_t newest = sli_checkpoints_newest(c->files);
  if (!o->resume && newest >= 0)
    return sl_fail(SL_E_USAGE,
                   "%s: step-%lld of an earlier run exists; resume (--resume) to continue from it",
                   o->dir, (long long)newest);
  if (!o->resume) return SL_OK;
  sl_status status = sli_checkpoints_find(c->files, &c->from);
  if (status || !c->from) return status;
  c->first = sli_checkpoint_step(c->from);
  return sli_record_compare(c->from, o);
}

static sl_status check_numbers(const sl_checkpoint_options *o) {
  if (o->every < 0 || o->every > SLI_EVERY_MOST)
    return sl_fail(SL_E_USAGE, "checkpoints: every %lld steps: must be from 0 to %d",
                   (long long)o->every, SLI_EVERY_MOST);
  if (o->keep < 0)
    return sl_fail(SL_E_USAGE, "checkpoints: keep %d: must not be negative", o->keep);
  return SL_OK;
}

sl_status sl_checkpoints_open(const sl_checkpoint_options *o, const sl_job *job,
                              sl_checkpoints **out) {
  sl_checkpoints *c = sli_calloc(1, sizeof *c);
  c->about = sli_record_create(o->nfingerprint, o->fingerprint);
  c->code = o->code;
  c->resume_with = o->resume_with;
  c->every = o->every ? o->every : 100;
  c->ranks = 1;
  sl_status status = check_numbers(o);
  if (!status) status = sli_record_check_words(o);
  if (!status)
    status = job && sl_job_process(job)
                 ? sli_checkpoints_share(o->dir, &c->files)
                 : sli_checkpoints_open(o->dir, o->keep ? o->keep : 2, &c->files);
  if (!status) status = find_start(c, o);
  if (status) sl_checkpoints_close(c);
  else *out = c;
  return status;
}

void sl_checkpoints_close(sl_checkpoints *c) {
  if (!c) return;
  sli_checkpoint_close(c->from);
  sli_checkpoints_close(c->files);
  cJSON_Delete(c->about);
  free(c);
}

int64_t sl_checkpoints_start(const sl_checkpoints *c) { return c ? c->first : 0; }

const char *sl_checkpoints_from(const sl_checkpoints *c) {
  return c && c->from ? sli_checkpoint_path(c->from) : NULL;
}

int64_t sl_checkpoints_newest(const sl_checkpoints *c) {
  if (!c) return 0;
  int64_t newest = atomic_load_explicit(&c->newest, memory_order_relaxed);
  return SLI_MAX(newest, sl_checkpoints_start(c));
}

cJSON *sli_checkpoints_about(sl_checkpoints *c) { return c->about; }

const cJSON *sli_checkpoints_origin(const sl_checkpoints *c) {
  return c && c->from ? sli_checkpoint_about(c->from) : NULL;
}

/* ---- plan ------------------------------------------------------------------------------ */

void sl_checkpoints_lower(sl_checkpoints *c, sl_lower_options *options) {
  if (!c) return;
  options->store.every = c->every;
  options->store.on_store = sli_checkpoints_store;
  options->store.on_stored = sli_checkpoints_stored;
  options->store.ctx = c;
}

sl_status sl_checkpoints_describe(sl_checkpoints *c, const sl_graph *g, const sl_lowered *lowered) {
  if (!c) return SL_OK;
  c->ranks = sl_lowered_ranks(lowered);
  c->graph = g;
  const sli_record record = {c->about, c->from, c->code, c->resume_with};
  return sli_record_describe(&record, g, lowered);
}

/* ---- reading ---------------------------------------------------------------------------- */

/* Most recently read tensor, kept whole for all devices that have a part of it. */
typedef struct reading {
  const sl_checkpoints *c;
  sl_runtime *rt;
  const char *name;
  float *whole;
} reading;

static sl_status write_state(sl_runtime *rt, const sl_state_tensor *to, const void *values) {
  return sl_runtime_write(rt, to->reg, to->slot, to->offset, sl_type_bytes(&to->type), values);
}

static sl_status assemble(reading *r, const char *name, const sl_type *whole) {
  if (r->name && !strcmp(r->name, name)) return SL_OK;
  free(r->whole);
  r->name = NULL;
  SLI_TRY(SLI_ALLOCATE(r->whole, (size_t)sl_type_elements(whole), name));
  r->name = name;
  return sli_parts_assemble(r->c->from, name, whole, r->whole);
}

/* Returns the stored bytes if the file holds exactly the wanted part in f32, so that they can be
 * copied directly. */
static const void *find_stored(const reading *r, const sl_state_tensor *to) {
  char *part = to->shard ? sli_part_format(to->name, to->shard) : NULL;
  const sli_safetensors *file;
  const sli_stored_tensor *t = sli_checkpoint_tensor(r->c->from, part ? part : to->name, &file);
  free(part);
  bool fits = t && !strcmp(t->dtype, "F32") && !sli_stored_check("", to->name, &to->type, t);
  return fits ? sli_safetensors_bytes(file, t) : NULL;
}

static sl_status load_tensor(reading *r, const sl_state_tensor *to) {
  const void *stored = find_stored(r, to);
  if (stored) return write_state(r->rt, to, stored);
  sl_status status = assemble(r, to->name, to->shard ? &to->shard->whole : &to->type);
  if (status || !to->shard) return status ? status : write_state(r->rt, to, r->whole);
  float *part;
  SLI_TRY(SLI_ALLOCATE(part, (size_t)sl_type_elements(&to->type), to->name));
  sl_shard_take(to->shard, r->whole, part);
  status = write_state(r->rt, to, part);
  free(part);
  return status;
}

static int by_name(const void *a, const void *b) {
  const sl_state_tensor *const *x = a, *const *y = b;
  return strcmp((*x)->name, (*y)->name);
}

/* Loads tensors in order of name, so that all devices' parts of a tensor are adjacent. */
sl_status sl_checkpoints_load(const sl_checkpoints *c, const sl_lowered *lowered, sl_runtime *rt) {
  const sl_state_tensor **all = NULL, *tensors;
  size_t count = 0, capacity = 0;
  int ranks = sl_lowered_ranks(lowered), devices = sl_lowered_stages(lowered) * ranks;
  for (int d = 0; d < devices; d++) {
    int n = sl_lowered_state(lowered, rt, d / ranks, d % ranks, &tensors);
    for (int i = 0; i < n; i++) {
      SLI_GROW(all, count, capacity);
      all[count++] = &tensors[i];
    }
  }
  if (count) qsort(all, count, sizeof *all, by_name);
  reading r = {.c = c, .rt = rt};
  sl_status status = SL_OK;
  for (size_t i = 0; i < count && !status; i++) status = load_tensor(&r, all[i]);
  free(r.whole);
  free(all);
  return status;
}
