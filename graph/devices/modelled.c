/* SPDX-License-Identifier: Apache-2.0 */
/* Devices without values: `timed` devices only let time pass, `null` devices take none. */
#include "base/number.h"
#include "graph/devices/kinds.h"

/* Reads "N". */
static bool read(const char **text, sli_arena *arena, sl_device_options *out) {
  (void)arena;
  return sli_number_read(text, 1, SLI_MOST_DEVICES, &out->count);
}

static const char *bf16(void) { return "bf16"; }

/* Queues of one kind that transfer registers to and from every other home. */
#define MOVED_BY(queue) \
  { [SL_SPACE_HOST] = &(queue), [SL_SPACE_DISK] = &(queue), [SL_SPACE_PEER] = &(queue) }

static const sli_kind timed_hosted = {
    .name = "timed",
    .form = "timed[:N]",
    .read = read,
    .compute = &sl_queue_timed,
    .host = &sl_queue_timed,
    .copy = &sl_queue_timed,
    .group = &sl_queue_group,
    .run_ahead = 1,
    .memory = {[SL_SPACE_DEVICE] = &sl_memory_modelled, [SL_SPACE_PEER] = &sl_memory_modelled},
    .modelled = true,
    .move = MOVED_BY(sl_queue_timed),
    .loads = &sl_queue_timed,
    .loads_in_line = true,
    .bf16 = bf16,
    .narrow = true};

const sli_kind sli_kind_timed = {.name = "timed",
                                 .form = "timed[:N]",
                                 .read = read,
                                 .hosted = &timed_hosted,
                                 .compute = &sl_queue_timed,
                                 .host = &sl_queue_null,
                                 .group = &sl_queue_group,
                                 .run_ahead = 1,
                                 .modelled = true,
                                 .move = MOVED_BY(sl_queue_timed),
                                 .loads = &sl_queue_timed,
                                 .loads_in_line = true,
                                 .bf16 = bf16,
                                 .narrow = true};

const sli_kind sli_kind_null = {.name = "null",
                                .form = "null[:N]",
                                .read = read,
                                .compute = &sl_queue_null,
                                .host = &sl_queue_null,
                                .run_ahead = 1,
                                .move = MOVED_BY(sl_queue_null),
                                .loads = &sl_queue_null};
