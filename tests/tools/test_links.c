/* SPDX-License-Identifier: Apache-2.0 */
/* actortune measures links between processes however early a message arrives: before process 1 sees
 * that its net is ready, or before it sees that its last reply was sent.
 * labels: outside
 * needs: zeromq */
#include "comm/net/net.h"

/* Like sli_net_ready and sli_net_done, but process 1 learns of it late. */
static bool late_ready(sli_net *net);
static bool late_done(sli_net *net, uint64_t fence);
#define sli_net_ready late_ready
#define sli_net_done late_done
#include "tools/actortune/machine/links.c"
#undef sli_net_ready
#undef sli_net_done

#include "tests/support/test.h"

enum { LATE_NS = 200000000 };

/* Waits until another message has come from process 0, or for LATE_NS. */
static void wait_for_more(sli_net *net) {
  uint64_t before = sli_net_traffic(net, 0).received, until = sli_now_ns() + LATE_NS;
  while (sli_net_traffic(net, 0).received == before && sli_now_ns() < until)
    sli_net_wait(net, 1000000);
}

static bool is_second; /* this is process 1 */

static bool late_ready(sli_net *net) {
  if (!sli_net_ready(net)) return false;
  if (is_second) wait_for_more(net);
  return true;
}

static bool late_done(sli_net *net, uint64_t fence) {
  if (!sli_net_done(net, fence)) return false;
  if (is_second) wait_for_more(net);
  return true;
}

/* Measures links in two processes; returns whether both ended well. */
static bool measure_late(double seconds[LINK_SIZES][2]) {
  int sockets[2], results[2];
  CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) && !pipe(results), "sockets");
  pid_t pids[2];
  for (int self = 0; self < 2; self++) {
    is_second = self;
    pids[self] = start_end(self, "a key", sockets, 2, results[1]);
  }
  close(sockets[0]), close(sockets[1]), close(results[1]);
  bool first = await_end(pids[0]), second = await_end(pids[1]);
  size_t bytes = LINK_SIZES * sizeof *seconds;
  bool good = first && second && read(results[0], seconds, bytes) == (ssize_t)bytes;
  close(results[0]);
  return good;
}

static void check_late(const char *transports) {
  double seconds[LINK_SIZES][2];
  if (transports) setenv("SLUICE_TRANSPORTS", transports, 1);
  else unsetenv("SLUICE_TRANSPORTS");
  CHECK(measure_late(seconds), "a message that comes early is lost");
  for (int s = 0; s < LINK_SIZES; s++)
    CHECK(seconds[s][0] > 0 && seconds[s][1] > 0, "%.0f bytes take time", link_sizes[s]);
}

int main(void) {
  RUN_AS("default", check_late(NULL));
  RUN_AS("tcp", check_late("tcp"));
  return 0;
}
