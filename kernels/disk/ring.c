/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers in flight on io_uring, cut into pieces. */
#include "kernels/disk/ring.h"

#include <errno.h>
#include <liburing.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/disk/rate.h"

enum { DEPTH = 8, PIECE = 1 << 20 };

struct sli_disk_ring {
  struct io_uring uring;
  sli_disk_way pieces[DEPTH]; /* remainder of each piece in flight; bytes 0: unused */
  sli_disk_way whole[DEPTH];  /* each piece as it began */
  int under_way;
  const sli_disk_way *next, *end; /* remaining transfers */
  size_t begun;                   /* bytes of the next transfer that have been submitted */
  sl_status status;
};

sli_disk_ring *sli_disk_ring_open(const char **why) {
  sli_disk_ring *r = sli_calloc(1, sizeof *r);
  int error = sli_disk_setting("plain") ? -ENOSYS : io_uring_queue_init(DEPTH, &r->uring, 0);
  if (!error) return r;
  free(r);
  *why = strerror(-error);
  return NULL;
}

void sli_disk_ring_close(sli_disk_ring *r) {
  if (!r) return;
  io_uring_queue_exit(&r->uring);
  free(r);
}

/* Submits a piece. The ring has an entry for each piece, so one is free. */
static void ask(struct io_uring *uring, sli_disk_way *piece) {
  struct io_uring_sqe *sqe = io_uring_get_sqe(uring);
  SLI_CHECK(sqe, "io_uring has no room for a piece");
  if (piece->out)
    io_uring_prep_write(sqe, piece->file->fd, piece->memory, (unsigned)piece->bytes,
                        (uint64_t)piece->at);
  else
    io_uring_prep_read(sqe, piece->file->fd, piece->memory, (unsigned)piece->bytes,
                       (uint64_t)piece->at);
  io_uring_sqe_set_data(sqe, piece);
}

static sli_disk_way next_piece(sli_disk_ring *r) {
  sli_disk_way piece = *r->next;
  piece.memory += r->begun;
  piece.at += (off_t)r->begun;
  piece.bytes = SLI_MIN(piece.bytes - r->begun, (size_t)PIECE);
  r->begun += piece.bytes;
  if (r->begun == r->next->bytes) r->next++, r->begun = 0;
  return piece;
}

static void begin_more(sli_disk_ring *r) {
  for (int i = 0; i < DEPTH && r->next < r->end && !r->status; i++) {
    if (r->pieces[i].bytes) continue;
    r->pieces[i] = r->whole[i] = next_piece(r);
    sli_disk_sign(&r->pieces[i]);
    r->under_way++;
    ask(&r->uring, &r->pieces[i]);
  }
}

/* Handles a completion: a partly transferred piece is to be asked for once more, for the remainder.
 * Fails if it ended before. */
static sl_status shorten(sli_disk_way *piece, int result) {
  bool again = result == -EINTR || result == -EAGAIN;
  if (result < 0 && !again) return sli_disk_broke(piece, -result);
  if (!again && !sli_disk_way_shorten(piece, (size_t)result)) return sli_disk_broke(piece, 0);
  return SL_OK;
}

/* Handles a completion. A complete piece is verified while the others are in flight. */
static void take_answer(sli_disk_ring *r, sli_disk_way *piece, int result) {
  sl_status status = shorten(piece, result);
  if (!r->status) r->status = status;
  if (piece->bytes && !r->status) {
    ask(&r->uring, piece);
    return;
  }
  if (!r->status) r->status = sli_disk_verify(&r->whole[piece - r->pieces]);
  piece->bytes = 0;
  r->under_way--;
}

static void take_answers(sli_disk_ring *r) {
  struct io_uring_cqe *cqe;
  int error = io_uring_submit_and_wait(&r->uring, 1);
  SLI_CHECK(error >= 0 || error == -EINTR || error == -EAGAIN || error == -EBUSY,
            "io_uring: error %d", -error);
  while (!io_uring_peek_cqe(&r->uring, &cqe)) {
    sli_disk_way *piece = io_uring_cqe_get_data(cqe);
    int result = cqe->res;
    io_uring_cqe_seen(&r->uring, cqe);
    take_answer(r, piece, result);
  }
}

/* Runs the transfers. A single piece is transferred synchronously, which is faster because nothing
 * can overlap with it. */
