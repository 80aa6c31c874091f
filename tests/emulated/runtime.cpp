/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime of the emulated device: memory, streams, events and graphs.
 *
 * Operations wait in their stream until someone queries the device or waits for it. Each query runs
 * a few operations, of streams drawn at random, so that streams overtake each other as much as they
 * may: a reader that skips waiting for another stream's event soon finds old data. Streams and
 * events follow CUDA: an event covers all operations in its stream when it was recorded, and a
 * stream that waits for it goes no further until then.
 *
 * While a stream is captured, its operations go into a graph instead. A launch of that graph
 * appends all of them to a stream as captured, with the kernel arguments of the capture. Calls that
 * CUDA forbids during a capture end the program.
 *
 * Copies and memory settings without a stream go into a separate stream, the legacy one, for which
 * no other stream waits: they come late where real ones may.
 *
 * SLUICE_EMULATED_GPUS sets the number of devices (default 1; -1: no driver), and
 * SLUICE_EMULATED_FREE the bytes each has left (default 3 GiB). With SLUICE_EMULATED_PEERS=0 no
 * device can access another's memory. Copies between devices go through the host unless both have
 * enabled access; if they could have enabled it, that ends the program. With
 * SLUICE_EMULATED_BROKEN=N the N-th record of an event finds that the devices have failed, for
 * good. With SLUICE_EMULATED_GUARD set, only operations can touch the device's memory. A host
 * access to a device address then crashes as it would on a GPU, and so does a kernel access to
 * memory of a device that its own cannot reach. */
#include "tests/emulated/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

static int devices_by_environment() {
  const char *text = getenv("SLUICE_EMULATED_GPUS");
  return text ? atoi(text) : 1;
}

int emulated_devices = devices_by_environment(), emulated_live;
int emulated_bad_captures, emulated_full;

