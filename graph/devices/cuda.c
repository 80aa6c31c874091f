/* SPDX-License-Identifier: Apache-2.0 */
/* GPU devices, each driven by a thread on a nearby core. */
#include <stdlib.h>
#include <string.h>

#include <sluice/cuda.h>

#include "base/number.h"
#include "comm/nccl/nccl.h"
#include "graph/devices/kinds.h"

/* Reads GPU numbers: "0,2,0,2". */
static bool read(const char **text, sli_arena *arena, sl_device_options *out) {
  int *numbers = sli_arena_alloc(arena, (strlen(*text) + 1) * sizeof *numbers);
  out->numbers = numbers;
  while (sli_number_read(text, 0, SLI_MOST_DEVICES, &numbers[out->nnumbers])) {
    out->nnumbers++;
    if (**text != ',') return true;
    ++*text;
  }
  return false;
}

/* Uses the first `count` GPUs, unless the user named GPUs. */
static void name_all(sli_site *site, int count) {
  sl_device_options *o = site->devices;
  if (o->nnumbers) return;
  int *numbers = sli_arena_alloc(site->arena, (size_t)count * sizeof *numbers);
  for (int i = 0; i < count; i++) numbers[i] = i;
  o->numbers = numbers;
  o->nnumbers = count;
}

/* Assumes one GPU per device. */
static void imagine(sli_site *site) { name_all(site, site->devices->count); }

/* Checks that the named GPUs exist; uses all GPUs in turn if none was named. */
static sl_status find_all(sli_site *site) {
  const sl_device_options *o = site->devices;
  int count;
  sl_status status = sl_cuda_count(&count);
  if (status) return status;
  for (int i = 0; i < o->nnumbers; i++)
    if (o->numbers[i] >= count)
      return sl_fail(SL_E_USAGE, "devices.kind %s: there is no GPU %d: there %s %d, counted from 0",
                     site->spec, o->numbers[i], count > 1 ? "are" : "is", count);
  name_all(site, count);
  return SL_OK;
}

/* Sets the budget, unless the user does, to the free memory of the fullest of these GPUs. A plan
 * knows its needs before it allocates. GPUs of other processes are assumed to be alike. */
static void set_budget(const sli_site *site, const sl_cuda_device *gpus) {
  size_t *budget = &site->devices->budget_bytes;
  if (*budget) return;
  *budget = gpus[0].free_bytes;
  for (int d = 1; d < site->count; d++) *budget = SLI_MIN(*budget, gpus[d].free_bytes);
}

static sl_status cuda_describe(const sli_site *site, sl_cuda_device *gpus) {
  const sl_device_options *o = site->devices;
  sl_status status = SL_OK;
  for (int d = 0; d < site->count && !status; d++)
    status = sl_cuda_describe(o->numbers[(site->first + d) % o->nnumbers], &gpus[d]);
  return status;
}

static sl_status place_near(sli_site *site, const sl_cuda_device *gpus) {
  const char **pci = sli_calloc((size_t)site->count, sizeof *pci);
  for (int d = 0; d < site->count; d++) pci[d] = gpus[d].pci;
  sl_status status = sl_placement_create_near(site->machine, site->count, pci, &site->placement);
  free(pci);
  return status;
}

static sl_status cuda_place(sli_site *site) {
  sl_status status = find_all(site);
  if (!status) status = sl_machine_create(NULL, &site->machine);
  if (status) return status;
  sl_cuda_device *gpus = sli_calloc((size_t)site->count, sizeof *gpus);
  status = cuda_describe(site, gpus);
  if (!status) set_budget(site, gpus);
  if (!status) status = place_near(site, gpus);
  free(gpus);
  return status;
}

static const char *bf16(void) { return "bf16"; }

const sli_kind sli_kind_cuda = {
    .name = "cuda",
    .form = "cuda[:N,N,...]",
    .read = read,
    .place = cuda_place,
    .imagine = imagine,
    .model = &sli_kind_timed,
    .compute = &sl_queue_cuda,
    .host = &sl_queue_cpu,
    .copy = &sl_queue_cuda,
    .memory = {&sl_memory_cuda, &sl_memory_pinned, &sl_memory_disk, &sl_memory_cuda},
    .move = {[SL_SPACE_HOST] = &sl_queue_cuda,
             [SL_SPACE_DISK] = &sl_queue_disk,
             [SL_SPACE_PEER] = &sl_queue_cuda},
    .loads = &sl_queue_loads,
    .direct = sli_nccl_find,
    .group = &sl_queue_nccl,
    .run_ahead = 2,
    .computes = true,
    .times_calls = true,
    .bf16 = bf16,
    .narrow = true};
