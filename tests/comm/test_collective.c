/* Collectives give every member the bits of a plain sum in the order of members,
 * whatever the sizes and whoever is in the group; who dies in one is named. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/collective.h"
#include "tests/support/processes.h"
#include "tests/support/test.h"

static uint64_t seed;
static char dir[64]; /* the store: a file for each key */

/* ---- a store of files --------------------------------------------------------------- */

static void path_of(char *path, size_t bytes, const char *key, const char *suffix) {
  int at = snprintf(path, bytes, "%s/", dir);
  snprintf(path + at, bytes - (size_t)at, "%s%s", key, suffix);
  for (char *c = path + at; *c; c++)
    if (*c == '/') *c = '_';
}

static bool store_set(void *ctx, const char *key, const void *data, size_t bytes) {
  (void)ctx;
  char draft[200], path[200];
  path_of(draft, sizeof draft, key, ".new");
  path_of(path, sizeof path, key, "");
  FILE *file = fopen(draft, "w");
  CHECK(file && fwrite(data, 1, bytes, file) == bytes && !fclose(file), "write %s", draft);
  return !rename(draft, path);
}

static void *store_get(void *ctx, const char *key, size_t *bytes) {
  (void)ctx;
  char path[200];
  path_of(path, sizeof path, key, "");
  struct stat about;
  for (int i = 0; stat(path, &about); i++) {
    if (i == 10000) return NULL;
    usleep(1000);
  }
  FILE *file = fopen(path, "r");
  *bytes = (size_t)about.st_size;
  void *data = malloc(*bytes + 1);
  CHECK(file && fread(data, 1, *bytes, file) == *bytes, "read %s", path);
  fclose(file);
  return data;
}

static void empty_store(void) {
  DIR *d = opendir(dir);
  CHECK(d, "%s", dir);
  for (struct dirent *e; (e = readdir(d));) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    if (e->d_name[0] != '.') unlink(path);
  }
  closedir(d);
}

/* ---- what everybody has --------------------------------------------------------------- */

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

/* Of sizes so different that the order of a sum shows in its last bits. */
static float number(int member, uint64_t call, size_t i) {
  uint64_t r = mix(seed + (uint64_t)member * 7919 + call * 104729 + i * 31);
  float value = (float)(r % 20001) - 10000;
  return r >> 60 == 0 ? value * 1e6f : value / 333;
}

static float *numbers(int member, uint64_t call, size_t count) {
  float *data = malloc(count * sizeof *data + 4);
  for (size_t i = 0; i < count; i++) data[i] = number(member, call, i);
  return data;
}

static float plain_sum(int n, uint64_t call, size_t i) {
  float sum = number(0, call, i);
  for (int m = 1; m < n; m++) sum += number(m, call, i);
  return sum;
}

static bool is_sum(const float *data, int n, uint64_t call, size_t begin, size_t count) {
  for (size_t i = 0; i < count; i++) {
    float sum = plain_sum(n, call, begin + i);
    if (memcmp(&data[i], &sum, sizeof sum)) return false;
  }
  return true;
}

static size_t size_of(uint64_t call) {
  static const size_t edges[] = {0, 1, 2, 3, 5, 1023, 1025, 100003};
  uint64_t r = mix(seed ^ call * 65537);
  return r % 3 ? (r >> 8) % (1 << (r >> 2) % 17) : edges[r / 3 % SLI_COUNT(edges)];
}

/* ---- a group ---------------------------------------------------------------------------- */

static sli_group *open_group(const char *name, const int *members, int n, int self) {
  sli_group *g;
  CHECK(!sli_group_open(&(sli_group_options){.name = name,
                                             .members = members,
                                             .nmembers = n,
                                             .self = self,
                                             .host = "127.0.0.1",
                                             .store = {NULL, store_set, store_get}},
                        &g),
        "%s", sl_detail());
  return g;
}

static sli_group *open_all(process *p) {
  int members[PROCESSES_MOST];
  for (int i = 0; i < p->n; i++) members[i] = i;
  return open_group("all", members, p->n, p->self);
}

static void check_all_reduce(sli_group *g, int n, int self, uint64_t call, size_t count) {
  float *data = numbers(self, call, count);
  CHECK(!sli_group_all_reduce_f32(g, data, count), "%s", sl_detail());
  CHECK(is_sum(data, n, call, 0, count), "an all-reduce of %zu by %d has the bits of a plain sum",
        count, n);
  free(data);
}

/* Uneven parts, some of them empty. */
static size_t part_of(int member, uint64_t call) {
  return mix(call * 17 + (uint64_t)member + seed) % 3 ? size_of(call * 31 + (uint64_t)member) : 0;
}

