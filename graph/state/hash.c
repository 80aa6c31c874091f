/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of parameters and optimizer state that do not depend on sharding. */
#include <stdlib.h>
#include <string.h>

#include <sluice/state.h>

#include "base/memory.h"

/* Sums the hashes of elements; each hash covers the element's place in the whole tensor and its
 * bits. */
static uint64_t sum_elements(uint64_t name, const uint32_t *bits, const uint32_t *places,
                             int64_t count) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; i++) {
    uint64_t place = places ? places[i] : (uint64_t)i;
    sum += sli_hash_word(name ^ place, bits[i]);
  }
  return sum;
}

/* Finds each shard element's place in the whole tensor; the caller frees the array. */
static sl_status shard_places(const sl_state_tensor *t, int64_t count, uint32_t **places) {
  if (!t->shard) return SL_OK;
  int64_t all = sl_type_elements(&t->shard->whole);
  uint32_t *whole;
  SLI_TRY(SLI_ALLOCATE(whole, (size_t)all, t->name));
  sl_status status = SLI_ALLOCATE(*places, (size_t)count, t->name);
  for (int64_t i = 0; i < all && !status; i++) whole[i] = (uint32_t)i;
  if (!status) sl_shard_take(t->shard, whole, *places);
  free(whole);
  return status;
}

static sl_status hash_tensor(const sl_state_tensor *t, sl_runtime *rt, uint64_t *sum) {
  int64_t count = sl_type_elements(&t->type);
  uint32_t *bits, *places = NULL;
  SLI_TRY(SLI_ALLOCATE(bits, (size_t)count, t->name));
  sl_status status = sl_runtime_read(rt, t->reg, t->slot, t->offset, sl_type_bytes(&t->type), bits);
  if (!status) status = shard_places(t, count, &places);
  uint64_t name = sli_hash(SLI_HASH_SEED, t->name, strlen(t->name));
  if (!status) *sum += sum_elements(name, bits, places, count);
  free(places);
  free(bits);
  return status;
}

/* Finds the entry of a name, or appends one. */
static sl_state_hash *find_hash(const char *name, sl_state_hash **list, int *count,
                                size_t *capacity) {
  for (int i = 0; i < *count; i++)
    if (!strcmp((*list)[i].name, name)) return &(*list)[i];
  SLI_GROW(*list, (size_t)*count, *capacity);
  (*list)[*count] = (sl_state_hash){name, 0};
  return &(*list)[(*count)++];
}

/* True for the previous version of a parameter, which exists only with delayed updates. */
static bool is_previous(const char *name) {
  const char *colon = strrchr(name, ':');
  return colon && !strcmp(colon, ":previous");
}

/* True for a parameter of a frozen model, which training does not change. */
static bool is_frozen(const sl_lowered *lowered, const char *name) {
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params);
  for (int i = 0; i < n; i++)
    if (params[i].frozen && !strcmp(params[i].name, name)) return true;
  return false;
}

sl_status sl_state_hashes(const sl_lowered *lowered, sl_runtime *rt, sl_state_hash **out,
                          int *count) {
  size_t capacity = 0;
  sl_status status = SL_OK;
  *out = NULL, *count = 0;
  for (int s = 0; s < sl_lowered_stages(lowered); s++)
    for (int r = 0; r < sl_lowered_ranks(lowered); r++) {
      const sl_state_tensor *tensors;
      int n = sl_lowered_state(lowered, rt, s, r, &tensors);
      for (int i = 0; i < n && !status; i++)
        if (!tensors[i].replica && !is_previous(tensors[i].name) &&
            !is_frozen(lowered, tensors[i].name))
          status = hash_tensor(&tensors[i], rt,
                               &find_hash(tensors[i].name, out, count, &capacity)->hash);
    }
  return status;
}
