/* Checkpoints: what a run keeps on its way, and how another goes on from it.
 *
 * The plan's store actors call store_stage() and commit_step() on threads of
 * their own while training goes on; the last checkpoint, after the last step or
 * the one Ctrl-C let finish, is written here between runs. Both hand the same
 * tensors to the same writer. A run goes on only with what decides its results
 * unchanged: the options recorded in the checkpoint are compared first. How many
 * stages there are, and all that moves work about, is free. */
#include "tools/actorrun/actorrun.h"

#include <cjson/cJSON.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tools/actorrun/parts.h"

struct checkpoints {
  sli_checkpoints *files;
  sli_checkpoint *from;  /* what the run goes on from, or NULL */
  cJSON *about;          /* this run; read only once it runs */
  int ranks;             /* devices of each stage of this run */
  int64_t every;         /* steps from one to the next while the run goes on */
  _Atomic int64_t newest;
};

_Static_assert(sizeof(sli_shard_file) <= SL_RECEIPT_BYTES, "a receipt holds what a manifest says");

/* ---- what decides the results ------------------------------------------------------ */

static const char *const fixed_options[] = {"microbatches", "pieces", "cut", "dtype",
                                            "seed"};

/* Parameters in two slots train on older weights. */
static int parameter_slots(const settings *s) {
  int slots = 1;
  for (int i = 0; i < s->nquotas; i++)
    if (!strcmp(s->quotas[i].name, "param")) slots = s->quotas[i].slots;
  return slots;
}

static cJSON *describe_run(const settings *s) {
  cJSON *about = cJSON_CreateObject();
  cJSON_AddStringToObject(about, "model", s->model->name);
  options_to_json(cJSON_AddObjectToObject(about, "options"), s->options, s->run);
  options_to_json(cJSON_AddObjectToObject(about, "model_options"), s->model->options,
                  s->model_args);
  cJSON_AddNumberToObject(about, "parameter_slots", parameter_slots(s));
  return about;
}

/* A value as the user would write it; "none" if there is none. */
static char *value_text(const cJSON *value) {
  if (!value) return sli_strdup("none");
  if (cJSON_IsString(value)) return sli_strdup(value->valuestring);
  char *text = cJSON_PrintUnformatted(value), *copy = sli_strdup(text ? text : "?");
  cJSON_free(text);
  return copy;
}

static sl_status compare(const char *path, const char *name, const cJSON *was, const cJSON *is) {
  char *before = value_text(was), *now = value_text(is);
  sl_status status = SL_OK;
  if (strcmp(before, now))
    status = sl_fail(SL_E_USAGE, "--resume: %s is %s, but %s was made with %s", name, now, path,
                     before);
  free(before);
  free(now);
  return status;
}

static const cJSON *member(const cJSON *object, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(object, name);
}

static sl_status compare_option(const char *path, const cJSON *was, const cJSON *is,
                                const char *option) {
  char *name = sli_format("--%s", option);
  sl_status status = compare(path, name, member(was, option), member(is, option));
  free(name);
  return status;
}

static sl_status compare_runs(const checkpoints *c, const settings *s) {
  const char *path = sli_checkpoint_path(c->from);
  const cJSON *was = sli_checkpoint_about(c->from), *is = c->about;
  sl_status status = compare(path, "the model", member(was, "model"), member(is, "model"));
  for (size_t i = 0; i < SLI_COUNT(fixed_options) && !status; i++)
    status = compare_option(path, member(was, "options"), member(is, "options"), fixed_options[i]);
  for (const sl_option *o = s->model->options; o && o->name && !status; o++)
    status = compare_option(path, member(was, "model_options"), member(is, "model_options"),
                            o->name);
  if (!status)
    status = compare(path, "--quota param", member(was, "parameter_slots"),
                     member(is, "parameter_slots"));
  return status;
}

/* ---- opening ------------------------------------------------------------------------- */