namespace {

/* Held in every call, because threads of a process share the device. */
std::recursive_mutex device;
using lock = std::lock_guard<std::recursive_mutex>;

thread_local int current_device;
thread_local cudaError_t last_error; /* the runtime's last error, "not ready" included */

cudaError_t remember(cudaError_t error) {
  if (error) last_error = error;
  return error;
}

/* ---- memory ------------------------------------------------ */

enum { PAGE = 4096, LARGE = 1 << 20, HOST = -1 };
struct memory {
  size_t bytes; /* whole pages if guarded */
  int device;
  bool is_open; /* only used if guarded */
};
std::map<const void *, memory> memories; /* memory of all devices */
std::set<std::pair<int, int>> reached;   /* the first may access the second */
int touching, acting = HOST; /* acting: the device that accesses memory; the host may access all */

bool is_guarding() {
  static const bool on = getenv("SLUICE_EMULATED_GUARD") != NULL;
  return on;
}

bool can_reach(int device, int other) {
  static const char *text = getenv("SLUICE_EMULATED_PEERS");
  return device != other && !(text && !atoi(text));
}

bool reaches(int device, int other) {
  return device == HOST || device == other || reached.count({device, other});
}

/* Returns the owner of the memory at an address. */
int owner(const void *address) {
  auto m = memories.upper_bound(address);
  if (m == memories.begin()) return HOST;
  m--;
  return (const char *)address < (const char *)m->first + m->second.bytes ? m->second.device : HOST;
}

/* Opens or closes memory for the acting device. Neighbours that change alike take one system call.
 */
void protect() {
  if (!is_guarding()) return;
  for (auto m = memories.begin(); m != memories.end();) {
    auto first = m;
    bool open = touching && reaches(acting, m->second.device);
    const char *end = (const char *)m->first;
    for (; m != memories.end() && m->first == end && m->second.is_open != open &&
           (touching && reaches(acting, m->second.device)) == open;
         m++) {
      end += m->second.bytes;
      m->second.is_open = open;
    }
    if (m == first) m++;
    else
      mprotect((void *)first->first, (size_t)(end - (const char *)first->first),
               open ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
}

void act_as(int device) {
  acting = device;
  protect();
}

/* While one of these lives, the acting device may access its memory. */
struct touch {
  touch() { touching++; }
  ~touch() {
    if (!--touching) protect();
  }
};

/* Allocates memory, which starts with undefined contents. */
void *device_allocate(size_t bytes) {
  size_t unit = is_guarding() ? PAGE : 256, all = (bytes + unit) / unit * unit;
  void *memory = is_guarding() ? mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                               : aligned_alloc(unit, all);
  if (!memory || memory == MAP_FAILED) return NULL;
  memories[memory] = {all, current_device, false};
  return memory;
}

void device_free(void *memory) {
  size_t bytes = memories.at(memory).bytes;
  memories.erase(memory);
  if (is_guarding()) munmap(memory, bytes);
  else free(memory);
}

cudaError_t allocated(void **to, void *memory) {
  if (!memory) return cudaErrorMemoryAllocation;
  emulated_live++;
  *to = memory;
  return cudaSuccess;
}

/* ---- streams ------------------------------------------------ */

/* One recording of an event. */
struct mark {
  bool passed = false;
};

struct operation {
  std::function<void()> run;
  std::shared_ptr<mark> wait;  /* runs after this has passed */
  std::function<bool()> ready; /* nor before this returns true */
  std::shared_ptr<mark> passes;
};

} // namespace

struct emulated_graph {
  std::vector<std::function<void()>> operations;
};

struct emulated_exec {
  std::vector<std::function<void()>> operations;
};

struct emulated_stream {
  int device;
  std::deque<operation> operations;
  emulated_graph *captured; /* NULL if not captured */
};

struct emulated_event {
  std::shared_ptr<mark> recorded;
};

namespace {

emulated_stream legacy = {HOST, {}, NULL};
std::vector<emulated_stream *> streams = {&legacy};
thread_local emulated_stream *capturing; /* by this thread */

/* Operations that may wait for a device cannot be part of a graph. */
void forbid_in_capture(const char *what) {
  REQUIRE(!capturing, "%s while a stream is captured", what);
}

void forbid_capture_of(const emulated_stream *s, const char *what) {
  REQUIRE(!s->captured, "%s a stream that is captured", what);
}

std::map<const void *, size_t> allowed; /* bytes of shared memory, where raised */

uint64_t seed_by_environment() {
  const char *text = getenv("SLUICE_EMULATED_SEED");
  return 88172645463325252u ^ (text ? strtoull(text, NULL, 10) << 20 : 0);
}

uint64_t state = seed_by_environment();

/* A failed device does not recover: no later operation completes. */
bool has_failed(bool records) {
  static const char *text = getenv("SLUICE_EMULATED_BROKEN");
  static long left = text ? atol(text) : 0;
  if (!text) return false;
  left -= records;
  return left <= 0;
}

uint64_t draw(uint64_t below) { /* xorshift64 */
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state % below;
}

bool can_go(const emulated_stream *s) {
  if (s->operations.empty()) return false;
  const operation &first = s->operations.front();
  if (first.ready) act_as(HOST); /* it moves data between processes */
  return (!first.wait || first.wait->passed) && (!first.ready || first.ready());
}

/* Returns whether a stream waits for another process. */
bool waits_for_others() {
  for (emulated_stream *s : streams)
    if (!s->operations.empty() && s->operations.front().ready) return true;
  return false;
}

/* Runs the next operation of a randomly drawn stream that can continue. */
bool advance() {
  std::vector<emulated_stream *> ready;
  for (emulated_stream *s : streams)
    if (can_go(s)) ready.push_back(s);
  if (ready.empty()) return false;
  emulated_stream *s = ready[draw(ready.size())];
  operation next = std::move(s->operations.front());
  s->operations.pop_front();
  if (next.run) act_as(s->device), next.run();
  if (next.passes) next.passes->passed = true;
  return true;
}

template <typename F> void run_until(F done) {
  touch now;
  for (int tries = 0; !done();) {
    if (advance()) continue;
    REQUIRE(waits_for_others() && tries++ < 300000, "a stream waits for what never comes");
    usleep(100);
  }
}

void finish(emulated_stream *s) {
  run_until([s] { return s->operations.empty(); });
}

void finish_all() {
  run_until([] {
    for (emulated_stream *s : streams)
      if (!s->operations.empty()) return false;
    return true;
  });
}

} // namespace

void emulated_enqueue(cudaStream_t stream, std::function<void()> run) {
  lock l(device);
  REQUIRE(stream, "something is launched without a stream");
  REQUIRE(!stream->captured || stream == capturing, "another thread captures this stream");
  if (stream->captured) stream->captured->operations.push_back(std::move(run));
  else stream->operations.push_back({std::move(run), NULL, NULL, NULL});
}

void emulated_enqueue_when(cudaStream_t stream, std::function<bool()> ready) {
  lock l(device);
  forbid_capture_of(stream, "another process is waited for in");
  stream->operations.push_back({NULL, NULL, std::move(ready), NULL});
}

int emulated_has_failed(void) {
  lock l(device);
  bool failed = has_failed(false);
  if (failed) remember(cudaErrorIllegalAddress);
  return failed;
}

uint64_t emulated_draw(uint64_t below) {
  lock l(device);
  return draw(below);
}

void emulated_call(cudaStream_t stream, void (*run)(void *), const void *arg, size_t bytes) {
  std::vector<char> kept((const char *)arg, (const char *)arg + bytes);
  emulated_enqueue(stream, [=]() mutable { run(kept.data()); });
}

size_t emulated_shared_bytes(const void *kernel) {
  lock l(device);
  return allowed.count(kernel) ? allowed[kernel] : 48 << 10;
}

/* ---- devices ------------------------------------------------ */

const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
  case cudaSuccess: return "no error";
  case cudaErrorMemoryAllocation: return "out of memory";
  case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient";
  case cudaErrorNoDevice: return "no CUDA-capable device is detected";
  case cudaErrorInvalidDevice: return "invalid device ordinal";
  case cudaErrorPeerAccessUnsupported: return "peer access is not supported between these two";
  case cudaErrorPeerAccessAlreadyEnabled: return "peer access is already enabled";
  case cudaErrorNotReady: return "device not ready";
  case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
  case cudaErrorStreamCaptureUnsupported: return "operation not permitted when capturing";
  default: return "invalid argument";
  }
}

