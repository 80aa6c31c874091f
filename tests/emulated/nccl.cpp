/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL between emulated GPUs of several processes, for communicators of two ranks (or one, which
 * has no peer).
 *
 * Each communicator has a file that both ends map: who has arrived, how many operations each
 * direction has begun and finished, and the bytes of the current one. An operation stays in its
 * stream until the other end reaches its own. A send completes only when it was received, so
 * nothing works by accident of buffering. Calls return "in progress" at random, and then put their
 * operations into the stream later.
 *
 * SLUICE_EMULATED_RECORD names a folder where every process records all operations it issued, for
 * tests/programs/nccl_order.c. SLUICE_EMULATED_FAULT=PROCESS:WHAT@WHERE breaks a process: WHAT is
 * kill, stall (the operation never arrives), hang (the call never returns) or error (NCCL reports
 * one); WHERE is init or the number of an issue, from 1 on. */
#include "tests/emulated/nccl.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tests/emulated/device.h"

namespace {

enum { DATA_AT = 4096 };

struct shared {
  std::atomic<int> device[2];                        /* 1 + number; 0 before it arrives */
  std::atomic<uint64_t> sent[2], taken[2], bytes[2]; /* by the sender's rank */
};

struct fault {
  bool here = false, at_init = false;
  std::string what;
  uint64_t issue = 0;
};

/* Parses "1:kill@init" or "0:stall@7". */
fault fault_by_environment() {
  const char *text = getenv("SLUICE_EMULATED_FAULT"), *self = getenv("SLUICE_PROCESS");
  int process, used = 0;
  char what[16], where[16];
  fault f;
  if (!text || sscanf(text, "%d:%15[a-z]@%15s%n", &process, what, where, &used) != 3) return f;
  f.here = self && atoi(self) == process;
  f.what = what;
  f.at_init = !strcmp(where, "init");
  f.issue = f.at_init ? 0 : strtoull(where, NULL, 10);
  return f;
}

const fault &planned() {
  static const fault f = fault_by_environment();
  return f;
}

bool is_broken_at(bool init, uint64_t issue) {
  const fault &f = planned();
  return f.here && f.at_init == init && f.issue == issue;
}

/* Breaks the process, or returns whether the caller must. */
bool is_to(const char *what, bool init, uint64_t issue) {
  if (!is_broken_at(init, issue)) return false;
  if (planned().what == "kill") raise(SIGKILL);
  while (planned().what == "hang") sleep(1);
  return planned().what == what;
}

uint64_t issues; /* issued by this process */

} // namespace

struct emulated_communicator {
  std::string name;
  int rank, device, fd;
  shared *both;
  bool has_met, failed;
  uint64_t issued[2]; /* sends, receives */
  std::atomic<int> under_way{0};
  std::atomic<bool> aborted{false};
  std::function<void()> later; /* appends the operation to the stream */
  ~emulated_communicator() {
    munmap(both, DATA_AT);
    close(fd);
  }
};

using communicator = std::shared_ptr<emulated_communicator>;

namespace {

/* The objects behind ncclComm_t; operations in streams hold the communicator too. */
std::map<ncclComm_t, communicator> live;
std::mutex listing;

communicator find(ncclComm_t comm) {
  std::lock_guard<std::mutex> l(listing);
  REQUIRE(live.count(comm), "there is no such communicator");
  return live[comm];
}

/* ---- recording ---------------------------------------------------------------------------- */

FILE *open_record() {
  const char *folder = getenv("SLUICE_EMULATED_RECORD");
  if (!folder) return NULL;
  std::string path = std::string(folder) + "/" + std::to_string(getpid());
  FILE *file = fopen(path.c_str(), "w");
  REQUIRE(file, "%s cannot be written", path.c_str());
  setvbuf(file, NULL, _IOLBF, 0);
  return file;
}

void record(const emulated_communicator &c, bool sends, size_t bytes, const void *stream) {
  static FILE *const file = open_record();
  if (!file) return;
  fprintf(file, "%s\t%d\t%d\t%s\t%d\t%zu\t%llu\t%ld\t%p\t%d\n", c.name.c_str(), c.rank, c.device,
          sends ? "send" : "recv", 1 - c.rank, bytes, (unsigned long long)c.issued[!sends],
          (long)syscall(SYS_gettid), stream, c.under_way.load());
}

/* ---- operations --------------------------------------------------------------------------- */

void write_all(int fd, const void *data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t put = pwrite(fd, (const char *)data + done, bytes - done, (off_t)(DATA_AT + done));
    REQUIRE(put > 0, "a message cannot be written");
    done += (size_t)put;
  }
}

void read_all(int fd, void *data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t got = pread(fd, (char *)data + done, bytes - done, (off_t)(DATA_AT + done));
    REQUIRE(got > 0, "a message cannot be read");
    done += (size_t)got;
  }
}

/* Advances a send or a receive by one step; returns true when it is complete. The file has room for
 * one message. */