static void print_start(const checkpoints *c) {
  const cJSON *about = sli_checkpoint_about(c->from);
  const cJSON *stages = member(about, "stages"), *ranks = member(about, "devices_per_stage");
  printf("going on from %s, written by %d stages", sli_checkpoint_path(c->from),
         cJSON_IsNumber(stages) ? stages->valueint : sli_checkpoint_shards(c->from));
  if (cJSON_IsNumber(ranks)) printf(" of %d devices", ranks->valueint);
  putchar('\n');
}

static sl_status find_start(checkpoints *c, const settings *s, const char *dir) {
  bool quiet = sl_arg_flag(s->run, "quiet") || s->process;
  int64_t newest = sli_checkpoints_newest(c->files);
  if (!sl_arg_flag(s->run, "resume")) {
    if (newest < 0) return SL_OK;
    return sl_fail(SL_E_USAGE, "--checkpoint %s: step-%lld of an earlier run is there; --resume "
                   "goes on from it", dir, (long long)newest);
  }
  sl_status status = sli_checkpoints_find(c->files, &c->from);
  if (!status && c->from) status = compare_runs(c, s);
  if (status || quiet) return status;
  if (c->from)
    print_start(c);
  else
    printf("no checkpoint in %s yet: starting anew\n", dir);
  return SL_OK;
}

sl_status checkpoints_open(const settings *s, checkpoints **out) {
  const char *dir = sl_arg_text(s->run, "checkpoint");
  if (!*dir) return SL_OK;
  checkpoints *c = sli_calloc(1, sizeof *c);
  c->about = describe_run(s);
  sl_status status = s->process
                         ? sli_checkpoints_share(dir, &c->files)
                         : sli_checkpoints_open(dir, (int)sl_arg_int(s->run, "keep"), &c->files);
  if (!status) status = find_start(c, s, dir);
  c->every = sl_arg_int(s->run, "every");
  if (status) checkpoints_close(c);
  else *out = c;
  return status;
}

void checkpoints_close(checkpoints *c) {
  if (!c) return;
  sli_checkpoint_close(c->from);
  sli_checkpoints_close(c->files);
  cJSON_Delete(c->about);
  free(c);
}

int64_t checkpoints_start(const checkpoints *c) {
  return c && c->from ? sli_checkpoint_step(c->from) : 0;
}

void checkpoints_describe(checkpoints *c, const job *j) {
  if (!c) return;
  char hash[32];
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)j->plan->hash);
  cJSON_AddStringToObject(c->about, "plan_hash", hash);
  cJSON_AddNumberToObject(c->about, "stages", sl_lowered_stages(j->lowered));
  c->ranks = sl_lowered_ranks(j->lowered);
  if (c->ranks > 1) cJSON_AddNumberToObject(c->about, "devices_per_stage", c->ranks);
  /* Both follow from the step: the data by counting, and random numbers by being
   * functions of the seed and where they are drawn. */
  cJSON *data = cJSON_AddObjectToObject(c->about, "data");
  cJSON_AddStringToObject(data, "unit", j->progress.word ? j->progress.word : "");
  cJSON_AddNumberToObject(data, "per_step", (double)j->progress.items);
  cJSON *random = cJSON_AddObjectToObject(c->about, "random");
  cJSON_AddStringToObject(random, "generator", "philox4x32-10");
  cJSON_AddNumberToObject(random, "seed", (double)sl_arg_int(j->settings->run, "seed"));
}

/* ---- reading ---------------------------------------------------------------------------- */

/* The tensor that was read last, whole, for all devices that have a part of it. */
typedef struct reading {
  const checkpoints *c;
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
  r->whole = sli_calloc(1, sl_type_bytes(whole));
  r->name = name;
  return parts_assemble(r->c->from, name, whole, r->whole);
}

/* Stored exactly as it is wanted, it goes straight to its place. */
static const void *find_stored(const reading *r, const sl_state_tensor *to) {
  char *part = to->shard ? part_format(to->name, to->shard) : NULL;
  const sli_safetensors *file;
  const sli_stored_tensor *t = sli_checkpoint_tensor(r->c->from, part ? part : to->name, &file);
  free(part);
  bool fits = t && !strcmp(t->dtype, "F32") && !stored_check("", to->name, &to->type, t);
  return fits ? sli_safetensors_bytes(file, t) : NULL;
}

