/* SPDX-License-Identifier: Apache-2.0 */
/* Stubs for builds without liburing, which have no ring: transfers run one after another. */
#include "base/base.h"
#include "kernels/disk/ring.h"

sli_disk_ring *sli_disk_ring_open(const char **why) {
  *why = "this build has no liburing";
  return NULL;
}

/* No ring exists in this build. */
void sli_disk_ring_close(sli_disk_ring *ring) { (void)ring; }

sli_disk_flights *sli_disk_flights_open(const char **why) {
  *why = "this build has no liburing";
  return NULL;
}

/* No flights exist in this build. */
void sli_disk_flights_close(sli_disk_flights *flights) { (void)flights; }
uint64_t sli_disk_flights_begin(sli_disk_flights *flights, const sli_disk_way *ways, size_t count) {
  (void)flights, (void)ways, (void)count;
  return 0;
}
uint64_t sli_disk_flights_passed(sli_disk_flights *flights) { return (void)flights, 0; }
const char *sli_disk_flights_failure(const sli_disk_flights *flights) {
  return (void)flights, NULL;
}

sl_status sli_disk_ring_go(sli_disk_ring *ring, const sli_disk_way *ways, size_t count) {
  (void)ring, (void)ways;
  SLI_CHECK(!count, "there is no ring for %zu transfers", count);
  return SL_OK;
}
