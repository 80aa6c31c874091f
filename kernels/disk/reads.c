/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/disk/reads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "kernels/disk/disk.h"
#include "kernels/disk/rate.h"
#include "kernels/disk/ring.h"

enum {
  PIECE = 1 << 20,    /* most bytes of a guess that are read at once */
  TOGETHER = 1 << 17, /* bytes of sure reads that are done together, unless the first has more */
  BATCH = 64,         /* most transfers at once */
  LANDING = 1 << 22   /* bytes that land before they are copied to far memory */
};

typedef struct job {
  struct job *next;
  uint64_t mark, number;  /* number: 0 for a guess */
  bool dropped;           /* while it is being read */
  uint64_t *bytes;        /* counter of a guess's bytes, or NULL */
  size_t count, at, done; /* transfers; the next one, and its bytes that have been read */
  sli_disk_way ways[];
} job;

typedef struct jobs {
  job *first, **end;
} jobs;

typedef struct batch {
  size_t count;
  sli_disk_way ways[BATCH];
} batch;

struct sli_disk_reads {
  pthread_t thread;
  pthread_mutex_t lock; /* guards what follows, until `passed` */
  pthread_cond_t news;
  jobs sure, guesses;
  job *current; /* guess that is being read, without the lock; or it was, and is sure now */
  bool stops;
  uint64_t number, mark;   /* the last ones given */
  char *failed;            /* written once, before `broken` */
  _Atomic uint64_t passed; /* released by the thread, acquired by the queue: slots are filled */
  atomic_bool broken;
  /* of the thread alone */
  sli_disk_ring *ring;
  sli_disk_rate_limit rate;
  sli_disk_far far;
  void *landing; /* [LANDING], or NULL */
};

static void put(jobs *to, job *j) {
  j->next = NULL;
  *to->end = j;
  to->end = &j->next;
}

static void take_out(jobs *from, const job *j) {
  job **link = &from->first;
  while (*link != j) link = &(*link)->next;
  *link = j->next;
  if (!*link) from->end = link;
}

/* ---- the thread --------------------------------------------------------------------------- */

/* Reads transfers: together if the ring can carry all of them, otherwise one by one. */
static sl_status read_ways(sli_disk_reads *x, const sli_disk_way *ways, size_t count) {
  uint64_t begun_ns = sli_now_ns();
  size_t bytes = 0;
  bool straight = x->ring;
  for (size_t i = 0; i < count; i++) {
    straight &= sli_disk_way_straight(&ways[i]);
    bytes += ways[i].bytes;
  }
  sl_status status = SL_OK;
  if (straight && count) status = sli_disk_ring_go(x->ring, ways, count);
  for (size_t i = 0; i < count && !straight && !status; i++) status = sli_disk_go(&ways[i]);
  sli_disk_rate_keep(&x->rate, begun_ns, bytes);
  return status;
}

/* Lists what lands next, from transfer *i on, of which *done bytes have landed; to[] gets its place
 * in far memory. */
static void list_landing(const sli_disk_reads *x, const sli_disk_way *ways, size_t count, size_t *i,
                         size_t *done, batch *next, char **to) {
  size_t used = 0;
  for (next->count = 0; *i < count && used < LANDING && next->count < BATCH; next->count++) {
    sli_disk_way *way = &next->ways[next->count];
    *way = ways[*i];
    to[next->count] = way->memory + *done;
    way->memory = (char *)x->landing + used;
    way->at += (off_t)*done;
    way->bytes = SLI_MIN(way->bytes - *done, LANDING - used);
    used += sli_disk_pages(way->bytes);
    *done += way->bytes;
    if (*done == ways[*i].bytes) ++*i, *done = 0;
  }
}

/* Reads transfers to where they go. */
static sl_status read_all(sli_disk_reads *x, const sli_disk_way *ways, size_t count) {
  if (!x->far.memory) return read_ways(x, ways, count);
  batch next;
  char *to[BATCH];
  for (size_t i = 0, done = 0; i < count;) {
    list_landing(x, ways, count, &i, &done, &next, to);
    SLI_TRY(read_ways(x, next.ways, next.count));
    for (size_t n = 0; n < next.count; n++)
      SLI_TRY(x->far.memory->copy(to[n], next.ways[n].memory, next.ways[n].bytes));
  }
  return SL_OK;
}