static sl_status load_tensor(reading *r, const sl_state_tensor *to) {
  const void *stored = find_stored(r, to);
  if (stored) return write_state(r->rt, to, stored);
  sl_status status = assemble(r, to->name, to->shard ? &to->shard->whole : &to->type);
  if (status || !to->shard) return status ? status : write_state(r->rt, to, r->whole);
  float *part = sli_calloc(1, sl_type_bytes(&to->type));
  sl_shard_take(to->shard, r->whole, part);
  status = write_state(r->rt, to, part);
  free(part);
  return status;
}

static int by_name(const void *a, const void *b) {
  const sl_state_tensor *const *x = a, *const *y = b;
  return strcmp((*x)->name, (*y)->name);
}

/* In order of their names, so that what devices have of one tensor comes together. */
sl_status checkpoints_load(const checkpoints *c, const sl_lowered *lowered, sl_runtime *rt) {
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

/* ---- writing ------------------------------------------------------------------------------ */

/* A checkpoint to go on from holds numbers: one with others would push out those
 * before it. */
static sl_status check_finite(const sl_stage_state *state, const sl_state_tensor *t) {
  const uint32_t *bits = t->data, exponent = 0x7f800000; /* all ones: infinite or NaN */
  int64_t n = sl_type_elements(&t->type);
  bool bad = false;
  for (int64_t i = 0; i < n; i++) bad |= (bits[i] & exponent) == exponent;
  if (!bad) return SL_OK;
  return sl_fail(SL_E_NUMERIC, "tensor %s is not finite after %lld steps: no checkpoint of it",
                 t->name, (long long)state->steps);
}

static sl_status write_shard(checkpoints *c, const sl_stage_state *state, int rank,
                             void *receipt) {
  int n = state->ntensors;
  sli_tensor_data *tensors = sli_calloc((size_t)n, sizeof *tensors);
  char **names = sli_calloc((size_t)n, sizeof *names);
  for (int i = 0; i < n; i++) {
    const sl_state_tensor *t = &state->tensors[i];
    names[i] = t->shard ? part_format(t->name, t->shard) : NULL;
    tensors[i] = (sli_tensor_data){.name = names[i] ? names[i] : t->name, .ndim = t->type.ndim,
                                   .dim = t->type.dim, .data = t->data};
  }
  sli_shard_file shard;
  sl_status status =
      sli_checkpoints_write(c->files, state->steps, state->stage, rank, tensors, n, &shard);
  if (!status) memcpy(receipt, &shard, sizeof shard);
  for (int i = 0; i < n; i++) free(names[i]);
  free(names);
  free(tensors);
  return status;
}

/* The on_store and on_stored of sl_lower_options; ctx is the checkpoints. */
sl_status checkpoints_store(void *ctx, const sl_stage_state *state, void *receipt) {
  checkpoints *c = ctx;
  sl_status status = SL_OK;
  for (int i = 0; i < state->ntensors && !status; i++) {
    const sl_state_tensor *t = &state->tensors[i];
    SLI_CHECK(t->type.dtype == SL_F32, "%s is not kept as f32", t->name);
    status = check_finite(state, t);
  }
  return status ? status : write_shard(c, state, c->ranks > 1 ? state->rank : -1, receipt);
}

sl_status checkpoints_commit(void *ctx, int64_t steps, int nreceipts,
                             const void *const *receipts) {
  checkpoints *c = ctx;
  const sli_shard_file **shards = sli_calloc((size_t)nreceipts, sizeof *shards);
  for (int i = 0; i < nreceipts; i++) shards[i] = receipts[i];
  sl_status status = sli_checkpoints_commit(c->files, steps, c->about, nreceipts, shards);
  free(shards);
  if (!status) atomic_store_explicit(&c->newest, steps, memory_order_relaxed);
  return status;
}

int64_t checkpoints_newest(const checkpoints *c) {
  return c ? SLI_MAX(atomic_load_explicit(&c->newest, memory_order_relaxed), checkpoints_start(c))
           : 0;
}

/* What a device has of its own, from memory that the host does not address too. *copies is
 * the caller's to free(). */
static sl_status read_state(sl_runtime *rt, const sl_state_tensor *tensors, int n,
                            sl_state_tensor *own, int *nown, char **copies) {
  size_t bytes = 0, at = 0;
  for (int i = 0; i < n; i++)
    if (!tensors[i].replica && !tensors[i].data) bytes += sl_type_bytes(&tensors[i].type);
  *copies = bytes ? sli_calloc(1, bytes) : NULL;
  sl_status status = SL_OK;
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

static sl_status store_device(checkpoints *c, const sl_lowered *lowered, sl_runtime *rt,
                              int device, char (*receipts)[SL_RECEIPT_BYTES], int *n) {
  sl_stage_state state = {.steps = sl_runtime_steps(rt), .stage = device / c->ranks,
                          .rank = device % c->ranks};
  const sl_state_tensor *tensors;
  int count = sl_lowered_state(lowered, rt, state.stage, state.rank, &tensors);
  sl_state_tensor *own = sli_calloc((size_t)count, sizeof *own);
  char *copies = NULL;
  sl_status status = read_state(rt, tensors, count, own, &state.ntensors, &copies);
  state.tensors = own;
  if (!status && state.ntensors) status = checkpoints_store(c, &state, receipts[(*n)++]);
  free(copies);
  free(own);
  return status;
}

/* Receipts of the devices that lie in this process; n of them. */
static sl_status store_here(checkpoints *c, const sl_lowered *lowered, sl_runtime *rt,
                            char (*receipts)[SL_RECEIPT_BYTES], int *n) {
  sl_status status = SL_OK;
  for (int d = 0; d < sl_lowered_stages(lowered) * c->ranks && !status; d++)
    status = store_device(c, lowered, rt, d, receipts, n);
  return status;
}

static int by_stage(const void *a, const void *b) {
  const sli_shard_file *const *x = a, *const *y = b;
  return (*x)->stage != (*y)->stage ? (*x)->stage - (*y)->stage : (*x)->rank - (*y)->rank;
}

/* Process 0 gets all receipts. */
static sl_status collect(sl_job *others, int most, char (*receipts)[SL_RECEIPT_BYTES], int *n) {
  sl_blob *blobs = NULL;
  sl_status status = sl_job_meet(others, "stored", receipts, (size_t)*n * sizeof *receipts,
                                 &blobs);
  if (!blobs) return status;
  *n = 0;
  for (int i = 0; i < sl_job_processes(others); i++) {
    size_t count = SLI_MIN(blobs[i].bytes / sizeof *receipts, (size_t)(most - *n));
    memcpy(receipts[*n], blobs[i].data, count * sizeof *receipts);
    *n += (int)count;
    free(blobs[i].data);
  }
  free(blobs);
  return status;
}

sl_status checkpoints_finish(checkpoints *c, const sl_lowered *lowered, sl_runtime *rt,
                             sl_job *others) {
  int64_t steps = sl_runtime_steps(rt);
  if (!c || steps <= SLI_MAX(checkpoints_start(c), steps - steps % c->every)) return SL_OK;
  int most = sl_lowered_stages(lowered) * c->ranks, n = 0;
  char (*receipts)[SL_RECEIPT_BYTES] = sli_calloc((size_t)most, sizeof *receipts);
  sl_status status = store_here(c, lowered, rt, receipts, &n);
  if (!status) status = collect(others, most, receipts, &n);
  if (!status && !sl_job_process(others)) {
    const void **list = sli_calloc((size_t)most, sizeof *list);
    for (int i = 0; i < n; i++) list[i] = receipts[i];
    qsort(list, (size_t)n, sizeof *list, by_stage);
    status = checkpoints_commit(c, steps, n, list);
    free(list);
  }
  free(receipts);
  return status;
}
