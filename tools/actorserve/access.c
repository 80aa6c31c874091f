/* SPDX-License-Identifier: Apache-2.0 */
/* Access control of a server, and its memory limit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/number.h"
#include "io/file.h"
#include "tools/actorserve/actorserve.h"
#include "tools/actorserve/cors.h"

static const char variable[] = "SLUICE_API_KEY";

/* ---- the key --------------------------------------------------------------------------------- */

/* Checks that a key fits an HTTP header field. */
static sl_status check_key(const char *from, const char *key) {
  if (!*key) return sl_fail(SL_E_INPUT, "%s: the first line is empty; it must have the key", from);
  for (const char *at = key; *at; at++)
    if (*at <= ' ' || *at >= 127)
      return sl_fail(SL_E_INPUT,
                     "%s: a key may have only letters, digits and punctuation, without spaces",
                     from);
  return SL_OK;
}

static sl_status read_key(const char *path, char **out) {
  char *text;
  sl_status status = sli_file_read(path, &text);
  if (status) return sl_fail(status, "--api-key-file: %s", sl_detail());
  text[strcspn(text, "\r\n")] = 0;
  *out = text;
  char *from = sli_format("--api-key-file %s", path);
  status = check_key(from, text);
  free(from);
  return status;
}

static sl_status read_any_key(const char *option, const char *path, const char *said, char **out) {
  if (path) return read_key(path, out);
  if (!option && !said) return SL_OK;
  *out = sli_strdup(option ? option : said);
  return check_key(option ? "--api-key" : variable, *out);
}

sl_status access_key(const settings *s, char **out) {
  const char *option = settings_text(s, "api-key"), *path = settings_text(s, "api-key-file"),
             *said = getenv(variable);
  *out = NULL;
  if (option && path)
    return sl_fail(SL_E_USAGE, "--api-key-file %s: cannot be combined with --api-key", path);
  sl_status status = read_any_key(option, path, said && *said ? said : NULL, out);
  if (!status) return SL_OK;
  free(*out);
  *out = NULL;
  return status;
}

static bool is_loopback(const char *host) {
  return !strncmp(host, "127.", 4) || !strcmp(host, "localhost") || !strcmp(host, "::1");
}

void access_warn(const char *host, const char *key) {
  if (!key && !is_loopback(host))
    fprintf(
        stderr,
        "actorserve: warning: --host %s without a key: anyone who reaches the port may send requests (--api-key-file FILE)\n",
        host);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static bool read_bytes(const char *text, size_t *out) {
  const char *at = text;
  return sli_number_read_size(&at, out) && !*at;
}

size_t access_bytes(const settings *s) {
  size_t bytes = 0;
  read_bytes(sl_arg_text(s->run, "request-memory"), &bytes);
  return bytes;
}

static sl_status check_adapter_dir(const char *path) {
  struct stat info;
  if (!path || (!stat(path, &info) && S_ISDIR(info.st_mode))) return SL_OK;
  return sl_fail(SL_E_USAGE, "--adapter-dir %s: not a folder", path);
}

sl_status access_check(const settings *s) {
  enum { LEAST = 32 << 20 };
  const char *text = sl_arg_text(s->run, "request-memory");
  size_t bytes;
  char *key;
  if (!read_bytes(text, &bytes) || bytes < LEAST)
    return sl_fail(SL_E_USAGE, "--request-memory %s: must be a size of at least 32M, such as 256M",
                   text);
  sl_status status = cors_check(sl_arg_text(s->run, "cors"));
  if (!status) status = check_adapter_dir(settings_text(s, "adapter-dir"));
  if (!status) status = access_key(s, &key);
  if (!status) free(key);
  return status;
}
