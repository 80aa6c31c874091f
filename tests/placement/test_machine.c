/* SPDX-License-Identifier: Apache-2.0 */
/* Placement on known machines: where devices go, what is printed, and what is refused. The
 * process's affinity mask is respected, and threads are bound.
 * labels: unthreaded smoke */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sluice/placement.h>

#include "tests/support/test.h"

static sl_machine *machine_of(const char *text) {
  sl_machine *machine;
  CHECK(!sl_machine_create(text, &machine), "%s", sl_detail());
  return machine;
}

/* Checks the cores of a placement, written as "0,1 2,3". */
static void check_cores(const char *text, int devices, int threads, const char *expected) {
  sl_machine *machine = machine_of(text);
  sl_placement *placement;
  CHECK(!sl_placement_create(machine, devices, threads, &placement), "%s", sl_detail());
  char got[256] = "";
  for (int d = 0; d < devices; d++)
    for (int t = 0; t < threads; t++)
      snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d",
               t   ? ","
               : d ? " "
                   : "",
               sl_placement_core(placement, d, t));
  CHECK(!strcmp(got, expected), "%s: %d devices of %d threads lie on %s, not on %s", text, devices,
        threads, got, expected);
  sl_placement_destroy(placement);
  sl_machine_destroy(machine);
}

static void devices_fill_a_cache_before_the_next(void) {
  check_cores("node:2 l3:1 core:4 pu:2", 4, 1, "0 1 2 3");
  check_cores("node:2 l3:1 core:4 pu:2", 4, 2, "0,1 2,3 4,5 6,7");
  check_cores("node:1 l3:2 core:3 pu:1", 2, 2, "0,1 3,4");
  check_cores("node:1 l3:2 core:3 pu:1", 3, 2, "0,1 2,5 3,4");
}

static void devices_stay_inside_a_node_if_they_can(void) {
  check_cores("node:2 core:3 pu:1", 2, 2, "0,1 3,4");
  check_cores("node:2 core:3 pu:1", 3, 2, "0,1 2,5 3,4");
  check_cores("node:3 core:2 pu:1", 2, 3, "0,1,2 3,4,5");
  check_cores("pack:2 node:2 core:3 pu:1", 4, 2, "0,1 3,4 6,7 9,10");
}

static void too_few_cores_are_handed_out_in_turn(void) {
  check_cores("core:2 pu:1", 4, 1, "0 1 0 1");
  check_cores("core:3 pu:2", 2, 2, "0,1 2,0");
  check_cores("core:1 pu:2", 2, 1, "0 0");
}

static void all_cores_are_shared_out_by_default(void) {
  static const struct {
    const char *text;
    int devices, threads;
  } rows[] = {{"core:8 pu:2", 1, 8},
              {"core:8 pu:2", 3, 2},
              {"core:2 pu:1", 4, 1},
              {"node:2 core:4 pu:1", 2, 4}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    sl_machine *machine = machine_of(rows[i].text);
    int threads = sl_placement_default(machine, rows[i].devices);
    CHECK(threads == rows[i].threads, "%s, %d devices: %d threads each", rows[i].text,
          rows[i].devices, threads);
    sl_machine_destroy(machine);
  }
}

static void check_print(const char *text, int devices, int threads, const char *expected) {
  sl_machine *machine = machine_of(text);
  sl_placement *placement;
  CHECK(!sl_placement_create(machine, devices, threads, &placement), "%s", sl_detail());
  char *got;
  size_t size;
  FILE *out = open_memstream(&got, &size);
  sl_placement_print(placement, out);
  fclose(out);
  CHECK(!strcmp(got, expected), "printed:\n%s\nexpected:\n%s", got, expected);
  free(got);
  sl_placement_destroy(placement);
  sl_machine_destroy(machine);
}

