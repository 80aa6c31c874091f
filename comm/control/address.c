/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/control/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool parse_port(const char *text, int *port) {
  char *end;
  if (*text < '0' || *text > '9') return false;
  long value = strtol(text, &end, 10);
  if (*end || value > 65535) return false;
  *port = (int)value;
  return true;
}

sl_status sli_endpoint_parse(const char *text, char host[SLI_HOST_CHARS], int *port) {
  const char *colon = text ? strrchr(text, ':') : NULL;
  size_t count = colon ? (size_t)(colon - text) : 0;
  if (!count || count >= SLI_HOST_CHARS || !parse_port(colon + 1, port))
    return sl_fail(SL_E_USAGE, "\"%s\" is not HOST:PORT", text ? text : "");
  if (*text == '[' && text[count - 1] == ']') {
    text++;
    count -= 2;
  } else if (memchr(text, ':', count)) {
    return sl_fail(SL_E_USAGE, "\"%s\" is not HOST:PORT (put an IPv6 address in brackets)", text);
  }
  memcpy(host, text, count);
  host[count] = 0;
  return SL_OK;
}

char *sli_endpoint_write(char out[SLI_ENDPOINT_CHARS], const char *prefix, const char *host,
                         int port) {
  snprintf(out, SLI_ENDPOINT_CHARS, strchr(host, ':') ? "%s[%s]:%d" : "%s%s:%d", prefix, host,
           port);
  return out;
}

bool sli_host_is_address(const char *host) {
  uint8_t bytes[16];
  return inet_pton(AF_INET, host, bytes) == 1 || strchr(host, ':');
}

bool sli_host_is_loopback(const char *host) {
  uint8_t bytes[16];
  if (inet_pton(AF_INET, host, bytes) == 1) return bytes[0] == 127;
  return !strcmp(host, "localhost") || !strcmp(host, "::1");
}

static bool write_address(const struct sockaddr *address, socklen_t size, char out[SLI_IP_CHARS]) {
  return !getnameinfo(address, size, out, SLI_IP_CHARS, NULL, 0, NI_NUMERICHOST);
}

/* Finds the local address of a route. Connecting a datagram socket sends nothing; it only consults
 * the routing table. */
static bool route(const struct addrinfo *to, char there[SLI_IP_CHARS], char here[SLI_IP_CHARS]) {
  struct sockaddr_storage own;
  socklen_t size = sizeof own;
  int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  bool found = !connect(fd, to->ai_addr, to->ai_addrlen) &&
               !getsockname(fd, (struct sockaddr *)&own, &size) &&
               write_address(to->ai_addr, to->ai_addrlen, there) &&
               write_address((struct sockaddr *)&own, size, here);
  close(fd);
  return found;
}

bool sli_host_route(const char *host, int port, char there[SLI_IP_CHARS], char here[SLI_IP_CHARS]) {
  struct addrinfo *all, hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM};
  char service[16];
  bool found = false;
  snprintf(service, sizeof service, "%d", port ? port : 1);
  if (getaddrinfo(host, service, &hints, &all)) return false;
  for (const struct addrinfo *a = all; a && !found; a = a->ai_next) found = route(a, there, here);
  freeaddrinfo(all);
  return found;
}
