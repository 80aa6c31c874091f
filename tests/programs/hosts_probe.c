/* SPDX-License-Identifier: Apache-2.0 */
/* Measures a network between two hosts, over TCP: `hosts_probe serve PORT` runs on one, and
 * `hosts_probe ask HOST PORT` on the other prints the median round trip of a byte and the rate of
 * a longer transfer. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"

enum { ROUNDS = 101, CHUNK = 1 << 16, CHUNKS = 512, TIMEOUT_S = 5 };

static char chunk[CHUNK];

static void need(bool good, const char *what) {
  if (good) return;
  fprintf(stderr, "hosts_probe: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void settle(int fd) {
  int on = 1;
  struct timeval limit = {.tv_sec = TIMEOUT_S};
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static void read_all(int fd, size_t bytes) {
  for (ssize_t n; bytes; bytes -= (size_t)n)
    need((n = read(fd, chunk, SLI_MIN(bytes, sizeof chunk))) > 0, "reading");
}

static void write_all(int fd, size_t bytes) {
  for (ssize_t n; bytes; bytes -= (size_t)n)
    need((n = write(fd, chunk, SLI_MIN(bytes, sizeof chunk))) > 0, "writing");
}

static int serve(int port) {
  int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  need(!bind(listener, (struct sockaddr *)&address, sizeof address), "bind");
  need(!listen(listener, 1), "listen");
  int fd = accept(listener, NULL, NULL);
  need(fd >= 0, "accept");
  settle(fd);
  for (int i = 0; i < ROUNDS; i++) read_all(fd, 1), write_all(fd, 1);
  read_all(fd, (size_t)CHUNK * CHUNKS);
  write_all(fd, 1);
  return 0;
}

static int by_value(const void *a, const void *b) {
  const double *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

static int ask(const char *host, const char *port) {
  struct addrinfo hint = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
  need(!getaddrinfo(host, port, &hint, &found), host);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  settle(fd);
  need(!connect(fd, found->ai_addr, found->ai_addrlen), "connect");
  freeaddrinfo(found);
  double rounds_us[ROUNDS];
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t start = sli_now_ns();
    write_all(fd, 1);
    read_all(fd, 1);
    rounds_us[i] = (double)(sli_now_ns() - start) * 1e-3;
  }
  uint64_t start = sli_now_ns();
  write_all(fd, (size_t)CHUNK * CHUNKS);
  read_all(fd, 1);
  double us = (double)(sli_now_ns() - start) * 1e-3;
  qsort(rounds_us, ROUNDS, sizeof *rounds_us, by_value);
  printf("round_trip\t%.0f\tus\nrate\t%.0f\tMbit/s\n", rounds_us[ROUNDS / 2],
         8.0 * CHUNK * CHUNKS / us);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 3 && !strcmp(argv[1], "serve")) return serve(atoi(argv[2]));
  if (argc == 4 && !strcmp(argv[1], "ask")) return ask(argv[2], argv[3]);
  fprintf(stderr, "usage: hosts_probe serve PORT | ask HOST PORT\n");
  return 2;
}
