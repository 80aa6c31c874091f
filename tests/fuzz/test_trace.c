/* SPDX-License-Identifier: Apache-2.0 */
/* An untrusted trace with correct hashes is read or refused, and everything that actortrace does
 * with it terminates.
 * labels: random unthreaded */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/trace_file.h"
#include "tools/actortrace/actortrace.h"

static sl_trace *read_trace(const uint8_t *bytes, size_t count) {
  static char path[64];
  if (!*path)
    snprintf(path, sizeof path, "%s/sluice-fuzz-%d.trace",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm", getpid());
  uint8_t *copy = malloc(count + 1);
  if (!copy) abort();
  memcpy(copy, bytes, count);
  if (count >= TRACE_HEAD_BYTES) trace_rehash(copy, count);
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(copy, 1, count, file) != count || fclose(file)) abort();
  free(copy);
  sl_trace *t = NULL;
  if (sl_trace_read(path, &t) && !strstr(sl_detail(), path)) abort();
  unlink(path);
  return t;
}

/* Replays the trace with one more slot in every pool, as advice tries them one by one. */
static void run_again(const sl_trace *t) {
  double *seconds = measured_seconds(t);
  int32_t n = t->plan->nregs + t->plan->npools, *extra = sli_calloc((size_t)n + 1, sizeof *extra);
  for (int32_t i = 0; i < n; i++) extra[i] = i >= t->plan->nregs;
  replay run;
  if (!replay_run(t->plan, seconds, extra, 2, &run)) replay_fini(&run);
  free(extra);
  free(seconds);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  enum { MOST_FIRINGS = 1 << 16 };
  sl_trace *t = read_trace(bytes, count);
  if (!t) return 0;
  FILE *out = fopen("/dev/null", "w");
  options o = {.step = -1, .device = -1, .color = 0, .width = 100, .path = "fuzz"};
  int64_t firings = 0;
  for (int32_t i = 0; i < t->plan->nactors; i++) firings += t->plan->actors[i].firings_per_step;
  if (firings < MOST_FIRINGS) run_again(t);
  static sl_status (*const commands[])(const sl_trace *, const options *, FILE *) = {
      command_rows, command_reasons, command_svg, command_chrome, command_perfetto};
  for (size_t i = 0; i < SLI_COUNT(commands); i++) (void)!commands[i](t, &o, out);
  fclose(out);
  sl_trace_destroy(t);
  return 0;
}