static void the_table_names_cores_nodes_caches_and_sharers(void) {
  check_print("node:2 l3:1(size=33554432) core:4 pu:2", 3, 2,
              "machine: 8 cores (16 hardware threads), 2 NUMA nodes\n"
              "device   threads  cores      cpus       node  caches\n"
              "cpu:0          2  0-1        0-3        0     L3 32.0 MiB with cpu:1\n"
              "cpu:1          2  2-3        4-7        0     L3 32.0 MiB with cpu:0\n"
              "cpu:2          2  4-5        8-11       1     L3 32.0 MiB\n"
              "note: 2 of 8 cores stay free\n");
  check_print("node:2 l3:1(size=33554432) core:3 pu:1", 3, 2,
              "machine: 6 cores (6 hardware threads), 2 NUMA nodes\n"
              "device   threads  cores      cpus       node  caches\n"
              "cpu:0          2  0-1        0-1        0     L3 32.0 MiB with cpu:1\n"
              "cpu:1          2  2,5        2,5        0-1   L3 2 x 32.0 MiB with cpu:0,2\n"
              "cpu:2          2  3-4        3-4        1     L3 32.0 MiB with cpu:1\n"
              "note: 1 device lies across NUMA nodes\n");
  check_print("core:2 pu:1", 3, 1,
              "machine: 2 cores (2 hardware threads), 1 NUMA node\n"
              "device   threads  cores      cpus       node  caches\n"
              "cpu:0          1  0-1        0-1        0     unknown\n"
              "cpu:1          1  0-1        0-1        0     unknown\n"
              "cpu:2          1  0-1        0-1        0     unknown\n"
              "note: 3 threads share 2 cores\n");
  check_print("node:2 core:1 pu:2", 3, 1,
              "machine: 2 cores (4 hardware threads), 2 NUMA nodes\n"
              "device   threads  cores      cpus       node  caches\n"
              "cpu:0          1  0          0-1        0     unknown\n"
              "cpu:1          1  1          2-3        1     unknown\n"
              "cpu:2          1  0          0-1        0     unknown\n"
              "note: 3 threads share 2 cores, each within its NUMA node\n");
}

static void check_refused(const char *text, const char *part) {
  sl_machine *machine = NULL;
  CHECK(sl_machine_create(text, &machine) == SL_E_INPUT && !machine, "'%s' was taken", text);
  CHECK(strstr(sl_detail(), text) && strstr(sl_detail(), part), "the message for '%s' is: %s", text,
        sl_detail());
}

static void wrong_machines_and_shapes_are_refused_by_name(void) {
  check_refused("core:two", "hwloc's notation");
  check_refused("/nonexistent/machine.xml", "No such file");
  char path[] = "sluice_machine_XXXXXX.xml";
  int fd = mkstemps(path, 4);
  CHECK(fd >= 0, "no temporary file");
  CHECK(write(fd, "<nothing/>\n", 11) == 11, "cannot write %s", path);
  close(fd);
  check_refused(path, path);
  unlink(path);
  sl_machine *machine = machine_of("core:2 pu:1");
  sl_placement *placement = NULL;
  CHECK(sl_placement_create(machine, 0, 1, &placement) == SL_E_USAGE, "0 devices were placed");
  CHECK(sl_placement_create(machine, 1, 0, &placement) == SL_E_USAGE, "0 threads were placed");
  CHECK(sl_placement_create(machine, 1 << 20, 1 << 20, &placement) == SL_E_USAGE,
        "2^40 threads were placed");
  CHECK(!placement, "a refused placement was handed out");
  sl_machine_destroy(machine);
  sl_machine_destroy(NULL);
  sl_placement_destroy(NULL);
}

