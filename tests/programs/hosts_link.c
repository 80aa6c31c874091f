/* SPDX-License-Identifier: Apache-2.0 */
/* A network link of given delay and rate between two network namespaces, for kernels that cannot
 * delay packets themselves (sch_netem). Each namespace has a device "link0". This program delays
 * the packets of each device and writes them to the other one.
 *
 *     hosts_link NAMESPACE NAMESPACE DELAY_US MBIT
 *
 * A packet starts when the previous one has left, takes its length at the link's rate, and arrives
 * after the delay. The directions are independent. Packets beyond QUEUE_BYTES waiting are dropped,
 * as by a switch. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/base.h"

enum { MOST_BYTES = 65536, QUEUE_BYTES = 4 << 20, PACKETS = 1 << 16 };

typedef struct packet {
  uint64_t due_ns;
  size_t bytes;
  char *data;
} packet;

/* One direction of the link. The queue is a ring, oldest at `first`. */
typedef struct way {
  int from, to;
  uint64_t free_ns; /* when the last packet has left */
  size_t first, count, bytes;
  packet queue[PACKETS];
} way;

static double ns_per_byte;
static uint64_t delay_ns;

static int open_device(const char *name) {
  char path[256];
  snprintf(path, sizeof path, "/run/netns/%s", name);
  int space = open(path, O_RDONLY | O_CLOEXEC);
  SLI_CHECK(space >= 0 && !setns(space, CLONE_NEWNET), "%s: %s", path, strerror(errno));
  close(space);
  int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  struct ifreq request = {.ifr_name = "link0", .ifr_flags = IFF_TUN | IFF_NO_PI};
  SLI_CHECK(fd >= 0 && !ioctl(fd, TUNSETIFF, &request), "/dev/net/tun: %s", strerror(errno));
  return fd;
}

static void take(way *w, const char *data, size_t bytes, uint64_t now) {
  if (w->bytes + bytes > QUEUE_BYTES || w->count == PACKETS) return;
  w->free_ns = SLI_MAX(w->free_ns, now) + (uint64_t)((double)bytes * ns_per_byte);
  packet *p = &w->queue[(w->first + w->count++) % PACKETS];
  *p = (packet){w->free_ns + delay_ns, bytes, malloc(bytes)};
  SLI_CHECK(p->data, "no memory for a packet");
  memcpy(p->data, data, bytes);
  w->bytes += bytes;
}

static void take_all(way *w) {
  static char data[MOST_BYTES];
  ssize_t n;
  while ((n = read(w->from, data, sizeof data)) > 0) take(w, data, (size_t)n, sli_now_ns());
}

/* Delivers the packets that are due. A device that is down takes none: the link is cut and
 * packets are lost. */
static void give_due(way *w) {
  for (; w->count && w->queue[w->first].due_ns <= sli_now_ns(); w->count--) {
    packet *p = &w->queue[w->first];
    if (write(w->to, p->data, p->bytes) < 0) errno = 0;
    free(p->data);
    w->bytes -= p->bytes;
    w->first = (w->first + 1) % PACKETS;
  }
}

static uint64_t due_ns(const way *w) { return w->count ? w->queue[w->first].due_ns : UINT64_MAX; }

/* Waits until a packet arrives or one is due. */
static void wait_for_any(const way *a, const way *b) {
  struct pollfd polls[] = {{.fd = a->from, .events = POLLIN}, {.fd = b->from, .events = POLLIN}};
  uint64_t due = SLI_MIN(due_ns(a), due_ns(b)), now = sli_now_ns();
  uint64_t wait_ns = due > now ? SLI_MIN(due - now, UINT64_C(1000000000)) : 0;
  struct timespec wait = {(time_t)(wait_ns / 1000000000), (long)(wait_ns % 1000000000)};
  if (ppoll(polls, 2, &wait, NULL) < 0) errno = 0;
}

int main(int argc, char **argv) {
  static way there, back;
  if (argc != 5) {
    fprintf(stderr, "usage: hosts_link NAMESPACE NAMESPACE DELAY_US MBIT\n");
    return 2;
  }
  delay_ns = (uint64_t)(atof(argv[3]) * 1000);
  ns_per_byte = 8000 / atof(argv[4]);
  there.from = back.to = open_device(argv[1]);
  back.from = there.to = open_device(argv[2]);
  prctl(PR_SET_TIMERSLACK, 1);
  for (;;) {
    take_all(&there);
    take_all(&back);
    give_due(&there);
    give_due(&back);
    wait_for_any(&there, &back);
  }
}
