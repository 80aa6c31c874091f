/* SPDX-License-Identifier: Apache-2.0 */
/* CPU devices: each gets a number of this machine's cores. */
#include "base/number.h"
#include "graph/devices/kinds.h"

/* Reads "N" or "NxT". */
static bool read(const char **text, sli_arena *arena, sl_device_options *out) {
  (void)arena;
  if (!sli_number_read(text, 1, SLI_MOST_DEVICES, &out->count)) return false;
  return **text != 'x' || (++*text, sli_number_read(text, 1, SLI_MOST_DEVICES, &out->threads));
}

/* Divides all cores among the devices, unless the user sets the threads per device. */
static sl_status cpu_place(sli_site *site) {
  int *threads = &site->devices->threads;
  sl_status status = sl_machine_create(NULL, &site->machine);
  if (status) return status;
  if (!*threads) *threads = sl_placement_default(site->machine, site->count);
  return sl_placement_create(site->machine, site->count, *threads, &site->placement);
}

const sli_kind sli_kind_cpu = {
    .name = "cpu",
    .form = "cpu[:N[xT]]",
    .read = read,
    .place = cpu_place,
    .model = &sli_kind_timed,
    .compute = &sl_queue_cpu,
    .host = &sl_queue_cpu,
    .run_ahead = 1,
    .cores = true,
    .memory = {[SL_SPACE_DISK] = &sl_memory_disk},
    .move = {[SL_SPACE_DISK] = &sl_queue_disk, [SL_SPACE_PEER] = &sl_queue_cpu},
    .loads = &sl_queue_loads,
    .computes = true,
    .times_calls = true,
    .bf16 = sl_cpu_bf16};