/* Makes the landing. Its memory belongs to the device, on which the thread's copies then run. */
static sl_status make_landing(sli_disk_reads *x) {
  const sl_memory_config config = {.device = x->far.device};
  return x->far.memory ? x->far.host->create(&config, LANDING, &x->landing) : SL_OK;
}

static void count_bytes(const job *j, size_t bytes) {
  if (j->bytes) __atomic_fetch_add(j->bytes, bytes, __ATOMIC_RELAXED);
}

/* Adds what is left of a job to the transfers of a batch, up to `most` bytes in all. Returns the
 * bytes of the batch. */
static size_t add_rest(batch *x, job *j, size_t bytes, size_t most) {
  while (j->at < j->count && bytes < most && x->count < BATCH) {
    sli_disk_way way = j->ways[j->at];
    way.memory += j->done;
    way.at += (off_t)j->done;
    way.bytes = SLI_MIN(way.bytes - j->done, most - bytes);
    x->ways[x->count++] = way;
    count_bytes(j, way.bytes);
    bytes += way.bytes;
    j->done += way.bytes;
    if (j->done == j->ways[j->at].bytes) j->at++, j->done = 0;
  }
  return bytes;
}

/* True if an earlier sure read fills the same memory, and so has to end first. */
static bool must_wait(const sli_disk_reads *x, const job *j) {
  const job *before = x->sure.first;
  while (before != j && before->ways->memory != j->ways->memory) before = before->next;
  return before != j;
}

/* Lists the transfers to do next. Small sure reads are done together, so that a disk has several to
 * do. */
static void list_next(sli_disk_reads *x, batch *next) {
  job *j = x->sure.first;
  next->count = 0;
  if (!j) {
    x->current = x->guesses.first;
    add_rest(next, x->current, 0, PIECE);
    return;
  }
  size_t bytes = add_rest(next, j, 0, SIZE_MAX);
  while (bytes < TOGETHER && (j = j->next) && !must_wait(x, j))
    bytes = add_rest(next, j, bytes, TOGETHER);
}

/* Ends a job that has been read or dropped. */
static void end(sli_disk_reads *x, job *j) {
  take_out(j->number ? &x->sure : &x->guesses, j);
  if (j->number) atomic_store_explicit(&x->passed, j->number, memory_order_release);
  free(j);
}

/* Ends what has been read. Sure reads end in their order, since readers wait for numbers. */
static void end_read(sli_disk_reads *x) {
  job *guess = x->current;
  x->current = NULL;
  if (guess && !guess->number && (guess->dropped || guess->at == guess->count)) end(x, guess);
  while (x->sure.first && x->sure.first->at == x->sure.first->count) end(x, x->sure.first);
}

/* Keeps the error of the calling thread. */
static void break_down(sli_disk_reads *x) {
  x->failed = sli_strdup(sl_detail());
  atomic_store_explicit(&x->broken, true, memory_order_release);
}

static void *read_jobs(void *arg) {
  sli_disk_reads *x = arg;
  batch next;
  bool ready = !make_landing(x);
  if (!ready) break_down(x);
  pthread_mutex_lock(&x->lock);
  while (ready && !x->stops) {
    if (!x->sure.first && !x->guesses.first) {
      pthread_cond_wait(&x->news, &x->lock);
      continue;
    }
    list_next(x, &next);
    pthread_mutex_unlock(&x->lock);
    sl_status status = read_all(x, next.ways, next.count);
    pthread_mutex_lock(&x->lock);
    if (status) {
      break_down(x);
      break;
    }
    end_read(x);
  }
  pthread_mutex_unlock(&x->lock);
  return NULL;
}

/* Lets a thread run on all cores of the process, whichever its maker is bound to. */
static void set_cores(pthread_attr_t *attr) {
  cpu_set_t cores;
  if (!sched_getaffinity(getpid(), sizeof cores, &cores))
    pthread_attr_setaffinity_np(attr, sizeof cores, &cores);
}

