#include "graph/lower/kinds.h"

#include <string.h>

#include <sluice/cuda.h>
#include <sluice/lower.h>

#include "base/base.h"
#include "comm/nccl/nccl.h"

static const char *always_bf16(void) { return "bf16"; }

static const sli_kind kinds[] = {
    {"cpu", .compute = &sl_queue_cpu, .host = &sl_queue_cpu, .run_ahead = 1, .computes = true,
     .times_calls = true, .bf16 = sl_cpu_bf16},
    {"cuda", .compute = &sl_queue_cuda, .host = &sl_queue_cpu, .copy = &sl_queue_cuda,
     .memory = {&sl_memory_cuda, &sl_memory_pinned}, .direct = sli_nccl_find, .run_ahead = 2,
     .computes = true, .times_calls = true, .bf16 = always_bf16, .narrow = true},
    {"timed", .compute = &sl_queue_timed, .host = &sl_queue_null, .run_ahead = 1,
     .modelled = true, .bf16 = always_bf16, .narrow = true},
    {"null", .compute = &sl_queue_null, .host = &sl_queue_null, .run_ahead = 1}};

sl_status sli_kind_find(const char *name, const sli_kind **out) {
  for (size_t i = 0; i < SLI_COUNT(kinds); i++)
    if (!strcmp(kinds[i].name, name ? name : "cpu")) {
      *out = &kinds[i];
      return SL_OK;
    }
  return sl_fail(SL_E_USAGE, "unknown device kind '%s'", name);
}

bool sl_device_computes(const char *kind) {
  const sli_kind *found = NULL;
  return !sli_kind_find(kind, &found) && found->computes;
}

int sl_device_process(int device, int devices, int processes) {
  return (int)((int64_t)device * SLI_MAX(processes, 1) / devices);
}