static void check_reduce_scatter(sli_group *g, int n, int self, uint64_t call) {
  size_t counts[PROCESSES_MOST], total = 0, begin = 0;
  for (int m = 0; m < n; m++) {
    counts[m] = part_of(m, call);
    if (m < self) begin += counts[m];
    total += counts[m];
  }
  float *in = numbers(self, call, total), *out = malloc(counts[self] * sizeof *out + 4);
  CHECK(!sli_group_reduce_scatter_f32(g, in, out, counts), "%s", sl_detail());
  CHECK(is_sum(out, n, call, begin, counts[self]), "a reduce-scatter gives each its part");
  CHECK(!sli_group_reduce_scatter_f32(g, in, in + begin, counts), "%s", sl_detail());
  CHECK(is_sum(in + begin, n, call, begin, counts[self]), "also in place");
  free(out);
  free(in);
}

static void check_all_gather(sli_group *g, int n, int self, uint64_t call) {
  size_t bytes[PROCESSES_MOST], total = 0;
  for (int m = 0; m < n; m++) total += bytes[m] = part_of(m, call);
  float *all = malloc(total + 4);
  void *mine = numbers(self, call, bytes[self] / 4 + 1);
  CHECK(!sli_group_all_gather(g, mine, all, bytes), "%s", sl_detail());
  char *at = (char *)all;
  for (int m = 0; m < n; at += bytes[m++]) {
    void *theirs = numbers(m, call, bytes[m] / 4 + 1);
    CHECK(!memcmp(at, theirs, bytes[m]), "an all-gather has %zu bytes of %d", bytes[m], m);
    free(theirs);
  }
  free(mine);
  free(all);
}

static size_t bytes_between(int from, int to, uint64_t call) {
  return part_of(from * 16 + to, call);
}

static void check_all_to_all(sli_group *g, int n, int self, uint64_t call) {
  size_t out[PROCESSES_MOST], in[PROCESSES_MOST], out_total = 0, in_total = 0;
  for (int m = 0; m < n; m++) {
    out_total += out[m] = bytes_between(self, m, call);
    in_total += in[m] = bytes_between(m, self, call);
  }
  unsigned char *from = malloc(out_total + 1), *to = malloc(in_total + 1), *at = from;
  for (int m = 0; m < n; at += out[m++]) memset(at, self * 16 + m, out[m]);
  CHECK(!sli_group_all_to_all(g, from, out, to, in), "%s", sl_detail());
  at = to;
  for (int m = 0; m < n; at += in[m++])
    for (size_t i = 0; i < in[m]; i++)
      CHECK(at[i] == m * 16 + self, "an all-to-all brings %d what %d had for it", self, m);
  free(from);
  free(to);
}

static void check_broadcast(sli_group *g, int n, int self, uint64_t call, size_t count) {
  int root = (int)(mix(call + seed) % (uint64_t)n);
  float *data = numbers(self, call, count), *want = numbers(root, call, count);
  CHECK(!sli_group_broadcast(g, root, data, count * sizeof *data), "%s", sl_detail());
  CHECK(!memcmp(data, want, count * sizeof *data), "everybody has the root's %zu numbers", count);
  free(data);
  free(want);
}

static void check_group(sli_group *g, int n, int self, int calls) {
  for (uint64_t call = 1; call <= (uint64_t)calls; call++) {
    check_all_reduce(g, n, self, call, size_of(call));
    check_reduce_scatter(g, n, self, call);
    check_all_gather(g, n, self, call);
    check_all_to_all(g, n, self, call);
    check_broadcast(g, n, self, call, size_of(call));
  }
}

static void everybody(process *p) {
  sli_group *g = open_all(p);
  check_group(g, p->n, p->self, 6);
  /* More than fits into the scratch memory at once. */
  if (p->n == 3) check_all_reduce(g, p->n, p->self, 100, 1500017);
  process_meet(p, NULL, NULL);
  sli_group_close(g);
}

/* Three groups over four processes, one of them in another order. */
static void subsets(process *p) {
  static const struct {
    const char *name;
    int n, members[3];
  } groups[] = {{"even", 2, {0, 2}}, {"odd", 2, {1, 3}}, {"mixed", 3, {3, 0, 1}},
                {"alone", 1, {2}}};
  sli_group *open[SLI_COUNT(groups)] = {NULL};
  for (size_t k = 0; k < SLI_COUNT(groups); k++)
    for (int m = 0; m < groups[k].n; m++)
      if (groups[k].members[m] == p->self) {
        open[k] = open_group(groups[k].name, groups[k].members, groups[k].n, m);
        check_group(open[k], groups[k].n, m, 3);
      }
  process_meet(p, NULL, NULL);
  for (size_t k = 0; k < SLI_COUNT(groups); k++) sli_group_close(open[k]);
}

/* ---- ends ---------------------------------------------------------------------------------- */

