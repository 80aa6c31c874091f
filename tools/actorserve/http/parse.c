/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/http/parse.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/base.h"
#include "base/number.h"

static const http_fault good = {0};

static http_fault bad(const char *text) { return (http_fault){400, text}; }

size_t http_head_length(const char *bytes, size_t count, size_t seen) {
  size_t from = seen > 3 ? seen - 3 : 0;
  const char *end = memmem(bytes + from, count - from, "\r\n\r\n", 4);
  return end ? (size_t)(end - bytes) + 4 : 0;
}

/* ---- the first line -------------------------------------------------------------------------- */

static bool is_token(const char *text) {
  for (; *text; text++)
    if (!isalnum((unsigned char)*text) && !strchr("!#$%&'*+-.^_`|~", *text)) return false;
  return true;
}

/* Decodes %XX in place, except %2F, which must not become a path separator. */
static bool decode(char *text) {
  char *to = text;
  for (const char *at = text; *at; at++) {
    int high = *at == '%' ? sli_hex_digit(at[1]) : 0,
        low = high < 0 || *at != '%' ? 0 : sli_hex_digit(at[2]);
    int c = *at != '%' ? *at : high < 0 || low < 0 ? 0 : high * 16 + low;
    if (c == 127 || (c >= 0 && c < ' ')) return false;
    if (*at == '%' && c == '/') c = '%'; /* left encoded */
    else if (*at == '%') at += 2;
    *to++ = (char)c;
  }
  *to = 0;
  return true;
}

/* Returns the path after "http://host:port" of a target in absolute form, or NULL for any other
 * form. */
static char *path_of(char *target) {
  static const char *const schemes[] = {"http://", "https://"};
  if (*target == '/') return target;
  for (size_t i = 0; i < SLI_COUNT(schemes); i++) {
    size_t n = strlen(schemes[i]);
    if (strncasecmp(target, schemes[i], n)) continue;
    char *path = target + n + strcspn(target + n, "/?");
    if (path == target + n) return NULL;
    if (*path == '/') return path;
    *--path = '/'; /* an empty path; its query follows */
    return path;
  }
  return NULL;
}

/* Reads "/path?query", "http://host/path?query", or the "*" of OPTIONS. */
static bool read_target(char *target, http_head *out) {
  for (const char *at = target; *at; at++)
    if (*at <= ' ' || *at == 127 || *at == '#') return false;
  if (!strcmp(target, "*")) {
    out->target = target;
    return !strcmp(out->method, "OPTIONS");
  }
  out->target = path_of(target);
  if (!out->target) return false;
  out->target[strcspn(out->target, "?")] = 0; /* no path here uses its query */
  return decode(out->target);
}

static http_fault parse_first(char *line, http_head *out) {
  char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
  if (!version) return bad("the first line is not METHOD TARGET VERSION");
  *target++ = *version++ = 0;
  bool known = !strncmp(version, "HTTP/1.", 7) && isdigit((unsigned char)version[7]) && !version[8];
  if (!known && !strncmp(version, "HTTP/", 5))
    return (http_fault){505, "the version of HTTP is not 1.0 or 1.1"};
  out->method = line;
  if (!known || !*line || !is_token(line) || !read_target(target, out))
    return bad("the first line is not METHOD TARGET VERSION");
  out->minor = version[7] - '0';
  return good;
}

/* ---- fields ---------------------------------------------------------------------------------- */

static bool has_controls(const char *text, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (((unsigned char)text[i] < ' ' && text[i] != '\t') || text[i] == 127) return true;
  return false;
}

static http_fault parse_field(char *line, http_head *out) {
  char *colon = strchr(line, ':');
  if (out->nfields == HTTP_MOST_FIELDS)
    return (http_fault){431, "the request has too many header fields"};
  if (*line == ' ' || *line == '\t') return bad("a header field goes on in a second line");
  if (!colon || colon == line) return bad("a header field is not NAME: VALUE");
  *colon++ = 0;
  if (!is_token(line)) return bad("the name of a header field has characters that it may not have");
  colon += strspn(colon, " \t");
  size_t end = strlen(colon);
  while (end && strchr(" \t", colon[end - 1])) end--;
  colon[end] = 0;
  if (has_controls(colon, end)) return bad("a header field has control characters");
  for (char *at = line; *at; at++) *at = (char)tolower((unsigned char)*at);
  out->fields[out->nfields++] = (http_field){line, colon};
  return good;
}

const char *http_head_field(const http_head *head, const char *name) {
  for (int i = 0; i < head->nfields; i++)
    if (!strcmp(head->fields[i].name, name)) return head->fields[i].value;
  return NULL;
}

static int count_fields(const http_head *head, const char *name) {
  int n = 0;
  for (int i = 0; i < head->nfields; i++) n += !strcmp(head->fields[i].name, name);
  return n;
}

/* Returns whether a word is in a comma-separated list. */
static bool lists(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *at = list; at && *at; at += strcspn(at, ",")) {
    at += strspn(at, ", \t");
    size_t span = strcspn(at, ", \t");
    if (span == n && !strncasecmp(at, word, n)) return true;
  }
  return false;
}

/* ---- meaning of fields ----------------------------------------------------------------------- */

static bool read_length(const char *text, uint64_t *out) {
  size_t digits = strspn(text, "0123456789");
  if (!digits || text[digits] || digits > 18) return false;
  for (*out = 0; *text; text++) *out = *out * 10 + (uint64_t)(*text - '0');
  return true;
}

/* Reads the framing of a body. A request that states its length in two ways is ambiguous and
 * refused. */
