/* Everything is made of one exchange, in which each member sends a part to each
 * other. A sum is an exchange in which member m gets everybody's part m, a sum of
 * those in the order of members, and an exchange that spreads the result. It moves
 * as many bytes as a ring does, in two steps instead of 2(n-1), and its order of
 * sums does not depend on where in a ring one stands.
 *
 * What has to be summed comes into a scratch buffer of fixed size, block by block,
 * so that a group's memory is known. */
#include "comm/collective.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
  SCRATCH_BYTES = 4 << 20,
  SPREAD_BYTES = 64 << 10, /* broadcasts above this go in parts: the root sends each once */
};

struct sli_group {
  char *name;
  int *members;
  int nmembers, self;
  sli_mesh *mesh; /* NULL: there is one member */
  sli_mesh_part *parts;
  const float **sources;
  float *scratch;
  size_t block; /* elements of the scratch buffer for each member */
  _Atomic bool stopped;
};

size_t sli_group_begin(int nmembers, int member, size_t count) {
  size_t n = (size_t)nmembers, m = (size_t)member;
  return count / n * m + SLI_MIN(count % n, m);
}

size_t sli_group_share(int nmembers, int member, size_t count) {
  return sli_group_begin(nmembers, member + 1, count) - sli_group_begin(nmembers, member, count);
}

/* ---- a group ------------------------------------------------------------------------- */

static bool can_bind(const struct addrinfo *address) {
  int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool can = fd >= 0 && !bind(fd, address->ai_addr, address->ai_addrlen);
  if (fd >= 0) close(fd);
  return can;
}

/* The numeric address behind a name of this host: Gloo does not survive names that
 * are nobody's. */
static sl_status find_address(const char *host, char *out, size_t out_bytes) {
  char own[256] = "";
  if (!host) {
    gethostname(own, sizeof own - 1);
    host = own;
  }
  struct addrinfo *all, hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  int error = getaddrinfo(host, NULL, &hints, &all);
  if (error) return sl_fail(SL_E_INPUT, "host %s: %s", host, gai_strerror(error));
  const struct addrinfo *a = all;
  while (a && !can_bind(a)) a = a->ai_next;
  if (a) error = getnameinfo(a->ai_addr, a->ai_addrlen, out, (socklen_t)out_bytes, NULL, 0,
                             NI_NUMERICHOST);
  bool found = a && !error;
  freeaddrinfo(all);
  return found ? SL_OK : sl_fail(SL_E_INPUT, "host %s is not this one", host);
}

static sl_status connect_members(sli_group *g, const sli_group_options *o) {
  sli_mesh_error error;
  char address[128];
  sl_status status = find_address(o->host, address, sizeof address);
  if (status) return status;
  g->mesh = sli_mesh_open(g->self, g->nmembers, g->name, address, &o->store,
                          o->open_ms ? o->open_ms : 60000, &error);
  if (g->mesh) return SL_OK;
  return sl_fail(SL_E_IO, "group %s: process %d could not join: %s", g->name, g->members[g->self],
                 error.text);
}

sl_status sli_group_open(const sli_group_options *o, sli_group **out) {
  SLI_CHECK(o->nmembers > 0 && o->self >= 0 && o->self < o->nmembers, "member %d of %d in group %s",
            o->self, o->nmembers, o->name);
  sli_group *g = sli_calloc(1, sizeof *g);
  g->name = sli_strdup(o->name);
  g->nmembers = o->nmembers;
  g->self = o->self;
  g->members = sli_calloc((size_t)o->nmembers, sizeof *g->members);
  memcpy(g->members, o->members, (size_t)o->nmembers * sizeof *g->members);
  g->parts = sli_calloc((size_t)o->nmembers, sizeof *g->parts);
  g->sources = sli_calloc((size_t)o->nmembers, sizeof *g->sources);
  g->scratch = sli_calloc(1, SCRATCH_BYTES);
  g->block = SCRATCH_BYTES / sizeof *g->scratch / (size_t)o->nmembers;
  sl_status status = o->nmembers > 1 ? connect_members(g, o) : SL_OK;
  if (status) {
    sli_group_close(g);
    return status;
  }
  *out = g;
  return SL_OK;
}

void sli_group_close(sli_group *g) {
  if (!g) return;
  if (g->mesh) sli_mesh_close(g->mesh);
  free(g->scratch);
  free(g->sources);
  free(g->parts);
  free(g->members);
  free(g->name);
  free(g);
}

void sli_group_stop(sli_group *g) {
  g->stopped = true;
  if (g->mesh) sli_mesh_stop(g->mesh);
}

/* Of g->parts. */
static sl_status exchange(sli_group *g, const char *what) {
  sli_mesh_error error;
  if (!g->mesh || sli_mesh_exchange(g->mesh, g->parts, &error)) return SL_OK;
  if (g->stopped) return sl_fail(SL_E_STOPPED, "group %s: %s was stopped", g->name, what);
  if (error.member < 0) return sl_fail(SL_E_IO, "group %s: %s: %s", g->name, what, error.text);
  return sl_fail(SL_E_IO, "group %s: %s with process %d broke off: %s", g->name, what,
                 g->members[error.member], error.text);
}

/* ---- moving ---------------------------------------------------------------------------- */

