/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of modelled devices next to a real host. It holds nothing; a transfer between the two is a
 * copy that takes time. */
#include <sluice/program.h>

#include "base/base.h"

static sl_status modelled_create(const sl_memory_config *config, size_t bytes, void **memory) {
  (void)config, (void)bytes;
  *memory = NULL;
  return SL_OK;
}

static void modelled_destroy(void *memory, size_t bytes) { (void)memory, (void)bytes; }

static sl_status modelled_copy(void *to, const void *from, size_t bytes) {
  (void)to, (void)from, (void)bytes;
  return SL_OK;
}

const sl_memory_ops sl_memory_modelled = {.name = "modelled",
                                          .fixed = true,
                                          .far = true,
                                          .create = modelled_create,
                                          .destroy = modelled_destroy,
                                          .copy = modelled_copy};
