/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/net/inflow.h"

#include <string.h>

static bool arrive(sli_inflow *in) {
  in->head_bytes = 0;
  in->number++;
  sli_net_arrive(in->peer, in->head.header, in->head.bytes);
  return !sli_net_is_deaf(in->peer);
}

/* Starts a message when its head is complete. */
static bool inflow_begin(sli_inflow *in) {
  if (in->head.number != in->number) {
    sli_net_fail(in->peer, "it sent message %llu instead of message %llu",
                 (unsigned long long)in->head.number, (unsigned long long)in->number);
    return false;
  }
  if (!in->head.bytes) return arrive(in);
  in->place = sli_net_place(in->peer, in->head.header, in->head.bytes);
  in->left = in->place ? in->head.bytes : 0;
  return in->place;
}

static size_t take_head(sli_inflow *in, const uint8_t *bytes, size_t count) {
  count = SLI_MIN(count, sizeof in->head - in->head_bytes);
  memcpy((uint8_t *)&in->head + in->head_bytes, bytes, count);
  in->head_bytes += count;
  return count;
}

bool sli_inflow_filled(sli_inflow *in, size_t count) {
  in->place += count;
  in->left -= count;
  return in->left || arrive(in);
}

bool sli_inflow_take(sli_inflow *in, const uint8_t *bytes, size_t count) {
  bool good = true;
  while (count && good) {
    size_t taken = in->left ? SLI_MIN(count, in->left) : take_head(in, bytes, count);
    if (in->left) {
      memcpy(in->place, bytes, taken);
      good = sli_inflow_filled(in, taken);
    } else if (in->head_bytes == sizeof in->head) {
      good = inflow_begin(in);
    }
    bytes += taken;
    count -= taken;
  }
  return good;
}
