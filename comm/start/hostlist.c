/* SPDX-License-Identifier: Apache-2.0 */
/* A list is parsed from the left: an entry extends to its comma and consists of plain text and
 * brackets, and a bracket consists of ranges. The number of hosts of an entry is the product of the
 * counts of its brackets. One host is therefore found without listing all hosts, even in a long
 * list. */
#include "comm/start/hostlist.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MOST_HOSTS = 1 << 24, MOST_DIGITS = 9 };

/* A range, "3" or "01-12". */
typedef struct range {
  size_t first, last;
  int width;
} range;

static const char *read_number(const char *at, size_t *out, int *width) {
  size_t v = 0;
  const char *from = at;
  for (; isdigit((unsigned char)*at) && at - from < MOST_DIGITS; at++)
    v = v * 10 + (size_t)(*at - '0');
  *out = v;
  *width = (int)(at - from);
  return at > from && !isdigit((unsigned char)*at) ? at : NULL;
}

static const char *read_range(const char *at, range *out) {
  int width;
  at = read_number(at, &out->first, &out->width);
  out->last = out->first;
  if (at && *at == '-') at = read_number(at + 1, &out->last, &width);
  return at && out->last >= out->first ? at : NULL;
}

/* Counts the numbers between '[' and ']' and finds the index-th of them. Returns 0 if the bracket
 * is malformed. */
static size_t read_bracket(const char *at, const char *end, size_t index, range *found) {
  size_t count = 0, digits;
  int width = -1, ignored;
  const char *colon = read_number(at, &digits, &ignored);
  if (colon && *colon == ':') width = (int)SLI_MIN(digits, MOST_DIGITS), at = colon + 1;
  for (;; at++) {
    range r;
    at = read_range(at, &r);
    if (!at || at > end) return 0;
    size_t n = r.last - r.first + 1;
    if (index >= count && index < count + n) {
      found->first = r.first + (index - count);
      found->width = width >= 0 ? width : r.width;
    }
    count += n;
    if (count > MOST_HOSTS) return 0;
    if (at == end) return count;
    if (*at != ',') return 0;
  }
}

/* Returns the end of the entry that begins here, which is its comma or the end of the list, or NULL
 * if its brackets do not match. */
static const char *entry_end(const char *at) {
  bool inside = false;
  for (; *at && (inside || *at != ','); at++) {
    if ((*at == '[' && inside) || (*at == ']' && !inside)) return NULL;
    if (*at == '[' || *at == ']') inside = !inside;
  }
  return inside ? NULL : at;
}

/* Returns the number of hosts of an entry, or 0 if it is malformed. */
static size_t entry_count(const char *at, const char *end) {
  size_t count = 1;
  range ignored;
  if (at == end) return 0;
  while (at < end) {
    const char *open = memchr(at, '[', (size_t)(end - at));
    if (!open) break;
    const char *close = strchr(open, ']');
    count *= read_bracket(open + 1, close, 0, &ignored);
    if (!count || count > MOST_HOSTS) return 0;
    at = close + 1;
  }
  return count;
}

/* Writes the entry's index-th host. The last bracket varies fastest, so the stride of a bracket is
 * the count of everything after it. */
static bool entry_host(const char *at, const char *end, size_t index, char *out, size_t size) {
  size_t used = 0;
  while (at < end && used < size) {
    const char *open = memchr(at, '[', (size_t)(end - at));
    size_t plain = (size_t)((open ? open : end) - at);
    used += (size_t)snprintf(out + used, size - used, "%.*s", (int)plain, at);
    if (!open) break;
    const char *close = strchr(open, ']');
    size_t behind = close + 1 < end ? entry_count(close + 1, end) : 1;
    range r = {0};
    read_bracket(open + 1, close, index / behind, &r);
    index %= behind;
    if (used < size) used += (size_t)snprintf(out + used, size - used, "%0*zu", r.width, r.first);
    at = close + 1;
  }
  return used < size;
}

size_t sli_hostlist_count(const char *list) {
  size_t count = 0;
  for (const char *at = list;; at++) {
    const char *end = entry_end(at);
    size_t n = end ? entry_count(at, end) : 0;
    if (!n || (count += n) > MOST_HOSTS) return 0;
    if (!*end) return count;
    at = end;
  }
}

sl_status sli_hostlist_at(const char *list, size_t index, char *out, size_t size) {
  size_t count = sli_hostlist_count(list);
  if (!count) return sl_fail(SL_E_INPUT, "%s: not a list of hosts", list);
  if (index >= count)
    return sl_fail(SL_E_INPUT, "%s: has %zu hosts, not %zu", list, count, index + 1);
  for (const char *at = list;; at++) {
    const char *end = entry_end(at);
    size_t n = entry_count(at, end);
    if (index < n) {
      char host[256];
      if (!entry_host(at, end, index, host, SLI_MIN(size, sizeof host)))
        return sl_fail(SL_E_INPUT, "%s: a host name is longer than %zu characters", list, size - 1);
      snprintf(out, size, "%s", host);
      return SL_OK;
    }
    index -= n;
    at = end;
  }
}

int sli_hostlist_tasks(const char *list, size_t index) {
  for (const char *at = list;; at++) {
    size_t tasks, times = 1;
    int width;
    at = read_number(at, &tasks, &width);
    if (at && at[0] == '(' && at[1] == 'x') {
      at = read_number(at + 2, &times, &width);
      if (!at || *at++ != ')') return 0;
    }
    if (!at || (*at && *at != ',')) return 0;
    if (index < times) return (int)tasks;
    index -= times;
    if (!*at) return 0;
  }
}
