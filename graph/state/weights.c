/* Weight files: from names in a file to parameters in a runtime, and back. */
#include <sluice/state.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "io/shards.h"
#include "kernels/ops/ops.h"
#include "graph/state/adapter.h"
#include "graph/state/parts.h"
#include "graph/state/weights.h"

/* The stored tensor for a parameter, and its file. What holds the bare network, without its
 * head, leaves out the first part of the names: "wte.weight" for "transformer.wte.weight". */
static const sli_stored_tensor *find(const sli_shards *from, const char *name, int *file) {
  const sli_stored_tensor *t = sli_shards_find(from, name, file);
  const char *dot = strchr(name, '.');
  return t || !dot ? t : sli_shards_find(from, dot + 1, file);
}

/* What was found, of all files: a flag for each tensor, those of one file behind another's. */
typedef struct found {
  bool *flags;
  int *begins; /* [files] */
  int count;
} found;

static found found_create(const sli_shards *from) {
  found f = {.begins = sli_calloc((size_t)sli_shards_count(from), sizeof(int))};
  for (int i = 0; i < sli_shards_count(from); i++) {
    f.begins[i] = f.count;
    f.count += sli_shards_tensors(from, i, &(const sli_stored_tensor *){NULL});
  }
  f.flags = sli_calloc((size_t)f.count, sizeof *f.flags);
  return f;
}

static void found_fini(found *f) {
  free(f->flags);
  free(f->begins);
}

static const char *name_of(const sli_shards *from, const found *f, int tensor) {
  int file = sli_shards_count(from) - 1;
  const sli_stored_tensor *tensors = NULL;
  while (f->begins[file] > tensor) file--;
  sli_shards_tensors(from, file, &tensors);
  return tensors[tensor - f->begins[file]].name;
}

/* Tensors nobody asked for are no error (files hold masks and tied copies), but
 * may mean that the model is smaller than the file's. */
static void mention_unused(const char *path, const sli_shards *from, const found *f) {
  int count = 0, first = 0;
  for (int i = f->count - 1; i >= 0; i--)
    if (!f->flags[i]) count++, first = i;
  if (count)
    sli_log("note: the model has no use for %d of the %d tensors of %s (%s%s)", count, f->count, path,
            name_of(from, f, first), count > 1 ? ", ..." : "");
}

/* Room for the values of the parameter that is being worked on, where they lie nowhere in
 * a row. */
typedef struct scratch {
  float *values;
  size_t bytes;
} scratch;

static float *scratch_take(scratch *s, const sl_type *type) {
  size_t bytes = sl_type_bytes(type);
  if (bytes > s->bytes) {
    free(s->values);
    s->values = sli_calloc(1, bytes);
    s->bytes = bytes;
  }
  return s->values;
}

static sl_status load(const sli_shards *from, int file, const sli_stored_tensor *t,
                      const sl_lowered *lowered, sl_runtime *rt, int index, scratch *room) {
  const sl_param_info *params;
  sl_lowered_params(lowered, &params);
  float *values = sl_param_data(lowered, rt, index);
  if (!values) values = scratch_take(room, &params[index].type);
  sl_status status = sli_shards_read(from, file, t, values);
  return status ? status : sl_param_set(lowered, rt, index, values);
}

/* One parameter: it must be there, also where another process has it. */
static sl_status load_param(const char *path, const sli_shards *from, const sl_lowered *lowered,
                            sl_runtime *rt, int index, found *f, scratch *room) {
  const sl_param_info *params;
  sl_lowered_params(lowered, &params);
  int file;
  const sli_stored_tensor *t = find(from, params[index].name, &file);
  if (!t && sli_is_adapter(&params[index])) return SL_OK; /* new beside the file's weights */
  const char *where = t ? sli_shards_path(from, file) : path;
  sl_status status = sli_stored_check(where, params[index].name, &params[index].type, t);
  if (status) return status;
  const sli_stored_tensor *first = t;
  sli_shards_tensors(from, file, &first);
  f->flags[f->begins[file] + (t - first)] = true;
  return sl_param_here(lowered, rt, index) ? load(from, file, t, lowered, rt, index, room) : SL_OK;
}

