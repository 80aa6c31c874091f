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

/* Returns whether the host of a Host field, of `n` bytes, is this machine's own name for itself. */
static bool is_own(const char *host, size_t n) {
  static const char *const names[] = {"localhost", "[::1]", "::1"};
  static const char below[] = ".localhost";
  size_t m = sizeof below - 1;
  for (size_t i = 0; i < SLI_COUNT(names); i++)
    if (strlen(names[i]) == n && !strncasecmp(host, names[i], n)) return true;
  if (n > m && !strncasecmp(host + n - m, below, m)) return true;
  return !strncmp(host, "127.", 4) && strspn(host, "0123456789.") >= n;
}

bool cors_takes_host(const char *listens, const char *key, const char *field) {
  if (key || !is_own(listens, strlen(listens)) || !field) return true;
  size_t n = *field == '[' ? strcspn(field, "]") + 1 : strcspn(field, ":");
  n = SLI_MIN(n, strlen(field));
  return is_own(field, n) || (strlen(listens) == n && !strncasecmp(field, listens, n));
}
