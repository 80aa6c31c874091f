/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers in flight on io_uring, cut into pieces. */
#include "kernels/disk/ring.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

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
static void ask(sli_disk_ring *r, sli_disk_way *piece) {
  struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
  SLI_CHECK(sqe, "io_uring has no room for %d pieces", DEPTH);
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
    ask(r, &r->pieces[i]);
  }
}

/* Handles a completion. A partly transferred piece is resubmitted for the remainder; a complete one
 * is verified while the others are in flight. */
static void take_answer(sli_disk_ring *r, sli_disk_way *piece, int result) {
  bool again = result == -EINTR || result == -EAGAIN;
  if (result < 0 && !again) {
    if (!r->status) r->status = sli_disk_broke(piece, -result);
  } else if (!again && !sli_disk_way_shorten(piece, (size_t)result)) {
    if (!r->status) r->status = sli_disk_broke(piece, 0);
  }
  if (piece->bytes && !r->status) {
    ask(r, piece);
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
