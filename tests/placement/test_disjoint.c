/* SPDX-License-Identifier: Apache-2.0 */
/* On any machine, devices get separate cores while there are enough, none of them twice, numbered
 * along the machine, and no more devices than necessary span NUMA nodes.
 * labels: random unthreaded */
#include <stdint.h>
#include <string.h>

#include <sluice/placement.h>

#include "tests/support/seeds.h"
#include "tests/support/test.h"

static uint64_t seed = 20240611;
static int draw(int low, int high) { /* in [low, high] */
  seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return low + (int)((seed >> 33) % (uint64_t)(high - low + 1));
}

/* Draws a random tree: packages, nodes, L3s, L2s, cores, hardware threads. */
static void draw_machine(char *text, size_t size) {
  snprintf(text, size, "pack:%d node:%d l3:%d l2:%d core:%d pu:%d", draw(1, 3), draw(1, 3),
           draw(1, 3), draw(1, 2), draw(1, 4), draw(1, 2));
}

/* Returns how many devices must span nodes: those beyond what the nodes can hold whole. */
static int unavoidable(const sl_machine *machine, int devices, int threads) {
  int cores = sl_machine_cores(machine), whole = 0;
  for (int i = 0, run = 0; i < cores; i++) {
    run++;
    if (i + 1 == cores || sl_machine_node(machine, i + 1) != sl_machine_node(machine, i)) {
      whole += run / threads;
      run = 0;
    }
  }
  return devices > whole ? devices - whole : 0;
}

static void check(const char *text, const sl_machine *machine, int devices, int threads) {
  sl_placement *placement;
  CHECK(!sl_placement_create(machine, devices, threads, &placement), "%s: %s", text, sl_detail());
  int cores = sl_machine_cores(machine), used[1024] = {0}, across = 0, before = -1;
  for (int d = 0; d < devices; d++) {
    int first = sl_placement_core(placement, d, 0);
    bool apart = false;
    for (int t = 0; t < threads; t++) {
      int core = sl_placement_core(placement, d, t);
      CHECK(core >= 0 && core < cores, "%s: device %d is on core %d of %d", text, d, core, cores);
      used[core]++;
      apart |= sl_machine_node(machine, core) != sl_machine_node(machine, first);
    }
    across += apart;
    if (!sl_placement_shared(placement))
      CHECK(first > before, "%s, %dx%d: device %d lies before its predecessor", text, devices,
            threads, d);
    before = first;
  }
  bool enough = devices * threads <= cores;
  CHECK(sl_placement_shared(placement) == !enough, "%s: %d threads on %d cores are%s shared", text,
        devices * threads, cores, enough ? "" : " not");
  int most = 0, least = 1 << 30;
  for (int i = 0; i < cores; i++) {
    if (used[i] > most) most = used[i];
    if (used[i] < least) least = used[i];
  }
  if (enough) {
    CHECK(most == 1, "%s, %dx%d: a core has two threads", text, devices, threads);
    CHECK(across == unavoidable(machine, devices, threads),
          "%s, %dx%d: %d devices lie across nodes, %d must", text, devices, threads, across,
          unavoidable(machine, devices, threads));
  } else {
    CHECK(most - least <= 1, "%s, %dx%d: cores have between %d and %d threads", text, devices,
          threads, least, most);
  }
  sl_placement_destroy(placement);
}

int main(void) {
  for (uint64_t round = 0; round < 300 * seeds_times(); round++) {
    char text[128];
    draw_machine(text, sizeof text);
    sl_machine *machine;
    CHECK(!sl_machine_create(text, &machine), "%s", sl_detail());
    int cores = sl_machine_cores(machine);
    for (int i = 0; i < 20; i++) {
      int threads = draw(1, cores);
      RUN(check, text, machine, draw(1, cores / threads), threads); /* fits */
    }
    RUN(check, text, machine, draw(1, 2 * cores), draw(1, 8)); /* may not fit */
    sl_machine_destroy(machine);
  }
  return 0;
}
