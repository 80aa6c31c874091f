/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on fibers; see cuda_runtime.h. */
#include "tests/emulated/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <memory>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

int emulated_backwards;
dim3 emulated_thread, emulated_block, emulated_block_size, emulated_grid;
unsigned char *emulated_shared;
static size_t emulated_shared_size;

/* ---- changing stacks --------------------------------------------------------------------
 *
 * swapcontext() makes a system call each time, which would dominate the run time. Where possible, a
 * few saved registers replace it. */

#if defined(__x86_64__)
struct context {
  void *sp;
};
extern "C" void emulated_switch(void **from, void *to);
asm(".text\n"
    ".type emulated_switch, @function\n"
    "emulated_switch:\n"
    "  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
    "  mov %rsp, (%rdi)\n"
    "  mov %rsi, %rsp\n"
    "  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp\n"
    "  ret\n"
    ".size emulated_switch, . - emulated_switch\n");

static void change(context *from, context *to) { emulated_switch(&from->sp, to->sp); }

/* Prepares a stack: the first switch pops six registers and returns into `main`, which finds the
 * stack as after a call. */
static void begin_at(context *c, void *stack, size_t bytes, void (*main)()) {
  void **top = (void **)((char *)stack + bytes) - 1;
  *--top = (void *)main;
  c->sp = top - 6;
  memset(c->sp, 0, 6 * sizeof *top);
}
#else
typedef ucontext_t context;
static void change(context *from, context *to) { swapcontext(from, to); }
static void begin_at(context *c, void *stack, size_t bytes, void (*main)()) {
  getcontext(c);
  c->uc_stack.ss_sp = stack;
  c->uc_stack.ss_size = bytes;
  c->uc_link = NULL;
  makecontext(c, main, 0);
}
#endif

/* ---- fibers ---------------------------------------------------------------------------
 *
 * A fiber at a barrier waits until all running threads of its block or warp have arrived. The
 * threads of a warp run in turn, each switching to the next that can continue; the last one of a
 * round switches to the scheduler, which starts the next round. A thread that ends without waiting
 * leaves its stack to the next one, so threads of kernels without barriers are calls in a loop. */

