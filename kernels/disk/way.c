/* SPDX-License-Identifier: Apache-2.0 */
/* Synchronous transfers between a file and host memory, direct or through a buffer. */
#include "kernels/disk/way.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "kernels/disk/disk.h"
#include "ops/ops.h"

enum { BUFFER = 1 << 20 };

sli_disk_way sli_disk_way_of(void *to, const void *from, size_t bytes) {
  const sli_disk_file *in = sli_disk_file_of(from), *out = sli_disk_file_of(to);
  if (!in == !out) return (sli_disk_way){.bytes = bytes};
  if (out) return (sli_disk_way){out, (char *)from, (char *)to - out->begin, bytes, true, NULL};
  return (sli_disk_way){in, to, (const char *)from - in->begin, bytes, false, NULL};
}

bool sli_disk_way_straight(const sli_disk_way *way) {
  uintptr_t places = (uintptr_t)way->at | way->bytes;
  if (way->file->direct) places |= (uintptr_t)way->memory;
  return places % SLI_DISK_PAGE == 0;
}

bool sli_disk_way_shorten(sli_disk_way *way, size_t bytes) {
  if (way->file->direct) bytes -= bytes % SLI_DISK_PAGE;
  way->memory += bytes;
  way->at += (off_t)bytes;
  way->bytes -= bytes;
  return bytes > 0;
}

sl_status sli_disk_broke(const sli_disk_way *way, int error) {
  const char *why = error ? strerror(error) : "unexpected end of file";
  return sl_fail(SL_E_IO, "%s %s: %zu bytes at %lld of a file in %s: %s",
                 way->out ? "writing" : "reading", way->name ? way->name : "memory on disk",
                 way->bytes, (long long)way->at, way->file->folder, why);
}

void sli_disk_say_plain(const char *why) {
  static pthread_mutex_t saying = PTHREAD_MUTEX_INITIALIZER;
  static bool said;
  pthread_mutex_lock(&saying);
  if (!said) sli_log("note: no io_uring (%s): disks are read and written one piece at a time", why);
  said = true;
  pthread_mutex_unlock(&saying);
}

/* Drops written pages from the page cache. They must be on disk first; only whole pages are
 * dropped. */
void sli_disk_forget(const sli_disk_way *way) {
  if (way->file->direct) return;
  unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  off_t begin = way->at / SLI_DISK_PAGE * SLI_DISK_PAGE;
  off_t bytes = (off_t)sli_disk_pages((size_t)(way->at - begin) + way->bytes);
  if (way->out) sync_file_range(way->file->fd, begin, bytes, all);
  posix_fadvise(way->file->fd, begin, bytes, POSIX_FADV_DONTNEED);
}

/* ---- checksums ------------------------------------------------------------------------------- */

/* Mixes a page's words in four lanes, which the processor computes side by side. Two different
 * pages have the same value with a chance of 1 in 2^32. */
static unsigned checksum(const char *page) {
  enum { LANES = 4, WORDS = SLI_DISK_PAGE / 8 };
  static const uint64_t prime = UINT64_C(0x9e3779b97f4a7c15);
  uint64_t lane[LANES] = {1, 2, 3, 4}, sum = 0;
  for (int i = 0; i < WORDS; i += LANES)
    for (int k = 0; k < LANES; k++) {
      uint64_t word;
      memcpy(&word, page + 8 * (i + k), sizeof word);
      lane[k] = (lane[k] ^ word) * prime;
      lane[k] ^= lane[k] >> 29;
    }
  for (int k = 0; k < LANES; k++) sum = (sum ^ lane[k]) * prime, sum ^= sum >> 32;
  return SLI_MAX((unsigned)sum, 1U);
}

static atomic_uint *sum_of(const sli_disk_way *way, size_t byte) {
  return &way->file->sums[((size_t)way->at + byte) / SLI_DISK_PAGE];
}

void sli_disk_sign(const sli_disk_way *way) {
  for (size_t b = 0; b < way->bytes && way->out; b += SLI_DISK_PAGE)
    atomic_store_explicit(sum_of(way, b), checksum(way->memory + b), memory_order_relaxed);
}

/* Returns whether a page is as it was written, or was never written. */
static bool is_intact(const sli_disk_way *way, size_t byte) {
  unsigned want = atomic_load_explicit(sum_of(way, byte), memory_order_relaxed);
  return !want || checksum(way->memory + byte) == want;
}

/* Reads a page once more, from the disk instead of the page cache. */
static bool is_intact_again(const sli_disk_way *way, size_t byte) {
  sli_disk_way page = {way->file, way->memory + byte, way->at + (off_t)byte, SLI_DISK_PAGE,
                       false,     way->name};
  sli_disk_forget(&page);
  return pread(page.file->fd, page.memory, page.bytes, page.at) == SLI_DISK_PAGE &&
         is_intact(&page, 0);
}

sl_status sli_disk_verify(const sli_disk_way *way) {
  for (size_t b = 0; b < way->bytes && !way->out; b += SLI_DISK_PAGE) {
    if (is_intact(way, b) || is_intact_again(way, b)) continue;
    return sl_fail(
        SL_E_IO,
        "reading %s: the page at %lld of a file in %s is damaged: the disk returned other "
        "bytes than were written",
        way->name ? way->name : "memory on disk", (long long)(way->at + (off_t)b),
        way->file->folder);
  }
  return SL_OK;
}

/* ---- transfers ------------------------------------------------------------------------------- */

static sl_status go_straight(const sli_disk_way *way) {
  sli_disk_sign(way);
  for (sli_disk_way left = *way; left.bytes;) {
    ssize_t n = left.out ? pwrite(left.file->fd, left.memory, left.bytes, left.at)
                         : pread(left.file->fd, left.memory, left.bytes, left.at);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return sli_disk_broke(&left, errno);
    if (!sli_disk_way_shorten(&left, (size_t)n)) return sli_disk_broke(&left, 0);
  }
  return sli_disk_verify(way);
}

/* Transfers through the pages around the range, all of which fit the buffer. Partly written pages
 * are read first. */
static sl_status go_through(const sli_disk_way *way, char *buffer) {
  size_t skip = (size_t)way->at % SLI_DISK_PAGE, bytes = sli_disk_pages(skip + way->bytes);
  sli_disk_way pages = {way->file, buffer, way->at - (off_t)skip, bytes, false, way->name};
  if (!way->out || bytes != way->bytes) SLI_TRY(go_straight(&pages));
  if (!way->out) {
    memcpy(way->memory, buffer + skip, way->bytes);
    return SL_OK;
  }
  memcpy(buffer + skip, way->memory, way->bytes);
  pages.out = true;
  return go_straight(&pages);
}

static sl_status go_buffered(const sli_disk_way *way) {
  char *buffer = aligned_alloc(SLI_DISK_PAGE, BUFFER);
  if (!buffer) return sl_fail(SL_E_MEMORY, "out of memory: a buffer of %d bytes", BUFFER);
  sl_status status = SL_OK;
  for (sli_disk_way left = *way; left.bytes && !status;) {
    sli_disk_way part = left;
    part.bytes = SLI_MIN(left.bytes, BUFFER - (size_t)left.at % SLI_DISK_PAGE);
    status = go_through(&part, buffer);
    left.memory += part.bytes;
    left.at += (off_t)part.bytes;
    left.bytes -= part.bytes;
  }
  free(buffer);
  return status;
}

sl_status sli_disk_go(const sli_disk_way *way) {
  sl_status status = sli_disk_way_straight(way) ? go_straight(way) : go_buffered(way);
  sli_disk_forget(way);
  return status;
}