bool move_send(emulated_communicator &c, void *data, size_t bytes, uint64_t number) {
  std::atomic<uint64_t> &sent = c.both->sent[c.rank], &taken = c.both->taken[c.rank];
  if (sent < number && taken == number - 1) {
    write_all(c.fd, data, bytes);
    c.both->bytes[c.rank] = bytes;
    sent = number;
  }
  return taken >= number;
}

bool move_receive(emulated_communicator &c, void *data, size_t bytes, uint64_t number) {
  int from = 1 - c.rank;
  if (c.both->sent[from] != number) return false;
  size_t there = c.both->bytes[from]; /* a wrong size shows in the record */
  read_all(c.fd, data, there < bytes ? there : bytes);
  c.both->taken[from] = number;
  return true;
}

ncclResult_t issue(ncclComm_t comm, bool sends, void *data, size_t bytes, cudaStream_t stream) {
  communicator c = find(comm);
  REQUIRE(c->has_met && !c->later, "a communicator is used while a call is in progress");
  uint64_t number = ++c->issued[!sends], all = ++issues;
  record(*c, sends, bytes, stream);
  if (is_to("error", false, all)) c->failed = true;
  bool stalls = is_to("stall", false, all);
  c->under_way++;
  c->later = [=] {
    emulated_enqueue_when(stream, [=, over = false]() mutable {
      if (over || c->aborted) return true;
      if (stalls || emulated_draw(3)) return false;
      over = (sends ? move_send : move_receive)(*c, data, bytes, number);
      c->under_way -= over;
      return over;
    });
  };
  if (emulated_draw(2)) return ncclInProgress;
  c->later();
  c->later = nullptr;
  return ncclSuccess;
}

/* Returns whether the other end has arrived. */
bool meets(emulated_communicator &c) {
  if (c.has_met || !c.both->device[1 - c.rank]) return c.has_met;
  c.failed |= c.both->device[0] == c.both->device[1]; /* as real NCCL does */
  if (!c.rank) unlink(c.name.c_str());
  return c.has_met = true;
}

} // namespace

/* ---- NCCL's names --------------------------------------------------------------------------- */

ncclResult_t ncclGetVersion(int *version) { return *version = NCCL_VERSION_CODE, ncclSuccess; }

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  const char *folder = getenv("TMPDIR");
  snprintf(id->internal, sizeof id->internal, "%s/nccl-XXXXXX", folder ? folder : "/tmp");
  int fd = mkstemp(id->internal);
  if (fd < 0 || ftruncate(fd, DATA_AT)) return ncclSystemError;
  close(fd);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  if (ranks < 1 || ranks > 2 || rank < 0 || rank >= ranks) return ncclInvalidUsage;
  if (config->blocking || config->maxCTAs < 1) return ncclInvalidUsage;
  communicator c(new emulated_communicator());
  c->name = id.internal;
  c->rank = rank;
  cudaGetDevice(&c->device);
  c->fd = open(id.internal, O_RDWR | O_CLOEXEC);
  if (c->fd < 0) return ncclSystemError;
  void *memory = mmap(NULL, DATA_AT, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
  REQUIRE(memory != MAP_FAILED, "%s cannot be mapped", id.internal);
  c->both = (shared *)memory;
  c->failed = is_to("error", true, 0);
  if (!is_to("stall", true, 0)) c->both->device[rank] = 1 + c->device;
  if (ranks == 1) c->both->device[1] = -1; /* no peer */
  std::lock_guard<std::mutex> l(listing);
  live[ *comm = c.get()] = c;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
  communicator c = find(comm);
  bool busy = !meets(*c) || emulated_draw(2);
  if (!busy && c->later) {
    c->later();
    c->later = nullptr;
  }
  *error = c->failed                           ? ncclRemoteError
           : busy && (c->later || !c->has_met) ? ncclInProgress
                                               : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  REQUIRE(!find(comm)->under_way, "a communicator ends before its operations");
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  std::lock_guard<std::mutex> l(listing);
  live.erase(comm);
  return ncclSuccess;
}

/* Waits for the device: for all operations in flight there, of other communicators too. */
static bool is_device_busy(int device) {
  std::lock_guard<std::mutex> l(listing);
  for (const auto &i : live)
    if (i.second->device == device && i.second->under_way && !i.second->aborted) return true;
  return false;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  communicator c = find(comm);
  c->aborted = true;
  while (is_device_busy(c->device)) usleep(1000);
  return ncclCommDestroy(comm);
}

ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (peer != 1 - comm->rank) return ncclInvalidUsage;
  return issue(comm, true, const_cast<void *>(data), count, stream);
}

ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (peer != 1 - comm->rank) return ncclInvalidUsage;
  return issue(comm, false, data, count, stream);
}

const char *ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote error" : result ? "error" : "no error";
}

const char *ncclGetLastError(ncclComm_t) { return "emulated"; }