sli_disk_reads *sli_disk_reads_open(sli_disk_far far) {
  sli_disk_reads *x = sli_calloc(1, sizeof *x);
  x->far = far;
  const char *why;
  x->ring = sli_disk_ring_open(&why);
  if (!x->ring) sli_disk_say_plain(why);
  x->rate.rate = sli_disk_rate();
  x->sure.end = &x->sure.first;
  x->guesses.end = &x->guesses.first;
  pthread_mutex_init(&x->lock, NULL);
  pthread_cond_init(&x->news, NULL);
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  set_cores(&attr);
  int error = pthread_create(&x->thread, &attr, read_jobs, x);
  pthread_attr_destroy(&attr);
  SLI_CHECK(!error, "no thread for reads from disk: %s", strerror(error));
  return x;
}

static void drop_all(jobs *from) {
  for (job *j = from->first, *next; j; j = next) next = j->next, free(j);
}

void sli_disk_reads_close(sli_disk_reads *x) {
  if (!x) return;
  pthread_mutex_lock(&x->lock);
  x->stops = true;
  pthread_cond_signal(&x->news);
  pthread_mutex_unlock(&x->lock);
  pthread_join(x->thread, NULL);
  drop_all(&x->sure);
  drop_all(&x->guesses);
  sli_disk_ring_close(x->ring);
  if (x->landing) x->far.host->destroy(x->landing, LANDING);
  pthread_mutex_destroy(&x->lock);
  pthread_cond_destroy(&x->news);
  free(x->failed);
  free(x);
}

/* ---- the queue ---------------------------------------------------------------------------- */

static job *make(const sli_disk_way *ways, size_t count) {
  job *j = sli_calloc(1, sizeof *j + count * sizeof *ways);
  j->count = count;
  memcpy(j->ways, ways, count * sizeof *ways);
  return j;
}

sl_status sli_disk_reads_copy(const sli_disk_reads *x, void *to, const void *from, size_t bytes) {
  if (x->far.memory) return x->far.memory->copy(to, from, bytes);
  memcpy(to, from, bytes);
  return SL_OK;
}

uint64_t sli_disk_reads_ask(sli_disk_reads *x, const sli_disk_way *ways, size_t count) {
  job *j = make(ways, count);
  pthread_mutex_lock(&x->lock);
  uint64_t number = j->number = ++x->number;
  put(&x->sure, j);
  pthread_cond_signal(&x->news);
  pthread_mutex_unlock(&x->lock);
  return number;
}

uint64_t sli_disk_reads_passed(const sli_disk_reads *x) {
  return atomic_load_explicit(&x->passed, memory_order_acquire);
}

uint64_t sli_disk_reads_guess(sli_disk_reads *x, const sli_disk_way *ways, size_t count,
                              uint64_t *bytes) {
  job *j = make(ways, count);
  j->bytes = bytes;
  pthread_mutex_lock(&x->lock);
  uint64_t mark = j->mark = ++x->mark;
  put(&x->guesses, j);
  pthread_cond_signal(&x->news);
  pthread_mutex_unlock(&x->lock);
  return mark;
}

static uint64_t settle(sli_disk_reads *x, job *j, bool wanted) {
  if (wanted) {
    take_out(&x->guesses, j);
    put(&x->sure, j);
    return j->number = ++x->number;
  }
  if (j == x->current) {
    j->dropped = true;
  } else {
    take_out(&x->guesses, j);
    free(j);
  }
  return 0;
}

uint64_t sli_disk_reads_settle(sli_disk_reads *x, uint64_t mark, bool wanted, bool *there) {
  pthread_mutex_lock(&x->lock);
  job *j = x->guesses.first;
  while (j && (j->mark != mark || j->dropped)) j = j->next;
  *there = !j;
  uint64_t number = j ? settle(x, j, wanted) : 0;
  pthread_mutex_unlock(&x->lock);
  return number;
}

const char *sli_disk_reads_failure(const sli_disk_reads *x) {
  return atomic_load_explicit(&x->broken, memory_order_acquire) ? x->failed : NULL;
}
