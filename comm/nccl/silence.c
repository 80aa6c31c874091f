/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/nccl/nccl.h"

#include <stdlib.h>

int sli_nccl_silence_ms(void) {
  enum { SILENCE_MS = 20000 };
  const char *text = getenv("SLUICE_NCCL_SECONDS");
  double seconds = text ? atof(text) : 0;
  return seconds > 0 && seconds < 1e6 ? (int)(seconds * 1000) : SILENCE_MS;
}
