/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of a lowered graph: where their values are stored, and access to them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/lower.h>

#include "actors/plan/plan.h"
#include "base/memory.h"
#include "graph/build/build.h"
#include "graph/state/weights.h"
#include "ops/storage.h"

/* ---- places ---------------------------------------------------------------------------- */

static const sl_param_info *param_at(const sl_lowered *l, int index) {
  const sl_param_info *params;
  int n = sl_lowered_params(l, &params);
  SLI_CHECK(index >= 0 && index < n, "parameter %d of %d", index, n);
  return &params[index];
}

static bool is_here(const sl_param_place *place, sl_runtime *rt) {
  return sl_runtime_newest(rt, place->reg);
}

/* Returns the address of a place's values, or NULL if this process cannot address them. */
static float *place_data(const sl_lowered *l, sl_runtime *rt, const sl_param_place *place) {
  const sl_plan *plan = sl_lowered_plan(l);
  if (!is_here(place, rt) || sli_register_far(plan, &plan->regs[place->reg])) return NULL;
  return (float *)((char *)sl_runtime_newest(rt, place->reg) + place->offset);
}

static bool same_part(const sl_part *a, const sl_part *b) {
  bool same = a->axis == b->axis && a->nranges == b->nranges;
  for (int r = 0; same && r < a->nranges; r++)
    same = a->begin[r] == b->begin[r] && a->count[r] == b->count[r];
  return same;
}

static bool same_shard(const sl_shard *a, const sl_shard *b) {
  if (!a || !b) return a == b;
  bool same = true;
  for (int p = 0; p < SL_SHARD_PARTS; p++) same &= same_part(&a->parts[p], &b->parts[p]);
  return same;
}

/* True if an earlier place of this process has the same values. */
static bool is_known(const sl_param_info *p, sl_runtime *rt, int i) {
  for (int k = 0; k < i && p->places[i].replica; k++)
    if (is_here(&p->places[k], rt) && same_shard(p->places[k].shard, p->places[i].shard))
      return true;
  return false;
}

sl_type sli_param_values(const sl_param_info *p, const sl_param_place *place) {
  return place->shard ? sl_shard_type(place->shard) : p->type;
}

/* Quantized blocks are stored in groups of rows, separately per device. */
sl_status sli_param_read(const sl_param_info *p, const sl_param_place *place, sl_runtime *rt,
                         float *values) {
  size_t bytes = sl_type_bytes(&place->type);
  int32_t slot = sl_runtime_newest_slot(rt, place->reg);
  if (!p->storage) return sl_runtime_read(rt, place->reg, slot, place->offset, bytes, values);
  sl_type type = sli_param_values(p, place);
  void *lies;
  SLI_TRY(SLI_ALLOCATE(lies, bytes, p->name));
  sl_status status = sl_runtime_read(rt, place->reg, slot, place->offset, bytes, lies);
  if (!status) sli_storage_ungroup(p->storage, &place->type, lies);
  if (!status) sli_storage_unpack(p->storage, &type, lies, values);
  free(lies);
  return status;
}

/* Reads the values at a place into the whole tensor. */
static sl_status read_place(const sl_param_info *p, const sl_param_place *place, sl_runtime *rt,
                            float *whole) {
  if (!place->shard) return sli_param_read(p, place, rt, whole);
  sl_type type = sli_param_values(p, place);
  float *part;
  SLI_TRY(SLI_ALLOCATE(part, (size_t)sl_type_elements(&type), p->name));
  sl_status status = sli_param_read(p, place, rt, part);
  if (!status) sl_shard_put(place->shard, part, whole);
  free(part);
  return status;
}

/* Groups values in their storage format, which are stored by rows, and writes them. */
static sl_status write_lying(const sl_param_info *p, const sl_param_place *place, sl_runtime *rt,
                             void *lies) {
  int32_t slot = sl_runtime_newest_slot(rt, place->reg);
  sli_storage_group(p->storage, &place->type, lies);
  return sl_runtime_write(rt, place->reg, slot, place->offset, sl_type_bytes(&place->type), lies);
}

static sl_status write_place(const sl_param_info *p, const sl_param_place *place, sl_runtime *rt,
                             const float *whole) {
  sl_type values = sli_param_values(p, place);
  int32_t slot = sl_runtime_newest_slot(rt, place->reg);
  if (!place->shard && !p->storage)
    return sl_runtime_write(rt, place->reg, slot, place->offset, sl_type_bytes(&values), whole);
  float *part;
  void *stored = NULL;
  SLI_TRY(SLI_ALLOCATE(part, (size_t)sl_type_elements(&values), p->name));
  if (place->shard) sl_shard_take(place->shard, whole, part);
  else memcpy(part, whole, sl_type_bytes(&values));
  sl_status status =
      p->storage ? SLI_ALLOCATE(stored, sl_type_bytes(&place->type), p->name) : SL_OK;
  if (stored) sli_storage_pack(p->storage, &values, part, stored);
  if (!status) status = write_lying(p, place, rt, stored ? stored : part);
  free(stored);
  free(part);
  return status;
}

