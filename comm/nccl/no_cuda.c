/* SPDX-License-Identifier: Apache-2.0 */
/* Channels between GPUs in a build without CUDA, or without NCCL's header: all calls fail. */
#include "comm/nccl/nccl.h"

sl_status sli_nccl_find(void) {
  return sl_fail(SL_E_UNSUPPORTED, "this build of Sluice has no NCCL (docs/cuda.md)");
}

static sl_status no_queue(const sl_queue_config *config, void **queue) {
  (void)config, (void)queue;
  return sli_nccl_find();
}

const sl_queue_ops sl_queue_nccl = {.name = "nccl", .open = no_queue};

sl_status sli_nccl_open(const sli_nccl_options *options, sli_nccl **out) {
  (void)options, (void)out;
  return sli_nccl_find();
}

/* Closes NULL only: this build has no sli_nccl. */
void sli_nccl_close(sli_nccl *n) { (void)n; }

sl_status sli_nccl_hear(sli_nccl *n, int from, const void *data, size_t bytes) {
  (void)n, (void)from, (void)data, (void)bytes;
  return SL_OK;
}

sl_status sli_nccl_connect(sli_nccl *n, bool *ready) {
  (void)n;
  *ready = true;
  return SL_OK;
}

uint32_t sli_nccl_send(sli_nccl *n, int channel, const void *data, size_t bytes) {
  (void)n, (void)channel, (void)data, (void)bytes;
  return 0;
}

bool sli_nccl_done(const sli_nccl *n, int channel, uint32_t number) {
  (void)n, (void)channel, (void)number;
  return true;
}

void sli_nccl_receive(sli_nccl *n, int channel, uint32_t number, void *place, size_t bytes,
                      const void *tag) {
  (void)n, (void)channel, (void)number, (void)place, (void)bytes, (void)tag;
}

bool sli_nccl_progress(sli_nccl *n) {
  (void)n;
  return false;
}

uint64_t sli_nccl_patience_ns(sli_nccl *n) {
  (void)n;
  return UINT64_MAX;
}

sli_nccl_traffic sli_nccl_count(const sli_nccl *n) {
  (void)n;
  return (sli_nccl_traffic){0, 0};
}