sl_status sl_weights_load(const char *path, const sl_lowered *lowered, sl_runtime *rt) {
  sli_shards *from;
  sl_status status = sli_shards_open(path, &from);
  if (status) return status;
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params);
  found f = found_create(from);
  scratch room = {0};
  for (int i = 0; i < n && !status; i++)
    status = load_param(path, from, lowered, rt, i, &f, &room);
  if (!status) mention_unused(path, from, &f);
  if (!status) status = sl_states_init(lowered, rt);
  free(room.values);
  found_fini(&f);
  sli_shards_close(from);
  return status;
}

/* ---- saving -------------------------------------------------------------------------- */

typedef struct saving {
  const sl_lowered *lowered;
  sl_runtime *rt;
  const sl_param_info *params;
  int n;
  const sli_saved *list;   /* [n] */
  sli_tensor_data *tensors;
  scratch room;
  sli_tensor_parts *parts; /* the file, where several processes write it */
  int index;               /* of the tensor that is being written */
  const float *values;     /* what lies at one of its places */
} saving;

static const sl_param_info *param_of(const saving *s, int index) {
  return &s->params[s->list[index].param];
}

/* Values that the writer asks for. */
static sl_status gather(void *ctx, int index, const float **out) {
  saving *s = ctx;
  float *values = scratch_take(&s->room, &param_of(s, index)->type);
  bool all = false;
  sl_status status = sl_param_get(s->lowered, s->rt, s->list[index].param, values, &all);
  SLI_CHECK(status || all, "parameter %s is not all here", s->list[index].name);
  if (!status && s->list[index].merged)
    status = sli_adapter_merge(s->lowered, s->rt, s->list[index].param, values);
  *out = values;
  return status;
}

static void write_stretch(void *ctx, int64_t part, int64_t whole, int64_t bytes) {
  saving *s = ctx;
  int64_t each = sizeof(float);
  sli_safetensors_write_part(s->parts, s->index, whole / each, bytes / each,
                             s->values + part / each);
}

/* The adapter's share in what lies at a place. */
static sl_status merge_place(saving *s, const sl_param_place *place, float *values) {
  const sl_type *type = &param_of(s, s->index)->type;
  if (!place->shard)
    return sli_adapter_merge(s->lowered, s->rt, s->list[s->index].param, values);
  float *whole = sli_calloc(1, sl_type_bytes(type));
  sl_shard_put(place->shard, values, whole);
  sl_status status = sli_adapter_merge(s->lowered, s->rt, s->list[s->index].param, whole);
  if (!status) sl_shard_take(place->shard, whole, values);
  free(whole);
  return status;
}

static sl_status write_place(saving *s, const sl_param_place *place) {
  size_t bytes = sl_type_bytes(&place->type);
  float *values = scratch_take(&s->room, &place->type);
  sl_status status = sl_runtime_read(s->rt, place->reg, sl_runtime_newest_slot(s->rt, place->reg),
                                     place->offset, bytes, values);
  if (!status && s->list[s->index].merged) status = merge_place(s, place, values);
  s->values = values;
  if (status) return status;
  if (place->shard) sli_shard_walk(place->shard, write_stretch, s);
  else write_stretch(s, 0, 0, (int64_t)bytes);
  return SL_OK;
}

/* What lies in this process, into the file of all. */
static sl_status write_places(saving *s, const char *path) {
  sl_status status = sli_safetensors_open_parts(path, s->tensors, s->n, &s->parts);
  if (status) return status;
  for (s->index = 0; s->index < s->n; s->index++) {
    const sl_param_info *p = param_of(s, s->index);
    for (int i = 0; i < p->nplaces && !status; i++)
      if (!p->places[i].replica && sl_runtime_newest(s->rt, p->places[i].reg))
        status = write_place(s, &p->places[i]);
  }
  sl_status closed = sli_safetensors_close_parts(s->parts);
  return status ? status : closed;
}