/* ---- blocks of a file -------------------------------------------------------------------- */

/* Copies a shard's blocks from the tensor's blocks into one buffer; the caller frees it. */
static sl_status take_blocks(const char *name, const sli_file_blocks *from, const sl_shard *shard,
                             char **out) {
  sl_type type = sl_shard_type(shard);
  int64_t all = sl_type_elements(&shard->whole), count = sl_type_elements(&type);
  uint32_t *whole, *part = NULL;
  SLI_TRY(SLI_ALLOCATE(whole, (size_t)all, name));
  sl_status status = SLI_ALLOCATE(part, (size_t)count, name);
  if (!status) status = SLI_ALLOCATE(*out, (size_t)count * from->bytes, name);
  for (int64_t i = 0; i < all && !status; i++) whole[i] = (uint32_t)i;
  if (!status) sl_shard_take(shard, whole, part);
  for (int64_t i = 0; i < count && !status; i++)
    memcpy(*out + (size_t)i * from->bytes, (const char *)from->blocks + part[i] * from->bytes,
           from->bytes);
  free(whole);
  free(part);
  return status;
}

static sl_status write_blocks(const sl_param_info *p, const sl_param_place *place, sl_runtime *rt,
                              const sli_file_blocks *from) {
  sl_type values = sli_param_values(p, place);
  sl_shard blocks;
  char *part = NULL, *lies;
  SLI_TRY(SLI_ALLOCATE(lies, sl_type_bytes(&place->type), p->name));
  sl_status status = SL_OK;
  if (place->shard) {
    bool fits = sli_storage_shard(p->storage, place->shard, &blocks);
    SLI_CHECK(fits, "a cut goes through blocks of %s", p->name);
    status = take_blocks(p->name, from, &blocks, &part);
  }
  if (!status) sli_storage_take(p->storage, from->type, &values, part ? part : from->blocks, lies);
  if (!status) status = write_lying(p, place, rt, lies);
  free(part);
  free(lies);
  return status;
}

sl_status sli_param_set_blocks(const sl_lowered *l, sl_runtime *rt, int index,
                               const sli_file_blocks *from) {
  const sl_param_info *p = param_at(l, index);
  sl_status status = SL_OK;
  for (int i = 0; i < p->nplaces && !status; i++)
    if (is_here(&p->places[i], rt)) status = write_blocks(p, &p->places[i], rt, from);
  return status;
}

sl_status sli_param_set_stored(const sl_lowered *l, sl_runtime *rt, int index, const void *stored) {
  const sl_param_info *p = param_at(l, index);
  sl_status status = SL_OK;
  for (int i = 0; i < p->nplaces && !status; i++) {
    const sl_param_place *place = &p->places[i];
    SLI_CHECK(!place->shard, "%s is cut", p->name);
    int32_t slot = sl_runtime_newest_slot(rt, place->reg);
    if (is_here(place, rt))
      status = sl_runtime_write(rt, place->reg, slot, place->offset, sl_type_bytes(&place->type),
                                stored);
  }
  return status;
}

/* ---- values ---------------------------------------------------------------------------- */

bool sl_param_here(const sl_lowered *l, sl_runtime *rt, int index) {
  const sl_param_info *p = param_at(l, index);
  bool here = false;
  for (int i = 0; i < p->nplaces; i++) here |= is_here(&p->places[i], rt);
  return here;
}

float *sl_param_data(const sl_lowered *l, sl_runtime *rt, int index) {
  const sl_param_info *p = param_at(l, index);
  float *data = NULL;
  for (int i = 0; i < p->nplaces && !data && !p->storage; i++)
    if (!p->places[i].shard) data = place_data(l, rt, &p->places[i]);
  return data;
}

sl_status sl_param_get(const sl_lowered *l, sl_runtime *rt, int index, float *whole, bool *all) {
  const sl_param_info *p = param_at(l, index);
  int64_t found = 0;
  for (int i = 0; i < p->nplaces; i++) {
    if (!is_here(&p->places[i], rt) || is_known(p, rt, i)) continue;
    sl_status status = read_place(p, &p->places[i], rt, whole);
    if (status) return status;
    sl_type values = sli_param_values(p, &p->places[i]);
    found += sl_type_elements(&values);
  }
  *all = found == sl_type_elements(&p->type);
  return SL_OK;
}

/* Refuses numbers that no planes stand for. */
static sl_status check_finite(const sl_param_info *p, const float *whole) {
  for (int64_t i = 0, n = sl_type_elements(&p->type); i < n; i++)
    if (!isfinite(whole[i]))
      return sl_fail(SL_E_INPUT, "parameter %s: element %lld is not finite, so it has no planes",
                     p->name, (long long)i);
  return SL_OK;
}