sl_status sli_disk_ring_go(sli_disk_ring *r, const sli_disk_way *ways, size_t count) {
  if (count == 1 && ways->bytes <= PIECE) return sli_disk_go(ways);
  r->next = ways;
  r->end = ways + count;
  r->status = SL_OK;
  do {
    begin_more(r);
    if (r->under_way) take_answers(r);
  } while (r->under_way || (r->next < r->end && !r->status));
  for (size_t i = 0; i < count; i++) sli_disk_forget(&ways[i]);
  return r->status;
}

/* ---- flights -------------------------------------------------------------------------------- */

enum { FLIGHTS = 256, BATCHES = 64 };

typedef struct flight {
  sli_disk_way left, whole;
  uint64_t number;
  bool used;
} flight;

struct sli_disk_flights {
  struct io_uring uring;
  flight all[FLIGHTS];
  int under_way;
  uint64_t begun, passed;
  int waits[BATCHES];       /* [number % BATCHES] pieces that have not ended */
  uint64_t due_ns[BATCHES]; /* when a disk of the limited rate would have read them */
  sli_disk_rate_limit rate;
  char *failed;
};

sli_disk_flights *sli_disk_flights_open(const char **why) {
  sli_disk_flights *f = sli_calloc(1, sizeof *f);
  int error = sli_disk_setting("plain") ? -ENOSYS : io_uring_queue_init(FLIGHTS, &f->uring, 0);
  f->rate.rate = sli_disk_rate();
  if (!error) return f;
  free(f);
  *why = strerror(-error);
  return NULL;
}

static flight *free_flight(sli_disk_flights *f) {
  int i = 0;
  while (f->all[i].used) i++;
  return &f->all[i];
}

uint64_t sli_disk_flights_begin(sli_disk_flights *f, const sli_disk_way *ways, size_t count) {
  bool fits = f->under_way + (int)count <= FLIGHTS && f->begun - f->passed < BATCHES;
  size_t bytes = 0;
  for (size_t i = 0; i < count && fits; i++) fits = ways[i].bytes <= PIECE;
  if (!fits || f->failed) return 0;
  uint64_t number = ++f->begun;
  for (size_t i = 0; i < count; bytes += ways[i++].bytes) {
    flight *one = free_flight(f);
    *one = (flight){ways[i], ways[i], number, true};
    ask(&f->uring, &one->left);
    f->under_way++;
  }
  f->waits[number % BATCHES] = (int)count;
  f->due_ns[number % BATCHES] = sli_disk_rate_due(&f->rate, sli_now_ns(), bytes);
  int error = io_uring_submit(&f->uring);
  SLI_CHECK(error >= 0 || error == -EINTR || error == -EAGAIN || error == -EBUSY,
            "io_uring: error %d", -error);
  return number;
}

static void land(sli_disk_flights *f, sli_disk_way *piece, int result) {
  flight *one = (flight *)(void *)((char *)piece - offsetof(flight, left));
  sl_status status = shorten(piece, result);
  if (!status && piece->bytes) {
    ask(&f->uring, piece);
    return;
  }
  if (!status) status = sli_disk_verify(&one->whole);
  if (status && !f->failed) f->failed = sli_strdup(sl_detail());
  sli_disk_forget(&one->whole);
  one->used = false;
  f->under_way--;
  f->waits[one->number % BATCHES]--;
}

static void look(sli_disk_flights *f) {
  struct io_uring_cqe *cqe;
  while (!io_uring_peek_cqe(&f->uring, &cqe)) {
    sli_disk_way *piece = io_uring_cqe_get_data(cqe);
    int result = cqe->res;
    io_uring_cqe_seen(&f->uring, cqe);
    land(f, piece, result);
  }
  if (io_uring_sq_ready(&f->uring)) io_uring_submit(&f->uring);
}

uint64_t sli_disk_flights_passed(sli_disk_flights *f) {
  look(f);
  while (f->passed < f->begun && !f->failed) {
    size_t next = (f->passed + 1) % BATCHES;
    if (f->waits[next] || (f->due_ns[next] && sli_now_ns() < f->due_ns[next])) break;
    f->passed++;
  }
  return f->passed;
}

const char *sli_disk_flights_failure(const sli_disk_flights *f) { return f->failed; }

void sli_disk_flights_close(sli_disk_flights *f) {
  if (!f) return;
  while (f->under_way) look(f);
  io_uring_queue_exit(&f->uring);
  free(f->failed);
  free(f);
}