const char *cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }

cudaError_t cudaGetLastError(void) {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

static bool exists(int number) { return number >= 0 && number < emulated_devices; }

cudaError_t cudaGetDeviceCount(int *count) {
  *count = emulated_devices > 0 ? emulated_devices : 0;
  if (emulated_devices < 0) return remember(cudaErrorInsufficientDriver);
  return remember(emulated_devices ? cudaSuccess : cudaErrorNoDevice);
}

/* SLUICE_EMULATED_MAJOR sets the generation of the devices; the default is Hopper. */
static int generation() {
  const char *wanted = getenv("SLUICE_EMULATED_MAJOR");
  return wanted ? atoi(wanted) : 9;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int number) {
  if (!exists(number)) return cudaErrorInvalidValue;
  *properties = cudaDeviceProp();
  snprintf(properties->name, sizeof properties->name, "Emulated %d", number);
  properties->totalGlobalMem = (size_t)1 << 32;
  properties->sharedMemPerBlockOptin = 227 << 10;
  properties->major = generation();
  properties->multiProcessorCount = 64;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int number) {
  snprintf(id, (size_t)length, "0000:%02x:00.0", number + 1);
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) {
  return *version = emulated_devices < 0 ? 0 : 13000, cudaSuccess;
}
cudaError_t cudaSetDevice(int number) {
  if (!exists(number)) return cudaErrorInvalidValue;
  current_device = number;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr, int) {
  return *value = generation(), cudaSuccess;
}

cudaError_t cudaGetDevice(int *number) { return *number = current_device, cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int *can, int number, int peer) {
  if (!exists(number) || !exists(peer)) return remember(cudaErrorInvalidDevice);
  return *can = can_reach(number, peer), cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  lock l(device);
  if (!exists(peer)) return remember(cudaErrorInvalidDevice);
  if (!can_reach(current_device, peer)) return remember(cudaErrorPeerAccessUnsupported);
  bool is_new = reached.insert({current_device, peer}).second;
  return remember(is_new ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  const char *text = getenv("SLUICE_EMULATED_FREE");
  *free_bytes = text ? strtoull(text, NULL, 10) : (size_t)3 << 30;
  *total_bytes = (size_t)1 << 32;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
  lock l(device);
  forbid_in_capture("the device is waited for");
  finish_all();
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute, int value) {
  lock l(device);
  if (value > 227 << 10) return cudaErrorInvalidValue;
  allowed[kernel] = (size_t)value;
  return cudaSuccess;
}

/* ---- functions for memory ---------------------------------------------------- */

cudaError_t cudaMalloc(void **memory, size_t bytes) {
  lock l(device);
  forbid_in_capture("memory is made");
  if (bytes > (size_t)1 << 40) return remember(cudaErrorMemoryAllocation);
  return remember(allocated(memory, device_allocate(bytes)));
}

cudaError_t cudaFree(void *memory) {
  lock l(device);
  forbid_in_capture("memory is given back");
  finish_all();
  if (!memory) return cudaSuccess;
  emulated_live--;
  device_free(memory);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned) {
  lock l(device);
  forbid_in_capture("memory is made");
  if (bytes > (size_t)1 << 40) return remember(cudaErrorMemoryAllocation);
  return remember(allocated(memory, aligned_alloc(256, (bytes + 256) / 256 * 256)));
}

cudaError_t cudaFreeHost(void *memory) {
  lock l(device);
  forbid_in_capture("memory is given back");
  emulated_live -= memory != NULL;
  free(memory);
  return cudaSuccess;
}

/* Data that the host reads is complete on return. Data that it writes has been read by then but may
 * be in flight, and the host does not wait for copies between devices. No other stream waits, nor
 * is waited for. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind) {
  lock l(device);
  forbid_in_capture("memory is copied");
  touch now;
  if (owner(to) == HOST) {
    finish(&legacy);
    act_as(HOST);
    memcpy(to, from, bytes);
  } else if (owner(from) == HOST) {
    std::vector<char> read((const char *)from, (const char *)from + bytes);
    emulated_enqueue(&legacy, [=] { memcpy(to, read.data(), bytes); });
  } else {
    emulated_enqueue(&legacy, [=] { memcpy(to, from, bytes); });
  }
  return cudaSuccess;
}

/* Sets memory. Whole pages of zeros are given back to the system, which clears them when they are
 * next touched: most of a large workspace never is, and guarding costs time by resident page. */
static void fill(void *to, int value, size_t bytes) {
  char *end = (char *)to + bytes;
  char *pages = (char *)(((uintptr_t)to + PAGE - 1) / PAGE * PAGE);
  size_t whole = pages < end ? (size_t)(end - pages) / PAGE * PAGE : 0;
  if (value || whole < LARGE || madvise(pages, whole, MADV_DONTNEED)) {
    memset(to, value, bytes);
    return;
  }
  memset(to, 0, (size_t)(pages - (char *)to));
  memset(pages + whole, 0, (size_t)(end - pages) - whole);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
  lock l(device);
  forbid_in_capture("memory is set");
  emulated_enqueue(&legacy, [=] { fill(to, value, bytes); });
  return cudaSuccess;
}

/* A copy may access memory that a kernel may not. */
static void enqueue_copy(cudaStream_t stream, const void *to, const void *from,
                         std::function<void()> copy) {
  lock l(device);
  int there = owner(to), here = owner(from);
  bool between = there != HOST && here != HOST && here != there;
  bool straight = reaches(here, there) && reaches(there, here);
  REQUIRE(!between || straight || !can_reach(here, there),
          "what is copied from GPU %d to GPU %d goes through the host", here, there);
  emulated_enqueue(stream, [=] {
    if (between) act_as(HOST);
    copy();
  });
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind,
                            cudaStream_t stream) {
  enqueue_copy(stream, to, from, [=] { memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind,
                              cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidValue;
  enqueue_copy(stream, to, from, [=] {
    for (size_t row = 0; row < height; row++)
      memcpy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
  });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
  emulated_enqueue(stream, [=] { fill(to, value, bytes); });
  return cudaSuccess;
}

/* ---- functions for streams and events ---------------------------------------------- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int) {
  lock l(device);
  emulated_live++;
  *stream = new emulated_stream{current_device, {}, NULL};
  streams.push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  lock l(device);
  forbid_capture_of(stream, "there ends");
  finish(stream);
  for (size_t i = 0; i < streams.size(); i++)
    if (streams[i] == stream) streams.erase(streams.begin() + (ptrdiff_t)i--);
  emulated_live--;
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  lock l(device);
  forbid_in_capture("a stream is waited for");
  finish(stream == cudaStreamLegacy ? &legacy : stream);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  lock l(device);
  forbid_capture_of(stream, "an event is waited for in");
  if (event->recorded) stream->operations.push_back({NULL, event->recorded, NULL, NULL});
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  lock l(device);
  emulated_live++;
  *event = new emulated_event;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  lock l(device);
  emulated_live--;
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  lock l(device);
  forbid_capture_of(stream, "an event is recorded in");
  if (has_failed(true)) return remember(cudaErrorIllegalAddress);
  event->recorded.reset(new mark);
  stream->operations.push_back({NULL, NULL, NULL, event->recorded});
  return cudaSuccess;
}

/* A query takes the device as long as one to eight operations. */
cudaError_t cudaEventQuery(cudaEvent_t event) {
  lock l(device);
  forbid_in_capture("an event is asked for");
  if (has_failed(false)) return remember(cudaErrorIllegalAddress);
  bool passed = !event->recorded || event->recorded->passed;
  touch now;
  for (uint64_t n = 1 + draw(8); n-- && advance();) {}
  return remember(passed ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  lock l(device);
  forbid_in_capture("an event is waited for");
  run_until([event] { return !event->recorded || event->recorded->passed; });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
  lock l(device);
  for (cudaEvent_t e : {from, to}) {
    if (!e->recorded) return remember(cudaErrorInvalidValue);
    if (!e->recorded->passed) return remember(cudaErrorNotReady);
  }
  return *ms = 0.001f, cudaSuccess;
}

/* ---- functions for graphs ---------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode) {
  lock l(device);
  forbid_in_capture("a capture begins");
  forbid_capture_of(stream, "a capture begins of");
  stream->captured = new emulated_graph;
  capturing = stream;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  lock l(device);
  REQUIRE(stream == capturing, "a capture ends that this thread has not begun");
  emulated_graph *made = stream->captured;
  stream->captured = NULL;
  capturing = NULL;
  *graph = NULL;
  if (emulated_bad_captures && emulated_bad_captures--) {
    delete made;
    return remember(cudaErrorStreamCaptureUnsupported);
  }
  emulated_live++;
  *graph = made;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  lock l(device);
  emulated_live--;
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
  lock l(device);
  forbid_in_capture("a graph is made ready");
  emulated_live++;
  *exec = new emulated_exec{graph->operations};
  return cudaSuccess;
}

/* Destroys a graph; a running one completes, since its operations are in the stream. */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  lock l(device);
  emulated_live--;
  delete exec;
  return cudaSuccess;
}

/* With emulated_full the device has no memory for the graph. */
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream) {
  lock l(device);
  forbid_capture_of(stream, "a graph is brought up in");
  if (!emulated_full) return cudaSuccess;
  emulated_full--;
  return remember(cudaErrorMemoryAllocation);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  lock l(device);
  forbid_capture_of(stream, "a graph is launched in");
  for (auto &run : exec->operations) emulated_enqueue(stream, run);
  return cudaSuccess;
}