sl_status sl_param_set(const sl_lowered *l, sl_runtime *rt, int index, const float *whole) {
  const sl_param_info *p = param_at(l, index);
  if (sli_storage_in_planes(p->storage)) SLI_TRY(check_finite(p, whole));
  if (sli_storage_blocks(p->storage))
    return sl_fail(
        SL_E_UNSUPPORTED,
        "parameter %s is stored in quantized blocks, so its values must come from a file", p->name);
  sl_status status = SL_OK;
  for (int i = 0; i < p->nplaces && !status; i++)
    if (is_here(&p->places[i], rt) && (p->storage || place_data(l, rt, &p->places[i]) != whole))
      status = write_place(p, &p->places[i], rt, whole);
  return status;
}

/* ---- initial values -------------------------------------------------------------------- */

/* Frozen copies, such as a reference model, start with the model's values. */
static sli_init_item item_of(const sl_param_info *p, float *values) {
  return (sli_init_item){&p->type, p->init, p->frozen ? p->frozen : p->name, values};
}

/* Initializes a parameter that is not contiguous in host memory, by way of a buffer. */
static sl_status init_apart(const sl_lowered *l, sl_runtime *rt, int index, uint64_t seed) {
  const sl_param_info *p = param_at(l, index);
  float *whole;
  SLI_TRY(SLI_ALLOCATE(whole, (size_t)sl_type_elements(&p->type), p->name));
  sli_init_item item = item_of(p, whole);
  sli_init_all(1, &item, seed);
  sl_status status = sl_param_set(l, rt, index, whole);
  free(whole);
  return status;
}

static sl_status start_state(const sl_state_tensor *t, sl_runtime *rt) {
  if (t->start == 0) return SL_OK;
  int64_t n = sl_type_elements(&t->type);
  float *values;
  SLI_TRY(SLI_ALLOCATE(values, (size_t)n, t->name));
  for (int64_t i = 0; i < n; i++) values[i] = t->start;
  sl_status status =
      sl_runtime_write(rt, t->reg, t->slot, t->offset, sl_type_bytes(&t->type), values);
  free(values);
  return status;
}

sl_status sl_states_init(const sl_lowered *l, sl_runtime *rt) {
  const sl_state_tensor *tensors;
  sl_status status = SL_OK;
  for (int s = 0; s < sl_lowered_stages(l); s++)
    for (int r = 0; r < sl_lowered_ranks(l); r++) {
      int n = sl_lowered_state(l, rt, s, r, &tensors);
      for (int i = 0; i < n && !status; i++) status = start_state(&tensors[i], rt);
    }
  return status;
}

sl_status sl_params_init(const sl_lowered *l, sl_runtime *rt, uint64_t seed) {
  const sl_param_info *params;
  int n = sl_lowered_params(l, &params), count = 0;
  sli_init_item *items = sli_calloc((size_t)n, sizeof *items);
  for (int i = 0; i < n; i++) {
    const sl_param_info *p = &params[i];
    float *data = sl_param_data(l, rt, i);
    if (data) items[count++] = item_of(p, data);
  }
  sli_init_all(count, items, seed);
  free(items);
  sl_status status = SL_OK;
  for (int i = 0; i < n && !status; i++) {
    const float *data = sl_param_data(l, rt, i);
    if (data) status = sl_param_set(l, rt, i, data);
    else if (sl_param_here(l, rt, i) && !sli_storage_blocks(params[i].storage))
      status = init_apart(l, rt, i, seed);
  }
  return status ? status : sl_states_init(l, rt);
}

static sl_status copy_versions(const sl_register *r, sl_runtime *rt, int32_t reg) {
  int32_t newest = sl_runtime_newest_slot(rt, reg);
  char *values;
  SLI_TRY(SLI_ALLOCATE(values, r->slot_bytes, r->name));
  sl_status status = sl_runtime_read(rt, reg, newest, 0, r->slot_bytes, values);
  for (int32_t s = 0; s < r->initial && !status; s++)
    if (s != newest) status = sl_runtime_write(rt, reg, s, 0, r->slot_bytes, values);
  free(values);
  return status;
}

sl_status sl_params_copy_versions(const sl_lowered *l, sl_runtime *rt) {
  const sl_plan *plan = sl_lowered_plan(l);
  sl_status status = SL_OK;
  for (int32_t i = 0; i < plan->nregs && !status; i++) {
    const sl_register *r = &plan->regs[i];
    bool versions = r->memory == SL_MEMORY_PARAMETERS && r->initial > 1;
    if (versions && sl_runtime_newest(rt, i)) status = copy_versions(r, rt, i);
  }
  return status;
}