static void dying(process *p) {
  sli_group *g = open_all(p);
  check_all_reduce(g, p->n, p->self, 1, 1000);
  process_meet(p, NULL, NULL);
  if (p->self == 1) kill(getpid(), SIGKILL);
  float *data = numbers(p->self, 2, 1500000);
  uint64_t start = sli_now_ns();
  sl_status status = sli_group_all_reduce_f32(g, data, 1500000);
  CHECK(status == SL_E_IO && strstr(sl_detail(), "process 1 "), "who died is named: %s",
        sl_detail());
  CHECK(sli_now_ns() - start < UINT64_C(2000000000), "at once");
  CHECK(sli_group_all_reduce_f32(g, data, 1) == SL_E_IO, "and the group is of no use any more");
  process_meet(p, NULL, NULL);
  sli_group_close(g);
  free(data);
}

static void *stop_later(void *group) {
  usleep(50000);
  sli_group_stop(group);
  return NULL;
}

/* Process 1 does not take part. */
static void stopping(process *p) {
  sli_group *g = open_all(p);
  if (p->self != 1) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, stop_later, g), "a thread");
    float *data = numbers(p->self, 2, 1500000);
    CHECK(sli_group_all_reduce_f32(g, data, 1500000) == SL_E_STOPPED, "a call can be stopped");
    CHECK(sli_group_all_reduce_f32(g, data, 1) == SL_E_STOPPED, "and so are all after it");
    pthread_join(thread, NULL);
    free(data);
  }
  process_meet(p, NULL, NULL);
  sli_group_close(g);
}

static void check_host(const char *host) {
  static const int members[] = {0, 1};
  sli_group_options options = {.name = "far", .members = members, .nmembers = 2, .open_ms = 300,
                               .host = host, .store = {NULL, store_set, store_get}};
  sli_group *g = NULL;
  CHECK(sli_group_open(&options, &g) == SL_E_INPUT && !g && strstr(sl_detail(), host),
        "a host that is not this one is refused by name: %s", sl_detail());
}

/* ---- threads ------------------------------------------------------------------------------- */

enum { THREAD_CALLS = 30, THREADS_MOST = 6 };

typedef struct member {
  sli_thread_group *group;
  int self, n;
} member;

static void *sum_in_thread(void *arg) {
  member *m = arg;
  for (uint64_t call = 1; call <= THREAD_CALLS; call++) {
    size_t count = size_of(call);
    float *data = numbers(m->self, call, count);
    CHECK(!sli_thread_group_all_reduce_f32(m->group, m->self, data, count), "%s", sl_detail());
    CHECK(is_sum(data, m->n, call, 0, count), "threads sum %zu numbers in the order of members",
          count);
    free(data);
  }
  return NULL;
}

static void *wait_in_thread(void *arg) {
  member *m = arg;
  float data[10] = {0};
  CHECK(sli_thread_group_all_reduce_f32(m->group, m->self, data, 10) == SL_E_STOPPED,
        "a wait for threads that do not come can be stopped");
  return NULL;
}

static void check_threads(int n, int come, void *(*what)(void *)) {
  pthread_t threads[THREADS_MOST];
  member members[THREADS_MOST];
  sli_thread_group *g = sli_thread_group_create(n);
  for (int i = 0; i < come; i++) {
    members[i] = (member){g, i, n};
    CHECK(!pthread_create(&threads[i], NULL, what, &members[i]), "a thread");
  }
  if (come < n) {
    usleep(20000);
    sli_thread_group_stop(g);
  }
  for (int i = 0; i < come; i++) pthread_join(threads[i], NULL);
  sli_thread_group_destroy(g);
}

/* --------------------------------------------------------------------------------------------- */

static void check_processes(int n, void (*what)(process *p), const char *claim) {
  empty_store();
  CHECK(processes_run(n, what), "%s (%d processes)", claim, n);
}

int main(int argc, char **argv) {
  seed = argc > 1 ? strtoull(argv[1], NULL, 10) : sli_now_ns() % 1000000;
  printf("seed %llu\n", (unsigned long long)seed);
  strcpy(dir, "/tmp/sluice-collective-XXXXXX");
  CHECK(mkdtemp(dir), "%s", dir);
  for (int n = 1; n <= 5; n++) check_processes(n, everybody, "all members get the plain result");
  check_processes(4, subsets, "groups of some");
  check_processes(3, dying, "the dead are named");
  check_processes(3, stopping, "a call can be stopped");
  check_host("no such host");
  check_host("192.0.2.1");
  for (int n = 1; n <= THREADS_MOST; n++) check_threads(n, n, sum_in_thread);
  check_threads(3, 2, wait_in_thread);
  empty_store();
  rmdir(dir);
  return 0;
}