static http_fault read_framing(http_head *out) {
  const char *length = http_head_field(out, "content-length"),
             *coding = http_head_field(out, "transfer-encoding");
  int lengths = count_fields(out, "content-length"),
      codings = count_fields(out, "transfer-encoding");
  if (lengths + codings > 1) return bad("the length of the body is said more than once");
  if (coding && strcasecmp(coding, "chunked"))
    return (http_fault){501, "the transfer-encoding is not chunked"};
  if (coding && !out->minor) return bad("HTTP/1.0 has no transfer-encoding");
  if (length && !read_length(length, &out->length))
    return bad("the content-length is not a number of bytes");
  out->chunked = coding;
  return good;
}

static http_fault read_fields(http_head *out) {
  http_fault fault = read_framing(out);
  const char *connection = http_head_field(out, "connection"),
             *expect = http_head_field(out, "expect");
  if (fault.status) return fault;
  out->keep = out->minor ? !lists(connection, "close") : lists(connection, "keep-alive");
  out->expects = expect && out->minor && !strcasecmp(expect, "100-continue");
  if (expect && !out->expects) return (http_fault){417, "the request expects what is not known"};
  if (out->minor && count_fields(out, "host") != 1)
    return bad("the request does not name one host");
  return good;
}

/* Returns the next line, without its line end. */
static char *take_line(char **at, char *end) {
  char *line = *at, *stop = memmem(line, (size_t)(end - line), "\r\n", 2);
  *stop = 0;
  *at = stop + 2;
  return line;
}

http_fault http_head_parse(char *bytes, size_t count, http_head *out) {
  char *at = bytes, *end = bytes + count;
  *out = (http_head){0};
  if (memchr(bytes, 0, count)) return bad("the request has zeros in its head");
  http_fault fault = parse_first(take_line(&at, end), out);
  while (!fault.status && at + 2 < end) fault = parse_field(take_line(&at, end), out);
  return fault.status ? fault : read_fields(out);
}

/* ---- bodies ---------------------------------------------------------------------------------- */

void http_body_begin(http_body *b, const http_head *head) {
  *b = (http_body){.chunked = head->chunked, .left = head->length, .at = HTTP_CHUNK_SIZE};
  if (!b->chunked) b->at = b->left ? HTTP_CHUNK_DATA : HTTP_BODY_DONE;
}

/* Reads a chunk's size, "1a3" or "1a3 ;name=value"; the extension is ignored. */
static bool read_size(const char *line, size_t count, uint64_t *out) {
  size_t digits = 0, end;
  for (*out = 0; digits < count && isxdigit((unsigned char)line[digits]); digits++)
    *out = *out << 4 | (uint64_t)sli_hex_digit(line[digits]);
  for (end = digits; end < count && (line[end] == ' ' || line[end] == '\t');) end++;
  return digits && digits <= 15 && (end == count || line[end] == ';');
}

/* Reads a chunk's size line of `count` bytes, without its line end. */
static http_fault take_size(http_body *b, const char *line, size_t count) {
  if (!read_size(line, count, &b->left)) return bad("the size of a chunk is not a number");
  b->extra += count - SLI_MIN(count, 16);
  if (b->extra > HTTP_MOST_HEAD) return (http_fault){431, "the extensions of chunks are too long"};
  b->at = b->left ? HTTP_CHUNK_DATA : HTTP_TRAILER;
  return good;
}

/* Reads a trailer field like a header field, and ignores it. */
static http_fault take_trailer(http_body *b, const char *line, size_t count) {
  char copy[HTTP_MOST_HEAD + 1];
  http_head alone = {0};
  b->extra += count;
  if (b->extra > HTTP_MOST_HEAD || b->fields++ > HTTP_MOST_FIELDS)
    return (http_fault){431, "the fields behind the body are too long"};
  if (!count) b->at = HTTP_BODY_DONE;
  memcpy(copy, line, count);
  copy[count] = 0;
  return count ? parse_field(copy, &alone) : good;
}

static http_fault take_body_line(http_body *b, const char *line, size_t count) {
  if (b->at == HTTP_CHUNK_SIZE) return take_size(b, line, count);
  if (b->at == HTTP_TRAILER) return take_trailer(b, line, count);
  if (count) return bad("a chunk is longer than its size");
  b->at = HTTP_CHUNK_SIZE;
  return good;
}

static void take_data(http_body *b, size_t count) {
  b->left -= count;
  if (!b->left) b->at = b->chunked ? HTTP_CHUNK_END : HTTP_BODY_DONE;
}

http_fault http_body_next(http_body *b, const char *bytes, size_t count, size_t *used, bool *data) {
  *used = 0;
  *data = b->at == HTTP_CHUNK_DATA;
  if (!count || b->at == HTTP_BODY_DONE) return good;
  if (*data) {
    *used = (size_t)SLI_MIN(b->left, count);
    take_data(b, *used);
    return good;
  }
  size_t most = b->at == HTTP_TRAILER ? HTTP_MOST_HEAD : HTTP_MOST_LINE,
         looked = SLI_MIN(count, most);
  const char *end = memchr(bytes, '\n', looked);
  size_t line = end ? (size_t)(end - bytes) : looked;
  bool cut = end && line && bytes[line - 1] == '\r';
  if (end && !cut) return bad("a line between chunks does not end with CR LF");
  if (has_controls(bytes, line - (cut || (line && bytes[line - 1] == '\r'))))
    return bad("a line between chunks has control characters");
  if (!end && count >= most) return bad("a line between chunks is too long");
  if (!end) return good;
  *used = line + 1;
  return take_body_line(b, bytes, line - 1);
}
