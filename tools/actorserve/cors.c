/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/cors.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/base.h"

/* Returns whether an origin is "http://HOST", with or without a port. */
static bool has_host(const char *origin, const char *host) {
  static const char *const schemes[] = {"http://", "https://"};
  for (size_t i = 0; i < SLI_COUNT(schemes); i++) {
    size_t n = strlen(schemes[i]), length = strlen(host);
    if (strncasecmp(origin, schemes[i], n) || strncasecmp(origin + n, host, length)) continue;
    const char *port = origin + n + length;
    if (!*port || (*port == ':' && isdigit((unsigned char)port[1]) &&
                   !port[1 + strspn(port + 1, "0123456789")]))
      return true;
  }
  return false;
}

static bool is_loopback(const char *origin) {
  return has_host(origin, "localhost") || has_host(origin, "127.0.0.1") ||
         has_host(origin, "[::1]");
}

sl_status cors_check(const char *allowed) {
  const char *host = strstr(allowed, "://");
  bool word = !strcmp(allowed, "off") || !strcmp(allowed, "*") || !strcmp(allowed, "loopback");
  bool plain = host && host > allowed && host[3] && !strpbrk(host + 3, "/ \t\r\n");
  for (const char *at = allowed; *at; at++) plain &= *at > ' ' && *at < 127;
  if (word || plain) return SL_OK;
  return sl_fail(SL_E_USAGE,
                 "--cors %s: must be loopback, off, *, or one origin such as https://chat.example",
                 allowed);
}

bool cors_allows(const char *allowed, const char *origin) {
  if (!origin || !strcmp(allowed, "off")) return false;
  if (!strcmp(allowed, "*")) return true;
  return strcmp(allowed, "loopback") ? !strcasecmp(allowed, origin) : is_loopback(origin);
}

void cors_add_fields(http_exchange *x, const char *allowed, const http_request *request) {
  const char *origin = http_request_field(request, "origin");
  const char *fields = http_request_field(request, "access-control-request-headers");
  if (strcmp(allowed, "off") && strcmp(allowed, "*")) http_add_field(x, "Vary", "Origin");
  if (!cors_allows(allowed, origin)) return;
  http_add_field(x, "Access-Control-Allow-Origin", strcmp(allowed, "*") ? origin : "*");
  if (strcmp(request->method, "OPTIONS")) return;
  http_add_field(x, "Access-Control-Allow-Methods", "GET, HEAD, POST");
  http_add_field(x, "Access-Control-Allow-Headers",
                 fields ? fields : "Authorization, Content-Type");
  http_add_field(x, "Access-Control-Max-Age", "600");
}

/* ---- the Host field -------------------------------------------------------------------------- */

/* Returns whether a host of `n` bytes is no name of the internet's DNS: an address, a name without
 * a dot, or one below localhost. */
static bool is_local(const char *host, size_t n) {
  static const char below[] = ".localhost";
  size_t m = sizeof below - 1;
  if (*host == '[' || strspn(host, "0123456789.") >= n || !memchr(host, '.', n)) return true;
  return n > m && !strncasecmp(host + n - m, below, m);
}

static bool listens_locally(const char *host) {
  return !strncmp(host, "127.", 4) || !strcmp(host, "localhost") || !strcmp(host, "::1");
}

bool cors_takes_host(const char *listens, const char *key, const char *field) {
  if (key || !listens_locally(listens) || !field) return true;
  size_t n = *field == '[' ? strlen(field) : strcspn(field, ":");
  return is_local(field, n) || (strlen(listens) == n && !strncasecmp(field, listens, n));
}