namespace {

enum { STACK_BYTES = 128 << 10, LANE_BYTES = 64, WARP = 32 };

/* A pending cp.async. */
struct copy {
  void *to;
  const void *from;
  int bytes;
  bool there;
  unsigned group;
};

struct fiber {
  ::context context;
  std::unique_ptr<char[]> stack;
  enum { NEW, READY, AT_WARP, AT_BLOCK, DONE } state;
  unsigned exchanges; /* number of exchanges of its warp */
  unsigned groups;    /* number of copy groups it has committed */
  std::vector<copy> copies;
};

std::vector<fiber> fibers; /* reused by later launches */
context scheduler;
int running, threads;
const std::function<void()> *body;
std::vector<unsigned char> lanes;

#if defined(__SANITIZE_ADDRESS__)
const void *scheduler_stack;
size_t scheduler_bytes;
void leave(void **fake, const void *stack, size_t bytes) {
  __sanitizer_start_switch_fiber(fake, stack, bytes);
}
void arrive(void *fake, const void **stack, size_t *bytes) {
  __sanitizer_finish_switch_fiber(fake, stack, bytes);
}
/* The last fiber on this stack ended without returning from its first functions. */
void forget_frames(void *stack) {
  __asan_unpoison_memory_region((char *)stack + STACK_BYTES - 4096, 4096);
}
#else
const void *scheduler_stack;
size_t scheduler_bytes;
void leave(void **, const void *, size_t) {}
void arrive(void *, const void **, size_t *) {}
void forget_frames(void *) {}
#endif

bool from_scheduler; /* the scheduler made the last switch */

/* Completes a switch, in the fiber that it led to. */
void arrive_in_fiber(void *fake) {
  if (from_scheduler) arrive(fake, &scheduler_stack, &scheduler_bytes);
  else arrive(fake, NULL, NULL);
}

void fiber_main();

/* Gives a fiber a stack, unless it has one from an earlier block. */
void start(fiber &f) {
  if (!f.stack) f.stack.reset(new char[STACK_BYTES]);
  forget_frames(f.stack.get());
  begin_at(&f.context, f.stack.get(), STACK_BYTES, fiber_main);
  f.state = fiber::READY;
}

void run_as(int i) {
  running = i;
  emulated_thread = dim3((unsigned)i, 0, 0);
}

/* Switches from `from` to fiber i; fake is NULL if it never returns. */
void change_to_fiber(context *from, void **fake, int i) {
  fiber &f = fibers[i];
  if (f.state == fiber::NEW) start(f);
  run_as(i);
  leave(fake, f.stack.get(), STACK_BYTES);
  change(from, &f.context);
}

bool can_run(const fiber &f) { return f.state == fiber::NEW || f.state == fiber::READY; }

/* Returns the next fiber of the running one's warp that can continue in this round, or -1. */
int next_in_round() {
  int begin = running / WARP * WARP, end = begin + WARP < threads ? begin + WARP : threads;
  int step = emulated_backwards ? -1 : 1;
  for (int i = running + step; i >= begin && i < end; i += step)
    if (can_run(fibers[i])) return i;
  return -1;
}

/* Switches from the running fiber to the next of this round. */
void pass_on(void **fake) {
  fiber &f = fibers[running];
  int next = next_in_round();
  from_scheduler = false;
  if (next >= 0) {
    change_to_fiber(&f.context, fake, next);
  } else {
    leave(fake, scheduler_stack, scheduler_bytes);
    change(&f.context, &scheduler);
  }
}

void wait_in(int state) {
  void *kept = NULL;
  fibers[running].state = (decltype(fiber::state))state;
  pass_on(&kept);
  arrive_in_fiber(kept);
}

void fiber_main() {
  arrive_in_fiber(NULL);
  for (;;) {
    (*body)();
    fibers[running].state = fiber::DONE;
    int next = next_in_round();
    if (next < 0 || fibers[next].state != fiber::NEW) break;
    std::swap(fibers[running].stack, fibers[next].stack);
    fibers[next].state = fiber::READY;
    run_as(next);
  }
  pass_on(NULL);
}

void resume(int i) {
  void *fake = NULL;
  from_scheduler = true;
  change_to_fiber(&scheduler, &fake, i);
  arrive(fake, NULL, NULL);
}

/* Returns whether threads begin..end-1 all wait in this state, or are done. */
bool have_come(int begin, int end, int state) {
  for (int i = begin; i < end; i++)
    if (fibers[i].state != state && fibers[i].state != fiber::DONE) return false;
  return true;
}

bool let_go(int begin, int end, int state) {
  bool any = false;
  if (!have_come(begin, end, state)) return false;
  for (int i = begin; i < end; i++)
    if (fibers[i].state == state) fibers[i].state = fiber::READY, any = true;
  return any;
}

/* Runs one round of a warp: all its threads up to their next wait. */
bool run_warp(int begin, int end) {
  bool any = false;
  for (int k = begin; k < end && !any; k++) {
    int i = emulated_backwards ? begin + end - 1 - k : k;
    if (can_run(fibers[i])) resume(i), any = true;
  }
  return let_go(begin, end, fiber::AT_WARP) || any;
}

void run_block() {
  for (int i = 0; i < threads; i++) {
    fiber &f = fibers[i];
    f.state = fiber::NEW;
    f.exchanges = f.groups = 0;
    f.copies.clear();
  }
  for (;;) {
    bool any = false;
    int warps = (threads + WARP - 1) / WARP;
    for (int k = 0; k < warps; k++) {
      int w = emulated_backwards ? warps - 1 - k : k, end = (w + 1) * WARP;
      while (run_warp(w * WARP, end < threads ? end : threads)) any = true;
    }
    if (have_come(0, threads, fiber::DONE)) return;
    REQUIRE(let_go(0, threads, fiber::AT_BLOCK) || any,
            "the threads of a block wait for each other at different places");
  }
}

} // namespace

void emulated_barrier() { wait_in(fiber::AT_BLOCK); }

/* Returns where thread k stores its data for exchange number n. Two places alternate, so that a
 * late reader still finds its data when others store for the next exchange. */
static void *place(int k, unsigned n) { return &lanes[((size_t)k * 2 + n % 2) * LANE_BYTES]; }

const void *emulated_exchange(const void *mine, size_t bytes) {
  unsigned n = fibers[running].exchanges++;
  memcpy(place(running, n), mine, bytes);
  wait_in(fiber::AT_WARP);
  return place(running / WARP * WARP, n);
}

/* Runs all threads of all blocks, block after block. */
static void run_grid(const cudaLaunchConfig_t &config, const std::function<void()> &run) {
  dim3 g = config.gridDim;
  threads = (int)config.blockDim.x;
  if ((int)fibers.size() < threads) fibers.resize((size_t)threads);
  lanes.resize((size_t)(threads + WARP) * 2 * LANE_BYTES);
  emulated_shared = (unsigned char *)aligned_alloc(
      16, (config.dynamicSmemBytes + 15) / 16 * 16 + (config.dynamicSmemBytes ? 0 : 16));
  emulated_shared_size = config.dynamicSmemBytes;
  emulated_block_size = config.blockDim;
  emulated_grid = g;
  body = &run;
  for (unsigned z = 0; z < g.z; z++)
    for (unsigned y = 0; y < g.y; y++)
      for (unsigned x = 0; x < g.x; x++) {
        emulated_block = dim3(x, y, z);
        memset(emulated_shared, 0xff, config.dynamicSmemBytes);
        run_block();
      }
  free(emulated_shared);
}

