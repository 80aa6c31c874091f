/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of parameters and optimizer state that do not depend on sharding. */
#include <stdlib.h>
#include <string.h>

#include <sluice/state.h>

#include "base/base.h"

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

/* Returns each shard element's place in the whole tensor; the caller frees the array. */
static uint32_t *shard_places(const sl_shard *shard, int64_t count) {
  int64_t all = sl_type_elements(&shard->whole);
  uint32_t *whole = sli_calloc((size_t)all, sizeof *whole),
           *part = sli_calloc((size_t)count, sizeof *part);
  for (int64_t i = 0; i < all; i++) whole[i] = (uint32_t)i;
  sl_shard_take(shard, whole, part);
  free(whole);
  return part;
}

static sl_status hash_tensor(const sl_state_tensor *t, sl_runtime *rt, uint64_t *sum) {
  int64_t count = sl_type_elements(&t->type);
  uint32_t *bits = sli_calloc((size_t)count, sizeof *bits);
  sl_status status = sl_runtime_read(rt, t->reg, t->slot, t->offset, sl_type_bytes(&t->type), bits);
  uint32_t *places = t->shard ? shard_places(t->shard, count) : NULL;
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