static sl_status gather(sli_group *g, const void *in, void *out, const size_t *bytes,
                        const char *what) {
  char *to = out;
  for (int m = 0; m < g->nmembers; to += bytes[m++]) {
    if (m == g->self && to != in) memmove(to, in, bytes[m]);
    g->parts[m] = (sli_mesh_part){in, bytes[g->self], to, bytes[m]};
  }
  return exchange(g, what);
}

sl_status sli_group_all_gather(sli_group *g, const void *in, void *out, const size_t *bytes) {
  return gather(g, in, out, bytes, "all-gather");
}

sl_status sli_group_all_to_all(sli_group *g, const void *in, const size_t *in_bytes, void *out,
                               const size_t *out_bytes) {
  const char *from = in;
  char *to = out;
  SLI_CHECK(in_bytes[g->self] == out_bytes[g->self], "what a member sends itself it receives");
  for (int m = 0; m < g->nmembers; m++) {
    if (m == g->self) memcpy(to, from, in_bytes[m]);
    g->parts[m] = (sli_mesh_part){from, in_bytes[m], to, out_bytes[m]};
    from += in_bytes[m];
    to += out_bytes[m];
  }
  return exchange(g, "all-to-all");
}

/* From the root: all of it to each, or its part to each. */
static sl_status deal(sli_group *g, int root, char *data, const size_t *begins,
                      const size_t *shares) {
  int self = g->self;
  for (int m = 0; m < g->nmembers; m++) {
    g->parts[m] = (sli_mesh_part){0};
    if (self == root) g->parts[m] = (sli_mesh_part){data + begins[m], shares[m], NULL, 0};
    else if (m == root) g->parts[m] = (sli_mesh_part){NULL, 0, data + begins[self], shares[self]};
  }
  return exchange(g, "broadcast");
}

sl_status sli_group_broadcast(sli_group *g, int root, void *data, size_t bytes) {
  int n = g->nmembers;
  SLI_CHECK(root >= 0 && root < n, "group %s has no member %d", g->name, root);
  bool in_parts = bytes > SPREAD_BYTES && n > 2;
  size_t begins[n], shares[n];
  for (int m = 0; m < n; m++) {
    begins[m] = in_parts ? sli_group_begin(n, m, bytes) : 0;
    shares[m] = in_parts ? sli_group_share(n, m, bytes) : bytes;
  }
  sl_status status = deal(g, root, data, begins, shares);
  if (status || !in_parts) return status;
  return gather(g, (char *)data + begins[g->self], data, shares, "broadcast");
}

/* ---- summing ----------------------------------------------------------------------------- */

/* The sum of a small block stays in the nearest cache until it is complete, so that
 * `out` may be an operand. */
void sli_sum_f32(float *out, const float *const *in, int n, size_t count) {
  enum { BLOCK = 1024 };
  float sum[BLOCK];
  for (size_t at = 0; at < count; at += BLOCK) {
    size_t some = SLI_MIN(count - at, (size_t)BLOCK);
    memcpy(sum, in[0] + at, some * sizeof *sum);
    for (int m = 1; m < n; m++) {
      const float *next = in[m] + at;
      for (size_t i = 0; i < some; i++) sum[i] += next[i];
    }
    memcpy(out + at, sum, some * sizeof *sum);
  }
}

/* Elements at `at` and after of every member's part: send theirs, get ours, sum. */
static sl_status reduce_block(sli_group *g, const float *in, float *out, const size_t *counts,
                              size_t at, const char *what) {
  size_t begin = 0, ours = counts[g->self] > at ? SLI_MIN(counts[g->self] - at, g->block) : 0;
  for (int m = 0; m < g->nmembers; begin += counts[m++]) {
    size_t theirs = counts[m] > at ? SLI_MIN(counts[m] - at, g->block) : 0;
    float *place = g->scratch + (size_t)m * g->block;
    const float *from = theirs ? in + begin + at : in;
    g->parts[m] = (sli_mesh_part){from, theirs * sizeof *in, place, ours * sizeof *in};
    g->sources[m] = m == g->self ? from : place;
  }
  sl_status status = exchange(g, what);
  if (!status && ours) sli_sum_f32(out + at, g->sources, g->nmembers, ours);
  return status;
}

static sl_status reduce_scatter(sli_group *g, const float *in, float *out, const size_t *counts,
                                const char *what) {
  size_t most = 0;
  sl_status status = SL_OK;
  for (int m = 0; m < g->nmembers; m++) most = SLI_MAX(most, counts[m]);
  for (size_t at = 0; at < most && !status; at += g->block)
    status = reduce_block(g, in, out, counts, at, what);
  return status;
}

sl_status sli_group_reduce_scatter_f32(sli_group *g, const float *in, float *out,
                                       const size_t *counts) {
  return reduce_scatter(g, in, out, counts, "reduce-scatter");
}

sl_status sli_group_all_reduce_f32(sli_group *g, float *data, size_t count) {
  int n = g->nmembers;
  size_t counts[n], bytes[n];
  for (int m = 0; m < n; m++) {
    counts[m] = sli_group_share(n, m, count);
    bytes[m] = counts[m] * sizeof *data;
  }
  float *ours = data + sli_group_begin(n, g->self, count);
  sl_status status = reduce_scatter(g, data, ours, counts, "all-reduce");
  return status ? status : gather(g, ours, data, bytes, "all-reduce");
}