/* Every process writes its own into one file, which appears when all have. */
static sl_status save_together(const char *path, saving *s, sl_job *job) {
  char *parts = sli_format("%s.parts", path);
  bool first = sl_job_process(job) == 0;
  sl_status status = first ? sli_safetensors_begin_parts(parts, s->tensors, s->n) : SL_OK;
  if (!status) status = sl_job_meet(job, "save", NULL, 0, NULL);
  if (!status) status = write_places(s, parts);
  if (!status) status = sl_job_meet(job, "saved", NULL, 0, NULL);
  if (!status && first) status = sli_safetensors_end_parts(parts, path);
  if (status && first) unlink(parts);
  free(parts);
  return status;
}

sl_status sli_weights_save(const char *path, const sli_saved *list, int n,
                           const sl_lowered *lowered, sl_runtime *rt, sl_job *job) {
  saving s = {.lowered = lowered, .rt = rt, .list = list, .n = n};
  sl_lowered_params(lowered, &s.params);
  s.tensors = sli_calloc((size_t)n, sizeof *s.tensors);
  for (int i = 0; i < n; i++)
    s.tensors[i] = (sli_tensor_data){
        .name = list[i].name, .ndim = param_of(&s, i)->type.ndim, .dim = param_of(&s, i)->type.dim,
        .data = list[i].merged ? NULL : sl_param_data(lowered, rt, list[i].param)};
  sl_status status = sl_job_processes(job) > 1 ? save_together(path, &s, job)
                            : sli_safetensors_write_each(path, s.tensors, n, gather, &s);
  free(s.room.values);
  free(s.tensors);
  return status;
}

/* Adapters are merged into what they are beside. */
sl_status sl_weights_save(const char *path, const sl_lowered *lowered, sl_runtime *rt,
                          sl_job *job) {
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params), count = 0;
  sli_saved *list = sli_calloc((size_t)n, sizeof *list);
  for (int i = 0; i < n; i++)
    if (!sli_is_adapter(&params[i]))
      list[count++] = (sli_saved){params[i].name, i, params[i].adapter != NULL};
  sl_status status = sli_weights_save(path, list, count, lowered, rt, job);
  free(list);
  return status;
}

/* ---- between runtimes ------------------------------------------------------------------ */

static sl_status copy(const sl_lowered *from, sl_runtime *from_rt, int i, const sl_lowered *to,
                      sl_runtime *to_rt, int j) {
  const sl_param_info *params;
  sl_lowered_params(to, &params);
  float *there = sl_param_data(to, to_rt, j), *values = there;
  if (!there) values = sli_calloc(1, sl_type_bytes(&params[j].type));
  bool all = false;
  sl_status status = sl_param_get(from, from_rt, i, values, &all);
  SLI_CHECK(status || all, "parameter %s is not all here", params[j].name);
  if (!status) status = sl_param_set(to, to_rt, j, values);
  if (!there) free(values);
  return status;
}

sl_status sl_weights_copy(const sl_lowered *from, sl_runtime *from_rt, const sl_lowered *to,
                       sl_runtime *to_rt) {
  const sl_param_info *a, *b;
  int na = sl_lowered_params(from, &a), nb = sl_lowered_params(to, &b);
  sl_status status = SL_OK;
  for (int j = 0; j < nb && !status; j++) {
    int i = 0;
    while (i < na && strcmp(a[i].name, b[j].name)) i++;
    SLI_CHECK(i < na && sl_type_equal(&a[i].type, &b[j].type), "parameter %s is in one model only",
              b[j].name);
    status = copy(from, from_rt, i, to, to_rt, j);
  }
  return status;
}