void emulated_launch(const cudaLaunchConfig_t *config, const void *kernel,
                     const std::function<void()> &run) {
  dim3 g = config->gridDim, block = config->blockDim;
  size_t most = emulated_shared_bytes(kernel);
  REQUIRE(block.x >= 1 && block.x <= 1024, "a block of %u threads", block.x);
  REQUIRE(g.x >= 1 && g.x <= 0x7fffffffu && g.y >= 1 && g.y <= 65535 && g.z >= 1 && g.z <= 65535,
          "a grid of %u x %u x %u", g.x, g.y, g.z);
  REQUIRE(config->dynamicSmemBytes <= most, "a kernel gets %zu bytes of shared memory, not %zu",
          most, config->dynamicSmemBytes);
  cudaLaunchConfig_t kept = *config;
  emulated_enqueue(config->stream, [kept, run] { run_grid(kept, run); });
}

/* ---- operations of a warp or a block ----------------------------------------------------- */

bool __syncthreads_or(bool here) {
  static bool any;
  emulated_barrier(); /* all have read the last one */
  any = false;
  emulated_barrier();
  any |= here;
  emulated_barrier();
  return any;
}

unsigned __ballot_sync(unsigned, bool here) {
  const void *all = emulated_exchange(&here, sizeof here);
  unsigned bits = 0;
  for (int k = 0; k < WARP; k++) bits |= (unsigned)*(const bool *)emulated_of_lane(all, k) << k;
  return bits;
}

void emulated_copy_async(void *to, const void *from, int bytes, bool there) {
  fiber &f = fibers[running];
  REQUIRE(((uintptr_t)to | (uintptr_t)from) % bytes == 0, "cp.async of %d bytes to %p from %p",
          bytes, to, from);
  f.copies.push_back({to, from, bytes, there, f.groups});
  memset(to, 0xff, bytes);
}

void emulated_commit_copies() { fibers[running].groups++; }

void emulated_wait_copies(unsigned newest) {
  fiber &f = fibers[running];
  size_t n = 0;
  for (; n < f.copies.size() && f.copies[n].group + newest < f.groups; n++) {
    const copy &c = f.copies[n];
    if (c.there) memcpy(c.to, c.from, c.bytes);
    else memset(c.to, 0, c.bytes);
  }
  f.copies.erase(f.copies.begin(), f.copies.begin() + n);
}

void emulated_ldmatrix(uint32_t (&to)[4], const void *row, bool transposed) {
  REQUIRE((uintptr_t)row % 16 == 0, "ldmatrix of a row at %p", row);
  int g = (int)(threadIdx.x % WARP / 4), t = (int)(threadIdx.x % 4);
  const void *all = emulated_exchange(row, 16);
  for (int j = 0; j < 4; j++)
    for (int half = 0; half < 2; half++) {
      int r = transposed ? 2 * t + half : g, c = transposed ? g : 2 * t + half;
      uint32_t x = ((const uint16_t *)emulated_of_lane(all, 8 * j + r))[c];
      to[j] = half ? to[j] | x << 16 : x;
    }
}

uint32_t emulated_round_tf32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (bits + 0x1000) & ~0x1fffu; /* to nearest, ties away from zero */
}

namespace {

/* A lane's share of the operands: of rows g and g + 8 of A and column g of B, g = lane / 4, at K
 * positions of the inner dimension. These positions are the same for A and B, so a sum over the
 * four lanes of a group is the product (PTX ISA, "Matrix fragments for mma.m16n8k16" and "...
 * m16n8k8"). */
template <int K> struct operands { float a[2][K], b[K]; };

/* By far the hottest code, so sanitizers skip it. */
#if defined(__clang__)
#define BUSY __attribute__((no_sanitize("address", "undefined")))
#else
#define BUSY __attribute__((no_sanitize("address", "undefined"), optimize("O3")))
#endif
template <int K> BUSY void mma(float (&d)[4], const operands<K> &mine) {
  int lane = (int)(threadIdx.x % WARP);
  auto all = (const char *)emulated_exchange(&mine, sizeof mine);
  for (int column = 0; column < 2; column++)
    for (int t = 0; t < 4; t++) {
      auto left = (const operands<K> *)(all + (lane / 4 * 4 + t) * 2 * LANE_BYTES);
      auto right = (const operands<K> *)(all + ((lane % 4 * 2 + column) * 4 + t) * 2 * LANE_BYTES);
      for (int half = 0; half < 2; half++)
        for (int k = 0; k < K; k++) d[half * 2 + column] += left->a[half][k] * right->b[k];
    }
}

float upper(uint32_t bits) { return __uint_as_float(bits & 0xffff0000u); }
float lower(uint32_t bits) { return __uint_as_float(bits << 16); }
float tf32(uint32_t bits) { return __uint_as_float(bits & ~0x1fffu); }

} // namespace

