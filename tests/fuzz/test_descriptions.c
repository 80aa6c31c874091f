/* SPDX-License-Identifier: Apache-2.0 */
/* Untrusted JSON files that describe machines, measured ops, ticks and arrivals are read, or
 * refused with an error that names the file, whichever kind they are read as.
 * labels: random unthreaded */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/fuzz/fuzz.h"
#include "tools/hardware/hardware.h"
#include "tools/hardware/profile.h"
#include "tools/serving/arrivals.h"
#include "tools/serving/ticks.h"

const char *const fuzz_words[] = {"\"curves\":",
                                  "\"rows\":",
                                  "\"exchange\":",
                                  "\"links\":",
                                  "\"process_link\":",
                                  "\"seconds\":",
                                  "\"m\":",
                                  "\"n\":",
                                  "\"k\":",
                                  "\"bytes\":",
                                  "\"flops\":",
                                  "\"devices\":",
                                  "\"head\":",
                                  "\"positions\":",
                                  "\"tile\":",
                                  "\"host\":",
                                  "\"net\":",
                                  "\"all-reduce\":",
                                  "\"algorithm\":\"ring\"",
                                  "\"from\":",
                                  "\"to\":",
                                  "\"f32\":",
                                  "\"ops\":",
                                  "\"name\":\"a\"",
                                  "\"tick_corners\":",
                                  "\"spread\":",
                                  "\"position\":",
                                  "\"pair\":",
                                  "\"pick\":",
                                  "\"time\":",
                                  "\"prompt\":",
                                  "\"answer\":",
                                  "[1,2]",
                                  "[[1],[2]]",
                                  "{}",
                                  "[]",
                                  "null",
                                  "1e308",
                                  "1e-308",
                                  "-1",
                                  "\n",
                                  NULL};

static const char *path_of(const uint8_t *bytes, size_t count) {
  static char path[64];
  if (!*path)
    snprintf(path, sizeof path, "%s/sluice-fuzz-%d.json",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm", getpid());
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(bytes, 1, count, file) != count || fclose(file)) abort();
  return path;
}

static void check(sl_status status, const char *path) {
  if (status && !strstr(sl_detail(), path)) abort(); /* the error names the file */
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  const char *path = path_of(bytes, count);
  sli_arena arena = {0};
  sl_hardware hardware;
  sl_tick_cost cost;
  arrivals come;
  profile *ops = NULL;
  bool whole;
  double spread;
  sl_status status = hardware_read(path, "f32", false, &arena, &hardware, &spread);
  check(status, path);
  if (!status && (hardware.nrows < 0 || hardware.flops_per_second < 1)) abort();
  status = profile_read(path, &ops);
  check(status, path);
  if (!status) (void)!profile_seconds(ops, "a");
  if (!status) profile_destroy(ops);
  check(ticks_read(path, &cost, &whole), path);
  check(arrivals_read(path, &arena, &come), path);
  sli_arena_fini(&arena);
  unlink(path);
  return 0;
}