/* Reads lstopo's output for a machine of two nodes with two cores each. */
static void an_exported_machine_is_read(void) {
  static const char text[] =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n"
      "<object type=\"Machine\" os_index=\"0\" cpuset=\"0xf\" complete_cpuset=\"0xf\" "
      "allowed_cpuset=\"0xf\" nodeset=\"0x3\" complete_nodeset=\"0x3\" allowed_nodeset=\"0x3\" "
      "gp_index=\"1\">\n"
#define SET(value) "cpuset=\"" value "\" complete_cpuset=\"" value "\" "
#define NODES(value) "nodeset=\"" value "\" complete_nodeset=\"" value "\" "
#define CORE(index, cpu, nodes, gp)                                                            \
  "<object type=\"Core\" os_index=\"" index "\" " SET(cpu)                                     \
      NODES(nodes) "gp_index=\"" gp "1\"><object type=\"PU\" os_index=\"" index "\" " SET(cpu) \
          NODES(nodes) "gp_index=\"" gp "2\"/></object>\n"
      "<object type=\"Package\" os_index=\"0\" " SET("0x3") NODES("0x1") "gp_index=\"2\">\n"
      "<object type=\"NUMANode\" os_index=\"0\" " SET("0x3") NODES("0x1") "gp_index=\"3\" "
      "local_memory=\"1073741824\"/>\n"
      CORE("0", "0x1", "0x1", "4") CORE("1", "0x2", "0x1", "5")
      "</object>\n"
      "<object type=\"Package\" os_index=\"1\" " SET("0xc") NODES("0x2") "gp_index=\"6\">\n"
      "<object type=\"NUMANode\" os_index=\"1\" " SET("0xc") NODES("0x2") "gp_index=\"7\" "
      "local_memory=\"1073741824\"/>\n"
      CORE("2", "0x4", "0x2", "8") CORE("3", "0x8", "0x2", "9")
      "</object>\n</object>\n</topology>\n";
  char path[] = "sluice_machine_XXXXXX.xml";
  int fd = mkstemps(path, 4);
  CHECK(fd >= 0, "no temporary file");
  CHECK(write(fd, text, sizeof text - 1) == (ssize_t)(sizeof text - 1), "cannot write %s", path);
  close(fd);
  sl_machine *machine = machine_of(path);
  unlink(path);
  CHECK(sl_machine_cores(machine) == 4, "it has %d cores", sl_machine_cores(machine));
  for (int core = 0; core < 4; core++)
    CHECK(sl_machine_node(machine, core) == core / 2, "core %d is on node %d", core,
          sl_machine_node(machine, core));
  sl_machine_destroy(machine);
}

static void *bind_and_report(void *arg) {
  static cpu_set_t mask; /* used by one thread at a time */
  sl_placement_bind(arg, 0, 0);
  sched_getaffinity(0, sizeof mask, &mask);
  return &mask;
}

/* Runs last: it narrows the affinity mask of this process. */
static void the_mask_of_the_process_is_honoured_and_threads_are_bound(void) {
  cpu_set_t allowed, one;
  CHECK(!sched_getaffinity(0, sizeof allowed, &allowed), "no affinity mask");
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &allowed)) last--;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  CHECK(!sched_setaffinity(0, sizeof one, &one), "cannot narrow the mask");
  sl_machine *machine = machine_of(NULL);
  CHECK(sl_machine_cores(machine) == 1, "one CPU is allowed, %d cores are seen",
        sl_machine_cores(machine));
  CHECK(!sched_setaffinity(0, sizeof allowed, &allowed), "cannot widen the mask");
  sl_placement *placement;
  CHECK(!sl_placement_create(machine, 1, 1, &placement), "%s", sl_detail());
  pthread_t thread;
  void *mask;
  CHECK(!pthread_create(&thread, NULL, bind_and_report, placement), "no thread");
  pthread_join(thread, &mask);
  CHECK(CPU_COUNT((cpu_set_t *)mask) == 1 && CPU_ISSET(last, (cpu_set_t *)mask),
        "the thread is bound to %d CPUs", CPU_COUNT((cpu_set_t *)mask));
  sl_placement_destroy(placement);
  sl_machine_destroy(machine);
}

int main(void) {
  RUN(devices_fill_a_cache_before_the_next);
  RUN(devices_stay_inside_a_node_if_they_can);
  RUN(too_few_cores_are_handed_out_in_turn);
  RUN(all_cores_are_shared_out_by_default);
  RUN(the_table_names_cores_nodes_caches_and_sharers);
  RUN(wrong_machines_and_shapes_are_refused_by_name);
  RUN(an_exported_machine_is_read);
  RUN(the_mask_of_the_process_is_honoured_and_threads_are_bound);
  return 0;
}