/* Registers 0 and 2 of A belong to row g, 1 and 3 to row g + 8; each holds two values. */
void emulated_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  mma<4>(d, {{{lower(a[0]), upper(a[0]), lower(a[2]), upper(a[2])},
              {lower(a[1]), upper(a[1]), lower(a[3]), upper(a[3])}},
             {lower(b[0]), upper(b[0]), lower(b[1]), upper(b[1])}});
}

void emulated_mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  mma<2>(d, {{{tf32(a[0]), tf32(a[2])}, {tf32(a[1]), tf32(a[3])}}, {tf32(b[0]), tf32(b[1])}});
}

/* ---- products of a warpgroup --------------------------------------------------------------- */

namespace {

/* A tile in shared memory that an operand's descriptor names, in the only swizzle used here (PTX
 * ISA, "Strides", "Shared memory layouts"). Bits 7 to 9 of an address are XORed into bits 4 to
 * 6. */
struct tile {
  uint32_t at, step;

  explicit tile(uint64_t desc)
      : at((uint32_t)(desc & 0x3fff) << 4), step((uint32_t)(desc >> 32 & 0x3fff) << 4) {
    REQUIRE(desc >> 62 == 1 && (desc >> 49 & 7) == 0, "wgmma: descriptor %llx",
            (unsigned long long)desc);
  }
  /* Returns element c of row r, which has 64 elements. */
  __attribute__((always_inline, no_sanitize("address", "undefined"))) float get(int r,
                                                                                int c) const {
    uint32_t place = at + (uint32_t)r / 8 * step + (uint32_t)r % 8 * 128 + (uint32_t)c * 2;
    place ^= (place >> 7 & 7) << 4;
    REQUIRE(place + 2 <= emulated_shared_size, "wgmma: reads byte %u of %zu", place,
            emulated_shared_size);
    return __uint_as_float((uint32_t) * (const uint16_t *)(emulated_shared + place) << 16);
  }
};

enum { DEPTH = 16 };

/* Loads rows g and g + 8 of the warp's part of A, g = lane / 4. */
void left_rows(float (&left)[2][DEPTH], const uint32_t *a, uint64_t a_desc) {
  int lane = (int)(threadIdx.x % WARP), first = (int)(threadIdx.x / WARP % 4) * 16 + lane / 4;
  if (a) {
    auto all = (const char *)emulated_exchange(a, 4 * sizeof *a);
    for (int t = 0; t < 4; t++) {
      auto r = (const uint32_t *)emulated_of_lane(all, lane / 4 * 4 + t);
      for (int i = 0; i < 4; i++)
        for (int half = 0; half < 2; half++)
          left[i % 2][i / 2 * 8 + 2 * t + half] = half ? upper(r[i]) : lower(r[i]);
    }
    return;
  }
  tile of(a_desc);
  for (int half = 0; half < 2; half++)
    for (int k = 0; k < DEPTH; k++) left[half][k] = of.get(first + half * 8, k);
}

} // namespace

/* As hot as mma() above. */
__attribute__((no_sanitize("address", "undefined"))) void emulated_wgmma(
    float (*d)[4], int columns, const uint32_t *a, uint64_t a_desc, uint64_t b_desc, bool add) {
  float left[2][DEPTH], right[DEPTH];
  tile b(b_desc);
  left_rows(left, a, a_desc);
  for (int n = 0; n < columns; n++)
    for (int column = 0; column < 2; column++) {
      int c = n * 8 + (int)threadIdx.x % 4 * 2 + column;
      for (int k = 0; k < DEPTH; k++) right[k] = a ? b.get(k, c) : b.get(c, k);
      for (int half = 0; half < 2; half++) {
        float sum = add ? d[n][half * 2 + column] : 0;
        for (int k = 0; k < DEPTH; k++) sum += left[half][k] * right[k];
        d[n][half * 2 + column] = sum;
      }
    }
}
